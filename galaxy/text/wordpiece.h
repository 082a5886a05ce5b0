// wordpiece.h: WordPiece (Schuster and Nakajima 2012; BERT: Devlin et al. 2018): splits text into words, and words into
// the longest pieces that a vocabulary has. Reading and writing its files: wordpiece_files.h; making a vocabulary:
// data/wordpiece_train.h. Opened and used through tokenizer.h.
//
// A text goes through these steps, with the same result as in Hugging Face's `tokenizers` 0.23:
//   1. added tokens ([SEP], …) are found: the leftmost, of those the longest; first those that match the text as it
//      is, then, in the text between them after step 2, those that match normalised text
//   2. the normaliser: control characters, U+0000 and U+FFFD are dropped, white space becomes a space; spaces around
//      Chinese characters; accents are dropped (NFD without its nonspacing marks); each character becomes lower-case
//   3. words: split at white space; each punctuation mark is a word
//   4. pieces: the longest that the word begins with, then the longest of the rest with ## before it, and so on. No
//      such piece, or a word of more than 100 characters: [UNK]
//
// Bytes that are not UTF-8 are U+FFFD, which step 2 drops. Encoding a text of n bytes takes about 40 n bytes of memory:
// long texts are better encoded line by line, which gives the same ids.
#ifndef GX_WORDPIECE_H
#define GX_WORDPIECE_H
#include "pieces.h"
#include "tokenizer_kind.h"
#include "unicode.h"
GX_BEGIN

enum { GX_ACCENTS_AS_LOWERCASE = -1 };
typedef struct { // BertNormalizer in tokenizer.json
    int clean_text, handle_chinese_chars;
    int strip_accents; // GX_ACCENTS_AS_LOWERCASE (null in the file): stripped if letters become lower-case
    int lowercase;
} GxBertNormalizer;

// Step 2 on `text`; `spare` is work space.
GxStatus gx_bert_normalize(const GxBertNormalizer *how, GxCharacters *text, GxCharacters *spare, GxError *err);
int gx_bert_strips_accents(const GxBertNormalizer *how);
// Fails if step 2 needs tables of Unicode that were not compiled in (unicode.h).
GxStatus gx_bert_check_unicode(const GxBertNormalizer *how, GxError *err);
// Step 3: finds the next word of c[n] from *at on. *at: where it begins; returns its characters; 0: none.
int64_t gx_bert_word(const uint32_t *c, int64_t n, int64_t *at);

typedef struct {
    GxCharacters pattern; // the characters that it matches, normalised if the token is
    int32_t id;
    int special, normalized, lstrip, rstrip; // lstrip: also matches the white space before it
} GxAddedToken;

typedef struct {
    GxBertNormalizer normalizer;
    int64_t max_word;         // characters
    int has_decoder, cleanup; // in decoding: ## is removed; " ." becomes "."
    GxPieces p;
    GxAddedToken *added; // special ones first
    int added_n;
    unsigned char leads[128]; // 1: an added token begins with this character; leads[0]: with one beyond ASCII
} GxWordPiece;

// To make one: add the pieces, then make the table of v->p, then add the added tokens, whose content must be a piece.
GxStatus gx_wordpiece_add(GxWordPiece *v, int32_t id, const char *piece, int64_t bytes, unsigned flags, GxError *err);
unsigned gx_wordpiece_flags(const char *piece, unsigned flags); // flags, and whether the piece continues a word
// how->pattern is not read; `where` names the file in messages.
GxStatus gx_wordpiece_add_token(GxWordPiece *v, const GxAddedToken *how, const char *where, GxError *err);
void gx_wordpiece_close(GxWordPiece *v);

// Functions of a GxTokenizerKind (tokenizer_kind.h).
GxStatus gx_wordpiece_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special,
                             int32_t *ids, int64_t *n, GxError *err);
GxStatus gx_wordpiece_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                             int64_t *bytes, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDPIECE_IMPLEMENTED)
#define GX_WORDPIECE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

static void gx__wordpiece_swap(GxCharacters *a, GxCharacters *b)
{
    const GxCharacters other = *a;
    *a = *b;
    *b = other;
}

