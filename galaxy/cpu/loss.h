// cpu/loss.h: ops/loss.h on the CPU: a row of logits stays in the cache for its three passes (maximum, exp and sum,
// scale), and a fourth where labels are smoothed.
//
// The steps for a part of the vocabulary consist of the same passes, so that in steps and at once the whole vocabulary
// gets the same bits.
#ifndef GX_CPU_LOSS_H
#define GX_CPU_LOSS_H
#include "../ops/loss.h"
GX_BEGIN

void gx_cpu_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels,
                          int64_t R, int64_t V, const int64_t *count, const float *weights, float smoothing,
                          GxDtype dtype);
void gx_cpu_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V,
                                  GxDtype dtype);
void gx_cpu_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum,
                               const int32_t *labels, const GxVocabPart *part, GxDtype dtype);
void gx_cpu_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums,
                                 const int32_t *labels, const GxVocabPart *part, const int64_t *count,
                                 const float *weights, GxDtype dtype);

void gx_cpu_squared_error(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                          int64_t R, int64_t V, const int64_t *count, GxDtype dtype);
void gx_cpu_binary_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                                 int64_t R, int64_t V, const int64_t *count, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_LOSS_IMPLEMENTED)
#define GX_CPU_LOSS_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "vec.h"

// 1/count, or 0 if there are no labels; 1 if count is NULL or not needed.
static float gx__cpu_loss_scale(const int64_t *count, int is_needed)
{
    if (!count || !is_needed) return 1;
    return *count ? 1.0f / (float)*count : 0;
}

// max_i x[i]
static GX_CPU_INLINE float gx__cpu_row_maximum(const void *x, int64_t n, GxDtype dtype)
{
    float m = gx_cpu_load(x, 0, dtype);
    GX_OMP(simd reduction(max : m))
    for (int64_t i = 0; i < n; i++) m = gx_cpu_load(x, i, dtype) > m ? gx_cpu_load(x, i, dtype) : m;
    return m;
}

// exps[i] = exp(x[i] - m). Returns the sum of the exps before they are rounded to the type; exps may be x or NULL.
static GX_CPU_INLINE float gx__cpu_row_exps(void *exps, const void *x, float m, int64_t n, GxDtype dtype)
{
    float sum = 0;
    if (exps) {
        GX_OMP(simd reduction(+ : sum))
        for (int64_t i = 0; i < n; i++) {
            float e = gx_cpu_exp(gx_cpu_load(x, i, dtype) - m);
            gx_cpu_store(exps, i, e, dtype);
            sum += e;
        }
    } else {
        GX_OMP(simd reduction(+ : sum))
        for (int64_t i = 0; i < n; i++) sum += gx_cpu_exp(gx_cpu_load(x, i, dtype) - m);
    }
    return sum;
}

// sum_i (x[i] - m), 0 if labels are not smoothed
static GX_CPU_INLINE float gx__cpu_row_total(const void *x, float m, float smoothing, int64_t n, GxDtype dtype)
{
    float total = 0;
    if (smoothing == 0) return 0;
    GX_OMP(simd reduction(+ : total))
    for (int64_t i = 0; i < n; i++) total += gx_cpu_load(x, i, dtype) - m;
    return total;
}

// The logit that a smoothed label stands for, minus the maximum: (1 - smoothing)*target + smoothing*total/vocab_size
static GX_CPU_INLINE float gx__cpu_smoothed(float target, float total, float smoothing, int64_t vocab_size)
{
    return (1 - smoothing) * target + smoothing / (float)vocab_size * total;
}

