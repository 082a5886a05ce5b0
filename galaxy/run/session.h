// session.h: what a set of ranks opens for a run (run.h): the context, communicator and mesh, the model as it is split
// among them, memory, batches. It is opened and closed by session_open.h, in stages, each in a file of its own:
//
//     communicator  session_agree.h   the ranks find each other and agree: the checkpoint that the run continues
//                                     from, if any, options, the model's configuration
//     plan          planner.h         with --plan: which rank computes what; then the mesh
//     data          session_data.h    the batch; the task opens its data, on which the ranks agree, too; the steps
//     model         session_model.h   stages, model, the lists of steps
//     memory        session_memory.h  planned from a step on the device `none`; then exactly as planned
//     weights       session_weights.h initialized, loaded or resumed
#ifndef GX_SESSION_H
#define GX_SESSION_H
#include "../base/mesh.h"
#include "../model/model.h"
#include "interpreter.h"
#include "optimizer.h"
#include "plan.h"
#include "run.h"
#include "window.h"
#include <stdio.h>
GX_BEGIN

// What a GxRunExtends (side_cache.h) adds to a session before its memory is planned. All zero: nothing.
typedef struct {
    const GxUnitCache *cache;                                 // of layers' outputs; NULL: none
    void (*allocate)(void *self, GxSession *s, GxContext *g); // memory of its own, after the model's
    // The number, within the first epoch, of the first sample in micro-batch `number` of the run.
    int64_t (*sample)(const void *self, const GxSession *s, int64_t number);
    int64_t epoch;               // micro-batches of an epoch; 0: not known, in a dry run
    double (*share)(void *self); // fraction of the micro-batches since the last call that were found in the cache
    void (*describe)(const void *self, const GxSession *s, FILE *out); // for the plan
    void (*tell)(void *self, GxSession *s); // at the end of the training: a line about the current epoch
    void *self;
} GxSessionExtra;

struct GxSession {
    GxContext *g;
    GxTrainRun *run;
    const GxMode *mode; // the program's own, or &composed
    GxMode composed;    // of --mode, or --att, --con, --mlp
    GxMesh mesh;
    GxSplit batch_split;             // samples of each rank in a micro-batch, the most if its window is its own
    GxWindow window;                 // which samples of a window each copy of the model takes now
    int16_t stage[GX_MAX_PARTS + 1]; // of a pipeline: the first unit of each stage, and the number of units (stages.h)
    int16_t warm[GX_MAX_PARTS];      // of each stage: forwards ahead, beyond those of 1F1B
    GxModel model;
    GxRunner runner;
    GxOptimizer optimizer;
    GxSessionExtra extra;
    // memory
    GxPlan plan;
    GxArena arena, host_arena; // exactly as planned: the device's memory; the host's, if that is separate
    // [gx_session_micro_most + evals]: the window's micro-batches, then a validation's; then as many for their sources
    GxBatch *batch;
    GxBatch *eval;       // [evals]
    int evals;           // micro-batches of a validation that are in flight at once (gx_stages_evals)
    int64_t source_len;  // tokens of a column of sources; 0: the task has none
    int64_t block_bytes; // size of a task's data in a micro-batch
    char *blocks;        // [gx_session_blocks][block_bytes]
    char *blocks_host;   // the same in the host's memory
    char *whole;         // with cp: a micro-batch of whole sequences, in the host's memory
    double *eval_loss;   // [GX_MAX_LOSSES]: sums over a validation
    // the last step
    GxStep seen; // g->step as the host last read it
    int is_seen; // 1: `seen` is up to date
};

// Whether this rank prints and writes, and how many samples of a micro-batch it takes.
static inline int gx_session_is_first(const GxSession *s) { return s->g->rank == 0; }
static inline int64_t gx_session_samples(const GxSession *s)
{
    return gx_split_part(&s->batch_split, gx_mesh_index(&s->mesh, GX_AXIS_DP));
}
// This rank's first sample, among those of a micro-batch of all ranks.
static inline int64_t gx_session_first_sample(const GxSession *s)
{
    return s->batch_split.begin[gx_mesh_index(&s->mesh, GX_AXIS_DP)];
}
// This rank's micro-batches of a window: how many now, how many at most, and the samples of the i-th, counted from the
// window's first sample.
static inline int64_t gx_session_micro_batches(const GxSession *s)
{
    return gx_window_micro_batches(&s->window, gx_mesh_index(&s->mesh, GX_AXIS_DP));
}
int64_t gx_session_micro_most(const GxSession *s);
static inline GxRange gx_session_range(const GxSession *s, int64_t i)
{
    return gx_window_range(&s->window, gx_mesh_index(&s->mesh, GX_AXIS_DP), i);
}
// The number, in the whole training, of the first sample in this rank's micro-batch i of the window that begins.
static inline int64_t gx_session_sample_of(const GxSession *s, int64_t i)
{
    if (!s->extra.sample) return s->run->at.samples + gx_session_range(s, i).begin;
    return s->extra.sample(s->extra.self, s, s->run->at.samples / gx_split_total(&s->batch_split) + i) +
           gx_session_first_sample(s);
}

// Micro-batch i of s->batch has its data in block i % gx_session_blocks: windows and validations take turns, and share
// blocks.
static inline int64_t gx_session_blocks(const GxSession *s)
{
    return gx_max(gx_session_micro_most(s) + 1, (int64_t)s->evals);
}
// Rows of a sample on this rank.
static inline int64_t gx_session_rows(const GxSession *s)
{
    return s->model.cp.n > 1 ? gx_split_part(&s->model.cp.rows, s->model.cp.me) : s->run->o.seq_len;
}
// The host's copy of block i.
static inline void *gx_session_host_block(const GxSession *s, int64_t i) { return s->blocks_host + i * s->block_bytes; }

// The position of the run, as a checkpoint states it.
GxTrainState gx_session_state(const GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_IMPLEMENTED)
#define GX_SESSION_IMPLEMENTED
#include <string.h>

int64_t gx_session_micro_most(const GxSession *s)
{
    const int copy = gx_mesh_index(&s->mesh, GX_AXIS_DP);
    if (!gx_options_rebalances(&s->run->o, s->window.samples.n)) return gx_session_micro_batches(s);
    return gx_ceil_div(gx_window_most(&s->window, copy), gx_session_samples(s));
}

GxTrainState gx_session_state(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    GxTrainState state = GX_ZERO;
    state.step = r->at.step, state.applied = s->seen.applied, state.samples = r->at.samples;
    state.seed = r->o.seed, state.seq_len = r->o.seq_len, state.run = r->number;
    state.world = s->g->world, state.threads = gx_threads(s->g), state.base_hash = r->base_hash;
    snprintf(state.optimizer, sizeof state.optimizer, "%s", r->o.optimizer);
    gx_methods_text(s->mode->methods, state.methods, sizeof state.methods);
    state.dp_samples.n = s->window.is_own ? s->window.samples.n : 0;
    for (int i = 0; i < state.dp_samples.n; i++) state.dp_samples.v[i] = gx_split_part(&s->window.samples, i);
    state.best = r->best;
    if (state.best.step == r->at.step) gx_run_name_best(&state.best); // the checkpoint being written is the best one
    return state;
}
#endif