// ---- the normaliser ------------------------------------------------------------------------------------------------

static void gx__wordpiece_clean(GxCharacters *text)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < text->n; i++) {
        const uint32_t c = text->c[i];
        const int is_line = c == '\t' || c == '\n' || c == '\r'; // control characters that count as white space
        if (c == GX_REPLACEMENT || (gx_unicode_is_other(c) && !is_line)) continue;
        text->c[kept++] = gx_unicode_is_space(c) ? ' ' : c;
    }
    text->n = kept;
}

// The blocks of Chinese characters. As in `tokenizers`, 0x2B920 is used where the block begins at 0x2B820.
static int gx__wordpiece_is_chinese(uint32_t c)
{
    return c >= 0x3400 &&
           ((c >= 0x4E00 && c <= 0x9FFF) || c <= 0x4DBF || (c >= 0x20000 && c <= 0x2A6DF) ||
            (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
            (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F));
}

static GxStatus gx__wordpiece_space_chinese(GxCharacters *text, GxCharacters *spare, GxError *err)
{
    int64_t chinese = 0;
    for (int64_t i = 0; i < text->n; i++) chinese += gx__wordpiece_is_chinese(text->c[i]);
    if (chinese == 0) return GX_OK;
    GX_TRY(gx_characters_reserve(spare, text->n + 2 * chinese, err));
    spare->n = 0;
    for (int64_t i = 0; i < text->n; i++) {
        const int is_chinese = gx__wordpiece_is_chinese(text->c[i]);
        if (is_chinese) spare->c[spare->n++] = ' ';
        spare->c[spare->n++] = text->c[i];
        if (is_chinese) spare->c[spare->n++] = ' ';
    }
    gx__wordpiece_swap(text, spare);
    return GX_OK;
}

static GxStatus gx__wordpiece_strip_accents(GxCharacters *text, GxCharacters *spare, GxError *err)
{
    int64_t kept = 0, plain = 0;
    while (plain < text->n && text->c[plain] < 0xC0) plain++; // these neither have nor are accents
    if (plain == text->n) return GX_OK;
    GX_TRY(gx_characters_reserve(spare, GX_NFD_MOST * text->n, err));
    GX_TRY(gx_unicode_nfd(text->c, text->n, spare->c, &spare->n, err));
    for (int64_t i = 0; i < spare->n; i++)
        if (!gx_unicode_is_mark(spare->c[i])) spare->c[kept++] = spare->c[i];
    spare->n = kept;
    gx__wordpiece_swap(text, spare);
    return GX_OK;
}

static GxStatus gx__wordpiece_lower(GxCharacters *text, GxCharacters *spare, GxError *err)
{
    GX_TRY(gx_characters_reserve(spare, 2 * text->n, err));
    spare->n = 0;
    for (int64_t i = 0; i < text->n; i++) {
        uint32_t lower[2];
        const int n = gx_unicode_lower(text->c[i], lower);
        for (int k = 0; k < n; k++) spare->c[spare->n++] = lower[k];
    }
    gx__wordpiece_swap(text, spare);
    return GX_OK;
}

int gx_bert_strips_accents(const GxBertNormalizer *how)
{
    return how->strip_accents == GX_ACCENTS_AS_LOWERCASE ? how->lowercase : how->strip_accents;
}

GxStatus gx_bert_check_unicode(const GxBertNormalizer *how, GxError *err)
{
    uint32_t none[GX_NFD_MOST];
    int64_t n;
    return gx_bert_strips_accents(how) && !gx_unicode_has_nfd() ? gx_unicode_nfd(none, 0, none, &n, err)
                                                                : GX_OK; // reports the error
}

GxStatus gx_bert_normalize(const GxBertNormalizer *how, GxCharacters *text, GxCharacters *spare, GxError *err)
{
    if (how->clean_text) gx__wordpiece_clean(text);
    if (how->handle_chinese_chars) GX_TRY(gx__wordpiece_space_chinese(text, spare, err));
    if (gx_bert_strips_accents(how)) GX_TRY(gx__wordpiece_strip_accents(text, spare, err));
    return how->lowercase ? gx__wordpiece_lower(text, spare, err) : GX_OK;
}

int64_t gx_bert_word(const uint32_t *c, int64_t n, int64_t *at)
{
    while (*at < n && gx_unicode_is_space(c[*at])) (*at)++;
    int64_t end = *at;
    if (end < n && gx_unicode_is_punctuation(c[end])) return 1;
    while (end < n && !gx_unicode_is_space(c[end]) && !gx_unicode_is_punctuation(c[end])) end++;
    return end - *at;
}

// ---- the vocabulary ------------------------------------------------------------------------------------------------

GxStatus gx_wordpiece_add(GxWordPiece *v, int32_t id, const char *piece, int64_t bytes, unsigned flags, GxError *err)
{
    return gx_pieces_add(&v->p, id, piece, bytes, bytes < 2 ? flags : gx_wordpiece_flags(piece, flags), err);
}

unsigned gx_wordpiece_flags(const char *piece, unsigned flags)
{
    return flags | ((flags & GX_PIECE_MODEL) && !strncmp(piece, "##", 2) ? (unsigned)GX_PIECE_CONTINUES : 0);
}

GxStatus gx_wordpiece_add_token(GxWordPiece *v, const GxAddedToken *how, const char *where, GxError *err)
{
    const char *piece = gx_pieces_text(&v->p, how->id);
    GxAddedToken token = *how;
    GxCharacters spare = GX_ZERO;
    GxAddedToken *grown = (GxAddedToken *)realloc(v->added, (size_t)(v->added_n + 1) * sizeof *grown);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the added token \"%.100s\"", piece);
    v->added = grown;
    memset(&token.pattern, 0, sizeof token.pattern);
    GxStatus status = gx_characters_read(&token.pattern, piece, gx_pieces_bytes(&v->p, how->id), err);
    if (status == GX_OK && token.normalized) status = gx_bert_normalize(&v->normalizer, &token.pattern, &spare, err);
    if (status == GX_OK && token.pattern.n == 0)
        status =
            GX_FAIL(err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" is empty after normalization", where, piece);
    gx_characters_close(&spare);
    if (status != GX_OK) {
        gx_characters_close(&token.pattern);
        return status;
    }
    int at = v->added_n++;
    for (; token.special && at > 0 && !v->added[at - 1].special; at--) v->added[at] = v->added[at - 1];
    v->added[at] = token;
    v->leads[token.pattern.c[0] < 128 ? token.pattern.c[0] : 0] = 1;
    unsigned char *flags = &v->p.flags[token.id];
    if (token.normalized) *flags |= GX_PIECE_NORMALIZED;
    if (token.special) *flags = (unsigned char)((*flags | GX_PIECE_SPECIAL) & ~GX_PIECE_CONTINUES);
    return GX_OK;
}

