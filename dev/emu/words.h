// words.h: the words of CUDA device code: qualifiers, indices, barriers, shuffles, votes, loads and stores, bits,
// arithmetic.
//
// Atomics are in atomics.h. A word that is missing here fails to compile. `__shared__` is missing on purpose: shared
// memory is declared with GX_SHARED and GX_DYNAMIC_SHARED (shared.h).
#ifndef GX_EMU_WORDS_H
#define GX_EMU_WORDS_H
#include "banks.h"
#include <cmath>
#include <math.h>
#include <concepts>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (emu::self().index)
#define blockIdx  (emu::block.index)
#define blockDim  (emu::block.launch->threads)
#define gridDim   (emu::block.launch->grid)
constexpr int warpSize = emu::warp_lanes;

#define GX_EMU_HERE std::source_location where = std::source_location::current()

// ---- barriers and fences -------------------------------------------------------------------------------------------
inline void __syncthreads(GX_EMU_HERE) { emu::barrier_wait(0, 0, 0, {"__syncthreads", where}); }
inline int __syncthreads_count(int p, GX_EMU_HERE)
{
    return emu::barrier_wait(0, 0, p, {"__syncthreads_count", where});
}
inline int __syncthreads_or(int p, GX_EMU_HERE) { return emu::barrier_wait(0, 0, p, {"__syncthreads_or", where}) != 0; }
inline int __syncthreads_and(int p, GX_EMU_HERE)
{
    return emu::barrier_wait(0, 0, !p, {"__syncthreads_and", where}) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, GX_EMU_HERE)
{
    emu::warp_collective<char>(
        mask, {"__syncwarp", where}, '\0', [](unsigned, auto, auto) {}, true);
}
namespace emu
{
inline void visibility_fence(); // visibility.h
inline void visibility_release_to_block();
inline void visibility_before_atomic(void *at, size_t bytes);
inline void visibility_after_atomic(const void *at, size_t bytes);
} // namespace emu
inline void __threadfence() { emu::visibility_fence(); }
inline void __threadfence_block() { emu::visibility_release_to_block(); }
inline void __threadfence_system() { emu::visibility_fence(); }
inline void __nanosleep(unsigned, GX_EMU_HERE) { emu::yield("__nanosleep", where); }
[[noreturn]] inline void __trap() { emu::kernel_fails("__trap()"); }

// ---- shuffles ------------------------------------------------------------------------------------------------------
namespace emu
{

template <class T>
concept Shuffled = std::is_trivially_copyable_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2);

// `source`: the lane that this one reads. A lane that the mask does not name gives the NaN pattern.
template <Shuffled T> T shuffle(unsigned mask, T value, int source, Place place)
{
    struct In {
        T value;
        int source;
    };
    return warp_collective<T>(mask, place, In{value, source}, [](unsigned lanes, Lanes<In> in, Lanes<T> out) {
        for (int lane = 0; lane < warp_lanes; lane++) {
            if (!(lanes >> lane & 1)) continue;
            int from = in[lane].source;
            if (lanes >> from & 1) out[lane] = in[from].value;
            else memset((void *)&out[lane], 0xff, sizeof(T));
        }
    });
}

inline int lane_of(int width, int base_lane, int offset) { return (base_lane & ~(width - 1)) + (offset & (width - 1)); }

inline void check_width(int width, const Place &place)
{
    if (width < 1 || width > warp_lanes || (width & (width - 1)))
        kernel_fails("%s: the width is %d", text(place).c_str(), width);
}

} // namespace emu

