// dataset_tokens.h: opens a dataset of any kind of data with a tokenizer: a text, records, a folder of texts and JSON
// lines (corpus.h), or a file of tokens, including llm.c's (.bin).
//
//     GX_TRY(gx_dataset_open_any(&d, "book.txt", NULL, &tokenizer, 0.1, 256, threads, &g->log, err));
//
// Data other than a file of tokens, or a text whose tokens are bytes, is tokenized once, when it is opened, and its ids
// are in memory. Each of the two parts of a text, for training and held out, is one text to the tokenizer, as for
// Hugging Face's. It is in the tokenizer's frame, for example after <s> if tokenizer.json adds that.
#ifndef GX_DATASET_TOKENS_H
#define GX_DATASET_TOKENS_H
#include "corpus.h"
#include "dataset.h"
GX_BEGIN

// Memory: 4 bytes per token; while a text is tokenized, also 4 for each byte of its larger part, and the part itself.
// "<s>" in the text is three characters, not a token. A file of another tokenizer's tokens is refused. In a file of
// llm.c's a document begins with the token that the tokenizer puts before a text (<s>), and ends with its eos_token; if
// the tokenizer has neither, with <|endoftext|>. how: as for gx_corpus_open. log NULL: silence.
GxStatus gx_dataset_open_any(GxDataset *d, const char *path, const GxRecordReading *how, const GxTokenizer *t,
                             double validation_fraction, int64_t T, int threads, const GxLogger *log, GxError *err);
// Tokenizes an open text whose tokens are bytes. Text that is not UTF-8 or contains a byte of value 0 is an error that
// names the line. After an error the dataset is unchanged.
GxStatus gx_dataset_tokenize(GxDataset *d, const GxTokenizer *t, int64_t T, GxError *err);
// 1: its samples may contain several documents. 0 also if it cannot be read.
int gx_dataset_has_documents(const char *path);
// A hash of the tokenized data: the ids, where documents begin, and which tokens are learned.
uint64_t gx_dataset_ids_hash(const GxDataset *d);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DATASET_TOKENS_IMPLEMENTED)
#define GX_DATASET_TOKENS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The tokens of a part in their frame, in *ids, which has exactly that size; free() it.
static GxStatus gx__dataset_tokens_encode(const GxTokenizer *t, const char *text, int64_t bytes, int32_t **ids,
                                          int64_t *n, GxError *err)
{
    const int64_t frame = gx_tokenizer_frame_tokens(t, 1);
    int32_t *plain = (int32_t *)malloc((size_t)(gx_tokenizer_most(t, bytes) + 1) * sizeof *plain);
    *ids = NULL;
    if (!plain)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of a text of %ld bytes: 4 bytes each are needed",
                       (long)bytes);
    GxStatus status = gx_tokenizer_encode(t, text, bytes, GX_SPECIAL_AS_TEXT, plain, n, err);
    if (status == GX_OK) *ids = (int32_t *)malloc((size_t)(*n + frame + 1) * sizeof **ids);
    if (status == GX_OK && !*ids) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens", (long)(*n + frame));
    const GxTokenTexts one = {plain, NULL, *n, 0};
    if (status == GX_OK) status = gx_tokenizer_join(t, &one, *n + frame, *ids, NULL, n, NULL, err);
    free(plain);
    if (status == GX_OK) return GX_OK;
    free(*ids);
    *ids = NULL;
    return status;
}

// place: where the part begins; moved to its end.
static GxStatus gx__dataset_tokens_part(const GxDataset *d, const GxTokens *part, GxTextPlace *place,
                                        const GxTokenizer *t, int32_t **ids, int64_t *n, GxError *err)
{
    char *text = (char *)malloc((size_t)part->n + 1);
    *ids = NULL;
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld bytes of %s", (long)part->n, d->path);
    GxStatus status = gx_dataset_read(d, part->begin, part->n, (unsigned char *)text, err);
    text[part->n] = 0;
    if (status == GX_OK) status = gx_text_check(place, text, part->n, err);
    if (status == GX_OK) status = gx__dataset_tokens_encode(t, text, part->n, ids, n, err);
    free(text);
    return status;
}

GxStatus gx_dataset_tokenize(GxDataset *d, const GxTokenizer *t, int64_t T, GxError *err)
{
    const GxDataset before = *d;
    GxTextPlace place = {d->path, 1, 0};
    int32_t *held_out = NULL;
    int64_t n = 0, n_held_out = 0;
    GX_TRY(gx__dataset_tokens_part(d, &d->train_text, &place, t, &d->ids, &n, err));
    GxStatus status = GX_OK;
    if (d->held_out_text.n > 0)
        status = gx__dataset_tokens_part(d, &d->held_out_text, &place, t, &held_out, &n_held_out, err);
    int32_t *both = NULL;
    if (status == GX_OK) both = (int32_t *)realloc(d->ids, (size_t)(n + n_held_out + 1) * sizeof *both);
    if (status == GX_OK && !both)
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens", (long)(n + n_held_out));
    if (both) d->ids = both;
    if (both && n_held_out) memcpy(both + n, held_out, (size_t)n_held_out * sizeof *both);
    d->train.n = d->held_out.begin = n, d->held_out.n = n_held_out;
    if (status == GX_OK) status = gx_dataset_check(d, T, err);
    free(held_out);
    if (status == GX_OK) return GX_OK;
    free(d->ids);
    *d = before;
    return status;
}

int gx_dataset_has_documents(const char *path)
{
    int fd, is_one;
    int64_t bytes;
    GxError ignored = GX_ZERO;
    if (gx_corpus_has_documents(path)) return 1;
    if (gx_file_open(path, &fd, &bytes, &ignored) != GX_OK) return 0;
    is_one = gx_token_file_is_one(fd);
    close(fd);
    return is_one;
}

