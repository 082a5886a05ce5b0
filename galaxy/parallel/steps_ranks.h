// steps_ranks.h: simulates the lists of all ranks of a pipeline (steps.h) together, on one rank and without
// communication: do their messages match, do all lists end, and how long does that take?
//
// A message (or TIE) begins when both of its ranks have reached it. If it is blocking, its rank continues when it has
// ended; if it was started, at once, and its WAIT ends when it has. Messages that are started are moved beside each
// other. Other actions with a ticket (GATHER, SCATTER, REDUCE) are done one after another beside the rank's work. COUNT
// and AGREE begin when all ranks have reached them.
//
//     for (int r = 0; r < ranks; r++) spec.rank = r, gx_steps_make(&s[r], &spec, err);
//     GX_TRY(gx_steps_check_ranks(s, ranks, err));
#ifndef GX_STEPS_RANKS_H
#define GX_STEPS_RANKS_H
#include "steps_check.h"
GX_BEGIN

// How long an action takes, in any unit of time; the same at every call. Of a message it is asked for the SEND, of a
// TIE for that of the lower rank: how long both of its ranks are in it from when the later one has come. COUNT and
// AGREE take no time.
typedef double (*GxStepsCost)(const void *user, const GxStepsSpec *spec, const GxAction *a);

// Checks each list (gx_steps_check) and all of them together. The error names the first problem: the rank, its action,
// and what it needs.
GxStatus gx_steps_check_ranks(const GxSteps *rank, int ranks, GxError *err);

// When each action ends: end[r] has room for rank[r].n. span: until the last one ends. cost NULL: nothing takes time.
// The lists must have passed gx_steps_check_ranks.
GxStatus gx_steps_time(const GxSteps *rank, int ranks, GxStepsCost cost, const void *user, double *const *end,
                       double *span, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_RANKS_IMPLEMENTED)
#define GX_STEPS_RANKS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const GxSteps *rank;
    int ranks;
    int *begin;      // [ranks]: the number of a rank's first action among those of all ranks
    int *partner;    // [all actions]: of a message or TIE, the number of the other rank's action
    double *arrived; // [all actions]: when its rank reached a message; -1: it has not
    double *end;     // [all actions]
    int *at;         // [ranks]: the action that is next
    double *now;     // [ranks]
    double *beside;  // [ranks]: when the last of the actions that are done beside its work has ended
    int *started;    // [ranks][GX_TICKETS]: the action that has the ticket
} GxRanks;

static void gx__ranks_name(const GxRanks *r, int rank, int i, char text[96])
{
    char name[48];
    if (i >= r->rank[rank].n) snprintf(text, 96, "the end of its list");
    else snprintf(text, 96, "action %d (%s)", i, gx_action_name(&r->rank[rank].action[i], name));
}

// Two ranks do it together.
static int gx__ranks_meet(const GxAction *a) { return gx__steps_is_message(a) || a->what == GX_DO_TIE; }

// The next message of a rank from action i on, to or from `peer`; the length of the list: none.
static int gx__ranks_next(const GxSteps *s, int i, int what, int peer)
{
    while (i < s->n && !(s->action[i].what == what && s->action[i].peer == peer)) i++;
    return i;
}

// The k-th message that one rank sends to another is the k-th that the other receives from it; likewise for TIEs.
static GxStatus gx__ranks_pair(GxRanks *r, int from, int to, int send, int recv, GxError *err)
{
    const GxSteps *a = &r->rank[from], *b = &r->rank[to];
    char sent[96], received[96];
    for (int i = -1, j = -1;;) {
        i = gx__ranks_next(a, i + 1, send, to), j = gx__ranks_next(b, j + 1, recv, from);
        const GxAction *x = &a->action[i], *y = &b->action[j];
        if (i == a->n && j == b->n) return GX_OK;
        if (i == a->n || j == b->n || x->object != y->object || (send != GX_DO_TIE && x->unit != y->unit) ||
            x->micro_batch != y->micro_batch || x->count != y->count || (send == GX_DO_TIE && x->half != y->half)) {
            gx__ranks_name(r, from, i, sent), gx__ranks_name(r, to, j, received);
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "messages from rank %d to rank %d: %s of the one meets %s of the other", from, to, sent,
                           received);
        }
        r->partner[r->begin[from] + i] = r->begin[to] + j;
        r->partner[r->begin[to] + j] = r->begin[from] + i;
    }
}

static int gx__ranks_is_agreed(const GxAction *a) { return a->what == GX_DO_COUNT || a->what == GX_DO_AGREE; }

// How long two ranks are in the message, or TIE, that is a rank's action number `at`.
static double gx__ranks_message_cost(const GxRanks *r, int rank, int at, GxStepsCost cost, const void *user)
{
    const GxAction *a = &r->rank[rank].action[at];
    const int is_peers = a->what == GX_DO_RECV || (a->what == GX_DO_TIE && a->peer < rank);
    const int of = is_peers ? a->peer : rank, i = r->partner[r->begin[rank] + at] - r->begin[of];
    return cost ? cost(user, &r->rank[of].spec, is_peers ? &r->rank[of].action[i] : a) : 0;
}

