// cuda/rows.cuh: ops/rows.h on the GPU.
#ifndef GX_CUDA_ROWS_CUH
#define GX_CUDA_ROWS_CUH
#include "../ops/rows.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_pick_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                       GxDtype dtype);
void gx_cuda_add_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                      GxDtype dtype);
void gx_cuda_put_pages(GxContext *g, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B,
                       int64_t t_first, int64_t C, GxDtype dtype);
void gx_cuda_mean_rows_forward(GxContext *g, void *y, const void *x, const int32_t *parts, int64_t n, int64_t T,
                               int64_t B, int64_t t_first, int64_t C, GxDtype dtype);
void gx_cuda_mean_rows_backward(GxContext *g, void *dx, const void *dy, const int32_t *parts, int64_t n, int64_t T,
                                int64_t B, int64_t t_first, int64_t C, GxDtype dtype);
void gx_cuda_normalize_rows_forward(GxContext *g, void *y, float *norm, const void *x, int64_t R, int64_t C, float eps,
                                    GxDtype dtype);
void gx_cuda_normalize_rows_backward(GxContext *g, void *dx, const void *dy, const void *y, const float *norm,
                                     int64_t R, int64_t C, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_ROWS_IMPLEMENTED)
#define GX_CUDA_ROWS_IMPLEMENTED
#include "kernel.cuh"

// y[i,c] = x[rows[i] - first, c]
template <class T> struct GxPickRowsOp {
    T *y;
    const T *x;
    const int32_t *rows;
    int64_t first, C;
    template <int N> __device__ void at(int64_t i, int64_t c) const
    {
        float v[N];
        gx_load(v, x + (rows[i] - first) * C + c);
        gx_store(y + i * C + c, v);
    }
};
template <class T>
static void gx__cuda_pick_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n,
                               int64_t C)
{
    const GxPickRowsOp<T> op = {(T *)y, (const T *)x, rows, first, C};
    gx_each_row<T>(g, "pick_rows", op, n, C, gx_wide<T>(C, y, x));
}

void gx_cuda_pick_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                       GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_pick_rows, g, y, x, rows, first, n, C);
}

// y[rows[i] - first, c] += x[i,c]; rows are distinct, so each element has one writer
template <class T> struct GxAddRowsOp {
    T *y;
    const T *x;
    const int32_t *rows;
    int64_t first, C;
    template <int N> __device__ void at(int64_t i, int64_t c) const
    {
        T *row = y + (rows[i] - first) * C;
        float v[N], add[N];
        gx_load(v, row + c);
        gx_load(add, x + i * C + c);
        for (int j = 0; j < N; j++) v[j] += add[j];
        gx_store(row + c, v);
    }
};
template <class T>
static void gx__cuda_add_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n,
                              int64_t C)
{
    const GxAddRowsOp<T> op = {(T *)y, (const T *)x, rows, first, C};
    gx_each_row<T>(g, "add_rows", op, n, C, gx_wide<T>(C, y, x));
}

void gx_cuda_add_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                      GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_add_rows, g, y, x, rows, first, n, C);
}

// y[row,c] = x[t*B + b, c], if there is a page
template <class T> struct GxPutPagesOp {
    T *y;
    const T *x;
    const int32_t *pages;
    int64_t B, t_first, C;
    template <int N> __device__ void at(int64_t i, int64_t c) const
    {
        const int64_t row = gx_page_row(pages, t_first + i / B, B, i % B);
        float v[N];
        if (row < 0) return;
        gx_load(v, x + i * C + c);
        gx_store(y + row * C + c, v);
    }
};
template <class Type>
static void gx__cuda_put_pages(GxContext *g, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B,
                               int64_t t_first, int64_t C)
{
    const GxPutPagesOp<Type> op = {(Type *)y, (const Type *)x, pages, B, t_first, C};
    gx_each_row<Type>(g, "put_pages", op, T * B, C, gx_wide<Type>(C, y, x));
}

void gx_cuda_put_pages(GxContext *g, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B,
                       int64_t t_first, int64_t C, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_put_pages, g, y, x, pages, T, B, t_first, C);
}

