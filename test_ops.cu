// test_ops.cu: every operation against double precision, PyTorch, and its own contract.
//
// The operations with a backward are one table, `ops`: buffers, the oracle's forward and backward (test/oracle.h), the
// library's call. Every claim about them is a loop over that table and the shapes beside it:
//     the oracle's backward is the derivative of its forward     central differences in double
//     the oracle means what PyTorch means                        data/ref/ops.safetensors
//     the library computes what the oracle does                  inputs are fp32 values: what deviates is its own
// Gemm, exp, sums and the optimizer have tests of their own below, then come contracts: refusals, recording, scratch.
//
// Buffers begin as NaN wherever the library must write, not read or add; the scratch arena too. Each is a block of the
// heap of its own, the arena of exactly the planned peak, so that AddressSanitizer sees whatever leaves it.
#include "galaxy/base/random.h"
#include "galaxy/cpu/cpu.h"
#include "galaxy/cpu/gemm_tiles.h"
#include "galaxy/cpu/vec.h"
#include "galaxy/io/safetensors.h"
#include "galaxy/run/optimizer.h"
#include "test/test.h"
#include "test/oracle.h"
#include <sys/wait.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// ---- buffers -------------------------------------------------------------------------------------------------------

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

// A copy in which elements have the type; x becomes what that holds.
static void *stored(float *x, int64_t n, GxDtype type)
{
    void *copy = take(n, (size_t)gx_dtype_size(type));
    for (int64_t i = 0; i < n; i++) {
        gx_cpu_store(copy, i, x[i], type);
        x[i] = gx_cpu_load(copy, i, type);
    }
    return copy;
}

static double *to_doubles(const float *x, int64_t n)
{
    double *d = doubles(n);
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    return d;
}

// test_close for values of any kind: depth 0 means exact; infinities must be where they are expected.
static void check_values(const char *what, const float *x, const double *reference, int64_t n, double depth,
                         double floor)
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

// ---- a context whose scratch is exactly what the dry run of the same code took -------------------------------------

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
    b->g.clipped = b->g.step = &b->step; // tests fill it by hand
    b->g.threads = threads, gx_cpu_small = 0;
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
    CHECK(!gx_failed(&real->g) && !gx_error_code(&plan->g.error), "%s: %s%s", what, real->g.error.message,
          plan->g.error.message);
    CHECK(real->arena.peak == plan->arena.peak && real->arena.used == 0, "%s: scratch %ld of planned %ld, %ld kept",
          what, (long)real->arena.peak, (long)plan->arena.peak, (long)real->arena.used);
    int same = real->recorder.n == plan->recorder.n && real->recorder.n > 0;
    for (int64_t i = 0; same && i < real->recorder.n; i++) {
        const GxEvent *a = &real->recorder.event[i], *b = &plan->recorder.event[i];
        same = !strcmp(a->name, b->name) && a->bytes == b->bytes && a->flops == b->flops && a->kind == b->kind &&
               !memcmp(&a->dims, &b->dims, sizeof a->dims);
    }
    CHECK(same, "%s: the device none recorded other events, bytes or FLOPs", what);
}

// ---- the table of operations ---------------------------------------------------------------------------------------

// d: rms_norm R, C; linear R, In, Out, bias; rope B, heads, h, gap; attention B, H, K, h; swiglu R, F, factor of its
//    inputs (0: 1); cross_entropy R, V, factor of the logits, every how many-th row is ignored (0: none); embedding R,
//    C, v_begin, v_end; layer_norm R, C, mean of its inputs; dropout and residual R, C, what there is (of WITH_...);
//    gelu R, F, GxGelu, bias; tanh and gate R, C; columns R, C, gap; picked_rows n, C, first, rows of x; mean_rows T,
//    C, B, t_first; normalized_rows R, C, every how many-th row is zero (0: none); head_norm R, heads, h, gap;
//    squared_error and binary_cross_entropy R, V
typedef struct {
    int64_t d[4];
    GxRuns q, k;        // rope, attention
    int group, q_first; // attention
    int causal, layout;
    float scale;
    int documents[4]; // attention: their lengths, of padding negative; column b begins with number b. None: no array
    int sources[4];   // those of the keys, which then are other texts; none: keys are of the same
    float dropout;    // of attention
    int64_t sliding_window; // of attention
    int64_t reach;          // of attention's bias; 0: none
    int steep;              // third derivatives are large, or a gradient is withheld: not for difference quotients
    float offset;           // of the weights of norms
    int64_t ignored;        // embedding: a token without a gradient, which is not 0; 0: none
    float smooth;           // of the labels of cross_entropy
} Shape;

typedef struct {
    const char *name, *dname; // in data/ref; dname NULL: a saved output, which has no gradient
    int64_t rows, n;
    double *v, *d;           // the oracle's values and gradients
    float *fv, *fd, *before; // the library's; before: what the gradient is added to (NULL: it is only ever written)
    double depth, ddepth;    // roundings in the longest chain behind one value, one gradient; 0: it is exact
    double floor, dfloor;    // norm of the terms where the result is a difference that may cancel
    int unwanted;            // the library was asked not to compute this gradient
    int is_table;            // its rows are not those of the batch's samples
} Slot;

typedef struct Op Op;
typedef struct {
    const Op *op;
    const Shape *shape;
    Slot in[5], out[4];
    int ins, outs, number; // number: a stream of random numbers
    int64_t R, C, N, B;
    int32_t *ids;
    const char *ids_name; // in data/ref; NULL: there are none in it
    int64_t ids_n;
    float *targets; // of losses that have some, [R,C]
    GxAttention a;
    int32_t *documents, *key_documents; // attention's, of the column's whole positions
    GxStep step;                        // seed and number of the step, for dropout
    GxDropout dropout;
    int64_t count; // of a loss: rows that count
    float scale;   // 1/count
} Case;

struct Op {
    const char *name;
    void (*open)(Case *);
    void (*forward)(Case *);
    void (*backward)(Case *);
    void (*library)(GxContext *, Case *, int accumulate, int variant); // reads in.fv, out.fd; writes out.fv, in.fd
    int variants, any_threads; // any_threads: the same bits for any number of threads
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
static Slot *weight(Case *c, const char *name, const char *dname, int64_t rows, int64_t cols,
                    double ddepth) // its gradient accumulates
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
static const GxRope rope = {.theta = 10000};
// clang-format off
#define RUN1(length, position)                     {1, {{0, length, position}}}
#define RUN2(length, position, length2, position2) {2, {{0, length, position}, {length, length2, position2}}}
// clang-format on

static void copy_staged(GxContext *g, float *to, const float *from,
                        int64_t n) // a test's own copying stays away on the device `none`
{
    if (g->device->computes) memcpy(to, from, (size_t)n * sizeof *to);
}

// -- norm: rstd is a sum of C squares and 4 more roundings; dx has a second sum of C behind it

static const Shape norm_shapes[] = {
    {.d = {1, 1}},
    {.d = {3, 7}},
    {.d = {7, 33}},
    {.d = {65, 129}},
    {.d = {130, 64}},
    {.d = {257, 1}, .steep = 1},
    {.d = {2, 1000}},
    {.d = {7, 33}, .offset = 1},
    {.d = {18, 5}, .offset = 1}}; // one column: y is the sign of x, but within sqrt(eps) of 0

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

static void rms_norm_forward(Case *c)
{
    oracle_rms_norm_forward(c->out[0].v, c->out[1].v, c->in[0].v, c->in[1].v, c->shape->offset, c->R, c->C, NORM_EPS);
}
static void add_rms_norm_forward(Case *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++) c->out[2].v[i] = c->in[0].v[i] + c->in[1].v[i];
    oracle_rms_norm_forward(c->out[0].v, c->out[1].v, c->out[2].v, c->in[2].v, c->shape->offset, c->R, c->C, NORM_EPS);
}

// dx is rstd*w*dy less its share along x; with one column nearly all of it cancels, so that errors are of the first
// term's size.
static void norm_backward(Case *c, const double *dsum, const double *x, Slot *w)
{
    oracle_rms_norm_backward(c->in[0].d, w->d, c->out[0].d, dsum, x, c->out[1].v, w->v, c->shape->offset, c->R, c->C);
    double squares = 0;
    for (int64_t i = 0; i < c->R * c->C; i++)
        squares += pow(c->out[1].v[i / c->C] * (w->v[i % c->C] + c->shape->offset) * c->out[0].d[i], 2);
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
    gx_rms_norm_forward(g, c->out[0].fv, c->out[1].fv, x->fv, w->fv, c->shape->offset, c->R, c->C, NORM_EPS, GX_F32);
    gx_rms_norm_backward(g, x->fd, w->unwanted ? NULL : w->fd, c->out[0].fd, NULL, x->fv, c->out[1].fv, w->fv,
                         c->shape->offset, c->R, c->C, accumulate, GX_F32);
}
static void add_rms_norm_library(GxContext *g, Case *c, int accumulate,
                                 int variant) // 1: sum is x, dx is dresidual; 2: sum is a, no dw
{
    Slot *x = &c->in[0], *a = &c->in[1], *w = &c->in[2], *y = &c->out[0], *rstd = &c->out[1], *sum = &c->out[2];
    w->unwanted = variant == 2;
    if (variant) copy_staged(g, sum->fv, variant == 1 ? x->fv : a->fv, sum->n);
    gx_add_rms_norm_forward(g, sum->fv, y->fv, rstd->fv, variant == 1 ? sum->fv : x->fv, variant == 2 ? sum->fv : a->fv,
                            w->fv, c->shape->offset, c->R, c->C, NORM_EPS, GX_F32);
    if (variant == 1) copy_staged(g, x->fd, sum->fd, x->n);
    gx_rms_norm_backward(g, x->fd, w->unwanted ? NULL : w->fd, y->fd, variant == 1 ? x->fd : sum->fd, sum->fv, rstd->fv,
                         w->fv, c->shape->offset, c->R, c->C, accumulate, GX_F32);
    copy_staged(g, a->fd, x->fd, x->n);
}

// -- linear: one product per output element

static const Shape linear_shapes[] = {{.d = {1, 1, 1, 1}},     {.d = {5, 13, 9, 1}}, {.d = {3, 4, 5, 0}},
                                      {.d = {130, 33, 65, 1}}, {.d = {64, 7, 1, 1}}, {.d = {97, 257, 34, 0}},
                                      {.d = {1, 300, 70, 1}}};

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
    oracle_linear_backward(c->in[0].d, c->in[1].d, or_null(&c->in[2], c->in[2].d), c->out[0].d, c->in[0].v, c->in[1].v,
                           c->R, c->C, c->N);
}
static void linear_library(GxContext *g, Case *c, int accumulate, int variant) // 1: no dw; 2: no dbias; 3: neither
{
    Slot *x = &c->in[0], *w = &c->in[1], *b = &c->in[2], *y = &c->out[0];
    w->unwanted = variant & 1;
    b->unwanted = variant & 2;
    GxLinearShape s = gx_linear_shape(c->R, c->C, c->N, GX_F32);
    gx_linear_forward(g, y->fv, x->fv, w->fv, b->n ? b->fv : NULL, &s);
    gx_linear_backward_input(g, x->fd, y->fd, w->fv, &s);
    s.accumulate = accumulate;
    gx_linear_backward_weight(g, w->unwanted ? NULL : w->fd, b->unwanted ? NULL : b->fd, y->fd, x->fv, &s);
}

// -- rope: a cosine, a product, a sum

static const Shape rope_shapes[] = {{.d = {2, 3, 8, 0}, .q = RUN1(6, 4)},
                                    {.d = {1, 1, 2, 1}, .q = RUN1(1, 0)},
                                    {.d = {3, 2, 10, 5}, .q = RUN2(5, 2, 4, 40)},
                                    {.d = {2, 3, 64, 7}, .q = RUN2(33, 100, 32, 3)}};

static void rope_open(Case *c)
{
    int64_t rows = oracle_rows(&c->shape->q) * c->shape->d[0], cols = c->shape->d[1] * c->shape->d[2];
    c->B = c->shape->d[0];
    input(c, "x", "dx", rows, cols, 4);
    output(c, "y", "dy", rows, cols, 4);
}
static void rope_rotate(const Case *c, double *y, const double *x, int direction)
{
    const int64_t *d = c->shape->d;
    oracle_rope(y, x, &c->shape->q, d[0], d[1], d[2], d[1] * d[2], THETA, direction);
}
static void rope_forward(Case *c) { rope_rotate(c, c->out[0].v, c->in[0].v, +1); }
static void rope_backward(Case *c) { rope_rotate(c, c->in[0].d, c->out[0].d, -1); }

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
    gx_rope_table(cosine, sine, positions, d[2], &rope);
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

// -- head_norm: the norm of all heads as rows of their own

static const Shape head_norm_shapes[] = {{.d = {7, 3, 10, 5}},
                                         {.d = {1, 1, 1, 0}},
                                         {.d = {40, 2, 7, 1}},
                                         {.d = {65, 3, 16, 32}},
                                         {.d = {3, 5, 128, 0}},
                                         {.d = {60, 4, 1, 2}, .steep = 1},
                                         {.d = {7, 3, 10, 5}, .offset = 1}};

static void head_norm_open(Case *c)
{
    const int64_t rows = c->R * c->shape->d[1], h = c->shape->d[2];
    input(c, "x", "dx", rows, h, 2 * (double)h + 13);
    weight(c, "w", "dw", 1, h, (double)(rows + h) + 7);
    output(c, "y", "dy", rows, h, (double)h + 6);
    output(c, "rstd", NULL, rows, 1, (double)h + 4);
}
static void head_norm_forward(Case *c)
{
    oracle_rms_norm_forward(c->out[0].v, c->out[1].v, c->in[0].v, c->in[1].v, c->shape->offset, c->in[0].rows,
                            c->shape->d[2], NORM_EPS);
}
static void head_norm_backward(Case *c)
{
    const int64_t h = c->shape->d[2], rows = c->in[0].rows;
    double squares = 0;
    oracle_rms_norm_backward(c->in[0].d, c->in[1].d, c->out[0].d, NULL, c->in[0].v, c->out[1].v, c->in[1].v,
                             c->shape->offset, rows, h);
    for (int64_t i = 0; i < rows * h; i++)
        squares += pow(c->out[1].v[i / h] * (c->in[1].v[i % h] + c->shape->offset) * c->out[0].d[i], 2);
    c->in[0].dfloor = sqrt(squares);
}
static void head_norm_library(GxContext *g, Case *c, int accumulate, int variant) // in place, with gaps; 1: no dw
{
    const int64_t *d = c->shape->d, R = d[0], width = d[1] * d[2], gap = d[3], stride = width + gap;
    const GxHeadNorm s = {R, d[1], d[2], stride, stride + 1, NORM_EPS, GX_F32, c->shape->offset};
    Slot *x = &c->in[0], *w = &c->in[1], *y = &c->out[0], *rstd = &c->out[1];
    float *rows = floats(R * stride), *kept = floats(R * (stride + 1)), *dense = floats(R * width);
    w->unwanted = variant == 1;
    fill_nan(kept, R * (stride + 1));
    for (int back = 0; back < 2; back++) {
        fill_nan(rows, R * stride);
        copy_rows(rows, stride, back ? y->fd : x->fv, width, R, width);
        if (back) gx_head_norm_backward(g, rows, w->unwanted ? NULL : w->fd, kept, rstd->fv, w->fv, &s, accumulate);
        else gx_head_norm_forward(g, rows, kept, rstd->fv, w->fv, &s);
        CHECK(count_nan(rows, R * stride) == R * gap, "head_norm wrote into the gaps between rows");
        if (g->device->computes) copy_rows(back ? x->fd : y->fv, width, rows, stride, R, width);
    }
    copy_rows(dense, width, kept, stride + 1, R, width);
    if (g->device->computes)
        CHECK(!memcmp(dense, x->fv, (size_t)(R * width) * 4) &&
                  count_nan(kept, R * (stride + 1)) == R * (stride + 1 - width),
              "head_norm keeps something else than what it read");
    free(rows), free(kept), free(dense);
}

// -- attention: a score is a sum over h, a probability is behind a sum over Tk (and the log-sum-exp), an output behind
// another; in the
//    backward dp and D are sums over h, dq sums over Tk, dk and dv over Tq and the heads of the group, dbias over the
//    pairs at a distance. 16 single roundings.

enum {
    DENSE,
    GAPS,
    PACKED
}; // layouts: GAPS: 3 elements behind each row; PACKED: q, k, v side by side, 5 elements behind

