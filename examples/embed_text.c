// embed_text.c: the vector of a text: the mean of its tokens' last hidden states in a BERT (not scaled to length 1),
// from a folder that train_bert or Hugging Face's libraries saved, with its tokenizer.
//   cc -O2 -DGX_WITH_JANSSON -DGX_WITH_UTF8PROC examples/embed_text.c -I. -ljansson -lutf8proc -lm -lpthread
//   ./a.out --model bert-base-uncased "An example."
#define GALAXY_IMPLEMENTATION
#include "galaxy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    GxBertConfig config;
    GxHeadWish head;
    GxMode mode;
    GxModel model;
    GxOptimizer none; // nothing is trained
    GxRunner runner;
    int32_t *tokens, *types, *positions, part[3]; // [T]; part: what the mean is taken of
    GxBatch batch;
} Embedder;

// The text as a batch of one: [CLS] text [SEP], cut to what the model has positions for.
static GxStatus put_text(Embedder *e, const GxTokenizer *t, const char *text, GxError *err)
{
    const int64_t bytes = (int64_t)strlen(text), words = gx_tokenizer_most(t, bytes);
    const int64_t most = gx_min(words + gx_tokenizer_frame_tokens(t, 1), e->config.max_position_embeddings);
    int32_t *ids = (int32_t *)malloc((size_t)(words + 1) * sizeof *ids);
    GxTokenTexts one = {ids, NULL, 0, 0};
    int64_t T = 0;
    int cut = 0;
    e->tokens = (int32_t *)calloc(3 * (size_t)(most + 1), sizeof *e->tokens);
    if (!ids || !e->tokens) GX_FAIL(err, GX_ERR_MEMORY, "no memory for the tokens of %ld bytes", (long)bytes);
    else e->types = e->tokens + most, e->positions = e->types + most;
    if (!gx_error_code(err)) gx_tokenizer_encode(t, text, bytes, GX_SPECIAL_AS_TEXT, ids, &one.n_a, err);
    if (!gx_error_code(err)) gx_tokenizer_join(t, &one, most, e->tokens, e->types, &T, &cut, err);
    if (!gx_error_code(err) && !T) GX_FAIL(err, GX_ERR_ARGUMENT, "the text has no tokens");
    free(ids);
    if (gx_error_code(err)) return gx_error_code(err);
    if (cut)
        fprintf(stderr, "the text has %ld tokens and is cut: the model has positions for %ld\n", (long)one.n_a,
                (long)most);
    for (int64_t i = 0; i < T; i++) e->positions[i] = (int32_t)i;
    e->part[2] = (int32_t)T; // of column 0 the positions from 0 to T
    e->batch.tokens = e->tokens, e->batch.types = e->types, e->batch.positions = e->positions; // [T,B]
    e->batch.T = T, e->batch.B = 1, e->batch.runs = gx_runs_one(T, 0);
    e->batch.target[0].parts = e->part, e->batch.target[0].n = 1, e->batch.target[0].anchors = -1; // no loss is wanted
    return GX_OK;
}

// Configuration, tokens, and the model as a table of tensors, which has no memory yet.
static GxStatus open_model(GxContext *g, Embedder *e, const char *folder, const char *text)
{
    char path[GX_PATH];
    GxTokenizer t;
    GxModelOptions options = GX_ZERO;
    GxRunnerSpec spec = GX_ZERO;
    GX_TRY(gx_path_join(path, folder, "config.json", &g->error));
    GX_TRY(gx_bert_config_read(&e->config, path, &g->error));
    GX_TRY(gx_tokenizer_open(&t, folder, &g->error));
    if (t.vocab_size > e->config.vocab_size)
        GX_FAIL(&g->error, GX_ERR_FORMAT, "%s: the tokenizer has %d tokens, the model has rows for %ld", folder,
                t.vocab_size, (long)e->config.vocab_size);
    else put_text(e, &t, text, &g->error);
    gx_tokenizer_close(&t);
    if (gx_failed(g)) return gx_status(g);
    e->head.kind = GX_HEAD_VECTORS;
    e->mode = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE)); // on one rank
    options.freeze = "*", options.wish = &e->head; // no gradients, no moments
    spec.forward_only = 1;
    GX_TRY(gx_model_open(g, &e->model, &gx_bert, &e->config, &e->mode, &options));
    return gx_runner_open(g, &e->runner, &e->model, &e->none, &spec);
}

// All that takes memory; the vector is then in target[0].logits.
static void embed(GxContext *g, Embedder *e, const char *folder)
{
    GxWeightsLoaded loaded; // which heads of the folder's were left out
    const int64_t C = e->config.hidden_size;
    gx_runner_take(g, &e->runner, e->batch.T, 1, 1);
    e->batch.target[0].logits = gx_rows(gx_scratch(g, GX_MEM_ACTIVATIONS, 4 * C), GX_F32, 1, C);
    if (g->device->computes) gx_checkpoint_start_from(g, &e->model, folder, 1, NULL, &loaded);
    else gx_tensor_file_plan(g, &e->model.store);
    gx_runner_forward(g, &e->runner, &e->batch);
}

int main(int argc, char **argv)
{
    static Embedder e; // zero, as all of these are
    GxContext g = GX_ZERO, dry;
    GxArena arena = GX_ZERO, counting;
    GxStep step = GX_ZERO;
    if (argc != 4 || strcmp(argv[1], "--model")) {
        fprintf(stderr, "usage: embed_text --model FOLDER TEXT\n");
        return 2;
    }
    g.device = gx_device_cpu(), g.threads = gx_cores(), g.world = 1, g.step = &step;
    if (open_model(&g, &e, argv[2], argv[3]) == GX_OK) {
        // First on a device that does not compute, and an arena that only counts: so much memory does it need.
        const GxDevice none = gx_device_none(g.device);
        gx_arena_open_dry(&counting);
        dry = g, dry.device = &none, dry.arena = &counting;
        embed(&dry, &e, argv[2]);
        g.error = dry.error, g.arena = &arena;
        if (!gx_failed(&g) && gx_arena_open(&arena, counting.peak, &g.error) == GX_OK) embed(&g, &e, argv[2]);
    }
    const float *vector = (const float *)e.batch.target[0].logits.data;
    if (gx_failed(&g)) fprintf(stderr, "embed_text: %s\n", g.error.message);
    else
        for (int64_t i = 0; i < e.config.hidden_size; i++) printf("%.9g\n", vector[i]);
    gx_arena_close(&arena);
    gx_runner_close(&e.runner), gx_model_close(&e.model);
    free(e.tokens);
    return gx_failed(&g) ? 1 : 0;
}
