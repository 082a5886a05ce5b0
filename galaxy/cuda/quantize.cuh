// cuda/quantize.cuh: ops/quantize.h on the GPU.
#ifndef GX_CUDA_QUANTIZE_CUH
#define GX_CUDA_QUANTIZE_CUH
#include "../ops/quantize.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_dequantize(GxContext *g, void *y, GxDtype dtype, const GxQuantized *w, int64_t row, int64_t rows,
                        int64_t col, int64_t cols);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_QUANTIZE_IMPLEMENTED)
#define GX_CUDA_QUANTIZE_IMPLEMENTED

// Lanes of a warp read different entries: cached memory serves that well, constant memory only one entry at a time.
static __device__ const float gx__cuda_nf4_values[16] = {GX_NF4_VALUES};
static __device__ const float gx__cuda_scale_values[256] = {GX_SCALE_VALUES};

// Loads the word at p if p is aligned for it.
template <class T> static __device__ __forceinline__ bool gx__cuda_load_word(uint64_t &word, const uint8_t *p)
{
    const bool aligned = reinterpret_cast<uintptr_t>(p) % sizeof(T) == 0;
    if (aligned) word = *reinterpret_cast<const T *>(p);
    return aligned;
}
// Loads BYTES adjacent bytes at p, the first one lowest; in one access if p is aligned to them.
template <int BYTES> static __device__ __forceinline__ uint64_t gx__cuda_load_bytes(const uint8_t *p)
{
    uint64_t word = 0;
    if constexpr (BYTES == 8) {
        if (gx__cuda_load_word<uint64_t>(word, p)) return word;
    } else if constexpr (BYTES == 4) {
        if (gx__cuda_load_word<uint32_t>(word, p)) return word;
    } else if constexpr (BYTES == 2) {
        if (gx__cuda_load_word<uint16_t>(word, p)) return word;
    }
    for (int i = 0; i < BYTES; i++) word |= (uint64_t)p[i] << 8 * i;
    return word;
}

// The scale a of a block; no multiply-add: the product is rounded.
static __device__ __forceinline__ float gx__cuda_nf4_scale(const GxQuantized &w, int64_t block)
{
    if (w.kind == GX_NF4) return w.scales[block];
    const float product = __fmul_rn(gx__cuda_scale_values[w.scale_codes[block]], w.scales[block / GX_SCALE_BLOCK]);
    return __fadd_rn(product, *w.offset);
}

// y[r,c] = w[row + r, col + c]. N adjacent elements that begin at a multiple of N, both as codes and within a block,
// are in N/2 bytes and in one block.
template <class T> struct GxNf4Op {
    T *y;
    GxQuantized w;
    int64_t row, col, cols;
    __device__ float value(int64_t i, int64_t element) const
    {
        const int code = w.codes[i / 2] >> (i % 2 ? 0 : 4) & 15;
        return gx__cuda_nf4_values[code] * gx__cuda_nf4_scale(w, element / GX_NF4_BLOCK);
    }
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        const int64_t i = (row + r) * w.cols + col + c, element = w.origin + (row + r) * w.pitch + col + c;
        float v[N];
        if (N == 1 || i % N || element % N) {
            for (int j = 0; j < N; j++) v[j] = value(i + j, element + j);
        } else {
            const uint64_t codes = gx__cuda_load_bytes<(N + 1) / 2>(w.codes + i / 2);
            const float a = gx__cuda_nf4_scale(w, element / GX_NF4_BLOCK);
            for (int j = 0; j < N; j++) v[j] = gx__cuda_nf4_values[codes >> (8 * (j / 2) + (j % 2 ? 0 : 4)) & 15] * a;
        }
        gx_store(y + r * cols + c, v);
    }
};

template <class T> struct GxInt8Op {
    T *y;
    GxQuantized w;
    int64_t row, col, cols;
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        const uint64_t codes = gx__cuda_load_bytes<N>(w.codes + (row + r) * w.cols + col + c);
        const float a = w.scales[row + r];
        float v[N];
        for (int j = 0; j < N; j++) v[j] = (float)(int8_t)(codes >> 8 * j & 255) * a * GX_INT8_STEP;
        gx_store(y + r * cols + c, v);
    }
};

template <class T>
static void gx__cuda_dequantize(GxContext *g, void *y, const GxQuantized *w, int64_t row, int64_t rows, int64_t col,
                                int64_t cols)
{
    const GxNf4Op<T> nf4 = {(T *)y, *w, row, col, cols};
    const GxInt8Op<T> int8 = {(T *)y, *w, row, col, cols};
    const bool wide = gx_wide<T>(cols, y);
    if (w->kind == GX_INT8) gx_each_row<T>(g, "dequantize_int8", int8, rows, cols, wide);
    else gx_each_row<T>(g, "dequantize_nf4", nf4, rows, cols, wide);
}

void gx_cuda_dequantize(GxContext *g, void *y, GxDtype dtype, const GxQuantized *w, int64_t row, int64_t rows,
                        int64_t col, int64_t cols)
{
    GX_CUDA_TYPES(dtype, gx__cuda_dequantize, g, y, w, row, rows, col, cols);
}
#endif
