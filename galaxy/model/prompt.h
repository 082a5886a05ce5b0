// model/prompt.h: prompts in attention, LLaMA-Adapter (Zhang et al. 2023, arXiv:2303.16199): in the last layers each
// query also attends to `len` learned rows P, with a separate softmax, whose result is multiplied by a learned gate g.
// The rest of the model is frozen (tuned.h).
//
//     K = P Wk^T + bk,  V = P Wv^T + bv         the layer's own matrices; K has the keys' head norm, but no RoPE
//     result += softmax(q K^T / sqrt(h)) (g V)  before the out projection; q as in the layer's attention, after RoPE
//
// P is [len, C], initially normal with a standard deviation of 1; g is one number a layer, initially 0. So training
// starts from the unchanged model, and in the first step only g has a gradient. This is peft's ADAPTION_PROMPT. The
// gate multiplies V [len, Kh] rather than the result [rows, Hh]: its product and gradient are then linears of 1 x 1
// (ops/linear.h).
//
// Since q has RoPE and K does not, the result depends on a text's absolute positions. Each text's queries are therefore
// rotated as if it began at position 0, wherever it is in its column (rope_restart).
//
// K and V are the same for all columns of the batch, so the attention operation gets one column of T*B queries. All of
// them, padding included, attend to all len keys. With TP a rank has K and V of its own heads; with SP those of all
// heads, for the queries of its own rows. In both cases the gradients of P and g are summands, like those of the head
// norms (att.h).
//
// Every forward computes K and V, 2 len C Kh FLOPs, also for each generated token. Memory: each layer keeps K, V and
// g V [len, Kh], and for each row the result [Hh] and a log-sum-exp a head.
//
// Names: model.layers.2.self_attn.adaption_prompt [1, len, C], .adaption_gate [1].
#ifndef GX_MODEL_PROMPT_H
#define GX_MODEL_PROMPT_H
#include "../ops/attention.h"
#include "linear.h"
#include "unit_tensors.h"
GX_BEGIN

GxTuner gx_prompt_tuner(void);

static inline int gx_view_has_prompt(const GxPairView *v) { return v->pair->prompt.index >= 0; }

// For the attention of a pair with prompts. q: its queries; a: their layout; kv: the packed linears of k and v.
void gx_prompt_forward(const GxPairView *v, const GxAttention *a, const GxLinear *kv, GxRows q);
GxRows gx_prompt_added(const GxPairView *v, GxRows result); // result + the attention to prompts, in scratch
// d: the gradient of that sum. Adds to dq, laid out like q (no rows: not needed), and to the gradients of P and g.
void gx_prompt_backward(const GxPairView *v, const GxAttention *a, const GxLinear *kv, GxRows dq, GxRows d, GxRows q);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_PROMPT_IMPLEMENTED)
#define GX_MODEL_PROMPT_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../base/text.h"
#include "../ops/elementwise.h"
#include "../ops/norm.h"

enum { // a slot's buffers; PRODUCTS: P Wk^T and P Wv^T before a scale (scale.h)
    GX__PROMPT_K = 0,
    GX__PROMPT_V,
    GX__PROMPT_GATED,
    GX__PROMPT_FOUND,
    GX__PROMPT_BEFORE,
    GX__PROMPT_PRODUCTS
};

static int64_t gx__prompt_model_layers(const GxModel *m)
{
    const GxField *f = gx_family_field(m->family, "num_hidden_layers");
    return f ? *(const int64_t *)gx_field_in(f, m->config) : 0;
}

static GxStatus gx__prompt_check(GxModel *m, GxError *err)
{
    GxPrompt *o = &m->adapter.prompt;
    const int64_t layers = gx__prompt_model_layers(m);
    GX_TRY(gx_check_size("prompt_len", o->len, 65536, err));
    if (!layers)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "prompts are for models with one stack of layers, and a %s has two; use "
                       "--tuning lora or --tuning adapter",
                       m->family->name);
    if (o->layers < 0 || o->layers > layers)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "prompt_layers is %ld; it can be at most the model's number of layers, which is %ld",
                       (long)o->layers, (long)layers);
    if (o->layers == 0) o->layers = gx_max(1, layers - 2); // all but the first two, and at least one
    return GX_OK;
}

