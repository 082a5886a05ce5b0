// test_window.cu: copies of the model that take numbers of samples of their own (--dp_samples_list), and samples that
// move between them while a run goes on (--rebalance): run/window.h, run/rebalance.h.
#include "galaxy.h"
#include "test/task_run.h"

// ---- which samples -------------------------------------------------------------------------------------------------

static GxSplit split_of(const int64_t *list, int n)
{
    GxSplit s = GX_ZERO;
    s.n = n;
    for (int r = 0; r < n; r++) s.begin[r + 1] = s.begin[r] + list[r];
    return s;
}

static void check_all_once(const GxWindow *w)
{
    int seen[64] = {0};
    int64_t all = 0;
    for (int r = 0; r < w->micro.n; r++) {
        int64_t mine = 0;
        for (int64_t i = 0; i < gx_window_micro_batches(w, r); i++) {
            const GxRange s = gx_window_range(w, r, i);
            const int is_last = i + 1 == gx_window_micro_batches(w, r);
            CHECK(gx_range_count(s) == gx_split_part(&w->micro, r) || (is_last && gx_range_count(s) > 0),
                  "copy %d, micro-batch %ld: %ld samples", r, (long)i, (long)gx_range_count(s));
            for (int64_t k = s.begin; k < s.end; k++) seen[k]++;
            mine += gx_range_count(s);
        }
        CHECK(mine == gx_split_part(&w->samples, r), "copy %d has %ld samples", r, (long)mine);
        all += mine;
    }
    for (int64_t k = 0; k < all; k++) CHECK(seen[k] == 1, "sample %ld is there %d times", (long)k, seen[k]);
}

TEST(the_micro_batches_of_all_copies_have_each_sample_of_a_window_once)
{
    static const int64_t micro[][3] = {{3, 1, 2}, {1, 1, 1}, {4, 4, 4}, {1, 5, 2}},
                         own[][3] = {{5, 3, 1}, {1, 1, 1}, {9, 4, 2}, {7, 1, 13}};
    for (int i = 0; i < 4; i++) {
        const GxSplit s = split_of(micro[i], 3);
        const GxWindow equal = gx_window_of_equal(&s, 3), unequal = gx_window_of_own(&s, own[i]);
        check_all_once(&equal), check_all_once(&unequal);
        CHECK(gx_window_most(&unequal, 1) == own[i][0] + own[i][1] + own[i][2] - 2, "%ld",
              (long)gx_window_most(&unequal, 1));
    }
}

// ---- the rule ------------------------------------------------------------------------------------------------------

static unsigned state = 1;
static double uniform(void)
{
    state = state * 1664525u + 1013904223u;
    return ((double)(state >> 8) + 0.5) / (1 << 24);
}
static double normal(void) // as good as: the sum of twelve
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform();
    return sum;
}

static double longest(const int64_t *n, const double *seconds, int copies)
{
    double most = 0;
    for (int c = 0; c < copies; c++) most = fmax(most, (double)n[c] * seconds[c]);
    return most;
}

// The least that any division takes, by trying all. INFINITY: there is none.
static double least_of_all(int64_t *n, int c, const double *seconds, const int64_t *most, int copies, int64_t left)
{
    double least = INFINITY;
    if (c == copies - 1) {
        n[c] = left;
        return left >= 1 && left <= most[c] ? longest(n, seconds, copies) : INFINITY;
    }
    for (n[c] = 1; n[c] <= most[c] && n[c] < left; n[c]++) {
        int64_t here[4];
        memcpy(here, n, sizeof here);
        least = fmin(least, least_of_all(here, c + 1, seconds, most, copies, left - n[c]));
    }
    return least;
}

