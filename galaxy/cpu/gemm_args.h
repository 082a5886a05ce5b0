// gemm_args.h: what is multiplied: the arguments of every matrix product of the CPU, whoever computes it (gemm.h).
#ifndef GX_CPU_GEMM_ARGS_H
#define GX_CPU_GEMM_ARGS_H
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

GX_END
#endif
