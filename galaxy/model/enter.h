// model/enter.h: enter is what is computed before a core: nothing, a norm, or, before a head, more than that.
//
//     NOTHING     in = x
//     NORM        in = scale * dropout(norm(x))         an RMS norm or a layer norm; dropout and scale only at the end of
//                                                       a stack
//     TRANSFORM   in = layer_norm(gelu(x W^T + b))      before the vocabulary of a masked language model
//     POOL        in = dropout(tanh(x W^T + b))         before labels of a whole text; x itself may pass a dropout; relu
//                                                       may take the place of tanh
//     DROPOUT     in = dropout(x)                       before labels of tokens
//
// It works on rows of CON's layout. Before a head, the rows of the head's target are first picked out of the stream;
// their gradients are added to the stream's. The backward picks them again, so they are not kept.
#ifndef GX_ENTER_H
#define GX_ENTER_H
#include "linear.h"
#include "unit_tensors.h"
GX_BEGIN

void gx_enter_open(GxContext *g, GxModel *m, int unit, int k, int number); // the tensors of pair k's
void gx_enter_forward(GxPass *p, int k, GxRows in, GxRows x);              // in = enter(x), unless CON has done so
void gx_enter_backward(GxPass *p, int k, GxRows dx, GxRows din, GxRows x); // dx += enter'(din)

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ENTER_IMPLEMENTED)
#define GX_ENTER_IMPLEMENTED
#include "../ops/activation.h"
#include "../ops/elementwise.h"
#include "../ops/norm.h"
#include "../ops/rows.h"

static GxLinear gx__enter_open_linear(GxContext *g, GxModel *m, int unit, int k, int number, GxLayout layout)
{
    const GxUnitSpec *u = gx_unit_spec(m, unit);
    const char *name = u->pair[k].enter.matrix;
    const GxTensorUse weight = gx_tensor_use(name, number, GX_ROLE_WEIGHT, u->width, u->width, layout),
                      bias = gx_tensor_use(name, number, GX_ROLE_BIAS, u->width, 0, layout);
    const GxTensorId w = gx_model_tensor(g, m, unit, k, &weight), b = gx_model_tensor(g, m, unit, k, &bias);
    return gx_model_linear(m, w, 1, b);
}

void gx_enter_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    const GxEnterSpec *e = &gx_unit_spec(m, unit)->pair[k].enter;
    const GxLayout con = gx_block_gives(m->mode->methods.con);
    const GxNormKind kind = e->kind == GX_ENTER_TRANSFORM ? GX_LAYER_NORM : e->norm;
    GxPair *pair = &m->unit[unit].pair[k];
    if (e->kind == GX_ENTER_NORM || e->kind == GX_ENTER_TRANSFORM)
        pair->norm = gx_model_norm(g, m, unit, k, kind, e->offset, e->norm_name, number, con);
    if (e->kind == GX_ENTER_TRANSFORM || e->kind == GX_ENTER_POOL)
        pair->enter = gx__enter_open_linear(g, m, unit, k, number, con);
}

// ---- rows ----------------------------------------------------------------------------------------------------------

// The index in the whole batch of this rank's first row of the stream.
static int64_t gx__enter_first(const GxPass *p)
{
    return p->m->mode->methods.con == GX_METHOD_SP ? gx_slice_begin(p) : 0;
}

static GxRows gx__enter_picked(const GxPairView *v, int64_t n, GxRows x)
{
    const int32_t *rows = gx_entered_rows(v);
    if (!rows) return x;
    const GxRows picked = gx_picked_rows(v, v->m->mode->methods.con, n, x.cols);
    gx_pick_rows(v->g, picked.data, x.data, rows, gx__enter_first(v->p), n, x.cols, x.dtype);
    return picked;
}

