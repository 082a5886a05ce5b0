// cpu/attention.h: ops/attention.h on the CPU. A tile of queries loops over blocks of keys; each thread computes the
// products of its tiles by itself, with gemm.h.
//
// A tile never extends beyond a run, so its positions are the first one plus an index. Keys in pages are taken together
// if their pages are adjacent. The positions visible to a query are a range: its document, cut off at its own position
// if attention is causal, and at the beginning of its window if it has one. Of a block only the keys that are visible
// to some query of the tile are computed.
//
// Numerics: scores, softmax and sums are fp32, and gradients are rounded once. With bf16 activations the factors of
// products are also bf16, if the CPU has instructions for that and there are 256 keys or more: probabilities and the
// gradients of scores are then rounded to bf16, once each, as on tensor cores. Otherwise tiles are copied into scratch
// as fp32. So are keys in pages, because their number grows by one with every generated token.
#ifndef GX_CPU_ATTENTION_H
#define GX_CPU_ATTENTION_H
#include "../ops/attention.h"
GX_BEGIN

int64_t gx_cpu_attention_scratch(const GxContext *g, const GxAttention *a, int backward);
void gx_cpu_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                              const GxAttention *a, void *scratch);
void gx_cpu_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o,
                               const float *lse, const void *q, const void *k, const void *v, const GxAttention *a,
                               void *scratch);

void gx_cpu_attention_merge(GxContext *g, float *o, float *lse, const void *o2, const float *lse2, int64_t rows,
                            int64_t head_dim, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ATTENTION_IMPLEMENTED)
#define GX_CPU_ATTENTION_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "dropout.h"
#include "gemm.h"
#include "team.h"
#include "vec.h"
#ifdef _OPENMP
#include <omp.h>
#endif

enum { GX__CPU_Q_TILE = 64, GX__CPU_K_BLOCK = 512 };

// The type of the factors of products. With few keys, setting up the library's products costs the time that bf16 saves.
static GxDtype gx__cpu_attention_factors(const GxAttention *a)
{
    enum { FROM_KEYS = 256 };
    return a->dtype == GX_BF16 && gx_runs_rows(&a->k_runs) >= FROM_KEYS && !a->pages && gx_cpu_gemm_has_bf16() ? GX_BF16
                                                                                                               : GX_F32;
}

typedef struct {
    int64_t row, length, position;
} GxTile; // part of one run

static int64_t gx__cpu_tiles(const GxRuns *runs, int64_t size)
{
    int64_t n = 0;
    for (int i = 0; i < runs->n; i++) n += gx_ceil_div(runs->run[i].length, size);
    return n;
}

static GxTile gx__cpu_tile(const GxRuns *runs, int64_t size, int64_t index)
{
    int i = 0;
    for (; index >= gx_ceil_div(runs->run[i].length, size); i++) index -= gx_ceil_div(runs->run[i].length, size);
    const GxRun *r = &runs->run[i];
    GxTile t = {r->row + index * size, gx_min(size, r->length - index * size), r->position + index * size};
    return t;
}

// The positions [begin, end) visible to each row of a query tile; none outside [least, most) is visible to any row.
typedef struct {
    int64_t begin[GX__CPU_Q_TILE], end[GX__CPU_Q_TILE], least, most;
} GxCpuMask;

static void gx__cpu_mask(GxCpuMask *s, const GxAttention *a, GxTile q, int64_t b)
{
    s->least = INT64_MAX, s->most = 0;
    for (int64_t i = 0; i < q.length; i++) {
        const int64_t position = q.position + i;
        const int32_t *document = a->documents ? a->documents + 2 * (position * a->B + b) : NULL;
        s->begin[i] = document ? document[0] : 0;
        s->end[i] = document ? document[1] : INT64_MAX;
        if (a->causal) s->end[i] = gx_min(s->end[i], position + 1);
        if (a->sliding_window) s->begin[i] = gx_max(s->begin[i], position + 1 - a->sliding_window);
        if (s->begin[i] >= s->end[i]) continue;
        s->least = gx_min(s->least, s->begin[i]);
        s->most = gx_max(s->most, s->end[i]);
    }
    s->least = gx_min(s->least, s->most); // if nothing is visible: [0, 0)
}

