// cuda/norm.cuh: ops/norm.h on the GPU.
#ifndef GX_CUDA_NORM_CUH
#define GX_CUDA_NORM_CUH
#include "../ops/norm.h"
#include "kernel.cuh"
GX_BEGIN

void gx_cuda_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, float offset, int64_t R,
                              int64_t C, float eps, GxDtype dtype);
void gx_cuda_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                  const void *w, float offset, int64_t R, int64_t C, float eps, GxDtype dtype);
void gx_cuda_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                               const float *rstd, const void *w, float offset, int64_t R, int64_t C, int accumulate,
                               GxDtype dtype, float *scratch);
void gx_cuda_head_norm_forward(GxContext *g, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *s);
void gx_cuda_head_norm_backward(GxContext *g, void *dx, float *dw, const void *kept, const float *rstd, const void *w,
                                const GxHeadNorm *s, int accumulate, float *scratch);
void gx_cuda_layer_norm_forward(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w,
                                const void *b, int64_t R, int64_t C, float eps, GxDtype dtype);
void gx_cuda_layer_norm_backward(GxContext *g, void *dx, float *dw, float *db, const void *dy, const void *x,
                                 const float *mean, const float *rstd, const void *w, int64_t R, int64_t C,
                                 int accumulate, GxDtype dtype, float *scratch);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_NORM_IMPLEMENTED)
#define GX_CUDA_NORM_IMPLEMENTED
#include "kernel.cuh"
#include "linear.cuh" // gx__cuda_column_sums_finish

enum { GX_NORM_THREADS = 512 }; // at most; one pack each for a row of 4096 bf16

// y[r,c] = x[r,c] * rstd[r] * (w[c] + offset),  rstd[r] = 1/sqrt(mean_c x[r,c]^2 + eps); with a residual, of sum = x+a
// A block per row, with one thread per pack, at most 512. The row is read once and kept in shared memory (C*size bytes)
// until its rstd is known; a row that does not fit is read again. a, sum NULL: no residual.
template <class T, int N>
static __global__ void __launch_bounds__(GX_NORM_THREADS)
    gx__cuda_rms_norm_rows(T *sum, T *y, float *rstd, const T *x, const T *a, const T *w, float offset, int64_t R,
                           int64_t C, float eps, int keep)
{
    GX_DYNAMIC_SHARED(T, row);
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *kept = keep ? row : (a ? sum : x) + r * C; // a thread reads only what it wrote or read itself
        float squares = 0, v[N], u[N];
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, x + r * C + c);
            if (a) {
                gx_load(u, a + r * C + c);
                for (int i = 0; i < N; i++)
                    v[i] = gx_round<T>(v[i] + u[i]); // the norm is of the rounded sum
                gx_store(sum + r * C + c, v);
            }
            if (keep) gx_store(row + c, v);
            for (int i = 0; i < N; i++) squares += v[i] * v[i];
        }
        const float scale = 1.0f / sqrtf(gx_block_sum(squares) / (float)C + eps);
        if (threadIdx.x == 0) rstd[r] = scale;
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, kept + c);
            gx_load(u, w + c);
            for (int i = 0; i < N; i++) v[i] = v[i] * scale * (u[i] + offset);
            gx_store(y + r * C + c, v);
        }
    }
}

template <class T, int N>
static void gx__cuda_launch_norm_forward(GxContext *g, T *sum, T *y, float *rstd, const T *x, const T *a, const T *w,
                                         float offset, int64_t R, int64_t C, float eps)
{
    const int64_t bytes = C * (int64_t)sizeof(T), keep = bytes <= GX_CUDA_SHARED;
    GX_LAUNCH((gx__cuda_rms_norm_rows<T, N>), gx_cuda_blocks(R),
              gx_cuda_threads(gx_ceil_div(C, N), GX_NORM_THREADS), keep ? bytes : 0, gx_cuda(g)->stream, sum, y, rstd,
              x, a, w, offset, R, C, eps, (int)keep);
}
template <class T>
static void gx__cuda_norm_forward(GxContext *g, const char *name, void *sum, void *y, float *rstd, const void *x,
                                  const void *a, const void *w, float offset, int64_t R, int64_t C, float eps)
{
    const T *from = (const T *)x, *add = (const T *)a, *weight = (const T *)w;
    if (gx_wide<T>(C, sum, y, x, a, w))
        gx__cuda_launch_norm_forward<T, GxPack<T>::N>(g, (T *)sum, (T *)y, rstd, from, add, weight, offset, R, C, eps);
    else gx__cuda_launch_norm_forward<T, 1>(g, (T *)sum, (T *)y, rstd, from, add, weight, offset, R, C, eps);
    gx_cuda_check(g, name);
}

void gx_cuda_rms_norm_forward(GxContext *g, void *y, float *rstd, const void *x, const void *w, float offset, int64_t R,
                              int64_t C, float eps, GxDtype dtype)
{
    const void *none = NULL;
    GX_CUDA_TYPES(dtype, gx__cuda_norm_forward, g, "rms_norm_forward", (void *)none, y, rstd, x, none, w, offset, R, C,
                  eps);
}

