// gguf_folder.h: a Hugging Face folder into a GGUF file (io/gguf.h), and a GGUF file into a folder: LLaMA, Mistral,
// Qwen2 and Qwen3, as this library and transformers have them and as llama.cpp reads them.
//
//     GX_TRY(gx_gguf_export("out/checkpoint-500", "model.gguf", GX_GGUF_Q8_0, &said, log, err));
//     GX_TRY(gx_gguf_import("model.gguf", "an_empty_folder", GX_BF16, &said, log, err));
//
// Of the architecture "llama" (LLaMA and Mistral) files have the rows of q and k in another order: RoPE's pairs stand
// beside each other, row 2i + j of a head is row j h/2 + i of Hugging Face's. Tensors of one dimension are F32, those
// of two have the wanted type, or F16 where their rows are no multiple of its blocks. A tied head is left out. LLaMA
// 3.1's scaling of RoPE is a tensor, rope_freqs.weight: the usual frequency divided by the scaled one.
//
// What a file cannot say is refused on the way out: a sliding window that is shorter than the context (llama.cpp sees
// all), RoPE scaled in a Qwen2. On the way in: other architectures, experts, RoPE scaled otherwise, tensors that the
// model does not have. A Mistral comes back as a LLaMA, which computes the same without a window. Numbers are fp32 in
// the file and come back as the shortest decimals that are the same fp32. initializer_range is not there: 0.02.
//
// Memory: some rows of one tensor, 1 MiB or one row; the tokenizer.
#ifndef GX_GGUF_FOLDER_H
#define GX_GGUF_FOLDER_H
#include "../text/gguf_tokenizer.h"
#include "../io/json_keys.h"
#include "../io/safetensors.h"
#include "../model/model.h"
GX_BEGIN

typedef struct { // what was done, for people
    char model[GX_FIELD_TEXT], tokenizer[GX_GGUF_TOKENIZER_SAID];
    int tensors, as_f16; // as_f16: of those, that could not have the wanted type
    int64_t parameters;
} GxGgufSaid;

// What is in the source and cannot be said in the other format, or is not known, is said to `log`.
// The file appears when it is whole; one of this name is replaced. type: of matrices, one that gx_gguf_encodes.
GxStatus gx_gguf_export(const char *folder, const char *path, int type, GxGgufSaid *said, const GxLogger *log,
                        GxError *err);
// What is known of a file's keys; "*." stands for the architecture and a dot.
extern const GxJsonKeys gx_gguf_keys;
// What gx_gguf_import refuses of a file before it looks at weights; nothing is written.
GxStatus gx_gguf_check_import(const char *path, GxError *err);
// Into a folder that is there: model.safetensors of `dtype` (GX_F32, GX_BF16, GX_F16), config.json,
// generation_config.json, the tokenizer's files.
GxStatus gx_gguf_import(const char *path, const char *folder, GxDtype dtype, GxGgufSaid *said, const GxLogger *log,
                        GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_FOLDER_IMPLEMENTED)
#define GX_GGUF_FOLDER_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../cpu/cpu.h"
#include "../model/mode.h"
#include "../ops/rope.h"
#include "llama_family.h"
#include "source_folder.h"
#include "tensor_match.h"

enum { GX__GGUF_FLOATS = 1 << 18 }; // that are read at a time, or one row

// ---- names ---------------------------------------------------------------------------------------------------------

typedef struct {
    const char *name;                 // general.architecture
    const char *const model_types[3]; // of config.json; the first is what a file of this architecture becomes
    int permutes;                     // the rows of q and k
    int has_rope_freqs;               // LLaMA 3.1's scaling can be said
    int has_head_dim;                 // heads may have another size than hidden_size / heads
} gx__GgufArch;
static const gx__GgufArch gx__gguf_archs[] = {{"llama", {"llama", "mistral", NULL}, 1, 1, 1},
                                              {"qwen2", {"qwen2", NULL, NULL}, 0, 0, 0},
                                              {"qwen3", {"qwen3", NULL, NULL}, 0, 0, 1}};
enum { GX__GGUF_ARCHS = sizeof gx__gguf_archs / sizeof *gx__gguf_archs };

// "llama, qwen2, qwen3"; types: of config.json, "llama, mistral, qwen2, qwen3"
static const char *gx__gguf_arch_names(int types, char out[GX_TEXT_VALUE])
{
    int n = 0;
    for (int i = 0; i < GX__GGUF_ARCHS; i++)
        for (int k = 0; k < 2 && gx__gguf_archs[i].model_types[k] && (types || k == 0) && n < GX_TEXT_VALUE; k++)
            n += snprintf(out + n, (size_t)(GX_TEXT_VALUE - n), "%s%s", n ? ", " : "",
                          types ? gx__gguf_archs[i].model_types[k] : gx__gguf_archs[i].name);
    return out;
}

// [config.json's pad_token_id], [-1] where it has none: where it is another than the tokenizer's padding.
static const char gx__gguf_own_pad[] = "galaxy.pad_token_id";

