// gguf_names.h: what GGUF files call the architectures (LLaMA, Mistral, Qwen2, Qwen3) and their tensors, and the order
// of a tensor's rows there.
//
// In files of the architecture "llama" (LLaMA and Mistral) the rows of q and k are permuted so that RoPE's pairs are
// adjacent: row 2i + j of a head of h rows is row j h/2 + i of Hugging Face's.
#ifndef GX_GGUF_NAMES_H
#define GX_GGUF_NAMES_H
#include "../base/text.h"
#include "../io/gguf.h"
GX_BEGIN

typedef struct {
    const char *name;                 // general.architecture
    const char *const model_types[3]; // of config.json; a file is imported as the first one
    int permutes;                     // 1: the rows of q and k
    int has_rope_freqs;               // 1: a file can express LLaMA 3.1's RoPE scaling
    int has_head_dim;                 // 1: head_dim may differ from hidden_size / heads
} GxGgufArch;
// Find an architecture by config.json's model_type, or by a file's general.architecture. NULL: there is none.
const GxGgufArch *gx_gguf_arch_of_type(const char *model_type);
const GxGgufArch *gx_gguf_arch_named(const char *name);
// "llama, qwen2, qwen3"; types: of config.json, "llama, mistral, qwen2, qwen3"
const char *gx_gguf_arch_names(int types, char out[GX_TEXT_VALUE]);

// "model.layers.7.mlp.up_proj.weight" becomes "blk.7.ffn_up.weight". Returns an index for gx_gguf_is_permuted; -1: the
// name is unknown.
int gx_gguf_name_of(const char *name, char out[GX_GGUF_NAME]);
int gx_gguf_is_permuted(const GxGgufArch *arch, int name); // 1: tensors of this name have permuted rows
// Row `i` of the file's tensor as a row of the folder's, and the reverse. head: rows of a head.
int64_t gx_gguf_row_in_folder(int64_t i, int64_t head);
int64_t gx_gguf_row_in_file(int64_t i, int64_t head);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_NAMES_IMPLEMENTED)
#define GX_GGUF_NAMES_IMPLEMENTED
#include <stdio.h>
#include <string.h>

static const GxGgufArch gx__gguf_archs[] = {{"llama", {"llama", "mistral", NULL}, 1, 1, 1},
                                            {"qwen2", {"qwen2", NULL, NULL}, 0, 0, 0},
                                            {"qwen3", {"qwen3", NULL, NULL}, 0, 0, 1}};
enum { GX__GGUF_ARCHS = sizeof gx__gguf_archs / sizeof *gx__gguf_archs };

const GxGgufArch *gx_gguf_arch_of_type(const char *model_type)
{
    for (int i = 0; i < GX__GGUF_ARCHS; i++)
        for (const char *const *t = gx__gguf_archs[i].model_types; *t; t++)
            if (!strcmp(*t, model_type)) return &gx__gguf_archs[i];
    return NULL;
}

const GxGgufArch *gx_gguf_arch_named(const char *name)
{
    for (int i = 0; i < GX__GGUF_ARCHS; i++)
        if (!strcmp(gx__gguf_archs[i].name, name)) return &gx__gguf_archs[i];
    return NULL;
}

const char *gx_gguf_arch_names(int types, char out[GX_TEXT_VALUE])
{
    int n = 0;
    for (int i = 0; i < GX__GGUF_ARCHS; i++)
        for (int k = 0; k < 2 && gx__gguf_archs[i].model_types[k] && (types || k == 0) && n < GX_TEXT_VALUE; k++)
            n += snprintf(out + n, (size_t)(GX_TEXT_VALUE - n), "%s%s", n ? ", " : "",
                          types ? gx__gguf_archs[i].model_types[k] : gx__gguf_archs[i].name);
    return out;
}

typedef struct {
    const char *folder, *file; // modules; % is the layer's number
    int is_permuted;           // if the architecture permutes
} gx__GgufName;
static const gx__GgufName gx__gguf_names[] = {
    {"model.embed_tokens", "token_embd", 0},
    {"model.norm", "output_norm", 0},
    {"lm_head", "output", 0},
    {"model.layers.%.input_layernorm", "blk.%.attn_norm", 0},
    {"model.layers.%.self_attn.q_proj", "blk.%.attn_q", 1},
    {"model.layers.%.self_attn.k_proj", "blk.%.attn_k", 1},
    {"model.layers.%.self_attn.v_proj", "blk.%.attn_v", 0},
    {"model.layers.%.self_attn.o_proj", "blk.%.attn_output", 0},
    {"model.layers.%.self_attn.q_norm", "blk.%.attn_q_norm", 0},
    {"model.layers.%.self_attn.k_norm", "blk.%.attn_k_norm", 0},
    {"model.layers.%.post_attention_layernorm", "blk.%.ffn_norm", 0},
    {"model.layers.%.mlp.gate_proj", "blk.%.ffn_gate", 0},
    {"model.layers.%.mlp.up_proj", "blk.%.ffn_up", 0},
    {"model.layers.%.mlp.down_proj", "blk.%.ffn_down", 0},
};

int gx_gguf_name_of(const char *name, char out[GX_GGUF_NAME])
{
    for (int i = 0; i < (int)(sizeof gx__gguf_names / sizeof *gx__gguf_names); i++) {
        const char *from = gx__gguf_names[i].folder, *to = gx__gguf_names[i].file, *end = name, *number = "";
        int digits = 0;
        for (; *from && (*from == '%' || *from == *end); from++) {
            if (*from != '%') end++;
            else number = end, digits = (int)strspn(end, "0123456789"), end += digits;
        }
        if (*from || (strcmp(end, ".weight") && strcmp(end, ".bias"))) continue;
        const int before = (int)strcspn(to, "%");
        const char *behind = to + before + (to[before] != 0);
        return snprintf(out, GX_GGUF_NAME, "%.*s%.*s%s%s", before, to, digits, number, behind, end) < GX_GGUF_NAME ? i
                                                                                                                   : -1;
    }
    return -1;
}

int gx_gguf_is_permuted(const GxGgufArch *arch, int name) { return arch->permutes && gx__gguf_names[name].is_permuted; }

int64_t gx_gguf_row_in_folder(int64_t i, int64_t head)
{
    const int64_t within = i % head;
    return i - within + within % 2 * (head / 2) + within / 2;
}
int64_t gx_gguf_row_in_file(int64_t i, int64_t head)
{
    const int64_t within = i % head;
    return i - within + within % (head / 2) * 2 + within / (head / 2);
}
#endif
