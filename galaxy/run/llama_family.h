// llama_family.h: LLaMA, Mistral, Qwen2, Qwen3, SmolLM3, Phi-3 and Gemma 3 for the trainer: their options and their
// config.json.
//
// Reading refuses by name whatever would change the arithmetic and is not implemented (RoPE's longrope, biases other
// than Qwen2's, dropout, other activations and heads), and every member of a wrong type: no member is ever silently
// ignored. Writing gives RoPE in the spellings of both transformers 4 and 5, since 4.x would silently
// read a file with the newer spelling as theta = 10000, unscaled. All versions understand torch_dtype; 4.x before 4.56
// does not know its newer name, dtype.
#ifndef GX_LLAMA_FAMILY_H
#define GX_LLAMA_FAMILY_H
#include "../io/bnb.h"
#include "../io/json_fields.h"
#include "../model/llama.h"
#include "family_json.h"
GX_BEGIN

extern const GxFamily gx_llama;
extern const GxJsonKeys gx_llama_keys, gx_llama_rope_keys; // of config.json; of rope_scaling and rope_parameters in it
extern const GxJsonKeys gx_llama_ropes_keys;               // of a Gemma 3's rope_parameters, which has two of those

// Reads and resolves it. Keys that are not read are logged to `log`.
GxStatus gx_llama_config_read(GxLlamaConfig *c, const char *path, const GxLogger *log, GxError *err);
GxStatus gx_llama_config_write(const GxLlamaConfig *c, const GxHeadRequest *request, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LLAMA_FAMILY_IMPLEMENTED)
#define GX_LLAMA_FAMILY_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "../task/causal_lm.h"
#include "../task/classification.h"
#include "../task/dpo.h"

static const GxField gx__llama_family_options[] = {
    {"vocab_size", GX_FIELD_INT, offsetof(GxLlamaConfig, vocab_size), "0",
     "rows of the embedding; 0: as many as the tokenizer has tokens", "0.."},
    {"hidden_size", GX_FIELD_INT, offsetof(GxLlamaConfig, hidden_size), "192", "width of the residual stream", "1.."},
    {"intermediate_size", GX_FIELD_INT, offsetof(GxLlamaConfig, intermediate_size), "512", "columns of the MLP", "1.."},
    {"num_hidden_layers", GX_FIELD_INT, offsetof(GxLlamaConfig, num_hidden_layers), "4", "layers", "1.."},
    {"num_attention_heads", GX_FIELD_INT, offsetof(GxLlamaConfig, num_attention_heads), "6", "number of query heads",
     "1.."},
    {"num_key_value_heads", GX_FIELD_INT, offsetof(GxLlamaConfig, num_key_value_heads), "2",
     "number of key and value heads; 0: as many as query heads", "0.."},
    {"head_dim", GX_FIELD_INT, offsetof(GxLlamaConfig, head_dim), "0",
     "size of a head; 0: hidden_size / num_attention_heads", "0.."},
    {"max_position_embeddings", GX_FIELD_INT, offsetof(GxLlamaConfig, max_position_embeddings), "2048",
     "most tokens in a sequence", "1.."},
    {"rms_norm_eps", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rms_norm_eps), "1e-5",
     "epsilon of the norms, added to the mean square", "1e-30.."},
    {"rope_theta", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_theta), "10000", "base of RoPE's angles", "1e-6.."},
    {"initializer_range", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, initializer_range), "0.02",
     "standard deviation of the random initial weights", "0..1"}, // transformers 5 loads no larger value
    {"tie_word_embeddings", GX_FIELD_BOOL, offsetof(GxLlamaConfig, tie_word_embeddings), "false",
     "use the embedding as the head, too", NULL},
    {"pad_token_id", GX_FIELD_INT, offsetof(GxLlamaConfig, pad_token_id), "-1",
     "id of the padding token, whose row of the embedding gets no gradient from its look-ups; -1: none", "-1.."},
    {"model_type", GX_FIELD_STRING, offsetof(GxLlamaConfig, model_type), "llama",
     "model family; qwen2: q, k and v have biases; qwen3: each head's q and k are normed; smollm3: some layers have no "
     "RoPE; gemma3_text: most layers have a window and a RoPE of their own, and all have four norms",
     "llama|mistral|qwen2|qwen3|smollm3|phi3|gemma3_text"},
    // these differ in config.json: each model type has its own spelling of windows, and RoPE has an object of its own
    {"sliding_window", GX_FIELD_INT, offsetof(GxLlamaConfig, sliding_window), "0",
     "all but llama: number of most recent tokens that each token attends to, itself included; 0: all, gemma3_text: "
     "4096",
     "0.."},
    {"max_window_layers", GX_FIELD_INT, offsetof(GxLlamaConfig, max_window_layers), "0",
     "qwen2, qwen3: number of layers, from the first, that attend to all tokens in spite of sliding_window", "0.."},
    {"layer_types", GX_FIELD_STRING, offsetof(GxLlamaConfig, layer_types), "",
     "qwen2, qwen3: instead of max_window_layers, a letter per layer: s (sliding_window) or f (full attention); "
     "smollm3: if not given, the layers without RoPE have the window; gemma3_text: instead of sliding_window_pattern",
     NULL},
    {"sliding_window_pattern", GX_FIELD_INT, offsetof(GxLlamaConfig, sliding_window_pattern), "0",
     "gemma3_text: the last of every so many layers attends to all tokens, the others have the window; 0: 6", "0.."},
    {"query_pre_attn_scalar", GX_FIELD_INT, offsetof(GxLlamaConfig, query_pre_attn_scalar), "0",
     "gemma3_text: attention's scores are divided by the square root of it; 0: head_dim", "0.."},
    {"rope_local_base_freq", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_local_base_freq), "0",
     "gemma3_text: base of RoPE's angles in layers with the window, in which they are not scaled; 0: 10000", "0.."},
    {"no_rope_layer_interval", GX_FIELD_INT, offsetof(GxLlamaConfig, no_rope_layer_interval), "0",
     "smollm3: the last of every so many layers has no RoPE; 0: 4", "0.."},
    {"no_rope_layers", GX_FIELD_STRING, offsetof(GxLlamaConfig, no_rope_layers), "",
     "smollm3: instead of no_rope_layer_interval, a digit per layer: 1 (RoPE) or 0 (none)", NULL},
    {"attention_bias", GX_FIELD_BOOL, offsetof(GxLlamaConfig, attention_bias), "false",
     "llama, qwen3, smollm3, gemma3_text: the matrices of attention have biases", NULL},
    {"mlp_bias", GX_FIELD_BOOL, offsetof(GxLlamaConfig, mlp_bias), "false",
     "llama, smollm3: the matrices of the MLP have biases", NULL},
    {"rope_type", GX_FIELD_STRING, offsetof(GxLlamaConfig, rope_type), "default",
     "RoPE's scaling for longer sequences than a model was first trained on; linear: of all wavelengths; llama3, yarn: "
     "of long ones, as in LLaMA 3.1 and YaRN; dynamic: none up to max_position_embeddings, which is all that is "
     "supported",
     "default|linear|dynamic|yarn|llama3"},
    {"rope_factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_factor), "0",
     "factor by which the scaling stretches RoPE's wavelengths; 0: llama3: 8, others: there must be one", "0.."},
    {"rope_low_freq_factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_low_freq_factor), "0",
     "llama3: wavelengths that fit fewer times than this into the longest sequence before the scaling are stretched by "
     "the whole rope_factor; 0: 1",
     "0.."},
    {"rope_high_freq_factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_high_freq_factor), "0",
     "llama3: wavelengths that fit more times than this into it stay as they are; 0: 4", "0.."},
    {"rope_original_max_position_embeddings", GX_FIELD_INT,
     offsetof(GxLlamaConfig, rope_original_max_position_embeddings), "0",
     "llama3, yarn: longest sequence, in tokens, before the scaling; 0: llama3: 8192, yarn: max_position_embeddings",
     "0.."},
    {"rope_beta_fast", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_beta_fast), "0",
     "yarn: wavelengths that fit at least this many times into that sequence stay as they are; 0: 32", "0.."},
    {"rope_beta_slow", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_beta_slow), "0",
     "yarn: wavelengths that fit at most this many times into it are stretched by the whole rope_factor; 0: 1", "0.."},
    {"rope_attention_factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_attention_factor), "0",
     "yarn: what q and k are multiplied by; 0: 1 + 0.1 ln(rope_factor)", "0.."},
    {"rope_mscale", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_mscale), "0",
     "yarn: with rope_mscale_all_dim, the weight of the logarithm in rope_attention_factor; 0: 1", "0.."},
    {"rope_mscale_all_dim", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_mscale_all_dim), "0",
     "yarn: with rope_mscale, the weight in another such sum, by which it is divided; 0: it is not divided", "0.."},
    {"rope_untruncated", GX_FIELD_BOOL, offsetof(GxLlamaConfig, rope_untruncated), "false",
     "yarn: the first and the last pair between these wavelengths keep their fractions (truncate false in config.json)",
     NULL},
};
// The first five are required in a config.json; transformers has defaults for the others.
enum {
    GX__LLAMA_FAMILY_OPTIONS = sizeof gx__llama_family_options / sizeof *gx__llama_family_options,
    GX__LLAMA_FAMILY_REQUIRED = 5,
    GX__LLAMA_FAMILY_PLAIN = 14 // those that config.json has under the same name
};

