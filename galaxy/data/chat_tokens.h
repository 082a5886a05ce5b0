// chat_tokens.h: reads a file of conversations (chat_records.h), JSON lines or a table, as tokens, and marks those that
// are learned: what the assistant says, and the token that ends it. The other tokens are only context.
//
//     GxChatReading how = {gx_chat_format("chatml"), NULL, NULL};
//     GX_TRY(gx_chat_tokens_open(&c, "chats.jsonl", &tokenizer, &how, 512, threads, err));
//     … document d: c.ids[c.file.document[d].begin …], c.is_learned[…] …
//     gx_chat_tokens_close(&c);
//
// A conversation is one document, or, if later turns change how earlier ones are written (gx_chat_training_text), one
// document for each answer, with everything before it. Its text is encoded as a whole, with special tokens in it as
// tokens, and without the tokenizer's frame, since the format writes the beginning of a text. An answer is learned from
// the first token on that differs from the tokens of the text up to the answer. This includes a token that begins
// before the answer and ends in it.
//
// Instructions without a format are written in Alpaca's (Taori et al. 2023), in the tokenizer's frame like any other
// text, with the eos_token after the answer. A prompt and a completion that are texts are joined without a format, in
// the same frame, with one eos_token at the end, as in TRL, even if the completion already ends with it; special tokens
// elsewhere in them are treated as text. If prompt and completion are messages, the completion's answers are learned.
//
// No document is longer than `most` tokens, and none is cut within an answer, since its end would not be learned: the
// last turns of a longer conversation are left out until it fits; if even its first answer does not fit, the whole
// conversation. Both are counted. The result does not depend on the number of threads.
#ifndef GX_CHAT_TOKENS_H
#define GX_CHAT_TOKENS_H
#include "bad_lines.h"
#include "chat_records.h"
#include "dataset.h"
#include "../io/file_kind.h"
#include "../text/tokenizer.h"
GX_BEGIN

typedef struct {
    const GxChatFormat *format;     // NULL: none, which is an error for conversations other than instructions
    const char *lacks;              // without a format: why that is an error for instructions, too; NULL: it is not
    const GxRecordReading *records; // names of columns, and whether bad records are skipped; NULL: gx_record_reading
} GxChatReading;
static inline const GxRecordReading *gx_chat_record_reading(const GxChatReading *how) // how may be NULL
{
    return how && how->records ? how->records : &gx_record_reading;
}

typedef struct {
    GxTokenFile file;          // its width is 4; a document's bytes are those of the formatted text
    int32_t *ids;              // [file.tokens]
    unsigned char *is_learned; // [file.tokens]
    int64_t *line;             // [file.documents] the line of the file that it is from
    GxDatasetChat counts;
    int64_t room, document_room;
} GxChatTokens;

// most: tokens of a document. The file must not exceed 1 GiB. Errors name the line.
GxStatus gx_chat_tokens_open(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                             int64_t most, int threads, GxError *err);
void gx_chat_tokens_close(GxChatTokens *c); // also of one that is all zero

// Reads a file of any size, a piece at a time (corpus_write.h). c begins as zeros, and is begun once.
typedef struct {
    const char *path;
    int64_t first;       // number of the first line
    char *text;          // [bytes] whole lines, terminated by 0; their ends become 0
    int64_t bytes, byte; // their number, and where in the file they begin
    int is_sound;        // 1: it is known to be valid text; 0: each line is checked
    int64_t lines;       // out: the number of lines
    int64_t empty_line;  // out: the number of an empty line after which this piece has nothing; 0: none
} GxChatLines;
void gx_chat_tokens_begin(GxChatTokens *c, const GxTokenizer *t);
GxStatus gx_chat_tokens_add(GxChatTokens *c, GxChatLines *lines, const GxTokenizer *t, const GxChatReading *how,
                            int64_t most, int threads, GxError *err);
// Adds a whole table.
GxStatus gx_chat_tokens_add_table(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                                  int64_t most, int threads, GxError *err);
// Fails if there are conversations, but none became a document.
GxStatus gx_chat_tokens_check_some(const char *path, const GxChatReading *how, int64_t documents, int64_t conversations,
                                   int64_t most, GxError *err);
// A hash of what the tokens of conversations depend on, besides the tokenizer's vocabulary and the date: the template
// and its special tokens, or, for instructions without one, the tokens around a text.
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

// How many tokens from number `at` on equal those of text[bytes] encoded alone, which are *all in number.
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

