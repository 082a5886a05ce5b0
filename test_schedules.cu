// test_schedules.cu: schedules that are spelled out (GX_SCHEDULES: train_pp.cu, train_fsdp.cu): do they write what
// generators make, is a mistake in one refused by name, and do programs that run one leave behind what train_llama
// does?
#include "test/program.h"
#include "galaxy.h"

enum { RANKS = 5, MICRO_BATCHES = 12, UNITS = 40, DRAWS = TEST_IS_SANITIZED ? 4 : 12 };

#define SOURCE(name) &gx_##name,
static const GxStepsSchedule *const schedules[] = {GX_SCHEDULES(SOURCE)};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

// ---- many pipelines ------------------------------------------------------------------------------------------------

static uint64_t random_state = 1;
static int random_below(int n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)(random_state >> 33) % n;
}

typedef enum { ALL_TRAINED = 0, LOW_UNITS_FROZEN, SOME_FROZEN, SIDE_NETWORK, WHATS } What;

typedef struct {
    GxStepsSpec spec;
    int16_t stage[RANKS + 1];
    uint8_t frozen[UNITS], bypassed[UNITS];
} Pipeline;

// Stages of 1 to 3 layers; beside a side network layers are two units each, of which gradients pass one by.
static void cut(Pipeline *p, int ranks, What what)
{
    const int of_layer = what == SIDE_NETWORK ? 2 : 1;
    int units = of_layer; // the embedding, and Down beside it
    for (int s = 1; s <= ranks; s++) {
        units += of_layer * (1 + random_below(3));
        p->stage[s] = (int16_t)(units + (s == ranks));
    }
    p->spec.units = units + 1, p->spec.ranks = ranks, p->spec.stage = p->stage;
}

static void freeze(Pipeline *p, What what)
{
    const int head = p->spec.units - 1, lowest = random_below(p->spec.units);
    if (what == ALL_TRAINED) return;
    for (int u = 0; u <= head; u++) {
        p->bypassed[u] = what == SIDE_NETWORK && u % 2 == 0 && u < head;
        p->frozen[u] = what == SIDE_NETWORK       ? p->bypassed[u]
                       : what == LOW_UNITS_FROZEN ? u < lowest
                                                  : u != lowest && random_below(3) == 0;
    }
    p->spec.frozen = p->frozen;
    if (what == SIDE_NETWORK) p->spec.bypassed = p->bypassed;
}

static void at_random(Pipeline *p, int ranks, int micro_batches, What what)
{
    memset(p, 0, sizeof *p);
    cut(p, ranks, what);
    freeze(p, what);
    p->spec.micro_batches = micro_batches;
    p->spec.recomputes_layers = random_below(2), p->spec.has_lora = random_below(2);
    if (what != SIDE_NETWORK && p->spec.units > 4 && random_below(2))
        p->spec.memory = 1 + random_below(p->spec.units - 4);
    for (int r = 0; r < ranks;
         r++) // an embedding alone: the memory passes by its stage, and schedules do not know when
        if (p->stage[r] == p->spec.memory + 1 && p->stage[r + 1] == p->spec.memory + 2) p->spec.memory = 0;
    p->spec.is_tied = random_below(2) && (ranks == 1 || p->frozen[0] == p->frozen[p->spec.units - 1]) &&
                      (!p->spec.memory || p->frozen[0] == p->frozen[p->spec.memory + 1]);
    p->spec.count_axes = p->spec.agree_axes = 31, p->spec.reduce_axes = random_below(2) ? 6 : 0;
    p->spec.bucket = random_below(4), p->spec.starts_sums = random_below(2);
}

// Ranks that share everything, of one stage: one unit is whole at once, or more.
static void shard(Pipeline *p)
{
    p->spec.sharded = GX_SHARDS_WEIGHTS, p->spec.shard_axes = 8, p->spec.starts_sums = 0;
    p->spec.reduce_axes = random_below(2) ? 4 : 0;
    p->spec.scatters_each = random_below(2), p->spec.embedding_reads = random_below(2);
    p->spec.gathered = 1 + p->spec.is_tied + (random_below(2) ? random_below(p->spec.units) : 0);
}

// 1 to 3 units to a stage, wherever layers begin: there are stages that gradients pass by.
static void cut_anywhere(Pipeline *p)
{
    for (int s = 1; s < p->spec.ranks; s++) {
        const int room = p->spec.units - (p->spec.ranks - s) - p->stage[s - 1];
        p->stage[s] = (int16_t)(p->stage[s - 1] + 1 + random_below((int)gx_min(room, 3)));
    }
}

