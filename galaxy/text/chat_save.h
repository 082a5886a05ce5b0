// chat_save.h: writes what other programs need to know about conversations and about where texts end to the folder of a
// trained model, so that it answers, and stops, there as it was trained to:
//
//     chat_template.jinja      the format, if conversations were trained
//     config.json              bos_token_id and eos_token_id of the tokenizer, where they are null
//     generation_config.json   eos_token_id: the tokenizer's, and the end of a turn if it is another token
//
// Values that a folder already has are kept: tokens are only added to those that end a text. pad_token_id in
// config.json belongs to the model, since it changes the embedding's gradient, and is not changed; the tokenizer's is
// in generation_config.json.
#ifndef GX_CHAT_SAVE_H
#define GX_CHAT_SAVE_H
#include "chat_find.h"
GX_BEGIN

// The folder must already have its other files, including the tokenizer's. f NULL: no conversations were trained.
GxStatus gx_chat_save(const GxChatFormat *f, const GxTokenizer *t, const char *folder, GxError *err);
// Saves only the template, unless the folder already has it; a different one in tokenizer_config.json is removed.
GxStatus gx_chat_save_jinja(const char *jinja, const char *folder, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_SAVE_IMPLEMENTED)
#define GX_CHAT_SAVE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../io/model_folder.h"
#include "tokenizer_config.h"

enum { GX__CHAT_SAVE_CAP = 1 << 20, GX__CHAT_SAVE_ENDS = 64 };

GxStatus gx_chat_save_jinja(const char *jinja, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *config, *said;
    GxError ignored = GX_ZERO; // a file that cannot be read is not a template
    gx_chat_find(&said, "auto", &folder, 1, &ignored);
    const int is_said = !strcmp(gx_json_string(gx_json_get(said, "template")), jinja);
    gx_json_free(said);
    if (is_said) return GX_OK;
    GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    GxStatus status = gx_path_join(path, folder, GX_TOKENIZER_CONFIG, err);
    if (gx_json_get(config, "chat_template") && status == GX_OK) {
        gx_json_remove(config, "chat_template");
        status = gx_json_write(config, path, err);
    }
    gx_json_free(config);
    if (status == GX_OK) status = gx_path_join(path, folder, "chat_template.jinja", err);
    return status == GX_OK ? gx_file_write(path, jinja, (int64_t)strlen(jinja), err) : status;
}

// ---- ids -----------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t id[GX__CHAT_SAVE_ENDS];
    int n;
} gx__ChatEnds;

static void gx__chat_ends_add(gx__ChatEnds *e, int64_t id)
{
    for (int i = 0; i < e->n; i++)
        if (e->id[i] == id) return;
    if (id >= 0 && e->n < GX__CHAT_SAVE_ENDS) e->id[e->n++] = id;
}

// eos_token_id: one number or several.
static void gx__chat_ends_read(gx__ChatEnds *e, const GxJson *value)
{
    if (gx_json_type(value) == GX_JSON_INT) gx__chat_ends_add(e, gx_json_int(value));
    for (int64_t i = 0; gx_json_type(value) == GX_JSON_ARRAY && i < gx_json_size(value); i++)
        if (gx_json_type(gx_json_at(value, i)) == GX_JSON_INT) gx__chat_ends_add(e, gx_json_int(gx_json_at(value, i)));
}

static GxStatus gx__chat_ends_set(const gx__ChatEnds *e, GxJson *json, GxError *err)
{
    if (e->n == 1) return gx_json_set(json, "eos_token_id", gx_json_new_int(e->id[0]), err);
    GxJson *list = gx_json_new_array();
    for (int i = 0; i < e->n; i++) gx_json_append(list, gx_json_new_int(e->id[i]), err);
    return gx_json_set(json, "eos_token_id", list, err);
}

