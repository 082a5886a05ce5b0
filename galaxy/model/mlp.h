// model/mlp.h: the MLP as a core: out = down(silu(gate(in)) * up(in)) (SwiGLU, Shazeer 2020, arXiv:2002.05202). By TP a
// rank has its columns of gate, up and down, and `out` is its summand; by SP it has all columns and its slice of T.
#ifndef GX_MLP_H
#define GX_MLP_H
#include "linear.h"
GX_BEGIN
extern const GxCore gx_mlp;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MLP_IMPLEMENTED)
#define GX_MLP_IMPLEMENTED
#include "../ops/activation.h"

enum { GX__MLP_GATE_UP = 0, GX__MLP_DOWN };    // of a pair's linears
enum { GX__MLP_KEPT = 0, GX__MLP_ACTIVE = 0 }; // in a slot: gate and up [rows, 2F]; among inner gradients: [rows, F]

static void gx__mlp_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxPairSpec *s = &u->spec.pair[k];
    const int64_t C = u->spec.width, F = s->core.columns;
    const GxLayout layout = gx_block_takes(m->mode->methods.mlp);
    const GxTensorUse gate = {s->matrix[0], number, GX_ROLE_WEIGHT, {F, C}, &u->columns, NULL, layout, 0, 0},
                      up = {s->matrix[1], number, GX_ROLE_WEIGHT, {F, C}, &u->columns, NULL, layout, 1, 0},
                      down = {s->matrix[2], number, GX_ROLE_WEIGHT, {C, F}, NULL, &u->columns, layout, 0, 0};
    GxPair *pair = &m->unit[unit].pair[k];
    const GxTensorId first = gx_model_tensor(g, m, unit, &gate);
    gx_model_tensor(g, m, unit, &up);
    pair->linear[GX__MLP_GATE_UP] = gx_model_linear(m, first, 2);
    pair->linear[GX__MLP_DOWN] = gx_model_linear(m, gx_model_tensor(g, m, unit, &down), 1);
}

static void gx__mlp_lay(GxSlotLayer *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    const int64_t F = gx_share_count(&u->columns);
    (void)k;
    s->core[GX__MLP_KEPT] = gx_slot_rows(l, rows, 2 * F);
    if (l->owns_gradients) s->dcore[GX__MLP_ACTIVE] = gx_slot_rows(l, rows, F);
}

static GxRows gx__mlp_active(GxPass *p, int k)
{
    const GxRows gate_up = gx_pass_slot(p, k)->core[GX__MLP_KEPT];
    if (p->defers_weights) return gx_pass_slot(p, k)->dcore[GX__MLP_ACTIVE];
    return gx_pass_rows(p, gate_up.rows, gate_up.cols / 2);
}

// s = silu(gate) * up, out = s down^T
static void gx__mlp_forward(GxPass *p, int k, GxRows out, GxRows in)
{
    const GxPair *pair = gx_pass_pair(p, k);
    const GxRows gate_up = gx_pass_slot(p, k)->core[GX__MLP_KEPT];
    gx_linear_apply(p, &pair->linear[GX__MLP_GATE_UP], gate_up, in, 0);
    if (!out.data) return; // computed again for what the slot keeps
    const GxRows s = gx__mlp_active(p, k);
    gx_swiglu_forward(p->g, s.data, gate_up.data, s.rows, s.cols, s.dtype);
    gx_linear_apply(p, &pair->linear[GX__MLP_DOWN], out, s, 0);
}

// ds = dout down; (dgate, dup) take the place of gate and up, and s is made again in that of ds, for the weight half.
static void gx__mlp_backward_input(GxPass *p, int k, GxRows din, GxRows dout, GxRows in)
{
    const GxPair *pair = gx_pass_pair(p, k);
    const GxRows gate_up = gx_pass_slot(p, k)->core[GX__MLP_KEPT], s = gx__mlp_active(p, k);
    (void)in;
    p->dcore[GX__MLP_ACTIVE] = s;
    gx_linear_apply_backward_input(p, &pair->linear[GX__MLP_DOWN], s, dout, 0);
    gx_swiglu_backward(p->g, gate_up.data, s.data, s.data, gate_up.data, s.rows, s.cols, s.dtype);
    gx_linear_apply_backward_input(p, &pair->linear[GX__MLP_GATE_UP], din, gate_up, 0);
}

static void gx__mlp_backward_weight(GxPass *p, int k, GxRows dout, GxRows in)
{
    const GxPair *pair = gx_pass_pair(p, k);
    gx_linear_apply_backward_weight(p, &pair->linear[GX__MLP_DOWN], dout, p->dcore[GX__MLP_ACTIVE]);
    gx_linear_apply_backward_weight(p, &pair->linear[GX__MLP_GATE_UP], gx_pass_slot(p, k)->core[GX__MLP_KEPT], in);
}

const GxCore gx_mlp = {gx__mlp_open, gx__mlp_lay, gx__mlp_forward, gx__mlp_backward_input, gx__mlp_backward_weight};
#endif
