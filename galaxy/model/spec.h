// model/spec.h: how a model is described: units as lists of (core, CON) pairs, the enter, core and CON of each pair,
// and the head that a task asks for.
//
// A family (llama.h) writes these descriptions and the cores' headers (enter.h, att.h, mlp.h, con.h, ...) compute what
// they say; neither knows the other. If nothing computes what a description asks for, opening the model fails with an
// error that names it (build.h).
#ifndef GX_SPEC_H
#define GX_SPEC_H
#include "../ops/activation.h"
#include "../ops/rope.h"
#include "../parallel/layout.h"
GX_BEGIN

enum { GX_MAX_PAIRS = 3, GX_MAX_MATRICES = 4 };

typedef enum { GX_RMS_NORM = 0, GX_LAYER_NORM } GxNormKind;
// Of gate and up: silu(gate)*up, gelu(gate)*up (erf, tanh); of one matrix, up: gelu (erf, tanh), relu
typedef enum { GX_SWIGLU = 0, GX_GEGLU, GX_GEGLU_NEW, GX_GELU, GX_GELU_NEW, GX_RELU } GxActivation;
typedef enum {
    GX_ENTER_NOTHING = 0, // the norm, if any, comes after CON
    GX_ENTER_NORM,        // scale * dropout(norm(x)): before cores; the final norm
    GX_ENTER_TRANSFORM,   // norm(activation(x W^T + b)): before the vocabulary of a masked language model
    GX_ENTER_POOL,        // dropout(tanh(dropout(x) W^T + b)): before labels
    GX_ENTER_DROPOUT      // dropout(x): before labels of tokens
} GxEnterKind;
// head | layers | embedding | the end of an encoder: its output is the memory that a decoder reads, and no stream
// leaves it
typedef enum { GX_CON_NOTHING = 0, GX_CON_ADD, GX_CON_EMBED, GX_CON_MEMORY } GxConKind;
typedef enum { GX_CROSS_ENTROPY = 0, GX_SQUARED_ERROR, GX_BINARY_CROSS_ENTROPY } GxLossKind;
// The role of a unit in a model with a side network (side.h): part of the backbone | before the side layers | a side
// layer | the last side layer and Up
typedef enum { GX_SIDE_NONE = 0, GX_SIDE_FIRST, GX_SIDE_LAYER, GX_SIDE_LAST, GX_SIDE_PLACES } GxSidePlace;

