// simulate.h: predicts a window of a training on a mesh of up to a million ranks, from what units cost: seconds of
// their forwards and backwards, bytes of their rows and weights, two kinds of links. It needs neither a model nor files.
//
// The lists of actions are those that a training runs (parallel/steps_make.h). Ranks that differ in data or tensor
// parallelism alone have the same list, and do the same at the same time: a list per rank of the pipeline is simulated,
// not one per rank of the mesh. If one copy of the model is slower than the others, copies fall into at most four
// classes: the slow one; those that share its shards; those that have the same shard as it; all others. Each class has
// its lists, and collectives over copies wait for the classes that they have members in. Both are exact.
//
//     GxSimulationSpec p = GX_ZERO;
//     p.steps.units = 128, p.steps.ranks = 16, p.steps.micro_batches = 64; // 126 layers, pp 16, 1f1b
//     p.dp_replicate = 80, p.tp = 8;                                       // 10,240 ranks
//     p.unit[GX_SIMULATED_LAYER].forward = 4e-3, p.unit[GX_SIMULATED_LAYER].backward = 8e-3;
//     p.unit[GX_SIMULATED_LAYER].x = 134e6, p.unit[GX_SIMULATED_LAYER].grad_bytes = 1.6e9; // ... and what memory holds
//     p.ranks_per_host = 8, p.between.latency = 1e-5, p.between.per_byte = 1 / 400e9;
//     GxSimulation s = GX_ZERO;
//     GX_TRY(gx_simulate(&s, &p, err));
//     printf("%.2f s\n", s.window);                   // gx_simulation_print, gx_simulation_draw: simulate_print.h
//     gx_simulation_close(&s);
//
// What actions cost:
//     F, B, W, R, STEP   the unit's seconds, times the slowness of the rank's place in the pipeline
//     SEND with RECV     latency + bytes * per_byte, once both ranks have come to it
//     GATHER, SCATTER    of n ranks (n-1) latency + (n-1)/n * bytes * per_byte, a ring's; REDUCE and TIE: twice that
//     COUNT, AGREE       2 log2(n) latencies of all ranks, a tree's
//     NORM, FREE, WAIT   nothing
// Communication blocks, as it does when these lists run: nothing overlaps. With `overlaps` it is an estimate of what the
// same lists would take beside communication: messages are under way while both ranks compute, one after another in
// each direction; a unit is gathered while the unit before it computes (its weights need the memory of one more unit);
// sums are started, and waited for before NORM. Gathers, sums and messages are not taken to slow each other, or the
// computations, down.
//
// Not simulated: context parallelism; collectives inside of units, which belong to the units' seconds; copies that have
// other stages or other numbers of micro-batches; switches that many hosts share.
//
// Memory: about 150 bytes per action of the pipeline's lists, until gx_simulation_close.
#ifndef GX_SIMULATE_H
#define GX_SIMULATE_H
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
    double weight_bytes, grad_bytes,
        moment_bytes; // whole, as they are stored and sent. moments: all of the optimizer's
} GxSimulatedUnit;

typedef struct {
    double latency, per_byte; // seconds
} GxSimulatedLink;

typedef struct {
    // units, ranks (of the pipeline), order, micro_batches, and what is sharded, bucketed, tied or computed again. stage
    // NULL: as many layers in each stage, the first stages one more. Set here: rank and all axes; and defers_weights if
    // the order has halves.
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

// Of the ranks that have the same place in the pipeline: of one of them, in a copy that is not the slow one.
typedef struct {
    double spent[GX_SPENTS]; // seconds, which add up to the window
    // Bytes: its part of weights, gradients and the optimizer's state; rows, slots and what is whole for a while
    double weights, grads, moments, rows;
    double if_slow; // how much longer the window would be, relative, if one such rank were slower (spec.straggler)
} GxSimulatedStage;

typedef struct {
    int64_t ranks;
    int pp, copies;
    double window;               // seconds, if all ranks always take the same time
    GxSimulatedStage *stage;     // [pp]
    double if_copy_slow;         // as if_slow: if all ranks of one copy were slower
    double jitter, rank_jitter;  // how much longer the window is expected to be for each of the two, relative
    GxFailureCost failures;      // of all ranks
    double expected;             // seconds of a window, with jitter, on average over failures
    double tokens_per_second[2]; // of window, of expected; 0: unknown
    // The lists, and when each of their actions begins and ends, of a copy that is not the slow one. Action i of list r
    // is number first[r] + i.
    GxSteps *list; // [pp]
    int *first;    // [pp + 1]
    double *begin, *end;
    void *memory;
} GxSimulation;

// Close s, also after an error. Refused: what gx_steps_make refuses, sizes that are not possible, seconds and bytes that
// are negative or not finite.
GxStatus gx_simulate(GxSimulation *s, const GxSimulationSpec *p, GxError *err);
void gx_simulation_close(GxSimulation *s);

// How long a rank waits in a window, over how long it computes, where each F, b and W of a stage takes the same time and
// messages take none (steps_order.h). chunks: stages of a rank, of GX_ORDER_INTERLEAVED; 0: as many as its lists have.
double gx_bubble(int order, int ranks, int micro_batches, int chunks);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SIMULATE_IMPLEMENTED)
#define GX_SIMULATE_IMPLEMENTED
#include "../base/mesh.h"
#include "../base/partition.h"
#include "../base/random.h"
#include "../parallel/steps_place.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GX__SIMULATE_CLASSES = 4, // of copies
    GX__SIMULATE_DRAWS = 24,  // windows with jitter
    GX__SIMULATE_MOST = 1 << 24
};