// ---- means of rows -------------------------------------------------------------------------------------------------

// A part's column of the batch, and those of its positions that this rank has.
struct GxCudaPart {
    int64_t b, begin, end;
    float share; // 1/(end - begin) of the whole part; 0 if it is empty
};
static __device__ GxCudaPart gx__cuda_part(const int32_t *part, int64_t T, int64_t t_first)
{
    const int64_t begin = part[1], end = part[2], last = t_first + T;
    return {part[0], begin > t_first ? begin : t_first, end < last ? end : last,
            end > begin ? 1.0f / (float)(end - begin) : 0};
}

// y[i,c] = share * sum of x[(t - t_first)*B + b, c], in order of t. A thread adds up the rows of its own columns.
template <class T> struct GxMeanRowsForwardOp {
    T *y;
    const T *x;
    const int32_t *parts;
    int64_t positions, B, t_first, C;
    template <int N> __device__ void at(int64_t i, int64_t c) const
    {
        const GxCudaPart p = gx__cuda_part(parts + 3 * i, positions, t_first);
        float sum[N] = {}, v[N];
        for (int64_t t = p.begin; t < p.end; t++) {
            gx_load(v, x + ((t - t_first) * B + p.b) * C + c);
            for (int j = 0; j < N; j++) sum[j] += v[j];
        }
        for (int j = 0; j < N; j++) sum[j] *= p.share;
        gx_store(y + i * C + c, sum);
    }
};
template <class T>
static void gx__cuda_mean_rows_forward(GxContext *g, void *y, const void *x, const int32_t *parts, int64_t n,
                                       int64_t positions, int64_t B, int64_t t_first, int64_t C)
{
    const GxMeanRowsForwardOp<T> op = {(T *)y, (const T *)x, parts, positions, B, t_first, C};
    gx_each_row<T>(g, "mean_rows_forward", op, n, C, gx_wide<T>(C, y, x));
}

void gx_cuda_mean_rows_forward(GxContext *g, void *y, const void *x, const int32_t *parts, int64_t n, int64_t T,
                               int64_t B, int64_t t_first, int64_t C, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_mean_rows_forward, g, y, x, parts, n, T, B, t_first, C);
}

// dx[(t - t_first)*B + b, c] += dy[i,c] * share. `rows` are all (part, position) pairs. No two parts have a row in
// common, so each element has one writer.
template <class T> struct GxMeanRowsBackwardOp {
    T *dx;
    const T *dy;
    const int32_t *parts;
    int64_t positions, B, t_first, C;
    template <int N> __device__ void at(int64_t pair, int64_t c) const
    {
        const int64_t i = pair / positions, row = pair - i * positions, t = t_first + row;
        const GxCudaPart p = gx__cuda_part(parts + 3 * i, positions, t_first);
        if (t < p.begin || t >= p.end) return;
        float v[N], add[N];
        T *to = dx + (row * B + p.b) * C + c;
        gx_load(v, to);
        gx_load(add, dy + i * C + c);
        for (int j = 0; j < N; j++) v[j] += add[j] * p.share;
        gx_store(to, v);
    }
};
template <class T>
static void gx__cuda_mean_rows_backward(GxContext *g, void *dx, const void *dy, const int32_t *parts, int64_t n,
                                        int64_t positions, int64_t B, int64_t t_first, int64_t C)
{
    const GxMeanRowsBackwardOp<T> op = {(T *)dx, (const T *)dy, parts, positions, B, t_first, C};
    gx_each_row<T>(g, "mean_rows_backward", op, n * positions, C, gx_wide<T>(C, dx, dy));
}

void gx_cuda_mean_rows_backward(GxContext *g, void *dx, const void *dy, const int32_t *parts, int64_t n, int64_t T,
                                int64_t B, int64_t t_first, int64_t C, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_mean_rows_backward, g, dx, dy, parts, n, T, B, t_first, C);
}

// ---- rows of length one --------------------------------------------------------------------------------------------
// A block per row, with one thread per pack, at most 256; the row is read a second time from the cache. A thread reads
// an element for the second time before it writes there, so y may be x and dx may be dy.

