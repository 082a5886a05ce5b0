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
// (model/vectors.h). The more rivals, the harder the task. Texts of other micro-batches are not rivals, so
// --gradient_accumulation_steps does not replace a larger batch. The number of rivals of a pair is printed at the start
// and belongs to the run's identity: a run cannot be resumed with another number. A text that is the positive of two
// anchors of a micro-batch is its own rival, so it is better to remove repeated texts from a file.
//
// A sample of seq_len tokens holds whole records, as many as fit (--pack_texts false: one record); attention does not
// cross texts. A text has at most seq_len / 2 tokens, or seq_len / 3 if there are negatives, and no more than the
// model's folder says (max_seq_length).
// --pooling: a text's vector is the mean of its tokens' vectors ([CLS] and [SEP] included), or that of [CLS]. auto: as
// the model's folder says, otherwise the mean. The folder's sentence-transformers modules (text/sentence_modules.h) are
// used: Dense modules follow the pooling, and are not trained.
//
// A validation ranks each held-out anchor's positive among all positives of the validation, by cosine. Its metrics are
// mrr, recall at 1, 5 and 10, and the loss over these rivals; none depends on which ranks and micro-batches computed
// the vectors. Equal texts are not rivals there. The rivals differ from those of a training step, so the two
// losses are not comparable; by default the best validation is the one with the largest mrr. All ranks keep all
// vectors: 8 * width bytes per held-out record.
//
// sentence-transformers can read a checkpoint: it has modules.json and the files that this names.
// --embed writes a vector for each text of a file, in the file's order, to a NumPy file (io/npy.h). Vectors have length
// 1, unless the model's modules.json has no Normalize. The model's default prompt is put before each text, which may
// have as many tokens as the model's max_seq_length, or --seq_len, says.
//
// Each machine reads its own copy of the files, which must be identical: ranks compare hashes of them.
#ifndef GX_EMBEDDING_TASK_H
#define GX_EMBEDDING_TASK_H
#include "embedding_texts.h"
GX_BEGIN

extern const GxTask gx_embedding_task; // its self is a GxEmbeddingTask

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_TASK_IMPLEMENTED)
#define GX_EMBEDDING_TASK_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../io/npy.h"
#include "../ops/memory.h"
#include "embedding_batch.h"
#include "embedding_sample.h"
#include "embedding_validation.h"

#define GX__EMBEDDING_AT(field) offsetof(GxEmbeddingTask, field)
static const GxField gx__embedding_options[] = {
    {"train_data", GX_FIELD_PATH, GX__EMBEDDING_AT(train_data), "data/bert/pairs/train.tsv",
     "file of pairs of texts, with or without negatives: .csv, .tsv or .jsonl", NULL},
    {"validation_data", GX_FIELD_PATH, GX__EMBEDDING_AT(validation_data), "",
     "file of pairs held out for validation; empty: a part of train_data", NULL},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__EMBEDDING_AT(validation_fraction), "0.05",
     "fraction of train_data held out for validation if there is no validation_data; 0: none", "0..0.9"},
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
     "how a text's vector is made: the mean of its tokens' vectors, or [CLS]'s; auto: as the model says, otherwise the "
     "mean",
     "auto|mean|cls"},
    {"tokenizer", GX_FIELD_PATH, GX__EMBEDDING_AT(tokenizer_path), "",
     "folder with a tokenizer.json or vocab.txt; empty: the model's tokenizer", NULL},
    GX_SPLIT_SPECIAL_TOKENS(GX__EMBEDDING_AT(split_special_tokens)),
    {"pack_texts", GX_FIELD_BOOL, GX__EMBEDDING_AT(pack_texts), "true",
     "put several records into a sample; they do not attend to each other", NULL},
    {"embed", GX_FIELD_PATH, GX__EMBEDDING_AT(embed), "",
     "file of texts whose vectors the model of --resume or --model writes, instead of training", NULL},
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

