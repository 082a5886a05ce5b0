// gpt2.h: GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners") as a family: its
// configuration, the names of its tensors, and the description of its units.
//
//     embed   x = dropout(tokens' rows + positions')                               wte, wpe
//     layer   x = x + dropout(c_proj(attention(c_attn(layer_norm(x)))))            ln_1, attn
//             x = x + dropout(c_proj(gelu(c_fc(layer_norm(x)))))                   ln_2, mlp
//     head    loss = cross-entropy(layer_norm(x) E^T), E the table of tokens (or lm_head), or labels of a whole text
//             from its last token                                                  ln_f
//
// In files q, k and v are one matrix, c_attn, and this and the other matrices of a layer are transposed, [in, out]
// (transformers' Conv1D). Here they lie as in all families; run/tensor_load.h and tensor_save.h turn them. A text's
// positions count from 0, wherever it lies in its column.
//
// A new model's c_proj begin smaller, by 1/sqrt(2 n_layer), as in section 2.3 there.
#ifndef GX_GPT2_H
#define GX_GPT2_H
#include "build.h"
#include "cores.h"
GX_BEGIN

typedef struct { // names as in Hugging Face's config.json
    int64_t vocab_size, n_positions, n_embd, n_layer, n_head, n_inner;
    char activation_function[GX_FIELD_TEXT]; // "gelu_new", "gelu", "relu", "gelu_pytorch_tanh"
    double resid_pdrop, embd_pdrop, attn_pdrop, layer_norm_epsilon, initializer_range;
    int scale_attn_weights;              // 1: scores are divided by the square root of a head's size
    int scale_attn_by_inverse_layer_idx; // 1: and by the layer's number, counted from 1
    int tie_word_embeddings;
    int64_t pad_token_id; // for programs that load the model; here padding is masked. -1: none
} GxGpt2Config;

// Replaces an n_inner of 0 by 4 * n_embd. An error if a value is invalid.
GxStatus gx_gpt2_config_resolve(GxGpt2Config *c, GxError *err);

void gx_gpt2_describe(GxContext *g, GxModel *m); // of m->config

// Translates names of files of a GPT2Model, which lack "transformer.". Returns 0 if the tensor is not needed (masks,
// which older files have), otherwise 1.
int gx_gpt2_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GPT2_IMPLEMENTED)
#define GX_GPT2_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "../base/text.h"

// ---- configuration -------------------------------------------------------------------------------------------------

static const struct {
    const char *name;
    GxActivation activation;
} gx__gpt2_activations[] = {
    {"gelu_new", GX_GELU_NEW}, {"gelu", GX_GELU}, {"relu", GX_RELU}, {"gelu_pytorch_tanh", GX_GELU_NEW}};
enum { GX__GPT2_ACTIVATIONS = sizeof gx__gpt2_activations / sizeof *gx__gpt2_activations };

static int gx__gpt2_activation(const GxGpt2Config *c) // its row above; -1: not supported
{
    for (int i = 0; i < GX__GPT2_ACTIVATIONS; i++)
        if (!strcmp(c->activation_function, gx__gpt2_activations[i].name)) return i;
    return -1;
}

static GxStatus gx__gpt2_check_sizes(const GxGpt2Config *c, GxError *err)
{
    // keeps sizes in bytes far below 2^63
    GX_TRY(gx_check_size("vocab_size", c->vocab_size, 1 << 24, err));
    GX_TRY(gx_check_size("n_positions", c->n_positions, 1 << 24, err));
    GX_TRY(gx_check_size("n_embd", c->n_embd, 1 << 20, err));
    GX_TRY(gx_check_size("n_layer", c->n_layer, 1000, err));
    GX_TRY(gx_check_size("n_head", c->n_head, 1 << 16, err));
    GX_TRY(gx_check_size("n_inner", c->n_inner, 1 << 22, err));
    if (c->n_embd % c->n_head)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "n_embd (%ld) is not a multiple of n_head (%ld); change one of them",
                       (long)c->n_embd, (long)c->n_head);
    if (c->pad_token_id >= c->vocab_size)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "pad_token_id is %ld; it must be -1 (none) or an id of the vocabulary, which ends at %ld",
                       (long)c->pad_token_id, (long)c->vocab_size - 1);
    return GX_OK;
}

