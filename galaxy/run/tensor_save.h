// tensor_save.h: saves the tensors of a store to a safetensors file, or to several.
//
//     GxTensorPart part = {"", GX_VALUES_WEIGHTS, GX_PART_ALL, 0};
//     GxTensorSaving how = {&part, 1, NULL, 0, GX_BF16, 0, NULL, NULL};
//     gx_tensor_file_save(g, "out/model.safetensors", &m.store, &how, &disk); // on all ranks
//
// The contents of a file, and which ranks read and write: tensor_file.h. All ranks meet at a barrier after each tensor,
// since writing a whole file may take longer than the time that a rank waits for another one.
#ifndef GX_TENSOR_SAVE_H
#define GX_TENSOR_SAVE_H
#include "../io/safetensors.h"
#include "tensor_file.h"
GX_BEGIN

// Changes whole rows of a dequantized matrix, from `first` on, before they are written: w [rows,cols], fp32, in the
// device's memory.
typedef void (*GxChangeRows)(GxContext *g, const void *self, int row, int64_t first, int64_t rows, float *w);

typedef struct { // what is saved, and how
    const GxTensorPart *part;
    int parts;
    const GxSafetensorsPair *metadata;
    int pairs;
    GxDtype dtype;       // F32, or rounded to BF16 or F16
    int64_t shard_bytes; // largest size of a file, unless it has only one tensor; 0: all tensors go to one file
    GxChangeRows change; // NULL: a quantized matrix is saved dequantized
    const void *self;    // passed to `change`
} GxTensorSaving;

// Called on all ranks. In a file of weights, stacked tensors (GxTensor.stack) are one. Rank 0 writes to `path`; the others may pass "". Several files are named as transformers names
// them, PATH-00001-of-00003.safetensors, and PATH.safetensors.index.json says which tensor is in which file. A failure
// to write is an error in `disk`, on rank 0, and not of the context: nothing more is written, but all ranks continue to
// the end together. The same holds for a value that F16 cannot hold (GX_ERR_UNSUPPORTED).
void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorSaving *how, GxError *disk);
// 1: this rank takes part in saving, because it has a part of rank 0's copy of the model: a stage, of a tp group, a
// shard.
int gx_tensor_file_has_part(const GxContext *g, const GxStore *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSOR_SAVE_IMPLEMENTED)
#define GX_TENSOR_SAVE_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../io/json.h"
#include "../parallel/stage_messages.h"

// ---- files that are written ---------------------------------------------------------------------------------------

typedef struct { // on rank 0
    const char *path;
    const GxStore *s;
    const GxTensorSaving *how;
    int *shard_of; // [parts * rows] the number of the file that a tensor goes to, from 0; -1: it is not saved
    int shards, shard;
    int is_open; // the file of number `shard`
    GxSafetensorsWriter w;
} gx__TensorSaveFiles;

static int gx__tensor_save_saves(const GxStore *s, const GxTensorPart *part, int row)
{
    const GxTensor *t = &s->table->row[row];
    const int also = t->is_saved && part->values == GX_VALUES_WEIGHTS && part->of != GX_PART_ADAPTER;
    return gx_tensor_file_has(s, part, also ? t->alias.index : row);
}

// 1: the file has the tensor as a part of another one (GxTensor.stack). An optimizer's state has all under their names.
static int gx__tensor_save_is_stacked(const GxTensorPart *part, const GxTensor *t)
{
    return t->stack[0] && gx_tensor_file_is_foreign(part);
}

static int gx__tensor_save_is_transposed(const GxTensorPart *part, const GxTensor *t)
{
    return t->is_transposed && gx_tensor_file_is_foreign(part);
}

static void gx__tensor_save_part_name(const GxTensorPart *part, const GxTensor *t, char name[GX_NAME + 32])
{
    const char *own = gx__tensor_save_is_stacked(part, t) ? t->stack : t->name;
    const int is_of_side = !strncmp(own, GX_SIDE_PREFIX, strlen(GX_SIDE_PREFIX)); // transformers has none of these
    const char *dot = part->is_bare && !is_of_side ? strchr(own, '.') : NULL;
    snprintf(name, GX_NAME + 32, "%s%s", part->prefix, dot ? dot + 1 : own);
}

// "model.safetensors", or "model-00002-of-00003.safetensors".
static GxStatus gx__tensor_save_path(const gx__TensorSaveFiles *f, int shard, char path[GX_PATH], GxError *err)
{
    static const char suffix[] = ".safetensors";
    const int stem = (int)(strlen(f->path) - strlen(suffix));
    const int n = f->shards == 1
                      ? snprintf(path, GX_PATH, "%s", f->path)
                      : snprintf(path, GX_PATH, "%.*s-%05d-of-%05d%s", stem, f->path, shard + 1, f->shards, suffix);
    if (n < GX_PATH) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
}

