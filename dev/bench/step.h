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
} StepOptions;
static const GxField step_options[] = {
    {"batch", GX_FIELD_INT, offsetof(StepOptions, batch), "4", "samples, of all data-parallel ranks together", "1.."},
    {"seq", GX_FIELD_INT, offsetof(StepOptions, seq), "256", "tokens in a sample", "1.."},
    {"head_chunk", GX_FIELD_INT, offsetof(StepOptions, head_chunk), "512", "rows whose logits exist at once", "1.."},
    {"threads", GX_FIELD_INT, offsetof(StepOptions, threads), "2", "CPU threads of a rank", "1.."},
    {"precision", GX_FIELD_STRING, offsetof(StepOptions, precision), "fp32", "of weights and activations", "fp32|bf16"},
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

static const GxLlamaConfig shape_default = {0, 0, 0, 0, 0, 0, 0, 1 << 20, 1e-5, 10000, 0.02, 0, -1};

// ---- a device that measures: every call of the CPU's goes through a watch, which can make a rank slower than its
// machine is ----

enum {
    W_LINEAR_FORWARD,
    W_LINEAR_INPUT,
    W_LINEAR_WEIGHT,
    W_ATT_FORWARD,
    W_ATT_BACKWARD,
    W_ENTROPY,
    W_ADAMW,
    W_NORM,
    W_SWIGLU,
    W_ROPE,
    W_EMBEDDING,
    W_REST,
    WATCHES
};
static const char *const watch_name[WATCHES] = {"linear_forward",
                                                "linear_backward_input",
                                                "linear_backward_weight",
                                                "attention_forward",
                                                "attention_backward",
                                                "cross_entropy",
                                                "adamw",
                                                "norms",
                                                "swiglu",
                                                "rope",
                                                "embedding",
                                                "sums, additions"};
typedef struct {
    GxDevice device; // first: operations come here by g->device
    double seconds[WATCHES];
    double slow; // every operation takes so many times its time; up to 1: its time
} Watch;

static void watch_end(GxContext *g, int w, double begin)
{
    Watch *watch = (Watch *)(uintptr_t)g->device;
    const double end = gx_seconds(), until = end + (watch->slow - 1) * (end - begin);
    watch->seconds[w] += end - begin;
    while (gx_seconds() < until) {}
}
#define TIMED(w, call)                                                                                                 \
    do {                                                                                                               \
        double begin = gx_seconds();                                                                                   \
        gx_device_cpu()->call;                                                                                         \
        watch_end(g, w, begin);                                                                                        \
    } while (0)

static void w_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype d)
{
    TIMED(W_REST, add(g, y, a, b, n, d));
}
static void w_sum(GxContext *g, double *t, const float *x, int64_t n, int a, double *s)
{
    TIMED(W_REST, sum(g, t, x, n, a, s));
}
static void w_sum_squares(GxContext *g, double *t, const float *x, int64_t n, int a, double *s)
{
    TIMED(W_REST, sum_squares(g, t, x, n, a, s));
}
static void w_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *i, const GxEmbedding *e)
{
    TIMED(W_EMBEDDING, embedding_forward(g, y, w, i, e));
}
static void w_embedding_backward(GxContext *g, float *w, const void *y, const int32_t *i, const GxEmbedding *e)
{
    TIMED(W_EMBEDDING, embedding_backward(g, w, y, i, e));
}
static void w_norm_forward(GxContext *g, void *y, float *r, const void *x, const void *w, int64_t R, int64_t C, float e,
                           GxDtype d)
{
    TIMED(W_NORM, rms_norm_forward(g, y, r, x, w, R, C, e, d));
}
static void w_add_norm(GxContext *g, void *s, void *y, float *r, const void *x, const void *a, const void *w, int64_t R,
                       int64_t C, float e, GxDtype d)
{
    TIMED(W_NORM, add_rms_norm_forward(g, s, y, r, x, a, w, R, C, e, d));
}
static void w_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dr, const void *x,
                            const float *r, const void *w, int64_t R, int64_t C, int a, GxDtype d, float *s)
{
    TIMED(W_NORM, rms_norm_backward(g, dx, dw, dy, dr, x, r, w, R, C, a, d, s));
}
static void w_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *b, const GxLinearShape *l,
                             void *s)
{
    TIMED(W_LINEAR_FORWARD, linear_forward(g, y, x, w, b, l, s));
}
static void w_linear_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *l)
{
    TIMED(W_LINEAR_INPUT, linear_backward_input(g, dx, dy, w, l));
}
static void w_linear_weight(GxContext *g, float *dw, float *db, const void *dy, const void *x, const GxLinearShape *l,
                            float *s)
{
    TIMED(W_LINEAR_WEIGHT, linear_backward_weight(g, dw, db, dy, x, l, s));
}
static void w_rope(GxContext *g, void *x, const float *c, const float *s, const GxRuns *r, int64_t B, int64_t H,
                   int64_t h, int64_t st, int di, GxDtype d)
{
    TIMED(W_ROPE, rope(g, x, c, s, r, B, H, h, st, di, d));
}
static void w_att_forward(GxContext *g, void *o, float *l, const void *q, const void *k, const void *v,
                          const GxAttention *a, void *s)
{
    TIMED(W_ATT_FORWARD, attention_forward(g, o, l, q, k, v, a, s));
}
static void w_att_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o, const float *l,
                           const void *q, const void *k, const void *v, const GxAttention *a, void *s)
{
    TIMED(W_ATT_BACKWARD, attention_backward(g, dq, dk, dv, d_o, o, l, q, k, v, a, s));
}
static void w_swiglu_forward(GxContext *g, void *y, const void *x, int64_t R, int64_t F, GxDtype d)
{
    TIMED(W_SWIGLU, swiglu_forward(g, y, x, R, F, d));
}
static void w_swiglu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, int64_t R, int64_t F,
                              GxDtype d)
{
    TIMED(W_SWIGLU, swiglu_backward(g, dx, y, dy, x, R, F, d));
}
static void w_entropy(GxContext *g, float *l, void *dl, const void *x, const int32_t *y, int64_t R, int64_t V, float s,
                      GxDtype d)
{
    TIMED(W_ENTROPY, cross_entropy(g, l, dl, x, y, R, V, s, d));
}
static void w_entropy_maximum(GxContext *g, float *m, const void *x, int64_t R, int64_t V, GxDtype d)
{
    TIMED(W_ENTROPY, cross_entropy_maximum(g, m, x, R, V, d));
}
static void w_entropy_sums(GxContext *g, float *s, void *e, const void *x, const float *m, const int32_t *y, int64_t R,
                           int64_t V, int64_t b, int64_t n, GxDtype d)
{
    TIMED(W_ENTROPY, cross_entropy_sums(g, s, e, x, m, y, R, V, b, n, d));
}
static void w_entropy_finish(GxContext *g, float *l, void *dl, const void *e, const float *s, const int32_t *y,
                             int64_t R, int64_t V, int64_t b, float scale, GxDtype d)
{
    TIMED(W_ENTROPY, cross_entropy_finish(g, l, dl, e, s, y, R, V, b, scale, d));
}
static void w_adamw(GxContext *g, float *w, float *m, float *v, void *copy, const float *grad, int64_t n,
                    const GxAdamW *o, GxDtype d)
{
    TIMED(W_ADAMW, adamw(g, w, m, v, copy, grad, n, o, d));
}

