// steps_write.h: writes a rank's list of actions (steps.h), one call per action, so that a schedule can be spelled out
// in a source of its own, as a mode can (train_pp.cu). The list is checked, placed and run like any other, and tests
// check that it equals, action by action, the one that the generators make (steps_make.h).
//
// A schedule is a function that writes the micro-batches of a window, for the rank whose stage the writer names:
//
//     static void serial_window(GxStepsWriter *w)
//     {
//         for (int b = 0; b < w->micro_batches; b++) {
//             for (int u = w->first; u < w->last; u++) gx_put_forward(w, u, b);
//             for (int u = w->last - 1; u >= w->first; u--) gx_put_backward(w, u, b);
//         }
//     }
//     const GxStepsSchedule serial = {.name = "serial", .order = GX_ORDER_1F1B, .window = serial_window};
//     ...
//     GX_TRY(gx_steps_write(&s, &serial, &spec, err)); // in place of gx_steps_make
//
// What is the same for all schedules is added to it: COUNT, a layer's R before its B, REDUCE, NORM, AGREE, STEP; and if
// ranks share units, GATHER, FREE and SCATTER, unless the schedule writes these itself (train_fsdp.cu).
//
// A call that has nothing to do writes nothing: a micro-batch that the window does not have, the head's forward (in
// training its backward computes it), a backward below the lowest trained unit or of a bypassed unit, a message before
// the first stage or after the last, weights that are not sharded or not read, gradients of a frozen unit. So a
// schedule needs no conditions at the ends of its loops.
//
// Not supported: deferred weight gradients (W), several stages on a rank, more forwards ahead (GxStepsSpec.warm).
//
// Memory: a list that grows while it is written, and as much again when it is made.
#ifndef GX_STEPS_WRITE_H
#define GX_STEPS_WRITE_H
#include "steps.h"
GX_BEGIN

// All schedules that are spelled out. The source of each is train_<name>.cu, which defines gx_<name>. Programs, tests
// and pictures read this list.
#define GX_SCHEDULES(X) X(pp) X(fsdp)

typedef struct {
    const GxStepsSpec *spec;
    int stage, stages;      // this rank's, and how many there are
    int first, last;        // its units are [first, last)
    int micro_batches;      // of the window
    int is_outside;         // 1: a call named a unit that the model does not have
    int whole;              // units whose sharded weights are whole now
    struct GxActions *list; // what has been written
    // What this stage sends and receives, by object, X and DX: the memory, and the stream. Unit -1: nothing
    GxAction send[GX_OBJECT_DX + 1][2], receive[GX_OBJECT_DX + 1][2];
} GxStepsWriter;

typedef struct {
    const char *name;
    int order;                        // GxStepsOrder: the one whose lists are the same
    void (*window)(GxStepsWriter *w); // writes the micro-batches of a window
    int has_shards;                   // 1: for sharded weights: it writes GATHER, FREE and SCATTER itself
} GxStepsSchedule;

#define GX__SCHEDULE_DECLARE(name) extern const GxStepsSchedule gx_##name;
GX_SCHEDULES(GX__SCHEDULE_DECLARE)

void gx_put_forward(GxStepsWriter *w, int unit, int micro_batch);
void gx_put_backward(GxStepsWriter *w, int unit, int micro_batch);
// object: GX_OBJECT_X: sent to the next stage, received from the previous one; or GX_OBJECT_DX: sent to the nearest
// earlier stage that has a backward, received from the nearest later one. Between two stages of a decoder, the memory of
// its encoder goes with the one, and its gradient with the other.
void gx_put_send(GxStepsWriter *w, int object, int micro_batch);
void gx_put_receive(GxStepsWriter *w, int object, int micro_batch);
// gx_put_gather gathers the weights that a forward or a backward of the unit (what: GX_DO_FORWARD, GX_DO_BACKWARD)
// reads: its own, and those of the unit that holds a tensor that it shares. gx_put_free leaves only this rank's
// shards of them. If there was room for a unit between its FREE and its next GATHER, beside all that were whole
// (GxStepsSpec.gathered), it stays whole, and neither of the two is written.
void gx_put_gather(GxStepsWriter *w, int what, int unit);
void gx_put_free(GxStepsWriter *w, int what, int unit);
// The ranks' gradients of the unit are summed, and each rank keeps its part of the sum: once they have all
// contributions of the window, or, with GxStepsSpec.scatters_each, those of a micro-batch.
void gx_put_scatter(GxStepsWriter *w, int unit);

