// task/source_texts.h: reads pairs of a source and its target from a file of records (data/records.h), as tokens.
//
//     GxRecords file;
//     GX_TRY(gx_source_file_open(&file, "train.tsv", "source", "target", NULL, err));
//     GX_TRY(gx_source_texts_open(&t, &file, GX_TEXTS_TRAINING, 0.05, err));         // 95% of it, by a hash
//     GX_TRY(gx_source_texts_tokenize(&t, &tokenizer, &form, threads, err));
//     … t.ids[GX_OF_SOURCE][i][0 .. t.length[GX_OF_SOURCE][i]) …
//
// If a file is divided into training and held-out pairs, a hash of the source decides where a pair goes, so equal
// sources are never in both parts. Tokens: what the family puts before a text, the text's, and what it puts behind it
// (GxTextFrame). Longer texts are cut before their end token, and counted.
// Everything is read and tokenized at the beginning; errors name file and line. Memory: the file, and 4 bytes per token.
#ifndef GX_SOURCE_TEXTS_H
#define GX_SOURCE_TEXTS_H
#include "../data/records.h"
#include "../model/model.h"
#include "../text/tokenizer.h"
#include "labelled_texts.h"
GX_BEGIN

enum { GX_OF_SOURCE = 0, GX_OF_TARGET, GX_OF_PAIR };

// The tokens of a frame, by their names in config.json; languages by the options that name them. id -1: there is none.
enum { GX_FRAME_TOKENS = 6 };
typedef struct {
    const char *name;
    int32_t id;
} GxFrameToken;
void gx_frame_tokens(const GxTextFrame *f, GxFrameToken token[GX_FRAME_TOKENS]);
int gx_frame_is_language(const GxFrameToken *t);
// Fails unless they are in the vocabulary, and a text's first token is another than its last.
GxStatus gx_frame_check(const GxTextFrame *f, int64_t vocab, GxError *err);
// 1 if ids[n] has a token that is not special, but has an id of the frame (a special one is what the text itself asks
// for): with bytes as tokens, or with a tokenizer that the model's ids are not made for. *of: the frame's; what: the
// text's, for a message.
int gx_frame_is_in(const GxTextFrame *f, const GxTokenizer *t, const int32_t *ids, int64_t n, GxFrameToken *of,
                   char what[GX_TEXT_VALUE]);

// What is put around a source or a target.
typedef struct {
    int32_t before[1], behind[2];
    int64_t n_before, n_behind;
} GxFrameEnds;
GxFrameEnds gx_frame_ends(const GxTextFrame *f, int which);

typedef struct {
    const GxTextFrame *frame;
    const char *prefix;    // is put before each source; "": nothing
    int64_t T[GX_OF_PAIR]; // the most tokens of a source, and of a target, with what is put around them
} GxSourceForm;

typedef struct {
    const GxRecords *file;
    int64_t n;
    int64_t *record;                              // [n] the pair's record in the file
    int32_t **ids[GX_OF_PAIR];                    // [n] the tokens of its source, of its target
    int32_t *length[GX_OF_PAIR];                  // [n]
    int64_t cut[GX_OF_PAIR], longest[GX_OF_PAIR]; // number of texts that were cut; tokens of the longest text
} GxSourceTexts;

// source, target: names of columns. may_lack_targets: all targets may be missing. skip: counts bad records, which are
// left out; NULL: they are errors.
GxStatus gx_source_file_open(GxRecords *file, const char *path, const char *source, const char *target,
                             int may_lack_targets, GxBadRecords *skip, GxError *err);
GxStatus gx_source_texts_open(GxSourceTexts *t, const GxRecords *file, GxTextsPart part, double held_out, GxError *err);
// A text with a token of the family's frame that is not special is an error (gx_frame_is_in).
GxStatus gx_source_texts_tokenize(GxSourceTexts *t, const GxTokenizer *tokenizer, const GxSourceForm *form, int threads,
                                  GxError *err);
void gx_source_texts_close(GxSourceTexts *t); // accepts a struct of zeros
// Of text i; a target that is missing is "".
const char *gx_source_text(const GxSourceTexts *t, int which, int64_t i);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SOURCE_TEXTS_IMPLEMENTED)
#define GX_SOURCE_TEXTS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/random.h"

GxStatus gx_source_file_open(GxRecords *file, const char *path, const char *source, const char *target,
                             int may_lack_targets, GxBadRecords *skip, GxError *err)
{
    const GxRecordColumn column[] = {
        {source, GX_COLUMN_REQUIRED, 0, "source_column"},
        {target, may_lack_targets ? GX_COLUMN_OPTIONAL : GX_COLUMN_REQUIRED, 0, "target_column"}};
    if (!source[0] || !target[0] || !strcmp(source, target))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--source_column is \"%s\" and --target_column \"%s\"; expected the names of two columns",
                       source, target);
    return gx_records_open(file, path, GX_RECORDS_BY_NAME, column, 2, skip, err);
}

