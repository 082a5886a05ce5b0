// bert.h: BERT (Devlin et al. 2018, arXiv:1810.04805) as a family, with RoBERTa (Liu et al. 2019, arXiv:1907.11692),
// XLM-R (Conneau et al. 2019, arXiv:1911.02116) and DistilBERT (Sanh et al. 2019, arXiv:1910.01108), which model_type
// names: its configuration, the names of its tensors, and the description of its units.
//
//     embed   x = dropout(norm(tokens' rows + positions' + types'))
//     layer   x1 = norm(x + dropout(ATT(x))),  y = norm(x1 + dropout(MLP(x1)))
//     head    masked tokens: loss = cross-entropy(norm(gelu(x W^T + b)) E^T + b), E the embedding; with pairs of texts,
//             whether the second follows the first: cross-entropy(tanh(x0 W^T + b) V^T + b), x0 the row of [CLS]
//             labels: the loss of the outputs dropout(tanh(x0 W^T + b)) V^T + b
//             labels of tokens: cross-entropy(dropout(x) V^T + b), of every token's row x
//             vectors: the mean of a text's rows (vectors.h)
//
// Attention is bidirectional within a text; it does not reach other texts in the same column of the batch, or padding.
// The padding token's row of the embedding gets no gradient from lookups (as in transformers), but does from a tied
// head.
//
// RoBERTa and XLM-R are one model with two names. In them a text's first position is row pad_token_id + 1 of the table
// of positions, and a padding token within a text is not counted: its own is row pad_token_id, which gets no gradient.
// There is no head for pairs of texts, the activation of the head for masked tokens is always gelu, and the row that
// labels are computed from passes a dropout, too: dropout(tanh(dropout(x0) W^T + b)) V^T + b.
//
// A DistilBERT has no types and no head for pairs, no dropout behind attention, and a relu where the head for labels of
// a BERT has the tanh. hidden_dropout_prob is its `dropout`, classifier_dropout its `seq_classif_dropout`, which the
// head for labels of tokens does not use. The epsilon of its norms is always 1e-12.
#ifndef GX_BERT_H
#define GX_BERT_H
#include "cores.h"
#include "build.h"
GX_BEGIN

#define GX_BERT_EPS 1e-12 // the defaults of layer_norm_eps and of type_vocab_size
enum { GX_BERT_TYPES = 2 };

typedef struct { // names as in Hugging Face's config.json
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
    int64_t max_position_embeddings, type_vocab_size, pad_token_id;
    char hidden_act[GX_FIELD_TEXT]; // "gelu", "gelu_new"
    // the last: -1 = hidden_dropout_prob; distilbert: 0.2
    double hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout;
    double layer_norm_eps, initializer_range;
    int tie_word_embeddings;
    char model_type[GX_FIELD_TEXT]; // "bert", "roberta", "xlm-roberta", "distilbert"; empty: "bert"
} GxBertConfig;

int gx_bert_is_roberta(const GxBertConfig *c);   // 1: it is a RoBERTa or an XLM-R
int gx_bert_is_distilled(const GxBertConfig *c); // 1: it is a DistilBERT
// The row of the table of positions that a text begins with; the table has as many rows more than a text has tokens.
int64_t gx_bert_first_position(const GxBertConfig *c);

GxStatus gx_bert_config_resolve(GxBertConfig *c, GxError *err); // an error if a value is invalid

void gx_bert_describe(GxContext *g, GxModel *m); // of m->config, with the head that m->head asks for

// Translates names of older files and of files without a head: "embeddings.LayerNorm.gamma" becomes
// "bert.embeddings.LayerNorm.weight", or "roberta.…" or "distilbert.…" if t, the model's table, has such names (NULL:
// it has not).
// Returns 0 if the tensor is not needed ("embeddings.position_ids"), otherwise 1.
int gx_bert_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BERT_IMPLEMENTED)
#define GX_BERT_IMPLEMENTED
#include <stdio.h>
#include <string.h>

// ---- configuration -------------------------------------------------------------------------------------------------

