// plan/assignment_cost.h: what a window takes under an assignment, of a model and machines that this header knows
// nothing of: a callback says what a stage costs.
//
//     window = max over copies of (their pipeline + their sums of gradients) + step
//
// - The pipeline of a copy is that of 1F1B, whose times come from the callback. A message between stages blocks both
//   of them while its bytes move. Where a copy's first stage is `warm`, messages move beside the computation, one
//   after the other on a hop. The last micro-batch may have fewer samples than the others: what it takes lies on the
//   line between micro-batches of one sample and whole ones.
// - Gradients are summed over R copies in a ring: 2(R-1)/R of a rank's bytes, over the slowest of its links to ranks of
//   other copies that have some of its layers.
// - Of a message between groups, every receiver has its own sender, the nearest one; where there are fewer senders than
//   receivers, they send to one after the other.
//
// What was asked of the callback once is kept in a GxStageCosts, and not asked again.
//
//     GxStageCosts c;
//     GX_TRY(gx_stage_costs_open(&c, &problem, err));
//     GX_TRY(gx_assignment_cost(&cost, &assignment, &c, err));      // cost.seconds
//     gx_stage_costs_close(&c);
//
// Sources: Narayanan et al. 2021 (arXiv:2104.04473) for 1F1B; Patarasuk & Yuan 2009 for the bytes of a ring.
#ifndef GX_ASSIGNMENT_COST_H
#define GX_ASSIGNMENT_COST_H
#include "assignment.h"
GX_BEGIN

// A stage whose cost is asked for.
typedef struct {
    const int16_t *rank; // [n]: ascending
    int n;
    // [groups][n]: the ranks of all groups, this one's among them, if all must have the same lists (the i-th rank of
    // each has the same part). NULL: this group has its own.
    const int16_t *alike;
    int groups;
    int layers, has_embed, has_head;
    int alive;           // the most micro-batches whose forward is done and whose backward is not
    int64_t micro_batch; // samples
} GxStageRequest;

typedef struct {
    // Seconds of a micro-batch through the whole stage: its ends, and the collectives inside the group, included.
    // INFINITY: these ranks cannot share a layer.
    double forward, backward;
    double forward_layer, backward_layer; // one layer's part of these
    double step;                          // seconds per window beside them: the group's own sums, the optimizer
    double grad_bytes;                    // the most that one rank has; these are summed over copies
    int64_t room;                         // bytes that the rank with the least has left; negative: that it lacks
    int tightest;                         // which rank of the request that is: 0 to n - 1
} GxStageCost;

enum {                    // kinds of assignments
    GX_PLAN_REGULAR = 1,  // copies of equally many stages, all stages of equally many ranks
    GX_PLAN_PIPELINE = 2, // one copy, whose stages have any number of ranks
    GX_PLAN_ANY = 4       // copies of any shape
};

typedef struct {
    int ranks, layers;
    int64_t samples;    // of a window
    int64_t micro_most; // samples of the largest micro-batch
    int kinds;          // GX_PLAN_REGULAR | GX_PLAN_PIPELINE, ...
    // 1: all groups of a regular assignment have the same lists, and its copies the same layers. One copy is free of
    // this where GX_PLAN_PIPELINE is allowed.
    int same_lists;
    int most_copies, most_group; // copies; ranks of a stage. 0: as many as there are
    // The stages of a copy may be so many forwards ahead of 1F1B for each stage behind them; their messages then move
    // beside the computation. 0: they never are.
    int most_warm;
    int first_rank_stays;                     // 1: rank 0 is not left out, since it has the files
    int64_t budget;                           // groupings that the search looks at; 0: some thousands
    const double *latency, *seconds_per_byte; // [ranks][ranks]: from, to
    double x_bytes;                           // of a sample, in a message between stages; its gradient has as many
    // [ranks]: ranks with the same number are the same to `stage`; whether their links are, too, is looked at. NULL:
    // all are different.
    const int *klass;
    // What a stage costs. It is asked once for each request, those that differ by ranks of a class alone being the
    // same; some ten thousand times for 16 ranks.
    GxStatus (*stage)(void *user, GxStageCost *cost, const GxStageRequest *request, GxError *err);
    // Each rank's part of a stage, in the request's order (but for part[i].stage); asked for the assignment that is
    // chosen. NULL: all parts stay 0.
    GxStatus (*parts)(void *user, GxAssignmentPlace *part, const GxStageRequest *request, GxError *err);
    void *user;
} GxPlanProblem;

