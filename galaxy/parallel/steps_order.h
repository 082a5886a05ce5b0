// steps_order.h: the schedules of a pipeline: the order in which each rank computes the micro-batches of its stages.
//
// F is a forward; B a backward, or its two halves: b for the input's gradient and W for the weights'. Numbers are
// micro-batches. Four stages, six micro-batches, a backward as long as two forwards, time from left to right:
//
//     1f1b   F0 F1 F2 F3 -- -- -- -- -- -- B0 B0 F4 B1 B1 F5 B2 B2 -- B3 B3 -- B4 B4 -- B5 B5
//            -- F0 F1 F2 -- -- -- -- B0 B0 F3 B1 B1 F4 B2 B2 F5 B3 B3 -- B4 B4 -- B5 B5 -- --
//            -- -- F0 F1 -- -- B0 B0 F2 B1 B1 F3 B2 B2 F4 B3 B3 F5 B4 B4 -- B5 B5 -- -- -- --
//            -- -- -- F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 F4 B4 B4 F5 B5 B5 -- -- -- -- -- --
//
// With n ranks and m micro-batches, if each F, b and W of a stage takes time 1, a rank's waiting time (bubble), and the
// slots that rank r keeps for all of its stages, are:
//
//     order        bubble     slots
//     gpipe        3(n - 1)   m                                     all forwards, then all backwards
//     1f1b         3(n - 1)   min(n - r, m)                         a backward as soon as there is one
//     interleaved  3(n - 1)   min(2(n - r - 1) + n + 1, 2m)         two stages a rank, each half as long; n divides m
//     zb1p         n - 1      min(n, m)                             1f1b whose weight halves come r micro-batches later
//     zbv          n - 1      2n             (m >= 2n - 1)          two stages a rank, down and up again
//
// 1f1b and zb1p may have more forwards ahead (GxStepsSpec.warm): where rank r has warm more, it keeps min(n - r + warm,
// m) and min(n + warm, m) slots. With messages that run beside computation, a rank then computes while they are under
// way.
//
// Huang et al. 2019 (arXiv:1811.06965) gpipe; Narayanan et al. 2021 (arXiv:2104.04473) 1f1b and interleaved; Qi et al.
// 2023 (arXiv:2401.10241) zb1p, where it is ZB-H1; Qi et al. 2024 (arXiv:2405.15362) zbv, where it is V-ZB.
#ifndef GX_STEPS_ORDER_H
#define GX_STEPS_ORDER_H
#include "steps.h"
GX_BEGIN

// A stage's work on a micro-batch: F, B or W of all of its units.
typedef struct {
    int16_t what, stage, micro_batch;
} GxWork;

// What all ranks do, and when: each piece of work begins as soon as its rank has finished the previous one and its
// input has been computed. F, b and W take 1 each, a whole B 2.
typedef struct {
    GxWork *work; // [ranks][most]: in each rank's order
    int *n;       // [ranks]
    int most;
    int64_t *end; // [F, B, W][stages][micro_batches]
    int64_t span; // the time at which the last one ends
    int ranks, stages, micro_batches;
    int halves; // 1: B and W are separate
    void *memory;
} GxTimeline;

// What an order asks of a list that trains: how many micro-batches, weight halves, warm.
GxStatus gx_order_check(const GxStepsSpec *spec, GxError *err);

// The specification must have been checked (gx_steps_make does so; of stages, only their number matters here). Close
// the timeline even after an error.
GxStatus gx_timeline_make(GxTimeline *t, const GxStepsSpec *spec, GxError *err);
void gx_timeline_close(GxTimeline *t);

int64_t gx_timeline_end(const GxTimeline *t, int what, int stage, int micro_batch);
int64_t gx_timeline_start(const GxTimeline *t, const GxWork *w);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_ORDER_IMPLEMENTED)
#define GX_STEPS_ORDER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// ---- what an order asks for -----------------------------------------------------------------------------------------

// The most micro-batches that have been forward on a rank, and not backward.
static int gx__order_ahead(const GxStepsSpec *p, int rank)
{
    return gx__steps_ranks(p) - rank + (p->warm ? p->warm[rank] : 0);
}

