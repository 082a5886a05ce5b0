// bpe_text.h: what stands between a text and the words of BPE (bpe.h): added tokens, the normalizer, the pre-tokenizer,
// and the decoder that goes the way back. Each is a row of steps, named and working as in tokenizer.json, which
// bpe_files.h reads.
//
// A text goes through these, with the same result as in Hugging Face's `tokenizers` 0.23:
//   1. added tokens (<|endoftext|>, …) are found: the leftmost, of those the longest; first those that are not
//      normalised, in the text as it is, then the others, in what step 2 makes of the text between
//   2. the normalizer: NFC; something put before the text; one thing replaced by another
//   3. the pre-tokenizer: words by a regular expression, digits apart, ▁ for spaces, a character for each byte
//   4. each word by itself: gx_bpe_word
//
// Bytes that are not UTF-8 are U+FFFD (unicode.h). In decoding they become U+FFFD, too, as `tokenizers` has it: one for
// each longest beginning of a character that is cut off (ByteLevel), or, where a row of byte pieces is not UTF-8 as a
// whole, one for each byte of it (ByteFallback).
#ifndef GX_BPE_TEXT_H
#define GX_BPE_TEXT_H
#include "bpe.h"
#include "regex.h"
#include "tokenizer_kind.h"
GX_BEGIN

typedef enum {
    // normalizer
    GX_BPE_NFC,
    GX_BPE_PREPEND, // text
    GX_BPE_REPLACE, // text by content; also a decoder
    // pre-tokenizer
    GX_BPE_SPLIT,     // regex; keeps: GX_BPE_MATCHES | GX_BPE_GAPS
    GX_BPE_DIGITS,    // keeps: 1 each by itself, 0 a row of them
    GX_BPE_PREFIX,    // a space before what begins with none
    GX_BPE_BYTES,     // a character for each byte; also a decoder
    GX_BPE_METASPACE, // text for spaces, and before a text by `keeps`: GX_BPE_NEVER, …; also a decoder
    GX_BPE_BEFORE,    // a word begins at each text
    // decoder
    GX_BPE_BYTE_FALLBACK,
    GX_BPE_FUSE,
    GX_BPE_STRIP // up to `keeps` of text at the beginning of a token
} GxBpeStepKind;
enum { GX_BPE_TOO_MANY = 1 << 20 }; // tokens for a byte, or bytes for a token: no tokenizer has so many
enum { GX_BPE_STEPS = 16, GX_BPE_MATCHES = 1, GX_BPE_GAPS = 2, GX_BPE_NEVER = 0, GX_BPE_FIRST = 1, GX_BPE_ALWAYS = 2 };
typedef struct {
    GxBpeStepKind kind;
    int64_t keeps;
    char *text, *content; // NULL: none
    int64_t text_n, content_n;
    GxRegex *regex;
} GxBpeStep;
typedef struct {
    GxBpeStep step[GX_BPE_STEPS];
    int n;
} GxBpeSteps;

typedef struct {
    char *pattern; // what it is in a text: normalised, if it is
    int64_t bytes;
    int32_t id;
    int special, normalized, lstrip, rstrip; // lstrip: takes the white space before it along
} GxBpeAdded;

typedef struct { // a tokenizer; it is only read
    GxBpe model;
    GxBpeSteps normalizer, pre_tokenizer, decoder;
    int has_decoder;
    GxBpeAdded *added; // special ones first
    int added_n;
    unsigned char leads[2][256]; // [normalized]: 1: one begins with this byte
    char *file[4];               // the files it was read from, as they are (bpe_files.h)
    int64_t file_n[4];
} GxBpeTokenizer;

typedef struct { // bytes that grow as needed
    char *p;
    int64_t n, capacity;
} GxBpeBytes;

void gx_bpe_steps_close(GxBpeSteps *s);
// Step 2 on text[n], into `out`, which is made empty before.
GxStatus gx_bpe_normalize(const GxBpeSteps *s, const char *text, int64_t n, GxBpeBytes *out, GxError *err);
int gx_bpe_tokens_for_byte(const GxBpeTokenizer *v); // at most; GX_BPE_TOO_MANY: or more
// The functions of a GxTokenizerKind (tokenizer_kind.h).
GxStatus gx_bpe_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special, int32_t *ids,
                       int64_t *n, GxError *err);
