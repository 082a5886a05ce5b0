// gguf_adapter.h: converts a LoRA adapter's folder to a GGUF file that llama.cpp applies to the base model's (--lora).
//
//     GX_TRY(gx_gguf_export_adapter("out/checkpoint-30", "", "adapter.gguf", GX_GGUF_F32, &said, log, err));
//
// The file has the base's architecture (gguf_names.h says which are supported), and NAME.lora_a [r,in] and NAME.lora_b
// [out,r] for each matrix NAME with LoRA. The rows of lora_b are in the order of the matrix's rows, which differs from
// the folder's for q and k of a llama. For the embedding lora_a is [V,r], the transposed A.
//
// llama.cpp multiplies B A by adapter.lora.alpha / r, with r from the shape of lora_b. The file has a single alpha:
// scale * r of the first matrix. If scale * r of another matrix differs (alpha_pattern, or rsLoRA with rank_pattern),
// its lora_b is multiplied by the quotient.
//
// Refused, since llama.cpp would ignore them or compute something else: tensors that are trained whole (norms,
// embeddings, heads), LoRA on one of two tied matrices, adapters that are not LoRA, bases that gguf_config.h refuses.
#ifndef GX_GGUF_ADAPTER_H
#define GX_GGUF_ADAPTER_H
#include "checkpoint_load.h"
#include "gguf_work.h"
GX_BEGIN

typedef struct { // what was done, for messages
    char model[GX_FIELD_TEXT];
    int matrices, folded; // matrices with LoRA; those among them whose lora_b was multiplied
    int as_f16;           // tensors that could not have the requested type
    int64_t parameters;
    double alpha;
} GxGgufAdapterSaid;

// folder: the adapter's. base: its model's folder, of which config.json is read, and weights only to compare the
// adapter's copies with them; "": the one that adapter_config.json names. type: as for gx_gguf_export.
GxStatus gx_gguf_export_adapter(const char *folder, const char *base, const char *path, int type,
                                GxGgufAdapterSaid *said, const GxLogger *log, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_ADAPTER_IMPLEMENTED)
#define GX_GGUF_ADAPTER_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../model/build.h"
#include "../model/lora_merge.h"
#include "adapter_kinds.h"
#include "gguf_config.h"
#include "gguf_export.h"
#include "llama_family.h"
#include "output.h"

typedef struct {
    GxGgufWork *w; // its folder is the base's
    const char *folder;
    GxPeftConfig config;
    GxAdapter adapter;
    GxCheckpointFile file;
    GxGgufAdapterSaid *said;
} gx__GgufAdapter;

// the alpha whose quotient alpha / r is the matrix's scale
static double gx__gguf_alpha(const GxModel *m, const GxTensor *t) { return t->lora_scale * (double)gx_lora_rank(m, t); }

static int64_t gx__gguf_rows_per_read(int64_t columns) { return gx_max(1, GX_GGUF_FLOATS / columns); }

static void gx__gguf_factor_name(const GxTensor *t, const char *factor, char out[GX_GGUF_NAME + 8])
{
    char name[GX_GGUF_NAME] = "";
    gx_gguf_name_of(t->name, name);
    snprintf(out, GX_GGUF_NAME + 8, "%s%s", name, factor);
}

// ---- what can be said ----------------------------------------------------------------------------------------------

static GxStatus gx__gguf_adapter_check_kind(const gx__GgufAdapter *a, GxError *err)
{
    if (!strcmp(a->config.task_type, "SEQ_CLS") || !strcmp(a->config.task_type, "TOKEN_CLS"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s is an adapter for classification (task_type %s), whose head is trained with it, but "
                       "llama.cpp reads only LoRA's matrices from an adapter",
                       a->folder, a->config.task_type);
    if (a->adapter.lora.r) return GX_OK;
    const GxAdapterKind *kind = gx_adapter_kind(&a->adapter);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s holds %s (%s); in GGUF files only LoRA adapters are supported, as in llama.cpp", a->folder,
                   kind->contents, kind->type);
}

// In a GGUF file a tied head and the embedding are one matrix, so LoRA on either would change both.
static GxStatus gx__gguf_adapter_check_tied(const gx__GgufAdapter *a, GxError *err)
{
    const GxModel *m = &a->w->m;
    const int head = gx_lora_tied_head(m);
    if (head < 0) return GX_OK;
    const GxTensor *t = &m->table.row[m->table.row[head].has_lora ? head : m->embedding.index];
    return GX_FAIL(
        err, GX_ERR_UNSUPPORTED,
        "%s has LoRA on %s, but the base model ties its head to the embedding (tie_word_embeddings), and in a GGUF "
        "file both are one matrix; merge the two with ./merge_adapter, and convert the result with --model",
        a->folder, t->name);
}