static GxStatus gx__prompt_check_trained(const GxModel *m, GxError *err)
{
    for (int unit = 0; unit < m->units; unit++)
        for (int k = 0; k < gx_unit_spec(m, unit)->n_pairs; k++) {
            const GxLinear *qkv = &m->unit[unit].pair[k].linear[0];
            const GxRope *rope = &gx_unit_spec(m, unit)->pair[k].core.rope;
            if (rope->theta > 0 && gx_rope_attention_factor(rope) != 1)
                return GX_FAIL(
                    err, GX_ERR_UNSUPPORTED,
                    "prompts are not supported with a RoPE that multiplies q and k, here by %g; use --tuning "
                    "lora or --tuning adapter",
                    gx_rope_attention_factor(rope));
            const GxTensor *w = &m->table.row[qkv->first.index < 0 ? 0 : qkv->first.index];
            if (m->unit[unit].pair[k].prompt.index >= 0 && (!w[1].frozen || !w[2].frozen))
                return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                               "%s cannot be a trainable module, because prompts pass through it, and training both is "
                               "not supported; leave it out of the trainable modules",
                               w[1].frozen ? w[2].name : w[1].name);
        }
    return GX_OK;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

// Named like the core's last matrix, with the last component replaced by `what`.
static GxTensorId gx__prompt_tensor(GxContext *g, GxModel *m, int unit, int k, int number, const char *what,
                                    GxRole role, int64_t rows, int64_t cols)
{
    const GxCoreSpec *core = &gx_unit_spec(m, unit)->pair[k].core;
    const char *last = core->matrix[gx_core_last_matrix(core)], *dot = strrchr(last, '.');
    const GxMethod att = m->mode->methods.att;
    char name[GX_MODULE];
    GxTensorUse use = gx_tensor_use(name, number, role, rows, cols, gx_block_takes(att));
    use.is_own_share = att == GX_METHOD_TP;
    snprintf(name, sizeof name, "%.*s%s", dot ? (int)(dot + 1 - last) : 0, last, what);
    const GxTensorId id = gx_model_tensor(g, m, unit, k, &use);
    if (id.index < 0) return id;
    GxTensor *t = &m->table.row[id.index];
    t->is_added = 1;
    t->name[gx_text_stem(t->name, ".weight")] = 0; // in peft it is a parameter of attention, not a module with a weight
    return id;
}

static void gx__prompt_open(GxContext *g, GxModel *m, int unit, int number)
{
    const GxUnitSpec *u = gx_unit_spec(m, unit);
    for (int k = 0; k < u->n_pairs && !gx_failed(g); k++) {
        GxPair *pair = &m->unit[unit].pair[k];
        if (u->pair[k].core.kind != GX_CORE_ATT) continue;
        if (u->pair[k].enter.kind != GX_ENTER_NORM || !u->pair[k].core.is_causal) {
            GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                    "prompts (LLaMA-Adapter) need a causal model with norms before attention, such as a LLaMA, and %s "
                    "is none; use --tuning lora or --tuning adapter",
                    m->family->name);
            return;
        }
        if (number < gx__prompt_model_layers(m) - m->adapter.prompt.layers) continue;
        pair->gate = gx__prompt_tensor(g, m, unit, k, number, "adaption_gate", GX_ROLE_WEIGHT, 1, 0);
        pair->prompt = gx__prompt_tensor(g, m, unit, k, number, "adaption_prompt", GX_ROLE_WEIGHT,
                                         m->adapter.prompt.len, u->width);
        if (gx_failed(g)) return;
        GxTensor *p = &m->table.row[pair->prompt.index];
        m->table.row[pair->gate.index].init = GX_INIT_ZEROS;
        p->init_std = 1;
        p->ndim = 3; // [1, len, C], as in peft
        p->global_shape[2] = p->end[2] = u->width, p->global_shape[1] = p->end[1] = m->adapter.prompt.len;
        p->global_shape[0] = p->end[0] = 1;
    }
}

