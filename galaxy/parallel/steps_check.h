// steps_check.h: replays a list of actions (steps.h) before it runs: does every action find what it uses?
//
// One rank's list is checked against the table of effects: everything that is used is there, nothing is made twice, and
// nothing is touched while a ticket for it is open; each unit has its F, B and W once per micro-batch; gradients are
// summed after their last contribution, once per axis, before their norm; there is one STEP, after AGREE; COUNT is
// first; tickets are waited for; and at the end exactly the same things are there as at the start, so lists of training
// and evaluation may follow one another in any order. A pipeline's list has only the units of its rank, and the
// messages between it and other ranks, before its first NORM; gradients that two ranks share are added (TIE) when they
// are complete, before all other sums of them. The error names the first action that does not fit, and what it needs.
//
// If ranks share units, a unit's weights must be whole, and not stale, when they are read; gradients are scattered
// once, or once for each micro-batch, with all contributions before their norm.
//
// Offloaded rows are not checked yet: their actions are refused.
#ifndef GX_STEPS_CHECK_H
#define GX_STEPS_CHECK_H
#include "steps.h"
GX_BEGIN

enum { GX_TICKETS = 16 }; // that may be open at once

GxStatus gx_steps_check(const GxSteps *s, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_CHECK_IMPLEMENTED)
#define GX_STEPS_CHECK_IMPLEMENTED
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int is_there, ticket; // ticket: of the action that is still using it; -1: none
    int reader;           // of the message that is still reading it, beside others; -1: none
    int by;               // the action that last made or ended it; -1: none
} GxThing;
typedef struct {
    const GxSteps *s;
    const GxStepsSpec *p;
    GxError *err;
    GxThing *thing; // [object][unit][micro-batch]; 0 for things without a unit or micro-batch
    int *seen;      // [what][unit][micro-batch]: the action; -1: none
    // [unit]: contributions to its gradients; those that are in the shard already; the number of SCATTERs; the axes
    // that gradients have been summed over
    int *added, *scattered, *scatters, *reduced;
    int *ties;            // [GX_STEPS_SHARED + 1]: TIEs of each tensor that ranks share
    int norm;             // the first NORM; -1: none so far
    int open[GX_TICKETS]; // the action that started the ticket; -1: it is free
} GxStepsReplay;

static int64_t gx__steps_cell(const GxStepsSpec *p, int kind, int unit, int micro_batch)
{
    return ((int64_t)kind * p->units + gx_max(unit, 0)) * p->micro_batches + gx_max(micro_batch, 0);
}

static GxThing *gx__steps_thing(const GxStepsReplay *r, int object, int unit, int micro_batch)
{
    return &r->thing[gx__steps_cell(r->p, object, unit, micro_batch)];
}

static int *gx__steps_seen(const GxStepsReplay *r, int what, int unit, int micro_batch)
{
    return &r->seen[gx__steps_cell(r->p, what, unit, micro_batch)];
}

// ---- messages ------------------------------------------------------------------------------------------------------

// "action 7 (B3 of micro-batch 1): ..."; -1: "the end of the list: ..."
static GX_PRINTF(4, 5) GxStatus gx__steps_refuse(const GxStepsReplay *r, int i, GxStatus code, const char *format, ...)
{
    char name[48], text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (i < 0) return GX_FAIL(r->err, code, "the end of the list: %s", text);
    return GX_FAIL(r->err, code, "action %d (%s): %s", i, gx_action_name(&r->s->action[i], name), text);
}

static const char *gx__steps_thing_name(int object, int unit, int micro_batch, char text[96])
{
    const char *the = object == GX_OBJECT_X || object == GX_OBJECT_DX ? "" : "the ", *name = gx_object_name(object);
    if (unit < 0) snprintf(text, 96, "%s%s", the, name);
    else if (object == GX_OBJECT_WEIGHTS) snprintf(text, 96, "the whole weights of unit %d", unit);
    else if (object == GX_OBJECT_SHARD) snprintf(text, 96, "the shard of unit %d's gradients", unit);
    else if (micro_batch < 0) snprintf(text, 96, "%s%s of unit %d", the, name, unit);
    else snprintf(text, 96, "%s%s of unit %d, micro-batch %d", the, name, unit, micro_batch);
    return text;
}

