// plan/pipeline.h: how long a window takes in a pipeline of unequal stages.
//
// The recurrence over the order of parallel/steps_order.h: a piece of work begins when its stage has finished the one
// before and its input has come. Its steps are the list's (two or three for each stage and micro-batch), so the result
// is that of gx_steps_time on lists of gx_steps_make with the same costs, to the bit, in microseconds:
//
//     GxStageTimes stage[3] = {{1, 2, 0, 0.1, 0.1}, {1.3, 2.6, 0, 0.1, 0.1}, {1, 2, 0, 0.1, 0.1}};
//     GxPipeline p = GX_ZERO;
//     p.stage = stage, p.stages = 3, p.micro_batches = 8;
//     GX_TRY(gx_pipeline_seconds(&seconds, &p, err));
//
// Messages block both of their stages, as they do in a list, or (is_overlapped) run beside computation: each direction
// between two stages then carries one message at a time, from when it has been computed. What a machine with both of
// its neighbours sends at the same time does not slow down the one or the other here.
//
// Orders with one stage on a rank: 1f1b, gpipe, zb1p.
//
// Memory: some 60 bytes for each stage and micro-batch, during the call.
#ifndef GX_PIPELINE_H
#define GX_PIPELINE_H
#include "../parallel/steps_order.h"
GX_BEGIN

enum { GX_PIPELINE_STAGES = 4096 }; // the most

typedef struct { // seconds, for one micro-batch
    double forward;
    double backward;    // all of it, or, with a weight half, the rest
    double weight;      // the weight half, which zb1p computes apart. 0: part of backward
    double to_next;     // of the message to the next stage; of the last stage's nobody asks
    double to_previous; // of that to the previous one
} GxStageTimes;

typedef struct {
    const GxStageTimes *stage; // [stages]
    const int16_t *warm;       // [stages], as GxStepsSpec's. NULL: none
    int stages, micro_batches;
    int order;         // GxStepsOrder
    int is_overlapped; // 1: messages run beside computation
} GxPipeline;

// The seconds of a window, without sums of gradients and the step. If any stage has a weight half, all compute theirs
// apart: in zb1p early, in other orders at the end of the window. An error: another order, what gx_order_check refuses,
// seconds that are negative or not finite.
GxStatus gx_pipeline_seconds(double *seconds, const GxPipeline *p, GxError *err);

// Seconds that a window needs at least, in one pass over the stages: what is too slow by them can be passed by. The
// largest, over all stages s, of
//
//     sum of t_i, i < s  +  m t_s  +  max(D_s - w F_s, 0)  +  max(D_s - w B_s, 0)
//
// where t is F + B, D_s what a micro-batch needs from s to the last stage and back, and w how many forwards s is ahead;
// of s working without a pause, with its messages; and of rounds of w + 1 micro-batches. How close that is:
// test_splits.cu. p must be one that gx_pipeline_seconds accepts.
double gx_pipeline_bound(const GxPipeline *p);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PIPELINE_IMPLEMENTED)
#define GX_PIPELINE_IMPLEMENTED
#include <math.h>
#include <stdlib.h>

enum { GX__PIPELINE_X = 0, GX__PIPELINE_DX, GX__PIPELINE_WAYS }; // messages to the next stage, to the previous one

typedef struct {
    double now;
    double link[GX__PIPELINE_WAYS]; // when the last message that it sends has come
    const GxWork *next, *end;       // its work, in order
    int64_t starts;                 // the tick of next; -1: all is done
    int64_t made;                   // the tick at which the work before next has ended
    int what, micro_batch;          // of that work; what -1: none
} GxPipelineStage;

typedef struct {
    const GxPipeline *p;
    const GxTimeline *t;
    int64_t tick;
    GxPipelineStage *stage;
    double *arrived; // [ways][stages][micro_batches]: when a message has come
} GxPipelineRun;

static double gx__pipeline_later(double a, double b) { return a > b ? a : b; }

static double *gx__pipeline_arrived(const GxPipelineRun *r, int way, int stage, int micro_batch)
{
    return &r->arrived[((int64_t)way * r->p->stages + stage) * r->p->micro_batches + micro_batch];
}

static void gx__pipeline_send(GxPipelineRun *r, int way, int from, int micro_batch)
{
    const int to = way == GX__PIPELINE_X ? from + 1 : from - 1;
    const double seconds = way == GX__PIPELINE_X ? r->p->stage[from].to_next : r->p->stage[from].to_previous;
    GxPipelineStage *a = &r->stage[from], *b = &r->stage[to];
    if (r->p->is_overlapped) {
        a->link[way] = gx__pipeline_later(a->now, a->link[way]) + seconds;
        *gx__pipeline_arrived(r, way, to, micro_batch) = a->link[way];
    } else a->now = b->now = gx__pipeline_later(a->now, b->now) + seconds;
}

