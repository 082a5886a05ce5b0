// corpus.h: reads texts as documents of tokens, in memory: a text file, a file of records (JSON lines, CSV, TSV) with a
// "text" in each, or a folder of text files and JSON lines.
//
//     GX_TRY(gx_corpus_open(&c, "texts/", NULL, &tokenizer, threads, &g->log, err));
//     gx_token_file_write("texts.tokens", &c.file, c.ids, err);
//     gx_corpus_close(&c);
//
// A .txt file is one document, and so is every record of .jsonl, .csv and .tsv. A folder's documents are those of its
// .txt and .jsonl files and subfolders, in the order of their names; a subfolder with a run (run.json) is skipped, with
// a message, since its log and its checkpoints are not texts. A document is one text to the tokenizer, in its frame; if
// there may be several, each is followed by the tokenizer's end-of-text token (eos_token), if it has one and the frame
// does not end with it. Empty texts are left out. The result does not depend on the number of threads, which share a
// long text if the tokenizer allows it to be cut (gx_tokenizer_cut).
//
// Memory: 4 bytes per token and 16 per document; a whole table (at most GX_RECORDS_CAP bytes); temporarily a piece of
// the texts (32 MB of JSON lines or text files, or one longer line or file), and 4 bytes for each byte of its texts. To
// hold less, read a piece at a time:
//
//     GX_TRY(gx_corpus_reader_open(&r, "texts/", NULL, &tokenizer, threads, &g->log, err));
//     while (status == GX_OK && r.place.file < r.files) status = gx_corpus_reader_next(&r, &c, err);   // appends to c
//     gx_corpus_reader_close(&r);
//
// r.place is the position; another reader of the same texts can continue from there.
#ifndef GX_CORPUS_H
#define GX_CORPUS_H
#include "../base/log.h"
#include "chat_records.h"
#include "../io/file_kind.h"
#include "records.h"
#include "text_ends.h"
#include "token_file.h"
#include "../text/tokenizer.h"
GX_BEGIN

typedef struct {
    GxTokenFile file; // its width is 4
    int32_t *ids;     // [file.tokens]
    int64_t empty;    // texts that were left out
    int64_t room, document_room;
} GxCorpus;

typedef struct {
    char *path;
    int64_t bytes, mtime_ns;
} GxCorpusFile;
typedef struct {               // zeros: the beginning
    int64_t file;              // the file that is being read
    int64_t at, line;          // bytes and lines of it that have been read
    int64_t records, has_text; // records among these; 1: one of them has a text
    int64_t empty_line;        // its number: no records may follow it; 0: none
} GxCorpusPlace;
typedef struct { // consumers of what is read, instead of making documents. NULL: the reader makes documents
    // Whole lines, terminated by 0. place must be moved past them; *records: their number; *empty_line: as in
    // GxCorpusPlace.
    GxStatus (*lines)(void *user, GxTextPlace *place, char *lines, int64_t n, int64_t *records, int64_t *empty_line,
                      GxError *err);
    GxStatus (*table)(void *user, const char *path, int64_t *records, GxError *err); // a whole table
    GxStatus (*text)(void *user, const char *text, int64_t bytes, GxError *err);     // each text that is not empty
    void *user;
} GxCorpusTaker;
typedef struct {
    const GxTokenizer *t;
    const GxRecordReading *how;
    int threads, ends; // ends: 1: documents are followed by an end-of-text token
    const GxCorpusTaker *taker;
    const GxLogger *log;
    GxCorpusFile *file; // [files]
    int64_t files, bytes;
    GxCorpusPlace place;
    int64_t piece;        // bytes of JSON lines, or of text files, that are read at once
    int64_t cut;          // the bytes of a text after which the next part begins, for another thread
    GxTextEnds text_ends; // counts those that are spelled out in the texts
    // private
    int64_t file_room, text_room, texts;
    struct GxCorpusText *text;
    int32_t *ids;
} GxCorpusReader;

#define GX_CORPUS_PATIENCE 5 // seconds between two log lines about the progress

