// test_planner.cu: plans as data: assignments, plan.json and its table, the seconds of a stage from what its ranks would
// do. What plans do in programs is in test_train_plan.cu, the search in test_search.cu.
#include "galaxy.h"
#include "test/test.h"
#include <unistd.h>

// ---- assignments ---------------------------------------------------------------------------------------------------

static uint64_t seed = 1;
static int64_t below(int64_t n) // 0 to n - 1
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

// A random one: copies of random stages, of random ranks, some left out.
static GxAssignment random_assignment(int *layers, int64_t *samples)
{
    GxAssignment a;
    memset(&a, 0, sizeof a);
    a.copies = (int)(1 + below(3)), *layers = (int)(4 + below(5)), *samples = 0;
    for (int c = 0; c < a.copies; c++) {
        const int stages = (int)(1 + below(3));
        int left = *layers;
        for (int k = 0; k < stages; k++) {
            GxAssignmentStage *s = &a.stage[a.stages++];
            s->copy = (int16_t)c, s->layers = (int16_t)(k + 1 < stages ? 1 + below(left - (stages - 1 - k)) : left);
            left -= s->layers, s->warm = (int16_t)below(3);
        }
        a.copy[c].samples = 1 + below(20), a.copy[c].micro_batch = 1 + below(4), *samples += a.copy[c].samples;
    }
    for (int s = 0; s < a.stages; s++) a.place[a.ranks++].stage = (int16_t)s;
    for (int more = (int)below(4); more > 0; more--) a.place[a.ranks++].stage = (int16_t)(below(a.stages + 1) - 1);
    for (int r = 0; r < a.ranks; r++)
        if (a.place[r].stage >= 0 && below(2)) a.place[r].heads = 1 + below(8), a.place[r].vocab = 1 + below(99);
    return a;
}

TEST(assignments_that_contradict_themselves_are_refused)
{
    for (int i = 0; i < 500; i++) {
        int layers;
        int64_t samples;
        GxError err = GX_ZERO;
        GxAssignment a = random_assignment(&layers, &samples);
        if (!CHECK(gx_assignment_check(&a, layers, samples, &err) == GX_OK, "case %d: %s", i, err.message)) break;
        const int copy = (int)below(a.copies), stage = (int)below(a.stages);
        const char *what = NULL;
        switch (i % 6) {
        case 0: a.stage[stage].layers++, what = "the model has"; break;
        case 1: a.copy[copy].samples++, what = "a step has"; break;
        case 2: a.copy[copy].micro_batch = 0, what = "at least 1 of both"; break;
        case 3: a.stage[stage].layers = 0, what = "has 0 layers"; break;
        case 4:
            for (int r = 0; r < a.ranks; r++)
                if (a.place[r].stage == stage) a.place[r].stage = -1;
            what = "0 ranks";
            break;
        default: a.place[below(a.ranks)].stage = (int16_t)a.stages, what = "is in stage"; break;
        }
        GxError wrong = GX_ZERO;
        const GxStatus status = gx_assignment_check(&a, layers, samples, &wrong);
        CHECK(status == GX_ERR_ARGUMENT && strstr(wrong.message, what), "case %d wants \"%s\": %s", i, what,
              wrong.message);
    }
}

