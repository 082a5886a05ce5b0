// bart.h: BART (Lewis et al. 2019, arXiv:1910.13461) as a family: its configuration, the names of its tensors, and the
// description of its units; and mBART (Liu et al. 2020, arXiv:2001.08210), which has norms before cores.
//
//     embed            x = dropout(norm(scale * tokens' rows + positions'))       of the source
//     encoder layer    x1 = norm(x + dropout(ATT(x))),  y = norm(x1 + dropout(MLP(x1)))
//     memory           what the encoder's last layer gives
//     decoder embed    as embed, with the same table of tokens                    of the target, one place to the right
//     decoder layer    x1 = norm(x + dropout(ATT(x))),  x2 = norm(x1 + dropout(cross ATT(x1, memory))),
//                      y = norm(x2 + dropout(MLP(x2)))
//     head             loss = cross-entropy(x E^T), E the table of tokens
//
// In an mBART
//
//     encoder layer    x1 = x + dropout(ATT(norm(x))),  y = x1 + dropout(MLP(norm(x1)))
//     memory           norm(x)
//     decoder layer    x1 = x + dropout(ATT(norm(x))),  x2 = x1 + dropout(cross ATT(norm(x1), memory)),
//                      y = x2 + dropout(MLP(norm(x2)))
//     head             loss = cross-entropy(norm(x) E^T)
//
// scale is 1, or sqrt(d_model) with scale_embedding; the head's E is without it.
// The encoder's attention is bidirectional, the decoder's causal; cross attention reads the whole source. Positions count
// from 0 in both texts, and position t is row t + 2 of its table. The padding token's row of the table of tokens gets no
// gradient from lookups (as in transformers), but does from the head.
#ifndef GX_BART_H
#define GX_BART_H
#include "build.h"
#include "cores.h"
GX_BEGIN

typedef struct { // names as in Hugging Face's config.json
    int64_t vocab_size, d_model, encoder_layers, decoder_layers, encoder_attention_heads, decoder_attention_heads;
    int64_t encoder_ffn_dim, decoder_ffn_dim, max_position_embeddings;
    int64_t pad_token_id, bos_token_id, eos_token_id;
    int64_t decoder_start_token_id;          // -1: 2 for a BART; an mBART begins with the target's language instead
    char activation_function[GX_FIELD_TEXT]; // "gelu", "gelu_new", "relu"
    double dropout, attention_dropout, activation_dropout, init_std;
    int scale_embedding;            // 1: rows of tokens are multiplied by sqrt(d_model) when they are looked up
    char model_type[GX_FIELD_TEXT]; // "bart", "mbart"
} GxBartConfig;

enum {
    GX_BART_FIRST_POSITION = 2, // rows of the table of positions before that of position 0
    GX_BART_START = 2           // a BART's usual decoder_start_token_id
};

// Fills in a BART's decoder_start_token_id; an error if a value is invalid.
GxStatus gx_bart_config_resolve(GxBartConfig *c, GxError *err);
int gx_bart_is_mbart(const GxBartConfig *c);
int32_t gx_bart_start(const GxBartConfig *c); // decoder_start_token_id, also before it is filled in; -1: an mBART

void gx_bart_describe(GxContext *g, GxModel *m); // of m->config

// Translates names of files of a BartModel, which lack "model.". Returns 0 if the tensor is not needed
// (final_logits_bias, which is 0), otherwise 1.
int gx_bart_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BART_IMPLEMENTED)
#define GX_BART_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- configuration -------------------------------------------------------------------------------------------------

static GxStatus gx__bart_check_sizes(const GxBartConfig *c, GxError *err)
{
    const struct {
        const char *name;
        int64_t heads;
    } stacks[] = {{"encoder_attention_heads", c->encoder_attention_heads},
                  {"decoder_attention_heads", c->decoder_attention_heads}};
    // keeps sizes in bytes far below 2^63
    GX_TRY(gx_check_size("vocab_size", c->vocab_size, 1 << 24, err));
    GX_TRY(gx_check_size("d_model", c->d_model, 1 << 20, err));
    GX_TRY(gx_check_size("encoder_ffn_dim", c->encoder_ffn_dim, 1 << 22, err));
    GX_TRY(gx_check_size("decoder_ffn_dim", c->decoder_ffn_dim, 1 << 22, err));
    GX_TRY(gx_check_size("encoder_layers", c->encoder_layers, 500, err));
    GX_TRY(gx_check_size("decoder_layers", c->decoder_layers, 500, err));
    GX_TRY(gx_check_size("max_position_embeddings", c->max_position_embeddings, 1 << 24, err));
    for (int i = 0; i < 2; i++) {
        GX_TRY(gx_check_size(stacks[i].name, stacks[i].heads, 1 << 16, err));
        if (c->d_model % stacks[i].heads)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "d_model (%ld) is not a multiple of %s (%ld)", (long)c->d_model,
                           stacks[i].name, (long)stacks[i].heads);
    }
    return GX_OK;
}

