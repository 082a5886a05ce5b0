// model/att.h: attention as a core:
//
//     q, k, v = in W^T + b                    then, where the model has them: a norm of each head of q and k, RoPE
//     result  = softmax(q k^T / sqrt(h)) v    with dropout of the probabilities; T5 has no sqrt(h), but adds a bias to
//                                             the scores (relative.h)
//     out     = result Wo^T                   the bias of Wo is CON's
//
// h is head_dim; H and K are the numbers of this rank's query heads and K,V heads.
//
// TP: a rank has its query heads and the K,V heads that they use, on all rows; `out` is its summand.
// SP: a rank has all heads, the queries of its slice of T, and the keys and values of all rows. Keys and values are
// all-gathered inside the core; their gradients, of which each rank has a summand, are reduce-scattered to their rows.
// With context parallelism (cp.h) those of other ranks' rows of the sequence come in the same way, behind the former, or
// one rank's after the other (ring.h).
//
// With a KV cache the keys and values of the new rows are written into its pages. The queries attend to all positions
// in the cache, or to those in their window. Pages that no window will reach again are not freed. Those of the memory
// are computed once, and kept in the cache.
//
// The head norms have one weight [h] shared by all heads of q, and another shared by those of k. A rank computes the
// gradient from its own heads (TP) or its own rows (SP), so it is summed over tp. This also holds for a K head that
// several ranks use: each rank has the part of the head's gradient that comes from its own query heads, and a norm's
// backward is linear in that gradient. The norms' inputs are kept, (H+K)h elements a row. They cannot be recomputed
// from the outputs: a weight may be 0, and in bf16 the result would not be exact.
//
// In a decoder that reads an encoder's output (memory), k and v of its cross attention are computed from that. Each
// layer adds its share to the memory's gradient.
//
// Keys and values lie beside the queries, are gathered from all ranks, are in a cache, or come from the memory. Each of
// these places has its own functions (GxAttKeys); attention itself does not know which one it reads.
//
// With prompts (prompt.h) the attention to them is added to `result` before the out projection.
#ifndef GX_ATT_H
#define GX_ATT_H
#include "cp.h"
#include "doors.h"
#include "kv_cache.h"
#include "linear.h"
#include "prompt.h"
#include "relative.h"
#include "ring.h"
GX_BEGIN
extern const GxCore gx_att;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ATT_IMPLEMENTED)
#define GX_ATT_IMPLEMENTED
#include "../comm/comm.h"
#include "../ops/attention.h"
#include "../ops/norm.h"
#include "../ops/rows.h"

enum { GX__ATT_QKV = 0, GX__ATT_O }; // of a pair's linears
// A slot's buffers
enum {
    GX__ATT_Q = 0,  // q, k, v side by side [rows, (H+2K)h]; only q [rows, Hh] if K and V are gathered
    GX__ATT_RESULT, // [rows, Hh]
    GX__ATT_KV,     // if K and V are gathered: those of all rows [all, 2Kh]; if they come from the memory: of its rows
    GX__ATT_BEFORE  // with head norms: their inputs, q and k [rows, (H+K)h]
};
enum { GX__ATT_DQ = 0, GX__ATT_DKV }; // the gradients of GX__ATT_Q and GX__ATT_KV

