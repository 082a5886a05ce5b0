// task/labelled_words.h: sentences whose words have labels (data/tagged_words.h) as tokens and classes.
//
//     GxLabelledWords t;
//     GX_TRY(gx_labelled_words_open(&t, &file, GX_TEXTS_TRAINING, 0.05, err));   // 95% of it, by a hash
//     GX_TRY(gx_labelled_words_label(&t, &labels, "…", NULL, err));
//     GX_TRY(gx_labelled_words_tokenize(&t, &tokenizer, 128, 0, NULL, threads, err));
//     … t.ids[i][k], k < t.length[i] … gx_labelled_row(&t, i, k) … gx_labelled_class(&t, i, k) …
//
// Each word is tokenized by itself, as transformers does with is_split_into_words, and the tokenizer's frame is put
// around all of them. What does not fit into T tokens is cut off. The token that a word begins with has the word's
// label, the others have none; or (all_tokens) they have it, too, where I-X takes the place of B-X if there is such a
// label. These tokens are the sentence's rows. A word of which the tokenizer leaves nothing has none.
//
// If a file is divided into training and held-out sentences, a hash of the sentence's words decides where it goes.
// Everything is read and tokenized at the beginning. Memory: 8 bytes per token, 4 per word.
#ifndef GX_LABELLED_WORDS_H
#define GX_LABELLED_WORDS_H
#include "../data/labels.h"
#include "../data/tagged_words.h"
#include "../text/tokenizer.h"
#include "labelled_texts.h"
GX_BEGIN

typedef struct {
    const GxTaggedWords *file;
    int64_t n;
    int64_t *sentence; // [n] its number in the file
    int32_t **ids;     // [n] its tokens
    int32_t **word;    // [n] of each token: the number of its word in the file; -1: none, it is of the frame
    int32_t *length;   // [n] tokens
    int64_t *first;    // [n + 1] rows of the sentences before it
    int32_t *class_;   // [file->words] each word's label; NULL: the file has no labels
    int32_t *inside;   // [labels] the label of a word's other tokens, with all_tokens
    int64_t *count;    // [labels] words with each label
    int all_tokens;
    int64_t cut, longest; // sentences that were cut; tokens of the longest
    int64_t lost, empty;  // words that were cut off; words of which the tokenizer leaves nothing
} GxLabelledWords;

GxStatus gx_labelled_words_open(GxLabelledWords *t, const GxTaggedWords *f, GxTextsPart part, double held_out,
                                GxError *err);
void gx_labelled_words_close(GxLabelledWords *t); // accepts a struct of zeros
// from: where the labels come from, for messages. skip: counts the sentences with a label that is none of these, which
// are left out; NULL: they are errors.
GxStatus gx_labelled_words_label(GxLabelledWords *t, const GxLabels *labels, const char *from, GxBadRecords *skip,
                                 GxError *err);
// skip: counts the sentences of which the tokenizer leaves nothing, which are left out; NULL: they are errors.
GxStatus gx_labelled_words_tokenize(GxLabelledWords *t, const GxTokenizer *tokenizer, int64_t T, int all_tokens,
                                    GxBadRecords *skip, int threads, GxError *err);
static inline int64_t gx_labelled_line(const GxLabelledWords *t, int64_t i) { return t->file->line[t->sentence[i]]; }
static inline int gx_labelled_begins(const GxLabelledWords *t, int64_t i, int64_t k) // 1: a word begins with token k
{
    return t->word[i][k] >= 0 && (k == 0 || t->word[i][k] != t->word[i][k - 1]);
}
static inline int gx_labelled_row(const GxLabelledWords *t, int64_t i, int64_t k) // 1: token k is a row
{
    return t->all_tokens ? t->word[i][k] >= 0 : gx_labelled_begins(t, i, k);
}
static inline int32_t gx_labelled_class(const GxLabelledWords *t, int64_t i, int64_t k) // of a row
{
    const int32_t class_ = t->class_[t->word[i][k]];
    return gx_labelled_begins(t, i, k) ? class_ : t->inside[class_];
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LABELLED_WORDS_IMPLEMENTED)
#define GX_LABELLED_WORDS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../base/random.h"

// ---- parts ---------------------------------------------------------------------------------------------------------

// A pseudo-random number in [0, 1), the hash of a sentence's words.
static double gx__labelled_place(const GxTaggedWords *f, int64_t i)
{
    uint64_t hash = GX_HASH_START;
    for (int64_t w = f->begin[i]; w < f->begin[i + 1]; w++) {
        const char *word = gx_tagged_word(f, w);
        hash = gx_hash(hash, word, (int64_t)strlen(word) + 1);
    }
    return (double)gx_random_uniform(hash, 0, 0, gx_random_site(GX_SITE_SHUFFLE, 2));
}

