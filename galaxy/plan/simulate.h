// simulate.h: predicts a window of a training on a mesh of up to millions of ranks, from what units cost: seconds of
// their forwards and backwards, bytes of their rows and weights, two kinds of links. It needs neither a model nor
// files.
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
// What each action costs: simulate_costs.h. Communication blocks, as it does when lists run with --overlap false. With
// `overlaps` it is an estimate of what the same lists take beside communication: messages are under way
// while both ranks compute, one after another in each direction; a unit is gathered while the unit before it computes
// (its weights need the memory of one more unit); sums are started, and waited for before AGREE. Gathers, sums and
// messages are not taken to slow each other, or the computations, down.
//
// In the lists of a pipeline whose gradients are summed as soon as they are complete (all but ZeRO 1), a stage's sum is
// before its last SEND: where communication blocks, the sums of all stages follow one another.
//
// Not simulated: context parallelism; collectives inside of units, which belong to the units' seconds; copies that have
// other stages or other numbers of micro-batches; switches that many hosts share.
//
// Memory: about 150 bytes per action of the pipeline's lists, until gx_simulation_close.
#ifndef GX_SIMULATE_H
#define GX_SIMULATE_H
#include "simulate_costs.h"
GX_BEGIN

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
    double window;           // seconds, if all ranks always take the same time
    GxSimulatedStage *stage; // [pp]
    double if_copy_slow;     // as if_slow: if all ranks of one copy were slower
    // Estimates: how much longer the window is expected to be, relative, for each of the two jitters
    double jitter, rank_jitter;
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

// Close s, also after an error. Refused: what gx_steps_make refuses, sizes that are not possible, seconds and bytes
// that are negative or not finite.
GxStatus gx_simulate(GxSimulation *s, const GxSimulationSpec *p, GxError *err);
void gx_simulation_close(GxSimulation *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SIMULATE_IMPLEMENTED)
#define GX_SIMULATE_IMPLEMENTED
#include "../base/partition.h"
#include "../parallel/steps_place.h"
#include "simulate_loop.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GX__SIMULATE_DRAWS = 24, GX__SIMULATE_MOST = 1 << 24 }; // windows with jitter; ranks

// ---- classes of copies ---------------------------------------------------------------------------------------------

static double gx__simulate_factor(const double *of, int rank) { return of ? of[rank] : 1; }

// All copies are alike.
static void gx__simulate_one_class(gx__Sim *s)
{
    s->classes = 1, s->has[0] = GX_AXIS_DP;
    for (int r = 0; r < s->pp; r++) s->slowness[r] = gx__simulate_factor(s->mesh.p->slowness, r);
}

// One copy has another slowness, slow[ranks of the pipeline] times that of the others. Its class is the first one, and
// the last class is that of most copies.
static void gx__simulate_slow_class(gx__Sim *s, const double *slow)
{
    gx__simulate_one_class(s);
    for (int apart = 1; apart < GX__SIMULATE_CLASSES; apart++) {
        const int axes = (apart & 1 ? GX_AXIS_DP_SHARD : 0) | (apart & 2 ? GX_AXIS_DP_REPLICATE : 0);
        if ((apart & 1 && s->mesh.shards == 1) || (apart & 2 && s->mesh.replicas == 1)) continue;
        s->has[s->classes++] = GX_AXIS_DP & ~axes;
    }
    for (int k = 0; k < s->classes * s->pp; k++)
        s->slowness[k] = gx__simulate_factor(s->mesh.p->slowness, k % s->pp) * (k < s->pp ? slow[k] : 1);
}

// ---- results -------------------------------------------------------------------------------------------------------

