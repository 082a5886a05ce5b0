// llama.h: LLaMA (Touvron et al. 2023, arXiv:2302.13971; grouped heads as in LLaMA 2): its parameters, its buffers and the blocks of a layer.
//
// A layer is two (core, CON) pairs: x1 = x + ATT(norm1(x)), y = x1 + MLP(norm2(x1)). CON1 is the addition with norm2 fused to it; CON2 the
// addition alone, since the norm after it belongs to the next unit. How the blocks follow each other, and what is communicated between them, is
// a mode's matter: a mode (train_llama.cu and its siblings) supplies a GxLlamaMode and writes its layer out of these blocks.
//
// What it does not do (yet): biases, scaled RoPE, sliding windows, dropout.
#ifndef GX_LLAMA_H
#define GX_LLAMA_H
#include "linear.h"
#include "../ops/attention.h"
GX_BEGIN

typedef struct { // names as in Hugging Face's config.json
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
    int64_t max_position_embeddings;
    double rms_norm_eps, rope_theta, initializer_range;
    int tie_word_embeddings;
} GxLlamaConfig;

// Fills what is 0 with its default (kv heads: heads; head_dim: hidden/heads), refuses what cannot be.
GxStatus gx_llama_config_resolve(GxLlamaConfig *c, GxError *err);

typedef struct {
    int64_t begin, end;
} GxRange;

typedef struct {
    int64_t norm1, norm2; // offsets in the layer's unit
    GxLinear qkv, o, gate_up, down;
} GxLlamaLayer;

// What a layer's backward needs of its forward, and scratch. Kept: a slot of its own for each layer in flight. Scratch: all slots may share it
// (a schedule that puts weight gradients off gives each slot its own). `rows` stands for T*B, h for head_dim, H, K, F for this rank's share.
typedef struct {
    GxRows h1, qkv, att, x1, h2, gate_up; // kept: [rows, D | (H+2K)h | H*h | D | D | 2F]; the backward turns gate_up into its gradient
    float *rstd1, *rstd2, *lse;           // kept: [rows], [rows], [rows*H]
    GxRows a, m, s, dh, d_att, dqkv;      // scratch: [rows, D | D | F | D | H*h | (H+2K)h]
} GxLlamaSaved;

typedef struct GxLlamaMode GxLlamaMode;
typedef struct {
    GxModel model;
    GxModelKind kind;
    GxLlamaConfig config;
    const GxLlamaMode *mode;
    GxRange heads, kv_heads, columns, vocab; // this rank's share: whole, unless the mode's split says otherwise
    GxTensorId embed, norm, lm_head;         // lm_head: an alias of embed where they are tied
    GxLinear head;
    GxLlamaLayer *layer;
    GxLlamaSaved *saved;  // [layers]
    float *cosine, *sine; // [max T, head_dim/2]
    GxRows h, dh, logits; // of the head: [rows, D], [rows, D], [chunk, V]
    float *rstd, *losses; // [rows]
    int64_t max_rows;
} GxLlama;

struct GxLlamaMode {
    const char *name;
    GxStatus (*split)(GxContext *, GxLlama *);
    void (*embed_forward)(GxContext *, GxLlama *, const GxBatch *, GxRows x);
    void (*embed_backward)(GxContext *, GxLlama *, const GxBatch *, GxRows dx);
    void (*layer_forward)(GxContext *, GxLlama *, int layer, const GxBatch *, GxRows y, GxRows x);
    void (*layer_backward)(GxContext *, GxLlama *, int layer, const GxBatch *, GxRows dx, GxRows dy); // dx may be dy
    void (*head)(GxContext *, GxLlama *, const GxBatch *, GxRows dx, GxRows x, double *loss_sum);     // dx.data NULL: loss only
    void (*logits)(GxContext *, GxLlama *, GxRows logits, GxRows x, int64_t first_row);
};

// The model's table, without memory for it. Close it with gx_llama_close.
GxStatus gx_llama_open(GxContext *g, GxLlama *m, const GxLlamaConfig *config, const GxLlamaMode *mode);
void gx_llama_close(GxLlama *m);

// Takes the activations of one micro-batch of T x B from the arena (twice: on a dry one, then on the real one) and fills what is constant.
// head_chunk: rows whose logits exist at once.
void gx_llama_take_buffers(GxContext *g, GxLlama *m, int64_t T, int64_t B, int64_t head_chunk);
void gx_llama_set_rows(GxContext *g, GxLlama *m, int64_t rows); // of the batches to come: at most T*B

