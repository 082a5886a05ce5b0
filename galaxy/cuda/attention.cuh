// cuda/attention.cuh: ops/attention.h on the GPU. Tensor cores are used where possible: attention_mma.cuh for heads of
// up to 128 in rows of whole packs of 16 bytes, in bf16, and in fp32 on GPUs with fast TF32; attention_wgmma.cuh and
// attention_wgmma_backward.cuh in bf16 on an H100, where possible, but not with a bias. This file has the kernels for
// everything else: tiled, with fp32 arithmetic on CUDA cores for every type. They are the ones to read beside the
// formulas, and the reference against which faster ones are measured. All kernels give the same log-sum-exp, so that
// one may compute the forward and another the backward.
//
// All kernels here work on tiles of rows of one head, as fp32 in shared memory. The 256 threads are 16 x 16; thread
// (tx, ty) owns the scores of rows ty, ty+16, ... and columns tx, tx+16, ... of a tile, so that 16 adjacent lanes hold
// a row of scores. A head's size is padded with zeros to HEAD = 64, 128 or 256. Tiles get smaller as HEAD grows, so
// that a block needs no more than the 99 KB of shared memory that every GPU from sm_80 on has.
//
// There are no atomic additions: dq has its own kernel, whose blocks own rows of queries, while the blocks of dk and dv
// own rows of keys; both compute the scores. With a bias by distance the blocks of dq also add up their part of dbias,
// and another kernel adds up these parts in a fixed order. The dropout mask is generated, four adjacent keys at a time,
// in the buffer that the tile's probabilities then overwrite.
#ifndef GX_CUDA_ATTENTION_CUH
#define GX_CUDA_ATTENTION_CUH
#include "attention_wgmma_backward.cuh"
GX_BEGIN

enum { GX_CUDA_MAX_HEAD = 256 }; // head_dim

int gx_cuda_attention_misses_tensor_cores(const GxContext *g, GxDtype dtype, int64_t head_dim);
int64_t gx_cuda_attention_scratch(const GxContext *g, const GxAttention *a, int backward);
void gx_cuda_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                               const GxAttention *a, void *scratch);
void gx_cuda_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o,
                                const float *lse, const void *q, const void *k, const void *v, const GxAttention *a,
                                void *scratch);
void gx_cuda_attention_merge(GxContext *g, float *o, float *lse, const void *o2, const float *lse2, int64_t rows,
                             int64_t head_dim, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_ATTENTION_IMPLEMENTED)
#define GX_CUDA_ATTENTION_IMPLEMENTED
#include <math.h>

// ---- tiles ---------------------------------------------------------------------------------------------------------

enum { GX__CUDA_SIDE = 16 };

// The blocks per multiprocessor for which a kernel's registers are limited: two, or one if shared memory has no room
// for two. A block needs `bytes` of it, and 1 KB that the system reserves.
static constexpr int gx__cuda_blocks(int bytes)
{
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870)
    const int all = 164 << 10;
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200)
    const int all = 100 << 10;
#else
    const int all = 228 << 10;
#endif
    return 2 * (bytes + 1024) <= all ? 2 : 1;
}

// Rows of a tile, and bytes of shared memory. Each row is padded by 4 floats, so that 8 lanes that read 16 bytes of 8
// adjacent rows have no bank conflicts.
template <int HEAD> struct GxCudaTiles {
    static constexpr int FORWARD = HEAD <= 128 ? 64 : 32, BACKWARD = 4096 / HEAD;
    // q; k, then v; probabilities; documents; biases
    static constexpr int FORWARD_BYTES = (2 * FORWARD * (HEAD + 4) + FORWARD * (FORWARD + 4) + 4 * FORWARD) * 4;
    // q, d_o, k, v; probabilities, then their gradients; documents; behind these biases, if there are
    static constexpr int BACKWARD_BYTES = (4 * BACKWARD * (HEAD + 4) + BACKWARD * (BACKWARD + 4) + 2 * BACKWARD) * 4,
                         BIAS_BYTES = 2 * BACKWARD * 4;
    static constexpr int FORWARD_BLOCKS = gx__cuda_blocks(FORWARD_BYTES),
                         BACKWARD_BLOCKS = gx__cuda_blocks(BACKWARD_BYTES);
    static_assert(FORWARD_BYTES <= GX__CUDA_LEAST_SHARED && BACKWARD_BYTES + BIAS_BYTES <= GX__CUDA_LEAST_SHARED,
                  "more than a card may have");
};

// Masks the scores of rows ty+16i of the documents' tile and rows tx+16j of another tile: -inf if the latter is not in
// the former's document.
template <int M, int N>
static __device__ __forceinline__ void gx__cuda_mask(float (&s)[M / GX__CUDA_SIDE][N / GX__CUDA_SIDE],
                                                     const GxCudaDocument *documents, const GxCudaAttention &p,
                                                     const GxCudaTile &other)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
    if (!p.a.documents) return;
#pragma unroll
    for (int i = 0; i < M / GX__CUDA_SIDE; i++) {
        const GxCudaDocument own = documents[ty + i * GX__CUDA_SIDE];
#pragma unroll
        for (int j = 0; j < N / GX__CUDA_SIDE; j++) {
            const int64_t position = other.position + tx + j * GX__CUDA_SIDE;
            if (position < own.begin || position >= own.end) s[i][j] = -INFINITY;
        }
    }
}

// Adds the biases of two tiles' diagonals (gx__cuda_load_bias): those of columns minus rows from 1 - M on; KEYS: the
// rows are keys, so those of rows minus columns from 1 - N on.
template <int M, int N, bool KEYS>
static __device__ __forceinline__ void gx__cuda_add_bias(float (&s)[M / GX__CUDA_SIDE][N / GX__CUDA_SIDE],
                                                         const float *biases)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
    biases += KEYS ? ty - tx + N - 1 : tx - ty + M - 1;
#pragma unroll
    for (int i = 0; i < M / GX__CUDA_SIDE; i++)
#pragma unroll
        for (int j = 0; j < N / GX__CUDA_SIDE; j++) s[i][j] += biases[(KEYS ? i - j : j - i) * GX__CUDA_SIDE];
}

// to[r][c] = from[r*stride + c], 0 if there is no row r or column c.
template <class T, int ROWS, int HEAD>
static __device__ __forceinline__ void gx__cuda_load_tile(float (*to)[HEAD + 4], const T *from, int64_t stride,
                                                          int length, const GxCudaAttention &p)
{
    enum { N = GxPack<T>::N };
    const int h = (int)p.a.head_dim;
    if (!p.packed) {
#pragma unroll 1 // the loop over packs needs the registers; unrolling this one makes them spill
        for (int i = (int)threadIdx.x; i < ROWS * HEAD; i += GX_CUDA_BLOCK) {
            const int r = i / HEAD, c = i % HEAD;
            to[r][c] = r < length && c < h ? gx_to_float(from[r * stride + c]) : 0.0f;
        }
        return;
    }
#pragma unroll(ROWS *HEAD <= 4096 ? 2 : 1) // with more loads in flight, registers spill
    for (int i = (int)threadIdx.x; i < ROWS * HEAD / N; i += GX_CUDA_BLOCK) {
        const int r = i / (HEAD / N), c = i % (HEAD / N) * N;
        GxPack<T> x = {};
        if (r < length && c < h) x = gx_load_pack(from + r * stride + c);
#pragma unroll
        for (int e = 0; e < N; e += 4) {
            const GxPack<float> four = {
                {gx_to_float(x.x[e]), gx_to_float(x.x[e + 1]), gx_to_float(x.x[e + 2]), gx_to_float(x.x[e + 3])}};
            gx_store_pack(&to[r][c + e], four);
        }
    }
}

