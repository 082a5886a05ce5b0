// task/seq2seq.h: sequence to sequence: the target of a source, such as a translation, a summary, a pronunciation.
//
//     ./train_bart --train_data train.tsv --validation_data validation.tsv
//     ./train_bart --model out/checkpoint-500 --predict new.tsv --predictions new.jsonl
//
// Files: data/records.h, with columns source and target. Without --validation_data a hash of each source decides
// whether the pair is held out (source_texts.h). Each text is put between the tokens that the model's configuration
// names; longer ones are cut.
//
// Several pairs share a column of the batch, and do not see each other (source_batch.h); --pack_texts false gives each
// pair a column of its own. --seq_len is the length of a column of targets, --max_source_length that of the column of
// their sources. The loss is a mean over all tokens of targets in a window, their end tokens included.
//
// Without a tokenizer, or a model that has one, tokens are bytes. The model writes, by beam search (beam_search.h),
// some held-out targets at the end of a training, and with --predict those of a file. How it searches is said by
// --num_beams and other options that transformers has, or by the model's folder (beam_options.h). A line of predictions
// has source and target; if --num_return_sequences is more than 1, also targets: a list, of which target is the first.
//
// Written targets are compared with the true ones: exact_match, ROUGE, BLEU and chrF (rouge.h, bleu.h, chrf.h). A file
// of --predict that has targets gets these metrics, and with --predict_with_generate every validation: it then writes
// the targets of the same pairs that its loss is of.
//
// Each machine reads its own copy of the files, which must be identical: ranks compare hashes of them.
#ifndef GX_SEQ2SEQ_H
#define GX_SEQ2SEQ_H
#include "beam_options.h"
#include "languages.h"
#include "source_batch.h"
#include "target_writer.h"
#include "text_tokenizer.h"
GX_BEGIN

typedef struct {
    // options
    char train_data[GX_PATH], validation_data[GX_PATH], tokenizer_path[GX_PATH], predict[GX_PATH], predictions[GX_PATH];
    char source_column[GX_FIELD_TEXT], target_column[GX_FIELD_TEXT], source_prefix[GX_FIELD_TEXT];
    char split_special_tokens[GX_FIELD_TEXT];
    double validation_fraction;
    int64_t max_source_length, sample_lines;
    int skip_bad_records, pack_texts, predict_with_generate, rouge_stemmer;
    GxBeamFlags beams;
    GxLanguages languages;
    // identity of the data, which a checkpoint keeps
    int64_t texts_n, texts_hash;
    char tokenizer_name[GX_FIELD_TEXT];
    // set by open
    GxTextFrame frame;
    GxTokenizer tokenizer;
    GxBadRecords skipped;
    GxRecords file[2]; // of the training and of the held-out pairs
    GxSourceTexts train, held_out;
    GxTextPacking packing, held_out_packing;
    GxSourceLayout layout;
    int64_t T[GX_OF_PAIR]; // of columns of sources, of targets
    int has_targets;       // 1: the held-out pairs have targets
    // of a validation, of the sample, of predictions
    int64_t right;     // tokens whose logit is the largest, on this rank
    int64_t validated; // columns of held-out pairs, the first ones
    GxBeamOptions search;
    GxTargetWriter writer;
    GxForward forward;
    int32_t *written_ids;         // [texts at once, num_return_sequences, T]
    GxWrittenTarget *written_now; // [texts at once, num_return_sequences]
    char **written;               // [held_out.n, num_return_sequences] texts; NULL: not yet, or there is none
    int64_t *compared;            // [held_out.n] texts that are written and compared with their targets
} GxSeq2Seq;

extern const GxTask gx_seq2seq; // its self is a GxSeq2Seq

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SEQ2SEQ_IMPLEMENTED)
#define GX_SEQ2SEQ_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../comm/comm.h"
#include "../io/json.h"
#include "../text/text_stream.h"
#include "bleu.h"
#include "chrf.h"
#include "predictions.h"
#include "rouge.h"