static const Shape attention_shapes[] = {
    {.d = {2, 6, 2, 10}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 1, 1, 1}, .q = RUN1(1, 0), .k = RUN1(1, 0), .causal = 1},
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 3), .k = RUN1(8, 0), .causal = 1, .layout = GAPS},
    {.d = {3, 4, 4, 2}, .q = RUN1(4, 0), .k = RUN1(3, 0)},
    {.d = {1, 2, 1, 4},
     .q = RUN2(3, 0, 4, 9),
     .k = RUN2(4, 1, 3, 10),
     .causal = 1,
     .layout = GAPS,
     .scale = 0.7f},                                                    // row 0 sees no key
    {.d = {2, 2, 2, 2}, .q = RUN1(4, 0), .k = RUN1(3, 4), .causal = 1}, // no row sees any
    {.d = {2, 3, 1, 10}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 4, 4, 48}, .q = RUN1(65, 0), .k = RUN1(130, 0), .layout = GAPS},
    {.d = {3, 6, 2, 2},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .causal = 1,
     .layout = PACKED}, // a balanced rank's two runs
    {.d = {1, 3, 1, 64}, .q = RUN1(70, 60), .k = RUN1(130, 0), .causal = 1},
    {.d = {2, 2, 1, 10},
     .q = RUN2(40, 500, 37, 590),
     .k = RUN2(530, 0, 70, 540),
     .causal = 1,
     .layout = GAPS}, // key blocks of 512, 18, 70
    {.d = {1, 2, 1, 6}, .q = RUN1(600, 0), .k = RUN1(600, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 1, 1, 10}, .q = RUN1(130, 0), .k = RUN1(600, 0), .layout = DENSE},
    {.d = {1, 2, 2, 6},
     .q = RUN1(130, 0),
     .k = RUN2(30, 70, 50, 20),
     .causal = 1}, // a tile of queries before, in and behind its keys
    // a rank's part of the heads, which begins or ends inside a group
    {.d = {2, 3, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .group = 2, .q_first = 1, .causal = 1, .layout = PACKED},
    {.d = {2, 1, 1, 4}, .q = RUN1(5, 3), .k = RUN1(8, 0), .group = 2, .q_first = 1, .causal = 1, .layout = GAPS},
    {.d = {3, 5, 3, 2}, .q = RUN1(7, 0), .k = RUN1(5, 0), .group = 2, .q_first = 1, .layout = GAPS},
    {.d = {1, 4, 2, 10}, .q = RUN1(6, 0), .k = RUN1(6, 0), .group = 3, .q_first = 1, .causal = 1, .layout = PACKED},
    {.d = {2, 4, 2, 2}, .q = RUN1(6, 0), .k = RUN1(7, 0), .group = 3, .q_first = 2}, // one of a group, the next whole
    {.d = {1, 5, 2, 4}, .q = RUN1(5, 0), .k = RUN1(5, 0), .group = 3, .causal = 1, .layout = GAPS},  // a group whole,
                                                                                                     // two of the next
    {.d = {2, 2, 1, 4}, .q = RUN1(6, 0), .k = RUN1(3, 1), .group = 4, .q_first = 1, .causal = 1},    // the middle of a
                                                                                                     // group
    {.d = {1, 6, 3, 2}, .q = RUN1(4, 0), .k = RUN1(4, 0), .group = 2, .causal = 1, .layout = DENSE}, // whole groups,
                                                                                                     // told so
    {.d = {1, 3, 2, 10},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .group = 2,
     .q_first = 1,
     .causal = 1,
     .layout = PACKED},
    {.d = {1, 4, 3, 6}, .q = RUN1(70, 530), .k = RUN1(600, 0), .group = 2, .q_first = 1, .causal = 1, .layout = GAPS},
    // documents and padding, each column's others
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .layout = PACKED, .documents = {4, 3}},
    {.d = {3, 2, 2, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .documents = {2, -1, 5}},
    {.d = {2, 1, 1, 2}, .q = RUN1(5, 0), .k = RUN1(5, 0), .documents = {-5}}, // nothing but padding
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 3), .k = RUN1(9, 0), .layout = GAPS, .documents = {4, 3}},
    {.d = {2, 2, 1, 6}, .q = RUN1(200, 0), .k = RUN1(200, 0), .layout = PACKED, .documents = {70, -3, 64, 40}},
    // keys of other texts, more or fewer
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(13, 0), .documents = {4, 3}, .sources = {6, 5}},
    {.d = {3, 4, 2, 6}, .q = RUN1(200, 0), .k = RUN1(90, 0), .documents = {70, -3, 64, 40}, .sources = {30, 9, -5, 20}},
    {.d = {1, 2, 2, 6},
     .q = RUN1(70, 30),
     .k = RUN2(520, 0, 60, 600),
     .documents = {50, 50},
     .sources = {555, 120},
     .dropout = 0.3f},
    {.d = {2, 2, 2, 6}, .q = RUN1(200, 0), .k = RUN1(200, 0), .causal = 1, .documents = {70, -3, 64, 40}},
    {.d = {2, 4, 2, 4},
     .q = RUN2(40, 500, 37, 590),
     .k = RUN2(530, 0, 70, 540),
     .layout = GAPS,
     .documents = {500, 20, 100, 15}}, // key blocks of 512, 18, 70
    {.d = {1, 2, 1, 4}, .q = RUN1(600, 0), .k = RUN1(600, 0), .causal = 1, .documents = {30, 541, 20}},
    // dropout, of heads from some number on
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .layout = PACKED, .dropout = 0.3f},
    {.d = {2, 3, 3, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .dropout = 0.5f},
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 3), .k = RUN1(8, 0), .causal = 1, .layout = GAPS, .dropout = 0.1f},
    {.d = {1, 2, 1, 4},
     .q = RUN2(3, 0, 4, 9),
     .k = RUN2(4, 1, 3, 10),
     .causal = 1,
     .layout = GAPS,
     .dropout = 0.2f}, // keys from a position on that is no multiple of 4
    {.d = {2, 3, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .group = 2, .q_first = 1, .layout = PACKED, .dropout = 0.1f},
    {.d = {1, 2, 1, 10}, .q = RUN1(130, 0), .k = RUN1(600, 0), .dropout = 0.1f},
    {.d = {1, 1, 1, 4}, .q = RUN1(600, 0), .k = RUN1(600, 0), .causal = 1, .dropout = 0.9f},
    // both
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .layout = PACKED, .documents = {4, 3}, .dropout = 0.3f},
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .documents = {1, -2, 6}, .dropout = 0.3f},
    {.d = {3, 4, 2, 6},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .layout = PACKED,
     .documents = {65, 73, -4, 52},
     .dropout = 0.2f}, // one document lies in both runs
    // windows: of one key, in one tile, in several, as long as the sequence or longer
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = PACKED, .sliding_window = 1},
    {.d = {2, 6, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = PACKED, .sliding_window = 7},
    {.d = {1, 2, 1, 6}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1, .sliding_window = 64},
    {.d = {1, 2, 1, 6}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1, .sliding_window = 69},
    {.d = {1, 2, 1, 6}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1, .sliding_window = 70},
    {.d = {1, 2, 1, 6}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1, .sliding_window = INT64_MAX},
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 3), .k = RUN1(8, 0), .causal = 1, .layout = GAPS, .sliding_window = 2},
    {.d = {1, 2, 1, 6}, .q = RUN1(600, 0), .k = RUN1(600, 0), .causal = 1, .layout = PACKED, .sliding_window = 37},
    {.d = {1, 2, 1, 6}, .q = RUN1(600, 0), .k = RUN1(600, 0), .causal = 1, .sliding_window = 500},
    {.d = {1, 2, 1, 4},
     .q = RUN2(3, 0, 4, 9),
     .k = RUN2(4, 1, 3, 10),
     .causal = 1,
     .layout = GAPS,
     .sliding_window = 3}, // of the second run's queries the first sees no key
    {.d = {2, 2, 2, 2},
     .q = RUN1(4, 8),
     .k = RUN1(3, 0),
     .causal = 1,
     .sliding_window = 6}, // one row sees one, the others none
    {.d = {2, 2, 2, 2}, .q = RUN1(4, 8), .k = RUN1(3, 0), .causal = 1, .sliding_window = 5}, // no row sees any
    {.d = {3, 6, 2, 2},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .causal = 1,
     .layout = PACKED,
     .sliding_window = 65}, // the second run's first queries see the end of the first run
    {.d = {2, 2, 1, 10},
     .q = RUN2(40, 500, 37, 590),
     .k = RUN2(530, 0, 70, 540),
     .causal = 1,
     .layout = GAPS,
     .sliding_window = 33},
    {.d = {1, 3, 2, 10},
     .q = RUN1(70, 60),
     .k = RUN1(130, 0),
     .group = 2,
     .q_first = 1,
     .causal = 1,
     .sliding_window = 50},
    {.d = {2, 2, 2, 6},
     .q = RUN1(200, 0),
     .k = RUN1(200, 0),
     .causal = 1,
     .documents = {70, -3, 64, 40},
     .sliding_window = 21},
    {.d = {2, 2, 1, 4},
     .q = RUN1(9, 0),
     .k = RUN1(9, 0),
     .causal = 1,
     .documents = {1, -2, 6},
     .dropout = 0.3f,
     .sliding_window = 4},
    {.d = {1, 1, 1, 4}, .q = RUN1(600, 0), .k = RUN1(600, 0), .causal = 1, .dropout = 0.5f, .sliding_window = 130},
    // a bias by distance: within its reach and beyond it, on both sides
    {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .layout = PACKED, .scale = 1, .reach = 3},
    {.d = {2, 3, 3, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = GAPS, .reach = 1},
    {.d = {1, 1, 1, 1}, .q = RUN1(1, 0), .k = RUN1(1, 0), .reach = 2},                // all but one row are of no pair
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .scale = 0.3f, .reach = 8}, // just the sequence
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .reach = 40},  // farther than the sequence
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 30), .k = RUN1(8, 0), .layout = GAPS, .reach = 3}, // all keys are beyond one end
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 0), .k = RUN1(8, 30), .layout = GAPS, .reach = 3}, // the other
    {.d = {2, 2, 2, 2}, .q = RUN1(4, 0), .k = RUN1(3, 4), .causal = 1, .reach = 2},     // no row sees any
    {.d = {1, 2, 1, 4},
     .q = RUN2(3, 0, 4, 9),
     .k = RUN2(4, 1, 3, 10),
     .causal = 1,
     .layout = GAPS,
     .scale = 0.7f,
     .reach = 5},
    {.d = {2, 3, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .group = 2, .q_first = 1, .layout = PACKED, .reach = 4},
    {.d = {2, 2, 1, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .documents = {4, 3}, .dropout = 0.3f, .reach = 3},
    {.d = {2, 2, 1, 4},
     .q = RUN1(9, 0),
     .k = RUN1(9, 0),
     .causal = 1,
     .documents = {1, -2, 6},
     .dropout = 0.3f,
     .sliding_window = 4,
     .reach = 2},
    {.d = {3, 6, 2, 2},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .causal = 1,
     .layout = PACKED,
     .reach = 100},
    {.d = {2, 2, 1, 10},
     .q = RUN2(40, 500, 37, 590),
     .k = RUN2(530, 0, 70, 540),
     .layout = GAPS,
     .scale = 1,
     .reach = 128}, // key blocks of 512, 18, 70
    {.d = {1, 2, 1, 6}, .q = RUN1(600, 0), .k = RUN1(600, 0), .layout = PACKED, .dropout = 0.1f, .reach = 37},
    {.d = {2, 2, 2, 6}, .q = RUN1(200, 0), .k = RUN1(200, 0), .documents = {70, -3, 64, 40}, .reach = 50},
};

static void attention_open(Case *c)
{
    const Shape *s = c->shape;
    const int64_t Tq = oracle_rows(&s->q), Tk = oracle_rows(&s->k), B = s->d[0], H = s->d[1], K = s->d[2], h = s->d[3];
    GxAttention a = GX_ZERO;
    a.B = B, a.H = H, a.K = K, a.head_dim = h, a.group = s->group, a.q_first = s->q_first;
    a.q_runs = s->q, a.k_runs = s->k;
    a.q_stride = a.o_stride = H * h, a.kv_stride = K * h;
    a.causal = s->causal, a.sliding_window = s->sliding_window, a.scale = s->scale, a.dtype = GX_F32;
    c->documents = oracle_documents(s->documents, oracle_positions(&s->q, &s->k), B);
    if (s->documents[0]) a.documents = c->documents;
    if (s->sources[0]) {
        free(c->documents);
        a.documents = c->documents = oracle_crossing(s->documents, s->sources, oracle_positions(&s->q, &s->k), B);
        a.key_documents = c->key_documents =
            oracle_crossing(s->sources, s->documents, oracle_positions(&s->q, &s->k), B);
    }
    a.dropout = s->dropout, a.site = gx_random_site(GX_SITE_DROPOUT, 7);
    a.first_sample = 3, a.T = oracle_positions(&s->q, &s->k), a.heads = H + 5, a.head_first = 3;
    c->step.seed = 0x123456789abcdefULL, c->step.step = 9, c->step.first_sample = 2;
    c->a = a;
    c->B = B;
    const int64_t sharing = s->group ? gx_min(s->group, H) : H / K; // query heads of a key and value head
    const double scores = (double)(h + Tk) + 16, others = (double)(Tq * sharing), keys = (double)Tk,
                 dots = 2 * (double)h;
    input(c, "q", "dq", Tq * B, H * h, scores + dots + keys);
    input(c, "k", "dk", Tk * B, K * h, scores + dots + others);
    input(c, "v", "dv", Tk * B, K * h, scores + others);
    if (s->reach) {
        Slot *bias = input(c, "bias", "dbias", 2 * s->reach + 1, H, scores + dots + (double)(Tq * Tk * B));
        bias->is_table = 1;
        c->a.bias = bias->fv, c->a.dbias = bias->fd, c->a.reach = s->reach;
    }
    output(c, "o", "do", Tq * B, H * h, scores + keys);
    Slot *lse = output(c, "lse", NULL, Tq * B, H, scores);
    lse->floor = sqrt((double)lse->n); // a logarithm: its absolute error is the sum's relative one
}
static void attention_forward(Case *c)
{
    oracle_attention_forward(c->out[0].v, c->out[1].v, c->in[0].v, c->in[1].v, c->in[2].v, c->in[3].v, &c->a, &c->step);
}
static void attention_backward(Case *c)
{
    double terms[3];
    oracle_attention_backward(c->in[0].d, c->in[1].d, c->in[2].d, c->in[3].d, terms, c->out[0].d, c->in[0].v,
                              c->in[1].v, c->in[2].v, c->in[3].v, &c->a, &c->step);
    for (int i = 0; i < 2; i++) c->in[i].dfloor = terms[i]; // of dp - D
    c->in[3].dfloor = terms[2];
}

typedef struct {
    float *block, *q, *k, *v;
    int64_t n;
} Heads; // q, k, v in one block of n floats, by layout

static Heads heads_open(const Case *c, GxAttention *a)
{
    const int64_t *d = c->shape->d, q = d[1] * d[3], kv = d[2] * d[3], gap = c->shape->layout == GAPS ? 3 : 0;
    const int packed = c->shape->layout == PACKED;
    a->q_stride = packed ? q + 2 * kv + 5 : q + gap;
    a->kv_stride = packed ? a->q_stride : kv + gap;
    a->o_stride = q + 2 * gap;
    int64_t rows = c->in[1].rows, k_at = packed ? q : c->in[0].rows * a->q_stride,
            v_at = k_at + (packed ? kv : rows * a->kv_stride);
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
    *g->step = c->step;
    gx_attention_forward(g, out, lse->fv, x.q, x.k, x.v, &a);
    gx_attention_backward(g, dx.q, dx.k, dx.v, d_o, out, lse->fv, x.q, x.k, x.v, &a);
    if (g->device->computes) {
        CHECK(count_nan(out, o_n) == o_n - o->n && count_nan(dx.block, dx.n) == dx.n - q->n - k->n - v->n,
              "gaps were written, or NaN came out");
        copy_rows(o->fv, wide, out, a.o_stride, o->rows, wide);
        copy_rows(q->fd, wide, dx.q, a.q_stride, q->rows, wide);
        copy_rows(k->fd, narrow, dx.k, a.kv_stride, k->rows, narrow);
        copy_rows(v->fd, narrow, dx.v, a.kv_stride, v->rows, narrow);
    }
    free(x.block), free(dx.block), free(out), free(d_o);
}

// -- swiglu: exp, sum, division, three products

static const Shape swiglu_shapes[] = {
    {.d = {5, 11}}, {.d = {1, 1}}, {.d = {65, 33}}, {.d = {3, 300}}, {.d = {4, 64, 100}, .steep = 1}};

static void swiglu_open(Case *c)
{
    input(c, "gate|up", "dgate|dup", c->R, 2 * c->C, 12);
    for (int64_t i = 0; c->N && i < c->in[0].n; i++) c->in[0].fv[i] *= (float)c->N;
    output(c, "y", "dy", c->R, c->C, 8);
}
static void swiglu_forward(Case *c) { oracle_swiglu_forward(c->out[0].v, c->in[0].v, c->R, c->C); }
static void swiglu_backward(Case *c)
{
    oracle_swiglu_backward(c->in[0].d, c->out[0].d, c->in[0].v, c->R, c->C);
    double squares = 0; // dgate is dy*up*s times a sum that passes through zero at gate = -1.28: its errors are of the
                        // size of dy*up*s
    for (int64_t i = 0; i < c->R * c->C; i++) {
        const double *gate = c->in[0].v + i / c->C * 2 * c->C + i % c->C;
        squares += pow(c->out[0].d[i] * gate[c->C] * oracle_sigmoid(gate[0]), 2);
    }
    c->in[0].dfloor = sqrt(squares);
}
static void swiglu_library(GxContext *g, Case *c, int accumulate,
                           int variant) // 1: dgate_up is gate_up, y is made again, over dy
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

// -- cross-entropy: maximum, a sum over V, log; a loss may be near 0 where the label is sure, and p - 1 too: errors are
// of 1's size

static const Shape cross_entropy_shapes[] = {{.d = {6, 17, 2, 0}},
                                             {.d = {1, 1, 1, 0}},
                                             {.d = {5, 7, 1, 2}},
                                             {.d = {66, 301, 3, 3}},
                                             {.d = {8, 33, 10000, 5}, .steep = 1},
                                             {.d = {4, 9, 1, 1}}}; // the last: all rows ignored
static const Shape smoothed_shapes[] = {{.d = {6, 17, 2, 0}, .smooth = 0.125f}, {.d = {5, 7, 1, 2}, .smooth = 0.25f},
                                        {.d = {66, 301, 3, 3}, .smooth = 0.1f}, {.d = {1, 1, 1, 0}, .smooth = 0.5f},
                                        {.d = {15, 61, 2, 7}, .smooth = 1},     {.d = {4, 9, 1, 1}, .smooth = 0.1f}};

static void cross_entropy_count(Case *c)
{
    int64_t rows = 0;
    for (int64_t r = 0; r < c->R; r++) rows += c->ids[r] != GX_IGNORE_INDEX;
    c->count = gx_max(rows, 1), c->scale = 1.0f / (float)c->count;
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
    oracle_cross_entropy(c->out[0].v, c->in[0].d, c->in[0].v, c->ids, c->R, c->C, c->scale, c->shape->smooth);
}
static void cross_entropy_library(GxContext *g, Case *c, int accumulate,
                                  int variant) // 1: dlogits is logits; 2: the losses alone
{
    (void)accumulate;
    Slot *x = &c->in[0];
    x->unwanted = variant == 2;
    if (variant == 1) copy_staged(g, x->fd, x->fv, x->n);
    gx_cross_entropy(g, c->out[0].fv, variant == 2 ? NULL : x->fd, variant == 1 ? x->fd : x->fv, c->ids, c->R, c->C,
                     &c->count, NULL, c->shape->smooth, GX_F32);
}

// -- cross-entropy in steps, each part of the vocabulary with buffers of its own, as on ranks: a sum over three parts
// on top

static const Shape cross_entropy_parts_shapes[] = {
    {.d = {6, 17, 2, 0}},   {.d = {15, 61, 2, 7}}, {.d = {1, 1, 1, 0}}, {.d = {3, 2, 1, 0}},
    {.d = {66, 301, 3, 3}}, {.d = {4, 9, 1, 1}},   {.d = {5, 7, 1, 2}}, {.d = {8, 33, 10000, 5}, .steep = 1}};

enum { PARTS = 3 };
static int cut_vocabulary(int64_t V,
                          int64_t begin[PARTS + 1]) // unevenly, 61 = 30 + 1 + 30; returns how many parts: none is empty
{
    const int64_t end[PARTS] = {V / 2, V / 2 + 1, V};
    int parts = 0;
    begin[0] = 0;
    for (int p = 0; p < PARTS; p++)
        if (end[p] > begin[parts]) begin[++parts] = end[p];
    return parts;
}

static GxVocabPart part_of(const Case *c, int64_t begin, int64_t end)
{
    const GxVocabPart part = {c->R, end - begin, begin, c->C, c->shape->smooth};
    return part;
}

static double *columns(const double *x, int64_t R, int64_t C, int64_t begin, int64_t end)
{
    double *part = doubles(R * (end - begin));
    for (int64_t r = 0; r < R; r++)
        memcpy(part + r * (end - begin), x + r * C + begin, (size_t)(end - begin) * sizeof *part);
    return part;
}

static void cross_entropy_parts_open(Case *c)
{
    cross_entropy_open(c);
    c->in[0].ddepth += PARTS;
    c->out[0].depth += PARTS;
}
static void cross_entropy_parts_both(Case *c)
{
    const int64_t R = c->R;
    int64_t begin[PARTS + 1];
    const int parts = cut_vocabulary(c->C, begin);
    double *maximum = doubles(R), *sums = doubles(3 * R), *own = doubles(3 * R), *x[PARTS], *exps[PARTS];
    for (int64_t r = 0; r < R; r++) maximum[r] = -INFINITY;
    for (int p = 0; p < parts; p++) {
        x[p] = columns(c->in[0].v, R, c->C, begin[p], begin[p + 1]);
        exps[p] = doubles(R * c->C);
        oracle_cross_entropy_maximum(own, x[p], R, begin[p + 1] - begin[p]);
        for (int64_t r = 0; r < R; r++) maximum[r] = fmax(maximum[r], own[r]);
    }
    for (int p = 0; p < parts; p++) {
        oracle_cross_entropy_sums(own, exps[p], x[p], maximum, c->ids, R, begin[p + 1] - begin[p], begin[p]);
        for (int64_t i = 0; i < 3 * R; i++) sums[i] += own[i];
    }
    for (int p = 0; p < parts; p++) {
        const int64_t V = begin[p + 1] - begin[p];
        const GxVocabPart part = part_of(c, begin[p], begin[p + 1]);
        oracle_cross_entropy_finish(c->out[0].v, x[p], exps[p], sums, c->ids, &part, c->scale);
        for (int64_t r = 0; r < R; r++)
            memcpy(c->in[0].d + r * c->C + begin[p], x[p] + r * V, (size_t)V * sizeof(double));
        free(x[p]), free(exps[p]);
    }
    free(maximum), free(sums), free(own);
}

typedef struct {
    GxVocabPart of;
    int64_t begin, V;
    float *logits, *exps, *dlogits, *maximum, *sums, *losses;
} Part; // what a rank has

enum { APART, IN_PLACE, LOSSES_ALONE }; // exps and dlogits: of their own; in the place of the logits; NULL
static Part part_open(const Case *c, int64_t begin, int64_t end, int variant)
{
    const int64_t R = c->R, V = end - begin;
    Part p = {part_of(c, begin, end), begin, V, floats(R * V), NULL, NULL, floats(R), floats(3 * R), floats(R)};
    copy_rows(p.logits, V, c->in[0].fv + begin, c->C, R, V);
    fill_nan(p.maximum, R), fill_nan(p.sums, 3 * R), fill_nan(p.losses, R);
    if (variant == IN_PLACE) p.exps = p.dlogits = p.logits;
    if (variant == APART)
        p.exps = floats(R * V), p.dlogits = floats(R * V), fill_nan(p.exps, R * V), fill_nan(p.dlogits, R * V);
    return p;
}
static void part_close(Part *p)
{
    if (p->exps != p->logits) free(p->exps), free(p->dlogits);
    free(p->logits), free(p->maximum), free(p->sums), free(p->losses);
}

static void cross_entropy_in_parts(GxContext *g, Case *c, int variant, const int64_t *begin, int parts)
{
    const int64_t R = c->R;
    Part part[PARTS];
    c->in[0].unwanted = variant == LOSSES_ALONE;
    for (int i = 0; i < parts; i++) {
        Part *p = &part[i];
        *p = part_open(c, begin[i], begin[i + 1], variant);
        gx_cross_entropy_maximum(g, p->maximum, p->logits, R, p->V, GX_F32);
    }
    for (int i = 1; i < parts; i++) // all-reduce: the maximum of all, to all
        for (int64_t r = 0; r < R; r++) part[0].maximum[r] = fmaxf(part[0].maximum[r], part[i].maximum[r]);
    for (int i = 0; i < parts; i++) {
        Part *p = &part[i];
        memcpy(p->maximum, part[0].maximum, (size_t)R * sizeof(float));
        gx_cross_entropy_sums(g, p->sums, p->exps, p->logits, p->maximum, c->ids, &p->of, GX_F32);
    }
    const int64_t sums = gx_cross_entropy_sums_n(&part[0].of);
    for (int i = 1; i < parts; i++) // all-reduce: the sum of all, to all
        for (int64_t r = 0; r < sums; r++) part[0].sums[r] += part[i].sums[r];
    for (int i = 0; i < parts; i++) {
        Part *p = &part[i];
        memcpy(p->sums, part[0].sums, (size_t)sums * sizeof(float));
        gx_cross_entropy_finish(g, p->losses, p->dlogits, p->exps, p->sums, c->ids, &p->of, &c->count, NULL, GX_F32);
        if (g->device->computes) {
            CHECK(!memcmp(p->losses, part[0].losses, (size_t)R * sizeof(float)),
                  "the parts of the vocabulary have other losses");
            copy_staged(g, c->out[0].fv, p->losses, R);
            if (p->dlogits) copy_rows(c->in[0].fd + p->begin, c->C, p->dlogits, p->V, R, p->V);
        }
    }
    for (int i = 0; i < parts; i++) part_close(&part[i]);
}
static void cross_entropy_parts_library(GxContext *g, Case *c, int accumulate, int variant)
{
    (void)accumulate;
    int64_t begin[PARTS + 1];
    const int parts = cut_vocabulary(c->C, begin);
    cross_entropy_in_parts(g, c, variant, begin, parts);
}

// -- embedding: a copy; the gradient sums at most R rows

static const Shape embedding_shapes[] = {{.d = {8, 5, 0, 13}},   {.d = {1, 1, 0, 1}},
                                         {.d = {40, 65, 0, 13}}, {.d = {70, 130, 3, 9}},
                                         {.d = {300, 17, 0, 2}}, {.d = {70, 3, 0, 13}, .steep = 1, .ignored = 7}};

static void embedding_open(Case *c)
{
    const int64_t *d = c->shape->d;
    weight(c, "table", "dtable", d[3] - d[2], c->C, (double)c->R + 1);
    output(c, "y", "dy", c->R, c->C, 0);
    for (int64_t r = 0; r < c->R; r++) c->ids[r] = (int32_t)(r * 7 % 13);
    c->ids_name = "ids", c->ids_n = c->R;
}
static int64_t embedding_ignored(const Case *c) { return c->shape->ignored ? c->shape->ignored : -1; }
static void embedding_forward(Case *c)
{
    oracle_embedding_forward(c->out[0].v, c->in[0].v, c->ids, c->R, c->C, c->shape->d[2], c->shape->d[3]);
}
static void embedding_backward(Case *c)
{
    oracle_embedding_backward(c->in[0].d, c->out[0].d, c->ids, c->R, c->C, c->shape->d[2], c->shape->d[3],
                              embedding_ignored(c));
}
static void embedding_library(GxContext *g, Case *c, int accumulate,
                              int variant) // 1: the table in two parts, the second is added
{
    Slot *w = &c->in[0], *y = &c->out[0];
    GxEmbedding e = gx_embedding_shape(c->R, c->C, c->shape->d[3], GX_F32), part = e;
    e.v_begin = part.v_begin = c->shape->d[2];
    const int64_t cut = (e.v_begin + e.v_end) / 2;
    if (variant) {
        part.v_end = cut;
        gx_embedding_forward(g, y->fv, w->fv, c->ids, &part);
        part.v_begin = cut, part.v_end = e.v_end, part.accumulate = 1;
        gx_embedding_forward(g, y->fv, w->fv + (cut - e.v_begin) * c->C, c->ids, &part);
    } else {
        gx_embedding_forward(g, y->fv, w->fv, c->ids, &e);
    }
    e.accumulate = accumulate;
    e.ignored = embedding_ignored(c);
    gx_embedding_backward(g, w->fd, y->fd, c->ids, &e);
}

// The same of a table that lies by columns.

static void turned(double *to, const double *from, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}
static int64_t embedding_table_rows(const Case *c) { return c->shape->d[3] - c->shape->d[2]; }
static void embedding_turned_forward(Case *c)
{
    const int64_t rows = embedding_table_rows(c);
    double *table = (double *)malloc((size_t)(rows * c->C) * sizeof *table);
    turned(table, c->in[0].v, c->C, rows);
    oracle_embedding_forward(c->out[0].v, table, c->ids, c->R, c->C, c->shape->d[2], c->shape->d[3]);
    free(table);
}
static void embedding_turned_backward(Case *c)
{
    const int64_t rows = embedding_table_rows(c);
    double *table = (double *)malloc((size_t)(rows * c->C) * sizeof *table);
    oracle_embedding_backward(table, c->out[0].d, c->ids, c->R, c->C, c->shape->d[2], c->shape->d[3],
                              embedding_ignored(c));
    turned(c->in[0].d, table, rows, c->C);
    free(table);
}
static void embedding_turned_library(GxContext *g, Case *c, int accumulate, int variant)
{
    GxEmbedding e = gx_embedding_shape(c->R, c->C, c->shape->d[3], GX_F32);
    (void)variant;
    e.v_begin = c->shape->d[2], e.is_transposed = 1;
    gx_embedding_forward(g, c->out[0].fv, c->in[0].fv, c->ids, &e);
    e.accumulate = accumulate;
    e.ignored = embedding_ignored(c);
    gx_embedding_backward(g, c->in[0].fd, c->out[0].fd, c->ids, &e);
}

// -- layer_norm: the mean is a sum of C, the variance another, dx has two more behind them. What is subtracted from x
// is rounded, too: errors of y are of the size of x*rstd*w.

static const Shape layer_norm_shapes[] = {{.d = {7, 33}},
                                          {.d = {1, 3}, .steep = 1},
                                          {.d = {1, 1}},
                                          {.d = {257, 1}},
                                          {.d = {5, 17}},
                                          {.d = {65, 129}},
                                          {.d = {3, 768}},
                                          {.d = {33, 768, 1000}, .steep = 1},
                                          {.d = {20, 17, -1000}, .steep = 1}};

static void layer_norm_open(Case *c)
{
    const double R = (double)c->R, C = (double)c->C;
    input(c, "x", "dx", c->R, c->C, 4 * C + 16);
    weight(c, "w", "dw", 1, c->C, R + 2 * C + 8);
    weight(c, "b", "db", 1, c->C, R + 1);
    for (int64_t i = 0; i < c->in[0].n; i++) c->in[0].fv[i] += (float)c->N;
    output(c, "y", "dy", c->R, c->C, 2 * C + 9);
    output(c, "mean", NULL, c->R, 1, C + 1);
    output(c, "rstd", NULL, c->R, 1, 2 * C + 6);
}
static void layer_norm_forward(Case *c)
{
    oracle_layer_norm_forward(c->out[0].v, c->out[1].v, c->out[2].v, c->in[0].v, c->in[1].v, c->in[2].v, c->R, c->C,
                              NORM_EPS);
}
// The norms of what cancels: in y, in the mean, in dx and in dw.
typedef struct {
    double y, mean, dx, dw;
} NormTerms;
static NormTerms norm_terms(const double *x, const double *dy, const double *rstd, const double *w, int64_t R,
                            int64_t C)
{
    NormTerms t = GX_ZERO;
    for (int64_t i = 0; i < R * C; i++) {
        const double r = rstd[i / C], d = dy[i] * w[i % C] * r;
        t.y += pow(x[i] * r * w[i % C], 2), t.mean += x[i] * x[i] / (double)C;
        t.dx += pow(d * (1 + fabs(x[i]) * r), 2), t.dw += pow(dy[i] * x[i] * r, 2);
    }
    t.y = sqrt(t.y), t.mean = sqrt(t.mean), t.dx = sqrt(t.dx), t.dw = sqrt(t.dw);
    return t;
}
static void layer_norm_backward(Case *c)
{
    Slot *x = &c->in[0], *w = &c->in[1], *b = &c->in[2], *y = &c->out[0], *mean = &c->out[1], *rstd = &c->out[2];
    oracle_layer_norm_backward(x->d, w->d, b->d, y->d, x->v, mean->v, rstd->v, w->v, c->R, c->C);
    const NormTerms t = norm_terms(x->v, y->d, rstd->v, w->v, c->R, c->C);
    y->floor = t.y, mean->floor = t.mean, x->dfloor = t.dx, w->dfloor = t.dw;
}
static void layer_norm_library(GxContext *g, Case *c, int accumulate,
                               int variant) // 1: dx is dy, no dw; 2: y is x, without statistics, no dx, no db
{
    Slot *x = &c->in[0], *w = &c->in[1], *b = &c->in[2], *y = &c->out[0], *mean = &c->out[1], *rstd = &c->out[2];
    w->unwanted = variant == 1, b->unwanted = x->unwanted = variant == 2;
    gx_layer_norm_forward(g, y->fv, mean->fv, rstd->fv, x->fv, w->fv, b->fv, c->R, c->C, NORM_EPS, GX_F32);
    if (variant == 2) {
        copy_staged(g, y->fv, x->fv, y->n);
        gx_layer_norm_forward(g, y->fv, NULL, NULL, y->fv, w->fv, b->fv, c->R, c->C, NORM_EPS, GX_F32);
    }
    if (variant == 1) copy_staged(g, x->fd, y->fd, x->n);
    gx_layer_norm_backward(g, variant == 2 ? NULL : x->fd, variant == 1 ? NULL : w->fd, variant == 2 ? NULL : b->fd,
                           variant == 1 ? x->fd : y->fd, x->fv, mean->fv, rstd->fv, w->fv, c->R, c->C, accumulate,
                           GX_F32);
}

// -- dropout: a division and a product

enum { WITH_BIAS = 1, WITH_NORM = 2, WITH_DROPOUT = 4, WITH_ROWS = 8 };
static const GxStep DROPOUT_STEP = {.seed = 0x123456789abcdef0, .step = 7, .first_sample = 6};

static const Shape dropout_shapes[] = {{.d = {8, 21, WITH_DROPOUT | WITH_ROWS}},
                                       {.d = {1, 1, WITH_DROPOUT}},
                                       {.d = {5, 3, WITH_DROPOUT}},
                                       {.d = {9, 17, 0}},
                                       {.d = {3, 768, WITH_DROPOUT}},
                                       {.d = {70, 300, WITH_DROPOUT | WITH_ROWS}}};

static void case_dropout(Case *c) // a slice of a batch of 3 samples
{
    GxDropout d = GX_ZERO;
    if (c->N & WITH_DROPOUT) {
        d.p = 0.25f;
        d.site = gx_random_site(GX_SITE_DROPOUT, 5);
        d.first_sample = 12345678895, d.B = 3, d.first_row = 2;
        d.T = gx_ceil_div(c->R + d.first_row, d.B);
        for (int64_t r = 0; r < c->R; r++) c->ids[r] = (int32_t)(r * 7 % (d.T * d.B));
        if (c->N & WITH_ROWS) d.rows = c->ids, c->ids_name = "rows", c->ids_n = c->R;
    }
    c->dropout = d;
}
static void give_step(GxContext *g, const Case *c)
{
    if (c->N & WITH_DROPOUT) *g->step = DROPOUT_STEP;
    else g->step = NULL; // nothing of it is read
}
static void dropout_open(Case *c)
{
    case_dropout(c);
    input(c, "x", "dx", c->R, c->C, 3);
    output(c, "y", "dy", c->R, c->C, 3);
}
static void dropout_forward(Case *c)
{
    oracle_dropout(c->out[0].v, c->in[0].v, &c->dropout, &DROPOUT_STEP, c->R, c->C);
}
static void dropout_backward(Case *c)
{
    oracle_dropout(c->in[0].d, c->out[0].d, &c->dropout, &DROPOUT_STEP, c->R, c->C);
}
static void dropout_library(GxContext *g, Case *c, int accumulate, int variant) // 1: in place
{
    (void)accumulate;
    Slot *x = &c->in[0], *y = &c->out[0];
    give_step(g, c);
    if (variant) copy_staged(g, y->fv, x->fv, x->n), copy_staged(g, x->fd, y->fd, x->n);
    gx_dropout(g, y->fv, variant ? y->fv : x->fv, c->R, c->C, &c->dropout, GX_F32);
    gx_dropout(g, x->fd, variant ? x->fd : y->fd, c->R, c->C, &c->dropout, GX_F32);
}

// -- residual: a sum of three and two roundings more of dropout, and then what a layer norm has

static const Shape residual_shapes[] = {{.d = {8, 21, WITH_BIAS | WITH_NORM | WITH_DROPOUT | WITH_ROWS}},
                                        {.d = {1, 1, WITH_BIAS | WITH_NORM | WITH_DROPOUT}},
                                        {.d = {5, 3, WITH_DROPOUT}},
                                        {.d = {6, 17, WITH_BIAS}},
                                        {.d = {4, 9, 0}},
                                        {.d = {35, 17, WITH_NORM}},
                                        {.d = {3, 768, WITH_NORM | WITH_DROPOUT}},
                                        {.d = {40, 300, WITH_BIAS | WITH_DROPOUT | WITH_ROWS}},
                                        {.d = {65, 768, WITH_BIAS | WITH_NORM | WITH_DROPOUT}}};

enum { RES_X, RES_OUT, RES_BIAS, RES_W, RES_B };
static void residual_open(Case *c)
{
    const double R = (double)c->R, norm = c->N & WITH_NORM ? 4 * (double)c->C + 16 : 0;
    const int64_t bias = c->N & WITH_BIAS ? c->C : 0, w = c->N & WITH_NORM ? c->C : 0;
    case_dropout(c);
    input(c, "x", "dx", c->R, c->C, norm + 4);
    input(c, "out", "dout", c->R, c->C, norm + 7);
    weight(c, "bias", "dbias", 1, bias, R + norm + 7);
    weight(c, "w", "dw", 1, w, R + norm + 4);
    weight(c, "b", "db", 1, w, R + 1);
    output(c, "y", "dy", c->R, c->C, norm + 5);
    output(c, "sum", NULL, c->R, c->C, 5);
    output(c, "mean", NULL, w ? c->R : 0, 1, norm + 5);
    output(c, "rstd", NULL, w ? c->R : 0, 1, norm + 5);
}
static void residual_forward(Case *c)
{
    Slot *in = c->in, *y = &c->out[0], *sum = &c->out[1];
    oracle_residual_sum(sum->v, in[RES_X].v, in[RES_OUT].v, or_null(&in[RES_BIAS], in[RES_BIAS].v), &c->dropout,
                        &DROPOUT_STEP, c->R, c->C);
    if (c->N & WITH_NORM)
        oracle_layer_norm_forward(y->v, c->out[2].v, c->out[3].v, sum->v, in[RES_W].v, in[RES_B].v, c->R, c->C,
                                  NORM_EPS);
    else memcpy(y->v, sum->v, (size_t)y->n * sizeof(double));
}
static void residual_backward(Case *c)
{
    Slot *in = c->in, *y = &c->out[0], *sum = &c->out[1];
    NormTerms t = GX_ZERO;
    if (c->N & WITH_NORM) {
        oracle_layer_norm_backward(in[RES_X].d, in[RES_W].d, in[RES_B].d, y->d, sum->v, c->out[2].v, c->out[3].v,
                                   in[RES_W].v, c->R, c->C);
        t = norm_terms(sum->v, y->d, c->out[3].v, in[RES_W].v, c->R, c->C);
    } else {
        memcpy(in[RES_X].d, y->d, (size_t)y->n * sizeof(double));
    }
    oracle_dropout(in[RES_OUT].d, in[RES_X].d, &c->dropout, &DROPOUT_STEP, c->R, c->C);
    memset(in[RES_BIAS].d, 0, (size_t)in[RES_BIAS].n * sizeof(double));
    for (int64_t i = 0; in[RES_BIAS].n && i < y->n; i++) in[RES_BIAS].d[i % c->C] += in[RES_OUT].d[i];
    double squares = 0;
    for (int64_t i = 0; i < y->n; i++) squares += pow(in[RES_X].v[i], 2) + pow(in[RES_OUT].v[i], 2);
    sum->floor = sqrt(squares), y->floor = fmax(t.y, c->N & WITH_NORM ? 0 : sum->floor);
    c->out[2].floor = t.mean, in[RES_W].dfloor = t.dw;
    in[RES_X].dfloor = in[RES_OUT].dfloor = in[RES_BIAS].dfloor = t.dx;
}
// 1: sum is x, dx is dy, and where nothing is dropped dout is dx; 2: sum is out, or without a norm y, and no dx;
// 3: y without sum and statistics, no gradients of weights
enum { RES_APART, RES_OVER_X, RES_OVER_OUT, RES_Y_ALONE, RES_VARIANTS };
static void residual_library(GxContext *g, Case *c, int accumulate, int variant)
{
    Slot *x = &c->in[RES_X], *out = &c->in[RES_OUT], *bias = &c->in[RES_BIAS], *w = &c->in[RES_W], *b = &c->in[RES_B],
         *y = &c->out[0], *sum = &c->out[1];
    const int norm = c->N & WITH_NORM, same = variant == RES_OVER_X && !(c->N & WITH_DROPOUT);
    float *mean = norm ? c->out[2].fv : NULL, *rstd = norm ? c->out[3].fv : NULL;
    const GxResidual r = {
        c->R, c->C, bias->n ? bias->fv : NULL, norm ? w->fv : NULL, norm ? b->fv : NULL, NORM_EPS, c->dropout, GX_F32};
    const int weights = variant != RES_Y_ALONE;
    give_step(g, c);
    x->unwanted = variant == RES_OVER_OUT, bias->unwanted = w->unwanted = b->unwanted = !weights;
    if (variant == RES_OVER_X) copy_staged(g, sum->fv, x->fv, x->n), copy_staged(g, x->fd, y->fd, x->n);
    if (variant == RES_OVER_OUT) copy_staged(g, sum->fv, out->fv, out->n);
    gx_residual_forward(g, variant == RES_OVER_OUT && !norm ? sum->fv : y->fv, sum->fv, mean, rstd,
                        variant == RES_OVER_X ? sum->fv : x->fv, variant == RES_OVER_OUT ? sum->fv : out->fv, &r);
    if (variant == RES_OVER_OUT && !norm) copy_staged(g, y->fv, sum->fv, y->n);
    if (variant == RES_Y_ALONE) {
        copy_staged(g, y->fv, out->fv, y->n);
        gx_residual_forward(g, y->fv, NULL, NULL, NULL, x->fv, y->fv, &r);
    }
    gx_residual_backward(g, variant == RES_OVER_OUT ? NULL : x->fd, same ? x->fd : out->fd,
                         weights && bias->n ? bias->fd : NULL, weights && norm ? w->fd : NULL,
                         weights && norm ? b->fd : NULL, variant == RES_OVER_X ? x->fd : y->fd, norm ? sum->fv : NULL,
                         mean, rstd, &r, accumulate);
    if (same) copy_staged(g, out->fd, x->fd, x->n);
}

// -- gelu: a sum, a polynomial of 9 terms, exp, division, three products. tanh: exp, division, two sums, a polynomial
// of 5.

static const Shape gelu_shapes[] = {{.d = {5, 11, GX_GELU_ERF, 1}},
                                    {.d = {5, 11, GX_GELU_TANH, 1}},
                                    {.d = {1, 1, GX_GELU_ERF, 0}},
                                    {.d = {1, 3, GX_GELU_TANH, 0}},
                                    {.d = {65, 33, GX_GELU_ERF, 1}},
                                    {.d = {3, 768, GX_GELU_TANH, 1}},
                                    {.d = {4, 64, GX_GELU_ERF, 0}, .scale = 100, .steep = 1},
                                    {.d = {4, 64, GX_GELU_TANH, 0}, .scale = 100, .steep = 1},
                                    {.d = {4, 64, GX_GELU_ERF, 0}, .scale = 1e-4f}};

static void gelu_open(Case *c)
{
    input(c, "x", "dx", c->R, c->C, 20);
    if (c->shape->d[3]) input(c, "bias", NULL, 1, c->C, 0);
    for (int64_t i = 0; c->shape->scale != 0 && i < c->in[0].n; i++) c->in[0].fv[i] *= c->shape->scale;
    output(c, "y", "dy", c->R, c->C, 16);
}
static double *gelu_bias(Case *c) { return or_null(&c->in[1], c->in[1].v); }
static void gelu_forward(Case *c) { oracle_gelu_forward(c->out[0].v, c->in[0].v, gelu_bias(c), c->R, c->C, (int)c->N); }
static void gelu_backward(Case *c)
{
    oracle_gelu_backward(c->in[0].d, c->out[0].d, c->in[0].v, gelu_bias(c), c->R, c->C, (int)c->N);
}
static void gelu_library(GxContext *g, Case *c, int accumulate,
                         int variant) // 1: y is x, then dx is x and y is made again over dy; 2: dx is dy
{
    (void)accumulate;
    Slot *x = &c->in[0], *y = &c->out[0];
    const float *bias = c->in[1].n ? c->in[1].fv : NULL;
    const GxGelu kind = (GxGelu)c->N;
    if (variant == 1) copy_staged(g, y->fv, x->fv, y->n);
    gx_gelu_forward(g, y->fv, variant == 1 ? y->fv : x->fv, bias, c->R, c->C, kind, GX_F32);
    if (variant != 1) {
        if (variant == 2) copy_staged(g, x->fd, y->fd, y->n);
        gx_gelu_backward(g, x->fd, NULL, variant == 2 ? x->fd : y->fd, x->fv, bias, c->R, c->C, kind, GX_F32);
        return;
    }
    copy_staged(g, x->fd, x->fv, x->n);
    copy_staged(g, y->fv, y->fd, y->n);
    gx_gelu_backward(g, x->fd, y->fv, y->fv, x->fd, bias, c->R, c->C, kind, GX_F32);
}

static const Shape tanh_shapes[] = {
    {.d = {5, 11}}, {.d = {1, 1}}, {.d = {3, 768}}, {.d = {33, 300}}, {.d = {4, 64}, .scale = 100, .steep = 1}};

static void tanh_open(Case *c)
{
    input(c, "x", "dx", c->R, c->C, 16);
    for (int64_t i = 0; c->shape->scale != 0 && i < c->in[0].n; i++) c->in[0].fv[i] *= c->shape->scale;
    output(c, "y", "dy", c->R, c->C, 10);
}
static void tanh_forward(Case *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++) c->out[0].v[i] = tanh(c->in[0].v[i]);
}
static void tanh_backward(Case *c) // 1 - y^2 from a rounded y: errors are of dy's size
{
    double squares = 0;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        c->in[0].d[i] = c->out[0].d[i] / pow(cosh(c->in[0].v[i]), 2);
        squares += c->out[0].d[i] * c->out[0].d[i];
    }
    c->in[0].dfloor = sqrt(squares);
}
static void tanh_library(GxContext *g, Case *c, int accumulate, int variant) // 1: in place
{
    (void)accumulate;
    Slot *x = &c->in[0], *y = &c->out[0];
    if (variant) copy_staged(g, y->fv, x->fv, x->n), copy_staged(g, x->fd, y->fd, x->n);
    gx_tanh_forward(g, y->fv, variant ? y->fv : x->fv, x->n, GX_F32);
    gx_tanh_backward(g, x->fd, variant ? x->fd : y->fd, y->fv, x->n, GX_F32);
}

