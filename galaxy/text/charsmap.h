// charsmap.h: how SentencePiece's models normalise a text before splitting it (Kudo and Richardson 2018): a list of
// byte sequences and their replacements, stored in tokenizer.json as `precompiled_charsmap` (the normalizer Precompiled
// of T5, XLM-R, …).
//
// The list is used as the file stores it. Its bytes, in base64, are the length of a double-array trie (Aoe 1989; the
// units are those of the library Darts-clone), the trie, and the replacement texts, each with a terminating 0. The bits
// of a unit: 31 and 0 to 7: the byte that leads to it; 8: whether a key ends after that byte; 9 and 10 to 30: the
// offset of its children (by exclusive or). A key's own unit holds the position of its replacement. Everything that a
// key can lead to is checked when the list is opened.
//
// A text is replaced grapheme by grapheme, as in Hugging Face's `tokenizers`, which differs from SentencePiece. A
// grapheme of fewer than 6 bytes is replaced as a whole, accents included, by the replacement of its SHORTEST prefix in
// the list. In a longer grapheme, or if it has no such prefix, each character is replaced by the replacement of its own
// shortest prefix.
//
//     GxCharsmap m;
//     GX_TRY(gx_charsmap_open(&m, base64, "tokenizer.json", err));
//     int64_t n;
//     const char *text = gx_charsmap_find(&m, "\xEF\xBD\x81", 3, &n);          // "a", not terminated; NULL: none
//     gx_charsmap_close(&m);
#ifndef GX_CHARSMAP_H
#define GX_CHARSMAP_H
#include "unicode.h"
GX_BEGIN

enum { GX_CHARSMAP_GRAPHEME = 6 }; // a grapheme of at least this many bytes is replaced character by character
typedef struct {
    uint32_t *unit;
    char *text;
    int64_t units, bytes;    // of text
    int64_t most_characters; // in the replacement of a key
    int64_t most_for_byte;   // the most bytes of a replacement per byte of its key, rounded up
    char *data;              // contains `text`
} GxCharsmap;

GxStatus gx_charsmap_open(GxCharsmap *m, const char *base64, const char *where, GxError *err);
void gx_charsmap_close(GxCharsmap *m);
// The replacement of the shortest key that text[n] begins with.
const char *gx_charsmap_find(const GxCharsmap *m, const char *text, int64_t n, int64_t *bytes);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHARSMAP_IMPLEMENTED)
#define GX_CHARSMAP_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

static int gx__charsmap_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

// Decodes base64 (RFC 4648, section 4, with padding) to out[3 * (n / 4)]. Returns the number of bytes; -1: it is not
// base64.
static int64_t gx__charsmap_decode(const char *from, int64_t n, char *out)
{
    int64_t used = 0;
    if (n % 4) return -1;
    for (int64_t i = 0; i < n; i += 4) {
        const int padding = i + 4 < n || from[i + 3] != '=' ? 0 : from[i + 2] == '=' ? 2 : 1;
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            const int digit = k < 4 - padding ? gx__charsmap_digit(from[i + k]) : 0;
            if (digit < 0) return -1;
            bits = bits << 6 | (uint32_t)digit;
        }
        if (bits & ((1u << 8 * padding) - 1)) return -1;
        for (int k = 0; k < 3 - padding; k++) out[used++] = (char)(bits >> (16 - 8 * k) & 0xFF);
    }
    return used;
}

static uint32_t gx__charsmap_label(uint32_t unit) { return unit & 0x800000FF; }
static int64_t gx__charsmap_offset(uint32_t unit) { return (int64_t)(unit >> 10) << (unit & 512 ? 8 : 0); }
static int64_t gx__charsmap_value(uint32_t unit) { return unit & 0x7FFFFFFF; }

// The most bytes of a replacement: a file with many keys and long replacements would take hours to read.
enum { GX__CHARSMAP_TEXT = 1 << 12 };

// Checks the replacement, at `value`, of a key of `length` bytes.
static int gx__charsmap_check_text(GxCharsmap *m, int64_t value, int64_t length)
{
    if (value > m->bytes || (value < m->bytes && ((unsigned char)m->text[value] & 0xC0) == 0x80)) return 0;
    const char *end = (const char *)memchr(m->text + value, 0, (size_t)(m->bytes - value));
    const int64_t n = (end ? end : m->text + m->bytes) - (m->text + value);
    int64_t characters = 0;
    if (n > GX__CHARSMAP_TEXT) return 0;
    for (int64_t i = 0; i < n; i++) characters += ((unsigned char)m->text[value + i] & 0xC0) != 0x80;
    m->most_characters = gx_max(m->most_characters, characters);
    m->most_for_byte = gx_max(m->most_for_byte, (n + length - 1) / length);
    return 1;
}