static void gx__att_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxCoreSpec *c = &u->spec.pair[k].core;
    const int64_t C = u->spec.width, Q = c->heads * c->head_dim, KV = c->kv_heads * c->head_dim;
    const GxLayout layout = gx_block_takes(m->mode->methods.att);
    const GxShares *const of[3] = {&u->q, &u->kv, &u->kv};
    GxTensorId id[3], b[3] = {gx_no_tensor(), gx_no_tensor(), gx_no_tensor()};
    for (int i = 0; i < 2 && c->has_qk_norm; i++) {
        GxTensorUse norm = gx_tensor_use(c->qk_norm[i], number, GX_ROLE_NORM, c->head_dim, 0, layout);
        norm.is_own_share = m->mode->methods.att == GX_METHOD_TP, norm.offset = c->offset;
        m->unit[unit].pair[k].qk_norm[i] = gx_model_tensor(g, m, unit, k, &norm);
    }
    if (c->relative.buckets) gx_relative_open(g, m, unit, k, number);
    for (int i = 0; i < 3; i++) {
        GxTensorUse w = gx_tensor_use(c->matrix[i], number, GX_ROLE_WEIGHT, i ? KV : Q, C, layout);
        w.rows = of[i], w.packed = i > 0;
        id[i] = gx_model_tensor(g, m, unit, k, &w);
    }
    for (int i = 0; i < 3 && c->has_bias; i++) {
        GxTensorUse bias = gx_tensor_use(c->matrix[i], number, GX_ROLE_BIAS, i ? KV : Q, 0, layout);
        bias.rows = of[i], bias.packed = i > 0;
        b[i] = gx_model_tensor(g, m, unit, k, &bias);
    }
    GxTensorUse o = gx_tensor_use(c->matrix[3], number, GX_ROLE_WEIGHT, C, Q, layout);
    o.cols = &u->q;
    const GxTensorId out = gx_model_tensor(g, m, unit, k, &o);
    m->unit[unit].pair[k].linear[GX__ATT_QKV] = gx_model_linear(m, id[0], 3, b[0]);
    m->unit[unit].pair[k].linear[GX__ATT_O] = gx_model_linear(m, out, 1, gx_no_tensor());
}

// 1: keys and values of other rows are gathered over tp; over tp or cp.
static int gx__att_gathers(const GxModel *m) { return m->mode->methods.att == GX_METHOD_SP && m->members > 1; }
static int gx__att_is_apart(const GxPairView *v)
{
    return gx__att_gathers(v->m) || v->b->cp || v->spec->core.reads_memory;
}
static int gx__att_goes_round(const GxPairView *v) { return v->b->cp && v->b->cp->by_ring; }
static int gx__att_is_whole(const GxPairView *v)
{
    return v->b->cp && !v->b->cp->by_ring;
} // K and V of all ranks of cp

static void gx__att_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    const int64_t h = u->spec.pair[k].core.head_dim, Q = gx_share_count(&u->q), KV = gx_share_count(&u->kv);
    const int reads_memory = u->spec.pair[k].core.reads_memory,
              gathers = gx__att_gathers(l->m) || l->whole != l->all || reads_memory;
    s->core[GX__ATT_Q] = gx_slot_rows(l, rows, gathers ? Q : Q + 2 * KV);
    s->core[GX__ATT_RESULT] = gx_slot_rows(l, rows, Q);
    const int64_t keys = reads_memory ? l->memory : l->m->cp.by_ring ? l->all : l->whole; // rows of K and V
    if (gathers) s->core[GX__ATT_KV] = gx_slot_rows(l, keys, 2 * KV);
    s->lse = (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * rows * (Q / h));
    if (u->spec.pair[k].core.has_qk_norm) {
        s->core[GX__ATT_BEFORE] = gx_slot_rows(l, rows, Q + KV);
        s->qk_rstd = (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * rows * ((Q + KV) / h));
    }
    if (!l->defers_weights) return;
    s->dcore[GX__ATT_DQ] = gx_slot_rows(l, rows, s->core[GX__ATT_Q].cols);
    if (gathers) s->dcore[GX__ATT_DKV] = gx_slot_rows(l, keys, 2 * KV);
}

// ---- one call of attention -----------------------------------------------------------------------------------------

typedef struct GxAttKeys GxAttKeys;
typedef struct {
    const GxAttKeys *keys; // where keys and values come from
    GxAttention a;
    GxRuns own;                 // positions of this rank's rows
    GxLinear q, kv;             // parts of the packed linear
    GxRows pool;                // the cache's rows, if K and V are in one
    int64_t k_column, v_column; // the columns where K and V begin
} GxAttCall;

