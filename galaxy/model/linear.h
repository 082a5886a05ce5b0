// model/linear.h: a linear layer of a model. It may have LoRA (lora.h), a scale (scale.h) or a quantized matrix, of
// which cores know nothing.
//
// Tensors that are separate in files (q, k, v; gate, up) may be packed one after another. The linear is then one matrix
// with the rows of all of them, and consecutive parts of it can also be used as a linear. Some parts may be frozen
// while others are trained.
//
// With a scale and an added bias y = s * (x W^T + b0 + b). What s multiplies is kept, and the backward first multiplies
// dy by s. In bf16, b0 + b is rounded, and so is what s multiplies.
#ifndef GX_MODEL_LINEAR_H
#define GX_MODEL_LINEAR_H
#include "../ops/quantized_linear.h"
#include "lora.h"
#include "scale.h"
GX_BEGIN

// y = x W^T + bias, or y += with `accumulate`, which a linear with a scale does not support. Likewise dx = dy W.
void gx_linear_apply(GxPass *p, const GxLinear *l, GxRows y, GxRows x, int accumulate);
void gx_linear_apply_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy, int accumulate);
void gx_linear_apply_backward_weight(GxPass *p, const GxLinear *l, GxRows dy, GxRows x); // for its trained tensors

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_LINEAR_IMPLEMENTED)
#define GX_MODEL_LINEAR_IMPLEMENTED
#include <assert.h>
#include "../comm/comm.h"
#include "tiles.h"

static GxLinearShape gx__linear_shape_of(const GxLinear *l, GxRows rows, int accumulate)
{
    GxLinearShape s = gx_linear_shape(rows.rows, l->in, l->out, rows.dtype);
    s.accumulate = accumulate;
    return s;
}

// Either all parts are quantized or none is.
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

// 1: nothing but a product, whose rows can be computed a few at a time.
static int gx__linear_is_plain(const GxPass *p, const GxLinear *l)
{
    int is_plain = !gx__linear_is_quantized(p, l) && !gx_linear_has_scale(p, l);
    for (int i = 0; i < l->parts; i++) is_plain &= !p->m->table.row[l->first.index + i].has_lora;
    return is_plain;
}

static GxRows gx__linear_part(GxRows all, GxRange rows) { return gx_some_rows(all, rows.begin, rows.end - rows.begin); }

static void gx__linear_rows(GxPass *p, const GxLinear *l, GxRows y, GxRows x, int accumulate)
{
    const GxLinearShape s = gx__linear_shape_of(l, x, accumulate);
    const int has_scale = gx_linear_has_scale(p, l);
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    const int before = gx_of_tensor(p->g, l->first.index + 1);
    const void *bias = gx_scale_bias(p, l);
    const GxRows product = has_scale ? gx_scale_product(p, l, y) : y;
    GxQuantized w[GX_MAX_MATRICES];
    assert(!has_scale || !accumulate);
    if (gx__linear_is_quantized(p, l)) {
        gx__linear_quantized(p, l, w);
        gx_quantized_linear_forward(p->g, product.data, x.data, w, l->parts, bias, &s);
    } else {
        gx_linear_forward(p->g, product.data, x.data, gx_store_weight(&p->m->store, l->first), bias, &s);
    }
    gx_lora_forward(p, l, product, x);
    if (has_scale) gx_scale_forward(p, l, y, product);
    gx_of_tensor(p->g, before);
    gx_arena_release(p->g->arena, mark);
}

// Computes rows of `to` from those of `from`: at once, or in the parts in which they arrive or leave.
static void gx__linear_by_parts(GxPass *p, const GxLinear *l, GxRows to, GxRows from, int accumulate,
                                void (*compute)(GxPass *, const GxLinear *, GxRows, GxRows, int))
{
    const int has_tiles = p->arriving || p->leaving;
    const int parts = has_tiles ? gx_tiles_parts(p, to, from, gx__linear_is_plain(p, l)) : 1;
    for (int i = 0; i < parts; i++) {
        const GxRange rows = gx_tiles_begin_part(p, to, from, parts, i);
        compute(p, l, gx__linear_part(to, rows), gx__linear_part(from, rows), accumulate);
        gx_tiles_end_part(p, to, parts, i);
    }
}

void gx_linear_apply(GxPass *p, const GxLinear *l, GxRows y, GxRows x, int accumulate)
{
    gx__linear_by_parts(p, l, y, x, accumulate, gx__linear_rows);
}

static void gx__linear_rows_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy, int accumulate)
{
    const GxLinearShape s = gx__linear_shape_of(l, dy, accumulate);
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    GxQuantized w[GX_MAX_MATRICES];
    const int before = gx_of_tensor(p->g, -(l->first.index + 1));
    dy = gx_scale_backward(p, l, dy);
    if (gx__linear_is_quantized(p, l)) {
        gx__linear_quantized(p, l, w);
        gx_quantized_linear_backward_input(p->g, dx.data, dy.data, w, l->parts, &s);
    } else {
        gx_linear_backward_input(p->g, dx.data, dy.data, gx_store_weight(&p->m->store, l->first), &s);
    }
    gx_lora_backward_input(p, l, dx, dy);
    gx_of_tensor(p->g, before);
    gx_arena_release(p->g->arena, mark);
}

void gx_linear_apply_backward_input(GxPass *p, const GxLinear *l, GxRows dx, GxRows dy, int accumulate)
{
    if (dx.data) gx__linear_by_parts(p, l, dx, dy, accumulate, gx__linear_rows_backward_input);
}

// Computes the gradients of the weights or of the biases of all parts; `first` is the first part's. Consecutive trained
// parts share one call; the columns of dy that belong to frozen parts are skipped.
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
    gx_progress(p->g); // an input gradient may still be in transfer
    const int before = gx_of_tensor(p->g, -(l->first.index + 1));
    gx_scale_backward_weight(p, l, dy);
    if (gx__linear_trains(p, l)) dy = gx_scale_backward(p, l, dy);
    gx__linear_backward_parts(p, l, l->first, 0, dy, x);
    if (l->bias.index >= 0) gx__linear_backward_parts(p, l, l->bias, 1, dy, x);
    gx_lora_backward_weight(p, l, dy, x);
    gx_of_tensor(p->g, before);
    gx_arena_release(p->g->arena, mark);
}
#endif
