// recorder.h: notes every operation and every collective that passes, with its bytes and FLOPs and the place in the
// model that asked for it. The FLOP count, the byte-count tests and the pictures of modes come from here: from the
// program's own path, on the device `none` without computing anything.
//
//     GxRecorder rec = GX_ZERO;
//     g->recorder = &rec;             // ... run a step ...
//     printf("%.1f GFLOP\n", rec.flops / 1e9);
//     gx_recorder_close(&rec);
#ifndef GX_RECORDER_H
#define GX_RECORDER_H
#include "common.h"
GX_BEGIN

typedef enum { GX_EVENT_OP = 0, GX_EVENT_COLLECTIVE } GxEventKind;
typedef struct {
    GxEventKind kind;
    const char *name; // "rms_norm_forward", "all_reduce": a literal
    const char *site; // which block asked: "att", "head"; a literal or NULL
    int unit;         // of which unit of the model
    int axes;         // collectives: mesh axes
    int64_t bytes;    // operations: read + written; collectives: what this rank sends
    double flops;     // of large models beyond 64 bits
} GxEvent;

typedef struct {
    GxEvent *event;
    int64_t n, capacity;
    double flops, bytes; // sums
    int64_t comm_bytes;
    int totals_only; // 1: sums, no list
    int lost;        // 1: memory ran out, the list is not whole (the sums are)
} GxRecorder;

void gx_recorder_add(GxRecorder *r, const GxEvent *e);
void gx_recorder_close(GxRecorder *r);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RECORDER_IMPLEMENTED)
#define GX_RECORDER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

void gx_recorder_add(GxRecorder *r, const GxEvent *e)
{
    if (e->kind == GX_EVENT_COLLECTIVE) r->comm_bytes += e->bytes;
    else r->bytes += (double)e->bytes, r->flops += e->flops;
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
    r->event[r->n++] = *e;
}

void gx_recorder_close(GxRecorder *r)
{
    free(r->event);
    memset(r, 0, sizeof *r);
}
#endif
