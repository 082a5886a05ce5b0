// steps_make.h: makes lists of actions (steps.h): the order of micro-batches first, then passes that expand it and
// insert actions.
//
//     order      F, B, W of a stage's micro-batches (steps_order.h)
//     messages   SEND after the work that makes it, RECV before the work that begins after that. All ranks have their
//                messages in one order, that in which they are made, so ranks never wait for each other in a circle,
//                however long computations take
//     expand     from stages to units: in training a head has only B; units below the lowest trained unit and bypassed
//                units have no B, and keep nothing
//     recompute  R before B, if a layer kept its input only
//     tie        TIEs of tensors that other ranks have, too, after all of that: at the last contributions, ranks would
//                wait for each other in a circle
//     grads      REDUCE of a bucket of units after the last contribution to them, and WAIT if sums are started. For
//                units that ranks share, SCATTER, and REDUCE of the shard after the last one
//     sends      SEND goes before sums that stand between it and the work that makes what it sends, so that stages
//                sum side by side instead of one after another
//     weights    if they are sharded: GATHER before a use, FREE after the last one, or earlier if another unit needs
//                the room: the unit whose next use is latest is freed (Belady 1966)
//     window     COUNT first; at the end NORM of each unit, AGREE, STEP of each unit, GATHER of what must be whole
//     overlap    communication is started ahead, and waited for later (steps_overlap.h)
#ifndef GX_STEPS_MAKE_H
#define GX_STEPS_MAKE_H
#include "steps_list.h"
#include "steps_order.h"
#include "steps_overlap.h"
GX_BEGIN

// spec->stage, spec->warm, and what is said of units (recomputed, frozen, bypassed, shares) are copied.
GxStatus gx_steps_make(GxSteps *s, const GxStepsSpec *spec, GxError *err);

// Makes a list from n given actions, which are copied. Only the specification is checked.
GxStatus gx_steps_open(GxSteps *s, const GxStepsSpec *spec, const GxAction *action, int n, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_MAKE_IMPLEMENTED)
#define GX_STEPS_MAKE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// ---- specification -------------------------------------------------------------------------------------------------

// A tensor that ranks share is trained by all of them or by none.
static GxStatus gx__steps_check_shared(const GxStepsSpec *p, int number, GxError *err)
{
    for (int r = 0; r < gx__steps_ranks(p); r++) {
        const int holder = gx_steps_holder(p, r, number);
        if (holder <= 0 || gx_steps_is_trained(p, holder) == gx__steps_trains_shared(p, number)) continue;
        if (p->shares && gx_steps_is_trained(p, holder)) continue; // for another tensor
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "units 0 and %d share a tensor, and one of the two is trained and the other is not", holder);
    }
    return GX_OK;
}

static GxStatus gx__steps_check_stages(const GxStepsSpec *p, GxError *err)
{
    const GxOrderInfo *order = gx_order_info(p->order);
    const int ranks = gx__steps_ranks(p);
    if (p->rank < 0 || p->rank >= ranks)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d of a pipeline of %d ranks", p->rank, ranks);
    if (!p->stage && (ranks > 1 || order->chunks > 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "nothing says which units are in which of the %d stages of order %s",
                       ranks * order->chunks, order->name);
    if (!p->stage) return GX_OK;
    const int stages = gx_steps_stages(p);
    for (int s = 0; s < stages; s++)
        if (p->stage[s + 1] <= p->stage[s])
            return GX_FAIL(err, GX_ERR_ARGUMENT, "stage %d of %d has no unit: [%d, %d)", s, stages, p->stage[s],
                           p->stage[s + 1]);
    if (p->stage[0] != 0 || p->stage[stages] != p->units)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the %d stages have units %d to %d; they must be 0 to %d", stages,
                       p->stage[0], p->stage[stages] - 1, p->units - 1);
    for (int number = 1; number <= GX_STEPS_SHARED && p->is_tied; number++)
        GX_TRY(gx__steps_check_shared(p, number, err));
    return GX_OK;
}

