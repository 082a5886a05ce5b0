// task/classification_labels.h: chooses the labels and the problem of the task classification, and hence the model's
// head: from the options, from the model's own head, or from the training data. The rules: classification.h.
#ifndef GX_CLASSIFICATION_LABELS_H
#define GX_CLASSIFICATION_LABELS_H
#include "../data/model_labels.h"
#include "labelled_texts.h"
#include "predictions.h"
#include "task.h"
#include "text_batch.h"
#include "text_tokenizer.h"
GX_BEGIN

typedef struct {
    // options
    char train_data[GX_PATH], validation_data[GX_PATH], tokenizer_path[GX_PATH], predict[GX_PATH], predictions[GX_PATH];
    double validation_fraction;
    char text_column[GX_FIELD_TEXT], text2_column[GX_FIELD_TEXT], label_column[GX_FIELD_TEXT],
        group_column[GX_FIELD_TEXT];
    char problem_type[GX_FIELD_TEXT], split_special_tokens[GX_FIELD_TEXT], labels_option[GX_FIELD_NAMES_TEXT];
    int pack_texts, baseline_regression, skip_bad_records;
    // identity of the data, which a checkpoint keeps
    int64_t texts_n, texts_hash, labels_hash;
    char problem_name[GX_FIELD_TEXT], tokenizer_name[GX_FIELD_TEXT];
    // set by open
    GxTokenizer tokenizer;
    GxProblem problem;
    GxLabels labels;
    int outputs;
    const char *labels_from; // for messages: where the labels come from, and how to choose others
    GxBadRecords skipped;
    GxTextFile file[2]; // of the training; of a validation, or of texts to predict
    GxTexts train, held_out;
    int has_labels; // 1: held_out has labels
    GxHeadRequest head;
    // batches
    int64_t T;
    GxDtype dtype;
    int is_causal;         // 1: the head reads the row of the last token; 0: that of the first
    int frames_texts;      // 1: the family puts texts in the tokenizer's frame
    GxTextLayout layout;   // of all batches
    GxTextPacking packing; // of the training texts
    int64_t *order;        // [held_out.n] held-out texts, column by column
    int64_t *begin;        // [columns + 1] where in `order` each column's texts begin
    int64_t columns;
    int32_t *types; // [T]
    // predictions
    GxPredictions predicted;
    void *outputs_host; // outputs of one batch, in host memory
    float *wide;        // [outputs]
    GxTaskBatch one;    // the batch of a sample
} GxClassification;

// What config.json says about the model's head; rank 0 reads it and broadcasts this.
typedef struct {
    int32_t n, problem; // n 0: the model has no head for labels
    int32_t is_named;   // not LABEL_0, LABEL_1, …
    int32_t is_typed;   // config.json says which problem it is for
    int32_t is_other;   // the model has a head for labels of tokens, under the same names
    char name[GX_LABELS_MOST][GX_LABEL_BYTES + 1];
} GxClassificationHead;

GxStatus gx_classification_ask_model(GxContext *g, GxClassificationHead *h, const GxTaskSetup *setup);
// Chooses the problem by the option, otherwise by the model's head. Without either it stays unknown, and
// gx_classification_open_files takes it from the data.
GxStatus gx_classification_choose_problem(GxClassification *c, GxClassificationHead *h, const GxTaskSetup *setup,
                                          GxError *err);
// f: the file with the data's labels; NULL: none.
GxStatus gx_classification_choose_labels(GxClassification *c, const GxClassificationHead *h, const GxTextFile *f,
                                         const GxTaskSetup *setup, GxError *err);
// With --ignore_mismatched_sizes: renews the head if it does not fit the labels of the data or of --labels.
GxStatus gx_classification_compare_head(GxClassification *c, GxClassificationHead *h, const GxTaskSetup *setup,
                                        GxError *err);
// The value of labels_from, for messages about an unknown label.
const char *gx_classification_origin(const GxClassification *c, const GxClassificationHead *h,
                                     const GxTaskSetup *setup);
// Warns if nothing says which outputs of a trained head the labels of the data belong to: their order is then a guess.
void gx_classification_warn_of_order(GxContext *g, const GxClassification *c, const GxClassificationHead *h);
void gx_classification_warn_of_pairs(GxContext *g, const GxClassification *c);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CLASSIFICATION_LABELS_IMPLEMENTED)
#define GX_CLASSIFICATION_LABELS_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../comm/comm.h"

static GxStatus gx__classification_read_head(GxClassificationHead *h, const GxTaskSetup *setup, GxError *err)
{
    GxModelLabels m;
    char plain[24];
    const GxStatus status = gx_labels_read_adapted(&m, setup->model, setup->adapter ? setup->adapter : "", err);
    if (status == GX_OK && m.is_classifier) {
        h->n = m.labels.n, h->is_typed = m.problem_type[0] != 0;
        h->problem = m.problem_type[0] ? gx_problem_find(m.problem_type)
                     : h->n == 1       ? GX_PROBLEM_REGRESSION
                                       : GX_PROBLEM_SINGLE;
    }
    if (status == GX_OK) h->is_other = m.is_token_classifier && !m.is_classifier;
    for (int32_t i = 0; i < h->n; i++) {
        snprintf(plain, sizeof plain, "LABEL_%d", i);
        snprintf(h->name[i], sizeof h->name[i], "%s", m.labels.name[i]);
        h->is_named |= strcmp(h->name[i], plain) != 0;
    }
    gx_model_labels_close(&m);
    return status;
}

