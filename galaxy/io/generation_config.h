// generation_config.h: reads how text is to be sampled or searched from a model, from generation_config.json in its Hugging Face
// folder; keys that are missing keep their defaults. transformers samples if do_sample is true, and otherwise takes the
// most likely token and ignores temperature, top_k, top_p and min_p.
//
// The tokens that end a text (eos_token_id: one or several) are those of this file, or of config.json if there is no
// such file.
#ifndef GX_GENERATION_CONFIG_H
#define GX_GENERATION_CONFIG_H
#include "json_fields.h"
#include "json_keys.h"
#include "model_folder.h"
GX_BEGIN

enum { GX_STOP_TOKENS = 32 };
typedef enum { GX_EARLY_STOPPING_FALSE, GX_EARLY_STOPPING_TRUE, GX_EARLY_STOPPING_NEVER } GxEarlyStopping;
typedef struct {
    int has_file, samples; // generation_config.json exists; do_sample
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, max_new_tokens; // max_new_tokens 0: not given
    int64_t num_beams, num_return_sequences, no_repeat_ngram_size, min_new_tokens;
    double length_penalty;
    GxEarlyStopping early_stopping;
    int32_t stop[GX_STOP_TOKENS]; // eos_token_id
    int n_stop;
} GxGenerationConfig;

// Defaults are transformers' own: temperature 1, top_k 50, top_p 1, min_p 0, one beam, no penalty. Settings that are not
// supported are warnings in `log`. has_length: the caller gives the length, which overrides max_length.
GxStatus gx_generation_config_read(GxGenerationConfig *c, const char *folder, int has_length, const GxLogger *log,
                                   GxError *err);
// Its parts, for other readers. The file is generation_config.json, or, if there is none (*has_file 0), the model's
// config.json; *json NULL: neither exists. The caller frees it. path[GX_PATH]
GxStatus gx_generation_config_open(GxJson **json, char *path, const char *folder, int *has_file, GxError *err);
// eos_token_id: a token or several; absent: *n is unchanged.
GxStatus gx_generation_config_stops(int32_t stop[GX_STOP_TOKENS], int *n, const GxJson *json, const char *path,
                                    GxError *err);
// early_stopping: true, false or "never"; absent: *to is unchanged.
GxStatus gx_generation_config_stopping(GxEarlyStopping *to, const GxJson *json, const char *path, GxError *err);
// Checks bos_token_id and eos_token_id of a config.json or generation_config.json: values that are not token ids are
// errors, ids outside a vocabulary of `vocab` tokens (0: unknown) are warnings.
GxStatus gx_generation_check_ids(const GxJson *json, int64_t vocab, const char *path, const GxLogger *log,
                                 GxError *err);

// All keys of generation_config.json; older config.json files have some of them, too.
extern const GxJsonKeys gx_generation_keys;

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
    {"min_new_tokens", GX_FIELD_INT, GX__GENERATION_AT(min_new_tokens), NULL, "", "0..16777216"},
    {"num_beams", GX_FIELD_INT, GX__GENERATION_AT(num_beams), NULL, "", "1..1024"},
    {"num_return_sequences", GX_FIELD_INT, GX__GENERATION_AT(num_return_sequences), NULL, "", "1..1024"},
    {"length_penalty", GX_FIELD_DOUBLE, GX__GENERATION_AT(length_penalty), NULL, "", NULL},
    {"no_repeat_ngram_size", GX_FIELD_INT, GX__GENERATION_AT(no_repeat_ngram_size), NULL, "", "0.."},
};

