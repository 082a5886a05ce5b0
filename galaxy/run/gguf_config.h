// gguf_config.h: the configuration of a LLaMA (config.json) as keys of a GGUF file, and back.
//
// Real numbers are fp32 in the file; they are imported as the shortest decimals with the same fp32 value. The file has
// no initializer_range: 0.02 is imported. A Mistral is imported as a LLaMA, which computes the same without a window.
//
// Export refuses what a file cannot express: a sliding window that is shorter than the context (llama.cpp would attend
// to all of it), RoPE scaling in a Qwen, and a Qwen2 whose head_dim is not hidden_size / heads. Import refuses other
// architectures, experts, sliding windows and other RoPE scalings.
#ifndef GX_GGUF_CONFIG_H
#define GX_GGUF_CONFIG_H
#include "../io/gguf.h"
#include "gguf_work.h"
GX_BEGIN

// Sets w->arch from config.json's model_type. Refuses types that are not supported.
GxStatus gx_gguf_find_arch(GxGgufWork *w, const char *type);
// Refuses a w->config that a file cannot express.
GxStatus gx_gguf_check_export(GxGgufWork *w);
int gx_gguf_file_type(int type); // llama.cpp's number for the type of most of a file's tensors
// type: the matrices'.
GxStatus gx_gguf_put_config(GxGgufWork *w, GxGgufWriter *out, int type);
// Sets w->arch, w->config and w->keys, and opens the model.
GxStatus gx_gguf_take_config(GxGgufWork *w, const GxGguf *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_CONFIG_IMPLEMENTED)
#define GX_GGUF_CONFIG_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gguf_keys.h"
#include "gguf_rope.h"
#include "llama_family.h"

// An array with config.json's pad_token_id (-1: none), if that is not the tokenizer's padding token.
static const char gx__gguf_own_pad[] = "galaxy.pad_token_id";

// ---- out -----------------------------------------------------------------------------------------------------------

GxStatus gx_gguf_find_arch(GxGgufWork *w, const char *type)
{
    char names[GX_TEXT_VALUE];
    w->arch = gx_gguf_arch_of_type(type);
    if (w->arch) return GX_OK;
    return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s: model_type is %s; supported: %s", w->folder, type,
                   gx_gguf_arch_names(1, names));
}

static int gx__gguf_slides(const GxLlamaConfig *c) // 1: some layer has a sliding window
{
    int slides = 0;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) slides |= gx_llama_slides(c, l);
    return slides;
}

GxStatus gx_gguf_check_export(GxGgufWork *w)
{
    const GxLlamaConfig *c = &w->config;
    GxError *err = &w->g.error;
    if (gx__gguf_slides(c) && c->sliding_window < c->max_position_embeddings)
        return GX_FAIL(
            err, GX_ERR_UNSUPPORTED,
            "%s: sliding_window is %ld, but max_position_embeddings is %ld, and llama.cpp would attend to all of them; "
            "set max_position_embeddings to %ld in config.json to use the model within its window",
            w->folder, (long)c->sliding_window, (long)c->max_position_embeddings, (long)c->sliding_window);
    if (c->attention_bias || c->mlp_bias)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: %s is true; models with such biases are not exported to GGUF files", w->folder,
                       c->attention_bias ? "attention_bias" : "mlp_bias");
    if (strcmp(c->rope_type, "default") && (!w->arch->has_rope_freqs || strcmp(c->rope_type, "llama3")))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: RoPE is scaled (%s); only llama3 is exported to a GGUF file, and only for a llama",
                       w->folder, c->rope_type);
    if (c->head_dim * c->num_attention_heads != c->hidden_size && !w->arch->has_head_dim)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: head_dim is %ld, with %ld heads and hidden_size %ld; for a %s llama.cpp reads only "
                       "hidden_size divided by the number of heads",
                       w->folder, (long)c->head_dim, (long)c->num_attention_heads, (long)c->hidden_size, w->arch->name);
    return GX_OK;
}

// "llama.block_count"
static const char *gx__gguf_arch_key(const GxGgufWork *w, const char *key, char room[96])
{
    snprintf(room, 96, "%s.%s", w->arch->name, key);
    return room;
}

typedef struct {
    const char *key;
    size_t offset;
    int is_required;
} gx__GgufNumber;
#define GX__GGUF_AT(field) offsetof(GxLlamaConfig, field)
static const gx__GgufNumber gx__gguf_counts[] = {
    {"context_length", GX__GGUF_AT(max_position_embeddings), 1},
    {"embedding_length", GX__GGUF_AT(hidden_size), 1},
    {"block_count", GX__GGUF_AT(num_hidden_layers), 1},
    {"feed_forward_length", GX__GGUF_AT(intermediate_size), 1},
    {"attention.head_count", GX__GGUF_AT(num_attention_heads), 1},
    {"attention.head_count_kv", GX__GGUF_AT(num_key_value_heads), 0},
};
static const gx__GgufNumber gx__gguf_reals[] = {{"attention.layer_norm_rms_epsilon", GX__GGUF_AT(rms_norm_eps), 1},
                                                {"rope.freq_base", GX__GGUF_AT(rope_theta), 0}};