void gx_cuda_add_rms_norm_forward(GxContext *g, void *sum, void *y, float *rstd, const void *x, const void *a,
                                  const void *w, float offset, int64_t R, int64_t C, float eps, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_norm_forward, g, "add_rms_norm_forward", sum, y, rstd, x, a, w, offset, R, C, eps);
}

// ---- RMSNorm of heads ----------------------------------------------------------------------------------------------
// kept = x, x[r,k,c] = kept[r,k,c] * rstd[r,k] * (w[c] + offset),  rstd[r,k] = 1/sqrt(mean_c kept[r,k,c]^2 + eps)
// A block per row, a warp per head: a head has one or a few packs for each lane, and no warp waits for another.

template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_head_norm_heads(T *x, T *kept, float *rstd, const T *w, GxHeadNorm s)
{
    const int warp = (int)threadIdx.x / GX_WARP, warps = (int)blockDim.x / GX_WARP;
    const int64_t first = (int64_t)(threadIdx.x % GX_WARP) * N, step = GX_WARP * N, h = s.head_dim;
    for (int64_t r = blockIdx.x; r < s.R; r += gridDim.x)
        for (int64_t k = warp; k < s.heads; k += warps) {
            T *head = x + r * s.stride + k * h, *before = kept + r * s.kept_stride + k * h;
            float squares = 0, v[N], u[N];
            for (int64_t c = first; c < h; c += step) {
                gx_load(v, head + c);
                gx_store(before + c, v);
                for (int i = 0; i < N; i++) squares += v[i] * v[i];
            }
            const float scale = 1.0f / sqrtf(gx_warp_sum(squares) / (float)h + s.eps);
            if (first == 0) rstd[r * s.heads + k] = scale;
            for (int64_t c = first; c < h; c += step) { // a thread reads only what it read itself
                gx_load(v, head + c);
                gx_load(u, w + c);
                for (int i = 0; i < N; i++) v[i] = v[i] * scale * (u[i] + s.offset);
                gx_store(head + c, v);
            }
        }
}

template <class T>
static void gx__cuda_head_norm(GxContext *g, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *s)
{
    enum { N = GxPack<T>::N };
    const bool wide = gx_wide<T>(s->head_dim, x, kept, w) && s->stride % N == 0 && s->kept_stride % N == 0;
    const unsigned blocks = gx_cuda_blocks(s->R);
    const int threads = gx_cuda_threads(s->heads * GX_WARP, GX_CUDA_BLOCK);
    const cudaStream_t stream = gx_cuda(g)->stream;
    T *in = (T *)x, *to = (T *)kept;
    const T *weight = (const T *)w;
    if (wide) GX_LAUNCH((gx__cuda_head_norm_heads<T, N>), blocks, threads, 0, stream, in, to, rstd, weight, *s);
    else GX_LAUNCH((gx__cuda_head_norm_heads<T, 1>), blocks, threads, 0, stream, in, to, rstd, weight, *s);
    gx_cuda_check(g, "head_norm_forward");
}

void gx_cuda_head_norm_forward(GxContext *g, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *s)
{
    GX_CUDA_TYPES(s->dtype, gx__cuda_head_norm, g, x, kept, rstd, w, s);
}

// dx[r,k,c] = dy[r,k,c]*w[c]*rstd[r,k] - x[r,k,c]*a,  dy is in dx, x in kept,
//             a = rstd[r,k]^3/h * sum_j dy[r,k,j]*w[j]*x[r,k,j],  with w for w + offset
// dw[c]     = (accumulate ? dw[c] : 0) + sum_r sum_k dy[r,k,c]*x[r,k,c]*rstd[r,k]
// A block takes the heads of GX_NORM_BLOCK rows. Each of its warps has a share of dw in shared memory (head_dim*4
// bytes); their sum is the block's share. If not even one fits, the block is one warp, which accumulates its share in
// part[b, head_dim] directly. part NULL: dw is not needed.
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_head_norm_backward_heads(T *dx, float *part, const T *kept, const float *rstd, const T *w, GxHeadNorm s,
                                      int shared_shares)
{
    GX_DYNAMIC_SHARED(float, shared);
    const int warp = (int)threadIdx.x / GX_WARP, warps = (int)blockDim.x / GX_WARP;
    const int64_t first = (int64_t)(threadIdx.x % GX_WARP) * N, step = GX_WARP * N, h = s.head_dim,
                  begin = (int64_t)blockIdx.x * GX_NORM_BLOCK;
    const int heads = (int)s.heads, rows = s.R - begin < GX_NORM_BLOCK ? (int)(s.R - begin) : (int)GX_NORM_BLOCK;
    float *share = !part || shared_shares ? shared + warp * h : part + blockIdx.x * h, d[N], v[N], u[N];
    for (int64_t c = first; part && c < h; c += step)
        for (int j = 0; j < N; j++) share[c + j] = 0; // also for a warp without a head
    for (int i = warp; i < rows * heads; i += warps) {
        const int64_t r = begin + i / heads, column = i % heads * h;
        T *head = dx + r * s.stride + column;
        const T *before = kept + r * s.kept_stride + column;
        const float scale = rstd[r * heads + i % heads];
        float dot = 0;
        for (int64_t c = first; c < h; c += step) {
            gx_load(d, head + c);
            gx_load(v, before + c);
            gx_load(u, w + c);
            for (int j = 0; j < N; j++) dot += d[j] * (u[j] + s.offset) * v[j];
            for (int j = 0; part && j < N; j++) share[c + j] += d[j] * v[j] * scale;
        }
        const float a = gx_warp_sum(dot) * scale * scale * scale / (float)h;
        for (int64_t c = first; c < h; c += step) {
            gx_load(d, head + c);
            gx_load(v, before + c);
            gx_load(u, w + c);
            for (int j = 0; j < N; j++) d[j] = d[j] * (u[j] + s.offset) * scale - v[j] * a;
            gx_store(head + c, d);
        }
    }
    if (!part || !shared_shares) return;
    __syncthreads();
    for (int64_t c = threadIdx.x; c < h; c += blockDim.x) {
        float sum = 0;
        for (int i = 0; i < warps; i++) sum += shared[i * h + c];
        part[blockIdx.x * h + c] = sum;
    }
}

