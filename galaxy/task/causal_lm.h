// task/causal_lm.h: the next token of plain text: one text file, its end held out for validation, tokens are bytes.
// Loss per token, and in bits per byte; a bigram model of the same text is the baseline; at the end the model writes a
// text.
//
// Each machine has a text of its own, which must be the same: ranks agree on its size and on a hash of all its bytes.
#ifndef GX_CAUSAL_LM_H
#define GX_CAUSAL_LM_H
#include "../io/dataset_hash.h"
#include "../io/tokenizer.h"
#include "generate.h"
#include "task.h"
GX_BEGIN

typedef struct {
    // options
    char train_data[GX_PATH];
    double validation_fraction;
    int64_t sample_bytes;
    char sample_prompt[GX_FIELD_TEXT];
    double temperature;
    int64_t top_k;
    // which text and tokens it goes on with
    int64_t text_bytes, text_hash; // bytes of the training part; a hash of all
    char tokenizer_name[GX_FIELD_TEXT];
    // what is open
    GxTokenizer tokenizer;
    GxDataset data;
    GxGenerator generator;
    int64_t seq_len;
} GxCausalLm;

extern const GxTask gx_causal_lm; // its self is a GxCausalLm

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CAUSAL_LM_IMPLEMENTED)
#define GX_CAUSAL_LM_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../comm/comm.h"
#include "../ops/loss.h"

#define GX__CAUSAL_LM_AT(field) offsetof(GxCausalLm, field)
static const GxField gx__causal_lm_options[] = {
    {"train_data", GX_FIELD_PATH, GX__CAUSAL_LM_AT(train_data), "data/text.txt",
     "text file; its bytes are the tokens (make data makes the default one)", NULL},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__CAUSAL_LM_AT(validation_fraction), "0.05",
     "end part of the text that is held out", "0..0.9"},
    {"sample_bytes", GX_FIELD_INT, GX__CAUSAL_LM_AT(sample_bytes), "300",
     "bytes of text that the model writes at the end; 0: none", "0..1000000000"},
    {"sample_prompt", GX_FIELD_STRING, GX__CAUSAL_LM_AT(sample_prompt), "In the beginning ", "what it goes on from",
     NULL},
    {"temperature", GX_FIELD_DOUBLE, GX__CAUSAL_LM_AT(temperature), "0.8", "of sampling; 0: the likeliest token",
     "0.."},
    {"top_k", GX_FIELD_INT, GX__CAUSAL_LM_AT(top_k), "50", "sample among the k likeliest; 0: all", "0.."},
};
static const char *const gx__causal_lm_own[] = {"train_data", NULL};
static const GxField gx__causal_lm_identity[] = {
    {"text_bytes", GX_FIELD_INT, GX__CAUSAL_LM_AT(text_bytes), NULL, "of the training part", "0.."},
    {"text_hash", GX_FIELD_INT, GX__CAUSAL_LM_AT(text_hash), NULL, "of the text", NULL},
    {"tokenizer", GX_FIELD_STRING, GX__CAUSAL_LM_AT(tokenizer_name), NULL, "which ids the text has", NULL},
};

// ---- the text ------------------------------------------------------------------------------------------------------

static GxStatus gx__causal_lm_agree(GxContext *g, GxCausalLm *c)
{
    int64_t mine[2] = {c->data.bytes, 0}, first[2];
    uint64_t hash = 0;
    gx_dataset_hash(&c->data, gx_threads(g), &hash, &g->error);
    first[0] = mine[0], first[1] = mine[1] = (int64_t)hash;
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, first, 2, GX_I64);
    GX_TRY(gx_status(g));
    c->text_bytes = c->data.train.n, c->text_hash = first[1];
    if (!memcmp(mine, first, sizeof mine)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "rank %d: %s is another text here (%ld bytes, hash %016lx) than on rank 0 (%ld bytes, hash %016lx); "
                   "all ranks need the same: copy rank 0's",
                   g->rank, c->train_data, (long)mine[0], (unsigned long)mine[1], (long)first[0],
                   (unsigned long)first[1]);
}

