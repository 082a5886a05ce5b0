// test_train_tcp.cu: train_llama as processes that find each other by TCP, started as torchrun, srun and people do. All
// on 127.0.0.1. See test/program.h.
#include "test/program.h"
#include "test/ranks.h"

TEST(processes_give_the_log_and_the_weights_of_threads)
{
    static const char *const names[] = {"torchrun", "srun", "hand"};
    say_nothing_of_waiting(1); // so each starts again before it meets the others
    for (int world = is_brief() ? 3 : 2; world <= 3; world++) {
        char flags[300], a[100], b[100];
        CHECK_RAN(run("--output_dir threads%d --max_steps 3 --micro_batch_size 2 --ranks %d", world, world));
        snprintf(a, sizeof a, "threads%d", world);
        const Log x = read_log(a);
        snprintf(a, sizeof a, "threads%d/checkpoint-3", world);
        for (int way = BY_TORCHRUN; way <= BY_HAND; way++) {
            snprintf(flags, sizeof flags, "--config tiny.json --output_dir %s%d --max_steps 3 --micro_batch_size 2",
                     names[way], world);
            CHECK(run_ranks((Launcher)way, world, flags) == 0, "%s: %d of %d ranks failed", names[way], child.status,
                  world);
            says(0, world == 2 ? "2 ranks (tcp) x" : "3 ranks (tcp) x");
            snprintf(b, sizeof b, "%s%d", names[way], world);
            const Log y = read_log(b);
            CHECK(x.steps == 3 && y.steps == 3 && y.bad == 0 && y.bits == x.bits, "%s: %d steps, %g and %g bits", b,
                  y.steps, y.bits, x.bits);
            for (int s = 0; s < 3; s++)
                CHECK(y.step[s] == x.step[s] && y.loss[s] == x.loss[s] && y.grad_norm[s] == x.grad_norm[s],
                      "%s: line %d has loss %.9g, not %.9g", b, s, y.loss[s], x.loss[s]);
            snprintf(b, sizeof b, "%s%d/checkpoint-3", names[way], world);
            check_same_checkpoint(a, b);
            for (int r = 0; r < world; r++) {
                snprintf(b, sizeof b, "rank%d.txt", r);
                char *text = read_text(b);
                check_openmp_starts(names[way], text, 2);
                free(text);
            }
        }
    }
    say_nothing_of_waiting(0);
}

TEST(processes_on_stages_of_different_sizes_have_the_bits_of_threads)
{
#define RAGGED "--stage_tp_list 1,2 --mode galaxy --tie_word_embeddings --gradient_accumulation_steps 2 --max_steps 2"
    CHECK_RAN(run("--output_dir ragged_threads --ranks 3 " RAGGED));
    CHECK(run_ranks(BY_HAND, 3, "--config tiny.json --output_dir ragged_processes " RAGGED) == 0, "%d ranks failed",
          child.status);
    says(0, "x galaxy 1,2");
    char a[] = "ragged_threads/checkpoint-2", b[] = "ragged_processes/checkpoint-2";
    check_same_checkpoint(a, b);
}

TEST(training_args_of_processes_give_the_same_run_again)
{
    CHECK(run_ranks(BY_HAND, 2, "--config tiny.json --output_dir first --max_steps 2 --micro_batch_size 2") == 0,
          "%d ranks failed", child.status);
    const int port = free_port();
    char script[4 * TEST_PATH];
    GxError e = GX_ZERO;
    snprintf(script, sizeof script, // world comes from the file; the port is still closed, but may be another's by now
             "for r in 0 1; do %s --config first/training_args.json --output_dir again --rank $r --init "
             "tcp://127.0.0.1:%d >rank$r.txt "
             "2>&1 & done\nwait\n",
             program, port);
    CHECK(gx_file_write("again.sh", script, (int64_t)strlen(script), &e) == GX_OK, "%s", e.message);
    start_line("sh again.sh", 0);
    CHECK_RAN(finish());
    char a[] = "first/checkpoint-2", b[] = "again/checkpoint-2";
    check_same_checkpoint(a, b);
}

