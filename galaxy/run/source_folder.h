// source_folder.h: what a Hugging Face folder says about its model that this library does not need, kept so that a
// checkpoint of the trained model says it, too: members of config.json that this library does not read,
// generation_config.json, and the tokenizer in other formats.
//
//     GX_TRY(gx_source_folder_open(&s, "SmolLM2-135M", err));                    // reads all of it
//     gx_source_folder_write(&s, config, temporary, err);
//     gx_source_folder_close(&s);
//
// On rank 0. Files are written as they were when the folder was opened, even if they have changed since.
#ifndef GX_SOURCE_FOLDER_H
#define GX_SOURCE_FOLDER_H
#include "../base/log.h"
#include "../io/json.h"
#include "../io/model_folder.h"
GX_BEGIN

enum { GX_SOURCE_FILES = 5 };
typedef struct {
    GxJson *config; // config.json; NULL: there is no folder
    struct {
        char *text; // NULL: there is no such file
        int64_t bytes;
    } file[GX_SOURCE_FILES];
} GxSourceFolder;

GxStatus gx_source_folder_open(GxSourceFolder *s, const char *folder, GxError *err);
void gx_source_folder_close(GxSourceFolder *s); // accepts a struct of zeros
// Writes config.json and the other files into `folder`. config.json is the source's, in which only the members about
// the vocabulary, the head, the labels and the dtype are those of `config`; without a source it is `config`.
GxStatus gx_source_folder_write(const GxSourceFolder *s, const GxJson *config, const char *folder, GxError *err);

// Warns of what is beside the weights and is not used: a second set of weights, an adapter, templates for other
// purposes than conversations (additional_chat_templates/).
void gx_source_folder_warn(const char *folder, const GxLogger *log);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SOURCE_FOLDER_IMPLEMENTED)
#define GX_SOURCE_FOLDER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

enum { GX__SOURCE_CONFIG_CAP = 1 << 20, GX__SOURCE_FILE_CAP = 64 << 20 };
// In addition to what the task writes: tokenizer.json, tokenizer_config.json, special_tokens_map.json,
// chat_template.jinja.
static const char *const gx__source_files[GX_SOURCE_FILES] = {"generation_config.json", "added_tokens.json",
                                                              "vocab.json", "merges.txt", "tokenizer.model"};
static const char *const gx__source_own[] = {"architectures", "id2label",   "label2id",
                                             "problem_type",  "num_labels", "vocab_size"};

static GxStatus gx__source_folder_read(GxSourceFolder *s, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_model_config_path(path, folder, err));
    GX_TRY(gx_json_read(&s->config, path, GX__SOURCE_CONFIG_CAP, err));
    for (int i = 0; i < GX_SOURCE_FILES; i++) {
        GX_TRY(gx_path_join(path, folder, gx__source_files[i], err));
        if (!gx_path_is_file(path)) continue;
        GX_TRY(gx_file_read(path, GX__SOURCE_FILE_CAP, &s->file[i].text, &s->file[i].bytes, err));
    }
    return GX_OK;
}

GxStatus gx_source_folder_open(GxSourceFolder *s, const char *folder, GxError *err)
{
    memset(s, 0, sizeof *s);
    const GxStatus status = gx__source_folder_read(s, folder, err);
    if (status != GX_OK) gx_source_folder_close(s);
    return status;
}

void gx_source_folder_close(GxSourceFolder *s)
{
    gx_json_free(s->config);
    for (int i = 0; i < GX_SOURCE_FILES; i++) free(s->file[i].text);
    memset(s, 0, sizeof *s);
}

