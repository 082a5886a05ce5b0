// task/denoising.h: pre-training of models with an encoder and a decoder on plain text: the source is a damaged text
// (text_noise.h). Two tasks differ in how it is damaged, and in what the target is:
//
//     denoising         BART: sentences in another order, spans of tokens behind a mask. The target is the text
//     span_corruption   T5: spans of tokens behind sentinels. The target is the sentinels, each with its span
//
//     ./train_bart --task denoising --train_data data/bert/pretrain.txt --tokenizer FOLDER
//
// The text (sentences.h) has a sentence per line and empty lines between documents; whole documents at its end are held
// out. A text of denoising is as many consecutive sentences of a document as fit; several share a column of the batch
// (source_batch.h) unless --pack_texts is false. span_corruption takes all tokens of a part one after another, in
// pieces of equal length, with which a source fills its column exactly; what is left at the end of the part is not
// used. Each text is put between the tokens that the model's configuration names.
//
// What becomes of a text is a function of (seed, number of the sample), so each pass over the text damages it in
// another way, and ranks and resumed runs change nothing. Held-out texts are damaged in the same way in every
// validation. The loss is a mean over all tokens of targets in a window, their end tokens included.
//
// Each machine reads its own copy of text and tokenizer, which must be identical: ranks compare hashes of both.
#ifndef GX_DENOISING_H
#define GX_DENOISING_H
#include "sentence_file.h"
#include "target_writer.h"
#include "text_noise.h"
GX_BEGIN

typedef struct {                 // texts for training, or held out ones
    int64_t n;                   // 0: there are none
    int64_t *begin;              // [n] index of the first token
    int32_t *tokens;             // [n] how many
    int32_t *length[GX_OF_PAIR]; // [n] the most tokens of its source, of its target, with those around them
    GxTextPacking packing;
} GxDenoisingPart;

typedef struct GxDenoising {
    // options
    char train_data[GX_PATH], tokenizer_folder[GX_PATH], split_special_tokens[GX_FIELD_TEXT];
    double validation_fraction;
    int64_t max_source_length, sample_lines, show_data;
    int pack_texts;
    double mlm_probability, poisson_lambda, permute_sentence_ratio; // of denoising
    double noise_density, mean_noise_span_length;                   // of span_corruption
    // identity of the data, which a checkpoint keeps besides some of the options
    GxSentenceFile file;
    char tokenizer_name[GX_FIELD_TEXT];
    // set by open
    const struct GxDenoisingKind *kind;
    GxTextFrame frame;
    GxTokenizer tokenizer;
    GxDenoisingPart train, held_out;
    GxSourceLayout layout;
    int64_t T[GX_OF_PAIR];    // of columns of sources, of targets
    GxInfilling infilling;    // of denoising
    GxSpanCounts spans;       // of a whole piece of span_corruption
    int32_t *sentinel;        // [spans.spans]
    int32_t *ids[GX_OF_PAIR]; // of the text that is being damaged
    GxNoiseRoom room;
    // of a validation, of the sample
    int64_t right; // tokens whose logit is the largest, on this rank
    GxTargetWriter writer;
} GxDenoising;

extern const GxTask gx_denoising, gx_span_corruption; // their self is a GxDenoising

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DENOISING_IMPLEMENTED)
#define GX_DENOISING_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "show_data.h"

enum { GX__DENOISING_HELD_OUT_SEED = 20191029 };                                // of what becomes of its texts
enum { GX__DENOISING_TRAIN = 2, GX__DENOISING_VALIDATE, GX__DENOISING_SAMPLE }; // numbers of sites
enum { GX__DENOISING_QUOTE = 160, GX__DENOISING_NAME = 40 };                    // bytes

typedef struct GxDenoisingKind { // what the two tasks do not share
    // Checks the options, finds tokens in the tokenizer, and sets how texts are damaged.
    GxStatus (*set_up)(GxContext *g, GxDenoising *c, const GxTaskSetup *setup);
    int64_t (*sentence)(const GxDenoising *c); // the most tokens of a sentence
    // The texts of documents [first, last).
    GxStatus (*cut)(GxContext *g, GxDenoising *c, GxDenoisingPart *part, int64_t first, int64_t last);
    // Writes the source and the target of text[n], without what is put around them, and how many tokens they have.
    void (*damage)(GxDenoising *c, GxNoiseDraws *d, const int32_t *text, int64_t n, int32_t *const to[GX_OF_PAIR],
                   int64_t written[GX_OF_PAIR]);
    void (*describe)(const GxDenoising *c, FILE *out);
} GxDenoisingKind;

// ---- options -------------------------------------------------------------------------------------------------------

