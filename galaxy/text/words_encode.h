// words_encode.h: turns text into tokens: added tokens, the normalizer (words_normalize.h), the pre-tokenizer, and the
// model on each word, in the order that words.h describes.
//
// No step keeps a list of words: each part that a step produces passes through all later steps before the next part is
// produced.
#ifndef GX_WORDS_ENCODE_H
#define GX_WORDS_ENCODE_H
#include "words.h"
GX_BEGIN

// A function of a GxTokenizerKind (tokenizer_kind.h).
GxStatus gx_words_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special, int32_t *ids,
                         int64_t *n, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_ENCODE_IMPLEMENTED)
#define GX_WORDS_ENCODE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "byte_tokens.h"
#include "words_normalize.h"

// ---- the pre-tokenizer ---------------------------------------------------------------------------------------------

typedef struct { // the state of an encoding
    const GxWords *v;
    GxSpecialTokens special;
    GxWordBytes clean, normal, made[GX_WORDS_STEPS]; // made: the output of each step of the pre-tokenizer
    GxRegexRoom regex;
    void *room; // the model's
    int32_t *ids;
    int64_t n;
    GxError *err;
} gx__WordsWork;

// Applies the steps of the pre-tokenizer from `step` on to text[n], and the model to the resulting words. is_first: the
// part begins where the whole text does.
static GxStatus gx__words_cut(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first);

static GxStatus gx__words_split(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    const GxWordStep *s = &w->v->pre_tokenizer.step[step];
    for (int64_t at = 0, start, end; at < n; at = end) {
        GX_TRY(gx_regex_find(s->regex, &w->regex, text, n, at, &start, &end, w->err));
        if (start < 0) start = end = n;
        if (s->keeps == GX_WORDS_JOINED) GX_TRY(gx__words_cut(w, step + 1, text + at, end - at, is_first && at == 0));
        if (start > at && (s->keeps & GX_WORDS_GAPS))
            GX_TRY(gx__words_cut(w, step + 1, text + at, start - at, is_first && at == 0));
        if (end > start && (s->keeps & GX_WORDS_MATCHES))
            GX_TRY(gx__words_cut(w, step + 1, text + start, end - start, is_first && start == 0));
    }
    return GX_OK;
}

static GxStatus gx__words_spaces(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    for (int64_t at = gx_words_space_behind(text, n, 0), end; at < n; at = gx_words_space_behind(text, n, end)) {
        for (end = at; end < n;) {
            uint32_t c;
            const int bytes = gx_unicode_decode(text + end, text + n, &c);
            if (gx_unicode_is_space(c)) break;
            end += bytes;
        }
        GX_TRY(gx__words_cut(w, step + 1, text + at, end - at, is_first && at == 0));
    }
    return GX_OK;
}

static GxStatus gx__words_digits(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    const int each = (int)w->v->pre_tokenizer.step[step].keeps;
    int64_t done = 0;
    int was_number = 0;
    for (int64_t i = 0; i < n;) {
        uint32_t c;
        const int bytes = gx_unicode_decode(text + i, text + n, &c), is_number = gx_unicode_is_number(c);
        if (i > done && (is_number != was_number || (each && is_number))) {
            GX_TRY(gx__words_cut(w, step + 1, text + done, i - done, is_first && done == 0));
            done = i;
        }
        was_number = is_number;
        i += bytes;
    }
    return gx__words_cut(w, step + 1, text + done, n - done, is_first && done == 0);
}

