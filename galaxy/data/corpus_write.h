// corpus_write.h: writes texts of any size to a file of tokens, a part at a time; after an interruption it continues
// where it was.
//
//     GxCorpusWriting how = {threads, &log, NULL, NULL, 0, 0, NULL, 0, NULL};
//     GX_TRY(gx_corpus_write("texts.tokens", "texts/", &tokenizer, &how, &all, err));
//
// Parts are files of tokens in the folder texts.tokens.parts, which is made if there is more than one; progress.json in
// it says which texts they contain. At the end they are joined, the file gets its name, and the folder is removed. So
// texts.tokens exists only when it is complete, and its bytes depend neither on parts nor on interruptions. Continuing
// requires the same texts (paths, sizes, modification times) and the same tokenizer; otherwise it is an error. Only one
// program at a time can write a file.
//
// A file of conversations (dataset_chat.h) becomes one of version 4 (token_file.h), with a mask of what is learned; no
// document is longer than seq_len. Its documents are the same as in training on the file itself.
//
// Memory: a part (the tokens of 64 MB of text), and what corpus.h needs for a piece: a text file is one text, and is in
// memory as a whole. Disk: temporarily twice the file of tokens.
#ifndef GX_CORPUS_WRITE_H
#define GX_CORPUS_WRITE_H
#include "chat_tokens.h"
#include "corpus.h"
GX_BEGIN

#define GX_CORPUS_PARTS ".parts" // appended to the path of the file of tokens

typedef struct {
    int threads;
    const GxLogger *log; // NULL: silence
    // Called after each piece with the bytes of the texts so far and in total, and the tokens so far. May be NULL.
    void (*progress)(void *user, int64_t done, int64_t bytes, int64_t tokens);
    void *user;
    int64_t piece, part;        // bytes of text that are read at once, and that make a part; 0: 32 MB, 64 MB
    const GxChatReading *chats; // for a file of conversations; NULL: texts
    int64_t seq_len;            // for conversations
    const char *date;           // for conversations: the day that the template takes for today
} GxCorpusWriting;

// path: a text, JSON lines or a folder. *all: the counts of tokens, documents and bytes, without the ids (for
// conversations also all->file.chats); it needs no close.
GxStatus gx_corpus_write(const char *output_file, const char *path, const GxTokenizer *t, const GxCorpusWriting *how,
                         GxCorpus *all, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CORPUS_WRITE_IMPLEMENTED)
#define GX_CORPUS_WRITE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../io/folder.h"
#include "../io/json_fields.h"

enum { GX__CORPUS_PART = 1 << 26, GX__CORPUS_MOST_PARTS = 1000000 };

typedef struct {                    // progress.json
    int64_t version, around, texts; // around, texts: hashes of what surrounds a text, and of the texts' files
    char tokenizer[GX_FIELD_TEXT];  // its identity
    int64_t parts, tokens, documents, bytes, empty; // in the parts
    GxCorpusPlace place;                            // where to continue
    GxDatasetChat chat;                             // for conversations
} gx__CorpusProgress;

typedef struct {
    const GxCorpusWriting *how;
    const char *output_file;
    char folder[GX_PATH];
    GxCorpusReader r;
    GxCorpus c;         // of the part
    GxChatTokens chats; // instead of c, for conversations
    GxCorpusTaker taker;
    gx__CorpusProgress so_far;
    GxError *err;
} gx__CorpusWriter;

#define GX__CORPUS_PROGRESS(name, field, help)                                                                         \
    {                                                                                                                  \
        name, GX_FIELD_INT, offsetof(gx__CorpusProgress, field), NULL, help, "0.."                                     \
    }