// A rank cannot be further ahead than the rank before, which waits for it before it computes more forwards.
static GxStatus gx__order_check_warm(const GxStepsSpec *p, GxError *err)
{
    const int has_warm = gx_order_info(p->order)->has_warm;
    for (int r = 0; r < gx__steps_ranks(p); r++) {
        const int before = r ? gx__order_ahead(p, r - 1) : INT16_MAX;
        if (p->warm[r] && !has_warm)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "order %s with %d forwards ahead (warm) on rank %d; only 1f1b and zb1p can have them",
                           gx_order_info(p->order)->name, p->warm[r], r);
        if (p->warm[r] < 0)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d has %d forwards ahead (warm); it must be 0 or more", r,
                           p->warm[r]);
        if (gx_min(gx__order_ahead(p, r), p->micro_batches) > before)
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "rank %d has %d forwards ahead (warm), and rank %d, which has %d, would wait for it for ever; "
                "it can have %d",
                r, p->warm[r], r - 1, p->warm[r - 1], p->warm[r - 1] + 1);
    }
    return GX_OK;
}

GxStatus gx_order_check(const GxStepsSpec *p, GxError *err)
{
    const GxOrderInfo *order = gx_order_info(p->order);
    const int ranks = gx__steps_ranks(p);
    if (order->by_ranks && p->micro_batches % ranks)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%d micro-batch%s on %d ranks; order %s needs a multiple of the number of ranks",
                       p->micro_batches, p->micro_batches == 1 ? "" : "es", ranks, order->name);
    if (order->has_halves && !p->defers_weights)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "order %s computes weight halves apart, and they are not deferred",
                       order->name);
    return p->warm ? gx__order_check_warm(p, err) : GX_OK;
}

// ---- a rank's order ------------------------------------------------------------------------------------------------

enum { GX__ORDER_KINDS = 3, GX__ORDER_CHUNKS = 2 }; // F, B, W

static int gx__order_kind(int what) { return what == GX_DO_FORWARD ? 0 : what == GX_DO_BACKWARD ? 1 : 2; }

typedef struct {
    const GxStepsSpec *p;
    int rank;
    GxWork *work;
    int n;
    int done[GX__ORDER_KINDS][GX__ORDER_CHUNKS]; // micro-batches
} GxOrderWriter;

// Appends the next micro-batch of a chunk. Returns 0, and writes nothing, if there is none: all are done, or the B that
// a W belongs to is not done yet.
static int gx__order_put(GxOrderWriter *w, int what, int chunk)
{
    int *done = w->done[gx__order_kind(what)];
    const int backwards = w->done[gx__order_kind(GX_DO_BACKWARD)][chunk];
    if (done[chunk] == w->p->micro_batches) return 0;
    if (what == GX_DO_WEIGHT && (!w->p->defers_weights || done[chunk] == backwards)) return 0;
    GxWork *work = &w->work[w->n++];
    work->what = (int16_t)what;
    work->stage = (int16_t)gx_steps_stage_at(w->p, w->rank, chunk);
    work->micro_batch = (int16_t)done[chunk]++;
    return 1;
}

static void gx__order_gpipe(GxOrderWriter *w)
{
    while (gx__order_put(w, GX_DO_FORWARD, 0)) {}
    while (gx__order_put(w, GX_DO_BACKWARD, 0)) {}
}

// As many forwards as fit before the first gradient arrives, then one forward and one backward alternately. In zb1p the
// weight gradients follow `rank` micro-batches later, so that all ranks keep the same number of slots.
static void gx__order_1f1b(GxOrderWriter *w)
{
    const int is_zb = gx_order_info(w->p->order)->has_halves;
    for (int b = 0; b < gx__order_ahead(w->p, w->rank) - 1; b++) gx__order_put(w, GX_DO_FORWARD, 0);
    for (int b = 0; b < w->p->micro_batches; b++) {
        gx__order_put(w, GX_DO_FORWARD, 0);
        gx__order_put(w, GX_DO_BACKWARD, 0);
        if (is_zb && b >= w->rank) gx__order_put(w, GX_DO_WEIGHT, 0);
    }
}

