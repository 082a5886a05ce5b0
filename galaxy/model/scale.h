// model/scale.h: LLaMA-Adapter v2 (Gao et al. 2023, arXiv:2304.15010, section 3.1): a scale and a bias for each
// linear of attention and MLP.
//
//     y = s * (x W^T + b0 + b)        s, b [out]; b0: the linear's own bias, if any
//
// Initially s is 1 and b is 0, so training starts from the unchanged model. Both are trained in all layers, together
// with all norms (tuned.h). Heads and embeddings have neither: the paper is about the linears of a layer. Like norms
// and biases, they have no weight decay.
//
// If W is split by rows, s and b are split with it. If W is split by columns, every rank has all of both and scales its
// summand: sum_r s * (x_r W_r^T) = s * (sum_r x_r W_r^T), so there is no additional communication. The first rank of
// the group adds b. The gradient of b comes from rows that all ranks have, so it is the same on all of them; that of s
// is computed from the rank's summand, so it is a summand itself (layout.h, GX_USE_OWN_SHARE).
//
// Memory: the gradient of s reads x W^T + b0 + b. This cannot be recomputed from y, since s may be 0, so it is kept: as
// many elements a row as the linear has outputs.
//
// Names: model.layers.0.self_attn.q_proj.adaption_scale, .adaption_bias.
#ifndef GX_MODEL_SCALE_H
#define GX_MODEL_SCALE_H
#include "tuner.h"
GX_BEGIN

GxTuner gx_scale_tuner(void);

int gx_pair_has_scale(const GxModel *m, int unit, int k);
static inline int gx_linear_has_scale(const GxPass *p,
                                      const GxLinear *l) // either all of its parts have one or none does
{
    return p->m->table.row[l->first.index].has_scale;
}

// For linear.h. gx_scale_product: where the product that the scale multiplies is kept, for rows like y. gx_scale_bias:
// what is added to x W^T: b0 + b, or b0 if l has no scale; NULL: nothing.
GxRows gx_scale_product(const GxPass *p, const GxLinear *l, GxRows like);
const void *gx_scale_bias(GxPass *p, const GxLinear *l);
void gx_scale_forward(GxPass *p, const GxLinear *l, GxRows y, GxRows x); // y = s * x
GxRows gx_scale_backward(GxPass *p, const GxLinear *l, GxRows dy);       // s * dy, in scratch; dy if l has no scale
void gx_scale_backward_weight(GxPass *p, const GxLinear *l, GxRows dy);  // the gradients of s and b

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_SCALE_IMPLEMENTED)
#define GX_MODEL_SCALE_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../base/text.h"
#include "../ops/columns.h"
#include "../ops/elementwise.h"

// ---- tensors -------------------------------------------------------------------------------------------------------

// Adds a vector with one element for each row of the matrix in table row `base`.
static GxTensorId gx__scale_tensor(GxContext *g, GxModel *m, int base, const char *name, GxRole role, GxInit init,
                                   GxUse of_summand)
{
    GxTensor t = m->table.row[base];
    const size_t module = (size_t)gx_text_stem(t.name, ".weight");
    const int is_summand = t.parts != NULL && t.split_dim == 1;
    if (module + strlen(name) >= GX_NAME) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "the name of %s is too long to make the name of its scale from it: at most %d characters", t.name,
                GX_NAME - (int)strlen(name) - 1);
        return gx_no_tensor();
    }
    snprintf(t.name + module, sizeof t.name - module, "%s", name);
    t.role = role, t.init = init, t.is_added = 1, t.decay = 0;
    t.ndim = 1;
    t.global_shape[1] = t.begin[1] = t.end[1] = 0;
    if (is_summand) {
        t.parts = NULL, t.n_parts = t.split_dim = t.split_axes = 0;
        t.sums_over_tp = gx_grad_sums_over_tp(GX_LAYOUT_FULL, of_summand);
    }
    return gx_table_add(&m->table, &t, &g->error);
}

static void gx__scale_of_linear(GxContext *g, GxModel *m, const GxLinear *l)
{
    for (int what = 0; what < 2; what++)
        for (int i = 0; i < l->parts && !gx_failed(g); i++) {
            const int base = l->first.index + i;
            const GxTensorId id =
                what ? gx__scale_tensor(g, m, base, ".adaption_bias", GX_ROLE_BIAS, GX_INIT_ZEROS, GX_USE_WHOLE)
                     : gx__scale_tensor(g, m, base, ".adaption_scale", GX_ROLE_WEIGHT, GX_INIT_ONES, GX_USE_OWN_SHARE);
            GxTensor *w = &m->table.row[base];
            w->has_scale = 1;
            if (what) w->added_bias = id;
            else w->scale = id;
        }
}

