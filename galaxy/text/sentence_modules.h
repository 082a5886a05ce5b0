// sentence_modules.h: reads and writes the files in which sentence-transformers describes how texts become vectors:
//
//     modules.json                        Transformer, Pooling, Dense (or several, or none), perhaps Normalize
//     1_Pooling/config.json               the mean of a text's tokens, or the vector of the first one
//     2_Dense/config.json                 y = f(x W^T + b), f: torch.nn.Identity or Tanh; W and b: model.safetensors
//     sentence_bert_config.json           max_seq_length: where a text is truncated; old names of the file are read,
//                                         but not written: sentence_roberta_config.json and the like
//     config_sentence_transformers.json   prompts, default_prompt_name, similarity_fn_name
//
//     GxSentenceModules m;
//     GX_TRY(gx_sentence_modules_read(&m, "a_folder", 0, err));
//     …
//     gx_sentence_modules_close(&m);
//
// Other modules, another order, and unsupported settings that would change the vectors are refused by name. Unknown
// keys are listed in m.notes.
#ifndef GX_SENTENCE_MODULES_H
#define GX_SENTENCE_MODULES_H
#include "../io/json.h"
GX_BEGIN

enum { GX_SENTENCE_DENSE = 4, GX_SENTENCE_NOTES = 600, GX_SENTENCE_WIDEST = 1 << 16 };

typedef struct {
    int64_t in, out;
    int is_tanh;
    float *weight, *bias; // [out][in]; [out], NULL: none
} GxSentenceDense;

typedef struct {
    int has_modules;     // 0: there is no modules.json; then normalizes is 1
    char pooling[8];     // "mean", "cls"; "": the folder does not say
    int normalizes;      // vectors are normalised to length 1
    int lowers_case;     // texts are lower-cased, whatever the tokenizer does
    int64_t most;        // the most tokens of a text, including special ones; 0: the folder does not say
    char *prompt;        // put before each text (default_prompt_name); never NULL
    int excludes_prompt; // a prompt's tokens are not pooled; supported only if prompt is ""
    int dense_n;
    GxSentenceDense dense[GX_SENTENCE_DENSE];
    GxJson *config;                // config_sentence_transformers.json; NULL: there is none
    char notes[GX_SENTENCE_NOTES]; // what the files contain and was ignored; "": nothing
} GxSentenceModules;

// If a folder has none of these files, all is 0 or "". ignores_pooling: the user has chosen the pooling, so the
// folder's is ignored. After an error nothing is open.
GxStatus gx_sentence_modules_read(GxSentenceModules *m, const char *folder, int ignores_pooling, GxError *err);
void gx_sentence_modules_close(GxSentenceModules *m);
// Only *most, as in GxSentenceModules.most. If there is a modules.json without max_seq_length: the smaller of the
// tokenizer's model_max_length and the tokens that the model has positions for (max_position_embeddings; in a RoBERTa
// that less pad_token_id + 1).
GxStatus gx_sentence_most(const char *folder, int64_t *most, GxError *err);
// Refuses a folder whose model is in a subfolder according to modules.json ("0_Transformer"). Other faults are not
// errors here.
GxStatus gx_sentence_check_place(const char *folder, GxError *err);
// width: of the pooled vector. most: written as max_seq_length; 0: not written.
GxStatus gx_sentence_modules_write(const GxSentenceModules *m, int64_t width, int64_t most, const char *folder,
                                   GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SENTENCE_MODULES_IMPLEMENTED)
#define GX_SENTENCE_MODULES_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"
#include "../io/safetensors.h"
#include "tokenizer_config.h"

enum { GX__SENTENCE_CAP = 1 << 20 };
// The activation of Dense.
#define GX__SENTENCE_TANH     "torch.nn.modules.activation.Tanh"
#define GX__SENTENCE_IDENTITY "torch.nn.modules.linear.Identity"

// ---- files ---------------------------------------------------------------------------------------------------------

// *json NULL: there is no such file. path: the path of the file, for messages.
static GxStatus gx__sentence_open(GxJson **json, const char *folder, const char *name, char path[GX_PATH], GxError *err)
{
    *json = NULL;
    GX_TRY(gx_path_join(path, folder, name, err));
    return gx_path_is_file(path) ? gx_json_read(json, path, GX__SENTENCE_CAP, err) : GX_OK;
}

