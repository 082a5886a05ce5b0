// steps_overlap.h: the pass that lets communication run beside computation: it starts what a list (steps.h) does at
// once, earlier or where it stands, and waits for it later.
//
//     GATHER    starts as soon as there is room for the unit, and is waited for before its first use. With room for two
//               units, the next one's weights arrive while one computes (prefetching). After a STEP: it is waited for
//               when the next one's has been started, too
//     SCATTER   starts after the last contribution, and is waited for before the next one: units below go on. Not
//               beyond the next micro-batch's forwards: its backwards make other gradients
//     SEND      starts when its data are made, and is waited for after the work on another micro-batch; of the memory
//               that a decoder reads no later than before the last action here that reads it. The memory's gradient,
//               which comes to a rank of several stages more than once, is not started there
//     RECV      starts before the work on the micro-batch before, and is waited for before its first use
//
// Starts of one kind keep their order, and waits stand where the blocking actions stood, or later, so a list that ends
// when everything is blocking ends when it is started: nobody waits for more than before. The work is the same, and so
// is every bit. What is in flight needs memory meanwhile: an input and a gradient of a stage more, and a unit's whole
// gradients.
//
// An action that finds no free ticket stays as it is.
#ifndef GX_STEPS_OVERLAP_H
#define GX_STEPS_OVERLAP_H
#include "steps_list.h"

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_OVERLAP_IMPLEMENTED)
#define GX_STEPS_OVERLAP_IMPLEMENTED
#include <stdlib.h>

typedef struct {
    int is_started, start, wait; // places in the list: before these actions
    int ticket;                  // -1: it has none
    int first_start, next_start; // of those that start at this place; -1: none
    int first_wait, next_wait;   // of those that are waited for at this place
} GxOverlap;

static int gx__overlap_computes(const GxAction *a) { return a->what <= GX_DO_WEIGHT; }

// Between a window's beginning and its sums of squares.
static int gx__overlap_is_inside(const GxAction *a)
{
    return a->what != GX_DO_COUNT && a->what != GX_DO_NORM && a->what != GX_DO_AGREE && a->what != GX_DO_STEP &&
           a->what != GX_DO_TIE;
}

// 1: two actions belong to the work of one stage on one micro-batch.
static int gx__overlap_is_one_work(const GxAction *a, const GxAction *b)
{
    return a->micro_batch == b->micro_batch && (a->what == GX_DO_FORWARD) == (b->what == GX_DO_FORWARD) &&
           (a->what == GX_DO_WEIGHT) == (b->what == GX_DO_WEIGHT);
}

// From action i - 1 down: the beginning of the work before, past what communicates.
static int gx__overlap_before_work(const GxActions *in, int i)
{
    const GxAction *work = NULL;
    for (; i > 0; i--) {
        const GxAction *a = &in->action[i - 1];
        if (!gx__overlap_is_inside(a)) break;
        if (!gx__overlap_computes(a)) continue;
        if (work && !gx__overlap_is_one_work(a, work)) break;
        work = a;
    }
    while (!gx__overlap_computes(&in->action[i])) i++; // there is one, at the latest the one that receives
    return i;
}

// From action i on: the end of the work after it.
static int gx__overlap_after_work(const GxActions *in, int i)
{
    const GxAction *work = NULL;
    for (; i < in->n; i++) {
        const GxAction *a = &in->action[i];
        if (!gx__overlap_is_inside(a)) break;
        if (!gx__overlap_computes(a)) continue;
        if (work && !gx__overlap_is_one_work(a, work)) break;
        work = a;
    }
    return i;
}

// 1: the action has effects on a thing of the unit (and of the micro-batch).
static int gx__overlap_touches(const GxStepsSpec *p, const GxAction *a, int object, int unit, int micro_batch)
{
    GxEffect e[GX_EFFECTS];
    for (int k = gx_action_effects(p, a, e) - 1; k >= 0; k--)
        if (e[k].object == object && e[k].unit == unit && e[k].micro_batch == micro_batch) return 1;
    return 0;
}

