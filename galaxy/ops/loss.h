// loss.h: softmax cross-entropy over the vocabulary, squared error, binary cross-entropy: loss and gradient in one pass
// over the logits.
//
// The caller passes rows in chunks, so that the logits of all rows never exist at once. The loss of a batch is the sum
// of its rows' losses divided by the number of labels in the whole global batch. `count` points to that number, which
// is the same on every rank and in every micro-batch. It is in device memory (g->step->labels), so that a captured CUDA
// graph divides by the number of the window that it runs in. Only gradients are divided; the caller that adds up the
// losses divides their sum.
//
// If each rank has a part of the vocabulary (Shoeybi et al. 2019, arXiv:1909.08053, section 3), the same is computed in
// three steps, between which R and 2*R numbers are communicated instead of the logits:
//     gx_cross_entropy_maximum(g, maximum, logits, R, V, dtype);
//     gx_all_reduce(g, axes, GX_MAX, maximum, R, GX_F32);
//     gx_cross_entropy_sums(g, sums, logits, logits, maximum, labels, &part, dtype);
//     gx_all_reduce(g, axes, GX_SUM, sums, gx_cross_entropy_sums_n(&part), GX_F32);
//     gx_cross_entropy_finish(g, losses, logits, logits, sums, labels, &part, count, NULL, dtype);
// After this, logits hold dlogits. In fp32, one rank with the whole vocabulary gets the same bits as with
// gx_cross_entropy (in bf16 the exps between the steps are rounded).
//
// Labels may be smoothed (Szegedy et al. 2015, arXiv:1512.00567, section 7): the target is then not one token with
// probability 1, but a share `smoothing` is spread evenly over the vocabulary. 0 leaves the labels as they are, and
// costs nothing; otherwise a row is read once more, and in steps 3*R numbers are communicated.
#ifndef GX_LOSS_H
#define GX_LOSS_H
#include "device.h"
GX_BEGIN

enum { GX_IGNORE_INDEX = -100 }; // the label of rows without a loss, as in PyTorch

// Below, scale = 1/count[0], as fp32, or 0 if count[0] is 0; count NULL: scale is 1. count is read only if dlogits are
// needed.

// losses[r] = log(sum_v exp(logits[r,v])) - (1 - smoothing)*logits[r,labels[r]] - smoothing/V * sum_v logits[r,v]
//                (0 if the label is GX_IGNORE_INDEX)
// dlogits[r,v] = scale * weights[r] * (exp(logits[r,v])/sum - (1 - smoothing)*[v = labels[r]] - smoothing/V)
//                (also 0 then); it may be logits; NULL: not needed
// logits [R,V], labels [R] in [0,V) or ignored, anything else is an error; weights [R], NULL: all 1; smoothing in
// [0,1]. FLOPs: 6*R*V, with smoothing 9*R*V
void gx_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R,
                      int64_t V, const int64_t *count, const float *weights, float smoothing, GxDtype dtype);

// The three steps for columns [v_begin, v_begin + V) of the vocabulary, at least one. Every rank has all labels [R], in
// [0,vocab_size) or ignored.
struct GxVocabPart {
    int64_t R, V, v_begin, vocab_size;
    float smoothing; // the same on every rank
};
static inline int64_t gx_cross_entropy_sums_n(const GxVocabPart *part) // how many sums there are
{
    return (part->smoothing != 0 ? 3 : 2) * part->R;
}

// maximum[r] = max_v logits[r,v]. FLOPs: R*V
void gx_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V, GxDtype dtype);

// exps[r,v]   = exp(logits[r,v] - maximum[r])                     it may be logits; NULL: not needed
// sums[r]     = sum_v exps[r,v]
// sums[R + r] = logits[r, labels[r] - v_begin] - maximum[r]       0 if that is not a column of this rank, or ignored
// sums[2*R + r] = sum_v (logits[r,v] - maximum[r])                only with smoothing
// A label outside the whole vocabulary is an error on every rank. FLOPs: 3*R*V, with smoothing 5*R*V
void gx_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum,
                           const int32_t *labels, const GxVocabPart *part, GxDtype dtype);

// losses[r]    = log(sums[r]) - (1 - smoothing)*sums[R + r] - smoothing/vocab_size * sums[2*R + r], the same on every
//                rank (0 if the label is GX_IGNORE_INDEX)
// dlogits[r,v] = scale * weights[r] * (exps[r,v]/sums[r] - (1 - smoothing)*[v_begin + v = labels[r]] -
//                smoothing/vocab_size)      (also 0 then)
// dlogits may be exps; NULL: not needed, and exps are not read. weights [R], NULL: all 1. FLOPs: 2*R*V, with smoothing
// 3*R*V, none without dlogits
void gx_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums,
                             const int32_t *labels, const GxVocabPart *part, const int64_t *count, const float *weights,
                             GxDtype dtype);

// losses[r] = sum_v (logits[r,v] - targets[r,v])^2, dlogits[r,v] = scale * 2*(logits[r,v] - targets[r,v])
// logits [R,V], targets [R,V] fp32. dlogits may be logits; NULL: not needed. bytes: R*V*(size + 4), and R*V*size with
// dlogits; FLOPs: 5*R*V
void gx_squared_error(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets, int64_t R,
                      int64_t V, const int64_t *count, GxDtype dtype);

