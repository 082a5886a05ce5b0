// words.h: what stands between a text and the words that a model cuts into pieces (bpe.h, unigram.h): added tokens, the
// normalizer, the pre-tokenizer, and the decoder that goes the way back. Each is a row of steps, named and working as
// in tokenizer.json, which words_files.h reads.
//
// A text goes through these, with the same result as in Hugging Face's `tokenizers` 0.23:
//   1. added tokens (<|endoftext|>, …) are found: the leftmost, of those the longest; first those that are not
//      normalised, in the text as it is, then the others, in what step 2 makes of the text between
//   2. the normalizer: NFC and the like, lower case, a charsmap (charsmap.h); something put before the text; one thing
//      replaced by another; white space at the ends taken away
//   3. the pre-tokenizer: words by a regular expression or white space, digits apart, ▁ for spaces, a character for
//      each byte
//   4. each word by itself: the model
//
// Bytes that are not UTF-8 are U+FFFD (unicode.h). In decoding they become U+FFFD, too, as `tokenizers` has it: one for
// each longest beginning of a character that is cut off (ByteLevel), or, where a row of byte pieces is not UTF-8 as a
// whole, one for each byte of it (ByteFallback).
#ifndef GX_WORDS_H
#define GX_WORDS_H
#include "charsmap.h"
#include "pieces.h"
#include "regex.h"
#include "tokenizer_kind.h"
GX_BEGIN

typedef enum {          // in an order that stays as it is: identities follow from the numbers
    GX_WORDS_NFC,       // normalizer
    GX_WORDS_PREPEND,   // normalizer: text
    GX_WORDS_REPLACE,   // normalizer, decoder: text by content
    GX_WORDS_SPLIT,     // pre-tokenizer: regex; keeps: GX_WORDS_MATCHES | GX_WORDS_GAPS
    GX_WORDS_DIGITS,    // pre-tokenizer; keeps: 1 each by itself, 0 a row of them
    GX_WORDS_PREFIX,    // pre-tokenizer: a space before what begins with none
    GX_WORDS_BYTES,     // pre-tokenizer, decoder: a character for each byte
    GX_WORDS_METASPACE, // pre-tokenizer, decoder: text for spaces, and before a text by `keeps`: GX_WORDS_NEVER, …
    GX_WORDS_BEFORE,    // pre-tokenizer: a word begins at each text
    GX_WORDS_BYTE_FALLBACK, // decoder
    GX_WORDS_FUSE,          // decoder
    GX_WORDS_STRIP,         // decoder: up to `keeps` of text at the beginning of a token
    GX_WORDS_NFD,           // normalizer, as the next five
    GX_WORDS_NFKC,
    GX_WORDS_NFKD,
    GX_WORDS_LOWERCASE,
    GX_WORDS_CHARSMAP,      // text: as in the file
    GX_WORDS_TRIM,          // white space at the ends; keeps: GX_WORDS_LEFT | GX_WORDS_RIGHT, where
    GX_WORDS_REPLACE_REGEX, // normalizer: what regex finds, by content
    GX_WORDS_SPACES         // pre-tokenizer: words are what is between white space
} GxWordStepKind;
enum { GX_WORDS_TOO_MANY = 1 << 20 }; // tokens for a byte, or bytes for a token: no tokenizer has so many
enum { GX_WORDS_STEPS = 16, GX_WORDS_MATCHES = 1, GX_WORDS_GAPS = 2, GX_WORDS_LEFT = 1, GX_WORDS_RIGHT = 2 };
enum { GX_WORDS_NEVER = 0, GX_WORDS_FIRST = 1, GX_WORDS_ALWAYS = 2 };
typedef struct {
    GxWordStepKind kind;
    int64_t keeps;
    char *text, *content; // NULL: none
    int64_t text_n, content_n;
    GxRegex *regex;
    GxCharsmap *charsmap;
} GxWordStep;
typedef struct {
    GxWordStep step[GX_WORDS_STEPS];
    int n;
} GxWordSteps;

typedef struct {
    char *pattern; // what it is in a text: normalised, if it is
    int64_t bytes;
    int32_t id;
    int special, normalized, lstrip, rstrip; // lstrip: takes the white space before it along
} GxWordAdded;

