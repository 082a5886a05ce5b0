// test_model.h: a LLaMA for tests: context, arena and model of one rank in one struct, its memory planned by a dry run as the trainer does.
#ifndef GX_TEST_MODEL_H
#define GX_TEST_MODEL_H
#include "galaxy.h"
#include "test.h"

typedef struct {
    GxContext g;
    GxArena arena;
    GxStep step;
    GxLlama m;
    GxOptimizer o;
    GxMesh mesh;
} TestModel;

static void test_model_take(TestModel *t, GxContext *g, int64_t T, int64_t B, int64_t chunk)
{
    int64_t n = gx_table_offset(&t->m.model.table, t->m.model.table.units);
    t->o.weights = (float *)gx_arena_take(g->arena, GX_MEM_WEIGHTS, 4 * n);
    t->o.grads = (float *)gx_arena_take(g->arena, GX_MEM_GRADS, 4 * n);
    t->o.first = (float *)gx_arena_take(g->arena, GX_MEM_OPTIMIZER, 4 * n);
    t->o.second = (float *)gx_arena_take(g->arena, GX_MEM_OPTIMIZER, 4 * n);
    gx_llama_take_buffers(g, &t->m, T, B, chunk);
    gx_model_attach(&t->m.model, t->o.weights, t->o.grads, &g->error);
}

// `comm`: an engine of several ranks, or NULL; `tp` of them to a group, the others data-parallel. lists NULL: even. 1: all is well.
__attribute__((unused)) static int test_model_open_split(TestModel *t, const GxLlamaConfig *config, const GxLlamaMode *mode, int64_t T,
                                                         int64_t B, int64_t chunk, GxComm *comm, int threads, int tp,
                                                         const GxSplitLists *lists)
{
    memset(t, 0, sizeof *t);
    GxContext *g = &t->g;
    GxArena dry_arena;
    g->device = gx_device_cpu();
    g->threads = threads;
    g->step = &t->step;
    g->world = comm ? comm->world : 1;
    g->rank = comm ? comm->rank : 0;
    int dims[GX_MESH_AXES] = {1, 1, -1, 1, tp};
    gx_mesh_open(&t->mesh, dims, g->rank, g->world, &g->error);
    g->mesh = &t->mesh;
    if (!CHECK(gx_llama_open(g, &t->m, config, mode, lists) == GX_OK, "%s", g->error.message)) return 0;
    GxContext dry = *g;
    GxDevice none = gx_device_none(g->device);
    GxComm nobody = GX_ZERO;
    GxBatch b = GX_ZERO;
    b.T = T, b.B = B, b.runs = gx_runs_one(T, 0);
    nobody.rank = g->rank, nobody.world = g->world;
    gx_arena_open_dry(&dry_arena);
    dry.arena = &dry_arena, dry.device = &none;
    if (comm) gx_comm_open(&dry, &nobody);
    test_model_take(t, &dry, T, B, chunk);
    gx_window_gradients(&dry, &t->m.model, &b, 1, &t->o, NULL, NULL);
    gx_window_update(&dry, &t->m.model, &t->o);
    if (comm) gx_comm_close(&dry);
    CHECK(!gx_failed(&dry), "dry run: %s", dry.error.message);
    if (!CHECK(gx_arena_open(&t->arena, dry_arena.peak, &g->error) == GX_OK, "%s", g->error.message)) return 0;
    g->arena = &t->arena;
    if (comm && !CHECK(gx_comm_open(g, comm) == GX_OK, "%s", g->error.message)) return 0;
    test_model_take(t, g, T, B, chunk);
    return CHECK(!gx_failed(g), "%s", g->error.message);
}

__attribute__((unused)) static int test_model_open(TestModel *t, const GxLlamaConfig *config, const GxLlamaMode *mode, int64_t T, int64_t B,
                                                   int64_t chunk, GxComm *comm, int threads)
{
    return test_model_open_split(t, config, mode, T, B, chunk, comm, threads, 1, NULL);
}

__attribute__((unused)) static void test_model_close(TestModel *t)
{
    if (t->g.comm) gx_comm_close(&t->g);
    gx_llama_close(&t->m);
    gx_arena_close(&t->arena);
}

// All reductions that a number of this model has passed through, forward: the depth for test_bound. A gradient has passed through three times as
// many: forward, and two matrix products for each of its own.
__attribute__((unused)) static double test_model_depth(const GxLlamaConfig *c, int64_t T, int backward)
{
    double layer = 4.0 * (double)c->hidden_size + (double)(c->head_dim + T + c->num_attention_heads * c->head_dim + c->intermediate_size);
    double forward = (double)c->num_hidden_layers * layer + (double)(c->hidden_size + c->vocab_size);
    return backward ? 3 * forward : forward;
}
#endif