// y[r,c] = x[r,c]/norm[r], norm[r] = max(|x[r,:]|, eps). norm NULL: not needed.
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_normalize_rows(T *y, float *norm, const T *x, int64_t R, int64_t C, float eps)
{
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        float squares = 0, v[N];
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, x + r * C + c);
            for (int i = 0; i < N; i++) squares += v[i] * v[i];
        }
        const float length = sqrtf(gx_block_sum(squares)), divisor = length < eps ? eps : length; // NaN stays NaN
        if (threadIdx.x == 0 && norm) norm[r] = divisor;
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, x + r * C + c);
            for (int i = 0; i < N; i++) v[i] /= divisor;
            gx_store(y + r * C + c, v);
        }
    }
}

// dx[r,c] = (dy[r,c] - y[r,c]*dot)/norm[r], dot = sum_j y[r,j]*dy[r,j]
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_normalize_backward_rows(T *dx, const T *dy, const T *y, const float *norm, int64_t R, int64_t C)
{
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        float part = 0, d[N], v[N];
        for (int64_t c = first; c < C; c += step) {
            gx_load(d, dy + r * C + c);
            gx_load(v, y + r * C + c);
            for (int i = 0; i < N; i++) part += d[i] * v[i];
        }
        const float dot = gx_block_sum(part), divisor = norm[r];
        for (int64_t c = first; c < C; c += step) {
            gx_load(d, dy + r * C + c);
            gx_load(v, y + r * C + c);
            for (int i = 0; i < N; i++) d[i] = (d[i] - v[i] * dot) / divisor;
            gx_store(dx + r * C + c, d);
        }
    }
}

template <class T>
static void gx__cuda_normalize_forward(GxContext *g, void *y, float *norm, const void *x, int64_t R, int64_t C,
                                       float eps)
{
    enum { N = GxPack<T>::N };
    const bool wide = gx_wide<T>(C, y, x);
    const unsigned blocks = gx_cuda_blocks(R);
    const int threads = gx_cuda_threads(gx_ceil_div(C, wide ? N : 1), GX_CUDA_BLOCK);
    const cudaStream_t stream = gx_cuda(g)->stream;
    if (wide)
        GX_LAUNCH((gx__cuda_normalize_rows<T, N>), blocks, threads, 0, stream, (T *)y, norm, (const T *)x, R, C, eps);
    else GX_LAUNCH((gx__cuda_normalize_rows<T, 1>), blocks, threads, 0, stream, (T *)y, norm, (const T *)x, R, C, eps);
    gx_cuda_check(g, "normalize_rows_forward");
}

void gx_cuda_normalize_rows_forward(GxContext *g, void *y, float *norm, const void *x, int64_t R, int64_t C, float eps,
                                    GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_normalize_forward, g, y, norm, x, R, C, eps);
}

template <class T>
static void gx__cuda_normalize_backward(GxContext *g, void *dx, const void *dy, const void *y, const float *norm,
                                        int64_t R, int64_t C)
{
    enum { N = GxPack<T>::N };
    const bool wide = gx_wide<T>(C, dx, dy, y);
    const unsigned blocks = gx_cuda_blocks(R);
    const int threads = gx_cuda_threads(gx_ceil_div(C, wide ? N : 1), GX_CUDA_BLOCK);
    const cudaStream_t stream = gx_cuda(g)->stream;
    T *out = (T *)dx;
    const T *d = (const T *)dy, *v = (const T *)y;
    if (wide) GX_LAUNCH((gx__cuda_normalize_backward_rows<T, N>), blocks, threads, 0, stream, out, d, v, norm, R, C);
    else GX_LAUNCH((gx__cuda_normalize_backward_rows<T, 1>), blocks, threads, 0, stream, out, d, v, norm, R, C);
    gx_cuda_check(g, "normalize_rows_backward");
}

void gx_cuda_normalize_rows_backward(GxContext *g, void *dx, const void *dy, const void *y, const float *norm,
                                     int64_t R, int64_t C, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_normalize_backward, g, dx, dy, y, norm, R, C);
}
#endif
