// tensor_file.h: saves the tensors of a store to a safetensors file and loads them from one: weights, or the
// optimizer's state.
//
// The file, or one file of several, holds each tensor whole, however the ranks split it. Rank 0 writes, and gathers
// from its tp group what it does not have itself; rank 0 also reads, piece by piece, and broadcasts, so that the ranks
// need no shared disk. All ranks meet at a barrier after each tensor that is written, since writing a whole file may
// take longer than the time that a rank waits for another one.
#ifndef GX_TENSOR_FILE_H
#define GX_TENSOR_FILE_H
#include "../base/text.h"
#include "../parallel/boxes.h"
#include "../parallel/values.h"
#include "../comm/comm.h"
#include "../io/bnb.h"
#include "../io/model_folder.h"
#include "../io/safetensors.h"
#include "../model/build.h"
#include "quantize.h"
GX_BEGIN

// In the file a tensor is called prefix + name; the prefix of weights is "", that of the first moment "exp_avg.". With
// GX_PART_ADAPTER it is an error to read a value that is NaN or infinite.
typedef enum {
    GX_PART_ALL = 0,
    GX_PART_ADAPTER, // GxTensor.is_adapter
    GX_PART_WHOLE    // all tensors except those that an adapter adds: a model that needs no adapter
} GxPartOf;
typedef struct {
    const char *prefix;
    GxValues values;
    GxPartOf of;
    int is_bare; // 1: names lack their first component, as in a model without a head: "encoder", not "bert.encoder"
} GxTensorPart;

// What is saved of a quantised matrix beside its values: changes whole rows of it, from `first` on, before they are
// written: w [rows,cols], fp32, in the device's memory.
typedef void (*GxChangeRows)(GxContext *g, const void *self, int row, int64_t first, int64_t rows, float *w);

typedef struct { // what is saved, and how
    const GxTensorPart *part;
    int parts;
    const GxSafetensorsPair *metadata;
    int pairs;
    GxDtype dtype;       // F32, or rounded to BF16 or F16
    int64_t shard_bytes; // largest size of a file, unless it has only one tensor; 0: all tensors go to one file
    GxChangeRows change; // NULL: a quantised matrix is saved as the numbers that it stands for
    const void *self;    // that it gets
} GxTensorSaving;

// Called on all ranks. Rank 0 writes to `path`; the others may pass "". Several files are named as transformers names
// them, PATH-00001-of-00003.safetensors, and PATH.safetensors.index.json says which tensor is in which file. A failure
// to write is an error in `disk`, on rank 0, and not of the context: nothing more is written, but all ranks continue to
// the end together. The same holds for a value that F16 cannot hold (GX_ERR_UNSUPPORTED).
void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorSaving *how, GxError *disk);
// 1: this rank takes part in saving, because it has a part of rank 0's copy of the model: a stage, of a tp group, a
// shard.
int gx_tensor_file_has_part(const GxContext *g, const GxStore *s);

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

// Which tensors of a file are which rows of a model's table; on rank 0. (transformers' terms: missing keys, unexpected
// keys, mismatched keys.)
typedef struct {
    GxMatching how;
    // Set by the caller: so many rows have the embedding and the heads over the vocabulary in the file, where the model
    // has more (GxTensor.is_vocabulary); 0: as many. The others are made when it is loaded: gx_tensor_file_load.
    int64_t vocab;
    int *entry;                // [rows] the tensor in the file; -1: none
    int *mismatched;           // [rows] the tensor in the file that has this name but another shape; -1: none
    unsigned char *missing;    // [rows] 1: nothing is loaded for this row
    unsigned char *unexpected; // [tensors of the file] 1: the model has no row for it; 2: nor that head, ignored
    unsigned char *quantized;  // [rows] 1: the file has it quantised, in the same way as the model
} GxTensorMatch;

// Matches by the family's names. Tensors that an adapter adds to a model are in no file of weights, and are missing.
// Two tensors with the same name are always an error, and so is a tied tensor whose values differ from those it is tied
// to. Call gx_tensor_file_match_close afterwards, also after an error.
GxStatus gx_tensor_file_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                              GxMatching how, const char *folder, GxError *err);
enum { GX_SHAPE_TEXT = 100 };
const char *gx_shape_text(const int64_t *shape, int ndim, char text[GX_SHAPE_TEXT]); // "[32,64]"
void gx_tensor_file_match_close(GxTensorMatch *match);
// If an embedding or a head over the vocabulary has LoRA, peft saves a copy of the matrix itself with the adapter, as
// ….base_layer.weight, and computes with that. Here such copies are not loaded; this checks that they equal the base's
// matrices, and warns of those that do so up to the rounding of their type alone.
GxStatus gx_tensor_file_check_copies(const GxSafetensors *s, const GxSafetensors *base, const GxTensorMatch *of_base,
                                     const GxTable *t, const GxFamily *family, const char *folder, const GxLogger *log,
                                     GxError *err);
int gx_tensor_file_has_copies(const GxSafetensors *s); // 1: the file has such copies
// Checks that the matched tensors can be loaded: their shapes, and that no value is NaN or infinite.
GxStatus gx_tensor_file_check(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const char *folder,
                              GxError *err);

// Hashes of weights as they were read: of all, and of those before the head, which a model with another head has too.
typedef struct {
    uint64_t all, body;
} GxWeightsHash;
// Called on all ranks; s is the open file on rank 0, NULL on the others. `match` (on rank 0) says which tensor is
// loaded into which row; NULL: the names are the table's. missing: [rows] rows that are left unchanged; NULL: none. Any
// other tensor that is not in the file, or has another shape, is an error that names it. hash, on rank 0: is updated
// with the weights that were read, except an adapter's; NULL: not wanted.
//
// Where the model has more tokens than the file (GxTensorMatch.vocab), each of their rows is the mean of the file's,
// summed in double, row by row, and rounded once: the same on any number of ranks. (transformers draws them around that
// mean: resize_token_embeddings.) A bias of a head that is tied to the embedding is 0 there, as in transformers, and of
// another one the mean.
void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *missing, GxWeightsHash *hash,
                         const char *folder);

// Plans the scratch memory of saving, or loading, or both: takes it from a dry arena and gives it back. loads: 1: what
// is loaded are weights, 2: moments, too.
void gx_tensor_file_plan(GxContext *g, const GxStore *s, int saves, int loads);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSOR_FILE_IMPLEMENTED)
#define GX_TENSOR_FILE_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- files that are written ---------------------------------------------------------------------------------------

typedef struct { // on rank 0
    const char *path;
    const GxStore *s;
    const GxTensorSaving *how;
    int *shard_of; // [parts * rows] the number of the file that a tensor goes to, from 0; -1: it is not saved
    int shards, shard;
    int is_open; // the file of number `shard`
    GxSafetensorsWriter w;
} gx__TensorFiles;

static int gx__tensor_file_has(const GxStore *s, const GxTensorPart *part, int row)
{
    const GxTensor *t = &s->table->row[row];
    if (part->of == GX_PART_ADAPTER && !t->is_adapter) return 0;
    if (part->of == GX_PART_WHOLE && t->is_added) return 0;
    return gx_values_exist(s, part->values, row);
}

