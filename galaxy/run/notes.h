// notes.h: warns, when a run begins, of what it does other than its options may have meant: flags that change nothing,
// a mode that splits nothing, a run that begins where one was to be gone on with, a learning rate that goes up again.
// Each is a line for the logger, on rank 0, that says what to do. What is wrong is an error, and elsewhere.
#ifndef GX_NOTES_H
#define GX_NOTES_H
#include "../base/status.h"
GX_BEGIN

typedef struct GxTrainer GxTrainer; // trainer.h

void gx_notes(const GxTrainer *t); // behind gx_report_start

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_NOTES_IMPLEMENTED)
#define GX_NOTES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "output.h"
#include "trainer.h"

// --resume auto found nothing to go on from: the run begins again, or a new one begins.
static void gx__notes_of_resume(const GxTrainer *t)
{
    char found[GX_PATH] = "";
    const char *folder = t->o.output_dir;
    if (strcmp(t->o.resume, "auto") || t->resume.folder[0] || gx_options_is_inference(&t->o)) return;
    if (t->resume.state.run) {
        gx_log(
            &t->g->log, GX_LOG_WARNING,
            "--resume auto: the run in %s has no checkpoint to go on from; it begins again, with its options, at step "
            "1",
            folder);
        return;
    }
    const int is_near = gx_run_find_near(folder, found);
    gx_log(
        &t->g->log, GX_LOG_WARNING,
        "--resume auto: there is nothing to resume in %s; a new run begins, at step 1. If one was to be gone on with, "
        "stop this one and name its folder: --output_dir %s",
        folder, is_near ? found : "FOLDER");
}

static void gx__notes_of_mode(const GxTrainer *t)
{
    const int tp = gx_mesh_size(&t->mesh, GX_AXIS_TP);
    if (!gx_methods_split(t->mode->methods) || tp > 1) return;
    if (t->g->world == 1)
        gx_log(
            &t->g->log, GX_LOG_WARNING,
            "mode %s splits the model among ranks, and there is one: it is computed as without a mode; --ranks N, or "
            "mpirun, gives it more",
            t->mode->name);
    else
        gx_log(&t->g->log, GX_LOG_WARNING,
               "mode %s splits the model among the ranks of --tp, which is 1: each of the %d ranks has all of it, as "
               "without a mode; %ssay a larger one",
               t->mode->name, t->g->world, t->steps_schedule ? "" : "leave out --tp, or ");
}

static void gx__notes_of_shards(const GxTrainer *t)
{
    const int copies = gx_mesh_size(&t->mesh, GX_AXIS_DP_REPLICATE);
    if (t->o.shard_grads_in_window && t->o.gradient_accumulation_steps == 1 && !gx_options_is_inference(&t->o))
        gx_log(&t->g->log, GX_LOG_WARNING,
               "--shard_grads_in_window changes nothing where a step is one micro-batch "
               "(--gradient_accumulation_steps 1); leave it out");
    if (!strcmp(t->o.zero, "0") || t->model.store.sharded) return;
    if (t->steps_schedule && t->steps_schedule->has_shards) {
        gx_log(&t->g->log, GX_LOG_WARNING,
               "schedule %s: there is one data-parallel rank of %d, which has everything, or --dp_shard is 1; --ranks "
               "N, or mpirun, gives it more to share with",
               t->steps_schedule->name, t->g->world);
        return;
    }
    if (copies > 1)
        gx_log(&t->g->log, GX_LOG_WARNING,
               "--zero %s changes nothing: --dp_shard is 1, so that each of the %d data-parallel ranks has everything; "
               "a larger one, or neither --dp_shard nor --dp_replicate, has them share it",
               t->o.zero, copies);
    else
        gx_log(
            &t->g->log, GX_LOG_WARNING,
            "--zero %s changes nothing: data-parallel ranks share what it says, and there is one such rank (%d rank%s, "
            "--pp %ld, --tp %ld); --ranks N, or mpirun, gives more",
            t->o.zero, t->g->world, t->g->world == 1 ? "" : "s", (long)t->o.pp, (long)t->o.tp);
}

static void gx__notes_of_stages(const GxTrainer *t)
{
    const int64_t micro = t->o.gradient_accumulation_steps, pp = t->o.pp;
    if (pp == 1 || micro >= pp || gx_options_is_inference(&t->o)) return;
    gx_log(&t->g->log, GX_LOG_WARNING,
           "%ld micro-batch%s in a step for %ld stages: most of them wait for each other most of the time; "
           "--gradient_accumulation_steps %ld, or more, keeps them busy, with a smaller --micro_batch_size",
           (long)micro, micro == 1 ? "" : "es", (long)pp, (long)(4 * pp));
}

// A rate that was raised by hand is as it was meant.
static void gx__notes_of_rate(const GxTrainer *t)
{
    double before, next;
    const int64_t step = t->resume.state.applied, most = gx_json_int(gx_json_get(t->resume.args, "max_steps"));
    const double then = gx_json_double(gx_json_get(t->resume.args, "learning_rate"));
    if (gx_options_is_inference(&t->o) || t->resume.state.step >= t->o.max_steps ||
        !gx_resume_rates(&t->resume, &before, &next))
        return;
    const double now = gx_schedule_rate(&t->schedule, step);
    if (now <= before * (1 + 1e-6) || now <= next * (1 + 1e-6)) return;
    if (gx_config_is_set(&t->config, "learning_rate") && t->o.learning_rate > then) return;
    char why[400] = "its schedule is another one than before";
    const char *form = gx_json_string(gx_json_get(t->resume.args, "lr_scheduler_type"));
    if (form[0] && strcmp(form, t->o.lr_scheduler_type))
        snprintf(why, sizeof why, "lr_scheduler_type was %.40s and is %s", form, t->o.lr_scheduler_type);
    else if (most != t->o.max_steps)
        snprintf(why, sizeof why, "max_steps was %ld and is %ld, over which %s stretches", (long)most,
                 (long)t->o.max_steps, t->o.lr_scheduler_type);
    gx_log(&t->g->log, GX_LOG_WARNING,
           "the learning rate goes up again, from %.3g to %.3g in step %ld: %s; to go on at the last one, say "
           "--lr_scheduler_type constant --learning_rate %.3g",
           before, now, (long)t->resume.state.step + 1, why, before);
}

