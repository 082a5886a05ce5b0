// parallel/values.h: a tensor's values in fp32, wherever its store has them: what initialisation and files read and
// write.
//
// In fp32 the weights are the values; of a trained tensor in a narrower type the masters are, and what is computed with
// follows them; a frozen one in a narrower type has no others, so they pass through scratch of the device's arena,
// which the caller gives back by its mark.
#ifndef GX_VALUES_H
#define GX_VALUES_H
#include "../base/store.h"
#include "../ops/elementwise.h"
GX_BEGIN

// Elements [first, first + n) of this rank's box of a tensor, in the device's memory: to be read; to be written.
float *gx_values_read(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n);
float *gx_values_write(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n);
void gx_values_written(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n, const float *values);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_VALUES_IMPLEMENTED)
#define GX_VALUES_IMPLEMENTED

float *gx_values_write(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n)
{
    float *master = gx_store_master(s, row);
    return master ? master + first : (float *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * n);
}

float *gx_values_read(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n)
{
    float *values = gx_values_write(g, s, row, first, n);
    if (!gx_store_master(s, row) && values)
        gx_convert(g, values, GX_F32, gx_store_weights_at(s, s->place[row].weight + first), s->dtype, n);
    return values;
}

void gx_values_written(GxContext *g, const GxStore *s, int row, int64_t first, int64_t n, const float *values)
{
    if (s->dtype != GX_F32 && values)
        gx_convert(g, gx_store_weights_at(s, s->place[row].weight + first), s->dtype, values, GX_F32, n);
}
#endif