// A place that keys and values come from.
struct GxAttKeys {
    void (*describe)(const GxPairView *v, GxAttCall *c);   // the positions, strides and columns of c
    GxRows (*at)(const GxAttCall *c, GxRows q, GxRows kv); // the rows that have K and V, or their gradients
    void (*project)(const GxPairView *v, const GxAttCall *c, GxRows in); // q, k, v = in W^T + b, normed and rotated
    void (*project_backward)(const GxPairView *v, const GxAttCall *c, GxRows din); // NULL: not in training
    void (*backward_weight)(const GxPairView *v, const GxAttCall *c, GxRows in);
};
static const GxAttKeys *gx__att_keys_of(const GxPairView *v, GxRows pool);

static void gx__att_heads(const GxPairView *v, GxAttention *a)
{
    const GxCoreSpec *s = &v->spec->core;
    const int64_t h = s->head_dim;
    a->B = v->b->B;
    a->H = gx_share_count(&v->kind->q) / h, a->K = gx_share_count(&v->kind->kv) / h;
    a->head_dim = h;
    a->group = s->heads / s->kv_heads, a->q_first = v->kind->q_first;
    a->heads = s->heads, a->head_first = gx_share_mine(&v->kind->q).begin / h;
    a->o_stride = a->H * h;
    a->scale = v->m->unit[v->p->unit].scale != 0 ? v->m->unit[v->p->unit].scale : s->scale;
    a->dtype = v->store->dtype;
}

static void gx__att_mask(const GxPairView *v, GxAttention *a)
{
    const int reads_memory = v->spec->core.reads_memory;
    a->causal = v->spec->core.is_causal;
    a->sliding_window = v->m->unit[v->p->unit].sliding_window;
    a->documents = reads_memory ? v->b->reads : v->b->documents;
    a->key_documents = reads_memory ? v->b->read_by : NULL;
}

static void gx__att_dropout(const GxPairView *v, GxAttention *a)
{
    const float p = v->spec->core.dropout;
    a->dropout = v->p->is_training ? p : 0;
    a->site = gx_view_dropout(v, GX_DROPOUT_CORE, p).site;
    a->first_sample = v->b->window_sample, a->T = gx_batch_positions(v->b);
    if (v->spec->core.reads_memory) a->T = gx_max(a->T, v->b->source->T);
}

// 1: the attention operation's backward also applies RoPE's backward to dq and dk. It cannot if the gradients from
// other ranks' queries or from prompts have to be added first.
static int gx__att_backward_rotates(const GxPairView *v)
{
    return gx_view_rotates(v) && !gx__att_is_apart(v) && !gx_view_has_prompt(v);
}

// Takes the packed linear apart: that of q, and that of k and v.
static void gx__att_parts(const GxPairView *v, GxAttCall *c)
{
    const GxLinear *qkv = &v->pair->linear[GX__ATT_QKV];
    const GxTensorId second = {qkv->first.index + 1}, second_bias = {qkv->bias.index < 0 ? -1 : qkv->bias.index + 1};
    c->q = gx_model_linear(v->m, qkv->first, 1, qkv->bias);
    c->kv = gx_model_linear(v->m, second, 2, second_bias);
}

static GxAttCall gx__att_call(const GxPairView *v)
{
    GxAttCall c = GX_ZERO;
    const GxRopeTable *rope = gx_view_rope(v);
    c.pool = v->b->cache ? gx_kv_cache_rows(v->p, v->spec->core.reads_memory) : gx_no_rows();
    c.keys = gx__att_keys_of(v, c.pool);
    gx__att_heads(v, &c.a);
    gx__att_mask(v, &c.a);
    gx__att_dropout(v, &c.a);
    gx__att_parts(v, &c);
    c.keys->describe(v, &c);
    c.v_column = c.k_column + c.a.K * c.a.head_dim;
    if (gx__att_backward_rotates(v)) c.a.cosine = rope->cosine, c.a.sine = rope->sine;
    return c;
}

