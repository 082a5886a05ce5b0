// best.h: which validation of a run was the best, how its checkpoint is kept, and when a run stops early.
//
//     --metric_for_best_model NAME     which metric is compared; its task says which way is better, or
//     --greater_is_better true|false   this does. Without a name it is the task's own ("mrr" of vectors), or the loss
//     --load_best_model_at_end true    the last validation, the sample, and what else a run ends with, are of the best
//                                      weights
//     --early_stopping_patience N      ends the run after N validations in a row that are not better, by more than
//     --early_stopping_threshold X     this, than the best before them
//
// Only the validations during training (--eval_steps) are compared: they all use the same samples, while the last
// validation uses all held-out samples. With a name, or with --load_best_model_at_end, the weights of a new best
// validation are saved, whatever --save_steps says. That checkpoint is kept in addition to the newest
// --save_total_limit ones, and the weights of the last step are compared as well. An improvement smaller than the
// threshold still makes a validation the best, but counts against the patience.
//
// A metric that is not finite (such as a correlation with constant labels) cannot be compared: the validation is not
// the best, and does not count against the patience. If no validation of a run could be compared, a warning at the end
// says so, and the last weights are kept.
//
// The best validation so far is part of the run's state, in trainer_state.json and run.json, and a resumed run
// continues from it. The search starts over, with a warning, if the comparison has changed (another metric or other
// held-out samples) or if the best checkpoint no longer exists.
//
// Every rank calls every function; rank 0's numbers are compared, so that all ranks decide alike.
#ifndef GX_BEST_H
#define GX_BEST_H
#include "run_log.h"
#include "options.h"
#include "output.h"
GX_BEGIN

typedef struct GxTrainer GxTrainer; // trainer.h

int gx_best_is_tracked(const GxTrainOptions *o); // 1: validations are compared
int gx_best_is_saved(const GxTrainOptions *o);   // 1: the checkpoint of the best validation is saved and kept

// Refuses options that have no effect or no validations to compare, and a metric that the task does not have. The
// task's data must be open.
GxStatus gx_best_check(const GxTrainer *t, GxError *err);
void gx_best_resume(GxTrainer *t);          // when a run is resumed: takes over the checkpoint's best validation
void gx_best_validate_missed(GxTrainer *t); // runs the validation that was due at the checkpoint's step but is missing

// Compares the metric of this step's validation. 1: it is the best so far, and t->best is set.
int gx_best_compare(GxTrainer *t, const GxMetric *metric, int n);
void gx_best_describe(const GxTrainer *t, GxRunInfo *r); // into run.json
int gx_best_stops_early(const GxTrainer *t);             // 1: the run stops early, here
// At the end: loads the best weights, with --load_best_model_at_end.
void gx_best_load(GxTrainer *t);

const char *gx_best_text(const GxTrainer *t, char text[GX_METRIC_TEXT]);       // "loss 1.2500"
const char *gx_best_reason(const GxTrainer *t, char text[300]);                // why a run ends early
GxStatus gx_best_folder(const GxTrainer *t, char path[GX_PATH], GxError *err); // where its weights are

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BEST_IMPLEMENTED)
#define GX_BEST_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer.h"

int gx_best_is_saved(const GxTrainOptions *o) { return o->load_best_model_at_end || o->metric_for_best_model[0]; }
int gx_best_is_tracked(const GxTrainOptions *o) { return gx_best_is_saved(o) || o->early_stopping_patience > 0; }
int gx_best_stops_early(const GxTrainer *t)
{
    return t->o.early_stopping_patience > 0 && t->best.patience_counter >= t->o.early_stopping_patience;
}

// The task's name of the metric. "eval_loss", as in log.jsonl, is accepted for "loss".
static const char *gx__best_name(const GxTrainer *t, const char *said)
{
    const char *own = t->task->best_metric ? t->task->best_metric : "loss", *name = said[0] ? said : own;
    return strncmp(name, "eval_", 5) ? name : name + 5;
}

// +1: larger is better; -1: smaller is better; 0: neither the task nor the option says.
static int gx__best_direction(const GxTrainOptions *o, const GxMetric *metric)
{
    if (!strcmp(o->greater_is_better, "auto")) return metric->better;
    return !strcmp(o->greater_is_better, "true") ? 1 : -1;
}

// Finds the metric to compare, among n. NULL, with an error: there is none of this name, or its direction is unknown.
static const GxMetric *gx__best_metric(const GxTrainer *t, const GxMetric *metric, int n, GxError *err)
{
    const char *said = t->o.metric_for_best_model, *name = gx__best_name(t, said),
               *lacks = t->task->lacks ? t->task->lacks(t->self, name) : NULL;
    char names[400] = "";
    for (int i = 0; i < n; i++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", metric[i].name);
        if (strcmp(metric[i].name, name)) continue;
        if (gx__best_direction(&t->o, &metric[i])) return &metric[i];
        GX_FAIL(err, GX_ERR_ARGUMENT,
                "task %s does not say whether a larger %s is better; say --greater_is_better true or false",
                t->task->name, name);
        return NULL;
    }
    GX_FAIL(err, GX_ERR_ARGUMENT, "--metric_for_best_model is \"%s\"; a validation of task %s says %s%s%s%s%s",
            said[0] ? said : name, t->task->name, names, lacks ? "; " : "", lacks ? name : "", lacks ? " " : "",
            lacks ? lacks : "");
    return NULL;
}

