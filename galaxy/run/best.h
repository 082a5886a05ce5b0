// best.h: which validation of a run was the best, and when a run stops early.
//
//     --metric_for_best_model NAME     the metric to compare; default: the task's own ("mrr" of vectors), or the loss
//     --greater_is_better true|false   which way NAME is better; default: as the task says
//     --load_best_model_at_end true    the last validation, the sample, and whatever else a run ends with, use the best
//                                      weights
//     --early_stopping_patience N      ends the run after N validations in a row that do not improve on the best before
//     --early_stopping_threshold X     them by more than X
//
// Only the validations during training (--eval_steps) are compared: they all use the same samples, while the last
// validation uses all held-out samples. An improvement no larger than the threshold still makes a validation the best,
// but counts against the patience. How the weights of the best are kept is in keep_best.h.
//
// A metric that is not finite (such as a correlation with constant labels) cannot be compared: the validation is not
// the best, and does not count against the patience.
//
// The best validation so far is part of the run's state, in trainer_state.json and run.json, and a resumed run
// continues from it. The search starts over, with a warning, if the comparison has changed (another metric or other
// held-out samples) or if the best checkpoint no longer exists.
//
// Every rank calls every function; rank 0's numbers are compared, so that all ranks decide alike.
#ifndef GX_BEST_H
#define GX_BEST_H
#include "output.h"
#include "session.h"
GX_BEGIN

int gx_best_is_tracked(const GxTrainOptions *o); // 1: validations are compared

// Refuses options that have no effect or no validations to compare, and a metric that the task does not have. The
// task's data must be open.
GxStatus gx_best_check(const GxSession *s, GxError *err);
void gx_best_resume(GxSession *s); // when a run is resumed: continues from the checkpoint's best validation

// Compares the metric of this step's validation. 1: it is the best so far, and run->best is set.
int gx_best_compare(GxSession *s, const GxMetric *metric, int n);
void gx_best_describe(const GxTrainRun *r, GxRunInfo *info); // into run.json

const char *gx_best_name(const GxTrainRun *r);                                  // the metric's name: "loss"
const char *gx_best_text(const GxTrainRun *r, char text[GX_METRIC_TEXT]);       // "loss 1.2500"
const char *gx_best_reason(const GxTrainRun *r, char text[300]);                // why a run ends early
GxStatus gx_best_folder(const GxTrainRun *r, char path[GX_PATH], GxError *err); // the checkpoint with its weights

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BEST_IMPLEMENTED)
#define GX_BEST_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../io/config_json.h"

int gx_best_is_tracked(const GxTrainOptions *o) { return gx_options_saves_best(o) || o->early_stopping_patience > 0; }

// The task's name of the metric. "eval_loss", as in log.jsonl, is accepted for "loss".
static const char *gx__best_name(const GxTrainRun *r, const char *said)
{
    const char *own = r->task->loss.best_metric ? r->task->loss.best_metric : "loss", *name = said[0] ? said : own;
    return strncmp(name, "eval_", 5) ? name : name + 5;
}

const char *gx_best_name(const GxTrainRun *r) { return gx__best_name(r, r->o.metric_for_best_model); }

// +1: larger is better; -1: smaller is better; 0: neither the task nor the option says.
static int gx__best_direction(const GxTrainRun *r, const GxMetric *metric)
{
    return r->chosen.better ? r->chosen.better : metric->better;
}

// Finds the metric to compare, among n. NULL, with an error: there is none of this name, or its direction is unknown.
static const GxMetric *gx__best_metric(const GxTrainRun *r, const GxMetric *metric, int n, GxError *err)
{
    const char *said = r->o.metric_for_best_model, *name = gx__best_name(r, said),
               *lacks = r->task->metrics.lacks ? r->task->metrics.lacks(r->self, name) : NULL;
    char names[400] = "";
    for (int i = 0; i < n; i++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", metric[i].name);
        if (strcmp(metric[i].name, name)) continue;
        if (gx__best_direction(r, &metric[i])) return &metric[i];
        GX_FAIL(err, GX_ERR_ARGUMENT,
                "task %s does not say whether a larger %s is better; set --greater_is_better true or false",
                r->task->name, name);
        return NULL;
    }
    GX_FAIL(err, GX_ERR_ARGUMENT, "--metric_for_best_model is \"%s\"; a validation of task %s reports %s%s%s%s%s",
            said[0] ? said : name, r->task->name, names, lacks ? "; " : "", lacks ? name : "", lacks ? " " : "",
            lacks ? lacks : "");
    return NULL;
}

