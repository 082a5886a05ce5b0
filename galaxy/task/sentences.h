// task/sentences.h: a plain text as tokenized sentences, one per line, with empty lines between documents, the last of
// which are held out for validation; and the texts and pairs of texts that are made from the sentences.
//
//     GxSentences s;
//     GX_TRY(gx_sentences_open(&s, &data, &tokenizer, T - 2, threads, log, err));   // log: for progress
//     GX_TRY(gx_sentences_divide(&s, path, 0.05, err));
//     gx_sentences_blocks(&s, 0, s.train_documents, T - 2, &list, err);             // sentences in a row
//     gx_sentences_pairs(&s, 0, s.train_documents, &how, &list, err);               // A and B, which follows A or not
//     gx_sentences_close(&s);
//
// Text that is not UTF-8, or contains a byte of value 0, is an error that names the line. A byte order mark at the
// beginning is skipped.
//
// The whole text is tokenized once, at the beginning, by several threads, and kept in memory: 4 bytes per token (5 per
// byte of the text while tokenizing). A sentence that is too long for the model is truncated and counted.
//
// Pairs are made as in BERT's original code (create_pretraining_data.py; Devlin et al. 2018, appendix A.2): consecutive
// sentences of a document are taken until there are enough tokens for both texts (for one pair in ten, a random number
// of tokens). A is the first 1 to n-1 of these n sentences. B is the rest; or, in half of the cases and if n = 1,
// sentences from a random place in another document, and the next pair begins with the rest. The pairs of an epoch are
// a function of (seed, epoch).
#ifndef GX_SENTENCES_H
#define GX_SENTENCES_H
#include "../base/log.h"
#include "../base/random.h"
#include "../data/dataset.h"
#include "../text/tokenizer.h"
GX_BEGIN

typedef struct {
    int32_t *token;    // [tokens]
    int64_t *begin;    // [sentences + 1] where in `token` each begins
    int64_t *document; // [documents + 1] the sentence that each begins with
    int64_t tokens, sentences, documents;
    int64_t train_documents; // the rest is held out
    int64_t cut;             // number of truncated sentences
    int64_t first_cut;       // the line of the first of them
} GxSentences;

// Sentences of at most `most` tokens. log NULL: none.
GxStatus gx_sentences_open(GxSentences *s, const GxDataset *d, const GxTokenizer *t, int64_t most, int threads,
                           const GxLogger *log, GxError *err);
void gx_sentences_close(GxSentences *s); // accepts a struct of zeros
// Holds out whole documents at the end, with at least this fraction of the tokens; 0: none.
GxStatus gx_sentences_divide(GxSentences *s, const char *path, double validation_fraction, GxError *err);

// Tokens of sentences [first, first + n).
static inline int64_t gx_sentences_length(const GxSentences *s, int64_t first, int64_t n)
{
    return s->begin[first + n] - s->begin[first];
}

// ---- texts ---------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t a, b;     // the first sentence of A, of B
    int32_t a_n, b_n; // their numbers of sentences; b_n 0: there is no B
    int32_t label;    // 0: B follows A
} GxSentenceText;
typedef struct { // grows as needed; gx_sentence_list_close
    GxSentenceText *text;
    int64_t n, capacity;
} GxSentenceList;
void gx_sentence_list_close(GxSentenceList *list);

// Texts of documents [first, last): each has as many consecutive sentences of a document as fit into `most` tokens.
GxStatus gx_sentences_blocks(const GxSentences *s, int64_t first, int64_t last, int64_t most, GxSentenceList *list,
                             GxError *err);

typedef struct {
    int64_t most;             // tokens of a pair
    double short_probability; // probability that a pair is made shorter
    uint64_t seed, epoch;     // of the random numbers
} GxPairing;
// Replaces the list by pairs of documents [first, last), at least two. A pair may have more than `most` tokens:
// gx_sentences_cut_pair then truncates it.
GxStatus gx_sentences_pairs(const GxSentences *s, int64_t first, int64_t last, const GxPairing *how,
                            GxSentenceList *list, GxError *err);
// Truncates pair number i to tokens [*a, *a + *a_n) and [*b, *b + *b_n): the longer text (B if both are equal) loses
// its first or its last token, at random, until `most` tokens are left.
void gx_sentences_cut_pair(const GxPairing *how, int64_t i, int64_t *a, int64_t *a_n, int64_t *b, int64_t *b_n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SENTENCES_IMPLEMENTED)
#define GX_SENTENCES_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

