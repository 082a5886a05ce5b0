// model.h: a model as data: a list of units, each described as a list of (core, CON) pairs; the mode, which says how
// pairs are split over the ranks of a tp group; and the table of tensors that follows from both, with every rank's box
// in each tensor.
//
// A layer is two pairs, (ATT, CON) and (MLP, CON); the embedding is a pair without an incoming stream, a head a pair
// without an outgoing one. A pair computes y = CON(x, core(enter(x))): enter is the norm before a core, or nothing; CON
// joins the core's result to the residual stream. A family (llama.h) is a configuration, names and such descriptions.
// What enter, cores and CON compute is in enter.h, att.h, mlp.h, embed.h, head.h, labels.h, vectors.h and con.h, which
// know nothing of families.
//
//     GX_TRY(gx_model_open(&g, &m, &gx_llama, &config, &gx_tp, NULL));    // table and places; no memory
//     gx_model_allocate(&g, &m, T, B, 512);                                   // constants, from the arena
//
// Descriptions for which there is no operation yet are refused by name when the model is opened.
#ifndef GX_MODEL_H
#define GX_MODEL_H
#include "../base/fields.h"
#include "../base/partition.h"
#include "../base/store.h"
#include "../ops/activation.h"
#include "../parallel/layout.h"
#include "rows.h"
GX_BEGIN

enum { GX_MAX_PAIRS = 3, GX_MAX_MATRICES = 4, GX_MAX_KINDS = 6, GX_MAX_UNITS = 1024, GX_MODULE = 96 };
typedef struct GxPass GxPass;
typedef struct GxModel GxModel;

// ---- descriptions --------------------------------------------------------------------------------------------------

typedef enum { GX_RMS_NORM = 0, GX_LAYER_NORM } GxNormKind;
typedef enum { GX_SWIGLU = 0, GX_GELU, GX_GELU_NEW } GxActivation; // gate and up | erf | tanh (in one matrix: up)
typedef enum {
    GX_ENTER_NOTHING = 0, // the norm, if any, comes after CON
    GX_ENTER_NORM,        // before cores; the final norm
    GX_ENTER_TRANSFORM,   // norm(activation(x W^T + b)): before the vocabulary of a masked language model
    GX_ENTER_POOL         // dropout(tanh(x W^T + b)): before labels
} GxEnterKind;
typedef enum { GX_CON_NOTHING = 0, GX_CON_ADD, GX_CON_EMBED } GxConKind; // head | layers | embedding
typedef enum { GX_CROSS_ENTROPY = 0, GX_SQUARED_ERROR, GX_BINARY_CROSS_ENTROPY } GxLossKind;
// The part of a unit in a model with a side network (side.h): in the backbone | before its layers | a layer | the last
// layer and what follows it
typedef enum { GX_SIDE_NONE = 0, GX_SIDE_FIRST, GX_SIDE_LAYER, GX_SIDE_LAST, GX_SIDE_PLACES } GxSidePlace;

// Names are those of modules in Hugging Face's files, to which ".weight" and ".bias" are appended; %d is the number of
// the unit among units of its kind.
typedef struct {
    GxEnterKind kind;
    GxNormKind norm;
    float eps;
    GxActivation activation; // TRANSFORM
    float dropout;           // of POOL, and of the rows that a head for labels reads
    const char *norm_name, *matrix;
} GxEnterSpec;
typedef struct {
    GxCoreKind kind;
    int has_bias;                      // of all matrices except the row-parallel one, whose bias is in CON
    float dropout;                     // of the probabilities
    int64_t heads, kv_heads, head_dim; // ATT
    int is_causal, has_qk_norm, reads_memory;
    GxRope rope;
    GxActivation activation; // MLP
    int64_t columns;
    int64_t vocab;                       // EMBED, HEAD: rows of the vocabulary; LABELS: outputs
    int64_t ignored;                     // EMBED: the token whose row gets no gradient from its lookups; -1: none
    int is_tied;                         // HEAD: its matrix is the embedding's
    int target;                          // HEAD, LABELS, VECTORS: which of the batch's targets
    GxLossKind loss;                     // LABELS
    const char *matrix[GX_MAX_MATRICES]; // ATT: q, k, v, o; MLP: gate, up, down, or up, down; others: one
    const char *qk_norm[2];              // ATT with has_qk_norm: RMS norms of each head of q, of k, before the rotation
    float eps;                           // of these
    const char *bias;                    // HEAD: the module whose bias it is; NULL: the matrix's
} GxCoreSpec;
typedef struct {
    GxConKind kind;
    int has_bias; // of the core's last matrix
    int has_norm; // 1: a layer norm after the addition
    float eps, dropout;
    // EMBED: rows of the position and type tables, which are added to the tokens' rows; 0: no such table
    int64_t positions, types;
    const char *norm_name, *positions_name, *types_name;
} GxConSpec;
typedef struct {
    GxEnterSpec enter;
    GxCoreSpec core;
    GxConSpec con;
} GxPairSpec;
typedef struct {
    const char *name; // "embed", "layer", "head"
    GxSidePlace side;
    int64_t width; // C
    float init_std;
    int n_pairs;
    GxPairSpec pair[GX_MAX_PAIRS];
} GxUnitSpec;

#define GX_SIDE_PREFIX "side." // prefix of the module names of a side network