static int gx__tensor_file_saves(const GxStore *s, const GxTensorPart *part, int row)
{
    const GxTensor *t = &s->table->row[row];
    const int also = t->is_saved && part->values == GX_VALUES_WEIGHTS && part->of != GX_PART_ADAPTER;
    return gx__tensor_file_has(s, part, also ? t->alias.index : row);
}

static void gx__tensor_file_part_name(const GxTensorPart *part, const GxTensor *t, char name[GX_NAME + 32])
{
    const int is_of_side = !strncmp(t->name, GX_SIDE_PREFIX, strlen(GX_SIDE_PREFIX)); // transformers has none of these
    const char *dot = part->is_bare && !is_of_side ? strchr(t->name, '.') : NULL;
    snprintf(name, GX_NAME + 32, "%s%s", part->prefix, dot ? dot + 1 : t->name);
}

// "model.safetensors", or "model-00002-of-00003.safetensors".
static GxStatus gx__tensor_files_path(const gx__TensorFiles *f, int shard, char path[GX_PATH], GxError *err)
{
    static const char suffix[] = ".safetensors";
    const int stem = (int)(strlen(f->path) - strlen(suffix));
    const int n = f->shards == 1
                      ? snprintf(path, GX_PATH, "%s", f->path)
                      : snprintf(path, GX_PATH, "%.*s-%05d-of-%05d%s", stem, f->path, shard + 1, f->shards, suffix);
    if (n < GX_PATH) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
}

static GxStatus gx__tensor_files_assign(gx__TensorFiles *f, GxError *err)
{
    const GxTable *t = f->s->table;
    int64_t bytes = 0;
    f->shard = -1, f->shards = 1;
    f->shard_of = (int *)malloc((size_t)(t->n * f->how->parts + 1) * sizeof *f->shard_of);
    if (!f->shard_of) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n * f->how->parts);
    for (int k = 0; k < t->n * f->how->parts; k++) {
        const GxTensor *row = &t->row[k % t->n];
        int64_t more = (int64_t)gx_dtype_size(f->how->dtype);
        f->shard_of[k] = -1;
        if (!gx__tensor_file_saves(f->s, &f->how->part[k / t->n], k % t->n)) continue;
        for (int d = 0; d < row->ndim; d++) more *= row->global_shape[d];
        if (f->how->shard_bytes && bytes && bytes + more > f->how->shard_bytes) f->shards++, bytes = 0;
        bytes += more;
        f->shard_of[k] = f->shards - 1;
    }
    return GX_OK;
}

static GxStatus gx__tensor_files_finish(gx__TensorFiles *f, GxError *err)
{
    if (!f->is_open) return GX_OK;
    f->is_open = 0;
    return gx_safetensors_finish(&f->w, err);
}

static GxStatus gx__tensor_files_create(gx__TensorFiles *f, GxError *err)
{
    const GxTable *t = f->s->table;
    char path[GX_PATH];
    int n = 0;
    GxSafetensorsEntry *e = (GxSafetensorsEntry *)calloc((size_t)(t->n * f->how->parts + 1), sizeof *e);
    if (!e) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n * f->how->parts);
    for (int k = 0; k < t->n * f->how->parts; k++) {
        const GxTensor *row = &t->row[k % t->n];
        if (f->shard_of[k] != f->shard) continue;
        gx__tensor_file_part_name(&f->how->part[k / t->n], row, e[n].name);
        e[n].dtype = f->how->dtype;
        e[n].ndim = row->ndim;
        memcpy(e[n].shape, row->global_shape, sizeof row->global_shape);
        n++;
    }
    GxStatus status = gx__tensor_files_path(f, f->shard, path, err);
    if (status == GX_OK) status = gx_safetensors_create(&f->w, path, e, n, f->how->metadata, f->how->pairs, err);
    f->is_open = status == GX_OK;
    free(e);
    return status;
}

// Returns the writer of the file that tensor `row` of a part goes to. Opens that file after finishing the one before.
static GxSafetensorsWriter *gx__tensor_files_writer_of(gx__TensorFiles *f, int part, int row, GxError *disk)
{
    const int shard = f->shard_of && !gx_error_code(disk) ? f->shard_of[part * f->s->table->n + row] : f->shard;
    if (gx_error_code(disk)) return NULL;
    if (shard != f->shard && gx__tensor_files_finish(f, disk) == GX_OK) {
        f->shard = shard;
        gx__tensor_files_create(f, disk);
    }
    return f->is_open ? &f->w : NULL;
}

// Writes PATH.safetensors.index.json, if there are several files.
static GxStatus gx__tensor_files_write_index(const gx__TensorFiles *f, GxError *err)
{
    const int rows = f->s->table->n;
    char path[GX_PATH], name[GX_NAME + 32];
    int64_t bytes = 0;
    if (f->shards == 1) return GX_OK;
    GxJson *root = gx_json_new_object(), *metadata = gx_json_new_object(), *map = gx_json_new_object();
    for (int k = 0; k < rows * f->how->parts; k++) {
        if (f->shard_of[k] < 0) continue;
        const GxTensor *row = &f->s->table->row[k % rows];
        int64_t more = (int64_t)gx_dtype_size(f->how->dtype);
        for (int d = 0; d < row->ndim; d++) more *= row->global_shape[d];
        bytes += more;
        gx__tensor_file_part_name(&f->how->part[k / rows], row, name);
        gx__tensor_files_path(f, f->shard_of[k], path, err);
        gx_json_set(map, name, gx_json_new_string(strrchr(path, '/') ? strrchr(path, '/') + 1 : path), err);
    }
    gx_json_set(metadata, "total_size", gx_json_new_int(bytes), err);
    gx_json_set(root, "metadata", metadata, err);
    gx_json_set(root, "weight_map", map, err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK && snprintf(path, GX_PATH, "%s.index.json", f->path) >= GX_PATH)
        status = GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    if (status == GX_OK) status = gx_json_write(root, path, err);
    gx_json_free(root);
    return status;
}

static void gx__tensor_files_close(gx__TensorFiles *f, int is_whole, GxError *disk)
{
    if (is_whole && !gx_error_code(disk)) gx__tensor_files_finish(f, disk);
    if (is_whole && !gx_error_code(disk)) gx__tensor_files_write_index(f, disk);
    if (f->is_open) gx_safetensors_abort(&f->w);
    free(f->shard_of);
}

// A value that would be infinite in fp16 is an error.
static GxStatus gx__tensor_file_write(GxSafetensorsWriter *w, GxDtype dtype, const char *name, int64_t first,
                                      const float *values, int64_t n, GxError *disk)
{
    for (int64_t i = 0; dtype == GX_F16 && i < n; i++)
        if (fabsf(values[i]) >= 65520 && !isinf(values[i]))
            return GX_FAIL(disk, GX_ERR_UNSUPPORTED, "%s has the value %g, and fp16 ends at 65504", name,
                           (double)values[i]);
    return gx_safetensors_write_floats(w, name, first, values, n, disk);
}

// ---- saving --------------------------------------------------------------------------------------------------------

