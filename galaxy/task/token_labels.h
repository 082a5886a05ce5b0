// task/token_labels.h: chooses the labels of the task token_classification, from --labels, the model's own head or the
// training data. The rules: token_classification.h.
#ifndef GX_TOKEN_LABELS_H
#define GX_TOKEN_LABELS_H
#include "../data/model_labels.h"
#include "../data/tagged_words.h"
#include "task.h"
GX_BEGIN

// What config.json says about the model's head; rank 0 reads it and broadcasts this.
typedef struct {
    int32_t n;        // labels; 0: the model has no head for labels of tokens
    int32_t is_named; // they are not LABEL_0, LABEL_1, …
    int32_t is_other; // it has a head for labels of whole texts
    char name[GX_LABELS_MOST][GX_LABEL_BYTES + 1];
} GxTokenHead;
GxStatus gx_token_head_ask(GxContext *g, GxTokenHead *h, const GxTaskSetup *setup);

typedef struct {
    GxLabels labels;
    int is_new;       // 1: the head is initialized, whatever the model has
    const char *from; // for messages: where the labels come from, and how to choose others
} GxTokenLabels;
// option: --labels, "": not given. f: the file with the data's labels, NULL: none. All ranks get the same error.
GxStatus gx_token_labels_choose(GxTokenLabels *l, GxTokenHead *h, const char *option, const GxTaggedWords *f,
                                const GxTaskSetup *setup, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKEN_LABELS_IMPLEMENTED)
#define GX_TOKEN_LABELS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"

// ---- the model's head ----------------------------------------------------------------------------------------------

static GxStatus gx__token_labels_read(GxTokenHead *h, const GxTaskSetup *setup, GxError *err)
{
    GxModelLabels m;
    char plain[24];
    const GxStatus status = gx_labels_read_adapted(&m, setup->model, setup->adapter ? setup->adapter : "", err);
    if (status == GX_OK && m.is_token_classifier) h->n = m.labels.n;
    if (status == GX_OK) h->is_other = m.is_classifier && !m.is_token_classifier;
    for (int32_t i = 0; i < h->n; i++) {
        snprintf(plain, sizeof plain, "LABEL_%d", i);
        snprintf(h->name[i], sizeof h->name[i], "%s", m.labels.name[i]);
        h->is_named |= strcmp(h->name[i], plain) != 0;
    }
    gx_model_labels_close(&m);
    return status;
}

GxStatus gx_token_head_ask(GxContext *g, GxTokenHead *h, const GxTaskSetup *setup)
{
    memset(h, 0, sizeof *h);
    if (setup->model[0]) gx__token_labels_read(h, setup, &g->error);
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, h, (int64_t)sizeof *h, GX_U8); // on a failed context this tells the other ranks
    return gx_status(g);
}

// ---- the data's labels ---------------------------------------------------------------------------------------------

static int gx__token_labels_by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The distinct labels of a file, sorted by their bytes, as transformers' run_ner numbers them.
static GxStatus gx__token_labels_make(GxLabels *l, const GxTaggedWords *f, GxError *err)
{
    const char **name = (const char **)malloc((size_t)gx_max(1, f->words) * sizeof *name);
    int64_t n = 0;
    if (!name) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the labels of %ld words", (long)f->words);
    for (int64_t w = 0; w < f->words; w++) name[w] = gx_tagged_label(f, w);
    qsort(name, (size_t)f->words, sizeof *name, gx__token_labels_by_bytes);
    for (int64_t w = 0; w < f->words; w++)
        if (n == 0 || strcmp(name[n - 1], name[w]) != 0) name[n++] = name[w];
    const GxStatus status =
        n > GX_LABELS_MOST ? GX_FAIL(err, GX_ERR_FORMAT, "%s: there are %ld different labels; at most %d are possible",
                                     f->path, (long)n, GX_LABELS_MOST)
                           : gx_labels_set(l, name, (int)n, GX_LABEL_CLASS, f->path, err);
    free(name);
    return status;
}

