// model/labels.h: the head for classification and regression as a core: outputs = in W^T + b and their loss; its pair
// has no outgoing stream. Of whole texts it reads one row of each, the first (BERT) or the last (LLaMA); for labels of
// tokens the rows of those that have one.
//
//     CROSS_ENTROPY         one of several labels                          loss: of each row
//     SQUARED_ERROR         numbers: regression                            sum over the row's outputs
//     BINARY_CROSS_ENTROPY  each output by itself: several labels at once  sum over the row's outputs
//
// The matrix is too small to be split.
// TP: the ranks of a group have the same rows, and each computes its share of them; losses and gradients are summands,
// as in any core split by TP.
// SP: a rank has the rows of its slice.
#ifndef GX_LABELS_CORE_H
#define GX_LABELS_CORE_H
#include "linear.h"
#include "unit_tensors.h"
GX_BEGIN
extern const GxCore gx_labels;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LABELS_CORE_IMPLEMENTED)
#define GX_LABELS_CORE_IMPLEMENTED
#include "../comm/comm.h"
#include "../ops/elementwise.h"
#include "../ops/loss.h"

static void gx__labels_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    const GxUnitSpec *u = gx_unit_spec(m, unit);
    const GxCoreSpec *c = &u->pair[k].core;
    const GxMethod ends = m->mode->methods.ends;
    const GxLayout layout = gx_block_takes(ends);
    const int is_shared = ends == GX_METHOD_TP && m->members > 1;
    GxTensorUse use = gx_tensor_use(c->matrix[0], number, GX_ROLE_HEAD, c->vocab, u->width, layout),
                bias = gx_tensor_use(c->matrix[0], number, GX_ROLE_BIAS, c->vocab, 0, layout);
    use.is_own_share = bias.is_own_share = is_shared;
    const GxTensorId w = gx_model_tensor(g, m, unit, k, &use),
                     b = c->has_bias ? gx_model_tensor(g, m, unit, k, &bias) : gx_no_tensor();
    m->unit[unit].pair[k].linear[0] = gx_model_linear(m, w, 1, b);
}

static void gx__labels_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    (void)l, (void)u, (void)k, (void)rows, (void)s; // labels are in the batch
}

// This rank computes the target's rows [first, first + n), which begin at row in_first of `in`.
typedef struct {
    int64_t first, n, in_first;
    GxSplit split; // over the tp group; split.n = 1: each rank computes all of its rows
} GxLabelsShare;

static GxLabelsShare gx__labels_share(const GxPairView *v, GxRows in)
{
    const GxMethod method = gx_view_method(v);
    GxLabelsShare s;
    s.split.n = 1, s.first = s.in_first = 0, s.n = in.rows;
    if (method == GX_METHOD_NONE || v->m->members == 1) return s;
    s.split = method == GX_METHOD_SP ? *gx_pair_rows(v->p, v->k) : gx_split_even(in.rows, v->m->members);
    s.first = s.split.begin[v->m->member], s.n = gx_split_part(&s.split, v->m->member);
    s.in_first = method == GX_METHOD_SP ? 0 : s.first;
    return s;
}

// Writes losses [rows]; with has_gradient, overwrites the outputs with their gradient.
static void gx__labels_loss_of(const GxPairView *v, float *losses, GxRows outputs, int64_t first, int has_gradient)
{
    const GxTarget *t = v->target;
    void *d = has_gradient ? outputs.data : NULL;
    const int64_t R = outputs.rows, V = outputs.cols;
    switch (v->spec->core.loss) {
    case GX_CROSS_ENTROPY:
        gx_cross_entropy(v->g, losses, d, outputs.data, t->labels + first, R, V, gx_view_count(v), NULL, 0,
                         outputs.dtype);
        break;
    case GX_SQUARED_ERROR:
        gx_squared_error(v->g, losses, d, outputs.data, t->values + first * V, R, V, gx_view_count(v), outputs.dtype);
        break;
    default:
        gx_binary_cross_entropy(v->g, losses, d, outputs.data, t->values + first * V, R, V, gx_view_count(v),
                                outputs.dtype);
    }
}

// The loss of this rank's share of the rows; with has_gradient also din (0 for other ranks' rows) and the matrix's
// gradient.
static void gx__labels_loss(const GxPairView *v, GxRows din, GxRows in, int has_gradient)
{
    GxLinear l = v->pair->linear[0];
    const GxLabelsShare share = gx__labels_share(v, in);
    const GxRows mine = gx_some_rows(in, share.in_first, share.n);
    if (has_gradient && din.data && share.n < din.rows) gx_zero(v->g, din.data, gx_rows_bytes(din));
    if (!share.n) return;
    l.picked = share.first;
    const GxMethod method = gx_view_method(v);
    const GxRows outputs = gx_picked_rows(v, method, share.n, l.out);
    float *losses = (float *)gx_scratch(v->g, GX_MEM_ACTIVATIONS, 4 * gx_picked_most(v, method, share.n));
    gx_linear_apply(v->p, &l, outputs, mine, 0);
    gx__labels_loss_of(v, losses, outputs, share.first, has_gradient);
    if (share.split.n > 1 || gx_adds_loss(v)) gx_view_add_losses(v, losses, share.n);
    if (!has_gradient) return;
    gx_linear_apply_backward_input(v->p, &l, gx_some_rows(din, share.in_first, share.n), outputs, 0);
    gx_linear_apply_backward_weight(v->p, &l, outputs, mine);
}

// Computes the outputs of all rows, on every rank.
static void gx__labels_outputs(const GxPairView *v, GxRows in)
{
    const GxLinear *l = &v->pair->linear[0];
    const GxRows all = v->target->logits;
    const GxLabelsShare share = gx__labels_share(v, in);
    const GxRows own = gx_some_rows(all, share.first, share.n);
    if (share.n) gx_linear_apply(v->p, l, own, gx_some_rows(in, share.in_first, share.n), 0);
    gx_at(v->g, v->p->unit, "outputs");
    if (share.split.n > 1) gx_all_gather(v->g, GX_AXIS_TP, &share.split, all.data, own.data, all.cols, all.dtype);
}

static void gx__labels_forward(const GxPairView *v, GxRows out, GxRows in)
{
    const GxTarget *t = v->target;
    (void)out;
    if (v->p->is_training) return;
    if (t->logits.data) gx__labels_outputs(v, in);
    if (t->labels || t->values) gx__labels_loss(v, gx_no_rows(), in, 0);
}

static void gx__labels_backward_input(const GxPairView *v, GxRows din, GxRows dout, GxRows in)
{
    (void)dout;
    gx__labels_loss(v, din, in, 1);
}

static void gx__labels_backward_weight(const GxPairView *v, GxRows dout, GxRows in)
{
    (void)v, (void)dout, (void)in; // done in backward_input, with the loss
}

const GxCore gx_labels = {gx__labels_open, gx__labels_layout, gx__labels_forward, gx__labels_backward_input,
                          gx__labels_backward_weight};
#endif