TEST(exchanged_copies_are_the_same_under_other_numbers)
{
    GxAssignment a;
    memset(&a, 0, sizeof a);
    a.ranks = 5, a.copies = 2, a.stages = 4;
    for (int s = 0; s < 4; s++) a.stage[s].copy = (int16_t)(s / 2), a.stage[s].layers = (int16_t)(s + 1);
    a.place[0].stage = 2, a.place[1].stage = 0, a.place[2].stage = 1, a.place[3].stage = 3, a.place[4].stage = -1;
    a.copy[0].samples = 7, a.copy[1].samples = 9, a.stage[3].warm = 2;
    gx_assignment_swap(&a, 1);
    CHECK(a.place[0].stage == 0 && a.place[1].stage == 2 && a.place[2].stage == 3 && a.place[3].stage == 1 &&
              a.place[4].stage == -1,
          "stages %d %d %d %d %d", a.place[0].stage, a.place[1].stage, a.place[2].stage, a.place[3].stage,
          a.place[4].stage);
    CHECK(a.copy[0].samples == 9 && a.copy[1].samples == 7 && a.stage[0].layers == 3 && a.stage[1].layers == 4 &&
              a.stage[2].layers == 1 && a.stage[1].warm == 2 && a.stage[3].warm == 0 && a.stage[0].copy == 0,
          "samples %ld %ld", (long)a.copy[0].samples, (long)a.copy[1].samples);
}

// ---- plan.json -----------------------------------------------------------------------------------------------------

static char path[64];
static GxSplitPlan plan, again;

static void random_plan(void)
{
    memset(&plan, 0, sizeof plan);
    plan.a = random_assignment(&plan.layers, &plan.samples);
    snprintf(plan.mode, sizeof plan.mode, "%s", below(2) ? "tp" : "galaxy2");
    plan.seconds = below(2) ? 0.125 * (double)(1 + below(100)) : 0;
    for (int r = 0; r < plan.a.ranks; r++) snprintf(plan.rank[r].machine, GX_PLAN_NAME, "m%d", (int)(r * 7 % 50));
}

static int is_same_place(const GxAssignmentPlace *x, const GxAssignmentPlace *y)
{
    return x->stage == y->stage && x->heads == y->heads && x->columns == y->columns && x->vocab == y->vocab &&
           x->rows == y->rows;
}

TEST(a_plan_is_read_as_it_was_written)
{
    for (int i = 0; i < 200; i++) {
        GxError err = GX_ZERO;
        random_plan();
        gx_split_plan_write(&plan, path, &err);
        gx_split_plan_read(&again, path, &err);
        if (!CHECK(!gx_error_code(&err), "case %d: %s", i, err.message)) break;
        const GxAssignment *a = &plan.a, *b = &again.a;
        int same = a->ranks == b->ranks && a->copies == b->copies && a->stages == b->stages &&
                   plan.layers == again.layers && plan.samples == again.samples && !strcmp(plan.mode, again.mode) &&
                   plan.seconds == again.seconds;
        for (int r = 0; r < a->ranks; r++)
            same &= is_same_place(&a->place[r], &b->place[r]) && !strcmp(plan.rank[r].machine, again.rank[r].machine);
        for (int s = 0; s < a->stages; s++) same &= !memcmp(&a->stage[s], &b->stage[s], sizeof a->stage[s]);
        for (int c = 0; c < a->copies; c++)
            same &= a->copy[c].samples == b->copy[c].samples && a->copy[c].micro_batch == b->copy[c].micro_batch;
        CHECK(same, "case %d: another plan was read", i);
    }
}

// A plan of two copies, with one piece of text replaced by another.
static const char good_plan[] =
    "{\"format\": \"galaxy plan\", \"version\": 1, \"layers\": 3, \"samples\": 9, \"mode\": \"tp\", \"copies\": ["
    "{\"samples\": 5, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"warm\": 1, \"ranks\": [{\"machine\": "
    "\"desk\", "
    "\"rank\": 0, \"heads\": 4}]}, {\"layers\": 1, \"ranks\": [{\"machine\": \"old\", \"rank\": 2}]}]}, "
    "{\"samples\": 4, \"micro_batch\": 1, \"stages\": [{\"layers\": 3, \"ranks\": [{\"machine\": \"laptop\", \"rank\": "
    "1}]}]}], \"left_out\": [{\"machine\": \"attic\", \"rank\": 3}]}";

static void write_text(const char *text, int64_t n)
{
    GxError err = GX_ZERO;
    CHECK(gx_file_write(path, text, n, &err) == GX_OK, "%s", err.message);
}

