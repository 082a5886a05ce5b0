// family_json.h: what the config.json files of all families have in common: members that must have a certain value, the
// type of the model, its head, the names of its labels. (Tasks read labels with data/model_labels.h.)
#ifndef GX_FAMILY_JSON_H
#define GX_FAMILY_JSON_H
#include "../io/generation_config.h"
#include "../io/json_fields.h"
#include "../io/json_keys.h"
#include "../model/model.h"
GX_BEGIN

enum { GX_CONFIG_JSON_CAP = 1 << 20 }; // most bytes of a config.json

// Refuses a member that is present and has another value than `only`, which is given as JSON.
GxStatus gx_family_need(const GxJson *object, const char *key, const char *only, const char *where, GxError *err);
// model_type must be among `types` (NULL at the end). If it is a type of another of this library's families, the error
// names the program that trains that one.
GxStatus gx_family_check_type(const GxJson *json, const char *const *types, const char *path, GxError *err);
// If the file has `architectures`, one of them must be among `names` (NULL at the end), ignoring case.
GxStatus gx_family_check_architecture(const GxJson *json, const char *const *names, const char *path, GxError *err);

extern const GxJsonKeys gx_family_keys; // common to the config.json files of all families
// Reports keys of a config.json that are not read. own: the family's keys, besides the common ones: labels, types,
// notes, and what older files say about generation.
GxStatus gx_family_check_keys(const GxJson *json, const GxJsonKey *own, int n, const char *path, const GxLogger *log,
                              GxError *err);

// Reads a config.json into a configuration that has the family's defaults. take: takes what the file says; resolve: the
// family's, whose errors get the file's name.
typedef GxStatus GxFamilyTake(void *config, const GxJson *json, const char *path, const GxLogger *log, GxError *err);
GxStatus gx_family_read(void *config, const char *path, GxFamilyTake *take,
                        GxStatus (*resolve)(void *config, GxError *err), const GxLogger *log, GxError *err);

// Write to a config.json: architectures and model_type; for a head for labels id2label, label2id and problem_type.
void gx_family_set_type(GxJson *json, const char *type, const char *architecture, GxError *err);
void gx_family_set_labels(GxJson *json, const GxHeadRequest *request, GxError *err);
// Writes a config.json, with the type of the saved weights, unless there was an error before, and frees it.
GxStatus gx_family_write(GxJson *json, const char *path, GxError *err);

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
    char *text;
    int64_t bytes;
    if (!value || gx_json_is(value, only, strlen(only))) return GX_OK;
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s is %.100s; only %s is supported", where, key, text, only);
    free(text);
    return gx_error_code(err);
}