// The action that makes the object on this rank.
static const char *gx__steps_maker(const GxStepsSpec *p, int object, int unit, char text[48])
{
    GxStepsMessage m;
    int is_received = 0;
    for (int s = gx_steps_stage_of(p, unit), last = gx__steps_last_stage(p, unit); s <= last; s++)
        is_received |= gx_steps_message(p, object, unit, s, &m) && m.to == p->rank;
    switch (object) {
    case GX_OBJECT_X: snprintf(text, 48, is_received ? "RECV:x:%d" : "F%d", is_received ? unit : unit - 1); break;
    case GX_OBJECT_DX: snprintf(text, 48, is_received ? "RECV:dx:%d" : "B%d", unit); break;
    case GX_OBJECT_SLOT: snprintf(text, 48, "F%d that keeps it, or R%d", unit, unit); break;
    case GX_OBJECT_DEFERRED: snprintf(text, 48, "b%d", unit); break;
    case GX_OBJECT_GRADS: snprintf(text, 48, "B%d or W%d", unit, unit); break;
    case GX_OBJECT_SHARD: snprintf(text, 48, "SCATTER%d", unit); break;
    case GX_OBJECT_WEIGHTS: snprintf(text, 48, "GATHER%d", unit); break;
    case GX_OBJECT_SUMS: snprintf(text, 48, "NORM%d", unit); break;
    case GX_OBJECT_COUNTS: snprintf(text, 48, "COUNT"); break;
    case GX_OBJECT_CLIP: snprintf(text, 48, "AGREE"); break;
    default: snprintf(text, 48, "nothing"); break;
    }
    return text;
}

static GxStatus gx__steps_refuse_missing(const GxStepsReplay *r, int i, int object, int unit, int micro_batch)
{
    char thing[96], maker[48], by[48];
    const GxThing *t = gx__steps_thing(r, object, unit, micro_batch);
    gx__steps_thing_name(object, unit, micro_batch, thing);
    // an F that kept no slot
    if (t->by >= 0 && !(object == GX_OBJECT_SLOT && r->s->action[t->by].what == GX_DO_FORWARD))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "it needs %s, which action %d (%s) has ended", thing, t->by,
                                gx_action_name(&r->s->action[t->by], by));
    return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "it needs %s: %s must come before", thing,
                            gx__steps_maker(r->p, object, unit, maker));
}

// ---- what the replay does not check: fields and positions ----------------------------------------------------------

static GxStatus gx__steps_check_unit(const GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const GxDoInfo *info = &gx__steps_do[a->what];
    const int units = a->what == GX_DO_REDUCE ? a->count : 1;
    if (info->by_unit && (a->unit < 0 || units < 1 || a->unit + units > r->p->units))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "%d units from unit %d on; units are 0 to %d", units, a->unit,
                                r->p->units - 1);
    if (info->by_unit && a->what != GX_DO_REDUCE && !gx__steps_is_message(a) && !gx_steps_is_mine(r->p, a->unit))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "unit %d is rank %d's, and this is rank %d", a->unit,
                                gx_steps_rank_of(r->p, gx_steps_stage_of(r->p, a->unit)), r->p->rank);
    if (info->by_micro_batch && (a->micro_batch < 0 || a->micro_batch >= r->p->micro_batches))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "micro-batches are 0 to %d", r->p->micro_batches - 1);
    return GX_OK;
}

