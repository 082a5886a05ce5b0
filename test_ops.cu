// test_ops.cu: every operation against double precision, PyTorch, and its own contract.
//
// The operations with a backward are one table, `ops`: what buffers they have, the oracle's forward and backward (test_oracle.h), the library's.
// All that is claimed of them goes over that table and the shapes beside it:
//     the oracle's backward is the derivative of its forward     central differences in double
//     the oracle means what PyTorch means                        data/ref/ops.safetensors
//     the library computes what the oracle does                  inputs are fp32 values, so a deviation is the library's own
// Gemm, exp, sums and the optimizer have tests of their own below, then come contracts: refusals, recording, scratch.
//
// Buffers begin as NaN wherever the library must write, not read or add; the scratch arena too. Each has its own block of the heap, the arena
// of exactly the planned peak, so that AddressSanitizer sees whatever leaves it.
#define GALAXY_IMPLEMENTATION
#include "galaxy/cpu/cpu.h"
#include "galaxy/io/safetensors.h"
#include "test.h"
#include "test_oracle.h"
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// ---- buffers ------------------------------------------------------------------------------------------------------------------------------------

static void *take(int64_t n, size_t size) { return calloc((size_t)gx_max(n, 1), size); }
static double *doubles(int64_t n) { return (double *)take(n, sizeof(double)); }
static float *floats(int64_t n) { return (float *)take(n, sizeof(float)); }

static void fill_nan(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = NAN;
}

static int64_t count_nan(const float *x, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += isnan(x[i]) != 0;
    return count;
}

static float *random_floats(int64_t n, int number, double scale)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++) x[i] = (float)scale * gx_random_normal(11, (uint64_t)i, 0, (uint32_t)number);
    return x;
}

static double *to_doubles(const float *x, int64_t n)
{
    double *d = doubles(n);
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    return d;
}

// test_close for values of any kind: depth 0 means exact; infinities must be where they are expected.
static void check_values(const char *what, const float *x, const double *reference, int64_t n, double depth, double floor)
{
    float *a = floats(n);
    double *ref = doubles(n);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        int exact = isinf(reference[i]) || depth == 0;
        wrong += exact && !((double)x[i] == reference[i]);
        a[i] = exact ? 0 : x[i];
        ref[i] = exact ? 0 : reference[i];
    }
    CHECK(wrong == 0, "%s: %ld of %ld values that are exact differ", what, (long)wrong, (long)n);
    test_close(what, a, ref, (long)n, test_bound(depth), floor);
    free(a);
    free(ref);
}

// ---- a context whose scratch is exactly what the dry run of the same code took ------------------------------------------------------------------

typedef struct {
    GxContext g;
    GxArena arena;
    GxRecorder recorder;
    GxDevice none;
    GxStep step;
} Bench;

static void bench_open(Bench *b, int threads, int64_t scratch) // scratch < 0: a dry run, on the device `none`
{
    memset(b, 0, sizeof *b);
    b->none = gx_device_none(gx_device_cpu());
    b->g.device = scratch < 0 ? &b->none : gx_device_cpu();
    b->g.arena = &b->arena;
    b->g.recorder = &b->recorder;
    b->g.step = &b->step;
    b->g.threads = threads;
    if (scratch < 0) {
        gx_arena_open_dry(&b->arena);
    } else {
        b->arena.capacity = scratch;
        b->arena.base = (char *)aligned_alloc(GX_ALIGN, (size_t)gx_max(scratch, GX_ALIGN));
        fill_nan((float *)b->arena.base, scratch / 4);
    }
}

static void bench_close(Bench *b)
{
    if (!b->arena.dry) free(b->arena.base);
    gx_recorder_close(&b->recorder);
}

static void check_bench(const char *what, Bench *real, const Bench *plan)
{
    CHECK(!gx_failed(&real->g) && !gx_error_code(&plan->g.error), "%s: %s%s", what, real->g.error.message, plan->g.error.message);
    CHECK(real->arena.peak == plan->arena.peak && real->arena.used == 0, "%s: scratch %ld of planned %ld, %ld kept", what, (long)real->arena.peak,
          (long)plan->arena.peak, (long)real->arena.used);
    int same = real->recorder.n == plan->recorder.n && real->recorder.n > 0;
    for (int64_t i = 0; same && i < real->recorder.n; i++) {
        const GxEvent *a = &real->recorder.event[i], *b = &plan->recorder.event[i];
        same = !strcmp(a->name, b->name) && a->bytes == b->bytes && a->flops == b->flops && a->kind == b->kind;
    }
    CHECK(same, "%s: the device none recorded other events, bytes or FLOPs", what);
}