// The members that transformers' configurations of all kinds have.
#define GX__FAMILY_NOTE  "a note of the library that wrote it"
#define GX__FAMILY_CODE  "how transformers computes, and not what"
#define GX__FAMILY_PARTS "it adds to what transformers' models return"
static const GxJsonKey gx__family_keys[] = {
    {"model_type", GX_KEY_READ, NULL},
    {"architectures", GX_KEY_READ, NULL},
    {"quantization_config", GX_KEY_READ, NULL},
    {"id2label", GX_KEY_READ, NULL}, // this and the next three: with data/model_labels.h
    {"problem_type", GX_KEY_READ, NULL},
    {"num_labels", GX_KEY_READ, NULL},
    {"label2id", GX_KEY_READ, NULL},
    {"finetuning_task", GX_KEY_HARMLESS, GX__FAMILY_NOTE},
    {"task_specific_params", GX_KEY_HARMLESS, "of transformers' pipelines"},
    {"dtype", GX_KEY_HARMLESS, "weights are read as they are stored, --precision says in what is computed"},
    {"torch_dtype", GX_KEY_HARMLESS, "as dtype"},
    {"transformers_version", GX_KEY_HARMLESS, GX__FAMILY_NOTE},
    {"_name_or_path", GX_KEY_HARMLESS, GX__FAMILY_NOTE},
    {"name_or_path", GX_KEY_HARMLESS, GX__FAMILY_NOTE},
    {"_commit_hash", GX_KEY_HARMLESS, GX__FAMILY_NOTE},
    {"unsloth_version", GX_KEY_HARMLESS, GX__FAMILY_NOTE},
    {"unsloth_fixed", GX_KEY_HARMLESS, GX__FAMILY_NOTE},
    {"transformers.js_config", GX_KEY_HARMLESS, "of another library"},
    {"tokenizer_class", GX_KEY_HARMLESS, "tokenizer.json says what the tokenizer is"},
    {"sep_token_id", GX_KEY_HARMLESS, "of models with an encoder"},
    {"use_cache", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"chunk_size_feed_forward", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"gradient_checkpointing", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"pretraining_tp", GX_KEY_HARMLESS, "the same products in slices"},
    {"torchscript", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"use_bfloat16", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"xla_device", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"attn_implementation", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"_attn_implementation", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"_attn_implementation_autoset", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"_attn_implementation_internal", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"experts_implementation", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"_experts_implementation_internal", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"_flash_attn_2_enabled", GX_KEY_HARMLESS, GX__FAMILY_CODE},
    {"return_dict", GX_KEY_HARMLESS, GX__FAMILY_PARTS},
    {"use_return_dict", GX_KEY_HARMLESS, GX__FAMILY_PARTS},
    {"output_attentions", GX_KEY_HARMLESS, GX__FAMILY_PARTS},
    {"output_hidden_states", GX_KEY_HARMLESS, GX__FAMILY_PARTS},
    {"output_past", GX_KEY_HARMLESS, GX__FAMILY_PARTS},
    {"tf_legacy_loss", GX_KEY_HARMLESS, "of TensorFlow"},
    {"tie_encoder_decoder", GX_KEY_HARMLESS, "of models with an encoder and a decoder"},
    {"cross_attention_hidden_size", GX_KEY_HARMLESS, "of cross-attention, which add_cross_attention asks for"},
    {"is_encoder_decoder", GX_KEY_REFUSED, "it would be a different model"},
    {"add_cross_attention", GX_KEY_REFUSED, "layers would attend to an encoder's output"},
    {"pruned_heads", GX_KEY_REFUSED, "heads would be missing"},
    {"per_layer_config", GX_KEY_REFUSED, "layers would differ from one another"},
    {"compression_config", GX_KEY_REFUSED, "weights would be stored in a different form"},
    {"auto_map", GX_KEY_NAMED, "the folder has its own code, which is not run and may compute a different model"},
    {"prefix", GX_KEY_NAMED, "it is not put in front of texts"},
};
const GxJsonKeys gx_family_keys = {GX_KEYS(gx__family_keys)};
enum { GX__FAMILY_KEYS = sizeof gx__family_keys / sizeof *gx__family_keys, GX__FAMILY_MOST = 256 };

GxStatus gx_family_check_keys(const GxJson *json, const GxJsonKey *own, int n, const char *path, const GxLogger *log,
                              GxError *err)
{
    GxJsonKey all[GX__FAMILY_MOST];
    if (n + GX__FAMILY_KEYS + gx_generation_keys.n > GX__FAMILY_MOST)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a family with %d keys; up to %d are possible", n,
                       GX__FAMILY_MOST - GX__FAMILY_KEYS - gx_generation_keys.n);
    memcpy(all, own, (size_t)n * sizeof *own); // of rows with the same name the first one counts
    memcpy(all + n, gx__family_keys, sizeof gx__family_keys);
    n += GX__FAMILY_KEYS;
    for (int i = 0; i < gx_generation_keys.n; i++, n++)
        all[n] = gx_generation_keys.key[i], all[n].kind = GX_KEY_HARMLESS; // io/generation_config.h names them
    GX_TRY(gx_json_check_keys(json, all, n, path, log, err));
    return gx_generation_check_ids(json, gx_json_int(gx_json_get(json, "vocab_size")), path, log, err);
}

static int gx__family_is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name)) names++;
    return *names != NULL;
}

