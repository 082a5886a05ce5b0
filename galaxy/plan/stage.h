// plan/stage.h: how long a group of ranks takes for a micro-batch of the layers that they share: from what each of them
// would do (recorded on the device `none`, base/recorder.h), from what operations cost on each machine (costs.h), and
// from the links between them.
//
// The ranks of a group compute side by side and meet in collectives, so between two collectives the slowest of them
// counts:
//
//     seconds = sum over stretches of (max over ranks of the stretch) + collectives
//
// A collective of n ranks over bytes of the whole takes, in halves (an all-gather or a reduce-scatter is one, an
// all-reduce two), latency (n - 1) + bytes (n - 1) / n * seconds per byte, of the slowest link in the group.
//
//     GxStageMember member[2] = {{events0, n0, &cost0}, {events1, n1, &cost1}};
//     gx_stage_seconds(&seconds, member, 2, latency, seconds_per_byte, units);
//
// Ranks that share a key-value head send its gradients to one another, each as many as there are others: messages count
// as work of their rank.
//
// Collectives that are started early and waited for later count as if they blocked: threads, TCP and MPI move bytes only
// inside calls.
#ifndef GX_STAGE_H
#define GX_STAGE_H
#include "../base/recorder.h"
#include "../base/partition.h"
#include "costs.h"
GX_BEGIN

typedef struct { // a rank of the group
    const GxEvent *event;
    int64_t n;
    const GxCost *cost;
} GxStageMember;

enum { GX_STAGE_EMBEDDING = 0, GX_STAGE_LAYER, GX_STAGE_HEAD, GX_STAGE_KINDS };

typedef struct { // seconds, by kind of unit; those of layers are of all layers that were recorded
    double forward[GX_STAGE_KINDS], backward[GX_STAGE_KINDS]; // of all micro-batches; recomputation is backward's
    // The rest of a window: sums inside the group, the norm, the optimizer; and what belongs to no unit.
    double step[GX_STAGE_KINDS], rest;
    double communication;      // the part of all of this that is collectives
    double idle;               // waiting inside the group: of the rank that waits the most
    double busy[GX_MAX_PARTS]; // [ranks]: computing
} GxStageSeconds;

// units: of the recorded model; the first is the embedding, the last the head. latency, seconds_per_byte: the slowest
// link's. An error if the ranks' recordings do not have the same collectives.
GxStatus gx_stage_seconds(GxStageSeconds *s, const GxStageMember *member, int ranks, double latency,
                          double seconds_per_byte, int units, GxError *err);

// Seconds of one collective of a recording.
double gx_collective_seconds(const GxEvent *e, double latency, double seconds_per_byte);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STAGE_IMPLEMENTED)
#define GX_STAGE_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "../parallel/steps.h"

typedef struct {
    double latency, seconds_per_byte;
} GxStageLink;

double gx_collective_seconds(const GxEvent *e, double latency, double seconds_per_byte)
{
    const int n = (int)gx_max(e->members, 1);
    const double bytes = (double)e->elements * (double)gx_dtype_size(e->dtype);
    const int halves = !strcmp(e->name, "all_reduce") ? 2 : 1;
    if (n == 1 || !strcmp(e->name, "recv")) return 0;
    if (!strcmp(e->name, "send")) return latency + bytes * seconds_per_byte;
    return halves * (latency * (n - 1) + bytes * (n - 1) / n * seconds_per_byte);
}

// 1: all ranks of the group take part; a message has only two.
static int gx__stage_meets(const GxEvent *e)
{
    return e->kind == GX_EVENT_COLLECTIVE && strcmp(e->name, "send") && strcmp(e->name, "recv");
}

// Where the seconds of an event belong.
static double *gx__stage_place(GxStageSeconds *s, const GxEvent *e, int units)
{
    const int kind = e->unit <= 0 ? GX_STAGE_EMBEDDING : e->unit >= units - 1 ? GX_STAGE_HEAD : GX_STAGE_LAYER;
    switch (e->action - 1) {
    case GX_DO_FORWARD: return &s->forward[kind];
    case GX_DO_RECOMPUTE:
    case GX_DO_BACKWARD:
    case GX_DO_WEIGHT: return &s->backward[kind];
    default: return e->unit < 0 ? &s->rest : &s->step[kind];
    }
}