// Applies RoPE to heads of rows: forward (direction 1) or backward (-1). Does nothing in a layer without RoPE.
static void gx__att_rotate(const GxPairView *v, const GxAttCall *c, GxRows x, int64_t heads, int64_t stride,
                           int direction)
{
    const int64_t h = c->a.head_dim;
    const GxRopeTable *r = gx_view_rope(v);
    if (!gx_view_rotates(v)) return;
    if (direction > 0) gx_rope_forward(v->g, x.data, r->cosine, r->sine, &c->own, c->a.B, heads, h, stride, x.dtype);
    else gx_rope_backward(v->g, x.data, r->cosine, r->sine, &c->own, c->a.B, heads, h, stride, x.dtype);
}

// Applies the norms of q's and k's heads, forward (direction 1) or backward (-1). k is in kv, which may be q's rows.
// Does nothing in a model without such norms.
static void gx__att_norm(const GxPairView *v, const GxAttCall *c, GxRows q, GxRows kv, int direction)
{
    const GxPairSlot *s = v->slot;
    const GxCoreSpec *spec = &v->spec->core;
    const GxRows before = s->core[GX__ATT_BEFORE];
    const int64_t heads[2] = {c->a.H, c->a.K}, stride[2] = {c->a.q_stride, c->a.kv_stride};
    void *const x[2] = {q.data, gx_rows_column(kv, c->k_column)};
    for (int i = 0; i < 2 && spec->has_qk_norm; i++) {
        const GxHeadNorm n = {q.rows,      heads[i],  c->a.head_dim, stride[i],
                              before.cols, spec->eps, q.dtype,       spec->offset};
        const GxTensorId id = v->pair->qk_norm[i];
        const void *w = gx_store_weight(v->store, id);
        void *kept = gx_rows_column(before, i * c->a.H * c->a.head_dim);
        float *rstd = s->qk_rstd + i * q.rows * c->a.H;
        int accumulate = 0;
        const int before = gx_of_tensor(v->g, direction * (id.index + 1));
        if (direction > 0) gx_head_norm_forward(v->g, x[i], kept, rstd, w, &n);
        else {
            float *dw = gx_store_grad(v->store, id, &accumulate);
            gx_head_norm_backward(v->g, x[i], dw, kept, rstd, w, &n, accumulate);
        }
        gx_of_tensor(v->g, before);
    }
}

// ---- K and V beside q, in each row ---------------------------------------------------------------------------------

static void gx__att_packed(const GxPairView *v, GxAttCall *c)
{
    c->own = c->a.q_runs = c->a.k_runs = v->b->runs;
    c->k_column = c->a.H * c->a.head_dim;
    c->a.q_stride = c->a.kv_stride = (c->a.H + 2 * c->a.K) * c->a.head_dim;
}

static GxRows gx__att_packed_at(const GxAttCall *c, GxRows q, GxRows kv) { return (void)c, (void)kv, q; }

static void gx__att_packed_project(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    const GxRows q = v->slot->core[GX__ATT_Q];
    gx_linear_apply(v->p, &v->pair->linear[GX__ATT_QKV], q, in, 0);
    gx__att_norm(v, c, q, q, 1);
    gx__att_rotate(v, c, q, c->a.H + c->a.K, c->a.q_stride, 1);
}

static void gx__att_packed_backward(const GxPairView *v, const GxAttCall *c, GxRows din)
{
    const GxRows dq = v->p->dcore[GX__ATT_DQ];
    if (!c->a.cosine) gx__att_rotate(v, c, dq, c->a.H + c->a.K, c->a.q_stride, -1);
    gx__att_norm(v, c, dq, dq, -1);
    gx_linear_apply_backward_input(v->p, &v->pair->linear[GX__ATT_QKV], din, dq, 0);
}

