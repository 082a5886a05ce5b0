// cpu/norm.h: ops/norm.h on the CPU.
#ifndef GX_CPU_NORM_H
#define GX_CPU_NORM_H
#include "../ops/norm.h"
GX_BEGIN

void gx_cpu_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, float offset, int64_t R,
                             int64_t C, float eps, GxDtype dtype);
void gx_cpu_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                 const void *w, float offset, int64_t R, int64_t C, float eps, GxDtype dtype);
void gx_cpu_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                              const float *rstd, const void *w, float offset, int64_t R, int64_t C, int accumulate,
                              GxDtype dtype, float *scratch);
void gx_cpu_head_norm_forward(GxContext *g, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *s);
void gx_cpu_head_norm_backward(GxContext *g, void *dx, float *dw, const void *kept, const float *rstd, const void *w,
                               const GxHeadNorm *s, int accumulate, float *scratch);
void gx_cpu_layer_norm_forward(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w,
                               const void *b, int64_t R, int64_t C, float eps, GxDtype dtype);
void gx_cpu_layer_norm_backward(GxContext *g, void *dx, float *dw, float *db, const void *dy, const void *x,
                                const float *mean, const float *rstd, const void *w, int64_t R, int64_t C,
                                int accumulate, GxDtype dtype, float *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_NORM_IMPLEMENTED)
#define GX_CPU_NORM_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "elementwise.h"
#include "team.h"
#include "vec.h"

// y[c] = x[c] * rstd * (w[c] + offset),  rstd = 1/sqrt(mean_c x[c]^2 + eps)
static GX_CPU_INLINE void gx__cpu_rms_norm_row(void *y, float *rstd, const void *x, const void *w, float offset,
                                               int64_t C, float eps, GxDtype dtype)
{
    float squares = 0;
    GX_OMP(simd reduction(+ : squares))
    for (int64_t c = 0; c < C; c++) squares += gx_cpu_load(x, c, dtype) * gx_cpu_load(x, c, dtype);
    float r = 1.0f / sqrtf(squares / (float)C + eps);
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++)
        gx_cpu_store(y, c, gx_cpu_load(x, c, dtype) * r * (gx_cpu_load(w, c, dtype) + offset), dtype);
    *rstd = r;
}

void gx_cpu_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, float offset, int64_t R,
                             int64_t C, float eps, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * C)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_rms_norm_row, gx_cpu_at(y, r * C, dtype), rstd + r, gx_cpu_from(x, r * C, dtype), w,
                     offset, C, eps);
}

// sum = x + a, y = rms_norm(sum): the norm is of the stored sum, which the backward will read.
static GX_CPU_INLINE void gx__cpu_add_rms_norm_row(void *sum, void *y, float *rstd, const void *x, const void *a,
                                                   const void *w, float offset, int64_t C, float eps, GxDtype dtype)
{
    gx__cpu_add_range(sum, x, a, C, dtype);
    gx__cpu_rms_norm_row(y, rstd, sum, w, offset, C, eps, dtype);
}

void gx_cpu_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                 const void *w, float offset, int64_t R, int64_t C, float eps, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * C)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_add_rms_norm_row, gx_cpu_at(sum, r * C, dtype), gx_cpu_at(y, r * C, dtype),
                     rstd + r, gx_cpu_from(x, r * C, dtype), gx_cpu_from(a, r * C, dtype), w, offset, C, eps);
}

// rstd*(w + offset)*dy - k*x: the norm's part of dx.
static GX_CPU_INLINE float gx__cpu_rms_norm_dx(const void *dy, const void *x, const void *w, float offset, int64_t c,
                                               float rstd, float k, GxDtype dtype)
{
    return gx_cpu_load(dy, c, dtype) * (gx_cpu_load(w, c, dtype) + offset) * rstd - gx_cpu_load(x, c, dtype) * k;
}