static const GxField gx__corpus_progress[] = {
    GX__CORPUS_PROGRESS("version", version, "of this file"),
    {"around", GX_FIELD_INT, offsetof(gx__CorpusProgress, around), NULL, "a hash", NULL},
    {"texts", GX_FIELD_INT, offsetof(gx__CorpusProgress, texts), NULL, "a hash", NULL},
    {"tokenizer", GX_FIELD_STRING, offsetof(gx__CorpusProgress, tokenizer), NULL, "its identity", NULL},
    {"parts", GX_FIELD_INT, offsetof(gx__CorpusProgress, parts), NULL, "that are whole", "0..1000000"},
    GX__CORPUS_PROGRESS("tokens", tokens, "in these"),
    GX__CORPUS_PROGRESS("documents", documents, "in these"),
    GX__CORPUS_PROGRESS("bytes", bytes, "of their texts"),
    GX__CORPUS_PROGRESS("empty", empty, "texts that were left out"),
    GX__CORPUS_PROGRESS("file", place.file, "that comes next"),
    GX__CORPUS_PROGRESS("at", place.at, "byte of it"),
    GX__CORPUS_PROGRESS("line", place.line, "of it"),
    GX__CORPUS_PROGRESS("records", place.records, "of it so far"),
    GX__CORPUS_PROGRESS("has_text", place.has_text, "one of these"),
    GX__CORPUS_PROGRESS("empty_line", place.empty_line, "of it"),
};
static const GxField gx__corpus_chat_progress[] = {
    GX__CORPUS_PROGRESS("conversations", chat.n, "in these, or left out"),
    GX__CORPUS_PROGRESS("prompts", chat.texts, "of them, with completions that are texts"),
    GX__CORPUS_PROGRESS("learned", chat.learned, "tokens in these"),
    GX__CORPUS_PROGRESS("shortened", chat.shortened, "conversations"),
    GX__CORPUS_PROGRESS("left_out", chat.left_out, "documents"),
    GX__CORPUS_PROGRESS("unanswered", chat.unanswered, "conversations"),
    GX__CORPUS_PROGRESS("lacks_system", chat.lacks[0], "conversations"),
    GX__CORPUS_PROGRESS("lacks_user", chat.lacks[1], "conversations"),
    GX__CORPUS_PROGRESS("lacks_end", chat.lacks[2], "conversations"),
};

// ---- what is on the disk -------------------------------------------------------------------------------------------

static GxStatus gx__corpus_part_path(char path[GX_PATH], const char *folder, int64_t part, GxError *err)
{
    char name[40];
    snprintf(name, sizeof name, "part-%06ld.tokens", (long)part);
    return gx_path_join(path, folder, name, err);
}

// Identifies the texts of the parts, and how they become tokens.
static gx__CorpusProgress gx__corpus_identity(const GxCorpusReader *r, const GxCorpusWriting *how, const char *path)
{
    gx__CorpusProgress p = GX_ZERO;
    uint64_t texts = gx_hash(GX_HASH_START, &r->ends, sizeof r->ends),
             around = gx_hash(GX_HASH_START, &r->t->end, sizeof r->t->end);
    const GxTokenFrame *frame = &r->t->frame[0];
    for (int i = 0; i < frame->n; i++) around = gx_hash(around, &frame->part[i].id, sizeof frame->part[i].id);
    if (how->chats) {
        const uint64_t format = gx_chat_reading_hash(how->chats, r->t);
        around = gx_hash(gx_hash(around, &format, sizeof format), &how->seq_len, sizeof how->seq_len);
        around = gx_hash(around, how->date, (int64_t)strlen(how->date));
    }
    for (int64_t i = 0; i < r->files; i++) {
        const GxCorpusFile *f = &r->file[i];
        const char *name = f->path + strlen(path); // relative to the folder, whose path may be given differently
        name += strspn(name, "/");
        texts = gx_hash(texts, name, (int64_t)strlen(name) + 1);
        texts = gx_hash(gx_hash(texts, &f->bytes, sizeof f->bytes), &f->mtime_ns, sizeof f->mtime_ns);
    }
    p.version = 1, p.around = (int64_t)around, p.texts = (int64_t)texts;
    snprintf(p.tokenizer, sizeof p.tokenizer, "%s", r->t->identity);
    return p;
}

