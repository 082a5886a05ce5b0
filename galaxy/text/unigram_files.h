// unigram_files.h: the model Unigram of a tokenizer.json (T5, XLM-R, and what SentencePiece trains by default): pieces
// with their scores in the order of their ids, the unknown one (unk_id), and whether unknown characters become bytes
// (byte_fallback). The algorithm: unigram.h; what surrounds the model: words_files.h; to open and use a tokenizer:
// tokenizer.h.
//
// If two splits of a word are equally likely, the last bits of the scores decide. `tokenizers` does not read a number
// as the nearest double: it reads its digits as an integer, rounds that to a double, and divides it by a power of ten,
// which rounds again. The same is done here, with the fewest digits that identify the double, as files have them.
#ifndef GX_UNIGRAM_FILES_H
#define GX_UNIGRAM_FILES_H
#include "unigram.h"
#include "words_files.h"
GX_BEGIN

typedef struct {
    GxWords words;
    GxUnigram model;
} GxUnigramTokenizer;
extern const GxTokenizerKind gx_unigram;

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_UNIGRAM_FILES_IMPLEMENTED)
#define GX_UNIGRAM_FILES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the model, to words.h -----------------------------------------------------------------------------------------

static GxUnigram *gx__unigram_of(GxWords *v) { return &((GxUnigramTokenizer *)v)->model; }

static GxStatus gx__unigram_word(const GxWords *v, void *room, const char *word, int64_t bytes, int32_t *ids,
                                 int64_t *n, GxError *err)
{
    return gx_unigram_word(&((const GxUnigramTokenizer *)v)->model, (GxUnigramRoom *)room, word, bytes, ids, n, err);
}
static void gx__unigram_close_room(void *room) { gx_unigram_room_close((GxUnigramRoom *)room); }

static uint64_t gx__unigram_hash(const GxWords *v, uint64_t hash)
{
    const int64_t settings[] = {v->unk, v->byte_fallback};
    return gx_hash(hash, settings, sizeof settings);
}
static void gx__unigram_close(GxWords *v) { gx_unigram_close(gx__unigram_of(v)); }

static const GxWordModel gx__unigram_model = {
    "unigram", sizeof(GxUnigramRoom), gx__unigram_word, gx__unigram_close_room, gx__unigram_hash, gx__unigram_close};

// ---- reading -------------------------------------------------------------------------------------------------------

// The value that `tokenizers` reads for a number.
static double gx__unigram_score(double nearest)
{
    char text[40], digits[40], power_of_ten[16], *p = digits;
    for (int n = 14; n <= 16; n++) {
        snprintf(text, sizeof text, "%.*e", n, nearest); // -2.0122928619384766e+00
        if (strtod(text, NULL) == nearest) break;
    }
    const char *exponent = strchr(text, 'e');
    for (const char *from = text; from < exponent; from++)
        if (*from >= '0' && *from <= '9') *p++ = *from;
    int power = atoi(exponent + 1) - (int)(p - digits - 1);
    for (; p > digits + 1 && p[-1] == '0'; p--) power++; // the fewest digits
    *p = 0;
    double score = strtod(digits, NULL);
    if (power < -308) score /= 1e308, power += 308;
    snprintf(power_of_ten, sizeof power_of_ten, "1e%d", power < 0 ? -power : power);
    const double ten = strtod(power_of_ten, NULL);
    score = power < 0 ? score / ten : score * ten;
    return nearest < 0 ? -score : score;
}

