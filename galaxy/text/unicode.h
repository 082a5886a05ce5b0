// unicode.h: characters as numbers: decoding and encoding UTF-8, character classes, lower case, decomposition and
// composition. The only file that uses the Unicode library (utf8proc, under GX_WITH_UTF8PROC).
//
// All results are those of Hugging Face's `tokenizers`, so that the same text has the same tokens. Its parts follow
// different versions of Unicode. So classes and letters come from tables that were obtained from it (unicode_tables.h),
// and decomposition is utf8proc's (Unicode guarantees that it never changes), except for characters that are newer than
// the Unicode version of `tokenizers`, which are left alone. All versions of utf8proc that know Unicode 12 (2.4 and
// later) give the same results. Without utf8proc gx_unicode_nfd, _nfc and _alike fail with an error that says so, and
// everything else works.
//
//     uint32_t c;
//     for (const char *p = text; p < end; p += gx_unicode_decode(p, end, &c)) …
#ifndef GX_UNICODE_H
#define GX_UNICODE_H
#include "../base/status.h"
GX_BEGIN

// GX_NFD_MOST, GX_NFKD_MOST: the most characters that one decomposes into
enum { GX_REPLACEMENT = 0xFFFD, GX_NFD_MOST = 4, GX_NFKD_MOST = 18 };

// Decodes the character at p < end; returns its bytes. What is not UTF-8 (RFC 3629) becomes U+FFFD: one for each
// maximal prefix of a truncated character, and one for each byte that cannot begin a character (Unicode 15, section
// 3.9).
int gx_unicode_decode(const char *p, const char *end, uint32_t *c);
int gx_unicode_encode(uint32_t c, char *out); // out[4]; returns the number of bytes

typedef struct { // a text as characters; grows as needed
    uint32_t *c;
    int64_t n, capacity;
} GxCharacters;
GxStatus gx_characters_reserve(GxCharacters *x, int64_t n, GxError *err); // room for n in total; the contents are kept
GxStatus gx_characters_read(GxCharacters *x, const char *text, int64_t bytes,
                            GxError *err); // replaces the contents
void gx_characters_close(GxCharacters *x);

int gx_unicode_is_space(uint32_t c);               // White_Space: U+0085, U+00A0, U+3000 among it, not U+200B
int gx_unicode_is_python_space(uint32_t c);        // by Python's str.isspace and strip, which include U+001C to U+001F
int gx_unicode_is_other(uint32_t c);               // control, format, private use; but not unassigned
int gx_unicode_is_mark(uint32_t c);                // a nonspacing mark: most accents
int gx_unicode_is_punctuation(uint32_t c);         // including ASCII's symbols: $ + < = > ^ ` | ~
int gx_unicode_lower(uint32_t c, uint32_t out[2]); // returns their number: 1, or 2 (U+0130). No final sigma

int gx_unicode_is_number(uint32_t c); // digits, Roman numerals, fractions: what the pre-tokenizer Digits matches

// The bytes of the grapheme that begins at p < end: a letter with its accents, a syllable, an emoji of several
// characters (extended grapheme clusters: Unicode Standard Annex 29). What is not UTF-8 counts as U+FFFD.
int64_t gx_unicode_grapheme(const char *p, const char *end);

// The i-th range of the characters of a class of regular expressions: "L", "M", "N", "P" or "S" as in \p{L}, or a kind
// of letters ("Lu", "Ll", "Lt", "Lm", "Lo"). Ranges ascend. Returns 0 if there is no such range or class.
int gx_unicode_class(const char *name, int i, uint32_t *first, uint32_t *last);

// Canonical decomposition (NFD; not NFKD) of n characters into out[GX_NFD_MOST * n]; *m: their number. Hangul syllables
// are decomposed, too.
GxStatus gx_unicode_nfd(const uint32_t *text, int64_t n, uint32_t *out, int64_t *m, GxError *err);
// NFC: decomposes, then composes again what can be. out[GX_NFD_MOST * n].
GxStatus gx_unicode_nfc(const uint32_t *text, int64_t n, uint32_t *out, int64_t *m, GxError *err);
// Replaces each character by its compatible ones: ligatures are taken apart, wide letters become plain. NFD of the
// result is NFKD, its NFC is NFKC.
GxStatus gx_unicode_alike(const uint32_t *text, int64_t n, GxCharacters *out, GxError *err);
int gx_unicode_has_nfd(void);         // 0: built without utf8proc, which these functions need
const char *gx_unicode_version(void); // of utf8proc: "2.8.0"; "no": built without it

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_UNICODE_IMPLEMENTED)
#define GX_UNICODE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "unicode_tables.h"
#ifdef GX_WITH_UTF8PROC
#include <utf8proc.h>
#endif

