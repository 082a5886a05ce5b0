// test_bart_run.cu: BART and mBART as a program (train_bart): what a batch of sources and targets holds, by hand; packing, ranks and
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
             folder, folder, name,
             strstr(more, "--model ") || strstr(more, "--resume ") || strstr(more, "--adapter ") ? "" : sizes, more);
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
    const GxTextFrame frame = {-1, 2, 1, 9, 2, 0, 0, {0, 0}};
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

// An encoder's layer, its other one and a decoder's one: each stage but the last sends the memory, or what becomes it.
// Sources have more columns than targets.
static const char four[] = "--micro_batch_size 1 --global_batch_size 4 --max_source_length 22";

TEST(stages_have_the_losses_of_one_rank)
{
    static const char *const layers[] = {"(1f1b, layers 1,1,1)", "(gpipe, layers 2,1)", "(interleaved, layers 1,1,1,1)",
                                         "(1f1b, layers 2,1)",   "(1f1b, layers 2,1)",  "(1f1b, layers 1,2)"};
    static const char *const ways[] = {
        "--ranks 3 --pp 3",
        "--ranks 2 --pp 2 --pipeline_schedule gpipe --recompute layer",
        "--ranks 2 --pp 2 --pipeline_schedule interleaved --encoder_layers 3",
        "--ranks 4 --pp 2 --tp 2 --mode galaxy",
        "--ranks 4 --pp 2 --zero 3 --gradient_accumulation_steps 2",
        "--ranks 2 --pp 2 --stage_num_hidden_layers_list 1,2 --overlap false",
    };
    char more[300];
    double one[5];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *deeper = strstr(ways[i], "--encoder_layers") ? "--encoder_layers 3" : "";
        if (i == 0 || i == 2 || i == 3) { // others have the layers of the one before
            snprintf(more, sizeof more, "%s --overwrite_output_dir true %s", four, deeper);
            CHECK(run("one", more) == 0, "%s", said.log);
            memcpy(one, told.window, sizeof one);
        }
        snprintf(more, sizeof more, "%s --overwrite_output_dir true %s", four, ways[i]);
        CHECK(run("stages", more) == 0, "%s: %s", ways[i], said.log);
        CHECK(strstr(said.out, layers[i]) != NULL, "%s: no \"%s\" in \"%.300s\"", ways[i], layers[i], said.out);
        for (int s = 1; s <= 4; s++) test_close_number(ways[i], told.window[s], one[s], 1e-5);
    }
}

// Of three stages the one in the middle never has logits.
TEST(stages_continue_what_one_rank_began_and_write_what_it_writes)
{
    char more[500], *one, *stages;
    double whole[7];
    snprintf(more, sizeof more, "%s --max_steps 6 --save_steps 3", four);
    CHECK(run("uncut", more) == 0, "%s", said.log);
    memcpy(whole, told.window, sizeof whole);
    snprintf(more, sizeof more, "%s --max_steps 6 --resume %s/uncut/checkpoint-3 --ranks 3 --pp 3", four, folder);
    CHECK(run("staged", more) == 0, "%s", said.log);
    for (int s = 5; s <= 6; s++) test_close_number("resumed on stages", told.window[s], whole[s], 1e-5);
    for (int beams = 1; beams <= 3; beams += 2) {
        for (int pp = 1; pp <= 3; pp += 2) {
            snprintf(more, sizeof more,
                     "--model %s/staged/checkpoint-6 --predict %s/more.tsv --predictions %s/by%d.jsonl --num_beams %d "
                     "--overwrite_output_dir true --ranks %d --pp %d",
                     folder, folder, folder, 10 * beams + pp, beams, pp, pp);
            CHECK(run("none", more) == 0, "%s", said.log);
        }
        snprintf(more, sizeof more, "by%d.jsonl", 10 * beams + 1), one = read_file(path_of(more));
        snprintf(more, sizeof more, "by%d.jsonl", 10 * beams + 3), stages = read_file(path_of(more));
        CHECK(strlen(one) > 100 && !strcmp(one, stages), "%d beams: stages write\n%s, one rank\n%s", beams, stages,
              one);
        free(one), free(stages);
    }
}

