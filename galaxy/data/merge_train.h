// merge_train.h: shared by the trainers of WordPiece (wordpiece_train.h) and BPE (bpe_train.h): texts are read and
// words counted; then, repeatedly, the most frequent pair of neighbouring pieces becomes one piece, as in Hugging
// Face's `tokenizers`. Of equally frequent pairs the one with the smaller ids comes first.
//
//     GxMergeTraining x = GX_ZERO;
//     x.pieces = …, x.vocab_size = …, x.min_frequency = …, x.join = …, x.user = …, x.err = err;
//     GxStatus status = gx_train_count_word(&x, symbols, n); // for each word of the texts; then symbols become ids
//     if (status == GX_OK) status = gx_train_merge(&x);
//     gx_train_close(&x);
//
// Pairs are counted once; a merge only changes the counts of neighbouring pairs, in the words that contain it. A heap
// has the most frequent pair at its top; counts in it may be outdated, and are corrected when they reach the top.
//
// Memory: distinct words and their pairs, about 200 bytes for each distinct word.
#ifndef GX_MERGE_TRAIN_H
#define GX_MERGE_TRAIN_H
#include "../io/file_kind.h"
#include "../io/files.h"
#include "../text/pieces.h"
GX_BEGIN

typedef struct {      // texts in chunks, or as read by train_texts.h
    const char *ends; // a chunk ends after one of these characters, or with its file
    GxStatus (*take)(void *user, const char *text, int64_t bytes, GxError *err);
    void *user;
} GxTrainText;
// Text that is not UTF-8 is an error that names file and line.
GxStatus gx_train_read(const GxTrainText *x, const char *path, GxError *err);

typedef struct { // a distinct word: its symbols, later the ids of its pieces
    int64_t at, count;
    int32_t n;
} GxTrainWord;
typedef struct { // two neighbouring pieces
    int32_t a, b;
    int64_t count; // in all words, by their counts
    int32_t *word; // [n] the words in which it has appeared since it was last queued
    int32_t n, room;
} GxTrainPair;
typedef struct { // a pair that is to be merged in some words
    int64_t count;
    int32_t a, b, *word, n;
} GxTrainMerge;
typedef struct {
    const GxPieces *pieces;            // merging ends when there are vocab_size pieces,
    int64_t vocab_size, min_frequency; // or no pair occurs min_frequency times
    // called for each merge: gives the piece of both, new or existing
    GxStatus (*join)(void *user, int32_t a, int32_t b, int32_t *both);
    void *user;
    GxError *err;
    uint32_t *symbol; // of all words
    int64_t symbols, symbol_room;
    GxTrainWord *word;
    int64_t words, word_room;
    int32_t *word_slot; // [word_slots] number of the word + 1
    int64_t word_slots;
    GxTrainPair *pair;
    int64_t pairs, pair_room;
    int32_t *pair_slot;
    int64_t pair_slots;
    int32_t *fresh; // [fresh_n] pairs with words that are not queued yet
    int64_t fresh_n, fresh_room;
    GxTrainMerge *queue; // a heap: the most frequent first
    int64_t queue_n, queue_room;
} GxMergeTraining;
GxStatus gx_train_count_word(GxMergeTraining *x, const uint32_t *symbols, int64_t n); // counts the word once more
GxStatus gx_train_merge(GxMergeTraining *x);                                          // symbols must be ids by now
void gx_train_close(GxMergeTraining *x);
GxStatus gx_train_grow(void *list, int64_t n, int64_t *room, size_t size, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MERGE_TRAIN_IMPLEMENTED)
#define GX_MERGE_TRAIN_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GX__TRAIN_CHUNK = 1 << 20 };

// Makes room for n elements in a list, whose pointer `list` points to; *room at least doubles.
GxStatus gx_train_grow(void *list, int64_t n, int64_t *room, size_t size, GxError *err)
{
    void *old;
    if (n <= *room) return GX_OK;
    const int64_t wanted = gx_max(n, 2 * *room + 16);
    memcpy(&old, list, sizeof old);
    void *grown = realloc(old, (size_t)wanted * size);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to count words and pairs (%ld of them)", (long)n);
    memcpy(list, &grown, sizeof grown);
    *room = wanted;
    return GX_OK;
}

