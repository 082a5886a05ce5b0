// chat_find.h: finds the format of conversations (chat.h): by its name, in a template file, or in folders:
// additional_chat_templates/default.jinja, else chat_template.jinja, else chat_template in tokenizer_config.json (one
// text, or several with names, of which "default" is used), else the name in training_args.json, if a run of this
// library was given one.
//
//     const char *const folders[] = {"my-tokenizer", "SmolLM2-135M-Instruct"};
//     GX_TRY(gx_chat_find(&said, "auto", folders, 2, err));               // NULL: none of them has one
#ifndef GX_CHAT_FIND_H
#define GX_CHAT_FIND_H
#include "chat.h"
GX_BEGIN

enum { GX_CHAT_TEMPLATE_CAP = GX_TEMPLATE_SOURCE }; // bytes of a template
int gx_chat_is_auto(const char *choice);            // "auto", or ""

// *said: for gx_chat_open; NULL with GX_OK: the choice is auto or "", and no folder has a format. Folders are searched
// in their order; NULL and "" are skipped. The names of special tokens are those of the first folder that has any.
GxStatus gx_chat_find(GxJson **said, const char *choice, const char *const *folders, int n, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_FIND_IMPLEMENTED)
#define GX_CHAT_FIND_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "tokenizer_config.h"

// ---- special tokens ------------------------------------------------------------------------------------------------

// The defaults of transformers' tokenizer classes for tokens that tokenizer_config.json does not mention.
static const struct {
    const char *class_name, *token, *text;
} gx__chat_defaults[] = {{"Llama", "bos_token", "<s>"},           {"Llama", "eos_token", "</s>"},
                         {"Llama", "unk_token", "<unk>"},         {"GPT2", "bos_token", "<|endoftext|>"},
                         {"GPT2", "eos_token", "<|endoftext|>"},  {"GPT2", "unk_token", "<|endoftext|>"},
                         {"Qwen2", "eos_token", "<|endoftext|>"}, {"Qwen2", "pad_token", "<|endoftext|>"},
                         {"Qwen2", "unk_token", "<|endoftext|>"}};

static const char *gx__chat_default(const GxJson *config, const char *token)
{
    const char *name = gx_json_string(gx_json_get(config, "tokenizer_class"));
    for (size_t i = 0; i < sizeof gx__chat_defaults / sizeof *gx__chat_defaults; i++) {
        const size_t n = strlen(gx__chat_defaults[i].class_name);
        if (!strncmp(name, gx__chat_defaults[i].class_name, n) &&
            (!strcmp(name + n, "Tokenizer") || !strcmp(name + n, "TokenizerFast")) &&
            !strcmp(gx__chat_defaults[i].token, token))
            return gx__chat_defaults[i].text;
    }
    return NULL;
}

// Special tokens beside the usual ones, such as "image_token".
static GxStatus gx__chat_read_others(GxJson *variables, const GxJson *config, GxError *err)
{
    const GxJson *const from[] = {config, gx_json_get(config, "extra_special_tokens")};
    for (int i = 0; i < 2; i++)
        for (GxJsonMember m = GX_ZERO; gx_json_type(from[i]) == GX_JSON_OBJECT && gx_json_next(from[i], &m);) {
            const size_t n = strlen(m.key);
            const char *text = gx_tokenizer_config_token(from[i], m.key);
            if (text && (i || (n > 6 && !strcmp(m.key + n - 6, "_token"))))
                GX_TRY(gx_json_set(variables, m.key, gx_json_new_string(text), err));
        }
    return GX_OK;
}

// The names of special tokens, as transformers gives them to a template. *some 0: the folder does not name any.
static GxStatus gx__chat_read_tokens(GxJson *variables, const char *folder, int *some, GxError *err)
{
    static const char *const tokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};
    GxJson *config = NULL;
    GxStatus status = gx_tokenizer_config_read(&config, folder, err);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens && status == GX_OK; i++) {
        const char *text = gx_tokenizer_config_token(config, tokens[i]);
        if (!text && !gx_json_get(config, tokens[i])) text = gx__chat_default(config, tokens[i]); // null: none
        if (text) status = gx_json_set(variables, tokens[i], gx_json_new_string(text), err);
    }
    if (status == GX_OK) status = gx__chat_read_others(variables, config, err);
    *some = config != NULL;
    gx_json_free(config);
    return status;
}

// ---- a folder's template -------------------------------------------------------------------------------------------

static GxStatus gx__chat_said(GxJson **said, const char *key, const char *text, const char *where, GxError *err)
{
    *said = gx_json_new_object();
    GxJson *value = gx_json_new_string(text);
    if (!value) return GX_FAIL(err, GX_ERR_FORMAT, "%s: the chat template is not UTF-8 text", where);
    gx_json_set(*said, key, value, err);
    gx_json_set(*said, "where", gx_json_new_string(where), err);
    return gx_error_code(err);
}