// ---- the table of operations --------------------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t d[4];        // rms_norm, swiglu R, C; linear R, In, Out, bias; embedding R, C, v_begin, v_end; rope B, heads, h, gap;
                         // attention B, H, K, h; cross_entropy R, V, size of the logits, every how many-th row is ignored (0: none)
    GxRuns q, k;         // rope, attention
    int causal, layout;
    float scale;
} Shape;

typedef struct {
    const char *name, *dname; // in data/ref; dname NULL: a saved output, which has no gradient
    int64_t rows, n;
    double *v, *d;            // the oracle's values and gradients
    float *fv, *fd, *before;  // the library's; before: what the gradient is added to (NULL: it is only ever written)
    double depth, ddepth;     // roundings in the longest chain behind one value, one gradient; 0: it is exact
    double floor, dfloor;     // norm of the terms where the result is a difference that may cancel
    int unwanted;             // the library was asked not to compute this gradient
} Slot;

typedef struct Op Op;
typedef struct {
    const Op *op;
    const Shape *shape;
    Slot in[3], out[3];
    int ins, outs, number; // number: a stream of random numbers
    int64_t R, C, N, B;
    int32_t *ids;
    GxAttention a;
    float scale; // of cross-entropy: 1 / number of rows that count
} Case;

struct Op {
    const char *name;
    void (*open)(Case *);
    void (*forward)(Case *);
    void (*backward)(Case *);
    void (*library)(GxContext *, Case *, int accumulate, int variant); // reads in.fv, out.fd; writes out.fv, in.fd
    int variants, any_threads;                                          // any_threads: the same bits for any number of threads
    const Shape *shape;
    int shapes;
};

static Slot *add_slot(Case *c, Slot *s, const char *name, const char *dname, int64_t rows, int64_t cols)
{
    s->name = name;
    s->dname = dname;
    s->rows = rows;
    s->n = rows * cols;
    s->v = doubles(s->n);
    s->d = doubles(s->n);
    s->fv = random_floats(s->n, c->number++, 1);
    s->fd = random_floats(s->n, c->number++, 1);
    return s;
}
static Slot *input(Case *c, const char *name, const char *dname, int64_t rows, int64_t cols, double ddepth)
{
    Slot *s = add_slot(c, &c->in[c->ins++], name, dname, rows, cols);
    s->ddepth = ddepth;
    return s;
}
static Slot *weight(Case *c, const char *name, const char *dname, int64_t rows, int64_t cols, double ddepth) // its gradient accumulates
{
    Slot *s = input(c, name, dname, rows, cols, ddepth);
    s->before = random_floats(s->n, c->number++, 1);
    return s;
}
static Slot *output(Case *c, const char *name, const char *dname, int64_t rows, int64_t cols, double depth)
{
    Slot *s = add_slot(c, &c->out[c->outs++], name, dname, rows, cols);
    s->depth = depth;
    return s;
}

static const float NORM_EPS = 1e-5f;
static const double THETA = 10000;
#define RUN1(length, position)                     {1, {{0, length, position}}}
#define RUN2(length, position, length2, position2) {2, {{0, length, position}, {length, length2, position2}}}

static void copy_staged(GxContext *g, float *to, const float *from, int64_t n) // a test's own copying stays away on the device `none`
{
    if (g->device->computes) memcpy(to, from, (size_t)n * sizeof *to);
}

// -- norm: rstd is a sum of C squares and 4 more roundings; dx has a second sum of C behind it

static const Shape norm_shapes[] = {{.d = {1, 1}}, {.d = {3, 7}}, {.d = {7, 33}}, {.d = {65, 129}}, {.d = {130, 64}}, {.d = {257, 1}}, {.d = {2, 1000}}};

static void norm_open(Case *c, int fused)
{
    const int64_t R = c->R, C = c->C;
    input(c, "x", "dx", R, C, 2 * (double)C + 13);
    if (fused) input(c, "a", "dx", R, C, 2 * (double)C + 14);
    weight(c, "w", "dw", 1, C, (double)(R + C) + 7);
    output(c, "y", "dy", R, C, (double)C + 6 + fused);
    output(c, "rstd", NULL, R, 1, (double)C + 4 + fused);
    if (fused) output(c, "sum", "dsum", R, C, 1);
}
static void rms_norm_open(Case *c) { norm_open(c, 0); }
static void add_rms_norm_open(Case *c) { norm_open(c, 1); }