// The members of RoPE's object that say how it is scaled: gx_llama_rope_numbers under the names that they have there.
static const GxField gx__llama_rope_fields[GX_LLAMA_ROPE_NUMBERS] = {
    {"factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_factor), NULL, "", "1.."},
    {"low_freq_factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_low_freq_factor), NULL, "", "1e-6.."},
    {"high_freq_factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_high_freq_factor), NULL, "", "1e-6.."},
    {"original_max_position_embeddings", GX_FIELD_INT, offsetof(GxLlamaConfig, rope_original_max_position_embeddings),
     NULL, "", "1.."},
    {"beta_fast", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_beta_fast), NULL, "", "1e-6.."},
    {"beta_slow", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_beta_slow), NULL, "", "1e-6.."},
    {"attention_factor", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_attention_factor), NULL, "", "1e-6.."},
    {"mscale", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_mscale), NULL, "", "0.."},
    {"mscale_all_dim", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_mscale_all_dim), NULL, "", "0.."},
};

// The members of config.json for models with sliding windows.
static const GxField gx__llama_window_fields[] = {
    {"sliding_window", GX_FIELD_INT, offsetof(GxLlamaConfig, sliding_window), NULL, "", "1.."},
    {"max_window_layers", GX_FIELD_INT, offsetof(GxLlamaConfig, max_window_layers), NULL, "", "0.."},
    {"sliding_window_pattern", GX_FIELD_INT, offsetof(GxLlamaConfig, sliding_window_pattern), NULL, "", "1.."},
};

// The members of config.json that only a Gemma 3 has, with transformers' defaults.
static const GxField gx__llama_gemma3_fields[] = {
    {"query_pre_attn_scalar", GX_FIELD_INT, offsetof(GxLlamaConfig, query_pre_attn_scalar), NULL, "", "1.."},
    {"rope_local_base_freq", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_local_base_freq), NULL, "", "1e-6.."},
};

// The model types: transformers' names, and its defaults for members that config.json leaves out.
typedef struct {
    const char *type, *causal, *labels;
    int64_t kv_heads, positions; // kv_heads 0: as many as query heads
    int64_t window, window_from; // size of the sliding window, and the first layer that has it
    int64_t head_dim;            // 0: hidden_size / num_attention_heads, which null means, too
    double rms_norm_eps, rope_theta;
    int tie_word_embeddings;
    int64_t pad_token_id; // -1: none, which null means, too
} GxLlamaKind;
static const GxLlamaKind gx__llama_kinds[] = {
    {"llama", "LlamaForCausalLM", "LlamaForSequenceClassification", 0, 2048, 0, 0, 0, 1e-6, 1e4, 0, -1},
    {"mistral", "MistralForCausalLM", "MistralForSequenceClassification", 8, 131072, 4096, 0, 0, 1e-6, 1e4, 0, -1},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification", 32, 32768, 4096, 28, 0, 1e-6, 1e4, 0, -1},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification", 32, 32768, 4096, 28, 128, 1e-6, 1e4, 0, -1},
    {"smollm3", "SmolLM3ForCausalLM", "SmolLM3ForSequenceClassification", 4, 32768, 0, 0, 0, 1e-6, 2e6, 1, 128004},
    {"phi3", "Phi3ForCausalLM", "Phi3ForSequenceClassification", 0, 4096, 0, 0, 0, 1e-5, 1e4, 0, 32000},
    {"gemma3_text", "Gemma3ForCausalLM", "Gemma3TextForSequenceClassification", 4, 131072, 4096, 0, 256, 1e-6, 1e6, 1,
     0},
};
static const char *const gx__llama_types[] = {"llama",   "mistral", "qwen2",       "qwen3",
                                              "smollm3", "phi3",    "gemma3_text", NULL};

static const GxLlamaKind *gx__llama_kind(const char *type)
{
    int i = 0;
    while (gx__llama_types[i] && strcmp(gx__llama_types[i], type)) i++;
    return &gx__llama_kinds[gx__llama_types[i] ? i : 0];
}

// ---- config.json ---------------------------------------------------------------------------------------------------