int gx_bert_is_distilled(const GxBertConfig *c) { return !strcmp(c->model_type, "distilbert"); }
int gx_bert_is_roberta(const GxBertConfig *c)
{
    return c->model_type[0] && strcmp(c->model_type, "bert") != 0 && !gx_bert_is_distilled(c);
}
int64_t gx_bert_first_position(const GxBertConfig *c) { return gx_bert_is_roberta(c) ? c->pad_token_id + 1 : 0; }

static GxStatus gx__bert_check_positions(const GxBertConfig *c, GxError *err)
{
    if (!gx_bert_is_roberta(c)) return GX_OK;
    if (c->pad_token_id < 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "a %s needs a pad_token_id, with whose number its positions begin, but it is %ld (none)",
                       c->model_type, (long)c->pad_token_id);
    if (c->max_position_embeddings > gx_bert_first_position(c)) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "max_position_embeddings is %ld, but the positions of a %s begin with pad_token_id + 1, which is %ld; "
        "it must be the most tokens of a text and that",
        (long)c->max_position_embeddings, c->model_type, (long)gx_bert_first_position(c));
}

// What a DistilBERT cannot have: it has no such member in its config.json.
static GxStatus gx__bert_check_distilled(const GxBertConfig *c, GxError *err)
{
    if (!gx_bert_is_distilled(c)) return GX_OK;
    if (c->type_vocab_size != GX_BERT_TYPES)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "type_vocab_size is %ld, but a distilbert has no token types; leave type_vocab_size out",
                       (long)c->type_vocab_size);
    if (c->layer_norm_eps != GX_BERT_EPS)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "layer_norm_eps is %g, but the norms of a distilbert always have %g; leave layer_norm_eps out",
                       c->layer_norm_eps, GX_BERT_EPS);
    return GX_OK;
}

static GxStatus gx__bert_check_sizes(const GxBertConfig *c, GxError *err)
{
    // keeps sizes in bytes far below 2^63
    GX_TRY(gx_check_size("vocab_size", c->vocab_size, 1 << 24, err));
    GX_TRY(gx_check_size("hidden_size", c->hidden_size, 1 << 20, err));
    GX_TRY(gx_check_size("intermediate_size", c->intermediate_size, 1 << 22, err));
    GX_TRY(gx_check_size("num_hidden_layers", c->num_hidden_layers, 1000, err));
    GX_TRY(gx_check_size("num_attention_heads", c->num_attention_heads, 1 << 16, err));
    GX_TRY(gx_check_size("max_position_embeddings", c->max_position_embeddings, 1 << 24, err));
    GX_TRY(gx_check_size("type_vocab_size", c->type_vocab_size, 1 << 16, err));
    if (c->hidden_size % c->num_attention_heads)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "hidden_size (%ld) is not a multiple of num_attention_heads (%ld)",
                       (long)c->hidden_size, (long)c->num_attention_heads);
    if (c->pad_token_id >= c->vocab_size)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "pad_token_id is %ld; it must be -1 (none) or an id of the vocabulary, which ends at %ld",
                       (long)c->pad_token_id, (long)c->vocab_size - 1);
    GX_TRY(gx__bert_check_distilled(c, err));
    return gx__bert_check_positions(c, err);
}

GxStatus gx_bert_config_resolve(GxBertConfig *c, GxError *err)
{
    const struct {
        const char *name;
        double value;
    } rates[] = {{"hidden_dropout_prob", c->hidden_dropout_prob},
                 {"attention_probs_dropout_prob", c->attention_probs_dropout_prob},
                 {"classifier_dropout", c->classifier_dropout == -1 ? 0 : c->classifier_dropout}};
    if (gx_bert_is_distilled(c) && c->classifier_dropout == -1) c->classifier_dropout = 0.2;
    GX_TRY(gx__bert_check_sizes(c, err));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (!(rates[i].value >= 0 && rates[i].value < 1))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %g; it must be at least 0 and below 1", rates[i].name,
                           rates[i].value);
    if (!(c->layer_norm_eps > 0))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "layer_norm_eps is %g; it must be above 0", c->layer_norm_eps);
    if (strcmp(c->hidden_act, "gelu") && strcmp(c->hidden_act, "gelu_new"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "hidden_act is \"%s\"; supported: \"gelu\" and \"gelu_new\"",
                       c->hidden_act);
    return GX_OK;
}

