// task/scores.h: metrics of predictions: several labels per record, correlations of numbers, rankings. Computed on the
// host, in fp64. Metrics of one class per record are in confusion.h.
//
// Degenerate cases are as in scikit-learn and SciPy: a correlation with a constant, or of fewer than two pairs, is NaN;
// a label that occurs neither in truth nor in predictions has an F1 of 0. In a ranking, wrong candidates come before
// right ones of equal score, so a model that gives all candidates the same score is rated as bad. Predictions that are
// NaN or infinite are an error.
//
//     double r;
//     GX_TRY(gx_score_spearman(predicted, truth, n, &r, err));
//
//     const GxCosines pairs = {anchors, positives, n, n, width, NULL}; // of embeddings
//     GX_TRY(gx_rank_by_cosine(&pairs, threads, rank, err));
//     GxRanking s = gx_ranking_of_ranks(rank, n, 10);                  // s.mrr, s.ndcg, s.recall
#ifndef GX_SCORES_H
#define GX_SCORES_H
#include "../base/status.h"
#include "confusion.h"
GX_BEGIN

// Several labels per record. A label is predicted where its logit is above 0 (a probability above 1/2). The counts are
// a plain array, so that ranks can sum theirs: hits, false alarms and misses of each label, then records that are right
// in every label, and records.
static inline int64_t gx_several_counts(int labels) { return 3 * (int64_t)labels + 2; } // numbers; set them to 0 first
GxStatus gx_several_count(int64_t *count, const float *logits, const unsigned char *truth, int labels, int64_t record,
                          GxError *err);
typedef struct {     // NaN without records
    double exact;    // fraction of the records that are right in every label
    double accuracy; // fraction of the decisions (one per record and label) that are right
    double micro_f1; // 2tp / (2tp + fp + fn) of all labels together; 0/0 = 0
    double macro_f1; // mean of the labels' own F1
} GxSeveral;
GxSeveral gx_several_scores(const int64_t *count, int labels);

// Correlations of two lists of numbers, in [-1, 1] or NaN.
GxStatus gx_score_pearson(const float *predicted, const float *truth, int64_t n, double *score, GxError *err);
GxStatus gx_score_spearman(const float *predicted, const float *truth, int64_t n, double *score, GxError *err);
// Area under the ROC curve: how often a true record scores higher than a false one; ties count half. NaN if either kind
// is missing.
GxStatus gx_score_auc(const float *predicted, const unsigned char *truth, int64_t n, double *score, GxError *err);

// Rankings, of one query or as means over queries. All 0 if nothing is relevant.
typedef struct {
    double mrr;    // 1 / rank of the first relevant candidate
    double ndcg;   // Σ gain / log2(1 + rank) over the first k ranks, divided by the best possible
    double recall; // fraction of the relevant candidates that are in the first k ranks
} GxRanking;
// Of one query with n candidates. gain[i] > 0: candidate i is relevant, the more the better; 0: it is not. k >= 1.
GxStatus gx_score_ranking(const float *predicted, const float *gain, int64_t n, int64_t k, GxRanking *score,
                          GxError *err);
// Of queries with one relevant candidate each, from its rank; 1 is the best.
GxRanking gx_ranking_of_ranks(const int64_t *rank, int64_t n, int64_t k);
typedef struct {
    const float *anchor, *candidate; // [n][width], [m][width], m >= n
    int64_t n, m, width;
    const int64_t *same; // [m] candidates with equal numbers are the same text, and not rivals; NULL: there are none
} GxCosines;
// rank[i]: the rank of candidate i for anchor i among all, by cosine (0 for a vector of zeros). n m width
// multiplications; cosines are not stored.
GxStatus gx_rank_by_cosine(const GxCosines *x, int threads, int64_t *rank, GxError *err);
// The same, and loss[i] = log(sum_j exp(s_ij)) - s_ii with s_ij = scale * cosine, over candidate i and its rivals.
GxStatus gx_rank_and_loss_by_cosine(const GxCosines *x, double scale, int threads, int64_t *rank, double *loss,
                                    GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SCORES_IMPLEMENTED)
#define GX_SCORES_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

