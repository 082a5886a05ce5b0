// bpe.h: byte pair encoding (Gage 1994; Sennrich et al. 2016): splits a word into pieces of a vocabulary. It begins
// with the word's characters. Then, repeatedly, the pair of neighbours that comes first in a list of merges becomes one
// piece (the leftmost of equal pairs), until no pair is in the list. What a word is, and which characters stand for
// bytes, is in words.h; tokenizers in files: bpe_files.h.
//
// A character that the vocabulary does not have becomes the first of these that applies: with byte_fallback the pieces
// <0x00> to <0xFF> of its bytes, if the vocabulary has all of them; the piece for unknown characters, with fuse_unk one
// for several in a row; nothing. With ignore_merges a word that is itself a piece becomes that piece, whatever the
// merges say (LLaMA-3).
//
// A word of n characters takes O(n log n) steps: pairs are in a heap, by their place in the list, and pieces in a
// linked list. A word is first cut between any two characters that no merge joins, that is, if no merge has a left
// piece ending with the one and a right piece beginning with the other. This changes nothing in the result, and cuts a
// text that is a single word (LLaMA-2) at its spaces.
#ifndef GX_BPE_H
#define GX_BPE_H
#include "pieces.h"
#include "unicode.h"
GX_BEGIN

enum {
    GX_BPE_NEAR = 512,     // characters below this are looked up in a table; those that stand for bytes are among them
    GX_BPE_JOINS = 1 << 20 // bits of `joins`
};
typedef struct {         // one of the merges, in a hash table
    int32_t left, right; // left -1: a free place
    int32_t rank, id;    // its place in the list; the piece that both become
} GxBpeMerge;

typedef struct {
    GxPieces p;
    GxBpeMerge *merge; // [places]
    int64_t places;    // a power of two
    // a bit for each pair of characters, by a hash: 0: no merge joins them, whatever pieces they are in
    uint64_t *joins;
    int32_t merges;
    int32_t near[GX_BPE_NEAR]; // ids of characters; -1: none
    int32_t byte[256];         // ids of <0x00> to <0xFF>; -1: none
    int32_t unk;               // -1: unknown characters are dropped
    int fuse_unk, byte_fallback, ignore_merges;
} GxBpe;

// To make one: fill in b->p, its table and the settings, add the merges by their rank, and call gx_bpe_ready.
GxStatus gx_bpe_reserve(GxBpe *b, int64_t merges, GxError *err); // room for so many
void gx_bpe_merge(GxBpe *b, int32_t left, int32_t right,
                  int32_t id); // the next merge; of two equal pairs the last one counts
void gx_bpe_ready(GxBpe *b);
void gx_bpe_close(GxBpe *b);

typedef struct {
    int32_t id, rank;   // rank: of the pair with the next one; -1: no pair, or it is part of another
    int32_t prev, next; // -1: none
} GxBpeSymbol;
typedef struct { // work space for a word, which grows as needed; one per thread
    GxBpeSymbol *symbol;
    uint64_t *heap; // rank << 32 | symbol
    int64_t symbols, capacity, heap_n;
} GxBpeRoom;
void gx_bpe_room_close(GxBpeRoom *room);

// word[bytes] is UTF-8. ids: room for `bytes` ids, the most there can be; *n: their number.
GxStatus gx_bpe_word(const GxBpe *b, GxBpeRoom *room, const char *word, int64_t bytes, int32_t *ids, int64_t *n,
                     GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BPE_IMPLEMENTED)
#define GX_BPE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- merges --------------------------------------------------------------------------------------------------------

// The place in the table where a pair is, or would be inserted.
static GxBpeMerge *gx__bpe_place(const GxBpe *b, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, hash = pair * UINT64_C(0x9E3779B97F4A7C15);
    int64_t at = (int64_t)((hash ^ hash >> 29) & (uint64_t)(b->places - 1));
    while (b->merge[at].left >= 0 && (b->merge[at].left != left || b->merge[at].right != right))
        at = (at + 1) & (b->places - 1);
    return &b->merge[at];
}