// ---- at work -------------------------------------------------------------------------------------------------------

static void gx__prompt_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    const int64_t h = u->spec.pair[k].core.head_dim, Q = gx_share_count(&u->q), KV = gx_share_count(&u->kv),
                  len = l->m->adapter.prompt.len;
    if (l->m->unit[l->unit].pair[k].prompt.index < 0) return;
    for (int i = GX__PROMPT_K; i <= GX__PROMPT_GATED; i++) s->prompt[i] = gx_slot_rows(l, len, KV);
    s->prompt[GX__PROMPT_FOUND] = gx_slot_rows(l, rows, Q);
    s->prompt_lse = (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * rows * (Q / h));
    for (int i = 0; i < 2 && gx_pair_has_scale(l->m, l->unit, k); i++)
        s->prompt[GX__PROMPT_PRODUCTS + i] = gx_slot_rows(l, len, KV);
    if (!u->spec.pair[k].core.has_qk_norm) return;
    s->prompt[GX__PROMPT_BEFORE] = gx_slot_rows(l, len, KV);
    s->prompt_rstd = (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * len * (KV / h));
}

static GxRows gx__prompt_rows(const GxPairView *v)
{
    return gx_rows(gx_store_weight(v->store, v->pair->prompt), v->store->dtype, v->m->adapter.prompt.len,
                   v->kind->spec.width);
}

// One of the two packed linears: that of k (i = 0) or of v (i = 1).
static GxLinear gx__prompt_linear(const GxPairView *v, const GxLinear *kv, int i)
{
    const GxTensorId w = {kv->first.index + i}, b = {kv->bias.index < 0 ? -1 : kv->bias.index + i};
    GxLinear l = gx_model_linear(v->m, w, 1, b);
    l.product = v->slot->prompt[GX__PROMPT_PRODUCTS + i].data;
    return l;
}

// The layer's attention, with all rows as one column of queries and the prompt's rows as keys.
static GxAttention gx__prompt_attention(const GxPairView *v, const GxAttention *of, int64_t rows)
{
    GxAttention a = *of;
    a.B = 1;
    a.q_runs = gx_runs_one(rows, 0), a.k_runs = gx_runs_one(v->m->adapter.prompt.len, 0);
    a.kv_stride = a.K * a.head_dim;
    a.causal = 0, a.sliding_window = 0, a.documents = NULL, a.pages = NULL, a.dropout = 0;
    return a;
}

// Applies the norm of k's heads to K: forward (direction 1), or backward to its gradient (-1).
static void gx__prompt_norm(const GxPairView *v, const GxAttention *a, GxRows x, int direction)
{
    const GxPairSlot *s = v->slot;
    const GxCoreSpec *spec = &v->spec->core;
    const GxHeadNorm n = {x.rows, a->K, a->head_dim, x.cols, x.cols, spec->eps, x.dtype, spec->offset};
    const GxTensorId id = v->pair->qk_norm[1];
    void *kept = s->prompt[GX__PROMPT_BEFORE].data;
    int accumulate = 0;
    if (!spec->has_qk_norm) return;
    const void *w = gx_store_weight(v->store, id);
    if (direction > 0) gx_head_norm_forward(v->g, x.data, kept, s->prompt_rstd, w, &n);
    else {
        float *dw = gx_store_grad(v->store, id, &accumulate);
        gx_head_norm_backward(v->g, x.data, dw, kept, s->prompt_rstd, w, &n, accumulate);
    }
}

static int gx__prompt_restarts(const GxPairView *v, const GxAttention *a) { return a->documents && gx_view_rotates(v); }