// Which head a task needs.
typedef enum {
    GX_HEAD_CAUSAL = 0, // the next token of each row
    GX_HEAD_MASKED,     // the tokens at masked rows; with_pairs: also whether two texts follow each other, as target 1
    GX_HEAD_LABELS,     // classes or numbers for a whole text
    GX_HEAD_VECTORS     // a vector of a whole text
} GxHeadKind;
typedef struct {
    GxHeadKind kind;
    int with_pairs;
    int64_t labels; // outputs
    GxLossKind loss;
    const char *const *label_name; // [labels]; NULL: they have none
    // LABELS: the folder that training starts from has other labels, so the outputs are initialised
    int is_new;
} GxHeadRequest;

// Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685): a linear's matrix W [out,in] is frozen, and A [r,in] and B
// [out,r] are trained: y = x W^T + b + s * (x A^T) B^T, with s = alpha / r, or alpha / sqrt(r) if is_scaled_by_root
// (Kalajdzievski 2023, arXiv:2312.03732).
typedef struct {
    int64_t r; // 0: there is no LoRA
    double alpha;
    int is_scaled_by_root;
    float dropout; // of A's input, drawn separately for each linear
    // Which linears: module names separated by commas, each a whole name or its last components ("q_proj"). NULL or "":
    // all of attention and MLP; "all-linear": also those before heads (a pooler), but not the heads' own. A name that
    // matches neither a linear nor the token embedding is an error.
    const char *targets;
    // Modules that are trained whole in addition, by suffixes of their names, as peft's modules_to_save: "norm" matches
    // input_layernorm, too, "model.norm" does not. NULL or "": only heads of labels. A name that matches no module is
    // an error, unless peft wrote the names: for labels it lists the names of every architecture's head.
    const char *trainable;
    int is_of_peft;
    // Not NULL: targets is a pattern, and this function says whether it matches a module's whole name (for
    // GX_HEAD_VECTORS: the name in transformers' model without a head).
    int (*finds)(const char *pattern, const char *module);
    // Targets that have none after all: names as targets has them, or a pattern if `excludes` is not NULL. NULL or "":
    // none
    const char *excluded;
    int (*excludes)(const char *pattern, const char *module);
    // Only targets in these layers, unless they are listed by their whole names or meant by a pattern; NULL or empty:
    // all. A module's layer is the number in its name, behind the list's name ("layers"); lists NULL or "": the first.
    const GxIntList *layers;
    const char *lists;
    // Which modules have another r, or another alpha: `value` says a module's, or `otherwise`. NULL or "": none
    const char *rank_pattern, *alpha_pattern;
    double (*value)(const char *patterns, const char *module, double otherwise);
} GxLora;

// Bottleneck adapters (bottleneck.h): two small linears after each attention and MLP.
typedef struct {
    int64_t reduction;     // k: the inner width is C/k; k divides C. 0: no adapters
    const char *trainable; // as GxLora's
} GxBottleneck;

// A side network (side.h): a narrow layer beside each layer, which reads that layer's output.
typedef struct {
    int64_t reduction;     // k: width, MLP and heads of its layers are 1/k of the model's; k divides C. 0: none
    int is_gated;          // a side layer reads mu * Down(h) + (1 - mu) * s; else Down(h) + s
    int has_bias;          // of Down and Up
    const char *trainable; // as GxLora's, of heads
} GxSide;

// Prompts in attention, LLaMA-Adapter (prompt.h): learned rows that the queries of the last layers attend to in
// addition.
typedef struct {
    int64_t len;           // prompt rows per layer; 0: no prompts
    int64_t layers;        // how many layers have prompts, counted from the last; 0: all but the first two
    const char *trainable; // as GxLora's
    int is_v2; // LLaMA-Adapter v2: besides a scale and a bias of each linear (scale.h), and norms are trained
} GxPrompt;

typedef struct { // at most one of these is set
    GxLora lora;
    GxBottleneck bottleneck;
    GxSide side;
    GxPrompt prompt;
} GxAdapter;

struct GxTask;   // task/task.h
typedef struct { // a family
    const char *name;
    // of its configuration: they define flags and members of config.json, and ranks agree on them
    const GxField *fields;
    int n_fields;
    size_t config_size;
    GxStatus (*resolve)(void *config, GxError *err); // fills in defaults, refuses invalid values
    // Describes the units by gx_model_kind and gx_model_unit, with the head that m->head asks for. Errors are set in g.
    void (*describe)(GxContext *g, GxModel *m);
    int64_t *(*vocab_size)(void *config);
    // From config.json of a Hugging Face folder. What it has and is not read is said to `log` (io/json_keys.h).
    GxStatus (*read_config)(void *config, const char *path, const GxLogger *log, GxError *err);
    GxStatus (*write_config)(const void *config, const GxHeadRequest *request, const char *path, GxError *err);
    const char *(*architecture)(const void *config,
                                const GxHeadRequest *request); // transformers' class name for a model with this head
    // Warns, before training, if other libraries would not load a model of this resolved configuration. NULL: they
    // always do.
    void (*warn)(const void *config, const GxLogger *log);
    // Patterns (shell style, separated by commas) of the tensor names of heads: a file may lack a head of the model or
    // have another one, but only as a whole. NULL: a file has exactly the model's tensors.
    const char *heads;
    // Translates a file's tensor name into the family's. 1: `name` is set; 0: the tensor is not needed. NULL: names are
    // the same.
    int (*tensor_name)(const char *in_file, char name[GX_NAME]);
    const struct GxTask *const *tasks; // the tasks that it can be trained for, the default first; NULL at the end
    int frames_texts;                  // a text stands between [CLS] and [SEP]
} GxFamily;

// A mode: how the blocks are split, and the forward and backward of ONE pair. Implemented in train_tp.cu and its
// siblings.
typedef struct {
    const char *name;
    GxMethods methods;
    void (*pair_forward)(GxPass *p, int k, GxRows y, GxRows x);
    void (*pair_backward)(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x); // dx may be dy
} GxMode;

