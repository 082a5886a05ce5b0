// setup.h: opens a training run, in this order. Each stage is implemented in a header of its own:
//
//     the task      task_choice.h which of the family's tasks
//     options       options.h     flags and --config; --help and --version end here
//     communicator  machine.h     with memory of its own, since the ranks must agree before there is a plan
//     resuming      resume.h      the checkpoint, if any, and its options
//     agreement     agree.h       options, the model's configuration
//     the data      task/         opened by the task; the ranks agree on them, too
//     steps         epochs.h      how many, which may depend on the data, and their learning rates
//     plan          plan.h        from a step on the device `none` (buffers.h); --dry_run ends here
//     memory        buffers.h     the arena, exactly as planned
//     weights       checkpoint_load.h  initialised, loaded or resumed
//     output        output.h      the folder is locked; a folder of another run is refused
#ifndef GX_SETUP_H
#define GX_SETUP_H
#include "trainer.h"
GX_BEGIN

GxStatus gx_trainer_open(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                         int argc, char **argv);
GxStatus gx_trainer_open_by(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                            const GxStepsSchedule *schedule, int argc, char **argv);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SETUP_IMPLEMENTED)
#define GX_SETUP_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../text/sentence_modules.h"
#include "../model/lora.h"
#include "agree.h"
#include "autotune.h"
#include "best.h"
#include "buffers.h"
#include "epochs.h"
#include "launch.h"
#include "machine.h"
#include "notes.h"
#include "output.h"
#include "processors.h"
#include "report.h"
#include "side_cache.h"
#include "stages.h"

// ---- options --------------------------------------------------------------------------------------------------------

static GxStatus gx__setup_check_folders(const GxTrainOptions *o, GxError *err)
{
    if (o->model[0] && o->resume[0] && strcmp(o->resume, "auto") && !gx_path_is_adapter(o->resume))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--model and --resume both name a folder; a checkpoint that is resumed brings its model along");
    if (o->overwrite_output_dir && o->resume[0] && !gx_options_is_inference(o))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--overwrite_output_dir begins a new run, and --resume goes on with one; leave one of them out");
    if (gx_options_is_inference(o) && !o->model[0] && !o->resume[0] && !o->tuning.adapter[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s needs a model: --resume auto, --resume FOLDER or --model FOLDER",
                       o->predicts   ? o->predicts
                       : o->evaluate ? "evaluate"
                                     : "sample_only");
    if (o->predicts && o->evaluate)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--evaluate looks at held-out samples, and --%s at another file in their place; give one of "
                       "them, then the other",
                       o->predicts);
    if (o->ignore_mismatched_sizes && !o->model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--ignore_mismatched_sizes is about the head of --model, which is not given; give it, or leave "
                       "this out");
    if (!o->strict && !o->model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--strict false is about the weights of --model, which is not given; give it, or leave this "
                       "out%s",
                       o->resume[0] ? " (what --resume goes on with must match, all of it)" : "");
    return GX_OK;
}

static GxStatus gx__setup_read_options(GxTrainer *t, int argc, char **argv)
{
    GxError *err = &t->g->error;
    t->model_config = calloc(1, t->family->config_size);
    t->self = calloc(1, t->task->size);
    if (!t->model_config || !t->self) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    gx_config_open(&t->config);
    GX_TRY(gx_task_add_options(&t->choice, &t->config, t->family, t->task, t->self, err));
    GX_TRY(gx_options_add(&t->config, &t->o, t->mode, t->steps_schedule, t->family->name, err));
    GX_TRY(gx_config_add(&t->config, "model", t->family->fields, t->family->n_fields, t->model_config, err));
    GX_TRY(gx_config_read_args(&t->config, argc, argv, err));
    if (t->config.help || t->config.version) {
        if (t->config.help) gx_report_help(t, argv[0]);
        else gx_report_version(t);
        t->done = 1;
        return GX_OK;
    }
    if (t->o.threads) t->g->threads = (int)t->o.threads;
    GX_TRY(gx_threads_take(gx_threads(t->g), err));
    t->o.predicts = t->task->predicts ? t->task->predicts(t->self) : NULL;
    GX_TRY(gx_choose_device(t->g, t->o.device));
    return gx__setup_check_folders(&t->o, err);
}

// Decides the mode, from the options given now and those that a resumed run was started with.
static GxStatus gx__setup_resolve_mode(GxTrainer *t)
{
    char methods[60];
    GxError *err = &t->g->error;
    if (!t->mode) {
        GX_TRY(gx_options_resolve_mode(&t->o, &t->config, &t->composed, err));
        t->mode = &t->composed;
    }
    gx_methods_text(t->mode->methods, methods, sizeof methods);
    gx_resume_keep_layout(&t->resume, &t->o, &t->config, methods, t->g->world);
    GX_TRY(gx_options_shard_bytes(&t->o, &t->shard_bytes, err));
    return gx_options_check_lists(&t->o, t->mode, err);
}

// ---- the parts ------------------------------------------------------------------------------------------------------

// On rank 0, before the model is opened: refuses an output folder that this run must not write to, and a damaged
// checkpoint.
static GxStatus gx__setup_check_output(GxTrainer *t)
{
    const GxTrainOptions *o = &t->o;
    GxError *err = &t->g->error;
    if (!t->resume.folder[0] && o->model[0]) GX_TRY(gx_output_check_model(o->model, err));
    if (!t->resume.folder[0] && o->model[0]) GX_TRY(gx_adapter_refuse_as_model(o->model, err));
    if (o->dry_run || gx_options_is_inference(o)) return GX_OK;
    if (o->overwrite_output_dir) return GX_OK;
    return gx_output_refuse_used(o->output_dir, t->resume.state.run, t->resume.is_home, err);
}

