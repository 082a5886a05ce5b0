// test_convert_gguf.cu: folders become GGUF files and folders again: weights bit for bit, configurations, tokenizers
// with the same ids; what such a file has inside; what is refused; the program convert_gguf. dev/ref/load_gguf.py
// compares the same files with what the package gguf and transformers read.
#define GX_NO_MAIN
#include "convert_gguf.cu"
#include "test/strings.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

// ---- models --------------------------------------------------------------------------------------------------------

static float value(const char *name, int64_t i) // a multiple of 1/64 below 2, which fp16 and bf16 hold
{
    const uint64_t hash = gx_hash(gx_hash(GX_HASH_START, name, (int64_t)strlen(name)), &i, sizeof i);
    return (float)((int)(hash >> 20 & 127) - 64) / 64;
}

enum { WIDTH = 8, COLUMNS = 12, HEADS = 2, KV_HEADS = 1, HEAD = 4, TENSORS_MOST = 16 };
typedef struct {
    const char *name;
    int64_t rows, columns; // columns 0: one dimension
} Shape;
static const Shape shapes[] = {{"model.embed_tokens.weight", 0, WIDTH},
                               {"model.norm.weight", WIDTH, 0},
                               {"model.layers.0.input_layernorm.weight", WIDTH, 0},
                               {"model.layers.0.post_attention_layernorm.weight", WIDTH, 0},
                               {"model.layers.0.self_attn.q_proj.weight", HEADS *HEAD, WIDTH},
                               {"model.layers.0.self_attn.k_proj.weight", KV_HEADS *HEAD, WIDTH},
                               {"model.layers.0.self_attn.v_proj.weight", KV_HEADS *HEAD, WIDTH},
                               {"model.layers.0.self_attn.o_proj.weight", WIDTH, HEADS *HEAD},
                               {"model.layers.0.mlp.gate_proj.weight", COLUMNS, WIDTH},
                               {"model.layers.0.mlp.up_proj.weight", COLUMNS, WIDTH},
                               {"model.layers.0.mlp.down_proj.weight", WIDTH, COLUMNS},
                               {"model.layers.0.self_attn.q_proj.bias", HEADS *HEAD, 0}, // Qwen2's
                               {"model.layers.0.self_attn.k_proj.bias", KV_HEADS *HEAD, 0},
                               {"model.layers.0.self_attn.v_proj.bias", KV_HEADS *HEAD, 0}};

static GxLlamaConfig small(const char *type, int64_t vocab)
{
    GxLlamaConfig c = {.vocab_size = vocab,
                       .hidden_size = WIDTH,
                       .intermediate_size = COLUMNS,
                       .num_hidden_layers = 1,
                       .num_attention_heads = HEADS,
                       .num_key_value_heads = KV_HEADS,
                       .head_dim = HEAD,
                       .max_position_embeddings = 64,
                       .rms_norm_eps = 1e-5,
                       .rope_theta = 10000,
                       .initializer_range = 0.02,
                       .tie_word_embeddings = 1,
                       .pad_token_id = -1};
    snprintf(c.model_type, sizeof c.model_type, "%s", type);
    snprintf(c.rope_type, sizeof c.rope_type, "default");
    return c;
}

// A folder with a model of one layer, whose head is the embedding.
static void put_model(const char *folder, const GxLlamaConfig *c)
{
    GxError err = GX_ZERO;
    GxSafetensorsWriter w;
    GxSafetensorsEntry e[TENSORS_MOST] = {0};
    char path[GX_PATH];
    const int n = strcmp(c->model_type, "qwen2") ? 11 : 14;
    gx_folder_make(folder, &err);
    gx_path_join(path, folder, "config.json", &err);
    CHECK(gx_llama_config_write(c, NULL, path, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < n; i++) {
        snprintf(e[i].name, sizeof e[i].name, "%s", shapes[i].name);
        e[i].dtype = GX_F32, e[i].ndim = shapes[i].columns ? 2 : 1;
        e[i].shape[0] = i ? shapes[i].rows : c->vocab_size, e[i].shape[1] = shapes[i].columns;
    }
    gx_path_join(path, folder, "model.safetensors", &err);
    gx_safetensors_create(&w, path, e, n, NULL, 0, &err);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < e[i].shape[0] * gx_max(1, shapes[i].columns); k++) {
            const float x = value(e[i].name, k);
            gx_safetensors_write_floats(&w, e[i].name, k, &x, 1, &err);
        }
    CHECK(gx_safetensors_finish(&w, &err) == GX_OK, "%s", err.message);
}

static int same_files(const char *a, const char *b, const char *name)
{
    char path[2][GX_PATH];
    GxError err = GX_ZERO;
    uint64_t hash[2] = {0, 1};
    int64_t bytes[2];
    gx_path_join(path[0], a, name, &err), gx_path_join(path[1], b, name, &err);
    for (int i = 0; i < 2; i++) gx_file_hash(path[i], &hash[i], &bytes[i], &err);
    return err.code == GX_OK && hash[0] == hash[1] && bytes[0] == bytes[1];
}

static int same_configs(const char *a, const char *b)
{
    GxLlamaConfig c[2];
    char path[GX_PATH];
    GxError err = GX_ZERO;
    int same = 1;
    for (int i = 0; i < 2; i++) {
        gx_path_join(path, i ? b : a, "config.json", &err);
        CHECK(gx_llama_config_read(&c[i], path, &gx_silent, &err) == GX_OK, "%s", err.message);
    }
    for (int i = 0; i < gx_llama.n_fields; i++)
        same &= CHECK(gx_field_same(&gx_llama.fields[i], &c[0], &c[1]), "%s is another one", gx_llama.fields[i].name);
    return same;
}

static void drop(const char *path) // a folder, or nothing
{
    GxError ignored = GX_ZERO;
    if (gx_path_is_folder(path)) gx_folder_remove(path, &ignored);
}

static GxStatus into_folder(const char *file, const char *folder, GxDtype dtype, GxError *err)
{
    GxGgufSaid said;
    drop(folder);
    gx_folder_make(folder, err);
    return gx_gguf_import(file, folder, dtype, &said, &gx_silent, err);
}

// `from` into a file and that into the folder `back`; checks that both work.
static GxGgufSaid there_and_back(const char *from, int type, GxDtype dtype)
{
    GxError err = GX_ZERO;
    GxGgufSaid said;
    CHECK(gx_gguf_export(from, at("m.gguf"), type, &said, &gx_silent, &err) == GX_OK, "%s: %s", from, err.message);
    if (!err.code) CHECK(into_folder(at("m.gguf"), at("back"), dtype, &err) == GX_OK, "%s: %s", from, err.message);
    return said;
}

// ---- weights and configurations ------------------------------------------------------------------------------------

TEST(a_folder_that_went_through_a_file_of_f32_is_the_same)
{
    static const char *const models[] = {"data/ref/llama_one",   "data/ref/llama_gqa",   "data/ref/llama_odd",
                                         "data/ref/llama_qwen2", "data/ref/llama_qwen3", "data/ref/llama_qwen3_tied"};
    for (int i = 0; i < 6; i++) {
        there_and_back(models[i], GX_GGUF_F32, GX_F32);
        CHECK(same_files(models[i], at("back"), "model.safetensors"), "%s: other weights", models[i]);
        CHECK(same_configs(models[i], at("back")), "%s: another configuration", models[i]);
    }
    drop(at("back"));
}

TEST(what_narrower_types_hold_comes_back_as_it_was)
{
    const int types[] = {GX_GGUF_F16, GX_GGUF_BF16, GX_GGUF_F32, GX_GGUF_Q8_0};
    const char *const models[] = {"llama", "mistral", "qwen2"};
    for (int i = 0; i < 12; i++) {
        const GxLlamaConfig c = small(models[i % 3], 40);
        put_model(at("model"), &c);
        const GxGgufSaid said = there_and_back(at("model"), types[i / 3], GX_F32);
        CHECK(same_files(at("model"), at("back"), "model.safetensors"), "%s by type %d: other weights", models[i % 3],
              types[i / 3]);
        // the embedding and seven matrices have rows of 8 and 12
        CHECK(said.as_f16 == (types[i / 3] == GX_GGUF_Q8_0 ? 8 : 0), "%d tensors are f16", said.as_f16);
        if (strcmp(models[i % 3], "mistral")) CHECK(same_configs(at("model"), at("back")), "%s", models[i % 3]);
    }
    drop(at("back")), drop(at("model"));
}

