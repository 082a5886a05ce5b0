// test_run.cu: the trainer's parts by themselves: schedules, the batch equation, sampling, what a run says.
// (test_train.cu shows the program as a whole.)
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/test.h"
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
    CHECK(gx_options_add(&c, &o, NULL, &err) == GX_OK &&
              gx_json_parse(&json, args, (int64_t)strlen(args), "args", &err) == GX_OK &&
              gx_config_take(&c, json, NULL, "args", &err) == GX_OK,
          "%s", err.message);
    CHECK(gx_options_resolve_batch(&o, &c, 2, &split, &err) == GX_ERR_ARGUMENT &&
              strstr(err.message, "micro_batch_size is 0 and there is no dp_batch_size_list"),
          "%s", err.message);
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
        {{"p", "--dp_batch_size_list", "3,1", NULL}, 3, {"dp_batch_size_list", "3", "2"}},
        {{"p", "--micro_batch_size", "1", "--global_batch_size", "1000000", NULL},
         1,
         {"--global_batch_size 1000000", "gradient_accumulation_steps is 1000000", "from 1 to 32767"}},
        {{"p", "--gradient_accumulation_steps", "1", "--global_batch_size", "33554432", "--seq_len", "1"},
         1,
         {"--global_batch_size 33554432", "micro_batch_size is 33554432", "from 0 to 16777216"}},
        {{"p", "--gradient_accumulation_steps", "1", "--global_batch_size", "1000000000000", "--seq_len", "16777216"},
         1,
         {"1000000000000 samples x seq_len 16777216", "1.6777216e+19 tokens", "at most 1073741824"}},
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

static int open_generator(GxContext *g, GxArena *arena, GxGenerator *w, int64_t V)
{
    g->device = gx_device_cpu();
    gx_arena_open(arena, 1 << 16, &g->error);
    g->arena = arena;
    gx_generator_take(g, w, WINDOW, V, GX_F32);
    return CHECK(!gx_failed(g), "%s", g->error.message);
}

// Of a text that grows from one token to far beyond the window; with ranks that each need a token, too.
TEST(generation_sees_the_last_window_and_draws_known_tokens_alone)
{
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        const int dims[GX_MESH_AXES] = {1, 1, 1, 1, ranks};
        GxContext g = GX_ZERO;
        GxMesh mesh;
        GxArena arena = GX_ZERO;
        GxGenerator w;
        Counting c = GX_ZERO;
        GxForward forward = {count_on, &c, NULL, NULL};
        const GxSampling s = {0, 0, 1, COUNTED};
        int32_t tokens[TEXT] = {3};
        CHECK(gx_mesh_open(&mesh, dims, 0, ranks, &g.error) == GX_OK, "%s", g.error.message);
        g.mesh = &mesh;
        if (!open_generator(&g, &arena, &w, ROWS_BEYOND)) return;
        const int64_t n = gx_generate(&g, &forward, &w, tokens, 1, TEXT, &s);
        CHECK(n == TEXT && c.runs == TEXT - 1 && !gx_failed(&g), "%ld tokens, %d runs; %s", (long)n, c.runs,
              g.error.message);
        for (int i = 0; i < TEXT; i++) CHECK(tokens[i] == (3 + i) % COUNTED, "token %d is %d", i, tokens[i]);
        for (int i = 0; i < c.runs; i++) {
            const int have = 1 + i, seen = have < WINDOW ? have : WINDOW, T = seen < ranks ? ranks : seen;
            CHECK(c.T[i] == T && c.row[i] == seen - 1, "%d tokens, %d ranks: T %ld, row %ld", have, ranks, (long)c.T[i],
                  (long)c.row[i]);
            CHECK(!memcmp(c.window[i], tokens + have - seen, (size_t)seen * 4),
                  "%d tokens: it sees others than the last %d", have, seen);
        }
        gx_arena_close(&arena);
    }
}

static void know_nothing(GxContext *g, void *user, const GxBatch *b)
{
    (void)g, (void)user;
    memset(b->logits.data, 0, ROWS_BEYOND * sizeof(float));
}

