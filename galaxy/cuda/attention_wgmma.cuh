// attention_wgmma.cuh: attention's forward as an H100 wants it, for bf16 and heads of 64 and 128: tiles brought by TMA,
// products by wgmma (hopper.cuh). It has been run on the emulator and compiled, and has never run on a card.
//
// A block owns 128 query rows of one head and meets the tiles of 64 keys that these see, one after another. Its ninth
// warp is the producer: one thread of it has TMA bring the queries, and keys, values, keys, values, ... into a ring of
// stages, each as soon as its stage is empty. The first eight warps are two warpgroups of consumers, with 64 rows each:
// they wait until a stage is full, multiply, and let go of it. Scores and sums lie in registers as those of
// attention_mma.cuh do, whose softmax and masks these are; probabilities are the left factor from registers.
//
// In shared memory a tile is one or two halves, of 64 columns each: rows of 128 bytes, swizzled. Of keys the products
// go along these rows, of values across them. Rows beyond the run's end arrive as zeros.
//
// It takes no documents, windows, pages, dropout or several runs of keys. It is there where GX_CUDA_SM_90A is defined
// (hopper.cuh); attention.cuh, which decides who takes what, asks it where GX_CUDA_ATTENTION_WGMMA is, too. Source: Shah
// et al. 2024, arXiv:2407.08608, section 3.1, without its exchange of turns between warpgroups.
#ifndef GX_CUDA_ATTENTION_WGMMA_CUH
#define GX_CUDA_ATTENTION_WGMMA_CUH
#include "attention_mma.cuh"
#include "hopper.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && defined(GX_CUDA_SM_90A) && !defined(GX_CUDA_ATTENTION_WGMMA_IMPLEMENTED)
#define GX_CUDA_ATTENTION_WGMMA_IMPLEMENTED

enum {
    GX__WGMMA_WARPS = 8, // of consumers
    GX__WGMMA_THREADS = (GX__WGMMA_WARPS + 1) * GX_WARP,
    GX__WGMMA_OWN = GX__WGMMA_WARPS * GX__MMA_ROWS,
    GX__WGMMA_OTHERS = 64,
    GX__WGMMA_COLUMNS = 64, // of half a tile: what 128 bytes hold
    GX__WGMMA_SWIZZLE = 128,
    GX__WGMMA_ATOM = 8 * GX__WGMMA_SWIZZLE, // bytes of eight rows
    GX__WGMMA_STAGES = 4
};

template <class T, int ROWS, int HEAD> struct GxWgmmaTile {
    T x[HEAD / GX__WGMMA_COLUMNS][ROWS][GX__WGMMA_COLUMNS];
};
// What a block has in shared memory.
template <class T, int HEAD> struct alignas(GX__WGMMA_ATOM) GxWgmmaTiles {
    GxWgmmaTile<T, GX__WGMMA_OWN, HEAD> q;
    GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> others[GX__WGMMA_STAGES];
    unsigned long long q_full, q_empty, full[GX__WGMMA_STAGES], empty[GX__WGMMA_STAGES];
};

typedef struct {
    CUtensorMap q, k, v;
} GxWgmmaMaps;

#ifdef GX_CUDA_HOPPER
typedef struct {
    int stage;
    unsigned phase;
} GxWgmmaTurn; // in the ring: of the producer, or of a consumer

static __device__ __forceinline__ void gx__wgmma_next(GxWgmmaTurn *turn)
{
    if (++turn->stage < GX__WGMMA_STAGES) return;
    turn->stage = 0, turn->phase ^= 1;
}

// ---- the producer --------------------------------------------------------------------------------------------------

// A whole tile from `row` on; all its bytes are counted, those beyond the run's end, too.
template <class T, int ROWS, int HEAD>
static __device__ __forceinline__ void gx__wgmma_load(GxWgmmaTile<T, ROWS, HEAD> *to, const CUtensorMap *map,
                                                      unsigned long long *full, int64_t head, int64_t b, int64_t row)
{
    gx_mbarrier_arrive_expect(full, sizeof *to);
#pragma unroll
    for (int i = 0; i < HEAD / GX__WGMMA_COLUMNS; i++)
        gx_tma_load(to->x[i], map, full, {i * GX__WGMMA_COLUMNS, (int)head, (int)b, (int)row});
}