GxStatus gx_classification_ask_model(GxContext *g, GxClassificationHead *h, const GxTaskSetup *setup)
{
    memset(h, 0, sizeof *h);
    if (setup->model[0]) gx__classification_read_head(h, setup, &g->error);
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, h, (int64_t)sizeof *h, GX_U8); // on a failed context this tells the other ranks
    return gx_status(g);
}

// ---- labels --------------------------------------------------------------------------------------------------------

static GxLabelKind gx__classification_kind(const GxClassification *c)
{
    return c->problem == GX_PROBLEM_MULTI ? GX_LABEL_SEVERAL : GX_LABEL_CLASS;
}

// The labels of --labels, otherwise of the data.
static GxStatus gx__classification_own_labels(const GxClassification *c, GxLabels *l, const GxTextFile *f, GxError *err)
{
    const GxLabelKind kind = gx__classification_kind(c);
    if (c->labels_option[0]) return gx_labels_set_text(l, c->labels_option, kind, "--labels", err);
    return gx_labels_make(l, &f->records, f->label, kind, err);
}

static GxStatus gx__classification_labels_of_head(GxClassification *c, const GxClassificationHead *h, GxError *err)
{
    const char *name[GX_LABELS_MOST];
    for (int32_t i = 0; i < h->n; i++) name[i] = h->name[i];
    return gx_labels_set(&c->labels, name, h->n, gx__classification_kind(c), "the model's config.json", err);
}

// 1: a label of the head has another index in l, so that the trained head's outputs would be mixed up; *i, *j: the
// first such label's index in l and in the head. Renaming labels is up to the user, and no error.
static int gx__classification_is_reordered(const GxLabels *l, const GxClassificationHead *h, int *i, int *j)
{
    for (*i = 0; *i < l->n && h->is_named; ++*i)
        for (*j = 0; *j < h->n; ++*j)
            if (*i != *j && !strcmp(l->name[*i], h->name[*j])) return 1;
    return 0;
}

static int gx__classification_head_has(const GxClassificationHead *h, const char *name)
{
    for (int32_t i = 0; i < h->n; i++)
        if (!strcmp(name, h->name[i])) return 1;
    return 0;
}

// 1: the head does not fit these labels. As many labels with other names fit: they rename the head's.
static int gx__classification_mismatches(const GxClassification *c, const GxClassificationHead *h, const GxLabels *l)
{
    int i, j;
    if (c->labels_option[0]) return l->n != h->n || gx__classification_is_reordered(l, h, &i, &j);
    if (!h->is_named && l->n == h->n) return 0;
    for (i = 0; i < l->n; i++)
        if (!gx__classification_head_has(h, l->name[i])) return 1;
    return 0;
}

static const char *gx__classification_advice(const GxTaskSetup *setup)
{
    return setup->starts_from_model ? ", or train a new head with --ignore_mismatched_sizes true" : "";
}

// Has the model's head initialized anew, as if the model had none.
static void gx__classification_renew_head(GxClassification *c, GxClassificationHead *h)
{
    memset(h, 0, sizeof *h);
    c->head.is_new = 1;
}

GxStatus gx_classification_compare_head(GxClassification *c, GxClassificationHead *h, const GxTaskSetup *setup,
                                        GxError *err)
{
    const GxTextFile *f = &c->file[0];
    GxLabels own = GX_ZERO;
    if (!setup->ignore_mismatched_sizes || !h->n || !f->records.n) return GX_OK;
    int is_other = !gx_text_file_has_numbers(f);
    if (c->problem != GX_PROBLEM_REGRESSION) {
        GX_TRY(gx__classification_own_labels(c, &own, f, err));
        is_other = gx__classification_mismatches(c, h, &own);
    }
    gx_labels_close(&own);
    if (!is_other) return GX_OK;
    gx__classification_renew_head(c, h);
    if (!gx_problem_find(c->problem_type) && c->problem != GX_PROBLEM_MULTI) c->problem = gx_text_file_problem(f);
    return GX_OK;
}