static GxStatus gx__bart_check_tokens(const GxBartConfig *c, GxError *err)
{
    const struct {
        const char *name;
        int64_t id;
    } tokens[] = {{"pad_token_id", c->pad_token_id},
                  {"bos_token_id", c->bos_token_id},
                  {"eos_token_id", c->eos_token_id},
                  {"decoder_start_token_id", c->decoder_start_token_id}};
    const size_t n = sizeof tokens / sizeof *tokens - gx_bart_is_mbart(c); // an mBART does not have the last
    for (size_t i = 0; i < n; i++)
        if (tokens[i].id < 0 || tokens[i].id >= c->vocab_size)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; it must be an id of the vocabulary, 0 to %ld",
                           tokens[i].name, (long)tokens[i].id, (long)c->vocab_size - 1);
    return GX_OK;
}

static const struct {
    const char *name;
    GxActivation activation;
} gx__bart_activations[] = {{"gelu", GX_GELU}, {"gelu_new", GX_GELU_NEW}, {"relu", GX_RELU}};
enum { GX__BART_ACTIVATIONS = sizeof gx__bart_activations / sizeof *gx__bart_activations };

static int gx__bart_activation(const GxBartConfig *c) // its row above; -1: not supported
{
    for (int i = 0; i < GX__BART_ACTIVATIONS; i++)
        if (!strcmp(c->activation_function, gx__bart_activations[i].name)) return i;
    return -1;
}

int gx_bart_is_mbart(const GxBartConfig *c) { return !strcmp(c->model_type, "mbart"); }

int32_t gx_bart_start(const GxBartConfig *c)
{
    if (gx_bart_is_mbart(c) || c->decoder_start_token_id >= 0) return (int32_t)c->decoder_start_token_id;
    return GX_BART_START;
}

static GxStatus gx__bart_check_type(const GxBartConfig *c, GxError *err)
{
    if (strcmp(c->model_type, "bart") && !gx_bart_is_mbart(c))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "model_type is \"%s\"; supported: \"bart\" and \"mbart\"",
                       c->model_type);
    if (gx_bart_is_mbart(c) && c->decoder_start_token_id >= 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "decoder_start_token_id is %ld, but the decoder of an mBART first reads the language of the "
                       "target, which --target_lang names; leave it out",
                       (long)c->decoder_start_token_id);
    return GX_OK;
}

GxStatus gx_bart_config_resolve(GxBartConfig *c, GxError *err)
{
    const struct {
        const char *name;
        double value;
    } rates[] = {{"dropout", c->dropout},
                 {"attention_dropout", c->attention_dropout},
                 {"activation_dropout", c->activation_dropout}};
    GX_TRY(gx__bart_check_type(c, err));
    c->decoder_start_token_id = gx_bart_start(c);
    GX_TRY(gx__bart_check_sizes(c, err));
    GX_TRY(gx__bart_check_tokens(c, err));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (!(rates[i].value >= 0 && rates[i].value < 1))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %g; it must be at least 0 and below 1", rates[i].name,
                           rates[i].value);
    if (gx__bart_activation(c) < 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "activation_function is \"%s\"; supported: \"gelu\", \"gelu_new\" and \"relu\"",
                       c->activation_function);
    return GX_OK;
}

int gx_bart_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME])
{
    static const char *const parts[] = {"shared.", "encoder.", "decoder."};
    const char *prefix = "";
    (void)t;
    if (!strcmp(in_file, "final_logits_bias")) return 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strncmp(in_file, parts[i], strlen(parts[i]))) prefix = "model.";
    snprintf(name, GX_NAME, "%s%s", prefix, in_file);
    return 1;
}

// ---- units ---------------------------------------------------------------------------------------------------------

// The two stacks, and what differs between them.
typedef struct {
    const GxBartConfig *c;
    int is_encoder;
    int64_t heads, columns;
} gx__BartStack;