// The loss is (1 - e) times that of the labels plus e times the mean of -log p over the vocabulary: a line through what
// 0 and 1 give. What is right does not depend on it.
TEST(a_loss_of_smoothed_labels_is_between_that_of_labels_and_that_of_all_tokens)
{
    static const char *const shares[] = {"0",
                                         "1",
                                         "0.25",
                                         "0.25 --ranks 2 --mode tp",
                                         "0.25 --ranks 2 --mode sp",
                                         "0.25 --ranks 2 --mode galaxy2",
                                         "0.25 --head_chunk 3"};
    enum { N = sizeof shares / sizeof *shares };
    double loss[N];
    char more[300];
    for (int i = 0; i < N; i++) {
        snprintf(more, sizeof more,
                 "--model %s --evaluate true --validation_data %s/more.tsv --label_smoothing_factor %s", begun(),
                 folder, shares[i]);
        CHECK(run("none", more) == 0, "%s: %s", shares[i], said.log);
        loss[i] = metric("loss");
        static double right;
        if (!i) right = metric("accuracy");
        CHECK(metric("accuracy") == right && right > 0, "%s: accuracy %g, not %g", shares[i], metric("accuracy"),
              right);
    }
    CHECK(loss[1] > loss[0] + 0.1, "%g of all tokens, %g of labels", loss[1], loss[0]);
    for (int i = 2; i < N; i++) test_close_number(shares[i], loss[i], 0.75 * loss[0] + 0.25 * loss[1], 1e-5);
}