// Computes the tokens, and which are learned. A token that ends an answer separates what follows from what precedes. So
// each answer is encoded only from the end of the previous one on, including that token if it is known.
static GxStatus gx__chat_find_learned(const GxTokenizer *t, gx__ChatDocument *x, GxSpecialTokens special, GxError *err)
{
    int64_t at = 0, from = 0, n, shared; // tokens and bytes so far
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
                           "the tokenizer %s encodes the end of an answer differently if more text follows, so what "
                           "would be learned is not known",
                           t->identity);
        x->learned[k].end = at + n;
        if (!s->end_bytes) continue;
        at += n - (t->kind == &gx_byte_tokens ? s->end_bytes : 1), from = s->end - s->end_bytes;
    }
    return GX_OK;
}

// Makes a document of the first n turns; only_last, rewrites: as in gx_chat_training_text.
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

// The text that TRL makes from a prompt and a completion.
static GxStatus gx__chat_completion_text(gx__ChatDocument *x, const GxTokenizer *t, const GxChatRecord *r, GxError *err)
{
    char room[8];
    const char *prompt = r->turn[0].text, *completion = r->turn[1].text, *end = gx_tokenizer_piece(t, t->end, room);
    const size_t before = strlen(prompt), n = strlen(completion), e = end ? strlen(end) : 0;
    // without its own eos_token
    const size_t behind = e > 0 && n > e && !memcmp(completion + n - e, end, e) ? n - e : n;
    x->said.text = (char *)malloc(before + behind + 1);
    if (!x->said.text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)(before + n));
    memcpy(x->said.text, prompt, before), memcpy(x->said.text + before, completion, behind);
    x->said.text[before + behind] = 0;
    x->said.span[0].begin = (int64_t)before;
    x->said.bytes = x->said.span[0].end = (int64_t)(before + behind);
    return GX_OK;
}

// Adds the tokenizer's frame and its end-of-text token.
static GxStatus gx__chat_frame(gx__ChatDocument *x, const GxTokenizer *t, GxError *err)
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
    // no position predicts token 0
    x->learned[0].begin = gx_max(1, x->learned[0].begin + before), x->learned[0].end = x->n;
    return status;
}

// Makes a document of an instruction, or of a prompt and its completion.
static GxStatus gx__chat_unformatted_open(gx__ChatDocument *x, const GxTokenizer *t, const GxChatRecord *r,
                                          GxError *err)
{
    memset(x, 0, sizeof *x);
    if (t->end < 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "the tokenizer %s has no eos_token to end %s%s", t->identity,
                       r->is_text ? "a completion; use another tokenizer, or lists of messages as prompt and completion"
                                  : "the answer to an instruction; --chat_template NAME names one of ",
                       r->is_text ? "" : GX_CHAT_NAMES);
    x->said.spans = 1, x->said.span = (GxChatSpan *)calloc(1, sizeof *x->said.span);
    if (!x->said.span) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for an instruction");
    GX_TRY(r->is_text ? gx__chat_completion_text(x, t, r, err) : gx__chat_alpaca_text(x, r, err));
    GX_TRY(gx__chat_find_learned(t, x, GX_SPECIAL_AS_TEXT, err));
    return gx__chat_frame(x, t, err);
}

// ---- a line --------------------------------------------------------------------------------------------------------

typedef struct {                // the result of a line, or of a row of a table
    const char *text;           // NULL: a row
    int64_t row, number, bytes; // the row of the table, or the byte of the file where the line begins
    gx__ChatDocument *document; // [documents]
    int documents;
    int shortened, left_out, unanswered, lacks, is_text;
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
    const GxRecordReading *names;
    GxRecords table; // of a table
    int is_sound;    // 0: not all lines are valid text, so each is checked
} gx__ChatTokens;

// Does not learn the answers in a prompt.
static void gx__chat_line_leave_prompt(gx__ChatDocument *x, const GxChatRecord *r)
{
    const int answers = (r->prompt - (r->turn[0].role == GX_CHAT_SYSTEM)) / 2; // a prompt ends with a user's turn
    int k = 0;
    while (k < x->said.spans && x->said.span[k].answer < answers) k++;
    if (k == 0 || !x->learned) return;
    x->said.spans -= k;
    memmove(x->said.span, x->said.span + k, (size_t)x->said.spans * sizeof *x->said.span);
    memmove(x->learned, x->learned + k, (size_t)x->said.spans * sizeof *x->learned);
}

// Takes ownership of x, if it fits.
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