#define GX__DENOISING_AT(field) offsetof(GxDenoising, field)
// clang-format off
#define GX__DENOISING_SHARED                                                                                           \
    {"train_data", GX_FIELD_PATH, GX__DENOISING_AT(train_data), "data/bert/pretrain.txt",                              \
     "text file: a sentence per line, empty lines between documents (`make data-bert` makes the default file)", NULL}, \
    {"validation_fraction", GX_FIELD_DOUBLE, GX__DENOISING_AT(validation_fraction), "0.05",                            \
     "fraction of the text held out for validation (its last documents)", "0..0.9"},                                   \
    {"max_source_length", GX_FIELD_INT, GX__DENOISING_AT(max_source_length), "0",                                      \
     "tokens of a column of sources; --seq_len says how many a column of targets has, and 0 here: as many", "0.."},    \
    GX_SPLIT_SPECIAL_TOKENS(GX__DENOISING_AT(split_special_tokens)),                                                   \
    {"sample_lines", GX_FIELD_INT, GX__DENOISING_AT(sample_lines), "3",                                                \
     "held-out sources whose targets the model writes at the end of training; 0: none", "0..1000"},                    \
    {"show_data", GX_FIELD_INT, GX__DENOISING_AT(show_data), "0",                                                      \
     "print this many samples before training: each source and its target", "0..1000"}
// clang-format on

static const GxField gx__denoising_options[] = {
    GX__DENOISING_SHARED,
    {"tokenizer", GX_FIELD_PATH, GX__DENOISING_AT(tokenizer_folder), "",
     "folder of a tokenizer with a mask token, such as BART's <mask>; empty: the model's", NULL},
    {"pack_texts", GX_FIELD_BOOL, GX__DENOISING_AT(pack_texts), "true",
     "put several texts into a sample; they do not attend to each other", NULL},
    {"mlm_probability", GX_FIELD_DOUBLE, GX__DENOISING_AT(mlm_probability), "0.3",
     "fraction of a text's tokens that are masked", "0..1"},
    {"poisson_lambda", GX_FIELD_DOUBLE, GX__DENOISING_AT(poisson_lambda), "3",
     "mean of the Poisson distribution of the lengths of masked spans, each of which becomes one mask", "1..16"},
    {"permute_sentence_ratio", GX_FIELD_DOUBLE, GX__DENOISING_AT(permute_sentence_ratio), "1",
     "fraction of a text's sentences, which end with a full stop, that change places", "0..1"},
};
static const GxField gx__span_corruption_options[] = {
    GX__DENOISING_SHARED,
    {"tokenizer", GX_FIELD_PATH, GX__DENOISING_AT(tokenizer_folder), "",
     "folder of a tokenizer with sentinels, such as T5's <extra_id_0> and so on; empty: the model's", NULL},
    {"noise_density", GX_FIELD_DOUBLE, GX__DENOISING_AT(noise_density), "0.15",
     "fraction of a text's tokens that are missing in the source", "0.01..0.9"},
    {"mean_noise_span_length", GX_FIELD_DOUBLE, GX__DENOISING_AT(mean_noise_span_length), "3",
     "mean length of the spans that are missing, each of which becomes one sentinel", "1..1000"},
};
static const char *const gx__denoising_own[] = {"train_data", "tokenizer", NULL};
static const char *const gx__denoising_reading[] = {
    "max_source_length", "pack_texts", "mlm_probability", "poisson_lambda", "permute_sentence_ratio", NULL};
static const char *const gx__span_corruption_reading[] = {"max_source_length", "noise_density",
                                                          "mean_noise_span_length", NULL};

#define GX__DENOISING_OF_DATA                                                                                          \
    {"text_hash", GX_FIELD_HASH, GX__DENOISING_AT(file.hash), NULL, "of the text", NULL},                              \
        {"train_tokens", GX_FIELD_INT, GX__DENOISING_AT(file.train_tokens), NULL, "of the training part", "0.."},      \
        {"tokenizer", GX_FIELD_STRING, GX__DENOISING_AT(tokenizer_name), NULL, "which ids the text has", NULL},        \
    {                                                                                                                  \
        "source_length", GX_FIELD_INT, GX__DENOISING_AT(T[GX_OF_SOURCE]), NULL, "tokens of a column of sources", "0.." \
    }
static const GxField gx__denoising_identity[] = {
    GX__DENOISING_OF_DATA,
    {"pack_texts", GX_FIELD_BOOL, GX__DENOISING_AT(pack_texts), NULL, "several texts in a sample", NULL},
    {"mlm_probability", GX_FIELD_DOUBLE, GX__DENOISING_AT(mlm_probability), NULL, "masked tokens", "0..1"},
    {"poisson_lambda", GX_FIELD_DOUBLE, GX__DENOISING_AT(poisson_lambda), NULL, "lengths of spans", "1..16"},
    {"permute_sentence_ratio", GX_FIELD_DOUBLE, GX__DENOISING_AT(permute_sentence_ratio), NULL, "moved sentences",
     "0..1"},
};
static const GxField gx__span_corruption_identity[] = {
    GX__DENOISING_OF_DATA,
    {"noise_density", GX_FIELD_DOUBLE, GX__DENOISING_AT(noise_density), NULL, "missing tokens", "0.01..0.9"},
    {"mean_noise_span_length", GX_FIELD_DOUBLE, GX__DENOISING_AT(mean_noise_span_length), NULL, "lengths of spans",
     "1..1000"},
};

