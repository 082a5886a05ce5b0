// tuning.h: the options that choose what a run trains: the whole model, or an adapter (model/lora.h,
// model/bottleneck.h, model/side.h, model/prompt.h; adapter.h).
#ifndef GX_TUNING_H
#define GX_TUNING_H
#include "../io/config.h"
#include "module_pattern.h"
#include "peft.h"
#include "../model/model.h"
#include "../task/task.h"
#include "quantize.h"
#include <string.h>
GX_BEGIN

typedef enum {
    GX_TUNING_FULL = 0, // the whole model
    GX_TUNING_LORA,
    GX_TUNING_ADAPTER,
    GX_TUNING_SIDE,
    GX_TUNING_SIDE_ONLY, // trains the same network
    GX_TUNING_PROMPT
} GxTuningMethod;

typedef struct {
    char tuning[GX_FIELD_TEXT];
    int64_t lora_dim;
    double lora_alpha, lora_dropout;
    int use_rslora;
    int64_t adapter_reduction_dim, side_reduction_factor;
    char side_mix[GX_FIELD_TEXT];
    int add_bias_sampling;
    char side_cache[GX_FIELD_TEXT], side_cache_dir[GX_PATH];
    int64_t prompt_len, prompt_layers;
    char prompt_variant[GX_FIELD_TEXT];
    char lora_target_modules[GX_FIELD_NAMES_TEXT], trainable_modules[GX_FIELD_NAMES_TEXT], adapter[GX_PATH];
    char lora_exclude_modules[GX_FIELD_NAMES_TEXT], lora_layers_pattern[GX_FIELD_TEXT];
    GxIntList lora_layers_to_transform;
    char lora_rank_pattern[GX_FIELD_NAMES_TEXT], lora_alpha_pattern[GX_FIELD_NAMES_TEXT];
    char quantize[GX_FIELD_TEXT];
} GxTuningOptions;

GxStatus gx_tuning_add(GxConfig *c, GxTuningOptions *o, GxError *err);
// Takes the options that the given adapter's configuration determines (rank, alpha, ...), and refuses options that were
// given with other values.
GxStatus gx_tuning_take(GxTuningOptions *o, const GxConfig *c, const GxPeftConfig *adapter, GxError *err);
// Refuses options of a method that is not chosen, and a method that has no model to adapt; fills in options that follow
// from others. model: the folder that the run begins with; "": none.
GxStatus gx_tuning_resolve(GxTuningOptions *o, const GxConfig *c, const char *model, GxError *err);
GxTuningMethod gx_tuning_method(const char *name); // by the name given to --tuning
// Defaults that depend on other options: --learning_rate for a pretrained model, and --lora_alpha.
static inline double gx_tuning_rate(const GxTask *task, GxTuningMethod method)
{
    const int has_adapter = method != GX_TUNING_FULL;
    if (task->options.defaults)
        return has_adapter ? task->options.defaults->adapter_learning_rate : task->options.defaults->learning_rate;
    if (method == GX_TUNING_PROMPT) return 9e-3; // Zhang et al. 2023
    return has_adapter ? 2e-4 : 2e-5;
}
static inline double gx_tuning_alpha(int64_t lora_dim) { return 2 * (double)lora_dim; }
static inline int gx_tuning_is_sides(GxTuningMethod method)
{
    return method == GX_TUNING_SIDE || method == GX_TUNING_SIDE_ONLY;
}
static inline int gx_tuning_has_adapter(const GxTuningOptions *o)
{
    return gx_tuning_method(o->tuning) != GX_TUNING_FULL;
}
// The first option that would make another adapter than the run's; NULL: none. args: the run's options; *then: the
// options read from them.
const GxField *gx_tuning_differs(const GxTuningOptions *o, const GxJson *args, GxTuningOptions *then, GxError *err);
// Describes what restricts --lora_target_modules, and which modules have another rank or alpha: ", not o_proj, of
// layers 0, 1, with the ranks {"q_proj":8}"; "": nothing. Returns out.
enum { GX_TUNING_SAID = 600 };
const char *gx_tuning_say_modules(const GxTuningOptions *o, char out[GX_TUNING_SAID]);
int gx_tuning_quantize(const GxTuningOptions *o);      // 1 + GxQuantKind; 0: no
GxAdapter gx_tuning_adapter(const GxTuningOptions *o); // its strings belong to `o`; empty if the whole model is trained

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TUNING_IMPLEMENTED)
#define GX_TUNING_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

