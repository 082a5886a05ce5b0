// tokenizer_config.h: reads tokenizer_config.json, which transformers writes beside a tokenizer: the names of special
// tokens, often a chat template. All readers of that file use these functions.
//
//     GxJson *config;
//     GX_TRY(gx_tokenizer_config_read(&config, "a_folder", err));
//     const char *end = gx_tokenizer_config_token(config, "eos_token");      // borrowed; NULL: it names none
//     gx_json_free(config);
//
// Integers beyond 64 bits are read as doubles (json.h, GX_JSON_BIG_INTEGERS): transformers writes a model_max_length
// without limit as 1000000000000000019884624838656. U+0000 in a text is represented as GX_JSON_NUL.
#ifndef GX_TOKENIZER_CONFIG_H
#define GX_TOKENIZER_CONFIG_H
#include "../io/json.h"
GX_BEGIN

#define GX_TOKENIZER_CONFIG "tokenizer_config.json"
enum { GX_TOKENIZER_CONFIG_CAP = 64 << 20 }; // bytes

// *json: the folder's file, an object, which the caller frees; NULL with GX_OK: there is none. A file without
// added_tokens_decoder is an older one, for which the tokens are read from special_tokens_map.json, as in transformers.
// A file that is not an object is an error.
GxStatus gx_tokenizer_config_read(GxJson **json, const char *folder, GxError *err);
// The file that the names of special tokens were read from, for messages.
GxStatus gx_tokenizer_config_names_path(char path[GX_PATH], const GxJson *json, const char *folder, GxError *err);
// All accept NULL. The content of a token, which is a string or {"content": …}. NULL: none.
const GxJson *gx_tokenizer_config_content(const GxJson *token);
// The content of a token by its key, "eos_token".
const GxJson *gx_tokenizer_config_value(const GxJson *json, const char *key);
const char *gx_tokenizer_config_token(const GxJson *json, const char *key); // NULL: it is not a string
// The file of a folder's chat template, if it has one: additional_chat_templates/default.jinja, which takes precedence
// in transformers 5, otherwise chat_template.jinja.
GxStatus gx_tokenizer_template_path(char path[GX_PATH], const char *folder, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKENIZER_CONFIG_IMPLEMENTED)
#define GX_TOKENIZER_CONFIG_IMPLEMENTED

static GxStatus gx__tokenizer_config_open(GxJson **json, const char *folder, GxError *err)
{
    char path[GX_PATH];
    *json = NULL;
    GX_TRY(gx_path_join(path, folder, GX_TOKENIZER_CONFIG, err));
    if (!gx_path_is_file(path) && !gx_path_is_broken(path)) return GX_OK; // broken: to be named where it is opened
    return gx_json_read_object(json, path, GX_TOKENIZER_CONFIG_CAP, GX_JSON_BIG_INTEGERS | GX_JSON_NULS, err);
}

// Its members replace the configuration's.
static GxStatus gx__tokenizer_config_add_map(GxJson **json, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *map;
    GX_TRY(gx_path_join(path, folder, "special_tokens_map.json", err));
    if (gx_json_get(*json, "added_tokens_decoder") || !gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read_object(&map, path, GX_TOKENIZER_CONFIG_CAP, 0, err));
    if (!*json) *json = gx_json_new_object();
    for (GxJsonMember m = GX_ZERO; gx_error_code(err) == GX_OK && gx_json_next(map, &m);)
        gx_json_set(*json, m.key, gx_json_copy(m.value), err);
    gx_json_free(map);
    return gx_error_code(err);
}

GxStatus gx_tokenizer_config_names_path(char path[GX_PATH], const GxJson *json, const char *folder, GxError *err)
{
    GX_TRY(gx_path_join(path, folder, "special_tokens_map.json", err));
    if (!gx_json_get(json, "added_tokens_decoder") && gx_path_is_file(path)) return GX_OK;
    return gx_path_join(path, folder, GX_TOKENIZER_CONFIG, err);
}

GxStatus gx_tokenizer_config_read(GxJson **json, const char *folder, GxError *err)
{
    GX_TRY(gx__tokenizer_config_open(json, folder, err));
    if (gx__tokenizer_config_add_map(json, folder, err) == GX_OK) return GX_OK;
    gx_json_free(*json);
    *json = NULL;
    return gx_error_code(err);
}

const GxJson *gx_tokenizer_config_content(const GxJson *token)
{
    return gx_json_type(token) == GX_JSON_OBJECT ? gx_json_get(token, "content") : token;
}

const GxJson *gx_tokenizer_config_value(const GxJson *json, const char *key)
{
    return gx_tokenizer_config_content(gx_json_get(json, key));
}

const char *gx_tokenizer_config_token(const GxJson *json, const char *key)
{
    const GxJson *value = gx_tokenizer_config_value(json, key);
    return gx_json_type(value) == GX_JSON_STRING ? gx_json_string(value) : NULL;
}

GxStatus gx_tokenizer_template_path(char path[GX_PATH], const char *folder, GxError *err)
{
    GX_TRY(gx_path_join(path, folder, "additional_chat_templates/default.jinja", err));
    if (gx_path_is_file(path) || gx_path_is_broken(path)) return GX_OK;
    return gx_path_join(path, folder, "chat_template.jinja", err);
}
#endif
