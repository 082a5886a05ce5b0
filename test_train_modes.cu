// test_train_modes.cu: the programs of the modes (train_llama_tp and its siblings) and train_llama with --mode, or with
// --att, --con, --mlp and --ends, as their users meet them. See test/program.h.
#include "test/program.h"
#include "galaxy/model/mode.h"
#include "galaxy/run/process_memory.h"

#define NAME(name, att, con, mlp) #name,
static const char *const modes[] = {GX_MODES(NAME)};
enum { MODES = sizeof modes / sizeof *modes };

typedef struct {
    const char *program, *flags;
} Way;

static int use_mode(const char *name)
{
    char program_name[100];
    snprintf(program_name, sizeof program_name, "train_llama_%s", name);
    return use_program(program_name);
}

static GxMethods methods_of(const char *name)
{
    GxMethods m = {GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE};
    CHECK(gx_mode_methods(name, &m), "there is no mode %s", name);
    return m;
}

// Unequal parts of all that a mode splits among 2 or 3 ranks. The tiny model has four query heads on two K,V heads:
// 2,1,1 share the second of them, 1,3 the first.
static const char *unequal(const char *mode, int ranks)
{
    static char flags[300];
    const GxMethods m = methods_of(mode);
    const int three = ranks == 3;
    snprintf(flags, sizeof flags, "%s%s%s%s",
             m.att != GX_METHOD_TP ? ""
             : three               ? " --tp_num_attention_heads_list 2,1,1"
                                   : " --tp_num_attention_heads_list 1,3",
             m.mlp != GX_METHOD_TP ? ""
             : three               ? " --tp_intermediate_size_list 40,20,4"
                                   : " --tp_intermediate_size_list 63,1",
             m.ends != GX_METHOD_TP ? ""
             : three                ? " --tp_vocab_size_list 100,6,150"
                                    : " --tp_vocab_size_list 3,253",
             !gx_methods_have(m, GX_METHOD_SP) ? ""
             : three                           ? " --seq_scatter_list 8,4,20"
                                               : " --seq_scatter_list 31,1");
    return flags;
}

// ---- it trains -----------------------------------------------------------------------------------------------------

// The same samples under every mode, by SGD (AdamW turns rounding noise in gradients near zero into steps of lr).
static Log run_way(const char *dir, const char *flags)
{
    char checkpoint[120];
    CHECK_RAN(run("--output_dir %s --max_steps 4 --optimizer sgd --learning_rate 0.5 %s", dir, flags));
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", flags, err());
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-4", dir);
    check_whole(checkpoint);
    return read_log(dir);
}

static void check_losses(const char *what, const Log *l, const Log *serial)
{
    CHECK(l->steps == 4 && serial->steps == 4, "%s: %d and %d steps", what, l->steps, serial->steps);
    check_close_series(what, l->loss, serial->loss, 4, 1);
    check_close_series(what, l->grad_norm, serial->grad_norm, 4, 1);
    CHECK(fabs(l->bits - serial->bits) < 1e-4, "%s: %g bits per byte on the held-out text, not %g", what, l->bits,
          serial->bits);
}

// Each mode goes every second of the ways, each way is gone by two modes.
TEST(every_mode_has_the_losses_of_serial)
{
    if (!use_program("train_llama")) return;
    const Log serial = run_way("serial", "--micro_batch_size 4");
    for (int m = 0; m < MODES; m++) {
        const struct {
            const char *flags, *lists;
            int ranks; // of the lists; 0: equal parts
        } ways[] = {{"--micro_batch_size 4", "", 0},
                    {"--ranks 4 --micro_batch_size 4", "", 0},
                    {"--ranks 4 --tp 2 --micro_batch_size 2 --tie_word_embeddings false", "", 0},
                    {"--ranks 2 --micro_batch_size 4", "", 2},
                    {"--ranks 4 --tp 2 --dp_batch_size_list 3,1", "", 2},
                    {"--ranks 3 --micro_batch_size 2 --gradient_accumulation_steps 2", "", 3}};
        if (!use_mode(modes[m])) return;
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            char dir[100], flags[600];
            if (is_brief() ? i != 5 : !test_long() && (int)i % 2 != m % 2) continue;
            snprintf(dir, sizeof dir, "%s%d", modes[m], (int)i);
            snprintf(flags, sizeof flags, "%s%s", ways[i].flags, ways[i].ranks ? unequal(modes[m], ways[i].ranks) : "");
            const Log l = run_way(dir, flags);
            check_losses(flags, &l, &serial);
        }
    }
}

// One weight norms the heads of all ranks.
TEST_UNSANITIZED(a_qwen3_has_the_losses_of_serial_in_every_mode)
{
    if (!use_program("train_llama")) return;
    const Log serial = run_way("qwen3", "--model_type qwen3 --head_dim 10 --micro_batch_size 4");
    for (int m = 0; m < MODES; m++) {
        char dir[100], flags[600];
        if (!use_mode(modes[m])) return;
        snprintf(dir, sizeof dir, "qwen3_%s", modes[m]);
        snprintf(flags, sizeof flags, "--model_type qwen3 --head_dim 10 --ranks 3 --micro_batch_size 4%s",
                 unequal(modes[m], 3));
        const Log l = run_way(dir, flags);
        check_losses(flags, &l, &serial);
    }
}

