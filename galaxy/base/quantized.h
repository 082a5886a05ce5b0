// base/quantized.h: matrices whose elements have 4 or 8 bits: their parts, their layout in memory, and the meaning of
// their codes. The format is that of bitsandbytes.
//
//     kind             bits of an element      a value
//     GX_NF4           4.5                     N[q] a                   a: max|w| of a block of 64 elements
//     GX_NF4_DOUBLED   4.127                   N[q] (D[s] A + o)        A: of 256 such blocks; o: the mean of all a
//     GX_INT8          8, and 32 for each row  q a / 127                a: max|w| of a row
//
// N holds 16 numbers between -1 and 1 that weights of a normal distribution fall on equally often, one of them 0
// (Dettmers et al. 2023, "QLoRA", arXiv:2305.14314, section 3, where doubled scales are "double quantization"). D holds
// 256 numbers, denser towards 0 (Dettmers et al. 2022, "8-bit optimizers via block-wise quantization",
// arXiv:2110.02861, section 1.3).
//
// Blocks are consecutive elements of the matrix as it lies in memory, [rows,cols] without gaps: they may extend over
// the ends of rows, and the last one may be short. A byte holds two 4-bit codes, the first in its upper half; if their
// number is odd, the last half byte is the code of 0.
//
//     void *memory = gx_arena_allocate(arena, GX_MEM_WEIGHTS, gx_quantized_bytes(GX_NF4_DOUBLED, rows, cols));
//     GxQuantized w = gx_quantized(GX_NF4_DOUBLED, rows, cols, memory);
//
// A box of a larger matrix has codes for its own elements only, but its blocks are those of the larger matrix: it has
// the scales of all blocks between its first and its last element. So its values do not depend on how the larger matrix
// is split.
//
// cpu/quantize.h quantises floats, ops/quantize.h dequantises, ops/quantized_linear.h multiplies by a quantised matrix.
#ifndef GX_QUANTIZED_H
#define GX_QUANTIZED_H
#include "arena.h"
#include "common.h"
GX_BEGIN

typedef enum { GX_NF4 = 0, GX_NF4_DOUBLED, GX_INT8, GX_QUANT_KINDS } GxQuantKind;
enum { GX_NF4_BLOCK = 64, GX_SCALE_BLOCK = 256 }; // weights that share a scale; scales that share one themselves

typedef struct GxQuantized {
    GxQuantKind kind;
    int64_t rows, cols;
    // NF4: element (r, c) belongs to block (origin + r*pitch + c) / 64 of those that have a scale here
    int64_t origin, pitch;
    uint8_t *codes;       // q: NF4 [ceil(rows*cols/2)]; int8, with sign: [rows,cols]
    float *scales;        // a: [blocks]; with doubled scales A: [ceil(blocks/256)]
    uint8_t *scale_codes; // s: [blocks]; NULL without doubled scales
    float *offset;        // o: [1]; NULL without doubled scales
} GxQuantized;

// Lays out the parts of a matrix one after another in `memory`, each aligned to GX_ALIGN, as `memory` must be. Only
// addresses are computed; the memory is not accessed.
GxQuantized gx_quantized(GxQuantKind kind, int64_t rows, int64_t cols, void *memory);
// The same for the box [rows,cols] that begins at (row, col) of a matrix of `pitch` columns.
GxQuantized gx_quantized_box(GxQuantKind kind, int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t pitch,
                             void *memory);
// The number, in the larger matrix, of the first block that the box beginning at (row, col) has a scale for (int8: the
// row).
int64_t gx_quantized_first_block(const GxQuantized *box, int64_t row, int64_t col);
int64_t gx_quantized_bytes(const GxQuantized *w);  // of everything that it points to
int64_t gx_quantized_blocks(const GxQuantized *w); // with a scale each: 64 elements; int8: a row
int64_t gx_quantized_scales(const GxQuantized *w); // fp32 numbers at w->scales
int64_t gx_quantized_code_bytes(const GxQuantized *w);

extern const float gx_nf4_values[16];    // N
extern const float gx_scale_values[256]; // D
#define GX_INT8_STEP (1.0f / 127)        // a value is q a times this

// The same tables as initialisers, for copies in a device's memory.
#define GX_NF4_VALUES                                                                                                  \
    -1.0f, -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f, -0.091050036f, 0.0f, 0.0795803f,        \
        0.1609302f, 0.2461123f, 0.33791524f, 0.44070983f, 0.562617f, 0.72295684f, 1.0f
