// text_ends.h: warns if a model will not learn where texts end. Nothing here changes what is read.
//
//     GxTextEnds e = gx_text_ends(&tokenizer);
//     gx_text_ends_count(&e, text, bytes, bytes);            // for each text
//     gx_text_ends_warn(&e, "texts.txt", log);
//
// An end-of-text token that is spelled out in a text ("<|endoftext|>") is ordinary characters to every reader: it
// becomes several tokens, and neither separates documents nor ends generation. Records that are not followed by an
// end-of-text token are separate documents, but a model does not learn to end one. In a .bin file the ends are tokens,
// but the file does not say which.
#ifndef GX_TEXT_ENDS_H
#define GX_TEXT_ENDS_H
#include "../base/log.h"
#include "token_file.h"
#include "../text/tokenizer.h"
GX_BEGIN

enum { GX_TEXT_END_BYTES = 32, GX_TEXT_END_MANY = 2 }; // that many are not a coincidence

typedef struct {
    char written[2][GX_TEXT_END_BYTES]; // <|endoftext|>, and the tokenizer's own if it is another one; "": none
    int64_t count[2];
} GxTextEnds;

GxTextEnds gx_text_ends(const GxTokenizer *t);
// Counts those that begin in the first `begins` bytes of text[bytes].
void gx_text_ends_count(GxTextEnds *e, const char *text, int64_t bytes, int64_t begins);
// log NULL: silence.
void gx_text_ends_warn(const GxTextEnds *e, const char *path, const GxLogger *log);
// For consecutive documents: warns if no token ends them.
void gx_text_ends_warn_of_none(const GxTokenizer *t, const char *path, int64_t documents, const GxLogger *log);
// For a file of llm.c's: warns if no document ends in its first tokens, or if they end with an end-of-turn token.
GxStatus gx_text_ends_warn_of_bin(const GxTokenFile *f, int fd, const char *path, const GxTokenizer *t,
                                  const GxLogger *log, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEXT_ENDS_IMPLEMENTED)
#define GX_TEXT_ENDS_IMPLEMENTED
#include <stdio.h>
#include <string.h>

enum { GX__TEXT_ENDS_LOOK = 1 << 20, GX__TEXT_ENDS_CHUNK = 1 << 12 }; // tokens of a .bin that are examined

static const char gx__text_ends_known[] = "<|endoftext|>";

GxTextEnds gx_text_ends(const GxTokenizer *t)
{
    GxTextEnds e = GX_ZERO;
    char room[8];
    const char *own = t->end >= 0 ? gx_tokenizer_piece(t, t->end, room) : NULL;
    snprintf(e.written[0], GX_TEXT_END_BYTES, "%s", gx__text_ends_known);
    // a short piece ("\n") occurs for other reasons
    if (own && strcmp(own, e.written[0]) && strlen(own) > 2 && strlen(own) < GX_TEXT_END_BYTES)
        snprintf(e.written[1], GX_TEXT_END_BYTES, "%s", own);
    return e;
}

void gx_text_ends_count(GxTextEnds *e, const char *text, int64_t bytes, int64_t begins)
{
    for (int k = 0; k < 2; k++) {
        const int64_t n = (int64_t)strlen(e->written[k]);
        const char *p = text, *last = text + gx_min(bytes - n, begins - 1); // the last place where it may begin
        if (n == 0) continue;
        while (p <= last && (p = (const char *)memchr(p, e->written[k][0], (size_t)(last - p + 1))) != NULL) {
            const int is_one = !memcmp(p, e->written[k], (size_t)n);
            e->count[k] += is_one;
            p += is_one ? n : 1;
        }
    }
}

void gx_text_ends_warn(const GxTextEnds *e, const char *path, const GxLogger *log)
{
    for (int k = 0; k < 2; k++)
        if (e->count[k] >= GX_TEXT_END_MANY)
            gx_log(log, GX_LOG_WARNING,
                   "%s contains %s as text, %ld times: it is learned as plain characters and does not separate "
                   "documents; make each document a record {\"text\": \"...\"} of a .jsonl file, without it",
                   path, e->written[k], (long)e->count[k]);
}

