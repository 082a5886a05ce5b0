// attention_mma.cuh: attention on tensor cores, forward and backward, for heads of up to 128 elements: in bf16, and in
// fp32 with three TF32 products for each fp32 one, on GPUs where these are faster than one on CUDA cores.
//
// A block of 4 warps owns a tile of rows of one head. It loops over the tiles of rows ("the others") that its rows
// attend to, or that attend to its rows. A warp holds the scores of its 16 or 32 rows in registers, as fragments of
// mma.sync (mma.cuh): lane i has rows i/4 and i/4 + 8 of every 16, and columns i%4*2 and the next one of every 8. The
// probabilities, rounded to bf16 if the type is bf16, stay there as the A fragments of the next product. cp.async
// copies tiles unchanged to shared memory, the next one while a warp computes with this one; each row is padded by 16
// bytes, so that 8 rows have no bank conflicts. A head's size is padded with zeros to HEAD = 64, 128 or, in bf16, 96.
//
// The columns of a tile that are visible to a row are a span, first to last. The causal mask, the window, documents and
// the tile's end are applied only if the tile is not wholly visible to a warp, and a warp skips a tile if nothing of it
// is visible. The dropout mask is generated in shared memory, one bit for each probability; biases by distance are
// loaded there, one number for each diagonal of two tiles.
//
// Forward: Dao 2023, arXiv:2307.08691, algorithm 1. Backward: two launches of one kernel, whose blocks own keys (dk,
// dv) or queries (dq); there are no atomic additions, and the heads of a group are summed in order. With a bias it is
// another kernel; its blocks that own queries put the gradients of their scores into shared memory for dbias
// (attention_parts.cuh).
#ifndef GX_CUDA_ATTENTION_MMA_CUH
#define GX_CUDA_ATTENTION_MMA_CUH
#include "attention_parts.cuh"
#include "mma.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_ATTENTION_MMA_IMPLEMENTED)
#define GX_CUDA_ATTENTION_MMA_IMPLEMENTED
#include <math.h>

// ---- tiles ---------------------------------------------------------------------------------------------------------

enum { GX__MMA_WARPS = 4, GX__MMA_THREADS = GX__MMA_WARPS * GX_WARP, GX__MMA_ROWS = 16, GX__MMA_MAX_HEAD = 128 };

// M: a warp owns M*16 rows; OWN: a block's rows; OTHERS: rows of each tile that it loops over.
template <class T, int HEAD> struct GxMmaForward {
    enum {
        M = sizeof(T) < sizeof(float) ? 2 : 1,
        OWN = GX__MMA_WARPS * GX__MMA_ROWS * M,
        OTHERS = HEAD <= 64 ? 64 : 32
    };
};
enum { GX__MMA_BACKWARD_OWN = GX__MMA_WARPS * GX__MMA_ROWS };
template <class T, int HEAD> struct GxMmaBackward {
    enum { M = 1, OWN = GX__MMA_BACKWARD_OWN, OTHERS = HEAD * sizeof(T) <= 128 ? 64 : 32 };
};

template <class T, int HEAD> struct alignas(16) GxMmaRow {
    T x[HEAD + GxPack<T>::N];
};

// A block's shared memory in the forward.
template <class T, int HEAD> struct GxMmaForwardTiles {
    typedef GxMmaForward<T, HEAD> Size;
    GxMmaRow<T, HEAD> q[Size::OWN], k[Size::OTHERS], v[Size::OTHERS];
    GxCudaDocument documents[Size::OWN];
    uint32_t keep[Size::OWN][Size::OTHERS / 32];
    float biases[Size::OWN + Size::OTHERS];
};

// A block's shared memory in the backward: two matrices of its own rows, and two of the others, which are
// double-buffered, so that the next tile can be copied meanwhile.
template <class T, int HEAD> struct GxMmaBackwardTiles {
    typedef GxMmaBackward<T, HEAD> Size;
    typedef struct {
        GxMmaRow<T, HEAD> first[Size::OTHERS], second[Size::OTHERS];
        float lse[Size::OTHERS], D[Size::OTHERS]; // if the others are queries
    } Others;
    GxMmaRow<T, HEAD> first[Size::OWN], second[Size::OWN];
    Others others[2];
    GxCudaDocument documents[Size::OWN];
    uint32_t keep[Size::OWN * Size::OTHERS / 32];
};

// What is behind that if there is a bias: the biases of the tiles' diagonals, and the gradients of each warp's scores.
// With 8 floats behind each row of these, lanes write and read without bank conflicts.
template <class T, int HEAD> struct GxMmaBackwardBias {
    typedef GxMmaBackward<T, HEAD> Size;
    float biases[Size::OWN + Size::OTHERS], ds[GX__MMA_WARPS][GX__MMA_ROWS][Size::OTHERS + 8];
};

// to[r][c] = from[r*stride + c], 0 if there is no row r or column c; complete only after a wait. Each 8 lanes write
// without bank conflicts: 8 adjacent packs of a row or, if the number of a row's packs is not a multiple of 8 (12 for
// heads of 96 in bf16), 4 adjacent packs in each of two rows that are 4 apart.
template <class T, int ROWS, int HEAD>
static __device__ __forceinline__ void gx__mma_load(GxMmaRow<T, HEAD> *to, const T *from, int64_t stride, int length,
                                                    const GxCudaAttention &p)
{
    enum { N = GxPack<T>::N, PACKS = HEAD / N };
    static_assert(ROWS * PACKS % GX__MMA_THREADS == 0 && ROWS % 8 == 0 && PACKS % 4 == 0,
                  "each thread has as many packs");
#pragma unroll 1 // their addresses would take registers
    for (int i = 0; i < ROWS * PACKS / GX__MMA_THREADS; i++) {
        const int pack = (int)threadIdx.x + i * GX__MMA_THREADS, four = pack / 8 % (PACKS / 4),
                  pair = pack / 8 / (PACKS / 4);
        const int r = PACKS % 8 ? pair / 4 * 8 + pack / 4 % 2 * 4 + pair % 4 : pack / PACKS,
                  c = (PACKS % 8 ? four * 4 + pack % 4 : pack % PACKS) * N;
        const bool is = r < length && c < (int)p.a.head_dim;
        gx_cp_async<16>(&to[r].x[c], is ? from + r * stride + c : from, is ? 16 : 0);
    }
}

// This warp's first row within the block's rows.
template <int M> static __device__ __forceinline__ int gx__mma_first_row()
{
    return (int)threadIdx.x / GX_WARP * GX__MMA_ROWS * M;
}
// The row of this lane in the upper or lower half of fragment m, and the column of its element e of fragment n.
static __device__ __forceinline__ int gx__mma_row(int m, int half)
{
    return m * GX__MMA_ROWS + half * 8 + (int)threadIdx.x % GX_WARP / 4;
}
static __device__ __forceinline__ int gx__mma_column(int n, int e) { return n * 8 + (int)threadIdx.x % 4 * 2 + e; }

