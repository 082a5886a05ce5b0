// chat_tokens.h: a file of conversations (chat_records.h) as tokens, and which of them are learned: what the assistant
// says, and the token that ends it; all else is only read.
//
//     GxChatReading how = {gx_chat_format("chatml"), NULL};
//     GX_TRY(gx_chat_tokens_open(&c, "chats.jsonl", &tokenizer, &how, 512, threads, err));
//     … document d: c.ids[c.file.document[d].begin …], c.is_learned[…] …
//     gx_chat_tokens_close(&c);
//
// A conversation is one document, or where later turns change how earlier ones stand (gx_chat_training_text), one for each
// answer, with all that was said before it. Its text is encoded as a whole, special tokens in it as tokens, and without
// the tokenizer's frame: the format has what begins a text. An answer is learned from the first token on that the text
// has otherwise than the text up to the answer alone: so also a token that begins before the answer and ends in it.
//
// Instructions without a format are Alpaca's (Taori et al. 2023), in the tokenizer's frame as any other text, with its
// eos_token behind the answer.
//
// No document is longer than `most` tokens, and none is cut within an answer, whose end would not be learned: of a
// longer conversation the last turns are left out, until it fits; where not even its first answer does, all of it.
// Both are counted. Which threads do what changes nothing.
#ifndef GX_CHAT_TOKENS_H
#define GX_CHAT_TOKENS_H
#include "bad_lines.h"
#include "chat_records.h"
#include "dataset.h"
#include "file_kind.h"
#include "tokenizer.h"
GX_BEGIN

typedef struct {
    const GxChatFormat *format; // NULL: there is none, which is an error of what is no instruction
    const char *lacks;          // where there is none, why that is an error of instructions, too; NULL: it is not
} GxChatReading;

typedef struct {
    GxTokenFile file;          // its width is 4; its document's bytes are those of the text with all of the format
    int32_t *ids;              // [file.tokens]
    unsigned char *is_learned; // [file.tokens]
    int64_t *line;             // [file.documents] which line of the file each is of: conversations are not divided
    GxDatasetChat counts;
    int64_t room, document_room;
} GxChatTokens;

// most: tokens of a document. The file has at most 1 GiB. What is wrong is named with its line.
GxStatus gx_chat_tokens_open(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                             int64_t most, int threads, GxError *err);
void gx_chat_tokens_close(GxChatTokens *c); // also of one that is all zero

// A file of any size, a piece at a time (corpus_write.h): c is all zero at first, and begun once.
typedef struct {
    const char *path;
    int64_t first;      // number of the first line
    char *text;         // whole lines, behind them 0; their ends become 0
    int64_t lines;      // out: how many there were
    int64_t empty_line; // out: the number of one that was empty, behind which there is nothing in this piece; 0: none
} GxChatLines;
GxStatus gx_chat_tokens_begin(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                              GxError *err);
GxStatus gx_chat_tokens_add(GxChatTokens *c, GxChatLines *lines, const GxTokenizer *t, const GxChatReading *how,
                            int64_t most, int threads, GxError *err);
// Where there are conversations, but none became a document: an error.
GxStatus gx_chat_tokens_check_some(const char *path, int64_t documents, int64_t conversations, int64_t most,
                                   GxError *err);
// What the tokens of conversations depend on beside the tokenizer's vocabulary, the date aside: the template and the
// special tokens that it is given, or for instructions without one the tokens around a text.
uint64_t gx_chat_reading_hash(const GxChatReading *how, const GxTokenizer *t);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_TOKENS_IMPLEMENTED)
#define GX_CHAT_TOKENS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GX__CHAT_TOKENS_CAP = 1 << 30, GX__CHAT_TOKENS_LINES = 256 }; // bytes of a file; lines that are read at a time

// ---- a text --------------------------------------------------------------------------------------------------------

typedef struct {
    GxChatText said; // with its spans in bytes
    int32_t *ids;
    int64_t n;
    GxChatSpan *learned; // [said.spans] tokens
} gx__ChatDocument;

static void gx__chat_document_close(gx__ChatDocument *x)
{
    gx_chat_text_free(&x->said);
    free(x->ids), free(x->learned);
    memset(x, 0, sizeof *x);
}