// What a block gives is normed after the sum over ranks; half of the layers have a window and a RoPE of their own.
TEST_UNSANITIZED(a_gemma3_has_the_losses_of_serial_in_every_mode_and_is_saved_as_it_was_read)
{
    static const char shape[] = "--model_type gemma3_text --head_dim 10 --sliding_window 9 --sliding_window_pattern 2 "
                                "--rope_local_base_freq 50 --query_pre_attn_scalar 16 --attention_bias true",
                      saved[] = "gemma3/checkpoint-4/model.safetensors";
    char dir[100], flags[600];
    if (!use_program("train_llama")) return;
    snprintf(flags, sizeof flags, "%s --micro_batch_size 4", shape);
    const Log serial = run_way("gemma3", flags);
    for (int m = 0; m < MODES; m++) {
        if (!use_mode(modes[m])) return;
        snprintf(dir, sizeof dir, "gemma3_%s", modes[m]);
        snprintf(flags, sizeof flags, "%s --ranks 3 --micro_batch_size 4%s", shape, unequal(modes[m], 3));
        const Log l = run_way(dir, flags);
        check_losses(flags, &l, &serial);
    }
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--model gemma3/checkpoint-4 --output_dir gemma3_pp --max_steps 1 --learning_rate 0 --weight_decay 0 "
                  "--ranks 4 --pp 2 --mode galaxy --max_shard_size 20KB"));
    CHECK_RAN(
        run("--model gemma3_pp/checkpoint-1 --output_dir gemma3_zero --max_steps 1 --learning_rate 0 --weight_decay 0 "
            "--ranks 2 --zero 3 --max_shard_size 5GB"));
    CHECK(same_file(saved, "gemma3_zero/checkpoint-1/model.safetensors"), "other weights");
}

// Matrices that are one in the file are split among ranks by their own rows, and come together again when it is saved.
TEST_UNSANITIZED(a_phi3_is_saved_in_every_mode_as_it_was_read)
{
    static const char saved[] = "phi3/checkpoint-2/model.safetensors";
    char path[100];
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir phi3 --max_steps 2 --model_type phi3 --sliding_window 9"));
    CHECK(!shell("grep -aq 'model.layers.1.self_attn.qkv_proj.weight.*mlp.gate_up_proj.weight' %s || "
                 "grep -aq 'mlp.gate_up_proj.weight.*model.layers.1.self_attn.qkv_proj.weight' %s",
                 saved, saved) &&
              shell("grep -aqE '[.](q_proj|up_proj)[.]' %s", saved),
          "the file has other tensors");
    for (int m = 0; m < MODES; m++) {
        if (!use_mode(modes[m])) return;
        CHECK_RAN(run("--model phi3/checkpoint-2 --output_dir phi3_%s --max_steps 1 --learning_rate 0 --weight_decay 0 "
                      "--ranks 3%s",
                      modes[m], unequal(modes[m], 3)));
        snprintf(path, sizeof path, "phi3_%s/checkpoint-1/model.safetensors", modes[m]);
        CHECK(same_file(saved, path), "%s: other weights", modes[m]);
    }
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--model phi3/checkpoint-2 --output_dir phi3_pp --max_steps 1 --learning_rate 0 --weight_decay 0 "
                  "--ranks 2 --pp 2 --max_shard_size 20KB"));
    CHECK_RAN(
        run("--model phi3_pp/checkpoint-1 --output_dir phi3_zero --max_steps 1 --learning_rate 0 --weight_decay 0 "
            "--ranks 2 --zero 3 --max_shard_size 5GB"));
    CHECK(same_file(saved, "phi3_zero/checkpoint-1/model.safetensors"), "other weights");
}

// The adapter of a Phi-3's stacked matrices is the same in every mode: one A, and B's rows as the matrices'.
TEST_UNSANITIZED(lora_of_a_phi3_has_the_losses_of_serial_in_every_mode)
{
    static const char flags[] = "--model phi3l/checkpoint-1 --tuning lora --lora_dim 3 --micro_batch_size 4 "
                                "--trainable_modules layers.1.mlp.gate_up_proj --target_modules "
                                "qkv_proj,layers.0.mlp.gate_up_proj,down_proj";
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir phi3l --max_steps 1 --model_type phi3"));
    CHECK_RAN(run("--output_dir phi3l_serial --max_steps 4 %s", flags));
    const Log serial = read_log("phi3l_serial");
    CHECK(!shell("grep -aq 'layers.0.self_attn.qkv_proj.lora_B.weight' "
                 "phi3l_serial/checkpoint-4/adapter_model.safetensors") &&
              shell("grep -aqE '[.](q_proj|up_proj)[.]' phi3l_serial/checkpoint-4/adapter_model.safetensors"),
          "the file has other tensors");
    for (int m = 0; m < MODES; m++) {
        char dir[100];
        if (!use_mode(modes[m])) return;
        snprintf(dir, sizeof dir, "phi3l_%s", modes[m]);
        CHECK_RAN(run("--output_dir %s --max_steps 4 --ranks 3 %s%s", dir, flags, unequal(modes[m], 3)));
        const Log l = read_log(dir);
        check_losses(modes[m], &l, &serial);
    }
}

// YaRN's q and k have no angle alone; and the parts of what is one matrix in the file have no names for an adapter.
TEST(adapters_that_do_not_fit_a_phi3_or_yarn_are_refused)
{
    static const Refusal cases[] = {
        {"--model phi3a/checkpoint-1 --tuning lora --target_modules q_proj",
         {"LoRA's target \"q_proj\" matches no linear", "model.layers.0.self_attn.qkv_proj.weight", NULL}},
        {"--model phi3a/checkpoint-1 --tuning adapter --trainable_modules q_proj",
         {"the trainable module \"q_proj\" matches no module of the model", NULL, NULL}},
        {"--model yarn/checkpoint-1 --tuning prompt",
         {"prompts are not supported with a RoPE that multiplies q and k, here by 1.13863", NULL, NULL}},
    };
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir phi3a --max_steps 1 --model_type phi3"));
    CHECK_RAN(run("--output_dir yarn --max_steps 1 --rope_type yarn --rope_factor 4"));
    CHECK_REFUSALS(cases);
}

