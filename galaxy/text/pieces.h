// pieces.h: the pieces of a vocabulary: from an id to its text, and from a text to its id. Shared by all kinds of
// tokenizers that have a vocabulary (wordpiece.h, bpe.h, unigram.h).
//
//     GxPieces p = GX_ZERO;
//     GX_TRY(gx_pieces_add(&p, 7, "the", 3, GX_PIECE_MODEL, err));      // ids in any order, with gaps if need be
//     GX_TRY(gx_pieces_index(&p, err));                                  // once all are there
//     int32_t id = gx_pieces_find(&p, "the", 3);                         // 7
//     gx_pieces_close(&p);
#ifndef GX_PIECES_H
#define GX_PIECES_H
#include "../io/json.h"
GX_BEGIN

// MODEL: in the model's vocabulary, not added to it. NORMALIZED: an added token that is matched in normalised text.
enum { GX_PIECE_SPECIAL = 1, GX_PIECE_CONTINUES = 2, GX_PIECE_MODEL = 4, GX_PIECE_NORMALIZED = 8 };
typedef struct {
    char *text; // all pieces, each with a terminating 0; a piece may contain U+0000
    int64_t bytes, capacity;
    int64_t *at;          // [size] the position of each in text; -1: no piece has this id
    int32_t *length;      // [size] its bytes
    unsigned char *flags; // [size] GX_PIECE_...
    int32_t size, room;   // room: the capacity of these three
    int32_t *slot;        // [slots] a hash table of the model's pieces: id + 1; 0: free
    int64_t slots;        // a power of two
    int64_t longest;      // of the model's pieces, bytes
} GxPieces;

GxStatus gx_pieces_add(GxPieces *p, int32_t id, const char *piece, int64_t bytes, unsigned flags, GxError *err);
// Adds a piece that is spelled as in a document that was read with GX_JSON_NULS (json.h). root: the document's root.
GxStatus gx_pieces_add_said(GxPieces *p, int32_t id, const GxJson *root, const char *said, unsigned flags,
                            GxError *err);
GxStatus gx_pieces_index(GxPieces *p, GxError *err);             // makes the table
GxStatus gx_pieces_enter(GxPieces *p, int32_t id, GxError *err); // inserts a piece that was just added into the table
void gx_pieces_close(GxPieces *p);
// Describes how two vocabularies differ; if they do not, `otherwise`.
void gx_pieces_difference(const GxPieces *here, const GxPieces *there, const char *otherwise, char *out, int room);

const char *gx_pieces_text(const GxPieces *p, int32_t id);                        // NULL: no piece has this id
int64_t gx_pieces_bytes(const GxPieces *p, int32_t id);                           // of it
int gx_pieces_is(const GxPieces *p, int32_t id, const char *text, int64_t bytes); // 1: the piece is this text
// *said: the piece as spelled in JSON, with GX_JSON_NUL for U+0000: its text itself, or *made, which the caller frees.
GxStatus gx_pieces_say(const GxPieces *p, int32_t id, const char **said, char **made, GxError *err);
int32_t gx_pieces_find(const GxPieces *p, const char *piece, int64_t bytes); // a piece of the model; -1: none
// the same if its gx_hash is known
int32_t gx_pieces_at_hash(const GxPieces *p, uint64_t hash, const char *piece, int64_t bytes);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PIECES_IMPLEMENTED)
#define GX_PIECES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static GxStatus gx__pieces_grow_ids(GxPieces *p, int32_t size, GxError *err)
{
    const int32_t room = (int32_t)gx_max(size, gx_min(2 * (int64_t)p->room, INT32_MAX / 2));
    int64_t *at = (int64_t *)realloc(p->at, (size_t)room * sizeof *at);
    if (at) p->at = at;
    int32_t *length = at ? (int32_t *)realloc(p->length, (size_t)room * sizeof *length) : NULL;
    if (length) p->length = length;
    unsigned char *flags = length ? (unsigned char *)realloc(p->flags, (size_t)room) : NULL;
    if (!flags) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a vocabulary of %ld pieces", (long)room);
    p->flags = flags;
    p->room = room;
    return GX_OK;
}

static GxStatus gx__pieces_grow_text(GxPieces *p, int64_t bytes, GxError *err)
{
    const int64_t capacity = gx_max(bytes, 2 * p->capacity);
    char *text = (char *)realloc(p->text, (size_t)capacity);
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a vocabulary of %ld bytes", (long)capacity);
    p->text = text;
    p->capacity = capacity;
    return GX_OK;
}

GxStatus gx_pieces_add(GxPieces *p, int32_t id, const char *piece, int64_t bytes, unsigned flags, GxError *err)
{
    if (id >= p->room) GX_TRY(gx__pieces_grow_ids(p, id + 1, err));
    if (p->bytes + bytes + 1 > p->capacity) GX_TRY(gx__pieces_grow_text(p, p->bytes + bytes + 1, err));
    for (; p->size <= id; p->size++) p->at[p->size] = -1, p->length[p->size] = p->flags[p->size] = 0;
    p->at[id] = p->bytes, p->length[id] = (int32_t)bytes;
    p->flags[id] = (unsigned char)flags;
    memcpy(p->text + p->bytes, piece, (size_t)bytes);
    p->bytes += bytes;
    p->text[p->bytes++] = 0;
    return GX_OK;
}

