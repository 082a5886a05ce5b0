// wordpiece_train.h: trains a WordPiece vocabulary on text: repeatedly, the most frequent pair of neighbouring pieces
// becomes one piece (byte-pair encoding: Sennrich et al. 2016), as in Hugging Face's WordPieceTrainer.
//
//     static const char *const files[] = {"a.txt", "b.jsonl"};   // or folders: train_texts.h
//     GxWordPieceTraining how = gx_wordpiece_training(30000);
//     GxTokenizer t;
//     GX_TRY(gx_wordpiece_train(&t, files, 2, &how, err));
//     GX_TRY(gx_tokenizer_write(&t, "folder", err));
//
// The vocabulary is [PAD], [UNK], [CLS], [SEP], [MASK]; the characters of the text by their code points; those that
// occur inside words, with ## before them; then the merged pieces in their order. Words are those of the normaliser,
// with their counts. Of equally frequent pairs the one with the smaller ids comes first.
//
// The result depends on the texts only. That of `tokenizers` 0.23 does not: it numbers the ## characters in an order
// that differs from run to run, which affects the choice between equally frequent pairs; if limit_alphabet leaves out
// some of several equally frequent characters, this choice differs, too (here the smaller code points are kept).
// Everything else is the same, so `tokenizers` could have made the same vocabulary.
//
// Words of more than max_word characters, which the tokenizer would not split into pieces, are left out (`tokenizers`
// counts them, in time quadratic in their length). A vocab_size that the characters alone exceed is an error
// (`tokenizers` writes them anyway). Text that is not UTF-8 is an error that names file and line.
//
// Memory: the distinct words and their pairs (merge_train.h). 10 MB of English take a few seconds.
#ifndef GX_WORDPIECE_TRAIN_H
#define GX_WORDPIECE_TRAIN_H
#include "train_texts.h"
#include "../text/wordpiece_files.h"
GX_BEGIN

typedef struct {
    int64_t vocab_size;     // where merging ends; at least the number of special tokens and characters
    int64_t min_frequency;  // the least frequency of a merged pair
    int64_t limit_alphabet; // how many characters are kept, the most frequent ones; 0: all
    int64_t max_word;       // characters; longer words become [UNK], and are not trained on
    GxBertNormalizer normalizer;
    int64_t *too_long;   // the number of words that were left out for that; may be NULL
    const GxLogger *log; // for warnings about the files; NULL: silence
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

typedef struct {
    const GxWordPieceTraining *how;
    GxMergeTraining m; // its symbols are characters at first
    GxCharacters c, spare;
    int64_t letters; // characters that are kept
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

// ---- words ---------------------------------------------------------------------------------------------------------

// Counts the words of a text that ends with white space, which no rule looks across.
static GxStatus gx__train_take(void *user, const char *text, int64_t bytes, GxError *err)
{
    gx__Training *x = (gx__Training *)user;
    GxCharacters *c = &x->c;
    int64_t n;
    GX_TRY(gx_characters_read(c, text, bytes, err));
    GX_TRY(gx_bert_normalize(&x->how->normalizer, c, &x->spare, err));
    for (int64_t at = 0; (n = gx_bert_word(c->c, c->n, &at)) > 0; at += n)
        if (n <= x->how->max_word) GX_TRY(gx_train_count_word(&x->m, c->c + at, n));
        else if (x->how->too_long) ++*x->how->too_long;
    return GX_OK;
}

// ---- the alphabet --------------------------------------------------------------------------------------------------

typedef struct {
    uint32_t c;
    int64_t count;
    int32_t id, inside; // as the first piece of a word, and after ##; -1: not yet
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

// Replaces the characters of words by ids. Characters that are not in the alphabet are removed from them.
static GxStatus gx__train_spell(gx__Training *x, gx__TrainLetter *const *letter)
{
    for (int64_t i = 0; i < x->m.words; i++) {
        GxTrainWord *w = &x->m.word[i];
        int32_t kept = 0;
        for (int32_t k = 0; k < w->n; k++) {
            const gx__TrainLetter *l = letter[x->m.symbol[w->at + k]];
            if (l) x->m.symbol[w->at + kept++] = (uint32_t)(k > 0 ? l->inside : l->id);
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
    for (int64_t i = 0; i < x->m.words; i++) // marks characters that occur inside words
        for (int32_t k = 1; k < x->m.word[i].n; k++) {
            gx__TrainLetter *l = letter[x->m.symbol[x->m.word[i].at + k]];
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
    for (int64_t i = 0; count && i < x->m.words; i++)
        for (int32_t k = 0; k < x->m.word[i].n; k++) count[x->m.symbol[x->m.word[i].at + k]] += x->m.word[i].count;
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

// ---- merging -------------------------------------------------------------------------------------------------------

// The piece of both, which may exist already, made from other two.
static GxStatus gx__train_join(void *user, int32_t a, int32_t b, int32_t *both)
{
    gx__Training *x = (gx__Training *)user;
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

// ---- all of it -----------------------------------------------------------------------------------------------------

static GxStatus gx__train_all(gx__Training *x, const char *const *files, int n)
{
    const GxTrainText text = {" \n\t\r", gx__train_take, x};
    GX_TRY(gx_bert_check_unicode(&x->how->normalizer, x->err));
    for (int i = 0; i < GX_TOKEN_ROLES; i++)
        GX_TRY(gx_wordpiece_add(&x->v, i, gx_wordpiece_roles[i].name, (int64_t)strlen(gx_wordpiece_roles[i].name),
                                GX_PIECE_MODEL, x->err));
    for (int i = 0; i < n; i++) GX_TRY(gx_train_texts_read(&text, files[i], x->how->log, x->err));
    if (x->m.words == 0)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s has no words, so there is nothing to train on", files[0]);
    GX_TRY(gx__train_alphabet(x));
    if (x->v.p.size > x->how->vocab_size)
        return GX_FAIL(x->err, GX_ERR_ARGUMENT,
                       "vocab_size is %ld, but the special tokens and the characters of the texts are already %ld "
                       "pieces; make it at least that, or limit_alphabet smaller than %ld",
                       (long)x->how->vocab_size, (long)x->v.p.size, (long)x->letters);
    GX_TRY(gx_pieces_index(&x->v.p, x->err));
    return gx_train_merge(&x->m);
}

GxStatus gx_wordpiece_train(GxTokenizer *t, const char *const *files, int n, const GxWordPieceTraining *how,
                            GxError *err)
{
    gx__Training x = GX_ZERO;
    x.how = how, x.err = x.m.err = err;
    x.m.pieces = &x.v.p, x.m.vocab_size = how->vocab_size, x.m.min_frequency = how->min_frequency;
    x.m.join = gx__train_join, x.m.user = &x;
    memset(t, 0, sizeof *t);
    x.v.normalizer = how->normalizer;
    x.v.max_word = how->max_word;
    x.v.has_decoder = x.v.cleanup = 1;
    GxStatus status = gx__train_all(&x, files, n);
    if (status == GX_OK) status = gx_wordpiece_open(t, &x.v, files[0], err);
    gx_wordpiece_close(&x.v);
    gx_characters_close(&x.c), gx_characters_close(&x.spare);
    gx_train_close(&x.m);
    return status;
}
#endif
