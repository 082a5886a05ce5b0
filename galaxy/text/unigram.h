// unigram.h: the unigram language model (Kudo 2018): splits a word into pieces of a vocabulary in which each piece has
// a score, its log-probability. Of all ways to split the word, the one with the greatest sum of scores is taken. What a
// word is: words.h; tokenizers in files: unigram_files.h.
//
// The best split up to each place in the word is found from left to right (Viterbi 1967), with a trie of the pieces: a
// word of n bytes takes at most n times as many steps as the longest piece has bytes, and 24 n bytes of memory. Sums
// are doubles, added from left to right; of equal sums the one whose last piece begins first is taken, as in Hugging
// Face's `tokenizers`.
//
// A character that is not a piece counts as one with a score 10 below the lowest. Several such characters in a row are
// one unknown piece, which becomes the first of these that applies: the piece with this text, if there is one after
// all; with byte_fallback the pieces <0x00> to <0xFF> of its bytes, if the vocabulary has all of them; the unknown
// piece.
#ifndef GX_UNIGRAM_H
#define GX_UNIGRAM_H
#include "pieces.h"
#include "unicode.h"
GX_BEGIN

// the most bytes of all pieces: the trie has as many nodes, whose numbers have 28 bits
enum { GX_UNIGRAM_BYTES = 1 << 26 };
typedef struct {
    GxPieces p;
    double *score; // [p's ids]
    double least;
    uint64_t *edge;    // [places] a hash table of the trie's edges: node << 36 | byte << 28 | child; 0: free
    int64_t places;    // a power of two
    int32_t *piece;    // [nodes] the piece that ends there; -1: none
    int32_t byte[256]; // ids of <0x00> to <0xFF>; -1: none
    int32_t nodes;     // 0 is the root
    int32_t unk;       // -1: none, so unknown characters are an error
    int byte_fallback;
} GxUnigram;

// To make one: fill in u->p, with ids from 0 without gaps, its table, the scores and the settings, and call this.
GxStatus gx_unigram_ready(GxUnigram *u, GxError *err);
void gx_unigram_close(GxUnigram *u);

typedef struct {  // a place in a word, between two of its bytes
    double score; // of the best split that ends here
    // from: where its last piece begins, -1: no split ends here. to: where the best split of the whole word continues
    int32_t from, to;
    int32_t id; // its last piece
} GxUnigramPlace;
typedef struct { // work space for a word, which grows as needed; one per thread
    GxUnigramPlace *place;
    int64_t capacity;
} GxUnigramRoom;
void gx_unigram_room_close(GxUnigramRoom *room);

// word[bytes] is UTF-8. ids: room for `bytes` ids, the most there can be; *n: their number.
GxStatus gx_unigram_word(const GxUnigram *u, GxUnigramRoom *room, const char *word, int64_t bytes, int32_t *ids,
                         int64_t *n, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_UNIGRAM_IMPLEMENTED)
#define GX_UNIGRAM_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the trie ------------------------------------------------------------------------------------------------------

// The place in the table where an edge is, or would be inserted.
static int64_t gx__unigram_edge(const GxUnigram *u, int32_t node, unsigned char byte)
{
    const uint64_t key = (uint64_t)(uint32_t)node << 8 | byte, hash = key * UINT64_C(0x9E3779B97F4A7C15);
    int64_t at = (int64_t)((hash ^ hash >> 32) & (uint64_t)(u->places - 1));
    while (u->edge[at] && u->edge[at] >> 28 != key) at = (at + 1) & (u->places - 1);
    return at;
}

static int32_t gx__unigram_child(const GxUnigram *u, int32_t node, unsigned char byte) // 0: there is none
{
    return (int32_t)(u->edge[gx__unigram_edge(u, node, byte)] & 0xFFFFFFF);
}

static void gx__unigram_enter(GxUnigram *u, int32_t id)
{
    int32_t node = 0;
    const char *piece = gx_pieces_text(&u->p, id);
    for (const char *p = piece, *end = piece + gx_pieces_bytes(&u->p, id); p < end; p++) {
        const int64_t at = gx__unigram_edge(u, node, (unsigned char)*p);
        if (!u->edge[at]) {
            u->edge[at] = (uint64_t)(uint32_t)node << 36 | (uint64_t)(unsigned char)*p << 28 | (uint32_t)u->nodes;
            u->piece[u->nodes++] = -1;
        }
        node = (int32_t)(u->edge[at] & 0xFFFFFFF);
    }
    u->piece[node] = id; // an empty piece ends at the root, which is never read
}

