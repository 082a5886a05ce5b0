// test_run.cu: the trainer's parts by themselves: schedules, the batch equation, sampling, what a run says.
// (test_train.cu shows the program as a whole.)
#define GX_NO_MAIN
#define _GNU_SOURCE // affinity
#include "train_llama.cu"
#include "test/test.h"
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

// ---- learning rates ------------------------------------------------------------------------------------------------

TEST(schedules_are_what_the_reference_says)
{
    const struct {
        const char *reference, *name;
        double floor;
        int64_t decay;
    } list[] = {
        {"schedule.constant", "constant", 0, 1},  {"schedule.linear", "linear", 0, 1},
        {"schedule.cosine", "cosine", 0.1, 1},    {"schedule.wsd_linear", "wsd", 0, 15},
        {"schedule.wsd_sqrt", "wsd_sqrt", 0, 15},
    };
    GxSafetensors file;
    GxError err = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&file, "data/ref/ops.safetensors", &err) == GX_OK, "%s", err.message)) return;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        float reference[40], ours[40];
        GxSchedule s;
        const GxSafetensorsEntry *e = gx_safetensors_find(&file, list[i].reference);
        if (!CHECK(e && e->elements == 40, "no %s of 40 steps", list[i].reference)) continue;
        CHECK(gx_safetensors_read(&file, e, 0, 40, reference, &err) == GX_OK, "%s", err.message);
        CHECK(gx_schedule_open(&s, list[i].name, 1, list[i].floor, 5, list[i].decay, 40, &err) == GX_OK, "%s",
              err.message);
        for (int step = 0; step < 40; step++) ours[step] = (float)gx_schedule_rate(&s, step);
        test_close_f(list[i].name, ours, reference, 40, test_bound(1), 0);
    }
    gx_safetensors_close(&file);
}

