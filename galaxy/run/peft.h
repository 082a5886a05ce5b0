// peft.h: reads and writes adapter_config.json, in which the Python package peft describes a folder's
// adapter_model.safetensors, for LoRA. A table says of each key of peft 0.21 that it is read, or that it does not
// change what a trained adapter computes, and why, or which of its values are refused; unknown keys are named in a
// warning.
//
// Which modules have factors, and with which r and alpha, is determined as in peft: by target_modules without
// exclude_modules (a list of them can be restricted to layers_to_transform, after a name of layers_pattern),
// rank_pattern and alpha_pattern (module_pattern.h).
//
// Bottleneck adapters (model/bottleneck.h), side networks (model/side.h) and prompts with scales (LLaMA-Adapter v2,
// model/scale.h) have such a folder, too, with a peft_type of Galaxy's own: peft has none for them, and refuses it by
// name. (If scales were an additional key of ADAPTION_PROMPT, peft would only warn, and ignore them.)
//
// Prompts in attention (model/prompt.h) are peft's ADAPTION_PROMPT: adapter_len rows in each of the last adapter_layers
// layers, ….self_attn.adaption_prompt [1, adapter_len, C] and ….self_attn.adaption_gate [1]. peft does not know
// modules_to_save for them, but reads such tensors, and warns of the key, which is written only if it is needed.
//
// The factors of model.layers.0.self_attn.q_proj are called
// base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight [r, in] and .lora_B.weight [out, r].
#ifndef GX_PEFT_H
#define GX_PEFT_H
#include "../io/json_fields.h"
#include "../io/json_keys.h"
#include "../io/model_folder.h"
#include "module_pattern.h"
GX_BEGIN

enum { GX_PEFT_TARGETS = 1 << 16 }; // a hundred layers with full names need half of it

#define GX_PEFT_LORA       "LORA" // peft_type
#define GX_PEFT_BOTTLENECK "GALAXY_BOTTLENECK"
#define GX_PEFT_SIDE       "GALAXY_SIDE"
#define GX_PEFT_PROMPT     "ADAPTION_PROMPT" // peft's own
#define GX_PEFT_PROMPT_V2  "GALAXY_PROMPT_V2"
#define GX_SIDE_MIXES      "plain|gated"

typedef struct {
    char type[GX_FIELD_TEXT]; // peft_type
    int64_t r;                // LoRA's; 0: not LoRA
    int64_t reduction;        // adapter_reduction_dim of bottleneck adapters; 0: not these
    int64_t side_reduction;   // side_reduction_factor of a side network; 0: none. With it:
    char side_mix[GX_FIELD_TEXT];
    int add_bias_sampling;
    int64_t prompt_len, prompt_layers; // adapter_len, adapter_layers of prompts; 0: none
    double lora_alpha, lora_dropout;
    int use_rslora;
    int fan_in_fan_out; // written alone: a matrix with factors is transposed in the model's files
    int freezes_b;      // init_lora_weights "mica": B was not trained
    // ensure_weight_tying: the head that is tied to an embedding in modules_to_save was trained, too, and is in the
    // file, but not in the list
    int ties;
    // The rows of a whole embedding of tokens, or head over them, in adapter_model.safetensors; 0: none. It is not in
    // adapter_config.json (run/adapter.h).
    int64_t vocab;
    // target_modules, separated by commas, "all-linear", or a regular expression (gx_module_is_pattern); "": not given
    char targets[GX_PEFT_TARGETS];
    char excluded[GX_PEFT_TARGETS];     // exclude_modules: likewise names or a regular expression
    GxIntList layers;                   // layers_to_transform; none: all
    char layers_pattern[GX_FIELD_TEXT]; // names; "": any
    char rank_pattern[GX_PEFT_TARGETS], alpha_pattern[GX_PEFT_TARGETS]; // gx_module_number
    char modules_to_save[GX_PEFT_TARGETS];                              // names: trained and saved whole
    char task_type[GX_FIELD_TEXT];                                      // CAUSAL_LM, SEQ_CLS, ...; "": not given
    char base[GX_PATH];                                                 // base_model_name_or_path, as given
} GxPeftConfig;

