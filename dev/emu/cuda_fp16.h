// cuda_fp16.h: __half and __half2, on host and device.
#ifndef GX_EMU_CUDA_FP16_H
#define GX_EMU_CUDA_FP16_H
#include "cuda_runtime.h"
#include "small_float.h"

namespace emu
{

inline unsigned short fp16_bits(float f)
{
    unsigned u = __builtin_bit_cast(unsigned, f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7fff;                            // the one NaN that CUDA gives
    if (a >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u); // from 65520 on: infinity
    if (a < 0x38800000u) { // below 2^-14: the last bit of 0.5f + x is 2^-24, as that of a denormal half
        float shifted = __builtin_bit_cast(float, a) + 0.5f;
        return (unsigned short)(sign | (__builtin_bit_cast(unsigned, shifted) - 0x3f000000u));
    }
    a += 0xfffu + (a >> 13 & 1);
    return (unsigned short)(sign | ((a - (112u << 23)) >> 13)); // the exponents' biases are 127 and 15
}

inline float fp16_value(unsigned short h)
{
    unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ffu;
    if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
}

} // namespace emu

struct __half_raw {
    unsigned short x;
};
struct __half {
    using SmallFloatTag = void;
    unsigned short __x;
    __half() = default;
    __half(__half_raw r) : __x(r.x) {}
    __half(float f) : __x(emu::fp16_bits(f)) {}
    __half(double d) : __half(emu::round_to_odd(d)) {}
    template <std::integral I> __half(I i) : __half((float)i) {}
    operator float() const { return emu::fp16_value(__x); }
    operator __half_raw() const { return {__x}; }
};
struct __half2 : emu::Pair<__half> {
    __half2() = default;
    __half2(__half x_, __half y_) { x = x_, y = y_; }
};
typedef __half half;
typedef __half2 half2;

inline __half __float2half_rn(float f) { return f; }
inline __half __float2half(float f) { return f; }
inline __half __double2half(double d) { return d; }
inline __half __int2half_rn(int i) { return i; }
inline float __half2float(__half h) { return h; }
inline unsigned short __half_as_ushort(__half h) { return h.__x; }
inline __half __ushort_as_half(unsigned short u) { return __half_raw{u}; }

inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half h) { return {h, h}; }
inline __half2 __float2half2_rn(float f) { return {f, f}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 f) { return {f.x, f.y}; }
inline float2 __half22float2(__half2 h) { return {h.x, h.y}; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }

inline __half atomicAdd(__half *p, __half v)
{
    return emu::atomic_update(p, [v](__half old) { return old + v; });
}
inline __half2 atomicAdd(__half2 *p, __half2 v)
{
    return emu::atomic_update(p, [v](__half2 old) { return old + v; });
}

#endif