// with w for w + offset:
// dx[c]  = dresidual[c] + dy[c]*w[c]*rstd - x[c]*k,  k = rstd^3/C * sum_j dy[j]*w[j]*x[j]
// dw[c] += dy[c]*x[c]*rstd
static GX_CPU_INLINE void gx__cpu_rms_norm_backward_row(void *dx, float *dw, const void *dy, const void *dresidual,
                                                        const void *x, float rstd, const void *w, float offset,
                                                        int64_t C, GxDtype dtype)
{
    float dot = 0;
    GX_OMP(simd reduction(+ : dot))
    for (int64_t c = 0; c < C; c++)
        dot += gx_cpu_load(dy, c, dtype) * (gx_cpu_load(w, c, dtype) + offset) * gx_cpu_load(x, c, dtype);
    if (dw) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dw[c] += gx_cpu_load(dy, c, dtype) * gx_cpu_load(x, c, dtype) * rstd;
    }
    float k = dot * rstd * rstd * rstd / (float)C;
    if (dresidual) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++)
            gx_cpu_store(dx, c,
                         gx_cpu_load(dresidual, c, dtype) + gx__cpu_rms_norm_dx(dy, x, w, offset, c, rstd, k, dtype),
                         dtype);
    } else {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++)
            gx_cpu_store(dx, c, gx__cpu_rms_norm_dx(dy, x, w, offset, c, rstd, k, dtype), dtype);
    }
}

// sum[c] = (accumulate ? sum[c] : 0) + the shares [blocks,C], in order. sum NULL: not needed.
static void gx__cpu_add_shares(GxContext *g, float *sum, const float *shares, int64_t blocks, int64_t C, int accumulate)
{
    (void)g;
    const int64_t width = 64;
    if (!sum) return;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, blocks * C)))
    for (int64_t c0 = 0; c0 < C; c0 += width) {
        const int64_t n = gx_min(width, C - c0);
        if (!accumulate) memset(sum + c0, 0, (size_t)n * 4);
        for (int64_t b = 0; b < blocks; b++) {
            GX_OMP(simd)
            for (int64_t i = 0; i < n; i++) sum[c0 + i] += shares[b * C + c0 + i];
        }
    }
}

// The rows of a block yield a share of dw; dw is the sum of the shares, in order.
void gx_cpu_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                              const float *rstd, const void *w, float offset, int64_t R, int64_t C, int accumulate,
                              GxDtype dtype, float *scratch)
{
    (void)g;
    int64_t blocks = gx_ceil_div(R, GX_NORM_BLOCK);
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * C)))
    for (int64_t b = 0; b < blocks; b++) {
        float *part = dw ? scratch + b * C : NULL;
        if (part) memset(part, 0, (size_t)C * 4);
        for (int64_t r = b * GX_NORM_BLOCK; r < gx_min(R, (b + 1) * GX_NORM_BLOCK); r++)
            GX_CPU_TYPES(dtype, gx__cpu_rms_norm_backward_row, gx_cpu_at(dx, r * C, dtype), part,
                         gx_cpu_from(dy, r * C, dtype), gx_cpu_from(dresidual, r * C, dtype),
                         gx_cpu_from(x, r * C, dtype), rstd[r], w, offset, C);
    }
    gx__cpu_add_shares(g, dw, scratch, blocks, C, accumulate);
}

// ---- RMSNorm of heads ----------------------------------------------------------------------------------------------

void gx_cpu_head_norm_forward(GxContext *g, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *s)
{
    (void)g;
    const GxDtype dtype = s->dtype;
    const int64_t h = s->head_dim;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, s->R * s->heads * h)))
    for (int64_t i = 0; i < s->R * s->heads; i++) {
        const int64_t r = i / s->heads, c = i % s->heads * h;
        void *head = gx_cpu_at(x, r * s->stride + c, dtype), *before = gx_cpu_at(kept, r * s->kept_stride + c, dtype);
        memcpy(before, head, (size_t)(h * gx_dtype_size(dtype)));
        GX_CPU_TYPES(dtype, gx__cpu_rms_norm_row, head, rstd + i, before, w, s->offset, h, s->eps);
    }
}

