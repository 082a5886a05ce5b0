// merge.h: a model and its adapter into a folder of one model, W + s * B A, which needs no adapter any more.
//
//     GX_TRY(gx_merge_adapter(g, "out/checkpoint-500", "", temporary, GX_F32, &said)); // an adapter's folder
//
// Of causal language models. On one rank; the folder is as a checkpoint's, without what a resume needs.
#ifndef GX_MERGE_H
#define GX_MERGE_H
#include "inference.h"
GX_BEGIN

typedef struct { // for people
    int matrices;
    int64_t parameters;
    char base[GX_PATH];
    char quantized[GX_FIELD_TEXT]; // what the base was kept in while the adapter was trained; "": in numbers, or not
                                   // said
} GxMergeSaid;

// Writes into `folder`, which is there and empty. base: the model's folder; "": where the adapter says. dtype: of the
// weights: F32, BF16, F16.
GxStatus gx_merge_adapter(GxContext *g, const char *adapter, const char *base, const char *folder, GxDtype dtype,
                          GxMergeSaid *said);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MERGE_IMPLEMENTED)
#define GX_MERGE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llama_family.h"

// The tokenizer, byte for byte: source_folder.h has the other files of the base.
static GxStatus gx__merge_copy_tokenizer(const char *from, const char *to, GxError *err)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "chat_template.jinja"};
    char path[GX_PATH], *text = NULL;
    int64_t bytes;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        GX_TRY(gx_path_join(path, from, files[i], err));
        if (!gx_path_is_file(path)) continue;
        GX_TRY(gx_file_read(path, 256 << 20, &text, &bytes, err));
        GxStatus status = gx_path_join(path, to, files[i], err);
        if (status == GX_OK) status = gx_file_write(path, text, bytes, err);
        free(text);
        GX_TRY(status);
    }
    return GX_OK;
}

static GxStatus gx__merge_write(GxContext *g, const GxInference *s, const char *base, const char *folder, GxDtype dtype)
{
    const GxTensorPart part = {"", GX_VALUES_WEIGHTS, GX_PART_WHOLE};
    const GxTensorSaving how = {&part, 1, NULL, 0, dtype, (int64_t)5e9};
    GxSourceFolder source;
    GxError *err = &g->error;
    char path[GX_PATH];
    GX_TRY(gx_source_folder_open(&source, base, err));
    GxStatus status = gx_checkpoint_write_config(&s->model, &source, dtype, folder, err);
    gx_source_folder_close(&source);
    GX_TRY(status);
    GX_TRY(gx__merge_copy_tokenizer(base, folder, err));
    GX_TRY(gx_path_join(path, folder, "model.safetensors", err));
    gx_tensor_file_save(g, path, &s->model.store, &how, err);
    return gx_error_code(err);
}

// What the run says that the adapter is of; a folder of peft's has no such file.
static GxStatus gx__merge_ask_run(const char *adapter, GxMergeSaid *said, GxError *err)
{
    const char *quantize = "";
    char path[GX_PATH];
    GxJson *args;
    GX_TRY(gx_path_join(path, adapter, "training_args.json", err));
    if (!gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read(&args, path, 1 << 20, err));
    GxStatus status = gx_json_get_string(args, "quantize", 0, &quantize, path, err);
    if (gx_quantize_of(quantize))
        snprintf(said->quantized, sizeof said->quantized, "%.*s", GX_FIELD_TEXT - 1, quantize);
    gx_json_free(args);
    return status;
}

static GxStatus gx__merge_run(GxContext *g, GxInference *s, const char *adapter, const char *base, const char *folder,
                              GxDtype dtype, GxMergeSaid *said)
{
    GxBatch batch = GX_ZERO; // of one token, which is never computed
    batch.T = batch.B = 1, batch.runs = gx_runs_one(1, 0);
    GX_TRY(gx_inference_open_adapter(g, s, &gx_llama, adapter, base, NULL));
    if (s->adapter.reduction)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                       "%s holds bottleneck adapters (" GX_PEFT_BOTTLENECK "), which no matrix of the model can take "
                       "in, since gelu stands in them; use it as it is, with --adapter",
                       adapter);
    GX_TRY(gx_inference_load(g, s, adapter, &batch));
    gx_lora_merge(g, &s->model, 1);
    for (int i = 0; i < s->model.table.n; i++) said->matrices += s->model.table.row[i].has_lora;
    for (int i = 0; i < s->model.table.n; i++)
        if (!s->model.table.row[i].is_added && !s->model.table.row[i].has_alias)
            said->parameters += gx_tensor_global_count(&s->model.table.row[i]);
    snprintf(said->base, sizeof said->base, "%s", s->adapter.base);
    GX_TRY(gx_status(g));
    GX_TRY(gx__merge_ask_run(adapter, said, &g->error));
    return gx__merge_write(g, s, s->adapter.base, folder, dtype);
}

GxStatus gx_merge_adapter(GxContext *g, const char *adapter, const char *base, const char *folder, GxDtype dtype,
                          GxMergeSaid *said)
{
    memset(said, 0, sizeof *said);
    GxInference *s = (GxInference *)calloc(1, sizeof *s);
    if (!s) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a model");
    gx__merge_run(g, s, adapter, base, folder, dtype, said);
    gx_inference_close(s);
    free(s);
    return gx_status(g);
}
#endif
