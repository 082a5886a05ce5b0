// model/linear.h: a linear layer of a model: the one place that knows LoRA, scales and quantised matrices; cores never
// mention them.
//
// Tensors that are separate in files (q, k, v; gate, up) may be packed one after another: the linear is then one matrix
// with the rows of all of them, and consecutive parts of it can be used as a linear, too. Some parts may be frozen
// while others are trained.
//
// A part with LoRA (lora.h) adds s * (dropout(x) A^T) B^T to its columns of y. x A^T and dy B, r numbers a row each,
// are recomputed in the backward; neither is kept.
//
// With a scale and an added bias (scale.h) y = s * (x W^T + b0 + b). The product before s is kept, and the backward
// multiplies dy by s first. In bf16 b0 + b is rounded once, and the product before s once.
#ifndef GX_MODEL_LINEAR_H
#define GX_MODEL_LINEAR_H
#include "../ops/quantized_linear.h"
#include "lora.h"
#include "scale.h"
#include "unit.h"
GX_BEGIN

// y = x W^T + bias; with `accumulate` y += that, which only a linear without a scale can. Likewise dx = dy W.
void gx_linear_apply(GxPass *p, const GxLinear *l, GxRows y, GxRows x, int accumulate);
void gx_linear_apply_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy, int accumulate);
void gx_linear_apply_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x); // of its trained tensors

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_LINEAR_IMPLEMENTED)
#define GX_MODEL_LINEAR_IMPLEMENTED
#include <assert.h>
#include "../comm/comm.h"
#include "../ops/columns.h"
#include "../ops/elementwise.h"

static GxLinearShape gx__linear_added(GxLinearShape s, int accumulate)
{
    s.accumulate = accumulate;
    return s;
}

// ---- LoRA ----------------------------------------------------------------------------------------------------------

typedef struct { // of one part of a linear, for some rows
    GxTensorId a, b;
    int64_t column;         // the first of the part's columns of y
    GxDropout dropout;      // of x
    GxLinearShape down, up; // from x to r columns; from these to the part's columns of y, times s
} GxLoraPart;

// The dropout of A's input x. Which global rows and columns x has depends on where the linear stands: before a core, in
// a head, which takes a chunk of its target's rows at a time, or in a core; TP may leave this rank some of the columns.
static GxDropout gx__lora_dropout(const GxPass *p, const GxLinear *l, const GxTensor *w)
{
    const int k = w->pair, is_enter = gx_pass_pair(p, k)->enter.first.index == l->first.index,
              is_head = !is_enter && gx_pass_spec(p, k)->con.kind == GX_CON_NOTHING;
    const int32_t *picked = is_head ? gx_pass_target(p, k)->rows : NULL;
    GxDropout d = gx_pass_dropout(p, k, GX_DROPOUT_CON, p->m->lora.dropout);
    d.site = gx_random_site(GX_SITE_LORA, w->lora.index);
    if (is_enter) d.rows = gx_entered_rows(p, k);
    else if (is_head) d.rows = picked ? picked + l->picked : NULL, d.first_row = l->picked;
    else d.first_row = gx_core_method(p, k) == GX_METHOD_SP ? gx_slice_begin(p) : 0;
    d.first_column = w->begin[1], d.columns = w->global_shape[1];
    return d;
}

// Describes the LoRA of part i in *part. Returns 0 if the part has none.
static int gx__lora_part(GxPass *p, const GxLinear *l, int i, GxRows rows, GxLoraPart *part)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    if (!t[i].has_lora) return 0;
    part->a = part->b = t[i].lora;
    part->b.index++;
    part->column = 0;
    for (int before = 0; before < i; before++) part->column += t[before].end[0] - t[before].begin[0];
    part->dropout = gx__lora_dropout(p, l, &t[i]);
    const int64_t r = gx_lora_rank(p->m, &t[i]);
    part->down = gx_linear_shape(rows.rows, l->in, r, rows.dtype);
    part->up = gx_linear_shape(rows.rows, r, t[i].end[0] - t[i].begin[0], rows.dtype);
    part->up.y_stride = l->out;
    part->up.scale = (float)t[i].lora_scale;
    return 1;
}