TEST(samples_are_divided_as_the_best_of_all_divisions_divides_them)
{
    int none = 0, capped = 0;
    for (int trial = 0; trial < 2000; trial++) {
        const int copies = 1 + trial % 4;
        const int64_t total = 1 + (int64_t)(uniform() * 20);
        double seconds[4];
        int64_t most[4], n[4], got[4] = {-1, -1, -1, -1}, sum = 0;
        for (int c = 0; c < copies; c++) seconds[c] = exp(3 * uniform()), most[c] = 1 + (int64_t)(uniform() * 20);
        if (trial % 5 == 0)
            for (int c = 0; c < copies; c++) seconds[c] = 0.1 * (1 + trial / 5 % 3); // equal ones, not exact in binary
        const double best = least_of_all(n, 0, seconds, most, copies, total);
        const int found = gx_rebalance_divide(got, seconds, most, copies, total);
        CHECK(found == (best < INFINITY), "%d copies, %ld samples: %d", copies, (long)total, found);
        none += !found;
        if (!found) continue;
        for (int c = 0; c < copies; c++) {
            sum += got[c], capped += got[c] == most[c];
            CHECK(got[c] >= 1 && got[c] <= most[c], "copy %d has %ld of %ld", c, (long)got[c], (long)most[c]);
        }
        CHECK(sum == total && longest(got, seconds, copies) <= best * (1 + 1e-12), "%ld of %ld samples, %g, not %g",
              (long)sum, (long)total, longest(got, seconds, copies), best);
    }
    CHECK(none > 50 && capped > 500, "%d without a division, %d at their most", none, capped);
    const double broken[] = {1, NAN}, idle[] = {1, 0};
    const int64_t most[] = {9, 9};
    int64_t n[2];
    CHECK(!gx_rebalance_divide(n, broken, most, 2, 4) && !gx_rebalance_divide(n, idle, most, 2, 4),
          "a copy without a time");
}

typedef struct {
    // of all windows: as the rule goes; where nothing moves; where each window is divided for its machines' true speeds
    double time, still, ideal;
    int moves;
} Simulated;

// Copies with these seconds per sample, each jittered by 3% in each window; copy 0 is at 0.6 of its speed in the middle
// third, if it slows.
static Simulated simulate(const double *seconds, int copies, int64_t total, int windows, int slows)
{
    static GxRebalance rule;
    Simulated s = {0, 0, 0, 0};
    int64_t n[8], first[8], best[8];
    memset(&rule, 0, sizeof rule);
    rule.copies = copies;
    for (int c = 0; c < copies; c++) rule.most[c] = total;
    gx_rebalance_divide(n, seconds, rule.most, copies, total), memcpy(first, n, sizeof n);
    for (int w = 0; w < windows; w++) {
        double truth[8], now[8];
        for (int c = 0; c < copies; c++) {
            const int is_slow = slows && !c && w >= windows / 3 && w < 2 * windows / 3;
            truth[c] = seconds[c] / (is_slow ? 0.6 : 1), now[c] = truth[c] * (1 + 0.03 * normal());
        }
        gx_rebalance_divide(best, truth, rule.most, copies, total);
        s.time += longest(n, now, copies), s.still += longest(first, now, copies);
        s.ideal += longest(best, now, copies);
        s.moves += gx_rebalance_rule(&rule, now, n, n);
    }
    return s;
}

// Samples that stay where they are cost about a fifth.
TEST(where_a_machine_slows_down_samples_move_and_where_none_does_they_stay)
{
    static const double fleets[][4] = {{1, 3, 1, 1}, {1, 1, 1, 1}, {1, 2, 4, 1.5}};
    static const int64_t totals[] = {16, 64, 256};
    for (int i = 0; i < 27; i++) {
        const int copies = 2 + i % 3;
        const double *fleet = fleets[i / 3 % 3];
        const Simulated s = simulate(fleet, copies, totals[i / 9], 300, 1),
                        steady = simulate(fleet, copies, totals[i / 9], 300, 0);
        CHECK(s.time <= 1.03 * s.ideal && s.moves >= 1 && s.moves <= 4, "case %d: %.3f, %d moves", i, s.time / s.ideal,
              s.moves);
        CHECK(s.still > 1.03 * s.ideal + (s.time - s.ideal), "case %d: only %.3f without moves", i, s.still / s.ideal);
        CHECK(steady.moves == 0, "case %d, steady: %d moves", i, steady.moves);
    }
}

TEST(a_single_slow_window_moves_nothing)
{
    GxRebalance rule = GX_ZERO;
    const double usual[] = {1, 1}, once[] = {1, 1.4};
    int64_t n[] = {16, 16};
    rule.copies = 2, rule.most[0] = rule.most[1] = 31;
    for (int w = 0; w < 12; w++) CHECK(!gx_rebalance_rule(&rule, w % 6 == 5 ? once : usual, n, n), "window %d", w);
}

// ---- runs ----------------------------------------------------------------------------------------------------------

enum { STEPS = 4, SAMPLES = 8, MOST_RANKS = 6 };

