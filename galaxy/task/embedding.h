// task/embedding.h: trains sentence embeddings: vectors of texts, of which those of related texts point in the same
// direction. The data are pairs of an anchor and its positive, and optionally negatives.
//
//     ./train_bert --task embedding --model bert --train_data pairs.tsv --validation_data held_out.tsv
//     ./train_bert --task embedding --model out/checkpoint-500 --embed texts.tsv --embed_output vectors.npy
//
// Files: data/records.h, with columns anchor, positive and negative (optional). Without --validation_data a hash of
// each anchor decides whether its record is held out.
//
// The loss ranks each anchor's positive among its rivals: all positives and negatives of the micro-batch, on all ranks
// (model/vectors.h). The more rivals, the harder the task. Texts of other micro-batches are no rivals, so
// --gradient_accumulation_steps does not replace a larger batch. The number of rivals of a pair is printed at the start
// and belongs to the run's identity: a run cannot be resumed with another number. A text that is the positive of two
// anchors of a micro-batch is its own rival, so it is better to remove repeated texts from a file.
//
// A sample of seq_len tokens holds whole records, as many as fit (--pack_texts false: one record); attention does not
// cross texts. A text has at most seq_len / 2 tokens, or seq_len / 3 if there are negatives, and no more than the
// model's folder says (max_seq_length).
// --pooling: a text's vector is the mean of its tokens' vectors ([CLS] and [SEP] included), or that of [CLS]. auto: as
// the model's folder says, else the mean. What it says of sentence-transformers (text/sentence_modules.h) is honoured:
// Dense modules follow the pooling, and are not trained.
//
// A validation ranks each held-out anchor's positive among all positives of the validation, by cosine. Its metrics are
// mrr, recall of the first 1, 5 and 10, and the loss over these rivals; none depends on which ranks and micro-batches
// computed the vectors. Equal texts are no rivals there. The rivals differ from those of a training step, so the two
// losses are not comparable; by default the best validation is the one with the largest mrr. All ranks keep all
// vectors: 8 * width bytes per held-out record.
//
// sentence-transformers can read a checkpoint: it has modules.json and the files that this names.
// --embed writes a vector for each text of a file, in the file's order, as a NumPy file (io/npy.h): of length 1, unless
// the model's modules.json has no Normalize. The model's default prompt stands before each text, which may have as many
// tokens as its max_seq_length says, or --seq_len.
//
// Each machine reads its own copy of the files, which must be identical: ranks compare hashes of them.
#ifndef GX_EMBEDDING_TASK_H
#define GX_EMBEDDING_TASK_H
#include "../io/npy.h"
#include "../text/sentence_modules.h"
#include "task.h"
#include "text_groups.h"
#include "text_tokenizer.h"
GX_BEGIN

typedef struct {
    // options
    char train_data[GX_PATH], validation_data[GX_PATH], tokenizer_path[GX_PATH], embed[GX_PATH], embed_output[GX_PATH];
    double validation_fraction;
    char anchor_column[GX_FIELD_TEXT], positive_column[GX_FIELD_TEXT], negative_column[GX_FIELD_TEXT],
        embed_column[GX_FIELD_TEXT];
    char pooling[GX_FIELD_TEXT], split_special_tokens[GX_FIELD_TEXT];
    int pack_texts, skip_bad_records;
    // identity of the data, which a checkpoint keeps
    int64_t records_n, records_hash;
    int64_t rivals; // of a pair in training; if samples have several records, the mean
    char pooling_name[GX_FIELD_TEXT], tokenizer_name[GX_FIELD_TEXT];
    // what is open
    GxTokenizer tokenizer;
    GxSentenceModules modules;
    GxBadRecords skipped;
    GxGroupFile file[2]; // of training; of a validation, or to embed
    GxTextGroups train, held_out;
    GxHeadRequest head;
    // batches
    int64_t T, text_T, width; // tokens of a sample; most tokens of a text; elements of a vector
    int64_t pooled;           // elements of what is pooled
    GxVectorLayer layer[GX_SENTENCE_DENSE];
    int64_t samples, all_samples; // samples of a micro-batch: on this rank, and on all ranks
    int is_trained;               // 0: the run only shows a validation, a sample or vectors: there is no loss
    int has_warned;               // about a validation of a single pair
    int per;                      // the most texts of a record
    GxTextLayout layout;
    // vectors
    GxRows vectors;   // of a batch, in the device's memory; fp32
    float *host_copy; // the same in the host's memory
    float *found[2];  // [held_out.n][width]: vectors of anchors (or texts); of positives
    int32_t *known;   // [held_out.n] 1: the record's vectors are in `found`
    int64_t columns;  // held-out columns that the validation runs
    GxBatch one;      // the batch of gx__embedding_run_one
    void *one_block, *one_host;
    int64_t one_bytes;
} GxEmbeddingTask;

extern const GxTask gx_embedding_task; // its self is a GxEmbeddingTask

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_TASK_IMPLEMENTED)
#define GX_EMBEDDING_TASK_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../io/json.h"
#include "../model/vectors.h"
#include "../ops/memory.h"
#include "scores.h"

