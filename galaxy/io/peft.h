// peft.h: adapter_config.json, by which the Python package peft says what a folder's adapter_model.safetensors is: of
// LoRA, in and out. What would change the arithmetic and is not built is refused by its key; so is a key that is not
// known, unless it says nothing (null, false, {}, []).
//
// Bottleneck adapters (model/bottleneck.h), side networks (model/side.h) and prompts with scales (LLaMA-Adapter v2,
// model/scale.h) have such a folder, too, of a peft_type that is Galaxy's own: peft knows none for them, and refuses it
// by its name. (Of a key of ADAPTION_PROMPT that it does not know it would warn, and leave the scales out.)
//
// Prompts in attention (model/prompt.h) are peft's ADAPTION_PROMPT: adapter_len rows in each of the last adapter_layers
// layers, ….self_attn.adaption_prompt [1, adapter_len, C] and ….self_attn.adaption_gate [1]. peft knows no
// modules_to_save for them, reads such tensors all the same, and warns of the key, which is there only where it says
// something.
//
// The factors of model.layers.0.self_attn.q_proj are called
// base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight [r, in] and .lora_B.weight [out, r].
#ifndef GX_PEFT_H
#define GX_PEFT_H
#include "json_fields.h"
#include "module_pattern.h"
GX_BEGIN

#define GX_PEFT_PREFIX "base_model.model." // of the names of tensors
enum { GX_PEFT_TARGETS = 1 << 16 };        // a hundred layers by whole names are half of it

#define GX_PEFT_BOTTLENECK "GALAXY_BOTTLENECK" // peft_type
#define GX_PEFT_SIDE       "GALAXY_SIDE"
#define GX_PEFT_PROMPT     "ADAPTION_PROMPT" // peft's own
#define GX_PEFT_PROMPT_V2  "GALAXY_PROMPT_V2"
#define GX_SIDE_MIXES      "plain|gated"

typedef struct {
    int64_t r;              // of LoRA; 0: it is none
    int64_t reduction;      // adapter_reduction_dim, of bottleneck adapters; 0: it is none
    int64_t side_reduction; // side_reduction_factor, of a side network; 0: it is none. Then
    char side_mix[GX_FIELD_TEXT];
    int add_bias_sampling;
    int64_t prompt_len, prompt_layers; // adapter_len, adapter_layers, of prompts; 0: it is none
    int prompt_is_v2;
    double lora_alpha, lora_dropout;
    int use_rslora;
    // target_modules, with commas between them, "all-linear", or a regular expression (gx_module_is_pattern); "": the
    // file does not say
    char targets[GX_PEFT_TARGETS];
    char modules_to_save[GX_PEFT_TARGETS]; // alike: trained and saved whole
    char task_type[GX_FIELD_TEXT];         // CAUSAL_LM, SEQ_CLS; "": it does not say
    char base[GX_PATH];                    // base_model_name_or_path, as it stands there
} GxPeftConfig;

// What config.json of the whole model is in an adapter's folder, which transformers would else take for a model's.
#define GX_PEFT_MODEL_CONFIG "model_config.json"
// The folder's config.json, or where there is none GX_PEFT_MODEL_CONFIG. path[GX_PATH].
GxStatus gx_model_config_path(char *path, const char *folder, GxError *err);

GxStatus gx_peft_config_read(GxPeftConfig *c, const char *path, GxError *err);
GxStatus gx_peft_config_write(const GxPeftConfig *c, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PEFT_IMPLEMENTED)
#define GX_PEFT_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { GX__PEFT_CAP = 1 << 20 };

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
// Types that are Galaxy's own: all of their keys, but for those that all types have.
typedef struct {
    const char *type;
    const GxField *fields;
    int n;
} gx__PeftOwn;
static const gx__PeftOwn gx__peft_own[] = {{GX_PEFT_BOTTLENECK, GX_FIELDS(gx__peft_bottleneck_fields)},
                                           {GX_PEFT_SIDE, GX_FIELDS(gx__peft_side_fields)},
                                           {GX_PEFT_PROMPT_V2, GX_FIELDS(gx__peft_prompt_fields)}};
