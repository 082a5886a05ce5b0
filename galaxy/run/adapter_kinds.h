// adapter_kinds.h: the kinds of adapters that a folder can hold, a row for each peft_type: how hyperparameters are
// converted from and to adapter_config.json (peft.h), and what messages say about them. A tuning method that saves an
// adapter adds its functions and its row here, and its keys to peft.h.
#ifndef GX_ADAPTER_KINDS_H
#define GX_ADAPTER_KINDS_H
#include "../model/tuning_spec.h"
#include "peft.h"
#include <stdio.h>
GX_BEGIN

enum { GX_ADAPTER_TEXT = 200 };
typedef struct {
    const char *type;     // peft_type
    const char *contents; // "bottleneck adapters"
    const char *unmerged; // why it cannot be merged into the model's matrices, after `contents`; NULL: it can
    int (*is_on)(const GxAdapter *a);
    void (*read)(GxAdapter *a, const GxPeftConfig *c); // strings of *a point into *c
    void (*write)(GxPeftConfig *c, const GxAdapter *a);
    // The hyperparameters that decide what the tensors mean, as keys and values: "r 8, lora_alpha 16, use_rslora 0".
    void (*say)(const GxAdapter *a, char out[GX_ADAPTER_TEXT]);
    // What a run says at its start, without a newline. width: the model's.
    void (*describe)(FILE *out, const GxAdapter *a, int64_t width);
} GxAdapterKind;

const GxAdapterKind *gx_adapter_kind(const GxAdapter *a);              // NULL: the model is trained without an adapter
const GxAdapterKind *gx_adapter_kind_of_config(const GxPeftConfig *c); // NULL: it was not read

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ADAPTER_KINDS_IMPLEMENTED)
#define GX_ADAPTER_KINDS_IMPLEMENTED
#include <math.h>
#include <string.h>

// ---- LoRA ----------------------------------------------------------------------------------------------------------

static int gx__adapter_is_lora(const GxAdapter *a) { return a->lora.r != 0; }

static void gx__adapter_read_lora(GxAdapter *a, const GxPeftConfig *c)
{
    GxLora *l = &a->lora;
    l->r = c->r, l->alpha = c->lora_alpha, l->dropout = (float)c->lora_dropout, l->is_scaled_by_root = c->use_rslora;
    l->targets = c->targets, l->trainable = c->modules_to_save;
    l->finds = gx_module_is_pattern(c->targets) ? gx_module_pattern_finds : NULL;
    l->excluded = c->excluded, l->excludes = gx_module_is_pattern(c->excluded) ? gx_module_pattern_finds : NULL;
    l->layers = &c->layers, l->lists = c->layers_pattern;
    l->rank_pattern = c->rank_pattern, l->alpha_pattern = c->alpha_pattern, l->value = gx_module_number;
}

static void gx__adapter_write_lora(GxPeftConfig *c, const GxAdapter *a)
{
    const GxLora *l = &a->lora;
    c->r = l->r, c->lora_alpha = l->alpha, c->use_rslora = l->is_scaled_by_root;
    c->lora_dropout = rint(1e6 * (double)l->dropout) / 1e6; // 0.05, not 0.05000000075
    snprintf(c->rank_pattern, sizeof c->rank_pattern, "%s", l->rank_pattern ? l->rank_pattern : "");
    snprintf(c->alpha_pattern, sizeof c->alpha_pattern, "%s", l->alpha_pattern ? l->alpha_pattern : "");
}

static void gx__adapter_say_lora(const GxAdapter *a, char out[GX_ADAPTER_TEXT])
{
    const GxLora *l = &a->lora;
    snprintf(out, GX_ADAPTER_TEXT, "r %ld, lora_alpha %.9g, use_rslora %d", (long)l->r, l->alpha, l->is_scaled_by_root);
}

static void gx__adapter_describe_lora(FILE *out, const GxAdapter *a, int64_t width)
{
    const GxLora *l = &a->lora;
    (void)width;
    fprintf(out, "LoRA: r %ld, alpha %g%s, dropout %g, on %s", (long)l->r, l->alpha,
            l->is_scaled_by_root ? " (rsLoRA)" : "", (double)l->dropout,
            l->targets && l->targets[0] ? l->targets : "all matrices of attention and MLP");
}

// ---- bottleneck adapters -------------------------------------------------------------------------------------------

static int gx__adapter_is_bottleneck(const GxAdapter *a) { return a->bottleneck.reduction != 0; }

static void gx__adapter_read_bottleneck(GxAdapter *a, const GxPeftConfig *c)
{
    a->bottleneck.reduction = c->reduction, a->bottleneck.trainable = c->modules_to_save;
}

static void gx__adapter_write_bottleneck(GxPeftConfig *c, const GxAdapter *a)
{
    c->reduction = a->bottleneck.reduction;
}

static void gx__adapter_say_bottleneck(const GxAdapter *a, char out[GX_ADAPTER_TEXT])
{
    snprintf(out, GX_ADAPTER_TEXT, "adapter_reduction_dim %ld", (long)a->bottleneck.reduction);
}

static void gx__adapter_describe_bottleneck(FILE *out, const GxAdapter *a, int64_t width)
{
    fprintf(out, "adapters: width %ld, %ld inside, after attention and MLP of each layer", (long)width,
            (long)(width / a->bottleneck.reduction));
}

// ---- side networks -------------------------------------------------------------------------------------------------

static int gx__adapter_is_side(const GxAdapter *a) { return a->side.reduction != 0; }

