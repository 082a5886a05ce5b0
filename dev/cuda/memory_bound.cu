// memory_bound.cu: what the library's other kernels reach of the memory's bandwidth: an entry for each operation of
// galaxy/cuda that moves more than it computes and has no program of its own here (the norms, what is fused with them,
// and attention do): dev/cuda/workshop.h, docs/kernels.md.
//
// Each has one version, the shipped one. It is timed as training calls it: RoPE, the optimizers, the backward of
// SwiGLU, GELU and tanh, and the gradients of the losses write over what they read. The bytes are those of the
// operation's contract, so small things beside them (ids, labels, losses, tables of angles) make a version slower, not
// the work larger. The bias's column sums are called as a weight gradient with one input and no dw. Left out: clip, one
// thread's work.
#define GALAXY_CUDA_IMPLEMENTATION
#include "galaxy/cuda/activation.cuh"
#include "galaxy/cuda/elementwise.cuh"
#include "galaxy/cuda/embedding.cuh"
#include "galaxy/cuda/columns.cuh"
#include "galaxy/cuda/gate.cuh"
#include "galaxy/cuda/linear.cuh"
#include "galaxy/cuda/loss.cuh"
#include "galaxy/cuda/optimizer.cuh"
#include "galaxy/cuda/norm.cuh"
#include "galaxy/cuda/rope.cuh"
#include "galaxy/cuda/rows.cuh"
#include "workshop.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

// Roundings behind an element that is computed from a few others: an exponential, a division and some products on each
// side.
static const double FEW = 16;

// ---- elementwise: n ------------------------------------------------------------------------------------------------

enum { TO, FROM, OTHER };

static void zero(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_zero(g, p[TO], d[0] * gx_dtype_size(dtype));
}
static void copy(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_copy(g, p[TO], p[FROM], d[0] * gx_dtype_size(dtype));
}
static void narrow(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_convert(g, p[TO], dtype, p[FROM], GX_F32, d[0]);
}
static void widen(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_convert(g, p[TO], GX_F32, p[FROM], dtype, d[0]);
}
static void add(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_add(g, p[TO], p[FROM], p[OTHER], d[0], dtype);
}

static void scale(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_scale(g, p[TO], p[FROM], d[0], 1.7f, dtype);
}

static void open_zero(Work *w, const int64_t *d) { work_output(w, "x", w->dtype, d[0], 0, 0, 0); }
static void open_copy(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[0], 0, 0, 0);
    work_input(w, "x", w->dtype, d[0]);
}
static void open_narrow(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[0], 0, 1, 0);
    work_input(w, "x", GX_F32, d[0]);
}
static void open_widen(Work *w, const int64_t *d)
{
    work_output(w, "y", GX_F32, d[0], 0, 0, 0);
    work_input(w, "x", w->dtype, d[0]);
}
static void open_add(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[0], 1, 1, 0);
    work_input(w, "a", w->dtype, d[0]);
    work_input(w, "b", w->dtype, d[0]);
}
static void open_scale(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[0], 1, 1, 0);
    work_input(w, "x", w->dtype, d[0]);
}

static const WorkEntry elementwise[] = {
    {"zero", open_zero, zero, NULL, WORK_BOTH, {{"the driver's (shipped)", NULL}}},
    {"copy", open_copy, copy, NULL, WORK_BOTH, {{"the driver's (shipped)", NULL}}},
    {"convert from fp32", open_narrow, narrow, NULL, WORK_BF16, {{"8 elements to a thread (shipped)", NULL}}},
    {"convert to fp32", open_widen, widen, NULL, WORK_BF16, {{"8 elements to a thread (shipped)", NULL}}},
    {"add", open_add, add, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"scale", open_scale, scale, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
};
static const int64_t elementwise_checked[][WORK_DIMS] = {{1}, {7}, {257}, {4096}, {30011}};
static const int64_t elementwise_timed[][WORK_DIMS] = {{8192 * 4096}, {134105856}};

static void elementwise_device(GxDevice *table)
{
    table->zero = gx_cuda_zero;
    table->copy = gx_cuda_copy;
    table->convert = gx_cuda_convert;
    table->add = gx_cuda_add;
    table->scale = gx_cuda_scale;
}

// ---- sums over all elements: n, of squares in so many parts --------------------------------------------------------

enum { TOTAL, ELEMENTS, PARTS };

static void sum(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    (void)dtype, gx_sum(g, (double *)p[TOTAL], (const float *)p[ELEMENTS], d[0], 0);
}
// Neighbours, as tensors are. host copy NULL: not wanted
static GxSumParts parts_of(const int64_t *d, GxSumPart *host_copy, const GxSumPart *part)
{
    GxSumParts all = {part, d[1], 0, 0};
    for (int64_t i = 0; i < d[1]; i++) {
        const GxSumPart one = {all.n, d[0] * (i + 1) / d[1] - all.n, all.blocks};
        if (host_copy) host_copy[i] = one;
        all.n += one.n, all.blocks += gx_ceil_div(one.n, GX_SQUARES_BLOCK);
    }
    return all;
}
static void sum_squares(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxSumParts all = parts_of(d, NULL, (const GxSumPart *)p[PARTS]);
    (void)dtype, gx_sum_squares(g, (double *)p[TOTAL], (const float *)p[ELEMENTS], &all, 0);
}

// Sums are taken in fp64, and compared as fp32: that is the one rounding. The sum of n normal numbers has the size of
// sqrt(n).
static void open_sum(Work *w, const int64_t *d)
{
    work_output(w, "total", GX_F64, 1, 1, 0, sqrt((double)d[0]));
    work_input(w, "x", GX_F32, d[0]);
}

static void open_squares(Work *w, const int64_t *d)
{
    open_sum(w, d);
    parts_of(d, (GxSumPart *)work_given(w, "parts", GX_U8, d[1] * (int64_t)sizeof(GxSumPart)), NULL);
}

static const WorkEntry total[] = {
    {"sum", open_sum, sum, NULL, WORK_F32, {{"blocks of 4096 (shipped)", NULL}}},
    {"sum_squares", open_squares, sum_squares, NULL, WORK_F32, {{"blocks of 32768 (shipped)", NULL}}},
};
static const int64_t total_checked[][WORK_DIMS] = {
    {1, 1}, {7, 1}, {4096, 1}, {30011, 5}, {257 * 4096 + 3, 2}}; // more than 256 blocks
static const int64_t total_timed[][WORK_DIMS] = {{8192 * 4096, 1}, {134105856, 111}};

static void total_device(GxDevice *table)
{
    table->sum = gx_cuda_sum;
    table->square_blocks = gx_cuda_square_blocks;
    table->add_blocks = gx_cuda_add_blocks;
}

// ---- embedding: rows, columns, vocabulary, ids as in text ----------------------------------------------------------

enum { R, C, V, TEXT };
enum { EMBEDDED, TABLE, IDS };

static GxEmbedding embedding_of(const int64_t *d, GxDtype dtype, int accumulate)
{
    GxEmbedding e = gx_embedding_shape(d[R], d[C], d[V], dtype);
    e.accumulate = accumulate;
    return e;
}
static void embedding_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxEmbedding e = embedding_of(d, dtype, 0);
    gx_embedding_forward(g, p[EMBEDDED], p[TABLE], (const int32_t *)p[IDS], &e);
}
static void embedding_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxEmbedding e = embedding_of(d, dtype, 0);
    gx_embedding_backward(g, (float *)p[TABLE], p[EMBEDDED], (const int32_t *)p[IDS], &e);
}
static void embedding_backward_added(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxEmbedding e = embedding_of(d, dtype, 1);
    gx_embedding_backward(g, (float *)p[TABLE], p[EMBEDDED], (const int32_t *)p[IDS], &e);
}

