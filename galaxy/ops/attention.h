// attention.h: softmax(q k^T / sqrt(h)) v without a T x T matrix (Dao et al. 2022, arXiv:2205.14135: tiles, running
// maximum and sum).
//
// One interface for training, slices of a sequence, rings and KV caches:
// - The numbers of query rows and of key rows may differ. Both are given as runs of positions, and `causal` compares
//   global positions: a query attends to the keys at its own position and before it; with a `sliding_window`, only to
//   that many nearest ones.
// - Several query heads may share a key and value head (GQA). A call may have any contiguous range of the model's query
//   heads, with only the key and value heads that they use: query head i uses head (q_first + i) / group.
// - The log-sum-exp of each query row is an output: with it partial results over different keys can be merged, and the
//   backward recomputes the probabilities from it.
// - A column of the batch may hold several documents, which do not attend to each other, and padding, which neither
//   attends nor is attended to. The documents are given by global position, so a slice of the queries uses the same
//   array. Keys visible to no query of a tile (of other documents, later ones, or before the window) cost no work.
// - Keys and values may be in the pages of a KV cache (ops/rows.h); there is no backward for these.
// - A score may have a bias that depends only on how far its key is from its query (Raffel et al. 2020,
//   arXiv:1910.10683, section 2.1): a number for each head and each distance, the same for all distances beyond the
//   farthest. Its gradient is a sum over all queries and keys at a distance, in a fixed order.
// - Dropout (ops/dropout.h) applies to the normalized probabilities: the log-sum-exp is over all visible keys. The
//   backward generates the same mask again, as does every slice of the queries and every part of the heads.
#ifndef GX_ATTENTION_H
#define GX_ATTENTION_H
#include "dropout.h"
#include "rope.h"
#include "rows.h"
GX_BEGIN

struct GxAttention {
    int64_t B, H, K, head_dim;   // samples of the batch, query heads, key and value heads, size of a head
    int64_t group;               // query heads per key and value head in the whole model; 0: H/K, K divides H
    int64_t q_first;             // the index of head 0 among the query heads of its group
    GxRuns q_runs, k_runs;       // the positions of the Tq query rows and the Tk key rows
    int64_t q_stride, kv_stride; // elements from one row of q (of k and v) to the next; the same for dq, dk, dv
    int64_t o_stride;            // of o and d_o
    int causal;
    int64_t sliding_window; // if causal, keys visible to a query at p: p - sliding_window + 1 to p; 0: all up to p
    float scale;            // 0: 1/sqrt(head_dim)
    GxDtype dtype;
    // [2*reach + 1, H] of dtype, in device memory: what is added to the scaled score of the key at position k and the
    // query at position q, in row k - q + reach; beyond the ends, the first or last row. Not with key_documents, nor
    // with a negative scale. dbias: its gradient, fp32, which the backward writes; NULL: not needed. bias NULL: none
    const void *bias;
    float *dbias;
    int64_t reach; // at least 1
    // [positions*B][2], in device memory, for all positions in the runs: {begin, end}, the positions at which the
    // document of row position*B + b of the whole sequence begins and ends. All rows of a document have the same two
    // numbers. begin == end: padding. NULL: each column is one document
    const int32_t *documents;
    // If keys are rows of other texts than the queries are (of an encoder's output): `documents` then has for each row
    // of the queries the positions of the keys that are visible to it, and this, in the same way, for each row of the
    // keys the positions of the queries that it is visible to. Not if causal. NULL: both are rows of the same texts
    const int32_t *key_documents;
    // [positions/GX_PAGE, rounded up][B], in device memory: position t of column b is row gx_page_row(pages, t, B, b)
    // of k and v, and k_runs is one run from position 0 on. Positions without a page are not attended to. NULL: k and v
    // are not in pages
    const int32_t *pages;
    // [positions, head_dim/2], in device memory: q and k are results of rope_forward with these tables, and the
    // backward also applies RoPE's backward to dq and dk. The forward does not read them. NULL: no RoPE's backward
    const float *cosine, *sine;
    float dropout; // with what probability a probability is dropped, in [0, 1); 0: never, and nothing below is read
    uint32_t site; // which dropout of the model: gx_random_site(GX_SITE_DROPOUT, number)
    int64_t first_sample, T, heads, head_first; // number of the batch's first sample minus g->step->first_sample;
                                                // positions of the whole sequence; the model's query heads; which of
                                                // them is head 0
};

