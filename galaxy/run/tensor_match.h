// tensor_match.h: matches the tensors of a safetensors file with the rows of a model's table, and reports what does not
// fit. An adapter's file, with peft's names: adapter_match.h.
//
//     GxTensorMatch match = GX_ZERO;
//     gx_tensor_match(&match, &file, &m.table, m.family, GX_MATCH_ALL, folder, err);
//     ... gx_tensor_file_load(g, &file, &m.store, &part, &match, match.missing, NULL, folder) ...
//     gx_tensor_match_close(&match);
//
// All of this happens on rank 0, which has the file open.
#ifndef GX_TENSOR_MATCH_H
#define GX_TENSOR_MATCH_H
#include "../io/safetensors.h"
#include "../model/model.h"
GX_BEGIN

// How strictly a file of weights must match a model.
typedef enum {
    GX_MATCH_ALL = 0, // a missing, unexpected or mismatched tensor is an error that names it
    GX_MATCH_BODY,    // the same, but a whole head may be missing or unexpected
    GX_MATCH_ANY,     // --strict false: loads whatever matches; it is an error if nothing does
    // GX_MATCH_BODY for a base whose adapter is in a file of its own: tensors of the adapter may be missing or
    // mismatched
    GX_MATCH_BASE,
    // For an adapter's file, with peft's names: it must have every tensor that the adapter adds to the base. Tensors of
    // the base that the adapter trains may be missing. Anything else is an error.
    GX_MATCH_ADAPTER,
    GX_MATCH_BARE_ADAPTER // the same for a model without a head: tensors of heads in the file are ignored
} GxMatching;

// Which tensors of a file are which rows of a model's table; of stacked ones (GxTensor.stack) several rows are in one
// tensor. (transformers' terms: missing keys, unexpected
// keys, mismatched keys.)
typedef struct {
    GxMatching how;
    // Set by the caller: the rows that the embedding and the heads over the vocabulary have in the file, if the model
    // has more (GxTensor.is_vocabulary); 0: as many. The additional ones are made in loading: tensor_load.h.
    int64_t vocab;
    int *entry;                // [rows] the tensor in the file; -1: none
    int *mismatched;           // [rows] the tensor in the file that has this name but another shape; -1: none
    unsigned char *missing;    // [rows] 1: nothing is loaded for this row
    unsigned char *unexpected; // [tensors of the file] 1: the model has no row for it; 2: nor that head; ignored
    unsigned char *quantized;  // [rows] 1: it is quantized in the file, in the same way as in the model
} GxTensorMatch;

// Matches by the family's names. Tensors that an adapter adds to a model are in no file of weights, and are missing.
// Two tensors with the same name are always an error, and so is a tied tensor whose values differ from those it is tied
// to. The caller sets match->vocab; all else is zero. Call gx_tensor_match_close afterwards, also after an error.
GxStatus gx_tensor_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                         GxMatching how, const char *folder, GxError *err);
void gx_tensor_match_close(GxTensorMatch *match);
// Checks that the matched tensors can be loaded: their shapes, and that no value is NaN or infinite.
GxStatus gx_tensor_match_check(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const char *folder,
                               GxError *err);
enum { GX_SHAPE_TEXT = 100 };
const char *gx_shape_text(const int64_t *shape, int ndim, char text[GX_SHAPE_TEXT]); // "[32,64]"

// For loading, and for matching an adapter: single tensors.

// Sets match->how and makes the lists, in which nothing matches yet.
GxStatus gx_tensor_match_open(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, GxMatching how,
                              GxError *err);
// Finds the tensor of row i, with the right shape: through the match, or without one (NULL) by prefix + its name in the
// table. Without such a tensor it is an error that names it.
GxStatus gx_tensor_match_find(const GxSafetensorsEntry **entry, const GxSafetensors *s, const GxTensorMatch *match,
                              const GxTable *t, int i, const char *prefix, const char *folder, GxError *err);