static void gx__att_packed_backward_weight(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    (void)c;
    gx_linear_apply_backward_weight(v->p, &v->pair->linear[GX__ATT_QKV], v->p->dcore[GX__ATT_DQ], in);
}

// ---- K and V apart from q: gathered, or in a cache -----------------------------------------------------------------

static void gx__att_apart(GxAttCall *c)
{
    c->a.q_stride = c->a.H * c->a.head_dim, c->a.kv_stride = 2 * c->a.K * c->a.head_dim;
}

// Writes this rank's K and V of the batch's rows to `own`.
static void gx__att_apart_project(const GxPairView *v, const GxAttCall *c, GxRows q, GxRows own, GxRows in)
{
    gx_linear_apply(v->p, &c->q, q, in, 0);
    gx_linear_apply(v->p, &c->kv, own, in, 0);
    gx__att_norm(v, c, q, own, 1);
    gx__att_rotate(v, c, q, c->a.H, c->a.q_stride, 1);
    gx__att_rotate(v, c, own, c->a.K, c->a.kv_stride, 1);
}

static void gx__att_gathered(const GxPairView *v, GxAttCall *c)
{
    const GxBatch *b = v->b;
    const GxSplit *rows = &v->p->slot->rows;
    const int me = v->m->member;
    gx__att_apart(c);
    c->a.k_runs = b->cp ? gx_runs_one(gx_batch_positions(b), 0) : b->runs;
    c->own = c->a.q_runs = b->runs;
    if (gx__att_gathers(v->m))
        c->own = c->a.q_runs = gx_runs_slice(&b->runs, rows->begin[me] / b->B, gx_split_part(rows, me) / b->B);
}

static GxRows gx__att_gathered_at(const GxAttCall *c, GxRows q, GxRows kv) { return (void)c, (void)q, kv; }

// Of the batch's rows, those of this rank of tp.
static GxRows gx__att_own(const GxPairView *v, GxRows batch)
{
    return gx__att_gathers(v->m) ? gx_slice(v->p, batch) : batch;
}

// Where the gradients of the batch's K and V are put: in place of all of them, which are not needed any more.
static GxRows gx__att_batch_of(const GxPairView *v, GxRows dkv)
{
    return gx__att_is_whole(v) ? gx_some_rows(dkv, 0, v->b->T * v->b->B) : dkv;
}

static void gx__att_gathered_project(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    const GxRows kv = v->slot->core[GX__ATT_KV],
                 batch = gx__att_is_whole(v) ? gx_pass_rows(v->p, v->b->T * v->b->B, kv.cols) : kv,
                 own = gx__att_own(v, batch);
    gx__att_apart_project(v, c, v->slot->core[GX__ATT_Q], own, in);
    if (gx__att_gathers(v->m)) gx_tp_all_gather(v->p, v->k, GX_INSIDE, batch, own);
    if (gx__att_is_whole(v)) gx_cp_all_gather(v->p, kv, batch);
    gx_view_at(v, GX_AT_CORE);
}

static void gx__att_gathered_backward(const GxPairView *v, const GxAttCall *c, GxRows din)
{
    const GxRows dq = v->p->dcore[GX__ATT_DQ], dkv = v->p->dcore[GX__ATT_DKV], batch = gx__att_batch_of(v, dkv),
                 own = gx__att_own(v, batch);
    if (gx__att_is_whole(v)) gx_cp_reduce_scatter(v->p, batch, dkv);
    if (gx__att_gathers(v->m)) gx_tp_reduce_scatter(v->p, v->k, GX_INSIDE, own, batch);
    gx_view_at(v, GX_AT_CORE);
    gx__att_rotate(v, c, dq, c->a.H, c->a.q_stride, -1);
    gx__att_rotate(v, c, own, c->a.K, c->a.kv_stride, -1);
    gx__att_norm(v, c, dq, own, -1);
    gx_linear_apply_backward_input(v->p, &c->q, din, dq, 0);
    gx_linear_apply_backward_input(v->p, &c->kv, din, own, 1);
}