static GxStatus gx__steps_check_supported(const GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const char *why = NULL;
    switch (a->what) {
    case GX_DO_SPILL:
    case GX_DO_FETCH: why = "offloaded rows"; break;
    case GX_DO_STEP: why = a->at == GX_AT_DEVICE ? NULL : "an optimizer on the host"; break;
    case GX_DO_REDUCE:
        why = a->peer >= 0 || (a->object != GX_OBJECT_GRADS && a->object != GX_OBJECT_SHARD)
                  ? "sums with one peer, and of what is no gradient,"
              : a->object == GX_OBJECT_SHARD && (a->count != 1 || a->ticket >= 0)
                  ? "sums of several units' shards at once, or of shards with a ticket,"
                  : NULL;
        break;
    default: break;
    }
    if (a->after >= 0) why = "chains (`after`)";
    return why ? gx__steps_refuse(r, i, GX_ERR_UNSUPPORTED, "%s cannot be checked yet", why) : GX_OK;
}

// Only ranks that share units scatter gradients and gather weights.
static GxStatus gx__steps_check_shares(const GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const int sharded = r->p->sharded;
    const char *why = NULL;
    switch (a->what) {
    case GX_DO_GATHER:
    case GX_DO_SCATTER: why = sharded ? NULL : "no ranks share units in this list"; break;
    case GX_DO_FREE: why = sharded == GX__STEPS_WEIGHTS_SHARDED ? NULL : "whole weights stay in this list"; break;
    case GX_DO_REDUCE:
        why = sharded && a->object == GX_OBJECT_GRADS    ? "ranks share units in this list: SCATTER sums their "
                                                           "gradients, and REDUCE the shards of these"
              : !sharded && a->object == GX_OBJECT_SHARD ? "no ranks share units in this list"
                                                         : NULL;
        break;
    default: break;
    }
    return why ? gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "%s", why) : GX_OK;
}

static GxStatus gx__steps_check_half(const GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const int has_half = a->unit > 0 && a->unit < r->p->units - 1 && gx_steps_is_trained(r->p, a->unit);
    if ((unsigned)a->half > GX_HALF_INPUT_X || (a->what == GX_DO_WEIGHT && a->half == GX_HALF_NONE))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "half is %d; of B it is 0 to 2, of W what its B has", a->half);
    if (a->half != GX_HALF_NONE && !has_half)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT,
                                "unit %d has no weight half of its own: it is the embedding, the head, or frozen",
                                a->unit);
    if (a->half != gx__steps_half(r->p, a->unit))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "half is %d; of this unit it is %d, as the specification defers",
                                a->half, gx__steps_half(r->p, a->unit));
    return GX_OK;
}

static GxStatus gx__steps_check_before_norm(const GxStepsReplay *r, int i)
{
    if (r->norm < 0) return GX_OK;
    return gx__steps_refuse(r, i, GX_ERR_ARGUMENT,
                            "action %d is a NORM, which waits for the ranks before: messages come first", r->norm);
}

// A message with a unit's input or its gradient must be between this rank and the right one.
static GxStatus gx__steps_check_message(const GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const int is_send = a->what == GX_DO_SEND;
    GxStepsMessage m, other = {-1, -1, -1};
    for (int s = gx_steps_stage_of(r->p, a->unit), last = gx__steps_last_stage(r->p, a->unit); s <= last; s++) {
        if (!gx_steps_message(r->p, a->object, a->unit, s, &m)) continue;
        if (r->p->rank == (is_send ? m.from : m.to) && a->peer == (is_send ? m.to : m.from))
            return gx__steps_check_before_norm(r, i);
        other = m;
    }
    if (other.from < 0)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "no %s of unit %d goes from one rank to another",
                                gx_object_name(a->object), a->unit);
    return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "it goes from rank %d to rank %d", other.from, other.to);
}

