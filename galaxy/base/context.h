// context.h: one GxContext per rank holds everything that a rank has: device, communicator, memory, logger, error.
// There is no other state in the library, so several ranks can live in one process as threads.
//
// Errors are sticky: the first one stays in g->error, and from then on operations on this context do nothing. So a step
// is written without a check after every line; whoever runs it checks once at its end: if (gx_failed(g)) ...
#ifndef GX_CONTEXT_H
#define GX_CONTEXT_H
#include "arena.h"
#include "log.h"
#include "recorder.h"
#include "status.h"
GX_BEGIN

typedef struct GxContext GxContext;
typedef struct GxDevice GxDevice;     // where it is computed (ops/device.h)
typedef struct GxComm GxComm;         // who talks with the others (comm/engine.h); NULL: nobody else is there
typedef struct GxMesh GxMesh;         // the ranks' arrangement (base/mesh.h)
typedef struct GxReporter GxReporter; // who is told how a run goes on (run/report.h)

enum { GX_MAX_LOSSES = 4 }; // of a task, each with a count of its own

// What a step needs to know and a captured CUDA graph must not have baked in: it lies in device memory, and operations
// read it there.
typedef struct {
    uint64_t seed, step;            // of the random numbers: windows of accumulation begun
    int64_t first_sample;           // of this rank's, in the window: its number in the whole training
    int64_t labels[GX_MAX_LOSSES];  // that count in this window for each loss, on all ranks
    float lr;                       // this step's learning rate; up to here the host writes, from here on the device
    float clip;                     // the factor that clipping puts on gradients
    int64_t applied;                // optimizer steps applied so far, this one counted: AdamW's t
    int64_t skip;                   // 1: gradients are not finite, the optimizer leaves everything as it is
    double sum_squares;             // of all gradients
    double loss_sum[GX_MAX_LOSSES]; // of the window's labels
} GxStep;

static inline double gx_step_loss(const GxStep *s) // the window's: of each loss the mean, added up
{
    double loss = 0;
    for (int k = 0; k < GX_MAX_LOSSES; k++)
        if (s->labels[k]) loss += s->loss_sum[k] / (double)s->labels[k];
    return loss;
}

struct GxContext {
    const GxDevice *device;
    void *device_state; // streams and handles, of a device that has some (ops/memory.h)
    GxComm *comm;
    const GxMesh *mesh;
    GxArena *arena; // of the device's memory: operations take their scratch here and give it back before they return
    GxArena *host;  // of the host's memory; NULL where the device computes in that, and `arena` is both
    GxRecorder *recorder;  // NULL: nothing is noted
    GxStep *step;          // in the device's memory
    const GxStep *clipped; // the step that gx_clip has filled: optimizers refuse another; who fills one by hand sets it
    GxLogger log;
    const GxReporter *reporter; // NULL: silence
    GxError error;              // the first one
    int rank, world;            // 0 and 1 without a communicator
    int local_rank;             // among the ranks on this machine: which of its cards is this rank's
    int threads;                // CPU threads of this rank; 0 counts as 1
    int tf32;                   // 1: a device may round the factors of fp32 products to TF32, 10 bits
    int unit;                   // for the recorder: which unit, which block is at work
    const char *site;
    // Called again and again while the host waits for the device, since when (gx_seconds): what is waited for may
    // depend on other ranks, and where one of them is lost this sets the error, which ends the wait. since < 0: a last
    // look, the device is done. NULL: nobody looks.
    void (*while_waiting)(GxContext *g, double since);
};

static inline int gx_failed(const GxContext *g) { return gx_error_code(&g->error) != GX_OK; }
static inline GxStatus gx_status(const GxContext *g) { return gx_error_code(&g->error); }
static inline int gx_threads(const GxContext *g) { return g->threads > 0 ? g->threads : 1; }
static inline void gx_at(GxContext *g, int unit, const char *site)
{
    g->unit = unit;
    g->site = site;
}

// Scratch that an operation returns by gx_arena_release before it ends. NULL sets the context's error: the plan was not
// kept.
void *gx_scratch(GxContext *g, GxMemoryKind kind, int64_t bytes);
void *gx_take_from(GxContext *g, GxArena *a, GxMemoryKind kind, int64_t bytes); // gx_arena_take with the same promise

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONTEXT_IMPLEMENTED)
#define GX_CONTEXT_IMPLEMENTED

void *gx_scratch(GxContext *g, GxMemoryKind kind, int64_t bytes) { return gx_take_from(g, g->arena, kind, bytes); }

void *gx_take_from(GxContext *g, GxArena *a, GxMemoryKind kind, int64_t bytes)
{
    if (!a) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "an operation needs %ld bytes of scratch, but the context has no arena",
                (long)bytes);
        return NULL;
    }
    void *p = gx_arena_take(a, kind, bytes);
    if (!p)
        GX_FAIL(&g->error, GX_ERR_MEMORY, "the arena of %ld bytes is full: %ld more for %s do not fit behind %ld",
                (long)a->capacity, (long)bytes, gx_memory_kind_name(kind), (long)a->used);
    return p;
}
#endif
