// task/causal_lm.h: the next token of plain text: a text file, JSON lines, a folder of them, or a file of tokens; its
// end is held out for validation. Tokens are those of the tokenizer that an option names, or the model's, or bytes.
// Documents that share a sample do not see each other. Loss per token, and in bits per byte of the text, which
// compares tokenizers, too; a bigram model of its bytes is the baseline; at the end the model writes a text.
//
// Each machine has a text of its own, which must be the same: ranks agree on its size and on a hash of all its bytes.
#ifndef GX_CAUSAL_LM_H
#define GX_CAUSAL_LM_H
#include "../io/dataset_hash.h"
#include "../io/dataset_tokens.h"
#include "generate.h"
#include "text_tokenizer.h"
GX_BEGIN

typedef struct {
    // options
    char train_data[GX_PATH];
    double validation_fraction;
    int separate_documents;
    char tokenizer_path[GX_PATH];
    int64_t sample_tokens;
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
    int has_documents; // samples may hold several, which are kept apart
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
     "a text, .jsonl with a \"text\" in each line, a folder of .txt and .jsonl, or a file of tokens (./tokenize); make "
     "data makes the default one",
     NULL},
    {"tokenizer", GX_FIELD_PATH, GX__CAUSAL_LM_AT(tokenizer_path), "",
     "a folder with tokenizer.json, such a file, or bytes; nothing: the model's own, or bytes where there is no model",
     NULL},
    {"validation_fraction", GX_FIELD_DOUBLE, GX__CAUSAL_LM_AT(validation_fraction), "0.05",
     "end part of the text, or of the documents, that is held out", "0..0.9"},
    {"separate_documents", GX_FIELD_BOOL, GX__CAUSAL_LM_AT(separate_documents), "true",
     "documents that share a sample do not see each other, and the last token of one does not predict the next", NULL},
    {"sample_tokens", GX_FIELD_INT, GX__CAUSAL_LM_AT(sample_tokens), "300",
     "tokens that the model writes at the end; 0: none", "0..1000000000"},
    {"sample_prompt", GX_FIELD_STRING, GX__CAUSAL_LM_AT(sample_prompt), "In the beginning", "what it goes on from",
     NULL},
    {"temperature", GX_FIELD_DOUBLE, GX__CAUSAL_LM_AT(temperature), "0.8", "of sampling; 0: the likeliest token",
     "0.."},
    {"top_k", GX_FIELD_INT, GX__CAUSAL_LM_AT(top_k), "50", "sample among the k likeliest; 0: all", "0.."},
};
static const char *const gx__causal_lm_own[] = {"train_data", "tokenizer", NULL};
static const GxField gx__causal_lm_identity[] = {
    {"text_bytes", GX_FIELD_INT, GX__CAUSAL_LM_AT(text_bytes), NULL, "of the training part", "0.."},
    {"text_hash", GX_FIELD_HASH, GX__CAUSAL_LM_AT(text_hash), NULL, "of the text", NULL},
    {"tokenizer", GX_FIELD_STRING, GX__CAUSAL_LM_AT(tokenizer_name), NULL, "which ids the text has", NULL},
};

// ---- the text ------------------------------------------------------------------------------------------------------

static GxStatus gx__causal_lm_agree(GxContext *g, GxCausalLm *c)
{
    int64_t mine[2] = {c->data.bytes, 0}, first[2];
    uint64_t hash = 0;
    if (c->data.fd < 0) hash = gx_dataset_ids_hash(&c->data);
    else gx_dataset_hash(&c->data, gx_threads(g), &hash, &g->error);
    first[0] = mine[0], first[1] = mine[1] = (int64_t)hash;
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, first, 2, GX_I64);
    GX_TRY(gx_status(g));
    c->text_bytes = c->data.train_text.n, c->text_hash = first[1];
    if (!memcmp(mine, first, sizeof mine)) return GX_OK;
    return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                   "rank %d: %s is another text here (%ld bytes, hash %016lx) than on rank 0 (%ld bytes, hash %016lx); "
                   "all ranks need the same: copy rank 0's",
                   g->rank, c->train_data, (long)mine[0], (unsigned long)mine[1], (long)first[0],
                   (unsigned long)first[1]);
}