// One document for each answer.
static GxStatus gx__chat_line_by_answer(const gx__ChatTokens *a, gx__ChatLine *line, const GxChatRecord *r)
{
    GxStatus status = GX_OK;
    for (int n = r->n % 2 ? 3 : 2; n <= r->n && status == GX_OK; n += 2) {
        if (n <= r->prompt) continue;
        gx__ChatDocument x;
        status = gx__chat_document_open(&x, a->t, a->how->format, r->turn, n, 1, NULL, &line->err);
        if (status == GX_OK) line->lacks |= gx_chat_lacks(a->how->format, r->turn, n, &x.said);
        if (status == GX_OK) status = gx__chat_line_add(a, line, &x);
        gx__chat_document_close(&x);
    }
    return status;
}

// One document of all turns, or as many as fit. *rewrites 1: none, since each answer needs its own text.
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
        if (status == GX_OK) gx__chat_line_leave_prompt(&x, r);
        for (int k = 0; status == GX_OK && x.n > a->most && x.said.span[k].answer < n / 2 - 1; k++)
            if (x.learned[k].end <= a->most) less = r->n % 2 + 2 * (x.said.span[k].answer + 1);
        line->shortened |= less > 0;
        if (status == GX_OK && !less) status = gx__chat_line_add(a, line, &x);
        gx__chat_document_close(&x);
    }
    line->shortened &= line->documents > 0;
    return status;
}

static GxStatus gx__chat_line_unformatted(const gx__ChatTokens *a, gx__ChatLine *line, const GxChatRecord *r)
{
    gx__ChatDocument x;
    GxStatus status = gx__chat_unformatted_open(&x, a->t, r, &line->err);
    if (status == GX_OK) status = gx__chat_line_add(a, line, &x);
    gx__chat_document_close(&x);
    return status;
}

static GxStatus gx__chat_line_check_end(const gx__ChatTokens *a, gx__ChatLine *line)
{
    const GxChatFormat *f = a->how->format;
    if (!gx_chat_end(f)[0] || a->t->kind == &gx_byte_tokens || gx_tokenizer_find(a->t, gx_chat_end(f)) >= 0)
        return GX_OK;
    return GX_FAIL(&line->err, GX_ERR_ARGUMENT,
                   "the tokenizer %s has no token %s, which ends the answers of the format %s, so the model would not "
                   "learn to end one; --chat_template NAME or FILE names another format: %s",
                   a->t->identity, gx_chat_end(f), gx_chat_name(f), GX_CHAT_NAMES);
}

static GxStatus gx__chat_line_take(const gx__ChatTokens *a, gx__ChatLine *line, const GxChatRecord *r)
{
    const GxChatFormat *f = a->how->format;
    int rewrites = 0;
    line->document = (gx__ChatDocument *)calloc((size_t)r->n, sizeof *line->document);
    if (!line->document) return GX_FAIL(&line->err, GX_ERR_MEMORY, "no memory for a conversation");
    line->unanswered = r->leaves_out_last, line->is_text = r->is_text;
    if (r->is_text || (!f && r->instruction && !a->how->lacks)) return gx__chat_line_unformatted(a, line, r);
    if (!f)
        return GX_FAIL(&line->err, GX_ERR_ARGUMENT,
                       "the record is a conversation, and %s; --chat_template accepts a template file, or one of %s",
                       a->how->lacks ? a->how->lacks
                                     : "neither the model's folder nor the tokenizer's has a chat template",
                       GX_CHAT_NAMES);
    GX_TRY(gx__chat_line_check_end(a, line));
    GX_TRY(gx__chat_line_whole(a, line, r, &rewrites));
    return rewrites ? gx__chat_line_by_answer(a, line, r) : GX_OK;
}