// ---- a model -------------------------------------------------------------------------------------------------------

typedef struct { // adjacent matrices that are multiplied as one: q, k, v; gate, up
    GxTensorId first;
    int parts;
    int64_t in, out; // sizes of this rank's part
    GxTensorId bias; // of the first matrix; the others' biases follow it; index -1: none
    void *product;   // where the product before a scale is kept; NULL: in the slot
    int64_t picked;  // of a head: the first of its target's rows that it is applied to
} GxLinear;
typedef struct { // of a norm; an RMS norm has no bias
    GxTensorId weight, bias;
} GxNormIds;
typedef struct { // ids of a pair's tensors; index -1: none
    GxNormIds norm, con_norm;
    GxTensorId qk_norm[2]; // of q's heads, of k's
    GxTensorId matrix, con_bias, positions, types;
    GxLinear enter, linear[2];
    GxLinear adapter[2];     // CON's: down, up
    GxTensorId prompt, gate; // attention's
} GxPair;
typedef struct {
    int kind;
    int first_row, rows;    // its rows of the table
    int has_side;           // 1: the side network's stream enters beside the backbone's
    int64_t sliding_window; // how many of the nearest keys a query attends to; 0: all
    GxPair pair[GX_MAX_PAIRS];
    GxLinear down, up; // of a side network's unit, and its gate [1]
    GxTensorId gate;
} GxUnit;
typedef struct { // tables for positions: [max_T or cached, head_dim/2] each; NULL: no rotary positions
    float *cosine, *sine;
} GxRopeTable;
typedef struct { // units of one description, and each rank's share of heads, columns and vocabulary rows
    GxUnitSpec spec;
    GxShares q, kv, columns, vocab;
    int64_t q_first; // index of this rank's first query head among those that share its first K,V head
} GxUnitKind;

struct GxModel {
    const GxFamily *family;
    const void *config;
    const GxMode *mode;
    GxHeadRequest head;
    GxLora lora;
    GxBottleneck bottleneck;
    GxSide side;
    GxPrompt prompt;
    GxSplitLists lists; // as the user gave them
    GxTable table;
    GxStore store;
    GxUnitKind *kind; // [GX_MAX_KINDS]
    int kinds;
    GxUnit *unit; // [units]
    int units, units_capacity;
    int members, member;         // ranks of the tp group; this one's place in it
    GxSplit sequence;            // split of [T] of the largest batch, if any block is by SP
    int64_t max_T, max_B, chunk; // largest batch; number of the head's rows whose logits exist at once
    int64_t cached;              // positions of a KV cache (kv_cache.h), possibly more than a batch's; 0: none
    int64_t max_positions;       // 0: any
    GxRopeTable rope[2];         // of the backbone, of a side network
    GxTensorId embedding;
};

typedef struct {               // zero: defaults
    const GxSplitLists *lists; // NULL: even
    const char *freeze;        // patterns of names; NULL: everything is trained
    GxDtype dtype;             // of weights and activations; masters, moments and gradients are fp32
    GxUnits units;             // this rank's
    const GxHeadRequest *head; // NULL: a causal language model
    const GxLora *lora;        // NULL: none. Else all is frozen but LoRA's factors and heads of labels
    // 1 + GxQuantKind: quantises the frozen matrices of attention and MLP, packed ones (q, k, v; gate, up) only if all
    // of them are frozen; an error if none is. 0: no quantisation
    int quantize;
    const GxBottleneck *bottleneck; // NULL: none. Else all is frozen but the adapters and heads of labels
    const GxSide *side;             // NULL: none. Else all is frozen but the side network and heads of labels
    const GxPrompt *prompt;         // NULL: none. Else all is frozen but the prompts, their gates and heads of labels
    // 1: a tied head gets a matrix of its own if it or the embedding has LoRA, which is to be merged; the
    // configuration then says that it is not tied
    int unties_lora;
    GxSharded sharded;            // what the ranks of dp_shard share; the context then has its mesh
    const GxPartList *shard_list; // their shares; NULL: even
} GxModelOptions;
static inline void gx_model_adapt(GxModelOptions *o, const GxAdapter *a) // the adapter's strings are borrowed
{
    o->lora = &a->lora, o->bottleneck = &a->bottleneck, o->side = &a->side, o->prompt = &a->prompt;
}

GxStatus gx_check_size(const char *name, int64_t value, int64_t most, GxError *err); // from 1 to `most`

// config and mode are borrowed until gx_model_close, which must also be called after an error. A head that is tied to
// the token embedding is not, here, if an adapter has one of the two whole (tuned.h).
GxStatus gx_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                       const GxModelOptions *options);
void gx_model_close(GxModel *m);

// For describe: adds a kind of unit; adds the next unit of a kind, with `number` in its names.
int gx_model_kind(GxContext *g, GxModel *m, const GxUnitSpec *spec);
void gx_model_unit(GxContext *g, GxModel *m, int kind, int number);
// An embedding, layers and a head, which is most families: with a side network, its units between them.
void gx_model_chain(GxContext *g, GxModel *m, const GxUnitSpec *embed, const GxUnitSpec *layer, int64_t layers,
                    const GxUnitSpec *head);

static inline const GxUnitSpec *gx_unit_spec(const GxModel *m, int unit) { return &m->kind[m->unit[unit].kind].spec; }
static inline int gx_model_has_adapter(const GxModel *m)
{
    return m->lora.r > 0 || m->bottleneck.reduction > 0 || m->side.reduction > 0 || m->prompt.len > 0;
}
static inline int64_t gx_model_width(const GxModel *m) { return gx_unit_spec(m, 0)->width; }
int64_t gx_model_vocab(const GxModel *m);