static GxStatus gx__chat_encode(const GxTokenizer *t, const char *text, int64_t bytes, GxSpecialTokens special,
                                int32_t **ids, int64_t *n, GxError *err)
{
    *ids = (int32_t *)malloc((size_t)(gx_tokenizer_most(t, bytes) + 1) * sizeof **ids);
    if (!*ids) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of a text of %ld bytes", (long)bytes);
    return gx_tokenizer_encode(t, text, bytes, special, *ids, n, err);
}

// How many of the tokens from number `at` on are those of text[bytes] alone, which has *all.
static GxStatus gx__chat_shared(const GxTokenizer *t, const gx__ChatDocument *x, int64_t at, const char *text,
                                int64_t bytes, GxSpecialTokens special, int64_t *shared, int64_t *all, GxError *err)
{
    int32_t *ids;
    const GxStatus status = gx__chat_encode(t, text, bytes, special, &ids, all, err);
    *shared = 0;
    while (status == GX_OK && *shared < *all && at + *shared < x->n && ids[*shared] == x->ids[at + *shared]) ++*shared;
    free(ids);
    return status;
}

// The tokens, and which are learned. What follows a token that ends an answer does not change those before it, nor the
// reverse: so each answer is looked at from the end of the one before it on, that token included, where it is known.
static GxStatus gx__chat_find_learned(const GxTokenizer *t, gx__ChatDocument *x, GxSpecialTokens special, GxError *err)
{
    int64_t at = 0, from = 0, n, shared; // tokens and bytes before
    x->learned = (GxChatSpan *)calloc((size_t)x->said.spans + 1, sizeof *x->learned);
    if (!x->learned) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation of %d answers", x->said.spans);
    GX_TRY(gx__chat_encode(t, x->said.text, x->said.bytes, special, &x->ids, &x->n, err));
    for (int k = 0; k < x->said.spans; k++) {
        const char *text = x->said.text + from;
        const GxChatSpan *s = &x->said.span[k];
        GX_TRY(gx__chat_shared(t, x, at, text, s->begin - from, special, &shared, &n, err));
        x->learned[k].begin = at + shared;
        GX_TRY(gx__chat_shared(t, x, at, text, s->end - from, special, &shared, &n, err));
        if (shared < n)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "the tokenizer %s makes other tokens of the end of an answer where more follows; what would "
                           "be learned is not known",
                           t->identity);
        x->learned[k].end = at + n;
        if (!s->end_bytes) continue;
        at += n - (t->kind == &gx_byte_tokens ? s->end_bytes : 1), from = s->end - s->end_bytes;
    }
    return GX_OK;
}

// The first n turns; only_last, rewrites: as gx_chat_training_text has them.
static GxStatus gx__chat_document_open(gx__ChatDocument *x, const GxTokenizer *t, const GxChatFormat *f,
                                       const GxChatTurn *turn, int n, int only_last, int *rewrites, GxError *err)
{
    memset(x, 0, sizeof *x);
    GX_TRY(gx_chat_training_text(f, turn, n, only_last, &x->said, rewrites, err));
    return rewrites && *rewrites ? GX_OK : gx__chat_find_learned(t, x, GX_SPECIAL_AS_TOKENS, err);
}

// ---- instructions without a format ---------------------------------------------------------------------------------

