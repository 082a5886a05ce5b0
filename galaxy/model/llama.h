// llama.h: LLaMA (Touvron et al. 2023, arXiv:2302.13971; grouped heads as in LLaMA 2, RoPE's scaling as in 3.1) as a
// family: its configuration, the names of its tensors, and the description of its units. The family includes models of
// the same structure: Mistral (Jiang et al. 2023, arXiv:2310.06825), Qwen2 (Yang et al. 2024, arXiv:2407.10671), whose
// q, k and v have biases, Qwen3 (Yang et al. 2025, arXiv:2505.09388), which has none, and norms of q's and k's heads,
// SmolLM3 (Bakouch et al. 2025, huggingface.co/blog/smollm3), in which some layers, every fourth by default, have no
// RoPE (Yang et al. 2025, arXiv:2501.18795), Phi-3 (Abdin et al. 2024, arXiv:2404.14219), in whose files q, k and v are
// one matrix, and gate and up another, and Gemma 3 (Gemma Team 2025, arXiv:2503.19786). In all of Mistral's and Phi-3's
// layers, in most of Gemma 3's, and in some of Qwen2's, Qwen3's and SmolLM3's where the configuration says so,
// attention has a sliding window: a token attends only to itself and the nearest tokens before it.
//
//     embed   x = tokens' rows
//     layer   h = rms_norm(x)                                                      input_layernorm        enter.h
//             x = x + o(attention(rotate(q(h)), rotate(k(h)), v(h)))               self_attn              att.h, con.h
//             h = rms_norm(x)                                                      post_attention_layernorm
//             x = x + down(silu(gate(h)) * up(h))                                  mlp                    mlp.h, con.h
//     head    loss = cross-entropy(rms_norm(x) W^T), or labels of a whole text from its last token
//
// A Gemma 3 differs in this: tokens' rows are multiplied by sqrt(hidden_size); each block's result is normed before it
// is added, x = x + rms_norm(o(...)) and x = x + rms_norm(down(...)); norms multiply by 1 + w; the gate's activation is
// gelu (tanh); each head's q and k are normed; attention's scores are divided by the root of query_pre_attn_scalar; and
// layers with a window, five of six, have a RoPE of their own.
//
// This is the forward of a layer on one rank: unit.h runs its two pairs, and a mode (train_tp.cu, ...) adds the
// collectives between enter, core and CON.
//
// A LLaMA, Qwen3, SmolLM3 or Gemma 3 may have biases of q, k, v and o, and a LLaMA or SmolLM3 of gate, up and down.
//
// Not supported (yet): dropout.
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
    char model_type[GX_FIELD_TEXT]; // llama, mistral, qwen2, qwen3, smollm3, phi3, gemma3_text; "": llama
    // tokens that a token attends to, itself included; 0: all, gemma3_text: 4096. Not for llama
    int64_t sliding_window;
    // default, linear, dynamic, yarn, llama3; phi3: default alone; gemma3_text: default, linear; "": default. dynamic
    // differs from default only in sequences longer than max_position_embeddings, which no model here takes
    char rope_type[GX_FIELD_TEXT];
    double rope_factor;                                 // all but default; 0: llama3: 8, others: an error
    double rope_low_freq_factor, rope_high_freq_factor; // llama3; 0: the defaults 1, 4
    int64_t rope_original_max_position_embeddings;      // llama3: 0: 8192; yarn: 0: max_position_embeddings
    // qwen2 and qwen3 with a sliding_window: "s" for each layer with the sliding window, "f" for each other layer. "":
    // the first max_window_layers layers attend to all tokens, the others have the window
    int64_t max_window_layers;
    char layer_types[GX_FIELD_TEXT]; // smollm3: "": the layers without RoPE have the window; gemma3_text: see below
    // smollm3: "0" for each layer without RoPE, "1" for each other layer. "": every layer whose number, counted from 1,
    // is a multiple of no_rope_layer_interval (0: 4) has no RoPE
    int64_t no_rope_layer_interval;
    char no_rope_layers[GX_FIELD_TEXT];
    // yarn; 0: 32, 1. attention_factor: what q and k are multiplied by; 0: computed from factor, mscale and
    // mscale_all_dim, which count only together. untruncated: GxRope.keeps_fractions
    double rope_beta_fast, rope_beta_slow, rope_attention_factor, rope_mscale, rope_mscale_all_dim;
    int rope_untruncated;
    int attention_bias; // llama, qwen3, smollm3, gemma3_text: q, k, v and o have biases
    int mlp_bias;       // llama, smollm3: gate, up and down have biases
    // gemma3_text. Every layer whose number, counted from 1, is a multiple of sliding_window_pattern (0: 6) attends to
    // all tokens, with rope_theta and the scaling of rope_type; the others have the window, and rope_local_base_freq
    // (0: 10000), unscaled. layer_types may say otherwise. Scores are divided by the root of query_pre_attn_scalar (0:
    // head_dim)
    int64_t sliding_window_pattern, query_pre_attn_scalar;
    double rope_local_base_freq;
} GxLlamaConfig;