typedef struct GxWords GxWords;
typedef struct { // a model: how a word becomes pieces
    const char *name;
    int64_t room; // bytes of what a word needs on its way, which are 0 at first
    // word[bytes] is UTF-8. ids[bytes]: there are no more than that; *n: how many.
    GxStatus (*word)(const GxWords *v, void *room, const char *word, int64_t bytes, int32_t *ids, int64_t *n,
                     GxError *err);
    void (*room_close)(void *room);
    uint64_t (*hash)(const GxWords *v, uint64_t hash); // of its settings, for the identity
    void (*close)(GxWords *v);
} GxWordModel;

struct GxWords { // a tokenizer around its model; it is only read. The first member of a kind's own struct
    const GxWordModel *model;
    GxPieces *p;       // the model's, to which added tokens are added
    int32_t unk;       // -1: there is none
    int byte_fallback; // a character may become a token for each of its bytes
    uint64_t content;  // a hash of what else the model has: merges, scores
    GxWordSteps normalizer, pre_tokenizer, decoder;
    int has_decoder;
    GxWordAdded *added; // special ones first
    int added_n;
    unsigned char leads[2][256]; // [normalized]: 1: one begins with this byte
    char *file[4];               // the files it was read from, as they are (words_files.h)
    int64_t file_n[4];
};

typedef struct { // bytes that grow as needed
    char *p;
    int64_t n, capacity;
} GxWordBytes;

void gx_words_steps_close(GxWordSteps *s);
// Step 2 on text[n], into `out`, which is made empty before. *moved: its beginning was taken away.
GxStatus gx_words_normalize(const GxWordSteps *s, const char *text, int64_t n, GxWordBytes *out, int *moved,
                            GxError *err);
int gx_words_tokens_for_byte(const GxWords *v); // at most; GX_WORDS_TOO_MANY: or more
// The functions of a GxTokenizerKind (tokenizer_kind.h).
GxStatus gx_words_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special, int32_t *ids,
                         int64_t *n, GxError *err);
GxStatus gx_words_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                         int64_t *bytes, GxError *err);
int gx_words_longest(const GxWords *v); // bytes of decoded text for a token, at most; GX_WORDS_TOO_MANY: or more
int gx_words_lines_are_apart(const GxTokenizer *t); // of a GxTokenizerKind, too

// Regular expressions that many models' words are cut by.
extern const char gx_words_of_gpt2[], gx_words_of_llama3[], gx_words_of_qwen2[], gx_words_of_tekken[];

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_IMPLEMENTED)
#define GX_WORDS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "byte_tokens.h"

// ---- bytes ---------------------------------------------------------------------------------------------------------

static GxStatus gx__words_room_for(GxWordBytes *b, int64_t more, GxError *err)
{
    if (b->n + more <= b->capacity) return GX_OK;
    const int64_t capacity = gx_max(b->n + more, 2 * b->capacity);
    char *grown = (char *)realloc(b->p, (size_t)capacity);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)capacity);
    b->p = grown;
    b->capacity = capacity;
    return GX_OK;
}

static GxStatus gx__words_put(GxWordBytes *b, const char *text, int64_t n, GxError *err)
{
    GX_TRY(gx__words_room_for(b, n, err));
    if (n > 0) memcpy(b->p + b->n, text, (size_t)n);
    b->n += n;
    return GX_OK;
}

static void gx__words_free(GxWordBytes *b)
{
    free(b->p);
    memset(b, 0, sizeof *b);
}

static int gx__words_is_at(const char *text, int64_t n, const char *what, int64_t bytes)
{
    return n >= bytes && !memcmp(text, what, (size_t)bytes);
}

void gx_words_steps_close(GxWordSteps *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->step[i].text);
        free(s->step[i].content);
        if (s->step[i].regex) gx_regex_close(s->step[i].regex);
        if (s->step[i].charsmap) gx_charsmap_close(s->step[i].charsmap);
        free(s->step[i].charsmap);
    }
    memset(s, 0, sizeof *s);
}