template <class T>
static void gx__cuda_head_norm_backward(GxContext *g, void *dx, float *part, const void *kept, const float *rstd,
                                        const void *w, const GxHeadNorm *s)
{
    enum { N = GxPack<T>::N, WARPS = GX_CUDA_BLOCK / GX_WARP };
    const bool wide = gx_wide<T>(s->head_dim, dx, kept, w) && s->stride % N == 0 && s->kept_stride % N == 0;
    const int64_t fit = GX_CUDA_SHARED / (4 * s->head_dim); // shares
    const int warps = part ? (int)gx_min(WARPS, gx_max(1, fit)) : WARPS;
    const int64_t bytes = part && fit ? warps * s->head_dim * 4 : 0;
    const unsigned blocks = (unsigned)gx_ceil_div(s->R, GX_NORM_BLOCK);
    const cudaStream_t stream = gx_cuda(g)->stream;
    T *d = (T *)dx;
    const T *before = (const T *)kept, *weight = (const T *)w;
    if (wide)
        GX_LAUNCH((gx__cuda_head_norm_backward_heads<T, N>), blocks, warps * GX_WARP, bytes, stream, d, part, before,
                  rstd, weight, *s, fit > 0);
    else
        GX_LAUNCH((gx__cuda_head_norm_backward_heads<T, 1>), blocks, warps * GX_WARP, bytes, stream, d, part, before,
                  rstd, weight, *s, fit > 0);
}

void gx_cuda_head_norm_backward(GxContext *g, void *dx, float *dw, const void *kept, const float *rstd, const void *w,
                                const GxHeadNorm *s, int accumulate, float *scratch)
{
    float *part = dw ? scratch : NULL; // [blocks, head_dim]
    GX_CUDA_TYPES(s->dtype, gx__cuda_head_norm_backward, g, dx, part, kept, rstd, w, s);
    if (dw) {
        const GxCudaColumnSums sum = {{dw}, {part}};
        gx__cuda_column_sums_finish(g, &sum, gx_ceil_div(s->R, GX_NORM_BLOCK), s->head_dim, accumulate);
    }
    gx_cuda_check(g, "head_norm_backward");
}

// ---- layer norm ----------------------------------------------------------------------------------------------------
// These kernels also serve ops/residual.h. The input comes from a Source: x, or a sum that is computed on the fly. dx
// goes to a Sink: it is stored, or stored and, after dropout, stored once more.

// Rows of x.
template <class T> struct GxNormSource {
    const T *x;
    int64_t C;
    __device__ uint64_t begin(int64_t r) const { return (void)r, 0; }
    template <int N> __device__ void at(float (&v)[N], int64_t r, int64_t c, uint64_t) const
    {
        gx_load(v, x + r * C + c);
    }
    __device__ const T *again(int64_t r) const { return x + r * C; } // where a row can be read again
};

