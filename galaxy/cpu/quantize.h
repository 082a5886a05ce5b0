// cpu/quantize.h: quantizes a matrix (base/quantized.h) on the host, for every device; and ops/quantize.h on the CPU.
//
// A matrix that is read from a file in parts is quantized part by part, without an fp32 copy of the whole:
//     for (int64_t first = 0; first < rows * cols; first += n) {
//         read(x, first, n);                                               // n: a multiple of 64; for int8, whole rows
//         GX_TRY(gx_cpu_quantize_part(g, &w, absmax, first, n, x));
//     }
//     gx_cpu_quantize_scales(g, &w, absmax);
#ifndef GX_CPU_QUANTIZE_H
#define GX_CPU_QUANTIZE_H
#include "../ops/quantize.h"
GX_BEGIN

// Quantizes elements [first, first + n) of the matrix, from x [n]. `first` begins a block (int8: a row), and n is whole
// blocks (rows) or extends to the end of the matrix. absmax [blocks]: doubled scales before they are quantized; NULL if
// scales are not doubled. GX_ERR_FORMAT: an element is not finite, or is 2^120 or larger.
//
// NF4: a = max|w| of the block; the code is the number of midpoints between adjacent values of N that are below w
// (1/a), in fp32.
// int8: a = max|w| of the row; q = w (127/a), rounded to the nearest integer, ties to even. If a is so small that 1/a
// overflows, it is replaced by 1e-38 (for 127/a: 1e-36), and 0 becomes 0.
GxStatus gx_cpu_quantize_part(GxContext *g, const GxQuantized *w, float *absmax, int64_t first, int64_t n,
                              const float *x);

// Call it after all parts: computes doubled scales from absmax [blocks]; other scales are already complete. o is their
// mean, summed in fp64 and rounded once (bitsandbytes sums in fp32, in an order that depends on the device, so its last
// bit may differ); A = max|a - o| of 256; the code is the number of midpoints between adjacent values of D that are
// below (a - o) (1/A).
void gx_cpu_quantize_scales(GxContext *g, const GxQuantized *w, const float *absmax);

// Both, for a whole matrix x [rows,cols].
GxStatus gx_cpu_quantize(GxContext *g, const GxQuantized *w, float *absmax, const float *x);

// Copy into a box what it has of a larger matrix, from which it is cut at (row, col): the codes from elements [first,
// first + n) of the larger matrix, where `first` begins a byte; the scales from `whole`, the larger matrix or any part
// of it that has the box's blocks.
void gx_cpu_quantized_take_codes(const GxQuantized *box, int64_t row, int64_t col, const uint8_t *codes, int64_t first,
                                 int64_t n);
void gx_cpu_quantized_take_scales(const GxQuantized *box, int64_t row, int64_t col, const GxQuantized *whole);

void gx_cpu_dequantize(GxContext *g, void *y, GxDtype dtype, const GxQuantized *w, int64_t row, int64_t rows,
                       int64_t col, int64_t cols);

// 1: numbers up to this magnitude can be quantized, since no product with a scale is then infinite. 0 also for a NaN.
static inline int gx_cpu_quantizes(float absmax) { return absmax < 0x1p120f; }

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_QUANTIZE_IMPLEMENTED)
#define GX_CPU_QUANTIZE_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "team.h"
#include "vec.h"

// ---- quantize ------------------------------------------------------------------------------------------------------

enum { GX__NF4_ZERO = 7 }; // the code of 0