// ---- blocks: each takes whole rows and gives its share ---------------------------------------------------------------------------------------
void gx_llama_norm1_forward(GxContext *g, GxLlama *m, int layer, GxRows h1, GxRows x);
void gx_llama_norm1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dh1, GxRows x); // dx += norm1'(dh1)

void gx_llama_att_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows a, GxRows h1);
void gx_llama_att_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh1, GxRows da);
void gx_llama_att_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows da);

void gx_llama_con1_forward(GxContext *g, GxLlama *m, int layer, GxRows x1, GxRows h2, GxRows x, GxRows a); // x1 = x + a, h2 = norm2(x1)
void gx_llama_con1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dx1,
                            GxRows dh2); // dx = dx1 + norm2'(dh2)

void gx_llama_mlp_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows out, GxRows h2);
void gx_llama_mlp_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh2, GxRows dm);
void gx_llama_mlp_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dm);

void gx_llama_con2_forward(GxContext *g, GxLlama *m, int layer, GxRows y, GxRows x1, GxRows mlp); // y = x1 + mlp

// ---- embedding and head, whole vocabulary -----------------------------------------------------------------------------------------------------
void gx_llama_embed_forward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows x);
void gx_llama_embed_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx);
void gx_llama_head(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx, GxRows x, double *loss_sum);
void gx_llama_logits(GxContext *g, GxLlama *m, GxRows logits, GxRows x, int64_t first_row);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LLAMA_IMPLEMENTED)
#define GX_LLAMA_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../dist/mesh.h"
#include "../ops/activation.h"
#include "../ops/elementwise.h"
#include "../ops/embedding.h"
#include "../ops/loss.h"
#include "../ops/norm.h"

// ---- configuration and table -------------------------------------------------------------------------------------------------------------------

