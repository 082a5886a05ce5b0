// cpu/embedding.h: ops/embedding.h on the CPU.
#ifndef GX_CPU_EMBEDDING_H
#define GX_CPU_EMBEDDING_H
#include "../ops/embedding.h"
GX_BEGIN

void gx_cpu_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, int64_t R, int64_t C,
                              int64_t v_begin, int64_t v_end, GxDtype dtype);
void gx_cpu_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, int64_t R, int64_t C,
                               int64_t v_begin, int64_t v_end, int accumulate, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_EMBEDDING_IMPLEMENTED)
#define GX_CPU_EMBEDDING_IMPLEMENTED
#include <string.h>
#include "elementwise.h"
#include "vec.h"

// y[r,c] = w[ids[r] - v_begin, c], 0 where ids[r] is not in [v_begin, v_end)
void gx_cpu_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, int64_t R, int64_t C,
                              int64_t v_begin, int64_t v_end, GxDtype dtype)
{
    (void)g;
    const size_t bytes = (size_t)(C * gx_dtype_size(dtype));
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++) {
        void *out = gx_cpu_at(y, r * C, dtype);
        if (ids[r] >= v_begin && ids[r] < v_end) memcpy(out, gx_cpu_from(w, (ids[r] - v_begin) * C, dtype), bytes);
        else memset(out, 0, bytes);
    }
}

// sum[i] += x[i]
static GX_CPU_INLINE void gx__cpu_add_to(float *sum, const void *x, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) sum[i] += gx_cpu_load(x, i, dtype);
}

// dw[v - v_begin, c] = (accumulate ? dw : 0) + sum over rows r with ids[r] = v of dy[r,c]
// Threads share out the columns, not the rows: each adds its columns of all rows in order, so that no two write the
// same element.
void gx_cpu_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, int64_t R, int64_t C,
                               int64_t v_begin, int64_t v_end, int accumulate, GxDtype dtype)
{
    const int64_t width = 64;
    if (!accumulate) gx_cpu_zero(g, dw, (v_end - v_begin) * C * 4);
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t c0 = 0; c0 < C; c0 += width) {
        int64_t n = gx_min(width, C - c0);
        for (int64_t r = 0; r < R; r++) {
            if (ids[r] < v_begin || ids[r] >= v_end) continue;
            GX_CPU_TYPES(dtype, gx__cpu_add_to, dw + (ids[r] - v_begin) * C + c0, gx_cpu_from(dy, r * C + c0, dtype),
                         n);
        }
    }
}
#endif