static const char *gx__bert_prefix(const GxTable *t)
{
    static const char *const others[] = {"roberta.", "distilbert."};
    for (int i = 0; t && i < t->n; i++)
        for (int k = 0; k < 2; k++)
            if (!strncmp(t->row[i].name, others[k], strlen(others[k]))) return others[k];
    return "bert.";
}

int gx_bert_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME])
{
    static const char *const parts[] = {"embeddings.", "encoder.", "transformer.", "pooler."};
    static const struct {
        const char *old, *now;
    } endings[] = {{".gamma", ".weight"}, {".beta", ".bias"}};
    const char *prefix = "";
    if (strstr(in_file, "embeddings.position_ids")) return 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(in_file, parts[i], strlen(parts[i]))) prefix = gx__bert_prefix(t);
    snprintf(name, GX_NAME, "%s%s", prefix, in_file);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const int64_t n = gx_text_stem(name, endings[i].old);
        if (n > 0) snprintf(name + n, (size_t)(GX_NAME - n), "%s", endings[i].now);
    }
    return 1;
}

// ---- units ---------------------------------------------------------------------------------------------------------

// The sets of names.
typedef struct {
    const char *words, *positions, *types, *norm;            // embeddings
    const char *att[4], *att_norm, *mlp[2], *mlp_norm;       // layers
    const char *transform, *transform_norm, *decoder, *bias; // head for masked tokens
    const char *pool, *labels;                               // head for labels
} gx__BertNames;
#define GX__BERT_BODY(model)                                                                                           \
    model ".embeddings.word_embeddings", model ".embeddings.position_embeddings",                                      \
        model ".embeddings.token_type_embeddings", model ".embeddings.LayerNorm",                                      \
        {model ".encoder.layer.%d.attention.self.query", model ".encoder.layer.%d.attention.self.key",                 \
         model ".encoder.layer.%d.attention.self.value", model ".encoder.layer.%d.attention.output.dense"},            \
        model ".encoder.layer.%d.attention.output.LayerNorm",                                                          \
        {model ".encoder.layer.%d.intermediate.dense", model ".encoder.layer.%d.output.dense"},                        \
        model ".encoder.layer.%d.output.LayerNorm"

static const gx__BertNames *gx__bert_names(const GxBertConfig *c)
{
    static const gx__BertNames bert = {GX__BERT_BODY("bert"),
                                       "cls.predictions.transform.dense",
                                       "cls.predictions.transform.LayerNorm",
                                       "cls.predictions.decoder",
                                       "cls.predictions",
                                       "bert.pooler.dense",
                                       "classifier"},
                               roberta = {GX__BERT_BODY("roberta"), "lm_head.dense", "lm_head.layer_norm",
                                          "lm_head.decoder",        "lm_head",       "classifier.dense",
                                          "classifier.out_proj"},
                               distilled = {"distilbert.embeddings.word_embeddings",
                                            "distilbert.embeddings.position_embeddings",
                                            NULL, // types
                                            "distilbert.embeddings.LayerNorm",
                                            {"distilbert.transformer.layer.%d.attention.q_lin",
                                             "distilbert.transformer.layer.%d.attention.k_lin",
                                             "distilbert.transformer.layer.%d.attention.v_lin",
                                             "distilbert.transformer.layer.%d.attention.out_lin"},
                                            "distilbert.transformer.layer.%d.sa_layer_norm",
                                            {"distilbert.transformer.layer.%d.ffn.lin1",
                                             "distilbert.transformer.layer.%d.ffn.lin2"},
                                            "distilbert.transformer.layer.%d.output_layer_norm",
                                            "vocab_transform",
                                            "vocab_layer_norm",
                                            "vocab_projector",
                                            NULL, // the bias is the decoder's
                                            "pre_classifier",
                                            "classifier"};
    return gx_bert_is_roberta(c) ? &roberta : gx_bert_is_distilled(c) ? &distilled : &bert;
}