// ---- products ------------------------------------------------------------------------------------------------------

// A fragment of one factor: 16 rows of the left one (A), or 16 columns of the right one (B; for two instructions), by
// 16 of the sum's terms in bf16 and 8 in fp32. An fp32 number is split into x + rest, two numbers with TF32's 11
// significant bits, with a relative error below 2^-22; the rest of a NaN or an infinity is NaN.
template <class T> struct GxMmaFactor {
    unsigned x[4];
};
template <> struct GxMmaFactor<float> {
    unsigned x[4], rest[4];
};

template <class T> static __device__ __forceinline__ void gx__mma_set(GxMmaFactor<T> &f, int i, unsigned bits)
{
    f.x[i] = bits;
}
static __device__ __forceinline__ void gx__mma_set(GxMmaFactor<float> &f, int i, unsigned bits)
{
    enum { BELOW = 0x1fff }; // the fraction bits that TF32 does not have
    f.x[i] = (bits + (BELOW + 1) / 2) & ~(unsigned)BELOW;
    f.rest[i] = __float_as_uint(__uint_as_float(bits) - __uint_as_float(f.x[i])) & ~(unsigned)BELOW;
}

// d, and e to its right, += a b. In fp32 three of the four products, the smallest first; rest * rest is below 2^-22.
template <class T>
static __device__ __forceinline__ void gx__mma_multiply(float (&d)[4], float (&e)[4], const GxMmaFactor<T> &a,
                                                        const GxMmaFactor<T> &b)
{
    gx_mma<T>(d, a.x, b.x[0], b.x[1]);
    gx_mma<T>(e, a.x, b.x[2], b.x[3]);
}
static __device__ __forceinline__ void gx__mma_multiply(float (&d)[4], float (&e)[4], const GxMmaFactor<float> &a,
                                                        const GxMmaFactor<float> &b)
{
    gx_mma_tf32(d, a.rest, b.x[0], b.x[1]);
    gx_mma_tf32(e, a.rest, b.x[2], b.x[3]);
    gx_mma_tf32(d, a.x, b.rest[0], b.rest[1]);
    gx_mma_tf32(e, a.x, b.rest[2], b.rest[3]);
    gx_mma_tf32(d, a.x, b.x[0], b.x[1]);
    gx_mma_tf32(e, a.x, b.x[2], b.x[3]);
}

// Loads a factor whose terms are adjacent: four matrices of 8 rows of 16 bytes; lane i gives the address of row i%8 of
// matrix i/8.
template <class T> static __device__ __forceinline__ void gx__mma_rows(GxMmaFactor<T> &f, const T *row)
{
    unsigned x[4];
    gx_ldmatrix<4, false>(x, row);
#pragma unroll
    for (int i = 0; i < 4; i++) gx__mma_set(f, i, x[i]);
}

// Loads the right factor from column c of x on; its terms are in consecutive rows.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__mma_columns(GxMmaFactor<T> &f, const GxMmaRow<T, HEAD> *x, int c)
{
    const int lane = (int)threadIdx.x % GX_WARP;
    gx_ldmatrix<4, true>(f.x, &x[lane % 16].x[c + lane / 16 * 8]);
}
// The left factor from a warp's accumulators.
static __device__ __forceinline__ void gx__mma_left(GxMmaFactor<__nv_bfloat16> &f, const float (*w)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) gx__mma_set(f, i, gx_pair(w[i / 2][i % 2 * 2], w[i / 2][i % 2 * 2 + 1]));
}
// In fp32 a lane's two accumulators belong to adjacent columns, but the instruction needs columns j and j + 4. Columns
// 2j and 2j + 1 of w, and the same rows of x, take their places.
template <int HEAD>
static __device__ __forceinline__ void gx__mma_columns(GxMmaFactor<float> &f, const GxMmaRow<float, HEAD> *x, int c)
{
    const int lane = (int)threadIdx.x % GX_WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) gx__mma_set(f, i, __float_as_uint(x[lane % 4 * 2 + i % 2].x[c + i / 2 * 8 + lane / 4]));
}
static __device__ __forceinline__ void gx__mma_left(GxMmaFactor<float> &f, const float (*w)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) gx__mma_set(f, i, __float_as_uint(w[0][i % 2 * 2 + i / 2]));
}

// s += a b^T: s[r][c] += sum_k a[r][k] * b[c][k], for M*16 rows of a and N rows of b
template <class T, int M, int N, int HEAD>
static __device__ __forceinline__ void gx__mma_scores(float (&s)[M][N / 8][4], const GxMmaRow<T, HEAD> *a,
                                                      const GxMmaRow<T, HEAD> *b)
{
    enum { PACK = GxPack<T>::N };
    const int lane = (int)threadIdx.x % GX_WARP;
#pragma unroll
    for (int k = 0; k < HEAD; k += 2 * PACK) {
        GxMmaFactor<T> left[M], right;
#pragma unroll
        for (int m = 0; m < M; m++) gx__mma_rows(left[m], &a[m * GX__MMA_ROWS + lane % 16].x[k + lane / 16 * PACK]);
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            gx__mma_rows(right, &b[n * 8 + lane / 16 * 8 + lane % 8].x[k + lane / 8 % 2 * PACK]);
#pragma unroll
            for (int m = 0; m < M; m++) gx__mma_multiply(s[m][n], s[m][n + 1], left[m], right);
        }
    }
}

// acc += w x: acc[r][c] += sum_k w[r][k] * x[k][first + c], for K rows of x and N columns; w is rounded to T.
template <class T, int M, int K, int N, int HEAD>
static __device__ __forceinline__ void gx__mma_accumulate_columns(float (&acc)[M][N / 8][4],
                                                                  const float (&w)[M][K / 8][4],
                                                                  const GxMmaRow<T, HEAD> *x, int first)
{
    enum { STEP = GxPack<T>::N / 4 }; // in units of 8 terms
#pragma unroll
    for (int k = 0; k < K / 8; k += STEP) {
        GxMmaFactor<T> left[M], right;
#pragma unroll
        for (int m = 0; m < M; m++) gx__mma_left(left[m], w[m] + k);
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            gx__mma_columns(right, x + k * 8, first + n * 8);
#pragma unroll
            for (int m = 0; m < M; m++) gx__mma_multiply(acc[m][n], acc[m][n + 1], left[m], right);
        }
    }
}

