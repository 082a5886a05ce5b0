// products.h: ways to compute a matrix product that Galaxy does not have, for products.cu: oneDNN's matmul with B in
// the layout that it asks for, as weights would lie that are packed once a step; and cblas_sgemm of another library.
#ifndef GX_BENCH_PRODUCTS_H
#define GX_BENCH_PRODUCTS_H
#include "galaxy.h"
#include "galaxy/cpu/gemm.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

// ---- another library ------------------------------------------------------------------------------------------------

typedef void BlasProduct(int order, int trans_a, int trans_b, int M, int N, int K, float alpha, const float *A, int lda,
                         const float *B, int ldb, float beta, float *C, int ldc);

// cblas_sgemm of a shared library. It has its own threads: OPENBLAS_NUM_THREADS.
static BlasProduct *blas_open(const char *file)
{
    BlasProduct *product = NULL;
    void *library = dlopen(file, RTLD_NOW);
    if (library) *(void **)&product = dlsym(library, "cblas_sgemm");
    if (!product) fprintf(stderr, "no cblas_sgemm: %s\n", dlerror()), exit(1);
    return product;
}

static void blas_run(BlasProduct *product, const GxGemm *p)
{
    enum { BY_ROWS = 101, AS_IT_LIES = 111, TRANSPOSED = 112 };
    product(BY_ROWS, p->trans_a ? TRANSPOSED : AS_IT_LIES, p->trans_b ? TRANSPOSED : AS_IT_LIES, (int)p->M, (int)p->N,
            (int)p->K, p->alpha, (const float *)p->A, (int)p->lda, (const float *)p->B, (int)p->ldb, p->beta,
            (float *)p->C, (int)p->ldc);
}

// ---- B packed beforehand --------------------------------------------------------------------------------------------

#ifdef GX_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR >= 3 // there a description is a pointer, before it was a struct
#define LAYOUT(d)         (d)
#define LAYOUT_BY_STRIDES dnnl_memory_desc_create_with_strides
#define LAYOUT_BY_TAG     dnnl_memory_desc_create_with_tag
#define LAYOUT_FREE(d)    dnnl_memory_desc_destroy(d)
typedef const_dnnl_memory_desc_t LayoutAt;
#else
#define LAYOUT(d)         (&(d))
#define LAYOUT_BY_STRIDES dnnl_memory_desc_init_by_strides
#define LAYOUT_BY_TAG     dnnl_memory_desc_init_by_tag
#define LAYOUT_FREE(d)    ((void)(d))
typedef const dnnl_memory_desc_t *LayoutAt;
#endif

typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_t a, b, packed_b, c;
    dnnl_primitive_t pack, matmul;
    int lies_so; // the layout that oneDNN asks for is the one that B has: there is nothing to pack
} Packed;

static int packed_can(const GxGemm *p) { return gx_cpu_gemm_can(p, GX_GEMM_MATMUL); }

static void packed_try(dnnl_status_t status)
{
    if (status != dnnl_success) fprintf(stderr, "oneDNN refused a product (its status %d)\n", (int)status), exit(1);
}

static dnnl_data_type_t packed_type(GxDtype type) { return type == GX_BF16 ? dnnl_bf16 : dnnl_f32; }

static dnnl_memory_desc_t packed_layout(int64_t rows, int64_t columns, int64_t ld, int is_transposed, GxDtype type)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {is_transposed ? 1 : ld, is_transposed ? ld : 1};
    dnnl_memory_desc_t d;
    packed_try(LAYOUT_BY_STRIDES(&d, 2, dims, packed_type(type), strides));
    return d;
}

static void packed_primitive(dnnl_primitive_t *primitive, dnnl_primitive_desc_t desc)
{
    packed_try(dnnl_primitive_create(primitive, desc));
    packed_try(dnnl_primitive_desc_destroy(desc));
}

static void packed_open(Packed *k, const GxGemm *p)
{
    const dnnl_dims_t dims = {p->K, p->N};
    dnnl_memory_desc_t a = packed_layout(p->M, p->K, p->lda, p->trans_a, p->type_ab),
                       b = packed_layout(p->K, p->N, p->ldb, p->trans_b, p->type_ab),
                       c = packed_layout(p->M, p->N, p->ldc, 0, p->type_c), any;
    dnnl_primitive_desc_t matmul, pack;
    packed_try(LAYOUT_BY_TAG(&any, 2, dims, packed_type(p->type_ab), dnnl_format_tag_any));
    packed_try(dnnl_engine_create(&k->engine, dnnl_cpu, 0));
    packed_try(dnnl_stream_create(&k->stream, k->engine, dnnl_stream_default_flags));
#if DNNL_VERSION_MAJOR >= 3
    packed_try(dnnl_matmul_primitive_desc_create(&matmul, k->engine, a, any, NULL, c, NULL));
#else
    dnnl_matmul_desc_t product;
    packed_try(dnnl_matmul_desc_init(&product, &a, &any, NULL, &c));
    packed_try(dnnl_primitive_desc_create(&matmul, &product, NULL, k->engine, NULL));
#endif
    LayoutAt wanted = dnnl_primitive_desc_query_md(matmul, dnnl_query_weights_md, 0);
    k->lies_so = dnnl_memory_desc_equal(LAYOUT(b), wanted);
    packed_try(dnnl_reorder_primitive_desc_create(&pack, LAYOUT(b), k->engine, wanted, k->engine, NULL));
    packed_try(dnnl_memory_create(&k->a, LAYOUT(a), k->engine, (void *)p->A));
    packed_try(dnnl_memory_create(&k->b, LAYOUT(b), k->engine, (void *)p->B));
    packed_try(dnnl_memory_create(&k->packed_b, wanted, k->engine, DNNL_MEMORY_ALLOCATE));
    packed_try(dnnl_memory_create(&k->c, LAYOUT(c), k->engine, p->C));
    packed_primitive(&k->pack, pack);
    packed_primitive(&k->matmul, matmul);
    LAYOUT_FREE(a), LAYOUT_FREE(b), LAYOUT_FREE(c), LAYOUT_FREE(any);
}

static void packed_pack(Packed *k)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, k->b}, {DNNL_ARG_TO, k->packed_b}};
    packed_try(dnnl_primitive_execute(k->pack, k->stream, 2, args));
    packed_try(dnnl_stream_wait(k->stream));
}

static void packed_run(Packed *k)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, k->a}, {DNNL_ARG_WEIGHTS, k->packed_b}, {DNNL_ARG_DST, k->c}};
    packed_try(dnnl_primitive_execute(k->matmul, k->stream, 3, args));
    packed_try(dnnl_stream_wait(k->stream));
}

static void packed_close(Packed *k)
{
    dnnl_memory_destroy(k->a), dnnl_memory_destroy(k->b), dnnl_memory_destroy(k->packed_b), dnnl_memory_destroy(k->c);
    dnnl_primitive_destroy(k->pack), dnnl_primitive_destroy(k->matmul);
    dnnl_stream_destroy(k->stream), dnnl_engine_destroy(k->engine);
}
#else
typedef struct {
    int lies_so;
} Packed;
static int packed_can(const GxGemm *p) { return (void)p, 0; }
static void packed_open(Packed *k, const GxGemm *p) { (void)k, (void)p; }
static void packed_pack(Packed *k) { (void)k; }
static void packed_run(Packed *k) { (void)k; }
static void packed_close(Packed *k) { (void)k; }
#endif
#endif
