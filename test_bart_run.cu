// test_bart_run.cu: BART as a program (train_bart): what a batch of sources and targets holds, by hand; packing, ranks and
// a resumed run change nothing; targets that are written; config.json, names of tensors, and what is refused, and how.
#define GX_NO_MAIN
#include "train_bart.cu"
#include "test/task_run.h"

// ---- files ---------------------------------------------------------------------------------------------------------

// A target is its source backwards, in capitals.
static void write_pairs(const char *name, int n, int from)
{
    static char text[1 << 16];
    size_t at = (size_t)snprintf(text, sizeof text, "target\tsource\n");
    for (int i = from; i < from + n; i++) {
        const GxRandom4 r = gx_philox(7, (uint64_t)i, 0, 78);
        const int letters = 1 + (int)(r.w[0] % 5);
        char source[8] = "", target[8] = "";
        for (int k = 0; k < letters; k++) {
            source[k] = (char)('a' + (r.w[1] >> (4 * k)) % 6);
            target[letters - 1 - k] = (char)(source[k] - 'a' + 'A');
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\t%s\n", target, source);
    }
    write_file(name, text);
}

static void write_files(void)
{
    write_pairs("train.tsv", 40, 0);
    write_pairs("more.tsv", 12, 100);
    write_file("sources.tsv", "source\nabc\nfade\na\n");
    write_vocab("a\nb\nc\nd\ne\nf\n");
}

// A folder has its own sizes.
static int run(const char *name, const char *more)
{
    static const char sizes[] = "--d_model 12 --encoder_layers 2 --decoder_layers 1 --encoder_attention_heads 2 "
                                "--decoder_attention_heads 3 --encoder_ffn_dim 20 --decoder_ffn_dim 14 "
                                "--max_position_embeddings 24";
    char line[3000];
    snprintf(line, sizeof line,
             "--train_data %s/train.tsv --validation_fraction 0 --seq_len 16 --micro_batch_size 4 --eval_steps 0 "
             "--sample_lines 0 --max_steps 4 --learning_rate 0.01 --output_dir %s/%s %s %s",
             folder, folder, name, strstr(more, "--model ") || strstr(more, "--resume ") ? "" : sizes, more);
    return run_line(&gx_bart, &gx_seq2seq, line);
}

// A checkpoint of four steps.
static const char *begun(void)
{
    if (!is_there(path_of("begun"))) CHECK(run("begun", "") == 0, "%s", said.log);
    return path_of("begun/checkpoint-4");
}

static void expect_error(const char *more, const char *words)
{
    const int status = run("refused", more);
    CHECK(status != 0 && strstr(said.log, words), "%s: %d \"%s\"", more, status, said.log);
}

// ---- a batch -------------------------------------------------------------------------------------------------------

// Two pairs in column 0, one in column 1; sources of 6 rows, targets of 5.
TEST(a_batch_of_pairs_is_what_one_writes_by_hand)
{
    static const int32_t ids[][3] = {{10, 11, 2}, {20, 2}, {12, 2}, {21, 22, 2}, {13, 14, 2}, {23, 2}};
    static const int64_t lengths[] = {3, 2, 2, 3, 3, 2};
    const GxTextFrame frame = {-1, 2, 1, 9, 2};
    const GxSourceLayout l = gx_source_layout_of(&frame, 5);
    GxBatch source = GX_ZERO, b = GX_ZERO;
    b.T = 5, source.T = 6, b.B = source.B = 2, b.source = &source;
    const int64_t bytes = gx_source_layout(&l, &b, NULL, NULL);
    char *block = (char *)aligned_alloc(GX_ALIGN, (size_t)bytes);
    gx_source_layout(&l, &b, block, block);
    GxSourceWriter w;
    gx_source_begin(&w, &l, &b, block);
    int64_t at[2][GX_OF_PAIR] = {{0, 0}, {0, 0}};
    for (int k = 0; k < 3; k++) {
        const GxSourcePair pair = {{ids[2 * k], ids[2 * k + 1]}, {lengths[2 * k], lengths[2 * k + 1]}};
        gx_source_put(&w, k / 2, at[k / 2], &pair);
    }
    gx_source_finish(&w);
    static const int32_t tokens[] = {9, 9, 20, 23, 9, 1, 21, 1, 22, 1}, positions[] = {2, 2, 3, 3, 2, 0, 3, 0, 4, 0},
                         of_source[] = {10, 13, 11, 14, 2, 2, 12, 1, 2, 1, 1, 1},
                         reads[] = {0, 3, 0, 3, 0, 3, 0, 3, 3, 5, 0, 0, 3, 5, 0, 0, 3, 5, 0, 0},
                         read_by[] = {0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 2, 5, 0, 0, 2, 5, 0, 0, 0, 0, 0, 0},
                         rows[] = {0, 1, 2, 3, 4, 6, 8}, labels[] = {20, 23, 2, 2, 21, 22, 2};
    CHECK(!memcmp(b.tokens, tokens, sizeof tokens) && !memcmp(b.positions, positions, sizeof positions), "the target");
    CHECK(!memcmp(source.tokens, of_source, sizeof of_source), "the source");
    CHECK(!memcmp(b.reads, reads, sizeof reads) && !memcmp(b.read_by, read_by, sizeof read_by), "who reads whom");
    CHECK(b.target[0].n == 7 && !memcmp(b.target[0].rows, rows, sizeof rows) &&
              !memcmp(b.target[0].labels, labels, sizeof labels),
          "%ld labels", (long)b.target[0].n);
    CHECK(b.padding == 3 && source.padding == 4, "%ld and %ld rows of padding", (long)b.padding, (long)source.padding);
    free(block);
}

// ---- runs ----------------------------------------------------------------------------------------------------------

// A window of all pairs, whatever columns they are in: the loss is a mean over the same tokens.
TEST(pairs_that_share_a_column_are_as_pairs_alone)
{
    double packed[5];
    CHECK(run("packed", "--dropout 0 --micro_batch_size 2 --seq_len 240 --max_source_length 240 "
                        "--max_position_embeddings 240 --max_steps 3") == 0,
          "%s", said.log);
    memcpy(packed, told.window, sizeof packed);
    CHECK(run("alone", "--dropout 0 --micro_batch_size 40 --pack_texts false --max_steps 3") == 0, "%s", said.log);
    // 40 pairs fill one or two columns of 240, so that a window of two has all of them, once or twice
    for (int s = 1; s <= 3; s++) test_close_number("loss", packed[s], told.window[s], 1e-5);
}

TEST(ranks_modes_and_shards_have_the_losses_of_one_rank)
{
    static const char *const ways[] = {
        "--ranks 2 --mode tp", "--ranks 2 --mode sp", "--ranks 2 --mode galaxy",        "--ranks 2 --mode galaxy2",
        "--ranks 2 --zero 3",  "--ranks 2",           "--ranks 2 --mode tp --ends none"};
    double one[5];
    CHECK(run("one", "") == 0, "%s", said.log);
    memcpy(one, told.window, sizeof one);
    CHECK(one[4] < one[1], "loss %g, then %g", one[1], one[4]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char more[200];
        snprintf(more, sizeof more, "%s --global_batch_size 4 --overwrite_output_dir true%s", ways[i],
                 strstr(ways[i], "--mode") || !strstr(ways[i], "--ranks") ? "" : " --micro_batch_size 2");
        CHECK(run("several", more) == 0, "%s: %s", ways[i], said.log);
        for (int s = 1; s <= 4; s++) test_close_number(ways[i], told.window[s], one[s], 1e-5);
    }
}

static double gflop_of(const char *recompute, double *mb)
{
    char more[300];
    snprintf(more, sizeof more,
             "--dry_run --encoder_layers 2 --decoder_layers 2 --d_model 96 --encoder_ffn_dim 384 --decoder_ffn_dim 192 "
             "--micro_batch_size 256 --max_position_embeddings 64 --seq_len 64 --recompute %s",
             recompute);
    CHECK(run("none", more) == 0, "%s", said.log);
    const char *gflop = strstr(said.out, " GFLOP per step"), *all = strstr(said.out, "libraries ");
    if (!CHECK(gflop && all && strstr(all, " = "), "%s", said.out)) return 0;
    while (gflop[-1] != ' ') gflop--;
    *mb = atof(strstr(all, " = ") + 3);
    return atof(gflop);
}

// Layers 0 and 1 are the encoder's, 2 and 3 the decoder's, which take more FLOPs.
TEST(layers_of_both_stacks_are_computed_again_by_their_numbers)
{
    static const char *const lists[] = {"layer:0", "layer:1", "layer:2", "layer:3"};
    double mb[4], none_mb, most_mb, each = 0, flops[4];
    const double none = gflop_of("none", &none_mb), all = gflop_of("layer", &most_mb);
    char more[100];
    for (int l = 0; l < 4; l++) each += flops[l] = gflop_of(lists[l], &mb[l]) - none;
    CHECK(flops[0] > 0 && flops[0] == flops[1] && flops[2] == flops[3] && flops[2] != flops[0], "%g %g %g %g", flops[0],
          flops[1], flops[2], flops[3]);
    test_close_number("all layers", none + each, all, 1e-3);
    snprintf(more, sizeof more, "auto --memory_limit %.0fMB", (none_mb + most_mb) / 2);
    gflop_of(more, mb);
    CHECK(strstr(said.log, "--recompute auto: ") && mb[0] < (none_mb + most_mb) / 2, "%s", said.log);
    expect_error("--recompute layer:3", "the model has no layer 3; its layers are 0 to 2");
}

TEST(what_is_computed_again_has_the_same_bits)
{
    static const char *const ways[] = {"layer", "att+mlp", "layer:0,2", "mlp:1,att:2"};
    int64_t n, m;
    begun();
    char *kept = read_bytes(path_of("begun/checkpoint-4/model.safetensors"), &n);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char more[100];
        snprintf(more, sizeof more, "--recompute %s --overwrite_output_dir true", ways[i]);
        CHECK(run("again", more) == 0, "%s: %s", ways[i], said.log);
        char *again = read_bytes(path_of("again/checkpoint-4/model.safetensors"), &m);
        CHECK(n > 0 && n == m && !memcmp(kept, again, (size_t)n), "%s: %ld and %ld bytes, or others", ways[i], (long)n,
              (long)m);
        free(again);
    }
    free(kept);
}

