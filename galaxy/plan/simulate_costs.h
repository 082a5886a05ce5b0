// simulate_costs.h: what a simulation (simulate.h) is made from, and the seconds that each action of a list takes in
// it.
//
//     F, B, W, R, STEP   the unit's seconds; times the slowness of the rank's place in the pipeline
//     SEND with RECV     latency + bytes * per_byte; TIE likewise
//     GATHER, SCATTER    of n ranks (n-1) latency + (n-1)/n * bytes * per_byte, a ring's; REDUCE twice that
//     COUNT, AGREE       2 log2(n) latencies of all ranks, a tree's
//     NORM, FREE, WAIT   nothing
#ifndef GX_SIMULATE_COSTS_H
#define GX_SIMULATE_COSTS_H
#include "../parallel/steps_make.h"
#include "chance.h"
GX_BEGIN

typedef enum { GX_SIMULATED_EMBEDDING = 0, GX_SIMULATED_LAYER, GX_SIMULATED_HEAD, GX_SIMULATED_KINDS } GxSimulatedKind;

// Of a unit on one rank; with tensor parallelism that is the rank's share. All are doubles, and at least 0.
typedef struct {
    // Seconds of a micro-batch. backward: with the weights' gradients; of a head, which has no forward of its own in
    // training, with the loss
    double forward, backward;
    double weights;   // the part of backward that W computes, where weights' gradients are deferred
    double recompute; // R
    double step;      // the optimizer's seconds on all of the unit; on a shard, its part of them
    double x, slot;   // bytes of a micro-batch: of its input, which messages have; kept from F to B
    // Whole, as they are stored and sent; moments: all that the optimizer keeps
    double weight_bytes, grad_bytes, moment_bytes;
} GxSimulatedUnit;

typedef struct {
    double latency, per_byte; // seconds
} GxSimulatedLink;

typedef struct {
    // units, ranks (of the pipeline), order, micro_batches, and what is sharded, bucketed, tied or computed again.
    // stage NULL: as many layers in each stage, the first stages one more. Set here: rank and all axes; and
    // defers_weights if the order has halves.
    GxStepsSpec steps;
    int dp_replicate, dp_shard, tp; // 0: 1. The ranks of a host are neighbours in tp, then dp_shard, dp_replicate, pp
    GxSimulatedUnit unit[GX_SIMULATED_KINDS];
    // [ranks of the pipeline], factors of seconds: of all copies of the model, 2: half as fast; and of one copy beside
    // that. NULL: 1, and no copy is slower. (A tp group is as slow as its slowest rank.)
    const double *slowness, *slow_copy;
    int ranks_per_host;     // 0: all ranks are in one host
    GxSimulatedLink within; // a host, between two of its ranks
    // Two hosts. per_byte: with all network cards of a host together, which its ranks share: those of a group that has
    // the host to itself have all of them
    GxSimulatedLink between;
    int only_window;    // 1: nothing about slow ranks and jitter, which take most of the time of a simulation
    int overlaps;       // 1: an estimate of communication beside computation
    double tokens;      // of a micro-batch of one copy; 0: unknown
    double straggler;   // the factor of the one slow rank that results tell the cost of; 0: 1.3
    double jitter;      // standard deviation of a computation's seconds, relative, independent of all others
    double rank_jitter; // the same of all computations of a rank in a window together
    GxFailures failures;
} GxSimulationSpec;

// What the time of a rank was spent on.
typedef enum {
    GX_SPENT_COMPUTING = 0,
    GX_SPENT_MESSAGES, // between stages; here and below: what computations wait for
    GX_SPENT_GATHERS,
    GX_SPENT_SCATTERS,
    GX_SPENT_SUMS,
    GX_SPENT_AGREEMENT, // COUNT, AGREE
    GX_SPENT_BUBBLE,    // waiting for other ranks
    GX_SPENTS
} GxSpent;
const char *gx_spent_name(int spent); // "computing"

// How long a rank waits in a window, over how long it computes, where each F, b and W of a stage takes the same time
// and messages take none (steps_order.h). chunks: stages of a rank, of GX_ORDER_INTERLEAVED; 0: as many as its lists
// have.
double gx_bubble(int order, int ranks, int micro_batches, int chunks);