// Messages of tiles are waited for where they are needed, with and without a second thread, whoever carries them.
TEST(galaxy_by_tiles_has_the_losses_of_serial_and_the_same_bits_over_any_engine)
{
    char flags[600];
    if (!use_program("train_llama")) return;
    const Log serial = run_way("of_serial", "--micro_batch_size 4");
    if (!use_program("train_llama_galaxy_tiled")) return;
    snprintf(flags, sizeof flags, "--micro_batch_size 2 --gradient_accumulation_steps 2%s", unequal("galaxy", 3));
    char threads[700], alone[760];
    snprintf(threads, sizeof threads, "--ranks 3 %s", flags);
    snprintf(alone, sizeof alone, "%s --overlap false --save_steps 2", threads);
    const Log tiled = run_way("tiled", threads);
    check_losses(flags, &tiled, &serial);
    run_way("tiled_alone", alone);
    check_same_checkpoint("tiled/checkpoint-4", "tiled_alone/checkpoint-4");
    snprintf(alone, sizeof alone, "%s --recompute att+mlp", threads);
    run_way("tiled_again", alone); // what is computed again is computed in the same tiles
    check_same_checkpoint("tiled/checkpoint-4", "tiled_again/checkpoint-4");
    if (!use_program("train_llama")) return; // goes on in the mode that was written once more
    CHECK_RAN(run("--output_dir tiled_on --max_steps 4 --resume tiled_alone/checkpoint-2 --mode galaxy --ranks 3 "
                  "--optimizer sgd --learning_rate 0.5 %s",
                  flags));
    const Log on = read_log("tiled_on");
    CHECK(on.steps == 2 && fabs(on.loss[1] - tiled.loss[3]) < 1e-3, "%d steps, loss %g instead of %g", on.steps,
          on.loss[1], tiled.loss[3]);
}

static void check_same_losses(const char *a, const char *b)
{
    const Log x = read_log(a), y = read_log(b);
    CHECK(x.steps == y.steps && x.steps > 0 && x.bits == y.bits, "%s and %s: %d and %d steps, %.9g and %.9g bits", a, b,
          x.steps, y.steps, x.bits, y.bits);
    for (int s = 0; s < x.steps && s < y.steps; s++)
        CHECK(x.loss[s] == y.loss[s] && x.grad_norm[s] == y.grad_norm[s], "%s and %s: step %d has loss %.9g and %.9g",
              a, b, s + 1, x.loss[s], y.loss[s]);
}

static const char *lower(GxMethod method)
{
    return method == GX_METHOD_TP ? "tp" : method == GX_METHOD_SP ? "sp" : "none";
}

// What a mode's source spells out, and what train_llama composes from the layouts, by the mode's name or by its blocks.
TEST_UNSANITIZED(train_llama_with_a_mode_is_the_program_of_that_mode_bit_for_bit)
{
    static const struct {
        const char *flags;
        int lists;
    } ways[] = {{"--ranks 3", 3}, {"--ranks 4 --tp 2 --gradient_accumulation_steps 2", 2}};
    for (int i = 0; i < MODES * 2; i++) {
        const char *mode = modes[i / 2];
        const GxMethods m = methods_of(mode);
        char common[700], a[100], b[100];
        if (!test_long() && i % 2 != i / 2 % 2) continue; // the modes take turns
        snprintf(common, sizeof common, "--max_steps 4 --micro_batch_size 2 %s%s", ways[i % 2].flags,
                 unequal(mode, ways[i % 2].lists));
        if (!use_mode(mode)) return;
        CHECK_RAN(run("--output_dir spelled%d %s", i, common));
        if (!use_program("train_llama")) return;
        CHECK_RAN(run("--output_dir named%d --mode %s %s", i, mode, common));
        CHECK_RAN(run("--output_dir composed%d --att %s --con %s --mlp %s %s", i, lower(m.att), lower(m.con),
                      lower(m.mlp), common));
        for (int k = 0; k < 2; k++) {
            snprintf(a, sizeof a, "spelled%d", i);
            snprintf(b, sizeof b, "%s%d", k ? "composed" : "named", i);
            check_same_losses(a, b);
            snprintf(a, sizeof a, "spelled%d/checkpoint-4", i);
            snprintf(b, sizeof b, "%s%d/checkpoint-4", k ? "composed" : "named", i);
            check_same_checkpoint(a, b);
        }
    }
}

// All 18 of them, or those of which any two blocks meet with every method; the ends as suits them or by another method;
// and serial beside them.
TEST_UNSANITIZED(every_combination_of_blocks_trains_with_the_losses_of_serial)
{
    static const char *const methods[] = {"none", "tp", "sp"}, *const ends[] = {"auto", "none", "tp", "sp"};
    Log serial;
    if (!use_program("train_llama")) return;
    for (int i = -1; i < 18; i++) {
        char dir[100], flags[300] = "--micro_batch_size 4";
        if (i >= 0 && !test_long() && (i % 3 + i / 3 % 3) % 2 != i / 9) continue;
        if (i >= 0)
            snprintf(flags, sizeof flags, "--att %s --mlp %s --con %s --ends %s --ranks 2 %s", methods[i % 3],
                     methods[i / 3 % 3], i < 9 ? "none" : "sp", ends[i / 4 % 4],
                     i ? "--micro_batch_size 4 --tp 2" : "--micro_batch_size 2"); // 0: nothing is split
        snprintf(dir, sizeof dir, "blocks%d", i);
        CHECK_RAN(run("--output_dir %s --max_steps 2 --optimizer sgd --learning_rate 0.5 %s", dir, flags));
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", flags, err());
        CHECK(strstr(out(), i < 0 ? "mode serial, "
                            : i   ? "mode composed 2 (ATT "
                                  : "mode dp, "),
              "%s: %s", flags, out());
        const Log l = read_log(dir);
        if (i < 0) serial = l;
        CHECK(l.steps == 2 && serial.steps == 2, "%s: %d and %d steps", flags, l.steps, serial.steps);
        check_close_series(flags, l.loss, serial.loss, 2, 1);
        check_close_series(flags, l.grad_norm, serial.grad_norm, 2, 1);
    }
}

TEST_UNSANITIZED(what_is_computed_again_gives_the_same_bits_in_every_mode)
{
    static const char *const again[] = {"none", "layer", "mlp", "att", "att+mlp", "layer:1,att+mlp:0"};
    for (int m = 0; m < MODES; m++) {
        char a[100], b[100];
        if (!use_mode(modes[m])) return;
        for (int i = 0; i < 6; i++) {
            if (i > 1 && !test_long() && i % MODES != m && i != 2 && (i != 5 || m % 2)) continue;
            CHECK_RAN(run("--output_dir recompute%d_%d --max_steps 4 --ranks 3 --micro_batch_size 2 "
                          "--gradient_accumulation_steps 2 --recompute %s%s",
                          m, i, again[i], unequal(modes[m], 3)));
            CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", modes[m], err());
            snprintf(a, sizeof a, "recompute%d_0/checkpoint-4", m);
            snprintf(b, sizeof b, "recompute%d_%d/checkpoint-4", m, i);
            check_same_checkpoint(a, b);
        }
    }
}

