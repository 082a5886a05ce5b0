// attention_parts.cuh: what the GPU's attention kernels share (attention*.cuh): parameters, tiles of rows, the bounds
// of documents, which tiles, and which of their rows, are visible to each other, and the bias by distance.
//
// No tile extends beyond a run, and no tile of keys beyond a page. The bounds of the documents of a tile's rows are
// loaded into shared memory. A document's queries and keys have the same positions, so these bounds also say to which
// queries a key is visible.
#ifndef GX_CUDA_ATTENTION_PARTS_CUH
#define GX_CUDA_ATTENTION_PARTS_CUH
#include "../ops/attention.h"
#include "kernel.cuh"

typedef struct {
    GxAttention a;
    int64_t group, q_rows; // q_rows: Tq*B
    float scale;           // of the scores
    float scale_log2;      // scale*log2(e): exp(scale*s) = exp2(scale_log2*s), and the hardware has exp2
    int packed;            // rows and heads of all matrices begin at multiples of 16 bytes
    const GxStep *step;    // seed and step of dropout
    uint32_t threshold;    // a probability is kept if its random bits are at or above this
    float keep;            // the factor that a kept probability is multiplied by
    float inverse_scale;   // what a bias is multiplied by before it is added to an unscaled score
    float *dbias_parts;    // [jobs of the queries' blocks, parts of a job, 2*reach + 1]; NULL: dbias is not wanted
} GxCudaAttention;
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && !defined(GX_CUDA_ATTENTION_PARTS_IMPLEMENTED)
#define GX_CUDA_ATTENTION_PARTS_IMPLEMENTED
#include <math.h>

#define GX__CUDA_LOG2_E 1.44269504088896341f
#define GX__CUDA_LN_2   0.693147180559945309f

// Bytes of shared memory that a block can have on every GPU from sm_80 on, and on every one with fast_tf32.
enum { GX__CUDA_LEAST_SHARED = 99 * 1024, GX__CUDA_FAST_TF32_SHARED = 163 * 1024 };

// ---- tiles ---------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t row, position;
    int length;
} GxCudaTile; // part of one run

static __host__ __device__ inline int64_t gx__cuda_tiles(const GxRuns &runs, int size)
{
    int64_t n = 0;
    for (int i = 0; i < runs.n; i++) n += (runs.run[i].length + size - 1) / size;
    return n;
}

static __device__ __forceinline__ GxCudaTile gx__cuda_part(const GxRun &run, int64_t begin, int size)
{
    const int64_t rest = run.length - begin;
    const GxCudaTile t = {run.row + begin, run.position + begin, rest < size ? (int)rest : size};
    return t;
}

static __device__ __forceinline__ GxCudaTile gx__cuda_tile(const GxRuns &runs, int size, int64_t index)
{
    int i = 0;
    for (; index >= (runs.run[i].length + size - 1) / size; i++) index -= (runs.run[i].length + size - 1) / size;
    return gx__cuda_part(runs.run[i], index * size, size);
}

// The difference of two positions, clamped to +-GX__CUDA_FAR, which is more than the rows of any tile.
enum { GX__CUDA_FAR = 1 << 16 };
static __device__ __forceinline__ int gx__cuda_distance(int64_t d)
{
    return d > GX__CUDA_FAR ? GX__CUDA_FAR : d < -GX__CUDA_FAR ? -GX__CUDA_FAR : (int)d;
}

// Row j of a key tile may be visible to row i of a query tile if i + first <= j <= i + first + more: from the beginning
// of its window up to itself.
typedef struct {
    int first;
    unsigned more;
} GxCudaBand;

static __device__ __forceinline__ GxCudaBand gx__cuda_band(const GxCudaAttention &p, const GxCudaTile &q,
                                                           const GxCudaTile &k)
{
    const int64_t d = q.position - k.position;
    const int first = p.a.sliding_window ? gx__cuda_distance(d + 1 - p.a.sliding_window) : -GX__CUDA_FAR;
    const int last = p.a.causal ? gx__cuda_distance(d) : GX__CUDA_FAR;
    const GxCudaBand band = {first, (unsigned)(last - first)};
    return band;
}

static __device__ __forceinline__ int gx__cuda_in_band(const GxCudaBand &band, int query, int key)
{
    return (unsigned)(key - query - band.first) <= band.more;
}

// ---- documents -----------------------------------------------------------------------------------------------------

typedef struct {
    int begin, end; // positions
} GxCudaDocument;   // of a row

