// cpu/embedding.h: ops/embedding.h on the CPU.
#ifndef GX_CPU_EMBEDDING_H
#define GX_CPU_EMBEDDING_H
#include "../ops/embedding.h"
GX_BEGIN

void gx_cpu_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, const GxEmbedding *e);
void gx_cpu_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, const GxEmbedding *e);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_EMBEDDING_IMPLEMENTED)
#define GX_CPU_EMBEDDING_IMPLEMENTED
#include <string.h>
#include "elementwise.h"
#include "team.h"
#include "vec.h"

static inline int gx__cpu_in_table(int32_t id, const GxEmbedding *e) { return id >= e->v_begin && id < e->v_end; }

// y[c] = (accumulate ? y[c] : 0) + w[c * step]
static GX_CPU_INLINE void gx__cpu_take_column(void *y, const void *w, int64_t step, int64_t C, int accumulate,
                                              GxDtype dtype)
{
    for (int64_t c = 0; c < C; c++)
        gx_cpu_store(y, c, (accumulate ? gx_cpu_load(y, c, dtype) : 0) + gx_cpu_load(w, c * step, dtype), dtype);
}

// y[r,c] = (accumulate ? y[r,c] : 0) + w[ids[r] - v_begin, c], without w if ids[r] is not in [v_begin, v_end)
void gx_cpu_embedding_forward(GxContext *g, void *y, const void *w, const int32_t *ids, const GxEmbedding *e)
{
    (void)g;
    const size_t bytes = (size_t)(e->C * gx_dtype_size(e->dtype));
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, e->R * e->C)))
    for (int64_t r = 0; r < e->R; r++) {
        void *out = gx_cpu_at(y, r * e->C, e->dtype);
        const int here = gx__cpu_in_table(ids[r], e);
        const void *row = here ? gx_cpu_from(w, (ids[r] - e->v_begin) * gx_embedding_row_step(e), e->dtype) : NULL;
        if (e->is_transposed && here)
            GX_CPU_TYPES(e->dtype, gx__cpu_take_column, out, row, gx_embedding_column_step(e), e->C, e->accumulate);
        else if (!e->accumulate && here) memcpy(out, row, bytes);
        else if (!e->accumulate) memset(out, 0, bytes);
        else if (here) GX_CPU_TYPES(e->dtype, gx__cpu_add_range, out, out, row, e->C);
    }
}

// sum[i] += x[i]
static GX_CPU_INLINE void gx__cpu_add_to(float *sum, const void *x, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) sum[i] += gx_cpu_load(x, i, dtype);
}

// dw[c, v - v_begin] of a transposed table: a thread has whole rows of it.
static GX_CPU_INLINE void gx__cpu_add_columns(float *dw, const void *dy, const int32_t *ids, int64_t c,
                                              const GxEmbedding *e, GxDtype dtype)
{
    float *row = dw + c * gx_embedding_column_step(e);
    for (int64_t r = 0; r < e->R; r++)
        if (gx__cpu_in_table(ids[r], e) && ids[r] != e->ignored)
            row[ids[r] - e->v_begin] += gx_cpu_load(dy, r * e->C + c, dtype);
}

// dw[v - v_begin, c] = (accumulate ? dw : 0) + sum over rows r with ids[r] = v of dy[r,c], in order of r
// Threads divide the columns, not the rows, among them: each adds its columns of all rows in order, so that no two
// threads write the same element.
void gx_cpu_embedding_backward(GxContext *g, float *dw, const void *dy, const int32_t *ids, const GxEmbedding *e)
{
    const int64_t width = e->is_transposed ? 1 : 64, C = e->C;
    if (!e->accumulate) gx_cpu_zero(g, dw, (e->v_end - e->v_begin) * C * 4);
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, e->R * C)))
    for (int64_t c0 = 0; c0 < C; c0 += width) {
        int64_t n = gx_min(width, C - c0);
        if (e->is_transposed) GX_CPU_TYPES(e->dtype, gx__cpu_add_columns, dw, dy, ids, c0, e);
        for (int64_t r = 0; r < e->R && !e->is_transposed; r++) {
            if (!gx__cpu_in_table(ids[r], e) || ids[r] == e->ignored) continue;
            GX_CPU_TYPES(e->dtype, gx__cpu_add_to, dw + (ids[r] - e->v_begin) * C + c0,
                         gx_cpu_from(dy, r * C + c0, e->dtype), n);
        }
    }
}
#endif
