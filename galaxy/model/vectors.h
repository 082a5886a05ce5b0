// model/vectors.h: sentence embeddings (a vector for each whole text) as a core, and their contrastive loss; its pair
// has no outgoing stream and no parameters.
//
//     m_i  = mean of the rows of text i         target.parts: all of its tokens, or only the first ([CLS])
//     v_i  = m_i; or tanh(m_i W^T + b), or without tanh, one or more times: target.layers, which are frozen
//     u_i  = v_i / |v_i|
//     s_ij = 20 u_i . u_j                       i: an anchor; j: a candidate, which is any text that is no anchor
//     loss = sum over i of log(sum_j exp(s_ij)) - s_ip, p: the positive of i
//
// (Multiple negatives ranking: Henderson et al. 2017, arXiv:1705.00652; cosines, scaled by 20: sentence-transformers,
// Reimers and Gurevych 2019, arXiv:1908.10084.)
//
// Candidates are those of the same micro-batch on all data-parallel ranks: their vectors are all-gathered, and their
// gradients, to which the anchors of all ranks contribute, are reduce-scattered. Several ranks therefore have the same
// loss as one rank with all their texts; several micro-batches do not, since each has its own candidates. A rank
// without texts or anchors still takes part in the collectives. A candidate with the same text as the positive counts
// as wrong: the task must not put such texts into one micro-batch.
//
// SP: a rank has the rows of its slice of T. Each mean is summed over the tp group; after that all ranks compute the
// same, except that each computes the gradients of its own rows.
// TP: all ranks have all rows, and the first of the group computes everything; its gradient is the only summand that is
// not 0.
// In both, the first rank of the group adds the loss.
//
// A validation writes v to target.logits if that has rows, and adds the loss unless target.anchors is negative.
// Memory: a few times [texts, C] and [candidates of all ranks, C], and [anchors, candidates]; in fp32.
// Numerics: m has the model's type; everything after it is fp32, since in bf16 (8 significant bits) scores near 20
// would be multiples of 0.125.
#ifndef GX_VECTORS_H
#define GX_VECTORS_H
#include "pass.h"
GX_BEGIN
#define GX_COSINE_SCALE 20.0f // of scores
extern const GxCore gx_vectors;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_VECTORS_IMPLEMENTED)
#define GX_VECTORS_IMPLEMENTED
#include <string.h>
#include "../comm/comm.h"
#include "../ops/activation.h"
#include "../ops/elementwise.h"
#include "../ops/linear.h"
#include "../ops/loss.h"
#include "../ops/memory.h"
#include "../ops/rows.h"

static const float gx__vectors_eps = 1e-12f;

typedef struct {
    GxRows mean;                    // [texts, C] in the model's type; everything below is fp32
    GxRows v[GX_VECTOR_LAYERS + 1]; // [texts, width]: the mean, and the result of each layer; if there is a layer
    GxRows unit;                    // [texts, width of the last v]
    float *norm;                    // [texts]
    GxSplit candidates;             // how many each rank has
    GxRows all;                     // [candidates, width of the last v]
    GxRows query;                   // [anchors, width of the last v]: 20 u
    GxRows scores;                  // [anchors, candidates]; then their gradients
} GxVectors;

static void gx__vectors_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    (void)g, (void)m, (void)unit, (void)k, (void)number; // no tensors
}

static void gx__vectors_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    (void)l, (void)u, (void)k, (void)rows, (void)s; // nothing is kept: in training the backward computes everything
}

static GxRows gx__vectors_rows(GxPass *p, int64_t rows, int64_t cols)
{
    return gx_rows(gx_scratch(p->g, GX_MEM_ACTIVATIONS, 4 * rows * cols), GX_F32, rows, cols);
}

static void gx__vectors_inside(const GxPass *p) { gx_at(p->g, p->unit, gx_door_name(GX_CORE_VECTORS, GX_INSIDE)); }

// ---- texts ---------------------------------------------------------------------------------------------------------

static int gx__vectors_is_slice(const GxPairView *v) { return gx_view_method(v) == GX_METHOD_SP && v->m->members > 1; }