// What an action of a list does in time: a row for each, which the loop below knows alone.
typedef struct {
    double seconds;
    int partner; // of a message or TIE: the action's number in the other rank's list
    int needs;   // of a computation: the number, in its list, of the RECV whose data it needs; -1: none
    int8_t spent;
    int8_t is_nothing; // it takes no time, and waits for nobody
    int8_t is_met;     // all of its members have to come to it
    int8_t settles;    // sums that were started have to end before it
} gx__SimAction;

// A rank of one of the classes.
typedef struct {
    int at;                        // the action that is next
    double now, computes;          // its time; when its last computation began
    double gathers, sums, link[2]; // overlaps: when all gathers, all sums, messages of x and of dx end
    double gather_seconds;         // of the last gather
    int sum_spent;                 // of the last sum
    double variance;               // jitter: of the seconds computed since it last met other copies
    double spent[GX_SPENTS];
} gx__SimNode;

typedef struct {
    const GxSimulationSpec *p;
    int pp, replicas, shards, tp; // of the mesh
    int host;                     // ranks of a host
    GxSteps *list;
    int *first;
    gx__SimAction *action; // [all actions]
    int meets;             // copies meet within the window, not only at its end

    int classes, has[GX__SIMULATE_CLASSES]; // by class: axes in which it stands where the slow copy does
    gx__SimNode *node;                      // [classes][pp]
    double *slowness;                       // [classes][pp]
    int *member;                            // [classes * pp]: who does an action together
    double *begin, *end;                    // [classes][all actions]
    double jitter, most[GX_AXIS_DP + 1];    // most: by axes, the expected largest of their ranks' normals
    uint32_t draw;
    double window;
} gx__Sim;

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

static int gx__simulate_kind(const GxStepsSpec *p, int unit)
{
    return unit == 0 ? GX_SIMULATED_EMBEDDING : unit == p->units - 1 ? GX_SIMULATED_HEAD : GX_SIMULATED_LAYER;
}

static int gx__simulate_group(const gx__Sim *s, int axes)
{
    return (axes & GX_AXIS_DP_REPLICATE ? s->replicas : 1) * (axes & GX_AXIS_DP_SHARD ? s->shards : 1);
}

// The link of groups over axes of copies. Their members on a host are every stride-th of its ranks; if they are not all
// of the group, a ring leaves the host once for each group that it has members of, over the cards that these share.
static GxSimulatedLink gx__simulate_link(const gx__Sim *s, int axes)
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
static GxSimulatedLink gx__simulate_message_link(const gx__Sim *s, int a, int b)
{
    const int64_t each = (int64_t)s->tp * s->shards * s->replicas, last = each - 1;
    const int is_within = a * each / s->host == b * each / s->host &&
                          (a * each + last) / s->host == (b * each + last) / s->host &&
                          a * each / s->host == (a * each + last) / s->host;
    GxSimulatedLink link = is_within ? s->p->within : s->p->between;
    if (!is_within) link.per_byte *= (double)gx_min(s->host, each);
    return link;
}

static double gx__simulate_ring(const gx__Sim *s, int axes, double bytes)
{
    const double n = gx__simulate_group(s, axes);
    const GxSimulatedLink link = gx__simulate_link(s, axes);
    return n > 1 ? (n - 1) * link.latency + (n - 1) / n * bytes * link.per_byte : 0;
}

static double gx__simulate_message(const gx__Sim *s, int a, int b, double bytes)
{
    const GxSimulatedLink link = gx__simulate_message_link(s, a, b);
    return link.latency + bytes * link.per_byte;
}

static double gx__simulate_agreement(const gx__Sim *s)
{
    const double ranks = (double)s->pp * s->replicas * s->shards * s->tp;
    return 2 * ceil(log2(ranks)) * (ranks > s->host ? s->p->between.latency : s->p->within.latency);
}

// Gradients of the units of a REDUCE that this rank has, whole or its shard.
static double gx__simulate_reduced(const gx__Sim *s, const GxStepsSpec *p, const GxAction *a)
{
    double bytes = 0;
    for (int u = a->unit; u < a->unit + a->count; u++)
        if (gx_steps_is_mine(p, u) && gx_steps_is_trained(p, u))
            bytes += s->p->unit[gx__simulate_kind(p, u)].grad_bytes;
    return a->object == GX_OBJECT_SHARD ? bytes / s->shards : bytes;
}

static double gx__simulate_computes(const gx__Sim *s, const GxStepsSpec *p, const GxAction *a)
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