template <class T> struct alignas(4 * sizeof(T)) GxCudaFour {
    T x[4];
};

// The inverse, from the registers of gx__cuda_accumulate: 4 columns at a time.
template <class T, int ROWS, int HEAD>
static __device__ __forceinline__ void
gx__cuda_store_tile(T *to, const float (&acc)[ROWS / GX__CUDA_SIDE][HEAD / GX__CUDA_SIDE], int64_t stride, int length,
                    const GxCudaAttention &p)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE, h = (int)p.a.head_dim;
#pragma unroll
    for (int i = 0; i < ROWS / GX__CUDA_SIDE; i++)
#pragma unroll
        for (int g = 0; g < HEAD / 64; g++) {
            const int r = ty + i * GX__CUDA_SIDE, c = g * 64 + tx * 4;
            if (r >= length) continue;
            GxCudaFour<T> four;
#pragma unroll
            for (int e = 0; e < 4; e++) four.x[e] = gx_from_float<T>(acc[i][g * 4 + e]);
            T *at = to + r * stride + c;
            if (p.packed && c < h) *reinterpret_cast<GxCudaFour<T> *>(at) = four;
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (!p.packed && c + e < h) at[e] = four.x[e];
        }
}

// ---- products of tiles ---------------------------------------------------------------------------------------------

// s = a b^T: s[i][j] = sum_c a[ty+16i][c] * b[tx+16j][c], over the h columns that are not padding
template <int M, int N, int HEAD>
static __device__ __forceinline__ void gx__cuda_scores(float (&s)[M / GX__CUDA_SIDE][N / GX__CUDA_SIDE],
                                                       const float (*a)[HEAD + 4], const float (*b)[HEAD + 4], int h)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
#pragma unroll
    for (int i = 0; i < M / GX__CUDA_SIDE; i++)
#pragma unroll
        for (int j = 0; j < N / GX__CUDA_SIDE; j++) s[i][j] = 0;
#pragma unroll 1 // more at a time would not fit into 128 registers
    for (int c = 0; c < h; c += 4) {
        GxPack<float> x[M / GX__CUDA_SIDE];
#pragma unroll
        for (int i = 0; i < M / GX__CUDA_SIDE; i++) x[i] = gx_load_pack(&a[ty + i * GX__CUDA_SIDE][c]);
#pragma unroll
        for (int j = 0; j < N / GX__CUDA_SIDE; j++) {
            const GxPack<float> y = gx_load_pack(&b[tx + j * GX__CUDA_SIDE][c]);
#pragma unroll
            for (int i = 0; i < M / GX__CUDA_SIDE; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[i][j] += x[i].x[e] * y.x[e];
        }
    }
}

// to[ty+16i][tx+16j] = s[i][j]
template <int M, int N>
static __device__ __forceinline__ void gx__cuda_put(float (*to)[N + 4],
                                                    const float (&s)[M / GX__CUDA_SIDE][N / GX__CUDA_SIDE])
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
#pragma unroll
    for (int i = 0; i < M / GX__CUDA_SIDE; i++)
#pragma unroll
        for (int j = 0; j < N / GX__CUDA_SIDE; j++) to[ty + i * GX__CUDA_SIDE][tx + j * GX__CUDA_SIDE] = s[i][j];
}

// acc += w x: acc[i][4g+e] += sum_k w[ty+16i][k] * x[k][64g+4tx+e]; a thread that has only padding, with heads below
// 64, does nothing
template <int M, int K, int HEAD>
static __device__ __forceinline__ void gx__cuda_accumulate(float (&acc)[M / GX__CUDA_SIDE][HEAD / GX__CUDA_SIDE],
                                                           const float (*w)[K + 4], const float (*x)[HEAD + 4], int h)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
    if (tx * 4 >= h) return;
    for (int k = 0; k < K; k += 4) {
        GxPack<float> of_row[M / GX__CUDA_SIDE];
#pragma unroll
        for (int i = 0; i < M / GX__CUDA_SIDE; i++) of_row[i] = gx_load_pack(&w[ty + i * GX__CUDA_SIDE][k]);
#pragma unroll
        for (int f = 0; f < 4; f++)
#pragma unroll
            for (int g = 0; g < HEAD / 64; g++) {
                const GxPack<float> four = gx_load_pack(&x[k + f][g * 64 + tx * 4]);
#pragma unroll
                for (int i = 0; i < M / GX__CUDA_SIDE; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++) acc[i][g * 4 + e] += of_row[i].x[f] * four.x[e];
            }
    }
}

// ---- dropout -------------------------------------------------------------------------------------------------------

// keep[query][key] = the factor of the probability (0: dropped), for all queries and keys of two tiles; TRANSPOSED:
// keep[key][query]. A thread samples four keys at a time, beginning at a position that is a multiple of 4.
template <int ROWS, bool TRANSPOSED>
static __device__ __forceinline__ void gx__cuda_sample_keep(float (*keep)[ROWS + 4], const GxCudaAttention &p,
                                                            const GxCudaTile &queries, const GxCudaTile &keys,
                                                            int64_t b, int64_t head)
{
    enum { DRAWS = ROWS / 4 + 1 }; // groups of four in a row; keys may begin within the first
    const uint64_t seed = p.step->seed;
    const uint32_t step = (uint32_t)p.step->step;
    const int64_t sample = p.step->first_sample + p.a.first_sample + b;
    const int before = (int)(keys.position % 4);
    for (int i = (int)threadIdx.x; i < ROWS * DRAWS; i += GX_CUDA_BLOCK) {
        const int r = i / DRAWS, draw = i % DRAWS;
        const uint64_t row = gx_dropout_query(sample, p.a.heads, p.a.head_first + head, p.a.T, queries.position + r);
        const GxRandom4 random = gx_philox(seed, row + (uint64_t)(keys.position / 4 + draw), step, p.a.site);
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const int c = draw * 4 + w - before;
            if (c < 0 || c >= ROWS) continue;
            *(TRANSPOSED ? &keep[c][r] : &keep[r][c]) = random.w[w] >= p.threshold ? p.keep : 0.0f;
        }
    }
}

// s[i][j] *= keep[ty+16i][tx+16j]: each thread reads only the elements that it will overwrite.
template <int M, int N>
static __device__ __forceinline__ void gx__cuda_drop(float (&s)[M / GX__CUDA_SIDE][N / GX__CUDA_SIDE],
                                                     const float (*keep)[N + 4], const GxCudaAttention &p)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
    if (p.a.dropout == 0) return;