// The position of the first row of `in`.
static int64_t gx__vectors_first(const GxPairView *v)
{
    return gx__vectors_is_slice(v) ? gx_slice_begin(v->p) / v->b->B : 0;
}

static void gx__vectors_mean(const GxPairView *v, GxVectors *s, GxRows in)
{
    const GxTarget *t = v->target;
    const int64_t B = v->b->B;
    s->mean = gx_pass_rows(v->p, t->n, in.cols);
    if (!t->n) return;
    gx_mean_rows_forward(v->g, s->mean.data, in.data, t->parts, t->n, in.rows / B, B, gx__vectors_first(v), in.cols,
                         in.dtype);
    if (!gx__vectors_is_slice(v)) return;
    gx__vectors_inside(v->p);
    gx_all_reduce(v->g, GX_AXIS_TP, GX_SUM, s->mean.data, t->n * in.cols, in.dtype);
    gx_view_at(v, GX_AT_CORE);
}

// Computes din, the gradient of the rows of `in`, from that of the means.
static void gx__vectors_mean_backward(const GxPairView *v, GxRows din, GxRows dmean)
{
    const int64_t B = v->b->B;
    gx_zero(v->g, din.data, gx_rows_bytes(din));
    if (!dmean.rows) return;
    gx_mean_rows_backward(v->g, din.data, dmean.data, v->target->parts, dmean.rows, din.rows / B, B,
                          gx__vectors_first(v), din.cols, din.dtype);
}

static GxLinearShape gx__vectors_layer(const GxVectorLayer *l, int64_t n)
{
    return gx_linear_shape(n, l->in, l->out, GX_F32);
}

// Applies the layers after the pooling.
static void gx__vectors_project(const GxPairView *v, GxVectors *s)
{
    const GxTarget *t = v->target;
    const int64_t n = s->mean.rows;
    if (!t->n_layers) return;
    s->v[0] = gx__vectors_rows(v->p, n, s->mean.cols);
    if (n) gx_convert(v->g, s->v[0].data, GX_F32, s->mean.data, s->mean.dtype, n * s->mean.cols);
    for (int i = 0; i < t->n_layers; i++) {
        const GxVectorLayer *l = &t->layers[i];
        const GxLinearShape product = gx__vectors_layer(l, n);
        s->v[i + 1] = gx__vectors_rows(v->p, n, l->out);
        if (!n) continue;
        gx_linear_forward(v->g, s->v[i + 1].data, s->v[i].data, l->weight, l->bias, &product);
        if (l->is_tanh) gx_tanh_forward(v->g, s->v[i + 1].data, s->v[i + 1].data, n * l->out, GX_F32);
    }
}

// The gradient of the mean, in fp32, from that of the last layer's result, which it overwrites.
static GxRows gx__vectors_project_backward(const GxPairView *v, const GxVectors *s, GxRows dv)
{
    const GxTarget *t = v->target;
    for (int i = t->n_layers - 1; i >= 0; i--) {
        const GxVectorLayer *l = &t->layers[i];
        const GxLinearShape product = gx__vectors_layer(l, dv.rows);
        const GxRows dx = gx__vectors_rows(v->p, dv.rows, l->in);
        if (l->is_tanh) gx_tanh_backward(v->g, dv.data, dv.data, s->v[i + 1].data, dv.rows * l->out, GX_F32);
        gx_linear_backward_input(v->g, dx.data, dv.data, l->weight, &product);
        dv = dx;
    }
    return dv;
}

static GxRows gx__vectors_last(const GxPairView *v, const GxVectors *s) // the texts' vectors
{
    const int n = v->target->n_layers;
    return n ? s->v[n] : s->mean;
}

static void gx__vectors_normalize(const GxPairView *v, GxVectors *s)
{
    const GxRows last = gx__vectors_last(v, s);
    const int64_t n = last.rows, C = last.cols;
    s->unit = gx__vectors_rows(v->p, n, C);
    s->norm = (float *)gx__vectors_rows(v->p, n, 1).data;
    if (!n) return;
    gx_convert(v->g, s->unit.data, GX_F32, last.data, last.dtype, n * C);
    gx_normalize_rows_forward(v->g, s->unit.data, s->norm, s->unit.data, n, C, gx__vectors_eps, GX_F32);
}