// The messages that are made at this tick: as in lists, x before dx, each in the order of stages.
static void gx__pipeline_messages(GxPipelineRun *r, int way)
{
    const int is_x = way == GX__PIPELINE_X, what = is_x ? GX_DO_FORWARD : GX_DO_BACKWARD, last = r->p->stages - 1;
    for (int s = is_x ? 0 : 1; s <= last - is_x; s++)
        if (r->stage[s].made == r->tick && r->stage[s].what == what)
            gx__pipeline_send(r, way, s, r->stage[s].micro_batch);
}

static void gx__pipeline_starts(GxPipelineRun *r, GxPipelineStage *s)
{
    s->starts = s->next < s->end ? gx_timeline_start(r->t, s->next) : -1;
}

static void gx__pipeline_compute(GxPipelineRun *r, int stage)
{
    const GxStageTimes *t = &r->p->stage[stage];
    GxPipelineStage *s = &r->stage[stage];
    const GxWork *w = s->next;
    if (w->what != GX_DO_WEIGHT) {
        const int way = w->what == GX_DO_FORWARD ? GX__PIPELINE_X : GX__PIPELINE_DX;
        s->now = gx__pipeline_later(s->now, *gx__pipeline_arrived(r, way, stage, w->micro_batch));
    }
    s->now += w->what == GX_DO_FORWARD ? t->forward : w->what == GX_DO_BACKWARD ? t->backward : t->weight;
    s->made = gx_timeline_end(r->t, w->what, stage, w->micro_batch), s->what = w->what, s->micro_batch = w->micro_batch;
    s->next++;
    gx__pipeline_starts(r, s);
}

// All of a timeline's events in its order, which every list has.
static double gx__pipeline_run(GxPipelineRun *r)
{
    double seconds = 0;
    for (int s = 0; s < r->p->stages; s++) {
        r->stage[s].next = r->t->work + (int64_t)s * r->t->most, r->stage[s].end = r->stage[s].next + r->t->n[s];
        r->stage[s].what = -1;
        gx__pipeline_starts(r, &r->stage[s]);
    }
    for (r->tick = 0; r->tick <= r->t->span; r->tick++) {
        for (int way = 0; way < GX__PIPELINE_WAYS; way++) gx__pipeline_messages(r, way);
        for (int s = 0; s < r->p->stages; s++)
            if (r->stage[s].starts == r->tick) gx__pipeline_compute(r, s);
    }
    for (int s = 0; s < r->p->stages; s++) seconds = gx__pipeline_later(seconds, r->stage[s].now);
    return seconds;
}

static int gx__pipeline_has_halves(const GxPipeline *p)
{
    int has = gx_order_info(p->order)->has_halves;
    for (int s = 0; s < p->stages; s++) has |= p->stage[s].weight > 0;
    return has;
}

static GxStatus gx__pipeline_check(const GxPipeline *p, GxError *err)
{
    if (p->stages < 1 || p->stages > GX_PIPELINE_STAGES || p->micro_batches < 1 || p->micro_batches > INT16_MAX)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "a pipeline of %d stages and %d micro-batches; there can be 1 to %d, and 1 to %d", p->stages,
                       p->micro_batches, GX_PIPELINE_STAGES, INT16_MAX);
    if ((unsigned)p->order >= GX_ORDERS || gx_order_info(p->order)->chunks > 1)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "the seconds of a pipeline in order %s; they are known for one stage on each rank: 1f1b, gpipe, "
                       "zb1p",
                       (unsigned)p->order < GX_ORDERS ? gx_order_info(p->order)->name : "?");
    for (int s = 0; s < p->stages; s++) {
        const GxStageTimes *t = &p->stage[s];
        const double least = fmin(fmin(t->forward, t->backward), fmin(t->weight, fmin(t->to_next, t->to_previous)));
        const double sum = t->forward + t->backward + t->weight + t->to_next + t->to_previous;
        if (!(least >= 0) || !isfinite(sum))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "stage %d takes %g s, %g s, %g s, and %g s and %g s to send; these must be 0 or more", s,
                           t->forward, t->backward, t->weight, t->to_next, t->to_previous);
    }
    return GX_OK;
}