static GxStatus gx__steps_check_spec(const GxStepsSpec *p, GxError *err)
{
    if (p->units < 2 || p->units > INT16_MAX)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a list of %d units; an embedding and a head are 2, and %d are the most",
                       p->units, INT16_MAX);
    if (p->micro_batches < 1 || p->micro_batches > INT16_MAX)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a list of %d micro-batches; it must be 1 to %d", p->micro_batches,
                       INT16_MAX);
    if ((unsigned)p->kind > GX_STEPS_FORWARD || (unsigned)p->order >= GX_ORDERS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "there is no list of kind %d in order %d", p->kind, p->order);
    GX_TRY(gx__steps_check_stages(p, err));
    if (p->kind == GX_STEPS_TRAIN) GX_TRY(gx_order_check(p, err));
    if ((p->count_axes | p->reduce_axes | p->agree_axes) & ~INT8_MAX)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "axes %d, %d, %d; masks of a mesh's axes are 0 to %d", p->count_axes,
                       p->reduce_axes, p->agree_axes, INT8_MAX);
    if (p->sharded < 0 || p->sharded > GX__STEPS_WEIGHTS_SHARDED || (p->shard_axes & ~INT8_MAX))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "sharded is %d over axes %d; it is 0 to 3", p->sharded, p->shard_axes);
    if (p->sharded == GX__STEPS_WEIGHTS_SHARDED && p->gathered < 1 + gx_steps_is_tied_here(p))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%d units' weights may be whole at once; it must be at least 1, and 2 where units "
                       "share a tensor",
                       p->gathered);
    if (p->scatters_each && p->sharded < 2)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "gradients are scattered in each micro-batch, and are not sharded");
    if (p->sharded && p->starts_sums)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "sums of shards cannot be started and waited for later");
    if (p->memory < 0 || (p->memory && p->memory > p->units - 4))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "unit %d of %d ends an encoder; behind it there must be an embedding, a layer and a head",
                       p->memory, p->units);
    if (p->memory && p->defers_weights)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "a model with an encoder and a decoder with deferred weight gradients");
    for (int u = 1; p->is_tied && p->shares && u < p->units; u++)
        if (p->shares[u] > GX_STEPS_SHARED)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "unit %d has tensor %d of unit 0's; at most %d can be shared", u,
                           p->shares[u], GX_STEPS_SHARED);
    if (p->bucket < 0) return GX_FAIL(err, GX_ERR_ARGUMENT, "a bucket of %d units; 0 is all of them", p->bucket);
    for (int u = 0; p->bypassed && u < p->units; u++)
        if (p->bypassed[u] && (u == p->units - 1 || gx_steps_is_trained(p, u)))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "unit %d is trained, or the head: gradients cannot pass it by", u);
    if (p->kind == GX_STEPS_TRAIN && gx_steps_lowest(p) == p->units)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "all %d units are frozen: there is nothing to train", p->units);
    return GX_OK;
}

// ---- passes: each makes a list from the one before -----------------------------------------------------------------

// The actions of this rank's stages. Until expand, an action's unit is its stage.
static void gx__steps_order(GxActions *out, const GxTimeline *t, const GxStepsSpec *p)
{
    const GxWork *work = &t->work[(int64_t)p->rank * t->most];
    for (int i = 0; i < t->n[p->rank]; i++) gx__steps_push_new(out, work[i].what, work[i].stage, work[i].micro_batch);
}

typedef struct {
    int64_t time; // at which it is made
    int stage;    // into which x goes, or out of which dx comes
    GxAction action;
} GxTimedMessage;

static int gx__steps_earlier(const void *a, const void *b) // at the same time: x first; the memory before the stream
{
    const GxTimedMessage *x = (const GxTimedMessage *)a, *y = (const GxTimedMessage *)b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->action.object != y->action.object) return x->action.object - y->action.object;
    if (x->stage != y->stage) return x->stage - y->stage;
    return x->action.unit != y->action.unit ? x->action.unit - y->action.unit
                                            : x->action.micro_batch - y->action.micro_batch;
}