#pragma unroll
    for (int i = 0; i < M / GX__CUDA_SIDE; i++)
#pragma unroll
        for (int j = 0; j < N / GX__CUDA_SIDE; j++) s[i][j] *= keep[ty + i * GX__CUDA_SIDE][tx + j * GX__CUDA_SIDE];
}

// Reductions over the 16 lanes that hold a row of scores.
static __device__ __forceinline__ float gx__cuda_row_max(float x)
{
    for (int lane = GX__CUDA_SIDE / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}
static __device__ __forceinline__ float gx__cuda_row_sum(float x)
{
    for (int lane = GX__CUDA_SIDE / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

// ---- forward -------------------------------------------------------------------------------------------------------
// For each query tile, over key tiles: s = scale * q k^T, with each row's running maximum m and sum l:
//     l = l*exp(m_old - m) + sum_j exp(s[j] - m),  o = o*exp(m_old - m) + sum_j exp(s[j] - m) v[j]
// At the end o = o/l and lse = m + log(l). With dropout exp(s[j] - m) is multiplied by keep[j] in o, not in l.

// Online softmax of a row: turns scores into probabilities relative to the new row_max (in units of log2), for those of
// the tile's `keys` that are in the band of `row`; rescales o's row and row_sum to it.
template <int N, int COLUMNS>
static __device__ __forceinline__ void gx__cuda_softmax_row(float (&s)[N], float (&o)[COLUMNS], float *row_max,
                                                            float *row_sum, const GxCudaBand &band, int row, int keys,
                                                            float scale_log2)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE;
    float m = *row_max, l = 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int key = tx + j * GX__CUDA_SIDE;
        const int visible = gx__cuda_in_band(band, row, key) && key < keys && !(s[j] == -INFINITY); // NaN is visible
        s[j] = visible ? s[j] * scale_log2 : -INFINITY;
        m = fmaxf(m, s[j]);
    }
    m = gx__cuda_row_max(m);
    const float against = m == -INFINITY ? 0.0f : m; // no key visible so far: every exp2 below is 0
#pragma unroll
    for (int j = 0; j < N; j++) {
        s[j] = exp2f(s[j] - against);
        l += s[j];
    }
    const float rescale = exp2f(*row_max - against);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) o[c] *= rescale;
    *row_sum = *row_sum * rescale + gx__cuda_row_sum(l);
    *row_max = m;
}

// Epilogue: stores o's tile and its log-sum-exp from the accumulators.
template <class T, int ROWS, int HEAD>
static __device__ __forceinline__ void
gx__cuda_forward_finish(T *o, float *lse, float (&acc)[ROWS / GX__CUDA_SIDE][HEAD / GX__CUDA_SIDE],
                        const float (&m)[ROWS / GX__CUDA_SIDE], const float (&l)[ROWS / GX__CUDA_SIDE],
                        const GxCudaAttention &p, const GxCudaTile &tile, int64_t b, int64_t head)
{
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
#pragma unroll
    for (int i = 0; i < ROWS / GX__CUDA_SIDE; i++) {
        const int r = ty + i * GX__CUDA_SIDE;
        const float inverse = l[i] != 0 ? 1.0f / l[i] : 0.0f;
#pragma unroll
        for (int c = 0; c < HEAD / GX__CUDA_SIDE; c++) acc[i][c] *= inverse;
        if (tx == 0 && r < tile.length)
            lse[((tile.row + r) * p.a.B + b) * p.a.H + head] =
                l[i] != 0 ? m[i] * GX__CUDA_LN_2 + logf(l[i]) : -INFINITY; // 0: no key was visible
    }
    gx__cuda_store_tile<T, ROWS, HEAD>(gx__cuda_head(o, tile.row, b, head, p.a.o_stride, p), acc, p.a.B * p.a.o_stride,
                                       tile.length, p);
}

template <class T, int HEAD>
static __device__ __forceinline__ void gx__cuda_forward_tile(T *o, float *lse, const T *q, const T *k, const T *v,
                                                             const GxCudaAttention &p, const GxCudaTile &tile,
                                                             int64_t b, int64_t head)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::FORWARD, N = ROWS / GX__CUDA_SIDE;
    GX_DYNAMIC_SHARED(float, shared);
    float(*qs)[HEAD + 4] = reinterpret_cast<float(*)[HEAD + 4]>(shared), (*kv)[HEAD + 4] = qs + ROWS;
    float(*ps)[ROWS + 4] = reinterpret_cast<float(*)[ROWS + 4]>(kv + ROWS);
    GxCudaDocument *documents = reinterpret_cast<GxCudaDocument *>(ps + ROWS);
    float *biases = reinterpret_cast<float *>(documents + ROWS);
    const int ty = (int)threadIdx.x / GX__CUDA_SIDE;
    const int64_t kv_head = (p.a.q_first + head) / p.group, kv_stride = (p.a.pages ? 1 : p.a.B) * p.a.kv_stride;
    float acc[N][HEAD / GX__CUDA_SIDE] = {}, m[N], l[N] = {};
#pragma unroll
    for (int i = 0; i < N; i++) m[i] = -INFINITY;
    gx__cuda_load_tile<T, ROWS, HEAD>(qs, gx__cuda_head(q, tile.row, b, head, p.a.q_stride, p), p.a.B * p.a.q_stride,
                                      tile.length, p);
    gx__cuda_load_documents<false>(documents, p, tile, b);
    for (int run = 0; run < p.a.k_runs.n; run++) {
        const GxCudaRange of = gx__cuda_of_documents(documents, p, tile, p.a.k_runs.run[run]);
        const GxCudaRange visible = gx__cuda_visible_keys(of, p, tile, p.a.k_runs.run[run]);
        GxCudaTile keys;
        for (int64_t begin = visible.begin; begin < visible.end; begin += keys.length) {
            keys = gx__cuda_key_tile<ROWS>(p, p.a.k_runs.run[run], begin);
            const int64_t row = gx__cuda_key_row(p, keys, b), at = row * p.a.kv_stride + kv_head * p.a.head_dim;
            if (row < 0) continue;
            float s[N][N];
            __syncthreads(); // the previous tile's values have been read
            if (p.a.dropout != 0) gx__cuda_sample_keep<ROWS, false>(ps, p, tile, keys, b, head);
            if (p.a.bias)
                gx__cuda_load_bias<T>(biases, p, head, keys.position - tile.position - (ROWS - 1), 2 * ROWS - 1);
            gx__cuda_load_tile<T, ROWS, HEAD>(kv, k + at, kv_stride, keys.length, p);
            __syncthreads();
            gx__cuda_scores<ROWS, ROWS, HEAD>(s, qs, kv, (int)p.a.head_dim);
            if (p.a.bias) gx__cuda_add_bias<ROWS, ROWS, false>(s, biases);
            gx__cuda_mask<ROWS, ROWS>(s, documents, p, keys);
            const GxCudaBand band = gx__cuda_band(p, tile, keys);
#pragma unroll
            for (int i = 0; i < N; i++) {
                gx__cuda_softmax_row(s[i], acc[i], &m[i], &l[i], band, ty + i * GX__CUDA_SIDE, keys.length,
                                     p.scale_log2);
            }
            gx__cuda_drop<ROWS, ROWS>(s, ps, p);
            gx__cuda_put<ROWS, ROWS>(ps, s);
            __syncthreads(); // the probabilities are stored, the keys have been read
            gx__cuda_load_tile<T, ROWS, HEAD>(kv, v + at, kv_stride, keys.length, p);
            __syncthreads();
            gx__cuda_accumulate<ROWS, ROWS, HEAD>(acc, ps, kv, (int)p.a.head_dim);
        }
    }
    gx__cuda_forward_finish<T, ROWS, HEAD>(o, lse, acc, m, l, p, tile, b, head);
}

