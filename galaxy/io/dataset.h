// dataset.h: a text file as training samples of T tokens and their labels, the next tokens; its end is held out for
// validation.
//
// Tokens are bytes (tokenizer.h). The file is mapped, not read: it may be larger than memory, and must not be shortened
// while it is in use.
//
// Which bytes a sample holds is a function of (seed, number of the sample) and nothing else: no state is kept, so that
// every topology and every resumed run draws the same samples. Sample `index` belongs to epoch index / windows. An
// epoch cuts the text into windows of T + 1 bytes that overlap by one; it visits each exactly once, in an order of its
// own (a Feistel network on Philox with cycle walking: Black & Rogaway 2002, "Ciphers with arbitrary finite domains").
// Epochs beyond the first begin their windows shifted by fewer than T bytes.
//
//     GxDataset d;
//     GX_TRY(gx_dataset_open(&d, "book.txt", 0.1, 256, err));
//     for (b…) gx_dataset_sample(&d.train, seed, sample + b, 256, tokens + b, labels + b, B);    // [T,B]
//     for (w < gx_dataset_windows(&d.held_out, 256)) gx_dataset_window(&d.held_out, w, 256, tokens, labels, 1);
//     gx_dataset_close(&d);
#ifndef GX_DATASET_H
#define GX_DATASET_H
#include "../base/random.h"
#include "files.h"
GX_BEGIN

typedef struct {
    const unsigned char *byte;
    int64_t n;
} GxTokens;
typedef struct {
    GxTokens train, held_out; // held_out: the end of the file, from behind a line's end; n == 0 without validation
    void *map;
    int64_t map_bytes;
} GxDataset;

// validation_fraction in [0, 1): that much of the file, or a little more, from the end of a line on. Each part must
// hold T + 1 bytes.
GxStatus gx_dataset_open(GxDataset *d, const char *path, double validation_fraction, int64_t T, GxError *err);
void gx_dataset_close(GxDataset *d);

// Training: windows per epoch = max(1, (n - T) / T), so that every shift below T leaves room for the last label. n >= T
// + 1, index >= 0.
int64_t gx_dataset_epoch_windows(const GxTokens *tokens, int64_t T);
void gx_dataset_sample(const GxTokens *tokens, uint64_t seed, int64_t index, int64_t T, int32_t *out_tokens,
                       int32_t *out_labels, int64_t stride);
// The byte that the sample begins with.
int64_t gx_dataset_sample_start(const GxTokens *tokens, uint64_t seed, int64_t index, int64_t T);

// Validation: windows in order, (n - 1) / T of them.
int64_t gx_dataset_windows(const GxTokens *tokens, int64_t T);
void gx_dataset_window(const GxTokens *tokens, int64_t window, int64_t T, int32_t *out_tokens, int32_t *out_labels,
                       int64_t stride);

// Where element i of [0, n) stands in a pseudo-random order of them. The order repeats after 2^32 epochs.
int64_t gx_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

// Cross-entropy of held_out, in bits per byte, under a model that knows one byte of context: P(b | a) = (count of ab in
// train + 1) / (count of a followed by anything + 256). What a trained model must beat to have learned more than pairs.
// held_out has 2 bytes or more.
GxStatus gx_dataset_bigram_bits(const GxTokens *train, const GxTokens *held_out, double *bits, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DATASET_IMPLEMENTED)
#define GX_DATASET_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Where the held-out part begins: behind the last line's end before n * (1 - fraction). No further back than the part
// is long (a file may consist of one line): then in the middle of a line.
static int64_t gx__dataset_cut(const unsigned char *byte, int64_t n, double fraction)
{
    int64_t held_out = (int64_t)((double)n * fraction), cut = n - held_out;
    if (held_out == 0) return n;
    for (int64_t i = cut; i > 0 && i > cut - held_out; i--)
        if (byte[i - 1] == '\n') return i;
    return cut;
}

static GxStatus gx__dataset_check(const GxDataset *d, const char *path, double fraction, int64_t T, GxError *err)
{
    if (d->train.n < T + 1)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %ld bytes are left for training; one sample of %ld tokens needs %ld: take more text or a "
                       "smaller seq_len",
                       path, (long)d->train.n, (long)T, (long)T + 1);
    if (fraction > 0 && d->held_out.n < T + 1)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %ld bytes are held out for validation; one sample of %ld tokens needs %ld: %s", path,
                       (long)d->held_out.n, (long)T, (long)T + 1,
                       "take more text, a smaller seq_len or a larger validation_fraction (0: no validation)");
    return GX_OK;
}