static void gx__adapter_read_side(GxAdapter *a, const GxPeftConfig *c)
{
    a->side.reduction = c->side_reduction, a->side.is_gated = !strcmp(c->side_mix, "gated");
    a->side.has_bias = c->add_bias_sampling, a->side.trainable = c->modules_to_save;
}

static const char *gx__adapter_side_mix(const GxAdapter *a) { return a->side.is_gated ? "gated" : "plain"; }

static void gx__adapter_write_side(GxPeftConfig *c, const GxAdapter *a)
{
    c->side_reduction = a->side.reduction, c->add_bias_sampling = a->side.has_bias;
    snprintf(c->side_mix, sizeof c->side_mix, "%s", gx__adapter_side_mix(a));
}

static void gx__adapter_say_side(const GxAdapter *a, char out[GX_ADAPTER_TEXT])
{
    snprintf(out, GX_ADAPTER_TEXT, "side_reduction_factor %ld, side_mix %s, add_bias_sampling %d",
             (long)a->side.reduction, gx__adapter_side_mix(a), a->side.has_bias);
}

static void gx__adapter_describe_side(FILE *out, const GxAdapter *a, int64_t width)
{
    fprintf(out, "side network: width %ld beside %ld, %s, %s biases; no gradient goes through the model",
            (long)(width / a->side.reduction), (long)width, gx__adapter_side_mix(a),
            a->side.has_bias ? "with" : "without");
}

// ---- prompts, without and with scales ------------------------------------------------------------------------------

static int gx__adapter_is_prompt(const GxAdapter *a) { return a->prompt.len != 0 && !a->prompt.is_v2; }
static int gx__adapter_is_prompt_v2(const GxAdapter *a) { return a->prompt.len != 0 && a->prompt.is_v2; }

static void gx__adapter_read_prompt(GxAdapter *a, const GxPeftConfig *c)
{
    a->prompt.len = c->prompt_len, a->prompt.layers = c->prompt_layers;
    a->prompt.is_v2 = !strcmp(c->type, GX_PEFT_PROMPT_V2), a->prompt.trainable = c->modules_to_save;
}

static void gx__adapter_write_prompt(GxPeftConfig *c, const GxAdapter *a)
{
    c->prompt_len = a->prompt.len, c->prompt_layers = a->prompt.layers;
}

static void gx__adapter_say_prompt(const GxAdapter *a, char out[GX_ADAPTER_TEXT])
{
    snprintf(out, GX_ADAPTER_TEXT, "adapter_len %ld, adapter_layers %ld, prompt_variant %s", (long)a->prompt.len,
             (long)a->prompt.layers, a->prompt.is_v2 ? "v2" : "v1");
}

static void gx__adapter_describe_prompt(FILE *out, const GxAdapter *a, int64_t width)
{
    (void)width;
    fprintf(out, "prompts: %ld rows in the attention of each of the last %ld layers%s", (long)a->prompt.len,
            (long)a->prompt.layers,
            a->prompt.is_v2 ? "; a scale and a bias of each linear of attention and MLP, and norms" : "");
}

// ---- the kinds -----------------------------------------------------------------------------------------------------

#define GX__ADAPTER_HAS_SOFTMAX                                                                                        \
    "which cannot be merged into a matrix of the model, because they have an attention softmax of their own"

static const GxAdapterKind gx__adapter_kinds[] = {
    {GX_PEFT_LORA, "LoRA", NULL,                                         //
     gx__adapter_is_lora, gx__adapter_read_lora, gx__adapter_write_lora, //
     gx__adapter_say_lora, gx__adapter_describe_lora},
    {GX_PEFT_BOTTLENECK, "bottleneck adapters",                                            //
     "which cannot be merged into a matrix of the model, because they contain gelu",       //
     gx__adapter_is_bottleneck, gx__adapter_read_bottleneck, gx__adapter_write_bottleneck, //
     gx__adapter_say_bottleneck, gx__adapter_describe_bottleneck},
    {GX_PEFT_SIDE, "a side network", "whose layers cannot be merged into those of the model", //
     gx__adapter_is_side, gx__adapter_read_side, gx__adapter_write_side,                      //
     gx__adapter_say_side, gx__adapter_describe_side},
    {GX_PEFT_PROMPT, "prompts", GX__ADAPTER_HAS_SOFTMAX,                       //
     gx__adapter_is_prompt, gx__adapter_read_prompt, gx__adapter_write_prompt, //
     gx__adapter_say_prompt, gx__adapter_describe_prompt},
    {GX_PEFT_PROMPT_V2, "prompts and scales", GX__ADAPTER_HAS_SOFTMAX,            //
     gx__adapter_is_prompt_v2, gx__adapter_read_prompt, gx__adapter_write_prompt, //
     gx__adapter_say_prompt, gx__adapter_describe_prompt},
};
enum { GX__ADAPTER_KINDS = sizeof gx__adapter_kinds / sizeof *gx__adapter_kinds };

const GxAdapterKind *gx_adapter_kind(const GxAdapter *a)
{
    for (int i = 0; i < GX__ADAPTER_KINDS; i++)
        if (gx__adapter_kinds[i].is_on(a)) return &gx__adapter_kinds[i];
    return NULL;
}

const GxAdapterKind *gx_adapter_kind_of_config(const GxPeftConfig *c)
{
    for (int i = 0; i < GX__ADAPTER_KINDS; i++)
        if (!strcmp(gx__adapter_kinds[i].type, c->type)) return &gx__adapter_kinds[i];
    return NULL;
}
#endif