static const GxJsonKey gx__llama_rope_keys[] = {
    {"type", GX_KEY_READ, NULL},
    {"rope_type", GX_KEY_READ, NULL},
    {"rope_theta", GX_KEY_READ, NULL},
    {"factor", GX_KEY_READ, NULL},
    {"low_freq_factor", GX_KEY_READ, NULL},
    {"high_freq_factor", GX_KEY_READ, NULL},
    {"original_max_position_embeddings", GX_KEY_READ, NULL},
    {"partial_rotary_factor", GX_KEY_READ, NULL},
    {"mrope_section", GX_KEY_REFUSED, "positions would have several parts"},
    {"attention_factor", GX_KEY_READ, NULL},
    {"mscale", GX_KEY_READ, NULL},
    {"mscale_all_dim", GX_KEY_READ, NULL},
    {"beta_fast", GX_KEY_READ, NULL},
    {"beta_slow", GX_KEY_READ, NULL},
    {"truncate", GX_KEY_READ, NULL},
    {"short_factor", GX_KEY_REFUSED, "angles would be scaled"},
    {"long_factor", GX_KEY_REFUSED, "angles would be scaled"},
    {"alpha=1.0", GX_KEY_REFUSED, "angles would be scaled"},
};
const GxJsonKeys gx_llama_rope_keys = {GX_KEYS(gx__llama_rope_keys)};

// A Gemma 3's rope_parameters.
static const GxJsonKey gx__llama_ropes_keys[] = {
    {"full_attention", GX_KEY_READ, NULL},
    {"sliding_attention", GX_KEY_READ, NULL},
};
const GxJsonKeys gx_llama_ropes_keys = {GX_KEYS(gx__llama_ropes_keys)};

// Reads rope_type (in older files: type). transformers 4 prefers the second, transformers 5 the first.
static GxStatus gx__llama_family_read_rope_type(GxLlamaConfig *c, const GxJson *rope, const char *where, GxError *err)
{
    static const char *const keys[] = {"type", "rope_type"};
    const GxJson *found = NULL;
    for (int i = 0; i < 2; i++) {
        const GxJson *value = gx_json_get(rope, keys[i]);
        char *text;
        int64_t bytes;
        if (!value) continue;
        if (found && strcmp(gx_json_string(found), gx_json_string(value)))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: type is \"%.60s\", but rope_type \"%.60s\"; remove one of them, or make them the same",
                           where, gx_json_string(found), gx_json_string(value));
        found = value;
        snprintf(c->rope_type, sizeof c->rope_type, "%.20s", gx_json_string(value));
        if (gx_text_is_among(c->rope_type, "default|linear|dynamic|yarn|llama3")) continue;
        GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
        GX_FAIL(err, GX_ERR_UNSUPPORTED,
                "%s: %s is %.100s; only \"default\", \"linear\", \"dynamic\", \"yarn\" and \"llama3\" are supported",
                where, keys[i], text);
        free(text);
        return gx_error_code(err);
    }
    if (!strcmp(c->rope_type, "") && gx_json_get(rope, "factor"))
        return GX_FAIL(
            err, GX_ERR_UNSUPPORTED,
            "%s: there is a factor, but no rope_type that it belongs to; supported: \"linear\", \"dynamic\", "
            "\"yarn\" and \"llama3\"",
            where);
    return GX_OK;
}

// Reads what belongs to the type. What does not is ignored by transformers, too, and is named.
static GxStatus gx__llama_family_read_rope_numbers(GxLlamaConfig *c, const GxJson *rope, const char *where,
                                                   const GxLogger *log, GxError *err)
{
    const int is_llama3 = !strcmp(c->rope_type, "llama3"), is_yarn = !strcmp(c->rope_type, "yarn");
    const char *type = c->rope_type[0] ? c->rope_type : "default";
    int truncate = 1;
    for (int i = 0; i < GX_LLAMA_ROPE_NUMBERS; i++) {
        const GxField *f = &gx__llama_rope_fields[i];
        const GxJson *value = gx_json_get(rope, f->name);
        const int belongs = gx_text_is_among(type, gx_llama_rope_numbers[i].types),
                  is_null = value && gx_json_type(value) == GX_JSON_NULL;
        if (belongs && (is_llama3 || !strcmp(f->name, "factor"))) {
            GX_TRY(gx_json_get_fields(rope, f, 1, 1, c, where, err));
            continue;
        }
        if (!value || (is_null && strcmp(f->name, "original_max_position_embeddings"))) continue;
        GX_TRY(gx_json_take_field(value, f, belongs ? c : NULL, where, GX_ERR_FORMAT, err));
        if (!belongs)
            gx_log(log, GX_LOG_WARNING, "%s: %s is ignored: it does not belong to rope_type %s, in transformers either",
                   where, f->name, type);
    }
    if (gx_json_type(gx_json_get(rope, "truncate")) == GX_JSON_NULL)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: truncate is null; expected true or false", where);
    GX_TRY(gx_json_get_bool(rope, "truncate", 0, &truncate, where, err));
    if (is_yarn) c->rope_untruncated = !truncate;
    return GX_OK;
}

// Reads RoPE's own object: rope_scaling (4.x) or rope_parameters (5.x). If theta is given both inside and outside of
// it, the two must be the same: 4.x reads the outer one, 5.x the object's.
static GxStatus gx__llama_family_read_rope(GxLlamaConfig *c, const GxJson *json, const GxJson *rope, const char *where,
                                           const GxLogger *log, GxError *err)
{
    const GxField *theta = gx__llama_family_options;
    const GxJson *alone = gx_json_get(json, "rope_theta"), *own = gx_json_get(rope, "rope_theta");
    while (theta->offset != offsetof(GxLlamaConfig, rope_theta)) theta++;
    GX_TRY(gx__llama_family_read_rope_type(c, rope, where, err));
    GX_TRY(gx__llama_family_read_rope_numbers(c, rope, where, log, err));
    GX_TRY(gx_family_need(rope, "partial_rotary_factor", "1.0", where, err));
    for (GxJsonMember m = GX_ZERO; gx_json_next(rope, &m);)
        if (gx_json_type(m.value) == GX_JSON_OBJECT)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s is an object; only one RoPE for all layers is supported",
                           where, m.key);
    if (own) GX_TRY(gx_json_take_field(own, theta, c, where, GX_ERR_FORMAT, err));
    if (own && alone && gx_json_double(alone) != c->rope_theta)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: rope_theta is %.15g in it, but %.15g outside of it; transformers 5 reads the first and "
                       "transformers 4 the second: make them the same",
                       where, c->rope_theta, gx_json_double(alone));
    return GX_OK;
}

