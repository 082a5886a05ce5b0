// attention_wgmma_backward.cuh: attention's backward as an H100 wants it, for bf16 and heads of 64 and 128: tiles
// brought by TMA, products by wgmma. It has been run on the emulator and compiled, and has never run on a card.
//
// Two launches of one kernel, whose blocks own 128 rows of keys (dk, dv) or of queries (dq), with the formulas of
// attention_mma.cuh: what is first and second, of own rows and of the others, is said there. Nothing is added
// atomically, and no probabilities are in shared memory: scores of own rows by others, and what becomes of them, are the
// left factor of the next product where they lie in registers. Of keys these are the transposed matrices: p^T
// for dv = p^T d_o, ds^T for dk = ds^T q.
//
// A block is made as the forward's (attention_wgmma.cuh): eight warps consume, the ninth is the producer. It has TMA
// bring both matrices of the block's own rows, and then first, second, first, second, ... of tiles of 64 others into
// the ring: a first one has an even stage, its second the next. Where the others are queries, each lane stores lse of
// two rows beside the first tile and D beside the second, and arrives like TMA's bytes. The documents of own rows are
// there when these are. What dropout keeps, each of the first eight warps draws for itself.
//
// It takes no pages or several runs of keys. attention.cuh decides who takes what.
#ifndef GX_CUDA_ATTENTION_WGMMA_BACKWARD_CUH
#define GX_CUDA_ATTENTION_WGMMA_BACKWARD_CUH
#include "attention_wgmma.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && defined(GX_CUDA_SM_90A) &&                                                  \
    !defined(GX_CUDA_ATTENTION_WGMMA_BACKWARD_IMPLEMENTED)
#define GX_CUDA_ATTENTION_WGMMA_BACKWARD_IMPLEMENTED

enum {
    GX__WGMMA_BACKWARD_THREADS = (GX__WGMMA_WARPS + 4) * GX_WARP, // registers are moved between whole warpgroups
    GX__WGMMA_PRODUCER_REGISTERS = 56,
    GX__WGMMA_CONSUMER_REGISTERS = 224
};
static_assert(GX__WGMMA_STAGES % 2 == 0, "a second tile is in the stage behind the first one's");

// What a block has in shared memory.
template <class T, int HEAD> struct alignas(GX__WGMMA_ATOM) GxWgmmaBackwardTiles {
    GxWgmmaTile<T, GX__WGMMA_OWN, HEAD> first, second;
    GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> others[GX__WGMMA_STAGES];
    float of_rows[GX__WGMMA_STAGES][GX__WGMMA_OTHERS]; // where the others are queries: lse, in units of log2, and D
    GxCudaDocument documents[GX__WGMMA_OWN];           // of own rows
    uint32_t keep[GX__WGMMA_WARPS][GX__WGMMA_OTHERS];  // what dropout keeps of each warp's probabilities
    unsigned long long own_full, own_empty, full[GX__WGMMA_STAGES], empty[GX__WGMMA_STAGES];
};

typedef struct {
    CUtensorMap first, second, other_first, other_second;
} GxWgmmaBackwardMaps;

#ifdef GX_CUDA_HOPPER
// A block's jobs, one after another, in the order of attention_mma.cuh.
typedef struct {
    GxCudaTile tile;
    int64_t b, head; // a key and value head where KEYS, else a query head
} GxWgmmaJob;

template <bool KEYS> static __device__ __forceinline__ int64_t gx__wgmma_backward_jobs(const GxCudaAttention &p)
{
    return gx__cuda_tiles(KEYS ? p.a.k_runs : p.a.q_runs, GX__WGMMA_OWN) * p.a.B * (KEYS ? p.a.K : p.a.H);
}
template <bool KEYS>
static __device__ __forceinline__ GxWgmmaJob gx__wgmma_backward_job(const GxCudaAttention &p, int64_t job)
{
    const GxRuns &runs = KEYS ? p.a.k_runs : p.a.q_runs;
    const int64_t per_sample = KEYS ? p.a.K : p.a.H, heads = p.a.B * per_sample;
    const int64_t number = KEYS ? job / heads : gx__cuda_tiles(runs, GX__WGMMA_OWN) - 1 - job / heads;
    const GxWgmmaJob made = {gx__cuda_tile(runs, GX__WGMMA_OWN, number), job % heads / per_sample, job % per_sample};
    return made;
}

// ---- the producer --------------------------------------------------------------------------------------------------