#define GX__EMBEDDING_AT(field) offsetof(GxEmbeddingTask, field)
static const GxField gx__embedding_options[] = {
    {"train_data", GX_FIELD_PATH, GX__EMBEDDING_AT(train_data), "data/bert/pairs/train.tsv",
     "file of pairs of texts, with or without negatives: .csv, .tsv or .jsonl", NULL},
    {"validation_data", GX_FIELD_PATH, GX__EMBEDDING_AT(validation_data), "",
     "file of pairs held out for validation; empty: a part of train_data", NULL},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__EMBEDDING_AT(validation_fraction), "0.05",
     "fraction of train_data held out for validation where there is no validation_data; 0: none", "0..0.9"},
    {"anchor_column", GX_FIELD_STRING, GX__EMBEDDING_AT(anchor_column), "anchor", "name of the column with the anchors",
     NULL},
    {"positive_column", GX_FIELD_STRING, GX__EMBEDDING_AT(positive_column), "positive",
     "name of the column with the positives, the texts that belong to the anchors", NULL},
    {"negative_column", GX_FIELD_STRING, GX__EMBEDDING_AT(negative_column), "negative",
     "name of the column with the negatives, texts that do not belong to the anchors; if the file has no column "
     "negative, there are none",
     NULL},
    GX_SKIP_BAD_RECORDS(GX__EMBEDDING_AT(skip_bad_records)),
    {"pooling", GX_FIELD_STRING, GX__EMBEDDING_AT(pooling), "auto",
     "how a text's vector is made: the mean of its tokens' vectors, or [CLS]'s; auto: as the model says, else the mean",
     "auto|mean|cls"},
    {"tokenizer", GX_FIELD_PATH, GX__EMBEDDING_AT(tokenizer_path), "",
     "folder with a tokenizer.json or vocab.txt; empty: the model's tokenizer", NULL},
    GX_SPLIT_SPECIAL_TOKENS(GX__EMBEDDING_AT(split_special_tokens)),
    {"pack_texts", GX_FIELD_BOOL, GX__EMBEDDING_AT(pack_texts), "true",
     "put several records into a sample; they do not attend to each other", NULL},
    {"embed", GX_FIELD_PATH, GX__EMBEDDING_AT(embed), "",
     "file of texts of which the model of --resume or --model writes the vectors instead of training", NULL},
    {"embed_column", GX_FIELD_STRING, GX__EMBEDDING_AT(embed_column), "text", "name of the column with these texts",
     NULL},
    {"embed_output", GX_FIELD_PATH, GX__EMBEDDING_AT(embed_output), "vectors.npy", "new NumPy file for these vectors",
     NULL},
};
static const char *const gx__embedding_own[] = {"train_data", "validation_data", "tokenizer",
                                                "embed",      "embed_output",    NULL};
static const GxField gx__embedding_identity[] = {
    {"pooling", GX_FIELD_STRING, GX__EMBEDDING_AT(pooling_name), NULL, "what a text's vector is", NULL},
    {"records", GX_FIELD_INT, GX__EMBEDDING_AT(records_n), NULL, "that are trained on", "0.."},
    {"records_hash", GX_FIELD_HASH, GX__EMBEDDING_AT(records_hash), NULL, "of their tokens", NULL},
    {"rivals", GX_FIELD_INT, GX__EMBEDDING_AT(rivals), NULL, "of each pair in its micro-batch", "0.."},
    {"tokenizer", GX_FIELD_STRING, GX__EMBEDDING_AT(tokenizer_name), NULL, "which ids the texts have", NULL},
};

enum { GX__EMBEDDING_TOKENS_PER_TEXT = 8, GX__EMBEDDING_LEAST = 3 }; // columns are planned for no more texts than T / 8

static int gx__embedding_is_cls(const GxEmbeddingTask *c) { return !strcmp(c->pooling_name, "cls"); }
static int64_t gx__embedding_records(const GxEmbeddingTask *c) // of a column, at most
{
    return c->pack_texts ? gx_max(1, c->T / (GX__EMBEDDING_TOKENS_PER_TEXT * c->per)) : 1;
}

// ---- pooling -------------------------------------------------------------------------------------------------------

// What rank 0 has read of the model's folder, on all ranks.
typedef struct {
    char pooling[8];
    int64_t normalizes, lowers_case, most, prompt, dense_n; // prompt: its bytes
    int64_t in[GX_SENTENCE_DENSE], out[GX_SENTENCE_DENSE], is_tanh[GX_SENTENCE_DENSE], has_bias[GX_SENTENCE_DENSE];
} gx__EmbeddingModules;

static void gx__embedding_receive(GxContext *g, void **bytes, int64_t n)
{
    if (n < 1 || gx_failed(g)) return;
    if (!*bytes) *bytes = calloc(1, (size_t)n + 1);
    if (!*bytes) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld bytes of the model's modules", (long)n);
    if (!gx_failed(g)) gx_broadcast(g, GX_AXIS_ALL, 0, *bytes, n, GX_U8);
}

static GxStatus gx__embedding_share_modules(GxContext *g, GxSentenceModules *m)
{
    gx__EmbeddingModules said = GX_ZERO;
    memcpy(said.pooling, m->pooling, sizeof said.pooling);
    said.normalizes = m->normalizes, said.lowers_case = m->lowers_case, said.most = m->most, said.dense_n = m->dense_n;
    said.prompt = m->prompt ? (int64_t)strlen(m->prompt) : 0;
    for (int i = 0; i < m->dense_n; i++) {
        said.in[i] = m->dense[i].in, said.out[i] = m->dense[i].out;
        said.is_tanh[i] = m->dense[i].is_tanh, said.has_bias[i] = m->dense[i].bias != NULL;
    }
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, &said, (int64_t)sizeof said, GX_U8);
    GX_TRY(gx_status(g));
    memcpy(m->pooling, said.pooling, sizeof said.pooling);
    m->normalizes = (int)said.normalizes, m->lowers_case = (int)said.lowers_case, m->most = said.most;
    m->dense_n = (int)said.dense_n;
    if (g->rank) free(m->prompt), m->prompt = NULL;
    gx__embedding_receive(g, (void **)&m->prompt, said.prompt + 1);
    for (int i = 0; i < m->dense_n; i++) {
        GxSentenceDense *d = &m->dense[i];
        d->in = said.in[i], d->out = said.out[i], d->is_tanh = (int)said.is_tanh[i];
        gx__embedding_receive(g, (void **)&d->weight, 4 * d->in * d->out);
        gx__embedding_receive(g, (void **)&d->bias, said.has_bias[i] ? 4 * d->out : 0);
    }
    return gx_status(g);
}