// The messages with a unit's input or its gradient, into a stage or out of it, that this rank sends or receives: one
// for each micro-batch.
static int gx__steps_messages_of(const GxTimeline *t, const GxStepsSpec *p, int object, int unit, int stage,
                                 GxTimedMessage *message)
{
    GxStepsMessage of;
    if (!gx_steps_message(p, object, unit, stage, &of) || (of.from != p->rank && of.to != p->rank)) return 0;
    for (int b = 0; b < p->micro_batches; b++) {
        GxTimedMessage *m = &message[b];
        m->stage = stage;
        m->time = gx_timeline_end(t, object == GX_OBJECT_X ? GX_DO_FORWARD : GX_DO_BACKWARD, of.made_by, b);
        m->action = gx__steps_action(of.from == p->rank ? GX_DO_SEND : GX_DO_RECV, unit, b);
        m->action.object = (int8_t)object;
        m->action.peer = (int16_t)(of.from == p->rank ? of.to : of.from);
    }
    return p->micro_batches;
}

// A message is placed before the first work that begins at or after the time at which its data are made. So a rank
// sends right after the work that makes them.
static void gx__steps_messages(GxActions *out, const GxActions *in, const GxTimeline *t, const GxStepsSpec *p)
{
    const int stages = gx_steps_stages(p);
    int n = 0, at = 0;
    GxTimedMessage *message =
        (GxTimedMessage *)malloc((size_t)(4 * stages) * (size_t)p->micro_batches * sizeof *message);
    if (!message) {
        out->failed = 1;
        return;
    }
    // four per stage: x and the memory, and their gradients: dx is that of its lowest unit that has one
    for (int u = 1; u < p->units; u++)
        for (int s = gx_steps_stage_of(p, u), last = gx__steps_last_stage(p, u); s <= last; s++)
            for (int object = GX_OBJECT_X; object <= GX_OBJECT_DX; object++)
                n += gx__steps_messages_of(t, p, object, u, s, message + n);
    qsort(message, (size_t)n, sizeof *message, gx__steps_earlier);
    for (int i = 0; i < in->n; i++) {
        const GxAction *a = &in->action[i];
        const GxWork work = {a->what, a->unit, a->micro_batch};
        for (; at < n && message[at].time <= gx_timeline_start(t, &work); at++) gx__steps_push(out, message[at].action);
        gx__steps_push(out, *a);
    }
    for (; at < n; at++) gx__steps_push(out, message[at].action);
    free(message);
}

// What the forward keeps for a later backward.
static int gx__steps_keep(const GxStepsSpec *p, int unit)
{
    if (p->kind == GX_STEPS_FORWARD || !gx_steps_has_backward(p, unit)) return GX_KEEP_NOTHING;
    const int recomputes = p->recomputes_layers && (!p->recomputed || p->recomputed[unit]);
    return recomputes && gx__steps_is_layer(p, unit) ? GX_KEEP_INPUT : GX_KEEP_SLOT;
}

static void gx__steps_expand(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    const int is_training = p->kind == GX_STEPS_TRAIN, head = p->units - 1;
    for (int i = 0; i < in->n; i++) {
        GxAction a = in->action[i];
        const int stage = a.unit, is_forward = a.what == GX_DO_FORWARD;
        if (gx__steps_is_message(&a)) {
            gx__steps_push(out, a);
            continue;
        }
        const int first = gx_steps_begin(p, stage), n = gx_steps_end(p, stage) - first;
        for (int k = 0; k < n; k++) {
            const int u = is_forward ? first + k : first + n - 1 - k;
            a.unit = (int16_t)u;
            a.keep = (int8_t)(is_forward ? gx__steps_keep(p, u) : 0);
            a.half = (int8_t)(is_forward ? 0 : gx__steps_half(p, u));
            if (is_forward ? is_training && u == head : !gx_steps_has_backward(p, u)) continue;
            if (a.what != GX_DO_WEIGHT || a.half != GX_HALF_NONE) gx__steps_push(out, a);
        }
    }
}