static GxStatus gx__chat_read_file(GxJson **said, const char *path, GxError *err)
{
    char *text;
    int64_t bytes;
    GX_TRY(gx_file_read(path, GX_CHAT_TEMPLATE_CAP, &text, &bytes, err));
    if ((int64_t)strlen(text) < bytes) GX_FAIL(err, GX_ERR_FORMAT, "%s is not text: it has a byte of value 0", path);
    else gx__chat_said(said, "template", text, path, err);
    free(text);
    return gx_error_code(err);
}

// "chat_template": a template, or several with names, of which "default" is used.
static GxStatus gx__chat_read_member(GxJson **said, const GxJson *value, const char *path, GxError *err)
{
    const GxJson *text = value;
    const int is_list = gx_json_type(value) == GX_JSON_ARRAY, is_object = gx_json_type(value) == GX_JSON_OBJECT;
    if (is_object && gx_json_get(value, "default")) text = gx_json_get(value, "default");
    for (int64_t i = 0; is_list && i < gx_json_size(value); i++)
        if (!strcmp(gx_json_string(gx_json_get(gx_json_at(value, i), "name")), "default"))
            text = gx_json_get(gx_json_at(value, i), "template");
    if (text == value && (is_list || is_object))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: chat_template has %ld template%s, but none with the name \"default\"; --chat_template FILE "
                       "reads one from a file",
                       path, (long)gx_json_size(value), gx_text_s(gx_json_size(value)));
    if (gx_json_type(text) != GX_JSON_STRING)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: chat_template is %s; expected a text, or a list of them with names",
                       path, gx_json_type_name(text));
    return gx__chat_said(said, "template", gx_json_string(text), path, err);
}

// The format that the run that wrote the folder was given, if it was a name.
static GxStatus gx__chat_read_args(GxJson **said, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *args;
    GX_TRY(gx_path_join(path, folder, "training_args.json", err));
    if (!gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read(&args, path, GX_CHAT_TEMPLATE_CAP, err));
    const char *name = gx_json_string(gx_json_get(args, "chat_template"));
    if (gx_chat_format(name)) gx__chat_said(said, "name", name, path, err);
    gx_json_free(args);
    return gx_error_code(err);
}

static GxStatus gx__chat_look(GxJson **said, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *config;
    GX_TRY(gx_tokenizer_template_path(path, folder, err));
    if (gx_path_is_file(path) || gx_path_is_broken(path)) return gx__chat_read_file(said, path, err);
    GX_TRY(gx_path_join(path, folder, GX_TOKENIZER_CONFIG, err));
    GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    const GxJson *value = gx_json_get(config, "chat_template");
    if (gx_json_type(value) > GX_JSON_NULL) gx__chat_read_member(said, value, path, err);
    gx_json_free(config);
    GX_TRY(gx_error_code(err));
    return *said ? GX_OK : gx__chat_read_args(said, folder, err);
}

// Refuses tokenizer_config.json as a template file: it contains a template but is not one, although it could be
// rendered.
static GxStatus gx__chat_check_file(const GxJson *said, const char *path, GxError *err)
{
    const char *text = gx_json_string(gx_json_get(said, "template"));
    const size_t n = strlen(path);
    text += strspn(text, " \t\r\n");
    const int is_json = (n > 5 && !strcmp(path + n - 5, ".json")) || (text[0] == '{' && strchr("\" \t\r\n", text[1]));
    if (!is_json) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--chat_template %s is a JSON file; expected a Jinja template such as chat_template.jinja: write "
                   "what the file has as \"chat_template\" into a file of its own",
                   path);
}

int gx_chat_is_auto(const char *choice) { return !choice[0] || !strcmp(choice, "auto"); }

static GxStatus gx__chat_choose(GxJson **said, const char *choice, const char *const *folders, int n, GxError *err)
{
    const int is_auto = gx_chat_is_auto(choice);
    for (int i = 0; i < n && is_auto && !*said; i++)
        if (folders[i] && folders[i][0]) GX_TRY(gx__chat_look(said, folders[i], err));
    if (is_auto) return GX_OK;
    if (gx_chat_format(choice)) return gx__chat_said(said, "name", choice, choice, err);
    if (gx_path_is_file(choice)) {
        GX_TRY(gx__chat_read_file(said, choice, err));
        return gx__chat_check_file(*said, choice, err);
    }
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "chat_template is \"%.200s\", which is neither the name of a format nor a file; expected auto, one "
                   "of %s, or the file of a template",
                   choice, GX_CHAT_NAMES);
}

GxStatus gx_chat_find(GxJson **said, const char *choice, const char *const *folders, int n, GxError *err)
{
    GxJson *variables = gx_json_new_object();
    int some = 0;
    *said = NULL;
    GxStatus status = gx__chat_choose(said, choice, folders, n, err);
    for (int i = 0; i < n && status == GX_OK && *said && !some; i++)
        if (folders[i] && folders[i][0]) status = gx__chat_read_tokens(variables, folders[i], &some, err);
    if (status == GX_OK && *said) status = gx_json_set(*said, "variables", variables, err);
    else gx_json_free(variables);
    if (status != GX_OK) gx_json_free(*said), *said = NULL;
    return status;
}
#endif
