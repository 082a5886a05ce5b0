// cuda/dropout.cuh: ops/dropout.h on the GPU.
#ifndef GX_CUDA_DROPOUT_CUH
#define GX_CUDA_DROPOUT_CUH
#include "../ops/dropout.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_DROPOUT_IMPLEMENTED)
#define GX_CUDA_DROPOUT_IMPLEMENTED
#include "kernel.cuh"

// The parameters of random numbers. Seed, step and the window's first sample are read from device memory, so that they
// are not fixed in a captured graph.
struct GxCudaRandom {
    const GxStep *step;
    GxDropout d;
    uint32_t threshold;
    float scale;

    // The index of row r's first Philox call. 64-bit divisions are slow, and row numbers are small.
    __device__ uint64_t first(int64_t r, int64_t C) const
    {
        if (!(d.p > 0)) return 0;
        const int64_t row = d.rows ? d.rows[r] : d.first_row + r;
        const int64_t first_sample = step->first_sample + d.first_sample;
        if ((row | d.B) >> 32) return gx_dropout_row(first_sample, d.T, d.B, row, C);
        const uint32_t t = (uint32_t)row / (uint32_t)d.B, b = (uint32_t)row - t * (uint32_t)d.B;
        return (uint64_t)((first_sample + b) * d.T + t) * (uint64_t)((C + 3) / 4);
    }

    // v[i] = kept ? v[i]/(1 - p) : 0, for N adjacent elements, from column c on, of a row that begins with Philox call
    // `first`: one call for every four elements, or for a single one.
    template <int N> __device__ void drop(float (&v)[N], uint64_t first, int64_t c) const
    {
        if (!(d.p > 0)) return;
        const uint64_t seed = step->seed;
        const uint32_t number = (uint32_t)step->step;
        for (int i = 0; i < N; i += 4) {
            const GxRandom4 r = gx_philox(seed, first + (uint64_t)((c + i) / 4), number, d.site);
            if constexpr (N == 1) {
                const int word = (int)(c & 3);
                const uint32_t bits = word == 0 ? r.w[0] : word == 1 ? r.w[1] : word == 2 ? r.w[2] : r.w[3];
                v[0] = bits >= threshold ? v[0] * scale : 0;
            } else {
                for (int j = 0; j < 4; j++) v[i + j] = r.w[j] >= threshold ? v[i + j] * scale : 0;
            }
        }
    }
};

static inline GxCudaRandom gx__cuda_random(const GxContext *g, const GxDropout *d)
{
    GxCudaRandom random = {g->step, *d, 0, 1};
    if (d->p > 0) random.threshold = gx_dropout_threshold(d->p), random.scale = gx_dropout_scale(d->p);
    return random;
}

// y[r,c] = kept ? x[r,c]/(1 - p) : 0
template <class T> struct GxDropoutOp {
    T *y;
    const T *x;
    int64_t C, columns; // given; of whole rows
    GxCudaRandom random;
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        float v[N];
        gx_load(v, x + r * C + c);
        random.drop(v, random.first(r, columns), random.d.first_column + c);
        gx_store(y + r * C + c, v);
    }
};
template <class T>
static void gx__cuda_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d)
{
    const GxDropoutOp<T> op = {(T *)y, (const T *)x, C, d->columns ? d->columns : C, gx__cuda_random(g, d)};
    gx_each_row<T>(g, "dropout", op, R, C, gx_wide<T>(C, y, x) && d->first_column % 4 == 0);
}

void gx_cuda_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_dropout, g, y, x, R, C, d);
}
#endif