// Two groups of two ranks, whose sums are those of data parallelism, of pieces that heads share, and of a group;
// buckets of one unit, of some or of more than there are: the modes take turns.
TEST_UNSANITIZED(gradients_summed_beside_the_backward_give_the_same_bits_in_every_mode)
{
    static const int buckets[] = {0, 1, 2, 100};
    for (int m = 0; m < MODES; m++) {
        char a[100], b[100];
        if (!use_mode(modes[m])) return;
        for (int i = 0; i < 4; i++) {
            if (i && !test_long() && i != 1 + m % 3) continue;
            snprintf(a, sizeof a, "bucket%d_0/checkpoint-3", m);
            snprintf(b, sizeof b, "bucket%d_%d/checkpoint-3", m, i);
            CHECK_RAN(run("--output_dir bucket%d_%d --max_steps 3 --ranks 4 --tp 2 --micro_batch_size 2 "
                          "--gradient_accumulation_steps 2 --reduce_bucket %d%s",
                          m, i, buckets[i], unequal(modes[m], 2)));
            CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", modes[m], err());
            if (i) check_same_checkpoint(a, b);
        }
    }
}

// Under Galaxy matrices and norms take turns, of which norms alone are summed over a group: a bucket has more sums than
// can be under way at once.
TEST(a_bucket_of_many_sums_gives_the_same_bits)
{
    static const int buckets[] = {0, 2, 9};
    if (!use_program("train_llama_galaxy")) return;
    for (int i = 0; i < 3; i++) {
        char b[100];
        snprintf(b, sizeof b, "sums%d/checkpoint-3", i);
        CHECK_RAN(run("--output_dir sums%d --max_steps 3 --ranks 3 --micro_batch_size 2 --num_hidden_layers 8 "
                      "--reduce_bucket %d",
                      i, buckets[i]));
        if (i) check_same_checkpoint("sums0/checkpoint-3", b);
    }
}

