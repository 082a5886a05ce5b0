// rebalance.h: moves samples between copies of the model while a run goes on, when some have become faster or slower:
// --dp_samples_list says what each copy takes of a window in the beginning, --rebalance off that this stays.
//
// Every rank measures how long it computes the micro-batches of a window, without what it spends in collectives and
// messages (GxRunner.worked). Divided by the samples of its copy, and the largest over the ranks of a copy, this is what
// a sample takes there. After each window one small message tells all ranks these numbers, so that all of them decide
// the same from the same bits:
//
//     seconds of a sample: the mean of the last 4 windows
//     a better division:   the whole samples that minimise max(samples * seconds), if the division that there is takes
//                          over 3% longer, by these means and in each of these windows
//     samples move:        when there has been a better division after 3 of the last 4 windows
//
// Simulated with a jitter of 3% per machine and window, 2 to 6 machines, 16 to 256 samples: a machine that is at 0.6 of
// its speed for a third of the run costs at most 1.5% over a division that is right in each window, with 2 moves; where
// no machine changes, and after a single slow window, nothing moves (test_window.cu). By the means alone, equal machines
// in a steady state moved up to 4 times in 300 windows: which of them has the one sample more is chance.
//
// Moving samples moves no bytes: the list of the runner is made again for another number of micro-batches, in the same
// memory. What would not fit there (an order that keeps all micro-batches at once) is not moved. Samples and random
// numbers stay the same, but gradients are summed in another order, so losses differ in rounding from those of a run
// without rebalancing.
//
// Not measured are a session's first window, which touches memory and chooses kernels, and windows that
// --profile_steps slows down. With NCCL, waiting for the ranks of the same copy counts as computing: the copy is as slow
// as its slowest rank anyway. In an interleaved pipeline, whose numbers of micro-batches are restricted, nothing moves.
#ifndef GX_REBALANCE_H
#define GX_REBALANCE_H
#include "session.h"
GX_BEGIN

enum { GX_REBALANCE_WINDOWS = 4, GX_REBALANCE_FORESEEN = 3 }; // of a mean; of them, those after which a gain is seen
#define GX_REBALANCE_GAIN 0.03

typedef struct {
    int copies, windows;                                // windows: so far
    double seconds[GX_REBALANCE_WINDOWS][GX_MAX_PARTS]; // of a sample on each copy, in the last windows
    int foreseen[GX_REBALANCE_WINDOWS];                 // 1: after that window there was a better division
    double mean[GX_MAX_PARTS];                          // of the last windows
    int64_t most[GX_MAX_PARTS];                         // samples that a copy can have
} GxRebalance;

// The samples of each copy, from 1 to most[], with the sum `total`, that minimise the largest samples * seconds. 0:
// there is none.
int gx_rebalance_divide(int64_t *samples, const double *seconds, const int64_t *most, int copies, int64_t total);
// Called after each window, with what a sample took on each copy, and the samples that each had. Returns 1 if samples
// should move, and to where; 0: they stay, and next is not written. The caller has set copies and most.
int gx_rebalance_rule(GxRebalance *r, const double *seconds, const int64_t *samples, int64_t *next);

GxStatus gx_rebalance_watch(GxTrainRun *r, GxError *err); // a watcher

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REBALANCE_IMPLEMENTED)
#define GX_REBALANCE_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../comm/comm.h"
#include "../plan/splits.h"
#include "reporter.h"
#include "session_memory.h"

// ---- the rule ------------------------------------------------------------------------------------------------------

int gx_rebalance_divide(int64_t *samples, const double *seconds, const int64_t *most, int copies, int64_t total)
{
    double rate[GX_MAX_PARTS];
    int64_t least[GX_MAX_PARTS];
    GxError none = GX_ZERO; // there is no such division
    for (int c = 0; c < copies; c++) {
        if (!(seconds[c] > 0) || !isfinite(seconds[c]) || most[c] < 1) return 0;
        rate[c] = 1 / seconds[c], least[c] = 1;
    }
    return copies > 0 && gx_split_bound(samples, rate, least, most, copies, total, &none) == GX_OK;
}