static GxStatus gx__causal_lm_open_text(GxContext *g, GxCausalLm *c, const GxTaskSetup *setup)
{
    if (access(c->train_data, F_OK) != 0 && errno == ENOENT)
        return GX_FAIL(
            &g->error, GX_ERR_IO,
            "cannot open %s: %s; `make data` makes data/text.txt, which is the default, and --train_data FILE "
            "takes another text",
            c->train_data, strerror(ENOENT));
    GX_TRY(gx_dataset_open_any(&c->data, c->train_data, &c->tokenizer, c->validation_fraction, setup->seq_len,
                               gx_threads(g), g->rank ? NULL : &g->log, &g->error));
    return gx__causal_lm_agree(g, c);
}

static GxStatus gx__causal_lm_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    GxCausalLm *c = (GxCausalLm *)self;
    c->seq_len = setup->seq_len;
    GX_TRY(gx_text_open_any_tokenizer(g, &c->tokenizer, c->tokenizer_path, setup));
    snprintf(c->tokenizer_name, sizeof c->tokenizer_name, "%s", gx_tokenizer_identity(&c->tokenizer));
    c->has_documents = c->separate_documents && gx_dataset_has_documents(c->train_data);
    return setup->is_dry ? GX_OK : gx__causal_lm_open_text(g, c, setup);
}

static void gx__causal_lm_close(void *self)
{
    GxCausalLm *c = (GxCausalLm *)self;
    gx_dataset_close(&c->data);
    gx_tokenizer_close(&c->tokenizer);
}

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
    fprintf(out, "data: %s%s%s, %.1f MB, the last %.1f MB held out; tokens: ", c->train_data, source[0] ? ": " : "",
            source, (double)(c->data.train_text.n + c->data.held_out_text.n) / 1e6,
            (double)c->data.held_out_text.n / 1e6);
    if (!c->data.ids && !c->data.file.documents) fprintf(out, "bytes\n");
    else
        fprintf(out, "%s, %.1fk for training, %.1fk held out", c->tokenizer_name, (double)c->data.train.n / 1e3,
                (double)c->data.held_out.n / 1e3);
    if (c->data.file.documents) fprintf(out, "; %ld documents", (long)c->data.file.documents);
    if (c->data.ids || c->data.file.documents) fprintf(out, "\n");
}

static GxStatus gx__causal_lm_write(const void *self, const char *folder, GxError *err)
{
    return gx_tokenizer_write(&((const GxCausalLm *)self)->tokenizer, folder, err);
}

// ---- batches -------------------------------------------------------------------------------------------------------

// Tokens and labels [T,B], and where samples may hold several documents, where each token's begins and ends [T,B,2].
static int64_t gx__causal_lm_lay(const void *self, GxBatch *b, void *block, void *twin)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    const int64_t rows = b->T * b->B, bytes = gx_task_lay_labels(self, b, block, twin);
    if (!c->has_documents) return bytes;
    b->documents = block ? b->tokens + 2 * rows : NULL;
    return bytes + 2 * rows * (int64_t)sizeof(int32_t);
}

// Column i of the twin, whose first token is number `at` of the data: which documents it holds.
static void gx__causal_lm_keep_apart(const GxCausalLm *c, const GxBatch *b, int32_t *twin, int64_t i, int64_t at)
{
    const int64_t rows = b->T * b->B;
    if (c->has_documents)
        gx_dataset_documents(&c->data, at, b->T, twin + 2 * rows + 2 * i, twin + rows + i, GX_IGNORE_INDEX, b->B);
}

