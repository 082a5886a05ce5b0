// session_model.h: a session's model: split among the ranks as mode, mesh and lists say, with what is trained of it;
// and the lists of steps that a rank runs on it.
#ifndef GX_SESSION_MODEL_H
#define GX_SESSION_MODEL_H
#include "session.h"
GX_BEGIN

GxStatus gx_session_open_model(GxSession *s); // after gx_session_open_data

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_MODEL_IMPLEMENTED)
#define GX_SESSION_MODEL_IMPLEMENTED
#include <string.h>
#include "../model/cp.h"
#include "adapter.h"
#include "stages.h"
#include "tuning.h"

// 1: a head's bias has two names, so tuned.h does not train the head whole: BERT's decoder.
static int gx__session_model_shares_bias(const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].role == GX_ROLE_BIAS && t->row[i].is_vocabulary && t->row[i].has_alias) return 1;
    return 0;
}

// Lists the modules that can be trained whole among the embedding of tokens and heads over them,
// "embed_tokens,lm_head". Returns the first of their tensors that is frozen; NULL: none. *other: one that is frozen and
// cannot be trained whole; NULL: none.
static const GxTensor *gx__session_model_frozen_rows(const GxTable *t, const GxTensor **other, char *names, size_t size)
{
    const GxTensor *frozen = NULL;
    *other = NULL;
    names[0] = 0;
    for (int i = 0; i < t->n; i++) {
        const GxTensor *row = &t->row[i];
        if (!row->is_vocabulary || row->role == GX_ROLE_BIAS) continue;
        if (row->role == GX_ROLE_HEAD && gx__session_model_shares_bias(t)) {
            if (row->frozen && !row->has_alias) *other = row;
            continue;
        }
        const int64_t end = gx_text_stem(row->name, ".weight");
        int64_t begin = end;
        while (begin > 0 && row->name[begin - 1] != '.') begin--;
        const size_t at = strlen(names);
        snprintf(names + at, size - at, "%s%.*s", at ? "," : "", (int)(end - begin), row->name + begin);
        if (row->frozen && !row->has_alias && !frozen) frozen = row;
    }
    return frozen;
}

// Rows of new tokens mean nothing until they are trained, and an adapter's folder must have those that its base lacks.
static GxStatus gx__session_model_check_rows(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    char names[400];
    const GxTensor *other, *frozen = gx__session_model_frozen_rows(&s->model.table, &other, names, sizeof names);
    const long more = r->vocab_of_model ? (long)(gx_model_vocab(&s->model) - r->vocab_of_model) : 0;
    const int is_new = more || r->tokens_added, is_shared = s->model.memory > 0; // by encoder, decoder and head
    if ((!frozen && !other) || !is_new || gx_options_is_inference(&r->o)) return GX_OK;
    if (more && frozen && gx_model_has_adapter(&s->model))
        return GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
                       "the tokenizer has %ld token%s more than the model has rows for, but --tuning %s does not train "
                       "%s, and its folder would not contain the new rows; %s%s",
                       more, gx_text_s(more), r->o.tuning.tuning, frozen->name,
                       is_shared ? "use --tuning full" : "say --trainable_modules ", is_shared ? "" : names);
    const char *why = !gx_model_has_adapter(&s->model) ? "--freeze has frozen it"
                      : frozen && is_shared            ? "--tuning full trains it"
                      : frozen                         ? "--trainable_modules names what is trained whole"
                      : other->has_lora                ? "only its LoRA is trained"
                                                       : "--lora_target_modules can give it LoRA";
    if (gx_session_is_first(s))
        gx_log(&s->g->log, GX_LOG_WARNING, "%s is not trained, so its rows for new tokens stay what they are; %s",
               frozen ? frozen->name : other->name, why);
    return GX_OK;
}

// A loss over labels of texts, or of vectors, has no vocabulary over which a label could be spread.
static GxStatus gx__session_model_check_smoothing(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    for (int i = 0; i < s->model.kinds && r->o.label_smoothing_factor > 0; i++) {
        const GxUnitSpec *u = &s->model.kind[i].spec;
        for (int k = 0; k < u->n_pairs; k++)
            if (u->pair[k].core.kind == GX_CORE_LABELS || u->pair[k].core.kind == GX_CORE_VECTORS)
                return GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
                               "--label_smoothing_factor %g is for the loss of tokens, but task %s has a loss of %s; "
                               "leave it out",
                               r->o.label_smoothing_factor, r->task->name,
                               u->pair[k].core.kind == GX_CORE_LABELS ? "labels or numbers" : "vectors");
    }
    return GX_OK;
}

// Checks a default sequence length, the names of an adapter's modules, and rows of new tokens.
static GxStatus gx__session_model_check(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const int64_t positions = s->model.max_positions;
    if (r->seq_len_is && positions && r->o.seq_len > positions)
        return GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
                       "%s is %ld, which is longer than the %ld positions that the model has for texts "
                       "(%s); say --seq_len %ld, or less",
                       r->seq_len_is, (long)r->o.seq_len, (long)positions, gx_model_positions_name(&s->model),
                       (long)positions);
    if (gx_model_has_adapter(&s->model)) GX_TRY(gx_adapter_check_names(&s->model, &s->g->error));
    GX_TRY(gx__session_model_check_smoothing(s));
    return gx__session_model_check_rows(s);
}