// per: numbers per record
static GxStatus gx__scores_check(const char *what, const float *x, int64_t n, int64_t per, GxError *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s of record %ld is %g; expected a finite number: it cannot be evaluated", what,
                           (long)(i / per), (double)x[i]);
    return GX_OK;
}

// ---- several labels ------------------------------------------------------------------------------------------------

GxStatus gx_several_count(int64_t *count, const float *logits, const unsigned char *truth, int labels, int64_t record,
                          GxError *err)
{
    int64_t *all = count + 3 * (int64_t)labels;
    int wrong = 0;
    for (int l = 0; l < labels; l++)
        if (!isfinite(logits[l]))
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "the logit of label %d for record %ld is %g; expected a finite number: the model cannot be evaluated",
                l, (long)record, (double)logits[l]);
    for (int l = 0; l < labels; l++) {
        const int is = truth[l] != 0, predicted = logits[l] > 0;
        count[3 * l] += is && predicted;
        count[3 * l + 1] += !is && predicted;
        count[3 * l + 2] += is && !predicted;
        wrong += is != predicted;
    }
    all[0] += !wrong, all[1]++;
    return GX_OK;
}

static double gx__scores_f1(const int64_t count[3])
{
    const int64_t both = 2 * count[0] + count[1] + count[2];
    return both ? 2 * (double)count[0] / (double)both : 0;
}

GxSeveral gx_several_scores(const int64_t *count, int labels)
{
    const GxSeveral none = {NAN, NAN, NAN, NAN};
    GxSeveral s = GX_ZERO;
    const int64_t *all = count + 3 * (int64_t)labels, records = all[1];
    int64_t sum[3] = {0, 0, 0};
    if (records == 0) return none;
    for (int l = 0; l < labels; l++) {
        for (int k = 0; k < 3; k++) sum[k] += count[3 * l + k];
        s.macro_f1 += gx__scores_f1(count + 3 * l) / labels;
    }
    s.micro_f1 = gx__scores_f1(sum);
    s.exact = (double)all[0] / (double)records;
    s.accuracy = 1 - (double)(sum[1] + sum[2]) / ((double)records * labels);
    return s;
}

// ---- correlations --------------------------------------------------------------------------------------------------

static int gx__scores_is_constant(const double *x, int64_t n)
{
    int64_t i = 1;
    while (i < n && x[i] == x[0]) i++;
    return i >= n;
}

// Subtracts the mean, and divides by the length.
static void gx__scores_standardize(double *x, int64_t n)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n; i++) mean += x[i];
    mean /= (double)n;
    for (int64_t i = 0; i < n; i++) x[i] -= mean, square += x[i] * x[i];
    for (int64_t i = 0; i < n; i++) x[i] /= sqrt(square);
}

static double gx__scores_correlate(double *x, double *y, int64_t n) // overwrites both
{
    double r = 0;
    if (gx__scores_is_constant(x, n) || gx__scores_is_constant(y, n)) return NAN;
    gx__scores_standardize(x, n), gx__scores_standardize(y, n);
    for (int64_t i = 0; i < n; i++) r += x[i] * y[i];
    return fmax(-1, fmin(1, r));
}

typedef struct {
    double value, gain;
    int64_t index;
} gx__Score;

// By value, ascending; equal ones by gain, ascending.
static int gx__scores_rising(const void *a, const void *b)
{
    const gx__Score *x = (const gx__Score *)a, *y = (const gx__Score *)b;
    if (x->value != y->value) return (x->value > y->value) - (x->value < y->value);
    return (x->gain > y->gain) - (x->gain < y->gain);
}

// Ranks from 1 on; equal numbers share the mean of their ranks.
static void gx__scores_mid_ranks(gx__Score *s, const float *x, int64_t n, double *rank)
{
    for (int64_t i = 0; i < n; i++) s[i].value = (double)x[i], s[i].gain = 0, s[i].index = i;
    qsort(s, (size_t)n, sizeof *s, gx__scores_rising);
    for (int64_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && s[end].value == s[begin].value;) end++;
        for (int64_t i = begin; i < end; i++) rank[s[i].index] = 0.5 * (double)(begin + 1 + end);
    }
}