static int gx__overlap_first_use(const GxActions *in, const GxStepsSpec *p, int i)
{
    const GxAction *received = &in->action[i];
    for (i++; i < in->n; i++)
        if (gx__overlap_touches(p, &in->action[i], received->object, received->unit, received->micro_batch)) break;
    return i;
}

// The end of the work after message i; of the memory no later than the last action here that reads it.
static int gx__overlap_after_sent(const GxActions *in, const GxStepsSpec *p, int i)
{
    const int end = gx__overlap_after_work(in, i + 1), micro_batch = in->action[i].micro_batch;
    if (in->action[i].unit != gx_steps_behind_encoder(p)) return end;
    for (i++; i < end; i++)
        if (in->action[i].micro_batch == micro_batch && gx__steps_ends_memory(p, &in->action[i])) break;
    return i;
}

static int gx__overlap_after_scatter(const GxActions *in, const GxStepsSpec *p, int i)
{
    const int unit = in->action[i].unit;
    for (i++; i < in->n; i++) {
        const GxAction *a = &in->action[i];
        if (!gx__overlap_is_inside(a) || a->what == GX_DO_SCATTER) break;
        if (gx__overlap_touches(p, a, GX_OBJECT_GRADS, unit, -1)) break;
        if (gx__overlap_touches(p, a, GX_OBJECT_SHARD, unit, -1)) break;
    }
    return i;
}

// whole [n]: how many units are whole, or being gathered, while each action runs; is increased where this one is. One
// that is needed at once goes first.
static int gx__overlap_before_gather(const GxActions *in, const GxStepsSpec *p, const GxOverlap *at, int *whole, int i)
{
    const int unit = in->action[i].unit;
    int crossed = 0;
    for (; i > 0 && whole[i - 1] < p->gathered; i--) {
        const GxAction *a = &in->action[i - 1];
        if (!gx__overlap_is_inside(a) || (a->what == GX_DO_FREE && a->unit == unit)) break;
        if (a->what == GX_DO_GATHER && !at[i - 1].is_started) break;
        if (gx__overlap_computes(a) && ++crossed == p->gathered) break;
        whole[i - 1]++;
    }
    return i;
}

// Where whole weights are kept, each unit's are gathered after its step, two units' at a time.
static int gx__overlap_after_gather(const GxActions *in, int i)
{
    int gathers = 0;
    for (i++; i < in->n; i++)
        if (in->action[i].what == GX_DO_GATHER && ++gathers == 2) break;
    return i;
}

// 1: the message can be in flight beside others: no other one on this rank has the same rows.
static int gx__overlap_is_alone(const GxStepsSpec *p, const GxAction *a)
{
    const int is_dmemory = a->object == GX_OBJECT_DX && a->unit == gx_steps_behind_encoder(p);
    return !is_dmemory || gx_steps_stages(p) == gx__steps_ranks(p);
}

static void gx__overlap_find(const GxActions *in, const GxStepsSpec *p, GxOverlap *at, int *whole)
{
    int received = 0;
    for (int i = 0, n = 0; i < in->n; i++) {
        const GxAction *a = &in->action[i];
        n += (a->what == GX_DO_GATHER) - (a->what == GX_DO_FREE);
        whole[i] = n + (a->what == GX_DO_FREE); // while it is freed, its room is not free
    }
    for (int i = 0; i < in->n; i++) {
        GxOverlap *o = &at[i];
        o->start = o->wait = i, o->ticket = -1, o->is_started = 0;
        const int is_message = gx__steps_is_message(&in->action[i]);
        if (in->action[i].ticket >= 0 || !(p->overlaps & (is_message ? GX_OVERLAPS_MESSAGES : GX_OVERLAPS_SHARDS)))
            continue;
        if (is_message && !gx__overlap_is_alone(p, &in->action[i])) {
            if (in->action[i].what == GX_DO_RECV) received = i + 1; // messages keep their order
            continue;
        }
        switch (in->action[i].what) {
        case GX_DO_GATHER:
            if (p->sharded == GX__STEPS_WEIGHTS_SHARDED) o->start = gx__overlap_before_gather(in, p, at, whole, i);
            else o->wait = gx__overlap_after_gather(in, i);
            break;
        case GX_DO_RECV:
            received = (int)gx_max(received, gx_min(gx__overlap_before_work(in, i), i));
            o->start = received, o->wait = gx__overlap_first_use(in, p, i);
            break;
        case GX_DO_SEND: o->wait = gx__overlap_after_sent(in, p, i); break;
        case GX_DO_SCATTER:
            o->wait = (int)gx_min(gx__overlap_after_scatter(in, p, i), gx__overlap_after_work(in, i + 1));
            break;
        default: break;
        }
        o->is_started = o->start < i || o->wait > i + 1;
    }
}