#define GX__SEQ2SEQ_AT(field) offsetof(GxSeq2Seq, field)
static const GxField gx__seq2seq_options[] = {
    {"train_data", GX_FIELD_PATH, GX__SEQ2SEQ_AT(train_data), "data/words/train.tsv",
     "file of sources and targets: .csv, .tsv or .jsonl (`make data-words` makes the default file)", NULL},
    {"validation_data", GX_FIELD_PATH, GX__SEQ2SEQ_AT(validation_data), "",
     "file of pairs held out for validation; empty: a part of train_data", NULL},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__SEQ2SEQ_AT(validation_fraction), "0.05",
     "fraction of train_data held out for validation if there is no validation_data; 0: none", "0..0.9"},
    {"source_column", GX_FIELD_STRING, GX__SEQ2SEQ_AT(source_column), "source", "name of the column with the sources",
     NULL},
    {"target_column", GX_FIELD_STRING, GX__SEQ2SEQ_AT(target_column), "target", "name of the column with the targets",
     NULL},
    {"source_prefix", GX_FIELD_STRING, GX__SEQ2SEQ_AT(source_prefix), "",
     "text put before each source, such as \"summarize: \"", NULL},
    {"max_source_length", GX_FIELD_INT, GX__SEQ2SEQ_AT(max_source_length), "0",
     "tokens of a column of sources; --seq_len says how many a column of targets has, and 0 here: as many", "0.."},
    GX_SKIP_BAD_RECORDS(GX__SEQ2SEQ_AT(skip_bad_records)),
    {"tokenizer", GX_FIELD_PATH, GX__SEQ2SEQ_AT(tokenizer_path), "",
     "folder with a tokenizer.json, or that file, or bytes (a token for each byte); empty: the model's own tokenizer, "
     "or bytes for a new model",
     NULL},
    GX_SPLIT_SPECIAL_TOKENS(GX__SEQ2SEQ_AT(split_special_tokens)),
    {"pack_texts", GX_FIELD_BOOL, GX__SEQ2SEQ_AT(pack_texts), "true",
     "put several pairs into a sample; they do not attend to each other", NULL},
    {"predict_with_generate", GX_FIELD_BOOL, GX__SEQ2SEQ_AT(predict_with_generate), "false",
     "write the targets of each validation's pairs, and report how they compare with the true ones: exact_match, "
     "rouge1, rouge2, rougeL, bleu, chrf; takes much longer than the loss alone",
     NULL},
    {"rouge_stemmer", GX_FIELD_BOOL, GX__SEQ2SEQ_AT(rouge_stemmer), "true",
     "compare the stems of English words for ROUGE, as transformers' scripts do; false: the words themselves", NULL},
    {"sample_lines", GX_FIELD_INT, GX__SEQ2SEQ_AT(sample_lines), "3",
     "held-out sources whose targets the model writes at the end of training; 0: none", "0..1000"},
    {"predict", GX_FIELD_PATH, GX__SEQ2SEQ_AT(predict), "",
     "file of sources whose targets the model of --resume or --model writes, instead of training; the file needs no "
     "targets",
     NULL},
    {"predictions", GX_FIELD_PATH, GX__SEQ2SEQ_AT(predictions), "predictions.jsonl",
     "new file for the targets that --predict writes, .jsonl", NULL},
    GX_BEAM_OPTIONS(GX__SEQ2SEQ_AT(beams)),
    GX_LANGUAGE_OPTIONS(GX__SEQ2SEQ_AT(languages)),
};
static const char *const gx__seq2seq_own[] = {"train_data", "validation_data", "tokenizer",
                                              "predict",    "predictions",     NULL};
static const char *const gx__seq2seq_reading[] = {"source_prefix", "max_source_length", "source_lang", "target_lang",
                                                  NULL};
static const GxField gx__seq2seq_identity[] = {
    {"texts", GX_FIELD_INT, GX__SEQ2SEQ_AT(texts_n), NULL, "pairs that are trained on", "0.."},
    {"texts_hash", GX_FIELD_HASH, GX__SEQ2SEQ_AT(texts_hash), NULL, "of their tokens", NULL},
    {"tokenizer", GX_FIELD_STRING, GX__SEQ2SEQ_AT(tokenizer_name), NULL, "which ids the texts have", NULL},
};
enum {
    GX__SEQ2SEQ_WRITTEN_AT_ONCE = 16,
    GX__SEQ2SEQ_QUOTE = 160,
    GX__SEQ2SEQ_SAID_EVERY = 10
}; // texts; bytes; seconds

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__seq2seq_check_sizes(const GxSeq2Seq *c, const GxTaskSetup *setup, GxError *err)
{
    const GxFrameEnds ends = gx_frame_ends(&c->frame, GX_OF_TARGET);
    const int64_t least = 1 + ends.n_before + ends.n_behind; // a token, and what is put around it
    if (c->T[GX_OF_TARGET] < least)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; a target needs at least %ld tokens",
                       gx_task_length_name(setup), (long)c->T[GX_OF_TARGET], (long)least);
    if (c->T[GX_OF_SOURCE] < least)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--max_source_length is %ld; a source needs at least %ld tokens",
                       (long)c->T[GX_OF_SOURCE], (long)least);
    return GX_OK;
}