static const char *text_of(const GxSteps *s)
{
    static char text[2][1 << 16];
    static int turn;
    turn = !turn;
    gx_steps_print(s, text[turn], sizeof text[turn]);
    return text[turn];
}

static int is_same(const GxSteps *a, const GxSteps *b)
{
    return a->n == b->n && !memcmp(a->action, b->action, (size_t)a->n * sizeof *a->action);
}

// What rank p->spec.rank's schedule writes, and what the generators make.
static int open_both(const Pipeline *p, const GxStepsSchedule *schedule, GxSteps *written, GxSteps *made)
{
    GxStepsSpec spec = p->spec;
    GxError err = GX_ZERO;
    spec.order = schedule->order;
    const int is_made = CHECK(gx_steps_make(made, &spec, &err) == GX_OK, "%s", err.message);
    return CHECK(gx_steps_write(written, schedule, &spec, &err) == GX_OK, "%s", err.message) && is_made;
}

// ---- what is written -----------------------------------------------------------------------------------------------

static void check_same(Pipeline *p, const GxStepsSchedule *schedule)
{
    for (p->spec.rank = 0; p->spec.rank < p->spec.ranks; p->spec.rank++) {
        GxSteps written, made;
        if (open_both(p, schedule, &written, &made))
            CHECK(is_same(&written, &made), "%s, rank %d of %d: written\n%s, made\n%s", schedule->name, p->spec.rank,
                  p->spec.ranks, text_of(&written), text_of(&made));
        gx_steps_close(&written), gx_steps_close(&made);
    }
}

TEST(what_is_spelled_out_is_what_is_generated)
{
    int n = 0;
    for (int k = 0; k < SCHEDULES * WHATS * DRAWS; k++)
        for (int ranks = 1; ranks <= RANKS; ranks++)
            for (int m = 1; m <= MICRO_BATCHES; m++, n++) {
                Pipeline p;
                const GxStepsSchedule *schedule = schedules[k / (WHATS * DRAWS)];
                at_random(&p, schedule->has_shards ? 1 : ranks, m, (What)(k % WHATS));
                if (schedule->has_shards) shard(&p);
                check_same(&p, schedule);
            }
    printf("    %d pipelines\n", n);
}

TEST(on_one_rank_a_schedule_is_the_serial_step)
{
    GxSteps s;
    GxError err = GX_ZERO;
    GxStepsSpec spec = GX_ZERO;
    spec.units = 4, spec.micro_batches = 1;
    for (int k = 0; k < SCHEDULES; k++) {
        CHECK(gx_steps_write(&s, schedules[k], &spec, &err) == GX_OK, "%s", err.message);
        CHECK(!strcmp(text_of(&s), "COUNT F0 F1 F2 B3 B2 B1 B0 NORM0-3 AGREE STEP0-3"), "%s: %s", schedules[k]->name,
              text_of(&s));
        gx_steps_close(&s);
    }
}

// A head that has the embedding's matrix reads unit 0, which is whole until then.
TEST(a_rank_that_shares_everything_has_one_unit_whole)
{
    static const struct {
        int is_tied, micro_batches;
        const char *list;
    } cases[] = {
        {0, 1,
         "COUNT GATHER0 F0 FREE0 GATHER1 F1 FREE1 GATHER2 B2 FREE2 SCATTER2 GATHER1 B1 FREE1 SCATTER1 B0 SCATTER0 "
         "NORM0-2 AGREE STEP0-2"},
        {0, 2,
         "COUNT GATHER0 F0.0 FREE0 GATHER1 F1.0 FREE1 GATHER2 B2.0 FREE2 GATHER1 B1.0 FREE1 B0.0 GATHER0 F0.1 FREE0 "
         "GATHER1 F1.1 FREE1 GATHER2 B2.1 FREE2 SCATTER2 GATHER1 B1.1 FREE1 SCATTER1 B0.1 SCATTER0 NORM0-2 AGREE "
         "STEP0-2"},
        {1, 1,
         "COUNT GATHER0 F0 GATHER1 F1 FREE1 GATHER2 B2 FREE0 FREE2 SCATTER2 GATHER1 B1 FREE1 SCATTER1 B0 SCATTER0 "
         "NORM0-2 AGREE STEP0-2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxSteps s;
        GxStepsSpec spec = GX_ZERO;
        GxError err = GX_ZERO;
        spec.units = 3, spec.micro_batches = cases[i].micro_batches, spec.is_tied = cases[i].is_tied;
        spec.sharded = GX_SHARDS_WEIGHTS, spec.shard_axes = 8, spec.gathered = 1 + spec.is_tied;
        CHECK(gx_steps_write(&s, &gx_fsdp, &spec, &err) == GX_OK, "%s", err.message);
        CHECK(!strcmp(text_of(&s), cases[i].list), "found\n%s, expected\n%s", text_of(&s), cases[i].list);
        gx_steps_close(&s);
    }
}

static int computations(const GxSteps *s, GxAction *to)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->action[i].what != GX_DO_SEND && s->action[i].what != GX_DO_RECV) to[n++] = s->action[i];
    return n;
}