// Refuses options that were given but have no effect without another one.
static GxStatus gx__best_check_idle(const GxTrainer *t, GxError *err)
{
    const GxTrainOptions *o = &t->o;
    if (gx_config_is_set(&t->config, "greater_is_better") && strcmp(o->greater_is_better, "auto") &&
        !o->metric_for_best_model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--greater_is_better %s is about --metric_for_best_model, which is not given; name the metric, "
                       "or leave this out",
                       o->greater_is_better);
    if (gx_config_is_set(&t->config, "early_stopping_threshold") && o->early_stopping_threshold > 0 &&
        !o->early_stopping_patience)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--early_stopping_threshold %g is for --early_stopping_patience, which is 0: no run is ended; "
                       "set it, or leave this out",
                       o->early_stopping_threshold);
    return GX_OK;
}

GxStatus gx_best_check(const GxTrainer *t, GxError *err)
{
    const GxTrainOptions *o = &t->o;
    const char *asks = o->early_stopping_patience > 0 ? "early_stopping_patience"
                       : o->load_best_model_at_end    ? "load_best_model_at_end"
                                                      : "metric_for_best_model";
    GxMetric metric[GX_MAX_METRICS] = GX_ZERO;
    if (gx_options_is_inference(o)) return GX_OK;
    GX_TRY(gx__best_check_idle(t, err));
    if (!gx_best_is_tracked(o)) return GX_OK;
    if (o->eval_steps == 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s compares validations on the way, and --eval_steps 0 has none; set --eval_steps, to at "
                       "most --max_steps %ld",
                       asks, (long)o->max_steps);
    if (o->dry_run) return GX_OK; // the data are not open
    if (t->task->held_out(t->self) == 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s compares validations, and task %s has no held-out samples to validate on", asks,
                       t->task->name);
    const int n = t->task->metrics(t->g, t->self, NULL, metric);
    return gx__best_metric(t, metric, n, err) ? GX_OK : gx_error_code(err);
}

// ---- a validation --------------------------------------------------------------------------------------------------

int gx_best_compare(GxTrainer *t, const GxMetric *metric, int n)
{
    GxContext *g = t->g;
    GxBest *b = &t->best;
    const GxMetric *compared = gx__best_metric(t, metric, n, &g->error); // the same on all ranks
    if (gx_failed(g)) return 0;
    double value = compared->value;
    gx_at(g, -1, "best");
    gx_broadcast(g, GX_AXIS_ALL, 0, &value, 1, GX_F64);
    if (gx_failed(g)) return 0;
    t->best_format = compared->format;
    b->validated = t->step;
    t->incomparable += !isfinite(value);
    if (!isfinite(value)) return 0;
    const double gain = gx__best_direction(&t->o, compared) * (value - b->metric);
    const int is_best = !b->step || gain > 0;
    b->patience_counter = is_best && (!b->step || gain > t->o.early_stopping_threshold) ? 0 : b->patience_counter + 1;
    if (!is_best) return 0;
    b->metric = value, b->step = t->step;
    b->checkpoint[0] = 0;
    return 1;
}

void gx_best_describe(const GxTrainer *t, GxRunInfo *r)
{
    r->best_metric = t->best.metric, r->best_step = t->best.step;
    snprintf(r->best_checkpoint, sizeof r->best_checkpoint, "%s", t->best.checkpoint);
}

// ---- resuming ------------------------------------------------------------------------------------------------------

// 1: the option had another value in the resumed run. Not every task has every option.
static int gx__best_option_changed(const GxTrainer *t, const char *name)
{
    GxError ignored = GX_ZERO;
    char *a = NULL, *b = NULL;
    int64_t bytes;
    GxJson *options = gx_config_to_json(&t->config, &ignored);
    const GxJson *then = gx_json_get(t->resume.args, name), *now = gx_json_get(options, name);
    if (then && now) gx_json_dump(then, 0, &a, &bytes, &ignored), gx_json_dump(now, 0, &b, &bytes, &ignored);
    const int is_other = a && b && strcmp(a, b);
    gx_json_free(options);
    free(a), free(b);
    return is_other;
}

// The first option that changes what is compared, and differs from the resumed run. NULL: none does.
static const char *gx__best_changed_option(const GxTrainer *t)
{
    static const char *const same[] = {"greater_is_better", "eval_windows", "validation_data", "pack_texts"};
    const char *now = t->o.metric_for_best_model;
    const GxJson *metric = gx_json_get(t->resume.args, "metric_for_best_model");
    if (metric && strcmp(gx__best_name(t, gx_json_string(metric)), gx__best_name(t, now)))
        return "metric_for_best_model";
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (gx__best_option_changed(t, same[i])) return same[i];
    return NULL;
}