// Refuses options that were given but have no effect without another one.
static GxStatus gx__best_check_idle(const GxTrainRun *r, GxError *err)
{
    const GxTrainOptions *o = &r->o;
    if (gx_config_is_set(&r->config, "greater_is_better") && r->chosen.better && !o->metric_for_best_model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--greater_is_better %s needs --metric_for_best_model, which is not given; name the metric, or "
                       "leave this out",
                       o->greater_is_better);
    if (gx_config_is_set(&r->config, "early_stopping_threshold") && o->early_stopping_threshold > 0 &&
        !o->early_stopping_patience)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--early_stopping_threshold %g needs --early_stopping_patience, which is 0 (no early stopping); "
                       "set it, or leave this out",
                       o->early_stopping_threshold);
    return GX_OK;
}

GxStatus gx_best_check(const GxSession *s, GxError *err)
{
    const GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    const char *asks = o->early_stopping_patience > 0 ? "early_stopping_patience"
                       : o->load_best_model_at_end    ? "load_best_model_at_end"
                                                      : "metric_for_best_model";
    GxMetric metric[GX_MAX_METRICS] = GX_ZERO;
    if (gx_options_is_inference(o)) return GX_OK;
    GX_TRY(gx__best_check_idle(r, err));
    if (!gx_best_is_tracked(o)) return GX_OK;
    if (o->eval_steps == 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s compares validations during the training, but --eval_steps 0 makes none; set --eval_steps "
                       "to at most --max_steps %ld",
                       asks, (long)o->max_steps);
    if (o->dry_run) return GX_OK; // the data are not open
    if (r->task->batch.held_out(r->self) == 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s compares validations, but task %s has no held-out samples to validate on", asks,
                       r->task->name);
    const int n = r->task->metrics.compute(s->g, r->self, NULL, metric);
    return gx__best_metric(r, metric, n, err) ? GX_OK : gx_error_code(err);
}

int gx_best_compare(GxSession *s, const GxMetric *metric, int n)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxBest *b = &r->best;
    const GxMetric *compared = gx__best_metric(r, metric, n, &g->error); // the same on all ranks
    if (gx_failed(g)) return 0;
    double value = compared->value;
    gx_at(g, -1, "best");
    gx_broadcast(g, GX_AXIS_ALL, 0, &value, 1, GX_F64);
    if (gx_failed(g)) return 0;
    r->best_format = compared->format;
    b->validated = r->at.step;
    r->incomparable += !isfinite(value);
    if (!isfinite(value)) return 0;
    const double gain = gx__best_direction(r, compared) * (value - b->metric);
    const int is_best = !b->step || gain > 0;
    b->patience_counter = is_best && (!b->step || gain > r->o.early_stopping_threshold) ? 0 : b->patience_counter + 1;
    if (!is_best) return 0;
    b->metric = value, b->step = r->at.step;
    b->checkpoint[0] = 0;
    return 1;
}

void gx_best_describe(const GxTrainRun *r, GxRunInfo *info)
{
    info->best_metric = r->best.metric, info->best_step = r->best.step;
    snprintf(info->best_checkpoint, sizeof info->best_checkpoint, "%s", r->best.checkpoint);
}

// ---- resuming ------------------------------------------------------------------------------------------------------