// Replaces 0 by defaults (num_key_value_heads: num_attention_heads; head_dim: hidden_size / num_attention_heads). An
// error if a value is invalid.
GxStatus gx_llama_config_resolve(GxLlamaConfig *c, GxError *err);

// 1: layer l has sliding-window attention. c is resolved.
int gx_llama_slides(const GxLlamaConfig *c, int64_t l);
int gx_llama_rotates(const GxLlamaConfig *c, int64_t l); // 1: layer l has RoPE. c is resolved
GxRope gx_llama_rope(const GxLlamaConfig *c);            // of all layers that have it. c is resolved
// In a gemma3_text, that of the layers with a window; theta 0: they have the same. c is resolved.
GxRope gx_llama_local_rope(const GxLlamaConfig *c);

enum { GX_LLAMA_ROPE_NUMBERS = 9 };
typedef struct { // a number of the configuration that belongs to a scaling of RoPE
    const char *name;
    size_t offset; // of a double, or with is_int of an int64_t
    int is_int;
    const char *types; // the values of rope_type that it belongs to: "yarn|llama3"
} GxLlamaRopeNumber;
extern const GxLlamaRopeNumber gx_llama_rope_numbers[GX_LLAMA_ROPE_NUMBERS];

void gx_llama_describe(GxContext *g, GxModel *m); // of m->config

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LLAMA_IMPLEMENTED)
#define GX_LLAMA_IMPLEMENTED
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "../base/text.h"

// ---- the types of models -------------------------------------------------------------------------------------------

static int gx__llama_is(const GxLlamaConfig *c, const char *types) { return gx_text_is_among(c->model_type, types); }

int gx_llama_rotates(const GxLlamaConfig *c, int64_t l)
{
    if (!c->no_rope_layer_interval) return 1;
    return c->no_rope_layers[0] ? c->no_rope_layers[l] == '1' : (l + 1) % c->no_rope_layer_interval != 0;
}

// Without layer_types.
static int gx__llama_slides_by_default(const GxLlamaConfig *c, int64_t l)
{
    if (c->sliding_window_pattern) return (l + 1) % c->sliding_window_pattern != 0;
    return c->no_rope_layer_interval ? !gx_llama_rotates(c, l) : l >= c->max_window_layers;
}

int gx_llama_slides(const GxLlamaConfig *c, int64_t l)
{
    if (!c->sliding_window) return 0;
    if (c->layer_types[0]) return c->layer_types[l] == 's';
    return gx__llama_slides_by_default(c, l);
}

// Sets layer_types to what other members say, if it is empty and has room for all layers.
static void gx__llama_resolve_layer_types(GxLlamaConfig *c)
{
    if (c->layer_types[0] || c->num_hidden_layers >= GX_FIELD_TEXT) return;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) { // a letter at a time: not empty, it would be looked at
        const int slides = gx__llama_slides_by_default(c, l);
        c->layer_types[l] = slides ? 's' : 'f', c->layer_types[l + 1] = 0;
    }
}