GxStatus gx_llama_config_resolve(GxLlamaConfig *c, GxError *err)
{
    const struct {
        const char *name;
        int64_t value, most;
    } limits[] = {
        // sizes in bytes stay far from 64 bits
        {"vocab_size", c->vocab_size, 1 << 24},
        {"hidden_size", c->hidden_size, 1 << 20},
        {"intermediate_size", c->intermediate_size, 1 << 22},
        {"num_hidden_layers", c->num_hidden_layers, 1000},
        {"num_attention_heads", c->num_attention_heads, 1 << 16},
        {"max_position_embeddings", c->max_position_embeddings, (int64_t)1 << 40},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value < 1 || limits[i].value > limits[i].most)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; it must be from 1 to %ld", limits[i].name, (long)limits[i].value,
                           (long)limits[i].most);
    if (c->num_key_value_heads == 0) c->num_key_value_heads = c->num_attention_heads;
    if (c->num_key_value_heads < 1 || c->num_attention_heads % c->num_key_value_heads)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "num_attention_heads (%ld) must be a multiple of num_key_value_heads (%ld)",
                       (long)c->num_attention_heads, (long)c->num_key_value_heads);
    if (c->head_dim == 0) {
        if (c->hidden_size % c->num_attention_heads)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "hidden_size (%ld) is not a multiple of num_attention_heads (%ld); change one, or set head_dim",
                           (long)c->hidden_size, (long)c->num_attention_heads);
        c->head_dim = c->hidden_size / c->num_attention_heads;
    }
    if (c->head_dim < 2 || c->head_dim % 2 || c->head_dim > 1 << 16)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "head_dim is %ld; RoPE rotates pairs, so it must be even and from 2 to 65536",
                       (long)c->head_dim);
    if (!(c->rms_norm_eps > 0) || !(c->rope_theta > 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rms_norm_eps (%g) and rope_theta (%g) must be above 0", c->rms_norm_eps, c->rope_theta);
    return GX_OK;
}

static GxTensorId gx__llama_add(GxLlama *m, int unit, const char *name, GxRole role, GxRange rows, int64_t all_rows, GxRange cols,
                                int64_t all_cols, int packed, GxError *err)
{
    GxTensor t = GX_ZERO;
    snprintf(t.name, sizeof t.name, "%s", name);
    t.role = role;
    t.unit = unit;
    t.packed = packed;
    t.ndim = all_cols ? 2 : 1;
    t.global_shape[0] = all_rows, t.begin[0] = rows.begin, t.end[0] = rows.end;
    t.global_shape[1] = all_cols, t.begin[1] = cols.begin, t.end[1] = cols.end;
    t.init = role == GX_ROLE_NORM ? GX_INIT_ONES : GX_INIT_NORMAL;
    t.init_std = (float)m->config.initializer_range;
    t.decay = role != GX_ROLE_NORM;
    t.reduce_axes = GX_AXIS_LOSS; // every rank along these axes sees other rows of the batch
    return gx_table_add(&m->model.table, &t, err);
}

static GxRange gx__range(int64_t begin, int64_t end)
{
    GxRange r = {begin, end};
    return r;
}
static GxRange gx__times(GxRange r, int64_t k) { return gx__range(r.begin * k, r.end * k); }

static void gx__llama_add_layer(GxLlama *m, int l, GxError *err)
{
    const GxLlamaConfig *c = &m->config;
    const int64_t D = c->hidden_size, h = c->head_dim, F = c->intermediate_size;
    const GxRange all = gx__range(0, D), q = gx__times(m->heads, h), kv = gx__times(m->kv_heads, h), none = gx__range(0, 0);
    const struct {
        const char *name;
        GxRole role;
        GxRange rows;
        int64_t all_rows;
        GxRange cols;
        int64_t all_cols;
        int packed;
    } list[] = {
        {"input_layernorm", GX_ROLE_NORM, all, D, none, 0, 0},
        {"post_attention_layernorm", GX_ROLE_NORM, all, D, none, 0, 0},
        {"self_attn.q_proj", GX_ROLE_WEIGHT, q, c->num_attention_heads * h, all, D, 0},
        {"self_attn.k_proj", GX_ROLE_WEIGHT, kv, c->num_key_value_heads * h, all, D, 1},
        {"self_attn.v_proj", GX_ROLE_WEIGHT, kv, c->num_key_value_heads * h, all, D, 1},
        {"self_attn.o_proj", GX_ROLE_WEIGHT, all, D, q, c->num_attention_heads * h, 0},
        {"mlp.gate_proj", GX_ROLE_WEIGHT, m->columns, F, all, D, 0},
        {"mlp.up_proj", GX_ROLE_WEIGHT, m->columns, F, all, D, 1},
        {"mlp.down_proj", GX_ROLE_WEIGHT, all, D, m->columns, F, 0},
    };
    GxTensorId id[sizeof list / sizeof *list];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[GX_NAME];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, list[i].name);
        id[i] = gx__llama_add(m, l + 1, name, list[i].role, list[i].rows, list[i].all_rows, list[i].cols, list[i].all_cols, list[i].packed,
                              err);
        if (id[i].index < 0) return;
    }
    const GxTable *t = &m->model.table;
    GxLlamaLayer *layer = &m->layer[l];
    layer->norm1 = t->row[id[0].index].offset;
    layer->norm2 = t->row[id[1].index].offset;
    layer->qkv = gx_linear_from_table(t, id[2], 3);
    layer->o = gx_linear_from_table(t, id[5], 1);
    layer->gate_up = gx_linear_from_table(t, id[6], 2);
    layer->down = gx_linear_from_table(t, id[8], 1);
}

static void gx__llama_add_head(GxLlama *m, GxError *err)
{
    const GxLlamaConfig *c = &m->config;
    const int unit = (int)c->num_hidden_layers + 1;
    const GxRange all = gx__range(0, c->hidden_size);
    m->norm = gx__llama_add(m, unit, "model.norm.weight", GX_ROLE_NORM, all, c->hidden_size, gx__range(0, 0), 0, 0, err);
    if (c->tie_word_embeddings) {
        GxTensor alias = m->model.table.row[m->embed.index];
        snprintf(alias.name, sizeof alias.name, "lm_head.weight");
        alias.has_alias = 1;
        alias.alias = m->embed;
        m->lm_head = gx_table_add(&m->model.table, &alias, err);
    } else {
        m->lm_head = gx__llama_add(m, unit, "lm_head.weight", GX_ROLE_HEAD, m->vocab, c->vocab_size, all, c->hidden_size, 0, err);
    }
    if (m->lm_head.index >= 0) m->head = gx_linear_from_table(&m->model.table, m->lm_head, 1);
}