typedef struct {
    // Of the window; INFINITY: a group cannot share a layer. It is computing, bubble, messages, sums and step.
    double seconds;
    int slowest; // the copy that ends last, whose
    double sums; // over copies, are these
    double step;
    // From gx_assignment_losses alone:
    double computing;   // of the slowest stage of that copy
    double bubble;      // in which that stage would wait for others if messages took no time
    double messages;    // in which it waits, or sends, since they do
    double rounding;    // a part of all these: what it would be shorter if copies could end together
    int64_t lacks;      // bytes: the sum over stages of what a rank of it lacks at most; 0: it fits
    int64_t lacks_most; // what the rank `tightest` lacks
    int tightest;       // the rank with the least room
} GxAssignmentCost;

// What is known of stages; here and below, fields are the room's own.
typedef struct {
    const GxPlanProblem *problem;
    int same[GX_ASSIGNED_RANKS];     // the lowest rank that is the same in all respects
    double speed[GX_ASSIGNED_RANKS]; // of a rank alone: layers per second, of a micro-batch of one sample
    int64_t room[GX_ASSIGNED_RANKS]; // bytes that it has left then
    struct GxStageCostEntry *entry;
    int64_t entries, most, asked; // asked: calls of the callback
    struct GxAssignmentTimes *times;
    double *ready; // when the inputs of a pipeline's micro-batches come
} GxStageCosts;

// Checks the problem, and asks what each rank costs alone. Close it after an error, too.
GxStatus gx_stage_costs_open(GxStageCosts *c, const GxPlanProblem *p, GxError *err);
void gx_stage_costs_close(GxStageCosts *c);
GxStatus gx_stage_costs_get(GxStageCosts *c, GxStageCost *cost, const GxStageRequest *r, GxError *err);

// Who is where, by stage and by copy.
typedef struct {
    int16_t rank[GX_ASSIGNED_RANKS];      // stage by stage, ascending
    int16_t begin[GX_ASSIGNED_RANKS + 1]; // [stages + 1]: where a stage's ranks begin
    int16_t first[GX_ASSIGNED_RANKS + 1]; // [copies + 1]: a copy's first stage
} GxMembers;
void gx_assignment_members(GxMembers *m, const GxAssignment *a);

// What is asked about a stage of an assignment.
GxStageRequest gx_stage_request(const GxPlanProblem *p, const GxAssignment *a, const GxMembers *m, int stage);

enum { GX_COPY_TIMES_KNOWN = 32 };

// The times of a copy's stages.
typedef struct {
    int stages, warm; // warm: forwards that the last but one stage is ahead; the stage before it twice as many
    int64_t micro_batch;
    double one;                        // what a micro-batch of one sample takes of a whole one, in the slowest stage
    double *forward, *backward;        // [stages]: seconds
    double *x, *dx;                    // [stages]: of the message to the next one, and of its gradient back
    int exact;                         // micro-batches beyond these follow at a steady pace
    double known[GX_COPY_TIMES_KNOWN]; // seconds of known_of micro-batches
    int known_of[GX_COPY_TIMES_KNOWN]; // 0: none
} GxCopyTimes;

typedef struct GxAssignmentTimes {
    GxCopyTimes copy[GX_ASSIGNED_RANKS];
    GxStageCost *stage; // [ranks]: of all copies
    double *memory;
} GxAssignmentTimes;
GxStatus gx_assignment_times_open(GxAssignmentTimes *t, const GxPlanProblem *p, GxError *err);
void gx_assignment_times_close(GxAssignmentTimes *t);

// Fills in a copy's times, as `a` has it. Needs no other copy's layers.
GxStatus gx_copy_times(GxAssignmentTimes *t, const GxAssignment *a, const GxMembers *m, int copy, GxStageCosts *c,
                       GxError *err);
