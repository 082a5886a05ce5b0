// cpu/gate.h: ops/gate.h on the CPU.
#ifndef GX_CPU_GATE_H
#define GX_CPU_GATE_H
#include "../ops/gate.h"
GX_BEGIN

void gx_cpu_gate_forward(GxContext *g, void *y, const void *a, const void *b, const void *gate, float temperature,
                         int64_t n, GxDtype dtype);
void gx_cpu_gate_backward(GxContext *g, void *da, void *db, float *dgate, const void *dy, const void *a, const void *b,
                          const void *gate, float temperature, int64_t n, int accumulate, GxDtype dtype,
                          double *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_GATE_IMPLEMENTED)
#define GX_CPU_GATE_IMPLEMENTED
#include <math.h>
#include "team.h"
#include "vec.h"

// The share of a: sigmoid(gate / temperature). The share of b: the rest, computed by itself so that it is exact if
// small.
static float gx__cpu_gate_share(const void *gate, float temperature, int of_b, GxDtype dtype)
{
    const float z = gx_cpu_load(gate, 0, dtype) / temperature;
    return 1 / (1 + expf(of_b ? z : -z));
}

// y[i] = mu a[i] + rest b[i]
static GX_CPU_INLINE void gx__cpu_gate_range(void *y, const void *a, const void *b, int64_t n, float mu, float rest,
                                             GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++)
        gx_cpu_store(y, i, mu * gx_cpu_load(a, i, dtype) + rest * gx_cpu_load(b, i, dtype), dtype);
}

void gx_cpu_gate_forward(GxContext *g, void *y, const void *a, const void *b, const void *gate, float temperature,
                         int64_t n, GxDtype dtype)
{
    const float mu = gx__cpu_gate_share(gate, temperature, 0, dtype),
                rest = gx__cpu_gate_share(gate, temperature, 1, dtype);
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t i = 0; i < n; i += GX_SUM_BLOCK)
        GX_CPU_TYPES(dtype, gx__cpu_gate_range, gx_cpu_at(y, i, dtype), gx_cpu_from(a, i, dtype),
                     gx_cpu_from(b, i, dtype), gx_min(GX_SUM_BLOCK, n - i), mu, rest);
}

// *sum = sum_i dy[i] (a[i] - b[i]), da[i] = mu dy[i], db[i] = rest dy[i]
static GX_CPU_INLINE void gx__cpu_gate_backward_range(double *sum, void *da, void *db, const void *dy, const void *a,
                                                      const void *b, int64_t n, float mu, float rest, GxDtype dtype)
{
    double s = 0;
    GX_OMP(simd reduction(+ : s))
    for (int64_t i = 0; i < n; i++)
        s += (double)(gx_cpu_load(dy, i, dtype) * (gx_cpu_load(a, i, dtype) - gx_cpu_load(b, i, dtype)));
    *sum = s;
    for (int64_t i = 0; i < n; i++) {
        const float d = gx_cpu_load(dy, i, dtype);
        gx_cpu_store(da, i, mu * d, dtype);
        if (db) gx_cpu_store(db, i, rest * d, dtype);
    }
}

void gx_cpu_gate_backward(GxContext *g, void *da, void *db, float *dgate, const void *dy, const void *a, const void *b,
                          const void *gate, float temperature, int64_t n, int accumulate, GxDtype dtype,
                          double *scratch)
{
    const float mu = gx__cpu_gate_share(gate, temperature, 0, dtype),
                rest = gx__cpu_gate_share(gate, temperature, 1, dtype);
    const int64_t blocks = gx_ceil_div(n, GX_SUM_BLOCK);
    double s = 0;
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n)))
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t i = k * GX_SUM_BLOCK;
        GX_CPU_TYPES(dtype, gx__cpu_gate_backward_range, &scratch[k], gx_cpu_at(da, i, dtype), gx_cpu_at(db, i, dtype),
                     gx_cpu_from(dy, i, dtype), gx_cpu_from(a, i, dtype), gx_cpu_from(b, i, dtype),
                     gx_min(GX_SUM_BLOCK, n - i), mu, rest);
    }
    for (int64_t k = 0; k < blocks; k++) s += scratch[k];
    if (dgate) *dgate = (accumulate ? *dgate : 0) + (float)((double)mu * (double)rest / (double)temperature * s);
}
#endif