// Takes constants for batches of up to T x B from the arena (twice: on a dry one, then on the real one).
void gx_model_allocate(GxContext *g, GxModel *m, int64_t T, int64_t B, int64_t chunk);

// Initialises the weights, from each tensor's name and global index: the same values in every topology. Quantised
// matrices are not initialised: they come from a file.
void gx_model_init(GxContext *g, GxModel *m, uint64_t seed);
// The same for one tensor, which is not quantised; this rank's part, if it has the tensor or a copy.
void gx_model_init_tensor(GxContext *g, const GxModel *m, int row, uint64_t seed);

// A tensor of a unit and its place of use, for the functions that open the kinds of cores.
typedef struct {
    const char *name; // of the module: a format for the unit's number
    int number;
    GxRole role;
    int64_t shape[2];            // [1] is 0: one dimension
    const GxShares *rows, *cols; // who has which of them; NULL: all have all
    GxLayout layout;             // of the rows of activations that meet it
    int packed;
    int alias; // 1 + the row that it is another name of; 0: none
    // 1: all of it is applied only to this rank's part of rows, or of their heads, that all ranks have
    int is_own_share;
} GxTensorUse;
GxTensorId gx_model_tensor(GxContext *g, GxModel *m, int unit, int k, const GxTensorUse *use); // of pair k
GxLinear gx_model_linear(const GxModel *m, GxTensorId first, int parts, GxTensorId bias);
// Index in GxCoreSpec.matrix, for ATT or MLP: the row-parallel matrix, whose bias is in CON.
static inline int gx_core_last_matrix(const GxCoreSpec *c)
{
    return c->kind == GX_CORE_ATT ? 3 : c->activation == GX_SWIGLU ? 2 : 1;
}
static inline GxGelu gx_gelu_of(GxActivation a) { return a == GX_GELU_NEW ? GX_GELU_TANH : GX_GELU_ERF; }
static inline GxTensorId gx_no_tensor(void)
{
    const GxTensorId none = {-1};
    return none;
}
// A layer norm, or an RMS norm, of all columns of rows in this layout.
GxNormIds gx_model_norm(GxContext *g, GxModel *m, int unit, int k, GxNormKind kind, const char *name, int number,
                        GxLayout layout);
const char *gx_head_name(GxHeadKind kind); // "masked tokens"

// Open the tensors of a pair's enter, core and CON: enter.h, cores.h, con.h.
void gx_enter_open(GxContext *g, GxModel *m, int unit, int k, int number);
void gx_core_open(GxContext *g, GxModel *m, int unit, int k, int number);
void gx_con_open(GxContext *g, GxModel *m, int unit, int k, int number);
// lora.h: checks the hyperparameters; opens the factors of the unit's linears, after the linears themselves.
GxStatus gx_lora_check(const GxLora *lora, GxError *err);
void gx_lora_open(GxContext *g, GxModel *m, int unit);
GxStatus gx_lora_check_targets(const GxModel *m, GxError *err); // each name matches something
// bottleneck.h: alike.
GxStatus gx_bottleneck_check(const GxModel *m, GxError *err);
void gx_bottleneck_open(GxContext *g, GxModel *m, int unit, int number);
// side.h: checks the hyperparameters; adapts the backbone's units, and derives a side unit from the model's layer;
// opens its tensors; checks that nothing is trained that has no backward.
GxStatus gx_side_check(const GxModel *m, GxError *err);
void gx_side_still(GxUnitSpec *u);
GxUnitSpec gx_side_unit(GxContext *g, const GxModel *m, const GxUnitSpec *layer, GxSidePlace place);
void gx_side_open(GxContext *g, GxModel *m, int unit, int number);
GxStatus gx_side_check_trained(const GxModel *m, GxError *err);
// 1: no gradient goes through the unit: it is part of the backbone of a model with a side network, and not a head.
int gx_side_is_beside(const GxModel *m, int unit);
// prompt.h: alike, with the number of layers; and that what prompts go through is frozen.
GxStatus gx_prompt_check(GxModel *m, GxError *err);
void gx_prompt_open(GxContext *g, GxModel *m, int unit, int number);
GxStatus gx_prompt_check_frozen(const GxModel *m, GxError *err);
// scale.h: opens the scales and biases of the unit's linears, after the linears; 1: pair k has them.
void gx_scale_open(GxContext *g, GxModel *m, int unit);
int gx_pair_has_scale(const GxModel *m, int unit, int k);
// tuned.h: a model is tuned by one method; freezes what a tuning method does not train; refuses names that nothing has.
GxStatus gx_tuned_check_methods(const GxModel *m, GxError *err);
GxStatus gx_tuned_freeze(GxModel *m, GxError *err);
// The table's row of the head that is tied to the token embedding, if one of the two is trained whole; -1: none.
int gx_tuned_tied_head(const GxModel *m);
// lora.h: alike, if at least one of the two has LoRA.
int gx_lora_tied_head(const GxModel *m);
// Called after the weights are loaded. An error if an adapter tensor frozen at 0 stops the gradient of one that is
// trained; a warning if it is frozen as small as it was initialised.
GxStatus gx_tuned_check_frozen(GxContext *g, const GxModel *m);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_IMPLEMENTED)
#define GX_MODEL_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ops/memory.h"
#include "../parallel/values.h"

GxStatus gx_check_size(const char *name, int64_t value, int64_t most, GxError *err)
{
    if (value >= 1 && value <= most) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; it must be from 1 to %ld", name, (long)value, (long)most);
}

// ---- what is not built ---------------------------------------------------------------------------------------------