static GxStatus gx__tensor_save_assign(gx__TensorSaveFiles *f, GxError *err)
{
    const GxTable *t = f->s->table;
    int64_t bytes = 0;
    f->shard = -1, f->shards = 1;
    f->shard_of = (int *)malloc((size_t)(t->n * f->how->parts + 1) * sizeof *f->shard_of);
    if (!f->shard_of) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n * f->how->parts);
    for (int k = 0; k < t->n * f->how->parts; k++) {
        const GxTensor *row = &t->row[k % t->n];
        const GxTensorPart *part = &f->how->part[k / t->n];
        const int is_stacked = gx__tensor_save_is_stacked(part, row);
        int64_t more = (int64_t)gx_dtype_size(f->how->dtype);
        f->shard_of[k] = -1;
        if (!gx__tensor_save_saves(f->s, part, k % t->n)) continue;
        if (is_stacked && row->stack_first > 0) { // it lies behind the row before
            f->shard_of[k] = f->shards - 1;
            continue;
        }
        for (int d = 0; d < row->ndim; d++) more *= d == 0 && is_stacked ? row->stack_rows : row->global_shape[d];
        if (f->how->shard_bytes && bytes && bytes + more > f->how->shard_bytes) f->shards++, bytes = 0;
        bytes += more;
        f->shard_of[k] = f->shards - 1;
    }
    return GX_OK;
}

static GxStatus gx__tensor_save_finish(gx__TensorSaveFiles *f, GxError *err)
{
    if (!f->is_open) return GX_OK;
    f->is_open = 0;
    return gx_safetensors_finish(&f->w, err);
}

static GxStatus gx__tensor_save_create(gx__TensorSaveFiles *f, GxError *err)
{
    const GxTable *t = f->s->table;
    char path[GX_PATH];
    int n = 0;
    GxSafetensorsEntry *e = (GxSafetensorsEntry *)calloc((size_t)(t->n * f->how->parts + 1), sizeof *e);
    if (!e) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n * f->how->parts);
    for (int k = 0; k < t->n * f->how->parts; k++) {
        const GxTensor *row = &t->row[k % t->n];
        const GxTensorPart *part = &f->how->part[k / t->n];
        const int is_stacked = gx__tensor_save_is_stacked(part, row);
        if (f->shard_of[k] != f->shard || (is_stacked && row->stack_first > 0)) continue;
        gx__tensor_save_part_name(part, row, e[n].name);
        e[n].dtype = f->how->dtype;
        e[n].ndim = row->ndim;
        memcpy(e[n].shape, row->global_shape, sizeof row->global_shape);
        if (is_stacked) e[n].shape[0] = row->stack_rows;
        if (gx__tensor_save_is_transposed(part, row)) {
            const int64_t rows = e[n].shape[0];
            e[n].shape[0] = e[n].shape[1], e[n].shape[1] = rows;
        }
        n++;
    }
    GxStatus status = gx__tensor_save_path(f, f->shard, path, err);
    if (status == GX_OK) status = gx_safetensors_create(&f->w, path, e, n, f->how->metadata, f->how->pairs, err);
    f->is_open = status == GX_OK;
    free(e);
    return status;
}

// Returns the writer of the file that tensor `row` of a part goes to. Opens that file after finishing the one before.
static GxSafetensorsWriter *gx__tensor_save_writer_of(gx__TensorSaveFiles *f, int part, int row, GxError *disk)
{
    const int shard = f->shard_of && !gx_error_code(disk) ? f->shard_of[part * f->s->table->n + row] : f->shard;
    if (gx_error_code(disk)) return NULL;
    if (shard != f->shard && gx__tensor_save_finish(f, disk) == GX_OK) {
        f->shard = shard;
        gx__tensor_save_create(f, disk);
    }
    return f->is_open ? &f->w : NULL;
}

// Writes PATH.safetensors.index.json, if there are several files.
static GxStatus gx__tensor_save_write_index(const gx__TensorSaveFiles *f, GxError *err)
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
        gx__tensor_save_part_name(&f->how->part[k / rows], row, name);
        gx__tensor_save_path(f, f->shard_of[k], path, err);
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

static void gx__tensor_save_close(gx__TensorSaveFiles *f, int is_whole, GxError *disk)
{
    if (is_whole && !gx_error_code(disk)) gx__tensor_save_finish(f, disk);
    if (is_whole && !gx_error_code(disk)) gx__tensor_save_write_index(f, disk);
    if (f->is_open) gx_safetensors_abort(&f->w);
    free(f->shard_of);
}

