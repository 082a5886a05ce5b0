// dataset.h: makes training samples of T tokens and their labels, the next tokens, from a text file; its end is held
// out for validation.
//
// Tokens are bytes, those of a file of tokens (token_file.h), or a tokenizer's, which are in memory (dataset_tokens.h).
// The file stays open and is read where a sample needs it (usually from the system's cache), so it may be larger than
// memory. It must not change while it is in use: if it is truncated, reading past its end is an error;
// gx_dataset_changed detects other changes.
//
// The tokens of a sample are a function of (seed, number of the sample) only: no state is kept, so every topology and
// every resumed run gets the same samples. Sample `index` belongs to epoch index / windows. An epoch cuts the text into
// windows of T + 1 tokens that overlap by one, and visits each exactly once, in an order of its own (a Feistel network
// on Philox with cycle walking: Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). In later epochs the
// windows are shifted by fewer than T tokens.
//
// A file of tokens may contain documents, one after another, and a sample several of them, or parts:
// gx_dataset_documents tells which token belongs to which, and ignores the label of a document's last token. Documents
// at the end are held out.
//
//     GxDataset d;
//     GX_TRY(gx_dataset_open(&d, "book.txt", 0.1, 256, err));
//     for (b…) status = gx_dataset_sample(&d, seed, sample + b, 256, tokens + b, labels + b, B, err);    // [T,B]
//     for (w < gx_tokens_eval_samples(&d.held_out, 256)) status = gx_dataset_eval_sample(&d, w, 256, …);
//     gx_dataset_close(&d);
#ifndef GX_DATASET_H
#define GX_DATASET_H
#include "../base/log.h"
#include "../base/random.h"
#include "../io/file_kind.h"
#include "packing.h"
#include "token_file.h"
#include <time.h>
GX_BEGIN

typedef struct { // a part of the text: in tokens, or in bytes of the file
    int64_t begin, n;
} GxTokens;
typedef struct {
    GxTokens train, held_out; // held_out: the end of the file, from the beginning of a line; n == 0 without validation
    GxTokens train_text, held_out_text; // the same in bytes; equal if tokens are bytes
    int32_t *ids;                       // [train.n + held_out.n], in memory; NULL: read from the file
    GxTokenFile file; // of a file of tokens, or of several documents in memory; tokens 0: everything is one text
    int is_open, fd;  // fd -1: everything is in memory
    double validation_fraction;
    int64_t bytes, mtime_ns; // of the file when it was opened; ns since 1970
    char path[GX_PATH];
    // Conversations (dataset_chat.h): whole documents are packed into samples.
    GxPacking packed, packed_held_out; // of documents
    unsigned char *is_learned;         // [train.n + held_out.n], in memory; NULL: the file has a mask
    GxDatasetChat chat;
} GxDataset;

// validation_fraction in [0, 1): the fraction of the file that is held out, or a little more, from the beginning of a
// line on. Each part must have T + 1 bytes.
GxStatus gx_dataset_open(GxDataset *d, const char *path, double validation_fraction, int64_t T, GxError *err);
GxStatus gx_dataset_check(const GxDataset *d, int64_t T, GxError *err); // each part must have T + 1 tokens
void gx_dataset_close(GxDataset *d);                                    // also of one that is all zero
static inline int64_t gx_nanoseconds(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_nsec; }
int gx_dataset_changed(const GxDataset *d); // 1: the file's size or time has changed since it was opened
// Reads bytes [at, at + n) of the file.
GxStatus gx_dataset_read(const GxDataset *d, int64_t at, int64_t n, unsigned char *out, GxError *err);

// Training: windows per epoch = max(1, (n - T) / T), so that every shift below T leaves room for the last label. n >= T
// + 1, index >= 0. A sample's T tokens and T labels go to out_...[0], [stride], [2 * stride], ...
int64_t gx_tokens_epoch_samples(const GxTokens *tokens, int64_t T);
GxStatus gx_dataset_sample(const GxDataset *d, uint64_t seed, int64_t index, int64_t T, int32_t *out_tokens,
                           int32_t *out_labels, int64_t stride, GxError *err);
// The number, in this part, of the sample's first token.
int64_t gx_dataset_sample_start(const GxTokens *tokens, uint64_t seed, int64_t index, int64_t T);

