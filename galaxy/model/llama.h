// llama.h: LLaMA (Touvron et al. 2023, arXiv:2302.13971; grouped heads as in LLaMA 2, RoPE's scaling as in 3.1) as a
// family: its configuration, the names of its tensors, and the description of its units. The family includes models of
// the same structure: Mistral (Jiang et al. 2023, arXiv:2310.06825), Qwen2 (Yang et al. 2024, arXiv:2407.10671), whose
// q, k and v have biases, and Qwen3 (Yang et al. 2025, arXiv:2505.09388), which has none, and norms of q's and k's
// heads. In all of Mistral's layers, and in some of Qwen2's and Qwen3's where the configuration says so, attention has
// a sliding window: a token attends only to itself and the nearest tokens before it.
//
//     embed   x = tokens' rows
//     layer   h = rms_norm(x)                                                      input_layernorm        enter.h
//             x = x + o(attention(rotate(q(h)), rotate(k(h)), v(h)))               self_attn              att.h, con.h
//             h = rms_norm(x)                                                      post_attention_layernorm
//             x = x + down(silu(gate(h)) * up(h))                                  mlp                    mlp.h, con.h
//     head    loss = cross-entropy(rms_norm(x) W^T), or labels of a whole text from its last token
//
// This is the forward of a layer on one rank: unit.h runs its two pairs, and a mode (train_tp.cu, ...) adds the
// collectives between enter, core and CON.
//
// Not supported (yet): other biases, dropout.
#ifndef GX_LLAMA_H
#define GX_LLAMA_H
#include "cores.h"
#include "build.h"
GX_BEGIN

typedef struct { // names as in Hugging Face's config.json
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads;
    int64_t head_dim, max_position_embeddings;
    double rms_norm_eps, rope_theta, initializer_range;
    int tie_word_embeddings;
    int64_t pad_token_id;           // its row gets no gradient from lookups, as in transformers; below 0: none
    char model_type[GX_FIELD_TEXT]; // llama, mistral, qwen2, qwen3; "": llama
    int64_t sliding_window;         // tokens that a token attends to, itself included; 0: all. Not for llama
    char rope_type[GX_FIELD_TEXT];  // default, llama3; "": default
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor; // llama3; 0: the defaults 8, 1, 4
    int64_t rope_original_max_position_embeddings;                   // llama3; 0: 8192
    // qwen2 and qwen3 with a sliding_window: "s" for each layer with the sliding window, "f" for each other layer. "":
    // the first max_window_layers layers attend to all tokens, the others have the window
    int64_t max_window_layers;
    char layer_types[GX_FIELD_TEXT];
} GxLlamaConfig;

// Replaces 0 by defaults (num_key_value_heads: num_attention_heads; head_dim: hidden_size / num_attention_heads). An
// error if a value is invalid.
GxStatus gx_llama_config_resolve(GxLlamaConfig *c, GxError *err);

// 1: layer l has sliding-window attention. c is resolved.
int gx_llama_slides(const GxLlamaConfig *c, int64_t l);

void gx_llama_describe(GxContext *g, GxModel *m); // of m->config

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LLAMA_IMPLEMENTED)
#define GX_LLAMA_IMPLEMENTED
#include <string.h>

int gx_llama_slides(const GxLlamaConfig *c, int64_t l)
{
    if (!c->sliding_window) return 0;
    return c->layer_types[0] ? c->layer_types[l] == 's' : l >= c->max_window_layers;
}

// Converts max_window_layers to layer_types, if that is empty and has room for all layers.
static void gx__llama_resolve_layer_types(GxLlamaConfig *c)
{
    if (c->layer_types[0] || c->num_hidden_layers >= GX_FIELD_TEXT) return;
    for (int64_t l = 0; l < c->num_hidden_layers; l++)
        c->layer_types[l] = l < c->max_window_layers ? 'f' : 's', c->layer_types[l + 1] = 0;
}