// The part of key block j within [least, most). For bf16 products its ends are moved outward to multiples of 64, so
// that there are few widths: the library compiles a kernel for each width, which takes 0.2 ms.
static GxTile gx__cpu_key_block(const GxAttention *a, const GxCpuMask *s, int64_t j)
{
    enum { STEP = 64 };
    GxTile t = gx__cpu_tile(&a->k_runs, GX__CPU_K_BLOCK, j);
    int64_t begin = gx_max(0, s->least - t.position), end = gx_min(t.length, s->most - t.position);
    if (begin < end && gx__cpu_attention_factors(a) == GX_BF16) {
        begin = begin / STEP * STEP;
        end = gx_min(t.length, gx_round_up(end, STEP));
    }
    t.row += begin;
    t.position += begin;
    t.length = gx_max(0, end - begin);
    return t;
}

// The keys of a block, from key `from` on, that are consecutive in memory: all of them or, with pages, those up to the
// next gap. The result's `row` is a row of the matrix of keys; -1: these keys have no page.
static GxTile gx__cpu_key_stretch(const GxAttention *a, GxTile t, int64_t from, int64_t b)
{
    t.row = (t.row + from) * a->B + b, t.position += from, t.length -= from;
    if (!a->pages) return t;
    int64_t n = GX_PAGE - t.position % GX_PAGE;
    t.row = gx_page_row(a->pages, t.position, a->B, b);
    while (n < t.length && gx_page_row(a->pages, t.position + n, a->B, b) == (t.row < 0 ? -1 : t.row + n)) n += GX_PAGE;
    t.length = gx_min(n, t.length);
    return t;
}

// The keys [first, first + n) of a block that are visible to one row of the tile.
typedef struct {
    int64_t first, n;
} GxVisible;

static GxVisible gx__cpu_visible(const GxCpuMask *s, GxTile k, int64_t i)
{
    const int64_t first = gx_min(k.length, gx_max(0, s->begin[i] - k.position)),
                  end = gx_min(k.length, s->end[i] - k.position);
    GxVisible v = {first, gx_max(0, end - first)};
    return v;
}

static float gx__cpu_attention_scale(const GxAttention *a)
{
    return a->scale != 0 ? a->scale : 1.0f / sqrtf((float)a->head_dim);
}

// ---- bias ----------------------------------------------------------------------------------------------------------

static int64_t gx__cpu_bias_rows(const GxAttention *a) { return a->bias ? 2 * a->reach + 1 : 0; }

// The keys [begin, end) of a block whose distances to a query are within the bias's reach; those before have its first
// row, those behind its last.
typedef struct {
    int64_t begin, end;
    int64_t row; // of the bias, of key `begin`
} GxCpuReach;

static GxCpuReach gx__cpu_reach(const GxAttention *a, GxTile queries, GxTile keys, int64_t i)
{
    const int64_t first = keys.position - (queries.position + i) + a->reach; // the row of key 0, were there no ends
    GxCpuReach r;
    r.begin = gx_min(keys.length, gx_max(0, -first));
    r.end = gx_max(r.begin, gx_min(keys.length, 2 * a->reach + 1 - first));
    r.row = first + r.begin;
    return r;
}

// The bias of one head, as fp32.
static void gx__cpu_bias_of_head(float *bias, const GxAttention *a, int64_t head)
{
    for (int64_t i = 0; i < gx__cpu_bias_rows(a); i++) bias[i] = gx_cpu_load(a->bias, i * a->H + head, a->dtype);
}

// Adds a head's bias to the scores of a tile of queries and a block of keys.
static void gx__cpu_add_bias(float *s, const float *bias, const GxAttention *a, GxTile queries, GxTile keys)
{
    const int64_t n = keys.length;
    for (int64_t i = 0; i < (a->bias ? queries.length : 0); i++) {
        const GxCpuReach r = gx__cpu_reach(a, queries, keys, i);
        const float *of = bias + r.row - r.begin, least = bias[0], most = bias[2 * a->reach];
        float *row = s + i * n;
        for (int64_t j = 0; j < r.begin; j++) row[j] += least;
        GX_OMP(simd)
        for (int64_t j = r.begin; j < r.end; j++) row[j] += of[j];
        for (int64_t j = r.end; j < n; j++) row[j] += most;
    }
}

static float gx__cpu_floats_sum(const float *x, int64_t n)
{
    float sum = 0;
    GX_OMP(simd reduction(+ : sum))
    for (int64_t j = 0; j < n; j++) sum += x[j];
    return sum;
}