// ---- UTF-8 ---------------------------------------------------------------------------------------------------------

int gx_unicode_decode(const char *p, const char *end, uint32_t *c)
{
    const unsigned char *b = (const unsigned char *)p;
    const int n = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    // the second byte's range excludes overlong forms, surrogates and values above U+10FFFF
    const int low = b[0] == 0xE0   ? 0xA0
                    : b[0] == 0xF0 ? 0x90
                                   : 0x80,
              high = b[0] == 0xED   ? 0x9F
                     : b[0] == 0xF4 ? 0x8F
                                    : 0xBF;
    *c = b[0];
    if (b[0] < 0x80) return 1;
    *c = GX_REPLACEMENT;
    if (b[0] < 0xC2 || b[0] > 0xF4 || end - p < 2 || b[1] < low || b[1] > high) return 1;
    uint32_t code = (uint32_t)(b[0] & (0xFF >> (n + 1))) << 6 | (b[1] & 0x3F);
    for (int i = 2; i < n; i++) {
        if (end - p <= i || (b[i] & 0xC0) != 0x80) return i;
        code = code << 6 | (b[i] & 0x3F);
    }
    *c = code;
    return n;
}

int gx_unicode_encode(uint32_t c, char *out)
{
    const int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(first[n] | c);
    return n;
}

GxStatus gx_characters_reserve(GxCharacters *x, int64_t n, GxError *err)
{
    if (n <= x->capacity) return GX_OK;
    const int64_t capacity = gx_max(n, 2 * x->capacity);
    uint32_t *grown = (uint32_t *)realloc(x->c, (size_t)capacity * sizeof *grown);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld characters", (long)capacity);
    x->c = grown;
    x->capacity = capacity;
    return GX_OK;
}

GxStatus gx_characters_read(GxCharacters *x, const char *text, int64_t bytes, GxError *err)
{
    GX_TRY(gx_characters_reserve(x, bytes + 1, err));
    x->n = 0;
    for (const char *p = text, *end = text + bytes; p < end;) p += gx_unicode_decode(p, end, &x->c[x->n++]);
    return GX_OK;
}

void gx_characters_close(GxCharacters *x)
{
    free(x->c);
    memset(x, 0, sizeof *x);
}

// ---- kinds ---------------------------------------------------------------------------------------------------------

#define GX__UNICODE_IN(table, c) gx__unicode_in((table), (int)(sizeof(table) / sizeof *(table)), (c))
static int gx__unicode_in(const gx__UnicodeRange *range, int n, uint32_t c)
{
    int low = 0, high = n; // binary search for the first range that ends at c or later
    while (low < high) {
        const int middle = (low + high) / 2;
        if (range[middle].last < c) low = middle + 1;
        else high = middle;
    }
    return low < n && range[low].first <= c;
}

int gx_unicode_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

int gx_unicode_is_python_space(uint32_t c) { return (c >= 0x1C && c <= 0x1F) || gx_unicode_is_space(c); }

int gx_unicode_is_other(uint32_t c)
{
    if (c >= ' ' && c < 0x7F) return 0;
    return c == 0 || c == '\t' || c == '\n' || c == '\r' || GX__UNICODE_IN(gx__unicode_other, c);
}

int gx_unicode_is_mark(uint32_t c) { return c >= 0x300 && GX__UNICODE_IN(gx__unicode_marks, c); }
int gx_unicode_is_punctuation(uint32_t c) { return GX__UNICODE_IN(gx__unicode_punctuation, c); }

int gx_unicode_is_number(uint32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9';
    return GX__UNICODE_IN(gx__unicode_numbers, c) || GX__UNICODE_IN(gx__unicode_newer_numbers, c);
}

#define GX__UNICODE_CLASS(name, table)                                                                                 \
    {                                                                                                                  \
        name, table, NULL, (int)(sizeof(table) / sizeof *(table))                                                      \
    }
