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
        return GX_FAIL(err, GX_ERR_ARGUMENT, "matrix product %ld x %ld x %ld with strides %ld, %ld, %ld does not fit together", (long)p->M,
                       (long)p->N, (long)p->K, (long)p->lda, (long)p->ldb, (long)p->ldc);
    return GX_OK;
}

#ifdef GX_WITH_ONEDNN
#include <stdio.h>
#include <oneapi/dnnl/dnnl.h>

const char *gx_cpu_gemm_name(void)
{
#define GX__TEXT(x)  #x
#define GX__QUOTE(x) GX__TEXT(x)
    return "oneDNN " GX__QUOTE(DNNL_VERSION_MAJOR) "." GX__QUOTE(DNNL_VERSION_MINOR) "." GX__QUOTE(DNNL_VERSION_PATCH);
}

// oneDNN has two ways. dnnl_sgemm starts at once and is the faster one on most shapes. Its matmul primitive takes longer to set up (the library
// keeps what it compiled; some 50 microseconds remain), but where A lies transposed, as in every weight gradient, its kernels are 10-15% faster:
// from a size on where the set-up is lost in the work, those go there.
enum { GX__MATMUL_FROM = 1 << 27 }; // multiplications

static int gx__uses_matmul(const GxGemm *p)
{
    return p->trans_a && !p->trans_b && p->alpha == 1 && (p->beta == 0 || p->beta == 1) &&
           (double)p->M * (double)p->N * (double)p->K >= (double)GX__MATMUL_FROM;
}

typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t sum;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
} GxMatmul;

#define GX__DNNL(call)                                                                                                                     \
    do {                                                                                                                                   \
        dnnl_status_t gx__dnnl = (call);                                                                                                   \
        if (gx__dnnl != dnnl_success) return gx__dnnl;                                                                                     \
    } while (0)

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t gx__matmul_open(GxMatmul *m, const GxGemm *p, const dnnl_dims_t dims[3], const dnnl_dims_t strides[3])
{
    dnnl_memory_desc_t d[3] = {NULL, NULL, NULL};
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < 3 && s == dnnl_success; i++) s = dnnl_memory_desc_create_with_strides(&d[i], 2, dims[i], dnnl_f32, strides[i]);
    if (s == dnnl_success) s = dnnl_matmul_primitive_desc_create(&m->desc, m->engine, d[0], d[1], NULL, d[2], m->attr);
    if (s == dnnl_success) s = dnnl_memory_create(&m->a, d[0], m->engine, (void *)p->A);
    if (s == dnnl_success) s = dnnl_memory_create(&m->b, d[1], m->engine, (void *)p->B);
    if (s == dnnl_success) s = dnnl_memory_create(&m->c, d[2], m->engine, p->C);
    for (int i = 0; i < 3; i++)
        if (d[i]) dnnl_memory_desc_destroy(d[i]);
    return s;
}
#else
static dnnl_status_t gx__matmul_open(GxMatmul *m, const GxGemm *p, const dnnl_dims_t dims[3], const dnnl_dims_t strides[3])
{
    dnnl_memory_desc_t d[3];
    dnnl_matmul_desc_t desc;
    for (int i = 0; i < 3; i++) GX__DNNL(dnnl_memory_desc_init_by_strides(&d[i], 2, dims[i], dnnl_f32, strides[i]));
    GX__DNNL(dnnl_matmul_desc_init(&desc, &d[0], &d[1], NULL, &d[2]));
    GX__DNNL(dnnl_primitive_desc_create(&m->desc, &desc, m->attr, m->engine, NULL));
    GX__DNNL(dnnl_memory_create(&m->a, &d[0], m->engine, (void *)p->A));
    GX__DNNL(dnnl_memory_create(&m->b, &d[1], m->engine, (void *)p->B));
    return dnnl_memory_create(&m->c, &d[2], m->engine, p->C);
}
#endif

static dnnl_status_t gx__matmul_run(GxMatmul *m, const GxGemm *p)
{
    const dnnl_dims_t dims[3] = {{p->M, p->K}, {p->K, p->N}, {p->M, p->N}};
    const dnnl_dims_t strides[3] = {
        {p->trans_a ? 1 : p->lda, p->trans_a ? p->lda : 1}, {p->trans_b ? 1 : p->ldb, p->trans_b ? p->ldb : 1}, {p->ldc, 1}};
    GX__DNNL(dnnl_engine_create(&m->engine, dnnl_cpu, 0));
    GX__DNNL(dnnl_stream_create(&m->stream, m->engine, dnnl_stream_default_flags));
    GX__DNNL(dnnl_primitive_attr_create(&m->attr));
    GX__DNNL(dnnl_post_ops_create(&m->sum));
#if DNNL_VERSION_MAJOR >= 3
    if (p->beta != 0) GX__DNNL(dnnl_post_ops_append_sum(m->sum, p->beta, 0, dnnl_data_type_undef));
#else
    if (p->beta != 0) GX__DNNL(dnnl_post_ops_append_sum(m->sum, p->beta));
#endif
    GX__DNNL(dnnl_primitive_attr_set_post_ops(m->attr, m->sum));
    GX__DNNL(gx__matmul_open(m, p, dims, strides));
    GX__DNNL(dnnl_primitive_create(&m->primitive, m->desc));
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_SRC, m->a}, {DNNL_ARG_WEIGHTS, m->b}, {DNNL_ARG_DST, m->c}};
    GX__DNNL(dnnl_primitive_execute(m->primitive, m->stream, 3, args));
    return dnnl_stream_wait(m->stream);
}

static void gx__matmul_close(GxMatmul *m)
{
    if (m->a) dnnl_memory_destroy(m->a);
    if (m->b) dnnl_memory_destroy(m->b);
    if (m->c) dnnl_memory_destroy(m->c);
    if (m->primitive) dnnl_primitive_destroy(m->primitive);
    if (m->desc) dnnl_primitive_desc_destroy(m->desc);
    if (m->sum) dnnl_post_ops_destroy(m->sum);
    if (m->attr) dnnl_primitive_attr_destroy(m->attr);
    if (m->stream) dnnl_stream_destroy(m->stream);
    if (m->engine) dnnl_engine_destroy(m->engine);
}

GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err)
{
    dnnl_status_t s;
    GX_TRY(gx__gemm_checked(p, err));
#ifdef _OPENMP
    if (!omp_in_parallel() && omp_get_max_threads() != threads)
        omp_set_num_threads(threads); // oneDNN asks OpenMP; this thread's own setting
#else
    (void)threads;
#endif
    if (gx__uses_matmul(p)) {
        GxMatmul m = GX_ZERO;
        s = gx__matmul_run(&m, p);
        gx__matmul_close(&m);
    } else {
        s = dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, p->alpha, p->A, p->lda, p->B, p->ldb, p->beta,
                       p->C, p->ldc);
    }
    if (s == dnnl_success) return GX_OK;
    return GX_FAIL(err, s == dnnl_out_of_memory ? GX_ERR_MEMORY : GX_ERR_DEVICE,
                   "oneDNN refused a matrix product %ld x %ld x %ld (its status %d)", (long)p->M, (long)p->N, (long)p->K, (int)s);
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