// To be called after a change: what is known is forgotten. exact: micro-batches that are looked at one by one; beyond
// these the pace of the later half of them goes on, which is 0.1% off in the mean of pipelines with 8p + 32 of them. 0:
// some thousands, for all stages together.
void gx_copy_times_changed(GxCopyTimes *t, int exact);
// Seconds of a copy's samples.
double gx_copy_seconds(GxStageCosts *c, GxCopyTimes *t, int64_t samples);
// Seconds of the sums of a copy's gradients over all copies.
double gx_copy_sums(const GxAssignmentTimes *t, const GxAssignment *a, const GxMembers *m, int copy,
                    const GxPlanProblem *p);
// Bytes that a copy's stages lack; 0: it fits.
int64_t gx_copy_lacks(const GxAssignmentTimes *t, const GxMembers *m, int copy);

// Of an assignment that gx_assignment_check accepts. Losses: the same, and where the time goes.
GxStatus gx_assignment_cost(GxAssignmentCost *cost, const GxAssignment *a, GxStageCosts *c, GxError *err);
GxStatus gx_assignment_losses(GxAssignmentCost *cost, const GxAssignment *a, GxStageCosts *c, GxError *err);
// Assignments are compared by this: seconds, and above all of these, by what they lack, those that do not fit.
double gx_assignment_value(const GxAssignmentCost *cost);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ASSIGNMENT_COST_IMPLEMENTED)
#define GX_ASSIGNMENT_COST_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- what the callback said ----------------------------------------------------------------------------------------

struct GxStageCostEntry {
    uint64_t key; // 0: empty
    GxStageCost cost;
};

// Of everything that a request's cost depends on.
static uint64_t gx__assignment_cost_key(const GxStageCosts *c, const GxStageRequest *r)
{
    const int64_t head[] = {r->n, r->groups, r->layers, r->has_embed, r->has_head, r->alive, r->micro_batch};
    uint64_t key = gx_hash(GX_HASH_START, head, sizeof head);
    for (int i = 0; i < r->n; i++) key = gx_hash(key, &c->same[r->rank[i]], sizeof c->same[0]);
    for (int i = 0; r->alike && i < r->groups * r->n; i++) key = gx_hash(key, &c->same[r->alike[i]], sizeof c->same[0]);
    return key ? key : 1;
}

static struct GxStageCostEntry *gx__assignment_cost_find(const GxStageCosts *c, uint64_t key)
{
    int64_t i = (int64_t)(key % (uint64_t)c->most);
    while (c->entry[i].key && c->entry[i].key != key) i = i + 1 == c->most ? 0 : i + 1;
    return &c->entry[i];
}

static GxStatus gx__assignment_cost_grow(GxStageCosts *c, GxError *err)
{
    if (c->entry && c->entries < c->most / 2) return GX_OK;
    struct GxStageCostEntry *old = c->entry;
    const int64_t n = c->most, most = n ? 2 * n : 1024;
    struct GxStageCostEntry *larger = (struct GxStageCostEntry *)calloc((size_t)most, sizeof *larger);
    if (!larger) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the costs of %ld stages", (long)most);
    c->entry = larger, c->most = most;
    for (int64_t i = 0; i < n; i++)
        if (old[i].key) *gx__assignment_cost_find(c, old[i].key) = old[i];
    free(old);
    return GX_OK;
}

GxStatus gx_stage_costs_get(GxStageCosts *c, GxStageCost *cost, const GxStageRequest *r, GxError *err)
{
    const uint64_t key = gx__assignment_cost_key(c, r);
    GX_TRY(gx__assignment_cost_grow(c, err));
    struct GxStageCostEntry *e = gx__assignment_cost_find(c, key);
    if (!e->key) {
        memset(cost, 0, sizeof *cost);
        GX_TRY(c->problem->stage(c->problem->user, cost, r, err));
        c->asked++;
        if (!(cost->forward_layer >= 0 && cost->backward_layer >= 0 &&
              cost->forward >= cost->forward_layer * r->layers * (1 - 1e-9) &&
              cost->backward >= cost->backward_layer * r->layers * (1 - 1e-9) && cost->step >= 0 &&
              cost->grad_bytes >= 0 && cost->tightest >= 0 && cost->tightest < r->n))
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "the cost of a stage of %d layers on rank %d and %d more is %g and %g s, of a layer %g and %g s, "
                "step %g s, %g bytes, its tightest rank number %d; a stage takes no less than its layers, and "
                "nothing is below 0",
                r->layers, r->rank[0], r->n - 1, cost->forward, cost->backward, cost->forward_layer,
                cost->backward_layer, cost->step, cost->grad_bytes, cost->tightest);
        e->key = key, e->cost = *cost, c->entries++;
    }
    *cost = e->cost;
    return GX_OK;
}

