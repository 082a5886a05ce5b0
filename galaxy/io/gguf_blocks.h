// gguf_blocks.h: the element types of GGUF files: their names and sizes, and conversions to floats and, for some, from
// floats. A block holds 32 or 256 neighbours of a row, which share scales.
//
//     type   bytes of a block     a value
//     F32, F16, BF16              itself
//     Q8_0   34 of 32             d q                 d: fp16; q: 8 bits with sign
//     Q4_0   18 of 32             d (q - 8)           q: 4 bits, first the low halves of 16 bytes, then the high ones
//     Q4_1   20 of 32             d q + m
//     Q4_K   144 of 256           (d s) q - (e m)     s, m: 6 bits, of each 32 values
//     Q6_K   210 of 256           (d s) (q - 32)      q: 6 bits; s: 8 bits with sign, of each 16 values
//
// Products and sums are fp32, in the order of the brackets, which gives the same bits as the package `gguf` and
// llama.cpp. Floats can be converted to F32, F16, BF16 and Q8_0, rounded to nearest: ties to even for F16 and BF16,
// away from zero for Q8_0's q, whose d = max|x| / 127 is fp32 and rounded to fp16 only when it is stored. Values that
// would become infinite are refused, and so is a NaN in a block, which would spoil its neighbours.
//
//     float x[256];
//     GX_TRY(gx_gguf_decode(GX_GGUF_Q4_K, block, 1, x, err));
//
// Little-endian hosts only.
#ifndef GX_GGUF_BLOCKS_H
#define GX_GGUF_BLOCKS_H
#include "../base/dtype.h"
#include "../base/status.h"
GX_BEGIN

enum { // the types that can be decoded here
    GX_GGUF_F32 = 0,
    GX_GGUF_F16 = 1,
    GX_GGUF_Q4_0 = 2,
    GX_GGUF_Q4_1 = 3,
    GX_GGUF_Q8_0 = 8,
    GX_GGUF_Q4_K = 12,
    GX_GGUF_Q6_K = 14,
    GX_GGUF_BF16 = 30,
    GX_GGUF_BLOCK_MOST = 256 // elements of the largest block
};
typedef struct {
    int type; // its number in files
    const char *name;
    int elements, bytes; // of a block; elements 1: no blocks
} GxGgufType;

const GxGgufType *gx_gguf_type(int64_t type); // NULL: unknown
int gx_gguf_decodes(int type);                // 1: gx_gguf_decode supports it
int gx_gguf_encodes(int type);                // 1: gx_gguf_encode does

// Convert blocks to floats and back; x[blocks * elements]. `data` has blocks * bytes bytes, and need not be aligned.
GxStatus gx_gguf_decode(int type, const void *data, int64_t blocks, float *x, GxError *err);
GxStatus gx_gguf_encode(int type, const float *x, int64_t blocks, void *data, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_BLOCKS_IMPLEMENTED)
#define GX_GGUF_BLOCKS_IMPLEMENTED
#include <math.h>
#include <string.h>
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "galaxy/io/gguf_blocks.h works on little-endian machines only"
#endif

static const GxGgufType gx__gguf_types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},
};

const GxGgufType *gx_gguf_type(int64_t type)
{
    for (size_t i = 0; i < sizeof gx__gguf_types / sizeof *gx__gguf_types; i++)
        if (gx__gguf_types[i].type == type) return &gx__gguf_types[i];
    return NULL;
}

static uint16_t gx__gguf_u16(const unsigned char *p)
{
    uint16_t bits;
    memcpy(&bits, p, 2);
    return bits;
}
static float gx__gguf_f16(const unsigned char *p) { return gx_from_f16(gx__gguf_u16(p)); }

// ---- to floats -----------------------------------------------------------------------------------------------------

static void gx__gguf_from_f32(const unsigned char *b, float *y) { memcpy(y, b, 4); }
static void gx__gguf_from_f16(const unsigned char *b, float *y) { *y = gx__gguf_f16(b); }
static void gx__gguf_from_bf16(const unsigned char *b, float *y) { *y = gx_from_bf16(gx__gguf_u16(b)); }
// d | q[32]
static void gx__gguf_from_q8_0(const unsigned char *b, float *y)
{
    const float d = gx__gguf_f16(b);
    for (int j = 0; j < 32; j++) y[j] = d * (float)(signed char)b[2 + j];
}

// d | 16 bytes
static void gx__gguf_from_q4_0(const unsigned char *b, float *y)
{
    const float d = gx__gguf_f16(b);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)((b[2 + j] & 15) - 8);
        y[j + 16] = d * (float)((b[2 + j] >> 4) - 8);
    }
}

// d | m | 16 bytes
static void gx__gguf_from_q4_1(const unsigned char *b, float *y)
{
    const float d = gx__gguf_f16(b), m = gx__gguf_f16(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)(b[4 + j] & 15) + m;
        y[j + 16] = d * (float)(b[4 + j] >> 4) + m;
    }
}

// d | e | 12 bytes of scales and minima, 6 bits each | 128 bytes: of each 32 the low halves, then the high ones
static void gx__gguf_from_q4_k(const unsigned char *b, float *y)
{
    const float d = gx__gguf_f16(b), e = gx__gguf_f16(b + 2);
    const unsigned char *s = b + 4, *q = b + 16;
    for (int k = 0; k < 8; k++) {
        const int scale = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | s[k - 4] >> 6 << 4,
                  minimum = k < 4 ? s[k + 4] & 63 : s[k + 4] >> 4 | s[k] >> 6 << 4;
        const float ds = d * (float)scale, em = e * (float)minimum;
        for (int l = 0; l < 32; l++) {
            const int both = q[32 * (k / 2) + l];
            y[32 * k + l] = ds * (float)(k % 2 ? both >> 4 : both & 15) - em;
        }
    }
}