// 1: the option had another value in the resumed run. Not every task has every option.
static int gx__best_option_changed(const GxTrainRun *r, const char *name)
{
    GxError ignored = GX_ZERO;
    char *a = NULL, *b = NULL;
    int64_t bytes;
    GxJson *options = gx_config_to_json(&r->config, &ignored);
    const GxJson *then = gx_config_in_json(&r->config, r->resume.args, name), *now = gx_json_get(options, name);
    if (then && now) gx_json_dump(then, 0, &a, &bytes, &ignored), gx_json_dump(now, 0, &b, &bytes, &ignored);
    const int is_other = a && b && strcmp(a, b);
    gx_json_free(options);
    free(a), free(b);
    return is_other;
}

// The first option that changes what is compared and differs from the resumed run's. NULL: there is none.
static const char *gx__best_changed_option(const GxTrainRun *r)
{
    static const char *const same[] = {"greater_is_better", "max_eval_samples", "validation_data",
                                       "pack_texts",        "rouge_stemmer",    "label_smoothing_factor"};
    const char *now = r->o.metric_for_best_model;
    const GxJson *metric = gx_json_get(r->resume.args, "metric_for_best_model");
    if (metric && strcmp(gx__best_name(r, gx_json_string(metric)), gx__best_name(r, now)))
        return "metric_for_best_model";
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (gx__best_option_changed(r, same[i])) return same[i];
    return NULL;
}

GxStatus gx_best_folder(const GxTrainRun *r, char path[GX_PATH], GxError *err)
{
    if (!r->resume.folder[0] || r->best.step != r->resume.state.step)
        return gx_checkpoint_path(path, r->o.output_dir, r->best.step, err);
    snprintf(path, GX_PATH, "%s", r->resume.folder); // the checkpoint to resume may lie in another folder
    return GX_OK;
}

static int gx__best_checkpoint_exists(const GxTrainRun *r)
{
    char folder[GX_PATH];
    GxError ignored = GX_ZERO;
    return gx_best_folder(r, folder, &ignored) == GX_OK && gx_folder_has(folder, GX_MANIFEST);
}

void gx_best_resume(GxSession *s)
{
    GxTrainRun *r = s->run;
    const GxBest none = GX_ZERO;
    r->best = r->resume.state.best;
    if (!gx_best_is_tracked(&r->o)) r->best = none;
    if (!r->best.validated) return;
    const char *changed = gx__best_changed_option(r);
    int64_t stays = !changed && (!gx_options_saves_best(&r->o) || !r->best.step || gx__best_checkpoint_exists(r));
    gx_at(s->g, -1, "best");
    gx_broadcast(s->g, GX_AXIS_ALL, 0, &stays, 1, GX_I64); // paths may differ between ranks, so rank 0 decides
    if (stays) return;
    if (gx_session_is_first(s) && changed)
        gx_log(&s->g->log, GX_LOG_WARNING, "%s has changed: the best validation is determined again from here",
               changed);
    else if (gx_session_is_first(s))
        gx_log(&s->g->log, GX_LOG_WARNING,
               "the checkpoint of the best validation so far, of step %ld, is not in %s: the best is determined again "
               "from here",
               (long)r->best.step, r->o.output_dir);
    r->best = none;
}

// ---- in words ------------------------------------------------------------------------------------------------------

const char *gx_best_text(const GxTrainRun *r, char text[GX_METRIC_TEXT])
{
    if (r->best_format) return gx_metric_text(r->best_format, r->best.metric, text);
    snprintf(text, GX_METRIC_TEXT, "%.60s %g", gx__best_name(r, r->o.metric_for_best_model), r->best.metric);
    return text;
}

const char *gx_best_reason(const GxTrainRun *r, char text[300])
{
    char by[60] = "";
    if (r->o.early_stopping_threshold > 0) snprintf(by, sizeof by, " by more than %g", r->o.early_stopping_threshold);
    snprintf(text, 300, "%ld validation%s in a row without a better %.100s%s (--early_stopping_patience %ld)",
             (long)r->best.patience_counter, r->best.patience_counter == 1 ? "" : "s",
             gx__best_name(r, r->o.metric_for_best_model), by, (long)r->o.early_stopping_patience);
    return text;
}
#endif
