// model/model.h: a model as data: a list of units, each described as a list of (core, CON) pairs (spec.h); the mode,
// which says how pairs are split over the ranks of a tp group; and the table of tensors that follows from both, with
// each rank's box in every tensor.
//
// A layer is two pairs, (ATT, CON) and (MLP, CON); the embedding is a pair without an incoming stream, a head a pair
// without an outgoing one. A pair computes y = CON(x, core(enter(x))): enter is the norm before a core, or nothing; CON
// joins the core's result to the residual stream. A family (llama.h) has a configuration, names, and descriptions of
// units.
//
// This file only has what a model consists of. build.h makes one, pass.h has what units use at run time, unit.h runs
// them.
#ifndef GX_MODEL_H
#define GX_MODEL_H
#include "../base/fields.h"
#include "../base/partition.h"
#include "../base/store.h"
#include "rows.h"
#include "spec.h"
#include "tuning_spec.h"
GX_BEGIN

enum { GX_MAX_KINDS = 6, GX_MAX_UNITS = 1024, GX_MODULE = 96 };
typedef struct GxPass GxPass;   // pass.h
typedef struct GxTiles GxTiles; // tiles.h
typedef struct GxModel GxModel;
typedef struct GxTuner GxTuner; // tuner.h

// What a family with an encoder puts around each text, by its configuration: token ids. begin -1: nothing.
typedef struct {
    int32_t begin, end, pad;
    int32_t start;          // what the decoder reads before the first token of a target
    int32_t first_position; // the row of the table of positions that belongs to position 0
    // 1: texts also have the token of their language (task/languages.h), which a task sets. It is behind `end`, and
    // `start` is that of the target; with language_first it is before the text, and `start` is `end`.
    int has_languages, language_first;
    int32_t language[2]; // of sources, of targets
} GxTextFrame;

struct GxTask;   // task/task.h
typedef struct { // a family
    const char *name;
    // the fields of its configuration: they define flags and members of config.json; all ranks have the same values
    const GxField *fields;
    int n_fields;
    size_t config_size;
    GxStatus (*resolve)(void *config, GxError *err); // fills in defaults; an error if a value is invalid
    // Describes the units with gx_model_kind and gx_model_unit, with the head that m->head asks for. Sets errors in g.
    void (*describe)(GxContext *g, GxModel *m);
    int64_t *(*vocab_size)(void *config);
    // Reads config.json of a Hugging Face folder. Members that are not read are reported to `log` (io/json_keys.h).
    GxStatus (*read_config)(void *config, const char *path, const GxLogger *log, GxError *err);
    GxStatus (*write_config)(const void *config, const GxHeadRequest *request, const char *path, GxError *err);
    const char *(*architecture)(const void *config,
                                const GxHeadRequest *request); // transformers' class name for a model with this head
    // Warns, before training, if other libraries would not load a model with this resolved configuration. NULL: they
    // always do.
    void (*warn)(const void *config, const GxLogger *log);
    // Patterns (shell style, separated by commas) for the names of heads' tensors: a file may lack a head of the model,
    // or have another one, but only as a whole. NULL: a file has exactly the model's tensors.
    const char *heads;
    // Translates a tensor name of a file into that of the family's table t (NULL: of any of its tables). 1: `name` is
    // set; 0: the tensor is not needed. NULL: the names are the same.
    int (*tensor_name)(const GxTable *t, const char *in_file, char name[GX_NAME]);
    // The name of a tensor that a file may have, as it is in the file, and that must then be all 0, since it would be
    // added to something. NULL: there is none.
    const char *zero;
    const struct GxTask *const *tasks; // the tasks that it can be trained for, the default first; ends with NULL
    int frames_texts;                  // 1: a text is placed between [CLS] and [SEP]
    // Of a family with an encoder and a decoder; NULL: of others.
    void (*frame)(const void *config, GxTextFrame *frame);
} GxFamily;

// The field of this name in the family's configuration. Sizes that most families call hidden_size, intermediate_size,
// num_hidden_layers and num_attention_heads are found under these names in all of them. NULL: there is none.
const GxField *gx_family_field(const GxFamily *family, const char *name);

// A mode: how the blocks are split, and the forward and backward of ONE pair. Implemented in train_tp.cu and its
// siblings.
typedef struct {
    const char *name;
    GxMethods methods;
    void (*pair_forward)(GxPass *p, int k, GxRows y, GxRows x);
    void (*pair_backward)(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x); // dx may be dy
    int is_tiled; // 1: its collectives go by tiles (tiles.h), in train_<name>_tiled.cu
} GxMode;

// ---- a model -------------------------------------------------------------------------------------------------------