GxStatus gx_pipeline_seconds(double *seconds, const GxPipeline *p, GxError *err)
{
    static const int16_t stage[1] = {0}; // that there are stages; which units they have does not matter here
    GxStepsSpec spec = GX_ZERO;
    GxTimeline t;
    GxPipelineRun r = GX_ZERO;
    GX_TRY(gx__pipeline_check(p, err));
    spec.ranks = p->stages, spec.stage = stage, spec.micro_batches = p->micro_batches, spec.order = p->order;
    spec.warm = p->warm, spec.defers_weights = gx__pipeline_has_halves(p);
    GX_TRY(gx_order_check(&spec, err));
    GxStatus status = gx_timeline_make(&t, &spec, err);
    const size_t n = (size_t)p->stages, all = GX__PIPELINE_WAYS * n * (size_t)p->micro_batches;
    r.p = p, r.t = &t;
    if (status == GX_OK) r.stage = (GxPipelineStage *)calloc(1, n * sizeof *r.stage + all * sizeof *r.arrived);
    if (status == GX_OK && !r.stage)
        status = GX_FAIL(err, GX_ERR_MEMORY, "the system refused memory for %d stages and %d micro-batches", p->stages,
                         p->micro_batches);
    if (status == GX_OK) {
        r.arrived = (double *)(r.stage + n);
        *seconds = gx__pipeline_run(&r);
    }
    free(r.stage);
    gx_timeline_close(&t);
    return status;
}

typedef struct {
    double down, behind, up; // a micro-batch's way from the first stage to this one, to the last and back, to the first
    int ahead;               // forwards of this stage before its first backward, beyond that one's
} GxPipelineWay;

static double gx__pipeline_excess(double a, double b) { return a > b ? a - b : 0; }

// Stage s computes all micro-batches, with pauses for `messages` seconds of each and `pauses` in all; of the weight
// halves, `late` seconds come behind the last backward, beside those of the stages before.
static double gx__pipeline_works(const GxPipeline *p, int s, GxPipelineWay way, double messages, double pauses)
{
    const GxStageTimes *t = &p->stage[s];
    const int m = p->micro_batches, is_zb = gx_order_info(p->order)->has_halves;
    const double late = t->weight * (is_zb ? (double)gx_min(s + 1, m) : m);
    return way.down + m * (t->forward + t->backward + t->weight + messages) - late + pauses +
           gx__pipeline_later(way.up, late);
}

// With a pause before its first backward, for which it waits while it has `ahead` forwards to compute, and one before
// its last backward, while it has as many backwards. If these are all, both are the same pause.
static double gx__pipeline_waits(const GxPipeline *p, int s, GxPipelineWay way)
{
    const GxStageTimes *t = &p->stage[s];
    const double weight = gx_order_info(p->order)->has_halves ? t->weight : 0;
    const double first = gx__pipeline_excess(way.behind, way.ahead * t->forward),
                 last = gx__pipeline_excess(way.behind, way.ahead * (t->backward + weight));
    const int is_one = way.ahead == p->micro_batches - 1;
    return gx__pipeline_works(p, s, way, 0, is_one ? gx__pipeline_later(first, last) : first + last);
}

// With the messages of each micro-batch, where these block. Those to and from the stage before are part of its ways.
static double gx__pipeline_blocks(const GxPipeline *p, int s, GxPipelineWay way)
{
    const GxStageTimes *t = &p->stage[s];
    const double x_in = s ? t[-1].to_next : 0, dx_out = s ? t->to_previous : 0;
    const double behind = s + 1 < p->stages ? t->to_next + t[1].to_previous : 0;
    way.down -= x_in, way.up -= dx_out;
    return p->is_overlapped ? 0 : gx__pipeline_works(p, s, way, x_in + dx_out + behind, 0);
}

// A stage's forward comes behind its backward of the micro-batch `ahead` + 1 before: rounds through all stages behind.
static double gx__pipeline_rounds(const GxPipeline *p, int s, GxPipelineWay way)
{
    const int rounds = (p->micro_batches - 1) / (way.ahead + 1) + 1;
    return way.down + rounds * (p->stage[s].forward + way.behind + p->stage[s].backward) + way.up;
}

double gx_pipeline_bound(const GxPipeline *p)
{
    static double (*const bounds[])(const GxPipeline *, int, GxPipelineWay) = {gx__pipeline_waits, gx__pipeline_blocks,
                                                                               gx__pipeline_rounds};
    GxPipelineWay way = GX_ZERO;
    double most = 0;
    for (int s = 1; s < p->stages; s++)
        way.behind += p->stage[s].forward + p->stage[s].backward + p->stage[s - 1].to_next + p->stage[s].to_previous;
    for (int s = 0; s < p->stages; s++) {
        const GxStageTimes *t = &p->stage[s];
        const int ahead = p->stages - s - 1 + (p->warm ? p->warm[s] : 0), all = p->micro_batches - 1;
        way.ahead = p->order == GX_ORDER_GPIPE ? all : (int)gx_min(ahead, all);
        for (unsigned i = 0; i < sizeof bounds / sizeof *bounds; i++)
            most = gx__pipeline_later(most, bounds[i](p, s, way));
        if (s + 1 == p->stages) break;
        way.down += t->forward + t->to_next, way.up += t->backward + t[1].to_previous;
        way.behind -= t[1].forward + t[1].backward + t->to_next + t[1].to_previous;
    }
    return most;
}
#endif