// ---- for simulate_loop.h --------------------------------------------------------------------------------------------

// The mesh, with all numbers at least 1. host: ranks of a host
typedef struct {
    const GxSimulationSpec *p;
    int pp, replicas, shards, tp, host;
} gx__SimMesh;

// What an action of a list does in time: a row for each, the only thing that the loop knows of it.
typedef struct {
    double seconds;
    int partner; // of a message or TIE: the action's number in the other rank's list
    int needs;   // of a computation: the number, in its list, of the RECV whose data it needs; -1: none
    int8_t spent;
    int8_t is_nothing; // it takes no time, and waits for nobody
    int8_t is_met;     // all of its members have to come to it
    int8_t settles;    // sums that were started have to end before it
} gx__SimAction;

int gx__simulate_kind(const GxStepsSpec *p, int unit);  // GxSimulatedKind
int gx__simulate_group(const gx__SimMesh *s, int axes); // ranks of a group over axes of copies
// p: of the list that the action is in. Leaves partner and needs as they are.
void gx__simulate_action(const gx__SimMesh *s, const GxStepsSpec *p, const GxAction *a, gx__SimAction *to);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SIMULATE_COSTS_IMPLEMENTED)
#define GX_SIMULATE_COSTS_IMPLEMENTED
#include "../base/mesh.h"
#include <math.h>

const char *gx_spent_name(int spent)
{
    static const char *const names[GX_SPENTS] = {"computing", "messages",  "gathers", "scatters",
                                                 "sums",      "agreement", "bubble"};
    return (unsigned)spent < GX_SPENTS ? names[spent] : "?";
}

double gx_bubble(int order, int ranks, int micro_batches, int chunks)
{
    const GxOrderInfo *info = gx_order_info(order);
    const double waits = info->has_halves ? 1 : 3, n = chunks > 0 ? chunks : info->chunks;
    return waits * (ranks - 1) / (3.0 * n * micro_batches);
}

// ---- costs ---------------------------------------------------------------------------------------------------------

int gx__simulate_kind(const GxStepsSpec *p, int unit)
{
    return unit == 0 ? GX_SIMULATED_EMBEDDING : unit == p->units - 1 ? GX_SIMULATED_HEAD : GX_SIMULATED_LAYER;
}

int gx__simulate_group(const gx__SimMesh *s, int axes)
{
    return (axes & GX_AXIS_DP_REPLICATE ? s->replicas : 1) * (axes & GX_AXIS_DP_SHARD ? s->shards : 1);
}

// The link of groups over axes of copies. Their members on a host are every stride-th of its ranks; if they are not all
// of the group, a ring leaves the host once for each group that it has members of, over the cards that these share.
static GxSimulatedLink gx__simulate_link(const gx__SimMesh *s, int axes)
{
    const int64_t n = gx__simulate_group(s, axes),
                  stride = axes & GX_AXIS_DP_SHARD ? s->tp : (int64_t)s->tp * s->shards,
                  here = gx_max(1, gx_min(n, s->host / stride));
    const int is_within = n * stride <= s->host && s->host % (n * stride) == 0;
    GxSimulatedLink link = is_within ? s->p->within : s->p->between;
    if (!is_within) link.per_byte *= (double)gx_ceil_div(s->host, here);
    if (!is_within && here > 1) link.per_byte = fmax(link.per_byte, s->p->within.per_byte);
    return link;
}

// Between two ranks of the pipeline. All ranks of a host that are in the same stage send at once.
static GxSimulatedLink gx__simulate_message_link(const gx__SimMesh *s, int a, int b)
{
    const int64_t each = (int64_t)s->tp * s->shards * s->replicas, last = each - 1;
    const int is_within = a * each / s->host == b * each / s->host &&
                          (a * each + last) / s->host == (b * each + last) / s->host &&
                          a * each / s->host == (a * each + last) / s->host;
    GxSimulatedLink link = is_within ? s->p->within : s->p->between;
    if (!is_within) link.per_byte *= (double)gx_min(s->host, each);
    return link;
}