// All tokens are as frequent, so that few come again, and what moves is what the contract counts; or as in text the
// k-th most common has a share of 1/k: then rows are found in the cache (more than 100% is no error), and a row of the
// gradient is a sum of many.
static void give_ids(Work *w, const int64_t *d)
{
    int32_t *ids = (int32_t *)work_given(w, "ids", GX_I32, d[R]);
    for (int64_t r = 0; r < d[R]; r++) {
        const double u = gx_random_uniform(4, (uint64_t)r, 0, 0), of_all = (double)d[V];
        ids[r] = (int32_t)gx_min(d[V] - 1, (int64_t)(d[TEXT] ? pow(of_all, u) - 1 : of_all * u));
    }
}
static void open_embedding_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[R] * d[C], 0, 0, 0);
    work_input(w, "w", w->dtype, d[V] * d[C]);
    give_ids(w, d);
}
// A row of the table is a sum of up to all rows.
static void open_embedding_backward(Work *w, const int64_t *d)
{
    work_input(w, "dy", w->dtype, d[R] * d[C]);
    work_output(w, "dw", GX_F32, d[V] * d[C], (double)d[R], 0, 0);
    give_ids(w, d);
}
static void open_embedding_backward_added(Work *w, const int64_t *d)
{
    work_input(w, "dy", w->dtype, d[R] * d[C]);
    work_in_place(w, "dw", GX_F32, d[V] * d[C], (double)d[R] + 1, 0, 0);
    give_ids(w, d);
}

static const WorkEntry embedding[] = {
    {"forward", open_embedding_forward, embedding_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_embedding_backward,
     embedding_backward,
     NULL,
     WORK_BOTH,
     {{"the first row of an id adds all; tables of few rows: a block to a row of it (shipped)", NULL}}},
    {"backward, added",
     open_embedding_backward_added,
     embedding_backward_added,
     NULL,
     WORK_BOTH,
     {{"the first row of an id adds all; tables of few rows: a block to a row of it (shipped)", NULL}}},
};
static const int64_t embedding_checked[][WORK_DIMS] = {{1, 1, 1, 0},    {8, 7, 13, 1},    {70, 130, 9, 1},
                                                       {3, 1031, 5, 0}, {4200, 8, 13, 0}, {300, 24, 60, 0},
                                                       {4200, 8, 60, 0}};
static const int64_t embedding_timed[][WORK_DIMS] = {
    {8192, 768, 32000, 0}, {8192, 768, 32000, 1}, {8192, 4096, 128256, 0}, {16384, 768, 512, 0}, {16384, 768, 2, 0}};

static void embedding_device(GxDevice *table)
{
    table->embedding_forward = gx_cuda_embedding_forward;
    table->embedding_backward = gx_cuda_embedding_backward;
}

// ---- rope: batch, time, heads of h that are turned, elements from row to row ---------------------------------------

enum { BATCH, TIME, HEADS, HEAD, STRIDE };
enum { ROTATED, COSINE, SINE, DOCUMENTS };

static void rope_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxRuns runs = gx_runs_one(d[TIME], 0);
    gx_rope_forward(g, p[ROTATED], (const float *)p[COSINE], (const float *)p[SINE], &runs, d[BATCH], d[HEADS], d[HEAD],
                    d[STRIDE], dtype);
}
static void rope_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxRuns runs = gx_runs_one(d[TIME], 0);
    gx_rope_backward(g, p[ROTATED], (const float *)p[COSINE], (const float *)p[SINE], &runs, d[BATCH], d[HEADS],
                     d[HEAD], d[STRIDE], dtype);
}
static void rope_restart(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxRuns runs = gx_runs_one(d[TIME], 0);
    gx_rope_restart_forward(g, p[ROTATED], (const float *)p[COSINE], (const float *)p[SINE], &runs,
                            (const int32_t *)p[DOCUMENTS], d[BATCH], d[HEADS], d[HEAD], d[STRIDE], dtype);
}
// Two products and their sum; a pair keeps its length, so what cancels in one element is in the other.
static void open_rope(Work *w, const int64_t *d)
{
    work_in_place(w, "x", w->dtype, d[TIME] * d[BATCH] * d[STRIDE], 3, 1, 0);
    float *cosine = (float *)work_given(w, "cosine", GX_F32, d[TIME] * d[HEAD] / 2);
    float *sine = (float *)work_given(w, "sine", GX_F32, d[TIME] * d[HEAD] / 2);
    GxRope rope = GX_ZERO;
    rope.theta = 10000;
    gx_rope_table(cosine, sine, d[TIME], d[HEAD], &rope);
}

static void open_rope_restart(Work *w, const int64_t *d)
{
    open_rope(w, d);
    int32_t *documents = (int32_t *)work_given(w, "documents", GX_I32, 2 * d[TIME] * d[BATCH]);
    for (int64_t i = 0; i < 2 * d[TIME] * d[BATCH]; i++)
        documents[i] = (int32_t)(i / 2 / d[BATCH] / 100 * 100 + 100 * (i % 2)); // of 100 tokens
}

static const WorkEntry rope[] = {
    {"forward", open_rope, rope_forward, NULL, WORK_BOTH, {{"16 bytes of each half to a thread (shipped)", NULL}}},
    {"backward", open_rope, rope_backward, NULL, WORK_BOTH, {{"16 bytes of each half to a thread (shipped)", NULL}}},
    {"restart",
     open_rope_restart,
     rope_restart,
     NULL,
     WORK_BOTH,
     {{"16 bytes of each half to a thread (shipped)", NULL}}},
};
static const int64_t rope_checked[][WORK_DIMS] = {
    {1, 1, 1, 2, 2}, {2, 6, 3, 8, 24}, {3, 9, 2, 10, 25}, {2, 65, 3, 64, 256}, {1, 17, 4, 128, 520}};
static const int64_t rope_timed[][WORK_DIMS] = {{8, 1024, 24, 64, 2304}, {1, 8192, 40, 128, 6144}};

static void rope_device(GxDevice *table) { table->rope = gx_cuda_rope; }

// ---- norm of heads: rows, heads of h, elements from row to row -----------------------------------------------------

enum { NORM_ROWS, NORM_HEADS, NORM_HEAD, NORM_STRIDE };
enum { NORMED, KEPT, NORM_RSTD, NORM_W };
enum { NORM_DX, NORM_DW, NORM_KEPT, NORM_BACK_RSTD, NORM_BACK_W, NORM_X };