int gx_tensor_file_has_part(const GxContext *g, const GxStore *s)
{
    const int copy = GX_AXIS_TP | GX_AXIS_PP | (s->sharded ? GX_AXIS_FSDP : 0);
    return gx_group_index(g, GX_AXIS_ALL & ~copy) == 0;
}

// What a copy's ranks need to save: which stages have which units, and memory.
typedef struct {
    GxUnits units[GX_MAX_PARTS]; // of each rank of the pipeline
    void *scratch;               // for boxes
    float *room;                 // on rank 0: for values of other stages
} gx__TensorFileRooms;

static void gx__tensor_file_find_units(GxContext *g, const GxStore *s, GxUnits *units)
{
    const int ranks = gx_group_size(g, GX_AXIS_PP);
    const GxSplit one_each = gx_split_even(ranks, ranks);
    units[0] = s->units;
    if (ranks > 1) gx_all_gather(g, GX_AXIS_PP, &one_each, units, &s->units, sizeof *units, GX_U8);
}

// The rank of the pipeline that has the tensor.
static int gx__tensor_file_rank(const GxStore *s, const GxUnits *units, int row)
{
    int rank = 0;
    while (!gx_units_have(&units[rank], s->table->row[row].unit)) rank++;
    return rank;
}

// n values in the host's memory, from the first rank that has a stage to rank 0, which has the first stage.
static void gx__tensor_file_pass(GxContext *g, int stage, float *values, int64_t n)
{
    const int me = gx_group_index(g, GX_AXIS_PP);
    if (stage == 0) return;
    if (me == stage) gx_send(g, GX_AXIS_PP, 0, values, n, GX_F32);
    if (me == 0) gx_recv(g, GX_AXIS_PP, stage, values, n, GX_F32);
}

// 1: this rank is the first of its stage, which sends what the stage has to rank 0.
static int gx__tensor_file_sends(const GxContext *g) { return gx_group_index(g, GX_AXIS_FSDP | GX_AXIS_TP) == 0; }

// The ranks that share a unit read together; else the first of its stage does.
static int gx__tensor_file_reads(const GxContext *g, const GxStore *s, int row)
{
    const int together = s->sharded ? gx_shards_axes(s, gx_store_unit(s, row)) : 0;
    return gx_group_index(g, (GX_AXIS_FSDP | GX_AXIS_TP) & ~together) == 0;
}

// Of a tensor that is not split: the first rank of its stage reads it, with those that share it; rank 0 writes (w is
// NULL on others). Weights without fp32 masters (frozen, in bf16) are widened chunk by chunk, quantised ones in whole
// rows.
static void gx__tensor_file_save_whole(GxContext *g, GxSafetensorsWriter *w, const GxTensorSaving *how,
                                       const char *name, const GxStore *s, GxValues what, int row, int stage,
                                       float *room, GxError *disk)
{
    GxArena *a = gx_host_arena(g);
    const GxTensor *t = &s->table->row[row];
    const int is_quantized = t->quantized && what == GX_VALUES_WEIGHTS, has = gx_store_has(s, row);
    const int64_t count = gx_tensor_count(t), cols = is_quantized ? t->global_shape[1] : 1,
                  step = gx_max(1, GX_STAGE / cols) * cols;
    const int stops = stage == 0 && !s->sharded; // when the disk fails: nobody else is in this
    for (int64_t first = 0; first < count && !gx_failed(g) && !(stops && gx_error_code(disk)); first += step) {
        const int64_t n = gx_min(step, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = has ? gx_values_read(g, s, what, row, first, n) : NULL;
        if (is_quantized && how->change && has && !gx_failed(g))
            how->change(g, how->self, row, first / cols, n / cols, values);
        float *host_copy = has ? (float *)gx_host_copy(g, GX_MEM_WORKSPACE, values, 4 * n) : room;
        if (has) gx_to_host(g, host_copy, values, 4 * n);
        if (gx__tensor_file_sends(g)) gx__tensor_file_pass(g, stage, host_copy, n);
        if (w && !gx_failed(g) && !gx_error_code(disk))
            gx__tensor_file_write(w, how->dtype, name, first, host_copy, n, disk);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
    }
}

// Of a split tensor: the ranks of its stage send their parts to the first of them, and that rank to rank 0.
static void gx__tensor_file_save_boxes(GxContext *g, GxSafetensorsWriter *w, const GxTensorSaving *how,
                                       const char *name, const GxStore *s, GxValues what, int row, int stage,
                                       void *scratch, GxError *disk)
{
    const GxTensor *t = &s->table->row[row];
    const int has = gx_store_has(s, row), is_first = gx_group_index(g, t->split_axes) == 0,
              is_read = gx_group_index(g, GX_AXIS_FSDP) == 0; // by others the values are only read together
    const GxArenaMark place = gx_arena_mark(g->arena);
    const float *values = has ? gx_values_read(g, s, what, row, 0, gx_tensor_count(t)) : NULL;
    const int64_t chunk = gx_box_rows(t), n = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0] && !gx_failed(g); first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        if (has && is_read) gx_box_gather(g, t, values, first, rows, scratch);
        if (is_first && is_read) gx__tensor_file_pass(g, stage, (float *)scratch, rows * n);
        if (w && !gx_failed(g) && !gx_error_code(disk))
            gx__tensor_file_write(w, how->dtype, name, first * n, (const float *)scratch, rows * n, disk);
    }
    gx_arena_release(g->arena, place);
}

// Called on the ranks of one copy of the model. w NULL: this rank does not write.
static void gx__tensor_file_save_tensor(GxContext *g, GxSafetensorsWriter *w, const GxTensorSaving *how,
                                        const GxStore *s, const GxTensorPart *part, int i,
                                        const gx__TensorFileRooms *rooms, GxError *disk)
{
    char name[GX_NAME + 32];
    const GxTensor *t = &s->table->row[i];
    gx__tensor_file_part_name(part, t, name);
    if (t->has_alias) i = t->alias.index; // which has the values
    const int stage = gx__tensor_file_rank(s, rooms->units, i);
    const int takes_part = gx_store_has(s, i) || gx_group_index(g, GX_AXIS_PP) == 0;
    if (!takes_part) return;
    if (t->parts) gx__tensor_file_save_boxes(g, w, how, name, s, part->values, i, stage, rooms->scratch, disk);
    else if (gx__tensor_file_reads(g, s, i))
        gx__tensor_file_save_whole(g, w, how, name, s, part->values, i, stage, rooms->room, disk);
}

static void *gx__tensor_file_boxes_scratch(GxContext *g, const GxTable *t)
{
    const int64_t bytes = gx_boxes_scratch(t);
    return bytes ? gx_allocate_from(g, gx_host_arena(g), GX_MEM_WORKSPACE, bytes) : NULL;
}

// In a pipeline: room in the host's memory for values of tensors that other stages have; NULL: there is none.
static float *gx__tensor_file_room(GxContext *g, const GxStore *s)
{
    const GxTable *t = s->table;
    int64_t most = 0;
    for (int i = 0; i < t->n && gx_group_size(g, GX_AXIS_PP) > 1; i++)
        if (!t->row[i].parts && !gx_store_has(s, i)) most = gx_max(most, gx_min(GX_STAGE, gx_tensor_count(&t->row[i])));
    return most ? (float *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_WORKSPACE, 4 * most) : NULL;
}

