// model/att.h: self-attention as a core:
//
//     q, k, v = in W^T + b                    then, where the model has them: a norm of each head of q and k, RoPE
//     result  = softmax(q k^T / sqrt(h)) v    with dropout of the probabilities
//     out     = result Wo^T                   the bias of Wo is CON's
//
// h is head_dim; H and K are the numbers of this rank's query heads and K,V heads.
//
// TP: a rank has its query heads and the K,V heads that they use, on all rows; `out` is its summand.
// SP: a rank has all heads, the queries of its slice of T, and the keys and values of all rows. Keys and values are
// all-gathered inside the core; their gradients, of which each rank has a summand, are reduce-scattered to their rows.
//
// With a KV cache the keys and values of the new rows are written into its pages. The queries see all positions in the
// cache, or those in their window. Pages that no window will reach again are not freed.
//
// The head norms have one weight [h] shared by all heads of q, and one by those of k. A rank computes the gradient from
// its own heads (TP) or its own rows (SP), so it is summed over tp. This also holds for a K head that several ranks
// use: each rank has the part of its gradient that comes from its own query heads, and a norm's backward is linear in
// that. The inputs of the norms are kept, (H+K)h elements a row: they cannot be recomputed from the outputs, since a
// weight may be 0, and in bf16 not exactly.
//
// With prompts (prompt.h) the attention to them is added to `result` before the out projection.
#ifndef GX_ATT_H
#define GX_ATT_H
#include "kv_cache.h"
#include "linear.h"
#include "mode.h"
#include "prompt.h"
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
    GX__ATT_KV,     // if K and V are gathered: those of all rows [all, 2Kh]
    GX__ATT_BEFORE  // with head norms: their inputs, q and k [rows, (H+K)h]
};
enum { GX__ATT_DQ = 0, GX__ATT_DKV }; // the gradients of GX__ATT_Q and GX__ATT_KV

static void gx__att_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxCoreSpec *c = &u->spec.pair[k].core;
    const int64_t C = u->spec.width, Q = c->heads * c->head_dim, KV = c->kv_heads * c->head_dim;
    const GxLayout layout = gx_block_takes(m->mode->methods.att);
    const GxTensorUse use[4] = {{c->matrix[0], number, GX_ROLE_WEIGHT, {Q, C}, &u->q, NULL, layout, 0, 0, 0},
                                {c->matrix[1], number, GX_ROLE_WEIGHT, {KV, C}, &u->kv, NULL, layout, 1, 0, 0},
                                {c->matrix[2], number, GX_ROLE_WEIGHT, {KV, C}, &u->kv, NULL, layout, 1, 0, 0},
                                {c->matrix[3], number, GX_ROLE_WEIGHT, {C, Q}, NULL, &u->q, layout, 0, 0, 0}},
                      bias[3] = {{c->matrix[0], number, GX_ROLE_BIAS, {Q, 0}, &u->q, NULL, layout, 0, 0, 0},
                                 {c->matrix[1], number, GX_ROLE_BIAS, {KV, 0}, &u->kv, NULL, layout, 1, 0, 0},
                                 {c->matrix[2], number, GX_ROLE_BIAS, {KV, 0}, &u->kv, NULL, layout, 1, 0, 0}};
    const int is_by_heads = m->mode->methods.att == GX_METHOD_TP;
    GxTensorId id[3], b[3] = {gx_no_tensor(), gx_no_tensor(), gx_no_tensor()};
    for (int i = 0; i < 2 && c->has_qk_norm; i++) {
        const GxTensorUse norm = {c->qk_norm[i], number, GX_ROLE_NORM, {c->head_dim, 0}, NULL, NULL, layout, 0, 0,
                                  is_by_heads};
        m->unit[unit].pair[k].qk_norm[i] = gx_model_tensor(g, m, unit, k, &norm);
    }
    for (int i = 0; i < 3; i++) id[i] = gx_model_tensor(g, m, unit, k, &use[i]);
    for (int i = 0; i < 3 && c->has_bias; i++) b[i] = gx_model_tensor(g, m, unit, k, &bias[i]);
    const GxTensorId out = gx_model_tensor(g, m, unit, k, &use[3]);
    m->unit[unit].pair[k].linear[GX__ATT_QKV] = gx_model_linear(m, id[0], 3, b[0]);
    m->unit[unit].pair[k].linear[GX__ATT_O] = gx_model_linear(m, out, 1, gx_no_tensor());
}

