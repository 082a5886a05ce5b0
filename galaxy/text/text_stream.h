// text_stream.h: turns tokens that arrive one by one into text that can be shown immediately: a character that consists
// of several tokens is held back until it is complete.
//
//     GxTextStream s = gx_text_stream(&tokenizer, GX_SPECIAL_AS_TEXT, n);      // tokens from number n on are shown
//     GX_TRY(gx_text_stream_next(&s, ids, ++n, 0, &text, &bytes, err));        // the text that ids[0..n) add
//     GX_TRY(gx_text_stream_next(&s, ids, n, 1, &text, &bytes, err));          // the rest, complete or not
//     gx_text_stream_close(&s);
//
// A token's text may depend on the tokens before it (only the first word of a text lacks its space), so the last tokens
// that were shown are decoded again together with those that follow, and the difference is shown. Bytes that are not
// UTF-8 are shown as U+FFFD, and so is a byte 0.
#ifndef GX_TEXT_STREAM_H
#define GX_TEXT_STREAM_H
#include "tokenizer.h"
GX_BEGIN

typedef struct {
    const GxTokenizer *tokenizer;
    GxSpecialTokens special;
    int64_t from, shown; // tokens [from, shown) are decoded again; later ones are not shown yet
    char *text[2], *out;
} GxTextStream;

GxTextStream gx_text_stream(const GxTokenizer *t, GxSpecialTokens special, int64_t first);
void gx_text_stream_close(GxTextStream *s);
// *text is valid until the next call, and has a terminating 0.
GxStatus gx_text_stream_next(GxTextStream *s, const int32_t *ids, int64_t n, int is_last, const char **text,
                             int64_t *bytes, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_STREAM_IMPLEMENTED)
#define GX_TEXT_STREAM_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "unicode.h"

enum { GX__TEXT_STREAM_BEFORE = 6 }; // tokens before the first one that is shown

GxTextStream gx_text_stream(const GxTokenizer *t, GxSpecialTokens special, int64_t first)
{
    GxTextStream s = GX_ZERO;
    s.tokenizer = t, s.special = special;
    s.from = gx_max(0, first - GX__TEXT_STREAM_BEFORE), s.shown = first;
    return s;
}

void gx_text_stream_close(GxTextStream *s)
{
    for (int i = 0; i < 2; i++) free(s->text[i]), s->text[i] = NULL;
    free(s->out), s->out = NULL;
}

static GxStatus gx__text_stream_decode(GxTextStream *s, int which, const int32_t *ids, int64_t n, int64_t *bytes,
                                       GxError *err)
{
    free(s->text[which]);
    s->text[which] = (char *)malloc((size_t)(n * s->tokenizer->longest) + 1);
    if (!s->text[which]) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the text of %ld tokens", (long)n);
    GX_TRY(gx_tokenizer_decode(s->tokenizer, ids, n, s->special, s->text[which], bytes, err));
    s->text[which][*bytes] = 0;
    return GX_OK;
}

// 1: the text ends within a character, or with U+FFFD, which replaces an incomplete one.
static int gx__text_stream_is_cut(const char *text, int64_t n)
{
    if (n >= 3 && !memcmp(text + n - 3, "\xEF\xBF\xBD", 3)) return 1;
    for (int64_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)text[n - back];
        if ((c & 0xC0) == 0x80) continue; // within a character
        return (c >= 0xC2 && c < 0xE0 && back < 2) || (c >= 0xE0 && c < 0xF0 && back < 3) ||
               (c >= 0xF0 && c < 0xF5 && back < 4);
    }
    return 0;
}

GxStatus gx_text_stream_next(GxTextStream *s, const int32_t *ids, int64_t n, int is_last, const char **text,
                             int64_t *bytes, GxError *err)
{
    int64_t before = 0, all = 0;
    *text = "", *bytes = 0;
    if (n <= s->shown) return GX_OK;
    GX_TRY(gx__text_stream_decode(s, 0, ids + s->from, s->shown - s->from, &before, err));
    GX_TRY(gx__text_stream_decode(s, 1, ids + s->from, n - s->from, &all, err));
    if (!is_last && gx__text_stream_is_cut(s->text[1], all)) return GX_OK;
    // if what was shown has a different text now, everything from the first difference on is new
    int64_t same = 0;
    while (same < before && same < all && s->text[0][same] == s->text[1][same]) same++;
    if (same < before && same < all) // whole characters
        while (same > 0 && ((unsigned char)s->text[1][same] & 0xC0) == 0x80) same--;
    free(s->out);
    s->out = (char *)malloc((size_t)(3 * (all - same)) + 1);
    if (!s->out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)(all - same));
    const char *p = s->text[1] + same, *end = s->text[1] + all;
    while (p < end) {
        uint32_t c;
        const int used = gx_unicode_decode(p, end, &c);
        if (c == 0xFFFD || c == 0) memcpy(s->out + *bytes, "\xEF\xBF\xBD", 3), *bytes += 3;
        else memcpy(s->out + *bytes, p, (size_t)used), *bytes += used;
        p += used;
    }
    s->out[*bytes] = 0;
    *text = s->out;
    s->from = s->shown, s->shown = n;
    return GX_OK;
}
#endif
