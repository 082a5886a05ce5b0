// llama_step.cu: times whole training steps of a LLaMA on random tokens: forward, backward, clipping, AdamW. dev/bench/bench.sh sets it beside PyTorch.
//
//   llama_step                       20 steps, then one line of JSON
//   llama_step --serve               waits for lines "step K": runs K steps, answers with one line of JSON each; ends at end of input
//   llama_step --profile             also where a step's time goes, operation by operation, and the matrix products' time alone
#include "galaxy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define GX_NO_MAIN
#include "train_llama.cu"

typedef struct {
    int64_t batch, seq, steps, head_chunk, threads;
    int serve, profile;
} BenchOptions;
static const GxOption bench_options[] = {
    {"batch", GX_OPTION_INT, offsetof(BenchOptions, batch), "4", "samples", "1.."},
    {"seq", GX_OPTION_INT, offsetof(BenchOptions, seq), "256", "tokens in a sample", "1.."},
    {"steps", GX_OPTION_INT, offsetof(BenchOptions, steps), "20", "timed steps", "1.."},
    {"head_chunk", GX_OPTION_INT, offsetof(BenchOptions, head_chunk), "512", "rows whose logits exist at once", "1.."},
    {"threads", GX_OPTION_INT, offsetof(BenchOptions, threads), "2", "CPU threads", "1.."},
    {"serve", GX_OPTION_BOOL, offsetof(BenchOptions, serve), "false", "steps on request", NULL},
    {"profile", GX_OPTION_BOOL, offsetof(BenchOptions, profile), "false", "where the time goes", NULL},
};
static const GxOption shape_options[] = {
    {"vocab", GX_OPTION_INT, offsetof(GxLlamaConfig, vocab_size), "32000", "", "1.."},
    {"hidden", GX_OPTION_INT, offsetof(GxLlamaConfig, hidden_size), "288", "", "1.."},
    {"ffn", GX_OPTION_INT, offsetof(GxLlamaConfig, intermediate_size), "768", "", "1.."},
    {"layers", GX_OPTION_INT, offsetof(GxLlamaConfig, num_hidden_layers), "6", "", "1.."},
    {"heads", GX_OPTION_INT, offsetof(GxLlamaConfig, num_attention_heads), "6", "", "1.."},
    {"kv", GX_OPTION_INT, offsetof(GxLlamaConfig, num_key_value_heads), "2", "", "1.."},
};

// ---- a device that measures: every call of the CPU's goes through a watch ---------------------------------------------------------------------------

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
static double watch[WATCHES];
#define TIMED(w, call)                                                                                                                     \
    do {                                                                                                                                   \
        double t0 = gx_seconds();                                                                                                          \
        gx_device_cpu()->call;                                                                                                             \
        watch[w] += gx_seconds() - t0;                                                                                                     \
    } while (0)