static void gx__simulate_communicates(const gx__Sim *s, const GxStepsSpec *p, const GxAction *a, gx__SimAction *to)
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

static void gx__simulate_action(const gx__Sim *s, const GxStepsSpec *p, const GxAction *a, gx__SimAction *to)
{
    to->needs = -1;
    switch (a->what) {
    case GX_DO_FORWARD:
    case GX_DO_RECOMPUTE:
    case GX_DO_BACKWARD:
    case GX_DO_WEIGHT:
    case GX_DO_STEP: to->seconds = gx__simulate_computes(s, p, a); break;
    case GX_DO_FREE:
    case GX_DO_NORM:
    case GX_DO_WAIT: to->is_nothing = 1, to->settles = a->what == GX_DO_NORM; break;
    default: gx__simulate_communicates(s, p, a, to); break;
    }
}

// ---- who waits for whom --------------------------------------------------------------------------------------------

// The k-th message from a to b is the k-th that b receives from a; likewise for TIEs.
static void gx__simulate_pair(gx__Sim *s, int a, int what, int back, int *next)
{
    memset(next, 0, (size_t)s->pp * sizeof *next);
    for (int i = 0; i < s->list[a].n; i++) {
        const GxAction *x = &s->list[a].action[i];
        if (x->what != what) continue;
        const GxSteps *b = &s->list[x->peer];
        int j = next[x->peer];
        while (j < b->n && !(b->action[j].what == back && b->action[j].peer == a)) j++;
        if (j == b->n) continue; // the loop finds that nobody comes
        s->action[s->first[a] + i].partner = j;
        s->action[s->first[x->peer] + j].partner = i;
        next[x->peer] = j + 1;
    }
}

// received: [x, dx][units][micro_batches]: the last RECV of it, as the number of all lists' actions + 1.
static void gx__simulate_needs(gx__Sim *s, int rank, int *received)
{
    const GxStepsSpec *p = &s->list[rank].spec;
    for (int i = 0; i < s->list[rank].n; i++) {
        const GxAction *a = &s->list[rank].action[i];
        const int is_back = a->what == GX_DO_BACKWARD && a->unit < p->units - 1,
                  unit = is_back ? gx_steps_above(p, a->unit) : a->unit;
        const int64_t rows = p->units * (int64_t)p->micro_batches,
                      cell = unit * (int64_t)p->micro_batches + a->micro_batch;
        if (a->what == GX_DO_RECV) received[(a->object == GX_OBJECT_DX ? rows : 0) + cell] = s->first[rank] + i + 1;
        if (a->what != GX_DO_FORWARD && a->what != GX_DO_BACKWARD && a->what != GX_DO_RECOMPUTE) continue;
        const int from = unit < p->units ? received[(is_back ? rows : 0) + cell] - 1 : -1;
        if (from >= s->first[rank]) s->action[s->first[rank] + i].needs = from - s->first[rank];
    }
}

// ---- the loop ------------------------------------------------------------------------------------------------------

static const gx__SimAction *gx__simulate_at(const gx__Sim *s, int node) // NULL: at its end
{
    const int rank = node % s->pp, i = s->node[node].at;
    return i < s->list[rank].n ? &s->action[s->first[rank] + i] : NULL;
}

// Overlaps: it is started, and waited for later.
static int gx__simulate_is_started(const gx__Sim *s, const GxAction *a)
{
    return s->p->overlaps && (a->what == GX_DO_GATHER || a->what == GX_DO_SCATTER || a->what == GX_DO_REDUCE);
}

// Until `until`; of that, what is exposed of something that took `seconds`, and the rest for others.
static void gx__simulate_wait(gx__SimNode *n, double until, double seconds, int spent)
{
    const double gap = until - n->now, exposed = fmin(gap, seconds);
    if (gap <= 0) return;
    n->spent[spent] += exposed, n->spent[GX_SPENT_BUBBLE] += gap - exposed;
    n->now = until;
}

static void gx__simulate_settle(gx__SimNode *n) { gx__simulate_wait(n, n->sums, n->sums, n->sum_spent); }

static double gx__simulate_seconds(gx__Sim *s, int node, const gx__SimAction *a)
{
    gx__SimNode *n = &s->node[node];
    const double mean = a->seconds * s->slowness[node];
    if (s->jitter == 0) return mean;
    const int64_t number = a - s->action + (int64_t)(node / s->pp) * s->first[s->pp];
    n->variance += mean * s->jitter * mean * s->jitter;
    return fmax(0, mean * (1 + s->jitter * gx_random_normal(1, (uint64_t)number, s->draw, 0)));
}