static struct {
    const char *program;
    double loss[40], grad_norm[40];
    int64_t samples[40][4]; // of each copy, after the step
    int64_t planned, peak;  // of rank 0's arena
    int steps;
    // A clock of the test's own: seconds per sample of each copy, before a step and from it on. cost[0][0] 0: none
    double cost[2][4];
    int64_t changes;
    double worked[MOST_RANKS]; // seconds of each rank's least window
    double slow;               // every operation of the last rank takes so many times its time; 0: as it is
} ran;

static void measured(void *self, GxSession *s, int is_computed)
{
    const int copy = gx_mesh_index(&s->mesh, GX_AXIS_DP);
    (void)self, (void)is_computed;
    s->runner.worked =
        ran.cost[s->run->at.step + 1 >= ran.changes][copy] * (double)gx_split_part(&s->window.samples, copy);
}

static double clock_now(void *unused) { return (void)unused, gx_seconds(); }
static void stretch(void *unused, const GxEvent *e, double seconds)
{
    const double until = gx_seconds() + (ran.slow - 1) * seconds;
    (void)unused;
    while (e->kind == GX_EVENT_OP && gx_seconds() < until) {}
}

static int train_rank(GxContext *g, int argc, char **argv)
{
    static const GxReporter reporter = {hear_out, NULL, NULL};
    GxTrainer *t = (GxTrainer *)calloc(1, sizeof *t);
    GxRecorder slow = GX_ZERO;
    char *own[80];
    for (int i = 0; i < argc; i++) own[i] = strdup(argv[i]);
    slow.totals_only = 1, slow.clock = clock_now, slow.timed = stretch;
    g->reporter = &reporter, g->log.write = hear_log;
    gx_trainer_open(t, g, running.family, running.task, NULL, argc, own);
    GxWatcher *w = ran.cost[0][0] > 0 ? gx_watchers_add(&t->run.watchers, 0, &g->error) : NULL;
    if (w) w->end = measured;
    if (ran.slow && g->rank == g->world - 1) g->recorder = &slow;
    if (ran.slow) t->session.runner.is_timed = 1;
    while (gx_trainer_next(t)) {
        gx_trainer_step(t);
        gx_trainer_report(t);
        const int64_t step = t->run.at.step;
        if (step == 1 || t->session.runner.worked < ran.worked[g->rank]) ran.worked[g->rank] = t->session.runner.worked;
        if (g->rank || step >= 40 || gx_failed(g)) continue;
        ran.loss[step] = gx_step_loss(&t->session.seen), ran.grad_norm[step] = sqrt(t->session.seen.sum_squares);
        for (int c = 0; c < 4 && c < t->session.window.samples.n; c++)
            ran.samples[step][c] = gx_split_part(&t->session.window.samples, c);
        ran.steps = (int)step, ran.planned = t->session.plan.arena, ran.peak = t->session.arena.peak;
    }
    g->recorder = NULL;
    const int status = gx_trainer_close(t);
    for (int i = 0; i < argc; i++) free(own[i]);
    free(t);
    return status;
}