// log: gets warnings about unknown keys.
GxStatus gx_peft_config_read(GxPeftConfig *c, const char *path, const GxLogger *log, GxError *err);
GxStatus gx_peft_config_write(const GxPeftConfig *c, const char *path, GxError *err);
extern const GxModuleNumbers gx_peft_ranks, gx_peft_alphas; // the numbers allowed in rank_pattern and alpha_pattern

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PEFT_IMPLEMENTED)
#define GX_PEFT_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { GX__PEFT_CAP = 1 << 20 };
const GxModuleNumbers gx_peft_ranks = {1, 65536, 1}, gx_peft_alphas = {1e-6, 1e6, 0};

#define GX__PEFT_AT(field) offsetof(GxPeftConfig, field)
static const GxField gx__peft_bottleneck_fields[] = {
    {"adapter_reduction_dim", GX_FIELD_INT, GX__PEFT_AT(reduction), NULL, "", "1..65536"},
};
static const GxField gx__peft_side_fields[] = {
    {"side_reduction_factor", GX_FIELD_INT, GX__PEFT_AT(side_reduction), NULL, "", "1..65536"},
    {"side_mix", GX_FIELD_STRING, GX__PEFT_AT(side_mix), NULL, "", GX_SIDE_MIXES},
    {"add_bias_sampling", GX_FIELD_BOOL, GX__PEFT_AT(add_bias_sampling), NULL, "", NULL},
};
static const GxField gx__peft_prompt_fields[] = {
    {"adapter_len", GX_FIELD_INT, GX__PEFT_AT(prompt_len), NULL, "", "1..65536"},
    {"adapter_layers", GX_FIELD_INT, GX__PEFT_AT(prompt_layers), NULL, "", "1..65536"},
};
static const GxField gx__peft_fields[] = {
    {"r", GX_FIELD_INT, GX__PEFT_AT(r), NULL, "", "1..65536"},
    {"lora_alpha", GX_FIELD_DOUBLE, GX__PEFT_AT(lora_alpha), NULL, "", "1e-6..1e6"},
    {"lora_dropout", GX_FIELD_DOUBLE, GX__PEFT_AT(lora_dropout), NULL, "", "0..0.999"},
    {"use_rslora", GX_FIELD_BOOL, GX__PEFT_AT(use_rslora), NULL, "", NULL},
};

// ---- keys ----------------------------------------------------------------------------------------------------------

#define GX__PEFT_OF_ALL                                                                                                \
    {"peft_type", GX_KEY_READ, NULL}, {"task_type", GX_KEY_READ, NULL},                                                \
        {"base_model_name_or_path", GX_KEY_READ, NULL}, {"modules_to_save", GX_KEY_READ, NULL},                        \
        {"inference_mode", GX_KEY_HARMLESS, "whether peft trains it further"}, {"auto_mapping", GX_KEY_READ, NULL},    \
        {"peft_version", GX_KEY_HARMLESS, "who wrote the file"},                                                       \
    {                                                                                                                  \
        "revision", GX_KEY_HARMLESS, "of a base on the hub; here it is a folder"                                       \
    }