// ---- candidates ----------------------------------------------------------------------------------------------------

// How many candidates each rank has. On a device that does not compute: as many as there can be.
static GxSplit gx__vectors_agree(GxPass *p, const GxTarget *t)
{
    const int ranks = gx_group_size(p->g, GX_AXIS_DP), me = gx_group_index(p->g, GX_AXIS_DP);
    int64_t count[GX_MAX_PARTS] = GX_ZERO, most = t->candidates ? t->candidates : ranks * t->n;
    GxSplit s = gx_split_even(0, (int)gx_min(ranks, GX_MAX_PARTS));
    if (me < GX_MAX_PARTS) count[me] = t->n - t->anchors;
    gx__vectors_inside(p);
    gx_all_reduce(p->g, GX_AXIS_DP, GX_SUM, count, ranks, GX_I64);
    if (gx_failed(p->g)) return s;
    if (!p->g->device->computes) count[(me + 1) % ranks] += gx_max(most - count[me], 0);
    for (int r = 0; r < s.n; r++) s.begin[r + 1] = s.begin[r] + count[r];
    return s;
}

static void gx__vectors_gather(const GxPairView *v, GxVectors *s)
{
    const GxTarget *t = v->target;
    const GxRows own = gx_some_rows(s->unit, t->anchors, t->n - t->anchors);
    s->candidates = gx__vectors_agree(v->p, t);
    s->all = own;
    if (s->candidates.n > 1) {
        s->all = gx__vectors_rows(v->p, gx_split_total(&s->candidates), own.cols);
        gx_all_gather(v->g, GX_AXIS_DP, &s->candidates, s->all.data, own.data, own.cols, GX_F32);
    }
    gx_view_at(v, GX_AT_CORE);
}

// ---- scores, and their loss ----------------------------------------------------------------------------------------

// The label of anchor i is the index of its positive, which is the i-th of this rank's candidates.
static int32_t *gx__vectors_labels(GxPass *p, const GxVectors *s)
{
    enum { BLOCK = 256 };
    int32_t some[BLOCK];
    const int64_t first = s->candidates.begin[gx_group_index(p->g, GX_AXIS_DP)];
    int32_t *labels = (int32_t *)gx_scratch(p->g, GX_MEM_ACTIVATIONS, 4 * s->query.rows);
    for (int64_t i = 0; i < s->query.rows; i += BLOCK) {
        const int64_t n = gx_min(BLOCK, s->query.rows - i);
        for (int64_t j = 0; j < n; j++) some[j] = (int32_t)(first + i + j);
        gx_to_device(p->g, labels + i, some, 4 * n);
    }
    return labels;
}

static GxLinearShape gx__vectors_product(const GxVectors *s)
{
    return gx_linear_shape(s->query.rows, s->query.cols, s->all.rows, GX_F32);
}

// scores = query all^T, and their loss; dscores overwrites the scores
static void gx__vectors_score(const GxPairView *v, GxVectors *s, int has_gradient)
{
    const GxTarget *t = v->target;
    s->query = gx__vectors_rows(v->p, t->anchors, s->unit.cols);
    if (!t->anchors) return;
    const GxLinearShape product = gx__vectors_product(s);
    gx_scale(v->g, s->query.data, s->unit.data, s->query.rows * s->query.cols, GX_COSINE_SCALE, GX_F32);
    s->scores = gx__vectors_rows(v->p, t->anchors, s->all.rows);
    gx_linear_forward(v->g, s->scores.data, s->query.data, s->all.data, NULL, &product);
    float *losses = (float *)gx__vectors_rows(v->p, t->anchors, 1).data;
    gx_cross_entropy(v->g, losses, has_gradient ? s->scores.data : NULL, s->scores.data, gx__vectors_labels(v->p, s),
                     t->anchors, s->all.rows, gx_view_count(v), NULL, 0, GX_F32);
    if (v->m->member == 0) gx_view_add_losses(v, losses, t->anchors);
}

