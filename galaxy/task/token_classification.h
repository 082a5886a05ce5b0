// task/token_classification.h: a label for each word of a sentence, as for named entities and parts of speech.
//
//     ./train_bert --task token_classification --model bert --train_data train.jsonl --validation_data validation.jsonl
//     ./train_bert --task token_classification --model out/checkpoint-500 --predict new.jsonl
//
// Files: JSON lines with words and their labels, or CoNLL's format (data/tagged_words.h). Without --validation_data a
// hash of a sentence's words decides whether it is held out. What is computed is what transformers' run_ner computes: a
// word's first token has its label (labelled_words.h), the loss is a mean over these tokens of a window.
//
// The labels are the first of these that applies:
//     - --labels a,b,c
//     - those of the model's head in config.json
//     - the distinct labels of the training data, sorted
// Numbers in the data are those of this list. A label outside of it is an error. A model with a head for other labels is
// an error, too; with --ignore_mismatched_sizes true the head is initialized anew.
//
// Metrics, over all ranks: precision, recall and f1 of entities (entities.h), and the accuracy of single labels. What was
// cut off, since a sentence has more than seq_len tokens, is not judged, as in run_ner.
//
// Predictions: a line per sentence, {"tokens": ["Ada", "slept"], "labels": ["B-PER", "O"]}; null for a word that was cut
// off, or of which the tokenizer leaves nothing.
//
// Several sentences share a column of the batch, without attention between them (text_batch.h); --pack_texts false gives
// each a column of its own. Each machine reads its own copy of the files, which must be identical: ranks compare hashes.
#ifndef GX_TOKEN_CLASSIFICATION_H
#define GX_TOKEN_CLASSIFICATION_H
#include "entities.h"
#include "labelled_words.h"
#include "task.h"
#include "text_batch.h"
#include "text_tokenizer.h"
#include "token_labels.h"
GX_BEGIN

typedef struct {
    // options
    char train_data[GX_PATH], validation_data[GX_PATH], tokenizer_path[GX_PATH], predict[GX_PATH], predictions[GX_PATH];
    char text_column[GX_FIELD_TEXT], label_column[GX_FIELD_TEXT], split_special_tokens[GX_FIELD_TEXT],
        labels_option[GX_FIELD_NAMES_TEXT];
    double validation_fraction;
    int label_all_tokens, pack_texts, skip_bad_records;
    // identity of the data, which a checkpoint keeps
    int64_t sentences, sentences_hash, labels_hash;
    char tokenizer_name[GX_FIELD_TEXT];
    // set by open
    GxTokenizer tokenizer;
    GxTokenLabels chosen;
    int outputs;
    GxEntityTags tags;
    GxBadRecords skipped;
    GxTaggedWords file[2]; // of the training; of a validation, or to predict
    GxLabelledWords train, held_out;
    GxHeadRequest head;
    // batches
    int64_t T;
    GxDtype dtype;
    GxTextLayout layout;
    GxTextPacking packing, held_packing;
    int64_t columns; // of the held-out sentences
    // of a validation
    int32_t *predicted; // [rows of held_out] 1 + the label; 0: not known; outputs + 1: its logits are not finite
    int64_t *confusion; // [outputs][outputs]
    int is_judged;      // 1: confusion is valid
    void *outputs_host; // outputs of one batch, in host memory
    float *wide;        // [outputs]
    GxTaskBatch one;    // the batch of a sample
} GxTokenClassification;

extern const GxTask gx_token_classification; // its self is a GxTokenClassification

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKEN_CLASSIFICATION_IMPLEMENTED)
#define GX_TOKEN_CLASSIFICATION_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../comm/comm.h"
#include "../ops/loss.h"
#include "../ops/memory.h"
#include "../parallel/stage_messages.h"
#include "predictions.h"

enum { GX__TOKEN_CLASSIFICATION_HELD_OUT_SEED = 20030527 }; // of the order of held-out sentences

