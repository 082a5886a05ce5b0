// kernel.cuh: the building blocks of kernels: launches, types, 16-byte accesses, sums over warps and blocks.
//
// The same source is compiled by nvcc, and by a C++ compiler against dev/emu (GX_EMU), which runs it on the CPU.
// Instead of <<<>>> and __shared__ it therefore uses
//     GX_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...);     templates in parentheses: (f<T, 4>)
//     GX_SHARED(float, tile, [32][33]);                                       __shared__ float tile[32][33]
//     GX_DYNAMIC_SHARED(float, row);                                          extern __shared__, of the launch's size
//
// Kernels are templates over the type of activations and weights, T (float, __nv_bfloat16); they compute in fp32. Sizes
// and indices of elements have 64 bits. Nothing depends on the order in which blocks run, and no floats are added
// atomically: the same input gives the same bits.
#ifndef GX_CUDA_KERNEL_CUH
#define GX_CUDA_KERNEL_CUH
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include "../ops/device.h"

// A context's device_state, opened by gx_cuda_open (cuda/memory.cuh).
typedef struct {
    cudaStream_t stream; // all operations of the context, in order
    cublasLtHandle_t blas;
    void *blas_workspace;
    int64_t blas_workspace_bytes;
    struct GxCudaProducts *products; // all products so far, each with its chosen algorithm (cuda/linear.cuh)
    struct GxCudaFault *fault;       // in device memory: the first error that a kernel found
    struct GxCudaFault *seen_fault;  // in pinned memory: copied here when the host waits
    char *stage; // pinned memory through which small copies pass, filled from its beginning until the host waits
    int64_t stage_used;
    int is_capturing;    // the stream's operations are captured into a graph (graph.cuh)
    int launches;        // since `earlier` was recorded
    cudaEvent_t earlier; // for a context whose host must not wait in the driver (memory.cuh)
    int processors;      // multiprocessors of this GPU
    int shared_bytes;    // that one block can have
    int runs_sm_90a;     // 1: compute capability 9.0, the only one that kernels for sm_90a run on (hopper.cuh)
    int fast_tf32;       // 1: tensor cores do TF32 at 7 or more times the rate of fp32, not at the same rate
} GxCuda;

static inline GxCuda *gx_cuda(const GxContext *g) { return (GxCuda *)g->device_state; }

// A kernel cannot fail. It records the first fault that it finds, and the next wait turns that into the context's
// error.
typedef struct GxCudaFault {
    int kind; // 0: none
    int value;
    long long row, limit;
} GxCudaFault;
enum { GX_CUDA_FAULT_LABEL = 1 }; // `value` in `row` is not a label below `limit`

// Call it after a launch: an error of the launch itself becomes the context's.
void gx_cuda_check(GxContext *g, const char *what);
void gx_cuda_wait(GxContext *g); // waits for everything launched; reports errors since the last wait
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_KERNEL_IMPLEMENTED)
#define GX_CUDA_KERNEL_IMPLEMENTED
#if !defined(GX_EMU)
#define GX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define GX_SHARED(type, name, dims) __shared__ __align__(16) type name dims
#define GX_DYNAMIC_SHARED(type, name)                                                                                  \
    extern __shared__ __align__(1024) unsigned char gx__cuda_dynamic_shared[];                                         \
    type *name = reinterpret_cast<type *>(gx__cuda_dynamic_shared)
#endif

enum { GX_WARP = 32, GX_CUDA_BLOCK = 256, GX_CUDA_MAX_WARPS = 32 };
enum { GX_CUDA_MAX_GRID_Y = 65535 };
// The number of blocks of a launch along x for this many jobs of one block each; kernels loop if there are more jobs.
// The emulator can be limited to few blocks, so that tests make kernels loop.
static inline unsigned gx_cuda_blocks(int64_t jobs)
{
#ifdef GX_EMU
    const int64_t most = emu::most_blocks();
#else
    const int64_t most = 0x7fffffff;
#endif
    return (unsigned)gx_min(jobs, most);
}
// The dynamic shared memory that a launch may use on every GPU without opting in: 48 KiB minus the kernel's static
// variables, which take 1 KiB before it because of its alignment.
enum { GX_CUDA_SHARED = 47 << 10 };