// Notes the keys of `json` that are not in `known`, which ends with NULL.
static void gx__sentence_note_keys(GxSentenceModules *m, const GxJson *json, const char *const *known, const char *path)
{
    for (GxJsonMember k = GX_ZERO; gx_json_next(json, &k);) {
        int i = 0;
        const size_t n = strlen(m->notes);
        while (known[i] && strcmp(known[i], k.key)) i++;
        if (!known[i])
            snprintf(m->notes + n, sizeof m->notes - n, "%s%s: \"%.60s\" is not known, and ignored", n ? "; " : "",
                     path, k.key);
    }
}

// The file with max_seq_length: the first that exists, in the order of sentence-transformers.
static GxStatus gx__sentence_open_transformer(GxJson **json, const char *folder, char path[GX_PATH], GxError *err)
{
    static const char *const kinds[] = {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"};
    char name[60];
    *json = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !*json; i++) {
        snprintf(name, sizeof name, "sentence_%s_config.json", kinds[i]);
        GX_TRY(gx__sentence_open(json, folder, name, path, err));
    }
    return GX_OK;
}

static GxStatus gx__sentence_refuse(const char *path, const char *key, const char *found, const char *built,
                                    GxError *err)
{
    char cut[GX_TEXT_VALUE];
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: %s is %s; supported: %s", path, key,
                   gx_text_cut(found, cut, sizeof cut), built);
}

// ---- where a text is cut -------------------------------------------------------------------------------------------

static GxStatus gx__sentence_take_most(int64_t *most, const GxJson *json, const char *key, const char *path,
                                       GxError *err)
{
    GX_TRY(gx_json_get_int(json, key, 0, most, path, err));
    if (*most >= 1 || gx_json_type(gx_json_get(json, key)) <= GX_JSON_NULL) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s is %ld; expected a number of tokens, at least 1", path, key,
                   (long)*most);
}

// The rows of a table of positions that a text never has: in a RoBERTa those up to the padding token's.
static int64_t gx__sentence_unused_positions(const GxJson *config)
{
    const GxJson *pad = gx_json_get(config, "pad_token_id");
    if (!strstr(gx_json_string(gx_json_get(config, "model_type")), "roberta")) return 0;
    return 1 + (gx_json_type(pad) == GX_JSON_INT ? gx_json_int(pad) : 1);
}

static GxStatus gx__sentence_most_of_model(const char *folder, int64_t *most, GxError *err)
{
    char path[GX_PATH];
    GxJson *json = NULL;
    GX_TRY(gx__sentence_open(&json, folder, "config.json", path, err));
    GxStatus status = json ? gx__sentence_take_most(most, json, "max_position_embeddings", path, err) : GX_OK;
    if (json && *most) *most = gx_max(1, *most - gx__sentence_unused_positions(json));
    gx_json_free(json);
    GX_TRY(status);
    GX_TRY(gx_tokenizer_config_read(&json, folder, err));
    const GxJson *said = gx_json_get(json, "model_max_length");
    if (gx_json_double(said) >= 1 && (!*most || gx_json_double(said) < (double)*most))
        *most = gx_json_double(said) < 1e9 ? (int64_t)gx_json_double(said) : 0;
    gx_json_free(json);
    return GX_OK;
}

// json: the file with max_seq_length, at `path`; NULL: none. *most must be 0.
static GxStatus gx__sentence_read_most(const GxJson *json, const char *path, const char *folder, int64_t *most,
                                       GxError *err)
{
    char modules[GX_PATH];
    if (json) GX_TRY(gx__sentence_take_most(most, json, "max_seq_length", path, err));
    GX_TRY(gx_path_join(modules, folder, "modules.json", err));
    return *most || !gx_path_is_file(modules) ? GX_OK : gx__sentence_most_of_model(folder, most, err);
}

GxStatus gx_sentence_most(const char *folder, int64_t *most, GxError *err)
{
    char path[GX_PATH];
    GxJson *json;
    *most = 0;
    GX_TRY(gx__sentence_open_transformer(&json, folder, path, err));
    const GxStatus status = gx__sentence_read_most(json, path, folder, most, err);
    gx_json_free(json);
    return status;
}