GxStatus gx_gpt2_config_resolve(GxGpt2Config *c, GxError *err)
{
    const struct {
        const char *name;
        double value;
    } rates[] = {{"resid_pdrop", c->resid_pdrop}, {"embd_pdrop", c->embd_pdrop}, {"attn_pdrop", c->attn_pdrop}};
    if (c->n_inner == 0) c->n_inner = 4 * c->n_embd;
    GX_TRY(gx__gpt2_check_sizes(c, err));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (!(rates[i].value >= 0 && rates[i].value < 1))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %g; it must be at least 0 and below 1", rates[i].name,
                           rates[i].value);
    if (!(c->layer_norm_epsilon > 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "layer_norm_epsilon is %g; it must be above 0", c->layer_norm_epsilon);
    if (gx__gpt2_activation(c) < 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "activation_function is \"%s\"; supported: \"gelu_new\", \"gelu\", \"relu\" and "
                       "\"gelu_pytorch_tanh\"",
                       c->activation_function);
    return GX_OK;
}

#define GX__GPT2_BODY "transformer."

int gx_gpt2_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME])
{
    static const char *const parts[] = {"wte.", "wpe.", "h.", "ln_f."};
    const char *prefix = "";
    (void)t;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(in_file, parts[i], strlen(parts[i]))) prefix = GX__GPT2_BODY;
    snprintf(name, GX_NAME, "%s%s", prefix, in_file);
    return gx_text_stem(in_file, ".attn.bias") < 0 && gx_text_stem(in_file, ".attn.masked_bias") < 0;
}

// ---- units ---------------------------------------------------------------------------------------------------------

static GxUnitSpec gx__gpt2_unit(const GxGpt2Config *c, const char *name, int n_pairs)
{
    GxUnitSpec u = GX_ZERO;
    u.name = name, u.n_pairs = n_pairs;
    u.width = c->n_embd;
    u.init_std = (float)c->initializer_range;
    return u;
}

static GxEnterSpec gx__gpt2_norm(const GxGpt2Config *c, const char *name)
{
    GxEnterSpec e;
    memset(&e, 0, sizeof e);
    e.kind = GX_ENTER_NORM, e.norm = GX_LAYER_NORM, e.eps = (float)c->layer_norm_epsilon, e.norm_name = name;
    return e;
}

static GxUnitSpec gx__gpt2_embed(const GxGpt2Config *c)
{
    GxUnitSpec u = gx__gpt2_unit(c, "embed", 1);
    GxPairSpec *p = &u.pair[0];
    p->core.kind = GX_CORE_EMBED, p->core.vocab = c->vocab_size, p->core.ignored = -1;
    p->core.matrix[0] = GX__GPT2_BODY "wte";
    p->con.kind = GX_CON_EMBED, p->con.dropout = (float)c->embd_pdrop;
    p->con.positions = c->n_positions, p->con.positions_name = GX__GPT2_BODY "wpe";
    return u;
}

#define GX__GPT2_LAYER GX__GPT2_BODY "h.%d."