// The tokenizer makes letters lower-case.
static int gx__embedding_lowers(const GxTokenizer *t)
{
    return t->kind == &gx_wordpiece && ((const GxWordPiece *)t->vocabulary)->normalizer.lowercase;
}

static GxStatus gx__embedding_open_modules(GxContext *g, GxEmbeddingTask *c, const char *model)
{
    const int is_auto = !strcmp(c->pooling, "auto");
    GxSentenceModules *m = &c->modules;
    gx_sentence_modules_read(m, model, !is_auto, &g->error);
    GX_TRY(gx__embedding_share_modules(g, m));
    if (!is_auto || !m->pooling[0]) snprintf(m->pooling, sizeof m->pooling, "%.7s", is_auto ? "mean" : c->pooling);
    snprintf(c->pooling_name, sizeof c->pooling_name, "%s", m->pooling);
    if (m->notes[0]) gx_log(&g->log, GX_LOG_WARNING, "%s", m->notes);
    if (m->lowers_case && !gx__embedding_lowers(&c->tokenizer))
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "the model's sentence_bert_config.json says do_lower_case true, but the tokenizer keeps capital "
                       "letters; supported: false, or a tokenizer that makes them lower-case itself");
    return GX_OK;
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__embedding_open_files(GxEmbeddingTask *c, const GxTaskSetup *setup, GxError *err)
{
    static const char *const of_pairs[] = {"anchor_column", "positive_column", "negative_column"}, *const of_texts[] = {
                                                                                                       "embed_column",
                                                                                                       NULL, NULL};
    const char *const pairs[] = {c->anchor_column, c->positive_column, c->negative_column};
    const char *const texts[] = {c->embed_column, "", ""};
    GxBadRecords *skip = c->skip_bad_records ? &c->skipped : NULL;
    const int may_lack = !strcmp(c->negative_column, "negative");
    c->per = c->embed[0] ? 1 : GX_GROUP_TEXTS; // a dry run assumes the most
    if (!(c->embed[0] ? c->embed_column[0] : c->anchor_column[0] && c->positive_column[0]))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is an empty name; expected the name of a column",
                       c->embed[0] ? "--embed_column" : "--anchor_column, --positive_column");
    if (!c->embed[0] && !strcmp(c->positive_column, c->negative_column))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--positive_column and --negative_column are both %s, so that every positive would be its own "
                       "negative; name two columns",
                       c->positive_column);
    if (setup->is_dry) return GX_OK;
    if (c->embed[0] && skip)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--skip_bad_records does not go with --embed, whose vectors stand in the rows of their records, "
                       "so that none can be left out; correct the bad records, or leave the option out");
    if (c->embed[0]) return gx_group_file_open(&c->file[1], c->embed, texts, of_texts, 0, NULL, err);
    if (!setup->only_shows || !c->validation_data[0])
        GX_TRY(gx_group_file_open(&c->file[0], c->train_data, pairs, of_pairs, may_lack, skip, err));
    if (c->validation_data[0])
        GX_TRY(gx_group_file_open(&c->file[1], c->validation_data, pairs, of_pairs, may_lack, skip, err));
    c->per = (int)gx_max(c->file[0].per, c->file[1].per);
    return GX_OK;
}

static GxStatus gx__embedding_agree(GxContext *g, const GxEmbeddingTask *c)
{
    const char *const what[] = {c->embed[0] ? c->embed : c->validation_data, c->train_data, "the presence of --embed"};
    const int64_t mine[] = {(int64_t)c->file[1].column[0].records.hash, (int64_t)c->file[0].column[0].records.hash,
                            c->embed[0] != 0};
    return gx_task_agree(g, what, mine, 3);
}

static GxStatus gx__embedding_open_groups(GxContext *g, const GxEmbeddingTask *c, GxTextGroups *s, int file,
                                          GxTextsPart part)
{
    GxError *err = &g->error;
    GxTextWords words = GX_ZERO;
    GX_TRY(gx_text_groups_open(s, &c->file[file], part, c->validation_fraction, err));
    if (c->embed[0]) s->text[0].prompt = c->modules.prompt;
    GX_TRY(gx_text_groups_tokenize(s, &c->tokenizer, c->text_T, gx_threads(g), err));
    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < s->per; k++)
            gx_text_count_words(&words, &c->tokenizer, s->text[k].ids[i], s->text[k].length[i]);
    if (s == &c->train || !c->train.n) // once
        gx_text_warn_of_unknown(g, &c->tokenizer, &words, c->file[file].column[0].records.path);
    return gx_text_groups_pack(s, c->T, gx__embedding_records(c), err);
}

static const char *gx__embedding_positive(const GxTextGroups *s, int64_t i)
{
    return gx_texts_field(&s->text[1], i, s->text[1].file->text);
}

// An error if a pair has no rivals at all.
static GxStatus gx__embedding_need_rivals(const GxTextGroups *s, const char *what, const char *advice, GxError *err)
{
    for (int64_t i = 1; i < s->n; i++)
        if (strcmp(gx__embedding_positive(s, 0), gx__embedding_positive(s, i))) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: the pairs %s (%ld) all have the same positive text, and no other text to tell it from; "
                   "expected at least two different positives%s",
                   s->text[0].file->records.path, what, (long)s->n, advice);
}

// Sets c->rivals: all texts of a micro-batch but the anchors and the pair's own positive.
static GxStatus gx__embedding_count_rivals(GxEmbeddingTask *c, GxError *err)
{
    const GxTextGroups *s = &c->train;
    const double records = (double)s->n / (double)s->columns * (double)c->all_samples; // of a micro-batch
    c->rivals = llround(records * (s->per - 1)) - 1;
    if (s->per > 2) return GX_OK;
    GX_TRY(gx__embedding_need_rivals(s, "to train on", ", or negatives", err));
    if (c->rivals > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "a micro-batch has one pair, and no other text to tell its positive from, so that the loss would "
                   "always be 0; use a larger --micro_batch_size, or a file with negatives");
}

