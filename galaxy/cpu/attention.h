// cpu/attention.h: ops/attention.h on the CPU: tiles of queries against blocks of keys, products of tiles by gemm.h on one thread each.
//
// Tiles never cross a run, so positions inside one are first + index, and row i of a tile sees the first (q.position + i - k.position + 1) keys.
#ifndef GX_CPU_ATTENTION_H
#define GX_CPU_ATTENTION_H
#include "../ops/attention.h"
GX_BEGIN

int64_t gx_cpu_attention_scratch(const GxContext *g, const GxAttention *a, int backward);
void gx_cpu_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v, const GxAttention *a,
                              void *scratch);
void gx_cpu_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o, const float *lse, const void *q,
                               const void *k, const void *v, const GxAttention *a, void *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_ATTENTION_IMPLEMENTED)
#define GX_CPU_ATTENTION_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "gemm.h"
#include "vec.h"
#ifdef _OPENMP
#include <omp.h>
#endif

enum { GX__Q_TILE = 64, GX__K_BLOCK = 512 };

typedef struct {
    int64_t row, length, position;
} GxTile; // part of one run

static int64_t gx__tiles(const GxRuns *runs, int64_t size)
{
    int64_t n = 0;
    for (int i = 0; i < runs->n; i++) n += gx_ceil_div(runs->run[i].length, size);
    return n;
}

static GxTile gx__tile(const GxRuns *runs, int64_t size, int64_t index)
{
    int i = 0;
    for (; index >= gx_ceil_div(runs->run[i].length, size); i++) index -= gx_ceil_div(runs->run[i].length, size);
    const GxRun *r = &runs->run[i];
    GxTile t = {r->row + index * size, gx_min(size, r->length - index * size), r->position + index * size};
    return t;
}

// How many of a block's keys row i of a query tile sees.
static int64_t gx__visible(const GxAttention *a, GxTile q, GxTile k, int64_t i)
{
    return a->causal ? gx_max(0, gx_min(k.length, q.position + i - k.position + 1)) : k.length;
}

static float gx__attention_scale(const GxAttention *a) { return a->scale != 0 ? a->scale : 1.0f / sqrtf((float)a->head_dim); }

// What one thread needs: [Q_TILE, K_BLOCK] scores (backward: two such), [Q_TILE, head_dim] of output, three floats per query row.
static int64_t gx__attention_thread_floats(const GxAttention *a, int backward)
{
    int64_t k = gx_min(GX__K_BLOCK, gx_runs_rows(&a->k_runs));
    return gx_round_up(GX__Q_TILE * (k * (backward ? 2 : 1) + (backward ? 0 : a->head_dim) + 3), 16);
}

int64_t gx_cpu_attention_scratch(const GxContext *g, const GxAttention *a, int backward)
{
    return gx_threads(g) * gx__attention_thread_floats(a, backward) * 4;
}

static float *gx__thread_scratch(void *scratch, int64_t floats)
{
#ifdef _OPENMP
    return (float *)scratch + omp_get_thread_num() * floats;
#else
    (void)floats;
    return (float *)scratch;
#endif
}

static void gx__tile_gemm(GxContext *g, int ta, int tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
                          const float *B, int64_t ldb, float beta, float *C, int64_t ldc)
{
    GxGemm p = {ta, tb, M, N, K, alpha, beta, A, B, lda, ldb, C, ldc};
    gx_cpu_gemm(&p, 1, &g->error);
}

// ---- forward: for each query tile, over key blocks: s = q k^T; running maximum m and sum l; o = o*exp(m_old - m) + exp(s - m) v -------------

// Scores to probabilities against the new maximum; what the tile has so far is rescaled to it.
static void gx__softmax_row(float *s, float *o, float *maximum, float *sum, int64_t visible, int64_t n, int64_t h)
{
    float m = *maximum, l = 0;
    GX_OMP(simd reduction(max : m))
    for (int64_t j = 0; j < visible; j++) m = s[j] > m ? s[j] : m;
    GX_OMP(simd reduction(+ : l))
    for (int64_t j = 0; j < visible; j++) {
        s[j] = gx_cpu_exp(s[j] - m);
        l += s[j];
    }
    memset(s + visible, 0, (size_t)(n - visible) * 4);
    float shrink = *maximum == m ? 1.0f : gx_cpu_exp(*maximum - m); // -inf at first: 0
    *sum = *sum * shrink + l;
    *maximum = m;
    if (shrink != 1.0f) {
        GX_OMP(simd)
        for (int64_t c = 0; c < h; c++) o[c] *= shrink;
    }
}