// Calls the template F<T>(...) for the type that `dtype` names: GX_CUDA_TYPES(dtype, launch_add, g, y, a, b, n);
#define GX_CUDA_TYPES(dtype, F, ...)                                                                                   \
    do {                                                                                                               \
        if ((dtype) == GX_BF16) F<__nv_bfloat16>(__VA_ARGS__);                                                         \
        else F<float>(__VA_ARGS__);                                                                                    \
    } while (0)

// ---- elements: computed in fp32, stored in T -----------------------------------------------------------------------
static __device__ __forceinline__ float gx_to_float(float x) { return x; }
static __device__ __forceinline__ float gx_to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T> static __device__ __forceinline__ T gx_from_float(float x);
template <> __device__ __forceinline__ float gx_from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ __nv_bfloat16 gx_from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <class T> static __device__ __forceinline__ float gx_round(float x)
{
    return gx_to_float(gx_from_float<T>(x));
}

// GxPack<T>: 16 bytes of T, loaded and stored in one access. p is aligned to 16 bytes.
template <class T> struct alignas(16) GxPack {
    enum { N = 16 / sizeof(T) };
    T x[N];
};
template <class T> static __device__ __forceinline__ GxPack<T> gx_load_pack(const T *p)
{
    return *reinterpret_cast<const GxPack<T> *>(p);
}
template <class T> static __device__ __forceinline__ void gx_store_pack(T *p, const GxPack<T> &v)
{
    *reinterpret_cast<GxPack<T> *>(p) = v;
}
static __host__ __device__ __forceinline__ bool gx_aligned(const void *p)
{
    return (reinterpret_cast<uintptr_t>(p) & 15) == 0;
}

// Loads N adjacent elements at p as floats: in packs if N is a multiple of a pack's elements (p must then be aligned),
// otherwise one by one.
template <int N, class T> static __device__ __forceinline__ void gx_load(float (&x)[N], const T *p)
{
    if constexpr (N % GxPack<T>::N == 0) {
        for (int i = 0; i < N; i += GxPack<T>::N) {
            const GxPack<T> pack = gx_load_pack(p + i);
            for (int j = 0; j < GxPack<T>::N; j++) x[i + j] = gx_to_float(pack.x[j]);
        }
    } else {
        for (int i = 0; i < N; i++) x[i] = gx_to_float(p[i]);
    }
}
template <int N, class T> static __device__ __forceinline__ void gx_store(T *p, const float (&x)[N])
{
    if constexpr (N % GxPack<T>::N == 0) {
        for (int i = 0; i < N; i += GxPack<T>::N) {
            GxPack<T> pack;
            for (int j = 0; j < GxPack<T>::N; j++) pack.x[j] = gx_from_float<T>(x[i + j]);
            gx_store_pack(p + i, pack);
        }
    } else {
        for (int i = 0; i < N; i++) p[i] = gx_from_float<T>(x[i]);
    }
}

// true: rows of C elements of T that begin at these pointers (NULL: not needed) can be read in packs.
template <class T, class... P> static bool gx_wide(int64_t C, P... p)
{
    return C % GxPack<T>::N == 0 && (gx_aligned(p) && ...);
}

