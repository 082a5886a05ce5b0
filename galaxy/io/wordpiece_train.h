// wordpiece_train.h: a WordPiece vocabulary from text: pairs of pieces that stand beside each other most often become a
// piece, again and again (byte-pair encoding: Sennrich et al. 2016), as in Hugging Face's WordPieceTrainer.
//
//     static const char *const files[] = {"a.txt", "b.txt"};
//     GxWordPieceTraining how = gx_wordpiece_training(30000);
//     GxTokenizer t;
//     GX_TRY(gx_wordpiece_train(&t, files, 2, &how, err));
//     GX_TRY(gx_tokenizer_write(&t, "folder", err));
//
// The vocabulary is [PAD], [UNK], [CLS], [SEP], [MASK]; the characters of the text by their code points; those that
// stand inside of words with ## before them; then what was merged, in that order. Words are those of the normaliser,
// with their counts. Of pairs that are as frequent the one with the smaller ids comes first.
//
// The result depends on the texts alone. That of `tokenizers` 0.23 does not: it numbers the ## characters in an order
// that differs from run to run, and with it how pairs that are as frequent are chosen; which characters stay, where
// limit_alphabet leaves some of equal count out, differs, too (here: the smaller code points stay). All else is the
// same, so that a vocabulary is one that `tokenizers` could have made.
//
// Words of more than max_word characters, which such a tokenizer does not cut into pieces, are left out (`tokenizers`
// counts them, in a time that grows with the square of their length). A vocab_size that the characters alone exceed is
// an error (`tokenizers` writes them all the same). What is not UTF-8 text is an error that names file and line.
//
// Memory: the distinct words and their pairs, about 200 bytes for each word of the texts that is new. 10 MB of English
// take a few seconds.
#ifndef GX_WORDPIECE_TRAIN_H
#define GX_WORDPIECE_TRAIN_H
#include "wordpiece_files.h"
GX_BEGIN

typedef struct {
    int64_t vocab_size;     // where merging ends; at least the special tokens and the characters
    int64_t min_frequency;  // of a pair that is merged
    int64_t limit_alphabet; // characters that stay, the most frequent ones; 0: all
    int64_t max_word;       // characters; longer words become [UNK], and train nothing
    GxBertNormalizer normalizer;
    int64_t *too_long; // how many words were left out for that; NULL: nobody asks
} GxWordPieceTraining;
// min_frequency 2, limit_alphabet 1000, max_word 100, lower case
GxWordPieceTraining gx_wordpiece_training(int64_t vocab_size);

GxStatus gx_wordpiece_train(GxTokenizer *t, const char *const *files, int n, const GxWordPieceTraining *how,
                            GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WORDPIECE_TRAIN_IMPLEMENTED)
#define GX_WORDPIECE_TRAIN_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GX__WORDPIECE_TRAIN_CHUNK = 1 << 20 };

typedef struct { // a distinct word: its characters, later the ids of its pieces
    int64_t at, count;
    int32_t n;
} gx__TrainWord;
typedef struct { // two pieces beside each other
    int32_t a, b;
    int64_t count; // in all words, by their counts
    int32_t *word; // [n] where it has come about since it was last queued
    int32_t n, room;
} gx__TrainPair;
typedef struct { // a pair that waits to be merged in some words
    int64_t count;
    int32_t a, b, *word, n;
} gx__TrainMerge;
typedef struct {
    const GxWordPieceTraining *how;
    uint32_t *text; // of all words
    int64_t text_n, text_room;
    gx__TrainWord *word;
    int64_t words, word_room;
    int32_t *word_slot; // [word_slots] number of the word + 1
    int64_t word_slots;
    int64_t letters; // characters that stay
    gx__TrainPair *pair;
    int64_t pairs, pair_room;
    int32_t *pair_slot;
    int64_t pair_slots;
    int32_t *fresh; // [fresh_n] pairs that have words which are not queued
    int64_t fresh_n, fresh_room;
    gx__TrainMerge *queue; // a heap: the most frequent first
    int64_t queue_n, queue_room;
    GxWordPiece v;
    GxError *err;
} gx__Training;

