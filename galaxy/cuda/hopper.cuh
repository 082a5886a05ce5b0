// hopper.cuh: functions for what an H100 has beyond mma.cuh: barriers that count bytes (mbarrier), copies of boxes of a
// tensor (TMA), matrix multiply-accumulate by a warpgroup of four warps (wgmma), and registers reallocated between
// warpgroups (setmaxnreg). On the emulator they are those of dev/emu/mbarrier.h, tma.h and wgmma.h, whose manuals say
// how to use them and describe the layouts.
//
// They exist if GX_CUDA_SM_90A is defined, which under nvcc says that sm_90a is among the architectures and sm_90 is
// not: an H100 runs code for either. For other architectures a kernel that uses them has no body, since the body is
// under `#ifdef GX_CUDA_HOPPER`, and it is launched only if the GPU has `runs_sm_90a` (kernel.cuh).
//
// Sources: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier", "cp.async.bulk.tensor",
// "Asynchronous Warpgroup Level Matrix Instructions".
#ifndef GX_CUDA_HOPPER_CUH
#define GX_CUDA_HOPPER_CUH
#include "mma.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && defined(GX_CUDA_SM_90A) && !defined(GX_CUDA_HOPPER_IMPLEMENTED)
#define GX_CUDA_HOPPER_IMPLEMENTED
#ifdef GX_EMU
#define GX_CUDA_HOPPER 1
#include <tma.h>
#include <wgmma.h>

// A compiler barrier for these registers: their uses do not move across it.
template <int N> static __device__ __forceinline__ void gx_wgmma_fence_operand(float (&)[N]) {}
#else
#include <cuda.h>
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GX_CUDA_HOPPER 1
#endif

// ---- mbarrier ------------------------------------------------------------------------------------------------------

static __device__ __forceinline__ unsigned gx__shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

static __device__ __forceinline__ void gx_mbarrier_init(unsigned long long *barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(gx__shared(barrier)), "r"(count) : "memory");
}
// Makes the initialization visible to the async proxy (TMA) as well.
static __device__ __forceinline__ void gx_mbarrier_fence_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
static __device__ __forceinline__ void gx_mbarrier_arrive(unsigned long long *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(gx__shared(barrier)) : "memory");
}
static __device__ __forceinline__ void gx_mbarrier_arrive_expect(unsigned long long *barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(gx__shared(barrier)), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ bool gx_mbarrier_try_wait(unsigned long long *barrier, unsigned parity)
{
    unsigned complete;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(complete)
                 : "r"(gx__shared(barrier)), "r"(parity)
                 : "memory");
    return complete;
}
static __device__ __forceinline__ void gx_mbarrier_wait(unsigned long long *barrier, unsigned parity)
{
    while (!gx_mbarrier_try_wait(barrier, parity)) continue;
}
// Makes the threads' stores to shared memory visible to the async proxy (TMA, wgmma).
static __device__ __forceinline__ void gx_fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// ---- TMA -----------------------------------------------------------------------------------------------------------