#define GX__UNICODE_STEPS(name, table)                                                                                 \
    {                                                                                                                  \
        name, NULL, table, (int)(sizeof(table) / sizeof *(table))                                                      \
    }
int gx_unicode_class(const char *name, int i, uint32_t *first, uint32_t *last)
{
    static const struct {
        const char *name;
        const gx__UnicodeRange *range;
        const gx__UnicodeSteps *steps; // used if there is no `range`
        int n;
    } known[] = {
        GX__UNICODE_CLASS("L", gx__unicode_letters),        GX__UNICODE_CLASS("M", gx__unicode_any_marks),
        GX__UNICODE_CLASS("N", gx__unicode_numbers),        GX__UNICODE_CLASS("P", gx__unicode_signs),
        GX__UNICODE_CLASS("S", gx__unicode_symbols),        GX__UNICODE_STEPS("Lu", gx__unicode_capitals),
        GX__UNICODE_STEPS("Ll", gx__unicode_small_letters), GX__UNICODE_STEPS("Lt", gx__unicode_title_letters),
        GX__UNICODE_STEPS("Lm", gx__unicode_modifiers),     GX__UNICODE_STEPS("Lo", gx__unicode_other_letters)};
    size_t k = 0;
    while (k < sizeof known / sizeof *known && strcmp(known[k].name, name)) k++;
    if (k == sizeof known / sizeof *known) return 0;
    if (known[k].range) {
        if (i >= known[k].n) return 0;
        return *first = known[k].range[i].first, *last = known[k].range[i].last, 1;
    }
    for (const gx__UnicodeSteps *s = known[k].steps; s < known[k].steps + known[k].n; s++) {
        const int ranges = s->step == 1 ? 1 : (int)((s->last - s->first) / s->step) + 1;
        if (i < ranges) {
            *first = s->first + (uint32_t)i * s->step;
            return *last = s->step == 1 ? s->last : *first, 1;
        }
        i -= ranges;
    }
    return 0;
}

int gx_unicode_lower(uint32_t c, uint32_t out[2])
{
    int low = 0, high = (int)(sizeof gx__unicode_lower / sizeof *gx__unicode_lower);
    out[0] = c;
    if (c < 0x80) {
        if (c >= 'A' && c <= 'Z') out[0] = c + 32;
        return 1;
    }
    if (c == 0x130) { // the one that has two
        out[0] = 'i', out[1] = 0x307;
        return 2;
    }
    for (const int n = high; low < high;) {
        const int middle = (low + high) / 2;
        if (gx__unicode_lower[middle].last < c) low = middle + 1;
        else high = middle;
        if (low == n) return 1;
    }
    const gx__UnicodeRun *run = &gx__unicode_lower[low];
    if (run->first <= c && (c - run->first) % run->step == 0) out[0] = (uint32_t)((int32_t)c + run->add);
    return 1;
}

// ---- graphemes -----------------------------------------------------------------------------------------------------

// The letters of gx__UnicodeJoin, and: 0 any other character, L Hangul's leading consonants, 1 and 2 its syllables
// without and with a trailing consonant, Z U+200D, R regional indicators, r \r.
static int gx__unicode_join(uint32_t c)
{
    const int n = (int)(sizeof gx__unicode_joins / sizeof *gx__unicode_joins);
    int low = 0, high = n;
    if (c >= ' ' && c < 0x7F) return 0;
    if (c == '\r' || c == 0) return c ? 'r' : 'C';
    if (c == 0x200D) return 'Z';
    if ((c >= 0x1100 && c <= 0x115F) || (c >= 0xA960 && c <= 0xA97C)) return 'L';
    if (c >= 0xAC00 && c <= 0xD7A3) return (c - 0xAC00) % 28 ? '2' : '1';
    if (c >= 0x1F1E6 && c <= 0x1F1FF) return 'R';
    while (low < high) {
        const int middle = (low + high) / 2;
        if (gx__unicode_joins[middle].last < c) low = middle + 1;
        else high = middle;
    }
    return low < n && gx__unicode_joins[low].first <= c ? gx__unicode_joins[low].kind : 0;
}

// Three rules depend on more than the previous character: a pictogram with its extenders, followed by U+200D, joins
// another; a consonant followed by a linker joins another; regional indicators come in pairs.
typedef struct {
    int last, is_pictogram, has_joiner, is_consonant, has_linker, regions;
} gx__UnicodeGrapheme;