const char *gx_classification_origin(const GxClassification *c, const GxClassificationHead *h, const GxTaskSetup *setup)
{
    const int is_number = c->problem == GX_PROBLEM_REGRESSION;
    if (is_number && gx_problem_find(c->problem_type)) return "--problem_type is regression";
    if (is_number && h->n && setup->starts_from_model)
        return "the model's config.json asks for a regression (by problem_type, or by one label in id2label); "
               "--problem_type single_label_classification --ignore_mismatched_sizes true trains a new head, for "
               "labels";
    if (is_number && h->n)
        return "the model's config.json asks for a regression (by problem_type, or by one label in id2label)";
    if (is_number)
        return "the labels of the training data are numbers, at least one with a decimal point; --problem_type "
               "single_label_classification takes them as names";
    if (c->labels_option[0]) return "--labels names them";
    if (h->n && !h->is_named)
        return setup->starts_from_model ? "these stand for the head's outputs, which the model's config.json does not "
                                          "name; --labels a,b,c names them (there must be as many), and "
                                          "--ignore_mismatched_sizes true trains a new head for the data's labels"
                                        : "these stand for the head's outputs, which the model's config.json does not "
                                          "name; --labels a,b,c names them (as many, in the order of the outputs)";
    if (h->n && setup->starts_from_model)
        return "these are the head's (id2label in the model's config.json); --labels a,b,c renames them (there must be "
               "as many), and --ignore_mismatched_sizes true trains a new head for the data's labels";
    if (h->n) return "these are the head's (id2label in the model's config.json)";
    return "these are those of the training data; --labels a,b,c names others";
}

GxStatus gx_classification_choose_labels(GxClassification *c, const GxClassificationHead *h, const GxTextFile *f,
                                         const GxTaskSetup *setup, GxError *err)
{
    const int has_file = f && f->label >= 0;
    int i, j;
    if (c->labels_option[0] || (has_file && (!h->n || !h->is_named)))
        GX_TRY(gx__classification_own_labels(c, &c->labels, f, err));
    if (h->n && !c->labels_option[0] && !h->is_named && c->labels.n != h->n) gx_labels_close(&c->labels);
    if (h->n && !c->labels.n) GX_TRY(gx__classification_labels_of_head(c, h, err));
    c->outputs = c->labels.n ? c->labels.n : 2; // a dry run without data assumes two
    if (h->n && h->n != c->outputs)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--labels names %d, but the model's head has %d labels (%.60s%s%.60s%s): name as many, or leave "
                       "--labels out%s",
                       c->outputs, h->n, h->name[0], h->n > 1 ? ", " : "", h->n > 1 ? h->name[1] : "",
                       h->n > 2 ? ", ..." : "", gx__classification_advice(setup));
    if (h->n && c->labels_option[0] && gx__classification_is_reordered(&c->labels, h, &i, &j))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--labels has \"%.60s\" as number %d, but the model's head has it as number %d: leave --labels "
                       "out, or name them in the head's order (id2label in its config.json)%s",
                       h->name[j], i, j, gx__classification_advice(setup));
    if (c->problem == GX_PROBLEM_SINGLE && c->outputs == 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "there is only one label, \"%s\", so there is nothing to choose from; add texts with other "
                       "labels, or name those with --labels",
                       c->labels.name[0]);
    return GX_OK;
}

void gx_classification_warn_of_order(GxContext *g, const GxClassification *c, const GxClassificationHead *h)
{
    const GxLabels *l = &c->labels;
    char names[400] = "", plain[24];
    int others = 0;
    if (g->rank != 0 || !h->n || h->is_named || c->labels_option[0]) return;
    for (int i = 0; i < l->n; i++) {
        const size_t at = strlen(names);
        snprintf(plain, sizeof plain, "LABEL_%d", i); // the number after the last _ is a name, too
        others += strcmp(l->name[i], plain) && strcmp(l->name[i], strrchr(plain, '_') + 1);
        snprintf(names + at, sizeof names - at, "%sLABEL_%d is \"%s\"", i ? ", " : "", i, l->name[i]);
    }
    if (!others) return;
    if (strlen(names) == sizeof names - 1) gx_text_mark_cut(names, sizeof names);
    gx_log(
        &g->log, GX_LOG_WARNING,
        "the model's config.json does not name its head's %d outputs: the sorted labels of the data are taken for them "
        "in this order, which is a guess (%s); to say which is which, give --labels a,b,c in the order of the outputs",
        h->n, names);
}

void gx_classification_warn_of_pairs(GxContext *g, const GxClassification *c)
{
    for (int k = 0; k < 2 && g->rank == 0; k++)
        if (c->file[k].has_unread_pair && c->text2_column[0])
            gx_log(&g->log, GX_LOG_WARNING,
                   "%s: its column \"text_pair\" is not read; if it is the second text of a pair, say --text2_column "
                   "text_pair, otherwise --text2_column ''",
                   c->file[k].records.path);
}

GxStatus gx_classification_choose_problem(GxClassification *c, GxClassificationHead *h, const GxTaskSetup *setup,
                                          GxError *err)
{
    c->problem = gx_problem_find(c->problem_type);
    if (!c->problem) c->problem = (GxProblem)h->problem;
    const int is_other_kind = (c->problem == GX_PROBLEM_REGRESSION) != (h->problem == GX_PROBLEM_REGRESSION),
              is_other = h->is_typed && (int32_t)c->problem != h->problem;
    if (!h->n || (!is_other_kind && !is_other)) return GX_OK;
    if (!setup->ignore_mismatched_sizes)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--problem_type is %s, but the model's head is for %s: leave it out%s",
                       gx_problem_name(c->problem), gx_problem_name((GxProblem)h->problem),
                       gx__classification_advice(setup));
    gx__classification_renew_head(c, h);
    return GX_OK;
}
#endif