static const GxJsonKey gx__peft_lora_keys[] = {
    GX__PEFT_OF_ALL,
    {"r", GX_KEY_READ, NULL},
    {"lora_alpha", GX_KEY_READ, NULL},
    {"lora_dropout", GX_KEY_READ, NULL},
    {"use_rslora", GX_KEY_READ, NULL},
    {"target_modules", GX_KEY_READ, NULL},
    {"exclude_modules", GX_KEY_READ, NULL},
    {"layers_to_transform", GX_KEY_READ, NULL},
    {"layers_pattern", GX_KEY_READ, NULL},
    {"rank_pattern", GX_KEY_READ, NULL},
    {"alpha_pattern", GX_KEY_READ, NULL},
    {"init_lora_weights", GX_KEY_READ, NULL},
    {"ensure_weight_tying", GX_KEY_READ, NULL},
    {"loftq_config", GX_KEY_HARMLESS, "how LoRA's matrices begin; init_lora_weights says whether they began so"},
    {"eva_config", GX_KEY_HARMLESS, "as loftq_config"},
    {"corda_config", GX_KEY_HARMLESS, "as loftq_config"},
    {"lora_ga_config", GX_KEY_HARMLESS, "as loftq_config"},
    {"velora_config", GX_KEY_HARMLESS, "how gradients are made in training; what is computed is LoRA"},
    {"fan_in_fan_out", GX_KEY_HARMLESS,
     "whether a model's matrices lie transposed, which peft, too, takes from the model; the factors never do"},
    {"megatron_core", GX_KEY_HARMLESS, "where Megatron's layers come from, with megatron_config"},
    {"qalora_group_size", GX_KEY_HARMLESS, "with use_qalora"},
    {"runtime_config", GX_KEY_HARMLESS, "peft ignores it in a file"},
    {"bias=\"none\"", GX_KEY_REFUSED, "the file has biases that were trained with LoRA's matrices"},
    {"use_dora", GX_KEY_REFUSED, "matrices are also scaled to a trained length (DoRA)"},
    {"lora_bias", GX_KEY_REFUSED, "B has a bias"},
    {"layer_replication", GX_KEY_REFUSED, "layers of the base model are repeated"},
    {"target_parameters", GX_KEY_REFUSED, "there are LoRA matrices for tensors that are not a module's weight"},
    {"trainable_token_indices", GX_KEY_REFUSED, "rows of the embedding are replaced"},
    {"megatron_config", GX_KEY_REFUSED, "it is for a model with Megatron's layers"},
    {"use_qalora", GX_KEY_REFUSED, "A reads averages of its input (QA-LoRA)"},
    {"use_bdlora", GX_KEY_REFUSED, "LoRA's matrices are block-diagonal (BD-LoRA)"},
    {"arrow_config", GX_KEY_REFUSED, "each token chooses among several adapters (Arrow)"},
    {"alora_invocation_tokens", GX_KEY_REFUSED, "the adapter acts only from these tokens on (aLoRA)"},
    {"monteclora_config", GX_KEY_REFUSED, "LoRA's matrices are sampled (MonteCLoRA)"},
    {"kasa_config", GX_KEY_REFUSED,
     "the base model lacks its smallest singular values, and there is a diagonal between A and B"},
};
static const GxJsonKey gx__peft_prompt_keys[] = {
    GX__PEFT_OF_ALL,
    {"adapter_len", GX_KEY_READ, NULL},
    {"adapter_layers", GX_KEY_READ, NULL},
    {"target_modules=\"self_attn\"", GX_KEY_REFUSED, "only modules named self_attn have prompts"}};
#define GX__PEFT_OF_OWN                                                                                                \
    GX__PEFT_OF_ALL, { "target_modules", GX_KEY_REFUSED, "adapters of this type are in every layer" }
static const GxJsonKey gx__peft_bottleneck_keys[] = {GX__PEFT_OF_OWN, {"adapter_reduction_dim", GX_KEY_READ, NULL}};
static const GxJsonKey gx__peft_side_keys[] = {GX__PEFT_OF_OWN,
                                               {"side_reduction_factor", GX_KEY_READ, NULL},
                                               {"side_mix", GX_KEY_READ, NULL},
                                               {"add_bias_sampling", GX_KEY_READ, NULL}};
static const GxJsonKey gx__peft_v2_keys[] = {
    GX__PEFT_OF_OWN, {"adapter_len", GX_KEY_READ, NULL}, {"adapter_layers", GX_KEY_READ, NULL}};

typedef struct {
    const char *type;
    const GxField *fields;
    int n;
    int is_whole; // all fields are required
    const GxJsonKey *key;
    int keys;
} gx__PeftType;
static const gx__PeftType gx__peft_types[] = {
    {GX_PEFT_LORA, GX_FIELDS(gx__peft_fields), 0, GX_KEYS(gx__peft_lora_keys)},
    {GX_PEFT_PROMPT, GX_FIELDS(gx__peft_prompt_fields), 1, GX_KEYS(gx__peft_prompt_keys)},
    {GX_PEFT_PROMPT_V2, GX_FIELDS(gx__peft_prompt_fields), 1, GX_KEYS(gx__peft_v2_keys)},
    {GX_PEFT_BOTTLENECK, GX_FIELDS(gx__peft_bottleneck_fields), 1, GX_KEYS(gx__peft_bottleneck_keys)},
    {GX_PEFT_SIDE, GX_FIELDS(gx__peft_side_fields), 1, GX_KEYS(gx__peft_side_keys)},
};