// Whether nobody would notice if two ranks of a class were exchanged.
static int gx__assignment_cost_is_same(const GxPlanProblem *p, int a, int b)
{
    const double *const of[] = {p->latency, p->seconds_per_byte};
    if (!p->klass || p->klass[a] != p->klass[b]) return 0;
    for (int k = 0; k < 2; k++) {
        if (of[k][a * p->ranks + b] != of[k][b * p->ranks + a]) return 0;
        for (int x = 0; x < p->ranks; x++)
            if (x != a && x != b &&
                (of[k][a * p->ranks + x] != of[k][b * p->ranks + x] ||
                 of[k][x * p->ranks + a] != of[k][x * p->ranks + b]))
                return 0;
    }
    return 1;
}

enum { GX__ASSIGNMENT_COST_WARM = 100 }; // the most: 255 times that is an int16_t

static GxStatus gx__assignment_cost_check(const GxPlanProblem *p, GxError *err)
{
    if (p->ranks < 1 || p->ranks > GX_ASSIGNED_RANKS || p->layers < 1 || p->layers > INT16_MAX)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a plan for %d ranks and %d layers; 1 to %d ranks, 1 to %d layers",
                       p->ranks, p->layers, GX_ASSIGNED_RANKS, INT16_MAX);
    if (p->samples < 1 || p->micro_most < 1 || p->most_copies < 0 || p->most_group < 0 || p->most_warm < 0 ||
        p->most_warm > GX__ASSIGNMENT_COST_WARM)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "a plan for %ld samples, micro-batches of at most %ld, at most %d copies, %d ranks in a group, "
                       "warm %d; at least 1 of the first two, 0 of the others, warm at most %d",
                       (long)p->samples, (long)p->micro_most, p->most_copies, p->most_group, p->most_warm,
                       GX__ASSIGNMENT_COST_WARM);
    if (!p->stage || !p->latency || !p->seconds_per_byte || !p->kinds)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "a plan without what stages cost, without links, or without a kind of assignments");
    for (int i = 0; i < p->ranks; i++)
        for (int j = 0; j < p->ranks; j++)
            if (i != j && !(p->latency[i * p->ranks + j] >= 0 && p->seconds_per_byte[i * p->ranks + j] >= 0))
                return GX_FAIL(err, GX_ERR_ARGUMENT,
                               "the link from rank %d to rank %d takes %g s and %g s a byte; neither is below 0", i, j,
                               p->latency[i * p->ranks + j], p->seconds_per_byte[i * p->ranks + j]);
    return GX_OK;
}

enum {
    GX__ASSIGNMENT_COST_WORK = 8192, // stages times micro-batches whose pipeline is looked at one by one
    GX__ASSIGNMENT_COST_PER_RANK = 4 // numbers of GxCopyTimes
};
// Micro-batches after which the others are taken to follow each other at a steady pace.
static int gx__assignment_cost_exact(int stages)
{
    return (int)gx_max(GX__ASSIGNMENT_COST_WORK / stages, 8 * stages + 32);
}

