// inference.h: loads a model from a folder and computes with it on one rank, without training it. It is the starting
// point for your own programs.
//
//     static GxInference s;                                             // zero
//     GX_TRY(gx_inference_open(g, &s, &gx_bert, "bert-base-uncased", &head));  // reads the model's configuration
//     GX_TRY(gx_inference_load(g, &s, "bert-base-uncased", &batch));    // allocates for such batches, reads weights
//     GX_TRY(gx_inference_run(g, &s, &batch));                          // writes results where the batch's targets say
//     gx_inference_close(&s);                                           // also after an error
//
// The folder may be an adapter's (adapter.h), whose adapter_config.json says where its base is. Weights are in fp32;
// there are no gradients and no moments. To generate text, which needs a KV cache, see task/decode.h.
// examples/embed_text.c is a whole program.
#ifndef GX_INFERENCE_H
#define GX_INFERENCE_H
#include "checkpoint_load.h"
#include "interpreter.h"
GX_BEGIN

typedef struct {
    void *config;         // the family's configuration: GxBertConfig, GxLlamaConfig
    GxPeftConfig adapter; // of an adapter's folder; its base is "" for a model's folder
    GxHeadRequest head;
    GxMode mode;
    GxModel model;
    GxOptimizer none;
    GxRunner runner;
    GxArena arena, host_arena;
    GxWeightsHash base_hash; // for an adapter: the hash of its base's weights, as in checkpoints
    const GxBatch *largest;  // only while memory is planned
} GxInference;

// g: must have a device and threads, and world 1; from then on its arena and its step belong to s. head: the head to
// compute with; NULL: a causal language model's. If the folder does not have it, gx_inference_load fails.
GxStatus gx_inference_open(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                           const GxHeadRequest *head);
// The same for an adapter's folder. base: the folder of its base model; "" or NULL: the one that the adapter names.
GxStatus gx_inference_open_adapter(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                                   const char *base, const GxHeadRequest *head);
// The same for an adapter that is to be merged: a tied head gets a matrix of its own if it or the embedding has LoRA.
// quantize: how the base is kept: 1 + GxQuantKind; 0: not quantized.
GxStatus gx_inference_open_merging(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                                   const char *base, const GxHeadRequest *head, int quantize);
// Called once. largest: gives the sizes to allocate memory for; its arrays are not read. (In gx_inference_run the
// batch's arrays and the places of its results are in the device's memory.)
GxStatus gx_inference_load(GxContext *g, GxInference *s, const char *folder, const GxBatch *largest);
GxStatus gx_inference_run(GxContext *g, GxInference *s, const GxBatch *batch); // batch: no larger than `largest`
void gx_inference_close(GxInference *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_INFERENCE_IMPLEMENTED)
#define GX_INFERENCE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../model/build.h"
#include "../model/lora_merge.h"
#include "../model/mode.h"
#include "machine.h"
#include "output.h"
#include "plan.h"
#include "source_folder.h"

static const char *gx__inference_base(const GxInference *s, const char *folder)
{
    return s->adapter.base[0] ? s->adapter.base : folder;
}

static GxStatus gx__inference_open(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                                   const GxAdapter *adapter, const GxHeadRequest *head, int unties, int quantize)
{
    GxError *err = &g->error;
    GxModelOptions options = GX_ZERO;
    GxRunnerSpec spec = GX_ZERO;
    char path[GX_PATH];
    s->config = calloc(1, family->config_size);
    if (!s->config) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    if (adapter) options.adapter = *adapter;
    GX_TRY(gx_output_check_exists(gx__inference_base(s, folder), "model", err));
    GX_TRY(gx_path_join(path, gx__inference_base(s, folder), "config.json", err));
    GX_TRY(family->read_config(s->config, path, g->rank ? &gx_silent : &g->log, err));
    gx_adapter_grow(&s->adapter, family, s->config);
    gx_source_folder_warn(gx__inference_base(s, folder), g->rank ? &gx_silent : &g->log);
    s->mode = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
    if (head) s->head = *head, options.head = &s->head;
    options.freeze = "*", options.quantize = quantize, options.unties_lora = unties;
    spec.forward_only = 1;
    GX_TRY(gx_model_open(g, &s->model, family, s->config, &s->mode, &options));
    return gx_runner_open(g, &s->runner, &s->model, &s->none, &spec);
}