// Adds the gradients of the picked rows to dx. A head of one pair that reads all rows writes them: dx = dpicked.
static void gx__enter_put(const GxPairView *v, GxRows dx, GxRows dpicked)
{
    const int32_t *rows = gx_entered_rows(v);
    if (rows) gx_add_rows(v->g, dx.data, dpicked.data, rows, gx__enter_first(v->p), dpicked.rows, dx.cols, dx.dtype);
    else if (gx_head_writes_dx(v->p)) gx_copy(v->g, dx.data, dpicked.data, gx_rows_bytes(dx));
    else gx_add(v->g, dx.data, dx.data, dpicked.data, dx.rows * dx.cols, dx.dtype);
}

// ---- transform, pool -----------------------------------------------------------------------------------------------

static GxDropout gx__enter_dropout(const GxPairView *v, int which, float probability)
{
    GxDropout d = gx_view_dropout(v, which, probability);
    if (gx_entered_rows(v)) gx_view_dropout_rows(v, &d, gx_entered_rows(v), 0);
    return d;
}

// The rows that POOL reads: dropout(picked).
static GxRows gx__enter_read(const GxPairView *v, GxRows picked, GxRows x)
{
    const GxDropout d = gx__enter_dropout(v, GX_DROPOUT_CORE, v->spec->enter.input_dropout);
    if (d.p == 0) return picked;
    const GxRows to = picked.data == x.data ? gx_picked_rows(v, v->m->mode->methods.con, picked.rows, picked.cols)
                                            : picked; // the stream itself is not written
    gx_dropout(v->g, to.data, picked.data, to.rows, to.cols, &d, to.dtype);
    return to;
}

static void gx__enter_transform(const GxPairView *v, GxRows in, GxRows x)
{
    const GxPairSlot *s = v->slot;
    const GxEnterSpec *e = &v->spec->enter;
    const GxPair *pair = v->pair;
    const GxRows before = s->enter[0], behind = s->enter[1];
    gx_linear_apply(v->p, &pair->enter, before, x, 0);
    gx_gelu_forward(v->g, behind.data, before.data, NULL, before.rows, before.cols, gx_gelu_of(e->activation), x.dtype);
    gx_layer_norm_forward(v->g, in.data, s->mean, s->rstd, behind.data, gx_view_weight(v, pair->norm.weight),
                          gx_view_weight(v, pair->norm.bias), in.rows, in.cols, e->eps, in.dtype);
}

static void gx__enter_pool(const GxPairView *v, GxRows in, GxRows x)
{
    const GxRows pooled = v->slot->enter[0];
    const GxDropout d = gx__enter_dropout(v, GX_DROPOUT_CON, v->spec->enter.dropout);
    gx_linear_apply(v->p, &v->pair->enter, pooled, x, 0);
    (v->spec->enter.is_relu ? gx_relu_forward : gx_tanh_forward)(v->g, pooled.data, pooled.data,
                                                                 pooled.rows * pooled.cols, pooled.dtype);
    gx_dropout(v->g, in.data, pooled.data, in.rows, in.cols, &d, in.dtype);
}

// ---- norm ----------------------------------------------------------------------------------------------------------

static void gx__enter_norm(const GxPairView *v, GxRows in, GxRows x)
{
    const GxPairSlot *s = v->slot;
    const GxEnterSpec *e = &v->spec->enter;
    const GxDropout d = gx__enter_dropout(v, GX_DROPOUT_CON, e->dropout);
    const void *w = gx_view_weight(v, v->pair->norm.weight), *b = gx_view_weight(v, v->pair->norm.bias);
    if (e->norm == GX_LAYER_NORM)
        gx_layer_norm_forward(v->g, in.data, s->mean, s->rstd, x.data, w, b, in.rows, in.cols, e->eps, in.dtype);
    else gx_rms_norm_forward(v->g, in.data, s->rstd, x.data, w, e->offset, in.rows, in.cols, e->eps, in.dtype);
    if (d.p > 0) gx_dropout(v->g, in.data, in.data, in.rows, in.cols, &d, in.dtype);
    if (e->scale != 0) gx_scale(v->g, in.data, in.data, in.rows * in.cols, e->scale, in.dtype);
}

