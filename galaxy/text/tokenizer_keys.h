// tokenizer_keys.h: warns of keys in a tokenizer's files that are not read. A tokenizer.json with an unknown member is
// refused, since ids may depend on it. tokenizer_config.json and special_tokens_map.json repeat much of tokenizer.json,
// which is read from there; what they request beyond it is named in warnings.
//
//     GX_TRY(gx_tokenizer_open(&t, folder, err));
//     GX_TRY(gx_tokenizer_check_keys(&t, folder, log, err));    // once, on the rank that logs: 0
#ifndef GX_TOKENIZER_KEYS_H
#define GX_TOKENIZER_KEYS_H
#include "../io/json_keys.h"
#include "tokenizer.h"
GX_BEGIN

extern const GxJsonKeys gx_tokenizer_config_keys; // of tokenizer_config.json
// path: a folder, or a file in it. Logs warnings only, except that a file that is not JSON is an error. A folder
// without such files gives no warnings.
GxStatus gx_tokenizer_check_keys(const GxTokenizer *t, const char *path, const GxLogger *log, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TOKENIZER_KEYS_IMPLEMENTED)
#define GX_TOKENIZER_KEYS_IMPLEMENTED
#include <stdio.h>
#include <string.h>

#define GX__TOKENIZER_ELSEWHERE "tokenizer.json says it"
#define GX__TOKENIZER_PYTHON    "of transformers' classes of tokenizers in Python"
#define GX__TOKENIZER_PADDING   "how texts fill a batch is the program's own"
#define GX__TOKENIZER_NOTE      "a note of the library that wrote it"
static const GxJsonKey gx__tokenizer_config_keys[] = {
    {"bos_token", GX_KEY_READ, NULL},
    {"eos_token", GX_KEY_READ, NULL},
    {"unk_token", GX_KEY_READ, NULL},
    {"sep_token", GX_KEY_READ, NULL},
    {"pad_token", GX_KEY_READ, NULL},
    {"cls_token", GX_KEY_READ, NULL},
    {"mask_token", GX_KEY_READ, NULL},
    {"added_tokens_decoder", GX_KEY_READ, NULL},
    {"additional_special_tokens", GX_KEY_READ, NULL},
    {"extra_special_tokens", GX_KEY_READ, NULL},
    {"chat_template", GX_KEY_READ, NULL}, // by text/chat.h
    {"do_lower_case", GX_KEY_READ, NULL},
    {"strip_accents", GX_KEY_READ, NULL},
    {"tokenize_chinese_chars", GX_KEY_READ, NULL},
    {"add_bos_token", GX_KEY_HARMLESS, "tokenizer.json's post_processor says it, in transformers 5, too"},
    {"add_eos_token", GX_KEY_HARMLESS, "tokenizer.json's post_processor says it, in transformers 5, too"},
    {"add_prefix_space", GX_KEY_READ, NULL},
    {"trim_offsets", GX_KEY_HARMLESS, "no offsets are asked for"},
    {"legacy", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"sp_model_kwargs", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"use_default_system_prompt", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"spaces_between_special_tokens", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"do_basic_tokenize", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"never_split", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"keep_accents", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"remove_space", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"from_slow", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"use_fast", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"errors", GX_KEY_HARMLESS, "bytes that are no text are decoded as tokenizers does it"},
    {"src_lang", GX_KEY_HARMLESS, "--source_lang says it"},
    {"tgt_lang", GX_KEY_HARMLESS, "--target_lang says it"},
    {"extra_ids", GX_KEY_HARMLESS, "tokenizer.json has these tokens"},
    {"clean_up_tokenization_spaces", GX_KEY_HARMLESS, "tokenizer.json's decoder says how text is made of tokens"},
    {"model_max_length", GX_KEY_HARMLESS, "how long texts are is the program's own, up to what the model has"},
    {"max_len", GX_KEY_HARMLESS, "as model_max_length"},
    {"max_length", GX_KEY_HARMLESS, "as model_max_length"},
    {"stride", GX_KEY_HARMLESS, GX__TOKENIZER_PADDING},
    {"truncation", GX_KEY_HARMLESS, GX__TOKENIZER_PADDING},
    {"truncation_strategy", GX_KEY_HARMLESS, GX__TOKENIZER_PADDING},
    {"padding", GX_KEY_HARMLESS, GX__TOKENIZER_PADDING},
    {"padding_side", GX_KEY_HARMLESS, GX__TOKENIZER_PADDING},
    {"pad_to_multiple_of", GX_KEY_HARMLESS, GX__TOKENIZER_PADDING},
    {"pad_token_type_id", GX_KEY_HARMLESS, GX__TOKENIZER_PADDING},
    {"model_input_names", GX_KEY_HARMLESS, "the model says what it takes"},
    {"tokenizer_class", GX_KEY_READ, NULL},
    {"processor_class", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"backend", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"is_local", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"local_files_only", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"files_loaded", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"name_or_path", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"_name_or_path", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"special_tokens_map_file", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"tokenizer_file", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"vocab_size", GX_KEY_HARMLESS, GX__TOKENIZER_ELSEWHERE},
    {"transformers_version", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"added_tokens", GX_KEY_HARMLESS, GX__TOKENIZER_NOTE},
    {"init_inputs", GX_KEY_HARMLESS, GX__TOKENIZER_PYTHON},
    {"response_template", GX_KEY_HARMLESS, "how a reply is taken apart is its reader's own"},
    {"response_schema", GX_KEY_HARMLESS, "how a reply is taken apart is its reader's own"},
    {"truncation_side=\"right\"", GX_KEY_NAMED, "long texts are cut at their end"},
    {"split_special_tokens", GX_KEY_READ, NULL},
    {"fix_mistral_regex", GX_KEY_NAMED, "words are as tokenizer.json has them"},
    {"chat_control_tokens", GX_KEY_NAMED, "no further tokens are marked in conversations"},
    {"auto_map", GX_KEY_NAMED, "the folder has its own code, which is not run"},
    {"*_token", GX_KEY_READ, NULL}, // by text/chat_find.h: a template may write image_token
};
const GxJsonKeys gx_tokenizer_config_keys = {GX_KEYS(gx__tokenizer_config_keys)};

