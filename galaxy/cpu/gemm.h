// gemm.h: matrix product on the CPU: oneDNN where it is compiled in (GX_WITH_ONEDNN; its interfaces 2.x and 3.x), else
// plain C.
//
// The only file that includes oneDNN. Called from within a parallel region it runs on the calling thread alone:
// attention multiplies its tiles so. Products of bf16 matrices are summed in fp32 and rounded once. oneDNN does them
// where it says that this CPU has instructions for bf16 (AVX512_BF16, AMX); elsewhere they are slow there or refused,
// and panels of the matrices are widened to fp32 here, for products in fp32. oneDNN's own environment variable takes
// instructions away, so that a CPU which has them runs what others do: ONEDNN_MAX_CPU_ISA=AVX512_CORE ./test_ops
//
// Memory: panels lie on the stacks of the threads (272 KB with oneDNN, 176 KB in plain C); oneDNN has buffers of its
// own.
#ifndef GX_CPU_GEMM_H
#define GX_CPU_GEMM_H
#include "../base/context.h"
#include "../base/dtype.h"
GX_BEGIN

// C[M,N] = alpha * op(A) op(B) + beta * C, row-major; op(A) is [M,K], op(B) [K,N]; trans: the matrix lies transposed.
// ld*: elements from one row in memory to the next. beta 0: C is only written. Same arguments, same threads, same
// library: same bits.
typedef struct {
    int trans_a, trans_b;
    int64_t M, N, K;
    float alpha, beta;
    const void *A, *B;
    int64_t lda, ldb;
    void *C;
    int64_t ldc;
    GxDtype type_ab, type_c; // fp32 and fp32; bf16 and bf16 or fp32
} GxGemm;
GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err);
// The same by blocks, whatever the shape; gx_cpu_gemm has another way for one row.
GxStatus gx_cpu_gemm_blocked(const GxGemm *p, int threads, GxError *err);

// 1: products of bf16 are made by instructions for them; 0: they would gain nothing over products of fp32.
int gx_cpu_gemm_has_bf16(void);
const char *gx_cpu_gemm_name(void); // "oneDNN 2.6.3", "plain C"; and how bf16 is done, where that is another way

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_GEMM_IMPLEMENTED)
#define GX_CPU_GEMM_IMPLEMENTED
#include "team.h"
#include "vec.h"
#ifdef _OPENMP
#include <omp.h>
#endif

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
                       "matrix product of %s into %s; there are F32 into F32, BF16 into BF16 or F32",
                       gx_dtype_name(p->type_ab), gx_dtype_name(p->type_c));
    return GX_OK;
}

#ifndef GX_WITH_ONEDNN

// ---- plain C: any type ---------------------------------------------------------------------------------------------

// Tiles of GX__CPU_MR x GX__CPU_NR of C in registers; panels of A and B of GX__CPU_KC columns and rows are copied, as
// fp32, so that the tile's loop reads in order. A block of GX__CPU_MC x GX__CPU_NC of C is summed in fp32 over all
// panels, then stored.
enum { GX__CPU_MR = 6, GX__CPU_NR = 32, GX__CPU_KC = 256, GX__CPU_MC = 96, GX__CPU_NC = 128 };

typedef struct {
    float a[GX__CPU_MC * GX__CPU_KC], b[GX__CPU_KC * GX__CPU_NR], c[GX__CPU_MC][GX__CPU_NC];
} GxPanels; // 176 KB of stack

// acc[i,j] += sum_l a[l,i] * b[l,j]
static void gx__cpu_gemm_tile(float acc[GX__CPU_MR][GX__CPU_NR], const float *a, const float *b, int64_t k)
{
    for (int64_t l = 0; l < k; l++, a += GX__CPU_MR, b += GX__CPU_NR)
        for (int i = 0; i < GX__CPU_MR; i++) {
            float x = a[i];
            GX_OMP(simd)
            for (int j = 0; j < GX__CPU_NR; j++) acc[i][j] += x * b[j];
        }
}