int gx_corpus_has_documents(const char *path); // 1: a folder or records, so there may be several
// how: how records are read (the name of their text); NULL: gx_record_reading. log NULL: silence. Text that is not
// UTF-8 or contains a byte of value 0 is an error that names file and line, unless tokens are bytes.
GxStatus gx_corpus_open(GxCorpus *c, const char *path, const GxRecordReading *how, const GxTokenizer *t, int threads,
                        const GxLogger *log, GxError *err);
void gx_corpus_close(GxCorpus *c); // also of one that is all zero

GxStatus gx_corpus_reader_open(GxCorpusReader *r, const char *path, const GxRecordReading *how, const GxTokenizer *t,
                               int threads, const GxLogger *log, GxError *err);
void gx_corpus_reader_close(GxCorpusReader *r);         // also of one that is all zero
int64_t gx_corpus_reader_done(const GxCorpusReader *r); // the bytes read so far, of r->bytes
// After all documents have been read: warns about the ends of texts (text_ends.h).
void gx_corpus_reader_warn(const GxCorpusReader *r, const char *path, int64_t documents);
// Adds the documents of the next piece, text files or lines, to c, which begins as zeros. Threads share its texts.
GxStatus gx_corpus_reader_next(GxCorpusReader *r, GxCorpus *c, GxError *err);
GxStatus gx_corpus_check_some(int64_t tokens, const char *path, GxError *err); // fails if there are none

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CORPUS_IMPLEMENTED)
#define GX_CORPUS_IMPLEMENTED
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GX__CORPUS_PIECE = 1 << 25, GX__CORPUS_CUT = 1 << 19, GX__CORPUS_DEPTH = 64 }; // nested folders

typedef struct GxCorpusText { // a text, or the next part of a long one
    const char *text;
    int64_t bytes;
    int64_t at, n; // its ids in the piece's `ids`
    int goes_on;   // 1: continues the previous text
} GxCorpusText;

static int gx__corpus_is_records(const char *path)
{
    return gx_path_has_end(path, ".jsonl") || gx_path_has_end(path, ".ndjson");
}

int gx_corpus_has_documents(const char *path)
{
    return gx_path_is_folder(path) || gx__corpus_is_records(path) || gx_records_is_table(path);
}

// ---- documents -----------------------------------------------------------------------------------------------------

// Makes room for n more elements of `size` bytes after `have` in *array.
static GxStatus gx__corpus_grow(void **array, int64_t *room, int64_t have, int64_t n, int64_t size, GxError *err)
{
    if (have + n <= *room) return GX_OK;
    const int64_t more = gx_max(have + n, gx_max(1024, have + have / 2));
    void *grown = realloc(*array, (size_t)(more * size));
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the %.1f MB of a list", (double)(more * size) / 1e6);
    *array = grown, *room = more;
    return GX_OK;
}

static GxStatus gx__corpus_add(const GxCorpusReader *r, GxCorpus *c, const int32_t *ids, int64_t n, int64_t bytes,
                               GxError *err)
{
    const int64_t frame = gx_tokenizer_frame_tokens(r->t, 1);
    const GxTokenTexts one = {ids, NULL, n, 0};
    GxTokenFile *f = &c->file;
    int64_t framed = 0;
    GX_TRY(gx__corpus_grow((void **)&c->ids, &c->room, f->tokens, n + frame + 1, 4, err));
    GX_TRY(gx__corpus_grow((void **)&f->document, &c->document_room, f->documents, 2, sizeof *f->document, err));
    int32_t *to = c->ids + f->tokens;
    if (frame > 0) GX_TRY(gx_tokenizer_join(r->t, &one, n + frame, to, NULL, &framed, NULL, err));
    else memcpy(to, ids, (size_t)n * sizeof *to), framed = n;
    if (r->ends && r->t->end >= 0 && (framed == 0 || to[framed - 1] != r->t->end)) to[framed++] = r->t->end;
    if (framed == 0) c->empty++;
    if (framed == 0) return GX_OK;
    f->document[f->documents].begin = f->tokens, f->document[f->documents++].bytes = bytes;
    f->tokens += framed, f->bytes += bytes;
    f->document[f->documents].begin = f->tokens, f->document[f->documents].bytes = 0;
    return GX_OK;
}

// ---- texts, a piece at a time --------------------------------------------------------------------------------------

