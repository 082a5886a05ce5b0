// model/con.h: CON, which joins a core's result to the residual stream.
//
//     pre-norm (LLaMA)        y = x + out
//     pre-norm (T5, GPT-2)    y = x + dropout(out + bias)
//     both (Gemma 3)          y = x + rms_norm(out + bias)
//     post-norm (BERT)        y = layer_norm(x + dropout(out + bias))
//     embedding               y = dropout(layer_norm(out + positions + types)), with or without each of them
//
// With adapters (bottleneck.h) a(out + bias) takes the place of out + bias.
//
// `bias` is that of the core's last matrix. This matrix is row-parallel: its result is a sum over ranks, and the bias
// is added after the sum. Within a unit a plain addition and the RMS norm of the next pair are one fused operation; with
// a bias or dropout, before a layer norm and at a unit's end, from which only the stream is passed on, they are two. A
// norm's input is kept for its backward.
#ifndef GX_CON_H
#define GX_CON_H
#include "bottleneck.h"
GX_BEGIN

void gx_con_open(GxContext *g, GxModel *m, int unit, int k, int number); // the tensors of pair k's
void gx_con_forward(GxPass *p, int k, GxRows y, GxRows x, GxRows out); // y = x + out; also the norm of pair k+1, if any
void gx_con_backward(GxPass *p, int k, GxRows dx, GxRows dout, GxRows dy); // dx: of the bypass; dout: of the core

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CON_IMPLEMENTED)
#define GX_CON_IMPLEMENTED
#include "../ops/elementwise.h"
#include "../ops/embedding.h"
#include "../ops/norm.h"
#include "../ops/residual.h"
#include "../ops/rope.h"

static GxTensorId gx__con_open_table(GxContext *g, GxModel *m, int unit, int k, int number, const char *name,
                                     int64_t rows)
{
    const GxLayout con = gx_block_gives(m->mode->methods.con);
    const GxTensorUse use = gx_tensor_use(name, number, GX_ROLE_EMBEDDING, rows, gx_unit_spec(m, unit)->width, con);
    return rows ? gx_model_tensor(g, m, unit, k, &use) : gx_no_tensor();
}

void gx_con_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    const GxPairSpec *spec = &gx_unit_spec(m, unit)->pair[k];
    const GxConSpec *c = &spec->con;
    const GxLayout con = gx_block_gives(m->mode->methods.con);
    const char *last = spec->core.matrix[gx_core_last_matrix(&spec->core)];
    const GxTensorUse bias = gx_tensor_use(last, number, GX_ROLE_BIAS, gx_unit_spec(m, unit)->width, 0, con);
    GxPair *pair = &m->unit[unit].pair[k];
    const GxNormKind kind = c->norms_result ? GX_RMS_NORM : GX_LAYER_NORM;
    if (c->has_norm || c->norms_result)
        pair->con_norm = gx_model_norm(g, m, unit, k, kind, c->offset, c->norm_name, number, con);
    if (c->has_bias) pair->con_bias = gx_model_tensor(g, m, unit, k, &bias);
    if (c->kind != GX_CON_EMBED) return;
    pair->positions = gx__con_open_table(g, m, unit, k, number, c->positions_name, c->positions);
    pair->types = gx__con_open_table(g, m, unit, k, number, c->types_name, c->types);
}

// ---- layers --------------------------------------------------------------------------------------------------------

// out = a(out + bias). The residual operation that adds the bias needs a summand x. The rows that the adapter will keep
// serve as zeros for it until they are written.
static void gx__con_adapt(const GxPairView *v, GxRows out)
{
    const GxRows zeros = v->slot->adapter[0];
    GxResidual r = GX_ZERO;
    r.R = out.rows, r.C = out.cols, r.dtype = out.dtype;
    r.bias = gx_view_weight(v, v->pair->con_bias);
    r.dropout = gx_no_dropout();
    if (r.bias) {
        gx_zero(v->g, zeros.data, gx_rows_bytes(zeros));
        gx_residual_forward(v->g, out.data, NULL, NULL, NULL, zeros.data, out.data, &r);
    }
    gx_bottleneck_forward(v, out);
}

// With an adapter, `out` already contains the bias.
static GxResidual gx__con_residual(const GxPairView *v, GxRows y)
{
    const GxConSpec *c = &v->spec->con;
    const GxPair *pair = v->pair;
    GxResidual r = GX_ZERO;
    r.R = y.rows, r.C = y.cols, r.dtype = y.dtype;
    r.bias = gx_view_has_adapter(v) ? NULL : gx_view_weight(v, pair->con_bias);
    r.w = gx_view_weight(v, pair->con_norm.weight), r.b = gx_view_weight(v, pair->con_norm.bias);
    r.eps = c->eps;
    r.dropout = gx_view_dropout(v, GX_DROPOUT_CON, c->dropout);
    return r;
}