// Sets no_rope_layers to what no_rope_layer_interval says, if it is empty and has room for all layers.
static GxStatus gx__llama_resolve_no_rope(GxLlamaConfig *c, GxError *err)
{
    const int64_t given = (int64_t)strlen(c->no_rope_layers);
    if (!gx__llama_is(c, "smollm3")) {
        if (!given && !c->no_rope_layer_interval) return GX_OK;
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "no_rope_layers is \"%s\" and no_rope_layer_interval %ld, but only a smollm3 has layers without "
                       "RoPE, not a %s",
                       c->no_rope_layers, (long)c->no_rope_layer_interval, c->model_type);
    }
    if (c->no_rope_layer_interval == 0) c->no_rope_layer_interval = 4;
    if (c->no_rope_layer_interval < 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "no_rope_layer_interval is %ld; it must be at least 1, or 0 for 4",
                       (long)c->no_rope_layer_interval);
    if (given && (given != c->num_hidden_layers || (int64_t)strspn(c->no_rope_layers, "01") != given))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "no_rope_layers is \"%s\"; expected one digit for each of the %ld layers: 1 (RoPE) or 0 (none)",
                       c->no_rope_layers, (long)c->num_hidden_layers);
    if (given || c->num_hidden_layers >= GX_FIELD_TEXT) return GX_OK;
    char digits[GX_FIELD_TEXT] = "";
    for (int64_t l = 0; l < c->num_hidden_layers; l++) digits[l] = gx_llama_rotates(c, l) ? '1' : '0';
    memcpy(c->no_rope_layers, digits, sizeof digits);
    return GX_OK;
}

// What only a gemma3_text has.
static GxStatus gx__llama_resolve_gemma3(GxLlamaConfig *c, GxError *err)
{
    if (!gx__llama_is(c, "gemma3_text")) {
        if (!c->sliding_window_pattern && !c->query_pre_attn_scalar && c->rope_local_base_freq == 0) return GX_OK;
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "sliding_window_pattern is %ld, query_pre_attn_scalar %ld and rope_local_base_freq %g, but only a "
            "gemma3_text has them, not a %s",
            (long)c->sliding_window_pattern, (long)c->query_pre_attn_scalar, c->rope_local_base_freq, c->model_type);
    }
    if (c->sliding_window == 0) c->sliding_window = 4096;
    if (c->sliding_window_pattern == 0) c->sliding_window_pattern = 6;
    if (c->query_pre_attn_scalar == 0) c->query_pre_attn_scalar = c->head_dim;
    if (c->rope_local_base_freq == 0) c->rope_local_base_freq = 10000;
    if (c->sliding_window_pattern < 1 || c->query_pre_attn_scalar < 1 || !(c->rope_local_base_freq > 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "sliding_window_pattern is %ld, query_pre_attn_scalar %ld and rope_local_base_freq %g; all must "
                       "be above 0",
                       (long)c->sliding_window_pattern, (long)c->query_pre_attn_scalar, c->rope_local_base_freq);
    return GX_OK;
}

static GxStatus gx__llama_resolve_windows(GxLlamaConfig *c, GxError *err)
{
    const int is_qwen = gx__llama_is(c, "qwen2|qwen3"), has_types = is_qwen || gx__llama_is(c, "smollm3|gemma3_text");
    const int64_t types = (int64_t)strlen(c->layer_types);
    if (c->sliding_window < 0 || c->max_window_layers < 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "sliding_window is %ld, max_window_layers %ld; neither may be below 0",
                       (long)c->sliding_window, (long)c->max_window_layers);
    if (c->sliding_window && gx__llama_is(c, "llama"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "sliding_window is %ld, but a llama has no sliding window; other values of model_type do",
                       (long)c->sliding_window);
    if (c->max_window_layers && !is_qwen)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "max_window_layers is %ld, but only models of model_type qwen2 or qwen3 have it, not %s",
                       (long)c->max_window_layers, c->model_type);
    if (types && !has_types)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "layer_types is \"%s\", but only models of model_type qwen2, qwen3, smollm3 or gemma3_text have "
                       "it, not %s",
                       c->layer_types, c->model_type);
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
    if (c->sliding_window && has_types) gx__llama_resolve_layer_types(c);
    return GX_OK;
}

// ---- RoPE's scaling ------------------------------------------------------------------------------------------------