// o [Tq*B, H*h], lse [Tq*B, H] fp32 (natural logarithm of the sum of exp of the scaled scores); q [Tq*B, H*h], k and v
// [Tk*B, K*h]; row t*B + b. A query attends to the keys of its document; if causal, to those at its own position and
// before it, within its window. A query without a visible key has o = 0 and lse = -inf. With dropout, o = sum_j keep_j
// p_j v_j, where p is the softmax over all visible keys and keep_j is 0 or 1/(1 - dropout); seed, step and first sample
// are g->step's. FLOPs: 4*h per query head and pair of a query and a visible key, as if each column were one document,
// since the host does not know the documents.
void gx_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                          const GxAttention *a);

// Computes dq, dk and dv from d_o (the gradient of o); all their elements are written. dk and dv are sums over the
// query heads of this call: summands, if it does not have all heads of their groups. Padding has dq = dk = dv = 0.
// FLOPs: 10*h per query head and pair, counted as in the forward and including the recomputed scores, and 3*h per head
// and row with RoPE's backward.
void gx_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o, const float *lse,
                           const void *q, const void *k, const void *v, const GxAttention *a);

// o and lse are those of attention to some keys, o2 and lse2 those of the same queries to others; afterwards o and lse
// are those of attention to both: with m = max(lse, lse2), a = exp(lse - m), b = exp(lse2 - m), o = (a o + b o2) / (a +
// b) and lse = m + log(a + b). So keys may be visited in blocks (Liu et al. 2023, arXiv:2310.01889); the backward of each
// block takes the final o and lse. A side with lse = -inf saw no key and counts for nothing. o [R, heads*head_dim] fp32,
// o2 the same of `dtype`, lse and lse2 [R, heads]. bytes: R*heads*(head_dim*(8 + size) + 12); FLOPs: 3*R*heads*head_dim
void gx_attention_merge(GxContext *g, float *o, float *lse, const void *o2, const float *lse2, int64_t R, int64_t heads,
                        int64_t head_dim, GxDtype dtype);

// For devices: applies RoPE's backward to dq and dk in a separate pass, one for both if they are in the same rows.
void gx_attention_rotate_back(GxContext *g, void *dq, void *dk, const GxAttention *a);

// The pairs of a query and a key visible to it, for one sample and one head, as if each column were one document.
int64_t gx_attention_pairs(const GxAttention *a);

static inline int64_t gx_attention_group(const GxAttention *a) { return a->group ? a->group : a->H / a->K; }

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ATTENTION_IMPLEMENTED)
#define GX_ATTENTION_IMPLEMENTED

int64_t gx_attention_pairs(const GxAttention *a)
{
    if (!a->causal) return gx_runs_rows(&a->q_runs) * gx_runs_rows(&a->k_runs);
    int64_t pairs = 0;
    for (int i = 0; i < a->q_runs.n; i++)
        for (int j = 0; j < a->k_runs.n; j++) {
            const GxRun *q = &a->q_runs.run[i], *k = &a->k_runs.run[j];
            for (int64_t r = 0; r < q->length; r++) {
                const int64_t end = q->position + r - k->position + 1; // of the run's keys visible to this query
                pairs +=
                    gx_max(0, gx_min(k->length, end) - (a->sliding_window ? gx_max(0, end - a->sliding_window) : 0));
            }
        }
    return pairs;
}

static int gx__attention_pages_check(GxContext *g, const char *name, const GxAttention *a)
{
    const GxRuns *k = &a->k_runs;
    if (!a->pages || (k->n == 1 && k->run[0].position == 0)) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: %d runs of keys in pages, the first from position %ld on; it must be one, from position 0 on", name,
            k->n, (long)k->run[0].position);
    return 0;
}

static int gx__attention_window_check(GxContext *g, const char *name, const GxAttention *a)
{
    if (a->sliding_window == 0 || (a->sliding_window > 0 && a->causal)) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: sliding_window is %ld, and attention is %scausal; a window has 1 key or more (0: none), and only "
            "causal attention has one",
            name, (long)a->sliding_window, a->causal ? "" : "not ");
    return 0;
}

static int gx__attention_documents_check(GxContext *g, const char *name, const GxAttention *a)
{
    if (!a->key_documents || (a->documents && !a->causal)) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: keys of other texts than the queries' (key_documents) need documents, too, and cannot be causal",
            name);
    return 0;
}

static int64_t gx__attention_positions(const GxRuns *runs) // up to the last one
{
    int64_t n = 0;
    for (int i = 0; i < runs->n; i++) n = gx_max(n, runs->run[i].position + runs->run[i].length);
    return n;
}