// A gradient that passes a stage by is there early. The generators receive it then, a schedule where it is used: the
// same computations in the same order, and nobody waits in a circle.
TEST(stages_that_gradients_pass_by_change_the_places_of_messages_only)
{
    int differ = 0;
    for (int k = 0; k < SCHEDULES * DRAWS * MICRO_BATCHES; k++) {
        Pipeline p;
        GxSteps written[RANKS], made;
        GxError err = GX_ZERO;
        const GxStepsSchedule *schedule = schedules[k / (DRAWS * MICRO_BATCHES)];
        if (schedule->has_shards) continue; // it has one stage
        at_random(&p, RANKS, 1 + k % MICRO_BATCHES, SIDE_NETWORK);
        cut_anywhere(&p);
        for (p.spec.rank = 0; p.spec.rank < RANKS; p.spec.rank++) {
            GxSteps *s = &written[p.spec.rank];
            if (!open_both(&p, schedule, s, &made)) return;
            GxAction *a = (GxAction *)malloc((size_t)(s->n + made.n) * sizeof *a), *b = a + s->n;
            const int n = computations(s, a), n_made = computations(&made, b);
            CHECK(n == n_made && s->n == made.n && !memcmp(a, b, (size_t)n * sizeof *a), "written\n%s, made\n%s",
                  text_of(s), text_of(&made));
            differ += !is_same(s, &made);
            free(a);
            gx_steps_close(&made);
        }
        CHECK(gx_steps_check_ranks(written, RANKS, &err) == GX_OK, "%s", err.message);
        for (int r = 0; r < RANKS; r++) gx_steps_close(&written[r]);
    }
    CHECK(differ > 0, "no stage was passed by");
}

// ---- mistakes ------------------------------------------------------------------------------------------------------

static void forward(GxStepsWriter *w, int b)
{
    for (int u = w->first; u < w->last; u++) gx_put_forward(w, u, b);
}

static void backward(GxStepsWriter *w, int b)
{
    for (int u = w->last - 1; u >= w->first; u--) gx_put_backward(w, u, b);
}

// All forwards, then all backwards, with mistakes.
typedef struct {
    int no_send, late_receive, late_gradient, no_backward, early_gradient, wrong_turn, wrong_unit;
} Mistakes;
static Mistakes mistakes;

static void mistaken_window(GxStepsWriter *w)
{
    const Mistakes *is = &mistakes;
    const int m = w->micro_batches;
    if (is->early_gradient && w->stage == 0) gx_put_receive(w, GX_OBJECT_DX, 0);
    for (int i = 0; i < m; i++) {
        const int b = is->wrong_turn && w->stage == 0 ? m - 1 - i : i;
        if (!is->late_receive) gx_put_receive(w, GX_OBJECT_X, b);
        forward(w, b);
        if (is->wrong_unit) gx_put_forward(w, w->spec->units, b), gx_put_backward(w, -1, b);
        if (is->late_receive) gx_put_receive(w, GX_OBJECT_X, b);
        if (!is->no_send || b > 0) gx_put_send(w, GX_OBJECT_X, b);
    }
    for (int b = 0; b < m; b++) {
        if (!is->late_gradient && !(is->early_gradient && b == 0)) gx_put_receive(w, GX_OBJECT_DX, b);
        if (!is->no_backward || b > 0) backward(w, b);
        if (is->late_gradient) gx_put_receive(w, GX_OBJECT_DX, b);
        gx_put_send(w, GX_OBJECT_DX, b);
    }
}