// transformers treats tokens that are named here as special, whether they are in tokenizer.json or not.
static void gx__tokenizer_check_special(const GxTokenizer *t, const GxJson *token, const char *key, const char *path,
                                        const GxLogger *log)
{
    char cut[GX_TEXT_VALUE];
    const char *text = gx_json_string(gx_tokenizer_config_content(token));
    const int32_t id = text[0] ? gx_tokenizer_find(t, text) : 0;
    if (!text[0] || (id >= 0 && gx_tokenizer_is_special(t, id))) return;
    gx_log(log, GX_LOG_WARNING,
           "%s: %s has \"%s\", which is not a special token in tokenizer.json, and not here either", path, key,
           gx_text_cut(text, cut, sizeof cut));
}

static void gx__tokenizer_check_tokens(const GxTokenizer *t, const GxJson *config, const char *path,
                                       const GxLogger *log)
{
    static const char *const keys[] = {"bos_token",           "eos_token", "unk_token",  "sep_token",
                                       "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
                                       "extra_special_tokens"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const GxJson *value = gx_json_get(config, keys[k]);
        if (k < 7) gx__tokenizer_check_special(t, value, keys[k], path, log);
        for (int64_t i = 0; k >= 7 && gx_json_type(value) == GX_JSON_ARRAY && i < gx_json_size(value); i++)
            gx__tokenizer_check_special(t, gx_json_at(value, i), keys[k], path, log);
        for (GxJsonMember m = GX_ZERO; k >= 7 && gx_json_type(value) == GX_JSON_OBJECT && gx_json_next(value, &m);)
            gx__tokenizer_check_special(t, m.value, keys[k], path, log);
    }
    for (GxJsonMember m = GX_ZERO; gx_json_type(config) == GX_JSON_OBJECT && gx_json_next(config, &m);) {
        const GxJsonKey *row = gx_json_find_key(GX_KEYS(gx__tokenizer_config_keys), m.key);
        if (row && row->name[0] == '*') gx__tokenizer_check_special(t, m.value, m.key, path, log);
    }
    for (GxJsonMember m = GX_ZERO; gx_json_next(gx_json_get(config, "added_tokens_decoder"), &m);) {
        const char *text = gx_json_string(gx_tokenizer_config_content(m.value));
        const int32_t id = gx_tokenizer_find(t, text);
        char number[24], cut[GX_TEXT_VALUE];
        snprintf(number, sizeof number, "%ld", (long)id);
        if (id < 0 || strcmp(number, m.key))
            gx_log(log, GX_LOG_WARNING,
                   "%s: added_tokens_decoder has \"%s\" with the id %.20s, which tokenizer.json does not have", path,
                   gx_text_cut(text, cut, sizeof cut), m.key);
    }
}