GxStatus gx_dataset_open(GxDataset *d, const char *path, double validation_fraction, int64_t T, GxError *err)
{
    int fd;
    int64_t n;
    memset(d, 0, sizeof *d);
    if (T < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "seq_len is %ld; it must be at least 1", (long)T);
    if (!(validation_fraction >= 0 && validation_fraction < 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "validation_fraction is %g; it must be at least 0 and less than 1",
                       validation_fraction);
    GX_TRY(gx_file_open(path, &fd, &n, err));
    if (n == 0) {
        close(fd);
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is empty; give a file with text to train on", path);
    }
    void *map = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fd, 0);
    int reason = errno;
    close(fd); // the mapping stays
    if (map == MAP_FAILED)
        return GX_FAIL(err, GX_ERR_IO, "cannot map the %ld bytes of %s: %s", (long)n, path, strerror(reason));
    d->map = map;
    d->map_bytes = n;
    d->train.byte = (const unsigned char *)map;
    d->train.n = gx__dataset_cut(d->train.byte, n, validation_fraction);
    d->held_out.byte = d->train.byte + d->train.n;
    d->held_out.n = n - d->train.n;
    GxStatus status = gx__dataset_check(d, path, validation_fraction, T, err);
    if (status != GX_OK) gx_dataset_close(d);
    return status;
}

void gx_dataset_close(GxDataset *d)
{
    if (d->map) munmap(d->map, (size_t)d->map_bytes);
    memset(d, 0, sizeof *d);
}

enum { GX__DATASET_FEISTEL_ROUNDS = 6 };

int64_t gx_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    uint32_t site = gx_random_site(GX_SITE_SHUFFLE, 0);
    int half = 1; // bits of each half: the network permutes [0, 4^half), the smallest such that holds [0, n)
    while (half < 31 && ((int64_t)1 << (2 * half)) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    do { // walk the cycle until it is back in [0, n): fewer than 4 turns on average
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

int64_t gx_dataset_epoch_windows(const GxTokens *tokens, int64_t T) { return gx_max(1, (tokens->n - T) / T); }
int64_t gx_dataset_windows(const GxTokens *tokens, int64_t T) { return (tokens->n - 1) / T; }

// How far the epoch's windows are shifted: less than T, and so that the last one still ends inside the text.
static int64_t gx__dataset_shift(const GxTokens *tokens, uint64_t seed, int64_t epoch, int64_t windows, int64_t T)
{
    if (epoch == 0) return 0;
    GxRandom4 r = gx_philox(seed, 0, (uint32_t)epoch, gx_random_site(GX_SITE_SHUFFLE, 1));
    uint64_t shifts = (uint64_t)gx_min(T, tokens->n - windows * T);
    return (int64_t)(((uint64_t)r.w[0] << 32 | r.w[1]) % shifts);
}

int64_t gx_dataset_sample_start(const GxTokens *tokens, uint64_t seed, int64_t index, int64_t T)
{
    int64_t windows = gx_dataset_epoch_windows(tokens, T), epoch = index / windows;
    return gx__dataset_shift(tokens, seed, epoch, windows, T) + gx_permute(seed, epoch, windows, index % windows) * T;
}

static void gx__dataset_copy(const unsigned char *from, int64_t T, int32_t *out_tokens, int32_t *out_labels,
                             int64_t stride)
{
    for (int64_t t = 0; t < T; t++) {
        out_tokens[t * stride] = from[t];
        out_labels[t * stride] = from[t + 1];
    }
}

void gx_dataset_sample(const GxTokens *tokens, uint64_t seed, int64_t index, int64_t T, int32_t *out_tokens,
                       int32_t *out_labels, int64_t stride)
{
    gx__dataset_copy(tokens->byte + gx_dataset_sample_start(tokens, seed, index, T), T, out_tokens, out_labels, stride);
}

void gx_dataset_window(const GxTokens *tokens, int64_t window, int64_t T, int32_t *out_tokens, int32_t *out_labels,
                       int64_t stride)
{
    gx__dataset_copy(tokens->byte + window * T, T, out_tokens, out_labels, stride);
}

GxStatus gx_dataset_bigram_bits(const GxTokens *train, const GxTokens *held_out, double *bits, GxError *err)
{
    int64_t(*count)[256] = (int64_t(*)[256])calloc(256, sizeof *count), after[256] = GX_ZERO;
    double sum = 0;
    if (!count) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the counts of byte pairs");
    if (held_out->n < 2) {
        free(count);
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%ld bytes are held out; a pair of bytes needs 2", (long)held_out->n);
    }
    for (int64_t i = 1; i < train->n; i++) {
        count[train->byte[i - 1]][train->byte[i]]++;
        after[train->byte[i - 1]]++;
    }
    for (int64_t i = 1; i < held_out->n; i++) {
        int a = held_out->byte[i - 1], b = held_out->byte[i];
        sum -= log2((double)(count[a][b] + 1) / (double)(after[a] + 256));
    }
    free(count);
    *bits = sum / (double)(held_out->n - 1);
    return GX_OK;
}
#endif