// The id of a token that the folder's tokenizer_config.json names.
static GxStatus gx__chat_token_id(const GxTokenizer *t, const char *folder, const char *key, int64_t *id, GxError *err)
{
    GxJson *config;
    GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    const char *text = gx_tokenizer_config_token(config, key);
    *id = text ? gx_tokenizer_find(t, text) : -1;
    gx_json_free(config);
    return GX_OK;
}

// Fills in what is null in config.json, as it is for a model that was made here: *changed. *ends: its tokens
// afterwards.
static GxStatus gx__chat_save_config(const GxTokenizer *t, const char *folder, int64_t bos, gx__ChatEnds *ends,
                                     int *changed, GxError *err)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id"};
    const int64_t ids[] = {bos, t->end};
    char path[GX_PATH];
    GxJson *json;
    *changed = 0;
    GX_TRY(gx_model_config_path(path, folder, err));
    if (!gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read(&json, path, GX__CHAT_SAVE_CAP, err));
    for (int i = 0; i < 2; i++) {
        if (ids[i] < 0 || gx_json_type(gx_json_get(json, keys[i])) != GX_JSON_NULL) continue;
        gx_json_set(json, keys[i], gx_json_new_int(ids[i]), err);
        *changed = 1;
    }
    gx__chat_ends_read(ends, gx_json_get(json, keys[1]));
    GxStatus status = gx_error_code(err);
    if (status == GX_OK && *changed) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

// generation_config.json takes precedence over config.json, as in transformers. f NULL: no conversations. new_model:
// the folder had no settings before.
static GxStatus gx__chat_save_generation(const GxChatFormat *f, const GxTokenizer *t, const char *folder, int new_model,
                                         int64_t bos, const gx__ChatEnds *of_config, GxError *err)
{
    const int64_t pad = t->role[GX_TOKEN_PAD];
    char path[GX_PATH];
    GxJson *json = NULL;
    gx__ChatEnds ends;
    memset(&ends, 0, sizeof ends);
    GX_TRY(gx_path_join(path, folder, "generation_config.json", err));
    const int is_there = gx_path_is_file(path);
    if (is_there) GX_TRY(gx_json_read(&json, path, GX__CHAT_SAVE_CAP, err));
    gx__chat_ends_read(&ends, gx_json_get(json, "eos_token_id"));
    const int has_own = ends.n > 0;
    if (!has_own) ends = *of_config;
    if (!ends.n) gx__chat_ends_add(&ends, t->end);
    const int before = ends.n;
    if (f && gx_chat_end(f)[0]) gx__chat_ends_add(&ends, gx_tokenizer_find(t, gx_chat_end(f)));
    GxStatus status = GX_OK;
    if (ends.n > before || (ends.n > 0 && !has_own && (f || new_model))) {
        if (!is_there) json = gx_json_new_object();
        if (!is_there && bos >= 0) gx_json_set(json, "bos_token_id", gx_json_new_int(bos), err);
        gx__chat_ends_set(&ends, json, err);
        if (!is_there && pad >= 0) gx_json_set(json, "pad_token_id", gx_json_new_int(pad), err);
        status = gx_error_code(err);
        if (status == GX_OK) status = gx_json_write(json, path, err);
    }
    gx_json_free(json);
    return status;
}

GxStatus gx_chat_save(const GxChatFormat *f, const GxTokenizer *t, const char *folder, GxError *err)
{
    gx__ChatEnds ends;
    char *jinja = NULL;
    int64_t bos;
    int new_model = 0;
    memset(&ends, 0, sizeof ends);
    GX_TRY(gx__chat_token_id(t, folder, "bos_token", &bos, err));
    GX_TRY(gx__chat_save_config(t, folder, bos, &ends, &new_model, err));
    GX_TRY(gx__chat_save_generation(f, t, folder, new_model, bos, &ends, err));
    if (!f) return GX_OK;
    GX_TRY(gx_chat_jinja(f, &jinja, err));
    const GxStatus status = gx_chat_save_jinja(jinja, folder, err);
    free(jinja);
    return status;
}
#endif
