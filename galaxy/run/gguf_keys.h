// gguf_keys.h: the keys of GGUF files: which are read, which change nothing, and which are refused because they ask for
// something that is not supported.
#ifndef GX_GGUF_KEYS_H
#define GX_GGUF_KEYS_H
#include "../io/gguf.h"
#include "../io/json_keys.h"
#include "gguf_work.h"
GX_BEGIN

// The known keys; "*." stands for the architecture and a dot.
extern const GxJsonKeys gx_gguf_keys;
// Refuses keys that ask for something that is not supported; warns of others that are ignored or unknown. w->arch: the
// file's architecture.
GxStatus gx_gguf_check_keys(GxGgufWork *w, const GxGguf *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_KEYS_IMPLEMENTED)
#define GX_GGUF_KEYS_IMPLEMENTED
#include <stdio.h>
#include <string.h>

#define GX__GGUF_NO_EXPERTS "of experts, which are not supported"
#define GX__GGUF_OTHER      "of another architecture"
#define GX__GGUF_FILLING    "a token of prompts that have a gap to be filled, which are not supported"
// The keys of llama.cpp's files. Others that begin with "quantize." or "general." (but not "general.sampling.") are
// notes.
static const GxJsonKey gx__gguf_file_keys[] = {
    {"*.context_length", GX_KEY_READ, NULL},
    {"*.embedding_length", GX_KEY_READ, NULL},
    {"*.block_count", GX_KEY_READ, NULL},
    {"*.feed_forward_length", GX_KEY_READ, NULL},
    {"*.attention.head_count", GX_KEY_READ, NULL},
    {"*.attention.head_count_kv", GX_KEY_READ, NULL},
    {"*.attention.layer_norm_rms_epsilon", GX_KEY_READ, NULL},
    {"*.attention.key_length", GX_KEY_READ, NULL},
    {"*.attention.value_length", GX_KEY_READ, NULL},
    {"*.attention.sliding_window", GX_KEY_READ, NULL},
    {"*.attention.scale", GX_KEY_READ, NULL},
    {"*.expert_count", GX_KEY_READ, NULL},
    {"*.logit_scale", GX_KEY_READ, NULL},
    {"*.rope.dimension_count", GX_KEY_READ, NULL},
    {"*.rope.freq_base", GX_KEY_READ, NULL},
    {"*.rope.scale_linear", GX_KEY_READ, NULL},
    {"*.rope.scaling.factor", GX_KEY_READ, NULL},
    {"*.rope.scaling.type=\"none\"|\"linear\"", GX_KEY_REFUSED, "angles would be scaled"}, // linear by factor 1
    {"*.rope.scaling.attn_factor=1|0", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.rope.scaling.original_context_length", GX_KEY_HARMLESS, "of a scaling, whose type is refused"},
    {"*.rope.scaling.finetuned", GX_KEY_HARMLESS, "a note on how the model was made"},
    {"*.rope.scaling.yarn_log_multiplier", GX_KEY_REFUSED, "angles would be scaled"},
    {"*.rope.scaling.yarn_ext_factor", GX_KEY_REFUSED, "angles would be scaled"},
    {"*.rope.scaling.yarn_attn_factor=1|0", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.rope.scaling.yarn_beta_fast", GX_KEY_HARMLESS, "of a scaling, whose type is refused"},
    {"*.rope.scaling.yarn_beta_slow", GX_KEY_HARMLESS, "of a scaling, whose type is refused"},
    {"*.rope.dimension_sections", GX_KEY_REFUSED, "positions would have several parts"},
    {"*.rope.freq_base_swa", GX_KEY_REFUSED, "layers with a sliding window would have a different RoPE"},
    {"*.rope.dimension_count_swa", GX_KEY_REFUSED, "layers with a sliding window would have a different RoPE"},
    {"*.vocab_size", GX_KEY_HARMLESS, "token_embd.weight has as many rows"},
    {"*.tensor_data_layout=\"reference\"|\"Meta AI original pth\"", GX_KEY_REFUSED,
     "weights would have a different layout"},
    {"*.use_parallel_residual", GX_KEY_REFUSED, "attention and MLP would have the same input"},
    {"*.attention.causal=true", GX_KEY_REFUSED, "tokens would attend to later ones"},
    {"*.attention.layer_norm_epsilon", GX_KEY_HARMLESS, "of norms that these models do not have"},
    {"*.attention.max_alibi_bias", GX_KEY_REFUSED, "attention would have a bias"},
    {"*.attention.clamp_kqv", GX_KEY_REFUSED, "q, k and v would be clamped"},
    {"*.attention.output_scale=1|0", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.attention.temperature_length", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.attention.temperature_scale", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.attention.value_scale=1|0", GX_KEY_REFUSED, "values would be scaled"},
    {"*.attention.sliding_window_pattern", GX_KEY_REFUSED, "layers would attend to windows"},
    {"*.attention.q_lora_rank", GX_KEY_REFUSED, "q would be a product"},
    {"*.attention.kv_lora_rank", GX_KEY_REFUSED, "k and v would be products"},
    {"*.attention.shared_kv_layers", GX_KEY_REFUSED, "layers would share k and v"},
    {"*.attn_logit_softcapping", GX_KEY_REFUSED, "attention would be capped"},
    {"*.final_logit_softcapping", GX_KEY_REFUSED, "logits would be capped"},
    {"*.router_logit_softcapping", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.residual_scale=1|0", GX_KEY_REFUSED, "what a layer adds would be scaled"},
    {"*.embedding_scale=1|0", GX_KEY_REFUSED, "embeddings would be scaled"},
    {"*.hidden_activation=\"silu\"|\"swish\"|\"swiglu\"", GX_KEY_REFUSED, "the MLP would have a different activation"},
    {"*.swin_norm", GX_KEY_REFUSED, GX__GGUF_OTHER},
    {"*.embedding_length_out", GX_KEY_REFUSED, "the model's output would have a different width"},
    {"*.features_length", GX_KEY_REFUSED, GX__GGUF_OTHER},
    {"*.nextn_predict_layers", GX_KEY_REFUSED, "there would be layers that predict further tokens"},
    {"*.leading_dense_block_count", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.interleave_moe_layer_step", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_used_count", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_shared_count", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_group_count", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_group_used_count", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_feed_forward_length", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_shared_feed_forward_length", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_weights_scale", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_weights_norm", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.expert_gating_func", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.moe_every_n_layers", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.pooling_type", GX_KEY_NAMED, "texts are not pooled"},
    {"general.architecture", GX_KEY_READ, NULL},
    {"general.type", GX_KEY_READ, NULL},
    {"general.alignment", GX_KEY_READ, NULL},
    {"galaxy.pad_token_id", GX_KEY_READ, NULL},
    {"split.count", GX_KEY_READ, NULL},
    {"split.no", GX_KEY_HARMLESS, "of a file in parts, which is refused"},
    {"split.tensors.count", GX_KEY_HARMLESS, "of a file in parts, which is refused"},
    {"tokenizer.ggml.model", GX_KEY_READ, NULL},
    {"tokenizer.ggml.pre", GX_KEY_READ, NULL},
    {"tokenizer.ggml.tokens", GX_KEY_READ, NULL},
    {"tokenizer.ggml.token_type", GX_KEY_READ, NULL},
    {"tokenizer.ggml.scores", GX_KEY_READ, NULL},
    {"tokenizer.ggml.merges", GX_KEY_READ, NULL},
    {"tokenizer.ggml.bos_token_id", GX_KEY_READ, NULL},
    {"tokenizer.ggml.eos_token_id", GX_KEY_READ, NULL},
    {"tokenizer.ggml.eot_token_id", GX_KEY_READ, NULL},
    {"tokenizer.ggml.eom_token_id", GX_KEY_READ, NULL},
    {"tokenizer.ggml.unknown_token_id", GX_KEY_READ, NULL},
    {"tokenizer.ggml.padding_token_id", GX_KEY_READ, NULL},
    {"tokenizer.ggml.add_bos_token", GX_KEY_READ, NULL},
    {"tokenizer.ggml.add_eos_token", GX_KEY_READ, NULL},
    {"tokenizer.ggml.add_space_prefix", GX_KEY_READ, NULL},
    {"tokenizer.chat_template", GX_KEY_READ, NULL},
    {"tokenizer.chat_templates", GX_KEY_NAMED, "only tokenizer.chat_template is read"},
    {"tokenizer.huggingface.json", GX_KEY_HARMLESS, "the same tokenizer in another form, as llama.cpp has it, too"},
    {"tokenizer.rwkv.world", GX_KEY_HARMLESS, "of tokenizers that are refused"},
    {"tokenizer.ggml.token_type_count", GX_KEY_HARMLESS, "of models that have types of tokens"},
    {"tokenizer.ggml.seperator_token_id", GX_KEY_HARMLESS, "of models that have one"}, // llama.cpp's spelling
    {"tokenizer.ggml.separator_token_id", GX_KEY_HARMLESS, "of models that have one"},
    {"tokenizer.ggml.cls_token_id", GX_KEY_HARMLESS, "of models that have one"},
    {"tokenizer.ggml.mask_token_id", GX_KEY_HARMLESS, "of models that have one"},
    {"tokenizer.ggml.prefix_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.suffix_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.middle_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.fim_pre_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.fim_suf_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.fim_mid_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.fim_pad_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.fim_rep_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.fim_sep_token_id", GX_KEY_HARMLESS, GX__GGUF_FILLING},
    {"tokenizer.ggml.add_sep_token", GX_KEY_REFUSED, "texts would end differently"},
    {"tokenizer.ggml.remove_extra_whitespaces", GX_KEY_REFUSED, "extra spaces would be removed"},
    {"tokenizer.ggml.escape_whitespaces=true", GX_KEY_REFUSED, "spaces would stay as they are"},
    {"tokenizer.ggml.treat_whitespace_as_suffix", GX_KEY_REFUSED, "a space would belong to the word before it"},
    {"tokenizer.ggml.precompiled_charsmap", GX_KEY_REFUSED, "texts would be normalized"},
    {"tokenizer.ggml.normalizer.lowercase", GX_KEY_REFUSED, "texts would be normalized"},
    {"tokenizer.ggml.suppress_tokens", GX_KEY_NAMED, "no token is suppressed"},
};
const GxJsonKeys gx_gguf_keys = {GX_KEYS(gx__gguf_file_keys)};
enum { GX__GGUF_FILE_KEYS = sizeof gx__gguf_file_keys / sizeof *gx__gguf_file_keys };

static int gx__gguf_is_note(const char *key)
{
    static const char sampling[] = "general.sampling.";
    return !strncmp(key, "quantize.", 9) ||
           (!strncmp(key, "general.", 8) && strncmp(key, sampling, sizeof sampling - 1));
}

// The key's value as JSON; for an array, a text that says how long it is.
static GxJson *gx__gguf_json_of(const GxGguf *g, const GxGgufKey *k)
{
    if (k->is_array) {
        char text[60];
        snprintf(text, sizeof text, "an array of %ld value%s", (long)k->count, k->count == 1 ? "" : "s");
        return k->count ? gx_json_new_string(text) : gx_json_new_array();
    }
    switch (k->kind) {
    case GX_GGUF_BOOL: return gx_json_new_bool(gx_gguf_int_at(g, k, 0) != 0);
    case GX_GGUF_FLOAT32:
    case GX_GGUF_FLOAT64: return gx_json_new_double(gx_gguf_double_at(g, k, 0));
    case GX_GGUF_STRING: return gx_json_new_string(gx_gguf_string_at(g, k, 0, NULL));
    default: return gx_json_new_int(gx_gguf_int_at(g, k, 0));
    }
}

GxStatus gx_gguf_check_keys(GxGgufWork *w, const GxGguf *g)
{
    char name[GX__GGUF_FILE_KEYS][96];
    GxJsonKey row[GX__GGUF_FILE_KEYS];
    GxError *err = &w->g.error;
    GxJson *asked = gx_json_new_object();
    for (int i = 0; i < GX__GGUF_FILE_KEYS; i++) {
        const int is_own = gx__gguf_file_keys[i].name[0] == '*';
        snprintf(name[i], sizeof name[i], "%s%s", is_own ? w->arch->name : "", gx__gguf_file_keys[i].name + is_own);
        row[i] = gx__gguf_file_keys[i], row[i].name = name[i];
    }
    for (int k = 0; k < g->keys && gx_error_code(err) == GX_OK; k++) {
        const char *key = g->text + g->key[k].name.at;
        const GxJsonKey *known = gx_json_find_key(row, GX__GGUF_FILE_KEYS, key);
        if (gx__gguf_is_note(key) || (known && (known->kind == GX_KEY_READ || known->kind == GX_KEY_HARMLESS)))
            continue;
        GxJson *value = known ? gx__gguf_json_of(g, &g->key[k]) : gx_json_new_int(1);
        gx_json_set(asked, key, value ? value : gx_json_new_string("no JSON value"), err);
    }
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_check_keys(asked, row, GX__GGUF_FILE_KEYS, w->path, &w->g.log, err);
    gx_json_free(asked);
    return status;
}
#endif
