// words_added.h: reads the added tokens of a tokenizer of words, "added_tokens" in tokenizer.json.
#ifndef GX_WORDS_ADDED_H
#define GX_WORDS_ADDED_H
#include "words_reading.h"
GX_BEGIN

enum { GX_WORDS_IDS = 1 << 24 }; // a piece's id is less

// Reads them into x->v, whose normalizer and pieces must have been read, since tokens may be normalised, and may be
// pieces.
GxStatus gx_words_read_added(GxWordsReading *x);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDS_ADDED_IMPLEMENTED)
#define GX_WORDS_ADDED_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "words_normalize.h"

// Appends a token to the special ones, or to all. Its pattern is the content, normalised if the token is.
static GxStatus gx__words_keep_added(GxWordsReading *x, const GxWordAdded *how, const char *content, int64_t bytes)
{
    GxWords *v = x->v;
    const GxWordSteps none = GX_ZERO;
    GxWordBytes pattern = GX_ZERO;
    GxWordAdded token = *how;
    GxWordAdded *grown = (GxWordAdded *)realloc(v->added, (size_t)(v->added_n + 1) * sizeof *grown);
    if (!grown) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the added token \"%.100s\"", content);
    v->added = grown;
    int moved;
    GxStatus status =
        gx_words_normalize(token.normalized ? &v->normalizer : &none, content, bytes, &pattern, &moved, x->err);
    if (status == GX_OK && pattern.n == 0)
        status = GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" is empty after normalization", x->path,
                         content);
    if (status != GX_OK) {
        gx_word_bytes_close(&pattern);
        return status;
    }
    token.pattern = pattern.p, token.bytes = pattern.n;
    int at = v->added_n++;
    for (; token.special && at > 0 && !v->added[at - 1].special; at--) v->added[at] = v->added[at - 1];
    v->added[at] = token;
    v->leads[token.normalized][(unsigned char)token.pattern[0]] = 1;
    v->p->flags[token.id] |=
        (unsigned char)((token.special ? GX_PIECE_SPECIAL : 0) | (token.normalized ? GX_PIECE_NORMALIZED : 0));
    return GX_OK;
}

static GxStatus gx__words_take_added(GxWordsReading *x, const GxJson *from, const char *content, int64_t bytes)
{
    GxWords *v = x->v;
    GxWordAdded token = GX_ZERO;
    int64_t id = -1;
    int single_word = 0;
    GX_TRY(gx_json_get_int(from, "id", 1, &id, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "single_word", 1, &single_word, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "lstrip", 1, &token.lstrip, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "rstrip", 1, &token.rstrip, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "normalized", 1, &token.normalized, x->path, x->err));
    GX_TRY(gx_json_get_bool(from, "special", 1, &token.special, x->path, x->err));
    if (single_word)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: the added token \"%.100s\" has single_word true; supported: false", x->path, content);
    const int32_t known = gx_words_id_of(v, content, bytes);
    const int is_free = id >= 0 && id < GX_WORDS_IDS && (id >= v->p->size || v->p->at[id] < 0);
    if (known >= 0 ? known != id : !is_free)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the added token \"%.100s\" has the id %ld; %s", x->path, content,
                       (long)id,
                       known >= 0 ? "the vocabulary has another one for it" : "expected an id that no other piece has");
    for (int i = 0; i < v->added_n; i++)
        if (v->added[i].id == id) return GX_OK; // listed twice
    token.id = (int32_t)id;
    if (known < 0) GX_TRY(gx_pieces_add(v->p, token.id, content, bytes, 0, x->err));
    return gx__words_keep_added(x, &token, content, bytes);
}

static GxStatus gx__words_read_one_added(GxWordsReading *x, const GxJson *from)
{
    const char *said = "";
    GX_TRY(gx_words_get_text(x, from, "an added token", "content", &said));
    char *content = gx_words_copy(said, (int64_t)strlen(said));
    if (!content) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the added token \"%.100s\"", said);
    const int64_t bytes = gx_json_spell_nuls(x->from->json, content);
    const GxStatus status = gx__words_take_added(x, from, content, bytes);
    free(content);
    return status;
}

GxStatus gx_words_read_added(GxWordsReading *x)
{
    GxJson *list = NULL;
    GX_TRY(gx_json_get_array(x->from->json, "added_tokens", 0, &list, x->path, x->err));
    for (int64_t i = 0; i < gx_json_size(list); i++) GX_TRY(gx__words_read_one_added(x, gx_json_at(list, i)));
    return GX_OK;
}
#endif