GxStatus gx_bpe_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                       int64_t *bytes, GxError *err);
int gx_bpe_longest(const GxBpeTokenizer *v); // bytes of decoded text for a token, at most; GX_BPE_TOO_MANY: or more

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BPE_TEXT_IMPLEMENTED)
#define GX_BPE_TEXT_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "byte_tokens.h"

// ---- bytes ---------------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_room_for(GxBpeBytes *b, int64_t more, GxError *err)
{
    if (b->n + more <= b->capacity) return GX_OK;
    const int64_t capacity = gx_max(b->n + more, 2 * b->capacity);
    char *grown = (char *)realloc(b->p, (size_t)capacity);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)capacity);
    b->p = grown;
    b->capacity = capacity;
    return GX_OK;
}

static GxStatus gx__bpe_put(GxBpeBytes *b, const char *text, int64_t n, GxError *err)
{
    GX_TRY(gx__bpe_room_for(b, n, err));
    if (n > 0) memcpy(b->p + b->n, text, (size_t)n);
    b->n += n;
    return GX_OK;
}

static void gx__bpe_free(GxBpeBytes *b)
{
    free(b->p);
    memset(b, 0, sizeof *b);
}

static int gx__bpe_is_at(const char *text, int64_t n, const char *what, int64_t bytes)
{
    return n >= bytes && !memcmp(text, what, (size_t)bytes);
}

void gx_bpe_steps_close(GxBpeSteps *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->step[i].text);
        free(s->step[i].content);
        if (s->step[i].regex) gx_regex_close(s->step[i].regex);
    }
    memset(s, 0, sizeof *s);
}

// text[n] as UTF-8: U+FFFD for what is not.
static GxStatus gx__bpe_clean(const char *text, int64_t n, GxBpeBytes *out, GxError *err)
{
    out->n = 0;
    for (const char *p = text, *end = text + n, *done = text; p <= end;) {
        uint32_t c = 0;
        const int bytes = p < end ? gx_unicode_decode(p, end, &c) : 1,
                  is_bad = c == GX_REPLACEMENT && !(bytes == 3 && (unsigned char)*p == 0xEF);
        if (is_bad || p == end) {
            GX_TRY(gx__bpe_put(out, done, p - done, err));
            if (is_bad) GX_TRY(gx__bpe_put(out, "\xEF\xBF\xBD", 3, err));
            done = p + bytes;
        }
        p += bytes;
    }
    return GX_OK;
}

// ---- the normalizer ------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_nfc(GxBpeBytes *text, GxError *err)
{
    GxCharacters c = GX_ZERO, composed = GX_ZERO;
    int64_t plain = 0;
    while (plain < text->n && (unsigned char)text->p[plain] < 0xCC) plain++; // up to U+02FF nothing changes
    if (plain == text->n) return GX_OK;
    GxStatus status = gx_characters_read(&c, text->p, text->n, err);
    if (status == GX_OK) status = gx_characters_reserve(&composed, GX_NFD_MOST * c.n, err);
    if (status == GX_OK) status = gx_unicode_nfc(c.c, c.n, composed.c, &composed.n, err);
    text->n = 0;
    if (status == GX_OK) status = gx__bpe_room_for(text, 4 * composed.n, err);
    for (int64_t i = 0; status == GX_OK && i < composed.n; i++)
        text->n += gx_unicode_encode(composed.c[i], text->p + text->n);
    gx_characters_close(&c);
    gx_characters_close(&composed);
    return status;
}

// out: text[n] with s->content for each s->text.
static GxStatus gx__bpe_replace(const GxBpeStep *s, const char *text, int64_t n, GxBpeBytes *out, GxError *err)
{
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        if (!gx__bpe_is_at(text + i, n - i, s->text, s->text_n)) {
            i++;
            continue;
        }
        GX_TRY(gx__bpe_put(out, text + done, i - done, err));
        GX_TRY(gx__bpe_put(out, s->content, s->content_n, err));
        done = i += s->text_n;
    }
    return gx__bpe_put(out, text + done, n - done, err);
}

