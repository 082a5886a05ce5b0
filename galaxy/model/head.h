// model/head.h: the head over a vocabulary as a core: logits = in W^T + b and their cross-entropy; its pair has no
// outgoing stream. Only the logits of one chunk of rows are in memory at a time. In training, therefore, the backward
// computes everything, chunk by chunk: the loss, din and the matrix's gradient.
//
// TP: a rank has some rows of the vocabulary (Shoeybi et al. 2019, section 3). For each chunk one all-reduce yields
// each row's largest logit, and a second one its sum of exponentials and its label's logit. All ranks have the same
// loss, which the first of them counts; din is a summand.
// SP: a rank computes the losses of its slice of T, over the whole vocabulary.
//
// A task that weighs rows (target.weighing) needs the losses of all rows before it can compute a gradient. Unless all
// rows fit into one chunk, the logits are then computed twice. Each row's loss is copied to the host, and its loss and
// weight back.
//
// Labels are smoothed by the model's label_smoothing, in validations as in training; the second all-reduce is then of
// three numbers for each row.
//
// A validation also counts the labels whose logit is the largest of their row (target.right). A tie with another logit
// counts as right (bf16 has only 8 significant bits); a row whose logits are all equal does not.
#ifndef GX_HEAD_H
#define GX_HEAD_H
#include "linear.h"
#include "unit_tensors.h"
GX_BEGIN
extern const GxCore gx_head;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_HEAD_IMPLEMENTED)
#define GX_HEAD_IMPLEMENTED
#include <math.h>
#include "../comm/comm.h"
#include "../ops/elementwise.h"
#include "../ops/loss.h"
#include "../ops/memory.h"

static void gx__head_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxCoreSpec *c = &u->spec.pair[k].core;
    const GxLayout layout = gx_block_takes(m->mode->methods.ends);
    // In files with tied matrices the bias has its own name, and may be there under the matrix's name as well. If
    // untied, the matrix's bias is added; files then also have a vector of the other name, which nothing reads
    // (transformers 5).
    const char *bias_name = c->bias && c->is_tied ? c->bias : c->matrix[0];

    GxTensorUse use = gx_tensor_use(c->matrix[0], number, GX_ROLE_HEAD, c->vocab, u->spec.width, layout),
                bias = gx_tensor_use(bias_name, number, GX_ROLE_BIAS, c->vocab, 0, layout);
    use.rows = bias.rows = &u->vocab;
    use.alias = c->is_tied ? m->embedding.index + 1 : 0;
    const GxTensorId w = gx_model_tensor(g, m, unit, k, &use),
                     b = c->has_bias ? gx_model_tensor(g, m, unit, k, &bias) : gx_no_tensor();
    if (c->has_bias && c->bias) {
        bias.name = c->is_tied ? c->matrix[0] : c->bias, bias.alias = b.index + 1;
        const GxTensorId other = gx_model_tensor(g, m, unit, k, &bias);
        if (other.index >= 0) m->table.row[other.index].is_saved = !c->is_tied;
    }
    m->unit[unit].pair[k].linear[0] = gx_model_linear(m, w, 1, b);
}

static void gx__head_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    (void)l, (void)u, (void)k, (void)rows, (void)s; // labels are in the batch
}

typedef struct {           // scratch of the cross-entropy
    GxRows logits;         // [chunk, this rank's V]
    float *losses;         // [rows], those of all ranks if the task weighs rows
    float *weights;        // [rows of all ranks]; NULL: the task does not weigh rows
    float *maximum, *sums; // [chunk], [3, chunk], if the loss is computed in steps
} GxHeadScratch;

static int gx__head_is_weighed(const GxPairView *v) { return v->target->weighing != NULL; }