static const gx__PeftType *gx__peft_type_of(const char *type) // NULL: none that is supported
{
    for (size_t i = 0; i < sizeof gx__peft_types / sizeof *gx__peft_types; i++)
        if (!strcmp(type, gx__peft_types[i].type)) return &gx__peft_types[i];
    return NULL;
}

// How the factors were initialized. That no longer matters in a trained adapter, unless the base was changed, too: peft
// subtracts from W what the first factors add, so the file's factors fit only the changed W, which peft makes again
// when it loads the adapter (pissa, olora, loftq) or expects to find (corda, lora_ga).
typedef enum {
    GX__PEFT_INIT_PLAIN,
    GX__PEFT_INIT_FREEZES_B,
    GX__PEFT_INIT_CHANGES,
    GX__PEFT_INIT_QUANTIZES
} gx__PeftInitKind;
typedef struct {
    const char *name;
    gx__PeftInitKind kind;
} gx__PeftInit;
static const gx__PeftInit gx__peft_inits[] = {
    {"gaussian", GX__PEFT_INIT_PLAIN}, {"orthogonal", GX__PEFT_INIT_PLAIN}, {"eva", GX__PEFT_INIT_PLAIN},
    {"mica", GX__PEFT_INIT_FREEZES_B}, {"pissa", GX__PEFT_INIT_CHANGES},    {"olora", GX__PEFT_INIT_CHANGES},
    {"corda", GX__PEFT_INIT_CHANGES},  {"lora_ga", GX__PEFT_INIT_CHANGES},  {"loftq", GX__PEFT_INIT_QUANTIZES},
};

static const gx__PeftInit *gx__peft_init_of(const char *name)
{
    if (!strncasecmp(name, "pissa_niter_", 12)) name = "pissa";
    for (size_t i = 0; i < sizeof gx__peft_inits / sizeof *gx__peft_inits; i++)
        if (!strcasecmp(name, gx__peft_inits[i].name)) return &gx__peft_inits[i];
    return NULL;
}

static GxStatus gx__peft_check_init(GxPeftConfig *c, const GxJson *json, const char *path, GxError *err)
{
    const GxJson *value = gx_json_get(json, "init_lora_weights");
    const char *name = gx_json_string(value);
    if (gx_json_type(value) <= GX_JSON_NULL || gx_json_type(value) == GX_JSON_BOOL) return GX_OK;
    const gx__PeftInit *init = gx__peft_init_of(name);
    if (!init)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: init_lora_weights is \"%.60s\", which is not known and may have changed the base model's "
                       "weights; true, false, gaussian, orthogonal, mica and eva leave them as they are",
                       path, name);
    c->freezes_b = init->kind == GX__PEFT_INIT_FREEZES_B;
    if (init->kind < GX__PEFT_INIT_CHANGES) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_UNSUPPORTED,
        "%s: init_lora_weights is \"%.60s\", for which peft changed the base model's weights before training, so the "
        "adapter does not fit the base model's folder; %sif --model is a folder with the changed weights, set the key "
        "to true",
        path, name,
        init->kind == GX__PEFT_INIT_QUANTIZES
            ? ""
            : "save it with path_initial_model_for_weight_conversion, which makes an ordinary adapter of it, or ");
}

static GxStatus gx__peft_refuse_type(const char *type, const char *path, GxError *err)
{
    const int n = sizeof gx__peft_types / sizeof *gx__peft_types;
    char names[300] = "";
    for (int i = 0, at = 0; i < n; i++) {
        const char *before = i == 0 ? "" : i < n - 1 ? ", " : " and ";
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%s", before, gx__peft_types[i].type);
    }
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: peft_type is \"%.60s\"; %s are supported", path, type, names);
}