// y[r,c] = (v[r,c] - mean[r]) * rstd[r] * w[c] + b[c], v from the source, rounded as it is stored
// A block per row, with one thread per pack, at most 512. The row is kept in shared memory (C*size bytes) until its
// mean and then its rstd are known; a row that does not fit is read again. mean, rstd NULL: not needed.
template <class T, int N, class Source>
static __global__ void __launch_bounds__(GX_NORM_THREADS)
    gx__cuda_layer_norm_rows(Source source, T *y, float *mean, float *rstd, const T *w, const T *b, int64_t R,
                             int64_t C, float eps, int keep)
{
    GX_DYNAMIC_SHARED(T, row);
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N;
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *kept = keep ? row : source.again(r); // a thread reads only what it wrote or read itself
        const uint64_t begin = source.begin(r);
        float sum = 0, squares = 0, v[N], u[N], o[N];
        for (int64_t c = first; c < C; c += step) {
            source.at(v, r, c, begin);
            if (keep) gx_store(row + c, v);
            for (int i = 0; i < N; i++) sum += v[i];
        }
        const float m = gx_block_sum(sum) / (float)C;
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, kept + c);
            for (int i = 0; i < N; i++) squares += (v[i] - m) * (v[i] - m);
        }
        const float scale = 1.0f / sqrtf(gx_block_sum(squares) / (float)C + eps);
        if (threadIdx.x == 0 && mean) mean[r] = m;
        if (threadIdx.x == 0 && rstd) rstd[r] = scale;
        for (int64_t c = first; c < C; c += step) {
            gx_load(v, kept + c);
            gx_load(u, w + c);
            gx_load(o, b + c);
            for (int i = 0; i < N; i++) v[i] = (v[i] - m) * scale * u[i] + o[i];
            gx_store(y + r * C + c, v);
        }
    }
}

static inline int gx__cuda_keeps_row(int64_t C, int64_t size) { return C * size <= GX_CUDA_SHARED; }

template <class T, int N, class Source>
static void gx__cuda_launch_layer_norm(GxContext *g, const Source &source, T *y, float *mean, float *rstd, const T *w,
                                       const T *b, int64_t R, int64_t C, float eps)
{
    const int keep = gx__cuda_keeps_row(C, sizeof(T));
    GX_LAUNCH((gx__cuda_layer_norm_rows<T, N, Source>), gx_cuda_blocks(R),
              gx_cuda_threads(gx_ceil_div(C, N), GX_NORM_THREADS), keep ? C * sizeof(T) : 0, gx_cuda(g)->stream, source,
              y, mean, rstd, w, b, R, C, eps, keep);
}
template <class T>
static void gx__cuda_layer_norm(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w,
                                const void *b, int64_t R, int64_t C, float eps)
{
    const GxNormSource<T> source = {(const T *)x, C};
    T *out = (T *)y;
    const T *weight = (const T *)w, *bias = (const T *)b;
    if (gx_wide<T>(C, y, x, w, b))
        gx__cuda_launch_layer_norm<T, GxPack<T>::N>(g, source, out, mean, rstd, weight, bias, R, C, eps);
    else gx__cuda_launch_layer_norm<T, 1>(g, source, out, mean, rstd, weight, bias, R, C, eps);
    gx_cuda_check(g, "layer_norm_forward");
}

void gx_cuda_layer_norm_forward(GxContext *g, void *y, float *mean, float *rstd, const void *x, const void *w,
                                const void *b, int64_t R, int64_t C, float eps, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_layer_norm, g, y, mean, rstd, x, w, b, R, C, eps);
}

// ---- backward, of RMSNorm and layer norm ---------------------------------------------------------------------------
// With n = (x - mean)*rstd and d = dy*w: dx[r,c] = rstd[r] * (d[r,c] - mean_j d[r,j] - n[r,c] * mean_j d[r,j]*n[r,j])
// dw[c] = (accumulate ? dw[c] : 0) + sum_r dy[r,c]*n[r,c], db[c] likewise with sum_r dy[r,c]
// RMSNorm has no mean: n = x*rstd, and the mean of d is not subtracted.
// A block takes its rows, some at a time, and writes its shares of the sums over rows; then the shares are summed.

enum { GX_SHARE_DW, GX_SHARE_DB, GX_SHARE_SINK, GX_SHARES }; // dw, db, the sink's (a bias's gradient)
struct GxCudaShares {
    float *part[GX_SHARES]; // [blocks, C] each; NULL: not needed
};

enum { GX_NORM_NARROW = 1024 };    // columns at most
enum { GX_NORM_MAX_SHARES = 256 }; // for any number of rows, on every GPU
static inline int64_t gx__cuda_norm_rows(int64_t R) // rows of a block
{
    return gx_max(GX_NORM_BLOCK, gx_ceil_div(R, GX_NORM_MAX_SHARES));
}

struct GxCudaPair {
    float a, b;
};
static __device__ __forceinline__ GxCudaPair gx_warp_sums(GxCudaPair x) { return {gx_warp_sum(x.a), gx_warp_sum(x.b)}; }
static __device__ __forceinline__ GxCudaPair gx_block_sums(GxCudaPair x)
{
    const GxCudaPair none = {0, 0};
    return gx_block_combine(x, none, [](GxCudaPair v) { return gx_warp_sums(v); });
}

// N elements as they are stored, loaded in one access. They stay words until they are used, since unpacking bf16 would
// wait for the load; bf16 is the upper half of fp32.
template <class T, int N> struct alignas(N * sizeof(T)) [[gnu::may_alias]] GxCudaSome {
    unsigned word[N * sizeof(T) / sizeof(unsigned)];
    __device__ float operator[](int i) const
    {
        if constexpr (sizeof(T) == sizeof(float)) return __uint_as_float(word[i]);
        else return __uint_as_float(i % 2 ? word[i / 2] & 0xffff0000u : word[i / 2] << 16);
    }
};

