// tensor_file.h: the tensors of a store into a safetensors file and back: weights, or what the optimizer keeps of them.
//
// A file, or one of several, holds each tensor whole, however the ranks share it out. Rank 0 writes, and gets what it
// does not have from the others of its tp group; it also reads, piece by piece, and broadcasts: no disk is shared. All
// ranks meet after each tensor that was written: a file may take longer than a rank waits for another one.
#ifndef GX_TENSOR_FILE_H
#define GX_TENSOR_FILE_H
#include "../base/text.h"
#include "../parallel/boxes.h"
#include "../parallel/values.h"
#include "../comm/comm.h"
#include "../io/bnb.h"
#include "../io/peft.h"
#include "../io/safetensors.h"
#include "../model/model.h"
#include "quantize.h"
GX_BEGIN

// Tensors stand in the file as prefix + name: "" weights, "exp_avg." the first moment. Of GX_PART_ADAPTER a value that
// is NaN or infinite is an error when it is read.
typedef enum {
    GX_PART_ALL = 0,
    GX_PART_ADAPTER, // GxTensor.is_adapter
    GX_PART_WHOLE    // all but what an adapter adds: a model that needs none
} GxPartOf;
typedef struct {
    const char *prefix;
    GxValues values;
    GxPartOf of;
    int is_bare; // 1: names are without their first word, as of a model without a head: "encoder", not "bert.encoder"
} GxTensorPart;

typedef struct { // what is saved, and how
    const GxTensorPart *part;
    int parts;
    const GxSafetensorsPair *metadata;
    int pairs;
    GxDtype dtype;       // F32, or rounded to BF16 or F16
    int64_t shard_bytes; // tensors of more bytes go to several files of at most that many, or of one tensor; 0: never
} GxTensorSaving;

// On all ranks. The file is path, on rank 0; others may pass "". Several are called PATH-00001-of-00003.safetensors, as
// transformers calls them, and PATH.safetensors.index.json says which tensor is in which. What the disk does not take
// is an error of `disk`, on rank 0, not of the context: ranks go on to the end together, and nothing is written any
// more. So is a value that F16 cannot hold: GX_ERR_UNSUPPORTED.
void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorSaving *how, GxError *disk);
// 1: this rank has a part of what is saved: it is of rank 0's tp group.
int gx_tensor_file_has_part(const GxContext *g);

// What of a file of weights has to match a model.
typedef enum {
    GX_MATCH_ALL = 0, // a tensor that either does not have, or of another shape, is an error with its name
    GX_MATCH_BODY,    // but whole heads may be missing, or be more
    GX_MATCH_ANY,     // --strict false: whatever matches is taken; nothing at all is an error
    // GX_MATCH_BODY of a base whose adapter comes from a file of its own: of the adapter's tensors it may have others
    GX_MATCH_BASE,
    // A file of an adapter, with names as peft writes them: has all that was added to the base; what the adapter trains
    // of the base's own may be missing. All else is an error.
    GX_MATCH_ADAPTER,
    GX_MATCH_BARE_ADAPTER // of a model without a head: what the file has of heads is not needed
} GxMatching;

// Which tensor of a file of weights is which of a model's. On rank 0.
typedef struct {
    GxMatching how;
    int *entry;            // [rows of the table] the file's; -1: it has none
    int *misshapen;        // [rows] the file's, of another shape: the row is drawn; -1: there is none
    unsigned char *drawn;  // [rows] 1: the file has nothing for it
    unsigned char *left;   // [the file's tensors] 1: the model has no use for it
    unsigned char *packed; // [rows] 1: the file has it quantised, in the way of the model
} GxTensorMatch;

// By the family's names. What an adapter adds to a model is in no file of weights: it is drawn. Two tensors with the
// same name are an error however it is matched, and so is a tied one with other values than those that it is tied to.
// Close it, also after an error.
GxStatus gx_tensor_file_match(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const GxFamily *family,
                              GxMatching how, const char *folder, GxError *err);