static GxModelKind gx__llama_kind(const GxLlamaMode *mode);

GxStatus gx_llama_open(GxContext *g, GxLlama *m, const GxLlamaConfig *config, const GxLlamaMode *mode)
{
    GxError *err = &g->error;
    memset(m, 0, sizeof *m);
    m->config = *config;
    GX_TRY(gx_llama_config_resolve(&m->config, err));
    const GxLlamaConfig *c = &m->config;
    m->mode = mode;
    m->kind = gx__llama_kind(mode);
    m->model.kind = &m->kind;
    m->model.self = m;
    m->model.layers = (int)c->num_hidden_layers;
    m->heads.end = c->num_attention_heads;
    m->kv_heads.end = c->num_key_value_heads;
    m->columns.end = c->intermediate_size;
    m->vocab.end = c->vocab_size;
    if (mode->split) GX_TRY(mode->split(g, m));
    m->layer = (GxLlamaLayer *)calloc((size_t)m->model.layers, sizeof *m->layer);
    m->saved = (GxLlamaSaved *)calloc((size_t)m->model.layers, sizeof *m->saved);
    m->model.state = (GxState *)calloc((size_t)m->model.layers + 1, sizeof *m->model.state);
    if (!m->layer || !m->saved || !m->model.state) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d layers", m->model.layers);
    m->embed = gx__llama_add(m, 0, "model.embed_tokens.weight", GX_ROLE_EMBEDDING, m->vocab, c->vocab_size, gx__range(0, c->hidden_size),
                             c->hidden_size, 0, err);
    for (int l = 0; l < m->model.layers && !gx_failed(g); l++) gx__llama_add_layer(m, l, err);
    if (!gx_failed(g)) gx__llama_add_head(m, err);
    return gx_status(g);
}

void gx_llama_close(GxLlama *m)
{
    gx_model_detach(&m->model);
    gx_table_close(&m->model.table);
    free(m->layer);
    free(m->saved);
    free(m->model.state);
    memset(m, 0, sizeof *m);
}

// ---- buffers ------------------------------------------------------------------------------------------------------------------------------------

static float *gx__take_floats(GxArena *a, int64_t n) { return (float *)gx_arena_take(a, GX_MEM_ACTIVATIONS, 4 * n); }
static GxRows gx__take(GxArena *a, int64_t rows, int64_t cols) { return gx_rows_take(a, GX_MEM_ACTIVATIONS, GX_F32, rows, cols); }

static void gx__llama_take_slots(GxLlama *m, GxArena *a, int64_t R)
{
    const int64_t D = m->config.hidden_size, F = m->columns.end - m->columns.begin, H = m->heads.end - m->heads.begin;
    const int64_t att = H * m->config.head_dim, qkv = att + 2 * (m->kv_heads.end - m->kv_heads.begin) * m->config.head_dim;
    GxLlamaSaved shared = GX_ZERO;
    shared.a = gx__take(a, R, D);
    shared.m = shared.a; // a is dead before m is made
    shared.s = gx__take(a, R, F);
    shared.dh = gx__take(a, R, D);
    shared.d_att = gx__take(a, R, att);
    shared.dqkv = gx__take(a, R, qkv);
    for (int l = 0; l < m->model.layers; l++) {
        GxLlamaSaved *s = &m->saved[l];
        *s = shared;
        s->h1 = gx__take(a, R, D);
        s->qkv = gx__take(a, R, qkv);
        s->att = gx__take(a, R, att);
        s->x1 = gx__take(a, R, D);
        s->h2 = gx__take(a, R, D);
        s->gate_up = gx__take(a, R, 2 * F);
        s->rstd1 = gx__take_floats(a, R);
        s->rstd2 = gx__take_floats(a, R);
        s->lse = gx__take_floats(a, R * H);
    }
}