void gx_text_ends_warn_of_none(const GxTokenizer *t, const char *path, int64_t documents, const GxLogger *log)
{
    const GxTokenFrame *frame = &t->frame[0];
    const int is_framed = // each text is followed by a token anyway
        gx_tokenizer_frame_tokens(t, 1) > 0 && (frame->n == 0 || frame->part[frame->n - 1].id >= 0);
    if (documents < 2 || t->end >= 0 || is_framed) return;
    gx_log(log, GX_LOG_WARNING,
           "%s: the model will not learn to end its %ld documents, because the tokenizer %s has no eos_token; use a "
           "--tokenizer that has one (eos_token in tokenizer_config.json)",
           path, (long)documents, t->identity);
}

// ---- files of llm.c's ----------------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    int32_t id; // -1: the tokenizer has no such token
    int64_t count;
} gx__TextEnd;

static int gx__text_ends_a_turn(const char *piece)
{
    static const char *const turns[] = {"<|im_end|>", "<|eot_id|>", "<end_of_turn>",
                                        "<|end|>",    "<|eom_id|>", "<|end_of_turn|>"};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        if (!strcmp(piece, turns[i])) return 1;
    return 0;
}

// Counts the tokens among the first *n of the file.
static GxStatus gx__text_ends_scan(const GxTokenFile *f, int fd, const char *path, gx__TextEnd *end, int ends,
                                   int64_t *n, GxError *err)
{
    int32_t ids[GX__TEXT_ENDS_CHUNK];
    *n = gx_min(f->tokens, GX__TEXT_ENDS_LOOK);
    for (int64_t at = 0, some; at < *n; at += some) {
        some = gx_min(GX__TEXT_ENDS_CHUNK, *n - at);
        GX_TRY(gx_token_file_read(f, fd, path, at, some, ids, err));
        for (int k = 0; k < ends; k++)
            for (int64_t i = 0; i < some; i++) end[k].count += end[k].id >= 0 && ids[i] == end[k].id;
    }
    return GX_OK;
}

GxStatus gx_text_ends_warn_of_bin(const GxTokenFile *f, int fd, const char *path, const GxTokenizer *t,
                                  const GxLogger *log, GxError *err)
{
    char room[8];
    const int32_t mark = f->ends >= 0 ? f->ends : f->begins;
    const char *own = mark >= 0 ? gx_tokenizer_piece(t, mark, room) : NULL;
    gx__TextEnd end[] = {
        {own, mark, 0}, {gx__text_ends_known, -1, 0}, {"<|end_of_text|>", -1, 0}, {"</s>", -1, 0}, {"<eos>", -1, 0}};
    enum { ENDS = sizeof end / sizeof *end };
    int64_t n;
    int most = 0;
    if (!own || !log) return GX_OK; // a missing mark is reported with the data
    for (int k = 1; k < ENDS; k++) end[k].id = strcmp(end[k].name, own) ? gx_tokenizer_find(t, end[k].name) : -1;
    GX_TRY(gx__text_ends_scan(f, fd, path, end, ENDS, &n, err));
    for (int k = 1; k < ENDS; k++)
        if (end[k].count > end[most].count) most = k;
    if (most > 0)
        gx_log(log, GX_LOG_WARNING,
               "%s: its documents are assumed to stand between tokens %s%s, of which there are %ld in the first %ld, "
               "but %ld %s: they are separated in the wrong places; name a --tokenizer whose eos_token is %s",
               path, own, gx__text_ends_a_turn(own) ? ", the tokenizer's eos_token and the end of a turn" : "",
               (long)end[0].count, (long)n, (long)end[most].count, end[most].name, end[most].name);
    else if (gx__text_ends_a_turn(own))
        gx_log(log, GX_LOG_WARNING,
               "%s: its documents are assumed to end with %s, the tokenizer's eos_token, which is also the end of a "
               "turn (%ld of the first %ld tokens), so that each turn would be a document; if these are conversations, "
               "train on them as .jsonl",
               path, own, (long)end[0].count, (long)n);
    else if (end[0].count == 0 && n > 0)
        gx_log(log, GX_LOG_WARNING,
               "%s: none of its first %ld tokens is %s, which is assumed to separate documents, so that all of them "
               "are one text; if the file was made with another tokenizer, name that (--tokenizer)",
               path, (long)n, own);
    return GX_OK;
}
#endif
