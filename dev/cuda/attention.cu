// attention.cu: attention's kernels in the making, from the formula to what is shipped: dev/cuda/workshop.h,
// docs/kernels.md.
//
// Forward: 1. The formula, one thread per query row. Every lane of a warp reads another row of q and writes another row
//             of o, and every key and value is read again for each query.
//          2. One warp per query row, a lane for every 32nd element of the head: the reads of a key are neighbours, but
//             for every key the warp adds up one dot product through shuffles, and keys are still read once per query.
//          3. galaxy/cuda/attention.cuh. Tiles in shared memory: a key is read once per 32 or 64 queries, and a thread
//             computes 16 or 4 scores from what it loads.
//          4. galaxy/cuda/attention_mma.cuh with heads of up to 128: tensor cores, scores and probabilities stay in
//             registers; in fp32 three products in TF32, where the card is fast in it; else as in 3.
//          5. On an H100 (compiled with GX_CUDA_SM_90A, as the emulator's is): galaxy/cuda/attention_wgmma.cuh in bf16,
//             with heads of up to 128: wgmma, tiles by TMA; else as in 3.
//          6. What is shipped: the faster one of 4 and 5; else as in 3. Compiled without GX_CUDA_SM_90A it is 4.
// Backward: 1., 2., 3., 4. as forward's 3, 4, 5, 6; by wgmma it is galaxy/cuda/attention_wgmma_backward.cuh.
//
// Entries of their own have dq and dk rotated back (of odd heads nothing is), eight documents in each column, with
// padding at the end, and dropout; by wgmma, too, the backward of documents also by mma.sync. FLOPs are those of whole
// columns there, too: of documents the time is what counts. Two entries have a bias by distance, with its gradient, which
// wgmma does not take. The last entry merges attention to two sets of keys.
#define GALAXY_CUDA_IMPLEMENTATION
#if defined(GX_EMU) && !defined(GX_CUDA_SM_90A)
#define GX_CUDA_SM_90A
#endif
#include "galaxy/cuda/attention.cuh"
#include "galaxy/cuda/rope.cuh"
#include "workshop.h"

enum { B, H, K, HEAD, TQ, TK, CAUSAL, SPLIT, WINDOW }; // a shape: as GxAttention names its parts
enum { Q, KEYS, VALUES, O, LSE, D_O, DQ, DK, DV };
enum { FORWARD_EXTRA = LSE + 1, BACKWARD_EXTRA = DV + 1 }; // documents, or the step that dropout draws by
enum { COSINE = BACKWARD_EXTRA, SINE };                    // or what dq and dk are rotated back by
enum { BIAS = BACKWARD_EXTRA, DBIAS, REACH = 128 };        // or a bias

// SPLIT 0: the queries are the last TQ of TK positions. Else they are two runs, as of a balanced context-parallel rank:
// SPLIT rows from position 0 on, and the others at the end.
static GxAttention description(const int64_t *d, GxDtype dtype)
{
    GxAttention a = GX_ZERO;
    a.B = d[B], a.H = d[H], a.K = d[K], a.head_dim = d[HEAD];
    a.q_runs = gx_runs_one(d[TQ], d[TK] - d[TQ]);
    a.k_runs = gx_runs_one(d[TK], 0);
    if (d[SPLIT]) {
        const GxRuns two = {2, {{0, d[SPLIT], 0}, {d[SPLIT], d[TQ] - d[SPLIT], d[TK] - d[TQ] + d[SPLIT]}}};
        a.q_runs = two;
    }
    a.q_stride = a.o_stride = d[H] * d[HEAD];
    a.kv_stride = d[K] * d[HEAD];
    a.causal = (int)d[CAUSAL], a.sliding_window = d[WINDOW];
    a.dtype = dtype;
    return a;
}

// ---- versions 1 and 2 ----------------------------------------------------------------------------------------------

typedef struct {
    int64_t begin, end;
} Seen;

// The keys that a query row sees, of one run of keys from position 0 on.
static __device__ Seen keys_seen(const GxAttention &a, int64_t row)
{
    int run = a.q_runs.n - 1;
    while (run > 0 && row < a.q_runs.run[run].row) run--;
    const int64_t to = a.q_runs.run[run].position + row - a.q_runs.run[run].row + 1, all = a.k_runs.run[0].length;
    const Seen seen = {a.sliding_window && to > a.sliding_window ? to - a.sliding_window : 0,
                       !a.causal || to > all ? all : to};
    return seen;
}