static GxStatus gx__sentence_read_transformer(GxSentenceModules *m, const GxJson *json, const char *path, GxError *err)
{
    static const char *const known[] = {"max_seq_length",  "do_lower_case",      "transformer_task",
                                        "modality_config", "module_output_name", NULL};
    const char *task = "feature-extraction", *output = "token_embeddings";
    const char *of_model =
        gx_json_string(gx_json_get(gx_json_get(gx_json_get(json, "modality_config"), "text"), "method_output_name"));
    GX_TRY(gx_json_get_bool(json, "do_lower_case", 0, &m->lowers_case, path, err));
    GX_TRY(gx_json_get_string(json, "transformer_task", 0, &task, path, err));
    GX_TRY(gx_json_get_string(json, "module_output_name", 0, &output, path, err));
    if (strcmp(task, "feature-extraction"))
        return gx__sentence_refuse(path, "transformer_task", task, "feature-extraction", err);
    if (strcmp(output, "token_embeddings"))
        return gx__sentence_refuse(path, "module_output_name", output, "token_embeddings", err);
    if (of_model[0] && strcmp(of_model, "last_hidden_state"))
        return gx__sentence_refuse(path, "method_output_name of text", of_model, "last_hidden_state", err);
    gx__sentence_note_keys(m, json, known, path);
    return GX_OK;
}

// ---- modules -------------------------------------------------------------------------------------------------------

// {"pooling_mode": "cls"}, or {"pooling_mode_cls_token": true} with all others false; if all are false, the mean.
static GxStatus gx__sentence_read_pooling(GxSentenceModules *m, const GxJson *json, const char *path, GxError *err)
{
    static const char *const known[] = {"word_embedding_dimension",
                                        "embedding_dimension",
                                        "pooling_mode",
                                        "pooling_mode_cls_token",
                                        "pooling_mode_mean_tokens",
                                        "pooling_mode_max_tokens",
                                        "pooling_mode_mean_sqrt_len_tokens",
                                        "pooling_mode_weightedmean_tokens",
                                        "pooling_mode_lasttoken",
                                        "include_prompt",
                                        NULL};
    const GxJson *mode = gx_json_get(json, "pooling_mode");
    char said[GX_TEXT_VALUE] = "";
    int modes = 0, includes_prompt = 1;
    if (gx_json_type(mode) == GX_JSON_STRING) snprintf(said, sizeof said, "%s", gx_json_string(mode)), modes = 1;
    for (int64_t i = 0; gx_json_type(mode) == GX_JSON_ARRAY && i < gx_json_size(mode); i++, modes++)
        snprintf(said + strlen(said), sizeof said - strlen(said), "%s%s", i ? ", " : "",
                 gx_json_string(gx_json_at(mode, i)));
    for (GxJsonMember k = GX_ZERO; gx_json_type(mode) <= GX_JSON_NULL && gx_json_next(json, &k);) {
        if (strncmp(k.key, "pooling_mode_", 13) || !gx_json_bool(k.value)) continue;
        snprintf(said + strlen(said), sizeof said - strlen(said), "%s%s", modes++ ? ", " : "", k.key + 13);
    }
    if (!modes) snprintf(said, sizeof said, "mean");
    if (!strcmp(said, "mean_tokens")) said[4] = 0;
    if (!strcmp(said, "cls_token")) said[3] = 0;
    if (strcmp(said, "mean") && strcmp(said, "cls"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s asks for a pooling other than the mean of all tokens or [CLS] (%s); --pooling mean or "
                       "--pooling cls trains with one of these",
                       path, said);
    GX_TRY(gx_json_get_bool(json, "include_prompt", 0, &includes_prompt, path, err));
    if (!includes_prompt && m->prompt[0])
        return gx__sentence_refuse(path, "include_prompt", "false", "true, where there is a default prompt", err);
    m->excludes_prompt = !includes_prompt;
    snprintf(m->pooling, sizeof m->pooling, "%.7s", said);
    gx__sentence_note_keys(m, json, known, path);
    return GX_OK;
}

static GxStatus gx__sentence_read_matrix(const GxSafetensors *s, const char *name, int64_t out, int64_t in,
                                         float **values, const char *folder, GxError *err)
{
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    const int fits = e && (in ? e->ndim == 2 && e->shape[1] == in : e->ndim == 1) && e->shape[0] == out;
    if (!fits)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s %s; expected [%ld%s%.0ld]", folder, name,
                       e ? "does not have the shape that config.json says" : "is missing", (long)out, in ? "," : "",
                       (long)in);
    *values = (float *)malloc((size_t)e->elements * sizeof **values);
    if (!*values) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s of %s", name, folder);
    return gx_safetensors_read(s, e, 0, e->elements, *values, err);
}