// low 4 bits: 128 bytes | high 2 bits: 64 | scales: 16 | d
static void gx__gguf_from_q6_k(const unsigned char *b, float *y)
{
    const float d = gx__gguf_f16(b + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, g = i % 128 / 32, l = i % 32, both = b[64 * half + 32 * (g & 1) + l];
        const int low = g < 2 ? both & 15 : both >> 4, high = b[128 + 32 * half + l] >> 2 * g & 3;
        y[i] = d * (float)(signed char)b[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

// ---- from floats ---------------------------------------------------------------------------------------------------

static GxStatus gx__gguf_infinite(float x, const char *type, GxError *err)
{
    return GX_FAIL(err, GX_ERR_FORMAT, "a value is %g, which %s cannot represent; choose bf16 or f32, which can",
                   (double)x, type);
}

static GxStatus gx__gguf_to_f32(const float *x, unsigned char *b, GxError *err)
{
    (void)err;
    memcpy(b, x, 4);
    return GX_OK;
}
static GxStatus gx__gguf_to_bf16(const float *x, unsigned char *b, GxError *err)
{
    const uint16_t bits = gx_to_bf16(*x);
    memcpy(b, &bits, 2);
    return isfinite(*x) && !isfinite(gx_from_bf16(bits)) ? gx__gguf_infinite(*x, "BF16", err) : GX_OK;
}
static GxStatus gx__gguf_to_f16(const float *x, unsigned char *b, GxError *err)
{
    const uint16_t bits = gx_to_f16(*x);
    memcpy(b, &bits, 2);
    return isfinite(*x) && !isfinite(gx_from_f16(bits)) ? gx__gguf_infinite(*x, "F16", err) : GX_OK;
}

static GxStatus gx__gguf_to_q8_0(const float *x, unsigned char *b, GxError *err)
{
    float most = 0;
    for (int j = 0; j < 32; j++) {
        if (!isfinite(x[j])) return gx__gguf_infinite(x[j], "Q8_0", err);
        most = fmaxf(most, fabsf(x[j]));
    }
    const float d = most / 127, inverse = d > 0 ? 1 / d : 0;
    const uint16_t bits = gx_to_f16(d);
    if (!isfinite(gx_from_f16(bits))) return gx__gguf_infinite(most, "Q8_0", err);
    memcpy(b, &bits, 2);
    for (int j = 0; j < 32; j++) // if 1/d is infinite, d is stored as 0
        b[2 + j] = (unsigned char)(signed char)(isfinite(inverse) ? roundf(x[j] * inverse) : 0);
    return GX_OK;
}

// ---- the table -----------------------------------------------------------------------------------------------------

typedef struct {
    int type;
    void (*decode)(const unsigned char *block, float *y);
    GxStatus (*encode)(const float *x, unsigned char *block, GxError *err);
} gx__GgufCode;
static const gx__GgufCode gx__gguf_codes[] = {
    {GX_GGUF_F32, gx__gguf_from_f32, gx__gguf_to_f32},
    {GX_GGUF_F16, gx__gguf_from_f16, gx__gguf_to_f16},
    {GX_GGUF_BF16, gx__gguf_from_bf16, gx__gguf_to_bf16},
    {GX_GGUF_Q8_0, gx__gguf_from_q8_0, gx__gguf_to_q8_0},
    {GX_GGUF_Q4_0, gx__gguf_from_q4_0, NULL},
    {GX_GGUF_Q4_1, gx__gguf_from_q4_1, NULL},
    {GX_GGUF_Q4_K, gx__gguf_from_q4_k, NULL},
    {GX_GGUF_Q6_K, gx__gguf_from_q6_k, NULL},
};

static const gx__GgufCode *gx__gguf_code(int type)
{
    for (size_t i = 0; i < sizeof gx__gguf_codes / sizeof *gx__gguf_codes; i++)
        if (gx__gguf_codes[i].type == type) return &gx__gguf_codes[i];
    return NULL;
}

int gx_gguf_decodes(int type) { return gx__gguf_code(type) != NULL; }
int gx_gguf_encodes(int type) { return gx__gguf_code(type) && gx__gguf_code(type)->encode; }

static GxStatus gx__gguf_no_code(int type, const char *what, const char *built, GxError *err)
{
    const GxGgufType *t = gx_gguf_type(type);
    char number[32];
    snprintf(number, sizeof number, "type %d", type);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s is not %s; supported: %s", t ? t->name : number, what, built);
}

GxStatus gx_gguf_decode(int type, const void *data, int64_t blocks, float *x, GxError *err)
{
    const gx__GgufCode *code = gx__gguf_code(type);
    const GxGgufType *t = gx_gguf_type(type);
    const unsigned char *b = (const unsigned char *)data;
    if (!code) return gx__gguf_no_code(type, "read", "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K", err);
    for (int64_t i = 0; i < blocks; i++) code->decode(b + i * t->bytes, x + i * t->elements);
    return GX_OK;
}

GxStatus gx_gguf_encode(int type, const float *x, int64_t blocks, void *data, GxError *err)
{
    const gx__GgufCode *code = gx__gguf_code(type);
    const GxGgufType *t = gx_gguf_type(type);
    unsigned char *b = (unsigned char *)data;
    if (!code || !code->encode) return gx__gguf_no_code(type, "written", "F32, F16, BF16, Q8_0", err);
    for (int64_t i = 0; i < blocks; i++) GX_TRY(code->encode(x + i * t->elements, b + i * t->bytes, err));
    return GX_OK;
}
#endif
