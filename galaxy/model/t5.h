// t5.h: T5 (Raffel et al. 2020, arXiv:1910.10683) as a family: its configuration, the names of its tensors, and the
// description of its units. T5 1.1, Flan-T5, mT5 and ByT5 are the same with a gate in the MLP and a head of their own.
//
//     embed            x = dropout(tokens' rows)                                  of the source
//     encoder layer    x1 = x + dropout(ATT(norm(x))),  y = x1 + dropout(MLP(norm(x1)))
//     memory           dropout(norm(x))
//     decoder embed    as embed, with the same table                              of the target, one place to the right
//     decoder layer    x1 = x + dropout(ATT(norm(x))),  x2 = x1 + dropout(cross ATT(norm(x1), memory)),
//                      y = x2 + dropout(MLP(norm(x2)))
//     head             loss = cross-entropy(dropout(norm(x)) W^T); with a tied head x is also multiplied by 1/sqrt(C)
//
// Norms are RMS norms, there are no biases, and scores are not divided by sqrt(head_dim). Positions are a bias of the
// scores of self-attention, the same in all layers of a stack (relative.h); cross attention has none.
#ifndef GX_T5_H
#define GX_T5_H
#include "build.h"
#include "cores.h"
#include "relative.h"
GX_BEGIN

typedef struct { // names as in Hugging Face's config.json
    int64_t vocab_size, d_model, d_kv, d_ff, num_layers, num_decoder_layers, num_heads;
    int64_t relative_attention_num_buckets, relative_attention_max_distance;
    int64_t pad_token_id, eos_token_id, decoder_start_token_id;
    char feed_forward_proj[GX_FIELD_TEXT]; // "relu", "gated-gelu", "gated-silu"
    double dropout_rate, layer_norm_epsilon, initializer_factor;
    int tie_word_embeddings;        // 1: the head is the table of tokens
    int64_t scale_decoder_outputs;  // 1: what the head reads is divided by sqrt(d_model); -1: if the head is tied
    char model_type[GX_FIELD_TEXT]; // "t5", "mt5"
} GxT5Config;

GxStatus gx_t5_config_resolve(GxT5Config *c,
                              GxError *err); // fills in num_decoder_layers; an error if a value is invalid
int gx_t5_is_scaled(const GxT5Config *c);    // 1: what the head reads is divided by sqrt(d_model)

void gx_t5_describe(GxContext *g, GxModel *m); // of m->config

// Translates names of files of a T5Model, which begin with "transformer.". Returns 0 if the tensor is not needed (a
// table of cross attention, which nothing has read since the first T5s), otherwise 1.
int gx_t5_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_T5_IMPLEMENTED)
#define GX_T5_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- configuration -------------------------------------------------------------------------------------------------

static GxStatus gx__t5_check_sizes(const GxT5Config *c, GxError *err)
{
    // keeps sizes in bytes far below 2^63
    GX_TRY(gx_check_size("vocab_size", c->vocab_size, 1 << 24, err));
    GX_TRY(gx_check_size("d_model", c->d_model, 1 << 20, err));
    GX_TRY(gx_check_size("d_kv", c->d_kv, 1 << 16, err));
    GX_TRY(gx_check_size("d_ff", c->d_ff, 1 << 22, err));
    GX_TRY(gx_check_size("num_layers", c->num_layers, 500, err));
    GX_TRY(gx_check_size("num_decoder_layers", c->num_decoder_layers, 500, err));
    return gx_check_size("num_heads", c->num_heads, 1 << 16, err);
}

// Half of the buckets are for keys behind a query in the encoder; half of a side's are for one distance each.
static GxStatus gx__t5_check_positions(const GxT5Config *c, GxError *err)
{
    const int64_t buckets = c->relative_attention_num_buckets, farthest = c->relative_attention_max_distance;
    if (buckets < 4 || buckets % 2 || buckets > 1 << 16)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "relative_attention_num_buckets is %ld; it must be even, since the encoder has half of them for "
                       "each direction, and from 4 to %d",
                       (long)buckets, 1 << 16);
    if (farthest <= buckets / 2 || farthest > 1 << 20)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "relative_attention_max_distance is %ld; it must be more than half of "
                       "relative_attention_num_buckets (%ld), and at most %d",
                       (long)farthest, (long)buckets, 1 << 20);
    return GX_OK;
}