// The gradient of norm(x), from din.
static GxRows gx__enter_norm_result(const GxPairView *v, GxRows din)
{
    const GxEnterSpec *e = &v->spec->enter;
    const GxDropout drop = gx__enter_dropout(v, GX_DROPOUT_CON, e->dropout);
    if (drop.p == 0 && e->scale == 0) return din;
    const GxRows d = gx_picked_rows(v, v->m->mode->methods.con, din.rows, din.cols);
    gx_dropout(v->g, d.data, din.data, d.rows, d.cols, &drop, d.dtype);
    if (e->scale != 0) gx_scale(v->g, d.data, d.data, d.rows * d.cols, e->scale, d.dtype);
    return d;
}

// Adds the RMS norm's backward of d to dx, in one operation if no rows are picked. A head of one pair that reads all
// rows writes dx instead.
static void gx__enter_rms_norm_backward(const GxPairView *v, GxRows dx, GxRows d, GxRows x, GxRows picked)
{
    const GxTensorId norm = v->pair->norm.weight;
    const int is_apart = picked.data != x.data;
    const int is_first = gx_view_is_head(v) && gx_head_writes_dx(v->p);
    int accumulate = 0;
    float *dw = gx_store_grad(v->store, norm, &accumulate);
    const GxRows to = is_apart ? gx_picked_rows(v, v->m->mode->methods.con, picked.rows, picked.cols) : dx;
    gx_rms_norm_backward(v->g, to.data, dw, d.data, is_apart || is_first ? NULL : dx.data, picked.data, v->slot->rstd,
                         gx_view_weight(v, norm), v->spec->enter.offset, picked.rows, picked.cols, accumulate,
                         picked.dtype);
    if (is_apart) gx__enter_put(v, dx, to);
}

static void gx__enter_layer_norm_backward(const GxPairView *v, GxRows dx, GxRows d, GxRows picked)
{
    const GxPairSlot *s = v->slot;
    const GxNormIds *norm = &v->pair->norm;
    const GxRows to = gx_picked_rows(v, v->m->mode->methods.con, picked.rows, picked.cols);
    int accumulate = 0;
    float *dw = gx_store_grad(v->store, norm->weight, &accumulate),
          *db = gx_store_grad(v->store, norm->bias, &accumulate);
    gx_layer_norm_backward(v->g, to.data, dw, db, d.data, picked.data, s->mean, s->rstd,
                           gx_view_weight(v, norm->weight), to.rows, to.cols, accumulate, to.dtype);
    gx__enter_put(v, dx, to);
}

static void gx__enter_norm_backward(const GxPairView *v, GxRows dx, GxRows din, GxRows x, GxRows picked)
{
    const GxRows d = gx__enter_norm_result(v, din);
    if (v->spec->enter.norm == GX_LAYER_NORM) gx__enter_layer_norm_backward(v, dx, d, picked);
    else gx__enter_rms_norm_backward(v, dx, d, x, picked);
}

// ---- transform, pool: backward -------------------------------------------------------------------------------------

// d: the gradient of x W^T + b, computed from din.
static void gx__enter_transform_backward(const GxPairView *v, GxRows d, GxRows din)
{
    const GxPairSlot *s = v->slot;
    const GxPair *pair = v->pair;
    int accumulate = 0;
    float *dw = gx_store_grad(v->store, pair->norm.weight, &accumulate),
          *db = gx_store_grad(v->store, pair->norm.bias, &accumulate);
    gx_layer_norm_backward(v->g, d.data, dw, db, din.data, s->enter[1].data, s->mean, s->rstd,
                           gx_view_weight(v, pair->norm.weight), d.rows, d.cols, accumulate, d.dtype);
    gx_gelu_backward(v->g, d.data, NULL, d.data, s->enter[0].data, NULL, d.rows, d.cols,
                     gx_gelu_of(v->spec->enter.activation), d.dtype);
}

static void gx__enter_pool_backward(const GxPairView *v, GxRows d, GxRows din)
{
    const GxRows pooled = v->slot->enter[0];
    const GxDropout drop = gx__enter_dropout(v, GX_DROPOUT_CON, v->spec->enter.dropout);
    gx_dropout(v->g, d.data, din.data, d.rows, d.cols, &drop, d.dtype);
    const int64_t n = d.rows * d.cols;
    if (v->spec->enter.is_relu) gx_relu_backward(v->g, d.data, NULL, d.data, pooled.data, n, d.dtype);
    else gx_tanh_backward(v->g, d.data, d.data, pooled.data, n, d.dtype);
}