// Adds the scores' gradients ds, from which `scale` is divided out, to a head's sums by distance.
static void gx__cpu_add_dbias(float *sums, const float *ds, float scale, const GxAttention *a, GxTile queries,
                              GxTile keys)
{
    const int64_t n = keys.length;
    const float inverse = 1 / scale;
    for (int64_t i = 0; i < queries.length; i++) {
        const GxCpuReach r = gx__cpu_reach(a, queries, keys, i);
        const float *row = ds + i * n;
        float *of = sums + r.row - r.begin;
        sums[0] += inverse * gx__cpu_floats_sum(row, r.begin);
        GX_OMP(simd)
        for (int64_t j = r.begin; j < r.end; j++) of[j] += inverse * row[j];
        sums[2 * a->reach] += inverse * gx__cpu_floats_sum(row + r.end, n - r.end);
    }
}

// dbias from the sums of all samples and heads [B, H, rows], sample by sample.
static void gx__cpu_sum_dbias(const GxAttention *a, const float *sums)
{
    const int64_t rows = gx__cpu_bias_rows(a);
    for (int64_t head = 0; head < a->H; head++)
        for (int64_t i = 0; i < rows; i++) {
            float sum = 0;
            for (int64_t b = 0; b < a->B; b++) sum += sums[(b * a->H + head) * rows + i];
            a->dbias[i * a->H + head] = sum;
        }
}

// ---- scratch -------------------------------------------------------------------------------------------------------

// The floats that one thread needs.
// Forward: scores [Q_TILE, K_BLOCK], output [Q_TILE, head_dim], three floats a query; in bf16 also the larger of two:
// the rounded scores, or copies of q and of blocks of k and v.
// Backward: scores and their gradients, three floats a query; in bf16 also dq of a tile, dk and dv of a head, and the
// larger of two: the rounded scores, or copies of q and d_o of a tile and of k and v of a head.
// Both: the bias of a head. Behind those of all threads are dbias's sums of all samples and heads.
// A call needs only one of the two, but the plan is made for the most keys and without pages, and calls with fewer keys
// or with pages run within it.
static int64_t gx__cpu_attention_thread_floats(const GxAttention *a, int backward)
{
    const int64_t h = a->head_dim, keys = gx_runs_rows(&a->k_runs), k = gx_min(GX__CPU_K_BLOCK, keys);
    const int64_t scores = GX__CPU_Q_TILE * k * (backward ? 2 : 1), sums = (GX__CPU_Q_TILE + 2 * keys) * h;
    int64_t floats = scores + GX__CPU_Q_TILE * ((backward ? 0 : h) + 3);
    if (a->dtype == GX_BF16)
        floats += (backward ? sums : 0) +
                  gx_max(scores / 2, backward ? 2 * (GX__CPU_Q_TILE + keys) * h : (GX__CPU_Q_TILE + 2 * k) * h);
    return gx_round_up(floats + gx__cpu_bias_rows(a), 16); // the bias of a head is the last of them
}

static float *gx__cpu_bias_room(const GxAttention *a, float *scratch, int backward)
{
    return scratch + gx__cpu_attention_thread_floats(a, backward) - gx__cpu_bias_rows(a);
}

int64_t gx_cpu_attention_scratch(const GxContext *g, const GxAttention *a, int backward)
{
    const int64_t sums = backward && a->dbias ? a->B * a->H * gx__cpu_bias_rows(a) : 0;
    return (gx_threads(g) * gx__cpu_attention_thread_floats(a, backward) + sums) * 4;
}

static float *gx__cpu_thread_scratch(void *scratch, int64_t floats)
{
#ifdef _OPENMP
    return (float *)scratch + omp_get_thread_num() * floats;
#else
    (void)floats;
    return (float *)scratch;
#endif
}

// A factor of a product: rows of one head, or of scores, `stride` apart, in fp32 or bf16.
typedef struct {
    const void *x;
    int64_t stride;
    GxDtype type;
} GxFactor;

// C [M,N] = alpha * op(A) op(B) + beta * C
static void gx__cpu_tile_gemm(GxContext *g, int ta, int tb, int64_t M, int64_t N, int64_t K, float alpha, GxFactor A,
                              GxFactor B, float beta, float *C, int64_t ldc)
{
    GxGemm p = {ta, tb, M, N, K, alpha, beta, A.x, B.x, A.stride, B.stride, C, ldc, A.type, GX_F32};
    gx_cpu_gemm(&p, 1, &g->error);
}

// Rows of one head as a factor: in place if they have the factors' type, otherwise as fp32 in `copy`, without gaps.
static GxFactor gx__cpu_head_factor(const void *x, int64_t rows, int64_t stride, const GxAttention *a, float *copy)
{
    const int64_t h = a->head_dim;
    GxFactor t = {x, stride, gx__cpu_attention_factors(a)};
    if (t.type == a->dtype) return t;
    for (int64_t r = 0; r < rows; r++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < h; c++) copy[r * h + c] = gx_cpu_load(x, r * stride + c, GX_BF16);
    }
    t.x = copy;
    t.stride = h;
    return t;
}
static GxFactor gx__cpu_factor_row(GxFactor t, int64_t row) // t from that row on
{
    t.x = gx_cpu_from(t.x, row * t.stride, t.type);
    return t;
}

