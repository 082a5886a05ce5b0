// model/side.h: side networks (ladder side-tuning: Sung et al. 2022, arXiv:2206.06522): a narrow network beside the
// model (its backbone) reads the output of each of the model's layers. Only the side network is trained (tuned.h). No
// gradient goes through the backbone: its units have no backward, and keep only their outputs, which Down reads.
//
//     s_0 = Down_0(h_0)                                 h_0: the embedding's output, h_i: the output of layer i
//     s_i = Layer_i(Down_i(h_i) + s_(i-1))              or, gated: mu_i Down_i(h_i) + (1 - mu_i) s_(i-1)
//     h_N + Up(s_N)                                     enters the head instead of h_N
//
// Side layers are like the model's, but their width, MLP and head_dim are divided by k (rounded up; head_dim to an even
// number). They have as many heads, so a mode splits them like the model's. mu_i = sigmoid(gate_i / 0.1), one number a
// layer. Down and Up are linears, with or without biases, and work on rows of CON's layout.
//
// The units of the side network are placed between the model's, and the state between units is {x, side}. The embedding
// is followed by a unit with only Down_0, and each layer by a side layer, the last of which adds Up and passes on only
// x. A layer of the backbone passes `side` on unchanged, a side layer passes x on.
//
// Initially Up is 0: the model's results are unchanged, and in the first step only Up has a gradient. Down is uniform
// in [-1/sqrt(C), 1/sqrt(C)], side layers are initialized like the model's, and gates are 0 (mu is 1/2). The backbone
// runs without dropout, as in a validation; side layers have the dropout of the model's layers.
//
// Names: side.down.0 to side.down.N, side.gate.1 to side.gate.N, side.up; layers like the model's, with the prefix
// "side.".
//
// Memory: for the backward, h_i [rows, C] of each layer and what its side layer keeps.
#ifndef GX_MODEL_SIDE_H
#define GX_MODEL_SIDE_H
#include "linear.h"
#include "unit_tensors.h"
GX_BEGIN

GxTuner gx_side_tuner(void);

// For build.h: removes the dropout of a unit of the backbone; derives a side unit from the model's layer.
void gx_side_still(GxUnitSpec *u);
GxUnitSpec gx_side_unit(GxContext *g, const GxModel *m, const GxUnitSpec *layer, GxSidePlace place);
// 1: no gradient goes through the unit: it is in the backbone of a model with a side network, and is not the head.
int gx_side_is_beside(const GxModel *m, int unit);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_SIDE_IMPLEMENTED)
#define GX_MODEL_SIDE_IMPLEMENTED
#include <math.h>
#include "../ops/elementwise.h"
#include "../ops/gate.h"

static const float gx__side_temperature = 0.1f;

// ---- descriptions --------------------------------------------------------------------------------------------------

static GxStatus gx__side_check(GxModel *m, GxError *err)
{
    return gx_check_size("side_reduction_factor", m->adapter.side.reduction, 65536, err);
}

int gx_side_is_beside(const GxModel *m, int unit)
{
    const GxUnitSpec *u = gx_unit_spec(m, unit);
    return m->adapter.side.reduction > 0 && u->side == GX_SIDE_NONE && !gx_pair_is_head(&u->pair[0]);
}

// tuned.h freezes the backbone, except for modules that the user wants trained: these must be in the head.
static GxStatus gx__side_check_trained(const GxModel *m, GxError *err)
{
    for (int i = 0; i < m->table.n; i++)
        if (!m->table.row[i].frozen && gx_side_is_beside(m, m->table.row[i].unit))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s cannot be trained beside a side network, because no gradient passes through the model; "
                           "besides the side network only the model's head can be trained",
                           m->table.row[i].name);
    return GX_OK;
}

void gx_side_still(GxUnitSpec *u)
{
    for (int k = 0; k < u->n_pairs; k++) u->pair[k].core.dropout = u->pair[k].con.dropout = 0;
}

static void gx__side_narrow(GxCoreSpec *c, int64_t reduction)
{
    c->head_dim = gx_round_up(gx_ceil_div(c->head_dim, reduction), 2); // RoPE rotates pairs
    c->columns = gx_ceil_div(c->columns, reduction);
}