static GxHeadScratch gx__head_scratch(const GxPairView *v, int64_t rows)
{
    const GxUnitKind *u = v->kind;
    const int64_t most = gx_picked_most(v, gx_view_method(v), rows), chunk = gx_min(most, v->m->chunk);
    GxHeadScratch s = GX_ZERO;
    s.logits = gx_pass_rows(v->p, chunk, gx_share_count(&u->vocab));
    const int64_t all = gx_batch_rows(v), is_weighed = gx__head_is_weighed(v);
    s.losses = (float *)gx_scratch(v->g, GX_MEM_ACTIVATIONS, 4 * (is_weighed ? all : most));
    if (is_weighed) s.weights = (float *)gx_scratch(v->g, GX_MEM_ACTIVATIONS, 4 * all);
    s.maximum = (float *)gx_scratch(v->g, GX_MEM_ACTIVATIONS, 4 * chunk);
    s.sums = (float *)gx_scratch(v->g, GX_MEM_ACTIVATIONS, (v->m->label_smoothing != 0 ? 12 : 8) * chunk);
    return s;
}

// Counts the labels of R rows whose logit is the largest: those for which logit - maximum is 0, and whose probability
// is then 1/sum.
static void gx__head_count_right(const GxPairView *v, const float *sums, const int32_t *labels, int64_t R)
{
    enum { BLOCK = 256 };
    float sum[BLOCK], less[BLOCK];
    const double chance = 1 / (double)v->spec->core.vocab; // the label's probability if all logits are equal
    for (int64_t r = 0; r < R; r += BLOCK) {
        const int64_t n = gx_min(BLOCK, R - r);
        gx_to_host(v->g, sum, sums + r, 4 * n);
        gx_to_host(v->g, less, sums + R + r, 4 * n);
        if (gx_failed(v->g) || !v->g->device->computes) return;
        for (int64_t i = 0; i < n; i++)
            *v->target->right +=
                labels[r + i] != GX_IGNORE_INDEX && less[i] == 0 && 1 / (double)sum[i] > 1.001 * chance;
    }
}

static int gx__head_counts_right(const GxPairView *v, int has_gradient)
{
    return v->target->right && !has_gradient && gx_adds_loss(v);
}

static int gx__head_asks_behind(const GxPairView *v, int has_gradient)
{
    return gx__head_is_weighed(v) && v->target->weighing->behind && !has_gradient;
}

// losses[r] = log(sum_v exp(logits[r,v])) - logits[r,label]; dlogits = weights[r]/count * (softmax - one-hot), which
// overwrites the logits. The label's logit and the one-hot vector may be smoothed (ops/loss.h).
static void gx__head_cross_entropy(const GxPairView *v, const GxHeadScratch *s, float *losses, const float *weights,
                                   GxRows logits, const int32_t *labels, int has_gradient)
{
    GxContext *g = v->g;
    const GxShares *vocab = &v->kind->vocab;
    const int64_t R = logits.rows, V = logits.cols;
    const GxVocabPart part = {R, V, gx_share_mine(vocab).begin, v->spec->core.vocab, v->m->label_smoothing};
    const int is_split = vocab->n > 1;
    void *dlogits = has_gradient ? logits.data : NULL;
    if (!is_split && !gx__head_counts_right(v, has_gradient) && !gx__head_asks_behind(v, has_gradient)) {
        gx_cross_entropy(g, losses, dlogits, logits.data, labels, R, V, gx_view_count(v), weights, part.smoothing,
                         logits.dtype);
        return;
    }
    gx_cross_entropy_maximum(g, s->maximum, logits.data, R, V, logits.dtype);
    gx_at(g, v->p->unit, gx_door_name(GX_CORE_HEAD, GX_INSIDE));
    if (is_split) gx_all_reduce(g, GX_AXIS_TP, GX_MAX, s->maximum, R, GX_F32);
    gx_cross_entropy_sums(g, s->sums, dlogits, logits.data, s->maximum, labels, &part, logits.dtype);
    if (is_split) gx_all_reduce(g, GX_AXIS_TP, GX_SUM, s->sums, gx_cross_entropy_sums_n(&part), GX_F32);
    gx_view_at(v, GX_AT_CORE);
    gx_cross_entropy_finish(g, losses, dlogits, dlogits, s->sums, labels, &part, gx_view_count(v), weights,
                            logits.dtype);
}