static void gx__att_gathered_backward_weight(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    const GxRows own = gx__att_own(v, gx__att_batch_of(v, v->p->dcore[GX__ATT_DKV]));
    gx_linear_apply_backward_weight(v->p, &c->q, v->p->dcore[GX__ATT_DQ], in);
    gx_linear_apply_backward_weight(v->p, &c->kv, own, in);
}

static void gx__att_cached(const GxPairView *v, GxAttCall *c)
{
    gx__att_apart(c);
    c->own = c->a.q_runs = v->b->runs;
    c->a.k_runs = gx_runs_one(c->own.run[0].position + v->b->T, 0);
    c->a.pages = v->b->cache->table;
}

static GxRows gx__att_cached_at(const GxAttCall *c, GxRows q, GxRows kv) { return (void)q, (void)kv, c->pool; }

// The slot's rows for q, k and v hold all queries, followed by K and V until these are copied into the pages.
static void gx__att_cached_project(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    const GxRows all = v->slot->core[GX__ATT_Q], q = gx_rows(all.data, all.dtype, all.rows, c->a.q_stride),
                 own = gx_rows((char *)all.data + gx_rows_bytes(q), all.dtype, all.rows, c->a.kv_stride);
    gx__att_apart_project(v, c, q, own, in);
    gx_put_pages(v->g, c->pool.data, own.data, c->a.pages, v->b->T, c->a.B, c->own.run[0].position, own.cols,
                 own.dtype);
    gx_view_at(v, GX_AT_CORE);
}

// ---- K and V of an encoder's output --------------------------------------------------------------------------------

static void gx__att_of_memory(const GxPairView *v, GxAttCall *c)
{
    const int64_t columns = v->b->source->B, each = v->b->B / columns;
    gx__att_gathered(v, c);
    c->a.k_runs = v->b->source->runs;
    c->a.B = columns; // row t of columns b, b + columns, ... that share a source: rows t*each, t*each + 1, ... of one
    for (int i = 0; i < c->a.q_runs.n; i++) c->a.q_runs.run[i].position *= each, c->a.q_runs.run[i].length *= each;
}

// Of rows that belong to the memory's, those of this rank of tp: with SP its slice, if they are not that slice already.
static GxRows gx__att_of_own_memory(const GxPairView *v, GxRows all)
{
    const GxSplit rows = gx_batch_slices(v->m, v->b->source->T, v->b->source->B);
    if (!gx__att_gathers(v->m) || all.rows != gx_split_total(&rows)) return all;
    return gx_some_rows(all, gx_memory_begin(v), gx_own_rows(v->m, &rows));
}

// Gathers K and V from all ranks, or scatters the summands of their gradients to the ranks whose rows they are of.
static void gx__att_move_memory(const GxPairView *v, GxRows kv, GxRows own, int gathers)
{
    const GxSplit rows = gx_batch_slices(v->m, v->b->source->T, v->b->source->B);
    if (!gx__att_gathers(v->m)) return;
    gx_at(v->g, v->p->unit, gx_door_name(GX_CORE_ATT, GX_INSIDE));
    if (gathers) gx_all_gather(v->g, GX_AXIS_TP, &rows, kv.data, own.data, kv.cols, kv.dtype);
    else gx_reduce_scatter(v->g, GX_AXIS_TP, &rows, own.data, kv.data, kv.cols, kv.dtype);
    gx_view_at(v, GX_AT_CORE);
}

static void gx__att_memory_project(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    const GxRows kv = v->slot->core[GX__ATT_KV], own = gx__att_of_own_memory(v, kv);
    gx_linear_apply(v->p, &c->q, v->slot->core[GX__ATT_Q], in, 0);
    gx_linear_apply(v->p, &c->kv, own, gx__att_of_own_memory(v, v->p->memory), 0);
    gx__att_move_memory(v, kv, own, 1);
}