TEST(rows_of_q_and_k_alternate_between_the_halves_of_a_head_in_a_llama_alone)
{
    static const int64_t order[] = {0, 2, 1, 3, 4, 6, 5, 7}; // heads of 4: RoPE turns rows 0 and 2, and 1 and 3
    static const char *const files[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"};
    GxError err = GX_ZERO;
    GxGguf g;
    for (int m = 0; m < 2; m++) {
        const GxLlamaConfig c = small(m ? "qwen2" : "llama", 40);
        put_model(at("model"), &c);
        there_and_back(at("model"), GX_GGUF_F32, GX_F32);
        CHECK(gx_gguf_open(&g, at("m.gguf"), &err) == GX_OK, "%s", err.message);
        for (int t = 0; t < 3; t++) {
            const GxGgufTensor *e = gx_gguf_find(&g, files[t]);
            float x[WIDTH];
            if (!CHECK(e && e->ndim == 2, "%s is not there", files[t])) continue;
            for (int64_t i = 0; i < e->shape[0]; i++) {
                const int64_t row = m == 0 && t < 2 ? order[i] : i;
                CHECK(gx_gguf_read(&g, e, i * WIDTH, WIDTH, x, &err) == GX_OK, "%s", err.message);
                for (int64_t k = 0; k < WIDTH; k++)
                    CHECK(x[k] == value(shapes[4 + t].name, row * WIDTH + k), "%s: row %ld", files[t], (long)i);
            }
        }
        CHECK((gx_gguf_find(&g, "blk.0.attn_q.bias") != NULL) == m, "biases");
        CHECK(!gx_gguf_find(&g, "output.weight"), "a tied head is there");
        gx_gguf_close(&g);
    }
    drop(at("back")), drop(at("model"));
}

TEST(vectors_are_f32_and_rows_that_have_no_whole_blocks_f16)
{
    GxError err = GX_ZERO;
    GxGguf g;
    GxGgufSaid said;
    CHECK(gx_gguf_export("data/ref/llama_qwen2", at("m.gguf"), GX_GGUF_Q8_0, &said, &gx_silent, &err) == GX_OK, "%s",
          err.message);
    CHECK(gx_gguf_open(&g, at("m.gguf"), &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < g.tensors; i++) {
        const GxGgufTensor *t = &g.tensor[i];
        const int type = t->ndim == 1 ? GX_GGUF_F32 : strstr(t->name, "ffn_down") ? GX_GGUF_F16 : GX_GGUF_Q8_0;
        CHECK(t->type == type, "%s has the type %d", t->name, t->type);
    }
    gx_gguf_close(&g);
}

TEST(the_keys_are_those_that_llama_cpp_asks_for)
{
    static const struct {
        const char *name;
        double value;
    } keys[] = {{"general.file_type", 7},
                {"general.quantization_version", 2},
                {"llama.context_length", 64},
                {"llama.embedding_length", WIDTH},
                {"llama.block_count", 1},
                {"llama.feed_forward_length", COLUMNS},
                {"llama.attention.head_count", HEADS},
                {"llama.attention.head_count_kv", KV_HEADS},
                {"llama.attention.key_length", HEAD},
                {"llama.attention.value_length", HEAD},
                {"llama.rope.dimension_count", HEAD},
                {"llama.vocab_size", 40},
                {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
                {"llama.rope.freq_base", 10000}};
    const GxLlamaConfig c = small("mistral", 40);
    GxError err = GX_ZERO;
    GxGguf g;
    GxGgufSaid said;
    const char *text = "";
    put_model(at("model"), &c);
    CHECK(gx_gguf_export(at("model"), at("m.gguf"), GX_GGUF_Q8_0, &said, &gx_silent, &err) == GX_OK, "%s", err.message);
    CHECK(gx_gguf_open(&g, at("m.gguf"), &err) == GX_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const GxGgufKey *k = gx_gguf_key(&g, keys[i].name);
        const int is_float = k && k->kind == GX_GGUF_FLOAT32;
        CHECK(k && (is_float || k->kind == GX_GGUF_UINT32), "%s is not there, or of another kind", keys[i].name);
        if (k)
            CHECK((is_float ? gx_gguf_double_at(&g, k, 0) : (double)gx_gguf_int_at(&g, k, 0)) == keys[i].value, "%s",
                  keys[i].name);
    }
    gx_gguf_get_string(&g, "general.architecture", 1, &text, &err);
    CHECK(!strcmp(text, "llama"), "the architecture is %s", text);
    gx_gguf_get_string(&g, "tokenizer.ggml.model", 1, &text, &err);
    CHECK(!strcmp(text, "none") && !strcmp(said.tokenizer, "no tokenizer"), "the tokenizer is %s", text);
    gx_gguf_close(&g);
    drop(at("model"));
}

TEST(llama_31s_rope_is_a_tensor_and_is_recognised)
{
    const double factors[] = {8, 32};
    GxError err = GX_ZERO;
    for (int i = 0; i < 2; i++) {
        GxLlamaConfig c = small("llama", 40);
        GxGguf g;
        float x[HEAD / 2] = {0};
        snprintf(c.rope_type, sizeof c.rope_type, "llama3");
        c.rope_theta = 500000, c.rope_factor = factors[i], c.rope_low_freq_factor = 1, c.rope_high_freq_factor = 4;
        c.rope_original_max_position_embeddings = 8192;
        put_model(at("model"), &c);
        there_and_back(at("model"), GX_GGUF_F32, GX_F32);
        CHECK(same_configs(at("model"), at("back")), "factor %g", factors[i]);
        CHECK(gx_gguf_open(&g, at("m.gguf"), &err) == GX_OK, "%s", err.message);
        const GxGgufTensor *t = gx_gguf_find(&g, "rope_freqs.weight");
        CHECK(t && t->type == GX_GGUF_F32 && t->ndim == 1 && t->elements == HEAD / 2, "rope_freqs.weight");
        if (t) gx_gguf_read(&g, t, 0, HEAD / 2, x, &err);
        // frequencies 1 and 1/sqrt(500000): the second wave is 4443 long, between 8192/4 and 8192
        const double w = 2 * 3.14159265358979323846 * sqrt(500000), s = (8192 / w - 1) / 3;
        CHECK(x[0] == 1 && fabs(x[1] - 1 / ((1 - s) / factors[i] + s)) < 1e-6 * x[1], "%g and %g", x[0], x[1]);
        gx_gguf_close(&g);
    }
    drop(at("back")), drop(at("model"));
}

TEST(weights_are_saved_in_the_dtype_that_is_asked_for)
{
    const GxLlamaConfig c = small("llama", 40);
    const GxDtype dtypes[] = {GX_BF16, GX_F16};
    const char *const names[] = {"\"bfloat16\"", "\"float16\""};
    GxError err = GX_ZERO;
    put_model(at("model"), &c);
    for (int i = 0; i < 2; i++) {
        GxSafetensors s;
        float x[4];
        there_and_back(at("model"), GX_GGUF_F32, dtypes[i]);
        CHECK(gx_safetensors_open(&s, at("back"), &err) == GX_OK && s.n == 11, "%s", err.message);
        const GxSafetensorsEntry *e = gx_safetensors_find(&s, shapes[8].name);
        CHECK(e && e->dtype == (int)dtypes[i] && gx_safetensors_read(&s, e, 0, 4, x, &err) == GX_OK, "%s", err.message);
        for (int k = 0; k < 4; k++) CHECK(x[k] == value(shapes[8].name, k), "value %d is %g", k, x[k]);
        gx_safetensors_close(&s);
        char *text = get(at("back/config.json"));
        CHECK(strstr(text, names[i]) != NULL, "torch_dtype in %s", text);
        free(text);
    }
    drop(at("back")), drop(at("model"));
}

// ---- what is refused -----------------------------------------------------------------------------------------------

static void refuse_export(const GxLlamaConfig *c, int type, GxStatus status, const char *part)
{
    GxError err = GX_ZERO;
    GxGgufSaid said;
    if (c) put_model(at("model"), c);
    unlink(at("no.gguf"));
    refused(&err, gx_gguf_export(at("model"), at("no.gguf"), type, &said, &gx_silent, &err), status, "", part);
    CHECK(!gx_path_is_file(at("no.gguf")), "a file is there after: %s", part);
}

TEST(models_that_a_file_cannot_say_are_refused)
{
    GxLlamaConfig window = small("mistral", 40), scaled = small("qwen2", 40), heads = small("qwen2", 40),
                  plain = small("llama", 40);
    window.sliding_window = 63;
    refuse_export(&window, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "set max_position_embeddings to 63");
    window.sliding_window = 64;
    put_model(at("model"), &window);
    there_and_back(at("model"), GX_GGUF_F32, GX_F32);
    snprintf(scaled.rope_type, sizeof scaled.rope_type, "llama3");
    scaled.rope_factor = 8, scaled.rope_low_freq_factor = 1, scaled.rope_high_freq_factor = 4;
    scaled.rope_original_max_position_embeddings = 8192;
    refuse_export(&scaled, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "RoPE is scaled (llama3)");
    scaled = small("llama", 40);
    snprintf(scaled.rope_type, sizeof scaled.rope_type, "yarn");
    scaled.rope_factor = 8, scaled.rope_original_max_position_embeddings = 32;
    refuse_export(&scaled, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "RoPE is scaled (yarn); only llama3");
    scaled = small("smollm3", 40);
    scaled.no_rope_layer_interval = 4;
    refuse_export(&scaled, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "model_type is smollm3");
    scaled = small("phi3", 40);
    refuse_export(&scaled, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "model_type is phi3");
    scaled = small("gemma3_text", 40);
    scaled.sliding_window = 9, scaled.sliding_window_pattern = 2, scaled.query_pre_attn_scalar = 4;
    scaled.rope_local_base_freq = 10000;
    refuse_export(&scaled, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "model_type is gemma3_text");
    heads.num_attention_heads = 4; // of 4, in a width of 8
    refuse_export(&heads, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "head_dim is 4, with 4 heads");
    refuse_export(&plain, GX_GGUF_Q4_0, GX_ERR_UNSUPPORTED, "Q4_0 is not written");
    plain.num_hidden_layers = 2;
    refuse_export(&plain, GX_GGUF_F32, GX_ERR_FORMAT, "has no tensor model.layers.1.");
    drop(at("model")), drop(at("back"));
}

// A file of a model of one layer, with something in it that is different.
enum { FINE, NO_NORM, MORE, WRONG_SHAPE, OTHER_FREQS, HALF_FREQS };
static int file_eos = -1;     // its tokenizer.ggml.eos_token_id; -1: none
static int file_says_nothing; // keys whose values leave all as it is, and one that is named
static void put_file(const char *architecture, const char *key, double number, int what)
{
    static const char *const counts[] = {"context_length",      "embedding_length",     "block_count",
                                         "feed_forward_length", "attention.head_count", "attention.head_count_kv"};
    static const int64_t numbers[] = {64, WIDTH, 1, COLUMNS, HEADS, KV_HEADS};
    static const char *const names[] = {"token_embd.weight",     "output_norm.weight",       "blk.0.attn_norm.weight",
                                        "blk.0.ffn_norm.weight", "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
                                        "blk.0.attn_v.weight",   "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
                                        "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight"};
    GxError err = GX_ZERO;
    GxGgufWriter w;
    char name[96];
    float x[400], freqs[] = {1, 3};
    const int64_t four = 4, half = what == HALF_FREQS ? 1 : HEAD / 2;
    for (int i = 0; i < 400; i++) x[i] = 70000;
    gx_gguf_create(&w, at("x.gguf"), &err);
    gx_gguf_set_string(&w, "general.architecture", architecture, &err);
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "%s.%s", architecture, counts[i]);
        if (!key || strcmp(key, name)) gx_gguf_set_int(&w, name, numbers[i], &err);
    }
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", architecture);
    gx_gguf_set_float(&w, name, 1e-5f, &err);
    gx_gguf_set_string(&w, "tokenizer.ggml.model", "none", &err);
    if (file_eos >= 0) gx_gguf_set_int(&w, "tokenizer.ggml.eos_token_id", file_eos, &err);
    if (file_says_nothing) {
        const int32_t two[] = {1, 2};
        gx_gguf_set_float(&w, "llama.logit_scale", 1, &err),
            gx_gguf_set_float(&w, "llama.rope.scaling.factor", 1, &err);
        gx_gguf_set_string(&w, "llama.rope.scaling.type", "linear", &err);
        gx_gguf_set_ints(&w, "tokenizer.ggml.suppress_tokens", two, 2, &err);
    }
    if (key && number == (int64_t)number && number >= 0) gx_gguf_set_int(&w, key, (int64_t)number, &err);
    else if (key && number > 0) gx_gguf_set_float(&w, key, (float)number, &err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 11; i++) {
            const int64_t shape[] = {(i ? shapes[i].rows : 40) + (what == WRONG_SHAPE && i == 9), shapes[i].columns};
            if (what == NO_NORM && i == 3) continue;
            if (pass) gx_gguf_write(&w, names[i], x, shape[0] * gx_max(1, shape[1]), &err);
            else gx_gguf_add(&w, names[i], GX_GGUF_F32, shape[1] ? 2 : 1, shape, &err);
        }
        if (what == MORE && pass) gx_gguf_write(&w, "blk.0.attn_q.bias", x, 4, &err);
        else if (what == MORE) gx_gguf_add(&w, "blk.0.attn_q.bias", GX_GGUF_F32, 1, &four, &err);
        if (what >= OTHER_FREQS && pass) gx_gguf_write(&w, "rope_freqs.weight", freqs, half, &err);
        else if (what >= OTHER_FREQS) gx_gguf_add(&w, "rope_freqs.weight", GX_GGUF_F32, 1, &half, &err);
    }
    CHECK(gx_gguf_finish(&w, &err) == GX_OK, "%s", err.message);
}