// What the source says of the head, and its weights may not bear out: transformers 5 writes true for every T5. What a
// T5's head reads is scaled as the source says; where nothing but the old value said it, a member of its own does.
static void gx__source_folder_correct_tie(GxJson *config, const GxJson *ours, GxError *err)
{
    static const char name[] = "tie_word_embeddings", scale[] = "scale_decoder_outputs";
    const GxJson *said = gx_json_get(config, name), *is = gx_json_get(ours, name), *scaled = gx_json_get(ours, scale);
    if (!said || !is || gx_json_bool(said) == gx_json_bool(is)) return;
    gx_json_set(config, name, gx_json_copy(is), err);
    if (scaled && gx_json_type(gx_json_get(config, scale)) <= GX_JSON_NULL)
        gx_json_set(config, scale, gx_json_copy(scaled), err);
}

// A copy of the source's configuration, with the members of gx__source_own and the dtype from `ours`.
static GxJson *gx__source_folder_config(const GxSourceFolder *s, const GxJson *ours, GxError *err)
{
    static const char *const dtypes[] = {"dtype", "torch_dtype"}; // of transformers 5, of 4
    GxJson *config = gx_json_copy(s->config ? s->config : ours);
    if (!config) GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    if (!config || !s->config) return config;
    for (size_t i = 0; i < sizeof gx__source_own / sizeof *gx__source_own; i++) {
        const GxJson *value = gx_json_get(ours, gx__source_own[i]);
        if (value) gx_json_set(config, gx__source_own[i], gx_json_copy(value), err);
        else gx_json_remove(config, gx__source_own[i]);
    }
    gx__source_folder_correct_tie(config, ours, err);
    const GxJson *dtype = gx_json_get(ours, dtypes[1]);
    const int has_new = gx_json_get(config, dtypes[0]) != NULL, has_old = gx_json_get(config, dtypes[1]) != NULL;
    if (has_new) gx_json_set(config, dtypes[0], gx_json_copy(dtype), err);
    if (has_old || !has_new) gx_json_set(config, dtypes[1], gx_json_copy(dtype), err);
    return config;
}

GxStatus gx_source_folder_write(const GxSourceFolder *s, const GxJson *config, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *merged = gx__source_folder_config(s, config, err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_path_join(path, folder, "config.json", err);
    if (status == GX_OK) status = gx_json_write(merged, path, err);
    gx_json_free(merged);
    for (int i = 0; i < GX_SOURCE_FILES && status == GX_OK; i++) {
        if (!s->file[i].text) continue;
        status = gx_path_join(path, folder, gx__source_files[i], err);
        if (status == GX_OK) status = gx_file_write(path, s->file[i].text, s->file[i].bytes, err);
    }
    return status;
}

static void gx__source_folder_warn_of_templates(const char *folder, const GxLogger *log)
{
    char path[GX_PATH];
    GxFolder list;
    GxError ignored = GX_ZERO;
    int others = 0;
    if (gx_path_join(path, folder, "additional_chat_templates", &ignored) != GX_OK ||
        gx_folder_list(&list, path, &ignored) != GX_OK)
        return;
    for (int i = 0; i < list.n; i++) others += strcmp(list.entry[i].name, "default.jinja") != 0;
    gx_folder_close(&list);
    if (others)
        gx_log(log, GX_LOG_WARNING,
               "%s has %d file%s besides default.jinja, not read and not saved; copy the folder if it is needed", path,
               others, gx_text_s(others));
}

void gx_source_folder_warn(const char *folder, const GxLogger *log)
{
    const int is_single = gx_folder_has(folder, "model.safetensors"),
              is_sharded = gx_folder_has(folder, "model.safetensors.index.json");
    if (is_single && is_sharded)
        gx_log(log, GX_LOG_WARNING,
               "%s has both model.safetensors and model.safetensors.index.json: the weights of the first are used, and "
               "the files that the second names are ignored; remove what is not meant",
               folder);
    if ((is_single || is_sharded) && gx_folder_has(folder, "adapter_config.json"))
        gx_log(log, GX_LOG_WARNING,
               "%s has adapter_config.json beside the weights of a whole model: the adapter is ignored here, though "
               "transformers would load it; move it to a folder of its own for --adapter, or remove it",
               folder);
    gx__source_folder_warn_of_templates(folder, log);
}
#endif