// The same for all columns. In fp32 each tile's sums begin at 0 and the thread adds them up: tensor cores round sums
// toward zero, so a sum that they accumulate over thousands of terms drifts (Ootomo and Yokota 2022, arXiv:2203.03341).
template <class T, int M, int K, int HEAD>
static __device__ __forceinline__ void gx__mma_accumulate(float (&acc)[M][HEAD / 8][4], const float (&w)[M][K / 8][4],
                                                          const GxMmaRow<T, HEAD> *x)
{
    enum { N = 32 }; // columns at a time: there are no registers for more
    if constexpr (sizeof(T) < sizeof(float)) gx__mma_accumulate_columns<T, M, K, HEAD, HEAD>(acc, w, x, 0);
    else
#pragma unroll
        for (int first = 0; first < HEAD; first += N) {
            float sum[M][N / 8][4] = {};
            gx__mma_accumulate_columns<T, M, K, N, HEAD>(sum, w, x, first);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int i = 0; i < N / 2; i++) acc[m][first / 8 + i / 4][i % 4] += sum[m][i / 4][i % 4];
        }
}

// Two adjacent elements, as they are stored.
static __device__ __forceinline__ unsigned gx__mma_two(const __nv_bfloat16 *, float x, float y)
{
    return gx_pair(x, y);
}
static __device__ __forceinline__ float2 gx__mma_two(const float *, float x, float y) { return make_float2(x, y); }

// to[r][c] = factor[r]*acc[r][c] for this warp's rows, two adjacent elements at a time.
template <class T, int M, int HEAD>
static __device__ __forceinline__ void gx__mma_store(T *to, const float (&acc)[M][HEAD / 8][4],
                                                     const float (&factor)[M][2], int64_t stride, int length,
                                                     const GxCudaAttention &p)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = gx__mma_first_row<M>() + gx__mma_row(m, half);
            if (r >= length) continue;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                const int c = gx__mma_column(n, 0);
                auto two =
                    gx__mma_two(to, factor[m][half] * acc[m][n][half * 2], factor[m][half] * acc[m][n][half * 2 + 1]);
                if (c < (int)p.a.head_dim) *reinterpret_cast<decltype(two) *>(to + r * stride + c) = two;
            }
        }
}

// Rotates this warp's rows back by their positions (RoPE). The model's heads must be HEAD wide: a lane then holds both
// numbers of a pair.
template <int M, int HEAD>
static __device__ __forceinline__ void gx__mma_rotate_back(float (&acc)[M][HEAD / 8][4], const GxCudaTile &tile,
                                                           const GxCudaAttention &p)
{
    enum { HALF = HEAD / 2 };
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = gx__mma_first_row<M>() + gx__mma_row(m, half);
            if (r >= tile.length) continue;
            const int64_t at = (tile.position + r) * HALF;
#pragma unroll
            for (int n = 0; n < HALF / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int64_t i = at + gx__mma_column(n, e);
                    const float co = p.a.cosine[i], si = p.a.sine[i];
                    float &left = acc[m][n][half * 2 + e], &right = acc[m][n + HALF / 8][half * 2 + e];
                    const float x = left * co + right * si;
                    right = right * co - left * si;
                    left = x;
                }
        }
}

// ---- visibility ----------------------------------------------------------------------------------------------------

typedef struct {
    int first, last; // last < first: none
} GxMmaSpan;         // of another tile's columns

// The columns of another tile that are visible to row r of the own tile or, if r is a KEY, to which row r is visible.
template <bool KEY>
static __device__ __forceinline__ GxMmaSpan gx__mma_span(const GxCudaDocument *documents, const GxCudaAttention &p,
                                                         const GxCudaTile &own, const GxCudaTile &others, int r)
{
    GxMmaSpan s = {0, r < own.length ? others.length - 1 : -1};
    if (p.a.causal) {
        const int diagonal = gx__cuda_distance(own.position + r - others.position);
        if (KEY) s.first = max(s.first, diagonal);
        else s.last = min(s.last, diagonal);
    }
    if (p.a.sliding_window) { // KEY: up to the last query whose window has the key
        const int64_t before = p.a.sliding_window - 1, at = own.position + r - others.position;
        if (KEY) s.last = min(s.last, gx__cuda_distance(at + before));
        else s.first = max(s.first, gx__cuda_distance(at - before));
    }
    if (p.a.documents) {
        s.first = max(s.first, gx__cuda_distance(documents[r].begin - others.position));
        s.last = min(s.last, gx__cuda_distance(documents[r].end - 1 - others.position));
    }
    return s;
}

typedef struct {
    int some, whole;
} GxMmaVisible; // of another tile: some: any of it is visible to any row of this warp; whole: all of it is to every row

template <bool KEY, int M, int OTHERS>
static __device__ __forceinline__ GxMmaVisible gx__mma_spans(GxMmaSpan (&span)[M][2], const GxCudaDocument *documents,
                                                             const GxCudaAttention &p, const GxCudaTile &own,
                                                             const GxCudaTile &others)
{
    int some = 0, whole = 1;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = gx__mma_first_row<M>() + gx__mma_row(m, half);
            span[m][half] = gx__mma_span<KEY>(documents, p, own, others, r);
            some |= span[m][half].first <= span[m][half].last;
            whole &= span[m][half].first <= 0 && span[m][half].last >= OTHERS - 1;
        }
    const GxMmaVisible visible = {__any_sync(0xffffffffu, some), __all_sync(0xffffffffu, whole)};
    return visible;
}

// Calls f(score, m, half, column) for each of a warp's scores.
template <int M, int N, class F> static __device__ __forceinline__ void gx__mma_each(float (&s)[M][N / 8][4], F f)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) f(s[m][n][i], m, i / 2, gx__mma_column(n, i % 2));
}

// Masks the scores: -inf outside a row's span.
template <int M, int N>
static __device__ __forceinline__ void gx__mma_mask(float (&s)[M][N / 8][4], const GxMmaSpan (&span)[M][2])
{
    gx__mma_each<M, N>(s, [&](float &x, int m, int half, int column) {
        if (column < span[m][half].first || column > span[m][half].last) x = -INFINITY;
    });
}

// ---- bias ----------------------------------------------------------------------------------------------------------

// Adds the biases of two tiles' diagonals: those of columns minus rows from 1 - OWN on or, if the own rows are KEYS,
// those of rows minus columns from 1 - OTHERS on.
template <bool KEYS, int M, int OWN, int OTHERS>
static __device__ __forceinline__ void gx__mma_add_bias(float (&s)[M][OTHERS / 8][4], const float *biases)
{
    gx__mma_each<M, OTHERS>(s, [&](float &x, int m, int half, int column) {
        const int row = gx__mma_first_row<M>() + gx__mma_row(m, half);
        x += biases[KEYS ? row - column + OTHERS - 1 : column - row + OWN - 1];
    });
}

// ---- dropout -------------------------------------------------------------------------------------------------------

