// gemm.h: matrix products on the CPU: with oneDNN if it is compiled in (gemm_onednn.h), otherwise with Galaxy's own
// kernels in C (gemm_tiles.h).
//
// Products of bf16 matrices are summed in fp32 and rounded once. oneDNN computes them if it reports that this CPU has
// instructions for bf16 (AVX512_BF16, AMX). On other CPUs it is slow at them or rejects them, so the kernels in C
// convert them to fp32.
//
// Memory: the kernels in C take up to a megabyte per thread during a product; oneDNN has its own buffers.
#ifndef GX_CPU_GEMM_H
#define GX_CPU_GEMM_H
#include "../base/status.h"
#include "gemm_args.h"
GX_BEGIN

// The kernels that compute products. Each has its own order of sums, so their results differ in the last bits.
typedef enum {
    GX_GEMM_ROW,    // A is one row and B is stored transposed: B is read in place
    GX_GEMM_SGEMM,  // oneDNN's dnnl_sgemm: fp32
    GX_GEMM_MATMUL, // oneDNN's matmul primitive: fp32, and bf16 with instructions for it
    GX_GEMM_TILES,  // gemm_tiles.h: everything
    GX_GEMM_WAYS
} GxGemmWay;
const char *gx_cpu_gemm_way_name(GxGemmWay way);     // "sgemm"
int gx_cpu_gemm_can(const GxGemm *p, GxGemmWay way); // 1: this build and CPU can compute p in this way
GxGemmWay gx_cpu_gemm_way(const GxGemm *p);          // the way that gx_cpu_gemm takes; a fixed rule
GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err);
GxStatus gx_cpu_gemm_by(const GxGemm *p, GxGemmWay way, int threads, GxError *err); // GX_ERR_UNSUPPORTED: not possible

// 1: bf16 products use instructions for bf16; 0: they would have no advantage over fp32 products.
int gx_cpu_gemm_has_bf16(void);
const char *gx_cpu_gemm_name(void); // "oneDNN 2.6.3", "plain C …"; and how bf16 is computed, if differently

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_GEMM_IMPLEMENTED)
#define GX_CPU_GEMM_IMPLEMENTED
#include "gemm_onednn.h"
#include "gemm_tiles.h"
#include "team.h"
#include "vec.h"

static GxStatus gx__cpu_gemm_checked(const GxGemm *p, GxError *err)
{
    if (p->M < 0 || p->N < 0 || p->K < 1 || p->lda < (p->trans_a ? p->M : p->K) ||
        p->ldb < (p->trans_b ? p->K : p->N) || p->ldc < p->N)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "matrix product %ld x %ld x %ld with strides %ld, %ld, %ld does not fit together", (long)p->M,
                       (long)p->N, (long)p->K, (long)p->lda, (long)p->ldb, (long)p->ldc);
    if (!(p->type_ab == GX_F32 && p->type_c == GX_F32) &&
        !(p->type_ab == GX_BF16 && (p->type_c == GX_F32 || p->type_c == GX_BF16)))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "matrix product of %s into %s; supported: F32 into F32, BF16 into BF16 or F32",
                       gx_dtype_name(p->type_ab), gx_dtype_name(p->type_c));
    return GX_OK;
}

// ---- one row -------------------------------------------------------------------------------------------------------

// C = alpha * A B^T + beta * C where A is one row, as in text generation: one token's row times all weights of a layer.
// The cost is that of reading B. Libraries first copy panels of it, which takes as long as the product; here one thread
// reads a row of B in place, from beginning to end. This has the highest memory bandwidth: four rows side by side had
// half as much. Sums are computed in fp32, in an order that does not depend on the threads.
static GX_CPU_INLINE void gx__cpu_row_sum(float *sum, const void *a, const void *b, int64_t k, GxDtype type)
{
    float s = 0;
    GX_OMP(simd reduction(+ : s))
    for (int64_t i = 0; i < k; i++) s += gx_cpu_load(a, i, type) * gx_cpu_load(b, i, type);
    *sum = s;
}

static void gx__cpu_one_row(const GxGemm *p, int threads)
{
    const int team = p->N * p->K < gx_cpu_small ? 1 : threads;
    (void)team;
    GX_OMP(parallel for schedule(static) num_threads(team))
    for (int64_t n = 0; n < p->N; n++) {
        float sum, before = p->beta == 0 ? 0 : p->beta * gx_cpu_load(p->C, n, p->type_c);
        GX_CPU_TYPES(p->type_ab, gx__cpu_row_sum, &sum, p->A, gx_cpu_from(p->B, n * p->ldb, p->type_ab), p->K);
        gx_cpu_store(p->C, n, p->alpha * sum + before, p->type_c);
    }
}

// ---- who computes it ------------------------------------------------------------------------------------------------

#ifdef GX_WITH_ONEDNN
int gx_cpu_gemm_has_bf16(void) { return gx__cpu_onednn_has_bf16(); }
const char *gx_cpu_gemm_name(void)
{
    return gx_cpu_gemm_has_bf16() ? GX__CPU_ONEDNN
                                  : GX__CPU_ONEDNN
               ", bf16 widened to fp32 products (this CPU has no bf16 instructions)";
}
#else
int gx_cpu_gemm_has_bf16(void) { return 0; }
const char *gx_cpu_gemm_name(void) { return "plain C (oneDNN was not compiled in)"; }
#endif

const char *gx_cpu_gemm_way_name(GxGemmWay way)
{
    static const char *const name[] = {"row", "sgemm", "matmul", "tiles"};
    return name[way];
}

int gx_cpu_gemm_can(const GxGemm *p, GxGemmWay way)
{
    if (way == GX_GEMM_TILES) return 1;
    if (way == GX_GEMM_ROW) return p->M == 1 && !p->trans_a && p->trans_b;
#ifdef GX_WITH_ONEDNN
    return p->type_ab == GX_F32 || (way == GX_GEMM_MATMUL && gx_cpu_gemm_has_bf16());
#else
    return 0;
#endif
}

GxGemmWay gx_cpu_gemm_way(const GxGemm *p)
{
    if (gx_cpu_gemm_can(p, GX_GEMM_ROW)) return GX_GEMM_ROW;
    if (!gx_cpu_gemm_can(p, GX_GEMM_MATMUL)) return GX_GEMM_TILES;
#ifdef GX_WITH_ONEDNN
    if (!gx__cpu_prefers_matmul(p)) return GX_GEMM_SGEMM;
#endif
    return GX_GEMM_MATMUL;
}

GxStatus gx_cpu_gemm_by(const GxGemm *p, GxGemmWay way, int threads, GxError *err)
{
    GX_TRY(gx__cpu_gemm_checked(p, err));
    if (!gx_cpu_gemm_can(p, way))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "matrix product %ld x %ld x %ld of %s cannot be computed by %s",
                       (long)p->M, (long)p->N, (long)p->K, gx_dtype_name(p->type_ab), gx_cpu_gemm_way_name(way));
#ifdef GX_WITH_ONEDNN
    if (way == GX_GEMM_SGEMM || way == GX_GEMM_MATMUL)
        return gx__cpu_gemm_onednn(p, way == GX_GEMM_MATMUL, threads, err);
#endif
    if (way == GX_GEMM_TILES) return gx_cpu_gemm_tiles(p, threads, err);
    gx__cpu_one_row(p, threads);
    return GX_OK;
}

GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err)
{
    return gx_cpu_gemm_by(p, gx_cpu_gemm_way(p), threads, err);
}
#endif
