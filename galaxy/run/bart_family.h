// bart_family.h: BART and mBART for the trainer: their options, their config.json, and the tasks that they can be trained
// for.
//
// Reading refuses by name what would change the arithmetic and is not supported (norms elsewhere than the model's type
// has them, layers that are dropped, other activations), and values of a wrong type. Missing members have the defaults of
// transformers' BartConfig, or MBartConfig. The head is always the table of tokens.
#ifndef GX_BART_FAMILY_H
#define GX_BART_FAMILY_H
#include "../io/bnb.h"
#include "../io/json_fields.h"
#include "../model/bart.h"
#include "family_json.h"
GX_BEGIN

extern const GxFamily gx_bart;
extern const GxJsonKeys gx_bart_keys;         // of config.json
extern const GxJsonKeys gx_bart_norm_keys[2]; // those of which BART and mBART need different values

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
    {"decoder_start_token_id", GX_FIELD_INT, GX__BART_FAMILY_AT(decoder_start_token_id), "-1",
     "id of the token that the decoder reads first; -1: 2, or in an mBART that of --target_lang", "-1.."},
    {"activation_function", GX_FIELD_STRING, GX__BART_FAMILY_AT(activation_function), "gelu",
     "activation of the MLP: gelu (with the error function), gelu_new (with tanh, as GPT-2 has it), or relu",
     "gelu|gelu_new|relu"},
    {"dropout", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(dropout), "0.1",
     "dropout of what attention and MLP add to the stream, and of the embeddings", "0..1"},
    {"attention_dropout", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(attention_dropout), "0",
     "dropout of attention's probabilities", "0..1"},
    {"activation_dropout", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(activation_dropout), "0",
     "dropout of what the activation in the MLP gives", "0..1"},
    {"init_std", GX_FIELD_DOUBLE, GX__BART_FAMILY_AT(init_std), "0.02",
     "standard deviation of the random initial weights", "0..1"},
    {"scale_embedding", GX_FIELD_BOOL, GX__BART_FAMILY_AT(scale_embedding), "false",
     "multiply the tokens' rows of the embedding by sqrt(d_model)", NULL},
    {"model_type", GX_FIELD_STRING, GX__BART_FAMILY_AT(model_type), "bart",
     "bart, or mbart, which has norms before attention and MLP, and texts that end with their languages", "bart|mbart"},
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
    {"_num_labels", GX_KEY_HARMLESS, "of a classifier"},
    {"num_hidden_layers", GX_KEY_HARMLESS, "encoder_layers, once more"},
};
const GxJsonKeys gx_bart_keys = {GX_KEYS(gx__bart_family_keys)};

// Of BART, and of mBART: where the norms are.
enum { GX__BART_FAMILY_NORMS = 2 };
static const GxJsonKey gx__bart_family_norms[2][GX__BART_FAMILY_NORMS] = {
    {{"normalize_before", GX_KEY_REFUSED, "norms would be before attention and MLP, as in mBART"},
     {"add_final_layer_norm", GX_KEY_REFUSED, "each stack would end with a norm, as in mBART"}},
    {{"normalize_before=true", GX_KEY_REFUSED, "norms would be behind attention and MLP, as in BART"},
     {"add_final_layer_norm=true", GX_KEY_REFUSED, "stacks would not end with a norm"}}};
const GxJsonKeys gx_bart_norm_keys[2] = {{gx__bart_family_norms[0], GX__BART_FAMILY_NORMS},
                                         {gx__bart_family_norms[1], GX__BART_FAMILY_NORMS}};

static GxStatus gx__bart_family_check_keys(const GxJson *json, int is_mbart, const char *path, const GxLogger *log,
                                           GxError *err)
{
    enum { OWN = sizeof gx__bart_family_keys / sizeof *gx__bart_family_keys };
    GxJsonKey all[OWN + GX__BART_FAMILY_NORMS];
    memcpy(all, gx__bart_family_keys, sizeof gx__bart_family_keys);
    memcpy(all + OWN, gx__bart_family_norms[is_mbart], sizeof gx__bart_family_norms[0]);
    return gx_family_check_keys(json, all, OWN + GX__BART_FAMILY_NORMS, path, log, err);
}