GxTuningMethod gx_tuning_method(const char *name)
{
    static const char *const names[] = {"full", "lora", "adapter", "side", "side_only", "prompt"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i])) return (GxTuningMethod)i;
    return GX_TUNING_FULL; // the option allows no other names
}

#define GX__TUNING_AT(member) offsetof(GxTuningOptions, member)
static const GxField gx__tuning_options[] = {
    {"tuning", GX_FIELD_STRING, GX__TUNING_AT(tuning), "full",
     "what is trained. full: all weights. The other methods keep the weights of --model frozen, and checkpoints hold "
     "only what they train. lora: two small matrices beside each weight matrix (LoRA); adapter: two small linear "
     "layers after each attention and MLP; side: a narrow network beside the model that reads its layers, so that no "
     "gradient passes through the model; side_only: side with the same samples in each epoch, so that the model is run "
     "on them only once; prompt: learned rows that attention sees in addition (LLaMA-Adapter). lora and prompt save "
     "peft folders",
     "full|lora|adapter|side|side_only|prompt"},
    {"lora_dim", GX_FIELD_INT, GX__TUNING_AT(lora_dim), "16", "rank of LoRA's two matrices (also --r, as in peft)",
     "1..65536"},
    {"lora_alpha", GX_FIELD_DOUBLE, GX__TUNING_AT(lora_alpha), "0",
     "LoRA's product is scaled by lora_alpha / lora_dim; 0: lora_alpha is 2 * lora_dim", "0..1000000"},
    {"lora_dropout", GX_FIELD_DOUBLE, GX__TUNING_AT(lora_dropout), "0.05",
     "dropout of the input of LoRA's matrices; 0 with --task dpo", "0..0.999"},
    {"use_rslora", GX_FIELD_BOOL, GX__TUNING_AT(use_rslora), "false",
     "scale LoRA's product by lora_alpha / sqrt(lora_dim) instead (rsLoRA)", NULL},
    {"lora_target_modules", GX_FIELD_NAMES, GX__TUNING_AT(lora_target_modules), "",
     "modules that get LoRA (also --target_modules): ends of their names, such as q_proj,v_proj; or a regular "
     "expression for whole names, such as '.*\\.[0-3]\\..*_proj' (any text with a character that names do not have); "
     "or all-linear: all linear layers except heads. The token embedding and heads get LoRA only if they are named: "
     "embed_tokens, word_embeddings, lm_head, score, classifier. Empty: all of attention and MLP",
     NULL},
    {"lora_exclude_modules", GX_FIELD_NAMES, GX__TUNING_AT(lora_exclude_modules), "",
     "modules that get no LoRA although lora_target_modules names them (also --exclude_modules): ends of names, or a "
     "regular expression for whole names",
     NULL},
    {"lora_layers_to_transform", GX_FIELD_INT_LIST, GX__TUNING_AT(lora_layers_to_transform), "",
     "numbers of the layers that get LoRA (also --layers_to_transform); only if lora_target_modules are ends of names; "
     "none: all layers",
     "0.."},
    {"lora_layers_pattern", GX_FIELD_STRING, GX__TUNING_AT(lora_layers_pattern), "",
     "name of the list of layers, which precedes a layer's number in the names of modules (also --layers_pattern); "
     "empty: any",
     NULL},
    {"lora_rank_pattern", GX_FIELD_NAMES, GX__TUNING_AT(lora_rank_pattern), "",
     "different lora_dim for some modules (also --rank_pattern), by the ends of their names: q_proj=8,v_proj=4; or by "
     "regular expressions, of which the first match counts: '{\"layers\\\\.[01]\\\\..*\": 8}'",
     NULL},
    {"lora_alpha_pattern", GX_FIELD_NAMES, GX__TUNING_AT(lora_alpha_pattern), "",
     "different lora_alpha for some modules (also --alpha_pattern), written as lora_rank_pattern is", NULL},
    {"adapter_reduction_dim", GX_FIELD_INT, GX__TUNING_AT(adapter_reduction_dim), "16",
     "factor by which adapters reduce the model's width, and then expand it again; must divide the width", "1..65536"},
    {"side_reduction_factor", GX_FIELD_INT, GX__TUNING_AT(side_reduction_factor), "8",
     "factor by which the width, MLP and heads of the side network are smaller than the model's; must divide the "
     "model's width",
     "1..65536"},
    {"side_mix", GX_FIELD_STRING, GX__TUNING_AT(side_mix), "plain",
     "what a side layer reads. plain: the sum of the model's layer, projected down, and the side layer before; gated: "
     "a mix of the two in learned proportions",
     GX_SIDE_MIXES},
    {"add_bias_sampling", GX_FIELD_BOOL, GX__TUNING_AT(add_bias_sampling), "false",
     "biases in the linear layers between the model and its side network", NULL},
    {"side_cache", GX_FIELD_STRING, GX__TUNING_AT(side_cache), "disk",
     "where side_only keeps the outputs of the model's layers. disk: in output_dir/side_cache, which a resumed run "
     "reuses; memory; none: they are recomputed each time",
     "disk|memory|none"},
    {"side_cache_dir", GX_FIELD_PATH, GX__TUNING_AT(side_cache_dir), "",
     "with --side_cache disk: another folder for it, which other runs on the same model and data can use, too", NULL},
    {"prompt_len", GX_FIELD_INT, GX__TUNING_AT(prompt_len), "10",
     "prompt rows in each layer (also --adapter_len, as in peft)", "1..65536"},
    {"prompt_layers", GX_FIELD_INT, GX__TUNING_AT(prompt_layers), "0",
     "layers that get prompt rows, counted from the last (also --adapter_layers, as in peft); 0: all but the first two",
     "0..65536"},
    {"prompt_variant", GX_FIELD_STRING, GX__TUNING_AT(prompt_variant), "v1",
     "version of LLaMA-Adapter. v2 also trains a scale and a bias of each linear layer of attention and MLP, in all "
     "layers, and the norms; peft cannot read it",
     "v1|v2"},
    {"trainable_modules", GX_FIELD_NAMES, GX__TUNING_AT(trainable_modules), "",
     "modules that are also trained, as a whole, by the ends of their names (also --modules_to_save, as in peft), such "
     "as model.norm; norm alone also matches input_layernorm. A head for labels is always trained",
     NULL},
    {"adapter", GX_FIELD_PATH, GX__TUNING_AT(adapter), "",
     "folder of an adapter to start from, saved by peft or an earlier run; it sets lora_dim and similar options, and "
     "names its --model",
     NULL},
    {"quantize", GX_FIELD_STRING, GX__TUNING_AT(quantize), GX_NOT_QUANTIZED,
     "keep the attention and MLP matrices of --model in " GX_QUANTIZE_HELP, GX_QUANTIZE_NAMES},
};