static GxStatus gx__corpus_write_progress(gx__CorpusWriter *x)
{
    char path[GX_PATH];
    GxJson *json = gx_json_new_object();
    x->so_far.place = x->r.place;
    GxStatus status = gx_path_join(path, x->folder, "progress.json", x->err);
    if (status == GX_OK) status = gx_json_set_fields(json, GX_FIELDS(gx__corpus_progress), &x->so_far, x->err);
    if (status == GX_OK && x->how->chats)
        status = gx_json_set_fields(json, GX_FIELDS(gx__corpus_chat_progress), &x->so_far, x->err);
    if (status == GX_OK) status = gx_json_write(json, path, x->err);
    gx_json_free(json);
    return status;
}

static GxStatus gx__corpus_read_progress(const char *path, gx__CorpusProgress *p, GxError *err)
{
    GxJson *json;
    GX_TRY(gx_json_read(&json, path, 1 << 14, err));
    GxStatus status = gx_json_get_fields(json, GX_FIELDS(gx__corpus_progress), 1, p, path, err);
    if (status == GX_OK) // progress of texts has none, and is recognised as another run's
        status = gx_json_get_fields(json, GX_FIELDS(gx__corpus_chat_progress), 0, p, path, err);
    gx_json_free(json);
    return status;
}

// 1: "part-000001.tokens", "joined.tokens", "progress.json", or the temporary name of one of them, with ".tmp-PID-N" at
// its end.
static int gx__corpus_is_ours(const char *name)
{
    static const char *const plain[] = {"joined.tokens", "progress.json"};
    int64_t n = 0;
    for (size_t i = 0; i < 2; i++)
        if (!strncmp(name, plain[i], strlen(plain[i]))) n = (int64_t)strlen(plain[i]);
    if (!strncmp(name, "part-", 5) && strspn(name + 5, "0123456789") == 6 && !strncmp(name + 11, ".tokens", 7)) n = 18;
    if (n == 0 || !name[n]) return n > 0;
    return !strncmp(name + n, ".tmp-", 5) && name[n + 5] && strspn(name + n + 5, "0123456789-") == strlen(name + n + 5);
}

// Refuses a folder of that name that was not made here.
static GxStatus gx__corpus_check_ours(const char *path, GxError *err)
{
    GxFolder folder;
    const char *other = NULL;
    char name[GX_FILE_NAME];
    GX_TRY(gx_folder_list(&folder, path, err));
    for (int i = 0; i < folder.n; i++) {
        snprintf(name, sizeof name, "%s", folder.entry[i].name);
        if (folder.entry[i].is_folder || !gx__corpus_is_ours(name)) {
            other = name;
            break;
        }
    }
    gx_folder_close(&folder);
    if (!other) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the folder %s, in which parts of the file are collected, contains something else (%s); remove it, "
                   "or choose another name for the file",
                   path, other);
}

// ---- continuing ----------------------------------------------------------------------------------------------------

static GxStatus gx__corpus_check_progress(const gx__CorpusWriter *x, const gx__CorpusProgress *then, const char *path)
{
    const gx__CorpusProgress *now = &x->so_far;
    const GxCorpusPlace *p = &then->place;
    char cut[GX_TEXT_VALUE];
    const char *what =
        then->version != 1                        ? "it was written by another version of this program"
        : strcmp(then->tokenizer, now->tokenizer) ? "it was written with another tokenizer: "
        : then->around != now->around
            ? "it was written with other tokens around a text, or another chat template, --chat_date or --seq_len"
        : then->texts != now->texts                      ? "the texts have changed since"
        : p->file > x->r.files                           ? "it was damaged"
        : p->file == x->r.files && p->at > 0             ? "it was damaged"
        : p->at > 0 && p->at >= x->r.file[p->file].bytes ? "it was damaged"
                                                         : NULL;
    if (!what) return GX_OK;
    return GX_FAIL(
        x->err, GX_ERR_ARGUMENT,
        "%s belongs to a run that was not finished, and this run cannot continue it: %s%s; remove %s to start again",
        path, what, strcmp(then->tokenizer, now->tokenizer) ? gx_text_cut(then->tokenizer, cut, sizeof cut) : "",
        x->folder);
}

