// attention_wgmma.cuh: attention's forward for the H100, for bf16 and heads of up to 128: tiles loaded by TMA, products
// by wgmma (hopper.cuh). Its tests pass on the emulator; docs/gpu.md says what ran on a card.
//
// There is one persistent block per multiprocessor. A job is 128 query rows of one head, with the tiles of 64 keys that
// are visible to them. The block's third warpgroup is the producer: one of its warps loads the bounds of documents, and
// one thread of that warp issues the TMA loads of the queries, and then of keys, values, keys, values, ... into a ring
// of stages, each as soon as its stage is empty. The producer's other warps only give up their registers. The first two
// warpgroups are the consumers, with 64 rows each: they wait until a stage is full, multiply, and release it; they
// release it at once if none of its keys is visible to any of their rows. While a tile's scores become probabilities,
// the product with the previous tile's values runs. Scores and accumulators have the register layout of
// attention_mma.cuh, which also provides softmax, masks and dropout; probabilities are wgmma's A operand in registers.
//
// In shared memory a tile is one or two parts of 64 columns, or for heads of 96 three parts of 32: swizzled rows of 128
// or 64 bytes. Products with keys sum along these rows, those with values across them. A head's size is padded to 64,
// 96 or 128: columns beyond it, and rows beyond the end of a run of keys, arrive as zeros.
//
// Keys in pages are not supported: their last rows may never have been written, but TMA loads whole boxes. Here and in
// the backward a bias by distance is not supported: attention_mma.cuh computes such calls. The kernel exists if
// GX_CUDA_SM_90A is defined (hopper.cuh); attention.cuh chooses the kernel. Source: Shah et al. 2024, arXiv:2407.08608,
// sections 3.1 and 3.2, without the ping-pong scheduling between warpgroups.
#ifndef GX_CUDA_ATTENTION_WGMMA_CUH
#define GX_CUDA_ATTENTION_WGMMA_CUH
#include "attention_mma.cuh"
#include "hopper.cuh"
GX_BEGIN

// 1: this kernel supports these arguments on this GPU. The functions here and in attention_wgmma_backward.cuh exist if
// GX_CUDA_SM_90A is defined.
int gx__wgmma_supports(const GxContext *g, const GxCudaAttention *p);
void gx__wgmma_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                       const GxCudaAttention *p);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && defined(GX_CUDA_SM_90A) && !defined(GX_CUDA_ATTENTION_WGMMA_IMPLEMENTED)
#define GX_CUDA_ATTENTION_WGMMA_IMPLEMENTED

enum {
    GX__WGMMA_WARPS = 8, // of consumers
    GX__WGMMA_ROWS = 64, // of a warpgroup
    GX__WGMMA_OWN = 2 * GX__WGMMA_ROWS,
    GX__WGMMA_GROUP = 128, // threads of a warpgroup
    GX__WGMMA_THREADS = 3 * GX__WGMMA_GROUP,
    GX__WGMMA_PRODUCER_REGISTERS = 40, // of a thread; a block begins with 168 for each of its threads
    GX__WGMMA_CONSUMER_REGISTERS = 232,
    GX__WGMMA_OTHERS = 64,
    GX__WGMMA_STAGES = 4
};

// COLUMNS: of a part; they divide the head evenly. SWIZZLE: bytes of one of its rows; ATOM: of eight rows.
template <class T, int ROWS, int HEAD> struct GxWgmmaTile {
    enum { COLUMNS = HEAD % 64 ? 32 : 64, SWIZZLE = COLUMNS * 2, ATOM = 8 * SWIZZLE };
    T x[HEAD / COLUMNS][ROWS][COLUMNS];
};

// row: the documents of a block's own rows. For each warpgroup, some: the positions in the document of any of its rows;
// all: those in the documents of all its rows.
typedef struct {
    GxCudaDocument row[GX__WGMMA_OWN], some[GX__WGMMA_OWN / GX__WGMMA_ROWS], all[GX__WGMMA_OWN / GX__WGMMA_ROWS];
} GxWgmmaDocuments;

// A block's shared memory.
template <class T, int HEAD> struct alignas(1024) GxWgmmaTiles {
    GxWgmmaTile<T, GX__WGMMA_OWN, HEAD> q;
    GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> others[GX__WGMMA_STAGES];
    unsigned long long q_full, q_empty, full[GX__WGMMA_STAGES], empty[GX__WGMMA_STAGES];
    GxWgmmaDocuments documents;
};