static GxStatus gx__llama_resolve_windows(GxLlamaConfig *c, GxError *err)
{
    const int is_qwen = !strcmp(c->model_type, "qwen2") || !strcmp(c->model_type, "qwen3");
    const int64_t types = (int64_t)strlen(c->layer_types);
    if (c->sliding_window < 0 || c->max_window_layers < 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "sliding_window is %ld, max_window_layers %ld; neither may be below 0",
                       (long)c->sliding_window, (long)c->max_window_layers);
    if (c->sliding_window && !is_qwen && strcmp(c->model_type, "mistral"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "sliding_window is %ld, but only models of model_type mistral, qwen2 or qwen3 have a sliding "
                       "window, not %s",
                       (long)c->sliding_window, c->model_type);
    if ((c->max_window_layers || types) && !is_qwen)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "max_window_layers is %ld and layer_types \"%s\", but only models of model_type qwen2 or qwen3 "
                       "have them, not %s",
                       (long)c->max_window_layers, c->layer_types, c->model_type);
    if (types && (types != c->num_hidden_layers || (int64_t)strspn(c->layer_types, "fs") != types))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "layer_types is \"%s\"; expected one letter for each of the %ld layers: s (sliding window) or f "
                       "(full attention)",
                       c->layer_types, (long)c->num_hidden_layers);
    if ((c->max_window_layers || types) && !c->sliding_window)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "max_window_layers is %ld and layer_types \"%s\", but there is no sliding window; set "
                       "sliding_window to its number of tokens",
                       (long)c->max_window_layers, c->layer_types);
    if (c->sliding_window && is_qwen) gx__llama_resolve_layer_types(c);
    return GX_OK;
}

// Resolves model_type, sliding windows and RoPE's scaling.
static GxStatus gx__llama_resolve_kind(GxLlamaConfig *c, GxError *err)
{
    if (!c->model_type[0]) snprintf(c->model_type, sizeof c->model_type, "llama");
    if (!c->rope_type[0]) snprintf(c->rope_type, sizeof c->rope_type, "default");
    GX_TRY(gx__llama_resolve_windows(c, err));
    if (!strcmp(c->rope_type, "default")) {
        if (c->rope_factor == 0 && c->rope_low_freq_factor == 0 && c->rope_high_freq_factor == 0 &&
            c->rope_original_max_position_embeddings == 0)
            return GX_OK;
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "rope_factor is %g, rope_low_freq_factor %g, rope_high_freq_factor %g, "
            "rope_original_max_position_embeddings %ld; they belong to rope_type llama3, but rope_type is default",
            c->rope_factor, c->rope_low_freq_factor, c->rope_high_freq_factor,
            (long)c->rope_original_max_position_embeddings);
    }
    if (c->rope_factor == 0) c->rope_factor = 8;
    if (c->rope_low_freq_factor == 0) c->rope_low_freq_factor = 1;
    if (c->rope_high_freq_factor == 0) c->rope_high_freq_factor = 4;
    if (c->rope_original_max_position_embeddings == 0) c->rope_original_max_position_embeddings = 8192;
    if (c->rope_factor >= 1 && c->rope_low_freq_factor < c->rope_high_freq_factor) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "rope_factor is %g, rope_low_freq_factor %g, rope_high_freq_factor %g; rope_factor must be at least "
                   "1, and rope_low_freq_factor less than rope_high_freq_factor",
                   c->rope_factor, c->rope_low_freq_factor, c->rope_high_freq_factor);
}

static GxRope gx__llama_rope(const GxLlamaConfig *c)
{
    const GxRope r = {c->rope_theta, c->rope_factor, c->rope_low_freq_factor, c->rope_high_freq_factor,
                      (double)c->rope_original_max_position_embeddings};
    return r;
}

GxStatus gx_llama_config_resolve(GxLlamaConfig *c, GxError *err)
{
    // keeps sizes in bytes far below 2^63
    GX_TRY(gx_check_size("vocab_size", c->vocab_size, 1 << 24, err));
    GX_TRY(gx_check_size("hidden_size", c->hidden_size, 1 << 20, err));
    GX_TRY(gx_check_size("intermediate_size", c->intermediate_size, 1 << 22, err));
    GX_TRY(gx_check_size("num_hidden_layers", c->num_hidden_layers, 1000, err));
    GX_TRY(gx_check_size("num_attention_heads", c->num_attention_heads, 1 << 16, err));
    GX_TRY(gx_check_size("max_position_embeddings", c->max_position_embeddings, (int64_t)1 << 40, err));
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
    if (c->pad_token_id >= c->vocab_size)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "pad_token_id is %ld; it must be -1 (none) or an id of the vocabulary, which ends at %ld",
                       (long)c->pad_token_id, (long)c->vocab_size - 1);
    if (!(c->rms_norm_eps > 0) || !(c->rope_theta > 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rms_norm_eps (%g) and rope_theta (%g) must be above 0", c->rms_norm_eps,
                       c->rope_theta);
    return gx__llama_resolve_kind(c, err);
}

static GxEnterSpec gx__llama_norm(const GxLlamaConfig *c, const char *name)
{
    GxEnterSpec e;
    memset(&e, 0, sizeof e);
    e.kind = GX_ENTER_NORM, e.norm = GX_RMS_NORM, e.eps = (float)c->rms_norm_eps, e.norm_name = name;
    return e;
}

static GxUnitSpec gx__llama_unit(const GxLlamaConfig *c, const char *name, int n_pairs)
{
    GxUnitSpec u = GX_ZERO;
    u.name = name, u.n_pairs = n_pairs;
    u.width = c->hidden_size;
    u.init_std = (float)c->initializer_range;
    return u;
}