GxUnitSpec gx_side_unit(GxContext *g, const GxModel *m, const GxUnitSpec *layer, GxSidePlace place)
{
    const int64_t reduction = m->adapter.side.reduction;
    GxUnitSpec u = *layer;
    if (u.width % reduction)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "side_reduction_factor is %ld; it must divide the model's width (hidden_size), which is %ld",
                (long)reduction, (long)u.width);
    u.name = "side", u.side = place;
    u.width = u.width / reduction;
    if (place == GX_SIDE_FIRST) u.n_pairs = 0;
    for (int k = 0; k < u.n_pairs; k++) gx__side_narrow(&u.pair[k].core, reduction);
    return u;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

// These tensors belong to no pair: their pair index is n_pairs.
static GxTensorId gx__side_tensor(GxContext *g, GxModel *m, int unit, int number, const char *name, GxRole role,
                                  int64_t rows, int64_t cols)
{
    const GxLayout con = gx_block_gives(m->mode->methods.con);
    const GxTensorUse use = gx_tensor_use(name, number, role, rows, cols, con);
    return gx_model_tensor(g, m, unit, gx_unit_spec(m, unit)->n_pairs, &use);
}

static GxLinear gx__side_linear(GxContext *g, GxModel *m, int unit, int number, const char *name, int64_t out,
                                int64_t in)
{
    const GxTensorId w = gx__side_tensor(g, m, unit, number, name, GX_ROLE_WEIGHT, out, in),
                     b = m->adapter.side.has_bias ? gx__side_tensor(g, m, unit, number, name, GX_ROLE_BIAS, out, 0)
                                                  : gx_no_tensor();
    return gx_model_linear(m, w, 1, b);
}

static void gx__side_open(GxContext *g, GxModel *m, int unit, int layer)
{
    const GxUnitSpec *u = gx_unit_spec(m, unit);
    const int64_t C = gx_model_width(m);
    const int number = u->side == GX_SIDE_FIRST ? 0 : layer + 1;
    GxUnit *made = &m->unit[unit];
    if (u->side == GX_SIDE_NONE || gx_failed(g)) return;
    made->down = gx__side_linear(g, m, unit, number, "down.%d", u->width, C);
    if (m->adapter.side.is_gated && u->side != GX_SIDE_FIRST)
        made->gate = gx__side_tensor(g, m, unit, number, "gate.%d", GX_ROLE_WEIGHT, 1, 0);
    if (u->side == GX_SIDE_LAST) made->up = gx__side_linear(g, m, unit, number, "up", C, u->width);
    if (gx_failed(g)) return;
    GxTensor *row = m->table.row, *down = &row[made->down.first.index];
    down->init = GX_INIT_UNIFORM, down->init_std = (float)(1 / sqrt((double)C));
    if (made->gate.index >= 0) row[made->gate.index].init = GX_INIT_ZEROS, row[made->gate.index].decay = 0;
    if (u->side == GX_SIDE_LAST) row[made->up.first.index].init = GX_INIT_ZEROS;
}

// ---- at work -------------------------------------------------------------------------------------------------------

static const GxUnit *gx__side_of(const GxPass *p) { return &p->m->unit[p->unit]; }
static GxSidePlace gx__side_place(const GxPass *p) { return gx_pass_kind(p)->spec.side; }
static int gx__side_is_gated(const GxPass *p) { return gx__side_of(p)->gate.index >= 0; }

static void gx__side_layout(GxSlotLayout *l, const GxUnitKind *u, GxSlot *slot)
{
    const GxSidePlace place = u->spec.side;
    GxSideSlot *s = &slot->side;
    if (place == GX_SIDE_NONE || place == GX_SIDE_FIRST) return;
    if (l->m->adapter.side.is_gated) s->down = gx_slot_rows(l, l->con, u->spec.width);
    s->mixed = gx_slot_rows(l, l->con, u->spec.width);
    if (place == GX_SIDE_LAST) s->top = gx_slot_rows(l, l->con, u->spec.width);
}

static GxRows gx__side_enter(GxPass *p, GxState out, GxState in)
{
    const GxSideSlot *s = &p->slot->side;
    const GxLinear *down = &gx__side_of(p)->down;
    gx_at(p->g, p->unit, "side_down");
    if (gx__side_place(p) == GX_SIDE_FIRST) {
        if (out.side.data) gx_linear_apply(p, down, out.side, in.x, 0);
    } else if (gx__side_is_gated(p)) {
        gx_linear_apply(p, down, s->down, in.x, 0);
        gx_gate_forward(p->g, s->mixed.data, s->down.data, in.side.data,
                        gx_store_weight(&p->m->store, gx__side_of(p)->gate), gx__side_temperature,
                        in.side.rows * in.side.cols, in.side.dtype);
    } else {
        gx_copy(p->g, s->mixed.data, in.side.data, gx_rows_bytes(in.side));
        gx_linear_apply(p, down, s->mixed, in.x, 1);
    }
    return gx__side_place(p) == GX_SIDE_LAST ? s->top : out.side;
}

