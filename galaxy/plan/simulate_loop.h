// simulate_loop.h: the loop of a simulation (simulate.h): runs the lists of all classes of copies, action by action.
//
// A node is a rank of the pipeline in one of the classes. A message has two members, COUNT and AGREE have all nodes,
// and a collective over copies has the nodes of the same list whose classes differ in its axes only: it begins when the
// last of them has come to it.
#ifndef GX_SIMULATE_LOOP_H
#define GX_SIMULATE_LOOP_H
#include "../base/mesh.h"
#include "simulate_costs.h"
GX_BEGIN

enum { GX__SIMULATE_CLASSES = 4 }; // of copies

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
    gx__SimMesh mesh;
    int pp; // of the mesh
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

// Fills s->action; needs mesh, pp, list, first.
GxStatus gx__simulate_actions(gx__Sim *s, GxError *err);
// Runs all lists: sets s->window, and begin, end, and what nodes have spent their time on.
GxStatus gx__simulate_run(gx__Sim *s, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SIMULATE_LOOP_IMPLEMENTED)
#define GX_SIMULATE_LOOP_IMPLEMENTED
#include "../base/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

// What the lists are as rows of the loop.
GxStatus gx__simulate_actions(gx__Sim *s, GxError *err)
{
    const size_t cells = 2 * (size_t)s->mesh.p->steps.units * (size_t)s->mesh.p->steps.micro_batches;
    int *received = (int *)calloc(cells + (size_t)s->pp, sizeof *received);
    if (!received) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the messages of a simulation");
    for (int i = 0; i < s->first[s->pp]; i++) s->action[i].partner = s->action[i].needs = -1;
    for (int r = 0; r < s->pp; r++) {
        for (int i = 0; i < s->list[r].n; i++)
            gx__simulate_action(&s->mesh, &s->list[r].spec, &s->list[r].action[i], &s->action[s->first[r] + i]);
        gx__simulate_needs(s, r, received);
    }
    for (int r = 0; r < s->pp; r++) {
        gx__simulate_pair(s, r, GX_DO_SEND, GX_DO_RECV, received + cells);
        gx__simulate_pair(s, r, GX_DO_TIE, GX_DO_TIE, received + cells);
    }
    free(received);
    return GX_OK;
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
    return s->mesh.p->overlaps && (a->what == GX_DO_GATHER || a->what == GX_DO_SCATTER || a->what == GX_DO_REDUCE);
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
    if (s->mesh.p->overlaps) {
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
        if (a->is_met && !(s->mesh.p->overlaps && a->spent == GX_SPENT_MESSAGES)) {
            goes_on = gx__simulate_meet(s, node);
            continue;
        }
        if (a->is_met) goes_on = gx__simulate_pass(s, node, a, &s->begin[number], &s->end[number]);
        else if (a->is_nothing) s->begin[number] = s->end[number] = n->now;
        else gx__simulate_compute(s, node, a, &s->begin[number], &s->end[number]);
        n->at += goes_on;
    }
    return has_changed;
}

// Sets s->window.
GxStatus gx__simulate_run(gx__Sim *s, GxError *err)
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
#endif