typedef struct {
    const char *folder, *file; // modules; % is the layer's number
    int is_permuted;           // where the architecture permutes
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

static const char gx__gguf_rope_freqs[] = "rope_freqs.weight";

// "model.layers.7.mlp.up_proj.weight" is "blk.7.ffn_up.weight"; which of the names it is, -1: none.
static int gx__gguf_name_of(const char *name, char out[GX_GGUF_NAME])
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

// ---- the model -----------------------------------------------------------------------------------------------------

typedef struct {
    GxContext g; // its error is the one that counts
    GxDevice device;
    GxMode mode;
    GxModel m;
    GxLlamaConfig config;
    const gx__GgufArch *arch;
    GxTokenizerKeys keys;
    GxGgufSaid *said;
    const char *folder, *path;
    float *rows; // GX__GGUF_FLOATS, or a row
} gx__GgufWork;

static GxStatus gx__gguf_open_model(gx__GgufWork *w, const GxModelOptions *options)
{
    w->g.world = 1;
    w->g.device = gx_device_cpu();
    w->mode = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
    GX_TRY(gx_model_open(&w->g, &w->m, &gx_llama, &w->config, &w->mode, options));
    int64_t most = GX__GGUF_FLOATS;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        most = gx_max(most, t->global_shape[t->ndim - 1]);
    }
    w->said->parameters = gx_table_parameters(&w->m.table);
    w->rows = (float *)malloc((size_t)most * sizeof *w->rows);
    return w->rows ? GX_OK : GX_FAIL(&w->g.error, GX_ERR_MEMORY, "no memory for %ld floats", (long)most);
}

static gx__GgufWork *gx__gguf_work_open(const char *folder, const char *path, GxGgufSaid *said, const GxLogger *log,
                                        GxError *err)
{
    gx__GgufWork *w = (gx__GgufWork *)calloc(1, sizeof *w);
    memset(said, 0, sizeof *said);
    if (!w) GX_FAIL(err, GX_ERR_MEMORY, "no memory to convert %s", path);
    else w->said = said, w->folder = folder, w->path = path, w->g.log = *log;
    return w;
}

static GxStatus gx__gguf_work_close(gx__GgufWork *w, GxStatus status, GxError *err)
{
    if (status != GX_OK) GX_FAIL(err, status, "%s", w->g.error.message);
    gx_model_close(&w->m);
    gx_tokenizer_keys_close(&w->keys);
    free(w->rows);
    free(w);
    return status;
}

// Which row of the folder's tensor is row `i` of the file's, and the other way round.
static int64_t gx__gguf_row_in_folder(int64_t i, int64_t head)
{
    const int64_t within = i % head;
    return i - within + within % 2 * (head / 2) + within / 2;
}
static int64_t gx__gguf_row_in_file(int64_t i, int64_t head)
{
    const int64_t within = i % head;
    return i - within + within % (head / 2) * 2 + within / (head / 2);
}

// ---- out: configuration --------------------------------------------------------------------------------------------

static GxStatus gx__gguf_find_arch(gx__GgufWork *w, const char *type)
{
    char names[GX_TEXT_VALUE];
    for (int i = 0; i < GX__GGUF_ARCHS; i++)
        for (const char *const *t = gx__gguf_archs[i].model_types; *t; t++)
            if (!strcmp(*t, type)) return w->arch = &gx__gguf_archs[i], GX_OK;
    return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s: a model_type of %s; supported: %s", w->folder, type,
                   gx__gguf_arch_names(1, names));
}

static int gx__gguf_slides(const GxLlamaConfig *c) // in some layer
{
    int slides = 0;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) slides |= gx_llama_slides(c, l);
    return slides;
}

static GxStatus gx__gguf_check_export(gx__GgufWork *w)
{
    const GxLlamaConfig *c = &w->config;
    GxError *err = &w->g.error;
    if (gx__gguf_slides(c) && c->sliding_window < c->max_position_embeddings)
        return GX_FAIL(
            err, GX_ERR_UNSUPPORTED,
            "%s: sliding_window is %ld, but max_position_embeddings is %ld, and llama.cpp would attend to all of them; "
            "set max_position_embeddings to %ld in config.json to use the model within its window",
            w->folder, (long)c->sliding_window, (long)c->max_position_embeddings, (long)c->sliding_window);
    if (strcmp(c->rope_type, "default") && !w->arch->has_rope_freqs)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: RoPE is scaled (%s), which a GGUF file can express only for a llama", w->folder,
                       c->rope_type);
    if (c->head_dim * c->num_attention_heads != c->hidden_size && !w->arch->has_head_dim)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: head_dim is %ld, with %ld heads and hidden_size %ld; for a %s llama.cpp reads only "
                       "hidden_size divided by the number of heads",
                       w->folder, (long)c->head_dim, (long)c->num_attention_heads, (long)c->hidden_size, w->arch->name);
    return GX_OK;
}

