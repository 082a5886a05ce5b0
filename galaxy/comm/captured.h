// captured.h: a device's work with collectives in between, captured as graphs (GxDevice.graph_begin) and replayed.
//
// A graph cannot contain a collective: one that goes through the host's memory needs the host, and one by NCCL needs
// the host to watch it. So wherever a collective is started or waited for, one graph ends and the next begins. While
// work is captured, nothing runs and nothing is sent: an engine that stands in for the real one only keeps the calls.
// A launch runs graphs and collectives in the order in which they were captured, and the collectives in the usual way,
// by NCCL or by copies, with their headers, time-outs and errors. So ranks need not capture at the same time.
//
//     GxCaptured *c = gx_capture(g, work, user);             // calls work(g, user): only its host code takes effect
//     gx_captured_launch(g, c);                              // its device operations and collectives, any number
//                                                            // of times
//     gx_captured_close(c);
//
// Collectives of host buffers and transfers between two ranks cannot be captured, nor can the wait for a collective
// that was started before: they put the context into error.
//
// Memory: some 6 KB of the host's for each collective, and whatever the device takes for its graphs.
#ifndef GX_CAPTURED_H
#define GX_CAPTURED_H
#include "device_buffers.h"
GX_BEGIN

typedef struct GxCaptured GxCaptured;

// Returns NULL if it fails; the error is the context's.
GxCaptured *gx_capture(GxContext *g, void (*work)(GxContext *g, void *user), void *user);
void gx_captured_launch(GxContext *g, GxCaptured *c);
void gx_captured_close(GxCaptured *c); // NULL: nothing
// For tests, on a device with graph_compare: an error of the context if the two would not do the same.
void gx_captured_compare(GxContext *g, const GxCaptured *kept, const GxCaptured *now);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CAPTURED_IMPLEMENTED)
#define GX_CAPTURED_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// A graph, and the collective that is started or waited for after it; the last part has neither.
typedef struct {
    GxGraph *graph;
    GxCollective *call; // started after the graph. NULL: none
    GxTicket ticket;    // of the call, from its start to its wait
    int64_t awaited;    // the call of part number `awaited`, counted from 1, is waited for after the graph. 0: none
    int unit;
    const char *site;
} GxCapturedPart;

struct GxCaptured {
    const GxDevice *device;
    GxCapturedPart *part;
    int64_t n, room;
};

// ---- captured ------------------------------------------------------------------------------------------------------

// Ends the current graph and appends it as a part. Returns 0 after an error.
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

// The stand-in for the device's engine. A call's handle is the number of its part, from -1 down: the engine itself
// counts from 1 up, so that neither takes the other's for its own.
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
    return gx_failed(g) ? 0 : -c->n;
}

static void gx__comm_captured_wait(GxContext *g, int64_t number)
{
    GxCaptured *c = (GxCaptured *)g->comm->device_state;
    if (-number < 1 || -number > c->n || !c->part[-number - 1].call)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "work that is captured waits for a collective that was started before (unit %d, %s)", g->unit,
                g->site ? g->site : "-");
    if (gx_failed(g) || !gx__comm_captured_cut(g, c)) return;
    c->part[c->n - 1].awaited = -number;
    g->device->graph_begin(g);
}

static const GxDeviceEngine gx__comm_captured_engine = {"captured", gx__comm_captured_start, gx__comm_captured_wait,
                                                        NULL, NULL};

static int64_t gx__comm_captured_calls(const GxComm *comm) // collectives that went to the host's engine so far
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
            GxCollective call = *p->call; // a copy: running it changes it
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
                    "a collective that is kept is not what would be asked for without graphs: the one after graph %ld "
                    "(unit %d, %s)",
                    (long)i, a->unit, a->site ? a->site : "-");
    }
}
#endif