// One block per (query tile, sample b, query head). Causal: the last tiles attend to the most keys and come first. A
// block that continues with another tile need not wait: only the scores read queries, and a barrier follows them. The
// same holds in the backward for what is loaded at the start of a tile.
template <class T, int HEAD>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK, GxCudaTiles<HEAD>::FORWARD_BLOCKS)
    gx__cuda_attention_forward(T *o, float *lse, const T *q, const T *k, const T *v,
                               const __grid_constant__ GxCudaAttention p)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::FORWARD;
    const int64_t tiles = gx__cuda_tiles(p.a.q_runs, ROWS), heads = p.a.B * p.a.H;
    for (int64_t job = blockIdx.x; job < tiles * heads; job += gridDim.x) {
        const GxCudaTile tile = gx__cuda_tile(p.a.q_runs, ROWS, tiles - 1 - job / heads);
        gx__cuda_forward_tile<T, HEAD>(o, lse, q, k, v, p, tile, job % heads / p.a.H, job % p.a.H);
    }
}

// ---- backward ------------------------------------------------------------------------------------------------------
// p = exp(s - lse), dp = d_o v^T, ds = scale*p*(dp - D), D = rowsum(d_o * o)
// dv += p^T d_o, dk += ds^T q, dq += ds k
// With dropout dp = keep*(d_o v^T) and dv += (keep*p)^T d_o; D is the same, since o includes keep.

// D[row, head]. A block takes one row at a time, and `lanes` adjacent lanes (a power of two) take one of its heads,
// each with N = 1 element or 16 bytes of elements. o and d_o are read once.
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_attention_dot(float *D, const T *d_o, const T *o, const __grid_constant__ GxCudaAttention p, int lanes)
{
    const int lane = (int)threadIdx.x % lanes, own = (int)threadIdx.x % GX_WARP / lanes, at_once = GX_WARP / lanes,
              step = (int)blockDim.x / lanes, heads = (int)p.a.H, h = (int)p.a.head_dim;
    for (int64_t row = blockIdx.x; row < p.q_rows; row += gridDim.x)
        for (int first = (int)threadIdx.x / GX_WARP * at_once; first < heads; first += step) { // of this warp
            const int head = first + own;
            const int64_t at = row * p.a.o_stride + head * h;
            float sum = 0;
            for (int c = lane * N; c < (head < heads ? h : 0); c += lanes * N) {
                float x[N], y[N];
                gx_load(x, d_o + at + c);
                gx_load(y, o + at + c);
                for (int e = 0; e < N; e++) sum += x[e] * y[e];
            }
            for (int i = lanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
            if (lane == 0 && head < heads) D[row * heads + head] = sum;
        }
}

// One (query, key) pair: the score s becomes p, dp becomes ds. A score of -inf is masked.
static __device__ __forceinline__ void gx__cuda_softmax_backward(float *s, float *dp, float lse, float D, int visible,
                                                                 const GxCudaAttention &p)
{
    visible = visible && !(*s == -INFINITY); // NaN is visible
    const float probability = visible ? exp2f(*s * p.scale_log2 - lse * GX__CUDA_LOG2_E) : 0.0f;
    *s = probability;
    *dp = probability * (*dp - D) * p.scale;
}

// With a bias registers suffice for one block per multiprocessor.
template <int HEAD, bool BIAS> static constexpr int gx__cuda_backward_blocks()
{
    return BIAS ? 1 : GxCudaTiles<HEAD>::BACKWARD_BLOCKS;
}

// Adds one query tile's contribution to dk and dv of a key tile. Scores are [key, query].
template <class T, int HEAD, bool BIAS>
static __device__ __forceinline__ void
gx__cuda_backward_keys_step(float (&dk)[GxCudaTiles<HEAD>::BACKWARD / GX__CUDA_SIDE][HEAD / GX__CUDA_SIDE],
                            float (&dv)[GxCudaTiles<HEAD>::BACKWARD / GX__CUDA_SIDE][HEAD / GX__CUDA_SIDE],
                            const float (*qs)[HEAD + 4], const float (*os)[HEAD + 4], const float (*ks)[HEAD + 4],
                            const float (*vs)[HEAD + 4], float (*ps)[GxCudaTiles<HEAD>::BACKWARD + 4],
                            const GxCudaDocument *documents, const float *biases, const float *lse, const float *D,
                            const GxCudaAttention &p, const GxCudaTile &queries, const GxCudaTile &keys)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::BACKWARD, N = ROWS / GX__CUDA_SIDE;
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
    const GxCudaBand band = gx__cuda_band(p, queries, keys);
    float s[N][N], ds[N][N];
    gx__cuda_scores<ROWS, ROWS, HEAD>(s, ks, qs, (int)p.a.head_dim);
    gx__cuda_scores<ROWS, ROWS, HEAD>(ds, vs, os, (int)p.a.head_dim);
    if (BIAS) gx__cuda_add_bias<ROWS, ROWS, true>(s, biases);
    gx__cuda_mask<ROWS, ROWS>(s, documents, p, queries);
    gx__cuda_drop<ROWS, ROWS>(ds, ps, p);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int r = tx + j * GX__CUDA_SIDE;
        const float row_lse = r < queries.length ? lse[r * p.a.B * p.a.H] : 0.0f,
                    row_D = r < queries.length ? D[r * p.a.B * p.a.H] : 0.0f;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int key = ty + i * GX__CUDA_SIDE;
            gx__cuda_softmax_backward(&s[i][j], &ds[i][j], row_lse, row_D,
                                      r < queries.length && key < keys.length && gx__cuda_in_band(band, r, key), p);
        }
    }
    gx__cuda_drop<ROWS, ROWS>(s, ps, p);
    gx__cuda_put<ROWS, ROWS>(ps, s);
    __syncthreads();
    gx__cuda_accumulate<ROWS, ROWS, HEAD>(dv, ps, os, (int)p.a.head_dim);
    __syncthreads();
    gx__cuda_put<ROWS, ROWS>(ps, ds);
    __syncthreads();
    gx__cuda_accumulate<ROWS, ROWS, HEAD>(dk, ps, qs, (int)p.a.head_dim);
}