const GxLlamaRopeNumber gx_llama_rope_numbers[GX_LLAMA_ROPE_NUMBERS] = {
    {"rope_factor", offsetof(GxLlamaConfig, rope_factor), 0, "linear|dynamic|yarn|llama3"},
    {"rope_low_freq_factor", offsetof(GxLlamaConfig, rope_low_freq_factor), 0, "llama3"},
    {"rope_high_freq_factor", offsetof(GxLlamaConfig, rope_high_freq_factor), 0, "llama3"},
    {"rope_original_max_position_embeddings", offsetof(GxLlamaConfig, rope_original_max_position_embeddings), 1,
     "yarn|llama3"},
    {"rope_beta_fast", offsetof(GxLlamaConfig, rope_beta_fast), 0, "yarn"},
    {"rope_beta_slow", offsetof(GxLlamaConfig, rope_beta_slow), 0, "yarn"},
    {"rope_attention_factor", offsetof(GxLlamaConfig, rope_attention_factor), 0, "yarn"},
    {"rope_mscale", offsetof(GxLlamaConfig, rope_mscale), 0, "yarn"},
    {"rope_mscale_all_dim", offsetof(GxLlamaConfig, rope_mscale_all_dim), 0, "yarn"},
};

static GxStatus gx__llama_check_rope_numbers(const GxLlamaConfig *c, GxError *err)
{
    for (int i = 0; i < GX_LLAMA_ROPE_NUMBERS; i++) {
        const GxLlamaRopeNumber *n = &gx_llama_rope_numbers[i];
        const char *at = (const char *)c + n->offset;
        const double value = n->is_int ? (double)*(const int64_t *)at : *(const double *)at;
        if (value != 0 && !gx_text_is_among(c->rope_type, n->types))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %g; it belongs to rope_type %s, but rope_type is %s", n->name,
                           value, n->types, c->rope_type);
        if (!(value >= 0 && value < 1e30))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %g; it must be a number of 0 or more", n->name, value);
    }
    if (c->rope_untruncated && strcmp(c->rope_type, "yarn"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "rope_untruncated is true; it belongs to rope_type yarn, but rope_type is %s", c->rope_type);
    return GX_OK;
}

static GxStatus gx__llama_resolve_llama3(GxLlamaConfig *c, GxError *err)
{
    if (c->rope_factor == 0) c->rope_factor = 8;
    if (c->rope_low_freq_factor == 0) c->rope_low_freq_factor = 1;
    if (c->rope_high_freq_factor == 0) c->rope_high_freq_factor = 4;
    if (c->rope_original_max_position_embeddings == 0) c->rope_original_max_position_embeddings = 8192;
    if (c->rope_low_freq_factor < c->rope_high_freq_factor) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "rope_low_freq_factor is %g, rope_high_freq_factor %g; the first must be less than the second",
                   c->rope_low_freq_factor, c->rope_high_freq_factor);
}

