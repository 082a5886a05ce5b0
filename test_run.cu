// test_run.cu: the trainer's parts by themselves: schedules, the batch equation, sampling, what a run says.
// (test_train.cu shows the program as a whole.)
#define GX_NO_MAIN
#define _GNU_SOURCE // affinity
#include "train_llama.cu"
#include "test/test.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

// ---- what is computed again ----------------------------------------------------------------------------------------

TEST(recompute_is_read_by_layer_and_written_as_short_as_it_can_be)
{
    enum { A = GX_AGAIN_ATT, M = GX_AGAIN_MLP, L = GX_AGAIN_LAYER, LAYERS = 6 };
    static const struct {
        const char *text, *written;
        uint8_t again[LAYERS];
    } cases[] = {
        {"none", "none", {0, 0, 0, 0, 0, 0}},
        {"auto", "none", {0, 0, 0, 0, 0, 0}},
        {"att+mlp", "att+mlp", {A | M, A | M, A | M, A | M, A | M, A | M}},
        {"layer", "layer", {L, L, L, L, L, L}},
        {"layer:0-5", "layer", {L, L, L, L, L, L}},
        {"layer:1", "layer:1", {0, L, 0, 0, 0, 0}},
        {"att:5,0-1", "att:0-1,5", {A, A, 0, 0, 0, A}},
        {"layer:0-2,mlp:3-5", "layer:0-2,mlp:3-5", {L, L, L, M, M, M}},
        {"mlp:2,layer:0,4,mlp:5,att+mlp:1", "layer:0,att+mlp:1,mlp:2,layer:4,mlp:5", {L, A | M, M, 0, L, M}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t again[GX_MAX_UNITS];
        char text[GX_PATH];
        GxError e = GX_ZERO;
        CHECK(gx_recompute_read(cases[i].text, LAYERS, again, &e) == GX_OK, "%s: %s", cases[i].text, e.message);
        CHECK(!memcmp(again, cases[i].again, LAYERS), "%s: other layers", cases[i].text);
        gx_recompute_write(again, LAYERS, text, sizeof text);
        CHECK(!strcmp(text, cases[i].written), "%s: \"%s\"", cases[i].text, text);
    }
}

TEST(recompute_that_is_written_is_read_as_the_same)
{
    static const uint8_t parts[] = {0, 0, GX_AGAIN_ATT, GX_AGAIN_MLP, GX_AGAIN_ATT | GX_AGAIN_MLP, GX_AGAIN_LAYER};
    for (uint32_t i = 0; i < 3000; i++) {
        uint8_t again[GX_MAX_UNITS] = {0}, read[GX_MAX_UNITS];
        char text[GX_PATH], cut[12];
        GxError e = GX_ZERO;
        const int layers = 1 + (int)(gx_random_bits(5, 0, i, 0) % 40),
                  kinds = 1 + (int)(gx_random_bits(5, 0, i, 1) % 6);
        for (int l = 0; l < layers; l++) {
            const uint32_t bits = gx_random_bits(5, 1, i, (uint32_t)l);
            again[l] = l && bits % 3 ? again[l - 1] : parts[bits / 3 % (uint32_t)kinds];
        }
        gx_recompute_write(again, layers, text, sizeof text);
        CHECK(gx_recompute_read(text, layers, read, &e) == GX_OK && !memcmp(again, read, (size_t)layers),
              "%d layers, \"%s\": %s", layers, text, e.message);
        gx_recompute_write(again, layers, cut, sizeof cut);
        CHECK(!strncmp(text, cut, sizeof cut - 1) && strlen(cut) < sizeof cut, "\"%s\": \"%s\"", text, cut);
    }
}

TEST(recompute_that_says_no_parts_of_layers_is_refused_with_what_is_wrong)
{
    static const char *const cases[][2] = {
        {"all", "expected one of none|att|mlp|att+mlp|layer|auto, or what is computed again of which layers"},
        {"", "expected one of none|att"},
        {"0-5", "expected one of none|att"},
        {"ffn:0", "\"ffn:0\" begins with no part of a layer; these are att, mlp, att+mlp, layer"},
        {"none:0", "begins with no part"},
        {"layers:0", "begins with no part"},
        {":0", "begins with no part"},
        {"0,layer:1", "does not say what of layer 0 is computed again; expected a part before it, such as layer:0"},
        {"layer,mlp:1", "\"layer\" names no layers; expected a part and its layers, such as layer:0-5"},
        {"layer:", "\"layer:\" names no layers"},
        {"layer:0,", "\"\" names no layers"},
        {"layer:0,,1", "\"\" names no layers"},
        {"layer:-1", "names no layers"},
        {"layer:1-", "names no layers"},
        {"layer:1-2-3", "names no layers"},
        {"layer: 1", "names no layers"},
        {"layer:one", "names no layers"},
        {"layer:3-1", "3-1 is backwards; say 1-3"},
        {"layer:0-5,mlp:6", "the model has no layer 6; its layers are 0 to 5"},
        {"layer:99999999999999999999", "its layers are 0 to 5"},
        {"layer:0-2,2", "names layer 2 twice; name it once"},
        {"att:1,mlp:1", "names layer 1 twice; name it once, with all its parts (att+mlp)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t again[GX_MAX_UNITS];
        char begin[100];
        GxError e = GX_ZERO;
        snprintf(begin, sizeof begin, "--recompute is \"%s\"", cases[i][0]);
        CHECK(gx_recompute_read(cases[i][0], 6, again, &e) == GX_ERR_ARGUMENT, "\"%s\" is taken", cases[i][0]);
        CHECK(!strncmp(e.message, begin, strlen(begin)) && strstr(e.message, cases[i][1]), "%s", e.message);
    }
}

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
    CHECK(strstr(text, "; OMP_NUM_THREADS is ignored)"), "%s", text);
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
    GX_TRY(gx_options_add(&c, o, NULL, NULL, "llama", err));
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
        {{"p", "--dp_samples_list", "5,3", "--global_batch_size", "8", "--micro_batch_size", "2", NULL}, 2, 2, 1, 8, 2},
        {{"p", "--dp_samples_list", "5,3", "--dp_batch_size_list", "3,1", NULL}, 2, 0, 1, 8, 3},
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

// training_args.json that somebody changed: the global batch stays, and there is nothing that it could be a multiple
// of.
TEST(a_run_that_goes_on_without_a_micro_batch_is_refused)
{
    static const char args[] = "{\"global_batch_size\": 24, \"micro_batch_size\": 0}";
    GxConfig c;
    GxTrainOptions o;
    GxSplit split;
    GxError err = GX_ZERO;
    GxJson *json = NULL;
    gx_config_open(&c);
    CHECK(gx_options_add(&c, &o, NULL, NULL, "llama", &err) == GX_OK &&
              gx_json_parse(&json, args, (int64_t)strlen(args), "args", &err) == GX_OK &&
              gx_config_take(&c, json, NULL, "args", &err) == GX_OK,
          "%s", err.message);
    CHECK(gx_options_resolve_batch(&o, &c, 2, &split, &err) == GX_ERR_ARGUMENT &&
              strstr(err.message, "micro_batch_size is 0 and there is no dp_batch_size_list"),
          "%s", err.message);
    gx_json_free(json);
}

// Runs of version 0.1, and their flags, say eval_windows.
TEST(max_eval_samples_is_known_by_its_former_name)
{
    static const char args[] = "{\"eval_windows\": 7}";
    char *flags[] = {(char *)"p", (char *)"--eval_windows", (char *)"5"};
    GxConfig c;
    GxTrainOptions o;
    GxError err = GX_ZERO;
    GxJson *json = NULL;
    gx_config_open(&c);
    CHECK(gx_options_add(&c, &o, NULL, NULL, "llama", &err) == GX_OK &&
              gx_json_parse(&json, args, (int64_t)strlen(args), "args", &err) == GX_OK &&
              gx_config_take(&c, json, NULL, "args", &err) == GX_OK,
          "%s", err.message);
    CHECK(o.max_eval_samples == 7, "an earlier run's: %ld", (long)o.max_eval_samples);
    CHECK(gx_json_int(gx_config_in_json(&c, json, "max_eval_samples")) == 7, "to compare with");
    CHECK(!gx_config_in_json(&c, json, "eval_steps"), "there is none");
    gx_json_free(json);
    CHECK(gx_config_read_args(&c, 3, flags, &err) == GX_OK && o.max_eval_samples == 5, "%s: %ld", err.message,
          (long)o.max_eval_samples);
    json = gx_config_to_json(&c, &err);
    CHECK(gx_json_int(gx_json_get(json, "max_eval_samples")) == 5 && !gx_json_get(json, "eval_windows"), "written");
    gx_json_free(json);
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
        {{"p", "--dp_batch_size_list", "3,1", NULL}, 3, {"dp_batch_size_list has 2 entries for 3 copies", "3", "2"}},
        {{"p", "--dp_batch_size_list", "1,1", NULL}, 3, {"dp_batch_size_list has 2 entries for 3 copies", "--tp", ""}},
        {{"p", "--tp", "2", "--dp_batch_size_list", "3,1,1,1", NULL},
         2,
         {"has 4 entries for 2 copies of the model (2 ranks each: --pp x --tp)", "", ""}},
        {{"p", "--global_batch_size", "6", NULL},
         3,
         {"with this micro-batch the smallest that fits is 24; --micro_batch_size 2 divides it", "", ""}},
        {{"p", "--global_batch_size", "5", NULL}, 1, {"fits is 8; --micro_batch_size 5 divides it", "", ""}},
        {{"p", "--global_batch_size", "6", "--micro_batch_size", "4", NULL},
         1,
         {"--micro_batch_size 3 --gradient_accumulation_steps 2 divides it", "", ""}},
        {{"p", "--micro_batch_size", "1", "--global_batch_size", "1000000", NULL},
         1,
         {"--global_batch_size 1000000", "gradient_accumulation_steps is 1000000", "from 1 to 32767"}},
        {{"p", "--gradient_accumulation_steps", "1", "--global_batch_size", "33554432", "--seq_len", "1"},
         1,
         {"--global_batch_size 33554432", "micro_batch_size is 33554432", "from 0 to 16777216"}},
        {{"p", "--gradient_accumulation_steps", "1", "--global_batch_size", "1000000000000", "--seq_len", "16777216"},
         1,
         {"1000000000000 samples x seq_len 16777216", "16777216000000000000 tokens", "at most 1073741824"}},
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

// ---- what each program has -----------------------------------------------------------------------------------------

TEST(the_program_of_a_mode_has_the_options_that_its_mode_can_take_and_names_the_program_with_the_others)
{
    static const char *const lists[] = {"tp_num_attention_heads_list", "tp_intermediate_size_list",
                                        "tp_vocab_size_list", "seq_scatter_list", "mode"};
    static const struct {
        const GxMode *mode;
        int has[5];
    } programs[] = {{&gx_tp, {1, 1, 1, 0, 0}},
                    {&gx_sp, {0, 0, 0, 1, 0}},
                    {&gx_galaxy, {1, 1, 1, 1, 0}},
                    {&gx_galaxy2, {1, 0, 1, 1, 0}},
                    {NULL, {1, 1, 1, 1, 1}}};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const char *name = programs[i].mode ? programs[i].mode->name : "train_bert";
        char *help = NULL, flag[60];
        size_t bytes = 0;
        GxTrainOptions o;
        GxConfig c;
        GxError err = GX_ZERO;
        memset(&o, 0xEE, sizeof o);
        gx_config_open(&c);
        CHECK(gx_options_add(&c, &o, programs[i].mode, NULL, "bert", &err) == GX_OK, "%s", err.message);
        FILE *out = open_memstream(&help, &bytes);
        gx_config_help(&c, NULL, 0, out, 80);
        fclose(out);
        const char *heading = strstr(help, "\none copy of the model");
        CHECK(heading && !strstr(heading + 1, "\none copy of the model"), "%s: not one heading: %s", name, help);
        for (int l = 0; l < 5; l++) {
            char *args[] = {(char *)"p", flag, (char *)"1"};
            snprintf(flag, sizeof flag, "--%s ", lists[l]);
            CHECK(!strstr(help, flag) == !programs[i].has[l], "%s: %s: %s", name, flag, help);
            flag[strlen(flag) - 1] = 0;
            if (programs[i].has[l]) continue;
            gx_error_clear(&err);
            CHECK(gx_config_read_args(&c, 3, args, &err) == GX_ERR_ARGUMENT && strstr(err.message, flag) &&
                      strstr(err.message, "use train_bert"),
                  "%s %s: %s", name, flag, err.message);
        }
        gx_error_clear(&err);
        if (programs[i].mode) CHECK(gx_options_check_lists(&o, programs[i].mode, &err) == GX_OK, "%s", err.message);
        free(help);
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
    GxSampling s = {0, 0, 1, 0, 0, 0, 0};
    for (int i = 0; i < 20; i++) CHECK(gx_sample_token(logits, 4, &s, i) == 1, "position %d", i);
}

TEST(samples_follow_the_softmax)
{
    enum { N = 40000, V = 4 };
    const float logits[V] = {0, 1, 2, -1};
    const double temperature = 1.5;
    GxSampling s = {temperature, 0, 7, 0, 0, 0, 0};
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
        GxSampling s = {3, list[i].k, 9, 0, 0, 0, 0};
        char seen[] = "000000";
        for (int n = 0; n < 3000; n++) seen[gx_sample_token(logits, 6, &s, n)] = '1';
        CHECK(!strcmp(seen, list[i].possible), "k %ld: %s, expected %s", (long)list[i].k, seen, list[i].possible);
    }
}

// A model whose likeliest token is the one after the last that it sees, but for a row that no token has.
enum { COUNTED = 6, WINDOW = 4, TEXT = 11 };
typedef struct {
    int runs;
    int64_t T[TEXT], row[TEXT], position[TEXT];
    int32_t tokens[TEXT][WINDOW];
} Counting;

static void count_on(GxContext *g, void *user, const GxBatch *b, double *loss)
{
    (void)g, (void)loss;
    Counting *c = (Counting *)user;
    const int64_t row = b->target[0].rows_host[0], V = b->target[0].logits.cols;
    float *logits = (float *)b->target[0].logits.data;
    c->T[c->runs] = b->T, c->row[c->runs] = row, c->position[c->runs] = b->runs.run[0].position;
    memcpy(c->tokens[c->runs++], b->tokens, (size_t)b->T * 4);
    memset(logits, 0, (size_t)V * sizeof *logits);
    logits[V - 1] = 9, logits[(b->tokens[row] + 1) % COUNTED] = 5;
}

// Of `ranks` that split the sequence, which has no cache; of one rank, which has one.
typedef struct {
    GxContext g;
    GxArena arena;
    GxMesh mesh;
    GxMode mode;
    GxLlamaConfig config;
    GxModel m;
    GxGenerator w;
} Writer;

static int open_writer(Writer *o, int ranks)
{
    const int dims[GX_MESH_AXES] = {1, 1, 1, 1, ranks};
    const GxLlamaConfig config = {.vocab_size = 256,
                                  .hidden_size = 16,
                                  .intermediate_size = 16,
                                  .num_hidden_layers = 1,
                                  .num_attention_heads = 2,
                                  .num_key_value_heads = 1,
                                  .head_dim = 8,
                                  .max_position_embeddings = 64,
                                  .rms_norm_eps = 1e-5,
                                  .rope_theta = 10000,
                                  .initializer_range = 0.02,
                                  .pad_token_id = -1};
    memset(o, 0, sizeof *o);
    o->config = config;
    o->mode = gx_composed("sp", gx_methods(GX_METHOD_SP, GX_METHOD_SP, GX_METHOD_SP));
    o->m.family = &gx_llama, o->m.config = &o->config, o->m.store.dtype = GX_F32;
    o->m.mode = &o->mode, o->m.members = o->m.widest = ranks;
    o->g.device = gx_device_cpu();
    gx_mesh_open(&o->mesh, dims, 0, ranks, &o->g.error);
    o->g.mesh = &o->mesh;
    gx_arena_open(&o->arena, 1 << 16, &o->g.error);
    o->g.arena = &o->arena;
    gx_generator_allocate(&o->g, &o->w, &o->m, WINDOW);
    return CHECK(!gx_failed(&o->g) && o->w.is_cached == (ranks == 1), "%s", o->g.error.message);
}

// Where the window of n tokens begins: it grows to 4, and begins anew with 2.
static int window_of(int n)
{
    int first = 0;
    for (int i = 1; i <= n; i++)
        if (i - first > WINDOW) first = i - WINDOW / 2;
    return first;
}

// Of a text that grows from one token to far beyond the window; with ranks that each need a token, too.
TEST(generation_sees_its_window_and_draws_known_tokens_alone)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        Writer o;
        Counting c = GX_ZERO;
        GxForward forward = {count_on, &c, NULL, NULL};
        const GxSampling s = {0, 0, 1, COUNTED, 0, 0, 0};
        int32_t tokens[TEXT] = {3};
        if (!open_writer(&o, ranks)) return;
        const int64_t n = gx_generate(&o.g, &forward, &o.w, tokens, 1, TEXT, &s);
        CHECK(n == TEXT && c.runs == TEXT - 1 && !gx_failed(&o.g), "%ld tokens, %d runs; %s", (long)n, c.runs,
              o.g.error.message);
        for (int i = 0; i < TEXT; i++) CHECK(tokens[i] == (3 + i) % COUNTED, "token %d is %d", i, tokens[i]);
        for (int i = 0; i < c.runs; i++) {
            // with a cache the new token alone, but where a window begins
            const int have = 1 + i, first = window_of(have), begins = have == 1 || first != window_of(have - 1),
                      from = ranks > 1 || begins ? first : have - 1, seen = have - from,
                      T = seen < ranks ? ranks : seen;
            CHECK(c.T[i] == T && c.row[i] == seen - 1 && c.position[i] == from - first,
                  "%d tokens, %d ranks: T %ld, row %ld, position %ld", have, ranks, (long)c.T[i], (long)c.row[i],
                  (long)c.position[i]);
            CHECK(!memcmp(c.tokens[i], tokens + from, (size_t)seen * 4), "%d tokens, %d ranks: it sees others", have,
                  ranks);
        }
        gx_arena_close(&o.arena);
    }
}