static void gx__attention_forward_tile(GxContext *g, float *o, float *lse, const float *q, const float *k, const float *v,
                                       const GxAttention *a, int64_t b, int64_t head, GxTile tile, float *scratch)
{
    const int64_t h = a->head_dim, B = a->B, kv = (a->q_first + head) / gx_attention_group(a);
    const int64_t width = gx_min(GX__K_BLOCK, gx_runs_rows(&a->k_runs));
    float *s = scratch, *acc = s + GX__Q_TILE * width, *m = acc + GX__Q_TILE * h, *l = m + GX__Q_TILE;
    const float *qt = q + (tile.row * B + b) * a->q_stride + head * h;
    for (int64_t i = 0; i < tile.length; i++) m[i] = -INFINITY, l[i] = 0;
    memset(acc, 0, (size_t)(tile.length * h) * 4);
    for (int64_t j = 0; j < gx__tiles(&a->k_runs, GX__K_BLOCK); j++) {
        GxTile block = gx__tile(&a->k_runs, GX__K_BLOCK, j);
        int64_t n = gx__visible(a, tile, block, tile.length - 1); // the last row sees the most
        if (n == 0) continue;
        const float *kt = k + (block.row * B + b) * a->kv_stride + kv * h, *vt = v + (block.row * B + b) * a->kv_stride + kv * h;
        gx__tile_gemm(g, 0, 1, tile.length, n, h, gx__attention_scale(a), qt, B * a->q_stride, kt, B * a->kv_stride, 0, s, n);
        for (int64_t i = 0; i < tile.length; i++) {
            int64_t visible = gx__visible(a, tile, block, i);
            if (visible > 0) gx__softmax_row(s + i * n, acc + i * h, m + i, l + i, visible, n, h);
            else memset(s + i * n, 0, (size_t)n * 4);
        }
        gx__tile_gemm(g, 0, 0, tile.length, h, n, 1, s, n, vt, B * a->kv_stride, 1, acc, h);
    }
    for (int64_t i = 0; i < tile.length; i++) {
        int64_t row = (tile.row + i) * B + b;
        float inverse = l[i] != 0 ? 1.0f / l[i] : 0.0f, *out = o + row * a->o_stride + head * h;
        GX_OMP(simd)
        for (int64_t c = 0; c < h; c++) out[c] = acc[i * h + c] * inverse;
        lse[row * a->H + head] = l[i] != 0 ? m[i] + logf(l[i]) : -INFINITY; // 0: it saw no key
    }
}

void gx_cpu_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v, const GxAttention *a,
                              void *scratch)
{
    int64_t tiles = gx__tiles(&a->q_runs, GX__Q_TILE), floats = gx__attention_thread_floats(a, 0);
    GX_OMP(parallel for schedule(dynamic) num_threads(gx_threads(g)))
    for (int64_t job = 0; job < tiles * a->B * a->H; job++) {
        int64_t t = tiles - 1 - job / (a->B * a->H), rest = job % (a->B * a->H); // causal: the longest first
        gx__attention_forward_tile(g, (float *)o, lse, (const float *)q, (const float *)k, (const float *)v, a, rest / a->H, rest % a->H,
                                   gx__tile(&a->q_runs, GX__Q_TILE, t), gx__thread_scratch(scratch, floats));
    }
}

// ---- backward: p = exp(s - lse), dp = d_o v^T, ds = scale*p*(dp - D), D = rowsum(d_o * o); dv += p^T d_o, dk += ds^T q, dq += ds k ----------