// -- geglu: gelu, and a product more

static const Shape geglu_shapes[] = {{.d = {5, 11, GX_GELU_ERF}},
                                     {.d = {5, 11, GX_GELU_TANH}},
                                     {.d = {1, 1, GX_GELU_TANH}},
                                     {.d = {65, 33, GX_GELU_ERF}},
                                     {.d = {3, 768, GX_GELU_TANH}},
                                     {.d = {4, 64, GX_GELU_ERF}, .scale = 100, .steep = 1},
                                     {.d = {4, 64, GX_GELU_TANH}, .scale = 100, .steep = 1}};

static void geglu_open(Case *c)
{
    input(c, "gate|up", "dgate|dup", c->R, 2 * c->C, 21);
    for (int64_t i = 0; c->shape->scale != 0 && i < c->in[0].n; i++) c->in[0].fv[i] *= c->shape->scale;
    output(c, "y", "dy", c->R, c->C, 17);
}
static void geglu_forward(Case *c) { oracle_geglu_forward(c->out[0].v, c->in[0].v, c->R, c->C, (int)c->N); }
static void geglu_backward(Case *c)
{
    oracle_geglu_backward(c->in[0].d, c->out[0].d, c->in[0].v, c->R, c->C, (int)c->N);
}
static void geglu_library(GxContext *g, Case *c, int accumulate,
                          int variant) // 1: dgate_up is gate_up, y is made again, over dy
{
    (void)accumulate;
    Slot *x = &c->in[0], *y = &c->out[0];
    const GxGelu kind = (GxGelu)c->N;
    if (!variant) {
        gx_geglu_forward(g, y->fv, x->fv, c->R, c->C, kind, GX_F32);
        gx_geglu_backward(g, x->fd, NULL, y->fd, x->fv, c->R, c->C, kind, GX_F32);
        return;
    }
    copy_staged(g, x->fd, x->fv, x->n);
    copy_staged(g, y->fv, y->fd, y->n);
    gx_geglu_backward(g, x->fd, y->fv, y->fv, x->fd, c->R, c->C, kind, GX_F32);
}

// -- relu: nothing is rounded

static const Shape relu_shapes[] = {{.d = {5, 11}}, {.d = {1, 1}}, {.d = {3, 768}}, {.d = {33, 300}}};

static void relu_open(Case *c)
{
    input(c, "x", "dx", c->R, c->C, 0);
    output(c, "y", "dy", c->R, c->C, 0);
}
static void relu_forward(Case *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++) c->out[0].v[i] = fmax(c->in[0].v[i], 0);
}
static void relu_backward(Case *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++) c->in[0].d[i] = c->in[0].v[i] > 0 ? c->out[0].d[i] : 0;
}
static void relu_library(GxContext *g, Case *c, int accumulate,
                         int variant) // 1: y is x, then dx is x and y is made again over dy; 2: dx is dy
{
    (void)accumulate;
    Slot *x = &c->in[0], *y = &c->out[0];
    if (variant == 1) copy_staged(g, y->fv, x->fv, y->n);
    gx_relu_forward(g, y->fv, variant == 1 ? y->fv : x->fv, x->n, GX_F32);
    if (variant != 1) {
        if (variant == 2) copy_staged(g, x->fd, y->fd, x->n);
        gx_relu_backward(g, x->fd, NULL, variant == 2 ? x->fd : y->fd, x->fv, x->n, GX_F32);
        return;
    }
    copy_staged(g, x->fd, x->fv, x->n);
    copy_staged(g, y->fv, y->fd, y->n);
    gx_relu_backward(g, x->fd, y->fv, y->fv, x->fd, x->n, GX_F32);
}

// -- gate: mu and 1 - mu have an exp, a sum and two divisions each

static const Shape gate_shapes[] = {{.d = {5, 11}}, {.d = {1, 1}}, {.d = {3, 768}}, {.d = {33, 300}}};
static const float GATE_TEMPERATURE = 0.7f;

static void gate_open(Case *c)
{
    input(c, "a", "da", c->R, c->C, 12);
    input(c, "b", "db", c->R, c->C, 12);
    weight(c, "gate", "dgate", 1, 1, 28);
    output(c, "y", "dy", c->R, c->C, 14);
}
static double gate_share(const Case *c) { return 1 / (1 + exp(-c->in[2].v[0] / (double)GATE_TEMPERATURE)); }
static void gate_forward(Case *c)
{
    const double mu = gate_share(c);
    double squares = 0;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        const double a = mu * c->in[0].v[i], b = (1 - mu) * c->in[1].v[i];
        c->out[0].v[i] = a + b;
        squares += a * a + b * b;
    }
    c->out[0].floor = sqrt(squares);
}
static void gate_backward(Case *c)
{
    const double mu = gate_share(c), slope = mu * (1 - mu) / (double)GATE_TEMPERATURE;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < c->in[0].n; i++) {
        const double dy = c->out[0].d[i], term = dy * (c->in[0].v[i] - c->in[1].v[i]);
        c->in[0].d[i] = mu * dy, c->in[1].d[i] = (1 - mu) * dy;
        sum += term, squares += term * term;
    }
    c->in[2].d[0] = slope * sum;
    c->in[2].dfloor = slope * sqrt(squares);
}
static void gate_library(GxContext *g, Case *c, int accumulate, int variant) // 1: in a's place; 2: in b's
{
    Slot *a = &c->in[0], *b = &c->in[1], *w = &c->in[2], *y = &c->out[0];
    float *dy = variant == 1 ? a->fd : variant == 2 ? b->fd : y->fd;
    if (variant) copy_staged(g, y->fv, variant == 1 ? a->fv : b->fv, y->n), copy_staged(g, dy, y->fd, y->n);
    gx_gate_forward(g, y->fv, variant == 1 ? y->fv : a->fv, variant == 2 ? y->fv : b->fv, w->fv, GATE_TEMPERATURE, y->n,
                    GX_F32);
    gx_gate_backward(g, a->fd, b->fd, w->fd, dy, a->fv, b->fv, w->fv, GATE_TEMPERATURE, y->n, accumulate, GX_F32);
}

// -- scaled columns: y = s (x + b), whose sum is made before; one product to an element, a sum over rows

static const Shape columns_shapes[] = {
    {.d = {5, 7, 0}}, {.d = {1, 1, 3}}, {.d = {40, 17, 5}}, {.d = {3, 768, 0}}, {.d = {65, 300, 8}}};

static void columns_open(Case *c)
{
    const double R = (double)c->R;
    input(c, "x", "dx", c->R, c->C, 2);
    weight(c, "s", "ds", 1, c->C, R + 3);
    weight(c, "b", "db", 1, c->C, R + 2);
    output(c, "y", "dy", c->R, c->C, 3);
}
static double columns_sum(const Case *c, int64_t i) { return c->in[0].v[i] + c->in[2].v[i % c->C]; }
static void columns_forward(Case *c)
{
    double squares = 0; // a sum that may cancel: its error is of its terms' size
    for (int64_t i = 0; i < c->R * c->C; i++) {
        const double s = c->in[1].v[i % c->C];
        c->out[0].v[i] = s * columns_sum(c, i);
        squares += s * s * (pow(c->in[0].v[i], 2) + pow(c->in[2].v[i % c->C], 2));
    }
    c->out[0].floor = sqrt(squares);
}
static void columns_backward(Case *c)
{
    double terms[2] = {0, 0};
    for (int64_t i = 0; i < c->C; i++) c->in[1].d[i] = c->in[2].d[i] = 0;
    for (int64_t i = 0; i < c->R * c->C; i++) {
        const double dy = c->out[0].d[i], s = c->in[1].v[i % c->C];
        c->in[0].d[i] = dy * s;
        c->in[1].d[i % c->C] += dy * columns_sum(c, i);
        c->in[2].d[i % c->C] += dy * s;
        terms[0] += dy * dy * (pow(c->in[0].v[i], 2) + pow(c->in[2].v[i % c->C], 2)), terms[1] += pow(dy * s, 2);
    }
    c->in[1].dfloor = sqrt(terms[0]), c->in[2].dfloor = sqrt(terms[1]);
}
static void columns_library(GxContext *g, Case *c, int accumulate,
                            int variant) // with gaps; in place, but for 1; 2: no ds; 3: no db
{
    const int64_t R = c->R, C = c->C, gap = c->shape->d[2], stride = C + gap;
    const GxColumns n = {R, C, gap ? stride : 0, GX_F32};
    Slot *x = &c->in[0], *s = &c->in[1], *b = &c->in[2], *y = &c->out[0];
    float *in = floats(R * stride), *out = floats(R * stride), *d = floats(R * stride),
          *result = variant == 1 ? out : d;
    s->unwanted = variant == 2, b->unwanted = variant == 3;
    fill_nan(in, R * stride), fill_nan(out, R * stride), fill_nan(d, R * stride);
    for (int64_t i = 0; i < R * C; i++) in[i / C * stride + i % C] = x->fv[i] + b->fv[i % C];
    gx_scale_columns_forward(g, out, in, s->fv, &n);
    CHECK(!g->device->computes || count_nan(out, R * stride) == R * gap, "scale_columns wrote between rows");
    if (g->device->computes) copy_rows(y->fv, C, out, stride, R, C);
    copy_rows(d, stride, y->fd, C, R, C);
    gx_scale_columns_backward(g, result, s->unwanted ? NULL : s->fd, b->unwanted ? NULL : b->fd, d,
                              s->unwanted ? NULL : in, s->fv, &n, accumulate);
    CHECK(!g->device->computes || count_nan(result, R * stride) == R * gap, "scale_columns wrote between rows");
    if (g->device->computes) copy_rows(x->fd, C, result, stride, R, C);
    free(in), free(out), free(d);
}

// -- rows by number: copies and one addition

static const Shape picked_rows_shapes[] = {
    {.d = {5, 7, 3, 11}}, {.d = {1, 1, 0, 1}}, {.d = {40, 17, 1000, 70}}, {.d = {3, 768, 0, 5}}};

static void picked_rows_open(Case *c)
{
    weight(c, "x", "dx", c->shape->d[3], c->C, 1);
    output(c, "y", "dy", c->R, c->C, 0);
    for (int64_t i = 0; i < c->R; i++)
        c->ids[i] = (int32_t)(c->N + i * 3 % c->shape->d[3]); // 3 divides no number of rows
    c->ids_name = "rows", c->ids_n = c->R;
}
static void picked_rows_forward(Case *c) { oracle_pick_rows(c->out[0].v, c->in[0].v, c->ids, c->N, c->R, c->C); }
static void picked_rows_backward(Case *c)
{
    memset(c->in[0].d, 0, (size_t)c->in[0].n * sizeof(double));
    oracle_add_rows(c->in[0].d, c->out[0].d, c->ids, c->N, c->R, c->C);
}
static void picked_rows_library(GxContext *g, Case *c, int accumulate, int variant)
{
    (void)variant;
    gx_pick_rows(g, c->out[0].fv, c->in[0].fv, c->ids, c->N, c->R, c->C, GX_F32);
    if (!accumulate) gx_zero(g, c->in[0].fd, c->in[0].n * 4);
    gx_add_rows(g, c->in[0].fd, c->out[0].fd, c->ids, c->N, c->R, c->C, GX_F32);
}

// -- means of rows: a sum of T, a division and a product

static const Shape mean_rows_shapes[] = {
    {.d = {6, 7, 3, 0}}, {.d = {1, 1, 1, 0}}, {.d = {9, 17, 2, 4}}, {.d = {33, 300, 3, 0}}, {.d = {5, 768, 1, 2}}};

// A part in each column, one more in column 0 behind it, and an empty one. Where the slice begins later than at 0 some
// begin before it, and some end behind it.
static void mean_rows_open(Case *c)
{
    const int64_t T = c->R, B = c->N, parts = B + 2, first = c->shape->d[3];
    weight(c, "x", "dx", T * B, c->C, 3);
    output(c, "y", "dy", parts, c->C, (double)T + 2);
    for (int64_t i = 0; i < parts; i++) {
        int32_t *part = c->ids + 3 * i;
        part[0] = (int32_t)(i % B);
        part[1] = (int32_t)gx_max(0, first - 1 + i % 2), part[2] = (int32_t)(first + gx_max(1, T / 2) + i % 2);
        if (i == B) part[1] = (int32_t)(first + gx_max(1, T / 2)), part[2] = (int32_t)(first + T + (first ? 3 : 0));
        if (i == B + 1) part[2] = part[1];
    }
    c->ids_name = "parts", c->ids_n = 3 * parts;
}
static void mean_rows_forward(Case *c)
{
    oracle_mean_rows_forward(c->out[0].v, c->in[0].v, c->ids, c->N + 2, c->R, c->N, c->shape->d[3], c->C);
}
static void mean_rows_backward(Case *c)
{
    oracle_mean_rows_backward(c->in[0].d, c->out[0].d, c->ids, c->N + 2, c->R, c->N, c->shape->d[3], c->C);
}
static void mean_rows_library(GxContext *g, Case *c, int accumulate, int variant)
{
    (void)variant;
    const int64_t T = c->R, B = c->N, parts = B + 2, first = c->shape->d[3];
    gx_mean_rows_forward(g, c->out[0].fv, c->in[0].fv, c->ids, parts, T, B, first, c->C, GX_F32);
    if (!accumulate) gx_zero(g, c->in[0].fd, c->in[0].n * 4);
    gx_mean_rows_backward(g, c->in[0].fd, c->out[0].fd, c->ids, parts, T, B, first, c->C, GX_F32);
}

// -- rows of length one: a sum of C, a root, a division; the gradient subtracts what lies along the row

static const Shape normalized_rows_shapes[] = {
    {.d = {6, 9}}, {.d = {1, 1}}, {.d = {5, 3}}, {.d = {40, 17, 3}}, {.d = {3, 768}}};

static void normalized_rows_open(Case *c)
{
    input(c, "x", "dx", c->R, c->C, 2 * (double)c->C + 8);
    output(c, "y", "dy", c->R, c->C, (double)c->C + 3);
    output(c, "norm", NULL, c->R, 1, (double)c->C + 2);
    for (int64_t i = 0; c->N && i < c->in[0].n; i++) c->in[0].fv[i] *= i / c->C % c->N != 0;
}
static void normalized_rows_forward(Case *c)
{
    oracle_normalize_rows_forward(c->out[0].v, c->out[1].v, c->in[0].v, c->R, c->C, NORM_EPS);
}
static void normalized_rows_backward(Case *c)
{
    double squares = 0;
    oracle_normalize_rows_backward(c->in[0].d, c->out[0].d, c->out[0].v, c->out[1].v, c->R, c->C);
    for (int64_t i = 0; i < c->in[0].n; i++) squares += pow(c->out[0].d[i] / c->out[1].v[i / c->C], 2);
    c->in[0].dfloor = sqrt(squares);
}
static void normalized_rows_library(GxContext *g, Case *c, int accumulate, int variant) // 1: in place
{
    (void)accumulate;
    Slot *x = &c->in[0], *y = &c->out[0], *norm = &c->out[1];
    if (variant) copy_staged(g, y->fv, x->fv, x->n), copy_staged(g, x->fd, y->fd, x->n);
    gx_normalize_rows_forward(g, y->fv, norm->fv, variant ? y->fv : x->fv, c->R, c->C, NORM_EPS, GX_F32);
    gx_normalize_rows_backward(g, x->fd, variant ? x->fd : y->fd, y->fv, norm->fv, c->R, c->C, GX_F32);
}

// -- losses with targets: what is between logits and targets cancels: errors are of their size

static const Shape target_shapes[] = {{.d = {6, 7}},   {.d = {1, 1}},   {.d = {5, 3}},
                                      {.d = {40, 17}}, {.d = {3, 768}}, {.d = {8, 33}, .scale = 100, .steep = 1}};

static void targets_open(Case *c, double depth)
{
    input(c, "logits", "dlogits", c->R, c->C, depth);
    output(c, "losses", "dlosses", c->R, 1, (double)c->C + depth);
    for (int64_t i = 0; c->shape->scale != 0 && i < c->in[0].n; i++) c->in[0].fv[i] *= c->shape->scale;
    c->targets = floats(c->in[0].n);
    c->count = c->R, c->scale = 1.0f / (float)c->count;
    for (int64_t i = 0; i < c->in[0].n; i++) c->targets[i] = gx_random_uniform(3, (uint64_t)i, 0, 0);
    for (int64_t i = 0; i < c->in[0].n; i += 3) c->targets[i] = (float)(i / 3 % 2); // as labels are
    for (int64_t r = 0; r < c->R; r++) c->out[0].d[r] = c->out[0].fd[r] = c->scale;
}
static void squared_error_open(Case *c) { targets_open(c, 3); }
static void squared_error_both(Case *c)
{
    oracle_squared_error(c->out[0].v, c->in[0].d, c->in[0].v, c->targets, c->R, c->C, c->scale);
}
static void binary_cross_entropy_open(Case *c) { targets_open(c, 8); }
static void binary_cross_entropy_both(Case *c)
{
    double squares = 0;
    oracle_binary_cross_entropy(c->out[0].v, c->in[0].d, c->in[0].v, c->targets, c->R, c->C, c->scale);
    for (int64_t i = 0; i < c->in[0].n; i++) squares += c->in[0].v[i] * c->in[0].v[i];
    c->out[0].floor = sqrt(squares);
    c->in[0].dfloor = c->scale * sqrt((double)c->in[0].n);
}
typedef void Loss(GxContext *, float *, void *, const void *, const float *, int64_t, int64_t, const int64_t *,
                  GxDtype);
static void targets_library(GxContext *g, Case *c, Loss *loss, int variant) // 1: dlogits is logits; 2: the losses alone
{
    Slot *x = &c->in[0];
    x->unwanted = variant == 2;
    if (variant == 1) copy_staged(g, x->fd, x->fv, x->n);
    loss(g, c->out[0].fv, variant == 2 ? NULL : x->fd, variant == 1 ? x->fd : x->fv, c->targets, c->R, c->C, &c->count,
         GX_F32);
}
static void squared_error_library(GxContext *g, Case *c, int accumulate, int variant)
{
    (void)accumulate, targets_library(g, c, gx_squared_error, variant);
}
static void binary_cross_entropy_library(GxContext *g, Case *c, int accumulate, int variant)
{
    (void)accumulate, targets_library(g, c, gx_binary_cross_entropy, variant);
}

static const Op ops[] = {
    {"rms_norm", rms_norm_open, rms_norm_forward, rms_norm_backward, rms_norm_library, 2, 1, norm_shapes,
     COUNT(norm_shapes)},
    {"add_rms_norm", add_rms_norm_open, add_rms_norm_forward, add_rms_norm_backward, add_rms_norm_library, 3, 1,
     norm_shapes, COUNT(norm_shapes)},
    {"linear", linear_open, linear_forward, linear_backward, linear_library, 4, 0, linear_shapes, COUNT(linear_shapes)},
    {"rope", rope_open, rope_forward, rope_backward, rope_library, 1, 1, rope_shapes, COUNT(rope_shapes)},
    {"attention", attention_open, attention_forward, attention_backward, attention_library, 1, 0, attention_shapes,
     COUNT(attention_shapes)},
    {"swiglu", swiglu_open, swiglu_forward, swiglu_backward, swiglu_library, 2, 1, swiglu_shapes, COUNT(swiglu_shapes)},
    {"cross_entropy", cross_entropy_open, cross_entropy_both, cross_entropy_both, cross_entropy_library, 3, 1,
     cross_entropy_shapes, COUNT(cross_entropy_shapes)},
    {"cross_entropy_parts", cross_entropy_parts_open, cross_entropy_parts_both, cross_entropy_parts_both,
     cross_entropy_parts_library, 3, 1, cross_entropy_parts_shapes, COUNT(cross_entropy_parts_shapes)},
    {"smoothed_cross_entropy", cross_entropy_open, cross_entropy_both, cross_entropy_both, cross_entropy_library, 3, 1,
     smoothed_shapes, COUNT(smoothed_shapes)},
    {"smoothed_cross_entropy_parts", cross_entropy_parts_open, cross_entropy_parts_both, cross_entropy_parts_both,
     cross_entropy_parts_library, 3, 1, smoothed_shapes, COUNT(smoothed_shapes)},
    {"embedding", embedding_open, embedding_forward, embedding_backward, embedding_library, 2, 1, embedding_shapes,
     COUNT(embedding_shapes)},
    {"turned_embedding", embedding_open, embedding_turned_forward, embedding_turned_backward, embedding_turned_library,
     1, 1, embedding_shapes, COUNT(embedding_shapes)},
    {"layer_norm", layer_norm_open, layer_norm_forward, layer_norm_backward, layer_norm_library, 3, 1,
     layer_norm_shapes, COUNT(layer_norm_shapes)},
    {"dropout", dropout_open, dropout_forward, dropout_backward, dropout_library, 2, 1, dropout_shapes,
     COUNT(dropout_shapes)},
    {"residual", residual_open, residual_forward, residual_backward, residual_library, RES_VARIANTS, 1, residual_shapes,
     COUNT(residual_shapes)},
    {"gelu", gelu_open, gelu_forward, gelu_backward, gelu_library, 3, 1, gelu_shapes, COUNT(gelu_shapes)},
    {"geglu", geglu_open, geglu_forward, geglu_backward, geglu_library, 2, 1, geglu_shapes, COUNT(geglu_shapes)},
    {"relu", relu_open, relu_forward, relu_backward, relu_library, 3, 1, relu_shapes, COUNT(relu_shapes)},
    {"tanh", tanh_open, tanh_forward, tanh_backward, tanh_library, 2, 1, tanh_shapes, COUNT(tanh_shapes)},
    {"gate", gate_open, gate_forward, gate_backward, gate_library, 3, 1, gate_shapes, COUNT(gate_shapes)},
    {"columns", columns_open, columns_forward, columns_backward, columns_library, 4, 1, columns_shapes,
     COUNT(columns_shapes)},
    {"picked_rows", picked_rows_open, picked_rows_forward, picked_rows_backward, picked_rows_library, 1, 1,
     picked_rows_shapes, COUNT(picked_rows_shapes)},
    {"mean_rows", mean_rows_open, mean_rows_forward, mean_rows_backward, mean_rows_library, 1, 1, mean_rows_shapes,
     COUNT(mean_rows_shapes)},
    {"normalized_rows", normalized_rows_open, normalized_rows_forward, normalized_rows_backward,
     normalized_rows_library, 2, 1, normalized_rows_shapes, COUNT(normalized_rows_shapes)},
    {"head_norm", head_norm_open, head_norm_forward, head_norm_backward, head_norm_library, 2, 1, head_norm_shapes,
     COUNT(head_norm_shapes)},
    {"squared_error", squared_error_open, squared_error_both, squared_error_both, squared_error_library, 3, 1,
     target_shapes, COUNT(target_shapes)},
    {"binary_cross_entropy", binary_cross_entropy_open, binary_cross_entropy_both, binary_cross_entropy_both,
     binary_cross_entropy_library, 3, 1, target_shapes, COUNT(target_shapes)},
};

static void case_open(Case *c, const Op *op, const Shape *shape)
{
    memset(c, 0, sizeof *c);
    c->op = op;
    c->shape = shape;
    c->R = shape->d[0], c->C = shape->d[1], c->N = shape->d[2], c->B = 1;
    c->ids_n = gx_max(c->R, 3 * (c->N + 2));
    c->ids = (int32_t *)take(c->ids_n, sizeof *c->ids);
    op->open(c);
}

