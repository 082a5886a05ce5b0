// task/classification.h: classification and regression of texts, or of pairs of texts: one label of several, several
// labels at once, or a number. The head reads the row of [CLS] (BERT) or of the last token (LLaMA).
//
//     ./train_bert --task classification --model bert --train_data train.tsv --validation_data validation.tsv
//     ./train_bert --task classification --model out/checkpoint-500 --predict new.tsv --predictions new.labels.jsonl
//
// Files: data/records.h, with columns text, text2 (optional) and label. Without --validation_data a hash of each record
// decides whether it is held out (labelled_texts.h).
//
// The problem is the first of these that applies:
//     - --problem_type
//     - the problem_type of the model's config.json
//     - regression, if all labels are numbers and one has a decimal point (0.0, 2.5)
//     - one label of several
// Several labels per text ("sport, politics") are never guessed: they need --problem_type multi_label_classification.
//
// The labels are the first of these that applies:
//     - --labels a,b,c
//     - those of the model's head in config.json, unless they are LABEL_0, LABEL_1, … and the data have as many labels
//     - the distinct labels of the training data, sorted
// A label outside of this list is an error, one that never occurs in training a warning. A model with a head for other
// labels, or for another problem, is an error, too; with --ignore_mismatched_sizes true the head is initialized anew.
//
// Several texts share a column of the batch, without attention between them (text_batch.h), so a batch of 8 samples of
// 128 tokens has 8 texts or more; --pack_texts false gives each text a column of its own. The loss is a mean over all
// texts of a window (or over texts * outputs, as in transformers). In a validation the outputs of all ranks are
// gathered, so metrics (predictions.h) do not depend on how texts are distributed over ranks. With --max_eval_samples a
// validation takes a random part of the texts (with --group_column: of the groups).
//
// Without a tokenizer, or a model that has one, tokens are bytes. A LLaMA reads a text without [CLS] and [SEP] if its
// tokenizer has neither; two texts are then separated by a newline.
//
// Each machine reads its own copy of the files, which must be identical: ranks compare hashes of them.
#ifndef GX_CLASSIFICATION_H
#define GX_CLASSIFICATION_H
#include "classification_labels.h"
GX_BEGIN

extern const GxTask gx_classification; // its self is a GxClassification

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CLASSIFICATION_IMPLEMENTED)
#define GX_CLASSIFICATION_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../base/dtype.h"
#include "../comm/comm.h"
#include "../ops/memory.h"
#include "bag_of_words.h"
#include "classification_texts.h"