// Rows m0 .. m0+m of alpha*op(A), columns k0 .. k0+k: [m/MR][k][MR].
static GX_CPU_INLINE void gx__cpu_gemm_pack_a(float *a, const GxGemm *p, int64_t m0, int64_t m, int64_t k0, int64_t k,
                                              GxDtype type)
{
    const int64_t ai = p->trans_a ? 1 : p->lda, ak = p->trans_a ? p->lda : 1;
    for (int64_t i0 = 0; i0 < m; i0 += GX__CPU_MR)
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = 0; i < GX__CPU_MR; i++)
                a[i0 * k + l * GX__CPU_MR + i] =
                    i0 + i < m ? p->alpha * gx_cpu_load(p->A, (m0 + i0 + i) * ai + (k0 + l) * ak, type) : 0;
}

// Rows k0 .. k0+k of op(B), columns j0 .. j0+n: [k][NR].
static GX_CPU_INLINE void gx__cpu_gemm_pack_b(float *b, const GxGemm *p, int64_t j0, int64_t n, int64_t k0, int64_t k,
                                              GxDtype type)
{
    const int64_t bk = p->trans_b ? 1 : p->ldb, bj = p->trans_b ? p->ldb : 1;
    for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < GX__CPU_NR; j++)
            b[l * GX__CPU_NR + j] = j < n ? gx_cpu_load(p->B, (k0 + l) * bk + (j0 + j) * bj, type) : 0;
}

static GX_CPU_INLINE void gx__cpu_gemm_load_c(float *c, const GxGemm *p, int64_t row, int64_t n0, int64_t n,
                                              GxDtype type)
{
    for (int64_t j = 0; j < n; j++) c[j] = gx_cpu_load(p->C, row * p->ldc + n0 + j, type);
}
static GX_CPU_INLINE void gx__cpu_gemm_store_c(const float *c, const GxGemm *p, int64_t row, int64_t n0, int64_t n,
                                               GxDtype type)
{
    for (int64_t j = 0; j < n; j++) gx_cpu_store(p->C, row * p->ldc + n0 + j, c[j], type);
}

// One panel's share of a block: c += a B, or beta*c + a B where it is the first.
static void gx__cpu_gemm_panel(GxPanels *s, const GxGemm *p, int64_t m, int64_t n0, int64_t n, int64_t k0, int64_t k)
{
    for (int64_t j0 = 0; j0 < n; j0 += GX__CPU_NR) {
        const int64_t width = gx_min(GX__CPU_NR, n - j0);
        GX_CPU_TYPES(p->type_ab, gx__cpu_gemm_pack_b, s->b, p, n0 + j0, width, k0, k);
        for (int64_t i0 = 0; i0 < m; i0 += GX__CPU_MR) {
            float acc[GX__CPU_MR][GX__CPU_NR] = GX_ZERO;
            gx__cpu_gemm_tile(acc, s->a + i0 * k, s->b, k);
            for (int64_t i = 0; i < gx_min(GX__CPU_MR, m - i0); i++) {
                float *c = s->c[i0 + i] + j0;
                for (int64_t j = 0; j < width; j++) c[j] = (k0 ? c[j] : p->beta == 0 ? 0 : p->beta * c[j]) + acc[i][j];
            }
        }
    }
}

static void gx__cpu_gemm_block(GxPanels *s, const GxGemm *p, int64_t m0, int64_t m, int64_t n0, int64_t n)
{
    for (int64_t i = 0; p->beta != 0 && i < m; i++)
        GX_CPU_TYPES(p->type_c, gx__cpu_gemm_load_c, s->c[i], p, m0 + i, n0, n);
    for (int64_t k0 = 0; k0 < p->K; k0 += GX__CPU_KC) {
        const int64_t k = gx_min(GX__CPU_KC, p->K - k0);
        GX_CPU_TYPES(p->type_ab, gx__cpu_gemm_pack_a, s->a, p, m0, m, k0, k);
        gx__cpu_gemm_panel(s, p, m, n0, n, k0, k);
    }
    for (int64_t i = 0; i < m; i++) GX_CPU_TYPES(p->type_c, gx__cpu_gemm_store_c, s->c[i], p, m0 + i, n0, n);
}