static void gx__simulate_compute(gx__Sim *s, int node, const gx__SimAction *a, double *begin, double *end)
{
    gx__SimNode *n = &s->node[node];
    const int i = n->at;
    if (s->p->overlaps) {
        gx__simulate_wait(n, n->gathers, n->gather_seconds, GX_SPENT_GATHERS);
        if (a->needs >= 0) {
            const double *ends = s->end + (int64_t)(node / s->pp) * s->first[s->pp] + s->first[node % s->pp];
            gx__simulate_wait(n, ends[a->needs], (a - i + a->needs)->seconds, GX_SPENT_MESSAGES);
        }
    }
    const double seconds = gx__simulate_seconds(s, node, a);
    *begin = n->computes = n->now;
    *end = n->now += seconds;
    n->spent[GX_SPENT_COMPUTING] += seconds;
}

// Overlaps: a message is under way while both compute. Returns 0 if it has not been sent yet.
static int gx__simulate_pass(gx__Sim *s, int node, const gx__SimAction *row, double *begin, double *end)
{
    gx__SimNode *n = &s->node[node];
    const int rank = node % s->pp;
    const GxAction *a = &s->list[rank].action[n->at];
    if (a->what == GX_DO_SEND) {
        const int is_dx = a->object == GX_OBJECT_DX;
        *begin = fmax(n->now, n->link[is_dx]);
        *end = n->link[is_dx] = *begin + row->seconds;
        return 1;
    }
    const int64_t sent = (int64_t)(node / s->pp) * s->first[s->pp] + s->first[a->peer] + row->partner;
    if (row->partner < 0 || s->node[node - rank + a->peer].at <= row->partner) return 0;
    *begin = s->begin[sent], *end = s->end[sent];
    return 1;
}

// Fills s->member with all that do the node's action together, itself among them. Returns how many, or 0 if one of them
// has not come to it yet.
static int gx__simulate_members(gx__Sim *s, int node)
{
    const int rank = node % s->pp, class_of = node / s->pp, at = s->node[node].at;
    const GxAction *a = &s->list[rank].action[at];
    const int agrees = a->what == GX_DO_COUNT || a->what == GX_DO_AGREE,
              meets = a->what == GX_DO_SEND || a->what == GX_DO_RECV || a->what == GX_DO_TIE;
    int n = 0;
    for (int c = 0; c < s->classes; c++)
        for (int r = agrees ? 0 : rank; r <= (agrees ? s->pp - 1 : rank); r++) {
            const int other = c * s->pp + r, i = s->node[other].at, apart = (s->has[c] ^ s->has[class_of]) & ~a->axes;
            if (meets ? other != node : !agrees && apart) continue;
            if (i == s->list[r].n || (agrees ? s->list[r].action[i].what != a->what : i != at)) return 0;
            s->member[n++] = other;
        }
    if (!meets) return n;
    const int other = node - rank + a->peer;
    s->member[n++] = other;
    return s->node[other].at == gx__simulate_at(s, node)->partner ? n : 0;
}

// When a node can begin what it does together with others. A unit's weights that are gathered before each use are
// gathered while the computation before runs; those that a step has changed are not there before it has ended.
static double gx__simulate_enters(gx__Sim *s, int node, const GxAction *a)
{
    const gx__SimNode *n = &s->node[node];
    if (!gx__simulate_is_started(s, a)) return n->now;
    if (a->what != GX_DO_GATHER) return fmax(n->now, n->sums);
    return fmax(s->list[node % s->pp].spec.sharded == GX_SHARDS_WEIGHTS ? n->computes : n->now, n->gathers);
}

// How much later than its own time the slowest copy of a group comes, on average.
static double gx__simulate_slowest(gx__Sim *s, int members, const GxAction *a)
{
    double variance = 0;
    if (s->jitter == 0 || !s->meets || (a->what != GX_DO_GATHER && a->what != GX_DO_SCATTER)) return 0;
    for (int k = 0; k < members; k++) {
        variance = fmax(variance, s->node[s->member[k]].variance);
        s->node[s->member[k]].variance = 0;
    }
    return s->most[a->axes & GX_AXIS_DP] * sqrt(variance);
}

static void gx__simulate_leave(gx__Sim *s, int node, const GxAction *a, double begin, double end)
{
    gx__SimNode *n = &s->node[node];
    const gx__SimAction *row = gx__simulate_at(s, node);
    const int64_t number = (int64_t)(node / s->pp) * s->first[s->pp] + (row - s->action);
    s->begin[number] = begin, s->end[number] = end;
    if (!gx__simulate_is_started(s, a)) gx__simulate_wait(n, end, row->seconds, row->spent);
    else if (a->what == GX_DO_GATHER) n->gathers = end, n->gather_seconds = row->seconds;
    else n->sums = end, n->sum_spent = row->spent;
    n->at++;
}

// What several ranks do together begins when the last of them is there. Returns 0 if not all are.
static int gx__simulate_meet(gx__Sim *s, int node)
{
    const GxAction a = s->list[node % s->pp].action[s->node[node].at];
    const int members = gx__simulate_members(s, node);
    double begin = 0;
    if (!members) return 0;
    for (int k = 0; k < members; k++) {
        if (gx__simulate_at(s, s->member[k])->settles) gx__simulate_settle(&s->node[s->member[k]]);
        begin = fmax(begin, gx__simulate_enters(s, s->member[k], &a));
    }
    begin += gx__simulate_slowest(s, members, &a);
    const double end = begin + gx__simulate_at(s, node)->seconds;
    for (int k = 0; k < members; k++) gx__simulate_leave(s, s->member[k], &a, begin, end);
    return 1;
}