#define GX__CLASSIFICATION_AT(field) offsetof(GxClassification, field)
static const GxField gx__classification_options[] = {
    {"train_data", GX_FIELD_PATH, GX__CLASSIFICATION_AT(train_data), "data/bert/pos/train.tsv",
     "file of labeled texts: .csv, .tsv or .jsonl (`make data-bert` makes the default file)", NULL},
    {"validation_data", GX_FIELD_PATH, GX__CLASSIFICATION_AT(validation_data), "",
     "file of labeled texts held out for validation; empty: a part of train_data", NULL},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__CLASSIFICATION_AT(validation_fraction), "0.05",
     "fraction of train_data held out for validation if there is no validation_data; 0: none", "0..0.9"},
    {"text_column", GX_FIELD_STRING, GX__CLASSIFICATION_AT(text_column), "text", "name of the column with the texts",
     NULL},
    {"text2_column", GX_FIELD_STRING, GX__CLASSIFICATION_AT(text2_column), "text2",
     "name of the column with the second text of a pair; if the file has no column text2, texts are single", NULL},
    {"label_column", GX_FIELD_STRING, GX__CLASSIFICATION_AT(label_column), "label",
     "name of the column with the labels", NULL},
    {"group_column", GX_FIELD_STRING, GX__CLASSIFICATION_AT(group_column), "",
     "name of the column that says which texts are candidates for the same answer, to be ranked against each other",
     NULL},
    GX_SKIP_BAD_RECORDS(GX__CLASSIFICATION_AT(skip_bad_records)),
    {"problem_type", GX_FIELD_STRING, GX__CLASSIFICATION_AT(problem_type), "auto",
     "auto: the model's own, or as the labels suggest: regression for numbers with a decimal point, otherwise "
     "classification",
     "auto|" GX_PROBLEM_NAMES},
    {"labels", GX_FIELD_NAMES, GX__CLASSIFICATION_AT(labels_option), "",
     "labels in the order of the head's outputs: a,b,c (in a --config file also a list); empty: the model's, or those "
     "of the training data, sorted",
     NULL},
    {"tokenizer", GX_FIELD_PATH, GX__CLASSIFICATION_AT(tokenizer_path), "",
     "folder with a tokenizer.json or vocab.txt; empty: the model's tokenizer", NULL},
    GX_SPLIT_SPECIAL_TOKENS(GX__CLASSIFICATION_AT(split_special_tokens)),
    {"pack_texts", GX_FIELD_BOOL, GX__CLASSIFICATION_AT(pack_texts), "true",
     "put several texts into a sample; they do not attend to each other", NULL},
    {"predict", GX_FIELD_PATH, GX__CLASSIFICATION_AT(predict), "",
     "file of texts whose labels the model of --resume or --model predicts, instead of training; the file needs no "
     "labels",
     NULL},
    {"predictions", GX_FIELD_PATH, GX__CLASSIFICATION_AT(predictions), "predictions.jsonl",
     "new file for the labels that --predict assigns, .jsonl or .tsv", NULL},
    {"baseline_regression", GX_FIELD_BOOL, GX__CLASSIFICATION_AT(baseline_regression), "false",
     "also fit a logistic regression on tokens at the start, as a baseline", NULL},
};
static const char *const gx__classification_own[] = {"train_data", "validation_data", "tokenizer",
                                                     "predict",    "predictions",     NULL};
static const GxField gx__classification_identity[] = {
    {"problem_type", GX_FIELD_STRING, GX__CLASSIFICATION_AT(problem_name), NULL, "what is learned", NULL},
    {"labels_hash", GX_FIELD_HASH, GX__CLASSIFICATION_AT(labels_hash), NULL, "of the labels in their order", NULL},
    {"texts", GX_FIELD_INT, GX__CLASSIFICATION_AT(texts_n), NULL, "that are trained on", "0.."},
    {"texts_hash", GX_FIELD_HASH, GX__CLASSIFICATION_AT(texts_hash), NULL, "of their tokens and labels", NULL},
    {"tokenizer", GX_FIELD_STRING, GX__CLASSIFICATION_AT(tokenizer_name), NULL, "which ids the texts have", NULL},
};

// ---- opening -------------------------------------------------------------------------------------------------------

// At least one token of each text must fit between [CLS] and [SEP].
static GxStatus gx__classification_check_room(const GxClassification *c, const GxTaskSetup *setup, GxError *err)
{
    int pairs = 0;
    for (int k = 0; k < 2; k++) pairs |= c->file[k].records.n && c->file[k].text2 >= 0;
    const int64_t texts = pairs ? 2 : 1;
    const int64_t least = setup->frames_texts ? gx_tokenizer_frame_tokens(&c->tokenizer, (int)texts) + texts : 1;
    if (setup->seq_len >= least) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; with %s around it %s needs at least %ld, and more to say anything",
                   gx_task_length_name(setup), (long)setup->seq_len, gx_text_frame_name(&c->tokenizer),
                   pairs ? "a pair of texts" : "a text", (long)least);
}