static void gx__chat_line_read(const gx__ChatTokens *a, gx__ChatLine *line)
{
    GxChatRecord r;
    GxTextPlace place = {a->path, line->number, line->row};
    GxStatus status = GX_OK;
    if (!a->is_sound && line->text) status = gx_text_check(&place, line->text, line->bytes, &line->err);
    if (status == GX_OK)
        status = line->text ? gx_chat_record_read(&r, line->text, a->names, a->path, line->number, &line->err)
                            : gx_chat_record_of_row(&r, &a->table, line->row, &line->err);
    if (status != GX_OK) return;
    status = gx__chat_line_take(a, line, &r);
    gx_chat_record_close(&r);
    if (status == GX_OK) return;
    const GxError of_text = line->err; // does not contain its place
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

// Reads some lines by all threads. Lines after a wrong one are only checked.
static GxStatus gx__chat_tokens_lines(gx__ChatTokens *a, gx__ChatLine *line, int n)
{
    GxChatTokens *c = a->c;
    GX_OMP(parallel for schedule(dynamic, 1) num_threads(a->threads > 0 ? a->threads : 1))
    for (int i = 0; i < n; i++) gx__chat_line_read(a, &line[i]);
    GxStatus status = GX_OK;
    for (int i = 0; i < n && status == GX_OK; i++) {
        const gx__ChatLine *l = &line[i];
        if (l->err.code != GX_OK && !gx_bad_lines_add(&a->bad, l->number, &l->err)) status = (GxStatus)l->err.code;
        gx_bad_lines_pass(&a->bad, l->number, l->bytes);
        if (l->err.code != GX_OK) continue;
        for (int k = 0; k < l->documents && status == GX_OK && a->bad.n == 0; k++)
            status = gx__chat_tokens_add(c, &l->document[k], l->number, a->err);
        c->counts.n++, c->counts.shortened += l->shortened, c->counts.left_out += l->left_out;
        c->counts.unanswered += l->unanswered, c->counts.texts += l->is_text;
        for (int k = 0; k < GX_CHAT_LACKS; k++) c->counts.lacks[k] += l->lacks >> k & 1;
    }
    for (int i = 0; i < n; i++) gx__chat_line_close(&line[i]);
    return status;
}

static GxStatus gx__chat_tokens_read(gx__ChatTokens *a, gx__ChatLine *line, GxChatLines *lines)
{
    GxStatus status = GX_OK;
    GxError e = GX_ZERO;
    int64_t number = lines->first;
    char *text = lines->text, *const text_end = text + lines->bytes;
    for (int n = 0; text < text_end && status == GX_OK && gx_bad_lines_goes_on(&a->bad); number++) {
        char *end = (char *)memchr(text, '\n', (size_t)(text_end - text)), *next = end ? end + 1 : text_end;
        end = end ? end : text_end;
        *end = 0;
        if (!text[strspn(text, "\r")] && text + strspn(text, "\r") == end) {
            if (next[strspn(next, "\r\n")])
                status = GX_FAIL(&e, GX_ERR_FORMAT,
                                 "%s:%ld: the line is empty, but others follow; remove it, or make it a record",
                                 a->path, (long)number);
            lines->empty_line = number;
            next = text_end;
        } else {
            line[n].text = text, line[n].row = lines->byte + (text - lines->text), line[n].bytes = end - text;
            line[n++].number = number;
        }
        text = next;
        if (n < GX__CHAT_TOKENS_LINES && text < text_end && status == GX_OK) continue;
        if (n > 0 && (status == GX_OK || e.code)) { // errors before an empty line are reported, too
            const GxStatus of_lines = gx__chat_tokens_lines(a, line, n);
            if (status == GX_OK) status = of_lines;
        }
        n = 0;
    }
    lines->lines = number - lines->first;
    GX_TRY(gx_bad_lines_fail(&a->bad, lines->first, a->err));
    GX_TRY(gx_error_code(a->err));
    return status == GX_OK ? GX_OK : GX_FAIL(a->err, status, "%s", e.message);
}

static GxStatus gx__chat_tokens_read_table(gx__ChatTokens *a, gx__ChatLine *line)
{
    GxStatus status = GX_OK;
    int n = 0;
    for (int64_t i = 0; i < a->table.n && status == GX_OK && gx_bad_lines_goes_on(&a->bad); i++) {
        line[n].row = i, line[n++].number = gx_record_line(&a->table, i);
        if (n < GX__CHAT_TOKENS_LINES && i + 1 < a->table.n) continue;
        status = gx__chat_tokens_lines(a, line, n);
        n = 0;
    }
    GX_TRY(gx_bad_lines_fail(&a->bad, a->table.first_line, a->err));
    return status;
}

static GxStatus gx__chat_tokens_open_table(gx__ChatTokens *a, gx__ChatLine *line)
{
    a->is_sound = 1;
    GX_TRY(gx_chat_table_open(&a->table, a->path, a->names, a->err));
    const GxStatus status = gx__chat_tokens_read_table(a, line);
    gx_records_close(&a->table);
    return status;
}

void gx_chat_tokens_begin(GxChatTokens *c, const GxTokenizer *t)
{
    memset(c, 0, sizeof *c);
    c->file.width = 4, c->file.has_mask = 1;
    memcpy(c->file.tokenizer, t->identity, sizeof c->file.tokenizer);
}

// lines: for a file of lines; NULL: the whole table `path`.
static GxStatus gx__chat_tokens_add_all(GxChatTokens *c, const char *path, GxChatLines *lines, const GxTokenizer *t,
                                        const GxChatReading *how, int64_t most, int threads, GxError *err)
{
    gx__ChatTokens a = GX_ZERO;
    gx__ChatLine *line = (gx__ChatLine *)calloc(GX__CHAT_TOKENS_LINES, sizeof *line);
    if (!line) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the lines of %s", path);
    a.c = c, a.path = path, a.t = t, a.how = how, a.most = most, a.threads = threads, a.err = err;
    a.names = gx_chat_record_reading(how), a.bad.skip = a.names->skip;
    if (lines) a.is_sound = lines->is_sound;
    const GxStatus status = lines ? gx__chat_tokens_read(&a, line, lines) : gx__chat_tokens_open_table(&a, line);
    free(line);
    return status;
}

GxStatus gx_chat_tokens_add(GxChatTokens *c, GxChatLines *lines, const GxTokenizer *t, const GxChatReading *how,
                            int64_t most, int threads, GxError *err)
{
    lines->lines = lines->empty_line = 0;
    return gx__chat_tokens_add_all(c, lines->path, lines, t, how, most, threads, err);
}

GxStatus gx_chat_tokens_add_table(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                                  int64_t most, int threads, GxError *err)
{
    return gx__chat_tokens_add_all(c, path, NULL, t, how, most, threads, err);
}

GxStatus gx_chat_tokens_check_some(const char *path, const GxChatReading *how, int64_t documents, int64_t conversations,
                                   int64_t most, GxError *err)
{
    const GxRecordReading *names = gx_chat_record_reading(how);
    char none[60] = "its only conversation has no";
    if (documents > 0) return GX_OK;
    if (conversations == 0 && names->skip && names->skip->n > 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: all of its records are wrong, so none is left; the first one: %s", path,
                       names->skip->why[0]);
    if (conversations != 1) snprintf(none, sizeof none, "none of its %ld conversations has an", (long)conversations);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s answer that ends within %ld tokens; use a larger seq_len", path, none,
                   (long)most);
}

