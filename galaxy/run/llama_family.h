// llama_family.h: LLaMA for the trainer: its options and its config.json.
//
// Reading refuses by name what would change the arithmetic and is not built: scaled RoPE, biases, other activations.
// Writing says rope_theta in the spellings of transformers 4 and 5, since a 4.x takes a file with the newer one alone
// silently as theta = 10000.
#ifndef GX_LLAMA_FAMILY_H
#define GX_LLAMA_FAMILY_H
#include "../io/json_fields.h"
#include "../model/llama.h"
GX_BEGIN

extern const GxFamily gx_llama;

GxStatus gx_llama_config_read(GxLlamaConfig *c, const char *path, GxError *err);
GxStatus gx_llama_config_write(const GxLlamaConfig *c, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LLAMA_FAMILY_IMPLEMENTED)
#define GX_LLAMA_FAMILY_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__LLAMA_FAMILY_CONFIG_JSON_CAP = 1 << 20 };

static const GxField gx__llama_family_options[] = {
    {"vocab_size", GX_FIELD_INT, offsetof(GxLlamaConfig, vocab_size), "256",
     "rows of the embedding; byte-level tokens need 256", "1.."},
    {"hidden_size", GX_FIELD_INT, offsetof(GxLlamaConfig, hidden_size), "192", "width of the residual stream", "1.."},
    {"intermediate_size", GX_FIELD_INT, offsetof(GxLlamaConfig, intermediate_size), "512", "columns of the MLP", "1.."},
    {"num_hidden_layers", GX_FIELD_INT, offsetof(GxLlamaConfig, num_hidden_layers), "4", "layers", "1.."},
    {"num_attention_heads", GX_FIELD_INT, offsetof(GxLlamaConfig, num_attention_heads), "6", "query heads", "1.."},
    {"num_key_value_heads", GX_FIELD_INT, offsetof(GxLlamaConfig, num_key_value_heads), "2",
     "key and value heads; 0: as many as query heads", "0.."},
    {"head_dim", GX_FIELD_INT, offsetof(GxLlamaConfig, head_dim), "0",
     "size of a head; 0: hidden_size / num_attention_heads", "0.."},
    {"max_position_embeddings", GX_FIELD_INT, offsetof(GxLlamaConfig, max_position_embeddings), "2048",
     "longest sequence", "1.."},
    {"rms_norm_eps", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rms_norm_eps), "1e-5", "added to the mean square",
     "1e-30.."},
    {"rope_theta", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, rope_theta), "10000", "base of the rotary angles",
     "1e-6.."},
    {"initializer_range", GX_FIELD_DOUBLE, offsetof(GxLlamaConfig, initializer_range), "0.02",
     "standard deviation of the first weights", "0.."},
    {"tie_word_embeddings", GX_FIELD_BOOL, offsetof(GxLlamaConfig, tie_word_embeddings), "false",
     "the head is the embedding", NULL},
};
// The first five must stand in a config.json; of the others transformers has defaults.
enum {
    GX__LLAMA_FAMILY_OPTIONS = sizeof gx__llama_family_options / sizeof *gx__llama_family_options,
    GX__LLAMA_FAMILY_REQUIRED = 5
};

// ---- config.json ---------------------------------------------------------------------------------------------------

// rope_theta stands alone (4.x) or in rope_parameters (5.x), whose own wins; any scaling but "default" is refused.
static GxStatus gx__llama_family_read_rope(GxLlamaConfig *c, const GxJson *json, const char *path, GxError *err)
{
    static const char *const places[] = {"rope_scaling", "rope_parameters"};
    const GxField *theta = gx__llama_family_options;
    char where[GX_PATH + 20];
    while (theta->offset != offsetof(GxLlamaConfig, rope_theta)) theta++;
    for (int i = 0; i < 2; i++) {
        const GxJson *rope = gx_json_get(json, places[i]);
        if (gx_json_type(rope) != GX_JSON_OBJECT) continue;
        const GxJson *type = gx_json_get(rope, "rope_type");
        if (!type) type = gx_json_get(rope, "type");
        if (type && strcmp(gx_json_string(type), "default"))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s asks for \"%s\"; only plain RoPE (\"default\") is built",
                           path, places[i], gx_json_string(type));
        if (gx_json_get(rope, "partial_rotary_factor") &&
            gx_json_double(gx_json_get(rope, "partial_rotary_factor")) != 1)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s asks for a partial_rotary_factor; whole heads are rotated",
                           path, places[i]);
        snprintf(where, sizeof where, "%s: %s", path, places[i]);
        if (i == 1) GX_TRY(gx_json_get_fields(rope, theta, 1, 0, c, where, err));
    }
    return GX_OK;
}