// Exit status of a training of the tiny LLaMA with further flags. Its output: folder/name.
static int train(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int train(const char *name, const char *format, ...)
{
    char line[3000], *argv[80] = {(char *)"train"};
    va_list args;
    int argc = 1,
        n = snprintf(line, sizeof line,
                     "--train_data %s --output_dir %s --threads 1 --hidden_size 16 --intermediate_size 32 "
                     "--num_hidden_layers 4 --num_attention_heads 4 --num_key_value_heads 2 --seq_len 16 "
                     "--optimizer sgd --warmup_steps 0 --logging_steps 1 --max_eval_samples 6 --sample_tokens 0 ",
                     path_of("text.txt"), path_of(name));
    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    memset(&said, 0, sizeof said);
    memset(ran.loss, 0, sizeof ran.loss), memset(ran.samples, 0, sizeof ran.samples), ran.steps = 0;
    running.family = &gx_llama, running.task = &gx_causal_lm;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    return gx_launch(train_rank, argc, argv);
}

// The longest chain of roundings behind a number of step `steps`: a sum per matrix product of the layers and the head,
// forward and backward, the attention's keys, the tokens of a window; and so on for each update before.
static double depth(int steps)
{
    const double C = 16, F = 32, head = 4, T = 16, V = 256, layer = 4 * C + F + C + head + T;
    return (2 * (4 * layer + C + V) + SAMPLES * T) * steps;
}

// The tensors of a checkpoint's file of weights (free() it): all fp32, in one order.
static float *read_weights(const char *path, const char *file, long *n)
{
    char name[600];
    int64_t bytes, head;
    snprintf(name, sizeof name, "%s/%s", path, file);
    char *all = read_bytes(name, &bytes);
    *n = 0;
    if (!CHECK(bytes > 8, "no weights in %s", name)) return (float *)all;
    memcpy(&head, all, sizeof head);
    *n = (long)(bytes - 8 - head) / 4;
    memmove(all, all + 8 + head, (size_t)*n * 4);
    return (float *)all;
}

static void check_same_weights(const char *what, const char *a, const char *b, const char *file, double bound)
{
    char x[400], y[400];
    long n[2];
    snprintf(x, sizeof x, "%s/checkpoint-%d", path_of(a), STEPS),
        snprintf(y, sizeof y, "%s/checkpoint-%d", path_of(b), STEPS);
    float *mine = read_weights(x, file, &n[0]), *theirs = read_weights(y, file, &n[1]);
    if (CHECK(n[0] == n[1] && n[0] > 0, "%s: %ld and %ld weights", what, n[0], n[1]))
        test_close_f(what, mine, theirs, n[0], bound, 0);
    free(mine), free(theirs);
}

static double expected_loss[40], expected_norm[40];
static void expect_this(void)
{
    memcpy(expected_loss, ran.loss, sizeof ran.loss), memcpy(expected_norm, ran.grad_norm, sizeof ran.grad_norm);
}

static void check_series(const char *what, int first, int last)
{
    CHECK(ran.steps == last, "%s: %d steps", what, ran.steps);
    for (int s = first; s <= last; s++) {
        const float ours[2] = {(float)ran.loss[s], (float)ran.grad_norm[s]};
        test_close(what, &ours[0], &expected_loss[s], 1, test_bound(depth(s)), 0);
        test_close(what, &ours[1], &expected_norm[s], 1, test_bound(depth(s)), 0);
    }
    CHECK(!strstr(said.log, "wrong"), "%s: %s", what, said.log);
}

static void check_ways(const char *kind, const char *common, const char *const *ways, int n, const char *file)
{
    char serial[40], name[40];
    snprintf(serial, sizeof serial, "%s_serial", kind);
    if (!CHECK(train(serial, "--max_steps %d --micro_batch_size %d %s", STEPS, SAMPLES, common) == 0, "%s", said.log))
        return;
    expect_this();
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s_%d", kind, i);
        if (!CHECK(train(name, "--max_steps %d --rebalance off %s %s", STEPS, common, ways[i]) == 0, "%s: %s", ways[i],
                   said.log))
            continue;
        check_series(ways[i], 1, STEPS);
        check_same_weights(ways[i], name, serial, file, test_bound(depth(STEPS)));
    }
}

TEST(copies_with_samples_of_their_own_have_the_gradients_of_serial)
{
    static const char *const ways[] = {
        "--ranks 2 --dp_samples_list 5,3 --micro_batch_size 2",         // the last micro-batches are smaller
        "--ranks 2 --dp_samples_list 1,7 --micro_batch_size 8",         // a copy with one sample
        "--ranks 3 --dp_samples_list 6,1,1 --micro_batch_size 4",       // three copies
        "--ranks 3 --dp_samples_list 2,5,1 --dp_batch_size_list 1,3,2", // memory and speed unlike each other
        "--ranks 2 --dp_samples_list 7,1 --micro_batch_size 1 --reduce_bucket 1",
        "--ranks 2 --dp_samples_list 2,6 --micro_batch_size 4 --recompute layer",
        "--dp_samples_list 8 --micro_batch_size 3", // one copy
        "--ranks 4 --mode tp --tp 2 --dp_samples_list 5,3 --micro_batch_size 2",
        "--ranks 4 --mode sp --tp 2 --dp_samples_list 3,5 --micro_batch_size 2 --seq_scatter_list 13,3",
        "--ranks 4 --mode galaxy --tp 2 --dp_samples_list 1,7 --micro_batch_size 2 --tp_num_attention_heads_list 3,1",
        "--ranks 6 --mode galaxy2 --tp 2 --dp_samples_list 1,4,3 --micro_batch_size 3",
        "--ranks 4 --pp 2 --dp_samples_list 7,1 --micro_batch_size 2",
        "--ranks 4 --pp 2 --pipeline_schedule gpipe --dp_samples_list 3,5 --micro_batch_size 2",
        "--ranks 4 --pp 2 --pipeline_schedule zb1p --dp_samples_list 7,1 --micro_batch_size 1 --reduce_bucket 1",
        "--ranks 4 --pp 2 --pipeline_schedule zbv --dp_samples_list 6,2 --micro_batch_size 1",
        "--ranks 4 --pp 2 --pipeline_schedule interleaved --dp_samples_list 6,2 --micro_batch_size 1",
        "--ranks 6 --pp 3 --dp_samples_list 2,6 --dp_batch_size_list 2,1 --stage_num_hidden_layers_list 1,1,2",
        "--ranks 2 --zero 1 --dp_samples_list 5,3 --micro_batch_size 2",
        "--ranks 3 --zero 2 --dp_samples_list 1,5,2 --micro_batch_size 2 --dp_shard_list 1,2,2",
        "--ranks 4 --zero 2 --dp_shard 2 --dp_samples_list 1,2,4,1 --micro_batch_size 2",
        "--ranks 4 --zero 2 --pp 2 --dp_samples_list 7,1 --micro_batch_size 2",
        "--ranks 4 --zero 2 --mode tp --tp 2 --dp_samples_list 2,6 --micro_batch_size 4",
    };
    check_ways("full", "--learning_rate 0.5 --tie_word_embeddings true", ways, sizeof ways / sizeof *ways,
               "model.safetensors");
}