static GxStatus gx__chat_alpaca_text(gx__ChatDocument *x, const GxChatRecord *r, GxError *err)
{
    size_t bytes;
    FILE *out = open_memstream(&x->said.text, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for an instruction");
    fprintf(out,
            "Below is an instruction that describes a task%s. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\n%s\n\n",
            r->input ? ", paired with an input that provides further context" : "", r->instruction);
    if (r->input) fprintf(out, "### Input:\n%s\n\n", r->input);
    fputs("### Response:", out);
    x->said.span[0].begin = (int64_t)ftell(out);
    fputs(r->turn[1].text, out);
    x->said.bytes = x->said.span[0].end = (int64_t)ftell(out);
    if (fclose(out) == 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for an instruction");
}

// What the tokenizer puts around a text, and its end of one.
static GxStatus gx__chat_alpaca_frame(gx__ChatDocument *x, const GxTokenizer *t, GxError *err)
{
    const GxTokenFrame *frame = &t->frame[0];
    const int64_t around = gx_tokenizer_frame_tokens(t, 1);
    const GxTokenTexts one = {x->ids, NULL, x->n, 0};
    int64_t before = 0;
    if (around > 0 && frame->n == 0) before = 1; // [CLS]
    while (before < frame->n && frame->part[before].id >= 0) before++;
    int32_t *ids = (int32_t *)malloc((size_t)(x->n + around + 1) * sizeof *ids);
    if (!ids) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of an instruction");
    GxStatus status = GX_OK;
    if (around > 0) status = gx_tokenizer_join(t, &one, x->n + around, ids, NULL, &x->n, NULL, err);
    else memcpy(ids, x->ids, (size_t)x->n * sizeof *ids);
    free(x->ids);
    x->ids = ids;
    if (status == GX_OK && ids[x->n - 1] != t->end) ids[x->n++] = t->end;
    x->learned[0].begin += before, x->learned[0].end = x->n;
    return status;
}

static GxStatus gx__chat_alpaca_open(gx__ChatDocument *x, const GxTokenizer *t, const GxChatRecord *r, GxError *err)
{
    memset(x, 0, sizeof *x);
    if (t->end < 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "the tokenizer %s has no eos_token, which ends the answer to an instruction; --chat_template "
                       "NAME takes one of %s",
                       t->identity, GX_CHAT_NAMES);
    x->said.spans = 1, x->said.span = (GxChatSpan *)calloc(1, sizeof *x->said.span);
    if (!x->said.span) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for an instruction");
    GX_TRY(gx__chat_alpaca_text(x, r, err));
    GX_TRY(gx__chat_find_learned(t, x, GX_SPECIAL_AS_TEXT, err));
    return gx__chat_alpaca_frame(x, t, err);
}

// ---- a line --------------------------------------------------------------------------------------------------------

typedef struct { // what becomes of a line
    const char *text;
    int64_t number;
    gx__ChatDocument *document; // [documents]
    int documents;
    int shortened, left_out, unanswered, lacks;
    GxError err;
} gx__ChatLine;

typedef struct {
    GxChatTokens *c;
    const char *path;
    const GxTokenizer *t;
    const GxChatReading *how;
    int64_t most;
    int threads;
    GxError *err;
    GxBadLines bad;
    GxChatLines *lines;
} gx__ChatTokens;

// Takes over x, if it fits.
static GxStatus gx__chat_line_add(const gx__ChatTokens *a, gx__ChatLine *line, gx__ChatDocument *x)
{
    int64_t learned = 0;
    for (int k = 0; k < x->said.spans; k++) learned += x->learned[k].end - x->learned[k].begin;
    if (learned == 0 || learned == x->n)
        return GX_FAIL(&line->err, GX_ERR_FORMAT, "%s of its %ld tokens would be learned", learned ? "all" : "none",
                       (long)x->n);
    if (x->n > a->most) line->left_out++, gx__chat_document_close(x);
    else line->document[line->documents++] = *x, memset(x, 0, sizeof *x);
    return GX_OK;
}

// Each answer with a text of its own.
static GxStatus gx__chat_line_by_answer(const gx__ChatTokens *a, gx__ChatLine *line, const GxChatRecord *r)
{
    GxStatus status = GX_OK;
    for (int n = r->n % 2 ? 3 : 2; n <= r->n && status == GX_OK; n += 2) {
        gx__ChatDocument x;
        status = gx__chat_document_open(&x, a->t, a->how->format, r->turn, n, 1, NULL, &line->err);
        if (status == GX_OK) line->lacks |= gx_chat_lacks(a->how->format, r->turn, n, &x.said);
        if (status == GX_OK) status = gx__chat_line_add(a, line, &x);
        gx__chat_document_close(&x);
    }
    return status;
}

// All of it, or as many turns as fit; *rewrites 1: nothing, since each answer needs a text of its own.
static GxStatus gx__chat_line_whole(const gx__ChatTokens *a, gx__ChatLine *line, const GxChatRecord *r, int *rewrites)
{
    GxStatus status = GX_OK;
    for (int n = r->n, less; n > 0 && status == GX_OK; n = less) {
        gx__ChatDocument x;
        less = 0;
        status =
            gx__chat_document_open(&x, a->t, a->how->format, r->turn, n, 0, n == r->n ? rewrites : NULL, &line->err);
        if (*rewrites) return GX_OK;
        if (status == GX_OK) line->lacks |= gx_chat_lacks(a->how->format, r->turn, n, &x.said);
        for (int k = 0; status == GX_OK && x.n > a->most && x.said.span[k].answer < n / 2 - 1; k++)
            if (x.learned[k].end <= a->most) less = r->n % 2 + 2 * (x.said.span[k].answer + 1);
        line->shortened |= less > 0;
        if (status == GX_OK && !less) status = gx__chat_line_add(a, line, &x);
        gx__chat_document_close(&x);
    }
    line->shortened &= line->documents > 0;
    return status;
}

static GxStatus gx__chat_line_instruction(const gx__ChatTokens *a, gx__ChatLine *line, const GxChatRecord *r)
{
    gx__ChatDocument x;
    GxStatus status = gx__chat_alpaca_open(&x, a->t, r, &line->err);
    if (status == GX_OK) status = gx__chat_line_add(a, line, &x);
    gx__chat_document_close(&x);
    return status;
}

static GxStatus gx__chat_line_take(const gx__ChatTokens *a, gx__ChatLine *line, const GxChatRecord *r)
{
    const GxChatFormat *f = a->how->format;
    int rewrites = 0;
    line->document = (gx__ChatDocument *)calloc((size_t)r->n, sizeof *line->document);
    if (!line->document) return GX_FAIL(&line->err, GX_ERR_MEMORY, "no memory for a conversation");
    line->unanswered = r->leaves_out_last;
    if (!f && r->instruction && !a->how->lacks) return gx__chat_line_instruction(a, line, r);
    if (!f)
        return GX_FAIL(&line->err, GX_ERR_ARGUMENT,
                       "the record is a conversation, and %s; --chat_template takes a template's file, or one of %s",
                       a->how->lacks ? a->how->lacks : "neither the model's folder nor the tokenizer's has a template",
                       GX_CHAT_NAMES);
    GX_TRY(gx__chat_line_whole(a, line, r, &rewrites));
    return rewrites ? gx__chat_line_by_answer(a, line, r) : GX_OK;
}

static void gx__chat_line_read(const gx__ChatTokens *a, gx__ChatLine *line)
{
    GxChatRecord r;
    if (gx_chat_record_read(&r, line->text, a->path, line->number, &line->err) != GX_OK) return;
    const GxStatus status = gx__chat_line_take(a, line, &r);
    gx_chat_record_close(&r);
    if (status == GX_OK) return;
    const GxError of_text = line->err; // which does not know where it was found
    gx_error_clear(&line->err);
    GX_FAIL(&line->err, (GxStatus)of_text.code, "%s:%ld: %s", a->path, (long)line->number, of_text.message);
}

static void gx__chat_line_close(gx__ChatLine *line)
{
    for (int i = 0; i < line->documents; i++) gx__chat_document_close(&line->document[i]);
    free(line->document);
    memset(line, 0, sizeof *line);
}

// ---- all lines -----------------------------------------------------------------------------------------------------

static GxStatus gx__chat_tokens_grow(GxChatTokens *c, int64_t tokens, GxError *err)
{
    GxTokenFile *f = &c->file;
    if (f->tokens + tokens > c->room) {
        const int64_t room = gx_max(f->tokens + tokens, 4096 + c->room + c->room / 2);
        void *ids = realloc(c->ids, (size_t)room * sizeof *c->ids);
        if (ids) c->ids = (int32_t *)ids;
        void *is_learned = realloc(c->is_learned, (size_t)room);
        if (is_learned) c->is_learned = (unsigned char *)is_learned;
        if (!ids || !is_learned) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld tokens", (long)room);
        c->room = room;
    }
    if (f->documents + 2 > c->document_room) {
        const int64_t room = 1024 + 2 * c->document_room;
        void *document = realloc(f->document, (size_t)room * sizeof *f->document);
        if (document) f->document = (GxTokenDocument *)document;
        void *line = realloc(c->line, (size_t)room * sizeof *c->line);
        if (line) c->line = (int64_t *)line;
        void *joins = realloc(f->joins, (size_t)room);
        if (joins) f->joins = (unsigned char *)joins;
        if (!document || !line || !joins) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld documents", (long)room);
        c->document_room = room;
    }
    return GX_OK;
}

static GxStatus gx__chat_tokens_add(GxChatTokens *c, const gx__ChatDocument *x, int64_t line, GxError *err)
{
    GxTokenFile *f = &c->file;
    const int64_t bytes = x->said.bytes;
    GX_TRY(gx__chat_tokens_grow(c, x->n, err));
    memcpy(c->ids + f->tokens, x->ids, (size_t)x->n * sizeof *c->ids);
    memset(c->is_learned + f->tokens, 0, (size_t)x->n);
    for (int k = 0; k < x->said.spans; k++) {
        const int64_t n = x->learned[k].end - x->learned[k].begin;
        memset(c->is_learned + f->tokens + x->learned[k].begin, 1, (size_t)n);
        c->counts.learned += n;
    }
    f->document[f->documents].begin = f->tokens, f->document[f->documents].bytes = bytes;
    f->joins[f->documents] = f->documents > 0 && c->line[f->documents - 1] == line;
    c->line[f->documents++] = line;
    f->tokens += x->n, f->bytes += bytes;
    f->document[f->documents].begin = f->tokens, f->document[f->documents].bytes = 0;
    return GX_OK;
}

// Some lines, by all threads. Behind one that is wrong, others are only looked at.
static GxStatus gx__chat_tokens_lines(gx__ChatTokens *a, gx__ChatLine *line, int n)
{
    GxChatTokens *c = a->c;
    GX_OMP(parallel for schedule(dynamic, 1) num_threads(a->threads > 0 ? a->threads : 1))
    for (int i = 0; i < n; i++) gx__chat_line_read(a, &line[i]);
    GxStatus status = GX_OK;
    for (int i = 0; i < n && status == GX_OK; i++) {
        const gx__ChatLine *l = &line[i];
        if (l->err.code != GX_OK && !gx_bad_lines_add(&a->bad, l->number, &l->err)) status = (GxStatus)l->err.code;
        gx_bad_lines_pass(&a->bad, l->number, (int64_t)strlen(l->text));
        for (int k = 0; k < l->documents && status == GX_OK && a->bad.n == 0; k++)
            status = gx__chat_tokens_add(c, &l->document[k], l->number, a->err);
        c->counts.n++, c->counts.shortened += l->shortened, c->counts.left_out += l->left_out;
        c->counts.unanswered += l->unanswered;
        for (int k = 0; k < GX_CHAT_LACKS; k++) c->counts.lacks[k] += l->lacks >> k & 1;
    }
    for (int i = 0; i < n; i++) gx__chat_line_close(&line[i]);
    return status;
}

// text: whole lines, whose ends become 0.
static GxStatus gx__chat_tokens_read(gx__ChatTokens *a)
{
    char *text = a->lines->text;
    gx__ChatLine *line = (gx__ChatLine *)calloc(GX__CHAT_TOKENS_LINES, sizeof *line);
    if (!line) return GX_FAIL(a->err, GX_ERR_MEMORY, "no memory for the lines of %s", a->path);
    GxStatus status = GX_OK;
    GxError e = GX_ZERO;
    int64_t number = a->lines->first;
    for (int n = 0; *text && status == GX_OK && gx_bad_lines_goes_on(&a->bad); number++) {
        char *end = text + strcspn(text, "\n"), *next = *end ? end + 1 : end;
        *end = 0;
        if (!text[strspn(text, "\r")]) {
            if (next[strspn(next, "\r\n")])
                status = GX_FAIL(&e, GX_ERR_FORMAT,
                                 "%s:%ld: the line is empty, and others follow; expected a record: remove it", a->path,
                                 (long)number);
            a->lines->empty_line = number;
            next += strlen(next);
        } else line[n].text = text, line[n++].number = number;
        text = next;
        if (n < GX__CHAT_TOKENS_LINES && *text) continue;
        if (n > 0 && (status == GX_OK || e.code)) { // an empty line does not hide what is wrong before it
            const GxStatus lines = gx__chat_tokens_lines(a, line, n);
            if (status == GX_OK) status = lines;
        }
        n = 0;
    }
    free(line);
    a->lines->lines = number - a->lines->first;
    GX_TRY(gx_bad_lines_fail(&a->bad, a->lines->first, a->err));
    GX_TRY(gx_error_code(a->err));
    return status == GX_OK ? GX_OK : GX_FAIL(a->err, status, "%s", e.message);
}

GxStatus gx_chat_tokens_begin(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                              GxError *err)
{
    const GxChatFormat *f = how->format;
    memset(c, 0, sizeof *c);
    c->file.width = 4, c->file.has_mask = 1;
    memcpy(c->file.tokenizer, t->identity, sizeof c->file.tokenizer);
    if (f && gx_chat_end(f)[0] && t->kind != &gx_byte_tokens && gx_tokenizer_find(t, gx_chat_end(f)) < 0)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%s: the tokenizer %s has no %s, with which answers of the format %s end, so the model would not "
            "learn to end one; --chat_template NAME or FILE takes another: %s",
            path, t->identity, gx_chat_end(f), gx_chat_name(f), GX_CHAT_NAMES);
    return GX_OK;
}

GxStatus gx_chat_tokens_add(GxChatTokens *c, GxChatLines *lines, const GxTokenizer *t, const GxChatReading *how,
                            int64_t most, int threads, GxError *err)
{
    gx__ChatTokens a = {c, lines->path, t, how, most, threads, err, GX_ZERO, lines};
    lines->lines = lines->empty_line = 0;
    return gx__chat_tokens_read(&a);
}

GxStatus gx_chat_tokens_check_some(const char *path, int64_t documents, int64_t conversations, int64_t most,
                                   GxError *err)
{
    char none[60] = "its only conversation has no";
    if (documents > 0) return GX_OK;
    if (conversations != 1) snprintf(none, sizeof none, "none of its %ld conversations has an", (long)conversations);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s answer that ends within %ld tokens: take a larger seq_len", path, none,
                   (long)most);
}