// ---- the list ------------------------------------------------------------------------------------------------------

// Lists at each place what starts there, and what is waited for there, in their order.
static void gx__overlap_list(const GxActions *in, GxOverlap *at)
{
    for (int i = 0; i <= in->n; i++) at[i].first_start = at[i].first_wait = -1;
    for (int i = in->n - 1; i >= 0; i--) {
        GxOverlap *o = &at[i];
        if (!o->is_started) continue;
        o->next_start = at[o->start].first_start, at[o->start].first_start = i;
        o->next_wait = at[o->wait].first_wait, at[o->wait].first_wait = i;
    }
}

typedef struct {
    GxActions *out;
    int is_taken[GX_STEPS_TICKETS], first_ticket;
} GxOverlapOut;

static void gx__overlap_start(GxOverlapOut *w, const GxAction *a, GxOverlap *o)
{
    GxAction start = *a;
    for (o->ticket = w->first_ticket; o->ticket < GX_STEPS_TICKETS && w->is_taken[o->ticket];) o->ticket++;
    if (o->ticket == GX_STEPS_TICKETS) {
        o->ticket = -1; // it stays at its place
        return;
    }
    w->is_taken[o->ticket] = 1;
    start.ticket = (int8_t)o->ticket;
    gx__steps_push(w->out, start);
}

static void gx__overlap_wait(GxOverlapOut *w, const GxOverlap *o)
{
    GxAction wait = gx__steps_action(GX_DO_WAIT, -1, -1);
    wait.ticket = (int8_t)o->ticket;
    w->is_taken[o->ticket] = 0;
    gx__steps_push(w->out, wait);
}

// Numbers the messages of a list: the k-th that one rank sends to another is the k-th that the other receives from it.
// Those that are in flight at once have different numbers, by which the ranks tell them apart (GxTransfer.channel).
static void gx__overlap_number(const GxActions *in, int *sent, int *received)
{
    for (int i = 0; i < in->n; i++) {
        GxAction *a = &in->action[i];
        if (gx__steps_is_message(a))
            a->count = (int16_t)(1 + (a->what == GX_DO_SEND ? sent : received)[a->peer]++ % GX_STEPS_NUMBERS);
    }
}

static void gx__steps_overlap(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    const size_t n = (size_t)in->n + 1, ranks = (size_t)gx__steps_ranks(p);
    GxOverlap *at = (GxOverlap *)calloc(1, n * (sizeof *at + sizeof(int)) + 2 * ranks * sizeof(int));
    GxOverlapOut w = {out, {0}, p->starts_sums ? GX_STEPS_SUMS : 0};
    if (!at) {
        out->failed = 1;
        return;
    }
    int *whole = (int *)(at + n), *sent = whole + n;
    if (p->overlaps & GX_OVERLAPS_MESSAGES) gx__overlap_number(in, sent, sent + ranks);
    for (int i = 0; i < in->n; i++) at[i].ticket = -1;
    if (p->overlaps) gx__overlap_find(in, p, at, whole);
    gx__overlap_list(in, at);
    for (int i = 0; i <= in->n; i++) {
        for (int k = at[i].first_wait; k >= 0; k = at[k].next_wait)
            if (at[k].ticket >= 0) gx__overlap_wait(&w, &at[k]);
        for (int k = at[i].first_start; k >= 0; k = at[k].next_start) gx__overlap_start(&w, &in->action[k], &at[k]);
        if (i < in->n && at[i].ticket < 0) gx__steps_push(out, in->action[i]);
    }
    free(at);
}
#endif
#endif