// The model's tokenizer, if it brings one, must be this one: other ids would mean other tokens to it, and its
// checkpoints would say that they are bytes.
static GxStatus gx__causal_lm_check_model(GxContext *g, const GxCausalLm *c, const char *model)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"};
    char path[GX_PATH];
    GxError other = GX_ZERO;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        GX_TRY(gx_path_join(path, model, files[i], &g->error));
        if (!gx_path_is_file(path) && !gx_path_is_broken(path)) continue;
        if (i > 0) GX_FAIL(&other, GX_ERR_UNSUPPORTED, "%s is there", path);
        else if (gx_tokenizer_check(&c->tokenizer, model, &other) == GX_OK) return GX_OK;
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "the model in %s has a tokenizer of its own (%s); only bytes as tokens are built: take a model "
                       "that was trained on bytes, or train one from its beginning without --model",
                       model, other.message);
    }
    gx_log(&g->log, GX_LOG_WARNING,
           "the model in %s has no tokenizer.json: what its tokens stand for is not known; it is trained on bytes",
           model);
    return GX_OK;
}

static GxStatus gx__causal_lm_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxCausalLm *c = (GxCausalLm *)self;
    c->tokenizer = gx_tokenizer_bytes();
    c->seq_len = setup->seq_len;
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    if (!setup->vocab) setup->vocab = c->tokenizer.vocab_size;
    if (setup->vocab < c->tokenizer.vocab_size)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "vocab_size is %ld; the tokenizer (%s) has %d tokens, so it must be at least that",
                       (long)setup->vocab, c->tokenizer_name, c->tokenizer.vocab_size);
    if (setup->model[0]) GX_TRY(gx__causal_lm_check_model(g, c, setup->model));
    if (setup->is_dry) return GX_OK;
    if (access(c->train_data, F_OK) != 0 && errno == ENOENT)
        return GX_FAIL(
            &g->error, GX_ERR_IO,
            "cannot open %s: %s; `make data` makes data/text.txt, which is the default, and --train_data FILE "
            "takes another text",
            c->train_data, strerror(ENOENT));
    GX_TRY(gx_dataset_open(&c->data, c->train_data, c->validation_fraction, setup->seq_len, &g->error));
    return gx__causal_lm_agree(g, c);
}

static void gx__causal_lm_close(void *self) { gx_dataset_close(&((GxCausalLm *)self)->data); }

// Which text it is: its path, and what a file of the same name with .source behind it says about where it is from.
static void gx__causal_lm_describe(const void *self, FILE *out)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    char path[GX_PATH], source[200] = "";
    const int fits = snprintf(path, sizeof path, "%s.source", c->train_data) < GX_PATH;
    FILE *f = fits ? fopen(path, "r") : NULL;
    if (f && !fgets(source, sizeof source, f)) source[0] = 0;
    if (f) fclose(f);
    source[strcspn(source, "\n")] = 0;
    fprintf(out, "data: %s%s%s, %.1f MB, the last %.1f MB held out; tokens: bytes\n", c->train_data,
            source[0] ? ": " : "", source, (double)(c->data.train.n + c->data.held_out.n) / 1e6,
            (double)c->data.held_out.n / 1e6);
}

static GxStatus gx__causal_lm_write(const void *self, const char *folder, GxError *err)
{
    return gx_tokenizer_write(&((const GxCausalLm *)self)->tokenizer, folder, err);
}

// ---- batches -------------------------------------------------------------------------------------------------------

static GxStatus gx__causal_lm_fill(GxContext *g, void *self, GxBatch *b, void *twin, uint64_t seed, GxError *err)
{
    const GxDataset *d = &((GxCausalLm *)self)->data;
    int32_t *tokens = (int32_t *)twin, *labels = tokens + b->T * b->B;
    (void)g;
    for (int64_t i = 0; i < b->B; i++)
        GX_TRY(gx_dataset_sample(d, seed, b->first_sample + i, b->T, tokens + i, labels + i, b->B, err));
    return GX_OK;
}

static int64_t gx__causal_lm_held_out(const void *self)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    return c->data.held_out.n > 0 ? gx_dataset_windows(&c->data.held_out, c->seq_len) : 0;
}

static GxStatus gx__causal_lm_fill_held_out(GxContext *g, void *self, GxBatch *b, void *twin, int64_t samples,
                                            GxError *err)
{
    const GxDataset *d = &((GxCausalLm *)self)->data;
    int32_t *tokens = (int32_t *)twin, *labels = tokens + b->T * b->B;
    (void)g;
    for (int64_t i = 0; i < b->B; i++) {
        const int64_t w = b->first_sample + i;
        GX_TRY(gx_dataset_window(d, w < samples ? w : 0, b->T, tokens + i, labels + i, b->B, err));
        for (int64_t t = 0; w >= samples && t < b->T; t++) labels[t * b->B + i] = GX_IGNORE_INDEX;
    }
    return GX_OK;
}