static GxStatus gx__inference_open_adapter(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                                           const char *base, const GxHeadRequest *head, int unties, int quantize)
{
    GxAdapter adapter;
    memset(s, 0, sizeof *s);
    GX_TRY(gx_output_check_adapter(folder, &g->error));
    GX_TRY(gx_adapter_read_config(g, &s->adapter, &adapter, folder));
    if (base && base[0]) snprintf(s->adapter.base, sizeof s->adapter.base, "%s", base);
    if (!s->adapter.base[0])
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s does not say which model it is an adapter of", folder);
    GX_TRY(gx__inference_open(g, s, family, folder, &adapter, head, unties, quantize));
    if (g->rank == 0) gx_adapter_warn_unused(&s->model, &g->log);
    return GX_OK;
}

GxStatus gx_inference_open_adapter(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                                   const char *base, const GxHeadRequest *head)
{
    return gx__inference_open_adapter(g, s, family, folder, base, head, 0, 0);
}

GxStatus gx_inference_open_merging(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                                   const char *base, const GxHeadRequest *head, int quantize)
{
    return gx__inference_open_adapter(g, s, family, folder, base, head, 1, quantize);
}

GxStatus gx_inference_open(GxContext *g, GxInference *s, const GxFamily *family, const char *folder,
                           const GxHeadRequest *head)
{
    memset(s, 0, sizeof *s);
    if (gx_path_is_adapter(folder)) return gx_inference_open_adapter(g, s, family, folder, NULL, head);
    return gx__inference_open(g, s, family, folder, NULL, head, 0, 0);
}

static void gx__inference_allocate(GxContext *g, GxInference *s)
{
    g->step = (GxStep *)gx_arena_allocate(g->arena, GX_MEM_WORKSPACE, sizeof *g->step);
    gx_runner_allocate(g, &s->runner, s->largest->T, s->largest->B, s->largest->T * s->largest->B);
}

static void gx__inference_dry_run(GxPlan *p, GxContext *dry, void *inference)
{
    GxInference *s = (GxInference *)inference;
    GxBatch b = *s->largest, source = b;
    (void)p;
    gx__inference_allocate(dry, s);
    if (s->model.memory && !b.source) b.source = &source; // as long as what the decoder reads
    gx_runner_forward(dry, &s->runner, &b, NULL);
    gx_tensor_file_plan(dry, &s->model.store, 1, 1);
    gx_lora_merge_plan(dry, &s->model);
}

GxStatus gx_inference_load(GxContext *g, GxInference *s, const char *folder, const GxBatch *largest)
{
    const GxArena nothing = GX_ZERO; // one rank communicates with nobody
    GxPlan plan = GX_ZERO;
    GxWeightsLoaded loaded;
    if (largest->T < 1 || largest->B < 1)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a batch of %ld x %ld tokens; expected at least one token",
                       (long)largest->T, (long)largest->B);
    s->largest = largest;
    GX_TRY(gx_plan_make(&plan, g, &nothing, 1, gx__inference_dry_run, s));
    GX_TRY(gx_arenas_open(g, &s->arena, &s->host_arena, plan.arena, plan.host));
    gx__inference_allocate(g, s);
    if (s->adapter.base[0]) gx_checkpoint_start_with_adapter(g, &s->model, s->adapter.base, folder, &s->base_hash);
    else gx_checkpoint_start_from(g, &s->model, folder, 1, NULL, &s->base_hash, &loaded);
    return gx_status(g);
}

GxStatus gx_inference_run(GxContext *g, GxInference *s, const GxBatch *batch)
{
    if (batch->T > s->model.max_T || batch->B > s->model.max_B)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "a batch of %ld x %ld tokens is too large: memory was allocated for at most %ld x %ld",
                       (long)batch->T, (long)batch->B, (long)s->model.max_T, (long)s->model.max_B);
    gx_runner_forward(g, &s->runner, batch, NULL);
    return gx_status(g);
}

void gx_inference_close(GxInference *s)
{
    gx_runner_close(&s->runner);
    gx_model_close(&s->model);
    gx_arena_close(&s->arena), gx_arena_close(&s->host_arena);
    free(s->config);
    memset(s, 0, sizeof *s);
}
#endif