// y = x + dropout(out + bias), and its norm if there is one.
static void gx__con_join(const GxPairView *v, GxRows y, GxRows x, GxRows out, const GxResidual *r)
{
    const GxPairSlot *s = v->slot;
    gx_residual_forward(v->g, y.data, r->w ? s->sum.data : y.data, s->con_mean, s->con_rstd, x.data, out.data, r);
}

// The pair behind this one, if CON also computes its norm. NULL: enter does.
static const GxPairView *gx__con_fused(const GxPairView *v, GxPairView *next)
{
    if (v->k + 1 == v->kind->spec.n_pairs) return NULL;
    *next = gx_view(v->p, v->k + 1);
    const GxEnterSpec *e = &next->spec->enter;
    return e->kind == GX_ENTER_NORM && e->norm == GX_RMS_NORM && e->dropout == 0 && e->scale == 0 ? next : NULL;
}

// y = x + out; if pair k+1 begins with an RMS norm, also that pair's in = norm(y).
static void gx__con_add(const GxPairView *v, GxRows y, GxRows x, GxRows out)
{
    GxPairView view;
    const GxPairView *next = gx__con_fused(v, &view);
    if (!next) {
        gx_add(v->g, y.data, x.data, out.data, y.rows * y.cols, y.dtype);
        return;
    }
    const GxRows in = gx_con_rows(next, next->slot->in);
    const GxEnterSpec *e = &next->spec->enter;
    gx_add_rms_norm_forward(v->g, y.data, in.data, next->slot->rstd, x.data, out.data,
                            gx_view_weight(next, next->pair->norm.weight), e->offset, x.rows, x.cols, e->eps, x.dtype);
    next->slot->is_entered = 1;
}

// Returns norm(out), or norm(out + bias), in scratch, and keeps its input. The residual operation that adds the bias
// needs a summand x: rows of zeros.
static GxRows gx__con_norm_result(const GxPairView *v, GxRows out)
{
    const GxPairSlot *s = v->slot;
    const GxConSpec *c = &v->spec->con;
    const GxRows sum = s->sum, result = gx_pass_rows(v->p, sum.rows, sum.cols);
    GxResidual r = gx__con_residual(v, sum);
    r.w = r.b = NULL;
    if (r.bias) {
        gx_zero(v->g, result.data, gx_rows_bytes(result));
        gx_residual_forward(v->g, sum.data, NULL, NULL, NULL, result.data, out.data, &r);
    } else if (out.data != sum.data) gx_copy(v->g, sum.data, out.data, gx_rows_bytes(sum));
    gx_rms_norm_forward(v->g, result.data, s->con_rstd, sum.data, gx_view_weight(v, v->pair->con_norm.weight),
                        c->offset, sum.rows, sum.cols, c->eps, sum.dtype);
    return result;
}

// Gradients of CON's own tensors; NULL: no such tensor, or it is frozen. `accumulate` is the same for all of them,
// since they are always written together.
typedef struct {
    float *bias, *w, *b;
    int accumulate;
} GxConGrads;

static GxConGrads gx__con_grads(const GxPairView *v)
{
    const GxPair *pair = v->pair;
    const GxTensorId id[3] = {pair->con_bias, pair->con_norm.weight, pair->con_norm.bias};
    GxConGrads d = GX_ZERO;
    float **grad[3] = {&d.bias, &d.w, &d.b};
    for (int i = 0; i < 3; i++)
        if (id[i].index >= 0) {
            int accumulate = 0;
            *grad[i] = gx_store_grad(v->store, id[i], &accumulate);
            d.accumulate |= *grad[i] && accumulate;
        }
    return d;
}