static void gx__steps_recompute(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    for (int i = 0; i < in->n; i++) {
        const GxAction a = in->action[i];
        if (a.what == GX_DO_BACKWARD && gx__steps_keep(p, a.unit) == GX_KEEP_INPUT)
            gx__steps_push_new(out, GX_DO_RECOMPUTE, a.unit, a.micro_batch);
        gx__steps_push(out, a);
    }
}

static void gx__steps_ties(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    GxAction tie[GX_STEPS_TIES];
    for (int i = 0; i < in->n; i++) gx__steps_push(out, in->action[i]);
    for (int number = 1; number <= GX_STEPS_SHARED; number++)
        for (int i = 0, n = gx_steps_ties(p, number, tie); i < n; i++) gx__steps_push(out, tie[i]);
}

// The index of the last action that adds to the gradients of one of the units [first, last]; -1: none.
static int gx__steps_last_added(const GxActions *in, const GxStepsSpec *p, int first, int last)
{
    GxEffect e[GX_EFFECTS];
    for (int i = in->n - 1; i >= 0; i--)
        for (int k = gx_action_effects(p, &in->action[i], e) - 1; k >= 0; k--)
            if (e[k].object == GX_OBJECT_GRADS && (e[k].verb == GX_ADDS || e[k].verb == GX_CHANGES) &&
                e[k].unit >= first && e[k].unit <= last)
                return i;
    return -1;
}

// The REDUCE of the bucket whose highest unit is `last`, from the bucket's first trained unit to its last.
static GxAction gx__steps_reduce_of(const GxStepsSpec *p, int first, int last)
{
    while (first < last && !gx__steps_trains(p, first)) first++;
    while (first < last && !gx__steps_trains(p, last)) last--;
    GxAction a = gx__steps_action(GX_DO_REDUCE, first, -1);
    a.object = GX_OBJECT_GRADS;
    a.axes = (int8_t)p->reduce_axes;
    a.count = (int16_t)(last - first + 1);
    return a;
}

static void gx__steps_push_wait(GxActions *out, int sum)
{
    GxAction wait = gx__steps_action(GX_DO_WAIT, -1, -1);
    wait.ticket = (int8_t)(sum % GX_STEPS_SUMS);
    gx__steps_push(out, wait);
}

// Appends the list's sum number *sums.
static void gx__steps_push_reduce(GxActions *out, const GxStepsSpec *p, GxAction reduce, int *sums)
{
    if (p->starts_sums && *sums >= GX_STEPS_SUMS) gx__steps_push_wait(out, *sums);
    if (p->starts_sums) reduce.ticket = (int8_t)(*sums % GX_STEPS_SUMS);
    gx__steps_push(out, reduce);
    ++*sums;
}

// Buckets are counted from the head down, in the order in which gradients are computed.
static void gx__steps_reduce(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    const int size = p->bucket ? (int)gx_min(p->bucket, p->units) : p->units,
              buckets = (int)gx_ceil_div(p->units, size);
    int *behind = (int *)malloc((size_t)buckets * sizeof *behind), sums = 0;
    if (!behind) {
        out->failed = 1;
        return;
    }
    for (int k = 0; k < buckets; k++) {
        const int last = p->units - 1 - k * size;
        behind[k] = p->reduce_axes ? gx__steps_last_added(in, p, (int)gx_max(0, last - size + 1), last) : -1;
    }
    for (int i = 0; i < in->n; i++) {
        gx__steps_push(out, in->action[i]);
        for (int k = 0, last = p->units - 1; k < buckets; k++, last -= size)
            if (behind[k] == i)
                gx__steps_push_reduce(out, p, gx__steps_reduce_of(p, (int)gx_max(0, last - size + 1), last), &sums);
    }
    for (int k = (int)gx_max(0, sums - GX_STEPS_SUMS); p->starts_sums && k < sums; k++) gx__steps_push_wait(out, k);
    free(behind);
}

