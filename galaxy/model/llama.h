// llama.h: LLaMA (Touvron et al. 2023, arXiv:2302.13971; grouped heads as in LLaMA 2): its parameters, who has which
// part of them, its buffers.
//
// A layer is two (core, CON) pairs: x1 = x + ATT(norm1(x)), y = x1 + MLP(norm2(x1)). CON1 is the addition with norm2
// fused to it; CON2 the addition alone, since the norm after it belongs to the next unit. How the blocks follow each
// other, and what is communicated between them, is a mode's matter: a mode (train_llama.cu and its siblings) supplies a
// GxLlamaMode and writes its layer out of the blocks (implemented in llama_blocks.h).
//
// What it does not do (yet): biases, scaled RoPE, sliding windows, dropout.
#ifndef GX_LLAMA_H
#define GX_LLAMA_H
#include "../parallel/layout.h"
#include "layer.h"
#include "linear.h"
GX_BEGIN

typedef struct { // names as in Hugging Face's config.json
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads,
        head_dim;
    int64_t max_position_embeddings;
    double rms_norm_eps, rope_theta, initializer_range;
    int tie_word_embeddings;
} GxLlamaConfig;

// Fills what is 0 with its default (kv heads: heads; head_dim: hidden/heads), refuses what cannot be.
GxStatus gx_llama_config_resolve(GxLlamaConfig *c, GxError *err);

typedef struct {
    int64_t norm1, norm2; // offsets in the layer's unit
    GxLinear qkv, o, gate_up, down;
} GxLlamaLayer;

// What a layer's backward needs of its forward, and scratch. Kept: a slot of its own for each layer in flight. Scratch:
// all slots may share it (a schedule that puts weight gradients off gives each slot its own). Rows of x1, rstd1 and
// rstd2 are in CON's layout, those of the cores in theirs, so h1 and h2 are the cores' inputs, whole where these are
// gathered. h stands for head_dim; H, K, F for this rank's share.
typedef struct {
    GxRows h1, qkv, att, x1, h2,
        gate_up; // kept: [rows, D | (H+2K)h | H*h | D | D | 2F]; the backward turns gate_up into its gradient
    float *rstd1, *rstd2, *lse; // kept: [rows], [rows], [rows*H]
    GxRows a, m, s, dh, d_att,
        dqkv; // scratch: [rows, D | D | F | D | H*h | (H+2K)h]; the backward may use a and m as it likes
} GxLlamaSaved;

typedef struct GxLlamaMode GxLlamaMode;
typedef struct {
    GxModel model;
    GxModelKind kind;
    GxLlamaConfig config;
    const GxLlamaMode *mode;
    GxSplitLists
        lists; // as the user gave them; checked when the model is opened (the sequence's: when buffers are taken)
    GxShares q, kv, columns, vocab;  // who has which rows of q, of k and v, of gate and up, of embedding and head
    int64_t q_first;                 // number of this rank's first query head among those that share its first K,V head
    GxSplit sequence;                // [T] of the largest batch, where CON is split
    GxTensorId embed, norm, lm_head; // lm_head: an alias of embed where they are tied
    GxLinear head;
    GxLlamaLayer *layer;
    GxLlamaSaved *saved;   // [layers]
    float *cosine, *sine;  // [max T, head_dim/2]
    GxRows h, dh, logits;  // of the head: all rows [rows, D], [rows, D], [chunk, this rank's V]
    float *rstd, *losses;  // [rows] in CON's layout, [rows]
    float *maximum, *sums; // [chunk], [2, chunk]: of the cross-entropy over a split vocabulary
    int64_t max_T, max_B;
} GxLlama;