static double gx__simulate_ring(const gx__SimMesh *s, int axes, double bytes)
{
    const double n = gx__simulate_group(s, axes);
    const GxSimulatedLink link = gx__simulate_link(s, axes);
    return n > 1 ? (n - 1) * link.latency + (n - 1) / n * bytes * link.per_byte : 0;
}

static double gx__simulate_message(const gx__SimMesh *s, int a, int b, double bytes)
{
    const GxSimulatedLink link = gx__simulate_message_link(s, a, b);
    return link.latency + bytes * link.per_byte;
}

static double gx__simulate_agreement(const gx__SimMesh *s)
{
    const double ranks = (double)s->pp * s->replicas * s->shards * s->tp;
    return 2 * ceil(log2(ranks)) * (ranks > s->host ? s->p->between.latency : s->p->within.latency);
}

// Gradients of the units of a REDUCE that this rank has, whole or its shard.
static double gx__simulate_reduced(const gx__SimMesh *s, const GxStepsSpec *p, const GxAction *a)
{
    double bytes = 0;
    for (int u = a->unit; u < a->unit + a->count; u++)
        if (gx_steps_is_mine(p, u) && gx_steps_is_trained(p, u))
            bytes += s->p->unit[gx__simulate_kind(p, u)].grad_bytes;
    return a->object == GX_OBJECT_SHARD ? bytes / s->shards : bytes;
}

static double gx__simulate_computes(const gx__SimMesh *s, const GxStepsSpec *p, const GxAction *a)
{
    const GxSimulatedUnit *u = &s->p->unit[gx__simulate_kind(p, a->unit)];
    switch (a->what) {
    case GX_DO_FORWARD: return u->forward;
    case GX_DO_RECOMPUTE: return u->recompute;
    case GX_DO_BACKWARD: return a->half == GX_HALF_NONE ? u->backward : u->backward - u->weights;
    case GX_DO_WEIGHT: return u->weights;
    default: return p->sharded ? u->step / s->shards : u->step; // STEP
    }
}

static void gx__simulate_communicates(const gx__SimMesh *s, const GxStepsSpec *p, const GxAction *a, gx__SimAction *to)
{
    const GxSimulatedUnit *u = &s->p->unit[gx__simulate_kind(p, a->unit)];
    to->is_met = 1;
    switch (a->what) {
    case GX_DO_SEND:
    case GX_DO_RECV:
        to->spent = GX_SPENT_MESSAGES;
        to->seconds = gx__simulate_message(s, p->rank, a->peer, u->x);
        break;
    case GX_DO_GATHER:
        to->spent = GX_SPENT_GATHERS, to->seconds = gx__simulate_ring(s, a->axes, u->weight_bytes);
        break;
    case GX_DO_SCATTER:
        to->spent = GX_SPENT_SCATTERS, to->seconds = gx__simulate_ring(s, a->axes, u->grad_bytes);
        break;
    case GX_DO_REDUCE:
        to->spent = GX_SPENT_SUMS, to->seconds = 2 * gx__simulate_ring(s, a->axes, gx__simulate_reduced(s, p, a));
        break;
    case GX_DO_TIE: // the tensor that both have is the embedding's
        to->spent = GX_SPENT_SUMS;
        to->seconds = gx__simulate_message(s, p->rank, a->peer, s->p->unit[GX_SIMULATED_EMBEDDING].grad_bytes);
        break;
    default: // COUNT, AGREE
        to->spent = GX_SPENT_AGREEMENT, to->seconds = gx__simulate_agreement(s), to->settles = a->what == GX_DO_AGREE;
        break;
    }
}

void gx__simulate_action(const gx__SimMesh *s, const GxStepsSpec *p, const GxAction *a, gx__SimAction *to)
{
    switch (a->what) {
    case GX_DO_FORWARD:
    case GX_DO_RECOMPUTE:
    case GX_DO_BACKWARD:
    case GX_DO_WEIGHT:
    case GX_DO_STEP: to->seconds = gx__simulate_computes(s, p, a); break;
    case GX_DO_FREE:
    case GX_DO_NORM:
    case GX_DO_WAIT: to->is_nothing = 1; break;
    default: gx__simulate_communicates(s, p, a, to); break;
    }
}
#endif
