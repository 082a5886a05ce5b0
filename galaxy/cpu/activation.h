// cpu/activation.h: ops/activation.h on the CPU.
#ifndef GX_CPU_ACTIVATION_H
#define GX_CPU_ACTIVATION_H
#include "../ops/activation.h"
GX_BEGIN

void gx_cpu_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype);
void gx_cpu_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                            int64_t F, GxDtype dtype);
void gx_cpu_gelu_forward(GxContext *g, void *y, const void *x, const void *bias, int64_t R, int64_t F, int kind,
                         GxDtype dtype);
void gx_cpu_gelu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, const void *bias, int64_t R,
                          int64_t F, int kind, GxDtype dtype);
void gx_cpu_tanh_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype);
void gx_cpu_tanh_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype);
void gx_cpu_relu_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype);
void gx_cpu_relu_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ACTIVATION_IMPLEMENTED)
#define GX_CPU_ACTIVATION_IMPLEMENTED
#include "elementwise.h"
#include "team.h"
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
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * F)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_swiglu_row, gx_cpu_at(y, r * F, dtype), gx_cpu_from(gate_up, r * 2 * F, dtype), F);
}

// With s = 1/(1 + exp(-gate)) and silu = gate*s: dgate = dy*up*s*(1 + gate*(1 - s)), dup = dy*silu, and again y =
// silu*up.
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
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * F)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_swiglu_backward_row, gx_cpu_at(dgate_up, r * 2 * F, dtype),
                     gx_cpu_at(y, r * F, dtype), gx_cpu_from(dy, r * F, dtype), gx_cpu_from(gate_up, r * 2 * F, dtype),
                     F);
}

// gelu(z) = z*p; its derivative is p + z*p'
typedef struct {
    float p, slope; // p' = dp/dz
} GxCpuGelu;
static GX_CPU_INLINE GxCpuGelu gx__cpu_gelu(float z, int kind)
{
    GxCpuGelu gelu;
    if (kind == GX_GELU_ERF) { // p is the normal distribution: (1 + erf(z/sqrt(2)))/2
        const GxCpuNormal normal = gx_cpu_normal(z);
        gelu.p = normal.below;
        gelu.slope = normal.density;
    } else { // (1 + tanh(u))/2 = 1/(1 + exp(-2u)), u = sqrt(2/pi) * (z + 0.044715*z^3)
        const float u2 = 1.59576912f * z * (1.0f + 0.044715f * z * z), p = 1.0f / (1.0f + gx_cpu_exp(-u2));
        gelu.p = p;
        gelu.slope = p * (1.0f - p) * 1.59576912f * (1.0f + 0.134145f * z * z);
    }
    return gelu;
}

// y[f] = gelu(x[f] + bias[f])
static GX_CPU_INLINE void gx__cpu_gelu_row(void *y, const void *x, const void *bias, int64_t F, int kind, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t f = 0; f < F; f++) {
        const float z = gx_cpu_load(x, f, dtype) + (bias ? gx_cpu_load(bias, f, dtype) : 0);
        gx_cpu_store(y, f, z * gx__cpu_gelu(z, kind).p, dtype);
    }
}
// A separate loop for each kind, with and without a bias: a conditional load would not be vectorized.
static GX_CPU_INLINE void gx__cpu_gelu_either(void *y, const void *x, const void *bias, int64_t F, int kind,
                                              GxDtype dtype)
{
    if (kind == GX_GELU_ERF && bias) gx__cpu_gelu_row(y, x, bias, F, GX_GELU_ERF, dtype);
    else if (kind == GX_GELU_ERF) gx__cpu_gelu_row(y, x, NULL, F, GX_GELU_ERF, dtype);
    else if (bias) gx__cpu_gelu_row(y, x, bias, F, GX_GELU_TANH, dtype);
    else gx__cpu_gelu_row(y, x, NULL, F, GX_GELU_TANH, dtype);
}

void gx_cpu_gelu_forward(GxContext *g, void *y, const void *x, const void *bias, int64_t R, int64_t F, int kind,
                         GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * F)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_gelu_either, gx_cpu_at(y, r * F, dtype), gx_cpu_from(x, r * F, dtype), bias, F,
                     kind);
}