static const GxStepsSchedule mistaken = {.name = "mistaken", .order = GX_ORDER_GPIPE, .window = mistaken_window};

// The lists of two ranks, one layer each, two micro-batches. What is said first.
static void write_mistaken(const GxStepsSpec *of, GxError *err)
{
    static const int16_t stage[3] = {0, 2, 4};
    GxSteps s[2];
    GxStepsSpec spec = *of;
    memset(s, 0, sizeof s);
    spec.units = 4, spec.ranks = 2, spec.stage = stage, spec.micro_batches = 2;
    GxStatus status = GX_OK;
    for (spec.rank = 0; spec.rank < 2 && status == GX_OK; spec.rank++)
        status = gx_steps_write(&s[spec.rank], &mistaken, &spec, err);
    if (status == GX_OK) gx_steps_check_ranks(s, 2, err);
    for (int r = 0; r < 2; r++) gx_steps_close(&s[r]);
}

TEST(a_mistake_in_a_schedule_is_refused_by_name)
{
    static const struct {
        Mistakes is;
        const char *says;
    } cases[] = {
        {{.no_send = 0}, ""},
        {{.no_send = 1},
         "schedule mistaken, rank 0: the end of the list: nothing has ended x of unit 2, micro-batch 0, which action 2 "
         "(F1 of micro-batch 0) made"},
        {{.late_receive = 1},
         "schedule mistaken, rank 1: action 1 (F2 of micro-batch 0): it needs x of unit 2, micro-batch 0: RECV:x:2 "
         "must come before"},
        {{.late_gradient = 1},
         "schedule mistaken, rank 0: action 7 (B1 of micro-batch 0): it needs dx of unit 2, micro-batch 0: RECV:dx:2 "
         "must come before"},
        {{.no_backward = 1},
         "schedule mistaken, rank 0: action 11 (NORM0): the gradients of unit 0 have 1 of 2 contributions: every B0 "
         "(of "
         "a half, its W0) must come before"},
        {{.wrong_unit = 1}, "schedule mistaken, rank 0: it writes a unit outside of 0 to 3"},
        {{.early_gradient = 1},
         "rank 0, at action 1 (RECV:dx:2<1 of micro-batch 0), waits for rank 1, which is at action 1 (RECV:x:2<0 of "
         "micro-batch 0) and does not go on"},
        {{.wrong_turn = 1},
         "messages from rank 0 to rank 1: action 3 (SEND:x:2>1 of micro-batch 1) of the one meets action 1 (RECV:x:2<0 "
         "of micro-batch 0) of the other"},
    };
    const GxStepsSpec none = GX_ZERO;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxError err = GX_ZERO;
        mistakes = cases[i].is;
        write_mistaken(&none, &err);
        CHECK(!strcmp(err.message, cases[i].says), "found\n%s, expected\n%s", err.message, cases[i].says);
    }
    memset(&mistakes, 0, sizeof mistakes);
}

// Of sharded weights, of one stage.
typedef struct {
    int no_gather, early_free, no_free, early_scatter, no_scatter, scatters_once;
} ShardMistakes;
static ShardMistakes shard_mistakes;

static void mistaken_shards(GxStepsWriter *w)
{
    const ShardMistakes *is = &shard_mistakes;
    for (int b = 0; b < w->micro_batches; b++) {
        const int scatters = (b == w->micro_batches - 1 || w->spec->scatters_each) && !(is->scatters_once && b);
        for (int u = w->first; u < w->last; u++) {
            if (!is->no_gather || u != 1) gx_put_gather(w, GX_DO_FORWARD, u);
            if (is->early_free && u == 1) gx_put_free(w, GX_DO_FORWARD, u);
            gx_put_forward(w, u, b);
            if (!is->no_free && !(is->early_free && u == 1)) gx_put_free(w, GX_DO_FORWARD, u);
        }
        for (int u = w->last - 1; u >= w->first; u--) {
            if (scatters && is->early_scatter) gx_put_scatter(w, u);
            gx_put_gather(w, GX_DO_BACKWARD, u);
            gx_put_backward(w, u, b);
            gx_put_free(w, GX_DO_BACKWARD, u);
            if (scatters && !is->early_scatter && !is->no_scatter) gx_put_scatter(w, u);
        }
    }
}

