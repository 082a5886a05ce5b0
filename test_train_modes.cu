// test_train_modes.cu: train_llama_tp and train_llama_galaxy as their users meet them, beside train_llama. See
// test/program.h.
#include "test/program.h"
#include "galaxy/run/metrics.h"

// ---- it trains -----------------------------------------------------------------------------------------------------

// The tiny model has four query heads on two K,V heads: 2,1,1 share the second of them, 1,3 the first.
typedef struct {
    const char *program, *flags;
} Way;

// The same samples under every mode, by SGD (AdamW turns rounding noise in gradients near zero into steps of lr).
TEST(every_mode_has_the_losses_of_serial)
{
    static const Way ways[] = {
        {"train_llama", "--micro_batch_size 4"},
        {"train_llama_tp", "--micro_batch_size 4"},
        {"train_llama_tp", "--ranks 2 --micro_batch_size 4"},
        {"train_llama_tp",
         "--ranks 3 --micro_batch_size 2 --gradient_accumulation_steps 2 --tp_num_attention_heads_list 2,1,1 "
         "--tp_intermediate_size_list 40,20,4"},
        {"train_llama_tp", "--ranks 4 --tp 2 --dp_batch_size_list 3,1 --tp_num_attention_heads_list 1,3"},
        {"train_llama_galaxy", "--micro_batch_size 4"},
        {"train_llama_galaxy", "--ranks 2 --micro_batch_size 4 --seq_scatter_list 31,1 --tp_vocab_size_list 3,253"},
        {"train_llama_galaxy",
         "--ranks 3 --micro_batch_size 2 --gradient_accumulation_steps 2 --tp_num_attention_heads_list 2,1,1 "
         "--tp_intermediate_size_list 40,20,4 --seq_scatter_list 8,4,20"},
        {"train_llama_galaxy",
         "--ranks 4 --tp 2 --micro_batch_size 2 --tp_num_attention_heads_list 1,3 --tie_word_embeddings false"},
        {"train_llama_galaxy", "--ranks 4 --micro_batch_size 4"},
    };
    Log serial;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char dir[100];
        snprintf(dir, sizeof dir, "way%d", (int)i);
        if (!use_program(ways[i].program)) return;
        CHECK_RAN(run("--output_dir %s --max_steps 4 --optimizer sgd --learning_rate 0.5 %s", dir, ways[i].flags));
        CHECK(!strstr(err(), "the plan is wrong"), "%s %s: %s", ways[i].program, ways[i].flags, err());
        Log l = read_log(dir);
        if (i == 0) serial = l;
        CHECK(l.steps == 4 && serial.steps == 4, "%s: %d and %d steps", ways[i].flags, l.steps, serial.steps);
        check_close_series(ways[i].flags, l.loss, serial.loss, 4, 1);
        check_close_series(ways[i].flags, l.grad_norm, serial.grad_norm, 4, 1);
        CHECK(fabs(l.bits - serial.bits) < 1e-4, "%s %s: %g bits per byte on the held-out text, not %g",
              ways[i].program, ways[i].flags, l.bits, serial.bits);
        char checkpoint[120];
        snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-4", dir);
        check_whole(checkpoint);
    }
}