GxStatus gx_unigram_ready(GxUnigram *u, GxError *err)
{
    if (u->p.bytes > GX_UNIGRAM_BYTES)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "the pieces have %ld bytes; at most %d are supported", (long)u->p.bytes,
                       GX_UNIGRAM_BYTES);
    for (u->places = 256; u->places < 2 * u->p.bytes;) u->places *= 2;
    u->edge = (uint64_t *)calloc((size_t)u->places, sizeof *u->edge);
    u->piece = (int32_t *)malloc((size_t)(u->p.bytes + 1) * sizeof *u->piece);
    if (!u->edge || !u->piece) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld pieces", (long)u->p.size);
    u->piece[0] = -1, u->nodes = 1;
    u->least = u->p.size > 0 ? u->score[0] : 0;
    for (int32_t id = 0; id < u->p.size; id++) {
        u->least = u->score[id] < u->least ? u->score[id] : u->least;
        gx__unigram_enter(u, id);
    }
    for (int i = 0; i < 256; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        u->byte[i] = gx_pieces_find(&u->p, text, 6);
    }
    return GX_OK;
}

void gx_unigram_close(GxUnigram *u)
{
    gx_pieces_close(&u->p);
    free(u->score);
    free(u->edge);
    free(u->piece);
    memset(u, 0, sizeof *u);
}

// ---- a word --------------------------------------------------------------------------------------------------------

void gx_unigram_room_close(GxUnigramRoom *room)
{
    free(room->place);
    memset(room, 0, sizeof *room);
}

static GxStatus gx__unigram_grow(GxUnigramRoom *room, int64_t n, GxError *err)
{
    if (n <= room->capacity) return GX_OK;
    if (n > INT32_MAX)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "a word has %ld bytes; at most 2^31 are supported", (long)n);
    const int64_t capacity = gx_max(n, 2 * room->capacity);
    gx_unigram_room_close(room);
    room->place = (GxUnigramPlace *)malloc((size_t)capacity * sizeof *room->place);
    if (!room->place) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a word of %ld bytes", (long)capacity);
    room->capacity = capacity;
    return GX_OK;
}

// Takes a piece from one place to another if this gives a better split.
static void gx__unigram_offer(GxUnigramPlace *place, int32_t from, int32_t to, int32_t id, double score)
{
    const double sum = place[from].score + score;
    if (place[to].from >= 0 && sum <= place[to].score) return;
    place[to].score = sum;
    place[to].from = from;
    place[to].id = id;
}

// Tries all pieces that begin at a place. If none of them is the single character there, it is unknown.
static GxStatus gx__unigram_step(const GxUnigram *u, GxUnigramPlace *place, const char *word, int32_t at, int32_t bytes,
                                 int character, GxError *err)
{
    int32_t node = 0;
    int is_known = 0;
    for (int32_t end = at; end < bytes && (node = gx__unigram_child(u, node, (unsigned char)word[end])) > 0;) {
        const int32_t id = u->piece[node];
        end++;
        if (id < 0) continue;
        gx__unigram_offer(place, at, end, id, u->score[id]);
        is_known |= end == at + character;
    }
    if (is_known) return GX_OK;
    if (u->unk < 0)
        return GX_FAIL(
            err, GX_ERR_FORMAT,
            "the text has \"%.*s\", which is not a piece, and the vocabulary has none for unknown text (unk_id)",
            character, word + at);
    gx__unigram_offer(place, at, at + character, u->unk, u->least - 10);
    return GX_OK;
}

static int64_t gx__unigram_put_unknown(const GxUnigram *u, const char *text, int32_t bytes, int32_t *ids)
{
    ids[0] = gx_pieces_find(&u->p, text, bytes);
    if (ids[0] >= 0) return 1;
    int has_all = u->byte_fallback;
    for (int32_t i = 0; i < bytes && has_all; i++) has_all = u->byte[(unsigned char)text[i]] >= 0;
    ids[0] = u->unk;
    if (!has_all) return 1;
    for (int32_t i = 0; i < bytes; i++) ids[i] = u->byte[(unsigned char)text[i]];
    return bytes;
}

GxStatus gx_unigram_word(const GxUnigram *u, GxUnigramRoom *room, const char *word, int64_t bytes, int32_t *ids,
                         int64_t *n, GxError *err)
{
    uint32_t c;
    *n = 0;
    GX_TRY(gx__unigram_grow(room, bytes + 1, err));
    GxUnigramPlace *place = room->place;
    for (int64_t i = 0; i <= bytes; i++) place[i].from = -1;
    place[0].score = 0;
    for (int32_t at = 0, character; at < bytes; at += character) {
        character = gx_unicode_decode(word + at, word + bytes, &c);
        GX_TRY(gx__unigram_step(u, place, word, at, (int32_t)bytes, character, err));
    }
    for (int32_t at = (int32_t)bytes; at > 0; at = place[at].from) place[place[at].from].to = at;
    for (int32_t at = 0, to; at < bytes; at = to) {
        to = place[at].to;
        if (place[to].id != u->unk) {
            ids[(*n)++] = place[to].id;
            continue;
        }
        while (to < bytes && place[place[to].to].id == u->unk) to = place[to].to;
        *n += gx__unigram_put_unknown(u, word + at, to - at, ids + *n);
    }
    return GX_OK;
}
#endif
