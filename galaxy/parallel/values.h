// parallel/values.h: reads and writes a tensor's values in fp32, wherever its store has them: for initialisation and
// files.
//
// fp32 weights are the values. For a trained tensor in a narrower type the masters are, and the weights are rounded
// from them. A frozen tensor in a narrower type has no fp32 values, so they are converted in scratch of the device's
// arena, which the caller releases by its mark. So are those of a quantised matrix, which are read in whole rows and
// never written (run/quantize.h makes such matrices).
//
// Sharded values use scratch, too. All ranks that share the unit must call together: in writing, all write the same and
// each keeps its part; in reading, all get the whole. Sharded quantised matrices can be read between gx_shards_gather
// and gx_shards_free.
#ifndef GX_VALUES_H
#define GX_VALUES_H
#include "../base/store.h"
#include "../ops/elementwise.h"
#include "../ops/memory.h"
#include "../ops/quantize.h"
#include "shards.h"
GX_BEGIN

typedef enum { GX_VALUES_WEIGHTS = 0, GX_VALUES_MOMENT_1, GX_VALUES_MOMENT_2 } GxValues;

// 1: the tensor has such values, on this rank or on another stage's (gx_store_has tells whether on this one). A frozen
// tensor has no moments.
int gx_values_exist(const GxStore *s, GxValues what, int row);

// 1: several ranks have parts of them (gx_shards_axes of the unit), and must read them together.
int gx_values_are_shared(const GxStore *s, GxValues what, int row);

// Elements [first, first + n) of this rank's box of a tensor, in the device's memory, to be read or to be written.
float *gx_values_read(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n);
float *gx_values_write(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n);
void gx_values_written(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n,
                       const float *values);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_VALUES_IMPLEMENTED)
#define GX_VALUES_IMPLEMENTED

int gx_values_exist(const GxStore *s, GxValues what, int row)
{
    if (s->table->row[row].has_alias) return 0;
    return what == GX_VALUES_WEIGHTS || !s->table->row[row].frozen;
}

int gx_values_are_shared(const GxStore *s, GxValues what, int row)
{
    const int is_optimizers = what != GX_VALUES_WEIGHTS || (gx_store_trains(s, row) && s->dtype != GX_F32);
    return s->sharded >= (is_optimizers ? GX_SHARDS_OPTIMIZER : GX_SHARDS_WEIGHTS);
}

// Element i of those that this rank has, in fp32; NULL: they do not exist in fp32.
static float *gx__values_at(const GxStore *s, GxValues what, int row, int64_t i)
{
    if (what == GX_VALUES_WEIGHTS) return gx_store_master_at(s, row, i);
    return gx_store_moment_at(s, what == GX_VALUES_MOMENT_2, row, i);
}

// Those of elements [first, first + n) that this rank has.
static GxRange gx__values_mine(const GxStore *s, GxValues what, int row, int64_t first, int64_t n)
{
    const int is_trained = what != GX_VALUES_WEIGHTS || gx_store_trains(s, row);
    const GxRange mine = is_trained ? gx_store_my_trained(s, row) : gx_store_my_weights(s, row);
    const GxRange r = {gx_max(mine.begin, first), gx_min(mine.end, first + n)};
    return r;
}

float *gx_values_write(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n)
{
    if (what == GX_VALUES_WEIGHTS && s->place[row].quantized >= 0) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s is quantized: its values come from a file, and stay as they are",
                s->table->row[row].name);
        return NULL;
    }
    float *values = gx_values_are_shared(s, what, row) ? NULL : gx__values_at(s, what, row, first);
    return values ? values : (float *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * n);
}

static float *gx__values_dequantized(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n)
{
    const GxTensorId id = {row};
    const GxQuantized w = gx_store_quantized(s, id);
    if (first % w.cols || n % w.cols) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s is quantized: its values can be read only in whole rows",
                s->table->row[row].name);
        return NULL;
    }
    float *values = (float *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * n);
    gx_dequantize(g, values, GX_F32, &w, first / w.cols, n / w.cols, 0, w.cols);
    return values;
}

// Converts this rank's part of them to fp32, at its place in `values`.
static void gx__values_widen(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, GxRange mine,
                             float *values)
{
    const float *own = gx__values_at(s, what, row, mine.begin);
    if (own) gx_copy(g, values + (mine.begin - first), own, 4 * gx_range_count(mine));
    else
        gx_convert(g, values + (mine.begin - first), GX_F32, gx_store_weight_at(s, row, mine.begin), s->dtype,
                   gx_range_count(mine));
}

// Gathers all ranks' parts of elements [first, first + n).
static void gx__values_gather(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n,
                              float *values)
{
    const int unit = gx_store_unit(s, row), is_trained = what != GX_VALUES_WEIGHTS || gx_store_trains(s, row);
    const GxStoreUnit *u = &s->unit[unit];
    const int64_t at =
        (is_trained ? s->place[row].trainable - u->trained.all.begin : s->place[row].weight - u->weights.all.begin) +
        first;
    const GxSplit split = gx_shards_split_part(s, unit, is_trained ? GX_SHARD_TRAINED : GX_SHARD_WEIGHTS, at, n);
    const int axes = gx_shards_axes(s, unit);
    gx_all_gather(g, axes, &split, values, values + split.begin[gx_group_index(g, axes)], 1, GX_F32);
}

float *gx_values_read(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n)
{
    if (what == GX_VALUES_WEIGHTS && s->place[row].quantized >= 0) return gx__values_dequantized(g, s, row, first, n);
    const int is_shared = gx_values_are_shared(s, what, row);
    const GxRange all = {first, first + n}, mine = is_shared ? gx__values_mine(s, what, row, first, n) : all;
    float *values = gx_values_write(g, s, what, row, first, n);
    if (!values) return NULL;
    if (gx_range_count(mine) && values != gx__values_at(s, what, row, mine.begin))
        gx__values_widen(g, s, what, row, first, mine, values);
    if (is_shared) gx__values_gather(g, s, what, row, first, n, values);
    return values;
}

void gx_values_written(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n,
                       const float *values)
{
    if (!values) return;
    const GxRange all = {first, first + n}, mine = gx__values_mine(s, what, row, first, n);
    if (gx_values_are_shared(s, what, row) && gx_range_count(mine)) {
        float *own = gx__values_at(s, what, row, mine.begin);
        if (own) gx_copy(g, own, values + (mine.begin - first), 4 * gx_range_count(mine));
    }
    const GxRange computed = s->sharded == GX_SHARDS_WEIGHTS ? mine : all;
    if (what == GX_VALUES_WEIGHTS && s->dtype != GX_F32 && gx_range_count(computed))
        gx_convert(g, gx_store_weight_at(s, row, computed.begin), s->dtype, values + (computed.begin - first), GX_F32,
                   gx_range_count(computed));
}
#endif