static GxStatus gx__corpus_encode(GxCorpusReader *r, GxError *err)
{
    int64_t most = 0, bytes = 0;
    for (int64_t i = 0; i < r->texts; i++) r->text[i].at = most, most += gx_tokenizer_most(r->t, r->text[i].bytes);
    for (int64_t i = 0; i < r->texts; i++) bytes += r->text[i].bytes;
    r->ids = (int32_t *)malloc((size_t)(most + 1) * sizeof *r->ids);
    if (!r->ids)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %.1f MB of text (4 bytes for each)",
                       (double)bytes / 1e6);
    GX_OMP(parallel for schedule(dynamic, 1) num_threads(r->threads > 0 ? r->threads : 1))
    for (int64_t i = 0; i < r->texts; i++) {
        GxCorpusText *text = &r->text[i];
        text->n = 0;
        if (gx_error_code(err) == GX_OK)
            gx_tokenizer_encode(r->t, text->text, text->bytes, GX_SPECIAL_AS_TEXT, r->ids + text->at, &text->n, err);
    }
    return gx_error_code(err);
}

// Joins the parts of long texts again.
static void gx__corpus_join_parts(GxCorpusReader *r)
{
    int64_t texts = 0;
    for (int64_t i = 0; i < r->texts; i++) {
        const GxCorpusText part = r->text[i];
        if (!part.goes_on) r->text[texts++] = part;
        if (!part.goes_on) continue;
        GxCorpusText *whole = &r->text[texts - 1];
        memmove(r->ids + whole->at + whole->n, r->ids + part.at, (size_t)part.n * sizeof *r->ids);
        whole->n += part.n, whole->bytes += part.bytes;
    }
    r->texts = texts;
}

// Turns the collected texts into documents of c.
static GxStatus gx__corpus_turn(GxCorpusReader *r, GxCorpus *c, GxError *err)
{
    GxStatus status = gx__corpus_encode(r, err);
    if (status == GX_OK) gx__corpus_join_parts(r);
    for (int64_t i = 0; i < r->texts && status == GX_OK; i++)
        status = gx__corpus_add(r, c, r->ids + r->text[i].at, r->text[i].n, r->text[i].bytes, err);
    free(r->ids);
    r->ids = NULL, r->texts = 0;
    return status;
}

// Collects a text, which must stay in place until gx__corpus_turn. A long one is cut where that changes nothing, so
// that threads share it.
static GxStatus gx__corpus_take(GxCorpusReader *r, GxCorpus *c, const char *text, int64_t bytes, GxError *err)
{
    if (bytes == 0) c->empty++;
    if (r->taker && r->taker->text) return bytes ? r->taker->text(r->taker->user, text, bytes, err) : GX_OK;
    if (r->log) gx_text_ends_count(&r->text_ends, text, bytes, bytes);
    for (int64_t begin = 0, end; begin < bytes; begin = end) {
        const GxCorpusText none = {text + begin, 0, 0, 0, begin > 0};
        GX_TRY(gx__corpus_grow((void **)&r->text, &r->text_room, r->texts, 1, sizeof *r->text, err));
        end = begin + gx_tokenizer_cut(r->t, text + begin, bytes - begin, gx_min(r->cut, bytes - begin));
        r->text[r->texts] = none;
        r->text[r->texts++].bytes = end - begin;
    }
    return GX_OK;
}

// Reads the next whole lines of a file, as many as fit into a piece, but at least one: free(*text); text[*n] is 0.
static GxStatus gx__corpus_read_lines(const GxCorpusReader *r, int fd, char **text, int64_t *n, GxError *err)
{
    const GxCorpusFile *f = &r->file[r->place.file];
    const int64_t rest = f->bytes - r->place.at;
    int64_t have = 0;
    *n = 0, *text = NULL;
    for (int64_t some = gx_min(r->piece, rest); *n == 0; some = gx_min(rest - have, have)) {
        if (some > GX_RECORDS_CAP - have)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the line has more than %ld bytes, the most that are read",
                           f->path, (long)r->place.line + 1, (long)have);
        char *grown = (char *)realloc(*text, (size_t)(have + some + 1));
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld bytes of %s", (long)(have + some), f->path);
        *text = grown;
        GX_TRY(gx_file_read_at(fd, f->path, grown + have, some, r->place.at + have, err));
        for (int64_t i = have + some; i > have && *n == 0; i--)
            if (grown[i - 1] == '\n') *n = i;
        have += some;
        if (have == rest) *n = have;
    }
    (*text)[*n] = 0;
    return GX_OK;
}

