// corpus.h: texts as documents of tokens, in memory: a text file, a file of JSON lines with a "text" in each, or a
// folder of them.
//
//     GX_TRY(gx_corpus_open(&c, "texts/", &tokenizer, threads, &g->log, err));
//     gx_token_file_write("texts.tokens", &c.file, c.ids, err);
//     gx_corpus_close(&c);
//
// A file .txt is a document, so is every record of .jsonl; a folder's are those of its .txt and .jsonl files and of the
// folders in it, in the order of their names; a folder in it that holds a run (run.json) is passed over, and said to
// be: its log and its checkpoints are no texts. A document is one text to the tokenizer, in its frame; where there may
// be several, the tokenizer's end of a text (eos_token) stands behind each, if it has one and the frame does not end
// so. Texts that are empty are left out. Which threads do what changes nothing.
//
// Memory: 4 bytes per token and 16 per document; meanwhile a file, or the texts of one, and 4 bytes for each byte of
// the texts that are tokenized at a time (32 MB, or one text).
#ifndef GX_CORPUS_H
#define GX_CORPUS_H
#include "../base/log.h"
#include "records.h"
#include "token_file.h"
#include "tokenizer.h"
GX_BEGIN

typedef struct {
    GxTokenFile file; // its width is 4
    int32_t *ids;     // [file.tokens]
    int64_t empty;    // texts that were left out
} GxCorpus;

int gx_corpus_has_documents(const char *path); // 1: a folder, or .jsonl: it may be more than one
// log NULL: silence. What is not UTF-8, or has a byte of value 0, is an error that names the file and the line, but
// where bytes are the tokens.
GxStatus gx_corpus_open(GxCorpus *c, const char *path, const GxTokenizer *t, int threads, const GxLogger *log,
                        GxError *err);
void gx_corpus_close(GxCorpus *c); // also of one that is all zero

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CORPUS_IMPLEMENTED)
#define GX_CORPUS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GX__CORPUS_TURN = 1 << 25, GX__CORPUS_DEPTH = 64 }; // bytes that are tokenized at a time; folders in folders
#define GX__CORPUS_PATIENCE 5                              // seconds between two lines about how far it is

typedef struct {
    const char *text;
    int64_t bytes;
    int64_t at, n; // its ids in `ids` of the turn
} gx__CorpusText;

typedef struct {
    GxCorpus *c;
    const GxTokenizer *t;
    int threads, ends; // ends: a document gets an end of text
    const GxLogger *log;
    GxError *err;
    double said;
    int64_t room, document_room;
    // of a turn
    gx__CorpusText *text;
    int64_t texts, text_room, bytes;
    int32_t *ids;
} gx__CorpusReading;

static int gx__corpus_ends_with(const char *path, const char *suffix)
{
    const size_t n = strlen(path), m = strlen(suffix);
    return n >= m && !strcasecmp(path + n - m, suffix);
}

static int gx__corpus_is_records(const char *path)
{
    return gx__corpus_ends_with(path, ".jsonl") || gx__corpus_ends_with(path, ".ndjson");
}

int gx_corpus_has_documents(const char *path) { return gx_path_is_folder(path) || gx__corpus_is_records(path); }

// ---- documents -----------------------------------------------------------------------------------------------------

// Room for n more of `size` bytes behind `have` in *array.
static GxStatus gx__corpus_grow(void **array, int64_t *room, int64_t have, int64_t n, int64_t size, GxError *err)
{
    if (have + n <= *room) return GX_OK;
    const int64_t more = gx_max(have + n, gx_max(1024, have + have / 2));
    void *grown = realloc(*array, (size_t)(more * size));
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the %.1f MB of a list", (double)(more * size) / 1e6);
    *array = grown, *room = more;
    return GX_OK;
}