enum { GX_SHAPE_TEXT = 100 };
const char *gx_shape_text(const int64_t *shape, int ndim, char text[GX_SHAPE_TEXT]); // "[32,64]"
void gx_tensor_file_match_close(GxTensorMatch *match);
// peft's files have a copy of an embedding or a head over the vocabulary that has LoRA, as ….base_layer.weight, which
// is not loaded: it has to be the base's own, but for what its type rounds.
GxStatus gx_tensor_file_check_copies(const GxSafetensors *s, const GxSafetensors *base, const GxTensorMatch *of_base,
                                     const GxTable *t, const GxFamily *family, const char *folder, GxError *err);
int gx_tensor_file_has_copies(const GxSafetensors *s); // 1: there are such
// That what the file has can be loaded: shapes, and values of which none is NaN or infinite.
GxStatus gx_tensor_file_check(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, const char *folder,
                              GxError *err);

// Of weights as they were read, all of them and those before the head, which models with another head have, too.
typedef struct {
    uint64_t all, body;
} GxWeightsHash;
// On all ranks; s is the open file on rank 0, NULL on the others. A missing or misshapen tensor is named. `match`: of
// weights, on rank 0; NULL: names are the table's. Rows that are drawn stay as they are. hash: NULL, or on rank 0 what
// was read of rows that are of no adapter goes into it.
void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *drawn, GxWeightsHash *hash,
                         const char *folder);

// Takes the scratch of saving and loading from a dry arena, and gives it back.
void gx_tensor_file_plan(GxContext *g, const GxStore *s);

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
    int *shard_of; // [parts * rows] the number of a tensor's file, from 0 on; -1: there is no such tensor
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

static void gx__tensor_file_part_name(const GxTensorPart *part, const GxTensor *t, char name[GX_NAME + 32])
{
    const int is_of_side = !strncmp(t->name, GX_SIDE_PREFIX, strlen(GX_SIDE_PREFIX)); // which transformers has none of
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

static GxStatus gx__tensor_files_divide(gx__TensorFiles *f, GxError *err)
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
        if (!gx__tensor_file_has(f->s, &f->how->part[k / t->n], k % t->n)) continue;
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

// The file that tensor `row` of a part goes to: those before it are whole.
static GxSafetensorsWriter *gx__tensor_files_at(gx__TensorFiles *f, int part, int row, GxError *disk)
{
    const int shard = f->shard_of && !gx_error_code(disk) ? f->shard_of[part * f->s->table->n + row] : f->shard;
    if (gx_error_code(disk)) return NULL;
    if (shard != f->shard && gx__tensor_files_finish(f, disk) == GX_OK) {
        f->shard = shard;
        gx__tensor_files_create(f, disk);
    }
    return f->is_open ? &f->w : NULL;
}

// PATH.safetensors.index.json, where there are several.
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

// What fp16 would make infinite is an error, not a weight.
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

// What lies nowhere in fp32 (frozen, in bf16) is widened chunk by chunk.
static void gx__tensor_file_save_whole(GxContext *g, GxSafetensorsWriter *w, GxDtype dtype, const char *name,
                                       const GxStore *s, GxValues what, int row, GxError *disk)
{
    GxArena *a = gx_host_arena(g);
    const int64_t count = gx_tensor_count(&s->table->row[row]);
    for (int64_t first = 0; first < count && !gx_failed(g) && !gx_error_code(disk); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = gx_values_read(g, s, what, row, first, n);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, values, 4 * n);
        gx_to_host(g, twin, values, 4 * n);
        if (!gx_failed(g)) gx__tensor_file_write(w, dtype, name, first, twin, n, disk);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
    }
}

int gx_tensor_file_has_part(const GxContext *g) { return gx_group_index(g, GX_AXIS_ALL & ~GX_AXIS_TP) == 0; }

// w NULL: a rank that only hands over what rank 0 does not have.
static void gx__tensor_file_save_tensor(GxContext *g, GxSafetensorsWriter *w, GxDtype dtype, const GxStore *s,
                                        const GxTensorPart *part, int i, void *scratch, GxError *disk)
{
    char name[GX_NAME + 32];
    const GxTensor *t = &s->table->row[i];
    gx__tensor_file_part_name(part, t, name);
    if (!t->parts) {
        if (w) gx__tensor_file_save_whole(g, w, dtype, name, s, part->values, i, disk);
        return;
    }
    const GxArenaMark place = gx_arena_mark(g->arena);
    const float *values = gx_values_read(g, s, part->values, i, 0, gx_tensor_count(t));
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0] && !gx_failed(g); first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        const float *whole = gx_box_gather(g, t, values, first, rows, scratch);
        if (w && !gx_failed(g) && !gx_error_code(disk))
            gx__tensor_file_write(w, dtype, name, first * row, whole, rows * row, disk);
    }
    gx_arena_release(g->arena, place);
}