GxStatus gx_bpe_reserve(GxBpe *b, int64_t merges, GxError *err)
{
    for (b->places = 16; b->places < 2 * merges;) b->places *= 2;
    b->merge = (GxBpeMerge *)malloc((size_t)b->places * sizeof *b->merge);
    b->joins = (uint64_t *)calloc(GX_BPE_JOINS / 64, sizeof *b->joins);
    if (!b->merge || !b->joins) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld merges", (long)merges);
    memset(b->merge, -1, (size_t)b->places * sizeof *b->merge);
    return GX_OK;
}

static uint32_t gx__bpe_bit(uint32_t left, uint32_t right)
{
    return (uint32_t)(((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15) >> 44);
}
static int gx__bpe_may_join(const GxBpe *b, uint32_t left, uint32_t right)
{
    const uint32_t bit = gx__bpe_bit(left, right);
    return (int)(b->joins[bit / 64] >> bit % 64 & 1);
}

void gx_bpe_merge(GxBpe *b, int32_t left, int32_t right, int32_t id)
{
    const GxBpeMerge one = {left, right, b->merges++, id};
    const char *from = b->p.text + b->p.at[left], *end = from + gx_pieces_bytes(&b->p, left), *last = end - 1,
               *next = b->p.text + b->p.at[right];
    uint32_t c, d;
    *gx__bpe_place(b, left, right) = one;
    while (last > from && ((unsigned char)*last & 0xC0) == 0x80) last--;
    gx_unicode_decode(last, end, &c);
    gx_unicode_decode(next, next + gx_pieces_bytes(&b->p, right), &d);
    const uint32_t bit = gx__bpe_bit(c, d);
    b->joins[bit / 64] |= (uint64_t)1 << bit % 64;
}

void gx_bpe_ready(GxBpe *b)
{
    char text[8];
    for (uint32_t c = 0; c < GX_BPE_NEAR; c++) b->near[c] = gx_pieces_find(&b->p, text, gx_unicode_encode(c, text));
    for (int i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        b->byte[i] = gx_pieces_find(&b->p, text, 6);
    }
}

void gx_bpe_close(GxBpe *b)
{
    gx_pieces_close(&b->p);
    free(b->merge);
    free(b->joins);
    memset(b, 0, sizeof *b);
}

// ---- a word --------------------------------------------------------------------------------------------------------

void gx_bpe_room_close(GxBpeRoom *room)
{
    free(room->symbol);
    free(room->heap);
    memset(room, 0, sizeof *room);
}

// n symbols put n - 1 pairs into the heap at first, and two more for each of at most n - 1 merges.
static GxStatus gx__bpe_grow(GxBpeRoom *room, int64_t n, GxError *err)
{
    if (n <= room->capacity) return GX_OK;
    if (n > INT32_MAX)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "a word has %ld bytes; at most 2^31 are supported", (long)n);
    const int64_t capacity = gx_max(n, 2 * room->capacity);
    gx_bpe_room_close(room);
    room->symbol = (GxBpeSymbol *)malloc((size_t)capacity * sizeof *room->symbol);
    room->heap = (uint64_t *)malloc((size_t)(3 * capacity) * sizeof *room->heap);
    if (!room->symbol || !room->heap)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a word of %ld bytes", (long)capacity);
    room->capacity = capacity;
    return GX_OK;
}

static void gx__bpe_push(GxBpeRoom *room, uint64_t pair)
{
    int64_t at = room->heap_n++;
    for (; at > 0 && room->heap[(at - 1) / 2] > pair; at = (at - 1) / 2) room->heap[at] = room->heap[(at - 1) / 2];
    room->heap[at] = pair;
}

static uint64_t gx__bpe_pop(GxBpeRoom *room)
{
    const uint64_t least = room->heap[0], last = room->heap[--room->heap_n];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < room->heap_n; at = child) {
        if (child + 1 < room->heap_n && room->heap[child + 1] < room->heap[child]) child++;
        if (room->heap[child] >= last) break;
        room->heap[at] = room->heap[child];
    }
    room->heap[at] = last;
    return least;
}

// The pair of a symbol and the next one, if it is one of the merges.
static void gx__bpe_scan(const GxBpe *b, GxBpeRoom *room, int32_t at)
{
    const int32_t next = room->symbol[at].next;
    room->symbol[at].rank = -1;
    if (next < 0) return;
    const GxBpeMerge *m = gx__bpe_place(b, room->symbol[at].id, room->symbol[next].id);
    if (m->left < 0) return;
    room->symbol[at].rank = m->rank;
    gx__bpe_push(room, (uint64_t)(uint32_t)m->rank << 32 | (uint32_t)at);
}