static_assert((int)GX__WGMMA_STAGES > 2, "values are held while the next tile's keys and values come");

typedef struct {
    CUtensorMap q, k[GX_MAX_RUNS], v[GX_MAX_RUNS]; // of each run of keys; they end where the run does
} GxWgmmaMaps;

typedef struct {
    GxCudaTile tile; // the own rows
    int64_t b, head; // if own rows are keys: a key and value head
} GxWgmmaJob;        // one for each tile of a sample's heads; a block works on one after another

// A block's own rows are queries or, in the backward, also keys (KEYS).
template <bool KEYS> static __host__ __device__ inline int64_t gx__wgmma_jobs(const GxCudaAttention &p)
{
    return gx__cuda_tiles(KEYS ? p.a.k_runs : p.a.q_runs, GX__WGMMA_OWN) * p.a.B * (KEYS ? p.a.K : p.a.H);
}

#ifdef GX_CUDA_HOPPER
typedef struct {
    int stage;
    unsigned phase;
} GxWgmmaStage; // the producer's or a consumer's place in the ring

static __device__ __forceinline__ void gx__wgmma_next(GxWgmmaStage *at)
{
    if (++at->stage < GX__WGMMA_STAGES) return;
    at->stage = 0, at->phase ^= 1;
}

// Causal: the last tiles of queries and the first tiles of keys have the most work and come first.
template <bool KEYS> static __device__ __forceinline__ GxWgmmaJob gx__wgmma_job(const GxCudaAttention &p, unsigned i)
{
    const GxRuns &runs = KEYS ? p.a.k_runs : p.a.q_runs;
    const unsigned per_sample = (unsigned)(KEYS ? p.a.K : p.a.H), heads = (unsigned)p.a.B * per_sample;
    const int64_t number = KEYS ? i / heads : gx__cuda_tiles(runs, GX__WGMMA_OWN) - 1 - i / heads;
    const GxWgmmaJob job = {gx__cuda_tile(runs, GX__WGMMA_OWN, number), i % heads / per_sample, i % per_sample};
    return job;
}

// A block's first job is blockIdx.x; this returns the job after job i. In every other round the blocks take jobs in the
// opposite order, so that they have about the same work although earlier jobs are longer.
static __device__ __forceinline__ unsigned gx__wgmma_job_after(unsigned i)
{
    return 2 * (i / gridDim.x + 1) * gridDim.x - 1 - i;
}

// ---- the others ----------------------------------------------------------------------------------------------------
// All that holds for a whole run is computed at its beginning, so that a tile costs few instructions besides its
// products.

typedef struct {
    int begin, end; // begin >= end: none
} GxWgmmaRange;     // of a run's rows

// Iterates over the tiles that are visible to some of a block's own rows or, if these are keys, to which some of them
// are visible.
typedef struct {
    int own;            // this warpgroup's first row within the block's rows
    int head, head_end; // remaining query heads; for keys those of their group
    int run;
    int at, end;            // the run's rows: the first one of this tile, and the end of those to visit
    GxWgmmaRange some, all; // which of them meet some row of this warpgroup, and which meet all
} GxWgmmaOthers;

template <bool KEYS>
static __device__ __forceinline__ GxWgmmaOthers gx__wgmma_others(int64_t head, const GxCudaAttention &p, int own)
{
    const GxMmaOthers of = gx__mma_others_of<KEYS>(head, p);
    const GxWgmmaOthers others = {own, (int)of.head, (int)of.head_end, of.run, 0, 0, {0, 0}, {0, 0}};
    return others;
}

static __device__ __forceinline__ GxWgmmaRange gx__wgmma_range(int64_t begin, int64_t end, const GxRun &run)
{
    const GxWgmmaRange range = {(int)min(max(begin, (int64_t)0), run.length),
                                (int)min(max(end, (int64_t)0), run.length)};
    return range;
}

// Of the rows of their documents, those that meet (attend to, or are attended to by) some of these own rows. size: for
// keys, the range begins at a multiple of it.
template <bool KEYS>
static __device__ __forceinline__ GxWgmmaRange gx__wgmma_some(const GxCudaRange &documents, const GxCudaAttention &p,
                                                              const GxCudaTile &own, const GxRun &run, int size)
{
    const GxCudaRange some =
        KEYS ? gx__cuda_visible_queries(documents, p, run, own, size) : gx__cuda_visible_keys(documents, p, own, run);
    return gx__wgmma_range(own.length ? some.begin : 0, own.length ? some.end : 0, run);
}