// Gradients: ranks that have parts of the vocabulary, or of rows, step as one rank does.
TEST(ranks_and_modes_train_with_smoothed_labels_as_one_rank_does)
{
    static const char *const ways[] = {"--ranks 2 --mode tp", "--ranks 2 --mode sp", "--ranks 2 --mode galaxy",
                                       "--ranks 2 --micro_batch_size 2", "--head_chunk 3"};
    double one[5], hard;
    CHECK(run("hard", "--max_steps 1 --dropout 0") == 0, "%s", said.log);
    hard = told.window[1];
    CHECK(run("smooth", "--label_smoothing_factor 0.2 --dropout 0") == 0, "%s", said.log);
    memcpy(one, told.window, sizeof one);
    CHECK(fabs(one[1] - hard) > 1e-4 && one[4] < one[1], "loss %g, then %g; without smoothing %g", one[1], one[4],
          hard);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char more[200];
        snprintf(more, sizeof more,
                 "--label_smoothing_factor 0.2 --dropout 0 --global_batch_size 4 --overwrite_output_dir true %s",
                 ways[i]);
        CHECK(run("smooth_ways", more) == 0, "%s: %s", ways[i], said.log);
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

static void learned_by_heart(void)
{
    char line[600];
    if (is_there(path_of("heart"))) return;
    snprintf(line, sizeof line,
             "--d_model 32 --encoder_attention_heads 4 --decoder_attention_heads 4 --encoder_ffn_dim 64 "
             "--decoder_ffn_dim 64 --dropout 0 --max_steps 600 --micro_batch_size 16 --save_steps 0 "
             "--sample_lines 2 --validation_data %s/more.tsv --learning_rate 0.003",
             folder);
    CHECK(run("heart", line) == 0, "%s", said.log);
    CHECK(strstr(said.out, "source   ") && strstr(said.out, "written  "), "no sample: %s", said.out);
}

// A model that has learned its data by heart writes it, alone and on two ranks; other files need no targets.
TEST(targets_are_written_and_what_was_learned_by_heart_is_right)
{
    char line[600], *one, *two;
    learned_by_heart();
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

// ---- metrics of written targets ------------------------------------------------------------------------------------

// What the last validation, or --predict, says of ROUGE, BLEU, chrF and exact matches is what its lines of predictions
// score one by one.
static void check_scores(const char *predictions, const char *targets)
{
    GxError err = GX_ZERO;
    GxBleu bleu = GX_ZERO;
    GxChrf chrf = GX_ZERO;
    double sum[4] = {0, 0, 0, 0}, n = 0;
    char *lines = read_file(predictions), *tsv = read_file(targets), *row = strchr(tsv, '\n') + 1;
    for (char *line = lines, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, n++) {
        GxJson *json;
        GxRouge rouge = GX_ZERO;
        if (!CHECK(gx_json_parse(&json, line, end - line, "predictions", &err) == GX_OK, "%s", err.message)) break;
        const char *written = gx_json_string(gx_json_get(json, "target"));
        row[strcspn(row, "\t")] = 0; // the target, in front
        gx_rouge(written, row, 1, &rouge, &err), gx_bleu_add(&bleu, written, row, &err);
        gx_chrf_add(&chrf, written, row, &err);
        sum[0] += !strcmp(written, row), sum[1] += rouge.one.f, sum[2] += rouge.two.f, sum[3] += rouge.l.f;
        row = strchr(row + strlen(row) + 1, '\n') + 1;
        gx_json_free(json);
    }
    char expected[400];
    snprintf(expected, sizeof expected,
             "exactly the target %.4f | ROUGE-1 %.2f | ROUGE-2 %.2f | ROUGE-L %.2f | BLEU %.2f | chrF %.2f", sum[0] / n,
             100 * sum[1] / n, 100 * sum[2] / n, 100 * sum[3] / n, gx_bleu_score(&bleu), gx_chrf_score(&chrf));
    int64_t to = 0; // lines that were broken are put together again
    for (const char *from = said.out; *from; from++)
        if (!strchr(" \n", *from) || !to || said.out[to - 1] != ' ') said.out[to++] = *from == '\n' ? ' ' : *from;
    said.out[to] = 0;
    CHECK(n > 0 && strstr(said.out, expected), "expected \"%s\" in \"%s\"", expected, said.out);
    free(lines), free(tsv);
}

TEST(a_validation_that_writes_targets_scores_what_a_prediction_does)
{
    static const char *const names[] = {"exact_match", "rouge1", "rouge2", "rougeL", "bleu", "chrf"};
    static const char *const ways[] = {"--ranks 2", "--ranks 2 --mode tp", "--ranks 2 --mode sp",
                                       "--ranks 2 --zero 3 --pack_texts false"};
    char line[900];
    double one[6];
    learned_by_heart();
    snprintf(line, sizeof line, "--model %s/heart/checkpoint-600 --predict %s/more.tsv --predictions %s/more.jsonl",
             folder, folder, folder);
    CHECK(run("none", line) == 0, "%s", said.log);
    check_scores(path_of("more.jsonl"), path_of("more.tsv"));
    snprintf(line, sizeof line,
             "--model %s/heart/checkpoint-600 --evaluate true --predict_with_generate true --validation_data "
             "%s/more.tsv",
             folder, folder);
    CHECK(run("none", line) == 0, "%s", said.log);
    check_scores(path_of("more.jsonl"), path_of("more.tsv"));
    for (int k = 0; k < 6; k++) one[k] = metric(names[k]);
    CHECK(one[1] > 0 && one[5] > 0 && one[5] < 100, "ROUGE-1 %g, chrF %g", one[1], one[5]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(line, sizeof line,
                 "--model %s/heart/checkpoint-600 --evaluate true --predict_with_generate true --validation_data "
                 "%s/more.tsv %s",
                 folder, folder, ways[i]);
        CHECK(run("none", line) == 0, "%s: %s", ways[i], said.log);
        // the same texts, in another order
        for (int k = 0; k < 6; k++)
            CHECK(fabs(metric(names[k]) - one[k]) <= 1e-12 * one[k], "%s: %s is %.17g, of one rank %.17g", ways[i],
                  names[k], metric(names[k]), one[k]);
    }
    // of some columns only: of one pair that is right or not
    snprintf(line, sizeof line,
             "--model %s/heart/checkpoint-600 --evaluate true --predict_with_generate true --validation_data "
             "%s/more.tsv --pack_texts false --max_eval_samples 1",
             folder, folder);
    CHECK(run("none", line) == 0, "%s", said.log);
    CHECK(metric("exact_match") == 0 || metric("exact_match") == 1, "%g of one target", metric("exact_match"));
    CHECK(metric("chrf") != one[5], "chrF of one pair is that of all, %g", one[5]);
}

TEST(validations_that_write_targets_change_no_weight_and_choose_the_best_checkpoint)
{
    int64_t n, m;
    char *log, *state, best[60], expected[60];
    double most = -1;
    int at = 0;
    static const char common[] = "--d_model 32 --encoder_attention_heads 4 --decoder_attention_heads 4 "
                                 "--encoder_ffn_dim 64 --decoder_ffn_dim 64 "
                                 "--dropout 0.1 --max_steps 120 --eval_steps 20 --max_eval_samples 0 "
                                 "--micro_batch_size 16 --learning_rate 0.003 "
                                 "--validation_data";
    char line[700];
    snprintf(line, sizeof line, "%s %s/train.tsv", common, folder);
    CHECK(run("silent", line) == 0, "%s", said.log);
    CHECK(isnan(metric("rouge1")), "a validation that writes nothing has rouge1 %g", metric("rouge1"));
    snprintf(line, sizeof line, "%s %s/train.tsv --predict_with_generate true --metric_for_best_model eval_chrf",
             common, folder);
    CHECK(run("writes", line) == 0, "%s", said.log);
    char *silent = read_bytes(path_of("silent/checkpoint-120/model.safetensors"), &n),
         *writes = read_bytes(path_of("writes/checkpoint-120/model.safetensors"), &m);
    CHECK(n > 0 && n == m && !memcmp(silent, writes, (size_t)n), "%ld and %ld bytes, or others", (long)n, (long)m);
    free(silent), free(writes);
    log = read_file(path_of("writes/log.jsonl"));
    for (char *p = log; (p = strstr(p, "\"eval_chrf\":")) != NULL; p++) {
        const double chrf = atof(p + strlen("\"eval_chrf\":"));
        char *begin = p;
        while (begin > log && begin[-1] != '\n') begin--;
        const int step = atoi(strstr(begin, "\"step\":") + strlen("\"step\":"));
        if (strstr(begin, "\"eval_rougeL\":") == NULL) CHECK(0, "no rougeL in the log");
        if (chrf > most) most = chrf, at = step;
    }
    snprintf(expected, sizeof expected, "\"best_global_step\": %d", at);
    state = read_file(path_of("writes/checkpoint-120/trainer_state.json"));
    const char *said_best = strstr(state, "\"best_global_step\"");
    snprintf(best, sizeof best, "%.*s", said_best ? (int)strcspn(said_best, ",\n") : 0, said_best ? said_best : "");
    CHECK(!strcmp(best, expected), "%s, expected %s (chrF %g)", best, expected, most);
    CHECK(at > 20 && most > 0, "the best is step %d, chrF %g", at, most);
    free(log), free(state);
    expect_error("--eval_steps 2 --metric_for_best_model rouge1 --validation_data data/none.tsv", "data/none.tsv");
    snprintf(line, sizeof line, "--eval_steps 2 --metric_for_best_model rouge1 --validation_data %s/more.tsv", folder);
    expect_error(line, "rouge1 is of targets that are written; --predict_with_generate writes them");
    snprintf(line, sizeof line,
             "--eval_steps 2 --metric_for_best_model rougeLsum --predict_with_generate true --validation_data "
             "%s/more.tsv",
             folder);
    expect_error(line, "reports loss, perplexity, accuracy, exact_match, rouge1, rouge2, rougeL, bleu, chrf");
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
    expect_error("--label_smoothing_factor 1.5", "label_smoothing_factor");
    expect_error(
        "--pp 2 --ranks 2 --pipeline_schedule zb1p",
        "--pipeline_schedule zb1p of a bart, which has an encoder and a decoder, is not supported yet; use 1f1b");
    expect_error("--ranks 3 --stage_tp_list 2,1 --mode tp", "--stage_tp_list of a bart, which has an encoder");
    for (int i = 0; i < 3; i++) // each time; not all ranks have a shared tensor
        expect_error("--ranks 4 --pp 2 --zero 3 --gathered_units 1", "units of a stage share tensors");
    expect_error("--pp 4 --ranks 4", "--pp 4: the model has 3 layers");
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
    const GxTextFrame frame = {0, 2, 1, 9, 2, 0, 0, {0, 0}};
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

// ---- languages -----------------------------------------------------------------------------------------------------

// Letters a to f from id 5 on, and A to F behind them; then en_XX, ro_RO and ro_XX. is_first: languages are before texts,
// as in mBART-50, and are no special tokens.
enum { A_LOWER = 5, A_UPPER = 11, EN = 17, RO = 18 };
static void write_languages(const char *name, int is_first)
{
    static const char token[] = "{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                                "\"rstrip\": false, \"normalized\": false, \"special\": true}";
    static const char *const names[] = {"<s>", "<pad>", "</s>", "<unk>", "en_XX", "ro_RO", "ro_XX"};
    static const char metaspace[] = "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": "
                                    "\"never\", \"split\": false}",
                      part[] = "{\"SpecialToken\": {\"id\": \"%s\", \"type_id\": 0}}",
                      whole[] = "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}",
                      second[] = "{\"Sequence\": {\"id\": \"B\", \"type_id\": 0}}";
    char text[6000] = "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [", file[100],
         single[400], end[100], language[100];
    for (int i = 0; i < (is_first ? 4 : 7); i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", i ? ", " : "");
        snprintf(text + strlen(text), sizeof text - strlen(text), token, i < 4 ? i : EN + i - 4, names[i]);
    }
    snprintf(end, sizeof end, part, "</s>"), snprintf(language, sizeof language, part, "en_XX");
    snprintf(single, sizeof single, "%s, %s, %s", is_first ? language : whole, is_first ? whole : end,
             is_first ? end : language);
    snprintf(
        text + strlen(text), sizeof text - strlen(text),
        "], \"normalizer\": null, \"pre_tokenizer\": %s, \"decoder\": %s, \"post_processor\": {\"type\": "
        "\"TemplateProcessing\", \"single\": [%s], \"pair\": [%s, %s], \"special_tokens\": {\"</s>\": {\"id\": "
        "\"</s>\", \"ids\": [2], \"tokens\": [\"</s>\"]}, \"en_XX\": {\"id\": \"en_XX\", \"ids\": [17], "
        "\"tokens\": [\"en_XX\"]}}}, \"model\": {\"type\": \"Unigram\", \"unk_id\": 3, \"vocab\": [[\"<s>\", 0.0], "
        "[\"<pad>\", 0.0], [\"</s>\", 0.0], [\"<unk>\", 0.0], [\"\xe2\x96\x81\", -2.0]",
        metaspace, metaspace, single, single, second);
    for (int i = 0; i < 12; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ", [\"%c\", -3.0]", (i < 6 ? 'a' : 'A' - 6) + i);
    for (int i = 4; i < 7; i++) snprintf(text + strlen(text), sizeof text - strlen(text), ", [\"%s\", 0.0]", names[i]);
    snprintf(text + strlen(text), sizeof text - strlen(text), "], \"byte_fallback\": false}}");
    mkdir(path_of(name), 0777);
    snprintf(file, sizeof file, "%s/tokenizer.json", name);
    write_file(file, text);
}

static void check_languages(int is_first, const char *ids[2][3])
{
    GxTextFrame frame = {-1, 2, 1, -1, 2, 1, 0, {0, 0}};
    const GxLanguages names = {"en_XX", "ro_RO"};
    const GxSourceForm form = {&frame, "", {6, 5}};
    GxRecords file;
    GxSourceTexts t = GX_ZERO;
    GxTokenizer tokenizer;
    GxError err = GX_ZERO;
    write_languages("languages", is_first);
    write_file("said.tsv", "source\ttarget\nabc\tFA\nabcdef\tABCDEF\na\tA\n");
    if (!CHECK(gx_tokenizer_open(&tokenizer, path_of("languages"), &err) == GX_OK, "%s", err.message)) return;
    CHECK(gx_languages_resolve(&frame, &names, &tokenizer, &err) == GX_OK, "%s", err.message);
    CHECK(frame.start == (is_first ? 2 : RO) && frame.language_first == is_first, "targets begin with %d", frame.start);
    CHECK(gx_source_file_open(&file, path_of("said.tsv"), "source", "target", 0, NULL, &err) == GX_OK &&
              gx_source_texts_open(&t, &file, GX_TEXTS_ALL, 0, &err) == GX_OK &&
              gx_source_texts_tokenize(&t, &tokenizer, &form, 1, &err) == GX_OK,
          "%s", err.message);
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < 3 && t.ids[which]; i++) {
            char text[100] = "";
            for (int k = 0; k < t.length[which][i]; k++) sprintf(text + strlen(text), "%d ", t.ids[which][i][k]);
            CHECK(!strcmp(text, ids[which][i]), "text %d of %d: %s", i, which, text);
        }
    CHECK(t.cut[0] == 1 && t.longest[0] == 8 && t.cut[1] == 1 && t.longest[1] == 8, "cut %ld %ld, longest %ld %ld",
          (long)t.cut[0], (long)t.cut[1], (long)t.longest[0], (long)t.longest[1]);
    gx_source_texts_close(&t), gx_records_close(&file), gx_tokenizer_close(&tokenizer);
}

// As transformers' MBartTokenizer and MBart50Tokenizer make them (dev/ref/load_seq2seq.py compares what is written).
TEST(texts_of_an_mbart_have_their_languages_behind_them)
{
    static const char *ids[2][3] = {{"5 6 7 2 17 ", "5 6 7 8 2 17 ", "5 2 17 "},
                                    {"16 11 2 18 ", "11 12 13 2 18 ", "11 2 18 "}};
    check_languages(0, ids);
}
TEST(texts_of_an_mbart_50_have_their_languages_before_them)
{
    static const char *ids[2][3] = {{"17 5 6 7 2 ", "17 5 6 7 8 2 ", "17 5 2 "},
                                    {"18 16 11 2 ", "18 11 12 13 2 ", "18 11 2 "}};
    check_languages(1, ids);
}

static int run_mbart(const char *name, const char *more)
{
    char line[1200];
    snprintf(line, sizeof line, "--model_type mbart --scale_embedding true --tokenizer %s/languages %s", folder, more);
    return run(name, line);
}

static void expect_mbart_error(const char *more, const char *words)
{
    const int status = run_mbart("refused", more);
    CHECK(status != 0 && strstr(said.log, words), "%s: %d \"%s\"", more, status, said.log);
}

// A model learns by heart; what it has read it reads again, and transformers is told how its targets begin.
TEST(an_mbart_writes_in_the_language_that_it_was_trained_for)
{
    for (int is_first = 0; is_first < 2; is_first++) {
        char line[800];
        write_languages("languages", is_first);
        CHECK(run_mbart("mbart", "--source_lang en_XX --target_lang ro_RO --d_model 32 --encoder_attention_heads 4 "
                                 "--decoder_attention_heads 4 --dropout 0 --max_steps 500 --micro_batch_size 16 "
                                 "--save_steps 0 --learning_rate 0.005") == 0,
              "%s", said.log);
        const char *config = path_of("mbart/checkpoint-500/config.json");
        CHECK(file_has(config, is_first ? "\"decoder_start_token_id\": 2" : "\"decoder_start_token_id\": 18") &&
                  file_has(config, "\"forced_bos_token_id\": 18") == is_first,
              "%d: %s", is_first, config);
        for (int own = 0; own < 2; own++) { // the second time generation_config.json says it
            remove(path_of("one.jsonl"));
            snprintf(line, sizeof line,
                     "--model %s/mbart/checkpoint-500 --predict %s/train.tsv --predictions %s/one.jsonl", folder,
                     folder, folder);
            CHECK(run("none", line) == 0 && !strstr(said.log, "ignored"), "%s", said.log);
            const char *words = strstr(said.out, "exactly the target ");
            const double right = words ? atof(words + strlen("exactly the target ")) : 0;
            CHECK(right > 0.6, "%d: %g of the targets are right", is_first, right);
            char *written = read_file(path_of("one.jsonl"));
            CHECK(written[0] && !strstr(written, "\"ro_RO") && !strstr(written, "</s>"), "%s", written);
            free(written);
            write_file("mbart/checkpoint-500/generation_config.json", "{\"num_beams\": 2}");
            unlink(path_of("mbart/checkpoint-500/manifest.json"));
        }
        // one token of targets in another language: an mBART-50 has to write the language, which is no part of the text,
        // though it has learned to begin with another
        remove(path_of("one.jsonl"));
        snprintf(
            line, sizeof line,
            "--model %s/mbart/checkpoint-500 --predict %s/train.tsv --predictions %s/one.jsonl --target_lang ro_XX "
            "--max_length 2",
            folder, folder, folder);
        CHECK(run("none", line) == 0, "%s", said.log);
        char *other = read_file(path_of("one.jsonl"));
        CHECK(other[0] && !strstr(other, is_first ? "\"target\":\"r" : "\"ro_"), "%s", other);
        free(other);
        snprintf(line, sizeof line,
                 "--model %s/mbart/checkpoint-500 --source_lang en_XX --target_lang ro_XX --max_steps 1", folder);
        CHECK(run("onward", line) == 0, "%s", said.log);
        CHECK(file_has(path_of("onward/checkpoint-1/generation_config.json"),
                       is_first ? "\"forced_bos_token_id\": 19" : "\"decoder_start_token_id\": 19"),
              "%d: not the new language", is_first);
        snprintf(line, sizeof line, "rm -rf %s/onward %s/mbart", folder, folder);
        CHECK(system(line) == 0, "cannot remove");
    }
}

TEST(languages_that_are_missing_or_unknown_are_refused_by_name)
{
    char more[500];
    write_languages("languages", 0);
    expect_mbart_error("",
                       "--source_lang is missing: texts of an mBART have the token of their language; the tokenizer");
    expect_mbart_error("--source_lang en_XX", "--target_lang is missing");
    expect_mbart_error("--source_lang en_XX", ") has en_XX, ro_RO, ro_XX\n");
    expect_mbart_error("--source_lang en_XX --target_lang ro", "--target_lang is \"ro\", which is no token");
    expect_mbart_error("--source_lang en_XX --target_lang ro", "it has ro_RO, ro_XX\n");
    expect_mbart_error("--source_lang EN --target_lang ro_RO", "it has en_XX\n");
    expect_mbart_error("--source_lang de_DE --target_lang ro_RO", "it has en_XX, ro_RO, ro_XX");
    expect_mbart_error("--source_lang en_XX --target_lang ro_RO --tokenizer bytes", "it has none such as en_XX");
    expect_mbart_error("--source_lang en_XX --target_lang ro_RO --seq_len 2", "a target needs at least 3 tokens");
    expect_mbart_error("--source_lang en_XX --target_lang ro_RO --decoder_start_token_id 5",
                       "decoder_start_token_id is 5, but the decoder of an mBART first reads the language");
    expect_error("--target_lang ro_RO", "--target_lang is given, but of the models with an encoder");
    expect_error("--model_type t5", "model_type");
    write_languages("languages", 1); // codes that are ordinary tokens
    write_file("codes.tsv", "source\ttarget\nab\tAB\nro_RO\tA\n");
    snprintf(more, sizeof more, "--source_lang en_XX --target_lang ro_RO --train_data %s/codes.tsv", folder);
    expect_mbart_error(more, ":3: a text has the token \"ro_RO\", whose id 18 is that of --target_lang");
}

// Like peft, which has no default for an mBART.
TEST(lora_of_an_mbart_needs_names_of_modules)
{
    char more[600];
    write_languages("languages", 0);
    CHECK(run_mbart("base", "--source_lang en_XX --target_lang ro_RO") == 0, "%s", said.log);
    static const char languages[] = "--source_lang en_XX --target_lang ro_RO --tuning lora";
    snprintf(more, sizeof more, "--model %s/base/checkpoint-4 %s", folder, languages);
    expect_error(more, "--lora_target_modules is empty, and there is no default for an mBART");
    strcat(more, " --lora_target_modules q_proj,encoder_attn.v_proj");
    CHECK(run("lora_mbart", more) == 0, "%s", said.log);
    CHECK(file_has(path_of("lora_mbart/checkpoint-4/adapter_config.json"), "\"task_type\": \"SEQ_2_SEQ_LM\""), "type");
    remove(path_of("one.jsonl"));
    snprintf(more, sizeof more,
             "--adapter %s/lora_mbart/checkpoint-4 --predict %s/train.tsv --predictions %s/one.jsonl", folder, folder,
             folder);
    CHECK(run("none", more) == 0, "%s", said.log);
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
    expect_config("{\"model_type\": \"bart\", \"scale_embedding\": true}", NULL);
    expect_config("{\"model_type\": \"bart\", \"scale_embedding\": 2}", "scale_embedding");
    expect_config("{\"model_type\": \"bart\", \"tie_word_embeddings\": false}", "tie_word_embeddings is false");
    expect_config("{\"model_type\": \"bart\", \"encoder_layerdrop\": 0.1}", "encoder_layerdrop is 0.1");
    expect_config("{\"model_type\": \"bart\", \"activation_function\": \"relu\"}", NULL);
    expect_config("{\"model_type\": \"bart\", \"activation_function\": \"silu\"}", "activation_function is \"silu\"");
    expect_config("{\"model_type\": \"bart\", \"normalize_before\": true}", "norms would be before");
    expect_config("{\"model_type\": \"bart\", \"static_position_embeddings\": true}", "positions would not be learned");
    expect_config("{\"model_type\": \"bart\", \"decoder_start_token_id\": null}", "decoder_start_token_id");
    expect_config("{\"model_type\": \"bart\", \"d_model\": 1000, \"encoder_attention_heads\": 10, "
                  "\"decoder_attention_heads\": 16}",
                  "is not a multiple of decoder_attention_heads");
    expect_config("{\"model_type\": \"bart\", \"decoder_start_token_id\": -1}", "decoder_start_token_id is -1");
    expect_config("{\"model_type\": \"mbart\"}", NULL);
    expect_config("{\"model_type\": \"mbart\", \"decoder_start_token_id\": null}", NULL);
    expect_config("{\"model_type\": \"mbart\", \"decoder_start_token_id\": 250020}", NULL);
    expect_config("{\"model_type\": \"mbart\", \"decoder_start_token_id\": \"ro\"}", "decoder_start_token_id");
    expect_config("{\"model_type\": \"mbart\", \"normalize_before\": false}", "norms would be behind");
    expect_config("{\"model_type\": \"mbart\", \"add_final_layer_norm\": false}", "would not end with a norm");
    expect_config("{\"model_type\": \"m2m_100\"}", "model_type is \"m2m_100\"");
}

TEST(a_config_json_says_every_field_and_reads_back_the_same)
{
    const GxBartConfig both[] = {
        {61, 36, 2, 3, 6, 4, 40, 44, 16, 7, 5, 3, 4, "gelu_new", 0.1, 0.2, 0.15, 0.3, 0, "bart"},
        {61, 36, 2, 3, 6, 4, 40, 44, 16, 7, 5, 3, -1, "relu", 0.1, 0.2, 0.15, 0.3, 1, "mbart"}};
    for (int which = 0; which < 2; which++) {
        const GxBartConfig *c = &both[which];
        GxBartConfig back;
        GxError err = GX_ZERO;
        CHECK(gx_bart_config_write(c, path_of("config.json"), &err) == GX_OK, "%s", err.message);
        CHECK(gx_bart_config_read(&back, path_of("config.json"), &gx_silent, &err) == GX_OK, "%s", err.message);
        for (int i = 0; i < gx_bart.n_fields; i++) {
            const GxField *f = &gx_bart.fields[i];
            const size_t size = f->type == GX_FIELD_STRING ? 3 : f->type == GX_FIELD_BOOL ? sizeof(int) : 8;
            CHECK(!memcmp(gx_field_in(f, c), gx_field_in(f, &back), size), "%s of %s", f->name, c->model_type);
        }
        CHECK(file_has(path_of("config.json"), which ? "\"decoder_start_token_id\": null" : "_start_token_id\": 4") &&
                  file_has(path_of("config.json"), which ? "\"MBartForC" : "\"BartForC"),
              "%s", c->model_type);
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