static GxStatus gx__corpus_go_on(gx__CorpusWriter *x)
{
    char path[GX_PATH];
    gx__CorpusProgress then = GX_ZERO;
    if (!gx_path_is_folder(x->folder)) return GX_OK;
    GX_TRY(gx__corpus_check_ours(x->folder, x->err));
    GX_TRY(gx_path_join(path, x->folder, "progress.json", x->err));
    if (!gx_path_is_file(path)) return GX_OK; // it was killed before the first part was complete
    GX_TRY(gx__corpus_read_progress(path, &then, x->err));
    GX_TRY(gx__corpus_check_progress(x, &then, path));
    x->so_far = then, x->r.place = then.place;
    if (x->how->log)
        gx_log(x->how->log, GX_LOG_INFO, "continuing %s: %.1f of %.1f MB are done", x->folder,
               (double)gx_corpus_reader_done(&x->r) / 1e6, (double)x->r.bytes / 1e6);
    return GX_OK;
}

// ---- parts ---------------------------------------------------------------------------------------------------------

static GxTokenFile *gx__corpus_file(gx__CorpusWriter *x) { return x->how->chats ? &x->chats.file : &x->c.file; }

// Reads lines of conversations.
static GxStatus gx__corpus_take_chats(void *user, GxTextPlace *place, char *lines, int64_t n, int64_t *records,
                                      int64_t *empty_line, GxError *err)
{
    gx__CorpusWriter *x = (gx__CorpusWriter *)user;
    const int64_t before = x->chats.counts.n;
    const int has_mark = place->line == 1 && !strncmp(lines, "\xEF\xBB\xBF", 3);
    GxChatLines some = GX_ZERO;
    some.path = place->path, some.first = place->line, some.text = lines + 3 * has_mark, some.bytes = n - 3 * has_mark;
    some.byte = place->byte + 3 * has_mark, some.is_sound = 1;
    GX_TRY(gx_text_check(place, lines, n, err)); // also advances place
    GX_TRY(gx_chat_tokens_add(&x->chats, &some, x->r.t, x->how->chats, x->how->seq_len, x->how->threads, err));
    *records = x->chats.counts.n - before;
    if (some.empty_line) *empty_line = some.empty_line;
    return GX_OK;
}

static GxStatus gx__corpus_take_chat_table(void *user, const char *path, int64_t *records, GxError *err)
{
    gx__CorpusWriter *x = (gx__CorpusWriter *)user;
    const int64_t before = x->chats.counts.n;
    GX_TRY(gx_chat_tokens_add_table(&x->chats, path, x->r.t, x->how->chats, x->how->seq_len, x->how->threads, err));
    *records = x->chats.counts.n - before;
    return GX_OK;
}

static void gx__corpus_describe_chats(const gx__CorpusWriter *x, GxTokenChats *chats, const GxDatasetChat *counts)
{
    const GxChatReading *how = x->how->chats;
    memset(chats, 0, sizeof *chats);
    gx_text_cut(how->format ? gx_chat_name(how->format) : "alpaca", chats->format, sizeof chats->format);
    snprintf(chats->date, sizeof chats->date, "%s", x->how->date);
    chats->format_hash = (int64_t)gx_chat_reading_hash(how, x->r.t), chats->seq_len = x->how->seq_len;
    chats->counts = *counts;
}

// Writes what is in memory to a file of tokens. counts: for conversations.
static GxStatus gx__corpus_put(gx__CorpusWriter *x, const char *path, const GxDatasetChat *counts)
{
    GxTokenFile *f = gx__corpus_file(x);
    if (!x->how->chats) return gx_token_file_write(path, f, x->c.ids, NULL, x->err);
    unsigned char *mask = (unsigned char *)calloc((size_t)gx_ceil_div(f->tokens, 8), 1);
    if (!mask) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a mask of %ld tokens", (long)f->tokens);
    for (int64_t i = 0; i < f->tokens; i++)
        if (x->chats.is_learned[i]) mask[i / 8] = (unsigned char)(mask[i / 8] | 1 << (i % 8));
    gx__corpus_describe_chats(x, &f->chats, counts);
    const GxStatus status = gx_token_file_write(path, f, x->chats.ids, mask, x->err);
    free(mask);
    return status;
}