static void case_close(Case *c)
{
    for (int i = 0; i < c->ins + c->outs; i++) {
        Slot *s = i < c->ins ? &c->in[i] : &c->out[i - c->ins];
        free(s->v), free(s->d), free(s->fv), free(s->fd), free(s->before);
    }
    free(c->ids), free(c->documents), free(c->key_documents), free(c->targets);
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

// ---- the oracle is right: its backward is the derivative of its forward --------------------------------------------

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

// A central difference over 2h errs by h^2/6 times the third derivative and by the rounding of L over h. With h =
// eps^(1/3) both are about eps^(2/3) = 4e-11. For inputs of order one a third derivative is at most 100 times the
// first; the rounding of L is 8 eps of its terms.
static void check_derivative(Case *c, const char *what)
{
    const double h = cbrt(DBL_EPSILON);
    for (int i = 0; i < c->ins; i++) {
        Slot *s = &c->in[i];
        if (c->shape->steep || !s->dname || s->n > 1200 || c->in[0].n > 1200) continue; // quadratic in n
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
        CHECK(sqrt(error) <= bound, "%s: %s is off its difference quotient by %.3g of %.3g, bound %.3g", what, s->dname,
              sqrt(error), sqrt(norm), bound);
        free(expected);
    }
}

TEST(oracle_backward_is_the_derivative_of_its_forward) { for_each_case(check_derivative, NULL); }

// ---- the library computes what the oracle does ---------------------------------------------------------------------

static void library_fill(Case *c, int accumulate) // outputs as the library finds them
{
    for (int i = 0; i < c->outs; i++) fill_nan(c->out[i].fv, c->out[i].n);
    for (int i = 0; i < c->ins; i++) {
        Slot *s = &c->in[i];
        s->unwanted = 0;
        fill_nan(s->fd, s->n);
        if (accumulate && s->before) memcpy(s->fd, s->before, (size_t)s->n * sizeof(float));
    }
}

static float *library_results(const Case *c, int64_t *n) // all outputs in one piece
{
    *n = 0;
    for (int i = 0; i < c->outs; i++) *n += c->out[i].n;
    for (int i = 0; i < c->ins; i++) *n += c->in[i].n;
    float *all = floats(*n), *to = all;
    for (int i = 0; i < c->outs; to += c->out[i++].n) memcpy(to, c->out[i].fv, (size_t)c->out[i].n * sizeof(float));
    for (int i = 0; i < c->ins; to += c->in[i++].n) memcpy(to, c->in[i].fd, (size_t)c->in[i].n * sizeof(float));
    return all;
}

// The results of one run, which took exactly the scratch of its plan, and whose plan touched nothing.
static float *library_run(Case *c, const char *what, int threads, int accumulate, int variant, int64_t *n)
{
    Bench plan, real;
    library_fill(c, accumulate);
    float *untouched = library_results(c, n);
    bench_open(&plan, threads, -1);
    c->op->library(&plan.g, c, accumulate, variant);
    float *planned = library_results(c, n);
    CHECK(!memcmp(planned, untouched, (size_t)*n * sizeof(float)), "%s: the device none wrote something", what);
    bench_open(&real, threads, plan.arena.peak);
    c->op->library(&real.g, c, accumulate, variant);
    check_bench(what, &real, &plan);
    bench_close(&plan), bench_close(&real);
    free(untouched), free(planned);
    return library_results(c, n);
}

static void compare_with_oracle(const Case *c, const char *run, int accumulate)
{
    char what[160];
    for (int i = 0; i < c->outs; i++) {
        const Slot *s = &c->out[i];
        snprintf(what, sizeof what, "%s: %s", run, s->name);
        check_values(what, s->fv, s->v, s->n, s->depth, s->floor);
    }
    for (int i = 0; i < c->ins; i++) {
        const Slot *s = &c->in[i];
        if (s->unwanted || !s->dname) continue;
        double *sum = doubles(s->n);
        for (int64_t e = 0; e < s->n; e++) sum[e] = s->d[e] + (accumulate && s->before ? (double)s->before[e] : 0);
        snprintf(what, sizeof what, "%s: %s", run, s->dname);
        check_values(what, s->fd, sum, s->n, s->ddepth, s->dfloor);
        free(sum);
    }
}

static void check_library(Case *c, const char *shape)
{
    for (int run = 0; run < 2 * c->op->variants; run++) {
        const int accumulate = run % 2, variant = run / 2;
        float *result[3]; // one thread, two threads, two threads again
        int64_t n = 0;
        for (int i = 0; i < 3; i++) {
            char what[128];
            snprintf(what, sizeof what, "%s, accumulate %d, variant %d, threads %d", shape, accumulate, variant,
                     i ? 2 : 1);
            result[i] = library_run(c, what, i ? 2 : 1, accumulate, variant, &n);
            if (i < 2) compare_with_oracle(c, what, accumulate);
        }
        size_t bytes = (size_t)n * sizeof(float);
        CHECK(!memcmp(result[1], result[2], bytes), "%s, variant %d: the same run twice gave other bits", shape,
              variant);
        if (c->op->any_threads)
            CHECK(!memcmp(result[0], result[1], bytes), "%s, variant %d: two threads give other bits than one", shape,
                  variant);
        for (int i = 0; i < 3; i++) free(result[i]);
    }
}

TEST(rms_norm_is_what_the_oracle_says) { for_each_case(check_library, "rms_norm"); }
TEST(add_rms_norm_is_what_the_oracle_says) { for_each_case(check_library, "add_rms_norm"); }
TEST(head_norm_is_what_the_oracle_says) { for_each_case(check_library, "head_norm"); }
TEST(linear_is_what_the_oracle_says) { for_each_case(check_library, "linear"); }
TEST(rope_is_what_the_oracle_says) { for_each_case(check_library, "rope"); }
TEST(attention_is_what_the_oracle_says) { for_each_case(check_library, "attention"); }
TEST(swiglu_is_what_the_oracle_says) { for_each_case(check_library, "swiglu"); }
TEST(cross_entropy_is_what_the_oracle_says) { for_each_case(check_library, "cross_entropy"); }
static void check_loss_only(Case *c, const char *what)
{
    int64_t n;
    float *full = library_run(c, what, 1, 0, 0, &n),
          *alone = library_run(c, what, 1, 0, 2, &n); // the losses come first in the results
    CHECK(!memcmp(full, alone, (size_t)c->R * sizeof(float)), "%s", what);
    free(full), free(alone);
}
TEST(cross_entropy_gives_the_same_losses_with_and_without_gradients)
{
    for_each_case(check_loss_only, "cross_entropy");
    for_each_case(check_loss_only, "smoothed_cross_entropy");
}
TEST(cross_entropy_of_smoothed_labels_is_what_the_oracle_says)
{
    for_each_case(check_library, "smoothed_cross_entropy");
}
TEST(cross_entropy_of_smoothed_labels_in_parts_is_what_the_oracle_says)
{
    for_each_case(check_library, "smoothed_cross_entropy_parts");
}
TEST(cross_entropy_in_parts_is_what_the_oracle_says) { for_each_case(check_library, "cross_entropy_parts"); }
TEST(embedding_is_what_the_oracle_says) { for_each_case(check_library, "embedding"); }
TEST(embedding_in_a_table_by_columns_is_what_the_oracle_says) { for_each_case(check_library, "turned_embedding"); }
// Each element is one sum, rounded once; rows whose token is not in this part of the table stay as they are.
TEST(embedding_forward_adds_to_what_is_there_where_it_is_told_to)
{
    enum { R = 40, C = 19, BEGIN = 3, END = 9 };
    float *w = random_floats((END - BEGIN) * C, 1, 1), *before = random_floats(R * C, 2, 1), *y = floats(R * C);
    int32_t ids[R];
    int64_t wrong = 0;
    Bench b;
    for (int r = 0; r < R; r++) ids[r] = r * 7 % 13;
    memcpy(y, before, R * C * sizeof *y);
    bench_open(&b, 2, 0);
    GxEmbedding e = gx_embedding_shape(R, C, END, GX_F32);
    e.v_begin = BEGIN, e.accumulate = 1;
    gx_embedding_forward(&b.g, y, w, ids, &e);
    for (int i = 0; i < R * C; i++) {
        const int id = ids[i / C], here = id >= BEGIN && id < END;
        wrong += y[i] != (here ? before[i] + w[(id - BEGIN) * C + i % C] : before[i]);
    }
    CHECK(!gx_failed(&b.g) && wrong == 0, "%ld of %d elements are wrong %s", (long)wrong, R * C, b.g.error.message);
    CHECK(b.recorder.event[0].bytes == 3 * 4 * R * C + 4 * R && b.recorder.event[0].flops == R * C, "what is read");
    bench_close(&b);
    free(w), free(before), free(y);
}

TEST(layer_norm_is_what_the_oracle_says) { for_each_case(check_library, "layer_norm"); }
TEST(dropout_is_what_the_oracle_says) { for_each_case(check_library, "dropout"); }
TEST(residual_is_what_the_oracle_says) { for_each_case(check_library, "residual"); }
TEST(gelu_is_what_the_oracle_says) { for_each_case(check_library, "gelu"); }
TEST(geglu_is_what_the_oracle_says) { for_each_case(check_library, "geglu"); }
TEST(relu_is_what_the_oracle_says) { for_each_case(check_library, "relu"); }
TEST(relu_of_zero_has_no_gradient_and_nan_goes_through)
{
    const float x[] = {0, -0.0f, NAN, INFINITY, -INFINITY, FLT_MIN, -FLT_MIN},
                want[] = {0, 0, NAN, INFINITY, 0, FLT_MIN, 0}, slope[] = {0, 0, 0, 1, 0, 1, 0};
    float y[COUNT(x)], dx[COUNT(x)], dy[COUNT(x)];
    Bench b;
    bench_open(&b, 1, 0);
    for (int i = 0; i < COUNT(x); i++) dy[i] = 1;
    gx_relu_forward(&b.g, y, x, COUNT(x), GX_F32);
    gx_relu_backward(&b.g, dx, NULL, dy, x, COUNT(x), GX_F32);
    for (int i = 0; i < COUNT(x); i++) {
        CHECK(isnan(want[i]) ? isnan(y[i]) : y[i] == want[i], "relu(%g) is %g", (double)x[i], (double)y[i]);
        CHECK(dx[i] == slope[i], "the slope at %g is %g", (double)x[i], (double)dx[i]);
    }
    bench_close(&b);
}
TEST(tanh_is_what_the_oracle_says) { for_each_case(check_library, "tanh"); }
TEST(gate_is_what_the_oracle_says) { for_each_case(check_library, "gate"); }
TEST(scaled_columns_are_what_the_oracle_says) { for_each_case(check_library, "columns"); }
TEST(picked_rows_are_what_the_oracle_says) { for_each_case(check_library, "picked_rows"); }
TEST(mean_rows_are_what_the_oracle_says) { for_each_case(check_library, "mean_rows"); }
TEST(normalized_rows_are_what_the_oracle_says) { for_each_case(check_library, "normalized_rows"); }
TEST(squared_error_is_what_the_oracle_says) { for_each_case(check_library, "squared_error"); }
TEST(binary_cross_entropy_is_what_the_oracle_says) { for_each_case(check_library, "binary_cross_entropy"); }

// ---- the oracle means what PyTorch means ---------------------------------------------------------------------------

static GxSafetensors references;

static int references_open(void)
{
    GxError err = GX_ZERO;
    if (access("data/ref/ops.safetensors", R_OK)) return 0;
    return CHECK(gx_safetensors_open(&references, "data/ref/ops.safetensors", &err) == GX_OK, "%s", err.message);
}

static int reference_read(const char *op, const char *name, void *out, int64_t n) // fp32 or int32
{
    char full[128];
    GxError err = GX_ZERO;
    snprintf(full, sizeof full, "%s.%s", op, name);
    const GxSafetensorsEntry *e = gx_safetensors_find(&references, full);
    if (!CHECK(e && e->elements == n, "%s: %ld elements instead of %ld", full, e ? (long)e->elements : 0L, (long)n))
        return 0;
    return CHECK(gx_safetensors_read_raw(&references, e, 0, n, out, &err) == GX_OK, "%s", err.message);
}

// From the file's [B,T,...] to our [T,B,...]; "a|b": two tensors side by side in each row.
static int reference_rows(const Case *c, const char *op, const Slot *s, const char *names, float *out)
{
    const int parts = strchr(names, '|') ? 2 : 1;
    const int64_t rows = s->rows, n = s->n, B = s->is_table ? 1 : c->B, T = rows / B, E = n / rows / parts;
    float *file = floats(n / parts);
    int ok = 1;
    for (int p = 0; p < parts && ok; p++) {
        char name[64];
        snprintf(name, sizeof name, "%s", p ? strchr(names, '|') + 1 : names);
        if (!p) name[strcspn(name, "|")] = 0;
        ok = reference_read(op, name, file, n / parts);
        for (int64_t r = 0; r < rows; r++)
            memcpy(out + (r * parts + p) * E, file + (r % B * T + r / B) * E, (size_t)E * sizeof *out);
    }
    free(file);
    return ok;
}

// The oracle and the library, from the file's inputs. The file holds fp64 results rounded to fp32 once.
static void check_reference(const Op *op, const Shape *shape, const char *name)
{
    Case c;
    int ok = 1;
    case_open(&c, op, shape);
    for (int i = 0; i < c.ins; i++) ok &= reference_rows(&c, name, &c.in[i], c.in[i].name, c.in[i].fv);
    for (int i = 0; i < c.outs; i++)
        if (c.out[i].dname && strcmp(c.out[i].dname, "dlosses"))
            ok &= reference_rows(&c, name, &c.out[i], c.out[i].dname, c.out[i].fd);
    if (c.ids_name) ok &= reference_read(name, c.ids_name, c.ids, c.ids_n);
    if (c.targets) ok &= reference_read(name, "targets", c.targets, c.in[0].n);
    if (c.a.documents)
        ok &= reference_read(name, "documents", c.documents, 2 * c.B * oracle_positions(&shape->q, &shape->k));
    if (!strcmp(name, "cross_entropy") || !strcmp(name, "smoothed_cross_entropy")) {
        ok &= reference_read(name, "labels", c.ids, c.R);
        cross_entropy_count(&c);
    }
    case_oracle(&c);
    for (int i = 0; ok && i < c.ins + c.outs; i++) {
        Slot *s = i < c.ins ? &c.in[i] : &c.out[i - c.ins];
        const char *tensor = i < c.ins ? s->dname : s->name;
        if (!tensor) continue; // an input without a gradient
        float *file = floats(s->n);
        char what[128];
        snprintf(what, sizeof what, "oracle and PyTorch, %s.%s", name, tensor);
        if (reference_rows(&c, name, s, tensor, file)) check_values(what, file, i < c.ins ? s->d : s->v, s->n, 1, 0);
        free(file);
    }
    if (ok) check_library(&c, name);
    case_close(&c);
}

TEST(oracle_and_library_agree_with_pytorch)
{
    static const struct {
        const char *name;
        Shape shape;
    } attention[] = {
        {"attention_full", {.d = {2, 6, 2, 10}, .q = RUN1(5, 0), .k = RUN1(8, 0)}},
        {"attention_offset", {.d = {2, 6, 2, 10}, .q = RUN1(5, 3), .k = RUN1(8, 0), .causal = 1}},
        {"attention_documents", {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .documents = {4, 3}}},
        {"attention_documents_causal",
         {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .documents = {2, -1, 5}}},
        {"attention_dropout", {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .dropout = 0.3f}},
        {"attention_documents_dropout",
         {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .documents = {1, -2, 6}, .dropout = 0.3f}},
        {"attention_window_1", {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .sliding_window = 1}},
        {"attention_window_7", {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .sliding_window = 7}},
        {"attention_window_8", {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .sliding_window = 8}},
        {"attention_window_9", {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .sliding_window = 9}},
        {"attention_window_9",
         {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .sliding_window = 100}},
        {"attention_window_documents",
         {.d = {2, 4, 2, 6},
          .q = RUN1(9, 0),
          .k = RUN1(9, 0),
          .causal = 1,
          .documents = {2, -1, 6},
          .sliding_window = 3}},
        {"attention_window_dropout",
         {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .dropout = 0.3f, .sliding_window = 4}},
        {"attention_bias", {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .scale = 1, .reach = 3}},
        {"attention_bias_causal",
         {.d = {2, 4, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .dropout = 0.3f, .reach = 3}},
    };
    static const Shape norm = {.d = {7, 33}}, linear = {.d = {5, 13, 9, 1}};
    if (!references_open()) SKIP("data/ref/ops.safetensors is not there; dev/ref/make_refs.py makes it");
    for (int o = 0; o < COUNT(ops); o++) {
        const Shape *shape = strstr(ops[o].name, "rms_norm")  ? &norm
                             : !strcmp(ops[o].name, "linear") ? &linear
                                                              : &ops[o].shape[0];
        check_reference(&ops[o], shape,
                        !strcmp(ops[o].name, "cross_entropy_parts")            ? "cross_entropy"
                        : !strcmp(ops[o].name, "smoothed_cross_entropy_parts") ? "smoothed_cross_entropy"
                                                                               : ops[o].name);
        static const Shape offset = {.d = {7, 33}, .offset = 1}, heads = {.d = {7, 3, 10, 5}, .offset = 1};
        if (!strcmp(ops[o].name, "rms_norm")) check_reference(&ops[o], &offset, "rms_norm_offset");
        if (!strcmp(ops[o].name, "add_rms_norm")) check_reference(&ops[o], &offset, "add_rms_norm_offset");
        if (!strcmp(ops[o].name, "head_norm")) check_reference(&ops[o], &heads, "head_norm_offset");
        if (!strcmp(ops[o].name, "gelu")) check_reference(&ops[o], &gelu_shapes[1], "gelu_tanh");
        if (!strcmp(ops[o].name, "geglu")) check_reference(&ops[o], &geglu_shapes[1], "geglu_tanh");
        if (strcmp(ops[o].name, "attention")) continue;
        for (int i = 0; i < COUNT(attention); i++) check_reference(&ops[o], &attention[i].shape, attention[i].name);
    }
    gx_safetensors_close(&references);
}

// ---- attention: keys in blocks -------------------------------------------------------------------------------------

// Blocks of keys in any order, merged one after another: queries that see nothing of a block, or nothing at all, and
// positions as a rank of context parallelism has them.
static void check_merged(Bench *b, const Shape *shape, const GxRuns *block, int blocks, GxDtype dtype)
{
    Case c;
    case_open(&c, &ops[4], shape);
    case_oracle(&c);
    Slot *q = &c.in[0], *k = &c.in[1], *v = &c.in[2], *o = &c.out[0], *lse = &c.out[1];
    GxAttention a = c.a;
    const int64_t kv = a.K * a.head_dim * a.B, h = a.head_dim;
    const int bf16 = dtype == GX_BF16;
    float *merged = floats(o->n), *merged_lse = floats(lse->n), *part_lse = floats(lse->n), *keys = floats(2 * k->n);
    uint16_t *narrow = (uint16_t *)floats(o->n);
    float *part = floats(o->n);
    memset(merged, 0, (size_t)o->n * 4);
    for (int64_t i = 0; i < lse->n; i++) merged_lse[i] = -INFINITY;
    library_fill(&c, 0);
    *b->g.step = c.step;
    for (int i = 0; i < blocks; i++) {
        const int64_t n = gx_runs_rows(&block[i]);
        for (int64_t t = 0; t < n; t++) {
            const int64_t at = gx_runs_position(&block[i], t);
            memcpy(keys + t * kv, k->fv + at * kv, (size_t)kv * 4);
            memcpy(keys + k->n + t * kv, v->fv + at * kv, (size_t)kv * 4);
        }
        a.k_runs = block[i];
        gx_attention_forward(&b->g, part, part_lse, q->fv, keys, keys + k->n, &a);
        for (int64_t e = 0; e < o->n && bf16; e++) narrow[e] = gx_to_bf16(part[e]);
        gx_attention_merge(&b->g, merged, merged_lse, bf16 ? (const void *)narrow : part, part_lse, q->rows, a.H, h,
                           dtype);
    }
    if (bf16) {
        for (int64_t e = 0; e < o->n; e++)
            CHECK(fabs(merged[e] - o->v[e]) <= 0.01 * (fabs(o->v[e]) + 0.5), "%g, not %g", (double)merged[e], o->v[e]);
    } else {
        test_close("o", merged, o->v, o->n, test_bound(o->depth + 4 * blocks), 0);
        for (int64_t e = 0; e < lse->n; e++)
            CHECK(lse->v[e] == -INFINITY ? merged_lse[e] == -INFINITY : fabs(merged_lse[e] - lse->v[e]) < 1e-4,
                  "lse %g, not %g", (double)merged_lse[e], lse->v[e]);
    }
    free(merged), free(merged_lse), free(part_lse), free(keys), free(narrow), free(part);
    case_close(&c);
}

TEST(attention_to_blocks_of_keys_merges_to_attention_to_all)
{
    static const Shape shapes[] = {
        {.d = {2, 4, 2, 10}, .q = RUN2(6, 0, 7, 27), .k = RUN1(40, 0), .causal = 1},
        {.d = {1, 2, 2, 8}, .q = RUN2(6, 0, 7, 27), .k = RUN1(40, 0), .causal = 1, .documents = {12, -3, 25}},
        {.d = {2, 3, 1, 16}, .q = RUN1(9, 11), .k = RUN1(40, 0), .dropout = 0.2f},
        {.d = {1, 2, 1, 8}, .q = RUN1(40, 0), .k = RUN1(40, 0), .causal = 1, .sliding_window = 5},
        {.d = {2, 4, 2, 10}, .q = RUN2(6, 0, 7, 27), .k = RUN1(40, 0), .scale = 0.4f, .reach = 9}};
    static const GxRuns blocks[] = {RUN2(3, 7, 5, 30), RUN1(7, 0), RUN2(20, 10, 5, 35)};
    Bench b;
    bench_open(&b, 2, 1 << 20);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_merged(&b, &shapes[i], blocks, 3, GX_F32);
        check_merged(&b, &shapes[i], blocks, 3, GX_BF16);
    }
    bench_close(&b);
}

// ---- attention: heads on several ranks -----------------------------------------------------------------------------

// Query heads 0 | 1,2,3 | 4,5 of three groups of 2, with the keys and values 0 | 0,1 | 2. Each part is a view into the
// buffers of the whole, so that gemm sees the same strides and alignments: what a head computes is then the same to the
// bit.
TEST(attention_of_whole_heads_in_uneven_parts_is_attention_of_all)
{
    static const Shape shape = {.d = {2, 6, 3, 10}, .q = RUN1(70, 60), .k = RUN1(130, 0), .causal = 1};
    static const int64_t begin[] = {0, 1, 4, 6};
    Case c;
    case_open(&c, &ops[4], &shape);
    case_oracle(&c);
    const GxAttention whole = c.a;
    Slot *q = &c.in[0], *k = &c.in[1], *v = &c.in[2], *o = &c.out[0], *lse = &c.out[1];
    const int64_t h = whole.head_dim, group = whole.H / whole.K;
    float *part_o = floats(o->n), *part_dq = floats(q->n), *part_lse = floats(lse->n),
          *dkv[4]; // dk, dv of a part; their sums
    for (int i = 0; i < 4; i++) dkv[i] = floats(k->n);
    Bench b;
    bench_open(&b, 2, 1 << 20);
    library_fill(&c, 0);
    fill_nan(part_o, o->n), fill_nan(part_dq, q->n);
    gx_attention_forward(&b.g, o->fv, lse->fv, q->fv, k->fv, v->fv, &whole);
    gx_attention_backward(&b.g, q->fd, k->fd, v->fd, o->fd, o->fv, lse->fv, q->fv, k->fv, v->fv, &whole);
    for (int part = 0; part < 3; part++) {
        const int64_t kv = begin[part] / group, at = begin[part] * h;
        GxAttention a = whole;
        a.H = begin[part + 1] - begin[part], a.K = (begin[part + 1] - 1) / group + 1 - kv;
        a.group = group, a.q_first = begin[part] % group;
        for (int i = 0; i < 2; i++) memset(dkv[i], 0, (size_t)k->n * sizeof(float));
        gx_attention_forward(&b.g, part_o + at, part_lse, q->fv + at, k->fv + kv * h, v->fv + kv * h, &a);
        gx_attention_backward(&b.g, part_dq + at, dkv[0] + kv * h, dkv[1] + kv * h, o->fd + at, part_o + at, part_lse,
                              q->fv + at, k->fv + kv * h, v->fv + kv * h, &a);
        int64_t wrong = 0;
        for (int64_t i = 0; i < lse->rows * a.H; i++)
            wrong += part_lse[i] != lse->fv[i / a.H * whole.H + begin[part] + i % a.H];
        CHECK(wrong == 0, "part %d: %ld log-sum-exps differ", part, (long)wrong);
        for (int64_t i = 0; i < k->n; i++) dkv[2][i] += dkv[0][i], dkv[3][i] += dkv[1][i];
    }
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    CHECK(!memcmp(part_o, o->fv, (size_t)o->n * sizeof(float)), "o has other bits");
    CHECK(!memcmp(part_dq, q->fd, (size_t)q->n * sizeof(float)), "dq has other bits");
    check_values("dk, summed over the parts", dkv[2], k->d, k->n, k->ddepth + 2, k->dfloor);
    check_values("dv, summed over the parts", dkv[3], v->d, v->n, v->ddepth + 2, v->dfloor);
    bench_close(&b);
    for (int i = 0; i < 4; i++) free(dkv[i]);
    free(part_o), free(part_dq), free(part_lse);
    case_close(&c);
}

// ---- attention in bf16 ---------------------------------------------------------------------------------------------

enum { NARROW_T = 300, NARROW_H = 2, NARROW_HEAD = 64, NARROW_Q = NARROW_T * NARROW_H * NARROW_HEAD };
typedef struct {
    float *x;
    void *stored;
    double *ref, *terms; // and the sum of the absolute values of what it is the sum of
} Narrow;

static Narrow narrow_open(int64_t n, int number)
{
    Narrow t = {random_floats(n, number, 1), NULL, doubles(n), doubles(n)};
    t.stored = stored(t.x, n, GX_BF16);
    return t;
}
static void narrow_close(Narrow *t) { free(t->x), free(t->stored), free(t->ref), free(t->terms); }

// Element by element: factors that are rounded once each are off by u of each term, the result by u of itself; what is
// computed in fp32 by the bound of its chain of the terms (here: of those that fp32 has, before they cancel).
static void narrow_check(const char *what, const Narrow *t, const double *exact, int64_t n)
{
    const double u = 1.0 / 256, fp32 = test_bound(NARROW_T + 2 * NARROW_HEAD + 16);
    for (int64_t i = 0; i < n; i++) {
        const double bound = u * (1 + u) * (t->terms[i] + fabs(t->ref[i])) + fp32 * exact[i],
                     error = fabs((double)gx_cpu_load(t->stored, i, GX_BF16) - t->ref[i]);
        CHECK(error <= bound, "%s, element %ld: %g, not %g, by %.3g of its bound", what, (long)i,
              (double)gx_cpu_load(t->stored, i, GX_BF16), t->ref[i], error / bound);
        if (bound > 0 && error / bound > test_state.worst) test_state.worst = error / bound;
    }
}

enum { NARROW_REACH = 40, NARROW_BIAS = (2 * NARROW_REACH + 1) * NARROW_H };
typedef struct {
    Narrow q, k, v, o, d_o, dq, dk, dv, bias;
    double *dq_exact, *dk_exact; // of the terms of dq and dk before p*(dp - D) cancels
    int64_t reach;               // of the bias, whose ref and terms are those of dbias; 0: none
} NarrowCase;

// The element of the bias of query t and key j; -1: there is none.
static int64_t narrow_bias(const NarrowCase *c, int64_t t, int64_t head, int64_t j)
{
    return c->reach ? (gx_min(gx_max(j - t, -c->reach), c->reach) + c->reach) * NARROW_H + head : -1;
}

// One row of queries of one head against the keys [begin, end). Keys and values are one head's.
static void narrow_row(NarrowCase *c, int64_t t, int64_t head, int64_t begin, int64_t end)
{
    enum { h = NARROW_HEAD };
    const int64_t at = (t * NARROW_H + head) * h;
    const double scale = 1 / sqrt((double)h);
    double p[NARROW_T] = {0}, sum = 0, D = 0, D_terms = 0;
    for (int64_t j = begin; j < end; j++) {
        for (int i = 0; i < h; i++) p[j] += scale * c->q.x[at + i] * c->k.x[j * h + i];
        if (c->reach) p[j] += c->bias.x[narrow_bias(c, t, head, j)];
        sum += p[j] = exp(p[j]);
    }
    for (int i = 0; i < h; i++) {
        const double both = (double)c->d_o.x[at + i] * (double)gx_cpu_load(c->o.stored, at + i, GX_BF16);
        D += both, D_terms += fabs(both);
    }
    for (int64_t j = begin; j < end; j++) {
        double dp = 0, dp_terms = 0;
        p[j] /= sum;
        for (int i = 0; i < h; i++) {
            const double both = (double)c->d_o.x[at + i] * c->v.x[j * h + i];
            dp += both, dp_terms += fabs(both);
        }
        const double ds = scale * p[j] * (dp - D), exact = scale * p[j] * (dp_terms + D_terms);
        if (c->reach) {
            c->bias.ref[narrow_bias(c, t, head, j)] += ds / scale;
            c->bias.terms[narrow_bias(c, t, head, j)] += exact / scale;
        }
        for (int i = 0; i < h; i++) {
            const double q = c->q.x[at + i], k = c->k.x[j * h + i], v = c->v.x[j * h + i], d_o = c->d_o.x[at + i];
            c->o.ref[at + i] += p[j] * v, c->o.terms[at + i] += p[j] * fabs(v);
            c->dv.ref[j * h + i] += p[j] * d_o, c->dv.terms[j * h + i] += p[j] * fabs(d_o);
            c->dq.ref[at + i] += ds * k, c->dq.terms[at + i] += fabs(ds * k), c->dq_exact[at + i] += exact * fabs(k);
            c->dk.ref[j * h + i] += ds * q, c->dk.terms[j * h + i] += fabs(ds * q);
            c->dk_exact[j * h + i] += exact * fabs(q);
        }
    }
}

static void narrow_attention(const int documents[4], int64_t window, int64_t reach)
{
    const int64_t kv = NARROW_T * NARROW_HEAD;
    NarrowCase c = {narrow_open(NARROW_Q, 1),    narrow_open(kv, 2),       narrow_open(kv, 3), narrow_open(NARROW_Q, 4),
                    narrow_open(NARROW_Q, 5),    narrow_open(NARROW_Q, 6), narrow_open(kv, 7), narrow_open(kv, 8),
                    narrow_open(NARROW_BIAS, 9), doubles(NARROW_Q),        doubles(kv),        reach};
    float dbias[NARROW_BIAS];
    int32_t *of = oracle_documents(documents, NARROW_T, 1);
    float lse[NARROW_T * NARROW_H];
    GxAttention a = GX_ZERO;
    Bench b;
    a.B = 1, a.H = NARROW_H, a.K = 1, a.head_dim = NARROW_HEAD, a.causal = 1, a.dtype = GX_BF16;
    a.sliding_window = window;
    a.q_runs = a.k_runs = gx_runs_one(NARROW_T, 0);
    a.q_stride = a.o_stride = NARROW_H * NARROW_HEAD, a.kv_stride = NARROW_HEAD;
    if (documents[0]) a.documents = of;
    if (reach) a.bias = c.bias.stored, a.dbias = dbias, a.reach = reach;
    bench_open(&b, 2, 4 << 20);
    gx_attention_forward(&b.g, c.o.stored, lse, c.q.stored, c.k.stored, c.v.stored, &a);
    gx_attention_backward(&b.g, c.dq.stored, c.dk.stored, c.dv.stored, c.d_o.stored, c.o.stored, lse, c.q.stored,
                          c.k.stored, c.v.stored, &a);
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    for (int64_t t = 0; t < NARROW_T; t++)
        for (int64_t head = 0; head < NARROW_H; head++)
            narrow_row(&c, t, head, gx_max(documents[0] ? of[2 * t] : 0, window ? t + 1 - window : 0),
                       documents[0] ? gx_min(of[2 * t + 1], t + 1) : t + 1);
    narrow_check("o", &c.o, c.o.terms, NARROW_Q);
    narrow_check("dq", &c.dq, c.dq_exact, NARROW_Q);
    narrow_check("dk", &c.dk, c.dk_exact, kv);
    narrow_check("dv", &c.dv, c.dv.terms, kv);
    for (int i = 0; reach && i < NARROW_BIAS; i++) // from the scores' gradients before they are rounded
        CHECK(fabs(dbias[i] - c.bias.ref[i]) <= test_bound(NARROW_T + 2 * NARROW_HEAD + 16) * c.bias.terms[i],
              "dbias, element %d: %g, not %g", i, (double)dbias[i], c.bias.ref[i]);
    bench_close(&b);
    Narrow *all[] = {&c.q, &c.k, &c.v, &c.o, &c.d_o, &c.dq, &c.dk, &c.dv, &c.bias};
    for (int i = 0; i < COUNT(all); i++) narrow_close(all[i]);
    free(c.dq_exact), free(c.dk_exact), free(of);
}

TEST(attention_in_bf16_rounds_probabilities_gradients_of_scores_and_results_once)
{
    static const int whole[4] = {0}, documents[4] = {70, -9, 150, 40};
    narrow_attention(whole, 0, 0);
    narrow_attention(documents, 0, 0);
    narrow_attention(whole, 77, 0);
    narrow_attention(documents, 33, 0);
    narrow_attention(whole, 0, NARROW_REACH);
    narrow_attention(documents, 0, NARROW_REACH);
}

// ---- attention: slices of the queries, parts of the heads ----------------------------------------------------------

// One slice of the queries and one part of the heads, as views into the whole's buffers; what it adds to dk and dv.
static void attention_part(Bench *b, Case *c, const GxAttention *a, int64_t begin, int64_t head, float *dk, float *dv)
{
    Slot *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->out[0], *lse = &c->out[1];
    const int64_t h = a->head_dim, H = lse->n / lse->rows, rows = oracle_rows(&a->q_runs) * a->B, row = begin * a->B;
    const int64_t at = row * a->q_stride + head * h, kv = head / a->group * h;
    float *part_lse = floats(rows * a->H), *part_dk = floats(k->n), *part_dv = floats(v->n);
    gx_attention_forward(&b->g, o->fv + at, part_lse, q->fv + at, k->fv + kv, v->fv + kv, a);
    gx_attention_backward(&b->g, q->fd + at, part_dk + kv, part_dv + kv, o->fd + at, o->fv + at, part_lse, q->fv + at,
                          k->fv + kv, v->fv + kv, a);
    for (int64_t i = 0; i < rows * a->H; i++) lse->fv[(row + i / a->H) * H + head + i % a->H] = part_lse[i];
    for (int64_t i = 0; i < k->n; i++) dk[i] += part_dk[i], dv[i] += part_dv[i];
    free(part_lse), free(part_dk), free(part_dv);
}

// Each has the same documents, the bias of its heads, and the whole's numbers of positions and heads.
TEST(attention_in_parts_sees_the_documents_and_draws_the_mask_of_the_whole)
{
    static const Shape shape = {.d = {2, 4, 2, 6},
                                .q = RUN1(150, 0),
                                .k = RUN1(150, 0),
                                .documents = {60, -7, 50, 20},
                                .dropout = 0.3f,
                                .reach = 30};
    static const int64_t begin[] = {0, 41, 100, 150};
    Case c;
    Bench b;
    case_open(&c, &ops[4], &shape);
    case_oracle(&c);
    bench_open(&b, 2, 1 << 20);
    b.step = c.step;
    library_fill(&c, 0);
    Slot *q = &c.in[0], *k = &c.in[1], *v = &c.in[2], *o = &c.out[0], *lse = &c.out[1];
    Slot *bias = &c.in[3];
    float *dk = floats(k->n), *dv = floats(v->n), *dbias = floats(bias->n), *own = floats(bias->n),
          *d = floats(bias->n);
    memset(dbias, 0, (size_t)bias->n * 4);
    for (int slice = 0; slice < 3; slice++)
        for (int part = 0; part < 2; part++) {
            GxAttention a = c.a;
            copy_rows(own, 2, bias->fv + 2 * part, 4, bias->rows, 2); // the bias of these heads
            a.bias = own, a.dbias = d;
            a.q_runs = gx_runs_slice(&c.a.q_runs, begin[slice], begin[slice + 1] - begin[slice]);
            a.group = 2, a.H = 2, a.K = 1, a.head_first = c.a.head_first + 2 * part;
            attention_part(&b, &c, &a, begin[slice], 2 * part, dk, dv);
            for (int64_t i = 0; i < bias->rows * 2; i++) dbias[i / 2 * 4 + 2 * part + i % 2] += d[i];
        }
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    check_values("o", o->fv, o->v, o->n, o->depth, 0);
    check_values("lse", lse->fv, lse->v, lse->n, lse->depth, lse->floor);
    check_values("dq", q->fd, q->d, q->n, q->ddepth, q->dfloor);
    check_values("dk, summed over the parts", dk, k->d, k->n, k->ddepth + 3, k->dfloor);
    check_values("dv, summed over the parts", dv, v->d, v->n, v->ddepth + 3, v->dfloor);
    check_values("dbias, summed over the slices", dbias, bias->d, bias->n, bias->ddepth + 3, bias->dfloor);
    bench_close(&b);
    free(dk), free(dv), free(dbias), free(own), free(d);
    case_close(&c);
}

// ---- attention: keys and values in pages ---------------------------------------------------------------------------

// K and V of all rows side by side in a pool, in pages by `order`: 0: as they come, 1: from the last to the first. What
// no query sees has no page, and the rest of the pool is NaN. They are put there in two goes.
static void attention_pages(Bench *b, Case *c, int order)
{
    GxAttention a = c->a;
    const Slot *k = &c->in[1], *v = &c->in[2];
    const int64_t C = a.K * a.head_dim, T = k->rows / a.B, n = gx_ceil_div(T, GX_PAGE) * a.B, half = T / 2;
    int32_t *pages = (int32_t *)take(n, sizeof *pages);
    float *rows = floats(k->rows * 2 * C), *pool = floats(n * GX_PAGE * 2 * C);
    fill_nan(pool, n * GX_PAGE * 2 * C);
    for (int64_t i = 0; i < n; i++) {
        int seen = !a.documents;
        for (int64_t t = i / a.B * GX_PAGE; a.documents && t < gx_min((i / a.B + 1) * GX_PAGE, T); t++) {
            const int32_t *document = a.documents + 2 * (t * a.B + i % a.B);
            seen |= document[0] < document[1];
        }
        pages[i] = !seen ? -1 : (int32_t)(order ? n - 1 - i : i % a.B * (n / a.B) + i / a.B);
    }
    copy_rows(rows, 2 * C, k->fv, C, k->rows, C);
    copy_rows(rows + C, 2 * C, v->fv, C, v->rows, C);
    if (half) gx_put_pages(&b->g, pool, rows, pages, half, a.B, 0, 2 * C, GX_F32);
    gx_put_pages(&b->g, pool, rows + half * a.B * 2 * C, pages, T - half, a.B, half, 2 * C, GX_F32);
    a.pages = pages, a.kv_stride = 2 * C;
    gx_attention_forward(&b->g, c->out[0].fv, c->out[1].fv, c->in[0].fv, pool, pool + C, &a);
    free(pages), free(rows), free(pool);
}

TEST(attention_over_pages_is_attention_of_their_rows)
{
    static const Shape shapes[] = {
        {.d = {2, 6, 2, 10}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1},
        {.d = {1, 1, 1, 1}, .q = RUN1(1, 63), .k = RUN1(64, 0), .causal = 1},
        {.d = {3, 4, 2, 6}, .q = RUN1(70, 130), .k = RUN1(200, 0), .causal = 1},
        {.d = {1, 3, 1, 10}, .q = RUN1(5, 595), .k = RUN1(600, 0), .causal = 1}, // more than a block of keys
        {.d = {2, 3, 2, 6}, .q = RUN1(1, 129), .k = RUN1(130, 0), .causal = 1, .group = 2, .q_first = 1},
        {.d = {2, 2, 1, 6}, .q = RUN1(200, 0), .k = RUN1(200, 0), .causal = 1, .documents = {-64, 136}},
        {.d = {2, 2, 1, 6}, .q = RUN1(7, 193), .k = RUN1(200, 0), .causal = 1, .documents = {-150, 50}},
        {.d = {3, 2, 1, 6}, .q = RUN1(200, 0), .k = RUN1(200, 0), .documents = {70, -3, 64, 63}},
        {.d = {2, 2, 1, 6}, .q = RUN1(1, 199), .k = RUN1(200, 0), .causal = 1, .sliding_window = 9},
        {.d = {3, 4, 2, 6}, .q = RUN1(70, 130), .k = RUN1(200, 0), .causal = 1, .sliding_window = 65},
        {.d = {1, 3, 1, 10}, .q = RUN1(5, 595), .k = RUN1(600, 0), .causal = 1, .sliding_window = 70},
        {.d = {2, 2, 1, 6},
         .q = RUN1(7, 193),
         .k = RUN1(200, 0),
         .causal = 1,
         .documents = {-150, 50},
         .sliding_window = 20},
        {.d = {3, 4, 2, 6}, .q = RUN1(70, 130), .k = RUN1(200, 0), .causal = 1, .scale = 0.3f, .reach = 40},
        {.d = {1, 3, 1, 10}, .q = RUN1(5, 595), .k = RUN1(600, 0), .causal = 1, .reach = 128},
        {.d = {2, 2, 1, 6}, .q = RUN1(1, 199), .k = RUN1(200, 0), .causal = 1, .documents = {-150, 50}, .reach = 7},
    };
    for (int s = 0; s < COUNT(shapes); s++)
        for (int order = 0; order < 2; order++) {
            Case c;
            Bench b;
            case_open(&c, &ops[4], &shapes[s]);
            case_oracle(&c);
            bench_open(&b, 2, 1 << 20);
            library_fill(&c, 0);
            attention_pages(&b, &c, order);
            CHECK(!gx_failed(&b.g), "shape %d: %s", s, b.g.error.message);
            check_values("o", c.out[0].fv, c.out[0].v, c.out[0].n, c.out[0].depth, 0);
            check_values("lse", c.out[1].fv, c.out[1].v, c.out[1].n, c.out[1].depth, c.out[1].floor);
            bench_close(&b);
            case_close(&c);
        }
}

TEST(pages_without_a_place_take_nothing_and_others_of_the_pool_stay)
{
    enum { B = 2, T = 70, C = 3 };
    static const int32_t pages[2 * B] = {1, -1, -1, 3};
    Bench b;
    bench_open(&b, 2, 0);
    float *x = random_floats(T * B * C, 1, 1), *pool = floats(4 * GX_PAGE * C);
    fill_nan(pool, 4 * GX_PAGE * C);
    gx_put_pages(&b.g, pool, x, pages, T, B, 0, C, GX_F32);
    CHECK(!memcmp(pool + (GX_PAGE + 5) * C, x + 5 * B * C, C * sizeof *x), "position 5 of column 0 is elsewhere");
    CHECK(!memcmp(pool + (3 * GX_PAGE + 1) * C, x + ((GX_PAGE + 1) * B + 1) * C, C * sizeof *x),
          "position 65 of column 1 is elsewhere");
    CHECK(count_nan(pool, 4 * GX_PAGE * C) == (4 * GX_PAGE - GX_PAGE - (T - GX_PAGE)) * C, "%ld rows were left",
          (long)count_nan(pool, 4 * GX_PAGE * C) / C);
    bench_close(&b);
    free(x), free(pool);
}

// ---- cross-entropy: weights ----------------------------------------------------------------------------------------

static void change_signs(char *x, int64_t n, int64_t size) // of floats, whose sign is in the last byte
{
    for (int64_t i = 0; i < n; i++) x[i * size + size - 1] = (char)(x[i * size + size - 1] ^ 0x80);
}

// A row with the weight w is a row alone that is divided by count/w, for weights that are powers of two: bit for bit,
// and losses do not change. A row with the weight 0 is one of a loss without labels.
TEST(a_weight_of_a_row_multiplies_its_gradient_and_not_its_loss)
{
    enum { R = 5, V = 37 };
    static const float weights[R] = {1, -0.5f, 0, 3, 0.125f};
    static const int64_t count = 4, alone_count[R] = {4, 8, 0, 1, 32};
    static const int32_t labels[R] = {0, 36, 7, GX_IGNORE_INDEX, 20};
    for (int run = 0; run < 4; run++) {
        const int type = run % 2 ? GX_BF16 : GX_F32;
        const float smoothing = run < 2 ? 0 : 0.1f;
        const GxVocabPart part = {R, V, 0, V, smoothing}, one = {1, V, 0, V, smoothing};
        Bench b;
        bench_open(&b, 2, 0);
        const int64_t size = gx_dtype_size((GxDtype)type);
        float *x = random_floats(R * V, 1, 2), losses[2][R], maximum[R], sums[3 * R];
        char logits[4 * R * V], got[4 * R * V], exps[4 * R * V], steps[4 * R * V], alone[4 * V];
        gx_convert(&b.g, logits, (GxDtype)type, x, GX_F32, R * V);
        gx_cross_entropy(&b.g, losses[0], got, logits, labels, R, V, &count, weights, smoothing, (GxDtype)type);
        gx_cross_entropy_maximum(&b.g, maximum, logits, R, V, (GxDtype)type);
        gx_cross_entropy_sums(&b.g, sums, exps, logits, maximum, labels, &part, (GxDtype)type);
        gx_cross_entropy_finish(&b.g, losses[1], steps, exps, sums, labels, &part, &count, weights, (GxDtype)type);
        CHECK(!memcmp(losses[0], losses[1], sizeof losses[0]), "other losses in steps");
        for (int r = 0; r < R; r++) {
            float loss, sum[3] = {sums[r], sums[R + r], smoothing != 0 ? sums[2 * R + r] : 0};
            gx_cross_entropy(&b.g, &loss, alone, logits + r * V * size, labels + r, 1, V, &alone_count[r], NULL,
                             smoothing, (GxDtype)type);
            if (weights[r] < 0) change_signs(alone, V, size);
            CHECK(loss == losses[0][r] && !memcmp(alone, got + r * V * size, (size_t)(V * size)), "row %d", r);
            gx_cross_entropy_finish(&b.g, &loss, alone, exps + r * V * size, sum, labels + r, &one, &alone_count[r],
                                    NULL, (GxDtype)type);
            if (weights[r] < 0) change_signs(alone, V, size);
            CHECK(!memcmp(alone, steps + r * V * size, (size_t)(V * size)), "row %d, in steps", r);
        }
        CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
        bench_close(&b);
        free(x);
    }
}

// ---- cross-entropy: labels -----------------------------------------------------------------------------------------

TEST(cross_entropy_names_the_wrong_label_and_its_row)
{
    static const int32_t wrong[] = {5, -1, -99, 2147483647, -2147483647 - 1};
    for (int i = 0; i < COUNT(wrong); i++) {
        Bench b;
        bench_open(&b, 2, 0);
        int32_t labels[3] = {0, wrong[i], GX_IGNORE_INDEX};
        float *logits = random_floats(15, 1, 1), *dlogits = floats(15), losses[3];
        char expected[64];
        snprintf(expected, sizeof expected, "label %ld in row 1", (long)wrong[i]);
        fill_nan(dlogits, 15);
        gx_cross_entropy(&b.g, losses, dlogits, logits, labels, 3, 5, NULL, NULL, 0, GX_F32);
        CHECK(b.g.error.code == GX_ERR_ARGUMENT && strstr(b.g.error.message, expected), "label %ld: %s", (long)wrong[i],
              b.g.error.message);
        CHECK(count_nan(dlogits, 15) == 0 && losses[1] == 0 && dlogits[7] == 0,
              "the row of the wrong label was left undefined");
        gx_error_clear(&b.g.error);
        float sums[6], exps[9],
            maximum[3] = {9, 9, 9}; // columns 2 to 4: a label may be elsewhere, but not outside the vocabulary
        fill_nan(exps, 9), fill_nan(sums, 6);
        const GxVocabPart part = {3, 3, 2, 5, 0};
        gx_cross_entropy_sums(&b.g, sums, exps, logits, maximum, labels, &part, GX_F32);
        CHECK(b.g.error.code == GX_ERR_ARGUMENT && strstr(b.g.error.message, expected), "label %ld: %s", (long)wrong[i],
              b.g.error.message);
        CHECK(count_nan(exps, 9) == 0 && count_nan(sums, 6) == 0 && sums[4] == 0,
              "the row of the wrong label was left undefined");
        bench_close(&b);
        free(logits), free(dlogits);
    }
}

// ---- cross-entropy: parts of the vocabulary ------------------------------------------------------------------------

static void check_oracle_of_parts(Case *c, const char *what)
{
    double *losses = doubles(c->R), *dlogits = doubles(c->R * c->C), error = 0, derror = 0;
    int64_t begin[PARTS + 1], labels[PARTS] = {0};
    const int parts = cut_vocabulary(c->C, begin);
    oracle_cross_entropy(losses, dlogits, c->in[0].v, c->ids, c->R, c->C, c->scale, c->shape->smooth);
    for (int64_t r = 0; r < c->R; r++) error = fmax(error, fabs(losses[r] - c->out[0].v[r]) / (1 + fabs(losses[r])));
    for (int64_t i = 0; i < c->in[0].n; i++) derror = fmax(derror, fabs(dlogits[i] - c->in[0].d[i]) / c->scale);
    // both are sums of as many roundings, of numbers of at most 1 (losses: and the loss): test_bound's law with the u
    // of fp64
    const double bound = 8 * (DBL_EPSILON / 2) * sqrt(2 * (double)c->C + 16);
    CHECK(error <= bound && derror <= bound, "%s: losses are off by %.3g, dlogits by %.3g, bound %.3g", what, error,
          derror, bound);
    for (int p = 0; p < parts; p++)
        for (int64_t r = 0; r < c->R; r++) labels[p] += c->ids[r] >= begin[p] && c->ids[r] < begin[p + 1];
    if (c->C == 61) CHECK(labels[0] && labels[1] && labels[2], "%s: a part of the vocabulary has no label", what);
    free(losses), free(dlogits);
}
TEST(oracle_of_cross_entropy_in_parts_is_the_oracle_of_the_whole)
{
    for_each_case(check_oracle_of_parts, "cross_entropy_parts");
    for_each_case(check_oracle_of_parts, "smoothed_cross_entropy_parts");
}

static void check_one_part(Case *c, const char *what)
{
    const int64_t begin[] = {0, c->C};
    for (int run = 0; run < 6; run++) {
        const int variant = run / 2;
        Bench b;
        int64_t n;
        float *once = library_run(c, what, 1 + run % 2, 0, variant, &n);
        bench_open(&b, 1 + run % 2, 0);
        library_fill(c, 0);
        cross_entropy_in_parts(&b.g, c, variant, begin, 1);
        float *steps = library_results(c, &n);
        CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
        CHECK(!memcmp(once, steps, (size_t)n * sizeof(float)),
              "%s, variant %d: in steps it has other bits than at once", what, variant);
        bench_close(&b);
        free(once), free(steps);
    }
}
TEST(cross_entropy_in_steps_has_the_bits_of_the_whole_at_once)
{
    for_each_case(check_one_part, "cross_entropy");
    for_each_case(check_one_part, "smoothed_cross_entropy");
}

// Each step of each part by itself, from inputs that are fp32 values. A row's largest exp is 1, if in another part:
// errors of exps and sums are of 1's size. exp: 4 roundings with the difference before it; a loss is the sum of two
// numbers that are not negative, the logarithm's 2 and its own; a gradient a division, a product and a difference as in
// the whole.
static void check_steps(Case *c, const char *shape)
{
    const int64_t R = c->R;
    int64_t begin[PARTS + 1], rows = 0;
    double *maximum = doubles(R), *sums = doubles(3 * R), *all_exps = doubles(R * c->C);
    float *fmaximum = floats(R), *fsums = floats(3 * R); // over all parts
    oracle_cross_entropy_maximum(maximum, c->in[0].v, R, c->C);
    oracle_cross_entropy_sums(sums, all_exps, c->in[0].v, maximum, c->ids, R, c->C, 0);
    for (int64_t i = 0; i < 3 * R; i++) fsums[i] = (float)sums[i], sums[i] = fsums[i];
    for (int64_t r = 0; r < R; r++) fmaximum[r] = (float)maximum[r], rows += c->ids[r] != GX_IGNORE_INDEX;
    for (int run = 0, parts = cut_vocabulary(c->C, begin); run < 3 * parts; run++) {
        const int variant = run % 3;
        Part p = part_open(c, begin[run / 3], begin[run / 3 + 1], variant);
        const int64_t n = R * p.V;
        double *x = to_doubles(p.logits, n), *own = doubles(3 * R), *exps = doubles(n), *losses = doubles(R),
               *dlogits = doubles(n);
        char what[5][96];
        const char *const names[] = {"maximum", "exps", "sums", "losses", "dlogits"};
        for (int i = 0; i < 5; i++)
            snprintf(what[i], sizeof what[i], "%s, part %d, variant %d: %s", shape, run / 3, variant, names[i]);
        Bench b;
        bench_open(&b, 2, 0);
        gx_cross_entropy_maximum(&b.g, p.maximum, p.logits, R, p.V, GX_F32);
        oracle_cross_entropy_maximum(own, x, R, p.V);
        check_values(what[0], p.maximum, own, R, 0, 0);
        gx_cross_entropy_sums(&b.g, p.sums, p.exps, p.logits, fmaximum, c->ids, &p.of, GX_F32);
        oracle_cross_entropy_sums(own, exps, x, maximum, c->ids, R, p.V, p.begin);
        if (p.exps) check_values(what[1], p.exps, exps, n, 4, sqrt((double)R));
        check_values(what[2], p.sums, own, R, (double)p.V + 4, sqrt((double)R));
        check_values(what[2], p.sums + R, own + R, R, 1, 0);
        if (p.of.smoothing != 0) check_values(what[2], p.sums + 2 * R, own + 2 * R, R, (double)p.V + 1, 0);
        for (int64_t i = 0; p.exps && i < n; i++) exps[i] = p.exps[i];
        gx_cross_entropy_finish(&b.g, p.losses, p.dlogits, p.exps, fsums, c->ids, &p.of, &c->count, NULL, GX_F32);
        oracle_cross_entropy_finish(losses, dlogits, exps, sums, c->ids, &p.of, c->scale);
        // smoothed: three products and two sums more, and for a gradient one of each
        const int is_smoothed = p.of.smoothing != 0;
        check_values(what[3], p.losses, losses, R, is_smoothed ? 8 : 3, 0);
        if (p.dlogits) check_values(what[4], p.dlogits, dlogits, n, is_smoothed ? 5 : 3, c->scale * sqrt((double)rows));
        CHECK(!gx_failed(&b.g), "%s: %s", shape, b.g.error.message);
        bench_close(&b);
        free(x), free(own), free(exps), free(losses), free(dlogits);
        part_close(&p);
    }
    free(maximum), free(sums), free(all_exps), free(fmaximum), free(fsums);
}
TEST(cross_entropy_steps_are_what_the_oracle_says)
{
    for_each_case(check_steps, "cross_entropy_parts");
    for_each_case(check_steps, "smoothed_cross_entropy_parts");
}

// ---- scale ---------------------------------------------------------------------------------------------------------

// One product, rounded once; more elements than one thread takes at a time, and in place.
TEST(scale_is_a_product_in_both_types)
{
    enum { N = 20011 };
    for (int t = 0; t < 2; t++) {
        const GxDtype type = t ? GX_BF16 : GX_F32;
        float *x = (float *)take(N, sizeof *x), *y = (float *)take(N, sizeof *y);
        uint16_t *narrow = (uint16_t *)x, *scaled = (uint16_t *)y;
        int wrong = 0;
        Bench b;
        bench_open(&b, 2, 1024);
        for (int i = 0; i < N; i++)
            if (t) narrow[i] = gx_to_bf16((float)(i - 7000) / 16);
            else x[i] = (float)(i - 7000) / 16;
        gx_scale(&b.g, y, x, N, 20.1f, type);
        for (int i = 0; i < N; i++)
            wrong += t ? scaled[i] != gx_to_bf16(20.1f * gx_from_bf16(narrow[i])) : y[i] != 20.1f * x[i];
        gx_scale(&b.g, x, x, N, 20.1f, type);
        CHECK(!memcmp(x, y, (size_t)N * (t ? 2 : 4)), "in place it is something else");
        CHECK(wrong == 0 && !gx_failed(&b.g), "%d elements are wrong: %s", wrong, b.g.error.message);
        bench_close(&b);
        free(x), free(y);
    }
}

// ---- exp -----------------------------------------------------------------------------------------------------------

// The lower tail's relative error is that of exp(-z^2/2): 1.5 ulp and the rounding of z^2/2, which is z^2/4 ulp.
TEST(cpu_tanh_and_the_normal_distribution_are_close_and_hold_at_the_ends)
{
    double worst_tanh = 0, worst_tail = 0, worst_above = 0;
    for (int i = -120000; i <= 120000; i++) {
        const float z = (float)i * 1e-4f;
        const double x = z, below = 0.5 * erfc(-x / sqrt(2));
        const GxCpuNormal n = gx_cpu_normal(z);
        if (i) worst_tanh = fmax(worst_tanh, fabs(gx_cpu_tanh(z) / tanh(x) - 1));
        if (i <= 0) worst_tail = fmax(worst_tail, fabs(n.below / below - 1) / (4 + x * x / 4));
        worst_above = fmax(worst_above, fabs(n.below - below));
        CHECK(fabs(n.density / (exp(-x * x / 2) / sqrt(2 * acos(-1.0))) - 1) <= (4 + x * x / 4) * FLT_EPSILON,
              "the density at %g is %g", x, (double)n.density);
    }
    test_state.worst = fmax(worst_tanh / (2 * FLT_EPSILON), worst_tail / FLT_EPSILON);
    CHECK(worst_tanh <= 2 * FLT_EPSILON, "tanh is off by %g", worst_tanh);
    CHECK(worst_tail <= FLT_EPSILON, "the lower tail is off by %g of its bound", worst_tail / FLT_EPSILON);
    CHECK(worst_above <= 2 * FLT_EPSILON, "the distribution is off by %g", worst_above);
    CHECK(gx_cpu_tanh(0) == 0 && gx_cpu_tanh(INFINITY) == 1 && gx_cpu_tanh(-INFINITY) == -1 &&
              gx_cpu_tanh(1e-30f) == 1e-30f,
          "tanh at its ends");
    CHECK(gx_cpu_normal(INFINITY).below == 1 && gx_cpu_normal(-INFINITY).below == 0 &&
              fabsf(gx_cpu_normal(0).below - 0.5f) <= FLT_EPSILON,
          "the distribution at its ends: %g, %g, %g", (double)gx_cpu_normal(INFINITY).below,
          (double)gx_cpu_normal(-INFINITY).below, (double)gx_cpu_normal(0).below);
    CHECK(isnan(gx_cpu_tanh(NAN)) && isnan(gx_cpu_normal(NAN).below), "NaN does not stay NaN");
}

TEST(cpu_exp_is_within_1_5_ulp)
{
    double worst = 0;
    for (int i = 0; i <= 1500000; i++) {
        float x = -90.0f + (float)i * (180.0f / 1500000), y = gx_cpu_exp(x);
        if (x < -87.0f) CHECK(y == 0, "exp(%g) is %g, not 0", x, y);
        else if (x > 88.3f) CHECK(y == gx_cpu_exp(88.3f), "exp(%g) is %g, not saturated", x, y);
        else worst = fmax(worst, fabs((double)y / exp((double)x) - 1));
    }
    // an ulp is at most FLT_EPSILON of a number
    CHECK(worst <= 1.5 * FLT_EPSILON, "largest relative error %.3g, %.2f of FLT_EPSILON", worst, worst / FLT_EPSILON);
    test_state.worst = worst / (1.5 * FLT_EPSILON);
    CHECK(gx_cpu_exp(-INFINITY) == 0 && gx_cpu_exp(0) == 1 && isnan(gx_cpu_exp(NAN)) && isfinite(gx_cpu_exp(INFINITY)),
          "-inf, 0, NaN or inf");
}

// ---- gemm ----------------------------------------------------------------------------------------------------------

static double gemm_at(const float *x, int64_t ld, int trans, int64_t row, int64_t col)
{
    return trans ? x[col * ld + row] : x[row * ld + col];
}

typedef struct {
    GxDtype ab, c;
} GemmTypes;

// Compares every so many-th element of C.
static void check_gemm_by(GxGemmWay way, GxGemm p, int threads, int gap, int64_t every)
{
    GxError err = GX_ZERO;
    const GemmTypes types = {p.type_ab, p.type_c};
    const int64_t a_rows = p.trans_a ? p.K : p.M, b_rows = p.trans_b ? p.N : p.K, n = gx_ceil_div(p.M * p.N, every);
    float *a = random_floats(a_rows * p.lda, 1, 1), *b = random_floats(b_rows * p.ldb, 2, 1),
          *old = random_floats(p.M * p.N, 3, 1);
    float *c = floats(p.M * p.ldc), *sample = floats(n);
    double *ref = doubles(n);
    void *a_stored = stored(a, a_rows * p.lda, types.ab), *b_stored = stored(b, b_rows * p.ldb, types.ab);
    free(stored(old, p.M * p.N, types.c));
    fill_nan(c, p.M * p.ldc); // beta 0: NaN must be written over, not multiplied
    if (p.beta != 0) copy_rows(c, p.ldc, old, p.N, p.M, p.N);
    void *c_stored = stored(c, p.M * p.ldc, types.c);
    p.A = a_stored, p.B = b_stored, p.C = c_stored;
    CHECK(gx_cpu_gemm_by(&p, way, threads, &err) == GX_OK, "%s", err.message);
    for (int64_t i = 0; i < p.M * p.ldc; i++) c[i] = gx_cpu_load(c_stored, i, types.c);
    CHECK(count_nan(c, p.M * p.ldc) == p.M * gap, "%s, %s: wrote behind its rows, or left NaN", gx_cpu_gemm_name(),
          gx_cpu_gemm_way_name(way));
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i * every / p.N, col = i * every % p.N;
        for (int64_t k = 0; k < p.K; k++)
            ref[i] += gemm_at(a, p.lda, p.trans_a, row, k) * gemm_at(b, p.ldb, p.trans_b, k, col);
        ref[i] = p.alpha * ref[i] + (p.beta != 0 ? (double)p.beta * (double)old[i * every] : 0);
        sample[i] = c[row * p.ldc + col];
    }
    const double rounding = types.c == GX_BF16 ? 1.0 / 256 : 0; // bf16's u: each element is rounded once
    test_close(gx_cpu_gemm_way_name(way), sample, ref, (long)n, test_bound((double)p.K + 3) + rounding,
               0); // a sum of K products, alpha, beta
    free(a), free(b), free(old), free(c), free(sample), free(ref), free(a_stored), free(b_stored), free(c_stored);
}

