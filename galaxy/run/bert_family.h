// bert_family.h: BERT, RoBERTa, XLM-R and DistilBERT for the trainer: their options, their config.json, and the tasks
// that they can be trained for.
//
// Reading refuses by name what would change the arithmetic and is not supported (decoders, cross-attention, relative
// positions, pruned heads, other activations), and values of a wrong type. Missing members have the defaults of
// transformers' BertConfig, RobertaConfig, XLMRobertaConfig or DistilBertConfig, which has names of its own. Only two members may be null: classifier_dropout, which
// then equals hidden_dropout_prob, and of a BERT pad_token_id, with which every token's row is trained. As options,
// both have -1 for null.
#ifndef GX_BERT_FAMILY_H
#define GX_BERT_FAMILY_H
#include "../io/bnb.h"
#include "../io/json_fields.h"
#include "../model/bert.h"
#include "family_json.h"
GX_BEGIN

extern const GxFamily gx_bert;
extern const GxJsonKeys gx_bert_keys, gx_distilbert_keys; // of config.json

// Reads and resolves it. Keys that are not read are logged to `log`.
GxStatus gx_bert_config_read(GxBertConfig *c, const char *path, const GxLogger *log, GxError *err);
// request NULL: a head for masked tokens.
GxStatus gx_bert_config_write(const GxBertConfig *c, const GxHeadRequest *request, const char *path, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BERT_FAMILY_IMPLEMENTED)
#define GX_BERT_FAMILY_IMPLEMENTED
#include <stdio.h>
#include <string.h>
#include "../task/classification.h"
#include "../task/embedding.h"
#include "../task/masked_lm.h"
#include "../task/token_classification.h"

#define GX__BERT_FAMILY_AT(field) offsetof(GxBertConfig, field)
static const GxField gx__bert_family_options[] = {
    {"vocab_size", GX_FIELD_INT, GX__BERT_FAMILY_AT(vocab_size), "0",
     "rows of the embedding; 0: as many as the tokenizer has tokens", "0.."},
    {"hidden_size", GX_FIELD_INT, GX__BERT_FAMILY_AT(hidden_size), "192", "width of the residual stream", "1.."},
    {"intermediate_size", GX_FIELD_INT, GX__BERT_FAMILY_AT(intermediate_size), "768", "columns of the MLP", "1.."},
    {"num_hidden_layers", GX_FIELD_INT, GX__BERT_FAMILY_AT(num_hidden_layers), "4", "layers", "1.."},
    {"num_attention_heads", GX_FIELD_INT, GX__BERT_FAMILY_AT(num_attention_heads), "6", "heads", "1.."},
    {"max_position_embeddings", GX_FIELD_INT, GX__BERT_FAMILY_AT(max_position_embeddings), "512",
     "most tokens in a sequence; roberta, xlm-roberta: that, and pad_token_id + 1 (514 for 512 tokens)", "1.."},
    {"type_vocab_size", GX_FIELD_INT, GX__BERT_FAMILY_AT(type_vocab_size), "2",
     "number of token types: first text, second text", "1.."},
    {"pad_token_id", GX_FIELD_INT, GX__BERT_FAMILY_AT(pad_token_id), "0",
     "id of the padding token, whose row of the embedding gets no gradient from its look-ups; -1: none", "-1.."},
    {"hidden_act", GX_FIELD_STRING, GX__BERT_FAMILY_AT(hidden_act), "gelu",
     "activation of the MLP: gelu (with the error function), or gelu_new (with tanh, as GPT-2 has it)",
     "gelu|gelu_new"},
    {"hidden_dropout_prob", GX_FIELD_DOUBLE, GX__BERT_FAMILY_AT(hidden_dropout_prob), "0.1",
     "dropout of what attention and MLP add to the stream, and of the embedding", "0..1"},
    {"attention_probs_dropout_prob", GX_FIELD_DOUBLE, GX__BERT_FAMILY_AT(attention_probs_dropout_prob), "0.1",
     "dropout of attention's probabilities", "0..1"},
    {"classifier_dropout", GX_FIELD_DOUBLE, GX__BERT_FAMILY_AT(classifier_dropout), "-1",
     "dropout before a classifier; -1: hidden_dropout_prob, and of a distilbert 0.2", "-1..1"},
    {"layer_norm_eps", GX_FIELD_DOUBLE, GX__BERT_FAMILY_AT(layer_norm_eps), "1e-12",
     "epsilon of the norms, added to the variance", "1e-30.."},
    {"initializer_range", GX_FIELD_DOUBLE, GX__BERT_FAMILY_AT(initializer_range), "0.02",
     "standard deviation of the random initial weights", "0..1"},
    {"tie_word_embeddings", GX_FIELD_BOOL, GX__BERT_FAMILY_AT(tie_word_embeddings), "true",
     "use the embedding as the head for masked tokens, too", NULL},
    {"model_type", GX_FIELD_STRING, GX__BERT_FAMILY_AT(model_type), "bert",
     "model family; roberta and xlm-roberta are one model: positions begin behind pad_token_id, and heads are others; "
     "a distilbert has no token types",
     "bert|roberta|xlm-roberta|distilbert"},
};
enum {
    GX__BERT_FAMILY_OPTIONS = sizeof gx__bert_family_options / sizeof *gx__bert_family_options,
    GX__BERT_FAMILY_PLAIN = GX__BERT_FAMILY_OPTIONS - 1 // without model_type
};