// The scratch that values of a row pass through, if they do. A copy that the last stage has of a tied tensor is loaded,
// and not saved.
static void gx__tensor_file_plan_values(GxContext *g, const GxStore *s, GxValues what, int row, int saves)
{
    const GxTensor *t = &s->table->row[row];
    const int64_t count = gx_tensor_count(t);
    const int here = !saves ? gx_store_holder(s, row) : gx_store_has(s, row) ? row : -1;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    if (!t->quantized && gx_values_exist(s, what, row) && here >= 0)
        gx_values_write(g, s, what, here, 0, t->parts ? count : gx_min(GX_STAGE, count));
    gx_arena_release(g->arena, mark);
}

// Of one file, which is saved, or loaded. moments: 1: it may have the optimizer's.
static void gx__tensor_file_plan_once(GxContext *g, const GxStore *s, int saves, int moments)
{
    const GxTable *t = s->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    int64_t most = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->row[i].parts) most = gx_max(most, gx_min(GX_STAGE, gx_tensor_count(&t->row[i])));
    gx__tensor_file_boxes_scratch(g, t);
    if (!saves || g->rank == 0) gx__tensor_file_room(g, s);
    gx_host_copy(g, GX_MEM_WORKSPACE, a->base, 4 * most);
    for (int i = 0; i < t->n; i++) {
        if (saves && !t->row[i].parts && !gx__tensor_file_reads(g, s, i)) continue;
        if (t->row[i].quantized) gx_quantize_plan(g, s, i);
        gx__tensor_file_plan_values(g, s, GX_VALUES_WEIGHTS, i, saves);
        if (moments && s->moment[0]) gx__tensor_file_plan_values(g, s, GX_VALUES_MOMENT_1, i, saves);
    }
    gx_arena_release(a, mark);
}

void gx_tensor_file_plan(GxContext *g, const GxStore *s, int saves, int loads)
{
    if (saves) gx__tensor_file_plan_once(g, s, 1, 1);
    if (loads) gx__tensor_file_plan_once(g, s, 0, loads == 2);
}

void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorSaving *how, GxError *disk)
{
    const GxTable *t = s->table;
    gx__TensorFiles files = GX_ZERO;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int writes = g->rank == 0, has_part = gx_tensor_file_has_part(g, s);
    gx__TensorFileRooms rooms = GX_ZERO;
    if (has_part) gx__tensor_file_find_units(g, s, rooms.units);
    rooms.scratch = has_part ? gx__tensor_file_boxes_scratch(g, t) : NULL;
    rooms.room = writes ? gx__tensor_file_room(g, s) : NULL;
    files.path = path, files.s = s, files.how = how;
    if (writes && !gx_error_code(disk)) gx__tensor_files_assign(&files, disk);
    for (int p = 0; p < how->parts; p++)
        for (int i = 0; i < t->n && !gx_failed(g); i++) {
            if (!gx__tensor_file_saves(s, &how->part[p], i)) continue;
            GxSafetensorsWriter *w = writes ? gx__tensor_files_writer_of(&files, p, i, disk) : NULL;
            if (has_part) gx__tensor_file_save_tensor(g, w, how, s, &how->part[p], i, &rooms, disk);
            gx_barrier(g, GX_AXIS_ALL);
        }
    if (writes) gx__tensor_files_close(&files, !gx_failed(g), disk);
    gx_barrier(g, GX_AXIS_ALL);
    gx_arena_release(a, mark);
}

const char *gx_shape_text(const int64_t *shape, int ndim, char text[GX_SHAPE_TEXT])
{
    int n = snprintf(text, GX_SHAPE_TEXT, "[");
    for (int d = 0; d < ndim && n < GX_SHAPE_TEXT; d++)
        n += snprintf(text + n, (size_t)(GX_SHAPE_TEXT - n), "%s%ld", d ? "," : "", (long)shape[d]);
    if (n < GX_SHAPE_TEXT) snprintf(text + n, (size_t)(GX_SHAPE_TEXT - n), "]");
    return text;
}

// The shape that a row of the table has in the file. match NULL: its own.
static void gx__tensor_file_shape(const GxTensor *row, const GxTensorMatch *match, int64_t shape[GX_MAX_DIMS])
{
    memcpy(shape, row->global_shape, sizeof row->global_shape);
    if (match && match->vocab && row->is_vocabulary) shape[0] = match->vocab;
}

static int gx__tensor_file_has_shape(const GxSafetensorsEntry *e, const GxTensor *row, const GxTensorMatch *match)
{
    int64_t shape[GX_MAX_DIMS];
    int same = e->ndim == row->ndim;
    gx__tensor_file_shape(row, match, shape);
    for (int d = 0; same && d < row->ndim; d++) same = e->shape[d] == shape[d];
    return same;
}

// The end of an error message, which says what else can be done when training starts from these weights.
static const char *gx__tensor_file_hint(const GxTensorMatch *match)
{
    return match && match->how == GX_MATCH_BODY ? "; --strict false takes what matches, and draws the rest" : "";
}

static GxStatus gx__tensor_file_check_shape(const GxSafetensorsEntry *e, const GxTensor *row,
                                            const GxTensorMatch *match, const char *folder, GxError *err)
{
    char theirs[GX_SHAPE_TEXT], ours[GX_SHAPE_TEXT];
    int64_t shape[GX_MAX_DIMS];
    gx__tensor_file_shape(row, match, shape);
    if (gx__tensor_file_has_shape(e, row, match)) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: tensor %s has the shape %s; this model's has %s%s", folder, e->name,
                   gx_shape_text(e->shape, e->ndim, theirs), gx_shape_text(shape, row->ndim, ours),
                   gx__tensor_file_hint(match));
}

static GxStatus gx__tensor_file_refuse_missing(const GxSafetensors *s, const char *name, const GxTensorMatch *match,
                                               const char *folder, GxError *err)
{
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has no tensor %s, which this model needs (it has %d tensors; is it of another model?)%s", folder,
                   name, s->n, gx__tensor_file_hint(match));
}

// Finds the tensor of row i: through the match, or without one by its name with the part's prefix.
static GxStatus gx__tensor_file_find_tensor(const GxSafetensorsEntry **entry, const GxSafetensors *s,
                                            const GxTensorMatch *match, const GxTable *t, int i, const char *prefix,
                                            const char *folder, GxError *err)
{
    char name[GX_NAME + 32];
    snprintf(name, sizeof name, "%s%s", prefix, t->row[i].name);
    if (match) *entry = match->entry[i] < 0 ? NULL : &s->entry[match->entry[i]];
    else *entry = gx_safetensors_find(s, name);
    if (match && match->quantized[i]) return GX_OK; // its shape was checked when it was matched
    return *entry ? gx__tensor_file_check_shape(*entry, &t->row[i], match, folder, err)
                  : gx__tensor_file_refuse_missing(s, name, match, folder, err);
}

