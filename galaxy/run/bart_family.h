// bart_family.h: BART for the trainer: its options, its config.json, and the tasks that it can be trained for.
//
// Reading refuses by name what would change the arithmetic and is not supported (scaled embeddings, norms before cores,
// layers that are dropped, other activations), and values of a wrong type. Missing members have the defaults of
// transformers' BartConfig. The head is always the table of tokens.
#ifndef GX_BART_FAMILY_H
#define GX_BART_FAMILY_H
#include "../io/bnb.h"
#include "../io/json_fields.h"
#include "../model/bart.h"
#include "family_json.h"
GX_BEGIN

extern const GxFamily gx_bart;
extern const GxJsonKeys gx_bart_keys; // of config.json

// Reads and resolves it. Keys that are not read are logged to `log`.
GxStatus gx_bart_config_read(GxBartConfig *c, const char *path, const GxLogger *log, GxError *err);
GxStatus gx_bart_config_write(const GxBartConfig *c, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BART_FAMILY_IMPLEMENTED)
#define GX_BART_FAMILY_IMPLEMENTED
#include <string.h>
#include "../task/denoising.h"
#include "../task/seq2seq.h"

#define GX__BART_FAMILY_AT(field) offsetof(GxBartConfig, field)
static const GxField gx__bart_family_options[] = {
    {"vocab_size", GX_FIELD_INT, GX__BART_FAMILY_AT(vocab_size), "0",
     "rows of the embedding; 0: as many as the tokenizer has tokens", "0.."},
    {"d_model", GX_FIELD_INT, GX__BART_FAMILY_AT(d_model), "128", "width of the residual stream", "1.."},
    {"encoder_layers", GX_FIELD_INT, GX__BART_FAMILY_AT(encoder_layers), "3", "layers of the encoder", "1.."},
    {"decoder_layers", GX_FIELD_INT, GX__BART_FAMILY_AT(decoder_layers), "3", "layers of the decoder", "1.."},
    {"encoder_attention_heads", GX_FIELD_INT, GX__BART_FAMILY_AT(encoder_attention_heads), "4",
     "heads of the encoder's attention", "1.."},
    {"decoder_attention_heads", GX_FIELD_INT, GX__BART_FAMILY_AT(decoder_attention_heads), "4",
     "heads of the decoder's attention", "1.."},
    {"encoder_ffn_dim", GX_FIELD_INT, GX__BART_FAMILY_AT(encoder_ffn_dim), "512", "columns of the encoder's MLP",
     "1.."},
    {"decoder_ffn_dim", GX_FIELD_INT, GX__BART_FAMILY_AT(decoder_ffn_dim), "512", "columns of the decoder's MLP",
     "1.."},
    {"max_position_embeddings", GX_FIELD_INT, GX__BART_FAMILY_AT(max_position_embeddings), "1024",
     "most tokens of a source or target", "1.."},
    {"pad_token_id", GX_FIELD_INT, GX__BART_FAMILY_AT(pad_token_id), "1",
     "id of the padding token, whose row of the embedding gets no gradient from its look-ups", "0.."},
    {"bos_token_id", GX_FIELD_INT, GX__BART_FAMILY_AT(bos_token_id), "0", "id of the token that begins a text", "0.."},
    {"eos_token_id", GX_FIELD_INT, GX__BART_FAMILY_AT(eos_token_id), "2", "id of the token that ends a text", "0.."},
    {"decoder_start_token_id", GX_FIELD_INT, GX__BART_FAMILY_AT(decoder_start_token_id), "2",
     "id of the token that the decoder reads first", "0.."},
    {"activation_function", GX_FIELD_STRING, GX__BART_FAMILY_AT(activation_function), "gelu",
     "activation of the MLP: gelu (with the error function), or gelu_new (with tanh, as GPT-2 has it)",
     "gelu|gelu_new"},
    {"dropout", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(dropout), "0.1",
     "dropout of what attention and MLP add to the stream, and of the embeddings", "0..1"},
    {"attention_dropout", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(attention_dropout), "0",
     "dropout of attention's probabilities", "0..1"},
    {"activation_dropout", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(activation_dropout), "0",
     "dropout of what the activation in the MLP gives", "0..1"},
    {"init_std", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(init_std), "0.02",
     "standard deviation of the random initial weights", "0..1"},
};
enum { GX__BART_FAMILY_OPTIONS = sizeof gx__bart_family_options / sizeof *gx__bart_family_options };

