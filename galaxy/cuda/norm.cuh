// cuda/norm.cuh: ops/norm.h on the GPU.
#ifndef GX_CUDA_NORM_CUH
#define GX_CUDA_NORM_CUH
#include "../ops/norm.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C,
                              float eps, GxDtype dtype);
void gx_cuda_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                  const void *w, int64_t R, int64_t C, float eps, GxDtype dtype);
void gx_cuda_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                               const float *rstd, const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype,
                               float *scratch);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_NORM_IMPLEMENTED)
#define GX_CUDA_NORM_IMPLEMENTED
#include "kernel.cuh"
#include "linear.cuh" // gx__cuda_column_sum_finish

enum { GX_NORM_THREADS = 512 }; // at most; a row of 4096 bf16 is one pack for each

// y[r,c] = x[r,c] * rstd[r] * w[c],  rstd[r] = 1/sqrt(mean_c x[r,c]^2 + eps); of sum = x + a where there is a residual
// A block per row, with a thread per pack up to 512. The row is read once: it waits in shared memory (C*size bytes) for
// its rstd. A row that is longer than that is read again. a, sum NULL: no residual.
template <class T, int N>
static __global__ void __launch_bounds__(GX_NORM_THREADS)
    gx__cuda_rms_norm_rows(T *sum, T *y, float *rstd, const T *x, const T *a, const T *w, int64_t R, int64_t C,
                           float eps, int keep)
{
    GX_DYNAMIC_SHARED(T, row);
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *kept = keep ? row : (a ? sum : x) + r * C; // a thread reads back only what it wrote or read itself
        float squares = 0, v[N], u[N];
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, x + r * C + c);
            if (a) {
                gx_load(u, a + r * C + c);
                for (int i = 0; i < N; i++)
                    v[i] = gx_round<T>(v[i] + u[i]); // the norm is that of the sum as it is kept
                gx_store(sum + r * C + c, v);
            }
            if (keep) gx_store(row + c, v);
            for (int i = 0; i < N; i++) squares += v[i] * v[i];
        }
        const float scale = 1.0f / sqrtf(gx_block_sum(squares) / (float)C + eps);
        if (threadIdx.x == 0) rstd[r] = scale;
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, kept + c);
            gx_load(u, w + c);
            for (int i = 0; i < N; i++) v[i] = v[i] * scale * u[i];
            gx_store(y + r * C + c, v);
        }
    }
}

template <class T, int N>
static void gx__cuda_launch_norm_forward(GxContext *g, T *sum, T *y, float *rstd, const T *x, const T *a, const T *w,
                                         int64_t R, int64_t C, float eps)
{
    const int64_t bytes = C * (int64_t)sizeof(T), keep = bytes <= GX_CUDA_SHARED;
    GX_LAUNCH((gx__cuda_rms_norm_rows<T, N>), (unsigned)gx_min(R, GX_CUDA_MAX_GRID_X),
              gx_cuda_threads(gx_ceil_div(C, N), GX_NORM_THREADS), keep ? bytes : 0, gx_cuda(g)->stream, sum, y, rstd,
              x, a, w, R, C, eps, (int)keep);
}
template <class T>
static void gx__cuda_norm_forward(GxContext *g, const char *name, void *sum, void *y, float *rstd, const void *x,
                                  const void *a, const void *w, int64_t R, int64_t C, float eps)
{
    const T *from = (const T *)x, *add = (const T *)a, *weight = (const T *)w;
    if (gx_wide<T>(C, sum, y, x, a, w))
        gx__cuda_launch_norm_forward<T, GxPack<T>::N>(g, (T *)sum, (T *)y, rstd, from, add, weight, R, C, eps);
    else gx__cuda_launch_norm_forward<T, 1>(g, (T *)sum, (T *)y, rstd, from, add, weight, R, C, eps);
    gx_cuda_check(g, name);
}

void gx_cuda_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, int64_t R, int64_t C,
                              float eps, GxDtype dtype)
{
    const void *none = NULL;
    GX_CUDA_TYPES(dtype, gx__cuda_norm_forward, g, "rms_norm_forward", (void *)none, y, rstd, x, none, w, R, C, eps);
}

void gx_cuda_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                  const void *w, int64_t R, int64_t C, float eps, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_norm_forward, g, "add_rms_norm_forward", sum, y, rstd, x, a, w, R, C, eps);
}

// ---- backward ------------------------------------------------------------------------------------------------------
// dx[r,c] = dresidual[r,c] + dy[r,c]*w[c]*rstd[r] - x[r,c]*k[r],  k[r] = rstd[r]^3/C * sum_j dy[r,j]*w[j]*x[r,j]
// dw[c]   = (accumulate ? dw[c] : 0) + sum_r dy[r,c]*x[r,c]*rstd[r]
// A block takes GX_NORM_BLOCK rows, one after the other, gives their dx and its share of dw; then the shares are
// summed.