static void gx__simulate_memory(const gx__Sim *s, int rank, GxSimulatedStage *to)
{
    const GxStepsSpec *p = &s->list[rank].spec;
    const double part = 1.0 / s->mesh.shards;
    for (int u = 0; u < p->units; u++) {
        const GxSimulatedUnit *unit = &s->mesh.p->unit[gx__simulate_kind(p, u)];
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
    const int units = s->mesh.p->steps.units;
    int64_t *bytes = (int64_t *)malloc(4 * (size_t)units * sizeof *bytes); // x, slot, weights, grads
    GxStatus status = bytes ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d units", units);
    for (int u = 0; u < units && status == GX_OK; u++) {
        const GxSimulatedUnit *unit = &s->mesh.p->unit[gx__simulate_kind(&s->mesh.p->steps, u)];
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
    const double factor = s->mesh.p->straggler > 0 ? s->mesh.p->straggler : 1.3;
    for (int r = 0; r <= s->pp; r++) {
        for (int k = 0; k < s->pp; k++)
            slow[k] = gx__simulate_factor(s->mesh.p->slow_copy, k) * (r == k || r == s->pp ? factor : 1);
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
    s->jitter = s->mesh.p->jitter;
    for (int k = 0; k < GX__SIMULATE_DRAWS && s->jitter > 0; k++) {
        s->draw = (uint32_t)k;
        GX_TRY(gx__simulate_run(s, err));
        sum += s->window - even, squares += (s->window - even) * (s->window - even);
    }
    const double mean = sum / GX__SIMULATE_DRAWS, variance = fmax(0, squares - sum * mean) / (GX__SIMULATE_DRAWS - 1);
    s->jitter = 0;
    if (even > 0) out->jitter = (mean + (s->meets ? 0 : s->most[GX_AXIS_DP]) * sqrt(variance)) / even;
    out->rank_jitter = s->mesh.p->rank_jitter * gx_expected_most((double)out->ranks);
    return GX_OK;
}

static void gx__simulate_expect(const gx__Sim *s, GxSimulation *out)
{
    out->failures = gx_failure_cost(&s->mesh.p->failures, (double)out->ranks);
    const double trains = out->failures.trains;
    out->expected = trains > 0 ? out->window * (1 + out->jitter) * (1 + out->rank_jitter) / trains : HUGE_VAL;
    const double tokens = s->mesh.p->tokens * s->mesh.p->steps.micro_batches * out->copies;
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
    GxStepsSpec p = s->mesh.p->steps;
    p.ranks = s->pp, p.count_axes = p.agree_axes = GX_AXIS_ALL;
    p.shard_axes = p.sharded ? GX_AXIS_DP_SHARD : 0;
    p.reduce_axes = s->mesh.replicas > 1 ? GX_AXIS_DP_REPLICATE : 0;
    if (!p.sharded && s->mesh.shards > 1) p.reduce_axes |= GX_AXIS_DP_SHARD;
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
    s->mesh.p = p, s->mesh.pp = s->pp = (int)gx_max(p->steps.ranks, 1), s->mesh.tp = (int)gx_max(p->tp, 1);
    s->mesh.replicas = (int)gx_max(p->dp_replicate, 1), s->mesh.shards = (int)gx_max(p->dp_shard, 1);
    out->pp = s->pp, out->copies = s->mesh.replicas * s->mesh.shards,
    out->ranks = (int64_t)s->pp * out->copies * s->mesh.tp;
    s->mesh.host = (int)(p->ranks_per_host ? gx_min(p->ranks_per_host, out->ranks) : out->ranks);
    for (int axes = 0; axes <= GX_AXIS_DP; axes++) s->most[axes] = gx_expected_most(gx__simulate_group(&s->mesh, axes));
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
    if (s->mesh.p->slow_copy) gx__simulate_slow_class(s, s->mesh.p->slow_copy);
    GX_TRY(gx__simulate_window(s, out, err));
    if (!s->mesh.p->only_window) GX_TRY(gx__simulate_stragglers(s, out, err));
    if (!s->mesh.p->only_window) GX_TRY(gx__simulate_jitter(s, out, err));
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