#define GX__TOKEN_CLASSIFICATION_AT(field) offsetof(GxTokenClassification, field)
static const GxField gx__token_classification_options[] = {
    {"train_data", GX_FIELD_PATH, GX__TOKEN_CLASSIFICATION_AT(train_data), "",
     "file of sentences with a label for each word: .jsonl with lists of words and labels, or CoNLL's format with a "
     "word and its label in each line",
     NULL},
    {"validation_data", GX_FIELD_PATH, GX__TOKEN_CLASSIFICATION_AT(validation_data), "",
     "file of sentences held out for validation; empty: a part of train_data", NULL},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__TOKEN_CLASSIFICATION_AT(validation_fraction), "0.05",
     "fraction of train_data held out for validation if there is no validation_data; 0: none", "0..0.9"},
    {"text_column", GX_FIELD_STRING, GX__TOKEN_CLASSIFICATION_AT(text_column), "tokens",
     "in .jsonl, name of the member with the list of words", NULL},
    {"label_column", GX_FIELD_STRING, GX__TOKEN_CLASSIFICATION_AT(label_column), "",
     "in .jsonl, name of the member with the list of labels; empty: the first of ner_tags, labels and tags that "
     "there is",
     NULL},
    {"label_all_tokens", GX_FIELD_BOOL, GX__TOKEN_CLASSIFICATION_AT(label_all_tokens), "false",
     "give all tokens of a word its label, with I- in place of B-; false: only the first", NULL},
    GX_SKIP_BAD_RECORDS(GX__TOKEN_CLASSIFICATION_AT(skip_bad_records)),
    {"labels", GX_FIELD_NAMES, GX__TOKEN_CLASSIFICATION_AT(labels_option), "",
     "labels in the order of the head's outputs: O,B-PER,I-PER (in a --config file also a list); empty: the model's, "
     "or those of the training data, sorted",
     NULL},
    {"tokenizer", GX_FIELD_PATH, GX__TOKEN_CLASSIFICATION_AT(tokenizer_path), "",
     "folder with a tokenizer.json or vocab.txt; empty: the model's tokenizer", NULL},
    GX_SPLIT_SPECIAL_TOKENS(GX__TOKEN_CLASSIFICATION_AT(split_special_tokens)),
    {"pack_texts", GX_FIELD_BOOL, GX__TOKEN_CLASSIFICATION_AT(pack_texts), "true",
     "put several sentences into a sample; they do not attend to each other", NULL},
    {"predict", GX_FIELD_PATH, GX__TOKEN_CLASSIFICATION_AT(predict), "",
     "file of sentences whose labels the model of --resume or --model predicts, instead of training; the file needs no "
     "labels",
     NULL},
    {"predictions", GX_FIELD_PATH, GX__TOKEN_CLASSIFICATION_AT(predictions), "predictions.jsonl",
     "new file for the labels that --predict assigns, .jsonl", NULL},
};
static const char *const gx__token_classification_own[] = {"train_data", "validation_data", "tokenizer",
                                                           "predict",    "predictions",     NULL};
static const char *const gx__token_classification_reading[] = {"label_all_tokens", NULL};
static const GxField gx__token_classification_identity[] = {
    {"labels_hash", GX_FIELD_HASH, GX__TOKEN_CLASSIFICATION_AT(labels_hash), NULL, "of the labels in their order",
     NULL},
    {"sentences", GX_FIELD_INT, GX__TOKEN_CLASSIFICATION_AT(sentences), NULL, "that are trained on", "0.."},
    {"sentences_hash", GX_FIELD_HASH, GX__TOKEN_CLASSIFICATION_AT(sentences_hash), NULL, "of their tokens and labels",
     NULL},
    {"tokenizer", GX_FIELD_STRING, GX__TOKEN_CLASSIFICATION_AT(tokenizer_name), NULL, "which ids the words have", NULL},
};

// ---- files ---------------------------------------------------------------------------------------------------------

static GxStatus gx__token_classification_read(GxTokenClassification *c, int k, const char *path, int may_lack,
                                              GxError *err)
{
    const GxTaggedReading reading = {c->text_column, c->label_column, may_lack,
                                     c->skip_bad_records ? &c->skipped : NULL};
    if (!gx_tagged_is_json(path) && (strcmp(c->text_column, "tokens") || c->label_column[0]))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--text_column, --label_column: %s is read in CoNLL's format, whose first column is the word and "
            "whose last is the label; leave these options out, or give a .jsonl file",
            path);
    return gx_tagged_words_open(&c->file[k], path, &reading, err);
}

// Opens the files that are needed. The training file is not needed if nothing is trained and the labels are known,
// unless a part of it is held out.
static GxStatus gx__token_classification_open_files(GxTokenClassification *c, const GxTokenHead *h,
                                                    const GxTaskSetup *setup, GxError *err)
{
    const int knows = (h->n && h->is_named) || c->labels_option[0];
    if (setup->is_dry && (c->predict[0] || access(c->train_data, F_OK) != 0)) return GX_OK;
    if (c->predict[0] && !h->n)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--predict %s: the model has no head for labels of tokens (its config.json names no "
                       "...ForTokenClassification); train one first",
                       c->predict);
    if (c->predict[0] && c->skip_bad_records)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--skip_bad_records cannot be combined with --predict, whose predictions are in the lines of "
                       "their sentences, so that none can be left out; correct the bad sentences, or leave out "
                       "--skip_bad_records");
    if (c->predict[0]) return gx__token_classification_read(c, 1, c->predict, 1, err);
    if (!setup->only_shows || !c->validation_data[0] || !knows) {
        if (!c->train_data[0])
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--train_data is missing: a file of sentences with a label for each word, .jsonl or in "
                           "CoNLL's format");
        GX_TRY(gx__token_classification_read(c, 0, c->train_data, 0, err));
    }
    if (!c->validation_data[0] || setup->is_dry) return GX_OK;
    return gx__token_classification_read(c, 1, c->validation_data, 0, err);
}

