// task/embedding_texts.h: the texts of the task embedding: opens and compares its files, turns their records into
// tokens, and reads how the model's folder pools them.
#ifndef GX_EMBEDDING_TEXTS_H
#define GX_EMBEDDING_TEXTS_H
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
    // set by open
    GxTokenizer tokenizer;
    GxSentenceModules modules;
    GxBadRecords skipped;
    GxGroupFile file[2]; // of the training; of a validation, or of texts to embed
    GxTextGroups train, held_out;
    GxHeadRequest head;
    // batches
    int64_t T, text_T, width; // tokens of a sample; most tokens of a text; elements of a vector
    int64_t pooled;           // elements of a pooled vector
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
    GxTaskBatch one;  // the batch of gx__embedding_run_one
} GxEmbeddingTask;

int gx_embedding_is_cls(const GxEmbeddingTask *c); // 1: a text's vector is that of [CLS]; 0: the mean of its tokens'
int64_t gx_embedding_records(const GxEmbeddingTask *c);              // the most records of a column
const char *gx_embedding_positive(const GxTextGroups *s, int64_t i); // the text of record i's positive

// Opening, in this order. Rank 0 reads the model's folder and broadcasts what it says.
GxStatus gx_embedding_open_modules(GxContext *g, GxEmbeddingTask *c, const char *model);
GxStatus gx_embedding_open_files(GxEmbeddingTask *c, const GxTaskSetup *setup, GxError *err);
GxStatus gx_embedding_agree(GxContext *g, const GxEmbeddingTask *c); // fails if ranks read different files
GxStatus gx_embedding_check_sizes(GxContext *g, GxEmbeddingTask *c, const GxTaskSetup *setup);
GxStatus gx_embedding_open_texts(GxContext *g, GxEmbeddingTask *c, const GxTaskSetup *setup);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_TEXTS_IMPLEMENTED)
#define GX_EMBEDDING_TEXTS_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"

enum { GX__EMBEDDING_TOKENS_PER_TEXT = 8 }; // columns are planned for no more texts than T / 8

int gx_embedding_is_cls(const GxEmbeddingTask *c) { return !strcmp(c->pooling_name, "cls"); }
int64_t gx_embedding_records(const GxEmbeddingTask *c) // the most records of a column
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

// 1: the tokenizer converts letters to lower case.
static int gx__embedding_lowers(const GxTokenizer *t)
{
    return t->kind == &gx_wordpiece && ((const GxWordPiece *)t->vocabulary)->normalizer.lowercase;
}

GxStatus gx_embedding_open_modules(GxContext *g, GxEmbeddingTask *c, const char *model)
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

GxStatus gx_embedding_open_files(GxEmbeddingTask *c, const GxTaskSetup *setup, GxError *err)
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
                       "--skip_bad_records cannot be combined with --embed, whose vectors are in the rows of their "
                       "records, so that none can be left out; correct the bad records, or leave out "
                       "--skip_bad_records");
    if (c->embed[0]) return gx_group_file_open(&c->file[1], c->embed, texts, of_texts, 0, NULL, err);
    if (!setup->only_shows || !c->validation_data[0])
        GX_TRY(gx_group_file_open(&c->file[0], c->train_data, pairs, of_pairs, may_lack, skip, err));
    if (c->validation_data[0])
        GX_TRY(gx_group_file_open(&c->file[1], c->validation_data, pairs, of_pairs, may_lack, skip, err));
    c->per = (int)gx_max(c->file[0].per, c->file[1].per);
    return GX_OK;
}

GxStatus gx_embedding_agree(GxContext *g, const GxEmbeddingTask *c)
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
    return gx_text_groups_pack(s, c->T, gx_embedding_records(c), err);
}

const char *gx_embedding_positive(const GxTextGroups *s, int64_t i)
{
    return gx_texts_field(&s->text[1], i, s->text[1].file->text);
}

// An error if a pair has no rivals at all.
static GxStatus gx__embedding_need_rivals(const GxTextGroups *s, const char *what, const char *advice, GxError *err)
{
    for (int64_t i = 1; i < s->n; i++)
        if (strcmp(gx_embedding_positive(s, 0), gx_embedding_positive(s, i))) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: the pairs %s (%ld) all have the same positive text, and no other text to tell it from; "
                   "expected at least two different positives%s",
                   s->text[0].file->records.path, what, (long)s->n, advice);
}

// Sets c->rivals: all texts of a micro-batch except the anchors and the pair's own positive.
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

GxStatus gx_embedding_open_texts(GxContext *g, GxEmbeddingTask *c, const GxTaskSetup *setup)
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

GxStatus gx_embedding_check_sizes(GxContext *g, GxEmbeddingTask *c, const GxTaskSetup *setup)
{
    GxError *err = &g->error;
    const int64_t most = c->modules.most, least = gx_tokenizer_frame_tokens(&c->tokenizer, 1) + 1;
    const char *frame = gx_text_frame_name(&c->tokenizer);
    c->text_T = c->T / c->per;
    if (c->text_T < least)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; a sample holds %d text%s %s %s, so it must be at least %ld",
                       gx_task_length_name(setup), (long)c->T, c->per, gx_text_s(c->per),
                       *frame == '[' ? "between" : "in", frame, (long)(least * c->per));
    if (most && !c->embed[0]) c->text_T = gx_min(c->text_T, most); // --embed takes its --seq_len from it
    if (c->text_T < least)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "max_seq_length of the model's folder is %ld; a text is put %s %s, so it must be at least %ld",
                       (long)most, *frame == '[' ? "between" : "in", frame, (long)least);
    if (most && most != c->text_T && !g->rank)
        gx_log(&g->log, GX_LOG_INFO, "texts are cut to %ld tokens (%s%s); the model's folder says %ld (max_seq_length)",
               (long)c->text_T, gx_task_length_name(setup), c->per == 1 ? "" : " for the texts of a record",
               (long)most);
    const int32_t pad = c->tokenizer.role[GX_TOKEN_PAD];
    c->layout.pad = pad < 0 ? 0 : pad;
    return GX_OK;
}
#endif