GxStatus gx_tuning_add(GxConfig *c, GxTuningOptions *o, GxError *err)
{
    GX_TRY(gx_config_add(c, "tuning", GX_FIELDS(gx__tuning_options), o, err));
    GX_TRY(gx_config_add_alias(c, "r", "lora_dim", err));
    GX_TRY(gx_config_add_alias(c, "target_modules", "lora_target_modules", err));
    GX_TRY(gx_config_add_alias(c, "modules_to_save", "trainable_modules", err));
    GX_TRY(gx_config_add_alias(c, "exclude_modules", "lora_exclude_modules", err));
    GX_TRY(gx_config_add_alias(c, "layers_to_transform", "lora_layers_to_transform", err));
    GX_TRY(gx_config_add_alias(c, "layers_pattern", "lora_layers_pattern", err));
    GX_TRY(gx_config_add_alias(c, "rank_pattern", "lora_rank_pattern", err));
    GX_TRY(gx_config_add_alias(c, "alpha_pattern", "lora_alpha_pattern", err));
    GX_TRY(gx_config_add_alias(c, "adapter_len", "prompt_len", err));
    GX_TRY(gx_config_add_alias(c, "adapter_layers", "prompt_layers", err));
    GX_TRY(gx_config_add_meant(c, "lora_rank", "lora_dim", err));
    GX_TRY(gx_config_add_meant(c, "lora_r", "lora_dim", err));
    GX_TRY(gx_config_add_meant(c, "alpha", "lora_alpha", err));
    return gx_config_add_meant(c, "use_lora", "tuning lora", err);
}