static GxHeadNorm head_norm_of(const int64_t *d, GxDtype dtype)
{
    const GxHeadNorm s = {
        d[NORM_ROWS], d[NORM_HEADS], d[NORM_HEAD], d[NORM_STRIDE], d[NORM_HEADS] * d[NORM_HEAD], 1e-6f, dtype, 0};
    return s;
}
static void head_norm_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxHeadNorm s = head_norm_of(d, dtype);
    gx_head_norm_forward(g, p[NORMED], p[KEPT], (float *)p[NORM_RSTD], p[NORM_W], &s);
}
static void head_norm_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxHeadNorm s = head_norm_of(d, dtype);
    gx_head_norm_backward(g, p[NORM_DX], (float *)p[NORM_DW], p[NORM_KEPT], (const float *)p[NORM_BACK_RSTD],
                          p[NORM_BACK_W], &s, 0);
}
static void head_norm_inputs(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxHeadNorm s = head_norm_of(d, dtype);
    gx_head_norm_forward(g, p[NORM_X], p[NORM_KEPT], (float *)p[NORM_BACK_RSTD], p[NORM_BACK_W], &s);
}
// Depths as in rms_norm.cu.
static void open_head_norm_forward(Work *w, const int64_t *d)
{
    const int64_t n = d[NORM_ROWS] * d[NORM_HEADS] * d[NORM_HEAD];
    work_in_place(w, "x", w->dtype, d[NORM_ROWS] * d[NORM_STRIDE], (double)d[NORM_HEAD] + 6, 1, 0);
    work_output(w, "kept", w->dtype, n, 0, 0, 0);
    work_output(w, "rstd", GX_F32, d[NORM_ROWS] * d[NORM_HEADS], (double)d[NORM_HEAD] + 4, 0, 0);
    work_input(w, "w", w->dtype, d[NORM_HEAD]);
}
static void open_head_norm_backward(Work *w, const int64_t *d)
{
    const int64_t heads = d[NORM_ROWS] * d[NORM_HEADS], h = d[NORM_HEAD];
    work_in_place(w, "dx", w->dtype, d[NORM_ROWS] * d[NORM_STRIDE], 2 * (double)h + 13, 1, sqrt((double)(heads * h)));
    work_output(w, "dw", GX_F32, h, (double)(heads + h) + 7, 0, sqrt((double)(heads * h)));
    work_input(w, "kept", w->dtype, heads * h);
    work_input(w, "rstd", GX_F32, heads);
    work_input(w, "w", w->dtype, h);
    work_input(w, "x", w->dtype, d[NORM_ROWS] * d[NORM_STRIDE]); // of the forward that kept and rstd come from
}

static const WorkEntry head_norm[] = {
    {"forward", open_head_norm_forward, head_norm_forward, NULL, WORK_BOTH, {{"a warp to a head (shipped)", NULL}}},
    {"backward",
     open_head_norm_backward,
     head_norm_backward,
     head_norm_inputs,
     WORK_BOTH,
     {{"a warp to a head, sums of 16 rows (shipped)", NULL}}},
};
static const int64_t head_norm_checked[][WORK_DIMS] = {
    {1, 1, 2, 2}, {3, 2, 7, 15}, {33, 3, 10, 50}, {65, 6, 64, 512}, {18, 4, 128, 1024}};
static const int64_t head_norm_timed[][WORK_DIMS] = {{8192, 16, 128, 4096}, {8192, 8, 128, 4096}};

static void head_norm_device(GxDevice *table)
{
    table->head_norm_forward = gx_cuda_head_norm_forward;
    table->head_norm_backward = gx_cuda_head_norm_backward;
}

// ---- swiglu: rows, columns -----------------------------------------------------------------------------------------

enum { SWIGLU_Y, GATE_UP };

static void swiglu_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_swiglu_forward(g, p[SWIGLU_Y], p[GATE_UP], d[R], d[C], dtype);
}
static void swiglu_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_swiglu_backward(g, p[GATE_UP], p[SWIGLU_Y], p[SWIGLU_Y], p[GATE_UP], d[R], d[C], dtype);
}
static void open_swiglu_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[R] * d[C], FEW, 1, 0);
    work_input(w, "gate|up", w->dtype, 2 * d[R] * d[C]);
}
// dgate is dy*up*s, of size 1/2, times a sum that passes through zero.
static void open_swiglu_backward(Work *w, const int64_t *d)
{
    work_in_place(w, "dy, then y", w->dtype, d[R] * d[C], FEW, 1, 0);
    work_in_place(w, "gate|up, then dgate|dup", w->dtype, 2 * d[R] * d[C], FEW, 1, 0.5 * sqrt((double)(d[R] * d[C])));
}

static const WorkEntry swiglu[] = {
    {"forward", open_swiglu_forward, swiglu_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_swiglu_backward,
     swiglu_backward,
     NULL,
     WORK_BOTH,
     {{"16 bytes to a thread, in place (shipped)", NULL}}},
};
static const int64_t swiglu_checked[][WORK_DIMS] = {{1, 1}, {3, 7}, {5, 64}, {33, 257}, {2, 1031}};
static const int64_t swiglu_timed[][WORK_DIMS] = {{8192, 2048}, {8192, 14336}};

static void swiglu_device(GxDevice *table)
{
    table->swiglu_forward = gx_cuda_swiglu_forward;
    table->swiglu_backward = gx_cuda_swiglu_backward;
}

// ---- gate: n -------------------------------------------------------------------------------------------------------

static const float gate_temperature = 0.7f;
static void gate_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_gate_forward(g, p[0], p[1], p[2], p[3], gate_temperature, d[0], dtype);
}
static void gate_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_gate_backward(g, p[0], p[1], (float *)p[2], p[3], p[4], p[5], p[6], gate_temperature, d[0], 0, dtype);
}
static void open_gate_inputs(Work *w, int64_t n)
{
    work_input(w, "a", w->dtype, n);
    work_input(w, "b", w->dtype, n);
    work_input(w, "gate", w->dtype, 1);
}
static void open_gate_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[0], FEW, 1, 0);
    open_gate_inputs(w, d[0]);
}
// dgate is a sum that may cancel: its errors are of its terms' size.
static void open_gate_backward(Work *w, const int64_t *d)
{
    work_output(w, "da", w->dtype, d[0], FEW, 1, 0);
    work_output(w, "db", w->dtype, d[0], FEW, 1, 0);
    work_output(w, "dgate", GX_F32, 1, FEW, 0, sqrt((double)d[0]));
    work_input(w, "dy", w->dtype, d[0]);
    open_gate_inputs(w, d[0]);
}