const char *gx_source_text(const GxSourceTexts *t, int which, int64_t i)
{
    return gx_record(t->file, t->record[i], which);
}

// A pseudo-random number in [0, 1), the hash of the source.
static double gx__source_place(const GxRecords *file, int64_t i)
{
    const char *source = gx_record(file, i, GX_OF_SOURCE);
    const uint64_t hash = gx_hash(GX_HASH_START, source, (int64_t)strlen(source));
    return (double)gx_random_uniform(hash, 0, 0, gx_random_site(GX_SITE_SHUFFLE, 2));
}

GxStatus gx_source_texts_open(GxSourceTexts *t, const GxRecords *file, GxTextsPart part, double held_out, GxError *err)
{
    memset(t, 0, sizeof *t);
    t->file = file;
    t->record = (int64_t *)malloc((size_t)gx_max(file->n, 1) * sizeof *t->record);
    if (!t->record) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld pairs of texts", (long)file->n);
    for (int64_t i = 0; i < file->n; i++) {
        const GxTextsPart of = gx__source_place(file, i) < held_out ? GX_TEXTS_HELD_OUT : GX_TEXTS_TRAINING;
        if (part == GX_TEXTS_ALL || part == of) t->record[t->n++] = i;
    }
    if (t->n > 0) return GX_OK;
    gx_source_texts_close(t);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: of %ld record%s none is %s with --validation_fraction %g (equal sources stay together); give "
                   "more records, another fraction, or a file with --validation_data",
                   file->path, (long)file->n, gx_text_s(file->n),
                   part == GX_TEXTS_HELD_OUT ? "held out for validation" : "left for training", held_out);
}

void gx_source_texts_close(GxSourceTexts *t)
{
    for (int which = 0; which < GX_OF_PAIR; which++) {
        for (int64_t i = 0; i < t->n && t->ids[which]; i++) free(t->ids[which][i]);
        free(t->ids[which]), free(t->length[which]);
    }
    free(t->record);
    memset(t, 0, sizeof *t);
}

// ---- tokens --------------------------------------------------------------------------------------------------------

void gx_frame_tokens(const GxTextFrame *f, GxFrameToken token[GX_FRAME_TOKENS])
{
    const GxFrameToken all[GX_FRAME_TOKENS] = {{"bos_token_id", f->begin},
                                               {"eos_token_id", f->end},
                                               {"pad_token_id", f->pad},
                                               {"decoder_start_token_id", f->has_languages ? -1 : f->start},
                                               {"source_lang", f->has_languages ? f->language[GX_OF_SOURCE] : -1},
                                               {"target_lang", f->has_languages ? f->language[GX_OF_TARGET] : -1}};
    memcpy(token, all, sizeof all);
}

GxFrameEnds gx_frame_ends(const GxTextFrame *f, int which)
{
    GxFrameEnds e = GX_ZERO;
    const int is_before = f->has_languages && f->language_first;
    if (f->begin >= 0 || is_before) e.before[e.n_before++] = is_before ? f->language[which] : f->begin;
    e.behind[e.n_behind++] = f->end;
    if (f->has_languages && !is_before) e.behind[e.n_behind++] = f->language[which];
    return e;
}

int gx_frame_is_language(const GxFrameToken *t)
{
    return !strcmp(t->name, "source_lang") || !strcmp(t->name, "target_lang");
}

GxStatus gx_frame_check(const GxTextFrame *f, int64_t vocab, GxError *err)
{
    GxFrameToken of[GX_FRAME_TOKENS];
    gx_frame_tokens(f, of);
    for (int i = 0; i < GX_FRAME_TOKENS; i++)
        if (of[i].id >= vocab)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s is %ld, but the vocabulary ends at %ld; set it to the id that the tokenizer has for it",
                           of[i].name, (long)of[i].id, (long)vocab - 1);
    if (f->begin != f->end) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "bos_token_id and eos_token_id are both %ld: a target would end where it begins; expected the ids of "
        "two tokens",
        (long)f->end);
}

int gx_frame_is_in(const GxTextFrame *f, const GxTokenizer *t, const int32_t *ids, int64_t n, GxFrameToken *of,
                   char what[GX_TEXT_VALUE])
{
    GxFrameToken all[GX_FRAME_TOKENS];
    char room[8], cut[GX_TEXT_VALUE];
    gx_frame_tokens(f, all);
    for (int64_t k = 0; k < n; k++)
        for (int j = 0; j < GX_FRAME_TOKENS; j++) {
            if (ids[k] != all[j].id || gx_tokenizer_is_special(t, ids[k])) continue;
            *of = all[j];
            if (t->kind == &gx_byte_tokens) snprintf(what, GX_TEXT_VALUE, "the byte 0x%02x", (unsigned)ids[k]);
            else
                snprintf(what, GX_TEXT_VALUE, "the token \"%s\"",
                         gx_text_cut(gx_tokenizer_piece(t, ids[k], room), cut, 40));
            return 1;
        }
    return 0;
}