// A mode: how the blocks are split over the tp group, and the order of blocks and collectives that this asks for. The
// stream x is in CON's layout. The vocabulary is split where anything is: then the embedding gives a summand, and the
// head's gradient is one.
struct GxLlamaMode {
    const char *name;
    GxMode split; // of ATT, CON, MLP: by TP query heads, columns and the vocabulary are split, by the lists
    void (*embed_forward)(GxContext *, GxLlama *, const GxBatch *, GxRows x);
    void (*embed_backward)(GxContext *, GxLlama *, const GxBatch *, GxRows dx);
    void (*layer_forward)(GxContext *, GxLlama *, int layer, const GxBatch *, GxRows y, GxRows x);
    void (*layer_backward)(GxContext *, GxLlama *, int layer, const GxBatch *, GxRows dx, GxRows dy); // dx may be dy
    void (*head_forward)(GxContext *, GxLlama *, GxRows x); // m->h = the final norm's, all rows
    void (*head_backward)(GxContext *, GxLlama *, const GxBatch *, GxRows dx, GxRows x); // dx from m->dh
};

// The model's table, without memory for it. Close it with gx_llama_close. lists (NULL: even): their arrays are lent
// until buffers are taken.
GxStatus gx_llama_open(GxContext *g, GxLlama *m, const GxLlamaConfig *config, const GxLlamaMode *mode,
                       const GxSplitLists *lists);
void gx_llama_close(GxLlama *m);

// Takes the activations of one micro-batch of T x B from the arena (twice: on a dry one, then on the real one) and
// fills what is constant. head_chunk: rows whose logits exist at once.
void gx_llama_take_buffers(GxContext *g, GxLlama *m, int64_t T, int64_t B, int64_t head_chunk);
// Of the batches to come: not more than that; where the sequence is split, T is at least the number of its parts.
void gx_llama_set_rows(GxContext *g, GxLlama *m, int64_t T, int64_t B);

// ---- blocks: norms and additions on the rows that they are given; ATT and MLP on all rows of the batch, giving this
void gx_llama_norm1_forward(GxContext *g, GxLlama *m, int layer, GxRows h1, GxRows x);
void gx_llama_norm1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dh1,
                             GxRows x); // dx += norm1'(dh1)

void gx_llama_att_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows a, GxRows h1);
void gx_llama_att_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh1, GxRows da);
void gx_llama_att_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows da);

void gx_llama_con1_forward(GxContext *g, GxLlama *m, int layer, GxRows x1, GxRows h2, GxRows x,
                           GxRows a); // x1 = x + a, h2 = norm2(x1)
void gx_llama_con1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dx1,
                            GxRows dh2); // dx = dx1 + norm2'(dh2)

void gx_llama_mlp_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows out, GxRows h2);
void gx_llama_mlp_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh2, GxRows dm);
void gx_llama_mlp_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dm);

void gx_llama_con2_forward(GxContext *g, GxLlama *m, int layer, GxRows y, GxRows x1, GxRows mlp); // y = x1 + mlp

// ---- embedding and head, of this rank's part of the vocabulary -----------------------------------------------------
void gx_llama_embed_forward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows x); // all rows: this rank's summand
void gx_llama_embed_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx);
void gx_llama_final_norm_forward(GxContext *g, GxLlama *m, GxRows h, GxRows x);
void gx_llama_final_norm_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx, GxRows dh,
                                  GxRows x); // dx = norm'(dh)

// The core of the head, from m->h: adds the losses to *loss_sum; with gradients, leaves m->dh (this rank's summand) and
// the head's gradient. The logits exist in chunks of rows. Over a split vocabulary, ranks agree per chunk on three
// numbers per row (site "head_loss").
void gx_llama_head_core(GxContext *g, GxLlama *m, const GxBatch *b, int gradients, double *loss_sum);
// From m->h: logits.rows rows from first_row on, over the whole vocabulary (gathered, site "logits").
void gx_llama_logits(GxContext *g, GxLlama *m, GxRows logits, int64_t first_row);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LLAMA_IMPLEMENTED)
#define GX_LLAMA_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/mesh.h"
#include "llama_blocks.h"