static void know_nothing(GxContext *g, void *user, const GxBatch *b, double *loss)
{
    (void)g, (void)user, (void)loss;
    memset(b->target[0].logits.data, 0, (size_t)gx_rows_bytes(b->target[0].logits));
}

// By the place in the text, not in the window.
TEST(every_generated_token_is_drawn_by_its_own_place)
{
    enum { LONG = 40 };
    for (int ranks = 1; ranks <= 2; ranks++) {
        Writer o;
        const float logits[256] = {0};
        const GxSampling s = {1, 0, 5, 256, 0, 0, 0};
        GxForward forward = {know_nothing, NULL, NULL, NULL};
        int32_t tokens[LONG] = {3};
        if (!open_writer(&o, ranks)) return;
        gx_generate(&o.g, &forward, &o.w, tokens, 1, LONG, &s);
        for (int i = 1; i < LONG; i++)
            CHECK(tokens[i] == gx_sample_token(logits, 256, &s, i), "token %d is %d", i, tokens[i]);
        gx_arena_close(&o.arena);
    }
}

static void spell_on(GxContext *g, void *user, const GxBatch *b, double *loss)
{
    const int64_t row = b->target[0].rows_host[0];
    (void)g, (void)loss;
    *(int64_t *)user = b->runs.run[0].position + row + 1;
    memset(b->target[0].logits.data, 0, 256 * sizeof(float));
    ((float *)b->target[0].logits.data)[b->tokens[row] + 1] = 5;
}

// A prompt that is longer than that, too: of it the end.
TEST(the_sample_of_a_text_model_sees_at_most_as_many_bytes_as_it_was_trained_on)
{
    static const char *const prompt[] = {"abc", "uvwabc"};
    for (size_t i = 0; i < 2; i++) {
        Writer o;
        GxCausalLm self = GX_ZERO;
        char expected[20];
        int64_t seen = 0;
        GxForward forward = {spell_on, &seen, NULL, NULL};
        if (!open_writer(&o, 1)) return;
        self.tokenizer = gx_tokenizer_bytes(), self.sample_tokens = 6;
        snprintf(self.sample_prompt, sizeof self.sample_prompt, "%s", prompt[i]);
        gx_causal_lm.batch.allocate(&o.g, &self, &o.m, WINDOW);
        char *text = gx_causal_lm.output.sample(&o.g, &self, &forward, 1);
        snprintf(expected, sizeof expected, "%sdefghi", prompt[i]);
        CHECK(text && !strcmp(text, expected) && seen >= 2 && seen <= WINDOW, "\"%s\", %ld seen; %s", text ? text : "",
              (long)seen, o.g.error.message);
        free(text);
        gx_arena_close(&o.arena);
    }
}

// ---- what the ranks agree on, and what a checkpoint says ------------------------------------------------------------

TEST(the_first_difference_is_named_with_both_values_and_both_ranks)
{
#define HUNDRED "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
#define LONG    HUNDRED HUNDRED
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
        {"{\"sample_prompt\":\"" LONG "\"}", "{\"sample_prompt\":\"" LONG "?\"}",
         "--sample_prompt is \"" HUNDRED "0123456789012345678901234567890123456789012345678… on rank 0 and \"0123"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        GxError err = GX_ZERO;
        const GxStatus status = gx_options_compare(pairs[i].first, pairs[i].mine, 3, &err);
        CHECK(pairs[i].says ? status == GX_ERR_COMM && strstr(err.message, pairs[i].says) != NULL : status == GX_OK,
              "%s and %s: %s", pairs[i].first, pairs[i].mine, err.message);
    }
}

TEST(a_difference_with_a_long_name_still_names_the_ranks)
{
    char name[700], first[800];
    GxError err = GX_ZERO;
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    snprintf(first, sizeof first, "{\"%s\":1}", name);
    CHECK(gx_options_compare(first, "{}", 3, &err) == GX_ERR_COMM &&
              strstr(err.message, "1 on rank 0 and not given on rank 3"),
          "%s", err.message);
}

TEST(a_picture_is_drawn_of_any_losses)
{
    static const char *const logs[] = {
        "",
        "{\"step\": 1, \"loss\": 2.5}\n",
        "{\"step\": 1, \"loss\": 1.0}\n{\"step\": 2, \"loss\": 1.0000000000000002}\n", // ticks would be one number
        "{\"step\": 1, \"loss\": 1e300}\n{\"step\": 2, \"loss\": -1.7e308}\n{\"step\": 3, \"loss\": 5.5}\n",
        "{\"step\": 1, \"loss\": 1e90}\n{\"step\": 2, \"eval_loss\": 2e90}\n",
    };
    char folder[] = "/tmp/galaxy_test_run_XXXXXX", log[GX_PATH], svg[GX_PATH], *picture;
    int64_t bytes;
    if (!CHECK(mkdtemp(folder) != NULL, "no temporary folder")) return;
    snprintf(log, sizeof log, "%s/log.jsonl", folder);
    snprintf(svg, sizeof svg, "%s/loss.svg", folder);
    alarm(20); // what does not end is killed
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        GxError err = GX_ZERO;
        CHECK(gx_file_write(log, logs[i], (int64_t)strlen(logs[i]), &err) == GX_OK, "%s", err.message);
        CHECK(gx_plot_loss(log, svg, "a title", NULL, &err) == GX_OK, "%d: %s", (int)i, err.message);
        if (!CHECK(gx_file_read(svg, 1 << 20, &picture, &bytes, &err) == GX_OK, "%d: %s", (int)i, err.message))
            continue;
        CHECK(strstr(picture, "</svg>") && !strstr(picture, "nan") && !strstr(picture, "inf"), "%d: %s", (int)i,
              picture);
        CHECK(!logs[i][0] || strpbrk(strstr(picture, "points=\"") + 8, "0123456789"), "%d: no point: %s", (int)i,
              picture);
        free(picture);
    }
    alarm(0);
    GxError err = GX_ZERO;
    CHECK(gx_folder_remove(folder, &err) == GX_OK, "%s", err.message);
}

TEST(a_trainer_state_with_impossible_numbers_is_refused)
{
#define STATE(numbers, optimizer)                                                                                      \
    "{" numbers ", \"seq_len\": 4, \"run\": 5, \"world_size\": 2, \"threads\": 1, \"methods\": \"ATT TP\", "           \
    "\"optimizer\": " optimizer "}"
#define NUMBERS(step, applied, samples, seed)                                                                          \
    "\"global_step\": " step ", \"applied_steps\": " applied ", \"samples_seen\": " samples ", \"seed\": " seed
#define BEST(step, validated)                                                                                          \
    ", \"best_metric\": 0.5, \"best_global_step\": " step ", \"last_validation_step\": " validated
    static const struct {
        const char *text, *says;
    } states[] = {
        {STATE(NUMBERS("3", "3", "12", "0"), "\"sgd\""), NULL},
        {STATE(NUMBERS("3", "2", "12", "0"), "\"sgd\""), NULL}, // a step was skipped
        {STATE(NUMBERS("3", "3", "-1", "0"), "\"sgd\""),
         ": samples_seen is -1; expected an integer from 0 to 1000000000000000000"},
        {STATE(NUMBERS("3", "3", "9223372036854775807", "0"), "\"sgd\""), ": samples_seen is 9223372036854775807; exp"},
        {STATE(NUMBERS("3", "3", "2", "0"), "\"sgd\""),
         ": samples_seen is 2, but global_step is 3; expected at least one"},
        {STATE(NUMBERS("0", "0", "12", "0"), "\"sgd\""), ": samples_seen is 12, but global_step is 0; expected none"},
        {STATE(NUMBERS("3", "4", "12", "0"), "\"sgd\""),
         ": applied_steps is 4; expected at most global_step, which is 3"},
        {STATE(NUMBERS("3", "-1", "12", "0"), "\"sgd\""), ": applied_steps is -1; expected"},
        {STATE(NUMBERS("9223372036854775807", "3", "12", "0"), "\"sgd\""), ": global_step is 9223372036854775807; exp"},
        {STATE(NUMBERS("3", "3", "12", "1.5"), "\"sgd\""), ": seed is 1.5; expected an integer, at least 0"},
        {STATE(NUMBERS("3", "3", "12", "null"), "\"sgd\""), ": seed is missing"},
        {STATE(NUMBERS("3", "3", "12", "0") BEST("2", "3"), "\"sgd\""), NULL},
        {STATE(NUMBERS("3", "3", "12", "0") BEST("2", "4"), "\"sgd\""),
         ": best_global_step is 2, last_validation_step 4, global_step 3; expected them in ascending order"},
        {STATE(NUMBERS("3", "3", "12", "0") BEST("3", "2"), "\"sgd\""), ": best_global_step is 3, last_val"},
        {STATE(NUMBERS("3", "3", "12", "0") BEST("-1", "2"), "\"sgd\""), ": best_global_step is -1; expected"},
        {STATE(NUMBERS("3", "3", "12", "0"), "\"lion\""), ": optimizer is \"lion\"; expected one of adamw|sgd"}};
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

// ---- config.json ---------------------------------------------------------------------------------------------------

#define SIZES                                                                                                          \
    "\"vocab_size\": 97, \"hidden_size\": 48, \"intermediate_size\": 80, \"num_hidden_layers\": 3, "                   \
    "\"num_attention_heads\": 6"

#define LLAMA3                                                                                                         \
    "\"rope_type\": \"llama3\", \"low_freq_factor\": 1.5, \"high_freq_factor\": 3, "                                   \
    "\"original_max_position_embeddings\": 50"

// Of a file with this text, whose name ends up in path.
static GxStatus read_config_json(GxLlamaConfig *c, const char *text, char path[40], GxError *err)
{
    snprintf(path, 40, "/tmp/galaxy_test_run_XXXXXX");
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return GX_ERR_IO;
    close(file);
    GxStatus status = gx_file_write(path, text, (int64_t)strlen(text), err);
    if (status == GX_OK) status = gx_llama_config_read(c, path, &gx_silent, err);
    unlink(path);
    return status;
}

static int count_of(const char *text, const char *words)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++) n++;
    return n;
}