static GxAction gx__steps_shard_action(const GxStepsSpec *p, int what, int unit) // GATHER, FREE, SCATTER
{
    GxAction a = gx__steps_action(what, unit, -1);
    if (what != GX_DO_FREE) a.axes = (int8_t)p->shard_axes;
    return a;
}

// After the last contribution (for a tensor that units share, that of all of them), or after each micro-batch's. If
// only the optimizer's state is sharded, and nothing can overlap, after all work, from the head down.
static void gx__steps_scatter(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    const int is_late = p->sharded == 1 && !(p->overlaps & GX_OVERLAPS_SHARDS);
    int *behind = (int *)malloc((size_t)p->units * sizeof *behind);
    if (!behind) {
        out->failed = 1;
        return;
    }
    for (int u = 0; u < p->units; u++) behind[u] = gx__steps_trains(p, u) ? gx__steps_last_added(in, p, u, u) : -1;
    for (int i = 0; i < in->n; i++) {
        const GxAction *a = &in->action[i];
        gx__steps_push(out, *a);
        if (is_late || (!gx__steps_completes(a) && a->what != GX_DO_TIE)) continue;
        if (behind[a->unit] == i || (gx__steps_scatters_each(p, a->unit) && behind[a->unit] > i))
            gx__steps_push(out, gx__steps_shard_action(p, GX_DO_SCATTER, a->unit));
    }
    for (int u = p->units - 1; u >= 0 && is_late; u--)
        if (behind[u] >= 0) gx__steps_push(out, gx__steps_shard_action(p, GX_DO_SCATTER, u));
    free(behind);
}

static void gx__steps_grads(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    if (p->sharded && p->kind == GX_STEPS_TRAIN) gx__steps_scatter(out, in, p);
    else gx__steps_reduce(out, in, p);
}

static void gx__steps_push_sum_of_shards(GxActions *out, const GxStepsSpec *p, int unit)
{
    GxAction reduce = gx__steps_action(GX_DO_REDUCE, unit, -1);
    reduce.axes = (int8_t)p->reduce_axes, reduce.object = GX_OBJECT_SHARD, reduce.count = 1;
    gx__steps_push(out, reduce);
}

// REDUCE of a unit's shard after its last SCATTER, if the ranks that share it are replicated; if SCATTERs overlap, only
// before the next one, or at the end.
static void gx__steps_sum_shards(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    int *last = (int *)malloc((size_t)p->units * sizeof *last), unit = -1; // unit: whose shard is to be summed
    if (!last) {
        out->failed = 1;
        return;
    }
    for (int i = 0; i < in->n; i++)
        if (in->action[i].what == GX_DO_SCATTER) last[in->action[i].unit] = i;
    for (int i = 0; i < in->n; i++) {
        const GxAction *a = &in->action[i];
        const int is_last = a->what == GX_DO_SCATTER && last[a->unit] == i && p->reduce_axes;
        if (unit >= 0 && a->what == GX_DO_SCATTER) gx__steps_push_sum_of_shards(out, p, unit), unit = -1;
        gx__steps_push(out, *a);
        if (is_last && p->overlaps & GX_OVERLAPS_SHARDS) unit = a->unit;
        else if (is_last) gx__steps_push_sum_of_shards(out, p, a->unit);
    }
    if (unit >= 0) gx__steps_push_sum_of_shards(out, p, unit);
    free(last);
}

// ---- what is sent before sums --------------------------------------------------------------------------------------