// "llama.block_count"
static const char *gx__gguf_arch_key(const gx__GgufWork *w, const char *key, char room[96])
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

static int gx__gguf_file_type(int type) // as llama.cpp numbers what most tensors of a file are
{
    return type == GX_GGUF_F32 ? 0 : type == GX_GGUF_F16 ? 1 : type == GX_GGUF_Q8_0 ? 7 : 32;
}

static GxStatus gx__gguf_put_config(gx__GgufWork *w, GxGgufWriter *out, int type)
{
    char room[96], name[GX_FILE_NAME];
    GxError *err = &w->g.error;
    GxLlamaConfig *c = &w->config;
    snprintf(room, sizeof room, "%.*s", gx_path_length(w->folder), w->folder);
    snprintf(name, sizeof name, "%.200s", gx_path_name(room));
    gx_gguf_set_string(out, "general.architecture", w->arch->name, err);
    gx_gguf_set_string(out, "general.type", "model", err);
    gx_gguf_set_string(out, "general.name", name, err);
    gx_gguf_set_int(out, "general.file_type", gx__gguf_file_type(type), err);
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

// ---- RoPE's frequencies --------------------------------------------------------------------------------------------

// By how much each frequency is lower than usual: [head_dim / 2].
static void gx__gguf_rope_factors(const GxLlamaConfig *c, float *factor)
{
    const double pi = 3.14159265358979323846, original = (double)c->rope_original_max_position_embeddings;
    for (int64_t i = 0; i < c->head_dim / 2; i++) {
        const double f = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim), periods = original * f / (2 * pi);
        const double s = (periods - c->rope_low_freq_factor) / (c->rope_high_freq_factor - c->rope_low_freq_factor);
        factor[i] = periods > c->rope_high_freq_factor  ? 1
                    : periods < c->rope_low_freq_factor ? (float)c->rope_factor
                                                        : (float)(1 / ((1 - s) / c->rope_factor + s));
    }
}

// Which of the known scalings it is: those of LLaMA 3.1 and 3.2. Others compute the factors in fp32, where s is off by
// some 1e-6, and the factor by 32 times that at most.
static GxStatus gx__gguf_find_scaling(gx__GgufWork *w, const GxGguf *g, const GxGgufTensor *t)
{
    static const double known[] = {1, 8, 32};
    const int64_t n = w->config.head_dim / 2;
    float *ours = w->rows, *theirs = w->rows + n;
    if (t->elements != n || 2 * n > GX__GGUF_FLOATS)
        return GX_FAIL(&w->g.error, GX_ERR_FORMAT, "%s: tensor %s has %ld elements; expected %ld, half a head", w->path,
                       t->name, (long)t->elements, (long)n);
    GX_TRY(gx_gguf_read(g, t, 0, n, theirs, &w->g.error));
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        GxLlamaConfig c = w->config;
        int64_t same = 0;
        snprintf(c.rope_type, sizeof c.rope_type, "%s", known[k] > 1 ? "llama3" : "default");
        c.rope_factor = known[k], c.rope_low_freq_factor = 1, c.rope_high_freq_factor = 4;
        c.rope_original_max_position_embeddings = 8192;
        gx__gguf_rope_factors(&c, ours);
        while (same < n && fabsf(ours[same] - theirs[same]) <= 1e-4f * ours[same]) same++;
        if (same < n) continue;
        if (known[k] > 1) w->config = c;
        return GX_OK;
    }
    return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED,
                   "%s: %s scales RoPE in an unknown way; supported: LLaMA 3.1's and 3.2's, factors 8 and 32", w->path,
                   t->name);
}

// ---- out: tensors --------------------------------------------------------------------------------------------------

static int gx__gguf_type_for(const GxTensor *t, int type)
{
    if (t->ndim == 1) return GX_GGUF_F32;
    return t->global_shape[t->ndim - 1] % gx_gguf_type(type)->elements ? GX_GGUF_F16 : type;
}

static GxStatus gx__gguf_add_tensors(gx__GgufWork *w, GxGgufWriter *out, int type)
{
    char name[GX_GGUF_NAME];
    GxError *err = &w->g.error;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        const int as = gx__gguf_type_for(t, type);
        if (t->has_alias) continue;
        if (gx__gguf_name_of(t->name, name) < 0)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tensor %s has no name in GGUF files", w->folder, t->name);
        GX_TRY(gx_gguf_add(out, name, as, t->ndim, t->global_shape, err));
        w->said->tensors++, w->said->as_f16 += t->ndim > 1 && as != type;
    }
    const int64_t half = w->config.head_dim / 2;
    return strcmp(w->config.rope_type, "llama3") ? GX_OK
                                                 : gx_gguf_add(out, gx__gguf_rope_freqs, GX_GGUF_F32, 1, &half, err);
}