// ---- config.json ---------------------------------------------------------------------------------------------------

#define GX__BART_FAMILY_OLD "of the library that BART was made with, and not looked at by transformers either"
static const GxJsonKey gx__bart_family_keys[] = {
    {"vocab_size", GX_KEY_READ, NULL},
    {"d_model", GX_KEY_READ, NULL},
    {"encoder_layers", GX_KEY_READ, NULL},
    {"decoder_layers", GX_KEY_READ, NULL},
    {"encoder_attention_heads", GX_KEY_READ, NULL},
    {"decoder_attention_heads", GX_KEY_READ, NULL},
    {"encoder_ffn_dim", GX_KEY_READ, NULL},
    {"decoder_ffn_dim", GX_KEY_READ, NULL},
    {"max_position_embeddings", GX_KEY_READ, NULL},
    {"pad_token_id", GX_KEY_READ, NULL},
    {"bos_token_id", GX_KEY_READ, NULL},
    {"eos_token_id", GX_KEY_READ, NULL},
    {"decoder_start_token_id", GX_KEY_READ, NULL},
    {"activation_function", GX_KEY_READ, NULL},
    {"dropout", GX_KEY_READ, NULL},
    {"attention_dropout", GX_KEY_READ, NULL},
    {"activation_dropout", GX_KEY_READ, NULL},
    {"init_std", GX_KEY_READ, NULL},
    {"is_encoder_decoder", GX_KEY_READ, NULL},
    {"is_decoder", GX_KEY_READ, NULL},
    {"scale_embedding", GX_KEY_READ, NULL},
    {"tie_word_embeddings", GX_KEY_READ, NULL},
    {"encoder_layerdrop", GX_KEY_READ, NULL},
    {"decoder_layerdrop", GX_KEY_READ, NULL},
    {"normalize_before", GX_KEY_REFUSED, "norms would be before attention and MLP, as in mBART"},
    {"add_final_layer_norm", GX_KEY_REFUSED, "each stack would end with a norm, as in mBART"},
    {"add_bias_logits", GX_KEY_REFUSED, "logits would have a bias"},
    {"static_position_embeddings", GX_KEY_REFUSED, "positions would not be learned"},
    {"normalize_embedding=true", GX_KEY_REFUSED, "embeddings would have no norm"},
    {"extra_pos_embeddings=2", GX_KEY_REFUSED, "the table of positions would begin elsewhere"},
    {"classifier_dropout", GX_KEY_HARMLESS, "of a classifier"},
    {"classif_dropout", GX_KEY_HARMLESS, "of a classifier"},
    {"id2label", GX_KEY_HARMLESS, "of a classifier"},
    {"label2id", GX_KEY_HARMLESS, "of a classifier"},
    {"num_labels", GX_KEY_HARMLESS, "of a classifier"},
    {"problem_type", GX_KEY_HARMLESS, "of a classifier"},
    {"num_hidden_layers", GX_KEY_HARMLESS, "encoder_layers, once more"},
};
const GxJsonKeys gx_bart_keys = {GX_KEYS(gx__bart_family_keys)};

static GxStatus gx__bart_family_refuse_unbuilt(const GxJson *json, const char *path, const GxLogger *log, GxError *err)
{
    static const char *const needs[][2] = {{"is_encoder_decoder", "true"}, {"is_decoder", "false"},
                                           {"scale_embedding", "false"},   {"tie_word_embeddings", "true"},
                                           {"encoder_layerdrop", "0.0"},   {"decoder_layerdrop", "0.0"}};
    static const char *const architectures[] = {"BartForConditionalGeneration", "BartModel", NULL};
    static const char *const types[] = {"bart", NULL};
    GX_TRY(gx_family_check_type(json, types, path, err));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        GX_TRY(gx_family_need(json, needs[i][0], needs[i][1], path, err));
    GX_TRY(gx_bnb_check_config(gx_json_get(json, "quantization_config"), path, log, err));
    return gx_family_check_architecture(json, architectures, path, err);
}