static void *gx__tensor_file_boxes_scratch(GxContext *g, const GxTable *t)
{
    const int64_t bytes = gx_boxes_scratch(t);
    return bytes ? gx_take_from(g, gx_host_arena(g), GX_MEM_WORKSPACE, bytes) : NULL;
}

void gx_tensor_file_plan(GxContext *g, const GxStore *s)
{
    const GxTable *t = s->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    int64_t most = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->row[i].parts) most = gx_max(most, gx_min(GX_STAGE, gx_tensor_count(&t->row[i])));
    gx__tensor_file_boxes_scratch(g, t);
    gx_host_twin(g, GX_MEM_WORKSPACE, a->base, 4 * most);
    for (int i = 0; i < t->n; i++) {
        const GxArenaMark values = gx_arena_mark(g->arena);
        const int64_t count = gx_tensor_count(&t->row[i]);
        if (t->row[i].quantized && gx_store_has(s, i)) gx_quantize_plan(g, s, i);
        else if (gx_values_exist(s, GX_VALUES_WEIGHTS, i))
            gx_values_write(g, s, GX_VALUES_WEIGHTS, i, 0, t->row[i].parts ? count : gx_min(GX_STAGE, count));
        gx_arena_release(g->arena, values);
    }
    gx_arena_release(a, mark);
}

void gx_tensor_file_save(GxContext *g, const char *path, const GxStore *s, const GxTensorSaving *how, GxError *disk)
{
    const GxTable *t = s->table;
    gx__TensorFiles files = GX_ZERO;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    const int writes = g->rank == 0, has_part = gx_tensor_file_has_part(g);
    void *scratch = has_part ? gx__tensor_file_boxes_scratch(g, t) : NULL;
    files.path = path, files.s = s, files.how = how;
    if (writes && !gx_error_code(disk)) gx__tensor_files_divide(&files, disk);
    for (int p = 0; p < how->parts; p++)
        for (int i = 0; i < t->n && !gx_failed(g); i++) {
            if (!gx__tensor_file_has(s, &how->part[p], i)) continue;
            GxSafetensorsWriter *w = writes ? gx__tensor_files_at(&files, p, i, disk) : NULL;
            if (has_part) gx__tensor_file_save_tensor(g, w, how->dtype, s, &how->part[p], i, scratch, disk);
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

static int gx__tensor_file_has_shape(const GxSafetensorsEntry *e, const GxTensor *row)
{
    int same = e->ndim == row->ndim;
    for (int d = 0; same && d < row->ndim; d++) same = e->shape[d] == row->global_shape[d];
    return same;
}

// Where weights to begin with are matched: what else there is to do.
static const char *gx__tensor_file_way_out(const GxTensorMatch *match)
{
    return match && match->how == GX_MATCH_BODY ? "; --strict false takes what matches, and draws the rest" : "";
}

static GxStatus gx__tensor_file_check_shape(const GxSafetensorsEntry *e, const GxTensor *row,
                                            const GxTensorMatch *match, const char *folder, GxError *err)
{
    char theirs[GX_SHAPE_TEXT], ours[GX_SHAPE_TEXT];
    if (gx__tensor_file_has_shape(e, row)) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: tensor %s has the shape %s; this model's has %s%s", folder, e->name,
                   gx_shape_text(e->shape, e->ndim, theirs), gx_shape_text(row->global_shape, row->ndim, ours),
                   gx__tensor_file_way_out(match));
}

static GxStatus gx__tensor_file_lacks(const GxSafetensors *s, const char *name, const GxTensorMatch *match,
                                      const char *folder, GxError *err)
{
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has no tensor %s, which this model needs (it has %d tensors; is it of another model?)%s", folder,
                   name, s->n, gx__tensor_file_way_out(match));
}

