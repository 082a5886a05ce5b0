// base/context.h: a GxContext holds everything that a rank has: device, communicator, memory, logger, error. There is
// no other state in the library, so several ranks can be threads of one process.
//
// Errors are sticky: the first one stays in g->error, and from then on operations on this context do nothing. So a step
// needs no check after every line; its caller checks once at its end: if (gx_failed(g)) ...
#ifndef GX_CONTEXT_H
#define GX_CONTEXT_H
#include "arena.h"
#include "log.h"
#include "recorder.h"
#include "status.h"
GX_BEGIN

typedef struct GxContext GxContext;
typedef struct GxDevice GxDevice;     // computes the operations (ops/device.h)
typedef struct GxComm GxComm;         // communicates with the other ranks (comm/engine.h); NULL: there are none
typedef struct GxMesh GxMesh;         // the ranks' arrangement (base/mesh.h)
typedef struct GxReporter GxReporter; // reports the progress of a run (run/reporter.h)

enum { GX_MAX_LOSSES = 4 }; // of a task, each with a count of its own

// The values that change with each step. They lie in device memory, where operations read them, so that a captured CUDA
// graph does not contain them as constants.
typedef struct {
    uint64_t seed, step;            // for random numbers; step: the number of windows of accumulation begun
    int64_t first_sample;           // the number, in the whole training, of this rank's first sample of the window
    int64_t labels[GX_MAX_LOSSES];  // the number of labels in this window, for each loss, on all ranks
    float lr;                       // this step's learning rate. The host writes up to here, the device from here on
    float clip;                     // the factor that clipping multiplies gradients by
    int64_t applied;                // optimizer steps applied so far, including this one: AdamW's t
    int64_t skip;                   // 1: gradients are not finite, and the optimizer changes nothing
    double sum_squares;             // of all gradients
    double loss_sum[GX_MAX_LOSSES]; // the sum of the window's losses, for each loss
} GxStep;

static inline double gx_step_loss(const GxStep *s) // the window's loss: the sum of the means of all losses
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
    GxArena *host;  // of the host's memory; NULL if the device computes in host memory: `arena` is then used for both
    GxRecorder *recorder; // NULL: nothing is recorded
    GxStep *step;         // in the device's memory
    // The step that gx_clip has filled in; optimizers refuse any other. Code that fills in a step itself must set this.
    const GxStep *clipped;
    GxLogger log;
    const GxReporter *reporter; // NULL: silence
    GxError error;              // the first one
    int rank, world;            // 0 and 1 without a communicator
    int local_rank;             // among the ranks on this machine: which of its cards is this rank's
    int threads;                // CPU threads of this rank; 0 counts as 1
    int tf32;                   // 1: a device may round the factors of fp32 products to TF32, 10 bits
    int unit;                   // for the recorder: the unit, and the block of it, that operations belong to
    const char *site;
    int pair;   // the pair of the unit
    int tensor; // 1 + the row of the table of tensors that operations work with, negated in its backward; 0: none
    // Called repeatedly while the host waits for the device. since: when the wait began (gx_seconds). The device may be
    // waiting for other ranks; if one of them is lost, this sets g->error, which ends the wait. since < 0: the last
    // call, after the device has finished. NULL: not called.
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
// Names the tensor that the operations until the next call work with. Returns the one before, to be named again.
static inline int gx_of_tensor(GxContext *g, int tensor)
{
    const int before = g->tensor;
    g->tensor = tensor;
    return before;
}

// Scratch, which an operation releases by gx_arena_release before it returns. NULL, and the context's error is set, if
// the arena is too small: more memory was taken than planned.
void *gx_scratch(GxContext *g, GxMemoryKind kind, int64_t bytes);
void *gx_allocate_from(GxContext *g, GxArena *a, GxMemoryKind kind,
                       int64_t bytes); // gx_arena_allocate with the same promise

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONTEXT_IMPLEMENTED)
#define GX_CONTEXT_IMPLEMENTED

void *gx_scratch(GxContext *g, GxMemoryKind kind, int64_t bytes) { return gx_allocate_from(g, g->arena, kind, bytes); }

void *gx_allocate_from(GxContext *g, GxArena *a, GxMemoryKind kind, int64_t bytes)
{
    if (!a) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "an operation needs %ld bytes of scratch, but the context has no arena",
                (long)bytes);
        return NULL;
    }
    void *p = gx_arena_allocate(a, kind, bytes);
    if (!p)
        GX_FAIL(&g->error, GX_ERR_MEMORY,
                "the arena of %ld bytes is full: %ld more for %s do not fit after the %ld in use", (long)a->capacity,
                (long)bytes, gx_memory_kind_name(kind), (long)a->used);
    return p;
}
#endif