// The masks of LoRA's dropout follow from the numbers of the samples.
TEST(lora_with_dropout_has_the_gradients_of_serial)
{
    static const char *const ways[] = {"--ranks 2 --dp_samples_list 5,3 --micro_batch_size 2",
                                       "--ranks 4 --mode galaxy --tp 2 --dp_samples_list 1,7 --micro_batch_size 3",
                                       "--ranks 4 --pp 2 --dp_samples_list 6,2 --micro_batch_size 2",
                                       "--ranks 3 --zero 2 --dp_samples_list 2,5,1 --micro_batch_size 2"};
    char common[600];
    if (!CHECK(train("base", "--max_steps 1 --learning_rate 0.1") == 0, "%s", said.log)) return;
    snprintf(
        common, sizeof common,
        "--model %s --tuning lora --lora_dim 2 --lora_dropout 0.3 --learning_rate 2 --target_modules q_proj,down_proj",
        path_of("base/checkpoint-1"));
    check_ways("lora", common, ways, sizeof ways / sizeof *ways, "adapter_model.safetensors");
}

// Where the order of sums is the same, so are the bits.
TEST(the_same_division_said_in_another_way_has_the_same_bits)
{
    static const char *const same[][2] = {
        {"--ranks 2 --micro_batch_size 4", "--ranks 2 --dp_samples_list 4,4"},
        {"--ranks 2 --dp_batch_size_list 7,1", "--ranks 2 --dp_samples_list 7,1"},
        {"--micro_batch_size 2 --gradient_accumulation_steps 4", "--dp_samples_list 8 --micro_batch_size 2"},
        {"--ranks 2 --dp_samples_list 6,2 --micro_batch_size 3",
         "--ranks 2 --dp_samples_list 6,2 --dp_batch_size_list 3,2"}};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            char name[20];
            snprintf(name, sizeof name, "same%d%d", i, k);
            CHECK(train(name, "--max_steps %d --rebalance off --learning_rate 0.5 %s", STEPS, same[i][k]) == 0,
                  "%s: %s", same[i][k], said.log);
            if (!k) expect_this();
        }
        for (int s = 1; s <= STEPS; s++)
            CHECK(ran.loss[s] == expected_loss[s] && ran.grad_norm[s] == expected_norm[s],
                  "%s, step %d: %.17g, not %.17g", same[i][1], s, ran.loss[s], expected_loss[s]);
    }
}

static void check_bits(const char *what, int first, int last)
{
    for (int s = first; s <= last; s++)
        CHECK(ran.loss[s] == expected_loss[s] && ran.grad_norm[s] == expected_norm[s], "%s, step %d: %.17g, not %.17g",
              what, s, ran.loss[s], expected_loss[s]);
}