static gx__BartStack gx__bart_stack(const GxBartConfig *c, int is_encoder)
{
    gx__BartStack s = {c, is_encoder, is_encoder ? c->encoder_attention_heads : c->decoder_attention_heads,
                       is_encoder ? c->encoder_ffn_dim : c->decoder_ffn_dim};
    return s;
}

static GxUnitSpec gx__bart_unit(const gx__BartStack *s, const char *name, int n_pairs)
{
    GxUnitSpec u = GX_ZERO;
    u.name = name, u.n_pairs = n_pairs, u.is_encoder = s->is_encoder;
    u.width = s->c->d_model;
    u.init_std = (float)s->c->init_std;
    return u;
}

static const float gx__bart_eps = 1e-5f; // of all norms

static GxConSpec gx__bart_con(const gx__BartStack *s, const char *norm) // norm NULL: none
{
    GxConSpec con;
    memset(&con, 0, sizeof con);
    con.kind = GX_CON_ADD, con.has_bias = 1, con.has_norm = norm != NULL;
    con.eps = gx__bart_eps, con.dropout = (float)s->c->dropout;
    con.norm_name = norm;
    return con;
}

static GxEnterSpec gx__bart_enter(const char *norm)
{
    GxEnterSpec enter;
    memset(&enter, 0, sizeof enter);
    enter.kind = GX_ENTER_NORM, enter.norm = GX_LAYER_NORM;
    enter.eps = gx__bart_eps, enter.norm_name = norm;
    return enter;
}

// The norm of a pair: behind CON, or before the core.
static void gx__bart_norm(const gx__BartStack *s, GxPairSpec *p, const char *norm)
{
    const int is_before = gx_bart_is_mbart(s->c);
    if (is_before) p->enter = gx__bart_enter(norm);
    p->con = gx__bart_con(s, is_before ? NULL : norm);
}

static GxUnitSpec gx__bart_embed(const gx__BartStack *s)
{
    GxUnitSpec u = gx__bart_unit(s, s->is_encoder ? "embed" : "decoder embed", 1);
    GxPairSpec *p = &u.pair[0];
    p->core.kind = GX_CORE_EMBED, p->core.vocab = s->c->vocab_size, p->core.ignored = s->c->pad_token_id;
    p->core.matrix[0] = s->is_encoder ? "model.shared" : "model.decoder.embed_tokens";
    if (s->is_encoder) p->core.matrix[1] = "model.encoder.embed_tokens";
    if (s->c->scale_embedding) p->core.scale = (float)sqrt((double)s->c->d_model);
    p->con = gx__bart_con(s, s->is_encoder ? "model.encoder.layernorm_embedding" : "model.decoder.layernorm_embedding");
    p->con.kind = GX_CON_EMBED, p->con.has_bias = 0;
    p->con.positions = s->c->max_position_embeddings + GX_BART_FIRST_POSITION;
    p->con.first_position = GX_BART_FIRST_POSITION;
    p->con.positions_name = s->is_encoder ? "model.encoder.embed_positions" : "model.decoder.embed_positions";
    return u;
}

// names: the modules of q, k, v and the out projection, and of the norm.
static GxPairSpec gx__bart_attention(const gx__BartStack *s, const char *const names[5])
{
    GxPairSpec p;
    memset(&p, 0, sizeof p);
    p.core.kind = GX_CORE_ATT, p.core.has_bias = 1;
    p.core.heads = p.core.kv_heads = s->heads, p.core.head_dim = s->c->d_model / s->heads;
    p.core.dropout = (float)s->c->attention_dropout;
    for (int i = 0; i < 4; i++) p.core.matrix[i] = names[i];
    gx__bart_norm(s, &p, names[4]);
    return p;
}

static GxPairSpec gx__bart_mlp(const gx__BartStack *s, const char *first, const char *second, const char *norm)
{
    GxPairSpec p;
    memset(&p, 0, sizeof p);
    p.core.kind = GX_CORE_MLP, p.core.has_bias = 1;
    p.core.activation = gx__bart_activations[gx__bart_activation(s->c)].activation;
    p.core.columns = s->columns, p.core.inner_dropout = (float)s->c->activation_dropout;
    p.core.matrix[0] = first, p.core.matrix[1] = second;
    gx__bart_norm(s, &p, norm);
    return p;
}