GxWordPieceTraining gx_wordpiece_training(int64_t vocab_size)
{
    GxWordPieceTraining how = GX_ZERO;
    how.vocab_size = vocab_size;
    how.min_frequency = 2;
    how.limit_alphabet = 1000;
    how.max_word = 100;
    how.normalizer.clean_text = how.normalizer.handle_chinese_chars = how.normalizer.lowercase = 1;
    how.normalizer.strip_accents = GX_ACCENTS_AS_LOWERCASE;
    return how;
}

// Room for n elements in a list, whose pointer `list` points to; *room grows to twice what it was.
static GxStatus gx__train_grow(void *list, int64_t n, int64_t *room, size_t size, GxError *err)
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

static uint64_t gx__train_mix(uint64_t x) // neighbouring ids far apart (splitmix64: Steele et al. 2014)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

// ---- words ---------------------------------------------------------------------------------------------------------

static int64_t gx__train_word_slot(const gx__Training *x, const uint32_t *c, int64_t n)
{
    int64_t s = (int64_t)(gx__train_mix(gx_hash(GX_HASH_START, c, n * 4)) & (uint64_t)(x->word_slots - 1));
    for (; x->word_slot[s]; s = (s + 1) & (x->word_slots - 1)) {
        const gx__TrainWord *w = &x->word[x->word_slot[s] - 1];
        if (w->n == n && !memcmp(x->text + w->at, c, (size_t)n * sizeof *c)) break;
    }
    return s;
}

static GxStatus gx__train_more_word_slots(gx__Training *x)
{
    const int64_t slots = x->word_slots ? 2 * x->word_slots : 1 << 16;
    int32_t *slot = (int32_t *)calloc((size_t)slots, sizeof *slot);
    if (!slot) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for %ld words", (long)slots);
    free(x->word_slot);
    x->word_slot = slot, x->word_slots = slots;
    for (int64_t i = 0; i < x->words; i++)
        slot[gx__train_word_slot(x, x->text + x->word[i].at, x->word[i].n)] = (int32_t)(i + 1);
    return GX_OK;
}

static GxStatus gx__train_count_word(gx__Training *x, const uint32_t *c, int64_t n)
{
    if (2 * x->words >= x->word_slots) GX_TRY(gx__train_more_word_slots(x));
    const int64_t s = gx__train_word_slot(x, c, n);
    if (!x->word_slot[s]) {
        if (x->words == INT32_MAX || n > INT32_MAX)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "more than %d words to train on", INT32_MAX);
        GX_TRY(gx__train_grow(&x->word, x->words + 1, &x->word_room, sizeof *x->word, x->err));
        GX_TRY(gx__train_grow(&x->text, x->text_n + n, &x->text_room, sizeof *x->text, x->err));
        gx__TrainWord *w = &x->word[x->words++];
        w->at = x->text_n, w->n = (int32_t)n, w->count = 0;
        memcpy(x->text + x->text_n, c, (size_t)n * sizeof *c);
        x->text_n += n;
        x->word_slot[s] = (int32_t)x->words;
    }
    x->word[x->word_slot[s] - 1].count++;
    return GX_OK;
}

static GxStatus gx__train_read_text(gx__Training *x, const char *text, int64_t bytes, GxCharacters *c,
                                    GxCharacters *spare)
{
    int64_t n;
    GX_TRY(gx_characters_read(c, text, bytes, x->err));
    GX_TRY(gx_bert_normalize(&x->how->normalizer, c, spare, x->err));
    for (int64_t at = 0; (n = gx_bert_word(c->c, c->n, &at)) > 0; at += n)
        if (n <= x->how->max_word) GX_TRY(gx__train_count_word(x, c->c + at, n));
        else if (x->how->too_long) ++*x->how->too_long;
    return GX_OK;
}

static int gx__train_is_end(char c) { return c == '\n' || c == ' ' || c == '\t' || c == '\r'; }