static GxStatus gx__classification_decide(GxContext *g, GxClassification *c, GxClassificationHead *h,
                                          const GxTaskSetup *setup)
{
    GxError *err = &g->error;
    GX_TRY(gx_classification_ask_model(g, h, setup));
    c->head.is_new = h->is_other;
    GX_TRY(gx_classification_choose_problem(c, h, setup, err));
    GX_TRY(gx_classification_open_files(g, c, h, setup));
    gx_classification_warn_of_pairs(g, c);
    GX_TRY(gx_classification_compare_head(c, h, setup, err));
    if (!c->problem) c->problem = GX_PROBLEM_SINGLE; // assumed by a dry run without data
    c->outputs = 1;
    c->labels_from = gx_classification_origin(c, h, setup);
    if (c->problem == GX_PROBLEM_REGRESSION && c->labels_option[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--labels is for choosing among labels, but here a number is to be predicted: %s",
                       c->labels_from);
    if (c->problem != GX_PROBLEM_REGRESSION)
        GX_TRY(gx_classification_choose_labels(c, h,
                                               c->file[0].records.n   ? &c->file[0]
                                               : c->file[1].records.n ? &c->file[1]
                                                                      : NULL,
                                               setup, err));
    if (c->problem != GX_PROBLEM_REGRESSION) gx_classification_warn_of_order(g, c, h);
    GX_TRY(gx__classification_check_room(c, setup, err));
    c->labels_hash = gx_classification_hash_labels(c);
    snprintf(c->problem_name, sizeof c->problem_name, "%s", gx_problem_name(c->problem));
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    c->head.kind = GX_HEAD_LABELS, c->head.labels = c->outputs, c->head.label_name = c->labels.name;
    c->head.loss = c->problem == GX_PROBLEM_SINGLE  ? GX_CROSS_ENTROPY
                   : c->problem == GX_PROBLEM_MULTI ? GX_BINARY_CROSS_ENTROPY
                                                    : GX_SQUARED_ERROR;
    return gx_classification_agree(g, c);
}

static GxStatus gx__classification_open_layout(GxClassification *c, GxError *err)
{
    const int32_t pad = c->tokenizer.role[GX_TOKEN_PAD];
    c->layout.pad = pad < 0 ? 0 : pad;
    c->layout.targets = 1;
    c->layout.target[0].most = gx_classification_most(c);
    c->layout.target[0].outputs = c->problem == GX_PROBLEM_SINGLE ? 0 : c->outputs;
    if (c->predict[0] && !c->has_labels) c->layout.target[0].outputs = GX_TEXT_ROWS_ALONE;
    c->types = (int32_t *)malloc((size_t)c->T * sizeof *c->types);
    c->wide = (float *)malloc((size_t)c->outputs * sizeof *c->wide);
    return c->types && c->wide ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld tokens", (long)c->T);
}

static GxStatus gx__classification_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxClassification *c = (GxClassification *)self;
    c->T = setup->seq_len, c->dtype = setup->dtype, c->frames_texts = setup->frames_texts;
    GX_TRY(gx_text_open_any_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    gx_text_split_special(&c->tokenizer, c->split_special_tokens);
    GxClassificationHead *h = (GxClassificationHead *)malloc(sizeof *h);
    GxStatus status = h ? gx__classification_decide(g, c, h, setup)
                        : GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a list of labels");
    free(h);
    if (status == GX_OK && c->predict[0] && g->rank == 0 && !setup->is_dry)
        status = gx_predictions_check(c->predictions, &c->labels, &g->error);
    if (status == GX_OK && !setup->is_dry) status = gx_classification_open_texts(g, c, setup);
    if (status == GX_OK) gx_bad_records_warn(&c->skipped, g->rank ? NULL : &g->log);
    if (status == GX_OK && c->packing.texts) setup->epoch_samples = gx_text_packing_columns(&c->packing, setup->seed);
    return status == GX_OK ? gx__classification_open_layout(c, &g->error) : status;
}

static void gx__classification_close(void *self)
{
    GxClassification *c = (GxClassification *)self;
    gx_predictions_close(&c->predicted);
    gx_text_packing_close(&c->packing);
    gx_texts_close(&c->train), gx_texts_close(&c->held_out);
    gx_text_file_close(&c->file[0]), gx_text_file_close(&c->file[1]);
    gx_labels_close(&c->labels);
    gx_tokenizer_close(&c->tokenizer);
    free(c->order), free(c->begin), free(c->types), free(c->wide), free(c->outputs_host);
}

static const GxHeadRequest *gx__classification_head(const void *self)
{
    return &((const GxClassification *)self)->head;
}

static void gx__classification_describe_labels(const GxClassification *c, FILE *out)
{
    if (c->problem == GX_PROBLEM_REGRESSION) fprintf(out, "a number");
    else
        fprintf(out, "%s%d label%s (", c->problem == GX_PROBLEM_MULTI ? "any of " : "one of ", c->outputs,
                gx_text_s(c->outputs));
    for (int l = 0; l < c->labels.n && l < 10; l++)
        fprintf(out, "%s%s%s%s", l ? ", " : "", gx_label_mark(c->labels.name[l]), c->labels.name[l],
                gx_label_mark(c->labels.name[l]));
    if (c->labels.n > 10) fprintf(out, ", ...");
    if (c->labels.n) fprintf(out, ")");
}

static void gx__classification_describe(const void *self, FILE *out)
{
    const GxClassification *c = (const GxClassification *)self;
    const int64_t cut = c->train.cut + c->held_out.cut, all = c->train.n + c->held_out.n;
    fprintf(out, "data: ");
    if (c->train.n) fprintf(out, "%s, %ld text%s to train on", c->train_data, (long)c->train.n, gx_text_s(c->train.n));
    if (c->train.n && c->held_out.n) fprintf(out, "; ");
    if (c->predict[0])
        fprintf(out, "%s, %ld text%s to predict", c->predict, (long)c->held_out.n, gx_text_s(c->held_out.n));
    else if (c->held_out.n && c->file[1].records.n)
        fprintf(out, "%s, %ld held out", c->validation_data, (long)c->held_out.n);
    else if (c->held_out.n) fprintf(out, "%ld held out", (long)c->held_out.n);
    fprintf(out, "; ");
    gx__classification_describe_labels(c, out);
    fprintf(out, "; tokens: %s\n", c->tokenizer_name);
    if (cut)
        fprintf(out,
                "  %ld of %ld text%s %s more than %ld tokens, the longest %ld, and %s cut: a larger --seq_len keeps "
                "%s whole\n",
                (long)cut, (long)all, gx_text_s(all), cut == 1 ? "has" : "have", (long)c->T,
                (long)gx_max(c->train.longest, c->held_out.longest), cut == 1 ? "is" : "are", cut == 1 ? "it" : "them");
}

static GxStatus gx__classification_write(const void *self, const char *folder, GxError *err)
{
    return gx_tokenizer_write(&((const GxClassification *)self)->tokenizer, folder, err);
}

// ---- batches -------------------------------------------------------------------------------------------------------

static int64_t gx__classification_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const GxClassification *c = (const GxClassification *)self;
    return gx_text_layout_outputs(&c->layout, b, block, host_copy, c->outputs, c->dtype);
}