// In transformers 5 rope_parameters has an object for each type of layers; that of layers with a window may only say
// theta.
static GxStatus gx__llama_family_read_two_ropes(GxLlamaConfig *c, const GxJson *json, const GxJson *both,
                                                const char *path, const GxLogger *log, GxError *err)
{
    static const char *const types[] = {"full_attention", "sliding_attention"};
    char where[GX_PATH + 60];
    GxLlamaConfig local = *c;
    local.rope_theta = c->rope_local_base_freq;
    snprintf(where, sizeof where, "%s: rope_parameters", path);
    GX_TRY(gx_json_check_keys(both, gx_llama_ropes_keys.key, gx_llama_ropes_keys.n, where, log, err));
    for (int i = 0; i < 2; i++) {
        GxJson *rope = NULL;
        GX_TRY(gx_json_get_object(both, types[i], 0, &rope, where, err));
        if (!rope) continue;
        char inner[GX_PATH + 100];
        snprintf(inner, sizeof inner, "%s: %s", where, types[i]);
        GX_TRY(gx__llama_family_read_rope(i ? &local : c, i ? NULL : json, rope, inner, log, err));
        GX_TRY(gx_json_check_keys(rope, GX_KEYS(gx__llama_rope_keys), inner, log, err));
    }
    if (local.rope_type[0] && strcmp(local.rope_type, "default"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s: rope_type is %s; only default is supported", where, types[1],
                       local.rope_type);
    if (gx_json_get(json, "rope_local_base_freq") && local.rope_theta != c->rope_local_base_freq)
        return GX_FAIL(
            err, GX_ERR_FORMAT,
            "%s: %s: rope_theta is %.15g, but rope_local_base_freq %.15g; transformers 5 reads the first and "
            "transformers 4 the second: make them the same",
            where, types[1], local.rope_theta, c->rope_local_base_freq);
    c->rope_local_base_freq = local.rope_theta;
    return GX_OK;
}

static GxStatus gx__llama_family_read_ropes(GxLlamaConfig *c, const GxJson *json, const char *path, const GxLogger *log,
                                            GxError *err)
{
    const int is_gemma3 = !strcmp(c->model_type, "gemma3_text");
    static const char *const places[] = {"rope_scaling", "rope_parameters"};
    char where[GX_PATH + 20];
    GxLlamaConfig each[2] = {*c, *c};
    int found = 0;
    for (int i = 0; i < 2; i++) {
        GxJson *rope = NULL;
        GX_TRY(gx_json_get_object(json, places[i], 0, &rope, path, err));
        snprintf(where, sizeof where, "%s: %s", path, places[i]);
        if (rope && i && is_gemma3) GX_TRY(gx__llama_family_read_two_ropes(&each[i], json, rope, path, log, err));
        else if (rope) GX_TRY(gx__llama_family_read_rope(&each[i], json, rope, where, log, err));
        if (!i || !is_gemma3) GX_TRY(gx_json_check_keys(rope, GX_KEYS(gx__llama_rope_keys), where, log, err));
        if (rope) *c = each[i], found++;
    }
    for (int i = 0; i < GX__LLAMA_FAMILY_OPTIONS && found == 2; i++) {
        const GxField *f = &gx__llama_family_options[i];
        if (!strncmp(f->name, "rope_", 5) && !gx_field_same(f, &each[0], &each[1]))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: rope_scaling and rope_parameters are both present, and differ in %s; remove one of "
                           "them",
                           path, f->name);
    }
    return GX_OK;
}

static const GxJsonKey gx__llama_family_keys[] = {
    {"vocab_size", GX_KEY_READ, NULL},
    {"hidden_size", GX_KEY_READ, NULL},
    {"intermediate_size", GX_KEY_READ, NULL},
    {"num_hidden_layers", GX_KEY_READ, NULL},
    {"num_attention_heads", GX_KEY_READ, NULL},
    {"num_key_value_heads", GX_KEY_READ, NULL},
    {"head_dim", GX_KEY_READ, NULL},
    {"max_position_embeddings", GX_KEY_READ, NULL},
    {"rms_norm_eps", GX_KEY_READ, NULL},
    {"rope_theta", GX_KEY_READ, NULL},
    {"rope_scaling", GX_KEY_READ, NULL},
    {"rope_parameters", GX_KEY_READ, NULL},
    {"partial_rotary_factor", GX_KEY_READ, NULL},
    {"initializer_range", GX_KEY_READ, NULL},
    {"tie_word_embeddings", GX_KEY_READ, NULL},
    {"pad_token_id", GX_KEY_READ, NULL},
    {"sliding_window", GX_KEY_READ, NULL},
    {"use_sliding_window", GX_KEY_READ, NULL},
    {"max_window_layers", GX_KEY_READ, NULL},
    {"layer_types", GX_KEY_READ, NULL},
    {"no_rope_layer_interval", GX_KEY_READ, NULL},
    {"no_rope_layers", GX_KEY_READ, NULL},
    {"sliding_window_pattern", GX_KEY_READ, NULL},
    {"_sliding_window_pattern", GX_KEY_HARMLESS, "a note of layer_types, which transformers does not read"},
    {"query_pre_attn_scalar", GX_KEY_READ, NULL},
    {"rope_local_base_freq", GX_KEY_READ, NULL},
    {"attn_logit_softcapping", GX_KEY_READ, NULL},
    {"final_logit_softcapping", GX_KEY_READ, NULL},
    {"use_bidirectional_attention", GX_KEY_READ, NULL},
    {"hidden_act", GX_KEY_READ, NULL},
    {"hidden_activation", GX_KEY_READ, NULL},
    {"attention_bias", GX_KEY_READ, NULL},
    {"mlp_bias", GX_KEY_READ, NULL},
    {"attention_dropout", GX_KEY_READ, NULL},
    {"is_decoder", GX_KEY_HARMLESS, "these models are decoders"},
    {"is_llama_config", GX_KEY_HARMLESS, "a note in SmolLM's"},
    {"rope_interleaved", GX_KEY_REFUSED, "RoPE's pairs would be interleaved"},
    {"use_mrope", GX_KEY_REFUSED, "positions would have several parts"},
    {"classifier_dropout", GX_KEY_HARMLESS, "of classifiers of tokens, which are not supported"},
    {"max_sequence_length", GX_KEY_HARMLESS,
     "the first LLaMA's max_position_embeddings, which transformers does not "
     "look at either"},
    {"original_max_position_embeddings", GX_KEY_READ, NULL},
    {"embd_pdrop", GX_KEY_READ, NULL},
    {"resid_pdrop", GX_KEY_READ, NULL},
    {"quantization", GX_KEY_REFUSED, "weights would be stored in a different form, that of MLX"},
};
const GxJsonKeys gx_llama_keys = {GX_KEYS(gx__llama_family_keys)};

// What only a Gemma 3 may have; elsewhere transformers does not look at it.
static GxStatus gx__llama_family_check_gemma3(const GxLlamaKind *kind, const GxJson *json, const char *path,
                                              const GxLogger *log, GxError *err)
{
    static const GxField own[] = {{"hidden_activation", GX_FIELD_STRING, 0, NULL, "", NULL},
                                  {"query_pre_attn_scalar", GX_FIELD_INT, 0, NULL, "", NULL},
                                  {"rope_local_base_freq", GX_FIELD_DOUBLE, 0, NULL, "", NULL},
                                  {"sliding_window_pattern", GX_FIELD_INT, 0, NULL, "", NULL},
                                  {"attn_logit_softcapping", GX_FIELD_DOUBLE, 0, NULL, "", NULL},
                                  {"final_logit_softcapping", GX_FIELD_DOUBLE, 0, NULL, "", NULL},
                                  {"use_bidirectional_attention", GX_FIELD_BOOL, 0, NULL, "", NULL}};
    const int is_gemma3 = !strcmp(kind->type, "gemma3_text");
    GX_TRY(gx_family_need(json, "hidden_act", is_gemma3 ? "\"gelu_pytorch_tanh\"" : "\"silu\"", path, err));
    for (size_t i = 0; i < sizeof own / sizeof *own && !is_gemma3; i++)
        if (gx_json_type(gx_json_get(json, own[i].name)) > GX_JSON_NULL) {
            GX_TRY(gx_json_take_field(gx_json_get(json, own[i].name), &own[i], NULL, path, GX_ERR_FORMAT, err));
            gx_log(log, GX_LOG_WARNING, "%s: %s is ignored: it belongs to a gemma3_text, and this is a %s", path,
                   own[i].name, kind->type);
        }
    if (!is_gemma3) return GX_OK;
    GX_TRY(gx_family_need(json, "hidden_activation", "\"gelu_pytorch_tanh\"", path, err));
    GX_TRY(gx_family_need(json, "attn_logit_softcapping", "null", path, err));
    GX_TRY(gx_family_need(json, "final_logit_softcapping", "null", path, err));
    if (gx_json_type(gx_json_get(json, "use_bidirectional_attention")) == GX_JSON_NULL) return GX_OK;
    return gx_family_need(json, "use_bidirectional_attention", "false", path, err);
}