template <emu::Shuffled T> T __shfl_sync(unsigned mask, T v, int source, int width = 32, GX_EMU_HERE)
{
    emu::Place place = {"__shfl_sync", where};
    emu::check_width(width, place);
    return emu::shuffle(mask, v, emu::lane_of(width, emu::self().lane, source), place);
}
template <emu::Shuffled T> T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, GX_EMU_HERE)
{
    emu::Place place = {"__shfl_up_sync", where};
    emu::check_width(width, place);
    int lane = emu::self().lane, inside = lane & (width - 1), down = (int)(delta & 31);
    return emu::shuffle(mask, v, inside >= down ? lane - down : lane, place);
}
template <emu::Shuffled T> T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, GX_EMU_HERE)
{
    emu::Place place = {"__shfl_down_sync", where};
    emu::check_width(width, place);
    int lane = emu::self().lane, inside = lane & (width - 1), up = (int)(delta & 31);
    return emu::shuffle(mask, v, inside + up < width ? lane + up : lane, place);
}
template <emu::Shuffled T> T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, GX_EMU_HERE)
{
    emu::Place place = {"__shfl_xor_sync", where};
    emu::check_width(width, place);
    int lane = emu::self().lane, source = lane ^ (bits & 31);
    bool beyond = source > (lane | (width - 1)); // lower segments may be read (PTX ISA, shfl.sync.bfly)
    return emu::shuffle(mask, v, beyond ? lane : source, place);
}

// ---- votes ---------------------------------------------------------------------------------------------------------
namespace emu
{

template <class T, class Op> T warp_reduce(unsigned mask, T value, Place place, Op op)
{
    return warp_collective<T>(mask, place, value, [op](unsigned lanes, Lanes<T> in, Lanes<T> out) {
        int first = __builtin_ctz(lanes);
        T all = in[first];
        for (int lane = first + 1; lane < warp_lanes; lane++)
            if (lanes >> lane & 1) all = op(all, in[lane]);
        for (int lane = first; lane < warp_lanes; lane++)
            if (lanes >> lane & 1) out[lane] = all;
    });
}

inline unsigned ballot(unsigned mask, int predicate, Place place)
{
    unsigned mine = (unsigned)(predicate != 0) << self().lane;
    return warp_reduce(mask, mine, place, [](unsigned a, unsigned b) { return a | b; });
}

} // namespace emu

inline unsigned __ballot_sync(unsigned mask, int p, GX_EMU_HERE)
{
    return emu::ballot(mask, p, {"__ballot_sync", where});
}
inline int __any_sync(unsigned mask, int p, GX_EMU_HERE) { return emu::ballot(mask, p, {"__any_sync", where}) != 0; }
inline int __all_sync(unsigned mask, int p, GX_EMU_HERE) { return emu::ballot(mask, !p, {"__all_sync", where}) == 0; }

template <emu::Shuffled T> unsigned __match_any_sync(unsigned mask, T v, GX_EMU_HERE)
{
    return emu::warp_collective<unsigned>(mask, {"__match_any_sync", where}, v, [](unsigned lanes, auto in, auto out) {
        for (int lane = 0; lane < emu::warp_lanes; lane++) {
            if (!(lanes >> lane & 1)) continue;
            out[lane] = 0;
            for (int other = 0; other < emu::warp_lanes; other++)
                if ((lanes >> other & 1) && in[other] == in[lane]) out[lane] |= 1u << other;
        }
    });
}

