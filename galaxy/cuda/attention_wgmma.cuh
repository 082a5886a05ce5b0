// attention_wgmma.cuh: attention's forward as an H100 wants it, for bf16 and heads of up to 128: tiles brought by TMA,
// products by wgmma (hopper.cuh). Its tests pass on the emulator and on an H100.
//
// A block owns 128 query rows of one head and meets the tiles of 64 keys that these see, one after another. Its third
// warpgroup is the producer: one warp of it brings the bounds of documents, one thread of that has TMA bring the
// queries, and keys, values, keys, values, ... into a ring of stages, each as soon as its stage is empty. The others of
// it only give their registers to the consumers, the first two warpgroups, with 64 rows each: they wait until a stage
// is full, multiply, and let go of it, at once where none of their rows sees any of its keys. Scores and sums lie in
// registers as those of attention_mma.cuh do, whose softmax, masks and dropout these are; probabilities are the left
// factor from registers.
//
// In shared memory a tile is one or two parts of 64 columns each, of heads of 96 three of 32: rows of 128 or 64 bytes,
// swizzled. Of keys the products go along these rows, of values across them. A head's size is padded to 64, 96 or 128:
// what is beyond it, and rows beyond the end of a run of keys, arrive as zeros.
//
// It takes no keys in pages: their last rows may never have been written, and TMA brings whole boxes. It is there where
// GX_CUDA_SM_90A is defined (hopper.cuh); attention.cuh decides who takes what. Source: Shah et al. 2024,
// arXiv:2407.08608, section 3.1, without its exchange of turns between warpgroups.
#ifndef GX_CUDA_ATTENTION_WGMMA_CUH
#define GX_CUDA_ATTENTION_WGMMA_CUH
#include "attention_mma.cuh"
#include "hopper.cuh"
#endif

#if defined(GALAXY_CUDA_IMPLEMENTATION) && defined(GX_CUDA_SM_90A) && !defined(GX_CUDA_ATTENTION_WGMMA_IMPLEMENTED)
#define GX_CUDA_ATTENTION_WGMMA_IMPLEMENTED

enum {
    GX__WGMMA_WARPS = 8, // of consumers
    GX__WGMMA_ROWS = 64, // of a warpgroup
    GX__WGMMA_OWN = 2 * GX__WGMMA_ROWS,
    GX__WGMMA_GROUP = 128, // threads of a warpgroup
    GX__WGMMA_THREADS = 3 * GX__WGMMA_GROUP,
    GX__WGMMA_PRODUCER_REGISTERS = 56, // of a thread; a block begins with 168 for each of its threads
    GX__WGMMA_CONSUMER_REGISTERS = 224,
    GX__WGMMA_OTHERS = 64,
    GX__WGMMA_STAGES = 4
};

// A part's columns are as many as divide the head evenly. SWIZZLE: bytes of its rows; ATOM: of eight of them.
template <class T, int ROWS, int HEAD> struct GxWgmmaTile {
    enum { COLUMNS = HEAD % 64 ? 32 : 64, SWIZZLE = COLUMNS * 2, ATOM = 8 * SWIZZLE };
    T x[HEAD / COLUMNS][ROWS][COLUMNS];
};
// What a block has in shared memory.
template <class T, int HEAD> struct alignas(1024) GxWgmmaTiles {
    GxWgmmaTile<T, GX__WGMMA_OWN, HEAD> q;
    GxWgmmaTile<T, GX__WGMMA_OTHERS, HEAD> others[GX__WGMMA_STAGES];
    unsigned long long q_full, q_empty, full[GX__WGMMA_STAGES], empty[GX__WGMMA_STAGES];
    GxCudaDocument documents[GX__WGMMA_OWN];
};

typedef struct {
    CUtensorMap q, k[GX_MAX_RUNS], v[GX_MAX_RUNS]; // of each run of keys, which end where it does
} GxWgmmaMaps;

typedef struct {
    GxCudaTile tile; // of queries
    int64_t b, head;
} GxWgmmaJob; // of a block, one for each query tile of a sample's heads

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

