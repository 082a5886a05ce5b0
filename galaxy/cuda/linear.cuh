// cuda/linear.cuh: ops/linear.h on the GPU: three matrix products by cuBLASLt and a column sum.
//
// Which algorithm suits a shape is asked of cuBLASLt once (that takes the host up to a millisecond) and kept with its
// descriptors in a table of the context. So a shape is always computed by the algorithm that it first got: the same
// bits in every step.
#ifndef GX_CUDA_LINEAR_CUH
#define GX_CUDA_LINEAR_CUH
#include "../ops/linear.h"
#include "elementwise.cuh"
#include "kernel.cuh"
GX_BEGIN

GxStatus gx_cuda_linear_open(GxCuda *cuda); // GX_ERR_MEMORY: no room for the table
void gx_cuda_linear_close(GxCuda *cuda);

void gx_cuda_linear_forward(GxContext *g, void *y, const void *x, const void *w, const void *bias,
                            const GxLinearShape *s, void *scratch);
void gx_cuda_linear_backward_input(GxContext *g, void *dx, const void *dy, const void *w, const GxLinearShape *s);
void gx_cuda_linear_backward_weight(GxContext *g, float *dw, float *dbias, const void *dy, const void *x,
                                    const GxLinearShape *s, float *scratch);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_LINEAR_IMPLEMENTED)
#define GX_CUDA_LINEAR_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// ---- matrix products -----------------------------------------------------------------------------------------------
// A layer has four weights with three products each, the head three more, and a last chunk of rows may be shorter: some
// 20 shapes in a training. With LoRA each of a layer's seven matrices has six more.
enum { GX__CUDA_PRODUCTS = 256 };

// C[M,N] = alpha * op(A) op(B) + bias + beta * C, row-major; op(A) is [M,K], op(B) [K,N]; trans: the matrix lies
// transposed in memory. ld*: elements from one row in memory to the next. bias [N] or NULL, of C's type; beta is 0 or
// 1. Sums are fp32; factors in fp32 are whole, or may be rounded to TF32 (the context's tf32).
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

// What cuBLASLt's choice depends on. Compared by its bytes: there is no padding in it.
typedef struct {
    int64_t M, N, K, lda, ldb, ldc;
    int32_t trans_a, trans_b, type, type_c, has_bias, align_a, align_b, align_c, compute, none;
} GxCudaProductKey;

typedef struct {
    GxCudaProductKey key;
    cublasLtMatmulDesc_t product; // NULL: the place is free
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
} GxCudaProductPlan;

typedef struct GxCudaProducts {
    GxCudaProductPlan plan[GX__CUDA_PRODUCTS];
    int next; // where a new one goes: around, so that the oldest gives way
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
    free(cuda->products);
    cuda->products = NULL;
}

// 16 bytes are the widest access of its kernels: more is no better, and fewer kinds of alignment are fewer plans.
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

// cuBLASLt's matrices are column-major, where row-major C = op(A) op(B) is C^T = op(B)^T op(A)^T: its first operand is
// B as it lies, its second A.
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

// Sums split over K may be added up in fp32 only: other ways round C's type once per part.
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

