// step.h: what the benchmarks time: whole training steps (forward, backward, clipping, AdamW) of one rank of a LLaMA
// under a mode, on random tokens. Memory is planned by a dry run, as the trainer does; the plan, its FLOPs and the
// bytes that it sends are kept beside what was timed.
#ifndef BENCH_STEP_H
#define BENCH_STEP_H
#include "galaxy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t batch, seq, head_chunk, threads;
    char precision[GX_FIELD_TEXT], recompute[GX_FIELD_TEXT];
    int tf32, cuda_graphs;
} StepOptions;
static const GxField step_options[] = {
    {"batch", GX_FIELD_INT, offsetof(StepOptions, batch), "4", "samples, of all data-parallel ranks together", "1.."},
    {"seq", GX_FIELD_INT, offsetof(StepOptions, seq), "256", "tokens in a sample", "1.."},
    {"head_chunk", GX_FIELD_INT, offsetof(StepOptions, head_chunk), "512", "rows whose logits exist at once", "1.."},
    {"threads", GX_FIELD_INT, offsetof(StepOptions, threads), "2", "CPU threads of a rank", "1.."},
    {"precision", GX_FIELD_STRING, offsetof(StepOptions, precision), "fp32", "of weights and activations", "fp32|bf16"},
    {"tf32", GX_FIELD_BOOL, offsetof(StepOptions, tf32), "false", "products in fp32 on a card by TF32", NULL},
    {"cuda_graphs", GX_FIELD_BOOL, offsetof(StepOptions, cuda_graphs), "false",
     "on a card: a micro-batch's kernels are launched as one", NULL},
    {"recompute", GX_FIELD_STRING, offsetof(StepOptions, recompute), "none",
     "layer: keeps a layer's input and computes it again before its backward", "none|layer"},
};
static const GxField shape_options[] = {
    {"vocab", GX_FIELD_INT, offsetof(GxLlamaConfig, vocab_size), "32000", "", "1.."},
    {"hidden", GX_FIELD_INT, offsetof(GxLlamaConfig, hidden_size), "288", "", "1.."},
    {"ffn", GX_FIELD_INT, offsetof(GxLlamaConfig, intermediate_size), "768", "", "1.."},
    {"layers", GX_FIELD_INT, offsetof(GxLlamaConfig, num_hidden_layers), "6", "", "1.."},
    {"heads", GX_FIELD_INT, offsetof(GxLlamaConfig, num_attention_heads), "6", "", "1.."},
    {"kv", GX_FIELD_INT, offsetof(GxLlamaConfig, num_key_value_heads), "2", "", "1.."},
};

static const GxLlamaConfig shape_default = {.vocab_size = 0,
                                            .max_position_embeddings = 1 << 20,
                                            .rms_norm_eps = 1e-5,
                                            .rope_theta = 10000,
                                            .initializer_range = 0.02,
                                            .pad_token_id = -1};

// ---- the step ------------------------------------------------------------------------------------------------------

typedef struct {
    GxContext g;
    GxMesh mesh;
    GxArena arena, host;
    GxLlamaConfig config;
    GxMode mode;
    GxModel m;
    GxRunner r;
    GxOptimizer o;
    GxBatch b;
    int32_t *tokens, *host_copy; // [2][rows]: tokens, labels; in the device's memory, in the host's
    int64_t first_sample;        // of this rank's, in the batch
    GxRecorder plan;             // of a step: every operation and collective
    int64_t memory_comm;         // of the arena: the communicator's
} Step;

// "serial" and the modes of the list, each as its source spells it out.
static inline GxStatus step_mode(const char *name, GxMode *mode, GxError *err)
{
#define STEP_MODE(name, att, con, mlp) {#name, &gx_##name},
    static const struct {
        const char *name;
        const GxMode *mode;
    } modes[] = {GX_MODES(STEP_MODE)};
    *mode = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
    if (!strcmp(name, "serial")) return GX_OK;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(name, modes[i].name)) return *mode = *modes[i].mode, GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "there is no mode \"%s\"; a mode is one of " GX_MODE_NAMES, name);
}

static inline void step_allocate(Step *t, GxContext *g, const StepOptions *o)
{
    const int64_t rows = t->b.B * o->seq;
    g->step = (GxStep *)gx_arena_allocate(g->arena, GX_MEM_WORKSPACE, sizeof *g->step);
    t->tokens = (int32_t *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, 8 * rows);
    t->host_copy = (int32_t *)gx_host_copy(g, GX_MEM_ACTIVATIONS, t->tokens, 8 * rows);
    t->b.tokens = t->tokens, t->b.target[0].labels = t->tokens + rows, t->b.target[0].labels_host = t->host_copy + rows,
    t->b.T = o->seq, t->b.runs = gx_runs_one(o->seq, 0);
    gx_runner_allocate(g, &t->r, o->seq, t->b.B, o->head_chunk);
}

static inline void step_run(Step *t, GxContext *g) { gx_runner_train(g, &t->r, &t->b, NULL, NULL); }