// Copies the box that begins at `at`, innermost coordinate first, to shared memory; completes on the barrier.
template <int RANK>
static __device__ __forceinline__ void gx_tma_load(void *to, const CUtensorMap *map, unsigned long long *barrier,
                                                   const int (&at)[RANK])
{
    static_assert(RANK == 4, "of 2 and 3 dimensions: to be written");
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(gx__shared(to)),
                 "l"(map), "r"(gx__shared(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                 : "memory");
}

// ---- wgmma ---------------------------------------------------------------------------------------------------------

template <int N> static __device__ __forceinline__ void gx_wgmma_fence_operand(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// The matrix descriptor of a matrix in shared memory; leading, stride: byte offsets; swizzle: 0, 32, 64 or 128 bytes.
static __device__ __forceinline__ unsigned long long gx_wgmma_descriptor(const void *start, unsigned leading,
                                                                         unsigned stride, int swizzle)
{
    const unsigned long long mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return (gx__shared(start) & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | mode << 62;
}

static __device__ __forceinline__ void gx_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
static __device__ __forceinline__ void gx_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int N> static __device__ __forceinline__ void gx_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

#define GX__SUMS_8(i)                                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define GX__SUMS_64  GX__SUMS_8(0), GX__SUMS_8(8), GX__SUMS_8(16), GX__SUMS_8(24)
#define GX__SUMS_96  GX__SUMS_64, GX__SUMS_8(32), GX__SUMS_8(40)
#define GX__SUMS_128 GX__SUMS_96, GX__SUMS_8(48), GX__SUMS_8(56)
#define GX__NAMES_64                                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GX__NAMES_96                                                                                                   \
    GX__NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define GX__NAMES_128                                                                                                  \
    GX__NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Operands are numbered after the accumulators: A names those of a, B that of b; then come `accumulate` (scale-d) and
// N_MAJOR (imm-trans-b). A in shared memory is K-major: its imm-trans-a is a 0 before N_MAJOR.
#define GX__WGMMA(N, A, B, ACCUMULATE, MAJOR, ...)                                                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" GX__NAMES_##N "}, " A ", " B             \
                 ", p, 1, 1, " MAJOR ";\n}\n"                                                                          \
                 : GX__SUMS_##N                                                                                        \
                 : __VA_ARGS__, "l"(b), "r"((int)accumulate), "n"((int)N_MAJOR))

// d [64,N] = a [64,16] b [16,N], or += if `accumulate`: fp32 sums of products of bf16; N_MAJOR: b is N-major.
template <int N, bool N_MAJOR>
static __device__ __forceinline__ void gx_wgmma(float (&d)[N / 2], unsigned long long a, unsigned long long b,
                                                bool accumulate)
{
    static_assert(N == 64 || N == 96 || N == 128, "of other widths: to be written");
    if constexpr (N == 64) GX__WGMMA(64, "%32", "%33", "%34", "0, %35", "l"(a));
    else if constexpr (N == 96) GX__WGMMA(96, "%48", "%49", "%50", "0, %51", "l"(a));
    else GX__WGMMA(128, "%64", "%65", "%66", "0, %67", "l"(a));
}
template <int N, bool N_MAJOR>
static __device__ __forceinline__ void gx_wgmma(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b,
                                                bool accumulate)
{
    static_assert(N == 64 || N == 96 || N == 128, "of other widths: to be written");
#define GX__A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
    if constexpr (N == 64) GX__WGMMA(64, "{%32, %33, %34, %35}", "%36", "%37", "%38", GX__A);
    else if constexpr (N == 96) GX__WGMMA(96, "{%48, %49, %50, %51}", "%52", "%53", "%54", GX__A);
    else GX__WGMMA(128, "{%64, %65, %66, %67}", "%68", "%69", "%70", GX__A);
#undef GX__A
}
#undef GX__WGMMA
#undef GX__SUMS_8
#undef GX__SUMS_64
#undef GX__SUMS_96
#undef GX__SUMS_128
#undef GX__NAMES_64
#undef GX__NAMES_96
#undef GX__NAMES_128

// Sets the registers per thread of a warpgroup: 24 to 256, a multiple of 8. All its warps must execute it.
template <int REGISTERS> static __device__ __forceinline__ void gx_setmaxnreg_increase()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}
template <int REGISTERS> static __device__ __forceinline__ void gx_setmaxnreg_decrease()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}
#endif

// The driver's function that encodes tensor maps for TMA; NULL: the driver has none.
static inline decltype(&cuTensorMapEncodeTiled) gx__cuda_tensor_map_encoder(void)
{
#ifdef GX_EMU
    return cuTensorMapEncodeTiled;
#else
    void *f = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found) != cudaSuccess)
        return NULL;
#else // takes the runtime's own version, which has the function
    if (cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &found) != cudaSuccess) return NULL;
#endif
    return found == cudaDriverEntryPointSuccess ? (decltype(&cuTensorMapEncodeTiled))f : NULL;
#endif
}
#endif
