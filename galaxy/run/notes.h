// notes.h: warns, when a run begins, of options whose effect may not be what was meant: flags that change nothing, a
// mode that splits nothing, a new run where one may have been meant to be resumed, a learning rate that rises again.
// Each warning is one line for the logger, on rank 0, that says what to do. Options that are wrong are errors
// elsewhere.
#ifndef GX_NOTES_H
#define GX_NOTES_H
#include "session.h"
GX_BEGIN

void gx_notes(const GxSession *s); // after gx_report_start

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_NOTES_IMPLEMENTED)
#define GX_NOTES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "../io/config_json.h"
#include "../model/lora.h"
#include "adapter.h"
#include "output.h"

// --resume auto found nothing to continue from: the run begins again, or a new one begins.
static void gx__notes_of_resume(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    char found[GX_PATH] = "";
    const char *folder = r->o.output_dir;
    if (!r->chosen.resumes_auto || r->resume.folder[0] || gx_options_is_inference(&r->o)) return;
    if (r->resume.state.run) {
        gx_log(&s->g->log, GX_LOG_WARNING,
               "--resume auto: the run in %s has no checkpoint to continue from, so it starts again, with its options, "
               "at step 1",
               folder);
        return;
    }
    const int is_near = gx_run_find_near(folder, found);
    gx_log(&s->g->log, GX_LOG_WARNING,
           "--resume auto: there is nothing to resume in %s, so a new run starts at step 1. To continue another run, "
           "stop this one and name the other's folder: --output_dir %s",
           folder, is_near ? found : "FOLDER");
}

static void gx__notes_of_mode(const GxSession *s)
{
    const int tp = gx_mesh_widest(&s->mesh);
    if (!gx_methods_split(s->mode->methods) || tp > 1 || s->run->plan) return; // a plan decides --tp
    if (s->g->world == 1)
        gx_log(&s->g->log, GX_LOG_WARNING,
               "mode %s splits the model among ranks, but there is only one, so it is computed as without a mode; "
               "--ranks N, or mpirun, starts more",
               s->mode->name);
    else
        gx_log(&s->g->log, GX_LOG_WARNING,
               "mode %s splits the model among the ranks of --tp, which is 1, so each of the %d ranks has all of it, "
               "as without a mode; %sset a larger one",
               s->mode->name, s->g->world, s->run->program_schedule ? "" : "leave out --tp, or ");
}

static void gx__notes_of_shards(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const int copies = gx_mesh_size(&s->mesh, GX_AXIS_DP_REPLICATE);
    if (r->o.shard_grads_in_window && r->o.gradient_accumulation_steps == 1 && !gx_options_is_inference(&r->o))
        gx_log(&s->g->log, GX_LOG_WARNING,
               "--shard_grads_in_window changes nothing if a step is one micro-batch (--gradient_accumulation_steps "
               "1); leave it out");
    if (!r->chosen.sharded || s->model.store.sharded) return;
    if (r->program_schedule && r->program_schedule->has_shards) {
        gx_log(&s->g->log, GX_LOG_WARNING,
               "schedule %s shards the model among data-parallel ranks, but there is only one (of %d ranks), or "
               "--dp_shard is 1; --ranks N, or mpirun, starts more",
               r->program_schedule->name, s->g->world);
        return;
    }
    if (copies > 1)
        gx_log(&s->g->log, GX_LOG_WARNING,
               "--zero %s changes nothing: --dp_shard is 1, so each of the %d data-parallel ranks has everything; use "
               "a larger one, or neither --dp_shard nor --dp_replicate, to shard it",
               r->o.zero, copies);
    else
        gx_log(&s->g->log, GX_LOG_WARNING,
               "--zero %s changes nothing: it shards the model among data-parallel ranks, but there is only one (%d "
               "rank%s, --pp %ld, --tp %ld); --ranks N, or mpirun, starts more",
               r->o.zero, s->g->world, s->g->world == 1 ? "" : "s", (long)r->o.pp, (long)r->o.tp);
}

static void gx__notes_of_stages(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const int64_t pp = r->o.pp;
    int64_t micro = INT64_MAX;
    for (int copy = 0; copy < s->window.samples.n; copy++)
        micro = gx_min(micro, gx_window_micro_batches(&s->window, copy));
    if (pp == 1 || micro >= pp || gx_options_is_inference(&r->o)) return;
    if (s->window.is_own) {
        gx_log(&s->g->log, GX_LOG_WARNING,
               "%ld micro-batch%s per step in a copy of %ld stages: most stages wait most of the time; more samples in "
               "--dp_samples_list, or a smaller --micro_batch_size, keep them busy",
               (long)micro, micro == 1 ? "" : "es", (long)pp);
        return;
    }
    gx_log(&s->g->log, GX_LOG_WARNING,
           "%ld micro-batch%s per step for %ld stages: most stages wait most of the time; "
           "--gradient_accumulation_steps %ld, or more, with a smaller --micro_batch_size, keeps them busy",
           (long)micro, micro == 1 ? "" : "es", (long)pp, (long)(4 * pp));
}