template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_produce(GxWgmmaTiles<T, HEAD> *tiles, GxWgmmaTurn *turn,
                                                         const GxWgmmaMaps &maps, const GxCudaAttention &p,
                                                         const GxCudaTile &tile, int64_t b, int64_t head)
{
    const int64_t kv_head = (p.a.q_first + head) / p.group;
    GxMmaKeys keys = {-1, 0, 0, 0, {0, 0, 0}};
    gx__wgmma_load(&tiles->q, &maps.q, &tiles->q_full, head, b, tile.row);
    for (gx__mma_next_keys<GX__WGMMA_OTHERS>(&keys, NULL, p, tile, b); keys.tile.length;
         gx__mma_next_keys<GX__WGMMA_OTHERS>(&keys, NULL, p, tile, b))
#pragma unroll
        for (int values = 0; values < 2; values++) {
            gx_mbarrier_wait(&tiles->empty[turn->stage], turn->phase ^ 1); // of a new barrier it is: the phase before 0
            gx__wgmma_load(&tiles->others[turn->stage], values ? &maps.v : &maps.k, &tiles->full[turn->stage], kv_head,
                           b, keys.tile.row);
            gx__wgmma_next(turn);
        }
}

// ---- the consumers -------------------------------------------------------------------------------------------------

// The products of all but the last LEFT groups are done; these sums are among them.
template <int LEFT, int N> static __device__ __forceinline__ void gx__wgmma_wait(float (&sums)[1][N][4])
{
    gx_wgmma_wait<LEFT>();
    gx_pin(reinterpret_cast<float(&)[N * 4]>(sums));
}

// s = q k^T begins, of this warpgroup's 64 rows.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_scores(float (&s)[1][GX__WGMMA_OTHERS / 8][4],
                                                        const GxWgmmaTile<T, GX__WGMMA_OWN, HEAD> *q,
                                                        const GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> *k)
{
    auto &sums = reinterpret_cast<float(&)[GX__WGMMA_OTHERS / 2]>(s);
    const int first = (int)threadIdx.x / 128 * 64;
    gx_pin(sums);
    gx_wgmma_fence();
#pragma unroll
    for (int c = 0; c < HEAD; c += 16) {
        const int half = c / GX__WGMMA_COLUMNS, column = c % GX__WGMMA_COLUMNS;
        gx_wgmma<GX__WGMMA_OTHERS, false>(
            sums, gx_wgmma_descriptor(&q->x[half][first][column], 0, GX__WGMMA_ATOM, GX__WGMMA_SWIZZLE),
            gx_wgmma_descriptor(&k->x[half][0][column], 0, GX__WGMMA_ATOM, GX__WGMMA_SWIZZLE), c > 0);
    }
    gx_wgmma_commit();
}

// acc += w v begins; w is rounded to T.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_accumulate(float (&acc)[1][HEAD / 8][4],
                                                            const float (&w)[1][GX__WGMMA_OTHERS / 8][4],
                                                            const GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> *v)
{
    auto &sums = reinterpret_cast<float(&)[HEAD / 2]>(acc);
    unsigned left[GX__WGMMA_OTHERS / 16][4];
#pragma unroll
    for (int k = 0; k < GX__WGMMA_OTHERS / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float(&two)[4] = w[0][k * 2 + i / 2];
            left[k][i] = gx_pair(two[i % 2 * 2], two[i % 2 * 2 + 1]);
        }
    gx_pin(sums);
    gx_wgmma_fence();
#pragma unroll
    for (int k = 0; k < GX__WGMMA_OTHERS / 16; k++)
        gx_wgmma<HEAD, true>(sums, left[k],
                             gx_wgmma_descriptor(v->x[0][k * 16], sizeof v->x[0], GX__WGMMA_ATOM, GX__WGMMA_SWIZZLE),
                             true);
    gx_wgmma_commit();
}