// Validation: the (n - 1) / T windows of the held-out part, in order.
int64_t gx_tokens_eval_samples(const GxTokens *tokens, int64_t T);
GxStatus gx_dataset_eval_sample(const GxDataset *d, int64_t window, int64_t T, int32_t *out_tokens, int32_t *out_labels,
                                int64_t stride, GxError *err);

// For tokens [at, at + T) of the whole, where `at` is train.begin + gx_dataset_sample_start or held_out.begin + window
// * T, and gx_dataset_sample has written `tokens` and `labels`: sets documents[(t * stride)][2] to the begin and end,
// counted from `at`, of the part of t's document that is in the sample, and labels[t * stride] to `ignored` if the next
// token is in another document. A text is one document.
void gx_dataset_documents(const GxDataset *d, int64_t at, int64_t T, const int32_t *tokens, int32_t *documents,
                          int32_t *labels, int32_t ignored, int64_t stride);
// Sets those labels of the same tokens to `ignored` that the file's mask leaves out; none without a mask.
GxStatus gx_dataset_mask(const GxDataset *d, int64_t at, int64_t T, int32_t *labels, int32_t ignored, int64_t stride,
                         GxError *err);
// For a file with a mask, which is read: an error if nothing in the training part is learned; warnings if some samples
// have nothing that is learned, or the held-out part has nothing. log NULL: silence.
GxStatus gx_dataset_check_learned(const GxDataset *d, int64_t T, const GxLogger *log, GxError *err);
// Holds out documents at the end, for a dataset whose `file` has documents. The held-out part begins with a document if
// that makes it between half and one and a half times the requested size; otherwise within a document, whose bytes are
// then divided in proportion to its tokens.
void gx_dataset_divide_documents(GxDataset *d);
// The same for a file of llm.c's: from the last document that begins before the requested part, at a distance of at
// most its length; otherwise from within a document.
GxStatus gx_dataset_divide_bin(GxDataset *d, GxError *err);

// The position of element i in a pseudo-random order of [0, n). Orders repeat after 2^32 epochs.
int64_t gx_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

// The cross-entropy of the held-out text, in bits per byte, under a model with one byte of context: P(b | a) = (count
// of ab in train + 1) / (count of a followed by anything + 256). A trained model must be better to have learned more
// than pairs. held_out_text must have at least 2 bytes.
GxStatus gx_dataset_bigram_bits(const GxDataset *d, double *bits, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DATASET_IMPLEMENTED)
#define GX_DATASET_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GX__DATASET_CHUNK = 1 << 14 }; // bytes that are read at once, on the stack

int gx_dataset_changed(const GxDataset *d)
{
    struct stat st;
    return d->fd >= 0 &&
           (fstat(d->fd, &st) != 0 || (int64_t)st.st_size != d->bytes || gx_nanoseconds(st.st_mtim) != d->mtime_ns);
}

GxStatus gx_dataset_read(const GxDataset *d, int64_t at, int64_t n, unsigned char *out, GxError *err)
{
    struct stat st;
    GxError failed = GX_ZERO;
    if (gx_file_read_at(d->fd, d->path, out, n, at, &failed) == GX_OK) return GX_OK;
    if (fstat(d->fd, &st) != 0 || (int64_t)st.st_size >= d->bytes)
        return GX_FAIL(err, gx_error_code(&failed), "%s", failed.message);
    return GX_FAIL(err, GX_ERR_IO,
                   "%s ends at byte %ld, but %ld were expected: it was shortened during the training; restore the "
                   "text, and resume",
                   d->path, (long)st.st_size, (long)d->bytes);
}

// Where the held-out part begins: after the last end of a line before n * (1 - fraction), but at most the length of the
// part further back; then (a file may be a single line) within a line, but not within a character.
static GxStatus gx__dataset_cut(const GxDataset *d, int64_t *cut, GxError *err)
{
    unsigned char chunk[GX__DATASET_CHUNK];
    const int64_t held_out = (int64_t)((double)d->bytes * d->validation_fraction), end = d->bytes - held_out,
                  first = gx_max(0, end - held_out);
    *cut = end;
    for (int64_t to = end, n; to > first; to -= n) {
        n = gx_min(GX__DATASET_CHUNK, to - first);
        GX_TRY(gx_dataset_read(d, to - n, n, chunk, err));
        for (int64_t i = n; i > 0; i--) {
            if (chunk[i - 1] != '\n') continue;
            *cut = to - n + i;
            return GX_OK;
        }
    }
    for (int i = 0; i < 3 && *cut > 0 && *cut < d->bytes; i++) { // skips UTF-8 continuation bytes
        GX_TRY(gx_dataset_read(d, *cut, 1, chunk, err));
        if ((chunk[0] & 0xC0) != 0x80) break;
        (*cut)--;
    }
    return GX_OK;
}