TEST(a_resumed_run_goes_on_bit_for_bit_and_with_the_right_samples_on_other_ranks)
{
#define LIST "--ranks 2 --dp_samples_list 5,3 --micro_batch_size 2 --learning_rate 0.5 --lr_scheduler_type constant "
    static const struct {
        const char *name, *flags;
        int same_bits;
    } ways[] = {
        {"again", "--ranks 2 --rebalance off", 1},
        {"alone", "--ranks 1", 0},
        {"alone_small", "--ranks 1 --micro_batch_size 3 --dp_samples_list 8", 0},
        {"four", "--ranks 4", 0},
        {"other_list", "--ranks 2 --dp_samples_list 2,6 --rebalance off", 0},
        {"no_list", "--ranks 2 --gradient_accumulation_steps 2 --micro_batch_size 2", 0},
        {"stages", "--ranks 2 --pp 2", 0},
    };
    if (!CHECK(train("whole", LIST "--rebalance off --max_steps 6") == 0, "%s", said.log)) return;
    expect_this();
    if (!CHECK(train("half", LIST "--rebalance off --max_steps 3") == 0, "%s", said.log)) return;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *state_text;
        if (!CHECK(train(ways[i].name, "--resume %s --max_steps 6 %s", path_of("half/checkpoint-3"), ways[i].flags) ==
                       0,
                   "%s: %s", ways[i].flags, said.log))
            continue;
        if (ways[i].same_bits) check_bits(ways[i].flags, 4, 6);
        check_series(ways[i].flags, 4, 6);
        char state_path[500];
        snprintf(state_path, sizeof state_path, "%s/checkpoint-6/trainer_state.json", path_of(ways[i].name));
        state_text = read_file(state_path);
        CHECK(strstr(state_text, "\"samples_seen\": 48"), "%s: %s", ways[i].flags, state_text);
        CHECK(!strstr(state_text, "dp_samples") == !strstr(ways[i].flags, "off") || strstr(ways[i].flags, "list"),
              "%s: %s", ways[i].flags, state_text);
        free(state_text);
    }
}

// ---- samples that move ---------------------------------------------------------------------------------------------

static void clock_of(double a, double b, double a_later, double b_later, int64_t changes)
{
    ran.cost[0][0] = a, ran.cost[0][1] = b, ran.cost[1][0] = a_later, ran.cost[1][1] = b_later;
    ran.changes = changes;
}

static int has_moved(int step, int64_t a, int64_t b) { return ran.samples[step][0] == a && ran.samples[step][1] == b; }

#define MOVES "--dp_samples_list 4,4 --learning_rate 0.3 --lr_scheduler_type constant --max_steps 16 "

static int expect_serial(const char *name, int steps)
{
    clock_of(0, 0, 0, 0, 0);
    const int status =
        train(name, "--micro_batch_size 8 --learning_rate 0.3 --lr_scheduler_type constant --max_steps %d", steps);
    expect_this();
    return CHECK(status == 0, "%s", said.log);
}

// By a clock of the test's own: copy 1 takes three times as long from the beginning, and copy 0 from step 9 on. The
// first window does not count; behind four more it is foreseen, and behind the third that foresees it samples move.
TEST(samples_move_to_the_copy_that_is_faster_and_back_and_the_losses_stay_serials)
{
    static const char *const ways[] = {"--ranks 2 --micro_batch_size 1",
                                       "--ranks 2 --micro_batch_size 3",
                                       "--ranks 4 --pp 2 --micro_batch_size 1",
                                       "--ranks 4 --pp 2 --pipeline_schedule zb1p --micro_batch_size 1",
                                       "--ranks 4 --pp 2 --pipeline_schedule zbv --micro_batch_size 1",
                                       "--ranks 4 --mode tp --tp 2 --micro_batch_size 2",
                                       "--ranks 2 --zero 2 --micro_batch_size 2 --reduce_bucket 0"};
    if (!expect_serial("moves_serial", 16)) return;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char name[40];
        snprintf(name, sizeof name, "moves%d", (int)i);
        clock_of(0.1, 0.3, 0.3, 0.1, 9);
        CHECK(train(name, MOVES "%s", ways[i]) == 0, "%s: %s", ways[i], said.log);
        clock_of(0, 0, 0, 0, 0);
        check_series(ways[i], 1, 16);
        CHECK(has_moved(6, 4, 4) && has_moved(7, 6, 2) && has_moved(9, 6, 2) && has_moved(16, 2, 6),
              "%s: %ld,%ld behind step 6, %ld,%ld behind 7, %ld,%ld behind 16", ways[i], (long)ran.samples[6][0],
              (long)ran.samples[6][1], (long)ran.samples[7][0], (long)ran.samples[7][1], (long)ran.samples[16][0],
              (long)ran.samples[16][1]);
        CHECK(strstr(said.out, "step 7: a sample takes copy 1 3 times as long as copy 0: samples 4,4 -> 6,2\n"), "%s",
              said.out);
        CHECK(strstr(said.out, "times as slow as before: samples 6,2 -> "), "%s", said.out);
        CHECK(strstr(said.out, "to be rebalanced: 0.00 MB for data that may move here"), "%s", said.out);
        CHECK(ran.peak <= ran.planned && ran.peak > 0, "%s: %ld of %ld planned bytes", ways[i], (long)ran.peak,
              (long)ran.planned);
        CHECK(file_has(path_of(strcat(name, "/log.jsonl")),
                       "{\"step\": 7, \"dp_samples\": [6, 2], \"seconds_per_sample\": [0.1, 0.3]}"),
              "no line in the log");
    }
}