static void rms_norm_forward(Case *c) { oracle_rms_norm_forward(c->out[0].v, c->out[1].v, c->in[0].v, c->in[1].v, c->R, c->C, NORM_EPS); }
static void add_rms_norm_forward(Case *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++) c->out[2].v[i] = c->in[0].v[i] + c->in[1].v[i];
    oracle_rms_norm_forward(c->out[0].v, c->out[1].v, c->out[2].v, c->in[2].v, c->R, c->C, NORM_EPS);
}

// dx is rstd*w*dy less its share along x; with one column nearly all of it cancels, so that errors are of the first term's size.
static void norm_backward(Case *c, const double *dsum, const double *x, Slot *w)
{
    oracle_rms_norm_backward(c->in[0].d, w->d, c->out[0].d, dsum, x, c->out[1].v, w->v, c->R, c->C);
    double squares = 0;
    for (int64_t i = 0; i < c->R * c->C; i++) squares += pow(c->out[1].v[i / c->C] * w->v[i % c->C] * c->out[0].d[i], 2);
    c->in[0].dfloor = sqrt(squares);
}
static void rms_norm_backward(Case *c) { norm_backward(c, NULL, c->in[0].v, &c->in[1]); }
static void add_rms_norm_backward(Case *c)
{
    norm_backward(c, c->out[2].d, c->out[2].v, &c->in[2]);
    memcpy(c->in[1].d, c->in[0].d, (size_t)c->in[0].n * sizeof(double));
    c->in[1].dfloor = c->in[0].dfloor;
}

static void rms_norm_library(GxContext *g, Case *c, int accumulate, int variant) // 1: no dw
{
    Slot *x = &c->in[0], *w = &c->in[1];
    w->unwanted = variant == 1;
    gx_rms_norm_forward(g, c->out[0].fv, c->out[1].fv, x->fv, w->fv, c->R, c->C, NORM_EPS, GX_F32);
    gx_rms_norm_backward(g, x->fd, w->unwanted ? NULL : w->fd, c->out[0].fd, NULL, x->fv, c->out[1].fv, w->fv, c->R, c->C, accumulate, GX_F32);
}
static void add_rms_norm_library(GxContext *g, Case *c, int accumulate, int variant) // 1: sum is x, dx is dresidual; 2: sum is a, no dw
{
    Slot *x = &c->in[0], *a = &c->in[1], *w = &c->in[2], *y = &c->out[0], *rstd = &c->out[1], *sum = &c->out[2];
    w->unwanted = variant == 2;
    if (variant) copy_staged(g, sum->fv, variant == 1 ? x->fv : a->fv, sum->n);
    gx_add_rms_norm_forward(g, sum->fv, y->fv, rstd->fv, variant == 1 ? sum->fv : x->fv, variant == 2 ? sum->fv : a->fv, w->fv, c->R, c->C, NORM_EPS, GX_F32);
    if (variant == 1) copy_staged(g, x->fd, sum->fd, x->n);
    gx_rms_norm_backward(g, x->fd, w->unwanted ? NULL : w->fd, y->fd, variant == 1 ? x->fd : sum->fd, sum->fv, rstd->fv, w->fv, c->R, c->C, accumulate, GX_F32);
    copy_staged(g, a->fd, x->fd, x->n);
}

// -- linear: one product per output element

static const Shape linear_shapes[] = {{.d = {1, 1, 1, 1}},   {.d = {5, 13, 9, 1}},    {.d = {3, 4, 5, 0}}, {.d = {130, 33, 65, 1}},
                                      {.d = {64, 7, 1, 1}}, {.d = {97, 257, 34, 0}}, {.d = {1, 300, 70, 1}}};