// Of row i, by the match or by its own name behind the part's prefix.
static GxStatus gx__tensor_file_find_tensor(const GxSafetensorsEntry **entry, const GxSafetensors *s,
                                            const GxTensorMatch *match, const GxTable *t, int i, const char *prefix,
                                            const char *folder, GxError *err)
{
    char name[GX_NAME + 32];
    snprintf(name, sizeof name, "%s%s", prefix, t->row[i].name);
    if (match) *entry = match->entry[i] < 0 ? NULL : &s->entry[match->entry[i]];
    else *entry = gx_safetensors_find(s, name);
    if (match && match->packed[i]) return GX_OK; // its shape was looked at
    return *entry ? gx__tensor_file_check_shape(*entry, &t->row[i], match, folder, err)
                  : gx__tensor_file_lacks(s, name, match, folder, err);
}

// Goes on from `hash` (FNV-1a, of words).
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

static void gx__tensor_file_read_checked(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e, GxPartOf of,
                                         int64_t first, int64_t n, float *values)
{
    if (gx_failed(g) || gx_safetensors_read(s, e, first, n, values, &g->error) != GX_OK || of != GX_PART_ADAPTER)
        return;
    gx__tensor_file_check_values(s, e, first, values, n, &g->error);
}

static void gx__tensor_file_load_whole(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                       const GxStore *store, const GxTensorPart *part, int row, uint64_t *hash)
{
    GxArena *a = gx_host_arena(g);
    const int64_t count = gx_tensor_count(&store->table->row[row]);
    for (int64_t first = 0; first < count; first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark place = gx_arena_mark(g->arena), mark = gx_arena_mark(a);
        float *values = gx_values_write(g, store, part->values, row, first, n);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, values, 4 * n);
        if (s) gx__tensor_file_read_checked(g, s, e, part->of, first, n, twin);
        if (s && !gx_failed(g)) gx__tensor_file_hash(hash, twin, n);
        gx_broadcast(g, GX_AXIS_ALL, 0, twin, n, GX_F32); // on a failed context this tells the other ranks
        gx_to_device(g, values, twin, 4 * n);
        gx_values_written(g, store, part->values, row, first, n, values);
        gx_arena_release(a, mark);
        gx_arena_release(g->arena, place);
        if (gx_failed(g)) return;
    }
}

static void gx__tensor_file_load_boxes(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                       const GxTensor *t, GxPartOf of, float *values, void *scratch, uint64_t *hash)
{
    const int64_t chunk = gx_box_rows(t), row = gx_box_row(t);
    for (int64_t first = 0; first < t->global_shape[0]; first += chunk) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        if (s) gx__tensor_file_read_checked(g, s, e, of, first * row, rows * row, (float *)scratch);
        if (s && !gx_failed(g)) gx__tensor_file_hash(hash, (const float *)scratch, rows * row);
        gx_broadcast(g, GX_AXIS_ALL, 0, scratch, rows * row, GX_F32); // on a failed context this tells the other ranks
        if (gx_failed(g)) return;
        gx_box_take(g, t, values, first, rows, scratch);
    }
}

typedef struct {
    const GxSafetensors *s;
    const GxSafetensorsEntry *e;
    uint64_t *hash;
} gx__TensorFileEntry;

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

// Numbers are quantised as they are read; what the file has quantised stays as it is.
static void gx__tensor_file_load_quantized(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                           const GxStore *store, int i, int is_packed, uint64_t *hash)
{
    gx__TensorFileEntry from = {s, e, hash};
    const GxQuantizedSource source = {gx__tensor_file_read_codes, gx__tensor_file_read_scales, &from};
    uint8_t packed = (uint8_t)is_packed;
    gx_broadcast(g, GX_AXIS_ALL, 0, &packed, 1, GX_U8); // rank 0 alone looks at the file
    if (gx_failed(g)) return;
    if (packed) gx_quantize_take(g, store, i, &source);
    else gx_quantize_tensor(g, store, i, gx__tensor_file_read, &from);
}