static GxStatus gx__bpe_normalize_step(const GxBpeStep *s, GxBpeBytes *text, GxBpeBytes *spare, GxError *err)
{
    const GxBpeBytes other = *text;
    if (s->kind == GX_BPE_NFC) return gx__bpe_nfc(text, err);
    spare->n = 0;
    if (s->kind == GX_BPE_PREPEND && text->n > 0) GX_TRY(gx__bpe_put(spare, s->text, s->text_n, err));
    if (s->kind == GX_BPE_PREPEND) GX_TRY(gx__bpe_put(spare, text->p, text->n, err));
    else GX_TRY(gx__bpe_replace(s, text->p, text->n, spare, err));
    *text = *spare;
    *spare = other;
    return GX_OK;
}

GxStatus gx_bpe_normalize(const GxBpeSteps *s, const char *text, int64_t n, GxBpeBytes *out, GxError *err)
{
    GxBpeBytes spare = GX_ZERO;
    out->n = 0;
    GxStatus status = gx__bpe_put(out, text, n, err);
    for (int i = 0; i < s->n && status == GX_OK; i++) status = gx__bpe_normalize_step(&s->step[i], out, &spare, err);
    gx__bpe_free(&spare);
    return status;
}

// ---- the pre-tokenizer ---------------------------------------------------------------------------------------------

typedef struct { // an encoding on its way
    const GxBpeTokenizer *v;
    GxSpecialTokens special;
    GxBpeBytes clean, normal, made[GX_BPE_STEPS]; // made: by each step of the pre-tokenizer
    GxRegexRoom regex;
    GxBpeRoom room;
    int32_t *ids;
    int64_t n;
    GxError *err;
} gx__BpeWork;

// What the pre-tokenizer from a step on makes of text[n]. Each part that a step makes goes through all that follow
// before the next one is made. is_first: it begins where the whole text does.
static GxStatus gx__bpe_words(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first);

static GxStatus gx__bpe_split(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first)
{
    const GxBpeStep *s = &w->v->pre_tokenizer.step[step];
    for (int64_t at = 0, start, end; at < n; at = end) {
        GX_TRY(gx_regex_find(s->regex, &w->regex, text, n, at, &start, &end, w->err));
        if (start < 0) start = end = n;
        if (start > at && (s->keeps & GX_BPE_GAPS))
            GX_TRY(gx__bpe_words(w, step + 1, text + at, start - at, is_first && at == 0));
        if (end > start && (s->keeps & GX_BPE_MATCHES))
            GX_TRY(gx__bpe_words(w, step + 1, text + start, end - start, is_first && start == 0));
    }
    return GX_OK;
}

static GxStatus gx__bpe_digits(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first)
{
    const int each = (int)w->v->pre_tokenizer.step[step].keeps;
    int64_t done = 0;
    int was_number = 0;
    for (int64_t i = 0; i < n;) {
        uint32_t c;
        const int bytes = gx_unicode_decode(text + i, text + n, &c), is_number = gx_unicode_is_number(c);
        if (i > done && (is_number != was_number || (each && is_number))) {
            GX_TRY(gx__bpe_words(w, step + 1, text + done, i - done, is_first && done == 0));
            done = i;
        }
        was_number = is_number;
        i += bytes;
    }
    return gx__bpe_words(w, step + 1, text + done, n - done, is_first && done == 0);
}