// A sink adds to dx, and stores it if it is needed. SUMS: the number of sums over rows: dw; with a mean also db; and
// the sink's own. MOST: the most elements of a row that a thread takes, so that they and their sums over rows stay in
// its registers. FEW: the same for rows that are not narrow but for which this is enough; then there are registers to
// read the next row, and what is added (Ahead), early. 0: there is no such form. docs/visits.md has measurements.
template <class T> struct GxRmsSink {
    enum { HAS_MEAN = 0, SUMS = 1, MOST = 24, FEW = 8 };
    T *dx;
    const T *dresidual; // NULL: none
    int64_t C;
    template <int N> using Ahead = GxCudaSome<T, N>;
    __device__ uint64_t begin(int64_t r) const { return (void)r, 0; }
    template <int N> __device__ void ahead(Ahead<N> *u, int64_t r, int64_t c) const
    {
        if (dresidual) *u = *reinterpret_cast<const Ahead<N> *>(dresidual + r * C + c);
    }
    template <int N> __device__ void add(float (&v)[N], const Ahead<N> &u) const
    {
        for (int i = 0; dresidual && i < N; i++) v[i] += u[i];
    }
    template <int N> __device__ void add(float (&v)[N], int64_t r, int64_t c) const
    {
        float u[N];
        if (!dresidual) return;
        gx_load(u, dresidual + r * C + c);
        for (int i = 0; i < N; i++) v[i] += u[i];
    }
    template <int N> __device__ void at(float (&v)[N], int64_t r, int64_t c, uint64_t) const
    {
        gx_store(dx + r * C + c, v);
    }
};
// A sink that adds nothing.
struct GxStoreSink {
    struct Nothing {};
    enum { MOST = 16, FEW = 0 };
    template <int N> using Ahead = Nothing;
    template <int N> __device__ void add(float (&)[N], int64_t, int64_t) const {}
};
template <class T> struct GxNormSink : GxStoreSink {
    enum { HAS_MEAN = 1, SUMS = 2 };
    T *dx;
    int64_t C;
    __device__ uint64_t begin(int64_t r) const { return (void)r, 0; }
    template <int N> __device__ void at(float (&v)[N], int64_t r, int64_t c, uint64_t) const
    {
        if (dx) gx_store(dx + r * C + c, v);
    }
};

// The rows whose gradient is computed; w NULL: no norm, dy itself goes to the sink.
template <class T> struct GxCudaNormed {
    const T *dy, *x, *w;
    const float *mean, *rstd;
    int64_t R, C, rows; // rows: of a block
    float offset;       // of an RMS norm, added to w
};

// u = w + offset; only RMS norms have an offset.
template <class Sink, class T, int N>
static __device__ __forceinline__ void gx__cuda_norm_weight(float (&u)[N], const GxCudaNormed<T> &f, int64_t c)
{
    gx_load(u, f.w + c);
    if constexpr (!Sink::HAS_MEAN)
        for (int i = 0; i < N; i++) u[i] += f.offset;
}

// The sums of a row over the `warps` adjacent warps that have it. Two buffers alternate, so that neither is written
// while it is still being read.
static __device__ __forceinline__ GxCudaPair gx__cuda_row_sums(GxCudaPair x, GxCudaPair *of_warp, int warps)
{
    const int lane = (int)threadIdx.x % GX_WARP, warp = (int)threadIdx.x / GX_WARP;
    x = gx_warp_sums(x);
    if (warps == 1) return x;
    if (lane == 0) of_warp[warp] = x;
    __syncthreads();
    const GxCudaPair none = {0, 0};
    return gx_warp_sums(lane < warps ? of_warp[warp / warps * warps + lane] : none);
}

// part[c] = the sum, in order, over the rows that are taken at a time; shared: at_once*C floats if there are several.
template <int PACKS, int N>
static __device__ __forceinline__ void gx__cuda_give_share(float *part, float *shared, const float (&sum)[PACKS][N],
                                                           int64_t C, int lanes)
{
    const int row = (int)threadIdx.x / lanes, at_once = (int)blockDim.x / lanes;
    float *to = at_once == 1 ? part : shared + row * C;
    __syncthreads(); // the previous share has been read
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int64_t c = (int64_t)(threadIdx.x % lanes + k * lanes) * N;
        if (c < C) gx_store(to + c, sum[k]);
    }
    if (at_once == 1) return;
    __syncthreads();
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
        float total = 0;
        for (int i = 0; i < at_once; i++) total += shared[i * C + c];
        part[c] = total;
    }
}

// A thread's part of a row: its elements as they are stored.
template <class T, int N, int PACKS, class Sink> struct GxCudaNormRow {
    GxCudaSome<T, N> dy[PACKS], x[PACKS];
    typename Sink::template Ahead<N> ahead[PACKS];
    float mean, rstd;
    int64_t columns; // 0: this round has no such row
};