// 1: the keys and values of other ranks' rows are gathered.
static int gx__att_gathers(const GxModel *m) { return m->mode->methods.att == GX_METHOD_SP && m->members > 1; }

static void gx__att_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    const int64_t h = u->spec.pair[k].core.head_dim, Q = gx_share_count(&u->q), KV = gx_share_count(&u->kv);
    const int gathers = gx__att_gathers(l->m);
    s->core[GX__ATT_Q] = gx_slot_rows(l, rows, gathers ? Q : Q + 2 * KV);
    s->core[GX__ATT_RESULT] = gx_slot_rows(l, rows, Q);
    if (gathers) s->core[GX__ATT_KV] = gx_slot_rows(l, l->all, 2 * KV);
    s->lse = (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * rows * (Q / h));
    if (u->spec.pair[k].core.has_qk_norm) {
        s->core[GX__ATT_BEFORE] = gx_slot_rows(l, rows, Q + KV);
        s->qk_rstd = (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * rows * ((Q + KV) / h));
    }
    gx_prompt_layout(l, u, k, rows, s);
    if (!l->defers_weights) return;
    s->dcore[GX__ATT_DQ] = gx_slot_rows(l, rows, s->core[GX__ATT_Q].cols);
    if (gathers) s->dcore[GX__ATT_DKV] = gx_slot_rows(l, l->all, 2 * KV);
}

// ---- q, k and v: side by side in each row, or K and V in a buffer of their own, of all rows ------------------------

typedef struct {
    GxAttention a;
    GxRuns own;                 // positions of this rank's rows
    GxLinear q, kv;             // used if is_apart
    int gathers, is_apart;      // K and V are gathered; K and V are not beside q
    GxRows cache;               // the cache's pool of pages; no rows: there is no cache
    int64_t k_column, v_column; // the columns where K and V begin
} GxAttCall;

// 1: the attention operation's backward also applies RoPE's backward to dq and dk. It cannot if the gradients from
// other ranks' queries or from prompts have to be added first.
static int gx__att_backward_rotates(const GxPass *p, int k, const GxAttCall *c)
{
    return gx_pass_spec(p, k)->core.rope.theta > 0 && !c->gathers && !gx_pass_has_prompt(p, k);
}

static GxAttCall gx__att_call(const GxPass *p, int k)
{
    GxAttCall c = GX_ZERO;
    const GxUnitKind *u = gx_pass_kind(p);
    const GxCoreSpec *s = &u->spec.pair[k].core;
    const GxLinear *qkv = &gx_pass_pair(p, k)->linear[GX__ATT_QKV];
    const GxTensorId second = {qkv->first.index + 1}, second_bias = {qkv->bias.index < 0 ? -1 : qkv->bias.index + 1};
    const int64_t h = s->head_dim, slice = p->m->member;
    const GxSplit *rows = &p->slot->rows;
    c.gathers = gx__att_gathers(p->m);
    c.own = c.gathers
                ? gx_runs_slice(&p->b->runs, rows->begin[slice] / p->b->B, gx_split_part(rows, (int)slice) / p->b->B)
                : p->b->runs;
    c.a.B = p->b->B;
    c.a.H = gx_share_count(&u->q) / h;
    c.a.K = gx_share_count(&u->kv) / h;
    c.a.head_dim = h;
    c.a.group = s->heads / s->kv_heads;
    c.a.q_first = u->q_first;
    c.cache = p->b->cache ? gx_kv_cache_rows(p) : gx_no_rows();
    c.is_apart = c.gathers || c.cache.data;
    c.a.q_runs = c.own, c.a.k_runs = p->b->runs;
    if (c.cache.data) c.a.k_runs = gx_runs_one(c.own.run[0].position + p->b->T, 0);
    c.a.q_stride = c.is_apart ? c.a.H * h : (c.a.H + 2 * c.a.K) * h;
    c.a.kv_stride = c.is_apart ? 2 * c.a.K * h : c.a.q_stride;
    c.a.o_stride = c.a.H * h;
    c.a.causal = s->is_causal, c.a.sliding_window = p->m->unit[p->unit].sliding_window;
    c.a.dtype = p->m->store.dtype;
    c.k_column = c.is_apart ? 0 : c.a.H * h;
    c.v_column = c.k_column + c.a.K * h;
    c.a.documents = p->b->documents;
    c.a.pages = c.cache.data ? p->b->cache->table : NULL;
    c.a.dropout = p->b->is_training ? s->dropout : 0;
    c.a.site = gx_pass_dropout(p, k, GX_DROPOUT_ATT, s->dropout).site;
    c.a.first_sample = p->b->first_sample, c.a.T = p->b->T;
    c.a.heads = s->heads, c.a.head_first = gx_share_mine(&u->q).begin / h;
    if (gx__att_backward_rotates(p, k, &c)) {
        c.a.cosine = p->m->rope[gx_pass_is_side(p)].cosine;
        c.a.sine = p->m->rope[gx_pass_is_side(p)].sine;
    }
    c.q = gx_model_linear(p->m, qkv->first, 1, qkv->bias);
    c.kv = gx_model_linear(p->m, second, 2, second_bias);
    return c;
}