static const GxField gx__peft_fields[] = {
    {"r", GX_FIELD_INT, GX__PEFT_AT(r), NULL, "", "1..65536"},
    {"lora_alpha", GX_FIELD_DOUBLE, GX__PEFT_AT(lora_alpha), NULL, "", "1e-6..1e6"},
    {"lora_dropout", GX_FIELD_DOUBLE, GX__PEFT_AT(lora_dropout), NULL, "", "0..0.999"},
    {"use_rslora", GX_FIELD_BOOL, GX__PEFT_AT(use_rslora), NULL, "", NULL},
};

// Keys that are read above or below, and those that change nothing of what a trained adapter computes.
static const char *const gx__peft_known[] = {"target_modules",    "modules_to_save",
                                             "task_type",         "base_model_name_or_path",
                                             "peft_type",         "bias",
                                             "auto_mapping",      "inference_mode",
                                             "init_lora_weights", "loftq_config",
                                             "megatron_config",   "megatron_core",
                                             "peft_version",      "qalora_group_size",
                                             "revision"};

// null, false, {} and [] ask for nothing.
static int gx__peft_is_nothing(const GxJson *value)
{
    switch (gx_json_type(value)) {
    case GX_JSON_NULL: return 1;
    case GX_JSON_BOOL: return !gx_json_bool(value);
    case GX_JSON_ARRAY:
    case GX_JSON_OBJECT: return gx_json_size(value) == 0;
    default: return 0;
    }
}

static const gx__PeftOwn *gx__peft_own_of(const char *type) // NULL: it is peft's
{
    for (size_t i = 0; i < sizeof gx__peft_own / sizeof *gx__peft_own; i++)
        if (!strcmp(type, gx__peft_own[i].type)) return &gx__peft_own[i];
    return NULL;
}

static GxStatus gx__peft_check_own(const gx__PeftOwn *own, const GxJson *json, const char *path, GxError *err)
{
    static const char *const known[] = {"peft_type", "base_model_name_or_path", "modules_to_save", "task_type",
                                        "inference_mode"};
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);) {
        int is_known = gx__peft_is_nothing(m.value);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known |= !strcmp(m.key, known[i]);
        for (int i = 0; i < own->n; i++) is_known |= !strcmp(m.key, own->fields[i].name);
        if (!is_known)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "%s: \"%.60s\" is set, which is not built: of %s there are %s%s%s%s%s and a list of "
                           "modules_to_save",
                           path, m.key, own->type, own->fields[0].name, own->n > 1 ? ", " : "",
                           own->n > 1 ? own->fields[1].name : "", own->n > 2 ? ", " : "",
                           own->n > 2 ? own->fields[2].name : "");
    }
    return GX_OK;
}

// Of prompts.
static GxStatus gx__peft_check_prompt(const GxJson *json, const char *path, GxError *err)
{
    static const char *const known[] = {"peft_type",       "adapter_len", "adapter_layers", "base_model_name_or_path",
                                        "modules_to_save", "task_type",   "inference_mode", "target_modules",
                                        "auto_mapping",    "revision",    "peft_version"};
    const GxJson *target = gx_json_get(json, "target_modules");
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);) {
        int is_known = gx__peft_is_nothing(m.value);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known |= !strcmp(m.key, known[i]);
        if (!is_known)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "%s: \"%.60s\" is set, which is not built: of " GX_PEFT_PROMPT
                           " there are adapter_len and adapter_layers",
                           path, m.key);
    }
    if (gx_json_type(target) <= GX_JSON_NULL || !strcmp(gx_json_string(target), "self_attn")) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: target_modules is \"%.60s\"; of " GX_PEFT_PROMPT " self_attn is built",
                   path, gx_json_string(target));
}

static int gx__peft_is(const GxJson *json, const char *type)
{
    return !strcmp(gx_json_string(gx_json_get(json, "peft_type")), type);
}