static void linear_open(Case *c)
{
    const int64_t R = c->R, In = c->C, Out = c->N;
    input(c, "x", "dx", R, In, (double)Out);
    weight(c, "w", "dw", Out, In, (double)R + 1);
    if (c->shape->d[3]) weight(c, "b", "db", 1, Out, (double)R + 1);
    output(c, "y", "dy", R, Out, (double)In + 1);
}
static double *or_null(const Slot *s, double *x) { return s->n ? x : NULL; }
static void linear_forward(Case *c)
{
    oracle_linear_forward(c->out[0].v, c->in[0].v, c->in[1].v, or_null(&c->in[2], c->in[2].v), c->R, c->C, c->N);
}
static void linear_backward(Case *c)
{
    oracle_linear_backward(c->in[0].d, c->in[1].d, or_null(&c->in[2], c->in[2].d), c->out[0].d, c->in[0].v, c->in[1].v, c->R, c->C, c->N);
}
static void linear_library(GxContext *g, Case *c, int accumulate, int variant) // 1: no dw; 2: no dbias
{
    Slot *x = &c->in[0], *w = &c->in[1], *b = &c->in[2], *y = &c->out[0];
    w->unwanted = variant == 1;
    b->unwanted = variant == 2;
    gx_linear_forward(g, y->fv, x->fv, w->fv, b->n ? b->fv : NULL, c->R, c->C, c->N, GX_F32);
    gx_linear_backward_input(g, x->fd, y->fd, w->fv, c->R, c->C, c->N, GX_F32);
    gx_linear_backward_weight(g, w->unwanted ? NULL : w->fd, b->unwanted ? NULL : b->fd, y->fd, x->fv, c->R, c->C, c->N, accumulate, GX_F32);
}

// -- rope: a cosine, a product, a sum

static const Shape rope_shapes[] = {{.d = {2, 3, 8, 0}, .q = RUN1(6, 4)}, {.d = {1, 1, 2, 1}, .q = RUN1(1, 0)}, {.d = {3, 2, 10, 5}, .q = RUN2(5, 2, 4, 40)},
                                    {.d = {2, 3, 64, 7}, .q = RUN2(33, 100, 32, 3)}};

static void rope_open(Case *c)
{
    int64_t rows = oracle_rows(&c->shape->q) * c->shape->d[0], cols = c->shape->d[1] * c->shape->d[2];
    c->B = c->shape->d[0];
    input(c, "x", "dx", rows, cols, 4);
    output(c, "y", "dy", rows, cols, 4);
}
static void rope_turn(const Case *c, double *y, const double *x, int direction)
{
    const int64_t *d = c->shape->d;
    oracle_rope(y, x, &c->shape->q, d[0], d[1], d[2], d[1] * d[2], THETA, direction);
}
static void rope_forward(Case *c) { rope_turn(c, c->out[0].v, c->in[0].v, +1); }
static void rope_backward(Case *c) { rope_turn(c, c->in[0].d, c->out[0].d, -1); }

// Between dense rows and rows with something behind them.
static void copy_rows(float *to, int64_t to_stride, const float *from, int64_t from_stride, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_stride, from + r * from_stride, (size_t)width * sizeof *to);
}

static void rope_library(GxContext *g, Case *c, int accumulate, int variant) // in place, in a buffer with gaps
{
    (void)accumulate, (void)variant;
    const int64_t *d = c->shape->d, rows = c->in[0].rows, width = d[1] * d[2], stride = width + d[3], positions = 256;
    float *x = floats(rows * stride), *cosine = floats(positions * d[2] / 2), *sine = floats(positions * d[2] / 2);
    gx_rope_table(cosine, sine, positions, d[2], THETA);
    for (int back = 0; back < 2; back++) {
        const float *from = back ? c->out[0].fd : c->in[0].fv;
        fill_nan(x, rows * stride);
        copy_rows(x, stride, from, width, rows, width);
        (back ? gx_rope_backward : gx_rope_forward)(g, x, cosine, sine, &c->shape->q, d[0], d[1], d[2], stride, GX_F32);
        CHECK(count_nan(x, rows * stride) == rows * d[3], "rope wrote into the gaps between rows");
        if (g->device->computes) copy_rows(back ? c->in[0].fd : c->out[0].fv, width, x, stride, rows, width);
    }
    free(x), free(cosine), free(sine);
}

// -- attention: a score is a sum over h, a probability is behind a sum over Tk (and the log-sum-exp), an output behind another; in the backward
//    dp and D are sums over h (by the oracle: over Tk), dq sums over Tk, dk and dv over Tq and the heads of the group. 16 single roundings.

enum { DENSE, GAPS, PACKED }; // layouts: GAPS: 3 elements behind each row; PACKED: q, k, v side by side, 5 elements behind