TEST(files_of_other_models_are_refused)
{
    static const struct {
        const char *architecture, *key;
        double number;
        int what;
        GxStatus status;
        const char *part;
    } bad[] = {
        {"gemma3", NULL, 0, FINE, GX_ERR_UNSUPPORTED, "the architecture is \"gemma3\"; supported: llama, qwen2, qwen3"},
        {"llama", "llama.block_count", -1, FINE, GX_ERR_FORMAT, "the key llama.block_count is missing"},
        {"llama", "llama.attention.head_count", 0, FINE, GX_ERR_FORMAT, "llama.attention.head_count is 0"},
        {"llama", "llama.attention.head_count_kv", 3, FINE, GX_ERR_ARGUMENT, "multiple of num_key_value_heads"},
        {"llama", "llama.block_count", 2, FINE, GX_ERR_FORMAT, "has no tensor blk.1.attn_norm.weight"},
        {"llama", "llama.expert_count", 8, FINE, GX_ERR_UNSUPPORTED, "llama.expert_count is 8; only 0"},
        {"llama", "llama.attention.sliding_window", 32, FINE, GX_ERR_UNSUPPORTED, "sliding_window is 32"},
        {"llama", "llama.rope.scaling.factor", 2.5, FINE, GX_ERR_UNSUPPORTED,
         "llama.rope.scaling.factor is 2.5; only 1"},
        {"llama", "llama.rope.scale_linear", 4.5, FINE, GX_ERR_UNSUPPORTED, "llama.rope.scale_linear is 4.5"},
        {"llama", "llama.attention.scale", 0.5, FINE, GX_ERR_UNSUPPORTED, "llama.attention.scale is 0.5"},
        {"llama", "llama.rope.dimension_count", 2, FINE, GX_ERR_UNSUPPORTED,
         "llama.rope.dimension_count is 2, but a head"},
        {"llama", "llama.attention.value_length", 8, FINE, GX_ERR_UNSUPPORTED, "value_length is 8, but a head has 4"},
        {"llama", "split.count", 3, FINE, GX_ERR_UNSUPPORTED, "one of 3 parts"},
        {"llama", "tokenizer.ggml.bos_token_id", 40, FINE, GX_ERR_FORMAT, "bos_token_id is 40; there are 40 tokens"},
        {"llama", NULL, 0, NO_NORM, GX_ERR_FORMAT, "has no tensor blk.0.ffn_norm.weight"},
        {"llama", NULL, 0, MORE, GX_ERR_UNSUPPORTED, "tensor blk.0.attn_q.bias is not one of this model's"},
        {"llama", NULL, 0, WRONG_SHAPE, GX_ERR_FORMAT, "tensor blk.0.ffn_up.weight has 2 dimensions, the first of 13"},
        {"llama", NULL, 0, OTHER_FREQS, GX_ERR_UNSUPPORTED, "scales RoPE in an unknown way"},
        {"llama", NULL, 0, HALF_FREQS, GX_ERR_FORMAT, "rope_freqs.weight has 1 elements; expected 2"},
        {"qwen2", NULL, 0, FINE, GX_ERR_FORMAT, "has no tensor blk.0.attn_q.bias"},
        {"qwen2", "qwen2.attention.key_length", 2, FINE, GX_ERR_UNSUPPORTED,
         "head_dim is 2 in a qwen2 with 2 heads and hidden_size 8"}};
    GxError err = GX_ZERO;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_file(bad[i].architecture, bad[i].key, bad[i].number, bad[i].what);
        refused(&err, into_folder(at("x.gguf"), at("no"), GX_F32, &err), bad[i].status, "x.gguf", bad[i].part);
    }
    put_file("llama", "llama.rope.scaling.factor", 1, FINE); // an integer, where a float belongs
    refused(&err, into_folder(at("x.gguf"), at("no"), GX_F32, &err), GX_ERR_FORMAT, "x.gguf", "expected a float");
    put_file("llama", NULL, 0, FINE);
    CHECK(into_folder(at("x.gguf"), at("no"), GX_BF16, &err) == GX_OK, "%s", err.message);
    refused(&err, into_folder(at("x.gguf"), at("no"), GX_F16, &err), GX_ERR_FORMAT, "x.gguf",
            "has the value 70000, which float16 cannot represent");
    drop(at("no"));
}

// ---- what is named -------------------------------------------------------------------------------------------------

static char warned[2000];
static void hear(void *user, GxLogLevel level, const char *text)
{
    const size_t have = strlen(warned);
    (void)user, (void)level;
    snprintf(warned + have, sizeof warned - have, "%s\n", text);
}

static GxStatus import_with(const char *key, double number, GxError *err)
{
    static const GxLogger log = {hear, NULL};
    GxGgufSaid said;
    memset(err, 0, sizeof *err), warned[0] = 0;
    put_file("llama", key, number, FINE);
    drop(at("no")), mkdir(at("no"), 0700);
    return gx_gguf_import(at("x.gguf"), at("no"), GX_F32, &said, &log, err);
}

TEST(what_the_table_of_a_files_keys_says_is_what_becomes_of_them)
{
    static const char *const always[] = {"context_length",       "embedding_length",
                                         "block_count",          "feed_forward_length",
                                         "attention.head_count", "attention.layer_norm_rms_epsilon"};
    GxError err;
    char key[100];
    for (int k = 0; k < gx_gguf_keys.n; k++) {
        const GxJsonKey *row = &gx_gguf_keys.key[k];
        const int is_own = row->name[0] == '*', is_read = row->kind == GX_KEY_READ;
        int is_always = 0;
        snprintf(key, sizeof key, "%s%.*s", is_own ? "llama" : "", (int)strcspn(row->name, "=") - is_own,
                 row->name + is_own);
        for (int i = 0; i < 6; i++) is_always |= is_own && !strcmp(row->name + 2, always[i]);
        if (is_read && (!is_own || is_always)) continue; // other tests have these
        const GxStatus status = import_with(key, 12345, &err);
        if (row->kind == GX_KEY_HARMLESS) CHECK(status == GX_OK && !warned[0], "%s: %s%s", key, err.message, warned);
        if (row->kind == GX_KEY_REFUSED)
            CHECK(status == GX_ERR_UNSUPPORTED && strstr(err.message, key) && strstr(err.message, "12345"), "%s: %s",
                  key, err.message);
        if (row->kind == GX_KEY_NAMED)
            CHECK(status == GX_OK && strstr(warned, key) && strstr(warned, row->why), "%s: %s%s", key, err.message,
                  warned);
        if (is_read)
            CHECK((status != GX_OK && strstr(err.message, key)) ||
                      (import_with(key, 2.5, &err) != GX_OK && strstr(err.message, key)),
                  "%s is not looked at", key);
    }
    file_says_nothing = 1;
    CHECK(import_with(NULL, 0, &err) == GX_OK &&
              strstr(warned, "suppress_tokens is \"an array of 2 values\", which is ignored") &&
              !strstr(warned, "scal"),
          "%s%s", err.message, warned);
    file_says_nothing = 0;
    CHECK(import_with("llama.quite_new", 3, &err) == GX_OK &&
              strstr(warned, "x.gguf: llama.quite_new is not known and not read"),
          "%s%s", err.message, warned);
    CHECK(import_with("general.quite_new", 3, &err) == GX_OK && !warned[0], "%s%s", err.message, warned);
    CHECK(import_with("general.sampling.temp", 3, &err) == GX_OK && strstr(warned, "general.sampling.temp"), "%s%s",
          err.message, warned);
    drop(at("no"));
}