static void gx__corpus_count_chats(GxDatasetChat *all, const GxDatasetChat *more)
{
    all->n += more->n, all->learned += more->learned, all->shortened += more->shortened;
    all->texts += more->texts, all->left_out += more->left_out, all->unanswered += more->unanswered;
    for (int i = 0; i < GX_CHAT_LACKS; i++) all->lacks[i] += more->lacks[i];
}

// Writes what is in memory as a part, then updates progress.json.
static GxStatus gx__corpus_flush(gx__CorpusWriter *x)
{
    const GxDatasetChat none = GX_ZERO;
    GxTokenFile *f = gx__corpus_file(x);
    gx__CorpusProgress *p = &x->so_far;
    char path[GX_PATH];
    GX_TRY(gx_folder_make(x->folder, x->err));
    if (f->tokens > 0) {
        if (p->parts == GX__CORPUS_MOST_PARTS)
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s has %d parts; more are not made", x->folder,
                           GX__CORPUS_MOST_PARTS);
        GX_TRY(gx__corpus_part_path(path, x->folder, p->parts, x->err));
        GX_TRY(gx__corpus_put(x, path, &x->chats.counts));
        p->parts++;
    }
    p->tokens += f->tokens, p->documents += f->documents, p->bytes += f->bytes, p->empty += x->c.empty;
    f->tokens = f->documents = f->bytes = x->c.empty = 0;
    gx__corpus_count_chats(&p->chat, &x->chats.counts);
    x->chats.counts = none;
    return gx__corpus_write_progress(x);
}

static GxStatus gx__corpus_join_paths(gx__CorpusWriter *x, char **part, const char *joined)
{
    const gx__CorpusProgress *p = &x->so_far;
    GxTokenFile all;
    GxTokenChats chats;
    if (x->how->chats) gx__corpus_describe_chats(x, &chats, &p->chat);
    for (int64_t i = 0; i < p->parts; i++) {
        char path[GX_PATH];
        GX_TRY(gx__corpus_part_path(path, x->folder, i, x->err));
        part[i] = strdup(path);
        if (!part[i]) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the names of %ld parts", (long)p->parts);
    }
    GX_TRY(
        gx_token_file_join(joined, (const char *const *)part, p->parts, x->how->chats ? &chats : NULL, &all, x->err));
    if (all.tokens == p->tokens && all.documents == p->documents && all.bytes == p->bytes &&
        !strcmp(all.tokenizer, x->r.t->identity))
        return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT,
                   "the parts in %s have %ld token%s in %ld document%s, but %ld in %ld were expected: they were "
                   "changed; remove the folder to start again",
                   x->folder, (long)all.tokens, gx_text_s(all.tokens), (long)all.documents, gx_text_s(all.documents),
                   (long)p->tokens, (long)p->documents);
}

static GxStatus gx__corpus_join(gx__CorpusWriter *x)
{
    char joined[GX_PATH];
    char **part = (char **)calloc((size_t)x->so_far.parts + 1, sizeof *part);
    if (!part) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for the names of %ld parts", (long)x->so_far.parts);
    GxStatus status = gx_path_join(joined, x->folder, "joined.tokens", x->err);
    if (status == GX_OK) status = gx__corpus_join_paths(x, part, joined);
    for (int64_t i = 0; i < x->so_far.parts; i++) free(part[i]);
    free(part);
    GX_TRY(status);
    GX_TRY(gx_folder_move(joined, x->output_file, x->err));
    // first, since without it the other files have no meaning
    if (gx_path_join(joined, x->folder, "progress.json", x->err) == GX_OK) unlink(joined);
    return gx_folder_remove(x->folder, x->err);
}

// ---- all of it -----------------------------------------------------------------------------------------------------