static GxStatus gx__steps_check_tie(const GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    GxAction tie[GX_STEPS_TIES];
    const int n = a->count > 0 && a->count <= GX_STEPS_SHARED ? gx_steps_ties(r->p, a->count, tie) : 0,
              at = r->ties[gx_max(a->count, 0) % (GX_STEPS_SHARED + 1)]++;
    if (!n || tie[0].unit != a->unit)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "unit %d holds no trained tensor %d that another rank has, too",
                                a->unit, a->count);
    if (at >= n) return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "the %d TIEs of tensor %d have been done", n, a->count);
    if (a->peer != tie[at].peer || a->half != tie[at].half) {
        char name[48];
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "%s comes first", gx_action_name(&tie[at], name));
    }
    return gx__steps_check_before_norm(r, i);
}

static GxStatus gx__steps_check_axes(const GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const GxStepsSpec *p = r->p;
    const int agreed = a->what == GX_DO_COUNT ? p->count_axes : a->what == GX_DO_AGREE ? p->agree_axes : p->shard_axes;
    if (a->what != GX_DO_REDUCE)
        return a->axes == agreed
                   ? GX_OK
                   : gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "its axes are %d; they must be %d", a->axes, agreed);
    if (!a->axes || (a->axes & ~p->reduce_axes))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "its axes are %d; gradients are summed over %d", a->axes,
                                p->reduce_axes);
    return GX_OK;
}

static GxStatus gx__steps_check_fields(GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const GxStepsSpec *p = r->p;
    const int is_training = p->kind == GX_STEPS_TRAIN, what = a->what;
    if ((unsigned)what >= GX_DOS)
        return GX_FAIL(r->err, GX_ERR_ARGUMENT, "action %d: what is %d; it is 0 to %d", i, what, GX_DOS - 1);
    GX_TRY(gx__steps_check_supported(r, i));
    GX_TRY(gx__steps_check_unit(r, i));
    GX_TRY(gx__steps_check_shares(r, i));
    if (is_training && (i == 0) != (what == GX_DO_COUNT))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "COUNT is the first action of a training list, on all ranks");
    if (!is_training && what != GX_DO_FORWARD && !gx__steps_is_message(a) && what != GX_DO_GATHER &&
        what != GX_DO_FREE && what != GX_DO_WAIT)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "a list of evaluation or generation has forwards only");
    if (is_training && what == GX_DO_FORWARD && a->unit == r->p->units - 1)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "a head in training computes its forward in B%d", a->unit);
    if (what == GX_DO_FORWARD && (unsigned)a->keep > GX_KEEP_SLOT)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "keep is %d; it is 0 to 2", a->keep);
    if (what == GX_DO_NORM && r->norm < 0) r->norm = i;
    if (gx__steps_is_message(a)) GX_TRY(gx__steps_check_message(r, i));
    if (what == GX_DO_TIE) GX_TRY(gx__steps_check_tie(r, i));
    if (what == GX_DO_BACKWARD || what == GX_DO_WEIGHT) GX_TRY(gx__steps_check_half(r, i));
    if (what == GX_DO_COUNT || what == GX_DO_AGREE || what == GX_DO_REDUCE || what == GX_DO_GATHER ||
        what == GX_DO_SCATTER)
        GX_TRY(gx__steps_check_axes(r, i));
    if (what == GX_DO_STEP && p->sharded == GX__STEPS_WEIGHTS_SHARDED &&
        gx__steps_thing(r, GX_OBJECT_WEIGHTS, a->unit, -1)->is_there)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT,
                                "the whole weights of unit %d are there, and it would make them old: FREE%d must come "
                                "before",
                                a->unit, a->unit);
    return GX_OK;
}

// ---- effects -------------------------------------------------------------------------------------------------------

static int gx__steps_is_of_training(int object)
{
    return object == GX_OBJECT_GRADS || object == GX_OBJECT_SHARD || object == GX_OBJECT_SUMS;
}