static GxUnitSpec gx__gpt2_layer(const GxGpt2Config *c)
{
    GxUnitSpec u = gx__gpt2_unit(c, "layer", 2);
    GxPairSpec *att = &u.pair[0], *mlp = &u.pair[1];
    for (int k = 0; k < 2; k++) {
        u.pair[k].core.has_bias = u.pair[k].core.is_transposed = 1;
        u.pair[k].con.kind = GX_CON_ADD, u.pair[k].con.has_bias = 1;
        u.pair[k].con.dropout = (float)c->resid_pdrop;
    }
    att->enter = gx__gpt2_norm(c, GX__GPT2_LAYER "ln_1");
    att->core.kind = GX_CORE_ATT, att->core.is_causal = 1;
    att->core.heads = att->core.kv_heads = c->n_head, att->core.head_dim = c->n_embd / c->n_head;
    att->core.dropout = (float)c->attn_pdrop;
    att->core.scale = c->scale_attn_weights ? 0 : 1;
    att->core.stack = GX__GPT2_LAYER "attn.c_attn";
    att->core.matrix[0] = GX__GPT2_LAYER "attn.c_attn.q";
    att->core.matrix[1] = GX__GPT2_LAYER "attn.c_attn.k";
    att->core.matrix[2] = GX__GPT2_LAYER "attn.c_attn.v";
    att->core.matrix[3] = GX__GPT2_LAYER "attn.c_proj";
    mlp->enter = gx__gpt2_norm(c, GX__GPT2_LAYER "ln_2");
    mlp->core.kind = GX_CORE_MLP, mlp->core.columns = c->n_inner;
    mlp->core.activation = gx__gpt2_activations[gx__gpt2_activation(c)].activation;
    mlp->core.matrix[0] = GX__GPT2_LAYER "mlp.c_fc";
    mlp->core.matrix[1] = GX__GPT2_LAYER "mlp.c_proj";
    return u;
}

static GxUnitSpec gx__gpt2_head(const GxGpt2Config *c)
{
    GxUnitSpec u = gx__gpt2_unit(c, "head", 1);
    GxPairSpec *p = &u.pair[0];
    p->enter = gx__gpt2_norm(c, GX__GPT2_BODY "ln_f");
    p->con.kind = GX_CON_NOTHING;
    p->core.kind = GX_CORE_HEAD, p->core.vocab = c->vocab_size, p->core.is_tied = c->tie_word_embeddings;
    p->core.matrix[0] = "lm_head";
    return u;
}

// What the layers differ in: the scale of their scores. A side network's are not scaled by it.
static void gx__gpt2_set_layers(const GxGpt2Config *c, GxModel *m)
{
    const double scale = c->scale_attn_weights ? 1 / sqrt((double)(c->n_embd / c->n_head)) : 1;
    for (int u = 0; u < m->units; u++) {
        const GxUnitSpec *spec = gx_unit_spec(m, u);
        if (spec->side == GX_SIDE_NONE && spec->pair[0].core.kind == GX_CORE_ATT && c->scale_attn_by_inverse_layer_idx)
            m->unit[u].scale = (float)(scale / (m->unit[u].number + 1));
    }
}

static void gx__gpt2_set_init(const GxGpt2Config *c, GxModel *m)
{
    for (int i = 0; i < m->table.n; i++) {
        GxTensor *t = &m->table.row[i];
        if (t->role == GX_ROLE_WEIGHT && !t->is_added && gx_text_stem(t->name, ".c_proj.weight") > 0)
            t->init_std = (float)(c->initializer_range / sqrt(2.0 * (double)c->n_layer));
    }
}

void gx_gpt2_describe(GxContext *g, GxModel *m)
{
    const GxGpt2Config *c = (const GxGpt2Config *)m->config;
    GxUnitSpec head = gx__gpt2_head(c);
    gx_model_choose_head(g, m, &head.pair[0].core, "a GPT-2");
    if (m->adapter.prompt.len > 0)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "prompts in the attention of a GPT-2 are not supported; use --tuning lora or --tuning adapter");
    if (gx_failed(g)) return;
    const GxUnitSpec embed = gx__gpt2_embed(c), layer = gx__gpt2_layer(c);
    m->max_positions = c->n_positions;
    gx_model_chain(g, m, &embed, &layer, c->n_layer, &head);
    gx__gpt2_set_layers(c, m);
    gx__gpt2_set_init(c, m);
}
#endif