static const char *const gx__gguf_head_sizes[] = {"attention.key_length", "attention.value_length",
                                                  "rope.dimension_count"};
#define GX__GGUF_COUNT_OF(list) (sizeof(list) / sizeof *(list))

static int64_t *gx__gguf_count(GxLlamaConfig *c, const gx__GgufNumber *n)
{
    return (int64_t *)(void *)((char *)c + n->offset);
}
static double *gx__gguf_real(GxLlamaConfig *c, const gx__GgufNumber *n)
{
    return (double *)(void *)((char *)c + n->offset);
}

int gx_gguf_file_type(int type)
{
    return type == GX_GGUF_F32 ? 0 : type == GX_GGUF_F16 ? 1 : type == GX_GGUF_Q8_0 ? 7 : 32;
}

GxStatus gx_gguf_put_config(GxGgufWork *w, GxGgufWriter *out, int type)
{
    char room[96], name[GX_FILE_NAME];
    GxError *err = &w->g.error;
    GxLlamaConfig *c = &w->config;
    snprintf(room, sizeof room, "%.*s", gx_path_length(w->folder), w->folder);
    snprintf(name, sizeof name, "%.200s", gx_path_name(room));
    gx_gguf_set_string(out, "general.architecture", w->arch->name, err);
    gx_gguf_set_string(out, "general.type", "model", err);
    gx_gguf_set_string(out, "general.name", name, err);
    gx_gguf_set_int(out, "general.file_type", gx_gguf_file_type(type), err);
    gx_gguf_set_int(out, "general.quantization_version", 2, err);
    for (size_t i = 0; i < GX__GGUF_COUNT_OF(gx__gguf_counts); i++)
        gx_gguf_set_int(out, gx__gguf_arch_key(w, gx__gguf_counts[i].key, room),
                        *gx__gguf_count(c, &gx__gguf_counts[i]), err);
    for (size_t i = 0; i < GX__GGUF_COUNT_OF(gx__gguf_head_sizes); i++)
        gx_gguf_set_int(out, gx__gguf_arch_key(w, gx__gguf_head_sizes[i], room), c->head_dim, err);
    for (size_t i = 0; i < GX__GGUF_COUNT_OF(gx__gguf_reals); i++)
        gx_gguf_set_float(out, gx__gguf_arch_key(w, gx__gguf_reals[i].key, room),
                          (float)*gx__gguf_real(c, &gx__gguf_reals[i]), err);
    gx_gguf_set_int(out, gx__gguf_arch_key(w, "vocab_size", room), c->vocab_size, err);
    const int32_t pad = (int32_t)c->pad_token_id;
    if (pad != w->keys.pad) gx_gguf_set_ints(out, gx__gguf_own_pad, &pad, 1, err);
    return gx_tokenizer_keys_write(&w->keys, out, err);
}

// ---- in ------------------------------------------------------------------------------------------------------------

// The shortest decimal with the same fp32 value.
static double gx__gguf_shortest(double x)
{
    char text[40];
    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtof(text, NULL) == (float)x) break;
    }
    return strtod(text, NULL);
}

static GxStatus gx__gguf_take_head_sizes(GxGgufWork *w, const GxGguf *g)
{
    char room[96];
    GxLlamaConfig *c = &w->config;
    int64_t size[3];
    if (c->num_attention_heads < 1)
        return GX_FAIL(&w->g.error, GX_ERR_FORMAT, "%s: %s is %ld", w->path,
                       gx__gguf_arch_key(w, "attention.head_count", room), (long)c->num_attention_heads);
    c->head_dim = c->hidden_size / c->num_attention_heads;
    for (int i = 0; i < 3; i++) { // one that is absent is the same as the first
        size[i] = i ? size[0] : c->head_dim;
        GX_TRY(gx_gguf_get_int(g, gx__gguf_arch_key(w, gx__gguf_head_sizes[i], room), 0, &size[i], &w->g.error));
        if (size[i] != size[0])
            return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED,
                           "%s: %s is %ld, but a head has %ld; only equal ones are supported", w->path, room,
                           (long)size[i], (long)size[0]);
    }
    c->head_dim = size[0];
    return GX_OK;
}