// ---- linear with gaps between rows, added to what is there, in both types ------------------------------------------

// Rows of a matrix in its type, `stride` elements apart, with NaN between them; x becomes what the type holds.
static void *spread(float *x, int64_t rows, int64_t cols, int64_t stride, GxDtype type)
{
    float *wide = floats(rows * stride);
    free(stored(x, rows * cols, type));
    fill_nan(wide, rows * stride);
    copy_rows(wide, stride, x, cols, rows, cols);
    void *copy = stored(wide, rows * stride, type);
    free(wide);
    return copy;
}

// Results and what they were added to, without gaps; gaps must still be NaN.
static void check_spread(const char *what, const void *result, int64_t rows, int64_t cols, int64_t stride, GxDtype type,
                         double *reference, const float *before, double depth)
{
    float *x = floats(rows * cols);
    int64_t nan = 0;
    for (int64_t i = 0; i < rows * stride; i++) {
        const float value = gx_cpu_load(result, i, type);
        if (i % stride < cols) x[i / stride * cols + i % stride] = value;
        else nan += isnan(value) != 0;
    }
    CHECK(nan == rows * (stride - cols), "%s: wrote behind its rows", what);
    for (int64_t i = 0; before && i < rows * cols; i++) reference[i] += before[i];
    test_close(what, x, reference, (long)(rows * cols), test_bound(depth) + (type == GX_BF16 ? 1.0 / 256 : 0), 0);
    free(x);
}

typedef struct {
    GxLinearShape s;
    int64_t xs, ys;
    float *x, *w, *bias, *dy, *y0, *dx0, *dw, *dbias, *dw0, *dbias0; // what the type holds, without gaps; 0: before
    void *x_in, *w_in, *bias_in, *dy_in, *y, *dx;                    // as the library sees them
} Linear;

static Linear linear_case(const GxLinearShape *s, int64_t x_gap, int64_t y_gap, int has_bias)
{
    const int64_t R = s->R, In = s->In, Out = s->Out, xs = In + x_gap, ys = Out + y_gap;
    Linear l = {*s,
                xs,
                ys,
                random_floats(R * In, 1, 1),
                random_floats(Out * In, 2, 1),
                random_floats(Out, 3, 1),
                random_floats(R * Out, 4, 1),
                random_floats(R * Out, 5, 1),
                random_floats(R * In, 6, 1),
                random_floats(Out * In, 7, 1),
                random_floats(Out, 8, 1),
                random_floats(Out * In, 7, 1),
                random_floats(Out, 8, 1),
                NULL,
                NULL,
                NULL,
                NULL,
                NULL,
                NULL};
    l.s.x_stride = x_gap ? xs : 0, l.s.y_stride = y_gap ? ys : 0;
    if (!s->accumulate) { // NaN must be written over, not added to
        fill_nan(l.y0, R * Out), fill_nan(l.dx0, R * In), fill_nan(l.dw, Out * In), fill_nan(l.dbias, Out);
    }
    l.x_in = spread(l.x, R, In, xs, s->dtype), l.w_in = spread(l.w, Out, In, In, s->dtype);
    l.bias_in = has_bias ? spread(l.bias, 1, Out, Out, s->dtype) : NULL;
    l.dy_in = spread(l.dy, R, Out, ys, s->dtype);
    l.y = spread(l.y0, R, Out, ys, s->dtype), l.dx = spread(l.dx0, R, In, xs, s->dtype);
    return l;
}
static void linear_close(Linear *l)
{
    free(l->x), free(l->w), free(l->bias), free(l->dy), free(l->y0), free(l->dx0), free(l->dw), free(l->dbias);
    free(l->dw0), free(l->dbias0), free(l->x_in), free(l->w_in), free(l->bias_in), free(l->dy_in), free(l->y);
    free(l->dx);
}
static void linear_calls(GxContext *g, const Linear *l)
{
    gx_linear_forward(g, l->y, l->x_in, l->w_in, l->bias_in, &l->s);
    gx_linear_backward_input(g, l->dx, l->dy_in, l->w_in, &l->s);
    gx_linear_backward_weight(g, l->dw, l->dbias, l->dy_in, l->x_in, &l->s);
}

static void check_linear(const Linear *l, int threads, const char *what)
{
    const int64_t R = l->s.R, In = l->s.In, Out = l->s.Out;
    double *x = to_doubles(l->x, R * In), *w = to_doubles(l->w, Out * In), *bias = to_doubles(l->bias, Out);
    double *dy = to_doubles(l->dy, R * Out), *y = doubles(R * Out), *dx = doubles(R * In), *dw = doubles(Out * In);
    double *dbias = doubles(Out);
    const int add = l->s.accumulate;
    Bench plan, real;
    oracle_linear_forward(y, x, w, l->bias_in ? bias : NULL, R, In, Out);
    oracle_linear_backward(dx, dw, dbias, dy, x, w, R, In, Out);
    bench_open(&plan, threads, -1);
    linear_calls(&plan.g, l);
    bench_open(&real, threads, plan.arena.peak);
    linear_calls(&real.g, l);
    check_bench(what, &real, &plan);
    bench_close(&plan), bench_close(&real);
    check_spread("y", l->y, R, Out, l->ys, l->s.dtype, y, add ? l->y0 : NULL, (double)In + 2);
    check_spread("dx", l->dx, R, In, l->xs, l->s.dtype, dx, add ? l->dx0 : NULL, (double)Out + 1);
    check_spread("dw", l->dw, Out, In, In, GX_F32, dw, add ? l->dw0 : NULL, (double)R + 1);
    check_spread("dbias", l->dbias, 1, Out, Out, GX_F32, dbias, add ? l->dbias0 : NULL, (double)R + 1);
    free(x), free(w), free(bias), free(dy), free(y), free(dx), free(dw), free(dbias);
}

TEST(linear_with_gaps_and_what_it_is_added_to_is_what_the_oracle_says)
{
    static const int64_t shape[][5] = {{1, 1, 1, 2, 3},    {5, 13, 9, 0, 0},    {3, 4, 5, 1, 0},   {130, 33, 65, 7, 31},
                                       {64, 24, 8, 8, 24}, {97, 130, 34, 0, 5}, {1, 70, 300, 3, 0}}; // R, In, Out, gaps
    for (int i = 0; i < COUNT(shape) * 16; i++) {
        const int64_t *d = shape[i / 16];
        GxLinearShape s = gx_linear_shape(d[0], d[1], d[2], i & 1 ? GX_BF16 : GX_F32);
        char what[128];
        s.accumulate = i >> 1 & 1;
        snprintf(what, sizeof what, "linear %ld x %ld x %ld, gaps %ld and %ld, %s, accumulate %d, bias %d, threads %d",
                 (long)d[0], (long)d[1], (long)d[2], (long)d[3], (long)d[4], gx_dtype_name(s.dtype), s.accumulate,
                 i >> 2 & 1, 1 + (i >> 3 & 1));
        Linear l = linear_case(&s, d[3], d[4], i >> 2 & 1);
        const int failures = test_state.failures;
        check_linear(&l, 1 + (i >> 3 & 1), what);
        CHECK(test_state.failures == failures, "%s", what);
        linear_close(&l);
    }
}

static const GemmTypes gemm_types[] = {{GX_F32, GX_F32}, {GX_BF16, GX_BF16}, {GX_BF16, GX_F32}};

// In each way that there is.
static void check_gemm(GxGemm p, GemmTypes types, int threads, int gap, int64_t every)
{
    p.lda = (p.trans_a ? p.M : p.K) + gap, p.ldb = (p.trans_b ? p.K : p.N) + gap, p.ldc = p.N + gap;
    p.type_ab = types.ab, p.type_c = types.c;
    for (int way = 0; way < GX_GEMM_WAYS; way++)
        if (gx_cpu_gemm_can(&p, (GxGemmWay)way)) check_gemm_by((GxGemmWay)way, p, threads, gap, every);
    CHECK(gx_cpu_gemm_can(&p, gx_cpu_gemm_way(&p)), "the way that is taken is none of them");
}

TEST(gemm_of_all_types_transposes_strides_and_factors)
{
    static const int64_t size[][3] = {{1, 1, 1},     {6, 16, 320}, {14, 32, 320}, // a tile, and past it
                                      {7, 17, 5},    {15, 33, 3},  {29, 70, 257}, // past blocks of 240 x 256
                                      {261, 35, 11}, {9, 301, 11}, {1, 70, 641},  // and one panel of 320, and two
                                      {97, 1, 3}};
    static const float factor[][2] = {{1, 0}, {1, 1}, {-0.5f, 0}, {0.3f, -1.5f}};
    for (int s = 0; s < COUNT(size); s++)
        for (int run = 0; run < COUNT(factor) * COUNT(gemm_types) * 4; run++) {
            const int trans = run % 4, f = run / 4 % COUNT(factor), types = run / 4 / COUNT(factor);
            GxGemm p = {trans & 1, trans >> 1, size[s][0], size[s][1], size[s][2], factor[f][0], factor[f][1], NULL,
                        NULL,      0,          0,          NULL,       0,          GX_F32,       GX_F32};
            check_gemm(p, gemm_types[types], 1 + trans % 2, 3 * (f % 2), 1);
        }
}