static void w_add(GxContext *g, void *y, const void *a, const void *b, int64_t n, GxDtype d) { TIMED(W_REST, add(g, y, a, b, n, d)); }
static void w_sum(GxContext *g, double *t, const float *x, int64_t n, int a, double *s) { TIMED(W_REST, sum(g, t, x, n, a, s)); }
static void w_sum_squares(GxContext *g, double *t, const float *x, int64_t n, int a, double *s)
{
    TIMED(W_REST, sum_squares(g, t, x, n, a, s));
}
static void w_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *i, int64_t R, int64_t C, int64_t b, int64_t e,
                                GxDtype d)
{
    TIMED(W_EMBEDDING, embedding_forward(g, y, w, i, R, C, b, e, d));
}
static void w_embedding_backward(GxContext *g, float *w, const void *y, const int32_t *i, int64_t R, int64_t C, int64_t b, int64_t e, int a,
                                 GxDtype d)
{
    TIMED(W_EMBEDDING, embedding_backward(g, w, y, i, R, C, b, e, a, d));
}
static void w_norm_forward(GxContext *g, void *y, float *r, const void *x, const void *w, int64_t R, int64_t C, float e, GxDtype d)
{
    TIMED(W_NORM, rms_norm_forward(g, y, r, x, w, R, C, e, d));
}
static void w_add_norm(GxContext *g, void *s, void *y, float *r, const void *x, const void *a, const void *w, int64_t R, int64_t C, float e,
                       GxDtype d)
{
    TIMED(W_NORM, add_rms_norm_forward(g, s, y, r, x, a, w, R, C, e, d));
}
static void w_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dr, const void *x, const float *r, const void *w,
                            int64_t R, int64_t C, int a, GxDtype d, float *s)
{
    TIMED(W_NORM, rms_norm_backward(g, dx, dw, dy, dr, x, r, w, R, C, a, d, s));
}
static void w_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *b, int64_t R, int64_t I, int64_t O, GxDtype d)
{
    TIMED(W_LINEAR_FORWARD, linear_forward(g, y, x, w, b, R, I, O, d));
}
static void w_linear_input(GxContext *g, void *dx, const void *dy, const void *w, int64_t R, int64_t I, int64_t O, GxDtype d)
{
    TIMED(W_LINEAR_INPUT, linear_backward_input(g, dx, dy, w, R, I, O, d));
}
static void w_linear_weight(GxContext *g, float *dw, float *db, const void *dy, const void *x, int64_t R, int64_t I, int64_t O, int a,
                            GxDtype d, float *s)
{
    TIMED(W_LINEAR_WEIGHT, linear_backward_weight(g, dw, db, dy, x, R, I, O, a, d, s));
}
static void w_rope(GxContext *g, void *x, const float *c, const float *s, const GxRuns *r, int64_t B, int64_t H, int64_t h, int64_t st,
                   int di, GxDtype d)
{
    TIMED(W_ROPE, rope(g, x, c, s, r, B, H, h, st, di, d));
}
static void w_att_forward(GxContext *g, void *o, float *l, const void *q, const void *k, const void *v, const GxAttention *a, void *s)
{
    TIMED(W_ATT_FORWARD, attention_forward(g, o, l, q, k, v, a, s));
}
static void w_att_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o, const float *l, const void *q,
                           const void *k, const void *v, const GxAttention *a, void *s)
{
    TIMED(W_ATT_BACKWARD, attention_backward(g, dq, dk, dv, d_o, o, l, q, k, v, a, s));
}
static void w_swiglu_forward(GxContext *g, void *y, const void *x, int64_t R, int64_t F, GxDtype d)
{
    TIMED(W_SWIGLU, swiglu_forward(g, y, x, R, F, d));
}
static void w_swiglu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, int64_t R, int64_t F, GxDtype d)
{
    TIMED(W_SWIGLU, swiglu_backward(g, dx, y, dy, x, R, F, d));
}
static void w_entropy(GxContext *g, float *l, void *dl, const void *x, const int32_t *y, int64_t R, int64_t V, float s, GxDtype d)
{
    TIMED(W_ENTROPY, cross_entropy(g, l, dl, x, y, R, V, s, d));
}
static void w_adamw(GxContext *g, float *w, float *m, float *v, const float *grad, int64_t n, const GxAdamW *o)
{
    TIMED(W_ADAMW, adamw(g, w, m, v, grad, n, o));
}

static GxDevice measuring_device(void)
{
    GxDevice d = *gx_device_cpu();
    d.add = w_add, d.sum = w_sum, d.sum_squares = w_sum_squares, d.embedding_forward = w_embedding_forward,
    d.embedding_backward = w_embedding_backward;
    d.rms_norm_forward = w_norm_forward, d.add_rms_norm_forward = w_add_norm, d.rms_norm_backward = w_norm_backward;
    d.linear_forward = w_linear_forward, d.linear_backward_input = w_linear_input, d.linear_backward_weight = w_linear_weight;
    d.rope = w_rope, d.attention_forward = w_att_forward, d.attention_backward = w_att_backward;
    d.swiglu_forward = w_swiglu_forward, d.swiglu_backward = w_swiglu_backward, d.cross_entropy = w_entropy, d.adamw = w_adamw;
    return d;
}

// ---- the step ---------------------------------------------------------------------------------------------------------------------------------------

typedef struct {
    GxContext g;
    GxDevice device;
    GxArena arena;
    GxStep step;
    GxLlama m;
    GxOptimizer o;
    GxBatch b;
    int32_t *tokens, *labels;
    double flops;
} Bench;

static void take(Bench *t, GxContext *g, const BenchOptions *o)
{
    int64_t n = gx_table_offset(&t->m.model.table, t->m.model.table.units), rows = o->batch * o->seq;
    t->o.weights = (float *)gx_arena_take(g->arena, GX_MEM_WEIGHTS, 4 * n);
    t->o.grads = (float *)gx_arena_take(g->arena, GX_MEM_GRADS, 4 * n);
    t->o.first = (float *)gx_arena_take(g->arena, GX_MEM_OPTIMIZER, 4 * n);
    t->o.second = (float *)gx_arena_take(g->arena, GX_MEM_OPTIMIZER, 4 * n);
    t->tokens = (int32_t *)gx_arena_take(g->arena, GX_MEM_ACTIVATIONS, 8 * rows);
    t->labels = t->tokens + rows;
    gx_llama_take_buffers(g, &t->m, o->seq, o->batch, o->head_chunk);
    gx_model_attach(&t->m.model, t->o.weights, t->o.grads, &g->error);
    t->b.tokens = t->tokens, t->b.labels = t->labels, t->b.T = o->seq, t->b.B = o->batch, t->b.runs = gx_runs_one(o->seq, 0);
}