// ---- dropout alone -------------------------------------------------------------------------------------------------

static void gx__enter_drop(const GxPairView *v, GxRows in, GxRows picked)
{
    const GxDropout d = gx__enter_dropout(v, GX_DROPOUT_CON, v->spec->enter.dropout);
    gx_dropout(v->g, in.data, picked.data, in.rows, in.cols, &d, in.dtype);
}

static void gx__enter_drop_backward(const GxPairView *v, GxRows dx, GxRows din)
{
    const GxDropout d = gx__enter_dropout(v, GX_DROPOUT_CON, v->spec->enter.dropout);
    const GxRows dpicked = gx_picked_rows(v, v->m->mode->methods.con, din.rows, din.cols);
    gx_dropout(v->g, dpicked.data, din.data, din.rows, din.cols, &d, din.dtype);
    gx__enter_put(v, dx, dpicked);
}

// ---- enter ---------------------------------------------------------------------------------------------------------

void gx_enter_forward(GxPass *p, int k, GxRows in, GxRows x)
{
    const GxPairView view = gx_view(p, k), *v = &view;
    GxPairSlot *s = v->slot;
    const GxEnterSpec *e = &v->spec->enter;
    if (!x.data || !in.rows || s->is_entered) return;
    gx_view_at(v, GX_AT_NORM);
    const GxRows picked = gx__enter_picked(v, in.rows, x);
    switch (e->kind) {
    case GX_ENTER_NORM: gx__enter_norm(v, in, picked); break;
    case GX_ENTER_TRANSFORM: gx__enter_transform(v, in, picked); break;
    case GX_ENTER_POOL: gx__enter_pool(v, in, gx__enter_read(v, picked, x)); break;
    case GX_ENTER_DROPOUT: gx__enter_drop(v, in, picked); break;
    default:
        if (in.data != picked.data) gx_copy(v->g, in.data, picked.data, gx_rows_bytes(in));
    }
}

void gx_enter_backward(GxPass *p, int k, GxRows dx, GxRows din, GxRows x)
{
    const GxPairView view = gx_view(p, k), *v = &view;
    const GxEnterSpec *e = &v->spec->enter;
    if (!din.data || !din.rows) return;
    gx_view_at(v, GX_AT_NORM);
    if (e->kind == GX_ENTER_NOTHING) {
        gx__enter_put(v, dx, din);
        return;
    }
    if (e->kind == GX_ENTER_DROPOUT) {
        gx__enter_drop_backward(v, dx, din);
        return;
    }
    const GxRows picked = gx__enter_picked(v, din.rows, x);
    if (e->kind == GX_ENTER_NORM) {
        gx__enter_norm_backward(v, dx, din, x, picked);
        return;
    }
    const GxLinear *l = &v->pair->enter;
    const GxMethod con = v->m->mode->methods.con;
    const GxDropout read_dropout = gx__enter_dropout(v, GX_DROPOUT_CORE, e->input_dropout);
    const GxRows d = gx_picked_rows(v, con, din.rows, din.cols), dpicked = gx_picked_rows(v, con, din.rows, din.cols);
    if (e->kind == GX_ENTER_TRANSFORM) gx__enter_transform_backward(v, d, din);
    else gx__enter_pool_backward(v, d, din);
    const GxRows read = e->kind == GX_ENTER_POOL ? gx__enter_read(v, picked, x) : picked;
    gx_linear_apply_backward_weight(v->p, l, d, read);
    gx_linear_apply_backward_input(v->p, l, dpicked, d, 0);
    if (read_dropout.p > 0)
        gx_dropout(v->g, dpicked.data, dpicked.data, dpicked.rows, dpicked.cols, &read_dropout, dpicked.dtype);
    gx__enter_put(v, dx, dpicked);
}
#endif