// "q_proj, v_proj" becomes "q_proj,v_proj". A regular expression stays as it is.
static void gx__tuning_trim(char *names)
{
    static const char blanks[] = " \t\r\n";
    char *to = names;
    if (gx_module_is_pattern(names)) return;
    for (const char *p = names; *p;) {
        p += strspn(p, blanks);
        size_t n = strcspn(p, ",");
        const char *next = p + n;
        while (n && strchr(blanks, p[n - 1])) n--;
        memmove(to, p, n), to += n;
        if (*next) *to++ = *next++;
        p = next;
    }
    *to = 0;
}

// Spells the options with names of modules as they are compared and passed on.
static GxStatus gx__tuning_spell(GxTuningOptions *o, GxError *err)
{
    gx__tuning_trim(o->lora_target_modules), gx__tuning_trim(o->trainable_modules);
    gx__tuning_trim(o->lora_exclude_modules);
    GX_TRY(gx_module_numbers_parse(o->lora_rank_pattern, sizeof o->lora_rank_pattern, gx_peft_ranks,
                                   "--lora_rank_pattern", err));
    return gx_module_numbers_parse(o->lora_alpha_pattern, sizeof o->lora_alpha_pattern, gx_peft_alphas,
                                   "--lora_alpha_pattern", err);
}

static void gx__tuning_take_modules(GxTuningOptions *o, const GxPeftConfig *adapter)
{
    snprintf(o->lora_target_modules, GX_FIELD_NAMES_TEXT, "%s", adapter->targets);
    snprintf(o->trainable_modules, GX_FIELD_NAMES_TEXT, "%s", adapter->modules_to_save);
    snprintf(o->lora_exclude_modules, GX_FIELD_NAMES_TEXT, "%s", adapter->excluded);
    o->lora_layers_to_transform = adapter->layers;
    snprintf(o->lora_layers_pattern, sizeof o->lora_layers_pattern, "%s", adapter->layers_pattern);
    snprintf(o->lora_rank_pattern, GX_FIELD_NAMES_TEXT, "%s", adapter->rank_pattern);
    snprintf(o->lora_alpha_pattern, GX_FIELD_NAMES_TEXT, "%s", adapter->alpha_pattern);
}

