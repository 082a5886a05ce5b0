// vec.h: building blocks of loops that compilers vectorize: elements of either type, and exp, tanh and the normal
// distribution without calls to libm.
//
// A loop is written once, in a GX_CPU_INLINE function whose last argument is the type of activations. GX_CPU_TYPES
// calls it with that type as a constant, so that each type gets its own loop without a branch in it:
//     static GX_CPU_INLINE void gx__cpu_twice(void *y, const void *x, int64_t n, GxDtype dtype)
//     {
//         GX_OMP(simd)
//         for (int64_t i = 0; i < n; i++) gx_cpu_store(y, i, 2 * gx_cpu_load(x, i, dtype), dtype);
//     }
//     GX_CPU_TYPES(dtype, gx__cpu_twice, y, x, n);
#ifndef GX_CPU_VEC_H
#define GX_CPU_VEC_H
#include "../base/dtype.h"
#include <string.h>

#if defined(__GNUC__)
#define GX_CPU_INLINE inline __attribute__((always_inline))
#else
#define GX_CPU_INLINE inline
#endif

#define GX_CPU_TYPES(dtype, F, ...)                                                                                    \
    do {                                                                                                               \
        if ((dtype) == GX_BF16) F(__VA_ARGS__, GX_BF16);                                                               \
        else F(__VA_ARGS__, GX_F32);                                                                                   \
    } while (0)

// Element i of x: fp32 in registers, `dtype` (fp32 or bf16) in memory.
static GX_CPU_INLINE float gx_cpu_load(const void *x, int64_t i, GxDtype dtype)
{
    return dtype == GX_BF16 ? gx_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}
static GX_CPU_INLINE void gx_cpu_store(void *x, int64_t i, float value, GxDtype dtype)
{
    if (dtype == GX_BF16) ((uint16_t *)x)[i] = gx_to_bf16(value);
    else ((float *)x)[i] = value;
}

// The address of element i of x; NULL stays NULL.
static inline void *gx_cpu_at(void *x, int64_t i, GxDtype dtype)
{
    return x ? (char *)x + i * gx_dtype_size(dtype) : NULL;
}
static inline const void *gx_cpu_from(const void *x, int64_t i, GxDtype dtype)
{
    return x ? (const char *)x + i * gx_dtype_size(dtype) : NULL;
}

// exp(x) to about 1.5 ulp; 0 below -87, saturated above 88.3 (2.2e38, so that 1/(1 + exp) stays exact); NaN stays NaN.
// x = n*ln2 + r with |r| <= ln2/2; exp(r) by its Taylor polynomial of degree 7 (next term below 5.2e-9); times 2^n,
// made from its bits. Numbers outside the range are replaced with masks: from branches compilers make several cases,
// and vector code with a mask for each, which takes 1.5 times as long.
static inline float gx_cpu_exp(float x)
{
    const uint32_t above = -(uint32_t)(x > 88.3f), below = -(uint32_t)(x < -87.0f);
    const float z = gx_float_of_bits((gx_float_bits(x) & ~above) | (gx_float_bits(88.3f) & above));
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to the nearest integer, in the lowest bits
    const float shifted = z * 1.44269504f + magic, n = shifted - magic;
    const float r = (z - n * 0.693359375f) - n * -2.12194440e-4f; // ln2 in two parts, the first exact in 9 bits
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const float y = p * gx_float_of_bits((gx_float_bits(shifted) + 127) << 23);
    return gx_float_of_bits(gx_float_bits(y) & ~below);
}

// tanh(x) to about 2 ulp; NaN stays NaN. Near 0 an odd polynomial (fitted on [0, 0.625], relative error below 5e-9),
// otherwise 1 - 2/(exp(2|x|) + 1) with the sign of x.
static inline float gx_cpu_tanh(float x)
{
    const float a = x < 0 ? -x : x, s = x * x;
    float p = -0.0057049883f;
    p = p * s + 0.020639088f;
    p = p * s - 0.053739715f;
    p = p * s + 0.13331442f;
    p = p * s - 0.33333281f;
    const float large = 1.0f - 2.0f / (gx_cpu_exp(2 * a) + 1.0f);
    return a < 0.625f ? x + x * s * p : x < 0 ? -large : large;
}

// The standard normal distribution of z, and its density. The lower tail is exp(-z^2/2) times a polynomial of
// 1/(1 + 0.265*|z|) (fitted on [0, 14], relative error below 1.2e-8), so that it does not cancel far from 0.
typedef struct {
    float below, density; // P(N <= z), exp(-z^2/2)/sqrt(2*pi)
} GxCpuNormal;
static GX_CPU_INLINE GxCpuNormal gx_cpu_normal(float z)
{
    const float a = z < 0 ? -z : z, t = 1.0f / (1.0f + 0.265f * a), e = gx_cpu_exp(-0.5f * z * z);
    float p = 0.030820787f;
    p = p * t - 0.14422829f;
    p = p * t + 0.21781431f;
    p = p * t - 0.11636192f;
    p = p * t + 0.13795266f;
    p = p * t + 0.060313281f;
    p = p * t + 0.10270094f;
    p = p * t + 0.10524667f;
    p = p * t + 0.10574156f;
    const float tail = p * t * e;
    GxCpuNormal n;
    n.below = z > 0 ? 1.0f - tail : tail;
    n.density = e * 0.39894228f;
    return n;
}
#endif
