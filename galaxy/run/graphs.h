// graphs.h: work that a device has captured as graphs, kept under a key of everything that its arguments depend on.
//
// A graph repeats its operations with the arguments that they had when it was captured, and so do the collectives
// between two graphs (comm/captured.h). A graph may therefore be launched only if every argument would be the same
// again: the key (GxGraphKey, and which gradients have been written in this window) contains everything that arguments
// depend on, except what is in the device's memory. Work with a new key runs operation by operation, so that everything
// that is made only once (modules, workspaces, choices of algorithms) is made outside a capture. The second time it is
// captured and launched, and afterwards only launched.
//
//     GX_TRY(gx_graphs_open(&s, &m->store, &g->error));
//     gx_graphs_run(g, s, &key, work, user);             // in place of work(g, user)
//     gx_graphs_close(s);
//
// What arguments depend on, and where it is:
//     in memory    tokens, labels, positions, documents; the step's seed, number, first sample and learning rate, what
//                  losses are divided by (GxStep); weights, gradients, cosines and sines. They lie in the device's
//                  memory, at addresses that stay the same as long as the graphs are kept
//     in the key   which actions, which determines where their rows and slots lie, which micro-batch it is, and whether
//                  weight gradients are deferred; T and B, the batch's arrays and its runs of positions, the first
//                  sample's number in the window, a head's targets; where scratch begins; which gradients have been
//                  written, which determines whether a product writes or adds
//     constant     the model's shapes, strides, factors, sites and probabilities of dropout, eps
// A device with GxDevice.graph_compare (the emulator) captures again before each launch, and compares.
//
// Memory: graphs are kept for the first GX_GRAPHS_MOST keys, since every window has the same keys; the memory plan does
// not include what the device takes for them. Work with further keys runs operation by operation, after one warning.
#ifndef GX_GRAPHS_H
#define GX_GRAPHS_H
#include "../base/store.h"
#include "../comm/captured.h"
#include "../model/rows.h"
#include "../ops/device.h"
#include "../ops/memory.h"
GX_BEGIN

enum { GX_GRAPHS_MOST = 128 };

// Compared byte by byte, so the caller sets all of it to zero first (padding, too).
typedef struct {
    int64_t first, n; // actions [first, first + n) of the list
    int64_t scratch;  // bytes of the arena in use when the work begins
    GxBatch batch;    // without `sample` and `padding`, and without targets if no head is among the actions
    GxBatch source;   // the batch's, alike; zero: it has none
} GxGraphKey;

typedef struct GxGraphs GxGraphs;

GxStatus gx_graphs_open(GxGraphs **s, GxStore *store, GxError *err); // the store must outlive it
void gx_graphs_close(GxGraphs *s);                                   // accepts NULL

// 1 if the device has graphs and no recorder is on, since a recorder must see each operation.
int gx_graphs_are_possible(const GxContext *g);
void gx_graphs_run(GxContext *g, GxGraphs *s, const GxGraphKey *key, void (*work)(GxContext *g, void *user),
                   void *user);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GRAPHS_IMPLEMENTED)
#define GX_GRAPHS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

typedef struct {
    GxGraphKey key;
    uint8_t *before, *behind; // [rows of the tensor table] each: which gradients are written before and after the work
    GxCaptured *captured;     // NULL: the work has run once, and is captured the next time
} GxGraphPlace;

struct GxGraphs {
    GxStore *store;
    uint8_t *now; // [rows of the tensor table] which gradients have been written
    int n;        // place[0, n) are in use
    int is_full;  // the warning has been printed
    GxGraphPlace place[GX_GRAPHS_MOST];
};

GxStatus gx_graphs_open(GxGraphs **s, GxStore *store, GxError *err)
{
    *s = (GxGraphs *)calloc(1, sizeof **s);
    if (*s) (*s)->now = (uint8_t *)calloc((size_t)store->table->n + 1, 1);
    if (*s && (*s)->now) {
        (*s)->store = store;
        return GX_OK;
    }
    free(*s);
    *s = NULL;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d places of graphs", GX_GRAPHS_MOST);
}

void gx_graphs_close(GxGraphs *s)
{
    for (int i = 0; s && i < s->n; i++) {
        gx_captured_close(s->place[i].captured);
        free(s->place[i].before);
    }
    if (s) free(s->now);
    free(s);
}

int gx_graphs_are_possible(const GxContext *g) { return g->device->computes && g->device->graph_begin && !g->recorder; }

// The place of this key, given which gradients have been written. NULL: there is none.
static GxGraphPlace *gx__graphs_find(GxGraphs *s, const GxGraphKey *key)
{
    for (int i = 0; i < s->n; i++) {
        GxGraphPlace *p = &s->place[i];
        if (!memcmp(&p->key, key, sizeof *key) && !memcmp(p->before, s->now, (size_t)s->store->table->n)) return p;
    }
    return NULL;
}

static void gx__graphs_note(GxContext *g, GxGraphs *s, const GxGraphKey *key)
{
    const size_t rows = (size_t)s->store->table->n;
    GxGraphPlace *p = &s->place[s->n];
    if (s->n == GX_GRAPHS_MOST && !s->is_full)
        gx_log(&g->log, GX_LOG_WARNING,
               "rank %d keeps CUDA graphs of %d pieces of work, the most that it can; a step's later micro-batches are "
               "launched kernel by kernel",
               g->rank, GX_GRAPHS_MOST);
    s->is_full = s->n == GX_GRAPHS_MOST;
    if (s->is_full) return;
    p->before = (uint8_t *)calloc(2, rows + 1);
    if (!p->before) {
        GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the place of a graph");
        return;
    }
    p->behind = p->before + rows;
    memcpy(&p->key, key, sizeof *key);
    memcpy(p->before, s->now, rows);
    s->n++;
}

static void gx__graphs_compare(GxContext *g, const GxGraphPlace *p, void (*work)(GxContext *g, void *user), void *user)
{
    GxCaptured *now = gx_capture(g, work, user);
    if (now) gx_captured_compare(g, p->captured, now);
    gx_captured_close(now);
}

// To make a graph, the driver allocates memory on the card, and may wait for that until the card is idle. If ranks are
// threads of one process, it meanwhile blocks the other threads, even the one that would launch what the card waits
// for. The host therefore waits for the device first, including sums that were started (--reduce_bucket). It cannot
// wait for the other ranks: what they capture, and when, may differ (a rank of sp without a row that counts writes
// fewer gradients).
static void gx__graphs_capture(GxContext *g, GxGraphPlace *p, void (*work)(GxContext *g, void *user), void *user)
{
    if (g->comm && g->comm->device_engine) gx_comm_device_wait(g);
    if (!gx_failed(g)) p->captured = gx_capture(g, work, user);
}

void gx_graphs_run(GxContext *g, GxGraphs *s, const GxGraphKey *key, void (*work)(GxContext *g, void *user), void *user)
{
    if (gx_failed(g)) return;
    gx_store_written(s->store, s->now);
    GxGraphPlace *p = gx__graphs_find(s, key);
    if (!p) {
        gx__graphs_note(g, s, key);
        if (!gx_failed(g)) work(g, user);
        return;
    }
    if (!p->captured) {
        gx__graphs_capture(g, p, work, user);
        gx_store_written(s->store, p->behind);
    } else if (g->device->graph_compare) gx__graphs_compare(g, p, work, user);
    gx_store_set_written(s->store, p->behind);
    if (!gx_failed(g)) gx_captured_launch(g, p->captured);
}
#endif