// Forward or backward number k: as many micro-batches as there are ranks go through the first chunk, then through the
// second, then the next micro-batches; backwards in reverse.
static void gx__order_put_interleaved(GxOrderWriter *w, int what, int k)
{
    const int n = gx__steps_ranks(w->p), chunk = k % (2 * n) / n;
    gx__order_put(w, what, what == GX_DO_FORWARD ? chunk : 1 - chunk);
}

static void gx__order_interleaved(GxOrderWriter *w)
{
    const int n = gx__steps_ranks(w->p), all = 2 * w->p->micro_batches, ahead = 2 * (n - w->rank - 1) + n;
    int forward = 0;
    for (; forward < gx_min(ahead, all); forward++) gx__order_put_interleaved(w, GX_DO_FORWARD, forward);
    for (int k = 0; k < all; k++, forward++) {
        if (forward < all) gx__order_put_interleaved(w, GX_DO_FORWARD, forward);
        gx__order_put_interleaved(w, GX_DO_BACKWARD, k);
    }
}

// Chunk 0 goes from the first rank to the last, chunk 1 back, so the first rank has the last stage and begins the
// backwards. Then each rank works on its two chunks alternately.
static void gx__order_zbv(GxOrderWriter *w)
{
    const int n = gx__steps_ranks(w->p), r = w->rank;
    for (int i = 0; i < 2 * (n - r) - 1; i++) gx__order_put(w, GX_DO_FORWARD, 0);
    for (int i = 0; i < r; i++) {
        gx__order_put(w, GX_DO_FORWARD, 1);
        gx__order_put(w, GX_DO_FORWARD, 0);
    }
    for (int i = 0; i < n - r; i++) {
        gx__order_put(w, GX_DO_FORWARD, 1);
        gx__order_put(w, GX_DO_BACKWARD, 1);
        gx__order_put(w, GX_DO_WEIGHT, 1);
    }
    while (w->done[0][1] < w->p->micro_batches)
        for (int chunk = 0; chunk < 2; chunk++) {
            gx__order_put(w, GX_DO_FORWARD, chunk);
            gx__order_put(w, GX_DO_BACKWARD, chunk);
            gx__order_put(w, GX_DO_WEIGHT, chunk);
        }
    for (int i = 0; i < r; i++) {
        gx__order_put(w, GX_DO_BACKWARD, 0);
        gx__order_put(w, GX_DO_BACKWARD, 1);
    }
    while (gx__order_put(w, GX_DO_BACKWARD, 0)) gx__order_put(w, GX_DO_WEIGHT, 0);
    while (gx__order_put(w, GX_DO_BACKWARD, 1)) {}
}

// Evaluation: as many micro-batches as there are ranks go through one chunk, then through the other.
static void gx__order_forwards(GxOrderWriter *w, int chunks)
{
    const int ranks = gx__steps_ranks(w->p);
    for (int first = 0; first < w->p->micro_batches; first += ranks)
        for (int chunk = 0; chunk < chunks; chunk++)
            for (int i = 0; i < ranks; i++) gx__order_put(w, GX_DO_FORWARD, chunk);
}

static void gx__order_write(GxOrderWriter *w)
{
    static void (*const orders[GX_ORDERS])(GxOrderWriter *) = {gx__order_1f1b, gx__order_gpipe, gx__order_interleaved,
                                                               gx__order_1f1b, gx__order_zbv};
    const int chunks = gx_steps_stages(w->p) / gx__steps_ranks(w->p);
    if (w->p->kind == GX_STEPS_FORWARD) gx__order_forwards(w, chunks);
    else orders[w->p->order](w);
    for (int i = 0; i < w->p->micro_batches; i++) // the rest, the last stage first
        for (int chunk = chunks - 1; chunk >= 0; chunk--) gx__order_put(w, GX_DO_WEIGHT, chunk);
}

// ---- when ----------------------------------------------------------------------------------------------------------

static int64_t *gx__timeline_at(const GxTimeline *t, int what, int stage, int micro_batch)
{
    return &t->end[((int64_t)gx__order_kind(what) * t->stages + stage) * t->micro_batches + micro_batch];
}