static uint64_t gx__seq2seq_hash(const GxSourceTexts *t)
{
    uint64_t hash = GX_HASH_START;
    for (int64_t i = 0; i < t->n; i++)
        for (int k = 0; k < GX_OF_PAIR; k++) {
            hash = gx_hash(hash, &t->length[k][i], sizeof **t->length);
            hash = gx_hash(hash, t->ids[k][i], t->length[k][i] * (int64_t)sizeof(int32_t));
        }
    return hash;
}

// The pairs of one part, as tokens, and the columns that they are packed into.
static GxStatus gx__seq2seq_open_part(GxContext *g, GxSeq2Seq *c, GxSourceTexts *t, GxTextPacking *packing, int file,
                                      GxTextsPart part)
{
    const GxSourceForm form = {&c->frame, c->source_prefix, {c->T[GX_OF_SOURCE], c->T[GX_OF_TARGET]}};
    GX_TRY(gx_source_texts_open(t, &c->file[file], part, c->validation_fraction, &g->error));
    GX_TRY(gx_source_texts_tokenize(t, &c->tokenizer, &form, gx_threads(g), &g->error));
    GX_TRY(gx_text_packing_open(packing, t->length[GX_OF_TARGET], t->n, c->T[GX_OF_TARGET], !c->pack_texts, &g->error));
    return gx_text_packing_pair(packing, t->length[GX_OF_SOURCE], c->T[GX_OF_SOURCE], &g->error);
}

static GxStatus gx__seq2seq_open_files(GxSeq2Seq *c, const GxTaskSetup *setup, GxError *err)
{
    GxBadRecords *skip = c->skip_bad_records ? &c->skipped : NULL;
    const int reads_training = !setup->only_shows || !(c->predict[0] || c->validation_data[0]);
    if (reads_training && access(c->train_data, F_OK) != 0 && errno == ENOENT)
        return GX_FAIL(
            err, GX_ERR_IO,
            "cannot open %s: %s; `make data-words` makes data/words/train.tsv, the default, and --train_data "
            "FILE names another file",
            c->train_data, strerror(ENOENT));
    const char *held_out = c->predict[0] ? c->predict : c->validation_data;
    if (reads_training)
        GX_TRY(gx_source_file_open(&c->file[0], c->train_data, c->source_column, c->target_column, 0, skip, err));
    if (!held_out[0]) return GX_OK;
    // a column that is named is looked for
    const int may_lack_targets = c->predict[0] && !strcmp(c->target_column, "target");
    return gx_source_file_open(&c->file[1], held_out, c->source_column, c->target_column, may_lack_targets, skip, err);
}

static GxStatus gx__seq2seq_agree(GxContext *g, GxSeq2Seq *c)
{
    static const char *const what[] = {"the file of --predict, or of --validation_data", "--train_data",
                                       "the held-out pairs", "the training data"};
    const int64_t mine[] = {(int64_t)c->file[1].hash, (int64_t)c->file[0].hash,
                            c->held_out.n ? (int64_t)gx__seq2seq_hash(&c->held_out) : 0, c->texts_hash};
    return gx_task_agree(g, what, mine, 4);
}

static GxStatus gx__seq2seq_open_texts(GxContext *g, GxSeq2Seq *c, GxTaskSetup *setup)
{
    GX_TRY(gx__seq2seq_open_files(c, setup, &g->error));
    const int has_file = c->file[1].n > 0, is_split = !has_file && c->validation_fraction > 0;
    gx_bad_records_warn(&c->skipped, g->rank ? NULL : &g->log);
    if (!setup->only_shows) {
        GX_TRY(gx__seq2seq_open_part(g, c, &c->train, &c->packing, 0, is_split ? GX_TEXTS_TRAINING : GX_TEXTS_ALL));
        c->texts_n = c->train.n, c->texts_hash = (int64_t)gx__seq2seq_hash(&c->train);
        setup->epoch_samples = gx_text_packing_columns(&c->packing, setup->seed);
    }
    if (has_file || is_split)
        GX_TRY(gx__seq2seq_open_part(g, c, &c->held_out, &c->held_out_packing, has_file,
                                     is_split ? GX_TEXTS_HELD_OUT : GX_TEXTS_ALL));
    c->has_targets = c->held_out.n && c->held_out.file->has[GX_OF_TARGET];
    return gx__seq2seq_agree(g, c);
}