// Scores [rows,n] as a factor: rounded into `narrow` if factors are bf16.
static GxFactor gx__cpu_scores_factor(const float *s, int64_t rows, int64_t n, const GxAttention *a, uint16_t *narrow)
{
    GxFactor t = {s, n, gx__cpu_attention_factors(a)};
    if (t.type == GX_F32) return t;
    GX_OMP(simd)
    for (int64_t i = 0; i < rows * n; i++) narrow[i] = gx_to_bf16(s[i]);
    t.x = narrow;
    return t;
}

// Rows of one head, `stride` apart, that are accumulated in fp32: in place if they are fp32, otherwise in a copy.
typedef struct {
    float *x;
    int64_t stride;
} GxHeadRows;

// Sets them to zero; gx__cpu_head_store later rounds a copy into its place.
static GxHeadRows gx__cpu_head_zeros(void *x, int64_t rows, int64_t stride, int64_t h, GxDtype dtype, float *copy)
{
    GxHeadRows t = {dtype == GX_F32 ? (float *)x : copy, dtype == GX_F32 ? stride : h};
    for (int64_t r = 0; r < rows; r++) memset(t.x + r * t.stride, 0, (size_t)h * 4);
    return t;
}
static void gx__cpu_head_store(void *x, int64_t rows, int64_t stride, int64_t h, GxDtype dtype, GxHeadRows from)
{
    for (int64_t r = 0; dtype != GX_F32 && r < rows; r++) {
        GX_OMP(simd)
        for (int64_t c = 0; c < h; c++) gx_cpu_store(x, r * stride + c, from.x[r * from.stride + c], GX_BF16);
    }
}

// ---- dropout -------------------------------------------------------------------------------------------------------

// keep[j] = 0 or 1/(1 - p): the factor of the probability of key position `first` + j, for n positions.
static void gx__cpu_attention_keep(float *keep, const GxStep *step, const GxAttention *a, int64_t b, int64_t head,
                                   int64_t tq, int64_t first, int64_t n)
{
    enum { WORDS = 64 }; // at a time
    uint32_t words[WORDS];
    const GxCpuRandom random = {
        step->seed, (uint32_t)step->step, a->site, gx_dropout_threshold(a->dropout), gx_dropout_scale(a->dropout), 1,
        0};
    const int64_t sample = step->first_sample + a->first_sample + b;
    const uint64_t draw = gx_dropout_query(sample, a->heads, a->head_first + head, a->T, tq) + (uint64_t)(first / 4);
    const uint32_t threshold = random.threshold;
    const float factor = random.scale;
    const int64_t begin = first % 4, end = begin + n; // in words, counted from that Philox call
    for (int64_t w = 0; w < end; w += WORDS) {
        const int64_t from = gx_max(w, begin), until = gx_min(w + WORDS, end);
        gx__cpu_random_words(words, &random, draw + (uint64_t)(w / 4), WORDS);
        GX_OMP(simd)
        for (int64_t j = from; j < until; j++) keep[j - begin] = words[j - w] >= threshold ? factor : 0.0f;
    }
}

static void gx__cpu_attention_drop(float *x, const float *keep, int64_t n)
{
    GX_OMP(simd)
    for (int64_t j = 0; j < n; j++) x[j] *= keep[j];
}

// ---- forward -------------------------------------------------------------------------------------------------------
// For each tile of queries, over blocks of keys: s = scale * q k^T, with each row's running maximum m and sum l:
//     l = l*exp(m_old - m) + sum_j exp(s[j] - m),  o = o*exp(m_old - m) + sum_j exp(s[j] - m) v[j]
// At the end o = o/l and lse = m + log(l). With dropout exp(s[j] - m) is multiplied by keep[j] in o, not in l.