static int gx__attention_bias_check(GxContext *g, const char *name, const GxAttention *a)
{
    if (!a->bias && !a->dbias) return 1;
    if (a->bias && a->reach >= 1 && !a->key_documents && a->scale >= 0) return 1;
    GX_FAIL(
        &g->error, GX_ERR_ARGUMENT,
        "%s: a bias by distance with reach %ld and scale %g%s%s; it needs a reach of 1 or more and a positive scale, "
        "and its queries and keys are of the same texts",
        name, (long)a->reach, (double)a->scale, a->bias ? "" : ", whose gradient alone is given",
        a->key_documents ? ", of keys of other texts than the queries'" : "");
    return 0;
}

// Called after the checks of runs and heads.
static int gx__attention_dropout_check(GxContext *g, const char *name, const GxAttention *a)
{
    const int64_t positions = gx_max(gx__attention_positions(&a->q_runs), gx__attention_positions(&a->k_runs));
    if (a->dropout == 0) return 1;
    if (!(a->dropout > 0 && a->dropout < 1)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: dropout is %g; it must be at least 0 and below 1", name,
                (double)a->dropout);
    } else if (a->T < positions) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: dropout of a sequence of %ld positions (T), but rows have positions up to %ld: T is of the whole "
                "sequence",
                name, (long)a->T, (long)positions - 1);
    } else if (a->head_first < 0 || a->heads < a->head_first + a->H) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: dropout of the query heads %ld to %ld (head_first, H) of a model that has %ld (heads)", name,
                (long)a->head_first, (long)(a->head_first + a->H - 1), (long)a->heads);
    } else if (a->first_sample < 0) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: dropout of sample %ld (first_sample); samples begin at number 0", name,
                (long)a->first_sample);
    } else if (g->device->computes && !g->step) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: dropout needs seed and step, but the context has no step; let g->step point to a GxStep in its "
                "device's memory",
                name);
    } else {
        return 1;
    }
    return 0;
}

static int gx__attention_check(GxContext *g, const char *name, const GxAttention *a)
{
    if (!gx_op_check(g, name, a->dtype, a->B, a->head_dim)) return 0;
    if (g->device->head_dim && a->head_dim > g->device->head_dim) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "%s: head_dim is %ld; this device computes heads of up to %ld: use more heads, or the device cpu", name,
                (long)a->head_dim, (long)g->device->head_dim);
        return 0;
    }
    if (a->K < 1 || a->H < a->K || (a->group == 0 && a->H % a->K)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: %ld query heads cannot share %ld key and value heads: there must be as many or more, and a "
                "multiple where group is 0",
                name, (long)a->H, (long)a->K);
        return 0;
    }
    if (a->group < 0 || a->q_first < 0 || a->q_first >= gx_max(a->group, 1)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: query heads that begin at number %ld of a group of %ld; a group is of 1 or more (0: H/K) and its "
                "numbers begin at 0",
                name, (long)a->q_first, (long)a->group);
        return 0;
    }
    const int64_t used = (a->q_first + a->H - 1) / gx_attention_group(a) + 1;
    if (used != a->K) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: %ld query heads from number %ld of a group of %ld on use %ld key and value heads; K is %ld", name,
                (long)a->H, (long)a->q_first, (long)a->group, (long)used, (long)a->K);
        return 0;
    }
    if (a->q_stride < a->H * a->head_dim || a->o_stride < a->H * a->head_dim || a->kv_stride < a->K * a->head_dim) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: strides %ld, %ld, %ld are shorter than their heads", name,
                (long)a->q_stride, (long)a->kv_stride, (long)a->o_stride);
        return 0;
    }
    return gx_runs_check(g, name, &a->q_runs) && gx_runs_check(g, name, &a->k_runs) &&
           gx__attention_pages_check(g, name, a) && gx__attention_window_check(g, name, a) &&
           gx__attention_documents_check(g, name, a) && gx__attention_bias_check(g, name, a) &&
           gx__attention_dropout_check(g, name, a);
}

static int gx__attention_rotation_check(GxContext *g, const char *name, const GxAttention *a)
{
    if (!a->cosine || a->head_dim % 2 == 0) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: head_dim is %ld; rotation needs pairs, so an even number", name,
            (long)a->head_dim);
    return 0;
}