// ---- configuration and table ---------------------------------------------------------------------------------------

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
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; it must be from 1 to %ld", limits[i].name,
                           (long)limits[i].value, (long)limits[i].most);
    if (c->num_key_value_heads == 0) c->num_key_value_heads = c->num_attention_heads;
    if (c->num_key_value_heads < 1 || c->num_attention_heads % c->num_key_value_heads)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "num_attention_heads (%ld) must be a multiple of num_key_value_heads (%ld)",
                       (long)c->num_attention_heads, (long)c->num_key_value_heads);
    if (c->head_dim == 0) {
        if (c->hidden_size % c->num_attention_heads)
            return GX_FAIL(
                err, GX_ERR_ARGUMENT,
                "hidden_size (%ld) is not a multiple of num_attention_heads (%ld); change one, or set head_dim",
                (long)c->hidden_size, (long)c->num_attention_heads);
        c->head_dim = c->hidden_size / c->num_attention_heads;
    }
    if (c->head_dim < 2 || c->head_dim % 2 || c->head_dim > 1 << 16)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "head_dim is %ld; RoPE rotates pairs, so it must be even and from 2 to 65536",
                       (long)c->head_dim);
    if (!(c->rms_norm_eps > 0) || !(c->rope_theta > 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rms_norm_eps (%g) and rope_theta (%g) must be above 0", c->rms_norm_eps,
                       c->rope_theta);
    return GX_OK;
}

// How the mode's methods share heads, columns and vocabulary out among the tp group. Nothing is split in a group of
// one.
static GxStatus gx__llama_split(GxContext *g, GxLlama *m)
{
    GxError *err = &g->error;
    const GxLlamaConfig *c = &m->config;
    const GxMode *split = &m->mode->split;
    const GxSplitLists *l = &m->lists;
    const int n = gx_group_size(g, GX_AXIS_TP), me = gx_group_index(g, GX_AXIS_TP);
    const int64_t H = c->num_attention_heads, K = c->num_key_value_heads, h = c->head_dim;
    GxSplit s;
    GX_TRY(gx_mode_check(*split, err));
    if (split->att == GX_METHOD_SP || split->mlp == GX_METHOD_SP)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "mode %s: LLaMA's ATT and MLP are not built by SP (slices of the sequence)", m->mode->name);
    m->q = gx_shares_whole(H * h);
    m->kv = gx_shares_whole(K * h);
    m->columns = gx_shares_whole(c->intermediate_size);
    m->vocab = gx_shares_whole(c->vocab_size);
    if (split->att == GX_METHOD_TP) {
        GX_TRY(
            gx_split_list(&s, "tp_num_attention_heads_list", l->heads.n ? l->heads.part : NULL, l->heads.n, H, n, err));
        m->q = gx_shares_of(&s, me, h);
        GX_TRY(gx_shares_kv(&m->kv, &m->q_first, &s, K, me, h, err));
    }
    if (split->mlp == GX_METHOD_TP) {
        GX_TRY(gx_split_list(&s, "tp_intermediate_size_list", l->columns.n ? l->columns.part : NULL, l->columns.n,
                             c->intermediate_size, n, err));
        m->columns = gx_shares_of(&s, me, 1);
    }
    if (gx_mode_splits(*split)) {
        GX_TRY(gx_split_list(&s, "tp_vocab_size_list", l->vocab.n ? l->vocab.part : NULL, l->vocab.n, c->vocab_size, n,
                             err));
        m->vocab = gx_shares_of(&s, me, 1);
    }
    return GX_OK;
}

typedef struct { // a tensor and the place where it is used
    const char *name;
    GxRole role;
    int64_t shape[2];            // [1] is 0: one dimension
    const GxShares *rows, *cols; // who has which of them; NULL: all have all
    GxLayout layout;             // of the rows of activations that meet it
    int packed;
} GxLlamaTensor;

static int gx__reduce_axes_of(const GxLlamaTensor *use)
{
    const int is_split = (use->rows && use->rows->n > 1) || (use->cols && use->cols->n > 1);
    return GX_AXIS_LOSS |
           gx_grad_tp(use->layout,
                      is_split ? GX_USE_SPLIT : GX_USE_WHOLE); // other ranks of the loss see other rows of the batch
}

