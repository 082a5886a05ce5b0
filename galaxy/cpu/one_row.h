// one_row.h: a matrix product of one row, c = alpha * a B^T + beta * c, as writing text needs it: one token's row by
// all weights of a layer.
//
// What it costs is reading B. Libraries of matrix products first copy panels of it, which takes as long as the product;
// here a row of B is read where it lies, from its beginning to its end, by one thread. The memory is fastest so: of
// four rows side by side it gave half as much. Sums are taken in fp32, in an order that does not depend on the threads.
#ifndef GX_CPU_ONE_ROW_H
#define GX_CPU_ONE_ROW_H
#include "gemm.h"
GX_BEGIN

int gx_cpu_is_one_row(const GxGemm *p);
void gx_cpu_one_row(const GxGemm *p, int threads); // p: a product of which the line above is true

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ONE_ROW_IMPLEMENTED)
#define GX_CPU_ONE_ROW_IMPLEMENTED
#include "vec.h"

int gx_cpu_is_one_row(const GxGemm *p) { return p->M == 1 && !p->trans_a && p->trans_b; }

static GX_CPU_INLINE void gx__cpu_row_sum(float *sum, const void *a, const void *b, int64_t k, GxDtype type)
{
    float s = 0;
    GX_OMP(simd reduction(+ : s))
    for (int64_t i = 0; i < k; i++) s += gx_cpu_load(a, i, type) * gx_cpu_load(b, i, type);
    *sum = s;
}

void gx_cpu_one_row(const GxGemm *p, int threads)
{
    (void)threads;
    GX_OMP(parallel for schedule(static) num_threads(threads))
    for (int64_t n = 0; n < p->N; n++) {
        float sum, before = p->beta == 0 ? 0 : p->beta * gx_cpu_load(p->C, n, p->type_c);
        GX_CPU_TYPES(p->type_ab, gx__cpu_row_sum, &sum, p->A, gx_cpu_from(p->B, n * p->ldb, p->type_ab), p->K);
        gx_cpu_store(p->C, n, p->alpha * sum + before, p->type_c);
    }
}
#endif
