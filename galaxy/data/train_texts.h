// train_texts.h: reads the texts that a vocabulary is trained on (wordpiece_train.h, bpe_train.h): the same as
// train_llama reads from a path (corpus.h), a text file, a file of JSON lines, or a folder of both.
//
//     const GxTrainText x = {"\n", take, user};
//     GX_TRY(gx_train_texts_read(&x, "texts/", &log, err));
//
// A text file is read in chunks (merge_train.h). In JSON lines each record's "text" is a text. In a file of
// conversations or instructions that is named itself, each turn's content is one, without what a chat template writes
// around it: special tokens are not part of a vocabulary's training. Several files, or those of a folder, are read one
// after another.
//
// Memory: a chunk (1 MB) or a piece of JSON lines (32 MB), or one line that is longer.
#ifndef GX_TRAIN_TEXTS_H
#define GX_TRAIN_TEXTS_H
#include "corpus.h"
#include "dataset_chat.h"
#include "merge_train.h"
GX_BEGIN

// log NULL: silence. Invalid text and invalid records are errors that name file and line.
GxStatus gx_train_texts_read(const GxTrainText *x, const char *path, const GxLogger *log, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TRAIN_TEXTS_IMPLEMENTED)
#define GX_TRAIN_TEXTS_IMPLEMENTED
#include <string.h>

static GxStatus gx__train_texts_take(void *user, const char *text, int64_t bytes, GxError *err)
{
    const GxTrainText *x = (const GxTrainText *)user;
    return x->take(x->user, text, bytes, err);
}

// Closes r.
static GxStatus gx__train_texts_turns(const GxTrainText *x, GxChatRecord *r, GxError *err)
{
    GxStatus status = GX_OK;
    for (int i = 0; i < r->n && status == GX_OK; i++)
        if (r->turn[i].text[0]) status = x->take(x->user, r->turn[i].text, (int64_t)strlen(r->turn[i].text), err);
    gx_chat_record_close(r);
    return status;
}

static GxStatus gx__train_texts_record(const GxTrainText *x, const char *line, const GxTextPlace *place, GxError *err)
{
    GxChatRecord r;
    GX_TRY(gx_chat_record_read(&r, line, &gx_record_reading, place->path, place->line, err));
    return gx__train_texts_turns(x, &r, err);
}

// Reads lines of conversations.
static GxStatus gx__train_texts_lines(void *user, GxTextPlace *place, char *lines, int64_t n, int64_t *records,
                                      int64_t *empty_line, GxError *err)
{
    const GxTrainText *x = (const GxTrainText *)user;
    GxTextPlace at = *place;
    const int64_t first = place->line;
    GxBadLines bad = GX_ZERO;
    char *text = lines + (place->line == 1 && !strncmp(lines, "\xEF\xBB\xBF", 3) ? 3 : 0);
    GX_TRY(gx_text_check(place, lines, n, err)); // also advances place
    for (; *text && gx_bad_lines_goes_on(&bad); at.line++) {
        char *end = text + strcspn(text, "\n"), *next = *end ? end + 1 : end;
        GxError e = GX_ZERO;
        *end = 0;
        if (!text[strspn(text, "\r")]) {
            if (next[strspn(next, "\r\n")])
                GX_FAIL(&e, GX_ERR_FORMAT,
                        "%s:%ld: the line is empty, but others follow; remove it, or make it a record", at.path,
                        (long)at.line);
            *empty_line = at.line;
        } else if (bad.n == 0) gx__train_texts_record(x, text, &at, &e);
        ++*records;
        if (gx_error_code(&e) != GX_OK && !gx_bad_lines_add(&bad, at.line, &e)) break;
        gx_bad_lines_pass(&bad, at.line, (int64_t)(end - text));
        text = next;
    }
    return gx_bad_lines_fail(&bad, first, err);
}

// Reads a table of conversations.
static GxStatus gx__train_texts_table(void *user, const char *path, int64_t *records, GxError *err)
{
    GxRecords table;
    GxChatRecord r;
    GX_TRY(gx_chat_table_open(&table, path, &gx_record_reading, err));
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < table.n && status == GX_OK; i++) {
        status = gx_chat_record_of_row(&r, &table, i, err);
        if (status == GX_OK) status = gx__train_texts_turns((const GxTrainText *)user, &r, err);
    }
    *records = table.n;
    gx_records_close(&table);
    return status;
}

static GxStatus gx__train_texts_all(const GxTrainText *x, GxCorpusReader *r, GxError *err)
{
    GxCorpus none = GX_ZERO;
    GxStatus status = GX_OK;
    while (r->place.file < r->files && status == GX_OK) {
        const char *path = r->file[r->place.file].path;
        if (gx_corpus_has_documents(path)) status = gx_corpus_reader_next(r, &none, err);
        else status = gx_train_read(x, path, err), r->place.file++;
    }
    gx_corpus_close(&none);
    return status;
}

GxStatus gx_train_texts_read(const GxTrainText *x, const char *path, const GxLogger *log, GxError *err)
{
    const GxTokenizer bytes = gx_tokenizer_bytes(); // not used for encoding
    GxCorpusTaker taker = {NULL, NULL, gx__train_texts_take, (void *)(uintptr_t)x};
    GxCorpusReader r;
    if (!gx_corpus_has_documents(path)) {
        gx_file_warn_of_kind(path, 0, log);
        return gx_train_read(x, path, err);
    }
    if (gx_dataset_is_chat(path, &gx_record_reading, log))
        taker.lines = gx__train_texts_lines, taker.table = gx__train_texts_table;
    GX_TRY(gx_corpus_reader_open(&r, path, NULL, &bytes, 1, log, err));
    r.taker = &taker;
    const GxStatus status = gx__train_texts_all(x, &r, err);
    gx_corpus_reader_close(&r);
    return status;
}
#endif