// text[n] as UTF-8: U+FFFD for what is not.
static GxStatus gx__words_clean(const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    out->n = 0;
    for (const char *p = text, *end = text + n, *done = text; p <= end;) {
        uint32_t c = 0;
        const int bytes = p < end ? gx_unicode_decode(p, end, &c) : 1,
                  is_bad = c == GX_REPLACEMENT && !(bytes == 3 && (unsigned char)*p == 0xEF);
        if (is_bad || p == end) {
            GX_TRY(gx__words_put(out, done, p - done, err));
            if (is_bad) GX_TRY(gx__words_put(out, "\xEF\xBF\xBD", 3, err));
            done = p + bytes;
        }
        p += bytes;
    }
    return GX_OK;
}

// ---- the normalizer ------------------------------------------------------------------------------------------------

// The four normal forms. What is plain enough for the form is left alone: composed ASCII and Latin-1 stay as they are.
static GxStatus gx__words_form(GxWordStepKind kind, GxWordBytes *text, GxError *err)
{
    const int composes = kind == GX_WORDS_NFC || kind == GX_WORDS_NFKC,
              is_alike = kind == GX_WORDS_NFKC || kind == GX_WORDS_NFKD;
    const unsigned char first = kind == GX_WORDS_NFC ? 0xCC : is_alike ? 0xC2 : 0xC3; // of U+0300, U+00A0, U+00C0
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
    if (status == GX_OK) status = gx__words_room_for(text, 4 * formed.n, err);
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
        GX_TRY(gx__words_room_for(out, 8, err));
        const int parts = gx_unicode_lower(c, lower);
        for (int k = 0; k < parts; k++) out->n += gx_unicode_encode(lower[k], out->p + out->n);
    }
    return GX_OK;
}

// Grapheme by grapheme, as charsmap.h says.
static GxStatus gx__words_charsmap(const GxCharsmap *m, const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    for (const char *p = text, *end = text + n, *value; p < end;) {
        const char *stop = p + gx_unicode_grapheme(p, end);
        int64_t bytes;
        if (stop - p < GX_CHARSMAP_GRAPHEME && (value = gx_charsmap_find(m, p, stop - p, &bytes)) != NULL) {
            GX_TRY(gx__words_put(out, value, bytes, err));
            p = stop;
        }
        while (p < stop) {
            uint32_t c;
            const int size = gx_unicode_decode(p, end, &c);
            value = gx_charsmap_find(m, p, size, &bytes);
            GX_TRY(gx__words_put(out, value ? value : p, value ? bytes : size, err));
            p += size;
        }
    }
    return GX_OK;
}

// out: text[n] with s->content for each s->text.
static GxStatus gx__words_replace(const GxWordStep *s, const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        if (!gx__words_is_at(text + i, n - i, s->text, s->text_n)) {
            i++;
            continue;
        }
        GX_TRY(gx__words_put(out, text + done, i - done, err));
        GX_TRY(gx__words_put(out, s->content, s->content_n, err));
        done = i += s->text_n;
    }
    return gx__words_put(out, text + done, n - done, err);
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
        if (status == GX_OK) status = gx__words_put(out, text + at, start - at, err);
        if (status == GX_OK && is_found) status = gx__words_put(out, s->content, s->content_n, err);
    }
    gx_regex_room_close(&room);
    return status;
}

static int64_t gx__words_space_before(const char *text, int64_t begin, int64_t end);
static int64_t gx__words_space_behind(const char *text, int64_t n, int64_t at);
static GxStatus gx__words_trim(const GxWordStep *s, const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    const int64_t first = s->keeps & GX_WORDS_LEFT ? gx__words_space_behind(text, n, 0) : 0,
                  end = s->keeps & GX_WORDS_RIGHT ? gx__words_space_before(text, first, n) : n;
    return gx__words_put(out, text + first, end - first, err);
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
        if (text->n > 0) GX_TRY(gx__words_put(spare, s->text, s->text_n, err));
        GX_TRY(gx__words_put(spare, text->p, text->n, err));
        break;
    case GX_WORDS_REPLACE: GX_TRY(gx__words_replace(s, text->p, text->n, spare, err)); break;
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
    GxStatus status = gx__words_put(out, text, n, err);
    for (int i = 0; i < s->n && status == GX_OK; i++) {
        const int trims = s->step[i].kind == GX_WORDS_TRIM && s->step[i].keeps & GX_WORDS_LEFT;
        *moved |= trims && gx__words_space_behind(out->p, out->n, 0) > 0;
        status = gx__words_normalize_step(&s->step[i], out, &spare, err);
    }
    gx__words_free(&spare);
    return status;
}