// In chunks that end with white space, which no rule looks across.
static GxStatus gx__train_read_file(gx__Training *x, int fd, int64_t size, const char *path, GxCharacters *c,
                                    GxCharacters *spare)
{
    GxTextPlace place = {path, 1, 0};
    char *chunk = NULL;
    int64_t room = 0, kept = 0;
    GxStatus status = GX_OK;
    for (int64_t at = 0; status == GX_OK && at < size;) {
        const int64_t n = gx_min(GX__WORDPIECE_TRAIN_CHUNK, size - at);
        status = gx__train_grow(&chunk, kept + n + 1, &room, 1, x->err);
        if (status == GX_OK) status = gx_file_read_at(fd, path, chunk + kept, n, at, x->err);
        if (status != GX_OK) break;
        int64_t have = kept + n, end = have;
        chunk[have] = 0;
        at += n;
        while (at < size && end > kept && !gx__train_is_end(chunk[end - 1])) end--;
        if (at < size && end == kept) end = 0; // what was kept has no white space, either
        if (end > 0) status = gx_text_check(&place, chunk, end, x->err);
        if (end > 0 && status == GX_OK) status = gx__train_read_text(x, chunk, end, c, spare);
        memmove(chunk, chunk + end, (size_t)(have - end));
        kept = have - end;
    }
    free(chunk);
    return status;
}

static GxStatus gx__train_read(gx__Training *x, const char *path)
{
    GxCharacters c = GX_ZERO, spare = GX_ZERO;
    int fd;
    int64_t size;
    GX_TRY(gx_file_open(path, &fd, &size, x->err));
    const GxStatus status = gx__train_read_file(x, fd, size, path, &c, &spare);
    close(fd);
    gx_characters_close(&c);
    gx_characters_close(&spare);
    return status;
}

// ---- the alphabet --------------------------------------------------------------------------------------------------

typedef struct {
    uint32_t c;
    int64_t count;
    int32_t id, inside; // as a word's first piece, and behind ##; -1: not yet
} gx__TrainLetter;

static int gx__train_by_count(const void *a, const void *b)
{
    const gx__TrainLetter *x = (const gx__TrainLetter *)a, *y = (const gx__TrainLetter *)b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->c < y->c ? -1 : x->c > y->c;
}
static int gx__train_by_code(const void *a, const void *b)
{
    const gx__TrainLetter *x = (const gx__TrainLetter *)a, *y = (const gx__TrainLetter *)b;
    return x->c < y->c ? -1 : x->c > y->c;
}

static GxStatus gx__train_add_letter(gx__Training *x, uint32_t c, int is_inside, int32_t *id)
{
    char piece[8] = "##";
    const int bytes = 2 * is_inside + gx_unicode_encode(c, piece + 2 * is_inside);
    *id = x->v.p.size;
    return gx_wordpiece_add(&x->v, *id, piece, bytes, GX_PIECE_MODEL, x->err);
}

// Words become ids in the place of characters; those of letters that were left out are gone from them.
static GxStatus gx__train_spell(gx__Training *x, gx__TrainLetter *const *letter)
{
    for (int64_t i = 0; i < x->words; i++) {
        gx__TrainWord *w = &x->word[i];
        int32_t kept = 0;
        for (int32_t k = 0; k < w->n; k++) {
            const gx__TrainLetter *l = letter[x->text[w->at + k]];
            if (l) x->text[w->at + kept++] = (uint32_t)(k > 0 ? l->inside : l->id);
        }
        w->n = kept;
    }
    return GX_OK;
}

static GxStatus gx__train_letters(gx__Training *x, gx__TrainLetter *found, int64_t n, gx__TrainLetter **letter)
{
    qsort(found, (size_t)n, sizeof *found, gx__train_by_count);
    if (x->how->limit_alphabet > 0) n = gx_min(n, x->how->limit_alphabet);
    qsort(found, (size_t)n, sizeof *found, gx__train_by_code);
    x->letters = n;
    for (int64_t i = 0; i < n; i++) GX_TRY(gx__train_add_letter(x, found[i].c, 0, &found[i].id));
    for (int64_t i = 0; i < n; i++) letter[found[i].c] = &found[i];
    for (int64_t i = 0; i < x->words; i++) // which of them stand inside of words
        for (int32_t k = 1; k < x->word[i].n; k++) {
            gx__TrainLetter *l = letter[x->text[x->word[i].at + k]];
            if (l) l->inside = -2;
        }
    for (int64_t i = 0; i < n; i++)
        if (found[i].inside == -2) GX_TRY(gx__train_add_letter(x, found[i].c, 1, &found[i].inside));
    return gx__train_spell(x, letter);
}