// Updates *hash (FNV-1a over 32-bit words). NULL: does nothing.
static void gx__tensor_file_hash(uint64_t *hash, const float *values, int64_t n)
{
    uint32_t word;
    for (int64_t i = 0; hash && i < n; i++) {
        memcpy(&word, values + i, sizeof word);
        *hash = (*hash ^ word) * GX_HASH_PRIME;
    }
}

static GxStatus gx__tensor_file_check_values(const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first,
                                             const float *values, int64_t n, GxError *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return GX_FAIL(
                err, GX_ERR_FORMAT,
                "%s: value %ld of %s is %g; an adapter has finite ones alone: its training diverged, or the file "
                "is damaged",
                s->file[e->file].path, (long)(first + i), e->name, (double)values[i]);
    return GX_OK;
}

typedef struct { // on rank 0: where the values of a tensor come from
    const GxSafetensors *s;
    const GxSafetensorsEntry *e; // NULL: there was an error
    GxPartOf of;
    uint64_t *hash;
    float *more; // [cols] each row behind the file's last one; NULL: the file has all of them
    int64_t cols;
} gx__TensorFileEntry;

static GxStatus gx__tensor_file_mean(const gx__TensorFileEntry *from, double *sum, GxError *err)
{
    const int64_t cols = from->cols, rows = from->e->elements / cols;
    for (int64_t r = 0; r < rows; r++) { // `more` is room for a row
        GX_TRY(gx_safetensors_read(from->s, from->e, r * cols, cols, from->more, err));
        for (int64_t c = 0; c < cols; c++) sum[c] += (double)from->more[c];
    }
    for (int64_t c = 0; c < cols; c++) from->more[c] = (float)(sum[c] / (double)rows);
    return GX_OK;
}

// What rows behind the file's are, if the model has more of them. free(from->more), also after an error.
static GxStatus gx__tensor_file_find_more(gx__TensorFileEntry *from, const GxTable *t, int i, GxError *err)
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
    if (status == GX_OK && !(row->role == GX_ROLE_BIAS && is_tied)) status = gx__tensor_file_mean(from, sum, err);
    free(sum);
    return status;
}

// Values of the whole tensor. Does nothing after an error.
static void gx__tensor_file_read_values(GxContext *g, const gx__TensorFileEntry *from, int64_t first, int64_t n,
                                        float *values)
{
    if (!from || gx_failed(g)) return;
    const int64_t there = from->more ? gx_max(0, gx_min(n, from->e->elements - first)) : n;
    if (there && gx_safetensors_read(from->s, from->e, first, there, values, &g->error) != GX_OK) return;
    for (int64_t k = there; k < n; k++) values[k] = from->more[(first + k) % from->cols];
    if (from->of == GX_PART_ADAPTER && gx__tensor_file_check_values(from->s, from->e, first, values, there, &g->error))
        return;
    gx__tensor_file_hash(from->hash, values, there);
}

static void gx__tensor_file_load_whole(GxContext *g, const gx__TensorFileEntry *from, const GxStore *store,
                                       const GxTensorPart *part, int row, float *room)
{
    GxArena *a = gx_host_arena(g);
    const int here = gx_store_holder(store, row), has = here >= 0; // else another stage has
    const int64_t count = gx_tensor_count(&store->table->row[row]);
    for (int64_t first = 0; first < count; first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = has ? gx_values_write(g, store, part->values, here, first, n) : NULL;
        float *host_copy = has ? (float *)gx_host_copy(g, GX_MEM_WORKSPACE, values, 4 * n) : room;
        gx__tensor_file_read_values(g, from, first, n, host_copy);
        gx_broadcast(g, GX_AXIS_ALL, 0, host_copy, n, GX_F32); // on a failed context this tells the other ranks
        if (has) gx_to_device(g, values, host_copy, 4 * n);
        if (has) gx_values_written(g, store, part->values, here, first, n, values);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
        if (gx_failed(g)) return;
    }
}

static void gx__tensor_file_load_boxes(GxContext *g, const gx__TensorFileEntry *from, const GxTensor *t, float *values,
                                       void *scratch)
{
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0]; first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        gx__tensor_file_read_values(g, from, first * row, rows * row, (float *)scratch);
        gx_broadcast(g, GX_AXIS_ALL, 0, scratch, rows * row, GX_F32); // on a failed context this tells the other ranks
        if (gx_failed(g)) return;
        if (values) gx_box_take(g, t, values, first, rows, scratch); // else another stage has the tensor
    }
}

static void gx__tensor_file_read(void *from, int64_t first, int64_t n, float *x, GxError *err)
{
    const gx__TensorFileEntry *f = (const gx__TensorFileEntry *)from;
    if (gx_safetensors_read(f->s, f->e, first, n, x, err) == GX_OK) gx__tensor_file_hash(f->hash, x, n);
}

static void gx__tensor_file_read_codes(void *from, const GxQuantized *whole, int64_t first, int64_t n, uint8_t *codes,
                                       GxError *err)
{
    const gx__TensorFileEntry *f = (const gx__TensorFileEntry *)from;
    if (gx_bnb_read_codes(f->s, f->e->name, whole, first, n, codes, err) == GX_OK && f->hash)
        *f->hash = gx_hash(*f->hash, codes, whole->kind == GX_INT8 ? n : gx_ceil_div(n, 2));
}

static void gx__tensor_file_read_scales(void *from, const GxQuantized *whole, GxError *err)
{
    const gx__TensorFileEntry *f = (const gx__TensorFileEntry *)from;
    if (gx_bnb_read_scales(f->s, f->e->name, whole, err) != GX_OK) return;
    gx__tensor_file_hash(f->hash, whole->scales, gx_quantized_scales(whole));
    if (whole->kind != GX_NF4_DOUBLED) return;
    if (f->hash) *f->hash = gx_hash(*f->hash, whole->scale_codes, gx_quantized_blocks(whole));
    gx__tensor_file_hash(f->hash, whole->offset, 1);
}

// Values are quantised as they are read; a matrix that is quantised in the file is loaded as it is.
static void gx__tensor_file_load_quantized(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                           const GxStore *store, int i, int is_quantized, uint64_t *hash)
{
    gx__TensorFileEntry from = {s, e, GX_PART_ALL, hash, NULL, 0};
    const GxQuantizedSource source = {gx__tensor_file_read_codes, gx__tensor_file_read_scales, &from};
    uint8_t is_loaded_as_is = (uint8_t)is_quantized;
    gx_broadcast(g, GX_AXIS_ALL, 0, &is_loaded_as_is, 1, GX_U8); // only rank 0 has the file open
    if (gx_failed(g)) return;
    if (is_loaded_as_is) gx_quantize_take(g, store, i, &source);
    else gx_quantize_tensor(g, store, i, gx__tensor_file_read, &from);
}

// Each rank stores its own part of a tensor that is split.
static void gx__tensor_file_load_split(GxContext *g, const gx__TensorFileEntry *from, const GxStore *store,
                                       const GxTensorPart *part, int i, void *scratch)
{
    const GxTensor *t = &store->table->row[i];
    const GxArenaMark place = gx_arena_mark(g->arena);
    const int64_t n = gx_tensor_count(t);
    const int here = gx_store_holder(store, i), has = here >= 0;
    float *values = has ? gx_values_write(g, store, part->values, here, 0, n) : NULL;
    gx__tensor_file_load_boxes(g, from, t, values, scratch);
    if (has) gx_values_written(g, store, part->values, here, 0, n, values);
    gx_arena_release(g->arena, place);
}