// ---- texts ---------------------------------------------------------------------------------------------------------

static int64_t gx__denoising_around(const GxDenoising *c) { return 1 + (c->frame.begin >= 0); } // tokens around a text
static int64_t gx__denoising_least_T(const GxDenoising *c) { return gx_min(c->T[GX_OF_SOURCE], c->T[GX_OF_TARGET]); }

static GxStatus gx__denoising_part_open(GxDenoisingPart *p, int64_t n, GxError *err)
{
    p->begin = (int64_t *)malloc((size_t)n * sizeof *p->begin);
    p->tokens = (int32_t *)malloc((size_t)n * sizeof *p->tokens);
    for (int k = 0; k < GX_OF_PAIR; k++) p->length[k] = (int32_t *)malloc((size_t)n * sizeof *p->length[k]);
    if (p->begin && p->tokens && p->length[GX_OF_SOURCE] && p->length[GX_OF_TARGET]) return GX_OK;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %ld texts", (long)n);
}

static void gx__denoising_part_close(GxDenoisingPart *p)
{
    gx_text_packing_close(&p->packing);
    free(p->begin), free(p->tokens), free(p->length[GX_OF_SOURCE]), free(p->length[GX_OF_TARGET]);
    memset(p, 0, sizeof *p);
}

static void gx__denoising_add(const GxDenoising *c, GxDenoisingPart *p, int64_t begin, int64_t tokens, int64_t source,
                              int64_t target)
{
    const int64_t around = gx__denoising_around(c);
    p->begin[p->n] = begin, p->tokens[p->n] = (int32_t)tokens;
    p->length[GX_OF_SOURCE][p->n] = (int32_t)(source + around);
    p->length[GX_OF_TARGET][p->n++] = (int32_t)(target + around);
}

// Documents [first, last), as texts and in columns.
static GxStatus gx__denoising_open_part(GxContext *g, GxDenoising *c, GxDenoisingPart *p, int64_t first, int64_t last)
{
    if (first == last) return GX_OK;
    GX_TRY(c->kind->cut(g, c, p, first, last));
    GX_TRY(gx_text_packing_open(&p->packing, p->length[GX_OF_TARGET], p->n, c->T[GX_OF_TARGET], !c->pack_texts,
                                &g->error));
    return gx_text_packing_pair(&p->packing, p->length[GX_OF_SOURCE], c->T[GX_OF_SOURCE], &g->error);
}

// ---- denoising -----------------------------------------------------------------------------------------------------

static GxStatus gx__denoising_set_up(GxContext *g, GxDenoising *c, const GxTaskSetup *setup)
{
    GxInfilling *how = &c->infilling;
    how->mask_ratio = c->mlm_probability, how->permute_ratio = c->permute_sentence_ratio;
    how->mask = c->tokenizer.role[GX_TOKEN_MASK], how->full_stop = gx_tokenizer_find(&c->tokenizer, ".");
    gx_span_lengths(&how->lengths, c->poisson_lambda);
    if (how->mask < 0)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the tokenizer %s has no mask token (BART's is <mask>, that of `./tokenize --train` [MASK]), "
                       "which masked spans become; --tokenizer FOLDER names one that has it",
                       c->tokenizer_name);
    if (how->permute_ratio > 0 && how->full_stop < 0)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the tokenizer %s has no token \".\", which would say where a sentence ends; use "
                       "--permute_sentence_ratio 0, which leaves sentences in their order",
                       c->tokenizer_name);
    if (how->mask_ratio <= 0 && how->permute_ratio <= 0)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "--mlm_probability and --permute_sentence_ratio are both 0, so each source would be its target; "
                       "one of them must be above 0");
    if (gx__denoising_least_T(c) >= gx__denoising_around(c) + 2) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "%s is %ld and a column of sources has %ld tokens; a text of two tokens and what is put around it "
                   "needs %ld",
                   gx_task_length_name(setup), (long)c->T[GX_OF_TARGET], (long)c->T[GX_OF_SOURCE],
                   (long)gx__denoising_around(c) + 2);
}

static int64_t gx__denoising_sentence(const GxDenoising *c)
{
    return gx__denoising_least_T(c) - gx__denoising_around(c);
}

static GxStatus gx__denoising_cut(GxContext *g, GxDenoising *c, GxDenoisingPart *p, int64_t first, int64_t last)
{
    const GxSentences *s = &c->file.sentences;
    GxSentenceList list = GX_ZERO;
    GxStatus status = gx_sentences_blocks(s, first, last, gx__denoising_sentence(c), &list, &g->error);
    if (status == GX_OK) status = gx__denoising_part_open(p, list.n, &g->error);
    for (int64_t i = 0; i < list.n && status == GX_OK; i++) {
        const GxSentenceText *text = &list.text[i];
        const int64_t n = gx_sentences_length(s, text->a, text->a_n);
        gx__denoising_add(c, p, s->begin[text->a], n, n, n);
    }
    gx_sentence_list_close(&list);
    return status;
}