static void write_replaced(const char *from, const char *to)
{
    char text[sizeof good_plan + 200];
    const char *at = strstr(good_plan, from);
    if (!CHECK(at != NULL, "the plan has no %s", from)) return;
    const int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good_plan), good_plan, to, at + strlen(from));
    write_text(text, n);
}

TEST(plans_that_are_wrong_are_refused_by_name)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"galaxy plan", "galaxy planet", "expected \"galaxy plan\""},
        {"\"version\": 1", "\"version\": 2", "version is 2"},
        {"\"layers\": 3, \"samples\"", "\"samples\"", "layers"},
        {"\"mode\": \"tp\"", "\"mood\": \"tp\"", "has \"mood\"; it may have format, version"},
        {"\"layers\": 2", "\"layers\": 0", "layers is 0; expected 1"},
        {"\"layers\": 2", "\"layers\": \"two\"", "layers"},
        {"\"layers\": 2", "\"layers\": 1", "the stages of copy 0 have 2 layers together; the model has 3"},
        {"\"samples\": 4", "\"samples\": 3", "have 8 samples together; a step has 9"},
        {"\"micro_batch\": 2", "\"micro_batch\": 0", "micro_batch is 0"},
        {"\"rank\": 2", "\"rank\": 0", "rank 0 is there twice"},
        {"\"rank\": 2", "\"rank\": 9", "none with number 2"},
        {"\"rank\": 2", "\"rank\": -1", "rank is -1"},
        {"\"rank\": 2", "\"rank\": 256", "rank is 256"},
        {"\"machine\": \"old\"", "\"machine\": \"desk\"", "the machine desk is there twice"},
        {"\"machine\": \"old\"", "\"machine\": \"\"", "the name of a machine has 0 characters"},
        {"\"machine\": \"old\", ", "", "machine"},
        {"\"heads\": 4", "\"heads\": -4", "heads is -4"},
        {"\"heads\": 4", "\"head\": 4", "has \"head\"; it may have machine, rank, heads"},
        {"\"warm\": 1", "\"warm\": 40000", "warm is 40000"},
        {"[{\"machine\": \"old\", \"rank\": 2}]", "[]", "none with number 2"},
        {"[{\"machine\": \"attic\", \"rank\": 3}]",
         "[{\"machine\": \"a\", \"rank\": 3}, {\"machine\": \"b\", \"rank\": 3}]", "rank 3 is there twice"},
        {"[{\"machine\": \"old\", \"rank\": 2}]", "7", "ranks"},
        {"\"left_out\": [", "\"left_out\": [3, ", "expected an object"},
    };
    GxError fine = GX_ZERO;
    write_text(good_plan, sizeof good_plan - 1);
    CHECK(gx_split_plan_read(&again, path, &fine) == GX_OK && again.a.ranks == 4 && again.a.place[3].stage == -1 &&
              again.a.place[0].heads == 4 && again.a.stage[0].warm == 1,
          "%s", fine.message);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxError err = GX_ZERO;
        write_replaced(cases[i].from, cases[i].to);
        const GxStatus status = gx_split_plan_read(&again, path, &err);
        CHECK(status == GX_ERR_FORMAT && strstr(err.message, cases[i].says) && strstr(err.message, path), "%s: %s",
              cases[i].to, err.message);
    }
    GxError err = GX_ZERO;
    const GxStatus status = gx_split_plan_read(&again, "/nowhere/plan.json", &err);
    CHECK(status != GX_OK && strstr(err.message, "/nowhere/plan.json"), "%s", err.message);
}

