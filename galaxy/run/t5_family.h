// t5_family.h: T5 for the trainer: its options, its config.json, and the tasks that it can be trained for.
//
// Reading refuses by name what would change the arithmetic and is not supported, and values of a wrong type. Missing
// members have the defaults of transformers' T5Config and MT5Config; decoder_start_token_id has none in T5's.
//
// Whether the head is the table of tokens is said by the weights: transformers 5 writes tie_word_embeddings true into
// every T5's configuration, and reads a head that is in the file and differs from the table as a head of its own;
// transformers 4 goes by the configuration alone. Written is what both read right. What the head reads is scaled if
// scale_decoder_outputs says so, which transformers 5 writes, and otherwise if tie_word_embeddings is true.
#ifndef GX_T5_FAMILY_H
#define GX_T5_FAMILY_H
#include "../io/bnb.h"
#include "../io/json_fields.h"
#include "../model/t5.h"
#include "family_json.h"
GX_BEGIN

extern const GxFamily gx_t5;
extern const GxJsonKeys gx_t5_keys; // of config.json

// Reads and resolves it; also the weights beside it, as said above. Keys that are not read are logged to `log`.
GxStatus gx_t5_config_read(GxT5Config *c, const char *path, const GxLogger *log, GxError *err);
GxStatus gx_t5_config_write(const GxT5Config *c, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_T5_FAMILY_IMPLEMENTED)
#define GX_T5_FAMILY_IMPLEMENTED
#include <string.h>
#include "../io/safetensors.h"
#include "../task/denoising.h"
#include "../task/seq2seq.h"
#include "tensor_match.h"

#define GX__T5_FAMILY_AT(field) offsetof(GxT5Config, field)
static const GxField gx__t5_family_options[] = {
    {"vocab_size", GX_FIELD_INT, GX__T5_FAMILY_AT(vocab_size), "0",
     "rows of the embedding; 0: as many as the tokenizer has tokens", "0.."},
    {"d_model", GX_FIELD_INT, GX__T5_FAMILY_AT(d_model), "128", "width of the residual stream", "1.."},
    {"d_kv", GX_FIELD_INT, GX__T5_FAMILY_AT(d_kv), "32", "width of a head of attention", "1.."},
    {"d_ff", GX_FIELD_INT, GX__T5_FAMILY_AT(d_ff), "512", "columns of the MLP", "1.."},
    {"num_layers", GX_FIELD_INT, GX__T5_FAMILY_AT(num_layers), "3", "layers of the encoder", "1.."},
    {"num_decoder_layers", GX_FIELD_INT, GX__T5_FAMILY_AT(num_decoder_layers), "0",
     "layers of the decoder; 0: as many as the encoder has", "0.."},
    {"num_heads", GX_FIELD_INT, GX__T5_FAMILY_AT(num_heads), "4", "heads of attention", "1.."},
    {"relative_attention_num_buckets", GX_FIELD_INT, GX__T5_FAMILY_AT(relative_attention_num_buckets), "32",
     "groups of distances between tokens, each with a number that attention adds to its scores; the encoder has half "
     "of them for each direction",
     "4.."},
    {"relative_attention_max_distance", GX_FIELD_INT, GX__T5_FAMILY_AT(relative_attention_max_distance), "128",
     "distance from which on all are in one group", "3.."},
    {"pad_token_id", GX_FIELD_INT, GX__T5_FAMILY_AT(pad_token_id), "0", "id of the padding token", "0.."},
    {"eos_token_id", GX_FIELD_INT, GX__T5_FAMILY_AT(eos_token_id), "1", "id of the token that ends a text", "0.."},
    {"decoder_start_token_id", GX_FIELD_INT, GX__T5_FAMILY_AT(decoder_start_token_id), "0",
     "id of the token that the decoder reads first", "0.."},
    {"feed_forward_proj", GX_FIELD_STRING, GX__T5_FAMILY_AT(feed_forward_proj), "relu",
     "the MLP: relu, or with a gate: gated-gelu (with tanh; T5 1.1, Flan-T5, mT5), gated-silu",
     "relu|gated-gelu|gated-silu"},
    {"dropout_rate", GX_FIELD_DOUBLE, GX__T5_FAMILY_AT(dropout_rate), "0.1",
     "dropout of embeddings, attention's probabilities, the MLP's activated columns, what both add to the stream, and "
     "what stacks give",
     "0..1"},
    {"layer_norm_epsilon", GX_FIELD_DOUBLE, GX__T5_FAMILY_AT(layer_norm_epsilon), "1e-6",
     "added to the mean square in norms", "0..1"},
    {"initializer_factor", GX_FIELD_DOUBLE, GX__T5_FAMILY_AT(initializer_factor), "1",
     "factor of the random initial weights, whose sizes follow from the widths", "0.."},
    {"tie_word_embeddings", GX_FIELD_BOOL, GX__T5_FAMILY_AT(tie_word_embeddings), "true",
     "use the embedding as the head's matrix; T5 1.1, Flan-T5 and mT5 do not", NULL},
    // not written with the others:
    {"scale_decoder_outputs", GX_FIELD_INT, GX__T5_FAMILY_AT(scale_decoder_outputs), "-1",
     "1: what the head reads is divided by sqrt(d_model); 0: it is not; -1: if the head's matrix is the embedding",
     "-1..1"},
    {"model_type", GX_FIELD_STRING, GX__T5_FAMILY_AT(model_type), "t5",
     "t5, or mt5, whose head reads what the decoder gives unscaled", "t5|mt5"},
};
enum {
    GX__T5_FAMILY_OPTIONS = sizeof gx__t5_family_options / sizeof *gx__t5_family_options,
    GX__T5_FAMILY_PLAIN = GX__T5_FAMILY_OPTIONS - 2 // without the last two
};

