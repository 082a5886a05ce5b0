// family_json.h: what the config.json files of all families have in common: a member that may have one value alone,
// whose model it is, which head it has, what its labels are called. (Tasks read labels by io/model_labels.h.)
#ifndef GX_FAMILY_JSON_H
#define GX_FAMILY_JSON_H
#include "../io/json_fields.h"
#include "../model/model.h"
GX_BEGIN

enum { GX_CONFIG_JSON_CAP = 1 << 20 }; // bytes of such a file

// A member that may have one value alone, if it is there: `only` is that value as JSON has it.
GxStatus gx_family_need(const GxJson *object, const char *key, const char *only, const char *where, GxError *err);
// model_type is among `types` (NULL at the end). Of another family of this library's the program is named.
GxStatus gx_family_check_type(const GxJson *json, const char *const *types, const char *path, GxError *err);
// One of its architectures, if it says any, is among `names` (NULL at the end), whatever its letters' case.
GxStatus gx_family_check_architecture(const GxJson *json, const char *const *names, const char *path, GxError *err);

// Into a config.json: architectures and model_type; id2label, label2id and problem_type of a head for labels.
void gx_family_set_type(GxJson *json, const char *type, const char *architecture, GxError *err);
void gx_family_set_labels(GxJson *json, const GxHeadWish *wish, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_FAMILY_JSON_IMPLEMENTED)
#define GX_FAMILY_JSON_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

GxStatus gx_family_need(const GxJson *object, const char *key, const char *only, const char *where, GxError *err)
{
    const GxJson *value = gx_json_get(object, key);
    const int both_numbers =
        strchr("01", only[0]) && (gx_json_type(value) == GX_JSON_INT || gx_json_type(value) == GX_JSON_REAL);
    char *text;
    int64_t bytes;
    if (!value) return GX_OK;
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    if (both_numbers ? gx_json_double(value) != strtod(only, NULL) : strcmp(text, only) != 0)
        GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s is %.100s; only %s is built", where, key, text, only);
    free(text);
    return gx_error_code(err);
}

static int gx__family_is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name)) names++;
    return *names != NULL;
}

GxStatus gx_family_check_type(const GxJson *json, const char *const *types, const char *path, GxError *err)
{
    static const char *const families[][2] = {{"llama", "llama"},
                                              {"mistral", "llama"},
                                              {"qwen2", "llama"},
                                              {"qwen3", "llama"},
                                              {"bert", "bert"}}; // type, program
    const GxJson *value = gx_json_get(json, "model_type");
    const char *type = gx_json_string(value);
    char *text = NULL, built[200] = "";
    int64_t bytes;
    if (type[0] && gx__family_is_among(type, types)) return GX_OK;
    for (int i = 0; types[i]; i++) {
        const size_t n = strlen(built);
        snprintf(built + n, sizeof built - n, "%s\"%s\"", i ? ", " : types[1] ? "one of " : "only ", types[i]);
    }
    if (!value) return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: model_type is missing; %s is built", path, built);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(type, families[i][0]))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s: model_type is \"%s\", and this program trains a model of type %s; use train_%s", path,
                           type, built + strcspn(built, "\""), families[i][1]);
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: model_type is %.100s; %s is built", path, text, built);
    free(text);
    return gx_error_code(err);
}

GxStatus gx_family_check_architecture(const GxJson *json, const char *const *names, const char *path, GxError *err)
{
    const GxJson *list = gx_json_get(json, "architectures");
    char *text, built[300] = "";
    int64_t bytes;
    if (gx_json_type(list) <= GX_JSON_NULL) return GX_OK;
    for (int n = 0; names[n]; n++) {
        const size_t length = strlen(built);
        snprintf(built + length, sizeof built - length, "%s%s", n ? ", " : "", names[n]);
        for (int64_t i = 0; i < gx_json_size(list); i++)
            if (!strcasecmp(gx_json_string(gx_json_at(list, i)), names[n])) return GX_OK;
    }
    GX_TRY(gx_json_dump(list, 0, &text, &bytes, err));
    GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: architectures is %.100s; what is built: %s", path, text, built);
    free(text);
    return gx_error_code(err);
}

void gx_family_set_type(GxJson *json, const char *type, const char *architecture, GxError *err)
{
    GxJson *architectures = gx_json_new_array();
    gx_json_append(architectures, gx_json_new_string(architecture), err);
    gx_json_set(json, "architectures", architectures, err);
    gx_json_set(json, "model_type", gx_json_new_string(type), err);
}

void gx_family_set_labels(GxJson *json, const GxHeadWish *wish, GxError *err)
{
    static const char *const problems[] = {"single_label_classification", "regression", "multi_label_classification"};
    GxJson *names, *numbers;
    char number[24], name[32];
    if (!wish || wish->kind != GX_HEAD_LABELS) return;
    names = gx_json_new_object(), numbers = gx_json_new_object();
    for (int64_t i = 0; i < wish->labels; i++) {
        snprintf(number, sizeof number, "%ld", (long)i);
        snprintf(name, sizeof name, "LABEL_%ld", (long)i);
        const char *called = wish->label_name ? wish->label_name[i] : name;
        gx_json_set(names, number, gx_json_new_string(called), err);
        gx_json_set(numbers, called, gx_json_new_int(i), err);
    }
    gx_json_set(json, "id2label", names, err);
    gx_json_set(json, "label2id", numbers, err);
    gx_json_set(json, "problem_type", gx_json_new_string(problems[wish->loss]), err);
}
#endif
