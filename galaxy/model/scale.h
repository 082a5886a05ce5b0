// model/scale.h: LLaMA-Adapter v2 (Gao et al. 2023, arXiv:2304.15010, section 3.1): the tensors of a scale and a bias
// for each linear of attention and MLP. What they compute is in linear.h.
//
//     y = s * (x W^T + b0 + b)        s, b [out]; b0: the linear's own bias, where it has one
//
// Initially s is 1 and b is 0: training starts from the unchanged model. Both are trained in all layers, together with
// all norms (tuned.h). Heads and embeddings have neither: the paper is about the linears of a layer. As for norms and
// biases, there is no weight decay.
//
// If W is split by rows, s and b are split with it. If W is split by columns, every rank has all of both and scales its
// summand: sum_r s * (x_r W_r^T) = s * (sum_r x_r W_r^T), so there is no additional communication. The first rank of
// the group adds b. The gradient of b comes from rows that all ranks have, so it is the same on all of them; that of s
// is computed from the rank's summand, so it is a summand itself (layout.h, GX_USE_OWN_SHARE).
//
// Memory: the gradient of s reads x W^T + b0 + b. It cannot be recomputed from y, since s may be 0, and is kept: as
// many elements a row as the linear has outputs.
//
// Names: model.layers.0.self_attn.q_proj.adaption_scale, .adaption_bias.
#ifndef GX_MODEL_SCALE_H
#define GX_MODEL_SCALE_H
#include "unit.h"
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_SCALE_IMPLEMENTED)
#define GX_MODEL_SCALE_IMPLEMENTED
#include <stdio.h>
#include <string.h>

// Adds a vector with an element for each row of the matrix in row `base` of the table.
static GxTensorId gx__scale_tensor(GxContext *g, GxModel *m, int base, const char *name, GxRole role, GxInit init,
                                   GxUse of_summand)
{
    GxTensor t = m->table.row[base];
    const size_t module = strlen(t.name) - strlen(".weight");
    const int is_summand = t.parts != NULL && t.split_dim == 1;
    if (module + strlen(name) >= GX_NAME) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "the name of %s is too long for its scale: %d characters", t.name,
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

void gx_scale_open(GxContext *g, GxModel *m, int unit)
{
    for (int k = 0; m->prompt.is_v2 && k < gx_unit_spec(m, unit)->n_pairs; k++) {
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

void gx_scale_layout(GxSlotLayout *l, int k, int64_t rows, GxPairSlot *s)
{
    for (int i = 0; i < 2 && gx_pair_has_scale(l->m, l->unit, k); i++)
        s->product[i] = gx_slot_rows(l, rows, l->m->unit[l->unit].pair[k].linear[i].out);
}
#endif