static GxStatus gx__llama_family_refuse_unbuilt(const GxJson *json, const char *path, const GxLogger *log, GxError *err)
{
    static const char *const needs[][2] = {
        {"attention_dropout", "0.0"}, {"embd_pdrop", "0.0"}, {"resid_pdrop", "0.0"}, {"partial_rotary_factor", "1.0"}};
    // Files of early 2023 say LLaMAForCausalLM.
    GX_TRY(gx_family_check_type(json, gx__llama_types, path, err));
    const GxLlamaKind *kind = gx__llama_kind(gx_json_string(gx_json_get(json, "model_type")));
    const char *const architectures[] = {kind->causal, kind->labels, NULL};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        GX_TRY(gx_family_need(json, needs[i][0], needs[i][1], path, err));
    GX_TRY(gx__llama_family_check_gemma3(kind, json, path, log, err));
    if (!strcmp(kind->type, "llama")) GX_TRY(gx_family_need(json, "use_sliding_window", "false", path, err));
    GX_TRY(gx_bnb_check_config(gx_json_get(json, "quantization_config"), path, log, err));
    return gx_family_check_architecture(json, architectures, path, err);
}

// original_max_position_embeddings outside of RoPE's object: a phi3's is for a scaling that is not supported, and says
// nothing without one.
static GxStatus gx__llama_family_check_original(const GxLlamaConfig *c, const GxJson *json, const char *path,
                                                GxError *err)
{
    const GxField *f = gx__llama_rope_fields;
    while (strcmp(f->name, "original_max_position_embeddings")) f++;
    const GxJson *value = gx_json_get(json, f->name);
    if (gx_json_type(value) <= GX_JSON_NULL) return GX_OK;
    if (!strcmp(c->model_type, "phi3")) return gx_json_take_field(value, f, NULL, path, GX_ERR_FORMAT, err);
    char *text;
    int64_t bytes;
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    GX_FAIL(
        err, GX_ERR_UNSUPPORTED,
        "%s: original_max_position_embeddings is %.100s: transformers takes it for that of RoPE's scaling; it is read "
        "only from rope_scaling or rope_parameters",
        path, text);
    free(text);
    return gx_error_code(err);
}

// transformers ignores them in the other types of models, whose files cannot mean that.
static GxStatus gx__llama_family_read_biases(GxLlamaConfig *c, const GxJson *json, const char *path, GxError *err)
{
    static const char *const keys[] = {"attention_bias", "mlp_bias"}, *const types[] = {
                                                                          "llama|qwen3|smollm3|gemma3_text",
                                                                          "llama|smollm3"};
    for (int i = 0; i < 2; i++) {
        const GxJson *value = gx_json_get(json, keys[i]);
        const GxField *f = gx_field_find(gx__llama_family_options, GX__LLAMA_FAMILY_OPTIONS, keys[i]);
        if (value) GX_TRY(gx_json_take_field(value, f, c, path, GX_ERR_FORMAT, err));
        if (!gx_text_is_among(c->model_type, types[i])) GX_TRY(gx_family_need(json, keys[i], "false", path, err));
    }
    return GX_OK;
}

// Refuses null where transformers does. Elsewhere null means the default, which resolve fills in.
static GxStatus gx__llama_family_refuse_nulls(const GxLlamaKind *kind, const GxJson *json, const char *path,
                                              GxError *err)
{
    const GxField *f = gx__llama_family_options;
    for (int i = 0; i < GX__LLAMA_FAMILY_PLAIN; i++) {
        const GxJson *value = gx_json_get(json, f[i].name);
        if (gx_json_type(value) != GX_JSON_NULL ||
            (f[i].offset == offsetof(GxLlamaConfig, num_key_value_heads) && strcmp(kind->type, "gemma3_text")) ||
            (f[i].offset == offsetof(GxLlamaConfig, head_dim) && !kind->head_dim) ||
            f[i].offset == offsetof(GxLlamaConfig, pad_token_id))
            continue;
        GX_TRY(gx_json_take_field(value, &f[i], NULL, path, GX_ERR_FORMAT, err));
    }
    return GX_OK;
}

// Reads layer_types as one letter per layer; "" if it is absent.
static GxStatus gx__llama_family_read_layer_types(char types[GX_MAX_UNITS], const GxLlamaConfig *c, const GxJson *json,
                                                  const char *path, GxError *err)
{
    GxJson *list = NULL;
    types[0] = 0;
    GX_TRY(gx_json_get_array(json, "layer_types", 0, &list, path, err));
    const int64_t n = gx_json_size(list);
    if (n >= GX_MAX_UNITS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: layer_types has %ld elements; up to %d are supported", path,
                       (long)n, GX_MAX_UNITS - 1);
    for (int64_t i = 0; i < n; i++) {
        const GxJson *element = gx_json_at(list, i);
        const char *type = gx_json_string(element);
        if (gx_json_type(element) != GX_JSON_STRING)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: layer_types has %s; expected full_attention or sliding_attention",
                           path, gx_json_type_name(element));
        const int slides = !strcmp(type, "sliding_attention");
        if (!slides && strcmp(type, "full_attention"))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "%s: layer_types has \"%.60s\"; only full_attention and sliding_attention are supported",
                           path, type);
        types[i] = slides ? 's' : 'f', types[i + 1] = 0;
    }
    if (strchr(types, 's') && !strcmp(c->model_type, "llama"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: layer_types has sliding_attention; a llama supports only full_attention", path);
    if (list && n != c->num_hidden_layers)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: layer_types has %ld elements, and num_hidden_layers is %ld", path,
                       (long)n, (long)c->num_hidden_layers);
    return GX_OK;
}

