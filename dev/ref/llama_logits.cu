// llama_logits.cu: runs a saved LLaMA, or a GPT-2, on random tokens and writes them with its logits, for
// dev/ref/load_checkpoint.py to compare.
//   llama_logits FOLDER OUT.safetensors [gpt2]
#include "galaxy.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 16 };

static GxStatus write_logits(const float *logits, int64_t V, const int32_t *tokens, const char *out, GxError *err)
{
    GxSafetensorsWriter w;
    static GxSafetensorsEntry e[2];
    snprintf(e[0].name, sizeof e[0].name, "logits");
    e[0].dtype = GX_F32, e[0].ndim = 3, e[0].shape[0] = B, e[0].shape[1] = T, e[0].shape[2] = V;
    snprintf(e[1].name, sizeof e[1].name, "tokens");
    e[1].dtype = GX_I32, e[1].ndim = 2, e[1].shape[0] = B, e[1].shape[1] = T;
    GX_TRY(gx_safetensors_create(&w, out, e, 2, NULL, 0, err));
    GX_TRY(gx_safetensors_write(&w, "logits", 0, logits, T * B * V, err));
    GX_TRY(gx_safetensors_write(&w, "tokens", 0, tokens, T * B, err));
    return gx_safetensors_finish(&w, err);
}

// Rows are [T,B] here, [B,T] in the file.
static GxStatus run_model(GxContext *g, GxInference *model, const GxFamily *family, const char *folder, const char *out)
{
    int32_t tokens[T * B], turned[T * B];
    GxBatch batch = GX_ZERO;
    GX_TRY(gx_inference_open(g, model, family, folder, NULL));
    const int64_t V = gx_model_vocab(&model->model);
    float *logits = (float *)malloc((size_t)(T * B * V) * 4), *rows = (float *)malloc((size_t)(T * B * V) * 4);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            turned[b * T + t] = tokens[t * B + b] =
                (int32_t)(gx_random_bits(3, (uint64_t)(b * T + t), 0, 1) % (uint32_t)V);
    batch.tokens = tokens, batch.T = T, batch.B = B, batch.runs = gx_runs_one(T, 0);
    batch.target[0].logits = gx_rows(rows, GX_F32, T * B, V);
    GxStatus status = gx_inference_load(g, model, folder, &batch);
    if (status == GX_OK) status = gx_inference_run(g, model, &batch);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) memcpy(logits + (b * T + t) * V, rows + (t * B + b) * V, (size_t)V * sizeof *rows);
    if (status == GX_OK) status = write_logits(logits, V, turned, out, &g->error);
    free(logits), free(rows);
    return status;
}

int main(int argc, char **argv)
{
    static GxContext g;
    static GxInference model;
    const int is_gpt2 = argc == 4 && !strcmp(argv[3], "gpt2");
    if (argc != 3 + is_gpt2) return fprintf(stderr, "usage: %s FOLDER OUT.safetensors [gpt2]\n", argv[0]), 2;
    g.device = gx_device_cpu();
    g.world = 1;
    if (run_model(&g, &model, is_gpt2 ? &gx_gpt2 : &gx_llama, argv[1], argv[2]) != GX_OK)
        fprintf(stderr, "error: %s\n", g.error.message);
    gx_inference_close(&model);
    return gx_failed(&g);
}