static GxStatus gx__embedding_open_texts(GxContext *g, GxEmbeddingTask *c, const GxTaskSetup *setup)
{
    const int has_file = c->file[1].per > 0, is_split = !has_file && c->validation_fraction > 0;
    GxError *err = &g->error;
    if (!setup->only_shows) {
        GX_TRY(gx__embedding_open_groups(g, c, &c->train, 0, is_split ? GX_TEXTS_TRAINING : GX_TEXTS_ALL));
        GX_TRY(gx__embedding_count_rivals(c, err));
        c->records_n = c->train.n, c->records_hash = (int64_t)gx_text_groups_hash(&c->train);
    }
    if (!has_file && !is_split) return GX_OK;
    GX_TRY(gx__embedding_open_groups(g, c, &c->held_out, has_file, is_split ? GX_TEXTS_HELD_OUT : GX_TEXTS_ALL));
    if (c->embed[0]) return GX_OK;
    return gx__embedding_need_rivals(&c->held_out, "of the validation",
                                     is_split ? "; a larger --validation_fraction holds out more, 0 none" : "", err);
}

static GxStatus gx__embedding_check_sizes(GxContext *g, GxEmbeddingTask *c, const GxTaskSetup *setup)
{
    GxError *err = &g->error;
    const int64_t most = c->modules.most;
    c->text_T = c->T / c->per;
    if (c->text_T < GX__EMBEDDING_LEAST)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is %ld; a sample holds %d text%s between [CLS] and [SEP], so it must be at least %d",
                       gx_task_length_name(setup), (long)c->T, c->per, gx_text_s(c->per), GX__EMBEDDING_LEAST * c->per);
    if (most && !c->embed[0]) c->text_T = gx_min(c->text_T, most); // --embed has its --seq_len from there
    if (c->text_T < GX__EMBEDDING_LEAST)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "max_seq_length of the model's folder is %ld; a text stands between [CLS] and [SEP], so it must "
                       "be at least %d",
                       (long)most, GX__EMBEDDING_LEAST);
    if (most && most != c->text_T && !g->rank)
        gx_log(&g->log, GX_LOG_INFO, "texts are cut to %ld tokens (%s%s); the model's folder says %ld (max_seq_length)",
               (long)c->text_T, gx_task_length_name(setup), c->per == 1 ? "" : " for the texts of a record",
               (long)most);
    const int32_t pad = c->tokenizer.role[GX_TOKEN_PAD];
    c->layout.pad = pad < 0 ? 0 : pad;
    return GX_OK;
}

static GxStatus gx__embedding_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    c->T = setup->seq_len, c->samples = setup->samples, c->all_samples = setup->all_samples;
    c->is_trained = !setup->only_shows;
    c->head.kind = GX_HEAD_VECTORS;
    GX_TRY(gx_text_open_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    gx_text_split_special(&c->tokenizer, c->split_special_tokens);
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    GX_TRY(gx__embedding_open_modules(g, c, setup->model));
    GX_TRY(gx__embedding_open_files(c, setup, &g->error));
    GX_TRY(gx__embedding_agree(g, c));
    GX_TRY(gx__embedding_check_sizes(g, c, setup));
    if (c->embed[0] && g->rank == 0 && !setup->is_dry)
        GX_TRY(gx_npy_check(c->embed_output, "--embed_output", &g->error));
    if (setup->is_dry) return GX_OK;
    GX_TRY(gx__embedding_open_texts(g, c, setup));
    gx_bad_records_warn(&c->skipped, g->rank ? NULL : &g->log);
    setup->epoch_samples = c->train.columns;
    return GX_OK;
}

static void gx__embedding_close(void *self)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    gx_text_groups_close(&c->train), gx_text_groups_close(&c->held_out);
    gx_group_file_close(&c->file[0]), gx_group_file_close(&c->file[1]);
    gx_tokenizer_close(&c->tokenizer);
    gx_sentence_modules_close(&c->modules);
    free(c->host_copy), free(c->found[0]), free(c->found[1]), free(c->known);
}

static const GxHeadRequest *gx__embedding_wish(const void *self) { return &((const GxEmbeddingTask *)self)->head; }

static void gx__embedding_describe(const void *self, FILE *out)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    const int64_t cut = gx_text_groups_cut(&c->train) + gx_text_groups_cut(&c->held_out);
    const char *const kinds[] = {"", "text", "pair", "pair"}, *const with[] = {"", "", "", " with negatives"};
    char prompt[GX_TEXT_VALUE];
    fprintf(out, "data: ");
    if (c->train.n)
        fprintf(out, "%s, %ld %s%s%s to train on", c->train_data, (long)c->train.n, kinds[c->train.per],
                gx_text_s(c->train.n), with[c->train.per]);
    if (c->train.n && c->held_out.n) fprintf(out, "; ");
    if (c->embed[0]) fprintf(out, "%s, %ld text%s to embed", c->embed, (long)c->held_out.n, gx_text_s(c->held_out.n));
    else if (c->held_out.n && c->file[1].per) fprintf(out, "%s, %ld held out", c->validation_data, (long)c->held_out.n);
    else if (c->held_out.n) fprintf(out, "%ld of it held out", (long)c->held_out.n);
    fprintf(out, "; vectors: %s; tokens: %s\n",
            gx__embedding_is_cls(c) ? "that of [CLS]" : "the mean of a text's tokens", c->tokenizer_name);
    for (int i = 0; i < c->modules.dense_n; i++)
        fprintf(out, "  then a Dense module, %ld to %ld%s%s\n", (long)c->modules.dense[i].in,
                (long)c->modules.dense[i].out, c->modules.dense[i].is_tanh ? ", tanh" : "",
                c->train.n ? ", which is frozen" : "");
    if (c->embed[0] && !c->modules.normalizes)
        fprintf(out, "  the model has no Normalize module: vectors are not scaled to length 1\n");
    if (c->modules.prompt[0])
        fprintf(out, "  the model's default prompt %s \"%s\"\n",
                c->embed[0] ? "stands before each text:" : "is not put before pairs, but before texts of --embed:",
                gx_text_cut(c->modules.prompt, prompt, sizeof prompt));
    if (c->train.n)
        fprintf(out, "  each pair has %ld rival%s%s, the other texts of its micro-batch (%ld sample%s)\n",
                (long)c->rivals, gx_text_s(c->rivals), c->train.columns < c->train.n ? " on average" : "",
                (long)c->all_samples, gx_text_s(c->all_samples));
    if (cut)
        fprintf(out, "  %ld text%s more than %ld tokens and %s cut: a larger --seq_len keeps %s whole\n", (long)cut,
                cut == 1 ? " has" : "s have", (long)c->text_T, cut == 1 ? "is" : "are", cut == 1 ? "it" : "them");
}