// Applies RoPE to heads of rows: forward (direction 1) or backward (-1). Does nothing in a model without RoPE.
static void gx__att_rotate(GxPass *p, int k, const GxAttCall *c, GxRows x, int64_t heads, int64_t stride, int direction)
{
    const int64_t h = c->a.head_dim;
    const GxRopeTable *r = &p->m->rope[gx_pass_is_side(p)];
    if (gx_pass_spec(p, k)->core.rope.theta <= 0) return;
    if (direction > 0) gx_rope_forward(p->g, x.data, r->cosine, r->sine, &c->own, c->a.B, heads, h, stride, x.dtype);
    else gx_rope_backward(p->g, x.data, r->cosine, r->sine, &c->own, c->a.B, heads, h, stride, x.dtype);
}

// Applies the norms of q's and k's heads, forward (direction 1) or backward (-1). k is in kv, which may be q's rows.
// Does nothing in a model without such norms.
static void gx__att_norm(GxPass *p, int k, const GxAttCall *c, GxRows q, GxRows kv, int direction)
{
    const GxPairSlot *s = gx_pass_slot(p, k);
    const GxCoreSpec *spec = &gx_pass_spec(p, k)->core;
    const GxRows before = s->core[GX__ATT_BEFORE];
    const int64_t heads[2] = {c->a.H, c->a.K}, stride[2] = {c->a.q_stride, c->a.kv_stride};
    void *const x[2] = {q.data, gx_rows_column(kv, c->k_column)};
    for (int i = 0; i < 2 && spec->has_qk_norm; i++) {
        const GxHeadNorm n = {q.rows, heads[i], c->a.head_dim, stride[i], before.cols, spec->eps, q.dtype};
        const GxTensorId id = gx_pass_pair(p, k)->qk_norm[i];
        const void *w = gx_store_weight(&p->m->store, id);
        void *kept = gx_rows_column(before, i * c->a.H * c->a.head_dim);
        float *rstd = s->qk_rstd + i * q.rows * c->a.H;
        int accumulate = 0;
        if (direction > 0) gx_head_norm_forward(p->g, x[i], kept, rstd, w, &n);
        else {
            float *dw = gx_store_grad(&p->m->store, id, &accumulate);
            gx_head_norm_backward(p->g, x[i], dw, kept, rstd, w, &n, accumulate);
        }
    }
}

static GxRows gx__att_queries(const GxAttCall *c, GxRows q) // with a cache, K and V follow the queries (see new_keys)
{
    return c->cache.data ? gx_rows(q.data, q.dtype, q.rows, c->a.q_stride) : q;
}
// With a cache: the K and V of the batch's rows before they are copied into the pages. They follow all queries.
static GxRows gx__att_new_keys(const GxAttCall *c, GxRows q)
{
    const GxRows queries = gx__att_queries(c, q);
    return gx_rows((char *)q.data + gx_rows_bytes(queries), q.dtype, q.rows, c->a.kv_stride);
}
static GxRows gx__att_keys(const GxAttCall *c, GxRows q, GxRows kv) // where K and V lie
{
    return c->cache.data ? c->cache : c->gathers ? kv : q;
}

