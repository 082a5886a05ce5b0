// gguf_import.h: imports a GGUF file (io/gguf.h) of a LLaMA, Mistral, Qwen2 or Qwen3 to a Hugging Face folder, as this
// library and transformers read it.
//
//     GX_TRY(gx_gguf_import("model.gguf", "an_empty_folder", GX_BF16, &said, log, err));
//
// gguf_config.h and gguf_keys.h say what is refused; so are tensors that the model does not have.
//
// Memory: some rows of one tensor (1 MiB, or one row if that is larger), and the tokenizer.
#ifndef GX_GGUF_IMPORT_H
#define GX_GGUF_IMPORT_H
#include "gguf_work.h"
GX_BEGIN

// Refuses the files that gx_gguf_import refuses before it reads weights. Writes nothing.
GxStatus gx_gguf_check_import(const char *path, GxError *err);
// Writes to `folder`, which must exist: model.safetensors of `dtype` (GX_F32, GX_BF16, GX_F16), config.json,
// generation_config.json, the tokenizer's files. What the folder cannot express, and what is unknown in the source, is
// reported to `log`.
GxStatus gx_gguf_import(const char *path, const char *folder, GxDtype dtype, GxGgufSaid *said, const GxLogger *log,
                        GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_IMPORT_IMPLEMENTED)
#define GX_GGUF_IMPORT_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../io/safetensors.h"
#include "gguf_config.h"
#include "gguf_rope.h"
#include "llama_family.h"

// ---- the configuration ---------------------------------------------------------------------------------------------

static const char *gx__gguf_dtype_name(GxDtype dtype) // as PyTorch calls it
{
    return dtype == GX_BF16 ? "bfloat16" : dtype == GX_F16 ? "float16" : "float32";
}

// The value of eos_token_id: a token, or a list of the tokens that end a text, a turn and a message.
static GxJson *gx__gguf_ends(const GxTokenizerKeys *k, GxError *err)
{
    const int32_t ids[] = {k->eos, k->eot, k->eom};
    GxJson *list = gx_json_new_array();
    for (int i = 0; i < 3; i++)
        if (ids[i] >= 0 && (i == 0 || ids[i] != ids[0]) && (i < 2 || ids[i] != ids[1]))
            gx_json_append(list, gx_json_new_int(ids[i]), err);
    if (gx_json_size(list) > 1) return list;
    GxJson *one = gx_json_new_int(gx_json_int(gx_json_at(list, 0)));
    gx_json_free(list);
    return one;
}