// du of this rank's texts: of its anchors, and of its candidates, the latter summed over the anchors of all ranks.
static void gx__vectors_score_backward(const GxPairView *v, const GxVectors *s, GxRows du)
{
    const GxTarget *t = v->target;
    const GxLinearShape product = gx__vectors_product(s);
    const GxRows own = gx_some_rows(du, t->anchors, t->n - t->anchors),
                 dall = s->candidates.n > 1 ? gx__vectors_rows(v->p, s->all.rows, du.cols) : own;
    if (t->anchors) {
        gx_linear_backward_input(v->g, du.data, s->scores.data, s->all.data, &product); // the gradient of 20 u
        gx_scale(v->g, du.data, du.data, t->anchors * du.cols, GX_COSINE_SCALE, GX_F32);
        gx_linear_backward_weight(v->g, (float *)dall.data, NULL, s->scores.data, s->query.data, &product);
    } else if (dall.rows) {
        gx_zero(v->g, dall.data, gx_rows_bytes(dall));
    }
    gx__vectors_inside(v->p);
    gx_reduce_scatter(v->g, GX_AXIS_DP, &s->candidates, own.data, dall.data, du.cols, GX_F32);
    gx_view_at(v, GX_AT_CORE);
}

// The loss of the texts' vectors. With has_gradient, returns the gradient of their means, in the model's type.
static GxRows gx__vectors_loss(const GxPairView *v, GxVectors *s, int has_gradient)
{
    const int64_t n = s->mean.rows, C = s->mean.cols;
    gx__vectors_normalize(v, s);
    gx__vectors_gather(v, s);
    gx__vectors_score(v, s, has_gradient);
    if (!has_gradient) return gx_no_rows();
    const GxRows du = gx__vectors_rows(v->p, n, s->unit.cols), dmean = gx_pass_rows(v->p, n, C);
    gx__vectors_score_backward(v, s, du);
    if (!n) return dmean;
    gx_normalize_rows_backward(v->g, du.data, du.data, s->unit.data, s->norm, n, du.cols, GX_F32);
    const GxRows last = gx__vectors_project_backward(v, s, du);
    gx_convert(v->g, dmean.data, dmean.dtype, last.data, GX_F32, n * C);
    return dmean;
}

// ---- the core ------------------------------------------------------------------------------------------------------

static void gx__vectors_forward(const GxPairView *v, GxRows out, GxRows in)
{
    const GxTarget *t = v->target;
    GxVectors s = GX_ZERO;
    (void)out;
    if (v->p->is_training || (t->anchors < 0 && !t->logits.data)) return;
    gx__vectors_mean(v, &s, in);
    gx__vectors_project(v, &s);
    const GxRows last = gx__vectors_last(v, &s);
    if (t->logits.data && t->n)
        gx_convert(v->g, t->logits.data, t->logits.dtype, last.data, last.dtype, t->n * last.cols);
    if (t->anchors >= 0) gx__vectors_loss(v, &s, 0);
}

static void gx__vectors_backward_input(const GxPairView *v, GxRows din, GxRows dout, GxRows in)
{
    GxVectors s = GX_ZERO;
    (void)dout;
    if (gx_view_method(v) == GX_METHOD_TP && v->m->member) { // the first of the group does the work
        if (din.data) gx_zero(v->g, din.data, gx_rows_bytes(din));
        return;
    }
    gx__vectors_mean(v, &s, in);
    gx__vectors_project(v, &s);
    const GxRows dmean = gx__vectors_loss(v, &s, 1);
    if (din.data) gx__vectors_mean_backward(v, din, dmean);
}

static void gx__vectors_backward_weight(const GxPairView *v, GxRows dout, GxRows in)
{
    (void)v, (void)dout, (void)in; // there are no weights
}

const GxCore gx_vectors = {gx__vectors_open, gx__vectors_layout, gx__vectors_forward, gx__vectors_backward_input,
                           gx__vectors_backward_weight};
#endif