static int gx__attention_in_same_rows(const void *dq, const void *dk, const GxAttention *a)
{
    const GxRuns *q = &a->q_runs, *k = &a->k_runs;
    int same = q->n == k->n && a->q_stride == a->kv_stride &&
               (const char *)dk == (const char *)dq + a->H * a->head_dim * gx_dtype_size(a->dtype);
    for (int i = 0; same && i < q->n; i++)
        same = q->run[i].length == k->run[i].length && q->run[i].position == k->run[i].position;
    return same;
}

void gx_attention_rotate_back(GxContext *g, void *dq, void *dk, const GxAttention *a)
{
    const int at_once = gx__attention_in_same_rows(dq, dk, a);
    g->device->rope(g, dq, a->cosine, a->sine, &a->q_runs, NULL, a->B, a->H + (at_once ? a->K : 0), a->head_dim,
                    a->q_stride, -1, a->dtype);
    if (!at_once)
        g->device->rope(g, dk, a->cosine, a->sine, &a->k_runs, NULL, a->B, a->K, a->head_dim, a->kv_stride, -1,
                        a->dtype);
}

static GxDims gx__attention_dims(const GxAttention *a)
{
    return gx_dims(gx_runs_rows(&a->q_runs), gx_runs_rows(&a->k_runs), a->B * a->H, a->head_dim);
}

static int64_t gx__attention_bytes(const GxAttention *a)
{
    int64_t q = gx_runs_rows(&a->q_runs) * a->H, k = gx_runs_rows(&a->k_runs) * a->K;
    const int64_t documents = a->documents ? 8 * a->B * gx_runs_rows(&a->q_runs) : 0; // those of keys: backward alone
    const int64_t pages = a->pages ? 4 * a->B * gx_ceil_div(gx_runs_rows(&a->k_runs), GX_PAGE) : 0;
    const int64_t bias = a->bias ? (2 * a->reach + 1) * a->H * gx_dtype_size(a->dtype) : 0;
    return a->B * (2 * q + 2 * k) * a->head_dim * gx_dtype_size(a->dtype) + 4 * a->B * q + documents + pages + bias;
}

void gx_attention_forward(GxContext *g, void *o, float *lse, const void *q, const void *k, const void *v,
                          const GxAttention *a)
{
    if (!gx__attention_check(g, "attention_forward", a)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    void *scratch = gx_scratch(g, GX_MEM_WORKSPACE, g->device->attention_scratch(g, a, 0));
    if (gx_op_begin(g, "attention_forward", gx__attention_dims(a), gx__attention_bytes(a),
                    4.0 * a->head_dim * a->H * a->B * gx_attention_pairs(a)))
        g->device->attention_forward(g, o, lse, q, k, v, a, scratch);
    gx_arena_release(g->arena, mark);
}

void gx_attention_backward(GxContext *g, void *dq, void *dk, void *dv, const void *d_o, const void *o, const float *lse,
                           const void *q, const void *k, const void *v, const GxAttention *a)
{
    const int64_t rotated = gx_runs_rows(&a->q_runs) * a->H + gx_runs_rows(&a->k_runs) * a->K;
    if (!gx__attention_check(g, "attention_backward", a) || !gx__attention_rotation_check(g, "attention_backward", a))
        return;
    if (a->pages) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "attention_backward: keys and values in pages have no gradients");
        return;
    }
    GxArenaMark mark = gx_arena_mark(g->arena);
    void *scratch = gx_scratch(g, GX_MEM_WORKSPACE, g->device->attention_scratch(g, a, 1));
    if (gx_op_begin(g, "attention_backward", gx__attention_dims(a), 2 * gx__attention_bytes(a),
                    10.0 * a->head_dim * a->H * a->B * gx_attention_pairs(a) +
                        (a->cosine ? 3.0 * rotated * a->B * a->head_dim : 0)))
        g->device->attention_backward(g, dq, dk, dv, d_o, o, lse, q, k, v, a, scratch);
    gx_arena_release(g->arena, mark);
}

void gx_attention_merge(GxContext *g, float *o, float *lse, const void *o2, const float *lse2, int64_t R, int64_t heads,
                        int64_t head_dim, GxDtype dtype)
{
    const int64_t rows = R * heads, n = rows * head_dim;
    if (!gx_op_check(g, "attention_merge", dtype, R, heads) ||
        !gx_op_check(g, "attention_merge", dtype, rows, head_dim))
        return;
    if (gx_op_begin(g, "attention_merge", gx_dims(R, heads, head_dim, 0), n * (8 + gx_dtype_size(dtype)) + 12 * rows,
                    3.0 * (double)n))
        g->device->attention_merge(g, o, lse, o2, lse2, rows, head_dim, dtype);
}
#endif