static GxStatus gx__source_check_frame(const GxSourceTexts *t, int64_t i, const GxTokenizer *tokenizer,
                                       const GxSourceForm *form, const int32_t *ids, int64_t n, GxError *err)
{
    GxFrameToken of;
    char what[GX_TEXT_VALUE];
    if (!gx_frame_is_in(form->frame, tokenizer, ids, n, &of, what)) return GX_OK;
    const char *which = form->prefix[0] ? " (or --source_prefix)" : "";
    const long line = (long)gx_record_line(t->file, t->record[i]);
    if (gx_frame_is_language(&of))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: a text%s has %s, whose id %ld is that of --%s; use a tokenizer in which languages are "
                       "special tokens, or change the text",
                       t->file->path, line, which, what, (long)of.id, of.name);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s:%ld: a text%s has %s, whose id %ld is the model's %s; for a new model set --%s to the id of a "
                   "special token of the tokenizer, or use another --tokenizer, or change the text",
                   t->file->path, line, which, what, (long)of.id, of.name, of.name);
}

// Frames n tokens in room, behind the places for what is before them; truncated before what is behind them.
static GxStatus gx__source_keep(GxSourceTexts *t, int which, int64_t i, const GxSourceForm *form, int32_t *room,
                                int64_t n, GxError *err)
{
    const GxFrameEnds ends = gx_frame_ends(form->frame, which);
    const int64_t kept = gx_min(ends.n_before + n + ends.n_behind, form->T[which]);
    memcpy(room, ends.before, (size_t)ends.n_before * sizeof *room);
    memcpy(room + kept - ends.n_behind, ends.behind, (size_t)ends.n_behind * sizeof *room);
    t->ids[which][i] = (int32_t *)malloc((size_t)kept * sizeof *room);
    if (!t->ids[which][i]) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %ld texts", (long)t->n);
    memcpy(t->ids[which][i], room, (size_t)kept * sizeof *room);
    t->length[which][i] = (int32_t)kept;
    return GX_OK;
}

// Returns the number of tokens before truncation; -1: an error.
static int64_t gx__source_tokenize_one(GxSourceTexts *t, int which, int64_t i, const GxTokenizer *tokenizer,
                                       const GxSourceForm *form, GxError *err)
{
    const char *prefix = which == GX_OF_SOURCE ? form->prefix : "", *text = gx_source_text(t, which, i);
    const size_t before = strlen(prefix), bytes = before + strlen(text);
    char *both = (char *)malloc(bytes + 1);
    const GxFrameEnds ends = gx_frame_ends(form->frame, which);
    const int64_t around = ends.n_before + ends.n_behind;
    int32_t *room =
        (int32_t *)malloc((size_t)(gx_tokenizer_most(tokenizer, (int64_t)bytes + 1) + around) * sizeof *room);
    int64_t n = 0;
    GxStatus status = both && room
                          ? GX_OK
                          : GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of a text of %ld bytes", (long)bytes);
    if (status == GX_OK) {
        memcpy(both, prefix, before), memcpy(both + before, text, bytes - before + 1);
        status = gx_tokenizer_encode(tokenizer, both, (int64_t)bytes, gx_tokenizer_special(tokenizer),
                                     room + ends.n_before, &n, err);
    }
    if (status == GX_OK) status = gx__source_check_frame(t, i, tokenizer, form, room + ends.n_before, n, err);
    if (status == GX_OK) status = gx__source_keep(t, which, i, form, room, n, err);
    free(both), free(room);
    return status == GX_OK ? around + n : -1;
}

GxStatus gx_source_texts_tokenize(GxSourceTexts *t, const GxTokenizer *tokenizer, const GxSourceForm *form, int threads,
                                  GxError *err)
{
    const int team = threads > 0 ? threads : 1;
    (void)team; // unused without OpenMP
    for (int which = 0; which < GX_OF_PAIR; which++) {
        int64_t cut = 0, longest = 0;
        t->ids[which] = (int32_t **)calloc((size_t)t->n, sizeof *t->ids[which]);
        t->length[which] = (int32_t *)calloc((size_t)t->n, sizeof *t->length[which]);
        if (!t->ids[which] || !t->length[which])
            return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %ld texts", (long)t->n);
        GX_OMP(parallel for schedule(dynamic, 256) num_threads(team) reduction(+ : cut) reduction(max : longest))
        for (int64_t i = 0; i < t->n; i++) {
            if (gx_error_code(err)) continue;
            const int64_t tokens = gx__source_tokenize_one(t, which, i, tokenizer, form, err);
            cut += tokens > form->T[which];
            longest = gx_max(longest, tokens);
        }
        t->cut[which] = cut, t->longest[which] = longest;
        GX_TRY(gx_error_code(err));
    }
    return GX_OK;
}
#endif