// Runs a node until it has to wait. Returns 0 if nothing has changed.
static int gx__simulate_go(gx__Sim *s, int node)
{
    gx__SimNode *n = &s->node[node];
    int has_changed = 0, goes_on = 1;
    for (const gx__SimAction *a; goes_on && (a = gx__simulate_at(s, node)) != NULL; has_changed |= goes_on) {
        const int64_t number = (int64_t)(node / s->pp) * s->first[s->pp] + (a - s->action);
        if (a->is_met && !(s->p->overlaps && a->spent == GX_SPENT_MESSAGES)) {
            goes_on = gx__simulate_meet(s, node);
            continue;
        }
        if (a->settles) gx__simulate_settle(n);
        if (a->is_met) goes_on = gx__simulate_pass(s, node, a, &s->begin[number], &s->end[number]);
        else if (a->is_nothing) s->begin[number] = s->end[number] = n->now;
        else gx__simulate_compute(s, node, a, &s->begin[number], &s->end[number]);
        n->at += goes_on;
    }
    return has_changed;
}

// Sets s->window.
static GxStatus gx__simulate_run(gx__Sim *s, GxError *err)
{
    const int nodes = s->classes * s->pp;
    int goes_on = 1;
    memset(s->node, 0, (size_t)nodes * sizeof *s->node);
    s->window = 0;
    while (goes_on) {
        goes_on = 0;
        for (int k = 0; k < nodes; k++) goes_on |= gx__simulate_go(s, k);
    }
    for (int k = 0; k < nodes; k++) {
        gx__SimNode *n = &s->node[k];
        char name[48];
        if (n->at < s->list[k % s->pp].n)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d of the pipeline waits at action %d (%s) for others forever",
                           k % s->pp, n->at, gx_action_name(&s->list[k % s->pp].action[n->at], name));
        gx__simulate_wait(n, n->gathers, n->gathers, GX_SPENT_GATHERS);
        gx__simulate_settle(n);
        s->window = fmax(s->window, n->now);
    }
    for (int k = 0; k < nodes; k++) s->node[k].spent[GX_SPENT_BUBBLE] += s->window - s->node[k].now;
    return GX_OK;
}

// ---- classes of copies ---------------------------------------------------------------------------------------------

static double gx__simulate_factor(const double *of, int rank) { return of ? of[rank] : 1; }

// All copies are alike.
static void gx__simulate_one_class(gx__Sim *s)
{
    s->classes = 1, s->has[0] = GX_AXIS_DP;
    for (int r = 0; r < s->pp; r++) s->slowness[r] = gx__simulate_factor(s->p->slowness, r);
}

// One copy has another slowness, slow[ranks of the pipeline] times that of the others. Its class is the first one, and
// the last class is that of most copies.
static void gx__simulate_slow_class(gx__Sim *s, const double *slow)
{
    gx__simulate_one_class(s);
    for (int apart = 1; apart < GX__SIMULATE_CLASSES; apart++) {
        const int axes = (apart & 1 ? GX_AXIS_DP_SHARD : 0) | (apart & 2 ? GX_AXIS_DP_REPLICATE : 0);
        if ((apart & 1 && s->shards == 1) || (apart & 2 && s->replicas == 1)) continue;
        s->has[s->classes++] = GX_AXIS_DP & ~axes;
    }
    for (int k = 0; k < s->classes * s->pp; k++)
        s->slowness[k] = gx__simulate_factor(s->p->slowness, k % s->pp) * (k < s->pp ? slow[k] : 1);
}

// ---- results -------------------------------------------------------------------------------------------------------

static void gx__simulate_memory(const gx__Sim *s, int rank, GxSimulatedStage *to)
{
    const GxStepsSpec *p = &s->list[rank].spec;
    const double part = 1.0 / s->shards;
    for (int u = 0; u < p->units; u++) {
        const GxSimulatedUnit *unit = &s->p->unit[gx__simulate_kind(p, u)];
        if (!gx_steps_is_mine(p, u)) continue;
        to->weights += unit->weight_bytes * (p->sharded >= GX_SHARDS_WEIGHTS ? part : 1);
        if (!gx_steps_is_trained(p, u) || p->kind != GX_STEPS_TRAIN) continue;
        to->grads += unit->grad_bytes * (p->sharded >= GX_SHARDS_GRADS ? part : 1);
        to->moments += unit->moment_bytes * (p->sharded >= GX_SHARDS_OPTIMIZER ? part : 1);
    }
    to->rows = (double)s->list[rank].bytes;
}