// The heads of a block's rows yield a share of dw, as above.
void gx_cpu_head_norm_backward(GxContext *g, void *dx, float *dw, const void *kept, const float *rstd, const void *w,
                               const GxHeadNorm *s, int accumulate, float *scratch)
{
    const GxDtype dtype = s->dtype;
    const int64_t h = s->head_dim, heads = s->heads, blocks = gx_ceil_div(s->R, GX_NORM_BLOCK);
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, s->R * heads * h)))
    for (int64_t b = 0; b < blocks; b++) {
        float *part = dw ? scratch + b * h : NULL;
        if (part) memset(part, 0, (size_t)h * 4);
        for (int64_t i = b * GX_NORM_BLOCK * heads; i < gx_min(s->R, (b + 1) * GX_NORM_BLOCK) * heads; i++) {
            const int64_t r = i / heads, c = i % heads * h;
            void *d = gx_cpu_at(dx, r * s->stride + c, dtype);
            GX_CPU_TYPES(dtype, gx__cpu_rms_norm_backward_row, d, part, d, (const void *)NULL,
                         gx_cpu_from(kept, r * s->kept_stride + c, dtype), rstd[i], w, s->offset, h);
        }
    }
    gx__cpu_add_shares(g, dw, scratch, blocks, h, accumulate);
}

// ---- layer norm ----------------------------------------------------------------------------------------------------

// mean and 1/sqrt(variance + eps) of a row; the variance is computed in a second pass, after the mean is subtracted.
static GX_CPU_INLINE void gx__cpu_layer_norm_statistics(float *mean, float *rstd, const void *x, int64_t C, float eps,
                                                        GxDtype dtype)
{
    float sum = 0, squares = 0;
    GX_OMP(simd reduction(+ : sum))
    for (int64_t c = 0; c < C; c++) sum += gx_cpu_load(x, c, dtype);
    const float m = sum / (float)C;
    GX_OMP(simd reduction(+ : squares))
    for (int64_t c = 0; c < C; c++) squares += (gx_cpu_load(x, c, dtype) - m) * (gx_cpu_load(x, c, dtype) - m);
    *mean = m;
    *rstd = 1.0f / sqrtf(squares / (float)C + eps);
}

// y[c] = (x[c] - mean) * rstd * w[c] + b[c]. mean, rstd NULL: not needed.
static GX_CPU_INLINE void gx__cpu_layer_norm_row(void *y, float *mean, float *rstd, const void *x, const void *w,
                                                 const void *b, int64_t C, float eps, GxDtype dtype)
{
    float m, s;
    gx__cpu_layer_norm_statistics(&m, &s, x, C, eps, dtype);
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++)
        gx_cpu_store(y, c, (gx_cpu_load(x, c, dtype) - m) * s * gx_cpu_load(w, c, dtype) + gx_cpu_load(b, c, dtype),
                     dtype);
    if (mean) *mean = m;
    if (rstd) *rstd = s;
}

void gx_cpu_layer_norm_forward(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w,
                               const void *b, int64_t R, int64_t C, float eps, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * C)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_layer_norm_row, gx_cpu_at(y, r * C, dtype), mean ? mean + r : NULL,
                     rstd ? rstd + r : NULL, gx_cpu_from(x, r * C, dtype), w, b, C, eps);
}

// A row of the backward: with n = (x - mean)*rstd and d = dy*w, the means of d and of d*n.
typedef struct {
    float mean, rstd, d, dn;
} GxCpuLayerNorm;

static GX_CPU_INLINE GxCpuLayerNorm gx__cpu_layer_norm_sums(const void *dy, const void *x, float mean, float rstd,
                                                            const void *w, int64_t C, GxDtype dtype)
{
    float sum = 0, dot = 0;
    GX_OMP(simd reduction(+ : sum, dot))
    for (int64_t c = 0; c < C; c++) {
        const float d = gx_cpu_load(dy, c, dtype) * gx_cpu_load(w, c, dtype);
        sum += d;
        dot += d * ((gx_cpu_load(x, c, dtype) - mean) * rstd);
    }
    GxCpuLayerNorm row;
    row.mean = mean, row.rstd = rstd;
    row.d = sum / (float)C, row.dn = dot / (float)C;
    return row;
}