GxStatus gx_tuning_take(GxTuningOptions *o, const GxConfig *c, const GxPeftConfig *adapter, GxError *err)
{
    const int n = sizeof gx__tuning_options / sizeof *gx__tuning_options;
    GxTuningOptions *theirs = (GxTuningOptions *)malloc(sizeof *theirs);
    if (!theirs) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for options");
    *theirs = *o;
    snprintf(theirs->tuning, sizeof theirs->tuning, "%s",
             adapter->side_reduction ? (gx_tuning_method(o->tuning) == GX_TUNING_SIDE_ONLY ? "side_only" : "side")
             : adapter->reduction    ? "adapter"
             : adapter->prompt_len   ? "prompt"
                                     : "lora");
    if (adapter->reduction) theirs->adapter_reduction_dim = adapter->reduction;
    if (adapter->side_reduction) {
        theirs->side_reduction_factor = adapter->side_reduction;
        theirs->add_bias_sampling = adapter->add_bias_sampling;
        snprintf(theirs->side_mix, sizeof theirs->side_mix, "%s", adapter->side_mix);
    }
    if (adapter->prompt_len) {
        theirs->prompt_len = adapter->prompt_len, theirs->prompt_layers = adapter->prompt_layers;
        snprintf(theirs->prompt_variant, sizeof theirs->prompt_variant, "%s",
                 strcmp(adapter->type, GX_PEFT_PROMPT_V2) ? "v1" : "v2");
    }
    if (adapter->r)
        theirs->lora_dim = adapter->r, theirs->lora_alpha = adapter->lora_alpha,
        theirs->use_rslora = adapter->use_rslora;
    if (adapter->r && !gx_config_is_set(c, "lora_dropout")) theirs->lora_dropout = adapter->lora_dropout;
    gx__tuning_take_modules(theirs, adapter);
    gx__tuning_spell(o, err);
    for (int i = 0; i < n && !gx_error_code(err); i++)
        if (gx_config_is_set(c, gx__tuning_options[i].name) && !gx_field_same(&gx__tuning_options[i], o, theirs))
            GX_FAIL(err, GX_ERR_ARGUMENT,
                    "--%s differs from that of the adapter %s; leave it out, or leave out --adapter",
                    gx__tuning_options[i].name, o->adapter);
    *o = *theirs;
    free(theirs);
    return gx_error_code(err);
}

// The method that an option belongs to; "": to all.
static const char *gx__tuning_method_of(const GxField *f)
{
    if (f->offset == GX__TUNING_AT(adapter_reduction_dim)) return "adapter";
    if (!strncmp(f->name, "side_cache", 10)) return "side_only";
    if (!strncmp(f->name, "side_", 5) || f->offset == GX__TUNING_AT(add_bias_sampling)) return "side";
    if (!strncmp(f->name, "prompt_", 7)) return "prompt";
    return strncmp(f->name, "lora_", 5) && f->offset != GX__TUNING_AT(use_rslora) ? "" : "lora";
}

static int gx__tuning_is_of(const GxField *f, const GxTuningOptions *o)
{
    const char *method = gx__tuning_method_of(f);
    if (!strcmp(method, "side") && gx_tuning_is_sides(gx_tuning_method(o->tuning))) return 1;
    return gx_tuning_has_adapter(o) && (!method[0] || !strcmp(method, o->tuning));
}

// The first option that was given for an adapter that the run does not train. A flag counts as given; an option of a
// file only if its value is not the default, since the files that runs write have all options.
static const GxField *gx__tuning_is_said(const GxTuningOptions *o, const GxConfig *c, GxError *err)
{
    const int n = sizeof gx__tuning_options / sizeof *gx__tuning_options;
    GxTuningOptions *none = (GxTuningOptions *)malloc(sizeof *none);
    const GxField *said = NULL;
    GxConfig defaults;
    gx_config_open(&defaults);
    if (!none) GX_FAIL(err, GX_ERR_MEMORY, "no memory for options");
    else gx_config_add(&defaults, "", gx__tuning_options, n, none, err);
    for (int i = 1; i < n && !said && !gx_error_code(err); i++) {
        const GxField *f = &gx__tuning_options[i];
        if (gx__tuning_is_of(f, o)) continue;
        if (gx_config_source(c, f->name) == GX_FROM_FLAG ||
            (gx_config_is_set(c, f->name) && !gx_field_same(f, o, none)))
            said = f;
    }
    free(none);
    return said;
}