// Both files name the token for unknown words.
static void gx__tokenizer_check_unknown(const GxTokenizer *t, const GxJson *config, const char *path,
                                        const GxLogger *log)
{
    const char *said = gx_json_string(gx_tokenizer_config_value(config, "unk_token"));
    const int32_t here = t->role[GX_TOKEN_UNK];
    char cut[2][GX_TEXT_VALUE], room[8];
    const char *name = here >= 0 ? gx_tokenizer_piece(t, here, room) : NULL;
    if (!said[0] || !name || !strcmp(name, said)) return;
    gx_log(log, GX_LOG_WARNING, "%s: unk_token is \"%s\", which is ignored: the model of tokenizer.json has \"%s\"",
           path, gx_text_cut(said, cut[0], GX_TEXT_VALUE), gx_text_cut(name, cut[1], GX_TEXT_VALUE));
}

// Both files describe BERT's normalizer.
static void gx__tokenizer_check_normalizer(const GxTokenizer *t, const GxJson *config, const char *path,
                                           const GxLogger *log)
{
    static const char *const keys[] = {"do_lower_case", "strip_accents", "tokenize_chinese_chars"};
    static const char *const words[] = {"false", "true"};
    if (t->kind != &gx_wordpiece) return;
    const GxBertNormalizer *n = &((const GxWordPiece *)t->vocabulary)->normalizer;
    const int strips = n->strip_accents == GX_ACCENTS_AS_LOWERCASE ? n->lowercase : n->strip_accents;
    const int here[] = {n->lowercase, strips, n->handle_chinese_chars};
    for (int i = 0; i < 3; i++) {
        const GxJson *said = gx_json_get(config, keys[i]);
        if (gx_json_type(said) != GX_JSON_BOOL || gx_json_bool(said) == here[i]) continue;
        gx_log(log, GX_LOG_WARNING, "%s: %s is %s, which is ignored: the normalizer of tokenizer.json has %s", path,
               keys[i], words[gx_json_bool(said)], words[here[i]]);
    }
}

// transformers 5 rebuilds tokenizers of these classes with the model of the class.
static void gx__tokenizer_check_class(const GxTokenizer *t, const GxJson *config, const char *path, const GxLogger *log)
{
    static const char *const classes[][2] = {{"BertTokenizer", "WordPiece"},    {"DistilBertTokenizer", "WordPiece"},
                                             {"LlamaTokenizer", "BPE"},         {"CodeLlamaTokenizer", "BPE"},
                                             {"GemmaTokenizer", "BPE"},         {"GPT2Tokenizer", "BPE"},
                                             {"Qwen2Tokenizer", "BPE"},         {"RobertaTokenizer", "BPE"},
                                             {"AlbertTokenizer", "Unigram"},    {"T5Tokenizer", "Unigram"},
                                             {"XLMRobertaTokenizer", "Unigram"}};
    const char *name = gx_json_string(gx_json_get(config, "tokenizer_class"));
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const size_t n = strlen(classes[i][0]);
        if (strncmp(name, classes[i][0], n) || (name[n] && strcmp(name + n, "Fast"))) continue;
        if (strcmp(classes[i][1], t->kind->model_type))
            gx_log(log, GX_LOG_WARNING,
                   "%s: tokenizer_class is %s, whose model is %s, which is ignored: tokenizer.json has %s", path, name,
                   classes[i][1], t->kind->model_type);
    }
}