TEST(damaged_plans_are_refused_or_read_and_never_crash)
{
    char text[sizeof good_plan];
    int read = 0;
    for (int i = 0; i < 1500; i++) {
        GxError err = GX_ZERO;
        int64_t n = sizeof good_plan - 1;
        memcpy(text, good_plan, sizeof text);
        if (i % 3 == 0) n = below(n);
        else text[below(n)] = (char)below(256);
        write_text(text, n);
        read += gx_split_plan_read(&again, path, &err) == GX_OK;
        if (gx_error_code(&err)) continue;
        GxError wrong = GX_ZERO;
        CHECK(gx_assignment_check(&again.a, again.layers, again.samples, &wrong) == GX_OK, "case %d: %s", i,
              wrong.message);
    }
    CHECK(read > 0 && read < 750, "%d of 1500 were read", read);
}

TEST(ranks_of_a_plan_are_found_by_their_machines)
{
    static const char host[4][GX_PLAN_NAME] = {"desk", "old", "desk", "attic"};
    static const char other[4][GX_PLAN_NAME] = {"desk", "old", "desk", "cellar"},
                      few[3][GX_PLAN_NAME] = {"desk", "old", "attic"};
    char name[GX_PLAN_NAME];
    int16_t found[GX_ASSIGNED_RANKS];
    GxError err = GX_ZERO, strange = GX_ZERO, missing = GX_ZERO;
    gx_plan_machine_name(host, 2, name);
    CHECK(!strcmp(name, "desk-1"), "%s", name);
    write_replaced("laptop", "desk-1");
    CHECK(gx_split_plan_read(&again, path, &err) == GX_OK, "%s", err.message);
    CHECK(gx_split_plan_find(&again, host, 4, found, &err) == GX_OK && found[0] == 0 && found[1] == 2 &&
              found[2] == 1 && found[3] == 3,
          "%d %d %d %d: %s", found[0], found[1], found[2], found[3], err.message);
    const GxStatus unknown = gx_split_plan_find(&again, other, 4, found, &strange),
                   absent = gx_split_plan_find(&again, few, 3, found, &missing);
    CHECK(unknown != GX_OK && strstr(strange.message, "on the machine cellar, which the plan does not have"), "%s",
          strange.message);
    CHECK(absent != GX_OK && strstr(missing.message, "the plan needs a rank on the machine desk-1"), "%s",
          missing.message);
}

TEST(the_table_of_a_plan_says_who_has_what)
{
    char *text = NULL;
    size_t bytes = 0;
    GxError err = GX_ZERO;
    write_text(good_plan, sizeof good_plan - 1);
    CHECK(gx_split_plan_read(&again, path, &err) == GX_OK, "%s", err.message);
    again.seconds = 4, again.ideal = 3, again.bubble = 0.4, again.messages = 0.01, again.with_all = 4.4;
    for (int r = 0; r < 3; r++)
        again.rank[r].busy = 0.9, again.rank[r].needs = 1500000000, again.rank[r].has = 8000000000;
    again.rank[2].is_tight = 1;
    FILE *f = open_memstream(&text, &bytes);
    gx_split_plan_print(f, &again);
    fclose(f);
    static const char *const lines[] = {
        "rank machine copy stage  layers heads columns   samples  busy         memory  limited by\n",
        "   0 desk       0   1/2     0-1     4     all    5 by 2   90%     1.5/8.0 GB  speed\n",
        "   2 old        0   2/2     2-2   all     all    5 by 2   90%     1.5/8.0 GB  memory\n",
        "   - attic   left out\n",
        "with all machines a step would take 1.10 times as long\n",
        "a step of 9 samples takes about 4 s, 75% of what the machines could do together; lost to: waiting for other "
        "stages 10%\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(text, lines[i]) != NULL, "no \"%s\" in:\n%s", lines[i], text);
    free(text);
}

// ---- the seconds of a stage ----------------------------------------------------------------------------------------

// An operation that takes `seconds`, or a collective (seconds 0).
static GxEvent event(const char *name, int action, int unit, double seconds)
{
    GxEvent e = GX_ZERO;
    e.name = name, e.action = (int16_t)(action + 1), e.unit = unit;
    e.kind = seconds > 0 ? GX_EVENT_OP : GX_EVENT_COLLECTIVE;
    e.flops = seconds * 1e9, e.members = 3, e.elements = 1000, e.dtype = GX_F32;
    e.dims.n[0] = (int64_t)(seconds * 1e6);
    return e;
}