static GxStatus gx__seq2seq_open_written(GxSeq2Seq *c, GxError *err)
{
    const int64_t N = c->search.num_return_sequences, T = c->T[GX_OF_TARGET], most = GX__SEQ2SEQ_WRITTEN_AT_ONCE * N;
    c->written = (char **)calloc((size_t)gx_max(c->held_out.n * N, 1), sizeof *c->written);
    c->written_ids = (int32_t *)malloc((size_t)(most * T) * sizeof(int32_t));
    c->written_now = (GxWrittenTarget *)calloc((size_t)most, sizeof *c->written_now);
    c->compared = (int64_t *)malloc((size_t)gx_max(c->held_out.n, 1) * sizeof *c->compared);
    if (!c->written || !c->written_ids || !c->written_now || !c->compared)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for written targets");
    for (int64_t i = 0; i < most; i++) c->written_now[i].ids = c->written_ids + i * T;
    return GX_OK;
}

static GxStatus gx__seq2seq_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    c->frame = *setup->frame;
    c->T[GX_OF_TARGET] = setup->seq_len;
    c->T[GX_OF_SOURCE] = setup->source_len = c->max_source_length ? c->max_source_length : setup->seq_len;
    GX_TRY(gx__seq2seq_check_sizes(c, setup, &g->error));
    GX_TRY(gx_text_open_any_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    GX_TRY(gx_languages_resolve(&c->frame, &c->languages, &c->tokenizer, &g->error));
    setup->frame = &c->frame;
    GX_TRY(gx_frame_check(&c->frame, setup->vocab, &g->error));
    GX_TRY(gx_beam_options_resolve(g, &c->search, &c->beams, setup));
    gx_text_split_special(&c->tokenizer, c->split_special_tokens);
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    c->layout = gx_source_layout_of(&c->frame, c->T[GX_OF_TARGET]);
    if (setup->is_dry) return GX_OK;
    if (c->predict[0] && g->rank == 0) GX_TRY(gx_predictions_check_jsonl(c->predictions, &g->error));
    GX_TRY(gx__seq2seq_open_texts(g, c, setup));
    return gx__seq2seq_open_written(c, &g->error);
}

static void gx__seq2seq_close(void *self)
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    for (int64_t i = 0; i < c->held_out.n * c->search.num_return_sequences && c->written; i++) free(c->written[i]);
    free(c->written), free(c->written_ids), free(c->written_now), free(c->compared);
    gx_text_packing_close(&c->packing), gx_text_packing_close(&c->held_out_packing);
    gx_source_texts_close(&c->train), gx_source_texts_close(&c->held_out);
    gx_records_close(&c->file[0]), gx_records_close(&c->file[1]);
    gx_tokenizer_close(&c->tokenizer);
}

static void gx__seq2seq_describe_cut(const GxSeq2Seq *c, int which, const char *what, const char *option, FILE *out)
{
    const int64_t cut = c->train.cut[which] + c->held_out.cut[which], all = c->train.n + c->held_out.n;
    if (!cut) return;
    fprintf(out, "  %ld of %ld %ss %s more than %ld tokens, the longest %ld, and %s cut: a larger %s keeps %s whole\n",
            (long)cut, (long)all, what, cut == 1 ? "has" : "have", (long)c->T[which],
            (long)gx_max(c->train.longest[which], c->held_out.longest[which]), cut == 1 ? "is" : "are", option,
            cut == 1 ? "it" : "them");
}

static void gx__seq2seq_describe(const void *self, FILE *out)
{
    const GxSeq2Seq *c = (const GxSeq2Seq *)self;
    fprintf(out, "data: ");
    if (c->train.n) fprintf(out, "%s, %ld pair%s to train on", c->train_data, (long)c->train.n, gx_text_s(c->train.n));
    if (c->train.n && c->held_out.n) fprintf(out, "; ");
    if (c->predict[0]) fprintf(out, "%s, %ld source%s", c->predict, (long)c->held_out.n, gx_text_s(c->held_out.n));
    else if (c->held_out.n && c->file[1].n) fprintf(out, "%s, %ld held out", c->validation_data, (long)c->held_out.n);
    else if (c->held_out.n) fprintf(out, "%ld held out", (long)c->held_out.n);
    fprintf(out, "; tokens: %s\n", c->tokenizer_name);
    gx__seq2seq_describe_cut(c, GX_OF_SOURCE, "source", "--max_source_length", out);
    gx__seq2seq_describe_cut(c, GX_OF_TARGET, "target", "--seq_len", out);
}