// Rows [first, first + n) of the file's tensor.
static GxStatus gx__gguf_take_rows(gx__GgufWork *w, const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first,
                                   int64_t n, int64_t columns, int is_permuted)
{
    if (!is_permuted) return gx_safetensors_read(s, e, first * columns, n * columns, w->rows, &w->g.error);
    for (int64_t i = 0; i < n; i++)
        GX_TRY(gx_safetensors_read(s, e, gx__gguf_row_in_folder(first + i, w->config.head_dim) * columns, columns,
                                   w->rows + i * columns, &w->g.error));
    return GX_OK;
}

static GxStatus gx__gguf_put_tensor(gx__GgufWork *w, GxGgufWriter *out, const GxSafetensors *s,
                                    const GxSafetensorsEntry *e, const GxTensor *t)
{
    char name[GX_GGUF_NAME] = "";
    const int which = gx__gguf_name_of(t->name, name),
              is_permuted = w->arch->permutes && gx__gguf_names[which].is_permuted;
    const int64_t columns = t->ndim > 1 ? t->global_shape[t->ndim - 1] : 1, rows = gx_tensor_global_count(t) / columns,
                  most = gx_max(1, GX__GGUF_FLOATS / columns);
    for (int64_t first = 0; first < rows; first += most) {
        const int64_t n = gx_min(most, rows - first);
        GX_TRY(gx__gguf_take_rows(w, s, e, first, n, columns, is_permuted));
        GX_TRY(gx_gguf_write(out, name, w->rows, n * columns, &w->g.error));
    }
    return GX_OK;
}

static GxStatus gx__gguf_put_tensors(gx__GgufWork *w, GxGgufWriter *out, const GxSafetensors *s,
                                     const GxTensorMatch *match)
{
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        const GxSafetensorsEntry *e;
        if (t->has_alias) continue;
        GX_TRY(gx_tensor_match_find(&e, s, match, &w->m.table, i, "", w->folder, &w->g.error));
        GX_TRY(gx__gguf_put_tensor(w, out, s, e, t));
    }
    if (strcmp(w->config.rope_type, "llama3")) return GX_OK;
    gx__gguf_rope_factors(&w->config, w->rows);
    return gx_gguf_write(out, gx__gguf_rope_freqs, w->rows, w->config.head_dim / 2, &w->g.error);
}

static GxStatus gx__gguf_export_weights(gx__GgufWork *w, const GxSafetensors *s, int type)
{
    GxTensorMatch match = GX_ZERO;
    GxGgufWriter out = GX_ZERO;
    GxError *err = &w->g.error;
    GxStatus status = gx_tensor_match(&match, s, &w->m.table, &gx_llama, GX_MATCH_ALL, w->folder, err);
    if (status == GX_OK) status = gx_gguf_create(&out, w->path, err);
    if (status == GX_OK) status = gx__gguf_put_config(w, &out, type);
    if (status == GX_OK) status = gx__gguf_add_tensors(w, &out, type);
    if (status == GX_OK) status = gx__gguf_put_tensors(w, &out, s, &match);
    if (status == GX_OK) status = gx_gguf_finish(&out, err);
    gx_gguf_abort(&out);
    gx_tensor_match_close(&match);
    return status;
}

static GxStatus gx__gguf_export(gx__GgufWork *w, int type)
{
    char path[GX_PATH];
    GxSafetensors s;
    GxError *err = &w->g.error;
    GX_TRY(gx_path_join(path, w->folder, "config.json", err));
    GX_TRY(gx_llama_config_read(&w->config, path, &w->g.log, err));
    gx_source_folder_warn(w->folder, &w->g.log);
    GX_TRY(gx__gguf_find_arch(w, w->config.model_type));
    GX_TRY(gx__gguf_check_export(w));
    GX_TRY(gx_tokenizer_keys_from_folder(&w->keys, w->folder, w->config.vocab_size, w->config.pad_token_id, &w->g.log,
                                         err));
    if (gx_error_code(&w->keys.no_template) != GX_OK)
        gx_log(&w->g.log, GX_LOG_WARNING, "the chat template is left out: %s", w->keys.no_template.message);
    GX_TRY(gx__gguf_open_model(w, NULL));
    GX_TRY(gx_safetensors_open(&s, w->folder, err));
    const GxStatus status = gx__gguf_export_weights(w, &s, type);
    gx_safetensors_close(&s);
    return status;
}

GxStatus gx_gguf_export(const char *folder, const char *path, int type, GxGgufSaid *said, const GxLogger *log,
                        GxError *err)
{
    if (!gx_gguf_encodes(type)) return gx_gguf_encode(type, NULL, 0, NULL, err); // says it
    gx__GgufWork *w = gx__gguf_work_open(folder, path, said, log, err);
    if (!w) return gx_error_code(err);
    const GxStatus status = gx__gguf_export(w, type);
    if (w->arch) snprintf(said->model, sizeof said->model, "%s", w->arch->name);
    gx_tokenizer_keys_say(&w->keys, said->tokenizer);
    return gx__gguf_work_close(w, status, err);
}