// The model types: transformers' names, and its defaults for members that config.json leaves out. The heads: for masked
// tokens, for labels, for labels of tokens, for vectors, and for masked tokens and pairs (which only a BERT has).
typedef struct {
    const char *type, *masked, *labels, *token_labels, *vectors, *pairs;
    int64_t vocab_size, pad_token_id, layers;
} GxBertKind;
static const GxBertKind gx__bert_family_kinds[] = {
    {"bert", "BertForMaskedLM", "BertForSequenceClassification", "BertForTokenClassification", "BertModel",
     "BertForPreTraining", 30522, 0, 12},
    {"roberta", "RobertaForMaskedLM", "RobertaForSequenceClassification", "RobertaForTokenClassification",
     "RobertaModel", NULL, 50265, 1, 12},
    {"xlm-roberta", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification", "XLMRobertaForTokenClassification",
     "XLMRobertaModel", NULL, 30522, 1, 12},
    {"distilbert", "DistilBertForMaskedLM", "DistilBertForSequenceClassification", "DistilBertForTokenClassification",
     "DistilBertModel", NULL, 30522, 0, 6},
};
static const char *const gx__bert_family_types[] = {"bert", "roberta", "xlm-roberta", "distilbert", NULL};

static const GxBertKind *gx__bert_family_kind(const char *type)
{
    int i = 0;
    while (gx__bert_family_types[i] && strcmp(gx__bert_family_types[i], type)) i++;
    return &gx__bert_family_kinds[gx__bert_family_types[i] ? i : 0];
}

// ---- config.json ---------------------------------------------------------------------------------------------------

// 1: in config.json null stands for -1, since other libraries would not understand a number below 0.
static int gx__bert_family_takes_null(const GxField *f)
{
    return f->offset == GX__BERT_FAMILY_AT(classifier_dropout) || f->offset == GX__BERT_FAMILY_AT(pad_token_id);
}

// What a DistilBERT's config.json calls an option; NULL: it does not have it.
static const char *gx__bert_family_distilled(const char *option)
{
    static const char *const names[][2] = {{"hidden_size", "dim"},
                                           {"intermediate_size", "hidden_dim"},
                                           {"num_hidden_layers", "n_layers"},
                                           {"num_attention_heads", "n_heads"},
                                           {"hidden_act", "activation"},
                                           {"hidden_dropout_prob", "dropout"},
                                           {"attention_probs_dropout_prob", "attention_dropout"},
                                           {"classifier_dropout", "seq_classif_dropout"},
                                           {"type_vocab_size", NULL},
                                           {"layer_norm_eps", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i][0], option)) return names[i][1];
    return option;
}

#define GX__BERT_FAMILY_OLD "of the first BERT, and not looked at by transformers either"
static const GxJsonKey gx__bert_family_distilled_keys[] = {
    {"vocab_size", GX_KEY_READ, NULL},
    {"dim", GX_KEY_READ, NULL},
    {"hidden_dim", GX_KEY_READ, NULL},
    {"n_layers", GX_KEY_READ, NULL},
    {"n_heads", GX_KEY_READ, NULL},
    {"max_position_embeddings", GX_KEY_READ, NULL},
    {"pad_token_id", GX_KEY_READ, NULL},
    {"activation", GX_KEY_READ, NULL},
    {"dropout", GX_KEY_READ, NULL},
    {"attention_dropout", GX_KEY_READ, NULL},
    {"seq_classif_dropout", GX_KEY_READ, NULL},
    {"initializer_range", GX_KEY_READ, NULL},
    {"tie_word_embeddings", GX_KEY_READ, NULL},
    {"is_decoder", GX_KEY_READ, NULL},
    {"add_cross_attention", GX_KEY_READ, NULL},
    {"position_embedding_type", GX_KEY_READ, NULL},
    {"pruned_heads", GX_KEY_READ, NULL},
    {"sinusoidal_pos_embds", GX_KEY_HARMLESS, "how a new table of positions begins, and a folder has the table"},
    {"qa_dropout", GX_KEY_HARMLESS, "of a head for answers to questions"},
    {"tie_weights_", GX_KEY_HARMLESS, GX__BERT_FAMILY_OLD},
};