TEST(gemm_of_one_row_has_the_same_bits_on_any_number_of_threads)
{
    enum { N = 301, K = 523 };
    float *a = random_floats(K, 1, 1), *b = random_floats(K * N, 2, 1), *c[2];
    for (int i = 0; i < 2; i++) {
        GxError err = GX_ZERO;
        c[i] = (float *)take(N, 4);
        const GxGemm p = {0, 1, 1, N, K, 1, 0, a, b, K, K, c[i], N, GX_F32, GX_F32};
        CHECK(gx_cpu_gemm(&p, i ? 3 : 1, &err) == GX_OK, "%s", err.message);
    }
    CHECK(!memcmp(c[0], c[1], N * sizeof *c[0]), "1 thread and 3 give other bits");
    free(a), free(b), free(c[0]), free(c[1]);
}

static void in_tiles(const GxGemm *p, int threads)
{
    GxError err = GX_ZERO;
    CHECK(gx_cpu_gemm_tiles(p, threads, &err) == GX_OK, "%s", err.message);
}

// Blocks of several threads are smaller than those of one; tiles are cut at both edges; one of these products runs
// inside a parallel region.
TEST(gemm_in_tiles_has_the_same_bits_on_any_number_of_threads)
{
    enum { M = 511, N = 301, K = 523, RUNS = 6 };
    static const GxDtype types[][2] = {{GX_F32, GX_F32}, {GX_BF16, GX_F32}, {GX_BF16, GX_BF16}};
    for (int t = 0; t < COUNT(types); t++) {
        float *a = random_floats(M * K, 1, 1), *b = random_floats(K * N, 2, 1);
        void *a_stored = stored(a, M * K, types[t][0]), *b_stored = stored(b, K * N, types[t][0]), *c[RUNS];
        GxGemm p = {0, 0, M, N, K, 1, 0, a_stored, b_stored, K, N, NULL, N, types[t][0], types[t][1]};
        for (int i = 0; i < RUNS; i++) {
            c[i] = take(M * N, gx_dtype_size(p.type_c));
            if (i < RUNS - 1) p.C = c[i], in_tiles(&p, i % 4 ? 2 * i - 1 : 1);
        }
        p.C = c[RUNS - 1];
        GX_OMP(parallel num_threads(2))
        {
            GX_OMP(single)
            in_tiles(&p, 3);
        }
        p.M = 0, in_tiles(&p, 2); // no rows, then no columns: nothing is written
        p.M = M, p.N = 0, in_tiles(&p, 2);
        for (int i = 1; i < RUNS; i++)
            CHECK(!memcmp(c[0], c[i], (size_t)(M * N * gx_dtype_size(p.type_c))),
                  "%s into %s: product %d has other bits", gx_dtype_name(p.type_ab), gx_dtype_name(p.type_c), i);
        for (int i = 0; i < RUNS; i++) free(c[i]);
        free(a), free(b), free(a_stored), free(b_stored);
    }
}

// 1 + 2^-8 + 2^-17, each from another panel, is 1 + 2^-7 in one rounding; 1 where any two panels were rounded before,
// and where what is there was.
TEST(gemm_in_tiles_rounds_the_sum_of_all_panels_once)
{
    enum { K = 700 };
    for (int run = 0; run < 8; run++) { // the 1 lies in A, or is in C; A and B as they are, or transposed
        const int adds = run & 1, ta = run >> 1 & 1, tb = run >> 2 & 1;
        float *a = floats(K), *b = floats(K), c = adds ? 1 : NAN;
        a[3] = adds ? 0 : 1, a[300] = 0x1p-8f, a[600] = 0x1p-17f;
        for (int k = 0; k < K; k++) b[k] = 1;
        void *a_stored = stored(a, K, GX_BF16), *b_stored = stored(b, K, GX_BF16), *c_stored = stored(&c, 1, GX_BF16);
        GxGemm p = {ta, tb, 1, 1, K, 1, (float)adds, a_stored, b_stored, 1, 1, c_stored, 1, GX_BF16, GX_BF16};
        p.lda = ta ? 1 : K, p.ldb = tb ? K : 1;
        in_tiles(&p, 2);
        c = gx_cpu_load(c_stored, 0, GX_BF16);
        CHECK(c == 1 + 0x1p-7f, "run %d: %.9g", run, c);
        free(a), free(b), free(a_stored), free(b_stored), free(c_stored);
    }
}

TEST(gemm_says_how_it_multiplies_bf16)
{
#ifdef GX_WITH_ONEDNN
    const int widened = strstr(gx_cpu_gemm_name(), "bf16 widened to fp32 products") != NULL;
    CHECK(widened != gx_cpu_gemm_has_bf16(), "%s", gx_cpu_gemm_name());
#else
    CHECK(strstr(gx_cpu_gemm_name(), "plain C"), "%s", gx_cpu_gemm_name());
#endif
}

TEST(gemm_refuses_strides_and_types_that_do_not_fit)
{
    float x[4] = {0};
    GxGemm bad = {0, 0, 2, 2, 2, 1, 0, x, x, 1, 2, x, 2, GX_F32, GX_F32};
    GxError err = GX_ZERO;
    CHECK(gx_cpu_gemm(&bad, 1, &err) == GX_ERR_ARGUMENT && strstr(err.message, "does not fit"),
          "a stride shorter than its rows: %s", err.message);
    bad.lda = 2;
    for (int ab = 0; ab < GX_DTYPES; ab++)
        for (int c = 0; c < GX_DTYPES; c++) {
            if ((ab == GX_F32 && c == GX_F32) || (ab == GX_BF16 && c <= GX_BF16)) continue;
            gx_error_clear(&err);
            bad.type_ab = (GxDtype)ab, bad.type_c = (GxDtype)c;
            CHECK(gx_cpu_gemm(&bad, 1, &err) == GX_ERR_UNSUPPORTED, "%s into %s: %s", gx_dtype_name(bad.type_ab),
                  gx_dtype_name(bad.type_c), err.message);
        }
}

TEST(gemm_of_large_weight_gradients_keeps_the_contract)
{
    for (int run = 0; run < 4; run++) { // beta 0 and 1, rows with and without gaps, one thread and two
        GxGemm p = {1, 0, 517, 511, 523, 1, (float)(run % 2), NULL, NULL, 517, 511, NULL, 511, GX_F32, GX_F32};
#ifdef GX_WITH_ONEDNN
        GxGemm half_alpha = p, half_beta = p;
        half_alpha.alpha = half_beta.beta = 0.5f;
        CHECK(gx_cpu_gemm_way(&p) == GX_GEMM_MATMUL, "this is no longer oneDNN's other way: make the sizes larger");
        CHECK(gx_cpu_gemm_way(&half_alpha) == GX_GEMM_SGEMM && gx_cpu_gemm_way(&half_beta) == GX_GEMM_SGEMM,
              "oneDNN's other way has no factors");
#endif
        for (int types = 0; types < COUNT(gemm_types); types++)
            check_gemm(p, gemm_types[types], run == 0 || run == 3 ? 1 : 2, 3 * (run / 2), 61);
    }
}

#ifdef _OPENMP
// With fewer threads than were asked for no part of a product may be missing: one on oneDNN's either way.
TEST(gemm_is_whole_where_openmp_gives_fewer_threads)
{
    const int levels = omp_get_max_active_levels();
    for (int trans = 0; trans < 2; trans++) {
        const GxGemm p = {trans, 0, 517, 511, 523, 1, 0, NULL, NULL, trans ? 517 : 523, 511, NULL, 511, GX_F32, GX_F32};
        omp_set_max_active_levels(0); // as OMP_MAX_ACTIVE_LEVELS=0: regions have one thread
        omp_set_dynamic(1);
        for (int types = 0; types < COUNT(gemm_types); types++) check_gemm(p, gemm_types[types], 2, 0, 67);
        omp_set_max_active_levels(levels);
        omp_set_dynamic(0);
        check_gemm(p, gemm_types[0], 2, 0, 67);
    }
}
#endif

// ---- --autotune ----------------------------------------------------------------------------------------------------

#ifdef GX_WITH_ONEDNN // else there is one way alone
// The text with another way in all its lines but the first.
static char *with_way(const char *text, const char *way)
{
    char *other = (char *)take(2 * (int64_t)strlen(text) + 200, 1), *to = other;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        const int length = (int)strcspn(line, "\n"), is_first = line == text;
        int cut = length;
        while (!is_first && line[cut - 1] != ' ') cut--;
        to += sprintf(to, "%.*s%s\n", cut, line, is_first ? "" : way);
    }
    return other;
}

// A product by the context, added to `old` or not, beside one in a way; 1: the same bits.
static int same_product(GxContext *g, GxGemm p, const float *old, GxGemmWay way)
{
    const size_t bytes = (size_t)(p.M * p.ldc) * sizeof(float);
    float *a = floats(p.M * p.ldc), *b = floats(p.M * p.ldc);
    memcpy(a, old, bytes), memcpy(b, old, bytes);
    p.C = a, gx_cpu_product(g, &p);
    p.C = b, CHECK(gx_cpu_gemm_by(&p, way, 2, &g->error) == GX_OK, "%s", g->error.message);
    const int same = !memcmp(a, b, bytes);
    free(a), free(b);
    return same;
}

TEST(products_are_computed_as_a_table_says_and_timing_them_changes_nothing)
{
    enum { M = 65, N = 70, K = 5000 }; // K: long, so that sums in another order are other sums
    GxContext g = GX_ZERO;
    GxError why = GX_ZERO;
    g.device = gx_device_cpu(), g.threads = 2;
    float *a = random_floats(M * K, 1, 1), *b = random_floats(K * N, 2, 1), *c = random_floats(M * N, 3, 1);
    GxGemm p[4];
    for (int i = 0; i < 4; i++) { // the last two come too late to be in the table
        const float alpha = i == 3 ? 0.5f : 1;
        const GxGemm one = {0, i == 2,         M,    N, K,      alpha, (float)(i == 1), a, b,
                            K, i == 2 ? K : N, NULL, N, GX_F32, GX_F32};
        p[i] = one;
        CHECK(same_product(&g, p[i], c, gx_cpu_gemm_way(&p[i])), "product %d without a table", i);
        CHECK(!same_product(&g, p[i], c, GX_GEMM_TILES), "product %d is the same in each way: make K larger", i);
    }
    g.device->tune(&g, 1);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++)
            CHECK(same_product(&g, p[i], c, gx_cpu_gemm_way(&p[i])), "timing has changed product %d", i);
    char *text = g.device->tuned_text(&g);
    CHECK(text && strstr(text, "galaxy autotune 1, 2 threads, tiles of ") == text && strstr(text, "oneDNN"), "%s",
          text ? text : "no table");
    CHECK(strstr(text, "\n65 70 5000 5000 70 70 0 0 0 0 0 0 ") && strstr(text, "\n65 70 5000 5000 70 70 0 0 0 0 0 1 "),
          "%s", text);
    g.device->tune(&g, 0);
    for (int i = 0; i < 2; i++) CHECK(same_product(&g, p[i], c, gx_cpu_gemm_way(&p[i])), "the table is not forgotten");
    for (int way = GX_GEMM_SGEMM; way < GX_GEMM_WAYS; way++) {
        char *table = with_way(text, gx_cpu_gemm_way_name((GxGemmWay)way));
        CHECK(g.device->take_tuned(&g, table, &why) == GX_OK, "%s", why.message);
        for (int i = 0; i < 2; i++)
            CHECK(same_product(&g, p[i], c, (GxGemmWay)way), "product %d is not computed by %s", i,
                  gx_cpu_gemm_way_name((GxGemmWay)way));
        for (int i = 2; i < 4; i++)
            CHECK(same_product(&g, p[i], c, gx_cpu_gemm_way(&p[i])), "product %d, which is not in the table", i);
        char *again = g.device->tuned_text(&g);
        CHECK(again && !strcmp(again, table), "%s became %s", table, again ? again : "none");
        g.device->tune(&g, 0);
        free(table), free(again);
    }
    static const char *const bad[] = {"", "gemm", "row", "tile", "tiless"};
    for (int i = 0; i < COUNT(bad); i++) {
        char *table = with_way(text, bad[i]);
        gx_error_clear(&why);
        CHECK(g.device->take_tuned(&g, table, &why) == GX_ERR_FORMAT && strstr(why.message, "line 2 is not a product"),
              "\"%s\": %s", bad[i], why.message);
        free(table);
    }
    g.threads = 1, gx_error_clear(&why);
    CHECK(g.device->take_tuned(&g, text, &why) == GX_ERR_UNSUPPORTED && strstr(why.message, "1 thread,"), "%s",
          why.message);
    CHECK(!gx_failed(&g), "%s", g.error.message);
    gx_device_close(&g);
    free(text), free(a), free(b), free(c);
}

// A clock that says of each way, in each round, what it took.
static int clock_asked;
static const double *clock_rounds; // [rounds][ways of fp32 but for a row]
static double made_up_clock(void)
{
    const int n = clock_asked++;
    return n % 2 ? clock_rounds[n / 2] : 0;
}

TEST(the_way_that_once_took_the_least_time_is_chosen_and_the_first_round_does_not_count)
{
    enum { N = 8, WAYS = 3 };
    static const double rounds[][6][WAYS] = {{{0, 5, 5}, {5, 4, 9}, {5, 9, 9}, {5, 9, 9}, {5, 9, 9}, {5, 9, 9}},
                                             {{1, 0, 1}, {5, 5, 9}, {5, 5, 9}, {5, 5, 4}, {5, 5, 9}, {5, 5, 9}},
                                             {{9, 9, 0}, {2, 5, 5}, {9, 3, 3}, {9, 3, 3}, {9, 3, 3}, {9, 3, 3}}};
    static const char *const chosen[] = {"matmul", "tiles", "sgemm"};
    float x[N * N] = {0}, y[N * N];
    const GxGemm p = {0, 0, N, N, N, 1, 0, x, x, N, N, y, N, GX_F32, GX_F32};
    for (int i = 0; i < COUNT(chosen); i++) {
        GxContext g = GX_ZERO;
        g.device = gx_device_cpu();
        clock_asked = 0, clock_rounds = rounds[i][0], gx_cpu_tune_clock = made_up_clock;
        g.device->tune(&g, 1);
        gx_cpu_product(&g, &p);
        gx_cpu_tune_clock = gx_seconds;
        CHECK(clock_asked == 2 * 6 * WAYS, "the clock was asked %d times", clock_asked);
        char *text = g.device->tuned_text(&g), end[20];
        snprintf(end, sizeof end, " %s\n", chosen[i]);
        CHECK(!strcmp(text + strlen(text) - strlen(end), end), "expected %s: %s", chosen[i], text);
        free(text);
        gx_device_close(&g);
    }
}

// Rows that lie apart: each distance is another product, and the scratch of one that is added has room for its last
// row.
TEST(products_whose_rows_lie_apart_are_timed_each_for_itself)
{
    enum { M = 3, N = 4, K = 5, APART = 1000 };
    GxContext g = GX_ZERO;
    g.device = gx_device_cpu();
    float *a = floats(K * APART), *b = floats(K * APART), *c = floats(M * APART);
    g.device->tune(&g, 1);
    for (int which = 0; which < 4; which++) {
        const GxGemm p = {0,
                          0,
                          M,
                          N,
                          K,
                          1,
                          1,
                          a,
                          b,
                          which == 1 ? APART : K,
                          which == 2 ? APART : N,
                          c,
                          which == 3 ? APART : N,
                          GX_F32,
                          GX_F32};
        gx_cpu_product(&g, &p);
    }
    char *text = g.device->tuned_text(&g);
    CHECK(!gx_failed(&g) && strstr(text, "\n3 4 5 5 4 4 ") && strstr(text, "\n3 4 5 1000 4 4 ") &&
              strstr(text, "\n3 4 5 5 1000 4 ") && strstr(text, "\n3 4 5 5 4 1000 "),
          "%s %s", g.error.message, text);
    free(text), free(a), free(b), free(c);
    gx_device_close(&g);
}

// One that is added to more than the scratch holds, and one that there is one way for.
TEST(products_that_cannot_be_compared_are_not_timed)
{
    enum { N = 2049 };
    GxContext g = GX_ZERO;
    g.device = gx_device_cpu();
    float *x = floats(N), *y = floats(N * N);
    x[N - 1] = 1;
    const GxGemm large = {0, 0, N, N, 1, 1, 1, x, x, 1, N, y, N, GX_F32, GX_F32};
    GxGemm only = {0, 0, 2, 2, 2, 1, 0, x, x, 2, 2, y, 2, GX_BF16, GX_F32};
    g.device->tune(&g, 1);
    gx_cpu_product(&g, &large);
    CHECK(y[N * N - 1] == 1 && y[N * N - 2] == 0, "added %g times", (double)y[N * N - 1]);
    gx_cpu_product(&g, &only);
    char *text = g.device->tuned_text(&g), *first = strchr(text, '\n') + 1;
    CHECK(gx_cpu_gemm_has_bf16() ? strncmp(first, "2 2 2 ", 6) == 0 : !*first, "%s", text);
    CHECK(!strstr(text, "\n2049 "), "%s", text);
    free(text), free(x), free(y);
    gx_device_close(&g);
}
#endif

// ---- zero, copy, add -----------------------------------------------------------------------------------------------

TEST(zero_copy_and_add_are_exact_at_any_size)
{
    static const int64_t size[] = {1, 7, 1 << 16, (1 << 16) + 1, 200001}; // the CPU's pieces are 256 KB
    for (int run = 0; run < 3 * COUNT(size); run++) {                     // the sum may be a or b
        const int64_t n = size[run / 3];
        float *x[3] = {random_floats(n, 1, 1), random_floats(n, 2, 1), floats(n)}, *a = floats(n), *b = floats(n),
              *sum = x[run % 3];
        int64_t wrong = 0, left = 0;
        Bench bench;
        bench_open(&bench, 2, 0);
        gx_copy(&bench.g, a, x[0], 4 * n);
        gx_copy(&bench.g, b, x[1], 4 * n);
        gx_add(&bench.g, sum, x[0], x[1], n, GX_F32);
        for (int64_t i = 0; i < n; i++)
            wrong += sum[i] != a[i] + b[i] || (sum != x[0] && x[0][i] != a[i]) || (sum != x[1] && x[1][i] != b[i]);
        const char *bytes = (const char *)sum, last = bytes[4 * n - 1];
        gx_zero(&bench.g, sum, 4 * n - 1); // the last byte stays
        for (int64_t i = 0; i < 4 * n - 1; i++) left += bytes[i] != 0;
        CHECK(!wrong && !left && bytes[4 * n - 1] == last && !gx_failed(&bench.g),
              "%ld: %ld sums are wrong, %ld bytes left", (long)n, (long)wrong, (long)left);
        bench_close(&bench);
        for (int k = 0; k < 3; k++) free(x[k]);
        free(a), free(b);
    }
}

// ---- sums, clipping, optimizers ------------------------------------------------------------------------------------

static void sum_squares(GxContext *g, double *total, const float *x, int64_t n, int accumulate) // of one part
{
    const GxSumPart part = {0, n, 0};
    const GxSumParts all = {&part, 1, n, gx_ceil_div(n, GX_SQUARES_BLOCK)};
    gx_sum_squares(g, total, x, &all, accumulate);
}

static void square_blocks(GxContext *g, double *blocks, const float *x, int64_t n) // of one part
{
    const GxSumPart part = {0, n, 0};
    const GxSumParts all = {&part, 1, n, gx_ceil_div(n, GX_SQUARES_BLOCK)};
    gx_square_blocks(g, blocks, x, &all);
}

TEST(sums_are_exact_to_double_precision_for_any_number_of_threads)
{
    static const int64_t size[] = {1,     7, GX_SUM_BLOCK, GX_SUM_BLOCK + 1, GX_SQUARES_BLOCK, GX_SQUARES_BLOCK + 1,
                                   100003};
    for (int run = 0; run < 2 * COUNT(size); run++) {
        const int64_t n = size[run / 2];
        void (*op)(GxContext *, double *, const float *, int64_t, int) = run % 2 ? sum_squares : gx_sum;
        float *x = random_floats(n, run, 1);
        double total[2] = {0.25, 0.25}, once[2] = {NAN, NAN}, terms = 0.25;
        long double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double term = run % 2 ? (double)x[i] * (double)x[i] : (double)x[i];
            sum += term;
            terms += fabs(term);
        }
        for (int t = 0; t < 2; t++) {
            Bench b;
            bench_open(&b, t + 1, gx_round_up(gx_ceil_div(n, GX_SUM_BLOCK) * 8, GX_ALIGN));
            op(&b.g, &total[t], x, n, 1);
            op(&b.g, &once[t], x, n, 0);
            CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
            bench_close(&b);
        }
        // test_bound's law with the u of fp64, relative to the terms' absolute sum
        double bound = 8 * (DBL_EPSILON / 2) * sqrt((double)n) * terms;
        double error = fmax(fabs((double)(total[0] - 0.25L - sum)), fabs((double)(once[0] - sum)));
        CHECK(error <= bound, "sum of %ld: off by %.3g, bound %.3g", (long)n, error, bound);
        CHECK(total[0] == total[1] && once[0] == once[1], "two threads sum to other bits: %.17g and %.17g", total[0],
              total[1]);
        free(x);
    }
}

// Parts apart, one of several blocks, one of an element; a list's end, whose blocks do not begin at 0.
TEST(squares_of_parts_have_the_bits_of_one_part_after_the_other)
{
    static const int64_t size[] = {3, GX_SQUARES_BLOCK, 2 * GX_SQUARES_BLOCK + 5, 1, 77};
    GxSumPart part[COUNT(size)];
    int64_t begin = 5, blocks = 11;
    for (int i = 0; i < COUNT(size); i++) {
        part[i].begin = begin, part[i].n = size[i], part[i].blocks = blocks;
        begin += size[i] + i, blocks += gx_ceil_div(size[i], GX_SQUARES_BLOCK);
    }
    float *x = random_floats(begin, 1, 1);
    for (int first = 0; first < COUNT(size); first++) {
        double one_by_one = 0.25, at_once = 0.25;
        GxSumParts all = {part + first, 0, 0, 0};
        Bench b;
        bench_open(&b, 2, 1 << 10);
        for (int i = first; i < COUNT(size); i++) {
            sum_squares(&b.g, &one_by_one, x + part[i].begin, size[i], 1);
            all.parts++, all.n += size[i], all.blocks += gx_ceil_div(size[i], GX_SQUARES_BLOCK);
        }
        gx_sum_squares(&b.g, &at_once, x, &all, 1);
        CHECK(!gx_failed(&b.g) && at_once == one_by_one, "from part %d on: %.17g, not %.17g", first, at_once,
              one_by_one);
        bench_close(&b);
    }
    free(x);
}

static const GxAdamW ADAMW = {0.9f, 0.95f, 1e-8f, 0.1f};
static const GxSgd SGD = {0.9f, 0.01f};

TEST(clip_scales_to_the_norm_and_skips_what_is_not_finite)
{
    static const struct {
        double squares, max_norm, clip;
        int skip;
    } rows[] = {
        {25, 1, 1 / (5 + 1e-6), 0},
        {0.25, 1, 1, 0},
        {25, 0, 1, 0},
        {25, -1, 1, 0},
        {0, 1, 1, 0},
        {1e60, 1, 1e-30, 0},
        {25, 5, 1 / (1 + 2e-7), 0},
        {INFINITY, 1, 1, 1},
        {NAN, 1, 1, 1},
        {NAN, 0, 1, 1},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        Bench b;
        bench_open(&b, 1, 0);
        b.step.sum_squares = rows[i].squares;
        b.step.applied = 41;
        b.step.skip = 1 - rows[i].skip; // of the step before
        gx_clip(&b.g, rows[i].max_norm);
        CHECK(b.step.skip == rows[i].skip && b.step.applied == 42 - rows[i].skip, "%g: skip %ld, applied %ld",
              rows[i].squares, (long)b.step.skip, (long)b.step.applied);
        CHECK(rows[i].skip || fabs(b.step.clip / rows[i].clip - 1) <= FLT_EPSILON, "%g: clip %.9g, not %.9g",
              rows[i].squares, b.step.clip, rows[i].clip);
        bench_close(&b);
    }
}

static GxUpdate update_of(float *w, float *m, float *v, const float *grad, int64_t n)
{
    GxUpdate u = GX_ZERO;
    u.w = w, u.m = m, u.v = v, u.grad = grad, u.n = n, u.dtype = GX_F32;
    return u;
}

TEST(gradients_that_are_not_finite_leave_weights_and_moments_alone)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY};
    enum { N = 5000 };
    for (int i = 0; i < COUNT(poison); i++) {
        Bench b;
        float *w[4], *same[4]; // weights, momentum, and AdamW's second moments; gradients
        bench_open(&b, 2, 64);
        for (int k = 0; k < 4; k++) w[k] = random_floats(N, k, 1), same[k] = random_floats(N, k, 1);
        w[3][4711] = poison[i];
        b.step.lr = 0.1f;
        sum_squares(&b.g, &b.step.sum_squares, w[3], N, 0);
        gx_clip(&b.g, 1);
        CHECK(b.step.skip && b.step.applied == 0, "%g was not seen", poison[i]);
        const GxUpdate u = update_of(w[0], w[1], w[2], w[3], N);
        gx_adamw(&b.g, &u, &ADAMW);
        gx_sgd(&b.g, &u, &SGD);
        for (int k = 0; k < 3; k++) CHECK(!memcmp(w[k], same[k], N * sizeof(float)), "buffer %d was changed", k);
        for (int k = 0; k < 4; k++) free(w[k]), free(same[k]);
        bench_close(&b);
    }
}

// What a program is told that calls adamw (0), sgd (1) or clip (2) on a context whose step, state 0: is not there,
// 1: gx_clip has not filled, 2: is another than the one that it filled, 3: gx_clip has filled.
static void say_of_step(int which, int state, const GxDevice *device, char says[600])
{
    const int64_t n = 3;
    float w[3] = {1, 2, 3}, m[3] = {0}, v[3] = {0}, grad[3] = {1, 1, 1};
    GxStep step = GX_ZERO, other = GX_ZERO;
    GxContext g = GX_ZERO;
    g.device = device;
    step.lr = other.lr = 0.1f, step.sum_squares = 3;
    if (state > 0) g.step = &step;
    if (state > 1) gx_clip(&g, 0);
    if (state == 2) g.step = &other;
    const GxUpdate u = update_of(w, m, v, grad, n);
    if (which == 0) gx_adamw(&g, &u, &ADAMW);
    else if (which == 1) gx_sgd(&g, &u, &SGD);
    else gx_clip(&g, 1);
    const int changes = device->computes && state == 3 && which < 2;
    CHECK((w[0] != 1) == changes && w[0] == w[0], "call %d, step %d: w[0] became %g", which, state, w[0]);
    CHECK(!gx_failed(&g) || gx_status(&g) == GX_ERR_ARGUMENT, "%s", gx_status_name(gx_status(&g)));
    snprintf(says, 600, "%s", g.error.message);
}

TEST(an_optimizer_without_a_step_or_before_the_clip_is_an_error)
{
    static const char *const names[] = {"adamw", "sgd", "clip"};
    const GxDevice none = gx_device_none(gx_device_cpu()); // a plan is refused as its run is
    const GxDevice *const devices[] = {gx_device_cpu(), &none};
    char says[600], expected[100];
    for (int i = 0; i < 2 * 3 * 4; i++) {
        const int state = i % 4, which = i / 4 % 3, fails = state == 0 || (which < 2 && state < 3);
        say_of_step(which, state, devices[i / 12], says);
        snprintf(expected, sizeof expected, "%s: %s", names[which],
                 state == 0 ? "the context has no step; let g->step point" : "g->step has no clip coefficient");
        CHECK(fails ? strstr(says, expected) != NULL : !says[0], "%s, step %d: \"%s\"", names[which], state, says);
    }
}

// One step by the library; v NULL: SGD; m NULL: without momentum. Roundings: clip, two moments, corrections, root,
// division, decay.
enum { OPTIMIZER_DEPTH = 14 };
static void optimizer_step(const GxUpdate *u, const GxAdamW *adamw, const GxSgd *sgd, GxStep step, int threads)
{
    Bench b;
    bench_open(&b, threads, 0);
    b.step = step;
    if (u->v) gx_adamw(&b.g, u, adamw);
    else gx_sgd(&b.g, u, sgd);
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    bench_close(&b);
}

TEST(optimizers_step_as_the_oracle_does)
{
    static const int64_t t[] = {1, 7, 1000}, size[] = {1, 37, 5000};
    static const GxAdamW adamw[] = {{0.9f, 0.95f, 1e-8f, 0.1f}, {0.9f, 0.999f, 1e-5f, 0}, {0.5f, 0.9f, 1e-3f, 0.01f}};
    static const GxSgd sgd[] = {{0.9f, 0.01f}, {0.5f, 0}, {0, 0.1f}};
    for (int run = 0; run < 3 * 3 * 3; run++) {
        const int kind = run % 3, i = run / 3 % 3, s = run / 9; // kind: AdamW, SGD with momentum, SGD without
        const int64_t n = size[s];
        GxStep step = GX_ZERO;
        step.lr = 0.01f, step.clip = i ? 0.3f : 1.0f, step.applied = t[i];
        float *start[4], *result[2][3];
        double *ref[4];
        for (int k = 0; k < 4; k++) {
            start[k] = random_floats(n, 10 * run + k, k ? 0.1 : 1); // w, m, v, gradient
            for (int64_t e = 0; k == 2 && e < n; e++) start[k][e] *= start[k][e];
            if (t[i] == 1 && (k == 1 || k == 2) && kind == 0) memset(start[k], 0, (size_t)n * sizeof(float));
            ref[k] = to_doubles(start[k], n);
        }
        for (int threads = 1; threads <= 2; threads++) {
            float **w = result[threads - 1];
            for (int k = 0; k < 3; k++) w[k] = floats(n), memcpy(w[k], start[k], (size_t)n * sizeof(float));
            const GxUpdate u = update_of(w[0], kind == 2 ? NULL : w[1], kind ? NULL : w[2], start[3], n);
            optimizer_step(&u, &adamw[i], &sgd[i], step, threads);
        }
        if (kind) oracle_sgd(ref[0], kind == 2 ? NULL : ref[1], ref[3], n, &sgd[i], step.lr, step.clip);
        else oracle_adamw(ref[0], ref[1], ref[2], ref[3], n, &adamw[i], step.lr, step.clip, (double)t[i]);
        for (int k = 0; k < 3; k++) {
            char what[64];
            snprintf(what, sizeof what, "%s, t %ld, n %ld, %c", kind ? "sgd" : "adamw", (long)t[i], (long)n, "wmv"[k]);
            test_close(what, result[0][k], ref[k], (long)n, test_bound(OPTIMIZER_DEPTH), 0);
            CHECK(!memcmp(result[0][k], result[1][k], (size_t)n * sizeof(float)),
                  "%s: two threads give other bits than one", what);
        }
        for (int k = 0; k < 4; k++) free(start[k]), free(ref[k]);
        for (int k = 0; k < 6; k++) free(result[k / 3][k % 3]);
    }
}

// One call, in which weight decay leaves ranges alone, has the bits of a call for each range and for what lies between.
static void check_undecayed(int kind, const GxUndecayed *undecayed, int threads)
{
    enum { N = 70000, BUFFERS = 5 }; // weights, moments, gradients; what the copy gets
    static const GxAdamW adamw[] = {{0.9f, 0.95f, 1e-8f, 0.1f}, {0.9f, 0.95f, 1e-8f, 0}};
    static const GxSgd sgd[] = {{0.9f, 0.1f}, {0.9f, 0}};
    GxStep step = GX_ZERO;
    float *x[2][BUFFERS];
    step.lr = 0.01f, step.clip = 0.3f, step.applied = 3;
    for (int way = 0; way < 2; way++) {
        for (int k = 0; k < BUFFERS; k++) {
            x[way][k] = random_floats(N, 60 + k, 1);
            for (int64_t e = 0; k == 2 && e < N; e++) x[way][k][e] *= x[way][k][e];
        }
        for (int64_t begin = 0, r = 0; begin < N;) {
            int64_t end = N;
            int decays = 1;
            GxUpdate u = GX_ZERO;
            if (way == 0) u.undecayed = *undecayed;
            else if (r < undecayed->n) {
                decays = begin < undecayed->begin[r];
                end = decays ? undecayed->begin[r] : undecayed->end[r++];
            }
            float *const *of = x[way];
            u.w = of[0] + begin, u.m = of[1] + begin, u.v = kind ? NULL : of[2] + begin, u.grad = of[3] + begin;
            u.copy = (uint16_t *)of[4] + begin, u.dtype = GX_BF16, u.n = end - begin;
            optimizer_step(&u, &adamw[!decays], &sgd[!decays], step, threads);
            begin = end;
        }
    }
    for (int k = 0; k < BUFFERS; k++)
        CHECK(!memcmp(x[0][k], x[1][k], N * sizeof(float)), "%s, %d ranges, %d threads: buffer %d has other bits",
              kind ? "sgd" : "adamw", undecayed->n, threads, k);
    for (int k = 0; k < 2 * BUFFERS; k++) free(x[k / BUFFERS][k % BUFFERS]);
}