TEST(a_config_json_says_every_field_and_reads_back_the_same)
{
    static const char *const lines[] = {"\"architectures\": [\"MistralForCausalLM\"]", "\"torch_dtype\": \"float32\"",
                                        "\"bos_token_id\": null"};
    const GxLlamaConfig c = {.vocab_size = 97,
                             .hidden_size = 48,
                             .intermediate_size = 80,
                             .num_hidden_layers = 3,
                             .num_attention_heads = 6,
                             .num_key_value_heads = 3,
                             .head_dim = 10,
                             .max_position_embeddings = 77,
                             .rms_norm_eps = 1,
                             .rope_theta = 500000.5,
                             .initializer_range = 0.5,
                             .tie_word_embeddings = 1,
                             .pad_token_id = 5,
                             .model_type = "mistral",
                             .sliding_window = 70,
                             .rope_type = "llama3",
                             .rope_factor = 2.5,
                             .rope_low_freq_factor = 0.5,
                             .rope_high_freq_factor = 3,
                             .rope_original_max_position_embeddings = 40}; // none of them the default
    GxLlamaConfig back = GX_ZERO;
    GxError err = GX_ZERO;
    char path[40] = "/tmp/galaxy_test_run_XXXXXX", *text = NULL;
    int64_t bytes;
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return;
    close(file);
    CHECK(gx_llama_config_write(&c, NULL, path, &err) == GX_OK &&
              gx_llama_config_read(&back, path, &gx_silent, &err) == GX_OK,
          "%s", err.message);
    for (int i = 0; i < gx_llama.n_fields; i++)
        CHECK(gx_field_same(&gx_llama.fields[i], &c, &back), "%s is not what it was", gx_llama.fields[i].name);
    if (!CHECK(gx_file_read(path, 1 << 16, &text, &bytes, &err) == GX_OK, "%s", err.message)) return;
    CHECK(count_of(text, "\"rope_theta\": 500000.5") == 3, "not for transformers 4 and 5: %s", text);
    CHECK(count_of(text, "\"rope_type\": \"llama3\"") == 2 && count_of(text, "\"factor\": 2.5") == 2 &&
              !strstr(text, "rope_factor"),
          "not for transformers 4 and 5: %s", text);
    CHECK(strstr(text, "\"rms_norm_eps\": 1.0"), "transformers 5 refuses the integer 1 there: %s", text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK(strstr(text, lines[i]), "no %s", lines[i]);
    free(text);
    unlink(path);
}

TEST(a_config_json_of_a_qwen3_says_what_it_is_and_reads_back_the_same)
{
    static const char *const lines[] = {"\"model_type\": \"qwen3\"",
                                        "\"architectures\": [\"Qwen3ForCausalLM\"]",
                                        "\"head_dim\": 10",
                                        "\"attention_bias\": false",
                                        "\"use_sliding_window\": false",
                                        "\"rope_theta\": 1000000.0"};
    const GxLlamaConfig c = {.vocab_size = 97,
                             .hidden_size = 48,
                             .intermediate_size = 80,
                             .num_hidden_layers = 3,
                             .num_attention_heads = 6,
                             .num_key_value_heads = 3,
                             .head_dim = 10,
                             .max_position_embeddings = 77,
                             .rms_norm_eps = 1e-6,
                             .rope_theta = 1e6,
                             .initializer_range = 0.02,
                             .tie_word_embeddings = 1,
                             .pad_token_id = -1,
                             .model_type = "qwen3",
                             .rope_type = "default"};
    GxLlamaConfig back = GX_ZERO;
    GxError err = GX_ZERO;
    char path[40] = "/tmp/galaxy_test_run_XXXXXX", *text = NULL;
    int64_t bytes;
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return;
    close(file);
    CHECK(gx_llama_config_write(&c, NULL, path, &err) == GX_OK &&
              gx_llama_config_read(&back, path, &gx_silent, &err) == GX_OK,
          "%s", err.message);
    for (int i = 0; i < gx_llama.n_fields; i++)
        CHECK(gx_field_same(&gx_llama.fields[i], &c, &back), "%s is not what it was", gx_llama.fields[i].name);
    if (!CHECK(gx_file_read(path, 1 << 16, &text, &bytes, &err) == GX_OK, "%s", err.message)) return;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK(strstr(text, lines[i]), "no %s", lines[i]);
    free(text);
    unlink(path);
}

// Read back, and in transformers' own words: of each layer what it does, and where windows begin for older ones.
TEST(a_config_json_of_a_qwen_with_a_window_says_of_each_layer_whether_it_slides)
{
    static const struct {
        int64_t from;
        const char *types, *says[3];
    } cases[] = {{0, "", {"sliding", "sliding", "sliding"}},
                 {2, "", {"full", "full", "sliding"}},
                 {5, "", {"full", "full", "full"}},
                 {2, "sfs", {"sliding", "full", "sliding"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxLlamaConfig c = {.vocab_size = 97,
                           .hidden_size = 48,
                           .intermediate_size = 80,
                           .num_hidden_layers = 3,
                           .num_attention_heads = 6,
                           .num_key_value_heads = 3,
                           .head_dim = 8,
                           .max_position_embeddings = 77,
                           .rms_norm_eps = 1e-6,
                           .rope_theta = 1e6,
                           .initializer_range = 0.02,
                           .tie_word_embeddings = 1,
                           .pad_token_id = -1,
                           .model_type = "qwen2",
                           .sliding_window = 9,
                           .rope_type = "default"};
        GxLlamaConfig back = GX_ZERO;
        GxError err = GX_ZERO;
        GxJson *json = NULL;
        char path[40] = "/tmp/galaxy_test_run_XXXXXX";
        const int file = mkstemp(path);
        if (!CHECK(file >= 0, "no temporary file")) return;
        close(file);
        c.max_window_layers = cases[i].from;
        snprintf(c.layer_types, sizeof c.layer_types, "%s", cases[i].types);
        CHECK(gx_llama_config_resolve(&c, &err) == GX_OK && gx_llama_config_write(&c, NULL, path, &err) == GX_OK &&
                  gx_llama_config_read(&back, path, &gx_silent, &err) == GX_OK &&
                  gx_json_read(&json, path, GX_CONFIG_JSON_CAP, &err) == GX_OK,
              "%s", err.message);
        for (int f = 0; f < gx_llama.n_fields; f++)
            CHECK(gx_field_same(&gx_llama.fields[f], &c, &back), "%s is not what it was", gx_llama.fields[f].name);
        const GxJson *types = gx_json_get(json, "layer_types");
        for (int l = 0; l < 3; l++)
            CHECK(gx_json_size(types) == 3 && !strncmp(gx_json_string(gx_json_at(types, l)), cases[i].says[l], 4),
                  "case %d, layer %d: %s", (int)i, l, gx_json_string(gx_json_at(types, l)));
        CHECK(gx_json_int(gx_json_get(json, "max_window_layers")) == cases[i].from &&
                  gx_json_bool(gx_json_get(json, "use_sliding_window")) &&
                  gx_json_int(gx_json_get(json, "sliding_window")) == 9,
              "case %d: another window", (int)i);
        gx_json_free(json);
        unlink(path);
    }
}

// Left out, it would be 4096 to transformers.
TEST(a_config_json_of_a_mistral_without_a_window_says_so)
{
    GxLlamaConfig c = {.vocab_size = 97,
                       .hidden_size = 48,
                       .intermediate_size = 80,
                       .num_hidden_layers = 3,
                       .num_attention_heads = 6,
                       .num_key_value_heads = 3,
                       .head_dim = 8,
                       .max_position_embeddings = 77,
                       .rms_norm_eps = 1e-6,
                       .rope_theta = 1e6,
                       .initializer_range = 0.02,
                       .tie_word_embeddings = 1,
                       .pad_token_id = -1,
                       .model_type = "mistral",
                       .rope_type = "default"};
    GxLlamaConfig back = GX_ZERO;
    GxError err = GX_ZERO;
    char path[40] = "/tmp/galaxy_test_run_XXXXXX";
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return;
    close(file);
    CHECK(gx_llama_config_write(&c, NULL, path, &err) == GX_OK &&
              gx_llama_config_read(&back, path, &gx_silent, &err) == GX_OK,
          "%s", err.message);
    CHECK(back.sliding_window == 0 && !strcmp(back.model_type, "mistral"), "a window of %ld",
          (long)back.sliding_window);
    unlink(path);
}

TEST(what_a_config_json_leaves_out_is_what_transformers_takes_for_it)
{
    static const char *const texts[] = {// as LlamaConfig of transformers 4.57 and 5.23 does
                                        "{\"model_type\": \"llama\", " SIZES "}",
                                        "{\"model_type\": \"llama\", " SIZES
                                        ", \"num_key_value_heads\": null, \"head_dim\": null, \"pad_token_id\": null, "
                                        "\"rope_scaling\": null, \"rope_parameters\": {}, \"architectures\": null}"};
    const GxLlamaConfig expected = {.vocab_size = 97,
                                    .hidden_size = 48,
                                    .intermediate_size = 80,
                                    .num_hidden_layers = 3,
                                    .num_attention_heads = 6,
                                    .num_key_value_heads = 6,
                                    .head_dim = 8,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-6,
                                    .rope_theta = 10000,
                                    .initializer_range = 0.02,
                                    .pad_token_id = -1,
                                    .model_type = "llama",
                                    .rope_type = "default"};
    for (int t = 0; t < 2; t++) {
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char path[40];
        if (!CHECK(read_config_json(&c, texts[t], path, &err) == GX_OK, "%s", err.message)) continue;
        for (int i = 0; i < gx_llama.n_fields; i++)
            CHECK(gx_field_same(&gx_llama.fields[i], &c, &expected), "%s: another default", gx_llama.fields[i].name);
    }
}

#define FULL_SLIDING_FULL "[\"full_attention\", \"sliding_attention\", \"full_attention\"]"
#define ALL_FULL          "[\"full_attention\", \"full_attention\", \"full_attention\"]"
#define ALL_SLIDING       "[\"sliding_attention\", \"sliding_attention\", \"sliding_attention\"]"
#define SLIDES            "\"use_sliding_window\": true, "

// What transformers takes for what is left out of the other models' files, and where they say that a window slides.
TEST(a_config_json_of_mistral_qwen2_and_qwen3_is_read_as_transformers_does)
{
    static const struct {
        const char *type, *more;
        int64_t kv_heads, positions, window, head_dim; // head_dim 0: 32/16
    } cases[] = {
        {"mistral", "", 8, 131072, 4096, 0},
        {"mistral", ", \"sliding_window\": 77", 8, 131072, 77, 0},
        {"mistral", ", \"sliding_window\": null, \"num_key_value_heads\": null", 16, 131072, 0, 0},
        {"mistral", ", \"sliding_window\": 77, \"layer_types\": " ALL_SLIDING, 8, 131072, 77, 0},
        {"mistral", ", \"sliding_window\": 77, \"layer_types\": " ALL_FULL, 8, 131072, 0, 0},
        {"qwen2", ", \"num_key_value_heads\": 4", 4, 32768, 0, 0},
        {"qwen2", ", \"num_key_value_heads\": 2, \"sliding_window\": 77, \"use_sliding_window\": false", 2, 32768, 0,
         0},
        {"qwen3", ", \"num_key_value_heads\": 4", 4, 32768, 0, 128},
        {"qwen3", // as transformers 4 writes it
         ", \"attention_bias\": false, \"head_dim\": 128, \"max_position_embeddings\": 40960, \"max_window_layers\": "
         "28, "
         "\"num_key_value_heads\": 8, \"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, "
         "\"torch_dtype\": \"bfloat16\", \"use_cache\": true, \"use_sliding_window\": false",
         8, 40960, 0, 128},
        {"qwen3", ", \"num_key_value_heads\": null, \"sliding_window\": null, \"head_dim\": 6", 16, 32768, 0, 6},
        {"qwen3", ", \"num_key_value_heads\": 2, \"sliding_window\": 77, \"max_window_layers\": 1", 2, 32768, 0, 128},
        {"llama", ", \"sliding_window\": 77", 16, 2048, 0, 0}, // LLaMA has no such thing
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char text[700], path[40];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"vocab_size\": 97, \"hidden_size\": 32, \"intermediate_size\": 80, "
                 "\"num_hidden_layers\": 3, \"num_attention_heads\": 16%s}",
                 cases[i].type, cases[i].more);
        if (!CHECK(read_config_json(&c, text, path, &err) == GX_OK, "case %d: %s", (int)i, err.message)) continue;
        CHECK(c.num_key_value_heads == cases[i].kv_heads && c.max_position_embeddings == cases[i].positions &&
                  c.sliding_window == cases[i].window && !strcmp(c.model_type, cases[i].type) &&
                  c.head_dim == (cases[i].head_dim ? cases[i].head_dim : 2),
              "case %d: %s, %ld kv heads, %ld positions, a window of %ld, heads of %ld", (int)i, c.model_type,
              (long)c.num_key_value_heads, (long)c.max_position_embeddings, (long)c.sliding_window, (long)c.head_dim);
    }
}

TEST(layers_of_a_qwen_slide_where_its_config_json_says_so_to_transformers)
{
    static const struct {
        const char *more;
        int64_t window, from;
        const char *layer_types;
    } cases[] = {
        {"\"sliding_window\": 77, \"max_window_layers\": 1", 0, 0, ""}, // it is not used
        {"\"use_sliding_window\": false, \"sliding_window\": 77, \"layer_types\": null", 0, 0, ""},
        {SLIDES "\"sliding_window\": null", 0, 0, ""},
        {"\"layer_types\": " ALL_FULL, 0, 0, ""},
        {"\"use_sliding_window\": true", 4096, 28, "fff"}, // transformers' defaults
        {SLIDES "\"sliding_window\": 77, \"max_window_layers\": 1", 77, 1, "fss"},
        {SLIDES "\"sliding_window\": 77, \"max_window_layers\": 3, \"layer_types\": " ALL_FULL, 77, 3,
         "fff"}, // says the same
        {SLIDES "\"sliding_window\": 77, \"max_window_layers\": 3, \"layer_types\": " FULL_SLIDING_FULL, 77, 3, "fsf"},
        {SLIDES "\"sliding_window\": 77, \"max_window_layers\": 1, \"layer_types\": " ALL_FULL, 77, 1, "fff"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char text[700], path[40];
        snprintf(text, sizeof text, "{\"model_type\": \"qwen%d\", \"num_key_value_heads\": null, " SIZES ", %s}",
                 (int)(2 + i % 2), cases[i / 2].more);
        if (!CHECK(read_config_json(&c, text, path, &err) == GX_OK, "case %d: %s", (int)i, err.message)) continue;
        CHECK(c.sliding_window == cases[i / 2].window && c.max_window_layers == cases[i / 2].from &&
                  !strcmp(c.layer_types, cases[i / 2].layer_types),
              "case %d: a window of %ld from layer %ld on, or in \"%s\"", (int)i, (long)c.sliding_window,
              (long)c.max_window_layers, c.layer_types);
    }
}

TEST(scaled_rope_is_read_wherever_transformers_4_or_5_writes_it)
{
    static const char *const places[] = {"\"rope_theta\": 77, \"rope_scaling\": {" LLAMA3 ", \"factor\": 2}",
                                         "\"rope_parameters\": {\"rope_theta\": 77, " LLAMA3 ", \"factor\": 2.0}",
                                         "\"rope_theta\": 77, \"rope_scaling\": {" LLAMA3
                                         ", \"factor\": 2}, \"rope_parameters\": {\"rope_theta\": 77, " LLAMA3
                                         ", \"factor\": 2}"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char text[700], path[40];
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", " SIZES ", %s}", places[i]);
        CHECK(read_config_json(&c, text, path, &err) == GX_OK && c.rope_theta == 77 && !strcmp(c.rope_type, "llama3") &&
                  c.rope_factor == 2 && c.rope_low_freq_factor == 1.5 && c.rope_high_freq_factor == 3 &&
                  c.rope_original_max_position_embeddings == 50,
              "%s: theta %g, %s, %s", places[i], c.rope_theta, c.rope_type, err.message);
    }
}

// Every scaling, written and read back; what transformers would compute is left out, and it computes the same.
TEST(a_config_json_says_how_rope_is_scaled_and_reads_back_the_same)
{
#define SIZED                                                                                                          \
    .vocab_size = 97, .hidden_size = 48, .intermediate_size = 80, .num_hidden_layers = 3, .num_attention_heads = 6,    \
    .max_position_embeddings = 77, .rms_norm_eps = 1e-6, .rope_theta = 1e6, .initializer_range = 0.02,                 \
    .pad_token_id = -1
    static const struct {
        GxLlamaConfig c;
        const char *says, *says_not;
    } cases[] = {
        {{SIZED, .rope_type = "linear", .rope_factor = 2.5, .attention_bias = 1, .mlp_bias = 1},
         "\"factor\": 2.5",
         "original_max"},
        {{SIZED, .rope_type = "dynamic", .rope_factor = 3}, "\"rope_type\": \"dynamic\"", "beta_fast"},
        {{SIZED, .rope_type = "yarn", .rope_factor = 4},
         "\"original_max_position_embeddings\": 77",
         "attention_factor"},
        {{SIZED, .rope_type = "yarn", .rope_factor = 4, .rope_beta_fast = 9, .rope_beta_slow = 2,
          .rope_original_max_position_embeddings = 20, .rope_attention_factor = 1.5, .rope_mscale = 0.5,
          .rope_mscale_all_dim = 0.75, .rope_untruncated = 1},
         "\"truncate\": false",
         "low_freq_factor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxLlamaConfig c = cases[i].c, back = GX_ZERO;
        GxError err = GX_ZERO;
        char path[40] = "/tmp/galaxy_test_run_XXXXXX", *text = NULL;
        int64_t bytes;
        const int file = mkstemp(path);
        if (!CHECK(file >= 0, "no temporary file")) return;
        close(file);
        CHECK(gx_llama_config_resolve(&c, &err) == GX_OK && gx_llama_config_write(&c, NULL, path, &err) == GX_OK &&
                  gx_llama_config_read(&back, path, &gx_silent, &err) == GX_OK &&
                  gx_file_read(path, 1 << 16, &text, &bytes, &err) == GX_OK,
              "%s", err.message);
        for (int f = 0; f < gx_llama.n_fields; f++)
            CHECK(gx_field_same(&gx_llama.fields[f], &c, &back), "%s is not what it was", gx_llama.fields[f].name);
        CHECK(text && count_of(text, cases[i].says) == 2 && !strstr(text, cases[i].says_not), "case %d: %s", (int)i,
              text);
        free(text);
        unlink(path);
    }
}

// What transformers 4.57 and 5.23 take for what is left out, and where they say that a layer has no RoPE or a window.
TEST(a_config_json_of_a_smollm3_is_read_as_transformers_does_and_reads_back_the_same)
{
    static const struct {
        const char *more, *rotates, *types;
        int64_t interval, window;
    } cases[] = {
        {"", "11101", "", 4, 0},
        {", \"no_rope_layer_interval\": 2", "10101", "", 2, 0},
        {", \"no_rope_layers\": [0, 1, 0, 1, 1], \"no_rope_layer_interval\": 2", "01011", "", 2, 0},
        {", \"no_rope_layers\": [1, 1, 1, 0, 1, 0, 0], \"max_window_layers\": 28", "11101", "", 4,
         0},                                                                             // more than layers
        {", \"no_rope_layers\": null, \"use_sliding_window\": true", "11101", "", 4, 0}, // it has no size
        {", \"use_sliding_window\": false, \"sliding_window\": 9", "11101", "", 4, 0},
        {", \"use_sliding_window\": true, \"sliding_window\": 9", "11101", "fffsf", 4, 9},
        {", \"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": [\"sliding_attention\", "
         "\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]",
         "11101", "sffff", 4, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxLlamaConfig c = GX_ZERO, back = GX_ZERO;
        GxError err = GX_ZERO;
        char text[700], path[40] = "/tmp/galaxy_test_run_XXXXXX";
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"smollm3\", \"vocab_size\": 128256, \"hidden_size\": 32, \"intermediate_size\": 80, "
            "\"num_hidden_layers\": 5, \"num_attention_heads\": 16%s}",
            cases[i].more);
        if (!CHECK(read_config_json(&c, text, path, &err) == GX_OK, "case %d: %s", (int)i, err.message)) continue;
        CHECK(c.num_key_value_heads == 4 && c.max_position_embeddings == 32768 && c.rope_theta == 2e6 &&
                  c.tie_word_embeddings && c.pad_token_id == 128004 && c.rms_norm_eps == 1e-6,
              "case %d: other defaults", (int)i);
        CHECK(!strcmp(c.no_rope_layers, cases[i].rotates) && c.no_rope_layer_interval == cases[i].interval &&
                  c.sliding_window == cases[i].window && !strcmp(c.layer_types, cases[i].types),
              "case %d: RoPE in \"%s\", of every %ld; a window of %ld in \"%s\"", (int)i, c.no_rope_layers,
              (long)c.no_rope_layer_interval, (long)c.sliding_window, c.layer_types);
        const int file = mkstemp(strcpy(path, "/tmp/galaxy_test_run_XXXXXX"));
        if (!CHECK(file >= 0, "no temporary file")) return;
        close(file);
        CHECK(gx_llama_config_write(&c, NULL, path, &err) == GX_OK &&
                  gx_llama_config_read(&back, path, &gx_silent, &err) == GX_OK,
              "%s", err.message);
        for (int f = 0; f < gx_llama.n_fields; f++)
            CHECK(gx_field_same(&gx_llama.fields[f], &c, &back), "%s is not what it was", gx_llama.fields[f].name);
        unlink(path);
    }
}

// What transformers 4.57 and 5.23 take for what is left out, and the spellings of both.
TEST(a_config_json_of_a_gemma3_is_read_as_transformers_does_and_reads_back_the_same)
{
#define SCALED     "{\"rope_type\": \"linear\", \"factor\": 8.0}"
#define SCALED_TOO "{\"rope_type\": \"linear\", \"factor\": 8.0, \"rope_theta\": 5000.0}"
    static const struct {
        const char *more, *types;
        int64_t pattern, window, scalar;
        double theta, local, factor;
    } cases[] = {
        {"", "sssssfs", 6, 4096, 256, 1e6, 1e4, 0},
        {", \"_sliding_window_pattern\": 3, \"layer_types\": null, \"sliding_window\": 9", "sssssfs", 6, 9, 256, 1e6,
         1e4, 0},
        {", \"sliding_window_pattern\": 3, \"query_pre_attn_scalar\": 168", "ssfssfs", 3, 4096, 168, 1e6, 1e4, 0},
        {", \"sliding_window_pattern\": 3, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
         "\"full_attention\", "
         "\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]",
         "fsfffff", 3, 4096, 256, 1e6, 1e4, 0},
        {", \"rope_theta\": 5000, \"rope_local_base_freq\": 70, \"rope_scaling\": " SCALED, "sssssfs", 6, 4096, 256,
         5000, 70, 8},
        {", \"rope_parameters\": {\"full_attention\": " SCALED_TOO ", \"sliding_attention\": {\"rope_theta\": 70.0}}",
         "sssssfs", 6, 4096, 256, 5000, 70, 8},
        {", \"rope_parameters\": {\"full_attention\": " SCALED ", \"sliding_attention\": null}", "sssssfs", 6, 4096,
         256, 1e6, 1e4, 8},
        {", \"rope_theta\": 5000.0, \"rope_local_base_freq\": 70.0, \"rope_scaling\": " SCALED
         ", \"rope_parameters\": {\"full_attention\": " SCALED_TOO ", \"sliding_attention\": {\"rope_theta\": 70.0}}",
         "sssssfs", 6, 4096, 256, 5000, 70, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxLlamaConfig c = GX_ZERO, back = GX_ZERO;
        GxError err = GX_ZERO;
        char text[900], path[40] = "/tmp/galaxy_test_run_XXXXXX";
        snprintf(text, sizeof text,
                 "{\"model_type\": \"gemma3_text\", \"vocab_size\": 262144, \"hidden_size\": 32, "
                 "\"intermediate_size\": 80, \"num_hidden_layers\": 7, \"num_attention_heads\": 8%s}",
                 cases[i].more);
        if (!CHECK(read_config_json(&c, text, path, &err) == GX_OK, "case %d: %s", (int)i, err.message)) continue;
        CHECK(c.num_key_value_heads == 4 && c.head_dim == 256 && c.max_position_embeddings == 131072 &&
                  c.tie_word_embeddings && c.pad_token_id == 0 && c.rms_norm_eps == 1e-6,
              "case %d: other defaults", (int)i);
        CHECK(!strcmp(c.layer_types, cases[i].types) && c.sliding_window_pattern == cases[i].pattern &&
                  c.sliding_window == cases[i].window && c.query_pre_attn_scalar == cases[i].scalar,
              "case %d: \"%s\", every %ld, a window of %ld, %ld", (int)i, c.layer_types, (long)c.sliding_window_pattern,
              (long)c.sliding_window, (long)c.query_pre_attn_scalar);
        CHECK(c.rope_theta == cases[i].theta && c.rope_local_base_freq == cases[i].local &&
                  c.rope_factor == cases[i].factor,
              "case %d: theta %g, %g, factor %g", (int)i, c.rope_theta, c.rope_local_base_freq, c.rope_factor);
        const int file = mkstemp(strcpy(path, "/tmp/galaxy_test_run_XXXXXX"));
        if (!CHECK(file >= 0, "no temporary file")) return;
        close(file);
        CHECK(gx_llama_config_write(&c, NULL, path, &err) == GX_OK &&
                  gx_llama_config_read(&back, path, &gx_silent, &err) == GX_OK,
              "%s", err.message);
        // if layer_types are not those of the pattern, it is not written
        for (int f = 0; f < gx_llama.n_fields; f++)
            CHECK(gx_field_same(&gx_llama.fields[f], &c, &back) ||
                      (i == 3 && !strcmp(gx_llama.fields[f].name, "sliding_window_pattern")),
                  "%s is not what it was", gx_llama.fields[f].name);
        unlink(path);
    }
}

TEST(rope_theta_is_read_wherever_transformers_4_or_5_writes_it)
{
    static const char *const places[] = {
        "\"rope_theta\": 77", "\"rope_parameters\": {\"rope_theta\": 77.0, \"rope_type\": \"default\"}",
        "\"rope_scaling\": {\"rope_theta\": 77, \"type\": \"default\"}",
        "\"rope_theta\": 77.0, \"rope_scaling\": {\"type\": \"default\"}",
        "\"rope_theta\": 77.0, \"rope_parameters\": {\"rope_theta\": 77, \"rope_type\": \"default\"}"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char text[500], path[40];
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", " SIZES ", %s}", places[i]);
        CHECK(read_config_json(&c, text, path, &err) == GX_OK && c.rope_theta == 77, "%s: %g, %s", places[i],
              c.rope_theta, err.message);
    }
}

#define GEMMA3 "\"model_type\": \"gemma3_text\""
TEST(a_config_json_that_asks_for_something_else_or_in_another_type_is_refused_by_file_and_key)
{
    static const struct {
        const char *more, *says; // says: behind the file's name
    } bad[] = {
        {"\"model_type\": 7", "model_type is 7; expected one of \"llama\", \"mistral\", \"qwen2\", \"qwen3\""},
        {"\"no_rope_layers\": [1, 0, 1]", "no_rope_layers says that layers have no RoPE; only a smollm3"},
        {"\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 0]",
         "no_rope_layers has 2 elements, and num_hidden_layers is 3"},
        {"\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 2, 1]",
         "element 1 of no_rope_layers is not 1 (RoPE) or 0"},
        {"\"model_type\": \"smollm3\", \"no_rope_layers\": [1, true, 1]", "element 1 of no_rope_layers is not 1"},
        {"\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 0", "no_rope_layer_interval is 0; expected"},
        {"\"model_type\": \"smollm3\", \"layer_types\": " FULL_SLIDING_FULL, "layer_types has sliding_attention, but"},
        {"\"model_type\": \"gemma3\", \"text_config\": {}", "model_type is \"gemma3\", a model of texts and images"},
        {"\"model_type\": \"gemma2\"", "model_type is \"gemma2\"; expected one of"},
        {GEMMA3 ", \"hidden_activation\": \"gelu\"", "hidden_activation is \"gelu\"; only \"gelu_pytorch_tanh\""},
        {GEMMA3 ", \"hidden_act\": \"silu\"", "hidden_act is \"silu\"; only \"gelu_pytorch_tanh\""},
        {GEMMA3 ", \"attn_logit_softcapping\": 50.0", "attn_logit_softcapping is 50.0; only null"},
        {GEMMA3 ", \"final_logit_softcapping\": 30.0", "final_logit_softcapping is 30.0; only null"},
        {GEMMA3 ", \"use_bidirectional_attention\": true", "use_bidirectional_attention is true; only false"},
        {GEMMA3 ", \"sliding_window\": null", "sliding_window is null"},
        {GEMMA3 ", \"num_key_value_heads\": null", "num_key_value_heads is null"},
        {GEMMA3 ", \"sliding_window_pattern\": 0", "sliding_window_pattern is 0; expected"},
        {GEMMA3 ", \"query_pre_attn_scalar\": 0", "query_pre_attn_scalar is 0; expected"},
        {GEMMA3 ", \"num_key_value_heads\": 2, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}",
         "rope_type is yarn; of a gemma3_text default and linear are supported"},
        {GEMMA3 ", \"rope_local_base_freq\": 10, \"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 20}}",
         "rope_parameters: sliding_attention: rope_theta is 20, but rope_local_base_freq 10"},
        {GEMMA3 ", \"rope_theta\": 10, \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 20}}",
         "rope_parameters: full_attention: rope_theta is 20 in it, but 10 outside"},
        {GEMMA3 ", \"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 2}}",
         "rope_parameters: sliding_attention: rope_type is linear; only default"},
        {"\"rope_scaling\": {\"rope_type\": \"yarn\"}", "rope_scaling: factor is missing"},
        {"\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0.5}", "factor is 0.5; expected"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"dynamic\", \"factor\": 2}",
         "type is \"linear\", but rope_type"},
        {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, \"truncate\": null}", "truncate is null"},
        {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, \"attention_factor\": 0}",
         "attention_factor is 0; exp"},
        {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, \"beta_slow\": 40}",
         "rope_beta_slow is 40, rope_beta"},
        {"\"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 2}",
         "rope_type is \"longrope\"; only \"default\""},
        {"\"model_type\": null", "model_type is null; expected one of \"llama\""},
        {"\"model_type\": \"mixtral\"", "model_type is \"mixtral\"; expected one of \"llama\""},
        {"\"hidden_act\": 3", "hidden_act is 3; only \"silu\" is supported"},
        {"\"quantization_config\": {\"bits\": 4}", "has the quant_method \"\"; only that of bitsandbytes is supported"},
        {"\"quantization_config\": {\"load_in_4bit\": true}",
         "has the bnb_4bit_quant_type \"fp4\"; only nf4 is supported"},
        {"\"hidden_act\": null", "hidden_act is null; only \"silu\""},
        {"\"attention_bias\": \"yes\"", "attention_bias is \"yes\"; expected true or false"},
        {"\"attention_bias\": 0", "attention_bias is 0; expected"},
        {"\"model_type\": \"mistral\", \"attention_bias\": true", "attention_bias is true; only false"},
        {"\"mlp_bias\": 1", "mlp_bias is 1; expected true or false"},
        {"\"mlp_bias\": null", "mlp_bias is null; expected"},
        {"\"attention_dropout\": 0.1", "attention_dropout is 0.1; only 0.0 is supported"},
        {"\"partial_rotary_factor\": 0.5", "partial_rotary_factor is 0.5; only 1.0 is supported"},
        {"\"architectures\": [\"LlamaForTokenClassification\"]",
         "architectures is [\"LlamaForTokenClassification\"]; expected LlamaForCausalLM, LlamaForSequence"},
        {"\"architectures\": \"LlamaForCausalLM\"", "architectures is \"LlamaForCausalLM\"; expected Llama"},
        {"\"architectures\": [7]", "architectures is [7]; expected LlamaForCausalLM"},
        {"\"model_type\": \"bert\"", "model_type is \"bert\"; here a model of type \"llama\", \"mist"},
        {"\"pad_token_id\": 97",
         "pad_token_id is 97; it must be -1 (none) or an id of the vocabulary, which ends at 96"},
        {"\"pad_token_id\": \"[PAD]\"", "pad_token_id is \"[PAD]\"; expected an integer"},
        {"\"tie_word_embeddings\": \"no\"", "tie_word_embeddings is \"no\"; expected true or false"},
        {"\"tie_word_embeddings\": 0", "tie_word_embeddings is 0; expected true or false"},
        {"\"tie_word_embeddings\": null", "tie_word_embeddings is null; expected true or false"},
        {"\"rms_norm_eps\": null", "rms_norm_eps is null; expected a number"},
        {"\"rms_norm_eps\": \"1e-5\"", "rms_norm_eps is \"1e-5\"; expected a number"},
        {"\"rope_theta\": null", "rope_theta is null; expected a number, at least 1e-06"},
        {"\"rope_theta\": [1]", "rope_theta is [1]; expected a number"},
        {"\"initializer_range\": 1.5", "initializer_range is 1.5; expected a number from 0 to 1"},
        {"\"max_position_embeddings\": null", "max_position_embeddings is null; expected an integer"},
        {"\"head_dim\": 8.0", "head_dim is 8.0; expected an integer"},
        {"\"num_key_value_heads\": true", "num_key_value_heads is true; expected an integer"},
        {"\"rope_parameters\": [1]", "\"rope_parameters\" is an array; expected an object"},
        {"\"rope_scaling\": \"linear\"", "\"rope_scaling\" is a string; expected an object"},
        {"\"rope_scaling\": {\"type\": \"linear\"}", "rope_scaling: factor is missing; expected a number"},
        {"\"rope_parameters\": {\"rope_type\": 3}", "rope_parameters: rope_type is 3; only \"default\", \"lin"},
        {"\"rope_parameters\": {\"rope_theta\": null}", "rope_parameters: rope_theta is null; expected a number"},
        {"\"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
         "rope_parameters: partial_rotary_factor is 0.5; only"},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 9}}",
         "rope_parameters: full_attention is an object; only one RoPE"},
        {"\"rope_theta\": 500, \"rope_parameters\": {\"rope_theta\": 600}",
         "rope_parameters: rope_theta is 600 in it, but 500 outside of it"},
        {"\"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {\"rope_theta\": 600}",
         "rope_scaling and rope_parameters are both present, and differ in rope_theta"},
        {"\"rope_scaling\": {\"factor\": 2}", "rope_scaling: there is a factor, but no rope_type that it belongs to"},
        {"\"rope_scaling\": {\"type\": \"llama3\"}", "rope_scaling: factor is missing; expected a number, at least 1"},
        {"\"rope_scaling\": {" LLAMA3 ", \"factor\": 0.5}",
         "rope_scaling: factor is 0.5; expected a number, at least 1"},
        {"\"rope_scaling\": {" LLAMA3 ", \"factor\": 2}, \"rope_parameters\": {" LLAMA3 ", \"factor\": 4}",
         "rope_scaling and rope_parameters are both present, and differ in rope_factor"},
        {"\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "layer_types has sliding_attention; a llama supports only full_attention"},
        {"\"layer_types\": \"sliding_attention\"", "\"layer_types\" is a string; expected an array"},
        {"\"layer_types\": [\"full_attention\", 1]", "layer_types has an integer; expected full_attention or sliding_"},
        {"\"layer_types\": [\"chunked_attention\"]", "layer_types has \"chunked_attention\"; only full"},
        {"\"use_sliding_window\": true", "use_sliding_window is true; only false is supported"},
        {"\"model_type\": \"qwen3\", " SLIDES "\"sliding_window\": 0",
         "sliding_window is 0; expected an integer, at least 1"},
        {"\"model_type\": \"mistral\", \"sliding_window\": 0", "sliding_window is 0; expected an integer, at least 1"},
        {"\"model_type\": \"mistral\", \"layer_types\": " FULL_SLIDING_FULL,
         "with which transformers loads a mistral as a ministral; only layers that are all alike"},
        {"\"model_type\": \"qwen2\", " SLIDES "\"max_window_layers\": -1",
         "max_window_layers is -1; expected an integer"},
        {"\"model_type\": \"qwen2\", " SLIDES "\"layer_types\": [\"full_attention\"]",
         "layer_types has 1 elements, and num_hidden_layers is 3"},
        {"\"model_type\": \"qwen2\", \"use_sliding_window\": 1", "\"use_sliding_window\" is"},
        {"\"model_type\": \"qwen2\", \"use_sliding_window\": null",
         "use_sliding_window is null; expected true or false"},
        {"\"model_type\": \"qwen3\", \"use_sliding_window\": null, \"sliding_window\": 9",
         "use_sliding_window is null; expected true or false"},
        {"\"model_type\": \"qwen2\", " SLIDES "\"sliding_window\": null, \"layer_types\": " FULL_SLIDING_FULL,
         "layer_types has sliding_attention, but there is no window"},
        {"\"model_type\": \"qwen3\", \"mlp_bias\": true", "mlp_bias is true; only false is supported"},
        {"\"model_type\": \"qwen3\", \"head_dim\": null", "head_dim is null; expected an integer"},
        {"\"model_type\": \"qwen3\", \"sliding_window\": 9, \"layer_types\": " FULL_SLIDING_FULL,
         "layer_types has sliding_attention, but there is no window; use_sliding_window must be true"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int is_type = !strncmp(bad[i].more, "\"model_type", 11);
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char text[500], path[40];
        snprintf(text, sizeof text, "{%s" SIZES ", %s}", is_type ? "" : "\"model_type\": \"llama\", ", bad[i].more);
        const GxStatus status = read_config_json(&c, text, path, &err);
        CHECK((status == GX_ERR_FORMAT || status == GX_ERR_UNSUPPORTED || status == GX_ERR_ARGUMENT) &&
                  !strncmp(err.message, path, strlen(path)) && strstr(err.message, bad[i].says),
              "%s: %s", bad[i].more, status == GX_OK ? "it was taken" : err.message);
    }
}

static void count_warnings(void *user, GxLogLevel level, const char *text)
{
    *(int *)user += level == GX_LOG_WARNING && strstr(text, "--save_total_limit") != NULL;
}

TEST(a_disk_without_room_for_one_checkpoint_is_refused_and_for_all_of_them_warned_of)
{
    static const struct {
        int64_t left, bytes, count;
        GxStatus status;
        int warnings;
    } list[] = {{100, 100, 1, GX_OK, 0},
                {99, 100, 1, GX_ERR_IO, 0},
                {99, 100, 0, GX_ERR_IO, 0},
                {299, 100, 3, GX_OK, 1},
                {300, 100, 3, GX_OK, 0},
                {INT64_MAX / 2, INT64_MAX / 4, 3, GX_OK, 1}, // no overflow
                {INT64_MAX / 2, 100, INT64_MAX, GX_OK, 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int warnings = 0;
        const GxLogger log = {count_warnings, &warnings};
        GxError err = GX_ZERO;
        const GxStatus status = gx_output_compare_space("out", list[i].left, list[i].bytes, list[i].count, &log, &err);
        CHECK(status == list[i].status && warnings == list[i].warnings &&
                  (status == GX_OK) == !strstr(err.message, "make room"),
              "%ld of %ld bytes each into %ld: status %d, %d warnings: %s", (long)list[i].count, (long)list[i].bytes,
              (long)list[i].left, status, warnings, err.message);
    }
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

// ---- the log -------------------------------------------------------------------------------------------------------

static int log_holds(const char *path, const char *expected)
{
    char *text = NULL;
    int64_t bytes;
    GxError err = GX_ZERO;
    if (gx_file_read(path, 1 << 20, &text, &bytes, &err) != GX_OK) return !expected;
    const int same = expected && !strcmp(text, expected);
    CHECK(same, "%s holds %s", path, text);
    free(text);
    return same;
}

TEST(a_log_is_gone_on_with_behind_a_step_and_no_line_is_lost)
{
#define STEP(n) "{\"step\": " n ", \"loss\": 1.5}\n"
#define EVAL(n) "{\"step\": " n ", \"eval_loss\": 1.5}\n"
#define BASE    "{\"bigram_bits_per_byte\": 3.5}\n"
    static const struct {
        const char *log;
        int evaluates_again;
        const char *kept, *apart; // of a run that goes on behind step 2
        int lines;
    } list[] = {
        {BASE STEP("1") STEP("2") EVAL("2"), 0, STEP("1") STEP("2") EVAL("2"), NULL, 0},
        {BASE STEP("1") STEP("2") EVAL("2"), 1, STEP("1") STEP("2"), NULL, 0},
        {STEP("1") STEP("2") STEP("3") EVAL("3"), 0, STEP("1") STEP("2"), "{\"left_at_step\": 2}\n" STEP("3") EVAL("3"),
         2},
        {STEP("1") "{\"my\": \"own\"}\nmine\n" STEP("2"), 0, STEP("1") STEP("2"),
         "{\"left_at_step\": 2}\n{\"my\": \"own\"}\nmine\n", 2},
        {STEP("1") STEP("2") EVAL("2") EVAL("2"), 2, STEP("1") STEP("2") EVAL("2"), NULL, 0}, // one was on the way
        {STEP("2") EVAL("2"), 2, STEP("2") EVAL("2"), NULL, 0},
        {STEP("2") "{\"step\": 2, \"eval_score\": 1.5}\n", 1, STEP("2"), NULL, 0}, // of a task without a loss
        {STEP("1") STEP("2") "{\"step\": 3, \"lo", 0, STEP("1") STEP("2"),
         "{\"left_at_step\": 2}\n{\"step\": 3, \"lo\n", 1},
    };
    char folder[40], path[80], apart[80];
    if (!make_folder(folder)) return;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    snprintf(apart, sizeof apart, "%s/apart/log.jsonl", folder);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxRunLog l;
        GxError err = GX_ZERO;
        int64_t lines = -1;
        unlink(apart);
        CHECK(gx_file_write(path, list[i].log, (int64_t)strlen(list[i].log), &err) == GX_OK &&
                  gx_log_open(&l, path, 2, list[i].evaluates_again, apart, &lines, &err) == GX_OK &&
                  gx_log_close(&l, &err) == GX_OK,
              "%s", err.message);
        CHECK(lines == list[i].lines, "%d: %ld lines are set apart", (int)i, (long)lines);
        log_holds(path, list[i].kept);
        log_holds(apart, list[i].apart);
    }
    remove_folder(folder);
}

// The limit on a file's size stands for a full disk: a line is there whole, or not at all, and comes later.
TEST(a_line_that_the_disk_does_not_take_waits_for_the_next_one_or_a_checkpoint_or_the_end)
{
    const GxMetric metric = {"bits", "%g", 2.5, 0};
    char folder[40], path[80], apart[80];
    struct rlimit before, small;
    if (!make_folder(folder)) return;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    snprintf(apart, sizeof apart, "%s/apart/log.jsonl", folder);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    for (int at_end = 0; at_end < 3; at_end++) { // 2: at a checkpoint
        GxRunLog l;
        GxError err = GX_ZERO, full = GX_ZERO;
        int64_t lines;
        unlink(path);
        CHECK(gx_log_open(&l, path, 0, 0, apart, &lines, &err) == GX_OK && gx_baseline_log(&l, &metric, &err) == GX_OK,
              "%s", err.message);
        small = before, small.rlim_cur = (rlim_t)l.bytes + 7;
        setrlimit(RLIMIT_FSIZE, &small);
        const GxStatus status = gx_evaluation_log(&l, 1, 0, 1, &metric, 1, 8, "tokens", &full);
        log_holds(path, "{\"bits\": 2.5}\n");
        setrlimit(RLIMIT_FSIZE, &before);
        CHECK(status == GX_ERR_IO && strstr(full.message, path), "status %d: %s", status, full.message);
        if (!at_end) CHECK(gx_evaluation_log(&l, 2, 0, 2, &metric, 1, 8, "tokens", &err) == GX_OK, "%s", err.message);
        if (at_end == 2) {
            CHECK(gx_log_sync(&l, &err) == GX_OK, "%s", err.message);
            log_holds(path, "{\"bits\": 2.5}\n{\"step\": 1, \"eval_bits\": 2.5, \"eval_tokens\": 8}\n");
        }
        CHECK(gx_log_close(&l, &err) == GX_OK, "%s", err.message);
#define LINE_OF(n) "{\"step\": " n ", \"eval_bits\": 2.5, \"eval_tokens\": 8}\n"
        log_holds(path, at_end ? "{\"bits\": 2.5}\n" LINE_OF("1") : "{\"bits\": 2.5}\n" LINE_OF("1") LINE_OF("2"));
    }
    remove_folder(folder);
}

// What other programs read: keys, numbers, and null where a loss has counted nothing.
TEST(losses_by_name_and_the_step_of_other_weights_are_lines_of_json)
{
    static const char *const names[] = {"mlm_loss", "nsp_loss"};
    const GxProgress p = {3, 9, 2.5, 1, 0.5, 7, 8, 9, 0, 1, 0, names, 2, {1.75, NAN}, 0, {{NULL, NULL, 0, 0}}, 0, 0};
    const GxMetric metric = {"loss", "%g", 2.5, -1};
    char folder[40], path[80], apart[80];
    GxRunLog l;
    GxError err = GX_ZERO;
    int64_t lines;
    if (!make_folder(folder)) return;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    snprintf(apart, sizeof apart, "%s/apart/log.jsonl", folder);
    GxProgress padded = p;
    padded.padding = 0.375, padded.losses = 0;
    CHECK(gx_log_open(&l, path, 0, 0, apart, &lines, &err) == GX_OK && gx_progress_log(&l, &p, &err) == GX_OK &&
              gx_progress_log(&l, &padded, &err) == GX_OK &&
              gx_evaluation_log(&l, 9, 0, 4, &metric, 1, 8, "tokens", &err) == GX_OK && gx_log_close(&l, &err) == GX_OK,
          "%s", err.message);
    log_holds(path,
              "{\"step\": 3, \"loss\": 2.5, \"mlm_loss\": 1.75, \"nsp_loss\": null, \"grad_norm\": 1.0, \"lr\": 0.5, "
              "\"tokens_per_s\": 7.0, \"gflops\": 8.0, \"memory_mb\": 9.0, \"skipped\": false}\n"
              "{\"step\": 3, \"loss\": 2.5, \"grad_norm\": 1.0, \"lr\": 0.5, \"tokens_per_s\": 7.0, \"padding\": "
              "0.3750, \"gflops\": 8.0, \"memory_mb\": 9.0, \"skipped\": false}\n"
              "{\"step\": 9, \"weights_of_step\": 4, \"eval_loss\": 2.5, \"eval_tokens\": 8}\n");
    remove_folder(folder);
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
    char text[300], all[1000], *argv[60] = {(char *)"train"};
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
             "--sample_tokens 5 --validation_fraction 0.2 %s",
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

TEST(a_program_that_brings_its_reporter_hears_every_line_and_nothing_is_printed)
{
    static const char *const lines[] = {"galaxy ",
                                        "model: llama",
                                        "data: ",
                                        "options that differ from their defaults:",
                                        "memory plan",
                                        "GFLOP per step",
                                        "bigram model",
                                        "step     1/2",
                                        "step     2/2",
                                        "validation loss",
                                        "saved ",
                                        "sample:\nIn the beginning",
                                        "done: 2 steps in ",
                                        "\nvalidation loss ",
                                        "\npeak memory ",
                                        "\ncheckpoint: ",
                                        "\nloss curve: ",
                                        "log: "};
    static Heard said, errors;
    const GxReporter reporter = {hear, &said, NULL};
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

TEST(a_peak_before_training_is_not_taken_for_that_of_the_plan)
{
    enum { MUCH = 256 << 20 };
    static Heard said, errors;
    const GxReporter reporter = {hear, &said, NULL};
    char folder[40];
    int status;
    if (!make_folder(folder)) return;
    char *much = (char *)mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (CHECK(much != (char *)MAP_FAILED, "no memory")) {
        memset(much, 1, MUCH);
        munmap(much, MUCH);
        train_in_process(folder, "", &reporter, &errors, &status);
        CHECK(status == 0 &&
                  strstr(said.text, " MB for training;\n  the peak was earlier, when the data were opened\n"),
              "status %d, %s: %s", status, errors.text, said.text);
    }
    remove_folder(folder);
}

// Columns of the widest line; of `text`, up to `end`.
static int widest_line(const char *text, const char *end)
{
    int widest = 0;
    for (; text < end; text += strcspn(text, "\n") + 1) {
        const int columns = gx_text_columns(text, (int64_t)strcspn(text, "\n"));
        widest = columns > widest ? columns : widest;
    }
    return widest;
}

static int columns_as_told(void *user) { return *(const int *)(const void *)((Heard *)user + 1); }

TEST(nothing_that_a_run_says_of_itself_is_wider_than_its_reporter)
{
    static struct {
        Heard said;
        int columns;
    } one;
    static Heard errors;
    const GxReporter reporter = {hear, &one.said, columns_as_told};
    char folder[40], flags[100], *end;
    int status;
    if (!make_folder(folder)) return;
    for (int columns = 200; columns >= 0; columns -= columns == 60 ? 60 : 70) { // 200, 130, 60, 0: not known
        one.columns = columns, one.said.text[0] = 0;
        snprintf(flags, sizeof flags, "--mode galaxy --output_dir %s/%d", folder, columns);
        train_in_process(folder, flags, &reporter, &errors, &status);
        end = strstr(one.said.text, "sample:\n"); // what the model writes stays as it is; behind it stand long paths
        if (!CHECK(status == 0 && end, "status %d, %s", status, errors.text)) break;
        const int limit = columns ? columns : 80, widest = widest_line(one.said.text, end);
        CHECK(widest <= limit && widest > limit - 20, "%d columns of %d:\n%s", widest, limit, one.said.text);
        CHECK((strstr(one.said.text, "GFLOP/s") != NULL) == (columns >= 100), "%d columns:\n%s", columns,
              one.said.text);
        CHECK(strstr(one.said.text, "activations 0.0"), "%d columns divide what belongs together: %s", columns,
              one.said.text);
    }
    remove_folder(folder);
}

TEST(a_progress_line_of_80_columns_has_loss_norm_rate_speed_and_time_left_whatever_they_are)
{
    static const struct {
        GxProgress p;
        const char *line;
    } list[] = {
        {{1, 500, 5.54512, 1.23449, 1e-4, 17812, 12.4, 123, 0, 72, 0, NULL, 0, {0}, 0, {{NULL, NULL, 0, 0}}, 0, 0},
         "step     1/500  loss 5.5451  norm 1.234  lr 1.00e-4  17.8k tok/s   1m12s left\n"},
        {{99999,
          100000,
          12345.6789,
          1234.5,
          0,
          999.6,
          1e5,
          1e5,
          1e4,
          45240,
          0,
          NULL,
          0,
          {0},
          0,
          {{NULL, NULL, 0, 0}},
          0,
          0},
         "step 99999/100000  loss  12346  norm  1234  lr 0.00e+0  1.00k tok/s  12h34m left\n"},
        {{7, 100000, 1e-9, 1e9, 1.5e-12, 0, 0, 5, 0, 5, 0, NULL, 0, {0}, 0, {{NULL, NULL, 0, 0}}, 0, 0},
         "step     7/100000  loss 0.0000  norm 1e+09  lr 1.5e-12      0 tok/s      5s left\n"},
        {{7, 100000, NAN, INFINITY, 1e-4, 2.5e6, 0, 5, 0, 5, 1, NULL, 0, {0}, 0, {{NULL, NULL, 0, 0}}, 0, 0},
         "step     7/100000  loss    nan  skipped: gradients are not finite      5s left\n"},
    };
    static Heard said;
    const GxReporter reporter = {hear, &said, NULL};
    GxContext g = GX_ZERO;
    static GxTrainer t;
    g.reporter = &reporter;
    t.session.g = &g, t.session.run = &t.run;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        said.text[0] = 0;
        gx_report_progress(&t.session, &list[i].p);
        CHECK(!strcmp(said.text, list[i].line), "it said\n%snot\n%s", said.text, list[i].line);
    }
}

TEST(a_validation_of_many_metrics_is_said_in_lines_of_80_columns)
{
    static const GxMetric metrics[] = {{"loss", "loss %.4f", 1.5, -1},
                                       {"accuracy", "accuracy %.4f", 0.75, 1},
                                       {"macro_f1", "macro F1 %.4f", 0.5, 1},
                                       {"macro_precision", "macro precision %.4f", 0.25, 1},
                                       {"macro_recall", "macro recall %.4f", 0.125, 1},
                                       {"next_sentence_accuracy", "next sentence accuracy %.4f", 1, 1},
                                       {"perplexity", "perplexity %.4f", 12345.6789, -1}};
    enum { N = sizeof metrics / sizeof *metrics };
    static Heard said;
    const GxReporter reporter = {hear, &said, NULL};
    GxContext g = GX_ZERO;
    static GxTrainer t;
    g.reporter = &reporter;
    t.session.g = &g, t.session.run = &t.run, t.run.task = &gx_causal_lm, t.run.at.step = 100;
    said.text[0] = 0;
    gx_report_evaluation(&t.session, metrics, N, 1000);
    CHECK(widest_line(said.text, said.text + strlen(said.text)) <= 80, "%s", said.text);
    for (int i = 0; i < N; i++) {
        char one[60];
        snprintf(one, sizeof one, metrics[i].format, metrics[i].value);
        CHECK(strstr(said.text, one), "\"%s\" is not there, or torn: %s", one, said.text);
    }
    CHECK(strstr(said.text, "step   100 | validation loss 1.5000 | accuracy 0.7500 |") == said.text &&
              strstr(said.text, " over 1000 tokens\n"),
          "%s", said.text);
}

TEST(a_metric_that_is_huge_or_no_number_is_said_in_few_letters)
{
    static const struct {
        const char *format;
        double value;
        const char *text;
    } list[] = {{"loss %.4f", 1.5, "loss 1.5000"},
                {"loss %.4f", 9999999.12345, "loss 9999999.1234"}, // exactly ...123449999
                {"loss %.4f", 1e7, "loss 1e+07"},
                {"loss %.4f", -1.23456e30, "loss -1.235e+30"},
                {"perplexity %.2f of %% tokens", 1.234e300, "perplexity 1.234e+300 of % tokens"},
                {"%% %.1f%%", 3e9, "% 3e+09%"},
                {"%.3f bits per byte", -NAN, "nan bits per byte"},
                {"%.3f bits per byte", NAN, "nan bits per byte"},
                {"loss %.4f", INFINITY, "loss inf"},
                {"loss %.4f", -INFINITY, "loss -inf"}};
    static Heard said;
    const GxReporter reporter = {hear, &said, NULL};
    GxContext g = GX_ZERO;
    static GxTrainer t;
    GxProgress p = GX_ZERO;
    char text[GX_METRIC_TEXT];
    g.reporter = &reporter;
    t.session.g = &g, t.session.run = &t.run, t.run.task = &gx_causal_lm, t.run.at.step = 100;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const GxMetric metric = {"a", list[i].format, list[i].value, -1};
        CHECK(!strcmp(gx_metric_text(list[i].format, list[i].value, text), list[i].text), "%s", text);
        said.text[0] = 0;
        gx_report_baseline(&t.session, &metric);
        gx_report_evaluation(&t.session, &metric, 1, 1);
        t.run.validation.metric[0] = metric, t.run.validation.metrics = 1;
        gx_report_summary(&t.session, "loss.svg");
        const char *first = strstr(said.text, list[i].text), *second = first ? strstr(first + 1, list[i].text) : NULL;
        CHECK(second && strstr(second + 1, list[i].text), "\"%s\" is not said three times: %s", list[i].text,
              said.text);
    }
    said.text[0] = 0;
    p.loss = p.grad_norm = -NAN;
    gx_report_progress(&t.session, &p);
    CHECK(strstr(said.text, "loss    nan  norm   nan"), "%s", said.text);
}

TEST(one_of_anything_is_no_plural)
{
    static Heard said, errors;
    const GxReporter reporter = {hear, &said, NULL};
    char folder[40];
    int status;
    if (!make_folder(folder)) return;
    said.text[0] = 0;
    train_in_process(folder, "--max_steps 1 --micro_batch_size 1 --learning_rate 0.01", &reporter, &errors, &status);
    CHECK(status == 0 && strstr(said.text, "\n1 step of 1 sample x ") && strstr(said.text, "done: 1 step in "), "%s%s",
          said.text, errors.text);
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
    printed = train_in_process(folder, "--hidden_size 15 --output_dir nowhere", NULL, &errors, &status);
    CHECK(status == 1 && printed == 0 && strstr(errors.text, "hidden_size"), "status %d, %ld bytes, %s", status,
          printed, errors.text);
    remove_folder(folder);
}

static int train_by(const char *flags, const GxReporter *reporter, Heard *errors) // its exit status
{
    char all[900], *argv[60] = {(char *)"train"};
    GxContext g = GX_ZERO;
    int argc = 1;
    snprintf(all, sizeof all, "%s", flags);
    for (char *word = strtok(all, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    g.device = gx_device_cpu();
    g.world = 1;
    g.reporter = reporter;
    g.log.write = hear_log, g.log.user = errors;
    errors->text[0] = 0;
    return gx_train(&g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
}

// What a run of four steps writes at its end, of which `more` says how it begins; free() it.
static char *sample_of(const char *folder, const char *more)
{
    static Heard said, errors;
    const GxReporter reporter = {hear, &said, NULL};
    char flags[900];
    said.text[0] = 0;
    snprintf(flags, sizeof flags,
             "--train_data %s/text.txt --max_steps 4 --save_steps 2 --hidden_size 16 --intermediate_size 16 "
             "--num_hidden_layers 1 --num_attention_heads 2 --num_key_value_heads 1 --seq_len 8 --micro_batch_size 2 "
             "--threads 1 --sample_tokens 60 --eval_steps 0 %s",
             folder, more);
    CHECK(train_by(flags, &reporter, &errors) == 0 && !errors.text[0], "%s: %s", more, errors.text);
    const char *sample = strstr(said.text, "sample:\n"), *end = sample ? strstr(sample, "\ndone: ") : NULL;
    CHECK(end && end - sample > 60, "%s: it wrote no sample: %s", more, said.text);
    return end ? strndup(sample, (size_t)(end - sample)) : strdup("");
}

// --seed need not be said again: the text's order and the sample's numbers are the run's own.
TEST(a_resumed_run_draws_its_sample_by_the_seed_that_it_began_with)
{
    char folder[40], text[1000], more[200], *samples[3];
    GxError err = GX_ZERO;
    if (!make_folder(folder)) return;
    for (int i = 0; i < 1000; i++) text[i] = (char)('a' + i * i % 23);
    snprintf(more, sizeof more, "%s/text.txt", folder);
    CHECK(gx_file_write(more, text, 1000, &err) == GX_OK, "%s", err.message);
    snprintf(more, sizeof more, "--output_dir %s/whole --seed 5", folder);
    samples[0] = sample_of(folder, more);
    snprintf(more, sizeof more, "--output_dir %s/half --resume %s/whole/checkpoint-2", folder, folder);
    samples[1] = sample_of(folder, more);
    snprintf(more, sizeof more, "--output_dir %s/other --seed 7 --learning_rate 0 --model %s/whole/checkpoint-4",
             folder, folder);
    samples[2] = sample_of(folder, more);
    CHECK(!strcmp(samples[0], samples[1]), "%s\nand, resumed, %s", samples[0], samples[1]);
    CHECK(strcmp(samples[0], samples[2]), "with the same weights another seed writes the same");
    for (int i = 0; i < 3; i++) free(samples[i]);
    remove_folder(folder);
}

TEST(what_transformers_5_would_not_load_is_said_before_it_is_trained)
{
    static Heard errors;
    CHECK(train_by("--dry_run --hidden_size 32 --num_attention_heads 4 --num_key_value_heads 2 --head_dim 6", NULL,
                   &errors) == 0 &&
              !errors.text[0],
          "%s", errors.text);
    CHECK(train_by("--dry_run --hidden_size 32 --num_attention_heads 3 --num_key_value_heads 1 --head_dim 6", NULL,
                   &errors) == 0 &&
              strstr(errors.text, "transformers 5 cannot load what is saved, because hidden_size (32) is not a "
                                  "multiple of num_attention_heads (3)"),
          "it said \"%s\"", errors.text);
    CHECK(train_by("--dry_run --hidden_size 32 --num_attention_heads 3 --num_key_value_heads 1 --head_dim 6 "
                   "--model_type qwen3",
                   NULL, &errors) == 0 &&
              !errors.text[0],
          "of a Qwen3 it loads that; \"%s\"", errors.text);
    CHECK(train_by("--dry_run --initializer_range 1.5", NULL, &errors) == 1 &&
              strstr(errors.text, "a number from 0 to 1"),
          "%s", errors.text);
}

// ---- what was measured ---------------------------------------------------------------------------------------------

TEST(a_run_that_is_done_says_how_long_it_took_how_good_it_is_and_where_all_lies)
{
#define LINE(step, loss, count) "{\"step\": " step ", \"eval_loss\": " loss ", \"eval_tokens\": " count "}\n"
    static const struct {
        const char *log;
        int64_t begun;
        const char *done, *validated;
    } list[] = {
        {LINE("100", "1.7", "160") LINE("500", "1.5", "160"), 0,
         "done: 500 steps in 1m12s, 1.02M tokens, 17,778 tokens/s in training\n",
         "validation loss 1.5000 (2.164 bits per byte) over 160 tokens, the best\n"},
        {LINE("100", "1.7", "160") LINE("300", "1.25", "160") LINE("400", "1.3", "160") LINE("500", "1.5", "160"), 400,
         "done: 500 steps, the last 100 in 1m12s, 205k tokens, 3,556 tokens/s in training\n",
         "validation loss 1.5000 (2.164 bits per byte) over 160 tokens;\n  the best was loss 1.2500 at step 300\n"},
        {LINE("100", "1.7", "80") "{\"step\": 500, \"loss\": 1.1}\n" LINE("500", "1.5", "160"), 0,
         "done: 500 steps in 1",
         "over 160 tokens; before,\n  the best was loss 1.7000 at step 100 over 80 tokens\n"}, // not compared
        {LINE("500", "1.5", "160"), 500, "done: 500 steps, none of them now\n",
         "validation loss 1.5000 (2.164 bits per byte) over 160 tokens\n"},
    };
    static Heard said;
    static GxTrainer t;
    const GxReporter reporter = {hear, &said, NULL};
    const GxMetric loss = {"loss", "loss %.4f", 1.5, -1},
                   bits = {"bits_per_byte", "%.3f bits per byte", 1.5 / log(2.0), -1};
    GxContext g = GX_ZERO;
    GxError err = GX_ZERO;
    char folder[40];
    if (!make_folder(folder)) return;
    g.reporter = &reporter, g.world = 1;
    t.session.g = &g, t.session.run = &t.run, t.run.task = &gx_causal_lm, t.run.at.step = t.run.at.saved = 500,
    t.run.clock.training_seconds = 57.6;
    t.run.o.global_batch_size = 8, t.run.o.seq_len = 256, t.session.plan.process = 120400000;
    t.run.validation.metric[0] = loss, t.run.validation.metric[1] = bits, t.run.validation.metrics = 2,
    t.run.validation.count = 160;
    snprintf(t.run.o.output_dir, sizeof t.run.o.output_dir, "out");
    snprintf(t.run.resume.folder, sizeof t.run.resume.folder, "out/checkpoint-500");
    snprintf(t.run.log_path, sizeof t.run.log_path, "%s/log.jsonl", folder);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        said.text[0] = 0;
        CHECK(gx_file_write(t.run.log_path, list[i].log, (int64_t)strlen(list[i].log), &err) == GX_OK, "%s",
              err.message);
        t.run.at.begun = list[i].begun, t.run.clock.opened = gx_seconds() - 72;
        gx_report_summary(&t.session, "out/loss.svg");
        CHECK(strstr(said.text, list[i].done) == said.text && strstr(said.text, list[i].validated), "%d: %s", (int)i,
              said.text);
        CHECK(strstr(said.text, "\npeak memory ") &&
                  strstr(said.text, " MB, planned 120 MB\ncheckpoint: "
                                    "out/checkpoint-500\nloss curve: out/loss.svg,") &&
                  strstr(said.text, "log.jsonl\n"),
              "%s", said.text);
    }
    const int64_t peak = gx_process_peak_memory();
    for (int is_before = 0; is_before < 2; is_before++) {
        said.text[0] = 0;
        t.session.plan.peak_before = is_before ? peak + (1 << 30) : peak - 1;
        gx_report_summary(&t.session, "out/loss.svg");
        CHECK(!strstr(said.text, "planned 120 MB for training;\n  the peak was earlier, when the data were opened\n") ==
                  !is_before,
              "%s", said.text);
    }
    remove_folder(folder);
}

static int by_size(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

// tokens_per_s of the log's steps first, first + every, ...: the median.
static double median_speed(const char *log, int first, int every, int last)
{
    double speed[40] = {0};
    int n = 0;
    for (int step = first; step <= last && n < 40; step += every) {
        char key[60];
        snprintf(key, sizeof key, "{\"step\": %d, \"loss\"", step);
        const char *line = strstr(log, key), *at = line ? strstr(line, "\"tokens_per_s\": ") : NULL;
        if (CHECK(at != NULL, "no line of step %d: %s", step, log)) speed[n++] = strtod(at + 16, NULL);
    }
    qsort(speed, (size_t)n, sizeof *speed, by_size);
    return speed[n / 2];
}

// Half of the lines are of two steps with a validation or a checkpoint before them that takes as long as hundreds.
TEST(tokens_per_second_are_those_of_training_not_of_validation_and_saving)
{
    static const char *const ways[] = {"--eval_steps 4 --max_eval_samples 0 --validation_fraction 0.8",
                                       "--save_steps 4"};
    static Heard errors;
    static char text[6000];
    char folder[40], flags[300], path[100], *log;
    int64_t bytes;
    GxError err = GX_ZERO;
    int status;
    if (!make_folder(folder)) return;
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + i * i % 23);
    snprintf(path, sizeof path, "%s/longer.txt", folder);
    CHECK(gx_file_write(path, text, sizeof text, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 2; i++) {
        const int last = i == 0 ? 42 : 18;
        snprintf(flags, sizeof flags,
                 "--threads 1 --max_steps %d --logging_steps 2 --train_data %s/longer.txt --output_dir %s/%d %s", last,
                 folder, folder, i, ways[i]);
        train_in_process(folder, flags, NULL, &errors, &status);
        snprintf(path, sizeof path, "%s/%d/log.jsonl", folder, i);
        if (!CHECK(status == 0 && gx_file_read(path, 1 << 20, &log, &bytes, &err) == GX_OK, "%s %s", errors.text,
                   err.message))
            break;
        const double alone = median_speed(log, 4, 4, last), beside = median_speed(log, 6, 4, last);
        CHECK(beside > alone / 10, "%s: %.0f tokens/s, %.0f where that does not come between", ways[i], beside, alone);
        free(log);
    }
    remove_folder(folder);
}

// ---- the picture ---------------------------------------------------------------------------------------------------

// Texts of the SVG behind each `mark`: "…>5.5</text>"; returns how many.
static int svg_texts(const char *svg, const char *mark, char text[40][40])
{
    int n = 0;
    for (const char *at = strstr(svg, mark); at && n < 40; at = strstr(at + 1, mark)) {
        const char *begin = strchr(at, '>') + 1;
        snprintf(text[n++], 40, "%.*s", (int)strcspn(begin, "<"), begin);
    }
    return n;
}

static void check_labels(const char *svg, const char *what, const char *mark, int least)
{
    char text[40][40];
    const int n = svg_texts(svg, mark, text);
    CHECK(n >= least && n <= 11, "%s has %d labels", what, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) CHECK(strcmp(text[i], text[j]), "%s has the label %s twice", what, text[i]);
}

static char *draw(const char *folder, const char *log) // the SVG; free() it
{
    char path[60], svg_path[60], *svg = NULL;
    int64_t bytes;
    GxError err = GX_ZERO;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    snprintf(svg_path, sizeof svg_path, "%s/loss.svg", folder);
    CHECK(gx_file_write(path, log, (int64_t)strlen(log), &err) == GX_OK &&
              gx_plot_loss(path, svg_path, "llama, some steps", "nats per token", &err) == GX_OK &&
              gx_file_read(svg_path, 1 << 24, &svg, &bytes, &err) == GX_OK,
          "%s", err.message);
    return svg ? svg : (char *)calloc(1, 1);
}

TEST(no_label_of_an_axis_stands_twice_however_long_the_run_and_however_large_the_loss)
{
    static const int runs[] = {0, 1, 2, 5, 20, 500, 100000, 10000000};
    static const double losses[][2] = {{5.5, 1.5},     {1e3, 1},  {1e-4, 1e-6}, {5.5, 5.49},
                                       {1.50001, 1.5}, {1e12, 1}, {2, 2},       {1e5 + 1e-5, 1e5}};
    char folder[40], what[80];
    static char log[20000];
    if (!make_folder(folder)) return;
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) // each kind of run once, and each of losses
        for (size_t l = 0; l < (runs[r] == 20 ? sizeof losses / sizeof *losses : 1); l++) {
            const double high = losses[l][0], low = losses[l][1];
            int n = log[0] = 0;
            for (int i = 0; i < 100 && i < runs[r]; i++) {
                const int step = runs[r] <= 100 ? i + 1 : (int)(runs[r] / 100.0 * (i + 1));
                n += snprintf(log + n, sizeof log - (size_t)n, "{\"step\": %d, \"loss\": %.17e}\n", step,
                              low + (high - low) / (i + 1));
            }
            char *svg = draw(folder, log);
            snprintf(what, sizeof what, "the axis of %d steps, losses from %g to %g,", runs[r], high, low);
            check_labels(svg, what, "text-anchor=\"end\"", 2);
            check_labels(svg, what, "y=\"390\" text-anchor=\"middle\"", 2);
            CHECK(!strstr(svg, "nan") && !strstr(svg, "inf"), "%s %s", what, svg);
            free(svg);
        }
    remove_folder(folder);
}

TEST(the_baseline_is_a_dashed_line_in_the_picture_of_any_task)
{
#define CURVE                                                                                                          \
    "{\"step\": 1, \"loss\": 5.5}\n{\"step\": 2, \"loss\": 4.5}\n{\"step\": 2, \"eval_loss\": 4.4, "                   \
    "\"eval_bits_per_byte\": 9.9}\n"
    static const struct {
        const char *log, *label;
        double height; // from the bottom of the axes, as a part of them; -1: no line
    } list[] = {{CURVE "{\"bigram_bits_per_byte\": 3.0}\n", ">bigram: 2.079 (3.000 bits per byte)<",
                 0.0794415 / 4}, // of the axis from 2 to 6
                {"{\"bigram_bits_per_byte\": 3.0}\n" CURVE "{\"bigram_bits_per_byte\": 12.0}\n",
                 ">bigram: 8.318 (12.000 bits", 4.3177662 / 5}, // from 4 to 9
                {CURVE "{\"of_a<b_bits_per_byte\": 7.0}\n", ">of a b: 4.852 (7.000",
                 (7 * 0.6931472 - 4.4) / 1.2}, // from 4.4 to 5.6
                {"{\"bigram_bits_per_byte\": 3.0}\n", ">bigram: 2.079 (3.000", 0.6794415 / 1.2},
                {CURVE "{\"bigram_bits_per_byte\": null}\n", NULL, -1},
                {CURVE "{\"bits_per_byte\": 3.0, \"_bits_per_byte\": 1.0}\n", NULL, -1}};
    char folder[40];
    if (!make_folder(folder)) return;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *svg = draw(folder, list[i].log), *line = strstr(svg, "stroke-dasharray");
        while (line && line > svg && *line != 'M') line--; // the beginning of its path
        const double y = line ? strtod(strchr(line, ' '), NULL) : 0, wanted = 372 - list[i].height * (372 - 58);
        if (list[i].height < 0) CHECK(!line, "case %d has a line: %s", (int)i, svg);
        else
            CHECK(line && fabs(y - wanted) < 0.2 && strstr(svg, list[i].label),
                  "case %d is drawn at %.1f, not %.1f: %s", (int)i, y, wanted, svg);
        free(svg);
    }
    remove_folder(folder);
}

// A line of the weights of another step is no point of the curve of this one.
TEST(the_validation_of_the_best_weights_is_no_dot_at_the_last_step)
{
    char folder[40];
    if (!make_folder(folder)) return;
    char *svg =
        draw(folder, "{\"step\": 4, \"eval_loss\": 4.5}\n{\"step\": 8, \"loss\": 5.5}\n{\"step\": 8, \"eval_loss\": "
                     "5.0}\n{\"step\": 8, \"weights_of_step\": 4, \"eval_loss\": 4.5}\n");
    const char *dots = strstr(svg, "r=\"4\"");
    CHECK(dots && strstr(svg, "cx=\"688.0\" cy=\"215.0\" r=\"4\""), "%s", svg); // (8, 5.0)
    CHECK(!strstr(svg, "cx=\"688.0\" cy=\"345.8\""), "%s", svg);                // (8, 4.5)
    free(svg);
    remove_folder(folder);
}

TEST(the_axes_of_a_picture_reach_its_last_step_and_its_last_values_stand_beside_the_curves)
{
    static const struct {
        const char *log, *last, *train, *eval;
        double apart; // of the two values' heights, at least
    } list[] = {
        {"{\"step\": 1, \"loss\": 5.5}\n{\"step\": 437, \"loss\": 1.8}\n{\"step\": 437, \"eval_loss\": 1.81}\n",
         ">437<", ">1.800<", ">1.810<", 13},
        {"{\"step\": 1, \"loss\": 0.7}\n{\"step\": 1234, \"loss\": 0.0}\n{\"step\": 1234, \"eval_loss\": 0.0}\n",
         ">1234<", ">0.000<", ">0.000<", 13},
        {"{\"step\": 1, \"loss\": 5.5}\n{\"step\": 40, \"loss\": 1234.5}\n{\"step\": 40, \"eval_loss\": 3.0}\n", ">40<",
         ">1234<", ">3.000<", 100},
    };
    char folder[40], text[40][40];
    if (!make_folder(folder)) return;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *svg = draw(folder, list[i].log), *train = strstr(svg, list[i].train),
             *eval = train ? strstr(train + 1, list[i].eval) : NULL;
        const char *last = strstr(svg, list[i].last);
        CHECK(last && train && eval && last < train, "case %d lacks a label: %s", (int)i, svg);
        while (train > svg && strncmp(train, "y=", 2)) train--;
        while (eval && strncmp(eval, "y=", 2)) eval--;
        const double y = strtod(train + 3, NULL), z = eval ? strtod(eval + 3, NULL) : 0;
        CHECK(fabs(y - z) > list[i].apart - 0.2 && y < 373 && z < 373, "case %d: at %.1f and %.1f", (int)i, y, z);
        const int n = svg_texts(svg, "text-anchor=\"end\"", text);
        const double low = atof(text[0]), high = atof(text[n - 1]);
        CHECK(low <= atof(list[i].eval + 1) && high >= 0.7 && high >= atof(list[i].train + 1),
              "case %d: ticks from %g to %g", (int)i, low, high);
        free(svg);
    }
    remove_folder(folder);
}

TEST(the_axis_of_a_picture_says_what_the_loss_is_measured_in_where_the_task_does)
{
    char folder[40], log[60], svg_path[60], *text = NULL;
    int64_t bytes;
    GxError err = GX_ZERO;
    if (!make_folder(folder)) return;
    char *svg = draw(folder, CURVE);
    CHECK(strstr(svg, ">loss (nats per token)</text>"), "%s", svg);
    free(svg);
    snprintf(log, sizeof log, "%s/log.jsonl", folder);
    snprintf(svg_path, sizeof svg_path, "%s/loss.svg", folder);
    CHECK(gx_plot_loss(log, svg_path, "any task", NULL, &err) == GX_OK &&
              gx_file_read(svg_path, 1 << 20, &text, &bytes, &err) == GX_OK && strstr(text, ">loss</text>"),
          "%s%s", err.message, text ? text : "");
    CHECK(!strcmp(gx_causal_lm.loss.unit, "nats per token"), "of a language model: %s", gx_causal_lm.loss.unit);
    free(text);
    remove_folder(folder);
}

// ---- the key of a side cache ---------------------------------------------------------------------------------------

enum { KEY_T = 5, KEY_B = 3, KEY_ROWS = KEY_T * KEY_B, KEY_NUMBERS = 5 * KEY_ROWS };
typedef struct {
    int32_t number[KEY_NUMBERS]; // tokens, types, positions [T,B]; documents [T*B][2]
    int has[4];                  // which of these the model sees
} KeyData;
static int64_t lay_keys(const void *self, GxBatch *b, void *block, void *host_copy)
{
    KeyData *d = (KeyData *)self;
    int32_t *const at[4] = {d->number, d->number + KEY_ROWS, d->number + 2 * KEY_ROWS, d->number + 3 * KEY_ROWS};
    (void)block, (void)host_copy;
    b->tokens = at[0];
    b->types = d->has[1] ? at[1] : NULL;
    b->positions = d->has[2] ? at[2] : NULL;
    b->documents = d->has[3] ? at[3] : NULL;
    return (int64_t)sizeof d->number;
}

// The keys that a micro-batch is looked for by, of its samples.
static void keys_of(KeyData *data, GxRecordKey key[KEY_B])
{
    enum { RECORD = 8 };
    GxContext g = GX_ZERO;
    GxTask task = GX_ZERO;
    GxTrainer *t = (GxTrainer *)calloc(1, sizeof *t);
    GxSession *s = &t->session;
    GxTrainRun *r = &t->run;
    GxBatch b = GX_ZERO;
    char stage[KEY_B * RECORD], *memory = (char *)calloc(1, (size_t)gx_record_cache_memory(RECORD, KEY_B));
    int32_t column[KEY_NUMBERS + 4];
    uint8_t is_kept[KEY_B];
    g.device = gx_device_cpu(), g.world = 1;
    task.batch.layout = lay_keys;
    s->g = &g, s->run = r, r->task = &task, r->self = data;
    r->chosen.tuning = GX_TUNING_SIDE_ONLY, r->chosen.side_cache = GX_SIDE_CACHE_MEMORY;
    CHECK(gx_side_cache_watch(r, &g.error) == GX_OK && r->extends.open(r->extends.self, s, KEY_B, KEY_B) == GX_OK, "%s",
          g.error.message);
    GxSideCache *cache = (GxSideCache *)s->extra.self;
    cache->bytes = RECORD, cache->stage = stage, cache->column = column, cache->key = key, cache->is_kept = is_kept;
    gx_record_cache_open_memory(&cache->records, memory, RECORD, KEY_B);
    b.T = KEY_T, b.B = KEY_B;
    const GxUnitCache *hooks = s->extra.cache;
    CHECK(hooks && !hooks->find(&g, hooks->user, &b) && !gx_failed(&g), "found: %s", g.error.message);
    gx_record_cache_close(&cache->records);
    gx_watchers_free(&r->watchers);
    free(memory), free(t);
}

static int same_key(GxRecordKey a, GxRecordKey b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }

// Documents are two numbers to a row; one that the key passed over would find another sample's record.
TEST(the_key_of_a_sample_follows_from_each_of_its_numbers_and_from_no_others)
{
    KeyData data = {{0}, {1, 1, 1, 1}};
    GxRecordKey key[KEY_B], other[KEY_B];
    for (int i = 0; i < KEY_NUMBERS; i++) data.number[i] = i * 7 % 11;
    keys_of(&data, key);
    for (int i = 0; i < KEY_NUMBERS; i++) {
        const int row = i < 3 * KEY_ROWS ? i % KEY_ROWS : (i - 3 * KEY_ROWS) / 2;
        data.number[i]++;
        keys_of(&data, other);
        for (int b = 0; b < KEY_B; b++)
            CHECK(same_key(key[b], other[b]) == (row % KEY_B != b), "number %d, of sample %d, and the key of %d", i,
                  row % KEY_B, b);
        data.number[i]--;
    }
    for (int without = 1; without < 4; without++) { // none is not the same as zeros
        KeyData zeros = data, none;
        const int at = without * KEY_ROWS, n = without < 3 ? KEY_ROWS : 2 * KEY_ROWS;
        memset(zeros.number + at, 0, (size_t)n * sizeof *zeros.number);
        none = zeros, none.has[without] = 0;
        keys_of(&zeros, key), keys_of(&none, other);
        CHECK(!same_key(key[0], other[0]), "array %d", without);
    }
}

// ---- a disk with little left ---------------------------------------------------------------------------------------

static int64_t disk_left = -1; // bytes that every disk has left; < 0: what it has
int __real_statvfs(const char *path, struct statvfs *disk);
int __wrap_statvfs(const char *path, struct statvfs *disk);
int __wrap_statvfs(const char *path, struct statvfs *disk)
{
    const int status = __real_statvfs(path, disk);
    if (disk_left >= 0) disk->f_frsize = 1, disk->f_bavail = (fsblkcnt_t)disk_left;
    return status;
}

// A record has the layer's input, [8, 512] in fp32, and a frame of 32 bytes. What is said is
// rounded to 0.1 MB.
TEST(a_side_cache_keeps_the_samples_that_a_disk_has_room_for_beside_checkpoints)
{
    enum { RECORD = 8 * 512 * 4 + 32 };
    static Heard errors;
    char folder[40], more[300];
    double needs = 0, left = 0;
    long kept = -1;
    int status;
    if (!make_folder(folder)) return;
    train_in_process(folder, "--save_steps 0 --hidden_size 512", NULL, &errors, &status);
    CHECK(status == 0, "the model: %s", errors.text);
    snprintf(more, sizeof more,
             "--tuning side_only --model %s/out/checkpoint-2 --max_steps 40 --hidden_size 512 --save_steps 0 "
             "--side_reduction_factor 4 --side_cache disk "
             "--overwrite_output_dir true --output_dir %s/side",
             folder, folder);
    disk_left = 4800000;
    train_in_process(folder, more, NULL, &errors, &status);
    disk_left = -1;
    const char *line = strstr(errors.text, "the side cache needs "), *has = line ? strstr(line, " has only ") : NULL,
               *are = has ? strstr(has, "that are not there yet, ") : NULL;
    CHECK(status == 0 && are, "status %d: %s", status, errors.text);
    if (are)
        needs = atof(line + strlen("the side cache needs ")), left = atof(has + strlen(" has only ")),
        kept = atol(are + strlen("that are not there yet, "));
    CHECK(kept > 0 && kept * RECORD <= (left + 0.05) * 1e6 && (kept + 1) * RECORD > (left - 0.05) * 1e6,
          "%ld samples are kept of %.1f MB", kept, left);
    CHECK(left < 0.75 && needs > left, "%g MB are needed, and %g MB are left", needs, left);
    remove_folder(folder);
}

// Names of families and tasks are text, whatever is in them.
TEST(the_title_of_a_picture_is_text_and_no_markup)
{
    char folder[40], log[60], svg_path[60], *svg = NULL;
    int64_t bytes;
    GxError err = GX_ZERO;
    if (!make_folder(folder)) return;
    snprintf(log, sizeof log, "%s/log.jsonl", folder);
    snprintf(svg_path, sizeof svg_path, "%s/loss.svg", folder);
    CHECK(gx_file_write(log, "", 0, &err) == GX_OK &&
              gx_plot_loss(log, svg_path, "a<b> & c, \"5\" steps", NULL, &err) == GX_OK &&
              gx_file_read(svg_path, 1 << 20, &svg, &bytes, &err) == GX_OK,
          "%s", err.message);
    CHECK(svg && strstr(svg, ">a&lt;b&gt; &amp; c, \"5\" steps</text>"), "%s", svg ? svg : "");
    free(svg);
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

// A plan that does not fit says what would: the model shared by data-parallel ranks, fewer samples.
TEST(a_plan_that_does_not_fit_says_what_would)
{
    static const struct {
        int copies, sharded;
        int64_t has, activations;
        const char *says;
    } cases[] = {
        {4, 0, 30, 4, "shard the model among the 4 data-parallel ranks (--zero 3: about 28 MB), use a smaller model"},
        {4, 0, 27, 4, "or leave no room for one sample: use a smaller model"}, // it would not fit, either
        {4, 3, 30, 4, "or leave no room for one sample: use a smaller model"}, // they do already
        {1, 0, 30, 4, "or leave no room for one sample: use a smaller model"},
        {1, 0, 90, 60, "about 5 samples per micro-batch would fit instead of 6"},
    };
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        const GxIntList none = GX_ZERO;
        GxPlan p = GX_ZERO;
        GxError err = GX_ZERO;
        p.arena = 25000000, p.copies = cases[k].copies, p.sharded = cases[k].sharded;
        p.kind[GX_MEM_WEIGHTS] = 8000000, p.kind[GX_MEM_GRADS] = 8000000, p.kind[GX_MEM_OPTIMIZER] = 8000000;
        p.machine.bytes = 100000000, p.machine.has = cases[k].has * 1000000;
        p.machine.activations = cases[k].activations * 1000000;
        CHECK(gx_plan_refuse_too_large(&p, 6, &none, &err) == GX_ERR_MEMORY && strstr(err.message, cases[k].says),
              "%u: %s", k, err.message);
    }
}

int main(int argc, char **argv) { return test_main(argc, argv); }