// dropout(x), which A is applied to.
static GxRows gx__lora_dropped(GxPass *p, const GxLoraPart *part, GxRows x)
{
    if (part->dropout.p == 0) return x;
    const GxRows dropped = gx_pass_rows(p, x.rows, x.cols);
    gx_dropout(p->g, dropped.data, x.data, x.rows, x.cols, &part->dropout, x.dtype);
    return dropped;
}

// h = x A^T
static GxRows gx__lora_down(GxPass *p, const GxLoraPart *part, GxRows x)
{
    const GxRows h = gx_pass_rows(p, x.rows, part->down.Out);
    gx_linear_forward(p->g, h.data, x.data, gx_store_weight(&p->m->store, part->a), NULL, &part->down);
    return h;
}

// dh = s * dy B, of the part's columns
static GxRows gx__lora_down_backward(GxPass *p, const GxLoraPart *part, GxRows dy)
{
    const GxRows dh = gx_pass_rows(p, dy.rows, part->down.Out);
    gx_linear_backward_input(p->g, dh.data, gx_rows_column(dy, part->column), gx_store_weight(&p->m->store, part->b),
                             &part->up);
    return dh;
}

static void gx__lora_forward(GxPass *p, const GxLinear *l, GxRows y, GxRows x)
{
    GxLoraPart part;
    for (int i = 0; i < l->parts; i++) {
        const GxArenaMark mark = gx_arena_mark(p->g->arena);
        if (!gx__lora_part(p, l, i, x, &part)) continue;
        const GxRows h = gx__lora_down(p, &part, gx__lora_dropped(p, &part, x));
        const GxLinearShape s = gx__linear_added(part.up, 1);
        gx_linear_forward(p->g, gx_rows_column(y, part.column), h.data, gx_store_weight(&p->m->store, part.b), NULL,
                          &s);
        gx_arena_release(p->g->arena, mark);
    }
}

// dx += dh A, dropped as x was
static void gx__lora_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy)
{
    GxLoraPart part;
    for (int i = 0; i < l->parts; i++) {
        const GxArenaMark mark = gx_arena_mark(p->g->arena);
        if (!gx__lora_part(p, l, i, dy, &part)) continue;
        const GxRows dh = gx__lora_down_backward(p, &part, dy),
                     own = part.dropout.p == 0 ? dx : gx_pass_rows(p, dx.rows, dx.cols);
        const GxLinearShape s = gx__linear_added(part.down, own.data == dx.data);
        gx_linear_backward_input(p->g, own.data, dh.data, gx_store_weight(&p->m->store, part.a), &s);
        if (own.data != dx.data) {
            gx_dropout(p->g, own.data, own.data, own.rows, own.cols, &part.dropout, own.dtype);
            gx_add(p->g, dx.data, dx.data, own.data, dx.rows * dx.cols, dx.dtype);
        }
        gx_arena_release(p->g->arena, mark);
    }
}

// dA = dh^T x, dB = s * dy^T h
static void gx__lora_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x)
{
    GxLoraPart part;
    for (int i = 0; i < l->parts; i++) {
        const GxArenaMark mark = gx_arena_mark(p->g->arena);
        if (!gx__lora_part(p, l, i, x, &part)) continue;
        int adds_a = 0, adds_b = 0;
        float *da = gx_store_grad(&p->m->store, part.a, &adds_a), *db = gx_store_grad(&p->m->store, part.b, &adds_b);
        const GxRows dropped = gx__lora_dropped(p, &part, x);
        const GxLinearShape down = gx__linear_added(part.down, adds_a), up = gx__linear_added(part.up, adds_b);
        if (da)
            gx_linear_backward_weight(p->g, da, NULL, gx__lora_down_backward(p, &part, dy).data, dropped.data, &down);
        if (db)
            gx_linear_backward_weight(p->g, db, NULL, gx_rows_column(dy, part.column),
                                      gx__lora_down(p, &part, dropped).data, &up);
        gx_arena_release(p->g->arena, mark);
    }
}

// ---- a scale, and a bias before it ---------------------------------------------------------------------------------

// Either all parts have a scale, or none has.
static int gx__linear_has_scale(const GxPass *p, const GxLinear *l)
{
    return p->m->table.row[l->first.index].has_scale;
}