static GxStatus gx__llama_family_refuse_unbuilt(const GxJson *json, const char *path, GxError *err)
{
    static const char *const off[] = {"attention_bias", "mlp_bias"};
    const GxJson *type = gx_json_get(json, "model_type"), *act = gx_json_get(json, "hidden_act");
    if (!type || strcmp(gx_json_string(type), "llama"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: model_type is \"%s\"; this program reads \"llama\"", path,
                       type ? gx_json_string(type) : "(absent)");
    if (act && strcmp(gx_json_string(act), "silu"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: hidden_act is \"%s\"; only \"silu\" is built", path,
                       gx_json_string(act));
    for (size_t i = 0; i < sizeof off / sizeof *off; i++)
        if (gx_json_bool(gx_json_get(json, off[i])))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s is true; biases are not built", path, off[i]);
    return GX_OK;
}

static GxStatus gx__llama_family_read_json(GxLlamaConfig *c, const GxJson *json, const char *path, GxError *err)
{
    const GxField *f = gx__llama_family_options;
    GX_TRY(gx__llama_family_refuse_unbuilt(json, path, err));
    GX_TRY(gx_json_get_fields(json, f, GX__LLAMA_FAMILY_REQUIRED, 1, c, path, err));
    GX_TRY(gx_json_get_fields(json, f + GX__LLAMA_FAMILY_REQUIRED, GX__LLAMA_FAMILY_OPTIONS - GX__LLAMA_FAMILY_REQUIRED,
                              0, c, path, err));
    return gx__llama_family_read_rope(c, json, path, err);
}

GxStatus gx_llama_config_read(GxLlamaConfig *c, const char *path, GxError *err)
{
    GxLlamaConfig absent = {0, 0, 0, 0, 0, 0, 0, 2048, 1e-6, 10000, 0.02, 0}; // transformers' own defaults
    GxError unsound = GX_ZERO;
    GxJson *json;
    *c = absent;
    GX_TRY(gx_json_read(&json, path, GX__LLAMA_FAMILY_CONFIG_JSON_CAP, err));
    GxStatus status = gx__llama_family_read_json(c, json, path, err);
    gx_json_free(json);
    if (status != GX_OK || gx_llama_config_resolve(c, &unsound) == GX_OK) return status;
    return GX_FAIL(err, gx_error_code(&unsound), "%s: %s", path, unsound.message);
}

GxStatus gx_llama_config_write(const GxLlamaConfig *c, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object(), *rope = gx_json_new_object(), *architectures = gx_json_new_array();
    gx_json_append(architectures, gx_json_new_string("LlamaForCausalLM"), err);
    gx_json_set(rope, "rope_theta", gx_json_new_double(c->rope_theta), err);
    gx_json_set(rope, "rope_type", gx_json_new_string("default"), err);
    gx_json_set(json, "architectures", architectures, err);
    gx_json_set(json, "model_type", gx_json_new_string("llama"), err);
    gx_json_set_fields(json, gx__llama_family_options, GX__LLAMA_FAMILY_OPTIONS, c, err);
    gx_json_set(json, "rope_parameters", rope, err);
    gx_json_set(json, "hidden_act", gx_json_new_string("silu"), err);
    gx_json_set(json, "attention_bias", gx_json_new_bool(0), err);
    gx_json_set(json, "mlp_bias", gx_json_new_bool(0), err);
    gx_json_set(json, "bos_token_id", gx_json_new_null(), err); // absent, they would be 1 and 2
    gx_json_set(json, "eos_token_id", gx_json_new_null(), err);
    gx_json_set(json, "torch_dtype", gx_json_new_string("float32"), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

// ---- the family ----------------------------------------------------------------------------------------------------

static GxStatus gx__llama_resolve(void *config, GxError *err)
{
    return gx_llama_config_resolve((GxLlamaConfig *)config, err);
}

static int64_t gx__llama_vocab_size(const void *config) { return ((const GxLlamaConfig *)config)->vocab_size; }

static GxStatus gx__llama_read_config(void *config, const char *path, GxError *err)
{
    return gx_llama_config_read((GxLlamaConfig *)config, path, err);
}

static GxStatus gx__llama_write_config(const void *config, const char *path, GxError *err)
{
    return gx_llama_config_write((const GxLlamaConfig *)config, path, err);
}

const GxFamily gx_llama = {
    "llama",           gx__llama_family_options, GX__LLAMA_FAMILY_OPTIONS, sizeof(GxLlamaConfig),  gx__llama_resolve,
    gx_llama_describe, gx__llama_vocab_size,     gx__llama_read_config,    gx__llama_write_config,
};
#endif