// Makes the list of rank spec->rank by a schedule, and checks it (gx_steps_check); gx_steps_check_ranks checks its
// messages against those of the other ranks. Not supported: lists that do not train, orders with several stages on a
// rank, forwards ahead (spec->warm), and a schedule with shards where not all of what it shards is sharded
// (spec->sharded 1, 2); if nothing is sharded (0), its calls for shards write nothing. Errors have the schedule's name.
// Close s.
GxStatus gx_steps_write(GxSteps *s, const GxStepsSchedule *schedule, const GxStepsSpec *spec, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_WRITE_IMPLEMENTED)
#define GX_STEPS_WRITE_IMPLEMENTED
#include <string.h>
#include "steps_check.h"
#include "steps_make.h"

static int gx__write_has(const GxStepsWriter *w, int micro_batch)
{
    return micro_batch >= 0 && micro_batch < w->micro_batches;
}

// 1: there is something to write.
static int gx__write_unit(GxStepsWriter *w, int unit, int micro_batch)
{
    const int is_outside = unit < 0 || unit >= w->spec->units;
    w->is_outside |= is_outside;
    return !is_outside && gx__write_has(w, micro_batch);
}

void gx_put_forward(GxStepsWriter *w, int unit, int micro_batch)
{
    GxAction a = gx__steps_action(GX_DO_FORWARD, unit, micro_batch);
    if (!gx__write_unit(w, unit, micro_batch) || unit == w->spec->units - 1) return;
    a.keep = (int8_t)gx__steps_keep(w->spec, unit);
    gx__steps_push(w->list, a);
}

void gx_put_backward(GxStepsWriter *w, int unit, int micro_batch)
{
    GxAction a = gx__steps_action(GX_DO_BACKWARD, unit, micro_batch);
    if (!gx__write_unit(w, unit, micro_batch) || !gx_steps_has_backward(w->spec, unit)) return;
    a.half = (int8_t)gx__steps_half(w->spec, unit);
    gx__steps_push(w->list, a);
}

static void gx__write_message(GxStepsWriter *w, GxAction of[][2], int object, int micro_batch)
{
    if (!gx__write_has(w, micro_batch) || (object != GX_OBJECT_X && object != GX_OBJECT_DX)) return;
    for (int i = 0; i < 2; i++) {
        GxAction a = of[object][i];
        a.micro_batch = (int16_t)micro_batch;
        if (a.unit >= 0) gx__steps_push(w->list, a);
    }
}

void gx_put_send(GxStepsWriter *w, int object, int micro_batch) { gx__write_message(w, w->send, object, micro_batch); }

void gx_put_receive(GxStepsWriter *w, int object, int micro_batch)
{
    gx__write_message(w, w->receive, object, micro_batch);
}

// ---- sharded weights -----------------------------------------------------------------------------------------------

// Writes the units that the action reads to unit[]; -1: none.
static void gx__write_reads(GxStepsWriter *w, int what, int of, int unit[GX__STEPS_READS])
{
    const GxStepsSpec *p = w->spec;
    const GxAction a = gx__steps_action(what, of, -1);
    for (int j = 0; j < GX__STEPS_READS; j++) unit[j] = -1;
    if (!gx__write_unit(w, of, 0) || p->sharded != GX__STEPS_WEIGHTS_SHARDED) return;
    if (what == GX_DO_FORWARD ? of < p->units - 1 : what == GX_DO_BACKWARD && gx_steps_has_backward(p, of))
        gx__steps_reads(p, &a, unit);
}

// Where the unit was freed, if there has been room for it ever since; -1: there has not.
static int gx__write_needless_free(const GxStepsWriter *w, int unit)
{
    int whole = w->whole; // other units, counted backwards
    for (int i = w->list->n - 1; i >= 0 && whole < w->spec->gathered; i--) {
        const GxAction *a = &w->list->action[i];
        if (a->what == GX_DO_FREE && a->unit == unit) return i;
        whole += (a->what == GX_DO_FREE) - (a->what == GX_DO_GATHER);
    }
    return -1;
}

static void gx__write_remove(GxStepsWriter *w, int i)
{
    GxAction *a = w->list->action + i;
    w->list->n--;
    memmove(a, a + 1, (size_t)(w->list->n - i) * sizeof *a);
}