static void gx__model_refuse(GxContext *g, const GxUnitSpec *u)
{
    for (int k = 0; k < u->n_pairs; k++) {
        const GxPairSpec *s = &u->pair[k];
        const int is_add = s->con.kind == GX_CON_ADD;
        const struct {
            int is_asked;
            const char *what;
        } missing[] = {
            {s->enter.kind == GX_ENTER_NORM && s->enter.norm == GX_LAYER_NORM, "a layer norm before a core"},
            {is_add && k + 1 < u->n_pairs && u->pair[k + 1].enter.kind == GX_ENTER_NORM &&
                 (s->con.has_bias || s->con.has_norm || s->con.dropout > 0),
             "a bias, dropout or a norm behind CON with a norm before the next core"},
            {is_add && !s->con.has_norm && (s->con.has_bias || s->con.dropout > 0),
             "a bias or dropout in CON without a norm behind it"},
            {s->con.kind == GX_CON_EMBED && !s->con.has_norm &&
                 (s->con.positions || s->con.types || s->con.dropout > 0),
             "positions, types or dropout of an embedding without a norm"},
            {s->core.kind == GX_CORE_MLP && s->core.activation == GX_SWIGLU && s->core.has_bias, "SwiGLU with biases"},
            {s->core.reads_memory, "attention to an encoder's output"},
        };
        for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
            if (missing[i].is_asked)
                GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "unit \"%s\", pair %d (%s) asks for %s, which is not supported",
                        u->name, k, gx_core_name(s->core.kind), missing[i].what);
    }
}

// ---- shares --------------------------------------------------------------------------------------------------------

static GxStatus gx__model_split_heads(GxContext *g, const GxModel *m, GxUnitKind *u, const GxCoreSpec *c)
{
    const GxPartList *list = &m->lists.heads;
    GxSplit s;
    u->q = gx_shares_whole(c->heads * c->head_dim);
    u->kv = gx_shares_whole(c->kv_heads * c->head_dim);
    if (m->mode->methods.att != GX_METHOD_TP) return GX_OK;
    GX_TRY(gx_split_list(&s, "tp_num_attention_heads_list", list->n ? list->part : NULL, list->n, c->heads, m->members,
                         &g->error));
    u->q = gx_shares_of(&s, m->member, c->head_dim);
    return gx_shares_kv(&u->kv, &u->q_first, &s, c->kv_heads, m->member, c->head_dim, &g->error);
}

// Splits a side layer's MLP in the proportions of the list for the model's columns.
static GxStatus gx__model_split_side_columns(GxContext *g, const GxModel *m, GxUnitKind *u, int64_t columns)
{
    const GxPartList *list = &m->lists.columns;
    int64_t total = 0;
    GxSplit s;
    u->columns = gx_shares_whole(columns);
    if (m->mode->methods.mlp != GX_METHOD_TP) return GX_OK;
    if (columns < m->members)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "the MLP of the side network has %ld columns, fewer than the %d ranks among which they are "
                       "split; take a smaller side_reduction_factor",
                       (long)columns, m->members);
    for (int i = 0; i < list->n; i++) total += list->part[i];
    GX_TRY(gx_split_list(&s, "tp_intermediate_size_list", list->n ? list->part : NULL, list->n,
                         list->n ? total : columns, m->members, &g->error));
    s = gx_split_like(&s, columns);
    u->columns = gx_shares_of(&s, m->member, 1);
    return GX_OK;
}

// Splits one count: by TP as the list says or evenly; otherwise all ranks have everything.
static GxStatus gx__model_split_count(GxContext *g, const GxModel *m, GxShares *shares, GxMethod method,
                                      const char *list_name, const GxPartList *list, int64_t count)
{
    GxSplit s;
    *shares = gx_shares_whole(count);
    if (method != GX_METHOD_TP) return GX_OK;
    GX_TRY(gx_split_list(&s, list_name, list->n ? list->part : NULL, list->n, count, m->members, &g->error));
    *shares = gx_shares_of(&s, m->member, 1);
    return GX_OK;
}