// Reads which layers of a Qwen have a sliding window, from layer_types or, if it is absent, max_window_layers; of a
// SmolLM3, from layer_types or, if it is absent, from which layers have no RoPE; of a Gemma 3, from layer_types or, if
// it is absent, sliding_window_pattern.
static GxStatus gx__llama_family_read_sliding_layers(GxLlamaConfig *c, const char *types, const GxJson *json,
                                                     const char *path, GxError *err)
{
    const GxJson *from = gx_json_get(json, "max_window_layers"), *pattern = gx_json_get(json, "sliding_window_pattern");
    const int is_smollm3 = !strcmp(c->model_type, "smollm3"), is_gemma3 = !strcmp(c->model_type, "gemma3_text");
    int same = 1;
    c->max_window_layers = gx__llama_kind(c->model_type)->window_from;
    if (from)
        GX_TRY(gx_json_take_field(from, &gx__llama_window_fields[1], is_smollm3 || is_gemma3 ? NULL : c, path,
                                  GX_ERR_FORMAT, err));
    if (is_gemma3) c->sliding_window_pattern = 6;
    if (is_gemma3 && pattern)
        GX_TRY(gx_json_take_field(pattern, &gx__llama_window_fields[2], c, path, GX_ERR_FORMAT, err));
    for (int64_t l = 0; types[l]; l++)
        same &= (types[l] == 's') == (is_gemma3    ? (l + 1) % c->sliding_window_pattern != 0
                                      : is_smollm3 ? !gx_llama_rotates(c, l)
                                                   : l >= c->max_window_layers);
    if (!same && strlen(types) >= GX_FIELD_TEXT)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: layer_types has %ld elements and contradicts %s; up to %d are supported", path,
                       (long)strlen(types),
                       is_gemma3    ? "sliding_window_pattern"
                       : is_smollm3 ? "no_rope_layers"
                                    : "max_window_layers",
                       GX_FIELD_TEXT - 1);
    snprintf(c->layer_types, sizeof c->layer_types, "%.*s", GX_FIELD_TEXT - 1,
             strlen(types) < GX_FIELD_TEXT ? types : "");
    return GX_OK;
}

// transformers reads a Mistral with layer_types as a Ministral. If all its layers are alike, it computes the same and
// is accepted.
static GxStatus gx__llama_family_check_alike(const char *types, const char *path, GxError *err)
{
    if (!strchr(types, 's') || !strchr(types, 'f')) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: layer_types has both full_attention and sliding_attention, with which transformers loads a "
                   "mistral as a ministral; only layers that are all alike are supported",
                   path);
}

// Reads which layers have no RoPE. A list of more than GX_FIELD_TEXT - 1 layers must be what no_rope_layer_interval says.
static GxStatus gx__llama_family_read_no_rope(GxLlamaConfig *c, const GxJson *json, const char *path,
                                              const GxLogger *log, GxError *err)
{
    static const GxField interval = {
        "no_rope_layer_interval", GX_FIELD_INT, offsetof(GxLlamaConfig, no_rope_layer_interval), NULL, "", "1.."};
    const GxJson *given = gx_json_get(json, interval.name);
    const int is_smollm3 = !strcmp(c->model_type, "smollm3");
    GxJson *list = NULL;
    int same = 1, unrotated = 0;
    GX_TRY(gx_json_get_array(json, "no_rope_layers", 0, &list, path, err));
    if (is_smollm3) c->no_rope_layer_interval = 4;
    if (given) GX_TRY(gx_json_take_field(given, &interval, is_smollm3 ? c : NULL, path, GX_ERR_FORMAT, err));
    if (list && gx_json_size(list) < c->num_hidden_layers)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: no_rope_layers has %ld elements, and num_hidden_layers is %ld", path,
                       (long)gx_json_size(list), (long)c->num_hidden_layers);
    for (int64_t l = 0; list && l < c->num_hidden_layers; l++) {
        const GxJson *element = gx_json_at(list, l);
        const int64_t digit = gx_json_int(element);
        if (gx_json_type(element) != GX_JSON_INT || digit < 0 || digit > 1)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: element %ld of no_rope_layers is not 1 (RoPE) or 0 (none)", path,
                           (long)l);
        unrotated |= !digit;
        if (!is_smollm3) continue;
        same &= digit == ((l + 1) % c->no_rope_layer_interval != 0);
        if (l + 1 < GX_FIELD_TEXT) c->no_rope_layers[l] = (char)('0' + digit), c->no_rope_layers[l + 1] = 0;
    }
    if (unrotated && !is_smollm3)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: no_rope_layers says that layers have no RoPE; only a smollm3 supports that, not a %s", path,
                       c->model_type);
    if (given && !is_smollm3)
        gx_log(log, GX_LOG_WARNING,
               "%s: no_rope_layer_interval is ignored: a %s has RoPE in all layers, in transformers "
               "either",
               path, c->model_type);
    if (c->num_hidden_layers < GX_FIELD_TEXT) return GX_OK;
    if (!same)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: no_rope_layers is for %ld layers and contradicts no_rope_layer_interval (%ld); this is "
                       "supported for up to %d layers",
                       path, (long)c->num_hidden_layers, (long)c->no_rope_layer_interval, GX_FIELD_TEXT - 1);
    c->no_rope_layers[0] = 0;
    return GX_OK;
}

// All of a Phi-3's layers have the window, whatever layer_types says; there is none by default.
static GxStatus gx__llama_family_read_phi3_window(GxLlamaConfig *c, const char *types, const GxJson *json,
                                                  const char *path, const GxLogger *log, GxError *err)
{
    const GxJson *window = gx_json_get(json, "sliding_window");
    const int slides = gx_json_type(window) > GX_JSON_NULL;
    if (gx_json_type(gx_json_get(json, "use_sliding_window")) > GX_JSON_NULL)
        gx_log(log, GX_LOG_WARNING,
               "%s: use_sliding_window is ignored: of a phi3 sliding_window alone counts, in "
               "transformers, too",
               path);
    if (slides) GX_TRY(gx_json_take_field(window, &gx__llama_window_fields[0], c, path, GX_ERR_FORMAT, err));
    if (!strchr(types, slides ? 'f' : 's')) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: layer_types says that layers have %s window, but of a phi3 they have what sliding_window says",
                   path, slides ? "no" : "a");
}

// A Gemma 3 always has a window, whatever use_sliding_window says.
static GxStatus gx__llama_family_read_gemma3_window(GxLlamaConfig *c, const char *types, const GxJson *json,
                                                    const char *path, const GxLogger *log, GxError *err)
{
    static const char *const ignored[] = {"use_sliding_window", "max_window_layers"};
    const GxJson *window = gx_json_get(json, "sliding_window");
    int use = 1;
    if (gx_json_type(gx_json_get(json, ignored[0])) > GX_JSON_NULL)
        GX_TRY(gx_json_get_bool(json, "use_sliding_window", 0, &use, path, err));
    for (int i = 0; i < 2; i++)
        if (gx_json_type(gx_json_get(json, ignored[i])) > GX_JSON_NULL)
            gx_log(log, GX_LOG_WARNING,
                   "%s: %s is ignored: a gemma3_text has layer_types or sliding_window_pattern, in transformers, too",
                   path, ignored[i]);
    c->sliding_window = gx__llama_kind(c->model_type)->window;
    if (window) GX_TRY(gx_json_take_field(window, &gx__llama_window_fields[0], c, path, GX_ERR_FORMAT, err));
    return gx__llama_family_read_sliding_layers(c, types, json, path, err);
}