// 0, 1 and +-10^(i-6) (0.1 + 0.9 (2j + 1) / 2^(i+1)) for i < 7, j < 2^i, in order, as fp32 arithmetic gives them: the
// formula in fp64 gives neighbours of 72 of them.
#define GX_SCALE_VALUES                                                                                                \
    -0.99296874f, -0.9789063f, -0.96484375f, -0.9507812f, -0.93671876f, -0.92265624f, -0.9085938f, -0.89453125f,       \
        -0.8804687f, -0.86640626f, -0.85234374f, -0.8382813f, -0.82421875f, -0.8101562f, -0.79609376f, -0.78203124f,   \
        -0.7679688f, -0.75390625f, -0.7398437f, -0.72578126f, -0.7117188f, -0.6976563f, -0.68359375f, -0.6695312f,     \
        -0.65546876f, -0.6414063f, -0.6273438f, -0.61328125f, -0.5992187f, -0.58515626f, -0.5710938f, -0.5570313f,     \
        -0.54296875f, -0.5289062f, -0.5148437f, -0.50078124f, -0.4867187f, -0.47265625f, -0.45859373f, -0.44453126f,   \
        -0.43046874f, -0.41640624f, -0.40234375f, -0.38828123f, -0.37421876f, -0.36015624f, -0.34609374f,              \
        -0.33203125f, -0.31796873f, -0.30390626f, -0.28984374f, -0.27578127f, -0.26171875f, -0.24765624f,              \
        -0.23359375f, -0.21953125f, -0.20546874f, -0.19140625f, -0.17734376f, -0.16328125f, -0.14921875f,              \
        -0.13515624f, -0.12109375f, -0.107031256f, -0.09859375f, -0.09578126f, -0.092968754f, -0.09015625f,            \
        -0.08734375f, -0.08453125f, -0.08171876f, -0.07890625f, -0.07609375f, -0.07328125f, -0.070468746f,             \
        -0.067656256f, -0.06484375f, -0.06203125f, -0.059218753f, -0.05640625f, -0.05359375f, -0.05078125f,            \
        -0.04796875f, -0.04515625f, -0.042343747f, -0.03953125f, -0.036718752f, -0.03390625f, -0.03109375f,            \
        -0.028281251f, -0.02546875f, -0.02265625f, -0.019843752f, -0.01703125f, -0.01421875f, -0.01140625f,            \
        -0.00971875f, -0.009156249f, -0.00859375f, -0.00803125f, -0.00746875f, -0.00690625f, -0.00634375f,             \
        -0.00578125f, -0.0052187503f, -0.0046562497f, -0.00409375f, -0.0035312497f, -0.00296875f, -0.00240625f,        \
        -0.00184375f, -0.0012812499f, -0.0009437501f, -0.00083125f, -0.00071875006f, -0.0006062501f, -0.00049375003f,  \
        -0.00038125002f, -0.00026875004f, -0.00015625001f, -8.875e-5f, -6.625e-5f, -4.375e-5f, -2.1249998e-5f,         \
        -7.75e-6f, -3.2500002e-6f, -5.5000004e-7f, 0.0f, 5.5000004e-7f, 3.2500002e-6f, 7.75e-6f, 2.1249998e-5f,        \
        4.375e-5f, 6.625e-5f, 8.875e-5f, 0.00015625001f, 0.00026875004f, 0.00038125002f, 0.00049375003f,               \
        0.0006062501f, 0.00071875006f, 0.00083125f, 0.0009437501f, 0.0012812499f, 0.00184375f, 0.00240625f,            \
        0.00296875f, 0.0035312497f, 0.00409375f, 0.0046562497f, 0.0052187503f, 0.00578125f, 0.00634375f, 0.00690625f,  \
        0.00746875f, 0.00803125f, 0.00859375f, 0.009156249f, 0.00971875f, 0.01140625f, 0.01421875f, 0.01703125f,       \
        0.019843752f, 0.02265625f, 0.02546875f, 0.028281251f, 0.03109375f, 0.03390625f, 0.036718752f, 0.03953125f,     \
        0.042343747f, 0.04515625f, 0.04796875f, 0.05078125f, 0.05359375f, 0.05640625f, 0.059218753f, 0.06203125f,      \
        0.06484375f, 0.067656256f, 0.070468746f, 0.07328125f, 0.07609375f, 0.07890625f, 0.08171876f, 0.08453125f,      \
        0.08734375f, 0.09015625f, 0.092968754f, 0.09578126f, 0.09859375f, 0.107031256f, 0.12109375f, 0.13515624f,      \
        0.14921875f, 0.16328125f, 0.17734376f, 0.19140625f, 0.20546874f, 0.21953125f, 0.23359375f, 0.24765624f,        \
        0.26171875f, 0.27578127f, 0.28984374f, 0.30390626f, 0.31796873f, 0.33203125f, 0.34609374f, 0.36015624f,        \
        0.37421876f, 0.38828123f, 0.40234375f, 0.41640624f, 0.43046874f, 0.44453126f, 0.45859373f, 0.47265625f,        \
        0.4867187f, 0.50078124f, 0.5148437f, 0.5289062f, 0.54296875f, 0.5570313f, 0.5710938f, 0.58515626f, 0.5992187f, \
        0.61328125f, 0.6273438f, 0.6414063f, 0.65546876f, 0.6695312f, 0.68359375f, 0.6976563f, 0.7117188f,             \
        0.72578126f, 0.7398437f, 0.75390625f, 0.7679688f, 0.78203124f, 0.79609376f, 0.8101562f, 0.82421875f,           \
        0.8382813f, 0.85234374f, 0.86640626f, 0.8804687f, 0.89453125f, 0.9085938f, 0.92265624f, 0.93671876f,           \
        0.9507812f, 0.96484375f, 0.9789063f, 0.99296874f, 1.0f

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_QUANTIZED_IMPLEMENTED)
#define GX_QUANTIZED_IMPLEMENTED