// Refuses to overwrite a folder that this run takes its weights from.
static GxStatus gx__setup_check_overwrite(const GxTrainer *t, GxError *err)
{
    const GxTrainOptions *o = &t->o;
    const char *const from[] = {o->model, o->tuning.adapter}, *const name[] = {"model", "adapter"};
    for (int i = 0; i < 2 && o->overwrite_output_dir && !o->dry_run && !gx_options_is_inference(o); i++)
        if (from[i][0] && gx_output_contains(o->output_dir, from[i]))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--%s %s lies in %s, which --overwrite_output_dir would clear before anything new is saved; "
                           "choose another --output_dir",
                           name[i], from[i], o->output_dir);
    return GX_OK;
}

// Without training, the sequence length defaults to what the model was trained with, if its folder says so; for vectors
// of texts, to where sentence-transformers would cut them.
static GxStatus gx__setup_resolve_length(GxTrainer *t)
{
    GxContext *g = t->g;
    GxJson *args = NULL;
    GxError ignored = GX_ZERO;
    char path[GX_PATH];
    static const char *const names[] = {"the default of --seq_len", "seq_len in the model's training_args.json",
                                        "what the model's folder says (max_seq_length, else model_max_length)"};
    int64_t length[2] = {0, 0}; // and its name
    const int is_default = gx_config_source(&t->config, "seq_len") == GX_FROM_DEFAULT;
    if (is_default) t->seq_len_is = names[0];
    const char *folder = t->o.tuning.adapter[0] ? t->o.tuning.adapter : t->o.model;
    if (!gx_options_is_inference(&t->o) || t->resume.folder[0]) return GX_OK;
    if (gx_trainer_is_first(t) && folder[0] && gx_path_join(path, folder, "training_args.json", &ignored) == GX_OK &&
        gx_path_is_file(path) && gx_json_read(&args, path, 1 << 20, &ignored) == GX_OK) {
        const GxJson *said = gx_json_get(args, "seq_len");
        if (gx_json_type(said) == GX_JSON_INT) length[0] = gx_json_int(said), length[1] = 1;
        gx_json_free(args);
    }
    if (gx_trainer_is_first(t) && folder[0] && t->o.predicts && !strcmp(t->o.predicts, "embed")) {
        int64_t most = 0;
        // the task says what is wrong
        if (gx_sentence_most(folder, &most, &ignored) == GX_OK && most) length[0] = most, length[1] = 2;
    }
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, length, 2, GX_I64);
    if (length[0] > 0 && length[0] <= 16777216 && is_default)
        t->o.seq_len = length[0], t->seq_len_is = names[length[1]];
    return gx_status(g);
}

// The base model of a resumed adapter may have moved.
static void gx__setup_check_base(const GxTrainer *t, GxError *err)
{
    GxError gone = GX_ZERO;
    if (!t->resume.folder[0] || !t->resume.state.base_hash.all ||
        gx_output_check_exists(t->o.model, "model", &gone) == GX_OK)
        return;
    GX_FAIL(err, GX_ERR_ARGUMENT,
            "%s is an adapter of %s, and there is no such folder; where it lies now, --model says", t->resume.folder,
            t->o.model);
}

// Reads the method, the hyperparameters and the base's folder from the adapter that training starts from.
static GxStatus gx__setup_read_adapter(GxTrainer *t)
{
    GxContext *g = t->g;
    GxAdapter adapter;
    if (!t->o.tuning.adapter[0] || t->resume.folder[0]) return GX_OK;
    GxPeftConfig *c = (GxPeftConfig *)calloc(1, sizeof *c);
    if (!c) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a configuration");
    if (gx_trainer_is_first(t)) gx_output_check_adapter(t->o.tuning.adapter, &g->error);
    if (gx_adapter_read_config(g, c, &adapter, t->o.tuning.adapter) == GX_OK) {
        gx_tuning_take(&t->o.tuning, &t->config, c, &g->error);
        t->vocab_of_adapter = c->vocab;
        if (!t->o.model[0]) snprintf(t->o.model, sizeof t->o.model, "%s", c->base);
        if (gx_trainer_is_first(t)) gx_output_check_exists(t->o.model, "model", &g->error);
        if (gx_trainer_is_first(t) && c->freezes_b && !gx_options_is_inference(&t->o) && !t->o.freeze[0])
            gx_log(
                &g->log, GX_LOG_WARNING,
                "the adapter %s was trained with its lora_B frozen (init_lora_weights \"mica\"), and goes on with both "
                "factors; --freeze '*.lora_B.*' keeps them as they are",
                t->o.tuning.adapter);
    }
    free(c);
    return gx_status(g);
}

static GxStatus gx__setup_check_dropout(GxTrainer *t)
{
    if (!t->task->defaults || !t->task->defaults->without_dropout) return GX_OK;
    if (gx_config_source(&t->config, "lora_dropout") == GX_FROM_FLAG && t->o.tuning.lora_dropout > 0)
        return GX_FAIL(&t->g->error, GX_ERR_ARGUMENT,
                       "--lora_dropout is %g, and --task %s is without dropout: what it compares would be compared "
                       "through different drawings; leave it out",
                       t->o.tuning.lora_dropout, t->task->name);
    t->o.tuning.lora_dropout = 0;
    return GX_OK;
}

// Refuses options about --model's weights that do not work with an adapter, which is saved without them.
static GxStatus gx__setup_check_tuning(GxTrainer *t)
{
    const GxTrainOptions *o = &t->o;
    GxError *err = &t->g->error;
    if (!gx_tuning_has_adapter(&o->tuning)) return GX_OK;
    GX_TRY(gx__setup_check_dropout(t));
    if (!o->strict)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--strict false draws weights of --model, which a folder of an adapter does not have: nobody "
                       "could load it; leave one of them out");
    if (o->ignore_mismatched_sizes && o->tuning.adapter[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--ignore_mismatched_sizes draws a new head, and the adapter %s brings its own; leave one of "
                       "them out",
                       o->tuning.adapter);
    return gx_status(t->g);
}

// Refuses --tf32 unless the run computes products in fp32 on a card.
static GxStatus gx__setup_resolve_tf32(GxTrainer *t)
{
    const char *device = t->g->device->name;
    t->g->tf32 = t->o.tf32;
    if (!t->o.tf32 || (!strcmp(device, "cuda") && !strcmp(t->o.precision, "fp32"))) return GX_OK;
    return GX_FAIL(
        &t->g->error, GX_ERR_ARGUMENT,
        "--tf32 is about products in fp32 on a card; this run is on the device %s in %s: leave it out, or say "
        "--tf32 false",
        device, t->o.precision);
}

