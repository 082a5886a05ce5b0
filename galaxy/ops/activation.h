// activation.h: SwiGLU (Shazeer 2020, arXiv:2002.05202), silu(gate) * up, with silu(z) = z / (1 + exp(-z)); GELU
// (Hendrycks & Gimpel 2016, arXiv:1606.08415) with the bias before it; tanh; relu.
#ifndef GX_ACTIVATION_H
#define GX_ACTIVATION_H
#include "device.h"
GX_BEGIN

// y[r,f] = silu(gate_up[r,f]) * gate_up[r,F+f]. gate_up [R,2F], y [R,F]. bytes: 3*R*F*size; FLOPs: 5*R*F
void gx_swiglu_forward(GxContext *g, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype dtype);

// With s = 1/(1 + exp(-gate)): dgate = dy*up*s*(1 + gate*(1 - s)), dup = dy*gate*s. dgate_up [R,2F]; it may be gate_up.
// y: NULL, or recomputed (the down projection's weight gradient needs it, and it is not kept); it may be dy.
void gx_swiglu_backward(GxContext *g, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                        int64_t F, GxDtype dtype);

typedef enum {
    GX_GELU_ERF = 0, // gelu(z) = z/2 * (1 + erf(z/sqrt(2)))
    GX_GELU_TANH     // gelu(z) = z/2 * (1 + tanh(sqrt(2/pi) * (z + 0.044715*z^3)))
} GxGelu;

// y[r,f] = gelu(x[r,f] + bias[f]). x, y [R,F], bias [F] or NULL: 0. y may be x. bytes: 2*R*F*size; FLOPs: 8*R*F
void gx_gelu_forward(GxContext *g, void *y, const void *x, const void *bias, int64_t R, int64_t F, GxGelu kind,
                     GxDtype dtype);

// dx[r,f] = dy[r,f] * gelu'(x[r,f] + bias[f]), with gelu'(z) = P(z) + z*P'(z) where gelu(z) = z*P(z). If y is not NULL,
// it is recomputed (the next linear's weight gradient needs it, and it is not kept); it may be dy. dx may be x or dy,
// but not y. bytes: 3*R*F*size, 4*R*F*size with y; FLOPs: 14*R*F
void gx_gelu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, const void *bias, int64_t R,
                      int64_t F, GxGelu kind, GxDtype dtype);

// y = tanh(x), n elements. y may be x. bytes: 2*n*size; FLOPs: 8*n
void gx_tanh_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype);

// dx = dy*(1 - y^2), n elements. dx may be dy. bytes: 3*n*size; FLOPs: 3*n
void gx_tanh_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype);

// y = max(x, 0), n elements; NaN stays NaN. y may be x. bytes: 2*n*size; FLOPs: n
void gx_relu_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype);

// dx = dy where y > 0, else 0, n elements. dx may be dy. bytes: 3*n*size; FLOPs: n
void gx_relu_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype);

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

static int gx__gelu_check(GxContext *g, const char *name, int64_t R, int64_t F, GxGelu kind, GxDtype dtype)
{
    if (!gx_op_check(g, name, dtype, R, F)) return 0;
    if (kind == GX_GELU_ERF || kind == GX_GELU_TANH) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: kind is %d; supported: GX_GELU_ERF (%d) and GX_GELU_TANH (%d)", name,
            (int)kind, (int)GX_GELU_ERF, (int)GX_GELU_TANH);
    return 0;
}

void gx_gelu_forward(GxContext *g, void *y, const void *x, const void *bias, int64_t R, int64_t F, GxGelu kind,
                     GxDtype dtype)
{
    if (!gx__gelu_check(g, "gelu_forward", R, F, kind, dtype)) return;
    if (gx_op_begin(g, "gelu_forward", gx_dims(R, F, 0, 0), 2 * R * F * gx_dtype_size(dtype), 8.0 * R * F))
        g->device->gelu_forward(g, y, x, bias, R, F, (int)kind, dtype);
}

void gx_gelu_backward(GxContext *g, void *dx, void *y, const void *dy, const void *x, const void *bias, int64_t R,
                      int64_t F, GxGelu kind, GxDtype dtype)
{
    if (!gx__gelu_check(g, "gelu_backward", R, F, kind, dtype)) return;
    if (gx_op_begin(g, "gelu_backward", gx_dims(R, F, 0, 0), (y ? 4 : 3) * R * F * gx_dtype_size(dtype), 14.0 * R * F))
        g->device->gelu_backward(g, dx, y, dy, x, bias, R, F, (int)kind, dtype);
}

void gx_tanh_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype)
{
    if (!gx_op_check(g, "tanh_forward", dtype, n, 1)) return;
    if (gx_op_begin(g, "tanh_forward", gx_dims(n, 0, 0, 0), 2 * n * gx_dtype_size(dtype), 8.0 * n))
        g->device->tanh_forward(g, y, x, n, dtype);
}

void gx_tanh_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    if (!gx_op_check(g, "tanh_backward", dtype, n, 1)) return;
    if (gx_op_begin(g, "tanh_backward", gx_dims(n, 0, 0, 0), 3 * n * gx_dtype_size(dtype), 3.0 * n))
        g->device->tanh_backward(g, dx, dy, y, n, dtype);
}

void gx_relu_forward(GxContext *g, void *y, const void *x, int64_t n, GxDtype dtype)
{
    if (!gx_op_check(g, "relu_forward", dtype, n, 1)) return;
    if (gx_op_begin(g, "relu_forward", gx_dims(n, 0, 0, 0), 2 * n * gx_dtype_size(dtype), 1.0 * n))
        g->device->relu_forward(g, y, x, n, dtype);
}

void gx_relu_backward(GxContext *g, void *dx, const void *dy, const void *y, int64_t n, GxDtype dtype)
{
    if (!gx_op_check(g, "relu_backward", dtype, n, 1)) return;
    if (gx_op_begin(g, "relu_backward", gx_dims(n, 0, 0, 0), 3 * n * gx_dtype_size(dtype), 1.0 * n))
        g->device->relu_backward(g, dx, dy, y, n, dtype);
}
#endif
