// cuda/linear.cuh: ops/linear.h on the GPU: three matrix products by cuBLASLt and a column sum.
//
// cuBLASLt's heuristic is asked once for a shape's algorithm (which takes the host up to a millisecond), and the answer
// is kept with its descriptors in a table of the context. A shape is therefore always computed with the algorithm that
// it got first, and has the same bits in every step.
//
// While products are tuned (gx_cuda_tune), those that occur are also timed: each shape once, on its own operands, with
// the best algorithms that cuBLASLt proposes. Until the choices are loaded, results are those without tuning. The
// choices are a text that names its GPU and library; once it is loaded, its shapes are computed with them, and others
// as before.
#ifndef GX_CUDA_LINEAR_CUH
#define GX_CUDA_LINEAR_CUH
#include "../ops/linear.h"
#include "../ops/tuned.h"
#include "elementwise.cuh"
#include "kernel.cuh"
GX_BEGIN

GxStatus gx_cuda_linear_open(GxCuda *cuda); // GX_ERR_MEMORY: no room for the table
void gx_cuda_tune(GxContext *g, int on);    // 0: stops, and forgets the choices
// The choices so far: a line that names GPU and library, then one line each. The caller frees it; NULL: no memory.
char *gx_cuda_tuned_text(GxContext *g);
// Adds the choices of such a text for shapes that have none yet. GX_ERR_UNSUPPORTED: it is for another GPU or library,
// and nothing was loaded; GX_ERR_FORMAT: it is not such a text.
GxStatus gx_cuda_take_tuned(GxContext *g, const char *text, GxError *err);
void gx_cuda_linear_close(GxCuda *cuda);

void gx_cuda_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias,
                            const GxLinearShape *s, void *scratch);
void gx_cuda_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *s);
void gx_cuda_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x,
                                    const GxLinearShape *s, float *scratch);

// Also for other headers of the device: sums that are computed together, sum[k] of part[k] [blocks, C]; NULL: none.
enum { GX_CUDA_COLUMN_SUMS = 3 };
typedef struct {
    float *sum[GX_CUDA_COLUMN_SUMS];
    const float *part[GX_CUDA_COLUMN_SUMS];
} GxCudaColumnSums;
void gx__cuda_column_sums_finish(GxContext *g, const GxCudaColumnSums *s, int64_t blocks, int64_t C, int accumulate);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_LINEAR_IMPLEMENTED)
#define GX_CUDA_LINEAR_IMPLEMENTED
#include <algorithm>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- matrix products -----------------------------------------------------------------------------------------------
// A layer has four weights with three products each, the head has three more, and a last chunk of rows may be shorter:
// training has about 20 shapes. With LoRA each of a layer's seven matrices has six more.
enum { GX__CUDA_PRODUCTS = 256 };

// C[M,N] = alpha * op(A) op(B) + bias + beta * C, row-major; op(A) is [M,K], op(B) [K,N]; trans: the matrix is stored
// transposed. ld*: elements from one row in memory to the next. bias [N] or NULL, of C's type; beta is 0 or 1. Sums are
// fp32; fp32 factors are exact, or may be rounded to TF32 (the context's tf32).
typedef struct {
    int trans_a, trans_b;
    int64_t M, N, K;
    GxDtype type, type_c; // of A and B; of C
    const void *A, *B;
    int64_t lda, ldb;
    const void *bias;
    void *C;
    int64_t ldc;
    float beta, alpha;
} GxCudaProduct;

// What cuBLASLt's choice depends on. It is compared bytewise, since it has no padding.
typedef struct {
    int64_t M, N, K, lda, ldb, ldc;
    int32_t trans_a, trans_b, type, type_c, has_bias, align_a, align_b, align_c, compute, none;
} GxCudaProductKey;

typedef struct {
    GxCudaProductKey key;
    cublasLtMatmulDesc_t product; // NULL: the slot is free
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} GxCudaProductPlan;