// ---- config.json ---------------------------------------------------------------------------------------------------

static const GxJsonKey gx__t5_family_keys[] = {
    {"vocab_size", GX_KEY_READ, NULL},
    {"d_model", GX_KEY_READ, NULL},
    {"d_kv", GX_KEY_READ, NULL},
    {"d_ff", GX_KEY_READ, NULL},
    {"num_layers", GX_KEY_READ, NULL},
    {"num_decoder_layers", GX_KEY_READ, NULL},
    {"num_heads", GX_KEY_READ, NULL},
    {"relative_attention_num_buckets", GX_KEY_READ, NULL},
    {"relative_attention_max_distance", GX_KEY_READ, NULL},
    {"pad_token_id", GX_KEY_READ, NULL},
    {"eos_token_id", GX_KEY_READ, NULL},
    {"decoder_start_token_id", GX_KEY_READ, NULL},
    {"feed_forward_proj", GX_KEY_READ, NULL},
    {"dropout_rate", GX_KEY_READ, NULL},
    {"layer_norm_epsilon", GX_KEY_READ, NULL},
    {"initializer_factor", GX_KEY_READ, NULL},
    {"tie_word_embeddings", GX_KEY_READ, NULL},
    {"scale_decoder_outputs", GX_KEY_READ, NULL},
    {"is_encoder_decoder", GX_KEY_READ, NULL},
    {"is_decoder", GX_KEY_READ, NULL},
    {"is_gated_act", GX_KEY_READ, NULL},
    {"dense_act_fn", GX_KEY_READ, NULL},
    {"n_positions", GX_KEY_HARMLESS, "a T5 has no longest text"},
    {"classifier_dropout", GX_KEY_HARMLESS, "of a classifier"},
    {"id2label", GX_KEY_HARMLESS, "of a classifier"},
    {"label2id", GX_KEY_HARMLESS, "of a classifier"},
    {"num_labels", GX_KEY_HARMLESS, "of a classifier"},
    {"problem_type", GX_KEY_HARMLESS, "of a classifier"},
    {"hidden_size", GX_KEY_READ, NULL},
    {"num_hidden_layers", GX_KEY_READ, NULL},
    {"num_attention_heads", GX_KEY_READ, NULL},
    {"head_dim", GX_KEY_READ, NULL},
};
const GxJsonKeys gx_t5_keys = {GX_KEYS(gx__t5_family_keys)};

static int gx__t5_family_is_mt5(const GxT5Config *c) { return !strcmp(c->model_type, "mt5"); }

static GxStatus gx__t5_family_refuse_unbuilt(const GxJson *json, const char *path, const GxLogger *log, GxError *err)
{
    static const char *const needs[][2] = {{"is_encoder_decoder", "true"}, {"is_decoder", "false"}};
    static const char *const architectures[] = {"T5ForConditionalGeneration",  "T5WithLMHeadModel", "T5Model",
                                                "MT5ForConditionalGeneration", "MT5Model",          NULL};
    static const char *const types[] = {"t5", "mt5", NULL};
    GX_TRY(gx_family_check_type(json, types, path, err));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        GX_TRY(gx_family_need(json, needs[i][0], needs[i][1], path, err));
    GX_TRY(gx_bnb_check_config(gx_json_get(json, "quantization_config"), path, log, err));
    return gx_family_check_architecture(json, architectures, path, err);
}