static void gx__cpu_gemm_plain(const GxGemm *p, int threads)
{
    (void)threads;
    GX_OMP(parallel for schedule(dynamic) num_threads(threads))
    for (int64_t m0 = 0; m0 < p->M; m0 += GX__CPU_MC) {
        GxPanels panels;
        for (int64_t n0 = 0; n0 < p->N; n0 += GX__CPU_NC)
            gx__cpu_gemm_block(&panels, p, m0, gx_min(GX__CPU_MC, p->M - m0), n0, gx_min(GX__CPU_NC, p->N - n0));
    }
}

int gx_cpu_gemm_has_bf16(void) { return 0; }
const char *gx_cpu_gemm_name(void) { return "plain C (slow; oneDNN was not compiled in)"; }

GxStatus gx_cpu_gemm_blocked(const GxGemm *p, int threads, GxError *err)
{
    GX_TRY(gx__cpu_gemm_checked(p, err));
    gx__cpu_gemm_plain(p, threads);
    return GX_OK;
}

#else

// ---- oneDNN --------------------------------------------------------------------------------------------------------

#include <stdio.h>
#include <oneapi/dnnl/dnnl.h>

// oneDNN has two ways. dnnl_sgemm starts at once and is the faster one on most shapes. Its matmul primitive takes
// longer to set up (the library keeps what it compiled; 3 to 30 microseconds remain), but where A lies transposed, as
// in every weight gradient, its kernels are 10-15% faster: from a size on where the set-up is lost in the work, those
// go there. Products of bf16 go there too, where the CPU has instructions for them.
enum { GX__CPU_MATMUL_FROM = 1 << 27 }; // multiplications

static int gx__cpu_uses_matmul(const GxGemm *p)
{
    if (p->type_ab == GX_BF16) return 1;
    return p->trans_a && !p->trans_b && p->alpha == 1 && (p->beta == 0 || p->beta == 1) &&
           (double)p->M * (double)p->N * (double)p->K >= (double)GX__CPU_MATMUL_FROM;
}

typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t factors; // alpha, beta
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
} GxMatmul;

#define GX__CPU_DNNL(call)                                                                                             \
    do {                                                                                                               \
        dnnl_status_t gx__cpu_dnnl = (call);                                                                           \
        if (gx__cpu_dnnl != dnnl_success) return gx__cpu_dnnl;                                                         \
    } while (0)

static dnnl_data_type_t gx__cpu_dnnl_type(GxDtype type) { return type == GX_BF16 ? dnnl_bf16 : dnnl_f32; }

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t gx__cpu_matmul_factors(dnnl_post_ops_t factors, float alpha, float beta)
{
    if (alpha != 1) GX__CPU_DNNL(dnnl_post_ops_append_eltwise(factors, dnnl_eltwise_linear, alpha, 0));
    return beta != 0 ? dnnl_post_ops_append_sum(factors, beta, 0, dnnl_data_type_undef) : dnnl_success;
}

static dnnl_status_t gx__cpu_matmul_describe(GxMatmul *m, const GxGemm *p, const dnnl_dims_t dims[3],
                                             const dnnl_dims_t strides[3], const dnnl_data_type_t types[3])
{
    dnnl_memory_desc_t d[3] = {NULL, NULL, NULL};
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < 3 && s == dnnl_success; i++)
        s = dnnl_memory_desc_create_with_strides(&d[i], 2, dims[i], types[i], strides[i]);
    if (s == dnnl_success) s = dnnl_matmul_primitive_desc_create(&m->desc, m->engine, d[0], d[1], NULL, d[2], m->attr);
    if (s == dnnl_success) s = dnnl_memory_create(&m->a, d[0], m->engine, (void *)p->A);
    if (s == dnnl_success) s = dnnl_memory_create(&m->b, d[1], m->engine, (void *)p->B);
    if (s == dnnl_success) s = dnnl_memory_create(&m->c, d[2], m->engine, p->C);
    for (int i = 0; i < 3; i++)
        if (d[i]) dnnl_memory_desc_destroy(d[i]);
    return s;
}
#else
static dnnl_status_t gx__cpu_matmul_factors(dnnl_post_ops_t factors, float alpha, float beta)
{
    if (alpha != 1) GX__CPU_DNNL(dnnl_post_ops_append_eltwise(factors, 1, dnnl_eltwise_linear, alpha, 0));
    return beta != 0 ? dnnl_post_ops_append_sum(factors, beta) : dnnl_success;
}

