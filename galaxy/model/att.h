// model/att.h: self-attention as a core: q, k, v = in W^T + b, a norm of each head of q and k and rotary positions
// where the model has them, softmax(q k^T / sqrt(h)) v with dropout, out projection; the bias of that is CON's.
//
// By TP a rank has its query heads and the K,V heads that they use, on all rows; `out` is its summand. By SP it has all
// heads, its slice of T as queries, and the keys and values of all rows: these are gathered inside, and their
// gradients, each rank's a summand, are brought back to their rows by a reduce-scatter. With a cache the new rows' keys
// and values are put into its pages, and the queries see all that it has so far, or their windows of that; what no
// window will see again keeps its pages. h is head_dim; H, K are this rank's heads.
//
// Norms of heads have one weight of h for all heads of q, and one for k's. Each rank's gradient of them is that of its
// own heads, or of its own rows, so it is summed over tp. A K head that several ranks use is no exception: each has the
// gradient that its own query heads make, and a norm's backward is linear in that. What they read, q and k before them,
// is kept beside the normed ones, (H+K)h more elements of a row: from the normed ones it cannot be had, since a weight
// may be 0, and in bf16 not exactly.
//
// With prompts (prompt.h) what queries find there is added to the result, before the out projection.
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
enum {
    GX__ATT_Q = 0,
    GX__ATT_RESULT,
    GX__ATT_KV,
    GX__ATT_BEFORE
};                                    // in a slot: q, k, v [rows, (H+2K)h] | [rows, Hh]; where K and V are
                                      // gathered q [rows, Hh] and, of all rows, K and V [all, 2Kh]; where heads are
                                      // normed q, k before that [rows, (H+K)h]
enum { GX__ATT_DQ = 0, GX__ATT_DKV }; // inner gradients: alike

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

// Whether other ranks have rows whose keys and values are wanted here.
static int gx__att_gathers(const GxModel *m) { return m->mode->methods.att == GX_METHOD_SP && m->members > 1; }

static void gx__att_lay(GxSlotLayer *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    const int64_t h = u->spec.pair[k].core.head_dim, Q = gx_share_count(&u->q), KV = gx_share_count(&u->kv);
    const int gathers = gx__att_gathers(l->m);
    s->core[GX__ATT_Q] = gx_slot_rows(l, rows, gathers ? Q : Q + 2 * KV);
    s->core[GX__ATT_RESULT] = gx_slot_rows(l, rows, Q);
    if (gathers) s->core[GX__ATT_KV] = gx_slot_rows(l, l->all, 2 * KV);
    s->lse = (float *)gx_arena_take(&l->arena, GX_MEM_ACTIVATIONS, 4 * rows * (Q / h));
    if (u->spec.pair[k].core.has_qk_norm) {
        s->core[GX__ATT_BEFORE] = gx_slot_rows(l, rows, Q + KV);
        s->qk_rstd = (float *)gx_arena_take(&l->arena, GX_MEM_ACTIVATIONS, 4 * rows * ((Q + KV) / h));
    }
    gx_prompt_lay(l, u, k, rows, s);
    if (!l->owns_gradients) return;
    s->dcore[GX__ATT_DQ] = gx_slot_rows(l, rows, s->core[GX__ATT_Q].cols);
    if (gathers) s->dcore[GX__ATT_DKV] = gx_slot_rows(l, l->all, 2 * KV);
}

// ---- q, k and v: side by side in each row, or K and V apart and of all rows ----------------------------------------

typedef struct {
    GxAttention a;
    GxRuns own;     // positions of this rank's rows
    GxLinear q, kv; // where they are apart
    int gathers, is_apart;
    GxRows cache;               // its pool of pages; no rows: there is none
    int64_t k_column, v_column; // of K's first row, V's first row
} GxAttCall;

// Does attention's backward itself turn the gradients of q and k back? Not where others are added to them before that:
// those of other ranks' queries, or of prompts.
static int gx__att_backward_turns(const GxPass *p, int k, const GxAttCall *c)
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
    c.a.causal = s->is_causal, c.a.window = p->m->unit[p->unit].window;
    c.a.dtype = p->m->store.dtype;
    c.k_column = c.is_apart ? 0 : c.a.H * h;
    c.v_column = c.k_column + c.a.K * h;
    c.a.documents = p->b->documents;
    c.a.pages = c.cache.data ? p->b->cache->table : NULL;
    c.a.dropout = p->b->is_training ? s->dropout : 0;
    c.a.site = gx_pass_dropout(p, k, GX_DROPOUT_ATT, s->dropout).site;
    c.a.first_sample = p->b->first_sample, c.a.T = p->b->T;
    c.a.heads = s->heads, c.a.head_first = gx_share_mine(&u->q).begin / h;
    if (gx__att_backward_turns(p, k, &c)) {
        c.a.cosine = p->m->rope[gx_pass_is_side(p)].cosine;
        c.a.sine = p->m->rope[gx_pass_is_side(p)].sine;
    }
    c.q = gx_model_linear(p->m, qkv->first, 1, qkv->bias);
    c.kv = gx_model_linear(p->m, second, 2, second_bias);
    return c;
}