// A classifier has the same names whether it looks at sentences, at each token or at several choices.
static GxStatus gx__peft_check_task(const GxPeftConfig *c, const GxJson *json, const char *path, GxError *err)
{
    static const char *const tasks[] = {"", "CAUSAL_LM", "SEQ_CLS", "TOKEN_CLS", "SEQ_2_SEQ_LM", "FEATURE_EXTRACTION"};
    const char *of = gx_json_string(gx_json_get(gx_json_get(json, "auto_mapping"), "base_model_class"));
    int is_built = 0;
    for (int i = 0; i < 6; i++) is_built |= !strcmp(c->task_type, tasks[i]);
    if (!is_built)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: task_type is \"%s\", which is not supported; CAUSAL_LM, SEQ_CLS, TOKEN_CLS, SEQ_2_SEQ_LM, "
                       "FEATURE_EXTRACTION and null are",
                       path, c->task_type);
    const int has_head = strstr(c->modules_to_save, "classifier") || strstr(c->modules_to_save, "score") ||
                         strstr(c->targets, "classifier") || strstr(c->targets, "score");
    if (!has_head || c->task_type[0] || !of[0] || gx_text_stem(of, "ForSequenceClassification") >= 0 ||
        gx_text_stem(of, "ForTokenClassification") >= 0)
        return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: auto_mapping says that the adapter's classifier belongs to a %.100s, which is not supported; "
                   "only ...ForSequenceClassification and ...ForTokenClassification are",
                   path, of);
}

// ---- which modules -------------------------------------------------------------------------------------------------

// A text, unlike a list, is a regular expression, and is marked as one: "q_proj" must match a whole name, not its end.
static GxStatus gx__peft_pattern(const char *text, const char *key, char *names, size_t size, const char *path,
                                 GxError *err)
{
    const int is_word = !strcasecmp(text, "all-linear"), is_plain = is_word || gx_module_is_pattern(text);
    char where[GX_PATH + 20];
    if ((size_t)snprintf(names, size, is_plain ? "%s" : "(?:%s)", text) >= size)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s has more than %d characters", path, key, (int)size - 1);
    snprintf(where, sizeof where, "%s: %s", path, key);
    return is_word ? GX_OK : gx_module_pattern_check(names, where, err);
}

// A list of names, or null, or, if may_be_pattern, a pattern.
static GxStatus gx__peft_names(const GxJson *json, const char *key, int may_be_pattern, char *names, size_t size,
                               const char *path, GxError *err)
{
    const GxJson *list = gx_json_get(json, key);
    size_t n = 0;
    names[0] = 0;
    if (gx_json_type(list) <= GX_JSON_NULL) return GX_OK;
    if (gx_json_type(list) == GX_JSON_STRING && may_be_pattern)
        return gx__peft_pattern(gx_json_string(list), key, names, size, path, err);
    if (gx_json_type(list) != GX_JSON_ARRAY)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is %s; expected a list of names%s", path, key,
                       gx_json_type_name(list), may_be_pattern ? ", or a regular expression" : "");
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        const char *name = gx_json_string(gx_json_at(list, i));
        if (!name[0] || strchr(name, ',') || gx_module_is_pattern(name))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: name %ld of %s is not the name of a module", path, (long)i, key);
        n += (size_t)snprintf(names + n, size - n, "%s%s", n ? "," : "", name);
        if (n >= size)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: the names of %s have more than %d characters", path, key,
                           (int)size - 1);
    }
    return GX_OK;
}

static GxStatus gx__peft_text(const GxJson *json, const char *key, char *text, size_t size, const char *path,
                              GxError *err)
{
    const char *value = "";
    text[0] = 0;
    GX_TRY(gx_json_get_string(json, key, 0, &value, path, err));
    if ((size_t)snprintf(text, size, "%s", value) < size) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s has more than %d characters", path, key, (int)size - 1);
}