static dnnl_status_t gx__cpu_matmul_describe(GxMatmul *m, const GxGemm *p, const dnnl_dims_t dims[3],
                                             const dnnl_dims_t strides[3], const dnnl_data_type_t types[3])
{
    dnnl_memory_desc_t d[3];
    dnnl_matmul_desc_t desc;
    for (int i = 0; i < 3; i++) GX__CPU_DNNL(dnnl_memory_desc_init_by_strides(&d[i], 2, dims[i], types[i], strides[i]));
    GX__CPU_DNNL(dnnl_matmul_desc_init(&desc, &d[0], &d[1], NULL, &d[2]));
    GX__CPU_DNNL(dnnl_primitive_desc_create(&m->desc, &desc, m->attr, m->engine, NULL));
    GX__CPU_DNNL(dnnl_memory_create(&m->a, &d[0], m->engine, (void *)p->A));
    GX__CPU_DNNL(dnnl_memory_create(&m->b, &d[1], m->engine, (void *)p->B));
    return dnnl_memory_create(&m->c, &d[2], m->engine, p->C);
}
#endif

// What it takes to run it; dnnl_unimplemented: it cannot be run on this CPU.
static dnnl_status_t gx__cpu_matmul_open(GxMatmul *m, const GxGemm *p)
{
    const dnnl_dims_t dims[3] = {{p->M, p->K}, {p->K, p->N}, {p->M, p->N}};
    const dnnl_dims_t strides[3] = {{p->trans_a ? 1 : p->lda, p->trans_a ? p->lda : 1},
                                    {p->trans_b ? 1 : p->ldb, p->trans_b ? p->ldb : 1},
                                    {p->ldc, 1}};
    const dnnl_data_type_t types[3] = {gx__cpu_dnnl_type(p->type_ab), gx__cpu_dnnl_type(p->type_ab),
                                       gx__cpu_dnnl_type(p->type_c)};
    GX__CPU_DNNL(dnnl_engine_create(&m->engine, dnnl_cpu, 0));
    GX__CPU_DNNL(dnnl_stream_create(&m->stream, m->engine, dnnl_stream_default_flags));
    GX__CPU_DNNL(dnnl_primitive_attr_create(&m->attr));
    GX__CPU_DNNL(dnnl_post_ops_create(&m->factors));
    GX__CPU_DNNL(gx__cpu_matmul_factors(m->factors, p->alpha, p->beta));
    GX__CPU_DNNL(dnnl_primitive_attr_set_post_ops(m->attr, m->factors));
    GX__CPU_DNNL(gx__cpu_matmul_describe(m, p, dims, strides, types));
    return dnnl_primitive_create(&m->primitive, m->desc);
}

static dnnl_status_t gx__cpu_matmul_run(GxMatmul *m)
{
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_SRC, m->a}, {DNNL_ARG_WEIGHTS, m->b}, {DNNL_ARG_DST, m->c}};
    GX__CPU_DNNL(dnnl_primitive_execute(m->primitive, m->stream, 3, args));
    return dnnl_stream_wait(m->stream);
}

static void gx__cpu_matmul_close(GxMatmul *m)
{
    if (m->a) dnnl_memory_destroy(m->a);
    if (m->b) dnnl_memory_destroy(m->b);
    if (m->c) dnnl_memory_destroy(m->c);
    if (m->primitive) dnnl_primitive_destroy(m->primitive);
    if (m->desc) dnnl_primitive_desc_destroy(m->desc);
    if (m->factors) dnnl_post_ops_destroy(m->factors);
    if (m->attr) dnnl_primitive_attr_destroy(m->attr);
    if (m->stream) dnnl_stream_destroy(m->stream);
    if (m->engine) dnnl_engine_destroy(m->engine);
}