// dx[i] = scale * (exps[i]/sum - (1 - smoothing)*[i = label] - smoothing/vocab_size)
// label: it may be outside; target: its logit minus the maximum. If exps were rounded, the label's is recomputed,
// because exps/sum - 1 may cancel.
static GX_CPU_INLINE void gx__cpu_row_gradient(void *dx, const void *exps, float sum, int64_t label, float target,
                                               float scale, float smoothing, int64_t vocab_size, int64_t n,
                                               GxDtype dtype)
{
    const float k = scale / sum, even = scale * smoothing / (float)vocab_size, own = scale * (1 - smoothing);
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) gx_cpu_store(dx, i, gx_cpu_load(exps, i, dtype) * k - even, dtype);
    if (label >= 0 && label < n)
        gx_cpu_store(dx, label,
                     dtype == GX_F32 ? gx_cpu_load(dx, label, dtype) - own : gx_cpu_exp(target) * k - (even + own),
                     dtype);
}

// 1: the label counts; 0: it is ignored, or it is invalid, which is an error.
static int gx__cpu_label_counts(GxContext *g, int32_t label, int64_t row, int64_t vocab_size)
{
    if (label >= 0 && label < vocab_size) return 1;
    if (label != GX_IGNORE_INDEX)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "label %d in row %ld; labels are 0 to %ld, or %d for those that do not count", (int)label, (long)row,
                (long)vocab_size - 1, GX_IGNORE_INDEX);
    return 0;
}

// loss = log(sum_v exp(x[v] - m)) - smoothed(x[label] - m),  m = max_v x[v]
static GX_CPU_INLINE void gx__cpu_cross_entropy_row(float *loss, void *dx, const void *x, int32_t label, int64_t V,
                                                    float scale, float smoothing, GxDtype dtype)
{
    // read before dx, which may be x, is written
    float m = gx__cpu_row_maximum(x, V, dtype), target = gx_cpu_load(x, label, dtype) - m,
          total = gx__cpu_row_total(x, m, smoothing, V, dtype);
    float sum = gx__cpu_row_exps(dx, x, m, V, dtype);
    *loss = logf(sum) - gx__cpu_smoothed(target, total, smoothing, V);
    if (dx) gx__cpu_row_gradient(dx, dx, sum, label, target, scale, smoothing, V, V, dtype);
}

void gx_cpu_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels,
                          int64_t R, int64_t V, const int64_t *count, const float *weights, float smoothing,
                          GxDtype dtype)
{
    const float scale = gx__cpu_loss_scale(count, dlogits != NULL);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        void *dx = gx_cpu_at(dlogits, r * V, dtype);
        losses[r] = 0;
        if (gx__cpu_label_counts(g, labels[r], r, V))
            GX_CPU_TYPES(dtype, gx__cpu_cross_entropy_row, losses + r, dx, gx_cpu_from(logits, r * V, dtype), labels[r],
                         V, scale * (weights ? weights[r] : 1), smoothing);
        else if (dx) memset(dx, 0, (size_t)(V * gx_dtype_size(dtype)));
    }
}

static GX_CPU_INLINE void gx__cpu_maximum_row(float *maximum, const void *x, int64_t V, GxDtype dtype)
{
    *maximum = gx__cpu_row_maximum(x, V, dtype);
}

void gx_cpu_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_maximum_row, maximum + r, gx_cpu_from(logits, r * V, dtype), V);
}

// sum = sum_v exps[v],  target = x[label] - maximum, 0 if the label is not in this part;
// total = sum_v (x[v] - maximum), NULL: labels are not smoothed
static GX_CPU_INLINE void gx__cpu_sums_row(float *sum, float *target, float *total, void *exps, const void *x,
                                           float maximum, int64_t label, int64_t V, GxDtype dtype)
{
    // read before exps, which may be x, is written
    *target = label >= 0 && label < V ? gx_cpu_load(x, label, dtype) - maximum : 0;
    if (total) *total = gx__cpu_row_total(x, maximum, 1, V, dtype);
    *sum = gx__cpu_row_exps(exps, x, maximum, V, dtype);
}

void gx_cpu_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum,
                               const int32_t *labels, const GxVocabPart *part, GxDtype dtype)
{
    const int64_t R = part->R, V = part->V;
    float *totals = part->smoothing != 0 ? sums + 2 * R : NULL;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        const int64_t label = gx__cpu_label_counts(g, labels[r], r, part->vocab_size) ? labels[r] - part->v_begin : -1;
        GX_CPU_TYPES(dtype, gx__cpu_sums_row, sums + r, sums + R + r, totals ? totals + r : NULL,
                     gx_cpu_at(exps, r * V, dtype), gx_cpu_from(logits, r * V, dtype), maximum[r], label, V);
    }
}