static GxStatus gx__seq2seq_prepare(GxContext *g, void *self, const GxForward *forward)
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    int64_t texts = -c->writer.texts;
    c->forward = *forward; // predictions need it
    // ranks write the same texts together, also those with few samples in a micro-batch
    gx_at(g, -1, "agree");
    gx_all_reduce(g, GX_AXIS_ALL, GX_MAX, &texts, 1, GX_I64);
    c->writer.texts = -texts;
    return gx_status(g);
}

static GxStatus gx__seq2seq_write_folder(const void *self, const char *folder, GxError *err)
{
    const GxSeq2Seq *c = (const GxSeq2Seq *)self;
    GX_TRY(gx_languages_write(&c->frame, folder, err));
    return gx_tokenizer_write(&c->tokenizer, folder, err);
}

// ---- batches -------------------------------------------------------------------------------------------------------

static int64_t gx__seq2seq_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    return gx_source_layout(&((const GxSeq2Seq *)self)->layout, b, block, host_copy);
}

static void gx__seq2seq_put_column(GxSourceWriter *w, int64_t column, const GxSourceTexts *t, const int64_t *text,
                                   int64_t n)
{
    int64_t at[GX_OF_PAIR] = {0, 0};
    for (int64_t k = 0; k < n; k++) {
        GxSourcePair pair;
        for (int which = 0; which < GX_OF_PAIR; which++)
            pair.ids[which] = t->ids[which][text[k]], pair.n[which] = t->length[which][text[k]];
        gx_source_put(w, column, at, &pair);
    }
}

// Columns from b->sample on, of those before number `end`; the others stay empty.
static void gx__seq2seq_fill_columns(GxSeq2Seq *c, GxBatch *b, void *host_copy, const GxSourceTexts *t,
                                     GxTextPacking *packing, uint64_t seed, int64_t end)
{
    GxSourceWriter w;
    gx_source_begin(&w, &c->layout, b, host_copy);
    for (int64_t column = 0; column < b->B && b->sample + column < end; column++) {
        const int64_t *text;
        int64_t n;
        gx_text_packing_column(packing, seed, b->sample + column, &text, &n);
        gx__seq2seq_put_column(&w, column, t, text, n);
    }
    gx_source_finish(&w);
}

static GxStatus gx__seq2seq_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    (void)g, (void)err;
    gx__seq2seq_fill_columns(c, b, host_copy, &c->train, &c->packing, seed, INT64_MAX);
    return GX_OK;
}

static int64_t gx__seq2seq_held_out(const void *self)
{
    const GxSeq2Seq *c = (const GxSeq2Seq *)self;
    GxTextPacking *packing = (GxTextPacking *)(uintptr_t)&c->held_out_packing; // it computes its order when asked
    return c->held_out.n ? gx_text_packing_columns(packing, 0) : 0;
}

static GxStatus gx__seq2seq_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                          GxError *err)
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    (void)g, (void)err;
    gx__seq2seq_fill_columns(c, b, host_copy, &c->held_out, &c->held_out_packing, 0, samples);
    c->validated = samples;
    b->target[0].right = &c->right;
    return GX_OK;
}

static void gx__seq2seq_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    gx_text_counts(&((const GxSeq2Seq *)self)->layout.of[GX_OF_TARGET], b, count);
}

static void gx__seq2seq_see(GxContext *g, void *self, const GxBatch *b)
{
    (void)g;
    if (!b) ((GxSeq2Seq *)self)->right = 0;
}

// ---- written targets -----------------------------------------------------------------------------------------------

// 1: a validation writes targets.
static int gx__seq2seq_compares(const GxSeq2Seq *c) { return c->predict[0] || c->predict_with_generate; }