// Rank 0 reads and broadcasts. e NULL: this is not rank 0, or there was an error.
static void gx__tensor_file_load_tensor(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                        const GxStore *store, const GxTensorPart *part, int i, void *scratch,
                                        float *room, uint64_t *hash)
{
    gx__TensorFileEntry entry = {s, e, part->of, hash, NULL, 0}, *from = s ? &entry : NULL;
    if (e && !gx_failed(g)) gx__tensor_file_find_more(&entry, store->table, i, &g->error);
    if (store->table->row[i].parts) gx__tensor_file_load_split(g, from, store, part, i, scratch);
    else gx__tensor_file_load_whole(g, from, store, part, i, room);
    free(entry.more);
}

void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *missing, GxWeightsHash *hash,
                         const char *folder)
{
    const GxTable *t = store->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    void *scratch = gx__tensor_file_boxes_scratch(g, t);
    float *room = gx__tensor_file_room(g, store);
    for (int i = 0; i < t->n && !gx_failed(g); i++) {
        const GxSafetensorsEntry *e = NULL;
        if (!gx__tensor_file_has(store, part, i) || (missing && missing[i])) continue;
        if (s) gx__tensor_file_find_tensor(&e, s, match, t, i, part->prefix, folder, &g->error);
        uint64_t *own = !hash || t->row[i].is_adapter || t->row[i].copies ? NULL : &hash->all;
        if (t->row[i].quantized)
            gx__tensor_file_load_quantized(g, s, e, store, i, e && match && match->quantized[i], own);
        else gx__tensor_file_load_tensor(g, s, e, store, part, i, scratch, room, own);
        if (own && t->row[i].unit < t->units - 1) hash->body = hash->all; // before the head
    }
    gx_arena_release(a, mark);
}

// ---- which tensor is which -----------------------------------------------------------------------------------------

// The row that a tensor of the file is for; -1: none; -2: none, and the family says that it may be ignored.
static int gx__tensor_file_row(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME] = "";
    if (!family->tensor_name) return gx_table_find(t, in_file).index;
    if (strlen(in_file) + 16 > GX_NAME) return -1; // no row has such a long name; 16: room for a prefix
    return family->tensor_name(in_file, name) ? gx_table_find(t, name).index : -2;
}

// Marks row i if the file has its matrix quantised; an error if the model does not have it quantised in the same way.
static GxStatus gx__tensor_file_match_quantized(GxTensorMatch *match, const GxSafetensors *s,
                                                const GxSafetensorsEntry *e, const GxTable *t, int i,
                                                const char *folder, GxError *err)
{
    const GxTensor *row = &t->row[i];
    GxBnbMatrix m;
    GX_TRY(gx_bnb_find(s, e->name, &m, err));
    if (!m.is_quantized) return GX_OK;
    const char *theirs = gx_quantize_name(1 + (int)m.kind);
    if (row->quantized != 1 + (int)m.kind)
        return GX_FAIL(
            err, GX_ERR_UNSUPPORTED,
            "%s has %s quantised by bitsandbytes (%s), and here it is %s: a matrix of attention or MLP stays "
            "as it is with --quantize %s, where nothing trains it (--tuning lora) or it is written with; "
            "else name a folder in fp32, bf16 or fp16",
            folder, e->name, theirs, row->quantized ? gx_quantize_name(row->quantized) : "in numbers", theirs);
    if (row->ndim != 2 || m.rows != row->global_shape[0] || m.cols != row->global_shape[1])
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s has the shape [%ld,%ld]; this model's has [%ld,%ld]", folder,
                       e->name, (long)m.rows, (long)m.cols, (long)row->global_shape[0], (long)row->global_shape[1]);
    match->quantized[i] = 1;
    return GX_OK;
}

static GxStatus gx__tensor_file_match_names(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const GxFamily *family, const char *folder, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        if (gx_bnb_is_part(s, s->entry[e].name)) continue; // read with its matrix
        int row = gx__tensor_file_row(t, family, s->entry[e].name);
        if (row >= 0 && t->row[row].is_added) row = -1; // a base has no tensors that an adapter adds
        match->unexpected[e] = row == -1;
        if (row < 0) continue;
        if (match->how == GX_MATCH_BASE && t->row[row].is_adapter &&
            !gx__tensor_file_has_shape(&s->entry[e], &t->row[row], match))
            continue;
        if (match->entry[row] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %s and %s, which are two names of one tensor; remove one of them", folder,
                           s->entry[match->entry[row]].name, s->entry[e].name);
        match->entry[row] = e;
        GX_TRY(gx__tensor_file_match_quantized(match, s, &s->entry[e], t, row, folder, err));
    }
    return GX_OK;
}

static void gx__tensor_file_match_shapes(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (match->entry[i] >= 0 && !match->quantized[i] &&
            !gx__tensor_file_has_shape(&s->entry[match->entry[i]], &t->row[i], match)) {
            match->mismatched[i] = match->entry[i];
            match->entry[i] = -1;
        }
}

// A file may have either of two names that are tied.
static void gx__tensor_file_match_tied(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++) {
        if (!t->row[i].has_alias || match->entry[i] < 0 || match->entry[t->row[i].alias.index] >= 0) continue;
        match->entry[t->row[i].alias.index] = match->entry[i];
        match->entry[i] = -1;
    }
}

// A tensor that is tied in the file but not in the model is loaded from the one that it is tied to.
static void gx__tensor_file_match_copies(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].copies && match->entry[i] < 0) match->entry[i] = match->entry[t->row[i].copies - 1];
}

// Rows without an entry are missing. A mismatched tensor whose row is not missing (it is tied) is unexpected.
static void gx__tensor_file_match_rest(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++) {
        match->missing[i] = !t->row[i].has_alias && match->entry[i] < 0;
        if (match->missing[i] || match->mismatched[i] < 0) continue;
        match->unexpected[match->mismatched[i]] = 1;
        match->mismatched[i] = -1;
    }
}

// Tensors that an adapter adds are missing, and so are those of its own that a base does not have.
static void gx__tensor_file_match_added(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].is_added || (match->how == GX_MATCH_BASE && t->row[i].is_adapter && match->entry[i] < 0))
            match->missing[i] = 1;
}

// The family's name of a tensor that this model does not have.
static void gx__tensor_file_name(const GxFamily *family, const char *in_file, char name[GX_NAME])
{
    snprintf(name, GX_NAME, "%.127s", in_file);
    if (family->tensor_name && strlen(in_file) + 16 <= GX_NAME) family->tensor_name(in_file, name);
}

// A head of the family: the pattern that its tensors' names match.
typedef struct {
    char pattern[GX_NAME];
    int rows;          // how many rows of the model's table match
    int found, absent; // the last of them that the file has, and the last that it does not have; -1: none
} gx__TensorHead;