static GxStatus gx__token_classification_agree(GxContext *g, const GxTokenClassification *c)
{
    const char *const what[] = {"the list of labels", c->predict[0] ? c->predict : c->validation_data, c->train_data,
                                "the presence of --predict"};
    const int64_t mine[] = {c->labels_hash, (int64_t)c->file[1].hash, (int64_t)c->file[0].hash, c->predict[0] != 0};
    return gx_task_agree(g, what, mine, 4);
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__token_classification_decide(GxContext *g, GxTokenClassification *c, GxTokenHead *h,
                                                const GxTaskSetup *setup)
{
    GxError *err = &g->error;
    const int64_t least = gx_tokenizer_frame_tokens(&c->tokenizer, 1) + 1;
    GX_TRY(gx_token_head_ask(g, h, setup));
    GX_TRY(gx__token_classification_open_files(c, h, setup, err));
    GX_TRY(gx_token_labels_choose(&c->chosen, h, c->labels_option,
                                  c->file[0].n   ? &c->file[0]
                                  : c->file[1].n ? &c->file[1]
                                                 : NULL,
                                  setup, err));
    if (setup->seq_len < least)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; with %s around it a sentence needs at least %ld",
                       gx_task_length_name(setup), (long)setup->seq_len, gx_text_frame_name(&c->tokenizer),
                       (long)least);
    const GxLabels *labels = &c->chosen.labels;
    uint64_t hash = GX_HASH_START;
    for (int i = 0; i < labels->n; i++) hash = gx_hash(hash, labels->name[i], (int64_t)strlen(labels->name[i]) + 1);
    c->labels_hash = (int64_t)hash;
    c->outputs = labels->n ? labels->n : 2; // a dry run without data assumes two
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    c->head.kind = GX_HEAD_TOKEN_LABELS, c->head.labels = c->outputs, c->head.label_name = labels->name;
    c->head.is_new = c->chosen.is_new, c->head.loss = GX_CROSS_ENTROPY;
    GX_TRY(gx_entity_tags_open(&c->tags, labels->name, labels->n, err));
    return gx__token_classification_agree(g, c);
}

static GxStatus gx__token_classification_open_part(GxContext *g, GxTokenClassification *c, GxLabelledWords *t, int file,
                                                   GxTextsPart part)
{
    GxError *err = &g->error;
    GxTextWords words = GX_ZERO;
    const int is_first = !c->train.n && !c->held_out.n;
    GX_TRY(gx_labelled_words_open(t, &c->file[file], part, c->validation_fraction, err));
    if (c->file[file].has_labels)
        GX_TRY(gx_labelled_words_label(t, &c->chosen.labels, c->chosen.from, c->skip_bad_records ? &c->skipped : NULL,
                                       err));
    GX_TRY(gx_labelled_words_tokenize(t, &c->tokenizer, c->T, c->label_all_tokens,
                                      c->skip_bad_records ? &c->skipped : NULL, gx_threads(g), err));
    for (int64_t i = 0; i < t->n; i++) gx_text_count_words(&words, &c->tokenizer, t->ids[i], t->length[i]);
    if (is_first) gx_text_warn_of_unknown(g, &c->tokenizer, &words, c->file[file].path);
    if (t->empty && g->rank == 0)
        gx_log(&g->log, GX_LOG_WARNING, "%s: the tokenizer leaves nothing of %ld word%s, which %s no label",
               c->file[file].path, (long)t->empty, gx_text_s(t->empty), t->empty == 1 ? "gets" : "get");
    return GX_OK;
}

static uint64_t gx__token_classification_hash(const GxLabelledWords *t)
{
    uint64_t hash = GX_HASH_START;
    for (int64_t i = 0; i < t->n; i++) {
        hash = gx_hash(hash, t->ids[i], t->length[i] * (int64_t)sizeof **t->ids);
        for (int64_t k = 0; k < t->length[i]; k++) {
            const int32_t class_ = gx_labelled_row(t, i, k) ? gx_labelled_class(t, i, k) : GX_IGNORE_INDEX;
            hash = gx_hash(hash, &class_, sizeof class_);
        }
    }
    return hash;
}