static const GxJsonKey gx__bert_family_keys[] = {
    {"vocab_size", GX_KEY_READ, NULL},
    {"hidden_size", GX_KEY_READ, NULL},
    {"intermediate_size", GX_KEY_READ, NULL},
    {"num_hidden_layers", GX_KEY_READ, NULL},
    {"num_attention_heads", GX_KEY_READ, NULL},
    {"max_position_embeddings", GX_KEY_READ, NULL},
    {"type_vocab_size", GX_KEY_READ, NULL},
    {"pad_token_id", GX_KEY_READ, NULL},
    {"hidden_act", GX_KEY_READ, NULL},
    {"hidden_dropout_prob", GX_KEY_READ, NULL},
    {"attention_probs_dropout_prob", GX_KEY_READ, NULL},
    {"classifier_dropout", GX_KEY_READ, NULL},
    {"layer_norm_eps", GX_KEY_READ, NULL},
    {"initializer_range", GX_KEY_READ, NULL},
    {"tie_word_embeddings", GX_KEY_READ, NULL},
    {"is_decoder", GX_KEY_READ, NULL},
    {"add_cross_attention", GX_KEY_READ, NULL},
    {"position_embedding_type", GX_KEY_READ, NULL},
    {"pruned_heads", GX_KEY_READ, NULL},
    {"directionality", GX_KEY_HARMLESS, GX__BERT_FAMILY_OLD},
    {"pooler_fc_size", GX_KEY_HARMLESS, GX__BERT_FAMILY_OLD},
    {"pooler_num_attention_heads", GX_KEY_HARMLESS, GX__BERT_FAMILY_OLD},
    {"pooler_num_fc_layers", GX_KEY_HARMLESS, GX__BERT_FAMILY_OLD},
    {"pooler_size_per_head", GX_KEY_HARMLESS, GX__BERT_FAMILY_OLD},
    {"pooler_type", GX_KEY_HARMLESS, GX__BERT_FAMILY_OLD},
};
const GxJsonKeys gx_bert_keys = {GX_KEYS(gx__bert_family_keys)};
const GxJsonKeys gx_distilbert_keys = {GX_KEYS(gx__bert_family_distilled_keys)};

// Sets *kind to that of the file's model_type.
static GxStatus gx__bert_family_refuse_unbuilt(const GxBertKind **kind, const GxJson *json, const char *path,
                                               const GxLogger *log, GxError *err)
{
    static const char *const needs[][2] = {{"is_decoder", "false"},
                                           {"add_cross_attention", "false"},
                                           {"position_embedding_type", "\"absolute\""},
                                           {"pruned_heads", "{}"}};
    GX_TRY(gx_family_check_type(json, gx__bert_family_types, path, err));
    const GxBertKind *k = *kind = gx__bert_family_kind(gx_json_string(gx_json_get(json, "model_type")));
    const char *const architectures[] = {k->masked,  k->labels, k->token_labels,
                                         k->vectors, k->pairs,  "BertForNextSentencePrediction",
                                         NULL}; // ends with k->pairs if that is NULL
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        GX_TRY(gx_family_need(json, needs[i][0], needs[i][1], path, err));
    GX_TRY(gx_bnb_check_config(gx_json_get(json, "quantization_config"), path, log, err));
    return gx_family_check_architecture(json, architectures, path, err);
}

static GxStatus gx__bert_family_read_field(GxBertConfig *c, const GxField *f, const GxJson *value, const char *path,
                                           GxError *err)
{
    GxField whole = *f;
    if (!value) return GX_OK;
    if (!gx__bert_family_takes_null(f)) return gx_json_take_field(value, f, c, path, GX_ERR_FORMAT, err);
    whole.allowed = f->type == GX_FIELD_INT ? "0.." : "0..1";
    if (gx_json_type(value) != GX_JSON_NULL) return gx_json_take_field(value, &whole, c, path, GX_ERR_FORMAT, err);
    if (f->type == GX_FIELD_INT) *(int64_t *)gx_field_at(f, c) = -1;
    else *(double *)gx_field_at(f, c) = -1;
    return GX_OK;
}

static GxStatus gx__bert_family_read_json(void *config, const GxJson *json, const char *path, const GxLogger *log,
                                          GxError *err)
{
    GxBertConfig *c = (GxBertConfig *)config;
    const GxBertKind *kind;
    GX_TRY(gx__bert_family_refuse_unbuilt(&kind, json, path, log, err));
    const int is_distilled = !strcmp(kind->type, "distilbert");
    c->vocab_size = kind->vocab_size, c->pad_token_id = kind->pad_token_id, c->num_hidden_layers = kind->layers;
    for (int i = 0; i < GX__BERT_FAMILY_OPTIONS; i++) {
        GxField f = gx__bert_family_options[i];
        f.name = is_distilled ? gx__bert_family_distilled(f.name) : f.name;
        if (f.name) GX_TRY(gx__bert_family_read_field(c, &f, gx_json_get(json, f.name), path, err));
    }
    const GxJsonKeys *keys = is_distilled ? &gx_distilbert_keys : &gx_bert_keys;
    return gx_family_check_keys(json, keys->key, keys->n, path, log, err);
}