// dk and dv of one tile of one key and value head, from all of this rank's query heads that use it; no other block
// writes them.
template <class T, int HEAD, bool BIAS>
static __device__ __forceinline__ void
gx__cuda_backward_keys_tile(T *dk, T *dv, const T *d_o, const float *lse, const float *D, const T *q, const T *k,
                            const T *v, const GxCudaAttention &p, const GxCudaTile &keys, int64_t b, int64_t kv_head)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::BACKWARD, N = ROWS / GX__CUDA_SIDE;
    GX_DYNAMIC_SHARED(float, shared);
    float(*qs)[HEAD + 4] = reinterpret_cast<float(*)[HEAD + 4]>(shared), (*os)[HEAD + 4] = qs + ROWS,
                      (*ks)[HEAD + 4] = os + ROWS, (*vs)[HEAD + 4] = ks + ROWS;
    float(*ps)[ROWS + 4] = reinterpret_cast<float(*)[ROWS + 4]>(vs + ROWS);
    GxCudaDocument *documents = reinterpret_cast<GxCudaDocument *>(ps + ROWS);
    float *biases = reinterpret_cast<float *>(documents + ROWS);
    const int64_t kv_stride = p.a.B * p.a.kv_stride, first = kv_head * p.group - p.a.q_first, end = first + p.group;
    float acc_k[N][HEAD / GX__CUDA_SIDE] = {}, acc_v[N][HEAD / GX__CUDA_SIDE] = {};
    gx__cuda_load_tile<T, ROWS, HEAD>(ks, gx__cuda_head(k, keys.row, b, kv_head, p.a.kv_stride, p), kv_stride,
                                      keys.length, p);
    gx__cuda_load_tile<T, ROWS, HEAD>(vs, gx__cuda_head(v, keys.row, b, kv_head, p.a.kv_stride, p), kv_stride,
                                      keys.length, p);
    gx__cuda_load_documents<true>(documents, p, keys, b);
    for (int64_t head = first < 0 ? 0 : first; head < (end < p.a.H ? end : p.a.H); head++)
        for (int run = 0; run < p.a.q_runs.n; run++) {
            const GxRun &rows = p.a.q_runs.run[run];
            const GxCudaRange of = gx__cuda_of_documents(documents, p, keys, rows);
            const GxCudaRange visible = gx__cuda_visible_queries(of, p, rows, keys, ROWS);
            for (int64_t begin = visible.begin; begin < visible.end; begin += ROWS) {
                const GxCudaTile queries = gx__cuda_part(rows, begin, ROWS);
                const int64_t at = (queries.row * p.a.B + b) * p.a.H + head;
                __syncthreads(); // the previous tile's queries have been read
                if (p.a.dropout != 0) gx__cuda_sample_keep<ROWS, true>(ps, p, queries, keys, b, head);
                if (BIAS)
                    gx__cuda_load_bias<T>(biases, p, head, keys.position - queries.position - (ROWS - 1), 2 * ROWS - 1);
                gx__cuda_load_tile<T, ROWS, HEAD>(qs, gx__cuda_head(q, queries.row, b, head, p.a.q_stride, p),
                                                  p.a.B * p.a.q_stride, queries.length, p);
                gx__cuda_load_tile<T, ROWS, HEAD>(os, gx__cuda_head(d_o, queries.row, b, head, p.a.o_stride, p),
                                                  p.a.B * p.a.o_stride, queries.length, p);
                __syncthreads();
                gx__cuda_backward_keys_step<T, HEAD, BIAS>(acc_k, acc_v, qs, os, ks, vs, ps, documents, biases,
                                                           lse + at, D + at, p, queries, keys);
            }
        }
    gx__cuda_store_tile<T, ROWS, HEAD>(gx__cuda_head(dk, keys.row, b, kv_head, p.a.kv_stride, p), acc_k, kv_stride,
                                       keys.length, p);
    gx__cuda_store_tile<T, ROWS, HEAD>(gx__cuda_head(dv, keys.row, b, kv_head, p.a.kv_stride, p), acc_v, kv_stride,
                                       keys.length, p);
}

// One block per (key tile, sample b, key and value head). Causal: the first tiles are visible to the most queries and
// come first.
template <class T, int HEAD, bool BIAS>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK, gx__cuda_backward_blocks<HEAD, BIAS>())
    gx__cuda_attention_backward_keys(T *dk, T *dv, const T *d_o, const float *lse, const float *D, const T *q,
                                     const T *k, const T *v, const __grid_constant__ GxCudaAttention p)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::BACKWARD;
    const int64_t tiles = gx__cuda_tiles(p.a.k_runs, ROWS), heads = p.a.B * p.a.K;
    for (int64_t job = blockIdx.x; job < tiles * heads; job += gridDim.x)
        gx__cuda_backward_keys_tile<T, HEAD, BIAS>(dk, dv, d_o, lse, D, q, k, v, p,
                                                   gx__cuda_tile(p.a.k_runs, ROWS, job / heads), job % heads / p.a.K,
                                                   job % p.a.K);
}

// Adds one key tile's contribution to dq of a query tile. Scores are [query, key].
template <class T, int HEAD, bool BIAS>
static __device__ __forceinline__ void
gx__cuda_backward_queries_step(float (&dq)[GxCudaTiles<HEAD>::BACKWARD / GX__CUDA_SIDE][HEAD / GX__CUDA_SIDE],
                               const float (*qs)[HEAD + 4], const float (*os)[HEAD + 4], const float (*ks)[HEAD + 4],
                               const float (*vs)[HEAD + 4], float (*ps)[GxCudaTiles<HEAD>::BACKWARD + 4],
                               const GxCudaDocument *documents, const float *biases, const float *lse, const float *D,
                               const GxCudaAttention &p, const GxCudaTile &queries, const GxCudaTile &keys, int64_t job)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::BACKWARD, N = ROWS / GX__CUDA_SIDE;
    const int tx = (int)threadIdx.x % GX__CUDA_SIDE, ty = (int)threadIdx.x / GX__CUDA_SIDE;
    const GxCudaBand band = gx__cuda_band(p, queries, keys);
    float s[N][N], ds[N][N];
    gx__cuda_scores<ROWS, ROWS, HEAD>(s, qs, ks, (int)p.a.head_dim);
    gx__cuda_scores<ROWS, ROWS, HEAD>(ds, os, vs, (int)p.a.head_dim);
    if (BIAS) gx__cuda_add_bias<ROWS, ROWS, false>(s, biases);
    gx__cuda_mask<ROWS, ROWS>(s, documents, p, keys);
    gx__cuda_drop<ROWS, ROWS>(ds, ps, p);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int r = ty + i * GX__CUDA_SIDE;
        const float row_lse = r < queries.length ? lse[r * p.a.B * p.a.H] : 0.0f,
                    row_D = r < queries.length ? D[r * p.a.B * p.a.H] : 0.0f;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int key = tx + j * GX__CUDA_SIDE;
            gx__cuda_softmax_backward(&s[i][j], &ds[i][j], row_lse, row_D,
                                      r < queries.length && key < keys.length && gx__cuda_in_band(band, r, key), p);
        }
    }
    gx__cuda_put<ROWS, ROWS>(ps, ds);
    __syncthreads();
    gx__cuda_accumulate<ROWS, ROWS, HEAD>(dq, ps, ks, (int)p.a.head_dim);
    const int part = (int)threadIdx.x / GX_WARP, first = part * GX__CUDA_PART; // row of this warp
    if (BIAS && p.dbias_parts && first < ROWS)
        gx__cuda_add_dbias<ROWS>(gx__cuda_dbias_part(p, job, ROWS / GX__CUDA_PART, part), ps + first,
                                 keys.position - queries.position - first, p.inverse_scale, p);
}