// The mrr of a random ranking: the mean of 1/rank over all possible ranks.
static GxStatus gx__embedding_baseline(const void *self, GxMetric *metric, GxError *err)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    (void)err;
    if (!c->held_out.n || c->embed[0]) return GX_OK;
    metric->name = "chance_mrr", metric->format = "by chance: mrr %.4f";
    for (int64_t i = 1; i <= c->held_out.n; i++) metric->value += 1 / (double)i / (double)c->held_out.n;
    return GX_OK;
}

// ---- the checkpoint ------------------------------------------------------------------------------------------------

// --embed of the checkpoint cuts where max_seq_length says: as the model that it began from, or else as samples are.
static GxStatus gx__embedding_write(const void *self, const char *folder, GxError *err)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    GX_TRY(gx_sentence_modules_write(&c->modules, c->pooled, c->modules.most ? c->modules.most : c->T, folder, err));
    return gx_tokenizer_write(&c->tokenizer, folder, err);
}

// ---- batches -------------------------------------------------------------------------------------------------------

// The parts, [most][3], follow the arrays of text_batch.h.
static int64_t gx__embedding_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    GxTarget *t = &b->target[0];
    const int64_t bytes = gx_text_layout(&c->layout, b, block, host_copy), records = gx__embedding_records(c) * b->B;
    t->parts = block ? (const int32_t *)((char *)block + bytes) : NULL;
    t->parts_host = host_copy ? (const int32_t *)((char *)host_copy + bytes) : NULL;
    t->n = records * c->per;
    t->anchors = c->per > 1 && c->is_trained ? records : -1;
    t->layers = c->layer, t->n_layers = c->modules.dense_n;
    t->candidates = (c->per - 1) * gx__embedding_records(c) * c->all_samples;
    return bytes + gx_round_up(12 * t->n, GX_ALIGN);
}

// Calls `at` for the texts of a batch's columns in the order of its parts: all anchors, all positives, all negatives.
// Columns from number `end` on are empty.
typedef void GxEmbeddingAt(void *user, int k, int64_t group, int64_t column, int64_t begin);
static void gx__embedding_each(GxTextGroups *s, const GxBatch *b, uint64_t seed, int64_t end, GxEmbeddingAt *at,
                               void *user)
{
    for (int k = 0; k < s->per; k++)
        for (int64_t column = 0; column < b->B && b->first_sample + column < end; column++) {
            const int64_t *group;
            int64_t n, begin = 0;
            gx_text_packing_column(&s->packing, seed, b->first_sample + column, &group, &n);
            for (int64_t i = 0; i < n; begin += s->length[group[i++]]) {
                int64_t inside = 0;
                for (int j = 0; j < k; j++) inside += s->text[j].length[group[i]];
                at(user, k, group[i], column, begin + inside);
            }
        }
}

typedef struct {
    GxTextWriter w;
    const GxTextGroups *s;
    int32_t *part;
    int is_cls;
} gx__EmbeddingWriter;

static void gx__embedding_put_text(gx__EmbeddingWriter *w, const GxTexts *t, int64_t i, int64_t column, int64_t begin)
{
    GxTarget *target = &w->w.b->target[0];
    int32_t *part = w->part + 3 * target->n++;
    gx_text_put(&w->w, column, begin, t->ids[i], NULL, t->length[i]);
    part[0] = (int32_t)column, part[1] = (int32_t)begin;
    part[2] = (int32_t)(begin + (w->is_cls ? 1 : t->length[i]));
}

static void gx__embedding_put(void *user, int k, int64_t group, int64_t column, int64_t begin)
{
    gx__EmbeddingWriter *w = (gx__EmbeddingWriter *)user;
    gx__embedding_put_text(w, &w->s->text[k], group, column, begin);
    w->w.b->target[0].anchors += k == 0 && w->s->per > 1;
}

static gx__EmbeddingWriter gx__embedding_begin(const GxEmbeddingTask *c, GxBatch *b, void *host_copy,
                                               const GxTextGroups *s)
{
    gx__EmbeddingWriter w;
    GxTextArrays ignored;
    gx_text_begin(&w.w, &c->layout, b, host_copy);
    w.s = s, w.is_cls = gx__embedding_is_cls(c);
    w.part = (int32_t *)((char *)host_copy + gx_text_arrays(&c->layout, b->T, b->B, NULL, &ignored));
    b->target[0].n = 0, b->target[0].anchors = s->per > 1 ? 0 : -1;
    return w;
}