void gx_llama_take_buffers(GxContext *g, GxLlama *m, int64_t T, int64_t B, int64_t head_chunk)
{
    GxArena *a = g->arena;
    const int64_t R = T * B, D = m->config.hidden_size, half = m->config.head_dim / 2;
    if (T > m->config.max_position_embeddings) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a sequence of %ld tokens is longer than the model's max_position_embeddings (%ld)", (long)T,
                (long)m->config.max_position_embeddings);
        return;
    }
    m->max_rows = R;
    m->cosine = gx__take_floats(a, T * half);
    m->sine = gx__take_floats(a, T * half);
    for (int l = 0; l <= m->model.layers; l++) m->model.state[l].x = gx__take(a, R, D);
    m->model.gradient.x = gx__take(a, R, D);
    gx__llama_take_slots(m, a, R);
    m->h = gx__take(a, R, D);
    m->dh = gx__take(a, R, D);
    m->logits = gx__take(a, gx_min(R, head_chunk), m->vocab.end - m->vocab.begin);
    m->rstd = gx__take_floats(a, R);
    m->losses = gx__take_floats(a, R);
    if (g->device->computes && !a->exhausted) gx_rope_table(m->cosine, m->sine, T, m->config.head_dim, m->config.rope_theta);
}

void gx_llama_set_rows(GxContext *g, GxLlama *m, int64_t rows)
{
    if (rows < 1 || rows > m->max_rows) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "a batch of %ld rows does not fit into buffers for %ld", (long)rows, (long)m->max_rows);
        return;
    }
    m->model.gradient.x.rows = m->h.rows = m->dh.rows = rows;
    for (int l = 0; l <= m->model.layers; l++) m->model.state[l].x.rows = rows;
    for (int l = 0; l < m->model.layers; l++) {
        GxLlamaSaved *s = &m->saved[l];
        GxRows *all[] = {&s->h1, &s->qkv, &s->att, &s->x1, &s->h2, &s->gate_up, &s->a, &s->m, &s->s, &s->dh, &s->d_att, &s->dqkv};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->rows = rows;
    }
}

// ---- blocks -------------------------------------------------------------------------------------------------------------------------------------

static const float *gx__weights(const GxLlama *m, int layer) { return m->model.unit[layer + 1].weights; }
static float *gx__grad(const GxLlama *m, int layer, int64_t offset) // NULL where none is wanted
{
    float *grads = m->model.unit[layer + 1].grads;
    return grads ? grads + offset : NULL;
}

void gx_llama_norm1_forward(GxContext *g, GxLlama *m, int layer, GxRows h1, GxRows x)
{
    gx_at(g, layer + 1, "norm1");
    gx_rms_norm_forward(g, h1.data, m->saved[layer].rstd1, x.data, gx__weights(m, layer) + m->layer[layer].norm1, x.rows, x.cols,
                        (float)m->config.rms_norm_eps, x.dtype);
}

void gx_llama_norm1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dh1, GxRows x)
{
    gx_at(g, layer + 1, "norm1");
    int64_t norm = m->layer[layer].norm1;
    gx_rms_norm_backward(g, dx.data, gx__grad(m, layer, norm), dh1.data, dx.data, x.data, m->saved[layer].rstd1,
                         gx__weights(m, layer) + norm, x.rows, x.cols, b->accumulate, x.dtype);
}

// q, k and v lie side by side in each row of qkv: H heads of q, K of k, K of v.
typedef struct {
    GxAttention a;
    int64_t k, v;
} GxLlamaAttention; // k, v: elements from q

static GxLlamaAttention gx__llama_attention(const GxLlama *m, const GxBatch *b)
{
    GxLlamaAttention t = GX_ZERO;
    const int64_t h = m->config.head_dim;
    t.a.B = b->B;
    t.a.H = m->heads.end - m->heads.begin;
    t.a.K = m->kv_heads.end - m->kv_heads.begin;
    t.a.head_dim = h;
    t.a.q_runs = t.a.k_runs = b->runs;
    t.a.q_stride = t.a.kv_stride = (t.a.H + 2 * t.a.K) * h;
    t.a.o_stride = t.a.H * h;
    t.a.causal = 1;
    t.a.dtype = GX_F32;
    t.k = t.a.H * h;
    t.v = t.k + t.a.K * h;
    return t;
}

void gx_llama_att_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows a, GxRows h1)
{
    gx_at(g, layer + 1, "att");
    GxLlamaSaved *s = &m->saved[layer];
    GxLlamaAttention t = gx__llama_attention(m, b);
    float *q = (float *)s->qkv.data;
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].qkv, s->qkv, h1);
    gx_rope_forward(g, q, m->cosine, m->sine, &b->runs, b->B, t.a.H + t.a.K, t.a.head_dim, t.a.q_stride, GX_F32);
    gx_attention_forward(g, s->att.data, s->lse, q, q + t.k, q + t.v, &t.a);
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].o, a, s->att);
}