// Mistral: null means no window. Qwen, SmolLM3: there is a window only if use_sliding_window is true; transformers
// refuses null.
static GxStatus gx__llama_family_read_window(GxLlamaConfig *c, const GxJson *json, const char *path,
                                             const GxLogger *log, GxError *err)
{
    const int is_mistral = !strcmp(c->model_type, "mistral"), is_llama = !strcmp(c->model_type, "llama");
    const GxJson *window = gx_json_get(json, "sliding_window");
    char types[GX_MAX_UNITS];
    int use = is_mistral;
    GX_TRY(gx__llama_family_read_layer_types(types, c, json, path, err));
    if (is_llama && gx_json_type(window) > GX_JSON_NULL)
        gx_log(log, GX_LOG_WARNING, "%s: sliding_window is ignored: a llama has none, in transformers either", path);
    if (is_llama) return GX_OK;
    if (!strcmp(c->model_type, "gemma3_text"))
        return gx__llama_family_read_gemma3_window(c, types, json, path, log, err);
    if (!strcmp(c->model_type, "phi3")) return gx__llama_family_read_phi3_window(c, types, json, path, log, err);
    if (is_mistral) GX_TRY(gx__llama_family_check_alike(types, path, err));
    if (is_mistral && types[0] == 'f') return GX_OK;
    if (!is_mistral && gx_json_type(gx_json_get(json, "use_sliding_window")) == GX_JSON_NULL)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: use_sliding_window is null; expected true or false", path);
    if (!is_mistral) GX_TRY(gx_json_get_bool(json, "use_sliding_window", 0, &use, path, err));
    if (!use || gx_json_type(window) == GX_JSON_NULL || (!window && !gx__llama_kind(c->model_type)->window)) {
        if (is_mistral || !strchr(types, 's')) return GX_OK;
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: layer_types has sliding_attention, but there is no window; use_sliding_window must be "
                       "true, and sliding_window a number of tokens",
                       path);
    }
    c->sliding_window = gx__llama_kind(c->model_type)->window;
    if (window) GX_TRY(gx_json_take_field(window, &gx__llama_window_fields[0], c, path, GX_ERR_FORMAT, err));
    return is_mistral ? GX_OK : gx__llama_family_read_sliding_layers(c, types, json, path, err);
}

static GxStatus gx__llama_family_read_json(void *config, const GxJson *json, const char *path, const GxLogger *log,
                                           GxError *err)
{
    GxLlamaConfig *c = (GxLlamaConfig *)config;
    const GxField *f = gx__llama_family_options;
    GX_TRY(gx__llama_family_refuse_unbuilt(json, path, log, err));
    const GxLlamaKind *kind = gx__llama_kind(gx_json_string(gx_json_get(json, "model_type")));
    // null: as many as attention heads
    const int is_null = gx_json_type(gx_json_get(json, "num_key_value_heads")) == GX_JSON_NULL;
    c->num_key_value_heads = is_null ? 0 : kind->kv_heads, c->max_position_embeddings = kind->positions;
    c->head_dim = kind->head_dim;
    c->rms_norm_eps = kind->rms_norm_eps, c->rope_theta = kind->rope_theta;
    c->tie_word_embeddings = kind->tie_word_embeddings;
    c->pad_token_id = gx_json_type(gx_json_get(json, "pad_token_id")) == GX_JSON_NULL ? -1 : kind->pad_token_id;
    if (!strcmp(kind->type, "gemma3_text")) {
        c->query_pre_attn_scalar = 256, c->rope_local_base_freq = 10000;
        for (size_t i = 0; i < sizeof gx__llama_gemma3_fields / sizeof *gx__llama_gemma3_fields; i++) {
            const GxJson *value = gx_json_get(json, gx__llama_gemma3_fields[i].name);
            if (value) GX_TRY(gx_json_take_field(value, &gx__llama_gemma3_fields[i], c, path, GX_ERR_FORMAT, err));
        }
    }
    GX_TRY(gx__llama_family_refuse_nulls(kind, json, path, err));
    GX_TRY(gx_json_get_fields(json, f, GX__LLAMA_FAMILY_REQUIRED, 1, c, path, err));
    GX_TRY(gx_json_get_fields(json, f + GX__LLAMA_FAMILY_REQUIRED, GX__LLAMA_FAMILY_PLAIN - GX__LLAMA_FAMILY_REQUIRED,
                              0, c, path, err));
    GX_TRY(gx__llama_family_read_biases(c, json, path, err));
    GX_TRY(gx__llama_family_check_original(c, json, path, err));
    GX_TRY(gx__llama_family_read_no_rope(c, json, path, log, err));
    GX_TRY(gx__llama_family_read_window(c, json, path, log, err));
    GX_TRY(gx__llama_family_read_ropes(c, json, path, log, err));
    return gx_family_check_keys(json, GX_KEYS(gx__llama_family_keys), path, log, err);
}

static GxStatus gx__llama_resolve(void *config, GxError *err)
{
    return gx_llama_config_resolve((GxLlamaConfig *)config, err);
}

GxStatus gx_llama_config_read(GxLlamaConfig *c, const char *path, const GxLogger *log, GxError *err)
{
    memset(c, 0, sizeof *c);
    c->initializer_range = 0.02; // this one is the same for all types of models (gx__llama_kinds)
    return gx_family_read(c, path, gx__llama_family_read_json, gx__llama_resolve, log, err);
}

static const char *gx__llama_architecture(const void *config, const GxHeadRequest *request)
{
    const GxLlamaKind *kind = gx__llama_kind(((const GxLlamaConfig *)config)->model_type);
    return request && request->kind == GX_HEAD_LABELS ? kind->labels : kind->causal;
}

static void gx__llama_family_write_no_rope(const GxLlamaConfig *c, GxJson *json, GxError *err)
{
    GxJson *list = gx_json_new_array();
    for (int64_t l = 0; l < c->num_hidden_layers; l++)
        gx_json_append(list, gx_json_new_int(gx_llama_rotates(c, l)), err);
    gx_json_set(json, "no_rope_layers", list, err);
    gx_json_set(json, "no_rope_layer_interval", gx_json_new_int(c->no_rope_layer_interval), err);
}

// Writes RoPE's object: what belongs to its type, without what transformers computes if it is absent.
static void gx__llama_family_write_rope(const GxLlamaConfig *c, GxJson *rope, GxError *err)
{
    gx_json_set(rope, "rope_theta", gx_json_new_double(c->rope_theta), err);
    gx_json_set(rope, "rope_type", gx_json_new_string(c->rope_type), err);
    for (int i = 0; i < GX_LLAMA_ROPE_NUMBERS; i++) {
        const GxLlamaRopeNumber *n = &gx_llama_rope_numbers[i];
        const int is_set = n->is_int || *(const double *)((const char *)c + n->offset) != 0;
        if (is_set && gx_text_is_among(c->rope_type, n->types))
            gx_json_set_fields(rope, &gx__llama_rope_fields[i], 1, c, err);
    }
    if (c->rope_untruncated) gx_json_set(rope, "truncate", gx_json_new_bool(0), err);
}