static GxUnitSpec gx__bert_unit(const GxBertConfig *c, const char *name, int n_pairs)
{
    GxUnitSpec u = GX_ZERO;
    u.name = name, u.n_pairs = n_pairs;
    u.width = c->hidden_size;
    u.init_std = (float)c->initializer_range;
    return u;
}

static GxActivation gx__bert_activation(const GxBertConfig *c)
{
    return strcmp(c->hidden_act, "gelu") ? GX_GELU_NEW : GX_GELU;
}

static GxUnitSpec gx__bert_embed(const GxBertConfig *c)
{
    const gx__BertNames *names = gx__bert_names(c);
    GxUnitSpec u = gx__bert_unit(c, "embed", 1);
    GxPairSpec *p = &u.pair[0];
    p->core.kind = GX_CORE_EMBED, p->core.vocab = c->vocab_size, p->core.ignored = c->pad_token_id;
    p->core.matrix[0] = names->words;
    p->con.kind = GX_CON_EMBED, p->con.has_norm = 1;
    p->con.eps = (float)c->layer_norm_eps, p->con.dropout = (float)c->hidden_dropout_prob;
    p->con.positions = c->max_position_embeddings, p->con.types = names->types ? c->type_vocab_size : 0;
    p->con.first_position = gx_bert_first_position(c), p->con.skips_padding = gx_bert_is_roberta(c);
    p->con.positions_name = names->positions, p->con.types_name = names->types, p->con.norm_name = names->norm;
    return u;
}

static GxConSpec gx__bert_con(const GxBertConfig *c, const char *norm, double dropout)
{
    GxConSpec con;
    memset(&con, 0, sizeof con);
    con.kind = GX_CON_ADD, con.has_bias = con.has_norm = 1;
    con.eps = (float)c->layer_norm_eps, con.dropout = (float)dropout;
    con.norm_name = norm;
    return con;
}

static GxUnitSpec gx__bert_layer(const GxBertConfig *c)
{
    const gx__BertNames *names = gx__bert_names(c);
    GxUnitSpec u = gx__bert_unit(c, "layer", 2);
    GxPairSpec *att = &u.pair[0], *mlp = &u.pair[1];
    att->con = gx__bert_con(c, names->att_norm, gx_bert_is_distilled(c) ? 0 : c->hidden_dropout_prob);
    mlp->con = gx__bert_con(c, names->mlp_norm, c->hidden_dropout_prob);
    att->core.kind = GX_CORE_ATT, att->core.has_bias = 1;
    att->core.heads = att->core.kv_heads = c->num_attention_heads;
    att->core.head_dim = c->hidden_size / c->num_attention_heads;
    att->core.dropout = (float)c->attention_probs_dropout_prob;
    for (int i = 0; i < 4; i++) att->core.matrix[i] = names->att[i];
    mlp->core.kind = GX_CORE_MLP, mlp->core.has_bias = 1;
    mlp->core.activation = gx__bert_activation(c), mlp->core.columns = c->intermediate_size;
    for (int i = 0; i < 2; i++) mlp->core.matrix[i] = names->mlp[i];
    return u;
}

static GxPairSpec gx__bert_masked(const GxBertConfig *c)
{
    const gx__BertNames *names = gx__bert_names(c);
    GxPairSpec p;
    memset(&p, 0, sizeof p);
    p.enter.kind = GX_ENTER_TRANSFORM, p.enter.norm = GX_LAYER_NORM, p.enter.eps = (float)c->layer_norm_eps;
    p.enter.activation = gx_bert_is_roberta(c) ? GX_GELU : gx__bert_activation(c);
    p.enter.matrix = names->transform, p.enter.norm_name = names->transform_norm;
    p.core.kind = GX_CORE_HEAD, p.core.vocab = c->vocab_size, p.core.has_bias = 1;
    p.core.is_tied = c->tie_word_embeddings;
    p.core.matrix[0] = names->decoder, p.core.bias = names->bias;
    p.con.kind = GX_CON_NOTHING;
    return p;
}