// A value that would be infinite in fp16 is an error.
static GxStatus gx__tensor_save_values(GxSafetensorsWriter *w, GxDtype dtype, const char *name, int64_t first,
                                       const float *values, int64_t n, GxError *disk)
{
    for (int64_t i = 0; dtype == GX_F16 && i < n; i++)
        if (fabsf(values[i]) >= 65520 && !isinf(values[i]))
            return GX_FAIL(disk, GX_ERR_UNSUPPORTED, "%s has the value %g, but the largest fp16 value is 65504", name,
                           (double)values[i]);
    return gx_safetensors_write_floats(w, name, first, values, n, disk);
}

// Where a tensor's values go: under a name, from an element of the file's tensor on; or, transposed, to its columns.
typedef struct {
    char name[GX_NAME + 32];
    int64_t begin;
    const GxTensor *transposed; // NULL: it is not
} gx__TensorSaveTo;

// Elements [first, first + n) of the tensor.
static GxStatus gx__tensor_save_put(GxSafetensorsWriter *w, GxDtype dtype, const gx__TensorSaveTo *to, int64_t first,
                                    const float *values, int64_t n, GxError *disk)
{
    enum { BLOCK = 4096 };
    float rows[BLOCK];
    const GxTensor *t = to->transposed;
    if (!t) return gx__tensor_save_values(w, dtype, to->name, to->begin + first, values, n, disk);
    const int64_t cols = t->global_shape[1];
    for (int64_t c = 0; c < cols; c++) {
        const GxRange run = gx_tensor_file_run(cols, c, first, n);
        for (int64_t at = run.begin; at < run.end; at += BLOCK) {
            const int64_t some = gx_min(BLOCK, run.end - at);
            for (int64_t r = 0; r < some; r++) rows[r] = values[(at + r) * cols + c - first];
            GX_TRY(gx__tensor_save_values(w, dtype, to->name, gx_tensor_file_column(t, c) + at, rows, some, disk));
        }
    }
    return GX_OK;
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
} gx__TensorSaveRooms;

static void gx__tensor_save_find_units(GxContext *g, const GxStore *s, GxUnits *units)
{
    const int axes = gx_is_ragged(g) ? GX_AXIS_ALL : GX_AXIS_PP, ranks = gx_group_size(g, axes);
    const GxSplit one_each = gx_split_even(ranks, ranks);
    units[0] = s->units;
    if (ranks > 1) gx_all_gather(g, axes, &one_each, units, &s->units, sizeof *units, GX_U8);
    for (int i = 0; i < gx_group_size(g, GX_AXIS_PP) && gx_is_ragged(g); i++) // those of its first rank
        units[i] = units[gx_mesh_rank(g->mesh, i, 0)];
}

// The rank of the pipeline that has the tensor.
static int gx__tensor_save_rank(const GxStore *s, const GxUnits *units, int row)
{
    int rank = 0;
    while (!gx_units_have(&units[rank], s->table->row[row].unit)) rank++;
    return rank;
}

// Sends n values in the host's memory from the first rank of a stage to rank 0, which has the first stage.
static void gx__tensor_save_pass(GxContext *g, int stage, float *values, int64_t n)
{
    const int me = gx_group_index(g, GX_AXIS_PP);
    const GxShares first = gx_shares_each(n, 1, 0); // of each of the two groups one rank
    if (stage == 0) return;
    if (me == stage || me == 0) gx_stage_transfer(g, stage - me, me == stage, 0, values, 1, GX_F32, &first, &first);
}

// 1: this rank is the first of its stage, and sends what the stage has to rank 0.
static int gx__tensor_save_sends(const GxContext *g) { return gx_group_index(g, GX_AXIS_FSDP | GX_AXIS_TP) == 0; }