// When a rank's message, or TIE, ends; -1: one of its ranks has not reached it.
static double gx__ranks_message_end(const GxRanks *r, int rank, int at, GxStepsCost cost, const void *user)
{
    const int i = r->begin[rank] + at;
    const double here = r->arrived[i], there = r->arrived[r->partner[i]];
    if (here < 0 || there < 0) return -1;
    return (here > there ? here : there) + gx__ranks_message_cost(r, rank, at, cost, user);
}

// Goes on to the next action. Returns 1.
static int gx__ranks_end(GxRanks *r, int rank, double now)
{
    r->now[rank] = r->end[r->begin[rank] + r->at[rank]] = now;
    r->at[rank]++;
    return 1;
}

// Reaches a message, and passes it if it is only started here, or if the other rank has reached it, too. Returns 0 if
// nothing has changed.
static int gx__ranks_pass(GxRanks *r, int rank, GxStepsCost cost, const void *user)
{
    const int at = r->at[rank], i = r->begin[rank] + at, comes = r->arrived[i] < 0,
              ticket = r->rank[rank].action[at].ticket;
    if (comes) r->arrived[i] = r->now[rank];
    if (ticket >= 0) {
        r->started[rank * GX_TICKETS + ticket] = at;
        return gx__ranks_end(r, rank, r->now[rank]);
    }
    const double end = gx__ranks_message_end(r, rank, at, cost, user);
    return end < 0 ? comes : gx__ranks_end(r, rank, end);
}

// An action that is started, other than a message.
static int gx__ranks_start(GxRanks *r, int rank, GxStepsCost cost, const void *user)
{
    const int at = r->at[rank];
    const GxAction *a = &r->rank[rank].action[at];
    const double now = r->now[rank], begin = now > r->beside[rank] ? now : r->beside[rank];
    r->beside[rank] = begin + (cost ? cost(user, &r->rank[rank].spec, a) : 0);
    r->arrived[r->begin[rank] + at] = r->beside[rank];
    r->started[rank * GX_TICKETS + a->ticket] = at;
    return gx__ranks_end(r, rank, now);
}

// Returns 0 if what is waited for has not ended.
static int gx__ranks_wait(GxRanks *r, int rank, GxStepsCost cost, const void *user)
{
    const GxSteps *s = &r->rank[rank];
    const int started = r->started[rank * GX_TICKETS + s->action[r->at[rank]].ticket];
    const double end = gx__ranks_meet(&s->action[started]) ? gx__ranks_message_end(r, rank, started, cost, user)
                                                           : r->arrived[r->begin[rank] + started];
    return end < 0 ? 0 : gx__ranks_end(r, rank, end > r->now[rank] ? end : r->now[rank]);
}

// If all ranks are at COUNT, or all at AGREE, they continue together.
static int gx__ranks_agree(GxRanks *r)
{
    double ends = 0;
    for (int k = 0; k < r->ranks; k++) {
        const GxSteps *s = &r->rank[k];
        if (r->at[k] == s->n || !gx__ranks_is_agreed(&s->action[r->at[k]])) return 0;
        if (s->action[r->at[k]].what != r->rank->action[r->at[0]].what) return 0;
        ends = ends > r->now[k] ? ends : r->now[k];
    }
    for (int k = 0; k < r->ranks; k++) r->end[r->begin[k] + r->at[k]++] = r->now[k] = ends;
    return 1;
}

// Runs a rank until it has to wait. Returns 0 if nothing has changed.
static int gx__ranks_go(GxRanks *r, int rank, GxStepsCost cost, const void *user)
{
    const GxSteps *s = &r->rank[rank];
    int has_changed = 0, goes_on = 1;
    while (goes_on && r->at[rank] < s->n) {
        const GxAction *a = &s->action[r->at[rank]];
        if (gx__ranks_is_agreed(a)) return has_changed;
        const int at = r->at[rank];
        if (gx__ranks_meet(a)) has_changed |= gx__ranks_pass(r, rank, cost, user);
        else if (a->what == GX_DO_WAIT) has_changed |= gx__ranks_wait(r, rank, cost, user);
        else if (a->ticket >= 0) has_changed |= gx__ranks_start(r, rank, cost, user);
        else has_changed |= gx__ranks_end(r, rank, r->now[rank] + (cost ? cost(user, &s->spec, a) : 0));
        goes_on = r->at[rank] > at;
    }
    return has_changed;
}

