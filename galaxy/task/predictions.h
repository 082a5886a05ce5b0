// task/predictions.h: a model's predictions for labelled texts (labelled_texts.h): gathers them from all ranks,
// computes metrics, writes them to a file. All of it runs on the host.
//
//     GX_TRY(gx_predictions_open(&p, &texts, GX_PROBLEM_SINGLE, &labels, err));
//     gx_predictions_begin(&p);                     // nothing is known yet
//     gx_predictions_put(&p, i, logits);            // of text i, on the rank that has it
//     gx_predictions_gather(g, &p);                 // then all ranks have all
//     n = gx_predictions_metrics(&p, metric, 16);
//     GX_TRY(gx_predictions_write(&p, "predictions.jsonl", err));
//
// Metrics are named as in transformers' run_glue, and defined as in scikit-learn and SciPy (scores.h, confusion.h).
// They do not depend on which rank had which text. If outputs are not finite, every metric is NaN.
//     one label        accuracy, f1 (macro), matthews_correlation
//     several labels   f1_micro, f1_macro, accuracy (texts that are right in every label)
//     a number         mse, pearson, spearmanr
//     in groups        with two labels, or a number: mrr, and ndcg of the first GX_RANKED_FIRST, as means over the
//                      groups of which all texts are known and at least one is relevant (has the second label, or a
//                      number above 0)
//
// The file, in the order of the records, TSV or JSON lines by its name:
//     label  score  noun  verb …       one label: the likeliest, its probability, those of all
//     label  noun  verb …              several: those above 1/2, with commas between them, and all probabilities
//     label                            a number
//     {"label": "verb", "score": 0.97, "scores": {"noun": 0.02, "verb": 0.97}}
#ifndef GX_PREDICTIONS_H
#define GX_PREDICTIONS_H
#include "../base/context.h"
#include "labelled_texts.h"
#include "scores.h"
#include "task.h"
GX_BEGIN

enum { GX_RANKED_FIRST = 10, GX_PREDICTION_METRICS = 5 };

typedef struct {
    const GxTexts *t;
    GxProblem problem;
    const GxLabels *labels; // REGRESSION: not used
    int outputs;
    float *logits;  // [n][outputs]
    int32_t *known; // [n] 1: the text's logits are set
    int64_t *group; // [n] number of its group; NULL: there are no groups
    int64_t groups;
    int64_t *count; // SINGLE: [outputs][outputs] of confusion.h, by gx_predictions_metrics
    int is_judged;  // 1: count is valid
} GxPredictions;

GxStatus gx_predictions_open(GxPredictions *p, const GxTexts *t, GxProblem problem, const GxLabels *labels,
                             GxError *err);
void gx_predictions_close(GxPredictions *p); // accepts a struct of zeros
void gx_predictions_begin(GxPredictions *p);
void gx_predictions_put(GxPredictions *p, int64_t i, const float *logits); // [outputs]
void gx_predictions_gather(GxContext *g, GxPredictions *p);
// The metrics of a problem, with NaN as values; is_grouped: texts have groups. Returns how many.
int gx_prediction_metrics(GxProblem problem, int outputs, int is_grouped, GxMetric metric[GX_PREDICTION_METRICS]);
int gx_predictions_are_ranked(GxProblem problem, int outputs); // 1: texts in groups are ranked
// The metrics of the texts that are known and have labels. Returns how many.
int gx_predictions_metrics(GxPredictions *p, GxMetric metric[GX_PREDICTION_METRICS], GxError *err);
// Writes the prediction of logits[outputs] to out[size]: "verb 0.970", "sport 0.81, politics 0.64", "none", "2.413".
void gx_prediction_text(const GxPredictions *p, const float *logits, char *out, size_t size);
// The label of text i: "verb", "sport, politics", "2.4".
const char *gx_prediction_truth(const GxPredictions *p, int64_t i);