// transformers computes with what dense_act_fn and is_gated_act say, if a file has them. Both follow from
// feed_forward_proj in all that it writes; what says otherwise is refused.
static GxStatus gx__t5_family_check_activation(const GxT5Config *c, const GxJson *json, const char *path, GxError *err)
{
    static const char *const follows[][3] = {
        {"relu", "\"relu\"", "false"}, {"gated-gelu", "\"gelu_new\"", "true"}, {"gated-silu", "\"silu\"", "true"}};
    for (size_t i = 0; i < sizeof follows / sizeof *follows; i++) {
        if (strcmp(c->feed_forward_proj, follows[i][0]) != 0) continue;
        GX_TRY(gx_family_need(json, "dense_act_fn", follows[i][1], path, err));
        GX_TRY(gx_family_need(json, "is_gated_act", follows[i][2], path, err));
    }
    return GX_OK;
}

// Other names of the same numbers, which in transformers count if a file has both.
static GxStatus gx__t5_family_check_names(const GxT5Config *c, const GxJson *json, const char *path, GxError *err)
{
    const struct {
        const char *name;
        int64_t value;
    } same[] = {{"hidden_size", c->d_model},
                {"num_hidden_layers", c->num_layers},
                {"num_attention_heads", c->num_heads},
                {"head_dim", c->d_kv}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char number[24];
        snprintf(number, sizeof number, "%ld", (long)same[i].value);
        GX_TRY(gx_family_need(json, same[i].name, number, path, err));
    }
    return GX_OK;
}

static GxStatus gx__t5_family_read_json(void *config, const GxJson *json, const char *path, const GxLogger *log,
                                        GxError *err)
{
    GxT5Config *c = (GxT5Config *)config;
    GxT5Config of_mt5 = {250112, 512, 64, 1024, 8, 0, 6, 32, 128, 0, 1, 0, "gated-gelu", 0.1, 1e-6, 1, 1, -1, "mt5"};
    GX_TRY(gx__t5_family_refuse_unbuilt(json, path, log, err));
    const GxJson *scale = gx_json_get(json, "scale_decoder_outputs"),
                 *start = gx_json_get(json, "decoder_start_token_id");
    if (!strcmp(gx_json_string(gx_json_get(json, "model_type")), "mt5")) *c = of_mt5;
    if (gx_json_type(start) <= GX_JSON_NULL && !gx__t5_family_is_mt5(c))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: decoder_start_token_id is missing, the token that the decoder reads first; in a T5 it is "
                       "that of padding: add \"decoder_start_token_id\": %ld",
                       path,
                       (long)(gx_json_get(json, "pad_token_id") ? gx_json_int(gx_json_get(json, "pad_token_id")) : 0));
    for (int i = 0; i < GX__T5_FAMILY_PLAIN; i++) {
        const GxField *f = &gx__t5_family_options[i];
        const GxJson *value = gx_json_get(json, f->name);
        if (gx_json_type(value) == GX_JSON_NULL && (value == start || !strcmp(f->name, "num_decoder_layers"))) continue;
        if (value) GX_TRY(gx_json_take_field(value, f, c, path, GX_ERR_FORMAT, err));
    }
    GX_TRY(gx__t5_family_check_activation(c, json, path, err));
    GX_TRY(gx__t5_family_check_names(c, json, path, err));
    if (gx_json_type(scale) > GX_JSON_NULL) {
        if (gx_json_type(scale) != GX_JSON_BOOL)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: scale_decoder_outputs must be true or false", path);
        c->scale_decoder_outputs = gx_json_bool(scale);
    }
    return gx_family_check_keys(json, GX_KEYS(gx__t5_family_keys), path, log, err);
}

// ---- the head in the weights ---------------------------------------------------------------------------------------

static const GxSafetensorsEntry *gx__t5_family_find(const GxSafetensors *s, const char *name)
{
    char older[GX_SAFETENSORS_NAME];
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    snprintf(older, sizeof older, "transformer.%s", name);
    return e ? e : gx_safetensors_find(s, older);
}

static GxStatus gx__t5_family_compare(GxT5Config *c, const char *folder, const GxLogger *log, GxError *err)
{
    GxSafetensors s;
    int same = 1;
    GX_TRY(gx_safetensors_open(&s, folder, err));
    const GxSafetensorsEntry *head = gx__t5_family_find(&s, "lm_head.weight"),
                             *table = gx__t5_family_find(&s, "shared.weight");
    GxStatus status = GX_OK;
    if (head && table && head->elements == table->elements)
        status = gx_tensor_match_compare(&s, head, table, &same, err);
    gx_safetensors_close(&s);
    if (status != GX_OK || same) return status;
    c->scale_decoder_outputs = gx_t5_is_scaled(c), c->tie_word_embeddings = 0;
    gx_log(log, GX_LOG_INFO, "%s: the head has values of its own, so it is not tied to the embedding", folder);
    return GX_OK;
}