typedef struct { // adjacent matrices that are multiplied as one: q, k, v; gate, up
    GxTensorId first;
    int parts;
    int64_t in, out; // sizes of this rank's part
    GxTensorId bias; // of the first matrix; the others' biases follow it; index -1: none
    void *product;   // where the product before a scale is kept; NULL: in the slot
    int64_t picked;  // of a head: the first row of its target that it is applied to
} GxLinear;
typedef struct { // of a norm; an RMS norm has no bias
    GxTensorId weight, bias;
} GxNormIds;
typedef struct { // ids of a pair's tensors; index -1: none
    GxNormIds norm, con_norm;
    GxTensorId qk_norm[2]; // of the heads of q, of k
    GxTensorId matrix, con_bias, positions, types;
    GxLinear enter, linear[2];
    GxLinear adapter[2];     // CON's: down, up
    GxTensorId prompt, gate; // attention's
    GxTensorId relative;     // attention's: its stack's table of biases by distance
} GxPair;
// What is computed again in a layer's backward. ATT, MLP: what the core would keep, by the core's own backward; LAYER:
// all but the layer's input, before the layer's backward (parallel/steps.h).
enum { GX_AGAIN_ATT = 1, GX_AGAIN_MLP = 2, GX_AGAIN_LAYER = 4 };
typedef struct {
    int kind;
    int number;             // in its tensors' names: that of the layer; 0: embedding and head
    int again;              // GX_AGAIN_ATT, ...
    int first_row, rows;    // its rows of the table
    int has_side;           // 1: both the backbone's and the side network's streams enter
    int64_t sliding_window; // how many of the nearest keys a query attends to; 0: all
    int skips_rope;         // 1: its attention does not rotate q and k, though that of other layers does
    float scale;            // of its attention's scores; 0: its core's
    int local_rope;         // 1: it rotates them by its core's local_rope
    GxPair pair[GX_MAX_PAIRS];
    GxLinear down, up; // of a side network's unit, which may also have a gate [1]
    GxTensorId gate;
} GxUnit;
typedef struct { // tables for positions: [max_T or cached, head_dim/2] each; NULL: no RoPE
    float *cosine, *sine;
} GxRopeTable;
typedef struct { // units of one description, and each rank's share of heads, columns and vocabulary rows
    GxUnitSpec spec;
    GxShares q, kv, columns, vocab;
    GxShares heads;  // query heads
    int64_t q_first; // index of this rank's first query head among those that share its first K,V head
} GxUnitKind;

struct GxModel {
    const GxFamily *family;
    const void *config;
    const GxMode *mode;
    GxHeadRequest head;
    GxAdapter adapter;
    GxTuner *tuner; // [tuners]: the methods that tune it
    int tuners;
    GxSplitLists lists; // as the user gave them (stage_shares.h)
    GxTable table;
    GxStore store;
    GxUnitKind *kind; // [GX_MAX_KINDS]
    int kinds;
    GxUnit *unit; // [units]
    int units, units_capacity;
    int members, member;         // ranks of the tp group; this one's place in it
    int widest;                  // ranks of the largest tp group of the pipeline
    GxSplit sequence;            // the split of T of the largest batch, if any block is split by SP
    GxCp cp;                     // n > 1: a training's batches have this rank's rows of their sequences
    int64_t max_T, max_B, chunk; // largest batch; how many rows of a head have their logits in memory at once
    // Of a model with an encoder: the unit that ends it, whose output is the memory, and the longest source. 0: none
    int memory;
    int64_t max_source_T;
    // The share of a label that a head over the vocabulary spreads over all tokens (ops/loss.h); 0 unless it is set.
    float label_smoothing;
    int64_t cached;         // positions of a KV cache (kv_cache.h), possibly more than a batch's; 0: none
    int64_t max_positions;  // 0: any
    GxRopeTable rope[2][2]; // of the backbone, of a side network; [1]: of units with local_rope
    GxTensorId embedding;
    // Of T5 (relative.h), for attention that is bidirectional, that is causal: the table of biases, and the bucket of
    // each distance [2*max_distance + 1]; NULL: there is none
    GxTensorId relative[2];
    int32_t *bucket[2];
};

static inline const GxUnitSpec *gx_unit_spec(const GxModel *m, int unit) { return &m->kind[m->unit[unit].kind].spec; }
static inline int gx_model_has_adapter(const GxModel *m) { return m->tuners > 0; }
static inline int64_t gx_model_width(const GxModel *m) { return gx_unit_spec(m, 0)->width; }
int64_t gx_model_vocab(const GxModel *m);
const char *gx_model_positions_name(const GxModel *m); // of the configuration's field: max_position_embeddings
static inline GxTensorId gx_no_tensor(void)
{
    const GxTensorId none = {-1};
    return none;
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_IMPLEMENTED)
#define GX_MODEL_IMPLEMENTED
#include <string.h>

const GxField *gx_family_field(const GxFamily *family, const char *name)
{
    static const char *const other[][2] = {{"hidden_size", "n_embd"},
                                           {"intermediate_size", "n_inner"},
                                           {"num_hidden_layers", "n_layer"},
                                           {"num_attention_heads", "n_head"}};
    const GxField *f = gx_field_find(family->fields, family->n_fields, name);
    for (size_t i = 0; i < sizeof other / sizeof *other && !f; i++)
        if (!strcmp(other[i][0], name)) f = gx_field_find(family->fields, family->n_fields, other[i][1]);
    return f;
}

const char *gx_model_positions_name(const GxModel *m)
{
    const GxFamily *f = m->family;
    return gx_field_find(f->fields, f->n_fields, "n_positions") ? "n_positions" : "max_position_embeddings";
}

int64_t gx_model_vocab(const GxModel *m) { return *m->family->vocab_size((void *)m->config); }
#endif
