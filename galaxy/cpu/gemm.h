// gemm.h: matrix product on the CPU: oneDNN where it is compiled in (GX_WITH_ONEDNN; its interfaces 2.x and 3.x), else plain C.
//
// The only file that includes oneDNN. Called from within a parallel region it runs on the calling thread alone: attention multiplies its
// tiles so.
#ifndef GX_CPU_GEMM_H
#define GX_CPU_GEMM_H
#include "../base/context.h"
GX_BEGIN

// C[M,N] = alpha * op(A) op(B) + beta * C, row-major; op(A) is [M,K], op(B) [K,N]; trans: the matrix lies transposed. ld*: elements from
// one row in memory to the next. beta 0: C is only written. Same arguments, same threads, same library: same bits.
typedef struct {
    int trans_a, trans_b;
    int64_t M, N, K;
    float alpha, beta;
    const float *A, *B;
    int64_t lda, ldb;
    float *C;
    int64_t ldc;
} GxGemm;
GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err);

const char *gx_cpu_gemm_name(void); // "oneDNN 2.6.3", "plain C"

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_GEMM_IMPLEMENTED)
#define GX_CPU_GEMM_IMPLEMENTED
#ifdef _OPENMP
#include <omp.h>
#endif

static GxStatus gx__gemm_checked(const GxGemm *p, GxError *err)
{
    if (p->M < 0 || p->N < 0 || p->K < 1 || p->lda < (p->trans_a ? p->M : p->K) || p->ldb < (p->trans_b ? p->K : p->N) || p->ldc < p->N)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "matrix product %ld x %ld x %ld with strides %ld, %ld, %ld does not fit together", (long)p->M, (long)p->N,
                       (long)p->K, (long)p->lda, (long)p->ldb, (long)p->ldc);
    return GX_OK;
}

#ifdef GX_WITH_ONEDNN
#include <stdio.h>
#include <oneapi/dnnl/dnnl.h>

const char *gx_cpu_gemm_name(void)
{
    static char name[32]; // the same text whoever writes it
    const dnnl_version_t *v = dnnl_version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return name;
}

GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err)
{
    GX_TRY(gx__gemm_checked(p, err));
#ifdef _OPENMP
    if (!omp_in_parallel() && omp_get_max_threads() != threads) omp_set_num_threads(threads); // oneDNN asks OpenMP; this thread's own setting
#else
    (void)threads;
#endif
    dnnl_status_t s = dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, p->alpha, p->A, p->lda, p->B, p->ldb, p->beta, p->C,
                                 p->ldc);
    if (s == dnnl_success) return GX_OK;
    return GX_FAIL(err, s == dnnl_out_of_memory ? GX_ERR_MEMORY : GX_ERR_DEVICE, "oneDNN refused a matrix product %ld x %ld x %ld (its status %d)", (long)p->M,
                   (long)p->N, (long)p->K, (int)s);
}

#else

const char *gx_cpu_gemm_name(void) { return "plain C (slow; oneDNN was not compiled in)"; }

// Tiles of GX__MR x GX__NR of C in registers; panels of A and B of GX__KC columns and rows are copied so that the tile's loop reads in order.
enum { GX__MR = 6, GX__NR = 32, GX__KC = 256, GX__MC = 96 };

static void gx__gemm_tile(float acc[GX__MR][GX__NR], const float *a, const float *b, int64_t k)
{
    for (int64_t l = 0; l < k; l++, a += GX__MR, b += GX__NR)
        for (int i = 0; i < GX__MR; i++) {
            float x = a[i];
            GX_OMP(simd)
            for (int j = 0; j < GX__NR; j++) acc[i][j] += x * b[j];
        }
}

// One block of rows: C[m0 .. m0+m, :] += alpha * A B, by panels.
static void gx__gemm_rows(const GxGemm *p, int64_t m0, int64_t m, float *pa, float *pb)
{
    int64_t ai = p->trans_a ? 1 : p->lda, ak = p->trans_a ? p->lda : 1, bk = p->trans_b ? 1 : p->ldb, bj = p->trans_b ? p->ldb : 1;
    for (int64_t k0 = 0; k0 < p->K; k0 += GX__KC) {
        int64_t k = gx_min(GX__KC, p->K - k0);
        for (int64_t i0 = 0; i0 < m; i0 += GX__MR)
            for (int64_t l = 0; l < k; l++)
                for (int64_t i = 0; i < GX__MR; i++)
                    pa[(i0 * k) + l * GX__MR + i] = i0 + i < m ? p->alpha * p->A[(m0 + i0 + i) * ai + (k0 + l) * ak] : 0;
        for (int64_t j0 = 0; j0 < p->N; j0 += GX__NR) {
            int64_t n = gx_min(GX__NR, p->N - j0);
            for (int64_t l = 0; l < k; l++)
                for (int64_t j = 0; j < GX__NR; j++) pb[l * GX__NR + j] = j < n ? p->B[(k0 + l) * bk + (j0 + j) * bj] : 0;
            for (int64_t i0 = 0; i0 < m; i0 += GX__MR) {
                float acc[GX__MR][GX__NR] = GX_ZERO;
                gx__gemm_tile(acc, pa + i0 * k, pb, k);
                for (int64_t i = 0; i < gx_min(GX__MR, m - i0); i++) {
                    float *c = p->C + (m0 + i0 + i) * p->ldc + j0;
                    for (int64_t j = 0; j < n; j++) c[j] = (k0 ? c[j] : p->beta == 0 ? 0 : p->beta * c[j]) + acc[i][j];
                }
            }
        }
    }
}

GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err)
{
    GX_TRY(gx__gemm_checked(p, err));
    (void)threads;
    GX_OMP(parallel for schedule(dynamic) num_threads(threads))
    for (int64_t m0 = 0; m0 < p->M; m0 += GX__MC) {
        float pa[GX__MC * GX__KC], pb[GX__KC * GX__NR]; // 128 KB of stack
        gx__gemm_rows(p, m0, gx_min(GX__MC, p->M - m0), pa, pb);
    }
    return GX_OK;
}
#endif
#endif