TEST(a_killed_process_ends_the_others_with_its_number)
{
    for (int killed = 0; killed < 3; killed++) {
        char output[40], log[60], pid_path[20], words[40];
        snprintf(output, sizeof output, "killed%d", killed);
        snprintf(log, sizeof log, "%s/log.jsonl", output);
        snprintf(pid_path, sizeof pid_path, "pid%d", killed);
        char flags[400];
        snprintf(flags, sizeof flags,
                 "--config tiny.json --output_dir %s --max_steps 100000 --eval_steps 1 --micro_batch_size 2 " SLOW,
                 output);
        start_ranks(BY_TORCHRUN, 3, flags, "");
        CHECK(wait_for(log, "\"step\": 2, "), "no second step came");
        char *pid = read_text(pid_path);
        if (CHECK(atoi(pid) > 1, "no process %s", pid)) kill((pid_t)atoi(pid), SIGKILL);
        free(pid);
        const double at = now() - child.started;
        const int status = finish_within(at + 20);
        CHECK(status == 3, "status %d %.1f s after rank %d was killed", status, child.seconds - at, killed);
        snprintf(words, sizeof words, "rank %d died", killed);
        for (int r = 0; r < 3; r++) {
            char path[20];
            snprintf(path, sizeof path, "rank%d.txt", r);
            char *text = read_text(path);
            if (r != killed) says(r, words);
            CHECK(!strstr(text, "failed"), "rank %d blames one that is not dead: %.600s", r, text);
            free(text);
        }
    }
}

TEST(a_signal_to_one_process_ends_a_long_validation_on_all)
{
    write_long_text();
    start_ranks(BY_TORCHRUN, 2, "--config tiny.json --max_steps 3 --output_dir stopped " LONG_VALIDATION, "");
    CHECK(wait_for("stopped/log.jsonl", "\"step\": 1, "), "no first step came");
    sleep_ms(500);
    char *pid = read_text("pid1");
    if (CHECK(atoi(pid) > 1, "no process %s", pid)) kill((pid_t)atoi(pid), SIGHUP);
    free(pid);
    const double at = now() - child.started;
    const int status = finish_within(at + 10);
    CHECK(status == 2, "%d of 2 ranks ended by the signal, %.1f s after it", status, child.seconds - at);
    says(0, "stopped by a signal after step 1 of 3; continue with --resume auto");
    check_whole("stopped/checkpoint-1");
}

TEST(processes_with_other_options_or_texts_end_all_with_their_number)
{
    static const char *const pairs[][2] = {
        {"--learning_rate 1e-4", "--learning_rate is 0.002 on rank 0 and 0.0001 on rank 1"},
        {"--num_attention_heads 2", "--num_attention_heads is 4 on rank 0 and 2 on rank 1"},
        {"--machines m.json", "--machines is not given on rank 0 and \"a file\" on rank 1"},
        {"--resume auto", "--resume is not given on rank 0 and \"auto\" on rank 1"},
        {"--train_data other.txt", "rank 1: other.txt is a different text"}};
    shell("tr a-z A-Z < text.txt > other.txt");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        start_ranks(BY_TORCHRUN, 3, "--config tiny.json --max_steps 2 --output_dir differ", pairs[i][0]);
        const int status = finish_within(30);
        CHECK(status == 3, "%s: status %d after %.1f s", pairs[i][0], status, child.seconds);
        for (int r = 0; r < 3; r++) says(r, pairs[i][1]);
    }
}