static __device__ __forceinline__ int64_t gx__wgmma_jobs(const GxCudaAttention &p)
{
    return gx__cuda_tiles(p.a.q_runs, GX__WGMMA_OWN) * p.a.B * p.a.H;
}

// Causal: the last tiles see the most keys and begin.
static __device__ __forceinline__ GxWgmmaJob gx__wgmma_job(const GxCudaAttention &p, int64_t i)
{
    const int64_t last = gx__cuda_tiles(p.a.q_runs, GX__WGMMA_OWN) - 1, heads = p.a.B * p.a.H;
    const GxWgmmaJob job = {gx__cuda_tile(p.a.q_runs, GX__WGMMA_OWN, last - i / heads), i % heads / p.a.H, i % p.a.H};
    return job;
}

// ---- the producer --------------------------------------------------------------------------------------------------

// A whole tile from `row` on; all its bytes are counted, those beyond the run's end, too.
template <class T, int ROWS, int HEAD>
static __device__ __forceinline__ void gx__wgmma_load(GxWgmmaTile<T, ROWS, HEAD> *to, const CUtensorMap *map,
                                                      unsigned long long *full, int64_t head, int64_t b, int64_t row)
{
    gx_mbarrier_arrive_expect(full, sizeof *to);
#pragma unroll
    for (int i = 0; i < HEAD / to->COLUMNS; i++)
        gx_tma_load(to->x[i], map, full, {i * to->COLUMNS, (int)head, (int)b, (int)row});
}

// All of a query tile.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_load_job(GxWgmmaTiles<T, HEAD> *tiles, GxWgmmaTurn *turn,
                                                          const GxWgmmaMaps &maps, const GxCudaAttention &p,
                                                          const GxWgmmaJob &job)
{
    enum { N = GX__WGMMA_OTHERS };
    const int64_t kv_head = (p.a.q_first + job.head) / p.group;
    GxMmaKeys keys = {-1, 0, 0, 0, {0, 0, 0}};
    gx__wgmma_load(&tiles->q, &maps.q, &tiles->q_full, job.head, job.b, job.tile.row);
    for (gx__mma_next_keys<N>(&keys, tiles->documents, p, job.tile, job.b); keys.tile.length;
         gx__mma_next_keys<N>(&keys, tiles->documents, p, job.tile, job.b))
#pragma unroll
        for (int values = 0; values < 2; values++) {
            gx_mbarrier_wait(&tiles->empty[turn->stage], turn->phase ^ 1); // of a new barrier it is: the phase before 0
            gx__wgmma_load(&tiles->others[turn->stage], values ? &maps.v[keys.run] : &maps.k[keys.run],
                           &tiles->full[turn->stage], kv_head, job.b, keys.tile.row);
            gx__wgmma_next(turn);
        }
}

// A warp brings the documents, one thread of it the rest: what is in front of the queries' arrival is seen behind their
// wait.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_produce(GxWgmmaTiles<T, HEAD> *tiles, const GxWgmmaMaps &maps,
                                                         const GxCudaAttention &p)
{
    const int lane = (int)threadIdx.x % GX_WARP;
    GxWgmmaTurn turn = {0, 0};
    unsigned phase = 1; // of the queries before: of a new barrier it is complete
    for (int64_t i = blockIdx.x; i < gx__wgmma_jobs(p); i += gridDim.x, phase ^= 1) {
        const GxWgmmaJob job = gx__wgmma_job(p, i);
        gx_mbarrier_wait(&tiles->q_empty, phase);
        for (int r = lane; p.a.documents && r < job.tile.length; r += GX_WARP)
            tiles->documents[r] = gx__cuda_document(p, job.tile, r, job.b);
        __syncwarp();
        if (lane == 0) gx__wgmma_load_job<T, HEAD>(tiles, &turn, maps, p, job);
        __syncwarp();
    }
}

// ---- the consumers -------------------------------------------------------------------------------------------------

// A warp has read a tile to its end, and none of its lanes still waits for it: a barrier knows only two phases apart.
static __device__ __forceinline__ void gx__wgmma_let_go(unsigned long long *empty)
{
    __syncwarp();
    if (threadIdx.x % GX_WARP == 0) gx_mbarrier_arrive(empty);
}