// The queries, rotated as if each document began at position 0. They are a copy in scratch, since attention also reads
// q; without documents, q itself.
static GxRows gx__prompt_queries(const GxPairView *v, const GxAttention *a, GxRows q)
{
    const GxRopeTable *r = gx_view_rope(v);
    // allocated even without documents: a plan does not know whether a batch will have any
    const GxRows turned = gx_pass_rows(v->p, gx_runs_rows(&a->q_runs) * a->B, a->q_stride);
    if (!gx__prompt_restarts(v, a)) return q;
    gx_copy(v->g, turned.data, q.data, gx_rows_bytes(turned));
    gx_rope_restart_forward(v->g, turned.data, r->cosine, r->sine, &a->q_runs, a->documents, a->B, a->H, a->head_dim,
                            a->q_stride, a->dtype);
    return turned;
}

void gx_prompt_forward(const GxPairView *v, const GxAttention *a, const GxLinear *kv, GxRows q)
{
    const GxPairSlot *s = v->slot;
    const GxRows K = s->prompt[GX__PROMPT_K], V = s->prompt[GX__PROMPT_V], gated = s->prompt[GX__PROMPT_GATED],
                 found = s->prompt[GX__PROMPT_FOUND], P = gx__prompt_rows(v);
    const GxLinear of_k = gx__prompt_linear(v, kv, 0), of_v = gx__prompt_linear(v, kv, 1);
    const GxAttention to = gx__prompt_attention(v, a, found.rows);
    const GxLinearShape gate = gx_linear_shape(V.rows * V.cols, 1, 1, V.dtype);
    const int before = gx_of_tensor(v->g, v->pair->prompt.index + 1);
    gx_linear_apply(v->p, &of_k, K, P, 0);
    gx__prompt_norm(v, a, K, 1);
    gx_linear_apply(v->p, &of_v, V, P, 0);
    gx_linear_forward(v->g, gated.data, V.data, gx_store_weight(v->store, v->pair->gate), NULL, &gate);
    gx_attention_forward(v->g, found.data, s->prompt_lse, gx__prompt_queries(v, a, q).data, K.data, gated.data, &to);
    gx_of_tensor(v->g, before);
}

GxRows gx_prompt_added(const GxPairView *v, GxRows result)
{
    const GxRows sum = gx_pass_rows(v->p, result.rows, result.cols);
    const int before = gx_of_tensor(v->g, v->pair->prompt.index + 1);
    gx_add(v->g, sum.data, result.data, v->slot->prompt[GX__PROMPT_FOUND].data, sum.rows * sum.cols, sum.dtype);
    gx_of_tensor(v->g, before);
    return sum;
}

// Computes the gradient of P, in fp32, from those of K and V.
static void gx__prompt_backward_rows(const GxPairView *v, const GxLinear *kv, GxRows dk, GxRows dv)
{
    int accumulate = 0;
    float *grad = gx_store_grad(v->store, v->pair->prompt, &accumulate);
    const GxLinear of_k = gx__prompt_linear(v, kv, 0), of_v = gx__prompt_linear(v, kv, 1);
    const GxRows d = gx_pass_rows(v->p, dk.rows, of_k.in);
    const int64_t n = d.rows * d.cols;
    const int is_float = d.dtype == GX_F32;
    if (!grad) return;
    gx_linear_apply_backward_input(v->p, &of_k, d, dk, 0);
    gx_linear_apply_backward_input(v->p, &of_v, d, dv, 1);
    float *wide = is_float ? (float *)d.data : accumulate ? (float *)gx_scratch(v->g, GX_MEM_ACTIVATIONS, 4 * n) : grad;
    if (!is_float) gx_convert(v->g, wide, GX_F32, d.data, d.dtype, n);
    if (accumulate) gx_add(v->g, grad, grad, wide, n, GX_F32);
    else if (is_float) gx_copy(v->g, grad, wide, 4 * n);
}