// A warp has read a tile to its end.
static __device__ __forceinline__ void gx__wgmma_let_go(unsigned long long *empty)
{
    if (threadIdx.x % GX_WARP == 0) gx_mbarrier_arrive(empty);
}

template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_consume(GxMmaRows<1, HEAD> &rows, GxWgmmaTiles<T, HEAD> *tiles,
                                                         GxWgmmaTurn *turn, const GxCudaAttention &p,
                                                         const GxCudaTile &tile, int64_t b)
{
    enum { N = GX__WGMMA_OTHERS };
    GxMmaKeys keys = {-1, 0, 0, 0, {0, 0, 0}};
    for (gx__mma_next_keys<N>(&keys, NULL, p, tile, b); keys.tile.length;
         gx__mma_next_keys<N>(&keys, NULL, p, tile, b)) {
        GxMmaSpan span[1][2];
        float s[1][N / 8][4];
        gx_mbarrier_wait(&tiles->full[turn->stage], turn->phase);
        gx__wgmma_scores<T, HEAD>(s, &tiles->q, &tiles->others[turn->stage]);
        gx__wgmma_wait<0>(s);
        gx__wgmma_let_go(&tiles->empty[turn->stage]);
        gx__wgmma_next(turn);
        const GxMmaSight sight = gx__mma_spans<false, 1, N>(span, NULL, p, tile, keys.tile);
        if (!sight.whole) gx__mma_hide<1, N>(s, span);
        gx__mma_softmax<1, N, HEAD>(s, rows, p.scale_log2);
        gx_mbarrier_wait(&tiles->full[turn->stage], turn->phase);
        gx__wgmma_accumulate<T, HEAD>(rows.o, s, &tiles->others[turn->stage]);
        gx__wgmma_wait<0>(rows.o);
        gx__wgmma_let_go(&tiles->empty[turn->stage]);
        gx__wgmma_next(turn);
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

// One block per (query tile, sample b, query head). Causal: the last tiles see the most keys and begin.
template <class T, int HEAD>
static __global__ void __launch_bounds__(GX__WGMMA_THREADS, 1)
    gx__wgmma_attention_forward(T *o, float *lse, const __grid_constant__ GxWgmmaMaps maps,
                                const __grid_constant__ GxCudaAttention p)
{
#ifdef GX_CUDA_HOPPER
    typedef GxWgmmaTiles<T, HEAD> Tiles;
    GX_DYNAMIC_SHARED(Tiles, tiles);
    gx__wgmma_begin<T, HEAD>(tiles);
    const int64_t number = gx__cuda_tiles(p.a.q_runs, GX__WGMMA_OWN), heads = p.a.B * p.a.H;
    const int is_producer = threadIdx.x / GX_WARP == GX__WGMMA_WARPS;
    if (is_producer && threadIdx.x % GX_WARP) return;
    GxWgmmaTurn turn = {0, 0};
    unsigned phase = 0; // of the queries
    for (int64_t job = blockIdx.x; job < number * heads; job += gridDim.x, phase ^= 1) {
        const GxCudaTile tile = gx__cuda_tile(p.a.q_runs, GX__WGMMA_OWN, number - 1 - job / heads);
        const int64_t b = job % heads / p.a.H, head = job % p.a.H;
        if (is_producer) {
            gx_mbarrier_wait(&tiles->q_empty, phase ^ 1);
            gx__wgmma_produce<T, HEAD>(tiles, &turn, maps, p, tile, b, head);
            continue;
        }
        GxMmaRows<1, HEAD> rows = {};
        rows.maximum[0][0] = rows.maximum[0][1] = -INFINITY;
        gx_mbarrier_wait(&tiles->q_full, phase);
        gx__wgmma_consume<T, HEAD>(rows, tiles, &turn, p, tile, b);
        gx__wgmma_let_go(&tiles->q_empty);
        gx__mma_finish<T, 1, HEAD>(o, lse, rows, p, tile, b, head);
    }
#else
    (void)o, (void)lse, (void)maps, (void)p;
    __trap(); // compiled for another architecture than sm_90a
#endif
}

// ---- the host's side -----------------------------------------------------------------------------------------------

// Does TMA bring q, k and v? A map's strides are multiples of each other.
static int gx__wgmma_brings(const GxCudaAttention *p)
{
    const GxAttention *a = &p->a;
    return gx__mma_takes(p) && (a->head_dim == 64 || a->head_dim == 128) && !a->pages && a->k_runs.n == 1 &&
           a->k_runs.run[0].length > 0 && p->q_rows > 0 && a->q_stride % a->head_dim == 0 &&
           a->kv_stride % a->head_dim == 0;
}

// Does this kernel take them?
static int gx__wgmma_takes(const GxCudaAttention *p)
{
    return gx__wgmma_brings(p) && !p->a.documents && p->a.window == 0 && p->a.dropout == 0;
}

typedef struct {
    const void *x;
    int64_t heads, head_dim, B, rows, stride;
    int tile_rows;
} GxWgmmaMatrix; // [rows,B,heads,head_dim], samples `stride` elements apart

static CUresult gx__wgmma_map(CUtensorMap *map, const GxWgmmaMatrix *m)
{
    const auto encode = gx__cuda_tensor_map_encoder();
    const cuuint64_t dims[] = {(cuuint64_t)m->head_dim, (cuuint64_t)m->heads, (cuuint64_t)m->B, (cuuint64_t)m->rows};
    const cuuint64_t strides[] = {(cuuint64_t)m->head_dim * 2, (cuuint64_t)m->stride * 2,
                                  (cuuint64_t)(m->B * m->stride) * 2};
    const cuuint32_t box[] = {GX__WGMMA_COLUMNS, 1, 1, (cuuint32_t)m->tile_rows}, ones[] = {1, 1, 1, 1};
    if (!encode) return CUDA_ERROR_INVALID_VALUE;
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)m->x, dims, strides, box, ones,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static int64_t gx__wgmma_rows(const GxRuns *runs) // of the matrix, up to the last one that a run has
{
    int64_t rows = 0;
    for (int i = 0; i < runs->n; i++) rows = gx_max(rows, runs->run[i].row + runs->run[i].length);
    return rows;
}

template <class T, int HEAD>
static void gx__wgmma_launch_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                                     const GxCudaAttention *p)
{
    const GxAttention *a = &p->a;
    const int bytes = (int)sizeof(GxWgmmaTiles<T, HEAD>);
    const int64_t keys = gx__wgmma_rows(&a->k_runs);
    const GxWgmmaMatrix of_q = {q, a->H, HEAD, a->B, gx__wgmma_rows(&a->q_runs), a->q_stride, GX__WGMMA_OWN},
                        of_k = {k, a->K, HEAD, a->B, keys, a->kv_stride, GX__WGMMA_OTHERS},
                        of_v = {v, a->K, HEAD, a->B, keys, a->kv_stride, GX__WGMMA_OTHERS};
    GxWgmmaMaps maps;
    if (gx__wgmma_map(&maps.q, &of_q) || gx__wgmma_map(&maps.k, &of_k) || gx__wgmma_map(&maps.v, &of_v)) {
        GX_FAIL(&g->error, GX_ERR_DEVICE,
                "attention_forward: the driver makes no tensor maps of q, k or v for the kernel by wgmma; build "
                "without GX_CUDA_ATTENTION_WGMMA");
        return;
    }
    if (!gx__cuda_attention_shared(g, "attention_forward", (const void *)gx__wgmma_attention_forward<T, HEAD>, bytes))
        return;
    const unsigned grid = gx__cuda_grid(gx__cuda_tiles(a->q_runs, GX__WGMMA_OWN) * a->B * a->H);
    GX_LAUNCH((gx__wgmma_attention_forward<T, HEAD>), grid, GX__WGMMA_THREADS, bytes, gx_cuda(g)->stream, (T *)o, lse,
              maps, *p);
    gx_cuda_check(g, "attention_forward");
}

static void gx__wgmma_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                              const GxCudaAttention *p)
{
    if (p->a.head_dim == 64) gx__wgmma_launch_forward<__nv_bfloat16, 64>(g, o, lse, q, k, v, p);
    else gx__wgmma_launch_forward<__nv_bfloat16, 128>(g, o, lse, q, k, v, p);
}
#endif