static GxStatus gx__t5_check_tokens(const GxT5Config *c, GxError *err)
{
    const struct {
        const char *name;
        int64_t id;
    } tokens[] = {{"pad_token_id", c->pad_token_id},
                  {"eos_token_id", c->eos_token_id},
                  {"decoder_start_token_id", c->decoder_start_token_id}};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        if (tokens[i].id < 0 || tokens[i].id >= c->vocab_size)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; it must be an id of the vocabulary, 0 to %ld",
                           tokens[i].name, (long)tokens[i].id, (long)c->vocab_size - 1);
    return GX_OK;
}

static const struct {
    const char *name;
    GxActivation activation;
} gx__t5_activations[] = {{"relu", GX_RELU}, {"gated-gelu", GX_GEGLU_NEW}, {"gated-silu", GX_SWIGLU}};
enum { GX__T5_ACTIVATIONS = sizeof gx__t5_activations / sizeof *gx__t5_activations };

static int gx__t5_activation(const GxT5Config *c) // its row above; -1: not supported
{
    for (int i = 0; i < GX__T5_ACTIVATIONS; i++)
        if (!strcmp(c->feed_forward_proj, gx__t5_activations[i].name)) return i;
    return -1;
}

GxStatus gx_t5_config_resolve(GxT5Config *c, GxError *err)
{
    if (c->num_decoder_layers == 0) c->num_decoder_layers = c->num_layers;
    GX_TRY(gx__t5_check_sizes(c, err));
    GX_TRY(gx__t5_check_positions(c, err));
    GX_TRY(gx__t5_check_tokens(c, err));
    if (!(c->dropout_rate >= 0 && c->dropout_rate < 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "dropout_rate is %g; it must be at least 0 and below 1", c->dropout_rate);
    if (!(c->layer_norm_epsilon > 0 && c->layer_norm_epsilon < 1))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "layer_norm_epsilon is %g; it must be above 0 and below 1",
                       c->layer_norm_epsilon);
    if (gx__t5_activation(c) < 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "feed_forward_proj is \"%s\"; supported: \"relu\", \"gated-gelu\" and \"gated-silu\"",
                       c->feed_forward_proj);
    if (strcmp(c->model_type, "t5") && strcmp(c->model_type, "mt5"))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "model_type is \"%s\"; supported: \"t5\" and \"mt5\"", c->model_type);
    return GX_OK;
}

int gx_t5_is_scaled(const GxT5Config *c)
{
    if (!strcmp(c->model_type, "mt5")) return 0;
    return c->scale_decoder_outputs < 0 ? c->tie_word_embeddings : c->scale_decoder_outputs;
}

int gx_t5_tensor_name(const GxTable *t, const char *in_file, char name[GX_NAME])
{
    static const char prefix[] = "transformer.";
    (void)t;
    if (strstr(in_file, ".EncDecAttention.relative_attention_bias.")) return 0;
    snprintf(name, GX_NAME, "%s", in_file + (strncmp(in_file, prefix, sizeof prefix - 1) ? 0 : sizeof prefix - 1));
    return 1;
}

// ---- units ---------------------------------------------------------------------------------------------------------

static GxUnitSpec gx__t5_unit(const GxT5Config *c, const char *name, int n_pairs, int is_encoder)
{
    GxUnitSpec u = GX_ZERO;
    u.name = name, u.n_pairs = n_pairs, u.is_encoder = is_encoder;
    u.width = c->d_model;
    u.init_std = (float)c->initializer_factor;
    return u;
}

static GxPairSpec gx__t5_pair(const GxT5Config *c, const char *norm)
{
    GxPairSpec p;
    memset(&p, 0, sizeof p);
    p.enter.kind = GX_ENTER_NORM, p.enter.norm = GX_RMS_NORM;
    p.enter.eps = (float)c->layer_norm_epsilon, p.enter.norm_name = norm;
    p.con.kind = GX_CON_ADD, p.con.dropout = (float)c->dropout_rate;
    return p;
}

static GxRelative gx__t5_positions(const GxT5Config *c, const char *bidirectional, const char *causal)
{
    const GxRelative r = {
        c->relative_attention_num_buckets, c->relative_attention_max_distance, {bidirectional, causal}};
    return r;
}

static void gx__t5_heads(const GxT5Config *c, GxCoreSpec *core)
{
    core->heads = core->kv_heads = c->num_heads, core->head_dim = c->d_kv;
}