// The head's linear, for a chunk that begins at row `picked` of the target.
static GxLinear gx__head_linear(const GxPairView *v, int64_t picked)
{
    GxLinear l = v->pair->linear[0];
    l.picked = picked;
    return l;
}

static void gx__head_chunk_backward(GxPass *p, const GxLinear *l, GxRows din, GxRows dlogits, GxRows in)
{
    gx_linear_apply_backward_input(p, l, din, dlogits, 0);
    gx_linear_apply_backward_weight(p, l, dlogits, in);
}

// Passes the losses of all rows (with SP those of all ranks) to the task, and copies its losses and weights back.
static void gx__head_weigh(const GxPairView *v, const GxHeadScratch *s, int64_t begin)
{
    const GxWeighing *w = v->target->weighing;
    const GxSplit *split = gx_pair_rows(v->p, v->k);
    const int64_t all = gx_batch_rows(v);
    if (gx_view_method(v) == GX_METHOD_SP && split->n > 1) {
        gx_at(v->g, v->p->unit, gx_door_name(GX_CORE_HEAD, GX_INSIDE));
        gx_all_gather(v->g, GX_AXIS_TP, split, s->losses, s->losses + begin, 1, GX_F32);
        gx_view_at(v, GX_AT_CORE);
    }
    gx_to_host(v->g, w->losses, s->losses, 4 * all);
    if (gx_failed(v->g)) return;
    if (v->g->device->computes) w->weigh(w->user, v->b, v->p->is_training);
    gx_to_device(v->g, s->losses, w->losses, 4 * all);
    gx_to_device(v->g, s->weights, w->weights, 4 * all);
}

// The loss of rows that the task weighs; with has_gradient also din and the matrix's gradient. A rank without rows
// takes part in the collectives.
static void gx__head_loss_weighed(const GxPairView *v, GxRows din, GxRows in, int has_gradient)
{
    const int64_t begin = gx_picked_begin(v, gx_view_method(v));
    const int32_t *labels = v->target->labels + begin;
    const GxHeadScratch s = gx__head_scratch(v, in.rows);
    const int64_t chunk = s.logits.rows;
    for (int64_t r = 0; r < in.rows && !gx_failed(v->g); r += chunk) {
        const GxRows logits = gx_some_rows(s.logits, 0, gx_min(chunk, in.rows - r));
        const GxLinear l = gx__head_linear(v, begin + r);
        gx_linear_apply(v->p, &l, logits, gx_some_rows(in, r, logits.rows), 0);
        gx__head_cross_entropy(v, &s, s.losses + begin + r, NULL, logits, labels + r, 0);
        if (gx__head_asks_behind(v, has_gradient))
            gx_to_host(v->g, v->target->weighing->behind + begin + r, s.sums + logits.rows, 4 * logits.rows);
    }
    gx__head_weigh(v, &s, begin);
    if (in.rows && gx_adds_loss(v)) gx_view_add_losses(v, s.losses + begin, in.rows);
    for (int64_t r = 0; r < in.rows && has_gradient && !gx_failed(v->g); r += chunk) {
        const GxRows logits = gx_some_rows(s.logits, 0, gx_min(chunk, in.rows - r)),
                     h = gx_some_rows(in, r, logits.rows);
        const GxLinear l = gx__head_linear(v, begin + r);
        if (in.rows > chunk) gx_linear_apply(v->p, &l, logits, h, 0);
        gx__head_cross_entropy(v, &s, s.losses + begin + r, s.weights + begin + r, logits, labels + r, 1);
        gx__head_chunk_backward(v->p, &l, gx_some_rows(din, r, logits.rows), logits, h);
    }
}