#define GX_EMU_REDUCE(name, type, expression)                                                                          \
    inline type name(unsigned mask, type v, GX_EMU_HERE)                                                               \
    {                                                                                                                  \
        return emu::warp_reduce(mask, v, {#name, where}, [](type a, type b) { return expression; });                   \
    }
GX_EMU_REDUCE(__reduce_add_sync, unsigned, a + b)
GX_EMU_REDUCE(__reduce_add_sync, int, (int)((unsigned)a + (unsigned)b))
GX_EMU_REDUCE(__reduce_min_sync, unsigned, std::min(a, b))
GX_EMU_REDUCE(__reduce_min_sync, int, std::min(a, b))
GX_EMU_REDUCE(__reduce_max_sync, unsigned, std::max(a, b))
GX_EMU_REDUCE(__reduce_max_sync, int, std::max(a, b))
GX_EMU_REDUCE(__reduce_and_sync, unsigned, a &b)
GX_EMU_REDUCE(__reduce_or_sync, unsigned, a | b)
GX_EMU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef GX_EMU_REDUCE

// ---- loads and stores with a cache hint ----------------------------------------------------------------------------
namespace emu
{

template <class T> void check_alignment(const T *p, const char *what)
{
    if ((uintptr_t)p % std::min<size_t>(sizeof(T), 16))
        kernel_fails("%s of %zu bytes at %p: misaligned", what, sizeof(T), (const void *)p);
}

} // namespace emu

#define GX_EMU_LOAD(name)                                                                                              \
    template <class T> T name(const T *p)                                                                              \
    {                                                                                                                  \
        emu::check_alignment(p, #name);                                                                                \
        return *p;                                                                                                     \
    }
#define GX_EMU_STORE(name)                                                                                             \
    template <class T> void name(T *p, std::type_identity_t<T> v)                                                      \
    {                                                                                                                  \
        emu::check_alignment(p, #name);                                                                                \
        *p = v;                                                                                                        \
    }
GX_EMU_LOAD(__ldg)
GX_EMU_LOAD(__ldca)
GX_EMU_LOAD(__ldcg)
GX_EMU_LOAD(__ldcs)
GX_EMU_LOAD(__ldcv)
GX_EMU_LOAD(__ldlu)
GX_EMU_STORE(__stcg)
GX_EMU_STORE(__stcs)
GX_EMU_STORE(__stwb)
GX_EMU_STORE(__stwt)
#undef GX_EMU_LOAD
#undef GX_EMU_STORE

inline size_t __cvta_generic_to_shared(const void *p) { return emu::shared_address(p); }

// ---- bits ----------------------------------------------------------------------------------------------------------
inline float __uint_as_float(unsigned u) { return __builtin_bit_cast(float, u); }
inline float __int_as_float(int i) { return __builtin_bit_cast(float, i); }
inline unsigned __float_as_uint(float f) { return __builtin_bit_cast(unsigned, f); }
inline int __float_as_int(float f) { return __builtin_bit_cast(int, f); }
inline double __longlong_as_double(long long i) { return __builtin_bit_cast(double, i); }
inline long long __double_as_longlong(double d) { return __builtin_bit_cast(long long, d); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector)
{
    unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{
    return (unsigned)(((unsigned long long)high << 32 | low) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
    return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}

// ---- arithmetic: the approximate words of the card are the exact ones here -----------------------------------------
// glibc declares __expf and others for itself; macros go round that.
#define __expf      expf
#define __exp10f(x) exp10f(x)
#define __logf      logf
#define __log2f     log2f
#define __sinf      sinf
#define __cosf      cosf
#define __powf      powf
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
// volatile: the compiler may not contract a product and a sum, nor drop a rounding
inline float __fadd_rn(float a, float b)
{
    volatile float r = a + b;
    return r;
}
inline float __fsub_rn(float a, float b)
{
    volatile float r = a - b;
    return r;
}
inline float __fmul_rn(float a, float b)
{
    volatile float r = a * b;
    return r;
}
inline float __fdiv_rn(float a, float b)
{
    volatile float r = a / b;
    return r;
}
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __float2int_rn(float x) { return (int)lrintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline unsigned __float2uint_rn(float x) { return (unsigned)llrintf(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __double2float_rn(double x) { return (float)x; }

// CUDA's min and max: of a NaN and a number, the number
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
template <std::integral A, std::integral B>
requires(sizeof(A) == sizeof(B)) constexpr std::common_type_t<A, B> max(A a, B b)
{
    using C = std::common_type_t<A, B>;
    return (C)a < (C)b ? (C)b : (C)a;
}
template <std::integral A, std::integral B>
requires(sizeof(A) == sizeof(B)) constexpr std::common_type_t<A, B> min(A a, B b)
{
    using C = std::common_type_t<A, B>;
    return (C)b < (C)a ? (C)b : (C)a;
}

#endif