// The contributions to a unit's gradients in a window: its own, and those of units that share a tensor that it holds.
static int gx__steps_contributions(const GxStepsSpec *p, int unit)
{
    int shared = 0;
    for (int u = 1; u < p->units && p->is_tied; u++)
        shared += gx_steps_held_by(p, u) == unit && gx__steps_trains_shared(p, gx__steps_shared(p, u)) &&
                  gx_steps_has_backward(p, u) && gx_steps_is_mine(p, u);
    return p->micro_batches * gx_steps_is_trained(p, unit) * (1 + shared);
}

// 1: all TIEs of the tensors that the unit holds have been done; otherwise *missing is the next one.
static int gx__steps_check_is_tied(const GxStepsReplay *r, int unit, GxAction *missing)
{
    GxAction tie[GX_STEPS_TIES];
    for (int number = 1; number <= GX_STEPS_SHARED; number++) {
        const int n = gx_steps_ties(r->p, number, tie);
        if (!n || tie[0].unit != unit || r->ties[number] >= n) continue;
        *missing = tie[r->ties[number]];
        return 0;
    }
    return 1;
}

// Shards are summed and squared only when they contain all contributions.
static GxStatus gx__steps_check_scattered(const GxStepsReplay *r, int i, int unit)
{
    const int expected = gx__steps_contributions(r->p, unit),
              times = gx__steps_scatters_each(r->p, unit) ? r->p->micro_batches : 1;
    if (r->scattered[unit] != expected)
        return gx__steps_refuse(
            r, i, GX_ERR_ARGUMENT,
            "the shard of unit %d's gradients has %d of %d contributions: SCATTER%d must come after the last", unit,
            r->scattered[unit], expected, unit);
    if (r->scatters[unit] != times)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT,
                                "%d of %d SCATTER%d have come: one must come after each micro-batch", r->scatters[unit],
                                times, unit);
    return GX_OK;
}

// Gradients are summed and squared only when they are complete, except by the SCATTER of each micro-batch.
static GxStatus gx__steps_check_complete(const GxStepsReplay *r, int i, int unit, int object)
{
    const GxStepsSpec *p = r->p;
    const int expected = gx__steps_contributions(p, unit), what = r->s->action[i].what, axes = r->s->action[i].axes;
    GxAction tie;
    if (object == GX_OBJECT_SHARD) GX_TRY(gx__steps_check_scattered(r, i, unit));
    if (what == GX_DO_SCATTER) r->scattered[unit] = r->added[unit], r->scatters[unit]++;
    if (what == GX_DO_SCATTER && gx__steps_scatters_each(p, unit)) return GX_OK;
    if (r->added[unit] != expected)
        return gx__steps_refuse(
            r, i, GX_ERR_ARGUMENT,
            "the gradients of unit %d have %d of %d contributions: every B%d (of a half, its W%d)%s "
            "must come before",
            unit, r->added[unit], expected, unit, unit,
            expected > p->micro_batches ? ", and the B of the units that share its tensor," : "");
    if (what != GX_DO_TIE && !gx__steps_check_is_tied(r, unit, &tie)) {
        char name[48];
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT,
                                "the gradients of unit %d lack those of rank %d, which has a tensor of it, too: %s "
                                "must come before",
                                unit, tie.peer, gx_action_name(&tie, name));
    }
    if (what == GX_DO_REDUCE && (r->reduced[unit] & axes))
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "the gradients of unit %d are summed over axes %d already", unit,
                                r->reduced[unit] & axes);
    if (what == GX_DO_NORM && r->reduced[unit] != p->reduce_axes)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT,
                                "the gradients of unit %d are summed over axes %d of %d: REDUCE must come before", unit,
                                r->reduced[unit], p->reduce_axes);
    if (what == GX_DO_REDUCE) r->reduced[unit] |= axes;
    return GX_OK;
}