// Of the rows that are in the documents of all own rows, those that meet all of them.
template <bool KEYS>
static __device__ __forceinline__ GxWgmmaRange gx__wgmma_all(const GxCudaRange &documents, const GxCudaAttention &p,
                                                             const GxCudaTile &own, const GxRun &run)
{
    const int64_t first = own.position - run.position, last = first + own.length - 1; // as if they were rows of the run
    GxCudaRange all = documents;
    if (p.a.causal && KEYS) all.begin = max(all.begin, last);
    if (p.a.causal && !KEYS) all.end = min(all.end, first + 1);
    if (p.a.sliding_window && KEYS) all.end = min(all.end, first + p.a.sliding_window);
    if (p.a.sliding_window && !KEYS) all.begin = max(all.begin, last + 1 - p.a.sliding_window);
    return gx__wgmma_range(all.begin, all.end, run);
}

// This warpgroup's first row within the block's rows. It is broadcast from lane 0 so that the compiler knows that it is
// uniform over the warp.
static __device__ __forceinline__ int gx__wgmma_first_row()
{
    return __shfl_sync(0xffffffffu, (int)threadIdx.x / GX__WGMMA_GROUP, 0) * GX__WGMMA_ROWS;
}

// A warpgroup's part of a block's own rows, from row `first` on.
static __device__ __forceinline__ GxCudaTile gx__wgmma_part(const GxCudaTile &own, int first)
{
    const int rest = max(own.length - first, 0);
    const GxCudaTile part = {own.row + first, own.position + first, min(rest, (int)GX__WGMMA_ROWS)};
    return part;
}

// Starts with the tiles of a run.
template <bool KEYS>
static __device__ __forceinline__ void gx__wgmma_begin_run(GxWgmmaOthers *others, const GxWgmmaDocuments *documents,
                                                           const GxCudaAttention &p, const GxCudaTile &own,
                                                           const GxRun &run)
{
    const GxCudaTile part = gx__wgmma_part(own, others->own);
    GxCudaRange block = {0, run.length}, some = block, all = block;
    if (p.a.documents) {
        const int group = others->own / GX__WGMMA_ROWS;
        GxCudaDocument both = documents->some[0];
        gx__cuda_join(&both, documents->some[1]);
        block = gx__cuda_of_document(both, run);
        some = gx__cuda_of_document(documents->some[group], run);
        all = gx__cuda_of_document(documents->all[group], run);
    }
    const GxWgmmaRange met = gx__wgmma_some<KEYS>(block, p, own, run, GX__WGMMA_OTHERS);
    others->at = met.begin, others->end = met.end;
    others->some = gx__wgmma_some<KEYS>(some, p, part, run, 1);
    others->all = gx__wgmma_all<KEYS>(all, p, part, run);
}

// Advances to the next tile; false: there is none. documents: those of the block's own rows.
template <bool KEYS>
static __device__ __forceinline__ bool gx__wgmma_next_others(GxWgmmaOthers *others, const GxWgmmaDocuments *documents,
                                                             const GxCudaAttention &p, const GxCudaTile &own)
{
    const GxRuns &runs = KEYS ? p.a.q_runs : p.a.k_runs;
    others->at += GX__WGMMA_OTHERS;
    while (others->at >= others->end) {
        if (++others->run >= runs.n) {
            others->run = 0;
            if (++others->head >= others->head_end) return false;
        }
        gx__wgmma_begin_run<KEYS>(others, documents, p, own, runs.run[others->run]);
    }
    return true;
}

template <bool KEYS>
static __device__ __forceinline__ GxCudaTile gx__wgmma_other_tile(const GxWgmmaOthers &others, const GxCudaAttention &p)
{
    return gx__cuda_part((KEYS ? p.a.q_runs : p.a.k_runs).run[others.run], others.at, GX__WGMMA_OTHERS);
}
static __device__ __forceinline__ bool gx__wgmma_any_visible(const GxWgmmaOthers &others)
{
    return others.at < others.some.end && others.at + GX__WGMMA_OTHERS > others.some.begin;
}
static __device__ __forceinline__ bool gx__wgmma_all_visible(const GxWgmmaOthers &others)
{
    return others.at >= others.all.begin && others.at + GX__WGMMA_OTHERS <= others.all.end;
}

// ---- the producer --------------------------------------------------------------------------------------------------