TEST(a_resumed_run_ends_with_the_same_bits)
{
    char resume[300], *whole, *both;
    int64_t n, m;
    CHECK(run("whole", "--max_steps 6 --save_steps 3") == 0, "%s", said.log);
    snprintf(resume, sizeof resume, "--max_steps 6 --resume %s/whole/checkpoint-3", folder);
    CHECK(run("resumed", resume) == 0, "%s", said.log);
    whole = read_bytes(path_of("whole/checkpoint-6/model.safetensors"), &n);
    both = read_bytes(path_of("resumed/checkpoint-6/model.safetensors"), &m);
    CHECK(n > 0 && n == m && !memcmp(whole, both, (size_t)n), "%ld and %ld bytes, or others", (long)n, (long)m);
    free(whole), free(both);
}

// ---- written targets -----------------------------------------------------------------------------------------------

// A model that has learned its data by heart writes it, alone and on two ranks; other files need no targets.
TEST(targets_are_written_and_what_was_learned_by_heart_is_right)
{
    char line[600], *one, *two;
    snprintf(line, sizeof line,
             "--d_model 32 --encoder_attention_heads 4 --decoder_attention_heads 4 --encoder_ffn_dim 64 "
             "--decoder_ffn_dim 64 --dropout 0 --max_steps 600 --micro_batch_size 16 --save_steps 0 "
             "--sample_lines 2 --validation_data %s/more.tsv --learning_rate 0.003",
             folder);
    CHECK(run("heart", line) == 0, "%s", said.log);
    CHECK(strstr(said.out, "source   ") && strstr(said.out, "written  "), "no sample: %s", said.out);
    snprintf(line, sizeof line, "--model %s/heart/checkpoint-600 --predict %s/train.tsv --predictions %s/one.jsonl",
             folder, folder, folder);
    CHECK(run("none", line) == 0, "%s", said.log);
    const char *words = strstr(said.out, "exactly the target ");
    const double right = words ? atof(words + strlen("exactly the target ")) : 0;
    CHECK(right > 0.5, "%g of the targets are right", right);
    snprintf(
        line, sizeof line,
        "--model %s/heart/checkpoint-600 --predict %s/train.tsv --predictions %s/two.jsonl --ranks 2 --mode galaxy",
        folder, folder, folder);
    CHECK(run("none", line) == 0, "%s", said.log);
    one = read_file(path_of("one.jsonl")), two = read_file(path_of("two.jsonl"));
    CHECK(one[0] && !strcmp(one, two), "two ranks write\n%s, one\n%s", two, one);
    free(one), free(two);
    snprintf(line, sizeof line, "--model %s/heart/checkpoint-600 --predict %s/sources.tsv --predictions %s/new.jsonl",
             folder, folder, folder);
    CHECK(run("none", line) == 0, "%s", said.log);
    one = read_file(path_of("new.jsonl"));
    CHECK(strstr(one, "{\"source\":\"abc\",\"target\":\"") == one && strstr(one, "\"source\":\"fade\""), "%s", one);
    free(one);
    expect_error(line, "already exists");
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(bad_pairs_and_options_are_refused_by_name)
{
    char more[500];
    static const char *const files[][2] = {
        {"source\ttarget\nab\tBA\nc\t\n", ":3: \"target\" is empty"},
        {"source\nab\n", "there is no column \"target\""},
        {"source\ttarget\na\001\tA\n", ":2: a text has the byte 0x01"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file("bad.tsv", files[i][0]);
        snprintf(more, sizeof more, "--train_data %s", path_of("bad.tsv"));
        expect_error(more, files[i][1]);
    }
    expect_error("--source_column target", "expected the names of two columns");
    expect_error("--seq_len 2", "a target needs at least 3 tokens");
    expect_error("--max_source_length 2", "a source needs at least 3 tokens");
    expect_error("--max_source_length 30", "a source of 30 tokens is longer than the model's max_position_embeddings");
    expect_error("--eos_token_id 300 --vocab_size 400 --pad_token_id 500", "pad_token_id is 500");
    expect_error("--pp 2 --ranks 2", "--pp of a bart, which has an encoder and a decoder");
    expect_error("--plan auto --ranks 2", "--plan of a bart");
    expect_error("--cp 2 --ranks 2", "task seq2seq needs whole texts on each");
    snprintf(more, sizeof more, "--model %s --tuning side", begun());
    expect_error(more, "a side network beside a model with an encoder and a decoder");
    snprintf(more, sizeof more, "--model %s --tuning prompt", begun());
    expect_error(more, "prompts are for models with one stack of layers");
    snprintf(more, sizeof more, "--model %s --tuning lora --lora_target_modules shared", begun());
    expect_error(more, "since encoder, decoder and head share it");
    snprintf(more, sizeof more, "--model %s --tuning lora --trainable_modules lm_head", begun());
    expect_error(more, "lm_head.weight alone is to be trained");
    expect_error("--model data/ref/bert_mlm", "train_bert trains this one");
    expect_error("--ranks 4 --mode sp --max_source_length 3", "a source of 3 tokens cannot be split among 4 ranks");
    snprintf(more, sizeof more, "--model %s --eos_token_id 0", begun());
    expect_error(more, "--eos_token_id is 0, but the model to load has 2");
}

TEST(tokens_of_texts_are_not_those_that_end_them)
{
    char more[500];
    expect_error("--decoder_start_token_id 97", "has the byte 0x61, whose id 97 is the model's decoder_start_token_id");
    expect_error("--eos_token_id 97", "whose id 97 is the model's eos_token_id");
    expect_error("--bos_token_id 2", "bos_token_id and eos_token_id are both 2");
    snprintf(
        more, sizeof more,
        "--tokenizer %s/tokens --pad_token_id 0 --bos_token_id 2 --decoder_start_token_id 3 --target_column source "
        "--source_column target --eos_token_id 5",
        folder);
    expect_error(more, "has the token \"a\", whose id 5 is the model's eos_token_id");
}

TEST(texts_that_are_too_long_are_cut_before_their_end_and_counted)
{
    const GxTextFrame frame = {0, 2, 1, 9, 2};
    const GxSourceForm form = {&frame, "", {5, 5}};
    static const int32_t source[] = {0, 'a', 'b', 'c', 2}, target[] = {0, 'A', 'B', 'C', 2};
    GxRecords file;
    GxSourceTexts t = GX_ZERO;
    GxTokenizer bytes = gx_tokenizer_bytes();
    GxError err = GX_ZERO;
    write_file("cut.tsv", "source\ttarget\nabcdef\tAB\nabc\tABCDEFG\nab\tA\n");
    CHECK(gx_source_file_open(&file, path_of("cut.tsv"), "source", "target", 0, NULL, &err) == GX_OK &&
              gx_source_texts_open(&t, &file, GX_TEXTS_ALL, 0, &err) == GX_OK &&
              gx_source_texts_tokenize(&t, &bytes, &form, 1, &err) == GX_OK,
          "%s", err.message);
    for (int i = 0; i < 2; i++)
        CHECK(t.length[GX_OF_SOURCE][i] == 5 && !memcmp(t.ids[GX_OF_SOURCE][i], source, sizeof source), "source %d", i);
    CHECK(t.length[GX_OF_TARGET][1] == 5 && !memcmp(t.ids[GX_OF_TARGET][1], target, sizeof target), "target 1");
    CHECK(t.cut[GX_OF_SOURCE] == 1 && t.longest[GX_OF_SOURCE] == 8 && t.cut[GX_OF_TARGET] == 1 &&
              t.longest[GX_OF_TARGET] == 9,
          "cut %ld, %ld; longest %ld, %ld", (long)t.cut[0], (long)t.cut[1], (long)t.longest[0], (long)t.longest[1]);
    gx_source_texts_close(&t), gx_records_close(&file), gx_tokenizer_close(&bytes);
}

// Sources are read as in training, unless the command says otherwise.
TEST(a_model_writes_targets_of_sources_as_it_has_read_them)
{
    char line[600];
    CHECK(run("reads", "--source_prefix abc --max_source_length 20") == 0, "%s", said.log);
    snprintf(line, sizeof line, "--model %s/reads/checkpoint-4 --predict %s/sources.tsv --predictions %s/read.jsonl",
             folder, folder, folder);
    CHECK(run("none", line) == 0, "%s", said.log);
    CHECK(strstr(said.out, "source_prefix=\"abc\"") && strstr(said.out, "max_source_length=20"), "%s", said.out);
    remove(path_of("read.jsonl"));
    strcat(line, " --source_prefix f");
    CHECK(run("none", line) == 0, "%s", said.log);
    CHECK(strstr(said.out, "source_prefix=\"f\"") && strstr(said.out, "max_source_length=20"), "%s", said.out);
    remove(path_of("read.jsonl"));
    strcat(line, " --target_column other");
    CHECK(run("none", line) != 0 && strstr(said.log, "there is no column \"other\""), "%s", said.log);
    strcat(line, " --sample_only");
    CHECK(run("none", line) != 0 && strstr(said.log, "--sample_only reads held-out samples"), "%s", said.log);
}

// ---- config.json and weights ---------------------------------------------------------------------------------------

static void expect_config(const char *json, const char *words)
{
    GxBartConfig c;
    GxError err = GX_ZERO;
    write_file("config.json", json);
    const GxStatus status = gx_bart_config_read(&c, path_of("config.json"), &gx_silent, &err);
    CHECK(words ? status != GX_OK && strstr(err.message, words) : status == GX_OK, "%s: \"%s\"", json, err.message);
}

TEST(a_config_json_that_asks_for_something_else_is_refused_by_file_and_key)
{
    expect_config("{\"model_type\": \"bart\"}", NULL);
    expect_config("{\"model_type\": \"bart\", \"normalize_embedding\": true, \"add_bias_logits\": false}", NULL);
    expect_config("{\"model_type\": \"bart\", \"scale_embedding\": true}", "scale_embedding is true");
    expect_config("{\"model_type\": \"bart\", \"tie_word_embeddings\": false}", "tie_word_embeddings is false");
    expect_config("{\"model_type\": \"bart\", \"encoder_layerdrop\": 0.1}", "encoder_layerdrop is 0.1");
    expect_config("{\"model_type\": \"bart\", \"activation_function\": \"relu\"}", "activation_function is \"relu\"");
    expect_config("{\"model_type\": \"bart\", \"normalize_before\": true}", "norms would be before");
    expect_config("{\"model_type\": \"bart\", \"static_position_embeddings\": true}", "positions would not be learned");
    expect_config("{\"model_type\": \"bart\", \"decoder_start_token_id\": null}", "decoder_start_token_id");
    expect_config("{\"model_type\": \"bart\", \"d_model\": 1000, \"encoder_attention_heads\": 10, "
                  "\"decoder_attention_heads\": 16}",
                  "is not a multiple of decoder_attention_heads");
    expect_config("{\"model_type\": \"mbart\"}", "model_type is \"mbart\"");
}

TEST(a_config_json_says_every_field_and_reads_back_the_same)
{
    const GxBartConfig c = {61, 36, 2, 3, 6, 4, 40, 44, 16, 7, 5, 3, 4, "gelu_new", 0.1, 0.2, 0.15, 0.3};
    GxBartConfig back;
    GxError err = GX_ZERO;
    CHECK(gx_bart_config_write(&c, path_of("config.json"), &err) == GX_OK, "%s", err.message);
    CHECK(gx_bart_config_read(&back, path_of("config.json"), &gx_silent, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < gx_bart.n_fields; i++) {
        const GxField *f = &gx_bart.fields[i];
        const size_t size = f->type == GX_FIELD_STRING ? 3 : 8;
        CHECK(!memcmp(gx_field_in(f, &c), gx_field_in(f, &back), size), "%s", f->name);
    }
}

// Writes folder/changed: the reference without the prefix of its names; without its table of tokens, but under the names
// of its users; with a bias of the logits; with another table for the encoder.
enum { BARE, BY_USERS, BIASED, APART };
static void write_changed(int change)
{
    enum { MOST = 200 };
    static const char *const users[] = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"};
    static GxSafetensorsEntry entry[MOST];
    const GxSafetensorsEntry *from[MOST];
    float values[4096];
    GxSafetensors s;
    GxSafetensorsWriter w;
    GxError err = GX_ZERO;
    int n = 0;
    CHECK(gx_safetensors_open(&s, "data/ref/bart_odd/model.safetensors", &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < s.n; i++) {
        const char *name = s.entry[i].name;
        const int is_table = !strcmp(name, "model.shared.weight"), copies = is_table && change % 2 ? 2 : 1;
        for (int copy = 0; copy < copies; copy++, n++) {
            if (is_table && change == BY_USERS) name = users[copy];
            if (is_table && change == APART && copy) name = users[0];
            entry[n] = s.entry[i], from[n] = &s.entry[i];
            snprintf(entry[n].name, sizeof entry[n].name, "%s",
                     change == BARE && !strncmp(name, "model.", 6) ? name + 6 : name);
        }
    }
    mkdir(path_of("changed"), 0777);
    CHECK(gx_safetensors_create(&w, path_of("changed/model.safetensors"), entry, n, NULL, 0, &err) == GX_OK, "%s",
          err.message);
    for (int i = 0; i < n; i++) {
        CHECK(gx_safetensors_read(&s, from[i], 0, from[i]->elements, values, &err) == GX_OK, "%s", err.message);
        if (change == BIASED && !strcmp(entry[i].name, "final_logits_bias")) values[5] = 0.25f;
        if (change == APART && !strcmp(entry[i].name, users[0])) values[7] += 1;
        gx_safetensors_write_floats(&w, entry[i].name, 0, values, from[i]->elements, &err);
    }
    CHECK(gx_safetensors_finish(&w, &err) == GX_OK, "%s", err.message);
    gx_safetensors_close(&s);
    char *config = read_file("data/ref/bart_odd/config.json");
    write_file("changed/config.json", config);
    free(config);
}

// Trains the changed folder, in a vocabulary that has no bytes: the file's tokens are 37.
static int run_changed(const char *name)
{
    char more[300];
    snprintf(more, sizeof more, "--model %s/changed --tokenizer %s/tokens --max_steps 1 --learning_rate 0 --seq_len 12",
             folder, folder);
    return run(name, more);
}

TEST(files_may_have_other_names_for_the_same_and_none_for_what_is_apart)
{
    char *saved, *again;
    int64_t n, m;
    write_changed(BARE);
    CHECK(run_changed("bare") == 0, "%s", said.log);
    write_changed(BY_USERS);
    CHECK(run_changed("by_users") == 0, "%s", said.log);
    saved = read_bytes(path_of("bare/checkpoint-1/model.safetensors"), &n);
    again = read_bytes(path_of("by_users/checkpoint-1/model.safetensors"), &m);
    CHECK(n > 0 && n == m && !memcmp(saved, again, (size_t)n), "%ld and %ld bytes, or others", (long)n, (long)m);
    free(saved), free(again);
    write_changed(BIASED);
    CHECK(run_changed("biased") != 0 && strstr(said.log, "element 5 of final_logits_bias is 0.25; only 0"), "%s",
          said.log);
    write_changed(APART);
    CHECK(run_changed("apart") != 0 && strstr(said.log, "model.encoder.embed_tokens.weight"), "%s", said.log);
}

TEST(an_adapter_says_that_it_is_of_sequence_to_sequence)
{
    char more[300];
    snprintf(more, sizeof more, "--model %s --tuning lora", begun());
    CHECK(run("lora", more) == 0, "%s", said.log);
    CHECK(file_has(path_of("lora/checkpoint-4/adapter_config.json"), "\"task_type\": \"SEQ_2_SEQ_LM\""), "task_type");
    snprintf(more, sizeof more, "--model %s --tuning adapter --adapter_reduction_dim 3", begun());
    CHECK(run("adapters", more) == 0, "%s", said.log);
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_files); }