// Every key of transformers' GenerationConfig, and of older versions.
#define GX__GENERATION_SPEED "it changes how fast text is made, and not which"
#define GX__GENERATION_MORE  "it adds to what transformers' generate() returns beside the text"
static const GxJsonKey gx__generation_keys[] = {
    {"do_sample", GX_KEY_READ, NULL},
    {"temperature", GX_KEY_READ, NULL},
    {"top_k", GX_KEY_READ, NULL},
    {"top_p", GX_KEY_READ, NULL},
    {"min_p", GX_KEY_READ, NULL},
    {"repetition_penalty", GX_KEY_READ, NULL},
    {"max_new_tokens", GX_KEY_READ, NULL},
    {"eos_token_id", GX_KEY_READ, NULL},
    {"min_new_tokens", GX_KEY_READ, NULL},
    {"num_beams=1", GX_KEY_READ, NULL},
    {"num_return_sequences=1", GX_KEY_READ, NULL},
    {"length_penalty=1.0", GX_KEY_READ, NULL},
    {"early_stopping", GX_KEY_READ, NULL},
    {"no_repeat_ngram_size", GX_KEY_READ, NULL},
    {"bos_token_id", GX_KEY_HARMLESS, "the tokenizer's files say what stands before a text"},
    {"pad_token_id", GX_KEY_HARMLESS, "prompts are not padded"},
    {"decoder_start_token_id", GX_KEY_HARMLESS, "of models with an encoder"},
    {"_from_model_config", GX_KEY_HARMLESS, "where the file comes from"},
    {"transformers_version", GX_KEY_HARMLESS, "who wrote it"},
    {"use_cache", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"cache_implementation", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"cache_config", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"max_cache_len", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"prefill_chunk_size", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"compile_config", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"disable_compile", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"continuous_batching_config", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"low_memory", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"use_mtp", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"is_assistant", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"num_assistant_tokens", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"num_assistant_tokens_schedule", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"assistant_confidence_threshold", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"assistant_early_exit", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"assistant_lookbehind", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"assistant_ensemble_weight", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"target_lookbehind", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"speculation_type", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"prompt_lookup_num_tokens", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"max_matching_ngram_size", GX_KEY_HARMLESS, GX__GENERATION_SPEED},
    {"output_attentions", GX_KEY_HARMLESS, GX__GENERATION_MORE},
    {"output_hidden_states", GX_KEY_HARMLESS, GX__GENERATION_MORE},
    {"output_scores", GX_KEY_HARMLESS, GX__GENERATION_MORE},
    {"output_logits", GX_KEY_HARMLESS, GX__GENERATION_MORE},
    {"return_dict_in_generate", GX_KEY_HARMLESS, GX__GENERATION_MORE},
    {"renormalize_logits", GX_KEY_HARMLESS, "probabilities are always normalized"},
    {"remove_invalid_values", GX_KEY_HARMLESS, "a NaN is an error here"},
    {"max_length", GX_KEY_NAMED, "how many tokens follow a prompt is --max_new_tokens"},
    {"min_length", GX_KEY_NAMED, "how many tokens follow a prompt at least is min_new_tokens"},
    {"max_time", GX_KEY_NAMED, "there is no time limit"},
    {"stop_strings", GX_KEY_NAMED, "texts end only at tokens"},
    {"num_beam_groups=1", GX_KEY_NAMED, "beams are not in groups"},
    {"diversity_penalty", GX_KEY_NAMED, "beams are not in groups"},
    {"constraints", GX_KEY_NAMED, "no words are forced"},
    {"force_words_ids", GX_KEY_NAMED, "no words are forced"},
    {"forced_bos_token_id", GX_KEY_NAMED, "no token is forced"},
    {"forced_eos_token_id", GX_KEY_NAMED, "no token is forced"},
    {"bad_words_ids", GX_KEY_NAMED, "no token is suppressed"},
    {"suppress_tokens", GX_KEY_NAMED, "no token is suppressed"},
    {"begin_suppress_tokens", GX_KEY_NAMED, "no token is suppressed"},
    {"sequence_bias", GX_KEY_NAMED, "no token is favored"},
    {"exponential_decay_length_penalty", GX_KEY_NAMED, "no token is favored"},
    {"token_healing", GX_KEY_NAMED, "a prompt's last tokens stay as they are"},
    {"typical_p=1.0", GX_KEY_NAMED, "it leaves out no token"},
    {"top_h", GX_KEY_NAMED, "it leaves out no token"},
    {"epsilon_cutoff", GX_KEY_NAMED, "it leaves out no token"},
    {"eta_cutoff", GX_KEY_NAMED, "it leaves out no token"},
    {"encoder_no_repeat_ngram_size", GX_KEY_NAMED, "it leaves out no token"},
    {"encoder_repetition_penalty=1.0", GX_KEY_NAMED, "only repetition_penalty is used"},
    {"guidance_scale=1.0", GX_KEY_NAMED, "there is no guidance"},
    {"watermarking_config", GX_KEY_NAMED, "texts get no watermark"},
    {"penalty_alpha", GX_KEY_NAMED, "there is no contrastive search"},
    {"dola_layers", GX_KEY_NAMED, "only the last layer's logits are used"},
};
const GxJsonKeys gx_generation_keys = {GX_KEYS(gx__generation_keys)};

// For a config.json without generation_config.json: transformers 4 read settings from it that transformers 5 ignores.
static void gx__generation_config_name_others(const GxJson *json, const char *path, const GxLogger *log)
{
    // defaults that transformers 4 writes
    static const GxJsonKey usuals[] = {{"temperature=1.0", GX_KEY_NAMED, NULL},
                                       {"top_k=50", GX_KEY_NAMED, NULL},
                                       {"top_p=1.0", GX_KEY_NAMED, NULL},
                                       {"repetition_penalty=1.0", GX_KEY_NAMED, NULL},
                                       {"max_length=20", GX_KEY_NAMED, NULL}};
    char names[200] = "";
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);) {
        const GxJsonKey *row = gx_json_find_key(GX_KEYS(gx__generation_keys), m.key);
        const GxJsonKey *usual = gx_json_find_key(GX_KEYS(usuals), m.key);
        if (!row || row->kind == GX_KEY_HARMLESS || !strcmp(m.key, "eos_token_id")) continue;
        if (!gx_json_asks(row, m.value) || (usual && !gx_json_asks(usual, m.value))) continue;
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", m.key);
    }
    if (names[0])
        gx_log(log, GX_LOG_WARNING,
               "%s: %s is an option of generation, and is ignored: only generation_config.json is read for it", path,
               names);
}