// Turns the heads of rows by their positions, forth (1) or back (-1), where the model has rotary positions.
static void gx__att_turn(GxPass *p, int k, const GxAttCall *c, GxRows x, int64_t heads, int64_t stride, int direction)
{
    const int64_t h = c->a.head_dim;
    const GxRopeTable *r = &p->m->rope[gx_pass_is_side(p)];
    if (gx_pass_spec(p, k)->core.rope.theta <= 0) return;
    if (direction > 0) gx_rope_forward(p->g, x.data, r->cosine, r->sine, &c->own, c->a.B, heads, h, stride, x.dtype);
    else gx_rope_backward(p->g, x.data, r->cosine, r->sine, &c->own, c->a.B, heads, h, stride, x.dtype);
}

// Norms the heads of q and of k, in rows of kv (or q's own), forth (1) or back (-1), where the model has such norms.
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

static GxRows gx__att_queries(const GxAttCall *c, GxRows q) // where they lie; a slot has room for K and V behind them
{
    return c->cache.data ? gx_rows(q.data, q.dtype, q.rows, c->a.q_stride) : q;
}
// With a cache: K and V of the batch's rows, behind all of its queries, on their way into the pages.
static GxRows gx__att_new_keys(const GxAttCall *c, GxRows q)
{
    const GxRows queries = gx__att_queries(c, q);
    return gx_rows((char *)q.data + gx_rows_bytes(queries), q.dtype, q.rows, c->a.kv_stride);
}
static GxRows gx__att_keys(const GxAttCall *c, GxRows q, GxRows kv) // where K and V lie
{
    return c->cache.data ? c->cache : c->gathers ? kv : q;
}

// q, k, v = in W^T, q and k normed and turned by their positions; K and V of all rows where they are gathered, or in
// the cache.
static void gx__att_project(GxPass *p, int k, const GxAttCall *c, GxRows in)
{
    const GxPairSlot *s = gx_pass_slot(p, k);
    const GxRows q = gx__att_queries(c, s->core[GX__ATT_Q]);
    if (!c->is_apart) {
        gx_linear_apply(p, &gx_pass_pair(p, k)->linear[GX__ATT_QKV], q, in, 0);
        gx__att_norm(p, k, c, q, q, 1);
        gx__att_turn(p, k, c, q, c->a.H + c->a.K, c->a.q_stride, 1);
        return;
    }
    const GxRows kv = gx__att_keys(c, q, s->core[GX__ATT_KV]),
                 own = c->gathers ? gx_slice(p, kv) : gx__att_new_keys(c, s->core[GX__ATT_Q]);
    gx_linear_apply(p, &c->q, q, in, 0);
    gx_linear_apply(p, &c->kv, own, in, 0);
    gx__att_norm(p, k, c, q, own, 1);
    gx__att_turn(p, k, c, q, c->a.H, c->a.q_stride, 1);
    gx__att_turn(p, k, c, own, c->a.K, c->a.kv_stride, 1);
    if (c->gathers) gx_tp_all_gather(p, k, GX_INSIDE, kv, own);
    else
        gx_put_pages(p->g, kv.data, own.data, c->a.pages, p->b->T, c->a.B, c->own.run[0].position, own.cols, own.dtype);
    gx_pass_at(p, k, GX_AT_CORE);
}

static void gx__att_project_backward(GxPass *p, int k, const GxAttCall *c, GxRows din)
{
    const GxRows dq = p->dcore[GX__ATT_DQ], dkv = p->dcore[GX__ATT_DKV];
    if (!c->gathers) {
        if (!c->a.cosine) gx__att_turn(p, k, c, dq, c->a.H + c->a.K, c->a.q_stride, -1);
        gx__att_norm(p, k, c, dq, dq, -1);
        gx_linear_apply_backward_input(p, &gx_pass_pair(p, k)->linear[GX__ATT_QKV], din, dq, 0);
        return;
    }
    const GxRows own = gx_slice(p, dkv);
    gx_tp_reduce_scatter(p, k, GX_INSIDE, own, dkv);
    gx_pass_at(p, k, GX_AT_CORE);
    gx__att_turn(p, k, c, dq, c->a.H, c->a.q_stride, -1);
    gx__att_turn(p, k, c, own, c->a.K, c->a.kv_stride, -1);
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

// Something below attention's result is trained: its queries, keys and values, or what they are made of.
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
    if (gx_pass_has_prompt(p, k) && !gx__att_trains_below(p, k, din)) { // the lowest prompt: nobody asks for dq
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

const GxCore gx_att = {gx__att_open, gx__att_lay, gx__att_forward, gx__att_backward_input, gx__att_backward_weight};
#endif