static const Shape attention_shapes[] = {
    {.d = {2, 6, 2, 10}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 1, 1, 1}, .q = RUN1(1, 0), .k = RUN1(1, 0), .causal = 1},
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 3), .k = RUN1(8, 0), .causal = 1, .layout = GAPS},
    {.d = {3, 4, 4, 2}, .q = RUN1(4, 0), .k = RUN1(3, 0)},
    {.d = {1, 2, 1, 4}, .q = RUN2(3, 0, 4, 9), .k = RUN2(4, 1, 3, 10), .causal = 1, .layout = GAPS, .scale = 0.7f}, // row 0 sees no key
    {.d = {2, 2, 2, 2}, .q = RUN1(4, 0), .k = RUN1(3, 4), .causal = 1},                                              // no row sees any
    {.d = {2, 3, 1, 10}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 4, 4, 48}, .q = RUN1(65, 0), .k = RUN1(130, 0), .layout = GAPS},
    {.d = {3, 6, 2, 2}, .q = RUN2(66, 0, 64, 130), .k = RUN2(66, 0, 64, 130), .causal = 1, .layout = PACKED}, // a balanced rank's two runs
    {.d = {1, 3, 1, 64}, .q = RUN1(70, 60), .k = RUN1(130, 0), .causal = 1},
    {.d = {2, 2, 1, 10}, .q = RUN2(40, 500, 37, 590), .k = RUN2(530, 0, 70, 540), .causal = 1, .layout = GAPS}, // key blocks of 512, 18, 70
    {.d = {1, 2, 1, 10}, .q = RUN1(600, 0), .k = RUN1(600, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 1, 1, 10}, .q = RUN1(130, 0), .k = RUN1(600, 0), .layout = DENSE},
    {.d = {1, 2, 2, 6}, .q = RUN1(130, 0), .k = RUN2(30, 70, 50, 20), .causal = 1}, // a tile of queries before, in and behind its keys
};

static void attention_open(Case *c)
{
    const Shape *s = c->shape;
    const int64_t Tq = oracle_rows(&s->q), Tk = oracle_rows(&s->k), B = s->d[0], H = s->d[1], K = s->d[2], h = s->d[3];
    GxAttention a = {B, H, K, h, s->q, s->k, H * h, K * h, H * h, s->causal, s->scale, GX_F32};
    c->a = a;
    c->B = B;
    const double scores = (double)(h + Tk) + 16, others = (double)(Tq * H / K), keys = (double)Tk, dots = 2 * (double)h;
    input(c, "q", "dq", Tq * B, H * h, scores + dots + keys);
    input(c, "k", "dk", Tk * B, K * h, scores + dots + others);
    input(c, "v", "dv", Tk * B, K * h, scores + others);
    output(c, "o", "do", Tq * B, H * h, scores + keys);
    output(c, "lse", NULL, Tq * B, H, scores)->floor = sqrt((double)(Tq * B * H)); // a logarithm: its absolute error is the sum's relative one
}
static void attention_forward(Case *c) { oracle_attention_forward(c->out[0].v, c->out[1].v, c->in[0].v, c->in[1].v, c->in[2].v, &c->a); }
static void attention_backward(Case *c)
{
    double terms[2];
    oracle_attention_backward(c->in[0].d, c->in[1].d, c->in[2].d, terms, c->out[0].d, c->in[0].v, c->in[1].v, c->in[2].v, &c->a);
    c->in[0].dfloor = terms[0]; // of dp - D
    c->in[1].dfloor = terms[1];
}

typedef struct { float *block, *q, *k, *v; int64_t n; } Heads; // q, k, v in one block of n floats, by layout

static Heads heads_open(const Case *c, GxAttention *a)
{
    const int64_t *d = c->shape->d, q = d[1] * d[3], kv = d[2] * d[3], gap = c->shape->layout == GAPS ? 3 : 0;
    const int packed = c->shape->layout == PACKED;
    a->q_stride = packed ? q + 2 * kv + 5 : q + gap;
    a->kv_stride = packed ? a->q_stride : kv + gap;
    a->o_stride = q + 2 * gap;
    int64_t rows = c->in[1].rows, k_at = packed ? q : c->in[0].rows * a->q_stride, v_at = k_at + (packed ? kv : rows * a->kv_stride);
    Heads x = GX_ZERO;
    x.n = packed ? rows * a->q_stride : v_at + rows * a->kv_stride;
    x.block = x.q = floats(x.n);
    x.k = x.q + k_at;
    x.v = x.q + v_at;
    fill_nan(x.block, x.n);
    return x;
}