TEST(schedules_that_do_not_fit_are_refused)
{
    const struct {
        const char *name;
        int64_t warmup, decay;
        const char *says;
    } bad[] = {{"cosine", 41, 1, "warmup_steps (41)"},
               {"wsd", 30, 15, "lr_decay_steps"},
               {"polynomial", 1, 1, "no schedule \"polynomial\""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GxSchedule s;
        GxError err = GX_ZERO;
        CHECK(gx_schedule_open(&s, bad[i].name, 1, 0, bad[i].warmup, bad[i].decay, 40, &err) == GX_ERR_ARGUMENT &&
                  strstr(err.message, bad[i].says),
              "%s", err.message);
    }
}

// ---- how many ranks there are --------------------------------------------------------------------------------------

static int say_world(GxContext *g, int argc, char **argv)
{
    (void)argc, (void)argv;
    return g->world;
}

// The world that a rank of `./program flags` sees.
static int world_of(const char *flags)
{
    char line[400], *argv[20] = {(char *)"program"};
    int argc = 1;
    snprintf(line, sizeof line, "%s", flags);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    return gx_launch(say_world, argc, argv);
}

TEST(of_two_equal_flags_the_launcher_takes_the_last_too)
{
    GxError err = GX_ZERO;
    char file[] = "/tmp/galaxy_test_run_XXXXXX", flags[200];
    close(mkstemp(file));
    CHECK(gx_file_write(file, "{\"ranks\": 4}", 12, &err) == GX_OK, "%s", err.message);
    CHECK(world_of("--ranks 1 --ranks 2") == 2 && world_of("--ranks=3 --seed 1 --ranks=1") == 1, "the first counts");
    snprintf(flags, sizeof flags, "--config none.json --config %s", file);
    CHECK(world_of(flags) == 4, "another file's ranks: %d", world_of(flags));
    snprintf(flags, sizeof flags, "--ranks 3 --config %s --ranks 2", file);
    CHECK(world_of(flags) == 2, "%d ranks", world_of(flags));
    // rank 0 of one, not rank 1 of three, whose address nobody listens at
    CHECK(world_of("--world 3 --rank 1 --init tcp://127.0.0.1:9 --timeout 5 --rank 0 --world 1 --init "
                   "tcp://127.0.0.1:29500") == 1,
          "the first address counts");
    // nobody comes, for the last time that is said
    const double begin = gx_seconds();
    CHECK(world_of("--world 2 --rank 1 --init tcp://127.0.0.1:9 --timeout 5 --timeout 0.1") == 1, "it met somebody");
    CHECK(gx_seconds() - begin < 4, "it waited %g s", gx_seconds() - begin);
    unlink(file);
}

// ---- cores, threads and how they wait ------------------------------------------------------------------------------

static void write_below(const char *root, const char *path, const char *text)
{
    char full[300];
    GxError err = GX_ZERO;
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    CHECK(gx_file_write(full, text, (int64_t)strlen(text), &err) == GX_OK, "%s", err.message);
}

TEST(the_cpu_limit_of_a_container_is_the_least_of_its_control_groups)
{
    static const struct {
        const char *groups, *file[3][2];
        double limit;
    } cases[] = {
        {"0::/\n", {{"cpu.max", "150000 100000\n"}}, 1.5}, // a container with version 2
        {"0::/\n", {{"cpu.max", "max 100000\n"}}, 0},      // without a limit
        {"0::/a/b\n", {{"a/cpu.max", "200000 100000\n"}, {"a/b/cpu.max", "max 100000\n"}}, 2}, // set further up
        {"0::/a/b\n", {{"a/cpu.max", "200000 100000\n"}, {"a/b/cpu.max", "50000 100000\n"}}, 0.5},
        {"5:cpuset:/z\n4:cpu,cpuacct:/docker/1\n0::/\n", // version 1: the path is the machine's, the files are not
                                                         // there
         {{"cpu/cpu.cfs_quota_us", "250000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
         2.5},
        {"4:cpuacct,cpu:/job\n", {{"cpu/job/cpu.cfs_quota_us", "-1\n"}, {"cpu/job/cpu.cfs_period_us", "100000\n"}}, 0},
        {"4:cpuset:/\n", {{"cpu/cpu.cfs_quota_us", "250000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}}, 0},
        {"", {{NULL, NULL}}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[] = "/tmp/galaxy_test_run_XXXXXX", path[100];
        GxError err = GX_ZERO;
        if (!CHECK(mkdtemp(root) != NULL, "no temporary folder")) return;
        write_below(root, "proc/self/cgroup", cases[i].groups);
        for (int k = 0; k < 3 && cases[i].file[k][0]; k++) {
            snprintf(path, sizeof path, "sys/fs/cgroup/%s", cases[i].file[k][0]);
            write_below(root, path, cases[i].file[k][1]);
        }
        CHECK(gx_cpu_limit(root) == cases[i].limit, "case %zu: %g, not %g", i, gx_cpu_limit(root), cases[i].limit);
        CHECK(gx_folder_remove(root, &err) == GX_OK, "%s", err.message);
    }
}

TEST(the_number_of_threads_comes_with_its_reason)
{
    char text[GX_THREADS_TEXT], expected[GX_THREADS_TEXT];
    GxComm comm = GX_ZERO;
    comm.world = comm.local_ranks = 1;
    const char *before = getenv("OMP_NUM_THREADS");
    char kept[40] = "";
    if (before) snprintf(kept, sizeof kept, "%s", before);
    unsetenv("OMP_NUM_THREADS");
#ifndef _OPENMP
    gx_threads_text(NULL, 7, 7, text);
    CHECK(!strcmp(text, "1 thread (built without OpenMP)"), "%s", text);
#else
    const int cores = gx_cores();
    CHECK(cores >= 1 && gx_threads_for(NULL) == cores, "%d cores, %d threads", cores, gx_threads_for(NULL));
    gx_threads_text(NULL, 7, 7, text);
    CHECK(!strcmp(text, "7 threads (--threads)"), "%s", text);
    gx_threads_text(NULL, cores + 1, 0, text);
    CHECK(strstr(text, "(as the program says)"), "%s", text);
    gx_threads_text(NULL, gx_threads_for(NULL), 0, text);
    snprintf(expected, sizeof expected, "%d thread%s (%d core%s / 1 rank", cores, cores == 1 ? "" : "s", cores,
             cores == 1 ? "" : "s");
    CHECK(strstr(text, expected) == text, "%s, not %s", text, expected);
    comm.world = 8, comm.local_ranks = 2 * cores;
    gx_threads_text(&comm, gx_threads_for(&comm), 0, text);
    snprintf(expected, sizeof expected, "1 thread (%d core%s / %d ranks", cores, cores == 1 ? "" : "s", 2 * cores);
    CHECK(strstr(text, expected) == text, "%s, not %s", text, expected);
    setenv("OMP_NUM_THREADS", "77", 1);
    gx_threads_text(&comm, gx_threads_for(&comm), 0, text);
    CHECK(strstr(text, "; OMP_NUM_THREADS does not count)"), "%s", text);
    unsetenv("OMP_NUM_THREADS");
#endif
    if (before) setenv("OMP_NUM_THREADS", kept, 1);
}

static void keep_warning(void *user, GxLogLevel level, const char *text)
{
    if (level == GX_LOG_WARNING) snprintf((char *)user, 200, "%s", text);
}

TEST(more_threads_than_cores_are_warned_of)
{
    char text[200] = "";
    GxLogger log = {keep_warning, text};
    gx_warn_cores(&log, gx_cores(), 1);
    CHECK(!text[0], "%s", text);
    gx_warn_cores(&log, gx_cores() + 1, 1);
    CHECK(strstr(text, "wait for each other"), "%s", text);
}

#if defined(__linux__) && defined(_OPENMP)
TEST(a_process_that_is_bound_to_a_core_says_so)
{
    cpu_set_t before, one;
    char text[GX_THREADS_TEXT];
    if (!CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "no affinity")) return;
    if (CPU_COUNT(&before) < 2) SKIP("there is one core");
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before) && CPU_COUNT(&one) == 0) CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
    gx_threads_text(NULL, gx_threads_for(NULL), 0, text);
    CHECK(gx_cores() == 1 && strstr(text, "1 thread (1 core / 1 rank; this process may use 1 of the machine's "), "%s",
          text);
    sched_setaffinity(0, sizeof before, &before);
    CHECK(gx_cores() > 1, "still bound");
}
#endif

// ---- the batch equation --------------------------------------------------------------------------------------------

static GxStatus resolve(const char *const *args, int ranks, GxTrainOptions *o, GxSplit *split, GxError *err)
{
    GxConfig c;
    int n = 0;
    while (args[n]) n++;
    gx_config_open(&c);
    GX_TRY(gx_options_add(&c, o, NULL, err));
    GX_TRY(gx_config_read_args(&c, n, (char **)args, err));
    return gx_options_resolve_batch(o, &c, ranks, split, err);
}

TEST(two_of_batch_accumulation_and_micro_batch_give_the_third)
{
    const struct {
        const char *args[8];
        int ranks;
        int64_t micro, accumulation, global, rank0;
    } good[] = {
        {{"p", NULL}, 1, 8, 1, 8, 8},
        {{"p", "--micro_batch_size", "4", "--gradient_accumulation_steps", "3", NULL}, 2, 4, 3, 24, 4},
        {{"p", "--micro_batch_size", "4", "--global_batch_size", "24", NULL}, 2, 4, 3, 24, 4},
        {{"p", "--gradient_accumulation_steps", "3", "--global_batch_size", "24", NULL}, 2, 4, 3, 24, 4},
        {{"p", "--micro_batch_size", "4", "--gradient_accumulation_steps", "3", "--global_batch_size", "24"},
         2,
         4,
         3,
         24,
         4},
        {{"p", "--dp_batch_size_list", "5,1", "--global_batch_size", "18", NULL}, 2, 0, 3, 18, 5},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const char *args[9];
        GxTrainOptions o;
        GxSplit split;
        GxError err = GX_ZERO;
        memcpy(args, good[i].args, sizeof good[i].args);
        args[8] = NULL;
        if (!CHECK(resolve(args, good[i].ranks, &o, &split, &err) == GX_OK, "case %d: %s", (int)i, err.message))
            continue;
        CHECK(o.micro_batch_size == good[i].micro && o.gradient_accumulation_steps == good[i].accumulation &&
                  o.global_batch_size == good[i].global && gx_split_part(&split, 0) == good[i].rank0,
              "case %d: micro %ld, accumulation %ld, global %ld, rank 0 %ld", (int)i, (long)o.micro_batch_size,
              (long)o.gradient_accumulation_steps, (long)o.global_batch_size, (long)gx_split_part(&split, 0));
    }
}

TEST(batches_that_do_not_multiply_are_refused_with_their_numbers)
{
    const struct {
        const char *args[8];
        int ranks;
        const char *says[3];
    } bad[] = {
        {{"p", "--micro_batch_size", "4", "--gradient_accumulation_steps", "3", "--global_batch_size", "25"},
         2,
         {"25", "= 24", "nearest that fit are 24 and 48"}},
        {{"p", "--micro_batch_size", "4", "--gradient_accumulation_steps", "5", "--global_batch_size", "24"},
         1,
         {"24", "= 20", "nearest that fit are 20 and 40"}},
        {{"p", "--gradient_accumulation_steps", "3", "--global_batch_size", "25", NULL},
         2,
         {"25", "= 48", "nearest that fit are 24 and 30"}},
        {{"p", "--micro_batch_size", "4", "--global_batch_size", "6", NULL}, 1, {"6", "micro_batch_size 4", "4 and 8"}},
        {{"p", "--micro_batch_size", "4", "--global_batch_size", "6", NULL},
         2,
         {"6", "= 8", "the smallest that fits is 8"}},
        {{"p", "--micro_batch_size", "4", "--dp_batch_size_list", "3,1", NULL},
         2,
         {"both given", "list", "micro_batch_size"}},
        {{"p", "--dp_batch_size_list", "3,1", NULL}, 3, {"dp_batch_size_list", "3", "2"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *args[9];
        GxTrainOptions o;
        GxSplit split;
        GxError err = GX_ZERO;
        memcpy(args, bad[i].args, sizeof bad[i].args);
        args[8] = NULL;
        CHECK(resolve(args, bad[i].ranks, &o, &split, &err) != GX_OK, "case %d was taken", (int)i);
        for (int s = 0; s < 3; s++)
            CHECK(strstr(err.message, bad[i].says[s]), "case %d: no \"%s\" in: %s", (int)i, bad[i].says[s],
                  err.message);
    }
}

// ---- signals -------------------------------------------------------------------------------------------------------

static volatile int alarms;
static void count_alarm(int number)
{
    (void)number;
    alarms = alarms + 1;
}

TEST(signals_do_not_disturb_matrix_products)
{
    enum { M = 512, N = 96, K = 256, REPEATS = 1500 };
    float *a = (float *)malloc(M * K * 4), *b = (float *)malloc(K * N * 4), *c = (float *)malloc(M * N * 4),
          *first = (float *)malloc(M * N * 4);
    const struct itimerval every_ms = {{0, 500}, {0, 500}}, off = {{0, 0}, {0, 0}};
    GxGemm p = {0, 0, M, N, K, 1, 0, a, b, K, N, c, N, GX_F32, GX_F32};
    GxError err = GX_ZERO;
    int wrong = 0;
    for (int i = 0; i < M * K; i++) a[i] = (float)(i % 13);
    for (int i = 0; i < K * N; i++) b[i] = (float)(i % 17);
    gx_cpu_gemm(&p, 1, &err);
    memcpy(first, c, M * N * 4);
    gx_on_signal(SIGALRM, count_alarm, 0);
    setitimer(ITIMER_REAL, &every_ms, NULL);
    for (int i = 0; i < REPEATS || alarms < 50; i++) {
        void *small[16]; // a heap that was written to shows here
        for (int j = 0; j < 16; j++) small[j] = malloc((size_t)(40 + 50 * j));
        gx_cpu_gemm(&p, 1, &err);
        wrong += memcmp(first, c, M * N * 4) != 0;
        for (int j = 0; j < 16; j++) free(small[j]);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(!wrong && err.code == GX_OK, "%d products were wrong after %d signals", wrong, alarms);
    free(a), free(b), free(c), free(first);
}

// ---- sampling ------------------------------------------------------------------------------------------------------

TEST(temperature_0_takes_the_likeliest)
{
    const float logits[] = {0, 3, 1, 2.9f};
    GxSampling s = {0, 0, 1, 0};
    for (int i = 0; i < 20; i++) CHECK(gx_sample_token(logits, 4, &s, i) == 1, "position %d", i);
}

TEST(samples_follow_the_softmax)
{
    enum { N = 40000, V = 4 };
    const float logits[V] = {0, 1, 2, -1};
    const double temperature = 1.5;
    GxSampling s = {temperature, 0, 7, 0};
    double sum = 0, expected[V], chi = 0;
    int count[V] = {0};
    for (int v = 0; v < V; v++) sum += exp(logits[v] / temperature);
    for (int i = 0; i < N; i++) count[gx_sample_token(logits, V, &s, i)]++;
    for (int v = 0; v < V; v++) {
        expected[v] = (double)N * exp(logits[v] / temperature) / sum;
        chi += (count[v] - expected[v]) * (count[v] - expected[v]) / expected[v];
    }
    CHECK(chi < 25, "chi-squared %.1f with 3 degrees of freedom", chi); // 25: one in 100,000
}

TEST(top_k_keeps_the_k_largest_and_ties_at_the_last)
{
    const float logits[] = {5, 1, 3, 3, 0, 2};
    const struct {
        int64_t k;
        const char *possible;
    } list[] = {{1, "100000"}, {2, "101100"}, {3, "101100"}, {4, "101101"}, {6, "111111"}, {0, "111111"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxSampling s = {3, list[i].k, 9, 0};
        char seen[] = "000000";
        for (int n = 0; n < 3000; n++) seen[gx_sample_token(logits, 6, &s, n)] = '1';
        CHECK(!strcmp(seen, list[i].possible), "k %ld: %s, expected %s", (long)list[i].k, seen, list[i].possible);
    }
}

// A model whose likeliest token is the one after the last of the window, but for a row that no token has.
enum { COUNTED = 6, ROWS_BEYOND = 8, WINDOW = 4, TEXT = 11 };
typedef struct {
    int runs;
    int64_t T[TEXT], row[TEXT];
    int32_t window[TEXT][WINDOW];
} Counting;

static void count_on(GxContext *g, void *user, const GxBatch *b)
{
    (void)g;
    Counting *c = (Counting *)user;
    float *logits = (float *)b->logits.data;
    c->T[c->runs] = b->T, c->row[c->runs] = b->logits_row;
    memcpy(c->window[c->runs++], b->tokens, (size_t)b->T * 4);
    memset(logits, 0, ROWS_BEYOND * sizeof *logits);
    logits[ROWS_BEYOND - 1] = 9, logits[(b->tokens[b->logits_row] + 1) % COUNTED] = 5;
}

TEST(generation_sees_the_last_window_and_draws_known_tokens_alone)
{
    GxContext g = GX_ZERO;
    GxArena arena = GX_ZERO;
    GxGenerator w;
    Counting c = GX_ZERO;
    GxForward forward = {count_on, &c, NULL, NULL};
    const GxSampling s = {0, 0, 1, COUNTED};
    int32_t tokens[TEXT] = {3, 4};
    g.device = gx_device_cpu();
    gx_arena_open(&arena, 1 << 16, &g.error);
    g.arena = &arena;
    gx_generator_take(&g, &w, WINDOW, ROWS_BEYOND, GX_F32);
    const int64_t n = gx_generate(&g, &forward, &w, tokens, 2, TEXT, &s);
    CHECK(n == TEXT && c.runs == TEXT - 2 && !gx_failed(&g), "%ld tokens, %d runs; %s", (long)n, c.runs,
          g.error.message);
    for (int i = 0; i < TEXT; i++) CHECK(tokens[i] == (3 + i) % COUNTED, "token %d is %d", i, tokens[i]);
    for (int i = 0; i < c.runs; i++) {
        const int have = 2 + i, T = have < WINDOW ? have : WINDOW;
        CHECK(c.T[i] == T && c.row[i] == T - 1, "run %d: T %ld, row %ld", i, (long)c.T[i], (long)c.row[i]);
        CHECK(!memcmp(c.window[i], tokens + have - T, (size_t)T * 4), "run %d sees other tokens than the last %d", i,
              T);
    }
    gx_arena_close(&arena);
}

// ---- what the ranks agree on, and what a checkpoint says ------------------------------------------------------------

TEST(the_first_difference_is_named_with_both_values_and_both_ranks)
{
    static const struct {
        const char *first, *mine, *says;
    } pairs[] = {
        {"{\"seed\":1,\"tp\":2}", "{\"seed\":1,\"tp\":2}", NULL},
        {"{\"seed\":1,\"tp\":2}", "{\"seed\":1,\"tp\":4}", "--tp is 2 on rank 0 and 4 on rank 3"},
        {"{\"seed\":1,\"tp\":2}", "{\"seed\":1}", "--tp is 2 on rank 0 and not given on rank 3"},
        {"{\"seed\":1}", "{\"seed\":1,\"tp\":2}", "--tp is not given on rank 0 and 2 on rank 3"},
        {"{\"heads\":[3,1]}", "{\"heads\":[1,3]}", "--heads is [3,1] on rank 0 and [1,3] on rank 3"},
        {"{\"tp\":2,\"the program\":\"a\"}", "{\"tp\":1,\"the program\":\"b\"}",
         "the program is \"a\" on rank 0 and \"b\" on rank 3; all ranks need the same"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        GxError err = GX_ZERO;
        const GxStatus status = gx_options_compare(pairs[i].first, pairs[i].mine, 3, &err);
        CHECK(pairs[i].says ? status == GX_ERR_COMM && strstr(err.message, pairs[i].says) != NULL : status == GX_OK,
              "%s and %s: %s", pairs[i].first, pairs[i].mine, err.message);
    }
}

TEST(a_trainer_state_with_impossible_numbers_is_refused)
{
#define STATE(samples, seed, optimizer)                                                                                \
    "{\"global_step\": 3, \"applied_steps\": 3, \"samples_seen\": " samples ", \"seed\": " seed                        \
    ", \"text_bytes\": 9, \"text_hash\": -7, \"seq_len\": 4, \"run\": 5, \"optimizer\": " optimizer "}"
    static const struct {
        const char *text, *says;
    } states[] = {{STATE("12", "0", "\"sgd\""), NULL},
                  {STATE("-1", "0", "\"sgd\""), ": samples_seen is -1; expected an integer, at least 0"},
                  {STATE("12", "1.5", "\"sgd\""), ": seed is 1.5; expected an integer, at least 0"},
                  {STATE("12", "null", "\"sgd\""), ": seed is missing"},
                  {STATE("12", "0", "\"lion\""), ": optimizer is \"lion\"; expected one of adamw|sgd"}};
    char path[] = "/tmp/galaxy_test_run_XXXXXX";
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return;
    close(file);
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        GxError err = GX_ZERO;
        GxTrainState s = GX_ZERO;
        CHECK(gx_file_write(path, states[i].text, (int64_t)strlen(states[i].text), &err) == GX_OK, "%s", err.message);
        const GxStatus status = gx_train_state_read(path, &s, &err);
        if (!states[i].says)
            CHECK(status == GX_OK && s.samples == 12 && s.run == 5 && !strcmp(s.optimizer, "sgd"), "%s", err.message);
        else
            CHECK(status == GX_ERR_FORMAT && strstr(err.message, path) && strstr(err.message, states[i].says), "%s",
                  err.message);
    }
    unlink(path);
}

// ---- what a run says -----------------------------------------------------------------------------------------------

typedef struct {
    char text[20000];
} Heard;

static void hear(void *user, const char *text)
{
    Heard *h = (Heard *)user;
    const size_t have = strlen(h->text);
    snprintf(h->text + have, sizeof h->text - have, "%s", text);
}

static void hear_log(void *user, GxLogLevel level, const char *text)
{
    (void)level;
    hear(user, text);
}

// The bytes that reached the file descriptor 1 while a tiny model was trained in `folder`, by a program that brings its
// own reporter (or none: NULL) and logger.
static long train_in_process(const char *folder, const char *more, const GxReporter *reporter, Heard *errors,
                             int *status)
{
    char text[300], all[600], *argv[40] = {(char *)"train"};
    GxError err = GX_ZERO;
    GxContext g = GX_ZERO;
    struct stat st;
    int argc = 1;
    snprintf(text, sizeof text, "%s/text.txt", folder);
    for (int i = 0; i < 2000; i++) all[i % 500] = (char)('a' + i * i % 23);
    CHECK(gx_file_write(text, all, 500, &err) == GX_OK, "%s", err.message);
    snprintf(all, sizeof all,
             "--train_data %s --output_dir %s/out --max_steps 2 --hidden_size 16 --intermediate_size 16 "
             "--num_hidden_layers 1 --num_attention_heads 2 --num_key_value_heads 1 --seq_len 8 --micro_batch_size 2 "
             "--sample_bytes 5 --validation_fraction 0.2 %s",
             text, folder, more);
    for (char *word = strtok(all, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    g.device = gx_device_cpu();
    g.world = 1;
    g.reporter = reporter;
    g.log.write = hear_log, g.log.user = errors;
    fflush(stdout);
    FILE *caught = tmpfile();
    const int before = dup(1);
    dup2(fileno(caught), 1);
    *status = gx_train(&g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
    fflush(stdout);
    fstat(fileno(caught), &st);
    dup2(before, 1);
    close(before);
    fclose(caught);
    return (long)st.st_size;
}

static int make_folder(char folder[40])
{
    snprintf(folder, 40, "/tmp/galaxy_test_run_XXXXXX");
    return CHECK(mkdtemp(folder) != NULL, "no temporary folder");
}

static void remove_folder(const char *folder)
{
    GxError err = GX_ZERO;
    CHECK(gx_folder_remove(folder, &err) == GX_OK, "%s", err.message);
}

TEST(a_program_that_brings_its_reporter_hears_every_line_and_nothing_is_printed)
{
    static const char *const lines[] = {
        "galaxy ",      "model: llama", "data: ",       "options: ",       "memory plan", "GFLOP per step",
        "bigram model", "step     1/2", "step     2/2", "validation loss", "saved ",      "sample:\nIn the beginning ",
        "loss curve: ", "log: "};
    static Heard said, errors;
    const GxReporter reporter = {hear, &said};
    char folder[40];
    int status;
    if (!make_folder(folder)) return;
    long printed = train_in_process(folder, "", &reporter, &errors, &status);
    CHECK(status == 0 && printed == 0, "status %d, %ld bytes on stdout; %s", status, printed, errors.text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(said.text, lines[i]), "nobody was told \"%s\": %s", lines[i], said.text);
    said.text[0] = 0;
    train_in_process(folder, "--help", &reporter, &errors, &status);
    CHECK(status == 0 && strstr(said.text, "usage: train") && strstr(said.text, "--seq_len N"), "help: %s", said.text);
    remove_folder(folder);
}

TEST(a_run_without_a_reporter_is_silent_and_an_error_goes_to_the_logger_and_the_status)
{
    static Heard errors;
    char folder[40];
    int status;
    if (!make_folder(folder)) return;
    long printed = train_in_process(folder, "", NULL, &errors, &status);
    CHECK(status == 0 && printed == 0 && !errors.text[0], "status %d, %ld bytes, %s", status, printed, errors.text);
    printed = train_in_process(folder, "--hidden_size 15", NULL, &errors, &status);
    CHECK(status == 1 && printed == 0 && strstr(errors.text, "hidden_size"), "status %d, %ld bytes, %s", status,
          printed, errors.text);
    remove_folder(folder);
}

// What the logger of a program hears that trains so.
static const char *warnings_of(const char *flags)
{
    static Heard errors;
    char folder[40];
    int status = -1;
    errors.text[0] = 0;
    if (make_folder(folder)) train_in_process(folder, flags, NULL, &errors, &status), remove_folder(folder);
    CHECK(status == 0, "%s: %s", flags, errors.text);
    return errors.text;
}

// A library cannot start the program again.
TEST(a_program_of_ones_own_is_warned_once_of_threads_that_spin)
{
    static const char *const variables[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"},
                             *const words = "set OMP_WAIT_POLICY=passive before it starts";
    char kept[2][40] = {"", ""};
    for (int i = 0; i < 2; i++) {
        const char *value = getenv(variables[i]);
        if (value) snprintf(kept[i], sizeof kept[i], "%s", value);
        unsetenv(variables[i]);
    }
    CHECK(!strstr(warnings_of("--threads 1"), words), "one thread waits for nobody");
#ifdef _OPENMP
    const char *said = warnings_of("--threads 2"), *first = strstr(said, words);
    CHECK(first && !strstr(first + 1, "spin"), "%s", said);
#endif
    for (int i = 0; i < 2; i++) {
        setenv(variables[i], i ? "100" : "active", 1);
        CHECK(!strstr(warnings_of("--threads 2"), words), "%s is set", variables[i]);
        unsetenv(variables[i]);
    }
    for (int i = 0; i < 2; i++)
        if (kept[i][0]) setenv(variables[i], kept[i], 1);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