static GxStatus gx__gguf_adapter_check(const gx__GgufAdapter *a, GxError *err)
{
    const GxTable *t = &a->w->m.table;
    GX_TRY(gx__gguf_adapter_check_tied(a, err));
    for (int i = 0; i < t->n; i++)
        if (t->row[i].is_adapter && !t->row[i].is_added)
            return GX_FAIL(
                err, GX_ERR_UNSUPPORTED,
                "%s has %s, which was trained whole (modules_to_save), but llama.cpp reads only LoRA's matrices from "
                "an adapter; merge it into its model with ./merge_adapter, and convert the result with --model",
                a->folder, t->row[i].name);
    return GX_OK;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

static GxStatus gx__gguf_add_factor(gx__GgufAdapter *a, GxGgufWriter *out, const GxTensor *t, int is_b, int type)
{
    const GxTensor *f = &a->w->m.table.row[is_b ? t->lora_b.index : t->lora.index];
    const int is_rotated = !is_b && t->role == GX_ROLE_EMBEDDING;
    const int64_t shape[2] = {f->global_shape[is_rotated], f->global_shape[!is_rotated]};
    const int as = shape[1] % gx_gguf_type(type)->elements ? GX_GGUF_F16 : type;
    char name[GX_GGUF_NAME + 8];
    gx__gguf_factor_name(t, is_b ? ".lora_b" : ".lora_a", name);
    a->said->as_f16 += as != type, a->said->parameters += gx_tensor_global_count(f);
    return gx_gguf_add(out, name, as, 2, shape, &a->w->g.error);
}

static GxStatus gx__gguf_add_factors(gx__GgufAdapter *a, GxGgufWriter *out, int type)
{
    const GxModel *m = &a->w->m;
    char name[GX_GGUF_NAME];
    for (int i = 0; i < m->table.n; i++) {
        const GxTensor *t = &m->table.row[i];
        if (!t->has_lora) continue;
        if (gx_gguf_name_of(t->name, name) < 0)
            return GX_FAIL(&a->w->g.error, GX_ERR_UNSUPPORTED, "%s: tensor %s has no name in GGUF files", a->folder,
                           t->name);
        if (!a->said->matrices++) a->said->alpha = gx__gguf_alpha(m, t);
        GX_TRY(gx__gguf_add_factor(a, out, t, 0, type));
        GX_TRY(gx__gguf_add_factor(a, out, t, 1, type));
    }
    return GX_OK;
}

static GxStatus gx__gguf_put_a(gx__GgufAdapter *a, GxGgufWriter *out, const GxTensor *t)
{
    const GxTensor *f = &a->w->m.table.row[t->lora.index];
    const GxSafetensors *s = &a->file.file;
    const GxSafetensorsEntry *e = &s->entry[a->file.match.entry[t->lora.index]];
    const int64_t r = f->global_shape[0], columns = f->global_shape[1];
    GxError *err = &a->w->g.error;
    char name[GX_GGUF_NAME + 8];
    gx__gguf_factor_name(t, ".lora_a", name);
    float *rows = a->w->rows;
    for (int64_t i = 0; t->role != GX_ROLE_EMBEDDING && i < r; i++) {
        GX_TRY(gx_safetensors_read(s, e, i * columns, columns, rows, err));
        GX_TRY(gx_gguf_write(out, name, rows, columns, err));
    }
    // the embedding's: transposed, column after column
    float *turned = t->role == GX_ROLE_EMBEDDING ? (float *)malloc((size_t)(r * columns) * sizeof *turned) : NULL;
    if (t->role != GX_ROLE_EMBEDDING) return GX_OK;
    if (!turned) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld numbers of %s", (long)(r * columns), name);
    for (int64_t i = 0; i < r && !gx_error_code(err); i++) {
        gx_safetensors_read(s, e, i * columns, columns, rows, err);
        for (int64_t k = 0; k < columns && !gx_error_code(err); k++) turned[k * r + i] = rows[k];
    }
    if (!gx_error_code(err)) gx_gguf_write(out, name, turned, r * columns, err);
    free(turned);
    return gx_error_code(err);
}

static GxStatus gx__gguf_put_b(gx__GgufAdapter *a, GxGgufWriter *out, const GxTensor *t)
{
    const GxModel *m = &a->w->m;
    const GxTensor *f = &m->table.row[t->lora_b.index];
    const GxSafetensors *s = &a->file.file;
    const GxSafetensorsEntry *e = &s->entry[a->file.match.entry[t->lora_b.index]];
    const double alpha = gx__gguf_alpha(m, t);
    const float by = alpha == a->said->alpha ? 1 : (float)(alpha / a->said->alpha);
    const int64_t rows = f->global_shape[0], r = f->global_shape[1], most = gx__gguf_rows_per_read(r);
    char name[GX_GGUF_NAME + 8], of_base[GX_GGUF_NAME];
    const int is_permuted = gx_gguf_is_permuted(a->w->arch, gx_gguf_name_of(t->name, of_base));
    gx__gguf_factor_name(t, ".lora_b", name);
    a->said->folded += by != 1;
    for (int64_t first = 0; first < rows; first += most) {
        const int64_t n = gx_min(most, rows - first);
        GX_TRY(gx_gguf_take_rows(a->w, s, e, first, n, r, is_permuted));
        for (int64_t i = 0; i < n * r; i++) a->w->rows[i] *= by;
        GX_TRY(gx_gguf_write(out, name, a->w->rows, n * r, &a->w->g.error));
    }
    return GX_OK;
}

static GxStatus gx__gguf_put_factors(gx__GgufAdapter *a, GxGgufWriter *out)
{
    const GxTable *t = &a->w->m.table;
    for (int i = 0; i < t->n; i++) {
        if (!t->row[i].has_lora) continue;
        GX_TRY(gx__gguf_put_a(a, out, &t->row[i]));
        GX_TRY(gx__gguf_put_b(a, out, &t->row[i]));
    }
    return GX_OK;
}

// ---- the file ------------------------------------------------------------------------------------------------------

static GxStatus gx__gguf_put_adapter_keys(gx__GgufAdapter *a, GxGgufWriter *out, int type)
{
    GxError *err = &a->w->g.error;
    char room[GX_PATH], name[GX_FILE_NAME];
    snprintf(room, sizeof room, "%.*s", gx_path_length(a->folder), a->folder);
    snprintf(name, sizeof name, "%.200s", gx_path_name(room));
    gx_gguf_set_string(out, "general.architecture", a->w->arch->name, err);
    gx_gguf_set_string(out, "general.type", "adapter", err);
    gx_gguf_set_string(out, "general.name", name, err);
    gx_gguf_set_int(out, "general.file_type", gx_gguf_file_type(type), err);
    gx_gguf_set_int(out, "general.quantization_version", 2, err);
    gx_gguf_set_string(out, "adapter.type", "lora", err);
    return gx_gguf_set_float(out, "adapter.lora.alpha", (float)a->said->alpha, err);
}

static GxStatus gx__gguf_write_adapter(gx__GgufAdapter *a, int type)
{
    GxGgufWriter out = GX_ZERO;
    GxError *err = &a->w->g.error;
    GxStatus status = gx_gguf_create(&out, a->w->path, err);
    if (status == GX_OK) status = gx__gguf_add_factors(a, &out, type);
    if (status == GX_OK) status = gx__gguf_put_adapter_keys(a, &out, type);
    if (status == GX_OK) status = gx__gguf_put_factors(a, &out);
    if (status == GX_OK) status = gx_gguf_finish(&out, err);
    gx_gguf_abort(&out);
    return status;
}

static GxStatus gx__gguf_export_adapter(gx__GgufAdapter *a, const char *base, int type)
{
    GxGgufWork *w = a->w;
    GxError *err = &w->g.error;
    GxModelOptions options = GX_ZERO;
    char path[GX_PATH];
    w->g.world = 1;
    GX_TRY(gx_adapter_read_config(&w->g, &a->config, &a->adapter, a->folder));
    GX_TRY(gx__gguf_adapter_check_kind(a, err));
    if (base[0]) snprintf(a->config.base, sizeof a->config.base, "%s", base);
    w->folder = a->config.base;
    if (!w->folder[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s does not say which model it is an adapter of; name that model with --model", a->folder);
    GX_TRY(gx_output_check_exists(w->folder, "model", err));
    GX_TRY(gx_path_join(path, w->folder, "config.json", err));
    GX_TRY(gx_llama_config_read(&w->config, path, &w->g.log, err));
    GX_TRY(gx_gguf_find_arch(w, w->config.model_type));
    GX_TRY(gx_gguf_check_export(w));
    options.adapter = a->adapter;
    GX_TRY(gx_gguf_open_model(w, &options));
    GX_TRY(gx__gguf_adapter_check(a, err));
    gx_adapter_warn_unused(&w->m, &w->g.log);
    GX_TRY(gx_checkpoint_open_adapter(&a->file, &w->m, w->folder, a->folder, &gx_silent, err)); // keys were reported
    const GxStatus status = gx__gguf_write_adapter(a, type);
    gx_checkpoint_close_file(&a->file);
    return status;
}

GxStatus gx_gguf_export_adapter(const char *folder, const char *base, const char *path, int type,
                                GxGgufAdapterSaid *said, const GxLogger *log, GxError *err)
{
    GxGgufSaid of_model;
    memset(said, 0, sizeof *said);
    if (!gx_gguf_encodes(type)) return gx_gguf_encode(type, NULL, 0, NULL, err); // reports the error
    gx__GgufAdapter *a = (gx__GgufAdapter *)calloc(1, sizeof *a);
    if (!a) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to convert %s", folder);
    a->w = gx_gguf_work_open(folder, path, &of_model, log, err);
    if (!a->w) return free(a), gx_error_code(err);
    a->folder = folder, a->said = said;
    const GxStatus status = gx__gguf_export_adapter(a, base, type);
    if (a->w->arch) snprintf(said->model, sizeof said->model, "%s", a->w->arch->name);
    gx_gguf_work_close(a->w, status, err);
    free(a);
    return status;
}
#endif