// By the place in the text, not in the window, which stands still at the end.
TEST(every_generated_token_is_drawn_by_its_own_place)
{
    enum { LONG = 40 };
    const float logits[ROWS_BEYOND] = {0};
    const GxSampling s = {1, 0, 5, ROWS_BEYOND};
    GxContext g = GX_ZERO;
    GxArena arena = GX_ZERO;
    GxGenerator w;
    GxForward forward = {know_nothing, NULL, NULL, NULL};
    int32_t tokens[LONG] = {3};
    if (!open_generator(&g, &arena, &w, ROWS_BEYOND)) return;
    gx_generate(&g, &forward, &w, tokens, 1, LONG, &s);
    for (int i = 1; i < LONG; i++)
        CHECK(tokens[i] == gx_sample_token(logits, ROWS_BEYOND, &s, i), "token %d is %d", i, tokens[i]);
    gx_arena_close(&arena);
}

typedef struct {
    int runs, first[TEXT];
    int64_t T[TEXT];
} Spelling;

static void spell_on(GxContext *g, void *user, const GxBatch *b)
{
    (void)g;
    Spelling *c = (Spelling *)user;
    c->T[c->runs] = b->T, c->first[c->runs++] = b->tokens[0];
    memset(b->logits.data, 0, 256 * sizeof(float));
    ((float *)b->logits.data)[b->tokens[b->logits_row] + 1] = 5;
}