GxStatus gx_stage_costs_open(GxStageCosts *c, const GxPlanProblem *p, GxError *err)
{
    memset(c, 0, sizeof *c);
    GX_TRY(gx__assignment_cost_check(p, err));
    c->problem = p;
    const int stages = (int)gx_min(p->ranks, p->layers);
    const int64_t most = gx_max(GX__ASSIGNMENT_COST_WORK, (int64_t)stages * gx__assignment_cost_exact(stages));
    c->ready = (double *)malloc((size_t)(2 * most) * sizeof(double));
    c->times = (GxAssignmentTimes *)calloc(1, sizeof *c->times);
    if (!c->ready || !c->times) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a plan of %d stages", stages);
    GX_TRY(gx_assignment_times_open(c->times, p, err));
    for (int r = 0; r < p->ranks; r++) {
        c->same[r] = 0;
        while (c->same[r] < r && (c->same[c->same[r]] != c->same[r] || !gx__assignment_cost_is_same(p, c->same[r], r)))
            c->same[r]++;
    }
    for (int r = 0; r < p->ranks; r++) {
        const int16_t rank = (int16_t)r;
        GxStageRequest alone = GX_ZERO;
        GxStageCost cost = GX_ZERO;
        alone.rank = &rank, alone.n = 1, alone.layers = alone.alive = 1, alone.micro_batch = 1;
        GX_TRY(gx_stage_costs_get(c, &cost, &alone, err));
        const double seconds = cost.forward_layer + cost.backward_layer;
        c->speed[r] = seconds > 0 ? 1 / seconds : 1e30, c->room[r] = cost.room;
    }
    return GX_OK;
}

void gx_stage_costs_close(GxStageCosts *c)
{
    if (c->times) gx_assignment_times_close(c->times);
    free(c->times);
    free(c->ready);
    free(c->entry);
    memset(c, 0, sizeof *c);
}

// ---- a copy's pipeline ---------------------------------------------------------------------------------------------

typedef struct {                  // a stage, while the pipeline is looked at
    int forwards, backwards;      // done
    double free, x_free, dx_free; // when it, and the links behind it and before it, have nothing to do
} gx__AssignmentStage;

// Does all that stage s can do now. `ready` has when the input of each micro-batch has come: x, then dx.
static int gx__assignment_cost_advance(const GxCopyTimes *t, int m, gx__AssignmentStage *of, int s, double *ready)
{
    const int p = t->stages, is_beside = t->warm > 0, ahead = (p - 1 - s) * (1 + t->warm);
    double *x = ready + s * m, *dx = ready + (p + s) * m;
    gx__AssignmentStage *me = &of[s];
    int did = 0;
    for (;; did = 1) {
        const int is_forward = me->forwards < m && me->forwards - me->backwards <= ahead;
        const int i = is_forward ? me->forwards : me->backwards, to = is_forward ? s + 1 : s - 1;
        const int from = is_forward ? s - 1 : s + 1;
        if (i == m) return did;
        if (is_forward && s > 0 && of[s - 1].forwards <= i) return did;
        if (!is_forward && s < p - 1 && of[s + 1].backwards <= i) return did;
        const double work = is_forward ? t->forward[s] : t->backward[s];
        const double in = from < 0 || from == p ? 0 : is_forward ? t->x[from] : t->dx[s];
        const double out = to < 0 || to == p ? 0 : is_forward ? t->x[s] : t->dx[to];
        const double came = from < 0 || from == p ? 0 : is_forward ? x[i] : dx[i];
        const double end = fmax(me->free, came) + (is_beside ? 0 : in) + work;
        me->free = is_beside ? end : end + out;
        if (is_forward) me->forwards++;
        else me->backwards++;
        if (to < 0 || to == p) continue;
        double *link = is_forward ? &me->x_free : &me->dx_free;
        *link = is_beside ? fmax(*link, end) + out : end;
        (is_forward ? x + m : dx - m)[i] = *link;
    }
}

// 1F1B of m micro-batches, all of them whole.
static double gx__assignment_cost_pipeline(const GxCopyTimes *t, int m, double *ready)
{
    gx__AssignmentStage of[GX_ASSIGNED_RANKS];
    double end = 0;
    memset(of, 0, (size_t)t->stages * sizeof *of);
    for (int went = 1; went;) {
        went = 0;
        for (int s = 0; s < t->stages; s++) went |= gx__assignment_cost_advance(t, m, of, s, ready);
    }
    for (int s = 0; s < t->stages; s++) end = fmax(end, of[s].free);
    return end;
}

