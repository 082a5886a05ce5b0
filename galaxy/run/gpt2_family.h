// gpt2_family.h: GPT-2 for the trainer: its options, its config.json, and the tasks that it can be trained for.
//
// Reading refuses by name what would change the arithmetic and is not supported (attention to an encoder, other
// activations), and values of a wrong type. Missing members have the defaults of transformers' GPT2Config. config.json
// may have the other families' names of four members (hidden_size, ...), which transformers takes for GPT-2's own.
#ifndef GX_GPT2_FAMILY_H
#define GX_GPT2_FAMILY_H
#include "../io/bnb.h"
#include "../io/json_fields.h"
#include "../model/gpt2.h"
#include "family_json.h"
GX_BEGIN

extern const GxFamily gx_gpt2;
extern const GxJsonKeys gx_gpt2_keys; // of config.json

// Reads and resolves it. Keys that are not read are logged to `log`.
GxStatus gx_gpt2_config_read(GxGpt2Config *c, const char *path, const GxLogger *log, GxError *err);
GxStatus gx_gpt2_config_write(const GxGpt2Config *c, const GxHeadRequest *request, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GPT2_FAMILY_IMPLEMENTED)
#define GX_GPT2_FAMILY_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../task/causal_lm.h"
#include "../task/classification.h"
#include "../task/dpo.h"

#define GX__GPT2_FAMILY_AT(field) offsetof(GxGpt2Config, field)
static const GxField gx__gpt2_family_options[] = {
    {"vocab_size", GX_FIELD_INT, GX__GPT2_FAMILY_AT(vocab_size), "0",
     "rows of the embedding; 0: as many as the tokenizer has tokens", "0.."},
    {"n_positions", GX_FIELD_INT, GX__GPT2_FAMILY_AT(n_positions), "1024", "most tokens in a text", "1.."},
    {"n_embd", GX_FIELD_INT, GX__GPT2_FAMILY_AT(n_embd), "192", "width of the residual stream", "1.."},
    {"n_layer", GX_FIELD_INT, GX__GPT2_FAMILY_AT(n_layer), "4", "layers", "1.."},
    {"n_head", GX_FIELD_INT, GX__GPT2_FAMILY_AT(n_head), "6", "number of attention's heads", "1.."},
    {"n_inner", GX_FIELD_INT, GX__GPT2_FAMILY_AT(n_inner), "0", "columns of the MLP; 0: 4 * n_embd", "0.."},
    {"activation_function", GX_FIELD_STRING, GX__GPT2_FAMILY_AT(activation_function), "gelu_new",
     "activation of the MLP: gelu_new (with tanh; gelu_pytorch_tanh is another name of it), gelu (with the error "
     "function), or relu",
     "gelu_new|gelu|relu|gelu_pytorch_tanh"},
    {"resid_pdrop", GX_FIELD_DOUBLE, GX__GPT2_FAMILY_AT(resid_pdrop), "0.1",
     "dropout of what attention and MLP add to the stream", "0..1"},
    {"embd_pdrop", GX_FIELD_DOUBLE, GX__GPT2_FAMILY_AT(embd_pdrop), "0.1",
     "dropout of the sums of tokens' and positions' rows", "0..1"},
    {"attn_pdrop", GX_FIELD_DOUBLE, GX__GPT2_FAMILY_AT(attn_pdrop), "0.1", "dropout of attention's probabilities",
     "0..1"},
    {"layer_norm_epsilon", GX_FIELD_DOUBLE, GX__GPT2_FAMILY_AT(layer_norm_epsilon), "1e-5",
     "epsilon of the norms, added to the variance", "1e-30.."},
    {"initializer_range", GX_FIELD_DOUBLE, GX__GPT2_FAMILY_AT(initializer_range), "0.02",
     "standard deviation of the random initial weights; those of c_proj have it divided by sqrt(2 n_layer)", "0..1"},
    {"scale_attn_weights", GX_FIELD_BOOL, GX__GPT2_FAMILY_AT(scale_attn_weights), "true",
     "divide attention's scores by the square root of a head's size", NULL},
    {"scale_attn_by_inverse_layer_idx", GX_FIELD_BOOL, GX__GPT2_FAMILY_AT(scale_attn_by_inverse_layer_idx), "false",
     "also divide them by the layer's number, counted from 1", NULL},
    {"tie_word_embeddings", GX_FIELD_BOOL, GX__GPT2_FAMILY_AT(tie_word_embeddings), "true",
     "use the embedding as the head, too", NULL},
    {"pad_token_id", GX_FIELD_INT, GX__GPT2_FAMILY_AT(pad_token_id), "-1",
     "id of the padding token, for programs that load the model; -1: none", "-1.."},
};
enum { GX__GPT2_FAMILY_OPTIONS = sizeof gx__gpt2_family_options / sizeof *gx__gpt2_family_options };

