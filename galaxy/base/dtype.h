// dtype.h: the element types that buffers and files can have, and their sizes. Which of them an operation computes in
// is the device's word.
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
// bf16 (the upper half of an fp32), by its bits; to nearest, ties to even, NaN stays NaN.
static inline float gx_from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}
static inline uint16_t gx_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    // A NaN's payload may lie in what is cut off
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (uint16_t)((x == x ? rounded : quiet) >> 16);
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
