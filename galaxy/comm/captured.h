// captured.h: work of a device that is captured (GxDevice.graph_begin), with the collectives that it asks for.
//
// A graph cannot hold a collective that goes through the host's memory, and the host must look after those of NCCL. So
// at each start of a collective, and at each wait for one, a graph ends and another begins. While work is captured
// nothing of it runs, and nobody is spoken to: what is asked of the communicator is kept, by an engine of buffers on
// the device that stands in for the real one. Launched, graphs and collectives come in the order in which they were
// asked for, the collectives as if they were asked for then: by NCCL or by copies, with headers, time-outs and errors
// as ever. So ranks of a group need not capture at the same time.
//
//     GxCaptured *c = gx_capture(g, work, user);             // the host's part of work(g, user) is done
//     gx_captured_launch(g, c);                              // the device's, and the communicator's
//     gx_captured_close(c);
//
// Collectives of the host's buffers cannot be kept, nor can transfers: that is the context's error.
//
// Memory: the host's, some 6 KB for each collective; what the device takes for its graphs.
#ifndef GX_CAPTURED_H
#define GX_CAPTURED_H
#include "device_buffers.h"
GX_BEGIN

typedef struct GxCaptured GxCaptured;

// NULL: the context has failed.
GxCaptured *gx_capture(GxContext *g, void (*work)(GxContext *g, void *user), void *user);
void gx_captured_launch(GxContext *g, GxCaptured *c);
void gx_captured_close(GxCaptured *c); // NULL: nothing
// For tests, of a device with graph_compare: the context's error where not both would do the same.
void gx_captured_compare(GxContext *g, const GxCaptured *kept, const GxCaptured *now);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CAPTURED_IMPLEMENTED)
#define GX_CAPTURED_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// A graph, and what is asked of the communicator behind it: of the last part nothing.
typedef struct {
    GxGraph *graph;
    GxCollective *call; // is started. NULL: none
    GxTicket ticket;    // of the call, while it is launched
    int64_t awaited;    // the number of the part whose call is waited for, from 1 on. 0: none
    int unit;
    const char *site;
} GxCapturedPart;

struct GxCaptured {
    const GxDevice *device;
    GxCapturedPart *part;
    int64_t n, room;
};

// ---- captured ------------------------------------------------------------------------------------------------------

// What was captured so far is a part. Returns 0 after an error.
static int gx__comm_captured_cut(GxContext *g, GxCaptured *c)
{
    GxGraph *graph = g->device->graph_end(g);
    if (graph && c->n == c->room) {
        const int64_t room = 2 * c->room + 1;
        GxCapturedPart *part = (GxCapturedPart *)realloc(c->part, (size_t)room * sizeof *part);
        if (part) c->part = part, c->room = room;
        else GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a list of %ld graphs", (long)room);
    }
    if (gx_failed(g)) {
        if (graph) g->device->graph_close(graph);
        return 0;
    }
    GxCapturedPart *p = &c->part[c->n++];
    memset(p, 0, sizeof *p);
    p->graph = graph, p->unit = g->unit, p->site = g->site;
    return 1;
}

// In place of a device's engine.
static int64_t gx__comm_captured_start(GxContext *g, const GxCollective *call)
{
    GxCaptured *c = (GxCaptured *)g->comm->device_state;
    if (call->operation == GX__COMM_SEND)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "transfers (unit %d, %s) in work that is captured", g->unit,
                g->site ? g->site : "-");
    if (gx_failed(g) || !gx__comm_captured_cut(g, c)) return 0;
    GxCapturedPart *p = &c->part[c->n - 1];
    p->call = (GxCollective *)malloc(sizeof *call);
    if (p->call) *p->call = *call;
    else GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a collective that is captured");
    if (!gx_failed(g)) g->device->graph_begin(g);
    return gx_failed(g) ? 0 : c->n;
}

static void gx__comm_captured_wait(GxContext *g, int64_t number)
{
    GxCaptured *c = (GxCaptured *)g->comm->device_state;
    if (gx_failed(g) || !gx__comm_captured_cut(g, c)) return;
    c->part[c->n - 1].awaited = number;
    g->device->graph_begin(g);
}