static GxPairSpec gx__bert_labels(const GxBertConfig *c, const char *matrix, int64_t labels, GxLossKind loss,
                                  double dropout, int target)
{
    GxPairSpec p;
    memset(&p, 0, sizeof p);
    p.enter.kind = GX_ENTER_POOL, p.enter.matrix = gx__bert_names(c)->pool, p.enter.dropout = (float)dropout;
    p.enter.input_dropout = gx_bert_is_roberta(c) ? (float)dropout : 0;
    p.enter.is_relu = gx_bert_is_distilled(c);
    p.core.kind = GX_CORE_LABELS, p.core.vocab = labels, p.core.has_bias = 1, p.core.loss = loss;
    p.core.target = target;
    p.core.matrix[0] = matrix;
    p.con.kind = GX_CON_NOTHING;
    return p;
}

static GxPairSpec gx__bert_token_labels(const GxBertConfig *c, int64_t labels, double dropout)
{
    GxPairSpec p;
    memset(&p, 0, sizeof p);
    p.enter.kind = GX_ENTER_DROPOUT;
    p.enter.dropout = (float)(gx_bert_is_distilled(c) ? c->hidden_dropout_prob : dropout);
    p.core.kind = GX_CORE_LABELS, p.core.vocab = labels, p.core.has_bias = 1, p.core.loss = GX_CROSS_ENTROPY;
    p.core.matrix[0] = "classifier";
    p.con.kind = GX_CON_NOTHING;
    return p;
}

static GxUnitSpec gx__bert_head(const GxBertConfig *c, const GxHeadRequest *request)
{
    const double dropout = c->classifier_dropout < 0 ? c->hidden_dropout_prob : c->classifier_dropout;
    GxUnitSpec u = gx__bert_unit(c, "head", 1);
    if (request->kind == GX_HEAD_VECTORS) {
        u.pair[0].core.kind = GX_CORE_VECTORS;
        return u;
    }
    if (request->kind == GX_HEAD_LABELS) {
        u.pair[0] = gx__bert_labels(c, gx__bert_names(c)->labels, request->labels, request->loss, dropout, 0);
        return u;
    }
    if (request->kind == GX_HEAD_TOKEN_LABELS) {
        u.pair[0] = gx__bert_token_labels(c, request->labels, dropout);
        return u;
    }
    u.pair[0] = gx__bert_masked(c);
    if (!request->with_pairs) return u;
    u.n_pairs = 2;
    u.pair[1] = gx__bert_labels(c, "cls.seq_relationship", 2, GX_CROSS_ENTROPY, 0, 1);
    return u;
}

void gx_bert_describe(GxContext *g, GxModel *m)
{
    const GxBertConfig *c = (const GxBertConfig *)m->config;
    if (m->head.kind == GX_HEAD_CAUSAL)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "a BERT has a head for masked tokens, for labels, for labels of tokens or for vectors; this task asks "
                "for %s",
                gx_head_name(m->head.kind));
    if (m->head.with_pairs && (gx_bert_is_roberta(c) || gx_bert_is_distilled(c)))
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "a model of type %s has no head for pairs of texts, which --nsp trains; leave it out", c->model_type);
    if (m->head.kind == GX_HEAD_LABELS && gx_bert_is_roberta(c) && gx_model_has_adapter(m))
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "an adapter (--tuning) of a model of type %s with a head for labels, whose two matrices peft names as "
                "one module, is not supported yet; train the whole model: --tuning full",
                c->model_type);
    if (gx_failed(g)) return;
    const GxUnitSpec embed = gx__bert_embed(c), layer = gx__bert_layer(c), head = gx__bert_head(c, &m->head);
    m->max_positions = c->max_position_embeddings - gx_bert_first_position(c);
    gx_model_chain(g, m, &embed, &layer, c->num_hidden_layers, &head);
}
#endif