// A rate that was raised by hand is meant to be higher.
static void gx__notes_of_rate(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    double before, next;
    const int64_t step = r->resume.state.applied, most = gx_json_int(gx_json_get(r->resume.args, "max_steps"));
    const double then = gx_json_double(gx_json_get(r->resume.args, "learning_rate"));
    if (gx_options_is_inference(&r->o) || r->resume.state.step >= r->o.max_steps ||
        !gx_resume_rates(&r->resume, &before, &next))
        return;
    const double now = gx_schedule_rate(&r->schedule, step);
    if (now <= before * (1 + 1e-6) || now <= next * (1 + 1e-6)) return;
    if (gx_config_is_set(&r->config, "learning_rate") && r->o.learning_rate > then) return;
    char why[400] = "its schedule has changed";
    const char *form = gx_json_string(gx_json_get(r->resume.args, "lr_scheduler_type"));
    if (form[0] && strcmp(form, r->o.lr_scheduler_type))
        snprintf(why, sizeof why, "lr_scheduler_type was %.40s and is now %s", form, r->o.lr_scheduler_type);
    else if (most != r->o.max_steps)
        snprintf(why, sizeof why, "max_steps was %ld and is now %ld, over which %s stretches", (long)most,
                 (long)r->o.max_steps, r->o.lr_scheduler_type);
    gx_log(&s->g->log, GX_LOG_WARNING,
           "the learning rate rises again, from %.3g to %.3g in step %ld: %s; to continue with the last one, say "
           "--lr_scheduler_type constant --learning_rate %.3g",
           before, now, (long)r->resume.state.step + 1, why, before);
}

// Options that have an effect only if another one has one of these values; NULL: if it is not 0, false or "".
static const struct {
    const char *option, *other, *values;
    const char *instead; // an option that also gives it an effect, if it is not ""; NULL: there is none
} gx__notes_needs[] = {
    {"momentum", "optimizer", "sgd", NULL},
    {"adam_beta1", "optimizer", "adamw", NULL},
    {"adam_beta2", "optimizer", "adamw", NULL},
    {"adam_epsilon", "optimizer", "adamw", NULL},
    {"min_lr_ratio", "lr_scheduler_type", "linear|cosine|wsd|wsd_sqrt|wsd_cosine", NULL},
    {"lr_decay_steps", "lr_scheduler_type", "wsd|wsd_sqrt|wsd_cosine", NULL},
    {"temperature", "sample_tokens", NULL, NULL},
    {"top_k", "sample_tokens", NULL, NULL},
    {"sample_prompt", "sample_tokens", NULL, NULL},
    {"predictions", "predict", NULL, NULL},
    {"peak_tflops", "profile_flops", NULL, NULL},
    {"trace_steps", "trace", NULL, NULL},
    {"eval_steps", "validation_fraction", NULL, "validation_data"},
    {"max_eval_samples", "validation_fraction", NULL, "validation_data"},
    {"predict_with_generate", "validation_fraction", NULL, "validation_data"},
    {"rouge_stemmer", "predict_with_generate", NULL, "predict"},
};

// 1: with this value, as JSON, the other option gives those that need it an effect.
static int gx__notes_is_met(const GxJson *value, const char *values)
{
    if (values) return gx_text_is_among(gx_json_string(value), values);
    const GxJsonType type = gx_json_type(value);
    return type == GX_JSON_STRING ? gx_json_string(value)[0] != 0
           : type == GX_JSON_BOOL ? gx_json_bool(value)
                                  : gx_json_double(value) != 0;
}

// Warns of options that were given as flags but change nothing. Options in files may be meant for other runs.
static void gx__notes_of_unused(const GxSession *s)
{
    const GxConfig *c = &s->run->config;
    GxError ignored = GX_ZERO; // an error only leaves out these warnings
    GxJson *all = gx_config_to_json(c, &ignored);
    for (size_t i = 0; all && i < sizeof gx__notes_needs / sizeof *gx__notes_needs; i++) {
        const char *option = gx__notes_needs[i].option, *other = gx__notes_needs[i].other;
        const GxJson *value = gx_json_get(all, other);
        char *text = NULL;
        int64_t bytes;
        if (!value || gx_config_source(c, option) != GX_FROM_FLAG || gx__notes_is_met(value, gx__notes_needs[i].values))
            continue;
        const char *instead = gx__notes_needs[i].instead;
        if (instead && gx_json_string(gx_json_get(all, instead))[0]) continue;
        if (gx_json_dump(value, 0, &text, &bytes, &ignored) == GX_OK)
            gx_log(&s->g->log, GX_LOG_WARNING, "--%s changes nothing with --%s %s; leave it out", option, other, text);
        free(text);
    }
    gx_json_free(all);
}

static void gx__notes_of_rebalance(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const int is_alone = gx_mesh_size(&s->mesh, GX_AXIS_DP) == 1;
    const char *why = !r->o.dp_samples_list.n ? "is not given"
                      : is_alone              ? "has one entry, since there is one copy of the model"
                                              : "";
    if (gx_config_source(&r->config, "rebalance") != GX_FROM_FLAG || !strcmp(r->o.rebalance, "off") || !why[0]) return;
    gx_log(&s->g->log, GX_LOG_WARNING, "--rebalance %s moves samples of --dp_samples_list, which %s; leave it out",
           r->o.rebalance, why);
}