// Those of --labels, otherwise the data's; none if the data have numbers.
static GxStatus gx__token_labels_own(GxLabels *l, const char *option, const GxTaggedWords *f, GxError *err)
{
    memset(l, 0, sizeof *l);
    if (option[0]) return gx_labels_set_text(l, option, GX_LABEL_CLASS, "--labels", err);
    return f && f->has_labels && !f->has_numbers ? gx__token_labels_make(l, f, err) : GX_OK;
}

// ---- the choice ----------------------------------------------------------------------------------------------------

// 1: a label of the head has another number in l.
static int gx__token_labels_are_reordered(const GxLabels *l, const GxTokenHead *h)
{
    for (int32_t j = 0; j < h->n && h->is_named; j++) {
        const int i = gx_labels_find(l, h->name[j]);
        if (i >= 0 && i != j) return 1;
    }
    return 0;
}

// 1: the head has not all of these labels; is_option: they are --labels, which may rename the head's.
static int gx__token_labels_mismatch(const GxLabels *l, const GxTokenHead *h, int is_option)
{
    if (is_option || !h->is_named) return l->n != h->n || gx__token_labels_are_reordered(l, h);
    for (int i = 0; i < l->n; i++) {
        int32_t j = 0;
        while (j < h->n && strcmp(h->name[j], l->name[i]) != 0) j++;
        if (j == h->n) return 1;
    }
    return 0;
}

static GxStatus gx__token_labels_of_head(GxTokenLabels *l, const GxTokenHead *h, GxError *err)
{
    const char *name[GX_LABELS_MOST];
    for (int32_t i = 0; i < h->n; i++) name[i] = h->name[i];
    return gx_labels_set(&l->labels, name, h->n, GX_LABEL_CLASS, "the model's config.json", err);
}

// --labels, or nothing, for a trained head, which keeps its labels in their order.
static GxStatus gx__token_labels_keep(GxTokenLabels *l, const GxTokenHead *h, const char *option,
                                      const GxTaskSetup *setup, GxError *err)
{
    const char *advice = setup->starts_from_model ? "; --ignore_mismatched_sizes true trains a new head" : "";
    if (!option[0] && !h->is_named)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the model's config.json does not name the %d labels of its head (id2label); name them in the "
                       "order of its outputs: --labels a,b,c%s",
                       h->n, advice);
    l->from = option[0] ? "--labels names them" : "these are the head's (id2label in the model's config.json)";
    if (!option[0]) return gx__token_labels_of_head(l, h, err);
    if (l->labels.n != h->n)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--labels names %d, but the model's head has %d labels (%.60s, ...): name as many%s",
                       l->labels.n, h->n, h->name[0], advice);
    if (gx__token_labels_are_reordered(&l->labels, h))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--labels has the labels of the model's head in another order: leave --labels out, or name them "
                       "in the order of id2label in its config.json%s",
                       advice);
    return GX_OK;
}

GxStatus gx_token_labels_choose(GxTokenLabels *l, GxTokenHead *h, const char *option, const GxTaggedWords *f,
                                const GxTaskSetup *setup, GxError *err)
{
    memset(l, 0, sizeof *l);
    l->is_new = h->is_other;
    l->from = option[0] ? "--labels names them" : "these are those of the training data; --labels a,b,c names others";
    GX_TRY(gx__token_labels_own(&l->labels, option, f, err));
    const int has_own = l->labels.n > 0;
    if (h->n && has_own && setup->ignore_mismatched_sizes && gx__token_labels_mismatch(&l->labels, h, option[0] != 0))
        h->n = 0, l->is_new = 1;
    if (h->n && !option[0]) gx_labels_close(&l->labels);
    if (h->n) GX_TRY(gx__token_labels_keep(l, h, option, setup, err));
    else if (!has_own && f && f->has_numbers)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s: its labels are numbers, and nothing says what they stand for; name them in their order, "
                       "from 0: --labels O,B-PER,I-PER",
                       f->path);
    if (l->labels.n != 1) return GX_OK; // 0: a dry run without data
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "there is only one label, \"%s\", so there is nothing to choose from; add sentences with other "
                   "labels, or name those with --labels",
                   l->labels.name[0]);
}
#endif
