// generation_config.h: how a model's text is to be drawn, as its Hugging Face folder says it: generation_config.json,
// key by key; what it does not have stays as it is. transformers draws where do_sample is true, and takes the likeliest
// token where it is not: then its temperature, top_k, top_p and min_p are not looked at.
//
// Tokens that end a text (eos_token_id: one, or several) are those of this file; where there is none, of config.json.
#ifndef GX_GENERATION_CONFIG_H
#define GX_GENERATION_CONFIG_H
#include "json_fields.h"
GX_BEGIN

enum { GX_STOP_TOKENS = 32 };
typedef struct {
    int has_file, samples; // generation_config.json is there; do_sample
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, max_new_tokens; // max_new_tokens 0: it does not say
    int32_t stop[GX_STOP_TOKENS];  // eos_token_id
    int n_stop;
    char unbuilt[300]; // keys that ask for what is not built: "num_beams, typical_p"; "": none
} GxGenerationConfig;

// Where nothing is said: transformers' own defaults: temperature 1, top_k 50, top_p 1, min_p 0, no penalty.
GxStatus gx_generation_config_read(GxGenerationConfig *c, const char *folder, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GENERATION_CONFIG_IMPLEMENTED)
#define GX_GENERATION_CONFIG_IMPLEMENTED
#include <stdio.h>
#include <string.h>

enum { GX__GENERATION_CONFIG_CAP = 1 << 20 };

#define GX__GENERATION_AT(field) offsetof(GxGenerationConfig, field)
static const GxField gx__generation_config_fields[] = {
    {"do_sample", GX_FIELD_BOOL, GX__GENERATION_AT(samples), NULL, "", NULL},
    {"temperature", GX_FIELD_DOUBLE, GX__GENERATION_AT(temperature), NULL, "", "0..1e6"},
    {"top_k", GX_FIELD_INT, GX__GENERATION_AT(top_k), NULL, "", "0.."},
    {"top_p", GX_FIELD_DOUBLE, GX__GENERATION_AT(top_p), NULL, "", "0..1"},
    {"min_p", GX_FIELD_DOUBLE, GX__GENERATION_AT(min_p), NULL, "", "0..1"},
    {"repetition_penalty", GX_FIELD_DOUBLE, GX__GENERATION_AT(repetition_penalty), NULL, "", "1e-3..1e3"},
    {"max_new_tokens", GX_FIELD_INT, GX__GENERATION_AT(max_new_tokens), NULL, "", "1..16777216"},
};

// What these say where they ask for nothing.
static const struct {
    const char *key;
    double nothing;
} gx__generation_config_unbuilt[] = {{"num_beams", 1},
                                     {"typical_p", 1},
                                     {"epsilon_cutoff", 0},
                                     {"eta_cutoff", 0},
                                     {"no_repeat_ngram_size", 0},
                                     {"min_new_tokens", 0},
                                     {"min_length", 0},
                                     {"num_return_sequences", 1},
                                     {"guidance_scale", 1},
                                     {"encoder_repetition_penalty", 1}};

static void gx__generation_config_find_unbuilt(GxGenerationConfig *c, const GxJson *json)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof gx__generation_config_unbuilt / sizeof *gx__generation_config_unbuilt; i++) {
        const GxJson *value = gx_json_get(json, gx__generation_config_unbuilt[i].key);
        if (gx_json_type(value) <= GX_JSON_NULL || gx_json_double(value) == gx__generation_config_unbuilt[i].nothing)
            continue;
        n += (size_t)snprintf(c->unbuilt + n, sizeof c->unbuilt - n, "%s%s", n ? ", " : "",
                              gx__generation_config_unbuilt[i].key);
    }
}

static GxStatus gx__generation_config_stops(GxGenerationConfig *c, const GxJson *json, const char *path, GxError *err)
{
    const GxJson *eos = gx_json_get(json, "eos_token_id");
    const GxJsonType type = gx_json_type(eos);
    const int64_t n = type == GX_JSON_ARRAY ? gx_json_size(eos) : 1;
    if (type <= GX_JSON_NULL) return GX_OK;
    if (n > GX_STOP_TOKENS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: eos_token_id has %ld tokens; at most %d are possible", path,
                       (long)n, GX_STOP_TOKENS);
    c->n_stop = 0;
    for (int64_t i = 0; i < n; i++) {
        const GxJson *id = type == GX_JSON_ARRAY ? gx_json_at(eos, i) : eos;
        if (gx_json_type(id) != GX_JSON_INT || gx_json_int(id) < 0 || gx_json_int(id) > INT32_MAX)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: eos_token_id is %s; expected the number of a token, or a list of such", path,
                           gx_json_type_name(id));
        c->stop[c->n_stop++] = (int32_t)gx_json_int(id);
    }
    return GX_OK;
}

static GxStatus gx__generation_config_open(GxJson **json, char path[GX_PATH], const char *folder, const char *name,
                                           GxError *err)
{
    *json = NULL;
    GX_TRY(gx_path_join(path, folder, name, err));
    if (!gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read(json, path, GX__GENERATION_CONFIG_CAP, err));
    if (gx_json_type(*json) == GX_JSON_OBJECT) return GX_OK;
    GX_FAIL(err, GX_ERR_FORMAT, "%s holds %s; expected an object", path, gx_json_type_name(*json));
    gx_json_free(*json);
    return gx_error_code(err);
}

GxStatus gx_generation_config_read(GxGenerationConfig *c, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *json;
    memset(c, 0, sizeof *c);
    c->temperature = c->top_p = c->repetition_penalty = 1, c->top_k = 50;
    GX_TRY(gx__generation_config_open(&json, path, folder, "generation_config.json", err));
    c->has_file = json != NULL;
    if (!json) GX_TRY(gx__generation_config_open(&json, path, folder, "config.json", err));
    if (!json) return GX_OK;
    GxStatus status = gx__generation_config_stops(c, json, path, err);
    if (status == GX_OK && c->has_file)
        status = gx_json_get_fields(json, GX_FIELDS(gx__generation_config_fields), 0, c, path, err);
    if (c->has_file) gx__generation_config_find_unbuilt(c, json);
    gx_json_free(json);
    return status;
}
#endif