// Calls f(k, c) for each of a thread's packs: pack k, at column c.
template <int PACKS, int N, class F>
static __device__ __forceinline__ void gx__cuda_each_pack(int64_t columns, int lanes, F f)
{
    const int lane = (int)threadIdx.x % lanes;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int64_t c = (int64_t)(lane + k * lanes) * N;
        if (c < columns) f(k, c);
    }
}

// Computes one row: its sums over columns, dx, and what it adds to the sums over rows. All threads of the block must
// call it.
template <class T, int N, int PACKS, class Sink>
static __device__ __forceinline__ void
gx__cuda_norm_backward_row(const Sink &sink, const GxCudaNormed<T> &f, const GxCudaNormRow<T, N, PACKS, Sink> &row,
                           float (&sum)[Sink::SUMS][PACKS][N], GxCudaPair *of_warp, int64_t r, int lanes)
{
    GxCudaPair sums = {0, 0};
    const uint64_t drawn = row.columns ? sink.begin(r) : 0;
    float d[N], u[N];
    const auto normed = [&](int k, int i) { return (row.x[k][i] - row.mean) * row.rstd; };
    gx__cuda_each_pack<PACKS, N>(f.w ? row.columns : 0, lanes, [&](int k, int64_t c) {
        gx__cuda_norm_weight<Sink>(u, f, c);
        for (int i = 0; i < N; i++) {
            const float dy = row.dy[k][i], n = normed(k, i);
            sums.a += dy * u[i], sums.b += dy * u[i] * n;
            sum[GX_SHARE_DW][k][i] += dy * n;
            if constexpr (Sink::HAS_MEAN) sum[GX_SHARE_DB][k][i] += dy;
        }
    });
    if (f.w) sums = gx__cuda_row_sums(sums, of_warp, lanes / GX_WARP);
    const float of_d = Sink::HAS_MEAN ? sums.a / (float)f.C : 0, of_dn = sums.b / (float)f.C;
    gx__cuda_each_pack<PACKS, N>(row.columns, lanes, [&](int k, int64_t c) {
        for (int i = 0; i < N; i++) d[i] = row.dy[k][i];
        if (f.w) {
            gx__cuda_norm_weight<Sink>(u, f, c);
            for (int i = 0; i < N; i++) d[i] = row.rstd * (d[i] * u[i] - of_d - normed(k, i) * of_dn);
        }
        if constexpr (PACKS * N <= (int)Sink::FEW) sink.add(d, row.ahead[k]);
        else sink.add(d, r, c);
        sink.at(d, r, c, drawn);
        if constexpr ((int)Sink::SUMS > (int)GX_SHARE_SINK)
            for (int i = 0; i < N; i++) sum[GX_SHARE_SINK][k][i] += d[i];
    });
}

// Reads this thread's part of row r < end.
template <class T, int N, int PACKS, class Sink>
static __device__ __forceinline__ void gx__cuda_norm_backward_read(GxCudaNormRow<T, N, PACKS, Sink> *row,
                                                                   const Sink &sink, const GxCudaNormed<T> &f,
                                                                   int64_t r, int64_t end, int lanes)
{
    typedef GxCudaSome<T, N> Some;
    row->columns = r < end ? f.C : 0;
    row->mean = row->columns && f.w && Sink::HAS_MEAN ? f.mean[r] : 0;
    row->rstd = row->columns && f.w ? f.rstd[r] : 0;
    gx__cuda_each_pack<PACKS, N>(row->columns, lanes, [&](int k, int64_t c) {
        row->dy[k] = *reinterpret_cast<const Some *>(f.dy + r * f.C + c);
        if (f.w) row->x[k] = *reinterpret_cast<const Some *>(f.x + r * f.C + c);
        if constexpr (PACKS * N <= (int)Sink::FEW) sink.template ahead<N>(&row->ahead[k], r, c);
    });
}

// A row has `lanes` threads, in whole warps; each reads its elements once and keeps them and their sums in registers: C
// <= lanes*ELEMENTS. A block with threads for several rows takes as many at a time. If there are few elements, the next
// row is read before the current one is computed.
template <class T, int N, int ELEMENTS, class Sink>
static __global__ void __launch_bounds__(GX_NORM_THREADS)
    gx__cuda_norm_backward_rows(Sink sink, GxCudaShares shares, GxCudaNormed<T> f, int lanes)
{
    enum { PACKS = ELEMENTS / N, READS_AHEAD = ELEMENTS <= (int)Sink::FEW };
    GX_DYNAMIC_SHARED(float, shared);
    GX_SHARED(GxCudaPair, of_warp, [2][GX_CUDA_MAX_WARPS]);
    const int at_once = (int)blockDim.x / lanes, first = (int)threadIdx.x / lanes;
    const int64_t begin = (int64_t)blockIdx.x * f.rows, end = begin + f.rows < f.R ? begin + f.rows : f.R;
    float sum[Sink::SUMS][PACKS][N] = {};
    GxCudaNormRow<T, N, PACKS, Sink> row, next;
    if (READS_AHEAD) gx__cuda_norm_backward_read(&next, sink, f, begin + first, end, lanes);
    for (int64_t i = 0; begin + i < end; i += at_once) {
        const int64_t r = begin + i + first;
        if (READS_AHEAD) row = next, gx__cuda_norm_backward_read(&next, sink, f, r + at_once, end, lanes);
        else gx__cuda_norm_backward_read(&row, sink, f, r, end, lanes);
        gx__cuda_norm_backward_row<T, N, PACKS>(sink, f, row, sum, of_warp[i / at_once % 2], r, lanes);
    }
#pragma unroll
    for (int k = 0; k < Sink::SUMS; k++)
        if (shares.part[k])
            gx__cuda_give_share<PACKS, N>(shares.part[k] + blockIdx.x * f.C, shared, sum[k], f.C, lanes);
}