static GxStatus gx__bpe_prefix(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first)
{
    GxBpeBytes *made = &w->made[step];
    if (text[0] == ' ') return gx__bpe_words(w, step + 1, text, n, is_first);
    made->n = 0;
    GX_TRY(gx__bpe_put(made, " ", 1, w->err));
    GX_TRY(gx__bpe_put(made, text, n, w->err));
    return gx__bpe_words(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__bpe_bytes(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first)
{
    GxBpeBytes *made = &w->made[step];
    made->n = 0;
    GX_TRY(gx__bpe_room_for(made, 2 * n + 1, w->err));
    for (int64_t i = 0; i < n; i++) made->n += gx_byte_character((unsigned char)text[i], made->p + made->n);
    return gx__bpe_words(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__bpe_metaspace(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first)
{
    static char space[] = " ";
    const GxBpeStep *s = &w->v->pre_tokenizer.step[step];
    const GxBpeStep replace = {GX_BPE_REPLACE, 0, space, s->text, 1, s->text_n, NULL};
    GxBpeBytes *made = &w->made[step];
    const int begins = text[0] == ' ' || gx__bpe_is_at(text, n, s->text, s->text_n);
    made->n = 0;
    if (!begins && (s->keeps == GX_BPE_ALWAYS || (s->keeps == GX_BPE_FIRST && is_first)))
        GX_TRY(gx__bpe_put(made, s->text, s->text_n, w->err));
    GX_TRY(gx__bpe_replace(&replace, text, n, made, w->err));
    return gx__bpe_words(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__bpe_before(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first)
{
    const GxBpeStep *s = &w->v->pre_tokenizer.step[step];
    int64_t done = 0;
    for (int64_t i = 1; i < n; i++) {
        if (!gx__bpe_is_at(text + i, n - i, s->text, s->text_n)) continue;
        GX_TRY(gx__bpe_words(w, step + 1, text + done, i - done, is_first && done == 0));
        done = i;
    }
    return gx__bpe_words(w, step + 1, text + done, n - done, is_first && done == 0);
}

static GxStatus gx__bpe_words(gx__BpeWork *w, int step, const char *text, int64_t n, int is_first)
{
    if (n == 0) return GX_OK;
    if (step == w->v->pre_tokenizer.n) {
        int64_t more;
        GX_TRY(gx_bpe_word(&w->v->model, &w->room, text, n, w->ids + w->n, &more, w->err));
        w->n += more;
        return GX_OK;
    }
    switch (w->v->pre_tokenizer.step[step].kind) {
    case GX_BPE_SPLIT: return gx__bpe_split(w, step, text, n, is_first);
    case GX_BPE_DIGITS: return gx__bpe_digits(w, step, text, n, is_first);
    case GX_BPE_PREFIX: return gx__bpe_prefix(w, step, text, n, is_first);
    case GX_BPE_BYTES: return gx__bpe_bytes(w, step, text, n, is_first);
    case GX_BPE_METASPACE: return gx__bpe_metaspace(w, step, text, n, is_first);
    default: return gx__bpe_before(w, step, text, n, is_first);
    }
}

// ---- added tokens --------------------------------------------------------------------------------------------------

static const GxBpeAdded *gx__bpe_added_at(const GxBpeTokenizer *v, int normalized, const char *text, int64_t n)
{
    const GxBpeAdded *best = NULL;
    if (!v->leads[normalized][(unsigned char)text[0]]) return NULL;
    for (int i = 0; i < v->added_n; i++) {
        const GxBpeAdded *a = &v->added[i];
        if (a->normalized == normalized && (!best || a->bytes > best->bytes) &&
            gx__bpe_is_at(text, n, a->pattern, a->bytes))
            best = a;
    }
    return best;
}

// Where the white space before text[end] begins, but not before text[begin].
static int64_t gx__bpe_space_before(const char *text, int64_t begin, int64_t end)
{
    while (end > begin) {
        uint32_t c;
        int64_t at = end - 1;
        while (at > begin && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
        gx_unicode_decode(text + at, text + end, &c);
        if (!gx_unicode_is_space(c)) break;
        end = at;
    }
    return end;
}

static int64_t gx__bpe_space_behind(const char *text, int64_t n, int64_t at)
{
    while (at < n) {
        uint32_t c;
        const int bytes = gx_unicode_decode(text + at, text + n, &c);
        if (!gx_unicode_is_space(c)) break;
        at += bytes;
    }
    return at;
}

static GxStatus gx__bpe_added(gx__BpeWork *w, const char *text, int64_t n, int normalized, int is_first);
static GxStatus gx__bpe_between(gx__BpeWork *w, const char *text, int64_t n, int normalized, int is_first)
{
    if (n == 0) return GX_OK;
    if (normalized) return gx__bpe_words(w, 0, text, n, is_first);
    if (w->v->normalizer.n == 0) return gx__bpe_added(w, text, n, 1, is_first);
    GX_TRY(gx_bpe_normalize(&w->v->normalizer, text, n, &w->normal, w->err));
    return gx__bpe_added(w, w->normal.p, w->normal.n, 1, is_first);
}

// A text with the added tokens in it that are normalised, or are not; what is between them goes on.
static GxStatus gx__bpe_added(gx__BpeWork *w, const char *text, int64_t n, int normalized, int is_first)
{
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        const GxBpeAdded *a = gx__bpe_added_at(w->v, normalized, text + i, n - i);
        int64_t first = i, end = i + (a ? a->bytes : 1);
        i = end;
        if (!a || (a->special && w->special == GX_SPECIAL_AS_TEXT)) continue;
        if (a->lstrip) first = gx__bpe_space_before(text, done, first);
        if (a->rstrip) end = gx__bpe_space_behind(text, n, end);
        GX_TRY(gx__bpe_between(w, text + done, first - done, normalized, is_first && done == 0));
        w->ids[w->n++] = a->id;
        i = done = end;
    }
    return gx__bpe_between(w, text + done, n - done, normalized, is_first && done == 0);
}

GxStatus gx_bpe_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special, int32_t *ids,
                       int64_t *n, GxError *err)
{
    gx__BpeWork w = GX_ZERO;
    w.v = (const GxBpeTokenizer *)t->vocabulary, w.special = special, w.ids = ids, w.err = err;
    GxStatus status = gx__bpe_clean(text, bytes, &w.clean, err);
    if (status == GX_OK) status = gx__bpe_added(&w, w.clean.p, w.clean.n, 0, 1);
    *n = status == GX_OK ? w.n : 0;
    gx__bpe_free(&w.clean);
    gx__bpe_free(&w.normal);
    for (int i = 0; i < GX_BPE_STEPS; i++) gx__bpe_free(&w.made[i]);
    gx_regex_room_close(&w.regex);
    gx_bpe_room_close(&w.room);
    return status;
}

// Each step makes of a part of n >= 1 bytes at most n times this; a byte that is not UTF-8 becomes three.
int gx_bpe_tokens_for_byte(const GxBpeTokenizer *v)
{
    const GxBpeSteps *rows[] = {&v->normalizer, &v->pre_tokenizer};
    int64_t most = 3; // as many as NFC makes of a byte of UTF-8, at most (Unicode Standard Annex 15)
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < rows[r]->n; i++) {
            const GxBpeStep *s = &rows[r]->step[i];
            if (s->kind == GX_BPE_NFC && i > 0) most *= 3;
            if (s->kind == GX_BPE_PREPEND) most *= 1 + s->text_n;
            if (s->kind == GX_BPE_REPLACE) most *= gx_max(1, (s->content_n + s->text_n - 1) / s->text_n);
            if (s->kind == GX_BPE_PREFIX) most *= 2;
            if (s->kind == GX_BPE_BYTES && v->model.byte_fallback) most *= 2; // of what stands for a byte
            if (s->kind == GX_BPE_METASPACE) most *= 2 * s->text_n;
            most = gx_min(most, GX_BPE_TOO_MANY);
        }
    return (int)most;
}

// ---- decoding ------------------------------------------------------------------------------------------------------

typedef struct { // tokens as texts: token i is bytes[end[i - 1], end[i]); there are never more than at first
    GxBpeBytes bytes;
    int64_t *end, n;
} gx__BpeTokens;

static int64_t gx__bpe_begin(const gx__BpeTokens *x, int64_t i) { return i > 0 ? x->end[i - 1] : 0; }

// The bytes that a token stands for; if it has another character, itself.
static GxStatus gx__bpe_put_token_bytes(const char *text, int64_t n, GxBpeBytes *out, GxError *err)
{
    const int64_t begun = out->n;
    GX_TRY(gx__bpe_room_for(out, n, err));
    for (const char *p = text, *end = text + n; p < end;) {
        uint32_t c;
        p += gx_unicode_decode(p, end, &c);
        const int byte = gx_byte_of_character(c);
        if (byte < 0) {
            out->n = begun;
            return gx__bpe_put(out, text, n, err);
        }
        out->p[out->n++] = (char)byte;
    }
    return GX_OK;
}

// All tokens as one.
static GxStatus gx__bpe_decode_bytes(const gx__BpeTokens *x, gx__BpeTokens *out, GxError *err)
{
    GxBpeBytes all = GX_ZERO;
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < x->n && status == GX_OK; i++) {
        const int64_t begin = gx__bpe_begin(x, i);
        status = gx__bpe_put_token_bytes(x->bytes.p + begin, x->end[i] - begin, &all, err);
    }
    if (status == GX_OK) status = gx__bpe_clean(all.p, all.n, &out->bytes, err);
    gx__bpe_free(&all);
    out->n = x->n > 0;
    if (out->n) out->end[0] = out->bytes.n;
    return status;
}

static int gx__bpe_hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

// <0x0A>; -1: it is another token. `tokenizers` also reads <0x+A>.
static int gx__bpe_fallback_byte(const char *text, int64_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    const int high = text[3] == '+' ? 0 : gx__bpe_hex(text[3]), low = gx__bpe_hex(text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

// Rows of byte tokens become one token, or, where that is not UTF-8, a U+FFFD each.
static GxStatus gx__bpe_decode_fallback(const gx__BpeTokens *x, gx__BpeTokens *out, GxError *err)
{
    for (int64_t i = 0; i < x->n;) {
        const int64_t begun = out->bytes.n, first = i;
        int is_valid = 1, byte;
        for (int64_t at; i < x->n; i++) {
            at = gx__bpe_begin(x, i);
            if ((byte = gx__bpe_fallback_byte(x->bytes.p + at, x->end[i] - at)) < 0) break;
            const char c = (char)byte;
            GX_TRY(gx__bpe_put(&out->bytes, &c, 1, err));
        }
        if (i == first) {
            const int64_t at = gx__bpe_begin(x, i);
            GX_TRY(gx__bpe_put(&out->bytes, x->bytes.p + at, x->end[i] - at, err));
            i++;
        } else
            for (const char *p = out->bytes.p + begun, *end = out->bytes.p + out->bytes.n; p < end;) {
                uint32_t c;
                const int n = gx_unicode_decode(p, end, &c);
                is_valid &= c != GX_REPLACEMENT || (n == 3 && (unsigned char)*p == 0xEF);
                p += n;
            }
        if (!is_valid) out->bytes.n = begun;
        for (int64_t k = first; k < i && !is_valid; k++) {
            GX_TRY(gx__bpe_put(&out->bytes, "\xEF\xBF\xBD", 3, err));
            out->end[out->n++] = out->bytes.n;
        }
        if (is_valid) out->end[out->n++] = out->bytes.n;
    }
    return GX_OK;
}

// What becomes of one token.
static GxStatus gx__bpe_decode_token(const GxBpeStep *s, int64_t i, const char *text, int64_t n, GxBpeBytes *out,
                                     GxError *err)
{
    static char space[] = " ", nothing[] = "";
    GxBpeStep replace = {GX_BPE_REPLACE, 0, s->text, space, s->text_n, 1, NULL};
    int64_t cut = 0;
    if (s->kind == GX_BPE_REPLACE) return gx__bpe_replace(s, text, n, out, err);
    if (s->kind == GX_BPE_METASPACE) { // at the beginning it was put there
        if (i == 0 && s->keeps != GX_BPE_NEVER) replace.content = nothing, replace.content_n = 0;
        return gx__bpe_replace(&replace, text, n, out, err);
    }
    if (s->kind == GX_BPE_STRIP)
        for (int64_t k = 0; k < s->keeps && gx__bpe_is_at(text + cut, n - cut, s->text, s->text_n); k++)
            cut += s->text_n;
    return gx__bpe_put(out, text + cut, n - cut, err);
}

static GxStatus gx__bpe_decode_step(const GxBpeStep *s, const gx__BpeTokens *x, gx__BpeTokens *out, GxError *err)
{
    out->bytes.n = out->n = 0;
    if (s->kind == GX_BPE_BYTES) return gx__bpe_decode_bytes(x, out, err);
    if (s->kind == GX_BPE_BYTE_FALLBACK) return gx__bpe_decode_fallback(x, out, err);
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t begin = gx__bpe_begin(x, i);
        GX_TRY(gx__bpe_decode_token(s, i, x->bytes.p + begin, x->end[i] - begin, &out->bytes, err));
        if (s->kind != GX_BPE_FUSE || i == x->n - 1) out->end[out->n++] = out->bytes.n;
    }
    return GX_OK;
}

// What a token is in decoded text: its piece; of an added token that is normalised, `tokenizers` 0.23 gives what it is
// then. NULL: no piece has this id.
static const char *gx__bpe_token_text(const GxBpeTokenizer *v, int32_t id, int64_t *bytes)
{
    const char *piece = gx_pieces_text(&v->model.p, id);
    *bytes = piece ? (int64_t)strlen(piece) : 0;
    if (!piece || !(v->model.p.flags[id] & GX_PIECE_NORMALIZED)) return piece;
    int i = 0;
    while (v->added[i].id != id) i++;
    *bytes = v->added[i].bytes;
    return v->added[i].pattern;
}

// Of one that is normalised, what it is then has to be the name of a special token.
static int gx__bpe_is_left_out(const GxBpeTokenizer *v, int32_t id, const char *text, int64_t bytes)
{
    if (!(v->model.p.flags[id] & GX_PIECE_SPECIAL)) return 0;
    for (int i = 0; i < v->added_n && v->added[i].special; i++) {
        const char *name = gx_pieces_text(&v->model.p, v->added[i].id);
        if ((int64_t)strlen(name) == bytes && !memcmp(name, text, (size_t)bytes)) return 1;
    }
    return 0;
}

// The tokens' texts. Without a decoder there are spaces between them.
static GxStatus gx__bpe_decode_texts(const GxBpeTokenizer *v, const int32_t *ids, int64_t n, GxSpecialTokens special,
                                     gx__BpeTokens *x, GxError *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t bytes;
        const char *text = gx__bpe_token_text(v, ids[i], &bytes);
        if (!text)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "token %ld has the id %ld, which no piece of the vocabulary has",
                           (long)i, (long)ids[i]);
        if (special == GX_SPECIAL_AS_TEXT && gx__bpe_is_left_out(v, ids[i], text, bytes)) continue;
        if (!v->has_decoder && x->n > 0) GX_TRY(gx__bpe_put(&x->bytes, " ", 1, err));
        GX_TRY(gx__bpe_put(&x->bytes, text, bytes, err));
        x->end[x->n++] = x->bytes.n;
    }
    return GX_OK;
}

GxStatus gx_bpe_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                       int64_t *bytes, GxError *err)
{
    const GxBpeTokenizer *v = (const GxBpeTokenizer *)t->vocabulary;
    gx__BpeTokens x = GX_ZERO, out = GX_ZERO;
    GxStatus status = GX_OK;
    x.end = (int64_t *)malloc((size_t)(n + 1) * sizeof *x.end), out.end = (int64_t *)malloc((size_t)(n + 1) * 8);
    if (!x.end || !out.end) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory to decode %ld tokens", (long)n);
    if (status == GX_OK) status = gx__bpe_decode_texts(v, ids, n, special, &x, err);
    for (int i = 0; i < v->decoder.n && status == GX_OK; i++) {
        status = gx__bpe_decode_step(&v->decoder.step[i], &x, &out, err);
        const gx__BpeTokens other = x;
        x = out, out = other;
    }
    *bytes = status == GX_OK ? x.bytes.n : 0;
    if (*bytes > 0) memcpy(text, x.bytes.p, (size_t)*bytes);
    gx__bpe_free(&x.bytes), gx__bpe_free(&out.bytes);
    free(x.end), free(out.end);
    return status;
}

// A byte may become U+FFFD, which has three; a piece of two bytes or more stands for each by one or two of its own.
int gx_bpe_longest(const GxBpeTokenizer *v)
{
    int64_t most = 1;
    for (int32_t id = 0; id < v->model.p.size; id++)
        if (v->model.p.at[id] >= 0) most = gx_max(most, (int64_t)strlen(v->model.p.text + v->model.p.at[id]));
    for (int i = 0; i < v->added_n; i++) most = gx_max(most, v->added[i].bytes);
    most += !v->has_decoder;
    for (int i = 0; i < v->decoder.n; i++) {
        const GxBpeStep *s = &v->decoder.step[i];
        if (s->kind == GX_BPE_BYTES) most = 3 * most;
        if (s->kind == GX_BPE_REPLACE) most *= gx_max(1, (s->content_n + s->text_n - 1) / s->text_n);
        most = gx_min(most, GX_BPE_TOO_MANY);
    }
    return (int)most;
}
#endif
