// words_normalize.h: the normalizer of words.h, which changes a text before it is split into words.
#ifndef GX_WORDS_NORMALIZE_H
#define GX_WORDS_NORMALIZE_H
#include "words.h"
GX_BEGIN

// Applies the steps to text[n], and writes the result to `out`, which is emptied first. *moved: 1: the beginning of the
// text was removed.
GxStatus gx_words_normalize(const GxWordSteps *s, const char *text, int64_t n, GxWordBytes *out, int *moved,
                            GxError *err);

// Writes text[n] to `out`, which is emptied first, with U+FFFD for what is not UTF-8.
GxStatus gx_words_clean(const char *text, int64_t n, GxWordBytes *out, GxError *err);
// Appends text[n] to `out`, with each s->text replaced by s->content.
GxStatus gx_words_replace(const GxWordStep *s, const char *text, int64_t n, GxWordBytes *out, GxError *err);
// Where the white space before text[end] begins, but not before text[begin]; and where the white space from text[at] on
// ends.
int64_t gx_words_space_before(const char *text, int64_t begin, int64_t end);
int64_t gx_words_space_behind(const char *text, int64_t n, int64_t at);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_NORMALIZE_IMPLEMENTED)
#define GX_WORDS_NORMALIZE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

int64_t gx_words_space_before(const char *text, int64_t begin, int64_t end)
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

int64_t gx_words_space_behind(const char *text, int64_t n, int64_t at)
{
    while (at < n) {
        uint32_t c;
        const int bytes = gx_unicode_decode(text + at, text + n, &c);
        if (!gx_unicode_is_space(c)) break;
        at += bytes;
    }
    return at;
}

GxStatus gx_words_clean(const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    out->n = 0;
    for (const char *p = text, *end = text + n, *done = text; p <= end;) {
        uint32_t c = 0;
        const int bytes = p < end ? gx_unicode_decode(p, end, &c) : 1,
                  is_bad = c == GX_REPLACEMENT && !(bytes == 3 && (unsigned char)*p == 0xEF);
        if (is_bad || p == end) {
            GX_TRY(gx_word_bytes_put(out, done, p - done, err));
            if (is_bad) GX_TRY(gx_word_bytes_put(out, "\xEF\xBF\xBD", 3, err));
            done = p + bytes;
        }
        p += bytes;
    }
    return GX_OK;
}

// The four normal forms. A text without characters that the form could change is left alone: ASCII, and in NFC
// everything below U+0300.
static GxStatus gx__words_form(GxWordStepKind kind, GxWordBytes *text, GxError *err)
{
    const int composes = kind == GX_WORDS_NFC || kind == GX_WORDS_NFKC,
              is_alike = kind == GX_WORDS_NFKC || kind == GX_WORDS_NFKD;
    // the first bytes of U+0300, U+00A0, U+00C0
    const unsigned char first = kind == GX_WORDS_NFC ? 0xCC : is_alike ? 0xC2 : 0xC3;
    GxCharacters c = GX_ZERO, alike = GX_ZERO, formed = GX_ZERO;
    int64_t plain = 0;
    while (plain < text->n && (unsigned char)text->p[plain] < first) plain++;
    if (plain == text->n) return GX_OK;
    GxStatus status = gx_characters_read(&c, text->p, text->n, err);
    if (status == GX_OK && is_alike) status = gx_unicode_alike(c.c, c.n, &alike, err);
    const GxCharacters *from = is_alike ? &alike : &c;
    if (status == GX_OK) status = gx_characters_reserve(&formed, GX_NFD_MOST * from->n, err);
    if (status == GX_OK)
        status = (composes ? gx_unicode_nfc : gx_unicode_nfd)(from->c, from->n, formed.c, &formed.n, err);
    text->n = 0;
    if (status == GX_OK) status = gx_word_bytes_reserve(text, 4 * formed.n, err);
    for (int64_t i = 0; status == GX_OK && i < formed.n; i++)
        text->n += gx_unicode_encode(formed.c[i], text->p + text->n);
    gx_characters_close(&c), gx_characters_close(&alike), gx_characters_close(&formed);
    return status;
}

static GxStatus gx__words_lower(const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    for (const char *p = text, *end = text + n; p < end;) {
        uint32_t c, lower[2];
        p += gx_unicode_decode(p, end, &c);
        GX_TRY(gx_word_bytes_reserve(out, 8, err));
        const int parts = gx_unicode_lower(c, lower);
        for (int k = 0; k < parts; k++) out->n += gx_unicode_encode(lower[k], out->p + out->n);
    }
    return GX_OK;
}

