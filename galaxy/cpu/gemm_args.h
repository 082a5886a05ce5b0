// gemm_args.h: the arguments of every matrix product on the CPU, whichever kernel computes it (gemm.h).
#ifndef GX_CPU_GEMM_ARGS_H
#define GX_CPU_GEMM_ARGS_H
#include "../base/dtype.h"
GX_BEGIN

// C[M,N] = alpha * op(A) op(B) + beta * C, row-major; op(A) is [M,K], op(B) [K,N]; trans: the matrix is stored
// transposed. ld*: elements from one row in memory to the next. beta 0: C is only written. With the same arguments,
// number of threads and library, results have the same bits.
typedef struct {
    int trans_a, trans_b;
    int64_t M, N, K;
    float alpha, beta;
    const void *A, *B;
    int64_t lda, ldb;
    void *C;
    int64_t ldc;
    GxDtype type_ab, type_c; // fp32 and fp32, or bf16 and bf16 or fp32
} GxGemm;

GX_END
#endif