// Loads a whole tile, from `row` on; the barrier counts all its bytes, including those beyond the run's end.
template <class T, int ROWS, int HEAD>
static __device__ __forceinline__ void gx__wgmma_load(GxWgmmaTile<T, ROWS, HEAD> *to, const CUtensorMap *map,
                                                      unsigned long long *full, int64_t head, int64_t b, int64_t row)
{
    gx_mbarrier_arrive_expect(full, sizeof *to);
#pragma unroll
    for (int i = 0; i < HEAD / to->COLUMNS; i++)
        gx_tma_load(to->x[i], map, full, {i * to->COLUMNS, (int)head, (int)b, (int)row});
}

// All lanes of a warp load the documents of a block's own rows. Stores before an arrival at the barrier are visible
// after a wait on it.
template <bool KEYS>
static __device__ __forceinline__ void gx__wgmma_load_documents(GxWgmmaDocuments *to, const GxCudaAttention &p,
                                                                const GxWgmmaJob &job)
{
    const int lane = (int)threadIdx.x % GX_WARP;
    for (int i = 0; p.a.documents && i < GX__WGMMA_OWN / GX__WGMMA_ROWS; i++) {
        const int end = min((i + 1) * (int)GX__WGMMA_ROWS, job.tile.length);
        GxCudaDocument some = {INT32_MAX, 0}, all = {0, INT32_MAX}; // no row so far
        for (int r = i * GX__WGMMA_ROWS + lane; r < end; r += GX_WARP) {
            const GxCudaDocument one = gx__cuda_document<KEYS>(p, job.tile, r, job.b);
            to->row[r] = one;
            gx__cuda_join(&some, one);
            all.begin = max(all.begin, one.begin), all.end = min(all.end, one.end);
        }
        for (int other = GX_WARP / 2; other > 0; other /= 2) {
            some.begin = min(some.begin, __shfl_xor_sync(0xffffffffu, some.begin, other));
            some.end = max(some.end, __shfl_xor_sync(0xffffffffu, some.end, other));
            all.begin = max(all.begin, __shfl_xor_sync(0xffffffffu, all.begin, other));
            all.end = min(all.end, __shfl_xor_sync(0xffffffffu, all.end, other));
        }
        if (lane == 0) to->some[i] = some, to->all[i] = all;
    }
    __syncwarp();
}

// Loads all tiles of a job.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_load_job(GxWgmmaTiles<T, HEAD> *tiles, GxWgmmaStage *at,
                                                          const GxWgmmaMaps &maps, const GxCudaAttention &p,
                                                          const GxWgmmaJob &job)
{
    const int64_t kv_head = gx__mma_other_head<false>(job.head, p);
    GxWgmmaOthers keys = gx__wgmma_others<false>(job.head, p, 0);
    gx__wgmma_load(&tiles->q, &maps.q, &tiles->q_full, job.head, job.b, job.tile.row);
    while (gx__wgmma_next_others<false>(&keys, &tiles->documents, p, job.tile))
#pragma unroll
        for (int values = 0; values < 2; values++) {
            gx_mbarrier_wait(&tiles->empty[at->stage], at->phase ^ 1); // a new barrier counts as empty
            gx__wgmma_load(&tiles->others[at->stage], values ? &maps.v[keys.run] : &maps.k[keys.run],
                           &tiles->full[at->stage], kv_head, job.b, p.a.k_runs.run[keys.run].row + keys.at);
            gx__wgmma_next(at);
        }
}

// One warp loads the documents, and one of its threads issues all TMA loads.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_produce(GxWgmmaTiles<T, HEAD> *tiles, const GxWgmmaMaps &maps,
                                                         const GxCudaAttention &p)
{
    const int lane = (int)threadIdx.x % GX_WARP;
    GxWgmmaStage at = {0, 0};
    unsigned phase = 1; // of the previous queries; on a new barrier it is complete
    const unsigned jobs = (unsigned)gx__wgmma_jobs<false>(p);
    for (unsigned i = blockIdx.x; i < jobs; i = gx__wgmma_job_after(i), phase ^= 1) {
        const GxWgmmaJob job = gx__wgmma_job<false>(p, i);
        gx_mbarrier_wait(&tiles->q_empty, phase);
        gx__wgmma_load_documents<false>(&tiles->documents, p, job);
        if (lane == 0) gx__wgmma_load_job<T, HEAD>(tiles, &at, maps, p, job);
        __syncwarp();
    }
}

// ---- the consumers -------------------------------------------------------------------------------------------------