static GxStatus gx__chat_tokens_check_size(const char *path, GxError *err)
{
    int fd;
    int64_t bytes;
    GX_TRY(gx_file_open(path, &fd, &bytes, err));
    close(fd);
    if (bytes <= GX__CHAT_TOKENS_CAP) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_UNSUPPORTED,
        "%s has %ld bytes; conversations of at most %d are read at once: ./tokenize --corpus makes a file of "
        "tokens of any number of them, which --train_data takes",
        path, (long)bytes, GX__CHAT_TOKENS_CAP);
}

static GxStatus gx__chat_tokens_open(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                                     int64_t most, int threads, GxError *err)
{
    GxTextPlace place = {path, 1, 0};
    char *text;
    int64_t bytes;
    GX_TRY(gx_chat_tokens_begin(c, path, t, how, err));
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_LINES, err));
    GX_TRY(gx__chat_tokens_check_size(path, err));
    GX_TRY(gx_file_read(path, GX__CHAT_TOKENS_CAP, &text, &bytes, err));
    GxStatus status = gx_text_check(&place, text, bytes, err);
    GxChatLines lines = {path, 1, text + (strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0), 0, 0};
    if (status == GX_OK) status = gx_chat_tokens_add(c, &lines, t, how, most, threads, err);
    free(text);
    GX_TRY(status);
    return gx_chat_tokens_check_some(path, c->file.documents, c->counts.n, most, err);
}

GxStatus gx_chat_tokens_open(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                             int64_t most, int threads, GxError *err)
{
    const GxStatus status = gx__chat_tokens_open(c, path, t, how, most, threads, err);
    if (status != GX_OK) gx_chat_tokens_close(c);
    return status;
}

uint64_t gx_chat_reading_hash(const GxChatReading *how, const GxTokenizer *t)
{
    const GxTokenFrame *frame = &t->frame[0];
    uint64_t hash = gx_hash(GX_HASH_START, "alpaca", 6);
    if (how->format) return gx_chat_hash(how->format);
    for (int i = 0; i < frame->n; i++) hash = gx_hash(hash, &frame->part[i].id, sizeof frame->part[i].id);
    return gx_hash(hash, &t->end, sizeof t->end);
}

void gx_chat_tokens_close(GxChatTokens *c)
{
    free(c->ids), free(c->is_learned), free(c->line);
    gx_token_file_close(&c->file);
    memset(c, 0, sizeof *c);
}
#endif