static void attention_library(GxContext *g, Case *c, int accumulate, int variant)
{
    (void)accumulate, (void)variant;
    Slot *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->out[0], *lse = &c->out[1];
    GxAttention a = c->a;
    Heads x = heads_open(c, &a), dx = heads_open(c, &a);
    const int64_t wide = a.H * a.head_dim, narrow = a.K * a.head_dim, o_n = o->rows * a.o_stride;
    float *out = floats(o_n), *d_o = floats(o_n);
    copy_rows(x.q, a.q_stride, q->fv, wide, q->rows, wide);
    copy_rows(x.k, a.kv_stride, k->fv, narrow, k->rows, narrow);
    copy_rows(x.v, a.kv_stride, v->fv, narrow, v->rows, narrow);
    fill_nan(out, o_n), fill_nan(d_o, o_n);
    copy_rows(d_o, a.o_stride, o->fd, wide, o->rows, wide);
    gx_attention_forward(g, out, lse->fv, x.q, x.k, x.v, &a);
    gx_attention_backward(g, dx.q, dx.k, dx.v, d_o, out, lse->fv, x.q, x.k, x.v, &a);
    if (g->device->computes) {
        CHECK(count_nan(out, o_n) == o_n - o->n && count_nan(dx.block, dx.n) == dx.n - q->n - k->n - v->n, "gaps were written, or NaN came out");
        copy_rows(o->fv, wide, out, a.o_stride, o->rows, wide);
        copy_rows(q->fd, wide, dx.q, a.q_stride, q->rows, wide);
        copy_rows(k->fd, narrow, dx.k, a.kv_stride, k->rows, narrow);
        copy_rows(v->fd, narrow, dx.v, a.kv_stride, v->rows, narrow);
    }
    free(x.block), free(dx.block), free(out), free(d_o);
}

// -- swiglu: exp, sum, division, three products

static const Shape swiglu_shapes[] = {{.d = {5, 11}}, {.d = {1, 1}}, {.d = {65, 33}}, {.d = {3, 300}}};

static void swiglu_open(Case *c)
{
    input(c, "gate|up", "dgate|dup", c->R, 2 * c->C, 12);
    output(c, "y", "dy", c->R, c->C, 8);
}
static void swiglu_forward(Case *c) { oracle_swiglu_forward(c->out[0].v, c->in[0].v, c->R, c->C); }
static void swiglu_backward(Case *c)
{
    oracle_swiglu_backward(c->in[0].d, c->out[0].d, c->in[0].v, c->R, c->C);
    double squares = 0; // dgate is dy*up*s times a sum that passes through zero at gate = -1.28: its errors are of the size of dy*up*s
    for (int64_t i = 0; i < c->R * c->C; i++) {
        const double *gate = c->in[0].v + i / c->C * 2 * c->C + i % c->C;
        squares += pow(c->out[0].d[i] * gate[c->C] * oracle_sigmoid(gate[0]), 2);
    }
    c->in[0].dfloor = sqrt(squares);
}
static void swiglu_library(GxContext *g, Case *c, int accumulate, int variant) // 1: dgate_up is gate_up, y is made again, over dy
{
    (void)accumulate;
    Slot *x = &c->in[0], *y = &c->out[0];
    if (!variant) {
        gx_swiglu_forward(g, y->fv, x->fv, c->R, c->C, GX_F32);
        gx_swiglu_backward(g, x->fd, NULL, y->fd, x->fv, c->R, c->C, GX_F32);
        return;
    }
    copy_staged(g, x->fd, x->fv, x->n);
    copy_staged(g, y->fv, y->fd, y->n);
    gx_swiglu_backward(g, x->fd, y->fv, y->fv, x->fd, c->R, c->C, GX_F32);
}

// -- cross-entropy: maximum, a sum over V, log; a loss may be near 0 where the label is sure, and p - 1 too: errors are of 1's size

static const Shape cross_entropy_shapes[] = {{.d = {6, 17, 2, 0}}, {.d = {1, 1, 1, 0}}, {.d = {5, 7, 1, 2}}, {.d = {66, 301, 3, 3}}, {.d = {8, 33, 10000, 5}},
                                             {.d = {4, 9, 1, 1}}}; // the last: all rows ignored