// Called when a warp has read a tile. No lane may still be waiting for it, since a barrier distinguishes only two
// phases (parity).
static __device__ __forceinline__ void gx__wgmma_release(unsigned long long *empty)
{
    __syncwarp();
    if (threadIdx.x % GX_WARP == 0) gx_mbarrier_arrive(empty);
}

// Waits until at most the last LEFT wgmma-groups are pending, so that the group of these accumulators is complete.
template <int LEFT, int N> static __device__ __forceinline__ void gx__wgmma_wait(float (&sums)[1][N][4])
{
    gx_wgmma_wait<LEFT>();
    gx_wgmma_fence_operand(reinterpret_cast<float(&)[N * 4]>(sums));
}

// Starts s = q k^T for 64 rows of q, from `own` on.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_scores(float (&s)[1][GX__WGMMA_OTHERS / 8][4],
                                                        const GxWgmmaTile<T, GX__WGMMA_OWN, HEAD> *q,
                                                        const GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> *k, int own)
{
    auto &sums = reinterpret_cast<float(&)[GX__WGMMA_OTHERS / 2]>(s);
    gx_wgmma_fence_operand(sums);
    gx_wgmma_fence();
#pragma unroll
    for (int c = 0; c < HEAD; c += 16) {
        const int part = c / q->COLUMNS, column = c % q->COLUMNS;
        gx_wgmma<GX__WGMMA_OTHERS, false>(sums, gx_wgmma_descriptor(&q->x[part][own][column], 0, q->ATOM, q->SWIZZLE),
                                          gx_wgmma_descriptor(&k->x[part][0][column], 0, k->ATOM, k->SWIZZLE), c > 0);
    }
    gx_wgmma_commit();
}

// The A operand of a product with 64 others, in the scores' register layout, rounded to T.
typedef struct {
    unsigned x[GX__WGMMA_OTHERS / 16][4];
} GxWgmmaLeft;

static __device__ __forceinline__ GxWgmmaLeft gx__wgmma_left(const float (&w)[1][GX__WGMMA_OTHERS / 8][4])
{
    GxWgmmaLeft left;
#pragma unroll
    for (int k = 0; k < GX__WGMMA_OTHERS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float(&two)[4] = w[0][k * 2 + i / 2];
            left.x[k][i] = gx_pair(two[i % 2 * 2], two[i % 2 * 2 + 1]);
        }
    return left;
}

// Starts acc += w v.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_accumulate(float (&acc)[1][HEAD / 8][4], const GxWgmmaLeft &w,
                                                            const GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> *v)
{
    auto &sums = reinterpret_cast<float(&)[HEAD / 2]>(acc);
    gx_wgmma_fence_operand(sums);
    gx_wgmma_fence();
#pragma unroll
    for (int k = 0; k < GX__WGMMA_OTHERS / 16; k++)
        gx_wgmma<HEAD, true>(sums, w.x[k], gx_wgmma_descriptor(v->x[0][k * 16], sizeof v->x[0], v->ATOM, v->SWIZZLE),
                             true);
    gx_wgmma_commit();
}

// Bit n%4*8 + e of keep[half][n/4]: 1 if element e of this lane's two of fragment n is kept. Each lane generates one of
// the 32 words of its warp's rows.
static __device__ __forceinline__ void gx__wgmma_sample_keep(uint32_t (&keep)[2][2], const GxCudaAttention &p,
                                                             const GxWgmmaJob &job, const GxCudaTile &keys)
{
    static_assert((int)GX__WGMMA_OTHERS / 32 * (int)GX__MMA_ROWS == (int)GX_WARP, "two words to a row");
    const int lane = (int)threadIdx.x % GX_WARP, row = gx__mma_first_row<1>() + lane / 2;
    const uint32_t word = gx__mma_keep_word(p, job.tile.position + row, keys.position + lane % 2 * 32, job.b, job.head);
#pragma unroll
    for (int i = 0; i < 4; i++)
        keep[i / 2][i % 2] = __shfl_sync(0xffffffffu, word, gx__mma_row(0, i / 2) * 2 + i % 2) >> gx__mma_column(0, 0);
}