template <class T> static __device__ float dot(const T *a, const T *b, int64_t n)
{
    float s = 0;
    for (int64_t c = 0; c < n; c++) s += gx_to_float(a[c]) * gx_to_float(b[c]);
    return s;
}

template <class T>
__global__ void forward_thread_per_row(T *o, float *lse, const T *q, const T *k, const T *v, GxAttention a, float scale)
{
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,
                  rows = a.q_runs.run[a.q_runs.n - 1].row + a.q_runs.run[a.q_runs.n - 1].length;
    if (index >= rows * a.B * a.H) return;
    const int64_t head = index % a.H, b = index / a.H % a.B, row = index / a.H / a.B, h = a.head_dim;
    const Seen seen = keys_seen(a, row);
    const int64_t at = head / (a.H / a.K) * h, step = a.B * a.kv_stride;
    const T *query = q + (row * a.B + b) * a.q_stride + head * h, *key = k + b * a.kv_stride + at,
            *value = v + b * a.kv_stride + at;
    float acc[GX_CUDA_MAX_HEAD] = {}, m = -INFINITY, l = 0;
    for (int64_t j = seen.begin; j < seen.end; j++) m = fmaxf(m, scale * dot(query, key + j * step, h));
    for (int64_t j = seen.begin; j < seen.end; j++) {
        const float p = expf(scale * dot(query, key + j * step, h) - m);
        l += p;
        for (int64_t c = 0; c < h; c++) acc[c] += p * gx_to_float(value[j * step + c]);
    }
    for (int64_t c = 0; c < h; c++)
        o[(row * a.B + b) * a.o_stride + head * h + c] = gx_from_float<T>(l != 0 ? acc[c] / l : 0.0f);
    lse[index] = l != 0 ? m + logf(l) : -INFINITY;
}

template <class T>
__global__ void forward_warp_per_row(T *o, float *lse, const T *q, const T *k, const T *v, GxAttention a, float scale)
{
    constexpr int N = (int)GX_CUDA_MAX_HEAD / (int)GX_WARP; // elements of the head to a lane: lane, lane + 32, ...
    const int64_t index = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / GX_WARP,
                  rows = a.q_runs.run[a.q_runs.n - 1].row + a.q_runs.run[a.q_runs.n - 1].length;
    if (index >= rows * a.B * a.H) return; // a whole warp
    const int lane = (int)threadIdx.x % GX_WARP, h = (int)a.head_dim;
    const int64_t head = index % a.H, b = index / a.H % a.B, row = index / a.H / a.B;
    const Seen seen = keys_seen(a, row);
    const int64_t at = b * a.kv_stride + head / (a.H / a.K) * h;
    float query[N], acc[N] = {}, m = -INFINITY, l = 0;
    for (int i = 0; i < N; i++) {
        const int c = lane + i * GX_WARP;
        query[i] = c < h ? scale * gx_to_float(q[(row * a.B + b) * a.q_stride + head * h + c]) : 0.0f;
    }
    for (int64_t j = seen.begin; j < seen.end; j++) {
        const T *key = k + at + j * a.B * a.kv_stride, *value = v + at + j * a.B * a.kv_stride;
        float s = 0;
        for (int i = 0; i < N; i++)
            if (lane + i * GX_WARP < h) s += query[i] * gx_to_float(key[lane + i * GX_WARP]);
        s = gx_warp_sum(s);
        const float larger = fmaxf(m, s), rescale = expf(m - larger), p = expf(s - larger);
        for (int i = 0; i < N; i++)
            if (lane + i * GX_WARP < h) acc[i] = acc[i] * rescale + p * gx_to_float(value[lane + i * GX_WARP]);
        l = l * rescale + p;
        m = larger;
    }
    for (int i = 0; i < N; i++)
        if (lane + i * GX_WARP < h)
            o[(row * a.B + b) * a.o_stride + head * h + lane + i * GX_WARP] =
                gx_from_float<T>(l != 0 ? acc[i] / l : 0.0f);
    if (lane == 0) lse[index] = l != 0 ? m + logf(l) : -INFINITY;
}