// An error if the file cannot be written; call it before anything is computed. _jsonl: of a task that writes JSON lines
// alone.
GxStatus gx_predictions_check_jsonl(const char *path, GxError *err);
GxStatus gx_predictions_check(const char *path, const GxLabels *labels, GxError *err);
GxStatus gx_predictions_write(const GxPredictions *p, const char *path, GxError *err); // all texts must be known

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PREDICTIONS_IMPLEMENTED)
#define GX_PREDICTIONS_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../io/json.h"
#include "../parallel/stage_messages.h"

// ---- groups --------------------------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    int64_t i;
} gx__PredictionsMember;

static int gx__predictions_by_name(const void *a, const void *b)
{
    return strcmp(((const gx__PredictionsMember *)a)->name, ((const gx__PredictionsMember *)b)->name);
}

// Texts of the same group get the same number.
static GxStatus gx__predictions_find_groups(GxPredictions *p, GxError *err)
{
    const GxTexts *t = p->t;
    if (t->file->group < 0) return GX_OK;
    gx__PredictionsMember *m = (gx__PredictionsMember *)malloc((size_t)t->n * sizeof *m);
    p->group = (int64_t *)malloc((size_t)t->n * sizeof *p->group);
    if (!m || !p->group) {
        free(m);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the groups of %ld texts", (long)t->n);
    }
    for (int64_t i = 0; i < t->n; i++) m[i].name = gx_texts_field(t, i, t->file->group), m[i].i = i;
    qsort(m, (size_t)t->n, sizeof *m, gx__predictions_by_name);
    for (int64_t i = 0; i < t->n; i++) {
        p->groups += i == 0 || strcmp(m[i].name, m[i - 1].name) != 0;
        p->group[m[i].i] = p->groups - 1;
    }
    free(m);
    return GX_OK;
}

// ---- what is known -------------------------------------------------------------------------------------------------

GxStatus gx_predictions_open(GxPredictions *p, const GxTexts *t, GxProblem problem, const GxLabels *labels,
                             GxError *err)
{
    memset(p, 0, sizeof *p);
    p->t = t, p->problem = problem, p->labels = labels;
    p->outputs = problem == GX_PROBLEM_REGRESSION ? 1 : labels->n;
    p->logits = (float *)calloc((size_t)t->n * (size_t)p->outputs, sizeof *p->logits);
    p->known = (int32_t *)calloc((size_t)t->n, sizeof *p->known);
    p->count = (int64_t *)calloc((size_t)p->outputs * (size_t)p->outputs, sizeof *p->count);
    if (!p->logits || !p->known || !p->count)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for what is predicted of %ld texts", (long)t->n);
    return gx__predictions_find_groups(p, err);
}

void gx_predictions_close(GxPredictions *p)
{
    free(p->logits), free(p->known), free(p->group), free(p->count);
    memset(p, 0, sizeof *p);
}

void gx_predictions_begin(GxPredictions *p)
{
    memset(p->logits, 0, (size_t)(p->t->n * p->outputs) * sizeof *p->logits);
    memset(p->known, 0, (size_t)p->t->n * sizeof *p->known);
    p->is_judged = 0;
}

void gx_predictions_put(GxPredictions *p, int64_t i, const float *logits)
{
    memcpy(p->logits + i * p->outputs, logits, (size_t)p->outputs * sizeof *logits);
    p->known[i] = 1;
}

// Logits that one rank knows are 0 on all others (except in its tp group), so the all-reduce's sums are exact.
void gx_predictions_gather(GxContext *g, GxPredictions *p)
{
    gx_at(g, -1, "predictions");
    gx_stage_sum_results(g, p->logits, p->t->n * p->outputs, GX_F32);
    gx_stage_sum_results(g, p->known, p->t->n, GX_I32);
}

// ---- metrics -------------------------------------------------------------------------------------------------------