const float gx_nf4_values[16] = {GX_NF4_VALUES};
const float gx_scale_values[256] = {GX_SCALE_VALUES};

int64_t gx_quantized_blocks(const GxQuantized *w)
{
    if (w->kind == GX_INT8) return w->rows;
    return gx_ceil_div(w->origin + (w->rows - 1) * w->pitch + w->cols, GX_NF4_BLOCK);
}

int64_t gx_quantized_scales(const GxQuantized *w)
{
    const int64_t blocks = gx_quantized_blocks(w);
    return w->kind == GX_NF4_DOUBLED ? gx_ceil_div(blocks, GX_SCALE_BLOCK) : blocks;
}

int64_t gx_quantized_code_bytes(const GxQuantized *w)
{
    const int64_t n = w->rows * w->cols;
    return w->kind == GX_INT8 ? n : gx_ceil_div(n, 2);
}

// The address of the next part, of `part` bytes. *bytes is the offset of its beginning, and afterwards that of its end.
static char *gx__quantized_part(char *memory, int64_t *bytes, int64_t part)
{
    char *at = memory ? memory + *bytes : NULL;
    *bytes += gx_round_up(part, GX_ALIGN);
    return at;
}

static int64_t gx__quantized_map(GxQuantized *w, char *memory)
{
    int64_t bytes = 0;
    w->codes = (uint8_t *)gx__quantized_part(memory, &bytes, gx_quantized_code_bytes(w));
    w->scales = (float *)gx__quantized_part(memory, &bytes, 4 * gx_quantized_scales(w));
    if (w->kind != GX_NF4_DOUBLED) return bytes;
    w->scale_codes = (uint8_t *)gx__quantized_part(memory, &bytes, gx_quantized_blocks(w));
    w->offset = (float *)gx__quantized_part(memory, &bytes, 4);
    return bytes;
}

// The box's scales begin at the beginning of a group of 256, so scale number i belongs to group i / 256 here, too.
GxQuantized gx_quantized_box(GxQuantKind kind, int64_t row, int64_t rows, int64_t col, int64_t cols, int64_t pitch,
                             void *memory)
{
    const int64_t step = GX_NF4_BLOCK * (kind == GX_NF4_DOUBLED ? GX_SCALE_BLOCK : 1);
    GxQuantized w = {kind, rows, cols, (row * pitch + col) % step, pitch, NULL, NULL, NULL, NULL};
    gx__quantized_map(&w, (char *)memory);
    return w;
}

GxQuantized gx_quantized(GxQuantKind kind, int64_t rows, int64_t cols, void *memory)
{
    return gx_quantized_box(kind, 0, rows, 0, cols, cols, memory);
}

int64_t gx_quantized_first_block(const GxQuantized *box, int64_t row, int64_t col)
{
    return box->kind == GX_INT8 ? row : (row * box->pitch + col - box->origin) / GX_NF4_BLOCK;
}

int64_t gx_quantized_bytes(const GxQuantized *w)
{
    GxQuantized copy = *w;
    return gx__quantized_map(&copy, NULL);
}
#endif