static GxStatus gx__sentence_read_weights(GxSentenceDense *d, int has_bias, const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxSafetensors s;
    GX_TRY(gx_path_join(path, folder, "model.safetensors", err));
    if (!gx_path_is_file(path))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: there is no model.safetensors with the weights of this Dense module; pytorch_model.bin is "
                       "not read: save the model again with sentence-transformers' save()",
                       folder);
    GX_TRY(gx_safetensors_open(&s, path, err));
    GxStatus status = gx__sentence_read_matrix(&s, "linear.weight", d->out, d->in, &d->weight, folder, err);
    if (status == GX_OK && has_bias)
        status = gx__sentence_read_matrix(&s, "linear.bias", d->out, 0, &d->bias, folder, err);
    for (int i = 0; i < s.n && status == GX_OK; i++) {
        const char *name = s.entry[i].name;
        if (strcmp(name, "linear.weight") && (!has_bias || strcmp(name, "linear.bias")))
            status = GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: there is also %.100s; supported: linear.weight%s", path,
                             name, has_bias ? " and linear.bias" : ", where config.json says that bias is false");
    }
    gx_safetensors_close(&s);
    return status;
}

static GxStatus gx__sentence_read_dense(GxSentenceModules *m, const GxJson *json, const char *folder, const char *path,
                                        GxError *err)
{
    static const char *const known[] = {
        "in_features",       "out_features",       "bias",         "activation_function",
        "module_input_name", "module_output_name", "use_residual", NULL};
    static const char *const names[] = {"module_input_name", "module_output_name"};
    const char *activation = GX__SENTENCE_TANH; // the default
    int has_bias = 1, has_residual = 0;
    if (m->dense_n == GX_SENTENCE_DENSE)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: more than %d Dense modules", path, GX_SENTENCE_DENSE);
    GxSentenceDense *d = &m->dense[m->dense_n++];
    GX_TRY(gx_json_get_int(json, "in_features", 1, &d->in, path, err));
    GX_TRY(gx_json_get_int(json, "out_features", 1, &d->out, path, err));
    GX_TRY(gx_json_get_bool(json, "bias", 0, &has_bias, path, err));
    GX_TRY(gx_json_get_bool(json, "use_residual", 0, &has_residual, path, err));
    GX_TRY(gx_json_get_string(json, "activation_function", 0, &activation, path, err));
    d->is_tanh = !strcmp(activation, GX__SENTENCE_TANH);
    if (!d->is_tanh && strcmp(activation, GX__SENTENCE_IDENTITY))
        return gx__sentence_refuse(path, "activation_function", activation,
                                   GX__SENTENCE_TANH " and " GX__SENTENCE_IDENTITY, err);
    if (has_residual) return gx__sentence_refuse(path, "use_residual", "true", "false", err);
    for (int i = 0; i < 2; i++) {
        const char *name = "sentence_embedding";
        GX_TRY(gx_json_get_string(json, names[i], 0, &name, path, err));
        if (strcmp(name, "sentence_embedding"))
            return gx__sentence_refuse(path, names[i], name, "sentence_embedding", err);
    }
    if (d->in < 1 || d->in > GX_SENTENCE_WIDEST || d->out < 1 || d->out > GX_SENTENCE_WIDEST)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: in_features %ld, out_features %ld; expected 1 to %d", path, (long)d->in,
                       (long)d->out, GX_SENTENCE_WIDEST);
    if (m->dense_n > 1 && d[-1].out != d->in)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: in_features is %ld, but the module before has out_features %ld", path,
                       (long)d->in, (long)d[-1].out);
    gx__sentence_note_keys(m, json, known, path);
    return gx__sentence_read_weights(d, has_bias, folder, err);
}

// "sentence_transformers.base.modules.dense.Dense", or "sentence_transformers.models.Dense" in earlier versions.
static const char *gx__sentence_type(const char *type)
{
    const char *dot = strrchr(type, '.');
    return strncmp(type, "sentence_transformers.", 22) ? type : dot + 1;
}

// In this order; Dense may be repeated.
static const char *const gx__sentence_types[] = {"Transformer", "Pooling", "Dense", "Normalize"};