typedef struct {
    GxCudaProductKey key;
    cublasLtMatmulAlgo_t algorithm; // valid for one GPU and one version of the library
    int is_taken;                   // 0: it was timed but is not used yet
} GxCudaTuned;

typedef struct GxCudaProducts {
    GxCudaProductPlan plan[GX__CUDA_PRODUCTS];
    int next; // the slot of the next new plan; circular, so that it replaces the oldest
    GxCudaTuned *tuned;
    int n_tuned, tuned_room;
    int times;     // 1: products without a choice are timed
    void *scratch; // meanwhile: stands in for a C that a timed product would add to
} GxCudaProducts;

static void gx__cuda_plan_free(GxCudaProductPlan *p)
{
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) cublasLtMatrixLayoutDestroy(p->c);
    if (p->product) cublasLtMatmulDescDestroy(p->product);
    memset(p, 0, sizeof *p);
}

GxStatus gx_cuda_linear_open(GxCuda *cuda)
{
    cuda->products = (GxCudaProducts *)calloc(1, sizeof *cuda->products);
    return cuda->products ? GX_OK : GX_ERR_MEMORY;
}

void gx_cuda_linear_close(GxCuda *cuda)
{
    for (int i = 0; cuda->products && i < GX__CUDA_PRODUCTS; i++) gx__cuda_plan_free(&cuda->products->plan[i]);
    if (cuda->products) {
        cudaFree(cuda->products->scratch);
        free(cuda->products->tuned);
    }
    free(cuda->products);
    cuda->products = NULL;
}

// Its kernels access at most 16 bytes at a time: more alignment is no better, and fewer alignments mean fewer plans.
static int32_t gx__cuda_alignment(const void *p)
{
    const uintptr_t lowest = (uintptr_t)p & (~(uintptr_t)p + 1);
    return lowest == 0 || lowest > 16 ? 16 : (int32_t)lowest;
}

static GxCudaProductKey gx__cuda_product_key(const GxCudaProduct *p, int tf32)
{
    const GxCudaProductKey key = {p->M,
                                  p->N,
                                  p->K,
                                  p->lda,
                                  p->ldb,
                                  p->ldc,
                                  p->trans_a,
                                  p->trans_b,
                                  p->type,
                                  p->type_c,
                                  p->bias != NULL,
                                  gx__cuda_alignment(p->A),
                                  gx__cuda_alignment(p->B),
                                  gx__cuda_alignment(p->C),
                                  tf32 && p->type == GX_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                  0};
    return key;
}

static cudaDataType_t gx__cuda_blas_type(int dtype) { return dtype == GX_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

#define GX__CUDA_CUBLAS_TRY(call)                                                                                      \
    do {                                                                                                               \
        cublasStatus_t gx__cuda_blas = (call);                                                                         \
        if (gx__cuda_blas != CUBLAS_STATUS_SUCCESS) return gx__cuda_blas;                                              \
    } while (0)

// cuBLASLt's matrices are column-major. There, row-major C = op(A) op(B) is C^T = op(B)^T op(A)^T: the first operand is
// B as it is stored, the second A.
static cublasStatus_t gx__cuda_plan_describe(GxCudaProductPlan *plan, const void *bias)
{
    const GxCudaProductKey *k = &plan->key;
    const cudaDataType_t type = gx__cuda_blas_type(k->type), type_c = gx__cuda_blas_type(k->type_c);
    const cublasOperation_t first = k->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = k->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = k->has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    GX__CUDA_CUBLAS_TRY(cublasLtMatmulDescCreate(&plan->product, (cublasComputeType_t)k->compute, CUDA_R_32F));
    GX__CUDA_CUBLAS_TRY(
        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    GX__CUDA_CUBLAS_TRY(
        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    GX__CUDA_CUBLAS_TRY(
        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (k->has_bias) {
        GX__CUDA_CUBLAS_TRY(
            cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type_c, sizeof type_c));
        GX__CUDA_CUBLAS_TRY(
            cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    GX__CUDA_CUBLAS_TRY(k->trans_b ? cublasLtMatrixLayoutCreate(&plan->b, type, k->K, k->N, k->ldb)
                                   : cublasLtMatrixLayoutCreate(&plan->b, type, k->N, k->K, k->ldb));
    GX__CUDA_CUBLAS_TRY(k->trans_a ? cublasLtMatrixLayoutCreate(&plan->a, type, k->M, k->K, k->lda)
                                   : cublasLtMatrixLayoutCreate(&plan->a, type, k->K, k->M, k->lda));
    return cublasLtMatrixLayoutCreate(&plan->c, type_c, k->N, k->M, k->ldc);
}

// Split-K sums may only be reduced in fp32: other schemes round to C's type once per part.
static cublasStatus_t gx__cuda_preference(const GxCuda *cuda, const GxCudaProductKey *k,
                                          cublasLtMatmulPreference_t preference)
{
    const uint64_t workspace = (uint64_t)cuda->blas_workspace_bytes;
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = (uint32_t)k->align_a, b = (uint32_t)k->align_b, c = (uint32_t)k->align_c;
    GX__CUDA_CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                             &workspace, sizeof workspace));
    GX__CUDA_CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                             &sums, sizeof sums));
    GX__CUDA_CUBLAS_TRY(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &b, sizeof b));
    GX__CUDA_CUBLAS_TRY(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a, sizeof a));
    GX__CUDA_CUBLAS_TRY(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c));
    return cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c);
}