// dx[c] = rstd * (d[c] - mean of d - n[c] * mean of d*n)
static GX_CPU_INLINE float gx__cpu_layer_norm_dx(const GxCpuLayerNorm *row, const void *dy, const void *x,
                                                 const void *w, int64_t c, GxDtype dtype)
{
    const float d = gx_cpu_load(dy, c, dtype) * gx_cpu_load(w, c, dtype);
    const float n = (gx_cpu_load(x, c, dtype) - row->mean) * row->rstd;
    return row->rstd * (d - row->d - n * row->dn);
}

// dw[c] += dy[c]*n[c], db[c] += dy[c]; NULL: not needed
static GX_CPU_INLINE void gx__cpu_layer_norm_weights(float *dw, float *db, const void *dy, const void *x, float mean,
                                                     float rstd, int64_t C, GxDtype dtype)
{
    if (dw) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) dw[c] += gx_cpu_load(dy, c, dtype) * ((gx_cpu_load(x, c, dtype) - mean) * rstd);
    }
    if (db) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) db[c] += gx_cpu_load(dy, c, dtype);
    }
}

static GX_CPU_INLINE void gx__cpu_layer_norm_backward_row(void *dx, float *dw, float *db, const void *dy, const void *x,
                                                          float mean, float rstd, const void *w, int64_t C,
                                                          GxDtype dtype)
{
    gx__cpu_layer_norm_weights(dw, db, dy, x, mean, rstd, C, dtype);
    if (!dx) return;
    const GxCpuLayerNorm row = gx__cpu_layer_norm_sums(dy, x, mean, rstd, w, C, dtype);
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++) gx_cpu_store(dx, c, gx__cpu_layer_norm_dx(&row, dy, x, w, c, dtype), dtype);
}

// Zeroed shares of block b, one after another, for the sums that are needed (not NULL): share i is that of sum i.
static inline void gx__cpu_shares(float *share[], float *const sum[], int n, float *scratch, int64_t b, int64_t blocks,
                                  int64_t C)
{
    for (int i = 0; i < n; i++) {
        share[i] = sum[i] ? scratch + b * C : NULL;
        if (sum[i]) memset(share[i], 0, (size_t)C * 4), scratch += blocks * C;
    }
}
static inline void gx__cpu_add_all_shares(GxContext *g, float *const sum[], int n, const float *scratch, int64_t blocks,
                                          int64_t C, int accumulate)
{
    for (int i = 0; i < n; i++) {
        gx__cpu_add_shares(g, sum[i], scratch, blocks, C, accumulate);
        if (sum[i]) scratch += blocks * C;
    }
}

void gx_cpu_layer_norm_backward(GxContext *g, void *dx, float *dw, float *db, const void *dy, const void *x,
                                const float *mean, const float *rstd, const void *w, int64_t R, int64_t C,
                                int accumulate, GxDtype dtype, float *scratch)
{
    float *const sums[2] = {dw, db};
    const int64_t blocks = gx_ceil_div(R, GX_NORM_BLOCK);
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * C)))
    for (int64_t k = 0; k < blocks; k++) {
        float *share[2];
        gx__cpu_shares(share, sums, 2, scratch, k, blocks, C);
        for (int64_t r = k * GX_NORM_BLOCK; r < gx_min(R, (k + 1) * GX_NORM_BLOCK); r++)
            GX_CPU_TYPES(dtype, gx__cpu_layer_norm_backward_row, gx_cpu_at(dx, r * C, dtype), share[0], share[1],
                         gx_cpu_from(dy, r * C, dtype), gx_cpu_from(x, r * C, dtype), mean[r], rstd[r], w, C);
    }
    gx__cpu_add_all_shares(g, sums, 2, scratch, blocks, C, accumulate);
}
#endif
