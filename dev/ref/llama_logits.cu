// llama_logits.cu: runs a saved LLaMA on random tokens and writes them with its logits, for dev/ref/load_checkpoint.py
// to compare.
//   llama_logits FOLDER OUT.safetensors
#include "galaxy.h"
#include <stdio.h>
#include <stdlib.h>
#define GX_NO_MAIN
#include "train_llama.cu"

enum { B = 2, T = 16 };

static GxStatus run(GxContext *g, GxLlama *m, const char *folder, const char *out)
{
    GxError *err = &g->error;
    GxLlamaConfig c;
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(gx_llama_config_read(&c, path, err));
    GX_TRY(gx_llama_open(g, m, &c, &gx_llama_serial, NULL));
    const int64_t n = gx_table_offset(&m->model.table, m->model.table.units), V = c.vocab_size;
    GX_TRY(gx_arena_open(g->arena, 4 * n + (64 << 20), err));
    float *weights = (float *)gx_arena_take(g->arena, GX_MEM_WEIGHTS, 4 * n),
          *logits = (float *)malloc((size_t)(T * B * V) * 4);
    int32_t tokens[T * B], turned[T * B];
    gx_llama_take_buffers(g, m, T, B, 8);
    GX_TRY(gx_model_attach(&m->model, weights, NULL, err));
    gx_checkpoint_load_weights(g, &m->model, weights, folder);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            turned[b * T + t] = tokens[t * B + b] =
                (int32_t)(gx_random_bits(3, (uint64_t)(b * T + t), 0, 1) % (uint32_t)V);
    GxBatch batch = GX_ZERO;
    batch.tokens = tokens, batch.T = T, batch.B = B, batch.runs = gx_runs_one(T, 0);
    gx_model_forward(g, &m->model, &batch);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            GxRows row = {logits + (b * T + t) * V, GX_F32, 1, V};
            m->kind.logits(g, &m->model, row, m->model.state[m->model.layers], t * B + b);
        }
    GX_TRY(gx_status(g));
    GxSafetensorsWriter w;
    static GxSafetensorsEntry e[2];
    snprintf(e[0].name, sizeof e[0].name, "logits");
    e[0].dtype = GX_F32, e[0].ndim = 3, e[0].shape[0] = B, e[0].shape[1] = T, e[0].shape[2] = V;
    snprintf(e[1].name, sizeof e[1].name, "tokens");
    e[1].dtype = GX_I32, e[1].ndim = 2, e[1].shape[0] = B, e[1].shape[1] = T;
    GX_TRY(gx_safetensors_create(&w, out, e, 2, NULL, 0, err));
    GX_TRY(gx_safetensors_write(&w, "logits", 0, logits, T * B * V, err));
    GX_TRY(gx_safetensors_write(&w, "tokens", 0, turned, T * B, err));
    free(logits);
    return gx_safetensors_finish(&w, err);
}

int main(int argc, char **argv)
{
    static GxContext g;
    static GxArena arena;
    static GxLlama m;
    if (argc != 3) return fprintf(stderr, "usage: %s FOLDER OUT.safetensors\n", argv[0]), 2;
    g.device = gx_device_cpu();
    g.arena = &arena;
    g.world = 1;
    if (run(&g, &m, argv[1], argv[2]) == GX_OK) return 0;
    fprintf(stderr, "error: %s\n", g.error.message);
    return 1;
}