static GxStatus gx__dataset_open_corpus(GxDataset *d, const char *path, const GxRecordReading *how,
                                        const GxTokenizer *t, double validation_fraction, int64_t T, int threads,
                                        const GxLogger *log, GxError *err)
{
    GxCorpus c;
    memset(d, 0, sizeof *d);
    if (snprintf(d->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    GX_TRY(gx_corpus_open(&c, path, how, t, threads, log, err));
    d->is_open = 1, d->fd = -1, d->validation_fraction = validation_fraction;
    d->ids = c.ids, d->file = c.file, d->bytes = c.file.bytes;
    gx_dataset_divide_documents(d);
    const GxStatus status = gx_dataset_check(d, T, err);
    if (status != GX_OK) gx_dataset_close(d);
    return status;
}

static GxStatus gx__dataset_check_tokenizer(const GxDataset *d, const GxTokenizer *t, GxError *err)
{
    if (d->file.is_bin && t->kind == &gx_byte_tokens)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is a .bin file of llm.c, which does not say which tokenizer made it; name that tokenizer "
                       "(--tokenizer), or the model that has it (--model)",
                       d->path);
    if (d->file.is_bin || !d->file.documents || !strcmp(d->file.tokenizer, t->identity)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s was made with the tokenizer %s, but this run's is %s; name the same one (--tokenizer), or make "
                   "the file again with this one (./tokenize)",
                   d->path, d->file.tokenizer, t->identity);
}

// Sets by which tokens documents begin and end, and from that the held-out part.
static GxStatus gx__dataset_mark_bin(GxDataset *d, const GxTokenizer *t, int64_t T, GxError *err)
{
    const GxTokenFrame *frame = &t->frame[0];
    GxTokenFile *f = &d->file;
    if (frame->n > 0 && frame->part[0].id >= 0) f->begins = frame->part[0].id;
    if (t->end != f->begins) f->ends = t->end; // if both are the same token, it marks the beginning
    if (f->begins < 0 && f->ends < 0) f->ends = gx_tokenizer_find(t, "<|endoftext|>");
    GX_TRY(gx_dataset_divide_bin(d, err));
    return gx_dataset_check(d, T, err);
}

// Warns of end-of-text tokens that are spelled out in a text.
static GxStatus gx__dataset_warn_of_ends(const GxDataset *d, const GxTokenizer *t, const GxLogger *log, GxError *err)
{
    enum { OVERLAP = GX_TEXT_END_BYTES - 1, CHUNK = 1 << 16 };
    GxTextEnds all = gx_text_ends(t);
    char *text = log ? (char *)malloc(CHUNK) : NULL;
    GxStatus status = GX_OK;
    for (int64_t at = 0, n; text && at < d->bytes && status == GX_OK; at += n) {
        const int64_t some = gx_min(CHUNK, d->bytes - at);
        n = some - (at + some < d->bytes ? OVERLAP : 0);
        status = gx_dataset_read(d, at, some, (unsigned char *)text, err);
        if (status == GX_OK) gx_text_ends_count(&all, text, some, n);
    }
    free(text);
    if (status == GX_OK) gx_text_ends_warn(&all, d->path, log);
    return status;
}

// Warns of files of earlier versions, which have no checksums.
static void gx__dataset_note_checksums(const GxDataset *d, const GxLogger *log)
{
    if (!d->file.tokens || d->file.is_bin || d->file.hash) return;
    gx_log(log, GX_LOG_INFO,
           "%s is a file of tokens of version %d, which has no checksums, so damage to it would not be noticed; "
           "./tokenize --corpus makes it again, with checksums",
           d->path, d->file.version);
}

GxStatus gx_dataset_open_any(GxDataset *d, const char *path, const GxRecordReading *how, const GxTokenizer *t,
                             double validation_fraction, int64_t T, int threads, const GxLogger *log, GxError *err)
{
    if (gx_corpus_has_documents(path))
        return gx__dataset_open_corpus(d, path, how, t, validation_fraction, T, threads, log, err);
    GX_TRY(gx_dataset_open(d, path, validation_fraction, T, err));
    GxStatus status = gx__dataset_check_tokenizer(d, t, err);
    d->file.vocab = t->vocab_size;
    if (status == GX_OK) gx__dataset_note_checksums(d, log);
    if (status == GX_OK && !d->file.tokens) {
        gx_file_warn_of_kind(path, t->kind == &gx_byte_tokens, log);
        status = gx__dataset_warn_of_ends(d, t, log, err);
    }
    if (status == GX_OK && d->file.is_bin) status = gx__dataset_mark_bin(d, t, T, err);
    if (status == GX_OK && d->file.is_bin) status = gx_text_ends_warn_of_bin(&d->file, d->fd, path, t, log, err);
    if (status == GX_OK && d->file.has_mask && !d->file.joins) status = gx_dataset_check_learned(d, T, log, err);
    if (status == GX_OK && !d->file.tokens && t->kind != &gx_byte_tokens) status = gx_dataset_tokenize(d, t, T, err);
    if (status != GX_OK) gx_dataset_close(d);
    return status;
}

uint64_t gx_dataset_ids_hash(const GxDataset *d)
{
    const int64_t tokens = d->train.n + d->held_out.n;
    uint64_t hash = gx_hash(GX_HASH_START, d->ids, 4 * tokens);
    if (d->is_learned) hash = gx_hash(hash, d->is_learned, tokens);
    return gx_hash(hash, d->file.document, 16 * d->file.documents);
}
#endif