static void gx__unicode_take(gx__UnicodeGrapheme *g, int kind)
{
    const int extends = kind == 'E' || kind == 'U' || kind == 'I';
    g->has_joiner = g->is_pictogram && kind == 'Z';
    g->is_pictogram = kind == 'X' || (g->is_pictogram && extends);
    g->has_linker = kind != 'K' && (kind == 'I' || g->has_linker);
    g->is_consonant = kind == 'K' || (g->is_consonant && (kind == 'E' || kind == 'I' || kind == 'Z'));
    g->regions += kind == 'R';
    g->last = kind;
}

static int gx__unicode_goes_on(const gx__UnicodeGrapheme *g, int kind)
{
    const int a = g->last;
    if (a == 'C' || a == 'r' || kind == 'C' || kind == 'r') return 0;
    if (kind == 'E' || kind == 'U' || kind == 'I' || kind == 'Z' || kind == 'S' || a == 'P') return 1;
    if (a == 'L') return kind == 'L' || kind == 'V' || kind == '1' || kind == '2';
    if (a == '1' || a == 'V') return kind == 'V' || kind == 'T';
    if (a == '2' || a == 'T') return kind == 'T';
    return (kind == 'X' && g->has_joiner) || (kind == 'K' && g->is_consonant && g->has_linker) ||
           (kind == 'R' && a == 'R' && g->regions % 2);
}

int64_t gx_unicode_grapheme(const char *p, const char *end)
{
    gx__UnicodeGrapheme g = GX_ZERO;
    const char *at = p;
    uint32_t c;
    if (end - p == 1 || ((unsigned char)p[0] < 0x80 && (unsigned char)p[1] < 0x80))
        return end - p > 1 && p[0] == '\r' && p[1] == '\n' ? 2 : 1;
    at += gx_unicode_decode(at, end, &c);
    gx__unicode_take(&g, gx__unicode_join(c));
    while (at < end) {
        const int bytes = gx_unicode_decode(at, end, &c), kind = gx__unicode_join(c);
        if (!gx__unicode_goes_on(&g, kind)) break;
        gx__unicode_take(&g, kind);
        at += bytes;
    }
    return at - p;
}

// ---- decomposition -------------------------------------------------------------------------------------------------

#ifdef GX_WITH_UTF8PROC
int gx_unicode_has_nfd(void) { return 1; }
const char *gx_unicode_version(void) { return utf8proc_version(); }

static int gx__unicode_order(uint32_t c) // the canonical combining class
{
    return c < 0x300 || !GX__UNICODE_IN(gx__unicode_old, c)
               ? 0
               : utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

// Sorts marks by order, stably. A counting sort, since hostile texts have millions in a row.
static GxStatus gx__unicode_sort_many(uint32_t *c, int64_t n, GxError *err)
{
    int64_t place[257] = {0};
    uint32_t *copy = (uint32_t *)malloc((size_t)n * sizeof *copy);
    if (!copy) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to put %ld marks into their order", (long)n);
    memcpy(copy, c, (size_t)n * sizeof *copy);
    for (int64_t i = 0; i < n; i++) place[gx__unicode_order(copy[i]) + 1]++;
    for (int k = 1; k < 257; k++) place[k] += place[k - 1];
    for (int64_t i = 0; i < n; i++) c[place[gx__unicode_order(copy[i])]++] = copy[i];
    free(copy);
    return GX_OK;
}

static GxStatus gx__unicode_sort(uint32_t *c, int64_t n, GxError *err)
{
    if (n > 32) return gx__unicode_sort_many(c, n, err);
    for (int64_t i = 1; i < n; i++) {
        const uint32_t mark = c[i];
        int64_t at = i;
        for (; at > 0 && gx__unicode_order(c[at - 1]) > gx__unicode_order(mark); at--) c[at] = c[at - 1];
        c[at] = mark;
    }
    return GX_OK;
}

static int gx__unicode_parts(uint32_t c, uint32_t out[GX_NFD_MOST])
{
    utf8proc_int32_t part[GX_NFD_MOST];
    int boundary = 0; // of graphemes; not used
    out[0] = c;
    if (c < 0xC0 || !GX__UNICODE_IN(gx__unicode_old, c)) return 1;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, part, GX_NFD_MOST, UTF8PROC_DECOMPOSE, &boundary);
    if (n < 1 || n > GX_NFD_MOST) return 1;
    for (int i = 0; i < (int)n; i++) out[i] = (uint32_t)part[i];
    return (int)n;
}

