// task/bleu.h: BLEU of a corpus: how many of the runs of one to four words of the written texts are in their targets
// (Papineni et al. 2002, BLEU: a Method for Automatic Evaluation of Machine Translation). The number is that of the
// package sacrebleu (2.6) with its defaults: one target for each text, the tokenizer 13a, upper and lower case apart,
// and NIST's smoothing.
//
//     GxBleu b = GX_ZERO;
//     GX_TRY(gx_bleu_add(&b, written, target, err)); // for each text
//     double score = gx_bleu_score(&b);              // 0 to 100
//
// Counts are summed over the corpus before they are divided, so ranks can sum theirs; a mean over texts would be
// another number. The tokenizer is for languages that put spaces between words.
#ifndef GX_BLEU_H
#define GX_BLEU_H
#include "../base/status.h"
GX_BEGIN

enum { GX_BLEU_ORDERS = 4 };
typedef struct {                                            // sums over texts; all 0 at first
    int64_t right[GX_BLEU_ORDERS], written[GX_BLEU_ORDERS]; // n-grams of written texts: in the target, too; all
    int64_t written_words, target_words;
} GxBleu;
GxStatus gx_bleu_add(GxBleu *b, const char *written, const char *target, GxError *err); // both are UTF-8
// min(1, exp(1 - target words / written words)) * exp(mean_n log(right[n] / written[n])), times 100. An order of which
// nothing is right counts as 1 / (2^k written[n]), the k-th such one. 0 if no word is right, or if no text has four.
double gx_bleu_score(const GxBleu *b);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BLEU_IMPLEMENTED)
#define GX_BLEU_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../text/unicode.h"
#include "ngrams.h"

// ---- the tokenizer 13a of mteval-v13a.pl ---------------------------------------------------------------------------

typedef struct {
    char *text;
    int64_t n;
} gx__BleuText;

static void gx__bleu_put(gx__BleuText *to, char c) { to->text[to->n++] = c; }

static int gx__bleu_skips(const char **p, const char *end, const char *what)
{
    const size_t n = strlen(what);
    if ((size_t)(end - *p) < n || memcmp(*p, what, n)) return 0;
    *p += n;
    return 1;
}

// Replaces `what` everywhere.
static void gx__bleu_replace(gx__BleuText *t, const char *what, const char *by)
{
    const char *p = t->text, *end = t->text + t->n;
    int64_t n = 0;
    while (p < end) {
        if (!gx__bleu_skips(&p, end, what)) {
            t->text[n++] = *p++;
            continue;
        }
        for (const char *c = by; *c; c++) t->text[n++] = *c; // never longer than what it replaces
    }
    t->n = n;
}

static int gx__bleu_is_digit(char c) { return c >= '0' && c <= '9'; }
static int gx__bleu_is_point(char c) { return c == '.' || c == ','; }
// ASCII's marks but . , - and '
static int gx__bleu_is_mark(char c) { return c && strchr("{|}~[\\]^_` !\"#$%&()*+:;<=>?@/", c) != NULL; }

// One pass over the text, which puts spaces around what `rule` finds in two neighboring bytes: 1: `x` alone is set off;
// 2: there is a space between x and y and behind y; 3: before x and between them; 0: nothing. What a rule has found is
// not looked at again. Bytes of characters beyond ASCII are neither digits nor marks, so they can be taken one by one.
static void gx__bleu_pass(gx__BleuText *to, const gx__BleuText *from, int (*rule)(char x, char y))
{
    to->n = 0;
    for (int64_t i = 0; i < from->n; i++) {
        const char x = from->text[i], y = i + 1 < from->n ? from->text[i + 1] : 0;
        const int found = rule(x, y);
        if (found == 1 || found == 3) gx__bleu_put(to, ' ');
        gx__bleu_put(to, x);
        if (found) gx__bleu_put(to, ' ');
        if (found < 2) continue;
        gx__bleu_put(to, y), i++;
        if (found == 2) gx__bleu_put(to, ' ');
    }
}
static int gx__bleu_marks(char x, char y) { return (void)y, gx__bleu_is_mark(x); }
static int gx__bleu_points_behind(char x, char y) { return !gx__bleu_is_digit(x) && gx__bleu_is_point(y) ? 2 : 0; }
static int gx__bleu_points_before(char x, char y) { return gx__bleu_is_point(x) && y && !gx__bleu_is_digit(y) ? 3 : 0; }
static int gx__bleu_dashes(char x, char y) { return gx__bleu_is_digit(x) && y == '-' ? 2 : 0; }