static double gx__rebalance_longest(const int64_t *samples, const double *seconds, int copies)
{
    double longest = 0;
    for (int c = 0; c < copies; c++) longest = fmax(longest, (double)samples[c] * seconds[c]);
    return longest;
}

static int gx__rebalance_gains(const int64_t *better, const int64_t *samples, const double *seconds, int copies)
{
    return gx__rebalance_longest(samples, seconds, copies) >
           (1 + GX_REBALANCE_GAIN) * gx__rebalance_longest(better, seconds, copies);
}

int gx_rebalance_rule(GxRebalance *r, const double *seconds, const int64_t *samples, int64_t *next)
{
    const int at = r->windows++ % GX_REBALANCE_WINDOWS, n = (int)gx_min(r->windows, GX_REBALANCE_WINDOWS);
    int64_t better[GX_MAX_PARTS], total = 0;
    int foreseen = 0, gains = 0;
    for (int c = 0; c < r->copies; c++) {
        r->seconds[at][c] = seconds[c], r->mean[c] = 0, total += samples[c];
        for (int i = 0; i < n; i++) r->mean[c] += r->seconds[i][c] / n;
    }
    if (gx_rebalance_divide(better, r->mean, r->most, r->copies, total))
        for (int i = 0; i < n; i++) gains += gx__rebalance_gains(better, samples, r->seconds[i], r->copies);
    r->foreseen[at] = gains == GX_REBALANCE_WINDOWS && gx__rebalance_gains(better, samples, r->mean, r->copies);
    for (int i = 0; i < GX_REBALANCE_WINDOWS; i++) foreseen += r->foreseen[i];
    if (!r->foreseen[at] || foreseen < GX_REBALANCE_FORESEEN) return 0;
    memcpy(next, better, (size_t)r->copies * sizeof *next);
    memset(r->foreseen, 0, sizeof r->foreseen);
    return 1;
}

// ---- the watcher ---------------------------------------------------------------------------------------------------

typedef struct {
    GxRebalance rule;
    int is_on;
    int64_t first;               // the session's first step that is measured
    double before[GX_MAX_PARTS]; // seconds of a sample when samples last moved; before[0] 0: they have not
} gx__Rebalance;

static void gx__rebalance_opened(void *self, GxSession *s)
{
    gx__Rebalance *r = (gx__Rebalance *)self;
    const GxTrainRun *run = s->run;
    const GxOrderInfo *order = gx_order_info(s->runner.train.spec.order);
    const GxWindow *w = &s->window;
    memset(r, 0, sizeof *r);
    r->is_on = gx_options_rebalances(&run->o, w->samples.n) && !order->by_ranks && !gx_options_is_inference(&run->o);
    if (!r->is_on) return;
    r->rule.copies = w->samples.n;
    r->first = run->at.step + 2;
    if (run->o.profile_steps) r->first = gx_max(r->first, run->at.begun + run->o.profile_steps + 3);
    for (int c = 0; c < w->samples.n; c++) r->rule.most[c] = gx_window_most(w, c);
    s->runner.is_timed = 1;
}

// Makes the list of this rank for its micro-batches of `w`. Returns 0, on all ranks, if one of them has no room for it:
// then its copy never gets more than the micro-batches that it has. *list: empty if the number stays.
static int gx__rebalance_fits(gx__Rebalance *r, GxSession *s, const GxWindow *w, GxSteps *list)
{
    GxContext *g = s->g;
    const int copy = gx_mesh_index(&s->mesh, GX_AXIS_DP);
    const int64_t n = gx_window_micro_batches(w, copy);
    int64_t lacks[GX_MAX_PARTS] = GX_ZERO, any = 0;
    memset(list, 0, sizeof *list);
    if (n != s->runner.train.spec.micro_batches)
        lacks[copy] = gx_runner_make(g, &s->runner, (int)n, list) != GX_OK || !list->n;
    gx_at(g, -1, "rebalance");
    gx_all_reduce(g, GX_AXIS_ALL, GX_MAX, lacks, w->samples.n,
                  GX_I64); // on a failed context this tells the other ranks
    for (int c = 0; c < w->samples.n; c++) {
        any |= lacks[c];
        if (lacks[c]) r->rule.most[c] = gx_window_micro_batches(&s->window, c) * gx_split_part(&s->window.micro, c);
    }
    if (!any && !gx_failed(g)) return 1;
    gx_steps_close(list);
    return 0;
}