// ---- what is known of words ----------------------------------------------------------------------------------------

const char gx_words_of_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
           gx_words_of_llama3[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                                  "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
           gx_words_of_qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                                 "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
           gx_words_of_tekken[] =
               "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
               "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}|"
               " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// Of "x\nA", x no white space, A a letter: each of these ends a word behind \n, alone or with signs before it, wherever
// it began, and whether A comes then or the text ends.
static int gx__words_ends_lines(const GxWordStep *s)
{
    static const char *const known[] = {gx_words_of_gpt2, gx_words_of_llama3, gx_words_of_qwen2, gx_words_of_tekken};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (s->kind == GX_WORDS_SPLIT && !strcmp(s->text, known[i]))
            return s->keeps == (GX_WORDS_MATCHES | GX_WORDS_GAPS);
    return 0;
}

// No added token has \n in it, or takes it from before what may be a letter; what the normalizer makes of x, \n and A
// is the same, whatever stands around them; words end there, and nothing depends on where a text begins.
int gx_words_lines_are_apart(const GxTokenizer *t)
{
    const GxWords *v = (const GxWords *)t->vocabulary;
    int ends = 0, is_apart = 1;
    for (int i = 0; i < v->added_n; i++)
        is_apart &= !memchr(v->added[i].pattern, '\n', (size_t)v->added[i].bytes) &&
                    !(v->added[i].lstrip && gx_may_be_letter(v->added[i].pattern[0]));
    for (int i = 0; i < v->normalizer.n; i++) {
        const GxWordStepKind kind = v->normalizer.step[i].kind;
        is_apart &= kind == GX_WORDS_NFC || kind == GX_WORDS_NFD || kind == GX_WORDS_NFKC || kind == GX_WORDS_NFKD ||
                    kind == GX_WORDS_LOWERCASE;
    }
    for (int i = 0; i < v->pre_tokenizer.n; i++) {
        const GxWordStep *s = &v->pre_tokenizer.step[i];
        ends |= gx__words_ends_lines(s);
        is_apart &= s->kind == GX_WORDS_DIGITS || s->kind == GX_WORDS_BYTES || gx__words_ends_lines(s);
    }
    return is_apart && ends;
}

// ---- the pre-tokenizer ---------------------------------------------------------------------------------------------

typedef struct { // an encoding on its way
    const GxWords *v;
    GxSpecialTokens special;
    GxWordBytes clean, normal, made[GX_WORDS_STEPS]; // made: by each step of the pre-tokenizer
    GxRegexRoom regex;
    void *room; // the model's
    int32_t *ids;
    int64_t n;
    GxError *err;
} gx__WordsWork;

// What the pre-tokenizer from a step on makes of text[n]. Each part that a step makes goes through all that follow
// before the next one is made. is_first: it begins where the whole text does.
static GxStatus gx__words_cut(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first);

static GxStatus gx__words_split(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    const GxWordStep *s = &w->v->pre_tokenizer.step[step];
    for (int64_t at = 0, start, end; at < n; at = end) {
        GX_TRY(gx_regex_find(s->regex, &w->regex, text, n, at, &start, &end, w->err));
        if (start < 0) start = end = n;
        if (start > at && (s->keeps & GX_WORDS_GAPS))
            GX_TRY(gx__words_cut(w, step + 1, text + at, start - at, is_first && at == 0));
        if (end > start && (s->keeps & GX_WORDS_MATCHES))
            GX_TRY(gx__words_cut(w, step + 1, text + start, end - start, is_first && start == 0));
    }
    return GX_OK;
}

static GxStatus gx__words_spaces(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    for (int64_t at = gx__words_space_behind(text, n, 0), end; at < n; at = gx__words_space_behind(text, n, end)) {
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
    GX_TRY(gx__words_put(made, " ", 1, w->err));
    GX_TRY(gx__words_put(made, text, n, w->err));
    return gx__words_cut(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__words_bytes(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    GxWordBytes *made = &w->made[step];
    made->n = 0;
    GX_TRY(gx__words_room_for(made, 2 * n + 1, w->err));
    for (int64_t i = 0; i < n; i++) made->n += gx_byte_character((unsigned char)text[i], made->p + made->n);
    return gx__words_cut(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__words_metaspace(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    static char space[] = " ";
    const GxWordStep *s = &w->v->pre_tokenizer.step[step];
    const GxWordStep replace = {GX_WORDS_REPLACE, 0, space, s->text, 1, s->text_n, NULL, NULL};
    GxWordBytes *made = &w->made[step];
    const int begins = text[0] == ' ' || gx__words_is_at(text, n, s->text, s->text_n);
    made->n = 0;
    if (!begins && (s->keeps == GX_WORDS_ALWAYS || (s->keeps == GX_WORDS_FIRST && is_first)))
        GX_TRY(gx__words_put(made, s->text, s->text_n, w->err));
    GX_TRY(gx__words_replace(&replace, text, n, made, w->err));
    return gx__words_cut(w, step + 1, made->p, made->n, is_first);
}

static GxStatus gx__words_before(gx__WordsWork *w, int step, const char *text, int64_t n, int is_first)
{
    const GxWordStep *s = &w->v->pre_tokenizer.step[step];
    int64_t done = 0;
    for (int64_t i = 1; i < n; i++) {
        if (!gx__words_is_at(text + i, n - i, s->text, s->text_n)) continue;
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
            gx__words_is_at(text, n, a->pattern, a->bytes))
            best = a;
    }
    return best;
}

// Where the white space before text[end] begins, but not before text[begin].
static int64_t gx__words_space_before(const char *text, int64_t begin, int64_t end)
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

static int64_t gx__words_space_behind(const char *text, int64_t n, int64_t at)
{
    while (at < n) {
        uint32_t c;
        const int bytes = gx_unicode_decode(text + at, text + n, &c);
        if (!gx_unicode_is_space(c)) break;
        at += bytes;
    }
    return at;
}

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

// A text with the added tokens in it that are normalised, or are not; what is between them goes on.
static GxStatus gx__words_added(gx__WordsWork *w, const char *text, int64_t n, int normalized, int is_first)
{
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        const GxWordAdded *a = gx__words_added_at(w->v, normalized, text + i, n - i);
        int64_t first = i, end = i + (a ? a->bytes : 1);
        i = end;
        if (!a || (a->special && w->special == GX_SPECIAL_AS_TEXT)) continue;
        if (a->lstrip) first = gx__words_space_before(text, done, first);
        if (a->rstrip) end = gx__words_space_behind(text, n, end);
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
    GxStatus status = w.room ? gx__words_clean(text, bytes, &w.clean, err)
                             : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)bytes);
    if (status == GX_OK) status = gx__words_added(&w, w.clean.p, w.clean.n, 0, 1);
    *n = status == GX_OK ? w.n : 0;
    gx__words_free(&w.clean);
    gx__words_free(&w.normal);
    for (int i = 0; i < GX_WORDS_STEPS; i++) gx__words_free(&w.made[i]);
    gx_regex_room_close(&w.regex);
    if (w.room) w.v->model->room_close(w.room);
    free(w.room);
    return status;
}

static int64_t gx__words_characters(const char *text)
{
    int64_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

// Each step makes of a part of n >= 1 units at most n times this: bytes, or characters where a token has one at least.
static int64_t gx__words_grows(const GxWordStep *s, int by_bytes, int byte_fallback)
{
    const int64_t text = !s->text   ? 0
                         : by_bytes ? s->text_n
                                    : gx__words_characters(s->text),
                  content = !s->content ? 0
                            : by_bytes  ? s->content_n
                                        : gx__words_characters(s->content);
    switch (s->kind) {
    case GX_WORDS_NFC:
    case GX_WORDS_NFD: return by_bytes ? 3 : GX_NFD_MOST; // of UTF-8: Unicode Standard Annex 15
    case GX_WORDS_NFKC:
    case GX_WORDS_NFKD: return by_bytes ? 11 : GX_NFKD_MOST;
    case GX_WORDS_LOWERCASE: return 2; // U+0130
    case GX_WORDS_CHARSMAP: return gx_max(1, by_bytes ? s->charsmap->most_for_byte : s->charsmap->most_characters);
    case GX_WORDS_PREPEND: return 1 + text;
    case GX_WORDS_REPLACE: return gx_max(1, (content + text - 1) / text);
    case GX_WORDS_REPLACE_REGEX: return gx_max(1, content);
    case GX_WORDS_PREFIX: return 2;
    case GX_WORDS_BYTES: return byte_fallback ? 2 : 1; // of what stands for a byte
    case GX_WORDS_METASPACE: return 1 + text;
    default: return 1;
    }
}

// A byte that is not UTF-8 becomes three, or one character, which no normal form changes: a first one makes of a byte
// three or eleven, and not three times that.
int gx_words_tokens_for_byte(const GxWords *v)
{
    const GxWordSteps *rows[] = {&v->normalizer, &v->pre_tokenizer};
    int by_bytes = v->byte_fallback;
    for (int i = 0; i < v->pre_tokenizer.n; i++) by_bytes |= v->pre_tokenizer.step[i].kind == GX_WORDS_BYTES;
    int64_t most = by_bytes ? 3 : 1;
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < rows[r]->n; i++) {
            const GxWordStepKind kind = rows[r]->step[i].kind;
            const int is_form =
                kind == GX_WORDS_NFC || kind == GX_WORDS_NFD || kind == GX_WORDS_NFKC || kind == GX_WORDS_NFKD;
            const int64_t grows = gx__words_grows(&rows[r]->step[i], by_bytes, v->byte_fallback);
            most = by_bytes && i == 0 && is_form ? gx_max(most, grows) : most * grows;
            most = gx_min(most, GX_WORDS_TOO_MANY);
        }
    return (int)most;
}

// ---- decoding ------------------------------------------------------------------------------------------------------

typedef struct { // tokens as texts: token i is bytes[end[i - 1], end[i]); there are never more than at first
    GxWordBytes bytes;
    int64_t *end, n;
} gx__WordsTokens;

static int64_t gx__words_begin(const gx__WordsTokens *x, int64_t i) { return i > 0 ? x->end[i - 1] : 0; }

// The bytes that a token stands for; if it has another character, itself.
static GxStatus gx__words_put_token_bytes(const char *text, int64_t n, GxWordBytes *out, GxError *err)
{
    const int64_t begun = out->n;
    GX_TRY(gx__words_room_for(out, n, err));
    for (const char *p = text, *end = text + n; p < end;) {
        uint32_t c;
        p += gx_unicode_decode(p, end, &c);
        const int byte = gx_byte_of_character(c);
        if (byte < 0) {
            out->n = begun;
            return gx__words_put(out, text, n, err);
        }
        out->p[out->n++] = (char)byte;
    }
    return GX_OK;
}

// All tokens as one.
static GxStatus gx__words_decode_bytes(const gx__WordsTokens *x, gx__WordsTokens *out, GxError *err)
{
    GxWordBytes all = GX_ZERO;
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < x->n && status == GX_OK; i++) {
        const int64_t begin = gx__words_begin(x, i);
        status = gx__words_put_token_bytes(x->bytes.p + begin, x->end[i] - begin, &all, err);
    }
    if (status == GX_OK) status = gx__words_clean(all.p, all.n, &out->bytes, err);
    gx__words_free(&all);
    out->n = x->n > 0;
    if (out->n) out->end[0] = out->bytes.n;
    return status;
}

static int gx__words_hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

// <0x0A>; -1: it is another token. `tokenizers` also reads <0x+A>.
static int gx__words_fallback_byte(const char *text, int64_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    const int high = text[3] == '+' ? 0 : gx__words_hex(text[3]), low = gx__words_hex(text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

// Rows of byte tokens become one token, or, where that is not UTF-8, a U+FFFD each.
static GxStatus gx__words_decode_fallback(const gx__WordsTokens *x, gx__WordsTokens *out, GxError *err)
{
    for (int64_t i = 0; i < x->n;) {
        const int64_t begun = out->bytes.n, first = i;
        int is_valid = 1, byte;
        for (int64_t at; i < x->n; i++) {
            at = gx__words_begin(x, i);
            if ((byte = gx__words_fallback_byte(x->bytes.p + at, x->end[i] - at)) < 0) break;
            const char c = (char)byte;
            GX_TRY(gx__words_put(&out->bytes, &c, 1, err));
        }
        if (i == first) {
            const int64_t at = gx__words_begin(x, i);
            GX_TRY(gx__words_put(&out->bytes, x->bytes.p + at, x->end[i] - at, err));
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
            GX_TRY(gx__words_put(&out->bytes, "\xEF\xBF\xBD", 3, err));
            out->end[out->n++] = out->bytes.n;
        }
        if (is_valid) out->end[out->n++] = out->bytes.n;
    }
    return GX_OK;
}

// What becomes of one token.
static GxStatus gx__words_decode_token(const GxWordStep *s, int64_t i, const char *text, int64_t n, GxWordBytes *out,
                                       GxError *err)
{
    static char space[] = " ", nothing[] = "";
    GxWordStep replace = {GX_WORDS_REPLACE, 0, s->text, space, s->text_n, 1, NULL, NULL};
    int64_t cut = 0;
    if (s->kind == GX_WORDS_REPLACE) return gx__words_replace(s, text, n, out, err);
    if (s->kind == GX_WORDS_METASPACE) { // at the beginning it was put there
        if (i == 0 && s->keeps != GX_WORDS_NEVER) replace.content = nothing, replace.content_n = 0;
        return gx__words_replace(&replace, text, n, out, err);
    }
    if (s->kind == GX_WORDS_STRIP)
        for (int64_t k = 0; k < s->keeps && gx__words_is_at(text + cut, n - cut, s->text, s->text_n); k++)
            cut += s->text_n;
    return gx__words_put(out, text + cut, n - cut, err);
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

// What a token is in decoded text: its piece; of an added token that is normalised, `tokenizers` 0.23 gives what it is
// then. NULL: no piece has this id.
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

// Of one that is normalised, what it is then has to be the name of a special token.
static int gx__words_is_left_out(const GxWords *v, int32_t id, const char *text, int64_t bytes)
{
    if (!(v->p->flags[id] & GX_PIECE_SPECIAL)) return 0;
    for (int i = 0; i < v->added_n && v->added[i].special; i++)
        if (gx_pieces_is(v->p, v->added[i].id, text, bytes)) return 1;
    return 0;
}

// The tokens' texts. Without a decoder there are spaces between them.
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
        if (!v->has_decoder && x->n > 0) GX_TRY(gx__words_put(&x->bytes, " ", 1, err));
        GX_TRY(gx__words_put(&x->bytes, text, bytes, err));
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
    gx__words_free(&x.bytes), gx__words_free(&out.bytes);
    free(x.end), free(out.end);
    return status;
}

// A byte may become U+FFFD, which has three; a piece of two bytes or more stands for each by one or two of its own.
int gx_words_longest(const GxWords *v)
{
    int64_t most = 1;
    for (int32_t id = 0; id < v->p->size; id++) most = gx_max(most, gx_pieces_bytes(v->p, id));
    for (int i = 0; i < v->added_n; i++) most = gx_max(most, v->added[i].bytes);
    most += !v->has_decoder;
    for (int i = 0; i < v->decoder.n; i++) {
        const GxWordStep *s = &v->decoder.step[i];
        if (s->kind == GX_WORDS_BYTES) most = 3 * most;
        if (s->kind == GX_WORDS_REPLACE) most *= gx_max(1, (s->content_n + s->text_n - 1) / s->text_n);
        most = gx_min(most, GX_WORDS_TOO_MANY);
    }
    return (int)most;
}
#endif