static GxStatus gx__llama_resolve_yarn(GxLlamaConfig *c, GxError *err)
{
    if (c->rope_beta_fast == 0) c->rope_beta_fast = 32;
    if (c->rope_beta_slow == 0) c->rope_beta_slow = 1;
    if (c->rope_original_max_position_embeddings == 0)
        c->rope_original_max_position_embeddings = c->max_position_embeddings;
    if (!(c->rope_theta > 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rope_theta is %g; with rope_type yarn it must be above 1", c->rope_theta);
    if (c->rope_beta_slow < c->rope_beta_fast) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "rope_beta_slow is %g, rope_beta_fast %g; the first must be less than the second", c->rope_beta_slow,
                   c->rope_beta_fast);
}

static GxStatus gx__llama_resolve_rope(GxLlamaConfig *c, GxError *err)
{
    if (!c->rope_type[0]) snprintf(c->rope_type, sizeof c->rope_type, "default");
    if (!gx_text_is_among(c->rope_type, "default|linear|dynamic|yarn|llama3"))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "rope_type is \"%s\"; supported: default, linear, dynamic, yarn, llama3",
                       c->rope_type);
    GX_TRY(gx__llama_check_rope_numbers(c, err));
    if (!strcmp(c->rope_type, "default")) return GX_OK;
    if (gx__llama_is(c, "phi3"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "rope_type is %s; of a phi3 only default is supported", c->rope_type);
    if (gx__llama_is(c, "gemma3_text") && strcmp(c->rope_type, "linear"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "rope_type is %s; of a gemma3_text default and linear are supported",
                       c->rope_type);
    if (!strcmp(c->rope_type, "llama3")) GX_TRY(gx__llama_resolve_llama3(c, err));
    if (!strcmp(c->rope_type, "yarn")) GX_TRY(gx__llama_resolve_yarn(c, err));
    if (c->rope_factor >= 1) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "rope_factor is %g; with rope_type %s it must be at least 1", c->rope_factor,
                   c->rope_type);
}

// YaRN, section 3.4; with mscale and mscale_all_dim as in DeepSeek-V2.
static double gx__llama_yarn_attention(const GxLlamaConfig *c)
{
    const double grows = c->rope_factor > 1 ? 0.1 * log(c->rope_factor) : 0;
    if (c->rope_attention_factor > 0) return c->rope_attention_factor;
    if (c->rope_mscale > 0 && c->rope_mscale_all_dim > 0)
        return (c->rope_mscale * grows + 1) / (c->rope_mscale_all_dim * grows + 1);
    return grows + 1;
}

GxRope gx_llama_rope(const GxLlamaConfig *c)
{
    GxRope r = GX_ZERO;
    r.theta = c->rope_theta, r.factor = c->rope_factor;
    r.original = (double)c->rope_original_max_position_embeddings;
    if (!strcmp(c->rope_type, "linear")) r.scaling = GX_ROPE_LINEAR;
    if (!strcmp(c->rope_type, "llama3")) {
        r.scaling = GX_ROPE_LLAMA3;
        r.low = c->rope_low_freq_factor, r.high = c->rope_high_freq_factor;
    }
    if (!strcmp(c->rope_type, "yarn")) {
        r.scaling = GX_ROPE_YARN;
        r.low = c->rope_beta_slow, r.high = c->rope_beta_fast;
        r.attention_factor = gx__llama_yarn_attention(c), r.keeps_fractions = c->rope_untruncated;
    }
    return r;
}

GxRope gx_llama_local_rope(const GxLlamaConfig *c)
{
    GxRope r = GX_ZERO;
    r.theta = c->rope_local_base_freq;
    return r;
}

static GxStatus gx__llama_check_biases(const GxLlamaConfig *c, GxError *err)
{
    const int of_attention = !c->attention_bias || gx__llama_is(c, "llama|qwen3|smollm3|gemma3_text");
    if (of_attention && (!c->mlp_bias || gx__llama_is(c, "llama|smollm3"))) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is true, but only models of model_type %s have it, not %s",
                   of_attention ? "mlp_bias" : "attention_bias",
                   of_attention ? "llama or smollm3" : "llama, qwen3, smollm3 or gemma3_text", c->model_type);
}

// ---- the configuration ---------------------------------------------------------------------------------------------

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
    if (!c->model_type[0]) snprintf(c->model_type, sizeof c->model_type, "llama");
    GX_TRY(gx__llama_check_biases(c, err));
    GX_TRY(gx__llama_resolve_no_rope(c, err));
    GX_TRY(gx__llama_resolve_gemma3(c, err));
    GX_TRY(gx__llama_resolve_windows(c, err));
    return gx__llama_resolve_rope(c, err);
}

static float gx__llama_norm_offset(const GxLlamaConfig *c) { return gx__llama_is(c, "gemma3_text") ? 1 : 0; }

static GxEnterSpec gx__llama_norm(const GxLlamaConfig *c, const char *name)
{
    GxEnterSpec e;
    memset(&e, 0, sizeof e);
    e.kind = GX_ENTER_NORM, e.norm = GX_RMS_NORM, e.eps = (float)c->rms_norm_eps, e.norm_name = name;
    e.offset = gx__llama_norm_offset(c);
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
    if (gx__llama_is(c, "gemma3_text")) p->core.scale = (float)sqrt((double)c->hidden_size), p->core.rounds_scale = 1;
    p->con.kind = GX_CON_EMBED;
    return u;
}

