// cuda/columns.cuh: ops/columns.h on the GPU.
#ifndef GX_CUDA_COLUMNS_CUH
#define GX_CUDA_COLUMNS_CUH
#include "../ops/columns.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_scale_columns_forward(GxContext *g, void *y, const void *x, const void *s, const GxColumns *n);
void gx_cuda_scale_columns_backward(GxContext *g, void *dx, float *ds, float *db, const void *dy, const void *x,
                                    const void *s, const GxColumns *n, int accumulate, float *scratch);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_COLUMNS_IMPLEMENTED)
#define GX_CUDA_COLUMNS_IMPLEMENTED
#include "linear.cuh" // gx__cuda_column_sums_finish

// y[r,c] = x[r,c]*s[c]
template <class T> struct GxScaleColumnsOp {
    T *y;
    const T *x, *s;
    int64_t stride;
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        float v[N], u[N];
        gx_load(v, x + r * stride + c);
        gx_load(u, s + c);
        for (int i = 0; i < N; i++) v[i] *= u[i];
        gx_store(y + r * stride + c, v);
    }
};
template <class T>
static void gx__cuda_scale_columns(GxContext *g, const char *name, void *y, const void *x, const void *s,
                                   const GxColumns *n)
{
    const GxScaleColumnsOp<T> op = {(T *)y, (const T *)x, (const T *)s, n->stride};
    gx_each_row<T>(g, name, op, n->R, n->C, gx_wide<T>(n->C, y, x, s) && n->stride % GxPack<T>::N == 0);
}

void gx_cuda_scale_columns_forward(GxContext *g, void *y, const void *x, const void *s, const GxColumns *n)
{
    GX_CUDA_TYPES(n->dtype, gx__cuda_scale_columns, g, "scale_columns_forward", y, x, s, n);
}

// Block (b, .) sums its columns over GX_COLUMNS_BLOCK rows: ds[b,c] = sum_r dy[r,c]*x[r,c], db[b,c] = s[c] * sum_r
// dy[r,c]. NULL: not needed.
template <class T> struct GxColumnSharesOp {
    float *ds, *db;
    const T *dy, *x, *s;
    GxColumns n;
    template <int N> __device__ void at(int64_t b, int64_t c) const
    {
        const int64_t begin = b * GX_COLUMNS_BLOCK,
                      end = n.R - begin < GX_COLUMNS_BLOCK ? n.R : begin + GX_COLUMNS_BLOCK;
        float d[N], v[N], of_s[N], of_b[N];
        for (int i = 0; i < N; i++) of_s[i] = of_b[i] = 0;
        for (int64_t r = begin; r < end; r++) {
            gx_load(d, dy + r * n.stride + c);
            for (int i = 0; i < N; i++) of_b[i] += d[i];
            if (!ds) continue;
            gx_load(v, x + r * n.stride + c);
            for (int i = 0; i < N; i++) of_s[i] += d[i] * v[i];
        }
        gx_load(v, s + c);
        for (int i = 0; i < N; i++) of_b[i] *= v[i];
        if (ds) gx_store(ds + b * n.C + c, of_s);
        if (db) gx_store(db + b * n.C + c, of_b);
    }
};
template <class T>
static void gx__cuda_column_shares(GxContext *g, float *ds, float *db, const void *dy, const void *x, const void *s,
                                   const GxColumns *n)
{
    const GxColumnSharesOp<T> op = {ds, db, (const T *)dy, (const T *)x, (const T *)s, *n};
    gx_each_row<T>(g, "scale_columns_backward", op, gx_ceil_div(n->R, GX_COLUMNS_BLOCK), n->C,
                   gx_wide<T>(n->C, ds, db, dy, ds ? x : NULL, s) && n->stride % GxPack<T>::N == 0);
}

// dx may be dy, so it is computed last.
void gx_cuda_scale_columns_backward(GxContext *g, void *dx, float *ds, float *db, const void *dy, const void *x,
                                    const void *s, const GxColumns *n, int accumulate, float *scratch)
{
    const int64_t blocks = gx_ceil_div(n->R, GX_COLUMNS_BLOCK);
    float *const of_s = ds ? scratch : NULL,
                 *const of_b = db ? scratch + (ds ? blocks * n->C : 0) : NULL; // [blocks, C] each
    const GxCudaColumnSums sum = {{ds, db}, {of_s, of_b}};
    if (ds || db) GX_CUDA_TYPES(n->dtype, gx__cuda_column_shares, g, of_s, of_b, dy, x, s, n);
    gx__cuda_column_sums_finish(g, &sum, blocks, n->C, accumulate);
    gx_cuda_check(g, "scale_columns_backward");
    if (dx) GX_CUDA_TYPES(n->dtype, gx__cuda_scale_columns, g, "scale_columns_backward", dx, dy, s, n);
}
#endif
