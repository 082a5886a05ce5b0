// embed_text.c: the vector of a text: the mean of its tokens' last hidden states in a BERT (not scaled to length 1),
// from a folder that train_bert or Hugging Face's libraries saved, with its tokenizer.
//   cc -O2 -DGX_WITH_JANSSON -DGX_WITH_UTF8PROC examples/embed_text.c -I. -ljansson -lutf8proc -lm -lpthread
//   ./a.out --model bert-base-uncased "An example."
#define GALAXY_IMPLEMENTATION
#include "galaxy.h"
#include <stdio.h>
#include <string.h>

enum { MOST = 1 << 16 };
static int32_t tokens[MOST], types[MOST], positions[MOST]; // [T]
static float vector[MOST];                                 // [hidden_size]

// [CLS] text [SEP], cut to what the model has positions for. *T: how many tokens they are.
static GxStatus read_text(const char *folder, const char *text, const GxBertConfig *model, int64_t *T, GxError *err)
{
    const int64_t first = gx_bert_first_position(model), most = gx_min(model->max_position_embeddings - first, MOST);
    int64_t all = 0;
    GxTokenizer t;
    GX_TRY(gx_tokenizer_open(&t, folder, err));
    if (t.vocab_size > model->vocab_size)
        GX_FAIL(err, GX_ERR_FORMAT, "%s: the tokenizer has %d tokens, the model has rows for %ld", folder, t.vocab_size,
                (long)model->vocab_size);
    else gx_tokenizer_encode_framed(&t, text, (int64_t)strlen(text), most, tokens, types, T, &all, err);
    gx_tokenizer_close(&t);
    for (int64_t i = 0; i < *T; i++) positions[i] = (int32_t)(first + i); // a RoBERTa's begin behind 0
    if (all > *T)
        fprintf(stderr, "the text has %ld tokens and is cut: the model has positions for %ld\n", (long)all, (long)*T);
    return gx_error_code(err);
}

static GxStatus embed(GxContext *g, GxInference *s, const char *folder, const char *text)
{
    GxHeadRequest head = GX_ZERO;
    GxBatch b = GX_ZERO; // of one text
    head.kind = GX_HEAD_VECTORS;
    GX_TRY(gx_inference_open(g, s, &gx_bert, folder, &head));
    const GxBertConfig *model = (const GxBertConfig *)s->config;
    if (model->hidden_size > MOST)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "vectors of more than %d numbers", MOST);
    GX_TRY(read_text(folder, text, model, &b.T, &g->error));
    const int32_t part[3] = {0, 0, (int32_t)b.T}; // the mean is of column 0, positions 0 to T
    b.B = 1, b.tokens = tokens, b.types = types, b.positions = positions, b.runs = gx_runs_one(b.T, 0);
    b.target[0].parts = part, b.target[0].n = 1, b.target[0].anchors = -1; // no loss is wanted
    b.target[0].logits = gx_rows(vector, GX_F32, 1, model->hidden_size);
    GX_TRY(gx_inference_load(g, s, folder, &b));
    GX_TRY(gx_inference_run(g, s, &b));
    for (int64_t i = 0; i < model->hidden_size; i++) printf("%.9g\n", vector[i]);
    return GX_OK;
}

int main(int argc, char **argv)
{
    static GxInference s;
    GxContext g = GX_ZERO;
    if (argc != 4 || strcmp(argv[1], "--model")) return fprintf(stderr, "usage: embed_text --model FOLDER TEXT\n"), 2;
    g.device = gx_device_cpu(), g.threads = gx_cores(), g.world = 1;
    if (embed(&g, &s, argv[2], argv[3]) != GX_OK) fprintf(stderr, "embed_text: %s\n", g.error.message);
    gx_inference_close(&s);
    return gx_failed(&g);
}
