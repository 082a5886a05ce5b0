// cublasLt.h: matrix products in the order of a stream: D = alpha * op(A) * op(B) + beta * C [+ bias].
//
// There is: A and B both fp32 with C and D fp32, or both bf16 with C and D bf16 or fp32; accumulation, alpha and beta
// in fp32, scalars on the host; both orders of storage; the epilogue BIAS. All else is CUBLAS_STATUS_NOT_SUPPORTED, and
// a line on stderr says what was asked. CUBLAS_COMPUTE_32F_FAST_TF32 is refused too unless GX_EMU_TF32=1; its inputs
// are rounded to TF32 then.
//
// There are four algorithms for each product: number n adds up n+1 parts of k, each summed in order, so that another
// algorithm is other bits. That proves shapes, strides, transpositions and streams, not cuBLAS's own rounding. How long
// each takes is what GX_EMU_ALGORITHM_MS says ("9,5,1,7", or "9,5,1,7;1,5,9,7" for two cards; without it, what the
// emulator takes), which of them the heuristic has first GX_EMU_ALGORITHM_FIRST, and the library's version
// GX_EMU_CUBLASLT.
// The workspace that an algorithm asked for is overwritten with NaN by every product, as if it had been used.
#ifndef GX_EMU_CUBLASLT_H
#define GX_EMU_CUBLASLT_H
#include "cuda_runtime.h"
#include "cuda_bf16.h"

// ---- numbers as in cublas_api.h, cublasLt.h, library_types.h -------------------------------------------------------
typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
inline const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown";
}
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;
typedef cudaDataType_t cudaDataType;
typedef enum { CUBLASLT_ORDER_COL = 0, CUBLASLT_ORDER_ROW = 1 } cublasLtOrder_t;
typedef enum { CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4 } cublasLtEpilogue_t;
typedef enum { CUBLASLT_POINTER_MODE_HOST = 0, CUBLASLT_POINTER_MODE_DEVICE = 1 } cublasLtPointerMode_t;
typedef enum {
    CUBLASLT_MATRIX_LAYOUT_TYPE = 0,
    CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
    CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
    CUBLASLT_MATRIX_LAYOUT_COLS = 3,
    CUBLASLT_MATRIX_LAYOUT_LD = 4,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
    CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_TRANSC = 5,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
} cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;

typedef enum {
    CUBLASLT_REDUCTION_SCHEME_NONE = 0,
    CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
    CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
    CUBLASLT_REDUCTION_SCHEME_MASK = 7
} cublasLtReductionScheme_t;

// ---- descriptors: attributes are 4 or 8 bytes, kept by number ------------------------------------------------------
namespace emu
{

struct Attribute {
    int number;
    size_t bytes;
    int64_t value;
};

struct Attributes {
    const char *what;
    std::vector<Attribute> all;

    Attribute *find(int number)
    {
        for (Attribute &a : all)
            if (a.number == number) return &a;
        return nullptr;
    }
    int64_t get(int number) const { return const_cast<Attributes *>(this)->find(number)->value; }
    cublasStatus_t set(int number, const void *value, size_t bytes)
    {
        Attribute *a = find(number);
        if (!a) return say("%s: attribute %d is not emulated", what, number), CUBLAS_STATUS_NOT_SUPPORTED;
        if (!value || bytes != a->bytes) return CUBLAS_STATUS_INVALID_VALUE;
        int32_t narrow = 0;
        if (bytes == sizeof narrow) memcpy(&narrow, value, bytes), a->value = narrow;
        else memcpy(&a->value, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
};

} // namespace emu

struct cublasLtContext {
};
struct cublasLtMatmulDescOpaque_t : emu::Attributes {
};
struct cublasLtMatrixLayoutOpaque_t : emu::Attributes {
};
struct cublasLtMatmulPreferenceOpaque_t : emu::Attributes {
};
typedef cublasLtContext *cublasLtHandle_t;
typedef cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
typedef struct {
    size_t workspace_bytes;
    unsigned alignment[4]; // bytes, of A, B, C, D
    int64_t number;
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

inline const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "the function succeeded";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the requested functionality is not supported";
    default: return "another error";
    }
}

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) { return *h = new cublasLtContext, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return delete h, CUBLAS_STATUS_SUCCESS; }
inline size_t cublasLtGetVersion() { return (size_t)emu::environment_number("GX_EMU_CUBLASLT", 130000, 1, INT32_MAX); }

inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    *d = new cublasLtMatmulDescOpaque_t{{"cublasLtMatmulDesc",
                                         {{CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 4, compute},
                                          {CUBLASLT_MATMUL_DESC_SCALE_TYPE, 4, scale},
                                          {CUBLASLT_MATMUL_DESC_POINTER_MODE, 4, CUBLASLT_POINTER_MODE_HOST},
                                          {CUBLASLT_MATMUL_DESC_TRANSA, 4, CUBLAS_OP_N},
                                          {CUBLASLT_MATMUL_DESC_TRANSB, 4, CUBLAS_OP_N},
                                          {CUBLASLT_MATMUL_DESC_TRANSC, 4, CUBLAS_OP_N},
                                          {CUBLASLT_MATMUL_DESC_EPILOGUE, 4, CUBLASLT_EPILOGUE_DEFAULT},
                                          {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8, 0},
                                          {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4, -1}}}};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return delete d, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a,
                                                     const void *value, size_t bytes)
{
    return d->set(a, value, bytes);
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows,
                                                 uint64_t cols, int64_t ld)
{
    *l = new cublasLtMatrixLayoutOpaque_t{{"cublasLtMatrixLayout",
                                           {{CUBLASLT_MATRIX_LAYOUT_TYPE, 4, type},
                                            {CUBLASLT_MATRIX_LAYOUT_ORDER, 4, CUBLASLT_ORDER_COL},
                                            {CUBLASLT_MATRIX_LAYOUT_ROWS, 8, (int64_t)rows},
                                            {CUBLASLT_MATRIX_LAYOUT_COLS, 8, (int64_t)cols},
                                            {CUBLASLT_MATRIX_LAYOUT_LD, 8, ld},
                                            {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4, 1},
                                            {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8, 0}}}};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return delete l, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a,
                                                       const void *value, size_t bytes)
{
    return l->set(a, value, bytes);
}

inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new cublasLtMatmulPreferenceOpaque_t{
        {"cublasLtMatmulPreference",
         {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8, 0},
          {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4, CUBLASLT_REDUCTION_SCHEME_MASK},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4, 256},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4, 256},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4, 256},
          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4, 256}}}};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return delete p, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                           cublasLtMatmulPreferenceAttributes_t a, const void *value,
                                                           size_t bytes)
{
    return p->set(a, value, bytes);
}