static GxStatus gx__steps_apply_one(const GxStepsReplay *r, int i, int verb, int object, int unit, int micro_batch)
{
    GxThing *t = gx__steps_thing(r, object, unit, micro_batch);
    const int ticket = r->s->action[i].ticket, gives = verb == GX_MAKES || verb == GX_ADDS;
    char thing[96], by[48];
    const int reads = t->reader >= 0 && t->reader != ticket && verb != GX_USES, is_open = reads ? t->reader : t->ticket;
    if (is_open >= 0)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "action %d is still at %s: WAIT%d must come before",
                                r->open[is_open], gx__steps_thing_name(object, unit, micro_batch, thing), is_open);
    if (verb == GX_MAKES && t->is_there && t->by < 0)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "%s are there, and not old: STEP%d must come before",
                                gx__steps_thing_name(object, unit, micro_batch, thing), unit);
    if (verb == GX_MAKES && t->is_there)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "it makes %s, which action %d (%s) has made already",
                                gx__steps_thing_name(object, unit, micro_batch, thing), t->by,
                                gx_action_name(&r->s->action[t->by], by));
    if (!gives && !t->is_there) return gx__steps_refuse_missing(r, i, object, unit, micro_batch);
    // what a unit adds to a tensor that another one holds is never deferred
    const GxAction *a = &r->s->action[i];
    if (object == GX_OBJECT_GRADS && verb == GX_ADDS) r->added[unit] += gx__steps_completes(a) || a->unit != unit;
    if ((object == GX_OBJECT_GRADS || object == GX_OBJECT_SHARD) && (verb == GX_USES || verb == GX_CHANGES))
        GX_TRY(gx__steps_check_complete(r, i, unit, object));
    t->is_there = verb != GX_ENDS;
    if (gives || verb == GX_ENDS) t->by = i;
    if (verb != GX_USES) t->ticket = ticket; // what ends is still being read
    else if (ticket >= 0) t->reader = ticket;
    return GX_OK;
}

static GxStatus gx__steps_apply(const GxStepsReplay *r, int i)
{
    GxEffect e[GX_EFFECTS];
    const int n = gx_action_effects(r->p, &r->s->action[i], e);
    for (int k = 0; k < n; k++) {
        int units = 0;
        for (int u = e[k].unit; u < e[k].unit + e[k].count; u++) {
            if (gx__steps_is_of_training(e[k].object) && !gx__steps_trains(r->p, u)) continue; // it has none
            GX_TRY(gx__steps_apply_one(r, i, e[k].verb, e[k].object, u, e[k].micro_batch));
            units++;
        }
        if (!units && r->s->action[i].what != GX_DO_AGREE)
            return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "unit %d is frozen%s: it has no %s", e[k].unit,
                                    gx__steps_ranks(r->p) > 1 ? ", or another rank's" : "",
                                    gx_object_name(e[k].object));
    }
    return GX_OK;
}

// ---- tickets, once, the end ----------------------------------------------------------------------------------------

static GxStatus gx__steps_check_ticket(GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    const int t = a->ticket, what = a->what,
              starts = what == GX_DO_COUNT || what == GX_DO_REDUCE || what == GX_DO_AGREE || what == GX_DO_GATHER ||
                       what == GX_DO_SCATTER || gx__steps_is_message(a);
    const int64_t things = (int64_t)GX_OBJECTS * r->p->units * r->p->micro_batches;
    if (t < 0 && a->what != GX_DO_WAIT) return GX_OK;
    if (t < 0 || t >= GX_TICKETS)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "its ticket is %d; tickets are 0 to %d", t, GX_TICKETS - 1);
    if (a->what == GX_DO_WAIT) {
        if (r->open[t] < 0) return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "nothing is under way with ticket %d", t);
        r->open[t] = -1;
        for (int64_t k = 0; k < things; k++) {
            if (r->thing[k].ticket == t) r->thing[k].ticket = -1;
            if (r->thing[k].reader == t) r->thing[k].reader = -1;
        }
        return GX_OK;
    }
    if (!starts)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT,
                                "it has ticket %d; only what communicates is started and waited for", t);
    if (r->open[t] >= 0)
        return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "ticket %d is still open: action %d has it", t, r->open[t]);
    r->open[t] = i;
    return GX_OK;
}