// A step on the device `none`, with an arena that only counts: bytes of the arena, and t->plan.
static inline GxStatus step_dry_run(Step *t, const StepOptions *o, int64_t *bytes, int64_t *host_bytes)
{
    GxContext dry = t->g;
    GxArena arena, host;
    GxStep step = GX_ZERO;
    GxComm nobody = GX_ZERO;
    GxDevice none = gx_device_none(t->g.device);
    gx_arena_open_dry(&arena);
    gx_arena_open_dry(&host);
    dry.arena = &arena, dry.device = &none, dry.recorder = &t->plan;
    dry.host = none.shares_host_memory ? NULL : &host;
    nobody.rank = t->g.rank, nobody.world = t->g.world;
    dry.comm = NULL;
    if (t->g.world > 1) gx_comm_open(&dry, &nobody); // what is started has a ticket in the plan
    step_allocate(t, &dry, o);
    dry.step = &step; // the one in the arena must not be touched
    step_run(t, &dry);
    dry.recorder = NULL; // what follows is of no step
    gx_model_init(&dry, &t->m, 1);
    *bytes = arena.peak;
    *host_bytes = host.peak;
    t->memory_comm = arena.kind_peak[GX_MEM_COMM];
    if (dry.comm) gx_comm_close(&dry);
    t->g.error = dry.error;
    return gx_status(&t->g);
}

static inline GxStatus step_open_model(Step *t, const GxLlamaConfig *config, const GxMode *mode,
                                       const GxSplitLists *lists, const StepOptions *o)
{
    const GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    GxRunnerSpec spec = GX_ZERO;
    GxModelOptions options = GX_ZERO;
    t->config = *config, t->mode = *mode; // what the model points at
    t->o.adamw = adamw;
    t->o.max_grad_norm = 1;
    options.lists = lists;
    options.dtype = strcmp(o->precision, "bf16") ? GX_F32 : GX_BF16;
    uint8_t again[GX_MAX_UNITS];
    GX_TRY(gx_recompute_read(o->recompute, GX_MAX_UNITS, again, &t->g.error));
    options.again = again;
    spec.keeps_graphs = o->cuda_graphs;
    GX_TRY(gx_model_open(&t->g, &t->m, &gx_llama, &t->config, &t->mode, &options));
    return gx_runner_open(&t->g, &t->r, &t->m, &t->o, &spec);
}

// t->g has rank, world and, to be run, a communicator (not open) and threads. tp: ranks of a tp group, the
// others are data-parallel. Computes nothing.
static inline GxStatus step_plan(Step *t, const GxLlamaConfig *config, const GxMode *mode, const GxSplitLists *lists,
                                 int tp, const StepOptions *o, int64_t *bytes, int64_t *host_bytes)
{
    int dims[GX_MESH_AXES] = {1, 1, -1, 1, tp};
    if (!t->g.device) t->g.device = gx_default_device();
    t->g.tf32 = o->tf32;
    GX_TRY(gx_device_open(&t->g));
    GX_TRY(gx_mesh_open(&t->mesh, dims, t->g.rank, t->g.world, &t->g.error));
    t->g.mesh = &t->mesh;
    const GxSplit samples = gx_split_even(o->batch, gx_group_size(&t->g, GX_AXIS_DP));
    const int me = gx_group_index(&t->g, GX_AXIS_DP);
    t->first_sample = samples.begin[me];
    t->b.B = gx_split_part(&samples, me);
    GX_TRY(step_open_model(t, config, mode, lists, o));
    return step_dry_run(t, o, bytes, host_bytes);
}

// Tokens by their place in the whole batch: every topology computes the same loss.
static inline void step_fill(Step *t, const StepOptions *o, int64_t vocab)
{
    for (int64_t i = 0; i < t->b.T * t->b.B; i++) {
        const uint64_t place = (uint64_t)(i / t->b.B * o->batch + t->first_sample + i % t->b.B);
        t->host_copy[i] = (int32_t)(gx_random_bits(1, place, 0, 1) % (uint32_t)vocab);
        t->host_copy[t->b.T * t->b.B + i] = (int32_t)(gx_random_bits(1, place, 0, 2) % (uint32_t)vocab);
    }
    gx_to_device(&t->g, t->tokens, t->host_copy, 8 * t->b.T * t->b.B);
}

static inline GxStatus step_open(Step *t, const GxLlamaConfig *config, const GxMode *mode, const GxSplitLists *lists,
                                 int tp, const StepOptions *o)
{
    int64_t bytes, host_bytes;
    GxStep step = GX_ZERO;
    GX_TRY(step_plan(t, config, mode, lists, tp, o, &bytes, &host_bytes));
    GX_TRY(gx_arenas_open(&t->g, &t->arena, &t->host, bytes, host_bytes));
    if (t->g.comm) GX_TRY(gx_comm_open(&t->g, t->g.comm));
    step_allocate(t, &t->g, o);
    GX_TRY(gx_status(&t->g));
    gx_model_init(&t->g, &t->m, 1);
    step.lr = 1e-4f;
    gx_to_device(&t->g, t->g.step, &step, sizeof step);
    step_fill(t, o, config->vocab_size);
    return gx_status(&t->g);
}

static inline void step_close(Step *t)
{
    if (t->g.comm) gx_comm_close(&t->g);
    gx_recorder_close(&t->plan);
    gx_runner_close(&t->r);
    gx_model_close(&t->m);
    gx_arenas_close(&t->g, &t->arena, &t->host);
    gx_device_close(&t->g);
}

static inline double step_loss(Step *t)
{
    GxStep step = GX_ZERO;
    gx_to_host(&t->g, &step, t->g.step, sizeof step);
    return gx_step_loss(&step);
}
#endif