static GxStatus gx__simulate_place(gx__Sim *s, GxError *err)
{
    const int units = s->p->steps.units;
    int64_t *bytes = (int64_t *)malloc(4 * (size_t)units * sizeof *bytes); // x, slot, weights, grads
    GxStatus status = bytes ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d units", units);
    for (int u = 0; u < units && status == GX_OK; u++) {
        const GxSimulatedUnit *unit = &s->p->unit[gx__simulate_kind(&s->p->steps, u)];
        const double of[4] = {unit->x, unit->slot, unit->weight_bytes, unit->grad_bytes};
        for (int k = 0; k < 4; k++) bytes[k * units + u] = (int64_t)ceil(of[k]);
    }
    const GxStepsBytes b = {bytes, NULL, bytes + units, bytes + 2 * units, bytes + 3 * units};
    for (int r = 0; r < s->pp && status == GX_OK; r++) status = gx_steps_place(&s->list[r], &b, err);
    free(bytes);
    return status;
}

static GxStatus gx__simulate_window(gx__Sim *s, GxSimulation *out, GxError *err)
{
    const int ordinary = s->classes - 1;
    GX_TRY(gx__simulate_run(s, err));
    out->window = s->window;
    const size_t all = (size_t)s->first[s->pp];
    memcpy(out->begin, s->begin + (size_t)ordinary * all, all * sizeof *out->begin);
    memcpy(out->end, s->end + (size_t)ordinary * all, all * sizeof *out->end);
    for (int r = 0; r < s->pp; r++) {
        memcpy(out->stage[r].spent, s->node[ordinary * s->pp + r].spent, sizeof out->stage[r].spent);
        gx__simulate_memory(s, r, &out->stage[r]);
    }
    return GX_OK;
}

// One rank after another is slow, and at last all of a copy.
static GxStatus gx__simulate_stragglers(gx__Sim *s, GxSimulation *out, GxError *err)
{
    double slow[GX_MAX_PARTS];
    const double factor = s->p->straggler > 0 ? s->p->straggler : 1.3;
    for (int r = 0; r <= s->pp; r++) {
        for (int k = 0; k < s->pp; k++)
            slow[k] = gx__simulate_factor(s->p->slow_copy, k) * (r == k || r == s->pp ? factor : 1);
        gx__simulate_slow_class(s, slow);
        GX_TRY(gx__simulate_run(s, err));
        *(r < s->pp ? &out->stage[r].if_slow : &out->if_copy_slow) = out->window > 0 ? s->window / out->window - 1 : 0;
    }
    return GX_OK;
}

// Windows of one copy with random times have a mean and a deviation: of n copies that wait for each other at the end,
// the slowest takes the mean and gx_expected_most(n) deviations. If copies meet at every gather, they wait there for
// the slowest, in each of these windows.
static GxStatus gx__simulate_jitter(gx__Sim *s, GxSimulation *out, GxError *err)
{
    double sum = 0, squares = 0;
    gx__simulate_one_class(s);
    GX_TRY(gx__simulate_run(s, err));
    const double even = s->window;
    s->jitter = s->p->jitter;
    for (int k = 0; k < GX__SIMULATE_DRAWS && s->jitter > 0; k++) {
        s->draw = (uint32_t)k;
        GX_TRY(gx__simulate_run(s, err));
        sum += s->window - even, squares += (s->window - even) * (s->window - even);
    }
    const double mean = sum / GX__SIMULATE_DRAWS, variance = fmax(0, squares - sum * mean) / (GX__SIMULATE_DRAWS - 1);
    s->jitter = 0;
    if (even > 0) out->jitter = (mean + (s->meets ? 0 : s->most[GX_AXIS_DP]) * sqrt(variance)) / even;
    out->rank_jitter = s->p->rank_jitter * gx_expected_most((double)out->ranks);
    return GX_OK;
}

static void gx__simulate_expect(const gx__Sim *s, GxSimulation *out)
{
    out->failures = gx_failure_cost(&s->p->failures, (double)out->ranks);
    const double trains = out->failures.trains;
    out->expected = trains > 0 ? out->window * (1 + out->jitter) * (1 + out->rank_jitter) / trains : HUGE_VAL;
    const double tokens = s->p->tokens * s->p->steps.micro_batches * out->copies;
    if (out->window > 0) out->tokens_per_second[0] = tokens / out->window;
    if (out->expected > 0) out->tokens_per_second[1] = tokens / out->expected;
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__simulate_check_numbers(const char *of, const char *const *name, const double *value, int n,
                                           GxError *err)
{
    for (int i = 0; i < n; i++)
        if (!(value[i] >= 0 && value[i] <= 1e15))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "a simulation whose %s %s is %g; it must be 0 to 1e15", of, name[i],
                           value[i]);
    return GX_OK;
}