static double gx__assignment_cost_micro_batches(GxStageCosts *c, GxCopyTimes *t, int64_t m)
{
    if (t->stages == 1) return (double)m * (t->forward[0] + t->backward[0]);
    if (m == 0) return 0;
    if (m > t->exact) {
        const int half = t->exact / 2;
        const double last = gx__assignment_cost_micro_batches(c, t, t->exact);
        return last +
               (double)(m - t->exact) * (last - gx__assignment_cost_micro_batches(c, t, half)) / (t->exact - half);
    }
    const int at = (int)(m % GX_COPY_TIMES_KNOWN);
    if (t->known_of[at] != m)
        t->known_of[at] = (int)m, t->known[at] = gx__assignment_cost_pipeline(t, (int)m, c->ready);
    return t->known[at];
}

void gx_copy_times_changed(GxCopyTimes *t, int exact)
{
    const int most = gx__assignment_cost_exact(t->stages);
    memset(t->known_of, 0, sizeof t->known_of);
    t->exact = exact ? (int)gx_min(exact, most) : most;
}

double gx_copy_seconds(GxStageCosts *c, GxCopyTimes *t, int64_t samples)
{
    const int64_t m = gx_ceil_div(samples, t->micro_batch), last = samples - (m - 1) * t->micro_batch;
    const double all = gx__assignment_cost_micro_batches(c, t, m);
    if (last == t->micro_batch) return all;
    const double part = t->one + (1 - t->one) * (double)(last - 1) / (double)(t->micro_batch - 1);
    const double before = gx__assignment_cost_micro_batches(c, t, m - 1);
    return before + (all - before) * part;
}

// ---- the times of an assignment ------------------------------------------------------------------------------------

void gx_assignment_members(GxMembers *m, const GxAssignment *a)
{
    memset(m, 0, sizeof *m);
    for (int s = 0; s < a->stages; s++) m->first[a->stage[s].copy + 1] = (int16_t)(s + 1);
    for (int r = 0; r < a->ranks; r++)
        if (a->place[r].stage >= 0) m->begin[a->place[r].stage + 1]++;
    for (int s = 0; s < a->stages; s++) m->begin[s + 1] = (int16_t)(m->begin[s + 1] + m->begin[s]);
    int16_t at[GX_ASSIGNED_RANKS];
    memcpy(at, m->begin, sizeof at);
    for (int r = 0; r < a->ranks; r++)
        if (a->place[r].stage >= 0) m->rank[at[a->place[r].stage]++] = (int16_t)r;
}

GxStatus gx_assignment_times_open(GxAssignmentTimes *t, const GxPlanProblem *p, GxError *err)
{
    t->stage = (GxStageCost *)calloc((size_t)p->ranks, sizeof *t->stage);
    t->memory = (double *)calloc((size_t)(p->ranks * GX__ASSIGNMENT_COST_PER_RANK), sizeof *t->memory);
    if (t->stage && t->memory) return GX_OK;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the times of %d stages", p->ranks);
}

void gx_assignment_times_close(GxAssignmentTimes *t)
{
    free(t->stage);
    free(t->memory);
    t->stage = NULL, t->memory = NULL;
}

// Seconds of a message from group a to group b.
static double gx__assignment_cost_message(const GxPlanProblem *p, const GxMembers *m, int a, int b, double bytes)
{
    const int senders = m->begin[a + 1] - m->begin[a], receivers = m->begin[b + 1] - m->begin[b];
    double slowest = 0;
    bytes *= (double)gx_ceil_div(receivers, senders);
    for (int j = m->begin[b]; j < m->begin[b + 1]; j++) {
        double nearest = INFINITY;
        for (int i = m->begin[a]; i < m->begin[a + 1]; i++) {
            const int link = m->rank[i] * p->ranks + m->rank[j];
            nearest = fmin(nearest, p->latency[link] + bytes * p->seconds_per_byte[link]);
        }
        slowest = fmax(slowest, nearest);
    }
    return slowest;
}