static GxStatus gx__embedding_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    gx__EmbeddingWriter w = gx__embedding_begin(c, b, host_copy, &c->train);
    (void)g, (void)err;
    gx__embedding_each(&c->train, b, seed, INT64_MAX, gx__embedding_put, &w);
    return GX_OK;
}

static int64_t gx__embedding_held_out(const void *self) { return ((const GxEmbeddingTask *)self)->held_out.columns; }

static GxStatus gx__embedding_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                            GxError *err)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    gx__EmbeddingWriter w = gx__embedding_begin(c, b, host_copy, &c->held_out);
    (void)g, (void)err;
    c->columns = gx_min(samples, c->held_out.columns);
    gx__embedding_each(&c->held_out, b, 0, c->columns, gx__embedding_put, &w);
    b->target[0].logits = gx_some_rows(c->vectors, 0, b->target[0].n);
    b->target[0].anchors = -1; // the loss is that of all vectors together
    return GX_OK;
}

static void gx__embedding_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const GxTarget *t = &b->target[0];
    count[0] += t->anchors >= 0 ? t->anchors : t->n / gx_max(1, ((const GxEmbeddingTask *)self)->held_out.per);
}

// Memory for what follows the pooling, which gx__embedding_prepare fills.
static void gx__embedding_take_dense(GxContext *g, GxEmbeddingTask *c)
{
    for (int i = 0; i < c->modules.dense_n; i++) {
        const GxSentenceDense *d = &c->modules.dense[i];
        const GxVectorLayer layer = {
            d->in, d->out, (const float *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, 4 * d->in * d->out),
            d->bias ? (const float *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, 4 * d->out) : NULL, d->is_tanh};
        c->layer[i] = layer;
        if (d->in != c->width)
            GX_FAIL(&g->error, GX_ERR_FORMAT, "a Dense module has in_features %ld, but its input has %ld", (long)d->in,
                    (long)c->width);
        c->width = d->out;
    }
}

static GxStatus gx__embedding_prepare(GxContext *g, void *self, const GxForward *forward)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    (void)forward;
    for (int i = 0; i < c->modules.dense_n && g->device->computes && !gx_failed(g); i++) {
        const GxSentenceDense *d = &c->modules.dense[i];
        gx_to_device(g, (void *)(uintptr_t)c->layer[i].weight, d->weight, 4 * d->in * d->out);
        if (d->bias) gx_to_device(g, (void *)(uintptr_t)c->layer[i].bias, d->bias, 4 * d->out);
    }
    return gx_status(g);
}

static void gx__embedding_allocate(GxContext *g, void *self, GxModel *m, int64_t T)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    const int64_t most = gx__embedding_records(c) * c->per;
    memset(&c->one, 0, sizeof c->one);
    gx_text_warn_of_padding(g, &c->tokenizer, m);
    c->pooled = c->width = gx_model_width(m);
    gx__embedding_take_dense(g, c);
    c->vectors = gx_rows(NULL, GX_F32, most * c->samples, c->width);
    c->vectors.data = gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, gx_rows_bytes(c->vectors));
    c->one.T = T, c->one.B = 1, c->one.runs = gx_runs_one(T, 0);
    c->one_bytes = gx__embedding_layout(c, &c->one, NULL, NULL);
    c->one_block = gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, c->one_bytes);
    c->one_host = gx_host_copy(g, GX_MEM_ACTIVATIONS, c->one_block, c->one_bytes);
    if (gx_failed(g)) return;
    gx__embedding_layout(c, &c->one, c->one_block, c->one_host);
    c->one.target[0].anchors = -1;
}

// ---- vectors of a validation ---------------------------------------------------------------------------------------

// Copies the vectors of batch b to the host.
static void gx__embedding_fetch(GxContext *g, GxEmbeddingTask *c, const GxBatch *b)
{
    const GxRows some = gx_some_rows(c->vectors, 0, b->target[0].n);
    if (!c->host_copy) c->host_copy = (float *)malloc((size_t)gx_rows_bytes(c->vectors) + 1);
    if (!c->host_copy) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for vectors of %ld texts", (long)c->vectors.rows);
    if (!gx_failed(g) && some.rows) gx_to_host(g, c->host_copy, some.data, gx_rows_bytes(some));
}

static void gx__embedding_forget(GxContext *g, GxEmbeddingTask *c)
{
    const size_t bytes = (size_t)(c->held_out.n * c->width) * sizeof(float);
    if (!c->known) c->known = (int32_t *)malloc((size_t)c->held_out.n * sizeof *c->known);
    for (int k = 0; k < 2; k++) {
        if (!c->found[k]) c->found[k] = (float *)malloc(bytes);
        if (c->found[k]) memset(c->found[k], 0, bytes);
    }
    if (c->known) memset(c->known, 0, (size_t)c->held_out.n * sizeof *c->known);
    if (!c->known || !c->found[0] || !c->found[1])
        GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for vectors of %ld records", (long)c->held_out.n);
}

typedef struct {
    GxEmbeddingTask *c;
    int64_t i; // of the batch's texts
} gx__EmbeddingReader;

static void gx__embedding_keep(void *user, int k, int64_t group, int64_t column, int64_t begin)
{
    gx__EmbeddingReader *r = (gx__EmbeddingReader *)user;
    const int64_t C = r->c->width, i = r->i++;
    (void)column, (void)begin;
    if (k < 2) memcpy(r->c->found[k] + group * C, r->c->host_copy + i * C, (size_t)C * sizeof(float));
    r->c->known[group] = 1;
}

static void gx__embedding_see(GxContext *g, void *self, const GxBatch *b)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    gx__EmbeddingReader reader = {c, 0};
    if (!b) gx__embedding_forget(g, c);
    if (!b || gx_failed(g) || !gx_has_head(g)) return;
    gx__embedding_fetch(g, c, b);
    if (!gx_failed(g) && b->target[0].n)
        gx__embedding_each(&c->held_out, b, 0, c->columns, gx__embedding_keep, &reader);
}