static GxStatus gx__corpus_add(gx__CorpusReading *x, const int32_t *ids, int64_t n, int64_t bytes)
{
    GxCorpus *c = x->c;
    const int64_t frame = gx_tokenizer_frame_tokens(x->t, 1);
    const GxTokenTexts one = {ids, NULL, n, 0};
    GxTokenFile *f = &c->file;
    int64_t framed = 0;
    GX_TRY(gx__corpus_grow((void **)&c->ids, &x->room, f->tokens, n + frame + 1, 4, x->err));
    GX_TRY(gx__corpus_grow((void **)&f->document, &x->document_room, f->documents, 2, sizeof *f->document, x->err));
    int32_t *to = c->ids + f->tokens;
    if (frame > 0) GX_TRY(gx_tokenizer_join(x->t, &one, n + frame, to, NULL, &framed, NULL, x->err));
    else memcpy(to, ids, (size_t)n * sizeof *to), framed = n;
    if (x->ends && x->t->end >= 0 && (framed == 0 || to[framed - 1] != x->t->end)) to[framed++] = x->t->end;
    if (framed == 0) c->empty++;
    if (framed == 0) return GX_OK;
    f->document[f->documents].begin = f->tokens, f->document[f->documents++].bytes = bytes;
    f->tokens += framed, f->bytes += bytes;
    f->document[f->documents].begin = f->tokens, f->document[f->documents].bytes = 0;
    return GX_OK;
}

// ---- texts, a turn at a time ---------------------------------------------------------------------------------------

static GxStatus gx__corpus_encode(gx__CorpusReading *x)
{
    int64_t most = 0;
    for (int64_t i = 0; i < x->texts; i++) x->text[i].at = most, most += gx_tokenizer_most(x->t, x->text[i].bytes);
    x->ids = (int32_t *)malloc((size_t)(most + 1) * sizeof *x->ids);
    if (!x->ids)
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the tokens of %.1f MB of text (4 bytes for each)",
                       (double)x->bytes / 1e6);
    GX_OMP(parallel for schedule(dynamic, 1) num_threads(x->threads > 0 ? x->threads : 1))
    for (int64_t i = 0; i < x->texts; i++) {
        gx__CorpusText *text = &x->text[i];
        text->n = 0;
        if (gx_error_code(x->err) == GX_OK)
            gx_tokenizer_encode(x->t, text->text, text->bytes, GX_SPECIAL_AS_TEXT, x->ids + text->at, &text->n, x->err);
    }
    return gx_error_code(x->err);
}

static GxStatus gx__corpus_turn(gx__CorpusReading *x)
{
    GxStatus status = gx__corpus_encode(x);
    for (int64_t i = 0; i < x->texts && status == GX_OK; i++)
        status = gx__corpus_add(x, x->ids + x->text[i].at, x->text[i].n, x->text[i].bytes);
    free(x->ids);
    x->ids = NULL, x->texts = x->bytes = 0;
    if (status == GX_OK && x->log && gx_seconds() - x->said > GX__CORPUS_PATIENCE) {
        x->said = gx_seconds();
        gx_log(x->log, GX_LOG_INFO, "%.1f MB of text are %.1f million tokens so far", (double)x->c->file.bytes / 1e6,
               (double)x->c->file.tokens / 1e6);
    }
    return status;
}

// The text stays where it is until the turn is over.
static GxStatus gx__corpus_take(gx__CorpusReading *x, const char *text, int64_t bytes)
{
    if (bytes == 0) x->c->empty++;
    if (bytes == 0) return GX_OK;
    GX_TRY(gx__corpus_grow((void **)&x->text, &x->text_room, x->texts, 1, sizeof *x->text, x->err));
    x->text[x->texts].text = text, x->text[x->texts++].bytes = bytes;
    x->bytes += bytes;
    return x->bytes >= GX__CORPUS_TURN ? gx__corpus_turn(x) : GX_OK;
}