// At the end of a file of records: fails if it had none, or none with a text.
static GxStatus gx__corpus_end_records(GxCorpusReader *r, GxError *err)
{
    const GxCorpusPlace *at = &r->place, next = {at->file + 1, 0, 0, 0, 0, 0};
    const GxBadRecords *skip = r->how->skip;
    const char *path = r->file[at->file].path;
    if (at->records == 0 && skip && skip->n)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: all of its records are wrong, so none is left; the first one: %s", path,
                       skip->why[0]);
    if (at->records == 0) return GX_FAIL(err, GX_ERR_FORMAT, "%s holds no records", path);
    if (at->has_text) {
        if (r->how->used && !r->taker) r->how->used->text = 1;
        r->place = next;
        return GX_OK;
    }
    char names[GX_TEXT_VALUE];
    int has_text;
    const char *member = gx_chat_records_detect(path, r->how, &has_text, names);
    if (member)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: its records are conversations (\"%s\"), which are not read as texts; name the file itself "
                       "in train_llama's --train_data, or in ./tokenize's --corpus or --train",
                       path, member);
    return GX_FAIL(
        err, GX_ERR_FORMAT,
        "%s: no record has a \"%s\" that is not empty; the first record has: %s; %s; expected " GX_FILE_CORPORA, path,
        r->how->text, names[0] ? names : "nothing",
        r->how->used ? "--text_column NAME names another column, and --prompt_column and --completion_column those of "
                       "prompts and completions (\"chosen\" and \"rejected\" are for --task dpo)"
                     : "rename the column with the text to that");
}

static GxStatus gx__corpus_hand_lines(GxCorpusReader *r, GxTextPlace *place, char *lines, int64_t n, GxError *err)
{
    GxCorpusPlace *at = &r->place;
    int64_t records = 0;
    GX_TRY(r->taker->lines(r->taker->user, place, lines, n, &records, &at->empty_line, err));
    at->records += records, at->has_text |= records > 0;
    at->line = place->line - 1, at->at += n;
    return GX_OK;
}

static GxStatus gx__corpus_take_lines(GxCorpusReader *r, GxCorpus *c, char *lines, int64_t n, GxError *err)
{
    const GxRecordColumn column = {r->how->text, GX_COLUMN_SPARSE, 0, "text_column"};
    GxCorpusPlace *at = &r->place;
    GxTextPlace place = {r->file[at->file].path, at->line + 1, at->at};
    GxRecords records;
    if (at->empty_line && lines[strspn(lines, "\r\n")])
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: the line is empty, but others follow; remove it, or make it a record", place.path,
                       (long)at->empty_line);
    if (r->taker && r->taker->lines) return gx__corpus_hand_lines(r, &place, lines, n, err);
    GX_TRY(gx_records_open_lines(&records, &place, lines, n, &column, 1, r->how->skip, err));
    GxStatus status = GX_OK;
    if (!at->empty_line) at->empty_line = records.empty_line;
    for (int64_t i = 0; i < records.n && status == GX_OK; i++) {
        const char *text = gx_record(&records, i, 0);
        status = gx__corpus_take(r, c, text, (int64_t)strlen(text), err);
    }
    if (status == GX_OK) status = gx__corpus_turn(r, c, err);
    at->records += records.n, at->has_text |= records.has[0];
    at->line = place.line - 1, at->at += n;
    gx_records_close(&records);
    return status;
}

static int64_t gx__corpus_time(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + (int64_t)st->st_mtim.tv_nsec;
}