static void gx__bleu_strip_end(gx__BleuText *t)
{
    int64_t kept = 0;
    uint32_t c;
    for (const char *p = t->text, *end = t->text + t->n; p < end;) {
        p += gx_unicode_decode(p, end, &c);
        if (!gx_unicode_is_python_space(c)) kept = p - t->text;
    }
    t->n = kept;
}

static GxStatus gx__bleu_split(GxWordList *w, const gx__BleuText *t, GxError *err)
{
    const char *end = t->text + t->n, *begin = t->text;
    uint32_t c;
    for (const char *p = t->text; p < end;) {
        const char *at = p;
        p += gx_unicode_decode(p, end, &c);
        if (!gx_unicode_is_python_space(c)) continue;
        if (at > begin) GX_TRY(gx_word_list_add(w, begin, at - begin, err));
        begin = p;
    }
    return end > begin ? gx_word_list_add(w, begin, end - begin, err) : GX_OK;
}

// a, b: scratch of 4 * (bytes + 2) each. A pass adds at most two spaces for each mark, and each mark gets them once or
// twice.
static GxStatus gx__bleu_tokenize(GxWordList *w, const char *text, gx__BleuText *a, gx__BleuText *b, GxError *err)
{
    a->n = (int64_t)strlen(text);
    memcpy(a->text, text, (size_t)a->n);
    gx__bleu_strip_end(a);
    gx__bleu_replace(a, "<skipped>", ""), gx__bleu_replace(a, "-\n", ""), gx__bleu_replace(a, "\n", " ");
    gx__bleu_replace(a, "&quot;", "\""), gx__bleu_replace(a, "&amp;", "&");
    gx__bleu_replace(a, "&lt;", "<"), gx__bleu_replace(a, "&gt;", ">");
    memmove(a->text + 1, a->text, (size_t)a->n);
    a->text[0] = a->text[a->n + 1] = ' ';
    a->n += 2;
    gx__bleu_pass(b, a, gx__bleu_marks), gx__bleu_pass(a, b, gx__bleu_points_behind);
    gx__bleu_pass(b, a, gx__bleu_points_before), gx__bleu_pass(a, b, gx__bleu_dashes);
    return gx__bleu_split(w, a, err);
}

// ---- counts --------------------------------------------------------------------------------------------------------

static GxStatus gx__bleu_count(GxBleu *b, const GxWordList *w, int64_t written, GxError *err)
{
    GxNgrams count[GX_BLEU_ORDERS];
    int32_t *id = NULL;
    GX_TRY(gx_word_list_number(w, &id, err));
    const GxStatus status = gx_ngrams_count(id, written, w->n - written, GX_BLEU_ORDERS, count, err);
    free(id);
    if (status != GX_OK) return status;
    for (int k = 0; k < GX_BLEU_ORDERS; k++) b->right[k] += count[k].common, b->written[k] += count[k].of[0];
    b->written_words += written, b->target_words += w->n - written;
    return GX_OK;
}

GxStatus gx_bleu_add(GxBleu *b, const char *written, const char *target, GxError *err)
{
    const size_t bytes = 4 * (gx_max(strlen(written), strlen(target)) + 2);
    gx__BleuText text[2] = {{(char *)malloc(bytes), 0}, {(char *)malloc(bytes), 0}};
    GxWordList w = GX_ZERO;
    GxStatus status =
        text[0].text && text[1].text ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for the words of a text");
    if (status == GX_OK) status = gx__bleu_tokenize(&w, written, &text[0], &text[1], err);
    const int64_t n = w.n;
    if (status == GX_OK) status = gx__bleu_tokenize(&w, target, &text[0], &text[1], err);
    if (status == GX_OK) status = gx__bleu_count(b, &w, n, err);
    gx_word_list_close(&w);
    free(text[0].text), free(text[1].text);
    return status;
}

double gx_bleu_score(const GxBleu *b)
{
    double logs = 0, smoothing = 1;
    int64_t right = 0;
    for (int k = 0; k < GX_BLEU_ORDERS; k++) right += b->right[k];
    if (!right) return 0;
    for (int k = 0; k < GX_BLEU_ORDERS; k++) {
        if (!b->written[k]) return 0;
        if (!b->right[k]) smoothing *= 2;
        logs += log((b->right[k] ? (double)b->right[k] : 1 / smoothing) / (double)b->written[k]);
    }
    const double brevity =
        b->written_words < b->target_words ? exp(1 - (double)b->target_words / (double)b->written_words) : 1;
    return 100 * brevity * exp(logs / GX_BLEU_ORDERS);
}
#endif