template <class T, int HEAD, bool BIAS>
static __device__ __forceinline__ void
gx__cuda_backward_queries_tile(T *dq, const T *d_o, const float *lse, const float *D, const T *q, const T *k,
                               const T *v, const GxCudaAttention &p, const GxCudaTile &queries, int64_t b, int64_t head,
                               int64_t job)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::BACKWARD, N = ROWS / GX__CUDA_SIDE;
    GX_DYNAMIC_SHARED(float, shared);
    float(*qs)[HEAD + 4] = reinterpret_cast<float(*)[HEAD + 4]>(shared), (*os)[HEAD + 4] = qs + ROWS,
                      (*ks)[HEAD + 4] = os + ROWS, (*vs)[HEAD + 4] = ks + ROWS;
    float(*ps)[ROWS + 4] = reinterpret_cast<float(*)[ROWS + 4]>(vs + ROWS);
    GxCudaDocument *documents = reinterpret_cast<GxCudaDocument *>(ps + ROWS);
    float *biases = reinterpret_cast<float *>(documents + ROWS);
    const int64_t kv_head = (p.a.q_first + head) / p.group, kv_stride = p.a.B * p.a.kv_stride,
                  q_stride = p.a.B * p.a.q_stride;
    const int64_t at = (queries.row * p.a.B + b) * p.a.H + head;
    float acc[N][HEAD / GX__CUDA_SIDE] = {};
    gx__cuda_load_tile<T, ROWS, HEAD>(qs, gx__cuda_head(q, queries.row, b, head, p.a.q_stride, p), q_stride,
                                      queries.length, p);
    gx__cuda_load_tile<T, ROWS, HEAD>(os, gx__cuda_head(d_o, queries.row, b, head, p.a.o_stride, p),
                                      p.a.B * p.a.o_stride, queries.length, p);
    gx__cuda_load_documents<false>(documents, p, queries, b);
    if (BIAS && p.dbias_parts && (int)threadIdx.x < ROWS / GX__CUDA_PART * GX_WARP)
        gx__cuda_clear_dbias(gx__cuda_dbias_part(p, job, ROWS / GX__CUDA_PART, (int)threadIdx.x / GX_WARP), p);
    for (int run = 0; run < p.a.k_runs.n; run++) {
        const GxCudaRange of = gx__cuda_of_documents(documents, p, queries, p.a.k_runs.run[run]);
        const GxCudaRange visible = gx__cuda_visible_keys(of, p, queries, p.a.k_runs.run[run]);
        for (int64_t begin = visible.begin; begin < visible.end; begin += ROWS) {
            const GxCudaTile keys = gx__cuda_part(p.a.k_runs.run[run], begin, ROWS);
            __syncthreads(); // the previous tile's keys have been read
            if (p.a.dropout != 0) gx__cuda_sample_keep<ROWS, false>(ps, p, queries, keys, b, head);
            if (BIAS)
                gx__cuda_load_bias<T>(biases, p, head, keys.position - queries.position - (ROWS - 1), 2 * ROWS - 1);
            gx__cuda_load_tile<T, ROWS, HEAD>(ks, gx__cuda_head(k, keys.row, b, kv_head, p.a.kv_stride, p), kv_stride,
                                              keys.length, p);
            gx__cuda_load_tile<T, ROWS, HEAD>(vs, gx__cuda_head(v, keys.row, b, kv_head, p.a.kv_stride, p), kv_stride,
                                              keys.length, p);
            __syncthreads();
            gx__cuda_backward_queries_step<T, HEAD, BIAS>(acc, qs, os, ks, vs, ps, documents, biases, lse + at, D + at,
                                                          p, queries, keys, job);
        }
    }
    gx__cuda_store_tile<T, ROWS, HEAD>(gx__cuda_head(dq, queries.row, b, head, p.a.q_stride, p), acc, q_stride,
                                       queries.length, p);
}

// One block per (query tile, sample b, query head), those that attend to the most keys first.
template <class T, int HEAD, bool BIAS>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK, gx__cuda_backward_blocks<HEAD, BIAS>())
    gx__cuda_attention_backward_queries(T *dq, const T *d_o, const float *lse, const float *D, const T *q, const T *k,
                                        const T *v, const __grid_constant__ GxCudaAttention p)
{
    constexpr int ROWS = GxCudaTiles<HEAD>::BACKWARD;
    const int64_t tiles = gx__cuda_tiles(p.a.q_runs, ROWS), heads = p.a.B * p.a.H;
    for (int64_t job = blockIdx.x; job < tiles * heads; job += gridDim.x)
        gx__cuda_backward_queries_tile<T, HEAD, BIAS>(dq, d_o, lse, D, q, k, v, p,
                                                      gx__cuda_tile(p.a.q_runs, ROWS, tiles - 1 - job / heads),
                                                      job % heads / p.a.H, job % p.a.H, job);
}

// dbias from the sums of all parts: n of a head, in jobs of `parts`. A warp adds up every GX_CUDA_BLOCK/GX_WARP-th part
// of 32 rows of one head; then the warps' sums are added in order.
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_attention_dbias(int64_t n, int parts, const __grid_constant__ GxCudaAttention p)
{
    enum { WARPS = GX_CUDA_BLOCK / GX_WARP };
    GX_SHARED(float, sums, [WARPS][GX_WARP]);
    const int warp = (int)threadIdx.x / GX_WARP, lane = (int)threadIdx.x % GX_WARP;
    const int64_t rows = 2 * p.a.reach + 1, groups = (rows + GX_WARP - 1) / GX_WARP;
    for (int64_t job = blockIdx.x; job < groups * p.a.H; job += gridDim.x) {
        const int64_t row = job % groups * GX_WARP + lane, head = job / groups;
        float sum = 0;
#pragma unroll 4
        for (int64_t i = warp; i < (row < rows ? n : 0); i += WARPS)
            sum += p.dbias_parts[((i / parts * p.a.H + head) * parts + i % parts) * rows + row];
        sums[warp][lane] = sum;
        __syncthreads();
        for (int w = 1; w < WARPS && warp == 0; w++) sum += sums[w][lane];
        if (warp == 0 && row < rows) p.a.dbias[row * p.a.H + head] = sum;
        __syncthreads(); // the sums have been read
    }
}

// ---- the host's side -----------------------------------------------------------------------------------------------

static int gx__cuda_rows_packed(const void *x, int64_t stride, const GxAttention *a)
{
    const int64_t size = gx_dtype_size(a->dtype);
    return gx_aligned(x) && stride * size % 16 == 0 && a->head_dim * size % 16 == 0;
}