typedef struct { // scratch
    gx__Score *s;
    double *x, *y;
} gx__Scores;

static GxStatus gx__scores_open(gx__Scores *t, int64_t n, GxError *err)
{
    t->s = (gx__Score *)malloc((size_t)(n + 1) * sizeof *t->s);
    t->x = (double *)malloc((size_t)(n + 1) * sizeof *t->x);
    t->y = (double *)malloc((size_t)(n + 1) * sizeof *t->y);
    return t->s && t->x && t->y ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to judge %ld predictions", (long)n);
}

static void gx__scores_close(gx__Scores *t) { free(t->s), free(t->x), free(t->y); }

static GxStatus gx__scores_correlation(const float *predicted, const float *truth, int64_t n, int of_ranks,
                                       double *score, GxError *err)
{
    gx__Scores t;
    GX_TRY(gx__scores_check("the prediction", predicted, n, 1, err));
    GX_TRY(gx__scores_check("the truth", truth, n, 1, err));
    const GxStatus status = gx__scores_open(&t, n, err);
    for (int64_t i = 0; i < n && status == GX_OK; i++) t.x[i] = (double)predicted[i], t.y[i] = (double)truth[i];
    if (status == GX_OK && of_ranks) {
        gx__scores_mid_ranks(t.s, predicted, n, t.x);
        gx__scores_mid_ranks(t.s, truth, n, t.y);
    }
    if (status == GX_OK) *score = gx__scores_correlate(t.x, t.y, n);
    gx__scores_close(&t);
    return status;
}

GxStatus gx_score_pearson(const float *predicted, const float *truth, int64_t n, double *score, GxError *err)
{
    return gx__scores_correlation(predicted, truth, n, 0, score, err);
}

GxStatus gx_score_spearman(const float *predicted, const float *truth, int64_t n, double *score, GxError *err)
{
    return gx__scores_correlation(predicted, truth, n, 1, score, err);
}

// AUC = (R - n⁺(n⁺ + 1) / 2) / (n⁺ n⁻), R: the sum of the ranks of the true records. Hanley & McNeil 1982.
GxStatus gx_score_auc(const float *predicted, const unsigned char *truth, int64_t n, double *score, GxError *err)
{
    gx__Scores t;
    double sum = 0, yes = 0;
    GX_TRY(gx__scores_check("the prediction", predicted, n, 1, err));
    const GxStatus status = gx__scores_open(&t, n, err);
    if (status == GX_OK) {
        gx__scores_mid_ranks(t.s, predicted, n, t.x);
        for (int64_t i = 0; i < n; i++)
            if (truth[i]) sum += t.x[i], yes++;
        const double no = (double)n - yes;
        *score = yes > 0 && no > 0 ? (sum - yes * (yes + 1) / 2) / (yes * no) : NAN;
    }
    gx__scores_close(&t);
    return status;
}

// ---- rankings ------------------------------------------------------------------------------------------------------

static int gx__scores_by_gain(const void *a, const void *b) // descending
{
    const double x = ((const gx__Score *)a)->gain, y = ((const gx__Score *)b)->gain;
    return (x < y) - (x > y);
}

// Σ gain / log2(1 + rank) over the first k; s: the gains in the order of their ranks.
static double gx__scores_dcg(const gx__Score *s, int64_t n, int64_t k)
{
    double sum = 0;
    for (int64_t i = 0; i < gx_min(n, k); i++) sum += s[i].gain / log2((double)i + 2);
    return sum;
}

static GxRanking gx__scores_of_order(gx__Score *s, int64_t n, int64_t k) // overwrites it
{
    GxRanking r = GX_ZERO;
    int64_t first = -1, found = 0, sought = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(s[i].gain > 0)) continue;
        if (first < 0) first = i;
        sought++, found += i < k;
    }
    if (sought == 0) return r;
    const double dcg = gx__scores_dcg(s, n, k);
    qsort(s, (size_t)n, sizeof *s, gx__scores_by_gain);
    r.mrr = 1 / (double)(first + 1);
    r.ndcg = dcg / gx__scores_dcg(s, n, k);
    r.recall = (double)found / (double)sought;
    return r;
}

