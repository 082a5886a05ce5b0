// kernel.cuh: the words that kernels are written with: launches, types, 16-byte accesses, sums over warps and blocks.
//
// The same source is compiled by nvcc, and by a C++ compiler against dev/emu (GX_EMU), which runs it on the CPU. So there is no <<<>>> and no bare
// __shared__ here, but
//     GX_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...);     templates in parentheses: GX_LAUNCH((f<T, 4>), ...)
//     GX_SHARED(float, tile, [32][33]);                                       __shared__ float tile[32][33]
//     GX_DYNAMIC_SHARED(float, row);                                          extern __shared__, of the launch's shared_bytes
//
// Kernels are templates over the type of activations and weights, T (float, __nv_bfloat16); they compute in fp32. Sizes and indices of elements are
// 64 bits wide. Nothing depends on the order in which blocks run, and no float is added atomically: the same input gives the same bits.
#ifndef GX_CUDA_KERNEL_CUH
#define GX_CUDA_KERNEL_CUH
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include "../ops/device.h"

// What a context's device_state is: opened by gx_cuda_open (cuda/memory.cuh).
typedef struct {
    cudaStream_t stream; // all operations of the context, in order
    cublasLtHandle_t blas;
    void *blas_workspace;
    int64_t blas_workspace_bytes;
    struct GxCudaProducts *products; // matrix products that were asked for, with the algorithm chosen for each (cuda/linear.cuh)
    struct GxCudaFault *fault; // in device memory: what a kernel found wrong, read when the host waits
    int processors;            // of this card
    int shared_bytes;          // that one block can have
} GxCuda;

static inline GxCuda *gx_cuda(const GxContext *g) { return (GxCuda *)g->device_state; }

// A kernel cannot fail; it notes the first thing that it found, and whoever waits for it turns that into the context's error.
typedef struct GxCudaFault {
    int kind; // 0: none
    int value;
    long long row, limit;
} GxCudaFault;
enum { GX_CUDA_FAULT_LABEL = 1 }; // `value` in `row` is no label below `limit`

// After a launch: an error of the launch itself becomes the context's.
void gx_cuda_check(GxContext *g, const char *what);

#if defined(GALAXY_CUDA_IMPLEMENTATION)
#if !defined(GX_EMU)
#define GX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define GX_SHARED(type, name, dims)                               __shared__ __align__(16) type name dims
#define GX_DYNAMIC_SHARED(type, name)                                                                                                      \
    extern __shared__ __align__(1024) unsigned char gx__dynamic_shared[];                                                                  \
    type *name = reinterpret_cast<type *>(gx__dynamic_shared)
#endif

enum { GX_WARP = 32, GX_CUDA_BLOCK = 256, GX_CUDA_MAX_WARPS = 32 };

// Calls the template F<T>(...) for the type that `dtype` names: GX_CUDA_TYPES(dtype, launch_add, g, y, a, b, n);
#define GX_CUDA_TYPES(dtype, F, ...)                                                                                                       \
    do {                                                                                                                                   \
        if ((dtype) == GX_BF16) F<__nv_bfloat16>(__VA_ARGS__);                                                                             \
        else F<float>(__VA_ARGS__);                                                                                                        \
    } while (0)

// ---- elements: computed in fp32, stored in T --------------------------------------------------------------------------------------------------
static __device__ __forceinline__ float gx_to_float(float x) { return x; }
static __device__ __forceinline__ float gx_to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T> static __device__ __forceinline__ T gx_from_float(float x);
template <> __device__ __forceinline__ float gx_from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ __nv_bfloat16 gx_from_float<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }

// GxPack<T>: 16 bytes of T, loaded and stored as one access. p is aligned to 16 bytes.
template <class T> struct alignas(16) GxPack {
    enum { N = 16 / sizeof(T) };
    T x[N];
};
template <class T> static __device__ __forceinline__ GxPack<T> gx_load_pack(const T *p) { return *reinterpret_cast<const GxPack<T> *>(p); }
template <class T> static __device__ __forceinline__ void gx_store_pack(T *p, const GxPack<T> &v) { *reinterpret_cast<GxPack<T> *>(p) = v; }
static __host__ __device__ __forceinline__ bool gx_aligned(const void *p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// ---- sums and maxima over a warp and a block: every thread gets the result, taken in an order that does not change ----------------------------
static __device__ __forceinline__ float gx_warp_sum(float x)
{
    for (int lane = GX_WARP / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}
static __device__ __forceinline__ float gx_warp_max(float x)
{
    for (int lane = GX_WARP / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}

// All threads of the block come here; its size is a multiple of the warp's. May be called again and again.
template <class Combine>
static __device__ __forceinline__ float gx_block_combine(float x, float empty, Combine of_warp)
{
    GX_SHARED(float, part, [GX_CUDA_MAX_WARPS]);
    const int lane = (int)threadIdx.x % GX_WARP, warp = (int)threadIdx.x / GX_WARP, warps = (int)blockDim.x / GX_WARP;
    x = of_warp(x);
    __syncthreads(); // of the call before, all have read
    if (lane == 0) part[warp] = x;
    __syncthreads();
    return of_warp(lane < warps ? part[lane] : empty);
}
static __device__ __forceinline__ float gx_block_sum(float x) { return gx_block_combine(x, 0.0f, [](float v) { return gx_warp_sum(v); }); }
static __device__ __forceinline__ float gx_block_max(float x)
{
    return gx_block_combine(x, -INFINITY, [](float v) { return gx_warp_max(v); });
}
#endif
#endif