// Warns of labels that never occur in training, and of labels that are not those of entities.
static void gx__token_classification_warn(GxContext *g, const GxTokenClassification *c)
{
    const GxLabels *l = &c->chosen.labels;
    int never = 0, first = -1, other = -1, others = 0;
    for (int i = 0; i < l->n; i++) {
        if (!c->train.count[i]) never++, first = first < 0 ? i : first;
        if (!gx_entity_is_label(l->name[i])) others++, other = other < 0 ? i : other;
    }
    if (g->rank == 0 && never)
        gx_log(&g->log, GX_LOG_WARNING,
               "%s: %d of %d labels never %s in the training data, and cannot be learned: %s%s", c->train_data, never,
               l->n, never == 1 ? "occurs" : "occur", l->name[first], never > 1 ? ", ..." : "");
    if (g->rank == 0 && others)
        gx_log(&g->log, GX_LOG_WARNING,
               "the label \"%s\" is not one of an entity (O, or B-, I-, E- or S- and a type): precision, recall and f1 "
               "count runs of words as entities, and may mean nothing here; accuracy counts words",
               l->name[other]);
}

static GxStatus gx__token_classification_open_words(GxContext *g, GxTokenClassification *c, const GxTaskSetup *setup)
{
    GxError *err = &g->error;
    const int has_file = c->file[1].n > 0, is_split = !has_file && c->validation_fraction > 0,
              most = c->pack_texts ? 0 : 1;
    if (!setup->only_shows) {
        GX_TRY(gx__token_classification_open_part(g, c, &c->train, 0, is_split ? GX_TEXTS_TRAINING : GX_TEXTS_ALL));
        GX_TRY(gx_text_packing_open(&c->packing, c->train.length, c->train.n, c->T, most, err));
        c->sentences = c->train.n, c->sentences_hash = (int64_t)gx__token_classification_hash(&c->train);
        gx__token_classification_warn(g, c);
    }
    if (!has_file && !is_split) return GX_OK;
    GX_TRY(
        gx__token_classification_open_part(g, c, &c->held_out, has_file, is_split ? GX_TEXTS_HELD_OUT : GX_TEXTS_ALL));
    GX_TRY(gx_text_packing_open(&c->held_packing, c->held_out.length, c->held_out.n, c->T, most, err));
    c->columns = gx_text_packing_columns(&c->held_packing, GX__TOKEN_CLASSIFICATION_HELD_OUT_SEED);
    const size_t rows = (size_t)c->held_out.first[c->held_out.n], outputs = (size_t)c->outputs;
    c->predicted = (int32_t *)calloc(rows + 1, sizeof *c->predicted);
    c->confusion = (int64_t *)calloc(outputs * outputs, sizeof *c->confusion);
    return c->predicted && c->confusion
               ? GX_OK
               : GX_FAIL(err, GX_ERR_MEMORY, "no memory for the predictions of %ld tokens", (long)rows);
}

static GxStatus gx__token_classification_lay_out(GxTokenClassification *c, GxError *err)
{
    c->layout.pad = (int32_t)gx_max(0, c->tokenizer.role[GX_TOKEN_PAD]);
    c->layout.targets = 1;
    c->layout.target[0].most = c->T - gx_tokenizer_frame_tokens(&c->tokenizer, 1);
    if (c->predict[0] && !c->file[1].has_labels) c->layout.target[0].outputs = GX_TEXT_ROWS_ALONE;
    c->wide = (float *)malloc((size_t)c->outputs * sizeof *c->wide);
    return c->wide ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d outputs", c->outputs);
}

static GxStatus gx__token_classification_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    c->T = setup->seq_len, c->dtype = setup->dtype;
    GX_TRY(gx_text_open_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    gx_tokenizer_take_words(&c->tokenizer);
    gx_text_split_special(&c->tokenizer, c->split_special_tokens);
    GxTokenHead *h = (GxTokenHead *)malloc(sizeof *h);
    GxStatus status = h ? gx__token_classification_decide(g, c, h, setup)
                        : GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a list of labels");
    free(h);
    if (status == GX_OK && c->predict[0] && g->rank == 0 && !setup->is_dry)
        status = gx_predictions_check_jsonl(c->predictions, &g->error);
    if (status == GX_OK && !setup->is_dry) status = gx__token_classification_open_words(g, c, setup);
    if (status == GX_OK) gx_bad_records_warn(&c->skipped, g->rank ? NULL : &g->log);
    if (status == GX_OK && c->packing.texts) setup->epoch_samples = gx_text_packing_columns(&c->packing, setup->seed);
    return status == GX_OK ? gx__token_classification_lay_out(c, &g->error) : status;
}

static void gx__token_classification_close(void *self)
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    gx_text_packing_close(&c->packing), gx_text_packing_close(&c->held_packing);
    gx_labelled_words_close(&c->train), gx_labelled_words_close(&c->held_out);
    gx_tagged_words_close(&c->file[0]), gx_tagged_words_close(&c->file[1]);
    gx_entity_tags_close(&c->tags);
    gx_labels_close(&c->chosen.labels);
    gx_tokenizer_close(&c->tokenizer);
    free(c->predicted), free(c->confusion), free(c->wide), free(c->outputs_host);
}