static void gx__att_kept_project(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    gx_linear_apply(v->p, &c->q, v->slot->core[GX__ATT_Q], in, 0);
    if (v->b->cache->has_source) return;
    gx_linear_apply(v->p, &c->kv, gx_some_rows(c->pool, 0, v->p->memory.rows), v->p->memory, 0);
}

static void gx__att_memory_backward(const GxPairView *v, const GxAttCall *c, GxRows din)
{
    GxPass *p = v->p;
    const GxRows dkv = p->dcore[GX__ATT_DKV], own = gx__att_of_own_memory(v, dkv);
    gx__att_move_memory(v, dkv, own, 0);
    gx_linear_apply_backward_input(p, &c->q, din, p->dcore[GX__ATT_DQ], 0);
    gx_linear_apply_backward_input(p, &c->kv, gx__att_of_own_memory(v, p->dmemory), own, !p->writes_memory);
}

static void gx__att_memory_backward_weight(const GxPairView *v, const GxAttCall *c, GxRows in)
{
    gx_linear_apply_backward_weight(v->p, &c->q, v->p->dcore[GX__ATT_DQ], in);
    gx_linear_apply_backward_weight(v->p, &c->kv, gx__att_of_own_memory(v, v->p->dcore[GX__ATT_DKV]),
                                    gx__att_of_own_memory(v, v->p->memory));
}

static const GxAttKeys gx__att_keys_packed = {gx__att_packed, gx__att_packed_at, gx__att_packed_project,
                                              gx__att_packed_backward, gx__att_packed_backward_weight},
                       gx__att_keys_gathered = {gx__att_gathered, gx__att_gathered_at, gx__att_gathered_project,
                                                gx__att_gathered_backward, gx__att_gathered_backward_weight},
                       gx__att_keys_cached = {gx__att_cached, gx__att_cached_at, gx__att_cached_project, NULL, NULL},
                       gx__att_keys_memory = {gx__att_of_memory, gx__att_gathered_at, gx__att_memory_project,
                                              gx__att_memory_backward, gx__att_memory_backward_weight},
                       gx__att_keys_kept = {gx__att_of_memory, gx__att_cached_at, gx__att_kept_project, NULL, NULL};

static const GxAttKeys *gx__att_keys_of(const GxPairView *v, GxRows pool)
{
    if (v->spec->core.reads_memory) return pool.data ? &gx__att_keys_kept : &gx__att_keys_memory;
    if (pool.data) return &gx__att_keys_cached;
    return gx__att_is_apart(v) ? &gx__att_keys_gathered : &gx__att_keys_packed;
}

// ---- the core ------------------------------------------------------------------------------------------------------

static void gx__att_forward(const GxPairView *v, GxRows out, GxRows in)
{
    const GxPairSlot *s = v->slot;
    GxAttCall c = gx__att_call(v);
    const GxRows kv = c.keys->at(&c, s->core[GX__ATT_Q], s->core[GX__ATT_KV]);
    GxRows result = s->core[GX__ATT_RESULT];
    c.keys->project(v, &c, in);
    gx_relative_bias(v, &c.a);
    if (gx__att_goes_round(v)) gx_ring_forward(v->p, result, s->lse, s->core[GX__ATT_Q], kv, &c.a);
    else
        gx_attention_forward(v->g, result.data, s->lse, s->core[GX__ATT_Q].data, gx_rows_column(kv, c.k_column),
                             gx_rows_column(kv, c.v_column), &c.a);
    if (gx_view_has_prompt(v)) gx_prompt_forward(v, &c.a, &c.kv, s->core[GX__ATT_Q]);
    if (out.data && gx_view_has_prompt(v)) result = gx_prompt_added(v, result);
    if (out.data) gx_linear_apply(v->p, &v->pair->linear[GX__ATT_O], out, result, 0);
}

