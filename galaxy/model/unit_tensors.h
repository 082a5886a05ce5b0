// model/unit_tensors.h: declares the tensors of a unit, for the `open` functions of cores. From how a tensor is used
// follow its name, its box on this rank, and the ranks over which its gradient is summed.
//
//     GxTensorUse up = gx_tensor_use(c->matrix[0], number, GX_ROLE_WEIGHT, F, C, layout);
//     up.rows = &u->columns;                                    // a rank has its columns of the MLP
//     id = gx_model_tensor(g, m, unit, k, &up);
#ifndef GX_UNIT_TENSORS_H
#define GX_UNIT_TENSORS_H
#include "model.h"
GX_BEGIN

// A tensor of a unit, and how it is used.
typedef struct {
    const char *name; // of the module; a format string for the unit's number
    int number;
    GxRole role;
    int64_t shape[2];            // [1] is 0: one dimension
    const GxShares *rows, *cols; // which ranks have which of them; NULL: every rank has all
    GxLayout layout;             // of the rows of activations that it is applied to
    int packed;
    int alias; // 1 + the table row that it is another name of; 0: none
    // 1: all of it is applied only to this rank's part of rows, or of their heads, that all ranks have
    int is_own_share;
    float offset; // of a norm: what is added to its weights (spec.h)
} GxTensorUse;
// [rows, cols]; cols 0: [rows]. All ranks have all of it, unless use.rows, use.cols or use.is_own_share is set.
GxTensorUse gx_tensor_use(const char *name, int number, GxRole role, int64_t rows, int64_t cols, GxLayout layout);
GxTensorId gx_model_tensor(GxContext *g, GxModel *m, int unit, int k, const GxTensorUse *use); // of pair k
GxLinear gx_model_linear(const GxModel *m, GxTensorId first, int parts, GxTensorId bias);
// A layer norm or an RMS norm over all columns of rows in this layout. offset: what is added to its weights.
GxNormIds gx_model_norm(GxContext *g, GxModel *m, int unit, int k, GxNormKind kind, float offset, const char *name,
                        int number, GxLayout layout);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_UNIT_TENSORS_IMPLEMENTED)
#define GX_UNIT_TENSORS_IMPLEMENTED
#include <stdio.h>

GxTensorUse gx_tensor_use(const char *name, int number, GxRole role, int64_t rows, int64_t cols, GxLayout layout)
{
    GxTensorUse use = GX_ZERO;
    use.name = name, use.number = number, use.role = role;
    use.shape[0] = rows, use.shape[1] = cols;
    use.layout = layout;
    return use;
}

static int gx__tensor_sums_over_tp(const GxTensorUse *use)
{
    const int is_split = (use->rows && use->rows->is_split) || (use->cols && use->cols->is_split);
    return gx_grad_sums_over_tp(use->layout, is_split            ? GX_USE_SPLIT
                                             : use->is_own_share ? GX_USE_OWN_SHARE
                                                                 : GX_USE_WHOLE);
}

GxTensorId gx_model_tensor(GxContext *g, GxModel *m, int unit, int k, const GxTensorUse *use)
{
    GxTensor t = GX_ZERO;
    const GxTensorId none = gx_no_tensor();
    char module[GX_MODULE];
    if (gx_failed(g)) return none;
    const int is_side = gx_unit_spec(m, unit)->side != GX_SIDE_NONE;
    const int prefix = snprintf(module, sizeof module, "%s", is_side ? GX_SIDE_PREFIX : "");
    snprintf(module + prefix, sizeof module - (size_t)prefix, use->name, use->number);
    snprintf(t.name, sizeof t.name, "%s.%s", module, use->role == GX_ROLE_BIAS ? "bias" : "weight");
    t.role = use->role;
    t.unit = unit, t.pair = k, t.is_added = is_side;
    t.is_vocabulary = use->rows && use->rows == &m->kind[m->unit[unit].kind].vocab;
    t.packed = use->packed;
    t.ndim = use->shape[1] ? 2 : 1;
    const int is_norm = use->role == GX_ROLE_NORM, is_zero = use->role == GX_ROLE_BIAS || (is_norm && use->offset == 1);
    t.init = is_zero ? GX_INIT_ZEROS : is_norm ? GX_INIT_ONES : GX_INIT_NORMAL;
    t.init_std = gx_unit_spec(m, unit)->init_std;
    t.decay = use->role != GX_ROLE_NORM && use->role != GX_ROLE_BIAS;
    t.sums_over_tp = gx__tensor_sums_over_tp(use);
    const GxShares *shares[2] = {use->rows, use->cols};
    for (int d = 0; d < t.ndim; d++) {
        const GxShares *s = shares[d];
        t.global_shape[d] = t.end[d] = use->shape[d];
        if (!s || !s->is_split) continue;
        t.begin[d] = gx_share_mine(s).begin, t.end[d] = gx_share_mine(s).end;
        t.split_dim = d, t.split_axes = GX_AXIS_TP, t.n_parts = s->n, t.parts = s->part;
    }
    t.has_alias = use->alias != 0;
    t.alias.index = use->alias - 1;
    if (use->alias)
        t.decay = m->table.row[t.alias.index].decay; // on another stage it is a copy, which goes the same way
    if (use->alias && t.sums_over_tp != m->table.row[t.alias.index].sums_over_tp) { // both uses add to one gradient
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "mode %s sums the gradient of %s over other ranks than that of %s, to which it is tied", m->mode->name,
                t.name, m->table.row[t.alias.index].name);
        return none;
    }
    return gx_table_add(&m->table, &t, &g->error);
}

GxNormIds gx_model_norm(GxContext *g, GxModel *m, int unit, int k, GxNormKind kind, float offset, const char *name,
                        int number, GxLayout layout)
{
    const int64_t C = gx_unit_spec(m, unit)->width;
    const GxTensorUse bias = gx_tensor_use(name, number, GX_ROLE_BIAS, C, 0, layout);
    GxTensorUse weight = gx_tensor_use(name, number, GX_ROLE_NORM, C, 0, layout);
    GxNormIds ids;
    weight.offset = offset;
    ids.weight = gx_model_tensor(g, m, unit, k, &weight);
    ids.bias = kind == GX_LAYER_NORM ? gx_model_tensor(g, m, unit, k, &bias) : gx_no_tensor();
    return ids;
}

GxLinear gx_model_linear(const GxModel *m, GxTensorId first, int parts, GxTensorId bias)
{
    GxLinear l = {first, parts, 0, 0, bias, NULL, 0};
    if (first.index < 0) return l;
    const GxTensor *w = &m->table.row[first.index];
    l.in = w->end[1] - w->begin[1];
    for (int i = 0; i < parts && first.index + i < m->table.n; i++) l.out += w[i].end[0] - w[i].begin[0];
    return l;
}
#endif
