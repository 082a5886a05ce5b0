// attention_wgmma_backward.cuh: attention's backward for the H100, for bf16 and heads of up to 128: tiles loaded by
// TMA, products by wgmma. Its tests pass on the emulator; docs/gpu.md says what ran on a card.
//
// Two launches of one kernel, whose jobs are 128 rows of keys (dk, dv) or of queries (dq), with the formulas of
// attention_mma.cuh, which defines the first and second matrix of own rows and of the others. There are no atomic
// additions, and no probabilities in shared memory: the scores, own rows by others, and the p and ds computed from them
// are the next product's A operand in registers. If own rows are keys, these matrices are transposed: p^T for dv = p^T
// d_o, ds^T for dk = ds^T q.
//
// A block is organized like the forward's (attention_wgmma.cuh): two warpgroups consume, and one warp of the third
// produces. It loads the bounds of documents, and issues the TMA loads of both matrices of own rows, and then of first,
// second, first, second, ... of tiles of 64 others into the ring: a first one has an even stage, its second the next
// stage. If the others are queries, each lane also stores lse of two rows beside the first tile and D beside the
// second. It has read them one tile earlier, and arrives on the same barriers as TMA.
//
// Gradients of rotated rows are rotated back in registers, as in attention_mma.cuh. The kernel supports what the wgmma
// forward supports, if o_stride is a multiple of head_dim; attention.cuh chooses the kernel.
#ifndef GX_CUDA_ATTENTION_WGMMA_BACKWARD_CUH
#define GX_CUDA_ATTENTION_WGMMA_BACKWARD_CUH
#include "attention_wgmma.cuh"
GX_BEGIN

int gx__wgmma_backward_supports(const GxContext *g, const GxCudaAttention *p);
// d: dq, dk, dv; x: q, k, v, d_o
void gx__wgmma_backward(GxContext *g, void *const *d, const void *const *x, const float *lse, const float *D,
                        const GxCudaAttention *p);

GX_END
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && defined(GX_CUDA_SM_90A) &&                                                  \
    !defined(GX_CUDA_ATTENTION_WGMMA_BACKWARD_IMPLEMENTED)
#define GX_CUDA_ATTENTION_WGMMA_BACKWARD_IMPLEMENTED

static_assert(GX__WGMMA_STAGES % 2 == 0, "a second tile is in the stage behind the first one's");

// A block's shared memory.
template <class T, int HEAD> struct alignas(1024) GxWgmmaBackwardTiles {
    GxWgmmaTile<T, GX__WGMMA_OWN, HEAD> first, second;
    GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> others[GX__WGMMA_STAGES];
    float of_rows[GX__WGMMA_STAGES][GX__WGMMA_OTHERS]; // if the others are queries: lse, in units of log2, and D
    GxWgmmaDocuments documents;
    unsigned long long own_full, own_empty, full[GX__WGMMA_STAGES], empty[GX__WGMMA_STAGES];
};

typedef struct {
    CUtensorMap first, second, other_first[GX_MAX_RUNS], other_second[GX_MAX_RUNS]; // others: of each run
} GxWgmmaBackwardMaps;

#ifdef GX_CUDA_HOPPER
// ---- the producer --------------------------------------------------------------------------------------------------

// All lanes must have seen the stage empty before one of them starts to fill it: a barrier distinguishes only two
// phases (parity), and a lane that is too late would wait forever.
static __device__ __forceinline__ void gx__wgmma_wait_until_empty(unsigned long long *empty, unsigned phase)
{
    gx_mbarrier_wait(empty, phase);
    __syncwarp();
}

// lse and D of this lane's rows of a tile of queries; 0 if there is no row.
enum { GX__WGMMA_OF_LANE = (int)GX__WGMMA_OTHERS / (int)GX_WARP };
typedef struct {
    float lse[GX__WGMMA_OF_LANE], D[GX__WGMMA_OF_LANE];
} GxWgmmaOfRows;