static uint64_t gx__train_mix(uint64_t x) // spreads neighbouring ids (splitmix64: Steele et al. 2014)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

// ---- words ---------------------------------------------------------------------------------------------------------

static int64_t gx__train_word_slot(const GxMergeTraining *x, const uint32_t *c, int64_t n)
{
    int64_t s = (int64_t)(gx__train_mix(gx_hash(GX_HASH_START, c, n * 4)) & (uint64_t)(x->word_slots - 1));
    for (; x->word_slot[s]; s = (s + 1) & (x->word_slots - 1)) {
        const GxTrainWord *w = &x->word[x->word_slot[s] - 1];
        if (w->n == n && !memcmp(x->symbol + w->at, c, (size_t)n * sizeof *c)) break;
    }
    return s;
}

static GxStatus gx__train_more_word_slots(GxMergeTraining *x)
{
    const int64_t slots = x->word_slots ? 2 * x->word_slots : 1 << 16;
    int32_t *slot = (int32_t *)calloc((size_t)slots, sizeof *slot);
    if (!slot) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for %ld words", (long)slots);
    free(x->word_slot);
    x->word_slot = slot, x->word_slots = slots;
    for (int64_t i = 0; i < x->words; i++)
        slot[gx__train_word_slot(x, x->symbol + x->word[i].at, x->word[i].n)] = (int32_t)(i + 1);
    return GX_OK;
}

GxStatus gx_train_count_word(GxMergeTraining *x, const uint32_t *c, int64_t n)
{
    if (2 * x->words >= x->word_slots) GX_TRY(gx__train_more_word_slots(x));
    const int64_t s = gx__train_word_slot(x, c, n);
    if (!x->word_slot[s]) {
        if (x->words == INT32_MAX || n > INT32_MAX)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "more than %d words to train on", INT32_MAX);
        GX_TRY(gx_train_grow(&x->word, x->words + 1, &x->word_room, sizeof *x->word, x->err));
        GX_TRY(gx_train_grow(&x->symbol, x->symbols + n, &x->symbol_room, sizeof *x->symbol, x->err));
        GxTrainWord *w = &x->word[x->words++];
        w->at = x->symbols, w->n = (int32_t)n, w->count = 0;
        memcpy(x->symbol + x->symbols, c, (size_t)n * sizeof *c);
        x->symbols += n;
        x->word_slot[s] = (int32_t)x->words;
    }
    x->word[x->word_slot[s] - 1].count++;
    return GX_OK;
}

// ---- reading -------------------------------------------------------------------------------------------------------

static GxStatus gx__train_read_chunks(const GxTrainText *x, int fd, int64_t size, const char *path, GxError *err)
{
    GxTextPlace place = {path, 1, 0};
    char *chunk = NULL;
    int64_t room = 0, kept = 0;
    GxStatus status = GX_OK;
    for (int64_t at = 0; status == GX_OK && at < size;) {
        const int64_t n = gx_min(GX__TRAIN_CHUNK, size - at);
        status = gx_train_grow(&chunk, kept + n + 1, &room, 1, err);
        if (status == GX_OK) status = gx_file_read_at(fd, path, chunk + kept, n, at, err);
        if (status != GX_OK) break;
        int64_t have = kept + n, end = have;
        chunk[have] = 0;
        at += n;
        while (at < size && end > kept && !memchr(x->ends, chunk[end - 1], strlen(x->ends))) end--;
        if (at < size && end == kept) end = 0; // the kept part contains no end, either
        if (end > 0) status = gx_text_check(&place, chunk, end, err);
        if (end > 0 && status == GX_OK) status = x->take(x->user, chunk, end, err);
        memmove(chunk, chunk + end, (size_t)(have - end));
        kept = have - end;
    }
    free(chunk);
    return status;
}

GxStatus gx_train_read(const GxTrainText *x, const char *path, GxError *err)
{
    int fd;
    int64_t size;
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_TEXT, err));
    GX_TRY(gx_file_open(path, &fd, &size, err));
    const GxStatus status = gx__train_read_chunks(x, fd, size, path, err);
    close(fd);
    return status;
}