// The first unit has both stacks' tables of positions.
static GxUnitSpec gx__t5_embed(const GxT5Config *c, int is_encoder)
{
#define GX__T5_TABLE(stack) stack ".block.0.layer.0.SelfAttention.relative_attention_bias"
    GxUnitSpec u = gx__t5_unit(c, is_encoder ? "embed" : "decoder embed", 1, is_encoder);
    GxPairSpec *p = &u.pair[0];
    p->core.kind = GX_CORE_EMBED, p->core.vocab = c->vocab_size, p->core.ignored = -1;
    p->core.matrix[0] = is_encoder ? "shared" : "decoder.embed_tokens";
    if (is_encoder) {
        p->core.matrix[1] = "encoder.embed_tokens";
        p->core.relative = gx__t5_positions(c, GX__T5_TABLE("encoder"), GX__T5_TABLE("decoder"));
        gx__t5_heads(c, &p->core);
    }
    p->con.kind = GX_CON_EMBED, p->con.dropout = (float)c->dropout_rate;
    return u;
}

// names: the modules of the norm before it, and of q, k, v and the out projection.
static GxPairSpec gx__t5_attention(const GxT5Config *c, const char *const names[5])
{
    GxPairSpec p = gx__t5_pair(c, names[0]);
    p.core.kind = GX_CORE_ATT, p.core.scale = 1, p.core.dropout = (float)c->dropout_rate;
    gx__t5_heads(c, &p.core);
    for (int i = 0; i < 4; i++) p.core.matrix[i] = names[1 + i];
    return p;
}

// names: the modules of the norm before it, of the only first matrix, of gate and up, and of the last.
static GxPairSpec gx__t5_mlp(const GxT5Config *c, const char *const names[5])
{
    GxPairSpec p = gx__t5_pair(c, names[0]);
    const GxActivation by = gx__t5_activations[gx__t5_activation(c)].activation;
    p.core.kind = GX_CORE_MLP, p.core.activation = by;
    p.core.columns = c->d_ff, p.core.inner_dropout = (float)c->dropout_rate;
    p.core.matrix[0] = names[gx_is_gated(by) ? 2 : 1];
    p.core.matrix[1] = names[gx_is_gated(by) ? 3 : 4];
    if (gx_is_gated(by)) p.core.matrix[2] = names[4];
    return p;
}

#define GX__T5_ATTENTION(layer, attention)                                                                             \
    {                                                                                                                  \
        layer "layer_norm", layer attention ".q", layer attention ".k", layer attention ".v", layer attention ".o"     \
    }
#define GX__T5_MLP(layer)                                                                                              \
    {                                                                                                                  \
        layer "layer_norm", layer "DenseReluDense.wi", layer "DenseReluDense.wi_0", layer "DenseReluDense.wi_1",       \
            layer "DenseReluDense.wo"                                                                                  \
    }
#define GX__T5_ENCODER "encoder.block.%d.layer."
#define GX__T5_DECODER "decoder.block.%d.layer."

// A layer's name of its stack's table, which files do not have.
static GxRelative gx__t5_positions_of_layer(const GxT5Config *c)
{
    return gx__t5_positions(c, GX__T5_ENCODER "0.SelfAttention.position_bias",
                            GX__T5_DECODER "0.SelfAttention.position_bias");
}

static GxUnitSpec gx__t5_encoder_layer(const GxT5Config *c)
{
    static const char *const attention[] = GX__T5_ATTENTION(GX__T5_ENCODER "0.", "SelfAttention"),
                             *const mlp[] = GX__T5_MLP(GX__T5_ENCODER "1.");
    GxUnitSpec u = gx__t5_unit(c, "encoder layer", 2, 1);
    u.pair[0] = gx__t5_attention(c, attention), u.pair[0].core.relative = gx__t5_positions_of_layer(c);
    u.pair[1] = gx__t5_mlp(c, mlp);
    return u;
}

static GxUnitSpec gx__t5_decoder_layer(const GxT5Config *c)
{
    static const char *const attention[] = GX__T5_ATTENTION(GX__T5_DECODER "0.", "SelfAttention"),
                             *const cross[] = GX__T5_ATTENTION(GX__T5_DECODER "1.", "EncDecAttention"),
                             *const mlp[] = GX__T5_MLP(GX__T5_DECODER "2.");
    GxUnitSpec u = gx__t5_unit(c, "decoder layer", 3, 0);
    u.pair[0] = gx__t5_attention(c, attention), u.pair[0].core.relative = gx__t5_positions_of_layer(c);
    u.pair[0].core.is_causal = 1;
    u.pair[1] = gx__t5_attention(c, cross), u.pair[1].core.reads_memory = 1;
    u.pair[2] = gx__t5_mlp(c, mlp);
    return u;
}