static __device__ __forceinline__ void gx__wgmma_drop(float (&s)[1][GX__WGMMA_OTHERS / 8][4],
                                                      const uint32_t (&keep)[2][2], const GxCudaAttention &p)
{
#pragma unroll
    for (int n = 0; n < GX__WGMMA_OTHERS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[0][n][i] *= keep[i / 2][n / 4] >> (n % 4 * 8 + i % 2) & 1 ? p.keep : 0.0f;
}

// Waits for and releases both tiles of others that meet no row of this warpgroup.
static __device__ __forceinline__ void gx__wgmma_skip(unsigned long long *full, unsigned long long *empty,
                                                      GxWgmmaStage *at)
{
    for (int i = 0; i < 2; i++, gx__wgmma_next(at)) {
        gx_mbarrier_wait(&full[at->stage], at->phase);
        gx__wgmma_release(&empty[at->stage]);
    }
}

// The masks of a tile of keys, prepared while its scores are computed.
typedef struct {
    bool whole;           // the whole tile is visible to all rows
    GxMmaSpan span[1][2]; // otherwise: the visible columns of each row
    uint32_t keep[2][2];  // with dropout
} GxWgmmaVisible;

template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_visible(GxWgmmaVisible *visible, const GxWgmmaTiles<T, HEAD> *tiles,
                                                         const GxWgmmaOthers &keys, const GxCudaAttention &p,
                                                         const GxWgmmaJob &job)
{
    visible->whole = gx__wgmma_all_visible(keys);
    if (visible->whole && p.a.dropout == 0) return;
    const GxCudaTile tile = gx__wgmma_other_tile<false>(keys, p);
    gx__mma_spans<false, 1, GX__WGMMA_OTHERS>(visible->span, tiles->documents.row, p, job.tile, tile);
    if (p.a.dropout != 0) gx__wgmma_sample_keep(visible->keep, p, job, tile);
}

// Turns scores into probabilities; the caller must then multiply o by `rescale`.
template <int HEAD>
static __device__ __forceinline__ void gx__wgmma_softmax(float (&s)[1][GX__WGMMA_OTHERS / 8][4],
                                                         GxMmaRows<1, HEAD> &rows, float (&rescale)[1][2],
                                                         const GxWgmmaVisible &visible, const GxCudaAttention &p)
{
    enum { N = GX__WGMMA_OTHERS };
    if (!visible.whole) gx__mma_mask<1, N>(s, visible.span);
    gx__mma_softmax<1, N, HEAD>(s, rows, rescale, p.scale_log2);
    if (p.a.dropout != 0) gx__wgmma_drop(s, visible.keep, p);
}

// Attends to consecutive tiles of keys, beginning with the current one of `keys`: while a tile's scores become
// probabilities, the product with the previous tile's values runs. false: there are no more tiles; true: the current
// tile of `keys` is visible only to other rows.
template <class T, int HEAD>
static __device__ __forceinline__ bool gx__wgmma_attend(GxMmaRows<1, HEAD> &rows, GxWgmmaTiles<T, HEAD> *tiles,
                                                        GxWgmmaStage *at, GxWgmmaOthers *keys, const GxCudaAttention &p,
                                                        const GxWgmmaJob &job)
{
    float s[1][GX__WGMMA_OTHERS / 8][4], rescale[1][2];
    GxWgmmaVisible visible = {};
    gx_mbarrier_wait(&tiles->full[at->stage], at->phase);
    gx__wgmma_scores<T, HEAD>(s, &tiles->q, &tiles->others[at->stage], keys->own);
    gx__wgmma_visible<T, HEAD>(&visible, tiles, *keys, p, job);
    gx__wgmma_wait<0>(s);
    gx__wgmma_release(&tiles->empty[at->stage]);
    gx__wgmma_next(at);
    gx__wgmma_softmax<HEAD>(s, rows, rescale, visible, p);
    gx__mma_rescale<1, HEAD>(rows, rescale);
    GxWgmmaLeft left = gx__wgmma_left(s);
    GxWgmmaStage values = *at;
    bool more = gx__wgmma_next_others<false>(keys, &tiles->documents, p, job.tile);
    gx__wgmma_next(at);
    while (more && gx__wgmma_any_visible(*keys)) {
        gx_mbarrier_wait(&tiles->full[at->stage], at->phase);
        gx_mbarrier_wait(&tiles->full[values.stage], values.phase);
        gx__wgmma_scores<T, HEAD>(s, &tiles->q, &tiles->others[at->stage], keys->own);
        gx__wgmma_accumulate<T, HEAD>(rows.o, left, &tiles->others[values.stage]);
        gx__wgmma_visible<T, HEAD>(&visible, tiles, *keys, p, job);
        gx__wgmma_wait<1>(s);
        gx__wgmma_release(&tiles->empty[at->stage]);
        gx__wgmma_next(at);
        gx__wgmma_softmax<HEAD>(s, rows, rescale, visible, p);
        gx__wgmma_wait<0>(rows.o);
        gx__wgmma_release(&tiles->empty[values.stage]);
        gx__mma_rescale<1, HEAD>(rows, rescale);
        left = gx__wgmma_left(s);
        values = *at;
        more = gx__wgmma_next_others<false>(keys, &tiles->documents, p, job.tile);
        gx__wgmma_next(at);
    }
    gx_mbarrier_wait(&tiles->full[values.stage], values.phase);
    gx__wgmma_accumulate<T, HEAD>(rows.o, left, &tiles->others[values.stage]);
    gx__wgmma_wait<0>(rows.o);
    gx__wgmma_release(&tiles->empty[values.stage]);
    return more;
}

template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_consume(T *o, float *lse, GxWgmmaTiles<T, HEAD> *tiles,
                                                         const GxCudaAttention &p)
{
    const int own = gx__wgmma_first_row();
    GxWgmmaStage at = {0, 0};
    unsigned phase = 0; // of the queries
    const unsigned jobs = (unsigned)gx__wgmma_jobs<false>(p);
    for (unsigned i = blockIdx.x; i < jobs; i = gx__wgmma_job_after(i), phase ^= 1) {
        const GxWgmmaJob job = gx__wgmma_job<false>(p, i);
        GxMmaRows<1, HEAD> rows = {};
        rows.row_max[0][0] = rows.row_max[0][1] = -INFINITY;
        gx_mbarrier_wait(&tiles->q_full, phase);
        GxWgmmaOthers keys = gx__wgmma_others<false>(job.head, p, own);
        bool more = gx__wgmma_next_others<false>(&keys, &tiles->documents, p, job.tile);
        while (more)
            if (gx__wgmma_any_visible(keys)) more = gx__wgmma_attend<T, HEAD>(rows, tiles, &at, &keys, p, job);
            else {
                gx__wgmma_skip(tiles->full, tiles->empty, &at);
                more = gx__wgmma_next_others<false>(&keys, &tiles->documents, p, job.tile);
            }
        gx__wgmma_release(&tiles->q_empty);
        gx__mma_finish<T, 1, HEAD>(o, lse, rows, p, job.tile, job.b, job.head);
    }
}

template <class T, int HEAD> static __device__ __forceinline__ void gx__wgmma_begin(GxWgmmaTiles<T, HEAD> *tiles)
{
    if (threadIdx.x == 0) {
        gx_mbarrier_init(&tiles->q_full, 1);
        gx_mbarrier_init(&tiles->q_empty, GX__WGMMA_WARPS);
        for (int i = 0; i < GX__WGMMA_STAGES; i++) {
            gx_mbarrier_init(&tiles->full[i], 1);
            gx_mbarrier_init(&tiles->empty[i], GX__WGMMA_WARPS);
        }
        gx_mbarrier_fence_init();
    }
    __syncthreads();
}
#endif

template <class T, int HEAD>
static __global__ void __launch_bounds__(GX__WGMMA_THREADS, 1)
    gx__wgmma_attention_forward(T *o, float *lse, const __grid_constant__ GxWgmmaMaps maps,
                                const __grid_constant__ GxCudaAttention p)
{
#ifdef GX_CUDA_HOPPER
    typedef GxWgmmaTiles<T, HEAD> Tiles;
    GX_DYNAMIC_SHARED(Tiles, tiles);
    gx__wgmma_begin<T, HEAD>(tiles);
    const int warp = (int)threadIdx.x / GX_WARP;
    if (warp < GX__WGMMA_WARPS) {
        gx_setmaxnreg_increase<GX__WGMMA_CONSUMER_REGISTERS>();
        gx__wgmma_consume<T, HEAD>(o, lse, tiles, p);
    } else {
        gx_setmaxnreg_decrease<GX__WGMMA_PRODUCER_REGISTERS>();
        if (warp == GX__WGMMA_WARPS) gx__wgmma_produce<T, HEAD>(tiles, maps, p);
    }
#else
    (void)o, (void)lse, (void)maps, (void)p;
    __trap(); // compiled for an architecture other than sm_90a
#endif
}

// ---- the host's side -----------------------------------------------------------------------------------------------

// A tensor map's strides must be multiples of each other; rows and jobs are counted with ints.
int gx__wgmma_supports(const GxContext *g, const GxCudaAttention *p)
{
    enum { MOST = INT32_MAX / 2 };
    const GxAttention *a = &p->a;
    return gx_cuda(g)->runs_sm_90a && p->a.dtype == GX_BF16 && gx__mma_supports(g, p) && !a->pages && !a->bias &&
           p->q_rows > 0 && a->q_stride % a->head_dim == 0 && a->kv_stride % a->head_dim == 0 &&
           gx_runs_rows(&a->q_runs) <= MOST && gx_runs_rows(&a->k_runs) <= MOST && gx__wgmma_jobs<false>(*p) <= MOST &&
           gx__wgmma_jobs<true>(*p) <= MOST;
}

typedef struct {
    const void *x;
    int64_t heads, stride;
    int columns, rows; // of a box
} GxWgmmaMatrix;       // [T,B,heads,head_dim], samples `stride` elements apart

// The tensor map of the first `rows` rows of B samples.
static CUresult gx__wgmma_map(CUtensorMap *map, const GxWgmmaMatrix *m, int64_t rows, const GxAttention *a)
{
    const auto encode = gx__cuda_tensor_map_encoder();
    const cuuint64_t dims[] = {(cuuint64_t)a->head_dim, (cuuint64_t)m->heads, (cuuint64_t)a->B, (cuuint64_t)rows};
    const cuuint64_t strides[] = {(cuuint64_t)a->head_dim * 2, (cuuint64_t)m->stride * 2,
                                  (cuuint64_t)(a->B * m->stride) * 2};
    const cuuint32_t box[] = {(cuuint32_t)m->columns, 1, 1, (cuuint32_t)m->rows}, ones[] = {1, 1, 1, 1};
    if (!encode) return CUDA_ERROR_INVALID_VALUE;
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)m->x, dims, strides, box, ones,
                  CU_TENSOR_MAP_INTERLEAVE_NONE,
                  m->columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// Returns 0 if the driver cannot make the maps.
template <class T, int HEAD>
static int gx__wgmma_make_maps(GxWgmmaMaps *maps, const void *q, const void *k, const void *v, const GxAttention *a)
{
    enum { COLUMNS = GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD>::COLUMNS };
    const GxWgmmaMatrix of_q = {q, a->H, a->q_stride, COLUMNS, GX__WGMMA_OWN},
                        of_k = {k, a->K, a->kv_stride, COLUMNS, GX__WGMMA_OTHERS},
                        of_v = {v, a->K, a->kv_stride, COLUMNS, GX__WGMMA_OTHERS};
    int made = gx__wgmma_map(&maps->q, &of_q, gx_runs_rows(&a->q_runs), a) == CUDA_SUCCESS;
    for (int i = 0; made && i < a->k_runs.n; i++) {
        const int64_t end = a->k_runs.run[i].row + a->k_runs.run[i].length;
        made = gx__wgmma_map(&maps->k[i], &of_k, end, a) == CUDA_SUCCESS &&
               gx__wgmma_map(&maps->v[i], &of_v, end, a) == CUDA_SUCCESS;
    }
    return made;
}

template <class T, int HEAD>
static void gx__wgmma_launch_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                                     const GxCudaAttention *p)
{
    const int bytes = (int)sizeof(GxWgmmaTiles<T, HEAD>);
    GxWgmmaMaps maps = GX_ZERO;
    if (!gx__wgmma_make_maps<T, HEAD>(&maps, q, k, v, &p->a)) {
        GX_FAIL(&g->error, GX_ERR_DEVICE,
                "attention_forward: the driver makes no tensor maps of q, k or v for the kernel by wgmma; build "
                "without GX_CUDA_SM_90A");
        return;
    }
    if (!gx__cuda_attention_shared(g, "attention_forward", (const void *)gx__wgmma_attention_forward<T, HEAD>, bytes))
        return;
    const unsigned grid = gx_cuda_blocks(gx_min(gx__wgmma_jobs<false>(*p), gx_cuda(g)->processors));
    GX_LAUNCH((gx__wgmma_attention_forward<T, HEAD>), grid, GX__WGMMA_THREADS, bytes, gx_cuda(g)->stream, (T *)o, lse,
              maps, *p);
    gx_cuda_check(g, "attention_forward");
}

void gx__wgmma_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                       const GxCudaAttention *p)
{
    GX__MMA_BF16_HEADS(p, gx__wgmma_launch_forward, g, o, lse, q, k, v, p);
}
#endif