int gx_predictions_are_ranked(GxProblem problem, int outputs) { return problem != GX_PROBLEM_MULTI && outputs <= 2; }

int gx_prediction_metrics(GxProblem problem, int outputs, int is_grouped, GxMetric metric[GX_PREDICTION_METRICS])
{
    static const GxMetric kinds[3][3] = {{{"accuracy", "accuracy %.4f", NAN, 1},
                                          {"f1", "f1 %.4f", NAN, 1},
                                          {"matthews_correlation", "matthews %.4f", NAN, 1}},
                                         {{"f1_micro", "f1 micro %.4f", NAN, 1},
                                          {"f1_macro", "f1 macro %.4f", NAN, 1},
                                          {"accuracy", "accuracy %.4f", NAN, 1}},
                                         {{"mse", "mse %.4f", NAN, -1},
                                          {"pearson", "pearson %.4f", NAN, 1},
                                          {"spearmanr", "spearman %.4f", NAN, 1}}},
                          ranking[2] = {{"mrr", "mrr %.4f", NAN, 1}, {"ndcg", "ndcg %.4f", NAN, 1}};
    memcpy(metric, kinds[(int)problem - 1], sizeof kinds[0]);
    if (!is_grouped || !gx_predictions_are_ranked(problem, outputs)) return 3;
    memcpy(metric + 3, ranking, sizeof ranking);
    return 5;
}

static GxStatus gx__predictions_single(GxPredictions *p, double value[3], GxError *err)
{
    const int V = p->outputs;
    memset(p->count, 0, (size_t)V * (size_t)V * sizeof *p->count);
    for (int64_t i = 0; i < p->t->n; i++) {
        int class_ = 0;
        if (!p->known[i]) continue;
        GX_TRY(gx_argmax(p->logits + i * V, V, i, &class_, err));
        p->count[(int64_t)p->t->label[i] * V + class_]++;
    }
    p->is_judged = 1;
    value[0] = gx_confusion_accuracy(p->count, V);
    value[1] = gx_confusion_macro_f1(p->count, V);
    value[2] = gx_confusion_matthews(p->count, V);
    return GX_OK;
}

static GxStatus gx__predictions_several(const GxPredictions *p, double value[3], GxError *err)
{
    const int V = p->outputs;
    int64_t *count = (int64_t *)calloc((size_t)gx_several_counts(V), sizeof *count);
    GxStatus status = count ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for the counts of %d labels", V);
    for (int64_t i = 0; i < p->t->n && status == GX_OK; i++)
        if (p->known[i]) status = gx_several_count(count, p->logits + i * V, p->t->has + i * V, V, i, err);
    if (status == GX_OK) {
        const GxSeveral s = gx_several_scores(count, V);
        value[0] = s.micro_f1, value[1] = s.macro_f1, value[2] = s.exact;
    }
    free(count);
    return status;
}

static GxStatus gx__predictions_regression(const GxPredictions *p, double value[3], GxError *err)
{
    float *x = (float *)malloc(2 * (size_t)p->t->n * sizeof *x), *y = x ? x + p->t->n : NULL;
    int64_t n = 0;
    double square = 0;
    if (!x) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to judge %ld predictions", (long)p->t->n);
    for (int64_t i = 0; i < p->t->n; i++)
        if (p->known[i]) x[n] = p->logits[i], y[n++] = p->t->number[i];
    for (int64_t i = 0; i < n; i++) square += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    value[0] = square / (double)n;
    GxStatus status = gx_score_pearson(x, y, n, &value[1], err);
    if (status == GX_OK) status = gx_score_spearman(x, y, n, &value[2], err);
    free(x);
    return status;
}

// The true relevance of text i in its group (gain), and the score that the model gives it (relevance).
static float gx__predictions_gain(const GxPredictions *p, int64_t i)
{
    return p->problem == GX_PROBLEM_SINGLE ? (float)(p->t->label[i] == 1) : p->t->number[i];
}
static float gx__predictions_relevance(const GxPredictions *p, int64_t i)
{
    const float *x = p->logits + i * p->outputs;
    return p->problem == GX_PROBLEM_SINGLE ? x[1] - x[0] : x[0];
}

