// test_session.cu: a run (run/run.h) that has one session after another in one process, on other ranks each.
#include "galaxy.h"
#include "test/said.h"
#include <unistd.h>

enum { STEPS = 8, MOST_RANKS = 3 };
static char folder[] = "/tmp/galaxy_test_session_XXXXXX";

static struct {
    GxTrainer trainer[MOST_RANKS]; // by rank; those of the first session go on in the second
    int until;                     // the step behind which a session is left; STEPS: its run ends
    int has_run[MOST_RANKS];       // 1: the rank has had a session of this run
    double loss[STEPS + 1];        // by the step, of rank 0
} ranks;

static int train_until(GxContext *g, int argc, char **argv)
{
    static const GxReporter reporter = {hear_out, NULL, NULL};
    GxTrainer *t = &ranks.trainer[g->rank];
    g->reporter = &reporter, g->log.write = hear_log;
    if (ranks.has_run[g->rank]) gx_trainer_rejoin(t, g, argc, argv);
    else gx_trainer_open(t, g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
    while (gx_trainer_next(t) && t->run.at.step < ranks.until) {
        gx_trainer_step(t);
        gx_trainer_report(t);
        if (g->rank == 0) ranks.loss[t->run.at.step] = gx_step_loss(&t->session.seen);
    }
    ranks.has_run[g->rank] = ranks.until < STEPS && !gx_failed(g);
    return ranks.has_run[g->rank] ? gx_trainer_leave(t) != GX_OK : gx_trainer_close(t);
}

// Exit status of a session of so many ranks, of the run in folder/<name>, up to this step.
static int session(const char *name, int n, int until, const char *more)
{
    static char line[2][4000];
    char *argv[80] = {(char *)"train"}, *rest = NULL;
    static int next;
    char *of = line[next++ % 2]; // the run keeps its command line until the next one
    int argc = 1;
    snprintf(
        of, sizeof line[0],
        "--train_data %s/text.txt --output_dir %s/%s --ranks %d --threads 1 --max_steps %d --hidden_size 32 "
        "--intermediate_size 64 --num_hidden_layers 2 --num_attention_heads 4 --num_key_value_heads 2 --seq_len 32 "
        "--global_batch_size 12 --gradient_accumulation_steps 1 --logging_steps 1 --eval_steps 2 --max_eval_samples 6 "
        "--sample_tokens 0 "
        "--warmup_steps 2 %s",
        folder, folder, name, n, STEPS, more);
    for (char *word = strtok_r(of, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) argv[argc++] = word;
    static char *kept[2][80];
    memcpy(kept[next % 2], argv, sizeof argv);
    ranks.until = until;
    return gx_launch(train_until, argc, kept[next % 2]);
}

static void begin(void) { memset(&ranks, 0, sizeof ranks), memset(&said, 0, sizeof said); }

static void end(void) // of ranks that the last session has not had
{
    for (int i = 0; i < MOST_RANKS; i++)
        if (ranks.has_run[i]) gx_run_close(&ranks.trainer[i].run);
}

// The longest chain of roundings behind a loss: a sum per matrix product of both layers and the head, forward and
// backward, the attention's keys, the tokens of a window; `steps` updates on top.
static double depth(int steps)
{
    const double H = 32, F = 64, head = 8, T = 32, V = 256, layer = 4 * H + F + H + head + T, samples = 12;
    return (2 * (2 * layer + H + V) + samples * T) * steps;
}

// Of each rank count in the list the run does STEPS / n steps, in the same process.
static void check_sessions(const char *name, const char *more, const int *counts, int n)
{
    char whole[60], line[60];
    double expected[STEPS + 1];
    snprintf(whole, sizeof whole, "%s_whole", name);
    begin();
    if (!CHECK(session(whole, counts[0], STEPS, more) == 0, "%s: %s", name, said.log)) return;
    memcpy(expected, ranks.loss, sizeof expected);
    begin();
    for (int i = 0; i < n; i++) {
        const int until = STEPS * (i + 1) / n;
        said.out[0] = 0;
        if (!CHECK(session(name, counts[i], until, more) == 0, "%s, session %d: %s", name, i, said.log)) return;
        snprintf(line, sizeof line, "%d rank%s", counts[i], counts[i] > 1 ? "s (threads)" : " x");
        CHECK(strstr(said.out, line) && (i == 0) == !strstr(said.out, "resumed from "), "%s: %s", name, said.out);
    }
    end();
    for (int step = 1; step <= STEPS; step++) {
        if (step <= STEPS / n)
            CHECK(ranks.loss[step] == expected[step], "%s: step %d has loss %.17g, not %.17g", name, step,
                  ranks.loss[step], expected[step]);
        else test_close_number(name, ranks.loss[step], expected[step], test_bound(depth(step)));
    }
    CHECK(!strstr(said.log, "warning") && !strstr(said.log, "wrong"), "%s: %s", name, said.log);
}

TEST(a_run_has_one_session_after_another_on_other_ranks_and_ends_as_the_uninterrupted_one)
{
    static const int more_ranks[] = {2, 3}, fewer[] = {3, 1}, many[] = {2, 3, 1, 2};
    check_sessions("more", "--optimizer adamw", more_ranks, 2);
    check_sessions("fewer", "--zero 3", fewer, 2);
    check_sessions("many", "--recompute layer --load_best_model_at_end true", many, 4);
}

// What watchers add to a session is added to each.
TEST(a_side_network_on_a_cached_model_goes_on_in_a_further_session)
{
    static const int more_ranks[] = {2, 3};
    char more[400];
    begin();
    if (!CHECK(session("base", 1, STEPS, "") == 0, "%s", said.log)) return;
    snprintf(more, sizeof more,
             "--model %s/base/checkpoint-%d --tuning side_only --side_reduction_factor 4 --side_cache memory "
             "--validation_fraction 0.9",
             folder, STEPS);
    check_sessions("side", more, more_ranks, 2);
    CHECK(strstr(said.out, "side cache, epoch "), "%s", said.out);
}

TEST(on_the_same_ranks_a_further_session_changes_no_bit)
{
    static const int same[] = {2, 2};
    double expected[STEPS + 1];
    check_sessions("same", "", same, 2);
    memcpy(expected, ranks.loss, sizeof expected);
    begin();
    CHECK(session("same_whole_too", 2, STEPS, "") == 0, "%s", said.log);
    for (int step = 1; step <= STEPS; step++)
        CHECK(ranks.loss[step] == expected[step], "step %d has loss %.17g, not %.17g", step, expected[step],
              ranks.loss[step]);
}

TEST(a_session_that_is_refused_ends_the_run_with_the_error)
{
    begin();
    CHECK(session("refused", 2, STEPS / 2, "") == 0, "%s", said.log);
    CHECK(session("refused", 3, STEPS, "--no_such_option 1") == 1 && strstr(said.log, "no_such_option"), "%s",
          said.log);
    begin();
    CHECK(session("unequal", 2, STEPS / 2, "") == 0, "%s", said.log);
    CHECK(session("unequal", 3, STEPS, "--device_comm nccl") == 1 && strstr(said.log, "--device_comm nccl"), "%s",
          said.log);
}

TEST(the_log_of_a_run_goes_on_through_its_sessions)
{
    static const int more_ranks[] = {2, 3};
    char path[300], *text = NULL;
    int64_t bytes = 0;
    GxError e = GX_ZERO;
    check_sessions("logged", "--report_to tensorboard", more_ranks, 2);
    snprintf(path, sizeof path, "%s/logged/log.jsonl", folder);
    if (!CHECK(gx_file_read(path, 1 << 20, &text, &bytes, &e) == GX_OK, "%s", e.message)) return;
    for (int step = 1; step <= STEPS; step++) {
        char line[40];
        snprintf(line, sizeof line, "{\"step\": %d, \"loss\"", step);
        const char *at = strstr(text, line);
        CHECK(at && !strstr(at + 1, line), "step %d is not there once: %s", step, text);
    }
    free(text);
    CHECK(strstr(said.out, "done: 8 steps"), "%s", said.out);
}

static int plan_only(GxContext *g, int argc, char **argv)
{
    static GxTrainRun run;
    static GxSession s;
    g->log.write = hear_log;
    s.g = g, s.run = &run;
    const GxStatus opened = gx_run_open(&run, g, &gx_llama, &gx_causal_lm, NULL, NULL, argc, argv);
    if (opened == GX_OK) gx_session_open(&s, &run, g);
    CHECK(!gx_failed(g) && s.plan.arena > 0 && s.plan.flops > 0 && s.plan.copies == 1, "%s: %ld bytes, %g FLOPs",
          g->error.message, (long)s.plan.arena, s.plan.flops);
    CHECK(!s.arena.base && !run.watchers.n && run.lock < 0, "more is open than a plan needs");
    gx_session_close(&s);
    gx_run_close(&run);
    return gx_failed(g);
}

TEST(a_plan_needs_a_run_and_a_session_and_no_trainer)
{
    char *argv[] = {(char *)"train",     (char *)"--dry_run", (char *)"--train_data", (char *)"nowhere.txt",
                    (char *)"--threads", (char *)"1",         (char *)"--output_dir", (char *)"/nowhere/at/all"};
    begin();
    CHECK(gx_launch(plan_only, sizeof argv / sizeof *argv, argv) == 0, "%s", said.log);
}

static void write_text(void)
{
    static const char *const words[] = {"river", "mountain", "gold", "silver", "the", "king", "and", "people"};
    char path[300];
    unsigned state = 1;
    snprintf(path, sizeof path, "%s/text.txt", folder);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 4000; i++) {
        state = state * 1664525u + 1013904223u;
        fprintf(f, "%s%s", words[state >> 29], i % 9 == 8 ? ".\n" : " ");
    }
    if (f) fclose(f);
}

int main(int argc, char **argv)
{
    char command[100];
    if (!mkdtemp(folder)) return 1;
    write_text();
    const int status = test_main(argc, argv);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || status;
}