static inline GxDevice measuring_device(void)
{
    GxDevice d = *gx_device_cpu();
    d.add = w_add, d.sum = w_sum, d.sum_squares = w_sum_squares, d.embedding_forward = w_embedding_forward,
    d.embedding_backward = w_embedding_backward;
    d.rms_norm_forward = w_norm_forward, d.add_rms_norm_forward = w_add_norm, d.rms_norm_backward = w_norm_backward;
    d.linear_forward = w_linear_forward, d.linear_backward_input = w_linear_input,
    d.linear_backward_weight = w_linear_weight;
    d.rope = w_rope, d.attention_forward = w_att_forward, d.attention_backward = w_att_backward;
    d.swiglu_forward = w_swiglu_forward, d.swiglu_backward = w_swiglu_backward, d.adamw = w_adamw;
    d.cross_entropy = w_entropy, d.cross_entropy_maximum = w_entropy_maximum, d.cross_entropy_sums = w_entropy_sums,
    d.cross_entropy_finish = w_entropy_finish;
    return d;
}

// ---- the step ------------------------------------------------------------------------------------------------------

typedef struct {
    GxContext g;
    Watch watch;
    GxMesh mesh;
    GxArena arena, host;
    GxLlamaConfig config;
    GxMode mode;
    GxModel m;
    GxRunner r;
    GxOptimizer o;
    GxBatch b;
    int32_t *tokens, *twin; // [2][rows]: tokens, labels; in the device's memory, in the host's
    int64_t first_sample;   // of this rank's, in the batch
    GxRecorder plan;        // of a step: every operation and collective
    int64_t memory_comm;    // of the arena: the communicator's
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

static inline void step_take(Step *t, GxContext *g, const StepOptions *o)
{
    const int64_t rows = t->b.B * o->seq;
    g->step = (GxStep *)gx_arena_take(g->arena, GX_MEM_WORKSPACE, sizeof *g->step);
    t->tokens = (int32_t *)gx_arena_take(g->arena, GX_MEM_ACTIVATIONS, 8 * rows);
    t->twin = (int32_t *)gx_host_twin(g, GX_MEM_ACTIVATIONS, t->tokens, 8 * rows);
    t->b.tokens = t->tokens, t->b.target[0].labels = t->tokens + rows, t->b.target[0].labels_twin = t->twin + rows, t->b.T = o->seq,
    t->b.runs = gx_runs_one(o->seq, 0);
    gx_runner_take(g, &t->r, o->seq, t->b.B, o->head_chunk);
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
    step_take(t, &dry, o);
    dry.step = &step; // the one in the arena must not be touched
    step_run(t, &dry);
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
    spec.recomputes_layers = !strcmp(o->recompute, "layer");
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
        t->twin[i] = (int32_t)(gx_random_bits(1, place, 0, 1) % (uint32_t)vocab);
        t->twin[t->b.T * t->b.B + i] = (int32_t)(gx_random_bits(1, place, 0, 2) % (uint32_t)vocab);
    }
    gx_to_device(&t->g, t->tokens, t->twin, 8 * t->b.T * t->b.B);
}

static inline GxStatus step_open(Step *t, const GxLlamaConfig *config, const GxMode *mode, const GxSplitLists *lists,
                                 int tp, const StepOptions *o)
{
    int64_t bytes, host_bytes;
    GxStep step = GX_ZERO;
    GX_TRY(step_plan(t, config, mode, lists, tp, o, &bytes, &host_bytes));
    GX_TRY(gx_arenas_open(&t->g, &t->arena, &t->host, bytes, host_bytes));
    if (t->g.comm) GX_TRY(gx_comm_open(&t->g, t->g.comm));
    step_take(t, &t->g, o);
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