// ---- pairs ---------------------------------------------------------------------------------------------------------

static int64_t gx__train_pair_slot(const GxMergeTraining *x, int32_t a, int32_t b)
{
    int64_t s = (int64_t)(gx__train_mix((uint64_t)(uint32_t)a << 32 | (uint32_t)b) & (uint64_t)(x->pair_slots - 1));
    for (; x->pair_slot[s]; s = (s + 1) & (x->pair_slots - 1)) {
        const GxTrainPair *p = &x->pair[x->pair_slot[s] - 1];
        if (p->a == a && p->b == b) break;
    }
    return s;
}

static GxStatus gx__train_more_pair_slots(GxMergeTraining *x)
{
    const int64_t slots = x->pair_slots ? 2 * x->pair_slots : 1 << 14;
    int32_t *slot = (int32_t *)calloc((size_t)slots, sizeof *slot);
    if (!slot) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for %ld pairs", (long)slots);
    free(x->pair_slot);
    x->pair_slot = slot, x->pair_slots = slots;
    for (int64_t i = 0; i < x->pairs; i++) slot[gx__train_pair_slot(x, x->pair[i].a, x->pair[i].b)] = (int32_t)(i + 1);
    return GX_OK;
}

static GxStatus gx__train_pair_of(GxMergeTraining *x, int32_t a, int32_t b, int64_t *number)
{
    if (2 * x->pairs >= x->pair_slots) GX_TRY(gx__train_more_pair_slots(x));
    const int64_t s = gx__train_pair_slot(x, a, b);
    if (!x->pair_slot[s]) {
        if (x->pairs == INT32_MAX - 1) return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "too many pairs of pieces");
        GX_TRY(gx_train_grow(&x->pair, x->pairs + 1, &x->pair_room, sizeof *x->pair, x->err));
        GxTrainPair *p = &x->pair[x->pairs++];
        memset(p, 0, sizeof *p);
        p->a = a, p->b = b;
        x->pair_slot[s] = (int32_t)x->pairs;
    }
    *number = x->pair_slot[s] - 1;
    return GX_OK;
}

// Changes the count of a pair by `change` times the word's count. If it grows, the pair is to be merged in this word.
static GxStatus gx__train_change(GxMergeTraining *x, int32_t a, int32_t b, int change, int32_t word)
{
    int64_t number = 0, room;
    GX_TRY(gx__train_pair_of(x, a, b, &number));
    GxTrainPair *p = &x->pair[number];
    p->count += change * x->word[word].count;
    if (change < 0) return GX_OK;
    if (p->n == 0) {
        GX_TRY(gx_train_grow(&x->fresh, x->fresh_n + 1, &x->fresh_room, sizeof *x->fresh, x->err));
        x->fresh[x->fresh_n++] = (int32_t)number;
    }
    if (p->n > 0 && p->word[p->n - 1] == word) return GX_OK; // the word is already the last one
    room = p->room;
    GX_TRY(gx_train_grow(&p->word, (int64_t)p->n + 1, &room, sizeof *p->word, x->err));
    p->room = (int32_t)gx_min(room, INT32_MAX);
    p->word[p->n++] = word;
    return GX_OK;
}

// ---- the queue -----------------------------------------------------------------------------------------------------

static int gx__train_is_before(const GxTrainMerge *x, const GxTrainMerge *y)
{
    if (x->count != y->count) return x->count > y->count;
    return x->a != y->a ? x->a < y->a : x->b < y->b;
}

static GxStatus gx__train_push(GxMergeTraining *x, GxTrainMerge m)
{
    int64_t i = x->queue_n, parent;
    GX_TRY(gx_train_grow(&x->queue, i + 1, &x->queue_room, sizeof *x->queue, x->err));
    for (x->queue_n++; i > 0 && gx__train_is_before(&m, &x->queue[parent = (i - 1) / 2]); i = parent)
        x->queue[i] = x->queue[parent];
    x->queue[i] = m;
    return GX_OK;
}