// ---- in: configuration ---------------------------------------------------------------------------------------------

// The shortest decimal that is the same fp32.
static double gx__gguf_shortest(double x)
{
    char text[40];
    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtof(text, NULL) == (float)x) break;
    }
    return strtod(text, NULL);
}

static GxStatus gx__gguf_take_head_sizes(gx__GgufWork *w, const GxGguf *g)
{
    char room[96];
    GxLlamaConfig *c = &w->config;
    int64_t size[3];
    if (c->num_attention_heads < 1)
        return GX_FAIL(&w->g.error, GX_ERR_FORMAT, "%s: %s is %ld", w->path,
                       gx__gguf_arch_key(w, "attention.head_count", room), (long)c->num_attention_heads);
    c->head_dim = c->hidden_size / c->num_attention_heads;
    for (int i = 0; i < 3; i++) { // each is the first of them where it is absent
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

// Keys that change the arithmetic, and the value that leaves it as it is.
static GxStatus gx__gguf_check_import(gx__GgufWork *w, const GxGguf *g)
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

#define GX__GGUF_NO_EXPERTS "of experts, which are not supported"
#define GX__GGUF_OTHER      "of another architecture"
#define GX__GGUF_FILLING    "a token of prompts that have a gap to be filled, which are not supported"
// What llama.cpp's files have; *. stands for the architecture. All keys of general. but those below are notes.
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
    {"*.rope.scaling.type=\"none\"|\"linear\"", GX_KEY_REFUSED, "angles would be scaled"}, // linear: by factor
    {"*.rope.scaling.attn_factor=1|0", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.rope.scaling.original_context_length", GX_KEY_HARMLESS, "of a scaling, whose type is refused"},
    {"*.rope.scaling.finetuned", GX_KEY_HARMLESS, "a note on how the model was made"},
    {"*.rope.scaling.yarn_log_multiplier", GX_KEY_REFUSED, "angles would be scaled"},
    {"*.rope.scaling.yarn_ext_factor", GX_KEY_REFUSED, "angles would be scaled"},
    {"*.rope.scaling.yarn_attn_factor=1|0", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.rope.scaling.yarn_beta_fast", GX_KEY_HARMLESS, "of a scaling, whose type is refused"},
    {"*.rope.scaling.yarn_beta_slow", GX_KEY_HARMLESS, "of a scaling, whose type is refused"},
    {"*.rope.dimension_sections", GX_KEY_REFUSED, "positions would have several parts"},
    {"*.rope.freq_base_swa", GX_KEY_REFUSED, "layers with a sliding window would have another RoPE"},
    {"*.rope.dimension_count_swa", GX_KEY_REFUSED, "layers with a sliding window would have another RoPE"},
    {"*.vocab_size", GX_KEY_HARMLESS, "token_embd.weight has as many rows"},
    {"*.tensor_data_layout=\"reference\"|\"Meta AI original pth\"", GX_KEY_REFUSED, "weights would lie otherwise"},
    {"*.use_parallel_residual", GX_KEY_REFUSED, "attention and MLP would have the same input"},
    {"*.attention.causal=true", GX_KEY_REFUSED, "tokens would see those after them"},
    {"*.attention.layer_norm_epsilon", GX_KEY_HARMLESS, "of norms that these models do not have"},
    {"*.attention.max_alibi_bias", GX_KEY_REFUSED, "attention would have a bias"},
    {"*.attention.clamp_kqv", GX_KEY_REFUSED, "q, k and v would be clamped"},
    {"*.attention.output_scale=1|0", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.attention.temperature_length", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.attention.temperature_scale", GX_KEY_REFUSED, "attention would be scaled"},
    {"*.attention.value_scale=1|0", GX_KEY_REFUSED, "values would be scaled"},
    {"*.attention.sliding_window_pattern", GX_KEY_REFUSED, "layers would see windows"},
    {"*.attention.q_lora_rank", GX_KEY_REFUSED, "q would be a product"},
    {"*.attention.kv_lora_rank", GX_KEY_REFUSED, "k and v would be products"},
    {"*.attention.shared_kv_layers", GX_KEY_REFUSED, "layers would share k and v"},
    {"*.attn_logit_softcapping", GX_KEY_REFUSED, "attention would be capped"},
    {"*.final_logit_softcapping", GX_KEY_REFUSED, "logits would be capped"},
    {"*.router_logit_softcapping", GX_KEY_REFUSED, GX__GGUF_NO_EXPERTS},
    {"*.residual_scale=1|0", GX_KEY_REFUSED, "what a layer adds would be scaled"},
    {"*.embedding_scale=1|0", GX_KEY_REFUSED, "embeddings would be scaled"},
    {"*.hidden_activation=\"silu\"|\"swish\"|\"swiglu\"", GX_KEY_REFUSED, "the MLP would be another"},
    {"*.swin_norm", GX_KEY_REFUSED, GX__GGUF_OTHER},
    {"*.embedding_length_out", GX_KEY_REFUSED, "what leaves the model would have another width"},
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
    {"tokenizer.chat_templates", GX_KEY_NAMED, "tokenizer.chat_template alone is taken"},
    {"tokenizer.huggingface.json", GX_KEY_HARMLESS, "the same tokenizer in another form, as llama.cpp has it, too"},
    {"tokenizer.rwkv.world", GX_KEY_HARMLESS, "of tokenizers that are refused"},
    {"tokenizer.ggml.token_type_count", GX_KEY_HARMLESS, "of models that have types of tokens"},
    {"tokenizer.ggml.seperator_token_id", GX_KEY_HARMLESS, "of models that have one"}, // so it is spelt there
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
    {"tokenizer.ggml.add_sep_token", GX_KEY_REFUSED, "texts would end otherwise"},
    {"tokenizer.ggml.remove_extra_whitespaces", GX_KEY_REFUSED, "spaces of texts would be left out"},
    {"tokenizer.ggml.escape_whitespaces=true", GX_KEY_REFUSED, "spaces would stay as they are"},
    {"tokenizer.ggml.treat_whitespace_as_suffix", GX_KEY_REFUSED, "a space would belong to the word before it"},
    {"tokenizer.ggml.precompiled_charsmap", GX_KEY_REFUSED, "texts would be normalised"},
    {"tokenizer.ggml.normalizer.lowercase", GX_KEY_REFUSED, "texts would be normalised"},
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

// As JSON; of an array how long it is.
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

// Names and refuses what the file asks for and is not built.
static GxStatus gx__gguf_check_keys(gx__GgufWork *w, const GxGguf *g)
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

static GxStatus gx__gguf_take_arch(gx__GgufWork *w, const GxGguf *g)
{
    const char *name = "", *type = "model";
    char cut[GX_TEXT_VALUE], names[GX_TEXT_VALUE];
    GX_TRY(gx_gguf_get_string(g, "general.type", 0, &type, &w->g.error));
    if (strcmp(type, "model"))
        return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s is a GGUF file of the type \"%s\"; expected a model",
                       w->path, gx_text_cut(type, cut, sizeof cut));
    GX_TRY(gx_gguf_get_string(g, "general.architecture", 1, &name, &w->g.error));
    for (int i = 0; i < GX__GGUF_ARCHS; i++)
        if (!strcmp(gx__gguf_archs[i].name, name)) return w->arch = &gx__gguf_archs[i], GX_OK;
    return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED, "%s: the architecture is \"%s\"; supported: %s", w->path,
                   gx_text_cut(name, cut, sizeof cut), gx__gguf_arch_names(0, names));
}

static GxStatus gx__gguf_take_config(gx__GgufWork *w, const GxGguf *g)
{
    char room[96];
    GxError *err = &w->g.error;
    GxLlamaConfig *c = &w->config;
    const GxGgufTensor *embed = gx_gguf_find(g, "token_embd.weight"), *freqs = gx_gguf_find(g, gx__gguf_rope_freqs);
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
    GX_TRY(gx__gguf_check_keys(w, g));
    if (c->head_dim * c->num_attention_heads != c->hidden_size && !w->arch->has_head_dim)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: heads of %ld in a %s with %ld heads and width %ld", w->path,
                       (long)c->head_dim, w->arch->name, (long)c->num_attention_heads, (long)c->hidden_size);
    GX_TRY(gx_tokenizer_keys_from_gguf(&w->keys, g, c->vocab_size, err));
    c->pad_token_id = w->keys.pad;
    GX_TRY(gx_gguf_get_array(g, gx__gguf_own_pad, 0, GX_GGUF_INT32, &own_pad, err));
    if (own_pad) c->pad_token_id = own_pad->count ? gx_gguf_int_at(g, own_pad, 0) : -1;
    GxError unsound = GX_ZERO;
    if (gx_llama_config_resolve(c, &unsound) != GX_OK)
        return GX_FAIL(err, gx_error_code(&unsound), "%s: %s", w->path, unsound.message);
    GX_TRY(gx__gguf_open_model(w, NULL));
    return freqs ? gx__gguf_find_scaling(w, g, freqs) : GX_OK;
}

static const char *gx__gguf_dtype_name(GxDtype dtype) // as PyTorch calls it
{
    return dtype == GX_BF16 ? "bfloat16" : dtype == GX_F16 ? "float16" : "float32";
}

// Where text ends: eos_token_id, or a list of it and of the ends of a turn and a message.
static GxJson *gx__gguf_ends(const GxTokenizerKeys *k, GxError *err)
{
    const int32_t ids[] = {k->eos, k->eot, k->eom};
    GxJson *list = gx_json_new_array();
    for (int i = 0; i < 3; i++)
        if (ids[i] >= 0 && (i == 0 || ids[i] != ids[0]) && (i < 2 || ids[i] != ids[1]))
            gx_json_append(list, gx_json_new_int(ids[i]), err);
    if (gx_json_size(list) > 1) return list;
    GxJson *one = gx_json_new_int(gx_json_int(gx_json_at(list, 0)));
    gx_json_free(list);
    return one;
}

// config.json, and generation_config.json where there is anything to say.
static GxStatus gx__gguf_write_config(gx__GgufWork *w, GxDtype dtype)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    const int32_t end = (int32_t)gx_max(w->keys.eos, gx_max(w->keys.eot, w->keys.eom));
    const int32_t ids[] = {w->keys.bos, end, w->keys.pad};
    char path[GX_PATH];
    GxJson *json = NULL, *generation = gx_json_new_object();
    GxError *err = &w->g.error;
    gx_path_join(path, w->folder, "config.json", err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_llama_config_write(&w->config, NULL, path, err);
    if (status == GX_OK) status = gx_json_read(&json, path, GX_CONFIG_JSON_CAP, err);
    gx_json_set(generation, "_from_model_config", gx_json_new_bool(1), err);
    for (int i = 0; i < 3 && status == GX_OK; i++) {
        if (ids[i] < 0) continue;
        for (int k = 0; k < 2; k++) // the padding is the model's own in config.json
            if (k || i < 2)
                gx_json_set(k ? generation : json, keys[i],
                            i == 1 ? gx__gguf_ends(&w->keys, err) : gx_json_new_int(ids[i]), err);
    }
    if (status == GX_OK) status = gx_json_set(json, "torch_dtype", gx_json_new_string(gx__gguf_dtype_name(dtype)), err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    if (status == GX_OK) status = gx_path_join(path, w->folder, "generation_config.json", err);
    if (status == GX_OK && gx_json_size(generation) > 1) status = gx_json_write(generation, path, err);
    gx_json_free(json);
    gx_json_free(generation);
    return status == GX_OK ? gx_error_code(err) : status;
}

// ---- in: tensors ---------------------------------------------------------------------------------------------------

// *found: [rows of the table] the file's tensors; all of them are used.
static GxStatus gx__gguf_match(gx__GgufWork *w, const GxGguf *g, const GxGgufTensor **found)
{
    char name[GX_GGUF_NAME];
    GxError *err = &w->g.error;
    int used = gx_gguf_find(g, gx__gguf_rope_freqs) != NULL;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        if (t->has_alias) continue;
        if (gx__gguf_name_of(t->name, name) < 0)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tensor %s has no name in GGUF files", w->path, t->name);
        const GxGgufTensor *e = found[i] = gx_gguf_find(g, name);
        if (!e) return GX_FAIL(err, GX_ERR_FORMAT, "%s has no tensor %s, which this model needs", w->path, name);
        int same = e->ndim == t->ndim;
        for (int d = 0; d < t->ndim && same; d++) same = e->shape[d] == t->global_shape[d];
        if (!same)
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s: tensor %s has %d dimensions, the first of %ld; expected %d, %ld by %ld", w->path, name,
                           e->ndim, (long)(e->ndim ? e->shape[0] : 0), t->ndim, (long)t->global_shape[0],
                           (long)(t->ndim > 1 ? t->global_shape[1] : 1));
        used++;
    }
    if (used == g->tensors) return GX_OK;
    for (int k = 0; k < g->tensors; k++) {
        int is_used = !strcmp(g->tensor[k].name, gx__gguf_rope_freqs);
        for (int i = 0; i < w->m.table.n; i++) is_used |= found[i] == &g->tensor[k];
        if (!is_used)
            return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tensor %s is not one of this model's (%d of %d are)", w->path,
                           g->tensor[k].name, used, g->tensors);
    }
    return GX_OK;
}

