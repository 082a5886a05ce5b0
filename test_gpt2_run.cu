// test_gpt2_run.cu: GPT-2 as a program (train_gpt2): ranks, stages, shards and a resumed run change nothing; files of
// which matrices are transposed and stacked are read and written in every way; adapters, config.json, initial weights,
// and what is refused, and how.
#define GX_NO_MAIN
#include "train_gpt2.cu"
#include "test/task_run.h"
#include <math.h>

// ---- files ---------------------------------------------------------------------------------------------------------

static void write_files(void)
{
    static char text[1 << 15];
    size_t at = 0, labelled;
    static char table[1 << 13] = "text\tlabel\n";
    for (int i = 0; at < sizeof text - 100; i++) {
        const GxRandom4 r = gx_philox(7, (uint64_t)i, 0, 80);
        for (int k = 0; k < 2 + (int)(r.w[0] % 5); k++) text[at++] = (char)('a' + (r.w[1] >> (4 * k)) % 6);
        text[at++] = i % 7 ? ' ' : '\n';
    }
    write_file("train.txt", text);
    labelled = strlen(table);
    for (int i = 0; i < 40; i++) {
        const GxRandom4 r = gx_philox(8, (uint64_t)i, 0, 80);
        for (int k = 0; k < 1 + (int)(r.w[0] % 7); k++) table[labelled++] = (char)('a' + (r.w[1] >> (4 * k)) % 6);
        labelled += (size_t)snprintf(table + labelled, sizeof table - labelled, "\t%s\n", r.w[2] % 2 ? "yes" : "no");
    }
    write_file("labels.tsv", table);
}

static const char sizes[] = "--n_embd 12 --n_layer 2 --n_head 4 --n_inner 20 --n_positions 24";

// A folder has its own sizes.
static int run(const char *name, const char *more)
{
    char line[3000];
    snprintf(line, sizeof line,
             "--train_data %s/train.txt --validation_fraction 0 --seq_len 16 --micro_batch_size 4 --eval_steps 0 "
             "--sample_tokens 0 --max_steps 4 --learning_rate 0.01 --output_dir %s/%s %s %s",
             folder, folder, name, strstr(more, "--model ") || strstr(more, "--resume ") ? "" : sizes, more);
    return run_line(&gx_gpt2, &gx_causal_lm, line);
}

static int run_labels(const char *name, const char *more)
{
    char line[3000];
    snprintf(line, sizeof line,
             "--train_data %s/labels.tsv --validation_fraction 0 --micro_batch_size 4 --eval_steps 0 --max_steps 3 "
             "--learning_rate 0.01 --output_dir %s/%s %s %s",
             folder, folder, name, strstr(more, "--model ") ? "" : sizes, more);
    return run_line(&gx_gpt2, &gx_classification, line);
}

static const char *begun(void) // a checkpoint of four steps
{
    if (!is_there(path_of("begun"))) CHECK(run("begun", "") == 0, "%s", said.log);
    return path_of("begun/checkpoint-4");
}

static void expect_error(const char *more, const char *words)
{
    const int status = run("refused", more);
    CHECK(status != 0 && strstr(said.log, words), "%s: %d \"%s\"", more, status, said.log);
}

static void expect_same(const char *a, const char *b)
{
    int64_t n, m;
    char *x = read_bytes(path_of(a), &n), *y = read_bytes(path_of(b), &m);
    CHECK(n > 0 && n == m && !memcmp(x, y, (size_t)n), "%s and %s: %ld and %ld bytes, or others", a, b, (long)n,
          (long)m);
    free(x), free(y);
}

// ---- runs ----------------------------------------------------------------------------------------------------------

// With all of its dropout, which is on by default.
TEST(ranks_modes_stages_sequences_and_shards_have_the_losses_of_one_rank)
{
    static const char *const ways[] = {"--mode tp",
                                       "--mode galaxy",
                                       "--mode sp --zero 0",
                                       "--mode galaxy2",
                                       "--zero 3",
                                       "--zero 2",
                                       "--pp 2",
                                       "--cp 2",
                                       "--mode tp --cp 2 --tp 2",
                                       "--cp 2 --cp_method ring --cp_zigzags 2",
                                       "--mode tp --pp 2"};
    double one[5];
    CHECK(run("one", "") == 0, "%s", said.log);
    memcpy(one, told.window, sizeof one);
    CHECK(one[4] < one[1], "loss %g, then %g", one[1], one[4]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char more[200];
        const int four = strstr(ways[i], "--tp 2") || strstr(ways[i], "tp --pp");
        snprintf(more, sizeof more, "%s --ranks %d --global_batch_size 4 --overwrite_output_dir true%s", ways[i],
                 four ? 4 : 2, !strncmp(ways[i], "--zero", 6) ? " --micro_batch_size 2" : "");
        CHECK(run("several", more) == 0, "%s: %s", ways[i], said.log);
        for (int s = 1; s <= 4; s++) test_close_number(ways[i], told.window[s], one[s], 1e-5);
    }
}

