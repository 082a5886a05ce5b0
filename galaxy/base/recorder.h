// base/recorder.h: records every operation and every collective of a run, with its dimensions, bytes and FLOPs, and the
// place in the model that it belongs to. The FLOP count, the byte-count tests and the pictures of modes come from such
// recordings: of the real program, but on the device `none`, which computes nothing.
//
//     GxRecorder rec = GX_ZERO;
//     g->recorder = &rec;             // ... run a step ...
//     printf("%.1f GFLOP\n", rec.flops / 1e9);
//     gx_recorder_close(&rec);
//
// The order of events shows what overlaps. A blocking collective is one event, with ticket 0. A started one is two
// events with the same ticket: GX_EVENT_COLLECTIVE where it is started, and later GX_EVENT_WAIT where it is waited for.
// The operations between these may overlap with it.
//
// With a clock, a recorder also reports how long each event took (run/profile.h). Functions of its owner may hear of
// every event and of every action of a list; and one recorder may pass everything on to another (`also`), so that
// several can be on at once.
#ifndef GX_RECORDER_H
#define GX_RECORDER_H
#include "dtype.h"
GX_BEGIN

typedef enum { GX_EVENT_OP = 0, GX_EVENT_COLLECTIVE, GX_EVENT_WAIT } GxEventKind;

// The dimensions of an operation; ops/device.h lists which they are. Unused ones, at the end, are 0.
typedef struct {
    int64_t n[4];
} GxDims;
static inline GxDims gx_dims(int64_t a, int64_t b, int64_t c, int64_t d)
{
    GxDims dims;
    dims.n[0] = a, dims.n[1] = b, dims.n[2] = c, dims.n[3] = d;
    return dims;
}

typedef struct {
    GxEventKind kind;
    const char *name; // "rms_norm_forward", "all_reduce", "wait": a literal
    const char *site; // which block asked: "att", "head"; a literal or NULL
    int unit;         // the unit of the model
    int pair;         // and the pair of that unit, where an operation belongs to one
    int tensor; // 1 + the row of the tensor that it works with (GxContext.tensor), negated in its backward; 0: none
    // which action of a list asked for it, and of which micro-batch: GxRecorder.action, .micro_batch
    int16_t action, micro_batch;
    int axes;      // collectives: mesh axes
    int64_t bytes; // operations: read + written; collectives: what this rank sends
    double flops;  // double, since those of large models exceed 64 bits
    GxDims dims;   // operations
    // collectives
    int64_t elements; // of the buffer; gather, scatter: of the whole; all-to-all: of all that this rank sends
    GxDtype dtype;
    int members;    // of the group
    int64_t ticket; // shared by a start and its wait: 1, 2, ... in a recording; 0: blocking
} GxEvent;

typedef struct GxRecorder GxRecorder;
struct GxRecorder {
    GxEvent *event;
    int64_t n, capacity;
    double flops, bytes; // sums
    int64_t comm_bytes;
    int64_t tickets; // given so far
    int totals_only; // 1: keeps the sums only, no list of events
    // with totals_only: how often each event counts in the sums, if it stands for several equal ones; 0: once
    int64_t times;
    // what every event gets: the action of a list (parallel/steps.h) that is running, as GxDo + 1, and its micro-batch.
    // action 0: no list is running
    int16_t action, micro_batch;
    int64_t number; // of that action in its list
    int lost;       // 1: memory ran out, so the list is incomplete (the sums are not)
    // clock: the time in seconds, read when an event begins, after all earlier work is done; NULL: no times. timed:
    // called with the duration of each event, up to the beginning of the next one or gx_recorder_settle
    double (*clock)(void *user);
    void (*timed)(void *user, const GxEvent *e, double seconds);
    void (*heard)(void *user, const GxEvent *e,
                  int64_t times); // every event, and how often it counts. NULL: not called
    // An action begins (its number is set), after the events before it have ended; or, with action 0, the list has
    // ended. NULL: not called
    void (*acted)(void *user);
    void *user;
    GxEvent running;
    double since; // when `running` began
    int is_running;
    GxRecorder *also; // gets every event and action, too; NULL: none
};

void gx_recorder_add(GxRecorder *r, const GxEvent *e); // copies it, and adds the action that is running
// Records the wait for a started collective: once, and only if its start is in the list or no list is kept.
void gx_recorder_wait(GxRecorder *r, int64_t ticket, const char *site, int unit);
// The next events belong to this action (GxDo + 1; 0: to none), of this number in its list, and count so often.
void gx_recorder_act(GxRecorder *r, int action, int micro_batch, int64_t number, int64_t times);
void gx_recorder_settle(GxRecorder *r); // with a clock: the current event ends here
void gx_recorder_close(GxRecorder *r);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RECORDER_IMPLEMENTED)
#define GX_RECORDER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

void gx_recorder_settle(GxRecorder *r)
{
    if (!r->is_running) return;
    r->is_running = 0;
    r->timed(r->user, &r->running, r->clock(r->user) - r->since);
}

void gx_recorder_act(GxRecorder *r, int action, int micro_batch, int64_t number, int64_t times)
{
    if (r->acted) gx_recorder_settle(r);
    r->action = (int16_t)action, r->micro_batch = (int16_t)micro_batch, r->number = number, r->times = times;
    if (r->acted) r->acted(r->user);
    if (r->also) gx_recorder_act(r->also, action, micro_batch, number, times);
}

void gx_recorder_add(GxRecorder *r, const GxEvent *added)
{
    GxEvent e = *added;
    e.action = r->action, e.micro_batch = r->micro_batch;
    if (r->also) gx_recorder_add(r->also, added);
    if (r->clock) {
        gx_recorder_settle(r);
        r->running = e, r->is_running = 1, r->since = r->clock(r->user);
    }
    const int64_t times = r->totals_only ? gx_max(1, r->times) : 1;
    if (r->heard) r->heard(r->user, &e, times);
    if (e.kind == GX_EVENT_COLLECTIVE) r->comm_bytes += times * e.bytes;
    else r->bytes += (double)times * (double)e.bytes, r->flops += (double)times * e.flops;
    if (r->totals_only || r->lost) return;
    if (r->n == r->capacity) {
        int64_t capacity = r->capacity ? 2 * r->capacity : 1024;
        GxEvent *grown = (GxEvent *)realloc(r->event, (size_t)capacity * sizeof *grown);
        if (!grown) {
            r->lost = 1;
            return;
        }
        r->event = grown;
        r->capacity = capacity;
    }
    r->event[r->n++] = e;
}

void gx_recorder_wait(GxRecorder *r, int64_t ticket, const char *site, int unit)
{
    int64_t i = r->n - 1;
    while (ticket && i >= 0 && r->event[i].ticket != ticket) i--;
    if (!ticket || (!r->totals_only && (i < 0 || r->event[i].kind == GX_EVENT_WAIT))) return;
    GxEvent e = GX_ZERO;
    e.kind = GX_EVENT_WAIT;
    e.name = "wait";
    e.site = site;
    e.unit = unit;
    e.ticket = ticket;
    gx_recorder_add(r, &e);
}

void gx_recorder_close(GxRecorder *r)
{
    free(r->event);
    memset(r, 0, sizeof *r);
}
#endif