// Refuses keys that change the arithmetic, unless they have the value that leaves it as it is.
static GxStatus gx__gguf_check_import(GxGgufWork *w, const GxGguf *g)
{
    static const struct {
        const char *key;
        int64_t neutral;
    } counts[] = {{"expert_count", 0}, {"attention.sliding_window", 0}};
    static const struct {
        const char *key;
        double neutral;
    } reals[] = {{"rope.scaling.factor", 1}, {"rope.scale_linear", 1}, {"attention.scale", 0}, {"logit_scale", 0}};
    char room[96];
    for (size_t i = 0; i < GX__GGUF_COUNT_OF(counts); i++) {
        int64_t found = counts[i].neutral;
        GX_TRY(gx_gguf_get_int(g, gx__gguf_arch_key(w, counts[i].key, room), 0, &found, &w->g.error));
        if (found != counts[i].neutral)
            return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s: %s is %ld; only %ld is supported", w->path, room,
                           (long)found, (long)counts[i].neutral);
    }
    for (size_t i = 0; i < GX__GGUF_COUNT_OF(reals); i++) {
        double found = reals[i].neutral;
        GX_TRY(gx_gguf_get_double(g, gx__gguf_arch_key(w, reals[i].key, room), 0, &found, &w->g.error));
        if (found != reals[i].neutral && (strcmp(reals[i].key, "logit_scale") || found != 1))
            return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s: %s is %g; only %g is supported", w->path, room, found,
                           reals[i].neutral);
    }
    return GX_OK;
}

static GxStatus gx__gguf_take_arch(GxGgufWork *w, const GxGguf *g)
{
    const char *name = "", *type = "model";
    char cut[GX_TEXT_VALUE], names[GX_TEXT_VALUE];
    GX_TRY(gx_gguf_get_string(g, "general.type", 0, &type, &w->g.error));
    if (strcmp(type, "model"))
        return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s is a GGUF file of the type \"%s\"; expected a model",
                       w->path, gx_text_cut(type, cut, sizeof cut));
    GX_TRY(gx_gguf_get_string(g, "general.architecture", 1, &name, &w->g.error));
    w->arch = gx_gguf_arch_named(name);
    if (w->arch) return GX_OK;
    return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s: the architecture is \"%s\"; supported: %s", w->path,
                   gx_text_cut(name, cut, sizeof cut), gx_gguf_arch_names(0, names));
}

GxStatus gx_gguf_take_config(GxGgufWork *w, const GxGguf *g)
{
    char room[96];
    GxError *err = &w->g.error;
    GxLlamaConfig *c = &w->config;
    const GxGgufTensor *embed = gx_gguf_find(g, "token_embd.weight"), *freqs = gx_gguf_find(g, GX_GGUF_ROPE_FREQS);
    const GxGgufKey *own_pad = NULL;
    GX_TRY(gx__gguf_take_arch(w, g));
    c->rope_theta = 10000, c->initializer_range = 0.02, c->pad_token_id = -1;
    snprintf(c->model_type, sizeof c->model_type, "%s", w->arch->model_types[0]);
    for (size_t i = 0; i < GX__GGUF_COUNT_OF(gx__gguf_counts); i++)
        GX_TRY(gx_gguf_get_int(g, gx__gguf_arch_key(w, gx__gguf_counts[i].key, room), gx__gguf_counts[i].is_required,
                               gx__gguf_count(c, &gx__gguf_counts[i]), err));
    for (size_t i = 0; i < GX__GGUF_COUNT_OF(gx__gguf_reals); i++) {
        double *to = gx__gguf_real(c, &gx__gguf_reals[i]);
        GX_TRY(gx_gguf_get_double(g, gx__gguf_arch_key(w, gx__gguf_reals[i].key, room), gx__gguf_reals[i].is_required,
                                  to, err));
        *to = gx__gguf_shortest(*to);
    }
    if (!embed || embed->ndim != 2)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has no tensor token_embd.weight with two dimensions", w->path);
    c->vocab_size = embed->shape[0];
    c->tie_word_embeddings = !gx_gguf_find(g, "output.weight");
    GX_TRY(gx__gguf_take_head_sizes(w, g));
    GX_TRY(gx__gguf_check_import(w, g));
    GX_TRY(gx_gguf_check_keys(w, g));
    if (c->head_dim * c->num_attention_heads != c->hidden_size && !w->arch->has_head_dim)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: head_dim is %ld in a %s with %ld heads and hidden_size %ld, which is not supported",
                       w->path, (long)c->head_dim, w->arch->name, (long)c->num_attention_heads, (long)c->hidden_size);
    GX_TRY(gx_tokenizer_keys_from_gguf(&w->keys, g, c->vocab_size, err));
    c->pad_token_id = w->keys.pad;
    GX_TRY(gx_gguf_get_array(g, gx__gguf_own_pad, 0, GX_GGUF_INT32, &own_pad, err));
    if (own_pad) c->pad_token_id = own_pad->count ? gx_gguf_int_at(g, own_pad, 0) : -1;
    GxError unsound = GX_ZERO;
    if (gx_llama_config_resolve(c, &unsound) != GX_OK)
        return GX_FAIL(err, gx_error_code(&unsound), "%s: %s", w->path, unsound.message);
    GX_TRY(gx_gguf_open_model(w, NULL));
    return freqs ? gx_gguf_find_scaling(w, g, freqs) : GX_OK;
}
#endif
