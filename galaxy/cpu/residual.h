// cpu/residual.h: ops/residual.h on the CPU.
#ifndef GX_CPU_RESIDUAL_H
#define GX_CPU_RESIDUAL_H
#include "../ops/residual.h"
GX_BEGIN

void gx_cpu_residual_forward(GxContext *g, void *y, void *sum, float *mean, float *rstd, const void *x, const void *out,
                             const GxResidual *r);
void gx_cpu_residual_backward(GxContext *g, void *dx, void *dout, float *dbias, float *dw, float *db, const void *dy,
                              const void *sum, const float *mean, const float *rstd, const GxResidual *r,
                              int accumulate, float *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_RESIDUAL_IMPLEMENTED)
#define GX_CPU_RESIDUAL_IMPLEMENTED
#include <string.h>
#include "dropout.h"
#include "norm.h"
#include "team.h"
#include "team.h"
#include "vec.h"

// v[i] = kept ? v[i]/(1 - p) : 0, for the n elements from Philox call `first` on
static GX_CPU_INLINE void gx__cpu_drop(float *v, const GxCpuRandom *d, uint64_t first, int64_t n)
{
    uint32_t words[GX__CPU_CHUNK_COLS];
    const uint32_t threshold = d->threshold;
    const float scale = d->scale;
    if (!d->drops) return;
    gx__cpu_random_words(words, d, first, n);
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) v[i] = words[i] >= threshold ? v[i] * scale : 0;
}

// sum[c] = x[c] + dropout(out[c] + bias[c]), in chunks that stay in fp32 until they are stored
static GX_CPU_INLINE void gx__cpu_residual_sum_row(void *sum, const void *x, const void *out, const void *bias,
                                                   int64_t C, const GxCpuRandom *d, uint64_t first, GxDtype dtype)
{
    float v[GX__CPU_CHUNK_COLS];
    for (int64_t c = 0; c < C; c += GX__CPU_CHUNK_COLS) {
        const int64_t n = gx_min(GX__CPU_CHUNK_COLS, C - c);
        GX_OMP(simd)
        for (int64_t i = 0; i < n; i++)
            v[i] = gx_cpu_load(out, c + i, dtype) + (bias ? gx_cpu_load(bias, c + i, dtype) : 0);
        gx__cpu_drop(v, d, first + (uint64_t)c / 4, n);
        GX_OMP(simd)
        for (int64_t i = 0; i < n; i++) gx_cpu_store(sum, c + i, gx_cpu_load(x, c + i, dtype) + v[i], dtype);
    }
}

// If the sum is not needed, it is in y until the norm overwrites it.
static GX_CPU_INLINE void gx__cpu_residual_row(void *y, void *sum, float *mean, float *rstd, const void *x,
                                               const void *out, const GxResidual *r, const GxCpuRandom *d,
                                               uint64_t first, GxDtype dtype)
{
    void *kept = sum ? sum : y;
    gx__cpu_residual_sum_row(kept, x, out, r->bias, r->C, d, first, dtype);
    if (r->w) gx__cpu_layer_norm_row(y, mean, rstd, kept, r->w, r->b, r->C, r->eps, dtype);
    else if (kept != y) memcpy(y, kept, (size_t)(r->C * gx_dtype_size(dtype)));
}

void gx_cpu_residual_forward(GxContext *g, void *y, void *sum, float *mean, float *rstd, const void *x, const void *out,
                             const GxResidual *r)
{
    const GxCpuRandom random = gx__cpu_random(g, &r->dropout);
    const int64_t C = r->C;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, r->R * C)))
    for (int64_t i = 0; i < r->R; i++)
        GX_CPU_TYPES(r->dtype, gx__cpu_residual_row, gx_cpu_at(y, i * C, r->dtype), gx_cpu_at(sum, i * C, r->dtype),
                     mean ? mean + i : NULL, rstd ? rstd + i : NULL, gx_cpu_from(x, i * C, r->dtype),
                     gx_cpu_from(out, i * C, r->dtype), r, &random, gx__cpu_first_random(&random, &r->dropout, i, C));
}