GxStatus gx_dataset_check(const GxDataset *d, int64_t T, GxError *err)
{
    const char *unit = d->ids || d->file.tokens ? "token" : "byte", *many = gx_text_s(T);
    if (d->train.n <= T)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %ld %s%s left for training; one sample of %ld token%s needs %lu; give more text or use a "
                       "smaller seq_len",
                       d->path, (long)d->train.n, unit, d->train.n == 1 ? " is" : "s are", (long)T, many,
                       (unsigned long)T + 1);
    if (d->validation_fraction > 0 && d->held_out.n <= T)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %ld %s%s held out for validation; one sample of %ld token%s needs %lu: %s", d->path,
                       (long)d->held_out.n, unit, d->held_out.n == 1 ? " is" : "s are", (long)T, many,
                       (unsigned long)T + 1,
                       "give more text, a smaller seq_len or a larger validation_fraction (0: no validation)");
    return GX_OK;
}

void gx_dataset_divide_documents(GxDataset *d)
{
    const GxTokenFile *f = &d->file;
    const GxTokenDocument *document = f->document;
    const int64_t wanted = (int64_t)ceil(d->validation_fraction * (double)f->tokens);
    int64_t k = 0, cut = f->tokens - wanted, bytes = 0;
    while (k < f->documents && document[k + 1].begin <= cut) bytes += document[k++].bytes; // documents before the cut
    if (k < f->documents) { // the cut is in document k, or at its beginning
        const int64_t before = cut - document[k].begin, behind = document[k + 1].begin - cut, length = before + behind;
        if (before <= behind && 2 * before <= wanted && k > 0) cut = document[k].begin;
        else if (behind < before && 2 * behind <= wanted && k + 1 < f->documents) {
            cut = document[k + 1].begin;
            bytes += document[k].bytes;
        } else bytes += (int64_t)((double)document[k].bytes * (double)before / (double)length);
    }
    d->train.n = d->held_out.begin = cut, d->held_out.n = f->tokens - cut;
    d->train_text.n = d->held_out_text.begin = bytes, d->held_out_text.n = f->bytes - bytes;
}

// 1: a document begins at token b, which follows token a.
static int gx__dataset_is_apart(const GxTokenFile *f, int32_t a, int32_t b)
{
    return (f->ends >= 0 && a == f->ends) || (f->begins >= 0 && b == f->begins);
}

GxStatus gx_dataset_divide_bin(GxDataset *d, GxError *err)
{
    const GxTokenFile *f = &d->file;
    const int64_t wanted = (int64_t)ceil(d->validation_fraction * (double)f->tokens), end = f->tokens - wanted,
                  first = gx_max(1, end - wanted);
    const int is_marked = f->begins >= 0 || f->ends >= 0;
    int32_t some[GX__DATASET_CHUNK / 4];
    int64_t cut = end;
    for (int64_t to = end, n, found = 0; to >= first && wanted && is_marked && !found;
         to -= n) { // cuts in (to - n, to]
        n = gx_min(GX__DATASET_CHUNK / 4 - 1, to - first + 1);
        GX_TRY(gx_token_file_read(f, d->fd, d->path, to - n, n + 1, some, err));
        for (int64_t i = n; i > 0 && !found; i--)
            if (gx__dataset_is_apart(f, some[i - 1], some[i])) found = 1, cut = to - n + i;
    }
    d->train.n = d->held_out.begin = cut, d->held_out.n = f->tokens - cut;
    d->train_text.n = d->held_out_text.begin = cut * f->width, d->held_out_text.n = d->held_out.n * f->width;
    return GX_OK;
}

// The number of a part's consecutive windows of T + 1 tokens that have a learned label.
static GxStatus gx__dataset_count_learned(const GxDataset *d, const GxTokens *part, int64_t T, int64_t windows,
                                          int64_t *learned, GxError *err)
{
    unsigned char is_learned[GX__DATASET_CHUNK];
    int64_t last = -1; // the last window that was counted
    *learned = 0;
    for (int64_t at = 1, n; at <= windows * T; at += n) {
        n = gx_min(GX__DATASET_CHUNK, windows * T - at + 1);
        GX_TRY(gx_token_file_read_mask(&d->file, d->fd, d->path, part->begin + at, n, is_learned, err));
        for (int64_t i = 0, stop; i < n; i = stop) { // window by window, within the chunk
            const int64_t window = (at + i - 1) / T;
            stop = gx_min(n, (window + 1) * T - at + 1);
            if (window > last && memchr(is_learned + i, 1, (size_t)(stop - i))) last = window, ++*learned;
        }
    }
    return GX_OK;
}