GxStatus gx_generation_config_stops(int32_t stop[GX_STOP_TOKENS], int *count, const GxJson *json, const char *path,
                                    GxError *err)
{
    const GxJson *eos = gx_json_get(json, "eos_token_id");
    const GxJsonType type = gx_json_type(eos);
    const int64_t n = type == GX_JSON_ARRAY ? gx_json_size(eos) : 1;
    if (type <= GX_JSON_NULL) return GX_OK;
    if (n > GX_STOP_TOKENS)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: eos_token_id has %ld tokens; at most %d are possible", path,
                       (long)n, GX_STOP_TOKENS);
    *count = 0;
    for (int64_t i = 0; i < n; i++) {
        const GxJson *id = type == GX_JSON_ARRAY ? gx_json_at(eos, i) : eos;
        if (gx_json_type(id) != GX_JSON_INT || gx_json_int(id) < 0 || gx_json_int(id) > INT32_MAX)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: eos_token_id is %s; expected the id of a token, or a list of ids",
                           path, gx_json_type_name(id));
        stop[(*count)++] = (int32_t)gx_json_int(id);
    }
    return GX_OK;
}

GxStatus gx_generation_config_stopping(GxEarlyStopping *to, const GxJson *json, const char *path, GxError *err)
{
    const GxJson *value = gx_json_get(json, "early_stopping");
    const GxJsonType type = gx_json_type(value);
    if (type <= GX_JSON_NULL) return GX_OK;
    if (type == GX_JSON_BOOL) {
        *to = gx_json_bool(value) ? GX_EARLY_STOPPING_TRUE : GX_EARLY_STOPPING_FALSE;
        return GX_OK;
    }
    *to = GX_EARLY_STOPPING_NEVER;
    if (type == GX_JSON_STRING && !strcmp(gx_json_string(value), "never")) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: early_stopping is %s; expected true, false or \"never\"", path,
                   gx_json_type_name(value));
}

GxStatus gx_generation_check_ids(const GxJson *json, int64_t vocab, const char *path, const GxLogger *log, GxError *err)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id"};
    for (int k = 0; k < 2; k++) {
        const GxJson *value = gx_json_get(json, keys[k]);
        const int is_list = k && gx_json_type(value) == GX_JSON_ARRAY;
        const int64_t n = is_list ? gx_json_size(value) : gx_json_type(value) > GX_JSON_NULL;
        for (int64_t i = 0; i < n; i++) {
            const GxJson *id = is_list ? gx_json_at(value, i) : value;
            if (gx_json_type(id) != GX_JSON_INT)
                return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is %s; expected the id of a token%s", path, keys[k],
                               gx_json_type_name(id), k ? ", or a list of ids" : "");
            if (vocab && (gx_json_int(id) < 0 || gx_json_int(id) >= vocab))
                gx_log(log, GX_LOG_WARNING, "%s: %s has %ld, which is not an id of the vocabulary's %ld tokens", path,
                       keys[k], (long)gx_json_int(id), (long)vocab);
        }
    }
    return GX_OK;
}

GxStatus gx_generation_config_open(GxJson **json, char *path, const char *folder, int *has_file, GxError *err)
{
    *json = NULL;
    GX_TRY(gx_path_join(path, folder, "generation_config.json", err));
    *has_file = gx_path_is_file(path);
    if (!*has_file) GX_TRY(gx_model_config_path(path, folder, err));
    return gx_path_is_file(path) ? gx_json_read_object(json, path, GX__GENERATION_CONFIG_CAP, 0, err) : GX_OK;
}

GxStatus gx_generation_config_read(GxGenerationConfig *c, const char *folder, int has_length, const GxLogger *log,
                                   GxError *err)
{
    char path[GX_PATH];
    GxJson *json;
    memset(c, 0, sizeof *c);
    c->temperature = c->top_p = c->repetition_penalty = c->length_penalty = 1, c->top_k = 50;
    c->num_beams = c->num_return_sequences = 1;
    GX_TRY(gx_generation_config_open(&json, path, folder, &c->has_file, err));
    if (!json) return GX_OK;
    GxStatus status = gx_generation_check_ids(json, 0, path, log, err);
    if (status == GX_OK) status = gx_generation_config_stops(c->stop, &c->n_stop, json, path, err);
    if (status == GX_OK && !c->has_file) gx__generation_config_name_others(json, path, log);
    if (status == GX_OK && c->has_file) {
        status = gx_json_get_fields(json, GX_FIELDS(gx__generation_config_fields), 0, c, path, err);
        if (status == GX_OK) status = gx_generation_config_stopping(&c->early_stopping, json, path, err);
        // max_new_tokens has precedence in transformers, too
        if (has_length || c->max_new_tokens) gx_json_remove(json, "max_length");
        if (status == GX_OK) status = gx_json_check_keys(json, GX_KEYS(gx__generation_keys), path, log, err);
    }
    gx_json_free(json);
    return status;
}
#endif