// Refuses --cuda_graphs on a device that has no graphs.
static GxStatus gx__setup_check_graphs(GxTrainer *t)
{
    GxError *err = &t->g->error;
    if (!t->o.cuda_graphs || gx_options_is_inference(&t->o)) return GX_OK;
    if (!t->g->device->graph_begin)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--cuda_graphs is about kernels on a card; this run is on the device %s: leave it out, or, where "
            "the resumed run or a --config file has it, say --cuda_graphs false",
            t->g->device->name);
    return GX_OK;
}

static GxStatus gx__setup_find_run(GxTrainer *t)
{
    GxContext *g = t->g;
    GxResume *r = &t->resume;
    int tensorboard;
    const int read_only = t->o.dry_run || gx_options_is_inference(&t->o);
    GX_TRY(gx_agree_on_start(g, &t->config, t->o.predicts));
    GX_TRY(gx_resume_find(g, r, &t->o, &t->config, read_only, &t->lock));
    if (gx_trainer_is_first(t)) gx__setup_check_output(t);
    GX_TRY(gx_resume_check_choice(r, t->family, t->task, &g->error));
    if (gx_trainer_is_first(t)) gx_resume_check_model(r, &t->o, &g->error);
    if (gx_trainer_is_first(t)) gx_resume_warn_of_unknown(r, &t->config, &g->log);
    GX_TRY(gx_resume_take_options(r, t->task, &t->config, &t->o, &g->error));
    GX_TRY(gx_epochs_choose(&t->o, &t->config, &g->error));
    GX_TRY(gx_report_to(&t->o, &tensorboard, &g->error));
    GX_TRY(gx_resume_check_tuning(r, &t->o, &g->error));
    GX_TRY(gx__setup_resolve_tf32(t));
    GX_TRY(gx_autotune_check(&t->o, t->g, &g->error));
    if (gx_trainer_is_first(t)) gx__setup_check_base(t, &g->error);
    if (gx_options_is_inference(&t->o) && r->args && !r->folder[0])
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the run in %s has no whole checkpoint to show; --model or --adapter, without --resume, shows "
                       "what it began with",
                       t->o.output_dir);
    GX_TRY(gx__setup_read_adapter(t));
    GX_TRY(gx_tuning_resolve(&t->o.tuning, &t->config, t->o.model, &g->error));
    if (gx_trainer_is_first(t)) gx__setup_check_overwrite(t, &g->error);
    GX_TRY(gx__setup_check_tuning(t));
    if (gx_options_is_inference(&t->o) && !r->folder[0] && !t->o.model[0])
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "there is no checkpoint in %s to show", t->o.output_dir);
    GX_TRY(gx__setup_resolve_length(t));
    return gx__setup_resolve_mode(t);
}

static GxStatus gx__setup_read_model(GxTrainer *t)
{
    char folder[GX_PATH] = "";
    snprintf(folder, sizeof folder, "%s", t->resume.folder[0] ? t->resume.folder : t->o.model);
    GX_TRY(gx_agree_on_model(t->g, &t->config, t->family, t->model_config, folder));
    if (t->resume.folder[0] || !t->o.model[0]) return GX_OK;
    int64_t *vocab = t->family->vocab_size(t->model_config);
    t->vocab_of_model = *vocab;
    *vocab = gx_max(*vocab, t->vocab_of_adapter);
    return GX_OK;
}

// The ranks find each other, agree on what to run, and are arranged in a mesh.
static GxStatus gx__setup_connect(GxTrainer *t)
{
    GxContext *g = t->g;
    GxError *err = &g->error;
    GxTrainOptions *o = &t->o;
    int dims[GX_MESH_AXES] = {1, 1, -1, 1, 1};
    if (g->world > GX_MAX_PARTS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%d ranks; at most %d are possible", g->world, GX_MAX_PARTS);
    // until the ranks have agreed on the arrangement, all are data-parallel
    GX_TRY(gx_mesh_open(&t->mesh, dims, g->rank, g->world, err));
    g->mesh = &t->mesh;
    GX_TRY(gx_open_comm(g, &t->comm_arena, o->timeout));
    GX_TRY(gx__setup_find_run(t));
    GX_TRY(gx_agree_on_options(g, &t->config, t->family, t->task, t->mode->methods));
    if (!gx_options_is_inference(o)) GX_TRY(gx_resume_check(&t->resume, o, err));
    GX_TRY(gx__setup_read_model(t));
    GX_TRY(gx_options_resolve_mesh(o, &t->config, t->mode, g->world, err));
    gx_options_mesh(o, g->world, dims);
    GX_TRY(gx__setup_check_graphs(t));
    GX_TRY(gx_mesh_open(&t->mesh, dims, g->rank, g->world, err));
    if (gx_order_info(gx_stages_order(t))->is_v) t->mesh.head = 0;
    return gx_open_device_comm(g, o->device_comm);
}

// A pretrained model needs a lower learning rate than a new one.
static void gx__setup_resolve_rate(GxTrainer *t)
{
    GxTrainOptions *o = &t->o;
    if (gx_config_source(&t->config, "learning_rate") == GX_FROM_DEFAULT && (o->model[0] || t->task->defaults))
        o->learning_rate = gx_tuning_rate(t->task, o->tuning.tuning);
}

static GxStatus gx__setup_resolve_batch(GxTrainer *t)
{
    GxTrainOptions *o = &t->o;
    GxError *err = &t->g->error;
    const int copies = gx_mesh_size(&t->mesh, GX_AXIS_DP);
    if (gx_options_is_inference(o)) {                      // one micro-batch at a time, and no steps for a schedule
        gx_config_forget(&t->config, "global_batch_size"); // from the resumed run
        o->gradient_accumulation_steps = 1, o->global_batch_size = 0;
        return gx_options_resolve_batch(o, &t->config, copies, &t->batch_split, err);
    }
    return gx_options_resolve_batch(o, &t->config, copies, &t->batch_split, err);
}

// How many steps there are, which the data may decide, and their learning rates.
static GxStatus gx__setup_resolve_steps(GxTrainer *t)
{
    GxTrainOptions *o = &t->o;
    GxError *err = &t->g->error;
    const GxEpochsBegun begun = {t->resume.state.step, t->resume.state.samples};
    if (gx_options_is_inference(o)) return GX_OK;
    GX_TRY(gx_epochs_resolve(o, &t->config, t->epoch_samples, begun, gx_trainer_is_first(t) ? &t->g->log : NULL, err));
    GX_TRY(gx_resume_check_steps(&t->resume, o, err));
    gx__setup_resolve_rate(t);
    return gx_schedule_open(&t->schedule, o->lr_scheduler_type, o->learning_rate, o->min_lr_ratio, o->warmup_steps,
                            o->lr_decay_steps, o->max_steps, err);
}

// 1: a head's bias has two names, so that tuned.h does not train the head whole: BERT's decoder.
static int gx__setup_shares_bias(const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].role == GX_ROLE_BIAS && t->row[i].is_vocabulary && t->row[i].has_alias) return 1;
    return 0;
}