static GxTensorId gx__llama_add(GxLlama *m, int unit, const char *name, const GxLlamaTensor *use, GxError *err)
{
    GxTensor t = GX_ZERO;
    snprintf(t.name, sizeof t.name, "%s", name);
    t.role = use->role;
    t.unit = unit;
    t.packed = use->packed;
    t.ndim = use->shape[1] ? 2 : 1;
    t.init = use->role == GX_ROLE_NORM ? GX_INIT_ONES : GX_INIT_NORMAL;
    t.init_std = (float)m->config.initializer_range;
    t.decay = use->role != GX_ROLE_NORM;
    t.reduce_axes = gx__reduce_axes_of(use);
    const GxShares *shares[2] = {use->rows, use->cols};
    for (int d = 0; d < t.ndim; d++) {
        const GxShares *s = shares[d];
        t.global_shape[d] = t.end[d] = use->shape[d];
        if (!s || s->n == 1) continue;
        t.begin[d] = gx_share_mine(s).begin, t.end[d] = gx_share_mine(s).end;
        t.split_dim = d, t.split_axes = GX_AXIS_TP, t.n_parts = s->n, t.parts = s->part;
    }
    return gx_table_add(&m->model.table, &t, err);
}

static void gx__llama_add_layer(GxLlama *m, int l, GxError *err)
{
    const GxLlamaConfig *c = &m->config;
    const GxMode *split = &m->mode->split;
    const int64_t D = c->hidden_size, F = c->intermediate_size, Q = c->num_attention_heads * c->head_dim,
                  KV = c->num_key_value_heads * c->head_dim;
    const GxLayout con = gx_block_gives(split->con), att = gx_block_takes(split->att), mlp = gx_block_takes(split->mlp);
    const GxLlamaTensor list[] = {
        {"input_layernorm", GX_ROLE_NORM, {D, 0}, NULL, NULL, con, 0},
        {"post_attention_layernorm", GX_ROLE_NORM, {D, 0}, NULL, NULL, con, 0},
        {"self_attn.q_proj", GX_ROLE_WEIGHT, {Q, D}, &m->q, NULL, att, 0},
        {"self_attn.k_proj", GX_ROLE_WEIGHT, {KV, D}, &m->kv, NULL, att, 1},
        {"self_attn.v_proj", GX_ROLE_WEIGHT, {KV, D}, &m->kv, NULL, att, 1},
        {"self_attn.o_proj", GX_ROLE_WEIGHT, {D, Q}, NULL, &m->q, att, 0},
        {"mlp.gate_proj", GX_ROLE_WEIGHT, {F, D}, &m->columns, NULL, mlp, 0},
        {"mlp.up_proj", GX_ROLE_WEIGHT, {F, D}, &m->columns, NULL, mlp, 1},
        {"mlp.down_proj", GX_ROLE_WEIGHT, {D, F}, NULL, &m->columns, mlp, 0},
    };
    GxTensorId id[sizeof list / sizeof *list];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[GX_NAME];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, list[i].name);
        id[i] = gx__llama_add(m, l + 1, name, &list[i], err);
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

static void gx__llama_add_embedding(GxLlama *m, GxError *err)
{
    const GxLlamaTensor use = {
        "", GX_ROLE_EMBEDDING, {m->config.vocab_size, m->config.hidden_size}, &m->vocab, NULL, GX_LAYOUT_FULL, 0};
    m->embed = gx__llama_add(m, 0, "model.embed_tokens.weight", &use, err);
}