// The first of the rows that a tensor of the file has stacked; -1: there are none.
int gx_tensor_match_stack(const GxTable *t, const GxFamily *family, const char *in_file);
// The row that a tensor of the file is for; -1: none; -2: none, and the family says that it may be ignored.
int gx_tensor_match_row(const GxTable *t, const GxFamily *family, const char *in_file);
// 1: the name is that of a tensor of one of the family's heads.
int gx_tensor_match_is_in_head(const GxFamily *family, const char *in_file);
// *same: 1: the two tensors have the same elements, bit for bit.
GxStatus gx_tensor_match_compare(const GxSafetensors *s, const GxSafetensorsEntry *a, const GxSafetensorsEntry *b,
                                 int *same, GxError *err);
// Fails if one of values[n], which the tensor has from number `first` on, is NaN or infinite.
GxStatus gx_tensor_match_check_finite(const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first,
                                      const float *values, int64_t n, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSOR_MATCH_IMPLEMENTED)
#define GX_TENSOR_MATCH_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "../io/bnb.h"
#include "quantize.h"

// ---- the shape and the values of a tensor --------------------------------------------------------------------------

const char *gx_shape_text(const int64_t *shape, int ndim, char text[GX_SHAPE_TEXT])
{
    int n = snprintf(text, GX_SHAPE_TEXT, "[");
    for (int d = 0; d < ndim && n < GX_SHAPE_TEXT; d++)
        n += snprintf(text + n, (size_t)(GX_SHAPE_TEXT - n), "%s%ld", d ? "," : "", (long)shape[d]);
    if (n < GX_SHAPE_TEXT) snprintf(text + n, (size_t)(GX_SHAPE_TEXT - n), "]");
    return text;
}

// The shape that a row of the table has in the file. match NULL: its own.
static void gx__tensor_match_shape(const GxTensor *row, const GxTensorMatch *match, int64_t shape[GX_MAX_DIMS])
{
    memcpy(shape, row->global_shape, sizeof row->global_shape);
    if (match && match->vocab && row->is_vocabulary) shape[0] = match->vocab;
    if (match && row->stack[0]) shape[0] = row->stack_rows;
    if (!match || !row->is_transposed) return;
    const int64_t rows = shape[0];
    shape[0] = shape[1], shape[1] = rows;
}

static int gx__tensor_match_has_shape(const GxSafetensorsEntry *e, const GxTensor *row, const GxTensorMatch *match)
{
    int64_t shape[GX_MAX_DIMS];
    int same = e->ndim == row->ndim;
    gx__tensor_match_shape(row, match, shape);
    for (int d = 0; same && d < row->ndim; d++) same = e->shape[d] == shape[d];
    return same;
}

// The end of an error message, which says what else can be done when training starts from these weights.
static const char *gx__tensor_match_hint(const GxTensorMatch *match)
{
    return match && match->how == GX_MATCH_BODY
               ? "; --strict false loads what matches, and initializes the rest at random"
               : "";
}

static GxStatus gx__tensor_match_check_shape(const GxSafetensorsEntry *e, const GxTensor *row,
                                             const GxTensorMatch *match, const char *folder, GxError *err)
{
    char theirs[GX_SHAPE_TEXT], ours[GX_SHAPE_TEXT];
    int64_t shape[GX_MAX_DIMS];
    gx__tensor_match_shape(row, match, shape);
    if (gx__tensor_match_has_shape(e, row, match)) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: tensor %s has the shape %s, but this model's has %s%s", folder, e->name,
                   gx_shape_text(e->shape, e->ndim, theirs), gx_shape_text(shape, row->ndim, ours),
                   gx__tensor_match_hint(match));
}

static GxStatus gx__tensor_match_refuse_missing(const GxSafetensors *s, const char *name, const GxTensorMatch *match,
                                                const char *folder, GxError *err)
{
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has no tensor %s, which this model needs (tensors in the file: %d; is it for another model?)%s",
                   folder, name, s->n, gx__tensor_match_hint(match));
}

GxStatus gx_tensor_match_find(const GxSafetensorsEntry **entry, const GxSafetensors *s, const GxTensorMatch *match,
                              const GxTable *t, int i, const char *prefix, const char *folder, GxError *err)
{
    char name[GX_NAME + 32];
    snprintf(name, sizeof name, "%s%s", prefix, t->row[i].name);
    if (match) *entry = match->entry[i] < 0 ? NULL : &s->entry[match->entry[i]];
    else *entry = gx_safetensors_find(s, name);
    if (match && match->quantized[i]) return GX_OK; // its shape was checked when it was matched
    return *entry ? gx__tensor_match_check_shape(*entry, &t->row[i], match, folder, err)
                  : gx__tensor_match_refuse_missing(s, name, match, folder, err);
}