static int64_t gx__classification_row(const GxClassification *c, const GxTexts *t, int64_t i) // the head's, in its text
{
    return c->is_causal ? t->length[i] - 1 : 0;
}

// Writes text i and its label into the column, from position `at` on.
static void gx__classification_put(const GxClassification *c, GxTextWriter *w, int64_t column, int64_t at,
                                   const GxTexts *t, int64_t i)
{
    const int64_t row = at + gx__classification_row(c, t, i), outputs = c->layout.target[0].outputs;
    for (int32_t k = 0; k < t->length[i]; k++) c->types[k] = k >= t->second[i];
    gx_text_put(w, column, at, t->ids[i], c->types, t->length[i]);
    for (int64_t v = 0; v < outputs; v++) c->wide[v] = t->number ? t->number[i] : (float)t->has[i * outputs + v];
    if (outputs == 0) gx_text_label(w, 0, column, row, t->label[i]);
    else gx_text_values(w, 0, column, row, outputs > 0 ? c->wide : NULL);
}

static void gx__classification_put_column(const GxClassification *c, GxTextWriter *w, int64_t column, const GxTexts *t,
                                          const int64_t *text, int64_t n)
{
    for (int64_t k = 0, at = 0; k < n; k++) {
        gx__classification_put(c, w, column, at, t, text[k]);
        at += t->length[text[k]];
    }
}

