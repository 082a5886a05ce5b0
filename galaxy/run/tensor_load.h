// tensor_load.h: loads the tensors of a store from a safetensors file: weights, or the optimizer's state.
//
// The contents of a file, and which ranks read and write: tensor_file.h. Which tensor of the file is which row of a
// model: tensor_match.h. Matrices that the model has quantized are quantized as they are read; one that the file has
// quantized by bitsandbytes, in the same way, is loaded as it is.
#ifndef GX_TENSOR_LOAD_H
#define GX_TENSOR_LOAD_H
#include "tensor_file.h"
#include "tensor_match.h"
GX_BEGIN

// Hashes of weights as they were read: of all, and of those before the head, which are the same in a model with another
// head.
typedef struct {
    uint64_t all, body;
} GxWeightsHash;
// Called on all ranks; s is the open file on rank 0, NULL on the others. `match` (on rank 0) says which tensor is
// loaded into which row; NULL: the names are the table's. missing: [rows] rows that are left unchanged; NULL: none. Any
// other tensor that is not in the file, or has another shape, is an error that names it. hash, on rank 0: is updated
// with the weights that were read, except an adapter's; NULL: not wanted.
//
// If the model has more tokens than the file (GxTensorMatch.vocab), each additional row is the mean of the file's rows,
// summed in double, row by row, and rounded once: the same on any number of ranks. (transformers samples them around
// that mean: resize_token_embeddings.) The additional bias of a head is 0, as in transformers, if the head is tied to
// the embedding, otherwise the mean.
void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *missing, GxWeightsHash *hash,
                         const char *folder);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSOR_LOAD_IMPLEMENTED)
#define GX_TENSOR_LOAD_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../io/bnb.h"
#include "quantize.h"

// Updates *hash (FNV-1a over 32-bit words). NULL: does nothing.
static void gx__tensor_load_hash(uint64_t *hash, const float *values, int64_t n)
{
    uint32_t word;
    for (int64_t i = 0; hash && i < n; i++) {
        memcpy(&word, values + i, sizeof word);
        *hash = (*hash ^ word) * GX_HASH_PRIME;
    }
}

typedef struct { // on rank 0: where the values of a tensor come from
    const GxSafetensors *s;
    const GxSafetensorsEntry *e; // NULL: there was an error
    GxPartOf of;
    uint64_t *hash;
    float *more; // [cols] each row after the file's last one; NULL: the file has all of them
    int64_t cols;
    int64_t begin;              // the element of the file's tensor with which the values begin
    const GxTensor *transposed; // the row whose matrix is transposed in the file; NULL: it is not
} gx__TensorSource;

// Elements [first, first + n) of the model's tensor.
static GxStatus gx__tensor_load_take(const gx__TensorSource *from, int64_t first, int64_t n, float *values,
                                     GxError *err)
{
    enum { BLOCK = 4096 };
    float rows[BLOCK];
    const GxTensor *t = from->transposed;
    if (!t) return gx_safetensors_read(from->s, from->e, from->begin + first, n, values, err);
    const int64_t cols = t->global_shape[1];
    for (int64_t c = 0; c < cols; c++) {
        const GxRange run = gx_tensor_file_run(cols, c, first, n);
        for (int64_t at = run.begin; at < run.end; at += BLOCK) {
            const int64_t some = gx_min(BLOCK, run.end - at);
            GX_TRY(gx_safetensors_read(from->s, from->e, gx_tensor_file_column(t, c) + at, some, rows, err));
            for (int64_t r = 0; r < some; r++) values[(at + r) * cols + c - first] = rows[r];
        }
    }
    return GX_OK;
}

static GxStatus gx__tensor_load_mean(const gx__TensorSource *from, double *sum, GxError *err)
{
    const int64_t cols = from->cols, rows = from->e->elements / cols;
    for (int64_t r = 0; r < rows; r++) { // `more` holds a row at a time
        GX_TRY(gx_safetensors_read(from->s, from->e, r * cols, cols, from->more, err));
        for (int64_t c = 0; c < cols; c++) sum[c] += (double)from->more[c];
    }
    for (int64_t c = 0; c < cols; c++) from->more[c] = (float)(sum[c] / (double)rows);
    return GX_OK;
}