static void gx__steps_sends(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    (void)p;
    for (int i = 0, at; i < in->n; i++) {
        gx__steps_push(out, in->action[i]);
        if (in->action[i].what != GX_DO_SEND || out->failed) continue;
        for (at = out->n - 1; at > 0; at--) {
            const int what = out->action[at - 1].what;
            if (what != GX_DO_REDUCE && what != GX_DO_SCATTER && what != GX_DO_WAIT) break;
            out->action[at] = out->action[at - 1];
        }
        out->action[at] = in->action[i];
    }
}

// ---- whole weights -------------------------------------------------------------------------------------------------

enum { GX__STEPS_READS = 2 }; // the most units whose weights an action reads

// Writes these units to unit[], the embedding first, -1 after the last.
static void gx__steps_reads(const GxStepsSpec *p, const GxAction *a, int unit[GX__STEPS_READS])
{
    GxEffect e[GX_EFFECTS];
    const int n = gx_action_effects(p, a, e);
    int k = 0;
    for (int j = 0; j < GX__STEPS_READS; j++) unit[j] = -1;
    for (int j = 0; j < n; j++)
        if (e[j].verb == GX_USES && e[j].object == GX_OBJECT_WEIGHTS) unit[k++] = e[j].unit;
}

typedef struct {
    int next;           // the next action that reads the same unit; the number of actions: none
    int gathers, frees; // before the action; after it
} GxStepsUse;           // a use of a unit's weights
typedef struct {
    const GxStepsSpec *p;
    GxStepsUse *use; // [actions][GX__STEPS_READS]
    int *next_of;    // [units]: the next action that reads it, including the current one
    int *last_of;    // [units]: the last use of a unit that is whole; -1: it is not whole
    int whole;       // how many units are whole
} GxStepsWhole;

static void gx__steps_end_whole(GxStepsWhole *w, int unit)
{
    w->use[w->last_of[unit]].frees = 1;
    w->last_of[unit] = -1;
    w->whole--;
}

// Frees the unit whose next use is latest, so never one that is read now. If that is both the head and the embedding
// whose matrix it shares, which are read together, it frees the head, which has few weights of its own.
static void gx__steps_make_room(GxStepsWhole *w)
{
    int last = -1;
    for (int u = 0; u < w->p->units; u++)
        if (w->last_of[u] >= 0 && (last < 0 || w->next_of[u] >= w->next_of[last])) last = u;
    if (last >= 0) gx__steps_end_whole(w, last);
}

// Decides which units are gathered before action i, and after which earlier uses others are freed to make room.
static void gx__steps_plan_weights(GxStepsWhole *w, const GxActions *in, int i)
{
    int unit[GX__STEPS_READS];
    GxStepsUse *use = w->use + i * GX__STEPS_READS;
    gx__steps_reads(w->p, &in->action[i], unit);
    for (int j = 0; j < GX__STEPS_READS && unit[j] >= 0; j++) {
        use[j].gathers = w->last_of[unit[j]] < 0;
        if (use[j].gathers && w->whole >= w->p->gathered) gx__steps_make_room(w);
        w->whole += use[j].gathers;
        w->last_of[unit[j]] = i * GX__STEPS_READS + j;
    }
    for (int j = 0; j < GX__STEPS_READS && unit[j] >= 0; j++) {
        w->next_of[unit[j]] = use[j].next;
        if (use[j].next == in->n) gx__steps_end_whole(w, unit[j]);
    }
}

static void gx__steps_push_with_weights(GxActions *out, const GxStepsWhole *w, const GxActions *in, int i)
{
    int unit[GX__STEPS_READS];
    const GxStepsUse *use = w->use + i * GX__STEPS_READS;
    gx__steps_reads(w->p, &in->action[i], unit);
    for (int j = 0; j < GX__STEPS_READS; j++)
        if (use[j].gathers) gx__steps_push(out, gx__steps_shard_action(w->p, GX_DO_GATHER, unit[j]));
    gx__steps_push(out, in->action[i]);
    for (int j = 0; j < GX__STEPS_READS; j++)
        if (use[j].frees) gx__steps_push(out, gx__steps_shard_action(w->p, GX_DO_FREE, unit[j]));
}

