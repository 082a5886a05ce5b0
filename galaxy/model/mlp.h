// model/mlp.h: the MLP as a core. TP: a rank has its columns of gate, up and down, and `out` is its summand. SP: it has
// all columns and its slice of T.
//
//     SwiGLU (Shazeer 2020, arXiv:2002.05202)       out = down(silu(gate(in)) * up(in))      the bias of down is CON's
//     GEGLU (the same), erf or tanh                 out = down(gelu(gate(in)) * up(in))
//     GELU (Hendrycks & Gimpel 2016), erf or tanh   out = down(gelu(up(in)))
//     ReLU                                          out = down(max(up(in), 0))
//
// The activated rows may have dropout of their own; a rank draws it for its columns of all of them.
#ifndef GX_MLP_H
#define GX_MLP_H
#include "linear.h"
#include "unit_tensors.h"
GX_BEGIN
extern const GxCore gx_mlp;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MLP_IMPLEMENTED)
#define GX_MLP_IMPLEMENTED
#include "../ops/activation.h"

enum { GX__MLP_UP = 0, GX__MLP_DOWN }; // of a pair's linears
// A slot's buffer KEPT: gate and up [rows, 2F], or up [rows, F]; the inner gradients' buffer ACTIVE: [rows, F]
enum { GX__MLP_KEPT = 0, GX__MLP_ACTIVE = 0 };

static int gx__mlp_has_gate(const GxCoreSpec *c) { return gx_is_gated(c->activation); }

static void gx__mlp_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxCoreSpec *c = &u->spec.pair[k].core;
    const int gate = gx__mlp_has_gate(c);
    const int64_t C = u->spec.width, F = c->columns;
    const GxLayout layout = gx_block_takes(m->mode->methods.mlp);
    GxTensorUse first = gx_tensor_use(c->matrix[0], number, GX_ROLE_WEIGHT, F, C, layout),
                second = gx_tensor_use(c->matrix[1], number, GX_ROLE_WEIGHT, F, C, layout),
                bias = gx_tensor_use(c->matrix[0], number, GX_ROLE_BIAS, F, 0, layout),
                second_bias = gx_tensor_use(c->matrix[1], number, GX_ROLE_BIAS, F, 0, layout),
                down = gx_tensor_use(c->matrix[1 + gate], number, GX_ROLE_WEIGHT, C, F, layout);
    first.rows = second.rows = bias.rows = second_bias.rows = down.cols = &u->columns;
    second.packed = second_bias.packed = 1;
    const GxTensorId up = gx_model_tensor(g, m, unit, k, &first);
    if (gate) gx_model_tensor(g, m, unit, k, &second);
    const GxTensorId up_bias = c->has_bias ? gx_model_tensor(g, m, unit, k, &bias) : gx_no_tensor();
    if (c->has_bias && gate) gx_model_tensor(g, m, unit, k, &second_bias);
    const GxTensorId last = gx_model_tensor(g, m, unit, k, &down);
    m->unit[unit].pair[k].linear[GX__MLP_UP] = gx_model_linear(m, up, 1 + gate, up_bias);
    m->unit[unit].pair[k].linear[GX__MLP_DOWN] = gx_model_linear(m, last, 1, gx_no_tensor());
}

static void gx__mlp_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    const int64_t F = gx_share_count(&u->columns);
    s->core[GX__MLP_KEPT] = gx_slot_rows(l, rows, gx__mlp_has_gate(&u->spec.pair[k].core) ? 2 * F : F);
    if (l->defers_weights) s->dcore[GX__MLP_ACTIVE] = gx_slot_rows(l, rows, F);
}

static GxRows gx__mlp_active(const GxPairView *v)
{
    if (v->p->defers_weights) return v->slot->dcore[GX__MLP_ACTIVE];
    return gx_pass_rows(v->p, v->slot->core[GX__MLP_KEPT].rows, gx_share_count(&v->kind->columns));
}