// Bit k: 1 if the probability of the query at position `query` and the key at position `key` + k is kept. Random words
// are generated for four adjacent keys at a time, beginning at a multiple of 4.
static __device__ __forceinline__ uint32_t gx__mma_keep_word(const GxCudaAttention &p, int64_t query, int64_t key,
                                                             int64_t b, int64_t head)
{
    const uint64_t seed = p.step->seed;
    const uint32_t step = (uint32_t)p.step->step;
    const int64_t sample = p.step->first_sample + p.a.first_sample + b;
    const int before = (int)(key % 4); // how many of the first four keys precede `key`
    const uint64_t row = gx_dropout_query(sample, p.a.heads, p.a.head_first + head, p.a.T, query);
    uint64_t bits = 0;
#pragma unroll 1
    for (int draw = 0; draw * 4 < 32 + before; draw++) {
        const GxRandom4 random = gx_philox(seed, row + (uint64_t)(key / 4 + draw), step, p.a.site);
#pragma unroll
        for (int w = 0; w < 4; w++) bits |= (uint64_t)(random.w[w] >= p.threshold) << (draw * 4 + w);
    }
    return (uint32_t)(bits >> before);
}

// Bit k%32 of keep[q][k/32]: 1 if the probability of query q and key k of two tiles is kept. A thread samples 32 keys.
template <int QUERIES, int KEYS>
static __device__ __forceinline__ void gx__mma_sample_keep(uint32_t (*keep)[KEYS / 32], const GxCudaAttention &p,
                                                           const GxCudaTile &queries, const GxCudaTile &keys, int64_t b,
                                                           int64_t head)
{
    for (int i = (int)threadIdx.x; i < QUERIES * (KEYS / 32); i += GX__MMA_THREADS) {
        const int r = i / (KEYS / 32), word = i % (KEYS / 32);
        keep[r][word] = gx__mma_keep_word(p, queries.position + r, keys.position + word * 32, b, head);
    }
}

// The factor of a probability: 0 if it is dropped, otherwise p.keep.
template <int KEYS>
static __device__ __forceinline__ float gx__mma_keep(const uint32_t (*keep)[KEYS / 32], int query, int key,
                                                     const GxCudaAttention &p)
{
    return keep[query][key / 32] >> key % 32 & 1 ? p.keep : 0.0f;
}

// ---- forward -------------------------------------------------------------------------------------------------------
// Over key tiles: s = q k^T, with each row's running maximum m of the scores and sum l:
//     l = l*exp(scale*(m_old - m)) + sum_j exp(scale*(s[j] - m)),
//     o = o*exp(scale*(m_old - m)) + sum_j exp(scale*(s[j] - m)) v[j]
// At the end o = o/l and lse = scale*m + log(l). With dropout exp(...) is multiplied by keep[j] in o, not in l.

typedef struct {
    int run;
    int64_t begin, end; // the run's remaining rows
    int64_t at;         // the element of k and of v at which this tile's first row begins
    GxCudaTile tile;    // length 0: there are no more
} GxMmaKeys;            // the tiles of keys that may be visible to some row of a query tile

template <int KEYS>
static __device__ __forceinline__ void gx__mma_next_keys(GxMmaKeys *keys, const GxCudaDocument *documents,
                                                         const GxCudaAttention &p, const GxCudaTile &queries, int64_t b)
{
    for (;;) {
        while (keys->begin >= keys->end) {
            keys->tile.length = 0;
            if (++keys->run >= p.a.k_runs.n) return;
            const GxRun &run = p.a.k_runs.run[keys->run];
            const GxCudaRange visible =
                gx__cuda_visible_keys(gx__cuda_of_documents(documents, p, queries, run), p, queries, run);
            keys->begin = visible.begin, keys->end = visible.end;
        }
        keys->tile = gx__cuda_key_tile<KEYS>(p, p.a.k_runs.run[keys->run], keys->begin);
        keys->begin += keys->tile.length;
        const int64_t row = gx__cuda_key_row(p, keys->tile, b);
        keys->at = row * p.a.kv_stride;
        if (row >= 0) return;
    }
}

// Reductions over the four lanes that hold a row.
static __device__ __forceinline__ float gx__mma_row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
static __device__ __forceinline__ float gx__mma_row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A warp's running state for its rows: the accumulator of o, each row's row_max, and this lane's part of row_sum.
template <int M, int HEAD> struct GxMmaRows {
    float o[M][HEAD / 8][4], row_max[M][2], row_sum[M][2];
};

// Online softmax: turns scores into probabilities relative to the new row_max, and rescales row_sum. The caller must
// multiply o by `rescale`.
template <int M, int N, int HEAD>
static __device__ __forceinline__ void gx__mma_softmax(float (&s)[M][N / 8][4], GxMmaRows<M, HEAD> &rows,
                                                       float (&rescale)[M][2], float scale_log2)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float row_max = rows.row_max[m][half], sum = 0;
#pragma unroll
            for (int i = 0; i < N / 4; i++) row_max = fmaxf(row_max, s[m][i / 2][half * 2 + i % 2]);
            row_max = gx__mma_row_max(row_max);
            // no key visible so far: every exp2 below is 0
            const float against = row_max == -INFINITY ? 0.0f : row_max * scale_log2;
            rescale[m][half] = gx_exp2(rows.row_max[m][half] * scale_log2 - against);
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
                float &x = s[m][i / 2][half * 2 + i % 2];
                x = gx_exp2(fmaf(x, scale_log2, -against));
                sum += x;
            }
            rows.row_max[m][half] = row_max;
            rows.row_sum[m][half] = rows.row_sum[m][half] * rescale[m][half] + sum;
        }
}
template <int M, int HEAD>
static __device__ __forceinline__ void gx__mma_rescale(GxMmaRows<M, HEAD> &rows, const float (&rescale)[M][2])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int i = 0; i < HEAD / 2; i++) rows.o[m][i / 4][i % 4] *= rescale[m][i % 4 / 2];
}

// Epilogue: stores o and its log-sum-exp from the accumulators.
template <class T, int M, int HEAD>
static __device__ __forceinline__ void gx__mma_finish(T *o, float *lse, GxMmaRows<M, HEAD> &rows,
                                                      const GxCudaAttention &p, const GxCudaTile &tile, int64_t b,
                                                      int64_t head)
{
    float inverse[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = gx__mma_first_row<M>() + gx__mma_row(m, half);
            const float l = gx__mma_row_sum(rows.row_sum[m][half]);
            inverse[m][half] = l != 0 ? 1.0f / l : 0.0f; // 0: no key was visible
            if (threadIdx.x % 4 == 0 && r < tile.length)
                lse[((tile.row + r) * p.a.B + b) * p.a.H + head] =
                    l != 0 ? rows.row_max[m][half] * p.scale + logf(l) : -INFINITY;
        }
    gx__mma_store<T, M, HEAD>(gx__cuda_head(o, tile.row, b, head, p.a.o_stride, p), rows.o, inverse,
                              p.a.B * p.a.o_stride, tile.length, p);
}