static void gx__steps_weights(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    const size_t uses = GX__STEPS_READS * (size_t)in->n, units = (size_t)p->units;
    int unit[GX__STEPS_READS];
    if (p->sharded != GX__STEPS_WEIGHTS_SHARDED) {
        for (int i = 0; i < in->n; i++) gx__steps_push(out, in->action[i]);
        return;
    }
    GxStepsWhole w = {p, (GxStepsUse *)calloc(1, uses * sizeof(GxStepsUse) + 2 * units * sizeof(int)), NULL, NULL, 0};
    if (!w.use) {
        out->failed = 1;
        return;
    }
    w.next_of = (int *)(w.use + uses), w.last_of = w.next_of + units;
    for (int u = 0; u < p->units; u++) w.next_of[u] = in->n, w.last_of[u] = -1;
    for (int i = in->n - 1; i >= 0; i--) {
        gx__steps_reads(p, &in->action[i], unit);
        for (int j = 0; j < GX__STEPS_READS && unit[j] >= 0; j++)
            w.use[i * GX__STEPS_READS + j].next = w.next_of[unit[j]], w.next_of[unit[j]] = i;
    }
    for (int i = 0; i < in->n; i++) gx__steps_plan_weights(&w, in, i);
    for (int i = 0; i < in->n; i++) gx__steps_push_with_weights(out, &w, in, i);
    free(w.use);
}

static void gx__steps_push_trained(GxActions *out, const GxStepsSpec *p, int what)
{
    for (int u = 0; u < p->units; u++)
        if (gx__steps_trains(p, u)) gx__steps_push_new(out, what, u, -1);
}

// STEP of each unit, and then GATHER of each that must be whole; or, if they overlap, of each after its own STEP.
static void gx__steps_push_steps(GxActions *out, const GxStepsSpec *p)
{
    const int gathers = p->sharded && p->sharded < GX__STEPS_WEIGHTS_SHARDED,
              overlap = (p->overlaps & GX_OVERLAPS_SHARDS) != 0;
    for (int turn = 0; turn < 2; turn++)
        for (int u = 0; u < p->units; u++) {
            if (!gx__steps_trains(p, u)) continue;
            if (turn == 0) gx__steps_push_new(out, GX_DO_STEP, u, -1);
            if (gathers && turn == !overlap) gx__steps_push(out, gx__steps_shard_action(p, GX_DO_GATHER, u));
        }
}

static void gx__steps_window(GxActions *out, const GxActions *in, const GxStepsSpec *p)
{
    const int is_training = p->kind == GX_STEPS_TRAIN;
    GxAction count = gx__steps_action(GX_DO_COUNT, -1, -1), agree = gx__steps_action(GX_DO_AGREE, -1, -1);
    count.axes = (int8_t)p->count_axes;
    agree.axes = (int8_t)p->agree_axes;
    if (is_training) gx__steps_push(out, count);
    for (int i = 0; i < in->n; i++) gx__steps_push(out, in->action[i]);
    if (!is_training) return;
    gx__steps_push_trained(out, p, GX_DO_NORM);
    gx__steps_push(out, agree);
    gx__steps_push_steps(out, p);
}

// ---- lists ---------------------------------------------------------------------------------------------------------