static void cross_entropy_count(Case *c)
{
    int64_t rows = 0;
    for (int64_t r = 0; r < c->R; r++) rows += c->ids[r] != GX_IGNORE_INDEX;
    c->scale = rows ? 1.0f / (float)rows : 1.0f;
    for (int64_t r = 0; r < c->R; r++) c->out[0].d[r] = c->out[0].fd[r] = c->scale;
    c->out[0].floor = sqrt((double)rows);
    c->in[0].dfloor = c->scale * sqrt((double)rows);
}
static void cross_entropy_open(Case *c)
{
    const int64_t every = c->shape->d[3];
    input(c, "logits", "dlogits", c->R, c->C, (double)c->C + 8);
    output(c, "losses", "dlosses", c->R, 1, (double)c->C + 8);
    for (int64_t i = 0; i < c->in[0].n; i++) c->in[0].fv[i] *= (float)c->shape->d[2];
    for (int64_t r = 0; r < c->R; r++) c->ids[r] = every && r % every == 0 ? GX_IGNORE_INDEX : (int32_t)(r * 5 % c->C);
    cross_entropy_count(c);
}
static void cross_entropy_both(Case *c)
{
    oracle_cross_entropy(c->out[0].v, c->in[0].d, c->in[0].v, c->ids, c->R, c->C, c->scale);
}
static void cross_entropy_library(GxContext *g, Case *c, int accumulate, int variant) // 1: dlogits is logits; 2: the losses alone
{
    (void)accumulate;
    Slot *x = &c->in[0];
    x->unwanted = variant == 2;
    if (variant == 1) copy_staged(g, x->fd, x->fv, x->n);
    gx_cross_entropy(g, c->out[0].fv, variant == 2 ? NULL : x->fd, variant == 1 ? x->fd : x->fv, c->ids, c->R, c->C, c->scale, GX_F32);
}

// -- embedding: a copy; the gradient sums at most R rows

static const Shape embedding_shapes[] = {{.d = {8, 5, 0, 13}}, {.d = {1, 1, 0, 1}}, {.d = {40, 65, 0, 13}}, {.d = {70, 130, 3, 9}}};

static void embedding_open(Case *c)
{
    const int64_t *d = c->shape->d;
    weight(c, "table", "dtable", d[3] - d[2], c->C, (double)c->R + 1);
    output(c, "y", "dy", c->R, c->C, 0);
    for (int64_t r = 0; r < c->R; r++) c->ids[r] = (int32_t)(r * 7 % 13);
}
static void embedding_forward(Case *c) { oracle_embedding_forward(c->out[0].v, c->in[0].v, c->ids, c->R, c->C, c->shape->d[2], c->shape->d[3]); }
static void embedding_backward(Case *c) { oracle_embedding_backward(c->in[0].d, c->out[0].d, c->ids, c->R, c->C, c->shape->d[2], c->shape->d[3]); }
static void embedding_library(GxContext *g, Case *c, int accumulate, int variant)
{
    (void)variant;
    const int64_t *d = c->shape->d;
    gx_embedding_forward(g, c->out[0].fv, c->in[0].fv, c->ids, c->R, c->C, d[2], d[3], GX_F32);
    gx_embedding_backward(g, c->in[0].fd, c->out[0].fd, c->ids, c->R, c->C, d[2], d[3], accumulate, GX_F32);
}

static const Op ops[] = {
    {"rms_norm", rms_norm_open, rms_norm_forward, rms_norm_backward, rms_norm_library, 2, 1, norm_shapes, COUNT(norm_shapes)},
    {"add_rms_norm", add_rms_norm_open, add_rms_norm_forward, add_rms_norm_backward, add_rms_norm_library, 3, 1, norm_shapes, COUNT(norm_shapes)},
    {"linear", linear_open, linear_forward, linear_backward, linear_library, 3, 0, linear_shapes, COUNT(linear_shapes)},
    {"rope", rope_open, rope_forward, rope_backward, rope_library, 1, 1, rope_shapes, COUNT(rope_shapes)},
    {"attention", attention_open, attention_forward, attention_backward, attention_library, 1, 0, attention_shapes, COUNT(attention_shapes)},
    {"swiglu", swiglu_open, swiglu_forward, swiglu_backward, swiglu_library, 2, 1, swiglu_shapes, COUNT(swiglu_shapes)},
    {"cross_entropy", cross_entropy_open, cross_entropy_both, cross_entropy_both, cross_entropy_library, 3, 1, cross_entropy_shapes,
     COUNT(cross_entropy_shapes)},
    {"embedding", embedding_open, embedding_forward, embedding_backward, embedding_library, 1, 1, embedding_shapes, COUNT(embedding_shapes)},
};