static GxStatus gx__chat_tokens_check_size(const char *path, GxError *err)
{
    int fd;
    int64_t bytes;
    GX_TRY(gx_file_open(path, &fd, &bytes, err));
    close(fd);
    if (bytes <= GX__CHAT_TOKENS_CAP) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s has %ld bytes; only files of conversations of at most %d bytes are read directly: make a file "
                   "of tokens from it with ./tokenize --corpus, and name that in --train_data",
                   path, (long)bytes, GX__CHAT_TOKENS_CAP);
}

static GxStatus gx__chat_tokens_open_lines(GxChatTokens *c, const char *path, const GxTokenizer *t,
                                           const GxChatReading *how, int64_t most, int threads, GxError *err)
{
    GxTextPlace place = {path, 1, 0};
    GxError e = GX_ZERO;
    GxChatLines lines = GX_ZERO;
    char *text;
    int64_t bytes;
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_LINES, err));
    GX_TRY(gx__chat_tokens_check_size(path, err));
    GX_TRY(gx_file_read(path, GX__CHAT_TOKENS_CAP, &text, &bytes, err));
    GxStatus status = gx_text_check(&place, text, bytes, &e);
    const int64_t mark = strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    lines.path = path, lines.first = 1, lines.text = text + mark, lines.bytes = bytes - mark, lines.byte = mark;
    lines.is_sound = status == GX_OK;
    if (status == GX_OK || gx_chat_record_reading(how)->skip)
        status = gx_chat_tokens_add(c, &lines, t, how, most, threads, err);
    else GX_FAIL(err, status, "%s", e.message);
    free(text);
    return status;
}

static GxStatus gx__chat_tokens_open(GxChatTokens *c, const char *path, const GxTokenizer *t, const GxChatReading *how,
                                     int64_t most, int threads, GxError *err)
{
    gx_chat_tokens_begin(c, t);
    if (gx_records_is_table(path)) GX_TRY(gx__chat_tokens_add_all(c, path, NULL, t, how, most, threads, err));
    else GX_TRY(gx__chat_tokens_open_lines(c, path, t, how, most, threads, err));
    return gx_chat_tokens_check_some(path, how, c->file.documents, c->counts.n, most, err);
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