static void gx__seq2seq_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    const int64_t most = GX__SEQ2SEQ_WRITTEN_AT_ONCE,
                  texts = gx__seq2seq_compares(c) ? most : gx_min(c->sample_lines, most);
    (void)T;
    gx_text_warn_of_padding(g, &c->tokenizer, m);
    if (texts) gx_target_writer_allocate(g, &c->writer, &c->layout, m, &c->search, c->T[GX_OF_SOURCE], texts);
}

// The text of a target's tokens, without what is put around it and other special tokens; the caller frees it.
static char *gx__seq2seq_text(GxContext *g, const GxSeq2Seq *c, const int32_t *ids, int64_t n)
{
    GxTextStream s = gx_text_stream(&c->tokenizer, GX_SPECIAL_AS_TEXT, 0);
    const GxFrameEnds ends = gx_frame_ends(&c->frame, GX_OF_TARGET);
    const char *text = "";
    int64_t bytes = 0;
    if (n && gx_beam_ends(&c->search, ids[n - 1])) n--;
    if (n && ends.n_before && ids[0] == ends.before[0]) ids++, n--;
    gx_text_stream_next(&s, ids, n, 1, &text, &bytes, &g->error);
    char *copy = gx_failed(g) ? NULL : strdup(text);
    if (!copy && !gx_failed(g)) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a text of %ld bytes", (long)bytes);
    gx_text_stream_close(&s);
    return copy;
}

// Writes the targets of held-out texts text[n], n <= writer.texts, on all ranks.
static void gx__seq2seq_write_some(GxContext *g, GxSeq2Seq *c, const GxForward *forward, const int64_t *text, int64_t n)
{
    const int64_t N = c->search.num_return_sequences;
    const int32_t *source[GX__SEQ2SEQ_WRITTEN_AT_ONCE] = {NULL};
    int32_t length[GX__SEQ2SEQ_WRITTEN_AT_ONCE] = {0};
    for (int64_t i = 0; i < n; i++)
        source[i] = c->held_out.ids[GX_OF_SOURCE][text[i]], length[i] = c->held_out.length[GX_OF_SOURCE][text[i]];
    if (!gx_target_writer_run(g, &c->writer, forward, source, length, n, c->written_now)) return;
    if (c->predict[0] && c->writer.is_unsound) { // in a validation they do not end the run
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "--predict %s: the model's outputs are not finite, so nothing is written",
                c->predict);
        return;
    }
    for (int64_t i = 0; i < n * N && !gx_failed(g); i++) {
        const GxWrittenTarget *target = &c->written_now[i];
        char **to = &c->written[text[i / N] * N + i % N];
        free(*to);
        *to = target->n ? gx__seq2seq_text(g, c, target->ids, target->n) : NULL;
    }
}

// Lists the texts of a validation in c->compared, and returns how many there are: for --predict all in the file's
// order, in which they are written to the predictions; otherwise those in the columns whose loss was computed.
static int64_t gx__seq2seq_list_compared(GxSeq2Seq *c)
{
    int64_t n = 0, texts;
    const int64_t *text;
    if (c->predict[0])
        for (; n < c->held_out.n; n++) c->compared[n] = n;
    else
        for (int64_t column = 0; column < c->validated; column++) {
            gx_text_packing_column(&c->held_out_packing, 0, column, &text, &texts);
            for (int64_t i = 0; i < texts; i++) c->compared[n++] = text[i];
        }
    return n;
}

// Writes the targets of the first n texts of c->compared.
static void gx__seq2seq_write_compared(GxContext *g, GxSeq2Seq *c, int64_t n)
{
    const GxForward *f = &c->forward;
    const double begun = gx_seconds();
    double said = begun;
    int64_t i = 0;
    while (i < n && !gx_failed(g) && !(f->stop && f->stop(f->stop_user))) {
        const int64_t some = gx_min(c->writer.texts, n - i);
        gx__seq2seq_write_some(g, c, f, c->compared + i, some);
        i += some;
        if (g->rank || gx_seconds() < said + GX__SEQ2SEQ_SAID_EVERY) continue;
        gx_log(&g->log, GX_LOG_INFO, "%ld of %ld targets are written", (long)i, (long)n);
        said = gx_seconds();
    }
    if (c->predict[0] && !gx_failed(g) && g->rank == 0 && i == n)
        gx_log(&g->log, GX_LOG_INFO, "%ld target%s written in %.2f s", (long)i, gx_text_s(i), gx_seconds() - begun);
}