static const WorkEntry gate[] = {
    {"forward", open_gate_forward, gate_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward", open_gate_backward, gate_backward, NULL, WORK_BOTH, {{"sums of blocks in order (shipped)", NULL}}},
};
static const int64_t gate_checked[][WORK_DIMS] = {{1}, {21}, {320}, {8481}};
static const int64_t gate_timed[][WORK_DIMS] = {{8192 * 256}, {8192 * 4096}};

static void gate_device(GxDevice *table)
{
    table->gate_forward = gx_cuda_gate_forward;
    table->gate_backward = gx_cuda_gate_backward;
}

// ---- columns: rows, columns ----------------------------------------------------------------------------------------

enum { COLUMNS_DX, COLUMNS_DS, COLUMNS_DB, COLUMNS_DY, COLUMNS_X, COLUMNS_S };
static void columns_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxColumns n = {d[R], d[C], 0, dtype};
    gx_scale_columns_forward(g, p[0], p[1], p[2], &n);
}
static void columns_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxColumns n = {d[R], d[C], 0, dtype};
    gx_scale_columns_backward(g, p[COLUMNS_DX], (float *)p[COLUMNS_DS], (float *)p[COLUMNS_DB], p[COLUMNS_DY],
                              p[COLUMNS_X], p[COLUMNS_S], &n, 0);
}
static void open_columns_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[R] * d[C], FEW, 1, 0);
    work_input(w, "x", w->dtype, d[R] * d[C]);
    work_input(w, "s", w->dtype, d[C]);
}
// ds and db are sums of R normal numbers each.
static void open_columns_backward(Work *w, const int64_t *d)
{
    const double depth = (double)d[R] + FEW, size = sqrt((double)(d[R] * d[C]));
    work_output(w, "dx", w->dtype, d[R] * d[C], FEW, 1, 0);
    work_output(w, "ds", GX_F32, d[C], depth, 0, size);
    work_output(w, "db", GX_F32, d[C], depth, 0, size);
    work_input(w, "dy", w->dtype, d[R] * d[C]);
    work_input(w, "x", w->dtype, d[R] * d[C]);
    work_input(w, "s", w->dtype, d[C]);
}

static const WorkEntry columns[] = {
    {"forward", open_columns_forward, columns_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_columns_backward,
     columns_backward,
     NULL,
     WORK_BOTH,
     {{"sums of 16 rows, then dx (shipped)", NULL}}},
};
static const int64_t columns_checked[][WORK_DIMS] = {{1, 1}, {3, 7}, {33, 257}, {65, 64}, {2, 1031}};
static const int64_t columns_timed[][WORK_DIMS] = {{8192, 4096}, {8192, 14336}};

static void columns_device(GxDevice *table)
{
    table->scale_columns_forward = gx_cuda_scale_columns_forward;
    table->scale_columns_backward = gx_cuda_scale_columns_backward;
}

// ---- gelu: rows, columns, kind -------------------------------------------------------------------------------------

enum { GELU_KIND = 2 };
enum { GELU_Y, GELU_X, GELU_BIAS };

static void gelu_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_gelu_forward(g, p[GELU_Y], p[GELU_X], p[GELU_BIAS], d[R], d[C], (GxGelu)d[GELU_KIND], dtype);
}
static void gelu_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_gelu_backward(g, p[GELU_X], p[GELU_Y], p[GELU_Y], p[GELU_X], p[GELU_BIAS], d[R], d[C], (GxGelu)d[GELU_KIND],
                     dtype);
}
static void open_gelu_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[R] * d[C], FEW, 1, 0);
    work_input(w, "x", w->dtype, d[R] * d[C]);
    work_input(w, "bias", w->dtype, d[C]);
}
// gelu' passes through zero: errors of dx are of dy's size.
static void open_gelu_backward(Work *w, const int64_t *d)
{
    work_in_place(w, "dy, then y", w->dtype, d[R] * d[C], FEW, 1, 0);
    work_in_place(w, "x, then dx", w->dtype, d[R] * d[C], FEW, 1, sqrt((double)(d[R] * d[C])));
    work_input(w, "bias", w->dtype, d[C]);
}

static const WorkEntry gelu[] = {
    {"forward", open_gelu_forward, gelu_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_gelu_backward,
     gelu_backward,
     NULL,
     WORK_BOTH,
     {{"16 bytes to a thread, in place (shipped)", NULL}}},
};
static const int64_t gelu_checked[][WORK_DIMS] = {
    {1, 1, GX_GELU_ERF}, {3, 7, GX_GELU_TANH}, {5, 64, GX_GELU_ERF}, {33, 264, GX_GELU_TANH}, {2, 1031, GX_GELU_ERF}};
static const int64_t gelu_timed[][WORK_DIMS] = {
    {8192, 3072, GX_GELU_ERF}, {8192, 3072, GX_GELU_TANH}, {8192, 4096, GX_GELU_ERF}};

static void gelu_device(GxDevice *table)
{
    table->gelu_forward = gx_cuda_gelu_forward;
    table->gelu_backward = gx_cuda_gelu_backward;
}

// ---- geglu: rows, columns, kind; relu: n ----------------------------------------------------------------------------

static void geglu_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_geglu_forward(g, p[SWIGLU_Y], p[GATE_UP], d[R], d[C], (GxGelu)d[GELU_KIND], dtype);
}
static void geglu_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_geglu_backward(g, p[GATE_UP], p[SWIGLU_Y], p[SWIGLU_Y], p[GATE_UP], d[R], d[C], (GxGelu)d[GELU_KIND], dtype);
}
// gelu' passes through zero: errors of dgate are of dy*up's size.
static void open_geglu_backward(Work *w, const int64_t *d)
{
    work_in_place(w, "dy, then y", w->dtype, d[R] * d[C], FEW, 1, 0);
    work_in_place(w, "gate|up, then dgate|dup", w->dtype, 2 * d[R] * d[C], FEW, 1, sqrt((double)(d[R] * d[C])));
}

static const WorkEntry geglu[] = {
    {"forward", open_swiglu_forward, geglu_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_geglu_backward,
     geglu_backward,
     NULL,
     WORK_BOTH,
     {{"16 bytes to a thread, in place (shipped)", NULL}}},
};
static const int64_t geglu_checked[][WORK_DIMS] = {
    {1, 1, GX_GELU_ERF}, {3, 7, GX_GELU_TANH}, {5, 64, GX_GELU_ERF}, {33, 264, GX_GELU_TANH}, {2, 1031, GX_GELU_ERF}};
static const int64_t geglu_timed[][WORK_DIMS] = {{16384, 2048, GX_GELU_TANH}, {8192, 5120, GX_GELU_TANH}};

static void geglu_device(GxDevice *table)
{
    table->geglu_forward = gx_cuda_geglu_forward;
    table->geglu_backward = gx_cuda_geglu_backward;
}

static void relu_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_relu_forward(g, p[TO], p[FROM], d[0], dtype);
}
static void relu_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_relu_backward(g, p[FROM], p[TO], p[TO], p[FROM], d[0], dtype);
}
static void open_relu_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[0], 0, 0, 0);
    work_input(w, "x", w->dtype, d[0]);
}
static void open_relu_backward(Work *w, const int64_t *d)
{
    work_in_place(w, "dy, then y", w->dtype, d[0], 0, 0, 0);
    work_in_place(w, "x, then dx", w->dtype, d[0], 0, 0, 0);
}

static const WorkEntry relu[] = {
    {"forward", open_relu_forward, relu_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_relu_backward,
     relu_backward,
     NULL,
     WORK_BOTH,
     {{"16 bytes to a thread, in place (shipped)", NULL}}},
};
static const int64_t relu_checked[][WORK_DIMS] = {{1}, {7}, {257}, {30011}};
static const int64_t relu_timed[][WORK_DIMS] = {{16384 * 3072}};

static void relu_device(GxDevice *table)
{
    table->relu_forward = gx_cuda_relu_forward;
    table->relu_backward = gx_cuda_relu_backward;
}

// ---- tanh: n -------------------------------------------------------------------------------------------------------