static void gx__con_join_backward(const GxPairView *v, GxRows dx, GxRows dout, GxRows dy)
{
    const GxPairSlot *s = v->slot;
    const GxResidual r = gx__con_residual(v, dy);
    const GxConGrads d = gx__con_grads(v);
    const int has_adapter = gx_view_has_adapter(v);
    if (has_adapter && !dout.data) dout = gx_pass_rows(v->p, dy.rows, dy.cols);
    gx_residual_backward(v->g, dx.data, dout.data, has_adapter ? NULL : d.bias, d.w, d.b, dy.data, s->sum.data,
                         s->con_mean, s->con_rstd, &r, d.accumulate);
    if (!has_adapter) return;
    gx_bottleneck_backward(v, dout, v->p->wants_core || d.bias);
    GxLinearShape sum = gx_linear_shape(dout.rows, dout.cols, dout.cols, dout.dtype);
    sum.accumulate = d.accumulate;
    gx_linear_backward_weight(v->g, NULL, d.bias, dout.data, dout.data, &sum);
}

// dx = dy; dout: the gradient of what was normed, or, with an adapter, of the adapter's input.
static void gx__con_norm_result_backward(const GxPairView *v, GxRows dx, GxRows dout, GxRows dy)
{
    const GxPairSlot *s = v->slot;
    const GxConGrads d = gx__con_grads(v);
    const int has_adapter = gx_view_has_adapter(v);
    if (!dout.data) dout = gx_pass_rows(v->p, dy.rows, dy.cols);
    gx_rms_norm_backward(v->g, dout.data, d.w, dy.data, NULL, s->sum.data, s->con_rstd,
                         gx_view_weight(v, v->pair->con_norm.weight), v->spec->con.offset, dy.rows, dy.cols,
                         d.accumulate, dy.dtype);
    if (dx.data != dy.data) gx_copy(v->g, dx.data, dy.data, gx_rows_bytes(dy));
    if (has_adapter) gx_bottleneck_backward(v, dout, v->p->wants_core || d.bias);
    if (d.bias) {
        GxLinearShape sum = gx_linear_shape(dout.rows, dout.cols, dout.cols, dout.dtype);
        sum.accumulate = d.accumulate;
        gx_linear_backward_weight(v->g, NULL, d.bias, dout.data, dout.data, &sum);
    }
}

// ---- embedding -----------------------------------------------------------------------------------------------------

// This rank's part of the batch's positions or types, which index a table.
static const int32_t *gx__con_ids(const GxPairView *v, const int32_t *ids, const char *what)
{
    if (!ids && v->g->device->computes)
        GX_FAIL(&v->g->error, GX_ERR_ARGUMENT, "the model has a table of %s, but the batch has no such array", what);
    return ids && v->m->mode->methods.con == GX_METHOD_SP ? ids + gx_slice_begin(v->p) : ids;
}

// Positions that the batch does not name: each text's count from 0.
static const int32_t *gx__con_positions(const GxPairView *v)
{
    const GxBatch *b = v->b;
    if (v->pair->positions.index < 0 || b->positions || v->spec->con.first_position) return b->positions;
    int32_t *positions = (int32_t *)gx_scratch(v->g, GX_MEM_WORKSPACE, 4 * gx_runs_rows(&b->runs) * b->B);
    gx_text_positions(v->g, positions, &b->runs, b->documents, b->B);
    return positions;
}

static void gx__con_look_up(const GxPairView *v, GxTensorId table, int64_t rows, const int32_t *ids, const char *what,
                            GxRows sum)
{
    GxEmbedding e = gx_embedding_shape(sum.rows, sum.cols, rows, sum.dtype);
    e.accumulate = 1;
    if (table.index < 0) return;
    ids = gx__con_ids(v, ids, what);
    const int before = gx_of_tensor(v->g, table.index + 1);
    gx_embedding_forward(v->g, sum.data, gx_view_weight(v, table), ids, &e);
    gx_of_tensor(v->g, before);
}

static void gx__con_embed(const GxPairView *v, GxRows y, GxRows out)
{
    const GxPairSlot *s = v->slot;
    const GxConSpec *c = &v->spec->con;
    const GxPair *pair = v->pair;
    const GxDropout drop = gx_view_dropout(v, GX_DROPOUT_CON, c->dropout);
    const GxRows sum = c->has_norm ? s->sum : y;
    if (out.data != sum.data) gx_copy(v->g, sum.data, out.data, gx_rows_bytes(sum));
    gx__con_look_up(v, pair->positions, c->positions, gx__con_positions(v), "positions", sum);
    gx__con_look_up(v, pair->types, c->types, v->b->types, "token types", sum);
    if (c->has_norm)
        gx_layer_norm_forward(v->g, y.data, s->con_mean, s->con_rstd, sum.data,
                              gx_view_weight(v, pair->con_norm.weight), gx_view_weight(v, pair->con_norm.bias), y.rows,
                              y.cols, c->eps, y.dtype);
    if (drop.p > 0) gx_dropout(v->g, y.data, y.data, y.rows, y.cols, &drop, y.dtype);
}