// v[i] = layer_norm'(dy), from column c on; without a norm dy
static GX_CPU_INLINE void gx__cpu_residual_dx(float *v, const GxCpuLayerNorm *row, const void *dy, const void *sum,
                                              const void *w, int64_t c, int64_t n, GxDtype dtype)
{
    if (w) {
        GX_OMP(simd)
        for (int64_t i = 0; i < n; i++) v[i] = gx__cpu_layer_norm_dx(row, dy, sum, w, c + i, dtype);
    } else {
        GX_OMP(simd)
        for (int64_t i = 0; i < n; i++) v[i] = gx_cpu_load(dy, c + i, dtype);
    }
}
static GX_CPU_INLINE void gx__cpu_store_chunk(void *y, const float *v, int64_t c, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) gx_cpu_store(y, c + i, v[i], dtype);
}

// dx = layer_norm'(dy), dout = dropout'(dx), dbias += dout, each from one value in fp32
static GX_CPU_INLINE void gx__cpu_residual_backward_row(void *dx, void *dout, float *dbias, const void *dy,
                                                        const void *sum, float mean, float rstd, const GxResidual *r,
                                                        const GxCpuRandom *d, uint64_t first, GxDtype dtype)
{
    GxCpuLayerNorm row = GX_ZERO;
    float v[GX__CPU_CHUNK_COLS];
    if (r->w) row = gx__cpu_layer_norm_sums(dy, sum, mean, rstd, r->w, r->C, dtype);
    for (int64_t c = 0; c < r->C; c += GX__CPU_CHUNK_COLS) {
        const int64_t n = gx_min(GX__CPU_CHUNK_COLS, r->C - c);
        gx__cpu_residual_dx(v, &row, dy, sum, r->w, c, n, dtype);
        if (dx) gx__cpu_store_chunk(dx, v, c, n, dtype);
        if (!dout && !dbias) continue;
        gx__cpu_drop(v, d, first + (uint64_t)c / 4, n);
        if (dout && dout != dx) gx__cpu_store_chunk(dout, v, c, n, dtype);
        GX_OMP(simd)
        for (int64_t i = 0; i < (dbias ? n : 0); i++) dbias[c + i] += v[i];
    }
}

void gx_cpu_residual_backward(GxContext *g, void *dx, void *dout, float *dbias, float *dw, float *db, const void *dy,
                              const void *sum, const float *mean, const float *rstd, const GxResidual *r,
                              int accumulate, float *scratch)
{
    float *const sums[3] = {dbias, dw, db};
    const GxCpuRandom random = gx__cpu_random(g, &r->dropout);
    const int64_t C = r->C, blocks = gx_ceil_div(r->R, GX_NORM_BLOCK);
    const GxDtype type = r->dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, r->R * C)))
    for (int64_t k = 0; k < blocks; k++) {
        float *share[3];
        gx__cpu_shares(share, sums, 3, scratch, k, blocks, C);
        for (int64_t i = k * GX_NORM_BLOCK; i < gx_min(r->R, (k + 1) * GX_NORM_BLOCK); i++) {
            const void *d = gx_cpu_from(dy, i * C, type), *s = gx_cpu_from(sum, i * C, type);
            const float m = r->w ? mean[i] : 0, scale = r->w ? rstd[i] : 0;
            if (r->w) GX_CPU_TYPES(type, gx__cpu_layer_norm_weights, share[1], share[2], d, s, m, scale, C);
            GX_CPU_TYPES(type, gx__cpu_residual_backward_row, gx_cpu_at(dx, i * C, type), gx_cpu_at(dout, i * C, type),
                         share[0], d, s, m, scale, r, &random, gx__cpu_first_random(&random, &r->dropout, i, C));
        }
    }
    gx__cpu_add_all_shares(g, sums, 3, scratch, blocks, C, accumulate);
}
#endif