// A longer window keeps more micro-batches at once, up to what its order needs.
TEST(a_copy_that_begins_with_one_micro_batch_has_room_for_more)
{
    static const char *const orders[] = {"1f1b", "zb1p", "zbv"};
    for (int i = 0; i < 3; i++) {
        char name[20];
        snprintf(name, sizeof name, "grows%d", i);
        clock_of(0.1, 0.1, 0.1, 0.1, 0);
        CHECK(train(name,
                    "--dp_samples_list 1,7 --ranks 4 --pp 2 --pipeline_schedule %s --micro_batch_size 1 --max_steps 10",
                    orders[i]) == 0,
              "%s: %s", orders[i], said.log);
        clock_of(0, 0, 0, 0, 0);
        CHECK(has_moved(10, 4, 4), "%s: %ld,%ld", orders[i], (long)ran.samples[10][0], (long)ran.samples[10][1]);
    }
}

// An order that keeps all micro-batches at once has room for those that it begins with.
TEST(what_has_no_room_does_not_move)
{
    clock_of(0.1, 0.3, 0.3, 0.1, 9);
    CHECK(train("gpipe", MOVES "--ranks 4 --pp 2 --pipeline_schedule gpipe --micro_batch_size 1") == 0, "%s", said.log);
    CHECK(has_moved(16, 4, 4), "%ld,%ld", (long)ran.samples[16][0], (long)ran.samples[16][1]);
    CHECK(train("interleaved", MOVES "--ranks 4 --pp 2 --pipeline_schedule interleaved --micro_batch_size 1") == 0,
          "%s", said.log);
    CHECK(has_moved(16, 4, 4), "%ld,%ld", (long)ran.samples[16][0], (long)ran.samples[16][1]);
    CHECK(train("off", MOVES "--ranks 2 --rebalance off") == 0 && has_moved(16, 4, 4), "%s", said.log);
    CHECK(train("unlisted", "--ranks 2 --max_steps 8 --micro_batch_size 4 --rebalance auto") == 0 &&
              has_moved(8, 4, 4) &&
              strstr(said.log, "--rebalance auto moves samples of --dp_samples_list, which is not given"),
          "%s", said.log);
    clock_of(0, 0, 0, 0, 0);
}

TEST(a_checkpoint_keeps_where_samples_have_moved_to)
{
    clock_of(0.1, 0.3, 0.1, 0.3, 9);
    CHECK(train("kept", MOVES "--ranks 2 --save_steps 8 --save_total_limit 0") == 0, "%s", said.log);
    clock_of(0, 0, 0, 0, 0);
    expect_this();
    CHECK(file_has(path_of("kept/checkpoint-8/trainer_state.json"), "\"dp_samples\"") &&
              file_has(path_of("kept/checkpoint-8/training_args.json"), "\"dp_samples_list\""),
          "nothing is kept");
    CHECK(train("kept_on", "--ranks 2 --resume %s --rebalance off", path_of("kept/checkpoint-8")) == 0, "%s", said.log);
    check_bits("resumed", 9, 16);
    CHECK(has_moved(9, 6, 2) && has_moved(16, 6, 2), "%ld,%ld", (long)ran.samples[9][0], (long)ran.samples[9][1]);
    CHECK(train("kept_new", "--ranks 2 --resume %s --rebalance off --dp_samples_list 3,5",
                path_of("kept/checkpoint-8")) == 0 &&
              has_moved(9, 3, 5),
          "%s", said.log);
}