// The first of this warpgroup's rows among those of the block.
static __device__ __forceinline__ int gx__wgmma_first_row()
{
    return (int)threadIdx.x / GX__WGMMA_GROUP * GX__WGMMA_ROWS;
}

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
    const int first = gx__wgmma_first_row();
    gx_pin(sums);
    gx_wgmma_fence();
#pragma unroll
    for (int c = 0; c < HEAD; c += 16) {
        const int part = c / q->COLUMNS, column = c % q->COLUMNS;
        gx_wgmma<GX__WGMMA_OTHERS, false>(
            sums, gx_wgmma_descriptor(&q->x[part][first][column], 0, q->ATOM, q->SWIZZLE),
            gx_wgmma_descriptor(&k->x[part][0][column], 0, k->ATOM, k->SWIZZLE), c > 0);
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
                             gx_wgmma_descriptor(v->x[0][k * 16], sizeof v->x[0], v->ATOM, v->SWIZZLE), true);
    gx_wgmma_commit();
}

typedef struct {
    GxMmaKeys keys; // the block's
    GxCudaTile own; // this warpgroup's queries
    GxCudaRange seen; // by these, of the run that the keys are of
} GxWgmmaKeys;

static __device__ __forceinline__ GxWgmmaKeys gx__wgmma_keys(const GxCudaTile &tile)
{
    const int first = gx__wgmma_first_row(), rest = max(tile.length - first, 0);
    const GxWgmmaKeys keys = {{-1, 0, 0, 0, {0, 0, 0}},
                              {tile.row + first, tile.position + first, min(rest, (int)GX__WGMMA_ROWS)},
                              {0, 0}};
    return keys;
}

// The block's next tile of keys that this warpgroup sees; it lets go of those before it.
template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_next_keys(GxWgmmaKeys *keys, GxWgmmaTiles<T, HEAD> *tiles,
                                                           GxWgmmaTurn *turn, const GxCudaAttention &p,
                                                           const GxWgmmaJob &job)
{
    for (;;) {
        const int run = keys->keys.run;
        gx__mma_next_keys<GX__WGMMA_OTHERS>(&keys->keys, tiles->documents, p, job.tile, job.b);
        if (!keys->keys.tile.length) return;
        const GxRun &of = p.a.k_runs.run[keys->keys.run];
        if (keys->keys.run != run)
            keys->seen = gx__cuda_seen(tiles->documents + gx__wgmma_first_row(), p, keys->own, of);
        const int64_t begin = keys->keys.tile.row - of.row, end = begin + keys->keys.tile.length;
        if (keys->own.length && begin < keys->seen.end && end > keys->seen.begin) return;
        for (int values = 0; values < 2; values++) {
            gx_mbarrier_wait(&tiles->full[turn->stage], turn->phase);
            gx__wgmma_let_go(&tiles->empty[turn->stage]);
            gx__wgmma_next(turn);
        }
    }
}