static GxCudaAttention gx__cuda_attention_of(const GxContext *g, const GxAttention *a)
{
    GxCudaAttention p = GX_ZERO;
    p.a = *a;
    p.a.sliding_window =
        gx_min(a->sliding_window, (int64_t)1 << 40); // larger than any position, but sums do not overflow
    p.group = gx_attention_group(a);
    p.q_rows = gx_runs_rows(&a->q_runs) * a->B;
    p.scale = a->scale != 0 ? a->scale : 1.0f / sqrtf((float)a->head_dim);
    p.scale_log2 = p.scale * GX__CUDA_LOG2_E;
    p.inverse_scale = 1.0f / p.scale;
    p.step = g->step;
    p.threshold = gx_dropout_threshold(a->dropout);
    p.keep = 1.0f / (1.0f - a->dropout);
    return p;
}

// Calls the template F<T, HEAD>(...) for the type and the padded head size.
#define GX__CUDA_HEADS(a, F, ...)                                                                                      \
    do {                                                                                                               \
        if ((a)->dtype == GX_BF16 && (a)->head_dim <= 64) F<__nv_bfloat16, 64>(__VA_ARGS__);                           \
        else if ((a)->dtype == GX_BF16 && (a)->head_dim <= 128) F<__nv_bfloat16, 128>(__VA_ARGS__);                    \
        else if ((a)->dtype == GX_BF16) F<__nv_bfloat16, 256>(__VA_ARGS__);                                            \
        else if ((a)->head_dim <= 64) F<float, 64>(__VA_ARGS__);                                                       \
        else if ((a)->head_dim <= 128) F<float, 128>(__VA_ARGS__);                                                     \
        else F<float, 256>(__VA_ARGS__);                                                                               \
    } while (0)

int gx_cuda_attention_misses_tensor_cores(const GxContext *g, GxDtype dtype, int64_t head_dim)
{
    return gx__mma_has(g, dtype) && !gx__mma_fits(dtype, head_dim);
}

int64_t gx_cuda_attention_scratch(const GxContext *g, const GxAttention *a, int backward)
{
    enum { MOST = 64 }; // rows of queries in a job; if they are fewer, a run may need fewer parts
    (void)g;
    const int64_t D = gx_runs_rows(&a->q_runs) * a->B * a->H, jobs = gx__cuda_tiles(a->q_runs, MOST) * a->B * a->H;
    const int64_t parts = a->dbias ? jobs * (MOST / (int)GX__CUDA_PART) * (2 * a->reach + 1) : 0;
    return backward ? (D + parts) * 4 : 0;
}

template <class T, int HEAD>
static void gx__cuda_launch_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                                    const GxCudaAttention *p)
{
    typedef GxCudaTiles<HEAD> Tiles;
    const int bytes = Tiles::FORWARD_BYTES;
    if (!gx__cuda_attention_shared(g, "attention_forward", (const void *)gx__cuda_attention_forward<T, HEAD>, bytes))
        return;
    const unsigned grid = gx_cuda_blocks(gx__cuda_tiles(p->a.q_runs, Tiles::FORWARD) * p->a.B * p->a.H);
    GX_LAUNCH((gx__cuda_attention_forward<T, HEAD>), grid, GX_CUDA_BLOCK, bytes, gx_cuda(g)->stream, (T *)o, lse,
              (const T *)q, (const T *)k, (const T *)v, *p);
    gx_cuda_check(g, "attention_forward");
}

typedef enum { GX__CUDA_BY_TILES, GX__CUDA_BY_MMA, GX__CUDA_BY_WGMMA } GxCudaAttentionKernel;

// The fastest kernel that supports these arguments: the one with wgmma if it does (docs/kernels.md).
static GxCudaAttentionKernel gx__cuda_attention_kernel(const GxContext *g, const GxCudaAttention *p, int backward)
{
#ifdef GX_CUDA_SM_90A
    if (backward ? gx__wgmma_backward_supports(g, p) : gx__wgmma_supports(g, p)) return GX__CUDA_BY_WGMMA;
#endif
    (void)g, (void)backward;
    return gx__mma_supports(g, p) ? GX__CUDA_BY_MMA : GX__CUDA_BY_TILES;
}

void gx_cuda_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                               const GxAttention *a, void *scratch)
{
    (void)scratch;
    GxCudaAttention p = gx__cuda_attention_of(g, a);
    p.packed = gx__cuda_rows_packed(o, a->o_stride, a) && gx__cuda_rows_packed(q, a->q_stride, a) &&
               gx__cuda_rows_packed(k, a->kv_stride, a) && gx__cuda_rows_packed(v, a->kv_stride, a);
    const GxCudaAttentionKernel kernel = gx__cuda_attention_kernel(g, &p, 0);
#ifdef GX_CUDA_SM_90A
    if (kernel == GX__CUDA_BY_WGMMA) {
        gx__wgmma_forward(g, o, lse, q, k, v, &p);
        return;
    }
#endif
    if (kernel == GX__CUDA_BY_MMA) GX__MMA_HEADS(&p, gx__mma_launch_forward, g, o, lse, q, k, v, &p);
    else GX__CUDA_HEADS(a, gx__cuda_launch_forward, g, o, lse, q, k, v, &p);
}

template <class T>
static void gx__cuda_launch_dot(GxContext *g, float *D, const void *d_o, const void *o, const GxCudaAttention *p)
{
    enum { N = GxPack<T>::N };
    const int64_t packs = gx_ceil_div(p->a.head_dim, p->packed ? N : 1);
    const unsigned grid = gx_cuda_blocks(p->q_rows);
    const cudaStream_t stream = gx_cuda(g)->stream;
    int lanes = 1;
    while (lanes < GX_WARP && lanes < packs) lanes *= 2;
    const int threads = gx_cuda_threads(p->a.H * lanes, GX_CUDA_BLOCK);
    if (p->packed)
        GX_LAUNCH((gx__cuda_attention_dot<T, N>), grid, threads, 0, stream, D, (const T *)d_o, (const T *)o, *p, lanes);
    else
        GX_LAUNCH((gx__cuda_attention_dot<T, 1>), grid, threads, 0, stream, D, (const T *)d_o, (const T *)o, *p, lanes);
    gx_cuda_check(g, "attention_dot");
}

// After the kernel of the queries, whose jobs are tiles of `tile` rows.
static void gx__cuda_launch_dbias(GxContext *g, int tile, const GxCudaAttention *p)
{
    if (!p->dbias_parts) return;
    const int parts = tile / GX__CUDA_PART;
    const unsigned grid = gx_cuda_blocks(gx_ceil_div(2 * p->a.reach + 1, GX_WARP) * p->a.H);
    GX_LAUNCH(gx__cuda_attention_dbias, grid, GX_CUDA_BLOCK, 0, gx_cuda(g)->stream,
              gx__cuda_tiles(p->a.q_runs, tile) * p->a.B * parts, parts, *p);
    gx_cuda_check(g, "attention_dbias");
}