// Adds what P's rows contribute to the gradients of the scales and biases of k's and v's linears; attention adds what
// its own rows contribute.
static void gx__prompt_backward_linears(const GxPairView *v, const GxLinear *kv, GxRows dk, GxRows dv)
{
    const GxLinear of_k = gx__prompt_linear(v, kv, 0), of_v = gx__prompt_linear(v, kv, 1);
    gx_linear_apply_backward_weight(v->p, &of_k, dk, gx__prompt_rows(v));
    gx_linear_apply_backward_weight(v->p, &of_v, dv, gx__prompt_rows(v));
}

void gx_prompt_backward(const GxPairView *v, const GxAttention *a, const GxLinear *kv, GxRows dq, GxRows d, GxRows q)
{
    const GxPairSlot *s = v->slot;
    const GxRows K = s->prompt[GX__PROMPT_K], V = s->prompt[GX__PROMPT_V], gated = s->prompt[GX__PROMPT_GATED],
                 own = gx_pass_rows(v->p, s->prompt[GX__PROMPT_FOUND].rows, a->q_stride),
                 dk = gx_pass_rows(v->p, K.rows, K.cols), dgated = gx_pass_rows(v->p, V.rows, V.cols),
                 dv = gx_pass_rows(v->p, V.rows, V.cols);
    const GxAttention to = gx__prompt_attention(v, a, own.rows);
    const GxTensorId id = v->pair->gate;
    const GxRopeTable *r = gx_view_rope(v);
    GxLinearShape gate = gx_linear_shape(V.rows * V.cols, 1, 1, V.dtype);
    const int before = gx_of_tensor(v->g, -(v->pair->prompt.index + 1));
    if (dq.data && own.cols > a->H * a->head_dim) gx_zero(v->g, own.data, gx_rows_bytes(own)); // beside q: v->k and v
    gx_attention_backward(v->g, own.data, dk.data, dgated.data, d.data, s->prompt[GX__PROMPT_FOUND].data, s->prompt_lse,
                          gx__prompt_queries(v, a, q).data, K.data, gated.data, &to);
    if (dq.data && gx__prompt_restarts(v, a))
        gx_rope_restart_backward(v->g, own.data, r->cosine, r->sine, &a->q_runs, a->documents, a->B, a->H, a->head_dim,
                                 a->q_stride, a->dtype);
    if (dq.data) gx_add(v->g, dq.data, dq.data, own.data, dq.rows * dq.cols, dq.dtype);
    gx_linear_backward_input(v->g, dv.data, dgated.data, gx_store_weight(v->store, id), &gate);
    float *dgate = gx_store_grad(v->store, id, &gate.accumulate);
    if (dgate) gx_linear_backward_weight(v->g, dgate, NULL, dgated.data, V.data, &gate);
    gx__prompt_norm(v, a, dk, -1);
    gx__prompt_backward_linears(v, kv, dk, dv);
    gx__prompt_backward_rows(v, kv, dk, dv);
    gx_of_tensor(v->g, before);
}

// ---- the method ----------------------------------------------------------------------------------------------------

static int gx__prompt_is_on(const GxModel *m) { return m->adapter.prompt.len != 0; }
static const char *gx__prompt_trainable(const GxModel *m) { return m->adapter.prompt.trainable; }

static int gx__prompt_through(const GxModel *m, int row)
{
    const GxTensor *t = &m->table.row[row];
    const GxPair *pair = &m->unit[t->unit].pair[t->pair];
    return row == pair->gate.index ? pair->prompt.index : -1;
}

GxTuner gx_prompt_tuner(void)
{
    GxTuner t = GX_ZERO;
    t.name = "prompts", t.is_on = gx__prompt_is_on;
    t.check = gx__prompt_check, t.open = gx__prompt_open;
    t.trainable = gx__prompt_trainable, t.check_trained = gx__prompt_check_trained;
    t.through = gx__prompt_through;
    t.layout = gx__prompt_layout;
    return t;
}
#endif