static GxStatus gx__embedding_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    c->T = setup->seq_len, c->samples = setup->samples, c->all_samples = setup->all_samples;
    c->is_trained = !setup->only_shows;
    c->head.kind = GX_HEAD_VECTORS;
    GX_TRY(gx_text_open_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    gx_text_split_special(&c->tokenizer, c->split_special_tokens);
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    GX_TRY(gx_embedding_open_modules(g, c, setup->model));
    GX_TRY(gx_embedding_open_files(c, setup, &g->error));
    GX_TRY(gx_embedding_agree(g, c));
    GX_TRY(gx_embedding_check_sizes(g, c, setup));
    if (c->embed[0] && g->rank == 0 && !setup->is_dry)
        GX_TRY(gx_npy_check(c->embed_output, "--embed_output", &g->error));
    if (setup->is_dry) return GX_OK;
    GX_TRY(gx_embedding_open_texts(g, c, setup));
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

static const GxHeadRequest *gx__embedding_head(const void *self) { return &((const GxEmbeddingTask *)self)->head; }

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
    else if (c->held_out.n) fprintf(out, "%ld held out", (long)c->held_out.n);
    fprintf(out, "; vectors: %s; tokens: %s\n",
            gx_embedding_is_cls(c) ? "that of [CLS]" : "the mean of a text's tokens", c->tokenizer_name);
    for (int i = 0; i < c->modules.dense_n; i++)
        fprintf(out, "  then a Dense module, %ld to %ld%s%s\n", (long)c->modules.dense[i].in,
                (long)c->modules.dense[i].out, c->modules.dense[i].is_tanh ? ", tanh" : "",
                c->train.n ? ", which is frozen" : "");
    if (c->embed[0] && !c->modules.normalizes)
        fprintf(out, "  the model has no Normalize module: vectors are not scaled to length 1\n");
    if (c->modules.prompt[0])
        fprintf(out, "  the model's default prompt %s \"%s\"\n",
                c->embed[0] ? "is put before each text:" : "is not put before pairs, but before texts of --embed:",
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

// Allocates the layers that follow the pooling; gx__embedding_prepare fills them.
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
    const int64_t most = gx_embedding_records(c) * c->per;
    gx_text_fit_model(g, &c->layout, &c->tokenizer, m, 1);
    c->pooled = c->width = gx_model_width(m);
    gx__embedding_take_dense(g, c);
    c->vectors = gx_rows(NULL, GX_F32, most * c->samples, c->width);
    c->vectors.data = gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, gx_rows_bytes(c->vectors));
    gx_task_batch_allocate(g, &c->one, T, 1, gx_embedding_layout, c);
    c->one.b.target[0].anchors = -1;
}

// ---- the checkpoint ------------------------------------------------------------------------------------------------

// max_seq_length, where --embed truncates texts, is that of the model that the run began with, otherwise a sample's
// length.
static GxStatus gx__embedding_write(const void *self, const char *folder, GxError *err)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    GX_TRY(gx_sentence_modules_write(&c->modules, c->pooled, c->modules.most ? c->modules.most : c->T, folder, err));
    return gx_tokenizer_write(&c->tokenizer, folder, err);
}

// ---- vectors in a file ---------------------------------------------------------------------------------------------

static const char *gx__embedding_predicts(const void *self)
{
    return ((const GxEmbeddingTask *)self)->embed[0] ? "embed" : NULL;
}

// Normalizes v to length 1, if the model does. Returns 0 if that is not possible: its length is 0 or not finite.
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
    "embedding", // name
    {
        // options
        sizeof(GxEmbeddingTask),          // size
        GX_FIELDS(gx__embedding_options), // fields, n_fields
        gx__embedding_own,                // own
        NULL,                             // defaults
        NULL,                             // reading
    },
    {
        // loss
        1,               // n
        NULL,            // names
        "pairs",         // counted
        "nats per pair", // unit
        "mrr",           // best_metric
    },
    {
        // data
        gx__embedding_open,     // open
        gx__embedding_close,    // close
        gx__embedding_head,     // head
        gx__embedding_describe, // describe
        NULL,                   // show
        gx__embedding_prepare,  // prepare
    },
    {
        // checkpoint
        GX_FIELDS(gx__embedding_identity), // identity, n_identity
        // elsewhere
        "on other texts, or with another pooling, tokenizer, validation_fraction or number of rivals (that of "
        "--micro_batch_size times the data-parallel ranks)",
        gx__embedding_write, // write
        NULL,                // changed
    },
    {
        // batch
        gx__embedding_allocate,     // allocate
        gx_embedding_layout,        // layout
        gx_embedding_fill,          // fill
        gx_embedding_counts,        // counts
        gx_embedding_held_out,      // held_out
        gx_embedding_fill_held_out, // fill_held_out
        gx_embedding_see,           // see
        NULL,                       // stands_alone
    },
    {
        // metrics
        gx_embedding_metrics,   // compute
        NULL,                   // progress
        gx__embedding_baseline, // baseline
        NULL,                   // lacks
        NULL,                   // confusion
    },
    {
        // output
        gx_embedding_sample,    // sample
        gx__embedding_predicts, // predicts
        gx__embedding_predict,  // predict
    },
};
#endif