TEST(what_is_computed_again_and_a_resumed_run_have_the_same_bits)
{
    char more[300];
    CHECK(run("whole", "--max_steps 6 --save_steps 3") == 0, "%s", said.log);
    snprintf(more, sizeof more, "--max_steps 6 --recompute layer --resume %s/whole/checkpoint-3", folder);
    CHECK(run("resumed", more) == 0, "%s", said.log);
    expect_same("whole/checkpoint-6/model.safetensors", "resumed/checkpoint-6/model.safetensors");
    expect_same("whole/checkpoint-6/optimizer.safetensors", "resumed/checkpoint-6/optimizer.safetensors");
}

// A plan finds its sizes, and what was measured is of these alone.
TEST(a_plan_is_of_its_sizes)
{
    char more[300];
    CHECK(run("planned", "--ranks 2 --plan auto --global_batch_size 4 --micro_batch_size 2") == 0, "%s", said.log);
    const char *machines = path_of("planned/machines.json");
    CHECK(file_has(machines, "\"n_embd\": 12") && file_has(machines, "\"n_head\": 4") &&
              file_has(machines, "\"n_inner\": 20"),
          "%s", machines);
    snprintf(more, sizeof more,
             "--ranks 2 --plan auto --machines %s --n_inner 24 --global_batch_size 4 --micro_batch_size 2", machines);
    expect_error(more, "n_inner");
}

// A text's positions count from its begin, whatever is before it in its sample.
TEST(labels_of_texts_that_share_a_column_are_as_of_texts_alone)
{
    double packed;
    char more[300];
    snprintf(more, sizeof more, "--validation_data %s/labels.tsv --seq_len 24", folder);
    CHECK(run_labels("packed", more) == 0, "%s", said.log);
    packed = metric("loss");
    snprintf(more, sizeof more,
             "--validation_data %s/labels.tsv --seq_len 24 --pack_texts false --max_steps 1 "
             "--learning_rate 0 --model %s/packed/checkpoint-3",
             folder, folder);
    CHECK(run_labels("alone", more) == 0 && packed > 0, "%s", said.log);
    test_close_number("loss", metric("loss"), packed, 1e-5);
    const char *config = path_of("packed/checkpoint-3/config.json");
    CHECK(file_has(config, "GPT2ForSequenceClassification") && file_has(config, "\"yes\""), "%s", config);
}

// ---- folders -------------------------------------------------------------------------------------------------------

// Split by rows, by columns, by stages and by shards, and in several files: what is read is written again.
TEST(a_folder_is_saved_in_every_way_as_it_was_read)
{
    static const char *const ways[] = {"",
                                       "--ranks 2 --mode tp",
                                       "--ranks 3 --mode galaxy --tp_num_attention_heads_list 1,2,1",
                                       "--ranks 2 --pp 2 --max_shard_size 4KB",
                                       "--ranks 2 --zero 3",
                                       "--ranks 4 --mode tp --tp 2 --zero 3"};
    char more[400], model[200];
    snprintf(model, sizeof model, "%s", begun());
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const int is_cut = strstr(ways[i], "max_shard_size") != NULL;
        snprintf(more, sizeof more,
                 "--model %s --learning_rate 0 --weight_decay 0 --max_steps 1 --global_batch_size 4 "
                 "--overwrite_output_dir true %s%s",
                 model, ways[i], strstr(ways[i], "zero") ? " --micro_batch_size 2" : "");
        CHECK(run(is_cut ? "cut" : "again", more) == 0, "%s: %s", ways[i], said.log);
        if (is_cut) {
            CHECK(is_there(path_of("cut/checkpoint-1/model.safetensors.index.json")), "it is one file");
            snprintf(more, sizeof more, "--model %s/cut/checkpoint-1 --learning_rate 0 --weight_decay 0 --max_steps 1",
                     folder);
            CHECK(run("of_cut", more) == 0, "%s", said.log);
        }
        expect_same("begun/checkpoint-4/model.safetensors",
                    is_cut ? "of_cut/checkpoint-1/model.safetensors" : "again/checkpoint-1/model.safetensors");
    }
}