// Options that count where another one has one of these values; NULL: where it is not 0, false or "".
static const struct {
    const char *option, *other, *values;
} gx__notes_needs[] = {
    {"momentum", "optimizer", "sgd"},
    {"adam_beta1", "optimizer", "adamw"},
    {"adam_beta2", "optimizer", "adamw"},
    {"adam_epsilon", "optimizer", "adamw"},
    {"min_lr_ratio", "lr_scheduler_type", "linear|cosine|wsd|wsd_sqrt|wsd_cosine"},
    {"lr_decay_steps", "lr_scheduler_type", "wsd|wsd_sqrt|wsd_cosine"},
    {"temperature", "sample_tokens", NULL},
    {"top_k", "sample_tokens", NULL},
    {"sample_prompt", "sample_tokens", NULL},
    {"predictions", "predict", NULL},
    {"eval_steps", "validation_fraction", NULL},
    {"eval_windows", "validation_fraction", NULL},
};

// 1: the option of this value, as JSON, is set so that what needs it counts.
static int gx__notes_is_met(const GxJson *value, const char *values)
{
    if (values) return gx_text_is_among(gx_json_string(value), values);
    const GxJsonType type = gx_json_type(value);
    return type == GX_JSON_STRING ? gx_json_string(value)[0] != 0
           : type == GX_JSON_BOOL ? gx_json_bool(value)
                                  : gx_json_double(value) != 0;
}

// Options that were given as flags and change nothing. Those of files may be of other runs.
static void gx__notes_of_unused(const GxTrainer *t)
{
    const GxConfig *c = &t->config;
    GxError ignored = GX_ZERO; // without it only these lines are missing
    GxJson *all = gx_config_to_json(c, &ignored);
    for (size_t i = 0; all && i < sizeof gx__notes_needs / sizeof *gx__notes_needs; i++) {
        const char *option = gx__notes_needs[i].option, *other = gx__notes_needs[i].other;
        const GxJson *value = gx_json_get(all, other);
        char *text = NULL;
        int64_t bytes;
        if (!value || gx_config_source(c, option) != GX_FROM_FLAG || gx__notes_is_met(value, gx__notes_needs[i].values))
            continue;
        if (!strncmp(option, "eval_", 5) && gx_json_string(gx_json_get(all, "validation_data"))[0]) continue;
        if (gx_json_dump(value, 0, &text, &bytes, &ignored) == GX_OK)
            gx_log(&t->g->log, GX_LOG_WARNING, "--%s changes nothing where --%s is %s; leave it out", option, other,
                   text);
        free(text);
    }
    gx_json_free(all);
}

static void gx__notes_of_embed(const GxTrainer *t)
{
    static const char *const options[] = {"train_data",    "validation_data", "validation_fraction",
                                          "anchor_column", "positive_column", "negative_column"};
    if (!t->o.predicts || strcmp(t->o.predicts, "embed")) return;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (gx_config_source(&t->config, options[i]) == GX_FROM_FLAG)
            gx_log(&t->g->log, GX_LOG_WARNING,
                   "--%s changes nothing beside --embed, which reads its own file and trains nothing; leave it out",
                   options[i]);
}

enum { GX__NOTES_HELD_OUT = 4 }; // with fewer samples a mean is mostly chance

static void gx__notes_of_held_out(const GxTrainer *t)
{
    const GxTask *task = t->task;
    const int has_file = gx_field_find(task->fields, task->n_fields, "validation_data") != NULL;
    const int64_t n = task->held_out(t->self);
    char samples[60] = "one sample is";
    if (t->o.dry_run || gx_options_is_inference(&t->o) || n == 0 || n >= GX__NOTES_HELD_OUT ||
        !gx_field_find(task->fields, task->n_fields, "validation_fraction"))
        return;
    if (n > 1) snprintf(samples, sizeof samples, "%ld samples are", (long)n);
    gx_log(
        &t->g->log, GX_LOG_WARNING,
        "%s all that is held out: what validations say of so little is mostly chance; a larger --validation_fraction "
        "holds out more (0: nothing)%s",
        samples, has_file ? ", and --validation_data takes a file of its own" : "");
}

static void gx__notes_of_dry_run(const GxTrainer *t)
{
    if (t->o.dry_run && gx_config_source(&t->config, "show_data") == GX_FROM_FLAG)
        gx_log(
            &t->g->log, GX_LOG_WARNING,
            "--show_data shows nothing in a dry run, which opens no data; --model FOLDER --sample_only --sample_tokens "
            "0 shows samples of it, and trains nothing");
}

void gx_notes(const GxTrainer *t)
{
    if (t->g->rank != 0) return;
    gx__notes_of_dry_run(t);
    gx__notes_of_held_out(t);
    gx__notes_of_embed(t);
    if (!gx_options_is_inference(&t->o)) gx__notes_of_unused(t);
    gx__notes_of_mode(t);
    gx__notes_of_stages(t);
    gx__notes_of_shards(t);
    gx__notes_of_resume(t);
    gx__notes_of_rate(t);
}
#endif