static GxStatus gx__model_split(GxContext *g, const GxModel *m, GxUnitKind *u)
{
    const GxMethods *by = &m->mode->methods;
    for (int k = 0; k < u->spec.n_pairs; k++) {
        const GxCoreSpec *c = &u->spec.pair[k].core;
        if (c->kind == GX_CORE_ATT) GX_TRY(gx__model_split_heads(g, m, u, c));
        else if (c->kind == GX_CORE_MLP && u->spec.side) GX_TRY(gx__model_split_side_columns(g, m, u, c->columns));
        else if (c->kind == GX_CORE_MLP)
            GX_TRY(gx__model_split_count(g, m, &u->columns, by->mlp, "tp_intermediate_size_list", &m->lists.columns,
                                         c->columns));
        else if (c->kind == GX_CORE_EMBED || c->kind == GX_CORE_HEAD)
            GX_TRY(gx__model_split_count(g, m, &u->vocab, by->ends, "tp_vocab_size_list", &m->lists.vocab, c->vocab));
    }
    return GX_OK;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

static int gx__model_sums_over_tp(const GxTensorUse *use)
{
    const int is_split = (use->rows && use->rows->n > 1) || (use->cols && use->cols->n > 1);
    return gx_grad_sums_over_tp(use->layout, is_split            ? GX_USE_SPLIT
                                             : use->is_own_share ? GX_USE_OWN_SHARE
                                                                 : GX_USE_WHOLE);
}

GxTensorId gx_model_tensor(GxContext *g, GxModel *m, int unit, int k, const GxTensorUse *use)
{
    GxTensor t = GX_ZERO;
    const GxTensorId none = gx_no_tensor();
    char module[GX_MODULE];
    if (gx_failed(g)) return none;
    const int is_side = gx_unit_spec(m, unit)->side != GX_SIDE_NONE;
    const int prefix = snprintf(module, sizeof module, "%s", is_side ? GX_SIDE_PREFIX : "");
    snprintf(module + prefix, sizeof module - (size_t)prefix, use->name, use->number);
    snprintf(t.name, sizeof t.name, "%s.%s", module, use->role == GX_ROLE_BIAS ? "bias" : "weight");
    t.role = use->role;
    t.unit = unit, t.pair = k, t.is_added = is_side;
    t.is_vocabulary = use->rows && use->rows == &m->kind[m->unit[unit].kind].vocab;
    t.packed = use->packed;
    t.ndim = use->shape[1] ? 2 : 1;
    t.init = use->role == GX_ROLE_NORM ? GX_INIT_ONES : use->role == GX_ROLE_BIAS ? GX_INIT_ZEROS : GX_INIT_NORMAL;
    t.init_std = gx_unit_spec(m, unit)->init_std;
    t.decay = use->role != GX_ROLE_NORM && use->role != GX_ROLE_BIAS;
    t.sums_over_tp = gx__model_sums_over_tp(use);
    const GxShares *shares[2] = {use->rows, use->cols};
    for (int d = 0; d < t.ndim; d++) {
        const GxShares *s = shares[d];
        t.global_shape[d] = t.end[d] = use->shape[d];
        if (!s || s->n == 1) continue;
        t.begin[d] = gx_share_mine(s).begin, t.end[d] = gx_share_mine(s).end;
        t.split_dim = d, t.split_axes = GX_AXIS_TP, t.n_parts = s->n, t.parts = s->part;
    }
    t.has_alias = use->alias != 0;
    t.alias.index = use->alias - 1;
    if (use->alias && t.sums_over_tp != m->table.row[t.alias.index].sums_over_tp) { // both uses add to one gradient
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "mode %s: the gradient of %s is summed over other ranks than that of %s, to which it is tied",
                m->mode->name, t.name, m->table.row[t.alias.index].name);
        return none;
    }
    return gx_table_add(&m->table, &t, &g->error);
}

GxNormIds gx_model_norm(GxContext *g, GxModel *m, int unit, int k, GxNormKind kind, const char *name, int number,
                        GxLayout layout)
{
    const int64_t C = gx_unit_spec(m, unit)->width;
    const GxTensorUse weight = {name, number, GX_ROLE_NORM, {C, 0}, NULL, NULL, layout, 0, 0, 0},
                      bias = {name, number, GX_ROLE_BIAS, {C, 0}, NULL, NULL, layout, 0, 0, 0};
    GxNormIds ids;
    ids.weight = gx_model_tensor(g, m, unit, k, &weight);
    ids.bias = kind == GX_LAYER_NORM ? gx_model_tensor(g, m, unit, k, &bias) : gx_no_tensor();
    return ids;
}

const char *gx_head_name(GxHeadKind kind)
{
    static const char *const names[] = {"the next token", "masked tokens", "labels", "vectors"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "?";
}

int64_t gx_model_vocab(const GxModel *m) { return *m->family->vocab_size((void *)m->config); }

GxLinear gx_model_linear(const GxModel *m, GxTensorId first, int parts, GxTensorId bias)
{
    GxLinear l = {first, parts, 0, 0, bias, NULL, 0};
    if (first.index < 0) return l;
    const GxTensor *w = &m->table.row[first.index];
    l.in = w->end[1] - w->begin[1];
    for (int i = 0; i < parts && first.index + i < m->table.n; i++) l.out += w[i].end[0] - w[i].begin[0];
    return l;
}

int gx_model_kind(GxContext *g, GxModel *m, const GxUnitSpec *spec)
{
    gx__model_refuse(g, spec);
    if (m->kinds == GX_MAX_KINDS)
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "more than %d kinds of units in a model", GX_MAX_KINDS);
    if (gx_failed(g)) return 0;
    m->kind[m->kinds].spec = *spec;
    gx__model_split(g, m, &m->kind[m->kinds]);
    return m->kinds++;
}

static int gx__model_grow(GxContext *g, GxModel *m)
{
    if (m->units < m->units_capacity) return 1;
    const int capacity = m->units_capacity ? 2 * m->units_capacity : 16;
    GxUnit *grown = (GxUnit *)realloc(m->unit, (size_t)capacity * sizeof *grown);
    if (!grown) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a model of %d units", m->units + 1);
    if (!grown) return 0;
    m->unit = grown;
    m->units_capacity = capacity;
    return 1;
}

static GxPair gx__model_no_tensors(void)
{
    GxPair p = GX_ZERO;
    const GxTensorId none = gx_no_tensor();
    const GxLinear nothing = {none, 0, 0, 0, none, NULL, 0};
    p.norm.weight = p.norm.bias = p.con_norm.weight = p.con_norm.bias = none;
    p.qk_norm[0] = p.qk_norm[1] = p.prompt = p.gate = none;
    p.matrix = p.con_bias = p.positions = p.types = none;
    p.enter = p.linear[0] = p.linear[1] = p.adapter[0] = p.adapter[1] = nothing;
    return p;
}