TEST(starts_that_contradict_themselves_are_refused)
{
    static const Refusal flags[] = {
        {"--world 3", {"--world 3 needs --rank", "--init tcp://host:port"}},
        {"--world 3 --rank 1", {"--init tcp://host:port"}},
        {"--world 3 --init tcp://127.0.0.1:29500", {"needs --rank (0 to 2"}},
        {"--world 3 --rank 3 --init tcp://127.0.0.1:29500", {"--rank is 3, but --world is 3"}},
        {"--rank 1", {"--world, which is not given"}},
        {"--init tcp://127.0.0.1:29500", {"--world, which is not given"}},
        {"--world 1 --rank 1", {"--rank is 1, but --world is 1"}},
        {"--world 3 --rank 0 --init 127.0.0.1:29500", {"--init is \"127.0.0.1:29500\"", "tcp://host:port"}},
        {"--world 3 --rank 0 --init tcp://127.0.0.1:29500 --ranks 2", {"leave out --ranks"}},
        {"--world 300 --rank 0 --init tcp://127.0.0.1:29500", {"world", "256"}},
        {"--world three --rank 0 --init tcp://127.0.0.1:29500", {"world", "three"}},
    };
    static const Refusal in_torchrun[] = {
        {"--world 2 --rank 1 --init tcp://127.0.0.1:29500",
         {"--world 2 --rank 1, but the environment says rank 0 of 2", "leave one"}},
        {"--ranks 2", {"leave out --ranks"}},
    };
    CHECK_REFUSALS(flags);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    static const Refusal without_master[] = {{"--output_dir lonely", {"rank 0 of 2", "MASTER_ADDR is not set"}}};
    CHECK_REFUSALS(without_master);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    CHECK_REFUSALS(in_torchrun);
    setenv("RANK", "2", 1);
    static const Refusal too_high[] = {{"--output_dir lonely", {"RANK is 2, but WORLD_SIZE is 2"}}};
    CHECK_REFUSALS(too_high);
    unsetenv("RANK"), unsetenv("WORLD_SIZE"), unsetenv("MASTER_ADDR"), unsetenv("MASTER_PORT");
    CHECK(!exists("lonely"), "it trained");
}

TEST(a_rank_that_never_comes_is_named_while_others_wait_and_when_they_give_up)
{
    static const char *const says[2][2] = {
        {"rank 0: waiting for ranks 1, 2 of 3 to connect, for up to 6 s", "rank 0 waited 6 s for rank 1, 2 of 3"},
        {"rank 1: waiting for rank 0 at 127.0.0.1, port ", "rank 1 waited 6 s for rank 0 at 127.0.0.1, port "}};
    char line[TEST_PATH + 300];
    for (int rank = 0; rank < 2; rank++) {
        snprintf(line, sizeof line,
                 "%s --config tiny.json --max_steps 2 --timeout 6 --output_dir lonely --world 3 --rank %d --init "
                 "tcp://127.0.0.1:%d",
                 program, rank, free_port());
        start_line(line, 0);
        const int status = finish_within(20);
        CHECK(status == 1 && strstr(err(), says[rank][0]) && strstr(err(), says[rank][1]), "status %d: %s", status,
              err());
    }
    CHECK(!exists("lonely"), "it trained");
}

TEST(mpirun_has_the_word_where_the_program_has_mpi)
{
    NEED_MPI();
    int status = run_mpi(2, "--world 2 --rank 0 --init tcp://127.0.0.1:29500 --max_steps 2 --output_dir both");
    CHECK(status != 0 && status != TIMED_OUT && strstr(err(), "leave out --world, --rank and --init"), "status %d: %s",
          status, err());
    CHECK(!exists("both"), "it trained");
    setenv("RANK", "0", 1), setenv("WORLD_SIZE", "3", 1); // left over from something else
    say_nothing_of_waiting(1);                            // so each starts again before it meets the others
    CHECK_RAN(run_mpi(2, "--max_steps 2 --output_dir by_mpi --micro_batch_size 2"));
    unsetenv("RANK"), unsetenv("WORLD_SIZE");
    say_nothing_of_waiting(0);
    CHECK(strstr(out(), "2 ranks (mpi)"), "%s", out());
    check_openmp_starts("mpirun", err(), 2 * 2);
}

TEST(a_program_without_mpi_takes_the_ranks_that_it_is_told_under_any_launcher)
{
    char with_mpi[TEST_PATH];
    if (!program_nompi[0]) SKIP("no binary without MPI was given: set GX_TRAIN_LLAMA_NOMPI");
    snprintf(with_mpi, sizeof with_mpi, "%s", program);
    snprintf(program, sizeof program, "%s", program_nompi);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    const int failed = run_ranks(BY_TORCHRUN, 2, "--config tiny.json --max_steps 2 --output_dir no_mpi");
    CHECK(failed == 0 && says(0, "2 ranks (tcp)"), "%d ranks failed", failed);
    const int alone = run("--max_steps 2 --output_dir refused");
    CHECK(alone == 2 && strstr(err(), "without MPI"), "status %d: %s", alone, err());
    unsetenv("OMPI_COMM_WORLD_SIZE");
    snprintf(program, sizeof program, "%s", with_mpi);
}

int main(int argc, char **argv) { return program_main(argc, argv); }