static GxStatus gx__bart_family_read_json(GxBartConfig *c, const GxJson *json, const char *path, const GxLogger *log,
                                          GxError *err)
{
    GX_TRY(gx__bart_family_refuse_unbuilt(json, path, log, err));
    for (int i = 0; i < GX__BART_FAMILY_OPTIONS; i++) {
        const GxField *f = &gx__bart_family_options[i];
        const GxJson *value = gx_json_get(json, f->name);
        if (value) GX_TRY(gx_json_take_field(value, f, c, path, GX_ERR_FORMAT, err));
    }
    return gx_family_check_keys(json, GX_KEYS(gx__bart_family_keys), path, log, err);
}

GxStatus gx_bart_config_read(GxBartConfig *c, const char *path, const GxLogger *log, GxError *err)
{
    const GxBartConfig absent = {50265, 1024, 12, 12, 16,     16,  4096, 4096, 1024, // transformers' own defaults
                                 1,     0,    2,  2,  "gelu", 0.1, 0,    0,    0.02};
    GxError unsound = GX_ZERO;
    GxJson *json;
    *c = absent;
    GX_TRY(gx_json_read_object(&json, path, GX_CONFIG_JSON_CAP, 0, err));
    GxStatus status = gx__bart_family_read_json(c, json, path, log, err);
    gx_json_free(json);
    if (status != GX_OK || gx_bart_config_resolve(c, &unsound) == GX_OK) return status;
    return GX_FAIL(err, gx_error_code(&unsound), "%s: %s", path, unsound.message);
}

static const char *gx__bart_family_architecture(const void *config, const GxHeadRequest *request)
{
    (void)config, (void)request;
    return "BartForConditionalGeneration";
}

GxStatus gx_bart_config_write(const GxBartConfig *c, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_family_set_type(json, "bart", gx__bart_family_architecture(c, NULL), err);
    gx_json_set_fields(json, gx__bart_family_options, GX__BART_FAMILY_OPTIONS, c, err);
    gx_json_set(json, "is_encoder_decoder", gx_json_new_bool(1), err);
    gx_json_set(json, "scale_embedding", gx_json_new_bool(0), err);
    gx_json_set(json, "tie_word_embeddings", gx_json_new_bool(1), err);
    gx_json_set(json, "forced_eos_token_id", gx_json_new_int(c->eos_token_id), err);
    return gx_family_write(json, path, err);
}

// ---- the family ----------------------------------------------------------------------------------------------------

static GxStatus gx__bart_family_resolve(void *config, GxError *err)
{
    return gx_bart_config_resolve((GxBartConfig *)config, err);
}

static int64_t *gx__bart_family_vocab_size(void *config) { return &((GxBartConfig *)config)->vocab_size; }

static GxStatus gx__bart_family_read(void *config, const char *path, const GxLogger *log, GxError *err)
{
    return gx_bart_config_read((GxBartConfig *)config, path, log, err);
}

static GxStatus gx__bart_family_write(const void *config, const GxHeadRequest *request, const char *path, GxError *err)
{
    (void)request;
    return gx_bart_config_write((const GxBartConfig *)config, path, err);
}

static void gx__bart_family_frame(const void *config, GxTextFrame *frame)
{
    const GxBartConfig *c = (const GxBartConfig *)config;
    frame->begin = (int32_t)c->bos_token_id, frame->end = (int32_t)c->eos_token_id;
    frame->pad = (int32_t)c->pad_token_id, frame->start = (int32_t)c->decoder_start_token_id;
    frame->first_position = GX_BART_FIRST_POSITION;
}

static const GxTask *const gx__bart_family_tasks[] = {&gx_seq2seq, &gx_denoising, &gx_span_corruption, NULL};

const GxFamily gx_bart = {
    "bart",
    gx__bart_family_options,
    GX__BART_FAMILY_OPTIONS,
    sizeof(GxBartConfig),
    gx__bart_family_resolve,
    gx_bart_describe,
    gx__bart_family_vocab_size,
    gx__bart_family_read,
    gx__bart_family_write,
    gx__bart_family_architecture,
    NULL,
    NULL,
    gx_bart_tensor_name,
    "final_logits_bias",
    gx__bart_family_tasks,
    0, // frames_texts
    gx__bart_family_frame,
};
#endif