static GxStatus gx__simulate_check_costs(const GxSimulationSpec *p, GxError *err)
{
    static const char *const units[] = {"forward", "backward", "weights",      "recompute",  "step",
                                        "x",       "slot",     "weight_bytes", "grad_bytes", "moment_bytes"};
    static const char *const kinds[GX_SIMULATED_KINDS] = {"embedding's", "layer's", "head's"};
    static const char *const links[] = {"latency", "per_byte"};
    static const char *const all[] = {"tokens", "straggler", "jitter", "rank_jitter", "hours", "save", "restart"};
    enum { UNITS = sizeof units / sizeof *units, ALL = sizeof all / sizeof *all };
    typedef char HasAName[sizeof(GxSimulatedUnit) == UNITS * sizeof(double) ? 1 : -1];
    (void)sizeof(HasAName);
    for (int k = 0; k < GX_SIMULATED_KINDS; k++) {
        GX_TRY(gx__simulate_check_numbers(kinds[k], units, &p->unit[k].forward, UNITS, err));
        if (p->unit[k].weights > p->unit[k].backward)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "a simulation whose %s weights take %g s of a backward of %g s; they are a part of it",
                           kinds[k], p->unit[k].weights, p->unit[k].backward);
    }
    GX_TRY(gx__simulate_check_numbers("link within hosts'", links, &p->within.latency, 2, err));
    GX_TRY(gx__simulate_check_numbers("link between hosts'", links, &p->between.latency, 2, err));
    const double other[ALL] = {p->tokens,         p->straggler,     p->jitter,          p->rank_jitter,
                               p->failures.hours, p->failures.save, p->failures.restart};
    return gx__simulate_check_numbers("number", all, other, ALL, err);
}

static GxStatus gx__simulate_check(const GxSimulationSpec *p, GxError *err)
{
    static const char *const name[] = {"slowness", "slow_copy"};
    const int64_t r = gx_max(p->dp_replicate, 1), f = gx_max(p->dp_shard, 1), t = gx_max(p->tp, 1),
                  pp = gx_max(p->steps.ranks, 1), most = GX__SIMULATE_MOST;
    if (p->dp_replicate < 0 || p->dp_shard < 0 || p->tp < 0 || p->steps.ranks < 0 || p->ranks_per_host < 0 ||
        r > most || f > most || t > most || r * f > most || r * f * t > most || r * f * t * pp > most)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "a simulation of pp %d x dp_replicate %d x dp_shard %d x tp %d, %d ranks on a host; at most %ld "
                       "ranks",
                       p->steps.ranks, p->dp_replicate, p->dp_shard, p->tp, p->ranks_per_host, (long)most);
    if ((unsigned)p->steps.order >= GX_ORDERS || (int64_t)p->steps.units * p->steps.micro_batches > most)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "a simulation of order %d, %d units and %d micro-batches; orders are 0 to %d, and at most %ld "
                       "units of micro-batches",
                       p->steps.order, p->steps.units, p->steps.micro_batches, GX_ORDERS - 1, (long)most);
    if (pp > GX_MAX_PARTS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a simulation of a pipeline of %ld ranks; at most %d", (long)pp,
                       GX_MAX_PARTS);
    for (int k = 0; k < (int)pp; k++) {
        if (p->slowness) GX_TRY(gx__simulate_check_numbers("rank's", &name[0], &p->slowness[k], 1, err));
        if (p->slow_copy) GX_TRY(gx__simulate_check_numbers("rank's", &name[1], &p->slow_copy[k], 1, err));
    }
    return gx__simulate_check_costs(p, err);
}

// stage: room for 2 * pp + 1. As many layers in each stage, the first ones one more; the ends with the first and last.
static GxStatus gx__simulate_cut(const GxStepsSpec *p, int16_t *stage, GxError *err)
{
    const int stages = (int)gx_max(p->ranks, 1) * gx_order_info(p->order)->chunks, layers = p->units - 2;
    if (layers < stages && stages > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a simulation of %d layers in %d stages; each has at least one", layers,
                       stages);
    for (int s = 1; s < stages; s++) stage[s] = (int16_t)(1 + layers / stages * s + gx_min(s, layers % stages));
    stage[0] = 0, stage[stages] = (int16_t)p->units;
    return GX_OK;
}

static GxStatus gx__simulate_lists(gx__Sim *s, GxError *err)
{
    int16_t stage[2 * GX_MAX_PARTS + 1];
    GxStepsSpec p = s->p->steps;
    p.ranks = s->pp, p.count_axes = p.agree_axes = GX_AXIS_ALL;
    p.shard_axes = p.sharded ? GX_AXIS_DP_SHARD : 0;
    p.reduce_axes = s->replicas > 1 ? GX_AXIS_DP_REPLICATE : 0;
    if (!p.sharded && s->shards > 1) p.reduce_axes |= GX_AXIS_DP_SHARD;
    if (gx_order_info(p.order)->has_halves) p.defers_weights = 1;
    if (!p.stage) GX_TRY(gx__simulate_cut(&p, stage, err));
    if (!p.stage) p.stage = stage;
    for (p.rank = 0; p.rank < s->pp; p.rank++) GX_TRY(gx_steps_make(&s->list[p.rank], &p, err));
    for (int r = 0; r < s->pp; r++) s->first[r + 1] = s->first[r] + s->list[r].n;
    s->meets = p.sharded == GX_SHARDS_WEIGHTS || p.scatters_each;
    return GX_OK;
}