// A configuration that ties the head, beside weights: they have the last word.
static GxStatus gx__t5_family_untie(GxT5Config *c, const char *path, const GxLogger *log, GxError *err)
{
    char folder[GX_PATH];
    const char *end = strrchr(path, '/');
    if (!c->tie_word_embeddings) return GX_OK;
    snprintf(folder, sizeof folder, "%.*s", end ? (int)(end - path) : 1, end ? path : ".");
    if (!gx_folder_has(folder, "model.safetensors") && !gx_folder_has(folder, "model.safetensors.index.json"))
        return GX_OK;
    return gx__t5_family_compare(c, folder, log, err);
}

static GxStatus gx__t5_family_resolve(void *config, GxError *err)
{
    return gx_t5_config_resolve((GxT5Config *)config, err);
}

GxStatus gx_t5_config_read(GxT5Config *c, const char *path, const GxLogger *log, GxError *err)
{
    const GxT5Config absent = {32128, 512,  64, 2048, 6,  0,      8,
                               32,    128,  0,  1,    0,  "relu", // transformers' own defaults
                               0.1,   1e-6, 1,  1,    -1, "t5"};
    *c = absent;
    GX_TRY(gx_family_read(c, path, gx__t5_family_read_json, gx__t5_family_resolve, log, err));
    return gx__t5_family_untie(c, path, log, err);
}

static const char *gx__t5_family_architecture(const void *config, const GxHeadRequest *request)
{
    (void)request;
    return gx__t5_family_is_mt5((const GxT5Config *)config) ? "MT5ForConditionalGeneration"
                                                            : "T5ForConditionalGeneration";
}

GxStatus gx_t5_config_write(const GxT5Config *c, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_family_set_type(json, c->model_type, gx__t5_family_architecture(c, NULL), err);
    gx_json_set_fields(json, gx__t5_family_options, GX__T5_FAMILY_PLAIN, c, err);
    if (!gx__t5_family_is_mt5(c)) gx_json_set(json, "scale_decoder_outputs", gx_json_new_bool(gx_t5_is_scaled(c)), err);
    gx_json_set(json, "is_encoder_decoder", gx_json_new_bool(1), err);
    return gx_family_write(json, path, err);
}

// ---- the family ----------------------------------------------------------------------------------------------------

static int64_t *gx__t5_family_vocab_size(void *config) { return &((GxT5Config *)config)->vocab_size; }

static GxStatus gx__t5_family_read(void *config, const char *path, const GxLogger *log, GxError *err)
{
    return gx_t5_config_read((GxT5Config *)config, path, log, err);
}

static GxStatus gx__t5_family_write(const void *config, const GxHeadRequest *request, const char *path, GxError *err)
{
    (void)request;
    return gx_t5_config_write((const GxT5Config *)config, path, err);
}

// transformers 4 scales what the head reads if the head is tied, and only then.
static void gx__t5_family_warn(const void *config, const GxLogger *log)
{
    const GxT5Config *c = (const GxT5Config *)config;
    if (gx_t5_is_scaled(c) == c->tie_word_embeddings || gx__t5_family_is_mt5(c)) return;
    gx_log(log, GX_LOG_WARNING,
           "transformers 4 would compute another model from what is saved: it divides what the head reads by "
           "sqrt(d_model) if tie_word_embeddings is true, and only then; transformers 5 goes by "
           "scale_decoder_outputs (%s)",
           gx_t5_is_scaled(c) ? "true" : "false");
}

static void gx__t5_family_frame(const void *config, GxTextFrame *frame)
{
    const GxT5Config *c = (const GxT5Config *)config;
    frame->begin = -1, frame->end = (int32_t)c->eos_token_id;
    frame->pad = (int32_t)c->pad_token_id, frame->start = (int32_t)c->decoder_start_token_id;
    frame->first_position = 0;
}

static const GxTask *const gx__t5_family_tasks[] = {&gx_seq2seq, &gx_span_corruption, &gx_denoising, NULL};

const GxFamily gx_t5 = {
    "t5",
    gx__t5_family_options,
    GX__T5_FAMILY_OPTIONS,
    sizeof(GxT5Config),
    gx__t5_family_resolve,
    gx_t5_describe,
    gx__t5_family_vocab_size,
    gx__t5_family_read,
    gx__t5_family_write,
    gx__t5_family_architecture,
    gx__t5_family_warn,
    NULL,
    gx_t5_tensor_name,
    NULL,
    gx__t5_family_tasks,
    0, // frames_texts
    gx__t5_family_frame,
};
#endif