// Norms come first: the optimizer treats them all alike, and adjacent tensors go in one call.
void gx_model_unit(GxContext *g, GxModel *m, int kind, int number)
{
    if (gx_failed(g) || !gx__model_grow(g, m)) return;
    const int unit = m->units++;
    const GxUnitSpec *u = &m->kind[kind].spec;
    GxUnit *made = &m->unit[unit];
    memset(made, 0, sizeof *made);
    made->kind = kind;
    made->first_row = m->table.n;
    if (unit > 0) {
        const GxSidePlace before = gx_unit_spec(m, unit - 1)->side;
        made->has_side = before == GX_SIDE_NONE ? made[-1].has_side : before != GX_SIDE_LAST;
    }
    for (int k = 0; k < u->n_pairs; k++) {
        made->pair[k] = gx__model_no_tensors();
        gx_enter_open(g, m, unit, k, number);
        gx_con_open(g, m, unit, k, number);
    }
    for (int k = 0; k < u->n_pairs; k++) gx_core_open(g, m, unit, k, number);
    gx_lora_open(g, m, unit);
    gx_bottleneck_open(g, m, unit, number);
    gx_side_open(g, m, unit, number);
    gx_prompt_open(g, m, unit, number);
    gx_scale_open(g, m, unit);
    m->unit[unit].rows = m->table.n - m->unit[unit].first_row;
}

void gx_model_chain(GxContext *g, GxModel *m, const GxUnitSpec *embed, const GxUnitSpec *layer, int64_t layers,
                    const GxUnitSpec *head)
{
    const int has_side = m->side.reduction > 0;
    GxUnitSpec embed_spec = *embed, layer_spec = *layer;
    int side[GX_SIDE_PLACES] = GX_ZERO;
    if (has_side) gx_side_still(&embed_spec), gx_side_still(&layer_spec);
    const int embed_kind = gx_model_kind(g, m, &embed_spec), layer_kind = gx_model_kind(g, m, &layer_spec),
              head_kind = gx_model_kind(g, m, head);
    for (int place = GX_SIDE_FIRST; has_side && place < GX_SIDE_PLACES; place++) {
        const GxUnitSpec spec = gx_side_unit(g, m, layer, (GxSidePlace)place);
        side[place] = gx_model_kind(g, m, &spec);
    }
    gx_model_unit(g, m, embed_kind, 0);
    if (has_side) gx_model_unit(g, m, side[GX_SIDE_FIRST], 0);
    for (int l = 0; l < layers; l++) {
        gx_model_unit(g, m, layer_kind, l);
        if (has_side) gx_model_unit(g, m, side[l + 1 < layers ? GX_SIDE_LAYER : GX_SIDE_LAST], l);
    }
    gx_model_unit(g, m, head_kind, 0);
}

static int gx__model_quantize_linear(GxModel *m, const GxLinear *l, int kind)
{
    GxTensor *t = &m->table.row[l->first.index];
    for (int i = 0; i < l->parts; i++)
        if (!t[i].frozen || t[i].is_adapter) return 0; // what an adapter has whole is in numbers, in its file, too
    for (int i = 0; i < l->parts; i++) t[i].quantized = kind;
    return l->parts;
}

static GxStatus gx__model_quantize(GxModel *m, int kind, GxError *err)
{
    int n = 0;
    for (int i = 0; kind && i < m->units; i++)
        for (int k = 0; k < gx_unit_spec(m, i)->n_pairs; k++)
            for (int j = 0; j < 2; j++) {
                const GxLinear *l = &m->unit[i].pair[k].linear[j];
                const GxCoreKind core = gx_unit_spec(m, i)->pair[k].core.kind;
                if (core == GX_CORE_ATT || core == GX_CORE_MLP) n += gx__model_quantize_linear(m, l, kind);
            }
    if (n || !kind) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "there is no frozen matrix of attention or MLP to quantise (packed ones, q, k, v or gate, up, must all be "
        "frozen); freeze some (--freeze), or train an adapter (--tuning lora)");
}

static GxStatus gx__model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                               const GxModelOptions *options)
{
    const GxModelOptions none = GX_ZERO, *o = options ? options : &none;
    memset(m, 0, sizeof *m);
    m->family = family, m->config = config, m->mode = mode;
    m->members = gx_group_size(g, GX_AXIS_TP), m->member = gx_group_index(g, GX_AXIS_TP);
    m->embedding.index = -1;
    if (o->lists) m->lists = *o->lists;
    if (o->head) m->head = *o->head;
    if (o->lora) m->lora = *o->lora;
    if (o->bottleneck) m->bottleneck = *o->bottleneck;
    if (o->side) m->side = *o->side;
    if (o->prompt) m->prompt = *o->prompt;
    GX_TRY(gx_lora_check(&m->lora, &g->error));
    GX_TRY(gx_bottleneck_check(m, &g->error));
    GX_TRY(gx_side_check(m, &g->error));
    GX_TRY(gx_methods_check(mode->methods, &g->error));
    GX_TRY(family->resolve(config, &g->error));
    GX_TRY(gx_prompt_check(m, &g->error));
    GX_TRY(gx_tuned_check_methods(m, &g->error));
    m->kind = (GxUnitKind *)calloc(GX_MAX_KINDS, sizeof *m->kind);
    if (!m->kind) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the kinds of a model's units");
    family->describe(g, m);
    GX_TRY(gx_status(g));
    GX_TRY(gx_tuned_freeze(m, &g->error));
    GX_TRY(gx_side_check_trained(m, &g->error));
    if (o->freeze && o->freeze[0]) gx_table_freeze(&m->table, o->freeze, &g->error);
    GX_TRY(gx_status(g));
    GX_TRY(gx__model_quantize(m, o->quantize, &g->error));
    m->table.units = m->units; // a head of vectors has no tensor
    GX_TRY(gx_store_open(&m->store, &m->table, o->units, o->dtype, &g->error));
    return gx_shards_open(g, &m->store, o->sharded, o->shard_list);
}