// Online softmax: turns scores into probabilities relative to the new row_max, and rescales the accumulators to it.
static void gx__cpu_softmax_row(float *s, float *o, float *row_max, float *row_sum, int64_t visible, int64_t n,
                                int64_t h)
{
    float m = *row_max, l = 0;
    GX_OMP(simd reduction(max : m))
    for (int64_t j = 0; j < visible; j++) m = s[j] > m ? s[j] : m;
    GX_OMP(simd reduction(+ : l))
    for (int64_t j = 0; j < visible; j++) {
        s[j] = gx_cpu_exp(s[j] - m);
        l += s[j];
    }
    memset(s + visible, 0, (size_t)(n - visible) * 4);
    float rescale = *row_max == m ? 1.0f : gx_cpu_exp(*row_max - m); // -inf at first: 0
    *row_sum = *row_sum * rescale + l;
    *row_max = m;
    if (rescale != 1.0f) {
        GX_OMP(simd)
        for (int64_t c = 0; c < h; c++) o[c] *= rescale;
    }
}

// The same for all rows of a tile, with dropout.
static void gx__cpu_softmax_tile(const GxContext *g, float *s, float *o, float *maximum, float *sum,
                                 const GxAttention *a, const GxCpuMask *mask, int64_t b, int64_t head, GxTile tile,
                                 GxTile block)
{
    float keep[GX__CPU_K_BLOCK];
    const int64_t n = block.length, h = a->head_dim;
    for (int64_t i = 0; i < tile.length; i++) {
        const GxVisible v = gx__cpu_visible(mask, block, i);
        float *row = s + i * n + v.first;
        memset(s + i * n, 0, (size_t)(v.n > 0 ? v.first : n) * 4);
        if (v.n == 0) continue;
        gx__cpu_softmax_row(row, o + i * h, maximum + i, sum + i, v.n, n - v.first, h);
        if (a->dropout == 0) continue;
        gx__cpu_attention_keep(keep, g->step, a, b, head, tile.position + i, block.position + v.first, v.n);
        gx__cpu_attention_drop(row, keep, v.n);
    }
}

// o[c] = acc[c]/l
static GX_CPU_INLINE void gx__cpu_attention_output_row(void *o, const float *acc, float inverse, int64_t h,
                                                       GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t c = 0; c < h; c++) gx_cpu_store(o, c, acc[c] * inverse, dtype);
}

static void gx__cpu_attention_forward_tile(GxContext *g, void *o, float *lse, const void *q, const void *k,
                                           const void *v, const GxAttention *a, int64_t b, int64_t head, GxTile tile,
                                           float *scratch)
{
    const GxDtype dtype = a->dtype;
    const int64_t h = a->head_dim, B = a->B, kv = (a->q_first + head) / gx_attention_group(a);
    const int64_t width = gx_min(GX__CPU_K_BLOCK, gx_runs_rows(&a->k_runs)), qs = B * a->q_stride,
                  ks = (a->pages ? 1 : B) * a->kv_stride;
    float *s = scratch, *acc = s + GX__CPU_Q_TILE * width, *m = acc + GX__CPU_Q_TILE * h, *l = m + GX__CPU_Q_TILE,
          *copies = m + 3 * GX__CPU_Q_TILE, *bias = gx__cpu_bias_room(a, scratch, 0);
    const void *first = gx_cpu_from(q, (tile.row * B + b) * a->q_stride + head * h, dtype);
    const GxFactor qt = gx__cpu_head_factor(first, tile.length, qs, a, copies);
    GxCpuMask mask;
    gx__cpu_mask(&mask, a, tile, b);
    gx__cpu_bias_of_head(bias, a, head);
    for (int64_t i = 0; i < tile.length; i++) m[i] = -INFINITY, l[i] = 0;
    memset(acc, 0, (size_t)(tile.length * h) * 4);
    for (int64_t j = 0; j < gx__cpu_tiles(&a->k_runs, GX__CPU_K_BLOCK); j++) {
        const GxTile keys = gx__cpu_key_block(a, &mask, j);
        for (int64_t from = 0, n; from < keys.length; from += n) {
            const GxTile block = gx__cpu_key_stretch(a, keys, from, b);
            const int64_t at = block.row * a->kv_stride + kv * h;
            n = block.length;
            if (block.row < 0) continue;
            const GxFactor kt = gx__cpu_head_factor(gx_cpu_from(k, at, dtype), n, ks, a, copies + GX__CPU_Q_TILE * h);
            const GxFactor vt =
                gx__cpu_head_factor(gx_cpu_from(v, at, dtype), n, ks, a, copies + (GX__CPU_Q_TILE + width) * h);
            gx__cpu_tile_gemm(g, 0, 1, tile.length, n, h, gx__cpu_attention_scale(a), qt, kt, 0, s, n);
            gx__cpu_add_bias(s, bias, a, tile, block);
            gx__cpu_softmax_tile(g, s, acc, m, l, a, &mask, b, head, tile, block);
            const GxFactor p = gx__cpu_scores_factor(s, tile.length, n, a, (uint16_t *)copies);
            gx__cpu_tile_gemm(g, 0, 0, tile.length, h, n, 1, p, vt, 1, acc, h);
        }
    }
    for (int64_t i = 0; i < tile.length; i++) {
        int64_t row = (tile.row + i) * B + b;
        float inverse = l[i] != 0 ? 1.0f / l[i] : 0.0f;
        GX_CPU_TYPES(dtype, gx__cpu_attention_output_row, gx_cpu_at(o, row * a->o_stride + head * h, dtype),
                     acc + i * h, inverse, h);
        lse[row * a->H + head] = l[i] != 0 ? m[i] + logf(l[i]) : -INFINITY; // 0: no key was visible
    }
}