static void gx__side_leave(GxPass *p, GxState out, GxState in)
{
    if (!out.x.data) return;
    gx_at(p->g, p->unit, "side_up");
    gx_copy(p->g, out.x.data, in.x.data, gx_rows_bytes(out.x));
    if (gx__side_place(p) == GX_SIDE_LAST) gx_linear_apply(p, &gx__side_of(p)->up, out.x, p->slot->side.top, 1);
}

static GxRows gx__side_leave_backward(GxPass *p, GxState dout)
{
    const GxRows top = p->slot->side.top;
    if (gx__side_place(p) != GX_SIDE_LAST) return dout.side;
    const GxRows dtop = gx_pass_rows(p, top.rows, top.cols);
    gx_at(p->g, p->unit, "side_up");
    gx_linear_apply_backward_input(p, &gx__side_of(p)->up, dtop, dout.x, 0);
    gx_linear_apply_backward_weight(p, &gx__side_of(p)->up, dout.x, top);
    return dtop;
}

static int gx__side_trains_enter(const GxPass *p)
{
    const GxUnit *u = gx__side_of(p);
    const GxTensorId of_enter[] = {u->down.first, u->down.bias, u->gate};
    int some = 0;
    for (size_t i = 0; i < sizeof of_enter / sizeof *of_enter; i++)
        some |= of_enter[i].index >= 0 && gx_store_trains(&p->m->store, of_enter[i].index);
    return some;
}

// Without a gate, din.side already is dmixed.
static void gx__side_enter_backward(GxPass *p, GxState din, GxRows dmixed, GxState in)
{
    const GxUnit *u = gx__side_of(p);
    GxRows ddown = dmixed;
    if (!din.side.data && !gx__side_trains_enter(p)) return;
    gx_at(p->g, p->unit, "side_down");
    if (gx__side_is_gated(p)) {
        int accumulate = 0;
        float *dgate = gx_store_grad(&p->m->store, u->gate, &accumulate);
        ddown = gx_pass_rows(p, dmixed.rows, dmixed.cols);
        gx_gate_backward(p->g, ddown.data, din.side.data, dgate, dmixed.data, p->slot->side.down.data, in.side.data,
                         gx_store_weight(&p->m->store, u->gate), gx__side_temperature, dmixed.rows * dmixed.cols,
                         accumulate, dmixed.dtype);
    }
    gx_linear_apply_backward_weight(p, &u->down, ddown, in.x);
}

// ---- the method ----------------------------------------------------------------------------------------------------

static int gx__side_is_on(const GxModel *m) { return m->adapter.side.reduction != 0; }
static const char *gx__side_trainable(const GxModel *m) { return m->adapter.side.trainable; }

// The gradients of all that is trained below pass through Up; this returns the first such tensor.
static int gx__side_through(const GxModel *m, int row)
{
    const GxLinear *up = &m->unit[m->table.row[row].unit].up;
    const int is_up = gx_unit_spec(m, m->table.row[row].unit)->side == GX_SIDE_LAST && row == up->first.index;
    for (int i = 0; i < m->table.n && is_up; i++)
        if (gx_unit_spec(m, m->table.row[i].unit)->side != GX_SIDE_NONE && !m->table.row[i].frozen && i != row &&
            i != up->bias.index)
            return i;
    return -1;
}

GxTuner gx_side_tuner(void)
{
    GxTuner t = GX_ZERO;
    t.name = "a side network", t.is_on = gx__side_is_on;
    t.check = gx__side_check, t.open = gx__side_open;
    t.trainable = gx__side_trainable, t.check_trained = gx__side_check_trained;
    t.through = gx__side_through;
    t.layout_unit = gx__side_layout;
    t.enter = gx__side_enter, t.leave = gx__side_leave;
    t.leave_backward = gx__side_leave_backward, t.enter_backward = gx__side_enter_backward,
    t.trains_enter = gx__side_trains_enter;
    return t;
}
#endif