static void gx__llama_add_head(GxLlama *m, GxError *err)
{
    const GxLlamaConfig *c = &m->config;
    const int unit = (int)c->num_hidden_layers + 1;
    const GxLlamaTensor norm = {"", GX_ROLE_NORM, {c->hidden_size, 0}, NULL, NULL, gx_block_gives(m->mode->split.con),
                                0},
                        head = {"", GX_ROLE_HEAD, {c->vocab_size, c->hidden_size}, &m->vocab, NULL, GX_LAYOUT_FULL, 0};
    m->norm = gx__llama_add(m, unit, "model.norm.weight", &norm, err);
    if (c->tie_word_embeddings) {
        GxTensor alias = m->model.table.row[m->embed.index];
        snprintf(alias.name, sizeof alias.name, "lm_head.weight");
        alias.has_alias = 1;
        alias.alias = m->embed;
        if (alias.reduce_axes !=
            gx__reduce_axes_of(&head)) { // both uses add to one gradient: they must ask for the same sum
            GX_FAIL(err, GX_ERR_UNSUPPORTED,
                    "mode %s: a tied head whose gradient is summed over other ranks than the embedding's",
                    m->mode->name);
            return;
        }
        m->lm_head = gx_table_add(&m->model.table, &alias, err);
    } else {
        m->lm_head = gx__llama_add(m, unit, "lm_head.weight", &head, err);
    }
    if (m->lm_head.index >= 0) m->head = gx_linear_from_table(&m->model.table, m->lm_head, 1);
}

static GxModelKind gx__llama_kind(const GxLlamaMode *mode);

GxStatus gx_llama_open(GxContext *g, GxLlama *m, const GxLlamaConfig *config, const GxLlamaMode *mode,
                       const GxSplitLists *lists)
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
    if (lists) m->lists = *lists;
    GX_TRY(gx__llama_split(g, m));
    m->layer = (GxLlamaLayer *)calloc((size_t)m->model.layers, sizeof *m->layer);
    m->saved = (GxLlamaSaved *)calloc((size_t)m->model.layers, sizeof *m->saved);
    m->model.state = (GxState *)calloc((size_t)m->model.layers + 1, sizeof *m->model.state);
    if (!m->layer || !m->saved || !m->model.state)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d layers", m->model.layers);
    gx__llama_add_embedding(m, err);
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

// ---- buffers -------------------------------------------------------------------------------------------------------

static float *gx__take_floats(GxArena *a, int64_t n) { return (float *)gx_arena_take(a, GX_MEM_ACTIVATIONS, 4 * n); }
static GxRows gx__take(const GxLlama *m, GxArena *a, int64_t rows, int64_t cols)
{
    return gx_rows_take(a, GX_MEM_ACTIVATIONS, m->model.dtype, rows, cols);
}

// How many rows this rank has of R in a layout.
static int64_t gx__rows_in(const GxLlama *m, GxLayout layout)
{
    return layout == GX_LAYOUT_SEQ ? gx_split_part(&m->model.rows, m->model.member) : gx_split_total(&m->model.rows);
}

// The slots of a layer: whose rows they have, and how wide they are.
typedef enum { GX__OF_ALL = 0, GX__OF_CON, GX__OF_ATT, GX__OF_MLP } GxLlamaRows;
typedef enum { GX__D = 0, GX__HEADS, GX__QKV, GX__F, GX__2F } GxLlamaWidth;
static const struct {
    size_t slot; // in GxLlamaSaved
    int is_kept;
    GxLlamaRows rows;
    GxLlamaWidth width;
} gx__llama_slots[] = {
    {offsetof(GxLlamaSaved, a), 0, GX__OF_ALL, GX__D},         {offsetof(GxLlamaSaved, m), 0, GX__OF_ALL, GX__D},
    {offsetof(GxLlamaSaved, s), 0, GX__OF_MLP, GX__F},         {offsetof(GxLlamaSaved, dh), 0, GX__OF_ALL, GX__D},
    {offsetof(GxLlamaSaved, d_att), 0, GX__OF_ATT, GX__HEADS}, {offsetof(GxLlamaSaved, dqkv), 0, GX__OF_ATT, GX__QKV},
    {offsetof(GxLlamaSaved, h1), 1, GX__OF_ATT, GX__D},        {offsetof(GxLlamaSaved, qkv), 1, GX__OF_ATT, GX__QKV},
    {offsetof(GxLlamaSaved, att), 1, GX__OF_ATT, GX__HEADS},   {offsetof(GxLlamaSaved, x1), 1, GX__OF_CON, GX__D},
    {offsetof(GxLlamaSaved, h2), 1, GX__OF_MLP, GX__D},        {offsetof(GxLlamaSaved, gate_up), 1, GX__OF_MLP, GX__2F},
};
enum { GX__LLAMA_SLOTS = sizeof gx__llama_slots / sizeof *gx__llama_slots };
static GxRows *gx__llama_slot(GxLlamaSaved *s, int i) { return (GxRows *)((char *)s + gx__llama_slots[i].slot); }