typedef struct { // texts by their groups
    int64_t *begin, *member;
    float *predicted, *gain; // of one group
} gx__PredictionsGroups;

static void gx__predictions_sort_groups(const GxPredictions *p, const gx__PredictionsGroups *s)
{
    memset(s->begin, 0, (size_t)(p->groups + 1) * sizeof *s->begin);
    for (int64_t i = 0; i < p->t->n; i++) s->begin[p->group[i] + 1]++;
    for (int64_t k = 0; k < p->groups; k++) s->begin[k + 1] += s->begin[k];
    for (int64_t i = 0; i < p->t->n; i++) s->member[s->begin[p->group[i]]++] = i;
    for (int64_t k = p->groups; k > 0; k--) s->begin[k] = s->begin[k - 1];
    s->begin[0] = 0;
}

static GxStatus gx__predictions_rank(const GxPredictions *p, const gx__PredictionsGroups *s, double value[2],
                                     GxError *err)
{
    int64_t judged = 0;
    value[0] = value[1] = 0;
    gx__predictions_sort_groups(p, s);
    for (int64_t k = 0; k < p->groups; k++) {
        const int64_t n = s->begin[k + 1] - s->begin[k], *member = s->member + s->begin[k];
        int64_t known = 0, sought = 0;
        GxRanking r;
        for (int64_t j = 0; j < n; j++) {
            s->predicted[j] = gx__predictions_relevance(p, member[j]);
            s->gain[j] = gx__predictions_gain(p, member[j]);
            known += p->known[member[j]], sought += s->gain[j] > 0;
        }
        if (known < n || sought == 0) continue;
        GX_TRY(gx_score_ranking(s->predicted, s->gain, n, GX_RANKED_FIRST, &r, err));
        value[0] += r.mrr, value[1] += r.ndcg, judged++;
    }
    for (int m = 0; m < 2; m++) value[m] = judged ? value[m] / (double)judged : NAN;
    return GX_OK;
}

static GxStatus gx__predictions_rankings(const GxPredictions *p, double value[2], GxError *err)
{
    const size_t n = (size_t)p->t->n;
    gx__PredictionsGroups s;
    s.begin = (int64_t *)malloc((size_t)(p->groups + 1) * sizeof *s.begin);
    s.member = (int64_t *)malloc(n * sizeof *s.member);
    s.predicted = (float *)malloc(n * sizeof *s.predicted);
    s.gain = (float *)malloc(n * sizeof *s.gain);
    const int is_there = s.begin && s.member && s.predicted && s.gain;
    GxStatus status = is_there ? gx__predictions_rank(p, &s, value, err)
                               : GX_FAIL(err, GX_ERR_MEMORY, "no memory to rank %ld texts", (long)p->t->n);
    free(s.begin), free(s.member), free(s.predicted), free(s.gain);
    return status;
}

int gx_predictions_metrics(GxPredictions *p, GxMetric metric[GX_PREDICTION_METRICS], GxError *err)
{
    const int n = gx_prediction_metrics(p->problem, p->outputs, p->group != NULL, metric);
    double value[GX_PREDICTION_METRICS];
    GxError unsound = GX_ZERO; // outputs that are not finite do not end the run
    GxStatus status = p->problem == GX_PROBLEM_SINGLE  ? gx__predictions_single(p, value, &unsound)
                      : p->problem == GX_PROBLEM_MULTI ? gx__predictions_several(p, value, &unsound)
                                                       : gx__predictions_regression(p, value, &unsound);
    if (status == GX_OK && n > 3) status = gx__predictions_rankings(p, value + 3, &unsound);
    if (status == GX_ERR_MEMORY) GX_FAIL(err, status, "%s", unsound.message);
    for (int m = 0; m < n && status == GX_OK; m++) metric[m].value = value[m];
    return n;
}