template <class T> static void launch_thread_per_row(GxContext *g, const int64_t *d, void **p)
{
    const GxAttention a = description(d, GX_F32);
    const unsigned blocks = (unsigned)gx_ceil_div(d[TQ] * d[B] * d[H], 128);
    GX_LAUNCH((forward_thread_per_row<T>), blocks, 128, 0, gx_cuda(g)->stream, (T *)p[O], (float *)p[LSE],
              (const T *)p[Q], (const T *)p[KEYS], (const T *)p[VALUES], a, 1.0f / sqrtf((float)d[HEAD]));
    gx_cuda_check(g, "thread_per_row");
}
template <class T> static void launch_warp_per_row(GxContext *g, const int64_t *d, void **p)
{
    const GxAttention a = description(d, GX_F32);
    const unsigned blocks = (unsigned)gx_ceil_div(d[TQ] * d[B] * d[H], 128 / GX_WARP);
    GX_LAUNCH((forward_warp_per_row<T>), blocks, 128, 0, gx_cuda(g)->stream, (T *)p[O], (float *)p[LSE],
              (const T *)p[Q], (const T *)p[KEYS], (const T *)p[VALUES], a, 1.0f / sqrtf((float)d[HEAD]));
    gx_cuda_check(g, "warp_per_row");
}
static void thread_per_row(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    GX_CUDA_TYPES(dtype, launch_thread_per_row, g, d, p);
}
static void warp_per_row(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    GX_CUDA_TYPES(dtype, launch_warp_per_row, g, d, p);
}

// ---- tiles in fp32 arithmetic, for every type
// ------------------------------------------------------------------------

static GxCudaAttention told(GxContext *g, const GxAttention *a)
{
    GxCudaAttention p = gx__cuda_attention_of(g, a);
    p.packed = a->head_dim * gx_dtype_size(a->dtype) % 16 == 0; // the workshop's buffers are aligned, without gaps
    return p;
}
static void tiles_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    const GxCudaAttention t = told(g, &a);
    GX__CUDA_HEADS(&a, gx__cuda_launch_forward, g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &t);
}

// dq, dk and dv by kernels that do (rotates) or do not turn dq and dk back themselves. d: dq, dk, dv; x: q, k, v, d_o
typedef void Gradients(GxContext *g, void *const *d, const void *const *x, const float *lse, const float *D,
                       const GxCudaAttention *p);
static void backward_by(GxContext *g, const GxAttention *a, void **p, Gradients *gradients, int rotates)
{
    GxCudaAttention t = told(g, a);
    if (!rotates) t.a.cosine = NULL;
    GxArenaMark mark = gx_arena_mark(g->arena);
    float *D = (float *)gx_scratch(g, GX_MEM_WORKSPACE, gx_cuda_attention_scratch(g, a, 1));
    void *const out[] = {p[DQ], p[DK], p[DV]};
    const void *const in[] = {p[Q], p[KEYS], p[VALUES], p[D_O]};
    GX_CUDA_TYPES(a->dtype, gx__cuda_launch_dot, g, D, p[D_O], p[O], &t);
    gradients(g, out, in, (const float *)p[LSE], D, &t);
    if (a->cosine && !rotates) gx_attention_rotate_back(g, p[DQ], p[DK], a);
    gx_arena_release(g->arena, mark);
}
static void gradients_by_tiles(GxContext *g, void *const *d, const void *const *x, const float *lse, const float *D,
                               const GxCudaAttention *p)
{
    GX__CUDA_HEADS(&p->a, gx__cuda_launch_backward, g, d, x, lse, D, p);
}
static void tiles_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    backward_by(g, &a, p, gradients_by_tiles, 0);
}

// q and k as if they had been rotated. Of odd heads nothing is.
static GxAttention rotated(const int64_t *d, GxDtype dtype, void **p)
{
    GxAttention a = description(d, dtype);
    if (d[HEAD] % 2 == 0) a.cosine = (const float *)p[COSINE], a.sine = (const float *)p[SINE];
    return a;
}
static void tiles_backward_rotated(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = rotated(d, dtype, p);
    backward_by(g, &a, p, gradients_by_tiles, 0);
}

// ---- the operation -------------------------------------------------------------------------------------------------