// ---- config.json ---------------------------------------------------------------------------------------------------

#define GX__GPT2_FAMILY_SUMMARY "of a head for the choice among several texts, which is not supported"
static const GxJsonKey gx__gpt2_family_keys[] = {
    {"vocab_size", GX_KEY_READ, NULL},
    {"n_positions", GX_KEY_READ, NULL},
    {"n_embd", GX_KEY_READ, NULL},
    {"n_layer", GX_KEY_READ, NULL},
    {"n_head", GX_KEY_READ, NULL},
    {"n_inner", GX_KEY_READ, NULL},
    {"max_position_embeddings", GX_KEY_READ, NULL},
    {"hidden_size", GX_KEY_READ, NULL},
    {"num_hidden_layers", GX_KEY_READ, NULL},
    {"num_attention_heads", GX_KEY_READ, NULL},
    {"activation_function", GX_KEY_READ, NULL},
    {"resid_pdrop", GX_KEY_READ, NULL},
    {"embd_pdrop", GX_KEY_READ, NULL},
    {"attn_pdrop", GX_KEY_READ, NULL},
    {"layer_norm_epsilon", GX_KEY_READ, NULL},
    {"initializer_range", GX_KEY_READ, NULL},
    {"scale_attn_weights", GX_KEY_READ, NULL},
    {"scale_attn_by_inverse_layer_idx", GX_KEY_READ, NULL},
    {"tie_word_embeddings", GX_KEY_READ, NULL},
    {"pad_token_id", GX_KEY_READ, NULL},
    {"reorder_and_upcast_attn", GX_KEY_HARMLESS, "attention's scores and probabilities are in fp32 always"},
    {"n_ctx", GX_KEY_HARMLESS, "n_positions, once more, and not looked at by transformers either"},
    {"is_decoder", GX_KEY_HARMLESS, "a GPT-2 is a decoder"},
    {"summary_type", GX_KEY_HARMLESS, GX__GPT2_FAMILY_SUMMARY},
    {"summary_use_proj", GX_KEY_HARMLESS, GX__GPT2_FAMILY_SUMMARY},
    {"summary_activation", GX_KEY_HARMLESS, GX__GPT2_FAMILY_SUMMARY},
    {"summary_proj_to_labels", GX_KEY_HARMLESS, GX__GPT2_FAMILY_SUMMARY},
    {"summary_first_dropout", GX_KEY_HARMLESS, GX__GPT2_FAMILY_SUMMARY},
    {"classifier_dropout", GX_KEY_HARMLESS, "of classifiers of tokens, which are not supported"},
    {"hidden_dropout", GX_KEY_HARMLESS, "as classifier_dropout"},
    {"predict_special_tokens", GX_KEY_HARMLESS, "a note of the first GPT, and not looked at by transformers either"},
    {"n_special", GX_KEY_HARMLESS, "as predict_special_tokens"},
    {"_num_labels", GX_KEY_HARMLESS, "num_labels, as older libraries wrote it"},
    {"attention_softmax_in_fp32", GX_KEY_HARMLESS, "as reorder_and_upcast_attn"},
    {"attention_head_type=\"multihead\"", GX_KEY_REFUSED, "heads would share keys and values"},
    {"afn", GX_KEY_REFUSED, "the activation would be another one"},
};
const GxJsonKeys gx_gpt2_keys = {GX_KEYS(gx__gpt2_family_keys)};

static GxStatus gx__gpt2_family_refuse_unbuilt(const GxJson *json, const char *path, const GxLogger *log, GxError *err)
{
    static const char *const architectures[] = {"GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification", NULL};
    static const char *const types[] = {"gpt2", NULL};
    GX_TRY(gx_family_check_type(json, types, path, err));
    GX_TRY(gx_bnb_check_config(gx_json_get(json, "quantization_config"), path, log, err));
    return gx_family_check_architecture(json, architectures, path, err);
}

// A member under its own name, or under that which other families have for it, which then becomes f's; with both, they
// must agree.
static GxStatus gx__gpt2_family_find(const GxJson **value, GxField *f, const GxJson *json, const char *path,
                                     GxError *err)
{
    static const char *const other[][2] = {{"n_positions", "max_position_embeddings"},
                                           {"n_embd", "hidden_size"},
                                           {"n_layer", "num_hidden_layers"},
                                           {"n_head", "num_attention_heads"}};
    const GxJson *own = *value = gx_json_get(json, f->name);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        const GxJson *also = strcmp(other[i][0], f->name) ? NULL : gx_json_get(json, other[i][1]);
        if (also && own && (gx_json_type(also) != GX_JSON_INT || gx_json_int(also) != gx_json_int(own)))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: %s and %s are two names of one number, but differ; remove one of them", path, f->name,
                           other[i][1]);
        if (also) *value = also, f->name = other[i][1];
        if (also) break;
    }
    return GX_OK;
}