static GxStatus gx__corpus_read_records(gx__CorpusReading *x, const char *path)
{
    static const GxRecordColumn column = {"text", GX_COLUMN_SPARSE, 0};
    GxRecords r;
    GX_TRY(gx_records_open(&r, path, GX_RECORDS_JSONL, &column, 1, x->err));
    GxStatus status = GX_OK;
    if (!r.has[0])
        status = GX_FAIL(x->err, GX_ERR_FORMAT,
                         "%s: no record has a \"text\" with something in it; expected {\"text\": \"...\"} in each line",
                         path);
    for (int64_t i = 0; i < r.n && status == GX_OK; i++) {
        const char *text = gx_record(&r, i, 0);
        status = gx__corpus_take(x, text, (int64_t)strlen(text));
    }
    if (status == GX_OK) status = gx__corpus_turn(x);
    gx_records_close(&r);
    return status;
}

static GxStatus gx__corpus_read_text(gx__CorpusReading *x, const char *path)
{
    char *text;
    int64_t bytes;
    GxTextPlace place = {path, 1, 0};
    GX_TRY(gx_file_read(path, INT64_MAX - 1, &text, &bytes, x->err));
    GxStatus status = x->t->kind == &gx_byte_tokens ? GX_OK : gx_text_check(&place, text, bytes, x->err);
    if (status == GX_OK) status = gx__corpus_take(x, text, bytes);
    if (status == GX_OK) status = gx__corpus_turn(x);
    free(text);
    return status;
}

static GxStatus gx__corpus_read_file(gx__CorpusReading *x, const char *path)
{
    return gx__corpus_is_records(path) ? gx__corpus_read_records(x, path) : gx__corpus_read_text(x, path);
}

// A training may write into the folder that its texts are in.
static int gx__corpus_is_run(gx__CorpusReading *x, const char *folder)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO;
    if (gx_path_join(path, folder, "run.json", &ignored) != GX_OK || !gx_path_is_file(path)) return 0;
    if (x->log) gx_log(x->log, GX_LOG_INFO, "passed over: %s, which holds a run", folder);
    return 1;
}

static GxStatus gx__corpus_read_folder(gx__CorpusReading *x, const char *path, int depth)
{
    char inside[GX_PATH];
    GxFolder folder;
    if (depth > GX__CORPUS_DEPTH)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s lies more than %d folders deep", path, GX__CORPUS_DEPTH);
    GX_TRY(gx_folder_list(&folder, path, x->err));
    GxStatus status = GX_OK;
    for (int i = 0; i < folder.n && status == GX_OK; i++) {
        const GxFolderEntry *e = &folder.entry[i];
        status = gx_path_join(inside, path, e->name, x->err);
        const int is_folder = e->is_folder,
                  is_read = gx__corpus_is_records(e->name) || gx__corpus_ends_with(e->name, ".txt");
        if (status == GX_OK && is_folder && gx__corpus_is_run(x, inside)) continue;
        if (status == GX_OK && is_folder) status = gx__corpus_read_folder(x, inside, depth + 1);
        else if (status == GX_OK && is_read && gx_path_is_file(inside)) status = gx__corpus_read_file(x, inside);
    }
    gx_folder_close(&folder);
    return status;
}

GxStatus gx_corpus_open(GxCorpus *c, const char *path, const GxTokenizer *t, int threads, const GxLogger *log,
                        GxError *err)
{
    gx__CorpusReading x = GX_ZERO;
    memset(c, 0, sizeof *c);
    x.c = c, x.t = t, x.threads = threads, x.ends = gx_corpus_has_documents(path), x.log = log, x.err = err;
    x.said = gx_seconds();
    c->file.width = 4;
    memcpy(c->file.tokenizer, t->identity, sizeof c->file.tokenizer);
    GxStatus status = gx_path_is_folder(path) ? gx__corpus_read_folder(&x, path, 0) : gx__corpus_read_file(&x, path);
    if (status == GX_OK && c->file.tokens == 0)
        status =
            GX_FAIL(err, GX_ERR_FORMAT,
                    "there is no text in %s; expected a text file, .jsonl with a \"text\" in each line, or a folder "
                    "of .txt and .jsonl files",
                    path);
    free(x.text);
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