typedef struct {
    int64_t begin, end;
} GxCudaRange; // of a run's rows

// The document of a tile's row r: of a query or, with KEYS, of a key.
template <bool KEYS>
static __device__ __forceinline__ GxCudaDocument gx__cuda_document(const GxCudaAttention &p, const GxCudaTile &tile,
                                                                   int r, int64_t b)
{
    const int32_t *documents = KEYS && p.a.key_documents ? p.a.key_documents : p.a.documents;
    const int32_t *from = documents + 2 * ((tile.position + r) * p.a.B + b);
    const GxCudaDocument document = {from[0], from[1]};
    return document;
}

// Loads the documents of all rows of a tile into shared memory. All threads of the block must call it.
template <bool KEYS>
static __device__ __forceinline__ void gx__cuda_load_documents(GxCudaDocument *to, const GxCudaAttention &p,
                                                               const GxCudaTile &tile, int64_t b)
{
    if (!p.a.documents) return;
    __syncthreads(); // the previous tile's documents have been read
    for (int r = (int)threadIdx.x; r < tile.length; r += (int)blockDim.x)
        to[r] = gx__cuda_document<KEYS>(p, tile, r, b);
    __syncthreads();
}

// Extends `all` to include the other document.
static __device__ __forceinline__ void gx__cuda_join(GxCudaDocument *all, const GxCudaDocument &other)
{
    if (other.begin >= other.end) return; // padding
    if (other.begin < all->begin) all->begin = other.begin;
    if (other.end > all->end) all->end = other.end;
}

// The rows [begin, end) of a run at the positions of a document, or of several joined ones.
static __device__ __forceinline__ GxCudaRange gx__cuda_of_document(const GxCudaDocument &document, const GxRun &run)
{
    GxCudaRange rows = {0, run.length};
    if (document.begin > run.position) rows.begin = document.begin - run.position;
    if (document.end - run.position < rows.end) rows.end = document.end - run.position;
    return rows;
}

// The rows of a run in the documents of a tile's rows: only these can attend to the tile's rows or be attended to by
// them.
static __device__ __forceinline__ GxCudaRange gx__cuda_of_documents(const GxCudaDocument *documents,
                                                                    const GxCudaAttention &p, const GxCudaTile &tile,
                                                                    const GxRun &run)
{
    const GxCudaRange whole = {0, run.length};
    if (!p.a.documents) return whole;
    GxCudaDocument all = {INT32_MAX, 0}; // no row so far
    for (int r = 0; r < tile.length; r++) gx__cuda_join(&all, documents[r]);
    return gx__cuda_of_document(all, run);
}

// Of the keys in the query tile's documents, those of a run that may be visible to some row of the tile: from the
// beginning of the first row's window to the end of the last row's.
static __device__ __forceinline__ GxCudaRange gx__cuda_visible_keys(const GxCudaRange &documents,
                                                                    const GxCudaAttention &p, const GxCudaTile &q,
                                                                    const GxRun &k)
{
    GxCudaRange visible = documents;
    const int64_t until = q.position + q.length - k.position;
    if (p.a.causal && until < visible.end) visible.end = until;
    const int64_t from = q.position + 1 - p.a.sliding_window - k.position;
    if (p.a.sliding_window && from > visible.begin) visible.begin = from;
    return visible;
}

// Of the queries in the key tile's documents, those of a run to which some key of the tile may be visible. If causal,
// the first is at the tile's first position, rounded down to whole tiles, and the last is the last one whose window has
// the tile's last key.
static __device__ __forceinline__ GxCudaRange gx__cuda_visible_queries(const GxCudaRange &documents,
                                                                       const GxCudaAttention &p, const GxRun &q,
                                                                       const GxCudaTile &k, int size)
{
    GxCudaRange visible = documents;
    const int64_t first = (k.position - q.position) / size * size;
    if (p.a.causal && first > visible.begin) visible.begin = first;
    const int64_t until = k.position + k.length - 1 + p.a.sliding_window - q.position;
    if (p.a.sliding_window && until < visible.end) visible.end = until;
    return visible;
}

// The tile of up to ROWS keys of a run that begins at row `begin`.
template <int ROWS>
static __device__ __forceinline__ GxCudaTile gx__cuda_key_tile(const GxCudaAttention &p, const GxRun &run,
                                                               int64_t begin)
{
    GxCudaTile tile = gx__cuda_part(run, begin, ROWS);
    const int rest = GX_PAGE - (int)(tile.position % GX_PAGE); // to the end of the page
    if (p.a.pages && rest < tile.length) tile.length = rest;
    return tile;
}

