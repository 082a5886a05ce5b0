// words_decode.h: turns tokens into text: executes the decoder of words.h, step by step, on the texts of all tokens at
// once.
#ifndef GX_WORDS_DECODE_H
#define GX_WORDS_DECODE_H
#include "words.h"
GX_BEGIN

// A function of a GxTokenizerKind (tokenizer_kind.h).
GxStatus gx_words_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                         int64_t *bytes, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_DECODE_IMPLEMENTED)
#define GX_WORDS_DECODE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "byte_tokens.h"
#include "words_normalize.h"

typedef struct { // tokens as texts: token i is bytes[end[i - 1], end[i]). Their number never grows
    GxWordBytes bytes;
    int64_t *end, n;
} gx__WordsTokens;

static int64_t gx__words_begin(const gx__WordsTokens *x, int64_t i) { return i > 0 ? x->end[i - 1] : 0; }

// Appends the bytes that a token stands for; if one of its characters stands for no byte, the token itself.
static GxStatus gx__words_put_token_bytes(const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    const int64_t begun = out->n;
    GX_TRY(gx_word_bytes_reserve(out, n, err));
    for (const char *p = text, *end = text + n; p < end;) {
        uint32_t c;
        p += gx_unicode_decode(p, end, &c);
        const int byte = gx_byte_of_character(c);
        if (byte < 0) {
            out->n = begun;
            return gx_word_bytes_put(out, text, n, err);
        }
        out->p[out->n++] = (char)byte;
    }
    return GX_OK;
}

// Joins all tokens into one.
static GxStatus gx__words_decode_bytes(const gx__WordsTokens *x, gx__WordsTokens *out, GxError *err)
{
    GxWordBytes all = GX_ZERO;
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < x->n && status == GX_OK; i++) {
        const int64_t begin = gx__words_begin(x, i);
        status = gx__words_put_token_bytes(x->bytes.p + begin, x->end[i] - begin, &all, err);
    }
    if (status == GX_OK) status = gx_words_clean(all.p, all.n, &out->bytes, err);
    gx_word_bytes_close(&all);
    out->n = x->n > 0;
    if (out->n) out->end[0] = out->bytes.n;
    return status;
}

static int gx__words_hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