static char *gx__seq2seq_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    const int64_t lines = gx_min(gx_min(c->sample_lines, c->held_out.n), c->writer.texts),
                  N = c->search.num_return_sequences;
    int64_t text[GX__SEQ2SEQ_WRITTEN_AT_ONCE];
    char *said = NULL, quote[GX__SEQ2SEQ_QUOTE];
    size_t bytes;
    if (!g->device->computes && c->writer.texts) gx_target_writer_run(g, &c->writer, forward, NULL, NULL, 0, NULL);
    if (!g->device->computes || lines < 1) return NULL;
    for (int64_t i = 0; i < lines; i++) text[i] = gx_permute(seed, 0, c->held_out.n, i);
    gx__seq2seq_write_some(g, c, forward, text, lines);
    FILE *out = gx_failed(g) ? NULL : open_memstream(&said, &bytes);
    if (!out && !gx_failed(g)) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    for (int64_t i = 0; i < lines && out; i++) {
        if (!c->written[text[i] * N]) continue; // stopped before
        gx_text_cut(gx_source_text(&c->held_out, GX_OF_SOURCE, text[i]), quote, sizeof quote);
        fprintf(out, "source   %s\n", quote);
        gx_text_cut(gx_source_text(&c->held_out, GX_OF_TARGET, text[i]), quote, sizeof quote);
        fprintf(out, "target   %s\n", quote);
        gx_text_cut(c->written[text[i] * N], quote, sizeof quote);
        fprintf(out, "written  %s\n", quote);
    }
    if (out && fclose(out) != 0) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    if (!gx_failed(g)) return said;
    free(said);
    return NULL;
}

static const char *gx__seq2seq_predicts(const void *self)
{
    return ((const GxSeq2Seq *)self)->predict[0] ? "predict" : NULL;
}

static GxStatus gx__seq2seq_write_line(const GxSeq2Seq *c, int64_t i, FILE *out, GxError *err)
{
    const int64_t N = c->search.num_return_sequences;
    char *const *written = c->written + i * N;
    GxJson *line = gx_json_new_object();
    char *text = NULL;
    int64_t bytes = 0;
    gx_json_set(line, "source", gx_json_new_string(gx_source_text(&c->held_out, GX_OF_SOURCE, i)), err);
    gx_json_set(line, "target", gx_json_new_string(written[0]), err);
    if (N > 1) {
        GxJson *all = gx_json_new_array();
        for (int64_t k = 0; k < N && written[k]; k++) gx_json_append(all, gx_json_new_string(written[k]), err);
        gx_json_set(line, "targets", all, err);
    }
    if (!gx_error_code(err) && gx_json_dump(line, 0, &text, &bytes, err) == GX_OK) fprintf(out, "%s\n", text);
    free(text);
    gx_json_free(line);
    return gx_error_code(err);
}

static const char *gx__seq2seq_predict(GxContext *g, void *self)
{
    const GxSeq2Seq *c = (const GxSeq2Seq *)self;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    GxStatus status = out ? GX_OK : GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %s", c->predictions);
    int64_t i = 0;
    for (; i < c->held_out.n && status == GX_OK && c->written[i * c->search.num_return_sequences]; i++)
        status = gx__seq2seq_write_line(c, i, out, &g->error);
    if (out && fclose(out) != 0 && status == GX_OK)
        status = GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %s", c->predictions);
    if (status == GX_OK) status = gx_file_write(c->predictions, text, (int64_t)bytes, &g->error);
    if (status == GX_OK && i < c->held_out.n)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "stopped after %ld of %ld targets, which are in %s", (long)i,
                (long)c->held_out.n, c->predictions);
    free(text);
    return c->predictions;
}

// ---- metrics -------------------------------------------------------------------------------------------------------

typedef struct {                               // how written targets compare with the true ones
    double exact;                              // part of them
    double rouge1, rouge2, rougeL, bleu, chrf; // 0 to 100; ROUGE: means of F over texts
} gx__Seq2SeqScores;

