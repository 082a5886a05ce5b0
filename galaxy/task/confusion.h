// task/confusion.h: the confusion matrix of a classification, the scores computed from it, and its lines for a log.
//
// count[truth * classes + prediction] is a number of records. It is a plain array, so ranks can sum theirs. All scores
// are functions of the sum, so they do not depend on which rank had which record.
//
//     int64_t *count = calloc(classes * classes, sizeof *count);
//     int class_;
//     for (i…) {
//         GX_TRY(gx_argmax(logits + i * classes, classes, i, &class_, err));
//         count[truth[i] * classes + class_]++;
//     }
//     gx_confusion_macro_f1(count, classes);
//     for (int k = 0; gx_confusion_line(line, sizeof line, count, classes, names, k); k++) … line …
//
// Degenerate cases are as in scikit-learn. Without records every score is NaN.
#ifndef GX_CONFUSION_H
#define GX_CONFUSION_H
#include "../base/status.h"
GX_BEGIN

typedef struct {
    const int64_t *count; // [classes][classes]
    int classes;
    const char *const *name; // [classes]
} GxConfusion;

// The class with the largest logit, the first of equal ones. An error if one is NaN or infinite; record: the record's
// number for its message.
GxStatus gx_argmax(const float *logits, int classes, int64_t record, int *class_, GxError *err);

int64_t gx_confusion_records(const int64_t *count, int classes);
double gx_confusion_accuracy(const int64_t *count, int classes);
// Mean of 2tp / (2tp + fp + fn) over the classes that occur in truth or prediction.
double gx_confusion_macro_f1(const int64_t *count, int classes);
// (c s - Σ t_k p_k) / sqrt((s² - Σ t_k²)(s² - Σ p_k²)), c: right, s: all, t, p: of class k in truth, in prediction; 0/0
// = 0. Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient". Fewer than 3e9
// records.
double gx_confusion_matthews(const int64_t *count, int classes);

// Writes line k of a readable table: the matrix of up to GX_CONFUSION_MATRIX classes or, with more classes, the most
// frequent confusions. At most 80 columns wide if counts have up to 6 digits. Returns 0 if there is no such line.
enum { GX_CONFUSION_MATRIX = 8, GX_CONFUSION_LINE = 400 }; // bytes that are enough for `size`
int gx_confusion_line(char *out, size_t size, const int64_t *count, int classes, const char *const *name, int k);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONFUSION_IMPLEMENTED)
#define GX_CONFUSION_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>

GxStatus gx_argmax(const float *logits, int classes, int64_t record, int *class_, GxError *err)
{
    int best = 0;
    for (int c = 0; c < classes; c++) {
        if (!isfinite(logits[c]))
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "the logit of class %d for record %ld is %g; expected a finite number: the model cannot be evaluated",
                c, (long)record, (double)logits[c]);
        if (logits[c] > logits[best]) best = c;
    }
    *class_ = best;
    return GX_OK;
}

// ---- scores --------------------------------------------------------------------------------------------------------

static int64_t gx__confusion_truth(const int64_t *count, int classes, int c) // records of class c
{
    int64_t n = 0;
    for (int p = 0; p < classes; p++) n += count[(int64_t)c * classes + p];
    return n;
}

static int64_t gx__confusion_predicted(const int64_t *count, int classes, int c) // records predicted as class c
{
    int64_t n = 0;
    for (int t = 0; t < classes; t++) n += count[(int64_t)t * classes + c];
    return n;
}

static int64_t gx__confusion_right(const int64_t *count, int classes)
{
    int64_t n = 0;
    for (int c = 0; c < classes; c++) n += count[(int64_t)c * classes + c];
    return n;
}

int64_t gx_confusion_records(const int64_t *count, int classes)
{
    int64_t n = 0;
    for (int64_t i = 0; i < (int64_t)classes * classes; i++) n += count[i];
    return n;
}

double gx_confusion_accuracy(const int64_t *count, int classes)
{
    const int64_t n = gx_confusion_records(count, classes);
    return n ? (double)gx__confusion_right(count, classes) / (double)n : NAN;
}

double gx_confusion_macro_f1(const int64_t *count, int classes)
{
    double sum = 0;
    int seen = 0;
    for (int c = 0; c < classes; c++) {
        const int64_t both = gx__confusion_truth(count, classes, c) + gx__confusion_predicted(count, classes, c);
        if (both == 0) continue; // 2tp + fp + fn
        sum += 2 * (double)count[(int64_t)c * classes + c] / (double)both;
        seen++;
    }
    return seen ? sum / seen : NAN;
}