// Finds the values of rows after the file's, if the model has more of them. free(from->more), also after an error.
static GxStatus gx__tensor_load_find_more(gx__TensorSource *from, const GxTable *t, int i, GxError *err)
{
    const GxTensor *row = &t->row[i];
    int is_tied = 0; // to the embedding, in the file
    for (int k = 0; k < t->n; k++)
        is_tied |=
            t->row[k].role == GX_ROLE_HEAD && t->row[k].is_vocabulary && (t->row[k].has_alias || t->row[k].copies);
    from->cols = row->ndim == 2 ? row->global_shape[1] : 1;
    if (!row->is_vocabulary || from->e->elements >= gx_tensor_global_count(row) || from->e->elements < from->cols)
        return GX_OK;
    double *sum = (double *)calloc((size_t)from->cols, sizeof *sum);
    from->more = (float *)calloc((size_t)from->cols, sizeof *from->more);
    GxStatus status =
        sum && from->more ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for the mean of the rows of %s", row->name);
    if (status == GX_OK && !(row->role == GX_ROLE_BIAS && is_tied)) status = gx__tensor_load_mean(from, sum, err);
    free(sum);
    return status;
}

// Values of the whole tensor. Does nothing after an error.
static void gx__tensor_load_read_values(GxContext *g, const gx__TensorSource *from, int64_t first, int64_t n,
                                        float *values)
{
    if (!from || gx_failed(g)) return;
    const int64_t there = from->more ? gx_max(0, gx_min(n, from->e->elements - first)) : n;
    if (there && gx__tensor_load_take(from, first, there, values, &g->error) != GX_OK) return;
    for (int64_t k = there; k < n; k++) values[k] = from->more[(first + k) % from->cols];
    if (from->of == GX_PART_ADAPTER && gx_tensor_match_check_finite(from->s, from->e, first, values, there, &g->error))
        return;
    gx__tensor_load_hash(from->hash, values, there);
}

static void gx__tensor_load_whole(GxContext *g, const gx__TensorSource *from, const GxStore *store,
                                  const GxTensorPart *part, int row, float *room)
{
    GxArena *a = gx_host_arena(g);
    const int here = gx_store_holder(store, row), has = here >= 0; // otherwise another stage has it
    const int64_t count = gx_tensor_count(&store->table->row[row]);
    for (int64_t first = 0; first < count; first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = has ? gx_values_write(g, store, part->values, here, first, n) : NULL;
        float *host_copy = has ? (float *)gx_host_copy(g, GX_MEM_WORKSPACE, values, 4 * n) : room;
        gx__tensor_load_read_values(g, from, first, n, host_copy);
        gx_broadcast(g, GX_AXIS_ALL, 0, host_copy, n, GX_F32); // on a failed context this tells the other ranks
        if (has) gx_to_device(g, values, host_copy, 4 * n);
        if (has) gx_values_written(g, store, part->values, here, first, n, values);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
        if (gx_failed(g)) return;
    }
}

static void gx__tensor_load_boxes(GxContext *g, const gx__TensorSource *from, const GxTensor *t, float *values,
                                  void *scratch)
{
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0]; first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        gx__tensor_load_read_values(g, from, first * row, rows * row, (float *)scratch);
        gx_broadcast(g, GX_AXIS_ALL, 0, scratch, rows * row, GX_F32); // on a failed context this tells the other ranks
        if (gx_failed(g)) return;
        if (values) gx_box_take(g, t, values, first, rows, scratch); // otherwise another stage has it
    }
}

static void gx__tensor_load_read(void *from, int64_t first, int64_t n, float *x, GxError *err)
{
    const gx__TensorSource *f = (const gx__TensorSource *)from;
    if (gx__tensor_load_take(f, first, n, x, err) == GX_OK) gx__tensor_load_hash(f->hash, x, n);
}

static void gx__tensor_load_read_codes(void *from, const GxQuantized *whole, int64_t first, int64_t n, uint8_t *codes,
                                       GxError *err)
{
    const gx__TensorSource *f = (const gx__TensorSource *)from;
    if (gx_bnb_read_codes(f->s, f->e->name, whole, first, n, codes, err) == GX_OK && f->hash)
        *f->hash = gx_hash(*f->hash, codes, whole->kind == GX_INT8 ? n : gx_ceil_div(n, 2));
}