static GxStatus gx__gguf_check_narrow(gx__GgufWork *w, const char *name, int64_t n, GxDtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = w->rows[i], y = dtype == GX_F16    ? gx_from_f16(gx_to_f16(x))
                                        : dtype == GX_BF16 ? gx_from_bf16(gx_to_bf16(x))
                                                           : x;
        if (isfinite(x) && !isfinite(y))
            return GX_FAIL(&w->g.error, GX_ERR_FORMAT,
                           "%s: tensor %s has the value %g, which %s cannot represent; choose --save_dtype fp32",
                           w->path, name, (double)x, gx__gguf_dtype_name(dtype));
    }
    return GX_OK;
}

// Rows [first, first + n) of the folder's tensor.
static GxStatus gx__gguf_take_file_rows(gx__GgufWork *w, const GxGguf *g, const GxGgufTensor *e, int64_t first,
                                        int64_t n, int64_t columns, int is_permuted)
{
    if (!is_permuted) return gx_gguf_read(g, e, first * columns, n * columns, w->rows, &w->g.error);
    for (int64_t i = 0; i < n; i++)
        GX_TRY(gx_gguf_read(g, e, gx__gguf_row_in_file(first + i, w->config.head_dim) * columns, columns,
                            w->rows + i * columns, &w->g.error));
    return GX_OK;
}

