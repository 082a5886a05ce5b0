// task/classification_texts.h: the texts of the task classification: opens and compares its files, turns texts into
// tokens, and warns of what looks wrong in them.
#ifndef GX_CLASSIFICATION_TEXTS_H
#define GX_CLASSIFICATION_TEXTS_H
#include "classification_labels.h"
GX_BEGIN

// Opens the files that are needed. The training file is not needed if nothing is trained and the problem and its labels
// are known, unless a part of it is held out.
GxStatus gx_classification_open_files(GxContext *g, GxClassification *c, const GxClassificationHead *h,
                                      const GxTaskSetup *setup);
int64_t gx_classification_hash_labels(const GxClassification *c);
// Fails if ranks read different files or labels.
GxStatus gx_classification_agree(GxContext *g, const GxClassification *c);
int64_t gx_classification_most(const GxClassification *c); // the most texts of a column
GxStatus gx_classification_open_texts(GxContext *g, GxClassification *c, const GxTaskSetup *setup);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CLASSIFICATION_TEXTS_IMPLEMENTED)
#define GX_CLASSIFICATION_TEXTS_IMPLEMENTED
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../comm/comm.h"

enum { GX__CLASSIFICATION_TOKENS_PER_TEXT = 8 }; // columns are planned for no more texts than T / 8

static GxStatus gx__classification_open_file(GxClassification *c, int k, const char *path, int may_lack_labels,
                                             GxError *err)
{
    const GxTextColumns columns = {c->text_column, c->text2_column, c->label_column, c->group_column};
    if (k == 0 && access(path, F_OK) != 0 && errno == ENOENT)
        return GX_FAIL(err, GX_ERR_IO,
                       "cannot open %s: %s; `make data-bert` makes data/bert/pos/train.tsv, the default, and "
                       "--train_data FILE names another file",
                       path, strerror(ENOENT));
    return gx_text_file_open(&c->file[k], path, &columns, c->problem, may_lack_labels,
                             c->skip_bad_records ? &c->skipped : NULL, err);
}

GxStatus gx_classification_open_files(GxContext *g, GxClassification *c, const GxClassificationHead *h,
                                      const GxTaskSetup *setup)
{
    GxError *err = &g->error;
    const int knows = c->problem && (c->problem == GX_PROBLEM_REGRESSION || h->n || c->labels_option[0]);
    if (setup->is_dry && (access(c->train_data, F_OK) != 0 || c->predict[0])) return GX_OK;
    if (c->predict[0] && !h->n)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--predict %s: the model has no head for labels (its config.json names no "
                       "...ForSequenceClassification); train one first",
                       c->predict);
    if (c->predict[0] && c->skip_bad_records)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--skip_bad_records cannot be combined with --predict, whose predictions are in the lines of "
                       "their records, so that none can be left out; correct the bad records, or leave out "
                       "--skip_bad_records");
    if (c->predict[0]) return gx__classification_open_file(c, 1, c->predict, 1, err);
    if (!setup->only_shows || !c->validation_data[0] || !knows)
        GX_TRY(gx__classification_open_file(c, 0, c->train_data, 0, err));
    if (!c->problem) c->problem = gx_text_file_problem(&c->file[0]);
    if (c->validation_data[0] && !setup->is_dry) GX_TRY(gx__classification_open_file(c, 1, c->validation_data, 0, err));
    if (c->file[0].records.n && c->file[1].records.n && (c->file[0].text2 < 0) != (c->file[1].text2 < 0))
        return GX_FAIL(
            err, GX_ERR_FORMAT, "%s has %s, but %s has not: either both files hold pairs of texts, or neither does",
            c->file[c->file[0].text2 < 0].records.path, c->text2_column, c->file[c->file[0].text2 >= 0].records.path);
    return GX_OK;
}

int64_t gx_classification_hash_labels(const GxClassification *c)
{
    uint64_t hash = GX_HASH_START;
    for (int i = 0; i < c->labels.n; i++)
        hash = gx_hash(hash, c->labels.name[i], (int64_t)strlen(c->labels.name[i]) + 1);
    return (int64_t)hash;
}