static GxStatus gx__classification_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed,
                                        GxError *err)
{
    GxClassification *c = (GxClassification *)self;
    GxTextWriter w;
    (void)g, (void)err;
    gx_text_begin(&w, &c->layout, b, host_copy);
    for (int64_t column = 0; column < b->B; column++) {
        const int64_t *text;
        int64_t n;
        gx_text_packing_column(&c->packing, seed, b->sample + column, &text, &n);
        gx__classification_put_column(c, &w, column, &c->train, text, n);
    }
    gx_text_finish(&w);
    return GX_OK;
}

static int64_t gx__classification_held_out(const void *self) { return ((const GxClassification *)self)->columns; }

static GxStatus gx__classification_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                                 GxError *err)
{
    const GxClassification *c = (const GxClassification *)self;
    GxTextWriter w;
    (void)g, (void)err;
    gx_text_begin(&w, &c->layout, b, host_copy);
    for (int64_t column = 0; column < b->B && b->sample + column < samples; column++) {
        const int64_t *begin = c->begin + b->sample + column;
        gx__classification_put_column(c, &w, column, &c->held_out, c->order + begin[0], begin[1] - begin[0]);
    }
    gx_text_finish(&w);
    return GX_OK;
}

// The loss is a mean over texts, or over texts * outputs.
static void gx__classification_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const GxClassification *c = (const GxClassification *)self;
    count[0] += b->target[0].n * (c->problem == GX_PROBLEM_SINGLE ? 1 : c->outputs);
}

// ---- metrics -------------------------------------------------------------------------------------------------------

static void gx__classification_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxClassification *c = (GxClassification *)self;
    gx_text_fit_model(g, &c->layout, &c->tokenizer, m, c->file[0].text2 >= 0 || c->file[1].text2 >= 0 ? 2 : 1);
    for (int u = 0; u < m->units; u++)
        for (int k = 0; k < gx_unit_spec(m, u)->n_pairs; k++)
            c->is_causal |= gx_unit_spec(m, u)->pair[k].core.is_causal;
    gx_task_batch_allocate(g, &c->one, T, 1, gx__classification_layout, c);
    c->one.b.target[0].labels = c->one.b.target[0].labels_host = NULL, c->one.b.target[0].values = NULL; // only results
}

static const float *gx__classification_results(GxClassification *c, int64_t i) // of row i, as fp32 [outputs]
{
    return gx_text_output(c->outputs_host, c->dtype, i, c->outputs, c->wide);
}

static void gx__classification_see(GxContext *g, void *self, const GxBatch *b)
{
    GxClassification *c = (GxClassification *)self;
    const GxTexts *t = &c->held_out;
    if (!b) gx_predictions_begin(&c->predicted);
    if (!b || gx_failed(g) || !gx_has_head(g)) return;
    gx_text_fetch(g, &c->outputs_host, &b->target[0]);
    for (int64_t column = 0; column < b->B && b->sample + column < c->columns && !gx_failed(g); column++) {
        const int64_t *begin = c->begin + b->sample + column;
        for (int64_t k = begin[0], at = 0; k < begin[1]; at += t->length[c->order[k++]]) {
            const int64_t row = (at + gx__classification_row(c, t, c->order[k])) * b->B + column,
                          i = gx_text_find_row(&b->target[0], row);
            if (i >= 0) gx_predictions_put(&c->predicted, c->order[k], gx__classification_results(c, i));
        }
    }
}

static int gx__classification_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    GxClassification *c = (GxClassification *)self;
    const GxMetric loss = {"loss", "loss %.4f", gx_losses_mean(losses, 0), -1};
    metric[0] = loss;
    if (!losses) return 1 + gx_prediction_metrics(c->problem, c->outputs, c->group_column[0] != 0, metric + 1);
    gx_predictions_gather(g, &c->predicted);
    if (gx_failed(g) || !c->has_labels) return 0;
    return 1 + gx_predictions_metrics(&c->predicted, metric + 1, &g->error);
}

