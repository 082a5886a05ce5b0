// cpu/activation.h: ops/activation.h on the CPU.
#ifndef GX_CPU_ACTIVATION_H
#define GX_CPU_ACTIVATION_H
#include "../ops/activation.h"
GX_BEGIN

void gx_cpu_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype);
void gx_cpu_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                            int64_t F, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ACTIVATION_IMPLEMENTED)
#define GX_CPU_ACTIVATION_IMPLEMENTED
#include "vec.h"

// y[f] = silu(gate[f]) * up[f],  silu(z) = z/(1 + exp(-z))
static GX_CPU_INLINE void gx__cpu_swiglu_row(void *y, const void *gate_up, int64_t F, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t f = 0; f < F; f++) {
        float gate = gx_cpu_load(gate_up, f, dtype), up = gx_cpu_load(gate_up, F + f, dtype);
        gx_cpu_store(y, f, gate / (1.0f + gx_cpu_exp(-gate)) * up, dtype);
    }
}

void gx_cpu_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_swiglu_row, gx_cpu_at(y, r * F, dtype), gx_cpu_from(gate_up, r * 2 * F, dtype), F);
}

// With s = 1/(1 + exp(-gate)) and silu = gate*s: dgate = dy*up*s*(1 + gate*(1 - s)), dup = dy*silu; y = silu*up again.
static GX_CPU_INLINE void gx__cpu_swiglu_backward_row(void *dgate_up, void *y, const void *dy, const void *gate_up,
                                                      int64_t F, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t f = 0; f < F; f++) {
        float z = gx_cpu_load(gate_up, f, dtype), u = gx_cpu_load(gate_up, F + f, dtype), e = gx_cpu_load(dy, f, dtype);
        float s = 1.0f / (1.0f + gx_cpu_exp(-z)), silu = z * s;
        if (y) gx_cpu_store(y, f, silu * u, dtype);
        gx_cpu_store(dgate_up, f, e * u * s * (1.0f + z * (1.0f - s)), dtype);
        gx_cpu_store(dgate_up, F + f, e * silu, dtype);
    }
}

void gx_cpu_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                            int64_t F, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_swiglu_backward_row, gx_cpu_at(dgate_up, r * 2 * F, dtype),
                     gx_cpu_at(y, r * F, dtype), gx_cpu_from(dy, r * F, dtype), gx_cpu_from(gate_up, r * 2 * F, dtype),
                     F);
}
#endif