// 1: the action may occur several times for a unit, depending on how many units are whole at once, on the
// micro-batches, or on the ranks that share a tensor or have the memory.
static int gx__steps_repeats(const GxStepsSpec *p, const GxAction *a)
{
    const int what = a->what;
    return what == GX_DO_REDUCE || what == GX_DO_GATHER || what == GX_DO_FREE || what == GX_DO_TIE ||
           (what == GX_DO_SCATTER && p->scatters_each) ||
           (gx__steps_is_message(a) && a->unit == gx_steps_behind_encoder(p));
}

// F, R, B, W, SEND, RECV, NORM and STEP of a unit (and micro-batch) occur once.
static GxStatus gx__steps_check_once(GxStepsReplay *r, int i)
{
    const GxAction *a = &r->s->action[i];
    if (gx__steps_repeats(r->p, a) || !gx__steps_do[a->what].by_unit) return GX_OK;
    int *seen = gx__steps_seen(r, a->what, a->unit, a->micro_batch);
    if (*seen >= 0) return gx__steps_refuse(r, i, GX_ERR_ARGUMENT, "it was done already: action %d", *seen);
    *seen = i;
    return GX_OK;
}

static GxStatus gx__steps_check_was_done(const GxStepsReplay *r, int what, int unit, int micro_batch)
{
    char name[48];
    GxAction a;
    memset(&a, 0, sizeof a);
    a.what = (int8_t)what, a.unit = (int16_t)unit, a.micro_batch = (int16_t)micro_batch, a.ticket = -1;
    if (*gx__steps_seen(r, what, unit, micro_batch) >= 0) return GX_OK;
    return gx__steps_refuse(r, -1, GX_ERR_ARGUMENT, "there was no %s", gx_action_name(&a, name));
}

static GxStatus gx__steps_check_all_done(const GxStepsReplay *r)
{
    const GxStepsSpec *p = r->p;
    const int is_training = p->kind == GX_STEPS_TRAIN, head = p->units - 1;
    for (int u = 0; u < p->units; u++) {
        if (!gx_steps_is_mine(p, u)) continue;
        for (int i = 0; i < p->micro_batches; i++) {
            if (u < head || !is_training) GX_TRY(gx__steps_check_was_done(r, GX_DO_FORWARD, u, i));
            if (!is_training || !gx_steps_has_backward(p, u)) continue;
            GX_TRY(gx__steps_check_was_done(r, GX_DO_BACKWARD, u, i));
            if (r->s->action[*gx__steps_seen(r, GX_DO_BACKWARD, u, i)].half != GX_HALF_NONE)
                GX_TRY(gx__steps_check_was_done(r, GX_DO_WEIGHT, u, i));
        }
        if (is_training && gx_steps_is_trained(p, u)) GX_TRY(gx__steps_check_was_done(r, GX_DO_STEP, u, -1));
    }
    if (is_training && !gx__steps_thing(r, GX_OBJECT_CLIP, -1, -1)->is_there)
        return gx__steps_refuse(r, -1, GX_ERR_ARGUMENT, "there was no AGREE");
    return GX_OK;
}

static int gx__steps_starts_with(const GxStepsSpec *p, int unit) // with its whole weights
{
    return gx_steps_is_mine(p, unit) && p->sharded != GX__STEPS_WEIGHTS_SHARDED;
}

static GxStatus gx__steps_check_weights(const GxStepsReplay *r)
{
    for (int u = 0; u < r->p->units; u++) {
        const int is_there = gx__steps_thing(r, GX_OBJECT_WEIGHTS, u, -1)->is_there;
        if (is_there == gx__steps_starts_with(r->p, u)) continue;
        return gx__steps_refuse(r, -1, GX_ERR_ARGUMENT, "the whole weights of unit %d are %s: %s%d is missing", u,
                                is_there ? "there, and were not at the start" : "not there, as they were at the start",
                                is_there ? "FREE" : "GATHER", u);
    }
    return GX_OK;
}

