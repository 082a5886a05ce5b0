// pairs.h: reads a file of preference pairs as tokens: JSON lines, or rows of a table (csv.h), with a prompt, a chosen
// completion and a rejected one.
//
//     {"prompt": "The sky is", "chosen": " blue.", "rejected": " green."}
//     {"prompt": [{"role": "user", "content": "Hello"}], "chosen": [{"role": "assistant", "content": "Hello."}],
//      "rejected": [{"role": "assistant", "content": "Go away."}]}
//
// Without "prompt", both completions contain it: it is their common beginning, in messages or in characters.
//
//     GX_TRY(gx_pairs_open(&p, "pairs.jsonl", &tokenizer, &how, 512, threads, err));
//     … text k of pair i, 0: chosen, 1: rejected: p.ids[p.begin[2 * i + k]] …, learned from p.learned_from[i] on …
//     gx_pairs_close(&p);
//
// Texts get the tokens of the tokenizer's frame before them and its eos_token after them; special tokens in them are
// treated as text. Conversations are written in how->format, up to the token that ends the last answer, with special
// tokens as tokens (chat_tokens.h). A prompt of messages ends with a user's turn, and a completion is one turn of the
// assistant's.
//
// A text is learned from the first token on that the prompt alone and the prompt with either completion do not have in
// common; the very first token is never learned, since nothing predicts it. Texts are not truncated: a pair whose two
// texts together are longer than `most` tokens is left out, and counted. Pairs with equal tokens, or with an empty
// text, are refused. The result does not depend on the number of threads.
#ifndef GX_PAIRS_H
#define GX_PAIRS_H
#include "bad_lines.h"
#include "chat_tokens.h"
#include "../io/file_kind.h"
GX_BEGIN

typedef struct {
    int64_t n;                    // pairs
    int64_t *begin;               // [2 n + 1] where each text's tokens begin: chosen, rejected, chosen, …
    int32_t *ids;                 // [begin[2 n]]
    int64_t *learned_from;        // [n] the number of the first learned token, the same in both texts
    int64_t records, left_out;    // in the file; of these, left out since they are too long
    int64_t conversations;        // of the records: conversations
    int64_t lacks[GX_CHAT_LACKS]; // of the records: those in whose text something is missing
    int64_t learned;              // tokens
    uint64_t hash;                // of all tokens, and of which are learned
    int64_t room, id_room;
} GxPairs;

// most: tokens of a pair. The file must not exceed 1 GiB. Errors name the line.
GxStatus gx_pairs_open(GxPairs *p, const char *path, const GxTokenizer *t, const GxChatReading *how, int64_t most,
                       int threads, GxError *err);
void gx_pairs_close(GxPairs *p); // also of one that is all zero

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PAIRS_IMPLEMENTED)
#define GX_PAIRS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__PAIRS_CAP = 1 << 30, GX__PAIRS_LINES = 256 }; // bytes of a file; lines that are read at a time

typedef struct {
    const char *path;
    const GxTokenizer *t;
    const GxChatReading *how;
    int64_t most;
    const GxRecords *table; // NULL: JSON lines
    int is_sound;           // 0: not all of the file is valid text, so each line is checked
} gx__Pairs;

typedef struct { // the result of a line, or of a row of a table
    const char *line;
    int64_t number, line_bytes, row; // the row of the table, or the byte of the file where the line begins
    char *text[2];                   // chosen, rejected, with the prompt
    int64_t bytes[2], from;          // of the texts; of the prompt
    int is_conversation, lacks;
    int32_t *ids[2];
    int64_t n[2], learned_from;
    GxError err;
} gx__Pair;

static const char *const gx__pair_name[] = {"chosen", "rejected"};