#define GX__BART_ATTENTION(layer, attention)                                                                           \
    {                                                                                                                  \
        layer attention ".q_proj", layer attention ".k_proj", layer attention ".v_proj", layer attention ".out_proj",  \
            layer attention "_layer_norm"                                                                              \
    }
#define GX__BART_ENCODER_LAYER "model.encoder.layers.%d."
#define GX__BART_DECODER_LAYER "model.decoder.layers.%d."

static GxUnitSpec gx__bart_encoder_layer(const gx__BartStack *s)
{
    static const char *const attention[] = GX__BART_ATTENTION(GX__BART_ENCODER_LAYER, "self_attn");
    GxUnitSpec u = gx__bart_unit(s, "encoder layer", 2);
    u.pair[0] = gx__bart_attention(s, attention);
    u.pair[1] = gx__bart_mlp(s, GX__BART_ENCODER_LAYER "fc1", GX__BART_ENCODER_LAYER "fc2",
                             GX__BART_ENCODER_LAYER "final_layer_norm");
    return u;
}

static GxUnitSpec gx__bart_decoder_layer(const gx__BartStack *s)
{
    static const char *const attention[] = GX__BART_ATTENTION(GX__BART_DECODER_LAYER, "self_attn");
    static const char *const cross[] = GX__BART_ATTENTION(GX__BART_DECODER_LAYER, "encoder_attn");
    GxUnitSpec u = gx__bart_unit(s, "decoder layer", 3);
    u.pair[0] = gx__bart_attention(s, attention), u.pair[0].core.is_causal = 1;
    u.pair[1] = gx__bart_attention(s, cross), u.pair[1].core.reads_memory = 1;
    u.pair[2] = gx__bart_mlp(s, GX__BART_DECODER_LAYER "fc1", GX__BART_DECODER_LAYER "fc2",
                             GX__BART_DECODER_LAYER "final_layer_norm");
    return u;
}

static GxUnitSpec gx__bart_memory(const gx__BartStack *s)
{
    GxUnitSpec u = gx__bart_unit(s, "memory", 1);
    if (gx_bart_is_mbart(s->c)) u.pair[0].enter = gx__bart_enter("model.encoder.layer_norm");
    u.pair[0].core.kind = GX_CORE_MEMORY;
    u.pair[0].con.kind = GX_CON_MEMORY;
    return u;
}

static GxUnitSpec gx__bart_head(const gx__BartStack *s)
{
    GxUnitSpec u = gx__bart_unit(s, "head", 1);
    if (gx_bart_is_mbart(s->c)) u.pair[0].enter = gx__bart_enter("model.decoder.layer_norm");
    u.pair[0].core.kind = GX_CORE_HEAD, u.pair[0].core.vocab = s->c->vocab_size, u.pair[0].core.is_tied = 1;
    u.pair[0].core.matrix[0] = "lm_head";
    u.pair[0].con.kind = GX_CON_NOTHING;
    return u;
}

void gx_bart_describe(GxContext *g, GxModel *m)
{
    const GxBartConfig *c = (const GxBartConfig *)m->config;
    const gx__BartStack encoder = gx__bart_stack(c, 1), decoder = gx__bart_stack(c, 0);
    if (m->head.kind != GX_HEAD_CAUSAL)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "a BART has a head for the next token; this task asks for %s",
                gx_head_name(m->head.kind));
    if (gx_bart_is_mbart(c) && m->adapter.lora.r > 0 && !(m->adapter.lora.targets && m->adapter.lora.targets[0]))
        GX_FAIL(
            &g->error, GX_ERR_ARGUMENT,
            "--lora_target_modules is empty, and there is no default for an mBART, as in peft; name the modules that "
            "get LoRA, such as q_proj,v_proj, or all-linear");
    if (m->adapter.side.reduction > 0)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "a side network beside a model with an encoder and a decoder is not supported; use another --tuning");
    if (gx_failed(g)) return;
    const GxUnitSpec specs[] = {gx__bart_embed(&encoder), gx__bart_encoder_layer(&encoder), gx__bart_memory(&encoder),
                                gx__bart_embed(&decoder), gx__bart_decoder_layer(&decoder), gx__bart_head(&decoder)};
    const int64_t units[] = {1, c->encoder_layers, 1, 1, c->decoder_layers, 1};
    m->max_positions = c->max_position_embeddings;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const int kind = gx_model_kind(g, m, &specs[i]);
        for (int n = 0; n < units[i]; n++) gx_model_unit(g, m, kind, n);
    }
}
#endif