// Where the configuration says whether the head is tied; NULL: nowhere.
static int *gx__model_tie(const GxFamily *family, void *config)
{
    const GxField *f = gx_field_find(family->fields, family->n_fields, "tie_word_embeddings");
    return f ? (int *)gx_field_at(f, config) : NULL;
}

// Both tables have the same rows.
GxStatus gx_model_open(GxContext *g, GxModel *m, const GxFamily *family, void *config, const GxMode *mode,
                       const GxModelOptions *options)
{
    GX_TRY(gx__model_open(g, m, family, config, mode, options));
    int tied = gx_tuned_tied_head(m), *tie = gx__model_tie(family, config);
    const int embedding = m->embedding.index, is_tuned = tied >= 0;
    if (tied < 0 && options && options->unties_lora) tied = gx_lora_tied_head(m);
    if (tied < 0 || !tie) return GX_OK;
    gx_model_close(m);
    const int was = *tie;
    *tie = 0;
    const GxStatus status = gx__model_open(g, m, family, config, mode, options);
    if (is_tuned) *tie = was; // what is said of the model stays true of its folder
    if (status == GX_OK) m->table.row[tied].copies = 1 + embedding;
    return status;
}

void gx_model_close(GxModel *m)
{
    gx_store_close(&m->store);
    gx_table_close(&m->table);
    free(m->kind);
    free(m->unit);
    memset(m, 0, sizeof *m);
}

// ---- constants -----------------------------------------------------------------------------------------------------

// The rotary positions of the first attention, or NULL. All attentions of the backbone have the same ones; so have all
// of a side network.
static const GxCoreSpec *gx__model_rotary(const GxModel *m, int is_side)
{
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) {
            const GxCoreSpec *c = &m->kind[i].spec.pair[k].core;
            if (is_side == (m->kind[i].spec.side != GX_SIDE_NONE) && c->kind == GX_CORE_ATT && c->rope.theta > 0)
                return c;
        }
    return NULL;
}

static void gx__model_allocate_rope(GxContext *g, GxRopeTable *table, const GxCoreSpec *c, int64_t T)
{
    const int64_t bytes = c ? 4 * T * (c->head_dim / 2) : 0;
    table->cosine = table->sine = NULL;
    if (!c) return;
    table->cosine = (float *)gx_scratch(g, GX_MEM_ACTIVATIONS, bytes);
    table->sine = (float *)gx_scratch(g, GX_MEM_ACTIVATIONS, bytes);
    GxArena *host = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(host);
    float *cosine = (float *)gx_host_copy(g, GX_MEM_WORKSPACE, table->cosine, bytes);
    float *sine = (float *)gx_host_copy(g, GX_MEM_WORKSPACE, table->sine, bytes);
    if (cosine && sine && g->device->computes) gx_rope_table(cosine, sine, T, c->head_dim, &c->rope);
    gx_to_device(g, table->cosine, cosine, bytes);
    gx_to_device(g, table->sine, sine, bytes);
    gx_arena_release(host, mark);
}

void gx_model_allocate(GxContext *g, GxModel *m, int64_t T, int64_t B, int64_t chunk)
{
    const GxPartList *list = &m->lists.sequence;
    const int is_split = gx_methods_have(m->mode->methods, GX_METHOD_SP);
    const int64_t positions = gx_max(T, m->cached);
    if (gx_failed(g)) return;
    if (m->max_positions && positions > m->max_positions) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "a sequence of %ld tokens is longer than the model's max_position_embeddings (%ld)%s", (long)positions,
                (long)m->max_positions, T > m->max_positions ? ": set --seq_len to that, or to less" : "");
        return;
    }
    if (gx_split_list(&m->sequence, list->n ? "seq_scatter_list" : "seq_len", is_split && list->n ? list->part : NULL,
                      list->n, T, is_split ? m->members : 1, &g->error) != GX_OK)
        return;
    m->max_T = T, m->max_B = B, m->chunk = gx_min(T * B, chunk);
    for (int is_side = 0; is_side < 2; is_side++)
        gx__model_allocate_rope(g, &m->rope[is_side], gx__model_rotary(m, is_side), positions);
}

// ---- first weights -------------------------------------------------------------------------------------------------

void gx_model_init_tensor(GxContext *g, const GxModel *m, int row, uint64_t seed)
{
    const GxTensor *t = &m->table.row[row];
    GxArena *host = gx_host_arena(g);
    const int64_t count = gx_tensor_count(t);
    const int here = gx_store_holder(&m->store, row);
    if (here < 0) return;
    for (int64_t first = 0; first < count && !gx_failed(g); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark mark = gx_arena_mark(g->arena), host_mark = gx_arena_mark(host);
        float *values = gx_values_write(g, &m->store, GX_VALUES_WEIGHTS, here, first, n);
        float *host_copy = (float *)gx_host_copy(g, GX_MEM_WORKSPACE, values, 4 * n);
        if (host_copy && g->device->computes) gx_tensor_init(t, seed, first, n, host_copy);
        gx_to_device(g, values, host_copy, 4 * n);
        gx_values_written(g, &m->store, GX_VALUES_WEIGHTS, here, first, n, values);
        gx_arena_release(host, host_mark);
        gx_arena_release(g->arena, mark);
        if (!g->device->computes) return; // for a plan one piece is enough: no later one takes more memory
    }
}

void gx_model_init(GxContext *g, GxModel *m, uint64_t seed)
{
    for (int i = 0; i < m->table.n; i++)
        if (!m->table.row[i].has_alias && !m->table.row[i].quantized) gx_model_init_tensor(g, m, i, seed);
}
#endif