template <class T, int HEAD>
static __device__ __forceinline__ void gx__mma_forward_tile(T *o, float *lse, const T *q, const T *k, const T *v,
                                                            const GxCudaAttention &p, const GxCudaTile &tile,
                                                            int64_t job)
{
    enum { M = GxMmaForward<T, HEAD>::M, OWN = GxMmaForward<T, HEAD>::OWN, N = GxMmaForward<T, HEAD>::OTHERS };
    typedef GxMmaForwardTiles<T, HEAD> Tiles;
    GX_DYNAMIC_SHARED(Tiles, tiles);
    const int64_t b = job / p.a.H, head = job % p.a.H, kv_head = (p.a.q_first + head) / p.group;
    const int64_t kv_stride = (p.a.pages ? 1 : p.a.B) * p.a.kv_stride;
    GxMmaRows<M, HEAD> rows = {};
    GxMmaKeys keys = {-1, 0, 0, 0, {0, 0, 0}};
    k += kv_head * p.a.head_dim, v += kv_head * p.a.head_dim;
#pragma unroll
    for (int m = 0; m < M; m++) rows.row_max[m][0] = rows.row_max[m][1] = -INFINITY;
    __syncthreads(); // the previous tile has been read
    gx__cuda_load_documents<false>(tiles->documents, p, tile, b);
    gx__mma_next_keys<N>(&keys, tiles->documents, p, tile, b);
    if (keys.tile.length) {
        gx__mma_load<T, OWN, HEAD>(tiles->q, gx__cuda_head(q, tile.row, b, head, p.a.q_stride, p), p.a.B * p.a.q_stride,
                                   tile.length, p);
        gx__mma_load<T, N, HEAD>(tiles->k, k + keys.at, kv_stride, keys.tile.length, p);
        gx_cp_async_commit();
    }
    while (keys.tile.length) {
        const GxCudaTile now = keys.tile;
        GxMmaSpan span[M][2];
        float s[M][N / 8][4] = {}, rescale[M][2];
        gx_cp_async_wait<0>();
        __syncthreads(); // queries and keys have arrived; the previous tile's values have been read
        gx__mma_load<T, N, HEAD>(tiles->v, v + keys.at, kv_stride, now.length, p);
        gx_cp_async_commit();
        if (p.a.dropout != 0) gx__mma_sample_keep<OWN, N>(tiles->keep, p, tile, now, b, head);
        if (p.a.bias)
            gx__cuda_load_bias<T>(tiles->biases, p, head, now.position - tile.position - (OWN - 1), OWN + N - 1);
        const GxMmaVisible visible = gx__mma_spans<false, M, N>(span, tiles->documents, p, tile, now);
        if (visible.some) gx__mma_scores<T, M, N, HEAD>(s, tiles->q + gx__mma_first_row<M>(), tiles->k);
        gx_cp_async_wait<0>();
        __syncthreads(); // the values have arrived, dropout mask and biases are written, and the keys have been read
        gx__mma_next_keys<N>(&keys, tiles->documents, p, tile, b);
        if (keys.tile.length) gx__mma_load<T, N, HEAD>(tiles->k, k + keys.at, kv_stride, keys.tile.length, p);
        gx_cp_async_commit();
        if (!visible.some) continue;
        if (p.a.bias) gx__mma_add_bias<false, M, OWN, N>(s, tiles->biases);
        if (!visible.whole) gx__mma_mask<M, N>(s, span);
        gx__mma_softmax<M, N, HEAD>(s, rows, rescale, p.scale_log2);
        gx__mma_rescale<M, HEAD>(rows, rescale);
        if (p.a.dropout != 0)
            gx__mma_each<M, N>(s, [&](float &x, int m, int half, int column) {
                x *= gx__mma_keep<N>(tiles->keep, gx__mma_first_row<M>() + gx__mma_row(m, half), column, p);
            });
        gx__mma_accumulate<T, M, N, HEAD>(rows.o, s, tiles->v);
    }
    gx__mma_finish<T, M, HEAD>(o, lse, rows, p, tile, b, head);
}

// One block per (query tile, sample b, query head). Causal: the last tiles attend to the most keys and come first.
template <class T, int HEAD>
static __global__ void __launch_bounds__(GX__MMA_THREADS, 2)
    gx__mma_attention_forward(T *o, float *lse, const T *q, const T *k, const T *v,
                              const __grid_constant__ GxCudaAttention p)
{
    const int64_t tiles = gx__cuda_tiles(p.a.q_runs, GxMmaForward<T, HEAD>::OWN), heads = p.a.B * p.a.H;
    for (int64_t job = blockIdx.x; job < tiles * heads; job += gridDim.x)
        gx__mma_forward_tile<T, HEAD>(o, lse, q, k, v, p,
                                      gx__cuda_tile(p.a.q_runs, GxMmaForward<T, HEAD>::OWN, tiles - 1 - job / heads),
                                      job % heads);
}

// ---- backward ------------------------------------------------------------------------------------------------------
// p = exp(s - lse), dp = d_o v^T, ds = scale*p*(dp - D), D = rowsum(d_o * o)
// dv += p^T d_o, dk += ds^T q, dq += ds k
// With dropout dp = keep*(d_o v^T) and dv += (keep*p)^T d_o; D is the same, since o includes keep.
//
// KEYS: a block's own rows are keys, with k and v as the first and second matrix, and the others' are q and d_o;
// otherwise its own rows are queries, and it is the other way round. In both cases the scores are own first times
// others' first, dp is own second times others' second, and the gradient of the own first is ds times the others'
// first; for keys, the gradient of the own second is p times the others' second.

template <class T> struct GxMmaGradients {
    T *d_first, *d_second; // of own rows; d_second only for keys
    const T *first, *second, *other_first, *other_second;
    const float *lse, *D; // of queries
    int64_t stride, second_stride, other_stride, other_second_stride;
};

typedef struct {
    int64_t head, head_end; // remaining query heads; for keys those of their group
    int run;
    int64_t begin, end; // the run's remaining rows
    GxCudaTile tile;    // length 0: there are no more
} GxMmaOthers;          // the tiles that attend to a block's own rows, or that its rows attend to

template <bool KEYS, int OTHERS>
static __device__ __forceinline__ void gx__mma_next_others(GxMmaOthers *others, const GxCudaDocument *documents,
                                                           const GxCudaAttention &p, const GxCudaTile &own)
{
    const GxRuns &runs = KEYS ? p.a.q_runs : p.a.k_runs;
    while (others->begin >= others->end) {
        others->tile.length = 0;
        if (++others->run >= runs.n) {
            others->run = 0;
            if (++others->head >= others->head_end) return;
        }
        const GxRun &run = runs.run[others->run];
        const GxCudaRange of = gx__cuda_of_documents(documents, p, own, run);
        const GxCudaRange range =
            KEYS ? gx__cuda_visible_queries(of, p, run, own, OTHERS) : gx__cuda_visible_keys(of, p, own, run);
        others->begin = range.begin, others->end = range.end;
    }
    others->tile = gx__cuda_part(runs.run[others->run], others->begin, OTHERS);
    others->begin += OTHERS;
}

