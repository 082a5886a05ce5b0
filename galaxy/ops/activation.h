// activation.h: SwiGLU (Shazeer 2020, arXiv:2002.05202), silu(gate) * up, with silu(z) = z / (1 + exp(-z)).
#ifndef GX_ACTIVATION_H
#define GX_ACTIVATION_H
#include "device.h"
GX_BEGIN

// y[r,f] = silu(gate_up[r,f]) * gate_up[r,F+f]. gate_up [R,2F], y [R,F]. bytes: 3*R*F*size; FLOPs: 5*R*F
void gx_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype);

// With s = 1/(1 + exp(-gate)): dgate = dy*up*s*(1 + gate*(1 - s)), dup = dy*gate*s. dgate_up [R,2F]; it may be gate_up.
// y, where not NULL, is made again (the down projection's weight gradient needs it, so that it need not be kept); it
// may be dy.
void gx_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                        int64_t F, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ACTIVATION_IMPLEMENTED)
#define GX_ACTIVATION_IMPLEMENTED

void gx_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype)
{
    if (!gx_op_check(g, "swiglu_forward", dtype, R, F)) return;
    if (gx_op_begin(g, "swiglu_forward", gx_dims(R, F, 0, 0), 3 * R * F * gx_dtype_size(dtype), 5.0 * R * F))
        g->device->swiglu_forward(g, y, gate_up, R, F, dtype);
}

void gx_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                        int64_t F, GxDtype dtype)
{
    if (!gx_op_check(g, "swiglu_backward", dtype, R, F)) return;
    if (gx_op_begin(g, "swiglu_backward", gx_dims(R, F, 0, 0), (y ? 6 : 5) * R * F * gx_dtype_size(dtype),
                    11.0 * R * F))
        g->device->swiglu_backward(g, dgate_up, y, dy, gate_up, R, F, dtype);
}
#endif