static GxUnitSpec gx__t5_memory(const GxT5Config *c)
{
    GxUnitSpec u = gx__t5_unit(c, "memory", 1, 1);
    u.pair[0] = gx__t5_pair(c, "encoder.final_layer_norm");
    u.pair[0].enter.dropout = (float)c->dropout_rate;
    u.pair[0].core.kind = GX_CORE_MEMORY;
    u.pair[0].con.kind = GX_CON_MEMORY, u.pair[0].con.dropout = 0;
    return u;
}

static GxUnitSpec gx__t5_head(const GxT5Config *c)
{
    GxUnitSpec u = gx__t5_unit(c, "head", 1, 0);
    u.pair[0] = gx__t5_pair(c, "decoder.final_layer_norm");
    u.pair[0].enter.dropout = (float)c->dropout_rate;
    if (gx_t5_is_scaled(c)) u.pair[0].enter.scale = (float)(1 / sqrt((double)c->d_model));
    u.pair[0].core.kind = GX_CORE_HEAD, u.pair[0].core.vocab = c->vocab_size;
    u.pair[0].core.is_tied = c->tie_word_embeddings;
    u.pair[0].core.matrix[0] = "lm_head";
    u.pair[0].con.kind = GX_CON_NOTHING, u.pair[0].con.dropout = 0;
    return u;
}

// ---- initial weights -----------------------------------------------------------------------------------------------

static void gx__t5_set_std(GxModel *m, GxTensorId id, double std)
{
    if (id.index >= 0) m->table.row[id.index].init_std = (float)std;
}

// As transformers draws them: the embedding, and a head of its own, with initializer_factor; matrices with that over the
// square root of their inputs, q's also over that of d_kv; the tables of positions as matrices of d_model.
static void gx__t5_set_stds(GxModel *m, const GxT5Config *c)
{
    const double f = c->initializer_factor, of_width = f / sqrt((double)c->d_model);
    for (int causal = 0; causal < 2; causal++) gx__t5_set_std(m, m->relative[causal], of_width);
    for (int u = 0; u < m->units; u++)
        for (int k = 0; k < gx_unit_spec(m, u)->n_pairs; k++) {
            const GxCoreKind kind = gx_unit_spec(m, u)->pair[k].core.kind;
            const GxLinear *first = &m->unit[u].pair[k].linear[0], *last = &m->unit[u].pair[k].linear[1];
            if (kind != GX_CORE_ATT && kind != GX_CORE_MLP) continue;
            for (int i = 0; i < first->parts; i++) {
                const GxTensorId id = {first->first.index + i};
                gx__t5_set_std(m, id, kind == GX_CORE_ATT && i == 0 ? of_width / sqrt((double)c->d_kv) : of_width);
            }
            gx__t5_set_std(m, last->first,
                           f / sqrt(kind == GX_CORE_ATT ? (double)(c->num_heads * c->d_kv) : (double)c->d_ff));
        }
}

void gx_t5_describe(GxContext *g, GxModel *m)
{
    const GxT5Config *c = (const GxT5Config *)m->config;
    if (m->head.kind != GX_HEAD_CAUSAL)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "a T5 has a head for the next token; this task asks for %s",
                gx_head_name(m->head.kind));
    if (m->adapter.side.reduction > 0)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "a side network beside a model with an encoder and a decoder is not supported; use another --tuning");
    if (gx_failed(g)) return;
    const GxUnitSpec specs[] = {gx__t5_embed(c, 1), gx__t5_encoder_layer(c), gx__t5_memory(c),
                                gx__t5_embed(c, 0), gx__t5_decoder_layer(c), gx__t5_head(c)};
    const int64_t units[] = {1, c->num_layers, 1, 1, c->num_decoder_layers, 1};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        const int kind = gx_model_kind(g, m, &specs[i]);
        for (int n = 0; n < units[i]; n++) gx_model_unit(g, m, kind, n);
    }
    gx__t5_set_stds(m, c);
}
#endif