// Exactly what is there at the start must be there at the end: the weights.
static GxStatus gx__steps_check_end(const GxStepsReplay *r)
{
    static const int objects[] = {GX_OBJECT_X,        GX_OBJECT_DX,    GX_OBJECT_SLOT,
                                  GX_OBJECT_DEFERRED, GX_OBJECT_GRADS, GX_OBJECT_SHARD};
    char thing[96], by[48];
    GX_TRY(gx__steps_check_all_done(r));
    GX_TRY(gx__steps_check_weights(r));
    for (int t = 0; t < GX_TICKETS; t++)
        if (r->open[t] >= 0)
            return gx__steps_refuse(r, -1, GX_ERR_ARGUMENT, "action %d (%s) is still under way: WAIT%d is missing",
                                    r->open[t], gx_action_name(&r->s->action[r->open[t]], by), t);
    for (unsigned k = 0; k < sizeof objects / sizeof *objects; k++)
        for (int u = 0; u < r->p->units; u++)
            for (int i = 0; i < r->p->micro_batches; i++) {
                const GxThing *t = gx__steps_thing(r, objects[k], u, i);
                if (t->is_there)
                    return gx__steps_refuse(r, -1, GX_ERR_ARGUMENT, "nothing has ended %s, which action %d (%s) made",
                                            gx__steps_thing_name(objects[k], u, i, thing), t->by,
                                            gx_action_name(&r->s->action[t->by], by));
            }
    return GX_OK;
}

static GxStatus gx__steps_replay(GxStepsReplay *r)
{
    for (int i = 0; i < r->s->n; i++) {
        GX_TRY(gx__steps_check_fields(r, i));
        GX_TRY(gx__steps_check_ticket(r, i));
        GX_TRY(gx__steps_check_once(r, i));
        GX_TRY(gx__steps_apply(r, i));
    }
    return gx__steps_check_end(r);
}

GxStatus gx_steps_check(const GxSteps *s, GxError *err)
{
    GxStepsReplay r = GX_ZERO;
    const int64_t cells = (int64_t)s->spec.units * s->spec.micro_batches;
    const size_t things = (size_t)(GX_OBJECTS * cells) * sizeof *r.thing,
                 seen = (size_t)(GX_DOS * cells) * sizeof *r.seen, units = (size_t)s->spec.units * sizeof(int);
    char *memory = (char *)calloc(1, things + seen + 4 * units + (GX_STEPS_SHARED + 1) * sizeof(int));
    if (!memory)
        return GX_FAIL(err, GX_ERR_MEMORY, "the system refused %.1f MB to check a list of %d actions",
                       (double)(things + seen) / 1e6, s->n);
    r.s = s, r.p = &s->spec, r.err = err, r.norm = -1;
    r.thing = (GxThing *)memory;
    r.seen = (int *)(memory + things);
    r.added = (int *)(memory + things + seen);
    r.reduced = (int *)(memory + things + seen + units);
    r.scattered = (int *)(memory + things + seen + 2 * units);
    r.scatters = (int *)(memory + things + seen + 3 * units);
    r.ties = (int *)(memory + things + seen + 4 * units);
    for (int64_t i = 0; i < GX_OBJECTS * cells; i++) r.thing[i].ticket = r.thing[i].reader = r.thing[i].by = -1;
    for (int64_t i = 0; i < GX_DOS * cells; i++) r.seen[i] = -1;
    for (int t = 0; t < GX_TICKETS; t++) r.open[t] = -1;
    for (int u = 0; u < s->spec.units; u++)
        gx__steps_thing(&r, GX_OBJECT_WEIGHTS, u, -1)->is_there = gx__steps_starts_with(&s->spec, u);
    GxStatus status = gx__steps_replay(&r);
    free(memory);
    return status;
}
#endif