static GxStatus gx__tuning_check_modules(const GxTuningOptions *o, GxError *err)
{
    if (gx_tuning_method(o->tuning) != GX_TUNING_LORA) return GX_OK;
    if (gx_module_is_pattern(o->lora_target_modules))
        GX_TRY(gx_module_pattern_check(o->lora_target_modules, "--lora_target_modules", err));
    if (gx_module_is_pattern(o->lora_exclude_modules))
        GX_TRY(gx_module_pattern_check(o->lora_exclude_modules, "--lora_exclude_modules", err));
    if (o->lora_layers_to_transform.n && gx_module_is_pattern(o->lora_target_modules))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--lora_layers_to_transform needs modules that are named by the ends of their names, but "
                       "--lora_target_modules is the regular expression \"%.100s\"; name the layers in that, such as "
                       "'.*\\.[01]\\..*'",
                       o->lora_target_modules);
    if (o->lora_layers_pattern[0] && !o->lora_layers_to_transform.n)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--lora_layers_pattern says where the numbers of --lora_layers_to_transform stand, but there "
                       "are none; leave it out, or give --lora_layers_to_transform");
    return GX_OK;
}

GxStatus gx_tuning_resolve(GxTuningOptions *o, const GxConfig *c, const char *model, GxError *err)
{
    const GxField *unused = gx__tuning_is_said(o, c, err);
    GX_TRY(gx__tuning_spell(o, err));
    if (unused && gx_tuning_has_adapter(o))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s is an option of --tuning %s, but this run has --tuning %s; leave it out", unused->name,
                       gx__tuning_method_of(unused), o->tuning);
    if (unused)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s is an option for adapters, but --tuning %s trains none; say --tuning %s, or leave it out",
                       unused->name, o->tuning,
                       gx__tuning_method_of(unused)[0] ? gx__tuning_method_of(unused) : "lora");
    if (o->side_cache_dir[0] && strcmp(o->side_cache, "disk"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--side_cache_dir names a folder for --side_cache disk, but this run has --side_cache %s; leave "
                       "one of them out",
                       o->side_cache);
    if (gx_tuning_has_adapter(o) && !model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--tuning %s needs a pretrained model to adapt; name its folder with --model", o->tuning);
    GX_TRY(gx__tuning_check_modules(o, err));
    if (gx_tuning_method(o->tuning) == GX_TUNING_LORA && o->lora_alpha == 0)
        o->lora_alpha = gx_tuning_alpha(o->lora_dim);
    return GX_OK;
}

// Options that may change when a run is resumed, as the learning rate may; and --adapter, since what its folder
// determines is compared instead.
static int gx__tuning_may_change(const GxField *f)
{
    return f->offset == GX__TUNING_AT(lora_dropout) || f->offset == GX__TUNING_AT(adapter) ||
           f->offset == GX__TUNING_AT(side_cache) || f->offset == GX__TUNING_AT(side_cache_dir);
}

// A run without these options trained the whole model.
const GxField *gx_tuning_differs(const GxTuningOptions *o, const GxJson *args, GxTuningOptions *then, GxError *err)
{
    const int n = sizeof gx__tuning_options / sizeof *gx__tuning_options;
    memset(then, 0, sizeof *then);
    snprintf(then->tuning, sizeof then->tuning, "full");
    snprintf(then->quantize, sizeof then->quantize, GX_NOT_QUANTIZED);
    if (gx_json_get_fields(args, gx__tuning_options, n, 0, then, "training_args.json", err) != GX_OK) return NULL;
    for (int i = 0; i < n; i++)
        if ((i == 0 || gx__tuning_is_of(&gx__tuning_options[i], o)) && !gx__tuning_may_change(&gx__tuning_options[i]) &&
            !(i == 0 && gx_tuning_is_sides(gx_tuning_method(o->tuning)) &&
              gx_tuning_is_sides(gx_tuning_method(then->tuning))) &&
            !gx_field_same(&gx__tuning_options[i], then, o))
            return &gx__tuning_options[i];
    return NULL;
}

const char *gx_tuning_say_modules(const GxTuningOptions *o, char out[GX_TUNING_SAID])
{
    static const char *const words[] = {", not ", ", with the ranks ", ", with the alphas "};
    const char *const texts[] = {o->lora_exclude_modules, o->lora_rank_pattern, o->lora_alpha_pattern};
    const GxIntList *layers = &o->lora_layers_to_transform;
    char cut[GX_TEXT_VALUE];
    int n = 0;
    out[0] = 0;
    for (int i = 0; i < 3; i++) {
        if (texts[i][0])
            n += snprintf(out + n, (size_t)(GX_TUNING_SAID - n), "%s%s", words[i],
                          gx_text_cut(texts[i], cut, sizeof cut));
        for (int k = 0; i == 0 && k < gx_min(layers->n, 20); k++)
            n += snprintf(out + n, (size_t)(GX_TUNING_SAID - n), "%s%ld%s", k ? ", " : ", of layers ",
                          (long)layers->v[k], k == 19 && layers->n > 20 ? ", …" : "");
    }
    return out;
}

int gx_tuning_quantize(const GxTuningOptions *o) { return gx_tuning_has_adapter(o) ? gx_quantize_of(o->quantize) : 0; }

static GxLora gx__tuning_lora(const GxTuningOptions *o)
{
    GxLora lora = GX_ZERO;
    if (gx_tuning_method(o->tuning) != GX_TUNING_LORA) return lora;
    lora.r = o->lora_dim, lora.alpha = o->lora_alpha, lora.is_scaled_by_root = o->use_rslora;
    lora.dropout = (float)o->lora_dropout;
    lora.targets = o->lora_target_modules, lora.trainable = o->trainable_modules;
    lora.finds = gx_module_is_pattern(o->lora_target_modules) ? gx_module_pattern_finds : NULL;
    lora.excluded = o->lora_exclude_modules;
    lora.excludes = gx_module_is_pattern(o->lora_exclude_modules) ? gx_module_pattern_finds : NULL;
    lora.layers = &o->lora_layers_to_transform, lora.lists = o->lora_layers_pattern;
    lora.rank_pattern = o->lora_rank_pattern, lora.alpha_pattern = o->lora_alpha_pattern;
    lora.value = gx_module_number;
    return lora;
}

static GxBottleneck gx__tuning_bottleneck(const GxTuningOptions *o)
{
    GxBottleneck bottleneck = GX_ZERO;
    if (gx_tuning_method(o->tuning) != GX_TUNING_ADAPTER) return bottleneck;
    bottleneck.reduction = o->adapter_reduction_dim, bottleneck.trainable = o->trainable_modules;
    return bottleneck;
}

static GxSide gx__tuning_side(const GxTuningOptions *o)
{
    GxSide side = GX_ZERO;
    if (!gx_tuning_is_sides(gx_tuning_method(o->tuning))) return side;
    side.reduction = o->side_reduction_factor, side.is_gated = !strcmp(o->side_mix, "gated");
    side.has_bias = o->add_bias_sampling, side.trainable = o->trainable_modules;
    return side;
}

static GxPrompt gx__tuning_prompt(const GxTuningOptions *o)
{
    GxPrompt prompt = GX_ZERO;
    if (gx_tuning_method(o->tuning) != GX_TUNING_PROMPT) return prompt;
    prompt.len = o->prompt_len, prompt.layers = o->prompt_layers, prompt.trainable = o->trainable_modules;
    prompt.is_v2 = !strcmp(o->prompt_variant, "v2");
    return prompt;
}

GxAdapter gx_tuning_adapter(const GxTuningOptions *o)
{
    const GxAdapter a = {gx__tuning_lora(o), gx__tuning_bottleneck(o), gx__tuning_side(o), gx__tuning_prompt(o),
                         o->adapter[0] != 0};
    return a;
}
#endif