static const char *gx__classification_lacks(const void *self, const char *name)
{
    static const char *const of[] = {"is of --problem_type single_label_classification",
                                     "is of --problem_type multi_label_classification",
                                     "is of --problem_type regression"};
    const GxClassification *c = (const GxClassification *)self;
    GxMetric metric[GX_PREDICTION_METRICS];
    for (int p = 0; p < 3; p++) {
        const int n = gx_prediction_metrics((GxProblem)(p + 1), 2, 1, metric);
        for (int i = 0; i < n; i++) {
            if (strcmp(metric[i].name, name)) continue;
            if (i < 3) return of[p];
            return c->group_column[0] ? "needs two labels of which one is chosen, or a number to predict"
                                      : "needs --group_column, the column by which texts are candidates for one answer";
        }
    }
    return NULL;
}

static int gx__classification_confusion(const void *self, GxConfusion *confusion)
{
    const GxClassification *c = (const GxClassification *)self;
    confusion->count = c->predicted.count, confusion->classes = c->outputs, confusion->name = c->labels.name;
    return c->problem == GX_PROBLEM_SINGLE && c->predicted.is_judged;
}

// The metric of a constant prediction: the label that is most frequent in training; with several labels, the more
// frequent decision on each; for numbers, the mean.
static double gx__classification_majority(const GxClassification *c)
{
    const GxTexts *t = &c->train, *h = &c->held_out;
    double mean = 0, sum = 0;
    int best = 0;
    for (int l = 1; l < c->outputs; l++)
        if (t->count[l] > t->count[best]) best = l;
    for (int64_t i = 0; i < t->n && t->number; i++) mean += (double)t->number[i] / (double)t->n;
    for (int64_t i = 0; i < h->n; i++) {
        int right = 1;
        for (int l = 0; l < c->outputs && h->has; l++) right &= h->has[i * c->outputs + l] == (2 * t->count[l] > t->n);
        if (h->number) sum += ((double)h->number[i] - mean) * ((double)h->number[i] - mean);
        else sum += h->label ? h->label[i] == best : right;
    }
    return sum / (double)h->n;
}

static GxStatus gx__classification_baseline(const void *self, GxMetric *metric, GxError *err)
{
    static const char *const says[] = {"always the most frequent label: accuracy %.4f",
                                       "always the most frequent labels: accuracy %.4f",
                                       "always the mean of the training data: mse %.4f"};
    const GxClassification *c = (const GxClassification *)self;
    const int is_number = c->problem == GX_PROBLEM_REGRESSION;
    if (!c->train.n || !c->held_out.n) return GX_OK;
    metric[0].name = is_number ? "mean_mse" : "majority_accuracy", metric[0].format = says[c->problem - 1];
    metric[0].value = gx__classification_majority(c);
    if (!c->baseline_regression || c->problem != GX_PROBLEM_SINGLE) return GX_OK;
    metric[1].name = "regression_accuracy", metric[1].format = "a logistic regression on tokens: accuracy %.4f";
    return gx_bag_of_words(&c->train, &c->held_out, c->tokenizer.vocab_size, c->outputs, &metric[1].value, err);
}

// ---- the sample ----------------------------------------------------------------------------------------------------

enum { GX__CLASSIFICATION_SAMPLES = 3, GX__CLASSIFICATION_QUOTE = 160 }; // texts; bytes of one

static void gx__classification_tell(GxClassification *c, int64_t i, FILE *out)
{
    char said[200], text[GX__CLASSIFICATION_QUOTE], text2[GX__CLASSIFICATION_QUOTE];
    const GxTexts *t = &c->held_out;
    gx_prediction_text(&c->predicted, gx__classification_results(c, 0), said, sizeof said);
    gx_text_cut(gx_texts_field(t, i, t->file->text), text, sizeof text);
    gx_text_cut(gx_texts_field(t, i, t->file->text2), text2, sizeof text2);
    fprintf(out, "%s%s%s\n  predicted %s", text, text2[0] ? " | " : "", text2, said);
    if (c->has_labels) fprintf(out, "; it is %s", gx_prediction_truth(&c->predicted, i));
    fprintf(out, "\n");
}