static void tanh_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_tanh_forward(g, p[TO], p[FROM], d[0], dtype);
}
static void tanh_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_tanh_backward(g, p[TO], p[TO], p[FROM], d[0], dtype);
}
static void open_tanh_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[0], FEW, 1, 0);
    work_input(w, "x", w->dtype, d[0]);
}
static void open_tanh_backward(Work *w, const int64_t *d)
{
    work_in_place(w, "dy, then dx", w->dtype, d[0], 4, 1, 0);
    work_input(w, "y", w->dtype, d[0]);
}

static const WorkEntry tanhs[] = {
    {"forward", open_tanh_forward, tanh_forward, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_tanh_backward,
     tanh_backward,
     NULL,
     WORK_BOTH,
     {{"16 bytes to a thread, in place (shipped)", NULL}}},
};
static const int64_t tanhs_checked[][WORK_DIMS] = {{1}, {7}, {257}, {30011}};
static const int64_t tanhs_timed[][WORK_DIMS] = {{8192 * 4096}};

static void tanhs_device(GxDevice *table)
{
    table->tanh_forward = gx_cuda_tanh_forward;
    table->tanh_backward = gx_cuda_tanh_backward;
}

// ---- rows by number: rows of a matrix, columns, of which are picked; batch -----------------------------------------

enum { PICKED = 2, PICKED_BATCH };
enum { PICKED_ROWS, WHOLE, NUMBERS };

static void pick_rows(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_pick_rows(g, p[PICKED_ROWS], p[WHOLE], (const int32_t *)p[NUMBERS], 0, d[PICKED], d[C], dtype);
}
static void add_rows(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_add_rows(g, p[WHOLE], p[PICKED_ROWS], (const int32_t *)p[NUMBERS], 0, d[PICKED], d[C], dtype);
}
static void put_pages(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_put_pages(g, p[WHOLE], p[PICKED_ROWS], (const int32_t *)p[NUMBERS], d[R] / d[PICKED_BATCH], d[PICKED_BATCH], 0,
                 d[C], dtype);
}
static void mean_rows_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_mean_rows_forward(g, p[PICKED_ROWS], p[WHOLE], (const int32_t *)p[NUMBERS], d[PICKED_BATCH],
                         d[R] / d[PICKED_BATCH], d[PICKED_BATCH], 0, d[C], dtype);
}
static void mean_rows_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_mean_rows_backward(g, p[WHOLE], p[PICKED_ROWS], (const int32_t *)p[NUMBERS], d[PICKED_BATCH],
                          d[R] / d[PICKED_BATCH], d[PICKED_BATCH], 0, d[C], dtype);
}
static void normalize_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_normalize_rows_forward(g, p[0], (float *)p[1], p[2], d[R], d[C], 1e-12f, dtype);
}
static void normalize_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_normalize_rows_backward(g, p[0], p[0], p[2], (const float *)p[1], d[R], d[C], dtype);
}
static void length_one(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_normalize_rows_forward(g, p[2], (float *)p[1], p[2], d[R], d[C], 1e-12f, dtype);
}

static void give_numbers(Work *w, const int64_t *d) // by rising number, as the masked tokens of a batch
{
    int32_t *rows = (int32_t *)work_given(w, "rows", GX_I32, d[PICKED]);
    for (int64_t i = 0; i < d[PICKED]; i++) rows[i] = (int32_t)(i * d[R] / d[PICKED]);
}
static void give_parts(Work *w, const int64_t *d) // every sample whole
{
    int32_t *parts = (int32_t *)work_given(w, "parts", GX_I32, 3 * d[PICKED_BATCH]);
    for (int32_t b = 0; b < d[PICKED_BATCH]; b++)
        parts[3 * b] = b, parts[3 * b + 1] = 0, parts[3 * b + 2] = (int32_t)(d[R] / d[PICKED_BATCH]);
}
static void open_pick_rows(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[PICKED] * d[C], 0, 0, 0);
    work_input(w, "x", w->dtype, d[R] * d[C]);
    give_numbers(w, d);
}
static void open_add_rows(Work *w, const int64_t *d)
{
    work_input(w, "x", w->dtype, d[PICKED] * d[C]);
    work_in_place(w, "y", w->dtype, d[R] * d[C], 1, 1, 0);
    give_numbers(w, d);
}
// Every row has a page; the last of them come first.
static void open_put_pages(Work *w, const int64_t *d)
{
    const int64_t pages = gx_ceil_div(d[R] / d[PICKED_BATCH], GX_PAGE) * d[PICKED_BATCH];
    work_input(w, "x", w->dtype, d[R] * d[C]);
    work_in_place(w, "y", w->dtype, pages * GX_PAGE * d[C], 0, 0, 0);
    int32_t *number = (int32_t *)work_given(w, "pages", GX_I32, pages);
    for (int64_t i = 0; i < pages; i++) number[i] = (int32_t)(pages - 1 - i);
}
// The mean of T normal numbers has the size of 1/sqrt(T).
static void open_mean_rows_forward(Work *w, const int64_t *d)
{
    const double T = (double)(d[R] / d[PICKED_BATCH]);
    work_output(w, "y", w->dtype, d[PICKED_BATCH] * d[C], T + 2, 1, sqrt((double)(d[PICKED_BATCH] * d[C]) / T));
    work_input(w, "x", w->dtype, d[R] * d[C]);
    give_parts(w, d);
}
static void open_mean_rows_backward(Work *w, const int64_t *d)
{
    work_input(w, "dy", w->dtype, d[PICKED_BATCH] * d[C]);
    work_in_place(w, "dx", w->dtype, d[R] * d[C], 3, 1, 0);
    give_parts(w, d);
}
static void open_normalize_forward(Work *w, const int64_t *d)
{
    work_output(w, "y", w->dtype, d[R] * d[C], (double)d[C] + FEW, 1, 0);
    work_output(w, "norm", GX_F32, d[R], (double)d[C] + FEW, 0, 0);
    work_input(w, "x", w->dtype, d[R] * d[C]);
}
// dy less its share along y, over norms of about sqrt(C): with one column all of it cancels.
static void open_normalize_backward(Work *w, const int64_t *d)
{
    work_in_place(w, "dy, then dx", w->dtype, d[R] * d[C], (double)d[C] + FEW, 1, sqrt((double)d[R]));
    work_input(w, "norm", GX_F32, d[R]);
    work_input(w, "y", w->dtype, d[R] * d[C]);
}

static const WorkEntry rows[] = {
    {"pick_rows", open_pick_rows, pick_rows, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"add_rows", open_add_rows, add_rows, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"put_pages", open_put_pages, put_pages, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"mean_rows, forward",
     open_mean_rows_forward,
     mean_rows_forward,
     NULL,
     WORK_BOTH,
     {{"16 bytes of all rows to a thread (shipped)", NULL}}},
    {"mean_rows, backward",
     open_mean_rows_backward,
     mean_rows_backward,
     NULL,
     WORK_BOTH,
     {{"16 bytes to a thread (shipped)", NULL}}},
    {"normalize_rows, forward",
     open_normalize_forward,
     normalize_forward,
     NULL,
     WORK_BOTH,
     {{"a block to a row (shipped)", NULL}}},
    {"normalize_rows, backward",
     open_normalize_backward,
     normalize_backward,
     length_one,
     WORK_BOTH,
     {{"a block to a row, in place (shipped)", NULL}}},
};
static const int64_t rows_checked[][WORK_DIMS] = {
    {1, 3, 1, 1}, {9, 7, 2, 3}, {40, 64, 7, 4}, {66, 264, 9, 2}, {390, 9, 4, 3}};