static void gx__denoising_damage(GxDenoising *c, GxNoiseDraws *d, const int32_t *text, int64_t n,
                                 int32_t *const to[GX_OF_PAIR], int64_t written[GX_OF_PAIR])
{
    written[GX_OF_SOURCE] = gx_noise_infill(d, &c->infilling, text, n, to[GX_OF_SOURCE], &c->room);
    written[GX_OF_TARGET] = n;
    memcpy(to[GX_OF_TARGET], text, (size_t)n * sizeof *text);
}

static void gx__denoising_describe(const GxDenoising *c, FILE *out)
{
    fprintf(out, "  texts of up to %ld tokens", (long)gx__denoising_sentence(c));
    if (c->mlm_probability > 0)
        fprintf(out, ", %g of them masked, in spans of %g on average", c->mlm_probability, c->poisson_lambda);
    if (c->permute_sentence_ratio > 0)
        fprintf(out, "; %s sentences change places", c->permute_sentence_ratio < 1 ? "some" : "all");
    fprintf(out, "; ");
}

static const GxDenoisingKind gx__denoising_kind = {gx__denoising_set_up, gx__denoising_sentence, gx__denoising_cut,
                                                   gx__denoising_damage, gx__denoising_describe};

// ---- span_corruption -----------------------------------------------------------------------------------------------

// T5's name of sentinel i, or that of mT5's vocabulary; -1: there is none.
static int32_t gx__span_sentinel(const GxTokenizer *t, int64_t i)
{
    char name[GX__DENOISING_NAME];
    snprintf(name, sizeof name, "<extra_id_%ld>", (long)i);
    const int32_t id = gx_tokenizer_find(t, name);
    snprintf(name, sizeof name, "▁<extra_id_%ld>", (long)i);
    return id >= 0 ? id : gx_tokenizer_find(t, name);
}

static GxStatus gx__span_find_sentinels(GxContext *g, GxDenoising *c)
{
    const int64_t n = c->spans.spans;
    c->sentinel = (int32_t *)malloc((size_t)n * sizeof *c->sentinel);
    if (!c->sentinel) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld sentinels", (long)n);
    for (int64_t i = 0; i < n; i++) {
        c->sentinel[i] = gx__span_sentinel(&c->tokenizer, i);
        if (c->sentinel[i] >= 0) continue;
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "a source of %ld tokens has %ld sentinel%s, <extra_id_0> and so on, but the tokenizer %s has no "
                       "<extra_id_%ld>; %s, or --add_tokens FILE adds tokens to a model",
                       (long)c->T[GX_OF_SOURCE], (long)n, gx_text_s(n), c->tokenizer_name, (long)i,
                       i ? "use a smaller --max_source_length, or a larger --mean_noise_span_length"
                         : "--tokenizer FOLDER names one that has them, such as T5's");
    }
    return GX_OK;
}

static GxStatus gx__span_set_up(GxContext *g, GxDenoising *c, const GxTaskSetup *setup)
{
    const int64_t around = gx__denoising_around(c), T = c->T[GX_OF_TARGET], source = c->T[GX_OF_SOURCE];
    c->pack_texts = 1; // only a part that is shorter than one piece would not be alone
    if (source < around + 2)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "a column of sources has %ld tokens (--max_source_length, or 0: %s); a token, a sentinel and "
                       "what is put around them need %ld",
                       (long)source, gx_task_length_name(setup), (long)around + 2);
    c->spans = gx_span_longest(source - around, c->noise_density, c->mean_noise_span_length);
    const int64_t target = gx_span_target(c->spans) + around;
    if (target > T)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "%s is %ld, but the target of a source of %ld tokens has %ld; use --seq_len %ld, or a smaller "
                       "--max_source_length",
                       gx_task_length_name(setup), (long)T, (long)source, (long)target, (long)target);
    if (T > target && g->rank == 0 && !setup->only_shows)
        gx_log(&g->log, GX_LOG_WARNING,
               "targets have %ld tokens, but a column of them has %ld, the rest of it padding that is computed, too: "
               "--max_source_length %ld --seq_len %ld has none",
               (long)target, (long)T, (long)source, (long)target);
    return gx__span_find_sentinels(g, c);
}

static int64_t gx__span_sentence(const GxDenoising *c)
{
    (void)c;
    return INT64_MAX; // sentences are not looked at
}

static void gx__span_add(const GxDenoising *c, GxDenoisingPart *p, int64_t begin, GxSpanCounts of)
{
    gx__denoising_add(c, p, begin, of.tokens, gx_span_source(of), gx_span_target(of));
}

// A part of fewer tokens than a piece is one shorter piece.
static GxStatus gx__span_cut(GxContext *g, GxDenoising *c, GxDenoisingPart *p, int64_t first, int64_t last)
{
    const GxSentences *s = &c->file.sentences;
    const int64_t begin = s->begin[s->document[first]], all = s->begin[s->document[last]] - begin, L = c->spans.tokens;
    if (all < 2)
        return GX_FAIL(&g->error, GX_ERR_FORMAT,
                       "%s: the %s part is a single token; at least two are needed, one that is missing and one that "
                       "is not: give more text, or another --validation_fraction",
                       c->train_data, first ? "held-out" : "training");
    GX_TRY(gx__denoising_part_open(p, gx_max(all / L, 1), &g->error));
    for (int64_t i = 0; i < all / L; i++) gx__span_add(c, p, begin + i * L, c->spans);
    if (!p->n) gx__span_add(c, p, begin, gx_span_counts(all, c->noise_density, c->mean_noise_span_length));
    return GX_OK;
}