static const GxStepsSchedule mistaken_of_shards = {
    .name = "mistaken", .order = GX_ORDER_1F1B, .window = mistaken_shards, .has_shards = 1};

TEST(a_mistake_in_a_schedule_of_shards_is_refused_by_name)
{
    static const struct {
        ShardMistakes is;
        int each; // scatters_each
        const char *says;
    } cases[] = {
        {{.no_gather = 0}, 0, ""},
        {{.no_gather = 0}, 1, ""},
        {{.no_gather = 1},
         0,
         "action 4 (F1 of micro-batch 0): it needs the whole weights of unit 1: GATHER1 must come before"},
        {{.early_free = 1},
         0,
         "action 6 (F1 of micro-batch 0): it needs the whole weights of unit 1, which action 5 (FREE1) has ended"},
        {{.no_free = 1},
         0,
         "action 10 (GATHER2): it makes the whole weights of unit 2, which action 5 (GATHER2) has made already"},
        {{.early_scatter = 1},
         0,
         "action 29 (SCATTER3): the gradients of unit 3 have 1 of 2 contributions: every B3 (of a half, its W3) must "
         "come before"},
        {{.early_scatter = 1}, 1, "action 10 (SCATTER3): it needs the gradients of unit 3: B3 or W3 must come before"},
        {{.no_scatter = 1},
         0,
         "action 39 (NORM0): it needs the shard of unit 0's gradients: SCATTER0 must come before"},
        {{.scatters_once = 1},
         1,
         "action 43 (NORM0): the shard of unit 0's gradients has 1 of 2 contributions: SCATTER0 must come after the "
         "last"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxSteps s;
        GxStepsSpec spec = GX_ZERO;
        GxError err = GX_ZERO;
        char says[400] = "";
        spec.units = 4, spec.micro_batches = 2;
        spec.sharded = GX_SHARDS_WEIGHTS, spec.shard_axes = 8, spec.gathered = 1, spec.scatters_each = cases[i].each;
        shard_mistakes = cases[i].is;
        gx_steps_write(&s, &mistaken_of_shards, &spec, &err);
        if (cases[i].says[0]) snprintf(says, sizeof says, "schedule mistaken, rank 0: %s", cases[i].says);
        CHECK(!strcmp(err.message, says), "found\n%s, expected\n%s", err.message, says);
        gx_steps_close(&s);
    }
    memset(&shard_mistakes, 0, sizeof shard_mistakes);
}

TEST(a_schedule_of_shards_shards_everything)
{
    static const char *const says[4] = {
        "", "schedule fsdp shards weights, gradients and the optimizer's state (3), and sharded is 1",
        "schedule fsdp shards weights, gradients and the optimizer's state (3), and sharded is 2", ""};
    for (int sharded = 0; sharded < 4; sharded++) {
        GxSteps s;
        GxStepsSpec spec = GX_ZERO;
        GxError err = GX_ZERO;
        spec.units = 4, spec.micro_batches = 2, spec.sharded = sharded, spec.shard_axes = 8, spec.gathered = 1;
        gx_steps_write(&s, &gx_fsdp, &spec, &err);
        CHECK(!strcmp(err.message, says[sharded]), "%s", err.message);
        gx_steps_close(&s);
    }
}

TEST(what_a_schedule_cannot_be_is_refused)
{
    static const struct {
        int kind, order, defers, warm;
        const char *says;
    } cases[] = {
        {GX_STEPS_FORWARD, GX_ORDER_1F1B, 0, 0,
         "schedule mistaken writes lists that train, with one stage on each rank"},
        {GX_STEPS_TRAIN, GX_ORDER_1F1B, 0, 2,
         "schedule mistaken writes its own number of forwards ahead, and rank 0 asks for 2 more (warm)"},
        {GX_STEPS_TRAIN, GX_ORDER_1F1B, 1, 0,
         "schedule mistaken, rank 0: action 14 (NORM1): the gradients of unit 1 have 0 of 2 contributions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxStepsSpec spec = GX_ZERO;
        GxError err = GX_ZERO;
        const int16_t warm[2] = {(int16_t)cases[i].warm, 0};
        spec.kind = cases[i].kind, spec.order = cases[i].order, spec.defers_weights = cases[i].defers;
        spec.warm = warm;
        write_mistaken(&spec, &err);
        CHECK(strstr(err.message, cases[i].says), "found\n%s, expected\n%s", err.message, cases[i].says);
    }
}

// ---- programs ------------------------------------------------------------------------------------------------------

static char heard[2000];
static void hear(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    snprintf(heard, sizeof heard, "%s", text);
}

// A program's exit status, and what its logger heard last, where it runs the schedule with mistakes.
static int train_by_mistaken(void)
{
    static char *argv[] = {(char *)"train",
                           (char *)"--train_data",
                           (char *)"text.txt",
                           (char *)"--output_dir",
                           (char *)"mistaken",
                           (char *)"--gradient_accumulation_steps",
                           (char *)"2",
                           (char *)"--dry_run",
                           (char *)"--hidden_size",
                           (char *)"24",
                           (char *)"--seq_len",
                           (char *)"8"};
    const GxReporter nobody = GX_ZERO;
    GxContext g = GX_ZERO;
    g.device = gx_device_cpu(), g.world = 1, g.log.write = hear, g.reporter = &nobody;
    heard[0] = 0;
    return gx_train_by(&g, &gx_llama, &gx_causal_lm, NULL, &mistaken, sizeof argv / sizeof *argv, argv);
}

TEST(a_program_refuses_to_run_a_schedule_with_a_mistake)
{
    int status = train_by_mistaken();
    CHECK(status == 0 && !heard[0], "%d: %s", status, heard);
    mistakes.no_backward = 1;
    status = train_by_mistaken();
    CHECK(status == 1 && strstr(heard, "schedule mistaken, rank 0: ") && strstr(heard, "1 of 2 contributions"),
          "%d: %s", status, heard);
    mistakes.no_backward = 0;
}

#define WINDOW "--max_steps 3 --gradient_accumulation_steps 3 --micro_batch_size 2 --num_hidden_layers 3 "

static void check_same_run(const char *one, const char *other)
{
    char a[200], b[200];
    const Log x = read_log(one), y = read_log(other);
    snprintf(a, sizeof a, "%s/checkpoint-3", one), snprintf(b, sizeof b, "%s/checkpoint-3", other);
    CHECK(x.steps == 3 && y.steps == 3 && x.evals == y.evals && x.bits == y.bits, "%d and %d steps, %.9g and %.9g bits",
          x.steps, y.steps, x.bits, y.bits);
    for (int s = 0; s < x.steps && s < y.steps; s++)
        CHECK(x.loss[s] == y.loss[s] && x.grad_norm[s] == y.grad_norm[s], "step %d has loss %.9g and %.9g", s + 1,
              x.loss[s], y.loss[s]);
    check_same_checkpoint(a, b);
}

// Without --pp all ranks of train_llama_pp are stages, or all that --tp leaves; without --dp_shard all of
// train_llama_fsdp share.
TEST(a_program_that_runs_a_schedule_leaves_behind_what_train_llama_does)
{
#define ONE_WHOLE " --zero 3 --gathered_units 1 "
    static const struct {
        const char *program, *name, *generated, *written, *says;
    } ways[] = {
        {"train_llama_pp", "stages", "--ranks 2 --pp 2", "--ranks 2", "mode pp 2 (1f1b, layers 2,1)"},
        {"train_llama_fsdp", "shards", "--ranks 2" ONE_WHOLE, "--ranks 2", "mode dp_shard 2 (zero 3)"},
        {"train_llama_pp", "tp", "--ranks 4 --pp 2 --mode tp --tp 2 --recompute layer",
         "--ranks 4 --mode tp --tp 2 --recompute layer", "mode pp 2 (1f1b, layers 2,1) x tp 2"},
        {"train_llama_pp", "copies", "--ranks 4 --pp 2", "--ranks 4 --pp 2", "mode pp 2 (1f1b, layers 2,1) x dp"},
        {"train_llama_fsdp", "shards_tp", "--ranks 4 --mode tp --tp 2 --recompute layer" ONE_WHOLE,
         "--ranks 4 --mode tp --tp 2 --recompute layer", "mode tp 2 x dp_shard 2 (zero 3)"},
        {"train_llama_fsdp", "replicas", "--ranks 4 --dp_replicate 2 --shard_grads_in_window" ONE_WHOLE,
         "--ranks 4 --dp_replicate 2 --shard_grads_in_window", "mode dp_replicate 2 x dp_shard 2 (zero 3)"},
        {"train_llama_fsdp", "tied", "--ranks 2 --tie_word_embeddings true --zero 3 --gathered_units 2",
         "--ranks 2 --tie_word_embeddings true", "mode dp_shard 2 (zero 3)"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (is_brief() && i > 1) continue;
        char generated[100], written[100];
        snprintf(generated, sizeof generated, "made_%s", ways[i].name);
        snprintf(written, sizeof written, "written_%s", ways[i].name);
        if (!use_program("train_llama")) return;
        CHECK_RAN(run("--output_dir %s " WINDOW "%s", generated, ways[i].generated));
        if (!use_program(ways[i].program)) return;
        CHECK_RAN(run("--output_dir %s " WINDOW "%s", written, ways[i].written));
        CHECK(strstr(out(), ways[i].says), "%s", out());
        check_same_run(generated, written);
    }
}

TEST(processes_run_a_schedule)
{
    static const struct {
        const char *program, *says;
    } programs[] = {{"train_llama_pp", "mode pp 3 (1f1b, layers 1,1,1)"},
                    {"train_llama_fsdp", "mode dp_shard 3 (zero 3)"}};
    NEED_MPI();
    for (int i = 0; i < 2; i++) {
        if (!use_program(programs[i].program)) return;
        CHECK_RAN(run_mpi(
            3, "--output_dir mpi --overwrite_output_dir true --max_steps 1 --eval_steps 0 --num_hidden_layers 3"));
        CHECK(strstr(out(), programs[i].says), "%s", out());
    }
}

// Whichever program saved, whichever goes on.
TEST(checkpoints_know_no_schedule)
{
    static const Topology topologies[] = {
        {"from_schedule", "adamw", "train_llama_pp", "--ranks 2", "train_llama", "--ranks 1", 0},
        {"to_schedule", "adamw", "train_llama", "--ranks 2 --pp 2 --pipeline_schedule zb1p", "train_llama_pp",
         "--ranks 2", 0},
        {"from_shards", "adamw", "train_llama_fsdp", "--ranks 3", "train_llama_pp", "--ranks 2", 0},
        {"to_shards", "adamw", "train_llama", "--ranks 2 --pp 2", "train_llama_fsdp", "--ranks 2", 0},
    };
    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++) check_topology(&topologies[i]);
}

TEST(a_schedule_has_its_order)
{
    static const Refusal of_pp[] = {
        {"--ranks 2 --pipeline_schedule gpipe", {"there is no option --pipeline_schedule", "use train_llama"}},
        {"--ranks 4 --pp 3", {"--pp 3 does not divide 4 ranks; use 1, 2 or 4"}},
        {"--ranks 4", {"--pp 4: the model has 2 layers, but each stage needs at least one"}},
        {"--ranks 4 --mode tp --tp 3", {"--tp 3 does not divide 4 ranks; use 1, 2 or 4"}},
    };
    static const Refusal of_fsdp[] = {
        {"--ranks 2 --zero 3", {"there is no option --zero", "use train_llama"}},
        {"--ranks 2 --gathered_units 3", {"there is no option --gathered_units", "use train_llama"}},
        {"--ranks 2 --pp 2", {"there is no option --pp", "use train_llama"}},
        {"--ranks 4 --dp_shard 3", {"--dp_shard 3 does not divide 4 ranks"}},
    };
    if (!use_program("train_llama_pp")) return;
    CHECK_REFUSALS(of_pp);
    if (!use_program("train_llama_fsdp")) return;
    CHECK_REFUSALS(of_fsdp);
}

// Of train_llama, and of the program that is sharded by nature.
TEST(files_of_train_config_for_shards_are_taken)
{
    static const char *const programs[] = {"train_llama", "train_llama_fsdp"}, *const files[] = {"full", "lora"};
    char line[4000];
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir of_config --max_steps 1 --eval_steps 0"));
    for (int i = 0; i < 2; i++) {
        if (!use_program(programs[i])) return;
        snprintf(line, sizeof line,
                 "%s --config %s/train_config/llama/fsdp/%s.json --model of_config/checkpoint-1 --train_data text.txt "
                 "--ranks 2 --threads 1 --max_steps 1 --seq_len 32 --output_dir config_%s",
                 program, repository, files[i], files[i]);
        start_line(line, 0);
        CHECK_RAN(finish());
        CHECK(strstr(out(), "mode dp_shard 2 (zero 3)"), "%s", out());
    }
}

int main(int argc, char **argv) { return program_main(argc, argv); }
