// test_t5_run.cu: T5 as a program (train_t5): the buckets of distances; packing, ranks, shards and a resumed run change
// nothing; config.json, the head that weights have, names of tensors, and what is refused, and how.
#define GX_NO_MAIN
#include "train_t5.cu"
#include "test/task_run.h"
#include <math.h>

// ---- files ---------------------------------------------------------------------------------------------------------

static void write_files(void)
{
    static char text[1 << 14];
    size_t at = (size_t)snprintf(text, sizeof text, "source\ttarget\n");
    for (int i = 0; i < 40; i++) {
        const GxRandom4 r = gx_philox(7, (uint64_t)i, 0, 79);
        char source[8] = "";
        for (int k = 0; k < 1 + (int)(r.w[0] % 5); k++) source[k] = (char)('a' + (r.w[1] >> (4 * k)) % 6);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\t%c%s\n", source, source[0] - 'a' + 'A', source);
    }
    write_file("train.tsv", text);
}

// A folder has its own sizes. Texts are longer than max_distance.
static int run(const char *name, const char *more)
{
    static const char sizes[] = "--d_model 12 --d_kv 5 --num_layers 2 --num_decoder_layers 1 --num_heads 2 --d_ff 20 "
                                "--relative_attention_num_buckets 4 --relative_attention_max_distance 3";
    char line[3000];
    snprintf(line, sizeof line,
             "--train_data %s/train.tsv --validation_fraction 0 --seq_len 16 --micro_batch_size 4 --eval_steps 0 "
             "--sample_lines 0 --max_steps 4 --learning_rate 0.01 --output_dir %s/%s %s %s",
             folder, folder, name, strstr(more, "--model ") || strstr(more, "--resume ") ? "" : sizes, more);
    return run_line(&gx_t5, &gx_seq2seq, line);
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

// ---- positions -----------------------------------------------------------------------------------------------------

// Where the buckets of 32 and 128 begin, as transformers puts distances into them.
TEST(distances_are_in_the_buckets_that_transformers_has_for_them)
{
    static const int both[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91},
                     causal[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
    const GxRelative r = {32, 128, {NULL, NULL}};
    for (int64_t d = 0; d < 400; d++) {
        int64_t of_both = 0, of_causal = 0;
        while (of_both < 15 && both[of_both + 1] <= d) of_both++;
        while (of_causal < 31 && causal[of_causal + 1] <= d) of_causal++;
        const int64_t before = gx_relative_bucket(-d, &r, 0), behind = gx_relative_bucket(d, &r, 0);
        CHECK(before == of_both && behind == (d ? 16 : 0) + of_both, "%ld: buckets %ld, %ld", (long)d, (long)before,
              (long)behind);
        CHECK(gx_relative_bucket(-d, &r, 1) == of_causal && gx_relative_bucket(d, &r, 1) == 0,
              "%ld, causal: bucket %ld", (long)d, (long)gx_relative_bucket(-d, &r, 1));
    }
}

// ---- runs ----------------------------------------------------------------------------------------------------------

TEST(pairs_that_share_a_column_are_as_pairs_alone)
{
    double packed[5];
    CHECK(run("packed", "--dropout_rate 0 --micro_batch_size 2 --seq_len 240 --max_steps 3") == 0, "%s", said.log);
    memcpy(packed, told.window, sizeof packed);
    CHECK(run("alone", "--dropout_rate 0 --micro_batch_size 40 --pack_texts false --max_steps 3") == 0, "%s", said.log);
    // 40 pairs fill one or two columns of 240, so that a window of two has all of them, once or twice
    for (int s = 1; s <= 3; s++) test_close_number("loss", packed[s], told.window[s], 1e-5);
}

TEST(ranks_modes_and_shards_have_the_losses_of_one_rank)
{
    static const char *const ways[] = {"--ranks 2 --mode tp", "--ranks 2 --mode galaxy", "--ranks 2 --mode sp --zero 0",
                                       "--ranks 2 --zero 3", "--ranks 2 --zero 2 --feed_forward_proj relu"};
    double one[5];
    CHECK(run("one", "") == 0, "%s", said.log);
    memcpy(one, told.window, sizeof one);
    CHECK(one[4] < one[1], "loss %g, then %g", one[1], one[4]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char more[200];
        snprintf(more, sizeof more, "%s --global_batch_size 4 --overwrite_output_dir true%s", ways[i],
                 strstr(ways[i], "--mode") ? "" : " --micro_batch_size 2");
        CHECK(run("several", more) == 0, "%s: %s", ways[i], said.log);
        for (int s = 1; s <= 4; s++) test_close_number(ways[i], told.window[s], one[s], 1e-5);
    }
}

// The tables of positions are on all stages that have layers of their stack.
TEST(stages_have_the_losses_of_one_rank)
{
    static const char four[] = "--max_source_length 22 --micro_batch_size 1 --global_batch_size 4 --weight_decay 0.1 "
                               "--overwrite_output_dir true";
    static const char *const ways[] = {"--ranks 3 --pp 3", "--ranks 2 --pp 2 --pipeline_schedule gpipe",
                                       "--ranks 4 --pp 2 --tp 2 --mode sp", "--ranks 4 --pp 2 --tp 2 --mode galaxy2"};
    char more[300];
    double one[5];
    CHECK(run("one", four) == 0, "%s", said.log);
    memcpy(one, told.window, sizeof one);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(more, sizeof more, "%s %s", four, ways[i]);
        CHECK(run("stages", more) == 0, "%s: %s", ways[i], said.log);
        for (int s = 1; s <= 4; s++) test_close_number(ways[i], told.window[s], one[s], 1e-5);
    }
}

TEST(what_is_computed_again_and_a_resumed_run_have_the_same_bits)
{
    char more[300];
    int64_t n, m;
    CHECK(run("whole", "--max_steps 6 --save_steps 3") == 0, "%s", said.log);
    char *whole = read_bytes(path_of("whole/checkpoint-6/model.safetensors"), &n);
    snprintf(more, sizeof more, "--max_steps 6 --recompute layer --resume %s/whole/checkpoint-3", folder);
    CHECK(run("resumed", more) == 0, "%s", said.log);
    char *both = read_bytes(path_of("resumed/checkpoint-6/model.safetensors"), &m);
    CHECK(n > 0 && n == m && !memcmp(whole, both, (size_t)n), "%ld and %ld bytes, or others", (long)n, (long)m);
    free(whole), free(both);
}

TEST(layers_of_both_stacks_are_counted_for_what_is_computed_again)
{
    CHECK(run("listed", "--max_steps 1 --recompute layer:0,2") == 0, "%s", said.log);
    CHECK(run("auto", "--max_steps 1 --recompute auto") == 0 && strstr(said.log, "--recompute auto: "), "%s", said.log);
    expect_error("--recompute layer:3", "the model has no layer 3; its layers are 0 to 2");
}

// Its names of modules are peft's; the tables are no linears, and stay.
TEST(an_adapter_leaves_the_tables_of_positions)
{
    char more[300];
    snprintf(more, sizeof more, "--model %s --tuning lora", begun());
    CHECK(run("lora", more) == 0, "%s", said.log);
    const char *config = path_of("lora/checkpoint-4/adapter_config.json");
    CHECK(file_has(config, "\"task_type\": \"SEQ_2_SEQ_LM\"") && file_has(config, "\"wo\""), "what it says");
    GxSafetensors s;
    GxError err = GX_ZERO;
    CHECK(gx_safetensors_open(&s, path_of("lora/checkpoint-4/adapter_model.safetensors"), &err) == GX_OK, "%s",
          err.message);
    const char *names[] = {"base_model.model.encoder.block.1.layer.0.SelfAttention.q.lora_A.weight",
                           "base_model.model.decoder.block.0.layer.1.EncDecAttention.v.lora_B.weight"};
    for (int i = 0; i < 2; i++) CHECK(gx_safetensors_find(&s, names[i]) != NULL, "no %s", names[i]);
    for (int i = 0; i < s.n; i++) CHECK(!strstr(s.entry[i].name, "bias"), "%s is there", s.entry[i].name);
    gx_safetensors_close(&s);
}

// ---- initial weights, weight decay ---------------------------------------------------------------------------------

// A tensor of a checkpoint; free() it. *n: its elements.
static float *tensor_of(const char *checkpoint, const char *name, int64_t *n)
{
    GxSafetensors s;
    GxError err = GX_ZERO;
    *n = 0;
    if (!CHECK(gx_safetensors_open(&s, path_of(checkpoint), &err) == GX_OK, "%s", err.message)) return NULL;
    const GxSafetensorsEntry *e = gx_safetensors_find(&s, name);
    float *x = e ? (float *)malloc((size_t)e->elements * sizeof *x) : NULL;
    if (CHECK(x, "there is no %s", name)) {
        *n = e->elements;
        CHECK(gx_safetensors_read(&s, e, 0, *n, x, &err) == GX_OK, "%s", err.message);
    }
    gx_safetensors_close(&s);
    return x;
}

// As transformers draws them (T5PreTrainedModel._init_weights), with initializer_factor 2: each matrix has a size of its
// own. The bound is 5 standard errors of a standard deviation, 1/sqrt(2 n) of it.
TEST(new_weights_have_the_sizes_that_transformers_gives_them)
{
#define LAYER(i, name) "encoder.block.0.layer." #i "." name ".weight"
    const struct {
        const char *name;
        double std;
    } cases[] = {{"shared.weight", 2},
                 {"lm_head.weight", 2},
                 {LAYER(0, "SelfAttention.q"), 2 / sqrt(24. * 9)},
                 {LAYER(0, "SelfAttention.k"), 2 / sqrt(24)},
                 {LAYER(0, "SelfAttention.o"), 2 / sqrt(3 * 9.)},
                 {LAYER(1, "DenseReluDense.wi"), 2 / sqrt(24)},
                 {LAYER(1, "DenseReluDense.wo"), 2 / sqrt(40)},
                 {"decoder.block.0.layer.1.EncDecAttention.q.weight", 2 / sqrt(24. * 9)},
                 {LAYER(0, "SelfAttention.relative_attention_bias"), 2 / sqrt(24)},
                 {"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 2 / sqrt(24)}};
    CHECK(run("new", "--d_model 24 --d_kv 9 --num_heads 3 --d_ff 40 --relative_attention_num_buckets 32 "
                     "--relative_attention_max_distance 40 --initializer_factor 2 --tie_word_embeddings false "
                     "--learning_rate 0 --max_steps 1") == 0,
          "%s", said.log);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n;
        double sum = 0;
        float *x = tensor_of("new/checkpoint-1/model.safetensors", cases[i].name, &n);
        for (int64_t k = 0; k < n; k++) sum += (double)x[k] * x[k];
        const double ratio = sqrt(sum / (double)n) / cases[i].std;
        CHECK(fabs(ratio - 1) < 5 / sqrt(2. * (double)n), "%s: %g of what it should be", cases[i].name, ratio);
        free(x);
    }
}

// As of biases, by their names, in transformers' Trainer. A step of AdamW moves a number by at most the learning rate,
// and this decay halves it.
TEST(the_tables_of_positions_do_not_decay)
{
    static const char *const names[] = {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                                        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                                        "encoder.block.0.layer.0.SelfAttention.k.weight"};
    static const char flags[] = "--max_steps 1 --warmup_steps 0 --lr_scheduler_type constant";
    char more[200];
    snprintf(more, sizeof more, "%s --learning_rate 0", flags);
    CHECK(run("before", more) == 0, "%s", said.log);
    snprintf(more, sizeof more, "%s --learning_rate 1e-4 --weight_decay 5000", flags);
    CHECK(run("after", more) == 0, "%s", said.log);
    for (int i = 0; i < 3; i++) {
        int64_t n, m;
        double most = 0;
        float *x = tensor_of("before/checkpoint-1/model.safetensors", names[i], &n),
              *y = tensor_of("after/checkpoint-1/model.safetensors", names[i], &m);
        for (int64_t k = 0; k < n && n == m; k++) most = fmax(most, fabs((double)x[k] - y[k]));
        CHECK(n > 0 && n == m && (most < 1.01e-4) == (i < 2), "%s changes by up to %g", names[i], most);
        free(x), free(y);
    }
}

// ---- config.json ---------------------------------------------------------------------------------------------------

static GxT5Config config_of(const char *name)
{
    GxT5Config c;
    GxError err = GX_ZERO;
    CHECK(gx_t5_config_read(&c, path_of(name), &gx_silent, &err) == GX_OK, "%s", err.message);
    return c;
}

static GxT5Config expect_config(const char *json, const char *words)
{
    GxT5Config c;
    GxError err = GX_ZERO;
    write_file("config.json", json);
    const GxStatus status = gx_t5_config_read(&c, path_of("config.json"), &gx_silent, &err);
    CHECK(words ? status != GX_OK && strstr(err.message, words) : status == GX_OK, "%s: \"%s\"", json, err.message);
    return c;
}

TEST(a_config_json_that_asks_for_something_else_is_refused_by_file_and_key)
{
#define T5 "{\"model_type\": \"t5\", \"decoder_start_token_id\": 0"
    expect_config(T5 "}", NULL);
    expect_config("{\"model_type\": \"t5\"}", "decoder_start_token_id is missing");
    expect_config("{\"model_type\": \"t5\", \"decoder_start_token_id\": null}", "decoder_start_token_id is missing");
    expect_config(T5 ", \"feed_forward_proj\": \"gated-relu\"}", "feed_forward_proj is \"gated-relu\"");
    expect_config(T5 ", \"dense_act_fn\": \"gelu_new\"}", "dense_act_fn is \"gelu_new\"; only \"relu\"");
    expect_config(T5 ", \"feed_forward_proj\": \"gated-gelu\", \"dense_act_fn\": \"gelu\"}", "only \"gelu_new\"");
    expect_config(T5 ", \"feed_forward_proj\": \"gated-silu\", \"is_gated_act\": false}", "is_gated_act is false");
    expect_config(T5 ", \"feed_forward_proj\": \"gated-silu\", \"dense_act_fn\": \"silu\"}", NULL);
    expect_config(T5 ", \"is_encoder_decoder\": false}", "is_encoder_decoder is false");
    expect_config(T5 ", \"relative_attention_num_buckets\": 31}", "relative_attention_num_buckets is 31");
    expect_config(T5 ", \"relative_attention_max_distance\": 16}", "relative_attention_max_distance is 16");
    expect_config(T5 ", \"scale_decoder_outputs\": 3}", "scale_decoder_outputs must be true or false");
    expect_config(T5 ", \"eos_token_id\": 40000}", "eos_token_id is 40000");
    expect_config(T5 ", \"num_layers\": 0}", "num_layers");
    expect_config(T5 ", \"d_model\": 64, \"hidden_size\": 64, \"num_heads\": 4, \"num_attention_heads\": 4}", NULL);
    expect_config(T5 ", \"d_model\": 64, \"hidden_size\": 48}", "hidden_size is 48; only 64");
    expect_config(T5 ", \"num_hidden_layers\": 7}", "num_hidden_layers is 7; only 6");
    expect_config(T5 ", \"num_attention_heads\": 7}", "num_attention_heads is 7; only 8");
    expect_config(T5 ", \"d_kv\": 16, \"head_dim\": 8}", "head_dim is 8; only 16");
    expect_config(T5 ", \"architectures\": [\"T5EncoderModel\"]}", "T5EncoderModel");
    expect_config("{\"model_type\": \"umt5\"}", "model_type is \"umt5\"");
    const GxT5Config same = expect_config(T5 ", \"num_layers\": 7, \"num_decoder_layers\": null}", NULL),
                     mt5 = expect_config("{\"model_type\": \"mt5\"}", NULL),
                     scaled =
                         expect_config(T5 ", \"tie_word_embeddings\": false, \"scale_decoder_outputs\": true}", NULL);
    CHECK(same.num_decoder_layers == 7 && gx_t5_is_scaled(&same), "%ld layers", (long)same.num_decoder_layers);
    CHECK(mt5.vocab_size == 250112 && !strcmp(mt5.feed_forward_proj, "gated-gelu") && !gx_t5_is_scaled(&mt5), "an mT5");
    CHECK(gx_t5_is_scaled(&scaled), "scale_decoder_outputs");
}

TEST(a_config_json_says_every_field_and_reads_back_the_same)
{
    const GxT5Config c = {61, 36, 5, 40, 2, 3, 6, 12, 40, 7, 5, 4, "gated-silu", 0.1, 1e-5, 2, 0, 1, "t5"};
    GxT5Config back;
    GxError err = GX_ZERO;
    CHECK(gx_t5_config_write(&c, path_of("config.json"), &err) == GX_OK, "%s", err.message);
    CHECK(gx_t5_config_read(&back, path_of("config.json"), &gx_silent, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < gx_t5.n_fields; i++) {
        const GxField *f = &gx_t5.fields[i];
        const size_t size = f->type == GX_FIELD_STRING ? 3 : f->type == GX_FIELD_BOOL ? 4 : 8;
        CHECK(!memcmp(gx_field_in(f, &c), gx_field_in(f, &back), size), "%s", f->name);
    }
}

// ---- weights -------------------------------------------------------------------------------------------------------

// Writes folder/changed: the reference of that name under the names of a T5Model, and with a table that old files have
// and nothing reads.
static void write_older(const char *name)
{
    enum { MOST = 200 };
    static GxSafetensorsEntry entry[MOST];
    const GxSafetensorsEntry *from[MOST];
    float values[4096];
    char path[200];
    GxSafetensors s;
    GxSafetensorsWriter w;
    GxError err = GX_ZERO;
    int n = 0;
    snprintf(path, sizeof path, "data/ref/%s/model.safetensors", name);
    CHECK(gx_safetensors_open(&s, path, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < s.n; i++) {
        const int is_table =
            !strcmp(s.entry[i].name, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        for (int copy = 0; copy <= is_table; copy++, n++) {
            entry[n] = s.entry[i], from[n] = &s.entry[i];
            snprintf(entry[n].name, sizeof entry[n].name, "transformer.%.200s",
                     copy ? "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" : s.entry[i].name);
        }
    }
    mkdir(path_of("changed"), 0777);
    CHECK(gx_safetensors_create(&w, path_of("changed/model.safetensors"), entry, n, NULL, 0, &err) == GX_OK, "%s",
          err.message);
    for (int i = 0; i < n; i++) {
        CHECK(gx_safetensors_read(&s, from[i], 0, from[i]->elements, values, &err) == GX_OK, "%s", err.message);
        gx_safetensors_write_floats(&w, entry[i].name, 0, values, from[i]->elements, &err);
    }
    CHECK(gx_safetensors_finish(&w, &err) == GX_OK, "%s", err.message);
    gx_safetensors_close(&s);
    snprintf(path, sizeof path, "data/ref/%s/config.json", name);
    char *config = read_file(path);
    write_file("changed/config.json", config);
    free(config);
}

// What transformers 5 saves says that the head is the embedding; what is saved here is what both of its versions read.
TEST(a_head_of_its_own_is_found_in_the_weights_and_said_in_config_json)
{
    char more[300];
    int64_t n, m;
    char *saved, *again;
    write_vocab("a\nb\nc\nd\ne\nf\nA\nB\nC\nD\nE\nF\n");
    snprintf(more, sizeof more, "--model data/ref/t5_dropout --tokenizer %s/tokens --learning_rate 0 --max_steps 1",
             folder);
    CHECK(run("apart", more) == 0, "%s", said.log);
    CHECK(strstr(said.log, "the head has values of its own"), "%s", said.log);
    const char *config = path_of("apart/checkpoint-1/config.json");
    CHECK(file_has(config, "\"tie_word_embeddings\": false") && file_has(config, "\"scale_decoder_outputs\": false"),
          "%s", config);
    snprintf(more, sizeof more,
             "--model data/ref/t5_dropout --tokenizer %s/tokens --learning_rate 0 --max_steps 1 "
             "--max_shard_size 8KB",
             folder);
    CHECK(run("shards", more) == 0 && is_there(path_of("shards/checkpoint-1/model.safetensors.index.json")), "%s",
          said.log);
    char *both = read_file("data/ref/t5_dropout/config.json");
    write_file("shards/checkpoint-1/config.json", both), free(both);
    CHECK(remove(path_of("shards/checkpoint-1/manifest.json")) == 0, "no manifest");
    snprintf(more, sizeof more, "--model %s/shards/checkpoint-1 --learning_rate 0 --max_steps 1", folder);
    CHECK(run("of_shards", more) == 0 && strstr(said.log, "the head has values of its own"), "%s", said.log);
    // a file that does not say whether it is scaled, as transformers 4 wrote it, says so by tie_word_embeddings
    write_older("t5_dropout");
    char *older = read_file(path_of("changed/config.json")), *key = strstr(older, "\"scale_decoder_outputs\": false,");
    if (CHECK(key, "%s", older)) memset(key, ' ', strlen("\"scale_decoder_outputs\": false,"));
    write_file("changed/config.json", older), free(older);
    snprintf(more, sizeof more, "--model %s/changed --tokenizer %s/tokens --learning_rate 0 --max_steps 1", folder,
             folder);
    CHECK(run("unsaid", more) == 0 && strstr(said.log, "the head has values of its own"), "%s", said.log);
    const GxT5Config unsaid = config_of("unsaid/checkpoint-1/config.json");
    CHECK(!unsaid.tie_word_embeddings && gx_t5_is_scaled(&unsaid), "scale_decoder_outputs of an older file");
    write_older("t5_dropout");
    snprintf(more, sizeof more, "--model %s/changed --tokenizer %s/tokens --learning_rate 0 --max_steps 1", folder,
             folder);
    CHECK(run("older", more) == 0, "%s", said.log);
    saved = read_bytes(path_of("apart/checkpoint-1/model.safetensors"), &n);
    again = read_bytes(path_of("older/checkpoint-1/model.safetensors"), &m);
    CHECK(n > 0 && n == m && !memcmp(saved, again, (size_t)n), "%ld and %ld bytes, or others", (long)n, (long)m);
    free(saved), free(again);
    write_older("t5_odd");
    CHECK(run("tied", more) == 0 && !strstr(said.log, "values of its own"), "%s", said.log);
    CHECK(file_has(path_of("tied/checkpoint-1/config.json"), "\"tie_word_embeddings\": true"), "tied");
}

TEST(a_model_that_transformers_4_would_read_otherwise_is_a_warning_if_it_is_saved)
{
    static const char words[] = "transformers 4 would compute another model from what is saved";
    char more[300];
    CHECK(run("unscaled", "--scale_decoder_outputs 0 --max_steps 1") == 0 && strstr(said.log, words), "%s", said.log);
    CHECK(run("scaled", "--max_steps 1") == 0 && !strstr(said.log, words), "%s", said.log);
    snprintf(more, sizeof more, "--model %s/unscaled/checkpoint-1 --evaluate true --validation_data %s/train.tsv",
             folder, folder);
    CHECK(run("none", more) == 0 && !strstr(said.log, words), "%s", said.log);
}

TEST(what_a_t5_is_not_is_refused_by_name)
{
    char more[500];
    expect_error("--pp 2 --ranks 2 --pipeline_schedule zbv", "--pipeline_schedule zbv of a t5, which has an encoder");
    expect_error("--pp 2 --tp 2 --ranks 4 --mode tp --tp_num_attention_heads_list 1,1,1,1",
                 "stages share the tables of positions, and must split heads alike; give 2 entries");
    expect_error("--plan auto --ranks 2", "--plan of a t5");
    expect_error("--cp 2 --ranks 2", "task seq2seq needs whole texts on each");
    expect_error("--relative_attention_num_buckets 10",
                 "relative_attention_max_distance is 3; it must be more than half");
    expect_error("--model data/ref/bart_odd", "train_bart trains this one");
    expect_error("--ranks 3 --mode tp", "2 cannot be split among 3 ranks");
    snprintf(more, sizeof more, "--model %s --tuning side", begun());
    expect_error(more, "a side network beside a model with an encoder and a decoder");
    snprintf(more, sizeof more, "--model %s --tuning prompt", begun());
    expect_error(more, "prompts are for models with one stack of layers");
    snprintf(more, sizeof more, "--model %s --tuning lora --lora_target_modules relative_attention_bias", begun());
    expect_error(more, "matches no linear");
    snprintf(more, sizeof more, "--model %s --tuning lora --lora_target_modules shared", begun());
    expect_error(more, "since encoder, decoder and head share it");
    write_file("new.txt", "<new>\n");
    snprintf(more, sizeof more, "--model %s --tuning lora --add_tokens %s/new.txt", begun(), folder);
    expect_error(more,
                 "does not train shared.weight, and its folder would not contain the new rows; use --tuning full");
    for (int i = 0; i < 2; i++) {
        snprintf(more, sizeof more, "--model %s --tuning lora --modules_to_save %s", begun(), i ? "shared" : "lm_head");
        expect_error(more, "alone is to be trained, but encoder, decoder and head of this t5 share it");
    }
}

static void copy_file(const char *from, const char *to, const char *name)
{
    char in[GX_PATH], out[GX_PATH];
    snprintf(in, sizeof in, "%s/%s", from, name);
    snprintf(out, sizeof out, "%s/%s", to, name);
    char *text = read_file(path_of(in));
    write_file(out, text);
    free(text);
}

TEST(predictions_of_weights_that_are_not_finite_are_an_error)
{
    char more[700];
    int64_t n;
    const float wrong = NAN;
    begun();
    CHECK(mkdir(path_of("wrong"), 0777) == 0, "no folder");
    copy_file("begun/checkpoint-4", "wrong", "config.json");
    copy_file("begun/checkpoint-4", "wrong", "tokenizer.json");
    char *weights = read_bytes(path_of("begun/checkpoint-4/model.safetensors"), &n);
    memcpy(weights + n - (int64_t)sizeof wrong, &wrong, sizeof wrong);
    FILE *f = fopen(path_of("wrong/model.safetensors"), "wb");
    CHECK(f && fwrite(weights, 1, (size_t)n, f) == (size_t)n && fclose(f) == 0, "the weights are not written");
    free(weights);
    for (int beams = 1; beams < 4; beams++) {
        snprintf(more, sizeof more,
                 "--model %s/wrong --predict %s/train.tsv --predictions %s/wrong.jsonl --num_beams %d%s", folder,
                 folder, folder, beams, beams == 3 ? " --ranks 3 --pp 3" : ""); // one of which never has the outputs
        expect_error(more, "train.tsv: the model's outputs are not finite, so nothing is written");
        CHECK(!is_there(path_of("wrong.jsonl")), "something is written");
    }
}

// Its folder has no tokenizer.json, only the name of its class.
TEST(a_folder_of_a_byt5_is_trained)
{
    char more[700];
    static const char config[] = "{\"tokenizer_class\": \"ByT5Tokenizer\"}";
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    CHECK(mkdir(path_of("bytes"), 0777) == 0, "no folder");
    write_file("bytes/tokenizer_config.json", config);
    snprintf(more, sizeof more, "--tokenizer %s/bytes", folder);
    CHECK(run("byt5", more) == 0, "%s", said.log);
    CHECK(remove(path_of("byt5/checkpoint-4/tokenizer.json")) == 0, "no tokenizer.json");
    CHECK(remove(path_of("byt5/checkpoint-4/manifest.json")) == 0, "no manifest");
    write_file("byt5/checkpoint-4/tokenizer_config.json", config);
    snprintf(more, sizeof more, "--model %s/byt5/checkpoint-4 --ranks 2", folder);
    CHECK(run("byt5_again", more) == 0, "%s", said.log);
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_files); }