// This lane's part of `from`, lse or D, of a tile of queries: 0 where there is no row.
static __device__ __forceinline__ void gx__wgmma_load_of_rows(float *to, const float *from, bool is_lse,
                                                              const GxCudaAttention &p, const GxCudaTile &tile,
                                                              int64_t b, int64_t head)
{
#pragma unroll
    for (int i = 0; i < (int)GX__WGMMA_OTHERS / (int)GX_WARP; i++) {
        const int r = (int)threadIdx.x % GX_WARP + i * GX_WARP;
        const float x = r < tile.length ? from[((tile.row + r) * p.a.B + b) * p.a.H + head] : 0.0f;
        to[r] = is_lse ? gx__mma_lse_log2(x) : x;
    }
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void
gx__wgmma_produce_backward(GxWgmmaBackwardTiles<T, HEAD> *tiles, GxWgmmaTurn *turn, const GxWgmmaBackwardMaps &maps,
                           const GxMmaGradients<T> &x, const GxCudaAttention &p, const GxWgmmaJob &job)
{
    const bool is_first_lane = threadIdx.x % GX_WARP == 0;
    GxMmaOthers others = gx__mma_others_of<KEYS>(job.head, p);
    for (int r = (int)threadIdx.x % GX_WARP; p.a.documents && r < job.tile.length; r += GX_WARP)
        tiles->documents[r] = gx__cuda_document(p, job.tile, r, job.b);
    __syncwarp(); // behind its first lane's arrival those of all lanes are seen
    if (is_first_lane) {
        gx__wgmma_load(&tiles->first, &maps.first, &tiles->own_full, job.head, job.b, job.tile.row);
        gx__wgmma_load(&tiles->second, &maps.second, &tiles->own_full, job.head, job.b, job.tile.row);
    }
    for (gx__mma_next_others<KEYS, GX__WGMMA_OTHERS>(&others, tiles->documents, p, job.tile); others.tile.length;
         gx__mma_next_others<KEYS, GX__WGMMA_OTHERS>(&others, tiles->documents, p, job.tile))
#pragma unroll
        for (int second = 0; second < 2; second++) {
            const int stage = turn->stage;
            gx_mbarrier_wait(&tiles->empty[stage], turn->phase ^ 1); // of a new barrier it is: the phase before 0
            if (is_first_lane)
                gx__wgmma_load(&tiles->others[stage], second ? &maps.other_second : &maps.other_first,
                               &tiles->full[stage], gx__mma_other_head<KEYS>(others, p), job.b, others.tile.row);
            if (KEYS) {
                gx__wgmma_load_of_rows(tiles->of_rows[stage], second ? x.D : x.lse, !second, p, others.tile,
                                       job.b, others.head);
                gx_mbarrier_arrive(&tiles->full[stage]);
            }
            gx__wgmma_next(turn);
        }
}

// ---- the consumers -------------------------------------------------------------------------------------------------

// Bits of this warp's probabilities of a tile of others, 32 neighbouring keys to a word. KEYS: a word of each query,
// whose first 16 bits are the warp's; else two words of each of its 16 queries.
template <bool KEYS>
static __device__ __forceinline__ void gx__wgmma_draw_keep(uint32_t *keep, const GxCudaAttention &p,
                                                           const GxWgmmaJob &job, const GxMmaOthers &others)
{
    const int lane = (int)threadIdx.x % GX_WARP;
    const int64_t own = job.tile.position + gx__mma_first_row<1>(), other = others.tile.position;
    __syncwarp(); // those of the tile before are read
#pragma unroll 1
    for (int i = lane; i < (KEYS ? (int)GX__WGMMA_OTHERS : (int)GX_WARP); i += GX_WARP)
        keep[i] = gx__mma_draw_word(p, KEYS ? other + i : own + i / 2, KEYS ? own : other + i % 2 * 32, job.b,
                                    others.head);
    __syncwarp();
}

// x *= what the warp's probabilities are multiplied by.
template <bool KEYS>
static __device__ __forceinline__ void gx__wgmma_drop(float (&x)[1][GX__WGMMA_OTHERS / 8][4], const uint32_t *keep,
                                                      const GxCudaAttention &p)
{
    gx__mma_each<1, GX__WGMMA_OTHERS>(x, [&](float &one, int m, int half, int column) {
        const int row = gx__mma_row(m, half);
        one *= KEYS ? gx__mma_keep<32>((const uint32_t(*)[1])keep, column, row, p)
                    : gx__mma_keep<64>((const uint32_t(*)[2])keep, row, column, p);
    });
}

// One tile of others. Scores become p while dp is computed, and both ds (without scale).
template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void
gx__wgmma_backward_step(GxMmaOwn<KEYS, 1, HEAD> &own, GxWgmmaBackwardTiles<T, HEAD> *tiles, int stage,
                        const GxCudaAttention &p, const GxWgmmaJob &job, const GxMmaOthers &others)
{
    enum { N = GX__WGMMA_OTHERS };
    const GxWgmmaTile<T, N, HEAD> *first = &tiles->others[stage], *second = &tiles->others[stage + 1];
    const float *lse = tiles->of_rows[stage], *D = tiles->of_rows[stage + 1];
    uint32_t *keep = tiles->keep[threadIdx.x / GX_WARP];
    GxMmaSpan span[1][2];
    float s[1][N / 8][4], ds[1][N / 8][4];
    if (p.a.dropout != 0) gx__wgmma_draw_keep<KEYS>(keep, p, job, others);
    gx__wgmma_scores<T, HEAD>(s, &tiles->first, first);
    gx__wgmma_scores<T, HEAD>(ds, &tiles->second, second);
    const GxMmaSight sight = gx__mma_spans<KEYS, 1, N>(span, tiles->documents, p, job.tile, others.tile);
    gx__wgmma_wait<1>(s);
    if (!sight.whole) gx__mma_hide<1, N>(s, span);
    gx__mma_each<1, N>(s, [&](float &x, int m, int half, int column) {
        x = gx__mma_probability(x, KEYS ? lse[column] : own.lse[m][half], p);
    });
    gx__wgmma_wait<0>(ds);
    if (p.a.dropout != 0) gx__wgmma_drop<KEYS>(ds, keep, p);
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            ds[0][n][i] = s[0][n][i] * (ds[0][n][i] - (KEYS ? D[gx__mma_column(n, i % 2)] : own.D[0][i / 2]));
    if (KEYS && p.a.dropout != 0) gx__wgmma_drop<KEYS>(s, keep, p);
    if constexpr (KEYS) gx__wgmma_accumulate<T, HEAD>(own.d_second, s, second);
    gx__wgmma_accumulate<T, HEAD>(own.d_first, ds, first);
    if constexpr (KEYS) gx__wgmma_wait<0>(own.d_second);
    gx__wgmma_wait<0>(own.d_first);
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void
gx__wgmma_consume_backward(GxMmaOwn<KEYS, 1, HEAD> &own, GxWgmmaBackwardTiles<T, HEAD> *tiles, GxWgmmaTurn *turn,
                           const GxCudaAttention &p, const GxWgmmaJob &job)
{
    GxMmaOthers others = gx__mma_others_of<KEYS>(job.head, p);
    for (gx__mma_next_others<KEYS, GX__WGMMA_OTHERS>(&others, tiles->documents, p, job.tile); others.tile.length;
         gx__mma_next_others<KEYS, GX__WGMMA_OTHERS>(&others, tiles->documents, p, job.tile)) {
        const int stage = turn->stage;
        gx_mbarrier_wait(&tiles->full[stage], turn->phase);
        gx_mbarrier_wait(&tiles->full[stage + 1], turn->phase);
        gx__wgmma_backward_step<KEYS, T, HEAD>(own, tiles, stage, p, job, others);
        gx__wgmma_let_go(&tiles->empty[stage]);
        gx__wgmma_let_go(&tiles->empty[stage + 1]);
        gx__wgmma_next(turn);
        gx__wgmma_next(turn);
    }
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void
gx__wgmma_backward_producer(GxWgmmaBackwardTiles<T, HEAD> *tiles, const GxWgmmaBackwardMaps &maps,
                            const GxMmaGradients<T> &x, const GxCudaAttention &p)
{
    GxWgmmaTurn turn = {0, 0};
    unsigned phase = 0; // of own rows
    for (int64_t i = blockIdx.x; i < gx__wgmma_backward_jobs<KEYS>(p); i += gridDim.x, phase ^= 1) {
        gx_mbarrier_wait(&tiles->own_empty, phase ^ 1);
        gx__wgmma_produce_backward<KEYS, T, HEAD>(tiles, &turn, maps, x, p, gx__wgmma_backward_job<KEYS>(p, i));
    }
}

template <bool KEYS, class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_backward_consumer(GxWgmmaBackwardTiles<T, HEAD> *tiles,
                                                                   const GxMmaGradients<T> &x, const GxCudaAttention &p)
{
    GxWgmmaTurn turn = {0, 0};
    unsigned phase = 0; // of own rows
    for (int64_t i = blockIdx.x; i < gx__wgmma_backward_jobs<KEYS>(p); i += gridDim.x, phase ^= 1) {
        const GxWgmmaJob job = gx__wgmma_backward_job<KEYS>(p, i);
        GxMmaOwn<KEYS, 1, HEAD> own = {};
        gx__mma_begin_own<KEYS, T, 1, HEAD>(own, x, p, job.tile, job.b, job.head);
        gx_mbarrier_wait(&tiles->own_full, phase);
        gx__wgmma_consume_backward<KEYS, T, HEAD>(own, tiles, &turn, p, job);
        gx__wgmma_let_go(&tiles->own_empty);
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

// One block per (tile, sample b, head), in the order of attention_mma.cuh.
template <bool KEYS, class T, int HEAD>
static __global__ void __launch_bounds__(GX__WGMMA_BACKWARD_THREADS, 1)
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
    __trap(); // compiled for another architecture than sm_90a
#endif
}

// ---- the host's side -----------------------------------------------------------------------------------------------

// Does this kernel take them?
static int gx__wgmma_backward_takes(const GxCudaAttention *p)
{
    const GxAttention *a = &p->a;
    return gx__wgmma_brings(p) && a->o_stride % a->head_dim == 0;
}

// The maps of own rows (of `heads` heads) and of the others. 0: the driver makes none.
template <bool KEYS, class T>
static int gx__wgmma_backward_maps(GxWgmmaBackwardMaps *maps, const GxMmaGradients<T> *x, const GxCudaAttention *p)
{
    const GxAttention *a = &p->a;
    const int64_t h = a->head_dim, q_rows = gx__wgmma_rows(&a->q_runs), k_rows = gx__wgmma_rows(&a->k_runs);
    const int64_t heads = KEYS ? a->K : a->H, other_heads = KEYS ? a->H : a->K;
    const int64_t rows = KEYS ? k_rows : q_rows, other_rows = KEYS ? q_rows : k_rows;
    const GxWgmmaMatrix
        first = {x->first, heads, h, a->B, rows, x->stride, GX__WGMMA_OWN},
        second = {x->second, heads, h, a->B, rows, x->second_stride, GX__WGMMA_OWN},
        other_first = {x->other_first, other_heads, h, a->B, other_rows, x->other_stride, GX__WGMMA_OTHERS},
        other_second = {x->other_second, other_heads, h, a->B, other_rows, x->other_second_stride, GX__WGMMA_OTHERS};
    return !gx__wgmma_map(&maps->first, &first) && !gx__wgmma_map(&maps->second, &second) &&
           !gx__wgmma_map(&maps->other_first, &other_first) && !gx__wgmma_map(&maps->other_second, &other_second);
}

template <bool KEYS, class T, int HEAD>
static void gx__wgmma_launch_gradients(GxContext *g, const GxMmaGradients<T> *x, const GxCudaAttention *p)
{
    const char *what = KEYS ? "attention_backward_keys" : "attention_backward_queries";
    const int bytes = (int)sizeof(GxWgmmaBackwardTiles<T, HEAD>);
    GxWgmmaBackwardMaps maps;
    if (!gx__wgmma_backward_maps<KEYS, T>(&maps, x, p)) {
        GX_FAIL(&g->error, GX_ERR_DEVICE,
                "%s: the driver makes no tensor maps of q, k, v or d_o for the kernel by wgmma; build without "
                "GX_CUDA_ATTENTION_WGMMA",
                what);
        return;
    }
    if (!gx__cuda_attention_shared(g, what, (const void *)gx__wgmma_attention_backward<KEYS, T, HEAD>, bytes)) return;
    const GxRuns *runs = KEYS ? &p->a.k_runs : &p->a.q_runs;
    const unsigned grid = gx__cuda_grid(gx__cuda_tiles(*runs, GX__WGMMA_OWN) * p->a.B * (KEYS ? p->a.K : p->a.H));
    GX_LAUNCH((gx__wgmma_attention_backward<KEYS, T, HEAD>), grid, GX__WGMMA_BACKWARD_THREADS, bytes, gx_cuda(g)->stream, maps,
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

// d: dq, dk, dv; x: q, k, v, d_o
static void gx__wgmma_backward(GxContext *g, void *const *d, const void *const *x, const float *lse, const float *D,
                               const GxCudaAttention *p)
{
    if (p->a.head_dim == 64) gx__wgmma_launch_backward<__nv_bfloat16, 64>(g, d, x, lse, D, p);
    else gx__wgmma_launch_backward<__nv_bfloat16, 128>(g, d, x, lse, D, p);
}
#endif