GxStatus gx_dataset_check_learned(const GxDataset *d, int64_t T, const GxLogger *log, GxError *err)
{
    const int64_t windows = (d->train.n - 1) / T, held_out = d->held_out.n > 0 ? (d->held_out.n - 1) / T : 0;
    int64_t learned;
    GX_TRY(gx__dataset_count_learned(d, &d->train, T, windows, &learned, err));
    if (learned == 0)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: its mask excludes all of the %ld token%s for training, so nothing would be learned; make "
                       "the file again with ones in the mask where the model is to learn",
                       d->path, (long)d->train.n, gx_text_s(d->train.n));
    if (learned < windows)
        gx_log(log, GX_LOG_WARNING,
               "%s: in %ld of %ld sample%s of %ld token%s %s nothing to learn, because of the mask, and %s computed "
               "for nothing; leave out documents without answers, or use a larger --seq_len",
               d->path, (long)(windows - learned), (long)windows, gx_text_s(windows), (long)T, gx_text_s(T),
               windows - learned == 1 ? "has" : "have", windows - learned == 1 ? "is" : "are");
    if (held_out == 0) return GX_OK;
    GX_TRY(gx__dataset_count_learned(d, &d->held_out, T, held_out, &learned, err));
    if (learned == 0)
        gx_log(log, GX_LOG_WARNING,
               "%s: its mask excludes all that is held out, so a validation would have no loss; use another "
               "--validation_fraction",
               d->path);
    return GX_OK;
}