static void gx__span_damage(GxDenoising *c, GxNoiseDraws *d, const int32_t *text, int64_t n,
                            int32_t *const to[GX_OF_PAIR], int64_t written[GX_OF_PAIR])
{
    const GxSpanCounts of = gx_span_counts(n, c->noise_density, c->mean_noise_span_length);
    gx_noise_parts(d, of.noise, of.spans, c->room.a);
    gx_noise_parts(d, n - of.noise, of.spans, c->room.c);
    gx_noise_spans(text, c->room.c, c->room.a, of.spans, c->sentinel, to[GX_OF_SOURCE], to[GX_OF_TARGET]);
    written[GX_OF_SOURCE] = gx_span_source(of), written[GX_OF_TARGET] = gx_span_target(of);
}

static void gx__span_describe(const GxDenoising *c, FILE *out)
{
    const long around = (long)gx__denoising_around(c), n = (long)c->spans.spans;
    fprintf(out, "  texts of %ld tokens, of which %ld are missing, in %ld span%s: sources of %ld, targets of %ld; ",
            (long)c->spans.tokens, (long)c->spans.noise, n, gx_text_s(n), (long)gx_span_source(c->spans) + around,
            (long)gx_span_target(c->spans) + around);
}

static const GxDenoisingKind gx__span_kind = {gx__span_set_up, gx__span_sentence, gx__span_cut, gx__span_damage,
                                              gx__span_describe};

// ---- opening -------------------------------------------------------------------------------------------------------

// Tokens that the model would take for a mask, a sentinel, or the end of a text.
static GxStatus gx__denoising_check_text(GxContext *g, const GxDenoising *c)
{
    const GxSentences *s = &c->file.sentences;
    const int32_t *own = c->sentinel ? c->sentinel : &c->infilling.mask;
    const int64_t n = c->sentinel ? c->spans.spans : 1;
    int32_t least = own[0], most = own[0];
    for (int64_t k = 1; k < n; k++) least = gx_min(least, own[k]), most = gx_max(most, own[k]);
    GxFrameToken of;
    char what[GX_TEXT_VALUE], room[8];
    for (int64_t i = 0; i < s->sentences; i++) {
        const int32_t *ids = s->token + s->begin[i];
        const int64_t tokens = gx_sentences_length(s, i, 1);
        if (gx_frame_is_in(&c->frame, &c->tokenizer, ids, tokens, &of, what))
            return GX_FAIL(&g->error, GX_ERR_FORMAT,
                           "%s: sentence %ld has %s, whose id %ld is the model's %s; for a new model set --%s to the "
                           "id of a special token of the tokenizer, or use another --tokenizer, or change the text",
                           c->train_data, (long)i + 1, what, (long)of.id, of.name, of.name);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t k = 0; k < n && ids[t] >= least && ids[t] <= most; k++) // few tokens are so near
                if (ids[t] == own[k])
                    return GX_FAIL(
                        &g->error, GX_ERR_FORMAT,
                        "%s: sentence %ld has the token %s, which stands for what is missing in a source; %s",
                        c->train_data, (long)i + 1, gx_tokenizer_piece(&c->tokenizer, own[k], room),
                        gx_tokenizer_is_special(&c->tokenizer, own[k])
                            ? "--split_special_tokens true reads it as characters"
                            : "take it out of the text");
    }
    return GX_OK;
}

// Room for the longest text, its source and its target.
static GxStatus gx__denoising_open_room(GxDenoising *c, GxError *err)
{
    const int64_t n = gx_max(gx__denoising_least_T(c), c->spans.tokens);
    for (int k = 0; k < GX_OF_PAIR; k++) {
        c->ids[k] = (int32_t *)malloc((size_t)(c->T[k] + 2) * sizeof(int32_t));
        if (!c->ids[k]) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a text of %ld tokens", (long)c->T[k]);
    }
    return gx_noise_room_open(&c->room, n, err);
}

static GxStatus gx__denoising_open_text(GxContext *g, GxDenoising *c, GxTaskSetup *setup)
{
    GxSentences *s = &c->file.sentences;
    GX_TRY(gx_sentence_file_open(g, &c->file, c->train_data, &c->tokenizer, c->kind->sentence(c)));
    GX_TRY(gx_sentence_file_divide(g, &c->file, &c->tokenizer, c->validation_fraction));
    GX_TRY(gx__denoising_check_text(g, c));
    GX_TRY(gx__denoising_open_part(g, c, &c->train, 0, s->train_documents));
    GX_TRY(gx__denoising_open_part(g, c, &c->held_out, s->train_documents, s->documents));
    if (!setup->only_shows) setup->epoch_samples = gx_text_packing_columns(&c->train.packing, setup->seed);
    return GX_OK;
}