// Names are module names of Hugging Face's files, to which ".weight" and ".bias" are appended; %d is the unit's number
// among units of its kind.
typedef struct {
    GxEnterKind kind;
    GxNormKind norm;
    float eps;
    float offset;            // 0 or 1: of an RMS norm, added to its weights, which then begin at 0
    GxActivation activation; // TRANSFORM
    float dropout;           // of POOL, of DROPOUT, of NORM
    float scale;             // of NORM; 0: 1
    float input_dropout;     // of the rows that POOL reads
    int is_relu;             // POOL: relu in place of tanh
    const char *norm_name, *matrix;
} GxEnterSpec;
typedef struct {                   // a bias of attention's scores by distance (relative.h)
    int64_t buckets, max_distance; // buckets 0: there is none
    const char *table[2];          // of attention that is bidirectional, that is causal
} GxRelative;
typedef struct {
    GxCoreKind kind;
    int has_bias;                      // of all matrices except the row-parallel one, whose bias is in CON
    float dropout;                     // of the probabilities
    int64_t heads, kv_heads, head_dim; // ATT
    int is_causal, has_qk_norm;
    int reads_memory; // ATT: keys and values are computed from an encoder's output
    float scale;      // ATT: of the scores; 0: 1/sqrt(head_dim). EMBED: of the tokens' rows; 0: 1
    int rounds_scale; // EMBED: 1: scale is rounded to the type of the weights
    GxRope rope;
    GxRope local_rope;       // that of units with local_rope (model.h); theta 0: there are none
    GxRelative relative;     // ATT: its tables' names in layers; EMBED: those of the tables themselves
    GxActivation activation; // MLP
    float inner_dropout;     // MLP: of the activated rows
    int64_t columns;
    int64_t vocab;   // EMBED, HEAD: rows of the vocabulary; LABELS: outputs
    int64_t ignored; // EMBED: the token whose row gets no gradient from its lookups; -1: none
    int is_tied;     // HEAD: its matrix is the embedding's
    int target;      // HEAD, LABELS, VECTORS: the index of its target in the batch
    GxLossKind loss; // LABELS
    // ATT: q, k, v, o; MLP: gate, up, down, or up, down; others: one. EMBED: [1]: another name of it in files, or NULL
    const char *matrix[GX_MAX_MATRICES];
    // ATT, MLP with SwiGLU: the name that q, k, v or gate, up have together in files, stacked by rows; NULL: each has its
    // own
    const char *stack;
    int is_transposed;      // ATT, MLP: in files the matrices are [in, out]
    const char *qk_norm[2]; // ATT with has_qk_norm: RMS norms of each head of q, of k, before RoPE
    float eps, offset;      // of those norms, as in GxEnterSpec
    const char *bias;       // HEAD: the module that has the bias; NULL: the matrix's
} GxCoreSpec;
typedef struct {
    GxConKind kind;
    int has_bias;      // of the core's last matrix
    int has_norm;      // 1: a layer norm after the addition
    int norms_result;  // 1: an RMS norm of the core's result, before the addition
    float eps, offset; // of the norm; offset as in GxEnterSpec
    float dropout;
    // EMBED: rows of the position and type tables, which are added to the tokens' rows; 0: no such table
    int64_t positions, types;
    int64_t first_position; // the row of the table that belongs to position 0
    // 1: a padding token within a text has no position, but the row before position 0's, which gets no gradient
    int skips_padding;
    const char *norm_name, *positions_name, *types_name;
} GxConSpec;
typedef struct {
    GxEnterSpec enter;
    GxCoreSpec core;
    GxConSpec con;
} GxPairSpec;
static inline int gx_pair_is_head(const GxPairSpec *s) { return s->con.kind == GX_CON_NOTHING; } // no stream leaves it
typedef struct {
    const char *name; // "embed", "layer", "head"
    int is_encoder;   // 1: its rows are those of the batch's source
    GxSidePlace side;
    int64_t width; // C
    float init_std;
    int n_pairs;
    GxPairSpec pair[GX_MAX_PAIRS];
} GxUnitSpec;

#define GX_SIDE_PREFIX "side." // prefix of the module names of a side network

// Which head a task needs.
typedef enum {
    GX_HEAD_CAUSAL = 0,  // the next token of each row
    GX_HEAD_MASKED,      // the tokens at masked rows; with_pairs: also whether two texts follow each other, as target 1
    GX_HEAD_LABELS,      // classes or numbers for a whole text
    GX_HEAD_VECTORS,     // a vector of a whole text
    GX_HEAD_TOKEN_LABELS // a class for each of a text's tokens
} GxHeadKind;
typedef struct {
    GxHeadKind kind;
    int with_pairs;
    int64_t labels; // outputs, of LABELS and TOKEN_LABELS
    GxLossKind loss;
    const char *const *label_name; // [labels]; NULL: labels have no names
    // 1, for LABELS and TOKEN_LABELS: the folder that training starts from has other labels, so the outputs are initialized
    int is_new;
} GxHeadRequest;

static inline int gx_is_gated(GxActivation a) { return a == GX_SWIGLU || a == GX_GEGLU || a == GX_GEGLU_NEW; }
// For ATT or MLP: the index in GxCoreSpec.matrix of the row-parallel matrix, whose bias is in CON.
static inline int gx_core_last_matrix(const GxCoreSpec *c)
{
    return c->kind == GX_CORE_ATT ? 3 : gx_is_gated(c->activation) ? 2 : 1;
}
static inline GxGelu gx_gelu_of(GxActivation a)
{
    return a == GX_GELU_NEW || a == GX_GEGLU_NEW ? GX_GELU_TANH : GX_GELU_ERF;
}
const char *gx_head_name(GxHeadKind kind);            // "masked tokens"
static inline int gx_head_has_labels(GxHeadKind kind) // 1: its outputs are labels, which config.json names
{
    return kind == GX_HEAD_LABELS || kind == GX_HEAD_TOKEN_LABELS;
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SPEC_IMPLEMENTED)
#define GX_SPEC_IMPLEMENTED

const char *gx_head_name(GxHeadKind kind)
{
    static const char *const names[] = {"the next token", "masked tokens", "labels", "vectors", "labels of tokens"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "?";
}
#endif