// Writes folder/changed: gpt2_odd's, each tensor as `change` has it (0: without it), and the tensors `more`, of zeros.
typedef int Change(GxSafetensorsEntry *e);
static void write_changed(Change *change, const char *const *more, const char *config)
{
    enum { MOST = 60 };
    static GxSafetensorsEntry entry[MOST];
    const GxSafetensorsEntry *from[MOST];
    float values[4096];
    GxSafetensors s;
    GxSafetensorsWriter w;
    GxError err = GX_ZERO;
    int n = 0;
    CHECK(gx_safetensors_open(&s, "data/ref/gpt2_odd/model.safetensors", &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < s.n; i++) {
        entry[n] = s.entry[i], from[n] = &s.entry[i];
        n += !change || change(&entry[n]);
    }
    for (int i = 0; more && more[i]; i++, n++) {
        memset(&entry[n], 0, sizeof entry[n]), from[n] = NULL;
        snprintf(entry[n].name, sizeof entry[n].name, "%s", more[i]);
        entry[n].dtype = GX_F32, entry[n].ndim = 2, entry[n].shape[0] = 37, entry[n].shape[1] = 21;
    }
    mkdir(path_of("changed"), 0777);
    CHECK(gx_safetensors_create(&w, path_of("changed/model.safetensors"), entry, n, NULL, 0, &err) == GX_OK, "%s",
          err.message);
    for (int i = 0; i < n; i++) {
        int64_t elements = 1;
        for (int d = 0; d < entry[i].ndim; d++) elements *= entry[i].shape[d];
        memset(values, 0, sizeof values);
        if (from[i]) gx_safetensors_read(&s, from[i], 0, from[i]->elements, values, &err);
        gx_safetensors_write_floats(&w, entry[i].name, 0, values, elements, &err);
    }
    CHECK(gx_safetensors_finish(&w, &err) == GX_OK, "%s", err.message);
    gx_safetensors_close(&s);
    char *own = config ? NULL : read_file("data/ref/gpt2_odd/config.json");
    write_file("changed/config.json", config ? config : own);
    free(own);
}

static int without_prefix(GxSafetensorsEntry *e)
{
    memmove(e->name, e->name + strlen("transformer."), strlen(e->name + strlen("transformer.")) + 1);
    return 1;
}
static int turned(GxSafetensorsEntry *e)
{
    if (strstr(e->name, "h.1.attn.c_attn.weight")) e->shape[0] = 63, e->shape[1] = 21;
    return 1;
}
static int without_a_norm(GxSafetensorsEntry *e) { return !strstr(e->name, "ln_f.bias"); }
static int cut_apart(GxSafetensorsEntry *e)
{
    if (!strcmp(e->name, "transformer.h.0.attn.c_attn.bias"))
        snprintf(e->name, sizeof e->name, "transformer.h.0.attn.c_attn.q.bias");
    return 1;
}

static void write_words(void)
{
    if (!is_there(path_of("tokens"))) write_vocab("a\nb\nc\nd\ne\nf\n");
}

static int run_changed(const char *name, const char *model)
{
    char more[500];
    write_words();
    snprintf(more, sizeof more, "--model %s --tokenizer %s/tokens --learning_rate 0 --weight_decay 0 --max_steps 1",
             model, folder);
    return run(name, more);
}

static int tensors_are_same(const GxSafetensors *x, const GxSafetensorsEntry *a, const GxSafetensors *y,
                            const GxSafetensorsEntry *b)
{
    static float values[2][4096];
    GxError err = GX_ZERO;
    if (a->elements != b->elements || a->elements > 4096) return 0;
    gx_safetensors_read(x, a, 0, a->elements, values[0], &err),
        gx_safetensors_read(y, b, 0, b->elements, values[1], &err);
    return !gx_error_code(&err) && !memcmp(values[0], values[1], (size_t)a->elements * sizeof(float));
}

// The tensors of two folders, whatever their order and what else they have.
static void expect_same_tensors(const char *a, const char *b)
{
    GxSafetensors x, y;
    GxError err = GX_ZERO;
    CHECK(gx_safetensors_open(&x, a, &err) == GX_OK && gx_safetensors_open(&y, b, &err) == GX_OK, "%s", err.message);
    CHECK(x.n == y.n && x.n > 0, "%d and %d tensors", x.n, y.n);
    for (int i = 0; i < x.n; i++) {
        const GxSafetensorsEntry *e = gx_safetensors_find(&y, x.entry[i].name);
        int same = 0;
        if (CHECK(e && e->ndim == x.entry[i].ndim && e->shape[0] == x.entry[i].shape[0], "%s", x.entry[i].name))
            same = tensors_are_same(&x, &x.entry[i], &y, e);
        CHECK(same, "%s: other values", x.entry[i].name);
    }
    gx_safetensors_close(&x), gx_safetensors_close(&y);
}

// As transformers saves it, and as the first GPT-2 is found: of a GPT2Model, with its masks.
TEST(a_folder_of_transformers_is_saved_as_it_was_read)
{
    static const char *const masks[] = {"h.0.attn.bias", "h.1.attn.bias", "h.0.attn.masked_bias", NULL};
    CHECK(run_changed("theirs", "data/ref/gpt2_odd") == 0, "%s", said.log);
    expect_same_tensors("data/ref/gpt2_odd/model.safetensors", path_of("theirs/checkpoint-1/model.safetensors"));
    write_changed(without_prefix, masks, NULL);
    CHECK(run_changed("bare", path_of("changed")) == 0, "%s", said.log);
    expect_same("theirs/checkpoint-1/model.safetensors", "bare/checkpoint-1/model.safetensors");
    CHECK(run_changed("untied", "data/ref/gpt2_inverse") == 0, "%s", said.log);
    expect_same_tensors("data/ref/gpt2_inverse/model.safetensors", path_of("untied/checkpoint-1/model.safetensors"));
}

TEST(weights_that_do_not_fit_are_refused_by_their_names_in_the_file)
{
    static const char *const head[] = {"lm_head.weight", NULL}, *const other[] = {"transformer.h.2.ln_1.weight", NULL};
    const struct {
        Change *change;
        const char *const *more;
        const char *words;
    } cases[] = {
        {turned, NULL, "transformer.h.1.attn.c_attn.weight has the shape [63,21], but this model's has [21,63]"},
        {without_a_norm, NULL, "has no tensor transformer.ln_f.bias"},
        {cut_apart, NULL, "holds 1 tensor that this model does not have: transformer.h.0.attn.c_attn.q.bias"},
        {NULL, head, "config.json ties lm_head.weight to the embedding, but the file has other values for it"},
        {NULL, other, "transformer.h.2.ln_1.weight"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_changed(cases[i].change, cases[i].more, NULL);
        CHECK(run_changed("refused", path_of("changed")) != 0 && strstr(said.log, cases[i].words), "%s: \"%s\"",
              cases[i].words, said.log);
    }
}

// ---- adapters ------------------------------------------------------------------------------------------------------

static void expect_tensor(const GxSafetensors *s, const char *name, int64_t rows, int64_t cols)
{
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    CHECK(e && e->shape[0] == rows && (!cols || (e->ndim == 2 && e->shape[1] == cols)), "%s: [%ld,%ld]", name,
          e ? (long)e->shape[0] : 0, e ? (long)e->shape[1] : 0);
}

// c_attn has one A and one B; a module that is trained whole is in the file as in the model's.
TEST(an_adapter_has_pefts_names_and_shapes_in_every_mode)
{
    static const char *const ways[] = {"", "--ranks 2 --mode tp", "--ranks 2 --mode sp", "--ranks 2 --zero 3"};
#define OF "base_model.model.transformer.h."
    GxSafetensors s;
    GxError err = GX_ZERO;
    char more[500], model[200], name[40], path[100];
    snprintf(model, sizeof model, "%s", begun());
    double one[5] = {0};
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "lora%d", i);
        snprintf(more, sizeof more,
                 "--model %s --tuning lora --lora_dim 3 --target_modules c_attn,mlp.c_proj "
                 "--trainable_modules h.1.mlp.c_fc --global_batch_size 4 %s%s",
                 model, ways[i], i == 3 ? " --micro_batch_size 2" : "");
        CHECK(run(name, more) == 0, "%s: %s", ways[i], said.log);
        if (i == 0) memcpy(one, told.window, sizeof one);
        for (int k = 1; k <= 4; k++) test_close_number(ways[i], told.window[k], one[k], 1e-5);
        snprintf(path, sizeof path, "lora%d/checkpoint-4/adapter_model.safetensors", i);
        CHECK(gx_safetensors_open(&s, path_of(path), &err) == GX_OK, "%s", err.message);
        CHECK(s.n == 10, "%d tensors", s.n);
        expect_tensor(&s, OF "0.attn.c_attn.lora_A.weight", 3, 12);
        expect_tensor(&s, OF "0.attn.c_attn.lora_B.weight", 36, 3);
        expect_tensor(&s, OF "1.mlp.c_proj.lora_B.weight", 12, 3);
        expect_tensor(&s, OF "1.mlp.c_fc.weight", 12, 20);
        gx_safetensors_close(&s);
    }
    const char *config = path_of("lora0/checkpoint-4/adapter_config.json");
    CHECK(file_has(config, "\"fan_in_fan_out\": true") && file_has(config, "\"c_attn\", \"mlp.c_proj\""), "%s", config);
    snprintf(more, sizeof more,
             "--max_steps 5 --resume %s/lora0/checkpoint-4 --ranks 2 --mode tp --global_batch_size 4", folder);
    CHECK(run("lora_on", more) == 0 && told.window[5] > 0, "%s", said.log);
}