GxStatus gx_classification_agree(GxContext *g, const GxClassification *c)
{
    const char *const what[] = {"the list of labels", c->predict[0] ? c->predict : c->validation_data, c->train_data,
                                "the presence of --predict"};
    const int64_t mine[] = {c->labels_hash, (int64_t)c->file[1].records.hash, (int64_t)c->file[0].records.hash,
                            c->predict[0] != 0};
    return gx_task_agree(g, what, mine, 4);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

static GxStatus gx__classification_label(GxClassification *c, GxTexts *t, GxError *err)
{
    GxError unknown = GX_ZERO;
    const GxStatus status =
        gx_texts_label(t, c->problem, &c->labels, c->skip_bad_records ? &c->skipped : NULL, &unknown);
    if (status == GX_OK) return GX_OK;
    if (status != GX_ERR_FORMAT) return GX_FAIL(err, status, "%s", unknown.message);
    return GX_FAIL(err, status, "%s; %s%s", unknown.message, c->labels_from,
                   c->predict[0]
                       ? "; to predict without labels, set --label_column to a name that no column of the file has"
                       : "");
}

static GxStatus gx__classification_open_part(GxContext *g, GxClassification *c, GxTexts *t, int file, GxTextsPart part)
{
    GxError *err = &g->error;
    GxTextWords words = GX_ZERO;
    GX_TRY(gx_texts_open(t, &c->file[file], part, c->validation_fraction, err));
    if (c->file[file].label >= 0) GX_TRY(gx__classification_label(c, t, err));
    t->frames = c->frames_texts;
    GX_TRY(gx_texts_tokenize(t, &c->tokenizer, c->T, gx_threads(g), err));
    for (int64_t i = 0; i < t->n; i++) gx_text_count_words(&words, &c->tokenizer, t->ids[i], t->length[i]);
    if (t == &c->train || !c->train.n) // once
        gx_text_warn_of_unknown(g, &c->tokenizer, &words, c->file[file].records.path);
    return GX_OK;
}

int64_t gx_classification_most(const GxClassification *c) // the most texts of a column
{
    return c->pack_texts ? gx_max(1, c->T / GX__CLASSIFICATION_TOKENS_PER_TEXT) : 1;
}

// Puts the held-out texts into a pseudo-random order, groups kept together, so that any part of the columns is a random
// part of the texts even if the file is sorted.
static void gx__classification_order_held_out(GxClassification *c, int64_t *texts_of, int64_t units)
{
    const GxTexts *t = &c->held_out;
    const int64_t *group = c->predicted.group;
    int64_t at = 0;
    for (int64_t u = 0; u <= units; u++) texts_of[u] = 0;
    for (int64_t i = 0; i < t->n; i++) texts_of[group ? group[i] : i]++;
    for (int64_t u = 0; u < units; u++) { // where each unit's texts begin
        const int64_t unit = gx_permute(0, 0, units, u), n = texts_of[unit];
        texts_of[unit] = at, at += n;
    }
    for (int64_t i = 0; i < t->n; i++) c->order[texts_of[group ? group[i] : i]++] = i;
}

static GxStatus gx__classification_lay_held_out(GxClassification *c, GxError *err)
{
    const GxTexts *t = &c->held_out;
    const int64_t units = c->predicted.group ? c->predicted.groups : t->n;
    int64_t *texts_of = (int64_t *)malloc((size_t)(units + 1) * sizeof *texts_of), tokens = 0;
    c->order = (int64_t *)malloc((size_t)t->n * sizeof *c->order);
    c->begin = (int64_t *)malloc((size_t)(t->n + 1) * sizeof *c->begin);
    if (!texts_of || !c->order || !c->begin) {
        free(texts_of);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the order of %ld texts", (long)t->n);
    }
    gx__classification_order_held_out(c, texts_of, units);
    free(texts_of);
    for (int64_t i = 0; i < t->n; i++) { // next-fit
        const int64_t n = t->length[c->order[i]];
        const int is_full = tokens + n > c->T || (i > 0 && i - c->begin[c->columns - 1] == gx_classification_most(c));
        if (i == 0 || is_full) c->begin[c->columns++] = i, tokens = 0;
        tokens += n;
    }
    c->begin[c->columns] = t->n;
    return GX_OK;
}

static uint64_t gx__classification_hash_texts(const GxTexts *t, int64_t outputs)
{
    uint64_t hash = GX_HASH_START;
    for (int64_t i = 0; i < t->n; i++) {
        hash = gx_hash(hash, t->ids[i], t->length[i] * (int64_t)sizeof **t->ids);
        hash = gx_hash(hash, &t->second[i], sizeof t->second[i]);
        if (t->label) hash = gx_hash(hash, &t->label[i], sizeof t->label[i]);
        if (t->number) hash = gx_hash(hash, &t->number[i], sizeof t->number[i]);
        if (t->has) hash = gx_hash(hash, t->has + i * outputs, outputs);
    }
    return hash;
}

// Warns of classes whose names look as if something else was meant: numbers with a decimal comma, several labels in
// one.
static void gx__classification_warn_of_commas(GxContext *g, const GxClassification *c)
{
    const GxLabels *l = &c->labels;
    int decimals = 0, several = -1;
    if (c->problem != GX_PROBLEM_SINGLE) return;
    for (int i = 0; i < l->n; i++) {
        char first[GX_LABEL_BYTES + 1];
        const char *name = l->name[i], *digits = name + (name[0] == '-'), *comma = strchr(name, ',');
        const size_t before = strspn(digits, "0123456789"), behind = comma ? strspn(comma + 1, "0123456789") : 0;
        decimals += before > 0 && behind > 0 && digits + before == comma && !comma[1 + behind];
        snprintf(first, sizeof first, "%.*s", comma ? (int)(comma - name) : 0, name);
        if (comma && gx_labels_find(l, first) >= 0) several = i;
    }
    if (decimals > 0 && decimals == l->n)
        gx_log(
            &g->log, GX_LOG_WARNING,
            "%s: its labels, such as \"%s\", are taken as classes; to predict numbers, write them with a decimal point",
            c->train_data, l->name[0]);
    else if (several >= 0)
        gx_log(&g->log, GX_LOG_WARNING,
               "%s: the label \"%s\" is taken as one class; to give a text several labels, use --problem_type "
               "multi_label_classification",
               c->train_data, l->name[several]);
}

static void gx__classification_warn(GxContext *g, const GxClassification *c)
{
    char names[200] = "";
    int never = 0;
    if (g->rank != 0) return;
    if (c->group_column[0] && !gx_predictions_are_ranked(c->problem, c->outputs))
        gx_log(&g->log, GX_LOG_WARNING,
               "--group_column %s keeps groups together, but their texts cannot be ranked: that needs two labels, or "
               "numbers to predict, and here it is %s%d label%s",
               c->group_column, c->problem == GX_PROBLEM_MULTI ? "any of " : "one of ", c->outputs,
               gx_text_s(c->outputs));
    gx__classification_warn_of_commas(g, c);
    if (c->problem == GX_PROBLEM_REGRESSION) return;
    for (int l = 0; l < c->outputs; l++) {
        const size_t at = strlen(names);
        if (c->train.count[l]) continue;
        snprintf(names + at, sizeof names - at, "%s%s%s%s", never++ ? ", " : "", gx_label_mark(c->labels.name[l]),
                 c->labels.name[l], gx_label_mark(c->labels.name[l]));
    }
    if (!never) return;
    if (strlen(names) == sizeof names - 1) gx_text_mark_cut(names, sizeof names);
    gx_log(&g->log, GX_LOG_WARNING, "%s: %d of %d label%s never %s in the training data, and cannot be learned: %s",
           c->train_data, never, c->outputs, gx_text_s(c->outputs), never == 1 ? "occurs" : "occur", names);
}

GxStatus gx_classification_open_texts(GxContext *g, GxClassification *c, const GxTaskSetup *setup)
{
    GxError *err = &g->error;
    const int has_file = c->file[1].records.n > 0, is_split = !has_file && c->validation_fraction > 0;
    if (!setup->only_shows) {
        GX_TRY(gx__classification_open_part(g, c, &c->train, 0, is_split ? GX_TEXTS_TRAINING : GX_TEXTS_ALL));
        GX_TRY(gx_text_packing_open(&c->packing, c->train.length, c->train.n, c->T, gx_classification_most(c), err));
        c->texts_n = c->train.n;
        c->texts_hash = (int64_t)gx__classification_hash_texts(&c->train, c->outputs);
        gx__classification_warn(g, c);
    }
    if (!has_file && !is_split) return GX_OK;
    GX_TRY(gx__classification_open_part(g, c, &c->held_out, has_file, is_split ? GX_TEXTS_HELD_OUT : GX_TEXTS_ALL));
    c->has_labels = c->held_out.label || c->held_out.has || c->held_out.number;
    GX_TRY(gx_predictions_open(&c->predicted, &c->held_out, c->problem, &c->labels, err));
    return gx__classification_lay_held_out(c, err);
}
#endif