TEST(weight_decay_leaves_ranges_of_an_update_alone)
{
    static const GxUndecayed ranges[] = {{0, {0}, {0}},
                                         {1, {0}, {70000}},
                                         {1, {0}, {1}},
                                         {2, {3, 69999}, {20, 70000}},
                                         {4, {0, 21, 16384, 40000}, {5, 22, 32768, 65537}}};
    for (int i = 0; i < 2 * 2 * COUNT(ranges); i++) check_undecayed(i % 2, &ranges[i / 4], 1 + i / 2 % 2);
}

// Unit 1: rows of 3 elements, of which every `period`-th decays; row 20 may be frozen. What decays becomes 1 -
// lr*weight_decay, since there is no gradient, and the rest stays 1. Returns the calls that it took.
static int64_t calls_of_unit(int rows, int period, int frozen, int kind, GxDtype dtype)
{
    enum { ELEMENTS = 3 };
    GxTable table = GX_ZERO;
    GxStore s;
    Bench b;
    const GxOptimizer o = {kind ? GX_OPTIMIZER_SGD : GX_OPTIMIZER_ADAMW, {0.9f, 0.95f, 1e-8f, 0.5f}, {0, 0.5f}, 0};
    bench_open(&b, 2, 1 << 16);
    for (int i = 0; i < rows + 2; i++) { // one before the unit, one behind it
        GxTensor t = GX_ZERO;
        snprintf(t.name, sizeof t.name, "row%d", i);
        t.ndim = 1, t.global_shape[0] = t.end[0] = ELEMENTS;
        t.unit = (i > 0) + (i > rows), t.decay = i % period == 0, t.frozen = frozen && i == 20;
        gx_table_add(&table, &t, &b.g.error);
    }
    gx_store_open(&s, &table, gx_units(0, 3), dtype, &b.g.error);
    gx_store_allocate(&b.g, &s, gx_optimizer_moments(&o));
    for (int64_t e = 0; e < s.trained_n; e++) {
        for (int i = 0; i < gx_optimizer_moments(&o); i++) s.moment[i][e] = 0;
        s.grads[e] = 0;
    }
    for (int i = 0; i < table.n; i++)
        for (int e = 0; gx_store_trains(&s, i) && e < ELEMENTS; e++) gx_store_master_at(&s, i, 0)[e] = 1;
    b.step.lr = 0.1f, b.step.clip = 1, b.step.applied = 1;
    gx_optimizer_step(&b.g, &s, &o, 1);
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    for (int i = 0; i < table.n; i++) {
        const float expected = table.row[i].unit == 1 && table.row[i].decay ? 1.0f - 0.1f * 0.5f : 1.0f;
        for (int e = 0; gx_store_trains(&s, i) && e < ELEMENTS; e++)
            CHECK(gx_store_master_at(&s, i, 0)[e] == expected, "%d rows, row %d: %g", rows, i,
                  gx_store_master_at(&s, i, 0)[e]);
    }
    const int64_t calls = b.recorder.n;
    gx_store_close(&s), gx_table_close(&table);
    bench_close(&b);
    return calls;
}

TEST(an_optimizer_updates_a_unit_in_one_call_where_its_tensors_lie_together)
{
    static const struct {
        int rows, period, frozen;
        int64_t calls;
    } list[] = {{1, 1, 0, 1},  {1, 2, 0, 1},  {2, 2, 0, 1},  {32, 2, 0, 1},
                {33, 2, 0, 2}, {70, 2, 0, 3}, {60, 4, 0, 1}, {30, 2, 1, 2}};
    for (int i = 0; i < COUNT(list) * 4; i++) {
        const int n = i / 4, kind = i % 2, is_bf16 = i / 2 % 2;
        const int64_t calls =
            calls_of_unit(list[n].rows, list[n].period, list[n].frozen, kind, is_bf16 ? GX_BF16 : GX_F32);
        CHECK(calls == list[n].calls, "%d rows, period %d, frozen %d, kind %d, bf16 %d: %ld calls", list[n].rows,
              list[n].period, list[n].frozen, kind, is_bf16, (long)calls);
    }
}

TEST(ranges_that_do_not_decay_lie_one_behind_the_other_within_the_update)
{
    static const struct {
        GxUndecayed of;
        int fits;
    } list[] = {{{2, {0, 4}, {4, 9}}, 1}, {{-1, {0}, {0}}, 0},     {{GX_MOST_UNDECAYED + 1, {0}, {0}}, 0},
                {{1, {3}, {2}}, 0},       {{1, {-1}, {2}}, 0},     {{1, {8}, {10}}, 0},
                {{2, {0, 3}, {4, 9}}, 0}, {{2, {5, 0}, {9, 4}}, 0}};
    float w[9] = {0}, m[9] = {0}, v[9] = {0}, grad[9] = {0};
    for (int i = 0; i < COUNT(list) * 2; i++) {
        Bench b;
        GxUpdate u = update_of(w, m, v, grad, 9);
        bench_open(&b, 1, 0);
        u.undecayed = list[i / 2].of;
        i % 2 ? gx_sgd(&b.g, &u, &SGD) : gx_adamw(&b.g, &u, &ADAMW);
        CHECK(list[i / 2].fits ? !gx_failed(&b.g)
                               : gx_status(&b.g) == GX_ERR_ARGUMENT && strstr(b.g.error.message, "do not decay"),
              "ranges %d: \"%s\"", i / 2, b.g.error.message);
        bench_close(&b);
    }
}

TEST(optimizers_step_as_pytorch_does)
{
    enum { N = 37 };
    static const struct {
        const char *op;
        int t;
        const char *from[4], *to[3];
    } rows[] = {
        {"adamw", 1, {"w", NULL, NULL, "g"}, {"w1", "m1", "v1"}}, // w, m, v, gradient; NULL: zeros, or there is none
        {"adamw", 7, {"w", "m", "v", "g"}, {"w7", "m7", "v7"}},
        {"sgd", 1, {"w", "buf", NULL, "g"}, {"w1", "buf1", NULL}},
    };
    if (!references_open()) SKIP("data/ref/ops.safetensors is not there; dev/ref/make_refs.py makes it");
    for (int r = 0; r < COUNT(rows); r++) {
        const char *op = rows[r].op;
        const int is_sgd = !strcmp(op, "sgd");
        float x[4][N] = {{0}}, end[N];
        double *d[4];
        GxAdamW adamw = {0, 0, 0, 0};
        GxSgd sgd = {0, 0};
        GxStep step = GX_ZERO;
        step.clip = 1, step.applied = rows[r].t;
        int ok = reference_read(op, "lr", &step.lr, 1);
        if (is_sgd) ok = ok && reference_read(op, "momentum", &sgd.momentum, 1);
        else
            ok = ok && reference_read(op, "beta1", &adamw.beta1, 1) && reference_read(op, "beta2", &adamw.beta2, 1) &&
                 reference_read(op, "eps", &adamw.eps, 1) && reference_read(op, "weight_decay", &adamw.weight_decay, 1);
        for (int k = 0; k < 4; k++) {
            if (rows[r].from[k]) ok = ok && reference_read(op, rows[r].from[k], x[k], N);
            d[k] = to_doubles(x[k], N);
        }
        if (is_sgd) oracle_sgd(d[0], d[1], d[3], N, &sgd, step.lr, 1);
        else oracle_adamw(d[0], d[1], d[2], d[3], N, &adamw, step.lr, 1, rows[r].t);
        const GxUpdate u = update_of(x[0], x[1], is_sgd ? NULL : x[2], x[3], N);
        optimizer_step(&u, &adamw, &sgd, step, 1);
        for (int k = 0; ok && k < 3 && rows[r].to[k]; k++) {
            if (!reference_read(op, rows[r].to[k], end, N)) break;
            test_close(rows[r].to[k], end, d[k], N, test_bound(1), 0); // rounded to fp32 once
            test_close_f(rows[r].to[k], x[k], end, N, test_bound(OPTIMIZER_DEPTH), 0);
        }
        for (int k = 0; k < 4; k++) free(d[k]);
    }
    gx_safetensors_close(&references);
}

// ---- dropout: how much, and which ----------------------------------------------------------------------------------

static void *dropped_ones(int64_t R, int64_t C, const GxDropout *d, const GxStep *step, int threads, GxDtype type)
{
    const int64_t size = gx_dtype_size(type);
    char *y = (char *)take(R * C, (size_t)size);
    Bench b;
    bench_open(&b, threads, 0);
    b.step = *step;
    for (int64_t i = 0; i < R * C; i++)
        if (type == GX_F32) ((float *)y)[i] = 1;
        else ((uint16_t *)y)[i] = gx_to_bf16(1);
    gx_dropout(&b.g, y, y, R, C, d, type);
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    bench_close(&b);
    return y;
}

// Of n independent elements n*p are dropped, with a standard deviation of sqrt(n*p*(1-p)); neighbours of a draw, rows,
// steps, sites and seeds have nothing to do with each other: of two such masks n*p^2 elements are dropped in both.
TEST(dropout_drops_its_share_and_other_rows_steps_sites_and_seeds_drop_others)
{
    enum { R = 64, C = 1001 };
    static const float share[] = {1e-3f, 0.1f, 0.5f, 0.9f, 0.999f};
    const double n = R * C;
    for (int i = 0; i < COUNT(share); i++) {
        const double p = share[i];
        float *first = NULL;
        for (int other = 0; other < 5; other++) { // 0: the first; 1 to 4: another step, site, seed, sample
            GxStep step = {.seed = 5 + (uint64_t)(other == 3), .step = 3 + (uint64_t)(other == 1)};
            const GxDropout d = {.p = share[i], .site = other == 2, .first_sample = other == 4, .T = R, .B = 1};
            float *y = (float *)dropped_ones(R, C, &d, &step, 2, GX_F32);
            int64_t dropped = 0, both = 0, of_word[4] = {0}, wrong = 0;
            for (int64_t e = 0; e < R * C; e++) {
                const int drops = y[e] == 0;
                dropped += drops, of_word[e % C % 4] += drops;
                both += drops && first && first[e] == 0;
                wrong += !drops && y[e] != 1 / (1 - share[i]);
            }
            CHECK(wrong == 0, "p %g: %ld elements are neither 0 nor 1/(1 - p)", p, (long)wrong);
            CHECK(fabs((double)dropped - n * p) <= 6 * sqrt(n * p * (1 - p)), "p %g: %ld of %g are dropped", p,
                  (long)dropped, n);
            for (int w = 0; w < 4; w++)
                CHECK(fabs((double)of_word[w] - n / 4 * p) <= 6 * sqrt(n / 4 * p * (1 - p)) + 1 + R * p,
                      "p %g: word %d drops %ld of %g", p, w, (long)of_word[w], n / 4);
            if (first)
                CHECK(fabs((double)both - n * p * p) <= 6 * sqrt(n * p * p * (1 - p * p)) + 6,
                      "p %g, other %d: %ld of %g are dropped in both", p, other, (long)both, n);
            if (first) free(y);
            else first = y;
        }
        free(first);
    }
}

// Rows 2*B to the end of a batch, as a slice, as a list of rows in another order, in bf16, by three threads, and as
// those of a batch that begins with another sample.
TEST(dropout_keeps_the_same_elements_however_rows_are_sliced)
{
    enum { T = 9, B = 4, C = 77, FIRST = 2 * B, ROWS_HERE = T * B - FIRST };
    const GxStep step = {.seed = 5, .step = 1ull << 40 | 3}; // of the step's 64 bits 32 are used
    const GxDropout whole = {.p = 0.3f, .site = 9, .first_sample = 100, .T = T, .B = B};
    float *y = (float *)dropped_ones(T * B, C, &whole, &step, 1, GX_F32);
    GxDropout slice = whole, listed = whole, column = whole;
    int32_t rows[ROWS_HERE];
    for (int r = 0; r < ROWS_HERE; r++) rows[r] = FIRST + (r * 5 + 3) % ROWS_HERE;
    slice.first_row = FIRST, listed.rows = rows, listed.first_row = 1;
    column.first_sample += 2, column.B = 1; // the third sample alone
    float *sliced = (float *)dropped_ones(ROWS_HERE, C, &slice, &step, 3, GX_F32);
    float *of_list = (float *)dropped_ones(ROWS_HERE, C, &listed, &step, 2, GX_F32);
    float *of_column = (float *)dropped_ones(T, C, &column, &step, 2, GX_F32);
    uint16_t *narrow = (uint16_t *)dropped_ones(T * B, C, &whole, &step, 2, GX_BF16);
    int64_t kept = 0, differ = 0;
    for (int64_t i = 0; i < T * B * C; i++)
        kept += y[i] != 0, differ += narrow[i] != (y[i] != 0 ? gx_to_bf16(1 / (1 - 0.3f)) : 0);
    CHECK(kept > 0 && kept < T * B * C && differ == 0, "%ld kept, %ld differ in bf16", (long)kept, (long)differ);
    CHECK(!memcmp(sliced, y + FIRST * C, ROWS_HERE * C * sizeof(float)), "a slice drops others than the whole");
    for (int r = 0; r < ROWS_HERE; r++)
        CHECK(!memcmp(of_list + r * C, y + rows[r] * C, C * sizeof(float)), "row %d of a list drops others", rows[r]);
    for (int t = 0; t < T; t++)
        CHECK(!memcmp(of_column + t * C, y + (t * B + 2) * C, C * sizeof(float)), "a sample alone drops others");
    for (int64_t begin = 0; begin < C; begin += 13) { // some columns: within one draw of four, and across them
        GxDropout part = whole;
        const int64_t n = gx_min(13 + begin % 3, C - begin);
        int64_t others = 0;
        part.first_column = begin, part.columns = C;
        float *of_part = (float *)dropped_ones(T * B, n, &part, &step, 2, GX_F32);
        for (int64_t i = 0; i < T * B * n; i++) others += of_part[i] != y[i / n * C + begin + i % n];
        CHECK(others == 0, "columns from %ld on drop %ld others than the whole", (long)begin, (long)others);
        free(of_part);
    }
    free(y), free(sliced), free(of_list), free(of_column), free(narrow);
}

// ---- contracts: what is refused, what is recorded ------------------------------------------------------------------

enum { ROWS = 6, COLS = 8, OUT = 9, BATCH = 2, HEADS = 4, KV = 2, POOL = 4 << 10 };
typedef struct {
    float x[12][POOL];
    int32_t ids[POOL];
    int32_t rows[ROWS];      // all different
    int32_t parts[BATCH][3]; // of columns of a batch
    int32_t pages[BATCH];    // all different
    double total;
} Pool; // every argument that an operation may want

// What an operation promises of a call with R rows and C columns: its FLOPs, bytes and dimensions. typed, sized: it
// refuses dtypes, sizes.
typedef struct {
    const char *name;
    int typed, sized;
    double flops;
    int64_t bytes;
    GxDims dims;
} Promise;
static Promise promise(const char *name, int typed, int sized, double flops, int64_t bytes, GxDims dims)
{
    Promise p = {name, typed, sized, flops, bytes, dims};
    return p;
}

static GxAttention call_attention(int64_t T, int64_t h, GxDtype type)
{
    GxAttention a = GX_ZERO;
    a.B = BATCH, a.H = HEADS, a.K = KV, a.head_dim = h;
    a.q_runs = a.k_runs = gx_runs_one(T, 0);
    a.q_stride = a.o_stride = HEADS * h, a.kv_stride = KV * h;
    a.causal = 1, a.dtype = type;
    return a;
}

enum { CALLS = 63 };
static Promise call(GxContext *g, int which, Pool *p, int64_t R, int64_t C, GxDtype type)
{
    float(*x)[POOL] = p->x;
    const int64_t n = R * C, mul = n * OUT, mats = n + C * OUT + R * OUT, rotated = BATCH * HEADS * n;
    const int64_t pairs = BATCH * HEADS * (R * (R + 1) / 2), heads = 4 * R * BATCH * (2 * (HEADS + KV) * C + HEADS);
    const GxDims count = gx_dims(n, 0, 0, 0), rows = gx_dims(R, C, 0, 0);
    const GxVocabPart part = {R, C, 1, C + 1, 0};
    const int32_t *ids = p->ids;
    const float eps = NORM_EPS;
    const GxLinearShape linear = gx_linear_shape(R, C, OUT, type);
    const GxEmbedding table = gx_embedding_shape(R, C, OUT, type);
    const GxDropout dropout = {.p = 0.5f, .T = 2 * ROWS, .B = BATCH};
    const GxResidual residual = {R, C, x[9], x[10], x[11], eps, dropout, type};
    const GxQuantized quantized = {GX_NF4, ROWS, COLS, 0, COLS, (uint8_t *)x[1], x[2], NULL, NULL}; // one block
    const GxUpdate update = update_of(x[0], x[1], x[2], x[3], n);
    const GxHeadNorm head_norm = {R, HEADS, C, HEADS * C, HEADS * C, eps, type, 0};
    const GxColumns columns = {R, C, 0, type};
    const int64_t batch = R * BATCH * C;
    GxRuns t = gx_runs_one(R, 0);
    GxAttention a = call_attention(R, C, type);
    if (which == 0) return gx_zero(g, x[0], n * 4), promise("zero", 0, 0, 0, 4 * n, gx_dims(4 * n, 0, 0, 0));
    if (which == 1) return gx_copy(g, x[0], x[1], n * 4), promise("copy", 0, 0, 0, 8 * n, gx_dims(4 * n, 0, 0, 0));
    if (which == 2) return gx_add(g, x[0], x[1], x[2], n, type), promise("add", 1, 1, n, 12 * n, count);
    if (which == 3) return gx_sum(g, &p->total, x[0], n, 0), promise("sum", 0, 1, n, 4 * n, count);
    if (which == 4) return sum_squares(g, &p->total, x[0], n, 0), promise("sum_squares", 0, 1, 2 * n, 4 * n, count);
    if (which == 5)
        return gx_embedding_forward(g, x[0], x[1], ids, &table),
               promise("embedding_forward", 1, 1, 0, 8 * n + 4 * R, gx_dims(R, C, OUT, 0));
    if (which == 6)
        return gx_embedding_backward(g, x[0], x[1], ids, &table),
               promise("embedding_backward", 1, 1, n, 12 * n + 4 * OUT * C, gx_dims(R, C, OUT, 0));
    if (which == 7)
        return gx_rms_norm_forward(g, x[0], x[1], x[2], x[3], 0, R, C, eps, type),
               promise("rms_norm_forward", 1, 1, 4 * n, 8 * n, rows);
    if (which == 8)
        return gx_add_rms_norm_forward(g, x[0], x[1], x[2], x[3], x[4], x[5], 0, R, C, eps, type),
               promise("add_rms_norm_forward", 1, 1, 5 * n, 16 * n, rows);
    if (which == 9)
        return gx_rms_norm_backward(g, x[0], x[1], x[2], NULL, x[3], x[4], x[5], 0, R, C, 0, type),
               promise("rms_norm_backward", 1, 1, 10 * n, 16 * n, rows);
    if (which == 10)
        return gx_linear_forward(g, x[0], x[1], x[2], x[3], &linear),
               promise("linear_forward", 1, 1, 2 * mul, 4 * mats, gx_dims(R, C, OUT, 0));
    if (which == 11)
        return gx_linear_backward_input(g, x[0], x[1], x[2], &linear),
               promise("linear_backward_input", 1, 1, 2 * mul, 4 * mats, gx_dims(R, C, OUT, 0));
    if (which == 12)
        return gx_linear_backward_weight(g, x[0], x[1], x[2], x[3], &linear),
               promise("linear_backward_weight", 1, 1, 2 * mul, 4 * mats, gx_dims(R, C, OUT, 0));
    if (which == 13)
        return gx_rope_forward(g, x[0], x[1], x[2], &t, BATCH, HEADS, C, HEADS * C, type),
               promise("rope_forward", 1, 1, 3 * rotated, 8 * rotated, gx_dims(R * BATCH, HEADS, C, 0));
    if (which == 14)
        return gx_rope_backward(g, x[0], x[1], x[2], &t, BATCH, HEADS, C, HEADS * C, type),
               promise("rope_backward", 1, 1, 3 * rotated, 8 * rotated, gx_dims(R * BATCH, HEADS, C, 0));
    if (which == 15)
        return gx_attention_forward(g, x[0], x[1], x[2], x[3], x[4], &a),
               promise("attention_forward", 1, 1, 4 * C * pairs, heads, gx_dims(R, R, BATCH * HEADS, C));
    if (which == 16)
        return gx_attention_backward(g, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[5], &a),
               promise("attention_backward", 1, 1, 10 * C * pairs, 2 * heads, gx_dims(R, R, BATCH * HEADS, C));
    if (which == 17)
        return gx_swiglu_forward(g, x[0], x[1], R, C, type), promise("swiglu_forward", 1, 1, 5 * n, 12 * n, rows);
    if (which == 18)
        return gx_swiglu_backward(g, x[0], x[1], x[2], x[3], R, C, type),
               promise("swiglu_backward", 1, 1, 11 * n, 24 * n, rows);
    if (which == 19)
        return gx_cross_entropy(g, x[0], x[1], x[2], ids, R, C, NULL, NULL, 0, type),
               promise("cross_entropy", 1, 1, 6 * n, 8 * n, rows);
    if (which == 20)
        return gx_cross_entropy_maximum(g, x[0], x[1], R, C, type),
               promise("cross_entropy_maximum", 1, 1, n, 4 * n, rows);
    if (which == 21)
        return gx_cross_entropy_sums(g, x[0], x[1], x[2], x[3], ids, &part, type),
               promise("cross_entropy_sums", 1, 1, 3 * n, 8 * n, rows);
    if (which == 22)
        return gx_cross_entropy_finish(g, x[0], x[1], x[2], x[3], ids, &part, NULL, NULL, type),
               promise("cross_entropy_finish", 1, 1, 2 * n, 8 * n, rows);
    if (which == 23) return gx_clip(g, 1), promise("clip", 0, 0, 0, 0, gx_dims(0, 0, 0, 0));
    if (which == 24) return gx_adamw(g, &update, &ADAMW), promise("adamw", 0, 1, 14 * n, 28 * n, count);
    if (which == 25) return gx_sgd(g, &update, &SGD), promise("sgd", 0, 1, 6 * n, 20 * n, count);
    if (which == 26)
        return gx_pick_rows(g, x[0], x[1], p->rows, 0, R, C, type), promise("pick_rows", 1, 1, 0, 8 * n + 4 * R, rows);
    if (which == 27)
        return gx_add_rows(g, x[0], x[1], p->rows, 0, R, C, type), promise("add_rows", 1, 1, n, 12 * n + 4 * R, rows);
    if (which == 28)
        return gx_mean_rows_forward(g, x[0], x[1], p->parts[0], BATCH, R, BATCH, 0, C, type),
               promise("mean_rows_forward", 1, 1, batch, 4 * (batch + BATCH * C) + 12 * BATCH,
                       gx_dims(BATCH, R, BATCH, C));
    if (which == 29)
        return gx_mean_rows_backward(g, x[0], x[1], p->parts[0], BATCH, R, BATCH, 0, C, type),
               promise("mean_rows_backward", 1, 1, 2 * batch, 4 * (2 * batch + BATCH * C) + 12 * BATCH,
                       gx_dims(BATCH, R, BATCH, C));
    if (which == 30)
        return gx_normalize_rows_forward(g, x[0], x[1], x[2], R, C, eps, type),
               promise("normalize_rows_forward", 1, 1, 3 * n, 8 * n, rows);
    if (which == 31)
        return gx_normalize_rows_backward(g, x[0], x[1], x[2], x[3], R, C, type),
               promise("normalize_rows_backward", 1, 1, 5 * n, 12 * n, rows);
    if (which == 32)
        return gx_layer_norm_forward(g, x[0], x[1], x[2], x[3], x[4], x[5], R, C, eps, type),
               promise("layer_norm_forward", 1, 1, 7 * n, 8 * n, rows);
    if (which == 33)
        return gx_layer_norm_backward(g, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], R, C, 0, type),
               promise("layer_norm_backward", 1, 1, 14 * n, 12 * n, rows);
    if (which == 34) return gx_dropout(g, x[0], x[1], R, C, &dropout, type), promise("dropout", 1, 1, n, 8 * n, rows);
    if (which == 35)
        return gx_residual_forward(g, x[0], x[1], x[2], x[3], x[4], x[5], &residual),
               promise("residual_forward", 1, 1, 10 * n, 16 * n, rows);
    if (which == 36)
        return gx_residual_backward(g, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], &residual, 0),
               promise("residual_backward", 1, 1, 16 * n, 16 * n, rows);
    if (which == 37)
        return gx_gelu_forward(g, x[0], x[1], x[2], R, C, GX_GELU_ERF, type),
               promise("gelu_forward", 1, 1, 8 * n, 8 * n, rows);
    if (which == 38)
        return gx_gelu_backward(g, x[0], x[1], x[2], x[3], x[4], R, C, GX_GELU_TANH, type),
               promise("gelu_backward", 1, 1, 14 * n, 16 * n, rows);
    if (which == 39) return gx_tanh_forward(g, x[0], x[1], n, type), promise("tanh_forward", 1, 1, 8 * n, 8 * n, count);
    if (which == 40)
        return gx_tanh_backward(g, x[0], x[1], x[2], n, type), promise("tanh_backward", 1, 1, 3 * n, 12 * n, count);
    if (which == 41)
        return gx_squared_error(g, x[0], x[1], x[2], x[3], R, C, NULL, type),
               promise("squared_error", 1, 1, 5 * n, 12 * n, rows);
    if (which == 42)
        return gx_binary_cross_entropy(g, x[0], x[1], x[2], x[3], R, C, NULL, type),
               promise("binary_cross_entropy", 1, 1, 9 * n, 12 * n, rows);
    if (which == 43) return gx_scale(g, x[0], x[1], n, 3, type), promise("scale", 1, 1, n, 8 * n, count);
    if (which == 44)
        return gx_head_norm_forward(g, x[0], x[1], x[2], x[3], &head_norm),
               promise("head_norm_forward", 1, 1, 4 * HEADS * n, 12 * HEADS * n, gx_dims(R, HEADS, C, 0));
    if (which == 45)
        return gx_head_norm_backward(g, x[0], x[1], x[2], x[3], x[4], &head_norm, 0),
               promise("head_norm_backward", 1, 1, 10 * HEADS * n, 12 * HEADS * n, gx_dims(R, HEADS, C, 0));
    if (which == 46)
        return gx_dequantize(g, x[0], type, &quantized, 0, R, 0, C),
               promise("dequantize", 1, 1, n, 4 * n + (n + 1) / 2 + 4, rows);
    if (which == 47)
        return gx_put_pages(g, x[0], x[1], p->pages, R, BATCH, 0, C, type),
               promise("put_pages", 1, 1, 0, 8 * batch + 4 * R * BATCH, gx_dims(R, BATCH, C, 0));
    if (which == 48)
        return gx_gate_forward(g, x[0], x[1], x[2], x[3], 1, n, type),
               promise("gate_forward", 1, 1, 3 * n, 12 * n, count);
    if (which == 49)
        return gx_gate_backward(g, x[0], x[1], x[2], x[3], x[4], x[5], x[6], 1, n, 0, type),
               promise("gate_backward", 1, 1, 5 * n, 20 * n, count);
    if (which == 50)
        return gx_rope_restart_forward(g, x[0], x[1], x[2], &t, p->ids, BATCH, HEADS, C, HEADS * C, type),
               promise("rope_restart_forward", 1, 1, 3 * rotated, 8 * rotated + 8 * R * BATCH,
                       gx_dims(R * BATCH, HEADS, C, 0));
    if (which == 51)
        return gx_rope_restart_backward(g, x[0], x[1], x[2], &t, p->ids, BATCH, HEADS, C, HEADS * C, type),
               promise("rope_restart_backward", 1, 1, 3 * rotated, 8 * rotated + 8 * R * BATCH,
                       gx_dims(R * BATCH, HEADS, C, 0));
    if (which == 52)
        return gx_scale_columns_forward(g, x[0], x[1], x[2], &columns),
               promise("scale_columns_forward", 1, 1, n, 8 * n, rows);
    if (which == 53)
        return gx_scale_columns_backward(g, x[0], x[1], x[2], x[3], x[4], x[5], &columns, 0),
               promise("scale_columns_backward", 1, 1, 5 * n, 12 * n, rows);
    if (which == 54) return square_blocks(g, &p->total, x[0], n), promise("square_blocks", 0, 1, 2 * n, 4 * n, count);
    if (which == 55)
        return gx_add_blocks(g, &p->total, (const double *)x[0], n, 0), promise("add_blocks", 0, 1, n, 8 * n, count);
    if (which == 56)
        return gx_attention_merge(g, x[0], x[1], x[2], x[3], R, HEADS, C, type),
               promise("attention_merge", 1, 1, 3 * HEADS * n, 12 * HEADS * (n + R), gx_dims(R, HEADS, C, 0));
    if (which == 57)
        return gx_geglu_forward(g, x[0], x[1], R, C, GX_GELU_TANH, type),
               promise("geglu_forward", 1, 1, 9 * n, 12 * n, rows);
    if (which == 58)
        return gx_geglu_backward(g, x[0], x[1], x[2], x[3], R, C, GX_GELU_ERF, type),
               promise("geglu_backward", 1, 1, 17 * n, 24 * n, rows);
    if (which == 59) return gx_relu_forward(g, x[0], x[1], n, type), promise("relu_forward", 1, 1, n, 8 * n, count);
    if (which == 60)
        return gx_relu_backward(g, x[0], x[1], x[2], x[3], n, type), promise("relu_backward", 1, 1, n, 16 * n, count);
    if (which == 61)
        return gx_text_positions(g, (int32_t *)(void *)x[0], &t, p->ids, C),
               promise("text_positions", 0, 1, 0, 12 * n, gx_dims(n, C, 0, 0));
    return gx_convert(g, x[0], GX_BF16, x[1], type, n), promise("convert", 1, 1, 0, 6 * n, count);
}

static Pool *pool_open(void)
{
    Pool *p = (Pool *)take(1, sizeof *p);
    for (int i = 0; i < COUNT(p->x); i++)
        for (int j = 0; j < POOL; j++) p->x[i][j] = (float)(1 + (i + j) % 5);
    for (int i = 0; i < ROWS; i++) p->rows[i] = i;
    for (int i = 0; i < BATCH; i++)
        p->parts[i][0] = i, p->parts[i][1] = i, p->parts[i][2] = 3, p->pages[i] = BATCH - 1 - i;
    return p;
}

TEST(every_operation_of_a_device_is_held_to_what_it_promises)
{
    const size_t functions = (offsetof(GxDevice, sgd) - offsetof(GxDevice, zero)) / sizeof(void (*)(void)) + 1;
    CHECK(CALLS == functions + 3,
          "%d calls; a device has %ld functions (rope is called in four ways, attention_scratch in none, and "
          "sum_squares is two)",
          CALLS, (long)functions);
}