// Of a quantized base the matrices are quantized as they lie here, whoever has which part of them.
TEST(a_quantized_base_is_the_same_on_all_ranks)
{
    double one[5] = {0};
    char more[400], model[200];
    snprintf(model, sizeof model, "%s", begun());
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more, "--model %s --tuning lora --quantize nf4 --overwrite_output_dir true%s", model,
                 i == 1   ? " --ranks 2 --mode tp"
                 : i == 2 ? " --ranks 2 --pp 2"
                          : "");
        CHECK(run("quantized", more) == 0, "%s", said.log);
        if (i == 0) memcpy(one, told.window, sizeof one);
        for (int k = 1; k <= 4; k++) test_close_number("loss", told.window[k], one[k], 1e-5);
    }
}

// ---- initial weights -----------------------------------------------------------------------------------------------

// As transformers draws them (GPT2PreTrainedModel._init_weights). The bound is 5 standard errors of a standard
// deviation.
TEST(new_weights_have_the_sizes_that_transformers_gives_them)
{
    static const struct {
        const char *name;
        double std;
    } cases[] = {{"transformer.wte.weight", 0.5},
                 {"transformer.wpe.weight", 0.5},
                 {"transformer.h.0.attn.c_attn.weight", 0.5},
                 {"transformer.h.1.attn.c_proj.weight", 0.25},
                 {"transformer.h.0.mlp.c_fc.weight", 0.5},
                 {"transformer.h.0.mlp.c_proj.weight", 0.25},
                 {"transformer.h.0.attn.c_attn.bias", 0}};
    GxSafetensors s;
    GxError err = GX_ZERO;
    CHECK(run("new", "--initializer_range 0.5 --learning_rate 0 --max_steps 1") == 0, "%s", said.log);
    CHECK(gx_safetensors_open(&s, path_of("new/checkpoint-1/model.safetensors"), &err) == GX_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static float x[4096];
        const GxSafetensorsEntry *e = gx_safetensors_find(&s, cases[i].name);
        double sum = 0;
        if (!CHECK(e, "no %s", cases[i].name)) continue;
        gx_safetensors_read(&s, e, 0, e->elements, x, &err);
        for (int64_t k = 0; k < e->elements; k++) sum += (double)x[k] * x[k];
        const double std = sqrt(sum / (double)e->elements);
        CHECK(fabs(std - cases[i].std) <= 5 * cases[i].std / sqrt(2. * (double)e->elements), "%s: %g, not %g",
              cases[i].name, std, cases[i].std);
    }
    gx_safetensors_close(&s);
}

