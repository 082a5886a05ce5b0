// gemm_onednn.h: matrix products with oneDNN 2.x or 3.x (GX_WITH_ONEDNN). The only file that includes its headers.
//
// When called within a parallel region, oneDNN runs only on the calling thread; attention multiplies its tiles this
// way. oneDNN's environment variable disables instructions, so that a CPU that has them runs what other CPUs run:
// ONEDNN_MAX_CPU_ISA=AVX512_CORE ./test_ops
#ifndef GX_CPU_GEMM_ONEDNN_H
#define GX_CPU_GEMM_ONEDNN_H
#include "../base/status.h"
#include "gemm_args.h"
#endif

#if defined(GALAXY_IMPLEMENTATION) && defined(GX_WITH_ONEDNN) && !defined(GX_CPU_GEMM_ONEDNN_IMPLEMENTED)
#define GX_CPU_GEMM_ONEDNN_IMPLEMENTED
#include <oneapi/dnnl/dnnl.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#define GX__CPU_TEXT(x)  #x
#define GX__CPU_QUOTE(x) GX__CPU_TEXT(x)
#define GX__CPU_ONEDNN                                                                                                 \
    "oneDNN " GX__CPU_QUOTE(DNNL_VERSION_MAJOR) "." GX__CPU_QUOTE(DNNL_VERSION_MINOR) "." GX__CPU_QUOTE(               \
        DNNL_VERSION_PATCH)

// oneDNN has two ways. dnnl_sgemm starts at once and is faster on most shapes. The matmul primitive takes longer to set
// up (the library caches compiled kernels; 3 to 30 microseconds remain), but if A is stored transposed, as in every
// weight gradient, its kernels are 10-15% faster. It is used for such products above a size at which the setup is
// negligible, and for bf16 products if the CPU has instructions for them.
enum { GX__CPU_MATMUL_FROM = 1 << 27 }; // multiplications

static int gx__cpu_prefers_matmul(const GxGemm *p)
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

// Makes what is needed to run it; dnnl_unimplemented: this CPU cannot run it.
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

// 1: oneDNN uses instructions for bf16. It reports which instruction sets it will use (0 if the CPU is not x86).
static int gx__cpu_onednn_has_bf16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

static dnnl_status_t gx__cpu_sgemm(const GxGemm *p)
{
    return dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, p->alpha, (const float *)p->A,
                      p->lda, (const float *)p->B, p->ldb, p->beta, (float *)p->C, p->ldc);
}

// oneDNN asks OpenMP for the number of threads and assumes that each region gets that many. With fewer, because of
// OMP_DYNAMIC or limits in the environment, a part of the product would be missing, without an error. These settings
// apply to this thread only.
static void gx__cpu_onednn_threads(int threads)
{
    (void)threads;
#ifdef _OPENMP
    if (omp_in_parallel()) return;
    const int most = omp_get_max_active_levels() < 1    ? 1
                     : omp_get_thread_limit() < threads ? omp_get_thread_limit()
                                                        : threads;
    if (omp_get_dynamic()) omp_set_dynamic(0);
    if (omp_get_max_threads() != most) omp_set_num_threads(most);
#endif
}

static GxStatus gx__cpu_gemm_onednn(const GxGemm *p, int by_matmul, int threads, GxError *err)
{
    gx__cpu_onednn_threads(threads);
    const dnnl_status_t s = by_matmul ? gx__cpu_matmul(p) : gx__cpu_sgemm(p);
    if (s == dnnl_success) return GX_OK;
    return GX_FAIL(err, s == dnnl_out_of_memory ? GX_ERR_MEMORY : GX_ERR_DEVICE,
                   "oneDNN refused a matrix product %ld x %ld x %ld (its status %d)", (long)p->M, (long)p->N,
                   (long)p->K, (int)s);
}
#endif
