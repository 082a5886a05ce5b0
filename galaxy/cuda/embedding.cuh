// cuda/embedding.cuh: ops/embedding.h on the GPU.
#ifndef GX_CUDA_EMBEDDING_CUH
#define GX_CUDA_EMBEDDING_CUH
#include "../ops/embedding.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, const GxEmbedding *e);
void gx_cuda_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, const GxEmbedding *e);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_EMBEDDING_IMPLEMENTED)
#define GX_CUDA_EMBEDDING_IMPLEMENTED
#include "elementwise.cuh"

// y[r,c] = (accumulate ? y[r,c] : 0) + w[ids[r] - v_begin, c], without w if ids[r] is not in [v_begin, v_end)
template <class T> struct GxEmbeddingForwardOp {
    T *y;
    const T *w;
    const int32_t *ids;
    int64_t C, v_begin, v_end, row_step, column_step; // of w; N > 1: column_step is 1
    int accumulate;
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        const int64_t id = ids[r];
        const bool here = id >= v_begin && id < v_end;
        float v[N] = {}, add[N] = {};
        if (accumulate && !here) return;
        if (here) gx_load(v, w + (id - v_begin) * row_step + c * (N > 1 ? 1 : column_step));
        if (accumulate) gx_load(add, y + r * C + c);
        for (int i = 0; accumulate && i < N; i++) v[i] += add[i];
        gx_store(y + r * C + c, v);
    }
};
template <class T>
static void gx__cuda_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, const GxEmbedding *e)
{
    const GxEmbeddingForwardOp<T> op = {
        (T *)y, (const T *)w, ids, e->C, e->v_begin, e->v_end, gx_embedding_row_step(e), gx_embedding_column_step(e),
        e->accumulate};
    gx_each_row<T>(g, "embedding_forward", op, e->R, e->C, !e->is_transposed && gx_wide<T>(e->C, y, w));
}

void gx_cuda_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, const GxEmbedding *e)
{
    GX_CUDA_TYPES(e->dtype, gx__cuda_embedding_forward, g, y, w, ids, e);
}

// ---- backward ------------------------------------------------------------------------------------------------------
// dw[v - v_begin, c] += sum over rows r with ids[r] = v of dy[r,c]
// Rows are processed in chunks, one launch after the other. In a chunk the block of the first row of each id adds up
// all rows of its id, in their order, so that each element of dw has one writer and the same additions as in a loop
// over the rows. A block compares its id with the others of the chunk: 16 KB from the cache for each row of dy. A
// longer chunk would compare more, a shorter one would read and write dw more often.
enum { GX_EMBEDDING_CHUNK = 4096 };

// list: the rows r in [from, rows) with ids[r] = id, in order; returns how many. All threads of a block of
// GX_CUDA_BLOCK must call it.
static __device__ int gx__cuda_rows_of_id(uint16_t *list, const int32_t *ids, int id, int from, int rows)
{
    GX_SHARED(int, found, [GX_CUDA_BLOCK / GX_WARP]);
    const int lane = (int)threadIdx.x % GX_WARP, warp = (int)threadIdx.x / GX_WARP;
    int n = 0;
    for (int first = from; first < rows; first += GX_CUDA_BLOCK) {
        const int r = first + (int)threadIdx.x;
        const unsigned hits = __ballot_sync(0xffffffffu, r < rows && ids[r] == id);
        if (lane == 0) found[warp] = __popc(hits);
        __syncthreads();
        int at = n + __popc(hits & ((1u << lane) - 1));
        for (int w = 0; w < GX_CUDA_BLOCK / GX_WARP; w++) {
            at += w < warp ? found[w] : 0;
            n += found[w];
        }
        if (hits >> lane & 1) list[at] = (uint16_t)r;
        __syncthreads(); // `found` has been read, and the list is complete so far
    }
    return n;
}