static GxUnitSpec gx__llama_embed(const GxLlamaConfig *c)
{
    GxUnitSpec u = gx__llama_unit(c, "embed", 1);
    GxPairSpec *p = &u.pair[0];
    p->core.kind = GX_CORE_EMBED, p->core.vocab = c->vocab_size, p->core.ignored = c->pad_token_id;
    p->core.matrix[0] = "model.embed_tokens";
    p->con.kind = GX_CON_EMBED;
    return u;
}

static GxUnitSpec gx__llama_layer(const GxLlamaConfig *c)
{
    GxUnitSpec u = gx__llama_unit(c, "layer", 2);
    GxPairSpec *att = &u.pair[0], *mlp = &u.pair[1];
    att->enter = gx__llama_norm(c, "model.layers.%d.input_layernorm");
    mlp->enter = gx__llama_norm(c, "model.layers.%d.post_attention_layernorm");
    att->con.kind = mlp->con.kind = GX_CON_ADD;
    att->core.kind = GX_CORE_ATT;
    att->core.heads = c->num_attention_heads, att->core.kv_heads = c->num_key_value_heads;
    att->core.head_dim = c->head_dim;
    att->core.is_causal = 1, att->core.rope = gx__llama_rope(c);
    att->core.has_bias = !strcmp(c->model_type, "qwen2");
    att->core.has_qk_norm = !strcmp(c->model_type, "qwen3"), att->core.eps = (float)c->rms_norm_eps;
    att->core.qk_norm[0] = "model.layers.%d.self_attn.q_norm";
    att->core.qk_norm[1] = "model.layers.%d.self_attn.k_norm";
    att->core.matrix[0] = "model.layers.%d.self_attn.q_proj";
    att->core.matrix[1] = "model.layers.%d.self_attn.k_proj";
    att->core.matrix[2] = "model.layers.%d.self_attn.v_proj";
    att->core.matrix[3] = "model.layers.%d.self_attn.o_proj";
    mlp->core.kind = GX_CORE_MLP, mlp->core.activation = GX_SWIGLU, mlp->core.columns = c->intermediate_size;
    mlp->core.matrix[0] = "model.layers.%d.mlp.gate_proj";
    mlp->core.matrix[1] = "model.layers.%d.mlp.up_proj";
    mlp->core.matrix[2] = "model.layers.%d.mlp.down_proj";
    return u;
}

// For the next token, or for labels of the whole text, which are read from its last token.
static GxUnitSpec gx__llama_head(const GxLlamaConfig *c, const GxHeadRequest *request)
{
    GxUnitSpec u = gx__llama_unit(c, "head", 1);
    GxPairSpec *p = &u.pair[0];
    p->enter = gx__llama_norm(c, "model.norm");
    p->con.kind = GX_CON_NOTHING;
    p->core.kind = GX_CORE_HEAD, p->core.vocab = c->vocab_size, p->core.is_tied = c->tie_word_embeddings;
    p->core.matrix[0] = "lm_head";
    if (request->kind != GX_HEAD_LABELS) return u;
    p->core.kind = GX_CORE_LABELS, p->core.vocab = request->labels, p->core.loss = request->loss, p->core.is_tied = 0;
    p->core.matrix[0] = "score";
    return u;
}

// A side network's layer has the window of the layer beside it.
static void gx__llama_set_windows(const GxLlamaConfig *c, GxModel *m)
{
    int64_t l = -1;
    for (int u = 0; u < m->units; u++) {
        const GxUnitSpec *spec = gx_unit_spec(m, u);
        if (spec->n_pairs == 0 || spec->pair[0].core.kind != GX_CORE_ATT) continue;
        l += spec->side == GX_SIDE_NONE;
        m->unit[u].sliding_window = gx_llama_slides(c, l) ? c->sliding_window : 0;
    }
}

void gx_llama_describe(GxContext *g, GxModel *m)
{
    const GxLlamaConfig *c = (const GxLlamaConfig *)m->config;
    const GxHeadKind request = m->head.kind;
    if (request != GX_HEAD_CAUSAL && request != GX_HEAD_LABELS)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "a LLaMA has a head for the next token or for labels; this task asks for %s", gx_head_name(request));
    if (gx_failed(g)) return;
    const GxUnitSpec embed = gx__llama_embed(c), layer = gx__llama_layer(c), head = gx__llama_head(c, &m->head);
    m->max_positions = c->max_position_embeddings;
    gx_model_chain(g, m, &embed, &layer, c->num_hidden_layers, &head);
    gx__llama_set_windows(c, m);
}
#endif