TEST(recorder_counts_what_the_docstrings_say_and_none_the_same)
{
    for (int i = 0; i < CALLS; i++) {
        Pool *p = pool_open(), *before = pool_open();
        Bench plan, real;
        GxStep zero = GX_ZERO;
        bench_open(&plan, 2, -1);
        call(&plan.g, i, p, ROWS, COLS, GX_F32);
        int touched = memcmp(p, before, sizeof *p) || memcmp(&plan.step, &zero, sizeof zero);
        bench_open(&real, 2, plan.arena.peak);
        Promise says = call(&real.g, i, p, ROWS, COLS, GX_F32);
        check_bench(says.name, &real, &plan);
        CHECK(!touched, "%s: the device none wrote something", says.name);
        CHECK(memcmp(p, before, sizeof *p) || memcmp(&real.step, &zero, sizeof zero), "%s did nothing", says.name);
        const GxEvent *e = real.recorder.event;
        CHECK(real.recorder.n == 1 && !strcmp(e->name, says.name) && e->flops == says.flops && e->bytes == says.bytes,
              "%s: %ld events, %ld FLOPs of %ld, %ld bytes of %ld", says.name, (long)real.recorder.n,
              (long)real.recorder.flops, (long)says.flops, (long)real.recorder.bytes, (long)says.bytes);
        CHECK(!memcmp(&e->dims, &says.dims, sizeof says.dims),
              "%s: dimensions %ld, %ld, %ld, %ld of %ld, %ld, %ld, %ld", says.name, (long)e->dims.n[0],
              (long)e->dims.n[1], (long)e->dims.n[2], (long)e->dims.n[3], (long)says.dims.n[0], (long)says.dims.n[1],
              (long)says.dims.n[2], (long)says.dims.n[3]);
        bench_close(&plan), bench_close(&real);
        free(p), free(before);
    }
}

TEST(attention_pairs_are_those_that_see_each_other)
{
    for (int s = 0; s < COUNT(attention_shapes); s++) {
        Case c;
        case_open(&c, &ops[4], &attention_shapes[s]);
        c.a.documents = NULL; // nor does the host know them
        int64_t pairs = 0;
        for (int64_t i = 0; i < oracle_rows(&c.a.q_runs); i++)
            for (int64_t j = 0; j < oracle_rows(&c.a.k_runs); j++) pairs += oracle_sees(&c.a, i, j, 0);
        CHECK(gx_attention_pairs(&c.a) == pairs, "shape %d: %ld pairs, not %ld", s, (long)gx_attention_pairs(&c.a),
              (long)pairs);
        case_close(&c);
    }
}

// A call that must be refused with `code` and a message that names the operation: nothing is written, recorded or kept,
// then or later.
static void check_refused(int which, int64_t R, int64_t C, GxDtype type, GxStatus code)
{
    Pool *p = pool_open(), *before = pool_open();
    Bench b;
    bench_open(&b, 2, 1 << 20);
    const char *name = call(&b.g, which, p, R, C, type).name;
    CHECK(b.g.error.code == (int)code && strstr(b.g.error.message, name), "%s, %ld x %ld, %s: code %d, \"%s\"", name,
          (long)R, (long)C, gx_dtype_name(type), b.g.error.code, b.g.error.message);
    for (int i = 0; i < CALLS; i++) call(&b.g, i, p, ROWS, COLS, GX_F32); // sound, but the context has failed
    CHECK(!memcmp(p, before, sizeof *p) && !b.recorder.n && !b.arena.peak && !b.step.applied,
          "%s: refused, but something was done", name);
    bench_close(&b);
    free(p), free(before);
}

TEST(empty_sizes_and_unsupported_types_are_refused_and_nothing_happens_after)
{
    static const int64_t size[][2] = {{0, COLS}, {-1, COLS}, {ROWS, 0}, {ROWS, -3}};
    for (int i = 0; i < CALLS; i++) {
        Bench b;
        Pool *p = pool_open();
        bench_open(&b, 1, -1);
        Promise says = call(&b.g, i, p, ROWS, COLS, GX_F32);
        for (int s = 0; says.sized && s < COUNT(size); s++)
            check_refused(i, size[s][0], size[s][1], GX_F32, GX_ERR_ARGUMENT);
        for (int d = GX_BF16 + 1; says.typed && d < GX_DTYPES; d++)
            check_refused(i, ROWS, COLS, (GxDtype)d, GX_ERR_UNSUPPORTED);
        bench_close(&b);
        free(p);
    }
}

static void check_message(Bench *b, const char *word)
{
    CHECK(b->g.error.code == GX_ERR_ARGUMENT && strstr(b->g.error.message, word) && !b->recorder.n,
          "\"%s\" does not speak of %s", b->g.error.message, word);
    gx_error_clear(&b->g.error);
}

TEST(linear_refuses_strides_shorter_than_rows_and_says_both_numbers)
{
    static const struct {
        int64_t x, y;
        const char *message;
    } wrong[] = {{COLS - 1, 0, "rows of 8 elements have a stride of 7 (x_stride); it must be at least 8"},
                 {0, OUT - 1, "rows of 9 elements have a stride of 8 (y_stride); it must be at least 9"},
                 {-1, 0, "rows of 8 elements have a stride of -1"},
                 {COLS, -OUT, "rows of 9 elements have a stride of -9"}};
    Pool *p = pool_open(), *before = pool_open();
    Bench b;
    bench_open(&b, 1, 1 << 20);
    for (int i = 0; i < COUNT(wrong); i++) {
        GxLinearShape s = gx_linear_shape(ROWS, COLS, OUT, GX_F32);
        s.x_stride = wrong[i].x, s.y_stride = wrong[i].y;
        gx_linear_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], &s);
        check_message(&b, wrong[i].message);
        gx_linear_backward_input(&b.g, p->x[0], p->x[1], p->x[2], &s);
        check_message(&b, wrong[i].message);
        gx_linear_backward_weight(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], &s);
        check_message(&b, wrong[i].message);
    }
    CHECK(!memcmp(p, before, sizeof *p) && !b.arena.peak, "refused, but something was done");
    bench_close(&b);
    free(p), free(before);
}

TEST(head_norm_refuses_rows_shorter_than_their_heads_and_heads_without_elements)
{
    static const GxHeadNorm wrong[] = {{ROWS, HEADS, COLS, HEADS * COLS - 1, HEADS * COLS, 1, GX_F32, 0},
                                       {ROWS, HEADS, COLS, HEADS * COLS, HEADS * COLS - 1, 1, GX_F32, 0},
                                       {ROWS, HEADS, 0, HEADS * COLS, HEADS * COLS, 1, GX_F32, 0},
                                       {ROWS, -HEADS, -COLS, HEADS * COLS, HEADS * COLS, 1, GX_F32, 0}};
    Pool *p = pool_open(), *before = pool_open();
    Bench b;
    bench_open(&b, 1, 1 << 20);
    for (int i = 0; i < COUNT(wrong); i++) {
        gx_head_norm_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], &wrong[i]);
        check_message(&b, i < 3 ? "no row is shorter than its heads" : "must be at least 1");
        gx_head_norm_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], &wrong[i], 0);
        check_message(&b, i < 3 ? "no row is shorter than its heads" : "must be at least 1");
    }
    CHECK(!memcmp(p, before, sizeof *p) && !b.arena.peak, "refused, but something was done");
    bench_close(&b);
    free(p), free(before);
}

TEST(scaled_columns_refuse_rows_that_lie_in_each_other)
{
    static const GxColumns wrong = {ROWS, COLS, COLS - 1, GX_F32};
    Pool *p = pool_open(), *before = pool_open();
    Bench b;
    bench_open(&b, 1, 1 << 20);
    gx_scale_columns_forward(&b.g, p->x[0], p->x[1], p->x[2], &wrong);
    check_message(&b, "it must be at least");
    gx_scale_columns_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], p->x[5], &wrong, 0);
    check_message(&b, "it must be at least");
    CHECK(!memcmp(p, before, sizeof *p) && !b.arena.peak, "refused, but something was done");
    bench_close(&b);
    free(p), free(before);
}

TEST(rope_and_attention_refuse_runs_heads_and_strides_that_do_not_fit)
{
    Pool *p = pool_open();
    // clang-format off
    struct { GxRuns runs; GxRun beyond; } wrong[] = { // beyond: what a fifth run would be, for who believes n
        {RUN1(0, 0), GX_ZERO},
        {RUN1(3, -1), GX_ZERO},
        {{0, {{0, 3, 0}}}, GX_ZERO},
        {{1, {{1, 3, 0}}}, GX_ZERO},
        {{2, {{0, 2, 0}, {3, 2, 3}}}, GX_ZERO},
        {{5, {{0, 1, 0}, {1, 1, 1}, {2, 1, 2}, {3, 1, 3}}}, {4, -100, 0}},
    };
    // clang-format on
    Bench b;
    bench_open(&b, 1, 1 << 20);
    for (int i = 0; i < COUNT(wrong); i++)
        for (int keys = 0; keys < 2; keys++) {
            GxAttention a = call_attention(ROWS, COLS, GX_F32);
            *(keys ? &a.k_runs : &a.q_runs) = wrong[i].runs;
            gx_attention_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], &a);
            check_message(&b, "runs");
        }
    for (int i = 0; i < COUNT(wrong); i++) {
        gx_rope_forward(&b.g, p->x[0], p->x[1], p->x[2], &wrong[i].runs, 1, 1, 2, 2, GX_F32);
        check_message(&b, "runs");
    }
    GxRuns sound = gx_runs_one(ROWS, 0);
    gx_rope_forward(&b.g, p->x[0], p->x[1], p->x[2], &sound, 1, 1, 3, 3, GX_F32);
    check_message(&b, "even");
    for (int i = 0; i < 6; i++) {
        GxAttention a = call_attention(ROWS, COLS, GX_F32);
        if (i == 0) a.K = 3;
        if (i == 1) a.K = 0;
        if (i == 2) a.H = 0;
        if (i == 3) a.q_stride--;
        if (i == 4) a.kv_stride--;
        if (i == 5) a.o_stride--;
        gx_attention_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], p->x[5], p->x[6], p->x[7], p->x[5],
                              &a);
        check_message(&b, i < 3 ? "heads" : "strides");
    }
    static const struct {
        int64_t H, K, group, q_first;
        const char *message;
    } heads[] = {
        {4, 3, 0, 0, "4 query heads cannot share 3"},
        {0, 1, 2, 0, "0 query heads cannot share 1"}, // -1 / 2 is 0 in C
        {1, 2, 2, 1, "1 query heads cannot share 2"},
        {1, 1, -1, 0, "begin at number 0 of a group of -1"},
        {4, 2, 0, 1, "begin at number 1 of a group of 0"}, // it may only begin inside a group that is told
        {4, 2, 2, -1, "begin at number -1 of a group of 2"},
        {2, 2, 2, 2, "begin at number 2 of a group of 2"},
        {4, 2, 2, 1, "number 1 of a group of 2 on use 3 key and value heads; K is 2"},
        {4, 2, 4, 0, "number 0 of a group of 4 on use 1 key and value heads; K is 2"},
        {4, 2, 1, 0, "number 0 of a group of 1 on use 4 key and value heads; K is 2"},
    };
    for (int i = 0; i < 2 * COUNT(heads); i++) {
        GxAttention a = call_attention(ROWS, 1, GX_F32);
        a.H = heads[i / 2].H, a.K = heads[i / 2].K, a.group = heads[i / 2].group, a.q_first = heads[i / 2].q_first;
        if (i % 2) gx_attention_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], &a);
        else
            gx_attention_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], p->x[5], p->x[6], p->x[7], p->x[5],
                                  &a);
        check_message(&b, heads[i / 2].message);
    }
    bench_close(&b);
    free(p);
}

TEST(attention_over_pages_is_from_position_0_and_forward_only)
{
    Pool *p = pool_open();
    GxAttention a = call_attention(ROWS, COLS, GX_F32);
    Bench b;
    bench_open(&b, 1, 1 << 20);
    a.pages = p->pages;
    gx_attention_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], p->x[5], p->x[6], p->x[7], p->x[5], &a);
    check_message(&b, "in pages have no gradients");
    a.k_runs = gx_runs_one(ROWS, 1);
    gx_attention_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], &a);
    check_message(&b, "1 runs of keys in pages, the first from position 1 on");
    bench_close(&b);
    free(p);
}

TEST(attention_refuses_a_window_below_one_key_and_one_of_attention_that_is_not_causal)
{
    Pool *p = pool_open();
    Bench b;
    bench_open(&b, 1, 1 << 20);
    for (int i = 0; i < 4; i++) {
        GxAttention a = call_attention(ROWS, COLS, GX_F32);
        a.sliding_window = i / 2 ? -1 : 2, a.causal = i / 2;
        if (i % 2) gx_attention_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], &a);
        else
            gx_attention_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], p->x[5], p->x[6], p->x[7], p->x[5],
                                  &a);
        check_message(&b, i / 2 ? "sliding_window is -1, and attention is causal"
                                : "sliding_window is 2, and attention is not causal");
    }
    bench_close(&b);
    free(p);
}

TEST(attention_refuses_a_bias_that_it_cannot_add)
{
    static const struct {
        int64_t reach;
        float scale;
        int is, crosses;
        const char *message;
    } wrong[] = {
        {0, 1, 1, 0, "a bias by distance with reach 0 and scale 1; it needs a reach of 1 or more"},
        {-3, 1, 1, 0, "a bias by distance with reach -3"},
        {3, -1, 1, 0, "with reach 3 and scale -1; it needs"},
        {3, NAN, 1, 0, "with reach 3 and scale nan; it needs"},
        {3, 1, 0, 0, "whose gradient alone is given"},
        {3, 1, 1, 1, "of keys of other texts than the queries'"},
    };
    Pool *p = pool_open(), *before = pool_open();
    Bench b;
    bench_open(&b, 1, 1 << 20);
    for (int i = 0; i < 2 * COUNT(wrong); i++) {
        GxAttention a = call_attention(ROWS, COLS, GX_F32);
        a.reach = wrong[i / 2].reach, a.scale = wrong[i / 2].scale, a.dbias = p->x[9];
        if (wrong[i / 2].is) a.bias = p->x[8];
        if (wrong[i / 2].crosses) a.documents = a.key_documents = p->ids, a.causal = 0;
        if (i % 2) gx_attention_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], &a);
        else
            gx_attention_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], p->x[5], p->x[6], p->x[7], p->x[5],
                                  &a);
        check_message(&b, wrong[i / 2].message);
    }
    CHECK(!memcmp(p, before, sizeof *p) && !b.arena.peak, "refused, but something was done");
    bench_close(&b);
    free(p), free(before);
}

TEST(attention_refuses_dropout_that_it_cannot_draw)
{
    static const struct {
        float dropout;
        int64_t T, heads, head_first, first_sample;
        const char *message;
    } wrong[] = {
        {1, ROWS, HEADS, 0, 0, "dropout is 1; it must be at least 0 and below 1"},
        {-0.5f, ROWS, HEADS, 0, 0, "dropout is -0.5"},
        {NAN, ROWS, HEADS, 0, 0, "dropout is nan"},
        {0.1f, 0, HEADS, 0, 0, "dropout of a sequence of 0 positions (T)"},
        {0.1f, ROWS - 1, HEADS, 0, 0, "positions (T), but rows have positions up to"},
        {0.1f, ROWS, HEADS, 1, 0, "dropout of the query heads 1 to 4 (head_first, H) of a model that has 4 (heads)"},
        {0.1f, ROWS, HEADS - 1, 0, 0, "of a model that has 3 (heads)"},
        {0.1f, ROWS, HEADS, -1, 0, "dropout of the query heads -1 to 2"},
        {0.1f, ROWS, HEADS, 0, -1, "dropout of sample -1 (first_sample)"},
        {0.1f, ROWS, HEADS, 0, 0, "the context has no step"},
        {0, -1, -1, -1, -1, NULL}, // nothing is read
    };
    Pool *p = pool_open();
    for (int i = 0; i < 2 * COUNT(wrong); i++) {
        Bench b;
        const char *message = wrong[i / 2].message;
        bench_open(&b, 1, 1 << 20);
        GxAttention a = call_attention(ROWS, COLS, GX_F32);
        a.dropout = wrong[i / 2].dropout, a.T = wrong[i / 2].T, a.heads = wrong[i / 2].heads;
        a.head_first = wrong[i / 2].head_first, a.first_sample = wrong[i / 2].first_sample;
        if (!message || strstr(message, "no step")) b.g.step = NULL;
        if (i % 2) gx_attention_forward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], &a);
        else
            gx_attention_backward(&b.g, p->x[0], p->x[1], p->x[2], p->x[3], p->x[4], p->x[5], p->x[6], p->x[7], p->x[5],
                                  &a);
        if (message) check_message(&b, message);
        CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
        bench_close(&b);
    }
    free(p);
}

TEST(attention_of_documents_counts_the_flops_of_whole_columns_and_the_bytes_of_the_array)
{
    GxRecorder *of[2];
    Bench b[2];
    for (int i = 0; i < 2; i++) {
        static const int32_t documents[2 * ROWS * BATCH];
        GxAttention a = call_attention(ROWS, COLS, GX_F32);
        a.documents = i ? documents : NULL;
        bench_open(&b[i], 1, -1);
        gx_attention_forward(&b[i].g, NULL, NULL, NULL, NULL, NULL, &a);
        gx_attention_backward(&b[i].g, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &a);
        of[i] = &b[i].recorder;
    }
    CHECK(of[0]->flops == of[1]->flops, "%g FLOPs, with documents %g", of[0]->flops, of[1]->flops);
    CHECK(of[1]->bytes - of[0]->bytes == 3 * 8 * ROWS * BATCH, "%ld bytes more, not once and twice %d",
          (long)(of[1]->bytes - of[0]->bytes), 8 * ROWS * BATCH);
    for (int i = 0; i < 2; i++) bench_close(&b[i]);
}

TEST(attention_counts_the_bytes_of_its_bias)
{
    enum { REACH = 4 };
    static const float bias[(2 * REACH + 1) * HEADS];
    static float dbias[(2 * REACH + 1) * HEADS];
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        Bench b;
        GxAttention a = call_attention(ROWS, COLS, GX_F32);
        if (i) a.bias = bias, a.dbias = dbias, a.reach = REACH;
        bench_open(&b, 1, -1);
        gx_attention_forward(&b.g, NULL, NULL, NULL, NULL, NULL, &a);
        gx_attention_backward(&b.g, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, &a);
        bytes[i] = b.recorder.bytes;
        bench_close(&b);
    }
    CHECK(bytes[1] - bytes[0] == 3 * (int64_t)sizeof bias, "%ld bytes more, not once and twice %ld",
          (long)(bytes[1] - bytes[0]), (long)sizeof bias);
}

// Nobody wants dbias of a model whose bias is frozen; all else stays the same to the bit.
static void check_without_dbias(Case *c, const char *what)
{
    if (!c->a.bias) return;
    int64_t n;
    float *with = library_run(c, what, 2, 0, 0, &n);
    c->a.dbias = NULL;
    float *without = library_run(c, what, 2, 0, 0, &n);
    const size_t others = (size_t)(n - c->in[3].n); // dbias comes last in the results
    CHECK(!memcmp(with, without, others * sizeof(float)), "%s: other bits without dbias", what);
    CHECK(count_nan(without + others, c->in[3].n) == c->in[3].n, "%s: dbias was written", what);
    free(with), free(without);
}
TEST(attention_computes_the_same_without_the_gradient_of_its_bias) { for_each_case(check_without_dbias, "attention"); }

TEST(cross_entropy_in_parts_refuses_columns_outside_the_vocabulary_and_gradients_without_exps)
{
    Pool *p = pool_open();
    float(*x)[POOL] = p->x;
    Bench b;
    bench_open(&b, 1, 0);
    GxVocabPart part = {ROWS, COLS, -1, 20, 0};
    gx_cross_entropy_sums(&b.g, x[0], x[1], x[2], x[3], p->ids, &part, GX_F32);
    check_message(&b, "cross_entropy_sums: columns -1 to 6 are not a part of a vocabulary of 20");
    gx_cross_entropy_finish(&b.g, x[0], x[1], x[2], x[3], p->ids, &part, NULL, NULL, GX_F32);
    check_message(&b, "cross_entropy_finish: columns -1 to 6 are not a part of a vocabulary of 20");
    part.v_begin = 13;
    gx_cross_entropy_sums(&b.g, x[0], x[1], x[2], x[3], p->ids, &part, GX_F32);
    check_message(&b, "columns 13 to 20 are not a part of a vocabulary of 20");
    part.v_begin = 12, part.smoothing = 1.5f;
    gx_cross_entropy_sums(&b.g, x[0], x[1], x[2], x[3], p->ids, &part, GX_F32);
    check_message(&b, "labels smoothed by 1.5; expected a share of 0 to 1");
    gx_cross_entropy(&b.g, x[0], x[1], x[2], p->ids, ROWS, COLS, NULL, NULL, NAN, GX_F32);
    check_message(&b, "labels smoothed by nan; expected a share of 0 to 1");
    part.smoothing = 0;
    gx_cross_entropy_finish(&b.g, x[0], x[1], NULL, x[3], p->ids, &part, NULL, NULL, GX_F32);
    check_message(&b, "dlogits without exps");
    gx_cross_entropy_sums(&b.g, x[0], NULL, x[2], x[3], p->ids, &part, GX_F32); // the last columns
    gx_cross_entropy_finish(&b.g, x[0], NULL, NULL, x[3], p->ids, &part, NULL, NULL, GX_F32);
    const GxEvent *e = b.recorder.event;
    CHECK(!gx_failed(&b.g) && b.recorder.n == 2, "%s", b.g.error.message);
    CHECK(e[0].bytes == 4 * ROWS * COLS && e[1].bytes == 0 && e[1].flops == 0, "what is not wanted was counted");
    bench_close(&b);
    free(p);
}

TEST(dropout_refuses_what_is_no_probability_and_a_context_that_cannot_draw)
{
    static const float wrong[] = {-0.1f, 1, 1.5f, NAN, INFINITY};
    Pool *p = pool_open();
    float(*x)[POOL] = p->x;
    Bench b;
    bench_open(&b, 1, 1 << 20);
    for (int i = 0; i < 3 * (COUNT(wrong) + 3); i++) {
        const int which = i / 3;
        const char *message = which < COUNT(wrong) ? "dropout's p is"
                              : which == 5         ? "positions"
                              : which == 6         ? "samples"
                                                   : "no step";
        GxDropout d = {.p = which < COUNT(wrong) ? wrong[which] : 0.5f, .T = which != 5, .B = which == 6 ? -1 : 2};
        const GxResidual r = {ROWS, COLS, NULL, NULL, NULL, 0, d, GX_F32};
        b.g.step = which < 7 ? &b.step : NULL;
        if (i % 3 == 0) gx_dropout(&b.g, x[0], x[1], ROWS, COLS, &d, GX_F32);
        if (i % 3 == 1) gx_residual_forward(&b.g, x[0], x[1], NULL, NULL, x[2], x[3], &r);
        if (i % 3 == 2) gx_residual_backward(&b.g, x[0], x[1], NULL, NULL, NULL, x[2], NULL, NULL, NULL, &r, 0);
        check_message(&b, message);
    }
    bench_close(&b);
    free(p);
}

TEST(residual_refuses_half_a_norm_gradients_of_none_and_one_buffer_for_two_gradients)
{
    Pool *p = pool_open();
    float(*x)[POOL] = p->x;
    GxResidual r = {ROWS, COLS, NULL, x[9], NULL, NORM_EPS, gx_no_dropout(), GX_F32};
    Bench b;
    bench_open(&b, 1, 1 << 20);
    gx_residual_forward(&b.g, x[0], x[1], x[2], x[3], x[4], x[5], &r);
    check_message(&b, "only w or only b");
    r.b = r.w, r.w = NULL;
    gx_residual_backward(&b.g, x[0], x[1], NULL, NULL, NULL, x[5], x[6], x[7], x[8], &r, 0);
    check_message(&b, "only w or only b");
    r.b = NULL;
    gx_residual_backward(&b.g, x[0], x[1], NULL, x[2], NULL, x[5], x[6], x[7], x[8], &r, 0);
    check_message(&b, "dw or db is wanted");
    gx_residual_backward(&b.g, x[0], x[1], NULL, NULL, x[3], x[5], x[6], x[7], x[8], &r, 0);
    check_message(&b, "dw or db is wanted");
    r.dropout.p = 0.25f, r.dropout.T = ROWS, r.dropout.B = 1;
    gx_residual_backward(&b.g, x[0], x[0], NULL, NULL, NULL, x[5], x[6], x[7], x[8], &r, 0);
    check_message(&b, "dout is dx");
    r.dropout.p = 0;
    gx_residual_backward(&b.g, x[0], x[0], NULL, NULL, NULL, x[5], x[6], x[7], x[8], &r, 0);
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    gx_gelu_forward(&b.g, x[0], x[1], NULL, ROWS, COLS, (GxGelu)2, GX_F32);
    CHECK(b.g.error.code == GX_ERR_ARGUMENT && strstr(b.g.error.message, "kind is 2; supported: GX_GELU_ERF (0)"), "%s",
          b.g.error.message);
    bench_close(&b);
    free(p);
}

TEST(a_full_arena_and_none_at_all_are_errors)
{
    for (int i = 0; i < CALLS; i++) {
        Pool *p = pool_open(), *before = pool_open();
        Bench plan, b;
        bench_open(&plan, 1, -1);
        const char *name = call(&plan.g, i, p, ROWS, COLS, GX_F32).name;
        bench_open(&b, 1, gx_max(plan.arena.peak - GX_ALIGN, 0));
        if (plan.arena.peak) {
            call(&b.g, i, p, ROWS, COLS, GX_F32);
            CHECK(b.g.error.code == GX_ERR_MEMORY && !memcmp(p, before, sizeof *p), "%s in an arena too small: \"%s\"",
                  name, b.g.error.message);
            gx_error_clear(&b.g.error);
            fflush(stdout);
            pid_t child = fork(); // it may crash
            if (child == 0) {
                b.g.arena = NULL;
                call(&b.g, i, p, ROWS, COLS, GX_F32);
                _exit(b.g.error.code != GX_ERR_ARGUMENT);
            }
            int status = -1;
            waitpid(child, &status, 0);
            CHECK(status == 0, "%s without an arena: %s", name,
                  WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no error, or it died");
        }
        bench_close(&plan), bench_close(&b);
        free(p), free(before);
    }
}

TEST(rope_table_is_the_rounded_cosine_and_sine)
{
    enum { POSITIONS = 1000, HEAD = 10 };
    float *cosine = floats(POSITIONS * HEAD / 2), *sine = floats(POSITIONS * HEAD / 2);
    double worst = 0;
    gx_rope_table(cosine, sine, POSITIONS, HEAD, &rope);
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < HEAD / 2; i++) {
            long double angle = p * expl(-2.0L * i / (int)HEAD * logl(THETA));
            worst = fmax(worst, (double)fabsl(cosine[p * HEAD / 2 + i] - cosl(angle)));
            worst = fmax(worst, (double)fabsl(sine[p * HEAD / 2 + i] - sinl(angle)));
        }
    // half an ulp of a number below 1, and the fp64 angle: 4 roundings of at most POSITIONS
    CHECK(worst <= FLT_EPSILON / 4 + 4 * POSITIONS * DBL_EPSILON, "off by %.3g", worst);
    free(cosine), free(sine);
}

TEST(rope_backward_undoes_rope_forward)
{
    enum { T = 9, B = 2, ROTATED = 3, HEAD = 8, N = T * B * ROTATED * HEAD };
    float cosine[T * HEAD / 2], sine[T * HEAD / 2], *x = random_floats(N, 1, 1), *y = random_floats(N, 1, 1);
    GxRuns runs = gx_runs_one(T, 0);
    Bench b;
    bench_open(&b, 2, 0);
    gx_rope_table(cosine, sine, T, HEAD, &rope);
    gx_rope_forward(&b.g, y, cosine, sine, &runs, B, ROTATED, HEAD, ROTATED * HEAD, GX_F32);
    CHECK(memcmp(x, y, N * sizeof(float)), "nothing was rotated");
    gx_rope_backward(&b.g, y, cosine, sine, &runs, B, ROTATED, HEAD, ROTATED * HEAD, GX_F32);
    test_close_f("x", y, x, N, test_bound(8), 0); // twice a cosine, two products, a sum
    bench_close(&b);
    free(x), free(y);
}

// Two documents behind each other, and one that begins later: each is rotated as it is alone.
TEST(rope_restart_turns_documents_as_if_each_began_at_0)
{
    enum { T = 9, B = 2, ROTATED = 3, HEAD = 8, STRIDE = ROTATED * HEAD + 5, N = T * B * STRIDE, FIRST = 2 };
    static const int begin[B][T] = {{0, 0, 0, 0, 4, 4, 4, 4, 4}, {0, 0, 3, 3, 3, 3, 3, 3, 3}};
    float cosine[T * HEAD / 2], sine[T * HEAD / 2], *x = random_floats(N, 1, 1), *y = random_floats(N, 1, 1);
    int32_t documents[T * B][2];
    double *in = (double *)take(N, sizeof *in), *alone = (double *)take(N, sizeof *alone);
    const GxRuns runs = gx_runs_one(T - FIRST, FIRST); // a slice
    Bench b;
    bench_open(&b, 2, 0);
    gx_rope_table(cosine, sine, T, HEAD, &rope);
    for (int i = 0; i < T * B; i++) documents[i][0] = begin[i % B][i / B], documents[i][1] = T;
    for (int i = 0; i < N; i++) in[i] = alone[i] = x[i];
    for (int64_t r = 0; r < (T - FIRST) * B; r++) {
        const int64_t position = r / B + FIRST, at = position - begin[r % B][position];
        const GxRuns one = gx_runs_one(1, at < 0 ? 0 : at);
        if (at >= 0) oracle_rope(alone + r * STRIDE, in + r * STRIDE, &one, 1, ROTATED, HEAD, STRIDE, THETA, 1);
    }
    gx_rope_forward(&b.g, y, cosine, sine, &runs, B, ROTATED, HEAD, STRIDE, GX_F32);
    float *rotated = random_floats(N, 1, 1);
    memcpy(rotated, y, N * sizeof *y);
    gx_rope_restart_forward(&b.g, y, cosine, sine, &runs, documents[0], B, ROTATED, HEAD, STRIDE, GX_F32);
    for (int64_t r = 0; r < (T - FIRST) * B; r++) {
        if (r / B + FIRST < begin[r % B][r / B + FIRST]) continue; // padding
        test_close("x", y + r * STRIDE, alone + r * STRIDE, ROTATED * HEAD, test_bound(8), 0);
    }
    gx_rope_restart_backward(&b.g, y, cosine, sine, &runs, documents[0], B, ROTATED, HEAD, STRIDE, GX_F32);
    test_close_f("back", y, rotated, N, test_bound(8), 0);
    bench_close(&b);
    free(x), free(y), free(rotated), free(in), free(alone);
}

// Of two runs of rows: counted from the begin of each document, and without documents from the column's.
TEST(text_positions_count_from_the_begin_of_each_document)
{
    enum { T = 9, B = 2, FIRST = 3 };
    static const int begin[B][T] = {{0, 0, 0, 0, 4, 4, 4, 4, 4}, {0, 0, 2, 2, 2, 2, 6, 6, 6}},
                     at[FIRST + 2] = {5, 6, 7, 2, 3}; // of the runs' rows
    const GxRuns runs = {2, {{0, FIRST, 5}, {FIRST, 2, 2}}};
    int32_t documents[T * B][2], positions[(FIRST + 2) * B + 1];
    Bench b;
    bench_open(&b, 2, 0);
    for (int i = 0; i < T * B; i++) documents[i][0] = begin[i % B][i / B], documents[i][1] = T;
    for (int has = 0; has < 2; has++) {
        positions[(FIRST + 2) * B] = -7;
        gx_text_positions(&b.g, positions, &runs, has ? documents[0] : NULL, B);
        for (int i = 0; i < (FIRST + 2) * B; i++) {
            const int is = at[i / B] - (has ? begin[i % B][at[i / B]] : 0);
            CHECK(positions[i] == is, "row %d has the position %d, not %d", i, positions[i], is);
        }
        CHECK(positions[(FIRST + 2) * B] == -7, "it wrote behind its rows");
    }
    CHECK(!gx_failed(&b.g), "%s", b.g.error.message);
    bench_close(&b);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