GxStatus gx_labelled_words_open(GxLabelledWords *t, const GxTaggedWords *f, GxTextsPart part, double held_out,
                                GxError *err)
{
    memset(t, 0, sizeof *t);
    t->file = f;
    t->sentence = (int64_t *)malloc((size_t)f->n * sizeof *t->sentence);
    if (!t->sentence) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld sentences", (long)f->n);
    for (int64_t i = 0; i < f->n; i++) {
        const GxTextsPart of = part == GX_TEXTS_ALL                  ? part
                               : gx__labelled_place(f, i) < held_out ? GX_TEXTS_HELD_OUT
                                                                     : GX_TEXTS_TRAINING;
        if (part == of) t->sentence[t->n++] = i;
    }
    if (t->n > 0) return GX_OK;
    gx_labelled_words_close(t);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: of %ld sentence%s none is %s with --validation_fraction %g; give more sentences, another "
                   "fraction, or a file with --validation_data",
                   f->path, (long)f->n, gx_text_s(f->n),
                   part == GX_TEXTS_HELD_OUT ? "held out for validation" : "left for training", held_out);
}

void gx_labelled_words_close(GxLabelledWords *t)
{
    for (int64_t i = 0; i < t->n && t->ids; i++) free(t->ids[i]), free(t->word[i]);
    free(t->sentence), free(t->ids), free(t->word), free(t->length), free(t->first);
    free(t->class_), free(t->inside), free(t->count);
    memset(t, 0, sizeof *t);
}

// ---- labels --------------------------------------------------------------------------------------------------------

// The first labels of a list, for messages: "O, B-PER, I-PER, ...".
static const char *gx__labelled_list(const GxLabels *l, char list[160])
{
    list[0] = 0;
    for (int i = 0; i < l->n; i++) {
        const size_t at = strlen(list);
        if (snprintf(list + at, 160 - at, "%s%s", i ? ", " : "", l->name[i]) < (int)(160 - at)) continue;
        gx_text_mark_cut(list, 160);
        break;
    }
    return list;
}