static GxStatus gx__gguf_take_tensor_into(gx__GgufWork *w, GxSafetensorsWriter *out, const GxGguf *g,
                                          const GxGgufTensor *e, const GxTensor *t, GxDtype dtype)
{
    char name[GX_GGUF_NAME] = "";
    const int which = gx__gguf_name_of(t->name, name),
              is_permuted = w->arch->permutes && gx__gguf_names[which].is_permuted;
    const int64_t columns = t->ndim > 1 ? t->global_shape[t->ndim - 1] : 1, rows = gx_tensor_global_count(t) / columns,
                  most = gx_max(1, GX__GGUF_FLOATS / columns);
    for (int64_t first = 0; first < rows; first += most) {
        const int64_t n = gx_min(most, rows - first);
        GX_TRY(gx__gguf_take_file_rows(w, g, e, first, n, columns, is_permuted));
        GX_TRY(gx__gguf_check_narrow(w, name, n * columns, dtype));
        GX_TRY(gx_safetensors_write_floats(out, t->name, first * columns, w->rows, n * columns, &w->g.error));
    }
    return GX_OK;
}

static GxStatus gx__gguf_import_weights(gx__GgufWork *w, const GxGguf *g, const GxGgufTensor **found,
                                        GxSafetensorsEntry *entry, GxDtype dtype)
{
    GxSafetensorsWriter out = GX_ZERO;
    char path[GX_PATH];
    int n = 0;
    GxError *err = &w->g.error;
    for (int i = 0; i < w->m.table.n; i++) {
        const GxTensor *t = &w->m.table.row[i];
        if (t->has_alias) continue;
        snprintf(entry[n].name, sizeof entry[n].name, "%s", t->name);
        entry[n].dtype = dtype, entry[n].ndim = t->ndim;
        memcpy(entry[n++].shape, t->global_shape, sizeof t->global_shape);
    }
    w->said->tensors = n;
    GX_TRY(gx_path_join(path, w->folder, "model.safetensors", err));
    GX_TRY(gx_safetensors_create(&out, path, entry, n, NULL, 0, err));
    GxStatus status = GX_OK;
    for (int i = 0; i < w->m.table.n && status == GX_OK; i++)
        if (found[i]) status = gx__gguf_take_tensor_into(w, &out, g, found[i], &w->m.table.row[i], dtype);
    if (status == GX_OK) status = gx_safetensors_finish(&out, err);
    gx_safetensors_abort(&out);
    return status;
}