GxStatus gx_best_folder(const GxTrainer *t, char path[GX_PATH], GxError *err)
{
    if (!t->resume.folder[0] || t->best.step != t->resume.state.step)
        return gx_checkpoint_path(path, t->o.output_dir, t->best.step, err);
    snprintf(path, GX_PATH, "%s", t->resume.folder); // the checkpoint to resume may lie in another folder
    return GX_OK;
}

static int gx__best_checkpoint_exists(const GxTrainer *t)
{
    char folder[GX_PATH];
    GxError ignored = GX_ZERO;
    return gx_best_folder(t, folder, &ignored) == GX_OK && gx_folder_has(folder, GX_MANIFEST);
}

void gx_best_resume(GxTrainer *t)
{
    const GxBest none = GX_ZERO;
    t->best = t->resume.state.best;
    if (!gx_best_is_tracked(&t->o)) t->best = none;
    if (!t->best.validated) return;
    const char *changed = gx__best_changed_option(t);
    int64_t stays = !changed && (!gx_best_is_saved(&t->o) || !t->best.step || gx__best_checkpoint_exists(t));
    gx_at(t->g, -1, "best");
    gx_broadcast(t->g, GX_AXIS_ALL, 0, &stays, 1, GX_I64); // paths may differ between ranks, so rank 0 decides
    if (stays) return;
    if (gx_trainer_is_first(t) && changed)
        gx_log(&t->g->log, GX_LOG_WARNING,
               "%s is another than before: the best validation is looked for anew from here", changed);
    else if (gx_trainer_is_first(t))
        gx_log(&t->g->log, GX_LOG_WARNING,
               "the checkpoint of the best validation so far, of step %ld, is not in %s: the best is looked for anew "
               "from here",
               (long)t->best.step, t->o.output_dir);
    t->best = none;
}

// The validation is missing if a signal cut it short, or if the step was the last of a run that is now longer.
void gx_best_validate_missed(GxTrainer *t)
{
    const GxTrainOptions *o = &t->o;
    const int is_last = t->step == o->max_steps;
    if (!gx_best_is_tracked(o) || !t->resume.folder[0] || t->step == 0 || t->best.validated == t->step) return;
    if (is_last ? gx_best_is_saved(o) : t->step % o->eval_steps == 0) gx_trainer_validate(t);
}

// ---- the end -------------------------------------------------------------------------------------------------------

const char *gx_best_text(const GxTrainer *t, char text[GX_METRIC_TEXT])
{
    if (t->best_format) return gx_metric_text(t->best_format, t->best.metric, text);
    snprintf(text, GX_METRIC_TEXT, "%.60s %g", gx__best_name(t, t->o.metric_for_best_model), t->best.metric);
    return text;
}

const char *gx_best_reason(const GxTrainer *t, char text[300])
{
    char by[60] = "";
    if (t->o.early_stopping_threshold > 0) snprintf(by, sizeof by, " by more than %g", t->o.early_stopping_threshold);
    snprintf(text, 300, "%ld validation%s in a row without a better %.100s%s (--early_stopping_patience %ld)",
             (long)t->best.patience_counter, t->best.patience_counter == 1 ? "" : "s",
             gx__best_name(t, t->o.metric_for_best_model), by, (long)t->o.early_stopping_patience);
    return text;
}

static void gx__best_warn_incomparable(const GxTrainer *t)
{
    char folder[GX_PATH] = "";
    GxError ignored = GX_ZERO; // cannot fail: the path was built when the checkpoint was saved
    if (!gx_trainer_is_first(t) || !t->incomparable || t->best.step) return;
    gx_checkpoint_path(folder, t->o.output_dir, t->saved, &ignored);
    gx_log(&t->g->log, GX_LOG_WARNING,
           "no validation could be compared: %s was not a finite number in any of them; the last weights are the ones "
           "that are kept%s: %s",
           gx__best_name(t, t->o.metric_for_best_model),
           t->o.load_best_model_at_end ? ", and --load_best_model_at_end loads no others" : "", folder);
}

void gx_best_load(GxTrainer *t)
{
    GxContext *g = t->g;
    char folder[GX_PATH] = "";
    GxError torn = GX_ZERO;
    gx__best_warn_incomparable(t);
    if (!t->o.load_best_model_at_end || gx_failed(g) || !t->best.step || t->best.step == t->step) return;
    int64_t is_whole = gx_best_folder(t, folder, &torn) == GX_OK && gx_trainer_is_first(t) &&
                       gx_folder_verify(folder, 1, &torn) == GX_OK;
    gx_at(g, -1, "best");
    gx_broadcast(g, GX_AXIS_ALL, 0, &is_whole, 1, GX_I64);
    if (gx_failed(g)) return;
    if (is_whole) {
        gx_checkpoint_load_weights(g, &t->model, folder);
        t->weights_step = t->best.step;
    } else if (gx_trainer_is_first(t))
        gx_log(&g->log, GX_LOG_WARNING,
               "the best weights, of step %ld, cannot be loaded; what comes is of the last ones: %s",
               (long)t->best.step, torn.message);
}
#endif