static void one_step(Bench *t, GxContext *g)
{
    gx_window_gradients(g, &t->m.model, &t->b, 1, &t->o, NULL, NULL);
    gx_window_update(g, &t->m.model, &t->o);
}

static GxStatus open_bench(Bench *t, const GxLlamaConfig *config, const BenchOptions *o)
{
    GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    GxRecorder rec = GX_ZERO;
    GxArena dry_arena;
    t->device = measuring_device();
    t->g.device = o->profile ? &t->device : gx_device_cpu();
    t->g.threads = (int)o->threads;
    t->g.step = &t->step;
    t->o.adamw = adamw;
    t->o.max_grad_norm = 1;
    t->step.lr = 1e-4f;
    GX_TRY(gx_llama_open(&t->g, &t->m, config, &gx_llama_serial, NULL));
    GxContext dry = t->g;
    GxDevice none = gx_device_none(t->g.device);
    gx_arena_open_dry(&dry_arena);
    rec.totals_only = 1;
    dry.arena = &dry_arena, dry.device = &none, dry.recorder = &rec;
    take(t, &dry, o);
    one_step(t, &dry);
    t->flops = rec.flops;
    GX_TRY(gx_arena_open(&t->arena, dry_arena.peak, &t->g.error));
    t->g.arena = &t->arena;
    take(t, &t->g, o);
    gx_model_init(&t->m.model, 1);
    for (int64_t i = 0; i < o->batch * o->seq; i++) {
        t->tokens[i] = (int32_t)(gx_random_bits(1, (uint64_t)i, 0, 1) % (uint32_t)config->vocab_size);
        t->labels[i] = (int32_t)(gx_random_bits(1, (uint64_t)i, 0, 2) % (uint32_t)config->vocab_size);
    }
    return gx_status(&t->g);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Median and best of n steps, in seconds.
static void time_steps(Bench *t, int64_t n, double *median, double *best)
{
    double *seconds = (double *)calloc((size_t)n, sizeof *seconds);
    for (int64_t i = 0; i < n; i++) {
        double start = gx_seconds();
        one_step(t, &t->g);
        seconds[i] = gx_seconds() - start;
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    *median = seconds[n / 2];
    *best = seconds[0];
    free(seconds);
}

static void print_json(const Bench *t, const BenchOptions *o, double median, double best)
{
    char device[300];
    double tokens = (double)(o->batch * o->seq);
    gx_cpu_describe(device, sizeof device);
    printf("{\"variant\": \"galaxy\", \"tokens_per_s\": %.0f, \"best_tokens_per_s\": %.0f, \"ms\": %.2f, \"best_ms\": %.2f, \"gflops\": "
           "%.1f, \"gflop_per_step\": %.2f, "
           "\"peak_rss_mb\": %.0f, \"arena_mb\": %.0f, \"loss\": %.5f, \"threads\": %ld, \"device\": \"%s\"}\n",
           tokens / median, tokens / best, median * 1e3, best * 1e3, t->flops / median / 1e9, t->flops / 1e9,
           (double)gx_process_peak_memory() / 1e6, (double)t->arena.peak / 1e6, t->step.loss, (long)o->threads, device);
    fflush(stdout);
}

// The step's matrix products by themselves, each over buffers of its own size, the best of five: the library alone.
static double products_alone(const Bench *t, const BenchOptions *o, double *flops)
{
    const GxLlamaConfig *c = &t->m.config;
    const int64_t D = c->hidden_size, h = c->head_dim, R = o->batch * o->seq, chunk = gx_min(R, o->head_chunk);
    const struct {
        int64_t R, In, Out, times;
    } shape[] = {
        {R, D, (c->num_attention_heads + 2 * c->num_key_value_heads) * h, c->num_hidden_layers},
        {R, c->num_attention_heads * h, D, c->num_hidden_layers},
        {R, D, 2 * c->intermediate_size, c->num_hidden_layers},
        {R, c->intermediate_size, D, c->num_hidden_layers},
        {chunk, D, c->vocab_size, R / chunk},
    };
    double sum = 0;
    *flops = 0;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        const int64_t r = shape[i].R, in = shape[i].In, out = shape[i].Out;
        float *x = (float *)calloc((size_t)(r * in), 4), *w = (float *)calloc((size_t)(in * out), 4),
              *y = (float *)calloc((size_t)(r * out), 4);
        for (int64_t j = 0; j < r * in; j++) x[j] = (float)(j % 13) * 0.01f;
        for (int64_t j = 0; j < in * out; j++) w[j] = (float)(j % 17) * 0.01f;
        for (int64_t j = 0; j < r * out; j++) y[j] = (float)(j % 11) * 0.01f;
        GxGemm p[3] = {{0, 1, r, out, in, 1, 0, x, w, in, in, y, out},
                       {0, 0, r, in, out, 1, 0, y, w, out, in, x, in},
                       {1, 0, out, in, r, 1, 0, y, x, out, in, w, in}};
        for (int k = 0; k < 3; k++) {
            GxError err = GX_ZERO;
            double best = 1e9;
            for (int repeat = 0; repeat < 6; repeat++) {
                double start = gx_seconds();
                gx_cpu_gemm(&p[k], (int)o->threads, &err);
                best = gx_seconds() - start < best ? gx_seconds() - start : best;
            }
            printf("  %-3s %5ld x %5ld x %5ld  x %ld: %8.3f ms  %6.1f GFLOP/s\n",
                   k == 0   ? "fwd"
                   : k == 1 ? "dx"
                            : "dw",
                   (long)r, (long)in, (long)out, (long)shape[i].times, best * 1e3, 2.0 * (double)(r * in * out) / best / 1e9);
            sum += best * (double)shape[i].times;
            *flops += 2.0 * (double)(r * in * out * shape[i].times);
        }
        free(x), free(w), free(y);
    }
    return sum;
}

static void print_profile(const Bench *t, const BenchOptions *o, int64_t steps, double median)
{
    double flops, all = 0, products = watch[W_LINEAR_FORWARD] + watch[W_LINEAR_INPUT] + watch[W_LINEAR_WEIGHT];
    for (int w = 0; w < WATCHES; w++) all += watch[w];
    for (int w = 0; w < WATCHES; w++)
        printf("  %-24s %8.2f ms %5.1f%%\n", watch_name[w], watch[w] / (double)steps * 1e3, watch[w] / all * 100);
    printf("  operations %.2f ms of a step of %.2f ms; matrix products %.2f ms (%.1f%%)\n", all / (double)steps * 1e3, median * 1e3,
           products / (double)steps * 1e3, products / all * 100);
    double alone = products_alone(t, o, &flops);
    printf("  the matrix products alone: %.2f ms, %.1f GFLOP/s; in the step %.1f GFLOP/s\n", alone * 1e3, flops / alone / 1e9,
           flops / (products / (double)steps) / 1e9);
}

int main(int argc, char **argv)
{
    static Bench t;
    BenchOptions o;
    GxLlamaConfig config = {0, 0, 0, 0, 0, 0, 0, 1 << 20, 1e-5, 10000, 0.02, 0};
    GxConfig c;
    char line[100];
    long k;
    double median, best;
    gx_config_open(&c);
    GX_CHECK(&t.g, gx_config_add(&c, "benchmark", bench_options, sizeof bench_options / sizeof *bench_options, &o, &t.g.error));
    GX_CHECK(&t.g, gx_config_add(&c, "shape", shape_options, sizeof shape_options / sizeof *shape_options, &config, &t.g.error));
    if (gx_config_read_args(&c, argc, argv, &t.g.error) != GX_OK || open_bench(&t, &config, &o) != GX_OK) {
        fprintf(stderr, "error: %s\n", t.g.error.message);
        return 1;
    }
    if (c.help) return gx_config_help(&c, stdout), 0;
    time_steps(&t, 3, &median, &best); // first touches, kernels compiled by the library
    memset(watch, 0, sizeof watch);
    if (o.serve) {
        while (fgets(line, sizeof line, stdin))
            if (sscanf(line, "step %ld", &k) == 1 && k > 0) time_steps(&t, k, &median, &best), print_json(&t, &o, median, best);
        return 0;
    }
    time_steps(&t, o.steps, &median, &best);
    print_json(&t, &o, median, best);
    if (o.profile) print_profile(&t, &o, o.steps, median);
    return gx_failed(&t.g) ? fprintf(stderr, "error: %s\n", t.g.error.message), 1 : 0;
}