// Blocks: (rows of the chunk, parts of a row). dw [v_end - v_begin, C], with steps between its rows and columns (if N >
// 1, the latter is 1); dy [rows, C] and ids [rows] are the chunk's.
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_embedding_rows(float *dw, const T *dy, const int32_t *ids, int rows, int64_t C, int64_t v_begin,
                            int64_t v_end, int64_t ignored, int64_t row_step, int64_t column_step)
{
    GX_SHARED(uint16_t, list, [GX_EMBEDDING_CHUNK]);
    const int row = (int)blockIdx.x, id = ids[row];
    if (id < v_begin || id >= v_end || id == ignored) return;
    int seen_before = 0;
    for (int r = (int)threadIdx.x; r < row; r += GX_CUDA_BLOCK) seen_before |= ids[r] == id;
    if (__syncthreads_or(seen_before)) return;
    const int n = gx__cuda_rows_of_id(list, ids, id, row, rows);
    const int64_t step = (int64_t)gridDim.y * GX_CUDA_BLOCK * N;
    for (int64_t c = ((int64_t)blockIdx.y * GX_CUDA_BLOCK + threadIdx.x) * N; c < C; c += step) {
        float *out = dw + (id - v_begin) * row_step + c * (N > 1 ? 1 : column_step), sum[N], add[N];
        gx_load(sum, out);
        for (int i = 0; i < n; i++) {
            gx_load(add, dy + list[i] * C + c);
            for (int j = 0; j < N; j++) sum[j] += add[j];
        }
        gx_store(out, sum);
    }
}

// For a table with few rows (token types) nearly all rows of dy have the same ids, so a block takes one row of the
// table and 32 of its columns. Warp w adds up the rows w, w + 32, ... of its id, then the first warp adds the 32 sums,
// in order.
enum { GX_EMBEDDING_FEW = 32, GX_EMBEDDING_FEW_THREADS = GX_CUDA_MAX_WARPS * GX_WARP };

template <class T>
static __global__ void __launch_bounds__(GX_EMBEDDING_FEW_THREADS)
    gx__cuda_embedding_few(float *dw, const T *dy, const int32_t *ids, int64_t R, int64_t C, int64_t v_begin,
                           int64_t ignored, int64_t row_step, int64_t column_step)
{
    enum { WARPS = GX_CUDA_MAX_WARPS };
    GX_SHARED(float, of_warp, [WARPS][GX_WARP]);
    const int lane = (int)threadIdx.x % GX_WARP, warp = (int)threadIdx.x / GX_WARP;
    const int64_t id = v_begin + blockIdx.y, c = (int64_t)blockIdx.x * GX_WARP + lane;
    if (id == ignored) return;
    float sum = 0;
#pragma unroll 4
    for (int64_t r = warp; c < C && r < R; r += WARPS) sum += ids[r] == id ? gx_to_float(dy[r * C + c]) : 0;
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || c >= C) return;
    float *out = dw + blockIdx.y * row_step + c * column_step, total = *out;
    for (int w = 0; w < WARPS; w++) total += of_warp[w][lane];
    *out = total;
}

template <class T, int N>
static void gx__cuda_launch_embedding_backward(GxContext *g, float *dw, const T *dy, const int32_t *ids,
                                               const GxEmbedding *e)
{
    const int64_t parts = gx_min(gx_ceil_div(e->C, N * GX_CUDA_BLOCK), GX_CUDA_MAX_GRID_Y);
    for (int64_t r = 0; r < e->R; r += GX_EMBEDDING_CHUNK) {
        const int rows = (int)gx_min(GX_EMBEDDING_CHUNK, e->R - r);
        GX_LAUNCH((gx__cuda_embedding_rows<T, N>), dim3((unsigned)rows, (unsigned)parts), GX_CUDA_BLOCK, 0,
                  gx_cuda(g)->stream, dw, dy + r * e->C, ids + r, rows, e->C, e->v_begin, e->v_end, e->ignored,
                  gx_embedding_row_step(e), gx_embedding_column_step(e));
    }
}
template <class T>
static void gx__cuda_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids,
                                        const GxEmbedding *e)
{
    const T *d = (const T *)dy;
    if (e->v_end - e->v_begin <= GX_EMBEDDING_FEW)
        GX_LAUNCH((gx__cuda_embedding_few<T>),
                  dim3((unsigned)gx_ceil_div(e->C, GX_WARP), (unsigned)(e->v_end - e->v_begin)),
                  GX_EMBEDDING_FEW_THREADS, 0, gx_cuda(g)->stream, dw, d, ids, e->R, e->C, e->v_begin, e->ignored,
                  gx_embedding_row_step(e), gx_embedding_column_step(e));
    else if (!e->is_transposed && gx_wide<T>(e->C, dw, dy))
        gx__cuda_launch_embedding_backward<T, GxPack<T>::N>(g, dw, d, ids, e);
    else gx__cuda_launch_embedding_backward<T, 1>(g, dw, d, ids, e);
    gx_cuda_check(g, "embedding_backward");
}

void gx_cuda_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, const GxEmbedding *e)
{
    if (!e->accumulate) gx_cuda_zero(g, dw, (e->v_end - e->v_begin) * e->C * 4);
    GX_CUDA_TYPES(e->dtype, gx__cuda_embedding_backward, g, dw, dy, ids, e);
}
#endif