static GxColumns gx__scale_columns(const GxLinear *l, GxRows rows, int64_t cols)
{
    const GxColumns n = {rows.rows, cols, l->out, rows.dtype};
    return n;
}

// Where x W^T + b0 + b is kept. Parts of a packed linear have theirs one after another.
static GxRows gx__scale_product(const GxPass *p, const GxLinear *l, GxRows like)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    GxRows kept = gx_rows(l->product, like.dtype, like.rows, l->out);
    for (int i = 0; i < 2 && !kept.data; i++) {
        const GxLinear *whole = &gx_pass_pair(p, t->pair)->linear[i];
        const int at = l->first.index - whole->first.index;
        int64_t before = 0;
        if (at < 0 || at >= whole->parts) continue;
        for (int j = 1; j <= at; j++) before += t[-j].end[0] - t[-j].begin[0];
        kept.data = (char *)gx_pass_slot(p, t->pair)->product[i].data + like.rows * before * gx_dtype_size(like.dtype);
    }
    return kept;
}

// b0 + b. If the matrix is split by columns, x W^T is a rank's summand, and only the first rank adds b.
static const void *gx__linear_bias(GxPass *p, const GxLinear *l)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    const void *own = l->bias.index < 0 ? NULL : gx_store_weight(&p->m->store, l->bias);
    if (!t->has_scale || (t->parts && t->split_dim == 1 && p->m->member > 0)) return own;
    const void *added = gx_store_weight(&p->m->store, t->added_bias);
    if (!own) return added;
    const GxRows sum = gx_pass_rows(p, 1, l->out);
    gx_add(p->g, sum.data, own, added, l->out, sum.dtype);
    return sum.data;
}

// s * x; x may be a gradient
static void gx__scale_forward(GxPass *p, const GxLinear *l, GxRows y, GxRows x)
{
    const GxColumns n = gx__scale_columns(l, x, l->out);
    const GxTensorId s = p->m->table.row[l->first.index].scale;
    gx_scale_columns_forward(p->g, y.data, x.data, gx_store_weight(&p->m->store, s), &n);
}

// s * dy; dy itself if the linear has no scale.
static GxRows gx__scale_backward(GxPass *p, const GxLinear *l, GxRows dy)
{
    if (!gx__linear_has_scale(p, l)) return dy;
    const GxRows d = gx_pass_rows(p, dy.rows, dy.cols);
    gx__scale_forward(p, l, d, dy);
    return d;
}

// ds = sum of dy * (x W^T + b0 + b), db = sum of s * dy
static void gx__scale_backward_weight(GxPass *p, const GxLinear *l, GxRows dy)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    if (!t->has_scale) return;
    const GxRows product = gx__scale_product(p, l, dy);
    for (int64_t i = 0, column = 0; i < l->parts; column += t[i].end[0] - t[i].begin[0], i++) {
        int adds_s = 0, adds_b = 0;
        float *ds = gx_store_grad(&p->m->store, t[i].scale, &adds_s),
              *db = gx_store_grad(&p->m->store, t[i].added_bias, &adds_b);
        const GxColumns n = gx__scale_columns(l, dy, t[i].end[0] - t[i].begin[0]);
        gx_scale_columns_backward(p->g, NULL, ds, db, gx_rows_column(dy, column), gx_rows_column(product, column),
                                  gx_store_weight(&p->m->store, t[i].scale), &n, ds ? adds_s : adds_b);
    }
}

// ---- the linear ----------------------------------------------------------------------------------------------------

static GxLinearShape gx__linear_shape_of(const GxLinear *l, GxRows rows, int accumulate)
{
    GxLinearShape s = gx_linear_shape(rows.rows, l->in, l->out, rows.dtype);
    s.accumulate = accumulate;
    return s;
}

// Either all parts are quantised, or none is.
static int gx__linear_is_quantized(const GxPass *p, const GxLinear *l)
{
    return p->m->table.row[l->first.index].quantized != 0;
}

static void gx__linear_quantized(const GxPass *p, const GxLinear *l, GxQuantized w[GX_MAX_MATRICES])
{
    for (int i = 0; i < l->parts; i++) {
        const GxTensorId id = {l->first.index + i};
        w[i] = gx_store_quantized(&p->m->store, id);
    }
}