template <class T>
static __device__ __forceinline__ void gx__wgmma_read_of_rows(GxWgmmaOfRows *rows, const GxMmaGradients<T> &x,
                                                              const GxCudaAttention &p, const GxWgmmaOthers &others,
                                                              int64_t b)
{
    const GxCudaTile tile = gx__wgmma_other_tile<true>(others, p);
#pragma unroll
    for (int i = 0; i < GX__WGMMA_OF_LANE; i++) {
        const int r = (int)threadIdx.x % GX_WARP + i * GX_WARP;
        const int64_t at = ((tile.row + r) * p.a.B + b) * p.a.H + others.head;
        rows->lse[i] = r < tile.length ? x.lse[at] : 0.0f;
        rows->D[i] = r < tile.length ? x.D[at] : 0.0f;
    }
}
static __device__ __forceinline__ void gx__wgmma_store_of_rows(float *lse, float *D, const GxWgmmaOfRows &rows)
{
#pragma unroll
    for (int i = 0; i < GX__WGMMA_OF_LANE; i++) {
        const int r = (int)threadIdx.x % GX_WARP + i * GX_WARP;
        lse[r] = gx__mma_lse_log2(rows.lse[i]);
        D[r] = rows.D[i];
    }
}

// lse and D of the next tile are in flight while this warp waits for the current tile's stages.
template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void
gx__wgmma_produce_backward(GxWgmmaBackwardTiles<T, HEAD> *tiles, GxWgmmaStage *at, const GxWgmmaBackwardMaps &maps,
                           const GxMmaGradients<T> &x, const GxCudaAttention &p, const GxWgmmaJob &job)
{
    const bool is_first_lane = threadIdx.x % GX_WARP == 0;
    GxWgmmaOthers others = gx__wgmma_others<KEYS>(job.head, p, 0);
    GxWgmmaOfRows rows = {};
    if (is_first_lane) {
        gx__wgmma_load(&tiles->first, &maps.first, &tiles->own_full, job.head, job.b, job.tile.row);
        gx__wgmma_load(&tiles->second, &maps.second, &tiles->own_full, job.head, job.b, job.tile.row);
    }
    bool more = gx__wgmma_next_others<KEYS>(&others, &tiles->documents, p, job.tile);
    if (KEYS && more) gx__wgmma_read_of_rows(&rows, x, p, others, job.b);
    while (more) {
        const int stage = at->stage;
        const int64_t row = gx__wgmma_other_tile<KEYS>(others, p).row, head = gx__mma_other_head<KEYS>(others.head, p);
        for (int second = 0; second < 2; second++) { // a new barrier counts as empty
            gx__wgmma_wait_until_empty(&tiles->empty[at->stage], at->phase ^ 1);
            if (is_first_lane)
                gx__wgmma_load(&tiles->others[at->stage],
                               second ? &maps.other_second[others.run] : &maps.other_first[others.run],
                               &tiles->full[at->stage], head, job.b, row);
            gx__wgmma_next(at);
        }
        if (KEYS) {
            gx__wgmma_store_of_rows(tiles->of_rows[stage], tiles->of_rows[stage + 1], rows);
            gx_mbarrier_arrive(&tiles->full[stage]);
            gx_mbarrier_arrive(&tiles->full[stage + 1]);
        }
        more = gx__wgmma_next_others<KEYS>(&others, &tiles->documents, p, job.tile);
        if (KEYS && more) gx__wgmma_read_of_rows(&rows, x, p, others, job.b);
    }
}

// ---- the consumers -------------------------------------------------------------------------------------------------

// Like gx__wgmma_sample_keep, but own rows are keys: a lane samples for two of the queries, from its warp's first key
// on.
static __device__ __forceinline__ void gx__wgmma_sample_keep_of_keys(uint32_t (&keep)[2][2], const GxCudaAttention &p,
                                                                     const GxWgmmaJob &job, const GxCudaTile &queries,
                                                                     int64_t head)
{
    const int64_t key = job.tile.position + gx__mma_first_row<1>();
#pragma unroll
    for (int i = 0; i < GX__WGMMA_OTHERS / 32; i++) {
        const int64_t query = queries.position + i * 32 + threadIdx.x % GX_WARP;
        const uint32_t word = gx__mma_keep_word(p, query, key, job.b, head);
        keep[0][i] = keep[1][i] = 0;
#pragma unroll
        for (int bit = 0; bit < 32; bit += bit % 2 ? 7 : 1) {
            const uint32_t column = __shfl_sync(0xffffffffu, word, gx__mma_column(bit / 8, bit % 8));
            keep[0][i] |= (column >> gx__mma_row(0, 0) & 1) << bit;
            keep[1][i] |= (column >> gx__mma_row(0, 1) & 1) << bit;
        }
    }
}