// The modules of the embedding of tokens and of heads over them that can be trained whole, "embed_tokens,lm_head", and
// the first of their tensors that is frozen; NULL: none is. *other: one that is frozen and cannot be; NULL: none.
static const GxTensor *gx__setup_frozen_rows(const GxTable *t, const GxTensor **other, char *names, size_t size)
{
    const GxTensor *frozen = NULL;
    *other = NULL;
    names[0] = 0;
    for (int i = 0; i < t->n; i++) {
        const GxTensor *row = &t->row[i];
        if (!row->is_vocabulary || row->role == GX_ROLE_BIAS) continue;
        if (row->role == GX_ROLE_HEAD && gx__setup_shares_bias(t)) {
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

// Rows of new tokens mean nothing until they are trained; and an adapter's folder has to have those that its base has
// not.
static GxStatus gx__setup_check_rows(const GxTrainer *t)
{
    char names[400];
    const GxTensor *other, *frozen = gx__setup_frozen_rows(&t->model.table, &other, names, sizeof names);
    const long more = t->vocab_of_model ? (long)(gx_model_vocab(&t->model) - t->vocab_of_model) : 0;
    const int is_new = more || t->tokens_added;
    if ((!frozen && !other) || !is_new || gx_options_is_inference(&t->o)) return GX_OK;
    if (more && frozen && gx_model_has_adapter(&t->model))
        return GX_FAIL(&t->g->error, GX_ERR_ARGUMENT,
                       "the tokenizer has %ld token%s more than the model has rows for; --tuning %s does not train %s, "
                       "and its folder would not have the rows: say --trainable_modules %s",
                       more, gx_text_s(more), t->o.tuning.tuning, frozen->name, names);
    const char *why = !gx_model_has_adapter(&t->model) ? "--freeze has frozen it"
                      : frozen                         ? "--trainable_modules names what is trained whole"
                      : other->has_lora                ? "its LoRA alone is"
                                                       : "--lora_target_modules can give it LoRA";
    if (gx_trainer_is_first(t))
        gx_log(&t->g->log, GX_LOG_WARNING, "%s is not trained, and its rows of new tokens stay what they are; %s",
               frozen ? frozen->name : other->name, why);
    return GX_OK;
}

static GxStatus gx__setup_open_model(GxTrainer *t)
{
    const GxTrainOptions *o = &t->o;
    const GxSplitLists lists = {{o->tp_num_attention_heads_list.v, o->tp_num_attention_heads_list.n},
                                {o->tp_intermediate_size_list.v, o->tp_intermediate_size_list.n},
                                {o->tp_vocab_size_list.v, o->tp_vocab_size_list.n},
                                {o->seq_scatter_list.v, o->seq_scatter_list.n}};
    GxModelOptions options = GX_ZERO;
    GxRunnerSpec runner = GX_ZERO;
    runner.micro_batches = (int)o->gradient_accumulation_steps;
    runner.recomputes_layers = !strcmp(o->recompute, "layer");
    runner.bucket = (int)o->reduce_bucket, runner.starts_sums = o->reduce_bucket > 0;
    runner.counts = t->task->counts, runner.task = t->self;
    runner.forward_only = gx_options_is_inference(o);
    runner.keeps_graphs = o->cuda_graphs;
    runner.schedule = t->steps_schedule;
    options.lists = &lists;
    options.head = t->task->head ? t->task->head(t->self) : NULL;
    options.dtype = strcmp(o->precision, "bf16") ? GX_F32 : GX_BF16;
    options.freeze = runner.forward_only ? "*" : o->freeze;
    const GxAdapter adapter = gx_tuning_adapter(&o->tuning);
    gx_model_adapt(&options, &adapter);
    options.quantize = gx_tuning_quantize(&o->tuning);
    const GxPartList shares = {o->dp_shard_list.v, o->dp_shard_list.n};
    options.sharded = (GxSharded)atoi(o->zero), options.shard_list = &shares;
    runner.shard_grads_in_window = o->shard_grads_in_window && o->gradient_accumulation_steps > 1;
    runner.gathered_units = (int)o->gathered_units;
    GX_TRY(gx_stages_plan(t));
    if (o->pp > 1) {
        runner.stage = t->stage, runner.order = gx_stages_order(t);
        options.units = gx_steps_units(runner.order, (int)o->pp, gx_group_index(t->g, GX_AXIS_PP), t->stage);
        runner.defers_weights = gx_order_info(runner.order)->has_halves;
    }
    t->evals = gx_stages_evals(o);
    GX_TRY(gx_model_open(t->g, &t->model, t->family, t->model_config, t->mode, &options));
    const int64_t positions = t->model.max_positions;
    if (t->seq_len_is && positions && o->seq_len > positions)
        return GX_FAIL(&t->g->error, GX_ERR_ARGUMENT,
                       "%s is %ld, which is longer than the model's max_position_embeddings (%ld): say --seq_len %ld, "
                       "or less",
                       t->seq_len_is, (long)o->seq_len, (long)positions, (long)positions);
    if (gx_model_has_adapter(&t->model)) GX_TRY(gx_adapter_check_names(&t->model, &t->g->error));
    GX_TRY(gx__setup_check_rows(t));
    runner.cache = gx_side_cache_plan(t);
    return gx_runner_open(t->g, &t->runner, &t->model, &t->optimizer, &runner);
}

// The folder of the labels and the tokenizer: our adapters bring their own, peft's do not.
static const char *gx__setup_task_folder(const GxTrainer *t)
{
    char config[GX_PATH];
    GxError ignored = GX_ZERO;
    const char *adapter = t->o.tuning.adapter;
    if (t->resume.folder[0]) return t->resume.folder;
    if (!adapter[0] || gx_path_join(config, adapter, GX_PEFT_MODEL_CONFIG, &ignored) != GX_OK) return t->o.model;
    return gx_path_is_file(config) ? adapter : t->o.model;
}

static GxStatus gx__setup_open_task(GxTrainer *t)
{
    GxTaskSetup task = GX_ZERO;
    int64_t *vocab = t->family->vocab_size(t->model_config);
    task.vocab = *vocab, task.seq_len = t->o.seq_len, task.is_dry = t->o.dry_run, task.seq_len_is = t->seq_len_is;
    task.only_shows = gx_options_is_inference(&t->o), task.frames_texts = t->family->frames_texts;
    task.dtype = strcmp(t->o.precision, "bf16") ? GX_F32 : GX_BF16;
    task.samples = gx_split_part(&t->batch_split, gx_mesh_index(&t->mesh, GX_AXIS_DP));
    task.all_samples = gx_split_total(&t->batch_split);
    const int64_t of_step = t->o.gradient_accumulation_steps * task.all_samples;
    if (!task.only_shows)
        task.run_samples = t->o.max_steps > INT64_MAX / of_step ? INT64_MAX : t->o.max_steps * of_step;
    task.epochs = task.only_shows ? 0 : t->o.num_train_epochs;
    task.repeats_epoch = !task.only_shows && !strcmp(t->o.tuning.tuning, "side_only");
    task.seed = (uint64_t)t->o.seed;
    task.starts_from_model = t->o.model[0] && !t->resume.folder[0] && !task.only_shows;
    task.ignore_mismatched_sizes = task.starts_from_model && t->o.ignore_mismatched_sizes;
    task.model = !gx_trainer_is_first(t) ? "" : gx__setup_task_folder(t);
    task.adapter = gx_trainer_is_first(t) && !t->resume.folder[0] ? t->o.tuning.adapter : "";
    task.may_grow = t->vocab_of_model > 0 && !t->o.tuning.adapter[0];
    task.keeps_tokenizer = t->resume.folder[0] && t->o.add_tokens[0];
    task.add_tokens = t->resume.folder[0] ? "" : t->o.add_tokens;
    GX_TRY(t->task->open(t->g, t->self, &task));
    *vocab = task.vocab, t->tokens_added = task.added;
    if (task.add_tokens[0] && !task.has_added)
        return GX_FAIL(&t->g->error, GX_ERR_ARGUMENT,
                       "--add_tokens is about a tokenizer, and task %s has none; leave it out", t->task->name);
    GX_TRY(gx_side_cache_set_epoch(t, task.epoch_samples, task.all_samples));
    t->epoch_samples = t->side_cache ? t->side_cache->epoch * task.all_samples : task.epoch_samples;
    const GxHeadRequest *request = t->task->head ? t->task->head(t->self) : NULL;
    if (task.ignore_mismatched_sizes && !(request && request->kind == GX_HEAD_LABELS))
        return GX_FAIL(&t->g->error, GX_ERR_ARGUMENT,
                       "--ignore_mismatched_sizes is about a head for labels, and task %s has none; leave it out",
                       t->task->name);
    return GX_OK;
}

static GxStatus gx__setup_open_parts(GxTrainer *t)
{
    GX_TRY(gx__setup_connect(t));
    GX_TRY(gx__setup_resolve_batch(t));
    GX_TRY(gx__setup_open_task(t)); // before the model: its head may depend on the data
    GX_TRY(gx__setup_resolve_steps(t));
    GX_TRY(gx_best_check(t, &t->g->error));
    return gx__setup_open_model(t);
}

// Explains an error about a relative path that comes from the resumed run's options: it was looked for from here.
static GxStatus gx__setup_explain_path(GxTrainer *t, const GxField *option, const char *path)
{
    GxError *err = &t->g->error, told = GX_ZERO;
    char *here = getcwd(NULL, 0);
    GX_FAIL(&told, gx_error_code(err),
            "%s; the resumed run was started with --%s %s, which is relative to the current folder, now %s: change to "
            "the folder where it was started, or give --%s again",
            err->message, option->name, path, here ? here : "another one", option->name);
    *err = told;
    free(here);
    return gx_status(t->g);
}

// 1: the path is the value of an option that was given in this command.
static int gx__setup_path_is_given(const GxConfig *c, const char *path)
{
    for (int k = 0; k < c->groups; k++)
        for (int i = 0; i < c->group[k].n; i++) {
            const GxField *f = &c->group[k].option[i];
            if (f->type == GX_FIELD_PATH && gx_config_is_set(c, f->name) &&
                !strcmp((const char *)gx_field_in(f, c->group[k].target), path))
                return 1;
        }
    return 0;
}

static GxStatus gx__setup_explain_error(GxTrainer *t)
{
    const GxConfig *c = &t->config;
    const GxStatus code = gx_status(t->g);
    for (int k = 0; k < c->groups && code != GX_ERR_COMM; k++)
        for (int i = 0; i < c->group[k].n; i++) {
            const GxField *f = &c->group[k].option[i];
            const char *path = (const char *)gx_field_in(f, c->group[k].target);
            if (f->type != GX_FIELD_PATH || gx_config_source(c, f->name) != GX_FROM_CHECKPOINT) continue;
            if (path[0] && path[0] != '/' && access(path, F_OK) != 0 && strstr(t->g->error.message, path) &&
                !gx__setup_path_is_given(c, path))
                return gx__setup_explain_path(t, f, path);
        }
    return code;
}

static void gx__setup_optimizer_init(GxTrainer *t)
{
    GxOptimizer *o = &t->optimizer;
    GxAdamW adamw = {(float)t->o.adam_beta1, (float)t->o.adam_beta2, (float)t->o.adam_epsilon,
                     (float)t->o.weight_decay};
    GxSgd sgd = {(float)t->o.momentum, (float)t->o.weight_decay};
    o->kind = !strcmp(t->o.optimizer, "sgd") ? GX_OPTIMIZER_SGD : GX_OPTIMIZER_ADAMW;
    o->adamw = adamw;
    o->sgd = sgd;
    o->max_grad_norm = t->o.max_grad_norm;
}

// ---- weights and the output folder ----------------------------------------------------------------------------------

// Takes over the checkpoint's step and counts.
static void gx__setup_resume_position(GxTrainer *t)
{
    const GxTrainState *s = &t->resume.state;
    t->step = t->begun = t->saved = s->step;
    t->samples = s->samples;
    t->seen.applied = s->applied;
    gx_to_device(t->g, t->g->step, &t->seen, sizeof t->seen);
}

static GxStatus gx__setup_report_resumed(GxTrainer *t)
{
    GxContext *g = t->g;
    char why[300];
    if (!gx_trainer_is_first(t) || !t->resume.args) return GX_OK;
    const GxTrainState now = gx_trainer_state(t);
    char *changes = gx_resume_changes(&t->resume, &t->config, &now, &g->error);
    gx_report_resumed(t, changes ? changes : "");
    free(changes);
    if (t->resume.folder[0] && t->step >= t->o.max_steps && !gx_options_is_inference(&t->o))
        gx_log(&g->log, GX_LOG_WARNING, "that is all of max_steps (%ld) already: there is nothing to train",
               (long)t->o.max_steps);
    else if (t->resume.folder[0] && gx_best_stops_early(t) && !gx_options_is_inference(&t->o))
        gx_log(&g->log, GX_LOG_WARNING,
               "it was stopped early, by %s: there is nothing to train; go on with a larger one, or with 0",
               gx_best_reason(t, why));
    return gx_status(g);
}

// Loads the base weights of a resumed adapter, which must be the ones it was trained on.
static void gx__setup_load_base(GxTrainer *t)
{
    const uint64_t then = t->resume.state.base_hash.all;
    if (gx_trainer_is_first(t)) gx_adapter_check_config(&t->model, t->resume.folder, &t->g->log, &t->g->error);
    gx_checkpoint_load_base(t->g, &t->model, t->o.model, &t->base_hash);
    if (gx_failed(t->g) || !gx_trainer_is_first(t) || t->base_hash.all == then) return;
    GX_FAIL(&t->g->error, GX_ERR_ARGUMENT,
            "the weights of %s are not those that %s was trained on (their hash is 0x%016lx, and was 0x%016lx): the "
            "adapter fits those alone; put them back",
            t->o.model, t->resume.folder, (unsigned long)t->base_hash.all, (unsigned long)then);
}

static GxStatus gx__setup_resume(GxTrainer *t)
{
    GxContext *g = t->g;
    if (gx_tuning_has_adapter(&t->o.tuning)) gx__setup_load_base(t);
    gx_checkpoint_load_weights(g, &t->model, t->resume.folder);
    if (gx_options_is_inference(&t->o)) t->step = t->begun = t->resume.state.step, t->samples = t->resume.state.samples;
    else {
        if (gx_trainer_is_first(t)) gx_resume_check_task(&t->resume, t->task, t->self, &g->error);
        gx_checkpoint_load_state(g, &t->model, &t->optimizer, t->resume.folder);
        gx__setup_resume_position(t);
        gx_best_resume(t);
    }
    return gx_status(g);
}

// Training may start with a new head. Without training a new head is refused, unless --strict false asks for it.
static void gx__setup_start_from(GxTrainer *t)
{
    GxWeightsLoaded loaded;
    const uint64_t seed = (uint64_t)t->o.seed;
    const int may_init = !gx_options_is_inference(&t->o) || !t->o.strict;
    GxWeightsHash hash;
    if (t->o.tuning.adapter[0]) {
        gx_checkpoint_start_with_adapter(t->g, &t->model, t->o.model, t->o.tuning.adapter, &t->base_hash);
        return;
    }
    gx_checkpoint_start_from(t->g, &t->model, t->o.model, t->o.strict, may_init ? &seed : NULL, &hash, &loaded);
    if (gx_tuning_has_adapter(&t->o.tuning)) t->base_hash = hash;
    if (!gx_failed(t->g) && gx_trainer_is_first(t)) gx_report_weights(t, &loaded);
}

static GxStatus gx__setup_set_weights(GxTrainer *t)
{
    t->run = t->resume.state.run;
    const char *from = t->resume.folder[0] ? t->resume.folder : t->o.model;
    if (gx_trainer_is_first(t) && from[0]) gx_source_folder_open(&t->source, from, &t->g->error);
    if (t->resume.folder[0]) GX_TRY(gx__setup_resume(t));
    else if (t->o.model[0]) gx__setup_start_from(t);
    else gx_model_init(t->g, &t->model, (uint64_t)t->o.seed);
    GX_TRY(gx_status(t->g));
    if (t->o.freeze[0] && !t->resume.folder[0] && !gx_options_is_inference(&t->o))
        GX_TRY(gx_tuned_check_frozen(t->g, &t->model));
    return gx__setup_report_resumed(t);
}

static GxStatus gx__setup_show_baseline(GxTrainer *t)
{
    GxMetric baseline[GX_MAX_METRICS] = GX_ZERO;
    if (t->task->baseline) GX_TRY(t->task->baseline(t->self, baseline, &t->g->error));
    for (int i = 0; i < GX_MAX_METRICS && baseline[i].name; i++) {
        gx_report_baseline(t, &baseline[i]);
        GX_TRY(gx_baseline_log(&t->log, &baseline[i], &t->g->error));
    }
    return GX_OK;
}

// How many checkpoints will exist at once.
static int64_t gx__setup_planned_checkpoints(const GxTrainer *t)
{
    const int64_t steps = gx_max(0, t->o.max_steps - t->step), every = t->o.save_steps, keep = t->o.save_total_limit,
                  best = gx_best_is_saved(&t->o) ? gx_ceil_div(steps, t->o.eval_steps) : 0,
                  all = (every ? gx_ceil_div(steps, every) : steps > 0) + best;
    return keep ? gx_min(all, keep + 1 + (best > 0)) : all; // a checkpoint is saved before an older one is removed
}

static int64_t gx__setup_checkpoint_bytes(const GxTrainer *t)
{
    return gx_checkpoint_bytes(&t->model, &t->optimizer, gx_options_save_dtype(&t->o));
}

static int64_t gx__setup_planned_bytes(const GxTrainer *t) // of the disk
{
    const int64_t bytes = gx__setup_checkpoint_bytes(t), count = gx__setup_planned_checkpoints(t);
    return count > INT64_MAX / 2 / gx_max(1, bytes) ? INT64_MAX / 2 : count * bytes;
}

// An upper bound that includes small things: copied source files, metadata, disk blocks and the log. For the side
// cache, which takes the rest of the disk.
static int64_t gx__setup_planned_bytes_at_most(const GxTrainer *t)
{
    int64_t files = 1 << 18;
    for (int i = 0; i < GX_SOURCE_FILES; i++) files += t->source.file[i].bytes;
    const int64_t count = gx__setup_planned_checkpoints(t), bytes = gx__setup_planned_bytes(t);
    if (count > INT64_MAX / 4 / files || bytes > INT64_MAX / 4) return INT64_MAX / 2;
    return bytes + count * files + (1 << 20);
}

// If the run continues in another folder than its checkpoint's, run.json says where it came from, until the new folder
// has a checkpoint.
static GxStatus gx__setup_describe_run(const GxTrainer *t, GxRunInfo *r, GxError *err)
{
    memset(r, 0, sizeof *r);
    r->run = t->run, r->world = t->g->world, r->returns_to = -1;
    gx_best_describe(t, r);
    if (!t->resume.folder[0] || gx_output_contains(t->o.output_dir, t->resume.folder)) return GX_OK;
    char *from = realpath(t->resume.folder, NULL);
    const int fits = from && strlen(from) < sizeof r->from;
    if (fits) snprintf(r->from, sizeof r->from, "%s", from);
    free(from);
    return fits ? GX_OK : GX_FAIL(err, GX_ERR_IO, "cannot find out where %s lies", t->resume.folder);
}

// Makes the folder this run's: what an earlier continuation wrote after the resumed step is moved to abandoned/.
static GxStatus gx__setup_claim_output(GxTrainer *t)
{
    const char *folder = t->o.output_dir;
    GxError *err = &t->g->error;
    char path[GX_PATH], abandoned[GX_PATH];
    GxRunInfo run;
    const int was_validated = t->best.validated == t->begun, // at the resumed step, during training
        evaluates_again = !gx_trainer_is_over(t) ? 0
                          : was_validated        ? 2
                                                 : 1;
    int checkpoints = 0;
    int64_t lines = 0;
    GX_TRY(gx_path_join(abandoned, folder, GX_ABANDONED "/log.jsonl", err));
    GX_TRY(gx_path_join(t->log_path, folder, "log.jsonl", err));
    GX_TRY(gx_path_join(path, folder, "training_args.json", err));
    GX_TRY(gx__setup_describe_run(t, &run, err));
    GX_TRY(gx_output_rewind(folder, &run, t->begun, &checkpoints, err));
    GX_TRY(gx_config_write_json(&t->config, path, err));
    GX_TRY(gx_log_open(&t->log, t->log_path, t->begun, evaluates_again, abandoned, &lines, err));
    gx_report_abandoned(t, checkpoints, lines);
    return gx_tensorboard_open(&t->tensorboard, &t->o, &t->config, t->begun, err);
}

// All paths that the run may write must fit into GX_PATH, including the last checkpoint's.
static GxStatus gx__setup_check_output_length(const char *output_dir, GxError *err)
{
    static const char longest[] = "/checkpoint-999999999999999" GX_NEW_SUFFIX "/model-00001-of-00001.safetensors";
    const int most = GX_PATH - (int)sizeof longest;
    if ((int)strlen(output_dir) <= most) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "--output_dir has %d bytes; with checkpoints and their files in it, %d fit",
                   (int)strlen(output_dir), most);
}

static GxStatus gx__setup_open_output(GxTrainer *t)
{
    GxError *err = &t->g->error;
    const char *folder = t->o.output_dir;
    if (!gx_trainer_is_first(t)) return GX_OK;
    GX_TRY(gx__setup_check_output_length(folder, err));
    GX_TRY(gx_folder_make(folder, err));
    GX_TRY(gx_output_lock(&t->lock, folder, err));
    GX_TRY(gx_output_refuse_conflicts(folder, t->o.overwrite_output_dir ? 0 : t->run, t->begun, t->o.max_steps, err));
    if (t->o.overwrite_output_dir) GX_TRY(gx_output_clear(folder, err));
    else GX_TRY(gx_output_refuse_used(folder, t->run, t->resume.is_home, err)); // again, under the lock
    GX_TRY(gx_output_check_space(folder, gx__setup_checkpoint_bytes(t), gx__setup_planned_checkpoints(t), &t->g->log,
                                 err));
    if (!t->run) t->run = gx_run_new_number();
    GX_TRY(gx__setup_claim_output(t));
    return gx__setup_show_baseline(t);
}

static GxStatus gx__setup_open_memory(GxTrainer *t)
{
    GxContext *g = t->g;
    GX_TRY(gx_arenas_open(g, &t->arena, &t->host_arena, t->plan.arena, t->plan.host));
    // the driver may not allocate a card's memory for a rank while another rank's collective waits for that rank
    if (g->comm && g->comm->device_engine) gx_barrier(g, GX_AXIS_ALL);
    gx_buffers_allocate(t, g);
    return gx_status(g);
}

// Warns if two tied tensors are no longer one, or LoRA is on only one of them.
static void gx__setup_warn_tied(const GxTrainer *t)
{
    const GxTensor *row = t->model.table.row;
    for (int i = 0; i < t->model.table.n; i++)
        if (row[i].copies)
            gx_log(
                &t->g->log, GX_LOG_WARNING,
                "%s and %s are tied (tie_word_embeddings), and the adapter has %s%s whole: they go on as two, as with "
                "peft",
                row[row[i].copies - 1].name, row[i].name,
                row[i].is_adapter && row[row[i].copies - 1].is_adapter ? "each of them, " : "",
                row[row[i].copies - 1].is_adapter ? row[row[i].copies - 1].name : row[i].name);
    const int head = gx_lora_tied_head(&t->model), embedding = t->model.embedding.index;
    if (head < 0 || (row[head].has_lora && row[embedding].has_lora)) return;
    if (row[head].has_lora)
        gx_log(&t->g->log, GX_LOG_WARNING,
               "LoRA is on %s, which is tied to the embedding (tie_word_embeddings): it changes the head, and tokens "
               "are looked up in the model's own, as with peft",
               row[head].name);
    else
        gx_log(&t->g->log, GX_LOG_WARNING,
               "LoRA is on %s, to which the head is tied (tie_word_embeddings): it changes what tokens are looked up "
               "as, and the head goes on with the model's own, as with peft",
               row[embedding].name);
}

// Says where the rows of new tokens come from.
static void gx__setup_say_rows(const GxTrainer *t)
{
    const int64_t rows = gx_model_vocab(&t->model), had = gx_max(t->vocab_of_model, t->vocab_of_adapter);
    if (!t->vocab_of_model || rows == t->vocab_of_model) return;
    if (rows > had)
        gx_log(&t->g->log, GX_LOG_INFO,
               "the model gets %ld rows for new tokens beside its %ld, each the mean of those: config.json will say "
               "vocab_size %ld",
               (long)(rows - had), (long)had, (long)rows);
    else
        gx_log(&t->g->log, GX_LOG_INFO, "the adapter %s has rows for %ld tokens, and the model %s for %ld of them",
               t->o.tuning.adapter, (long)had, t->o.model, (long)t->vocab_of_model);
}

GxStatus gx_trainer_open(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                         int argc, char **argv)
{
    return gx_trainer_open_by(t, g, family, task, mode, NULL, argc, argv);
}

GxStatus gx_trainer_open_by(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                            const GxStepsSchedule *schedule, int argc, char **argv)
{
    memset(t, 0, sizeof *t);
    t->g = g;
    t->lock = -1;
    gx_profile_open(&t->profile, g);
    t->family = family;
    t->task = task;
    t->mode = mode;
    t->steps_schedule = schedule;
    GX_TRY(gx_task_choose(&t->choice, family, &t->task, argc, argv, &g->error));
    if (t->task->losses < 1 || t->task->losses > GX_MAX_LOSSES)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "task %s has %d losses; 1 to %d are possible", t->task->name,
                       t->task->losses, GX_MAX_LOSSES);
    GX_TRY(gx__setup_read_options(t, argc, argv));
    if (t->done) return GX_OK;
    t->is_seen = 1; // t->seen is up to date: no step was done yet
    GX_TRY(gx_open_device(g, t->o.dry_run));
    if (gx__setup_open_parts(t) != GX_OK) return gx__setup_explain_error(t);
    t->batch = (GxBatch *)calloc((size_t)(t->o.gradient_accumulation_steps + t->evals), sizeof *t->batch);
    if (!t->batch)
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld micro-batches",
                       (long)t->o.gradient_accumulation_steps + t->evals);
    t->eval = t->batch + t->o.gradient_accumulation_steps;
    gx__setup_optimizer_init(t);
    GX_TRY(gx_plan_make(&t->plan, g, &t->comm_arena, t->o.ranks > 1 ? (int)t->o.ranks : 1, gx_buffers_dry_run, t));
    gx_report_start(t);
    if (t->family->warn && gx_trainer_is_first(t)) t->family->warn(t->model_config, &g->log);
    if (gx_trainer_is_first(t)) gx__setup_warn_tied(t), gx_adapter_warn_unused(&t->model, &g->log);
    if (gx_trainer_is_first(t)) gx__setup_say_rows(t);
    gx_notes(t);
    if (t->o.dry_run) {
        t->done = 1;
        return GX_OK;
    }
    if (gx_trainer_is_first(t)) gx_warn_cores(&g->log, gx_threads(g), g->comm ? g->comm->local_ranks : 1);
    if (gx_trainer_is_first(t)) gx_warn_waiting(&g->log, gx_threads(g));
    GX_TRY(gx_side_cache_refuse(t));
    GX_TRY(gx_plan_refuse_too_large(&t->plan, gx_trainer_samples(t), &t->o.dp_batch_size_list, &g->error));
    GX_TRY(gx__setup_open_memory(t));
    GX_TRY(gx__setup_set_weights(t));
    GX_TRY(gx_autotune_find(t));
    if (gx_options_is_inference(&t->o)) {
        gx_catch_stop_signals();
        gx_trainer_show(t);
        return gx_status(g);
    }
    GX_TRY(gx__setup_open_output(t));
    GX_TRY(gx_side_cache_open(t, gx__setup_planned_bytes_at_most(t)));
    gx_catch_stop_signals(); // before this there is nothing to save
    GX_TRY(gx_trainer_prepare(t));
    GX_TRY(gx_autotune_open(t));
    t->clock.opened = t->clock.interval_start = gx_seconds();
    gx_best_validate_missed(t);
    return gx_status(g);
}
#endif