void gx_linear_apply(GxPass *p, const GxLinear *l, GxRows y, GxRows x, int accumulate)
{
    const GxLinearShape s = gx__linear_shape_of(l, x, accumulate);
    const int has_scale = gx__linear_has_scale(p, l);
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    const void *bias = gx__linear_bias(p, l);
    const GxRows product = has_scale ? gx__scale_product(p, l, y) : y;
    GxQuantized w[GX_MAX_MATRICES];
    assert(!has_scale || !accumulate);
    if (gx__linear_is_quantized(p, l)) {
        gx__linear_quantized(p, l, w);
        gx_quantized_linear_forward(p->g, product.data, x.data, w, l->parts, bias, &s);
    } else {
        gx_linear_forward(p->g, product.data, x.data, gx_store_weight(&p->m->store, l->first), bias, &s);
    }
    gx__lora_forward(p, l, product, x);
    if (has_scale) gx__scale_forward(p, l, y, product);
    gx_arena_release(p->g->arena, mark);
}

void gx_linear_apply_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy, int accumulate)
{
    const GxLinearShape s = gx__linear_shape_of(l, dy, accumulate);
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    GxQuantized w[GX_MAX_MATRICES];
    if (!dx.data) return;
    dy = gx__scale_backward(p, l, dy);
    if (gx__linear_is_quantized(p, l)) {
        gx__linear_quantized(p, l, w);
        gx_quantized_linear_backward_input(p->g, dx.data, dy.data, w, l->parts, &s);
    } else {
        gx_linear_backward_input(p->g, dx.data, dy.data, gx_store_weight(&p->m->store, l->first), &s);
    }
    gx__lora_backward_input(p, l, dx, dy);
    gx_arena_release(p->g->arena, mark);
}

// The gradients of the weights, or of the biases, of all parts; `first` is the first of them. One call computes those
// of consecutive trained parts; the columns of dy that belong to frozen parts are skipped.
static void gx__linear_backward_parts(GxPass *p, const GxLinear *l, GxTensorId first, int is_bias, GxRows dy, GxRows x)
{
    const GxTensor *t = &p->m->table.row[first.index];
    int64_t column = 0;
    for (int i = 0; i < l->parts;) {
        GxTensorId id = {first.index + i};
        int accumulate = 0;
        float *grad = gx_store_grad(&p->m->store, id, &accumulate);
        GxLinearShape s = gx__linear_shape_of(l, dy, accumulate);
        s.y_stride = l->out;
        s.Out = t[i].end[0] - t[i].begin[0];
        for (i++; i < l->parts; i++) {
            int also = 0;
            GxTensorId next = {first.index + i};
            if (!grad != !gx_store_trains(&p->m->store, next.index)) break;
            if (grad) gx_store_grad(&p->m->store, next, &also);
            s.Out += t[i].end[0] - t[i].begin[0];
        }
        if (grad)
            gx_linear_backward_weight(p->g, is_bias ? NULL : grad, is_bias ? grad : NULL, gx_rows_column(dy, column),
                                      x.data, &s);
        column += s.Out;
    }
}

// 1: a matrix or a bias of the linear itself is trained.
static int gx__linear_trains(const GxPass *p, const GxLinear *l)
{
    int some = 0;
    for (int i = 0; i < l->parts; i++)
        some |= gx_store_trains(&p->m->store, l->first.index + i) ||
                (l->bias.index >= 0 && gx_store_trains(&p->m->store, l->bias.index + i));
    return some;
}

void gx_linear_apply_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x)
{
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    gx_progress(p->g); // an input gradient may be in transfer meanwhile
    gx__scale_backward_weight(p, l, dy);
    if (gx__linear_trains(p, l)) dy = gx__scale_backward(p, l, dy);
    gx__linear_backward_parts(p, l, l->first, 0, dy, x);
    if (l->bias.index >= 0) gx__linear_backward_parts(p, l, l->bias, 1, dy, x);
    gx__lora_backward_weight(p, l, dy, x);
    gx_arena_release(p->g->arena, mark);
}
#endif