// Writes config.json, and generation_config.json if it has anything to say.
static GxStatus gx__gguf_write_config(GxGgufWork *w, GxDtype dtype)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    const int32_t end = (int32_t)gx_max(w->keys.eos, gx_max(w->keys.eot, w->keys.eom));
    const int32_t ids[] = {w->keys.bos, end, w->keys.pad};
    char path[GX_PATH];
    GxJson *json = NULL, *generation = gx_json_new_object();
    GxError *err = &w->g.error;
    gx_path_join(path, w->folder, "config.json", err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_llama_config_write(&w->config, NULL, path, err);
    if (status == GX_OK) status = gx_json_read(&json, path, GX_CONFIG_JSON_CAP, err);
    gx_json_set(generation, "_from_model_config", gx_json_new_bool(1), err);
    for (int i = 0; i < 3 && status == GX_OK; i++) {
        if (ids[i] < 0) continue;
        for (int k = 0; k < 2; k++) // config.json has the model's own pad_token_id
            if (k || i < 2)
                gx_json_set(k ? generation : json, keys[i],
                            i == 1 ? gx__gguf_ends(&w->keys, err) : gx_json_new_int(ids[i]), err);
    }
    if (status == GX_OK) status = gx_json_set(json, "torch_dtype", gx_json_new_string(gx__gguf_dtype_name(dtype)), err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    if (status == GX_OK) status = gx_path_join(path, w->folder, "generation_config.json", err);
    if (status == GX_OK && gx_json_size(generation) > 1) status = gx_json_write(generation, path, err);
    gx_json_free(json);
    gx_json_free(generation);
    return status == GX_OK ? gx_error_code(err) : status;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

// found [rows of the table]: the file's tensor for each row. Refuses a file with tensors that the model does not have.
static GxStatus gx__gguf_match(GxGgufWork *w, const GxGguf *g, const GxGgufTensor **found)
{
    char name[GX_GGUF_NAME];
    GxError *err = &w->g.error;
    int used = gx_gguf_find(g, GX_GGUF_ROPE_FREQS) != NULL;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        if (t->has_alias) continue;
        if (gx_gguf_name_of(t->name, name) < 0)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tensor %s has no name in GGUF files", w->path, t->name);
        const GxGgufTensor *e = found[i] = gx_gguf_find(g, name);
        if (!e) return GX_FAIL(err, GX_ERR_FORMAT, "%s has no tensor %s, which this model needs", w->path, name);
        int same = e->ndim == t->ndim;
        for (int d = 0; d < t->ndim && same; d++) same = e->shape[d] == t->global_shape[d];
        if (!same)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: tensor %s has %d dimensions, the first of %ld; expected %d, %ld by %ld", w->path, name,
                           e->ndim, (long)(e->ndim ? e->shape[0] : 0), t->ndim, (long)t->global_shape[0],
                           (long)(t->ndim > 1 ? t->global_shape[1] : 1));
        used++;
    }
    if (used == g->tensors) return GX_OK;
    for (int k = 0; k < g->tensors; k++) {
        int is_used = !strcmp(g->tensor[k].name, GX_GGUF_ROPE_FREQS);
        for (int i = 0; i < w->m.table.n; i++) is_used |= found[i] == &g->tensor[k];
        if (!is_used)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tensor %s is not one of this model's (%d of %d are)", w->path,
                           g->tensor[k].name, used, g->tensors);
    }
    return GX_OK;
}

static GxStatus gx__gguf_check_narrow(GxGgufWork *w, const char *name, int64_t n, GxDtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = w->rows[i], y = dtype == GX_F16    ? gx_from_f16(gx_to_f16(x))
                                        : dtype == GX_BF16 ? gx_from_bf16(gx_to_bf16(x))
                                                           : x;
        if (isfinite(x) && !isfinite(y))
            return GX_FAIL(&w->g.error, GX_ERR_FORMAT,
                           "%s: tensor %s has the value %g, which %s cannot represent; choose --save_dtype fp32",
                           w->path, name, (double)x, gx__gguf_dtype_name(dtype));
    }
    return GX_OK;
}

// Reads rows [first, first + n) of the folder's tensor from the file's tensor into w->rows.
static GxStatus gx__gguf_take_file_rows(GxGgufWork *w, const GxGguf *g, const GxGgufTensor *e, int64_t first, int64_t n,
                                        int64_t columns, int is_permuted)
{
    if (!is_permuted) return gx_gguf_read(g, e, first * columns, n * columns, w->rows, &w->g.error);
    for (int64_t i = 0; i < n; i++)
        GX_TRY(gx_gguf_read(g, e, gx_gguf_row_in_file(first + i, w->config.head_dim) * columns, columns,
                            w->rows + i * columns, &w->g.error));
    return GX_OK;
}

static GxStatus gx__gguf_take_tensor_into(GxGgufWork *w, GxSafetensorsWriter *out, const GxGguf *g,
                                          const GxGgufTensor *e, const GxTensor *t, GxDtype dtype)
{
    char name[GX_GGUF_NAME] = "";
    const int which = gx_gguf_name_of(t->name, name), is_permuted = gx_gguf_is_permuted(w->arch, which);
    const int64_t columns = t->ndim > 1 ? t->global_shape[t->ndim - 1] : 1, rows = gx_tensor_global_count(t) / columns,
                  most = gx_max(1, GX_GGUF_FLOATS / columns);
    for (int64_t first = 0; first < rows; first += most) {
        const int64_t n = gx_min(most, rows - first);
        GX_TRY(gx__gguf_take_file_rows(w, g, e, first, n, columns, is_permuted));
        GX_TRY(gx__gguf_check_narrow(w, name, n * columns, dtype));
        GX_TRY(gx_safetensors_write_floats(out, t->name, first * columns, w->rows, n * columns, &w->g.error));
    }
    return GX_OK;
}