// The error of a rank that does not reach its end: it waits for a message, or for all ranks at COUNT or AGREE.
static GxStatus gx__ranks_refuse(const GxRanks *r, int rank, GxError *err)
{
    const int i = r->at[rank];
    const GxAction *a = &r->rank[rank].action[i];
    char here[96], there[96];
    gx__ranks_name(r, rank, i, here);
    if (a->what == GX_DO_WAIT) a = &r->rank[rank].action[r->started[rank * GX_TICKETS + a->ticket]];
    const int peer = a->peer;
    if (!gx__ranks_meet(a))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d, at %s, waits for others that do not come there", rank, here);
    gx__ranks_name(r, peer, r->at[peer], there);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d, at %s, waits for rank %d, which is at %s and does not go on", rank,
                   here, peer, there);
}

static GxStatus gx__ranks_run(GxRanks *r, GxStepsCost cost, const void *user, GxError *err)
{
    int goes_on = 1;
    while (goes_on) {
        goes_on = 0;
        for (int k = 0; k < r->ranks; k++) goes_on |= gx__ranks_go(r, k, cost, user);
        goes_on |= gx__ranks_agree(r);
    }
    for (int k = 0; k < r->ranks; k++)
        if (r->at[k] < r->rank[k].n) return gx__ranks_refuse(r, k, err);
    return GX_OK;
}

static GxStatus gx__ranks_simulate(GxRanks *r, GxStepsCost cost, const void *user, GxError *err)
{
    for (int from = 0; from < r->ranks; from++)
        for (int to = 0; to < r->ranks; to++)
            if (from != to) GX_TRY(gx__ranks_pair(r, from, to, GX_DO_SEND, GX_DO_RECV, err));
    for (int k = 0; k < r->ranks; k++)
        for (int other = k + 1; other < r->ranks; other++)
            GX_TRY(gx__ranks_pair(r, k, other, GX_DO_TIE, GX_DO_TIE, err));
    return gx__ranks_run(r, cost, user, err);
}

static GxStatus gx__ranks_open(GxRanks *r, const GxSteps *rank, int ranks, void **memory, GxError *err)
{
    size_t all = 0;
    memset(r, 0, sizeof *r);
    for (int k = 0; k < ranks; k++) all += (size_t)rank[k].n;
    *memory = calloc(1, (2 * all + 2 * (size_t)ranks) * sizeof(double) +
                            (all + (2 + GX_TICKETS) * (size_t)ranks) * sizeof(int));
    if (!*memory)
        return GX_FAIL(err, GX_ERR_MEMORY, "the system refused memory to check lists of %ld actions", (long)all);
    r->rank = rank, r->ranks = ranks;
    r->arrived = (double *)*memory;
    r->end = r->arrived + all;
    r->now = r->end + all;
    r->beside = r->now + ranks;
    r->begin = (int *)(r->beside + ranks);
    r->at = r->begin + ranks;
    r->started = r->at + ranks;
    r->partner = r->started + ranks * GX_TICKETS;
    for (int k = 1; k < ranks; k++) r->begin[k] = r->begin[k - 1] + rank[k - 1].n;
    for (size_t i = 0; i < all; i++) r->arrived[i] = -1;
    return GX_OK;
}

GxStatus gx_steps_time(const GxSteps *rank, int ranks, GxStepsCost cost, const void *user, double *const *end,
                       double *span, GxError *err)
{
    GxRanks r;
    void *memory;
    GX_TRY(gx__ranks_open(&r, rank, ranks, &memory, err));
    const GxStatus status = gx__ranks_simulate(&r, cost, user, err);
    if (span) *span = 0;
    for (int k = 0; k < ranks; k++) {
        for (int i = 0; end && i < rank[k].n; i++) end[k][i] = r.end[r.begin[k] + i];
        if (span) *span = *span > r.now[k] ? *span : r.now[k];
    }
    free(memory);
    return status;
}

// 1: the fields that all ranks have to agree on are the same.
static int gx__ranks_are_alike(const GxStepsSpec *a, const GxStepsSpec *b)
{
    return a->units == b->units && a->micro_batches == b->micro_batches && a->kind == b->kind && a->order == b->order &&
           a->count_axes == b->count_axes && a->agree_axes == b->agree_axes && a->reduce_axes == b->reduce_axes &&
           a->sharded == b->sharded && a->shard_axes == b->shard_axes && a->scatters_each == b->scatters_each;
}

GxStatus gx_steps_check_ranks(const GxSteps *rank, int ranks, GxError *err)
{
    for (int k = 0; k < ranks; k++) {
        if (!gx__ranks_are_alike(&rank[k].spec, &rank->spec))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "ranks 0 and %d have lists of other units, micro-batches, orders or axes", k);
        if (rank[k].spec.rank != k || gx__steps_ranks(&rank[k].spec) != ranks)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "list %d is that of rank %d of %d; there are %d lists", k,
                           rank[k].spec.rank, gx__steps_ranks(&rank[k].spec), ranks);
        GxError one = GX_ZERO;
        if (gx_steps_check(&rank[k], &one) != GX_OK)
            return GX_FAIL(err, (GxStatus)one.code, "rank %d: %s", k, one.message);
    }
    return gx_steps_time(rank, ranks, NULL, NULL, NULL, NULL, err);
}
#endif