static GxStatus gx__causal_lm_fill(GxContext *g, void *self, GxBatch *b, void *twin, uint64_t seed, GxError *err)
{
    const GxCausalLm *c = (const GxCausalLm *)self;
    const GxDataset *d = &c->data;
    int32_t *tokens = (int32_t *)twin, *labels = tokens + b->T * b->B;
    (void)g;
    for (int64_t i = 0; i < b->B; i++) {
        const int64_t sample = b->first_sample + i;
        GX_TRY(gx_dataset_sample(d, seed, sample, b->T, tokens + i, labels + i, b->B, err));
        gx__causal_lm_keep_apart(c, b, tokens, i, gx_dataset_sample_start(&d->train, seed, sample, b->T));
    }
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
    const GxCausalLm *c = (const GxCausalLm *)self;
    const GxDataset *d = &c->data;
    int32_t *tokens = (int32_t *)twin, *labels = tokens + b->T * b->B;
    (void)g;
    for (int64_t i = 0; i < b->B; i++) {
        const int64_t w = b->first_sample + i, window = w < samples ? w : 0;
        GX_TRY(gx_dataset_window(d, window, b->T, tokens + i, labels + i, b->B, err));
        gx__causal_lm_keep_apart(c, b, tokens, i, d->held_out.begin + window * b->T);
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
    const GxDataset *d = &((const GxCausalLm *)self)->data;
    const double loss = gx_losses_mean(losses, 0),
                 tokens_per_byte = d->held_out_text.n > 0 ? (double)d->held_out.n / (double)d->held_out_text.n : 1;
    const GxMetric nats = {"loss", "loss %.4f", loss, -1},
                   bits = {"bits_per_byte", "%.3f bits per byte", loss / log(2.0) * tokens_per_byte, -1};
    (void)g;
    metric[0] = nats, metric[1] = bits;
    return 2;
}

static GxStatus gx__causal_lm_baseline(const void *self, GxMetric *metric, GxError *err)
{
    const GxDataset *d = &((const GxCausalLm *)self)->data;
    const GxMetric none = {NULL, NULL, 0, 0},
                   bigram = {"bigram_bits_per_byte",
                             "a bigram model of this text has %.3f bits per byte on the held-out part", 0, 0};
    *metric = d->file.documents || d->held_out_text.n < 2 ? none : bigram; // of a text alone
    return metric->name ? gx_dataset_bigram_bits(d, &metric->value, err) : GX_OK;
}

// ---- the sample ----------------------------------------------------------------------------------------------------

static void gx__causal_lm_take(GxContext *g, void *self, const GxModel *m, int64_t T)
{
    GxCausalLm *c = (GxCausalLm *)self;
    if (c->sample_tokens) gx_generator_take(g, &c->generator, T, gx_model_vocab(m), m->store.dtype);
}

// The prompt behind what the tokenizer puts before a text: *n ids in ids[]. One of nothing becomes a newline, where
// there is nothing before it.
static GxStatus gx__causal_lm_prompt(const GxCausalLm *c, int32_t *ids, int64_t *n, GxError *err)
{
    const GxTokenizer *t = &c->tokenizer;
    const GxTokenFrame *frame = &t->frame[0];
    int64_t before = 0, prompt = 0;
    while (before < frame->n && frame->part[before].id >= 0) ids[before] = frame->part[before].id, before++;
    const char *text = c->sample_prompt[0] || before ? c->sample_prompt : "\n";
    GX_TRY(gx_tokenizer_encode(t, text, (int64_t)strlen(text), GX_SPECIAL_AS_TEXT, ids + before, &prompt, err));
    *n = before + prompt;
    return GX_OK;
}

// The prompt, and how it goes on for `more` tokens, in ids[] and text[]; the text ends with 0.
static void gx__causal_lm_go_on(GxContext *g, GxCausalLm *c, const GxForward *forward, uint64_t seed, int64_t more,
                                int32_t *ids, char *text)
{
    const GxSampling sampling = {c->temperature, c->top_k, seed, c->tokenizer.vocab_size, 0, 0, 0};
    int64_t n = 0, bytes = 0;
    gx__causal_lm_prompt(c, ids, &n, &g->error);
    if (!gx_failed(g)) n = gx_generate(g, forward, &c->generator, ids, n, n + more, &sampling);
    if (!gx_failed(g)) gx_tokenizer_decode(&c->tokenizer, ids, n, GX_SPECIAL_AS_TEXT, text, &bytes, &g->error);
    text[bytes] = 0;
}

static char *gx__causal_lm_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxCausalLm *c = (GxCausalLm *)self;
    const int64_t more = g->device->computes ? c->sample_tokens : 1, // one token takes as much as all of them
        room = gx_tokenizer_most(&c->tokenizer, (int64_t)strlen(c->sample_prompt) + 1) + GX_FRAME_MOST + more;
    if (c->sample_tokens == 0) return NULL;
    int32_t *ids = (int32_t *)malloc((size_t)room * sizeof *ids);
    char *text = (char *)malloc((size_t)(room * c->tokenizer.longest) + 1);
    if (!ids || !text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample of %ld tokens", (long)more);
    else gx__causal_lm_go_on(g, c, forward, seed, more, ids, text);
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
    gx__causal_lm_lay,
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