// dx[f] = dy[f] * (p + z*p'), and again y[f] = z*p, z = x[f] + bias[f]
static GX_CPU_INLINE void gx__cpu_gelu_backward_row(void *dx, void *y, const void *dy, const void *x, const void *bias,
                                                    int64_t F, int kind, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t f = 0; f < F; f++) {
        const float z = gx_cpu_load(x, f, dtype) + (bias ? gx_cpu_load(bias, f, dtype) : 0);
        const float e = gx_cpu_load(dy, f, dtype);
        const GxCpuGelu gelu = gx__cpu_gelu(z, kind);
        if (y) gx_cpu_store(y, f, z * gelu.p, dtype);
        gx_cpu_store(dx, f, e * (gelu.p + z * gelu.slope), dtype);
    }
}
static GX_CPU_INLINE void gx__cpu_gelu_backward_either(void *dx, void *y, const void *dy, const void *x,
                                                       const void *bias, int64_t F, int kind, GxDtype dtype)
{
    if (kind == GX_GELU_ERF && bias) gx__cpu_gelu_backward_row(dx, y, dy, x, bias, F, GX_GELU_ERF, dtype);
    else if (kind == GX_GELU_ERF) gx__cpu_gelu_backward_row(dx, y, dy, x, NULL, F, GX_GELU_ERF, dtype);
    else if (bias) gx__cpu_gelu_backward_row(dx, y, dy, x, bias, F, GX_GELU_TANH, dtype);
    else gx__cpu_gelu_backward_row(dx, y, dy, x, NULL, F, GX_GELU_TANH, dtype);
}

void gx_cpu_gelu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, const void *bias, int64_t R,
                          int64_t F, int kind, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * F)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_gelu_backward_either, gx_cpu_at(dx, r * F, dtype), gx_cpu_at(y, r * F, dtype),
                     gx_cpu_from(dy, r * F, dtype), gx_cpu_from(x, r * F, dtype), bias, F, kind);
}

// y[i] = tanh(x[i])
static GX_CPU_INLINE void gx__cpu_tanh_range(void *y, const void *x, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) gx_cpu_store(y, i, gx_cpu_tanh(gx_cpu_load(x, i, dtype)), dtype);
}

void gx_cpu_tanh_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t i = 0; i < n; i += GX__CPU_RANGE)
        GX_CPU_TYPES(dtype, gx__cpu_tanh_range, gx_cpu_at(y, i, dtype), gx_cpu_from(x, i, dtype),
                     gx_min(GX__CPU_RANGE, n - i));
}

// dx[i] = dy[i] * (1 - y[i]^2)
static GX_CPU_INLINE void gx__cpu_tanh_backward_range(void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) {
        const float t = gx_cpu_load(y, i, dtype);
        gx_cpu_store(dx, i, gx_cpu_load(dy, i, dtype) * ((1.0f - t) * (1.0f + t)), dtype);
    }
}

void gx_cpu_tanh_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t i = 0; i < n; i += GX__CPU_RANGE)
        GX_CPU_TYPES(dtype, gx__cpu_tanh_backward_range, gx_cpu_at(dx, i, dtype), gx_cpu_from(dy, i, dtype),
                     gx_cpu_from(y, i, dtype), gx_min(GX__CPU_RANGE, n - i));
}

// y[i] = x[i] > 0 ? x[i] : 0
static GX_CPU_INLINE void gx__cpu_relu_range(void *y, const void *x, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) {
        const float v = gx_cpu_load(x, i, dtype);
        gx_cpu_store(y, i, v < 0 ? 0 : v, dtype); // NaN stays
    }
}

void gx_cpu_relu_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t i = 0; i < n; i += GX__CPU_RANGE)
        GX_CPU_TYPES(dtype, gx__cpu_relu_range, gx_cpu_at(y, i, dtype), gx_cpu_from(x, i, dtype),
                     gx_min(GX__CPU_RANGE, n - i));
}

// dx[i] = y[i] > 0 ? dy[i] : 0
static GX_CPU_INLINE void gx__cpu_relu_backward_range(void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++)
        gx_cpu_store(dx, i, gx_cpu_load(y, i, dtype) > 0 ? gx_cpu_load(dy, i, dtype) : 0, dtype);
}

void gx_cpu_relu_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t i = 0; i < n; i += GX__CPU_RANGE)
        GX_CPU_TYPES(dtype, gx__cpu_relu_backward_range, gx_cpu_at(dx, i, dtype), gx_cpu_from(dy, i, dtype),
                     gx_cpu_from(y, i, dtype), gx_min(GX__CPU_RANGE, n - i));
}
#endif