// ---- config.json ---------------------------------------------------------------------------------------------------

static GxGpt2Config expect_config(const char *json, const char *words)
{
    GxGpt2Config c;
    GxError err = GX_ZERO;
    write_file("config.json", json);
    const GxStatus status = gx_gpt2_config_read(&c, path_of("config.json"), &gx_silent, &err);
    CHECK(words ? status != GX_OK && strstr(err.message, words) : status == GX_OK, "%s: \"%s\"", json, err.message);
    return c;
}

TEST(a_config_json_that_asks_for_something_else_is_refused_by_file_and_key)
{
#define GPT2 "{\"model_type\": \"gpt2\""
    const GxGpt2Config usual = expect_config(GPT2 "}", NULL),
                       other = expect_config(GPT2 ", \"hidden_size\": 24, \"n_head\": 3, \"n_inner\": null, "
                                                  "\"pad_token_id\": null, \"n_embd\": 24}",
                                             NULL);
    CHECK(usual.vocab_size == 50257 && usual.n_inner == 4 * 768 && usual.tie_word_embeddings &&
              usual.n_positions == 1024,
          "the defaults");
    CHECK(other.n_embd == 24 && other.n_inner == 96 && other.pad_token_id == -1, "other names");
    expect_config(GPT2 ", \"add_cross_attention\": true}", "add_cross_attention is true");
    expect_config(GPT2 ", \"activation_function\": \"silu\"}", "activation_function is \"silu\"");
    expect_config(GPT2 ", \"n_head\": 7}", "n_embd (768) is not a multiple of n_head (7)");
    expect_config(GPT2 ", \"n_layer\": 0}", "n_layer is 0");
    expect_config(GPT2 ", \"n_layer\": null}", "n_layer is null");
    expect_config(GPT2 ", \"n_inner\": 0}", "n_inner is 0");
    expect_config(GPT2 ", \"n_embd\": 24, \"hidden_size\": 36}", "n_embd and hidden_size are two names of one number");
    expect_config(GPT2 ", \"resid_pdrop\": 1.0}", "resid_pdrop is 1");
    expect_config(GPT2 ", \"layer_norm_epsilon\": 0}", "layer_norm_epsilon is 0");
    expect_config(GPT2 ", \"pad_token_id\": 50257}", "pad_token_id is 50257");
    expect_config(GPT2 ", \"attention_head_type\": \"multiquery\"}", "heads would share keys and values");
    expect_config(GPT2 ", \"architectures\": [\"GPT2DoubleHeadsModel\"]}", "GPT2DoubleHeadsModel");
    expect_config("{\"model_type\": \"gpt_neo\"}", "model_type is \"gpt_neo\"");
    expect_config("{\"model_type\": \"bart\"}", "train_bart trains this one");
}