enum { GX__SENTENCES_TURN = 4096, GX__SENTENCES_PATIENCE = 5 }; // lines between two looks at the clock; seconds

// ---- lines ---------------------------------------------------------------------------------------------------------

typedef struct { // while a text is opened
    const GxDataset *d;
    const GxTokenizer *t;
    char *text;
    int64_t *line;  // [lines + 1] where each begins
    int32_t *ids;   // [gx_tokenizer_most(bytes)]; a line's begin after the most that the lines before it can have
    int64_t *count; // [lines] tokens
    int64_t lines, most;
} gx__SentencesFile;

static void gx__sentences_file_close(gx__SentencesFile *f)
{
    free(f->text);
    free(f->line);
    free(f->ids);
    free(f->count);
}

static GxStatus gx__sentences_file_read(gx__SentencesFile *f, GxError *err)
{
    const int64_t bytes = f->d->bytes;
    GxTextPlace place = {f->d->path, 1, 0};
    f->text = (char *)malloc((size_t)bytes + 1);
    f->ids = (int32_t *)malloc((size_t)gx_tokenizer_most(f->t, bytes) * sizeof *f->ids);
    if (!f->text || !f->ids)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the %.1f MB of %s and their tokens (%d bytes per byte)",
                       (double)bytes / 1e6, f->d->path, 1 + 4 * f->t->tokens_for_byte);
    GX_TRY(gx_dataset_read(f->d, 0, bytes, (unsigned char *)f->text, err));
    f->text[bytes] = 0;
    GX_TRY(gx_text_check(&place, f->text, bytes, err));
    for (int64_t i = 0; i < bytes; i++) f->lines += f->text[i] == '\n';
    f->lines += f->text[bytes - 1] != '\n';
    f->line = (int64_t *)malloc((size_t)(f->lines + 1) * sizeof *f->line);
    f->count = (int64_t *)malloc((size_t)f->lines * sizeof *f->count);
    if (!f->line || !f->count) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld lines", (long)f->lines);
    f->line[0] = strncmp(f->text, "\xEF\xBB\xBF", 3) ? 0 : 3; // behind a byte order mark
    for (int64_t i = 0, n = 0; i < bytes; i++)
        if (f->text[i] == '\n') f->line[++n] = i + 1;
    f->line[f->lines] = bytes;
    return GX_OK;
}

static int gx__sentences_is_empty(const gx__SentencesFile *f, int64_t i)
{
    for (int64_t at = f->line[i]; at < f->line[i + 1]; at++)
        if (!strchr(" \t\r\n", f->text[at]) || !f->text[at]) return 0;
    return 1;
}

// Tokenizes lines [first, last), with all threads.
static GxStatus gx__sentences_encode(gx__SentencesFile *f, int64_t first, int64_t last, int threads, GxError *err)
{
    (void)threads; // unused without OpenMP
    GX_OMP(parallel for schedule(dynamic, 64) num_threads(threads > 0 ? threads : 1))
    for (int64_t i = first; i < last; i++) {
        const int64_t at = f->line[i];
        int64_t end = f->line[i + 1];
        if (end > at && f->text[end - 1] == '\n') end--; // a line's end is of no sentence, also where it is a token
        if (end > at && f->text[end - 1] == '\r') end--;
        f->count[i] = 0;
        if (gx_error_code(err) == GX_OK && !gx__sentences_is_empty(f, i))
            gx_tokenizer_encode(f->t, f->text + at, end - at, gx_tokenizer_special(f->t),
                                f->ids + gx_tokenizer_most(f->t, at), &f->count[i], err);
    }
    return gx_error_code(err);
}

static GxStatus gx__sentences_encode_all(gx__SentencesFile *f, int threads, const GxLogger *log, GxError *err)
{
    double said = gx_seconds();
    for (int64_t i = 0; i < f->lines; i += GX__SENTENCES_TURN) {
        GX_TRY(gx__sentences_encode(f, i, gx_min(i + GX__SENTENCES_TURN, f->lines), threads, err));
        if (!log || gx_seconds() - said < GX__SENTENCES_PATIENCE) continue;
        said = gx_seconds();
        gx_log(log, GX_LOG_INFO, "%s: %.0f%% of its lines are tokenized", f->d->path,
               100.0 * (double)gx_min(i + GX__SENTENCES_TURN, f->lines) / (double)f->lines);
    }
    return GX_OK;
}

