// tensor_file.h: a safetensors file with the tensors of a store: which of them are in it, under which names, and the
// memory that saving (tensor_save.h) and loading (tensor_load.h) share.
//
// The file, or one file of several, holds each tensor whole, however the ranks split it. Rank 0 writes, and gathers
// from its tp group what it does not have itself; rank 0 also reads, piece by piece, and broadcasts, so that the ranks
// need no shared disk. Where a model's own names differ from the file's, tensor_match.h tells which tensor is which.
//
// MEMORY: scratch from the host's arena, and for values on a device from its own, both given back at the end. A dry run
// plans it: gx_tensor_file_plan.
#ifndef GX_TENSOR_FILE_H
#define GX_TENSOR_FILE_H
#include "../model/build.h"
#include "../parallel/boxes.h"
#include "../parallel/values.h"
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

// 1: the part has the names and shapes of other libraries' files, in which tensors may be stacked or transposed
// (GxTensor.stack, GxTensor.is_transposed). 0: it is for this library alone, with tensors as they are in memory.
int gx_tensor_file_is_foreign(const GxTensorPart *part);
// A transposed matrix [rows, cols] in such a file: its elements [first, first + n), row by row, have a run of rows in
// each column of the matrix, which is a row of the file's tensor. Returns the rows in column c.
GxRange gx_tensor_file_run(int64_t cols, int64_t c, int64_t first, int64_t n);
// Where element (0, c) of a transposed matrix is in the file's tensor; the column's other rows follow it.
int64_t gx_tensor_file_column(const GxTensor *t, int64_t c);

// 1: a file of this part has row `row` of the store's table, under its own name.
int gx_tensor_file_has(const GxStore *s, const GxTensorPart *part, int row);
// 1: this rank takes part in saving row `row`, which is not split: the ranks that share its unit, or otherwise the
// first rank of its stage.
int gx_tensor_file_reads(const GxContext *g, const GxStore *s, int row);

// Scratch memory of the host's arena, until the caller releases it: for pieces of split tensors (NULL: none are split),
// and in a pipeline for values of tensors that other stages have (NULL: there are none).
void *gx_tensor_file_scratch(GxContext *g, const GxTable *t);
float *gx_tensor_file_room(GxContext *g, const GxStore *s);

// Plans the scratch memory of saving, or loading, or both: allocates it from a dry arena and releases it. loads: 1:
// weights are loaded; 2: the optimizer's moments, too.
void gx_tensor_file_plan(GxContext *g, const GxStore *s, int saves, int loads);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSOR_FILE_IMPLEMENTED)
#define GX_TENSOR_FILE_IMPLEMENTED
#include <string.h>
#include "../io/model_folder.h"
#include "quantize.h"

int gx_tensor_file_is_foreign(const GxTensorPart *part)
{
    return part->values == GX_VALUES_WEIGHTS && (!part->prefix[0] || !strcmp(part->prefix, GX_PEFT_PREFIX));
}

GxRange gx_tensor_file_run(int64_t cols, int64_t c, int64_t first, int64_t n)
{
    const GxRange rows = {gx_ceil_div(gx_max(0, first - c), cols), gx_ceil_div(gx_max(0, first + n - c), cols)};
    return rows;
}

int64_t gx_tensor_file_column(const GxTensor *t, int64_t c)
{
    return c * (t->stack[0] ? t->stack_rows : t->global_shape[0]) + (t->stack[0] ? t->stack_first : 0);
}

int gx_tensor_file_has(const GxStore *s, const GxTensorPart *part, int row)
{
    const GxTensor *t = &s->table->row[row];
    if (part->of == GX_PART_ADAPTER && !t->is_adapter) return 0;
    if (part->of == GX_PART_WHOLE && t->is_added) return 0;
    return gx_values_exist(s, part->values, row);
}

int gx_tensor_file_reads(const GxContext *g, const GxStore *s, int row)
{
    const int together = s->sharded ? gx_shards_axes(s, gx_store_unit(s, row)) : 0;
    return gx_group_index(g, (GX_AXIS_FSDP | GX_AXIS_TP) & ~together) == 0;
}

void *gx_tensor_file_scratch(GxContext *g, const GxTable *t)
{
    const int64_t bytes = gx_boxes_scratch(t);
    return bytes ? gx_allocate_from(g, gx_host_arena(g), GX_MEM_WORKSPACE, bytes) : NULL;
}

float *gx_tensor_file_room(GxContext *g, const GxStore *s)
{
    const GxTable *t = s->table;
    int64_t most = 0;
    for (int i = 0; i < t->n && gx_group_size(g, GX_AXIS_PP) > 1; i++)
        if (!t->row[i].parts && !gx_store_has(s, i)) most = gx_max(most, gx_min(GX_STAGE, gx_tensor_count(&t->row[i])));
    return most ? (float *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_WORKSPACE, 4 * most) : NULL;
}

// Plans the scratch that values of a row pass through, if any. A tied tensor's copy on the last stage is loaded, but
// not saved.
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

// Plans saving or loading one file. moments: 1: it may have the optimizer's.
static void gx__tensor_file_plan_once(GxContext *g, const GxStore *s, int saves, int moments)
{
    const GxTable *t = s->table;
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    int64_t most = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->row[i].parts) most = gx_max(most, gx_min(GX_STAGE, gx_tensor_count(&t->row[i])));
    gx_tensor_file_scratch(g, t);
    if (!saves || g->rank == 0) gx_tensor_file_room(g, s);
    gx_host_copy(g, GX_MEM_WORKSPACE, a->base, 4 * most);
    for (int i = 0; i < t->n; i++) {
        if (saves && !t->row[i].parts && !gx_tensor_file_reads(g, s, i)) continue;
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

#endif
