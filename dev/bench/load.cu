// load.cu: how long the weights of a LLaMA folder take from the disk, or the system's cache, into a model's memory.
//
//   load FOLDER [ROUNDS]        a line of JSON per round: {"seconds", "gb", "gb_per_s"}
#include "galaxy.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    GxLlamaConfig config;
    GxMode mode;
    GxModel m;
    GxOptimizer o;
    GxRunner r;
} Run;

static GxStatus load(GxContext *g, Run *run, const char *folder, int rounds)
{
    GxRunnerSpec spec = {0};
    GxWeightsLoaded loaded;
    GxModelOptions options = {0};
    char path[GX_PATH];
    run->o.kind = GX_OPTIMIZER_SGD;
    run->mode = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
    spec.forward_only = 1;
    options.freeze = "*"; // weights alone
    GX_TRY(gx_path_join(path, folder, "config.json", &g->error));
    GX_TRY(gx_llama_config_read(&run->config, path, &gx_silent, &g->error));
    GX_TRY(gx_model_open(g, &run->m, &gx_llama, &run->config, &run->mode, &options));
    GX_TRY(gx_runner_open(g, &run->r, &run->m, &run->o, &spec));
    const int64_t bytes = 4 * gx_table_parameters(&run->m.table);
    GX_TRY(gx_arena_open(g->arena, bytes + (256 << 20), &g->error));
    gx_runner_allocate(g, &run->r, 1, 1, 1);
    for (int i = 0; i < rounds; i++) {
        const double begun = gx_seconds();
        GxWeightsHash hash;
        gx_checkpoint_start_from(g, &run->m, folder, 1, NULL, &hash, &loaded);
        const double seconds = gx_seconds() - begun;
        GX_TRY(gx_status(g));
        printf("{\"seconds\": %.3f, \"gb\": %.3f, \"gb_per_s\": %.2f}\n", seconds, (double)bytes / 1e9,
               (double)bytes / 1e9 / seconds);
    }
    return GX_OK;
}

int main(int argc, char **argv)
{
    static GxContext g;
    static GxArena arena;
    static Run run;
    if (argc < 2) return fprintf(stderr, "usage: %s FOLDER [ROUNDS]\n", argv[0]), 2;
    g.device = gx_device_cpu();
    g.arena = &arena;
    g.world = 1;
    if (load(&g, &run, argv[1], argc > 2 ? atoi(argv[2]) : 3) == GX_OK) return 0;
    fprintf(stderr, "error: %s\n", g.error.message);
    return 1;
}