static const GxHeadRequest *gx__token_classification_head(const void *self)
{
    return &((const GxTokenClassification *)self)->head;
}

static void gx__token_classification_describe(const void *self, FILE *out)
{
    const GxTokenClassification *c = (const GxTokenClassification *)self;
    const GxLabels *l = &c->chosen.labels;
    const int64_t cut = c->train.cut + c->held_out.cut, lost = c->train.lost + c->held_out.lost;
    fprintf(out, "data: ");
    if (c->train.n)
        fprintf(out, "%s, %ld sentence%s to train on; ", c->train_data, (long)c->train.n, gx_text_s(c->train.n));
    if (c->predict[0])
        fprintf(out, "%s, %ld sentence%s to predict; ", c->predict, (long)c->held_out.n, gx_text_s(c->held_out.n));
    else if (c->held_out.n)
        fprintf(out, "%s%s%ld held out; ", c->file[1].n ? c->validation_data : "", c->file[1].n ? ", " : "",
                (long)c->held_out.n);
    fprintf(out, "one of %d labels for each word", c->outputs);
    for (int i = 0; i < l->n && i < 10; i++)
        fprintf(out, "%s%s%s%s", i ? ", " : " (", gx_label_mark(l->name[i]), l->name[i], gx_label_mark(l->name[i]));
    if (l->n) fprintf(out, "%s)", l->n > 10 ? ", ..." : "");
    fprintf(out, "; tokens: %s\n", c->tokenizer_name);
    if (cut)
        fprintf(out,
                "  %ld of %ld sentence%s %s more than %ld tokens, the longest %ld: %ld word%s %s cut off; a larger "
                "--seq_len keeps them\n",
                (long)cut, (long)(c->train.n + c->held_out.n), gx_text_s(c->train.n + c->held_out.n),
                cut == 1 ? "has" : "have", (long)c->T, (long)gx_max(c->train.longest, c->held_out.longest), (long)lost,
                gx_text_s(lost), lost == 1 ? "is" : "are");
}

static GxStatus gx__token_classification_write(const void *self, const char *folder, GxError *err)
{
    return gx_tokenizer_write(&((const GxTokenClassification *)self)->tokenizer, folder, err);
}

// ---- batches -------------------------------------------------------------------------------------------------------

static int64_t gx__token_classification_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const GxTokenClassification *c = (const GxTokenClassification *)self;
    return gx_text_layout_outputs(&c->layout, b, block, host_copy, c->outputs, c->dtype);
}

// Writes sentence i into the column, from position `at` on.
static void gx__token_classification_put(GxTextWriter *w, int64_t column, int64_t at, const GxLabelledWords *t,
                                         int64_t i)
{
    const int is_alone = w->l->target[0].outputs == GX_TEXT_ROWS_ALONE;
    gx_text_put(w, column, at, t->ids[i], NULL, t->length[i]);
    for (int64_t k = 0; k < t->length[i]; k++) {
        if (!gx_labelled_row(t, i, k)) continue;
        if (is_alone) gx_text_values(w, 0, column, at + k, NULL);
        else gx_text_label(w, 0, column, at + k, gx_labelled_class(t, i, k));
    }
}

static void gx__token_classification_put_column(GxTextWriter *w, GxTextPacking *packing, uint64_t seed, int64_t number,
                                                int64_t column, const GxLabelledWords *t)
{
    const int64_t *sentence;
    int64_t n, at = 0;
    gx_text_packing_column(packing, seed, number, &sentence, &n);
    for (int64_t i = 0; i < n; at += t->length[sentence[i++]])
        gx__token_classification_put(w, column, at, t, sentence[i]);
}

static GxStatus gx__token_classification_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed,
                                              GxError *err)
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    GxTextWriter w;
    (void)g, (void)err;
    gx_text_begin(&w, &c->layout, b, host_copy);
    for (int64_t column = 0; column < b->B; column++)
        gx__token_classification_put_column(&w, &c->packing, seed, b->sample + column, column, &c->train);
    gx_text_finish(&w);
    return GX_OK;
}

static int64_t gx__token_classification_held_out(const void *self)
{
    return ((const GxTokenClassification *)self)->columns;
}

static GxStatus gx__token_classification_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy,
                                                       int64_t samples, GxError *err)
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    GxTextWriter w;
    (void)g, (void)err;
    gx_text_begin(&w, &c->layout, b, host_copy);
    for (int64_t column = 0; column < b->B && b->sample + column < samples; column++)
        gx__token_classification_put_column(&w, &c->held_packing, GX__TOKEN_CLASSIFICATION_HELD_OUT_SEED,
                                            b->sample + column, column, &c->held_out);
    gx_text_finish(&w);
    return GX_OK;
}