static GxStatus gx__dataset_divide(GxDataset *d, int64_t T, GxError *err)
{
    struct stat st;
    if (d->bytes == 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is empty; expected a file with text to train on", d->path);
    if (fstat(d->fd, &st) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot access %s: %s", d->path, strerror(errno));
    d->mtime_ns = gx_nanoseconds(st.st_mtim);
    if (gx_token_file_is_one(d->fd)) {
        GX_TRY(gx_token_file_open(&d->file, d->fd, d->path, d->bytes, err));
        if (d->file.is_bin) GX_TRY(gx_dataset_divide_bin(d, err));
        else gx_dataset_divide_documents(d);
        return d->file.joins ? GX_OK : gx_dataset_check(d, T, err); // conversations are divided in another way
    }
    GX_TRY(gx__dataset_cut(d, &d->train.n, err));
    d->held_out.begin = d->train.n;
    d->held_out.n = d->bytes - d->train.n;
    d->train_text = d->train, d->held_out_text = d->held_out;
    return gx_dataset_check(d, T, err);
}

GxStatus gx_dataset_open(GxDataset *d, const char *path, double validation_fraction, int64_t T, GxError *err)
{
    memset(d, 0, sizeof *d);
    if (T < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "seq_len is %ld; it must be at least 1", (long)T);
    if (!(validation_fraction >= 0 && validation_fraction < 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "validation_fraction is %g; it must be at least 0 and less than 1",
                       validation_fraction);
    if (snprintf(d->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_CORPUS, err));
    GX_TRY(gx_file_open(path, &d->fd, &d->bytes, err));
    d->is_open = 1, d->validation_fraction = validation_fraction;
    GxStatus status = gx__dataset_divide(d, T, err);
    if (status != GX_OK) gx_dataset_close(d);
    return status;
}

void gx_dataset_close(GxDataset *d)
{
    if (d->is_open && d->fd >= 0) close(d->fd);
    free(d->ids), free(d->is_learned);
    gx_packing_close(&d->packed), gx_packing_close(&d->packed_held_out);
    gx_token_file_close(&d->file);
    memset(d, 0, sizeof *d);
}

enum { GX__DATASET_FEISTEL_ROUNDS = 6 };

int64_t gx_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    uint32_t site = gx_random_site(GX_SITE_SHUFFLE, 0);
    int half = 1; // bits of each half: the network permutes [0, 4^half), the smallest such range that contains [0, n)
    while (half < 31 && ((int64_t)1 << (2 * half)) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    do { // follows the cycle until it is back in [0, n): fewer than 4 steps on average
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < GX__DATASET_FEISTEL_ROUNDS; round++) {
            uint64_t mixed = left ^ (gx_philox(seed, round << 32 | right, (uint32_t)epoch, site).w[0] & mask);
            left = right;
            right = mixed;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t gx_tokens_epoch_samples(const GxTokens *tokens, int64_t T) { return gx_max(1, (tokens->n - T) / T); }
int64_t gx_tokens_eval_samples(const GxTokens *tokens, int64_t T) { return (tokens->n - 1) / T; }

// The shift of an epoch's windows: less than T, and such that the last window ends inside the text.
static int64_t gx__dataset_shift(const GxTokens *tokens, uint64_t seed, int64_t epoch, int64_t windows, int64_t T)
{
    if (epoch == 0) return 0;
    GxRandom4 r = gx_philox(seed, 0, (uint32_t)epoch, gx_random_site(GX_SITE_SHUFFLE, 1));
    uint64_t shifts = (uint64_t)gx_min(T, tokens->n - windows * T);
    return (int64_t)(((uint64_t)r.w[0] << 32 | r.w[1]) % shifts);
}

int64_t gx_dataset_sample_start(const GxTokens *tokens, uint64_t seed, int64_t index, int64_t T)
{
    int64_t windows = gx_tokens_epoch_samples(tokens, T), epoch = index / windows;
    return gx__dataset_shift(tokens, seed, epoch, windows, T) + gx_permute(seed, epoch, windows, index % windows) * T;
}

// Copies T tokens from number `at` of the whole on, and the token after each.
static GxStatus gx__dataset_copy(const GxDataset *d, int64_t at, int64_t T, int32_t *out_tokens, int32_t *out_labels,
                                 int64_t stride, GxError *err)
{
    unsigned char chunk[GX__DATASET_CHUNK];
    int32_t some[GX__DATASET_CHUNK / 4];
    const int in_file = !d->ids && d->file.tokens > 0;
    for (int64_t t = 0; d->ids && t < T; t++)
        out_tokens[t * stride] = d->ids[at + t], out_labels[t * stride] = d->ids[at + t + 1];
    for (int64_t first = 0, n; in_file && first < T; first += n) {
        n = gx_min(GX__DATASET_CHUNK / 4 - 1, T - first);
        GX_TRY(gx_token_file_read(&d->file, d->fd, d->path, at + first, n + 1, some, err));
        for (int64_t t = 0; t < n; t++)
            out_tokens[(first + t) * stride] = some[t], out_labels[(first + t) * stride] = some[t + 1];
    }
    for (int64_t first = 0; !d->ids && !in_file && first < T; first += GX__DATASET_CHUNK - 1) {
        const int64_t n = gx_min(GX__DATASET_CHUNK - 1, T - first);
        GX_TRY(gx_dataset_read(d, at + first, n + 1, chunk, err));
        for (int64_t t = 0; t < n; t++) {
            out_tokens[(first + t) * stride] = chunk[t];
            out_labels[(first + t) * stride] = chunk[t + 1];
        }
    }
    return GX_OK;
}

GxStatus gx_dataset_sample(const GxDataset *d, uint64_t seed, int64_t index, int64_t T, int32_t *out_tokens,
                           int32_t *out_labels, int64_t stride, GxError *err)
{
    const int64_t start = gx_dataset_sample_start(&d->train, seed, index, T);
    return gx__dataset_copy(d, d->train.begin + start, T, out_tokens, out_labels, stride, err);
}

GxStatus gx_dataset_eval_sample(const GxDataset *d, int64_t window, int64_t T, int32_t *out_tokens, int32_t *out_labels,
                                int64_t stride, GxError *err)
{
    return gx__dataset_copy(d, d->held_out.begin + window * T, T, out_tokens, out_labels, stride, err);
}

// For a file with a table of documents.
static void gx__dataset_documents_of_table(const GxDataset *d, int64_t at, int64_t T, int32_t *documents,
                                           int32_t *labels, int32_t ignored, int64_t stride)
{
    const GxTokenDocument *document = d->file.document;
    int64_t first = 0, last = d->file.documents; // the document of token `at` is in [first, last)
    while (last - first > 1) {
        const int64_t middle = first + (last - first) / 2;
        if (document[middle].begin <= at) first = middle;
        else last = middle;
    }
    for (int64_t t = 0; t < T; t++) {
        while (document[first + 1].begin <= at + t) first++;
        const int64_t end = document[first + 1].begin;
        documents[2 * t * stride] = (int32_t)gx_max(0, document[first].begin - at);
        documents[2 * t * stride + 1] = (int32_t)gx_min(T, end - at);
        if (at + t + 1 == end) labels[t * stride] = ignored;
    }
}

// For a file whose tokens mark documents, and for one without documents.
static void gx__dataset_documents_of_tokens(const GxDataset *d, int64_t T, const int32_t *tokens, int32_t *documents,
                                            int32_t *labels, int32_t ignored, int64_t stride)
{
    const GxTokenFile *f = &d->file;
    for (int64_t t = 0, begin = 0; t < T; t++) {
        const int is_last = f->is_bin && gx__dataset_is_apart(f, tokens[t * stride], labels[t * stride]);
        if (is_last) labels[t * stride] = ignored;
        if (!is_last && t < T - 1) continue;
        for (int64_t i = begin; i <= t; i++)
            documents[2 * i * stride] = (int32_t)begin, documents[2 * i * stride + 1] = (int32_t)t + 1;
        begin = t + 1;
    }
}

void gx_dataset_documents(const GxDataset *d, int64_t at, int64_t T, const int32_t *tokens, int32_t *documents,
                          int32_t *labels, int32_t ignored, int64_t stride)
{
    if (d->file.documents) gx__dataset_documents_of_table(d, at, T, documents, labels, ignored, stride);
    else gx__dataset_documents_of_tokens(d, T, tokens, documents, labels, ignored, stride);
}

GxStatus gx_dataset_mask(const GxDataset *d, int64_t at, int64_t T, int32_t *labels, int32_t ignored, int64_t stride,
                         GxError *err)
{
    unsigned char is_learned[GX__DATASET_CHUNK];
    for (int64_t first = 0, n; d->file.has_mask && first < T; first += n) { // a label is the next token
        n = gx_min(GX__DATASET_CHUNK, T - first);
        GX_TRY(gx_token_file_read_mask(&d->file, d->fd, d->path, at + first + 1, n, is_learned, err));
        for (int64_t t = 0; t < n; t++)
            if (!is_learned[t]) labels[(first + t) * stride] = ignored;
    }
    return GX_OK;
}

typedef struct {
    int64_t count[256][256], after[256]; // in the training part: of a byte after another one; of anything after a byte
    double sum;                          // -log2 P over the held-out part
} gx__DatasetPairs;

static void gx__dataset_count_pairs(gx__DatasetPairs *p, const unsigned char *byte, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        p->count[byte[i - 1]][byte[i]]++;
        p->after[byte[i - 1]]++;
    }
}

static void gx__dataset_judge_pairs(gx__DatasetPairs *p, const unsigned char *byte, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        int a = byte[i - 1], b = byte[i];
        p->sum -= log2((double)(p->count[a][b] + 1) / (double)(p->after[a] + 256));
    }
}

// Visits every pair of neighbouring bytes in this part of the file once.
static GxStatus gx__dataset_each_pair(const GxDataset *d, const GxTokens *part, gx__DatasetPairs *p,
                                      void (*look)(gx__DatasetPairs *p, const unsigned char *byte, int64_t n),
                                      GxError *err)
{
    unsigned char chunk[GX__DATASET_CHUNK];
    for (int64_t at = 0; at < part->n - 1; at += GX__DATASET_CHUNK - 1) {
        const int64_t n = gx_min(GX__DATASET_CHUNK, part->n - at);
        GX_TRY(gx_dataset_read(d, part->begin + at, n, chunk, err));
        look(p, chunk, n);
    }
    return GX_OK;
}

GxStatus gx_dataset_bigram_bits(const GxDataset *d, double *bits, GxError *err)
{
    if (d->held_out_text.n < 2)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%ld bytes are held out; a pair of bytes needs 2",
                       (long)d->held_out_text.n);
    gx__DatasetPairs *p = (gx__DatasetPairs *)calloc(1, sizeof *p);
    if (!p) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the counts of byte pairs");
    GxStatus status = gx__dataset_each_pair(d, &d->train_text, p, gx__dataset_count_pairs, err);
    if (status == GX_OK) status = gx__dataset_each_pair(d, &d->held_out_text, p, gx__dataset_judge_pairs, err);
    *bits = p->sum / (double)(d->held_out_text.n - 1);
    free(p);
    return status;
}
#endif