// Rank 0 reads, everybody gets it: a whole tensor into its place, of a cut one each rank its box. e NULL: not rank 0,
// or an error.
static void gx__tensor_file_load_tensor(GxContext *g, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                        const GxStore *store, const GxTensorPart *part, int i, void *scratch,
                                        uint64_t *hash)
{
    const GxTensor *t = &store->table->row[i];
    if (!t->parts) {
        gx__tensor_file_load_whole(g, s, e, store, part, i, hash);
        return;
    }
    const GxArenaMark place = gx_arena_mark(g->arena);
    const int64_t n = gx_tensor_count(t);
    float *values = gx_values_write(g, store, part->values, i, 0, n);
    gx__tensor_file_load_boxes(g, s, e, t, part->of, values, scratch, hash);
    gx_values_written(g, store, part->values, i, 0, n, values);
    gx_arena_release(g->arena, place);
}

void gx_tensor_file_load(GxContext *g, const GxSafetensors *s, const GxStore *store, const GxTensorPart *part,
                         const GxTensorMatch *match, const unsigned char *drawn, GxWeightsHash *hash,
                         const char *folder)
{
    const GxTable *t = store->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    void *scratch = gx__tensor_file_boxes_scratch(g, t);
    for (int i = 0; i < t->n && !gx_failed(g); i++) {
        const GxSafetensorsEntry *e = NULL;
        if (!gx__tensor_file_has(store, part, i) || (drawn && drawn[i])) continue;
        if (s) gx__tensor_file_find_tensor(&e, s, match, t, i, part->prefix, folder, &g->error);
        uint64_t *own = !hash || t->row[i].is_adapter || t->row[i].copies ? NULL : &hash->all;
        if (t->row[i].quantized) gx__tensor_file_load_quantized(g, s, e, store, i, e && match && match->packed[i], own);
        else gx__tensor_file_load_tensor(g, s, e, store, part, i, scratch, own);
        if (own && t->row[i].unit < store->last_unit - 1) hash->body = hash->all; // a head, of a whole model's store
    }
    gx_arena_release(a, mark);
}

// ---- which tensor is which -----------------------------------------------------------------------------------------

// The number of the row that the file's tensor is; -1: of none; -2: nothing that is needed.
static int gx__tensor_file_row(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME] = "";
    if (!family->tensor_name) return gx_table_find(t, in_file).index;
    if (strlen(in_file) + 16 > GX_NAME) return -1; // no name of a table, and room for a prefix
    return family->tensor_name(in_file, name) ? gx_table_find(t, name).index : -2;
}

// Of a matrix that the file has quantised.
static GxStatus gx__tensor_file_match_packed(GxTensorMatch *match, const GxSafetensors *s, const GxSafetensorsEntry *e,
                                             const GxTable *t, int i, const char *folder, GxError *err)
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
    match->packed[i] = 1;
    return GX_OK;
}

static GxStatus gx__tensor_file_match_names(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const GxFamily *family, const char *folder, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        if (gx_bnb_is_part(s, s->entry[e].name)) continue; // read with its matrix
        int row = gx__tensor_file_row(t, family, s->entry[e].name);
        if (row >= 0 && t->row[row].is_added) row = -1; // merged or not, a base has none
        match->left[e] = row == -1;
        if (row < 0) continue;
        if (match->how == GX_MATCH_BASE && t->row[row].is_adapter &&
            !gx__tensor_file_has_shape(&s->entry[e], &t->row[row]))
            continue;
        if (match->entry[row] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %s and %s, which are two names of one tensor; remove one of them", folder,
                           s->entry[match->entry[row]].name, s->entry[e].name);
        match->entry[row] = e;
        GX_TRY(gx__tensor_file_match_packed(match, s, &s->entry[e], t, row, folder, err));
    }
    return GX_OK;
}

static void gx__tensor_file_match_shapes(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (match->entry[i] >= 0 && !match->packed[i] &&
            !gx__tensor_file_has_shape(&s->entry[match->entry[i]], &t->row[i])) {
            match->misshapen[i] = match->entry[i];
            match->entry[i] = -1;
        }
}

// Of two names that are tied a file may have either.
static void gx__tensor_file_match_tied(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++) {
        if (!t->row[i].has_alias || match->entry[i] < 0 || match->entry[t->row[i].alias.index] >= 0) continue;
        match->entry[t->row[i].alias.index] = match->entry[i];
        match->entry[i] = -1;
    }
}