// The next event of a rank, from i on, that ends a stretch: a collective, or one that belongs elsewhere than the
// stretch does. Adds the seconds of the stretch.
static int64_t gx__stage_stretch(GxStageSeconds *s, const GxStageMember *m, int64_t i, int units, const double *place,
                                 const GxStageLink *link, double *seconds)
{
    *seconds = 0;
    for (; i < m->n && !gx__stage_meets(&m->event[i]); i++) {
        if (m->event[i].kind == GX_EVENT_WAIT) continue;
        if (gx__stage_place(s, &m->event[i], units) != place) break;
        *seconds += m->event[i].kind == GX_EVENT_OP
                        ? gx_cost_seconds(m->cost, &m->event[i])
                        : gx_collective_seconds(&m->event[i], link->latency, link->seconds_per_byte);
    }
    return i;
}

static GxStatus gx__stage_refuse(const GxStageMember *member, const int64_t *at, int r, GxError *err)
{
    const GxEvent *a = at[0] < member[0].n ? &member[0].event[at[0]] : NULL,
                  *b = at[r] < member[r].n ? &member[r].event[at[r]] : NULL;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the ranks of a group do not communicate alike: %s of rank 0 meets %s of rank %d",
                   a ? a->name : "the end", b ? b->name : "the end", r);
}

// The place of the event that comes next on a rank; NULL: a collective, or the end.
static double *gx__stage_next(GxStageSeconds *s, const GxStageMember *m, int64_t i, int units)
{
    while (i < m->n && m->event[i].kind == GX_EVENT_WAIT) i++;
    return i < m->n && !gx__stage_meets(&m->event[i]) ? gx__stage_place(s, &m->event[i], units) : NULL;
}

// One stretch of all ranks: up to the next collective, or to the next place. Ranks may differ in their operations (a
// rank may have none of the vocabulary), not in their collectives.
static void gx__stage_stretches(GxStageSeconds *s, const GxStageMember *member, int ranks, int64_t *at, int units,
                                const GxStageLink *link, double *waits)
{
    double *place = NULL, most = 0, seconds[GX_MAX_PARTS];
    for (int r = 0; r < ranks && !place; r++) place = gx__stage_next(s, &member[r], at[r], units);
    for (int r = 0; r < ranks; r++) {
        at[r] = gx__stage_stretch(s, &member[r], at[r], units, place, link, &seconds[r]);
        s->busy[r] += seconds[r], most = fmax(most, seconds[r]);
    }
    for (int r = 0; r < ranks; r++) waits[r] += most - seconds[r];
    if (place) *place += most;
}

GxStatus gx_stage_seconds(GxStageSeconds *s, const GxStageMember *member, int ranks, double latency,
                          double seconds_per_byte, int units, GxError *err)
{
    const GxStageLink link = {latency, seconds_per_byte};
    int64_t at[GX_MAX_PARTS] = GX_ZERO;
    double waits[GX_MAX_PARTS] = GX_ZERO;
    memset(s, 0, sizeof *s);
    for (;;) {
        int more = 0;
        for (int r = 0; r < ranks; r++) more |= gx__stage_next(s, &member[r], at[r], units) != NULL;
        if (more) {
            gx__stage_stretches(s, member, ranks, at, units, &link, waits);
            continue;
        }
        for (int r = 0; r < ranks; r++)
            while (at[r] < member[r].n && member[r].event[at[r]].kind == GX_EVENT_WAIT) at[r]++;
        if (at[0] == member[0].n) break;
        const GxEvent *e = &member[0].event[at[0]];
        for (int r = 1; r < ranks; r++)
            if (at[r] == member[r].n || strcmp(member[r].event[at[r]].name, e->name))
                return gx__stage_refuse(member, at, r, err);
        const double seconds = gx_collective_seconds(e, latency, seconds_per_byte);
        *gx__stage_place(s, e, units) += seconds, s->communication += seconds;
        for (int r = 0; r < ranks; r++) at[r]++;
    }
    for (int r = 0; r < ranks; r++) {
        if (at[r] != member[r].n) return gx__stage_refuse(member, at, r, err);
        s->idle = fmax(s->idle, waits[r]);
    }
    return GX_OK;
}
#endif