void gx_wordpiece_close(GxWordPiece *v)
{
    for (int i = 0; i < v->added_n; i++) gx_characters_close(&v->added[i].pattern);
    free(v->added);
    gx_pieces_close(&v->p);
    memset(v, 0, sizeof *v);
}

// ---- pieces --------------------------------------------------------------------------------------------------------

typedef struct { // the state of an encoding
    const GxTokenizer *t;
    const GxWordPiece *v;
    GxSpecialTokens special;
    GxCharacters whole, text, spare;
    char *word; // as UTF-8, with two spare bytes before it
    int64_t word_room;
    int32_t *ids;
    int64_t n;
    GxError *err;
} gx__WordPieceWork;

// The longest piece that word[bytes] begins with, preceded by ## unless it begins the word. Returns its bytes; 0: none.
static int64_t gx__wordpiece_longest(const GxWordPiece *v, const char *word, int64_t bytes, int is_first, int32_t *id)
{
    // word is preceded by ##, which is part of a piece that does not begin the word
    const char *from = is_first ? word : word - 2;
    const int64_t before = word - from;
    uint64_t hash = gx_hash(GX_HASH_START, from, before);
    int64_t best = 0;
    for (int64_t n = 1; n <= bytes && n + before <= v->p.longest; n++) {
        hash = gx_hash(hash, word + n - 1, 1);
        if (n < bytes && ((unsigned char)word[n] & 0xC0) == 0x80) continue; // inside a character
        const int32_t found = gx_pieces_at_hash(&v->p, hash, from, n + before);
        if (found >= 0) best = n, *id = found;
    }
    return best;
}