TEST(the_first_lines_say_the_mode_and_how_the_ranks_are_arranged)
{
    static const struct {
        const char *program, *flags, *says;
    } cases[] = {
        {"train_llama", "--ranks 2", "mode dp, "},
        {"train_llama_tp", "--ranks 2", "mode tp 2, "},
        {"train_llama_galaxy", "--ranks 4 --tp 2", "mode galaxy 2 x dp 2, "},
        {"train_llama_galaxy", "--ranks 2 --seq_scatter_list 30,2", "(of the ranks: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!use_program(cases[i].program)) return;
        CHECK_RAN(run("--dry_run %s", cases[i].flags));
        CHECK(strstr(out(), cases[i].says), "%s %s: no \"%s\" in %s", cases[i].program, cases[i].flags, cases[i].says,
              out());
    }
}

// A prompt of two tokens on three ranks: a slice of the sequence for each, and logits from all parts of the vocabulary.
TEST(every_mode_writes_the_text_of_serial)
{
    static const Way ways[] = {
        {"train_llama", ""}, {"train_llama_tp", "--ranks 3"}, {"train_llama_galaxy", "--ranks 3"}};
    char *serial = NULL;
    use_program("train_llama");
    CHECK_RAN(run("--output_dir taught --max_steps 150 --micro_batch_size 4 --learning_rate 1e-2"));
    for (int i = 0; i < 3; i++) {
        if (!use_program(ways[i].program)) break;
        CHECK_RAN(run("--model taught/checkpoint-150 --max_steps 1 --learning_rate 0 --weight_decay 0 --output_dir "
                      "text%d --sample_bytes "
                      "60 --temperature 0 "
                      "--sample_prompt Th %s",
                      i, ways[i].flags));
        char *text = strstr(out(), "sample:\nTh"), *end = text ? strstr(text, "loss curve") : NULL;
        if (!CHECK(end && end - text > 60, "%s wrote no sample: %s", ways[i].program, out())) break;
        *end = 0;
        if (i == 0) serial = strdup(text);
        CHECK(!strcmp(text, serial), "%s wrote \"%s\", serial \"%s\"", ways[i].program, text, serial);
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
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_topology(&cases[i]);
}

TEST(weights_and_moments_of_a_mode_go_on_under_mpi)
{
    static const Topology mpi = {"galaxy_to_tp_mpi",
                                 "adamw",
                                 "train_llama_galaxy",
                                 "--ranks 4 --tp 2 --micro_batch_size 2",
                                 "train_llama_tp",
                                 "--micro_batch_size 4",
                                 2};
    NEED_MPI();
    check_topology(&mpi);
}

TEST(a_resumed_run_of_every_mode_is_the_uninterrupted_one_bit_for_bit)
{
    static const Interruption tp = {"tp_killed", "--ranks 2 --micro_batch_size 2 --tp_num_attention_heads_list 1,3",
                                    SIGKILL},
                              galaxy = {"galaxy_stopped", "--ranks 3 --micro_batch_size 2 --seq_scatter_list 20,10,2",
                                        SIGTERM},
                              both = {"both_stopped", "--ranks 4 --tp 2 --micro_batch_size 1", SIGINT};
    if (use_program("train_llama_tp")) check_resume(&tp);
    if (use_program("train_llama_galaxy")) check_resume(&galaxy);
    if (use_program("train_llama_galaxy")) check_resume(&both);
}

TEST(threads_and_mpi_give_the_same_bits_in_every_mode)
{
    static const Way ways[] = {
        {"train_llama_tp", "--tp_num_attention_heads_list 3,1 --tp_intermediate_size_list 20,44"},
        {"train_llama_galaxy", "--seq_scatter_list 9,23"}};
    NEED_MPI();
    for (int i = 0; i < 2; i++) {
        char flags[1000], a[100], b[100];
        if (!use_program(ways[i].program)) return;
        CHECK_RAN(run("--output_dir mode_ranks%d --max_steps 4 --ranks 2 %s", i, ways[i].flags));
        snprintf(flags, sizeof flags, "--output_dir mode_mpi%d --max_steps 4 %s", i, ways[i].flags);
        CHECK_RAN(run_mpi(2, flags));
        snprintf(a, sizeof a, "mode_ranks%d/checkpoint-4", i);
        snprintf(b, sizeof b, "mode_mpi%d/checkpoint-4", i);
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
         {"no option --seq_scatter_list in this program", "use train_llama_galaxy,", NULL}},
    };
    static const Refusal galaxy[] = {
        {"--ranks 2 --seq_scatter_list 16,15", {"seq_scatter_list [16,15] sums to 31", "must sum to 32", "[17,15]"}},
        {"--ranks 3 --seq_scatter_list 16,16",
         {"seq_scatter_list [16,16] has 2 entries for 3 ranks", "[11,11,10]", NULL}},
        {"--ranks 4 --seq_len 3", {"seq_scatter_list: 3 cannot be split among 4 ranks", NULL, NULL}},
    };
    static const Refusal serial[] = {
        {"--ranks 2 --tp 2", {"no option --tp in this program", "use train_llama_tp or train_llama_galaxy", NULL}},
        {"--seq_scatter_list 16,16", {"no option --seq_scatter_list in this program", "use train_llama_galaxy,", NULL}},
    };
    if (use_program("train_llama_tp")) CHECK_REFUSALS(tp);
    if (use_program("train_llama_galaxy")) CHECK_REFUSALS(galaxy);
    if (use_program("train_llama")) CHECK_REFUSALS(serial);
}

// training_args.json holds the options of its mode, too.
TEST(training_args_of_one_program_say_which_programs_take_them)
{
    char line[4096];
    const Refusal tp = {
        "the arguments of tp",
        {"args_of_tp/training_args.json: there is no option tp in this program", "use train_llama_tp or", NULL}};
    if (!use_program("train_llama_tp")) return;
    CHECK_RAN(run("--output_dir args_of_tp --max_steps 2 --ranks 2"));
    if (!use_program("train_llama")) return;
    snprintf(line, sizeof line, "%s --config args_of_tp/training_args.json --output_dir not_of_tp", program);
    start_line(line, 0);
    finish();
    check_refused(&tp);
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
    static const struct {
        const char *first, *first_flags, *second, *second_flags, *says;
    } pairs[] = {{"train_llama_tp", "--tp 2", "train_llama_tp", "--tp 1", "--tp is 2 on rank 0 and 1 on rank 1"},
                 {"train_llama", "", "train_llama_tp", "",
                  "llama (ATT None, CON None, MLP None)\" on rank 0 and \"galaxy " GX_VERSION
                  ", llama (ATT TP, CON None, MLP TP)\" on rank 1"},
                 {"train_llama_tp", "", "train_llama_galaxy", "",
                  "llama (ATT TP, CON None, MLP TP)\" on rank 0 and \"galaxy " GX_VERSION
                  ", llama (ATT TP, CON SP, MLP TP)\" on rank 1"},
                 {"train_llama_tp", "--tp_num_attention_heads_list 3,1", "train_llama_tp",
                  "--tp_num_attention_heads_list 1,3",
                  "--tp_num_attention_heads_list is [3,1] on rank 0 and [1,3] on rank 1"}};
    NEED_MPI();
    for (int i = 0; i < 4; i++) {
        char line[4096], first[GX_PATH];
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
    static const Way ways[] = {{"train_llama_tp", "--ranks 2 --micro_batch_size 4 --tp_num_attention_heads_list 6,2"},
                               {"train_llama_galaxy", "--ranks 2 --micro_batch_size 4 --seq_scatter_list 200,56"}};
    if (is_sanitized) SKIP("sanitizers have memory of their own");
    for (int i = 0; i < 2; i++) {
        char line[4096];
        if (!use_program(ways[i].program)) return;
        snprintf(line, sizeof line, "%s --config middle.json --max_steps 2 --output_dir mode_memory%d %s", program, i,
                 ways[i].flags);
        start_line(line, 0);
        CHECK_RAN(finish());
        double plan = number_before(out(), "MB\n  "), peak = (double)child.peak_kb * 1024 / 1e6,
               most = fmax(0.03 * plan, 64);
        CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
        CHECK(plan > 150, "the plan's total was not found in: %s", out());
        CHECK(fabs(peak - plan) <= most, "%s: the plan says %.1f MB, the peak was %.1f MB; %.1f are allowed",
              ways[i].flags, plan, peak, most);
        test_state.worst = fmax(test_state.worst, fabs(peak - plan) / most);
    }
}

// ---- what goes wrong while it trains -------------------------------------------------------------------------------

TEST(a_killed_rank_of_every_mode_ends_the_others_with_its_number)
{
    static const char *const programs[] = {"train_llama_tp", "train_llama_galaxy"};
    NEED_MPI();
    for (int p = 0; p < 2; p++) {
        pid_t rank[8];
        char flags[300], log[100];
        if (!use_program(programs[p])) return;
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