static int gx__tensor_file_next_head(const char **heads, gx__TensorHead *h)
{
    GxTextItem head;
    if (!gx_text_next(heads, &head)) return 0;
    snprintf(h->pattern, sizeof h->pattern, "%.*s", (int)head.n, head.at);
    h->rows = 0, h->found = h->absent = -1;
    return 1;
}

static void gx__tensor_file_count_head(const GxTensorMatch *match, const GxTable *t, gx__TensorHead *h)
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
static GxStatus gx__tensor_file_match_head(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                           const GxFamily *family, const gx__TensorHead *h, const char *folder,
                                           GxError *err)
{
    char name[GX_NAME];
    if (h->found >= 0 && h->absent >= 0)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has a part of a head: %s, but not %s; all of it must be there, or nothing%s", folder,
                       t->row[h->found].name, t->row[h->absent].name, gx__tensor_file_hint(match));
    for (int i = 0; i < t->n && h->found < 0; i++)
        if (!t->row[i].has_alias && gx_name_matches(t->row[i].name, h->pattern)) match->missing[i] = 1;
    for (int e = 0; e < s->n && !h->rows; e++) {
        if (match->unexpected[e] != 1) continue; // it is the model's
        gx__tensor_file_name(family, s->entry[e].name, name);
        if (gx_name_matches(name, h->pattern)) match->unexpected[e] = 2;
    }
    return GX_OK;
}

static GxStatus gx__tensor_file_match_heads(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const GxFamily *family, const char *folder, GxError *err)
{
    const char *heads = family->heads;
    gx__TensorHead h;
    while (gx__tensor_file_next_head(&heads, &h)) {
        gx__tensor_file_count_head(match, t, &h);
        GX_TRY(gx__tensor_file_match_head(match, s, t, family, &h, folder, err));
    }
    return GX_OK;
}

static GxStatus gx__tensor_file_refuse_unexpected(const GxTensorMatch *match, const GxSafetensors *s,
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
                   unexpected == 1 ? "" : "s", names, unexpected > 3 ? ", ..." : "", gx__tensor_file_hint(match));
}

// Refuses a file in which nothing matches, since it is another model's, and one with LoRA factors, since its weights
// without them are not what was trained.
static GxStatus gx__tensor_file_refuse_other_model(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                                   const char *folder, GxError *err)
{
    int found = 0;
    for (int i = 0; i < t->n; i++) found += match->entry[i] >= 0;
    for (int e = 0; e < s->n; e++)
        if (match->unexpected[e] && strstr(s->entry[e].name, ".lora_"))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %s, of a LoRA, which is not built: the other weights alone are not the model that "
                           "was trained; merge it into them first",
                           folder, s->entry[e].name);
    if (found) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has nothing that matches this model, by name and shape: it has %d tensors, the first of them "
                   "%s; this model has %s; leave out --model to begin with drawn weights",
                   folder, s->n, s->n ? s->entry[0].name : "none", t->row[0].name);
}

static GxStatus gx__tensor_file_compare(const GxSafetensors *s, const GxSafetensorsEntry *a,
                                        const GxSafetensorsEntry *b, int *same, GxError *err)
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
static GxStatus gx__tensor_file_check_alias(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, int i,
                                            const char *folder, GxError *err)
{
    const GxTensor *row = &t->row[i], *to = &t->row[row->alias.index];
    const GxSafetensorsEntry *e, *tied;
    int same;
    if (row->is_saved) return GX_OK; // its own values mean nothing
    GX_TRY(gx__tensor_file_find_tensor(&e, s, match, t, i, "", folder, err));
    GX_TRY(gx__tensor_file_find_tensor(&tied, s, match, t, row->alias.index, "", folder, err));
    GX_TRY(gx__tensor_file_compare(s, e, tied, &same, err));
    if (same) return GX_OK;
    if (row->role == GX_ROLE_BIAS)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %s and %s are two names of one tensor, but their values differ; "
                       "remove the one that is not meant",
                       folder, row->name, to->name);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s: config.json ties %s to the embedding, but the file has other values for it; set "
                   "tie_word_embeddings to false",
                   folder, row->name);
}

static GxStatus gx__tensor_file_check_match(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const char *folder, GxError *err)
{
    if (match->how == GX_MATCH_ANY) GX_TRY(gx__tensor_file_refuse_other_model(match, s, t, folder, err));
    else GX_TRY(gx__tensor_file_refuse_unexpected(match, s, folder, err));
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].has_alias && match->entry[i] >= 0)
            GX_TRY(gx__tensor_file_check_alias(match, s, t, i, folder, err));
        if (!t->row[i].has_alias && match->entry[i] < 0 && !match->missing[i])
            return gx__tensor_file_refuse_missing(s, t->row[i].name, match, folder, err);
    }
    return GX_OK;
}

// ---- which tensor of an adapter is which ---------------------------------------------------------------------------

static int gx__tensor_file_is_in_head(const GxFamily *family, const char *in_file)
{
    gx__TensorHead h;
    char name[GX_NAME];
    gx__tensor_file_name(family, in_file, name);
    const char *heads = family->heads;
    while (gx__tensor_file_next_head(&heads, &h))
        if (gx_name_matches(name, h.pattern)) return 1;
    return 0;
}

#define GX__TENSOR_FILE_COPY ".base_layer.weight"
#define GX__TENSOR_FILE_NOTE ".lora_velora_embed" // of peft's VeLoRA, for its backward alone: what is computed lacks it

// For a tensor X.base_layer.weight, the row of X.weight, if that has LoRA; -1: the tensor is no such copy.
static int gx__tensor_file_copy_of(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME];
    const int64_t prefix = (int64_t)strlen(GX_PEFT_PREFIX), n = gx_text_stem(in_file, GX__TENSOR_FILE_COPY) - prefix;
    if (n < 0) return -1;
    snprintf(name, sizeof name, "%.*s.weight", (int)n, in_file + prefix);
    const int row = n + 8 < GX_NAME ? gx__tensor_file_row(t, family, name) : -1;
    return row >= 0 && t->row[row].has_lora ? row : -1;
}

// The row of the adapter that a tensor of the file is for; -2: none, and it may be ignored.
static GxStatus gx__tensor_file_adapter_row(int *row, GxMatching how, const GxTable *t, const GxFamily *family,
                                            const char *in_file, const char *folder, GxError *err)
{
    const size_t n = strlen(GX_PEFT_PREFIX);
    if (strncmp(in_file, GX_PEFT_PREFIX, n))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has the tensor %.120s; names of an adapter's begin with " GX_PEFT_PREFIX,
                       folder, in_file);
    const int is_note = gx_text_stem(in_file, GX__TENSOR_FILE_NOTE) > 0;
    *row =
        is_note || gx__tensor_file_copy_of(t, family, in_file) >= 0 ? -2 : gx__tensor_file_row(t, family, in_file + n);
    if (*row == -1 && how == GX_MATCH_BARE_ADAPTER && gx__tensor_file_is_in_head(family, in_file + n)) *row = -2;
    if (*row == -2 || (*row >= 0 && t->row[*row].is_adapter)) return GX_OK;
    if (gx__tensor_file_is_in_head(family, in_file + n) &&
        (strstr(in_file, ".score.") || strstr(in_file, ".classifier.")))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has %.120s: it is an adapter for classification, and the model is opened without such a "
                       "head; use train_* --task classification --predict",
                       folder, in_file);
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has %.120s, which is none of the tensors that its adapter_config.json says (target_modules, "
                   "modules_to_save), or none of this model's adapter; is it of another one?",
                   folder, in_file);
}