// share[c..] = (begins ? 0 : share[c..]) + v
template <int N> static __device__ __forceinline__ void gx__cuda_share(float *share, const float (&v)[N], bool begins)
{
    float s[N];
    for (int i = 0; i < N; i++) s[i] = (begins ? 0 : share[i]) + v[i];
    gx_store(share, s);
}

// For rows longer than GX_NORM_THREADS*MOST, which a block's registers cannot hold, and for rows that do not consist of
// whole packs, whose sums would be spilled. Rows are processed one after the other, and shares accumulate in memory; dy
// and x are read a second time from a cache.
template <class T, int N, class Sink>
static __global__ void __launch_bounds__(GX_NORM_THREADS)
    gx__cuda_norm_backward_long_rows(Sink sink, GxCudaShares shares, GxCudaNormed<T> f)
{
    const int64_t first = (int64_t)threadIdx.x * N, step = (int64_t)blockDim.x * N, C = f.C,
                  begin = (int64_t)blockIdx.x * f.rows;
    float *share[GX_SHARES], d[N], n[N], u[N];
    for (int k = 0; k < GX_SHARES; k++) share[k] = shares.part[k] ? shares.part[k] + blockIdx.x * C : NULL;
    for (int64_t r = begin; r < f.R && r < begin + f.rows; r++) {
        const float m = f.w && Sink::HAS_MEAN ? f.mean[r] : 0, scale = f.w ? f.rstd[r] : 0;
        const uint64_t drawn = sink.begin(r);
        GxCudaPair sums = {0, 0};
        for (int64_t c = first; f.w && c < C; c += step) {
            gx_load(d, f.dy + r * C + c);
            gx_load(n, f.x + r * C + c);
            gx__cuda_norm_weight<Sink>(u, f, c);
            if (share[GX_SHARE_DB]) gx__cuda_share(share[GX_SHARE_DB] + c, d, r == begin);
            for (int i = 0; i < N; i++) {
                n[i] = (n[i] - m) * scale;
                sums.a += d[i] * u[i], sums.b += d[i] * u[i] * n[i];
                n[i] *= d[i];
            }
            if (share[GX_SHARE_DW]) gx__cuda_share(share[GX_SHARE_DW] + c, n, r == begin);
        }
        if (f.w) sums = gx_block_sums(sums);
        const float of_d = Sink::HAS_MEAN ? sums.a / (float)C : 0, of_dn = sums.b / (float)C;
        for (int64_t c = first; c < C; c += step) {
            gx_load(d, f.dy + r * C + c);
            if (f.w) {
                gx_load(n, f.x + r * C + c);
                gx__cuda_norm_weight<Sink>(u, f, c);
                for (int i = 0; i < N; i++) d[i] = scale * (d[i] * u[i] - of_d - (n[i] - m) * scale * of_dn);
            }
            sink.add(d, r, c);
            sink.at(d, r, c, drawn);
            if (share[GX_SHARE_SINK]) gx__cuda_share(share[GX_SHARE_SINK] + c, d, r == begin);
        }
    }
}