static GxTrainMerge gx__train_pop(GxMergeTraining *x)
{
    const GxTrainMerge top = x->queue[0], last = x->queue[--x->queue_n];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < x->queue_n; i = child) {
        if (child + 1 < x->queue_n && gx__train_is_before(&x->queue[child + 1], &x->queue[child])) child++;
        if (!gx__train_is_before(&x->queue[child], &last)) break;
        x->queue[i] = x->queue[child];
    }
    x->queue[i] = last;
    return top;
}

// Queues pairs with new words, with their current counts.
static GxStatus gx__train_queue(GxMergeTraining *x)
{
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < x->fresh_n; i++) {
        GxTrainPair *p = &x->pair[x->fresh[i]];
        const GxTrainMerge m = {p->count, p->a, p->b, p->word, p->n};
        p->word = NULL, p->n = p->room = 0;
        if (m.count > 0 && status == GX_OK) status = gx__train_push(x, m);
        if (m.count <= 0 || status != GX_OK) free(m.word);
    }
    x->fresh_n = 0;
    return status;
}

// ---- merging -------------------------------------------------------------------------------------------------------

// Replaces each a, b in the word by `both`, from the left, and updates the pairs with the neighbours.
static GxStatus gx__train_merge_in(GxMergeTraining *x, int32_t word, int32_t a, int32_t b, int32_t both)
{
    GxTrainWord *w = &x->word[word];
    int32_t *id = (int32_t *)(x->symbol + w->at), n = 0;
    for (int32_t i = 0; i < w->n;) {
        if (i + 1 >= w->n || id[i] != a || id[i + 1] != b) {
            id[n++] = id[i++];
            continue;
        }
        if (n > 0) {
            GX_TRY(gx__train_change(x, id[n - 1], a, -1, word));
            GX_TRY(gx__train_change(x, id[n - 1], both, 1, word));
        }
        id[n++] = both;
        i += 2;
        if (i < w->n) {
            GX_TRY(gx__train_change(x, b, id[i], -1, word));
            GX_TRY(gx__train_change(x, both, id[i], 1, word));
        }
    }
    w->n = n;
    return GX_OK;
}

static GxStatus gx__train_count_pairs(GxMergeTraining *x)
{
    for (int64_t i = 0; i < x->words; i++)
        for (int32_t k = 0; k + 1 < x->word[i].n; k++) {
            const int32_t *id = (const int32_t *)(x->symbol + x->word[i].at);
            GX_TRY(gx__train_change(x, id[k], id[k + 1], 1, (int32_t)i));
        }
    return gx__train_queue(x);
}

GxStatus gx_train_merge(GxMergeTraining *x)
{
    GX_TRY(gx__train_count_pairs(x));
    while (x->pieces->size < x->vocab_size && x->queue_n > 0) {
        GxTrainMerge top = gx__train_pop(x);
        const int64_t now = x->pair[x->pair_slot[gx__train_pair_slot(x, top.a, top.b)] - 1].count;
        int32_t both = 0;
        GxStatus status = GX_OK;
        if (top.count != now) { // other merges have reduced the count
            top.count = now;
            status = gx__train_push(x, top);
            if (status == GX_OK) continue;
        }
        const int is_rare = top.count < 1 || top.count < x->min_frequency;
        if (status == GX_OK && !is_rare) status = x->join(x->user, top.a, top.b, &both);
        for (int32_t i = 0; i < top.n && !is_rare && status == GX_OK; i++)
            status = gx__train_merge_in(x, top.word[i], top.a, top.b, both);
        free(top.word);
        if (status != GX_OK || is_rare) return status;
        GX_TRY(gx__train_queue(x));
    }
    return GX_OK;
}

void gx_train_close(GxMergeTraining *x)
{
    for (int64_t i = 0; i < x->pairs; i++) free(x->pair[i].word);
    for (int64_t i = 0; i < x->queue_n; i++) free(x->queue[i].word);
    free(x->symbol), free(x->word), free(x->word_slot), free(x->pair), free(x->pair_slot), free(x->fresh);
    free(x->queue);
}
#endif
