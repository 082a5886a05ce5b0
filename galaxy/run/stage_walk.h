// stage_walk.h: what one rank of a stage would do in a training step of this run, if its stage had these layers, these
// ranks and this micro-batch: walked through on the device `none`, for its operations and its memory, or computed here,
// for their times.
//
// It is the run's own code: a model that is split as it would be, its list of actions, its memory. The other ranks do
// not exist: what they would send never arrives, so only times and sizes mean something.
//
//     const GxStageShape shape = gx_stage_shape(mode, 8);
//     GX_TRY(gx_stage_walk_once(session, &shape, &recorder, &needs, err));   // on the device `none`
//     needs.bytes, recorder.event ...
//
// To compute it here:
//
//     GX_TRY(gx_stage_walk_open(&w, session, &shape));
//     gx_stage_walk_dry(&w, NULL), gx_stage_walk_allocate(&w), gx_stage_walk_step(&w, &recorder);
//     gx_stage_walk_close(&w);                        // also after an error
//
// The session's data must be open (session_data.h); its model need not be.
#ifndef GX_STAGE_WALK_H
#define GX_STAGE_WALK_H
#include "session.h"
GX_BEGIN

typedef struct {
    int layers;
    int has_embedding, has_head; // 0: other stages have it
    int alive;                   // micro-batches whose activations are kept at once; at least 1
    int64_t micro_batch;         // samples
    int ranks, rank;             // of the group, and which of them
    // Each rank's share. n 0: even
    GxIntList heads, columns, vocab, rows;
    const GxMode *mode; // NULL: the session's
} GxStageShape;

typedef struct {
    int64_t bytes, host_bytes; // of the memory that has the arena; of the host's, if that is another
    int64_t kind[GX_MEM_KINDS];
    int units; // of the model that was walked through
} GxStageNeeds;

// One layer with both ends, on a stage of one rank.
static inline GxStageShape gx_stage_shape(const GxMode *mode, int64_t micro_batch)
{
    GxStageShape shape = GX_ZERO;
    shape.layers = shape.alive = shape.ranks = 1, shape.has_embedding = shape.has_head = 1;
    shape.micro_batch = micro_batch, shape.mode = mode;
    return shape;
}

typedef struct {
    GxContext g;    // a copy of the session's, in a world of the stage's ranks and its neighbours
    GxTrainRun run; // a copy of the run, with the shape's options
    GxSession s;
    GxArena arena, host_arena;
    GxStageNeeds needs; // by gx_stage_walk_dry
} GxStageWalk;

// Walks through a window on the device `none`, which rec (or NULL) records.
GxStatus gx_stage_walk_once(const GxSession *s, const GxStageShape *shape, GxRecorder *rec, GxStageNeeds *needs,
                            GxError *err);

GxStatus gx_stage_walk_open(GxStageWalk *w, const GxSession *s, const GxStageShape *shape);
// A window and a batch of a validation on the device `none`. rec (or NULL) records the window.
GxStatus gx_stage_walk_dry(GxStageWalk *w, GxRecorder *rec);
// After gx_stage_walk_dry: allocates that much, initializes the weights and loads samples. Then each call of
// gx_stage_walk_step computes a window, which rec (or NULL) records.
GxStatus gx_stage_walk_allocate(GxStageWalk *w);
GxStatus gx_stage_walk_step(GxStageWalk *w, GxRecorder *rec);
void gx_stage_walk_close(GxStageWalk *w);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STAGE_WALK_IMPLEMENTED)
#define GX_STAGE_WALK_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "session_memory.h"
#include "session_model.h"

// The stage is the first, the last, the only one, or between two others; these have a layer each.
static void gx__stage_walk_options(GxTrainOptions *o, const GxStageShape *shape)
{
    const int before = !shape->has_embedding, after = !shape->has_head;
    GxIntList *cut = &o->stage_num_hidden_layers_list;
    cut->n = 0;
    if (before) cut->v[cut->n++] = 1;
    cut->v[cut->n++] = shape->layers;
    if (after) cut->v[cut->n++] = 1;
    o->pp = cut->n, o->tp = shape->ranks;
    for (int i = 0; i < cut->n; i++) o->stage_warm_list.v[i] = shape->alive; // as many as there are micro-batches
    o->stage_warm_list.n = o->pp > 1 ? cut->n : 0;
    if (o->pp == 1) cut->n = 0;
    o->gradient_accumulation_steps = shape->alive;
    o->tp_num_attention_heads_list = shape->heads, o->tp_intermediate_size_list = shape->columns;
    o->tp_vocab_size_list = shape->vocab, o->seq_scatter_list = shape->rows;
    o->micro_batch_size = shape->micro_batch, o->global_batch_size = 0;
    o->dp_batch_size_list.n = o->dp_samples_list.n = o->stage_tp_list.n = 0;
    o->dp_shard_list.n = 0, o->dp_shard = o->dp_replicate = 0;
    o->cuda_graphs = 0;
}

static GxStatus gx__stage_walk_layers(GxTrainRun *r, int layers, GxError *err)
{
    const GxField *f = gx_family_field(r->family, "num_hidden_layers");
    void *config = malloc(r->family->config_size);
    if (!config) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    memcpy(config, r->model_config, r->family->config_size);
    r->model_config = config;
    if (f) *(int64_t *)gx_field_in(f, config) = layers;
    return GX_OK;
}