// d: dq, dk, dv; x: q, k, v, d_o
template <class T, int HEAD, bool BIAS>
static void gx__cuda_launch_gradients(GxContext *g, void *const *d, const void *const *x, const float *lse,
                                      const float *D, const GxCudaAttention *p)
{
    typedef GxCudaTiles<HEAD> Tiles;
    const int bytes = Tiles::BACKWARD_BYTES + (BIAS ? Tiles::BIAS_BYTES : 0);
    const cudaStream_t stream = gx_cuda(g)->stream;
    if (!gx__cuda_attention_shared(g, "attention_backward",
                                   (const void *)gx__cuda_attention_backward_keys<T, HEAD, BIAS>, bytes))
        return;
    if (!gx__cuda_attention_shared(g, "attention_backward",
                                   (const void *)gx__cuda_attention_backward_queries<T, HEAD, BIAS>, bytes))
        return;
    const unsigned grid_k = gx_cuda_blocks(gx__cuda_tiles(p->a.k_runs, Tiles::BACKWARD) * p->a.B * p->a.K);
    const unsigned grid_q = gx_cuda_blocks(gx__cuda_tiles(p->a.q_runs, Tiles::BACKWARD) * p->a.B * p->a.H);
    GX_LAUNCH((gx__cuda_attention_backward_keys<T, HEAD, BIAS>), grid_k, GX_CUDA_BLOCK, bytes, stream, (T *)d[1],
              (T *)d[2], (const T *)x[3], lse, D, (const T *)x[0], (const T *)x[1], (const T *)x[2], *p);
    gx_cuda_check(g, "attention_backward_keys");
    GX_LAUNCH((gx__cuda_attention_backward_queries<T, HEAD, BIAS>), grid_q, GX_CUDA_BLOCK, bytes, stream, (T *)d[0],
              (const T *)x[3], lse, D, (const T *)x[0], (const T *)x[1], (const T *)x[2], *p);
    gx_cuda_check(g, "attention_backward_queries");
    gx__cuda_launch_dbias(g, Tiles::BACKWARD, p);
}
template <class T, int HEAD>
static void gx__cuda_launch_backward(GxContext *g, void *const *d, const void *const *x, const float *lse,
                                     const float *D, const GxCudaAttention *p)
{
    if (p->a.bias) gx__cuda_launch_gradients<T, HEAD, true>(g, d, x, lse, D, p);
    else gx__cuda_launch_gradients<T, HEAD, false>(g, d, x, lse, D, p);
}

// Launches the fastest kernel that supports the arguments. d: dq, dk, dv; x: q, k, v, d_o
static void gx__cuda_gradients(GxContext *g, void *const *d, const void *const *x, const float *lse, const float *D,
                               const GxCudaAttention *p)
{
    const GxCudaAttentionKernel kernel = gx__cuda_attention_kernel(g, p, 1);
#ifdef GX_CUDA_SM_90A
    if (kernel == GX__CUDA_BY_WGMMA) {
        gx__wgmma_backward(g, d, x, lse, D, p);
        return;
    }
#endif
    if (kernel == GX__CUDA_BY_MMA) {
        GX__MMA_HEADS(p, gx__mma_launch_backward, g, d, x, lse, D, p);
        gx__cuda_launch_dbias(g, GX__MMA_BACKWARD_OWN, p);
    } else GX__CUDA_HEADS(&p->a, gx__cuda_launch_backward, g, d, x, lse, D, p);
}

void gx_cuda_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o,
                                const float *lse, const void *q, const void *k, const void *v, const GxAttention *a,
                                void *scratch)
{
    GxCudaAttention p = gx__cuda_attention_of(g, a);
    const void *of_q[] = {q, dq}, *of_kv[] = {k, v, dk, dv}, *of_o[] = {o, d_o};
    p.packed = 1;
    for (const void *x : of_q) p.packed &= gx__cuda_rows_packed(x, a->q_stride, a);
    for (const void *x : of_kv) p.packed &= gx__cuda_rows_packed(x, a->kv_stride, a);
    for (const void *x : of_o) p.packed &= gx__cuda_rows_packed(x, a->o_stride, a);
    void *const d[] = {dq, dk, dv};
    const void *const x[] = {q, k, v, d_o};
    const int rotates = gx__mma_rotates(g, &p); // otherwise dq and dk are rotated back after the kernels
    if (!rotates) p.a.cosine = NULL;
    if (a->dbias) p.dbias_parts = (float *)scratch + p.q_rows * a->H;
    GX_CUDA_TYPES(a->dtype, gx__cuda_launch_dot, g, (float *)scratch, d_o, o, &p);
    gx__cuda_gradients(g, d, x, lse, (const float *)scratch, &p);
    if (a->cosine && !rotates) gx_attention_rotate_back(g, dq, dk, a);
}

// ---- merge ---------------------------------------------------------------------------------------------------------

// A warp per head of a row.
template <class T, int N>
static __global__ void __launch_bounds__(GX_CUDA_BLOCK)
    gx__cuda_attention_merge(float *o, float *lse, const T *o2, const float *lse2, int64_t rows, int64_t h)
{
    const int64_t warps = blockDim.x / GX_WARP, first = (int64_t)(threadIdx.x % GX_WARP) * N, step = GX_WARP * N;
    for (int64_t r = blockIdx.x * warps + threadIdx.x / GX_WARP; r < rows; r += gridDim.x * warps) {
        const float mine = lse[r], other = lse2[r], most = fmaxf(mine, other);
        if (most == -INFINITY) continue; // neither has seen a key
        const float a = expf(mine - most), b = expf(other - most), sum = a + b;
        for (int64_t c = first; c < h; c += step) {
            float u[N], v[N];
            gx_load(u, o + r * h + c);
            gx_load(v, o2 + r * h + c);
            for (int i = 0; i < N; i++) u[i] = a / sum * u[i] + b / sum * v[i];
            gx_store(o + r * h + c, u);
        }
        __syncwarp(); // all lanes have read lse
        if (first == 0) lse[r] = most + logf(sum);
    }
}

template <class T>
static void gx__cuda_merge(GxContext *g, float *o, float *lse, const void *o2, const float *lse2, int64_t rows,
                           int64_t h)
{
    enum { N = GxPack<T>::N };
    const int warps = GX_CUDA_BLOCK / GX_WARP;
    const unsigned blocks = gx_cuda_blocks(gx_ceil_div(rows, warps));
    const cudaStream_t stream = gx_cuda(g)->stream;
    const T *x = (const T *)o2;
    if (gx_wide<T>(h, o, o2))
        GX_LAUNCH((gx__cuda_attention_merge<T, N>), blocks, GX_CUDA_BLOCK, 0, stream, o, lse, x, lse2, rows, h);
    else GX_LAUNCH((gx__cuda_attention_merge<T, 1>), blocks, GX_CUDA_BLOCK, 0, stream, o, lse, x, lse2, rows, h);
    gx_cuda_check(g, "attention_merge");
}

void gx_cuda_attention_merge(GxContext *g, float *o, float *lse, const void *o2, const float *lse2, int64_t rows,
                             int64_t head_dim, GxDtype dtype)
{
    GX_CUDA_TYPES(dtype, gx__cuda_merge, g, o, lse, o2, lse2, rows, head_dim);
}
#endif