// For a Gemma 3, in the spellings of transformers 4 and 5: layer_types are written with windows, but the first
// that had it read sliding_window_pattern; 4 reads rope_theta, rope_local_base_freq and rope_scaling, and 5 rope_parameters.
static void gx__llama_family_write_gemma3(const GxLlamaConfig *c, GxJson *json, GxError *err)
{
    GxJson *ropes = gx_json_new_object(), *full = gx_json_new_object(), *local = gx_json_new_object();
    int same = 1;
    for (int64_t l = 0; l < c->num_hidden_layers; l++)
        same &= gx_llama_slides(c, l) == ((l + 1) % c->sliding_window_pattern != 0);
    if (same) gx_json_set(json, "sliding_window_pattern", gx_json_new_int(c->sliding_window_pattern), err);
    gx_json_set_fields(json, gx__llama_gemma3_fields, 2, c, err);
    gx__llama_family_write_rope(c, full, err);
    gx_json_set(local, "rope_theta", gx_json_new_double(c->rope_local_base_freq), err);
    gx_json_set(local, "rope_type", gx_json_new_string("default"), err);
    gx_json_set(ropes, "full_attention", full, err);
    gx_json_set(ropes, "sliding_attention", local, err);
    gx_json_set(json, "rope_parameters", ropes, err);
}

// For a Qwen: writes both layer_types, which newer transformers read, and the members that older ones read.
static void gx__llama_family_write_window(const GxLlamaConfig *c, GxJson *json, GxError *err)
{
    const int is_mistral = gx_text_is_among(c->model_type, "mistral|phi3"); // in all layers, or none
    if (!strcmp(c->model_type, "llama")) return;
    const int has_flag = !gx_text_is_among(c->model_type, "mistral|phi3|gemma3_text"),
              is_qwen = gx_text_is_among(c->model_type, "qwen2|qwen3");
    if (has_flag) gx_json_set(json, "use_sliding_window", gx_json_new_bool(c->sliding_window > 0), err);
    if (is_mistral && !c->sliding_window) gx_json_set(json, "sliding_window", gx_json_new_null(), err);
    if (!c->sliding_window) return;
    gx_json_set(json, "sliding_window", gx_json_new_int(c->sliding_window), err);
    if (is_mistral) return;
    GxJson *types = gx_json_new_array();
    for (int64_t l = 0; l < c->num_hidden_layers; l++)
        gx_json_append(types, gx_json_new_string(gx_llama_slides(c, l) ? "sliding_attention" : "full_attention"), err);
    if (is_qwen) gx_json_set(json, "max_window_layers", gx_json_new_int(c->max_window_layers), err);
    gx_json_set(json, "layer_types", types, err);
}

GxStatus gx_llama_config_write(const GxLlamaConfig *c, const GxHeadRequest *request, const char *path, GxError *err)
{
    const int is_scaled = strcmp(c->rope_type, "default") != 0, is_gemma3 = !strcmp(c->model_type, "gemma3_text");
    GxJson *json = gx_json_new_object();
    gx_family_set_type(json, gx__llama_kind(c->model_type)->type, gx__llama_architecture(c, request), err);
    gx_json_set_fields(json, gx__llama_family_options, GX__LLAMA_FAMILY_PLAIN, c, err);
    if (is_gemma3) gx__llama_family_write_gemma3(c, json, err);
    for (int i = is_gemma3; i < 1 + is_scaled; i++) {
        GxJson *rope = gx_json_new_object();
        gx__llama_family_write_rope(c, rope, err);
        gx_json_set(json, i ? "rope_scaling" : "rope_parameters", rope, err);
    }
    const int is_llama = gx_text_is_among(c->model_type, "llama|smollm3"), // which have the same members about biases
        is_qwen3 = !strcmp(c->model_type, "qwen3"), is_smollm3 = !strcmp(c->model_type, "smollm3");
    if (is_smollm3) gx__llama_family_write_no_rope(c, json, err);
    gx__llama_family_write_window(c, json, err);
    gx_json_set(json, is_gemma3 ? "hidden_activation" : "hidden_act",
                gx_json_new_string(is_gemma3 ? "gelu_pytorch_tanh" : "silu"), err);
    if (is_llama || is_qwen3 || is_gemma3)
        gx_json_set(json, "attention_bias", gx_json_new_bool(c->attention_bias), err);
    if (is_llama) gx_json_set(json, "mlp_bias", gx_json_new_bool(c->mlp_bias), err);
    if (c->pad_token_id < 0) gx_json_set(json, "pad_token_id", gx_json_new_null(), err);
    gx_json_set(json, "bos_token_id", gx_json_new_null(), err); // if absent, transformers would take 1 and 2
    gx_json_set(json, "eos_token_id", gx_json_new_null(), err);
    gx_family_set_labels(json, request, err);
    return gx_family_write(json, path, err);
}

// ---- the family ----------------------------------------------------------------------------------------------------

static int64_t *gx__llama_vocab_size(void *config) { return &((GxLlamaConfig *)config)->vocab_size; }

static GxStatus gx__llama_read_config(void *config, const char *path, const GxLogger *log, GxError *err)
{
    return gx_llama_config_read((GxLlamaConfig *)config, path, log, err);
}

static GxStatus gx__llama_write_config(const void *config, const GxHeadRequest *request, const char *path, GxError *err)
{
    return gx_llama_config_write((const GxLlamaConfig *)config, request, path, err);
}

// transformers 4 loads such a model, and it trains; transformers 5 refuses it for LLaMA only.
static void gx__llama_warn(const void *config, const GxLogger *log)
{
    const GxLlamaConfig *c = (const GxLlamaConfig *)config;
    if (!strcmp(c->model_type, "llama") && c->hidden_size % c->num_attention_heads)
        gx_log(log, GX_LOG_WARNING,
               "transformers 5 cannot load what is saved, because hidden_size (%ld) is not a multiple of "
               "num_attention_heads (%ld); if it has to, change one of them",
               (long)c->hidden_size, (long)c->num_attention_heads);
}

// Skips RoPE's frequencies, which older files contain: the configuration determines them.
static int gx__llama_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME])
{
    (void)t;
    snprintf(name, GX_NAME, "%s", in_file);
    return !strstr(in_file, "rotary_emb.inv_freq");
}

static const GxTask *const gx__llama_tasks[] = {&gx_causal_lm, &gx_classification, &gx_dpo, NULL};

const GxFamily gx_llama = {
    "llama",
    gx__llama_family_options,
    GX__LLAMA_FAMILY_OPTIONS,
    sizeof(GxLlamaConfig),
    gx__llama_resolve,
    gx_llama_describe,
    gx__llama_vocab_size,
    gx__llama_read_config,
    gx__llama_write_config,
    gx__llama_architecture,
    gx__llama_warn,
    "lm_head.weight,score.weight",
    gx__llama_tensor_name,
    NULL,
    gx__llama_tasks,
    0, // frames_texts
    NULL,
};
#endif