GxStatus gx_family_check_type(const GxJson *json, const char *const *types, const char *path, GxError *err)
{
    static const char *const families[][2] = {{"llama", "llama"},       {"mistral", "llama"},   {"qwen2", "llama"},
                                              {"qwen3", "llama"},       {"smollm3", "llama"},   {"phi3", "llama"},
                                              {"gemma3_text", "llama"}, {"bert", "bert"},       {"roberta", "bert"},
                                              {"xlm-roberta", "bert"},  {"distilbert", "bert"}, {"bart", "bart"},
                                              {"mbart", "bart"},        {"t5", "t5"},           {"mt5", "t5"},
                                              {"gpt2", "gpt2"}}; // type, program
    const GxJson *value = gx_json_get(json, "model_type");
    const char *type = gx_json_string(value);
    char *text = NULL, built[200] = "";
    int64_t bytes;
    if (type[0] && gx__family_is_among(type, types)) return GX_OK;
    for (int i = 0; types[i]; i++) {
        const size_t n = strlen(built);
        snprintf(built + n, sizeof built - n, "%s\"%s\"", i ? ", " : types[1] ? "one of " : "", types[i]);
    }
    if (!value) return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: model_type is missing; expected %s", path, built);
    if (!strcmp(type, "gemma3"))
        return GX_FAIL(
            err, GX_ERR_UNSUPPORTED,
            "%s: model_type is \"gemma3\", a model of texts and images; only its part for texts is supported, "
            "gemma3_text: save that by itself, as docs/training.md says",
            path);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(type, families[i][0]))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s: model_type is \"%s\"; here a model of type %s is expected (train_%s trains this one)",
                           path, type, built + strcspn(built, "\""), families[i][1]);
    GX_TRY(gx_json_dump(value, 0, &text, &bytes, err));
    GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: model_type is %.100s; expected %s", path, text, built);
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
    GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: architectures is %.100s; expected %s", path, text, built);
    free(text);
    return gx_error_code(err);
}

GxStatus gx_family_read(void *config, const char *path, GxFamilyTake *take,
                        GxStatus (*resolve)(void *config, GxError *err), const GxLogger *log, GxError *err)
{
    GxError unsound = GX_ZERO;
    GxJson *json;
    GX_TRY(gx_json_read_object(&json, path, GX_CONFIG_JSON_CAP, 0, err));
    const GxStatus status = take(config, json, path, log, err);
    gx_json_free(json);
    if (status != GX_OK || resolve(config, &unsound) == GX_OK) return status;
    return GX_FAIL(err, gx_error_code(&unsound), "%s: %s", path, unsound.message);
}

void gx_family_set_type(GxJson *json, const char *type, const char *architecture, GxError *err)
{
    GxJson *architectures = gx_json_new_array();
    gx_json_append(architectures, gx_json_new_string(architecture), err);
    gx_json_set(json, "architectures", architectures, err);
    gx_json_set(json, "model_type", gx_json_new_string(type), err);
}

void gx_family_set_labels(GxJson *json, const GxHeadRequest *request, GxError *err)
{
    static const char *const problems[] = {"single_label_classification", "regression", "multi_label_classification"};
    GxJson *names, *numbers;
    char number[24], name[32];
    if (!request || !gx_head_has_labels(request->kind)) return;
    names = gx_json_new_object(), numbers = gx_json_new_object();
    for (int64_t i = 0; i < request->labels; i++) {
        snprintf(number, sizeof number, "%ld", (long)i);
        snprintf(name, sizeof name, "LABEL_%ld", (long)i);
        const char *called = request->label_name ? request->label_name[i] : name;
        gx_json_set(names, number, gx_json_new_string(called), err);
        gx_json_set(numbers, called, gx_json_new_int(i), err);
    }
    gx_json_set(json, "id2label", names, err);
    gx_json_set(json, "label2id", numbers, err);
    if (request->kind == GX_HEAD_LABELS)
        gx_json_set(json, "problem_type", gx_json_new_string(problems[request->loss]), err);
}

GxStatus gx_family_write(GxJson *json, const char *path, GxError *err)
{
    gx_json_set(json, "torch_dtype", gx_json_new_string("float32"), err); // a name that 4.x before 4.56 knows, too
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}
#endif