TEST(a_text_ends_at_the_ends_of_turns_and_messages_that_a_file_names)
{
    static const struct {
        const char *key;
        int eos, id;
        const char *wanted;
    } cases[] = {{"tokenizer.ggml.eot_token_id", 4, 5, "\"eos_token_id\": [4, 5]"},
                 {"tokenizer.ggml.eom_token_id", 4, 5, "\"eos_token_id\": [4, 5]"},
                 {"tokenizer.ggml.eot_token_id", 4, 4, "\"eos_token_id\": 4"},
                 {"tokenizer.ggml.eot_token_id", -1, 5, "\"eos_token_id\": 5"}};
    GxError err;
    for (int i = 0; i < 4; i++) {
        file_eos = cases[i].eos;
        CHECK(import_with(cases[i].key, cases[i].id, &err) == GX_OK && !warned[0], "%s%s", err.message, warned);
        char *config = get(at("no/config.json")), *generation = get(at("no/generation_config.json"));
        CHECK(strstr(config, cases[i].wanted) && strstr(generation, cases[i].wanted), "%s: %s%s", cases[i].wanted,
              config, generation);
        free(config), free(generation);
    }
    file_eos = -1;
    drop(at("no"));
}

TEST(on_a_full_disk_nothing_is_left)
{
    struct rlimit before, limit;
    char *in[] = {(char *)"convert_gguf", (char *)"--gguf", strdup(at("m.gguf")), (char *)"--output_dir",
                  strdup(at("full"))};
    GxError err = GX_ZERO;
    GxGgufSaid said;
    CHECK(gx_gguf_export("data/ref/llama_gqa", at("m.gguf"), GX_GGUF_F32, &said, &gx_silent, &err) == GX_OK, "%s",
          err.message);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before, limit.rlim_cur = 90000;
    setrlimit(RLIMIT_FSIZE, &limit);
    const GxStatus out = gx_gguf_export("data/ref/llama_gqa", at("full.gguf"), GX_GGUF_F32, &said, &gx_silent, &err);
    GxError other = GX_ZERO;
    const GxStatus back = convert(5, in, &other);
    setrlimit(RLIMIT_FSIZE, &before);
    refused(&err, out, GX_ERR_IO, "full.gguf", "File too large");
    refused(&other, back, GX_ERR_IO, "model.safetensors", "File too large");
    CHECK(!gx_path_is_file(at("full.gguf")) && !gx_path_is_folder(at("full")) && !gx_path_is_folder(at("full.gx-new")),
          "something is there");
    free(in[2]), free(in[4]);
}

// ---- tokenizers ----------------------------------------------------------------------------------------------------

static GxJson *json_of(const char *path)
{
    GxError err = GX_ZERO;
    GxJson *root_json = NULL;
    CHECK(gx_json_read(&root_json, path, 64 << 20, &err) == GX_OK, "%s", err.message);
    return root_json;
}

static void put_json(GxJson *json, const char *path)
{
    GxError err = GX_ZERO;
    CHECK(gx_json_write(json, path, &err) == GX_OK, "%s", err.message);
    gx_json_free(json);
}

// A member of each added token.
static void set_added(GxJson *tokenizer, const char *key, int flag)
{
    GxError err = GX_ZERO;
    const GxJson *added = gx_json_get(tokenizer, "added_tokens");
    for (int64_t i = 0; i < gx_json_size(added); i++)
        gx_json_set(gx_json_at(added, i), key, gx_json_new_bool(flag), &err);
}