static const GxDeviceEngine gx__comm_captured_engine = {"captured", gx__comm_captured_start, gx__comm_captured_wait,
                                                        NULL};

static int64_t gx__comm_captured_calls(const GxComm *comm) // that the host's engine was asked for
{
    int64_t n = 0;
    for (int axes = 0; comm && axes <= GX_AXIS_ALL; axes++) n += comm->sequence[axes];
    return n;
}

static void gx__comm_captured_work(GxContext *g, GxCaptured *c, void (*work)(GxContext *g, void *user), void *user)
{
    const int64_t calls = gx__comm_captured_calls(g->comm);
    g->device->graph_begin(g);
    if (!gx_failed(g)) work(g, user);
    if (!gx_failed(g) && gx__comm_captured_calls(g->comm) != calls)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "a collective of the host's buffers in work that is captured (before unit %d, %s, ended)", g->unit,
                g->site ? g->site : "-");
    gx__comm_captured_cut(g, c);
}

GxCaptured *gx_capture(GxContext *g, void (*work)(GxContext *g, void *user), void *user)
{
    GxComm *comm = g->comm;
    const GxDeviceEngine *engine = comm ? comm->device_engine : NULL;
    void *state = comm ? comm->device_state : NULL;
    GxCaptured *c = (GxCaptured *)calloc(1, sizeof *c);
    if (!c) {
        GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a list of graphs");
        return NULL;
    }
    c->device = g->device;
    if (comm) comm->device_engine = &gx__comm_captured_engine, comm->device_state = c;
    gx__comm_captured_work(g, c, work, user);
    if (comm) comm->device_engine = engine, comm->device_state = state;
    if (!gx_failed(g)) return c;
    gx_captured_close(c);
    return NULL;
}

void gx_captured_close(GxCaptured *c)
{
    for (int64_t i = 0; c && i < c->n; i++) {
        c->device->graph_close(c->part[i].graph);
        free(c->part[i].call);
    }
    if (c) free(c->part);
    free(c);
}

// ---- launched ------------------------------------------------------------------------------------------------------

void gx_captured_launch(GxContext *g, GxCaptured *c)
{
    for (int64_t i = 0; i < c->n && !gx_failed(g); i++) {
        GxCapturedPart *p = &c->part[i];
        g->device->graph_launch(g, p->graph);
        gx_at(g, p->unit, p->site);
        if (p->call && !gx_failed(g)) {
            GxCollective call = *p->call; // which is changed as it runs
            p->ticket = gx__comm_start_where(g, &call);
        }
        if (p->awaited) gx__comm_finish_where(g, c->part[p->awaited - 1].ticket);
    }
}

// ---- compared ------------------------------------------------------------------------------------------------------

static int gx__comm_captured_same_split(const GxSplit *a, const GxSplit *b)
{
    return a->n == b->n && !memcmp(a->begin, b->begin, (size_t)(a->n + 1) * sizeof *a->begin);
}

static int gx__comm_captured_same_call(const GxCollective *a, const GxCollective *b)
{
    if (!a || !b) return a == b;
    return a->operation == b->operation && a->axes == b->axes && a->detail == b->detail && a->dtype == b->dtype &&
           a->in == b->in && a->out == b->out && a->row == b->row && a->count == b->count &&
           gx__comm_captured_same_split(&a->to, &b->to) && gx__comm_captured_same_split(&a->from, &b->from);
}

void gx_captured_compare(GxContext *g, const GxCaptured *kept, const GxCaptured *now)
{
    if (kept->n != now->n)
        GX_FAIL(&g->error, GX_ERR_DEVICE, "%ld graphs are kept of what would be %ld now", (long)kept->n, (long)now->n);
    for (int64_t i = 0; i < kept->n && !gx_failed(g); i++) {
        const GxCapturedPart *a = &kept->part[i], *b = &now->part[i];
        g->device->graph_compare(g, a->graph, b->graph);
        if (a->awaited != b->awaited || a->unit != b->unit || !gx__comm_captured_same_call(a->call, b->call))
            GX_FAIL(&g->error, GX_ERR_DEVICE,
                    "a collective that is kept is not what would be asked for without graphs: the one behind graph %ld "
                    "(unit %d, %s)",
                    (long)i, a->unit, a->site ? a->site : "-");
    }
}
#endif
