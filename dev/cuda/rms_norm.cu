// rms_norm.cu: RMSNorm's kernels in the making, from the formula to what is shipped: dev/cuda/workshop.h,
// docs/kernels.md.
//
// Forward, 1:  the formula, one thread per row. The lanes of a warp read elements that are whole rows apart: 4 (2)
//              bytes are used of each 32 that come from memory.
// Forward, 2:  one block per row. The reads of a warp are neighbours; a row is read twice, one element at a time.
// Backward, 1: a block per 16 rows, one after the other. Its share of dw grows in shared memory, dy and x are read
//              twice.
// The rest:    galaxy/cuda/norm.cuh. A row is read once, 16 bytes at a time, and kept while its squares are summed; in
//              the backward, as wide as one warp or more, with the sums over rows in registers.
#define GALAXY_CUDA_IMPLEMENTATION
#include "galaxy/cuda/norm.cuh"
#include "workshop.h"

static const float EPS = 1e-5f;

enum { ROWS, COLUMNS }; // a shape
enum { X, W, Y, RSTD }; // buffers of the forward
enum { SUM_X, SUM_A, SUM_W, SUM_SUM, SUM_Y, SUM_RSTD };
enum { DY, DRESIDUAL, BACK_X, BACK_RSTD, BACK_W, DX, DW, BACK_Y };

// ---- versions 1 and 2 ----------------------------------------------------------------------------------------------

template <class T>
__global__ void forward_thread_per_row(T *y, float *rstd, const T *x, const T *w, int64_t R, int64_t C)
{
    const int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= R) return;
    float squares = 0;
    for (int64_t c = 0; c < C; c++) squares += gx_to_float(x[r * C + c]) * gx_to_float(x[r * C + c]);
    rstd[r] = 1.0f / sqrtf(squares / (float)C + EPS);
    for (int64_t c = 0; c < C; c++)
        y[r * C + c] = gx_from_float<T>(gx_to_float(x[r * C + c]) * rstd[r] * gx_to_float(w[c]));
}

template <class T> __global__ void forward_block_per_row(T *y, float *rstd, const T *x, const T *w, int64_t C)
{
    const int64_t r = blockIdx.x;
    float squares = 0;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
        squares += gx_to_float(x[r * C + c]) * gx_to_float(x[r * C + c]);
    const float s = 1.0f / sqrtf(gx_block_sum(squares) / (float)C + EPS);
    if (threadIdx.x == 0) rstd[r] = s;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
        y[r * C + c] = gx_from_float<T>(gx_to_float(x[r * C + c]) * s * gx_to_float(w[c]));
}

template <class T> static void launch_thread_per_row(GxContext *g, const int64_t *d, void **p)
{
    const unsigned blocks = (unsigned)gx_ceil_div(d[ROWS], 128);
    GX_LAUNCH((forward_thread_per_row<T>), blocks, 128, 0, gx_cuda(g)->stream, (T *)p[Y], (float *)p[RSTD],
              (const T *)p[X], (const T *)p[W], d[ROWS], d[COLUMNS]);
    gx_cuda_check(g, "thread_per_row");
}
template <class T> static void launch_block_per_row(GxContext *g, const int64_t *d, void **p)
{
    GX_LAUNCH((forward_block_per_row<T>), (unsigned)d[ROWS], GX_CUDA_BLOCK, 0, gx_cuda(g)->stream, (T *)p[Y],
              (float *)p[RSTD], (const T *)p[X], (const T *)p[W], d[COLUMNS]);
    gx_cuda_check(g, "block_per_row");
}
static void thread_per_row(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    GX_CUDA_TYPES(dtype, launch_thread_per_row, g, d, p);
}
static void block_per_row(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    GX_CUDA_TYPES(dtype, launch_block_per_row, g, d, p);
}

// ---- backward, version 1 -------------------------------------------------------------------------------------------