int64_t gx_timeline_end(const GxTimeline *t, int what, int stage, int micro_batch)
{
    return *gx__timeline_at(t, what, stage, micro_batch);
}

static int64_t gx__timeline_cost(const GxTimeline *t, int what) { return what == GX_DO_BACKWARD && !t->halves ? 2 : 1; }

int64_t gx_timeline_start(const GxTimeline *t, const GxWork *w)
{
    return gx_timeline_end(t, w->what, w->stage, w->micro_batch) - gx__timeline_cost(t, w->what);
}

// The time at which the work's input has been computed; -1: not yet.
static int64_t gx__timeline_ready(const GxTimeline *t, const GxWork *w)
{
    const int s = w->stage, b = w->micro_batch;
    if (w->what == GX_DO_FORWARD) return s ? gx_timeline_end(t, GX_DO_FORWARD, s - 1, b) : 0;
    const int64_t own = gx_timeline_end(t, w->what == GX_DO_WEIGHT ? GX_DO_BACKWARD : GX_DO_FORWARD, s, b);
    if (w->what == GX_DO_WEIGHT || s == t->stages - 1) return own;
    const int64_t above = gx_timeline_end(t, GX_DO_BACKWARD, s + 1, b);
    return own < 0 || above < 0 ? -1 : gx_max(own, above);
}

// Returns 0 if ranks wait for each other in a circle.
static int gx__timeline_run(GxTimeline *t, int *at, int64_t *now)
{
    int goes_on = 1, left = 0;
    while (goes_on) {
        goes_on = left = 0;
        for (int r = 0; r < t->ranks; r++) {
            for (; at[r] < t->n[r]; at[r]++) {
                const GxWork *w = &t->work[(int64_t)r * t->most + at[r]];
                const int64_t ready = gx__timeline_ready(t, w);
                if (ready < 0) break;
                now[r] = gx_max(now[r], ready) + gx__timeline_cost(t, w->what);
                *gx__timeline_at(t, w->what, w->stage, w->micro_batch) = now[r];
                t->span = gx_max(t->span, now[r]);
                goes_on = 1;
            }
            left += t->n[r] - at[r];
        }
    }
    return left == 0;
}

GxStatus gx_timeline_make(GxTimeline *t, const GxStepsSpec *spec, GxError *err)
{
    const int ranks = gx__steps_ranks(spec), stages = gx_steps_stages(spec), m = spec->micro_batches;
    const int most = GX__ORDER_KINDS * (stages / ranks) * m;
    const size_t ends = (size_t)GX__ORDER_KINDS * (size_t)stages * (size_t)m, works = (size_t)ranks * (size_t)most;
    memset(t, 0, sizeof *t);
    t->ranks = ranks, t->stages = stages, t->micro_batches = m, t->most = most;
    t->halves = spec->defers_weights;
    t->memory =
        calloc(1, (ends + (size_t)ranks) * sizeof *t->end + 2 * (size_t)ranks * sizeof *t->n + works * sizeof *t->work);
    if (!t->memory)
        return GX_FAIL(err, GX_ERR_MEMORY, "the system refused memory for the orders of %d ranks and %d micro-batches",
                       ranks, m);
    t->end = (int64_t *)t->memory;
    int64_t *now = t->end + ends;
    t->n = (int *)(now + ranks);
    int *at = t->n + ranks;
    t->work = (GxWork *)(at + ranks);
    memset(t->end, -1, ends * sizeof *t->end);
    for (int r = 0; r < ranks; r++) {
        GxOrderWriter w = GX_ZERO;
        w.p = spec, w.rank = r, w.work = t->work + (int64_t)r * most;
        gx__order_write(&w);
        t->n[r] = w.n;
    }
    if (gx__timeline_run(t, at, now)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "order %s of %d ranks and %d micro-batches: its ranks wait for each other",
                   gx_order_info(spec->order)->name, ranks, m);
}

void gx_timeline_close(GxTimeline *t)
{
    free(t->memory);
    memset(t, 0, sizeof *t);
}
#endif