static void gx__bpe_symbol(GxBpeRoom *room, int32_t id)
{
    const int32_t at = (int32_t)room->symbols++;
    room->symbol[at].id = id, room->symbol[at].rank = -1;
    room->symbol[at].prev = at - 1, room->symbol[at].next = at + 1;
}

static int gx__bpe_put_bytes(const GxBpe *b, GxBpeRoom *room, const char *from, int n)
{
    for (int i = 0; i < n; i++)
        if (b->byte[(unsigned char)from[i]] < 0) return 0;
    for (int i = 0; i < n; i++) gx__bpe_symbol(room, b->byte[(unsigned char)from[i]]);
    return 1;
}

static void gx__bpe_join(const GxBpe *b, GxBpeRoom *room, int32_t at)
{
    const int32_t right = room->symbol[at].next, next = room->symbol[right].next, prev = room->symbol[at].prev;
    room->symbol[at].id = gx__bpe_place(b, room->symbol[at].id, room->symbol[right].id)->id;
    room->symbol[at].next = next;
    room->symbol[right].rank = -1;
    if (next >= 0) room->symbol[next].prev = at;
    if (prev >= 0) gx__bpe_scan(b, room, prev);
    gx__bpe_scan(b, room, at);
}

// Merges the symbols collected so far, and appends their ids; none are left afterwards.
static void gx__bpe_merge_symbols(const GxBpe *b, GxBpeRoom *room, int32_t *ids, int64_t *n)
{
    if (room->symbols == 0) return;
    room->symbol[room->symbols - 1].next = -1;
    for (int64_t i = 0; i < room->symbols; i++) gx__bpe_scan(b, room, (int32_t)i);
    while (room->heap_n > 0) {
        const uint64_t least = gx__bpe_pop(room);
        const int32_t at = (int32_t)(uint32_t)least;
        // otherwise the pair no longer exists
        if (room->symbol[at].rank == (int32_t)(least >> 32)) gx__bpe_join(b, room, at);
    }
    for (int32_t at = 0; at >= 0; at = room->symbol[at].next) ids[(*n)++] = room->symbol[at].id;
    room->symbols = 0;
}

// As in `tokenizers`, an unknown character is written only when the next known or unknown one comes, so after any bytes
// between them.
GxStatus gx_bpe_word(const GxBpe *b, GxBpeRoom *room, const char *word, int64_t bytes, int32_t *ids, int64_t *n,
                     GxError *err)
{
    const uint32_t none = UINT32_MAX;
    uint32_t c, last = none; // the previous character, if it is known
    int waits = 0;           // an unknown one
    *n = 0;
    if (bytes == 0) return GX_OK;
    if (b->ignore_merges && (ids[0] = gx_pieces_find(&b->p, word, bytes)) >= 0) return *n = 1, GX_OK;
    GX_TRY(gx__bpe_grow(room, bytes, err));
    room->symbols = room->heap_n = 0;
    for (const char *p = word, *end = word + bytes; p < end;) {
        const int size = gx_unicode_decode(p, end, &c);
        const int32_t id = c < GX_BPE_NEAR ? b->near[c] : gx_pieces_find(&b->p, p, size);
        const int is_bytes = id < 0 && b->byte_fallback && gx__bpe_put_bytes(b, room, p, size);
        p += size;
        if (!is_bytes && id < 0 && b->unk < 0) continue; // it is dropped
        if (id >= 0 && last != none && !gx__bpe_may_join(b, last, c)) gx__bpe_merge_symbols(b, room, ids, n);
        last = id >= 0 ? c : none;
        if (is_bytes) continue;
        if (waits && (id >= 0 || !b->fuse_unk)) gx__bpe_symbol(room, b->unk);
        waits = id < 0;
        if (id >= 0) gx__bpe_symbol(room, id);
    }
    if (waits) gx__bpe_symbol(room, b->unk);
    gx__bpe_merge_symbols(b, room, ids, n);
    return GX_OK;
}
#endif
