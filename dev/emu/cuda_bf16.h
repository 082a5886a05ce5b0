// cuda_bf16.h: __nv_bfloat16 and __nv_bfloat162, on host and device.
#ifndef GX_EMU_CUDA_BF16_H
#define GX_EMU_CUDA_BF16_H
#include "cuda_runtime.h"
#include "small_float.h"

namespace emu
{

inline unsigned short bf16_bits(float f)
{
    unsigned u = __builtin_bit_cast(unsigned, f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff; // the one NaN that CUDA gives
    return (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

} // namespace emu

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __nv_bfloat16 {
    using SmallFloatTag = void;
    unsigned short __x;
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw r) : __x(r.x) {}
    __nv_bfloat16(float f) : __x(emu::bf16_bits(f)) {}
    __nv_bfloat16(double d) : __nv_bfloat16(emu::round_to_odd(d)) {}
    template <std::integral I> __nv_bfloat16(I i) : __nv_bfloat16((float)i) {}
    operator float() const { return __builtin_bit_cast(float, (unsigned)__x << 16); }
    operator __nv_bfloat16_raw() const { return {__x}; }
};
struct __nv_bfloat162 : emu::Pair<__nv_bfloat16> {
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 x_, __nv_bfloat16 y_) { x = x_, y = y_; }
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16_rn(float f) { return f; }
inline __nv_bfloat16 __float2bfloat16(float f) { return f; }
inline __nv_bfloat16 __double2bfloat16(double d) { return d; }
inline __nv_bfloat16 __int2bfloat16_rn(int i) { return i; }
inline float __bfloat162float(__nv_bfloat16 b) { return b; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.__x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return __nv_bfloat16_raw{u}; }
inline __nv_bfloat16 __float2bfloat16_rz(float f)
{
    if (std::isnan(f)) return f;
    return __ushort_as_bfloat16((unsigned short)(__builtin_bit_cast(unsigned, f) >> 16));
}

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 b) { return {b, b}; }
inline __nv_bfloat162 __float2bfloat162_rn(float f) { return {f, f}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 f) { return {f.x, f.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 b) { return {b.x, b.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 b) { return b.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 b) { return b.y; }

inline __nv_bfloat16 atomicAdd(__nv_bfloat16 *p, __nv_bfloat16 v)
{
    return emu::atomic_update(p, [v](__nv_bfloat16 old) { return old + v; });
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162 *p, __nv_bfloat162 v)
{
    return emu::atomic_update(p, [v](__nv_bfloat162 old) { return old + v; });
}

#endif