static int gx__peft_is_known(const char *key)
{
    for (size_t i = 0; i < sizeof gx__peft_fields / sizeof *gx__peft_fields; i++)
        if (!strcmp(key, gx__peft_fields[i].name)) return 1;
    for (size_t i = 0; i < sizeof gx__peft_known / sizeof *gx__peft_known; i++)
        if (!strcmp(key, gx__peft_known[i])) return 1;
    return 0;
}

static GxStatus gx__peft_check_keys(const GxJson *json, const char *path, GxError *err)
{
    const char *type = gx_json_string(gx_json_get(json, "peft_type")),
               *bias = gx_json_string(gx_json_get(json, "bias"));
    if (strcmp(type, "LORA"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: peft_type is \"%.60s\"; LORA, " GX_PEFT_PROMPT ", " GX_PEFT_PROMPT_V2
                       ", " GX_PEFT_BOTTLENECK " and " GX_PEFT_SIDE " are built",
                       path, type);
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);)
        if (!gx__peft_is_known(m.key) && !gx__peft_is_nothing(m.value))
            return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                           "%s: \"%.60s\" is set, which is not built: of LoRA there are r, lora_alpha, use_rslora, "
                           "target_modules and modules_to_save",
                           path, m.key);
    if (bias[0] && strcmp(bias, "none"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: bias is \"%.60s\"; none is built", path, bias);
    const char *init = gx_json_string(gx_json_get(json, "init_lora_weights"));
    if (init[0] && strcmp(init, "gaussian"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: init_lora_weights is \"%.60s\", by which the base has other weights than its folder; "
                       "true, false and gaussian are built",
                       path, init);
    return GX_OK;
}

// A text is a regular expression, and is one in signs, too: q_proj is no end of a name there, but all of it.
static GxStatus gx__peft_pattern(const char *text, char *names, size_t size, const char *path, GxError *err)
{
    const int is_word = !strcasecmp(text, "all-linear"), is_plain = is_word || gx_module_is_pattern(text);
    char where[GX_PATH + 20];
    if ((size_t)snprintf(names, size, is_plain ? "%s" : "(?:%s)", text) >= size)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: target_modules has more than %d characters", path, (int)size - 1);
    snprintf(where, sizeof where, "%s: target_modules", path);
    return is_word ? GX_OK : gx_module_pattern_check(names, where, err);
}

// A list of names, or null; or where that may be, a pattern.
static GxStatus gx__peft_names(const GxJson *json, const char *key, int may_be_pattern, char *names, size_t size,
                               const char *path, GxError *err)
{
    const GxJson *list = gx_json_get(json, key);
    size_t n = 0;
    names[0] = 0;
    if (gx_json_type(list) <= GX_JSON_NULL) return GX_OK;
    if (gx_json_type(list) == GX_JSON_STRING && may_be_pattern)
        return gx__peft_pattern(gx_json_string(list), names, size, path, err);
    if (gx_json_type(list) != GX_JSON_ARRAY)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is %s; expected a list of names%s", path, key,
                       gx_json_type_name(list), may_be_pattern ? ", or a regular expression" : "");
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        const char *name = gx_json_string(gx_json_at(list, i));
        if (!name[0] || strchr(name, ',') || gx_module_is_pattern(name))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: name %ld of %s is no name of a module", path, (long)i, key);
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

static GxStatus gx__peft_take(GxPeftConfig *c, const GxJson *json, const char *path, GxError *err)
{
    if (gx_json_type(json) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %s; expected an object", path, gx_json_type_name(json));
    const gx__PeftOwn *own = gx__peft_own_of(gx_json_string(gx_json_get(json, "peft_type")));
    if (gx__peft_is(json, GX_PEFT_PROMPT)) {
        c->r = 0, c->lora_alpha = 0;
        GX_TRY(gx__peft_check_prompt(json, path, err));
        GX_TRY(gx_json_get_fields(json, GX_FIELDS(gx__peft_prompt_fields), 1, c, path, err));
    } else if (own) {
        c->r = 0, c->lora_alpha = 0;
        GX_TRY(gx__peft_check_own(own, json, path, err));
        GX_TRY(gx_json_get_fields(json, own->fields, own->n, 1, c, path, err));
        c->prompt_is_v2 = !strcmp(own->type, GX_PEFT_PROMPT_V2);
    } else {
        GX_TRY(gx__peft_check_keys(json, path, err));
        GX_TRY(gx_json_get_fields(json, GX_FIELDS(gx__peft_fields), 0, c, path, err));
        GX_TRY(gx__peft_names(json, "target_modules", 1, c->targets, sizeof c->targets, path, err));
    }
    GX_TRY(gx__peft_names(json, "modules_to_save", 0, c->modules_to_save, sizeof c->modules_to_save, path, err));
    GX_TRY(gx__peft_text(json, "task_type", c->task_type, sizeof c->task_type, path, err));
    return gx__peft_text(json, "base_model_name_or_path", c->base, sizeof c->base, path, err);
}

GxStatus gx_model_config_path(char *path, const char *folder, GxError *err)
{
    char other[GX_PATH];
    GX_TRY(gx_path_join(path, folder, "config.json", err));
    GX_TRY(gx_path_join(other, folder, GX_PEFT_MODEL_CONFIG, err));
    if (!gx_path_is_file(path) && gx_path_is_file(other)) snprintf(path, GX_PATH, "%s", other);
    return GX_OK;
}

GxStatus gx_peft_config_read(GxPeftConfig *c, const char *path, GxError *err)
{
    GxJson *json;
    memset(c, 0, sizeof *c);
    c->r = 8, c->lora_alpha = 8; // as peft takes them where they are missing
    GX_TRY(gx_json_read(&json, path, GX__PEFT_CAP, err));
    const GxStatus status = gx__peft_take(c, json, path, err);
    gx_json_free(json);
    return status;
}

// "a,b" as ["a", "b"]; "": null.
static GxJson *gx__peft_list(const char *names, GxError *err)
{
    char name[GX_PEFT_TARGETS];
    GxJson *list = names[0] ? gx_json_new_array() : gx_json_new_null();
    for (const char *p = names; *p; p += *p == ',') {
        const int n = (int)strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", n, p);
        gx_json_append(list, gx_json_new_string(name), err);
        p += n;
    }
    return list;
}

GxStatus gx_peft_config_write(const GxPeftConfig *c, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object();
    const gx__PeftOwn *own = gx__peft_own_of(c->side_reduction ? GX_PEFT_SIDE
                                             : c->reduction    ? GX_PEFT_BOTTLENECK
                                             : c->prompt_is_v2 ? GX_PEFT_PROMPT_V2
                                                               : "");
    const int is_prompt = !own && c->prompt_len > 0, is_lora = !own && !is_prompt;
    const char *type = own ? own->type : is_prompt ? GX_PEFT_PROMPT : "LORA";
    gx_json_set(json, "peft_type", gx_json_new_string(type), err);
    gx_json_set(json, "task_type", c->task_type[0] ? gx_json_new_string(c->task_type) : gx_json_new_null(), err);
    gx_json_set(json, "base_model_name_or_path", gx_json_new_string(c->base), err);
    if (is_lora) gx_json_set_fields(json, GX_FIELDS(gx__peft_fields), c, err);
    if (is_prompt) gx_json_set_fields(json, GX_FIELDS(gx__peft_prompt_fields), c, err);
    if (own) gx_json_set_fields(json, own->fields, own->n, c, err);
    if (is_lora) gx_json_set(json, "target_modules", gx__peft_list(c->targets, err), err);
    if (is_prompt) gx_json_set(json, "target_modules", gx_json_new_string("self_attn"), err);
    if (!is_prompt || c->modules_to_save[0])
        gx_json_set(json, "modules_to_save", gx__peft_list(c->modules_to_save, err), err);
    if (is_lora) gx_json_set(json, "bias", gx_json_new_string("none"), err);
    if (is_lora) gx_json_set(json, "fan_in_fan_out", gx_json_new_bool(0), err);
    gx_json_set(json, "inference_mode", gx_json_new_bool(1), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}
#endif