// Computes q, k, v = in W^T + b, the head norms and RoPE; then gathers K and V of all rows, or writes them into the
// cache.
static void gx__att_project(GxPass *p, int k, const GxAttCall *c, GxRows in)
{
    const GxPairSlot *s = gx_pass_slot(p, k);
    const GxRows q = gx__att_queries(c, s->core[GX__ATT_Q]);
    if (!c->is_apart) {
        gx_linear_apply(p, &gx_pass_pair(p, k)->linear[GX__ATT_QKV], q, in, 0);
        gx__att_norm(p, k, c, q, q, 1);
        gx__att_rotate(p, k, c, q, c->a.H + c->a.K, c->a.q_stride, 1);
        return;
    }
    const GxRows kv = gx__att_keys(c, q, s->core[GX__ATT_KV]),
                 own = c->gathers ? gx_slice(p, kv) : gx__att_new_keys(c, s->core[GX__ATT_Q]);
    gx_linear_apply(p, &c->q, q, in, 0);
    gx_linear_apply(p, &c->kv, own, in, 0);
    gx__att_norm(p, k, c, q, own, 1);
    gx__att_rotate(p, k, c, q, c->a.H, c->a.q_stride, 1);
    gx__att_rotate(p, k, c, own, c->a.K, c->a.kv_stride, 1);
    if (c->gathers) gx_tp_all_gather(p, k, GX_INSIDE, kv, own);
    else
        gx_put_pages(p->g, kv.data, own.data, c->a.pages, p->b->T, c->a.B, c->own.run[0].position, own.cols, own.dtype);
    gx_pass_at(p, k, GX_AT_CORE);
}

static void gx__att_project_backward(GxPass *p, int k, const GxAttCall *c, GxRows din)
{
    const GxRows dq = p->dcore[GX__ATT_DQ], dkv = p->dcore[GX__ATT_DKV];
    if (!c->gathers) {
        if (!c->a.cosine) gx__att_rotate(p, k, c, dq, c->a.H + c->a.K, c->a.q_stride, -1);
        gx__att_norm(p, k, c, dq, dq, -1);
        gx_linear_apply_backward_input(p, &gx_pass_pair(p, k)->linear[GX__ATT_QKV], din, dq, 0);
        return;
    }
    const GxRows own = gx_slice(p, dkv);
    gx_tp_reduce_scatter(p, k, GX_INSIDE, own, dkv);
    gx_pass_at(p, k, GX_AT_CORE);
    gx__att_rotate(p, k, c, dq, c->a.H, c->a.q_stride, -1);
    gx__att_rotate(p, k, c, own, c->a.K, c->a.kv_stride, -1);
    gx__att_norm(p, k, c, dq, own, -1);
    gx_linear_apply_backward_input(p, &c->q, din, dq, 0);
    gx_linear_apply_backward_input(p, &c->kv, din, own, 1);
}

// ---- the core ------------------------------------------------------------------------------------------------------

static void gx__att_forward(GxPass *p, int k, GxRows out, GxRows in)
{
    const GxPairSlot *s = gx_pass_slot(p, k);
    const GxAttCall c = gx__att_call(p, k);
    const GxRows kv = gx__att_keys(&c, s->core[GX__ATT_Q], s->core[GX__ATT_KV]);
    GxRows result = s->core[GX__ATT_RESULT];
    gx__att_project(p, k, &c, in);
    gx_attention_forward(p->g, result.data, s->lse, s->core[GX__ATT_Q].data, gx_rows_column(kv, c.k_column),
                         gx_rows_column(kv, c.v_column), &c.a);
    if (gx_pass_has_prompt(p, k)) gx_prompt_forward(p, k, &c.a, &c.kv, s->core[GX__ATT_Q]);
    if (out.data && gx_pass_has_prompt(p, k)) result = gx_prompt_added(p, k, result);
    if (out.data) gx_linear_apply(p, &gx_pass_pair(p, k)->linear[GX__ATT_O], out, result, 0);
}

