// cpu/rope.h: ops/rope.h on the CPU.
#ifndef GX_CPU_ROPE_H
#define GX_CPU_ROPE_H
#include "../ops/rope.h"
GX_BEGIN

void gx_cpu_rope(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs,
                 const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride, int direction,
                 GxDtype dtype);
void gx_cpu_text_positions(GxContext *g, int32_t *positions, const GxRuns *runs, const int32_t *documents, int64_t B);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ROPE_IMPLEMENTED)
#define GX_CPU_ROPE_IMPLEMENTED
#include "team.h"
#include "vec.h"

// (x[i], x[half+i]) = (x[i]*cos - x[half+i]*sin, x[i]*sin + x[half+i]*cos); sign -1: the inverse
static GX_CPU_INLINE void gx__cpu_rope_head(void *x, const float *c, const float *s, int64_t half, float sign,
                                            GxDtype dtype)
{
    // bf16 would go in steps of 32 with the rest one by one, but half a head is often not a multiple of 32
    GX_OMP(simd simdlen(16))
    for (int64_t i = 0; i < half; i++) {
        float u = gx_cpu_load(x, i, dtype), v = gx_cpu_load(x, half + i, dtype), si = sign * s[i];
        gx_cpu_store(x, i, u * c[i] - v * si, dtype);
        gx_cpu_store(x, half + i, u * si + v * c[i], dtype);
    }
}

void gx_cpu_rope(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs,
                 const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride, int direction,
                 GxDtype dtype)
{
    (void)g;
    int64_t R = gx_runs_rows(runs) * B, half = head_dim / 2;
    float sign = direction > 0 ? 1.0f : -1.0f;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * heads * head_dim)))
    for (int64_t r = 0; r < R; r++) {
        int64_t position = gx_runs_position(runs, r / B);
        if (documents) position = documents[2 * (position * B + r % B)];
        const float *c = cosine + position * half, *s = sine + position * half;
        for (int64_t h = 0; h < heads; h++)
            GX_CPU_TYPES(dtype, gx__cpu_rope_head, gx_cpu_at(x, r * stride + h * head_dim, dtype), c, s, half, sign);
    }
}

void gx_cpu_text_positions(GxContext *g, int32_t *positions, const GxRuns *runs, const int32_t *documents, int64_t B)
{
    const int64_t R = gx_runs_rows(runs) * B;
    (void)g;
    for (int64_t r = 0; r < R; r++) {
        const int64_t position = gx_runs_position(runs, r / B);
        positions[r] = (int32_t)position - (documents ? documents[2 * (position * B + r % B)] : 0);
    }
}
#endif
