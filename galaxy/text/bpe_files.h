// bpe_files.h: the model BPE of a tokenizer.json, with merges as "a b" or ["a", "b"]: byte-level BPE (GPT-2, LLaMA-3,
// Qwen, SmolLM2, DeepSeek), and BPE with bytes for unknown characters (LLaMA-2, Mistral). The algorithm: bpe.h; what
// surrounds the model: words_files.h; to open and use a tokenizer: tokenizer.h.
#ifndef GX_BPE_FILES_H
#define GX_BPE_FILES_H
#include "bpe.h"
#include "words_files.h"
GX_BEGIN

typedef struct {
    GxWords words;
    GxBpe model;
} GxBpeTokenizer;
extern const GxTokenizerKind gx_bpe;
// Makes a tokenizer that is in no file yet, from the roots of tokenizer.json and tokenizer_config.json, which
// gx_tokenizer_write then writes. `where` names it in messages.
GxStatus gx_bpe_make(GxTokenizer *t, const GxJson *json, const GxJson *config, const char *where, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BPE_FILES_IMPLEMENTED)
#define GX_BPE_FILES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the model, to words.h -----------------------------------------------------------------------------------------

static GxBpe *gx__bpe_of(GxWords *v) { return &((GxBpeTokenizer *)v)->model; }

static GxStatus gx__bpe_word(const GxWords *v, void *room, const char *word, int64_t bytes, int32_t *ids, int64_t *n,
                             GxError *err)
{
    return gx_bpe_word(&((const GxBpeTokenizer *)v)->model, (GxBpeRoom *)room, word, bytes, ids, n, err);
}
static void gx__bpe_close_room(void *room) { gx_bpe_room_close((GxBpeRoom *)room); }

static uint64_t gx__bpe_hash(const GxWords *v, uint64_t hash)
{
    const GxBpe *b = &((const GxBpeTokenizer *)v)->model;
    const int64_t settings[] = {b->merges, b->unk, b->fuse_unk, b->byte_fallback, b->ignore_merges};
    return gx_hash(hash, settings, sizeof settings);
}
static void gx__bpe_close(GxWords *v) { gx_bpe_close(gx__bpe_of(v)); }

static const GxWordModel gx__bpe_model = {"bpe",        sizeof(GxBpeRoom), gx__bpe_word, gx__bpe_close_room,
                                          gx__bpe_hash, gx__bpe_close};

// ---- reading -------------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_read_vocab(GxWordsReading *x, const GxJson *vocab)
{
    GxPieces *p = &gx__bpe_of(x->v)->p;
    char cut[GX_TEXT_VALUE], found[GX_JSON_FOUND];
    if (gx_json_size(vocab) == 0) return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the vocabulary is empty", x->path);
    for (GxJsonMember m = GX_ZERO; gx_json_next(vocab, &m);) {
        const int64_t id = gx_json_int(m.value);
        gx_text_cut(m.key, cut, sizeof cut);
        if (gx_json_type(m.value) != GX_JSON_INT || id < 0 || id >= GX_WORDS_IDS)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the id of \"%s\" is %s; expected an integer from 0 to %d",
                           x->path, cut, gx_json_found(m.value, found), GX_WORDS_IDS - 1);
        if (id < p->size && p->at[id] >= 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: \"%s\" has the id %ld, but another piece has it, too", x->path,
                           cut, (long)id);
        GX_TRY(gx_pieces_add_said(p, (int32_t)id, x->from->json, m.key, GX_PIECE_MODEL, x->err));
    }
    return gx_pieces_index(p, x->err);
}

// The two parts of a merge, "a b" or ["a", "b"].
static GxStatus gx__bpe_parts(GxWordsReading *x, const GxJson *merge, int64_t i, const char *part[2], int64_t bytes[2])
{
    const char *text = gx_json_string(merge), *space = strchr(text, ' ');
    if (gx_json_type(merge) == GX_JSON_STRING && space && space > text && space[1] && !strchr(space + 1, ' ')) {
        part[0] = text, bytes[0] = space - text;
        part[1] = space + 1, bytes[1] = (int64_t)strlen(space + 1);
        return GX_OK;
    }
    for (int k = 0; k < 2; k++) part[k] = gx_json_string(gx_json_at(merge, k)), bytes[k] = (int64_t)strlen(part[k]);
    if (gx_json_type(merge) == GX_JSON_ARRAY && gx_json_size(merge) == 2 && bytes[0] > 0 && bytes[1] > 0) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: merge %ld is %s%s%.100s; expected \"a b\" or [\"a\", \"b\"]", x->path,
                   (long)i, gx_json_type_name(merge), *text ? " " : "", text);
}