// A number, or a list of numbers. layers_pattern has the name, or a list of names, that they follow.
static GxStatus gx__peft_layers(GxPeftConfig *c, const GxJson *json, const char *path, GxError *err)
{
    const GxJson *layers = gx_json_get(json, "layers_to_transform"), *before = gx_json_get(json, "layers_pattern");
    const int is_list = gx_json_type(layers) == GX_JSON_ARRAY;
    c->layers.n = 0;
    if (gx_json_type(layers) <= GX_JSON_NULL || (is_list && !gx_json_size(layers))) return GX_OK;
    if (c->targets[0] && (gx_module_is_pattern(c->targets) || !strcasecmp(c->targets, "all-linear")))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: layers_to_transform needs a list of target_modules, but here they are a single text", path);
    if (is_list && gx_json_size(layers) > GX_FIELD_LIST)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: layers_to_transform has more than %d layers", path, GX_FIELD_LIST);
    for (int64_t i = 0; i < (is_list ? gx_json_size(layers) : 1); i++) {
        const GxJson *layer = is_list ? gx_json_at(layers, i) : layers;
        if (gx_json_type(layer) != GX_JSON_INT)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: layers_to_transform has %s; expected numbers of layers", path,
                           gx_json_type_name(layer));
        c->layers.v[c->layers.n++] = gx_json_int(layer);
    }
    if (gx_json_type(before) != GX_JSON_STRING)
        return gx__peft_names(json, "layers_pattern", 0, c->layers_pattern, sizeof c->layers_pattern, path, err);
    GX_TRY(gx__peft_text(json, "layers_pattern", c->layers_pattern, sizeof c->layers_pattern, path, err));
    if (!gx_module_is_pattern(c->layers_pattern)) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: layers_pattern is the regular expression \"%s\", which is not supported; use the name of a "
                   "list of layers, such as \"layers\"",
                   path, c->layers_pattern);
}

static GxStatus gx__peft_numbers(const GxJson *json, const char *key, GxModuleNumbers may, char *text, size_t size,
                                 const char *path, GxError *err)
{
    const GxJson *object = gx_json_get(json, key);
    char where[GX_PATH + 20], *made;
    text[0] = 0;
    if (gx_json_type(object) <= GX_JSON_NULL) return GX_OK;
    snprintf(where, sizeof where, "%s: %s", path, key);
    GX_TRY(gx_module_numbers_take(&made, object, may, where, err));
    const int fits = (size_t)snprintf(text, size, "%s", made) < size;
    free(made);
    if (fits) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s has more than %d characters", where, (int)size - 1);
}

static GxStatus gx__peft_modules(GxPeftConfig *c, const GxJson *json, const char *path, GxError *err)
{
    GX_TRY(gx__peft_names(json, "target_modules", 1, c->targets, sizeof c->targets, path, err));
    GX_TRY(gx__peft_names(json, "exclude_modules", 1, c->excluded, sizeof c->excluded, path, err));
    GX_TRY(gx__peft_layers(c, json, path, err));
    GX_TRY(gx__peft_numbers(json, "rank_pattern", gx_peft_ranks, c->rank_pattern, sizeof c->rank_pattern, path, err));
    return gx__peft_numbers(json, "alpha_pattern", gx_peft_alphas, c->alpha_pattern, sizeof c->alpha_pattern, path,
                            err);
}