// ---- one product ---------------------------------------------------------------------------------------------------
namespace emu
{

struct Matrix { // element (i,j) of op(X) is at i * row_step + j * col_step
    char *data;
    cudaDataType type;
    int64_t rows, cols, row_step, col_step;
    int64_t bytes_each() const { return type == CUDA_R_16BF ? 2 : 4; }
    size_t extent() const { return (size_t)(((rows - 1) * row_step + (cols - 1) * col_step + 1) * bytes_each()); }
    float get(int64_t i, int64_t j) const
    {
        const char *p = data + (i * row_step + j * col_step) * bytes_each();
        return type == CUDA_R_16BF ? (float)*(const __nv_bfloat16 *)p : *(const float *)p;
    }
    void set(int64_t i, int64_t j, float x) const
    {
        char *p = data + (i * row_step + j * col_step) * bytes_each();
        if (type == CUDA_R_16BF) *(__nv_bfloat16 *)p = x;
        else *(float *)p = x;
    }
};

struct Product {
    Matrix a, b, c, d;
    float alpha, beta;
    const void *bias;
    cudaDataType bias_type;
    bool tf32;
    void *workspace;
    size_t workspace_bytes;
    int64_t algorithm;
};
constexpr int64_t algorithms = 4;

inline double algorithm_ms(int64_t number, int card) // 0: not said
{
    const std::string all = environment("GX_EMU_ALGORITHM_MS", "");
    const char *at = all.c_str();
    for (int i = 0; i < card && strchr(at, ';'); i++) at = strchr(at, ';') + 1;
    for (int64_t i = 0; i < number && at; i++) at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr;
    return at ? strtod(at, nullptr) : 0;
}

typedef float Octet __attribute__((vector_size(32)));

// Copies op(X) to fp32 with `lines` of it contiguous per step of k, rounded up to octets.
inline std::vector<Octet> pack(const Matrix &x, bool k_is_column, bool tf32)
{
    int64_t k = k_is_column ? x.cols : x.rows, lines = k_is_column ? x.rows : x.cols, octets = (lines + 7) / 8;
    std::vector<Octet> packed((size_t)(k * octets), Octet{});
    for (int64_t step = 0; step < k; step++)
        for (int64_t line = 0; line < lines; line++) {
            float value = k_is_column ? x.get(line, step) : x.get(step, line);
            packed[(size_t)(step * octets + line / 8)][line % 8] = tf32 ? round_to_tf32(value) : value;
        }
    return packed;
}

inline void store_column(const Product &p, int64_t j, const Octet *sums)
{
    Matrix bias = {(char *)p.bias, p.bias_type, p.d.rows, 1, 1, 0};
    for (int64_t i = 0; i < p.d.rows; i++) {
        float value = p.alpha * sums[i / 8][i % 8];
        if (p.beta != 0) value += p.beta * p.c.get(i, j);
        if (p.bias) value += bias.get(i, 0);
        p.d.set(i, j, value);
    }
}

inline void run_product(const Product &p)
{
    std::vector<Octet> a = pack(p.a, true, p.tf32), b = pack(p.b, false, p.tf32);
    size_t octets = (size_t)(p.a.rows + 7) / 8, b_octets = (size_t)(p.b.cols + 7) / 8;
    if (p.workspace_bytes) memset(p.workspace, fresh_byte, p.workspace_bytes);
    std::vector<Octet> sums(octets * 8), part(octets * 8); // of eight columns of D
    const int64_t parts = p.algorithm + 1, length = (p.a.cols + parts - 1) / parts;
    for (size_t j8 = 0; j8 < b_octets; j8++) {
        std::fill(sums.begin(), sums.end(), Octet{});
        for (int64_t begin = 0; begin < p.a.cols; begin += length) {
            std::fill(part.begin(), part.end(), Octet{});
            for (int64_t k = begin; k < std::min(begin + length, p.a.cols); k++) {
                const Octet *left = a.data() + (size_t)k * octets, right = b[(size_t)k * b_octets + j8];
                for (size_t i = 0; i < octets; i++)
                    for (int j = 0; j < 8; j++) part[(size_t)j * octets + i] += left[i] * right[j];
            }
            for (size_t i = 0; i < sums.size(); i++) sums[i] += part[i];
        }
        for (int64_t j = (int64_t)j8 * 8; j < std::min<int64_t>(p.d.cols, (int64_t)j8 * 8 + 8); j++)
            store_column(p, j, sums.data() + (size_t)(j % 8) * octets);
    }
}

// ---- what is refused -----------------------------------------------------------------------------------------------
constexpr cublasStatus_t unsupported = CUBLAS_STATUS_NOT_SUPPORTED, invalid = CUBLAS_STATUS_INVALID_VALUE;

__attribute__((format(printf, 2, 3))) inline cublasStatus_t refuse_product(cublasStatus_t status, const char *format,
                                                                           ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    say("cublasLtMatmul: %s%s", message, status == unsupported ? ": not supported" : "");
    return status;
}

inline cublasStatus_t matrix_of(Matrix *m, const char *name, const cublasLtMatrixLayoutOpaque_t &l, const void *data,
                                int64_t op)
{
    int64_t rows = l.get(CUBLASLT_MATRIX_LAYOUT_ROWS), cols = l.get(CUBLASLT_MATRIX_LAYOUT_COLS),
            ld = l.get(CUBLASLT_MATRIX_LAYOUT_LD);
    int64_t order = l.get(CUBLASLT_MATRIX_LAYOUT_ORDER), type = l.get(CUBLASLT_MATRIX_LAYOUT_TYPE);
    if (order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW)
        return refuse_product(unsupported, "%s has order %d", name, (int)order);
    if (l.get(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) != 1) return refuse_product(unsupported, "%s is a batch", name);
    if (type != CUDA_R_32F && type != CUDA_R_16BF)
        return refuse_product(unsupported, "%s has type %d", name, (int)type);
    if (rows < 1 || cols < 1 || ld < (order == CUBLASLT_ORDER_COL ? rows : cols))
        return refuse_product(invalid, "%s is %lld x %lld with leading dimension %lld", name, (long long)rows,
                              (long long)cols, (long long)ld);
    int64_t down = order == CUBLASLT_ORDER_COL ? 1 : ld, right = order == CUBLASLT_ORDER_COL ? ld : 1;
    *m = op == CUBLAS_OP_N ? Matrix{(char *)data, (cudaDataType)type, rows, cols, down, right}
                           : Matrix{(char *)data, (cudaDataType)type, cols, rows, right, down};
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t check_desc(const cublasLtMatmulDescOpaque_t &desc)
{
    int64_t compute = desc.get(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), epilogue = desc.get(CUBLASLT_MATMUL_DESC_EPILOGUE);
    bool tf32_asked = compute == CUBLAS_COMPUTE_32F_FAST_TF32 && environment_word("GX_EMU_TF32", {"0", "1"}) == "1";
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC && !tf32_asked)
        return refuse_product(unsupported, "compute type %d%s", (int)compute,
                              compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? " (TF32) without GX_EMU_TF32=1" : "");
    if (desc.get(CUBLASLT_MATMUL_DESC_SCALE_TYPE) != CUDA_R_32F)
        return refuse_product(unsupported, "a scale type other than fp32");
    if (desc.get(CUBLASLT_MATMUL_DESC_POINTER_MODE) != CUBLASLT_POINTER_MODE_HOST)
        return refuse_product(unsupported, "scalars on the device");
    if (desc.get(CUBLASLT_MATMUL_DESC_TRANSC) != CUBLAS_OP_N) return refuse_product(unsupported, "a transposed C");
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_BIAS)
        return refuse_product(unsupported, "epilogue %d", (int)epilogue);
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t check_shapes(const Product &p)
{
    const Matrix &a = p.a, &b = p.b, &c = p.c, &d = p.d;
    if (a.cols != b.rows || a.rows != d.rows || b.cols != d.cols || c.rows != d.rows || c.cols != d.cols)
        return refuse_product(invalid, "op(A) is %lld x %lld, op(B) %lld x %lld, C %lld x %lld, D %lld x %lld",
                              (long long)a.rows, (long long)a.cols, (long long)b.rows, (long long)b.cols,
                              (long long)c.rows, (long long)c.cols, (long long)d.rows, (long long)d.cols);
    if (a.type != b.type || c.type != d.type || (a.type == CUDA_R_32F && d.type != CUDA_R_32F))
        return refuse_product(unsupported, "A, B, C, D of types %d, %d, %d, %d", a.type, b.type, c.type, d.type);
    if ((c.row_step == 1) != (d.row_step == 1) && d.rows > 1 && d.cols > 1)
        return refuse_product(unsupported, "C and D of different orders");
    if (p.bias && p.bias_type != d.type)
        return refuse_product(unsupported, "a bias of type %d with D of type %d", p.bias_type, d.type);
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t check_address(const char *name, const void *p, size_t bytes, unsigned alignment)
{
    Spot spot = spot_of(p);
    if (!p || spot.where != Where::device)
        return refuse_product(invalid, "%s is at %p, which is no device memory", name, p);
    if (bytes > spot.left) return refuse_product(invalid, "%s needs %zu bytes, there are %zu", name, bytes, spot.left);
    if ((uintptr_t)p % alignment)
        return refuse_product(invalid, "%s at %p is not aligned to %u bytes", name, p, alignment);
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t check_addresses(const Product &p, const cublasLtMatmulAlgo_t *algo)
{
    const Matrix *m[4] = {&p.a, &p.b, &p.c, &p.d};
    const char *names[4] = {"A", "B", "C", "D"};
    for (int i = 0; i < 4; i++) {
        unsigned alignment = algo ? std::min(16u, algo->alignment[i]) : (unsigned)m[i]->bytes_each();
        if (m[i] == &p.c && p.beta == 0 && p.c.data == p.d.data) continue;
        if (cublasStatus_t e = check_address(names[i], m[i]->data, m[i]->extent(), alignment)) return e;
    }
    for (int i = 0; i < 2; i++)
        if (m[i]->data < p.d.data + p.d.extent() && p.d.data < m[i]->data + m[i]->extent())
            return refuse_product(invalid, "%s and D overlap", names[i]);
    if (p.c.data == p.d.data && (p.c.row_step != p.d.row_step || p.c.col_step != p.d.col_step))
        return refuse_product(invalid, "C is D with another layout");
    if (p.bias)
        if (cublasStatus_t e =
                check_address("the bias", p.bias, (size_t)(p.d.rows * (p.bias_type == CUDA_R_16BF ? 2 : 4)), 4))
            return e;
    if (p.workspace_bytes) return check_address("the workspace", p.workspace, p.workspace_bytes, 16);
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t product_of(Product *p, const cublasLtMatmulDescOpaque_t &desc,
                                 const cublasLtMatrixLayoutOpaque_t *layouts[4], const void *data[4])
{
    const char *names[4] = {"A", "B", "C", "D"};
    const int64_t ops[4] = {desc.get(CUBLASLT_MATMUL_DESC_TRANSA), desc.get(CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_N,
                            CUBLAS_OP_N};
    Matrix *m[4] = {&p->a, &p->b, &p->c, &p->d};
    if (cublasStatus_t e = check_desc(desc)) return e;
    for (int i = 0; i < 4; i++)
        if (cublasStatus_t e = matrix_of(m[i], names[i], *layouts[i], data[i], ops[i])) return e;
    int64_t bias_type = desc.get(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
    p->bias = desc.get(CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_BIAS
                  ? (void *)desc.get(CUBLASLT_MATMUL_DESC_BIAS_POINTER)
                  : nullptr;
    p->bias_type = bias_type < 0 ? p->d.type : (cudaDataType)bias_type;
    p->tf32 = desc.get(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) == CUBLAS_COMPUTE_32F_FAST_TF32;
    return check_shapes(*p);
}

constexpr size_t workspace_wanted = 64 << 10;

} // namespace emu

// ---- the interface -------------------------------------------------------------------------------------------------
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int requested,
                                                     cublasLtMatmulHeuristicResult_t results[], int *found)
{
    *found = 0;
    if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    emu::Product product{};
    const cublasLtMatrixLayoutOpaque_t *layouts[4] = {a, b, c, d};
    const void *data[4] = {};
    if (cublasStatus_t e = emu::product_of(&product, *desc, layouts, data)) return e;
    size_t workspace =
        std::min((size_t)preference->get(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), emu::workspace_wanted);
    *found = (int)std::min<int64_t>(requested, emu::algorithms);
    const int64_t first = emu::environment_number("GX_EMU_ALGORITHM_FIRST", 0, 0, emu::algorithms - 1);
    for (int n = 0; n < *found; n++) {
        results[n] = {{workspace, {}, (first + n) % emu::algorithms}, workspace, CUBLAS_STATUS_SUCCESS, 1, {}};
        for (int i = 0; i < 4; i++)
            results[n].algo.alignment[i] = (unsigned)preference->get(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i);
    }
    return CUBLAS_STATUS_SUCCESS;
}

// Whether these bytes are one of the algorithms, and what it needs.
inline cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                              cublasLtMatmulHeuristicResult_t *result)
{
    emu::Product product{};
    const cublasLtMatrixLayoutOpaque_t *layouts[4] = {a, b, c, d};
    const void *data[4] = {};
    if (cublasStatus_t e = emu::product_of(&product, *desc, layouts, data)) return e;
    if (algo->number < 0 || algo->number >= emu::algorithms) return CUBLAS_STATUS_INVALID_VALUE;
    *result = {*algo, algo->workspace_bytes, CUBLAS_STATUS_SUCCESS, 1, {}};
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                                     const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                                     cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                     cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                                     cudaStream_t stream)
{
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    std::unique_lock held(emu::device_lock);
    emu::Product p{};
    const cublasLtMatrixLayoutOpaque_t *layouts[4] = {a_layout, b_layout, c_layout, d_layout};
    const void *data[4] = {a, b, c, d};
    if (cublasStatus_t e = emu::product_of(&p, *desc, layouts, data)) return e;
    p.alpha = *(const float *)alpha, p.beta = *(const float *)beta;
    p.workspace = workspace, p.workspace_bytes = algo ? algo->workspace_bytes : 0;
    p.algorithm = algo ? algo->number : 0;
    if (p.algorithm < 0 || p.algorithm >= emu::algorithms)
        return emu::refuse_product(emu::invalid, "there is no algorithm %lld", (long long)p.algorithm);
    if (p.workspace_bytes > workspace_bytes)
        return emu::refuse_product(emu::invalid, "a workspace of %zu bytes, the algorithm needs %zu", workspace_bytes,
                                   p.workspace_bytes);
    if (desc->get(CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_BIAS && !p.bias)
        return emu::refuse_product(emu::invalid, "epilogue BIAS without a bias");
    if (cublasStatus_t e = emu::check_addresses(p, algo)) return e;
    CUstream_st *s = emu::find_stream(stream);
    if (!s) return CUBLAS_STATUS_INVALID_VALUE;
    if (!emu::is_of_this_card(*s, "cublasLtMatmul")) return CUBLAS_STATUS_INVALID_VALUE;
    emu::enqueue(
        s, "cublasLtMatmul",
        [p, s] {
            emu::run_product(p);
            s->said_ms += emu::algorithm_ms(p.algorithm, s->card);
        },
        nullptr, emu::bytes_of(p));
    return CUBLAS_STATUS_SUCCESS;
}

#endif