template <class T, int N>
__global__ void backward_shares(T *dx, float *part, const T *dy, const T *dresidual, const T *x, const float *rstd,
                                const T *w, int64_t R, int64_t C, int shared_share)
{
    GX_DYNAMIC_SHARED(float, shared);
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N,
                  begin = (int64_t)blockIdx.x * GX_NORM_BLOCK;
    float *share = shared_share ? shared : part + blockIdx.x * C, d[N], v[N], u[N];
    for (int64_t r = begin; r < R && r < begin + GX_NORM_BLOCK; r++) {
        float dot = 0;
        for (int64_t c = first; c < C; c += step) {
            gx_load(d, dy + r * C + c);
            gx_load(v, x + r * C + c);
            gx_load(u, w + c);
            for (int i = 0; i < N; i++) {
                dot += d[i] * u[i] * v[i];
                share[c + i] = (r > begin ? share[c + i] : 0) + d[i] * v[i] * rstd[r];
            }
        }
        const float scale = rstd[r], k = gx_block_sum(dot) * scale * scale * scale / (float)C;
        for (int64_t c = first; c < C; c += step) {
            gx_load(d, dy + r * C + c);
            gx_load(v, x + r * C + c);
            gx_load(u, w + c);
            for (int i = 0; i < N; i++) d[i] = d[i] * u[i] * scale - v[i] * k;
            gx_load(v, dresidual + r * C + c);
            for (int i = 0; i < N; i++) d[i] += v[i];
            gx_store(dx + r * C + c, d);
        }
    }
    for (int64_t c = first; shared_share && c < C; c += step)
        for (int i = 0; i < N; i++) part[blockIdx.x * C + c + i] = share[c + i];
}

template <class T, int N> static void launch_shares(GxContext *g, const int64_t *d, void **p, float *part)
{
    const int64_t R = d[ROWS], C = d[COLUMNS], blocks = gx_ceil_div(R, GX_NORM_BLOCK), fits = C * 4 <= GX_CUDA_SHARED;
    const GxCudaColumnSums sum = {{(float *)p[DW]}, {part}};
    GX_LAUNCH((backward_shares<T, N>), (unsigned)blocks, gx_cuda_threads(gx_ceil_div(C, N), GX_CUDA_BLOCK),
              fits ? C * 4 : 0, gx_cuda(g)->stream, (T *)p[DX], part, (const T *)p[DY], (const T *)p[DRESIDUAL],
              (const T *)p[BACK_X], (const float *)p[BACK_RSTD], (const T *)p[BACK_W], R, C, (int)fits);
    gx__cuda_column_sums_finish(g, &sum, blocks, C, 0);
    gx_cuda_check(g, "backward_shares");
}
template <class T> static void launch_backward_shares(GxContext *g, const int64_t *d, void **p)
{
    const GxArenaMark mark = gx_arena_mark(g->arena);
    float *part =
        (float *)gx_scratch(g, GX_MEM_WORKSPACE, gx_ceil_div(d[ROWS], GX_NORM_BLOCK) * d[COLUMNS] * sizeof *part);
    if (d[COLUMNS] % GxPack<T>::N == 0) launch_shares<T, GxPack<T>::N>(g, d, p, part);
    else launch_shares<T, 1>(g, d, p, part);
    gx_arena_release(g->arena, mark);
}
static void shares(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    GX_CUDA_TYPES(dtype, launch_backward_shares, g, d, p);
}

// ---- the operation -------------------------------------------------------------------------------------------------

static void forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_rms_norm_forward(g, p[Y], (float *)p[RSTD], p[X], p[W], 0, d[ROWS], d[COLUMNS], EPS, dtype);
}
static void add_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_add_rms_norm_forward(g, p[SUM_SUM], p[SUM_Y], (float *)p[SUM_RSTD], p[SUM_X], p[SUM_A], p[SUM_W], 0, d[ROWS],
                            d[COLUMNS], EPS, dtype);
}
static void backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_rms_norm_backward(g, p[DX], (float *)p[DW], p[DY], p[DRESIDUAL], p[BACK_X], (const float *)p[BACK_RSTD],
                         p[BACK_W], 0, d[ROWS], d[COLUMNS], 0, dtype);
}
static void backward_inputs(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_rms_norm_forward(g, p[BACK_Y], (float *)p[BACK_RSTD], p[BACK_X], p[BACK_W], 0, d[ROWS], d[COLUMNS], EPS, dtype);
}