static GxStatus gx__denoising_open_as(GxContext *g, GxDenoising *c, GxTaskSetup *setup, const GxDenoisingKind *kind)
{
    c->kind = kind, c->frame = *setup->frame;
    c->T[GX_OF_TARGET] = setup->seq_len;
    c->T[GX_OF_SOURCE] = setup->source_len = c->max_source_length ? c->max_source_length : setup->seq_len;
    if (c->frame.has_languages)
        return GX_FAIL(
            &g->error, GX_ERR_UNSUPPORTED,
            "an mBART's texts have the token of their language, which this task does not add to them; train it "
            "with --task seq2seq, or a BART (--model_type bart)");
    if (setup->repeats_epoch)
        return GX_FAIL(
            &g->error, GX_ERR_UNSUPPORTED,
            "--tuning side_only needs the same samples in each epoch, but this task damages texts in another "
            "way each time; use --tuning side");
    GX_TRY(gx_text_open_any_tokenizer(g, &c->tokenizer, c->tokenizer_folder, setup));
    GX_TRY(gx_frame_check(&c->frame, setup->vocab, &g->error));
    gx_text_split_special(&c->tokenizer, c->split_special_tokens);
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    GX_TRY(kind->set_up(g, c, setup));
    c->layout = gx_source_layout_of(&c->frame, c->T[GX_OF_TARGET]);
    if (setup->is_dry) return GX_OK;
    GX_TRY(gx__denoising_open_room(c, &g->error));
    return gx__denoising_open_text(g, c, setup);
}

static GxStatus gx__denoising_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    return gx__denoising_open_as(g, (GxDenoising *)self, setup, &gx__denoising_kind);
}
static GxStatus gx__span_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    return gx__denoising_open_as(g, (GxDenoising *)self, setup, &gx__span_kind);
}

static void gx__denoising_close(void *self)
{
    GxDenoising *c = (GxDenoising *)self;
    gx__denoising_part_close(&c->train), gx__denoising_part_close(&c->held_out);
    gx_sentence_file_close(&c->file);
    gx_noise_room_close(&c->room);
    for (int k = 0; k < GX_OF_PAIR; k++) free(c->ids[k]), c->ids[k] = NULL;
    free(c->sentinel), c->sentinel = NULL;
    gx_tokenizer_close(&c->tokenizer);
}

static void gx__denoising_describe_data(const void *self, FILE *out)
{
    const GxDenoising *c = (const GxDenoising *)self;
    gx_sentence_file_describe(&c->file, &c->tokenizer, out);
    c->kind->describe(c, out);
    fprintf(out, "%ld to train on, %ld held out\n", (long)c->train.n, (long)c->held_out.n);
}

static GxStatus gx__denoising_write(const void *self, const char *folder, GxError *err)
{
    return gx_tokenizer_write(&((const GxDenoising *)self)->tokenizer, folder, err);
}

static const char *gx__denoising_changed(const void *self)
{
    return gx_sentence_file_changed(&((const GxDenoising *)self)->file);
}

// ---- samples -------------------------------------------------------------------------------------------------------

// The source and the target of a text, in c->ids, with what is put around them.
static GxSourcePair gx__denoising_pair(GxDenoising *c, const GxDenoisingPart *p, int64_t text, GxNoiseDraws *d)
{
    const int64_t begins = c->frame.begin >= 0;
    int32_t *const to[GX_OF_PAIR] = {c->ids[GX_OF_SOURCE] + begins, c->ids[GX_OF_TARGET] + begins};
    GxSourcePair pair;
    c->kind->damage(c, d, c->file.sentences.token + p->begin[text], p->tokens[text], to, pair.n);
    for (int k = 0; k < GX_OF_PAIR; k++) {
        c->ids[k][0] = begins ? c->frame.begin : c->ids[k][0];
        to[k][pair.n[k]] = c->frame.end;
        pair.n[k] += begins + 1, pair.ids[k] = c->ids[k];
    }
    return pair;
}

// Columns from b->sample on, of those before number `end`; the others stay empty.
static void gx__denoising_fill_columns(GxDenoising *c, GxBatch *b, void *host_copy, GxDenoisingPart *p, uint64_t seed,
                                       int site, int64_t end)
{
    GxSourceWriter w;
    gx_source_begin(&w, &c->layout, b, host_copy);
    for (int64_t column = 0; column < b->B && b->sample + column < end; column++) {
        GxNoiseDraws d = gx_noise_draws(seed, b->sample + column, gx_random_site(GX_SITE_MASK, site));
        int64_t at[GX_OF_PAIR] = {0, 0}, n;
        const int64_t *text;
        gx_text_packing_column(&p->packing, seed, b->sample + column, &text, &n);
        for (int64_t i = 0; i < n; i++) {
            const GxSourcePair pair = gx__denoising_pair(c, p, text[i], &d);
            gx_source_put(&w, column, at, &pair);
        }
    }
    gx_source_finish(&w);
}