// Of a file in which it is tied, a tensor that is not has the same values.
static void gx__tensor_file_match_copies(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].copies && match->entry[i] < 0) match->entry[i] = match->entry[t->row[i].copies - 1];
}

// What nothing was found for is drawn; of a tensor of another shape that need not be drawn there is no use.
static void gx__tensor_file_match_rest(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++) {
        match->drawn[i] = !t->row[i].has_alias && match->entry[i] < 0;
        if (match->drawn[i] || match->misshapen[i] < 0) continue;
        match->left[match->misshapen[i]] = 1;
        match->misshapen[i] = -1;
    }
}

static void gx__tensor_file_draw_adapter(GxTensorMatch *match, const GxTable *t)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].is_added || (match->how == GX_MATCH_BASE && t->row[i].is_adapter && match->entry[i] < 0))
            match->drawn[i] = 1;
}

// The family's name of a tensor that this model does not have.
static void gx__tensor_file_name(const GxFamily *family, const char *in_file, char name[GX_NAME])
{
    snprintf(name, GX_NAME, "%.127s", in_file);
    if (family->tensor_name && strlen(in_file) + 16 <= GX_NAME) family->tensor_name(in_file, name);
}

// One head of the family's: its pattern has n characters.
typedef struct {
    char pattern[GX_NAME];
    int rows, found, absent; // of the model: rows of it; the last that the file has, and has not; -1: none
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
        if (t->row[i].role == GX_ROLE_LORA) continue; // in no file of weights
        h->rows++;
        if (match->entry[i] >= 0) h->found = i;
        else h->absent = i;
    }
}

// A head that the file does not have at all is drawn; what the model has nothing of is left out.
static GxStatus gx__tensor_file_match_head(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                           const GxFamily *family, const gx__TensorHead *h, const char *folder,
                                           GxError *err)
{
    char name[GX_NAME];
    if (h->found >= 0 && h->absent >= 0)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s has a part of a head: %s, but not %s; all of it must be there, or nothing%s", folder,
                       t->row[h->found].name, t->row[h->absent].name, gx__tensor_file_way_out(match));
    for (int i = 0; i < t->n && h->found < 0; i++)
        if (!t->row[i].has_alias && gx_name_matches(t->row[i].name, h->pattern)) match->drawn[i] = 1;
    for (int e = 0; e < s->n && !h->rows; e++) {
        if (match->left[e] != 1) continue; // it is the model's
        gx__tensor_file_name(family, s->entry[e].name, name);
        if (gx_name_matches(name, h->pattern)) match->left[e] = 2;
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

static GxStatus gx__tensor_file_refuse_unknown(const GxTensorMatch *match, const GxSafetensors *s, const char *folder,
                                               GxError *err)
{
    char names[300] = "";
    int unknown = 0;
    for (int e = 0; e < s->n; e++) {
        if (match->left[e] != 1) continue;
        if (unknown++ < 3)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.80s", unknown > 1 ? ", " : "",
                     s->entry[e].name);
    }
    if (!unknown) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %d tensor%s that this model does not have: %s%s%s", folder, unknown,
                   unknown == 1 ? "" : "s", names, unknown > 3 ? ", ..." : "", gx__tensor_file_way_out(match));
}

