// base/dtype.h: the element types of buffers and files, and their sizes. A device decides which of them its operations
// support.
#ifndef GX_DTYPE_H
#define GX_DTYPE_H
#include "common.h"
#include <string.h>
GX_BEGIN

typedef enum { GX_F32 = 0, GX_BF16, GX_F16, GX_F64, GX_I8, GX_I32, GX_I64, GX_U8, GX_DTYPES } GxDtype;

static inline int64_t gx_dtype_size(GxDtype d)
{
    switch (d) {
    case GX_I8:
    case GX_U8: return 1;
    case GX_BF16:
    case GX_F16: return 2;
    case GX_F32:
    case GX_I32: return 4;
    case GX_F64:
    case GX_I64: return 8;
    default: return 0;
    }
}
// An fp32's bits, and back.
static inline uint32_t gx_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float gx_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
// bf16 (the upper half of an fp32) as its bits. Rounded to nearest, ties to even; NaN stays NaN.
static inline float gx_from_bf16(uint16_t bits) { return gx_float_of_bits((uint32_t)bits << 16); }
static inline uint16_t gx_to_bf16(float x)
{
    const uint32_t bits = gx_float_bits(x);
    // The payload of a NaN may lie entirely in the bits that are cut off, so the NaN is made quiet
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (uint16_t)((x == x ? rounded : quiet) >> 16);
}
// fp16 (IEEE binary16) as its bits. Rounded to nearest, ties to even; values that are too large become infinite, as in
// hardware.
static inline float gx_from_f16(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const float tiny = (float)mantissa * (1.0f / 16777216.0f); // subnormal: units of 2^-24
    uint32_t wide = sign | (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 0) wide = sign | gx_float_bits(tiny);
    if (exponent == 31) wide = sign | 0x7F800000 | mantissa << 13;
    return gx_float_of_bits(wide);
}
static inline uint16_t gx_to_f16(float x)
{
    const uint32_t bits = gx_float_bits(x), sign = bits >> 16 & 0x8000, a = bits & 0x7FFFFFFF;
    if (a > 0x7F800000) return (uint16_t)(sign | 0x7E00);  // NaN
    if (a >= 0x47800000) return (uint16_t)(sign | 0x7C00); // 2^16 and more
    if (a >= 0x38800000) return (uint16_t)(sign | (a - 0x38000000 + 0xFFF + (a >> 13 & 1)) >> 13);
    // Below 2^-14: floats in [0.5, 1) are spaced 2^-24 apart, like fp16's subnormals, so adding 0.5 rounds to them.
    return (uint16_t)(sign | (gx_float_bits(gx_float_of_bits(a) + 0.5f) - 0x3F000000));
}

const char *gx_dtype_name(GxDtype d);     // as safetensors spells it: "F32"
int gx_dtype_from_name(const char *name); // a GxDtype, or -1

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DTYPE_IMPLEMENTED)
#define GX_DTYPE_IMPLEMENTED

static const char *const gx__dtype_names[GX_DTYPES] = {"F32", "BF16", "F16", "F64", "I8", "I32", "I64", "U8"};

const char *gx_dtype_name(GxDtype d) { return (unsigned)d < GX_DTYPES ? gx__dtype_names[d] : "?"; }

int gx_dtype_from_name(const char *name)
{
    for (int i = 0; i < GX_DTYPES; i++)
        if (!strcmp(name, gx__dtype_names[i])) return i;
    return -1;
}
#endif