static GxStatus gx__denoising_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    GxDenoising *c = (GxDenoising *)self;
    (void)g, (void)err;
    gx__denoising_fill_columns(c, b, host_copy, &c->train, seed, GX__DENOISING_TRAIN, INT64_MAX);
    return GX_OK;
}

static int64_t gx__denoising_held_out(const void *self)
{
    const GxDenoising *c = (const GxDenoising *)self;
    GxTextPacking *packing = (GxTextPacking *)(uintptr_t)&c->held_out.packing; // it computes its order when asked
    return c->held_out.n ? gx_text_packing_columns(packing, GX__DENOISING_HELD_OUT_SEED) : 0;
}

static GxStatus gx__denoising_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                            GxError *err)
{
    GxDenoising *c = (GxDenoising *)self;
    (void)g, (void)err;
    gx__denoising_fill_columns(c, b, host_copy, &c->held_out, GX__DENOISING_HELD_OUT_SEED, GX__DENOISING_VALIDATE,
                               samples);
    b->target[0].right = &c->right;
    return GX_OK;
}

static int64_t gx__denoising_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    return gx_source_layout(&((const GxDenoising *)self)->layout, b, block, host_copy);
}

static void gx__denoising_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    gx_text_counts(&((const GxDenoising *)self)->layout.of[GX_OF_TARGET], b, count);
}

static void gx__denoising_see(GxContext *g, void *self, const GxBatch *b)
{
    (void)g;
    if (!b) ((GxDenoising *)self)->right = 0;
}

static int gx__denoising_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    int64_t right = ((const GxDenoising *)self)->right;
    gx_at(g, -1, "evaluate");
    if (losses) gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, &right, 1, GX_I64);
    return gx_failed(g) ? 0 : gx_source_metrics(losses, right, metric);
}

// ---- for people ----------------------------------------------------------------------------------------------------

// Prints a line such as "  source   in the <extra_id_0> was the word</s>"; most: bytes of the text, 0: all.
static GxStatus gx__denoising_say(const GxDenoising *c, FILE *out, const char *what, const int32_t *ids, int64_t n,
                                  size_t most, GxError *err)
{
    char cut[GX__DENOISING_QUOTE];
    int64_t bytes = 0;
    char *text = gx_show_decode(&c->tokenizer, ids, n, &bytes, err);
    if (!text) return gx_error_code(err);
    if (most) gx_text_cut(text, cut, gx_min(most, sizeof cut));
    fprintf(out, "  %-8s ", what);
    gx_show_text(out, most ? cut : text, most ? (int64_t)strlen(cut) : bytes);
    fputc('\n', out);
    free(text);
    return GX_OK;
}

// Training samples, as the default of --seed has them.
static void gx__denoising_show(const void *self, FILE *out)
{
    GxDenoising *c = (GxDenoising *)(uintptr_t)self; // its packing, and room for a text
    const char *const what[GX_OF_PAIR] = {"source", "target"};
    for (int64_t sample = 0; sample < c->show_data; sample++) {
        GxNoiseDraws d = gx_noise_draws(GX_SHOW_SEED, sample, gx_random_site(GX_SITE_MASK, GX__DENOISING_TRAIN));
        const int64_t *text;
        int64_t n;
        gx_text_packing_column(&c->train.packing, GX_SHOW_SEED, sample, &text, &n);
        for (int64_t i = 0; i < n; i++) {
            const GxSourcePair pair = gx__denoising_pair(c, &c->train, text[i], &d);
            fprintf(out, "sample %ld, text %ld: a source of %ld tokens, a target of %ld\n", (long)sample, (long)i + 1,
                    (long)pair.n[GX_OF_SOURCE], (long)pair.n[GX_OF_TARGET]);
            for (int k = 0; k < GX_OF_PAIR; k++) {
                GxError e = GX_ZERO;
                if (gx__denoising_say(c, out, what[k], pair.ids[k], pair.n[k], 0, &e) != GX_OK)
                    fprintf(out, "  %s\n", e.message);
            }
        }
    }
}

static void gx__denoising_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxDenoising *c = (GxDenoising *)self;
    GxBeamOptions likeliest = GX_ZERO;
    (void)T;
    gx_text_warn_of_padding(g, &c->tokenizer, m);
    likeliest.num_beams = likeliest.num_return_sequences = 1;
    likeliest.length_penalty = likeliest.repetition_penalty = 1;
    likeliest.max_length = c->T[GX_OF_TARGET] + 1;
    likeliest.forced_bos = likeliest.forced_eos = -1;
    likeliest.end[0] = c->frame.end, likeliest.ends = 1;
    if (c->sample_lines) gx_target_writer_allocate(g, &c->writer, &c->layout, m, &likeliest, c->T[GX_OF_SOURCE], 1);
}

