// session_data.h: a session's data: how many samples of a micro-batch each rank takes, what the task opens, and the
// steps and learning rates that may follow from how much data there is.
#ifndef GX_SESSION_DATA_H
#define GX_SESSION_DATA_H
#include "session.h"
GX_BEGIN

// After gx_session_arrange, and before the model, whose head may depend on the data.
GxStatus gx_session_open_data(GxSession *s);
// Before gx_session_arrange: opens the task's data with one sample per rank at a time, for measurements and predictions
// (planner.h, simulation.h). is_dry: 1: as for a dry run, without samples.
GxStatus gx_session_open_samples(GxSession *s, int is_dry);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_DATA_IMPLEMENTED)
#define GX_SESSION_DATA_IMPLEMENTED
#include <string.h>
#include "epochs.h"
#include "options_batch.h"
#include "run_checks.h"
#include "tuning.h"

// Micro-batches that are no larger than what a copy ever has. moves: samples move between copies.
static GxSplit gx__session_data_own_micro(const GxSplit *micro, const int64_t *samples, int moves)
{
    GxSplit least = *micro;
    int64_t all = 0;
    for (int c = 0; c < micro->n; c++) all += samples[c];
    for (int c = 0; c < micro->n; c++) {
        const int64_t most = moves ? all - (micro->n - 1) : samples[c];
        least.begin[c + 1] = least.begin[c] + gx_min(gx_split_part(micro, c), most);
    }
    return least;
}

// Each copy has a number of samples of its own: those of the list, or those that they had come to in the checkpoint. A
// plan has made the list anew.
static GxStatus gx__session_data_own_window(GxSession *s)
{
    const GxTrainRun *r = s->run;
    const GxIntList *list = &r->o.dp_samples_list, *then = &r->resume.state.dp_samples;
    const int goes_on = !r->plan && r->resume.folder[0] && then->n &&
                        gx_config_source(&r->config, "dp_samples_list") == GX_FROM_CHECKPOINT;
    const int64_t *samples = goes_on && then->n == list->n ? then->v : list->v;
    s->batch_split = gx__session_data_own_micro(&s->batch_split, samples, gx_options_rebalances(&r->o, list->n));
    s->window = gx_window_of_own(&s->batch_split, samples);
    if (gx_split_total(&s->window.samples) == r->o.global_batch_size && (!goes_on || then->n == list->n)) return GX_OK;
    return GX_FAIL(
        &s->g->error, GX_ERR_FORMAT,
        "%s/trainer_state.json: dp_samples has %d numbers with the sum %ld; expected %d with the sum %ld, as "
        "in %s; or give --dp_samples_list",
        r->resume.folder, then->n, (long)gx_split_total(&s->window.samples), list->n, (long)r->o.global_batch_size,
        r->resume.args_path);
}

static GxStatus gx__session_data_resolve_batch(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxTrainOptions *o = &r->o;
    GxError *err = &s->g->error;
    const int copies = gx_mesh_size(&s->mesh, GX_AXIS_DP);
    if (gx_options_is_inference(o)) {                      // one micro-batch at a time, and no steps for a schedule
        gx_config_forget(&r->config, "global_batch_size"); // from the resumed run
        o->gradient_accumulation_steps = 1, o->global_batch_size = 0, o->dp_samples_list.n = 0;
    }
    GX_TRY(gx_options_resolve_batch(o, &r->config, copies, &s->batch_split, err));
    if (!o->dp_samples_list.n) {
        s->window = gx_window_of_equal(&s->batch_split, o->gradient_accumulation_steps);
        return GX_OK;
    }
    GX_TRY(gx_run_check_samples(r, gx_mesh_size(&s->mesh, GX_AXIS_DP_SHARD), err));
    return gx__session_data_own_window(s);
}

// The folder of the labels and the tokenizer: our adapters bring their own, peft's do not.
static const char *gx__session_data_folder(const GxTrainRun *r)
{
    char config[GX_PATH];
    GxError ignored = GX_ZERO;
    const char *adapter = r->o.tuning.adapter;
    if (r->resume.folder[0]) return r->resume.folder;
    if (!adapter[0] || gx_path_join(config, adapter, GX_PEFT_MODEL_CONFIG, &ignored) != GX_OK) return r->o.model;
    return gx_path_is_file(config) ? adapter : r->o.model;
}