// Processes one tile of the others. Scores become p while dp is computed; then both give ds (without scale).
template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void
gx__wgmma_backward_step(GxMmaOwn<KEYS, 1, HEAD> &own, const GxWgmmaBackwardTiles<T, HEAD> *tiles, int stage,
                        const GxCudaAttention &p, const GxWgmmaJob &job, const GxWgmmaOthers &others)
{
    enum { N = GX__WGMMA_OTHERS };
    const GxWgmmaTile<T, N, HEAD> *first = &tiles->others[stage], *second = &tiles->others[stage + 1];
    const float *lse = tiles->of_rows[stage], *D = tiles->of_rows[stage + 1];
    GxMmaSpan span[1][2];
    float s[1][N / 8][4], ds[1][N / 8][4];
    uint32_t keep[2][2];
    if (p.a.dropout != 0) {
        const GxCudaTile tile = gx__wgmma_other_tile<KEYS>(others, p);
        if (KEYS) gx__wgmma_sample_keep_of_keys(keep, p, job, tile, others.head);
        else gx__wgmma_sample_keep(keep, p, job, tile);
    }
    gx__wgmma_scores<T, HEAD>(s, &tiles->first, first, others.own);
    gx__wgmma_scores<T, HEAD>(ds, &tiles->second, second, others.own);
    const bool whole = gx__wgmma_all_visible(others);
    if (!whole)
        gx__mma_spans<KEYS, 1, N>(span, tiles->documents.row, p, job.tile, gx__wgmma_other_tile<KEYS>(others, p));
    gx__wgmma_wait<1>(s);
    if (!whole) gx__mma_mask<1, N>(s, span);
    gx__mma_each<1, N>(s, [&](float &x, int m, int half, int column) {
        x = gx__mma_probability(x, KEYS ? lse[column] : own.lse[m][half], p);
    });
    gx__wgmma_wait<0>(ds);
    if (p.a.dropout != 0) gx__wgmma_drop(ds, keep, p);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            ds[0][n][i] = s[0][n][i] * (ds[0][n][i] - (KEYS ? D[gx__mma_column(n, i % 2)] : own.D[0][i / 2]));
    if (KEYS && p.a.dropout != 0) gx__wgmma_drop(s, keep, p);
    if constexpr (KEYS) gx__wgmma_accumulate<T, HEAD>(own.d_second, gx__wgmma_left(s), second);
    gx__wgmma_accumulate<T, HEAD>(own.d_first, gx__wgmma_left(ds), first);
    if constexpr (KEYS) gx__wgmma_wait<0>(own.d_second);
    gx__wgmma_wait<0>(own.d_first);
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void
gx__wgmma_consume_backward(GxMmaOwn<KEYS, 1, HEAD> &own, GxWgmmaBackwardTiles<T, HEAD> *tiles, GxWgmmaStage *at,
                           const GxCudaAttention &p, const GxWgmmaJob &job)
{
    GxWgmmaOthers others = gx__wgmma_others<KEYS>(job.head, p, gx__wgmma_first_row());
    while (gx__wgmma_next_others<KEYS>(&others, &tiles->documents, p, job.tile)) {
        const int stage = at->stage;
        if (!gx__wgmma_any_visible(others)) {
            gx__wgmma_skip(tiles->full, tiles->empty, at);
            continue;
        }
        gx_mbarrier_wait(&tiles->full[stage], at->phase);
        gx_mbarrier_wait(&tiles->full[stage + 1], at->phase);
        gx__wgmma_backward_step<KEYS, T, HEAD>(own, tiles, stage, p, job, others);
        gx__wgmma_release(&tiles->empty[stage]);
        gx__wgmma_release(&tiles->empty[stage + 1]);
        gx__wgmma_next(at);
        gx__wgmma_next(at);
    }
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_backward_producer(GxWgmmaBackwardTiles<T, HEAD> *tiles,
                                                                   const GxWgmmaBackwardMaps &maps,
                                                                   const GxMmaGradients<T> &x, const GxCudaAttention &p)
{
    GxWgmmaStage at = {0, 0};
    unsigned phase = 0; // of own rows
    const unsigned jobs = (unsigned)gx__wgmma_jobs<KEYS>(p);
    for (unsigned i = blockIdx.x; i < jobs; i = gx__wgmma_job_after(i), phase ^= 1) {
        gx__wgmma_wait_until_empty(&tiles->own_empty, phase ^ 1);
        const GxWgmmaJob job = gx__wgmma_job<KEYS>(p, i);
        gx__wgmma_load_documents<KEYS>(&tiles->documents, p, job);
        gx__wgmma_produce_backward<KEYS, T, HEAD>(tiles, &at, maps, x, p, job);
    }
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_backward_consumer(GxWgmmaBackwardTiles<T, HEAD> *tiles,
                                                                   const GxMmaGradients<T> &x, const GxCudaAttention &p)
{
    GxWgmmaStage at = {0, 0};
    unsigned phase = 0; // of own rows
    const unsigned jobs = (unsigned)gx__wgmma_jobs<KEYS>(p);
    for (unsigned i = blockIdx.x; i < jobs; i = gx__wgmma_job_after(i), phase ^= 1) {
        const GxWgmmaJob job = gx__wgmma_job<KEYS>(p, i);
        GxMmaOwn<KEYS, 1, HEAD> own = {};
        gx__mma_begin_own<KEYS, T, 1, HEAD>(own, x, p, job.tile, job.b, job.head);
        gx_mbarrier_wait(&tiles->own_full, phase);
        gx__wgmma_consume_backward<KEYS, T, HEAD>(own, tiles, &at, p, job);
        gx__wgmma_release(&tiles->own_empty);
        gx__mma_finish_own<KEYS, T, 1, HEAD>(x, own, p, job.tile, job.b, job.head);
    }
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_begin_backward(GxWgmmaBackwardTiles<T, HEAD> *tiles)
{
    if (threadIdx.x == 0) {
        gx_mbarrier_init(&tiles->own_full, 2);
        gx_mbarrier_init(&tiles->own_empty, GX__WGMMA_WARPS);
        for (int i = 0; i < GX__WGMMA_STAGES; i++) {
            gx_mbarrier_init(&tiles->full[i], KEYS ? 1 + GX_WARP : 1);
            gx_mbarrier_init(&tiles->empty[i], GX__WGMMA_WARPS);
        }
        gx_mbarrier_fence_init();
    }
    __syncthreads();
}
#endif

// One block per multiprocessor, and a job for each (tile, sample b, head), in the order of attention_mma.cuh.
template <bool KEYS, class T, int HEAD>
static __global__ void __launch_bounds__(GX__WGMMA_THREADS, 1)
    gx__wgmma_attention_backward(const __grid_constant__ GxWgmmaBackwardMaps maps,
                                 const __grid_constant__ GxMmaGradients<T> x, const __grid_constant__ GxCudaAttention p)
{
#ifdef GX_CUDA_HOPPER
    typedef GxWgmmaBackwardTiles<T, HEAD> Tiles;
    GX_DYNAMIC_SHARED(Tiles, tiles);
    gx__wgmma_begin_backward<KEYS, T, HEAD>(tiles);
    if (threadIdx.x / GX_WARP >= GX__WGMMA_WARPS) {
        gx_setmaxnreg_decrease<GX__WGMMA_PRODUCER_REGISTERS>();
        if (threadIdx.x / GX_WARP == GX__WGMMA_WARPS) gx__wgmma_backward_producer<KEYS, T, HEAD>(tiles, maps, x, p);
    } else {
        gx_setmaxnreg_increase<GX__WGMMA_CONSUMER_REGISTERS>();
        gx__wgmma_backward_consumer<KEYS, T, HEAD>(tiles, x, p);
    }
#else
    (void)maps, (void)x, (void)p;
    __trap(); // compiled for an architecture other than sm_90a
#endif
}

// ---- the host's side -----------------------------------------------------------------------------------------------

int gx__wgmma_backward_supports(const GxContext *g, const GxCudaAttention *p)
{
    return gx__wgmma_supports(g, p) && p->a.o_stride % p->a.head_dim == 0;
}

// Makes the tensor maps of own rows and of each run of the others, which end where the run does. Returns 0 if the
// driver cannot make them.
template <bool KEYS, class T, int HEAD>
static int gx__wgmma_backward_maps(GxWgmmaBackwardMaps *maps, const GxMmaGradients<T> *x, const GxAttention *a)
{
    enum { COLUMNS = GxWgmmaTile<T, GX__WGMMA_OWN, HEAD>::COLUMNS, OWN = GX__WGMMA_OWN, OTHERS = GX__WGMMA_OTHERS };
    const int64_t heads = KEYS ? a->K : a->H, other_heads = KEYS ? a->H : a->K;
    const GxRuns *runs = KEYS ? &a->k_runs : &a->q_runs, *others = KEYS ? &a->q_runs : &a->k_runs;
    const GxWgmmaMatrix first = {x->first, heads, x->stride, COLUMNS, OWN},
                        second = {x->second, heads, x->second_stride, COLUMNS, OWN},
                        other_first = {x->other_first, other_heads, x->other_stride, COLUMNS, OTHERS},
                        other_second = {x->other_second, other_heads, x->other_second_stride, COLUMNS, OTHERS};
    int made = gx__wgmma_map(&maps->first, &first, gx_runs_rows(runs), a) == CUDA_SUCCESS &&
               gx__wgmma_map(&maps->second, &second, gx_runs_rows(runs), a) == CUDA_SUCCESS;
    for (int i = 0; made && i < others->n; i++) {
        const int64_t end = others->run[i].row + others->run[i].length;
        made = gx__wgmma_map(&maps->other_first[i], &other_first, end, a) == CUDA_SUCCESS &&
               gx__wgmma_map(&maps->other_second[i], &other_second, end, a) == CUDA_SUCCESS;
    }
    return made;
}

template <bool KEYS, class T, int HEAD>
static void gx__wgmma_launch_gradients(GxContext *g, const GxMmaGradients<T> *x, const GxCudaAttention *p)
{
    const char *what = KEYS ? "attention_backward_keys" : "attention_backward_queries";
    const int bytes = (int)sizeof(GxWgmmaBackwardTiles<T, HEAD>);
    GxWgmmaBackwardMaps maps = GX_ZERO;
    if (!gx__wgmma_backward_maps<KEYS, T, HEAD>(&maps, x, &p->a)) {
        GX_FAIL(&g->error, GX_ERR_DEVICE,
                "%s: the driver makes no tensor maps of q, k, v or d_o for the kernel by wgmma; build without "
                "GX_CUDA_SM_90A",
                what);
        return;
    }
    if (!gx__cuda_attention_shared(g, what, (const void *)gx__wgmma_attention_backward<KEYS, T, HEAD>, bytes)) return;
    const unsigned grid = gx_cuda_blocks(gx_min(gx__wgmma_jobs<KEYS>(*p), gx_cuda(g)->processors));
    GX_LAUNCH((gx__wgmma_attention_backward<KEYS, T, HEAD>), grid, GX__WGMMA_THREADS, bytes, gx_cuda(g)->stream, maps,
              *x, *p);
    gx_cuda_check(g, what);
}

template <class T, int HEAD>
static void gx__wgmma_launch_backward(GxContext *g, void *const *d, const void *const *x, const float *lse,
                                      const float *D, const GxCudaAttention *p)
{
    const GxMmaGradients<T> keys = gx__mma_gradients<true, T>(d, x, lse, D, p),
                            queries = gx__mma_gradients<false, T>(d, x, lse, D, p);
    gx__wgmma_launch_gradients<true, T, HEAD>(g, &keys, p);
    gx__wgmma_launch_gradients<false, T, HEAD>(g, &queries, p);
}

void gx__wgmma_backward(GxContext *g, void *const *d, const void *const *x, const float *lse, const float *D,
                        const GxCudaAttention *p)
{
    GX__MMA_BF16_HEADS(p, gx__wgmma_launch_backward, g, d, x, lse, D, p);
}
#endif