// The bits of max|x|. Without the sign, bits increase with magnitude, followed by infinity and NaNs: none is missed.
static inline uint32_t gx__cpu_absmax_bits(const float *x, int64_t n)
{
    uint32_t most = 0;
    GX_OMP(simd reduction(max : most))
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = gx_float_bits(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

// The midpoints between N[i] and N[i+1].
typedef struct {
    float x[15];
} GxNf4Midpoints;
static GxNf4Midpoints gx__cpu_nf4_midpoints(void)
{
    GxNf4Midpoints m;
    for (int i = 0; i < 15; i++) m.x[i] = (gx_nf4_values[i] + gx_nf4_values[i + 1]) * 0.5f;
    return m;
}

// codes [(n+1)/2] of a block x [n], whose max|x| is a
static void gx__cpu_nf4_block(uint8_t *codes, float a, const float *x, int64_t n, const GxNf4Midpoints *middle)
{
    const float inverse = 1.0f / (a > 1e-38f ? a : 1e-38f);
    float scaled[GX_NF4_BLOCK] = {0}; // elements beyond n are 0
    uint8_t code[GX_NF4_BLOCK];
    for (int64_t i = 0; i < n; i++) scaled[i] = x[i] * inverse;
    GX_OMP(simd)
    for (int i = 0; i < GX_NF4_BLOCK; i++) {
        int below = 0;
        for (int m = 0; m < 15; m++) below += middle->x[m] < scaled[i];
        code[i] = (uint8_t)below;
    }
    for (int64_t i = 0; i < (n + 1) / 2; i++) codes[i] = (uint8_t)(code[2 * i] << 4 | code[2 * i + 1]);
}

// Quantizes a part; returns the bits of the largest magnitude.
static uint32_t gx__cpu_nf4_part(GxContext *g, const GxQuantized *w, float *absmax, int64_t first, int64_t n,
                                 const float *x)
{
    const GxNf4Midpoints middle = gx__cpu_nf4_midpoints();
    const int64_t blocks = gx_ceil_div(n, GX_NF4_BLOCK);
    uint32_t most = 0;
    (void)g;
    GX_OMP(parallel for schedule(static) reduction(max : most) num_threads(gx_cpu_team(g, n)))
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t at = b * GX_NF4_BLOCK, count = gx_min(GX_NF4_BLOCK, n - at);
        const uint32_t bits = gx__cpu_absmax_bits(x + at, count);
        absmax[first / GX_NF4_BLOCK + b] = gx_float_of_bits(bits);
        gx__cpu_nf4_block(w->codes + (first + at) / 2, gx_float_of_bits(bits), x + at, count, &middle);
        most = bits > most ? bits : most;
    }
    return most;
}

static void gx__cpu_int8_row(int8_t *codes, float a, const float *x, int64_t n)
{
    const float inverse = 127.0f / (a > 1e-36f ? a : 1e-36f);
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) codes[i] = (int8_t)rintf(x[i] * inverse);
}
static uint32_t gx__cpu_int8_part(GxContext *g, const GxQuantized *w, int64_t first, int64_t n, const float *x)
{
    const int64_t rows = n / w->cols;
    uint32_t most = 0;
    (void)g;
    GX_OMP(parallel for schedule(static) reduction(max : most) num_threads(gx_cpu_team(g, n)))
    for (int64_t r = 0; r < rows; r++) {
        const uint32_t bits = gx__cpu_absmax_bits(x + r * w->cols, w->cols);
        const float a = gx_float_of_bits(bits);
        w->scales[first / w->cols + r] = a;
        if (gx_cpu_quantizes(a)) // a NaN is not converted to an integer
            gx__cpu_int8_row((int8_t *)w->codes + first + r * w->cols, a, x + r * w->cols, w->cols);
        most = bits > most ? bits : most;
    }
    return most;
}

static GxStatus gx__cpu_quantize_refuses(GxContext *g, const GxQuantized *w, int64_t first, const float *x)
{
    int64_t i = 0;
    while (gx_cpu_quantizes(fabsf(x[i]))) i++;
    return GX_FAIL(&g->error, GX_ERR_FORMAT,
                   "row %ld, column %ld of a matrix is %g; only finite numbers below 2^120 can be quantized: check "
                   "where these weights come from",
                   (long)((first + i) / w->cols), (long)((first + i) % w->cols), (double)x[i]);
}