static GxStatus gx__wordpiece_word(gx__WordPieceWork *w, const uint32_t *c, int64_t n)
{
    const int64_t begun = w->n, room = 4 * n + 2;
    int64_t bytes = 0;
    w->ids[w->n] = w->t->role[GX_TOKEN_UNK];
    if (n > w->v->max_word) return w->n++, GX_OK;
    if (room > w->word_room) {
        free(w->word);
        w->word = (char *)malloc((size_t)(2 * room));
        w->word_room = w->word ? 2 * room : 0;
        if (!w->word) return GX_FAIL(w->err, GX_ERR_MEMORY, "no memory for a word of %ld characters", (long)n);
    }
    char *word = w->word + 2;
    for (int64_t i = 0; i < n; i++) bytes += gx_unicode_encode(c[i], word + bytes);
    for (int64_t done = 0, taken; done < bytes; done += taken) {
        int32_t id = 0;
        // overwrites the end of the previous piece, which is no longer needed
        if (done > 0) memcpy(word + done - 2, "##", 2);
        taken = gx__wordpiece_longest(w->v, word + done, bytes - done, done == 0, &id);
        if (taken == 0) { // if one part has no piece, the whole word has none
            w->ids[begun] = w->t->role[GX_TOKEN_UNK];
            w->n = begun + 1;
            return GX_OK;
        }
        w->ids[w->n++] = id;
    }
    return GX_OK;
}

static GxStatus gx__wordpiece_words(gx__WordPieceWork *w, const uint32_t *c, int64_t n)
{
    int64_t length;
    for (int64_t at = 0; (length = gx_bert_word(c, n, &at)) > 0; at += length)
        GX_TRY(gx__wordpiece_word(w, c + at, length));
    return GX_OK;
}

// ---- added tokens --------------------------------------------------------------------------------------------------

static const GxAddedToken *gx__wordpiece_added_at(const GxWordPiece *v, int normalized, const uint32_t *c, int64_t n)
{
    const GxAddedToken *best = NULL;
    if (!v->leads[c[0] < 128 ? c[0] : 0]) return NULL;
    for (int i = 0; i < v->added_n; i++) {
        const GxAddedToken *a = &v->added[i];
        if (a->normalized == normalized && a->pattern.n <= n && (!best || a->pattern.n > best->pattern.n) &&
            !memcmp(a->pattern.c, c, (size_t)a->pattern.n * sizeof *c))
            best = a;
    }
    return best;
}

static GxStatus gx__wordpiece_normalized(gx__WordPieceWork *w, const uint32_t *c, int64_t n);
static GxStatus gx__wordpiece_between(gx__WordPieceWork *w, const uint32_t *c, int64_t n, int normalized)
{
    if (n == 0) return GX_OK;
    return normalized ? gx__wordpiece_words(w, c, n) : gx__wordpiece_normalized(w, c, n);
}

// Encodes a text: finds the added tokens in it, those that match normalised text or the others, and passes on the text
// between them.
static GxStatus gx__wordpiece_split(gx__WordPieceWork *w, const uint32_t *c, int64_t n, int normalized)
{
    int64_t done = 0;
    for (int64_t i = 0; i < n;) {
        const GxAddedToken *a = gx__wordpiece_added_at(w->v, normalized, c + i, n - i);
        int64_t first = i, end = i + (a ? a->pattern.n : 1);
        i = end;
        if (!a || (a->special && w->special == GX_SPECIAL_AS_TEXT)) continue;
        while (a->lstrip && first > done && gx_unicode_is_space(c[first - 1])) first--;
        while (a->rstrip && end < n && gx_unicode_is_space(c[end])) end++;
        GX_TRY(gx__wordpiece_between(w, c + done, first - done, normalized));
        w->ids[w->n++] = a->id;
        i = done = end;
    }
    return gx__wordpiece_between(w, c + done, n - done, normalized);
}