// A query and a visible key multiply a row of k and one of v, which counts as head_dim/4 elements of other operations.
static inline int gx__cpu_attention_team(const GxContext *g, const GxAttention *a)
{
    return gx_cpu_team(g, gx_runs_rows(&a->q_runs) * gx_runs_rows(&a->k_runs) * a->B * a->H * a->head_dim / 4);
}

void gx_cpu_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                              const GxAttention *a, void *scratch)
{
    int64_t tiles = gx__cpu_tiles(&a->q_runs, GX__CPU_Q_TILE), floats = gx__cpu_attention_thread_floats(a, 0);
    GX_OMP(parallel for schedule(dynamic) num_threads(gx__cpu_attention_team(g, a)))
    for (int64_t job = 0; job < tiles * a->B * a->H; job++) {
        int64_t t = tiles - 1 - job / (a->B * a->H), rest = job % (a->B * a->H); // causal: the longest tiles first
        gx__cpu_attention_forward_tile(g, o, lse, q, k, v, a, rest / a->H, rest % a->H,
                                       gx__cpu_tile(&a->q_runs, GX__CPU_Q_TILE, t),
                                       gx__cpu_thread_scratch(scratch, floats));
    }
}

// ---- backward ------------------------------------------------------------------------------------------------------
// p = exp(s - lse), dp = d_o v^T, ds = scale*p*(dp - D), D = rowsum(d_o * o)
// dv += p^T d_o, dk += ds^T q, dq += ds k
// With dropout dp = keep*(d_o v^T) and dv += (keep*p)^T d_o; D is the same, since o includes keep.

// sum = sum_i a[i]*b[i]
static GX_CPU_INLINE void gx__cpu_dot(float *sum, const void *a, const void *b, int64_t n, GxDtype dtype)
{
    float s = 0;
    GX_OMP(simd reduction(+ : s))
    for (int64_t i = 0; i < n; i++) s += gx_cpu_load(a, i, dtype) * gx_cpu_load(b, i, dtype);
    *sum = s;
}

// Turns scores into p, and dp into ds.
static void gx__cpu_softmax_backward_row(float *s, float *dp, float lse, float D, float scale, int64_t visible,
                                         int64_t n)
{
    GX_OMP(simd)
    for (int64_t j = 0; j < visible; j++) {
        float p = gx_cpu_exp(s[j] - lse);
        s[j] = p;
        dp[j] = p * (dp[j] - D) * scale;
    }
    memset(s + visible, 0, (size_t)(n - visible) * 4);
    memset(dp + visible, 0, (size_t)(n - visible) * 4);
}

// The same for all rows of a tile, with dropout. lse: that of its first row.
static void gx__cpu_softmax_backward_tile(const GxContext *g, float *s, float *dp, const float *lse, const float *D,
                                          const GxAttention *a, const GxCpuMask *mask, int64_t b, int64_t head,
                                          GxTile tile, GxTile block)
{
    float keep[GX__CPU_K_BLOCK];
    const int64_t n = block.length;
    for (int64_t i = 0; i < tile.length; i++) {
        const GxVisible v = gx__cpu_visible(mask, block, i);
        float *s_row = s + i * n + v.first, *dp_row = dp + i * n + v.first;
        memset(s + i * n, 0, (size_t)v.first * 4);
        memset(dp + i * n, 0, (size_t)v.first * 4);
        if (a->dropout != 0 && v.n > 0) {
            gx__cpu_attention_keep(keep, g->step, a, b, head, tile.position + i, block.position + v.first, v.n);
            gx__cpu_attention_drop(dp_row, keep, v.n);
        }
        gx__cpu_softmax_backward_row(s_row, dp_row, lse[i * a->B * a->H], D[i], gx__cpu_attention_scale(a), v.n,
                                     n - v.first);
        if (a->dropout != 0 && v.n > 0) gx__cpu_attention_drop(s_row, keep, v.n);
    }
}