static void gx__embedding_gather(GxContext *g, GxEmbeddingTask *c)
{
    gx_at(g, -1, "vectors");
    for (int k = 0; k < 2; k++)
        gx_all_reduce(g, GX_AXIS_RESULTS, GX_SUM, c->found[k], c->held_out.n * c->width, GX_F32);
    gx_all_reduce(g, GX_AXIS_RESULTS, GX_SUM, c->known, c->held_out.n, GX_I32);
}

typedef struct {   // of the records of a validation
    int64_t n;     // records whose vectors are known; 0: vectors are not finite, or there is only one record
    int64_t *rank; // [n] ranks of their positives
    double *loss;  // [n]
    int64_t *same; // [n] hashes of their positives
} gx__EmbeddingRanks;

static GxStatus gx__embedding_open_ranks(gx__EmbeddingRanks *r, int64_t all, GxError *err)
{
    r->n = 0;
    r->rank = (int64_t *)malloc((size_t)all * sizeof *r->rank);
    r->loss = (double *)malloc((size_t)all * sizeof *r->loss);
    r->same = (int64_t *)malloc((size_t)all * sizeof *r->same);
    if (r->rank && r->loss && r->same) return GX_OK;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory to rank %ld records", (long)all);
}

// Ranks the positives. Moves the known vectors to the front of c->found.
static void gx__embedding_rank(GxContext *g, const GxEmbeddingTask *c, gx__EmbeddingRanks *r)
{
    const int64_t C = c->width;
    GxError unsound = GX_ZERO; // vectors that are not finite do not end the run
    for (int64_t i = 0; i < c->held_out.n; i++) {
        const char *text = gx__embedding_positive(&c->held_out, i);
        if (!c->known[i]) continue;
        for (int k = 0; k < 2; k++) memmove(c->found[k] + r->n * C, c->found[k] + i * C, (size_t)C * sizeof(float));
        r->same[r->n++] = (int64_t)gx_hash(GX_HASH_START, text, (int64_t)strlen(text));
    }
    const GxCosines x = {c->found[0], c->found[1], r->n, r->n, C, r->same};
    if (r->n < 2 ||
        gx_rank_and_loss_by_cosine(&x, (double)GX_COSINE_SCALE, gx_threads(g), r->rank, r->loss, &unsound) != GX_OK)
        r->n = 0;
}

// Warns if --eval_windows leaves only one pair to validate.
static void gx__embedding_warn_of_one(GxContext *g, GxEmbeddingTask *c, int64_t pairs)
{
    if (pairs != 1 || c->has_warned || g->rank) return;
    c->has_warned = 1;
    gx_log(&g->log, GX_LOG_WARNING,
           "a validation of one pair has nothing to rank its positive among, and says nothing; increase --eval_windows "
           "(0: all samples)");
}

static int gx__embedding_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    static const struct {
        int64_t first;
        const char *name, *format;
    } recalls[] = {
        {1, "recall_1", "recall of the first %.4f"}, {5, "recall_5", "of 5 %.4f"}, {10, "recall_10", "of 10 %.4f"}};
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    GxMetric loss = {"loss", "loss %.4f", NAN, -1}, mrr = {"mrr", "mrr %.4f", NAN, 1};
    gx__EmbeddingRanks r = GX_ZERO;
    if (losses) gx__embedding_gather(g, c);
    if (gx_failed(g) || c->held_out.per < 2) return 0;
    if (losses && gx__embedding_open_ranks(&r, c->held_out.n, &g->error) == GX_OK) gx__embedding_rank(g, c, &r);
    if (losses) gx__embedding_warn_of_one(g, c, losses->count[0]);
    if (r.n > 0) loss.value = 0, mrr.value = gx_ranking_of_ranks(r.rank, r.n, 1).mrr;
    for (int64_t i = 0; i < r.n; i++) loss.value += r.loss[i] / (double)r.n;
    metric[0] = loss, metric[1] = mrr;
    for (int i = 0; i < 3; i++) {
        const GxMetric recall = {recalls[i].name, recalls[i].format,
                                 r.n > 0 ? gx_ranking_of_ranks(r.rank, r.n, recalls[i].first).recall : NAN, 1};
        metric[2 + i] = recall;
    }
    free(r.rank), free(r.loss), free(r.same);
    return 5;
}

// ---- the sample ----------------------------------------------------------------------------------------------------

enum { GX__EMBEDDING_ANCHORS = 3, GX__EMBEDDING_RIVALS = 64, GX__EMBEDDING_QUOTE = 120 };

// The vector of text i of t, computed alone in a batch, on every rank.
static void gx__embedding_run_one(GxContext *g, GxEmbeddingTask *c, const GxForward *forward, const GxTexts *t,
                                  int64_t i, float *vector)
{
    GxBatch *b = &c->one;
    GxTextGroups alone = GX_ZERO;
    alone.per = 1;
    gx__EmbeddingWriter w = gx__embedding_begin(c, b, c->one_host, &alone);
    gx__embedding_put_text(&w, t, i, 0, 0);
    b->target[0].logits = gx_some_rows(c->vectors, 0, 1);
    gx_to_device(g, c->one_block, c->one_host, c->one_bytes);
    forward->run(g, forward->user, b);
    gx__embedding_fetch(g, c, b);
    if (!gx_failed(g)) memcpy(vector, c->host_copy, (size_t)c->width * sizeof *vector);
}

// For a plan: takes the memory of a validation's vectors, which is enough for the sample's. Reads no array.
static void gx__embedding_dry_run(GxContext *g, GxEmbeddingTask *c, const GxForward *forward)
{
    GxBatch b = c->one;
    b.B = c->samples;
    gx__embedding_layout(c, &b, c->one_block, c->one_block);
    b.target[0].anchors = -1, b.target[0].logits = c->vectors;
    forward->run(g, forward->user, &b);
    if (c->held_out.n) gx__embedding_gather(g, c);
}