// Costs that are exact: one second per GFLOP.
static void open_cost(GxCost *cost, double times)
{
    GxCostSample s = GX_ZERO;
    GxError err = GX_ZERO;
    snprintf(s.name, sizeof s.name, "work");
    s.flops = 1e9, s.seconds = times, s.dims.n[0] = 1000000;
    CHECK(gx_cost_fit(cost, &s, 1, &err) == GX_OK, "%s", err.message);
}

static void check_seconds(const char *what, double x, double expected)
{
    CHECK(fabs(x - expected) <= 1e-12 * expected, "%s: %.15g seconds instead of %.15g", what, x, expected);
}

TEST(between_two_collectives_the_slowest_rank_of_a_stage_counts)
{
    // forward of the embedding, of a layer with two stretches around a sum, the head's backward, and a norm
    const double work[3][5] = {{1, 2, 3, 4, 5}, {2, 1, 3, 1, 1}, {0, 9, 1, 1, 1}};
    GxEvent list[3][8];
    GxStageMember member[3];
    GxCost cost[3];
    GxStageSeconds s;
    GxError err = GX_ZERO;
    int64_t n[3] = {0, 0, 0};
    const double slow[3] = {1, 2, 0.5}; // seconds per unit of work
    for (int r = 0; r < 3; r++) {
        GxEvent *e = list[r];
        if (work[r][0] > 0) e[n[r]++] = event("work", GX_DO_FORWARD, 0, work[r][0]);
        e[n[r]++] = event("work", GX_DO_FORWARD, 1, work[r][1]);
        e[n[r]++] = event("all_reduce", GX_DO_FORWARD, 1, 0);
        e[n[r]++] = event("work", GX_DO_FORWARD, 1, work[r][2]);
        if (r == 1) e[n[r]++] = event("send", GX_DO_FORWARD, 1, 0); // between two of the three
        e[n[r]++] = event("work", GX_DO_BACKWARD, 2, work[r][3]);
        e[n[r]++] = event("work", GX_DO_NORM, 1, work[r][4]);
        open_cost(&cost[r], slow[r]);
        member[r].event = e, member[r].n = n[r], member[r].cost = &cost[r];
    }
    CHECK(gx_stage_seconds(&s, member, 3, 0.01, 1e-5, 3, &err) == GX_OK, "%s", err.message);
    const double sum = 2 * (0.01 * 2 + 4000 * 2.0 / 3 * 1e-5), message = 0.01 + 4000 * 1e-5;
    check_seconds("the embedding's forward", s.forward[GX_STAGE_EMBEDDING], 4);
    check_seconds("a layer's forward", s.forward[GX_STAGE_LAYER], 4.5 + sum + 6 + message);
    check_seconds("the head's backward", s.backward[GX_STAGE_HEAD], 4);
    check_seconds("the norm of a layer", s.step[GX_STAGE_LAYER], 5);
    check_seconds("communication", s.communication, sum);
    check_seconds("rank 2 computes", s.busy[2], 6);
    list[1][n[1] - 1] = event("all_gather", GX_DO_NORM, 1, 0);
    GxError other = GX_ZERO;
    const GxStatus status = gx_stage_seconds(&s, member, 3, 0.01, 1e-5, 3, &other);
    CHECK(status == GX_ERR_ARGUMENT && strstr(other.message, "do not communicate alike"), "%s", other.message);
    for (int r = 0; r < 3; r++) gx_cost_close(&cost[r]);
}

int main(int argc, char **argv)
{
    snprintf(path, sizeof path, "/tmp/galaxy_test_planner_%d.json", (int)getpid());
    const int status = test_main(argc, argv);
    unlink(path);
    return status;
}