// What differs in a layer of a Gemma 3.
static void gx__llama_set_gemma3(const GxLlamaConfig *c, GxPairSpec *att, GxPairSpec *mlp)
{
    GxConSpec *const con[2] = {&att->con, &mlp->con};
    att->con.norm_name = "model.layers.%d.post_attention_layernorm";
    mlp->con.norm_name = "model.layers.%d.post_feedforward_layernorm";
    for (int i = 0; i < 2; i++) {
        con[i]->norms_result = 1;
        con[i]->eps = (float)c->rms_norm_eps, con[i]->offset = gx__llama_norm_offset(c);
    }
    mlp->enter.norm_name = "model.layers.%d.pre_feedforward_layernorm";
    mlp->core.activation = GX_GEGLU_NEW;
    att->core.local_rope = gx_llama_local_rope(c);
    // 0 also suits the narrower heads of a side network
    if (c->query_pre_attn_scalar != c->head_dim) att->core.scale = (float)(1 / sqrt((double)c->query_pre_attn_scalar));
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
    att->core.is_causal = 1, att->core.rope = gx_llama_rope(c);
    att->core.has_bias = c->attention_bias || gx__llama_is(c, "qwen2");
    att->con.has_bias = c->attention_bias;
    mlp->core.has_bias = mlp->con.has_bias = c->mlp_bias;
    att->core.has_qk_norm = gx__llama_is(c, "qwen3|gemma3_text"), att->core.eps = (float)c->rms_norm_eps;
    att->core.offset = gx__llama_norm_offset(c);
    att->core.qk_norm[0] = "model.layers.%d.self_attn.q_norm";
    att->core.qk_norm[1] = "model.layers.%d.self_attn.k_norm";
    if (gx__llama_is(c, "phi3"))
        att->core.stack = "model.layers.%d.self_attn.qkv_proj", mlp->core.stack = "model.layers.%d.mlp.gate_up_proj";
    att->core.matrix[0] = "model.layers.%d.self_attn.q_proj";
    att->core.matrix[1] = "model.layers.%d.self_attn.k_proj";
    att->core.matrix[2] = "model.layers.%d.self_attn.v_proj";
    att->core.matrix[3] = "model.layers.%d.self_attn.o_proj";
    mlp->core.kind = GX_CORE_MLP, mlp->core.activation = GX_SWIGLU, mlp->core.columns = c->intermediate_size;
    mlp->core.matrix[0] = "model.layers.%d.mlp.gate_proj";
    mlp->core.matrix[1] = "model.layers.%d.mlp.up_proj";
    mlp->core.matrix[2] = "model.layers.%d.mlp.down_proj";
    if (gx__llama_is(c, "gemma3_text")) gx__llama_set_gemma3(c, att, mlp);
    return u;
}

static GxUnitSpec gx__llama_head(const GxLlamaConfig *c)
{
    GxUnitSpec u = gx__llama_unit(c, "head", 1);
    GxPairSpec *p = &u.pair[0];
    p->enter = gx__llama_norm(c, "model.norm");
    p->con.kind = GX_CON_NOTHING;
    p->core.kind = GX_CORE_HEAD, p->core.vocab = c->vocab_size, p->core.is_tied = c->tie_word_embeddings;
    p->core.matrix[0] = "lm_head";
    return u;
}

// A side network's layer has the window and the RoPE of the layer beside it.
static void gx__llama_set_layers(const GxLlamaConfig *c, GxModel *m)
{
    int64_t l = -1;
    for (int u = 0; u < m->units; u++) {
        const GxUnitSpec *spec = gx_unit_spec(m, u);
        if (spec->n_pairs == 0 || spec->pair[0].core.kind != GX_CORE_ATT) continue;
        l += spec->side == GX_SIDE_NONE;
        m->unit[u].sliding_window = gx_llama_slides(c, l) ? c->sliding_window : 0;
        m->unit[u].skips_rope = !gx_llama_rotates(c, l);
        m->unit[u].local_rope = spec->pair[0].core.local_rope.theta > 0 && gx_llama_slides(c, l);
    }
}

void gx_llama_describe(GxContext *g, GxModel *m)
{
    const GxLlamaConfig *c = (const GxLlamaConfig *)m->config;
    GxUnitSpec head = gx__llama_head(c);
    gx_model_choose_head(g, m, &head.pair[0].core, "a LLaMA");
    if (gx_failed(g)) return;
    const GxUnitSpec embed = gx__llama_embed(c), layer = gx__llama_layer(c);
    m->max_positions = c->max_position_embeddings;
    gx_model_chain(g, m, &embed, &layer, c->num_hidden_layers, &head);
    gx__llama_set_layers(c, m);
}
#endif
