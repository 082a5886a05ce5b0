// small_float.h: what __nv_bfloat16 and __half have in common: arithmetic in fp32, rounded to nearest even after every
// operation, and the words __hadd ... on one and on two of them. Usable on the host.
#ifndef GX_EMU_SMALL_FLOAT_H
#define GX_EMU_SMALL_FLOAT_H
#include <cmath>
#include <concepts>
#include <type_traits>

namespace emu
{

// 10 bits of fraction, ties away from zero, as cvt.rna.tf32.f32
inline float round_to_tf32(float x)
{
    if (!std::isfinite(x)) return x;
    return __builtin_bit_cast(float, (__builtin_bit_cast(unsigned, x) + 0x1000u) & ~0x1fffu);
}

// Two numbers in one word, the way CUDA's *2 types have them: x at the lower address.
template <class T> struct alignas(4) Pair {
    T x, y;
    using Element = T;
};
template <class T>
concept SmallFloat = requires
{
    typename T::SmallFloatTag;
};
template <class P>
concept SmallFloatPair = requires
{
    typename P::Element;
}
&&SmallFloat<typename P::Element>;

// To fp32 so that a second rounding gives what one alone would: towards zero, with the last bit set where something was
// lost (Boldo & Melquiond 2008, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
// odd").
inline float round_to_odd(double d)
{
    float f = (float)d;
    if ((double)f == d || !std::isfinite(f)) return f;
    unsigned bits = __builtin_bit_cast(unsigned, f);
    if (fabs((double)f) > fabs(d)) bits--;
    return __builtin_bit_cast(float, bits | 1);
}

} // namespace emu

#define GX_EMU_ARITHMETIC(op, word, word2)                                                                             \
    template <emu::SmallFloat T> T operator op(T a, T b) { return T((float)a op(float) b); }                           \
    template <emu::SmallFloat T> T &operator op##=(T &a, T b) { return a = a op b; }                                   \
    template <emu::SmallFloat T> T word(T a, T b) { return a op b; }                                                   \
    template <emu::SmallFloatPair P> P word2(P a, P b) { return P(a.x op b.x, a.y op b.y); }                           \
    template <emu::SmallFloatPair P> P operator op(P a, P b) { return word2(a, b); }
GX_EMU_ARITHMETIC(+, __hadd, __hadd2)
GX_EMU_ARITHMETIC(-, __hsub, __hsub2)
GX_EMU_ARITHMETIC(*, __hmul, __hmul2)
GX_EMU_ARITHMETIC(/, __hdiv, __h2div)
#undef GX_EMU_ARITHMETIC

#define GX_EMU_COMPARISON(op, word)                                                                                    \
    template <emu::SmallFloat T> bool operator op(T a, T b) { return (float)a op(float) b; }                           \
    template <emu::SmallFloat T> bool word(T a, T b) { return a op b; }
GX_EMU_COMPARISON(==, __heq)
GX_EMU_COMPARISON(!=, __hne)
GX_EMU_COMPARISON(<, __hlt)
GX_EMU_COMPARISON(<=, __hle)
GX_EMU_COMPARISON(>, __hgt)
GX_EMU_COMPARISON(>=, __hge)
#undef GX_EMU_COMPARISON

template <emu::SmallFloat T> T operator-(T a) { return T(-(float)a); }
template <emu::SmallFloat T> T __hneg(T a) { return -a; }
template <emu::SmallFloat T> T __habs(T a) { return T(fabsf((float)a)); }
template <emu::SmallFloat T> T __hmax(T a, T b) { return T(fmaxf((float)a, (float)b)); }
template <emu::SmallFloat T> T __hmin(T a, T b) { return T(fminf((float)a, (float)b)); }
template <emu::SmallFloat T> T __hfma(T a, T b, T c)
{
    return T((double)(float)a * (double)(float)b + (double)(float)c);
}
template <emu::SmallFloat T> bool __hisnan(T a) { return std::isnan((float)a); }
template <emu::SmallFloat T> int __hisinf(T a) { return std::isinf((float)a) ? ((float)a > 0 ? 1 : -1) : 0; }
template <emu::SmallFloatPair P> P __hfma2(P a, P b, P c) { return P(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }
template <emu::SmallFloatPair P> P __hmax2(P a, P b) { return P(__hmax(a.x, b.x), __hmax(a.y, b.y)); }
template <emu::SmallFloatPair P> P __hmin2(P a, P b) { return P(__hmin(a.x, b.x), __hmin(a.y, b.y)); }
template <emu::SmallFloatPair P> P __hneg2(P a) { return P(-a.x, -a.y); }
template <emu::SmallFloatPair P> float __low2float(P a) { return (float)a.x; }
template <emu::SmallFloatPair P> float __high2float(P a) { return (float)a.y; }

#endif