// Called after reading: fails if the file has changed since it was listed.
static GxStatus gx__corpus_check_file(const GxCorpusFile *f, GxError *err)
{
    struct stat st;
    if (stat(f->path, &st) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", f->path, strerror(errno));
    if ((int64_t)st.st_size == f->bytes && gx__corpus_time(&st) == f->mtime_ns) return GX_OK;
    return GX_FAIL(err, GX_ERR_IO,
                   "%s was changed while it was read: it has %ld byte%s now, and had %ld at the start; start again "
                   "when nothing writes to it",
                   f->path, (long)st.st_size, gx_text_s((int64_t)st.st_size), (long)f->bytes);
}

static GxStatus gx__corpus_next_lines(GxCorpusReader *r, GxCorpus *c, GxError *err)
{
    const GxCorpusFile *f = &r->file[r->place.file];
    char *lines = NULL;
    int fd;
    int64_t bytes, n;
    GX_TRY(gx_file_open(f->path, &fd, &bytes, err));
    GxStatus status = GX_OK;
    if (bytes != f->bytes)
        status = GX_FAIL(err, GX_ERR_IO, "%s has %ld bytes now, and had %ld: it was changed while it was read", f->path,
                         (long)bytes, (long)f->bytes);
    else if (bytes == 0) status = GX_FAIL(err, GX_ERR_FORMAT, "%s is empty; expected records", f->path);
    if (status == GX_OK) status = gx__corpus_read_lines(r, fd, &lines, &n, err);
    if (status == GX_OK) status = gx__corpus_check_file(f, err);
    if (status == GX_OK) status = gx__corpus_take_lines(r, c, lines, n, err);
    if (status == GX_OK && r->place.at == bytes) status = gx__corpus_end_records(r, err);
    free(lines);
    close(fd);
    return status;
}

// Reads a whole table, whose texts become documents a piece at a time.
static GxStatus gx__corpus_next_table(GxCorpusReader *r, GxCorpus *c, GxError *err)
{
    const GxCorpusFile *f = &r->file[r->place.file];
    const GxRecordColumn column = {r->how->text, GX_COLUMN_SPARSE, 0, "text_column"};
    GxRecords records;
    if (r->taker && r->taker->table) {
        GX_TRY(r->taker->table(r->taker->user, f->path, &r->place.records, err));
        GX_TRY(gx__corpus_check_file(f, err));
        r->place.has_text = r->place.records > 0;
        return gx__corpus_end_records(r, err);
    }
    GX_TRY(gx_records_open(&records, f->path, GX_RECORDS_BY_NAME, &column, 1, r->how->skip, err));
    GxStatus status = gx__corpus_check_file(f, err);
    int64_t bytes = 0;
    for (int64_t i = 0; i < records.n && status == GX_OK; i++) {
        const char *text = gx_record(&records, i, 0);
        const int64_t n = (int64_t)strlen(text);
        status = gx__corpus_take(r, c, text, n, err);
        bytes += n;
        if (status != GX_OK || (bytes < r->piece && i + 1 < records.n)) continue;
        status = gx__corpus_turn(r, c, err);
        bytes = 0;
    }
    r->place.records = records.n, r->place.has_text = records.has[0];
    gx_records_close(&records);
    return status == GX_OK ? gx__corpus_end_records(r, err) : status;
}

static GxStatus gx__corpus_read_text(GxCorpusReader *r, GxCorpus *c, const GxCorpusFile *f, char **text, GxError *err)
{
    int64_t bytes;
    GxTextPlace place = {f->path, 1, 0};
    GX_TRY(gx_file_read(f->path, INT64_MAX - 1, text, &bytes, err));
    GX_TRY(gx__corpus_check_file(f, err));
    if (r->t->kind != &gx_byte_tokens) GX_TRY(gx_text_check(&place, *text, bytes, err));
    return gx__corpus_take(r, c, *text, bytes, err);
}

// How many of the next text files fit into a piece, but at least one.
static int64_t gx__corpus_texts_at_hand(const GxCorpusReader *r)
{
    const GxCorpusFile *f = &r->file[r->place.file];
    const int64_t rest = r->files - r->place.file;
    int64_t n = 1, bytes = f[0].bytes;
    while (n < rest && !gx__corpus_is_records(f[n].path) && f[n].bytes <= r->piece - bytes) bytes += f[n++].bytes;
    return n;
}

static GxStatus gx__corpus_next_texts(GxCorpusReader *r, GxCorpus *c, GxError *err)
{
    const int64_t n = gx__corpus_texts_at_hand(r);
    char **text = (char **)calloc((size_t)n, sizeof *text);
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %ld texts", (long)n);
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < n && status == GX_OK; i++)
        status = gx__corpus_read_text(r, c, &r->file[r->place.file + i], &text[i], err);
    if (status == GX_OK) status = gx__corpus_turn(r, c, err);
    if (status == GX_OK) r->place.file += n;
    for (int64_t i = 0; i < n; i++) free(text[i]);
    free(text);
    return status;
}