static void gx__tensor_load_read_scales(void *from, const GxQuantized *whole, GxError *err)
{
    const gx__TensorSource *f = (const gx__TensorSource *)from;
    if (gx_bnb_read_scales(f->s, f->e->name, whole, err) != GX_OK) return;
    gx__tensor_load_hash(f->hash, whole->scales, gx_quantized_scales(whole));
    if (whole->kind != GX_NF4_DOUBLED) return;
    if (f->hash) *f->hash = gx_hash(*f->hash, whole->scale_codes, gx_quantized_blocks(whole));
    gx__tensor_load_hash(f->hash, whole->offset, 1);
}

// Values are quantized as they are read; a matrix that is quantized in the file is loaded as it is.
static void gx__tensor_load_quantized(GxContext *g, gx__TensorSource *from, const GxStore *store, int i,
                                      int is_quantized)
{
    const GxQuantizedSource source = {gx__tensor_load_read_codes, gx__tensor_load_read_scales, from};
    uint8_t is_loaded_as_is = (uint8_t)is_quantized;
    gx_broadcast(g, GX_AXIS_ALL, 0, &is_loaded_as_is, 1, GX_U8); // only rank 0 has the file open
    if (gx_failed(g)) return;
    if (is_loaded_as_is) gx_quantize_take(g, store, i, &source);
    else gx_quantize_tensor(g, store, i, gx__tensor_load_read, from);
}

// Each rank stores its own part of a tensor that is split.
static void gx__tensor_load_split(GxContext *g, const gx__TensorSource *from, const GxStore *store,
                                  const GxTensorPart *part, int i, void *scratch)
{
    const GxTensor *t = &store->table->row[i];
    const GxArenaMark place = gx_arena_mark(g->arena);
    const int64_t n = gx_tensor_count(t);
    const int here = gx_store_holder(store, i), has = here >= 0;
    float *values = has ? gx_values_write(g, store, part->values, here, 0, n) : NULL;
    gx__tensor_load_boxes(g, from, t, values, scratch);
    if (has) gx_values_written(g, store, part->values, here, 0, n, values);
    gx_arena_release(g->arena, place);
}

// Rank 0 reads and broadcasts. entry->e NULL: this is not rank 0, or there was an error.
static void gx__tensor_load_tensor(GxContext *g, gx__TensorSource *entry, const GxStore *store,
                                   const GxTensorPart *part, int i, void *scratch, float *room)
{
    const gx__TensorSource *from = entry->s ? entry : NULL;
    if (entry->e && !gx_failed(g)) gx__tensor_load_find_more(entry, store->table, i, &g->error);
    if (store->table->row[i].parts) gx__tensor_load_split(g, from, store, part, i, scratch);
    else gx__tensor_load_whole(g, from, store, part, i, room);
    free(entry->more);
}

void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *missing, GxWeightsHash *hash,
                         const char *folder)
{
    const GxTable *t = store->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    void *scratch = gx_tensor_file_scratch(g, t);
    float *room = gx_tensor_file_room(g, store);
    for (int i = 0; i < t->n && !gx_failed(g); i++) {
        const GxSafetensorsEntry *e = NULL;
        if (!gx_tensor_file_has(store, part, i) || (missing && missing[i])) continue;
        if (s) gx_tensor_match_find(&e, s, match, t, i, part->prefix, folder, &g->error);
        uint64_t *own = !hash || t->row[i].is_adapter || t->row[i].copies ? NULL : &hash->all;
        gx__TensorSource from = {s, e, part->of, own, NULL, 0, 0, NULL};
        if (match) from.begin = t->row[i].stack_first * (t->row[i].ndim == 2 ? t->row[i].global_shape[1] : 1);
        if (match && t->row[i].is_transposed) from.transposed = &t->row[i];
        if (t->row[i].quantized) gx__tensor_load_quantized(g, &from, store, i, e && match && match->quantized[i]);
        else gx__tensor_load_tensor(g, &from, store, part, i, scratch, room);
        if (own && t->row[i].unit < t->units - 1) hash->body = hash->all; // before the head
    }
    gx_arena_release(a, mark);
}
#endif
