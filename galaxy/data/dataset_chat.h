// dataset_chat.h: a dataset of conversations: JSON lines or a table (chat_records.h) as samples of T tokens, in which
// the assistant's answers are learned (chat_tokens.h).
//
//     if (gx_dataset_is_chat("chats.jsonl", &gx_record_reading, &g->log))
//         GX_TRY(gx_dataset_open_chat(&d, "chats.jsonl", &tokenizer, &how, 0.1, 512, threads, err));
//
// A document, usually a conversation, is never divided, since an answer without its question would teach something
// else. So a sample is not a window but consists of whole documents (packing.h), followed by padding; an epoch has each
// sample once, in an order of its own. Padding is invisible to other tokens, and nothing is learned from it.
//
// Conversations at the end of the file are held out, as close to the requested fraction of the tokens as whole ones
// allow, at least one; the documents of a conversation are never in both parts.
#ifndef GX_DATASET_CHAT_H
#define GX_DATASET_CHAT_H
#include "../base/log.h"
#include "chat_tokens.h"
#include "dataset.h"
GX_BEGIN

// 1: a file of records whose first one is a conversation and not a text. One that is both counts as a text, which is
// logged.
int gx_dataset_is_chat(const char *path, const GxRecordReading *names, const GxLogger *log);
GxStatus gx_dataset_open_chat(GxDataset *d, const char *path, const GxTokenizer *t, const GxChatReading *how,
                              double validation_fraction, int64_t T, int threads, GxError *err);
// For an open file of tokens of conversations (d->file.joins): its samples become those of the conversations
// themselves. Refused if it was made with another template than how->format, or documents are longer than T. log NULL:
// silence.
GxStatus gx_dataset_take_chats(GxDataset *d, const GxTokenizer *t, const GxChatReading *how, int64_t T,
                               const GxLogger *log, GxError *err);

// The samples of an epoch, and of the held-out part: windows (dataset.h) or packed ones.
int64_t gx_dataset_epoch_samples(const GxDataset *d, int64_t T);
int64_t gx_dataset_held_out_samples(const GxDataset *d, int64_t T);
// The packed sample that sample number `index` of the training is.
int64_t gx_dataset_packed_number(const GxDataset *d, uint64_t seed, int64_t index);
// Reads a packed sample of the training (&d->packed) or of the held-out part, as gx_blend_sample does; documents NULL:
// not wanted. Padding is token 0, with the label `ignored` and the document [0, 0), so it is invisible. *padding: the
// number of padding tokens; NULL: not wanted.
GxStatus gx_dataset_packed(const GxDataset *d, const GxPacking *p, int64_t sample, int64_t T, int32_t *tokens,
                           int32_t *labels, int32_t *documents, int32_t ignored, int64_t stride, int64_t *padding,
                           GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DATASET_CHAT_IMPLEMENTED)
#define GX_DATASET_CHAT_IMPLEMENTED
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static_assert(sizeof((GxDatasetChat *)0)->lacks == GX_CHAT_LACKS * sizeof(int64_t),
              "the length in dataset.h, which knows no chat.h");

int gx_dataset_is_chat(const char *path, const GxRecordReading *names, const GxLogger *log)
{
    char members[GX_TEXT_VALUE];
    int has_text;
    if (!gx_path_has_end(path, ".jsonl") && !gx_path_has_end(path, ".ndjson") && !gx_records_is_table(path)) return 0;
    const char *member = gx_chat_records_detect(path, names, &has_text, members);
    if (member && !has_text && names->used) names->used->prompts |= !strcmp(member, "prompt");
    if (member && has_text && log)
        gx_log(log, GX_LOG_WARNING,
               "%s: its first record has both \"%s\" and \"%s\"; the texts are used, and all of them are learned; %s "
               "to train only on what the assistant says",
               path, names->text, member,
               strcmp(names->text, gx_record_reading.text) ? "leave --text_column out" : "remove \"text\"");
    return member && !has_text;
}

// The number of the first held-out document, which begins a conversation.
static int64_t gx__dataset_chat_cut(const GxTokenFile *f, double validation_fraction)
{
    const int64_t wanted = (int64_t)ceil(validation_fraction * (double)f->tokens);
    int64_t cut = f->documents, off = INT64_MAX;
    if (validation_fraction <= 0) return cut;
    for (int64_t i = f->documents - 1; i > 0; i--) {
        if (f->joins[i]) continue;
        const int64_t held_out = f->tokens - f->document[i].begin,
                      now = held_out > wanted ? held_out - wanted : wanted - held_out;
        if (now < off) off = now, cut = i;
    }
    return cut;
}