static GxStatus gx__gguf_import_weights(GxGgufWork *w, const GxGguf *g, const GxGgufTensor **found,
                                        GxSafetensorsEntry *entry, GxDtype dtype)
{
    GxSafetensorsWriter out = GX_ZERO;
    char path[GX_PATH];
    int n = 0;
    GxError *err = &w->g.error;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        if (t->has_alias) continue;
        snprintf(entry[n].name, sizeof entry[n].name, "%s", t->name);
        entry[n].dtype = dtype, entry[n].ndim = t->ndim;
        memcpy(entry[n++].shape, t->global_shape, sizeof t->global_shape);
    }
    w->said->tensors = n;
    GX_TRY(gx_path_join(path, w->folder, "model.safetensors", err));
    GX_TRY(gx_safetensors_create(&out, path, entry, n, NULL, 0, err));
    GxStatus status = GX_OK;
    for (int i = 0; i < w->m.table.n && status == GX_OK; i++)
        if (found[i]) status = gx__gguf_take_tensor_into(w, &out, g, found[i], &w->m.table.row[i], dtype);
    if (status == GX_OK) status = gx_safetensors_finish(&out, err);
    gx_safetensors_abort(&out);
    return status;
}

// w->folder NULL: only refuses what can be refused before weights are read.
static GxStatus gx__gguf_import(GxGgufWork *w, const GxGguf *g, GxDtype dtype)
{
    GX_TRY(gx_gguf_take_config(w, g));
    const size_t rows = (size_t)w->m.table.n + 1;
    const GxGgufTensor **found = (const GxGgufTensor **)calloc(rows, sizeof *found);
    GxSafetensorsEntry *entry = (GxSafetensorsEntry *)calloc(rows, sizeof *entry);
    GxStatus status = found && entry ? GX_OK : GX_FAIL(&w->g.error, GX_ERR_MEMORY, "no memory for a list of tensors");
    if (status == GX_OK) status = gx__gguf_match(w, g, found);
    const int writes = status == GX_OK && w->folder;
    if (writes) status = gx__gguf_import_weights(w, g, found, entry, dtype);
    if (writes && status == GX_OK) status = gx__gguf_write_config(w, dtype);
    if (writes && status == GX_OK)
        status = gx_tokenizer_keys_to_folder(&w->keys, w->folder, w->config.max_position_embeddings, &w->g.error);
    free((void *)found);
    free(entry);
    return status;
}

GxStatus gx_gguf_check_import(const char *path, GxError *err)
{
    GxGgufSaid said;
    return gx_gguf_import(path, NULL, GX_F32, &said, &gx_silent, err);
}

GxStatus gx_gguf_import(const char *path, const char *folder, GxDtype dtype, GxGgufSaid *said, const GxLogger *log,
                        GxError *err)
{
    GxGguf g;
    if (dtype != GX_F32 && dtype != GX_BF16 && dtype != GX_F16)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "weights are written as F32, BF16 or F16, not as %s",
                       gx_dtype_name(dtype));
    GxGgufWork *w = gx_gguf_work_open(folder, path, said, log, err);
    if (!w) return gx_error_code(err);
    GxStatus status = gx_gguf_open(&g, path, &w->g.error);
    if (status == GX_OK) {
        status = gx__gguf_import(w, &g, dtype);
        gx_gguf_close(&g);
    }
    if (w->arch) snprintf(said->model, sizeof said->model, "%s", w->arch->name);
    gx_tokenizer_keys_say(&w->keys, said->tokenizer);
    return gx_gguf_work_close(w, status, err);
}
#endif