void gx_llama_att_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh1, GxRows da)
{
    gx_at(g, layer + 1, "att");
    GxLlamaSaved *s = &m->saved[layer];
    GxLlamaAttention t = gx__llama_attention(m, b);
    const float *q = (const float *)s->qkv.data;
    float *dq = (float *)s->dqkv.data;
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].o, s->d_att, da);
    gx_attention_backward(g, dq, dq + t.k, dq + t.v, s->d_att.data, s->att.data, s->lse, q, q + t.k, q + t.v, &t.a);
    gx_rope_backward(g, dq, m->cosine, m->sine, &b->runs, b->B, t.a.H + t.a.K, t.a.head_dim, t.a.q_stride, GX_F32);
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].qkv, dh1, s->dqkv);
}

void gx_llama_att_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows da)
{
    gx_at(g, layer + 1, "att");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].o, da, s->att, b->accumulate);
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].qkv, s->dqkv, s->h1, b->accumulate);
}

void gx_llama_con1_forward(GxContext *g, GxLlama *m, int layer, GxRows x1, GxRows h2, GxRows x, GxRows a)
{
    gx_at(g, layer + 1, "con1");
    gx_add_rms_norm_forward(g, x1.data, h2.data, m->saved[layer].rstd2, x.data, a.data, gx__weights(m, layer) + m->layer[layer].norm2,
                            x.rows, x.cols, (float)m->config.rms_norm_eps, x.dtype);
}

void gx_llama_con1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dx1, GxRows dh2)
{
    gx_at(g, layer + 1, "con1");
    const GxLlamaSaved *s = &m->saved[layer];
    int64_t norm = m->layer[layer].norm2;
    gx_rms_norm_backward(g, dx.data, gx__grad(m, layer, norm), dh2.data, dx1.data, s->x1.data, s->rstd2, gx__weights(m, layer) + norm,
                         dx.rows, dx.cols, b->accumulate, dx.dtype);
}

void gx_llama_mlp_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows out, GxRows h2)
{
    (void)b;
    gx_at(g, layer + 1, "mlp");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].gate_up, s->gate_up, h2);
    gx_swiglu_forward(g, s->s.data, s->gate_up.data, s->s.rows, s->s.cols, GX_F32);
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].down, out, s->s);
}

void gx_llama_mlp_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh2, GxRows dm)
{
    (void)b;
    gx_at(g, layer + 1, "mlp");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].down, s->s, dm);                               // s: its gradient ...
    gx_swiglu_backward(g, s->gate_up.data, s->s.data, s->s.data, s->gate_up.data, s->s.rows, s->s.cols, GX_F32); // ... and s itself again
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].gate_up, dh2, s->gate_up);
}

void gx_llama_mlp_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dm)
{
    gx_at(g, layer + 1, "mlp");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].down, dm, s->s, b->accumulate);
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].gate_up, s->gate_up, s->h2, b->accumulate);
}

void gx_llama_con2_forward(GxContext *g, GxLlama *m, int layer, GxRows y, GxRows x1, GxRows mlp)
{
    (void)m;
    gx_at(g, layer + 1, "con2");
    gx_add(g, y.data, x1.data, mlp.data, y.rows * y.cols, y.dtype);
}

// ---- embedding and head -------------------------------------------------------------------------------------------------------------------------

static float *gx__tensor_at(const GxLlama *m, GxTensorId id, int grads)
{
    const GxTensor *t = &m->model.table.row[id.index];
    float *base = grads ? m->model.unit[t->unit].grads : m->model.unit[t->unit].weights;
    return base ? base + t->offset : NULL;
}

void gx_llama_embed_forward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows x)
{
    gx_embedding_forward(g, x.data, gx__tensor_at(m, m->embed, 0), b->tokens, x.rows, x.cols, m->vocab.begin, m->vocab.end, x.dtype);
}

void gx_llama_embed_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx)
{
    float *dw = gx__tensor_at(m, m->embed, 1);
    int accumulate = b->accumulate || m->config.tie_word_embeddings; // tied: the head wrote there before
    if (dw) gx_embedding_backward(g, dw, dx.data, b->tokens, dx.rows, dx.cols, m->vocab.begin, m->vocab.end, accumulate, dx.dtype);
}

