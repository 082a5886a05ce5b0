// model/tuning_spec.h: the hyperparameters of the methods of training a part of a model. What a method adds to a model
// and computes is in its own file (lora.h, bottleneck.h, side.h, prompt.h with scale.h); tuners.h lists the methods.
#ifndef GX_TUNING_SPEC_H
#define GX_TUNING_SPEC_H
#include "../base/fields.h"
GX_BEGIN

// Low-rank adaptation (Hu et al. 2021, arXiv:2106.09685): a linear's matrix W [out,in] is frozen, and A [r,in] and B
// [out,r] are trained: y = x W^T + b + s * (x A^T) B^T, with s = alpha / r, or alpha / sqrt(r) if is_scaled_by_root
// (Kalajdzievski 2023, arXiv:2312.03732).
typedef struct {
    int64_t r; // 0: no LoRA
    double alpha;
    int is_scaled_by_root;
    float dropout; // of A's input, sampled separately for each linear
    // Which linears: module names separated by commas, each a whole name or its last components ("q_proj"). NULL or "":
    // all of attention and MLP; "all-linear": also those before heads (a pooler), but not those of heads. A name that
    // matches neither a linear nor the token embedding is an error.
    const char *targets;
    // Modules that are also trained, whole, by suffixes of their names, like peft's modules_to_save: "norm" also
    // matches input_layernorm, "model.norm" does not. NULL or "": only heads for labels. A name that matches no module
    // is an error, unless GxAdapter.is_read.
    const char *trainable;
    // Not NULL: targets is a pattern, and this function says whether it matches a module's whole name (for
    // GX_HEAD_VECTORS: the name in transformers' model without a head).
    int (*finds)(const char *pattern, const char *module);
    // Targets that get no LoRA after all: names as in `targets`, or a pattern if `excludes` is not NULL. NULL or "":
    // none
    const char *excluded;
    int (*excludes)(const char *pattern, const char *module);
    // Only targets in these layers get LoRA, except for targets given by whole names or by a pattern; NULL or empty:
    // all. A module's layer is the number in its name that follows one of the components in `lists` ("layers"); lists
    // NULL or "": the first number.
    const GxIntList *layers;
    const char *lists;
    // Patterns of modules that have another r or another alpha: `value` returns a module's, or else `otherwise`. NULL
    // or "": none
    const char *rank_pattern, *alpha_pattern;
    double (*value)(const char *patterns, const char *module, double otherwise);
} GxLora;

// Bottleneck adapters (bottleneck.h): two small linears after each attention and MLP.
typedef struct {
    int64_t reduction;     // k: the inner width is C/k; k must divide C. 0: no adapters
    const char *trainable; // as GxLora's
} GxBottleneck;

// A side network (side.h): beside each layer a narrow layer that reads that layer's output.
typedef struct {
    int64_t reduction;     // k: width, MLP and heads of its layers are 1/k of the model's; k divides C. 0: none
    int is_gated;          // a side layer reads mu * Down(h) + (1 - mu) * s, not Down(h) + s
    int has_bias;          // of Down and Up
    const char *trainable; // as GxLora's, of heads
} GxSide;

// Prompts in attention, LLaMA-Adapter (prompt.h): learned rows that the queries of the last layers attend to in
// addition.
typedef struct {
    int64_t len;           // prompt rows per layer; 0: no prompts
    int64_t layers;        // how many layers, counted from the last, have prompts; 0: all but the first two
    const char *trainable; // as GxLora's
    int is_v2;             // LLaMA-Adapter v2: also trains a scale and a bias of each linear (scale.h), and norms
} GxPrompt;

typedef struct { // at most one of these is set
    GxLora lora;
    GxBottleneck bottleneck;
    GxSide side;
    GxPrompt prompt;
    // 1: the names of modules and layers come from an adapter's folder, and the model may lack some of them: for labels
    // peft lists the heads of all architectures.
    int is_read;
} GxAdapter;

GX_END
#endif