static GxStatus gx__bart_family_refuse_unbuilt(const GxJson *json, const char *path, const GxLogger *log, GxError *err)
{
    static const char *const needs[][2] = {{"is_encoder_decoder", "true"},
                                           {"is_decoder", "false"},
                                           {"tie_word_embeddings", "true"},
                                           {"encoder_layerdrop", "0.0"},
                                           {"decoder_layerdrop", "0.0"}};
    static const char *const architectures[] = {"BartForConditionalGeneration", "BartModel",
                                                "MBartForConditionalGeneration", "MBartModel", NULL};
    static const char *const types[] = {"bart", "mbart", NULL};
    GX_TRY(gx_family_check_type(json, types, path, err));
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        GX_TRY(gx_family_need(json, needs[i][0], needs[i][1], path, err));
    GX_TRY(gx_bnb_check_config(gx_json_get(json, "quantization_config"), path, log, err));
    return gx_family_check_architecture(json, architectures, path, err);
}

static GxStatus gx__bart_family_read_json(void *config, const GxJson *json, const char *path, const GxLogger *log,
                                          GxError *err)
{
    GxBartConfig *c = (GxBartConfig *)config;
    GX_TRY(gx__bart_family_refuse_unbuilt(json, path, log, err));
    const int is_mbart = !strcmp(gx_json_string(gx_json_get(json, "model_type")), "mbart");
    for (int i = 0; i < GX__BART_FAMILY_OPTIONS; i++) {
        const GxField *f = &gx__bart_family_options[i];
        const GxJson *value = gx_json_get(json, f->name);
        const int is_start = !strcmp(f->name, "decoder_start_token_id");
        if (!value || (is_start && is_mbart && gx_json_type(value) == GX_JSON_NULL)) continue;
        if (is_start && gx_json_type(value) == GX_JSON_INT && gx_json_int(value) < 0)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: decoder_start_token_id is %ld; it must be the id of a token", path,
                           (long)gx_json_int(value));
        GX_TRY(gx_json_take_field(value, f, c, path, GX_ERR_FORMAT, err));
    }
    if (is_mbart) c->decoder_start_token_id = -1; // it is of generation alone
    return gx__bart_family_check_keys(json, is_mbart, path, log, err);
}

static GxStatus gx__bart_family_resolve(void *config, GxError *err)
{
    return gx_bart_config_resolve((GxBartConfig *)config, err);
}

GxStatus gx_bart_config_read(GxBartConfig *c, const char *path, const GxLogger *log, GxError *err)
{
    const GxBartConfig absent = {50265, 1024, 12, 12, 16,     16,  4096, 4096, 1024, // transformers' own defaults
                                 1,     0,    2,  -1, "gelu", 0.1, 0,    0,    0.02, 0, "bart"};
    *c = absent;
    return gx_family_read(c, path, gx__bart_family_read_json, gx__bart_family_resolve, log, err);
}

static const char *gx__bart_family_architecture(const void *config, const GxHeadRequest *request)
{
    (void)request;
    return gx_bart_is_mbart((const GxBartConfig *)config) ? "MBartForConditionalGeneration"
                                                          : "BartForConditionalGeneration";
}

GxStatus gx_bart_config_write(const GxBartConfig *c, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_family_set_type(json, c->model_type, gx__bart_family_architecture(c, NULL), err);
    gx_json_set_fields(json, gx__bart_family_options, GX__BART_FAMILY_OPTIONS, c, err);
    if (gx_bart_is_mbart(c)) gx_json_set(json, "decoder_start_token_id", gx_json_new_null(), err);
    gx_json_set(json, "is_encoder_decoder", gx_json_new_bool(1), err);
    gx_json_set(json, "tie_word_embeddings", gx_json_new_bool(1), err);
    gx_json_set(json, "forced_eos_token_id", gx_json_new_int(c->eos_token_id), err);
    return gx_family_write(json, path, err);
}

// ---- the family ----------------------------------------------------------------------------------------------------

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
    frame->has_languages = gx_bart_is_mbart(c);
    frame->begin = frame->has_languages ? -1 : (int32_t)c->bos_token_id, frame->end = (int32_t)c->eos_token_id;
    frame->pad = (int32_t)c->pad_token_id, frame->start = gx_bart_start(c);
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