static GxStatus gx__train_alphabet(gx__Training *x)
{
    enum { POINTS = 0x110000 };
    int64_t n = 0, *count = (int64_t *)calloc(POINTS, sizeof *count);
    gx__TrainLetter **letter = (gx__TrainLetter **)calloc(POINTS, sizeof *letter), *found = NULL;
    for (int64_t i = 0; count && i < x->words; i++)
        for (int32_t k = 0; k < x->word[i].n; k++) count[x->text[x->word[i].at + k]] += x->word[i].count;
    for (int32_t c = 0; count && c < POINTS; c++) n += count[c] > 0;
    found = (gx__TrainLetter *)malloc((size_t)(n + 1) * sizeof *found);
    GxStatus status = GX_OK;
    if (!count || !letter || !found) status = GX_FAIL(x->err, GX_ERR_MEMORY, "no memory to count characters");
    n = 0;
    for (int32_t c = 0; status == GX_OK && c < POINTS; c++) {
        const gx__TrainLetter l = {(uint32_t)c, count[c], -1, -1};
        if (count[c] > 0) found[n++] = l;
    }
    if (status == GX_OK) status = gx__train_letters(x, found, n, letter);
    free(count);
    free(letter);
    free(found);
    return status;
}

// ---- pairs ---------------------------------------------------------------------------------------------------------

static int64_t gx__train_pair_slot(const gx__Training *x, int32_t a, int32_t b)
{
    int64_t s = (int64_t)(gx__train_mix((uint64_t)(uint32_t)a << 32 | (uint32_t)b) & (uint64_t)(x->pair_slots - 1));
    for (; x->pair_slot[s]; s = (s + 1) & (x->pair_slots - 1)) {
        const gx__TrainPair *p = &x->pair[x->pair_slot[s] - 1];
        if (p->a == a && p->b == b) break;
    }
    return s;
}

static GxStatus gx__train_more_pair_slots(gx__Training *x)
{
    const int64_t slots = x->pair_slots ? 2 * x->pair_slots : 1 << 14;
    int32_t *slot = (int32_t *)calloc((size_t)slots, sizeof *slot);
    if (!slot) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for %ld pairs", (long)slots);
    free(x->pair_slot);
    x->pair_slot = slot, x->pair_slots = slots;
    for (int64_t i = 0; i < x->pairs; i++) slot[gx__train_pair_slot(x, x->pair[i].a, x->pair[i].b)] = (int32_t)(i + 1);
    return GX_OK;
}

static GxStatus gx__train_pair_of(gx__Training *x, int32_t a, int32_t b, int64_t *number)
{
    if (2 * x->pairs >= x->pair_slots) GX_TRY(gx__train_more_pair_slots(x));
    const int64_t s = gx__train_pair_slot(x, a, b);
    if (!x->pair_slot[s]) {
        if (x->pairs == INT32_MAX - 1) return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "too many pairs of pieces");
        GX_TRY(gx__train_grow(&x->pair, x->pairs + 1, &x->pair_room, sizeof *x->pair, x->err));
        gx__TrainPair *p = &x->pair[x->pairs++];
        memset(p, 0, sizeof *p);
        p->a = a, p->b = b;
        x->pair_slot[s] = (int32_t)x->pairs;
    }
    *number = x->pair_slot[s] - 1;
    return GX_OK;
}