static GxRows gx__att_inner(const GxPairView *v, int which, GxRows like)
{
    if (!like.data) return gx_no_rows();
    return v->p->defers_weights ? v->slot->dcore[which] : gx_pass_rows(v->p, like.rows, like.cols);
}

// 1: dq is needed, because a tensor of q, k or v, or one below the core, is trained.
static int gx__att_trains_below(const GxPairView *v, GxRows din)
{
    const GxPair *pair = v->pair;
    const GxLinear *qkv = &pair->linear[GX__ATT_QKV];
    int trains = din.data != NULL;
    for (int i = 0; i < qkv->parts; i++) {
        const int row = qkv->first.index + i;
        trains |= gx_store_trains(v->store, row) || v->m->table.row[row].has_lora || v->m->table.row[row].has_scale;
        trains |= qkv->bias.index >= 0 && gx_store_trains(v->store, qkv->bias.index + i);
    }
    for (int i = 0; i < 2; i++)
        trains |= pair->qk_norm[i].index >= 0 && gx_store_trains(v->store, pair->qk_norm[i].index);
    return trains;
}

static void gx__att_backward_input(const GxPairView *v, GxRows din, GxRows dout, GxRows in)
{
    const GxPairSlot *s = v->slot;
    GxAttCall c = gx__att_call(v);
    const GxRows q = s->core[GX__ATT_Q], kv = c.keys->at(&c, q, s->core[GX__ATT_KV]), result = s->core[GX__ATT_RESULT],
                 dresult = gx_pass_rows(v->p, result.rows, result.cols);
    (void)in;
    v->p->dcore[GX__ATT_DQ] = gx__att_inner(v, GX__ATT_DQ, q);
    v->p->dcore[GX__ATT_DKV] = gx__att_inner(v, GX__ATT_DKV, s->core[GX__ATT_KV]);
    const GxRows dq = v->p->dcore[GX__ATT_DQ], dkv = c.keys->at(&c, dq, v->p->dcore[GX__ATT_DKV]);
    gx_linear_apply_backward_input(v->p, &v->pair->linear[GX__ATT_O], dresult, dout, 0);
    if (gx_view_has_prompt(v) && !gx__att_trains_below(v, din)) { // the lowest prompt: dq is not needed
        gx_prompt_backward(v, &c.a, &c.kv, gx_no_rows(), dresult, q);
        return;
    }
    gx_relative_begin_backward(v, &c.a);
    if (gx__att_goes_round(v)) gx_ring_backward(v->p, dq, dkv, dresult, result, s->lse, q, kv, &c.a);
    else
        gx_attention_backward(v->g, dq.data, gx_rows_column(dkv, c.k_column), gx_rows_column(dkv, c.v_column),
                              dresult.data, result.data, s->lse, q.data, gx_rows_column(kv, c.k_column),
                              gx_rows_column(kv, c.v_column), &c.a);
    gx_relative_backward(v, &c.a);
    if (gx_view_has_prompt(v)) gx_prompt_backward(v, &c.a, &c.kv, dq, dresult, q);
    c.keys->project_backward(v, &c, din);
}

static void gx__att_backward_weight(const GxPairView *v, GxRows dout, GxRows in)
{
    const GxPair *pair = v->pair;
    const GxAttCall c = gx__att_call(v);
    GxRows result = v->slot->core[GX__ATT_RESULT];
    if (gx_view_has_prompt(v) && gx_store_trains(v->store, pair->linear[GX__ATT_O].first.index))
        result = gx_prompt_added(v, result);
    gx_linear_apply_backward_weight(v->p, &pair->linear[GX__ATT_O], dout, result);
    c.keys->backward_weight(v, &c, in);
}

const GxCore gx_att = {gx__att_open, gx__att_layout, gx__att_forward, gx__att_backward_input, gx__att_backward_weight};
#endif