GxStatus gx_tensor_match_check_finite(const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first,
                                      const float *values, int64_t n, GxError *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: value %ld of %s is %g, but an adapter has only finite ones: its training diverged, or "
                           "the file is damaged",
                           s->file[e->file].path, (long)(first + i), e->name, (double)values[i]);
    return GX_OK;
}

// ---- which tensor is which -----------------------------------------------------------------------------------------

int gx_tensor_match_row(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME] = "";
    if (!family->tensor_name) return gx_table_find(t, in_file).index;
    if (strlen(in_file) + 16 > GX_NAME) return -1; // no row has such a long name; 16: room for a prefix
    return family->tensor_name(t, in_file, name) ? gx_table_find(t, name).index : -2;
}

// Marks row i if the file has its matrix quantized; an error if the model does not have it quantized in the same way.
static GxStatus gx__tensor_match_quantized(GxTensorMatch *match, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                           const GxTable *t, int i, const char *folder, GxError *err)
{
    const GxTensor *row = &t->row[i];
    GxBnbMatrix m;
    GX_TRY(gx_bnb_find(s, e->name, &m, err));
    if (!m.is_quantized) return GX_OK;
    if (row->stack[0] || row->is_transposed)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s holds %s quantized by bitsandbytes, which is not supported for %s; name "
                       "a folder in fp32, bf16 or fp16",
                       folder, e->name,
                       row->stack[0] ? "several matrices in one" : "a matrix that is transposed in files");
    const char *theirs = gx_quantize_name(1 + (int)m.kind);
    if (row->quantized != 1 + (int)m.kind)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s holds %s quantized by bitsandbytes (%s), but in this run it is %s; --quantize %s keeps a "
                       "matrix of attention or MLP as it is, if nothing trains it (as with --tuning lora, or to write "
                       "text); else name a folder in fp32, bf16 or fp16",
                       folder, e->name, theirs, row->quantized ? gx_quantize_name(row->quantized) : "not quantized",
                       theirs);
    if (row->ndim != 2 || m.rows != row->global_shape[0] || m.cols != row->global_shape[1])
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s has the shape [%ld,%ld], but this model's has [%ld,%ld]", folder,
                       e->name, (long)m.rows, (long)m.cols, (long)row->global_shape[0], (long)row->global_shape[1]);
    match->quantized[i] = 1;
    return GX_OK;
}

// A tensor that the model leaves out because it is 0.
static GxStatus gx__tensor_match_zero(const GxSafetensors *s, const GxSafetensorsEntry *e, const char *folder,
                                      GxError *err)
{
    enum { BLOCK = 4096 };
    float values[BLOCK];
    for (int64_t first = 0; first < e->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, e->elements - first);
        GX_TRY(gx_safetensors_read(s, e, first, n, values, err));
        for (int64_t i = 0; i < n; i++)
            if (values[i] != 0)
                return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: element %ld of %s is %g; only 0 is supported", folder,
                               (long)(first + i), e->name, (double)values[i]);
    }
    return GX_OK;
}

// The family's name of a tensor that this model does not have, or not under one name.
static void gx__tensor_match_name(const GxFamily *family, const GxTable *t, const char *in_file, char name[GX_NAME])
{
    snprintf(name, GX_NAME, "%.127s", in_file);
    if (family->tensor_name && strlen(in_file) + 16 <= GX_NAME) family->tensor_name(t, in_file, name);
}

int gx_tensor_match_stack(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME];
    gx__tensor_match_name(family, t, in_file, name);
    for (int i = 0; i < t->n; i++)
        if (t->row[i].stack[0] && !strcmp(t->row[i].stack, name)) return i;
    return -1;
}