// Rows that this rank has, by GxLlamaRows: of all, of the stream, of what ATT and MLP take.
static void gx__llama_rows(const GxLlama *m, int64_t rows[4])
{
    const GxMode *split = &m->mode->split;
    rows[GX__OF_ALL] = gx_split_total(&m->model.rows);
    rows[GX__OF_CON] = gx__rows_in(m, gx_block_gives(split->con));
    rows[GX__OF_ATT] = gx__rows_in(m, gx_block_takes(split->att));
    rows[GX__OF_MLP] = gx__rows_in(m, gx_block_takes(split->mlp));
}

static void gx__llama_take_slots(GxLlama *m, GxArena *a, const int64_t rows[4])
{
    const int64_t D = m->config.hidden_size, F = gx_share_count(&m->columns), heads = gx_share_count(&m->q);
    const int64_t width[] = {D, heads, heads + 2 * gx_share_count(&m->kv), F, 2 * F};
    GxLlamaSaved shared = GX_ZERO;
    for (int i = 0; i < GX__LLAMA_SLOTS; i++) {
        GxRows *slot = gx__llama_slot(&shared, i);
        if (slot == &shared.m) shared.m = shared.a; // a is dead before m is made
        else if (!gx__llama_slots[i].is_kept)
            *slot = gx__take(m, a, rows[gx__llama_slots[i].rows], width[gx__llama_slots[i].width]);
    }
    for (int l = 0; l < m->model.layers; l++) {
        GxLlamaSaved *s = &m->saved[l];
        *s = shared;
        for (int i = 0; i < GX__LLAMA_SLOTS; i++)
            if (gx__llama_slots[i].is_kept)
                *gx__llama_slot(s, i) = gx__take(m, a, rows[gx__llama_slots[i].rows], width[gx__llama_slots[i].width]);
        s->rstd1 = gx__take_floats(a, rows[GX__OF_CON]);
        s->rstd2 = gx__take_floats(a, rows[GX__OF_CON]);
        s->lse = gx__take_floats(a, rows[GX__OF_ATT] * (heads / m->config.head_dim));
    }
}

// How the T*B rows of the batches to come are shared out: slices of T, whole sequences of the batch each.
static void gx__llama_slice(GxLlama *m, int64_t T, int64_t B)
{
    GxSplit *rows = &m->model.rows;
    *rows = T == m->max_T ? m->sequence : gx_split_like(&m->sequence, T);
    for (int r = 0; r <= rows->n; r++) rows->begin[r] *= B;
}

static void gx__llama_fill_rope(GxContext *g, GxLlama *m, int64_t T)
{
    const int64_t bytes = 4 * T * (m->config.head_dim / 2);
    GxArena *host = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(host);
    float *cosine = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, m->cosine, bytes);
    float *sine = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, m->sine, bytes);
    if (cosine && sine && g->device->computes) gx_rope_table(cosine, sine, T, m->config.head_dim, m->config.rope_theta);
    gx_to_device(g, m->cosine, cosine, bytes);
    gx_to_device(g, m->sine, sine, bytes);
    gx_arena_release(host, mark);
}