// Replaces grapheme by grapheme, as described in charsmap.h.
static GxStatus gx__words_charsmap(const GxCharsmap *m, const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    for (const char *p = text, *end = text + n, *value; p < end;) {
        const char *stop = p + gx_unicode_grapheme(p, end);
        int64_t bytes;
        if (stop - p < GX_CHARSMAP_GRAPHEME && (value = gx_charsmap_find(m, p, stop - p, &bytes)) != NULL) {
            GX_TRY(gx_word_bytes_put(out, value, bytes, err));
            p = stop;
        }
        while (p < stop) {
            uint32_t c;
            const int size = gx_unicode_decode(p, end, &c);
            value = gx_charsmap_find(m, p, size, &bytes);
            GX_TRY(gx_word_bytes_put(out, value ? value : p, value ? bytes : size, err));
            p += size;
        }
    }
    return GX_OK;
}

GxStatus gx_words_replace(const GxWordStep *s, const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        if (!gx_words_is_at(text + i, n - i, s->text, s->text_n)) {
            i++;
            continue;
        }
        GX_TRY(gx_word_bytes_put(out, text + done, i - done, err));
        GX_TRY(gx_word_bytes_put(out, s->content, s->content_n, err));
        done = i += s->text_n;
    }
    return gx_word_bytes_put(out, text + done, n - done, err);
}

static GxStatus gx__words_replace_regex(const GxWordStep *s, const char *text, int64_t n, GxWordBytes *out,
                                        GxError *err)
{
    GxRegexRoom room = GX_ZERO;
    GxStatus status = GX_OK;
    for (int64_t at = 0, start, end; at < n && status == GX_OK; at = end) {
        start = end = n;
        status = gx_regex_find(s->regex, &room, text, n, at, &start, &end, err);
        const int is_found = status == GX_OK && start >= 0;
        if (!is_found) start = end = n;
        if (status == GX_OK) status = gx_word_bytes_put(out, text + at, start - at, err);
        if (status == GX_OK && is_found) status = gx_word_bytes_put(out, s->content, s->content_n, err);
    }
    gx_regex_room_close(&room);
    return status;
}

static GxStatus gx__words_trim(const GxWordStep *s, const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    const int64_t first = s->keeps & GX_WORDS_LEFT ? gx_words_space_behind(text, n, 0) : 0,
                  end = s->keeps & GX_WORDS_RIGHT ? gx_words_space_before(text, first, n) : n;
    return gx_word_bytes_put(out, text + first, end - first, err);
}

static GxStatus gx__words_normalize_step(const GxWordStep *s, GxWordBytes *text, GxWordBytes *spare, GxError *err)
{
    const GxWordBytes other = *text;
    spare->n = 0;
    switch (s->kind) {
    case GX_WORDS_LOWERCASE: GX_TRY(gx__words_lower(text->p, text->n, spare, err)); break;
    case GX_WORDS_CHARSMAP: GX_TRY(gx__words_charsmap(s->charsmap, text->p, text->n, spare, err)); break;
    case GX_WORDS_TRIM: GX_TRY(gx__words_trim(s, text->p, text->n, spare, err)); break;
    case GX_WORDS_PREPEND:
        if (text->n > 0) GX_TRY(gx_word_bytes_put(spare, s->text, s->text_n, err));
        GX_TRY(gx_word_bytes_put(spare, text->p, text->n, err));
        break;
    case GX_WORDS_REPLACE: GX_TRY(gx_words_replace(s, text->p, text->n, spare, err)); break;
    case GX_WORDS_REPLACE_REGEX: GX_TRY(gx__words_replace_regex(s, text->p, text->n, spare, err)); break;
    default: return gx__words_form(s->kind, text, err);
    }
    *text = *spare;
    *spare = other;
    return GX_OK;
}

GxStatus gx_words_normalize(const GxWordSteps *s, const char *text, int64_t n, GxWordBytes *out, int *moved,
                            GxError *err)
{
    GxWordBytes spare = GX_ZERO;
    *moved = out->n = 0;
    GxStatus status = gx_word_bytes_put(out, text, n, err);
    for (int i = 0; i < s->n && status == GX_OK; i++) {
        const int trims = s->step[i].kind == GX_WORDS_TRIM && s->step[i].keeps & GX_WORDS_LEFT;
        *moved |= trims && gx_words_space_behind(out->p, out->n, 0) > 0;
        status = gx__words_normalize_step(&s->step[i], out, &spare, err);
    }
    gx_word_bytes_close(&spare);
    return status;
}
#endif