// The matrix row of the tile's first key; -1: it has no page.
static __device__ __forceinline__ int64_t gx__cuda_key_row(const GxCudaAttention &p, const GxCudaTile &keys, int64_t b)
{
    return p.a.pages ? gx_page_row(p.a.pages, keys.position, p.a.B, b) : keys.row * p.a.B + b;
}

// ---- bias by distance ----------------------------------------------------------------------------------------------
// All pairs on a diagonal of two tiles are at the same distance. The diagonals' biases are loaded into shared memory
// for each pair of tiles. For dbias, a warp adds up the diagonals of the gradients of the scores of GX__CUDA_PART
// queries, and has sums by distance of its own in global memory, to which nobody else adds; gx__cuda_attention_dbias
// adds these up.

enum { GX__CUDA_PART = 16 };

// to[i] = what is added to the unscaled score of a query and a key whose position minus the query's is first + i. All
// threads of the block must call it.
template <class T>
static __device__ __forceinline__ void gx__cuda_load_bias(float *to, const GxCudaAttention &p, int64_t head,
                                                          int64_t first, int n)
{
    const T *bias = (const T *)p.a.bias + head;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        const int64_t row = min(max(first + i + p.a.reach, (int64_t)0), 2 * p.a.reach);
        to[i] = gx_to_float(bias[row * p.a.H]) * p.inverse_scale;
    }
}

// The sums of this warp, which is number `part` of its block's `parts` in the job.
static __device__ __forceinline__ float *gx__cuda_dbias_part(const GxCudaAttention &p, int64_t job, int parts, int part)
{
    return p.dbias_parts + (job * parts + part) * (2 * p.a.reach + 1);
}

static __device__ __forceinline__ void gx__cuda_clear_dbias(float *sums, const GxCudaAttention &p)
{
    for (int64_t i = threadIdx.x % GX_WARP; i < 2 * p.a.reach + 1; i += GX_WARP) sums[i] = 0;
}

// Adds the diagonals of ds, times `factor`, to a warp's sums. ds[0][0] is of a query and a key whose position minus the
// query's is `distance`. The diagonals beyond the reach are first added up by lanes, then over the lanes. All lanes of
// the warp must call it.
template <int COLUMNS, int STRIDE>
static __device__ __forceinline__ void gx__cuda_add_dbias(float *sums, const float (*ds)[STRIDE], int64_t distance,
                                                          float factor, const GxCudaAttention &p)
{
    const int lane = (int)threadIdx.x % GX_WARP;
    float before = 0, behind = 0;
    __syncwarp(); // ds and the previous sums are written
#pragma unroll 1
    for (int i = lane; i < GX__CUDA_PART - 1 + COLUMNS; i += GX_WARP) {
        const int diagonal = i - (GX__CUDA_PART - 1); // column minus row
        const int64_t row = distance + diagonal + p.a.reach;
        float sum = 0;
#pragma unroll 4
        for (int r = 0; r < GX__CUDA_PART; r++)
            if (r + diagonal >= 0 && r + diagonal < COLUMNS) sum += ds[r][r + diagonal];
        sum *= factor;
        if (row <= 0) before += sum;
        else if (row >= 2 * p.a.reach) behind += sum;
        else sums[row] += sum;
    }
    for (int i = GX_WARP / 2; i > 0; i /= 2) {
        before += __shfl_xor_sync(0xffffffffu, before, i);
        behind += __shfl_xor_sync(0xffffffffu, behind, i);
    }
    if (lane == 0) sums[0] += before, sums[2 * p.a.reach] += behind;
    __syncwarp(); // ds has been read
}

template <class T>
static __device__ __forceinline__ T *gx__cuda_head(T *x, int64_t row, int64_t b, int64_t head, int64_t stride,
                                                   const GxCudaAttention &p)
{
    return x + (row * p.a.B + b) * stride + head * p.a.head_dim;
}

// ---- the host's side -----------------------------------------------------------------------------------------------

// Requests more than 48 KB of shared memory per block, which needs an opt-in. 0: the context has an error.
static inline int gx__cuda_attention_shared(GxContext *g, const char *what, const void *kernel, int bytes)
{
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error == cudaSuccess) return 1;
    GX_FAIL(&g->error, GX_ERR_DEVICE, "%s: a block needs %d bytes of shared memory, this card gives it %d: %s", what,
            bytes, gx_cuda(g)->shared_bytes, cudaGetErrorString(error));
    return 0;
}
#endif