typedef struct {
    GxFactor k, v; // all rows of one head and one sample
    GxHeadRows dk, dv;
} GxHeadKeys;

// In bf16, after the accumulators of dq, dk and dv: the rounded scores, or copies of q, d_o, k and v.
static float *gx__cpu_backward_copies(const GxAttention *a, float *scratch)
{
    const int64_t keys = gx_runs_rows(&a->k_runs), width = gx_min(GX__CPU_K_BLOCK, keys);
    return scratch + GX__CPU_Q_TILE * (2 * width + 3) + (GX__CPU_Q_TILE + 2 * keys) * a->head_dim;
}

// One tile of queries with all keys of a head: dq of its rows, and its contribution to dk, dv and dbias, whose sums of
// this sample and head are given; NULL: not needed.
static void gx__cpu_attention_backward_tile(GxContext *g, void *dq, const GxHeadKeys *keys, const void *d_o,
                                            const void *o, const float *lse, const void *q, const GxAttention *a,
                                            int64_t b, int64_t head, GxTile tile, float *dbias, float *scratch)
{
    const GxDtype dtype = a->dtype;
    const int64_t h = a->head_dim, B = a->B, qs = B * a->q_stride, os = B * a->o_stride, row = tile.row * B + b;
    const int64_t width = gx_min(GX__CPU_K_BLOCK, gx_runs_rows(&a->k_runs)), q_at = row * a->q_stride + head * h,
                  o_at = row * a->o_stride + head * h;
    const float scale = gx__cpu_attention_scale(a);
    float *s = scratch, *dp = s + GX__CPU_Q_TILE * width, *D = dp + GX__CPU_Q_TILE * width,
          *sums = D + 3 * GX__CPU_Q_TILE, *copies = gx__cpu_backward_copies(a, scratch),
          *bias = gx__cpu_bias_room(a, scratch, 1);
    const void *d_o_first = gx_cpu_from(d_o, o_at, dtype);
    const GxFactor qt = gx__cpu_head_factor(gx_cpu_from(q, q_at, dtype), tile.length, qs, a, copies);
    const GxFactor dot = gx__cpu_head_factor(d_o_first, tile.length, os, a, copies + GX__CPU_Q_TILE * h);
    const GxHeadRows dqt = gx__cpu_head_zeros(gx_cpu_at(dq, q_at, dtype), tile.length, qs, h, dtype, sums);
    uint16_t *narrow = (uint16_t *)copies;
    GxCpuMask mask;
    gx__cpu_mask(&mask, a, tile, b);
    for (int64_t i = 0; i < tile.length; i++)
        GX_CPU_TYPES(dtype, gx__cpu_dot, D + i, gx_cpu_from(d_o, o_at + i * os, dtype),
                     gx_cpu_from(o, o_at + i * os, dtype), h);
    for (int64_t j = 0; j < gx__cpu_tiles(&a->k_runs, GX__CPU_K_BLOCK); j++) {
        const GxTile block = gx__cpu_key_block(a, &mask, j);
        const int64_t n = block.length, dks = keys->dk.stride;
        if (n == 0) continue;
        const GxFactor k = gx__cpu_factor_row(keys->k, block.row), v = gx__cpu_factor_row(keys->v, block.row);
        gx__cpu_tile_gemm(g, 0, 1, tile.length, n, h, scale, qt, k, 0, s, n);
        gx__cpu_add_bias(s, bias, a, tile, block);
        gx__cpu_tile_gemm(g, 0, 1, tile.length, n, h, 1, dot, v, 0, dp, n);
        gx__cpu_softmax_backward_tile(g, s, dp, lse + row * a->H + head, D, a, &mask, b, head, tile, block);
        if (dbias) gx__cpu_add_dbias(dbias, dp, scale, a, tile, block);
        const GxFactor p = gx__cpu_scores_factor(s, tile.length, n, a, narrow);
        const GxFactor ds = gx__cpu_scores_factor(dp, tile.length, n, a, narrow + GX__CPU_Q_TILE * width);
        gx__cpu_tile_gemm(g, 1, 0, n, h, tile.length, 1, p, dot, 1, keys->dv.x + block.row * dks, dks);
        gx__cpu_tile_gemm(g, 1, 0, n, h, tile.length, 1, ds, qt, 1, keys->dk.x + block.row * dks, dks);
        gx__cpu_tile_gemm(g, 0, 0, tile.length, h, n, 1, ds, k, 1, dqt.x, dqt.stride);
    }
    gx__cpu_head_store(gx_cpu_at(dq, q_at, dtype), tile.length, qs, h, dtype, dqt);
}