GxStatus gx_cpu_quantize_part(GxContext *g, const GxQuantized *w, float *absmax, int64_t first, int64_t n,
                              const float *x)
{
    const int64_t all = w->rows * w->cols, block = w->kind == GX_INT8 ? w->cols : (int64_t)GX_NF4_BLOCK;
    if (first < 0 || n < 1 || n > all - first || first % block || (n % block && first + n < all))
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "elements [%ld, %ld) of a matrix of %ld are not whole blocks of %ld, or not its last ones",
                       (long)first, (long)(first + n), (long)all, (long)block);
    const uint32_t most = w->kind == GX_INT8
                              ? gx__cpu_int8_part(g, w, first, n, x)
                              : gx__cpu_nf4_part(g, w, w->kind == GX_NF4_DOUBLED ? absmax : w->scales, first, n, x);
    return gx_cpu_quantizes(gx_float_of_bits(most)) ? GX_OK : gx__cpu_quantize_refuses(g, w, first, x);
}

// The number of midpoints between adjacent values of D that are below x.
static uint8_t gx__cpu_scale_code(float x)
{
    int code = 0;
    for (int step = 128; step > 0; step /= 2) {
        const int last = code + step - 1;
        if ((gx_scale_values[last] + gx_scale_values[last + 1]) * 0.5f < x) code += step;
    }
    return (uint8_t)code;
}

void gx_cpu_quantize_scales(GxContext *g, const GxQuantized *w, const float *absmax)
{
    const int64_t blocks = gx_quantized_blocks(w), groups = gx_quantized_scales(w);
    double sum = 0;
    if (w->kind != GX_NF4_DOUBLED || gx_failed(g)) return;
    for (int64_t b = 0; b < blocks; b++) sum += absmax[b];
    const float offset = *w->offset = (float)(sum / (double)blocks);
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, blocks)))
    for (int64_t group = 0; group < groups; group++) {
        const int64_t begin = group * GX_SCALE_BLOCK, end = gx_min(begin + GX_SCALE_BLOCK, blocks);
        float most = 0;
        for (int64_t b = begin; b < end; b++) most = fmaxf(most, fabsf(absmax[b] - offset));
        const float inverse = 1.0f / (most > 1e-38f ? most : 1e-38f);
        for (int64_t b = begin; b < end; b++) w->scale_codes[b] = gx__cpu_scale_code((absmax[b] - offset) * inverse);
        w->scales[group] = most;
    }
}

GxStatus gx_cpu_quantize(GxContext *g, const GxQuantized *w, float *absmax, const float *x)
{
    GX_TRY(gx_cpu_quantize_part(g, w, absmax, 0, w->rows * w->cols, x));
    gx_cpu_quantize_scales(g, w, absmax);
    return GX_OK;
}

// ---- boxes ---------------------------------------------------------------------------------------------------------

static void gx__cpu_nf4_copy(uint8_t *to, int64_t i, const uint8_t *from, int64_t j, int64_t n)
{
    if (i % 2 == 0 && j % 2 == 0) {
        memcpy(to + i / 2, from + j / 2, (size_t)(n / 2));
        i += n - n % 2, j += n - n % 2, n %= 2;
    }
    for (; n > 0; n--, i++, j++) {
        const int code = from[j / 2] >> (j % 2 ? 0 : 4) & 15;
        to[i / 2] = (uint8_t)(i % 2 ? (to[i / 2] & 0xf0) | code : code << 4 | GX__NF4_ZERO);
    }
}

void gx_cpu_quantized_take_codes(const GxQuantized *box, int64_t row, int64_t col, const uint8_t *codes, int64_t first,
                                 int64_t n)
{
    const int64_t begin = gx_max(0, first / box->pitch - row), end = (first + n - 1) / box->pitch - row + 1;
    for (int64_t r = begin; r < gx_min(end, box->rows); r++) {
        const int64_t at = (row + r) * box->pitch + col, from = gx_max(at, first),
                      count = gx_min(at + box->cols, first + n) - from, to = r * box->cols + from - at;
        if (count < 1) continue;
        if (box->kind == GX_INT8) memcpy(box->codes + to, codes + (from - first), (size_t)count);
        else gx__cpu_nf4_copy(box->codes, to, codes, from - first, count);
    }
}