GxStatus gx_stage_walk_open(GxStageWalk *w, const GxSession *s, const GxStageShape *shape)
{
    const int before = !shape->has_embedding, after = !shape->has_head, stages = 1 + before + after;
    const int dims[GX_MESH_AXES] = {stages, 1, 1, 1, shape->ranks};
    memset(w, 0, sizeof *w);
    w->g = *s->g, w->run = *s->run;
    w->g.comm = NULL, w->g.recorder = NULL, w->g.log.write = NULL, w->g.arena = w->g.host = NULL;
    w->s.g = &w->g, w->s.run = &w->run, w->s.mode = shape->mode ? shape->mode : s->mode;
    w->g.rank = before * shape->ranks + shape->rank, w->g.world = stages * shape->ranks;
    gx__stage_walk_options(&w->run.o, shape);
    w->run.chosen = gx_options_choose(&w->run.o, NULL);
    w->run.chosen.order = GX_ORDER_1F1B, w->run.program_schedule = NULL;
    GX_TRY(gx__stage_walk_layers(&w->run, shape->layers + before + after, &w->g.error));
    GX_TRY(gx_mesh_open(&w->s.mesh, dims, w->g.rank, w->g.world, &w->g.error));
    w->g.mesh = &w->s.mesh;
    w->s.batch_split = gx_split_even(shape->micro_batch, 1);
    w->s.window = gx_window_of_equal(&w->s.batch_split, shape->alive);
    GX_TRY(gx_session_open_model(&w->s));
    const int64_t n = shape->alive + w->s.evals;
    w->s.batch = (GxBatch *)calloc((size_t)n, sizeof *w->s.batch);
    if (!w->s.batch) return GX_FAIL(&w->g.error, GX_ERR_MEMORY, "no memory for %ld micro-batches", (long)n);
    w->s.eval = w->s.batch + shape->alive;
    return GX_OK;
}

GxStatus gx_stage_walk_dry(GxStageWalk *w, GxRecorder *rec)
{
    GxContext dry = w->g;
    GxArena arena, host;
    GxStep step = GX_ZERO;
    GxComm nobody = GX_ZERO;
    GxDevice none = gx_device_none(w->g.device);
    gx_arena_open_dry(&arena);
    gx_arena_open_dry(&host);
    nobody.rank = dry.rank, nobody.world = dry.world;
    dry.arena = &arena, dry.device = &none;
    dry.host = none.shares_host_memory ? NULL : &host;
    if (dry.world > 1) gx_comm_open(&dry, &nobody); // decides how much scratch a sum takes
    gx_session_allocate(&w->s, &dry);
    dry.step = &step; // the counted memory has nothing behind its addresses
    dry.recorder = rec;
    gx_runner_train(&dry, &w->s.runner, w->s.batch, NULL, NULL);
    dry.recorder = NULL;
    gx_runner_forward(&dry, &w->s.runner, w->s.eval, w->s.eval_loss);
    gx_model_init(&dry, &w->s.model, 0);
    w->needs.bytes = arena.peak, w->needs.host_bytes = none.shares_host_memory ? 0 : host.peak;
    memcpy(w->needs.kind, arena.kind_peak, sizeof w->needs.kind);
    w->needs.units = w->s.model.units;
    w->g.error = dry.error;
    return gx_status(&w->g);
}

GxStatus gx_stage_walk_once(const GxSession *s, const GxStageShape *shape, GxRecorder *rec, GxStageNeeds *needs,
                            GxError *err)
{
    const size_t of_task = s->run->task->options.size;
    GxStageWalk *w = (GxStageWalk *)calloc(1, sizeof *w);
    void *self = malloc(of_task); // of the task: what it notes here must not reach a session that is training
    memset(needs, 0, sizeof *needs);
    if (!w || !self) {
        free(w);
        free(self);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory to walk through a stage");
    }
    memcpy(self, s->run->self, of_task);
    gx_stage_walk_open(w, s, shape);
    w->run.self = self;
    if (gx_failed(&w->g) || gx_stage_walk_dry(w, rec) != GX_OK) *err = w->g.error;
    else if (rec && rec->lost) GX_FAIL(err, GX_ERR_MEMORY, "no memory to record a step");
    *needs = w->needs;
    gx_stage_walk_close(w);
    free(w);
    free(self);
    return gx_error_code(err);
}

GxStatus gx_stage_walk_allocate(GxStageWalk *w)
{
    GxContext *g = &w->g;
    GxTrainRun *r = &w->run;
    GX_TRY(gx_arenas_open(g, &w->arena, &w->host_arena, w->needs.bytes, w->needs.host_bytes));
    gx_session_allocate(&w->s, g);
    gx_model_init(g, &w->s.model, (uint64_t)r->o.seed);
    for (int64_t i = 0; i < r->o.gradient_accumulation_steps && !gx_failed(g); i++) {
        w->s.batch[i].sample = i * r->o.micro_batch_size;
        r->task->batch.fill(g, r->self, &w->s.batch[i], gx_session_host_block(&w->s, i), (uint64_t)r->o.seed,
                            &g->error);
        gx_to_device(g, w->s.blocks + i * w->s.block_bytes, gx_session_host_block(&w->s, i), w->s.block_bytes);
    }
    const GxStep step = GX_ZERO;
    if (!gx_failed(g)) gx_to_device(g, g->step, &step, sizeof step);
    return gx_status(g);
}

GxStatus gx_stage_walk_step(GxStageWalk *w, GxRecorder *rec)
{
    w->g.recorder = rec;
    gx_runner_train(&w->g, &w->s.runner, w->s.batch, NULL, NULL);
    if (rec) gx_recorder_settle(rec);
    w->g.recorder = NULL;
    gx_device_wait(&w->g);
    return gx_status(&w->g);
}

void gx_stage_walk_close(GxStageWalk *w)
{
    gx_runner_close(&w->s.runner);
    gx_model_close(&w->s.model);
    free(w->s.batch);
    free(w->run.model_config);
    gx_arenas_close(&w->g, &w->arena, &w->host_arena);
    memset(w, 0, sizeof *w);
}
#endif