// losses[r] = log(sums[r]) - smoothed(sums[R + r])
void gx_cpu_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums,
                                 const int32_t *labels, const GxVocabPart *part, const int64_t *count,
                                 const float *weights, GxDtype dtype)
{
    (void)g;
    const int64_t R = part->R, V = part->V;
    const float scale = gx__cpu_loss_scale(count, dlogits != NULL), smoothing = part->smoothing;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        const int counts = labels[r] != GX_IGNORE_INDEX;
        const float total = smoothing != 0 ? sums[2 * R + r] : 0;
        void *dx = gx_cpu_at(dlogits, r * V, dtype);
        losses[r] = counts ? logf(sums[r]) - gx__cpu_smoothed(sums[R + r], total, smoothing, part->vocab_size) : 0;
        if (dx && counts)
            GX_CPU_TYPES(dtype, gx__cpu_row_gradient, dx, gx_cpu_from(exps, r * V, dtype), sums[r],
                         labels[r] - part->v_begin, sums[R + r], scale * (weights ? weights[r] : 1), smoothing,
                         part->vocab_size, V);
        else if (dx) memset(dx, 0, (size_t)(V * gx_dtype_size(dtype)));
    }
}

// loss = sum_v (x[v] - t[v])^2, dx[v] = scale * 2*(x[v] - t[v])
static GX_CPU_INLINE void gx__cpu_squared_error_row(float *loss, void *dx, const void *x, const float *t, int64_t V,
                                                    float scale, GxDtype dtype)
{
    float sum = 0;
    GX_OMP(simd reduction(+ : sum))
    for (int64_t v = 0; v < V; v++) sum += (gx_cpu_load(x, v, dtype) - t[v]) * (gx_cpu_load(x, v, dtype) - t[v]);
    *loss = sum;
    if (!dx) return;
    GX_OMP(simd)
    for (int64_t v = 0; v < V; v++) gx_cpu_store(dx, v, scale * 2 * (gx_cpu_load(x, v, dtype) - t[v]), dtype);
}

void gx_cpu_squared_error(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                          int64_t R, int64_t V, const int64_t *count, GxDtype dtype)
{
    (void)g;
    const float scale = gx__cpu_loss_scale(count, dlogits != NULL);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_squared_error_row, losses + r, gx_cpu_at(dlogits, r * V, dtype),
                     gx_cpu_from(logits, r * V, dtype), targets + r * V, V, scale);
}

// loss = sum_v max(z,0) - z*t + log(1 + exp(-|z|)), dx[v] = scale * (1/(1 + exp(-z)) - t), z = x[v]
static GX_CPU_INLINE void gx__cpu_binary_row(float *loss, void *dx, const void *x, const float *t, int64_t V,
                                             float scale, GxDtype dtype)
{
    float sum = 0;
    for (int64_t v = 0; v < V; v++) {
        const float z = gx_cpu_load(x, v, dtype), a = z < 0 ? -z : z;
        sum += (z > 0 ? z : 0) - z * t[v] + log1pf(gx_cpu_exp(-a));
    }
    *loss = sum;
    if (!dx) return;
    GX_OMP(simd)
    for (int64_t v = 0; v < V; v++)
        gx_cpu_store(dx, v, scale * (1.0f / (1.0f + gx_cpu_exp(-gx_cpu_load(x, v, dtype))) - t[v]), dtype);
}

void gx_cpu_binary_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                                 int64_t R, int64_t V, const int64_t *count, GxDtype dtype)
{
    (void)g;
    const float scale = gx__cpu_loss_scale(count, dlogits != NULL);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_binary_row, losses + r, gx_cpu_at(dlogits, r * V, dtype),
                     gx_cpu_from(logits, r * V, dtype), targets + r * V, V, scale);
}
#endif