static GxStatus gx__words_prefix(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    GxWordBytes *made = &w->made[step];
    if (text[0] == ' ') return gx__words_cut(w, step + 1, text, n, is_first);
    made->n = 0;
    GX_TRY(gx_word_bytes_put(made, " ", 1, w->err));
    GX_TRY(gx_word_bytes_put(made, text, n, w->err));
    return gx__words_cut(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__words_bytes(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    GxWordBytes *made = &w->made[step];
    made->n = 0;
    GX_TRY(gx_word_bytes_reserve(made, 2 * n + 1, w->err));
    for (int64_t i = 0; i < n; i++) made->n += gx_byte_character((unsigned char)text[i], made->p + made->n);
    return gx__words_cut(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__words_metaspace(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    static char space[] = " ";
    const GxWordStep *s = &w->v->pre_tokenizer.step[step];
    const GxWordStep replace = {GX_WORDS_REPLACE, 0, space, s->text, 1, s->text_n, NULL, NULL};
    GxWordBytes *made = &w->made[step];
    const int begins = text[0] == ' ' || gx_words_is_at(text, n, s->text, s->text_n);
    made->n = 0;
    if (!begins && (s->keeps == GX_WORDS_ALWAYS || (s->keeps == GX_WORDS_FIRST && is_first)))
        GX_TRY(gx_word_bytes_put(made, s->text, s->text_n, w->err));
    GX_TRY(gx_words_replace(&replace, text, n, made, w->err));
    return gx__words_cut(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__words_before(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    const GxWordStep *s = &w->v->pre_tokenizer.step[step];
    int64_t done = 0;
    for (int64_t i = 1; i < n; i++) {
        if (!gx_words_is_at(text + i, n - i, s->text, s->text_n)) continue;
        GX_TRY(gx__words_cut(w, step + 1, text + done, i - done, is_first && done == 0));
        done = i;
    }
    return gx__words_cut(w, step + 1, text + done, n - done, is_first && done == 0);
}

static GxStatus gx__words_cut(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    if (n == 0) return GX_OK;
    if (step == w->v->pre_tokenizer.n) {
        int64_t more;
        GX_TRY(w->v->model->word(w->v, w->room, text, n, w->ids + w->n, &more, w->err));
        w->n += more;
        return GX_OK;
    }
    switch (w->v->pre_tokenizer.step[step].kind) {
    case GX_WORDS_SPLIT: return gx__words_split(w, step, text, n, is_first);
    case GX_WORDS_SPACES: return gx__words_spaces(w, step, text, n, is_first);
    case GX_WORDS_DIGITS: return gx__words_digits(w, step, text, n, is_first);
    case GX_WORDS_PREFIX: return gx__words_prefix(w, step, text, n, is_first);
    case GX_WORDS_BYTES: return gx__words_bytes(w, step, text, n, is_first);
    case GX_WORDS_METASPACE: return gx__words_metaspace(w, step, text, n, is_first);
    default: return gx__words_before(w, step, text, n, is_first);
    }
}

// ---- added tokens --------------------------------------------------------------------------------------------------

static const GxWordAdded *gx__words_added_at(const GxWords *v, int normalized, const char *text, int64_t n)
{
    const GxWordAdded *best = NULL;
    if (!v->leads[normalized][(unsigned char)text[0]]) return NULL;
    for (int i = 0; i < v->added_n; i++) {
        const GxWordAdded *a = &v->added[i];
        if (a->normalized == normalized && (!best || a->bytes > best->bytes) &&
            gx_words_is_at(text, n, a->pattern, a->bytes))
            best = a;
    }
    return best;
}

// Where the white space before text[end] begins, but not before text[begin].
static GxStatus gx__words_added(gx__WordsWork *w, const char *text, int64_t n, int normalized, int is_first);
static GxStatus gx__words_between(gx__WordsWork *w, const char *text, int64_t n, int normalized, int is_first)
{
    if (n == 0) return GX_OK;
    if (normalized) return gx__words_cut(w, 0, text, n, is_first);
    if (w->v->normalizer.n == 0) return gx__words_added(w, text, n, 1, is_first);
    int moved = 0;
    GX_TRY(gx_words_normalize(&w->v->normalizer, text, n, &w->normal, &moved, w->err));
    return gx__words_added(w, w->normal.p, w->normal.n, 1, is_first && !moved);
}

// Encodes a text: finds the added tokens in it, those that match normalised text or the others, and passes on the text
// between them.
static GxStatus gx__words_added(gx__WordsWork *w, const char *text, int64_t n, int normalized, int is_first)
{
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        const GxWordAdded *a = gx__words_added_at(w->v, normalized, text + i, n - i);
        int64_t first = i, end = i + (a ? a->bytes : 1);
        i = end;
        if (!a || (a->special && w->special == GX_SPECIAL_AS_TEXT)) continue;
        if (a->lstrip) first = gx_words_space_before(text, done, first);
        if (a->rstrip) end = gx_words_space_behind(text, n, end);
        GX_TRY(gx__words_between(w, text + done, first - done, normalized, is_first && done == 0));
        w->ids[w->n++] = a->id;
        i = done = end;
    }
    return gx__words_between(w, text + done, n - done, normalized, is_first && done == 0);
}

GxStatus gx_words_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special, int32_t *ids,
                         int64_t *n, GxError *err)
{
    gx__WordsWork w = GX_ZERO;
    w.v = (const GxWords *)t->vocabulary, w.special = special, w.ids = ids, w.err = err;
    w.room = calloc(1, (size_t)w.v->model->room);
    GxStatus status = w.room ? gx_words_clean(text, bytes, &w.clean, err)
                             : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)bytes);
    if (status == GX_OK) status = gx__words_added(&w, w.clean.p, w.clean.n, 0, 1);
    *n = status == GX_OK ? w.n : 0;
    gx_word_bytes_close(&w.clean);
    gx_word_bytes_close(&w.normal);
    for (int i = 0; i < GX_WORDS_STEPS; i++) gx_word_bytes_close(&w.made[i]);
    gx_regex_room_close(&w.regex);
    if (w.room) w.v->model->room_close(w.room);
    free(w.room);
    return status;
}
#endif