static GxStatus gx__bpe_read_merge(GxWordsReading *x, const GxJson *merge, int64_t i, GxWordBytes *both)
{
    GxBpe *b = gx__bpe_of(x->v);
    const char *part[3];
    int64_t bytes[3];
    int32_t id[3];
    GX_TRY(gx__bpe_parts(x, merge, i, part, bytes));
    both->n = 0;
    for (int k = 0; k < 2; k++) { // also if it contains U+0000
        const int64_t begun = both->n;
        GX_TRY(gx_word_bytes_put(both, part[k], bytes[k], x->err));
        GX_TRY(gx_word_bytes_put(both, "", 1, x->err));
        both->n = begun + gx_json_spell_nuls(x->from->json, both->p + begun);
        bytes[k] = both->n - begun;
    }
    part[0] = part[2] = both->p, part[1] = both->p + bytes[0], bytes[2] = both->n;
    for (int k = 0; k < 3; k++)
        if ((id[k] = gx_pieces_find(&b->p, part[k], bytes[k])) < 0)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: merge %ld has \"%.*s\", which is not a piece of the vocabulary",
                           x->path, (long)i, (int)gx_min(bytes[k], 100), part[k]);
    x->v->content = gx_hash(x->v->content, id, sizeof id);
    gx_bpe_merge(b, id[0], id[1], id[2]);
    return GX_OK;
}

static GxStatus gx__bpe_read_merges(GxWordsReading *x, const GxJson *merges)
{
    GxWordBytes both = GX_ZERO;
    const int64_t n = gx_json_size(merges);
    GxStatus status = gx_bpe_reserve(gx__bpe_of(x->v), n, x->err);
    for (int64_t i = 0; i < n && status == GX_OK; i++) status = gx__bpe_read_merge(x, gx_json_at(merges, i), i, &both);
    gx_word_bytes_close(&both);
    return status;
}

// Refuses settings that would change the ids and are not supported.
static GxStatus gx__bpe_check_model(GxWordsReading *x, const GxJson *model)
{
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout = 0;
    for (int i = 0; i < 2; i++) {
        const char *text = "";
        GX_TRY(gx_json_get_string(model, keys[i], 0, &text, x->path, x->err));
        if (*text) return gx_words_refuse(x, "BPE", keys[i], text, "none");
    }
    GX_TRY(gx_json_get_double(model, "dropout", 0, &dropout, x->path, x->err));
    if (dropout == 0) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: BPE has the dropout %g; supported: null", x->path, dropout);
}

static GxStatus gx__bpe_read_model(GxWordsReading *x, const GxJson *model)
{
    GxBpe *b = gx__bpe_of(x->v);
    GxJson *vocab = NULL, *merges = NULL;
    const char *unk = NULL;
    x->v->model = &gx__bpe_model, x->v->p = &b->p, x->v->content = GX_HASH_START;
    GX_TRY(gx__bpe_check_model(x, model));
    GX_TRY(gx_json_get_string(model, "unk_token", 0, &unk, x->path, x->err));
    GX_TRY(gx_json_get_bool(model, "fuse_unk", 0, &b->fuse_unk, x->path, x->err));
    GX_TRY(gx_json_get_bool(model, "byte_fallback", 0, &b->byte_fallback, x->path, x->err));
    GX_TRY(gx_json_get_bool(model, "ignore_merges", 0, &b->ignore_merges, x->path, x->err));
    GX_TRY(gx_json_get_object(model, "vocab", 1, &vocab, x->path, x->err));
    GX_TRY(gx_json_get_array(model, "merges", 1, &merges, x->path, x->err));
    GX_TRY(gx__bpe_read_vocab(x, vocab));
    GX_TRY(gx__bpe_read_merges(x, merges));
    gx_bpe_ready(b);
    x->v->unk = b->unk = unk ? gx_pieces_find(&b->p, unk, (int64_t)strlen(unk)) : -1;
    x->v->byte_fallback = b->byte_fallback;
    if (!unk || b->unk >= 0) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the unk_token is \"%.100s\", which is not a piece of the vocabulary",
                   x->path, unk);
}

// ---- the kind ------------------------------------------------------------------------------------------------------

static GxStatus gx__bpe_open(GxTokenizer *t, const GxTokenizerSource *from, GxError *err)
{
    return gx_words_open(t, &gx_bpe, sizeof(GxBpeTokenizer), gx__bpe_read_model, from, 0, err);
}

GxStatus gx_bpe_make(GxTokenizer *t, const GxJson *json, const GxJson *config, const char *where, GxError *err)
{
    const GxTokenizerSource from = {where, json, config, where, where};
    return gx_words_open(t, &gx_bpe, sizeof(GxBpeTokenizer), gx__bpe_read_model, &from, 1, err);
}

const GxTokenizerKind gx_bpe = {
    "BPE", // name
    "BPE", // model_type
    NULL,  // vocabulary
    {
        // files
        gx__bpe_open,        // open
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