// ---- sentences and documents ---------------------------------------------------------------------------------------

static GxStatus gx__sentences_take(GxSentences *s, const gx__SentencesFile *f, GxError *err)
{
    for (int64_t i = 0; i < f->lines; i++) {
        s->tokens += gx_min(f->count[i], f->most);
        s->sentences += f->count[i] > 0;
    }
    s->token = (int32_t *)malloc((size_t)gx_max(1, s->tokens) * sizeof *s->token);
    s->begin = (int64_t *)malloc((size_t)(s->sentences + 1) * sizeof *s->begin);
    s->document = (int64_t *)malloc((size_t)(s->sentences + 1) * sizeof *s->document);
    if (s->token && s->begin && s->document) return GX_OK;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens of %ld sentences", (long)s->tokens,
                   (long)s->sentences);
}

static void gx__sentences_collect(GxSentences *s, const gx__SentencesFile *f)
{
    int64_t at = 0, sentence = 0, is_new = 1;
    for (int64_t i = 0; i < f->lines; i++) {
        const int64_t n = gx_min(f->count[i], f->most);
        if (gx__sentences_is_empty(f, i)) is_new = 1;
        if (n == 0) continue; // a line of which the tokenizer drops all characters does not end the document
        if (n < f->count[i] && s->cut++ == 0) s->first_cut = i + 1;
        if (is_new) s->document[s->documents++] = sentence;
        is_new = 0;
        s->begin[sentence++] = at;
        memcpy(s->token + at, f->ids + gx_tokenizer_most(f->t, f->line[i]), (size_t)n * sizeof *s->token);
        at += n;
    }
    s->begin[sentence] = at;
    s->document[s->documents] = sentence;
    s->train_documents = s->documents;
}

GxStatus gx_sentences_open(GxSentences *s, const GxDataset *d, const GxTokenizer *t, int64_t most, int threads,
                           const GxLogger *log, GxError *err)
{
    gx__SentencesFile f = GX_ZERO;
    memset(s, 0, sizeof *s);
    f.d = d, f.t = t, f.most = most;
    GxStatus status = gx__sentences_file_read(&f, err);
    if (status == GX_OK) status = gx__sentences_encode_all(&f, threads, log, err);
    if (status == GX_OK) status = gx__sentences_take(s, &f, err);
    if (status == GX_OK) gx__sentences_collect(s, &f);
    gx__sentences_file_close(&f);
    if (status == GX_OK && s->sentences == 0)
        status =
            GX_FAIL(err, GX_ERR_FORMAT,
                    "%s has no sentence; expected plain text, a sentence per line, with empty lines between documents",
                    d->path);
    if (status != GX_OK) gx_sentences_close(s);
    return status;
}

void gx_sentences_close(GxSentences *s)
{
    free(s->token);
    free(s->begin);
    free(s->document);
    memset(s, 0, sizeof *s);
}