// Where the vocabulary was resized, peft 0.21 saves the embedding and the head three times (save_embedding_layers):
// X.weight, which it computes with; X.modules_to_save.weight, the same once more; X.original_module.weight, the base's.
static GxStatus gx__tensor_file_is_same(const GxSafetensors *s, const GxSafetensorsEntry *e, const char *folder,
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
        if (own && i == 1) GX_TRY(gx__tensor_file_compare(s, own, e, &same, err));
    }
    if (same) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has %.120s and %.120s, which peft saves as one tensor, and their values differ; remove the one "
                   "that is not meant",
                   folder, name, e->name);
}

// A tensor of the base's own may be missing from the adapter's file, unless adapter_config.json names it or it is a
// norm that the method trains.
static GxStatus gx__tensor_file_match_adapter(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                              const GxFamily *family, const char *folder, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        int row = -1, is_host_copy;
        GX_TRY(gx__tensor_file_is_same(s, &s->entry[e], folder, &is_host_copy, err));
        if (is_host_copy) continue;
        GX_TRY(gx__tensor_file_adapter_row(&row, match->how, t, family, s->entry[e].name, folder, err));
        if (row < 0) continue;
        if (match->entry[row] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %.120s and %.120s, which are two names of one tensor; remove one of them", folder,
                           s->entry[match->entry[row]].name, s->entry[e].name);
        match->entry[row] = e;
    }
    for (int i = 0; i < t->n; i++) {
        match->missing[i] = match->entry[i] < 0;
        const int is_norm = t->row[i].is_adapter && t->row[i].role == GX_ROLE_NORM;
        if (match->missing[i] && (t->row[i].is_added || is_norm || (t->row[i].is_named && !t->row[i].has_alias)))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s has no tensor " GX_PEFT_PREFIX "%s, which the adapter needs", folder,
                           t->row[i].name);
    }
    return GX_OK;
}

GxStatus gx_tensor_file_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                              GxMatching how, const char *folder, GxError *err)
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
    if (how == GX_MATCH_ADAPTER || how == GX_MATCH_BARE_ADAPTER)
        return gx__tensor_file_match_adapter(match, s, t, family, folder, err);
    GX_TRY(gx__tensor_file_match_names(match, s, t, family, folder, err));
    if (how == GX_MATCH_ANY) gx__tensor_file_match_shapes(match, s, t);
    gx__tensor_file_match_tied(match, t);
    gx__tensor_file_match_copies(match, t);
    if (how == GX_MATCH_ANY) gx__tensor_file_match_rest(match, t);
    if (how == GX_MATCH_BODY || how == GX_MATCH_BASE)
        GX_TRY(gx__tensor_file_match_heads(match, s, t, family, folder, err));
    gx__tensor_file_match_added(match, t);
    return gx__tensor_file_check_match(match, s, t, folder, err);
}

int gx_tensor_file_has_copies(const GxSafetensors *s)
{
    for (int e = 0; e < s->n; e++)
        if (gx_text_stem(s->entry[e].name, GX__TENSOR_FILE_COPY) > 0) return 1;
    return 0;
}

// The largest rounding error of x in a type: half a unit in the last place; for fp16 also half its smallest subnormal.
static float gx__tensor_file_rounding(int dtype, float x)
{
    return dtype == GX_BF16 ? 0x1p-8f * fabsf(x) : dtype == GX_F16 ? 0x1p-11f * fabsf(x) + 0x1p-25f : 0;
}

static GxStatus gx__tensor_file_check_copy(const GxSafetensors *s, const GxSafetensorsEntry *copy,
                                           const GxSafetensors *base, const GxSafetensorsEntry *own, const char *folder,
                                           const GxLogger *log, GxError *err)
{
    enum { BLOCK = 4096 };
    float theirs[BLOCK], ours[BLOCK];
    int is_same = own && own->elements == copy->elements, is_rounded = 0;
    for (int64_t first = 0; is_same && first < copy->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, copy->elements - first);
        GX_TRY(gx_safetensors_read(s, copy, first, n, theirs, err));
        GX_TRY(gx_safetensors_read(base, own, first, n, ours, err));
        for (int64_t i = 0; i < n; i++)
            is_same &= fabsf(theirs[i] - ours[i]) <= gx__tensor_file_rounding(copy->dtype, ours[i]),
                is_rounded |= theirs[i] != ours[i];
    }
    if (is_same && is_rounded)
        gx_log(
            log, GX_LOG_WARNING,
            "%s has %.120s, a copy of the base's matrix that is rounded to %s: peft computes with the copy, and here "
            "it is the base's",
            folder, copy->name, copy->dtype_name);
    if (is_same) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s has %.120s, a copy of the matrix that peft saves with LoRA on it, and its values are not those "
                   "of the base, which are used here: is it the adapter of another model, or one with more tokens?",
                   folder, copy->name);
}

GxStatus gx_tensor_file_check_copies(const GxSafetensors *s, const GxSafetensors *base, const GxTensorMatch *of_base,
                                     const GxTable *t, const GxFamily *family, const char *folder, const GxLogger *log,
                                     GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        const int row = gx__tensor_file_copy_of(t, family, s->entry[e].name);
        if (row < 0) continue;
        const int own = of_base->entry[t->row[row].has_alias ? t->row[row].alias.index : row];
        GX_TRY(gx__tensor_file_check_copy(s, &s->entry[e], base, own < 0 ? NULL : &base->entry[own], folder, log, err));
    }
    return GX_OK;
}

static GxStatus gx__tensor_file_check_all_values(const GxSafetensors *s, const GxSafetensorsEntry *e, GxError *err)
{
    enum { BLOCK = 4096 };
    float values[BLOCK];
    for (int64_t first = 0; first < e->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, e->elements - first);
        GX_TRY(gx_safetensors_read(s, e, first, n, values, err));
        GX_TRY(gx__tensor_file_check_values(s, e, first, values, n, err));
    }
    return GX_OK;
}

GxStatus gx_tensor_file_check(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const char *folder,
                              GxError *err)
{
    for (int i = 0; i < t->n; i++) {
        if (match->entry[i] < 0) continue;
        const GxSafetensorsEntry *e = &s->entry[match->entry[i]];
        GX_TRY(gx__tensor_file_check_shape(e, &t->row[i], match, folder, err));
        GX_TRY(gx__tensor_file_check_all_values(s, e, err));
    }
    return GX_OK;
}

void gx_tensor_file_match_close(GxTensorMatch *match)
{
    free(match->entry);
    free(match->mismatched);
    free(match->missing);
    free(match->unexpected);
    free(match->quantized);
    memset(match, 0, sizeof *match);
}
#endif