static dnnl_status_t gx__cpu_matmul(const GxGemm *p)
{
    GxMatmul m = GX_ZERO;
    dnnl_status_t s = gx__cpu_matmul_open(&m, p);
    if (s == dnnl_success) s = gx__cpu_matmul_run(&m);
    gx__cpu_matmul_close(&m);
    return s;
}

// Does oneDNN multiply bf16 by instructions made for it? It names what it will use of the CPU (0 where that is not
// x86).
int gx_cpu_gemm_has_bf16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

static dnnl_status_t gx__cpu_sgemm(const GxGemm *p)
{
    return dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, p->alpha, (const float *)p->A,
                      p->lda, (const float *)p->B, p->ldb, p->beta, (float *)p->C, p->ldc);
}

// ---- bf16 widened to fp32 ------------------------------------------------------------------------------------------

// A thread computes a block of C: the sum over K of products of panels, which it has widened on its stack. The sum
// begins as beta*C, is taken in fp32, and rounded once. With these sizes a product has eight to nine tenths of the
// speed of one in fp32 (docs/benchmarks.md); larger ones gain little.
enum { GX__CPU_WIDE_M = 96, GX__CPU_WIDE_N = 128, GX__CPU_WIDE_K = 256 };

typedef struct {
    float a[GX__CPU_WIDE_M * GX__CPU_WIDE_K], b[GX__CPU_WIDE_K * GX__CPU_WIDE_N], c[GX__CPU_WIDE_M * GX__CPU_WIDE_N];
} GxWidePanels; // 272 KB of stack

// Rows and columns as they lie in memory, behind each other.
static void gx__cpu_widen(float *wide, const uint16_t *x, int64_t rows, int64_t cols, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < cols; c++) wide[r * cols + c] = gx_from_bf16(x[r * ld + c]);
    }
}

static void gx__cpu_round_block(uint16_t *c, int64_t ldc, const float *wide, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++) {
        GX_OMP(simd)
        for (int64_t j = 0; j < n; j++) c[i * ldc + j] = gx_to_bf16(wide[i * n + j]);
    }
}

// Rows m0 .. m0+m, columns n0 .. n0+n of C.
static dnnl_status_t gx__cpu_widened_block(GxWidePanels *s, const GxGemm *p, int64_t m0, int64_t m, int64_t n0,
                                           int64_t n)
{
    const uint16_t *A = (const uint16_t *)p->A, *B = (const uint16_t *)p->B;
    const int rounds = p->type_c == GX_BF16;
    uint16_t *rounded = rounds ? (uint16_t *)p->C + m0 * p->ldc + n0 : NULL;
    GxGemm wide = *p;
    wide.M = m, wide.N = n, wide.A = s->a, wide.B = s->b, wide.type_ab = wide.type_c = GX_F32;
    wide.C = rounds ? s->c : (float *)p->C + m0 * p->ldc + n0;
    wide.ldc = rounds ? n : p->ldc;
    if (rounds && p->beta != 0) gx__cpu_widen(s->c, rounded, m, n, p->ldc);
    for (int64_t k0 = 0; k0 < p->K; k0 += GX__CPU_WIDE_K, wide.beta = 1) {
        const int64_t k = wide.K = gx_min(GX__CPU_WIDE_K, p->K - k0);
        wide.lda = p->trans_a ? m : k, wide.ldb = p->trans_b ? k : n;
        if (p->trans_a) gx__cpu_widen(s->a, A + k0 * p->lda + m0, k, m, p->lda);
        else gx__cpu_widen(s->a, A + m0 * p->lda + k0, m, k, p->lda);
        if (p->trans_b) gx__cpu_widen(s->b, B + n0 * p->ldb + k0, n, k, p->ldb);
        else gx__cpu_widen(s->b, B + k0 * p->ldb + n0, k, n, p->ldb);
        GX__CPU_DNNL(gx__cpu_sgemm(&wide));
    }
    if (rounds) gx__cpu_round_block(rounded, p->ldc, s->c, m, n);
    return dnnl_success;
}