// `change` times the word's count more of a pair; if they are more, the word is one to merge it in.
static GxStatus gx__train_change(gx__Training *x, int32_t a, int32_t b, int change, int32_t word)
{
    int64_t number = 0, room;
    GX_TRY(gx__train_pair_of(x, a, b, &number));
    gx__TrainPair *p = &x->pair[number];
    p->count += change * x->word[word].count;
    if (change < 0) return GX_OK;
    if (p->n == 0) {
        GX_TRY(gx__train_grow(&x->fresh, x->fresh_n + 1, &x->fresh_room, sizeof *x->fresh, x->err));
        x->fresh[x->fresh_n++] = (int32_t)number;
    }
    if (p->n > 0 && p->word[p->n - 1] == word) return GX_OK; // words come one by one
    room = p->room;
    GX_TRY(gx__train_grow(&p->word, (int64_t)p->n + 1, &room, sizeof *p->word, x->err));
    p->room = (int32_t)gx_min(room, INT32_MAX);
    p->word[p->n++] = word;
    return GX_OK;
}

// ---- the queue -----------------------------------------------------------------------------------------------------

static int gx__train_is_before(const gx__TrainMerge *x, const gx__TrainMerge *y)
{
    if (x->count != y->count) return x->count > y->count;
    return x->a != y->a ? x->a < y->a : x->b < y->b;
}

static GxStatus gx__train_push(gx__Training *x, gx__TrainMerge m)
{
    int64_t i = x->queue_n, parent;
    GX_TRY(gx__train_grow(&x->queue, i + 1, &x->queue_room, sizeof *x->queue, x->err));
    for (x->queue_n++; i > 0 && gx__train_is_before(&m, &x->queue[parent = (i - 1) / 2]); i = parent)
        x->queue[i] = x->queue[parent];
    x->queue[i] = m;
    return GX_OK;
}

static gx__TrainMerge gx__train_pop(gx__Training *x)
{
    const gx__TrainMerge top = x->queue[0], last = x->queue[--x->queue_n];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < x->queue_n; i = child) {
        if (child + 1 < x->queue_n && gx__train_is_before(&x->queue[child + 1], &x->queue[child])) child++;
        if (!gx__train_is_before(&x->queue[child], &last)) break;
        x->queue[i] = x->queue[child];
    }
    x->queue[i] = last;
    return top;
}

// Pairs with new words go into the queue, as they are counted now.
static GxStatus gx__train_queue(gx__Training *x)
{
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < x->fresh_n; i++) {
        gx__TrainPair *p = &x->pair[x->fresh[i]];
        const gx__TrainMerge m = {p->count, p->a, p->b, p->word, p->n};
        p->word = NULL, p->n = p->room = 0;
        if (m.count > 0 && status == GX_OK) status = gx__train_push(x, m);
        if (m.count <= 0 || status != GX_OK) free(m.word);
    }
    x->fresh_n = 0;
    return status;
}

// ---- merging -------------------------------------------------------------------------------------------------------

// Each a, b in the word becomes `both`; the pairs with their neighbours change.
static GxStatus gx__train_merge_in(gx__Training *x, int32_t word, int32_t a, int32_t b, int32_t both)
{
    gx__TrainWord *w = &x->word[word];
    int32_t *id = (int32_t *)(x->text + w->at);
    for (int32_t i = 0; i + 1 < w->n; i++) {
        if (id[i] != a || id[i + 1] != b) continue;
        if (i > 0) {
            GX_TRY(gx__train_change(x, id[i - 1], a, -1, word));
            GX_TRY(gx__train_change(x, id[i - 1], both, 1, word));
        }
        id[i] = both;
        w->n--;
        memmove(id + i + 1, id + i + 2, (size_t)(w->n - i - 1) * sizeof *id);
        if (i + 1 < w->n) {
            GX_TRY(gx__train_change(x, b, id[i + 1], -1, word));
            GX_TRY(gx__train_change(x, both, id[i + 1], 1, word));
        }
    }
    return GX_OK;
}

// The piece of both, which may be there already: made of other two.
static GxStatus gx__train_join(gx__Training *x, int32_t a, int32_t b, int32_t *both)
{
    const char *first = x->v.p.text + x->v.p.at[a], *second = x->v.p.text + x->v.p.at[b];
    if (!strncmp(second, "##", 2)) second += 2;
    const size_t n = strlen(first), m = strlen(second);
    char *piece = (char *)malloc(n + m + 1);
    if (!piece) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a piece");
    memcpy(piece, first, n);
    memcpy(piece + n, second, m + 1);
    GxStatus status = GX_OK;
    *both = gx_pieces_find(&x->v.p, piece, (int64_t)(n + m));
    if (*both < 0) {
        *both = x->v.p.size;
        status = gx_wordpiece_add(&x->v, *both, piece, (int64_t)(n + m), GX_PIECE_MODEL, x->err);
        if (status == GX_OK) status = gx_pieces_enter(&x->v.p, *both, x->err);
    }
    free(piece);
    return status;
}