static void gx__notes_of_embed(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    static const char *const options[] = {"train_data",    "validation_data", "validation_fraction",
                                          "anchor_column", "positive_column", "negative_column"};
    if (!gx_options_embeds(&r->o)) return;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (gx_config_source(&r->config, options[i]) == GX_FROM_FLAG)
            gx_log(&s->g->log, GX_LOG_WARNING,
                   "--%s changes nothing with --embed, which reads its own file and trains nothing; leave it out",
                   options[i]);
}

enum { GX__NOTES_HELD_OUT = 4 }; // with fewer samples a mean is mostly chance

static void gx__notes_of_held_out(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const GxTask *task = r->task;
    const int has_file = gx_field_find(task->options.fields, task->options.n_fields, "validation_data") != NULL;
    const int64_t n = task->batch.held_out(r->self);
    char samples[60] = "one sample is";
    if (r->o.dry_run || gx_options_is_inference(&r->o) || n == 0 || n >= GX__NOTES_HELD_OUT ||
        !gx_field_find(task->options.fields, task->options.n_fields, "validation_fraction"))
        return;
    if (n > 1) snprintf(samples, sizeof samples, "%ld samples are", (long)n);
    gx_log(&s->g->log, GX_LOG_WARNING,
           "%s all that is held out, so validations say little; a larger --validation_fraction holds out more (0: "
           "nothing)%s",
           samples, has_file ? ", and --validation_data names a separate file" : "");
}

static void gx__notes_of_dry_run(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    if (r->o.dry_run && gx_config_source(&r->config, "show_data") == GX_FROM_FLAG)
        gx_log(&s->g->log, GX_LOG_WARNING,
               "--show_data shows nothing in a dry run, which opens no data; --model FOLDER --sample_only "
               "--sample_tokens 0 shows samples of the data without training");
}

// Warns if two tied tensors are no longer one, or LoRA is on only one of them.
static void gx__notes_of_tied(const GxSession *s)
{
    const GxTensor *row = s->model.table.row;
    for (int i = 0; i < s->model.table.n; i++)
        if (row[i].copies)
            gx_log(&s->g->log, GX_LOG_WARNING,
                   "%s and %s are tied (tie_word_embeddings), but the adapter trains %s%s whole, so they become two "
                   "matrices, as in peft",
                   row[row[i].copies - 1].name, row[i].name,
                   row[i].is_adapter && row[row[i].copies - 1].is_adapter ? "each of them, " : "",
                   row[row[i].copies - 1].is_adapter ? row[row[i].copies - 1].name : row[i].name);
    const int head = gx_lora_tied_head(&s->model), embedding = s->model.embedding.index;
    if (head < 0 || (row[head].has_lora && row[embedding].has_lora)) return;
    if (row[head].has_lora)
        gx_log(&s->g->log, GX_LOG_WARNING,
               "LoRA is on %s, which is tied to the embedding (tie_word_embeddings): it changes only the head, and the "
               "embedding stays the model's, as in peft",
               row[head].name);
    else
        gx_log(&s->g->log, GX_LOG_WARNING,
               "LoRA is on %s, to which the head is tied (tie_word_embeddings): it changes only the embedding, and the "
               "head stays the model's, as in peft",
               row[embedding].name);
}

// Says where the rows of new tokens come from.
static void gx__notes_of_rows(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const int64_t rows = gx_model_vocab(&s->model), had = gx_max(r->vocab_of_model, r->vocab_of_adapter);
    if (!r->vocab_of_model || rows == r->vocab_of_model) return;
    if (rows > had)
        gx_log(&s->g->log, GX_LOG_INFO,
               "rows for new tokens: the model gets %ld in addition to its %ld, each the mean of those; config.json "
               "will say vocab_size %ld",
               (long)(rows - had), (long)had, (long)rows);
    else
        gx_log(&s->g->log, GX_LOG_INFO, "the adapter %s has rows for %ld tokens, but the model %s for %ld",
               r->o.tuning.adapter, (long)had, r->o.model, (long)r->vocab_of_model);
}

void gx_notes(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    if (s->g->rank != 0) return;
    if (r->family->warn && !gx_options_is_inference(&r->o))
        r->family->warn(r->model_config, &s->g->log); // of what is saved
    gx__notes_of_tied(s);
    gx_adapter_warn_unused(&s->model, &s->g->log);
    gx__notes_of_rows(s);
    gx__notes_of_dry_run(s);
    gx__notes_of_held_out(s);
    gx__notes_of_embed(s);
    if (!gx_options_is_inference(&s->run->o)) gx__notes_of_unused(s);
    if (!gx_options_is_inference(&s->run->o)) gx__notes_of_rebalance(s);
    gx__notes_of_mode(s);
    gx__notes_of_stages(s);
    gx__notes_of_shards(s);
    gx__notes_of_resume(s);
    gx__notes_of_rate(s);
}
#endif