static const int64_t rows_timed[][WORK_DIMS] = {{16384, 768, 2458, 32}, {8192, 1024, 1229, 64}};

static void rows_device(GxDevice *table)
{
    table->pick_rows = gx_cuda_pick_rows;
    table->add_rows = gx_cuda_add_rows;
    table->put_pages = gx_cuda_put_pages;
    table->mean_rows_forward = gx_cuda_mean_rows_forward;
    table->mean_rows_backward = gx_cuda_mean_rows_backward;
    table->normalize_rows_forward = gx_cuda_normalize_rows_forward;
    table->normalize_rows_backward = gx_cuda_normalize_rows_backward;
}

// ---- cross-entropy: rows, columns; every how many-th row is ignored, 0: none ---------------------------------------
// In steps the columns are the second half of the vocabulary: half of the labels are elsewhere.

enum { ROWS, COLUMNS, IGNORED };
enum { LOGITS, LABELS, LOSSES, LABELS_COUNT };
enum { STEP_LOGITS, STEP_LABELS, STEP_MAXIMUM, STEP_SUMS, STEP_LOSSES, STEP_COUNT };

static float scale_of(const int64_t *d) { return 1.0f / (float)d[ROWS]; }

static void losses_alone(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_cross_entropy(g, (float *)p[LOSSES], NULL, p[LOGITS], (const int32_t *)p[LABELS], d[ROWS], d[COLUMNS], NULL,
                     NULL, 0, dtype);
}
static void at_once(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_cross_entropy(g, (float *)p[LOSSES], p[LOGITS], p[LOGITS], (const int32_t *)p[LABELS], d[ROWS], d[COLUMNS],
                     (const int64_t *)p[LABELS_COUNT], NULL, 0, dtype);
}
static void maximum(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_cross_entropy_maximum(g, (float *)p[STEP_MAXIMUM], p[STEP_LOGITS], d[ROWS], d[COLUMNS], dtype);
}
static GxVocabPart part_of(const int64_t *d)
{
    const GxVocabPart part = {d[ROWS], d[COLUMNS], d[COLUMNS], 2 * d[COLUMNS], 0};
    return part;
}
static void sums(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxVocabPart part = part_of(d);
    gx_cross_entropy_sums(g, (float *)p[STEP_SUMS], p[STEP_LOGITS], p[STEP_LOGITS], (const float *)p[STEP_MAXIMUM],
                          (const int32_t *)p[STEP_LABELS], &part, dtype);
}
static void maximum_and_sums(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    maximum(g, d, dtype, p);
    sums(g, d, dtype, p);
}
static void finish(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxVocabPart part = part_of(d);
    gx_cross_entropy_finish(g, (float *)p[STEP_LOSSES], p[STEP_LOGITS], p[STEP_LOGITS], (const float *)p[STEP_SUMS],
                            (const int32_t *)p[STEP_LABELS], &part, (const int64_t *)p[STEP_COUNT], NULL, dtype);
}

static void give_labels(Work *w, const int64_t *d, int64_t vocab_size)
{
    int32_t *labels = (int32_t *)work_given(w, "labels", GX_I32, d[ROWS]);
    for (int64_t r = 0; r < d[ROWS]; r++)
        labels[r] = d[IGNORED] && r % d[IGNORED] == 0
                        ? (int32_t)GX_IGNORE_INDEX
                        : (int32_t)(gx_random_bits(5, (uint64_t)r, 0, 0) % (uint64_t)vocab_size);
}
static void give_count(Work *w, const int64_t *d) { *(int64_t *)work_given(w, "count", GX_I64, 1) = d[ROWS]; }
// A sum over a row is behind every number but the maximum. Floors: a loss is a logarithm, whose absolute error is the
// sum's relative one; p - 1 may cancel, and its terms are of size scale. In bf16 the exponential is rounded before the
// gradient is, on one side only.
static void open_losses(Work *w, const int64_t *d)
{
    work_input(w, "logits", w->dtype, d[ROWS] * d[COLUMNS]);
    give_labels(w, d, d[COLUMNS]);
    work_output(w, "losses", GX_F32, d[ROWS], (double)d[COLUMNS] + FEW, 0, sqrt((double)d[ROWS]));
}
static void open_at_once(Work *w, const int64_t *d)
{
    const double rows = sqrt((double)d[ROWS]), depth = (double)d[COLUMNS] + FEW;
    work_in_place(w, "logits, then dlogits", w->dtype, d[ROWS] * d[COLUMNS], depth, 2, rows * (double)scale_of(d));
    give_labels(w, d, d[COLUMNS]);
    work_output(w, "losses", GX_F32, d[ROWS], depth, 0, rows);
    give_count(w, d);
}
static void open_maximum(Work *w, const int64_t *d)
{
    work_input(w, "logits", w->dtype, d[ROWS] * d[COLUMNS]);
    give_labels(w, d, 2 * d[COLUMNS]);
    work_output(w, "maximum", GX_F32, d[ROWS], 0, 0, 0);
}
static void open_sums(Work *w, const int64_t *d)
{
    work_in_place(w, "logits, then exps", w->dtype, d[ROWS] * d[COLUMNS], FEW, 1, 0);
    give_labels(w, d, 2 * d[COLUMNS]);
    work_input(w, "maximum", GX_F32, d[ROWS]);
    work_output(w, "sums", GX_F32, 2 * d[ROWS], (double)d[COLUMNS] + FEW, 0, 0);
}
static void open_finish(Work *w, const int64_t *d)
{
    const double rows = sqrt((double)d[ROWS]);
    work_in_place(w, "exps, then dlogits", w->dtype, d[ROWS] * d[COLUMNS], FEW, 2, rows * (double)scale_of(d));
    give_labels(w, d, 2 * d[COLUMNS]);
    work_input(w, "maximum", GX_F32, d[ROWS]);
    work_input(w, "sums", GX_F32, 2 * d[ROWS]);
    work_output(w, "losses", GX_F32, d[ROWS], FEW, 0, rows);
    give_count(w, d);
}

static const WorkEntry cross_entropy[] = {
    {"losses alone", open_losses, losses_alone, NULL, WORK_BOTH, {{"a block to a row, one pass (shipped)", NULL}}},
    {"losses and gradient", open_at_once, at_once, NULL, WORK_BOTH, {{"a block to a row, in place (shipped)", NULL}}},
    {"in steps: maximum", open_maximum, maximum, NULL, WORK_BOTH, {{"a block to a row (shipped)", NULL}}},
    {"in steps: sums", open_sums, sums, maximum, WORK_BOTH, {{"a block to a row, in place (shipped)", NULL}}},
    {"in steps: finish",
     open_finish,
     finish,
     maximum_and_sums,
     WORK_BOTH,
     {{"16 bytes to a thread, in place (shipped)", NULL}}},
};
static const int64_t cross_entropy_checked[][WORK_DIMS] = {{1, 1, 0},    {3, 7, 2}, {6, 64, 0},
                                                           {33, 257, 3}, {4, 9, 1}, {3, 5003, 0}};
static const int64_t cross_entropy_timed[][WORK_DIMS] = {{8192, 32000, 0}, {2048, 128256, 0}};