// One key and value head of one sample, with all of this rank's query heads that use it; no other job writes its
// results. dbias: the sums of all samples and heads; NULL: not needed.
static void gx__cpu_attention_backward_head(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o,
                                            const float *lse, const void *q, const void *k, const void *v,
                                            const GxAttention *a, int64_t b, int64_t kv, float *dbias, float *scratch)
{
    const GxDtype dtype = a->dtype;
    const int64_t h = a->head_dim, group = gx_attention_group(a), rows = gx_runs_rows(&a->k_runs),
                  ks = a->B * a->kv_stride;
    const int64_t heads_begin = gx_max(0, kv * group - a->q_first),
                  heads_end = gx_min(a->H, (kv + 1) * group - a->q_first);
    const int64_t at = b * a->kv_stride + kv * h;
    float *copies = gx__cpu_backward_copies(a, scratch), *sums = copies - 2 * rows * h;
    void *to_dk = gx_cpu_at(dk, at, dtype), *to_dv = gx_cpu_at(dv, at, dtype);
    const GxHeadKeys keys = {
        gx__cpu_head_factor(gx_cpu_from(k, at, dtype), rows, ks, a, copies + 2 * GX__CPU_Q_TILE * h),
        gx__cpu_head_factor(gx_cpu_from(v, at, dtype), rows, ks, a, copies + (2 * GX__CPU_Q_TILE + rows) * h),
        gx__cpu_head_zeros(to_dk, rows, ks, h, dtype, sums),
        gx__cpu_head_zeros(to_dv, rows, ks, h, dtype, sums + rows * h)};
    for (int64_t head = heads_begin; head < heads_end; head++) {
        const int64_t bias_rows = gx__cpu_bias_rows(a);
        float *sums_of_head = dbias ? dbias + (b * a->H + head) * bias_rows : NULL;
        if (dbias) memset(sums_of_head, 0, (size_t)bias_rows * 4);
        gx__cpu_bias_of_head(gx__cpu_bias_room(a, scratch, 1), a, head);
        for (int64_t t = 0; t < gx__cpu_tiles(&a->q_runs, GX__CPU_Q_TILE); t++)
            gx__cpu_attention_backward_tile(g, dq, &keys, d_o, o, lse, q, a, b, head,
                                            gx__cpu_tile(&a->q_runs, GX__CPU_Q_TILE, t), sums_of_head, scratch);
    }
    gx__cpu_head_store(to_dk, rows, ks, h, dtype, keys.dk);
    gx__cpu_head_store(to_dv, rows, ks, h, dtype, keys.dv);
}

void gx_cpu_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o,
                               const float *lse, const void *q, const void *k, const void *v, const GxAttention *a,
                               void *scratch)
{
    const int64_t floats = gx__cpu_attention_thread_floats(a, 1);
    float *dbias = a->dbias ? (float *)scratch + gx_threads(g) * floats : NULL;
    GX_OMP(parallel for schedule(dynamic) num_threads(gx_threads(g)))
    for (int64_t job = 0; job < a->B * a->K; job++)
        gx__cpu_attention_backward_head(g, dq, dk, dv, d_o, o, lse, q, k, v, a, job / a->K, job % a->K, dbias,
                                        gx__cpu_thread_scratch(scratch, floats));
    if (dbias) gx__cpu_sum_dbias(a, dbias);
    if (a->cosine) gx_attention_rotate_back(g, dq, dk, a);
}

// One head of one row, with what the two sides count for.
static GX_CPU_INLINE void gx__cpu_merge_head(float *o, const void *o2, int64_t h, float a, float b, GxDtype dtype)
{
    GX_OMP(simd)
    for (int64_t i = 0; i < h; i++) o[i] = a * o[i] + b * gx_cpu_load(o2, i, dtype);
}

void gx_cpu_attention_merge(GxContext *g, float *o, float *lse, const void *o2, const float *lse2, int64_t rows,
                            int64_t head_dim, GxDtype dtype)
{
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, rows * head_dim)))
    for (int64_t r = 0; r < rows; r++) {
        const float most = fmaxf(lse[r], lse2[r]);
        if (most == -INFINITY) continue; // neither has seen a key
        const float a = expf(lse[r] - most), b = expf(lse2[r] - most), sum = a + b;
        GX_CPU_TYPES(dtype, gx__cpu_merge_head, o + r * head_dim, gx_cpu_from(o2, r * head_dim, dtype), head_dim,
                     a / sum, b / sum);
        lse[r] = most + logf(sum);
    }
}
#endif