static GxRows gx__att_inner(GxPass *p, int k, int which, GxRows like)
{
    if (!like.data) return gx_no_rows();
    return p->defers_weights ? gx_pass_slot(p, k)->dcore[which] : gx_pass_rows(p, like.rows, like.cols);
}

// 1: a tensor below attention's result is trained: one of q, k, v or below the core, so that dq is needed.
static int gx__att_trains_below(const GxPass *p, int k, GxRows din)
{
    const GxPair *pair = gx_pass_pair(p, k);
    const GxLinear *qkv = &pair->linear[GX__ATT_QKV];
    int trains = din.data != NULL;
    for (int i = 0; i < qkv->parts; i++) {
        const int row = qkv->first.index + i;
        trains |= gx_store_trains(&p->m->store, row) || p->m->table.row[row].has_lora || p->m->table.row[row].has_scale;
        trains |= qkv->bias.index >= 0 && gx_store_trains(&p->m->store, qkv->bias.index + i);
    }
    for (int i = 0; i < 2; i++)
        trains |= pair->qk_norm[i].index >= 0 && gx_store_trains(&p->m->store, pair->qk_norm[i].index);
    return trains;
}

static void gx__att_backward_input(GxPass *p, int k, GxRows din, GxRows dout, GxRows in)
{
    const GxPairSlot *s = gx_pass_slot(p, k);
    const GxAttCall c = gx__att_call(p, k);
    const GxRows q = s->core[GX__ATT_Q], kv = gx__att_keys(&c, q, s->core[GX__ATT_KV]),
                 result = s->core[GX__ATT_RESULT], dresult = gx_pass_rows(p, result.rows, result.cols);
    (void)in;
    p->dcore[GX__ATT_DQ] = gx__att_inner(p, k, GX__ATT_DQ, q);
    p->dcore[GX__ATT_DKV] = gx__att_inner(p, k, GX__ATT_DKV, s->core[GX__ATT_KV]);
    const GxRows dq = p->dcore[GX__ATT_DQ], dkv = gx__att_keys(&c, dq, p->dcore[GX__ATT_DKV]);
    gx_linear_apply_backward_input(p, &gx_pass_pair(p, k)->linear[GX__ATT_O], dresult, dout, 0);
    if (gx_pass_has_prompt(p, k) && !gx__att_trains_below(p, k, din)) { // the lowest prompt: dq is not needed
        gx_prompt_backward(p, k, &c.a, &c.kv, gx_no_rows(), dresult, q);
        return;
    }
    gx_attention_backward(p->g, dq.data, gx_rows_column(dkv, c.k_column), gx_rows_column(dkv, c.v_column), dresult.data,
                          result.data, s->lse, q.data, gx_rows_column(kv, c.k_column), gx_rows_column(kv, c.v_column),
                          &c.a);
    if (gx_pass_has_prompt(p, k)) gx_prompt_backward(p, k, &c.a, &c.kv, dq, dresult, q);
    gx__att_project_backward(p, k, &c, din);
}

static void gx__att_backward_weight(GxPass *p, int k, GxRows dout, GxRows in)
{
    const GxPair *pair = gx_pass_pair(p, k);
    const GxAttCall c = gx__att_call(p, k);
    GxRows result = gx_pass_slot(p, k)->core[GX__ATT_RESULT];
    if (gx_pass_has_prompt(p, k) && gx_store_trains(&p->m->store, pair->linear[GX__ATT_O].first.index))
        result = gx_prompt_added(p, k, result);
    gx_linear_apply_backward_weight(p, &pair->linear[GX__ATT_O], dout, result);
    if (!c.gathers) {
        gx_linear_apply_backward_weight(p, &pair->linear[GX__ATT_QKV], p->dcore[GX__ATT_DQ], in);
        return;
    }
    gx_linear_apply_backward_weight(p, &c.q, p->dcore[GX__ATT_DQ], in);
    gx_linear_apply_backward_weight(p, &c.kv, gx_slice(p, p->dcore[GX__ATT_DKV]), in);
}

const GxCore gx_att = {gx__att_open, gx__att_layout, gx__att_forward, gx__att_backward_input, gx__att_backward_weight};
#endif