static void cross_entropy_device(GxDevice *table)
{
    table->cross_entropy = gx_cuda_cross_entropy;
    table->cross_entropy_maximum = gx_cuda_cross_entropy_maximum;
    table->cross_entropy_sums = gx_cuda_cross_entropy_sums;
    table->cross_entropy_finish = gx_cuda_cross_entropy_finish;
}

// ---- losses with targets: rows, columns ----------------------------------------------------------------------------

enum { TARGET_LOGITS, TARGET_LOSSES, TARGETS, TARGET_COUNT };

static void squared_error(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_squared_error(g, (float *)p[TARGET_LOSSES], p[TARGET_LOGITS], p[TARGET_LOGITS], (const float *)p[TARGETS],
                     d[ROWS], d[COLUMNS], (const int64_t *)p[TARGET_COUNT], dtype);
}
static void binary_cross_entropy(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_binary_cross_entropy(g, (float *)p[TARGET_LOSSES], p[TARGET_LOGITS], p[TARGET_LOGITS], (const float *)p[TARGETS],
                            d[ROWS], d[COLUMNS], (const int64_t *)p[TARGET_COUNT], dtype);
}
// Differences of numbers of size 1, that may cancel; in the gradient they are multiplied by scale.
static void open_targets(Work *w, const int64_t *d)
{
    const double n = (double)(d[ROWS] * d[COLUMNS]);
    work_in_place(w, "logits, then dlogits", w->dtype, d[ROWS] * d[COLUMNS], FEW, 1, sqrt(n) * (double)scale_of(d));
    work_output(w, "losses", GX_F32, d[ROWS], (double)d[COLUMNS] + FEW, 0, sqrt(n));
    float *targets = (float *)work_given(w, "targets", GX_F32, d[ROWS] * d[COLUMNS]);
    for (int64_t i = 0; i < d[ROWS] * d[COLUMNS]; i++) targets[i] = gx_random_uniform(6, (uint64_t)i, 0, 0);
    give_count(w, d);
}

static const WorkEntry targets[] = {
    {"squared error", open_targets, squared_error, NULL, WORK_BOTH, {{"a block to a row, in place (shipped)", NULL}}},
    {"binary cross-entropy",
     open_targets,
     binary_cross_entropy,
     NULL,
     WORK_BOTH,
     {{"a block to a row, in place (shipped)", NULL}}},
};
static const int64_t targets_checked[][WORK_DIMS] = {{1, 1}, {257, 1}, {3, 7}, {33, 257}, {2, 1031}};
static const int64_t targets_timed[][WORK_DIMS] = {{8192, 1000}, {64, 3}};

static void targets_device(GxDevice *table)
{
    table->squared_error = gx_cuda_squared_error;
    table->binary_cross_entropy = gx_cuda_binary_cross_entropy;
}

// ---- optimizers: n; in bf16 with the copy that the model computes with ---------------------------------------------

enum { WEIGHTS, STEP, GRAD, FIRST, SECOND };
enum {
    PLAIN_COPY = FIRST,
    SGD_COPY = SECOND,
    ADAMW_COPY
}; // the last buffer; in fp32 there is none, and its pointer is NULL

// Eight ranges do not decay, about as many as in a layer of a BERT.
static GxUpdate update_of(GxContext *g, const int64_t *d, GxDtype dtype, void **p, void *copy)
{
    GxUpdate u = GX_ZERO;
    g->clipped = g->step = (GxStep *)p[STEP];
    u.w = (float *)p[WEIGHTS], u.grad = (const float *)p[GRAD], u.copy = copy, u.n = d[0], u.dtype = dtype;
    for (int64_t i = 0; i < 8; i++, u.undecayed.n++)
        u.undecayed.begin[i] = (2 * i + 1) * d[0] / 17, u.undecayed.end[i] = (2 * i + 2) * d[0] / 17;
    return u;
}
static void adamw(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAdamW o = {0.9f, 0.95f, 1e-8f, 0.1f};
    GxUpdate u = update_of(g, d, dtype, p, p[ADAMW_COPY]);
    u.m = (float *)p[FIRST], u.v = (float *)p[SECOND];
    gx_adamw(g, &u, &o);
}
static void sgd(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxSgd o = {0.9f, 0.01f};
    GxUpdate u = update_of(g, d, dtype, p, p[SGD_COPY]);
    u.m = (float *)p[FIRST];
    gx_sgd(g, &u, &o);
}
static void sgd_plain(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxSgd o = {0, 0.01f};
    const GxUpdate u = update_of(g, d, dtype, p, p[PLAIN_COPY]);
    gx_sgd(g, &u, &o);
}

// Floors: sums of terms of size 1 (second moments: none is negative) that may cancel.
static void open_weights(Work *w, const int64_t *d)
{
    work_in_place(w, "w", GX_F32, d[0], FEW, 0, sqrt((double)d[0]));
    GxStep *step = (GxStep *)work_given(w, "step", GX_U8, sizeof(GxStep));
    memset(step, 0, sizeof *step);
    step->lr = 0.01f, step->clip = 0.3f, step->applied = 3;
    work_input(w, "grad", GX_F32, d[0]);
}
static void open_copy_of_weights(Work *w, const int64_t *d)
{
    if (w->dtype != GX_F32) work_output(w, "copy", w->dtype, d[0], FEW, 1, sqrt((double)d[0]));
}
static void open_adamw(Work *w, const int64_t *d)
{
    open_weights(w, d);
    work_in_place(w, "m", GX_F32, d[0], FEW, 0, sqrt((double)d[0]));
    work_in_place(w, "v", GX_F32, d[0], FEW, 0, 0)->squared = 1;
    open_copy_of_weights(w, d);
}
static void open_sgd(Work *w, const int64_t *d)
{
    open_weights(w, d);
    work_in_place(w, "momentum", GX_F32, d[0], FEW, 0, sqrt((double)d[0]));
    open_copy_of_weights(w, d);
}
static void open_sgd_plain(Work *w, const int64_t *d)
{
    open_weights(w, d);
    open_copy_of_weights(w, d);
}