GxStageRequest gx_stage_request(const GxPlanProblem *p, const GxAssignment *a, const GxMembers *m, int stage)
{
    const int copy = a->stage[stage].copy, behind = m->first[copy + 1] - stage;
    const int is_alike =
        p->same_lists && !(p->kinds & GX_PLAN_ANY) && !(a->copies == 1 && (p->kinds & GX_PLAN_PIPELINE));
    GxStageRequest r = GX_ZERO;
    r.rank = m->rank + m->begin[stage], r.n = m->begin[stage + 1] - m->begin[stage];
    if (is_alike && a->stages > 1 && r.n > 1) r.alike = m->rank, r.groups = a->stages;
    r.layers = a->stage[stage].layers;
    r.has_embed = stage == m->first[copy], r.has_head = behind == 1;
    r.alive = (int)gx_min(behind + a->stage[stage].warm, gx_assignment_micro_batches(a, copy));
    r.micro_batch = a->copy[copy].micro_batch;
    return r;
}

GxStatus gx_copy_times(GxAssignmentTimes *t, const GxAssignment *a, const GxMembers *m, int copy, GxStageCosts *c,
                       GxError *err)
{
    const GxPlanProblem *p = c->problem;
    const int first = m->first[copy], n = m->first[copy + 1] - first;
    double *memory = t->memory + first * GX__ASSIGNMENT_COST_PER_RANK;
    int slowest = 0;
    GxCopyTimes *of = &t->copy[copy];
    of->stages = n, of->warm = n > 1 ? a->stage[first + n - 2].warm : 0;
    of->micro_batch = a->copy[copy].micro_batch, of->one = 1;
    of->forward = memory, of->backward = memory + n, of->x = memory + 2 * n, of->dx = memory + 3 * n;
    gx_copy_times_changed(of, 0);
    for (int s = 0; s < n; s++) {
        GxStageRequest r = gx_stage_request(p, a, m, first + s);
        GxStageCost *cost = &t->stage[first + s];
        GX_TRY(gx_stage_costs_get(c, cost, &r, err));
        of->forward[s] = cost->forward, of->backward[s] = cost->backward;
        const double bytes = p->x_bytes * (double)of->micro_batch;
        of->x[s] = s == n - 1 ? 0 : gx__assignment_cost_message(p, m, first + s, first + s + 1, bytes);
        of->dx[s] = s == n - 1 ? 0 : gx__assignment_cost_message(p, m, first + s + 1, first + s, bytes);
        if (of->forward[s] + of->backward[s] > of->forward[slowest] + of->backward[slowest]) slowest = s;
    }
    if (of->micro_batch == 1) return GX_OK;
    GxStageRequest r = gx_stage_request(p, a, m, first + slowest);
    GxStageCost one = GX_ZERO;
    const double whole = of->forward[slowest] + of->backward[slowest];
    r.micro_batch = 1;
    GX_TRY(gx_stage_costs_get(c, &one, &r, err));
    if (whole > 0 && whole < INFINITY) of->one = fmin((one.forward + one.backward) / whole, 1);
    return GX_OK;
}

// Takes over the slowest link, either way, between ranks of two stages.
static void gx__assignment_cost_slowest(const GxPlanProblem *p, const GxMembers *m, int a, int b, double link[2])
{
    for (int i = m->begin[a]; i < m->begin[a + 1]; i++)
        for (int j = m->begin[b]; j < m->begin[b + 1]; j++) {
            const int to = m->rank[i] * p->ranks + m->rank[j], back = m->rank[j] * p->ranks + m->rank[i];
            link[0] = fmax(link[0], fmax(p->latency[to], p->latency[back]));
            link[1] = fmax(link[1], fmax(p->seconds_per_byte[to], p->seconds_per_byte[back]));
        }
}

double gx_copy_sums(const GxAssignmentTimes *t, const GxAssignment *a, const GxMembers *m, int copy,
                    const GxPlanProblem *p)
{
    double slowest = 0;
    int begin = 0;
    for (int s = m->first[copy]; s < m->first[copy + 1]; begin += a->stage[s++].layers) {
        double link[2] = {0, 0};
        for (int other = 0, at = 0; other < a->stages; at += a->stage[other++].layers) {
            if (other == m->first[a->stage[other].copy]) at = 0;
            if (a->stage[other].copy != copy && at < begin + a->stage[s].layers && begin < at + a->stage[other].layers)
                gx__assignment_cost_slowest(p, m, s, other, link);
        }
        slowest = fmax(slowest, 2 * (a->copies - 1) * (link[0] + t->stage[s].grad_bytes / a->copies * link[1]));
    }
    return slowest;
}