GxStatus gx_steps_open(GxSteps *s, const GxStepsSpec *spec, const GxAction *action, int n, GxError *err)
{
    const size_t buffers = GX__STEPS_MAKES * (size_t)n * sizeof(GxBuffer), actions = (size_t)n * sizeof(GxAction),
                 operands = (size_t)n * sizeof(GxOperands);
    memset(s, 0, sizeof *s);
    GX_TRY(gx__steps_check_spec(spec, err));
    const size_t stages = spec->stage ? (size_t)(gx_steps_stages(spec) + 1) * sizeof *spec->stage : 0,
                 warm = spec->warm ? (size_t)gx__steps_ranks(spec) * sizeof *spec->warm : 0;
    s->spec = *spec;
    const uint8_t **of_units[] = {&s->spec.recomputed, &s->spec.frozen, &s->spec.bypassed, &s->spec.shares};
    enum { OF_UNITS = sizeof of_units / sizeof *of_units };
    char *memory = (char *)calloc(1, buffers + actions + operands + stages + warm + OF_UNITS * (size_t)spec->units + 1);
    if (!memory)
        return GX_FAIL(err, GX_ERR_MEMORY, "the system refused %.1f MB for a list of %d actions",
                       (double)(buffers + actions + operands) / 1e6, n);
    s->memory = memory;
    s->buffer = (GxBuffer *)memory;
    s->action = (GxAction *)(memory + buffers);
    s->operands = (GxOperands *)(memory + buffers + actions);
    s->n = n;
    if (n) memcpy(s->action, action, actions);
    char *stage = memory + buffers + actions + operands;
    uint8_t *units = (uint8_t *)(stage + stages + warm);
    if (stages) s->spec.stage = (int16_t *)memcpy(stage, spec->stage, stages);
    if (warm) s->spec.warm = (int16_t *)memcpy(stage + stages, spec->warm, warm);
    for (int i = 0; i < OF_UNITS; i++, units += spec->units)
        if (*of_units[i]) *of_units[i] = (uint8_t *)memcpy(units, *of_units[i], (size_t)spec->units);
    for (int i = 0; i < n; i++) s->tickets = (int)gx_max(s->tickets, action[i].ticket + 1);
    return GX_OK;
}

static void gx__steps_pass(GxActions *list, void (*pass)(GxActions *, const GxActions *, const GxStepsSpec *),
                           const GxStepsSpec *spec)
{
    GxActions next = GX_ZERO;
    if (list->failed) return;
    pass(&next, list, spec);
    free(list->action);
    *list = next;
}

// Makes s from a list of a window's micro-batches, unit by unit, and the actions that surround all such lists. Frees
// the list. has_shards: the list already contains GATHER, FREE and SCATTER.
static GxStatus gx__steps_finish(GxSteps *s, GxActions *list, const GxStepsSpec *spec, int has_shards, GxError *err)
{
    gx__steps_pass(list, gx__steps_recompute, spec);
    gx__steps_pass(list, gx__steps_ties, spec);
    if (!has_shards) gx__steps_pass(list, gx__steps_grads, spec);
    gx__steps_pass(list, gx__steps_sum_shards, spec);
    gx__steps_pass(list, gx__steps_sends, spec);
    if (!has_shards) gx__steps_pass(list, gx__steps_weights, spec);
    gx__steps_pass(list, gx__steps_window, spec);
    gx__steps_pass(list, gx__steps_overlap, spec);
    const GxStatus status =
        list->failed
            ? GX_FAIL(err, GX_ERR_MEMORY, "the system refused memory for a list of %d units and %d micro-batches",
                      spec->units, spec->micro_batches)
            : gx_steps_open(s, spec, list->action, list->n, err);
    free(list->action);
    return status;
}

GxStatus gx_steps_make(GxSteps *s, const GxStepsSpec *spec, GxError *err)
{
    GxActions order = GX_ZERO, list = GX_ZERO;
    GxTimeline timeline;
    memset(s, 0, sizeof *s);
    GX_TRY(gx__steps_check_spec(spec, err));
    GxStatus status = gx_timeline_make(&timeline, spec, err);
    if (status == GX_OK) {
        gx__steps_order(&order, &timeline, spec);
        list.failed = order.failed;
        if (!list.failed) gx__steps_messages(&list, &order, &timeline, spec);
        gx__steps_pass(&list, gx__steps_expand, spec);
        status = gx__steps_finish(s, &list, spec, 0, err);
    }
    gx_timeline_close(&timeline);
    free(order.action);
    return status;
}
#endif