TEST(a_config_json_says_every_field_and_reads_back_the_same)
{
    const GxGpt2Config c = {61, 16, 36, 2, 6, 40, "relu", 0.1, 0.3, 0.2, 1e-6, 0.3, 0, 1, 0, 7};
    GxGpt2Config back;
    GxError err = GX_ZERO;
    CHECK(gx_gpt2_config_write(&c, NULL, path_of("config.json"), &err) == GX_OK, "%s", err.message);
    CHECK(gx_gpt2_config_read(&back, path_of("config.json"), &gx_silent, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < gx_gpt2.n_fields; i++)
        CHECK(gx_field_same(&gx_gpt2.fields[i], &c, &back), "%s", gx_gpt2.fields[i].name);
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(what_a_gpt2_is_not_is_refused_by_name)
{
    char more[500], model[200];
    snprintf(model, sizeof model, "%s", begun());
    expect_error("--seq_len 25", "longer than the 24 positions that the model has for texts (n_positions)");
    expect_error("--n_head 5", "n_embd (12) is not a multiple of n_head (5)");
    expect_error("--task masked_lm", "masked_lm");
    expect_error("--model data/ref/llama_odd", "train_llama trains this one");
    const struct {
        const char *flags, *words;
    } cases[] = {
        {"--tuning prompt", "prompts in the attention of a GPT-2 are not supported"},
        {"--tuning lora --target_modules c_attn.q", "names in gpt2 are like transformer.h.0.attn.c_attn.weight"},
        {"--tuning lora --target_modules c_attn --trainable_modules attn", "is to have LoRA and to be trained whole"},
        {"--n_layer 3", "n_layer"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(more, sizeof more, "--model %s %s", model, cases[i].flags);
        expect_error(more, cases[i].words);
    }
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_files); }