static GxStatus gx__peft_tie(GxPeftConfig *c, const GxJson *json, const char *path, GxError *err)
{
    static const char *const words[] = {"embed_tokens", "word_embeddings", "lm_head", "decoder", "wte"};
    c->ties = gx_json_bool(gx_json_get(json, "ensure_weight_tying"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (c->ties && strstr(c->targets, words[i]))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "%s: ensure_weight_tying is true, and target_modules has %s, which is not supported: the "
                           "embedding and the head that is tied to it would share LoRA's matrices",
                           path, words[i]);
    return GX_OK;
}

static GxStatus gx__peft_take(GxPeftConfig *c, const GxJson *json, const char *path, const GxLogger *log, GxError *err)
{
    const char *name = gx_json_string(gx_json_get(json, "peft_type"));
    const gx__PeftType *type = gx__peft_type_of(name);
    if (!gx_json_get(json, "peft_type"))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has no peft_type to say which kind of adapter it is (\"LORA\")", path);
    if (!type) return gx__peft_refuse_type(name, path, err);
    const int is_lora = type == gx__peft_types;
    snprintf(c->type, sizeof c->type, "%s", type->type);
    GX_TRY(gx_json_check_keys(json, type->key, type->keys, path, log, err));
    if (!is_lora) c->r = 0, c->lora_alpha = 0;
    GX_TRY(gx_json_get_fields(json, type->fields, type->n, type->is_whole, c, path, err));
    if (is_lora) {
        GX_TRY(gx__peft_check_init(c, json, path, err));
        GX_TRY(gx__peft_modules(c, json, path, err));
    }
    GX_TRY(gx__peft_names(json, "modules_to_save", 0, c->modules_to_save, sizeof c->modules_to_save, path, err));
    GX_TRY(gx__peft_tie(c, json, path, err));
    GX_TRY(gx__peft_text(json, "task_type", c->task_type, sizeof c->task_type, path, err));
    GX_TRY(gx__peft_check_task(c, json, path, err));
    return gx__peft_text(json, "base_model_name_or_path", c->base, sizeof c->base, path, err);
}

GxStatus gx_peft_config_read(GxPeftConfig *c, const char *path, const GxLogger *log, GxError *err)
{
    GxJson *json;
    memset(c, 0, sizeof *c);
    c->r = 8, c->lora_alpha = 8; // peft's defaults
    GX_TRY(gx_json_read_object(&json, path, GX__PEFT_CAP, 0, err));
    const GxStatus status = gx__peft_take(c, json, path, log, err);
    gx_json_free(json);
    return status;
}

// "a,b" as ["a", "b"], a regular expression as it is; "": null.
static GxJson *gx__peft_list(const char *names, GxError *err)
{
    char name[GX_PEFT_TARGETS];
    if (gx_module_is_pattern(names)) return gx_json_new_string(names);
    GxJson *list = names[0] ? gx_json_new_array() : gx_json_new_null();
    for (const char *p = names; *p; p += *p == ',') {
        const int n = (int)strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", n, p);
        gx_json_append(list, gx_json_new_string(name), err);
        p += n;
    }
    return list;
}

static void gx__peft_set_numbers(GxJson *json, const char *key, const char *numbers, GxError *err)
{
    GxJson *object;
    if (numbers[0] && gx_json_parse(&object, numbers, (int64_t)strlen(numbers), key, err) == GX_OK)
        gx_json_set(json, key, object, err);
}

// Sets which modules have factors, and which of them have a rank or an alpha of their own.
static void gx__peft_set_modules(GxJson *json, const GxPeftConfig *c, GxError *err)
{
    GxJson *layers = c->layers.n ? gx_json_new_array() : NULL;
    gx_json_set(json, "target_modules", gx__peft_list(c->targets, err), err);
    if (c->excluded[0]) gx_json_set(json, "exclude_modules", gx__peft_list(c->excluded, err), err);
    for (int i = 0; i < c->layers.n; i++) gx_json_append(layers, gx_json_new_int(c->layers.v[i]), err);
    if (layers) gx_json_set(json, "layers_to_transform", layers, err);
    if (layers && c->layers_pattern[0]) gx_json_set(json, "layers_pattern", gx__peft_list(c->layers_pattern, err), err);
    gx__peft_set_numbers(json, "rank_pattern", c->rank_pattern, err);
    gx__peft_set_numbers(json, "alpha_pattern", c->alpha_pattern, err);
}

GxStatus gx_peft_config_write(const GxPeftConfig *c, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object();
    const gx__PeftType *type = gx__peft_type_of(c->type);
    if (!type) {
        gx_json_free(json);
        return gx__peft_refuse_type(c->type, path, err);
    }
    const int is_lora = type == gx__peft_types, is_prompt = !strcmp(type->type, GX_PEFT_PROMPT);
    gx_json_set(json, "peft_type", gx_json_new_string(type->type), err);
    gx_json_set(json, "task_type", c->task_type[0] ? gx_json_new_string(c->task_type) : gx_json_new_null(), err);
    gx_json_set(json, "base_model_name_or_path", gx_json_new_string(c->base), err);
    gx_json_set_fields(json, type->fields, type->n, c, err);
    if (is_lora) gx__peft_set_modules(json, c, err);
    if (is_prompt) gx_json_set(json, "target_modules", gx_json_new_string("self_attn"), err);
    if (!is_prompt || c->modules_to_save[0])
        gx_json_set(json, "modules_to_save", gx__peft_list(c->modules_to_save, err), err);
    if (is_lora) gx_json_set(json, "bias", gx_json_new_string("none"), err);
    if (is_lora) gx_json_set(json, "fan_in_fan_out", gx_json_new_bool(c->fan_in_fan_out), err);
    gx_json_set(json, "inference_mode", gx_json_new_bool(1), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}
#endif