// Depths: rstd is a sum of C squares and 4 more roundings; dx has a second sum of C behind it. The norm of a sum is
// taken of the rounded sum.
static void open_forward(Work *w, const int64_t *d)
{
    const double C = (double)d[COLUMNS];
    work_input(w, "x", w->dtype, d[ROWS] * d[COLUMNS]);
    work_input(w, "w", w->dtype, d[COLUMNS]);
    work_output(w, "y", w->dtype, d[ROWS] * d[COLUMNS], C + 6, 1, 0);
    work_output(w, "rstd", GX_F32, d[ROWS], C + 4, 0, 0);
}
static void open_add_forward(Work *w, const int64_t *d)
{
    const double C = (double)d[COLUMNS];
    work_input(w, "x", w->dtype, d[ROWS] * d[COLUMNS]);
    work_input(w, "a", w->dtype, d[ROWS] * d[COLUMNS]);
    work_input(w, "w", w->dtype, d[COLUMNS]);
    work_output(w, "sum", w->dtype, d[ROWS] * d[COLUMNS], 1, 1, 0);
    work_output(w, "y", w->dtype, d[ROWS] * d[COLUMNS], C + 7, 2, 0);
    work_output(w, "rstd", GX_F32, d[ROWS], C + 5, 1, 0);
}
static void open_backward(Work *w, const int64_t *d)
{
    const double R = (double)d[ROWS], C = (double)d[COLUMNS];
    work_input(w, "dy", w->dtype, d[ROWS] * d[COLUMNS]);
    work_input(w, "dresidual", w->dtype, d[ROWS] * d[COLUMNS]);
    work_input(w, "x", w->dtype, d[ROWS] * d[COLUMNS]);
    work_input(w, "rstd", GX_F32, d[ROWS]);
    work_input(w, "w", w->dtype, d[COLUMNS]);
    work_output(w, "dx", w->dtype, d[ROWS] * d[COLUMNS], 2 * C + 13, 1, 0);
    work_output(w, "dw", GX_F32, d[COLUMNS], R + C + 7, 0, 0);
    work_input(w, "y", w->dtype, d[ROWS] * d[COLUMNS]); // of the forward that rstd comes from
}

static const WorkEntry entries[] = {
    {"forward",
     open_forward,
     forward,
     NULL,
     WORK_BOTH,
     {{"thread per row", thread_per_row},
      {"block per row, two passes", block_per_row},
      {"one pass of 16 bytes (shipped)", NULL}}},
    {"add_forward", open_add_forward, add_forward, NULL, WORK_BOTH, {{"one pass (shipped)", NULL}}},
    {"backward",
     open_backward,
     backward,
     backward_inputs,
     WORK_BOTH,
     {{"sums over rows in shared memory", shares}, {"one reading, sums in registers (shipped)", NULL}}},
};

static const int64_t checked[][WORK_DIMS] = {{1, 1}, {3, 7}, {5, 64}, {33, 130}, {67, 288}, {2, 4096}, {2, 9000}};
static const int64_t timed[][WORK_DIMS] = {{8192, 768}, {8192, 2048}, {8192, 4096}, {4096, 8192}, {32768, 896}};

static void device(GxDevice *table)
{
    table->rms_norm_forward = gx_cuda_rms_norm_forward;
    table->add_rms_norm_forward = gx_cuda_add_rms_norm_forward;
    table->rms_norm_backward = gx_cuda_rms_norm_backward;
}

int main(int argc, char **argv)
{
    const Workshop shop = {"rms_norm",
                           {"R", "C"},
                           entries,
                           sizeof entries / sizeof *entries,
                           checked,
                           timed,
                           sizeof checked / sizeof *checked,
                           sizeof timed / sizeof *timed,
                           device};
    return work_main(&shop, 1, argc, argv);
}