// ignored: a row that gets no gradient; -1: none.
static void gx__con_look_up_backward(const GxPairView *v, GxTensorId table, int64_t rows, int64_t ignored,
                                     const int32_t *ids, GxRows dsum)
{
    GxEmbedding e = gx_embedding_shape(dsum.rows, dsum.cols, rows, dsum.dtype);
    e.ignored = ignored;
    float *dw = table.index < 0 ? NULL : gx_store_grad(v->store, table, &e.accumulate);
    const int before = gx_of_tensor(v->g, -(table.index + 1));
    if (dw) gx_embedding_backward(v->g, dw, dsum.data, gx__con_ids(v, ids, "rows"), &e);
    gx_of_tensor(v->g, before);
}

static void gx__con_embed_backward(const GxPairView *v, GxRows dx, GxRows dy)
{
    const GxPairSlot *s = v->slot;
    const GxConSpec *c = &v->spec->con;
    const GxPair *pair = v->pair;
    const GxDropout drop = gx_view_dropout(v, GX_DROPOUT_CON, c->dropout);
    const GxConGrads d = gx__con_grads(v);
    if (drop.p > 0) gx_dropout(v->g, dx.data, dy.data, dy.rows, dy.cols, &drop, dy.dtype);
    const GxRows normed = drop.p > 0 ? dx : dy;
    if (c->has_norm)
        gx_layer_norm_backward(v->g, dx.data, d.w, d.b, normed.data, s->sum.data, s->con_mean, s->con_rstd,
                               gx_view_weight(v, pair->con_norm.weight), dy.rows, dy.cols, d.accumulate, dy.dtype);
    else if (dx.data != normed.data) gx_copy(v->g, dx.data, normed.data, gx_rows_bytes(dy));
    const int trains = pair->positions.index >= 0 && gx_store_trains(v->store, pair->positions.index);
    gx__con_look_up_backward(v, pair->positions, c->positions, c->skips_padding ? c->first_position - 1 : -1,
                             trains ? gx__con_positions(v) : NULL, dx);
    gx__con_look_up_backward(v, pair->types, c->types, -1, v->b->types, dx);
}

// ---- CON -----------------------------------------------------------------------------------------------------------

void gx_con_forward(GxPass *p, int k, GxRows y, GxRows x, GxRows out)
{
    const GxPairView view = gx_view(p, k), *v = &view;
    const GxConSpec *c = &v->spec->con;
    if (!y.data || c->kind == GX_CON_NOTHING || c->kind == GX_CON_MEMORY) return;
    gx_view_at(v, GX_AT_CON);
    if (c->kind == GX_CON_EMBED) {
        gx__con_embed(v, y, out);
        return;
    }
    if (gx_view_has_adapter(v)) gx__con_adapt(v, out);
    if (c->norms_result) {
        gx__con_add(v, y, x, gx__con_norm_result(v, out));
        return;
    }
    const GxResidual r = gx__con_residual(v, y);
    if (r.w || r.bias || r.dropout.p > 0) gx__con_join(v, y, x, out, &r);
    else gx__con_add(v, y, x, out);
}

// Without a norm dx = dy. dout = dx if there is no dropout either, or, with an adapter, the gradient of its input. dout
// without rows: not needed.
void gx_con_backward(GxPass *p, int k, GxRows dx, GxRows dout, GxRows dy)
{
    const GxPairView view = gx_view(p, k), *v = &view;
    const GxConSpec *c = &v->spec->con;
    if (c->kind == GX_CON_NOTHING || c->kind == GX_CON_MEMORY) return;
    gx_view_at(v, GX_AT_CON);
    if (c->norms_result) {
        gx__con_norm_result_backward(v, dx, dout, dy);
        return;
    }
    if (c->kind == GX_CON_ADD && (c->has_norm || c->has_bias || c->dropout > 0)) {
        gx__con_join_backward(v, dx, dout, dy);
        return;
    }
    if (c->kind == GX_CON_EMBED) gx__con_embed_backward(v, dx, dy);
    else if (dx.data != dy.data) gx_copy(v->g, dx.data, dy.data, gx_rows_bytes(dy));
    if (dout.data && dout.data != dx.data) gx_copy(v->g, dout.data, dx.data, gx_rows_bytes(dx));
    if (gx_view_has_adapter(v)) gx_bottleneck_backward(v, dout.data ? dout : dx, v->p->wants_core);
}
#endif
