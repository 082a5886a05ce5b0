// gguf_export.h: exports a Hugging Face folder of a LLaMA, Mistral, Qwen2 or Qwen3 to a GGUF file (io/gguf.h), as
// llama.cpp reads it.
//
//     GX_TRY(gx_gguf_export("out/checkpoint-500", "model.gguf", GX_GGUF_Q8_0, &said, log, err));
//
// Tensors of one dimension are F32; those of two have the requested type, or F16 if their row length is not a multiple
// of that type's blocks. A tied head is left out. gguf_config.h says what is refused.
//
// Memory: some rows of one tensor (1 MiB, or one row if that is larger), and the tokenizer.
#ifndef GX_GGUF_EXPORT_H
#define GX_GGUF_EXPORT_H
#include "../io/safetensors.h"
#include "gguf_work.h"
GX_BEGIN

// What the file cannot express, and what is unknown in the source, is reported to `log`. The file appears once it is
// complete, and replaces one of the same name. type: the matrices', one that gx_gguf_encodes.
GxStatus gx_gguf_export(const char *folder, const char *path, int type, GxGgufSaid *said, const GxLogger *log,
                        GxError *err);
// Reads rows [first, first + n) of the GGUF file's tensor from the folder's tensor into w->rows.
GxStatus gx_gguf_take_rows(GxGgufWork *w, const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first, int64_t n,
                           int64_t columns, int is_permuted);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_EXPORT_IMPLEMENTED)
#define GX_GGUF_EXPORT_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "gguf_config.h"
#include "gguf_rope.h"
#include "llama_family.h"
#include "source_folder.h"
#include "tensor_match.h"

static int gx__gguf_type_for(const GxTensor *t, int type)
{
    if (t->ndim == 1) return GX_GGUF_F32;
    return t->global_shape[t->ndim - 1] % gx_gguf_type(type)->elements ? GX_GGUF_F16 : type;
}

static GxStatus gx__gguf_add_tensors(GxGgufWork *w, GxGgufWriter *out, int type)
{
    char name[GX_GGUF_NAME];
    GxError *err = &w->g.error;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        const int as = gx__gguf_type_for(t, type);
        if (t->has_alias) continue;
        if (gx_gguf_name_of(t->name, name) < 0)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tensor %s has no name in GGUF files", w->folder, t->name);
        GX_TRY(gx_gguf_add(out, name, as, t->ndim, t->global_shape, err));
        w->said->tensors++, w->said->as_f16 += t->ndim > 1 && as != type;
    }
    const int64_t half = w->config.head_dim / 2;
    return strcmp(w->config.rope_type, "llama3") ? GX_OK
                                                 : gx_gguf_add(out, GX_GGUF_ROPE_FREQS, GX_GGUF_F32, 1, &half, err);
}

GxStatus gx_gguf_take_rows(GxGgufWork *w, const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first, int64_t n,
                           int64_t columns, int is_permuted)
{
    if (!is_permuted) return gx_safetensors_read(s, e, first * columns, n * columns, w->rows, &w->g.error);
    for (int64_t i = 0; i < n; i++)
        GX_TRY(gx_safetensors_read(s, e, gx_gguf_row_in_folder(first + i, w->config.head_dim) * columns, columns,
                                   w->rows + i * columns, &w->g.error));
    return GX_OK;
}

static GxStatus gx__gguf_put_tensor(GxGgufWork *w, GxGgufWriter *out, const GxSafetensors *s,
                                    const GxSafetensorsEntry *e, const GxTensor *t)
{
    char name[GX_GGUF_NAME] = "";
    const int which = gx_gguf_name_of(t->name, name), is_permuted = gx_gguf_is_permuted(w->arch, which);
    const int64_t columns = t->ndim > 1 ? t->global_shape[t->ndim - 1] : 1, rows = gx_tensor_global_count(t) / columns,
                  most = gx_max(1, GX_GGUF_FLOATS / columns);
    for (int64_t first = 0; first < rows; first += most) {
        const int64_t n = gx_min(most, rows - first);
        GX_TRY(gx_gguf_take_rows(w, s, e, first, n, columns, is_permuted));
        GX_TRY(gx_gguf_write(out, name, w->rows, n * columns, &w->g.error));
    }
    return GX_OK;
}