// How this rank runs the lists of steps. units: in a pipeline, set to the units that this rank has; otherwise
// unchanged.
static GxRunnerSpec gx__session_model_runner(const GxSession *s, GxUnits *units)
{
    const GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    GxRunnerSpec runner = GX_ZERO;
    runner.micro_batches = (int)gx_session_micro_batches(s);
    runner.most_micro_batches = (int)gx_session_micro_most(s);
    runner.bucket = (int)o->reduce_bucket, runner.starts_sums = o->overlap && o->reduce_bucket > 0;
    runner.overlaps = o->overlap;
    runner.counts = r->task->batch.counts, runner.task = r->self;
    runner.forward_only = gx_options_is_inference(o);
    runner.keeps_graphs = o->cuda_graphs;
    runner.schedule = r->program_schedule;
    runner.shard_grads_in_window = o->shard_grads_in_window && o->gradient_accumulation_steps > 1;
    runner.gathered_units = (int)o->gathered_units;
    runner.cache = s->extra.cache;
    if (o->pp > 1) {
        runner.stage = s->stage, runner.order = r->chosen.order;
        if (o->stage_warm_list.n) runner.warm = s->warm;
        *units = gx_steps_units(runner.order, (int)o->pp, gx_group_index(s->g, GX_AXIS_PP), s->stage);
        runner.defers_weights = gx_order_info(runner.order)->has_halves;
    }
    return runner;
}

static void gx__session_model_optimizer(GxOptimizer *optimizer, const GxTrainRun *r)
{
    const GxTrainOptions *o = &r->o;
    optimizer->kind = r->chosen.optimizer;
    optimizer->adamw.beta1 = (float)o->adam_beta1, optimizer->adamw.beta2 = (float)o->adam_beta2;
    optimizer->adamw.eps = (float)o->adam_epsilon, optimizer->adamw.weight_decay = (float)o->weight_decay;
    optimizer->sgd.momentum = (float)o->momentum, optimizer->sgd.weight_decay = (float)o->weight_decay;
    optimizer->max_grad_norm = o->max_grad_norm;
}

// 1: several documents may share a sequence, so that a task's batches say where they begin.
static int gx__session_model_has_documents(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    GxBatch b = GX_ZERO;
    char somewhere[GX_ALIGN];
    b.T = r->o.seq_len, b.B = 1, b.runs = gx_runs_one(b.T, 0);
    r->task->batch.layout(r->self, &b, somewhere, NULL); // only addresses are computed
    return b.documents != NULL;
}

// How the ranks of cp share a sequence; all zero: there is one.
static GxStatus gx__session_model_cp(const GxSession *s, GxCp *cp)
{
    const GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    const int n = gx_mesh_size(&s->mesh, GX_AXIS_CP);
    GxSplit rows = gx_split_even(o->seq_len, n);
    memset(cp, 0, sizeof *cp);
    if (n == 1) return GX_OK;
    if (!r->task->batch.stands_alone || !r->task->batch.stands_alone(r->self))
        return GX_FAIL(&s->g->error, GX_ERR_UNSUPPORTED,
                       "--cp %d divides sequences among ranks, but task %s%s needs whole texts on each; leave it out",
                       n, r->task->name, r->task->batch.stands_alone ? " with these options" : "");
    for (int i = 0; i < o->cp_list.n; i++) rows.begin[i + 1] = rows.begin[i] + o->cp_list.v[i];
    const int zigzags = (int)(o->cp_zigzags ? o->cp_zigzags : gx__session_model_has_documents(s) ? 4 : 1);
    GX_TRY(gx_cp_open(cp, gx_mesh_index(&s->mesh, GX_AXIS_CP), &rows, zigzags, &s->g->error));
    cp->by_ring = !strcmp(o->cp_method, "ring");
    return GX_OK;
}

GxStatus gx_session_open_model(GxSession *s)
{
    const GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    const GxSplitLists lists = {{o->tp_num_attention_heads_list.v, o->tp_num_attention_heads_list.n},
                                {o->tp_intermediate_size_list.v, o->tp_intermediate_size_list.n},
                                {o->tp_vocab_size_list.v, o->tp_vocab_size_list.n},
                                {o->seq_scatter_list.v, o->seq_scatter_list.n}};
    const GxPartList shares = {o->dp_shard_list.v, o->dp_shard_list.n};
    GxModelOptions options = GX_ZERO;
    GX_TRY(gx_stages_plan(s));
    const GxRunnerSpec runner = gx__session_model_runner(s, &options.units);
    GxCp cp;
    GX_TRY(gx__session_model_cp(s, &cp));
    char cut[GX_TEXT_VALUE];
    if (gx_recompute_has(r->chosen.again, GX_AGAIN_ATT | GX_AGAIN_MLP) && runner.defers_weights)
        return GX_FAIL(
            &s->g->error, GX_ERR_ARGUMENT,
            "--recompute %s computes again what --pipeline_schedule %s still needs for the gradients of weights "
            "that it puts off; use --recompute layer, or layer:0-5 of some layers, or another schedule",
            gx_text_cut(o->recompute, cut, sizeof cut), gx_order_info(r->chosen.order)->name);
    options.lists = &lists, options.cp = &cp, options.again = r->chosen.again;
    options.head = r->task->data.head ? r->task->data.head(r->self) : NULL;
    options.dtype = r->chosen.dtype;
    options.freeze = runner.forward_only ? "*" : o->freeze;
    options.adapter = gx_tuning_adapter(&o->tuning);
    options.quantize = gx_tuning_quantize(&o->tuning);
    options.sharded = r->chosen.sharded, options.shard_list = &shares;
    s->evals = gx_stages_evals(o);
    gx__session_model_optimizer(&s->optimizer, r);
    GX_TRY(gx_model_open(s->g, &s->model, r->family, r->model_config, s->mode, &options));
    s->model.max_source_T = s->source_len, s->model.label_smoothing = (float)o->label_smoothing_factor;
    GX_TRY(gx__session_model_check(s));
    return gx_runner_open(s->g, &s->runner, &s->model, &s->optimizer, &runner);
}
#endif