static GxStatus gx__tensor_match_names(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                       const GxFamily *family, const char *folder, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        if (gx_bnb_is_part(s, s->entry[e].name)) continue; // read with its matrix
        int row = gx_tensor_match_row(t, family, s->entry[e].name);
        if (row >= 0 && (t->row[row].is_added || t->row[row].stack[0])) row = -1; // files of a base have no such tensor
        if (row == -1) row = gx_tensor_match_stack(t, family, s->entry[e].name);
        match->unexpected[e] = row == -1;
        if (family->zero && !strcmp(s->entry[e].name, family->zero))
            GX_TRY(gx__tensor_match_zero(s, &s->entry[e], folder, err));
        if (row < 0) continue;
        if (match->how == GX_MATCH_BASE && t->row[row].is_adapter &&
            !gx__tensor_match_has_shape(&s->entry[e], &t->row[row], match))
            continue;
        if (match->entry[row] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %s and %s, which are two names of one tensor; remove one of them", folder,
                           s->entry[match->entry[row]].name, s->entry[e].name);
        match->entry[row] = e;
        GX_TRY(gx__tensor_match_quantized(match, s, &s->entry[e], t, row, folder, err));
        for (int i = row + 1; t->row[row].stack[0] && i < t->n && !strcmp(t->row[i].stack, t->row[row].stack); i++)
            match->entry[i] = e;
    }
    return GX_OK;
}

static void gx__tensor_match_shapes(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (match->entry[i] >= 0 && !match->quantized[i] &&
            !gx__tensor_match_has_shape(&s->entry[match->entry[i]], &t->row[i], match)) {
            match->mismatched[i] = match->entry[i];
            match->entry[i] = -1;
        }
}

// A file may have either of two names that are tied.
static void gx__tensor_match_tied(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++) {
        if (!t->row[i].has_alias || match->entry[i] < 0 || match->entry[t->row[i].alias.index] >= 0) continue;
        match->entry[t->row[i].alias.index] = match->entry[i];
        match->entry[i] = -1;
    }
}

// A tensor that is tied in the file but not in the model is loaded from the one that it is tied to.
static void gx__tensor_match_copies(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].copies && match->entry[i] < 0) match->entry[i] = match->entry[t->row[i].copies - 1];
}

// Rows without an entry are missing. A mismatched tensor whose row is not missing (it is tied) is unexpected.
static void gx__tensor_match_rest(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++) {
        match->missing[i] = !t->row[i].has_alias && match->entry[i] < 0;
        if (match->missing[i] || match->mismatched[i] < 0) continue;
        match->unexpected[match->mismatched[i]] = 1;
        match->mismatched[i] = -1;
    }
}

// Tensors that an adapter adds are missing, and so are the adapter's own tensors that a base lacks.
static void gx__tensor_match_added(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].is_added || (match->how == GX_MATCH_BASE && t->row[i].is_adapter && match->entry[i] < 0))
            match->missing[i] = 1;
}

// A head of the family: the pattern that its tensors' names match.
typedef struct {
    char pattern[GX_NAME];
    int rows;          // how many rows of the model's table match
    int found, absent; // the last of them that the file has, and the last that it does not have; -1: none
} gx__TensorHead;

static int gx__tensor_match_next_head(const char **heads, gx__TensorHead *h)
{
    GxTextItem head;
    if (!gx_text_next(heads, &head)) return 0;
    snprintf(h->pattern, sizeof h->pattern, "%.*s", (int)head.n, head.at);
    h->rows = 0, h->found = h->absent = -1;
    return 1;
}

static void gx__tensor_match_count_head(const GxTensorMatch *match, const GxTable *t, gx__TensorHead *h)
{
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].has_alias || !gx_name_matches(t->row[i].name, h->pattern)) continue;
        if (t->row[i].role == GX_ROLE_LORA) continue; // no file of weights has it
        h->rows++;
        if (match->entry[i] >= 0) h->found = i;
        else h->absent = i;
    }
}

