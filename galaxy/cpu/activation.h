// cpu/activation.h: ops/activation.h on the CPU.
#ifndef GX_CPU_ACTIVATION_H
#define GX_CPU_ACTIVATION_H
#include "../ops/activation.h"
GX_BEGIN

void gx_cpu_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype);
void gx_cpu_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R, int64_t F,
                            GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ACTIVATION_IMPLEMENTED)
#define GX_CPU_ACTIVATION_IMPLEMENTED
#include "vec.h"

void gx_cpu_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype)
{
    (void)g, (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        const float *gate = (const float *)gate_up + r * 2 * F, *up = gate + F;
        float *out = (float *)y + r * F;
        GX_OMP(simd)
        for (int64_t f = 0; f < F; f++) out[f] = gate[f] / (1.0f + gx_cpu_exp(-gate[f])) * up[f];
    }
}

void gx_cpu_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R, int64_t F, GxDtype dtype)
{
    (void)g, (void)dtype;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        const float *gate = (const float *)gate_up + r * 2 * F, *up = gate + F, *d = (const float *)dy + r * F;
        float *dgate = (float *)dgate_up + r * 2 * F, *dup = dgate + F, *out = y ? (float *)y + r * F : NULL;
        GX_OMP(simd)
        for (int64_t f = 0; f < F; f++) {
            float z = gate[f], u = up[f], e = d[f], s = 1.0f / (1.0f + gx_cpu_exp(-z)), silu = z * s;
            if (out) out[f] = silu * u;
            dgate[f] = e * u * s * (1.0f + z * (1.0f - s));
            dup[f] = e * silu;
        }
    }
}
#endif