void gx_llama_take_buffers(GxContext *g, GxLlama *m, int64_t T, int64_t B, int64_t head_chunk)
{
    GxArena *a = g->arena;
    const int64_t R = T * B, D = m->config.hidden_size, half = m->config.head_dim / 2, chunk = gx_min(R, head_chunk);
    int64_t rows[4];
    const GxSplitLists *l = &m->lists;
    const int is_split = m->mode->split.con == GX_METHOD_SP, parts = is_split ? gx_group_size(g, GX_AXIS_TP) : 1;
    if (T > m->config.max_position_embeddings) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a sequence of %ld tokens is longer than the model's max_position_embeddings (%ld)", (long)T,
                (long)m->config.max_position_embeddings);
        return;
    }
    if (gx_split_list(&m->sequence, "seq_scatter_list", is_split && l->sequence.n ? l->sequence.part : NULL,
                      l->sequence.n, T, parts, &g->error) != GX_OK)
        return;
    m->max_T = T, m->max_B = B;
    m->model.member = is_split ? m->vocab.me : 0; // a mode that splits the sequence splits the vocabulary, too
    gx__llama_slice(m, T, B);
    gx__llama_rows(m, rows);
    const int64_t con = rows[GX__OF_CON];
    m->cosine = gx__take_floats(a, T * half);
    m->sine = gx__take_floats(a, T * half);
    for (int i = 0; i <= m->model.layers; i++) m->model.state[i].x = gx__take(m, a, con, D);
    m->model.gradient.x = gx__take(m, a, con, D);
    gx__llama_take_slots(m, a, rows);
    m->h = gx__take(m, a, R, D);
    m->dh = gx__take(m, a, R, D);
    m->logits = gx__take(m, a, chunk, gx_share_count(&m->vocab));
    m->rstd = gx__take_floats(a, con);
    m->losses = gx__take_floats(a, R);
    m->maximum = m->vocab.n > 1 ? gx__take_floats(a, chunk) : NULL;
    m->sums = m->vocab.n > 1 ? gx__take_floats(a, 2 * chunk) : NULL;
    if (!a->exhausted) gx__llama_fill_rope(g, m, T);
}

void gx_llama_set_rows(GxContext *g, GxLlama *m, int64_t T, int64_t B)
{
    if (T < m->sequence.n || T > m->max_T || B < 1 || B > m->max_B) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a batch of %ld sequences of %ld tokens; the buffers are for at most %ld of %d to %ld tokens", (long)B,
                (long)T, (long)m->max_B, m->sequence.n, (long)m->max_T);
        return;
    }
    gx__llama_slice(m, T, B);
    int64_t rows[4];
    gx__llama_rows(m, rows);
    m->h.rows = m->dh.rows = rows[GX__OF_ALL];
    m->model.gradient.x.rows = rows[GX__OF_CON];
    for (int l = 0; l <= m->model.layers; l++) m->model.state[l].x.rows = rows[GX__OF_CON];
    for (int l = 0; l < m->model.layers; l++)
        for (int i = 0; i < GX__LLAMA_SLOTS; i++) gx__llama_slot(&m->saved[l], i)->rows = rows[gx__llama_slots[i].rows];
}

// ---- as a model like any other -------------------------------------------------------------------------------------

static GxLlama *gx__llama(GxModel *m) { return (GxLlama *)m->self; }
static void gx__llama_set_rows(GxContext *g, GxModel *m, int64_t T, int64_t B)
{
    gx_llama_set_rows(g, gx__llama(m), T, B);
}
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
static void gx__llama_head_call(GxContext *g, GxModel *model, const GxBatch *b, GxState din, GxState in,
                                double *loss_sum)
{
    GxLlama *m = gx__llama(model);
    m->mode->head_forward(g, m, in.x);
    gx_llama_head_core(g, m, b, din.x.data != NULL, loss_sum);
    if (din.x.data) m->mode->head_backward(g, m, b, din.x, in.x);
}
static void gx__llama_logits_call(GxContext *g, GxModel *model, GxRows logits, GxState in, int64_t first_row)
{
    GxLlama *m = gx__llama(model);
    m->mode->head_forward(g, m, in.x);
    gx_llama_logits(g, m, logits, first_row);
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