int64_t gx_copy_lacks(const GxAssignmentTimes *t, const GxMembers *m, int copy)
{
    int64_t lacks = 0;
    for (int s = m->first[copy]; s < m->first[copy + 1]; s++) lacks += gx_max(-t->stage[s].room, 0);
    return lacks;
}

GxStatus gx_assignment_cost(GxAssignmentCost *cost, const GxAssignment *a, GxStageCosts *c, GxError *err)
{
    GxMembers m;
    GxAssignmentTimes *t = c->times;
    int64_t least = INT64_MAX;
    memset(cost, 0, sizeof *cost);
    gx_assignment_members(&m, a);
    for (int r = 0; r < a->copies; r++) GX_TRY(gx_copy_times(t, a, &m, r, c, err));
    for (int s = 0; s < a->stages; s++) {
        const GxStageCost *stage = &t->stage[s];
        cost->step = fmax(cost->step, stage->step);
        if (stage->forward + stage->backward == INFINITY) cost->seconds = INFINITY;
        if (stage->room < least) least = stage->room, cost->tightest = m.rank[m.begin[s] + stage->tightest];
    }
    cost->lacks_most = gx_max(-least, 0);
    for (int r = 0; r < a->copies; r++) {
        cost->lacks += gx_copy_lacks(t, &m, r);
        if (cost->seconds == INFINITY) continue;
        const double sums = gx_copy_sums(t, a, &m, r, c->problem);
        const double seconds = gx_copy_seconds(c, &t->copy[r], a->copy[r].samples) + sums;
        if (r == 0 || seconds > cost->seconds) cost->seconds = seconds, cost->sums = sums, cost->slowest = r;
    }
    cost->seconds += cost->step;
    return GX_OK;
}

double gx_assignment_value(const GxAssignmentCost *cost)
{
    return cost->lacks ? 1e12 * (1 + (double)cost->lacks) : cost->seconds;
}

// ---- where the time goes -------------------------------------------------------------------------------------------

// Seconds of the copies if samples were divided so that all end together, a sample more or less taking as long as one
// of the last micro-batch.
static double gx__assignment_cost_together(const GxAssignment *a, const GxMembers *m, GxStageCosts *c)
{
    double seconds = 0, samples = 0;
    for (int r = 0; r < a->copies; r++) {
        GxCopyTimes *t = &c->times->copy[r];
        const int64_t n = gx_assignment_micro_batches(a, r);
        const double rate = (double)t->micro_batch / (gx__assignment_cost_micro_batches(c, t, n) -
                                                      gx__assignment_cost_micro_batches(c, t, n - 1));
        seconds += rate * (gx_copy_seconds(c, t, a->copy[r].samples) + gx_copy_sums(c->times, a, m, r, c->problem));
        samples += rate;
    }
    return seconds / samples;
}

GxStatus gx_assignment_losses(GxAssignmentCost *cost, const GxAssignment *a, GxStageCosts *c, GxError *err)
{
    GxMembers m;
    GX_TRY(gx_assignment_cost(cost, a, c, err));
    if (cost->seconds == INFINITY) return GX_OK;
    gx_assignment_members(&m, a);
    GxCopyTimes *t = &c->times->copy[cost->slowest];
    const int64_t samples = a->copy[cost->slowest].samples, n = gx_ceil_div(samples, t->micro_batch);
    const double seconds = gx_copy_seconds(c, t, samples);
    cost->rounding = seconds + cost->sums - gx__assignment_cost_together(a, &m, c);
    for (int s = 0; s < t->stages; s++) {
        t->x[s] = t->dx[s] = 0;
        cost->computing = fmax(cost->computing, t->forward[s] + t->backward[s]);
    }
    gx_copy_times_changed(t, 0);
    const double without = gx_copy_seconds(c, t, samples);
    cost->messages = seconds - without;
    const double last = 1 - (double)(n * t->micro_batch - samples) / (double)gx_max(t->micro_batch - 1, 1);
    cost->computing *= (double)(n - 1) + t->one + (1 - t->one) * last;
    cost->bubble = without - cost->computing;
    return GX_OK;
}
#endif
