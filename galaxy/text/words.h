// words.h: what happens between a text and the words that a model splits into pieces (bpe.h, unigram.h): added tokens,
// the normalizer, the pre-tokenizer, and, in the opposite direction, the decoder. Each is a sequence of steps with the
// names and the meaning of tokenizer.json. This header defines the steps, and how much a text can grow by them;
// words_normalize.h, words_encode.h and words_decode.h execute them, words_files.h reads and writes them.
//
// A text goes through these, with the same result as in Hugging Face's `tokenizers` 0.23:
//   1. added tokens (<|endoftext|>, …) are found: the leftmost, of those the longest; first those that match the
//      text as it is, then, in the text between them after step 2, those that match normalised text
//   2. the normalizer: NFC and the like, lower case, a charsmap (charsmap.h); a prefix; replacements; white space at
//      the ends removed
//   3. the pre-tokenizer: words by a regular expression or white space, digits separated, ▁ for spaces, a character for
//      each byte
//   4. the model, on each word separately
//
// Bytes that are not UTF-8 are U+FFFD (unicode.h). In decoding they become U+FFFD, too, as in `tokenizers`: one for
// each maximal prefix of a truncated character (ByteLevel), or, if a run of byte pieces is not UTF-8 as a whole, one
// for each of its bytes (ByteFallback).
#ifndef GX_WORDS_H
#define GX_WORDS_H
#include "charsmap.h"
#include "pieces.h"
#include "regex.h"
#include "tokenizer_kind.h"
#include <string.h>
GX_BEGIN

typedef enum {          // the order must not change, since identities depend on the numbers
    GX_WORDS_NFC,       // normalizer
    GX_WORDS_PREPEND,   // normalizer: text
    GX_WORDS_REPLACE,   // normalizer, decoder: text by content
    GX_WORDS_SPLIT,     // pre-tokenizer: regex; keeps: GX_WORDS_MATCHES | GX_WORDS_GAPS, or GX_WORDS_JOINED
    GX_WORDS_DIGITS,    // pre-tokenizer; keeps: 1: each digit separately, 0: runs of digits
    GX_WORDS_PREFIX,    // pre-tokenizer: a space before a text that does not begin with one
    GX_WORDS_BYTES,     // pre-tokenizer, decoder: a character for each byte
    GX_WORDS_METASPACE, // pre-tokenizer, decoder: text for spaces, and before a text by `keeps`: GX_WORDS_NEVER, …
    GX_WORDS_BEFORE,    // pre-tokenizer: a word begins at each occurrence of text
    GX_WORDS_BYTE_FALLBACK, // decoder
    GX_WORDS_FUSE,          // decoder
    GX_WORDS_STRIP,         // decoder: up to `keeps` of text at the beginning of a token
    GX_WORDS_NFD,           // normalizer, like the next five
    GX_WORDS_NFKC,
    GX_WORDS_NFKD,
    GX_WORDS_LOWERCASE,
    GX_WORDS_CHARSMAP,      // text: as in the file
    GX_WORDS_TRIM,          // white space at the ends; keeps: GX_WORDS_LEFT | GX_WORDS_RIGHT, where
    GX_WORDS_REPLACE_REGEX, // normalizer: matches of regex by content
    GX_WORDS_SPACES         // pre-tokenizer: words are separated by white space
} GxWordStepKind;
enum { GX_WORDS_TOO_MANY = 1 << 20 }; // tokens per byte, or bytes per token: more than any real tokenizer has
enum { GX_WORDS_STEPS = 16, GX_WORDS_LEFT = 1, GX_WORDS_RIGHT = 2 };
// JOINED: a match is one word with the gap before it.
enum { GX_WORDS_MATCHES = 1, GX_WORDS_GAPS = 2, GX_WORDS_JOINED = 4 };
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
    char *pattern; // the text that it matches, normalised if the token is
    int64_t bytes;
    int32_t id;
    int special, normalized, lstrip, rstrip; // lstrip: also matches the white space before it
} GxWordAdded;

typedef struct GxWords GxWords;
typedef struct { // a model: splits words into pieces
    const char *name;
    int64_t room; // bytes of the work space for a word, which begins as zeros
    // word[bytes] is UTF-8. ids: room for `bytes` ids, the most there can be; *n: their number.
    GxStatus (*word)(const GxWords *v, void *room, const char *word, int64_t bytes, int32_t *ids, int64_t *n,
                     GxError *err);
    void (*room_close)(void *room);
    uint64_t (*hash)(const GxWords *v, uint64_t hash); // continues a hash by its settings, for the identity
    void (*close)(GxWords *v);
} GxWordModel;

struct GxWords { // a tokenizer around its model; immutable when open. The first member of a kind's own struct
    const GxWordModel *model;
    GxPieces *p;       // the model's pieces and the added tokens
    int32_t unk;       // -1: there is none
    int byte_fallback; // a character may become a token for each of its bytes
    uint64_t content;  // a hash of the model's other data: merges, scores
    GxWordSteps normalizer, pre_tokenizer, decoder;
    int has_decoder;
    GxWordAdded *added; // special ones first
    int added_n;
    unsigned char leads[2][256]; // [normalized]: 1: an added token begins with this byte
    char *file[4];               // the files that it was read from, verbatim (words_files.h)
    int64_t file_n[4];
};

void gx_words_steps_close(GxWordSteps *s);
int32_t gx_words_id_of(const GxWords *v, const char *piece, int64_t bytes); // added tokens, too; -1: none
// The most tokens per byte of text, and the most bytes of decoded text per token; GX_WORDS_TOO_MANY: at least so many.
int gx_words_tokens_for_byte(const GxWords *v);
int gx_words_longest(const GxWords *v);
// With the pre-tokenizer ByteLevel alone: puts a space before a text that does not begin with one (add_prefix_space).
// Returns 1 if that is new.
int gx_words_add_prefix(GxWords *v);
int gx_words_lines_are_apart(const GxTokenizer *t); // a function of a GxTokenizerKind (tokenizer_kind.h)