// ---- words ---------------------------------------------------------------------------------------------------------

// Probability of output v: softmax for one label, sigmoid for several.
static double gx__predictions_probability(const GxPredictions *p, const float *logits, int v)
{
    double most = (double)logits[0], sum = 0;
    if (p->problem == GX_PROBLEM_MULTI) return 1 / (1 + exp(-(double)logits[v]));
    for (int i = 1; i < p->outputs; i++) most = fmax(most, (double)logits[i]);
    for (int i = 0; i < p->outputs; i++) sum += exp((double)logits[i] - most);
    return exp((double)logits[v] - most) / sum;
}

static int gx__predictions_best(const GxPredictions *p, const float *logits)
{
    int best = 0;
    for (int v = 1; v < p->outputs; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

void gx_prediction_text(const GxPredictions *p, const float *logits, char *out, size_t size)
{
    size_t at = 0;
    if (p->problem == GX_PROBLEM_REGRESSION) snprintf(out, size, "%.4g", (double)logits[0]);
    if (p->problem == GX_PROBLEM_REGRESSION) return;
    const int best = gx__predictions_best(p, logits);
    snprintf(out, size, "none");
    for (int v = 0; v < p->outputs && at < size; v++) {
        if (p->problem == GX_PROBLEM_SINGLE ? v != best : !(logits[v] > 0)) continue;
        at += (size_t)snprintf(out + at, size - at, "%s%s %.3f", at ? ", " : "", p->labels->name[v],
                               gx__predictions_probability(p, logits, v));
    }
    if (at >= size) gx_text_mark_cut(out, size);
}

const char *gx_prediction_truth(const GxPredictions *p, int64_t i)
{
    const char *truth = gx_texts_field(p->t, i, p->t->file->label);
    return truth[0] ? truth : "none";
}

// ---- the file ------------------------------------------------------------------------------------------------------

static int gx__predictions_is_tsv(const char *path) { return gx_text_stem(path, ".tsv") > 0; }

static int gx__predictions_is_jsonl(const char *path) { return gx_text_stem(path, ".jsonl") > 0; }

GxStatus gx_predictions_check_jsonl(const char *path, GxError *err)
{
    if (!gx__predictions_is_jsonl(path))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--predictions %s: its name must end with .jsonl, which says the format",
                       path);
    return gx_file_check_new(path, "--predictions", err);
}

GxStatus gx_predictions_check(const char *path, const GxLabels *labels, GxError *err)
{
    if (!gx__predictions_is_tsv(path) && !gx__predictions_is_jsonl(path))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--predictions %s: its name must end with .tsv or .jsonl, which say the format", path);
    for (int v = 0; v < labels->n && gx__predictions_is_tsv(path); v++)
        if (strpbrk(labels->name[v], "\t\n\r"))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--predictions %s: a label has a tab or a line break in it, which TSV cannot hold; choose a "
                           "name that ends with .jsonl",
                           path);
    return gx_file_check_new(path, "--predictions", err);
}

static void gx__predictions_write_names(const GxPredictions *p, FILE *out)
{
    fprintf(out, p->problem == GX_PROBLEM_SINGLE ? "label\tscore" : "label");
    for (int v = 0; v < p->outputs && p->problem != GX_PROBLEM_REGRESSION; v++)
        fprintf(out, "\t%s", p->labels->name[v]);
    fprintf(out, "\n");
}