GxStatus gx_score_ranking(const float *predicted, const float *gain, int64_t n, int64_t k, GxRanking *score,
                          GxError *err)
{
    GX_TRY(gx__scores_check("the prediction", predicted, n, 1, err));
    gx__Score *s = (gx__Score *)malloc((size_t)(n + 1) * sizeof *s);
    if (!s) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to rank %ld candidates", (long)n);
    for (int64_t i = 0; i < n; i++) s[i].value = -(double)predicted[i], s[i].gain = (double)gain[i], s[i].index = i;
    qsort(s, (size_t)n, sizeof *s, gx__scores_rising); // the best first; of equal ones, the worst first
    *score = gx__scores_of_order(s, n, k);
    free(s);
    return GX_OK;
}

GxRanking gx_ranking_of_ranks(const int64_t *rank, int64_t n, int64_t k)
{
    GxRanking r = GX_ZERO;
    for (int64_t i = 0; i < n; i++) {
        r.mrr += 1 / (double)rank[i] / (double)n;
        if (rank[i] > k) continue;
        r.ndcg += 1 / log2((double)rank[i] + 1) / (double)n;
        r.recall += 1 / (double)n;
    }
    return r;
}

static double gx__scores_dot(const float *x, const float *y, int64_t width)
{
    double sum = 0;
    GX_OMP(simd reduction(+ : sum))
    for (int64_t i = 0; i < width; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

static double gx__scores_cosine(const float *anchor, const float *candidate, int64_t width, double length)
{
    return length > 0 ? gx__scores_dot(anchor, candidate, width) / length
                      : 0; // the anchor's length is the same for all
}

// Candidate i's rank for anchor i. scale 0: no loss.
static int64_t gx__scores_rank_one(const GxCosines *x, const double *length, int64_t i, double scale, double *loss)
{
    const float *a = x->anchor + i * x->width;
    const double own = gx__scores_cosine(a, x->candidate + i * x->width, x->width, length[i]),
                 along = scale > 0 ? sqrt(gx__scores_dot(a, a, x->width)) : 0, factor = along > 0 ? scale / along : 0;
    double rivals = 0; // sum of exp(s_ij - s_ii)
    int64_t rank = 1;
    for (int64_t j = 0; j < x->m; j++) {
        if (x->same ? x->same[j] == x->same[i] : j == i) continue;
        const double theirs = gx__scores_cosine(a, x->candidate + j * x->width, x->width, length[j]);
        rank += theirs >= own;
        if (scale > 0) rivals += exp(factor * (theirs - own));
    }
    if (scale > 0) *loss = log1p(rivals);
    return rank;
}

GxStatus gx_rank_and_loss_by_cosine(const GxCosines *x, double scale, int threads, int64_t *rank, double *loss,
                                    GxError *err)
{
    const int64_t n = x->n, m = x->m, width = x->width;
    (void)threads; // unused without OpenMP
    if (m < n)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "there are %ld anchors and %ld candidates; expected one candidate for each anchor", (long)n,
                       (long)m);
    GX_TRY(gx__scores_check("the embedding of the anchor", x->anchor, n * width, width, err));
    GX_TRY(gx__scores_check("the embedding of the candidate", x->candidate, m * width, width, err));
    double *length = (double *)malloc((size_t)(m + 1) * sizeof *length);
    if (!length) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to rank %ld candidates", (long)m);
    for (int64_t j = 0; j < m; j++)
        length[j] = sqrt(gx__scores_dot(x->candidate + j * width, x->candidate + j * width, width));
    GX_OMP(parallel for schedule(static) num_threads(threads > 0 ? threads : 1))
    for (int64_t i = 0; i < n; i++) rank[i] = gx__scores_rank_one(x, length, i, scale, loss ? loss + i : NULL);
    free(length);
    return GX_OK;
}

GxStatus gx_rank_by_cosine(const GxCosines *x, int threads, int64_t *rank, GxError *err)
{
    return gx_rank_and_loss_by_cosine(x, 0, threads, rank, NULL, err);
}
#endif