static cublasStatus_t gx__cuda_plan_choose(const GxCuda *cuda, GxCudaProductPlan *plan)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    GX__CUDA_CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = gx__cuda_preference(cuda, &plan->key, preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoGetHeuristic(cuda->blas, plan->product, plan->b, plan->a, plan->c, plan->c,
                                                preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (found == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    plan->algorithm = best.algo;
    return best.state;
}

// The plan for this product, made where it is asked for the first time.
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

static cublasStatus_t gx__cuda_multiply(const GxCuda *cuda, const GxCudaProduct *p, int tf32)
{
    GxCudaProductPlan *plan;
    GX__CUDA_CUBLAS_TRY(gx__cuda_plan(cuda, p, tf32, &plan));
    if (p->bias)
        GX__CUDA_CUBLAS_TRY(
            cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias));
    return cublasLtMatmul(cuda->blas, plan->product, &p->alpha, p->B, plan->b, p->A, plan->a, &p->beta, p->C, plan->c,
                          p->C, plan->c, &plan->algorithm, cuda->blas_workspace, (size_t)cuda->blas_workspace_bytes,
                          cuda->stream);
}

static void gx__cuda_product(GxContext *g, const char *what, const GxCudaProduct *p)
{
    const cublasStatus_t status = gx__cuda_multiply(gx_cuda(g), p, g->tf32);
    if (status == CUBLAS_STATUS_SUCCESS) gx_cuda_check(g, what);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    GX_FAIL(&g->error, GX_ERR_DEVICE,
            "%s: cuBLASLt refused the product of %ld x %ld (%s%s) by %ld x %ld (%s%s) into %s%s: %s (%d)", what,
            (long)p->M, (long)p->K, gx_dtype_name(p->type), p->trans_a ? ", transposed" : "", (long)p->K, (long)p->N,
            gx_dtype_name(p->type), p->trans_b ? ", transposed" : "", gx_dtype_name(p->type_c),
            p->bias ? " with bias" : "", cublasLtGetStatusName(status), (int)status);
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

// The epilogue may read the bias by 16 bytes. One that is not aligned is what every row begins as, and the product is
// added before y is rounded; where y is added to, it is copied to an aligned place.
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
// rows; a thread sums N columns, N = 1 or the elements of 16 bytes. x is read once, R*C*size bytes.
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

// Sums that are taken together: sum[k] of part[k] [blocks, C]; NULL: there is none.
enum { GX_CUDA_COLUMN_SUMS = 3 };
struct GxCudaColumnSums {
    float *sum[GX_CUDA_COLUMN_SUMS];
    const float *part[GX_CUDA_COLUMN_SUMS];
};

// One block for 32 columns of a sum: warp w sums the blocks w, w + 8, ... of rows, then the first warp the 8 sums, in
// order.
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_column_sum_finish(const __grid_constant__ GxCudaColumnSums s, int64_t blocks, int64_t C, int accumulate)
{
    enum { WARPS = GX_CUDA_BLOCK / GX_WARP };
    GX_SHARED(float, of_warp, [WARPS][GX_WARP]);
    float *sum = s.sum[blockIdx.y];
    const float *part = s.part[blockIdx.y];
    const int lane = (int)threadIdx.x % GX_WARP, warp = (int)threadIdx.x / GX_WARP;
    const int64_t c = (int64_t)blockIdx.x * GX_WARP + lane;
    float of_lane = 0;
    if (!sum) return;
#pragma unroll 8 // reads that wait for memory side by side
    for (int64_t b = warp; b < (c < C ? blocks : 0); b += WARPS) of_lane += part[b * C + c];
    of_warp[warp][lane] = of_lane;
    __syncthreads();
    if (warp > 0 || c >= C) return;
    float total = accumulate ? sum[c] : 0.0f;
    for (int w = 0; w < WARPS; w++) total += of_warp[w][lane];
    sum[c] = total;
}

static void gx__cuda_column_sums_finish(GxContext *g, const GxCudaColumnSums *s, int64_t blocks, int64_t C,
                                        int accumulate)
{
    unsigned n = GX_CUDA_COLUMN_SUMS;
    while (n > 0 && !s->sum[n - 1]) n--;
    if (n)
        GX_LAUNCH(gx__cuda_column_sum_finish, dim3((unsigned)gx_ceil_div(C, GX_WARP), n), GX_CUDA_BLOCK, 0,
                  gx_cuda(g)->stream, *s, blocks, C, accumulate);
}

template <class T>
static void gx__cuda_column_sum(GxContext *g, float *sum, const void *x, int64_t R, int64_t C, int64_t stride,
                                int accumulate, float *scratch)
{
    enum { N = GxPack<T>::N };
    const int packed = gx_wide<T>(C, x, scratch) && stride % N == 0;
    const int64_t blocks = gx_ceil_div(R, GX_LINEAR_BLOCK),
                  jobs = gx_ceil_div(C, GX_CUDA_BLOCK * (packed ? N : 1)) * blocks;
    const unsigned grid = (unsigned)gx_min(jobs, GX_CUDA_MAX_GRID_X);
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