// Of the first n texts of c->compared. A target that is not there counts as an empty text.
static GxStatus gx__seq2seq_compare(const GxSeq2Seq *c, int64_t n, gx__Seq2SeqScores *s, GxError *err)
{
    GxBleu bleu = GX_ZERO;
    GxChrf chrf = GX_ZERO;
    int64_t same = 0;
    double rouge1 = 0, rouge2 = 0, rougeL = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *best = c->written[c->compared[i] * c->search.num_return_sequences], *written = best ? best : "",
                   *target = gx_source_text(&c->held_out, GX_OF_TARGET, c->compared[i]);
        GxRouge rouge;
        GX_TRY(gx_rouge(written, target, c->rouge_stemmer, &rouge, err));
        GX_TRY(gx_bleu_add(&bleu, written, target, err));
        GX_TRY(gx_chrf_add(&chrf, written, target, err));
        same += !strcmp(written, target);
        rouge1 += rouge.one.f, rouge2 += rouge.two.f, rougeL += rouge.l.f;
    }
    s->exact = (double)same / (double)n;
    s->rouge1 = 100 * rouge1 / (double)n, s->rouge2 = 100 * rouge2 / (double)n, s->rougeL = 100 * rougeL / (double)n;
    s->bleu = gx_bleu_score(&bleu), s->chrf = gx_chrf_score(&chrf);
    return GX_OK;
}

// Writes the targets of this validation's texts, and compares them with the true ones, if there are any.
static void gx__seq2seq_write_and_compare(GxContext *g, GxSeq2Seq *c, gx__Seq2SeqScores *s)
{
    const int64_t n = gx__seq2seq_list_compared(c);
    gx__seq2seq_write_compared(g, c, n);
    if (!gx_failed(g) && c->has_targets) gx__seq2seq_compare(c, n, s, &g->error);
}

static int gx__seq2seq_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    GxSeq2Seq *c = (GxSeq2Seq *)self;
    gx__Seq2SeqScores s = {NAN, NAN, NAN, NAN, NAN, NAN};
    int64_t right = c->right;
    if (losses && gx__seq2seq_compares(c)) gx__seq2seq_write_and_compare(g, c, &s);
    gx_at(g, -1, "evaluate");
    if (losses) gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, &right, 1, GX_I64);
    if (gx_failed(g) || (losses && !c->has_targets)) return 0;
    const GxMetric written[] = {
        {"exact_match", "exactly the target %.4f", s.exact, 1},
        {"rouge1", "ROUGE-1 %.2f", s.rouge1, 1},
        {"rouge2", "ROUGE-2 %.2f", s.rouge2, 1},
        {"rougeL", "ROUGE-L %.2f", s.rougeL, 1},
        {"bleu", "BLEU %.2f", s.bleu, 1},
        {"chrf", "chrF %.2f", s.chrf, 1},
    };
    int n = gx_source_metrics(losses, right, metric);
    if (!gx__seq2seq_compares(c)) return n;
    memcpy(metric + n, written, sizeof written);
    n += (int)(sizeof written / sizeof *written);
    return n;
}

static const char *gx__seq2seq_lacks(const void *self, const char *metric)
{
    (void)self;
    if (!gx_text_is_among(metric, "exact_match|rouge1|rouge2|rougeL|bleu|chrf")) return NULL;
    return "is of targets that are written; --predict_with_generate writes them in each validation";
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_seq2seq = {
    "seq2seq", // name
    {
        // options
        sizeof(GxSeq2Seq),              // size
        GX_FIELDS(gx__seq2seq_options), // fields, n_fields
        gx__seq2seq_own,                // own
        NULL,                           // defaults
        gx__seq2seq_reading,            // reading
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
        gx__seq2seq_open,     // open
        gx__seq2seq_close,    // close
        NULL,                 // head
        gx__seq2seq_describe, // describe
        NULL,                 // show
        gx__seq2seq_prepare,  // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__seq2seq_identity), // identity, n_identity
        // elsewhere
        "on other pairs of texts, or with another tokenizer",
        gx__seq2seq_write_folder, // write
        NULL,                     // changed
    },
    {
        // batch
        gx__seq2seq_allocate,      // allocate
        gx__seq2seq_layout,        // layout
        gx__seq2seq_fill,          // fill
        gx__seq2seq_counts,        // counts
        gx__seq2seq_held_out,      // held_out
        gx__seq2seq_fill_held_out, // fill_held_out
        gx__seq2seq_see,           // see
        NULL,                      // stands_alone
    },
    {
        // metrics
        gx__seq2seq_metrics, // compute
        NULL,                // progress
        NULL,                // baseline
        gx__seq2seq_lacks,   // lacks
        NULL,                // confusion
    },
    {
        // output
        gx__seq2seq_sample,   // sample
        gx__seq2seq_predicts, // predicts
        gx__seq2seq_predict,  // predict
    },
};
#endif