// A head that the file does not have at all is missing; one that the model does not have at all may be in the file.
static GxStatus gx__tensor_match_head(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                      const GxFamily *family, const gx__TensorHead *h, const char *folder, GxError *err)
{
    char name[GX_NAME];
    if (h->found >= 0 && h->absent >= 0)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has only part of a head: %s, but not %s; it must have all of it or none%s", folder,
                       t->row[h->found].name, t->row[h->absent].name, gx__tensor_match_hint(match));
    for (int i = 0; i < t->n && h->found < 0; i++)
        if (!t->row[i].has_alias && gx_name_matches(t->row[i].name, h->pattern)) match->missing[i] = 1;
    for (int e = 0; e < s->n && !h->rows; e++) {
        if (match->unexpected[e] != 1) continue; // it is the model's
        gx__tensor_match_name(family, t, s->entry[e].name, name);
        if (gx_name_matches(name, h->pattern)) match->unexpected[e] = 2;
    }
    return GX_OK;
}

static GxStatus gx__tensor_match_heads(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                       const GxFamily *family, const char *folder, GxError *err)
{
    const char *heads = family->heads;
    gx__TensorHead h;
    while (gx__tensor_match_next_head(&heads, &h)) {
        gx__tensor_match_count_head(match, t, &h);
        GX_TRY(gx__tensor_match_head(match, s, t, family, &h, folder, err));
    }
    return GX_OK;
}

static GxStatus gx__tensor_match_refuse_unexpected(const GxTensorMatch *match, const GxSafetensors *s,
                                                   const char *folder, GxError *err)
{
    char names[300] = "";
    int unexpected = 0;
    for (int e = 0; e < s->n; e++) {
        if (match->unexpected[e] != 1) continue;
        if (unexpected++ < 3)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.80s", unexpected > 1 ? ", " : "",
                     s->entry[e].name);
    }
    if (!unexpected) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %d tensor%s that this model does not have: %s%s%s", folder, unexpected,
                   unexpected == 1 ? "" : "s", names, unexpected > 3 ? ", ..." : "", gx__tensor_match_hint(match));
}

// Refuses a file in which nothing matches, since it is another model's, and one with LoRA factors, since its weights
// without them are not what was trained.
static GxStatus gx__tensor_match_refuse_other_model(const GxTensorMatch *match, const GxSafetensors *s,
                                                    const GxTable *t, const char *folder, GxError *err)
{
    int found = 0;
    for (int i = 0; i < t->n; i++) found += match->entry[i] >= 0;
    for (int e = 0; e < s->n; e++)
        if (match->unexpected[e] && strstr(s->entry[e].name, ".lora_"))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %s, which belongs to a LoRA, and is not supported in a model: the other weights "
                           "alone are not the model that was trained; merge the LoRA into them first",
                           folder, s->entry[e].name);
    if (found) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has nothing that matches this model by name and shape: it has %d tensors, the first of them %s; "
                   "this model has %s; leave out --model to start from random weights",
                   folder, s->n, s->n ? s->entry[0].name : "none", t->row[0].name);
}

GxStatus gx_tensor_match_compare(const GxSafetensors *s, const GxSafetensorsEntry *a, const GxSafetensorsEntry *b,
                                 int *same, GxError *err)
{
    enum { BLOCK = 4096 };
    float x[BLOCK], y[BLOCK];
    *same = a->elements == b->elements;
    for (int64_t first = 0; *same && first < a->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, a->elements - first);
        GX_TRY(gx_safetensors_read(s, a, first, n, x, err));
        GX_TRY(gx_safetensors_read(s, b, first, n, y, err));
        *same = !memcmp(x, y, (size_t)n * sizeof *x);
    }
    return GX_OK;
}

// A tied tensor may be in the file under both its names; then both must have the same values.
static GxStatus gx__tensor_match_check_alias(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                             int i, const char *folder, GxError *err)
{
    const GxTensor *row = &t->row[i], *to = &t->row[row->alias.index];
    const GxSafetensorsEntry *e, *tied;
    int same;
    if (row->is_saved) return GX_OK; // its own values mean nothing
    GX_TRY(gx_tensor_match_find(&e, s, match, t, i, "", folder, err));
    GX_TRY(gx_tensor_match_find(&tied, s, match, t, row->alias.index, "", folder, err));
    GX_TRY(gx_tensor_match_compare(s, e, tied, &same, err));
    if (same) return GX_OK;
    if (row->role == GX_ROLE_BIAS)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %s and %s are two names of one tensor, but their values differ; remove the wrong one",
                       folder, row->name, to->name);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: config.json ties %s to the embedding, but the file has other values for it; set "
                   "tie_word_embeddings to false, or, if this family cannot have that, remove the wrong one",
                   folder, row->name);
}