static float gx__dot(const float *a, const float *b, int64_t n)
{
    float s = 0;
    GX_OMP(simd reduction(+ : s))
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

static void gx__softmax_backward_row(float *s, float *dp, float lse, float D, float scale, int64_t visible, int64_t n)
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

static void gx__zero_head(float *x, int64_t rows, int64_t stride, int64_t h)
{
    for (int64_t r = 0; r < rows; r++) memset(x + r * stride, 0, (size_t)h * 4);
}

// One key and value head of one column of the batch, with all query heads here that use it: nobody else writes what this writes.
static void gx__attention_backward_head(GxContext *g, float *dq, float *dk, float *dv, const float *d_o, const float *o, const float *lse,
                                        const float *q, const float *k, const float *v, const GxAttention *a, int64_t b, int64_t kv,
                                        float *scratch)
{
    const int64_t h = a->head_dim, B = a->B, group = gx_attention_group(a), qs = B * a->q_stride, ks = B * a->kv_stride,
                  os = B * a->o_stride;
    const int64_t width = gx_min(GX__K_BLOCK, gx_runs_rows(&a->k_runs));
    const int64_t heads_begin = gx_max(0, kv * group - a->q_first), heads_end = gx_min(a->H, (kv + 1) * group - a->q_first);
    const float scale = gx__attention_scale(a);
    float *s = scratch, *dp = s + GX__Q_TILE * width, *D = dp + GX__Q_TILE * width;
    gx__zero_head(dk + b * a->kv_stride + kv * h, gx_runs_rows(&a->k_runs), ks, h);
    gx__zero_head(dv + b * a->kv_stride + kv * h, gx_runs_rows(&a->k_runs), ks, h);
    for (int64_t head = heads_begin; head < heads_end; head++)
        for (int64_t t = 0; t < gx__tiles(&a->q_runs, GX__Q_TILE); t++) {
            GxTile tile = gx__tile(&a->q_runs, GX__Q_TILE, t);
            const int64_t first = tile.row * B + b;
            const float *qt = q + first * a->q_stride + head * h, *dot = d_o + first * a->o_stride + head * h,
                        *ot = o + first * a->o_stride + head * h;
            float *dqt = dq + first * a->q_stride + head * h;
            for (int64_t i = 0; i < tile.length; i++) D[i] = gx__dot(dot + i * os, ot + i * os, h);
            gx__zero_head(dqt, tile.length, qs, h);
            for (int64_t j = 0; j < gx__tiles(&a->k_runs, GX__K_BLOCK); j++) {
                GxTile block = gx__tile(&a->k_runs, GX__K_BLOCK, j);
                int64_t n = gx__visible(a, tile, block, tile.length - 1), at = (block.row * B + b) * a->kv_stride + kv * h;
                if (n == 0) continue;
                gx__tile_gemm(g, 0, 1, tile.length, n, h, scale, qt, qs, k + at, ks, 0, s, n);
                gx__tile_gemm(g, 0, 1, tile.length, n, h, 1, dot, os, v + at, ks, 0, dp, n);
                for (int64_t i = 0; i < tile.length; i++)
                    gx__softmax_backward_row(s + i * n, dp + i * n, lse[(first + i * B) * a->H + head], D[i], scale,
                                             gx__visible(a, tile, block, i), n);
                gx__tile_gemm(g, 1, 0, n, h, tile.length, 1, s, n, dot, os, 1, dv + at, ks);
                gx__tile_gemm(g, 1, 0, n, h, tile.length, 1, dp, n, qt, qs, 1, dk + at, ks);
                gx__tile_gemm(g, 0, 0, tile.length, h, n, 1, dp, n, k + at, ks, 1, dqt, qs);
            }
        }
}

void gx_cpu_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o, const float *lse, const void *q,
                               const void *k, const void *v, const GxAttention *a, void *scratch)
{
    int64_t floats = gx__attention_thread_floats(a, 1);
    GX_OMP(parallel for schedule(dynamic) num_threads(gx_threads(g)))
    for (int64_t job = 0; job < a->B * a->K; job++)
        gx__attention_backward_head(g, (float *)dq, (float *)dk, (float *)dv, (const float *)d_o, (const float *)o, lse, (const float *)q,
                                    (const float *)k, (const float *)v, a, job / a->K, job % a->K, gx__thread_scratch(scratch, floats));
}
#endif