// Nothing that matches is another model, and weights without those that a LoRA adds are not what was trained.
static GxStatus gx__tensor_file_refuse_other(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                             const char *folder, GxError *err)
{
    int found = 0;
    for (int i = 0; i < t->n; i++) found += match->entry[i] >= 0;
    for (int e = 0; e < s->n; e++)
        if (match->left[e] && strstr(s->entry[e].name, ".lora_"))
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

// A tied tensor may stand in the file under both its names: then they have to be the same.
static GxStatus gx__tensor_file_check_alias(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t, int i,
                                            const char *folder, GxError *err)
{
    enum { BLOCK = 4096 };
    float own[BLOCK], other[BLOCK];
    const GxTensor *row = &t->row[i], *to = &t->row[row->alias.index];
    const GxSafetensorsEntry *e, *tied;
    GX_TRY(gx__tensor_file_find_tensor(&e, s, match, t, i, "", folder, err));
    GX_TRY(gx__tensor_file_find_tensor(&tied, s, match, t, row->alias.index, "", folder, err));
    for (int64_t first = 0; first < e->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, e->elements - first);
        GX_TRY(gx_safetensors_read(s, e, first, n, own, err));
        GX_TRY(gx_safetensors_read(s, tied, first, n, other, err));
        if (!memcmp(own, other, (size_t)n * sizeof *own)) continue;
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
    return GX_OK;
}

static GxStatus gx__tensor_file_check_match(const GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                            const char *folder, GxError *err)
{
    if (match->how == GX_MATCH_ANY) GX_TRY(gx__tensor_file_refuse_other(match, s, t, folder, err));
    else GX_TRY(gx__tensor_file_refuse_unknown(match, s, folder, err));
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].has_alias && match->entry[i] >= 0)
            GX_TRY(gx__tensor_file_check_alias(match, s, t, i, folder, err));
        if (!t->row[i].has_alias && match->entry[i] < 0 && !match->drawn[i])
            return gx__tensor_file_lacks(s, t->row[i].name, match, folder, err);
    }
    return GX_OK;
}

// ---- which tensor of an adapter is which ---------------------------------------------------------------------------

static int gx__tensor_file_is_of_a_head(const GxFamily *family, const char *in_file)
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

// Of X.base_layer.weight the row of X.weight, which has LoRA; -1: it is no such copy.
static int gx__tensor_file_copy_of(const GxTable *t, const GxFamily *family, const char *in_file)
{
    char name[GX_NAME];
    const size_t n = strlen(in_file), k = strlen(GX__TENSOR_FILE_COPY), prefix = strlen(GX_PEFT_PREFIX);
    if (n < k + prefix || strcmp(in_file + n - k, GX__TENSOR_FILE_COPY)) return -1;
    snprintf(name, sizeof name, "%.*s.weight", (int)(n - k - prefix), in_file + prefix);
    const int row = n - k - prefix + 8 < GX_NAME ? gx__tensor_file_row(t, family, name) : -1;
    return row >= 0 && t->row[row].has_lora ? row : -1;
}

// The row of the adapter's that the file's tensor is; -2: nothing that is needed.
static GxStatus gx__tensor_file_adapter_row(int *row, GxMatching how, const GxTable *t, const GxFamily *family,
                                            const char *in_file, const char *folder, GxError *err)
{
    const size_t n = strlen(GX_PEFT_PREFIX);
    if (strncmp(in_file, GX_PEFT_PREFIX, n))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has the tensor %.120s; names of an adapter's begin with " GX_PEFT_PREFIX,
                       folder, in_file);
    *row = gx__tensor_file_copy_of(t, family, in_file) >= 0 ? -2 : gx__tensor_file_row(t, family, in_file + n);
    if (*row == -1 && how == GX_MATCH_BARE_ADAPTER && gx__tensor_file_is_of_a_head(family, in_file + n)) *row = -2;
    if (*row == -2 || (*row >= 0 && t->row[*row].is_adapter)) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s has %.120s, which is none of the tensors that its adapter_config.json says (target_modules, "
                   "modules_to_save), or none of this model's adapter; is it of another one?",
                   folder, in_file);
}