static GxStatus gx__tensor_match_check_rows(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const char *folder, GxError *err)
{
    if (match->how == GX_MATCH_ANY) GX_TRY(gx__tensor_match_refuse_other_model(match, s, t, folder, err));
    else GX_TRY(gx__tensor_match_refuse_unexpected(match, s, folder, err));
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].has_alias && match->entry[i] >= 0)
            GX_TRY(gx__tensor_match_check_alias(match, s, t, i, folder, err));
        if (!t->row[i].has_alias && match->entry[i] < 0 && !match->missing[i])
            return gx__tensor_match_refuse_missing(s, gx_tensor_file_name(&t->row[i]), match, folder, err);
    }
    return GX_OK;
}

int gx_tensor_match_is_in_head(const GxFamily *family, const char *in_file)
{
    gx__TensorHead h;
    char name[GX_NAME];
    gx__tensor_match_name(family, NULL, in_file, name);
    const char *heads = family->heads;
    while (gx__tensor_match_next_head(&heads, &h))
        if (gx_name_matches(name, h.pattern)) return 1;
    return 0;
}

GxStatus gx_tensor_match_open(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, GxMatching how,
                              GxError *err)
{
    match->how = how;
    match->entry = (int *)malloc((size_t)(t->n + 1) * sizeof *match->entry);
    match->mismatched = (int *)malloc((size_t)(t->n + 1) * sizeof *match->mismatched);
    match->missing = (unsigned char *)calloc((size_t)t->n + 1, 1);
    match->unexpected = (unsigned char *)calloc((size_t)s->n + 1, 1);
    match->quantized = (unsigned char *)calloc((size_t)t->n + 1, 1);
    if (!match->entry || !match->mismatched || !match->missing || !match->unexpected || !match->quantized)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n + s->n);
    for (int i = 0; i < t->n; i++) match->entry[i] = match->mismatched[i] = -1;
    return GX_OK;
}

GxStatus gx_tensor_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                         GxMatching how, const char *folder, GxError *err)
{
    GX_TRY(gx_tensor_match_open(match, s, t, how, err));
    GX_TRY(gx__tensor_match_names(match, s, t, family, folder, err));
    if (how == GX_MATCH_ANY) gx__tensor_match_shapes(match, s, t);
    gx__tensor_match_tied(match, t);
    gx__tensor_match_copies(match, t);
    if (how == GX_MATCH_ANY) gx__tensor_match_rest(match, t);
    if (how == GX_MATCH_BODY || how == GX_MATCH_BASE) GX_TRY(gx__tensor_match_heads(match, s, t, family, folder, err));
    gx__tensor_match_added(match, t);
    return gx__tensor_match_check_rows(match, s, t, folder, err);
}

static GxStatus gx__tensor_match_check_all_values(const GxSafetensors *s, const GxSafetensorsEntry *e, GxError *err)
{
    enum { BLOCK = 4096 };
    float values[BLOCK];
    for (int64_t first = 0; first < e->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, e->elements - first);
        GX_TRY(gx_safetensors_read(s, e, first, n, values, err));
        GX_TRY(gx_tensor_match_check_finite(s, e, first, values, n, err));
    }
    return GX_OK;
}

GxStatus gx_tensor_match_check(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const char *folder,
                               GxError *err)
{
    for (int i = 0; i < t->n; i++) {
        if (match->entry[i] < 0) continue;
        const GxSafetensorsEntry *e = &s->entry[match->entry[i]];
        GX_TRY(gx__tensor_match_check_shape(e, &t->row[i], match, folder, err));
        GX_TRY(gx__tensor_match_check_all_values(s, e, err));
    }
    return GX_OK;
}

void gx_tensor_match_close(GxTensorMatch *match)
{
    free(match->entry);
    free(match->mismatched);
    free(match->missing);
    free(match->unexpected);
    free(match->quantized);
    memset(match, 0, sizeof *match);
}
#endif