GxStatus gx_pieces_add_said(GxPieces *p, int32_t id, const GxJson *root, const char *said, unsigned flags, GxError *err)
{
    GX_TRY(gx_pieces_add(p, id, said, (int64_t)strlen(said), flags, err));
    p->length[id] = (int32_t)gx_json_spell_nuls(root, p->text + p->at[id]);
    p->bytes = p->at[id] + p->length[id] + 1;
    return GX_OK;
}

// The place in the table where a piece is, or would be inserted.
static int64_t gx__pieces_slot(const GxPieces *p, uint64_t hash, const char *piece, int64_t bytes)
{
    int64_t s = (int64_t)((hash ^ hash >> 32) & (uint64_t)(p->slots - 1));
    for (; p->slot[s]; s = (s + 1) & (p->slots - 1)) {
        if (gx_pieces_is(p, p->slot[s] - 1, piece, bytes)) break;
    }
    return s;
}

// Inserts a piece into the table. Of two equal pieces the last one counts.
static void gx__pieces_put(GxPieces *p, int32_t id)
{
    const char *piece = p->text + p->at[id];
    const int64_t bytes = p->length[id], s = gx__pieces_slot(p, gx_hash(GX_HASH_START, piece, bytes), piece, bytes);
    const int32_t old = p->slot[s] - 1;
    if (old >= 0) p->at[old] = -1, p->length[old] = p->flags[old] = 0;
    p->slot[s] = id + 1;
    p->longest = gx_max(p->longest, bytes);
}

GxStatus gx_pieces_index(GxPieces *p, GxError *err)
{
    for (p->slots = 16; p->slots < 4 * (int64_t)p->size;) p->slots *= 2;
    free(p->slot);
    p->slot = (int32_t *)calloc((size_t)p->slots, sizeof *p->slot);
    if (!p->slot) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a table of %ld pieces", (long)p->slots);
    for (int32_t id = 0; id < p->size; id++)
        if (p->flags[id] & GX_PIECE_MODEL) gx__pieces_put(p, id);
    return GX_OK;
}

GxStatus gx_pieces_enter(GxPieces *p, int32_t id, GxError *err)
{
    if (2 * (int64_t)p->size > p->slots) return gx_pieces_index(p, err);
    gx__pieces_put(p, id);
    return GX_OK;
}

const char *gx_pieces_text(const GxPieces *p, int32_t id) { return p->at[id] < 0 ? NULL : p->text + p->at[id]; }
int64_t gx_pieces_bytes(const GxPieces *p, int32_t id) { return p->length[id]; }
int gx_pieces_is(const GxPieces *p, int32_t id, const char *text, int64_t bytes)
{
    return p->at[id] >= 0 && p->length[id] == bytes && !memcmp(p->text + p->at[id], text, (size_t)bytes);
}

GxStatus gx_pieces_say(const GxPieces *p, int32_t id, const char **said, char **made, GxError *err)
{
    const char *text = p->text + p->at[id];
    const int64_t n = p->length[id];
    *said = text, *made = NULL;
    if (!memchr(text, 0, (size_t)n)) return GX_OK;
    char *out = *made = (char *)malloc((size_t)(4 * n) + 1);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a piece of %ld bytes", (long)n);
    for (int64_t i = 0; i < n; i++) {
        memcpy(out, text[i] ? text + i : GX_JSON_NUL, text[i] ? 1 : 4);
        out += text[i] ? 1 : 4;
    }
    *out = 0, *said = *made;
    return GX_OK;
}

int32_t gx_pieces_at_hash(const GxPieces *p, uint64_t hash, const char *piece, int64_t bytes)
{
    return p->slot[gx__pieces_slot(p, hash, piece, bytes)] - 1;
}
int32_t gx_pieces_find(const GxPieces *p, const char *piece, int64_t bytes)
{
    return gx_pieces_at_hash(p, gx_hash(GX_HASH_START, piece, bytes), piece, bytes);
}

void gx_pieces_close(GxPieces *p)
{
    free(p->text);
    free(p->at);
    free(p->length);
    free(p->flags);
    free(p->slot);
    memset(p, 0, sizeof *p);
}

void gx_pieces_difference(const GxPieces *here, const GxPieces *there, const char *otherwise, char *out, int room)
{
    const char *none = "no piece";
    snprintf(out, (size_t)room, "%s", otherwise);
    for (int32_t id = (int32_t)gx_min(here->size, there->size) - 1; id >= 0; id--) {
        const char *p = gx_pieces_text(here, id), *q = gx_pieces_text(there, id);
        if (p && q ? gx_pieces_is(here, id, q, gx_pieces_bytes(there, id)) : p == q) continue;
        snprintf(out, (size_t)room, "the id %ld is \"%.60s\" there and \"%.60s\" here", (long)id, q ? q : none,
                 p ? p : none);
    }
    if (here->size != there->size)
        snprintf(out, (size_t)room, "%ld pieces there and %ld here", (long)there->size, (long)here->size);
}
#endif