// Two ranks on the machine's own clock, of which one is slowed down: samples move away from it, however busy the
// machine is.
TEST(a_slow_rank_gets_fewer_samples)
{
    if (!expect_serial("slow_serial", 32)) return;
    ran.slow = 6;
    CHECK(train("slow", "--ranks 2 --dp_samples_list 4,4 --micro_batch_size 2 --learning_rate 0.3 --lr_scheduler_type "
                        "constant --max_steps 32") == 0,
          "%s", said.log);
    ran.slow = 0;
    CHECK(ran.samples[32][0] > 4 && ran.samples[32][0] + ran.samples[32][1] == 8, "%ld,%ld", (long)ran.samples[32][0],
          (long)ran.samples[32][1]);
    check_series("slow", 1, 32);
}

// Of two stages the last one is slow, and the first one waits for it most of the time.
TEST(what_a_rank_waits_for_is_not_its_work)
{
    ran.slow = 6;
    CHECK(train("waits", "--ranks 2 --pp 2 --micro_batch_size 2 --gradient_accumulation_steps 4 --max_steps 8") == 0,
          "%s", said.log);
    ran.slow = 0;
    CHECK(ran.worked[0] > 0 && ran.worked[0] < ran.worked[1] / 2, "%g and %g s", ran.worked[0], ran.worked[1]);
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(what_needs_equal_numbers_of_micro_batches_is_refused_by_name)
{
    static const struct {
        const char *flags, *words[3];
    } bad[] = {
        {"--ranks 2 --dp_samples_list 5,3 --zero 3", {"--dp_samples_list", "--zero 3", "--zero 2"}},
        {"--ranks 2 --dp_samples_list 5,3 --micro_batch_size 1 --zero 2 --shard_grads_in_window true",
         {"--dp_samples_list", "--shard_grads_in_window", "leave out"}},
        {"--ranks 2 --dp_samples_list 5,3 --gradient_accumulation_steps 2",
         {"gradient_accumulation_steps and dp_samples_list are both given", "", ""}},
        {"--ranks 2 --dp_samples_list 5,3 --gradient_accumulation_steps 1", {"are both given", "", ""}},
        {"--ranks 2 --dp_samples_list 5,3,1", {"dp_samples_list has 3 entries for 2 copies", "--pp x --tp", ""}},
        {"--ranks 4 --mode tp --tp 2 --dp_samples_list 5,3,1,1", {"4 entries for 2 copies", "2 ranks each", ""}},
        {"--ranks 2 --dp_samples_list 5,3 --global_batch_size 9", {"9 is not the sum of dp_samples_list, 8", "", ""}},
        {"--ranks 2 --dp_samples_list 5,0", {"dp_samples_list is \"5,0\"", "", ""}},
        {"--ranks 2 --dp_samples_list 100000,1 --micro_batch_size 2", {"50000 micro-batches of 2", "32767", ""}},
        {"--ranks 2 --rebalance sometimes --dp_samples_list 5,3", {"rebalance", "auto|off", ""}},
        {"--ranks 4 --pp 2 --pipeline_schedule interleaved --dp_samples_list 5,3 --micro_batch_size 1",
         {"multiple of the number of ranks", "", ""}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(train("bad", "--max_steps 1 %s", bad[i].flags) == 1, "%s is not refused", bad[i].flags);
        for (int k = 0; k < 3; k++) CHECK(strstr(said.log, bad[i].words[k]), "%s: %s", bad[i].flags, said.log);
    }
    if (!CHECK(train("for_side", "--max_steps 1") == 0, "%s", said.log)) return;
    CHECK(train("bad",
                "--max_steps 1 --model %s --tuning side_only --side_reduction_factor 4 --ranks 2 --dp_samples_list 5,3",
                path_of("for_side/checkpoint-1")) == 1 &&
              strstr(said.log, "--tuning side_only") && strstr(said.log, "--dp_samples_list"),
          "%s", said.log);
}

static void prepare(void)
{
    static const char *const words[] = {"river", "mountain", "gold", "silver", "the", "king", "and", "people"};
    char *text = (char *)malloc(40000), *at = text;
    unsigned x = 1;
    for (int i = 0; i < 4000; i++) {
        x = x * 1664525u + 1013904223u;
        at += sprintf(at, "%s%s", words[x >> 29], i % 9 == 8 ? ".\n" : " ");
    }
    write_file("text.txt", text);
    free(text);
}

int main(int argc, char **argv) { return run_tests(argc, argv, prepare); }