static GxStatus gx__unigram_read_piece(GxWordsReading *x, const GxJson *pair, int64_t id)
{
    GxUnigram *u = gx__unigram_of(x->v);
    const GxJson *piece = gx_json_at(pair, 0), *score = gx_json_at(pair, 1);
    const GxJsonType number = gx_json_type(score);
    const char *text = gx_json_string(piece);
    char said[120];
    if (gx_json_type(pair) != GX_JSON_ARRAY) snprintf(said, sizeof said, "%s", gx_json_type_name(pair));
    else if (gx_json_size(pair) != 2) snprintf(said, sizeof said, "an array of %ld", (long)gx_json_size(pair));
    else if (gx_json_type(piece) != GX_JSON_STRING || (number != GX_JSON_INT && number != GX_JSON_REAL))
        snprintf(said, sizeof said, "[%s, %s]", gx_json_type_name(piece), gx_json_type_name(score));
    else said[0] = 0;
    if (said[0])
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: piece %ld of the vocabulary is %s; expected [\"piece\", score]",
                       x->path, (long)id, said);
    u->score[id] = gx__unigram_score(gx_json_double(score));
    x->v->content = gx_hash(x->v->content, &u->score[id], sizeof *u->score);
    return gx_pieces_add_said(&u->p, (int32_t)id, x->from->json, text, GX_PIECE_MODEL, x->err);
}

static GxStatus gx__unigram_read_vocab(GxWordsReading *x, const GxJson *vocab)
{
    GxUnigram *u = gx__unigram_of(x->v);
    const int64_t n = gx_json_size(vocab);
    if (n == 0 || n > GX_WORDS_IDS)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the vocabulary has %ld pieces; expected 1 to %d", x->path, (long)n,
                       GX_WORDS_IDS);
    u->score = (double *)malloc((size_t)n * sizeof *u->score);
    if (!u->score) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for %ld pieces", (long)n);
    for (int64_t id = 0; id < n; id++) GX_TRY(gx__unigram_read_piece(x, gx_json_at(vocab, id), id));
    GX_TRY(gx_pieces_index(&u->p, x->err));
    for (int64_t id = 0; id < n; id++) // the table keeps only one of two equal pieces
        if (u->p.at[id] < 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: piece %ld of the vocabulary, \"%.100s\", is listed twice",
                           x->path, (long)id, gx_json_string(gx_json_at(gx_json_at(vocab, id), 0)));
    return gx_unigram_ready(u, x->err);
}

static GxStatus gx__unigram_read_model(GxWordsReading *x, const GxJson *model)
{
    GxUnigram *u = gx__unigram_of(x->v);
    GxJson *vocab = NULL;
    int64_t unk = -1;
    x->v->model = &gx__unigram_model, x->v->p = &u->p, x->v->content = GX_HASH_START;
    GX_TRY(gx_json_get_int(model, "unk_id", 0, &unk, x->path, x->err));
    GX_TRY(gx_json_get_bool(model, "byte_fallback", 0, &u->byte_fallback, x->path, x->err));
    GX_TRY(gx_json_get_array(model, "vocab", 1, &vocab, x->path, x->err));
    GX_TRY(gx__unigram_read_vocab(x, vocab));
    if (gx_json_type(gx_json_get(model, "unk_id")) == GX_JSON_INT && (unk < 0 || unk >= u->p.size))
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the unk_id is %ld; expected 0 to %ld, or null", x->path, (long)unk,
                       (long)u->p.size - 1);
    x->v->unk = u->unk = (int32_t)unk;
    x->v->byte_fallback = u->byte_fallback;
    return GX_OK;
}

// ---- the kind ------------------------------------------------------------------------------------------------------

static GxStatus gx__unigram_open(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    return gx_words_open(t, &gx_unigram, sizeof(GxUnigramTokenizer), gx__unigram_read_model, from, 0, err);
}

const GxTokenizerKind gx_unigram = {
    "Unigram", // name
    "Unigram", // model_type
    NULL,      // vocabulary
    {
        // files
        gx__unigram_open,    // open
        gx_words_close,      // close
        gx_words_write,      // write
        gx_words_difference, // difference
        NULL,                // check
    },
    {
        // texts
        gx_words_encode,          // encode
        gx_words_decode,          // decode
        gx_words_lines_are_apart, // lines_are_apart
    },
    {
        // pieces
        gx_words_piece,      // piece
        gx_words_find,       // find
        gx_words_is_special, // is_special
        gx_words_continues,  // continues
    },
};
#endif