static GxStatus gx__predictions_write_tsv(const GxPredictions *p, const float *x, FILE *out, GxError *err)
{
    const int best = gx__predictions_best(p, x);
    int found = 0;
    (void)err;
    if (p->problem == GX_PROBLEM_REGRESSION) fprintf(out, "%.6g", (double)x[0]);
    if (p->problem == GX_PROBLEM_SINGLE)
        fprintf(out, "%s\t%.6g", p->labels->name[best], gx__predictions_probability(p, x, best));
    for (int v = 0; v < p->outputs && p->problem == GX_PROBLEM_MULTI; v++)
        if (x[v] > 0) fprintf(out, "%s%s", found++ ? ", " : "", p->labels->name[v]);
    for (int v = 0; v < p->outputs && p->problem != GX_PROBLEM_REGRESSION; v++)
        fprintf(out, "\t%.6g", gx__predictions_probability(p, x, v));
    fprintf(out, "\n");
    return GX_OK;
}

static GxJson *gx__predictions_number(double x) // of six digits
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", x);
    return gx_json_new_double(strtod(text, NULL));
}

static GxStatus gx__predictions_write_json(const GxPredictions *p, const float *x, FILE *out, GxError *err)
{
    GxJson *line = gx_json_new_object(), *scores = gx_json_new_object(), *list = gx_json_new_array();
    char *text = NULL;
    int64_t bytes = 0;
    const int best = gx__predictions_best(p, x);
    for (int v = 0; v < p->outputs && p->problem != GX_PROBLEM_REGRESSION; v++) {
        gx_json_set(scores, p->labels->name[v], gx__predictions_number(gx__predictions_probability(p, x, v)), err);
        if (x[v] > 0) gx_json_append(list, gx_json_new_string(p->labels->name[v]), err);
    }
    if (p->problem == GX_PROBLEM_REGRESSION) gx_json_set(line, "label", gx__predictions_number((double)x[0]), err);
    if (p->problem == GX_PROBLEM_SINGLE) {
        gx_json_set(line, "label", gx_json_new_string(p->labels->name[best]), err);
        gx_json_set(line, "score", gx__predictions_number(gx__predictions_probability(p, x, best)), err);
    }
    if (p->problem == GX_PROBLEM_MULTI) gx_json_set(line, "label", gx_json_copy(list), err);
    if (p->problem != GX_PROBLEM_REGRESSION) gx_json_set(line, "scores", gx_json_copy(scores), err);
    if (!gx_error_code(err) && gx_json_dump(line, 0, &text, &bytes, err) == GX_OK) fprintf(out, "%s\n", text);
    free(text);
    gx_json_free(line), gx_json_free(scores), gx_json_free(list);
    return gx_error_code(err);
}

static GxStatus gx__predictions_write_one(const GxPredictions *p, int64_t i, int is_tsv, FILE *out, GxError *err)
{
    const float *x = p->logits + i * p->outputs;
    for (int v = 0; v < p->outputs; v++)
        if (!p->known[i] || !isfinite(x[v]))
            return GX_FAIL(
                err, GX_ERR_ARGUMENT, "%s:%ld: the model's output for this text is %s%g, so nothing is written",
                p->t->file->records.path, (long)gx_texts_line(p->t, i), p->known[i] ? "" : "not known: ", (double)x[v]);
    return is_tsv ? gx__predictions_write_tsv(p, x, out, err) : gx__predictions_write_json(p, x, out, err);
}

GxStatus gx_predictions_write(const GxPredictions *p, const char *path, GxError *err)
{
    char *text = NULL;
    size_t bytes = 0;
    const int is_tsv = gx__predictions_is_tsv(path);
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s", path);
    GxStatus status = GX_OK;
    if (is_tsv) gx__predictions_write_names(p, out);
    for (int64_t i = 0; i < p->t->n && status == GX_OK; i++) status = gx__predictions_write_one(p, i, is_tsv, out, err);
    const int is_whole = !ferror(out);
    if ((fclose(out) != 0 || !is_whole) && status == GX_OK)
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s", path);
    if (status == GX_OK) status = gx_file_write(path, text, (int64_t)bytes, err);
    free(text);
    return status;
}
#endif