// Saves a tensor that is not split: the first rank of its stage reads it, with those that share it; rank 0 writes (w is
// NULL on others). Weights without fp32 masters (frozen, in bf16) are widened chunk by chunk, quantized ones in whole
// rows.
static void gx__tensor_save_save_whole(GxContext *g, GxSafetensorsWriter *w, const GxTensorSaving *how,
                                       const gx__TensorSaveTo *to, const GxStore *s, GxValues what, int row, int stage,
                                       float *room, GxError *disk)
{
    GxArena *a = gx_host_arena(g);
    const GxTensor *t = &s->table->row[row];
    const int is_quantized = t->quantized && what == GX_VALUES_WEIGHTS, has = gx_store_has(s, row);
    const int64_t count = gx_tensor_count(t), cols = is_quantized ? t->global_shape[1] : 1,
                  step = gx_max(1, GX_STAGE / cols) * cols;
    const int stops = stage == 0 && !s->sharded; // when the disk fails: no other rank takes part
    for (int64_t first = 0; first < count && !gx_failed(g) && !(stops && gx_error_code(disk)); first += step) {
        const int64_t n = gx_min(step, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = has ? gx_values_read(g, s, what, row, first, n) : NULL;
        if (is_quantized && how->change && has && !gx_failed(g))
            how->change(g, how->self, row, first / cols, n / cols, values);
        float *host_copy = has ? (float *)gx_host_copy(g, GX_MEM_WORKSPACE, values, 4 * n) : room;
        if (has) gx_to_host(g, host_copy, values, 4 * n);
        if (gx__tensor_save_sends(g)) gx__tensor_save_pass(g, stage, host_copy, n);
        if (w && !gx_failed(g) && !gx_error_code(disk))
            gx__tensor_save_put(w, how->dtype, to, first, host_copy, n, disk);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
    }
}

// Saves a split tensor: the ranks of its stage send their parts to the first of them, and that rank to rank 0.
static void gx__tensor_save_save_boxes(GxContext *g, GxSafetensorsWriter *w, const GxTensorSaving *how,
                                       const gx__TensorSaveTo *to, const GxStore *s, GxValues what, int row, int stage,
                                       void *scratch, GxError *disk)
{
    const GxTensor *t = &s->table->row[row];
    const int has = gx_store_has(s, row), is_first = gx_group_index(g, t->split_axes) == 0,
              is_read = gx_group_index(g, GX_AXIS_FSDP) == 0; // the others only take part in reading the values
    const GxArenaMark place = gx_arena_mark(g->arena);
    const float *values = has ? gx_values_read(g, s, what, row, 0, gx_tensor_count(t)) : NULL;
    const int64_t chunk = gx_box_rows(t), n = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0] && !gx_failed(g); first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        if (has && is_read) gx_box_gather(g, t, values, first, rows, scratch);
        if (is_first && is_read) gx__tensor_save_pass(g, stage, (float *)scratch, rows * n);
        if (w && !gx_failed(g) && !gx_error_code(disk))
            gx__tensor_save_put(w, how->dtype, to, first * n, (const float *)scratch, rows * n, disk);
    }
    gx_arena_release(g->arena, place);
}

// Called on the ranks of one copy of the model. w NULL: this rank does not write.
static void gx__tensor_save_save_tensor(GxContext *g, GxSafetensorsWriter *w, const GxTensorSaving *how,
                                        const GxStore *s, const GxTensorPart *part, int i,
                                        const gx__TensorSaveRooms *rooms, GxError *disk)
{
    const GxTensor *t = &s->table->row[i];
    gx__TensorSaveTo to = GX_ZERO;
    gx__tensor_save_part_name(part, t, to.name);
    if (gx__tensor_save_is_stacked(part, t)) to.begin = t->stack_first * (t->ndim == 2 ? t->global_shape[1] : 1);
    if (gx__tensor_save_is_transposed(part, t)) to.transposed = t;
    if (t->has_alias) i = t->alias.index; // which has the values
    const int stage = gx__tensor_save_rank(s, rooms->units, i);
    const int takes_part = gx_store_has(s, i) || gx_group_index(g, GX_AXIS_PP) == 0;
    if (!takes_part) return;
    if (t->parts) gx__tensor_save_save_boxes(g, w, how, &to, s, part->values, i, stage, rooms->scratch, disk);
    else if (gx_tensor_file_reads(g, s, i))
        gx__tensor_save_save_whole(g, w, how, &to, s, part->values, i, stage, rooms->room, disk);
}

void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorSaving *how, GxError *disk)
{
    const GxTable *t = s->table;
    gx__TensorSaveFiles files = GX_ZERO;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int writes = g->rank == 0, has_part = gx_tensor_file_has_part(g, s);
    gx__TensorSaveRooms rooms = GX_ZERO;
    if (has_part) gx__tensor_save_find_units(g, s, rooms.units);
    rooms.scratch = has_part ? gx_tensor_file_scratch(g, t) : NULL;
    rooms.room = writes ? gx_tensor_file_room(g, s) : NULL;
    files.path = path, files.s = s, files.how = how;
    if (writes && !gx_error_code(disk)) gx__tensor_save_assign(&files, disk);
    for (int p = 0; p < how->parts; p++)
        for (int i = 0; i < t->n && !gx_failed(g); i++) {
            if (!gx__tensor_save_saves(s, &how->part[p], i)) continue;
            GxSafetensorsWriter *w = writes ? gx__tensor_save_writer_of(&files, p, i, disk) : NULL;
            if (has_part) gx__tensor_save_save_tensor(g, w, how, s, &how->part[p], i, &rooms, disk);
            gx_barrier(g, GX_AXIS_ALL);
        }
    if (writes) gx__tensor_save_close(&files, !gx_failed(g), disk);
    gx_barrier(g, GX_AXIS_ALL);
    gx_arena_release(a, mark);
}
#endif