static void gx__scale_open(GxContext *g, GxModel *m, int unit, int number)
{
    (void)number;
    for (int k = 0; k < gx_unit_spec(m, unit)->n_pairs; k++) {
        const GxPair pair = m->unit[unit].pair[k];
        const GxCoreKind core = gx_unit_spec(m, unit)->pair[k].core.kind;
        for (int i = 0; i < 2 && (core == GX_CORE_ATT || core == GX_CORE_MLP); i++)
            gx__scale_of_linear(g, m, &pair.linear[i]);
    }
}

int gx_pair_has_scale(const GxModel *m, int unit, int k)
{
    const GxLinear *l = &m->unit[unit].pair[k].linear[0];
    return l->first.index >= 0 && m->table.row[l->first.index].has_scale;
}

static void gx__scale_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    (void)u;
    for (int i = 0; i < 2 && gx_pair_has_scale(l->m, l->unit, k); i++)
        s->product[i] = gx_slot_rows(l, rows, l->m->unit[l->unit].pair[k].linear[i].out);
}

// ---- at work -------------------------------------------------------------------------------------------------------

static GxColumns gx__scale_columns(const GxLinear *l, GxRows rows, int64_t cols)
{
    const GxColumns n = {rows.rows, cols, l->out, rows.dtype};
    return n;
}

// Where x W^T + b0 + b is kept; for the parts of a packed linear, one after another.
GxRows gx_scale_product(const GxPass *p, const GxLinear *l, GxRows like)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    const GxPairView v = gx_view(p, t->pair);
    GxRows kept = gx_rows(l->product, like.dtype, like.rows, l->out);
    for (int i = 0; i < 2 && !kept.data; i++) {
        const GxLinear *whole = &v.pair->linear[i];
        const int at = l->first.index - whole->first.index;
        int64_t before = 0;
        if (at < 0 || at >= whole->parts) continue;
        for (int j = 1; j <= at; j++) before += t[-j].end[0] - t[-j].begin[0];
        kept.data = (char *)v.slot->product[i].data + like.rows * before * gx_dtype_size(like.dtype);
    }
    return kept;
}

// b0 + b. If the matrix is split by columns, x W^T is a summand, and only the first rank adds b.
const void *gx_scale_bias(GxPass *p, const GxLinear *l)
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
void gx_scale_forward(GxPass *p, const GxLinear *l, GxRows y, GxRows x)
{
    const GxColumns n = gx__scale_columns(l, x, l->out);
    const GxTensorId s = p->m->table.row[l->first.index].scale;
    gx_scale_columns_forward(p->g, y.data, x.data, gx_store_weight(&p->m->store, s), &n);
}

// s * dy; dy itself if the linear has no scale.
GxRows gx_scale_backward(GxPass *p, const GxLinear *l, GxRows dy)
{
    if (!gx_linear_has_scale(p, l)) return dy;
    const GxRows d = gx_pass_rows(p, dy.rows, dy.cols);
    gx_scale_forward(p, l, d, dy);
    return d;
}

// ds = sum of dy * (x W^T + b0 + b), db = sum of s * dy
void gx_scale_backward_weight(GxPass *p, const GxLinear *l, GxRows dy)
{
    const GxTensor *t = &p->m->table.row[l->first.index];
    if (!t->has_scale) return;
    const GxRows product = gx_scale_product(p, l, dy);
    for (int64_t i = 0, column = 0; i < l->parts; column += t[i].end[0] - t[i].begin[0], i++) {
        int adds_s = 0, adds_b = 0;
        float *ds = gx_store_grad(&p->m->store, t[i].scale, &adds_s),
              *db = gx_store_grad(&p->m->store, t[i].added_bias, &adds_b);
        const GxColumns n = gx__scale_columns(l, dy, t[i].end[0] - t[i].begin[0]);
        gx_scale_columns_backward(p->g, NULL, ds, db, gx_rows_column(dy, column), gx_rows_column(product, column),
                                  gx_store_weight(&p->m->store, t[i].scale), &n, ds ? adds_s : adds_b);
    }
}

// ---- the method ----------------------------------------------------------------------------------------------------

static int gx__scale_is_on(const GxModel *m) { return m->adapter.prompt.len > 0 && m->adapter.prompt.is_v2; }
static int gx__scale_trains(const GxModel *m, const GxTensor *t) { return (void)m, t->role == GX_ROLE_NORM; }

GxTuner gx_scale_tuner(void)
{
    GxTuner t = GX_ZERO;
    t.is_on = gx__scale_is_on;
    t.open = gx__scale_open;
    t.trains = gx__scale_trains;
    t.layout = gx__scale_layout, t.needs_result = gx_pair_has_scale;
    return t;
}
#endif