static GxStatus gx__sentence_refuse_place(const char *path, const char *where, GxError *err)
{
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: the Transformer is in \"%.100s\"; supported: in the folder itself, \"\": move its files there, "
                   "and set this path to \"\"",
                   path, where);
}

GxStatus gx_sentence_check_place(const char *folder, GxError *err)
{
    char path[GX_PATH];
    GxJson *json = NULL;
    GxError ignored = GX_ZERO; // reported when the whole file is read
    if (gx__sentence_open(&json, folder, "modules.json", path, &ignored) != GX_OK) return GX_OK;
    const GxJson *first = gx_json_at(json, 0);
    const char *where = gx_json_string(gx_json_get(first, "path"));
    const int is_elsewhere =
        where[0] && !strcmp(gx__sentence_type(gx_json_string(gx_json_get(first, "type"))), "Transformer");
    const GxStatus status = is_elsewhere ? gx__sentence_refuse_place(path, where, err) : GX_OK;
    gx_json_free(json);
    return status;
}

// *place: of the previous module; -1: none.
static GxStatus gx__sentence_read_module(GxSentenceModules *m, const GxJson *module, int *place, const char *folder,
                                         int ignores_pooling, const char *path, GxError *err)
{
    static const char *const known[] = {"idx", "name", "path", "type", "kwargs", NULL};
    const char *type = "", *where = "";
    char own[GX_PATH], file[GX_PATH], cut[GX_TEXT_VALUE];
    int k = 0;
    GX_TRY(gx_json_get_string(module, "type", 1, &type, path, err));
    GX_TRY(gx_json_get_string(module, "path", 1, &where, path, err));
    type = gx__sentence_type(type);
    while (k < 4 && strcmp(gx__sentence_types[k], type)) k++;
    if (k == 4)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: a module is of the type %s; supported: Transformer, Pooling, Dense, Normalize", path,
                       gx_text_cut(type, cut, sizeof cut));
    if (!(k == *place + 1 || (k == 3 && *place == 1) || (k == 2 && *place == 2)))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: %s comes %s%s; supported: Transformer, Pooling, any Dense, Normalize, in this order", path,
                       type, *place < 0 ? "first" : "after ", *place < 0 ? "" : gx__sentence_types[*place]);
    *place = k;
    gx__sentence_note_keys(m, module, known, path);
    if (where[0] == '/' || strstr(where, ".."))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the path \"%.100s\" leads out of the folder", path, where);
    if (k == 0 && where[0]) return gx__sentence_refuse_place(path, where, err);
    if (k == 3) m->normalizes = 1;
    if (k == 0 || k == 3 || (k == 1 && ignores_pooling)) return GX_OK;
    GX_TRY(gx_path_join(own, folder, where, err));
    GX_TRY(gx_path_join(file, own, "config.json", err));
    GxJson *json;
    GX_TRY(gx_json_read(&json, file, GX__SENTENCE_CAP, err));
    const GxStatus status =
        k == 1 ? gx__sentence_read_pooling(m, json, file, err) : gx__sentence_read_dense(m, json, own, file, err);
    gx_json_free(json);
    return status;
}

static GxStatus gx__sentence_read_modules(GxSentenceModules *m, const GxJson *list, const char *folder,
                                          int ignores_pooling, const char *path, GxError *err)
{
    int place = -1;
    if (gx_json_type(list) != GX_JSON_ARRAY)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s holds %s; expected an array of modules", path, gx_json_type_name(list));
    m->has_modules = 1;
    m->normalizes = 0;
    for (int64_t i = 0; i < gx_json_size(list); i++)
        GX_TRY(gx__sentence_read_module(m, gx_json_at(list, i), &place, folder, ignores_pooling, path, err));
    if (place >= 1) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: there is no %s; supported: Transformer, Pooling, any Dense, Normalize",
                   path, place < 0 ? "Transformer" : "Pooling");
}

// ---- prompts -------------------------------------------------------------------------------------------------------