// Why: "copy 1 is 1.9 times as slow as before"; at the first move, "a sample takes copy 1 2.9 times as long as copy 0".
static void gx__rebalance_why(const gx__Rebalance *r, char text[160])
{
    const GxRebalance *rule = &r->rule;
    int most = 0, slow = 0, fast = 0;
    double change[GX_MAX_PARTS];
    for (int c = 0; c < rule->copies; c++) {
        change[c] = r->before[0] > 0 ? log(rule->mean[c] / r->before[c]) : 0;
        if (fabs(change[c]) > fabs(change[most])) most = c;
        if (rule->mean[c] > rule->mean[slow]) slow = c;
        if (rule->mean[c] < rule->mean[fast]) fast = c;
    }
    if (fabs(change[most]) > 0.05)
        snprintf(text, 160, "copy %d is %.2g times as %s as before", most, exp(fabs(change[most])),
                 change[most] > 0 ? "slow" : "fast");
    else
        snprintf(text, 160, "a sample takes copy %d %.2g times as long as copy %d", slow,
                 rule->mean[slow] / rule->mean[fast], fast);
}

static void gx__rebalance_say(const gx__Rebalance *r, GxSession *s, const GxSplit *then, const int64_t *now)
{
    char why[160], before[400], after[400];
    GxError disk = GX_ZERO; // the line is kept, and written with the next one
    if (!gx_session_is_first(s)) return;
    gx__rebalance_why(r, why);
    gx_window_text(then, before, sizeof before), gx_window_text(&s->window.samples, after, sizeof after);
    gx_report(s->g, "step %ld: %s: samples %s -> %s\n", (long)s->run->at.step, why, before, after);
    gx_samples_log(&s->run->log, s->run->at.step, now, r->rule.mean, r->rule.copies, &disk);
}

static void gx__rebalance_move(gx__Rebalance *r, GxSession *s, const int64_t *next)
{
    const GxWindow w = gx_window_of_own(&s->batch_split, next);
    const GxSplit then = s->window.samples;
    GxSteps list;
    if (!gx__rebalance_fits(r, s, &w, &list)) return;
    if (list.n) gx_runner_take(s->g, &s->runner, &list);
    s->window = w;
    gx_session_lay_window(s);
    gx__rebalance_say(r, s, &then, next);
    memcpy(r->before, r->rule.mean, sizeof r->before);
}

static void gx__rebalance_stepped(void *self, GxSession *s)
{
    gx__Rebalance *r = (gx__Rebalance *)self;
    const int copies = r->rule.copies, copy = gx_mesh_index(&s->mesh, GX_AXIS_DP);
    double seconds[GX_MAX_PARTS] = GX_ZERO;
    int64_t samples[GX_MAX_PARTS], next[GX_MAX_PARTS];
    if (!r->is_on || s->run->at.step < r->first) return;
    for (int c = 0; c < copies; c++) samples[c] = gx_split_part(&s->window.samples, c);
    seconds[copy] = s->runner.worked / (double)samples[copy];
    gx_at(s->g, -1, "rebalance");
    gx_all_reduce(s->g, GX_AXIS_ALL, GX_MAX, seconds, copies, GX_F64);
    if (!gx_failed(s->g) && gx_rebalance_rule(&r->rule, seconds, samples, next)) gx__rebalance_move(r, s, next);
}

GxStatus gx_rebalance_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__Rebalance), err);
    if (w) w->opened = gx__rebalance_opened, w->stepped = gx__rebalance_stepped;
    return gx_error_code(err);
}
#endif