// ---- sums and maxima over a warp and a block: every thread gets the result, taken in an order that does not change -
template <class V> static __device__ __forceinline__ V gx_warp_sum(V x) // float, double
{
    for (int lane = GX_WARP / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}
static __device__ __forceinline__ float gx_warp_max(float x)
{
    for (int lane = GX_WARP / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}

// All threads of the block must call it; the block must consist of whole warps. May be called repeatedly.
template <class V, class Combine> static __device__ __forceinline__ V gx_block_combine(V x, V empty, Combine of_warp)
{
    GX_SHARED(V, part, [GX_CUDA_MAX_WARPS]);
    const int lane = (int)threadIdx.x % GX_WARP, warp = (int)threadIdx.x / GX_WARP, warps = (int)blockDim.x / GX_WARP;
    x = of_warp(x);
    __syncthreads(); // all have read the previous call's result
    if (lane == 0) part[warp] = x;
    __syncthreads();
    return of_warp(lane < warps ? part[lane] : empty);
}
template <class V> static __device__ __forceinline__ V gx_block_sum(V x)
{
    return gx_block_combine(x, V(0), [](V v) { return gx_warp_sum(v); });
}
static __device__ __forceinline__ float gx_block_max(float x)
{
    return gx_block_combine(x, -INFINITY, [](float v) { return gx_warp_max(v); });
}

// The sum of the first `left` elements at x, at most MOST, or of their squares: 256 threads, each with 4 adjacent
// elements of every 1024. The order is the same if x is not aligned.
template <int MOST, int SQUARES> static __device__ __forceinline__ double gx_block_sum_of(const float *x, int64_t left)
{
    constexpr int N = GxPack<float>::N;
    const bool wide = gx_aligned(x);
    const int n = left < MOST ? (int)left : MOST;
    double s = 0;
    float v[N];
    for (int i = (int)threadIdx.x * N; i < n; i += GX_CUDA_BLOCK * N) {
        if (wide && i + N <= n) gx_load(v, x + i);
        else
            for (int j = 0; j < N; j++) v[j] = i + j < n ? x[i + j] : 0;
        for (int j = 0; j < N; j++) s += SQUARES ? (double)v[j] * (double)v[j] : (double)v[j];
    }
    return gx_block_sum(s);
}

// ---- what is computed element by element ---------------------------------------------------------------------------
// Such an operation is a struct of its arguments with `template <int N> __device__ void at(...)`, which computes N
// adjacent elements. Both kernels below give a thread one pack at a time, so that adjacent threads read adjacent 16
// bytes.

static inline int gx_cuda_threads(int64_t wanted, int64_t most)
{
    return (int)gx_min(most, gx_round_up(wanted, GX_WARP));
}

// Calls op.at<N>(i) for all i < n. Before that, all threads of a block call `begin`; false: there is nothing to do.
template <int N, class Op>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK) gx__cuda_each(const __grid_constant__ Op op, int64_t n)
{
    if (!op.begin()) return;
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, threads = (int64_t)gridDim.x * blockDim.x,
                  packs = n / N;
    for (int64_t i = thread; i < packs; i += threads) op.template at<N>(i * N);
    if (packs * N + thread < n)
        op.template at<1>(packs * N + thread); // fewer than N are left, and there are at least as many threads
}
struct GxEachOp {
    __device__ bool begin() const { return true; }
};
// wide: all pointers are aligned. Blocks: at most four times as many as are resident on the GPU at once (2048 threads
// per multiprocessor).
template <class T, class Op> static void gx_each(GxContext *g, const char *name, const Op &op, int64_t n, bool wide)
{
    const int64_t packs = wide ? gx_ceil_div(n, GxPack<T>::N) : n;
    const int threads = gx_cuda_threads(packs, GX_CUDA_BLOCK);
    const int blocks = (int)gx_min(gx_ceil_div(packs, threads), gx_cuda(g)->processors * 4LL * (2048 / GX_CUDA_BLOCK));
    if (wide) GX_LAUNCH((gx__cuda_each<GxPack<T>::N, Op>), blocks, threads, 0, gx_cuda(g)->stream, op, n);
    else GX_LAUNCH((gx__cuda_each<1, Op>), blocks, threads, 0, gx_cuda(g)->stream, op, n);
    gx_cuda_check(g, name);
}

// Calls op.at<N>(r, c) for all rows r < R and columns c < C; blocks: (rows, parts of a row). At least two blocks per
// multiprocessor are requested: without that bound the compiler spills registers to fit a sixth block.
template <int N, class Op>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK, 2) gx__cuda_each_row(Op op, int64_t R, int64_t C)
{
    const int64_t first = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N,
                  step = (int64_t)gridDim.y * blockDim.x * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x)
        for (int64_t c = first; c < C; c += step) op.template at<N>(r, c);
}
// wide: all rows can be read in packs, so C is a multiple of a pack
template <class T, class Op>
static void gx_each_row(GxContext *g, const char *name, const Op &op, int64_t R, int64_t C, bool wide)
{
    const int64_t packs = wide ? C / GxPack<T>::N : C;
    const int threads = gx_cuda_threads(packs, GX_CUDA_BLOCK);
    const dim3 blocks(gx_cuda_blocks(R), (unsigned)gx_min(gx_ceil_div(packs, threads), GX_CUDA_MAX_GRID_Y));
    if (wide) GX_LAUNCH((gx__cuda_each_row<GxPack<T>::N, Op>), blocks, threads, 0, gx_cuda(g)->stream, op, R, C);
    else GX_LAUNCH((gx__cuda_each_row<1, Op>), blocks, threads, 0, gx_cuda(g)->stream, op, R, C);
    gx_cuda_check(g, name);
}
#endif
