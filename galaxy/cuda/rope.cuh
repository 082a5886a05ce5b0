// cuda/rope.cuh: ops/rope.h on the GPU.
#ifndef GX_CUDA_ROPE_CUH
#define GX_CUDA_ROPE_CUH
#include "../ops/rope.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_rope(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs,
                  const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride, int direction,
                  GxDtype dtype);
void gx_cuda_text_positions(GxContext *g, int32_t *positions, const GxRuns *runs, const int32_t *documents, int64_t B);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_ROPE_IMPLEMENTED)
#define GX_CUDA_ROPE_IMPLEMENTED
#include "kernel.cuh"

__device__ inline int64_t gx__cuda_position(const GxRuns &runs, int64_t t) // of row t of each column
{
    int i = runs.n - 1;
    while (i > 0 && t < runs.run[i].row) i--;
    return runs.run[i].position + t - runs.run[i].row;
}

// (x[i], x[half+i]) = (x[i]*cos - x[half+i]*sin, x[i]*sin + x[half+i]*cos); sign -1: the inverse
// Column c of a row is pair c % half of head c / half: elements i and i + half. Adjacent columns share a head: N
// divides half or is 1.
template <class T> struct GxRopeOp {
    T *x;
    const float *cosine, *sine; // [positions, half]
    GxRuns runs;
    const int32_t *documents; // NULL: by positions
    int64_t B, stride;
    int half;
    float sign;
    __device__ int64_t position(int64_t r) const
    {
        const int64_t at = gx__cuda_position(runs, r / B);
        return documents ? documents[2 * (at * B + r % B)] : at;
    }
    template <int N> __device__ void at(int64_t r, int64_t c) const
    {
        const int head = (int)c / half, i = (int)c % half;
        const int64_t table = position(r) * half + i;
        T *a = x + r * stride + (int64_t)head * 2 * half + i, *b = a + half;
        float u[N], v[N], co[N], si[N];
        gx_load(u, a);
        gx_load(v, b);
        gx_load(co, cosine + table);
        gx_load(si, sine + table);
        for (int j = 0; j < N; j++) {
            const float left = u[j], right = v[j], s = sign * si[j];
            u[j] = left * co[j] - right * s;
            v[j] = left * s + right * co[j];
        }
        gx_store(a, u);
        gx_store(b, v);
    }
};
template <class T>
static void gx__cuda_rope(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs,
                          const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride,
                          int direction)
{
    const int64_t half = head_dim / 2;
    const GxRopeOp<T> op = {(T *)x, cosine, sine, *runs, documents, B, stride, (int)half, direction > 0 ? 1.0f : -1.0f};
    const bool wide = gx_wide<T>(half, x, cosine, sine) && stride % GxPack<T>::N == 0;
    gx_each_row<T>(g, "rope", op, gx_runs_rows(runs) * B, heads * half, wide);
}

void gx_cuda_rope(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs,
                  const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride, int direction,
                  GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_rope, g, x, cosine, sine, runs, documents, B, heads, head_dim, stride, direction);
}

// positions[r] = the position of row r, counted from the begin of its document
struct GxTextPositionsOp : GxEachOp {
    int32_t *positions;
    GxRuns runs;
    const int32_t *documents; // NULL: each column is one
    int64_t B;
    template <int N> __device__ void at(int64_t first) const
    {
        for (int64_t r = first; r < first + N; r++) {
            const int64_t at = gx__cuda_position(runs, r / B);
            positions[r] = (int32_t)at - (documents ? documents[2 * (at * B + r % B)] : 0);
        }
    }
};

void gx_cuda_text_positions(GxContext *g, int32_t *positions, const GxRuns *runs, const int32_t *documents, int64_t B)
{
    const GxTextPositionsOp op = {{}, positions, *runs, documents, B};
    gx_each<float>(g, "text_positions", op, gx_runs_rows(runs) * B, false);
}
#endif
