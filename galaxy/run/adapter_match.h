// adapter_match.h: matches the tensors of an adapter's file (peft's adapter_model.safetensors) with the rows of a
// model's table, as tensor_match.h does for a model's file, and checks what peft saves beside the adapter: copies of
// the base's matrices.
#ifndef GX_ADAPTER_MATCH_H
#define GX_ADAPTER_MATCH_H
#include "tensor_match.h"
GX_BEGIN

// As gx_tensor_match; how: GX_MATCH_ADAPTER or GX_MATCH_BARE_ADAPTER. The file need not have tensors of the base
// itself, unless adapter_config.json names them or they are norms that the method trains.
GxStatus gx_adapter_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                          GxMatching how, const char *folder, GxError *err);

int gx_adapter_match_has_copies(const GxSafetensors *s); // 1: the file has copies of the base's matrices
// If an embedding or a head over the vocabulary has LoRA, peft saves a copy of the matrix itself with the adapter, as
// ….base_layer.weight, and computes with that. Here such copies are not loaded; this checks that they equal the
// base's matrices, and warns of those that are equal only up to the rounding of their type.
GxStatus gx_adapter_match_check_copies(const GxSafetensors *s, const GxSafetensors *base, const GxTensorMatch *of_base,
                                       const GxTable *t, const GxFamily *family, const char *folder,
                                       const GxLogger *log, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ADAPTER_MATCH_IMPLEMENTED)
#define GX_ADAPTER_MATCH_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../base/text.h"
#include "peft.h"

#define GX__ADAPTER_MATCH_COPY ".base_layer.weight"
#define GX__ADAPTER_MATCH_NOTE                                                                                         \
    ".lora_velora_embed" // of peft's VeLoRA, used only in its backward; outputs do not depend on it

// For a tensor X.base_layer.weight, the row of X.weight, if that has LoRA; -1: the tensor is not such a copy.
static int gx__adapter_match_copy_of(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME];
    const int64_t prefix = (int64_t)strlen(GX_PEFT_PREFIX), n = gx_text_stem(in_file, GX__ADAPTER_MATCH_COPY) - prefix;
    if (n < 0) return -1;
    snprintf(name, sizeof name, "%.*s.weight", (int)n, in_file + prefix);
    const int row = n + 8 < GX_NAME ? gx_tensor_match_row(t, family, name) : -1;
    return row >= 0 && t->row[row].has_lora ? row : -1;
}

// The row of the adapter that a tensor of the file is for; -2: none, and it may be ignored.
static GxStatus gx__adapter_match_row(int *row, GxMatching how, const GxTable *t, const GxFamily *family,
                                      const char *in_file, const char *folder, GxError *err)
{
    const size_t n = strlen(GX_PEFT_PREFIX);
    if (strncmp(in_file, GX_PEFT_PREFIX, n))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has the tensor %.120s, but the names of an adapter's tensors begin with " GX_PEFT_PREFIX,
                       folder, in_file);
    const int is_note = gx_text_stem(in_file, GX__ADAPTER_MATCH_NOTE) > 0;
    *row = is_note || gx__adapter_match_copy_of(t, family, in_file) >= 0 ? -2
                                                                         : gx_tensor_match_row(t, family, in_file + n);
    if (*row >= 0 && t->row[*row].stack[0]) *row = -1; // no file has it under this name
    if (*row == -1) *row = gx_tensor_match_stack(t, family, in_file + n);
    if (*row == -1 && how == GX_MATCH_BARE_ADAPTER && gx_tensor_match_is_in_head(family, in_file + n)) *row = -2;
    if (*row == -2 || (*row >= 0 && t->row[*row].is_adapter)) return GX_OK;
    if (gx_tensor_match_is_in_head(family, in_file + n) &&
        (strstr(in_file, ".score.") || strstr(in_file, ".classifier.")))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has %.120s, so it is an adapter for classification, but the model is opened without a head "
                       "for labels; use train_* --task classification --predict",
                       folder, in_file);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has %.120s, which is neither a tensor that its adapter_config.json names (target_modules, "
                   "modules_to_save) nor one of this model's adapter; is it for another model?",
                   folder, in_file);
}

