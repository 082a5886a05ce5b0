// context.h: one GxContext per rank holds everything that a rank has: device, communicator, memory, logger, error. There is no other state in
// the library, so several ranks can live in one process as threads.
//
// Errors are sticky: the first one stays in g->error, and from then on operations on this context do nothing. So a step is written without
// a check after every line; whoever runs it checks once at its end: if (gx_failed(g)) ...
#ifndef GX_CONTEXT_H
#define GX_CONTEXT_H
#include "arena.h"
#include "log.h"
#include "recorder.h"
#include "status.h"
GX_BEGIN

typedef struct GxDevice GxDevice; // where it is computed (ops/device.h)
typedef struct GxComm GxComm;     // who talks with the others (dist/comm.h); NULL: nobody else is there
typedef struct GxMesh GxMesh;     // the ranks' arrangement (dist/mesh.h)

// What a step needs to know and a captured CUDA graph must not have baked in: it lies in device memory, and operations read it there.
typedef struct {
    uint64_t seed, step; // of the random numbers: windows of accumulation begun
    int64_t applied;     // optimizer steps applied so far, this one counted: AdamW's t
    float lr, clip;      // this step's learning rate; the factor that clipping puts on gradients
    int32_t skip;        // 1: gradients are not finite, the optimizer leaves everything as it is
    double sum_squares;  // of all gradients
    double loss;         // sum of token losses / number of labels, of this window
} GxStep;

typedef struct {
    const GxDevice *device;
    GxComm *comm;
    const GxMesh *mesh;
    GxArena *arena;       // operations take their scratch here and give it back before they return
    GxRecorder *recorder; // NULL: nothing is noted
    GxStep *step;
    GxLogger log;
    GxError error;   // the first one
    int rank, world; // 0 and 1 without a communicator
    int threads;     // CPU threads of this rank; 0 counts as 1
    int unit;        // for the recorder: which unit, which block is at work
    const char *site;
} GxContext;

static inline int gx_failed(const GxContext *g) { return gx_error_code(&g->error) != GX_OK; }
static inline GxStatus gx_status(const GxContext *g) { return gx_error_code(&g->error); }
static inline int gx_threads(const GxContext *g) { return g->threads > 0 ? g->threads : 1; }
static inline void gx_at(GxContext *g, int unit, const char *site)
{
    g->unit = unit;
    g->site = site;
}

// Scratch that an operation returns by gx_arena_release before it ends. NULL sets the context's error: the plan was not kept.
void *gx_scratch(GxContext *g, GxMemoryKind kind, int64_t bytes);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONTEXT_IMPLEMENTED)
#define GX_CONTEXT_IMPLEMENTED

void *gx_scratch(GxContext *g, GxMemoryKind kind, int64_t bytes)
{
    if (!g->arena) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "an operation needs %ld bytes of scratch, but the context has no arena", (long)bytes);
        return NULL;
    }
    void *p = gx_arena_take(g->arena, kind, bytes);
    if (!p)
        GX_FAIL(&g->error, GX_ERR_MEMORY, "the arena of %ld bytes is full: %ld more for %s do not fit behind %ld", (long)g->arena->capacity,
                (long)bytes, gx_memory_kind_name(kind), (long)g->arena->used);
    return p;
}
#endif