static GxStatus gx__train_merge(gx__Training *x)
{
    while (x->v.p.size < x->how->vocab_size && x->queue_n > 0) {
        gx__TrainMerge top = gx__train_pop(x);
        const int64_t now = x->pair[x->pair_slot[gx__train_pair_slot(x, top.a, top.b)] - 1].count;
        int32_t both = 0;
        GxStatus status = GX_OK;
        if (top.count != now) { // other merges have taken some of them away
            top.count = now;
            status = gx__train_push(x, top);
            if (status == GX_OK) continue;
        }
        const int is_rare = top.count < 1 || top.count < x->how->min_frequency;
        if (status == GX_OK && !is_rare) status = gx__train_join(x, top.a, top.b, &both);
        for (int32_t i = 0; i < top.n && !is_rare && status == GX_OK; i++)
            status = gx__train_merge_in(x, top.word[i], top.a, top.b, both);
        free(top.word);
        if (status != GX_OK || is_rare) return status;
        GX_TRY(gx__train_queue(x));
    }
    return GX_OK;
}

// ---- all of it -----------------------------------------------------------------------------------------------------

static GxStatus gx__train_all(gx__Training *x, const char *const *files, int n)
{
    GX_TRY(gx__wordpiece_need_nfd(&x->how->normalizer, x->err));
    for (int i = 0; i < GX_TOKEN_ROLES; i++)
        GX_TRY(gx_wordpiece_add(&x->v, i, gx__wordpiece_roles[i].name, (int64_t)strlen(gx__wordpiece_roles[i].name),
                                GX_PIECE_MODEL, x->err));
    for (int i = 0; i < n; i++) GX_TRY(gx__train_read(x, files[i]));
    if (x->words == 0) return GX_FAIL(x->err, GX_ERR_FORMAT, "there is no word in %s: nothing to train on", files[0]);
    GX_TRY(gx__train_alphabet(x));
    if (x->v.p.size > x->how->vocab_size)
        return GX_FAIL(x->err, GX_ERR_ARGUMENT,
                       "vocab_size is %ld; special tokens and the characters of the texts alone are %ld pieces, so it "
                       "must be at least that, or limit_alphabet smaller than %ld",
                       (long)x->how->vocab_size, (long)x->v.p.size, (long)x->letters);
    GX_TRY(gx_pieces_index(&x->v.p, x->err));
    for (int64_t i = 0; i < x->words; i++)
        for (int32_t k = 0; k + 1 < x->word[i].n; k++) {
            const int32_t *id = (const int32_t *)(x->text + x->word[i].at);
            GX_TRY(gx__train_change(x, id[k], id[k + 1], 1, (int32_t)i));
        }
    GX_TRY(gx__train_queue(x));
    return gx__train_merge(x);
}

GxStatus gx_wordpiece_train(GxTokenizer *t, const char *const *files, int n, const GxWordPieceTraining *how,
                            GxError *err)
{
    gx__Training x = GX_ZERO;
    x.how = how, x.err = err;
    memset(t, 0, sizeof *t);
    x.v.normalizer = how->normalizer;
    x.v.max_word = how->max_word;
    x.v.has_decoder = x.v.cleanup = 1;
    GxStatus status = gx__train_all(&x, files, n);
    if (status == GX_OK) status = gx_wordpiece_open(t, &x.v, files[0], err);
    gx_wordpiece_close(&x.v);
    for (int64_t i = 0; i < x.pairs; i++) free(x.pair[i].word);
    for (int64_t i = 0; i < x.queue_n; i++) free(x.queue[i].word);
    free(x.text), free(x.word), free(x.word_slot), free(x.pair), free(x.pair_slot), free(x.fresh), free(x.queue);
    return status;
}
#endif