static void gx__token_classification_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    gx_text_counts(&((const GxTokenClassification *)self)->layout, b, count);
}

static void gx__token_classification_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    gx_text_fit_model(g, &c->layout, &c->tokenizer, m, 1);
    gx_task_batch_allocate(g, &c->one, T, 1, gx__token_classification_layout, c);
    c->one.b.target[0].labels = c->one.b.target[0].labels_host = NULL; // only results
}

// ---- metrics -------------------------------------------------------------------------------------------------------

// 1 + the likeliest label of row i of the host's copy of the outputs; outputs + 1: they are not finite.
static int32_t gx__token_classification_best(GxTokenClassification *c, int64_t i)
{
    GxError unsound = GX_ZERO;
    int best = 0;
    const float *logits = gx_text_output(c->outputs_host, c->dtype, i, c->outputs, c->wide);
    return gx_argmax(logits, c->outputs, i, &best, &unsound) == GX_OK ? best + 1 : c->outputs + 1;
}

static void gx__token_classification_see(GxContext *g, void *self, const GxBatch *b)
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    const GxLabelledWords *t = &c->held_out;
    if (!b && t->n) memset(c->predicted, 0, (size_t)t->first[t->n] * sizeof *c->predicted), c->is_judged = 0;
    if (!b || gx_failed(g) || !gx_has_head(g)) return;
    gx_text_fetch(g, &c->outputs_host, &b->target[0]);
    for (int64_t column = 0; column < b->B && b->sample + column < c->columns && !gx_failed(g); column++) {
        const int64_t *sentence;
        int64_t n, at = 0;
        gx_text_packing_column(&c->held_packing, GX__TOKEN_CLASSIFICATION_HELD_OUT_SEED, b->sample + column, &sentence,
                               &n);
        for (int64_t s = 0; s < n; at += t->length[sentence[s++]]) {
            const int64_t i = sentence[s];
            for (int64_t k = 0, row = t->first[i]; k < t->length[i]; k++) {
                if (!gx_labelled_row(t, i, k)) continue;
                const int64_t found = gx_text_find_row(&b->target[0], (at + k) * b->B + column);
                if (found >= 0) c->predicted[row] = gx__token_classification_best(c, found);
                row++;
            }
        }
    }
}

// Judges sentence i, if all of its rows are known. 0: some of its outputs are not finite.
static int gx__token_classification_judge(GxTokenClassification *c, int64_t i, GxEntityCounts *entities, int32_t *room)
{
    const GxLabelledWords *t = &c->held_out;
    const int32_t *predicted = c->predicted + t->first[i];
    const int64_t n = t->first[i + 1] - t->first[i];
    int32_t *truth = room, *guess = room + n;
    for (int64_t k = 0, r = 0; k < t->length[i]; k++)
        if (gx_labelled_row(t, i, k)) truth[r++] = gx_labelled_class(t, i, k);
    for (int64_t r = 0; r < n; r++) {
        if (predicted[r] == 0) return 1;
        if (predicted[r] > c->outputs) return 0;
        guess[r] = predicted[r] - 1;
    }
    for (int64_t r = 0; r < n; r++) c->confusion[(int64_t)truth[r] * c->outputs + guess[r]]++;
    gx_entities_count(entities, &c->tags, truth, guess, n);
    return 1;
}

static void gx__token_classification_gather(GxContext *g, GxTokenClassification *c)
{
    const GxLabelledWords *t = &c->held_out;
    gx_at(g, -1, "predictions");
    gx_stage_sum_results(g, c->predicted, t->n ? t->first[t->n] : 0, GX_I32);
}

static int gx__token_classification_metrics(GxContext *g, void *self, const GxLosses *losses,
                                            GxMetric metric[GX_MAX_METRICS])
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    const GxMetric all[] = {{"loss", "loss %.4f", gx_losses_mean(losses, 0), -1},
                            {"precision", "precision %.4f", NAN, 1},
                            {"recall", "recall %.4f", NAN, 1},
                            {"f1", "f1 %.4f", NAN, 1},
                            {"accuracy", "accuracy %.4f", NAN, 1}};
    GxEntityCounts entities = GX_ZERO;
    memcpy(metric, all, sizeof all);
    if (!losses) return 5;
    gx__token_classification_gather(g, c);
    if (gx_failed(g) || !c->held_out.class_) return 0;
    int32_t *room = (int32_t *)malloc(2 * (size_t)c->T * sizeof *room);
    if (!room) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory to judge a sentence");
    memset(c->confusion, 0, (size_t)c->outputs * (size_t)c->outputs * sizeof *c->confusion);
    int is_sound = room != NULL;
    for (int64_t i = 0; i < c->held_out.n && is_sound; i++)
        is_sound = gx__token_classification_judge(c, i, &entities, room);
    free(room);
    c->is_judged = is_sound;
    if (!is_sound) return 5; // outputs that are not finite do not end the run
    metric[1].value = gx_entity_precision(&entities), metric[2].value = gx_entity_recall(&entities);
    metric[3].value = gx_entity_f1(&entities);
    metric[4].value = gx_confusion_accuracy(c->confusion, c->outputs);
    return 5;
}