static void gx__simulate_mesh(gx__Sim *s, const GxSimulationSpec *p, GxSimulation *out)
{
    s->p = p, s->pp = (int)gx_max(p->steps.ranks, 1), s->tp = (int)gx_max(p->tp, 1);
    s->replicas = (int)gx_max(p->dp_replicate, 1), s->shards = (int)gx_max(p->dp_shard, 1);
    out->pp = s->pp, out->copies = s->replicas * s->shards, out->ranks = (int64_t)s->pp * out->copies * s->tp;
    s->host = (int)(p->ranks_per_host ? gx_min(p->ranks_per_host, out->ranks) : out->ranks);
    for (int axes = 0; axes <= GX_AXIS_DP; axes++) s->most[axes] = gx_expected_most(gx__simulate_group(s, axes));
}

// What the lists are as rows of the loop.
static GxStatus gx__simulate_actions(gx__Sim *s, GxError *err)
{
    const size_t cells = 2 * (size_t)s->p->steps.units * (size_t)s->p->steps.micro_batches;
    int *received = (int *)calloc(cells + (size_t)s->pp, sizeof *received);
    if (!received) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the messages of a simulation");
    for (int r = 0; r < s->pp; r++) {
        for (int i = 0; i < s->list[r].n; i++) s->action[s->first[r] + i].partner = -1;
        for (int i = 0; i < s->list[r].n; i++)
            gx__simulate_action(s, &s->list[r].spec, &s->list[r].action[i], &s->action[s->first[r] + i]);
        gx__simulate_needs(s, r, received);
    }
    for (int r = 0; r < s->pp; r++) {
        gx__simulate_pair(s, r, GX_DO_SEND, GX_DO_RECV, received + cells);
        gx__simulate_pair(s, r, GX_DO_TIE, GX_DO_TIE, received + cells);
    }
    free(received);
    return GX_OK;
}

// What the loop needs, in one block that the caller frees. NULL: no memory.
static void *gx__simulate_scratch(gx__Sim *s)
{
    const size_t all = (size_t)s->first[s->pp], nodes = GX__SIMULATE_CLASSES * (size_t)s->pp;
    char *memory = (char *)calloc(1, 2 * GX__SIMULATE_CLASSES * all * sizeof(double) + all * sizeof(gx__SimAction) +
                                         nodes * (sizeof(gx__SimNode) + sizeof(double) + sizeof(int)));
    if (!memory) return NULL;
    s->begin = (double *)memory, s->end = s->begin + GX__SIMULATE_CLASSES * all;
    s->node = (gx__SimNode *)(s->end + GX__SIMULATE_CLASSES * all);
    s->slowness = (double *)(s->node + nodes);
    s->action = (gx__SimAction *)(s->slowness + nodes);
    s->member = (int *)(s->action + all);
    return memory;
}

static GxStatus gx__simulate_all(gx__Sim *s, GxSimulation *out, GxError *err)
{
    GX_TRY(gx__simulate_actions(s, err));
    gx__simulate_one_class(s);
    if (s->p->slow_copy) gx__simulate_slow_class(s, s->p->slow_copy);
    GX_TRY(gx__simulate_window(s, out, err));
    if (!s->p->only_window) GX_TRY(gx__simulate_stragglers(s, out, err));
    if (!s->p->only_window) GX_TRY(gx__simulate_jitter(s, out, err));
    gx__simulate_expect(s, out);
    return GX_OK;
}

static GxStatus gx__simulate_opened(gx__Sim *s, GxSimulation *out, GxError *err)
{
    s->list = out->list, s->first = out->first;
    GX_TRY(gx__simulate_lists(s, err));
    GX_TRY(gx__simulate_place(s, err));
    const size_t all = (size_t)s->first[s->pp];
    out->begin = (double *)malloc(2 * all * sizeof *out->begin + 1);
    void *scratch = out->begin ? gx__simulate_scratch(s) : NULL;
    if (!scratch) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to simulate lists of %ld actions", (long)all);
    out->end = out->begin + all;
    const GxStatus status = gx__simulate_all(s, out, err);
    free(scratch);
    return status;
}

GxStatus gx_simulate(GxSimulation *out, const GxSimulationSpec *p, GxError *err)
{
    gx__Sim s = GX_ZERO;
    memset(out, 0, sizeof *out);
    GX_TRY(gx__simulate_check(p, err));
    gx__simulate_mesh(&s, p, out);
    const size_t pp = (size_t)s.pp;
    out->memory = calloc(1, pp * (sizeof *out->stage + sizeof *out->list) + (pp + 1) * sizeof *out->first);
    if (!out->memory) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a simulation of %d stages", s.pp);
    out->stage = (GxSimulatedStage *)out->memory;
    out->list = (GxSteps *)(out->stage + pp);
    out->first = (int *)(out->list + pp);
    return gx__simulate_opened(&s, out, err);
}

void gx_simulation_close(GxSimulation *s)
{
    for (int r = 0; s->list && r < s->pp; r++) gx_steps_close(&s->list[r]);
    free(s->begin);
    free(s->memory);
    memset(s, 0, sizeof *s);
}
#endif