// Blocks are made smaller until each thread has some.
static dnnl_status_t gx__cpu_gemm_widened(const GxGemm *p, int threads)
{
    int64_t m = GX__CPU_WIDE_M, n = GX__CPU_WIDE_N;
    dnnl_status_t status = dnnl_success;
    while (gx_ceil_div(p->M, m) * gx_ceil_div(p->N, n) < 2 * threads && n > 32) {
        if (m > n) m /= 2;
        else n /= 2;
    }
    const int64_t across = gx_ceil_div(p->N, n), blocks = gx_ceil_div(p->M, m) * across;
    GX_OMP(parallel for schedule(dynamic) num_threads(threads))
    for (int64_t i = 0; i < blocks; i++) {
        GxWidePanels panels;
        const int64_t m0 = i / across * m, n0 = i % across * n;
        const dnnl_status_t s = gx__cpu_widened_block(&panels, p, m0, gx_min(m, p->M - m0), n0, gx_min(n, p->N - n0));
        if (s != dnnl_success) {
            GX_OMP(atomic write)
            status = s;
        }
    }
    return status;
}

const char *gx_cpu_gemm_name(void)
{
#define GX__CPU_TEXT(x)  #x
#define GX__CPU_QUOTE(x) GX__CPU_TEXT(x)
#define GX__CPU_ONEDNN                                                                                                 \
    "oneDNN " GX__CPU_QUOTE(DNNL_VERSION_MAJOR) "." GX__CPU_QUOTE(DNNL_VERSION_MINOR) "." GX__CPU_QUOTE(               \
        DNNL_VERSION_PATCH)
    return gx_cpu_gemm_has_bf16() ? GX__CPU_ONEDNN
                                  : GX__CPU_ONEDNN
               ", bf16 widened to fp32 products (this CPU has no bf16 instructions)";
}

GxStatus gx_cpu_gemm_blocked(const GxGemm *p, int threads, GxError *err)
{
    dnnl_status_t s;
    GX_TRY(gx__cpu_gemm_checked(p, err));
#ifdef _OPENMP
    if (!omp_in_parallel() && omp_get_max_threads() != threads)
        omp_set_num_threads(threads); // oneDNN asks OpenMP; this thread's own setting
#endif
    if (p->type_ab == GX_BF16 && !gx_cpu_gemm_has_bf16()) s = gx__cpu_gemm_widened(p, threads);
    else if (gx__cpu_uses_matmul(p)) s = gx__cpu_matmul(p);
    else s = gx__cpu_sgemm(p);
    if (s == dnnl_success) return GX_OK;
    return GX_FAIL(err, s == dnnl_out_of_memory ? GX_ERR_MEMORY : GX_ERR_DEVICE,
                   "oneDNN refused a matrix product %ld x %ld x %ld (its status %d)", (long)p->M, (long)p->N,
                   (long)p->K, (int)s);
}
#endif

// ---- one row -------------------------------------------------------------------------------------------------------

// C = alpha * A B^T + beta * C where A is one row, as writing text needs it: one token's row by all weights of a layer.
// What it costs is reading B. Libraries of matrix products first copy panels of it, which takes as long as the product;
// here a row of B is read where it lies, from its beginning to its end, by one thread. The memory is fastest so: of
// four rows side by side it gave half as much. Sums are taken in fp32, in an order that does not depend on the threads.
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

// ---- either --------------------------------------------------------------------------------------------------------

GxStatus gx_cpu_gemm(const GxGemm *p, int threads, GxError *err)
{
    if (p->M != 1 || p->trans_a || !p->trans_b) return gx_cpu_gemm_blocked(p, threads, err);
    GX_TRY(gx__cpu_gemm_checked(p, err));
    gx__cpu_one_row(p, threads);
    return GX_OK;
}
#endif