static const WorkEntry optimizer[] = {
    {"adamw", open_adamw, adamw, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"sgd with momentum", open_sgd, sgd, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"sgd", open_sgd_plain, sgd_plain, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
};
static const int64_t optimizer_checked[][WORK_DIMS] = {{1}, {7}, {257}, {30011}};
static const int64_t optimizer_timed[][WORK_DIMS] = {{8192 * 4096}, {134105856}};

static void optimizer_device(GxDevice *table)
{
    table->adamw = gx_cuda_adamw;
    table->sgd = gx_cuda_sgd;
}

// ---- column sums, the gradient of a bias: rows, columns ------------------------------------------------------------

enum { DBIAS, DY };

static void column_sums(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxLinearShape s = gx_linear_shape(d[R], 1, d[C], dtype);
    gx_linear_backward_weight(g, NULL, (float *)p[DBIAS], p[DY], NULL, &s);
}
// The sum of R normal numbers has the size of sqrt(R).
static void open_column_sums(Work *w, const int64_t *d)
{
    work_output(w, "dbias", GX_F32, d[C], (double)d[R], 0, sqrt((double)(d[R] * d[C])));
    work_input(w, "dy", w->dtype, d[R] * d[C]);
}

static const WorkEntry bias[] = {
    {"column sums", open_column_sums, column_sums, NULL, WORK_BOTH, {{"blocks of 64 rows (shipped)", NULL}}}};
static const int64_t bias_checked[][WORK_DIMS] = {{1, 1}, {3, 7}, {257, 33}, {65, 257}, {577, 40}};
static const int64_t bias_timed[][WORK_DIMS] = {{8192, 2304}, {8192, 14336}};

static void bias_device(GxDevice *table) { table->linear_backward_weight = gx_cuda_linear_backward_weight; }

#define SHOP(name)                                                                                                     \
    name, COUNT(name), name##_checked, name##_timed, COUNT(name##_checked), COUNT(name##_timed), name##_device
static const Workshop shops[] = {
    {"elementwise", {"n"}, SHOP(elementwise)},
    {"total", {"n", "parts"}, SHOP(total)},
    {"embedding", {"R", "C", "V", "text"}, SHOP(embedding)},
    {"rope", {"B", "T", "heads", "h", "stride"}, SHOP(rope)},
    {"head_norm", {"R", "heads", "h", "stride"}, SHOP(head_norm)},
    {"swiglu", {"R", "F"}, SHOP(swiglu)},
    {"gate", {"n"}, SHOP(gate)},
    {"columns", {"R", "C"}, SHOP(columns)},
    {"gelu", {"R", "F", "kind"}, SHOP(gelu)},
    {"geglu", {"R", "F", "kind"}, SHOP(geglu)},
    {"relu", {"n"}, SHOP(relu)},
    {"tanh", {"n"}, SHOP(tanhs)},
    {"rows", {"R", "C", "picked", "B"}, SHOP(rows)},
    {"cross_entropy", {"R", "V", "ignored"}, SHOP(cross_entropy)},
    {"targets", {"R", "V"}, SHOP(targets)},
    {"optimizer", {"n"}, SHOP(optimizer)},
    {"bias", {"R", "C"}, SHOP(bias)},
};

// A loss that was captured once, and runs again with another count in the device's memory, has the gradient of a call
// with that count: bit for bit.
static void check_captured(const char *name, const WorkEntry *entry, GxDtype dtype)
{
    static const int64_t shape[WORK_DIMS] = {5, 24}, counts[] = {4, 7, 0};
    const Workshop *shop = shops;
    while (strcmp(shop->name, name)) shop++;
    Work w;
    cudaGraph_t graph;
    cudaGraphExec_t again;
    void *before = NULL;
    work_open(&w, shop, entry, shape, dtype);
    const WorkBuffer *count = w.buffer, *gradient = w.buffer;
    while (strcmp(count->name, "count")) count++;
    while (!gradient->in_place) gradient++;
    const cudaStream_t stream = gx_cuda(&w.g)->stream;
    WORK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work_run(&w, &entry->version[0]);
    WORK_CUDA(cudaStreamEndCapture(stream, &graph));
    WORK_CUDA(cudaGraphInstantiate(&again, graph, 0));
    for (int i = 0; i < COUNT(counts); i++) {
        void *result[2];
        work_upload(count, &counts[i], 1);
        WORK_CUDA(cudaDeviceSynchronize());
        for (int captured = 0; captured < 2; captured++) {
            work_restore(&w);
            if (captured) WORK_CUDA(cudaGraphLaunch(again, stream));
            else work_run(&w, &entry->version[0]);
            gx_cuda_wait(&w.g);
            result[captured] = work_download(gradient);
        }
        const size_t bytes = (size_t)(gradient->n * 4);
        CHECK(!memcmp(result[0], result[1], bytes), "%s, %s, count %ld: a graph has other bits", entry->name,
              gx_dtype_name(dtype), (long)counts[i]);
        CHECK(!before || memcmp(result[0], before, bytes), "%s: count %ld changes nothing", entry->name,
              (long)counts[i]);
        free(before), free(result[1]);
        before = result[0];
    }
    work_require(&w.g);
    free(before);
    WORK_CUDA(cudaGraphExecDestroy(again));
    WORK_CUDA(cudaGraphDestroy(graph));
    work_close(&w);
}

TEST(a_loss_in_a_graph_is_divided_by_the_count_of_each_run)
{
    for (int type = GX_F32; type <= GX_BF16; type++) {
        check_captured("cross_entropy", &cross_entropy[1], (GxDtype)type); // at once; in steps
        check_captured("cross_entropy", &cross_entropy[4], (GxDtype)type);
        for (int i = 0; i < COUNT(targets); i++) check_captured("targets", &targets[i], (GxDtype)type);
    }
}

// However many tensors a step has, their norm is two launches.
TEST(squares_of_any_number_of_parts_are_two_launches)
{
    for (int i = 0; i < COUNT(total_checked); i++) {
        const Workshop *shop = shops;
        while (strcmp(shop->name, "total")) shop++;
        Work w;
        cudaGraph_t graph;
        size_t launches = 0;
        work_open(&w, shop, &total[1], total_checked[i], GX_F32);
        WORK_CUDA(cudaStreamBeginCapture(gx_cuda(&w.g)->stream, cudaStreamCaptureModeThreadLocal));
        work_run(&w, &total[1].version[0]);
        WORK_CUDA(cudaStreamEndCapture(gx_cuda(&w.g)->stream, &graph));
        WORK_CUDA(cudaGraphGetNodes(graph, NULL, &launches));
        CHECK(launches == 2, "%ld parts: %ld launches", (long)total_checked[i][1], (long)launches);
        WORK_CUDA(cudaGraphDestroy(graph));
        work_close(&w);
    }
}

// A new operation of the device's table needs a row here, or a program of its own.
TEST(every_operation_of_a_device_is_here_or_elsewhere_in_the_workshop)
{
    static const size_t elsewhere[] = {
        offsetof(GxDevice, rms_norm_forward),    offsetof(GxDevice, add_rms_norm_forward),
        offsetof(GxDevice, rms_norm_backward),   offsetof(GxDevice, layer_norm_forward),
        offsetof(GxDevice, layer_norm_backward), offsetof(GxDevice, dropout),
        offsetof(GxDevice, residual_forward),    offsetof(GxDevice, residual_backward),
        offsetof(GxDevice, attention_scratch),   offsetof(GxDevice, attention_forward),
        offsetof(GxDevice, attention_backward),  offsetof(GxDevice, attention_merge),
        offsetof(GxDevice, linear_forward),      offsetof(GxDevice, linear_backward_input),
        offsetof(GxDevice, dequantize),          offsetof(GxDevice, clip)};
    GxDevice table;
    memset(&table, 0, sizeof table);
    for (int i = 0; i < COUNT(shops); i++) shops[i].device(&table);
    for (size_t slot = offsetof(GxDevice, zero); slot < sizeof table; slot += sizeof(void (*)(void))) {
        void (*function)(void) = NULL;
        int known = 0;
        memcpy(&function, (const char *)&table + slot, sizeof function);
        for (int i = 0; i < COUNT(elsewhere); i++) known |= elsewhere[i] == slot;
        CHECK((function != NULL) != known, "function %d of a device",
              (int)((slot - offsetof(GxDevice, zero)) / sizeof function));
    }
}

int main(int argc, char **argv) { return work_main(shops, COUNT(shops), argc, argv); }