// Without a folder: what there is to refuse.
static GxStatus gx__gguf_import(gx__GgufWork *w, const GxGguf *g, GxDtype dtype)
{
    GX_TRY(gx__gguf_take_config(w, g));
    const size_t rows = (size_t)w->m.table.n + 1;
    const GxGgufTensor **found = (const GxGgufTensor **)calloc(rows, sizeof *found);
    GxSafetensorsEntry *entry = (GxSafetensorsEntry *)calloc(rows, sizeof *entry);
    GxStatus status = found && entry ? GX_OK : GX_FAIL(&w->g.error, GX_ERR_MEMORY, "no memory for a list of tensors");
    if (status == GX_OK) status = gx__gguf_match(w, g, found);
    const int writes = status == GX_OK && w->folder;
    if (writes) status = gx__gguf_import_weights(w, g, found, entry, dtype);
    if (writes && status == GX_OK) status = gx__gguf_write_config(w, dtype);
    if (writes && status == GX_OK)
        status = gx_tokenizer_keys_to_folder(&w->keys, w->folder, w->config.max_position_embeddings, &w->g.error);
    free((void *)found);
    free(entry);
    return status;
}

GxStatus gx_gguf_check_import(const char *path, GxError *err)
{
    GxGgufSaid said;
    return gx_gguf_import(path, NULL, GX_F32, &said, &gx_silent, err);
}

GxStatus gx_gguf_import(const char *path, const char *folder, GxDtype dtype, GxGgufSaid *said, const GxLogger *log,
                        GxError *err)
{
    GxGguf g;
    if (dtype != GX_F32 && dtype != GX_BF16 && dtype != GX_F16)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "weights are written as F32, BF16 or F16, not as %s",
                       gx_dtype_name(dtype));
    gx__GgufWork *w = gx__gguf_work_open(folder, path, said, log, err);
    if (!w) return gx_error_code(err);
    GxStatus status = gx_gguf_open(&g, path, &w->g.error);
    if (status == GX_OK) {
        status = gx__gguf_import(w, &g, dtype);
        gx_gguf_close(&g);
    }
    if (w->arch) snprintf(said->model, sizeof said->model, "%s", w->arch->name);
    gx_tokenizer_keys_say(&w->keys, said->tokenizer);
    return gx__gguf_work_close(w, status, err);
}
#endif