static void forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    gx_attention_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}
static void backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    gx_attention_backward(g, p[DQ], p[DK], p[DV], p[D_O], p[O], (const float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}

static void backward_rotated(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = rotated(d, dtype, p);
    gx_attention_backward(g, p[DQ], p[DK], p[DV], p[D_O], p[O], (const float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}

static GxAttention with_documents(const int64_t *d, GxDtype dtype, const void *documents)
{
    GxAttention a = description(d, dtype);
    a.documents = (const int32_t *)documents;
    return a;
}
static void forward_documents(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_documents(d, dtype, p[FORWARD_EXTRA]);
    gx_attention_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}
// In the backward's buffers, for what it begins with.
static void prepare_documents(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_documents(d, dtype, p[BACKWARD_EXTRA]);
    gx_attention_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}
static void backward_documents(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_documents(d, dtype, p[BACKWARD_EXTRA]);
    gx_attention_backward(g, p[DQ], p[DK], p[DV], p[D_O], p[O], (const float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}

static GxAttention with_dropout(GxContext *g, const int64_t *d, GxDtype dtype, void *step)
{
    GxAttention a = description(d, dtype);
    a.dropout = 0.1f, a.site = gx_random_site(GX_SITE_DROPOUT, 1);
    a.T = d[TK], a.heads = d[H];
    g->step = (GxStep *)step;
    return a;
}
static void forward_dropout(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_dropout(g, d, dtype, p[FORWARD_EXTRA]);
    gx_attention_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}
static void prepare_dropout(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_dropout(g, d, dtype, p[BACKWARD_EXTRA]);
    gx_attention_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}
static void backward_dropout(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_dropout(g, d, dtype, p[BACKWARD_EXTRA]);
    gx_attention_backward(g, p[DQ], p[DK], p[DV], p[D_O], p[O], (const float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}

static GxAttention with_bias(const int64_t *d, GxDtype dtype, const void *bias)
{
    GxAttention a = description(d, dtype);
    a.bias = bias, a.reach = REACH;
    return a;
}
static void forward_bias(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_bias(d, dtype, p[FORWARD_EXTRA]);
    gx_attention_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}
static void prepare_bias(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_bias(d, dtype, p[BIAS]);
    gx_attention_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}
static void backward_bias(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    GxAttention a = with_bias(d, dtype, p[BIAS]);
    a.dbias = (float *)p[DBIAS];
    gx_attention_backward(g, p[DQ], p[DK], p[DV], p[D_O], p[O], (const float *)p[LSE], p[Q], p[KEYS], p[VALUES], &a);
}

// What the kernels in tensor cores do not take is left to the tiles.
#ifdef GX_CUDA_SM_90A
static void mma_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    const GxCudaAttention t = told(g, &a);
    if (gx__mma_supports(g, &t))
        GX__MMA_HEADS(&t, gx__mma_launch_forward, g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &t);
    else tiles_forward(g, d, dtype, p);
}
static void gradients_by_mma(GxContext *g, void *const *d, const void *const *x, const float *lse, const float *D,
                             const GxCudaAttention *p)
{
    GX__MMA_HEADS(p, gx__mma_launch_backward, g, d, x, lse, D, p);
}
static void backward_if(int takes, GxContext *g, const GxAttention *a, void **p, Gradients *gradients)
{
    const GxCudaAttention t = told(g, a);
    if (takes) backward_by(g, a, p, gradients, gx__mma_rotates(g, &t));
    else backward_by(g, a, p, gradients_by_tiles, 0);
}
static void backward_by_mma(GxContext *g, void **p, const GxAttention *a)
{
    const GxCudaAttention t = told(g, a);
    backward_if(gx__mma_supports(g, &t), g, a, p, gradients_by_mma);
}
static void mma_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    backward_by_mma(g, p, &a);
}
static void mma_backward_rotated(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = rotated(d, dtype, p);
    backward_by_mma(g, p, &a);
}
static void mma_backward_documents(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_documents(d, dtype, p[BACKWARD_EXTRA]);
    backward_by_mma(g, p, &a);
}
static void by_wgmma(GxContext *g, void **p, const GxAttention *a)
{
    const GxCudaAttention t = told(g, a);
    if (gx__wgmma_supports(g, &t)) gx__wgmma_forward(g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &t);
    else GX__CUDA_HEADS(a, gx__cuda_launch_forward, g, p[O], (float *)p[LSE], p[Q], p[KEYS], p[VALUES], &t);
}
static void wgmma_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    by_wgmma(g, p, &a);
}
static void wgmma_forward_documents(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_documents(d, dtype, p[FORWARD_EXTRA]);
    by_wgmma(g, p, &a);
}
static void wgmma_forward_dropout(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_dropout(g, d, dtype, p[FORWARD_EXTRA]);
    by_wgmma(g, p, &a);
}
static void backward_by_wgmma(GxContext *g, void **p, const GxAttention *a)
{
    const GxCudaAttention t = told(g, a);
    backward_if(gx__wgmma_backward_supports(g, &t), g, a, p, gx__wgmma_backward);
}
static void wgmma_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = description(d, dtype);
    backward_by_wgmma(g, p, &a);
}
static void wgmma_backward_rotated(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = rotated(d, dtype, p);
    backward_by_wgmma(g, p, &a);
}
static void wgmma_backward_documents(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_documents(d, dtype, p[BACKWARD_EXTRA]);
    backward_by_wgmma(g, p, &a);
}
static void wgmma_backward_dropout(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxAttention a = with_dropout(g, d, dtype, p[BACKWARD_EXTRA]);
    backward_by_wgmma(g, p, &a);
}
#define MMA(f)   {"tensor cores by mma.sync", f},
#define WGMMA(f) {"bf16 by wgmma", f},
#else // what is shipped is by mma.sync
#define MMA(f)
#define WGMMA(f)
#endif

// Depths: a score is a sum over the head, a probability one over the keys; what follows is a sum over keys, or over the
// queries of a group. Floors: where a query sees few keys, dp - D nearly cancels. Its terms are of size 1 and come with
// probabilities of 1/Tk or more. Roundings to bf16: of probabilities or of their gradients, and of results.
static void open_inputs(Work *w, const int64_t *d)
{
    work_input(w, "q", w->dtype, d[TQ] * d[B] * d[H] * d[HEAD]);
    work_input(w, "k", w->dtype, d[TK] * d[B] * d[K] * d[HEAD]);
    work_input(w, "v", w->dtype, d[TK] * d[B] * d[K] * d[HEAD]);
}
static void open_forward(Work *w, const int64_t *d)
{
    const double scores = (double)(d[HEAD] + d[TK]) + 16, rows = (double)(d[TQ] * d[B] * d[H]);
    open_inputs(w, d);
    work_output(w, "o", w->dtype, d[TQ] * d[B] * d[H] * d[HEAD], scores + (double)d[TK], 2, 0);
    work_output(w, "lse", GX_F32, d[TQ] * d[B] * d[H], scores, 0,
                sqrt(rows)); // a logarithm: its absolute error is the sum's relative one
}
// rounded: dq and dk are, to the work's type
static void open_gradients(Work *w, const int64_t *d, int rounded)
{
    const double scores = (double)(d[HEAD] + d[TK]) + 16, queries = (double)(d[TQ] * d[H] / d[K]),
                 dots = 2 * (double)d[HEAD];
    open_inputs(w, d);
    work_input(w, "o", w->dtype, d[TQ] * d[B] * d[H] * d[HEAD]);
    work_input(w, "lse", GX_F32, d[TQ] * d[B] * d[H]);
    work_input(w, "d_o", w->dtype, d[TQ] * d[B] * d[H] * d[HEAD]);
    const double keys = (double)d[TK], of_q = (double)(d[TQ] * d[B] * d[H] * d[HEAD]),
                 of_kv = (double)(d[TK] * d[B] * d[K] * d[HEAD]);
    work_output(w, "dq", w->dtype, (int64_t)of_q, scores + dots + keys, rounded, sqrt(of_q / keys));
    work_output(w, "dk", w->dtype, (int64_t)of_kv, scores + dots + queries, rounded, sqrt(of_kv) / keys);
    work_output(w, "dv", w->dtype, (int64_t)of_kv, scores + queries, 2, 0);
}
static void open_backward(Work *w, const int64_t *d) { open_gradients(w, d, 2); }

// By a pass of its own they are rounded before it, too.
static void open_backward_rotated(Work *w, const int64_t *d)
{
    GxRope rope = GX_ZERO;
    rope.theta = 10000;
    open_gradients(w, d, 3);
    float *cosine = (float *)work_given(w, "cosine", GX_F32, d[TK] * (d[HEAD] / 2));
    float *sine = (float *)work_given(w, "sine", GX_F32, d[TK] * (d[HEAD] / 2));
    gx_rope_table(cosine, sine, d[TK], d[HEAD], &rope);
}

// Eight documents of the same length in each column; what is left at its end is padding.
static void give_documents(Work *w, const int64_t *d)
{
    int32_t *documents = (int32_t *)work_given(w, "documents", GX_I32, d[TK] * d[B] * 2);
    const int64_t length = gx_max(1, d[TK] / 8);
    for (int64_t i = 0; i < d[TK] * d[B]; i++) {
        const int64_t begin = i / d[B] / length * length;
        documents[2 * i] = (int32_t)begin;
        documents[2 * i + 1] = (int32_t)(begin + length <= d[TK] ? begin + length : begin);
    }
}
static void give_step(Work *w)
{
    GxStep *step = (GxStep *)work_given(w, "step", GX_U8, sizeof(GxStep));
    memset(step, 0, sizeof *step);
    step->seed = 42, step->step = 7;
}
static void open_forward_documents(Work *w, const int64_t *d) { open_forward(w, d), give_documents(w, d); }
static void open_backward_documents(Work *w, const int64_t *d) { open_backward(w, d), give_documents(w, d); }
static void open_forward_dropout(Work *w, const int64_t *d) { open_forward(w, d), give_step(w); }
static void open_backward_dropout(Work *w, const int64_t *d) { open_backward(w, d), give_step(w); }
static void open_forward_bias(Work *w, const int64_t *d)
{
    open_forward(w, d);
    work_input(w, "bias", w->dtype, (2 * REACH + 1) * d[H]);
}
// dbias is a sum over all pairs at a distance, whose terms are probabilities times dp - D.
static void open_backward_bias(Work *w, const int64_t *d)
{
    const double pairs = (double)(d[B] * d[TQ] * d[TK]), terms = sqrt(pairs * (double)d[H]) / (double)d[TK];
    open_backward(w, d);
    work_input(w, "bias", w->dtype, (2 * REACH + 1) * d[H]);
    work_output(w, "dbias", GX_F32, (2 * REACH + 1) * d[H], pairs + 3 * (double)d[HEAD] + (double)d[TK] + 16, 0, terms);
}

// Attention to some keys and to others, made one. The result of rows that lie between both; lse is a logarithm, whose
// absolute error is the sum's relative one.
enum { MERGED, MERGED_LSE, OTHER, OTHER_LSE };
static void merge(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_attention_merge(g, (float *)p[MERGED], (float *)p[MERGED_LSE], p[OTHER], (const float *)p[OTHER_LSE],
                       d[TQ] * d[B], d[H], d[HEAD], dtype);
}
static void open_merge(Work *w, const int64_t *d)
{
    const int64_t rows = d[TQ] * d[B] * d[H];
    const double few = 16; // two exponentials, a division, products and a sum
    work_in_place(w, "o", GX_F32, rows * d[HEAD], few, 0, 0);
    work_in_place(w, "lse", GX_F32, rows, few, 0, sqrt((double)rows));
    work_input(w, "o2", w->dtype, rows * d[HEAD]);
    work_input(w, "lse2", GX_F32, rows);
}

static const WorkEntry entries[] = {
    {"forward",
     open_forward,
     forward,
     NULL,
     WORK_BOTH,
     {{"thread per query row", thread_per_row},
      {"warp per query row", warp_per_row},
      {"tiles", tiles_forward},
      MMA(mma_forward) WGMMA(wgmma_forward){"shipped: in tensor cores", NULL}}},
    {"backward",
     open_backward,
     backward,
     forward,
     WORK_BOTH,
     {{"tiles", tiles_backward}, MMA(mma_backward) WGMMA(wgmma_backward){"shipped: in tensor cores", NULL}}},
    {"backward, dq and dk rotated back",
     open_backward_rotated,
     backward_rotated,
     forward,
     WORK_BOTH,
     {{"tiles, and a pass", tiles_backward_rotated},
      MMA(mma_backward_rotated) WGMMA(wgmma_backward_rotated){"shipped: in tensor cores", NULL}}},
    {"forward of documents",
     open_forward_documents,
     forward_documents,
     NULL,
     WORK_BOTH,
     {WGMMA(wgmma_forward_documents){"shipped", NULL}}},
    {"backward of documents",
     open_backward_documents,
     backward_documents,
     prepare_documents,
     WORK_BOTH,
     {MMA(mma_backward_documents) WGMMA(wgmma_backward_documents){"shipped", NULL}}},
    {"forward with dropout",
     open_forward_dropout,
     forward_dropout,
     NULL,
     WORK_BOTH,
     {WGMMA(wgmma_forward_dropout){"shipped", NULL}}},
    {"backward with dropout",
     open_backward_dropout,
     backward_dropout,
     prepare_dropout,
     WORK_BOTH,
     {WGMMA(wgmma_backward_dropout){"shipped", NULL}}},
    {"forward with bias", open_forward_bias, forward_bias, NULL, WORK_BOTH, {{"shipped: not by wgmma", NULL}}},
    {"backward with bias",
     open_backward_bias,
     backward_bias,
     prepare_bias,
     WORK_BOTH,
     {{"shipped: not by wgmma", NULL}}},
    {"merge", open_merge, merge, NULL, WORK_BOTH, {{"a warp to a head of a row (shipped)", NULL}}},
};

static const int64_t checked[][WORK_DIMS] = {
    {1, 1, 1, 64, 1, 1, 1, 0},      {2, 4, 2, 14, 37, 37, 1, 0},       {1, 2, 1, 80, 67, 67, 0, 0},
    {1, 2, 2, 128, 70, 131, 1, 0},  {1, 2, 1, 256, 33, 35, 1, 0},      {2, 3, 1, 33, 20, 41, 1, 7},
    {1, 4, 4, 96, 5, 130, 0, 0},    {2, 6, 2, 64, 1, 1, 1, 0},         {1, 6, 2, 128, 63, 63, 1, 0},
    {1, 6, 2, 64, 64, 64, 1, 0},    {2, 6, 2, 128, 65, 65, 0, 0},      {2, 6, 2, 64, 257, 257, 1, 0},
    {1, 6, 2, 128, 257, 257, 1, 0}, {1, 2, 1, 64, 150, 150, 1, 0, 33}, {1, 6, 2, 96, 193, 257, 1, 33, 7},
};
static const int64_t timed[][WORK_DIMS] = {
    {8, 16, 16, 64, 1024, 1024, 1, 0}, {1, 32, 8, 128, 4096, 4096, 1, 0}, {1, 32, 8, 128, 4096, 4096, 0, 0},
    {1, 14, 2, 64, 8192, 8192, 1, 0},  {1, 8, 4, 256, 4096, 4096, 1, 0},  {1, 32, 8, 128, 8192, 8192, 1, 0, 2048},
    {32, 12, 12, 64, 512, 512, 0, 0},
};

static void device(GxDevice *table)
{
    table->head_dim = GX_CUDA_MAX_HEAD;
    table->attention_scratch = gx_cuda_attention_scratch;
    table->attention_forward = gx_cuda_attention_forward;
    table->attention_backward = gx_cuda_attention_backward;
    table->attention_merge = gx_cuda_attention_merge;
    table->rope = gx_cuda_rope;
}

// ---- which kernel takes a call -------------------------------------------------------------------------------------

#ifdef GX_CUDA_SM_90A
static GxCudaAttention call_of(int64_t head_dim, GxDtype dtype)
{
    const int64_t d[WORK_DIMS] = {2, 6, 2, head_dim, 64, 64, 1, 0, 0};
    GxContext g = GX_ZERO;
    GxAttention a = description(d, dtype);
    return told(&g, &a);
}

// Results are the same whoever takes a call; what differs is the time, which no other test sees.
TEST(each_call_of_attention_is_taken_by_the_fastest_kernel_for_it)
{
    enum { PLAIN, DOCUMENTS, WINDOW, DROPOUT, PAGES, RUNS, UNALIGNED, NEGATIVE, BIASED };
    enum { TILES = GX__CUDA_BY_TILES, MMA_SYNC = GX__CUDA_BY_MMA, WGMMA = GX__CUDA_BY_WGMMA };
    static const struct {
        int64_t head_dim;
        GxDtype dtype;
        int feature, forward, backward, h100_forward, h100_backward;
    } calls[] = {
        {64, GX_BF16, PLAIN, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {8, GX_BF16, PLAIN, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {72, GX_BF16, PLAIN, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {128, GX_BF16, PLAIN, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {128, GX_BF16, DOCUMENTS, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {128, GX_BF16, WINDOW, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {128, GX_BF16, DROPOUT, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {128, GX_BF16, PAGES, MMA_SYNC, MMA_SYNC, MMA_SYNC, MMA_SYNC},
        {128, GX_BF16, RUNS, MMA_SYNC, MMA_SYNC, WGMMA, WGMMA},
        {128, GX_BF16, BIASED, MMA_SYNC, MMA_SYNC, MMA_SYNC, MMA_SYNC},
        {128, GX_BF16, UNALIGNED, TILES, TILES, TILES, TILES},
        {128, GX_BF16, NEGATIVE, TILES, TILES, TILES, TILES},
        {12, GX_BF16, PLAIN, TILES, TILES, TILES, TILES},
        {136, GX_BF16, PLAIN, TILES, TILES, TILES, TILES},
        {4, GX_F32, PLAIN, TILES, TILES, MMA_SYNC, MMA_SYNC},
        {64, GX_F32, PLAIN, TILES, TILES, MMA_SYNC, MMA_SYNC},
        {128, GX_F32, DOCUMENTS, TILES, TILES, MMA_SYNC, MMA_SYNC},
        {128, GX_F32, PAGES, TILES, TILES, MMA_SYNC, MMA_SYNC},
        {64, GX_F32, BIASED, TILES, TILES, MMA_SYNC, MMA_SYNC},
        {128, GX_F32, UNALIGNED, TILES, TILES, TILES, TILES},
        {128, GX_F32, NEGATIVE, TILES, TILES, TILES, TILES},
        {132, GX_F32, PLAIN, TILES, TILES, TILES, TILES},
    };
    static const int32_t some[1] = {0};
    for (size_t i = 0; i < 2 * sizeof calls / sizeof *calls; i++) {
        const auto &call = calls[i / 2];
        GxCuda card = GX_ZERO; // a GeForce, or an H100
        GxContext g = GX_ZERO;
        GxCudaAttention p = call_of(call.head_dim, call.dtype);
        g.device_state = &card;
        card.runs_sm_90a = card.fast_tf32 = i % 2;
        card.shared_bytes = (i % 2 ? 227 : 99) * 1024;
        if (call.feature == DOCUMENTS) p.a.documents = some;
        if (call.feature == WINDOW) p.a.sliding_window = 7;
        if (call.feature == DROPOUT) p.a.dropout = 0.1f;
        if (call.feature == PAGES) p.a.pages = some;
        if (call.feature == RUNS) p.a.q_runs = p.a.k_runs = {2, {{0, 32, 0}, {32, 32, 96}}};
        if (call.feature == UNALIGNED) p.packed = 0;
        if (call.feature == NEGATIVE) p.scale = -p.scale;
        if (call.feature == BIASED) p.a.bias = some, p.a.reach = 1;
        const int forward = gx__cuda_attention_kernel(&g, &p, 0), backward = gx__cuda_attention_kernel(&g, &p, 1);
        CHECK(forward == (i % 2 ? call.h100_forward : call.forward), "call %zu%s: kernel %d forward", i / 2,
              i % 2 ? " on an H100" : "", forward);
        CHECK(backward == (i % 2 ? call.h100_backward : call.backward), "call %zu%s: kernel %d backward", i / 2,
              i % 2 ? " on an H100" : "", backward);
    }
}
#endif

int main(int argc, char **argv)
{
    const Workshop shop = {"attention",
                           {"B", "H", "K", "h", "Tq", "Tk", "causal", "split", "window"},
                           entries,
                           sizeof entries / sizeof *entries,
                           checked,
                           timed,
                           sizeof checked / sizeof *checked,
                           sizeof timed / sizeof *timed,
                           device};
    return work_main(&shop, 1, argc, argv);
}