GxStatus gx_sentences_divide(GxSentences *s, const char *path, double validation_fraction, GxError *err)
{
    const double wanted = validation_fraction * (double)s->tokens;
    s->train_documents = s->documents;
    if (validation_fraction <= 0) return GX_OK;
    do s->train_documents--;
    while (s->train_documents > 0 && (double)(s->tokens - s->begin[s->document[s->train_documents]]) < wanted);
    if (s->train_documents > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has %ld document%s, so nothing is left to train on with a validation_fraction of %g; put empty "
                   "lines between documents, or say --validation_fraction 0",
                   path, (long)s->documents, gx_text_s(s->documents), validation_fraction);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

void gx_sentence_list_close(GxSentenceList *list)
{
    free(list->text);
    memset(list, 0, sizeof *list);
}

static GxStatus gx__sentences_add(GxSentenceList *list, const GxSentenceText *text, GxError *err)
{
    if (list->n == list->capacity) {
        const int64_t capacity = gx_max(1024, 2 * list->capacity);
        GxSentenceText *grown = (GxSentenceText *)realloc(list->text, (size_t)capacity * sizeof *grown);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %ld texts", (long)capacity);
        list->text = grown, list->capacity = capacity;
    }
    list->text[list->n++] = *text;
    return GX_OK;
}

GxStatus gx_sentences_blocks(const GxSentences *s, int64_t first, int64_t last, int64_t most, GxSentenceList *list,
                             GxError *err)
{
    list->n = 0;
    for (int64_t d = first; d < last; d++)
        for (int64_t i = s->document[d], n; i < s->document[d + 1]; i += n) {
            for (n = 1; i + n < s->document[d + 1] && gx_sentences_length(s, i, n + 1) <= most;) n++;
            const GxSentenceText block = {i, 0, (int32_t)n, 0, 0};
            GX_TRY(gx__sentences_add(list, &block, err));
        }
    return GX_OK;
}

// An integer from 0 to n - 1.
static int64_t gx__sentences_below(uint32_t bits, int64_t n) { return (int64_t)((uint64_t)bits * (uint64_t)n >> 32); }

typedef struct {
    const GxSentences *s;
    int64_t first, last; // documents
    const GxPairing *how;
} gx__SentencesPairs;

// Takes B from another document than d: its sentences from a random one on, until there are `wanted` tokens.
static void gx__sentences_stranger(const gx__SentencesPairs *p, int64_t d, GxRandom4 r, int64_t wanted,
                                   GxSentenceText *pair)
{
    const GxSentences *s = p->s;
    const int64_t other = p->first + gx__sentences_below(r.w[0], p->last - p->first - 1), from = other + (other >= d),
                  all = s->document[from + 1] - s->document[from], start = gx__sentences_below(r.w[1], all);
    pair->b = s->document[from] + start;
    pair->b_n = 1;
    while (start + pair->b_n < all && gx_sentences_length(s, pair->b, pair->b_n) < wanted) pair->b_n++;
    pair->label = 1;
}

// Pair number i, which begins with sentence `at` of document d. Returns how many sentences of the document are used up.
static int64_t gx__sentences_pair(const gx__SentencesPairs *p, int64_t i, int64_t d, int64_t at, GxSentenceText *pair)
{
    const GxSentences *s = p->s;
    const GxPairing *how = p->how;
    const uint32_t site = gx_random_site(GX_SITE_PAIRS, 0), epoch = (uint32_t)how->epoch;
    const GxRandom4 r = gx_philox(how->seed, 2 * (uint64_t)i, epoch, site);
    const int64_t end = s->document[d + 1];
    const int is_short = (double)r.w[0] * 0x1p-32 < how->short_probability;
    const int64_t wanted = is_short ? 2 + gx__sentences_below(r.w[1], how->most - 1) : how->most;
    int32_t n = 1;
    while (at + n < end && gx_sentences_length(s, at, n) < wanted) n++;
    pair->a = at;
    pair->a_n = n == 1 ? 1 : 1 + (int32_t)gx__sentences_below(r.w[2], n - 1);
    pair->b = at + pair->a_n, pair->b_n = n - pair->a_n, pair->label = 0;
    if (n > 1 && (r.w[3] & 1)) return n;
    gx__sentences_stranger(p, d, gx_philox(how->seed, 2 * (uint64_t)i + 1, epoch, site),
                           wanted - gx_sentences_length(s, at, pair->a_n), pair);
    return pair->a_n;
}

GxStatus gx_sentences_pairs(const GxSentences *s, int64_t first, int64_t last, const GxPairing *how,
                            GxSentenceList *list, GxError *err)
{
    const gx__SentencesPairs p = {s, first, last, how};
    list->n = 0;
    for (int64_t d = first; d < last; d++)
        for (int64_t at = s->document[d]; at < s->document[d + 1];) {
            GxSentenceText pair;
            at += gx__sentences_pair(&p, list->n, d, at, &pair);
            GX_TRY(gx__sentences_add(list, &pair, err));
        }
    return GX_OK;
}

void gx_sentences_cut_pair(const GxPairing *how, int64_t i, int64_t *a, int64_t *a_n, int64_t *b, int64_t *b_n)
{
    for (uint64_t k = 0; *a_n + *b_n > how->most; k++) {
        const uint64_t index = (uint64_t)i << 26 | (k & ((1 << 26) - 1)); // more than a pair has tokens
        const int64_t at_front =
            gx_random_bits(how->seed, index, (uint32_t)how->epoch, gx_random_site(GX_SITE_PAIRS, 1)) & 1;
        if (*a_n > *b_n) *a += at_front, --*a_n;
        else *b += at_front, --*b_n;
    }
}
#endif
