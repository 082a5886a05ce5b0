// gate.h: mixes two arrays with a learned gate: y = mu a + (1 - mu) b, mu = sigmoid(gate / temperature), one gate for
// all elements (ladder side-tuning, Sung et al. 2022, arXiv:2206.06522, section 3).
#ifndef GX_OPS_GATE_H
#define GX_OPS_GATE_H
#include "device.h"
GX_BEGIN

// y, a, b [n]; gate [1] of the same type; y may be a or b. bytes: 3*n*size; FLOPs: 3*n
void gx_gate_forward(GxContext *g, void *y, const void *a, const void *b, const void *gate, float temperature,
                     int64_t n, GxDtype dtype);

// da = mu dy, db = (1 - mu) dy (NULL: not needed), dgate (+)= mu (1 - mu) / temperature * sum of dy (a - b), in fp64,
// block by block of GX_SUM_BLOCK in order (NULL: not needed). da or db may be dy, but not both. bytes: 4*n*size,
// 5*n*size with db; FLOPs: 5*n
void gx_gate_backward(GxContext *g, void *da, void *db, float *dgate, const void *dy, const void *a, const void *b,
                      const void *gate, float temperature, int64_t n, int accumulate, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPS_GATE_IMPLEMENTED)
#define GX_OPS_GATE_IMPLEMENTED

void gx_gate_forward(GxContext *g, void *y, const void *a, const void *b, const void *gate, float temperature,
                     int64_t n, GxDtype dtype)
{
    if (!gx_op_check(g, "gate_forward", dtype, n, 1)) return;
    if (gx_op_begin(g, "gate_forward", gx_dims(n, 0, 0, 0), 3 * n * gx_dtype_size(dtype), 3.0 * n))
        g->device->gate_forward(g, y, a, b, gate, temperature, n, dtype);
}

void gx_gate_backward(GxContext *g, void *da, void *db, float *dgate, const void *dy, const void *a, const void *b,
                      const void *gate, float temperature, int64_t n, int accumulate, GxDtype dtype)
{
    if (!gx_op_check(g, "gate_backward", dtype, n, 1)) return;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    double *scratch = (double *)gx_scratch(g, GX_MEM_WORKSPACE, (gx_ceil_div(n, GX_SUM_BLOCK) + 1) * 8);
    if (gx_op_begin(g, "gate_backward", gx_dims(n, 0, 0, 0), (db ? 5 : 4) * n * gx_dtype_size(dtype), 5.0 * n))
        g->device->gate_backward(g, da, db, dgate, dy, a, b, gate, temperature, n, accumulate, dtype, scratch);
    gx_arena_release(g->arena, mark);
}
#endif