static GxRows gx__some_rows(GxRows r, int64_t first, int64_t rows)
{
    GxRows part = {(char *)r.data + first * r.cols * gx_dtype_size(r.dtype), r.dtype, rows, r.cols};
    return part;
}

static void gx__llama_final_norm(GxContext *g, GxLlama *m, GxRows h, GxRows x)
{
    gx_rms_norm_forward(g, h.data, m->rstd, x.data, gx__tensor_at(m, m->norm, 0), x.rows, x.cols, (float)m->config.rms_norm_eps, x.dtype);
}

void gx_llama_head(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx, GxRows x, double *loss_sum)
{
    const int64_t chunk = m->logits.rows, V = m->logits.cols;
    gx__llama_final_norm(g, m, m->h, x);
    for (int64_t r = 0; r < x.rows; r += chunk) {
        int64_t rows = gx_min(chunk, x.rows - r);
        GxRows logits = gx__some_rows(m->logits, 0, rows), h = gx__some_rows(m->h, r, rows);
        gx_linear_layer_forward(g, &m->model, &m->head, logits, h);
        gx_cross_entropy(g, m->losses + r, dx.data ? logits.data : NULL, logits.data, b->labels + r, rows, V, b->scale, GX_F32);
        if (!dx.data) continue;
        gx_linear_layer_backward_input(g, &m->model, &m->head, gx__some_rows(m->dh, r, rows), logits);
        gx_linear_layer_backward_weight(g, &m->model, &m->head, logits, h, b->accumulate || r > 0);
    }
    gx_sum(g, loss_sum, m->losses, x.rows, 1);
    if (dx.data)
        gx_rms_norm_backward(g, dx.data, gx__tensor_at(m, m->norm, 1), m->dh.data, NULL, x.data, m->rstd, gx__tensor_at(m, m->norm, 0),
                             x.rows, x.cols, b->accumulate, x.dtype);
}

void gx_llama_logits(GxContext *g, GxLlama *m, GxRows logits, GxRows x, int64_t first_row)
{
    GxRows h = gx__some_rows(m->h, 0, logits.rows);
    gx__llama_final_norm(g, m, h, gx__some_rows(x, first_row, logits.rows));
    gx_linear_layer_forward(g, &m->model, &m->head, logits, h);
}

// ---- as a model like any other ------------------------------------------------------------------------------------------------------------------

static GxLlama *gx__llama(GxModel *m) { return (GxLlama *)m->self; }
static void gx__llama_set_rows(GxContext *g, GxModel *m, int64_t rows) { gx_llama_set_rows(g, gx__llama(m), rows); }
static void gx__llama_embed_forward(GxContext *g, GxModel *m, const GxBatch *b, GxState out)
{
    gx__llama(m)->mode->embed_forward(g, gx__llama(m), b, out.x);
}
static void gx__llama_embed_backward(GxContext *g, GxModel *m, const GxBatch *b, GxState dout)
{
    gx__llama(m)->mode->embed_backward(g, gx__llama(m), b, dout.x);
}
static void gx__llama_layer_forward(GxContext *g, GxModel *m, int layer, const GxBatch *b, GxState out, GxState in)
{
    gx__llama(m)->mode->layer_forward(g, gx__llama(m), layer, b, out.x, in.x);
}
static void gx__llama_layer_backward(GxContext *g, GxModel *m, int layer, const GxBatch *b, GxState din, GxState dout)
{
    gx__llama(m)->mode->layer_backward(g, gx__llama(m), layer, b, din.x, dout.x);
}
static void gx__llama_head_call(GxContext *g, GxModel *m, const GxBatch *b, GxState din, GxState in, double *loss_sum)
{
    gx__llama(m)->mode->head(g, gx__llama(m), b, din.x, in.x, loss_sum);
}
static void gx__llama_logits_call(GxContext *g, GxModel *m, GxRows logits, GxState in, int64_t first_row)
{
    gx__llama(m)->mode->logits(g, gx__llama(m), logits, in.x, first_row);
}
static GxModelKind gx__llama_kind(const GxLlamaMode *mode)
{
    GxModelKind k = {"llama",
                     mode->name,
                     gx__llama_set_rows,
                     gx__llama_embed_forward,
                     gx__llama_embed_backward,
                     gx__llama_layer_forward,
                     gx__llama_layer_backward,
                     gx__llama_head_call,
                     gx__llama_logits_call};
    return k;
}
#endif
