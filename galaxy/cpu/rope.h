// cpu/rope.h: ops/rope.h on the CPU.
#ifndef GX_CPU_ROPE_H
#define GX_CPU_ROPE_H
#include "../ops/rope.h"
GX_BEGIN

void gx_cpu_rope(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs, int64_t B, int64_t heads,
                 int64_t head_dim, int64_t stride, int direction, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ROPE_IMPLEMENTED)
#define GX_CPU_ROPE_IMPLEMENTED

void gx_cpu_rope(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs, int64_t B, int64_t heads,
                 int64_t head_dim, int64_t stride, int direction, GxDtype dtype)
{
    (void)g, (void)dtype;
    int64_t R = gx_runs_rows(runs) * B, half = head_dim / 2;
    float sign = direction > 0 ? 1.0f : -1.0f;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        int64_t position = gx_runs_position(runs, r / B);
        const float *c = cosine + position * half, *s = sine + position * half;
        for (int64_t h = 0; h < heads; h++) {
            float *a = (float *)x + r * stride + h * head_dim, *b = a + half;
            GX_OMP(simd)
            for (int64_t i = 0; i < half; i++) {
                float u = a[i], v = b[i], si = sign * s[i];
                a[i] = u * c[i] - v * si;
                b[i] = u * si + v * c[i];
            }
        }
    }
}
#endif