// What the task is told before it opens its data.
static GxTaskSetup gx__session_data_setup(const GxSession *s)
{
    GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    const int is_resumed = r->resume.folder[0] != 0, is_first = gx_session_is_first(s);
    GxTaskSetup task = GX_ZERO;
    task.vocab = *r->family->vocab_size(r->model_config), task.seq_len = o->seq_len, task.is_dry = o->dry_run;
    task.seq_len_is = r->seq_len_is;
    if (r->family->frame) r->family->frame(r->model_config, &r->frame), task.frame = &r->frame;
    task.only_shows = gx_options_is_inference(o), task.frames_texts = r->family->frames_texts;
    task.dtype = r->chosen.dtype, task.label_smoothing = o->label_smoothing_factor;
    task.samples = gx_session_samples(s);
    task.all_samples = gx_split_total(&s->batch_split);
    const int64_t of_step = gx_max(o->global_batch_size, 1); // 0: before it is resolved (planner.h)
    if (!task.only_shows) {
        task.run_samples = o->max_steps > INT64_MAX / of_step ? INT64_MAX : o->max_steps * of_step;
        task.epochs = o->num_train_epochs;
        task.repeats_epoch = r->chosen.tuning == GX_TUNING_SIDE_ONLY;
        task.starts_from_model = o->model[0] && !is_resumed;
    }
    task.seed = (uint64_t)o->seed;
    task.ignore_mismatched_sizes = task.starts_from_model && o->ignore_mismatched_sizes;
    task.model = is_first ? gx__session_data_folder(r) : "";
    task.adapter = is_first && !is_resumed ? o->tuning.adapter : "";
    task.may_grow = r->vocab_of_model > 0 && !o->tuning.adapter[0];
    task.keeps_tokenizer = is_resumed && o->add_tokens[0];
    task.add_tokens = is_resumed ? "" : o->add_tokens;
    return task;
}

GxStatus gx_session_open_samples(GxSession *s, int is_dry)
{
    GxTrainRun *r = s->run;
    s->batch_split = gx_split_even(s->g->world, s->g->world);
    s->window = gx_window_of_equal(&s->batch_split, 1);
    GxTaskSetup task = gx__session_data_setup(s);
    task.is_dry = is_dry;
    GX_TRY(r->task->data.open(s->g, r->self, &task));
    s->source_len = task.source_len;
    *r->family->vocab_size(r->model_config) = task.vocab;
    return GX_OK;
}

static GxStatus gx__session_data_open_task(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxError *err = &s->g->error;
    GxTaskSetup task = gx__session_data_setup(s);
    GX_TRY(r->task->data.open(s->g, r->self, &task));
    s->source_len = task.source_len;
    *r->family->vocab_size(r->model_config) = task.vocab, r->tokens_added = task.added;
    if (task.add_tokens[0] && !task.has_added)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--add_tokens needs a tokenizer, which task %s does not have; leave it out", r->task->name);
    if (r->extends.open) GX_TRY(r->extends.open(r->extends.self, s, task.epoch_samples, task.all_samples));
    r->epoch_samples = s->extra.sample ? s->extra.epoch * task.all_samples : task.epoch_samples;
    const GxHeadRequest *request = r->task->data.head ? r->task->data.head(r->self) : NULL;
    if (s->window.is_own && request && request->kind == GX_HEAD_VECTORS)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--dp_samples_list gives each copy of the model micro-batches of its own, but task %s compares "
                       "the texts of all copies in each micro-batch; use --dp_batch_size_list instead",
                       r->task->name);
    if (task.ignore_mismatched_sizes && !(request && gx_head_has_labels(request->kind)))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--ignore_mismatched_sizes needs a head for labels, which task %s does not have; leave it out",
                       r->task->name);
    return GX_OK;
}

// A pretrained model needs a lower learning rate than a new one.
static void gx__session_data_resolve_rate(GxTrainRun *r)
{
    GxTrainOptions *o = &r->o;
    if (gx_config_source(&r->config, "learning_rate") == GX_FROM_DEFAULT && (o->model[0] || r->task->options.defaults))
        o->learning_rate = gx_tuning_rate(r->task, r->chosen.tuning);
}

// How many steps there are, which the data may decide, and their learning rates.
static GxStatus gx__session_data_resolve_steps(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxTrainOptions *o = &r->o;
    GxError *err = &s->g->error;
    const GxEpochsBegun begun = {r->resume.state.step, r->resume.state.samples};
    if (gx_options_is_inference(o)) return GX_OK;
    GX_TRY(gx_epochs_resolve(o, &r->config, r->epoch_samples, begun, gx_session_is_first(s) ? &s->g->log : NULL, err));
    GX_TRY(gx_resume_check_steps(&r->resume, o, err));
    gx__session_data_resolve_rate(r);
    return gx_schedule_open(&r->schedule, o->lr_scheduler_type, o->learning_rate, o->min_lr_ratio, o->warmup_steps,
                            o->lr_decay_steps, o->max_steps, err);
}

GxStatus gx_session_open_data(GxSession *s)
{
    GX_TRY(gx__session_data_resolve_batch(s));
    GX_TRY(gx__session_data_open_task(s));
    return gx__session_data_resolve_steps(s);
}
#endif