// Dropout of the activated rows: in place, and its own backward.
static void gx__mlp_drop(const GxPairView *v, GxRows s)
{
    const GxShares *columns = &v->kind->columns;
    GxDropout d = gx_view_dropout(v, GX_DROPOUT_CORE, v->spec->core.inner_dropout);
    if (d.p == 0) return;
    gx_view_dropout_rows(v, &d, NULL, gx_view_method(v) == GX_METHOD_SP ? gx_slice_begin(v->p) : 0);
    d.first_column = gx_share_mine(columns).begin, d.columns = v->spec->core.columns;
    gx_dropout(v->g, s.data, s.data, s.rows, s.cols, &d, s.dtype);
}

static void gx__mlp_activate(const GxPairView *v, GxRows s, GxRows kept)
{
    const GxActivation by = v->spec->core.activation;
    switch (by) {
    case GX_SWIGLU: gx_swiglu_forward(v->g, s.data, kept.data, s.rows, s.cols, s.dtype); break;
    case GX_GEGLU:
    case GX_GEGLU_NEW: gx_geglu_forward(v->g, s.data, kept.data, s.rows, s.cols, gx_gelu_of(by), s.dtype); break;
    case GX_RELU: gx_relu_forward(v->g, s.data, kept.data, s.rows * s.cols, s.dtype); break;
    default: gx_gelu_forward(v->g, s.data, kept.data, NULL, s.rows, s.cols, gx_gelu_of(by), s.dtype);
    }
    gx__mlp_drop(v, s);
}

// ds, the gradient of what the activation gives, becomes s again, and the kept rows their gradient.
static void gx__mlp_activate_backward(const GxPairView *v, GxRows kept, GxRows s)
{
    const GxActivation by = v->spec->core.activation;
    GxContext *g = v->g;
    void *x = kept.data, *ds = s.data;
    switch (by) {
    case GX_SWIGLU: gx_swiglu_backward(g, x, ds, ds, x, s.rows, s.cols, s.dtype); break;
    case GX_GEGLU:
    case GX_GEGLU_NEW: gx_geglu_backward(g, x, ds, ds, x, s.rows, s.cols, gx_gelu_of(by), s.dtype); break;
    case GX_RELU: gx_relu_backward(g, x, ds, ds, x, s.rows * s.cols, s.dtype); break;
    default: gx_gelu_backward(g, x, ds, ds, x, NULL, s.rows, s.cols, gx_gelu_of(by), s.dtype);
    }
}

// s: the activated rows; out = s down^T
static void gx__mlp_forward(const GxPairView *v, GxRows out, GxRows in)
{
    const GxPair *pair = v->pair;
    const GxRows kept = v->slot->core[GX__MLP_KEPT];
    gx_linear_apply(v->p, &pair->linear[GX__MLP_UP], kept, in, 0);
    if (!out.data) return; // a recomputation needs only what the slot keeps
    const GxRows s = gx__mlp_active(v);
    gx__mlp_activate(v, s, kept);
    gx_linear_apply(v->p, &pair->linear[GX__MLP_DOWN], out, s, 0);
}

// ds = dout down. The kept rows are overwritten with their gradient, and ds with the recomputed s, for the weight half.
static void gx__mlp_backward_input(const GxPairView *v, GxRows din, GxRows dout, GxRows in)
{
    const GxPair *pair = v->pair;
    const GxRows kept = v->slot->core[GX__MLP_KEPT], s = gx__mlp_active(v);
    (void)in;
    v->p->dcore[GX__MLP_ACTIVE] = s;
    gx_linear_apply_backward_input(v->p, &pair->linear[GX__MLP_DOWN], s, dout, 0);
    gx__mlp_drop(v, s);
    gx__mlp_activate_backward(v, kept, s);
    gx__mlp_drop(v, s);
    gx_linear_apply_backward_input(v->p, &pair->linear[GX__MLP_UP], din, kept, 0);
}

static void gx__mlp_backward_weight(const GxPairView *v, GxRows dout, GxRows in)
{
    const GxPair *pair = v->pair;
    gx_linear_apply_backward_weight(v->p, &pair->linear[GX__MLP_DOWN], dout, v->p->dcore[GX__MLP_ACTIVE]);
    gx_linear_apply_backward_weight(v->p, &pair->linear[GX__MLP_UP], v->slot->core[GX__MLP_KEPT], in);
}

const GxCore gx_mlp = {gx__mlp_open, gx__mlp_layout, gx__mlp_forward, gx__mlp_backward_input, gx__mlp_backward_weight};
#endif