static double gx__embedding_cosine(const float *a, const float *b, int64_t C)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < C; i++) {
        ab += (double)a[i] * b[i], aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

// Prints an anchor and the three nearest of n positives: number[i] is a record, rival its vectors.
static void gx__embedding_tell(const GxEmbeddingTask *c, const float *anchor, const float *rival, const int64_t *number,
                               int64_t n, int64_t own, FILE *out)
{
    char text[GX__EMBEDDING_QUOTE];
    unsigned char told[GX__EMBEDDING_RIVALS] = {0};
    const GxTexts *a = &c->held_out.text[0], *p = &c->held_out.text[1];
    fprintf(out, "%s\n", gx_text_cut(gx_texts_field(a, number[own], a->file->text), text, sizeof text));
    for (int k = 0; k < 3 && k < n; k++) {
        int64_t best = -1;
        double most = 0;
        for (int64_t j = 0; j < n; j++) {
            const double cosine = gx__embedding_cosine(anchor, rival + j * c->width, c->width);
            if (!told[j] && (best < 0 || cosine > most)) best = j, most = cosine;
        }
        told[best] = 1;
        gx_text_cut(gx_texts_field(p, number[best], p->file->text), text, sizeof text);
        fprintf(out, "  %.3f%s %s\n", most, best == own ? " *" : "  ", text);
    }
}

static char *gx__embedding_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    const int64_t n = gx_min(GX__EMBEDDING_RIVALS, c->held_out.n);
    int64_t number[GX__EMBEDDING_RIVALS];
    char *text = NULL;
    size_t bytes;
    if (!g->device->computes) gx__embedding_dry_run(g, c, forward);
    if (!g->device->computes || !n || c->held_out.per < 2) return NULL;
    float *rival = (float *)malloc((size_t)((n + 1) * c->width) * sizeof *rival), *anchor = rival;
    FILE *out = rival ? open_memstream(&text, &bytes) : NULL;
    if (!out) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    if (rival) anchor += n * c->width;
    int stopped = 0;
    for (int64_t k = 0; k < n && !gx_failed(g) && !stopped; k++) {
        number[k] = gx_permute(seed, 0, c->held_out.n, k);
        gx__embedding_run_one(g, c, forward, &c->held_out.text[1], number[k], rival + k * c->width);
        stopped = forward->stop && forward->stop(forward->stop_user);
    }
    if (out) fprintf(out, "anchors, and the nearest of %ld held-out positives (*: their own)\n", (long)n);
    for (int64_t k = 0; k < n && k < GX__EMBEDDING_ANCHORS && !gx_failed(g) && !stopped; k++) {
        gx__embedding_run_one(g, c, forward, &c->held_out.text[0], number[k], anchor);
        if (!gx_failed(g)) gx__embedding_tell(c, anchor, rival, number, n, k, out);
    }
    free(rival);
    if (out && fclose(out) != 0) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    if (!gx_failed(g) && !stopped) return text;
    free(text);
    return NULL;
}

// ---- vectors in a file ---------------------------------------------------------------------------------------------

static const char *gx__embedding_predicts(const void *self)
{
    return ((const GxEmbeddingTask *)self)->embed[0] ? "embed" : NULL;
}

// Normalises v to length 1, if the model does. Returns 0 if that is not possible: its length is 0 or not finite.
static int gx__embedding_unit(float *v, int64_t C, int normalizes)
{
    double squares = 0;
    for (int64_t j = 0; j < C; j++) squares += (double)v[j] * v[j];
    for (int64_t j = 0; j < C && normalizes; j++) v[j] = (float)(v[j] / sqrt(squares));
    return isfinite(squares) && (squares > 0 || !normalizes);
}

static const char *gx__embedding_predict(GxContext *g, void *self)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    const GxTexts *t = &c->held_out.text[0];
    for (int64_t i = 0; i < t->n; i++)
        if (!c->known[i] || !gx__embedding_unit(c->found[0] + i * c->width, c->width, c->modules.normalizes)) {
            GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s:%ld: the vector of this text is %s, so nothing is written",
                    t->file->records.path, (long)gx_texts_line(t, i), c->known[i] ? "0 or not finite" : "not known");
            return c->embed_output;
        }
    gx_npy_write(c->embed_output, c->found[0], t->n, c->width, &g->error);
    return c->embed_output;
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_embedding_task = {
    "embedding",
    sizeof(GxEmbeddingTask),
    GX_FIELDS(gx__embedding_options),
    gx__embedding_own,
    1, // loss
    "pairs",
    GX_FIELDS(gx__embedding_identity),
    "on other texts, or with another pooling, tokenizer, validation_fraction or number of rivals (that of "
    "--micro_batch_size times the data-parallel ranks)",
    gx__embedding_open,
    gx__embedding_close,
    gx__embedding_wish,
    gx__embedding_describe,
    gx__embedding_baseline,
    gx__embedding_allocate,
    gx__embedding_layout,
    gx__embedding_fill,
    gx__embedding_held_out,
    gx__embedding_fill_held_out,
    gx__embedding_counts,
    gx__embedding_see,
    gx__embedding_metrics,
    gx__embedding_sample,
    gx__embedding_write,
    NULL, // changed: all is in memory
    NULL, // loss_names: it is one
    NULL, // confusion: there are no classes
    gx__embedding_predicts,
    gx__embedding_predict,
    "nats per pair", // loss_unit
    NULL,            // lacks: it has all of them always
    "mrr",
    NULL, // defaults
    gx__embedding_prepare,
    NULL, // progress
    NULL, // show
};
#endif