static const char *gx__causal_lm_changed(const void *self)
{
    const GxDataset *d = &((const GxCausalLm *)self)->data;
    return gx_dataset_changed(d) ? d->path : NULL;
}

// ---- metrics -------------------------------------------------------------------------------------------------------

static int gx__causal_lm_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    const double loss = gx_losses_mean(losses, 0);
    const GxMetric nats = {"loss", "loss %.4f", loss, -1},
                   bits = {"bits_per_byte", "%.3f bits per byte", loss / log(2.0), -1}; // a token is a byte
    (void)g, (void)self;
    metric[0] = nats, metric[1] = bits;
    return 2;
}

static GxStatus gx__causal_lm_baseline(const void *self, GxMetric *metric, GxError *err)
{
    const GxDataset *d = &((const GxCausalLm *)self)->data;
    const GxMetric none = {NULL, NULL, 0, 0},
                   bigram = {"bigram_bits_per_byte",
                             "a bigram model of this text has %.3f bits per byte on the held-out part", 0, 0};
    *metric = d->held_out.n < 2 ? none : bigram;
    return metric->name ? gx_dataset_bigram_bits(d, &metric->value, err) : GX_OK;
}

// ---- the sample ----------------------------------------------------------------------------------------------------

static void gx__causal_lm_take(GxContext *g, void *self, const GxModel *m, int64_t T)
{
    GxCausalLm *c = (GxCausalLm *)self;
    if (c->sample_bytes) gx_generator_take(g, &c->generator, T, gx_model_vocab(m), m->store.dtype);
}

// The prompt, and how it goes on up to `wanted` tokens, in ids[wanted + 1] and text[wanted + 2].
static void gx__causal_lm_go_on(GxContext *g, GxCausalLm *c, const GxForward *forward, uint64_t seed, int64_t wanted,
                                int32_t *ids, char *text)
{
    const GxSampling sampling = {c->temperature, c->top_k, seed, c->tokenizer.vocab_size, 0, 0, 0};
    int64_t n, bytes = 0;
    gx_tokenizer_encode(&c->tokenizer, c->sample_prompt, (int64_t)strlen(c->sample_prompt), GX_SPECIAL_AS_TEXT, ids, &n,
                        &g->error);
    if (n == 0) ids[n++] = '\n', wanted++; // a prompt of nothing becomes a newline
    n = gx_generate(g, forward, &c->generator, ids, n, wanted, &sampling);
    if (!gx_failed(g)) gx_tokenizer_decode(&c->tokenizer, ids, n, GX_SPECIAL_AS_TOKENS, text, &bytes, &g->error);
    text[bytes] = 0;
}

static char *gx__causal_lm_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxCausalLm *c = (GxCausalLm *)self;
    const int64_t bytes = g->device->computes ? c->sample_bytes : 1, // one token takes as much as all of them
        wanted = (int64_t)strlen(c->sample_prompt) + bytes;
    if (c->sample_bytes == 0) return NULL;
    int32_t *ids = (int32_t *)malloc((size_t)(wanted + 1) * sizeof *ids);
    char *text = (char *)malloc((size_t)wanted + 2);
    if (!ids || !text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample of %ld bytes", (long)wanted);
    else gx__causal_lm_go_on(g, c, forward, seed, wanted, ids, text);
    free(ids);
    if (!gx_failed(g)) return text;
    free(text);
    return NULL;
}

// ---- the task ------------------------------------------------------------------------------------------------------

const GxTask gx_causal_lm = {
    "causal_lm",
    sizeof(GxCausalLm),
    GX_FIELDS(gx__causal_lm_options),
    gx__causal_lm_own,
    1, // loss
    "tokens",
    GX_FIELDS(gx__causal_lm_identity),
    "on another text, or with another validation_fraction",
    gx__causal_lm_open,
    gx__causal_lm_close,
    NULL, // wish: the next token
    gx__causal_lm_describe,
    gx__causal_lm_baseline,
    gx__causal_lm_take,
    gx_task_lay_labels,
    gx__causal_lm_fill,
    gx__causal_lm_held_out,
    gx__causal_lm_fill_held_out,
    gx_task_count_labels,
    NULL, // see
    gx__causal_lm_metrics,
    gx__causal_lm_sample,
    gx__causal_lm_write,
    gx__causal_lm_changed,
    NULL, // loss_names: it is one
    NULL, // confusion
    NULL, // predicts
    NULL, // predict
    "nats per token",
    NULL, // lacks
    NULL, // best_metric: the loss
};
#endif