static GxStatus gx__bert_family_resolve(void *config, GxError *err)
{
    return gx_bert_config_resolve((GxBertConfig *)config, err);
}

GxStatus gx_bert_config_read(GxBertConfig *c, const char *path, const GxLogger *log, GxError *err)
{
    const GxBertConfig absent = {30522, 768,    3072, 12,  12, 512,   2, // transformers' own defaults
                                 0,     "gelu", 0.1,  0.1, -1, 1e-12, 0.02, 1, "bert"};
    *c = absent;
    return gx_family_read(c, path, gx__bert_family_read_json, gx__bert_family_resolve, log, err);
}

static const char *gx__bert_family_architecture(const void *config, const GxHeadRequest *request)
{
    const GxBertKind *kind = gx__bert_family_kind(((const GxBertConfig *)config)->model_type);
    if (request && request->kind == GX_HEAD_LABELS) return kind->labels;
    if (request && request->kind == GX_HEAD_TOKEN_LABELS) return kind->token_labels;
    if (request && request->kind == GX_HEAD_VECTORS) return kind->vectors;
    return request && request->with_pairs && kind->pairs ? kind->pairs : kind->masked;
}

static GxStatus gx__bert_family_write_distilled(const GxBertConfig *c, GxJson *json, const GxHeadRequest *request,
                                                const char *path, GxError *err)
{
    for (int i = 0; i < GX__BERT_FAMILY_PLAIN; i++) {
        GxField f = gx__bert_family_options[i];
        f.name = gx__bert_family_distilled(f.name);
        if (f.name) gx_json_set_fields(json, &f, 1, c, err);
    }
    if (c->pad_token_id < 0) gx_json_set(json, "pad_token_id", gx_json_new_null(), err);
    gx_json_set(json, "sinusoidal_pos_embds", gx_json_new_bool(0), err);
    gx_family_set_labels(json, request, err);
    return gx_family_write(json, path, err);
}

GxStatus gx_bert_config_write(const GxBertConfig *c, const GxHeadRequest *request, const char *path, GxError *err)
{
    GxJson *json = gx_json_new_object();
    gx_family_set_type(json, gx__bert_family_kind(c->model_type)->type, gx__bert_family_architecture(c, request), err);
    if (gx_bert_is_distilled(c)) return gx__bert_family_write_distilled(c, json, request, path, err);
    gx_json_set_fields(json, gx__bert_family_options, GX__BERT_FAMILY_PLAIN, c, err);
    if (c->classifier_dropout < 0) gx_json_set(json, "classifier_dropout", gx_json_new_null(), err);
    if (c->pad_token_id < 0) gx_json_set(json, "pad_token_id", gx_json_new_null(), err);
    gx_json_set(json, "position_embedding_type", gx_json_new_string("absolute"), err);
    gx_family_set_labels(json, request, err);
    return gx_family_write(json, path, err);
}

// ---- the family ----------------------------------------------------------------------------------------------------

static int64_t *gx__bert_family_vocab_size(void *config) { return &((GxBertConfig *)config)->vocab_size; }

static GxStatus gx__bert_family_read(void *config, const char *path, const GxLogger *log, GxError *err)
{
    return gx_bert_config_read((GxBertConfig *)config, path, log, err);
}

static GxStatus gx__bert_family_write(const void *config, const GxHeadRequest *request, const char *path, GxError *err)
{
    return gx_bert_config_write((const GxBertConfig *)config, request, path, err);
}

static const GxTask *const gx__bert_family_tasks[] = {&gx_masked_lm, &gx_classification, &gx_token_classification,
                                                      &gx_embedding_task, NULL};

const GxFamily gx_bert = {
    "bert",
    gx__bert_family_options,
    GX__BERT_FAMILY_OPTIONS,
    sizeof(GxBertConfig),
    gx__bert_family_resolve,
    gx_bert_describe,
    gx__bert_family_vocab_size,
    gx__bert_family_read,
    gx__bert_family_write,
    gx__bert_family_architecture,
    NULL,
    "cls.predictions.*,cls.seq_relationship.*,bert.pooler.*,classifier.*,lm_head.*,roberta.pooler.*,vocab_transform.*,"
    "vocab_layer_norm.*,vocab_projector.*,pre_classifier.*",
    gx_bert_tensor_name,
    NULL,
    gx__bert_family_tasks,
    1, // frames_texts
    NULL,
};
#endif