// Compared with tokenizer.json's ByteLevel and Metaspace.
static void gx__tokenizer_check_prefix(const GxTokenizer *t, const GxJson *config, const char *path,
                                       const GxLogger *log)
{
    const GxJson *said = gx_json_get(config, "add_prefix_space");
    const int is_of_words = t->kind == &gx_bpe || t->kind == &gx_unigram;
    const GxWordSteps *steps = is_of_words ? &((const GxWords *)t->vocabulary)->pre_tokenizer : NULL;
    int has = 0, tells = 0;
    for (int i = 0; steps && i < steps->n; i++) {
        const GxWordStep *s = &steps->step[i];
        tells |= s->kind == GX_WORDS_BYTES || s->kind == GX_WORDS_METASPACE;
        has |= s->kind == GX_WORDS_PREFIX || (s->kind == GX_WORDS_METASPACE && s->keeps != GX_WORDS_NEVER);
    }
    if (!tells || gx_json_type(said) != GX_JSON_BOOL || gx_json_bool(said) == has) return;
    gx_log(log, GX_LOG_WARNING, "%s: add_prefix_space is %s, which is ignored: tokenizer.json puts %s before a text",
           path, has ? "false" : "true", has ? "a space" : "no space");
}

// added_tokens.json, in older folders: {"token": id}.
static GxStatus gx__tokenizer_check_added(const GxTokenizer *t, const char *folder, const GxLogger *log, GxError *err)
{
    char path[GX_PATH], cut[GX_TEXT_VALUE];
    GxJson *added;
    GX_TRY(gx_path_join(path, folder, "added_tokens.json", err));
    if (!gx_path_is_file(path)) return GX_OK;
    GX_TRY(gx_json_read(&added, path, GX_TOKENIZER_CONFIG_CAP, err));
    for (GxJsonMember m = GX_ZERO; gx_json_type(added) == GX_JSON_OBJECT && gx_json_next(added, &m);)
        if (gx_json_type(m.value) != GX_JSON_INT || gx_tokenizer_find(t, m.key) != gx_json_int(m.value))
            gx_log(log, GX_LOG_WARNING, "%s has \"%s\" with the id %ld, which tokenizer.json does not have", path,
                   gx_text_cut(m.key, cut, sizeof cut), (long)gx_json_int(m.value));
    gx_json_free(added);
    return GX_OK;
}

GxStatus gx_tokenizer_check_keys(const GxTokenizer *t, const char *path, const GxLogger *log, GxError *err)
{
    char folder[GX_PATH], config_path[GX_PATH], names_path[GX_PATH];
    GxJson *config;
    if (gx_path_is_folder(path)) snprintf(folder, sizeof folder, "%s", path);
    else gx_path_parent(folder, path);
    GX_TRY(gx_path_join(config_path, folder, GX_TOKENIZER_CONFIG, err));
    GX_TRY(gx__tokenizer_check_added(t, folder, log, err));
    GX_TRY(gx_tokenizer_config_read(&config, folder, err));
    if (gx_tokenizer_config_names_path(names_path, config, folder, err) != GX_OK)
        return gx_json_free(config), gx_error_code(err);
    gx__tokenizer_check_tokens(t, config, names_path, log);
    gx__tokenizer_check_unknown(t, config, names_path, log);
    gx__tokenizer_check_class(t, config, config_path, log);
    gx__tokenizer_check_prefix(t, config, config_path, log);
    gx__tokenizer_check_normalizer(t, config, config_path, log);
    const GxStatus status = gx_json_check_keys(config, GX_KEYS(gx__tokenizer_config_keys), config_path, log, err);
    gx_json_free(config);
    return status;
}
#endif