// Visits each place that keys lead to once, breadth first. at[units] and depth[units] are work space; seen[units] must
// be 0.
static int gx__charsmap_walk(GxCharsmap *m, int32_t *at, int32_t *depth, unsigned char *seen)
{
    int64_t n = 1;
    at[0] = (int32_t)gx__charsmap_offset(m->unit[0]), depth[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        if ((at[i] | 255) >= m->units) return 0;
        for (int32_t byte = 1; byte < 256; byte++) {
            const int32_t place = at[i] ^ byte;
            const uint32_t unit = m->unit[place];
            if (gx__charsmap_label(unit) != (uint32_t)byte) continue;
            const int64_t next = place ^ gx__charsmap_offset(unit);
            if (next >= m->units) return 0;
            if (unit >> 8 & 1 && !gx__charsmap_check_text(m, gx__charsmap_value(m->unit[next]), depth[i] + 1)) return 0;
            if (seen[next]) continue;
            seen[next] = 1;
            at[n] = (int32_t)next, depth[n++] = depth[i] + 1;
        }
    }
    return 1;
}

static GxStatus gx__charsmap_check(GxCharsmap *m, const char *where, GxError *err)
{
    int32_t *at = (int32_t *)malloc((size_t)(m->units + 1) * sizeof *at),
            *depth = (int32_t *)malloc((size_t)(m->units + 1) * sizeof *depth);
    unsigned char *seen = (unsigned char *)calloc((size_t)m->units, 1);
    GxStatus status = GX_OK;
    if (!at || !depth || !seen) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for a charsmap");
    else if (!gx__charsmap_walk(m, at, depth, seen))
        status = GX_FAIL(err, GX_ERR_FORMAT,
                         "%s: the precompiled_charsmap points beyond its end, or to a text of more than %d bytes",
                         where, GX__CHARSMAP_TEXT);
    free(at), free(depth), free(seen);
    return status;
}

static int gx__charsmap_is_utf8(const char *text, int64_t n)
{
    for (const char *p = text, *end = text + n; p < end;) {
        uint32_t c;
        const int bytes = gx_unicode_decode(p, end, &c);
        if (c == GX_REPLACEMENT && !(bytes == 3 && (unsigned char)*p == 0xEF)) return 0;
        p += bytes;
    }
    return 1;
}

static uint32_t gx__charsmap_number(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static GxStatus gx__charsmap_read(GxCharsmap *m, const char *base64, const char *where, GxError *err)
{
    const int64_t digits = (int64_t)strlen(base64);
    m->data = (char *)malloc((size_t)digits + 1);
    if (!m->data) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a charsmap");
    const int64_t n = gx__charsmap_decode(base64, digits, m->data),
                  trie = n >= 4 ? (int64_t)gx__charsmap_number(m->data) : 0;
    if (trie < 4 || trie % 4 || trie > n - 4)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: the precompiled_charsmap is %s; expected base64 of a length, a trie of so many bytes, and "
                       "texts",
                       where, n < 0 ? "no base64" : "too short for its trie");
    m->units = trie / 4;
    m->text = m->data + 4 + trie;
    m->bytes = n - 4 - trie;
    if (!gx__charsmap_is_utf8(m->text, m->bytes))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the texts of the precompiled_charsmap are not UTF-8", where);
    m->unit = (uint32_t *)malloc((size_t)trie);
    if (!m->unit) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a charsmap");
    for (int64_t i = 0; i < m->units; i++) m->unit[i] = gx__charsmap_number(m->data + 4 + 4 * i);
    return gx__charsmap_check(m, where, err);
}

GxStatus gx_charsmap_open(GxCharsmap *m, const char *base64, const char *where, GxError *err)
{
    memset(m, 0, sizeof *m);
    const GxStatus status = gx__charsmap_read(m, base64, where, err);
    if (status != GX_OK) gx_charsmap_close(m);
    return status;
}

void gx_charsmap_close(GxCharsmap *m)
{
    free(m->unit);
    free(m->data);
    memset(m, 0, sizeof *m);
}

const char *gx_charsmap_find(const GxCharsmap *m, const char *text, int64_t n, int64_t *bytes)
{
    int64_t at = gx__charsmap_offset(m->unit[0]);
    for (int64_t i = 0; i < n && text[i]; i++) {
        const uint32_t byte = (unsigned char)text[i], unit = m->unit[at ^ byte];
        if (gx__charsmap_label(unit) != byte) return NULL;
        at ^= byte ^ gx__charsmap_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        const char *value = m->text + gx__charsmap_value(m->unit[at]),
                   *end = (const char *)memchr(value, 0, (size_t)(m->text + m->bytes - value));
        *bytes = (end ? end : m->text + m->bytes) - value;
        return value;
    }
    return NULL;
}
#endif
