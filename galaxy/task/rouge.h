// task/rouge.h: ROUGE: how much of a target a written text has, and how much of the text is in the target (Lin 2004,
// ROUGE: A Package for Automatic Evaluation of Summaries), by words (1), pairs of neighbors (2), and the longest
// sequence of words that both have in this order (L). The numbers are those of the package rouge_score (0.1.2).
//
//     GxRouge r;
//     GX_TRY(gx_rouge("the cat sat", "the cats sat down", 1, &r, err)); // r.l.f: 0.857
//
// Words are runs of a to z and 0 to 9 in lower case; all other characters separate them, so that a text without such
// letters has no words, and scores 0. With a stemmer, words of more than three letters are compared by their stems
// (text/porter_stemmer.h); transformers' script for summaries uses it. A corpus has the mean of its texts' scores.
#ifndef GX_ROUGE_H
#define GX_ROUGE_H
#include "../base/status.h"
GX_BEGIN

typedef struct {
    double precision, recall, f; // in [0, 1]; f: 2 precision recall / (precision + recall), or 0
} GxRougeScore;
typedef struct {
    GxRougeScore one, two, l;
} GxRouge;
// Both texts are UTF-8. use_stemmer: 0 or 1.
GxStatus gx_rouge(const char *written, const char *target, int use_stemmer, GxRouge *score, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ROUGE_IMPLEMENTED)
#define GX_ROUGE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../text/porter_stemmer.h"
#include "../text/unicode.h"
#include "ngrams.h"

static GxStatus gx__rouge_word(GxWordList *w, char *word, int64_t n, int use_stemmer, GxError *err)
{
    if (!n) return GX_OK;
    return gx_word_list_add(w, word, use_stemmer && n > 3 ? gx_porter_stem(word, n) : n, err);
}

// Appends the words of a text; word: scratch for the longest one.
static GxStatus gx__rouge_words(GxWordList *w, const char *text, char *word, int use_stemmer, GxError *err)
{
    const char *end = text + strlen(text);
    int64_t n = 0;
    for (const char *p = text; p < end;) {
        uint32_t c, lower[2];
        p += gx_unicode_decode(p, end, &c);
        const int k = gx_unicode_lower(c, lower); // the sign of Kelvin, say, becomes k
        for (int i = 0; i < k; i++) {
            if ((lower[i] >= 'a' && lower[i] <= 'z') || (lower[i] >= '0' && lower[i] <= '9')) {
                word[n++] = (char)lower[i];
                continue;
            }
            GX_TRY(gx__rouge_word(w, word, n, use_stemmer, err));
            n = 0;
        }
    }
    return gx__rouge_word(w, word, n, use_stemmer, err);
}

static GxRougeScore gx__rouge_score(int64_t common, int64_t written, int64_t target)
{
    GxRougeScore s;
    s.precision = (double)common / (double)gx_max(written, 1);
    s.recall = (double)common / (double)gx_max(target, 1);
    s.f = common ? 2 * s.precision * s.recall / (s.precision + s.recall) : 0;
    return s;
}

static GxStatus gx__rouge_of_words(const GxWordList *w, int64_t written, GxRouge *score, GxError *err)
{
    int32_t *id = NULL;
    GxNgrams count[2];
    int64_t common = 0;
    GX_TRY(gx_word_list_number(w, &id, err));
    GxStatus status = gx_ngrams_count(id, written, w->n - written, 2, count, err);
    if (status == GX_OK) status = gx_longest_common(id, written, w->n - written, &common, err);
    free(id);
    if (status != GX_OK) return status;
    score->one = gx__rouge_score(count[0].common, count[0].of[0], count[0].of[1]);
    score->two = gx__rouge_score(count[1].common, count[1].of[0], count[1].of[1]);
    score->l = gx__rouge_score(common, written, w->n - written);
    return GX_OK;
}

GxStatus gx_rouge(const char *written, const char *target, int use_stemmer, GxRouge *score, GxError *err)
{
    GxWordList w = GX_ZERO;
    char *word = (char *)malloc(gx_max(strlen(written), strlen(target)) + 1);
    if (!word) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the words of a text");
    GxStatus status = gx__rouge_words(&w, written, word, use_stemmer, err);
    const int64_t n = w.n;
    if (status == GX_OK) status = gx__rouge_words(&w, target, word, use_stemmer, err);
    if (status == GX_OK) status = gx__rouge_of_words(&w, n, score, err);
    gx_word_list_close(&w);
    free(word);
    return status;
}
#endif