static GxStatus gx__dataset_chat_pack(GxPacking *p, const GxTokenFile *f, int64_t first, int64_t last, int64_t T,
                                      GxError *err)
{
    int64_t *length = (int64_t *)malloc((size_t)(last - first + 1) * sizeof *length);
    if (!length) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to pack %ld conversations", (long)(last - first));
    for (int64_t i = first; i < last; i++) length[i - first] = f->document[i + 1].begin - f->document[i].begin;
    const GxStatus status = gx_packing_make(p, length, last - first, T, err);
    for (int64_t i = 0; status == GX_OK && i < last - first; i++) p->text[i] += first;
    free(length);
    return status;
}

static GxStatus gx__dataset_chat_divide(GxDataset *d, int64_t T, GxError *err)
{
    const GxTokenFile *f = &d->file;
    const int64_t cut = gx__dataset_chat_cut(f, d->validation_fraction);
    d->train.begin = d->train_text.begin = d->train_text.n = 0;
    if (d->validation_fraction > 0 && cut == f->documents)
        return GX_FAIL(
            err, GX_ERR_FORMAT,
            "%s has only one conversation, of which none can be held out; give more, or say --validation_fraction 0",
            d->path);
    for (int64_t i = 0; i < cut; i++) d->train_text.n += f->document[i].bytes;
    d->train.n = d->held_out.begin = f->document[cut].begin, d->held_out.n = f->tokens - d->train.n;
    d->held_out_text.begin = d->train_text.n, d->held_out_text.n = f->bytes - d->train_text.n;
    GX_TRY(gx__dataset_chat_pack(&d->packed, f, 0, cut, T, err));
    if (cut < f->documents) GX_TRY(gx__dataset_chat_pack(&d->packed_held_out, f, cut, f->documents, T, err));
    return GX_OK;
}

GxStatus gx_dataset_open_chat(GxDataset *d, const char *path, const GxTokenizer *t, const GxChatReading *how,
                              double validation_fraction, int64_t T, int threads, GxError *err)
{
    GxChatTokens c;
    memset(d, 0, sizeof *d);
    if (T < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "seq_len is %ld; it must be at least 1", (long)T);
    if (snprintf(d->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    GX_TRY(gx_chat_tokens_open(&c, path, t, how, T, threads, err));
    d->is_open = 1, d->fd = -1, d->validation_fraction = validation_fraction;
    d->ids = c.ids, d->is_learned = c.is_learned, d->file = c.file, d->bytes = c.file.bytes, d->chat = c.counts;
    const GxStatus status = gx__dataset_chat_divide(d, T, err);
    free(c.line);
    if (status != GX_OK) gx_dataset_close(d);
    return status;
}

// ---- a file of tokens ----------------------------------------------------------------------------------------------

static GxStatus gx__dataset_chat_check_format(const GxDataset *d, const GxTokenizer *t, const GxChatReading *how,
                                              GxError *err)
{
    const GxTokenChats *made = &d->file.chats;
    if (how && (int64_t)gx_chat_reading_hash(how, t) == made->format_hash) return GX_OK;
    // texts, which have no format
    if (how && made->counts.texts > 0 && made->counts.texts == made->counts.n) return GX_OK;
    if (!how) return GX_FAIL(err, GX_ERR_ARGUMENT, "%s holds conversations, but texts are expected here", d->path);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s was made with the chat template %s, but this run has %s; name the same one (--chat_template), "
                   "or make the file again with this one (./tokenize --corpus)%s%s",
                   d->path, made->format,
                   how->format  ? gx_chat_name(how->format)
                   : how->lacks ? "none"
                                : "alpaca",
                   how->format || !how->lacks ? "" : "; ", how->format || !how->lacks ? "" : how->lacks);
}

static GxStatus gx__dataset_chat_check_length(const GxDataset *d, int64_t T, const GxLogger *log, GxError *err)
{
    const GxTokenFile *f = &d->file;
    const GxTokenChats *made = &f->chats;
    const int64_t lost = made->counts.shortened + made->counts.left_out;
    int64_t longest = 0;
    for (int64_t i = 0; i < f->documents; i++)
        longest = gx_max(longest, f->document[i + 1].begin - f->document[i].begin);
    if (longest > T)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%s was made with --seq_len %ld and has a conversation of %ld tokens, which is longer than this run's "
            "--seq_len %ld; use that --seq_len, or make the file again (./tokenize --corpus --seq_len %ld)",
            d->path, (long)made->seq_len, (long)longest, (long)T, (long)T);
    if (log && lost > 0 && T > made->seq_len)
        gx_log(log, GX_LOG_WARNING,
               "%s was made with --seq_len %ld: %ld conversation%s, and %ld answer%s left out, although this run's "
               "--seq_len %ld has more room; ./tokenize --corpus --seq_len %ld makes it again",
               d->path, (long)made->seq_len, (long)made->counts.shortened,
               made->counts.shortened == 1 ? " is shortened" : "s are shortened", (long)made->counts.left_out,
               made->counts.left_out == 1 ? " is" : "s are", (long)T, (long)T);
    return GX_OK;
}