void gx_cpu_quantized_take_scales(const GxQuantized *box, int64_t row, int64_t col, const GxQuantized *whole)
{
    const int64_t first = gx_quantized_first_block(box, row, col);
    if (box->kind != GX_NF4_DOUBLED) {
        memcpy(box->scales, whole->scales + first, (size_t)gx_quantized_scales(box) * sizeof *box->scales);
        return;
    }
    memcpy(box->scales, whole->scales + first / GX_SCALE_BLOCK, (size_t)gx_quantized_scales(box) * sizeof *box->scales);
    memcpy(box->scale_codes, whole->scale_codes + first, (size_t)gx_quantized_blocks(box));
    *box->offset = *whole->offset;
}

// ---- dequantize ----------------------------------------------------------------------------------------------------

// The scale a of a block. volatile: keeps the compiler from fusing the product and the sum into one multiply-add, which
// would round only once.
static inline float gx__cpu_nf4_scale(const GxQuantized *w, int64_t block)
{
    if (w->kind == GX_NF4) return w->scales[block];
    volatile float product = gx_scale_values[w->scale_codes[block]] * w->scales[block / GX_SCALE_BLOCK];
    return product + *w->offset;
}

typedef struct {
    float value[256][2];
} GxNf4Pairs; // the values of a byte's two codes
static GxNf4Pairs gx__cpu_nf4_pairs(void)
{
    GxNf4Pairs pairs;
    for (int i = 0; i < 256; i++) pairs.value[i][0] = gx_nf4_values[i >> 4], pairs.value[i][1] = gx_nf4_values[i & 15];
    return pairs;
}

// y[i] = the value of code first + i, for n codes that are all in one block
static GX_CPU_INLINE void gx__cpu_nf4_values_of(void *y, const GxNf4Pairs *pairs, const GxQuantized *w, int64_t block,
                                                int64_t first, int64_t n, GxDtype dtype)
{
    const float a = gx__cpu_nf4_scale(w, block);
    const uint8_t *codes = w->codes + first / 2;
    float value[GX_NF4_BLOCK + 2];
    const int64_t skip = first % 2, bytes = (skip + n + 1) / 2;
    for (int64_t i = 0; i < bytes; i++)
        value[2 * i] = pairs->value[codes[i]][0], value[2 * i + 1] = pairs->value[codes[i]][1];
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) gx_cpu_store(y, i, value[skip + i] * a, dtype);
}

static GX_CPU_INLINE void gx__cpu_nf4_run(void *y, const GxNf4Pairs *pairs, const GxQuantized *w, int64_t row,
                                          int64_t col, int64_t n, GxDtype dtype)
{
    for (int64_t done = 0, here; done < n; done += here) {
        const int64_t at = w->origin + row * w->pitch + col + done; // index among the blocks' elements
        here = gx_min(n - done, GX_NF4_BLOCK - at % GX_NF4_BLOCK);
        gx__cpu_nf4_values_of(gx_cpu_at(y, done, dtype), pairs, w, at / GX_NF4_BLOCK, row * w->cols + col + done, here,
                              dtype);
    }
}

static GX_CPU_INLINE void gx__cpu_int8_run(void *y, const int8_t *codes, float a, int64_t n, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < n; i++) gx_cpu_store(y, i, (float)codes[i] * a * GX_INT8_STEP, dtype);
}

void gx_cpu_dequantize(GxContext *g, void *y, GxDtype dtype, const GxQuantized *w, int64_t row, int64_t rows,
                       int64_t col, int64_t cols)
{
    const GxNf4Pairs pairs = gx__cpu_nf4_pairs();
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, rows * cols)))
    for (int64_t r = 0; r < rows; r++) {
        const int8_t *codes = (const int8_t *)w->codes + (row + r) * w->cols + col;
        void *to = gx_cpu_at(y, r * cols, dtype);
        if (w->kind == GX_INT8) GX_CPU_TYPES(dtype, gx__cpu_int8_run, to, codes, w->scales[row + r], cols);
        else GX_CPU_TYPES(dtype, gx__cpu_nf4_run, to, &pairs, w, row + r, col, cols);
    }
}
#endif