GxStatus gx_unicode_nfd(const uint32_t *text, int64_t n, uint32_t *out, int64_t *m, GxError *err)
{
    int64_t used = 0, marks = 0; // the trailing marks, which may have to be reordered
    for (int64_t i = 0; i < n; i++) {
        uint32_t part[GX_NFD_MOST];
        const int parts = gx__unicode_parts(text[i], part);
        for (int k = 0; k < parts; k++) {
            const int is_mark = gx__unicode_order(part[k]) > 0;
            if (!is_mark && marks > 1) GX_TRY(gx__unicode_sort(out + used - marks, marks, err));
            marks = is_mark ? marks + 1 : 0;
            out[used++] = part[k];
        }
    }
    *m = used;
    return marks > 1 ? gx__unicode_sort(out + used - marks, marks, err) : GX_OK;
}

// The character that a and b compose to; 0: none.
static uint32_t gx__unicode_pair(uint32_t a, uint32_t b)
{
    utf8proc_int32_t both[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    if (b < 0x300) return 0;
    if (utf8proc_normalize_utf32(both, 2, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE)) != 1) return 0;
    return GX__UNICODE_IN(gx__unicode_old, (uint32_t)both[0]) ? (uint32_t)both[0] : 0;
}

// Each character is composed with the last one that is not a mark, unless a character between them blocks it (Unicode
// 15, D117).
GxStatus gx_unicode_nfc(const uint32_t *text, int64_t n, uint32_t *out, int64_t *m, GxError *err)
{
    int64_t used = 0, base = -1;
    int last = 0; // the order of the previous mark after the base
    GX_TRY(gx_unicode_nfd(text, n, out, m, err));
    for (int64_t i = 0; i < *m; i++) {
        const uint32_t c = out[i];
        const int order = gx__unicode_order(c), is_next = base == used - 1;
        const uint32_t both = base >= 0 && (is_next || last < order) ? gx__unicode_pair(out[base], c) : 0;
        if (both) {
            out[base] = both;
            continue;
        }
        if (order == 0) base = used;
        last = order;
        out[used++] = c;
    }
    *m = used;
    return GX_OK;
}

GxStatus gx_unicode_alike(const uint32_t *text, int64_t n, GxCharacters *out, GxError *err)
{
    out->n = 0;
    for (int64_t i = 0; i < n; i++) {
        utf8proc_int32_t part[GX_NFKD_MOST];
        int boundary = 0;
        utf8proc_ssize_t parts = 0;
        GX_TRY(gx_characters_reserve(out, out->n + GX_NFKD_MOST, err));
        if (text[i] >= 0xA0 && GX__UNICODE_IN(gx__unicode_old_alike, text[i]))
            parts = utf8proc_decompose_char((utf8proc_int32_t)text[i], part, GX_NFKD_MOST,
                                            (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), &boundary);
        if (parts < 1 || parts > GX_NFKD_MOST) out->c[out->n++] = text[i];
        else
            for (int k = 0; k < (int)parts; k++) out->c[out->n++] = (uint32_t)part[k];
    }
    return GX_OK;
}

#else
int gx_unicode_has_nfd(void) { return 0; }
const char *gx_unicode_version(void) { return "no"; }

GxStatus gx_unicode_nfd(const uint32_t *text, int64_t n, uint32_t *out, int64_t *m, GxError *err)
{
    (void)text, (void)n, (void)out, *m = 0;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "accents cannot be separated from letters, because this was built without utf8proc; install "
                   "libutf8proc-dev (Fedora: utf8proc-devel; Homebrew: utf8proc) and build again");
}

GxStatus gx_unicode_nfc(const uint32_t *text, int64_t n, uint32_t *out, int64_t *m, GxError *err)
{
    return gx_unicode_nfd(text, n, out, m, err); // reports the error
}

GxStatus gx_unicode_alike(const uint32_t *text, int64_t n, GxCharacters *out, GxError *err)
{
    return gx_unicode_nfd(text, n, NULL, &out->n, err);
}
#endif
#endif