GxStatus gx_dataset_take_chats(GxDataset *d, const GxTokenizer *t, const GxChatReading *how, int64_t T,
                               const GxLogger *log, GxError *err)
{
    GX_TRY(gx__dataset_chat_check_format(d, t, how, err));
    GX_TRY(gx__dataset_chat_check_length(d, T, log, err));
    d->chat = d->file.chats.counts;
    return gx__dataset_chat_divide(d, T, err);
}

// ---- samples -------------------------------------------------------------------------------------------------------

int64_t gx_dataset_epoch_samples(const GxDataset *d, int64_t T)
{
    return d->packed.samples ? d->packed.samples : gx_tokens_epoch_samples(&d->train, T);
}

int64_t gx_dataset_held_out_samples(const GxDataset *d, int64_t T)
{
    if (d->packed.samples) return d->packed_held_out.samples;
    return d->held_out.n > 0 ? gx_tokens_eval_samples(&d->held_out, T) : 0;
}

int64_t gx_dataset_packed_number(const GxDataset *d, uint64_t seed, int64_t index)
{
    const int64_t n = d->packed.samples;
    return gx_permute(seed, index / n, n, index % n);
}

// Reads tokens [at, at + n) of the whole, and which of them are learned.
static GxStatus gx__dataset_packed_read(const GxDataset *d, int64_t at, int64_t n, int32_t *ids,
                                        unsigned char *is_learned, GxError *err)
{
    if (d->ids) {
        memcpy(ids, d->ids + at, (size_t)n * sizeof *ids), memcpy(is_learned, d->is_learned + at, (size_t)n);
        return GX_OK;
    }
    GX_TRY(gx_token_file_read(&d->file, d->fd, d->path, at, n, ids, err));
    return gx_token_file_read_mask(&d->file, d->fd, d->path, at, n, is_learned, err);
}

// Writes a document to a sample at position *at, which is moved past it.
static GxStatus gx__dataset_packed_document(const GxDataset *d, int64_t document, int64_t *at, int32_t *tokens,
                                            int32_t *labels, int32_t *documents, int32_t ignored, int64_t stride,
                                            GxError *err)
{
    enum { CHUNK = 2048 };
    int32_t ids[CHUNK + 1];
    unsigned char is_learned[CHUNK + 1];
    const int64_t begin = d->file.document[document].begin, n = d->file.document[document + 1].begin - begin;
    for (int64_t first = 0, some; first < n; first += some) {
        some = gx_min(CHUNK, n - first);
        const int64_t read = gx_min(some + 1, n - first); // one more, since a label is the next token
        GX_TRY(gx__dataset_packed_read(d, begin + first, read, ids, is_learned, err));
        for (int64_t i = 0; i < some; i++) {
            const int64_t to = (*at + first + i) * stride;
            tokens[to] = ids[i];
            labels[to] = i + 1 < read && is_learned[i + 1] ? ids[i + 1] : ignored;
            if (documents) documents[2 * to] = (int32_t)*at, documents[2 * to + 1] = (int32_t)(*at + n);
        }
    }
    *at += n;
    return GX_OK;
}

GxStatus gx_dataset_packed(const GxDataset *d, const GxPacking *p, int64_t sample, int64_t T, int32_t *tokens,
                           int32_t *labels, int32_t *documents, int32_t ignored, int64_t stride, int64_t *padding,
                           GxError *err)
{
    int64_t at = 0;
    for (int64_t i = p->begin[sample]; i < p->begin[sample + 1]; i++)
        GX_TRY(gx__dataset_packed_document(d, p->text[i], &at, tokens, labels, documents, ignored, stride, err));
    for (int64_t t = at; t < T; t++) {
        tokens[t * stride] = 0, labels[t * stride] = ignored;
        if (documents) documents[2 * t * stride] = documents[2 * t * stride + 1] = 0;
    }
    if (padding) *padding = T - at;
    return GX_OK;
}
#endif