TEST(the_sample_of_a_text_model_sees_as_many_bytes_as_it_was_trained_on)
{
    GxContext g = GX_ZERO;
    GxArena arena = GX_ZERO;
    GxModel m = GX_ZERO;
    GxLlamaConfig config = {256, 16, 16, 1, 2, 1, 8, 64, 1e-5, 10000, 0.02, 0};
    GxCausalLm self = GX_ZERO;
    Spelling c = GX_ZERO;
    GxForward forward = {spell_on, &c, NULL, NULL};
    g.device = gx_device_cpu();
    gx_arena_open(&arena, 1 << 16, &g.error);
    g.arena = &arena;
    m.family = &gx_llama, m.config = &config, m.store.dtype = GX_F32;
    self.tokenizer = gx_tokenizer_bytes(), self.sample_bytes = 6;
    snprintf(self.sample_prompt, sizeof self.sample_prompt, "abc");
    gx_causal_lm.take(&g, &self, &m, WINDOW);
    char *text = gx_causal_lm.sample(&g, &self, &forward, 1);
    CHECK(text && !strcmp(text, "abcdefghi") && c.runs == 6, "\"%s\" in %d runs; %s", text ? text : "", c.runs,
          g.error.message);
    for (int i = 0; i < c.runs; i++) {
        const int have = 3 + i, T = have < WINDOW ? have : WINDOW;
        CHECK(c.T[i] == T && c.first[i] == 'a' + have - T, "of %d bytes it sees %ld, from %c on", have, (long)c.T[i],
              c.first[i]);
    }
    free(text);
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
        CHECK(gx_plot_loss(log, svg, "a title", &err) == GX_OK, "%d: %s", (int)i, err.message);
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
    static const struct {
        const char *text, *says;
    } states[] = {
        {STATE(NUMBERS("3", "3", "12", "0"), "\"sgd\""), NULL},
        {STATE(NUMBERS("3", "2", "12", "0"), "\"sgd\""), NULL}, // a step was skipped
        {STATE(NUMBERS("3", "3", "-1", "0"), "\"sgd\""), ": samples_seen is -1; expected an integer from 0"},
        {STATE(NUMBERS("3", "3", "9223372036854775807", "0"), "\"sgd\""), ": samples_seen is 9223372036854775807; exp"},
        {STATE(NUMBERS("3", "3", "2", "0"), "\"sgd\""), ": samples_seen is 2; 3 steps see at least one each"},
        {STATE(NUMBERS("0", "0", "12", "0"), "\"sgd\""), ": samples_seen is 12; 0 steps see none"},
        {STATE(NUMBERS("3", "4", "12", "0"), "\"sgd\""),
         ": applied_steps is 4; expected at most global_step, which is 3"},
        {STATE(NUMBERS("3", "-1", "12", "0"), "\"sgd\""), ": applied_steps is -1; expected"},
        {STATE(NUMBERS("9223372036854775807", "3", "12", "0"), "\"sgd\""), ": global_step is 9223372036854775807; exp"},
        {STATE(NUMBERS("3", "3", "12", "1.5"), "\"sgd\""), ": seed is 1.5; expected an integer, at least 0"},
        {STATE(NUMBERS("3", "3", "12", "null"), "\"sgd\""), ": seed is missing"},
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

// Of a file with this text, whose name ends up in path.
static GxStatus read_config_json(GxLlamaConfig *c, const char *text, char path[40], GxError *err)
{
    snprintf(path, 40, "/tmp/galaxy_test_run_XXXXXX");
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return GX_ERR_IO;
    close(file);
    GxStatus status = gx_file_write(path, text, (int64_t)strlen(text), err);
    if (status == GX_OK) status = gx_llama_config_read(c, path, err);
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
    static const char *const lines[] = {"\"architectures\": [\"LlamaForCausalLM\"]", "\"torch_dtype\": \"float32\"",
                                        "\"bos_token_id\": null"};
    const GxLlamaConfig c = {97, 48, 80, 3, 6, 3, 10, 77, 1, 500000.5, 0.5, 1}; // none of them the default
    GxLlamaConfig back = GX_ZERO;
    GxError err = GX_ZERO;
    char path[40] = "/tmp/galaxy_test_run_XXXXXX", *text = NULL;
    int64_t bytes;
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return;
    close(file);
    CHECK(gx_llama_config_write(&c, path, &err) == GX_OK && gx_llama_config_read(&back, path, &err) == GX_OK, "%s",
          err.message);
    for (int i = 0; i < gx_llama.n_fields; i++)
        CHECK(gx_field_same(&gx_llama.fields[i], &c, &back), "%s is not what it was", gx_llama.fields[i].name);
    if (!CHECK(gx_file_read(path, 1 << 16, &text, &bytes, &err) == GX_OK, "%s", err.message)) return;
    CHECK(count_of(text, "\"rope_theta\": 500000.5") == 2, "not for transformers 4 and 5: %s", text);
    CHECK(strstr(text, "\"rms_norm_eps\": 1.0"), "transformers 5 refuses the integer 1 there: %s", text);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK(strstr(text, lines[i]), "no %s", lines[i]);
    free(text);
    unlink(path);
}

TEST(what_a_config_json_leaves_out_is_what_transformers_takes_for_it)
{
    static const char *const texts[] = {// as LlamaConfig of transformers 4.57 and 5.23 does
                                        "{\"model_type\": \"llama\", " SIZES "}",
                                        "{\"model_type\": \"llama\", " SIZES
                                        ", \"num_key_value_heads\": null, \"head_dim\": null, "
                                        "\"rope_scaling\": null, \"rope_parameters\": {}, \"architectures\": null}"};
    const GxLlamaConfig expected = {97, 48, 80, 3, 6, 6, 8, 2048, 1e-6, 10000, 0.02, 0};
    for (int t = 0; t < 2; t++) {
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char path[40];
        if (!CHECK(read_config_json(&c, texts[t], path, &err) == GX_OK, "%s", err.message)) continue;
        for (int i = 0; i < gx_llama.n_fields; i++)
            CHECK(gx_field_same(&gx_llama.fields[i], &c, &expected), "%s: another default", gx_llama.fields[i].name);
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

TEST(a_config_json_that_asks_for_something_else_or_in_another_type_is_refused_by_file_and_key)
{
    static const struct {
        const char *more, *says; // says: behind the file's name
    } bad[] = {
        {"\"model_type\": 7", "model_type is 7; only \"llama\" is built"},
        {"\"model_type\": null", "model_type is null; only \"llama\""},
        {"\"model_type\": \"mistral\"", "model_type is \"mistral\"; only \"llama\""},
        {"\"hidden_act\": 3", "hidden_act is 3; only \"silu\" is built"},
        {"\"hidden_act\": null", "hidden_act is null; only \"silu\""},
        {"\"attention_bias\": \"yes\"", "attention_bias is \"yes\"; only false is built"},
        {"\"attention_bias\": 0", "attention_bias is 0; only false"},
        {"\"attention_bias\": true", "attention_bias is true; only false"},
        {"\"mlp_bias\": 1", "mlp_bias is 1; only false is built"},
        {"\"mlp_bias\": null", "mlp_bias is null; only false"},
        {"\"attention_dropout\": 0.1", "attention_dropout is 0.1; only 0.0 is built"},
        {"\"partial_rotary_factor\": 0.5", "partial_rotary_factor is 0.5; only 1.0 is built"},
        {"\"architectures\": [\"LlamaForSequenceClassification\"]",
         "architectures is [\"LlamaForSequenceClassification\"]; only [\"LlamaForCausalLM\"] is built"},
        {"\"architectures\": \"LlamaForCausalLM\"",
         "architectures is \"LlamaForCausalLM\"; only [\"LlamaForCausalLM\"]"},
        {"\"architectures\": [7]", "architectures is [7]; only [\"LlamaForCausalLM\"]"},
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
        {"\"rope_scaling\": {\"type\": \"linear\"}", "rope_scaling: type is \"linear\"; only \"default\" is built"},
        {"\"rope_parameters\": {\"rope_type\": 3}", "rope_parameters: rope_type is 3; only \"default\" is built"},
        {"\"rope_parameters\": {\"rope_theta\": null}", "rope_parameters: rope_theta is null; expected a number"},
        {"\"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
         "rope_parameters: partial_rotary_factor is 0.5; only"},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 9}}",
         "rope_parameters: full_attention is an object; only one RoPE"},
        {"\"rope_theta\": 500, \"rope_parameters\": {\"rope_theta\": 600}",
         "rope_parameters: rope_theta is 600, but 500 where it stands alone"},
        {"\"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {\"rope_theta\": 600}",
         "rope_scaling and rope_parameters are both there"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int is_type = !strncmp(bad[i].more, "\"model_type", 11);
        GxLlamaConfig c = GX_ZERO;
        GxError err = GX_ZERO;
        char text[500], path[40];
        snprintf(text, sizeof text, "{%s" SIZES ", %s}", is_type ? "" : "\"model_type\": \"llama\", ", bad[i].more);
        const GxStatus status = read_config_json(&c, text, path, &err);
        CHECK((status == GX_ERR_FORMAT || status == GX_ERR_UNSUPPORTED) && !strncmp(err.message, path, strlen(path)) &&
                  strstr(err.message, bad[i].says),
              "%s: %s", bad[i].more, status == GX_OK ? "it was taken" : err.message);
    }
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
    const GxReporter reporter = {hear, &said};
    char flags[900];
    said.text[0] = 0;
    snprintf(flags, sizeof flags,
             "--train_data %s/text.txt --max_steps 4 --save_steps 2 --hidden_size 16 --intermediate_size 16 "
             "--num_hidden_layers 1 --num_attention_heads 2 --num_key_value_heads 1 --seq_len 8 --micro_batch_size 2 "
             "--threads 1 --sample_bytes 60 --eval_steps 0 %s",
             folder, more);
    CHECK(train_by(flags, &reporter, &errors) == 0 && !errors.text[0], "%s: %s", more, errors.text);
    const char *sample = strstr(said.text, "sample:\n"), *end = sample ? strstr(sample, "\nloss curve: ") : NULL;
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
    snprintf(more, sizeof more, "--output_dir %s/other --seed 6 --learning_rate 0 --model %s/whole/checkpoint-4",
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
              strstr(errors.text, "transformers 5 will not load what is saved: hidden_size (32) is not a multiple of "
                                  "num_attention_heads (3)"),
          "it said \"%s\"", errors.text);
    CHECK(train_by("--dry_run --initializer_range 1.5", NULL, &errors) == 1 &&
              strstr(errors.text, "a number from 0 to 1"),
          "%s", errors.text);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