// The loss of all rows of `in`; with has_gradient also din and the matrix's gradient.
static void gx__head_loss(const GxPairView *v, GxRows din, GxRows in, int has_gradient)
{
    if (gx__head_is_weighed(v)) {
        gx__head_loss_weighed(v, din, in, has_gradient);
        return;
    }
    if (!in.rows) return; // with SP a rank may have no rows; in that case no collective follows
    const int64_t begin = gx_picked_begin(v, gx_view_method(v));
    const int32_t *labels = v->target->labels + begin, *host_copy = gx_target_labels(v->target) + begin;
    const GxHeadScratch s = gx__head_scratch(v, in.rows);
    const int64_t chunk = s.logits.rows;
    for (int64_t r = 0; r < in.rows && !gx_failed(v->g); r += chunk) {
        const int64_t rows = gx_min(chunk, in.rows - r);
        const GxRows logits = gx_some_rows(s.logits, 0, rows), h = gx_some_rows(in, r, rows);
        const GxLinear l = gx__head_linear(v, begin + r);
        gx_linear_apply(v->p, &l, logits, h, 0);
        gx__head_cross_entropy(v, &s, s.losses + r, NULL, logits, labels + r, has_gradient);
        if (gx__head_counts_right(v, has_gradient)) gx__head_count_right(v, s.sums, host_copy + r, rows);
        if (has_gradient) gx__head_chunk_backward(v->p, &l, gx_some_rows(din, r, rows), logits, h);
    }
    if (gx_adds_loss(v)) gx_view_add_losses(v, s.losses, in.rows);
}

// If the vocabulary is split, each row's logits are gathered from all ranks.
static void gx__head_gather_columns(GxPass *p, GxRows logits, GxRows in, const GxLinear *l)
{
    const GxShares *vocab = &gx_pass_kind(p)->vocab;
    const GxRows part = gx_pass_rows(p, 1, gx_share_count(vocab));
    GxSplit parts;
    parts.n = vocab->n, parts.begin[0] = 0;
    for (int r = 0; r < parts.n; r++) parts.begin[r] = vocab->part[r].begin, parts.begin[r + 1] = vocab->part[r].end;
    for (int64_t r = 0; r < in.rows; r++) {
        gx_linear_apply(p, l, part, gx_some_rows(in, r, 1), 0);
        gx_at(p->g, p->unit, "logits");
        gx_all_gather(p->g, GX_AXIS_TP, &parts, gx_some_rows(logits, r, 1).data, part.data, 1, part.dtype);
    }
}

// Computes, on every rank, the logits of the target's rows over the whole vocabulary.
static void gx__head_logits(const GxPairView *v, GxRows in)
{
    const GxLinear *l = &v->pair->linear[0];
    const GxRows logits = v->target->logits;
    const GxSplit *rows = gx_pair_rows(v->p, v->k);
    if (v->kind->vocab.n > 1) {
        gx__head_gather_columns(v->p, logits, in, l);
        return;
    }
    const int is_sp = gx_view_method(v) == GX_METHOD_SP && rows->n > 1;
    const GxRows own = is_sp ? gx_some_rows(logits, rows->begin[v->m->member], in.rows) : logits;
    if (in.rows) gx_linear_apply(v->p, l, own, in, 0);
    gx_at(v->g, v->p->unit, "logits");
    if (is_sp) gx_all_gather(v->g, GX_AXIS_TP, rows, logits.data, own.data, logits.cols, logits.dtype);
}

static void gx__head_forward(const GxPairView *v, GxRows out, GxRows in)
{
    const GxTarget *t = v->target;
    (void)out;
    if (v->p->is_training) return;
    if (t->logits.data) gx__head_logits(v, in);
    if (t->labels) gx__head_loss(v, gx_no_rows(), in, 0);
}

static void gx__head_backward_input(const GxPairView *v, GxRows din, GxRows dout, GxRows in)
{
    (void)dout;
    gx__head_loss(v, din, in, 1);
}

static void gx__head_backward_weight(const GxPairView *v, GxRows dout, GxRows in)
{
    (void)v, (void)dout, (void)in; // done in backward_input, chunk by chunk
}

const GxCore gx_head = {gx__head_open, gx__head_layout, gx__head_forward, gx__head_backward_input,
                        gx__head_backward_weight};
#endif
