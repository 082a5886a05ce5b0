// evaluate.h: runs the model on held-out samples, and reports the metrics of a validation.
#ifndef GX_EVALUATE_H
#define GX_EVALUATE_H
#include "session.h"
GX_BEGIN

// Sums the losses over the first `samples` held-out samples; 0: all. If a signal stops it, run->stop is set, and the
// sums are over the samples so far.
void gx_evaluate(GxSession *s, int64_t samples, GxLosses *losses);
// The same, and passes the metrics to the watchers (watcher.h: validated); run->validation is set on rank 0. Does
// nothing if nothing is held out. is_last: 1: the last validation of a run; 0: one during training.
void gx_validate(GxSession *s, int64_t samples, int is_last);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EVALUATE_IMPLEMENTED)
#define GX_EVALUATE_IMPLEMENTED
#include <string.h>
#include "../comm/comm.h"
#include "../ops/elementwise.h"
#include "../ops/memory.h"
#include "session_memory.h"
#include "stopping.h"
#include "watch.h"

static void gx__evaluate_fill(GxSession *s, GxBatch *b, void *host_copy, void *samples)
{
    GxTrainRun *r = s->run;
    r->task->batch.fill_held_out(s->g, r->self, b, host_copy, *(const int64_t *)samples, &r->data_error);
}

// Loads this rank's samples of the micro-batches from `row` on; samples beyond the last one have no weight. Returns how
// many micro-batches there are.
static int gx__evaluate_load_evaluation(GxSession *s, int64_t row, int64_t samples)
{
    const int64_t first = gx_session_first_sample(s), per_micro = gx_split_total(&s->batch_split);
    int n = 0;
    for (; n < s->evals && (row + n) * per_micro < samples; n++) {
        s->eval[n].sample = (row + n) * per_micro + first;
        gx_session_fill(s, gx_session_micro_most(s) + n, gx__evaluate_fill, &samples);
    }
    return n;
}

// 1: all micro-batches write their results to the same place, so the task must see them before the next are written.
static int gx__evaluate_shares_results(const GxSession *s)
{
    int shares = 0;
    for (int k = 0; k < s->run->task->loss.n && s->evals > 1; k++) {
        const void *results = s->eval[0].target[k].logits.data;
        shares |= results && results == s->eval[1].target[k].logits.data;
    }
    return shares;
}

static void gx__evaluate_run_evaluation(GxSession *s, int n, GxLosses *losses)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    const int at_once = gx__evaluate_shares_results(s) ? 1 : s->evals;
    for (int i = 0; i < n && gx_counts_samples(g); i++) r->task->batch.counts(r->self, &s->eval[i], losses->count);
    for (int i = 0; i < n; i += at_once) {
        const int some = (int)gx_min(at_once, n - i);
        gx_runner_evaluate(g, &s->runner, &s->eval[i], some, s->eval_loss);
        for (int k = 0; k < some && r->task->batch.see; k++) r->task->batch.see(g, r->self, &s->eval[i + k]);
    }
}

void gx_evaluate(GxSession *s, int64_t samples, GxLosses *losses)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    const int64_t all = r->task->batch.held_out(r->self);
    samples = samples > 0 ? gx_min(samples, all) : all;
    memset(losses, 0, sizeof *losses);
    gx_zero(g, s->eval_loss, sizeof losses->sum);
    if (r->task->batch.see) r->task->batch.see(g, r->self, NULL);
    GxWatch watch = gx_watch(g, "validation", "samples", samples);
    for (int64_t row = 0; row * gx_split_total(&s->batch_split) < samples && !gx_failed(g); row += s->evals) {
        const int n = gx__evaluate_load_evaluation(s, row, samples);
        if (gx_agree_to_stop(s)) break; // a validation may take longer than a stop request should wait
        gx__evaluate_run_evaluation(s, n, losses);
        gx_watch_done(&watch, gx_min(samples, (row + n) * gx_split_total(&s->batch_split)));
    }
    gx_to_host(g, losses->sum, s->eval_loss, sizeof losses->sum);
    gx_at(g, -1, "evaluate");
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, losses->sum, GX_MAX_LOSSES, GX_F64);
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, losses->count, GX_MAX_LOSSES, GX_I64);
}

void gx_validate(GxSession *s, int64_t samples, int is_last)
{
    GxTrainRun *r = s->run;
    GxLosses losses;
    GxValidation v = GX_ZERO;
    if (r->task->batch.held_out(r->self) == 0) return;
    const double started = gx_seconds();
    gx_evaluate(s, samples, &losses);
    // which may also run the model, and then be stopped
    if (!gx_failed(s->g) && !r->stop) v.metrics = r->task->metrics.compute(s->g, r->self, &losses, v.metric);
    r->clock.interval_start += gx_seconds() - started; // the progress line is about training
    if (gx_failed(s->g) || r->stop) return;
    v.count = losses.count[0], v.is_last = is_last;
    if (gx_session_is_first(s)) r->validation = v;
    gx_watchers_validated(&r->watchers, s, &v);
}
#endif