// null stands for 0 in n_inner, and for -1 in pad_token_id.
static GxStatus gx__gpt2_family_read_field(GxGpt2Config *c, GxField f, const GxJson *json, const char *path,
                                           GxError *err)
{
    const GxJson *value;
    const int may_be_null = f.offset == GX__GPT2_FAMILY_AT(n_inner) || f.offset == GX__GPT2_FAMILY_AT(pad_token_id);
    GX_TRY(gx__gpt2_family_find(&value, &f, json, path, err));
    if (f.offset == GX__GPT2_FAMILY_AT(n_inner)) f.allowed = "1..";
    if (f.offset == GX__GPT2_FAMILY_AT(pad_token_id)) f.allowed = "0..";
    if (!value || (may_be_null && gx_json_type(value) == GX_JSON_NULL)) return GX_OK;
    return gx_json_take_field(value, &f, c, path, GX_ERR_FORMAT, err);
}

static GxStatus gx__gpt2_family_read_json(void *config, const GxJson *json, const char *path, const GxLogger *log,
                                          GxError *err)
{
    GX_TRY(gx__gpt2_family_refuse_unbuilt(json, path, log, err));
    for (int i = 0; i < GX__GPT2_FAMILY_OPTIONS; i++)
        GX_TRY(gx__gpt2_family_read_field((GxGpt2Config *)config, gx__gpt2_family_options[i], json, path, err));
    return gx_family_check_keys(json, GX_KEYS(gx__gpt2_family_keys), path, log, err);
}

static GxStatus gx__gpt2_family_resolve(void *config, GxError *err)
{
    return gx_gpt2_config_resolve((GxGpt2Config *)config, err);
}

GxStatus gx_gpt2_config_read(GxGpt2Config *c, const char *path, const GxLogger *log, GxError *err)
{
    const GxGpt2Config absent = {50257, 1024, 768,  12,   12, 0, "gelu_new", 0.1, // transformers' own defaults
                                 0.1,   0.1,  1e-5, 0.02, 1,  0, 1,          -1};
    *c = absent;
    return gx_family_read(c, path, gx__gpt2_family_read_json, gx__gpt2_family_resolve, log, err);
}

static const char *gx__gpt2_family_architecture(const void *config, const GxHeadRequest *request)
{
    (void)config;
    return request && request->kind == GX_HEAD_LABELS ? "GPT2ForSequenceClassification" : "GPT2LMHeadModel";
}

GxStatus gx_gpt2_config_write(const GxGpt2Config *c, const GxHeadRequest *request, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_family_set_type(json, "gpt2", gx__gpt2_family_architecture(c, request), err);
    gx_json_set_fields(json, gx__gpt2_family_options, GX__GPT2_FAMILY_OPTIONS, c, err);
    gx_json_set(json, "n_ctx", gx_json_new_int(c->n_positions), err); // which older programs read
    if (c->pad_token_id < 0) gx_json_set(json, "pad_token_id", gx_json_new_null(), err);
    gx_json_set(json, "bos_token_id", gx_json_new_null(), err); // if absent, transformers would take 50256
    gx_json_set(json, "eos_token_id", gx_json_new_null(), err);
    gx_family_set_labels(json, request, err);
    return gx_family_write(json, path, err);
}

// ---- the family ----------------------------------------------------------------------------------------------------

static int64_t *gx__gpt2_family_vocab_size(void *config) { return &((GxGpt2Config *)config)->vocab_size; }

static GxStatus gx__gpt2_family_read(void *config, const char *path, const GxLogger *log, GxError *err)
{
    return gx_gpt2_config_read((GxGpt2Config *)config, path, log, err);
}

static GxStatus gx__gpt2_family_write(const void *config, const GxHeadRequest *request, const char *path, GxError *err)
{
    return gx_gpt2_config_write((const GxGpt2Config *)config, request, path, err);
}

static const GxTask *const gx__gpt2_family_tasks[] = {&gx_causal_lm, &gx_classification, &gx_dpo, NULL};

const GxFamily gx_gpt2 = {
    "gpt2",
    gx__gpt2_family_options,
    GX__GPT2_FAMILY_OPTIONS,
    sizeof(GxGpt2Config),
    gx__gpt2_family_resolve,
    gx_gpt2_describe,
    gx__gpt2_family_vocab_size,
    gx__gpt2_family_read,
    gx__gpt2_family_write,
    gx__gpt2_family_architecture,
    NULL,
    "lm_head.weight,score.weight",
    gx_gpt2_tensor_name,
    NULL,
    gx__gpt2_family_tasks,
    0, // frames_texts
    NULL,
};
#endif
