// task/bag_of_words.h: a baseline for classification: a logistic regression on the mean of the one-hot vectors of a
// text's tokens. A model that does not beat it has learned no more than which word stands for which label.
//
//     z[c] = b[c] + 1/n sum_t W[token_t, c],   p = softmax(z)
//
// Trained by AdaGrad (Duchi et al. 2011), text by text, in an order that depends only on the number of texts. It runs
// on the host, in one thread: a few seconds for a hundred thousand short texts.
#ifndef GX_BAG_OF_WORDS_H
#define GX_BAG_OF_WORDS_H
#include "labelled_texts.h"
GX_BEGIN

enum { GX_BAG_EPOCHS = 5 };

// *accuracy: the fraction of `held_out` that is classified correctly after GX_BAG_EPOCHS epochs of `train`. Each text
// of both has one label.
GxStatus gx_bag_of_words(const GxTexts *train, const GxTexts *held_out, int64_t vocab, int labels, double *accuracy,
                         GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BAG_OF_WORDS_IMPLEMENTED)
#define GX_BAG_OF_WORDS_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include "../data/dataset.h"

typedef struct {
    int labels;
    float *w, *squares; // [vocab + 1][labels], the last row is the bias; sums of squared gradients
    double *z;          // [labels]
    int64_t vocab;
} gx__Bag;

static const float gx__bag_rate = 0.5f;

// b->z = p for text i
static void gx__bag_probabilities(const gx__Bag *b, const GxTexts *t, int64_t i)
{
    const int V = b->labels;
    double most = -INFINITY, sum = 0;
    for (int c = 0; c < V; c++) b->z[c] = (double)b->w[b->vocab * V + c];
    for (int32_t k = 0; k < t->length[i]; k++)
        for (int c = 0; c < V; c++) b->z[c] += (double)b->w[(int64_t)t->ids[i][k] * V + c] / t->length[i];
    for (int c = 0; c < V; c++) most = fmax(most, b->z[c]);
    for (int c = 0; c < V; c++) sum += b->z[c] = exp(b->z[c] - most);
    for (int c = 0; c < V; c++) b->z[c] /= sum;
}

// w -= rate g / sqrt(sum g²), g = (p - one-hot) / n
static void gx__bag_move(const gx__Bag *b, int64_t row, double scale)
{
    const int V = b->labels;
    for (int c = 0; c < V; c++) {
        const float g = (float)(b->z[c] * scale);
        float *square = &b->squares[row * V + c];
        *square += g * g;
        if (*square > 0) b->w[row * V + c] -= gx__bag_rate * g / sqrtf(*square);
    }
}

static void gx__bag_learn(const gx__Bag *b, const GxTexts *t, int64_t i)
{
    gx__bag_probabilities(b, t, i);
    b->z[t->label[i]] -= 1;
    gx__bag_move(b, b->vocab, 1);
    for (int32_t k = 0; k < t->length[i]; k++) gx__bag_move(b, t->ids[i][k], 1.0 / t->length[i]);
}

static int gx__bag_is_right(const gx__Bag *b, const GxTexts *t, int64_t i)
{
    int best = 0;
    gx__bag_probabilities(b, t, i);
    for (int c = 1; c < b->labels; c++)
        if (b->z[c] > b->z[best]) best = c;
    return best == t->label[i];
}

GxStatus gx_bag_of_words(const GxTexts *train, const GxTexts *held_out, int64_t vocab, int labels, double *accuracy,
                         GxError *err)
{
    const size_t n = (size_t)(vocab + 1) * (size_t)labels;
    int64_t right = 0;
    gx__Bag b;
    b.labels = labels, b.vocab = vocab;
    b.w = (float *)calloc(n, sizeof *b.w), b.squares = (float *)calloc(n, sizeof *b.squares);
    b.z = (double *)calloc((size_t)labels, sizeof *b.z);
    const GxStatus status = b.w && b.squares && b.z
                                ? GX_OK
                                : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a regression on %ld tokens", (long)vocab);
    for (int64_t e = 0; e < GX_BAG_EPOCHS && status == GX_OK; e++)
        for (int64_t i = 0; i < train->n; i++) gx__bag_learn(&b, train, gx_permute(0, e, train->n, i));
    for (int64_t i = 0; i < held_out->n && status == GX_OK; i++) right += gx__bag_is_right(&b, held_out, i);
    *accuracy = (double)right / (double)held_out->n;
    free(b.w), free(b.squares), free(b.z);
    return status;
}
#endif