static int gx__token_classification_confusion(const void *self, GxConfusion *confusion)
{
    const GxTokenClassification *c = (const GxTokenClassification *)self;
    confusion->count = c->confusion, confusion->classes = c->outputs, confusion->name = c->chosen.labels.name;
    return c->is_judged;
}

// The accuracy of the label that is most frequent in training.
static GxStatus gx__token_classification_baseline(const void *self, GxMetric *metric, GxError *err)
{
    const GxTokenClassification *c = (const GxTokenClassification *)self;
    const GxLabelledWords *t = &c->held_out;
    int best = 0;
    int64_t right = 0;
    (void)err;
    if (!c->train.n || !t->n || !t->class_) return GX_OK;
    for (int l = 1; l < c->outputs; l++)
        if (c->train.count[l] > c->train.count[best]) best = l;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->length[i]; k++)
            right += gx_labelled_row(t, i, k) && gx_labelled_class(t, i, k) == best;
    metric[0].name = "majority_accuracy", metric[0].format = "always the most frequent label: accuracy %.4f";
    metric[0].value = (double)right / (double)t->first[t->n];
    return GX_OK;
}

// ---- the sample ----------------------------------------------------------------------------------------------------

enum { GX__TOKEN_CLASSIFICATION_SAMPLES = 3, GX__TOKEN_CLASSIFICATION_WORDS = 30 }; // sentences; words of one

// "Ada/B-PER slept": words with their labels, but O. predicted: of the sentence's rows; NULL: the truth.
static void gx__token_classification_say(const GxTokenClassification *c, int64_t i, const int32_t *predicted, FILE *out)
{
    const GxLabelledWords *t = &c->held_out;
    int words = 0;
    for (int64_t k = 0, row = 0; k < t->length[i]; k++) {
        const int is_row = gx_labelled_row(t, i, k);
        if (is_row && gx_labelled_begins(t, i, k)) {
            const int32_t label = predicted ? predicted[row] - 1 : gx_labelled_class(t, i, k);
            const char *name = label < c->outputs ? c->chosen.labels.name[label] : "?";
            if (words++ == GX__TOKEN_CLASSIFICATION_WORDS) {
                fprintf(out, " ...");
                break;
            }
            fprintf(out, " %s%s%s", gx_tagged_word(t->file, t->word[i][k]), strcmp(name, "O") ? "/" : "",
                    strcmp(name, "O") ? name : "");
        }
        row += is_row;
    }
    fprintf(out, "\n");
}

// Runs sentence i alone in a batch, on every rank. i < 0: an empty batch, for a plan.
static void gx__token_classification_run_one(GxContext *g, GxTokenClassification *c, const GxForward *forward,
                                             int64_t i)
{
    GxTextWriter w;
    GxBatch *b = &c->one.b;
    if (i >= 0) {
        GxTextLayout rows = c->layout;
        rows.target[0].outputs = GX_TEXT_ROWS_ALONE;
        gx_text_begin(&w, &rows, b, c->one.host);
        gx__token_classification_put(&w, 0, 0, &c->held_out, i);
        gx_text_finish(&w);
        gx_to_device(g, c->one.block, c->one.host, c->one.bytes);
    }
    forward->run(g, forward->user, b, NULL);
    if (i >= 0) gx_text_fetch(g, &c->outputs_host, &b->target[0]);
}

static void gx__token_classification_show(GxContext *g, GxTokenClassification *c, const GxForward *forward,
                                          uint64_t seed, int32_t *room, FILE *out)
{
    const GxLabelledWords *t = &c->held_out;
    const int64_t n = gx_min(GX__TOKEN_CLASSIFICATION_SAMPLES, t->n);
    for (int64_t s = 0; s < n && !gx_failed(g) && !(forward->stop && forward->stop(forward->stop_user)); s++) {
        const int64_t i = gx_permute(seed, 0, t->n, s);
        gx__token_classification_run_one(g, c, forward, i);
        if (gx_failed(g)) return;
        for (int64_t r = 0; r < c->one.b.target[0].n; r++) room[r] = gx__token_classification_best(c, r);
        fprintf(out, "predicted");
        gx__token_classification_say(c, i, room, out);
        if (t->class_) fprintf(out, "it is    "), gx__token_classification_say(c, i, NULL, out);
    }
}

