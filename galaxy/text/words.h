// words.h: what stands between a text and the words that a model cuts into pieces (bpe.h, unigram.h): added tokens, the
// normalizer, the pre-tokenizer, and the decoder that goes the way back. Each is a row of steps, named and working as
// in tokenizer.json. This header says what they are, and how much a text can grow on its way; words_normalize.h,
// words_encode.h and words_decode.h do what they say, words_files.h reads and writes them.
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
#include <string.h>
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

void gx_words_steps_close(GxWordSteps *s);
int32_t gx_words_id_of(const GxWords *v, const char *piece, int64_t bytes); // of an added token, too; -1: there is none
// At most so many tokens for a byte of text, and bytes of decoded text for a token; GX_WORDS_TOO_MANY: or more.
int gx_words_tokens_for_byte(const GxWords *v);
int gx_words_longest(const GxWords *v);
int gx_words_lines_are_apart(const GxTokenizer *t); // a function of a GxTokenizerKind (tokenizer_kind.h)

// Regular expressions that many models' words are cut by.
extern const char gx_words_of_gpt2[], gx_words_of_llama3[], gx_words_of_qwen2[], gx_words_of_tekken[];

typedef struct { // bytes that grow as needed
    char *p;
    int64_t n, capacity;
} GxWordBytes;
GxStatus gx_word_bytes_reserve(GxWordBytes *b, int64_t more, GxError *err); // room for so many behind the n that it has
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