// Writes the target of a held-out text beside the true one.
static void gx__denoising_write_line(GxContext *g, GxDenoising *c, const GxForward *forward, int64_t text,
                                     int32_t *room, FILE *out)
{
    GxNoiseDraws d =
        gx_noise_draws(GX__DENOISING_HELD_OUT_SEED, text, gx_random_site(GX_SITE_MASK, GX__DENOISING_SAMPLE));
    const GxSourcePair pair = gx__denoising_pair(c, &c->held_out, text, &d);
    const int32_t *source = pair.ids[GX_OF_SOURCE], length = (int32_t)pair.n[GX_OF_SOURCE];
    GxWrittenTarget written = GX_ZERO;
    written.ids = room;
    if (!gx_target_writer_run(g, &c->writer, forward, &source, &length, 1, &written)) return;
    const size_t most = GX__DENOISING_QUOTE;
    gx__denoising_say(c, out, "source", source, length, most, &g->error);
    gx__denoising_say(c, out, "target", pair.ids[GX_OF_TARGET], pair.n[GX_OF_TARGET], most, &g->error);
    gx__denoising_say(c, out, "written", written.ids, written.n, most, &g->error);
}

static char *gx__denoising_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxDenoising *c = (GxDenoising *)self;
    const int64_t lines = gx_min(c->sample_lines, c->held_out.n);
    char *said = NULL;
    size_t bytes;
    if (!g->device->computes && c->sample_lines) gx_target_writer_run(g, &c->writer, forward, NULL, NULL, 0, NULL);
    if (!g->device->computes || lines < 1) return NULL;
    int32_t *room = (int32_t *)malloc((size_t)c->T[GX_OF_TARGET] * sizeof *room);
    FILE *out = room ? open_memstream(&said, &bytes) : NULL;
    if (!out) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    for (int64_t i = 0; i < lines && !gx_failed(g); i++)
        gx__denoising_write_line(g, c, forward, gx_permute(seed, 0, c->held_out.n, i), room, out);
    if (out && fclose(out) != 0) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    free(room);
    if (!gx_failed(g)) return said;
    free(said);
    return NULL;
}

// ---- the tasks -----------------------------------------------------------------------------------------------------

const GxTask gx_denoising = {
    "denoising", // name
    {
        // options
        sizeof(GxDenoising),              // size
        GX_FIELDS(gx__denoising_options), // fields, n_fields
        gx__denoising_own,                // own
        NULL,                             // defaults
        gx__denoising_reading,            // reading
    },
    {
        // loss
        1,        // n
        NULL,     // names
        "tokens", // counted
        "nats",   // unit
        NULL,     // best_metric
    },
    {
        // data
        gx__denoising_open,          // open
        gx__denoising_close,         // close
        NULL,                        // head
        gx__denoising_describe_data, // describe
        gx__denoising_show,          // show
        NULL,                        // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__denoising_identity), // identity, n_identity
        // elsewhere
        "on another text, with another tokenizer, or with other masks",
        gx__denoising_write,   // write
        gx__denoising_changed, // changed
    },
    {
        // batch
        gx__denoising_allocate,      // allocate
        gx__denoising_layout,        // layout
        gx__denoising_fill,          // fill
        gx__denoising_counts,        // counts
        gx__denoising_held_out,      // held_out
        gx__denoising_fill_held_out, // fill_held_out
        gx__denoising_see,           // see
        NULL,                        // stands_alone
    },
    {
        // metrics
        gx__denoising_metrics, // compute
        NULL,                  // progress
        NULL,                  // baseline
        NULL,                  // lacks
        NULL,                  // confusion
    },
    {
        // output
        gx__denoising_sample, // sample
        NULL,                 // predicts
        NULL,                 // predict
    },
};

const GxTask gx_span_corruption = {
    "span_corruption", // name
    {
        // options
        sizeof(GxDenoising),                    // size
        GX_FIELDS(gx__span_corruption_options), // fields, n_fields
        gx__denoising_own,                      // own
        NULL,                                   // defaults
        gx__span_corruption_reading,            // reading
    },
    {
        // loss
        1,        // n
        NULL,     // names
        "tokens", // counted
        "nats",   // unit
        NULL,     // best_metric
    },
    {
        // data
        gx__span_open,               // open
        gx__denoising_close,         // close
        NULL,                        // head
        gx__denoising_describe_data, // describe
        gx__denoising_show,          // show
        NULL,                        // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__span_corruption_identity), // identity, n_identity
        // elsewhere
        "on another text, with another tokenizer, or with other spans",
        gx__denoising_write,   // write
        gx__denoising_changed, // changed
    },
    {
        // batch
        gx__denoising_allocate,      // allocate
        gx__denoising_layout,        // layout
        gx__denoising_fill,          // fill
        gx__denoising_counts,        // counts
        gx__denoising_held_out,      // held_out
        gx__denoising_fill_held_out, // fill_held_out
        gx__denoising_see,           // see
        NULL,                        // stands_alone
    },
    {
        // metrics
        gx__denoising_metrics, // compute
        NULL,                  // progress
        NULL,                  // baseline
        NULL,                  // lacks
        NULL,                  // confusion
    },
    {
        // output
        gx__denoising_sample, // sample
        NULL,                 // predicts
        NULL,                 // predict
    },
};
#endif