// The start for a block with rows of this head: a key and value head if KEYS, otherwise a query head.
template <bool KEYS>
static __device__ __forceinline__ GxMmaOthers gx__mma_others_of(int64_t head, const GxCudaAttention &p)
{
    const int64_t first = KEYS ? max(head * p.group - p.a.q_first, (int64_t)0) : head;
    const int64_t end = KEYS ? min((head + 1) * p.group - p.a.q_first, p.a.H) : head + 1;
    const GxMmaOthers others = {first, end, -1, 0, 0, {0, 0, 0}};
    return others;
}

// The head of the others' matrices.
template <bool KEYS>
static __device__ __forceinline__ int64_t gx__mma_other_head(int64_t head, const GxCudaAttention &p)
{
    return KEYS ? head : (p.a.q_first + head) / p.group;
}

// Starts the asynchronous copy of a tile of the others.
template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void gx__mma_load_others(typename GxMmaBackwardTiles<T, HEAD>::Others *to,
                                                           const GxMmaGradients<T> &x, const GxMmaOthers &others,
                                                           const GxCudaAttention &p, int64_t b)
{
    enum { N = GxMmaBackward<T, HEAD>::OTHERS };
    const GxCudaTile &tile = others.tile;
    const int64_t head = gx__mma_other_head<KEYS>(others.head, p);
    gx__mma_load<T, N, HEAD>(to->first, gx__cuda_head(x.other_first, tile.row, b, head, x.other_stride, p),
                             p.a.B * x.other_stride, tile.length, p);
    gx__mma_load<T, N, HEAD>(to->second, gx__cuda_head(x.other_second, tile.row, b, head, x.other_second_stride, p),
                             p.a.B * x.other_second_stride, tile.length, p);
    if (KEYS && (int)threadIdx.x < N) {
        const int r = (int)threadIdx.x;
        const bool is = r < tile.length;
        const int64_t at = ((tile.row + (is ? r : 0)) * p.a.B + b) * p.a.H + head;
        gx_cp_async<4>(&to->lse[r], x.lse + at, is ? 4 : 0);
        gx_cp_async<4>(&to->D[r], x.D + at, is ? 4 : 0);
    }
    gx_cp_async_commit();
}

// lse in units of log2. -inf (no key was visible to the query) becomes 0: the scores are -inf, the probabilities 0.
static __device__ __forceinline__ float gx__mma_lse_log2(float lse)
{
    return lse == -INFINITY ? 0.0f : lse * GX__CUDA_LOG2_E;
}

static __device__ __forceinline__ float gx__mma_probability(float score, float lse_log2, const GxCudaAttention &p)
{
    return gx_exp2(fmaf(score, p.scale_log2, -lse_log2));
}

// A warp's state for its own rows: the gradients' accumulators and, for queries, lse (in units of log2) and D.
template <bool KEYS, int M, int HEAD> struct GxMmaOwn {
    float d_first[M][HEAD / 8][4], d_second[KEYS ? M : 1][KEYS ? HEAD / 8 : 1][4], lse[M][2], D[M][2];
};

template <bool KEYS, class T, int M, int HEAD>
static __device__ __forceinline__ void gx__mma_begin_own(GxMmaOwn<KEYS, M, HEAD> &own, const GxMmaGradients<T> &x,
                                                         const GxCudaAttention &p, const GxCudaTile &tile, int64_t b,
                                                         int64_t head)
{
#pragma unroll
    for (int i = 0; i < 2 * M && !KEYS; i++) {
        const int r = gx__mma_first_row<M>() + gx__mma_row(i / 2, i % 2);
        const int64_t at = ((tile.row + r) * p.a.B + b) * p.a.H + head;
        own.lse[i / 2][i % 2] = r < tile.length ? gx__mma_lse_log2(x.lse[at]) : 0.0f;
        own.D[i / 2][i % 2] = r < tile.length ? x.D[at] : 0.0f;
    }
}

// Epilogue: stores the accumulators, after rotating the gradient of q or k back if requested.
template <bool KEYS, class T, int M, int HEAD>
static __device__ __forceinline__ void gx__mma_finish_own(const GxMmaGradients<T> &x, GxMmaOwn<KEYS, M, HEAD> &own,
                                                          const GxCudaAttention &p, const GxCudaTile &tile, int64_t b,
                                                          int64_t head)
{
    float factor[M][2];
    if (p.a.cosine) gx__mma_rotate_back<M, HEAD>(own.d_first, tile, p);
#pragma unroll
    for (int i = 0; i < 2 * M; i++) factor[i / 2][i % 2] = p.scale;
    gx__mma_store<T, M, HEAD>(gx__cuda_head(x.d_first, tile.row, b, head, x.stride, p), own.d_first, factor,
                              p.a.B * x.stride, tile.length, p);
    if constexpr (KEYS) {
#pragma unroll
        for (int i = 0; i < 2 * M; i++) factor[i / 2][i % 2] = 1;
        gx__mma_store<T, M, HEAD>(gx__cuda_head(x.d_second, tile.row, b, head, x.second_stride, p), own.d_second,
                                  factor, p.a.B * x.second_stride, tile.length, p);
    }
}

template <class T, int HEAD>
static __device__ __forceinline__ GxMmaBackwardBias<T, HEAD> *gx__mma_bias(const GxMmaBackwardTiles<T, HEAD> *tiles)
{
    return (GxMmaBackwardBias<T, HEAD> *)(tiles + 1);
}

// Adds the gradients of this warp's scores to its sums by distance.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__mma_add_dbias(float *sums, GxMmaBackwardBias<T, HEAD> *bias,
                                                         const float (&ds)[1][GxMmaBackward<T, HEAD>::OTHERS / 8][4],
                                                         const GxCudaAttention &p, const GxCudaTile &tile,
                                                         const GxCudaTile &other)
{
    enum { N = GxMmaBackward<T, HEAD>::OTHERS };
    static_assert((int)GX__MMA_ROWS == (int)GX__CUDA_PART && GxMmaBackward<T, HEAD>::M == 1, "a warp has one part");
    auto *to = bias->ds[threadIdx.x / GX_WARP];
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2 *>(&to[gx__mma_row(0, half)][gx__mma_column(n, 0)]) =
                make_float2(ds[0][n][half * 2], ds[0][n][half * 2 + 1]);
    gx__cuda_add_dbias<N>(sums, to, other.position - tile.position - gx__mma_first_row<1>(), 1, p);
}