static GxStatus gx__corpus_read_all(gx__CorpusWriter *x)
{
    const GxCorpusWriting *how = x->how;
    const int64_t part = how->part > 0 ? how->part : (int64_t)GX__CORPUS_PART;
    double said = gx_seconds();
    while (x->r.place.file < x->r.files) {
        GX_TRY(gx_corpus_reader_next(&x->r, &x->c, x->err));
        const GxTokenFile *f = gx__corpus_file(x);
        const int64_t tokens = x->so_far.tokens + f->tokens, done = gx_corpus_reader_done(&x->r);
        if (f->bytes >= part) GX_TRY(gx__corpus_flush(x));
        if (how->progress) how->progress(how->user, done, x->r.bytes, tokens);
        else if (how->log && gx_seconds() - said > GX_CORPUS_PATIENCE) {
            said = gx_seconds();
            gx_log(how->log, GX_LOG_INFO, "%.1f of %.1f MB done, %.1f million tokens so far", (double)done / 1e6,
                   (double)x->r.bytes / 1e6, (double)tokens / 1e6);
        }
    }
    return GX_OK;
}

// Fails if there is nothing to write.
static GxStatus gx__corpus_check_all(gx__CorpusWriter *x, const char *path)
{
    const GxTokenFile *f = gx__corpus_file(x);
    const int64_t documents = x->so_far.documents + f->documents;
    if (x->how->chats)
        return gx_chat_tokens_check_some(path, x->how->chats, documents, x->so_far.chat.n + x->chats.counts.n,
                                         x->how->seq_len, x->err);
    GX_TRY(gx_corpus_check_some(x->so_far.tokens + f->tokens, path, x->err));
    gx_corpus_reader_warn(&x->r, path, documents);
    return GX_OK;
}

static GxStatus gx__corpus_write(gx__CorpusWriter *x, const char *path)
{
    const GxTokenFile *f = gx__corpus_file(x);
    if (x->how->piece) x->r.piece = x->how->piece;
    x->taker.lines = gx__corpus_take_chats, x->taker.table = gx__corpus_take_chat_table, x->taker.user = x;
    if (x->how->chats) x->r.taker = &x->taker;
    if (x->how->chats) gx_chat_tokens_begin(&x->chats, x->r.t);
    x->so_far = gx__corpus_identity(&x->r, x->how, path);
    GX_TRY(gx__corpus_go_on(x));
    GX_TRY(gx__corpus_read_all(x));
    GX_TRY(gx__corpus_check_all(x, path));
    if (x->so_far.parts == 0 && !gx_path_is_folder(x->folder)) { // everything is in memory
        x->so_far.empty = x->c.empty, x->so_far.tokens = f->tokens;
        x->so_far.documents = f->documents, x->so_far.bytes = f->bytes, x->so_far.chat = x->chats.counts;
        return gx__corpus_put(x, x->output_file, &x->chats.counts);
    }
    GX_TRY(gx__corpus_flush(x));
    return gx__corpus_join(x);
}

GxStatus gx_corpus_write(const char *output_file, const char *path, const GxTokenizer *t, const GxCorpusWriting *how,
                         GxCorpus *all, GxError *err)
{
    gx__CorpusWriter x = GX_ZERO;
    memset(all, 0, sizeof *all);
    x.how = how, x.output_file = output_file, x.err = err;
    if (snprintf(x.folder, GX_PATH, "%s%s", output_file, GX_CORPUS_PARTS) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", output_file, GX_PATH - 8);
    GX_TRY(gx_corpus_reader_open(&x.r, path, NULL, t, how->threads, how->log, err));
    const GxStatus status = gx__corpus_write(&x, path);
    gx_corpus_reader_close(&x.r);
    gx_corpus_close(&x.c);
    gx_chat_tokens_close(&x.chats);
    all->file.chats.counts = x.so_far.chat;
    all->file.tokens = x.so_far.tokens, all->file.documents = x.so_far.documents, all->file.bytes = x.so_far.bytes;
    all->empty = x.so_far.empty;
    return status;
}
#endif