static void gx__pair_close(gx__Pair *x)
{
    for (int k = 0; k < 2; k++) free(x->text[k]), free(x->ids[k]);
    memset(x, 0, sizeof *x);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

// said: the prompt; NULL: it is the common beginning of the completions.
static GxStatus gx__pair_read_texts(const gx__Pairs *a, gx__Pair *x, const char *said, const char *chosen,
                                    const char *rejected)
{
    const char *prompt = said ? said : "", *completion[] = {chosen, rejected};
    int64_t common = said ? 0 : gx_chat_common(completion[0], completion[1]);
    if (common > 0 && completion[0][common - 1] == ' ') common--; // the space belongs to the next word
    for (int k = 0; k < 2; k++) {
        if (!completion[k][common + (int64_t)strspn(completion[k] + common, " \t\r\n")])
            return GX_FAIL(&x->err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is empty%s; expected text", a->path, (long)x->number,
                           gx__pair_name[k], common ? " after what it shares with the other one" : "");
        const size_t bytes = strlen(prompt) + strlen(completion[k]) + 1;
        if (!(x->text[k] = (char *)malloc(bytes)))
            return GX_FAIL(&x->err, GX_ERR_MEMORY, "no memory for a pair of %ld bytes", (long)bytes);
        snprintf(x->text[k], bytes, "%s%s", prompt, completion[k]);
        x->bytes[k] = (int64_t)bytes - 1;
    }
    x->from = (int64_t)strlen(prompt) + common;
    return GX_OK;
}

// ---- conversations -------------------------------------------------------------------------------------------------

// The number of first turns that two conversations have in common.
static int gx__pair_common_turns(const GxChatRecord *a, const GxChatRecord *b)
{
    int n = 0;
    while (n < a->n && n < b->n && a->turn[n].role == b->turn[n].role && !strcmp(a->turn[n].text, b->turn[n].text)) n++;
    return n;
}

// After the first `prompt` turns there must be exactly one turn of the assistant's.
static GxStatus gx__pair_check_turns(const gx__Pairs *a, gx__Pair *x, const GxChatRecord *r, int k, int prompt)
{
    if (r->n == prompt + 1 && prompt > 0 && r->turn[prompt].role == GX_CHAT_ASSISTANT) return GX_OK;
    return GX_FAIL(&x->err, GX_ERR_FORMAT,
                   "%s:%ld: \"%s\" has %d turn%s after a prompt of %d; expected one turn of the assistant, after a "
                   "prompt that ends with the user's turn",
                   a->path, (long)x->number, gx__pair_name[k], r->n - prompt, gx_text_s(r->n - prompt), prompt);
}

static GxStatus gx__pair_take_text(const gx__Pairs *a, gx__Pair *x, const GxChatRecord *r, int k)
{
    GxChatText said;
    GX_TRY(gx_chat_training_text(a->how->format, r->turn, r->n, 1, &said, NULL, &x->err));
    const int64_t from = said.span[0].begin;
    x->lacks |= gx_chat_lacks(a->how->format, r->turn, r->n, &said);
    x->bytes[k] = said.span[said.spans - 1].end;
    x->from = k ? gx_min(x->from, from) : from;
    x->text[k] = said.text, said.text = NULL;
    gx_chat_text_free(&said);
    return GX_OK;
}

static GxStatus gx__pair_take_turns(const gx__Pairs *a, gx__Pair *x, GxChatRecord r[2], const GxJson *record)
{
    const GxJson *said = gx_json_get(record, "prompt");
    int prompt = 0;
    for (int k = 0; k < 2; k++) {
        if (said) GX_TRY(gx_chat_record_add(&r[k], said, "prompt", a->path, x->number, &x->err));
        prompt = r[k].n;
        GX_TRY(gx_chat_record_add(&r[k], gx_json_get(record, gx__pair_name[k]), gx__pair_name[k], a->path, x->number,
                                  &x->err));
    }
    if (!said) prompt = gx__pair_common_turns(&r[0], &r[1]);
    // equal conversations; reported once their tokens are compared
    if (!said && prompt == r[0].n && prompt == r[1].n) prompt--;
    for (int k = 0; k < 2; k++) GX_TRY(gx__pair_check_turns(a, x, &r[k], k, prompt));
    if (!a->how->format)
        return GX_FAIL(&x->err, GX_ERR_ARGUMENT,
                       "%s:%ld: the pair consists of messages, and %s; --chat_template accepts a template file, or one "
                       "of %s",
                       a->path, (long)x->number,
                       a->how->lacks ? a->how->lacks
                                     : "neither the model's folder nor the tokenizer's has a chat template",
                       GX_CHAT_NAMES);
    for (int k = 0; k < 2; k++) GX_TRY(gx__pair_take_text(a, x, &r[k], k));
    return GX_OK;
}

static GxStatus gx__pair_read_turns(const gx__Pairs *a, gx__Pair *x, const GxJson *record)
{
    GxChatRecord r[2] = {GX_ZERO, GX_ZERO};
    const GxStatus status = gx__pair_take_turns(a, x, r, record);
    gx_chat_record_close(&r[0]), gx_chat_record_close(&r[1]);
    x->is_conversation = 1;
    return status;
}

// ---- a record ------------------------------------------------------------------------------------------------------

static GxStatus gx__pair_take_record(const gx__Pairs *a, gx__Pair *x, const GxJson *record)
{
    static const char *const member[] = {"chosen", "rejected", "prompt"};
    const GxJsonType type = gx_json_type(gx_json_get(record, "chosen"));
    if (gx_json_type(record) != GX_JSON_OBJECT)
        return GX_FAIL(&x->err, GX_ERR_FORMAT, "%s:%ld: the line is %s; expected an object", a->path, (long)x->number,
                       gx_json_type_name(record));
    for (int i = 0; i < 3; i++) {
        const GxJson *value = gx_json_get(record, member[i]);
        if (!value && i == 2) break;
        if (!value)
            return GX_FAIL(&x->err, GX_ERR_FORMAT,
                           "%s:%ld: the record has no \"%s\"; expected a pair: {\"prompt\": ..., \"chosen\": ..., "
                           "\"rejected\": ...}%s",
                           a->path, (long)x->number, member[i],
                           gx_json_get(record, "messages") || gx_json_get(record, "conversations") ||
                                   gx_json_get(record, "instruction")
                               ? "; to learn conversations, leave out --task dpo"
                               : "");
        if (type != GX_JSON_STRING && type != GX_JSON_ARRAY)
            return GX_FAIL(&x->err, GX_ERR_FORMAT, "%s:%ld: \"chosen\" is %s; expected a string, or a list of messages",
                           a->path, (long)x->number, gx_json_type_name(value));
        if (gx_json_type(value) != type)
            return GX_FAIL(&x->err, GX_ERR_FORMAT,
                           "%s:%ld: \"%s\" is %s, but \"chosen\" is %s; expected all of them to be strings, or all to "
                           "be lists of messages%s",
                           a->path, (long)x->number, member[i], gx_json_type_name(value),
                           gx_json_type_name(gx_json_get(record, "chosen")),
                           i == 2 ? " (\"prompt\" may be left out if the others begin with it)" : "");
    }
    GX_TRY(gx_chat_record_check(record, a->path, x->number, &x->err));
    if (type != GX_JSON_STRING) return gx__pair_read_turns(a, x, record);
    const GxJson *said = gx_json_get(record, "prompt");
    return gx__pair_read_texts(a, x, said ? gx_json_string(said) : NULL, gx_json_string(gx_json_get(record, "chosen")),
                               gx_json_string(gx_json_get(record, "rejected")));
}

// ---- tokens --------------------------------------------------------------------------------------------------------

// Encodes the first `bytes` bytes of a text, with the tokens of the tokenizer's frame before it, but not those after
// it: free(*ids).
static GxStatus gx__pair_encode(const gx__Pairs *a, gx__Pair *x, const char *text, int64_t bytes, int32_t **ids,
                                int64_t *n)
{
    const GxTokenFrame *frame = &a->t->frame[0];
    const GxSpecialTokens special = x->is_conversation ? GX_SPECIAL_AS_TOKENS : GX_SPECIAL_AS_TEXT;
    int64_t before = 0;
    *n = 0;
    *ids = (int32_t *)malloc((size_t)(gx_tokenizer_most(a->t, bytes) + GX_FRAME_MOST + 2) * sizeof **ids);
    if (!*ids) return GX_FAIL(&x->err, GX_ERR_MEMORY, "no memory for the tokens of a text of %ld bytes", (long)bytes);
    for (; !x->is_conversation && before < frame->n && frame->part[before].id >= 0; before++)
        (*ids)[before] = frame->part[before].id;
    GX_TRY(gx_tokenizer_encode(a->t, text, bytes, special, *ids + before, n, &x->err));
    *n += before;
    return GX_OK;
}

static GxStatus gx__pair_tokenize(const gx__Pairs *a, gx__Pair *x)
{
    int32_t *prompt = NULL;
    int64_t shared = 0, n = 0;
    for (int k = 0; k < 2; k++) {
        GX_TRY(gx__pair_encode(a, x, x->text[k], x->bytes[k], &x->ids[k], &x->n[k]));
        if (!x->is_conversation) x->ids[k][x->n[k]++] = a->t->end;
    }
    const GxStatus status = gx__pair_encode(a, x, x->text[0], x->from, &prompt, &n);
    n = gx_min(n, gx_min(x->n[0], x->n[1]));
    while (status == GX_OK && shared < n && prompt[shared] == x->ids[0][shared] && prompt[shared] == x->ids[1][shared])
        shared++;
    free(prompt);
    GX_TRY(status);
    x->learned_from = gx_max(shared, 1);
    if (x->n[0] == x->n[1] && !memcmp(x->ids[0], x->ids[1], (size_t)x->n[0] * sizeof **x->ids))
        return GX_FAIL(
            &x->err, GX_ERR_FORMAT,
            "%s:%ld: \"chosen\" and \"rejected\" have the same tokens, so neither can be preferred; remove the record",
            a->path, (long)x->number);
    for (int k = 0; k < 2; k++)
        if (x->n[k] <= x->learned_from)
            return GX_FAIL(&x->err, GX_ERR_FORMAT, "%s:%ld: nothing in \"%s\" would be learned: it has %ld token%s",
                           a->path, (long)x->number, gx__pair_name[k], (long)x->n[k], gx_text_s(x->n[k]));
    return GX_OK;
}

static GxStatus gx__pair_check_tokenizer(const gx__Pairs *a, gx__Pair *x)
{
    const GxChatFormat *f = a->how->format;
    if (!x->is_conversation && a->t->end < 0)
        return GX_FAIL(&x->err, GX_ERR_ARGUMENT,
                       "%s:%ld: the pair consists of texts, but the tokenizer %s has no eos_token to end a completion; "
                       "use another tokenizer, or messages",
                       a->path, (long)x->number, a->t->identity);
    if (x->is_conversation && gx_chat_end(f)[0] && a->t->kind != &gx_byte_tokens &&
        gx_tokenizer_find(a->t, gx_chat_end(f)) < 0)
        return GX_FAIL(&x->err, GX_ERR_ARGUMENT,
                       "%s:%ld: the tokenizer %s has no token %s, which ends the answers of the format %s; "
                       "--chat_template NAME or FILE names another format: %s",
                       a->path, (long)x->number, a->t->identity, gx_chat_end(f), gx_chat_name(f), GX_CHAT_NAMES);
    return GX_OK;
}

static GxStatus gx__pair_read_line(const gx__Pairs *a, gx__Pair *x)
{
    GxTextPlace place = {a->path, x->number, x->row};
    GxError e = GX_ZERO;
    GxJson *json = NULL;
    if (!a->is_sound) GX_TRY(gx_text_check(&place, x->line, x->line_bytes, &x->err));
    // ":1:12: ...", the position in this line
    if (gx_json_parse(&json, x->line, (int64_t)strlen(x->line), "", &e) != GX_OK)
        return GX_FAIL(&x->err, (GxStatus)e.code, "%s:%ld%s", a->path, (long)x->number,
                       strncmp(e.message, ":1", 2) ? e.message : e.message + 2);
    const GxStatus status = gx__pair_take_record(a, x, json);
    gx_json_free(json);
    return status;
}

// The columns of a table.
static const GxRecordColumn gx__pair_columns[] = {{"prompt", GX_COLUMN_SPARSE, 0, NULL},
                                                  {"chosen", GX_COLUMN_REQUIRED, 0, NULL},
                                                  {"rejected", GX_COLUMN_REQUIRED, 0, NULL}};

static GxStatus gx__pair_read_row(const gx__Pairs *a, gx__Pair *x)
{
    const GxRecords *r = a->table;
    return gx__pair_read_texts(a, x, r->has[0] ? gx_record(r, x->row, 0) : NULL, gx_record(r, x->row, 1),
                               gx_record(r, x->row, 2));
}

static void gx__pair_read(const gx__Pairs *a, gx__Pair *x)
{
    GxError e;
    GxStatus status = a->table ? gx__pair_read_row(a, x) : gx__pair_read_line(a, x);
    if (status == GX_OK) status = gx__pair_check_tokenizer(a, x);
    if (status == GX_OK) gx__pair_tokenize(a, x);
    const size_t path = strlen(a->path);
    if (!x->err.code || (!strncmp(x->err.message, a->path, path) && x->err.message[path] == ':')) return;
    e = x->err; // an error of a text, which does not contain its place
    gx_error_clear(&x->err);
    GX_FAIL(&x->err, (GxStatus)e.code, "%s:%ld: %s", a->path, (long)x->number, e.message);
}

// ---- all lines -----------------------------------------------------------------------------------------------------

static GxStatus gx__pairs_add(GxPairs *p, const gx__Pair *x, GxError *err)
{
    const int64_t at = p->n ? p->begin[2 * p->n] : 0, tokens = x->n[0] + x->n[1];
    if (p->n + 1 > p->room || at + tokens > p->id_room) {
        p->room = gx_max(p->n + 1, 256 + 2 * p->room), p->id_room = gx_max(at + tokens, 4096 + 2 * p->id_room);
        void *begin = realloc(p->begin, (size_t)(2 * p->room + 1) * sizeof *p->begin);
        if (begin) p->begin = (int64_t *)begin;
        void *from = realloc(p->learned_from, (size_t)p->room * sizeof *p->learned_from);
        if (from) p->learned_from = (int64_t *)from;
        void *ids = realloc(p->ids, (size_t)p->id_room * sizeof *p->ids);
        if (ids) p->ids = (int32_t *)ids;
        if (!begin || !from || !ids) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld pairs", (long)p->room);
    }
    p->begin[2 * p->n] = at;
    for (int k = 0; k < 2; k++) {
        int64_t *begin = p->begin + 2 * p->n + k;
        memcpy(p->ids + begin[0], x->ids[k], (size_t)x->n[k] * sizeof *p->ids);
        begin[1] = begin[0] + x->n[k];
        p->hash = gx_hash(gx_hash(p->hash, &x->n[k], sizeof x->n[k]), x->ids[k], x->n[k] * (int64_t)sizeof *p->ids);
    }
    p->learned_from[p->n++] = x->learned_from;
    p->hash = gx_hash(p->hash, &x->learned_from, sizeof x->learned_from);
    p->learned += tokens - 2 * x->learned_from;
    return GX_OK;
}

// Reads some lines by all threads. Pairs after a wrong one are only checked.
static GxStatus gx__pairs_lines(const gx__Pairs *a, GxPairs *p, gx__Pair *x, int n, int threads, GxBadLines *bad,
                                GxError *err)
{
    GxStatus status = GX_OK;
    int goes_on = 1;
    (void)threads;
    GX_OMP(parallel for schedule(dynamic, 1) num_threads(threads > 0 ? threads : 1))
    for (int i = 0; i < n; i++) gx__pair_read(a, &x[i]);
    for (int i = 0; i < n; i++) {
        const int fits = x[i].n[0] + x[i].n[1] <= a->most;
        if (x[i].err.code && goes_on) goes_on = gx_bad_lines_add(bad, x[i].number, &x[i].err);
        gx_bad_lines_pass(bad, x[i].number, x[i].line_bytes);
        if (x[i].err.code) {
            gx__pair_close(&x[i]);
            continue;
        }
        p->records++, p->left_out += !fits, p->conversations += x[i].is_conversation;
        for (int k = 0; k < GX_CHAT_LACKS; k++) p->lacks[k] += x[i].lacks >> k & 1;
        if (status == GX_OK && fits && bad->n == 0) status = gx__pairs_add(p, &x[i], err);
        gx__pair_close(&x[i]);
    }
    return goes_on ? status : gx_bad_lines_fail(bad, 1, err);
}

// text[bytes]: whole lines, whose ends become 0. byte: where in the file they begin.
static GxStatus gx__pairs_read(const gx__Pairs *a, GxPairs *p, char *text, int64_t bytes, int64_t byte, gx__Pair *x,
                               int threads, GxError *err)
{
    char *const text_end = text + bytes, *const begin = text;
    GxStatus status = GX_OK;
    GxBadLines bad = GX_ZERO;
    GxError e = GX_ZERO;
    int64_t number = 1;
    bad.skip = gx_chat_record_reading(a->how)->skip;
    for (int n = 0; text < text_end && status == GX_OK && gx_bad_lines_goes_on(&bad); number++) {
        char *end = (char *)memchr(text, '\n', (size_t)(text_end - text)), *next = end ? end + 1 : text_end;
        end = end ? end : text_end;
        *end = 0;
        if (text + strspn(text, "\r") < end) {
            x[n].line = text, x[n].line_bytes = end - text, x[n].row = byte + (text - begin);
            x[n++].number = number;
        } else if (next[strspn(next, "\r\n")])
            status = GX_FAIL(&e, GX_ERR_FORMAT,
                             "%s:%ld: the line is empty, but others follow; remove it, or make it a record", a->path,
                             (long)number);
        text = next;
        if (status == GX_OK && n < GX__PAIRS_LINES && text < text_end) continue;
        const GxStatus lines = gx__pairs_lines(a, p, x, n, threads, &bad, &e); // also errors before an empty line
        status = status == GX_OK ? lines : status, n = 0;
    }
    GX_TRY(gx_bad_lines_fail(&bad, 1, err));
    return status == GX_OK ? GX_OK : GX_FAIL(err, status, "%s", e.message);
}

static GxStatus gx__pairs_read_lines(gx__Pairs *a, GxPairs *p, gx__Pair *x, int threads, GxError *err)
{
    GxTextPlace place = {a->path, 1, 0};
    GxError e = GX_ZERO;
    char *text;
    int64_t bytes;
    GX_TRY(gx_file_check_kind(a->path, GX_FILE_AS_LINES, err));
    GX_TRY(gx_file_read(a->path, GX__PAIRS_CAP, &text, &bytes, err));
    GxStatus status = gx_text_check(&place, text, bytes, &e);
    const int64_t mark = strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    a->is_sound = status == GX_OK;
    if (!a->is_sound && !gx_chat_record_reading(a->how)->skip) status = GX_FAIL(err, status, "%s", e.message);
    else status = gx__pairs_read(a, p, text + mark, bytes - mark, mark, x, threads, err);
    free(text);
    return status;
}

static GxStatus gx__pairs_read_table(gx__Pairs *a, GxPairs *p, gx__Pair *x, int threads, GxError *err)
{
    GxRecords table;
    GxBadLines bad = GX_ZERO;
    GxError e = GX_ZERO;
    GxStatus status = GX_OK;
    int n = 0;
    bad.skip = gx_chat_record_reading(a->how)->skip;
    GX_TRY(gx_records_open(&table, a->path, GX_RECORDS_BY_NAME, gx__pair_columns, 3, bad.skip, err));
    a->table = &table;
    for (int64_t i = 0; i < table.n && status == GX_OK && gx_bad_lines_goes_on(&bad); i++) {
        x[n].row = i, x[n++].number = gx_record_line(&table, i);
        if (n < GX__PAIRS_LINES && i + 1 < table.n) continue;
        status = gx__pairs_lines(a, p, x, n, threads, &bad, &e);
        n = 0;
    }
    const GxStatus lines = gx_bad_lines_fail(&bad, table.first_line, err);
    gx_records_close(&table);
    a->table = NULL;
    GX_TRY(lines);
    return status == GX_OK ? GX_OK : GX_FAIL(err, status, "%s", e.message);
}

GxStatus gx_pairs_open(GxPairs *p, const char *path, const GxTokenizer *t, const GxChatReading *how, int64_t most,
                       int threads, GxError *err)
{
    gx__Pairs a = {path, t, how, most, NULL, 1};
    const GxBadRecords *skip = gx_chat_record_reading(how)->skip;
    memset(p, 0, sizeof *p);
    p->hash = GX_HASH_START;
    gx__Pair *x = (gx__Pair *)calloc(GX__PAIRS_LINES, sizeof *x);
    if (!x) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the lines of %s", path);
    GxStatus status = gx_records_is_table(path) ? gx__pairs_read_table(&a, p, x, threads, err)
                                                : gx__pairs_read_lines(&a, p, x, threads, err);
    free(x);
    if (status == GX_OK && p->records == 0 && skip && skip->n)
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s: all of its pairs are wrong, so none is left; the first one: %s", path,
                         skip->why[0]);
    if (status == GX_OK && p->records == 0)
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s has no pairs; expected a JSON record in each line", path);
    char none[60] = "its only pair has not";
    if (p->records != 1) snprintf(none, sizeof none, "none of its %ld pairs has", (long)p->records);
    if (status == GX_OK && p->n == 0)
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s: %s both texts within %ld tokens; use a larger seq_len", path, none,
                         (long)most);
    if (status != GX_OK) gx_pairs_close(p);
    return status;
}

void gx_pairs_close(GxPairs *p)
{
    free(p->begin), free(p->ids), free(p->learned_from);
    memset(p, 0, sizeof *p);
}
#endif