static void case_open(Case *c, const Op *op, const Shape *shape)
{
    memset(c, 0, sizeof *c);
    c->op = op;
    c->shape = shape;
    c->R = shape->d[0], c->C = shape->d[1], c->N = shape->d[2], c->B = 1;
    c->ids = (int32_t *)take(c->R, sizeof *c->ids);
    op->open(c);
}

static void case_close(Case *c)
{
    for (int i = 0; i < c->ins + c->outs; i++) {
        Slot *s = i < c->ins ? &c->in[i] : &c->out[i - c->ins];
        free(s->v), free(s->d), free(s->fv), free(s->fd), free(s->before);
    }
    free(c->ids);
}

static void case_oracle(Case *c)
{
    for (int i = 0; i < c->ins; i++)
        for (int64_t e = 0; e < c->in[i].n; e++) c->in[i].v[e] = c->in[i].fv[e];
    for (int i = 0; i < c->outs; i++)
        for (int64_t e = 0; e < c->out[i].n; e++) c->out[i].d[e] = c->out[i].dname ? c->out[i].fd[e] : 0;
    c->op->forward(c);
    c->op->backward(c);
}

static void for_each_case(void (*check)(Case *, const char *what), const char *only)
{
    for (int o = 0; o < COUNT(ops); o++)
        for (int s = 0; s < ops[o].shapes; s++) {
            if (only && strcmp(only, ops[o].name)) continue;
            Case c;
            char what[64];
            snprintf(what, sizeof what, "%s, shape %d", ops[o].name, s);
            case_open(&c, &ops[o], &ops[o].shape[s]);
            case_oracle(&c);
            check(&c, what);
            case_close(&c);
        }
}

// ---- the oracle is right: its backward is the derivative of its forward -------------------------------------------------------------------------

static double projected(Case *c, double *size) // L = sum of dy*y over all outputs; size: of its terms
{
    double sum = 0, squares = 0;
    c->op->forward(c);
    for (int i = 0; i < c->outs; i++)
        for (int64_t e = 0; c->out[i].dname && e < c->out[i].n; e++) {
            sum += c->out[i].d[e] * c->out[i].v[e];
            squares += c->out[i].d[e] * c->out[i].d[e] * c->out[i].v[e] * c->out[i].v[e];
        }
    *size = sqrt(squares);
    return sum;
}

// A central difference over 2h errs by h^2/6 times the third derivative and by the rounding of L over h. With h = eps^(1/3) both are of the order
// of eps^(2/3) = 4e-11. For inputs of order one third derivatives are at most 100 times the first; the rounding of L is 8 eps of its terms.
static void check_derivative(Case *c, const char *what)
{
    const double h = cbrt(DBL_EPSILON);
    for (int i = 0; i < c->ins; i++) {
        Slot *s = &c->in[i];
        if (s->n > 1200 || c->in[0].n > 1200 || (!strcmp(c->op->name, "cross_entropy") && c->shape->d[2] > 10)) continue; // large: not of order one
        double *expected = doubles(s->n), error = 0, norm = 0, size = 0;
        memcpy(expected, s->d, (size_t)s->n * sizeof *expected);
        for (int64_t e = 0; e < s->n; e++) {
            double x = s->v[e], up, down;
            s->v[e] = x + h, up = projected(c, &size);
            s->v[e] = x - h, down = projected(c, &size);
            s->v[e] = x;
            error += pow((up - down) / (2 * h) - expected[e], 2);
            norm += expected[e] * expected[e];
        }
        double bound = 100 * h * h / 6 * fmax(sqrt(norm), s->dfloor) + 8 * DBL_EPSILON / h * size * sqrt((double)s->n);
        test_state.worst = fmax(test_state.worst, bound > 0 ? sqrt(error) / bound : 0);
        CHECK(sqrt(error) <= bound, "%s: %s is off its difference quotient by %.3g of %.3g, bound %.3g", what, s->dname, sqrt(error), sqrt(norm), bound);
        free(expected);
        op_again: (void)0;
    }
}

TEST(oracle_backward_is_the_derivative_of_its_forward) { for_each_case(check_derivative, NULL); }