double gx_confusion_matthews(const int64_t *count, int classes)
{
    const int64_t n = gx_confusion_records(count, classes), right = gx__confusion_right(count, classes);
    int64_t tp = 0, tt = 0, pp = 0; // Σ t_k p_k, Σ t_k², Σ p_k²
    if (n == 0) return NAN;
    for (int c = 0; c < classes; c++) {
        const int64_t t = gx__confusion_truth(count, classes, c), p = gx__confusion_predicted(count, classes, c);
        tp += t * p, tt += t * t, pp += p * p;
    }
    if (n * n == tt || n * n == pp) return 0; // one class only, in truth or in prediction
    return (double)(right * n - tp) / (sqrt((double)(n * n - tt)) * sqrt((double)(n * n - pp)));
}

// ---- lines ---------------------------------------------------------------------------------------------------------

enum { GX__CONFUSION_NAME = 12, GX__CONFUSION_CELL = 7, GX__CONFUSION_WORST = 10 }; // columns; lines

// Appends the text to out, aligned right or left in `columns` columns; a longer text is cut, with an ellipsis.
static void gx__confusion_cell(char *out, size_t size, const char *text, int columns, int right)
{
    char cut[8 * GX__CONFUSION_NAME];
    size_t bytes = 0, at = strlen(out);
    int n = gx_text_columns(text, (int64_t)strlen(text));
    const int is_cut = n > columns;
    for (int c = 0; c < (is_cut ? columns - 1 : n); c++) bytes += (size_t)gx_max(1, gx_utf8_bytes(text + bytes));
    snprintf(cut, sizeof cut, "%.*s%s", (int)bytes, text, is_cut ? "…" : "");
    n = is_cut ? columns : n;
    snprintf(out + at, size - at, "%*s%s%*s", right ? columns - n : 0, "", cut, right ? 0 : columns - n, "");
}

static void gx__confusion_row(char *out, size_t size, const int64_t *count, int classes, const char *const *name,
                              int truth) // -1: the header
{
    char text[24];
    out[0] = 0;
    gx__confusion_cell(out, size, truth < 0 ? "truth ↓ as →" : name[truth], GX__CONFUSION_NAME, 0);
    for (int p = 0; p < classes; p++) {
        const size_t at = strlen(out);
        snprintf(out + at, size - at, " ");
        if (truth >= 0) snprintf(text, sizeof text, "%ld", (long)count[(int64_t)truth * classes + p]);
        gx__confusion_cell(out, size, truth < 0 ? name[p] : text, GX__CONFUSION_CELL, 1);
    }
}

// The index in count[] of the k-th most frequent confusion; of equal ones the one with the smaller index comes first.
// -1: there are fewer.
static int64_t gx__confusion_worst(const int64_t *count, int classes, int k)
{
    const int64_t n = (int64_t)classes * classes;
    int64_t before = -1; // the previous one: the next ones have a smaller count, or the same and a larger index
    for (int i = 0; i <= k; i++) {
        int64_t best = -1;
        for (int64_t at = 0; at < n; at++) {
            if (at % (classes + 1) == 0 || count[at] == 0) continue; // no confusion, or one that never occurs
            const int is_free = before < 0 || count[at] < count[before] || (count[at] == count[before] && at > before);
            if (is_free && (best < 0 || count[at] > count[best])) best = at;
        }
        if (best < 0) return -1;
        before = best;
    }
    return before;
}

int gx_confusion_line(char *out, size_t size, const int64_t *count, int classes, const char *const *name, int k)
{
    char truth[64], prediction[64];
    if (classes <= GX_CONFUSION_MATRIX) {
        if (k <= classes) gx__confusion_row(out, size, count, classes, name, k - 1);
        return k <= classes;
    }
    const int64_t at = k < GX__CONFUSION_WORST ? gx__confusion_worst(count, classes, k) : -1;
    if (at < 0) return 0;
    const int t = (int)(at / classes), p = (int)(at % classes);
    snprintf(out, size, "%ld of %ld %s were classified as %s", (long)count[at],
             (long)gx__confusion_truth(count, classes, t), gx_text_cut(name[t], truth, sizeof truth / 2),
             gx_text_cut(name[p], prediction, sizeof prediction / 2));
    return 1;
}
#endif