static GxStatus gx__gguf_put_tensors(GxGgufWork *w, GxGgufWriter *out, const GxSafetensors *s,
                                     const GxTensorMatch *match)
{
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        const GxSafetensorsEntry *e;
        if (t->has_alias) continue;
        GX_TRY(gx_tensor_match_find(&e, s, match, &w->m.table, i, "", w->folder, &w->g.error));
        GX_TRY(gx__gguf_put_tensor(w, out, s, e, t));
    }
    if (strcmp(w->config.rope_type, "llama3")) return GX_OK;
    gx_gguf_rope_factors(&w->config, w->rows);
    return gx_gguf_write(out, GX_GGUF_ROPE_FREQS, w->rows, w->config.head_dim / 2, &w->g.error);
}

static GxStatus gx__gguf_export_weights(GxGgufWork *w, const GxSafetensors *s, int type)
{
    GxTensorMatch match = GX_ZERO;
    GxGgufWriter out = GX_ZERO;
    GxError *err = &w->g.error;
    GxStatus status = gx_tensor_match(&match, s, &w->m.table, &gx_llama, GX_MATCH_ALL, w->folder, err);
    if (status == GX_OK) status = gx_gguf_create(&out, w->path, err);
    if (status == GX_OK) status = gx_gguf_put_config(w, &out, type);
    if (status == GX_OK) status = gx__gguf_add_tensors(w, &out, type);
    if (status == GX_OK) status = gx__gguf_put_tensors(w, &out, s, &match);
    if (status == GX_OK) status = gx_gguf_finish(&out, err);
    gx_gguf_abort(&out);
    gx_tensor_match_close(&match);
    return status;
}

static GxStatus gx__gguf_export(GxGgufWork *w, int type)
{
    char path[GX_PATH];
    GxSafetensors s;
    GxError *err = &w->g.error;
    GX_TRY(gx_path_join(path, w->folder, "config.json", err));
    GX_TRY(gx_llama_config_read(&w->config, path, &w->g.log, err));
    gx_source_folder_warn(w->folder, &w->g.log);
    GX_TRY(gx_gguf_find_arch(w, w->config.model_type));
    GX_TRY(gx_gguf_check_export(w));
    GX_TRY(gx_tokenizer_keys_from_folder(&w->keys, w->folder, w->config.vocab_size, w->config.pad_token_id, &w->g.log,
                                         err));
    if (gx_error_code(&w->keys.no_template) != GX_OK)
        gx_log(&w->g.log, GX_LOG_WARNING, "the chat template is left out: %s", w->keys.no_template.message);
    GX_TRY(gx_gguf_open_model(w, NULL));
    GX_TRY(gx_safetensors_open(&s, w->folder, err));
    const GxStatus status = gx__gguf_export_weights(w, &s, type);
    gx_safetensors_close(&s);
    return status;
}

GxStatus gx_gguf_export(const char *folder, const char *path, int type, GxGgufSaid *said, const GxLogger *log,
                        GxError *err)
{
    if (!gx_gguf_encodes(type)) return gx_gguf_encode(type, NULL, 0, NULL, err); // reports the error
    GxGgufWork *w = gx_gguf_work_open(folder, path, said, log, err);
    if (!w) return gx_error_code(err);
    const GxStatus status = gx__gguf_export(w, type);
    if (w->arch) snprintf(said->model, sizeof said->model, "%s", w->arch->name);
    gx_tokenizer_keys_say(&w->keys, said->tokenizer);
    return gx_gguf_work_close(w, status, err);
}
#endif
