// cpu/columns.h: ops/columns.h on the CPU.
#ifndef GX_CPU_COLUMNS_H
#define GX_CPU_COLUMNS_H
#include "../ops/columns.h"
GX_BEGIN

void gx_cpu_scale_columns_forward(GxContext *g, void *y, const void *x, const void *s, const GxColumns *n);
void gx_cpu_scale_columns_backward(GxContext *g, void *dx, float *ds, float *db, const void *dy, const void *x,
                                   const void *s, const GxColumns *n, int accumulate, float *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_COLUMNS_IMPLEMENTED)
#define GX_CPU_COLUMNS_IMPLEMENTED
#include "norm.h"
#include "team.h"
#include "vec.h"

static GX_CPU_INLINE void gx__cpu_scale_columns_row(void *y, const void *x, const void *s, int64_t C, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t c = 0; c < C; c++) gx_cpu_store(y, c, gx_cpu_load(x, c, dtype) * gx_cpu_load(s, c, dtype), dtype);
}

void gx_cpu_scale_columns_forward(GxContext *g, void *y, const void *x, const void *s, const GxColumns *n)
{
    const GxDtype dtype = n->dtype;
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n->R * n->C)))
    for (int64_t r = 0; r < n->R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_scale_columns_row, gx_cpu_at(y, r * n->stride, dtype),
                     gx_cpu_from(x, r * n->stride, dtype), s, n->C);
}

// ds[c] += dy[c]*x[c], db[c] += dy[c]*s[c], dx[c] = dy[c]*s[c]; NULL: not needed
static GX_CPU_INLINE void gx__cpu_scale_columns_backward_row(void *dx, float *ds, float *db, const void *dy,
                                                             const void *x, const void *s, int64_t C, GxDtype dtype)
{
    if (ds) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) ds[c] += gx_cpu_load(dy, c, dtype) * gx_cpu_load(x, c, dtype);
    }
    if (db) {
        GX_OMP(simd)
        for (int64_t c = 0; c < C; c++) db[c] += gx_cpu_load(dy, c, dtype) * gx_cpu_load(s, c, dtype);
    }
    if (dx) gx__cpu_scale_columns_row(dx, dy, s, C, dtype);
}

// The rows of a block yield a share each of ds and db; ds and db are the sums of the shares, in order.
void gx_cpu_scale_columns_backward(GxContext *g, void *dx, float *ds, float *db, const void *dy, const void *x,
                                   const void *s, const GxColumns *n, int accumulate, float *scratch)
{
    float *const sums[2] = {ds, db};
    const GxDtype dtype = n->dtype;
    const int64_t blocks = gx_ceil_div(n->R, GX_COLUMNS_BLOCK);
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, n->R * n->C)))
    for (int64_t k = 0; k < blocks; k++) {
        float *share[2];
        gx__cpu_shares(share, sums, 2, scratch, k, blocks, n->C);
        for (int64_t r = k * GX_COLUMNS_BLOCK; r < gx_min(n->R, (k + 1) * GX_COLUMNS_BLOCK); r++)
            GX_CPU_TYPES(dtype, gx__cpu_scale_columns_backward_row, gx_cpu_at(dx, r * n->stride, dtype), share[0],
                         share[1], gx_cpu_from(dy, r * n->stride, dtype), gx_cpu_from(x, r * n->stride, dtype), s,
                         n->C);
    }
    gx__cpu_add_all_shares(g, sums, 2, scratch, blocks, n->C, accumulate);
}
#endif
