// progress.h: the figures of a run since its last line of progress: loss, rate, time left, memory. They are passed to
// the watchers (watcher.h: logged), on rank 0.
#ifndef GX_PROGRESS_H
#define GX_PROGRESS_H
#include "session.h"
GX_BEGIN

void gx_progress_line(GxSession *s); // by all ranks: ends the interval, which has had a step, and begins the next

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PROGRESS_IMPLEMENTED)
#define GX_PROGRESS_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "../comm/comm.h"
#include "../ops/device.h"
#include "epochs.h"
#include "health.h"
#include "process_memory.h"

// How many of the task's losses its batches have targets for.
static int gx__progress_losses(const GxSession *s)
{
    int n = 0;
    for (const GxTarget *of = s->eval->target;
         n < s->run->task->loss.n && (of[n].labels || of[n].values || of[n].parts);)
        n++;
    return n;
}

// Sets the line's figures of memory and of the time that is left.
static void gx__progress_machine(const GxSession *s, double per_step, GxProgress *p)
{
    GxRunClock *clock = &s->run->clock;
    const int64_t step = s->run->at.step, left = s->run->o.max_steps - step;
    p->memory_mb = (double)gx_process_memory() / 1e6;
    if (s->g->device->memory) {
        int64_t free_bytes, all_bytes;
        s->g->device->memory(s->g, &free_bytes, &all_bytes);
        p->card_mb = (double)(all_bytes - free_bytes) / 1e6;
    }
    if (clock->steady_step)
        p->seconds_left = (gx_seconds() - clock->steady_since) / (double)(step - clock->steady_step) * (double)left;
    else p->seconds_left = per_step * (double)left;
    if (!clock->steady_step) clock->steady_step = step, clock->steady_since = gx_seconds();
}

// padding: rows on all ranks, since the line before.
static void gx__progress_report(GxSession *s, const GxMetric *metric, int metrics, int64_t padding)
{
    GxTrainRun *r = s->run;
    const GxStep *seen = &s->seen;
    double seconds = gx_seconds() - r->clock.interval_start,
           per_step = seconds / (double)gx_max(1, r->clock.interval_steps);
    GxProgress p = GX_ZERO;
    r->clock.training_seconds += seconds;
    p.step = r->at.step, p.steps = r->o.max_steps, p.epoch = gx_epochs_of(r->at.samples, r->epoch_samples);
    p.loss = gx_step_loss(seen), p.grad_norm = sqrt(seen->sum_squares), p.lr = seen->lr, p.skipped = (int)seen->skip;
    if (gx__progress_losses(s) > 1) p.losses = gx__progress_losses(s), p.loss_names = r->task->loss.names;
    for (int k = 0; k < p.losses; k++) p.each[k] = seen->labels[k] ? seen->loss_sum[k] / (double)seen->labels[k] : NAN;
    p.metrics = metrics;
    memcpy(p.metric, metric, (size_t)metrics * sizeof *metric);
    const int64_t rows = r->clock.interval_steps * r->o.global_batch_size * r->o.seq_len;
    p.tokens_per_s = (double)(rows - padding) / seconds, p.padding = (double)padding / (double)gx_max(1, rows);
    const double share = s->extra.share ? s->extra.share(s->extra.self) : 0;
    p.gflops = (s->plan.flops_all - share * s->plan.flops_kept_all) / per_step / 1e9;
    gx__progress_machine(s, per_step, &p);
    gx_watchers_logged(&r->watchers, s, &p);
}

void gx_progress_line(GxSession *s)
{
    GxTrainRun *r = s->run;
    gx_read_step(s); // on all ranks, so that an error in it is raised on all alike
    GxMetric metric[GX_MAX_METRICS] = GX_ZERO;
    const int metrics =
        !gx_failed(s->g) && r->task->metrics.progress ? r->task->metrics.progress(s->g, r->self, metric) : 0;
    if (gx_failed(s->g)) return;
    int64_t padding = gx_counts_samples(s->g) ? r->clock.interval_padding : 0;
    gx_at(s->g, -1, "progress");
    gx_all_reduce(s->g, GX_AXIS_ALL, GX_SUM, &padding, 1, GX_I64);
    if (gx_failed(s->g)) return;
    r->clock.padding += padding;
    if (gx_session_is_first(s)) gx__progress_report(s, metric, metrics, padding);
    else r->clock.steady_step = r->at.step;
    r->clock.interval_start = gx_seconds();
    r->clock.interval_steps = r->clock.interval_padding = 0;
}
#endif