// Up to `most` algorithms, in the order of cuBLASLt's heuristic; an error if there is none.
static cublasStatus_t gx__cuda_candidates(const GxCuda *cuda, const GxCudaProductPlan *plan, int most,
                                          cublasLtMatmulHeuristicResult_t *candidate, int *found)
{
    cublasLtMatmulPreference_t preference;
    *found = 0;
    GX__CUDA_CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = gx__cuda_preference(cuda, &plan->key, preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(cuda->blas, plan->product, plan->b, plan->a, plan->c, plan->c,
                                                preference, most, candidate, found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return *found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : candidate[0].state;
}

static GxCudaTuned *gx__cuda_tuned_find(const GxCudaProducts *all, const GxCudaProductKey *key)
{
    for (int i = 0; i < all->n_tuned; i++)
        if (!memcmp(key, &all->tuned[i].key, sizeof *key)) return &all->tuned[i];
    return NULL;
}

// Takes the tuned choice, if there is one and this library supports it; otherwise cuBLASLt's first.
static cublasStatus_t gx__cuda_plan_choose(const GxCuda *cuda, GxCudaProductPlan *plan)
{
    cublasLtMatmulHeuristicResult_t best;
    int found;
    const GxCudaTuned *tuned = gx__cuda_tuned_find(cuda->products, &plan->key);
    if (tuned && tuned->is_taken) {
        GX__CUDA_CUBLAS_TRY(cublasLtMatmulAlgoCheck(cuda->blas, plan->product, plan->b, plan->a, plan->c, plan->c,
                                                    &tuned->algorithm, &best));
        plan->algorithm = tuned->algorithm;
        return best.workspaceSize <= (size_t)cuda->blas_workspace_bytes ? best.state : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    GX__CUDA_CUBLAS_TRY(gx__cuda_candidates(cuda, plan, 1, &best, &found));
    plan->algorithm = best.algo;
    return CUBLAS_STATUS_SUCCESS;
}

// The plan for this product; it is made at the first request.
static cublasStatus_t gx__cuda_plan(const GxCuda *cuda, const GxCudaProduct *p, int tf32, GxCudaProductPlan **result)
{
    GxCudaProducts *all = cuda->products;
    const GxCudaProductKey key = gx__cuda_product_key(p, tf32);
    for (int i = 0; i < GX__CUDA_PRODUCTS; i++) {
        *result = &all->plan[i];
        if (all->plan[i].product && !memcmp(&key, &all->plan[i].key, sizeof key)) return CUBLAS_STATUS_SUCCESS;
    }
    GxCudaProductPlan *plan = *result = &all->plan[all->next];
    gx__cuda_plan_free(plan);
    plan->key = key;
    cublasStatus_t status = gx__cuda_plan_describe(plan, p->bias);
    if (status == CUBLAS_STATUS_SUCCESS) status = gx__cuda_plan_choose(cuda, plan);
    if (status == CUBLAS_STATUS_SUCCESS) all->next = (all->next + 1) % GX__CUDA_PRODUCTS;
    else gx__cuda_plan_free(plan);
    return status;
}

// Computes the product into D, which has C's layout.
static cublasStatus_t gx__cuda_enqueue_product(const GxCuda *cuda, const GxCudaProduct *p,
                                               const GxCudaProductPlan *plan, const cublasLtMatmulAlgo_t *algorithm,
                                               void *D)
{
    return cublasLtMatmul(cuda->blas, plan->product, &p->alpha, p->B, plan->b, p->A, plan->a, &p->beta, p->C, plan->c,
                          D, plan->c, algorithm, cuda->blas_workspace, (size_t)cuda->blas_workspace_bytes,
                          cuda->stream);
}

// ---- algorithms by their time --------------------------------------------------------------------------------------
// A product that only writes C (beta 0) is timed in place, and C is written again afterwards. One that adds to C is
// timed in scratch; if it does not fit there, it keeps cuBLASLt's first algorithm.
enum { GX__CUDA_CANDIDATES = 8, GX__CUDA_TIMINGS = 5 };
#ifdef GX_EMU
enum { GX__CUDA_TUNING_SCRATCH = 1 << 20 };
#else
enum { GX__CUDA_TUNING_SCRATCH = 64 << 20 }; // bytes
#endif

static void gx__cuda_tuned_add(GxContext *g, const GxCudaTuned *one)
{
    GxCudaProducts *all = gx_cuda(g)->products;
    if (all->n_tuned == all->tuned_room) {
        const int room = all->tuned_room ? 2 * all->tuned_room : 64;
        GxCudaTuned *larger = (GxCudaTuned *)realloc(all->tuned, (size_t)room * sizeof *larger);
        if (!larger) {
            GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %d choices of algorithms", room);
            return;
        }
        all->tuned = larger, all->tuned_room = room;
    }
    all->tuned[all->n_tuned++] = *one;
}

// Milliseconds: the median of several runs, after a warm-up run. < 0: this algorithm does not support the product, or
// the context failed.
static float gx__cuda_time_product(GxContext *g, const GxCudaProduct *p, const GxCudaProductPlan *plan,
                                   const cublasLtMatmulAlgo_t *algorithm, void *D, const cudaEvent_t event[2])
{
    const GxCuda *cuda = gx_cuda(g);
    float ms[GX__CUDA_TIMINGS];
    for (int i = -1; i < GX__CUDA_TIMINGS; i++) {
        cudaEventRecord(event[0], cuda->stream);
        if (gx__cuda_enqueue_product(cuda, p, plan, algorithm, D) != CUBLAS_STATUS_SUCCESS) return -1;
        cudaEventRecord(event[1], cuda->stream);
        gx_cuda_wait(g);
        if (gx_failed(g)) return -1;
        if (i >= 0 && cudaEventElapsedTime(&ms[i], event[0], event[1]) != cudaSuccess) return -1;
    }
    std::sort(ms, ms + GX__CUDA_TIMINGS);
    return ms[GX__CUDA_TIMINGS / 2];
}

static cublasStatus_t gx__cuda_tune_product(GxContext *g, const GxCudaProduct *p, const GxCudaProductPlan *plan)
{
    GxCuda *cuda = gx_cuda(g);
    cublasLtMatmulHeuristicResult_t candidate[GX__CUDA_CANDIDATES];
    cudaEvent_t event[2] = {NULL, NULL};
    const int64_t bytes = ((p->M - 1) * p->ldc + p->N) * gx_dtype_size(p->type_c);
    void *D = p->beta == 0 ? p->C : bytes <= GX__CUDA_TUNING_SCRATCH ? cuda->products->scratch : NULL;
    float least = -1;
    int found;
    if (!D) return CUBLAS_STATUS_SUCCESS;
    GX__CUDA_CUBLAS_TRY(gx__cuda_candidates(cuda, plan, GX__CUDA_CANDIDATES, candidate, &found));
    GxCudaTuned best = {plan->key, plan->algorithm, 0};
    for (int i = 0; i < 2; i++)
        if (cudaEventCreate(&event[i]) != cudaSuccess) GX_FAIL(&g->error, GX_ERR_DEVICE, "cudaEventCreate");
    for (int i = 0; i < found && !gx_failed(g); i++) {
        if (candidate[i].state != CUBLAS_STATUS_SUCCESS) continue;
        const float ms = gx__cuda_time_product(g, p, plan, &candidate[i].algo, D, event);
        if (ms < 0 || (least >= 0 && ms >= least)) continue;
        least = ms, best.algorithm = candidate[i].algo;
    }
    for (int i = 0; i < 2; i++)
        if (event[i]) cudaEventDestroy(event[i]);
    if (!gx_failed(g)) gx__cuda_tuned_add(g, &best);
    return CUBLAS_STATUS_SUCCESS;
}

// Forgets all plans; they are made again from the current choices.
static void gx__cuda_forget_plans(GxCudaProducts *all)
{
    for (int i = 0; i < GX__CUDA_PRODUCTS; i++) gx__cuda_plan_free(&all->plan[i]);
}

void gx_cuda_tune(GxContext *g, int on)
{
    GxCudaProducts *all = gx_cuda(g)->products;
    all->times = on;
    if (on && !all->scratch && cudaMalloc(&all->scratch, GX__CUDA_TUNING_SCRATCH) != cudaSuccess) {
        cudaGetLastError();
        GX_FAIL(&g->error, GX_ERR_MEMORY,
                "the card has no %d MB left in which products could be timed; leave out --autotune",
                GX__CUDA_TUNING_SCRATCH >> 20);
    }
    if (on) return;
    gx_cuda_wait(g);
    cudaFree(all->scratch);
    all->scratch = NULL;
    all->n_tuned = 0;
    gx__cuda_forget_plans(all);
}

#define GX__CUDA_KEY_FORMAT "%ld %ld %ld %ld %ld %ld %d %d %d %d %d %d %d %d %d"
enum { GX__CUDA_KEY_TEXT = 240 };

static void gx__cuda_key_text(const GxCudaProductKey *k, char text[GX__CUDA_KEY_TEXT])
{
    snprintf(text, GX__CUDA_KEY_TEXT, GX__CUDA_KEY_FORMAT " ", (long)k->M, (long)k->N, (long)k->K, (long)k->lda,
             (long)k->ldb, (long)k->ldc, k->trans_a, k->trans_b, k->type, k->type_c, k->has_bias, k->align_a,
             k->align_b, k->align_c, k->compute);
}

// "galaxy autotune 1, NVIDIA H200 (sm_90), cuBLASLt 130002": what the choices are for
static void gx__cuda_tuned_header(char *text, size_t size)
{
    int card = 0;
    cudaDeviceProp p = {};
    if (cudaGetDevice(&card) == cudaSuccess) cudaGetDeviceProperties(&p, card);
    snprintf(text, size, GX_TUNED ", %s (sm_%d%d), cuBLASLt %ld", p.name, p.major, p.minor, (long)cublasLtGetVersion());
}

char *gx_cuda_tuned_text(GxContext *g)
{
    const GxCudaProducts *all = gx_cuda(g)->products;
    char *text = NULL, header[GX_TUNED_HEADER];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    gx__cuda_tuned_header(header, sizeof header);
    fprintf(out, "%s\n", header);
    for (int i = 0; i < all->n_tuned; i++) {
        unsigned char bytes[sizeof(cublasLtMatmulAlgo_t)];
        char key[GX__CUDA_KEY_TEXT];
        memcpy(bytes, &all->tuned[i].algorithm, sizeof bytes);
        gx__cuda_key_text(&all->tuned[i].key, key);
        fprintf(out, "%s", key);
        for (size_t b = 0; b < sizeof bytes; b++) fprintf(out, "%02x", bytes[b]);
        fprintf(out, "\n");
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

// Reads one line. 0: it is not valid.
static int gx__cuda_tuned_read(const char *line, GxCudaTuned *one)
{
    long n[6];
    char key[GX__CUDA_KEY_TEXT];
    unsigned char bytes[sizeof(cublasLtMatmulAlgo_t)];
    memset(one, 0, sizeof *one);
    GxCudaProductKey *k = &one->key;
    if (sscanf(line, GX__CUDA_KEY_FORMAT, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &k->trans_a, &k->trans_b, &k->type,
               &k->type_c, &k->has_bias, &k->align_a, &k->align_b, &k->align_c, &k->compute) != 15)
        return 0;
    k->M = n[0], k->N = n[1], k->K = n[2], k->lda = n[3], k->ldb = n[4], k->ldc = n[5];
    gx__cuda_key_text(k, key);
    size_t at = strlen(key);
    if (strncmp(line, key, at)) return 0; // for example a number that is too large
    for (size_t b = 0; b < sizeof bytes; b++, at += 2) {
        unsigned value;
        if (!isxdigit((unsigned char)line[at]) || !isxdigit((unsigned char)line[at + 1])) return 0;
        sscanf(line + at, "%2x", &value);
        bytes[b] = (unsigned char)value;
    }
    memcpy(&one->algorithm, bytes, sizeof bytes);
    one->is_taken = 1;
    return line[at] == '\n' || line[at] == 0;
}

static int gx__cuda_take_line(GxContext *g, const char *line)
{
    GxCudaTuned one;
    if (!gx__cuda_tuned_read(line, &one)) return 0;
    if (!gx__cuda_tuned_find(gx_cuda(g)->products, &one.key)) gx__cuda_tuned_add(g, &one);
    return 1;
}

GxStatus gx_cuda_take_tuned(GxContext *g, const char *text, GxError *err)
{
    char header[GX_TUNED_HEADER];
    gx__cuda_tuned_header(header, sizeof header);
    const GxStatus status = gx_tuned_read(g, text, header, gx__cuda_take_line, err);
    if (status == GX_OK) gx__cuda_forget_plans(gx_cuda(g)->products);
    return status;
}

static cublasStatus_t gx__cuda_multiply(GxContext *g, const GxCudaProduct *p)
{
    const GxCuda *cuda = gx_cuda(g);
    GxCudaProductPlan *plan;
    GX__CUDA_CUBLAS_TRY(gx__cuda_plan(cuda, p, g->tf32, &plan));
    if (p->bias)
        GX__CUDA_CUBLAS_TRY(
            cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias));
    if (cuda->products->times && !gx__cuda_tuned_find(cuda->products, &plan->key))
        GX__CUDA_CUBLAS_TRY(gx__cuda_tune_product(g, p, plan));
    return gx__cuda_enqueue_product(cuda, p, plan, &plan->algorithm, p->C);
}

static void gx__cuda_product(GxContext *g, const char *what, const GxCudaProduct *p)
{
    const cublasStatus_t status = gx__cuda_multiply(g, p);
    if (status == CUBLAS_STATUS_SUCCESS) gx_cuda_check(g, what);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    GX_FAIL(&g->error, GX_ERR_DEVICE,
            "%s: cuBLASLt refused the product of %ld x %ld (%s%s) by %ld x %ld (%s%s) into %s%s: %s (%d)%s", what,
            (long)p->M, (long)p->K, gx_dtype_name(p->type), p->trans_a ? ", transposed" : "", (long)p->K, (long)p->N,
            gx_dtype_name(p->type), p->trans_b ? ", transposed" : "", gx_dtype_name(p->type_c),
            p->bias ? " with bias" : "", cublasLtGetStatusName(status), (int)status,
            gx_cuda(g)->products->n_tuned
                ? "; its algorithms come from --autotune: remove that file, and they are timed again"
                : "");
}

// y[r,c] = bias[c]
template <class T> struct GxBiasRows {
    T *y;
    const T *bias;
    int64_t stride;
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        float x[N];
        gx_load(x, bias + c);
        gx_store(y + r * stride + c, x);
    }
};
template <class T>
static void gx__cuda_bias_rows(GxContext *g, void *y, const void *bias, int64_t R, int64_t C, int64_t stride)
{
    const GxBiasRows<T> op = {(T *)y, (const T *)bias, stride};
    gx_each_row<T>(g, "bias_rows", op, R, C, gx_wide<T>(C, y, bias) && stride % GxPack<T>::N == 0);
}

// The epilogue may read the bias 16 bytes at a time. If the bias is not aligned, every row of y is initialized with it,
// and the product is added before y is rounded; if y accumulates, the bias is copied to an aligned place.
void gx_cuda_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias,
                            const GxLinearShape *s, void *scratch)
{
    const int apart = bias && !gx_aligned(bias), begins_as_bias = apart && !s->accumulate;
    if (begins_as_bias) {
        GX_CUDA_TYPES(s->dtype, gx__cuda_bias_rows, g, y, bias, s->R, s->Out, s->y_stride);
    } else if (apart) {
        gx_cuda_copy(g, scratch, bias, s->Out * gx_dtype_size(s->dtype));
    }
    const void *epilogue = begins_as_bias ? NULL : apart ? scratch : bias;
    const GxCudaProduct p = {0,        1,        s->R, s->Out,      s->In,
                             s->dtype, s->dtype, x,    w,           s->x_stride,
                             s->In,    epilogue, y,    s->y_stride, begins_as_bias || s->accumulate ? 1.0f : 0.0f,
                             s->scale};
    gx__cuda_product(g, "linear_forward", &p);
}

void gx_cuda_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *s)
{
    const GxCudaProduct p = {0,        0,        s->R, s->In,       s->Out,
                             s->dtype, s->dtype, dy,   w,           s->y_stride,
                             s->In,    NULL,     dx,   s->x_stride, s->accumulate ? 1.0f : 0.0f,
                             s->scale};
    gx__cuda_product(g, "linear_backward_input", &p);
}

// ---- column sums: sum[c] = (accumulate ? sum[c] : 0) + sum_r x[r,c] ------------------------------------------------

// part[b,c] = the sum over the GX_LINEAR_BLOCK rows of block b. Grid: chunks of GX_CUDA_BLOCK*N columns times blocks of
// rows. A thread sums N columns, where N is 1 or the number of elements in 16 bytes. x is read once, R*C*size bytes.
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_column_sum_blocks(float *part, const T *x, int64_t R, int64_t C, int64_t stride)
{
    const int64_t chunks = (C + GX_CUDA_BLOCK * N - 1) / (GX_CUDA_BLOCK * N),
                  blocks = (R + GX_LINEAR_BLOCK - 1) / GX_LINEAR_BLOCK;
    for (int64_t job = blockIdx.x; job < chunks * blocks; job += gridDim.x) {
        const int64_t b = job / chunks, c = (job % chunks * GX_CUDA_BLOCK + threadIdx.x) * N;
        if (c >= C) continue;
        const int64_t end = (b + 1) * GX_LINEAR_BLOCK < R ? (b + 1) * GX_LINEAR_BLOCK : R;
        float sum[N] = {};
        for (int64_t r = b * GX_LINEAR_BLOCK; r < end; r++) {
            float v[N];
            gx_load(v, x + r * stride + c);
            for (int i = 0; i < N; i++) sum[i] += v[i];
        }
        gx_store(part + b * C + c, sum);
    }
}

// One block for 32 columns of a sum: warp w sums the blocks of rows w, w + 32, ..., then the first warp adds the 32
// sums, in order.
static __global__ void __launch_bounds__(GX_CUDA_MAX_WARPS *GX_WARP)
    gx__cuda_column_sum_finish(const __grid_constant__ GxCudaColumnSums s, int64_t blocks, int64_t C, int accumulate)
{
    enum { WARPS = GX_CUDA_MAX_WARPS };
    GX_SHARED(float, of_warp, [WARPS][GX_WARP]);
    float *sum = s.sum[blockIdx.y];
    const float *part = s.part[blockIdx.y];
    const int lane = (int)threadIdx.x % GX_WARP, warp = (int)threadIdx.x / GX_WARP;
    const int64_t c = (int64_t)blockIdx.x * GX_WARP + lane;
    float of_lane = 0;
    if (!sum) return;
#pragma unroll 8 // several loads in flight
    for (int64_t b = warp; b < (c < C ? blocks : 0); b += WARPS) of_lane += part[b * C + c];
    of_warp[warp][lane] = of_lane;
    __syncthreads();
    if (warp > 0 || c >= C) return;
    float total = accumulate ? sum[c] : 0.0f;
    for (int w = 0; w < WARPS; w++) total += of_warp[w][lane];
    sum[c] = total;
}

void gx__cuda_column_sums_finish(GxContext *g, const GxCudaColumnSums *s, int64_t blocks, int64_t C, int accumulate)
{
    unsigned n = GX_CUDA_COLUMN_SUMS;
    while (n > 0 && !s->sum[n - 1]) n--;
    if (n)
        GX_LAUNCH(gx__cuda_column_sum_finish, dim3((unsigned)gx_ceil_div(C, GX_WARP), n), GX_CUDA_MAX_WARPS * GX_WARP,
                  0, gx_cuda(g)->stream, *s, blocks, C, accumulate);
}

template <class T>
static void gx__cuda_column_sum(GxContext *g, float *sum, const void *x, int64_t R, int64_t C, int64_t stride,
                                int accumulate, float *scratch)
{
    enum { N = GxPack<T>::N };
    const int packed = gx_wide<T>(C, x, scratch) && stride % N == 0;
    const int64_t blocks = gx_ceil_div(R, GX_LINEAR_BLOCK),
                  jobs = gx_ceil_div(C, GX_CUDA_BLOCK * (packed ? N : 1)) * blocks;
    const unsigned grid = gx_cuda_blocks(jobs);
    const GxCudaColumnSums all = {{sum}, {scratch}};
    const cudaStream_t stream = gx_cuda(g)->stream;
    if (packed)
        GX_LAUNCH((gx__cuda_column_sum_blocks<T, N>), grid, GX_CUDA_BLOCK, 0, stream, scratch, (const T *)x, R, C,
                  stride);
    else
        GX_LAUNCH((gx__cuda_column_sum_blocks<T, 1>), grid, GX_CUDA_BLOCK, 0, stream, scratch, (const T *)x, R, C,
                  stride);
    gx_cuda_check(g, "column_sum_blocks");
    gx__cuda_column_sums_finish(g, &all, blocks, C, accumulate);
    gx_cuda_check(g, "column_sum_finish");
}

void gx_cuda_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x,
                                    const GxLinearShape *s, float *scratch)
{
    if (dbias)
        GX_CUDA_TYPES(s->dtype, gx__cuda_column_sum, g, dbias, dy, s->R, s->Out, s->y_stride, s->accumulate, scratch);
    if (!dw) return;
    const GxCudaProduct p = {1,           0,      s->Out, s->In, s->R,
                             s->dtype,    GX_F32, dy,     x,     s->y_stride,
                             s->x_stride, NULL,   dw,     s->In, s->accumulate ? 1.0f : 0.0f,
                             s->scale};
    gx__cuda_product(g, "linear_backward_weight", &p);
}
#endif