// Runs text i alone in a batch, on every rank. i < 0: an empty batch, for a plan.
static void gx__classification_run_one(GxContext *g, GxClassification *c, const GxForward *forward, int64_t i)
{
    GxTextWriter w;
    GxBatch *b = &c->one.b;
    if (i >= 0) {
        GxTextLayout rows = c->layout;
        rows.target[0].outputs = GX_TEXT_ROWS_ALONE;
        gx_text_begin(&w, &rows, b, c->one.host);
        gx_text_put(&w, 0, 0, c->held_out.ids[i], NULL, c->held_out.length[i]);
        for (int32_t k = c->held_out.second[i]; k < c->held_out.length[i]; k++) w.to.types[k] = 1;
        gx_text_values(&w, 0, 0, gx__classification_row(c, &c->held_out, i), NULL);
        gx_text_finish(&w);
        gx_to_device(g, c->one.block, c->one.host, c->one.bytes);
    }
    forward->run(g, forward->user, b, NULL);
    if (i >= 0) gx_text_fetch(g, &c->outputs_host, &b->target[0]);
}

static char *gx__classification_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxClassification *c = (GxClassification *)self;
    char *text = NULL;
    size_t bytes;
    const int64_t n = gx_min(GX__CLASSIFICATION_SAMPLES, c->held_out.n);
    if (!g->device->computes) {
        gx__classification_run_one(g, c, forward, -1);
        if (c->columns) gx_predictions_gather(g, &c->predicted); // takes the memory that `metrics` needs
        return NULL;
    }
    if (!n) return NULL;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    for (int64_t k = 0; k < n && !gx_failed(g) && !(forward->stop && forward->stop(forward->stop_user)); k++) {
        const int64_t i = gx_permute(seed, 0, c->held_out.n, k);
        gx__classification_run_one(g, c, forward, i);
        if (!gx_failed(g)) gx__classification_tell(c, i, out);
    }
    if (out && fclose(out) != 0) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    if (!gx_failed(g)) return text;
    free(text);
    return NULL;
}

// ---- predictions ---------------------------------------------------------------------------------------------------

static const char *gx__classification_predicts(const void *self)
{
    return ((const GxClassification *)self)->predict[0] ? "predict" : NULL;
}

static const char *gx__classification_predict(GxContext *g, void *self)
{
    const GxClassification *c = (const GxClassification *)self;
    gx_predictions_write(&c->predicted, c->predictions, &g->error);
    return c->predictions;
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_classification = {
    "classification", // name
    {
        // options
        sizeof(GxClassification),              // size
        GX_FIELDS(gx__classification_options), // fields, n_fields
        gx__classification_own,                // own
        NULL,                                  // defaults
        NULL,                                  // reading
    },
    {
        // loss
        1,        // n
        NULL,     // names
        "labels", // counted
        NULL,     // unit
        NULL,     // best_metric
    },
    {
        // data
        gx__classification_open,     // open
        gx__classification_close,    // close
        gx__classification_head,     // head
        gx__classification_describe, // describe
        NULL,                        // show
        NULL,                        // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__classification_identity), // identity, n_identity
        // elsewhere
        "on other texts or labels, or with another tokenizer or validation_fraction",
        gx__classification_write, // write
        NULL,                     // changed
    },
    {
        // batch
        gx__classification_allocate,      // allocate
        gx__classification_layout,        // layout
        gx__classification_fill,          // fill
        gx__classification_counts,        // counts
        gx__classification_held_out,      // held_out
        gx__classification_fill_held_out, // fill_held_out
        gx__classification_see,           // see
        NULL,                             // stands_alone
    },
    {
        // metrics
        gx__classification_metrics,   // compute
        NULL,                         // progress
        gx__classification_baseline,  // baseline
        gx__classification_lacks,     // lacks
        gx__classification_confusion, // confusion
    },
    {
        // output
        gx__classification_sample,   // sample
        gx__classification_predicts, // predicts
        gx__classification_predict,  // predict
    },
};
#endif