// For probabilities 1/(1 + exp(-logit)), each by itself; with z = logits[r,v] and t = targets[r,v], in [0,1]:
// losses[r] = sum_v max(z,0) - z*t + log(1 + exp(-|z|)), dlogits[r,v] = scale * (1/(1 + exp(-z)) - t)
// logits [R,V], targets [R,V] fp32. dlogits may be logits; NULL: not needed. bytes: R*V*(size + 4), and R*V*size with
// dlogits; FLOPs: 9*R*V
void gx_binary_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                             int64_t R, int64_t V, const int64_t *count, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LOSS_IMPLEMENTED)
#define GX_LOSS_IMPLEMENTED

static int gx__loss_check_smoothing(GxContext *g, const char *op, float smoothing)
{
    if (smoothing >= 0 && smoothing <= 1) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: labels smoothed by %g; expected a share of 0 to 1", op, (double)smoothing);
    return 0;
}

void gx_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const int32_t *labels, int64_t R,
                      int64_t V, const int64_t *count, const float *weights, float smoothing, GxDtype dtype)
{
    if (!gx_op_check(g, "cross_entropy", dtype, R, V)) return;
    if (!gx__loss_check_smoothing(g, "cross_entropy", smoothing)) return;
    if (gx_op_begin(g, "cross_entropy", gx_dims(R, V, 0, 0), (dlogits ? 2 : 1) * R * V * gx_dtype_size(dtype),
                    (smoothing != 0 ? 9.0 : 6.0) * R * V))
        g->device->cross_entropy(g, losses, dlogits, logits, labels, R, V, count, weights, smoothing, dtype);
}

void gx_cross_entropy_maximum(GxContext *g, float *maximum, const void *logits, int64_t R, int64_t V, GxDtype dtype)
{
    if (!gx_op_check(g, "cross_entropy_maximum", dtype, R, V)) return;
    if (gx_op_begin(g, "cross_entropy_maximum", gx_dims(R, V, 0, 0), R * V * gx_dtype_size(dtype), (double)R * V))
        g->device->cross_entropy_maximum(g, maximum, logits, R, V, dtype);
}

static int gx__loss_check_part(GxContext *g, const char *op, const GxVocabPart *part, GxDtype dtype)
{
    const int64_t begin = part->v_begin, V = part->V;
    if (!gx_op_check(g, op, dtype, part->R, V) || !gx__loss_check_smoothing(g, op, part->smoothing)) return 0;
    if (begin >= 0 && begin <= part->vocab_size - V) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: columns %ld to %ld are not a part of a vocabulary of %ld", op, (long)begin,
            (long)(begin + V - 1), (long)part->vocab_size);
    return 0;
}

void gx_cross_entropy_sums(GxContext *g, float *sums, void *exps, const void *logits, const float *maximum,
                           const int32_t *labels, const GxVocabPart *part, GxDtype dtype)
{
    const int64_t R = part->R, V = part->V;
    if (!gx__loss_check_part(g, "cross_entropy_sums", part, dtype)) return;
    if (gx_op_begin(g, "cross_entropy_sums", gx_dims(R, V, 0, 0), (exps ? 2 : 1) * R * V * gx_dtype_size(dtype),
                    (part->smoothing != 0 ? 5.0 : 3.0) * R * V))
        g->device->cross_entropy_sums(g, sums, exps, logits, maximum, labels, part, dtype);
}

void gx_cross_entropy_finish(GxContext *g, float *losses, void *dlogits, const void *exps, const float *sums,
                             const int32_t *labels, const GxVocabPart *part, const int64_t *count, const float *weights,
                             GxDtype dtype)
{
    const int64_t R = part->R, V = part->V;
    if (!gx__loss_check_part(g, "cross_entropy_finish", part, dtype)) return;
    if (dlogits && !exps) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "cross_entropy_finish: dlogits without exps; let gx_cross_entropy_sums write them");
        return;
    }
    if (gx_op_begin(g, "cross_entropy_finish", gx_dims(R, V, 0, 0), dlogits ? 2 * R * V * gx_dtype_size(dtype) : 0,
                    !dlogits ? 0 : (part->smoothing != 0 ? 3.0 : 2.0) * R * V))
        g->device->cross_entropy_finish(g, losses, dlogits, exps, sums, labels, part, count, weights, dtype);
}

void gx_squared_error(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets, int64_t R,
                      int64_t V, const int64_t *count, GxDtype dtype)
{
    if (!gx_op_check(g, "squared_error", dtype, R, V)) return;
    if (gx_op_begin(g, "squared_error", gx_dims(R, V, 0, 0), R * V * ((dlogits ? 2 : 1) * gx_dtype_size(dtype) + 4),
                    5.0 * R * V))
        g->device->squared_error(g, losses, dlogits, logits, targets, R, V, count, dtype);
}

void gx_binary_cross_entropy(GxContext *g, float *losses, void *dlogits, const void *logits, const float *targets,
                             int64_t R, int64_t V, const int64_t *count, GxDtype dtype)
{
    if (!gx_op_check(g, "binary_cross_entropy", dtype, R, V)) return;
    if (gx_op_begin(g, "binary_cross_entropy", gx_dims(R, V, 0, 0),
                    R * V * ((dlogits ? 2 : 1) * gx_dtype_size(dtype) + 4), 9.0 * R * V))
        g->device->binary_cross_entropy(g, losses, dlogits, logits, targets, R, V, count, dtype);
}
#endif