// Block b's share of dw grows in shared memory (C*4 bytes; each thread has columns of its own, so nobody waits), or,
// where it does not fit, where it is wanted: part[b, C]. The second reading of dy and x comes from the L1 cache. part
// NULL: dw is not wanted.
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_rms_norm_backward_rows(T *dx, float *part, const T *dy, const T *dresidual, const T *x, const float *rstd,
                                    const T *w, int64_t R, int64_t C, int shared_share)
{
    GX_DYNAMIC_SHARED(float, shared);
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N,
                  begin = (int64_t)blockIdx.x * GX_NORM_BLOCK;
    float *share = !part || shared_share ? shared : part + blockIdx.x * C;
    float d[N], v[N], u[N], s[N];
    for (int64_t r = begin; r < R && r < begin + GX_NORM_BLOCK; r++) {
        const T *dyr = dy + r * C, *xr = x + r * C;
        const float scale = rstd[r];
        float dot = 0;
        for (int64_t c = first; c < C; c += step) {
            gx_load(d, dyr + c);
            gx_load(v, xr + c);
            gx_load(u, w + c);
            for (int i = 0; i < N; i++) dot += d[i] * u[i] * v[i];
            if (!part) continue;
            for (int i = 0; i < N; i++) s[i] = (r > begin ? share[c + i] : 0) + d[i] * v[i] * scale;
            gx_store(share + c, s);
        }
        const float k = gx_block_sum(dot) * scale * scale * scale / (float)C;
        for (int64_t c = first; c < C; c += step) {
            gx_load(d, dyr + c);
            gx_load(v, xr + c);
            gx_load(u, w + c);
            for (int i = 0; i < N; i++) d[i] = d[i] * u[i] * scale - v[i] * k;
            if (dresidual) {
                gx_load(v, dresidual + r * C + c);
                for (int i = 0; i < N; i++) d[i] += v[i];
            }
            gx_store(dx + r * C + c, d);
        }
    }
    for (int64_t c = first; part && shared_share && c < C; c += step) {
        gx_load(s, share + c);
        gx_store(part + blockIdx.x * C + c, s);
    }
}

template <class T, int N>
static void gx__cuda_launch_norm_backward(GxContext *g, T *dx, float *part, const T *dy, const T *dresidual, const T *x,
                                          const float *rstd, const T *w, int64_t R, int64_t C)
{
    const int64_t bytes = part ? C * 4 : 0, fits = bytes <= GX_CUDA_SHARED;
    GX_LAUNCH((gx__cuda_rms_norm_backward_rows<T, N>), (unsigned)gx_ceil_div(R, GX_NORM_BLOCK),
              gx_cuda_threads(gx_ceil_div(C, N), GX_CUDA_BLOCK), fits ? bytes : 0, gx_cuda(g)->stream, dx, part, dy,
              dresidual, x, rstd, w, R, C, (int)fits);
}
template <class T>
static void gx__cuda_norm_backward(GxContext *g, void *dx, float *part, const void *dy, const void *dresidual,
                                   const void *x, const float *rstd, const void *w, int64_t R, int64_t C)
{
    T *out = (T *)dx;
    const T *d = (const T *)dy, *around = (const T *)dresidual, *in = (const T *)x, *weight = (const T *)w;
    if (gx_wide<T>(C, dx, part, dy, dresidual, x, w))
        gx__cuda_launch_norm_backward<T, GxPack<T>::N>(g, out, part, d, around, in, rstd, weight, R, C);
    else gx__cuda_launch_norm_backward<T, 1>(g, out, part, d, around, in, rstd, weight, R, C);
}

void gx_cuda_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                               const float *rstd, const void *w, int64_t R, int64_t C, int accumulate, GxDtype dtype,
                               float *scratch)
{
    float *part = dw ? scratch : NULL; // [blocks, C]
    GX_CUDA_TYPES(dtype, gx__cuda_norm_backward, g, dx, part, dy, dresidual, x, rstd, w, R, C);
    if (dw)
        GX_LAUNCH(gx__cuda_column_sum_finish, (unsigned)gx_ceil_div(C, GX_WARP), GX_CUDA_BLOCK, 0, gx_cuda(g)->stream,
                  dw, (const float *)part, gx_ceil_div(R, GX_NORM_BLOCK), C, accumulate);
    gx_cuda_check(g, "rms_norm_backward");
}
#endif