// If the vocabulary was resized, peft 0.21 saves the embedding and the head three times (save_embedding_layers):
// X.weight, which it computes with; X.modules_to_save.weight, the same once more; X.original_module.weight, the base's.
static GxStatus gx__adapter_match_is_same(const GxSafetensors *s, const GxSafetensorsEntry *e, const char *folder,
                                          int *is_host_copy, GxError *err)
{
    static const char *const ends[] = {".original_module.weight", ".modules_to_save.weight"};
    char name[GX_NAME + 32];
    int same = 1;
    *is_host_copy = 0;
    for (int i = 0; i < 2; i++) {
        const int64_t n = gx_text_stem(e->name, ends[i]);
        if (n <= 0 || n > GX_NAME) continue;
        snprintf(name, sizeof name, "%.*s.weight", (int)n, e->name);
        const GxSafetensorsEntry *own = gx_safetensors_find(s, name);
        *is_host_copy = own != NULL;
        if (own && i == 1) GX_TRY(gx_tensor_match_compare(s, own, e, &same, err));
    }
    if (same) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_FORMAT,
        "%s has %.120s and %.120s, which peft saves as one tensor, but their values differ; remove the wrong one",
        folder, name, e->name);
}

GxStatus gx_adapter_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                          GxMatching how, const char *folder, GxError *err)
{
    GX_TRY(gx_tensor_match_open(match, s, t, how, err));
    for (int e = 0; e < s->n; e++) {
        int row = -1, is_host_copy;
        GX_TRY(gx__adapter_match_is_same(s, &s->entry[e], folder, &is_host_copy, err));
        if (is_host_copy) continue;
        GX_TRY(gx__adapter_match_row(&row, match->how, t, family, s->entry[e].name, folder, err));
        if (row < 0) continue;
        if (match->entry[row] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %.120s and %.120s, which are two names of one tensor; remove one of them", folder,
                           s->entry[match->entry[row]].name, s->entry[e].name);
        match->entry[row] = e;
        for (int i = row + 1; t->row[row].stack[0] && i < t->n && !strcmp(t->row[i].stack, t->row[row].stack); i++)
            match->entry[i] = e;
    }
    for (int i = 0; i < t->n; i++) {
        match->missing[i] = match->entry[i] < 0;
        const int is_norm = t->row[i].is_adapter && t->row[i].role == GX_ROLE_NORM;
        if (match->missing[i] && (t->row[i].is_added || is_norm || (t->row[i].is_named && !t->row[i].has_alias)))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s has no tensor " GX_PEFT_PREFIX "%s, which the adapter needs", folder,
                           gx_tensor_file_name(&t->row[i]));
    }
    return GX_OK;
}

int gx_adapter_match_has_copies(const GxSafetensors *s)
{
    for (int e = 0; e < s->n; e++)
        if (gx_text_stem(s->entry[e].name, GX__ADAPTER_MATCH_COPY) > 0) return 1;
    return 0;
}

// The largest rounding error of x in a type: half a unit in the last place; for fp16 also half its smallest subnormal.
static float gx__adapter_match_rounding(int dtype, float x)
{
    return dtype == GX_BF16 ? 0x1p-8f * fabsf(x) : dtype == GX_F16 ? 0x1p-11f * fabsf(x) + 0x1p-25f : 0;
}

static GxStatus gx__adapter_match_check_copy(const GxSafetensors *s, const GxSafetensorsEntry *copy,
                                             const GxSafetensors *base, const GxSafetensorsEntry *own,
                                             const char *folder, const GxLogger *log, GxError *err)
{
    enum { BLOCK = 4096 };
    float theirs[BLOCK], ours[BLOCK];
    int is_same = own && own->elements == copy->elements, is_rounded = 0;
    for (int64_t first = 0; is_same && first < copy->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, copy->elements - first);
        GX_TRY(gx_safetensors_read(s, copy, first, n, theirs, err));
        GX_TRY(gx_safetensors_read(base, own, first, n, ours, err));
        for (int64_t i = 0; i < n; i++)
            is_same &= fabsf(theirs[i] - ours[i]) <= gx__adapter_match_rounding(copy->dtype, ours[i]),
                is_rounded |= theirs[i] != ours[i];
    }
    if (is_same && is_rounded)
        gx_log(log, GX_LOG_WARNING,
               "%s has %.120s, a copy of the base model's matrix, rounded to %s: peft computes with the copy, Galaxy "
               "with the base model's",
               folder, copy->name, copy->dtype_name);
    if (is_same) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s has %.120s, peft's copy of a matrix that has LoRA, but its values differ from the base model's, "
                   "which are used; is it the adapter of another model, or of one with more tokens?",
                   folder, copy->name);
}

GxStatus gx_adapter_match_check_copies(const GxSafetensors *s, const GxSafetensors *base, const GxTensorMatch *of_base,
                                       const GxTable *t, const GxFamily *family, const char *folder,
                                       const GxLogger *log, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        const int row = gx__adapter_match_copy_of(t, family, s->entry[e].name);
        if (row < 0) continue;
        const int own = of_base->entry[t->row[row].has_alias ? t->row[row].alias.index : row];
        GX_TRY(
            gx__adapter_match_check_copy(s, &s->entry[e], base, own < 0 ? NULL : &base->entry[own], folder, log, err));
    }
    return GX_OK;
}
#endif