// data/ref/bpe's byte-level tokenizer in a pipeline of that name; added tokens without what a file cannot say.
static GxJson *pipeline(const char *name)
{
    static const char *const members[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    GxError err = GX_ZERO;
    GxJson *all = json_of("data/ref/bpe/pipelines.json"), *out = json_of("data/ref/bpe/byte_level.json");
    const GxJson *p = NULL;
    for (int64_t i = 0; i < gx_json_size(all); i++)
        if (!strcmp(gx_json_string(gx_json_get(gx_json_at(all, i), "name")), name)) p = gx_json_at(all, i);
    for (int i = 0; i < 4; i++)
        gx_json_set(out, members[i],
                    gx_json_get(p, members[i]) ? gx_json_copy(gx_json_get(p, members[i])) : gx_json_new_null(), &err);
    for (GxJsonMember m = GX_ZERO; gx_json_next(gx_json_get(p, "model"), &m);)
        gx_json_set(gx_json_get(out, "model"), m.key, gx_json_copy(m.value), &err);
    set_added(out, "lstrip", 0), set_added(out, "rstrip", 0), set_added(out, "normalized", 0);
    gx_json_free(all);
    CHECK(p != NULL, "there is no pipeline %s", name);
    return out;
}

static int expect_strings(void)
{
    if (expected.text[0]) return 1;
    read_expected(0, "data/ref/wordpiece/expected.txt", 1, NULL);
    read_expected(1, "data/ref/bpe/expected.txt", 0, NULL);
    for (int i = 0; i < STRINGS; i++) make_string(i);
    return CHECK(expected.lines > 2000 && expected.traps > 150, "%d lines, %d traps", expected.lines, expected.traps);
}

static void expect_same_ids(const char *a, const char *b, const char *name)
{
    GxTokenizer t[2];
    GxError err = GX_ZERO;
    int wrong = 0;
    for (int i = 0; i < 2; i++)
        if (!CHECK(gx_tokenizer_open(&t[i], i ? b : a, &err) == GX_OK, "%s: %s", name, err.message)) return;
    for (int i = 0; i < STRINGS; i++)
        for (int k = 0; k < 2; k++) {
            int64_t n[2];
            int32_t *x = encode(&t[0], &expected.string[i], k ? GX_SPECIAL_AS_TEXT : GX_SPECIAL_AS_TOKENS, &n[0]),
                    *y = encode(&t[1], &expected.string[i], k ? GX_SPECIAL_AS_TEXT : GX_SPECIAL_AS_TOKENS, &n[1]);
            wrong += n[0] != n[1] || memcmp(x, y, (size_t)n[0] * sizeof *x) ||
                     hash_decoded(1, &t[0], x, n[0]) != hash_decoded(1, &t[1], y, n[1]);
            free(x), free(y);
        }
    CHECK(wrong == 0, "%s: %d of %d encodings differ", name, wrong, 2 * STRINGS);
    for (int two = 0; two < 2; two++) {
        int same = t[0].frame[two].n == t[1].frame[two].n;
        for (int i = 0; i < t[0].frame[two].n && same; i++)
            same = t[0].frame[two].part[i].id == t[1].frame[two].part[i].id &&
                   t[0].frame[two].part[i].type == t[1].frame[two].part[i].type;
        CHECK(same, "%s: another frame around texts", name);
    }
    gx_tokenizer_close(&t[0]), gx_tokenizer_close(&t[1]);
}

static const char *string_key(const char *name) // of m.gguf
{
    static char out[200];
    const char *text = "absent";
    GxError err = GX_ZERO;
    GxGguf g;
    if (gx_gguf_open(&g, at("m.gguf"), &err) != GX_OK) return "no file";
    gx_gguf_get_string(&g, name, 0, &text, &err);
    snprintf(out, sizeof out, "%.190s", text);
    gx_gguf_close(&g);
    return out;
}

TEST(byte_level_tokenizers_have_a_name_and_come_back_with_the_same_ids)
{
    static const char *const known[][2] = {
        {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen", "qwen2"}, {"smollm", "smollm"}};
    if (!gx_regex_is_built() || !gx_unicode_has_nfd()) SKIP("built without PCRE2 or utf8proc");
    if (!expect_strings()) return;
    for (int i = 0; i < 4; i++) {
        GxTokenizer t;
        GxError err = GX_ZERO;
        const GxLlamaConfig c = small(i == 2 ? "qwen2" : "llama", 1300); // more rows than tokens
        put_model(at("model"), &c);
        put_json(pipeline(known[i][0]), at("model/tokenizer.json"));
        CHECK(gx_tokenizer_open(&t, at("model"), &err) == GX_OK && t.vocab_size < 1300, "%s", err.message);
        gx_tokenizer_close(&t);
        const GxGgufSaid said = there_and_back(at("model"), GX_GGUF_F32, GX_F32);
        CHECK(!strcmp(string_key("tokenizer.ggml.model"), "gpt2"), "%s", string_key("tokenizer.ggml.model"));
        CHECK(!strcmp(string_key("tokenizer.ggml.pre"), known[i][1]), "%s is %s", known[i][0],
              string_key("tokenizer.ggml.pre"));
        CHECK(strstr(said.tokenizer, known[i][1]) != NULL, "%s", said.tokenizer);
        expect_same_ids(at("model"), at("back"), known[i][0]);
        CHECK(same_configs(at("model"), at("back")), "%s", known[i][0]);
    }
    drop(at("back")), drop(at("model"));
}

// tokenizer.ggml.pre, or another pipeline's regular expression, that is one sign off: nothing is taken for another one.
TEST(tokenizers_without_a_name_in_gguf_files_are_refused)
{
    static const char *const unknown[] = {"deepseek", "gpt2 prefix", "removed", "negated"};
    GxError err = GX_ZERO;
    const GxLlamaConfig c = small("llama", 1300);
    if (!gx_regex_is_built() || !gx_unicode_has_nfd()) SKIP("built without PCRE2 or utf8proc");
    put_model(at("model"), &c);
    for (int i = 0; i < 4; i++) {
        put_json(pipeline(unknown[i]), at("model/tokenizer.json"));
        refuse_export(NULL, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "known: gpt-2, smollm, llama-bpe, qwen2");
    }
    GxJson *ignores = pipeline("gpt2"), *strips = pipeline("gpt2"), *fills = pipeline("gpt2");
    gx_json_set(gx_json_get(ignores, "model"), "ignore_merges", gx_json_new_bool(1), &err);
    put_json(ignores, at("model/tokenizer.json"));
    refuse_export(NULL, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "known: gpt-2");
    set_added(strips, "lstrip", 1);
    put_json(strips, at("model/tokenizer.json"));
    refuse_export(NULL, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "also takes the spaces around it (lstrip, rstrip)");
    gx_json_set(gx_json_at(gx_json_get(fills, "added_tokens"), 1), "content", gx_json_new_string("[PAD1299]"), &err);
    put_json(fills, at("model/tokenizer.json"));
    refuse_export(NULL, GX_GGUF_F32, GX_ERR_UNSUPPORTED,
                  "row 1299 of the embedding has no token, and its stand-in [PAD1299]");
    const GxLlamaConfig many = small("llama", 1500), few = small("llama", 100);
    GxJson *fallback = json_of("data/ref/bpe/byte_fallback.json");
    set_added(fallback, "lstrip", 0), set_added(fallback, "rstrip", 0);
    put_json(fallback, at("model/tokenizer.json"));
    refuse_export(&many, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "write \xE2\x96\x81 for spaces");
    put_json(json_of("data/ref/wordpiece/tokenizer.json"), at("model/tokenizer.json"));
    refuse_export(&few, GX_GGUF_F32, GX_ERR_UNSUPPORTED, "of the kind WordPiece");
    put_json(pipeline("gpt2"), at("model/tokenizer.json"));
    refuse_export(NULL, GX_GGUF_F32, GX_ERR_FORMAT, "tokens, but the embedding has 100 rows");
    CHECK(err.code == 0, "%s", err.message);
    drop(at("model"));
}

// A word of a file in place of another one that is as long.
static void change_file(const char *from, const char *to)
{
    GxError err = GX_ZERO;
    char *text;
    int64_t n, k = 0;
    const int64_t length = (int64_t)strlen(from);
    CHECK(gx_file_read(at("m.gguf"), 1 << 24, &text, &n, &err) == GX_OK, "%s", err.message);
    while (k + length <= n && memcmp(text + k, from, (size_t)length)) k++;
    if (CHECK(k + length <= n && strlen(to) == strlen(from), "%s is not there", from))
        memcpy(text + k, to, (size_t)length);
    put(at("x.gguf"), text, n);
    free(text);
}

TEST(files_with_other_tokenizers_are_refused)
{
    static const struct {
        const char *from, *to, *part;
        GxStatus status;
    } bad[] = {
        {"smollm", "tekken", "tokenizer.ggml.pre is \"tekken\"; known: gpt-2", GX_ERR_UNSUPPORTED},
        {"tokenizer.ggml.pre", "tokenizer.ggml.xyz", "tokenizer.ggml.pre is \"default\"", GX_ERR_UNSUPPORTED},
        {"gpt2", "bert", "the tokenizer is \"bert\"; supported: gpt2, llama, none", GX_ERR_UNSUPPORTED},
        {"tokenizer.ggml.tokens", "tokenizer.ggml.xxxxxx", "the key tokenizer.ggml.tokens is missing", GX_ERR_FORMAT},
        {"tokenizer.ggml.merges", "tokenizer.ggml.xxxxxx", "the key tokenizer.ggml.merges is missing", GX_ERR_FORMAT},
        {"[PAD1298]", "[PAD1299]", "\"[PAD1299]\", occurs twice", GX_ERR_FORMAT},
        {"[PAD1298]",
         "[PAD\xFF\xFE"
         "98]",
         "item 1298 of tokenizer.ggml.tokens is not UTF-8", GX_ERR_FORMAT},
        {"h e", "hxe", "merge ", GX_ERR_FORMAT}};
    GxError err = GX_ZERO;
    GxGgufSaid said;
    const GxLlamaConfig c = small("llama", 1300);
    if (!gx_regex_is_built() || !gx_unicode_has_nfd()) SKIP("built without PCRE2 or utf8proc");
    put_model(at("model"), &c);
    put_json(pipeline("smollm"), at("model/tokenizer.json"));
    CHECK(gx_gguf_export(at("model"), at("m.gguf"), GX_GGUF_F32, &said, &gx_silent, &err) == GX_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        change_file(bad[i].from, bad[i].to);
        refused(&err, into_folder(at("x.gguf"), at("no"), GX_F32, &err), bad[i].status, "", bad[i].part);
    }
    drop(at("no")), drop(at("model"));
}

TEST(bytes_as_tokens_come_back_as_bytes)
{
    GxError err = GX_ZERO;
    GxTokenizer t = gx_tokenizer_bytes();
    const GxLlamaConfig c = small("llama", 260); // four rows more
    put_model(at("model"), &c);
    CHECK(gx_tokenizer_write(&t, at("model"), &err) == GX_OK, "%s", err.message);
    const GxGgufSaid said = there_and_back(at("model"), GX_GGUF_F32, GX_F32);
    CHECK(strstr(said.tokenizer, "bytes as tokens") != NULL, "%s", said.tokenizer);
    CHECK(!strcmp(string_key("tokenizer.ggml.model"), "gpt2"), "%s", string_key("tokenizer.ggml.model"));
    CHECK(same_files(at("model"), at("back"), "tokenizer.json"), "another tokenizer.json");
    CHECK(gx_tokenizer_check(&t, at("back"), &err) == GX_OK, "%s", err.message);
    drop(at("back")), drop(at("model"));
}

// ---- SentencePiece's -----------------------------------------------------------------------------------------------

enum { SPM_MOST = 3000 };
static struct {
    char *token[SPM_MOST];
    int32_t type[SPM_MOST];
    float score[SPM_MOST];
    int64_t n;
    GxPieces p; // of normal ones
} spm;

// The pieces of data/ref/bpe/byte_fallback.json with scores of their own, into x.gguf.
static void put_spm(int add_space_prefix)
{
    GxError err = GX_ZERO;
    GxJson *tokenizer = json_of("data/ref/bpe/byte_fallback.json"),
           *vocab = gx_json_get(gx_json_get(tokenizer, "model"), "vocab");
    static const char *const names[] = {"token_embd.weight",     "output_norm.weight",       "blk.0.attn_norm.weight",
                                        "blk.0.ffn_norm.weight", "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
                                        "blk.0.attn_v.weight",   "blk.0.attn_output.weight", "blk.0.ffn_gate.weight",
                                        "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight"};
    static const char *const counts[] = {"llama.context_length",       "llama.embedding_length",
                                         "llama.block_count",          "llama.feed_forward_length",
                                         "llama.attention.head_count", "llama.attention.head_count_kv"};
    static const int64_t numbers[] = {64, WIDTH, 1, COLUMNS, HEADS, KV_HEADS};
    GxGgufWriter w;
    static float x[SPM_MOST * WIDTH];
    spm.n = gx_json_size(vocab);
    gx_pieces_close(&spm.p);
    for (GxJsonMember m = GX_ZERO; gx_json_next(vocab, &m);) {
        const int64_t id = gx_json_int(m.value);
        free(spm.token[id]);
        spm.token[id] = strdup(m.key);
        const int is_byte = strlen(m.key) == 6 && !strncmp(m.key, "<0x", 3);
        spm.type[id] = id == 0 ? 2 : id < 3 ? 3 : is_byte ? 6 : 1;
        numbers_state = (uint64_t)id;
        spm.score[id] = spm.type[id] == 1 ? -(float)(below(1 << 20)) - (float)id / 4096 : 0; // no two are equal
        if (spm.type[id] == 1) gx_pieces_add(&spm.p, (int32_t)id, m.key, (int64_t)strlen(m.key), GX_PIECE_MODEL, &err);
    }
    gx_pieces_index(&spm.p, &err);
    gx_json_free(tokenizer);
    gx_gguf_create(&w, at("x.gguf"), &err);
    gx_gguf_set_string(&w, "general.architecture", "llama", &err);
    for (int i = 0; i < 6; i++) gx_gguf_set_int(&w, counts[i], numbers[i], &err);
    gx_gguf_set_float(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f, &err);
    gx_gguf_set_string(&w, "tokenizer.ggml.model", "llama", &err);
    gx_gguf_set_strings(&w, "tokenizer.ggml.tokens", (const char *const *)spm.token, spm.n, &err);
    gx_gguf_set_ints(&w, "tokenizer.ggml.token_type", spm.type, spm.n, &err);
    gx_gguf_set_floats(&w, "tokenizer.ggml.scores", spm.score, spm.n, &err);
    if (!add_space_prefix) gx_gguf_set_bool(&w, "tokenizer.ggml.add_space_prefix", 0, &err);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 11; i++) {
            const int64_t shape[] = {i ? shapes[i].rows : spm.n, shapes[i].columns};
            if (pass) gx_gguf_write(&w, names[i], x, shape[0] * gx_max(1, shape[1]), &err);
            else gx_gguf_add(&w, names[i], GX_GGUF_F32, shape[1] ? 2 : 1, shape, &err);
        }
    CHECK(gx_gguf_finish(&w, &err) == GX_OK, "%s", err.message);
}

// As SentencePiece does it: of all neighbours the pair whose piece has the highest score, the leftmost of equal ones;
// in the end bytes for what is no piece. A slow writing of its own. text[n] has its ▁.
static int64_t spm_encode(const char *text, int64_t n, int32_t *ids)
{
    int64_t *from = (int64_t *)malloc((size_t)(n + 1) * sizeof *from), parts = 0, count = 0;
    for (int64_t i = 0; i < n; i++)
        if (((unsigned char)text[i] & 0xC0) != 0x80) from[parts++] = i;
    from[parts] = n;
    for (;;) {
        int64_t best = -1;
        float score = 0;
        for (int64_t i = 0; i + 1 < parts; i++) {
            const int32_t id = gx_pieces_find(&spm.p, text + from[i], from[i + 2] - from[i]);
            if (id >= 0 && (best < 0 || spm.score[id] > score)) best = i, score = spm.score[id];
        }
        if (best < 0) break;
        memmove(from + best + 1, from + best + 2, (size_t)(parts - best - 1) * sizeof *from);
        parts--;
    }
    for (int64_t i = 0; i < parts; i++) {
        const int32_t id = gx_pieces_find(&spm.p, text + from[i], from[i + 1] - from[i]);
        if (id >= 0) ids[count++] = id;
        for (int64_t b = from[i]; id < 0 && b < from[i + 1]; b++) ids[count++] = 3 + (unsigned char)text[b];
    }
    free(from);
    return count;
}

TEST(scores_become_merges_that_give_the_ids_of_sentencepiece)
{
    static const char space[] = "\xE2\x96\x81";
    GxError err = GX_ZERO;
    GxTokenizer t;
    int wrong = 0, looked = 0;
    if (!expect_strings()) return;
    for (int prefix = 0; prefix < 2; prefix++) {
        put_spm(prefix);
        CHECK(into_folder(at("x.gguf"), at("spm"), GX_F32, &err) == GX_OK, "%s", err.message);
        if (!CHECK(gx_tokenizer_open(&t, at("spm"), &err) == GX_OK, "%s", err.message)) return;
        CHECK(t.frame[0].n == 2 && t.frame[0].part[0].id == 1, "texts begin with <s> where nothing is said");
        for (int i = 0; i < STRINGS; i += 1 + 2 * TEST_IS_SANITIZED) {
            const Bytes *s = &expected.string[i];
            char *text = (char *)malloc((size_t)(3 * s->n + 4));
            int32_t *ids = (int32_t *)malloc((size_t)(3 * s->n + 4) * sizeof *ids);
            int64_t n = 0, m;
            if (prefix && s->n) memcpy(text, space, 3), n = 3;
            for (int64_t k = 0; k < s->n; k++) {
                if (s->p[k] == ' ') memcpy(text + n, space, 3), n += 3;
                else text[n++] = s->p[k];
            }
            GxTextPlace place = {"", 1, 0};
            GxError none = GX_ZERO;
            text[n] = 0;
            // strings that are not UTF-8 have their own tests, of the tokenizer's
            const int is_text = s->n < 600 && gx_text_check(&place, text, n, &none) == GX_OK;
            int32_t *theirs = encode(&t, s, GX_SPECIAL_AS_TEXT, &m);
            if (is_text)
                looked++, wrong += spm_encode(text, n, ids) != m || memcmp(ids, theirs, (size_t)m * sizeof *ids);
            free(text), free(ids), free(theirs);
        }
        gx_tokenizer_close(&t);
    }
    CHECK(wrong == 0 && looked > (TEST_IS_SANITIZED ? 5000 : 15000), "%d of %d strings have other ids", wrong, looked);
    drop(at("spm"));
}

TEST(a_tokenizer_of_sentencepiece_comes_back_byte_for_byte)
{
    GxError err = GX_ZERO;
    for (int prefix = 0; prefix < 2; prefix++) {
        put_spm(prefix);
        CHECK(into_folder(at("x.gguf"), at("spm"), GX_F32, &err) == GX_OK, "%s", err.message);
        there_and_back(at("spm"), GX_GGUF_F16, GX_F32); // with scores that are ranks
        CHECK(!strcmp(string_key("tokenizer.ggml.model"), "llama"), "%s", string_key("tokenizer.ggml.model"));
        CHECK(same_files(at("spm"), at("back"), "tokenizer.json"), "another tokenizer.json");
        CHECK(same_files(at("spm"), at("back"), "tokenizer_config.json"), "another tokenizer_config.json");
        CHECK(same_files(at("spm"), at("back"), "generation_config.json"), "another generation_config.json");
    }
    // merges that no scores give
    GxJson *less = json_of(at("spm/tokenizer.json")), *twice = json_of(at("spm/tokenizer.json")),
           *merges = gx_json_get(gx_json_get(twice, "model"), "merges"), *kept = gx_json_new_array();
    const GxJson *all = gx_json_get(gx_json_get(less, "model"), "merges");
    for (int64_t i = 1; i < gx_json_size(all); i++) gx_json_append(kept, gx_json_copy(gx_json_at(all, i)), &err);
    gx_json_append(merges, gx_json_copy(gx_json_at(merges, 0)), &err);
    gx_json_set(gx_json_get(less, "model"), "merges", kept, &err);
    gx_folder_make(at("model"), &err);
    for (int i = 0; i < 2; i++) {
        const GxLlamaConfig c = small("llama", spm.n);
        put_model(at("model"), &c);
        put_json(i ? twice : less, at("model/tokenizer.json"));
        refuse_export(NULL, GX_GGUF_F32, GX_ERR_UNSUPPORTED,
                      i ? "are not next to each other" : "ways, and merges do so in");
    }
    drop(at("spm")), drop(at("back")), drop(at("model"));
}

// Several templates with names: a GGUF file has the default one; where none is that, it is said.
TEST(of_several_chat_templates_the_default_goes_along)
{
    static const char *const configs[] = {"{\"chat_template\": [{\"name\": \"tools\", \"template\": \"T\"}, {\"name\": "
                                          "\"default\", \"template\": \"D\"}]}",
                                          "{\"chat_template\": {\"default\": \"D\"}}",
                                          "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"T\"}]}"};
    if (!gx_regex_is_built() || !gx_unicode_has_nfd()) SKIP("built without PCRE2 or utf8proc");
    GxLlamaConfig c = small("llama", 1300);
    put_model(at("model"), &c);
    put_json(pipeline("llama3"), at("model/tokenizer.json"));
    for (int i = 0; i < 3; i++) {
        GxError err = GX_ZERO;
        GxTokenizerKeys k;
        put(at("model/tokenizer_config.json"), configs[i], (int64_t)strlen(configs[i]));
        CHECK(gx_tokenizer_keys_from_folder(&k, at("model"), 1300, -1, &gx_silent, &err) == GX_OK, "%s", err.message);
        CHECK(i < 2 ? k.chat_template && !strcmp(k.chat_template, "D") && !gx_error_code(&k.no_template)
                    : !k.chat_template && strstr(k.no_template.message, "has 1 template, but none with the name"),
              "%d: %s, %s", i, k.chat_template ? k.chat_template : "none", k.no_template.message);
        gx_tokenizer_keys_close(&k);
    }
    drop(at("model"));
}

TEST(special_tokens_and_the_chat_template_go_along)
{
    static const char template_text[] = "{% for m in messages %}{{ m['content'] }}{% endfor %}\n";
    static const char config[] = "{\"eos_token\": {\"content\": \"<|im_start|>\"}, \"pad_token\": \"<toolbox>\"}";
    GxError err = GX_ZERO;
    GxTokenizer t;
    GxLlamaConfig c = small("llama", 1300);
    if (!gx_regex_is_built() || !gx_unicode_has_nfd()) SKIP("built without PCRE2 or utf8proc");
    put_model(at("model"), &c);
    put_json(pipeline("llama3"), at("model/tokenizer.json"));
    put(at("model/tokenizer_config.json"), config, (int64_t)strlen(config));
    put(at("model/chat_template.jinja"), template_text, (int64_t)strlen(template_text));
    there_and_back(at("model"), GX_GGUF_F32, GX_F32);
    CHECK(same_files(at("model"), at("back"), "chat_template.jinja"), "another template");
    CHECK(gx_tokenizer_open(&t, at("model"), &err) == GX_OK, "%s", err.message);
    GxJson *said = json_of(at("back/generation_config.json")), *names = json_of(at("back/tokenizer_config.json"));
    CHECK(gx_json_int(gx_json_get(said, "bos_token_id")) == 0 &&
              gx_json_int(gx_json_get(said, "eos_token_id")) == gx_tokenizer_find(&t, "<|im_start|>") &&
              gx_json_int(gx_json_get(said, "pad_token_id")) == gx_tokenizer_find(&t, "<toolbox>"),
          "ids in generation_config.json");
    CHECK(!strcmp(gx_json_string(gx_json_get(names, "bos_token")), "<|end|>") &&
              !strcmp(gx_json_string(gx_json_get(names, "eos_token")), "<|im_start|>"),
          "names in tokenizer_config.json");
    gx_json_free(said), gx_json_free(names);
    gx_tokenizer_close(&t);
    drop(at("back")), drop(at("model"));
}

// A tokenizer may name a padding that the model does not treat as such.
TEST(a_models_pad_token_id_comes_back_as_it_was)
{
    static const char config[] = "{\"pad_token\": \"<toolbox>\"}";
    if (!gx_regex_is_built() || !gx_unicode_has_nfd()) SKIP("built without PCRE2 or utf8proc");
    for (int64_t pad = -1; pad < 2; pad++) {
        GxError err = GX_ZERO;
        GxLlamaConfig c = small("llama", 1300);
        GxTokenizer t;
        c.pad_token_id = pad;
        put_model(at("model"), &c);
        put_json(pipeline("llama3"), at("model/tokenizer.json"));
        put(at("model/tokenizer_config.json"), config, (int64_t)strlen(config));
        there_and_back(at("model"), GX_GGUF_F32, GX_F32);
        GxJson *was = json_of(at("model/config.json")), *is = json_of(at("back/config.json"));
        const GxJson *then = gx_json_get(was, "pad_token_id"), *now = gx_json_get(is, "pad_token_id");
        CHECK(gx_json_type(now) == gx_json_type(then) && gx_json_int(now) == gx_json_int(then), "%ld becomes %ld",
              (long)pad, (long)gx_json_int(now));
        gx_json_free(was), gx_json_free(is);
        CHECK(gx_tokenizer_open(&t, at("back"), &err) == GX_OK &&
                  t.role[GX_TOKEN_PAD] == gx_tokenizer_find(&t, "<toolbox>"),
              "the tokenizer's padding; %s", err.message);
        gx_tokenizer_close(&t);
        drop(at("back")), drop(at("model"));
    }
}

// ---- adapters ------------------------------------------------------------------------------------------------------

typedef struct {
    const char *module, *name;
    double scale;
    int is_permuted;
} Factors;

static float *floats_of(const GxSafetensors *s, const char *module, const char *factor, int64_t shape[2])
{
    char name[200];
    GxError err = GX_ZERO;
    snprintf(name, sizeof name, GX_PEFT_PREFIX "%s.%s", module, factor);
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    if (!CHECK(e, "no %s", name)) return NULL;
    float *x = (float *)malloc((size_t)e->elements * sizeof *x);
    CHECK(gx_safetensors_read(s, e, 0, e->elements, x, &err) == GX_OK, "%s", err.message);
    shape[0] = e->shape[0], shape[1] = e->shape[1];
    return x;
}

static float *floats_in(const GxGguf *g, const char *base, const char *factor, const int64_t shape[2])
{
    char name[200];
    GxError err = GX_ZERO;
    snprintf(name, sizeof name, "%s.%s", base, factor);
    const GxGgufTensor *t = gx_gguf_find(g, name);
    if (!CHECK(t && t->ndim == 2 && t->shape[0] == shape[0] && t->shape[1] == shape[1], "%s is not there so", name))
        return NULL;
    float *x = (float *)malloc((size_t)t->elements * sizeof *x);
    CHECK(gx_gguf_read(g, t, 0, t->elements, x, &err) == GX_OK, "%s", err.message);
    return x;
}

// A is as it was, of the embedding turned. What llama.cpp multiplies B A by, alpha / r, and lora_b are together the
// scale and B, each within a rounding; of rows in the order of the matrix's.
static void check_factors(const GxGguf *g, const GxSafetensors *s, const Factors *f, int64_t head, int is_same)
{
    const int is_embedding = strstr(f->module, "embed_tokens") != NULL;
    double alpha = 0;
    GxError err = GX_ZERO;
    int64_t of_a[2] = {0, 0}, of_b[2] = {0, 0};
    gx_gguf_get_double(g, "adapter.lora.alpha", 1, &alpha, &err);
    float *a = floats_of(s, f->module, is_embedding ? "lora_embedding_A" : "lora_A.weight", of_a),
          *b = floats_of(s, f->module, is_embedding ? "lora_embedding_B" : "lora_B.weight", of_b);
    const int64_t r = of_a[0], columns = of_a[1], turned[2] = {columns, r};
    float *x = floats_in(g, f->name, "lora_a", is_embedding ? turned : of_a),
          *y = floats_in(g, f->name, "lora_b", of_b);
    for (int64_t i = 0; a && x && i < r * columns; i++)
        if (!CHECK(x[is_embedding ? i % columns * r + i / columns : i] == a[i], "%s: A at %ld", f->name, (long)i))
            break;
    for (int64_t i = 0; b && y && i < of_b[0] * r; i++) {
        const int64_t row = i / r, in = row % head, from = f->is_permuted ? row - in + in % 2 * head / 2 + in / 2 : row;
        const double want = f->scale * b[from * r + i % r], is = alpha / (double)r * y[i];
        if (!CHECK(fabs(is - want) <= 4 * 0x1p-24 * fabs(want), "%s: B at %ld is %g, not %g", f->name, (long)i, is,
                   want))
            break;
        if (is_same && !CHECK(y[i] == b[from * r + i % r], "%s: B at %ld has other bits", f->name, (long)i)) break;
    }
    free(a), free(b), free(x), free(y);
}

static void check_adapter(const char *adapter, const char *arch, const Factors *f, int n, int folded, int64_t head)
{
    char path[200];
    GxError err = GX_ZERO;
    GxGgufAdapterSaid said;
    GxSafetensors s;
    GxGguf g;
    const char *text = "";
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    unlink(at("a.gguf"));
    CHECK(gx_gguf_export_adapter(adapter, "", at("a.gguf"), GX_GGUF_F32, &said, &gx_silent, &err) == GX_OK, "%s",
          err.message);
    if (!CHECK(gx_safetensors_open(&s, path, &err) == GX_OK && gx_gguf_open(&g, at("a.gguf"), &err) == GX_OK, "%s",
               err.message))
        return;
    CHECK(said.matrices == n && g.tensors == 2 * n && said.folded == folded && !said.as_f16 &&
              !strcmp(said.model, arch),
          "%d matrices, %d tensors, %d folded, a %s", said.matrices, g.tensors, said.folded, said.model);
    for (int i = 0; i < n; i++) check_factors(&g, &s, &f[i], head, !folded);
    CHECK(gx_gguf_get_string(&g, "general.type", 1, &text, &err) == GX_OK && !strcmp(text, "adapter"), "%s", text);
    CHECK(gx_gguf_get_string(&g, "adapter.type", 1, &text, &err) == GX_OK && !strcmp(text, "lora"), "%s", text);
    CHECK(gx_gguf_get_string(&g, "general.architecture", 1, &text, &err) == GX_OK && !strcmp(text, arch), "%s", text);
    gx_safetensors_close(&s), gx_gguf_close(&g);
}

TEST(an_adapter_has_the_rows_of_its_matrices_and_scales_that_one_alpha_cannot_say_in_lora_b)
{
    static const Factors ranks[] = {
        // rsLoRA: alpha / sqrt(r)
        {"model.embed_tokens", "token_embd.weight", 0.7 / 1.7320508075688772, 0},
        {"lm_head", "output.weight", 2, 0},
        {"model.layers.0.self_attn.q_proj", "blk.0.attn_q.weight", 0.5 / 1.4142135623730951, 1},
        {"model.layers.1.self_attn.q_proj", "blk.1.attn_q.weight", 3 / 1.4142135623730951, 1},
        {"model.layers.0.self_attn.k_proj", "blk.0.attn_k.weight", 1, 1},
        {"model.layers.0.self_attn.v_proj", "blk.0.attn_v.weight", 0.5, 0},
        {"model.layers.1.self_attn.v_proj", "blk.1.attn_v.weight", 0.5, 0},
        {"model.layers.0.mlp.down_proj", "blk.0.ffn_down.weight", 2 / 2.6457513110645907, 0},
        {"model.layers.1.mlp.down_proj", "blk.1.ffn_down.weight", 1, 0}};
    static const Factors odd[] = {// rsLoRA, of one rank
                                  {"model.layers.0.self_attn.q_proj", "blk.0.attn_q.weight", 2 / 1.7320508075688772, 1},
                                  {"model.layers.1.self_attn.q_proj", "blk.1.attn_q.weight", 2 / 1.7320508075688772, 1},
                                  {"model.layers.2.self_attn.q_proj", "blk.2.attn_q.weight", 2 / 1.7320508075688772, 1},
                                  {"model.layers.0.self_attn.v_proj", "blk.0.attn_v.weight", 2 / 1.7320508075688772, 0},
                                  {"model.layers.1.self_attn.v_proj", "blk.1.attn_v.weight", 2 / 1.7320508075688772, 0},
                                  {"model.layers.2.self_attn.v_proj", "blk.2.attn_v.weight", 2 / 1.7320508075688772, 0},
                                  {"model.layers.0.mlp.down_proj", "blk.0.ffn_down.weight", 2 / 1.7320508075688772, 0},
                                  {"model.layers.1.mlp.down_proj", "blk.1.ffn_down.weight", 2 / 1.7320508075688772, 0},
                                  {"model.layers.2.mlp.down_proj", "blk.2.ffn_down.weight", 2 / 1.7320508075688772, 0}};
    static const Factors qwen2[] = {{"model.layers.0.self_attn.q_proj", "blk.0.attn_q.weight", 3, 0},
                                    {"model.layers.1.self_attn.q_proj", "blk.1.attn_q.weight", 3, 0},
                                    {"model.layers.0.self_attn.k_proj", "blk.0.attn_k.weight", 3, 0},
                                    {"model.layers.1.self_attn.k_proj", "blk.1.attn_k.weight", 3, 0},
                                    {"model.layers.0.self_attn.v_proj", "blk.0.attn_v.weight", 3, 0},
                                    {"model.layers.1.self_attn.v_proj", "blk.1.attn_v.weight", 3, 0},
                                    {"model.layers.1.mlp.up_proj", "blk.1.ffn_up.weight", 3, 0}};
    check_adapter("data/ref/lora_ranks", "llama", ranks, 9, 8, 8);
    check_adapter("data/ref/lora_odd", "llama", odd, 9, 0, 14);
    check_adapter("data/ref/lora_qwen2", "qwen2", qwen2, 7, 0, 1);
}

TEST(factors_are_in_the_type_that_is_asked_for)
{
    static const int types[] = {GX_GGUF_F16, GX_GGUF_BF16, GX_GGUF_Q8_0};
    GxError err = GX_ZERO;
    GxGgufAdapterSaid said;
    GxGguf g;
    for (int k = 0; k < 3; k++) {
        CHECK(gx_gguf_export_adapter("data/ref/lora_gqa", "", at("a.gguf"), types[k], &said, &gx_silent, &err) == GX_OK,
              "%s", err.message);
        if (!CHECK(gx_gguf_open(&g, at("a.gguf"), &err) == GX_OK, "%s", err.message)) return;
        int as_f16 = 0;
        for (int i = 0; i < g.tensors; i++) {
            const GxGgufTensor *t = &g.tensor[i];
            const int fits = types[k] != GX_GGUF_Q8_0 || t->shape[1] % 32 == 0;
            CHECK(t->type == (fits ? types[k] : GX_GGUF_F16), "%s has the type %d", t->name, t->type);
            as_f16 += !fits;
        }
        CHECK(g.tensors == 28 && said.as_f16 == as_f16, "%d tensors, %d as f16, not %d", g.tensors, said.as_f16,
              as_f16);
        gx_gguf_close(&g);
    }
}

// ---- the program ---------------------------------------------------------------------------------------------------

static GxStatus call(GxError *err, const char *a, const char *b, const char *c, const char *d, const char *e,
                     const char *f)
{
    const char *const words[] = {"convert_gguf", a, b, c, d, e, f};
    char *argv[8];
    int argc = 0;
    for (int i = 0; i < 7 && words[i]; i++) argv[argc++] = strdup(words[i]);
    const GxStatus status = convert(argc, argv, err);
    for (int i = 0; i < argc; i++) free(argv[i]);
    return status;
}

TEST(the_program_converts_and_leaves_alone_what_is_there)
{
    GxError err = GX_ZERO;
    CHECK(call(&err, "--model", "data/ref/llama_one", "--output_file", at("p.gguf"), "--outtype", "f32") == GX_OK, "%s",
          err.message);
    CHECK(call(&err, "--gguf", at("p.gguf"), "--output_dir", at("p"), "--save_dtype", "fp32") == GX_OK, "%s",
          err.message);
    CHECK(same_files("data/ref/llama_one", at("p"), "model.safetensors"), "other weights");
    CHECK(gx_folder_verify(at("p"), 1, &err) == GX_OK, "%s", err.message);
    refused(&err, call(&err, "--model", "data/ref/llama_one", "--output_file", at("p.gguf"), NULL, NULL),
            GX_ERR_ARGUMENT, "p.gguf", "already exists");
    refused(&err, call(&err, "--gguf", at("p.gguf"), "--output_dir", at("p"), NULL, NULL), GX_ERR_ARGUMENT, "/p",
            "is not empty");
    GxClaim claim;
    CHECK(gx_claim_file(&claim, at("claimed"), &err) == GX_OK, "%s", err.message);
    refused(&err, call(&err, "--model", "data/ref/llama_one", "--output_file", at("claimed"), NULL, NULL),
            GX_ERR_ARGUMENT, "claimed", "is being written by process");
    refused(&err, call(&err, "--gguf", at("p.gguf"), "--output_dir", at("claimed"), NULL, NULL), GX_ERR_ARGUMENT,
            "claimed", "is being written by process");
    gx_claim_end(&claim);
    CHECK(symlink("nowhere", at("claimed")) == 0, "no link");
    refused(&err, call(&err, "--model", "data/ref/llama_one", "--output_file", at("claimed"), NULL, NULL), GX_ERR_IO,
            "claimed", "is a broken link");
    unlink(at("claimed"));
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    refused(&err, call(&err, "--gguf", at("p.gguf"), "--output_dir", at("q"), NULL, NULL), GX_ERR_UNSUPPORTED,
            "one of 2 processes", "without the launcher");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    refused(&err, call(&err, "--gguf", at("p.gguf"), "--model", "x", NULL, NULL), GX_ERR_ARGUMENT, "--gguf",
            "expected one of");
    refused(&err, call(&err, NULL, NULL, NULL, NULL, NULL, NULL), GX_ERR_ARGUMENT, "--gguf", "expected one of");
    refused(&err, call(&err, "--gguf", at("p.gguf"), NULL, NULL, NULL, NULL), GX_ERR_ARGUMENT, "--output_dir",
            "missing");
    refused(&err, call(&err, "--model", "x", NULL, NULL, NULL, NULL), GX_ERR_ARGUMENT, "--output_file", "missing");
    refused(&err, call(&err, "--model", "x", "--output_dir", "y", NULL, NULL), GX_ERR_ARGUMENT, "--output_dir",
            "is an option of --gguf");
    refused(&err, call(&err, "--model", "x", "--outtype", "q4_0", NULL, NULL), GX_ERR_ARGUMENT, "outtype", "q4_0");
    refused(&err, call(&err, "--model", "data/ref/prompt_llama", "--output_file", at("a.gguf"), NULL, NULL),
            GX_ERR_ARGUMENT, "prompt_llama", "./merge_adapter --adapter data/ref/prompt_llama");
    refused(&err, call(&err, "--gguf", at("none.gguf"), "--output_dir", at("q"), NULL, NULL), GX_ERR_IO, "none.gguf",
            "cannot open");
    refused(&err, call(&err, "--gguf", at("p.gguf"), "--adapter", "x", NULL, NULL), GX_ERR_ARGUMENT, "--adapter",
            "expected one of");
    CHECK(!gx_path_is_folder(at("q")) && !gx_path_is_folder(at("q.gx-new")), "a folder is there after an error");
    // nor those that it would lie in
    gx_file_write(at("no.gguf"), "GGUF", 4, &err);
    refused(&err, call(&err, "--gguf", at("none.gguf"), "--output_dir", at("deep/er/q"), NULL, NULL), GX_ERR_IO,
            "none.gguf", "cannot open");
    refused(&err, call(&err, "--gguf", at("no.gguf"), "--output_dir", at("deep/er/q"), NULL, NULL), GX_ERR_FORMAT,
            "no.gguf", "");
    CHECK(!gx_path_is_folder(at("deep")), "a parent folder was made before the file was read");
    CHECK(call(&err, "--gguf", at("p.gguf"), "--output_dir", at("deep/er/q"), NULL, NULL) == GX_OK, "%s", err.message);
    drop(at("deep"));
    drop(at("p"));
}

TEST(adapters_that_a_file_cannot_say_are_refused)
{
    static const struct {
        const char *adapter, *names, *says;
    } cases[] = {
        {"data/ref/lora_head_tied", "lm_head.weight", "ties its head to the embedding"},
        {"data/ref/lora_embed_tied", "model.embed_tokens.weight", "ties its head to the embedding"},
        {"data/ref/lora_head_both", "data/ref/lora_head_both", "ties its head to the embedding"},
        {"data/ref/lora_whole_head", "mlp.gate_proj.weight", "was trained whole (modules_to_save)"},
        {"data/ref/lora_whole_embed", "model.embed_tokens.weight", "was trained whole (modules_to_save)"},
        {"data/ref/prompt_llama", "prompts (ADAPTION_PROMPT)", "in GGUF files only LoRA adapters are supported"},
    };
    GxError err = GX_ZERO;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(&err,
                call(&err, "--adapter", cases[i].adapter, "--output_file", at("none_of_adapter.gguf"), NULL, NULL),
                GX_ERR_UNSUPPORTED, cases[i].names, cases[i].says);
        CHECK(!gx_path_is_file(at("none_of_adapter.gguf")), "%s: a file is there", cases[i].adapter);
    }
    static const char classes[] = "{\"peft_type\": \"LORA\", \"task_type\": \"SEQ_CLS\"}",
                      baseless[] = "{\"peft_type\": \"LORA\", \"r\": 2}";
    gx_folder_make(at("classes"), &err);
    put(at("classes/adapter_config.json"), classes, (int64_t)strlen(classes));
    refused(&err, call(&err, "--adapter", at("classes"), "--output_file", at("none_of_adapter.gguf"), NULL, NULL),
            GX_ERR_UNSUPPORTED, "classification", "task_type SEQ_CLS");
    put(at("classes/adapter_config.json"), baseless, (int64_t)strlen(baseless));
    refused(&err, call(&err, "--adapter", at("classes"), "--output_file", at("none_of_adapter.gguf"), NULL, NULL),
            GX_ERR_ARGUMENT, "classes", "name that model with --model");
    drop(at("classes"));
    refused(
        &err,
        call(&err, "--adapter", "data/ref/lora_head_score", "--output_file", at("none_of_adapter.gguf"), NULL, NULL),
        GX_ERR_ARGUMENT, "score", "matches no linear");
    refused(&err,
            call(&err, "--adapter", "data/ref/llama_gqa", "--output_file", at("none_of_adapter.gguf"), NULL, NULL),
            GX_ERR_IO, "data/ref/llama_gqa", "adapter_config.json");
    refused(&err,
            call(&err, "--adapter", "data/ref/lora_head_bert", "--output_file", at("none_of_adapter.gguf"), NULL, NULL),
            GX_ERR_ARGUMENT, "bert_mlm/config.json", "model_type is \"bert\"");
    // of another model
    refused(&err,
            call(&err, "--adapter", "data/ref/lora_gqa", "--model", "data/ref/llama_odd", "--output_file",
                 at("none_of_adapter.gguf")),
            GX_ERR_FORMAT, "self_attn", "data/ref/lora_gqa");
    unlink(at("a.gguf"));
    CHECK(call(&err, "--adapter", "data/ref/lora_gqa", "--model", "data/ref/llama_gqa", "--output_file",
               at("a.gguf")) == GX_OK,
          "%s", err.message);
    GxGguf g;
    CHECK(gx_gguf_open(&g, at("a.gguf"), &err) == GX_OK && g.tensor[0].type == GX_GGUF_F32, "%s", err.message);
    gx_gguf_close(&g);
    refused(&err, call(&err, "--adapter", "data/ref/lora_gqa", "--output_file", at("a.gguf"), NULL, NULL),
            GX_ERR_ARGUMENT, "a.gguf", "already exists");
    refused(&err, call(&err, "--adapter", "data/ref/lora_gqa", NULL, NULL, NULL, NULL), GX_ERR_ARGUMENT,
            "--output_file", "missing");
    refused(&err, call(&err, "--adapter", "data/ref/lora_gqa", "--output_dir", "x", NULL, NULL), GX_ERR_ARGUMENT,
            "--output_dir", "is an option of --gguf");
    refused(&err, call(&err, "--gguf", at("a.gguf"), "--output_dir", at("q"), NULL, NULL), GX_ERR_UNSUPPORTED, "a.gguf",
            "of the type \"adapter\"");
}

int main(int argc, char **argv)
{
    const int failed = test_in_folder(argc, argv, "test_convert_gguf");
    for (int64_t i = 0; i < SPM_MOST; i++) free(spm.token[i]);
    gx_pieces_close(&spm.p);
    return failed;
}