// Regular expressions by which many models split text into words.
extern const char gx_words_of_gpt2[], gx_words_of_llama3[], gx_words_of_qwen2[], gx_words_of_tekken[];

typedef struct { // a growing array of bytes
    char *p;
    int64_t n, capacity;
} GxWordBytes;
// room for `more` bytes after the n existing ones
GxStatus gx_word_bytes_reserve(GxWordBytes *b, int64_t more, GxError *err);
GxStatus gx_word_bytes_put(GxWordBytes *b, const char *text, int64_t n, GxError *err);
void gx_word_bytes_close(GxWordBytes *b);

static inline int gx_words_is_at(const char *text, int64_t n, const char *what,
                                 int64_t bytes) // 1: text[n] begins with it
{
    return n >= bytes && !memcmp(text, what, (size_t)bytes);
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_IMPLEMENTED)
#define GX_WORDS_IMPLEMENTED
#include <stdlib.h>

// ---- bytes ---------------------------------------------------------------------------------------------------------

GxStatus gx_word_bytes_reserve(GxWordBytes *b, int64_t more, GxError *err)
{
    if (b->n + more <= b->capacity) return GX_OK;
    const int64_t capacity = gx_max(b->n + more, 2 * b->capacity);
    char *grown = (char *)realloc(b->p, (size_t)capacity);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)capacity);
    b->p = grown;
    b->capacity = capacity;
    return GX_OK;
}

GxStatus gx_word_bytes_put(GxWordBytes *b, const char *text, int64_t n, GxError *err)
{
    GX_TRY(gx_word_bytes_reserve(b, n, err));
    if (n > 0) memcpy(b->p + b->n, text, (size_t)n);
    b->n += n;
    return GX_OK;
}

void gx_word_bytes_close(GxWordBytes *b)
{
    free(b->p);
    memset(b, 0, sizeof *b);
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

// ---- known ways to split words -------------------------------------------------------------------------------------

const char gx_words_of_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
           gx_words_of_llama3[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                                  "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
           gx_words_of_qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                                 "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
           gx_words_of_tekken[] =
               "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
               "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}|"
               " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// 1: in "x\nA", x not white space, A a letter, the step always ends a word after \n (alone or with signs before it),
// wherever that word began, and whether A or the end of the text follows.
static int gx__words_ends_lines(const GxWordStep *s)
{
    static const char *const known[] = {gx_words_of_gpt2, gx_words_of_llama3, gx_words_of_qwen2, gx_words_of_tekken};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (s->kind == GX_WORDS_SPLIT && !strcmp(s->text, known[i]))
            return s->keeps == (GX_WORDS_MATCHES | GX_WORDS_GAPS);
    return 0;
}

// 1: no added token contains \n, or strips it before a possible letter; the normalizer treats x, \n and A independently
// of what surrounds them; words end there, and nothing depends on where a text begins.
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

int32_t gx_words_id_of(const GxWords *v, const char *piece, int64_t bytes)
{
    for (int i = 0; i < v->added_n; i++)
        if (gx_pieces_is(v->p, v->added[i].id, piece, bytes)) return v->added[i].id;
    return gx_pieces_find(v->p, piece, bytes);
}

// ---- how much a text grows -----------------------------------------------------------------------------------------

static int64_t gx__words_characters(const char *text)
{
    int64_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

// The factor by which a step can lengthen a part of at least one unit. Units are bytes, or characters if every token
// has at least one.
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
    case GX_WORDS_NFD: return by_bytes ? 3 : GX_NFD_MOST; // in UTF-8: Unicode Standard Annex 15
    case GX_WORDS_NFKC:
    case GX_WORDS_NFKD: return by_bytes ? 11 : GX_NFKD_MOST;
    case GX_WORDS_LOWERCASE: return 2; // U+0130
    case GX_WORDS_CHARSMAP: return gx_max(1, by_bytes ? s->charsmap->most_for_byte : s->charsmap->most_characters);
    case GX_WORDS_PREPEND: return 1 + text;
    case GX_WORDS_REPLACE: return gx_max(1, (content + text - 1) / text);
    case GX_WORDS_REPLACE_REGEX: return gx_max(1, content);
    case GX_WORDS_PREFIX: return 2;
    case GX_WORDS_BYTES: return byte_fallback ? 2 : 1; // the bytes of a character that stands for a byte
    case GX_WORDS_METASPACE: return 1 + text;
    default: return 1;
    }
}

// A byte that is not UTF-8 becomes U+FFFD, three bytes or one character, which normal forms do not change. So a normal
// form as the first step lengthens a byte by a factor of three or eleven, not by three times that.
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

int gx_words_add_prefix(GxWords *v)
{
    GxWordSteps *s = &v->pre_tokenizer;
    const int is_split = s->n == 2 && s->step[0].kind == GX_WORDS_SPLIT && !strcmp(s->step[0].text, gx_words_of_gpt2),
              is_byte_level = (s->n == 1 || is_split) && s->step[s->n - 1].kind == GX_WORDS_BYTES;
    if (!is_byte_level) return 0;
    memmove(s->step + 1, s->step, (size_t)s->n * sizeof *s->step);
    memset(s->step, 0, sizeof *s->step);
    s->step[0].kind = GX_WORDS_PREFIX, s->n++;
    return 1;
}

// A byte may become U+FFFD, which has three bytes; a piece of two or more bytes has one or two bytes for each byte that
// it stands for.
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
