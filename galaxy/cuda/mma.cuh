// mma.cuh: functions for the instructions that use and feed tensor cores, from sm_80 on: matrix multiply-accumulate by
// a warp (mma.sync), loads of its fragments from shared memory (ldmatrix), and asynchronous copies to shared memory
// (cp.async). On the emulator they are those of dev/emu/mma_sync.h, ldmatrix.h and cp_async.h, whose manuals describe
// the layouts of fragments.
//
// All lanes of a warp call the first two together. Source: PTX ISA, "Warp-level matrix instructions" and "cp.async".
#ifndef GX_CUDA_MMA_CUH
#define GX_CUDA_MMA_CUH
#include "kernel.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_MMA_IMPLEMENTED)
#define GX_CUDA_MMA_IMPLEMENTED
#ifdef GX_EMU
#include <cp_async.h>
#include <ldmatrix.h>
#include <mma_sync.h>
#include <mma_tf32.h>
static __device__ __forceinline__ float gx_exp2(float x) { return exp2f(x); }
#else

// d [16,8] += a [16,16] b [16,8]: fp32 sums of products of bf16
template <class T>
static __device__ __forceinline__ void gx_mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <>
__device__ __forceinline__ void gx_mma<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d [16,8] += a [16,8] b [8,8]: fp32 sums of products of TF32, fp32 whose lowest 13 bits are 0
static __device__ __forceinline__ void gx_mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices of 8 x 8 16-bit elements; lane i gives the address of row i%8 of matrix i/8.
template <int N, bool TRANS> static __device__ __forceinline__ void gx_ldmatrix(unsigned (&r)[N], const void *row)
{
    static_assert(N == 4, "one or two matrices at a time: to be written");
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at));
}

// Writes OF bytes to shared memory: `bytes` of them from `from`, the rest 0. Copies of 16 bytes bypass L1.
template <int OF> static __device__ __forceinline__ void gx_cp_async(void *to, const void *from, int bytes)
{
    static_assert(OF == 4 || OF == 16, "of 4 or 16 bytes");
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (OF == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void gx_cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int N> static __device__ __forceinline__ void gx_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

// 2^x by the hardware's ex2.approx.ftz: relative error at most 2^-22; results below 2^-126 are 0.
static __device__ __forceinline__ float gx_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

// Two adjacent elements in one register, the first in the lower half.
static __device__ __forceinline__ unsigned gx_pair(float x, float y)
{
    const __nv_bfloat162 two = __floats2bfloat162_rn(x, y);
    unsigned pair;
    memcpy(&pair, &two, sizeof pair);
    return pair;
}
#endif