static GxStatus gx__labelled_word(GxLabelledWords *t, int64_t i, int64_t w, const GxLabels *labels, const char *from,
                                  GxError *err)
{
    const GxTaggedWords *f = t->file;
    char list[160], word[60], label[60];
    const char *said = gx_text_cut(gx_tagged_word(f, w), word, sizeof word);
    const long line = (long)gx_tagged_line(f, i, w), number = (long)(w - f->begin[i]) + 1;
    if (f->has_numbers && (f->label[w] < 0 || f->label[w] >= labels->n))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: word %ld (\"%s\") has the label %ld; expected 0 to %d, the number of one of: %s; %s",
                       f->path, line, number, said, (long)f->label[w], labels->n - 1, gx__labelled_list(labels, list),
                       from);
    const int class_ = f->has_numbers ? (int)f->label[w] : gx_labels_find(labels, gx_tagged_label(f, w));
    if (class_ < 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: word %ld (\"%s\") has the label \"%s\"; expected one of: %s; %s",
                       f->path, line, number, said, gx_text_cut(gx_tagged_label(f, w), label, sizeof label),
                       gx__labelled_list(labels, list), from);
    t->class_[w] = class_;
    return GX_OK;
}

static GxStatus gx__labelled_sentence(GxLabelledWords *t, int64_t i, const GxLabels *labels, const char *from,
                                      GxError *err)
{
    const int64_t *begin = t->file->begin + i;
    for (int64_t w = begin[0]; w < begin[1]; w++) GX_TRY(gx__labelled_word(t, i, w, labels, from, err));
    for (int64_t w = begin[0]; w < begin[1]; w++) t->count[t->class_[w]]++;
    return GX_OK;
}

// B-X becomes I-X in a word's other tokens, if there is such a label, as in transformers' run_ner.
static void gx__labelled_set_inside(GxLabelledWords *t, const GxLabels *labels)
{
    char name[GX_LABEL_BYTES + 1];
    for (int l = 0; l < labels->n; l++) {
        t->inside[l] = l;
        if (strncmp(labels->name[l], "B-", 2) != 0) continue;
        snprintf(name, sizeof name, "I-%s", labels->name[l] + 2);
        const int found = gx_labels_find(labels, name);
        if (found >= 0) t->inside[l] = found;
    }
}

GxStatus gx_labelled_words_label(GxLabelledWords *t, const GxLabels *labels, const char *from, GxBadRecords *skip,
                                 GxError *err)
{
    const int64_t all = t->n, skipped = skip ? skip->n : 0;
    GxBadLines bad = GX_ZERO;
    bad.skip = skip;
    t->class_ = (int32_t *)calloc((size_t)t->file->words + 1, sizeof *t->class_);
    t->inside = (int32_t *)calloc((size_t)labels->n + 1, sizeof *t->inside);
    t->count = (int64_t *)calloc((size_t)labels->n + 1, sizeof *t->count);
    if (!t->class_ || !t->inside || !t->count)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the labels of %ld words", (long)t->file->words);
    gx__labelled_set_inside(t, labels);
    t->n = 0;
    for (int64_t i = 0; i < all && gx_bad_lines_goes_on(&bad); i++) {
        const int64_t sentence = t->sentence[i], line = t->file->line[sentence];
        GxError e = GX_ZERO;
        const int is_right = gx__labelled_sentence(t, sentence, labels, from, &e) == GX_OK;
        if (is_right) t->sentence[t->n++] = sentence; // closes the gaps of those that are left out
        else if (!gx_bad_lines_add(&bad, line, &e)) break;
        gx_bad_lines_pass(&bad, line, 0);
    }
    GX_TRY(gx_bad_lines_fail(&bad, 1, err));
    if (t->n > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: no sentence is left, because all have wrong labels; the first: %s",
                   t->file->path, skip->why[gx_min(skipped, GX_BAD_RECORDS - 1)]);
}

// ---- tokens --------------------------------------------------------------------------------------------------------

typedef struct { // the tokens of a sentence, without a frame
    int32_t *ids, *word;
    int64_t n, capacity;
} gx__LabelledRoom;

static GxStatus gx__labelled_reserve(gx__LabelledRoom *r, int64_t more, GxError *err)
{
    if (r->n + more <= r->capacity) return GX_OK;
    const int64_t capacity = r->n + more + r->capacity;
    int32_t *ids = (int32_t *)realloc(r->ids, (size_t)capacity * sizeof *ids);
    if (ids) r->ids = ids;
    int32_t *word = (int32_t *)realloc(r->word, (size_t)capacity * sizeof *word);
    if (word) r->word = word;
    if (!ids || !word) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of a sentence");
    r->capacity = capacity;
    return GX_OK;
}

// Writes the tokens of all words; *empty: how many words have none.
static GxStatus gx__labelled_encode(const GxLabelledWords *t, int64_t i, const GxTokenizer *tokenizer,
                                    gx__LabelledRoom *r, int64_t *empty, GxError *err)
{
    const GxTaggedWords *f = t->file;
    const int64_t sentence = t->sentence[i];
    r->n = *empty = 0;
    for (int64_t w = f->begin[sentence]; w < f->begin[sentence + 1]; w++) {
        const char *word = gx_tagged_word(f, w);
        const int64_t bytes = (int64_t)strlen(word);
        int64_t n = 0;
        GX_TRY(gx__labelled_reserve(r, gx_tokenizer_most(tokenizer, bytes + 1), err));
        if (bytes)
            GX_TRY(
                gx_tokenizer_encode(tokenizer, word, bytes, gx_tokenizer_special(tokenizer), r->ids + r->n, &n, err));
        for (int64_t k = 0; k < n; k++) r->word[r->n + k] = (int32_t)w;
        r->n += n, *empty += n == 0;
    }
    return GX_OK;
}

// How many words of [0, n) tokens there are.
static int64_t gx__labelled_words(const gx__LabelledRoom *r, int64_t n)
{
    int64_t words = 0;
    for (int64_t k = 0; k < n; k++) words += k == 0 || r->word[k] != r->word[k - 1];
    return words;
}

// Puts the frame around the tokens, cuts them to T, and keeps them as sentence i.
static GxStatus gx__labelled_keep(GxLabelledWords *t, int64_t i, const GxTokenizer *tokenizer, int64_t T,
                                  const gx__LabelledRoom *r, int64_t *lost, GxError *err)
{
    const GxTokenTexts text = {r->ids, NULL, r->n, 0};
    const int64_t before = gx_tokenizer_frame_before(tokenizer), frame = gx_tokenizer_frame_tokens(tokenizer, 1);
    int64_t n = gx_min(T, r->n + frame);
    t->ids[i] = (int32_t *)malloc((size_t)n * sizeof **t->ids);
    t->word[i] = (int32_t *)malloc((size_t)n * sizeof **t->word);
    if (!t->ids[i] || !t->word[i])
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %ld sentences", (long)t->n);
    const int64_t kept = n - frame;
    for (int64_t k = 0; k < n; k++) {
        const int is_of_frame = k < before || k >= before + kept;
        t->word[i][k] = is_of_frame ? -1 : r->word[k - before];
    }
    t->length[i] = (int32_t)n;
    *lost = gx__labelled_words(r, r->n) - gx__labelled_words(r, kept);
    return gx_tokenizer_join(tokenizer, &text, T, t->ids[i], NULL, &n, NULL, err);
}

static void gx__labelled_move(GxLabelledWords *t, int64_t from, int64_t to)
{
    if (from == to) return;
    t->ids[to] = t->ids[from], t->word[to] = t->word[from];
    t->ids[from] = t->word[from] = NULL;
    t->length[to] = t->length[from], t->sentence[to] = t->sentence[from];
}

// Sentences without tokens, whose length is 0.
static GxStatus gx__labelled_drop_empty(GxLabelledWords *t, GxBadRecords *skip, GxError *err)
{
    const GxTaggedWords *f = t->file;
    const int64_t all = t->n;
    GxBadLines bad = GX_ZERO;
    bad.skip = skip, t->n = 0;
    for (int64_t i = 0; i < all; i++) {
        const int64_t sentence = t->sentence[i], line = f->line[sentence];
        GxError e = GX_ZERO;
        gx_bad_lines_pass(&bad, line, 0);
        if (t->length[i] > 0) {
            gx__labelled_move(t, i, t->n++);
            continue;
        }
        GX_FAIL(&e, GX_ERR_FORMAT, "%s:%ld: the sentence has no tokens; expected some text", f->path, (long)line);
        gx_bad_lines_add(&bad, line, &e);
        for (int64_t w = f->begin[sentence]; w < f->begin[sentence + 1] && t->class_; w++) t->count[t->class_[w]]--;
    }
    GX_TRY(gx_bad_lines_fail(&bad, 1, err));
    if (t->n > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: no sentence is left, because none has tokens; expected some text", f->path);
}

GxStatus gx_labelled_words_tokenize(GxLabelledWords *t, const GxTokenizer *tokenizer, int64_t T, int all_tokens,
                                    GxBadRecords *skip, int threads, GxError *err)
{
    const size_t n = (size_t)t->n;
    const int team = threads > 0 ? threads : 1;
    int64_t cut = 0, longest = 0, all_lost = 0, all_empty = 0;
    (void)team; // unused without OpenMP
    t->all_tokens = all_tokens && t->class_;
    t->ids = (int32_t **)calloc(n, sizeof *t->ids);
    t->word = (int32_t **)calloc(n, sizeof *t->word);
    t->length = (int32_t *)calloc(n, sizeof *t->length);
    t->first = (int64_t *)calloc(n + 1, sizeof *t->first);
    if (!t->ids || !t->word || !t->length || !t->first)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %ld sentences", (long)t->n);
    GX_OMP(parallel num_threads(team) reduction(+ : cut, all_lost, all_empty) reduction(max : longest))
    {
        gx__LabelledRoom room = GX_ZERO;
        GX_OMP(for schedule(dynamic, 64))
        for (int64_t i = 0; i < t->n; i++) {
            int64_t lost = 0, empty = 0;
            if (gx_error_code(err)) continue;
            if (gx__labelled_encode(t, i, tokenizer, &room, &empty, err) != GX_OK || !room.n) continue;
            const int64_t tokens = room.n + gx_tokenizer_frame_tokens(tokenizer, 1);
            gx__labelled_keep(t, i, tokenizer, T, &room, &lost, err);
            cut += tokens > T, longest = gx_max(longest, tokens), all_lost += lost, all_empty += empty;
        }
        free(room.ids), free(room.word);
    }
    GX_TRY(gx_error_code(err));
    GX_TRY(gx__labelled_drop_empty(t, skip, err));
    t->cut = cut, t->longest = longest, t->lost = all_lost, t->empty = all_empty;
    for (int64_t i = 0; i < t->n; i++) {
        t->first[i + 1] = t->first[i];
        for (int64_t k = 0; k < t->length[i]; k++) t->first[i + 1] += gx_labelled_row(t, i, k);
    }
    return GX_OK;
}
#endif