static GxStatus gx__sentence_read_config(GxSentenceModules *m, const char *path, GxError *err)
{
    static const char *const known[] = {"__version__",         "model_type",         "prompts",
                                        "default_prompt_name", "similarity_fn_name", NULL};
    GxJson *prompts = NULL;
    const char *type = "SentenceTransformer", *name = NULL, *text = NULL;
    GX_TRY(gx_json_get_string(m->config, "model_type", 0, &type, path, err));
    GX_TRY(gx_json_get_object(m->config, "prompts", 0, &prompts, path, err));
    GX_TRY(gx_json_get_string(m->config, "default_prompt_name", 0, &name, path, err));
    if (strcmp(type, "SentenceTransformer"))
        return gx__sentence_refuse(path, "model_type", type, "SentenceTransformer", err);
    gx__sentence_note_keys(m, m->config, known, path);
    if (!name) return GX_OK;
    GX_TRY(gx_json_get_string(prompts, name, 1, &text, path, err));
    char *copy = (char *)malloc(strlen(text) + 1);
    if (!copy) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a prompt");
    strcpy(copy, text);
    free(m->prompt);
    m->prompt = copy;
    return GX_OK;
}

// ---- all of them ---------------------------------------------------------------------------------------------------

void gx_sentence_modules_close(GxSentenceModules *m)
{
    for (int i = 0; i < m->dense_n; i++) free(m->dense[i].weight), free(m->dense[i].bias);
    free(m->prompt);
    gx_json_free(m->config);
    memset(m, 0, sizeof *m);
}

static GxStatus gx__sentence_read_all(GxSentenceModules *m, const char *folder, int ignores_pooling, GxError *err)
{
    char path[GX_PATH];
    GxJson *json;
    GX_TRY(gx__sentence_open(&m->config, folder, "config_sentence_transformers.json", path, err));
    if (m->config)
        GX_TRY(gx__sentence_read_config(m, path, err)); // before pooling, which depends on whether there is a prompt
    GX_TRY(gx__sentence_open(&json, folder, "modules.json", path, err));
    GxStatus status = json ? gx__sentence_read_modules(m, json, folder, ignores_pooling, path, err) : GX_OK;
    gx_json_free(json), json = NULL;
    GX_TRY(status);
    if (!m->has_modules && !ignores_pooling) { // sentence-transformers would not read it
        GX_TRY(gx__sentence_open(&json, folder, "1_Pooling/config.json", path, err));
        status = json ? gx__sentence_read_pooling(m, json, path, err) : GX_OK;
        gx_json_free(json);
        GX_TRY(status);
    }
    GX_TRY(gx__sentence_open_transformer(&json, folder, path, err));
    status = json ? gx__sentence_read_transformer(m, json, path, err) : GX_OK;
    if (status == GX_OK) status = gx__sentence_read_most(json, path, folder, &m->most, err);
    gx_json_free(json);
    return status;
}

GxStatus gx_sentence_modules_read(GxSentenceModules *m, const char *folder, int ignores_pooling, GxError *err)
{
    memset(m, 0, sizeof *m);
    m->normalizes = 1;
    m->prompt = (char *)calloc(1, 1);
    const GxStatus status = !m->prompt  ? GX_FAIL(err, GX_ERR_MEMORY, "no memory for a prompt")
                            : folder[0] ? gx__sentence_read_all(m, folder, ignores_pooling, err)
                                        : GX_OK;
    if (status != GX_OK) gx_sentence_modules_close(m);
    return status;
}

// ---- writing -------------------------------------------------------------------------------------------------------

static GxStatus gx__sentence_add_module(GxJson *modules, const char *path, const char *type, GxError *err)
{
    char number[8], full[80];
    GxJson *m = gx_json_new_object();
    const int idx = (int)gx_json_size(modules);
    snprintf(number, sizeof number, "%d", idx);
    snprintf(full, sizeof full, "sentence_transformers.models.%s", type);
    gx_json_set(m, "idx", gx_json_new_int(idx), err);
    gx_json_set(m, "name", gx_json_new_string(number), err);
    gx_json_set(m, "path", gx_json_new_string(path), err);
    gx_json_set(m, "type", gx_json_new_string(full), err);
    return gx_json_append(modules, m, err);
}