static GxStatus gx__wordpiece_normalized(gx__WordPieceWork *w, const uint32_t *c, int64_t n)
{
    GX_TRY(gx_characters_reserve(&w->text, n, w->err));
    memcpy(w->text.c, c, (size_t)n * sizeof *c);
    w->text.n = n;
    GX_TRY(gx_bert_normalize(&w->v->normalizer, &w->text, &w->spare, w->err));
    return gx__wordpiece_split(w, w->text.c, w->text.n, 1);
}

GxStatus gx_wordpiece_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special,
                             int32_t *ids, int64_t *n, GxError *err)
{
    gx__WordPieceWork w = GX_ZERO;
    w.t = t, w.v = (const GxWordPiece *)t->vocabulary, w.special = special, w.ids = ids, w.err = err;
    GxStatus status = gx_characters_read(&w.whole, text, bytes, err);
    if (status == GX_OK) status = gx__wordpiece_split(&w, w.whole.c, w.whole.n, 0);
    *n = status == GX_OK ? w.n : 0;
    gx_characters_close(&w.whole);
    gx_characters_close(&w.text);
    gx_characters_close(&w.spare);
    free(w.word);
    return status;
}

// ---- decoding ------------------------------------------------------------------------------------------------------

// Replaces in place; `to` is not longer than `from`. Returns the bytes of the result.
static int64_t gx__wordpiece_replace(char *text, int64_t n, const char *from, const char *to)
{
    const int64_t old = (int64_t)strlen(from), now = (int64_t)strlen(to);
    int64_t kept = 0;
    for (int64_t i = 0; i < n;) {
        const int is_here = n - i >= old && !memcmp(text + i, from, (size_t)old);
        if (is_here) memmove(text + kept, to, (size_t)now);
        else text[kept] = text[i];
        kept += is_here ? now : 1;
        i += is_here ? old : 1;
    }
    return kept;
}

// Cleans up one piece and the space before it, which is as far as `tokenizers` looks.
static int64_t gx__wordpiece_cleanup(char *text, int64_t n)
{
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        n = gx__wordpiece_replace(text, n, pairs[i][0], pairs[i][1]);
    return n;
}

// A piece as decoded text. For an added token with `normalized`, `tokenizers` 0.23 writes its normalised text.
static int64_t gx__wordpiece_put_piece(const GxWordPiece *v, int32_t id, int joins, char *out)
{
    const char *piece = v->p.text + v->p.at[id] + 2 * joins;
    int64_t n = gx_pieces_bytes(&v->p, id) - 2 * joins;
    if (!(v->p.flags[id] & GX_PIECE_NORMALIZED)) return memcpy(out, piece, (size_t)n), n;
    int i = 0;
    while (v->added[i].id != id) i++;
    n = 0;
    for (int64_t k = 0; k < v->added[i].pattern.n; k++) n += gx_unicode_encode(v->added[i].pattern.c[k], out + n);
    return n;
}

GxStatus gx_wordpiece_decode(const GxTokenizer *t, const int32_t *ids, int64_t n, GxSpecialTokens special, char *text,
                             int64_t *bytes, GxError *err)
{
    const GxWordPiece *v = (const GxWordPiece *)t->vocabulary;
    for (int64_t i = 0, taken = 0; i < n; i++) {
        if (v->p.at[ids[i]] < 0)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "token %ld has the id %ld, which no piece of the vocabulary has",
                           (long)i, (long)ids[i]);
        if (special == GX_SPECIAL_AS_TEXT && (v->p.flags[ids[i]] & GX_PIECE_SPECIAL)) continue;
        const int joins = v->has_decoder && taken > 0 && !strncmp(v->p.text + v->p.at[ids[i]], "##", 2);
        char *out = text + *bytes;
        int64_t length = 0;
        if (taken++ > 0 && !joins) out[length++] = ' ';
        length += gx__wordpiece_put_piece(v, ids[i], joins, out + length);
        *bytes += v->has_decoder && v->cleanup ? gx__wordpiece_cleanup(out, length) : length;
    }
    return GX_OK;
}
#endif