// Where the file has nothing for it, a tensor of the base's own stays as it is, unless it was named, or is a norm,
// which a method trains.
static GxStatus gx__tensor_file_match_adapter(GxTensorMatch *match, const GxSafetensors *s, const GxTable *t,
                                              const GxFamily *family, const char *folder, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        int row = -1;
        GX_TRY(gx__tensor_file_adapter_row(&row, match->how, t, family, s->entry[e].name, folder, err));
        if (row < 0) continue;
        if (match->entry[row] >= 0)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s has %.120s and %.120s, which are two names of one tensor; remove one of them", folder,
                           s->entry[match->entry[row]].name, s->entry[e].name);
        match->entry[row] = e;
    }
    for (int i = 0; i < t->n; i++) {
        match->drawn[i] = match->entry[i] < 0;
        const int is_norm = t->row[i].is_adapter && t->row[i].role == GX_ROLE_NORM;
        if (match->drawn[i] && (t->row[i].is_added || is_norm || (t->row[i].is_named && !t->row[i].has_alias)))
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
    match->misshapen = (int *)malloc((size_t)(t->n + 1) * sizeof *match->misshapen);
    match->drawn = (unsigned char *)calloc((size_t)t->n + 1, 1);
    match->left = (unsigned char *)calloc((size_t)s->n + 1, 1);
    match->packed = (unsigned char *)calloc((size_t)t->n + 1, 1);
    if (!match->entry || !match->misshapen || !match->drawn || !match->left || !match->packed)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", t->n + s->n);
    for (int i = 0; i < t->n; i++) match->entry[i] = match->misshapen[i] = -1;
    if (how == GX_MATCH_ADAPTER || how == GX_MATCH_BARE_ADAPTER)
        return gx__tensor_file_match_adapter(match, s, t, family, folder, err);
    GX_TRY(gx__tensor_file_match_names(match, s, t, family, folder, err));
    if (how == GX_MATCH_ANY) gx__tensor_file_match_shapes(match, s, t);
    gx__tensor_file_match_tied(match, t);
    gx__tensor_file_match_copies(match, t);
    if (how == GX_MATCH_ANY) gx__tensor_file_match_rest(match, t);
    if (how == GX_MATCH_BODY || how == GX_MATCH_BASE)
        GX_TRY(gx__tensor_file_match_heads(match, s, t, family, folder, err));
    gx__tensor_file_draw_adapter(match, t);
    return gx__tensor_file_check_match(match, s, t, folder, err);
}

int gx_tensor_file_has_copies(const GxSafetensors *s)
{
    const size_t k = strlen(GX__TENSOR_FILE_COPY);
    for (int e = 0; e < s->n; e++) {
        const size_t n = strlen(s->entry[e].name);
        if (n > k && !strcmp(s->entry[e].name + n - k, GX__TENSOR_FILE_COPY)) return 1;
    }
    return 0;
}

// By how much x may be off in a type: half a unit in its last place, below the smallest normal number of that.
static float gx__tensor_file_rounding(int dtype, float x)
{
    return dtype == GX_BF16 ? 0x1p-8f * fabsf(x) : dtype == GX_F16 ? 0x1p-11f * fabsf(x) + 0x1p-25f : 0;
}

static GxStatus gx__tensor_file_check_copy(const GxSafetensors *s, const GxSafetensorsEntry *copy,
                                           const GxSafetensors *base, const GxSafetensorsEntry *own, const char *folder,
                                           GxError *err)
{
    enum { BLOCK = 4096 };
    float theirs[BLOCK], ours[BLOCK];
    int is_same = own && own->elements == copy->elements;
    for (int64_t first = 0; is_same && first < copy->elements; first += BLOCK) {
        const int64_t n = gx_min(BLOCK, copy->elements - first);
        GX_TRY(gx_safetensors_read(s, copy, first, n, theirs, err));
        GX_TRY(gx_safetensors_read(base, own, first, n, ours, err));
        for (int64_t i = 0; i < n; i++)
            is_same &= fabsf(theirs[i] - ours[i]) <= gx__tensor_file_rounding(copy->dtype, ours[i]);
    }
    if (is_same) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s has %.120s, a copy of the matrix that peft saves with LoRA on it, and its values are not those "
                   "of the base, which are used here: is it the adapter of another model, or one with more tokens?",
                   folder, copy->name);
}

GxStatus gx_tensor_file_check_copies(const GxSafetensors *s, const GxSafetensors *base, const GxTensorMatch *of_base,
                                     const GxTable *t, const GxFamily *family, const char *folder, GxError *err)
{
    for (int e = 0; e < s->n; e++) {
        const int row = gx__tensor_file_copy_of(t, family, s->entry[e].name);
        if (row < 0) continue;
        const int own = of_base->entry[t->row[row].has_alias ? t->row[row].alias.index : row];
        GX_TRY(gx__tensor_file_check_copy(s, &s->entry[e], base, own < 0 ? NULL : &base->entry[own], folder, err));
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
    free(match->misshapen);
    free(match->drawn);
    free(match->left);
    free(match->packed);
    memset(match, 0, sizeof *match);
}
#endif
