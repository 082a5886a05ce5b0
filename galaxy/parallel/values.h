// parallel/values.h: a tensor's values in fp32, wherever its store has them: what initialisation and files read and
// write.
//
// In fp32 the weights are the values; of a trained tensor in a narrower type the masters are, and what is computed with
// follows them; a frozen one in a narrower type has no others, so they pass through scratch of the device's arena,
// which the caller gives back by its mark. So do those of a quantised matrix, which are read in whole rows and never
// written: run/quantize.h makes one.
#ifndef GX_VALUES_H
#define GX_VALUES_H
#include "../base/store.h"
#include "../ops/elementwise.h"
#include "../ops/quantize.h"
GX_BEGIN

typedef enum { GX_VALUES_WEIGHTS = 0, GX_VALUES_MOMENT_1, GX_VALUES_MOMENT_2 } GxValues;

// 1: the tensor has such values, on this rank or on one of another stage (gx_store_has: on this one); a frozen one has
// no moments.
int gx_values_exist(const GxStore *s, GxValues what, int row);

// Elements [first, first + n) of this rank's box of a tensor, in the device's memory: to be read; to be written.
float *gx_values_read(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n);
float *gx_values_write(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n);
void gx_values_written(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n,
                       const float *values);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_VALUES_IMPLEMENTED)
#define GX_VALUES_IMPLEMENTED

// Where they lie in fp32; NULL: nowhere.
static float *gx__values_place(const GxStore *s, GxValues what, int row)
{
    if (what == GX_VALUES_WEIGHTS) return gx_store_master(s, row);
    return gx_store_moment(s, what == GX_VALUES_MOMENT_2, row);
}

int gx_values_exist(const GxStore *s, GxValues what, int row)
{
    if (s->table->row[row].has_alias) return 0;
    return what == GX_VALUES_WEIGHTS || !s->table->row[row].frozen;
}

float *gx_values_write(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n)
{
    float *values = gx__values_place(s, what, row);
    if (what == GX_VALUES_WEIGHTS && s->place[row].quantized >= 0) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s is quantised: its values come from a file, and stay as they are",
                s->table->row[row].name);
        return NULL;
    }
    return values ? values + first : (float *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * n);
}

static float *gx__values_dequantized(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n)
{
    const GxTensorId id = {row};
    const GxQuantized w = gx_store_quantized(s, id);
    if (first % w.cols || n % w.cols) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s is quantised: its values can be read in whole rows alone",
                s->table->row[row].name);
        return NULL;
    }
    float *values = (float *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * n);
    gx_dequantize(g, values, GX_F32, &w, first / w.cols, n / w.cols, 0, w.cols);
    return values;
}

float *gx_values_read(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n)
{
    if (what == GX_VALUES_WEIGHTS && s->place[row].quantized >= 0) return gx__values_dequantized(g, s, row, first, n);
    float *values = gx_values_write(g, s, what, row, first, n);
    if (!gx__values_place(s, what, row) && values)
        gx_convert(g, values, GX_F32, gx_store_weights_at(s, s->place[row].weight + first), s->dtype, n);
    return values;
}

void gx_values_written(GxContext *g, const GxStore *s, GxValues what, int row, int64_t first, int64_t n,
                       const float *values)
{
    if (what == GX_VALUES_WEIGHTS && s->dtype != GX_F32 && values)
        gx_convert(g, gx_store_weights_at(s, s->place[row].weight + first), s->dtype, values, GX_F32, n);
}
#endif