// Processes one tile of the others. s becomes the left factor of d_second, and ds (without scale) that of d_first.
// dbias: this warp's sums by distance; NULL: not needed.
template <bool KEYS, class T, int HEAD, bool BIAS>
static __device__ __forceinline__ void gx__mma_backward_step(GxMmaOwn<KEYS, GxMmaBackward<T, HEAD>::M, HEAD> &own,
                                                             const GxMmaBackwardTiles<T, HEAD> *tiles, int stage,
                                                             float *dbias, const GxCudaAttention &p,
                                                             const GxCudaTile &tile, const GxCudaTile &other)
{
    enum { M = GxMmaBackward<T, HEAD>::M, OWN = GxMmaBackward<T, HEAD>::OWN, N = GxMmaBackward<T, HEAD>::OTHERS };
    const auto *others = &tiles->others[stage];
    const int first_row = gx__mma_first_row<M>();
    GxMmaSpan span[M][2];
    const GxMmaVisible visible = gx__mma_spans<KEYS, M, N>(span, tiles->documents, p, tile, other);
    if (!visible.some) return;
    float s[M][N / 8][4] = {}, ds[M][N / 8][4] = {};
    gx__mma_scores<T, M, N, HEAD>(s, tiles->first + first_row, others->first);
    gx__mma_scores<T, M, N, HEAD>(ds, tiles->second + first_row, others->second);
    const auto drop = [&](float &x, int m, int half, int column) {
        const int row = first_row + gx__mma_row(m, half);
        x *= KEYS ? gx__mma_keep<OWN>((const uint32_t(*)[OWN / 32]) tiles->keep, column, row, p)
                  : gx__mma_keep<N>((const uint32_t(*)[N / 32]) tiles->keep, row, column, p);
    };
    if (BIAS) gx__mma_add_bias<KEYS, M, OWN, N>(s, gx__mma_bias(tiles)->biases);
    if (!visible.whole) gx__mma_mask<M, N>(s, span);
    if (p.a.dropout != 0) gx__mma_each<M, N>(ds, drop);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int column = gx__mma_column(n, i % 2);
                const float lse = KEYS ? gx__mma_lse_log2(others->lse[column]) : own.lse[m][i / 2];
                const float D = KEYS ? others->D[column] : own.D[m][i / 2];
                s[m][n][i] = gx__mma_probability(s[m][n][i], lse, p);
                ds[m][n][i] = s[m][n][i] * (ds[m][n][i] - D);
            }
    if (KEYS && p.a.dropout != 0) gx__mma_each<M, N>(s, drop);
    if constexpr (KEYS) gx__mma_accumulate<T, M, N, HEAD>(own.d_second, s, others->second);
    gx__mma_accumulate<T, M, N, HEAD>(own.d_first, ds, others->first);
    if constexpr (BIAS && !KEYS)
        if (dbias) gx__mma_add_dbias<T, HEAD>(dbias, gx__mma_bias(tiles), ds, p, tile, other);
}

// `head`: a key and value head if KEYS, otherwise a query head.
template <bool KEYS, class T, int HEAD, bool BIAS>
static __device__ __forceinline__ void gx__mma_backward_tile(const GxMmaGradients<T> &x, const GxCudaAttention &p,
                                                             const GxCudaTile &tile, int64_t b, int64_t head,
                                                             int64_t job)
{
    enum { M = GxMmaBackward<T, HEAD>::M, OWN = GxMmaBackward<T, HEAD>::OWN, N = GxMmaBackward<T, HEAD>::OTHERS };
    typedef GxMmaBackwardTiles<T, HEAD> Tiles;
    GX_DYNAMIC_SHARED(Tiles, tiles);
    float *dbias = NULL;
    if (BIAS && !KEYS && p.dbias_parts) {
        dbias = gx__cuda_dbias_part(p, job, GX__MMA_WARPS, (int)threadIdx.x / GX_WARP);
        gx__cuda_clear_dbias(dbias, p);
    }
    GxMmaOwn<KEYS, M, HEAD> own = {};
    GxMmaOthers others = gx__mma_others_of<KEYS>(head, p);
    gx__mma_begin_own<KEYS, T, M, HEAD>(own, x, p, tile, b, head);
    __syncthreads(); // the previous tile has been read
    gx__cuda_load_documents<KEYS>(tiles->documents, p, tile, b);
    gx__mma_next_others<KEYS, N>(&others, tiles->documents, p, tile);
    if (others.tile.length) {
        gx__mma_load<T, OWN, HEAD>(tiles->first, gx__cuda_head(x.first, tile.row, b, head, x.stride, p),
                                   p.a.B * x.stride, tile.length, p);
        gx__mma_load<T, OWN, HEAD>(tiles->second, gx__cuda_head(x.second, tile.row, b, head, x.second_stride, p),
                                   p.a.B * x.second_stride, tile.length, p);
        gx__mma_load_others<KEYS, T, HEAD>(&tiles->others[0], x, others, p, b);
    }
    for (int stage = 0; others.tile.length; stage ^= 1) {
        const GxCudaTile now = others.tile;
        const int64_t now_head = others.head;
        gx__mma_next_others<KEYS, N>(&others, tiles->documents, p, tile);
        gx_cp_async_wait<0>();
        __syncthreads(); // this tile has arrived, and the previous one has been read
        if (others.tile.length) gx__mma_load_others<KEYS, T, HEAD>(&tiles->others[stage ^ 1], x, others, p, b);
        if (p.a.dropout != 0) {
            if (KEYS) gx__mma_sample_keep<N, OWN>((uint32_t(*)[OWN / 32]) tiles->keep, p, now, tile, b, now_head);
            else gx__mma_sample_keep<OWN, N>((uint32_t(*)[N / 32]) tiles->keep, p, tile, now, b, now_head);
        }
        if (BIAS) {
            const int64_t first =
                KEYS ? tile.position - now.position - (N - 1) : now.position - tile.position - (OWN - 1);
            gx__cuda_load_bias<T>(gx__mma_bias(tiles)->biases, p, now_head, first, OWN + N - 1);
        }
        if (p.a.dropout != 0 || BIAS) __syncthreads();
        gx__mma_backward_step<KEYS, T, HEAD, BIAS>(own, tiles, stage, dbias, p, tile, now);
    }
    gx__mma_finish_own<KEYS, T, M, HEAD>(x, own, p, tile, b, head);
}

// One block per (tile, sample b, head). Causal: the first tiles of keys and the last tiles of queries have the most
// work and come first.
template <bool KEYS, class T, int HEAD, bool BIAS>
static __global__ void __launch_bounds__(GX__MMA_THREADS, 2)
    gx__mma_attention_backward(const __grid_constant__ GxMmaGradients<T> x, const __grid_constant__ GxCudaAttention p)
{
    const GxRuns &runs = KEYS ? p.a.k_runs : p.a.q_runs;
    const int64_t per_sample = KEYS ? p.a.K : p.a.H, heads = p.a.B * per_sample;
    const int64_t tiles = gx__cuda_tiles(runs, GxMmaBackward<T, HEAD>::OWN);
    for (int64_t job = blockIdx.x; job < tiles * heads; job += gridDim.x) {
        const int64_t number = KEYS ? job / heads : tiles - 1 - job / heads;
        gx__mma_backward_tile<KEYS, T, HEAD, BIAS>(x, p, gx__cuda_tile(runs, GxMmaBackward<T, HEAD>::OWN, number),
                                                   job % heads / per_sample, job % per_sample, job);
    }
}