// Bit n%4*8 + e of keep[half][n/4]: is number e of this lane's two of fragment n kept? A lane draws one of the 32 words
// of its warp's rows.
static __device__ __forceinline__ void gx__wgmma_draw_keep(uint32_t (&keep)[2][2], const GxCudaAttention &p,
                                                           const GxWgmmaJob &job, const GxCudaTile &keys)
{
    static_assert((int)GX__WGMMA_OTHERS / 32 * (int)GX__MMA_ROWS == (int)GX_WARP, "two words to a row");
    const int lane = (int)threadIdx.x % GX_WARP, row = gx__mma_first_row<1>() + lane / 2;
    const uint32_t word =
        gx__mma_draw_word(p, job.tile.position + row, keys.position + lane % 2 * 32, job.b, job.head);
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

template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_attend(GxMmaRows<1, HEAD> &rows, GxWgmmaTiles<T, HEAD> *tiles,
                                                        GxWgmmaTurn *turn, const GxCudaAttention &p,
                                                        const GxWgmmaJob &job)
{
    enum { N = GX__WGMMA_OTHERS };
    GxWgmmaKeys keys = gx__wgmma_keys(job.tile);
    for (gx__wgmma_next_keys(&keys, tiles, turn, p, job); keys.keys.tile.length;
         gx__wgmma_next_keys(&keys, tiles, turn, p, job)) {
        const GxCudaTile &now = keys.keys.tile;
        GxMmaSpan span[1][2];
        uint32_t keep[2][2];
        float s[1][N / 8][4];
        gx_mbarrier_wait(&tiles->full[turn->stage], turn->phase);
        gx__wgmma_scores<T, HEAD>(s, &tiles->q, &tiles->others[turn->stage]);
        if (p.a.dropout != 0) gx__wgmma_draw_keep(keep, p, job, now);
        const GxMmaSight sight = gx__mma_spans<false, 1, N>(span, tiles->documents, p, job.tile, now);
        gx__wgmma_wait<0>(s);
        gx__wgmma_let_go(&tiles->empty[turn->stage]);
        gx__wgmma_next(turn);
        if (!sight.whole) gx__mma_hide<1, N>(s, span);
        gx__mma_softmax<1, N, HEAD>(s, rows, p.scale_log2);
        if (p.a.dropout != 0) gx__wgmma_drop(s, keep, p);
        gx_mbarrier_wait(&tiles->full[turn->stage], turn->phase);
        gx__wgmma_accumulate<T, HEAD>(rows.o, s, &tiles->others[turn->stage]);
        gx__wgmma_wait<0>(rows.o);
        gx__wgmma_let_go(&tiles->empty[turn->stage]);
        gx__wgmma_next(turn);
    }
}

template <class T, int HEAD>
static __device__ __forceinline__ void gx__wgmma_consume(T *o, float *lse, GxWgmmaTiles<T, HEAD> *tiles,
                                                         const GxCudaAttention &p)
{
    GxWgmmaTurn turn = {0, 0};
    unsigned phase = 0; // of the queries
    for (int64_t i = blockIdx.x; i < gx__wgmma_jobs(p); i += gridDim.x, phase ^= 1) {
        const GxWgmmaJob job = gx__wgmma_job(p, i);
        GxMmaRows<1, HEAD> rows = {};
        rows.maximum[0][0] = rows.maximum[0][1] = -INFINITY;
        gx_mbarrier_wait(&tiles->q_full, phase);
        gx__wgmma_attend<T, HEAD>(rows, tiles, &turn, p, job);
        gx__wgmma_let_go(&tiles->q_empty);
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
    __trap(); // compiled for another architecture than sm_90a
#endif
}

// ---- the host's side -----------------------------------------------------------------------------------------------

// Does this kernel take them, on this card? A map's strides are multiples of each other.
static int gx__wgmma_takes(const GxContext *g, const GxCudaAttention *p)
{
    const GxAttention *a = &p->a;
    return gx_cuda(g)->runs_sm_90a && gx__mma_takes(p) && !a->pages && p->q_rows > 0 &&
           a->q_stride % a->head_dim == 0 && a->kv_stride % a->head_dim == 0;
}

typedef struct {
    const void *x;
    int64_t heads, stride;
    int columns, rows; // of a box
} GxWgmmaMatrix;       // [T,B,heads,head_dim], samples `stride` elements apart

// Of its first `rows` rows of B samples.
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

// 0: the driver makes none.
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
    const unsigned grid = gx_cuda_blocks(gx__cuda_tiles(p->a.q_runs, GX__WGMMA_OWN) * p->a.B * p->a.H);
    GX_LAUNCH((gx__wgmma_attention_forward<T, HEAD>), grid, GX__WGMMA_THREADS, bytes, gx_cuda(g)->stream, (T *)o, lse,
              maps, *p);
    gx_cuda_check(g, "attention_forward");
}

static void gx__wgmma_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                              const GxCudaAttention *p)
{
    GX__MMA_HEADS(p, gx__wgmma_launch_forward, g, o, lse, q, k, v, p);
}
#endif