static char *gx__token_classification_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxTokenClassification *c = (GxTokenClassification *)self;
    char *text = NULL;
    size_t bytes;
    if (!g->device->computes) {
        gx__token_classification_run_one(g, c, forward, -1);
        if (c->columns) gx__token_classification_gather(g, c); // takes the memory that `metrics` needs
        return NULL;
    }
    if (!c->held_out.n) return NULL;
    FILE *out = open_memstream(&text, &bytes);
    int32_t *room = (int32_t *)malloc((size_t)c->T * sizeof *room);
    if (!out || !room) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    else gx__token_classification_show(g, c, forward, seed, room, out);
    free(room);
    if (out && fclose(out) != 0) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    if (!gx_failed(g)) return text;
    free(text);
    return NULL;
}

// ---- predictions ---------------------------------------------------------------------------------------------------

static const char *gx__token_classification_predicts(const void *self)
{
    return ((const GxTokenClassification *)self)->predict[0] ? "predict" : NULL;
}

static GxStatus gx__token_classification_write_one(const GxTokenClassification *c, int64_t i, FILE *out, GxError *err)
{
    const GxLabelledWords *t = &c->held_out;
    const int64_t *begin = t->file->begin + t->sentence[i], *row = t->first + i;
    GxJson *line = gx_json_new_object(), *words = gx_json_new_array(), *labels = gx_json_new_array();
    char *text = NULL;
    int64_t bytes = 0, k = 0, r = row[0];
    for (int64_t w = begin[0]; w < begin[1]; w++) {
        int32_t label = 0;
        for (; k < t->length[i] && t->word[i][k] <= w; k++) { // up to the word's last token
            if (!gx_labelled_row(t, i, k)) continue;
            if (gx_labelled_begins(t, i, k)) label = c->predicted[r];
            r++;
        }
        if (label > c->outputs)
            GX_FAIL(err, GX_ERR_ARGUMENT,
                    "%s:%ld: the model's outputs for this sentence are not finite, so nothing is written",
                    t->file->path, (long)gx_labelled_line(t, i));
        gx_json_append(words, gx_json_new_string(gx_tagged_word(t->file, w)), err);
        gx_json_append(labels,
                       label && label <= c->outputs ? gx_json_new_string(c->chosen.labels.name[label - 1])
                                                    : gx_json_new_null(),
                       err);
    }
    gx_json_set(line, "tokens", words, err);
    gx_json_set(line, "labels", labels, err);
    if (!gx_error_code(err) && gx_json_dump(line, 0, &text, &bytes, err) == GX_OK) fprintf(out, "%s\n", text);
    free(text);
    gx_json_free(line);
    return gx_error_code(err);
}

static const char *gx__token_classification_predict(GxContext *g, void *self)
{
    const GxTokenClassification *c = (const GxTokenClassification *)self;
    GxError *err = &g->error;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    GxStatus status = out ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s", c->predictions);
    for (int64_t i = 0; i < c->held_out.n && status == GX_OK; i++)
        status = gx__token_classification_write_one(c, i, out, err);
    const int is_whole = out && !ferror(out);
    if (out && (fclose(out) != 0 || !is_whole) && status == GX_OK)
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s", c->predictions);
    if (status == GX_OK) gx_file_write(c->predictions, text, (int64_t)bytes, err);
    free(text);
    return c->predictions;
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_token_classification = {
    "token_classification", // name
    {
        // options
        sizeof(GxTokenClassification),               // size
        GX_FIELDS(gx__token_classification_options), // fields, n_fields
        gx__token_classification_own,                // own
        NULL,                                        // defaults
        gx__token_classification_reading,            // reading
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
        gx__token_classification_open,     // open
        gx__token_classification_close,    // close
        gx__token_classification_head,     // head
        gx__token_classification_describe, // describe
        NULL,                              // show
        NULL,                              // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__token_classification_identity), // identity, n_identity
        // elsewhere
        "on other sentences or labels, or with another tokenizer or validation_fraction",
        gx__token_classification_write, // write
        NULL,                           // changed
    },
    {
        // batch
        gx__token_classification_allocate,      // allocate
        gx__token_classification_layout,        // layout
        gx__token_classification_fill,          // fill
        gx__token_classification_counts,        // counts
        gx__token_classification_held_out,      // held_out
        gx__token_classification_fill_held_out, // fill_held_out
        gx__token_classification_see,           // see
        NULL,                                   // stands_alone
    },
    {
        // metrics
        gx__token_classification_metrics,   // compute
        NULL,                               // progress
        gx__token_classification_baseline,  // baseline
        NULL,                               // lacks
        gx__token_classification_confusion, // confusion
    },
    {
        // output
        gx__token_classification_sample,   // sample
        gx__token_classification_predicts, // predicts
        gx__token_classification_predict,  // predict
    },
};
#endif