// ---- the host's side -----------------------------------------------------------------------------------------------

// 1: this GPU computes attention of that type on tensor cores; in fp32 only if three products in TF32 are faster than
// one on CUDA cores. In a plan without a GPU (--dry_run) that is unknown, and fp32 does not use them.
static inline int gx__mma_has(const GxContext *g, GxDtype dtype)
{
    const GxCuda *card = gx_cuda(g);
    return dtype == GX_BF16 || (card && card->fast_tf32 && card->shared_bytes >= GX__CUDA_FAST_TF32_SHARED);
}

// 1: there are kernels for heads of this size. A head must consist of whole packs of 16 bytes.
static inline int gx__mma_fits(GxDtype dtype, int64_t head_dim)
{
    return head_dim <= GX__MMA_MAX_HEAD && head_dim * gx_dtype_size(dtype) % 16 == 0;
}

// 1: this kernel supports these arguments. Rows and heads must begin at multiples of 16 bytes, and the scale must be
// positive, because row_max is that of the unscaled scores.
static inline int gx__mma_supports(const GxContext *g, const GxCudaAttention *p)
{
    return gx__mma_has(g, p->a.dtype) && gx__mma_fits(p->a.dtype, p->a.head_dim) && p->packed && p->scale > 0;
}

// 1: its backward also rotates dq and dk back, which it does only for heads without padding.
static inline int gx__mma_rotates(const GxContext *g, const GxCudaAttention *p)
{
    const int64_t h = p->a.head_dim;
    return p->a.cosine && gx__mma_supports(g, p) && (h == 64 || h == 128 || (h == 96 && p->a.dtype == GX_BF16));
}

// Calls the template F<T, HEAD>(...) for the padded size of head; the first one for any type.
#define GX__MMA_HEADS(p, F, ...)                                                                                       \
    do {                                                                                                               \
        if ((p)->a.dtype == GX_BF16) GX__MMA_BF16_HEADS(p, F, __VA_ARGS__);                                            \
        else if ((p)->a.head_dim <= 64) F<float, 64>(__VA_ARGS__);                                                     \
        else F<float, 128>(__VA_ARGS__);                                                                               \
    } while (0)
#define GX__MMA_BF16_HEADS(p, F, ...)                                                                                  \
    do {                                                                                                               \
        if ((p)->a.head_dim <= 64) F<__nv_bfloat16, 64>(__VA_ARGS__);                                                  \
        else if ((p)->a.head_dim <= 96) F<__nv_bfloat16, 96>(__VA_ARGS__);                                             \
        else F<__nv_bfloat16, 128>(__VA_ARGS__);                                                                       \
    } while (0)

// Bytes of shared memory that a block can have on every GPU that runs these kernels.
template <class T> static constexpr size_t gx__mma_shared()
{
    return sizeof(T) == sizeof(float) ? GX__CUDA_FAST_TF32_SHARED : GX__CUDA_LEAST_SHARED;
}

template <class T, int HEAD>
static void gx__mma_launch_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                                   const GxCudaAttention *p)
{
    const int bytes = (int)sizeof(GxMmaForwardTiles<T, HEAD>);
    static_assert(sizeof(GxMmaForwardTiles<T, HEAD>) <= gx__mma_shared<T>(), "more than a card may have");
    if (!gx__cuda_attention_shared(g, "attention_forward", (const void *)gx__mma_attention_forward<T, HEAD>, bytes))
        return;
    const unsigned grid = gx_cuda_blocks(gx__cuda_tiles(p->a.q_runs, GxMmaForward<T, HEAD>::OWN) * p->a.B * p->a.H);
    GX_LAUNCH((gx__mma_attention_forward<T, HEAD>), grid, GX__MMA_THREADS, bytes, gx_cuda(g)->stream, (T *)o, lse,
              (const T *)q, (const T *)k, (const T *)v, *p);
    gx_cuda_check(g, "attention_forward");
}

template <bool KEYS, class T, int HEAD, bool BIAS>
static void gx__mma_launch_gradients(GxContext *g, const GxMmaGradients<T> *x, const GxCudaAttention *p)
{
    const char *what = KEYS ? "attention_backward_keys" : "attention_backward_queries";
    const int bytes = (int)(sizeof(GxMmaBackwardTiles<T, HEAD>) + (BIAS ? sizeof(GxMmaBackwardBias<T, HEAD>) : 0));
    static_assert(sizeof(GxMmaBackwardTiles<T, HEAD>) + sizeof(GxMmaBackwardBias<T, HEAD>) <= gx__mma_shared<T>(),
                  "more than a card may have");
    if (!gx__cuda_attention_shared(g, what, (const void *)gx__mma_attention_backward<KEYS, T, HEAD, BIAS>, bytes))
        return;
    const GxRuns *runs = KEYS ? &p->a.k_runs : &p->a.q_runs;
    const unsigned grid =
        gx_cuda_blocks(gx__cuda_tiles(*runs, GxMmaBackward<T, HEAD>::OWN) * p->a.B * (KEYS ? p->a.K : p->a.H));
    GX_LAUNCH((gx__mma_attention_backward<KEYS, T, HEAD, BIAS>), grid, GX__MMA_THREADS, bytes, gx_cuda(g)->stream, *x,
              *p);
    gx_cuda_check(g, what);
}

// d: dq, dk, dv; x: q, k, v, d_o
template <bool KEYS, class T>
static GxMmaGradients<T> gx__mma_gradients(void *const *d, const void *const *x, const float *lse, const float *D,
                                           const GxCudaAttention *p)
{
    const int64_t q = p->a.q_stride, kv = p->a.kv_stride, o = p->a.o_stride;
    const T *of_q = (const T *)x[0], *of_k = (const T *)x[1], *of_v = (const T *)x[2], *of_o = (const T *)x[3];
    const GxMmaGradients<T> keys = {(T *)d[1], (T *)d[2], of_k, of_v, of_q, of_o, lse, D, kv, kv, q, o};
    const GxMmaGradients<T> queries = {(T *)d[0], NULL, of_q, of_o, of_k, of_v, lse, D, q, o, kv, kv};
    return KEYS ? keys : queries;
}

template <class T, int HEAD>
static void gx__mma_launch_backward(GxContext *g, void *const *d, const void *const *x, const float *lse,
                                    const float *D, const GxCudaAttention *p)
{
    const GxMmaGradients<T> keys = gx__mma_gradients<true, T>(d, x, lse, D, p),
                            queries = gx__mma_gradients<false, T>(d, x, lse, D, p);
    if (p->a.bias) {
        gx__mma_launch_gradients<true, T, HEAD, true>(g, &keys, p);
        gx__mma_launch_gradients<false, T, HEAD, true>(g, &queries, p);
    } else {
        gx__mma_launch_gradients<true, T, HEAD, false>(g, &keys, p);
        gx__mma_launch_gradients<false, T, HEAD, false>(g, &queries, p);
    }
}
#endif