TEST(the_first_lines_say_the_mode_and_how_the_ranks_are_arranged)
{
    static const struct {
        const char *program, *flags, *says;
    } cases[] = {
        {"train_llama", "", "mode serial, "},
        {"train_llama", "--ranks 2", "mode dp, "},
        {"train_llama", "--ranks 2 --mode sp", "mode sp 2, "},
        {"train_llama", "--ranks 4 --mode galaxy2 --tp 2", "mode galaxy2 2 x dp 2, "},
        {"train_llama", "--ranks 4 --tp 2 --att tp --con sp",
         "mode composed 2 x dp 2 (ATT TP, CON SP, MLP None, ends TP)"},
        {"train_llama", "--ranks 2 --mode tp --ends sp", "mode composed 2 (ATT TP, CON None, MLP TP, ends SP)"},
        {"train_llama", "--ranks 2 --ends tp", "mode composed 2 (ATT None, CON None, MLP None, ends TP)"},
        {"train_llama_tp", "--ranks 2", "mode tp 2, "},
        {"train_llama_sp", "--ranks 3", "mode sp 3, "},
        {"train_llama_galaxy", "--ranks 4 --tp 2", "mode galaxy 2 x dp 2, "},
        {"train_llama_galaxy", "--ranks 2 --seq_scatter_list 30,2", "(of the ranks: "},
        {"train_llama_galaxy2", "--ranks 4 --tp 1", "mode galaxy2 1 x dp 4, "},
        {"train_llama", "--freeze *mlp*", "M of them trained, fp32"},
        {"train_llama", "--ranks 2 --mode galaxy",
         "mode galaxy is composed of its blocks' methods (galaxy/model/mode.h);\n"
         "    train_llama_galaxy runs train_galaxy.cu instead\n"},
        {"train_llama_galaxy", "--ranks 2", "mode galaxy is computed by train_galaxy.cu\n"},
        {"train_llama_galaxy_tiled", "--ranks 2", "mode galaxy is computed by train_galaxy_tiled.cu\n"},
        {"train_llama_pp", "--ranks 2 --pp 2", "steps are written by this program's own schedule, \"pp\"\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!use_program(cases[i].program)) return;
        CHECK_RAN(run("--dry_run %s", cases[i].flags));
        CHECK(strstr(out(), cases[i].says), "%s %s: no \"%s\" in %s", cases[i].program, cases[i].flags, cases[i].says,
              out());
    }
}

TEST(a_flag_wins_over_the_mode_of_a_file)
{
    static const struct {
        const char *file, *flags, *says;
    } cases[] = {
        {"by_name.json", "", "mode tp 2, "},
        {"by_blocks.json", "", "mode composed 2 (ATT TP, CON None, MLP None, ends TP)"},
        {"by_name.json", "--att sp --con sp", "mode composed 2 (ATT SP, CON SP, MLP None, ends SP)"},
        {"by_blocks.json", "--mode sp", "mode sp 2, "},
        {"by_blocks.json", "--mlp tp", "mode composed 2 (ATT TP, CON None, MLP TP, ends TP)"},
    };
    if (!use_program("train_llama")) return;
    shell("sed '0,/{/s//{\"mode\": \"tp\",/' tiny.json > by_name.json");
    shell("sed '0,/{/s//{\"att\": \"tp\",/' tiny.json > by_blocks.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[2400];
        snprintf(line, sizeof line, "%s --config %s --ranks 2 --dry_run %s", program, cases[i].file, cases[i].flags);
        start_line(line, 0);
        CHECK(finish_within(20) == 0 && strstr(out(), cases[i].says), "%s %s: no \"%s\" in %s%s", cases[i].file,
              cases[i].flags, cases[i].says, out(), err());
    }
    shell("sed '0,/{/s//{\"att\": \"tp\",/' by_name.json > both.json"); // one against the other
    start("--ranks 2 --dry_run --mode tp --att sp");
    CHECK(finish_within(20) == 1 && strstr(err(), "--mode tp already says how every block is split"), "%s", err());
    char line[2400];
    snprintf(line, sizeof line, "%s --config both.json --ranks 2 --dry_run", program);
    start_line(line, 0);
    CHECK(finish_within(20) == 1 && strstr(err(), "--mode tp already says how every block is split"), "%s", err());
}

// A prompt of two tokens on three ranks: a slice of the sequence for each, and logits from all parts of the vocabulary.
TEST_UNSANITIZED(every_mode_writes_the_text_of_serial)
{
    static const Way ways[] = {{"train_llama", ""},
                               {"train_llama_tp", "--ranks 3"},
                               {"train_llama_sp", "--ranks 3"},
                               {"train_llama_galaxy", "--ranks 3"},
                               {"train_llama_galaxy2", "--ranks 3"},
                               {"train_llama", "--ranks 3 --mode galaxy2"},
                               {"train_llama", "--ranks 3 --att sp --mlp tp --ends none"},
                               {"train_llama", "--ranks 4 --tp 2 --con sp --ends tp"}};
    char *serial = NULL;
    use_program("train_llama");
    CHECK_RAN(run("--output_dir taught --max_steps 150 --micro_batch_size 4 --learning_rate 1e-2"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!use_program(ways[i].program)) break;
        CHECK_RAN(run("--model taught/checkpoint-150 --max_steps 1 --learning_rate 0 --weight_decay 0 --output_dir "
                      "text%d --sample_tokens 60 --temperature 0 --sample_prompt Th %s",
                      (int)i, ways[i].flags));
        const char *text = strstr(out(), "sample:\nTh"), *end = text ? strstr(text, "\ndone: ") : NULL;
        if (!CHECK(end && end - text > 60, "%s wrote no sample: %s", ways[i].program, out())) break;
        char *wrote = strndup(text, (size_t)(end - text));
        if (i == 0) serial = strdup(wrote);
        CHECK(!strcmp(wrote, serial), "%s %s wrote \"%s\", serial \"%s\"", ways[i].program, ways[i].flags, wrote,
              serial);
        free(wrote);
    }
    free(serial);
}

// ---- checkpoints ---------------------------------------------------------------------------------------------------

TEST(weights_and_moments_do_not_depend_on_mode_and_topology)
{
    static const Topology cases[] = {
        {"tp_to_serial", "adamw", "train_llama_tp", "--ranks 2 --micro_batch_size 4", "train_llama",
         "--micro_batch_size 4", 0},
        {"tp_to_galaxy", "adamw", "train_llama_tp", "--ranks 2 --micro_batch_size 4 --tp_num_attention_heads_list 1,3",
         "train_llama_galaxy",
         "--ranks 3 --micro_batch_size 4 --tp_num_attention_heads_list 2,1,1 --seq_scatter_list 2,20,10 "
         "--tp_vocab_size_list 100,6,150",
         0},
        {"serial_to_tp", "sgd", "train_llama", "--micro_batch_size 4", "train_llama_tp",
         "--ranks 4 --tp 2 --micro_batch_size 2 --tp_intermediate_size_list 63,1", 0},
        {"galaxy_to_dp", "adamw", "train_llama_galaxy", "--ranks 4 --micro_batch_size 4 --tie_word_embeddings",
         "train_llama", "--ranks 2 --micro_batch_size 2 --tie_word_embeddings", 0},
        {"serial_to_sp", "adamw", "train_llama", "--micro_batch_size 4", "train_llama_sp",
         "--ranks 3 --micro_batch_size 4 --seq_scatter_list 2,20,10", 0},
        {"sp_to_galaxy2", "sgd", "train_llama_sp", "--ranks 2 --micro_batch_size 4 --seq_scatter_list 31,1",
         "train_llama_galaxy2",
         "--ranks 4 --tp 2 --micro_batch_size 2 --tp_num_attention_heads_list 1,3 --tp_vocab_size_list 3,253", 0},
        {"galaxy2_to_tp", "adamw", "train_llama_galaxy2",
         "--ranks 3 --micro_batch_size 4 --tp_num_attention_heads_list 2,1,1 --tie_word_embeddings", "train_llama_tp",
         "--ranks 2 --micro_batch_size 4 --tp_intermediate_size_list 1,63 --tie_word_embeddings", 0},
        {"galaxy2_to_sp", "adamw", "train_llama_galaxy2", "--ranks 2 --micro_batch_size 4 --precision bf16",
         "train_llama_sp", "--ranks 3 --micro_batch_size 4 --precision bf16", 0},
        {"blocks_to_mode", "adamw", "train_llama", "--ranks 2 --micro_batch_size 4 --att sp --mlp tp --ends none",
         "train_llama", "--ranks 4 --micro_batch_size 4 --mode galaxy", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += is_brief() ? 4 : 1) check_topology(&cases[i]);
}

TEST(weights_and_moments_of_a_mode_go_on_under_mpi)
{
    static const Topology mpi[] = {{"galaxy_to_tp_mpi", "adamw", "train_llama_galaxy",
                                    "--ranks 4 --tp 2 --micro_batch_size 2", "train_llama_tp", "--micro_batch_size 4",
                                    2},
                                   {"sp_to_galaxy2_mpi", "adamw", "train_llama_sp", "--ranks 3 --micro_batch_size 4",
                                    "train_llama_galaxy2", "--micro_batch_size 4", 2}};
    NEED_MPI();
    for (int i = 0; i < (is_brief() ? 1 : 2); i++) check_topology(&mpi[i]);
}

// Killed, or stopped; where that is left out, gone on with from its middle.
TEST(a_resumed_run_of_every_mode_is_the_uninterrupted_one_bit_for_bit)
{
    static const struct {
        const char *program;
        Interruption how;
    } cases[] = {
        {"train_llama_galaxy",
         {"galaxy_stopped", "--ranks 4 --tp 2 --micro_batch_size 1 --seq_scatter_list 20,12", SIGTERM}},
        {"train_llama_tp", {"tp_killed", "--ranks 2 --micro_batch_size 2 --tp_num_attention_heads_list 1,3", SIGKILL}},
        {"train_llama_sp", {"sp_stopped", "--ranks 2 --micro_batch_size 2 --seq_scatter_list 31,1", SIGINT}},
        {"train_llama", {"galaxy2_killed", "--ranks 3 --micro_batch_size 2 --mode galaxy2 --recompute layer", SIGKILL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char whole[100], half[100];
        const char *name = cases[i].how.name, *flags = cases[i].how.flags;
        if (!use_program(cases[i].program)) continue;
        if (i == 0 || test_long()) {
            check_resume(&cases[i].how);
            continue;
        }
        CHECK_RAN(run("--output_dir whole_%s --max_steps 4 --save_steps 2 %s", name, flags));
        CHECK_RAN(run("--output_dir half_%s --max_steps 4 --resume whole_%s/checkpoint-2 %s", name, name, flags));
        snprintf(whole, sizeof whole, "whole_%s/checkpoint-4", name);
        snprintf(half, sizeof half, "half_%s/checkpoint-4", name);
        check_same_checkpoint(whole, half);
    }
}

TEST_UNSANITIZED(threads_and_mpi_give_the_same_bits_in_modes)
{
    NEED_MPI();
    for (int m = 0; m < MODES; m += test_long() ? 1 : 2) {
        char flags[1000], a[100], b[100];
        if (strcmp(modes[m], "galaxy") ? !use_mode(modes[m]) : !use_program("train_llama_galaxy_tiled")) return;
        CHECK_RAN(run("--output_dir mode_ranks%d --max_steps 4 --ranks 2 %s", m, unequal(modes[m], 2)));
        snprintf(flags, sizeof flags, "--output_dir mode_mpi%d --max_steps 4 %s", m, unequal(modes[m], 2));
        CHECK_RAN(run_mpi(2, flags));
        snprintf(a, sizeof a, "mode_ranks%d/checkpoint-4", m);
        snprintf(b, sizeof b, "mode_mpi%d/checkpoint-4", m);
        check_same_checkpoint(a, b);
    }
}

// Rank 0 alone finds the disk full; the others wait for it to take their parts.
TEST(a_checkpoint_that_cannot_be_written_ends_all_ranks_with_the_path)
{
    if (!use_program("train_llama_tp")) return;
    CHECK(run_limited(40 << 10, "--output_dir full --max_steps 2 --ranks 3") > 0 && child.status < 128, "status %d",
          child.status);
    CHECK(strstr(err(), "full/") && child.seconds < 30, "after %.1f s: %s", child.seconds, err());
    CHECK(!exists("full/checkpoint-2"), "half a checkpoint was published");
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(splits_that_cannot_be_are_refused_with_the_nearest)
{
    static const Refusal tp[] = {
        {"--ranks 2 --tp_num_attention_heads_list 3,2",
         {"tp_num_attention_heads_list [3,2] sums to 5", "must sum to 4", "[2,2]"}},
        {"--ranks 2 --tp_num_attention_heads_list 4",
         {"tp_num_attention_heads_list [4] has 1 entry for 2 ranks", "[2,2]", NULL}},
        {"--ranks 2 --tp_num_attention_heads_list 4,0", {"--tp_num_attention_heads_list", "from 1", NULL}},
        {"--ranks 2 --tp_intermediate_size_list 60,10",
         {"tp_intermediate_size_list [60,10] sums to 70", "must sum to 64", "[55,9]"}},
        {"--ranks 2 --tp_vocab_size_list 200,50",
         {"tp_vocab_size_list [200,50] sums to 250", "must sum to 256", "[205,51]"}},
        {"--ranks 8", {"tp_num_attention_heads_list: 4 cannot be split among 8 ranks", "at most 4", NULL}},
        {"--ranks 3 --tp 2", {"--tp 2 does not divide 3 ranks; use 1 or 3", NULL, NULL}},
        {"--ranks 2 --tp 3", {"--tp 3 does not divide 2 ranks; use 1 or 2", NULL, NULL}},
        {"--ranks 12 --tp 5", {"--tp 5 does not divide 12 ranks; use 1, 2, 3, 4, 6 or 12", NULL, NULL}},
        {"--tp 2", {"--tp 2 does not divide 1 rank; use 1", NULL, NULL}},
        {"--ranks 2 --seq_scatter_list 16,16",
         {"no option --seq_scatter_list in this program", "use train_llama with a mode that has a block by SP",
          "leave it out"}},
        {"--mode sp", {"no option --mode in this program", "use train_llama,", NULL}},
        {"--mlp sp", {"no option --mlp in this program", "use train_llama,", NULL}},
    };
    static const Refusal galaxy[] = {
        {"--ranks 2 --seq_scatter_list 16,15", {"seq_scatter_list [16,15] sums to 31", "must sum to 32", "[17,15]"}},
        {"--ranks 3 --seq_scatter_list 16,16",
         {"seq_scatter_list [16,16] has 2 entries for 3 ranks", "[11,11,10]", NULL}},
        {"--ranks 4 --seq_len 3", {"seq_len: 3 cannot be split among 4 ranks", NULL, NULL}},
    };
    static const Refusal galaxy2[] = {
        {"--ranks 2 --tp_intermediate_size_list 60,4",
         {"no option --tp_intermediate_size_list in this program", "a mode that has MLP by TP", NULL}},
    };
    static const Refusal sp[] = {
        {"--ranks 2 --tp_num_attention_heads_list 2,2",
         {"no option --tp_num_attention_heads_list in this program", "ATT by TP", NULL}},
        {"--ranks 2 --tp_vocab_size_list 128,128",
         {"no option --tp_vocab_size_list in this program", "the ends by TP", NULL}},
        {"--ranks 2 --seq_scatter_list 33,-1", {"--seq_scatter_list is \"33,-1\"", "from 1", NULL}},
    };
    static const Refusal serial[] = {
        {"--ranks 2 --tp 2", {"--tp 2: mode serial splits nothing among ranks", "leave out --tp", "use another mode"}},
        {"--ranks 2 --tp 2 --att none", {"--tp 2: mode composed splits nothing among ranks", NULL, NULL}},
        {"--seq_scatter_list 16,16",
         {"--seq_scatter_list: mode serial does not split the sequence", "leave it out", "a block by SP"}},
        {"--ranks 2 --mode galaxy2 --tp_intermediate_size_list 60,4",
         {"--tp_intermediate_size_list: mode galaxy2 does not split the MLP's columns", "MLP by TP", NULL}},
        {"--ranks 2 --mode sp --tp_num_attention_heads_list 2,2",
         {"--tp_num_attention_heads_list: mode sp does not split attention's heads", "ATT by TP", NULL}},
        {"--ranks 2 --mode galaxy --seq_scatter_list 16,15", {"seq_scatter_list [16,15] sums to 31", "[17,15]", NULL}},
        {"--ranks 2 --att sp --tp_vocab_size_list 128,128 --ends none",
         {"--tp_vocab_size_list: mode composed does not split the vocabulary", NULL, NULL}},
        {"--mode dp", {"--mode is \"dp\"", "one of serial|tp|sp|galaxy|galaxy2", NULL}},
        {"--mode tp --att sp",
         {"--mode tp already says how every block is split", "leave out --att, --con and --mlp", NULL}},
        {"--mode galaxy --mlp sp", {"--mode galaxy already says how every block is split", NULL, NULL}},
        {"--mode serial --con sp", {"--mode serial already says how every block is split", NULL, NULL}},
        {"--con tp", {"--con is \"tp\"", "one of auto|none|sp", NULL}},
        {"--att dp", {"--att is \"dp\"", "one of auto|none|tp|sp", NULL}},
    };
    if (use_program("train_llama_tp")) CHECK_REFUSALS(tp);
    if (use_program("train_llama_galaxy")) CHECK_REFUSALS(galaxy);
    if (use_program("train_llama_galaxy2")) CHECK_REFUSALS(galaxy2);
    if (use_program("train_llama_sp")) CHECK_REFUSALS(sp);
    if (use_program("train_llama")) CHECK_REFUSALS(serial);
}

static int run_args(const char *args, const char *output_dir)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config %s/training_args.json --output_dir %s", program, args, output_dir);
    start_line(line, 0);
    return finish();
}

// training_args.json holds the mode, too, where that is an option.
TEST(training_args_of_a_mode_give_the_same_run_again)
{
    static const char *const ways[] = {"--mode galaxy --ranks 2", "--mode sp --ends none --ranks 2",
                                       "--att tp --mlp sp --ranks 2 --seq_scatter_list 20,12"};
    if (!use_program("train_llama")) return;
    for (int i = 0; i < 3; i++) {
        char first[100], again[100], a[120], b[120];
        snprintf(first, sizeof first, "args_of_mode%d", i);
        snprintf(again, sizeof again, "args_again%d", i);
        CHECK_RAN(run("--output_dir %s --max_steps 2 %s", first, ways[i]));
        CHECK_RAN(run_args(first, again));
        snprintf(a, sizeof a, "%s/checkpoint-2", first);
        snprintf(b, sizeof b, "%s/checkpoint-2", again);
        check_same_checkpoint(a, b);
    }
}

TEST(training_args_of_one_program_are_refused_by_one_of_another_mode)
{
    static const Refusal of_tp = {"the arguments of train_llama_tp",
                                  {"--tp 2: mode serial splits nothing among ranks", "use another mode", NULL}},
                         of_mode = {"the arguments of train_llama --mode tp",
                                    {"there is no option mode in this program", "use train_llama,", NULL}};
    if (!use_program("train_llama_tp")) return;
    CHECK_RAN(run("--output_dir args_of_tp --max_steps 2 --ranks 2"));
    if (!use_program("train_llama")) return;
    run_args("args_of_tp", "not_of_tp");
    check_refused(&of_tp);
    CHECK_RAN(run("--output_dir args_of_mode_tp --max_steps 2 --ranks 2 --mode tp"));
    if (!use_program("train_llama_tp")) return;
    run_args("args_of_mode_tp", "not_of_mode_tp");
    check_refused(&of_mode);
}

// It also holds the number of ranks as threads, of which mpirun wants none.
TEST(training_args_of_threads_go_on_under_mpi)
{
    char line[4096];
    NEED_MPI();
    if (!use_program("train_llama_tp")) return;
    CHECK_RAN(run("--output_dir args_of_threads --max_steps 2 --ranks 2"));
    snprintf(line, sizeof line, "mpirun -np 2 %s --config args_of_threads/training_args.json --output_dir args_again",
             program);
    start_line(line, 0);
    CHECK(finish() != 0 && strstr(err(), "say --ranks 1"), "%s", err());
    strcat(line, " --ranks 1");
    start_line(line, 0);
    CHECK_RAN(finish());
    check_same_checkpoint("args_of_threads/checkpoint-2", "args_again/checkpoint-2");
}

// How ranks are arranged is an option, too: ranks that do not agree on it, or are of different programs, must not wait
// for each other in vain.
TEST(ranks_of_different_programs_or_groups_are_refused)
{
#define PROGRAM(att, con, mlp, ends)                                                                                   \
    "\"galaxy " GX_VERSION ", causal_lm, llama (ATT " att ", CON " con ", MLP " mlp ", ends " ends ")\""
#define BY_TILES "\"galaxy " GX_VERSION ", causal_lm, llama (ATT TP, CON SP, MLP TP, ends TP, by tiles)\""
    static const struct {
        const char *first, *first_flags, *second, *second_flags, *says;
    } pairs[] = {
        {"train_llama_tp", "--tp 2", "train_llama_tp", "--tp 1", "--tp is 2 on rank 0 and 1 on rank 1"},
        {"train_llama", "", "train_llama_tp", "",
         PROGRAM("None", "None", "None", "None") " on rank 0 and " PROGRAM("TP", "None", "TP", "TP") " on rank 1"},
        {"train_llama_tp", "", "train_llama_galaxy", "",
         PROGRAM("TP", "None", "TP", "TP") " on rank 0 and " PROGRAM("TP", "SP", "TP", "TP") " on rank 1"},
        {"train_llama_galaxy", "", "train_llama_galaxy_tiled", "",
         PROGRAM("TP", "SP", "TP", "TP") " on rank 0 and " BY_TILES " on rank 1"},
        {"train_llama", "--mode sp", "train_llama", "--mode sp --ends tp",
         PROGRAM("SP", "SP", "SP", "SP") " on rank 0 and " PROGRAM("SP", "SP", "SP", "TP") " on rank 1"},
        {"train_llama", "--mode sp", "train_llama_sp", "", "--mode is \"sp\" on rank 0 and not given on rank 1"},
        {"train_llama_tp", "--tp_num_attention_heads_list 3,1", "train_llama_tp", "--tp_num_attention_heads_list 1,3",
         "--tp_num_attention_heads_list is [3,1] on rank 0 and [1,3] on rank 1"},
        {"train_llama_sp", "--freeze *mlp*", "train_llama_sp", "", "--freeze is \"*mlp*\" on rank 0 and "},
        {"train_llama_sp", "--recompute layer", "train_llama_sp", "", "--recompute is \"layer\" on rank 0 and "}};
    NEED_MPI();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char line[4096], first[TEST_PATH];
        if (!use_program(pairs[i].first)) return;
        snprintf(first, sizeof first, "%s", program);
        if (!use_program(pairs[i].second)) return;
        snprintf(line, sizeof line,
                 "mpirun -np 1 %.1500s --config tiny.json --max_steps 2 %s : -np 1 %.1500s --config tiny.json "
                 "--max_steps 2 %s",
                 first, pairs[i].first_flags, program, pairs[i].second_flags);
        start_line(line, 0);
        int status = finish_within(30);
        CHECK(status != 0 && status != TIMED_OUT && strstr(err(), pairs[i].says),
              "%s and %s: status %d after %.1f s: %.300s", pairs[i].first, pairs[i].second, status, child.seconds,
              err());
    }
}

// Refused by the plan of all ranks on this machine; nothing is allocated. What would fit is less than what was asked
// for.
TEST(unequal_ranks_that_do_not_fit_together_are_refused)
{
    char flags[600];
    if (!use_program("train_llama_tp")) return;
    snprintf(flags, sizeof flags,
             "--hidden_size 2048 --intermediate_size 2048 --num_attention_heads 16 --num_key_value_heads 16 "
             "--num_hidden_layers %d --ranks 2 "
             "--tp_num_attention_heads_list 12,4 --tp_intermediate_size_list 1948,100 --micro_batch_size 64 "
             "--max_steps 1 --output_dir together",
             (int)(0.7 * (double)gx_available_memory() / 470e6) +
                 1); // weights, gradients and moments: 470 MB a layer; and activations
    start("%s", flags);
    CHECK(finish_within(30) > 0 && strstr(err(), "on this machine, the system has"), "status %d: %s", child.status,
          err());
    const char *advice = strstr(err(), "about ");
    CHECK(advice && atol(advice + 6) >= 1 && atol(advice + 6) < 64, "it advises: %s", err());
}

TEST(the_processes_of_every_mode_take_the_memory_of_their_plan)
{
    static const Way ways[] = {
        {"train_llama_tp", "--ranks 2 --tp_num_attention_heads_list 6,2 " FEW_TOKENS},
        {"train_llama_sp", "--ranks 2 --micro_batch_size 24 --seq_scatter_list 200,56 " MANY_TOKENS},
        {"train_llama_galaxy", "--ranks 2 --micro_batch_size 40 --recompute layer " MANY_TOKENS},
        {"train_llama_galaxy2", "--ranks 2 --micro_batch_size 24 --seq_scatter_list 56,200 " MANY_TOKENS},
        {"train_llama", "--ranks 2 --micro_batch_size 24 --att sp --mlp tp --ends none " MANY_TOKENS},
        {"train_llama_galaxy2", "--ranks 2 --freeze model.layers.0.* --tp_vocab_size_list 2000,6192 " FEW_TOKENS}};
    if (is_sanitized) SKIP("sanitizers have memory of their own");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char dir[100];
        snprintf(dir, sizeof dir, "mode_memory%d", (int)i);
        if (use_program(ways[i].program)) check_memory(dir, ways[i].flags);
    }
}

// ---- what goes wrong while it trains -------------------------------------------------------------------------------

TEST(a_killed_rank_of_a_mode_ends_the_others_with_its_number)
{
    NEED_MPI();
    for (int p = 0; p < MODES; p += test_long() ? 1 : 3) {
        pid_t rank[8];
        char flags[300], log[100];
        if (!use_mode(modes[p])) return;
        snprintf(flags, sizeof flags,
                 "--output_dir orphans%d --max_steps 100000 --micro_batch_size 2 --eval_steps 1 " SLOW, p);
        snprintf(log, sizeof log, "orphans%d/log.jsonl", p);
        start_mpi(3, flags);
        CHECK(wait_for(log, "\"step\": 2, "), "no second step came");
        int n = children_of(child.pid, rank, 8);
        if (!CHECK(n >= 3, "%d children of mpirun were found", n)) n = 0;
        double killed = now() - child.started;
        if (n) kill(rank[1], SIGKILL);
        int status = finish_within(killed + 30);
        CHECK(status != 0 && status != TIMED_OUT, "status %d %.1f s after a rank was killed: %s", status,
              child.seconds - killed, err());
        CHECK(strstr(err(), "rank 1 ") || strstr(out(), "rank 1 "), "no message names rank 1: %s", err());
        for (double until = now() + 5; n && now() < until && (is_alive(rank[0]) || is_alive(rank[2])); sleep_ms(20)) {}
        for (int i = 0; i < n; i++) CHECK(!is_alive(rank[i]), "rank %d is still there", i);
    }
}

int main(int argc, char **argv) { return program_main(argc, argv); }