void gx_put_gather(GxStepsWriter *w, int what, int unit)
{
    int of[GX__STEPS_READS];
    gx__write_reads(w, what, unit, of);
    for (int j = 0; j < GX__STEPS_READS; j++) { // the embedding stays whole rather than a head that shares its matrix
        if (of[j] < 0) continue;
        const int needless = gx__write_needless_free(w, of[j]);
        if (needless >= 0) gx__write_remove(w, needless);
        else gx__steps_push(w->list, gx__steps_shard_action(w->spec, GX_DO_GATHER, of[j]));
        w->whole++;
    }
}

void gx_put_free(GxStepsWriter *w, int what, int unit)
{
    int of[GX__STEPS_READS];
    gx__write_reads(w, what, unit, of);
    for (int j = 0; j < GX__STEPS_READS; j++) {
        if (of[j] < 0) continue;
        gx__steps_push(w->list, gx__steps_shard_action(w->spec, GX_DO_FREE, of[j]));
        w->whole--;
    }
}

void gx_put_scatter(GxStepsWriter *w, int unit)
{
    if (!gx__write_unit(w, unit, 0) || w->spec->sharded != GX__STEPS_WEIGHTS_SHARDED) return;
    if (gx__steps_trains(w->spec, unit)) gx__steps_push(w->list, gx__steps_shard_action(w->spec, GX_DO_SCATTER, unit));
}

// ---- lists ---------------------------------------------------------------------------------------------------------

// The messages about an object that this rank sends, or receives. Their unit is -1 if there is none.
static void gx__write_find(const GxStepsSpec *spec, int what, int object, GxAction found[2])
{
    GxStepsMessage m;
    int n = 0;
    for (int i = 0; i < 2; i++) found[i] = gx__steps_action(what, -1, -1), found[i].object = (int8_t)object;
    for (int u = 1; u < spec->units && n < 2; u++)
        for (int s = gx_steps_stage_of(spec, u), last = gx__steps_last_stage(spec, u); s <= last && n < 2; s++) {
            if (!gx_steps_message(spec, object, u, s, &m)) continue;
            if (spec->rank != (what == GX_DO_SEND ? m.from : m.to)) continue;
            found[n].unit = (int16_t)u;
            found[n++].peer = (int16_t)(what == GX_DO_SEND ? m.to : m.from);
        }
}

static void gx__write_open(GxStepsWriter *w, const GxStepsSpec *spec, GxActions *list)
{
    memset(w, 0, sizeof *w);
    w->spec = spec, w->list = list;
    w->stage = spec->rank, w->stages = gx_steps_stages(spec);
    w->first = gx_steps_begin(spec, w->stage), w->last = gx_steps_end(spec, w->stage);
    w->micro_batches = spec->micro_batches;
    for (int object = GX_OBJECT_X; object <= GX_OBJECT_DX; object++) {
        gx__write_find(spec, GX_DO_SEND, object, w->send[object]);
        gx__write_find(spec, GX_DO_RECV, object, w->receive[object]);
    }
}

GxStatus gx_steps_write(GxSteps *s, const GxStepsSchedule *schedule, const GxStepsSpec *spec, GxError *err)
{
    GxActions list = GX_ZERO;
    GxStepsWriter w;
    GxError why = GX_ZERO;
    const int has_shards = schedule->has_shards && spec->sharded;
    memset(s, 0, sizeof *s);
    GX_TRY(gx__steps_check_spec(spec, err));
    if (spec->kind != GX_STEPS_TRAIN || gx_order_info(spec->order)->chunks > 1)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "schedule %s writes lists that train, with one stage on each rank",
                       schedule->name);
    if (has_shards && spec->sharded != GX__STEPS_WEIGHTS_SHARDED)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "schedule %s shards weights, gradients and the optimizer's state (3), and sharded is %d",
                       schedule->name, spec->sharded);
    for (int r = 0; spec->warm && r < gx__steps_ranks(spec); r++)
        if (spec->warm[r])
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "schedule %s writes its own number of forwards ahead, and rank %d asks for %d more (warm)",
                           schedule->name, r, spec->warm[r]);
    gx__write_open(&w, spec, &list);
    schedule->window(&w);
    GX_TRY(gx__steps_finish(s, &list, spec, has_shards, err));
    if (w.is_outside) GX_FAIL(&why, GX_ERR_ARGUMENT, "it writes a unit outside of 0 to %d", spec->units - 1);
    else gx_steps_check(s, &why);
    if (!why.code) return GX_OK;
    gx_steps_close(s);
    return GX_FAIL(err, (GxStatus)why.code, "schedule %s, rank %d: %s", schedule->name, spec->rank, why.message);
}
#endif