GxStatus gx_corpus_reader_next(GxCorpusReader *r, GxCorpus *c, GxError *err)
{
    c->file.width = 4;
    memcpy(c->file.tokenizer, r->t->identity, sizeof c->file.tokenizer);
    if (gx__corpus_is_records(r->file[r->place.file].path)) return gx__corpus_next_lines(r, c, err);
    if (gx_records_is_table(r->file[r->place.file].path)) return gx__corpus_next_table(r, c, err);
    return gx__corpus_next_texts(r, c, err);
}

// ---- files ---------------------------------------------------------------------------------------------------------

static GxStatus gx__corpus_list_file(GxCorpusReader *r, const char *path, GxError *err)
{
    struct stat st;
    const int is_table = gx_records_is_table(path), is_records = gx__corpus_is_records(path) || is_table;
    if (stat(path, &st) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    GX_TRY(gx_file_check_kind(path,
                              is_table     ? GX_FILE_AS_TABLE
                              : is_records ? GX_FILE_AS_LINES
                                           : GX_FILE_AS_TEXT,
                              err));
    if (!is_records) gx_file_warn_of_kind(path, r->t->kind == &gx_byte_tokens, r->log);
    GX_TRY(gx__corpus_grow((void **)&r->file, &r->file_room, r->files, 1, sizeof *r->file, err));
    GxCorpusFile *f = &r->file[r->files];
    f->path = strdup(path);
    if (!f->path) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the path %s", path);
    f->bytes = (int64_t)st.st_size;
    f->mtime_ns = gx__corpus_time(&st);
    r->files++, r->bytes += f->bytes;
    return GX_OK;
}

// 1: the folder is a run's; a training may write into the folder of its texts.
static int gx__corpus_is_run(GxCorpusReader *r, const char *folder)
{
    if (!gx_folder_has(folder, "run.json")) return 0;
    if (r->log) gx_log(r->log, GX_LOG_INFO, "skipped: %s, which holds a run", folder);
    return 1;
}

// Files of a folder that are not read because of their names.
typedef struct {
    char names[GX_TEXT_VALUE]; // the first ones
    int64_t n, others;         // others: those of these n with a format that could be converted to texts or records
} gx__CorpusPassed;

static void gx__corpus_pass(gx__CorpusPassed *p, const char *name)
{
    const size_t n = strlen(p->names);
    p->n++, p->others += gx_file_is_other(name) || gx_path_has_end(name, ".json");
    if (snprintf(p->names + n, sizeof p->names - n, "%s%s", n ? ", " : "", name) >= (int)(sizeof p->names - n))
        gx_text_mark_cut(p->names, sizeof p->names);
}

static void gx__corpus_say_passed(const GxCorpusReader *r, const char *folder, const gx__CorpusPassed *p)
{
    if (!p->n || !r->log) return;
    gx_log(r->log, p->others ? GX_LOG_WARNING : GX_LOG_INFO,
           "skipped in %s: %ld file%s whose name%s in neither .txt nor .jsonl: %s", folder, (long)p->n, gx_text_s(p->n),
           p->n == 1 ? " ends" : "s end", p->names);
}

static GxStatus gx__corpus_list_folder(GxCorpusReader *r, const char *path, int depth, GxError *err)
{
    char inside[GX_PATH];
    GxFolder folder;
    gx__CorpusPassed passed = GX_ZERO;
    if (depth > GX__CORPUS_DEPTH)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s lies more than %d folders deep", path, GX__CORPUS_DEPTH);
    GX_TRY(gx_folder_list(&folder, path, err));
    GxStatus status = GX_OK;
    for (int i = 0; i < folder.n && status == GX_OK; i++) {
        const GxFolderEntry *e = &folder.entry[i];
        status = gx_path_join(inside, path, e->name, err);
        const int is_folder = e->is_folder,
                  is_read = gx__corpus_is_records(e->name) || gx_path_has_end(e->name, ".txt");
        if (status == GX_OK && is_folder && gx__corpus_is_run(r, inside)) continue;
        if (status == GX_OK && is_folder) status = gx__corpus_list_folder(r, inside, depth + 1, err);
        else if (status == GX_OK && is_read && gx_path_is_file(inside)) status = gx__corpus_list_file(r, inside, err);
        else if (status == GX_OK && is_read && r->log)
            gx_log(r->log, GX_LOG_WARNING, "skipped: %s, which is %s", inside, gx_path_kind(inside));
        else if (status == GX_OK && !is_read && e->is_file && e->name[0] != '.') gx__corpus_pass(&passed, e->name);
    }
    gx__corpus_say_passed(r, path, &passed);
    gx_folder_close(&folder);
    return status;
}

GxStatus gx_corpus_reader_open(GxCorpusReader *r, const char *path, const GxRecordReading *how, const GxTokenizer *t,
                               int threads, const GxLogger *log, GxError *err)
{
    memset(r, 0, sizeof *r);
    r->how = how ? how : &gx_record_reading, r->t = t, r->threads = threads, r->ends = gx_corpus_has_documents(path),
    r->log = log;
    r->piece = GX__CORPUS_PIECE, r->cut = GX__CORPUS_CUT, r->text_ends = gx_text_ends(t);
    const GxStatus status =
        gx_path_is_folder(path) ? gx__corpus_list_folder(r, path, 0, err) : gx__corpus_list_file(r, path, err);
    if (status != GX_OK) gx_corpus_reader_close(r);
    return status;
}

void gx_corpus_reader_close(GxCorpusReader *r)
{
    for (int64_t i = 0; i < r->files; i++) free(r->file[i].path);
    free(r->file), free(r->text);
    memset(r, 0, sizeof *r);
}

void gx_corpus_reader_warn(const GxCorpusReader *r, const char *path, int64_t documents)
{
    gx_text_ends_warn(&r->text_ends, path, r->log);
    gx_text_ends_warn_of_none(r->t, path, documents, r->log);
}

int64_t gx_corpus_reader_done(const GxCorpusReader *r)
{
    int64_t bytes = r->place.at;
    for (int64_t i = 0; i < r->place.file; i++) bytes += r->file[i].bytes;
    return bytes;
}

// ---- all of it in memory -------------------------------------------------------------------------------------------

GxStatus gx_corpus_check_some(int64_t tokens, const char *path, GxError *err)
{
    if (tokens > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "there is no text in %s; expected " GX_FILE_CORPORA, path);
}

GxStatus gx_corpus_open(GxCorpus *c, const char *path, const GxRecordReading *how, const GxTokenizer *t, int threads,
                        const GxLogger *log, GxError *err)
{
    GxCorpusReader r;
    double said = gx_seconds();
    memset(c, 0, sizeof *c);
    GX_TRY(gx_corpus_reader_open(&r, path, how, t, threads, log, err));
    GxStatus status = GX_OK;
    while (r.place.file < r.files && status == GX_OK) {
        status = gx_corpus_reader_next(&r, c, err);
        if (!log || gx_seconds() - said < GX_CORPUS_PATIENCE) continue;
        said = gx_seconds();
        gx_log(log, GX_LOG_INFO, "%.1f MB of text so far, %.1f million tokens", (double)c->file.bytes / 1e6,
               (double)c->file.tokens / 1e6);
    }
    if (status == GX_OK) status = gx_corpus_check_some(c->file.tokens, path, err);
    if (status == GX_OK) gx_corpus_reader_warn(&r, path, c->file.documents);
    if (status == GX_OK && c->empty)
        gx_log(log, GX_LOG_WARNING, "%s: %ld of %ld texts %s empty, or from records without a \"%s\", and left out",
               path, (long)c->empty, (long)(c->empty + c->file.documents), c->empty == 1 ? "is" : "are",
               how ? how->text : gx_record_reading.text);
    gx_corpus_reader_close(&r);
    if (status != GX_OK) gx_corpus_close(c);
    return status;
}

void gx_corpus_close(GxCorpus *c)
{
    free(c->ids);
    gx_token_file_close(&c->file);
    memset(c, 0, sizeof *c);
}
#endif