// The byte of a token like <0x0A>; -1: it is another token. Like `tokenizers`, this also accepts <0x+A>.
static int gx__words_fallback_byte(const char *text, int64_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    const int high = text[3] == '+' ? 0 : gx__words_hex(text[3]), low = gx__words_hex(text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

// A run of byte tokens becomes one token, or, if that is not UTF-8, one U+FFFD per byte.
static GxStatus gx__words_decode_fallback(const gx__WordsTokens *x, gx__WordsTokens *out, GxError *err)
{
    for (int64_t i = 0; i < x->n;) {
        const int64_t begun = out->bytes.n, first = i;
        int is_valid = 1, byte;
        for (int64_t at; i < x->n; i++) {
            at = gx__words_begin(x, i);
            if ((byte = gx__words_fallback_byte(x->bytes.p + at, x->end[i] - at)) < 0) break;
            const char c = (char)byte;
            GX_TRY(gx_word_bytes_put(&out->bytes, &c, 1, err));
        }
        if (i == first) {
            const int64_t at = gx__words_begin(x, i);
            GX_TRY(gx_word_bytes_put(&out->bytes, x->bytes.p + at, x->end[i] - at, err));
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
            GX_TRY(gx_word_bytes_put(&out->bytes, "\xEF\xBF\xBD", 3, err));
            out->end[out->n++] = out->bytes.n;
        }
        if (is_valid) out->end[out->n++] = out->bytes.n;
    }
    return GX_OK;
}

// Applies a step to one token.
static GxStatus gx__words_decode_token(const GxWordStep *s, int64_t i, const char *text, int64_t n, GxWordBytes *out,
                                       GxError *err)
{
    static char space[] = " ", nothing[] = "";
    GxWordStep replace = {GX_WORDS_REPLACE, 0, s->text, space, s->text_n, 1, NULL, NULL};
    int64_t cut = 0;
    if (s->kind == GX_WORDS_REPLACE) return gx_words_replace(s, text, n, out, err);
    if (s->kind == GX_WORDS_METASPACE) { // at the beginning the encoder has inserted it
        if (i == 0 && s->keeps != GX_WORDS_NEVER) replace.content = nothing, replace.content_n = 0;
        return gx_words_replace(&replace, text, n, out, err);
    }
    if (s->kind == GX_WORDS_STRIP)
        for (int64_t k = 0; k < s->keeps && gx_words_is_at(text + cut, n - cut, s->text, s->text_n); k++)
            cut += s->text_n;
    return gx_word_bytes_put(out, text + cut, n - cut, err);
}

static GxStatus gx__words_decode_step(const GxWordStep *s, const gx__WordsTokens *x, gx__WordsTokens *out, GxError *err)
{
    out->bytes.n = out->n = 0;
    if (s->kind == GX_WORDS_BYTES) return gx__words_decode_bytes(x, out, err);
    if (s->kind == GX_WORDS_BYTE_FALLBACK) return gx__words_decode_fallback(x, out, err);
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t begin = gx__words_begin(x, i);
        GX_TRY(gx__words_decode_token(s, i, x->bytes.p + begin, x->end[i] - begin, &out->bytes, err));
        if (s->kind != GX_WORDS_FUSE || i == x->n - 1) out->end[out->n++] = out->bytes.n;
    }
    return GX_OK;
}

// A token in decoded text: its piece. For an added token with `normalized`, `tokenizers` 0.23 writes its normalised
// text. NULL: no piece has this id.
static const char *gx__words_token_text(const GxWords *v, int32_t id, int64_t *bytes)
{
    const char *piece = gx_pieces_text(v->p, id);
    *bytes = piece ? gx_pieces_bytes(v->p, id) : 0;
    if (!piece || !(v->p->flags[id] & GX_PIECE_NORMALIZED)) return piece;
    int i = 0;
    while (v->added[i].id != id) i++;
    *bytes = v->added[i].bytes;
    return v->added[i].pattern;
}

// 1: the token is special and left out. For one with `normalized`, its normalised text must be the name of a special
// token.
static int gx__words_is_left_out(const GxWords *v, int32_t id, const char *text, int64_t bytes)
{
    if (!(v->p->flags[id] & GX_PIECE_SPECIAL)) return 0;
    for (int i = 0; i < v->added_n && v->added[i].special; i++)
        if (gx_pieces_is(v->p, v->added[i].id, text, bytes)) return 1;
    return 0;
}

// The texts of all tokens. Without a decoder they are separated by spaces.
static GxStatus gx__words_decode_texts(const GxWords *v, const int32_t *ids, int64_t n, GxSpecialTokens special,
                                       gx__WordsTokens *x, GxError *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t bytes;
        const char *text = gx__words_token_text(v, ids[i], &bytes);
        if (!text)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "token %ld has the id %ld, which no piece of the vocabulary has",
                           (long)i, (long)ids[i]);
        if (special == GX_SPECIAL_AS_TEXT && gx__words_is_left_out(v, ids[i], text, bytes)) continue;
        if (!v->has_decoder && x->n > 0) GX_TRY(gx_word_bytes_put(&x->bytes, " ", 1, err));
        GX_TRY(gx_word_bytes_put(&x->bytes, text, bytes, err));
        x->end[x->n++] = x->bytes.n;
    }
    return GX_OK;
}

GxStatus gx_words_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                         int64_t *bytes, GxError *err)
{
    const GxWords *v = (const GxWords *)t->vocabulary;
    gx__WordsTokens x = GX_ZERO, out = GX_ZERO;
    GxStatus status = GX_OK;
    x.end = (int64_t *)malloc((size_t)(n + 1) * sizeof *x.end), out.end = (int64_t *)malloc((size_t)(n + 1) * 8);
    if (!x.end || !out.end) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory to decode %ld tokens", (long)n);
    if (status == GX_OK) status = gx__words_decode_texts(v, ids, n, special, &x, err);
    for (int i = 0; i < v->decoder.n && status == GX_OK; i++) {
        status = gx__words_decode_step(&v->decoder.step[i], &x, &out, err);
        const gx__WordsTokens other = x;
        x = out, out = other;
    }
    *bytes = status == GX_OK ? x.bytes.n : 0;
    if (*bytes > 0) memcpy(text, x.bytes.p, (size_t)*bytes);
    gx_word_bytes_close(&x.bytes), gx_word_bytes_close(&out.bytes);
    free(x.end), free(out.end);
    return status;
}
#endif