// Writes *json to folder/sub/name, and frees it. sub "": folder/name.
static GxStatus gx__sentence_write_json(GxJson *json, const char *folder, const char *sub, const char *name,
                                        GxError *err)
{
    char own[GX_PATH], path[GX_PATH];
    GxStatus status = gx_error_code(err);
    if (status == GX_OK && sub[0]) status = gx_path_join(own, folder, sub, err);
    if (status == GX_OK && sub[0]) status = gx_folder_make(own, err);
    if (status == GX_OK) status = gx_path_join(path, sub[0] ? own : folder, name, err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

static GxStatus gx__sentence_write_dense(const GxSentenceDense *d, const char *folder, const char *sub, GxError *err)
{
    char own[GX_PATH], path[GX_PATH];
    GxSafetensorsEntry e[2];
    GxSafetensorsWriter w;
    GxJson *json = gx_json_new_object();
    memset(e, 0, sizeof e);
    snprintf(e[0].name, sizeof e[0].name, "linear.weight"), snprintf(e[1].name, sizeof e[1].name, "linear.bias");
    e[0].dtype = e[1].dtype = GX_F32, e[0].ndim = 2, e[1].ndim = 1;
    e[0].shape[0] = e[1].shape[0] = d->out, e[0].shape[1] = d->in;
    gx_json_set(json, "in_features", gx_json_new_int(d->in), err);
    gx_json_set(json, "out_features", gx_json_new_int(d->out), err);
    gx_json_set(json, "bias", gx_json_new_bool(d->bias != NULL), err);
    gx_json_set(json, "activation_function", gx_json_new_string(d->is_tanh ? GX__SENTENCE_TANH : GX__SENTENCE_IDENTITY),
                err);
    GX_TRY(gx__sentence_write_json(json, folder, sub, "config.json", err));
    GX_TRY(gx_path_join(own, folder, sub, err));
    GX_TRY(gx_path_join(path, own, "model.safetensors", err));
    GX_TRY(gx_safetensors_create(&w, path, e, 1 + (d->bias != NULL), NULL, 0, err));
    GxStatus status = gx_safetensors_write_floats(&w, "linear.weight", 0, d->weight, d->out * d->in, err);
    if (status == GX_OK && d->bias) status = gx_safetensors_write_floats(&w, "linear.bias", 0, d->bias, d->out, err);
    if (status == GX_OK) status = gx_safetensors_finish(&w, err);
    gx_safetensors_abort(&w);
    return status;
}

static GxStatus gx__sentence_write_pooling(const GxSentenceModules *m, int64_t width, const char *folder, GxError *err)
{
    const int is_cls = !strcmp(m->pooling, "cls");
    GxJson *pooling = gx_json_new_object();
    gx_json_set(pooling, "word_embedding_dimension", gx_json_new_int(width), err);
    gx_json_set(pooling, "pooling_mode_cls_token", gx_json_new_bool(is_cls), err);
    gx_json_set(pooling, "pooling_mode_mean_tokens", gx_json_new_bool(!is_cls), err);
    if (m->excludes_prompt) gx_json_set(pooling, "include_prompt", gx_json_new_bool(0), err);
    return gx__sentence_write_json(pooling, folder, "1_Pooling", "config.json", err);
}

// The last module normalises vectors to length 1, and has no file.
GxStatus gx_sentence_modules_write(const GxSentenceModules *m, int64_t width, int64_t most, const char *folder,
                                   GxError *err)
{
    char sub[32];
    GxJson *modules = gx_json_new_array(), *text = gx_json_new_object(),
           *config = m->config ? gx_json_copy(m->config) : gx_json_new_object();
    gx__sentence_add_module(modules, "", "Transformer", err);
    gx__sentence_add_module(modules, "1_Pooling", "Pooling", err);
    for (int i = 0; i < m->dense_n; i++) {
        snprintf(sub, sizeof sub, "%d_Dense", 2 + i);
        gx__sentence_add_module(modules, sub, "Dense", err);
        gx__sentence_write_dense(&m->dense[i], folder, sub, err);
    }
    snprintf(sub, sizeof sub, "%d_Normalize", 2 + m->dense_n);
    if (m->normalizes) gx__sentence_add_module(modules, sub, "Normalize", err);
    if (most) gx_json_set(text, "max_seq_length", gx_json_new_int(most), err);
    // otherwise the tokenizer does it, if anything
    gx_json_set(text, "do_lower_case", gx_json_new_bool(m->lowers_case), err);
    if (!gx_json_get(config, "similarity_fn_name"))
        gx_json_set(config, "similarity_fn_name", gx_json_new_string("cosine"), err);
    gx__sentence_write_json(modules, folder, "", "modules.json", err);
    gx__sentence_write_json(text, folder, "", "sentence_bert_config.json", err);
    gx__sentence_write_json(config, folder, "", "config_sentence_transformers.json", err);
    gx__sentence_write_pooling(m, width, folder, err);
    return gx_error_code(err);
}
#endif