// false: a row is longer than GX_NORM_THREADS threads with ELEMENTS each can hold.
template <class T, int N, int ELEMENTS, class Sink>
static bool gx__cuda_launch_norm_rows(GxContext *g, const Sink &sink, const GxCudaShares &shares,
                                      const GxCudaNormed<T> &f)
{
    const unsigned blocks = (unsigned)gx_ceil_div(f.R, f.rows);
    int lanes = GX_WARP;
    while (lanes < GX_NORM_THREADS && lanes * (int64_t)ELEMENTS < f.C) lanes *= 2;
    if (lanes * (int64_t)ELEMENTS < f.C) return false;
    const int threads = (int)gx_max(lanes, GX_CUDA_BLOCK), at_once = threads / lanes;
    const int64_t bytes = at_once > 1 ? at_once * f.C * 4 : 0; // 24 KiB at most
    GX_LAUNCH((gx__cuda_norm_backward_rows<T, N, ELEMENTS, Sink>), blocks, threads, bytes, gx_cuda(g)->stream, sink,
              shares, f, lanes);
    return true;
}
template <class T, int N, class Sink>
static void gx__cuda_launch_norm_backward(GxContext *g, const Sink &sink, const GxCudaShares &shares,
                                          const GxCudaNormed<T> &f)
{
    if constexpr (N > 1 && (int)Sink::FEW > 0)
        if (f.C > GX_NORM_NARROW && gx__cuda_launch_norm_rows<T, N, Sink::FEW>(g, sink, shares, f)) return;
    if constexpr (N > 1)
        if (gx__cuda_launch_norm_rows<T, N, Sink::MOST>(g, sink, shares, f)) return;
    GX_LAUNCH((gx__cuda_norm_backward_long_rows<T, N, Sink>), (unsigned)gx_ceil_div(f.R, f.rows),
              gx_cuda_threads(gx_ceil_div(f.C, N), GX_NORM_THREADS), 0, gx_cuda(g)->stream, sink, shares, f);
}
template <class T, class Sink>
static void gx__cuda_norm_backward(GxContext *g, const Sink &sink, const GxCudaShares &shares, const GxCudaNormed<T> &f,
                                   bool wide)
{
    const float *const *part = shares.part;
    if (wide && gx_wide<T>(f.C, f.dy, f.w ? f.x : NULL, f.w, part[0], part[1], part[2]))
        gx__cuda_launch_norm_backward<T, GxPack<T>::N>(g, sink, shares, f);
    else gx__cuda_launch_norm_backward<T, 1>(g, sink, shares, f);
}

// The places of the shares in the scratch, for the sums that are needed.
static inline GxCudaShares gx__cuda_shares(float *scratch, float *const sums[GX_SHARES], int64_t R, int64_t C)
{
    GxCudaShares s = GX_ZERO;
    for (int k = 0; k < GX_SHARES; k++) {
        s.part[k] = sums[k] ? scratch : NULL;
        if (sums[k]) scratch += gx_ceil_div(R, gx__cuda_norm_rows(R)) * C;
    }
    return s;
}
static inline void gx__cuda_sum_shares(GxContext *g, const char *name, float *const sums[GX_SHARES],
                                       const GxCudaShares *shares, int64_t R, int64_t C, int accumulate)
{
    GxCudaColumnSums s = GX_ZERO;
    for (int k = 0; k < GX_SHARES; k++) s.sum[k] = sums[k], s.part[k] = shares->part[k];
    gx__cuda_column_sums_finish(g, &s, gx_ceil_div(R, gx__cuda_norm_rows(R)), C, accumulate);
    gx_cuda_check(g, name);
}

template <class T>
static void gx__cuda_rms_norm_backward(GxContext *g, void *dx, const GxCudaShares *shares, const void *dy,
                                       const void *dresidual, const void *x, const float *rstd, const void *w,
                                       float offset, int64_t R, int64_t C)
{
    const GxRmsSink<T> sink = {(T *)dx, (const T *)dresidual, C};
    const GxCudaNormed<T> f = {(const T *)dy, (const T *)x, (const T *)w,          NULL,  rstd,
                               R,             C,            gx__cuda_norm_rows(R), offset};
    gx__cuda_norm_backward(g, sink, *shares, f, gx_wide<T>(C, dx, dresidual));
}

void gx_cuda_rms_norm_backward(GxContext *g, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                               const float *rstd, const void *w, float offset, int64_t R, int64_t C, int accumulate,
                               GxDtype dtype, float *scratch)
{
    float *const sums[GX_SHARES] = {dw, NULL, NULL};
    const GxCudaShares shares = gx__cuda_shares(scratch, sums, R, C);
    GX_CUDA_TYPES(dtype, gx__cuda_rms_norm_backward, g, dx, &shares, dy, dresidual, x, rstd, w, offset, R, C);
    gx__cuda_sum_shares(g, "rms_norm_backward", sums, &shares, R, C, accumulate);
}

template <class T>
static void gx__cuda_layer_norm_backward(GxContext *g, void *dx, const GxCudaShares *shares, const void *dy,
                                         const void *x, const float *mean, const float *rstd, const void *w, int64_t R,
                                         int64_t C)
{
    const GxNormSink<T> sink = {{}, (T *)dx, C};
    const GxCudaNormed<T> f = {(const T *)dy, (const T *)x, (const T *)w,          mean, rstd,
                               R,             C,            gx__cuda_norm_rows(R), 0};
    gx__cuda_norm_backward(g, sink, *shares, f, gx_wide<T>(C, dx));
}

void gx_cuda_layer_norm_backward(GxContext *g, void *dx, float *dw, float *db, const void *dy, const void *x,
                                 const float *mean, const float *rstd, const void *w, int64_t R, int64_t C,
                                 int accumulate, GxDtype dtype, float *scratch)
{
    float *const sums[GX_SHARES] = {dw, db, NULL};
    const GxCudaShares shares = gx__cuda_shares(scratch, sums, R, C);
    GX_CUDA_TYPES(dtype, gx__cuda_layer_norm_backward, g, dx, &shares, dy, x, mean, rstd, w, R, C);
    gx__cuda_sum_shares(g, "layer_norm_backward", sums, &shares, R, C, accumulate);
}
#endif
