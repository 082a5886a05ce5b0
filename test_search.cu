// test_search.cu: the planner's search finds what looking at everything finds.
#include "galaxy/plan/search.h"
#include "test/test.h"
#include "test/toy_enumeration.h"

typedef struct {
    GxAssignment a;
    GxSearchResult found;
    GxError err;
    GxStatus status;
} Found;

static Found look_for(Toy *t)
{
    Found f;
    memset(&f, 0, sizeof f);
    f.status = gx_search(&f.a, &f.found, &t->p, 1, &f.err);
    if (f.status == GX_OK) {
        GxError err = GX_ZERO;
        CHECK(gx_assignment_check(&f.a, t->p.layers, t->p.samples, &err) == GX_OK, "%s", err.message);
    }
    return f;
}

static void show(const GxAssignment *a)
{
    for (int r = 0; r < a->copies; r++) {
        printf("      copy %d: %ld samples by %ld:", r, (long)a->copy[r].samples, (long)a->copy[r].micro_batch);
        for (int s = 0; s < a->stages; s++) {
            int16_t rank[GX_ASSIGNED_RANKS];
            if (a->stage[s].copy != r) continue;
            const int n = gx_assignment_group(a, s, rank);
            printf(" %d layers, warm %d, of", a->stage[s].layers, a->stage[s].warm);
            for (int i = 0; i < n; i++) printf(" %d", rank[i]);
            printf(";");
        }
        printf("\n");
    }
}

static void show_best(const Enumeration *e, int space)
{
    for (int i = 0; i < e->chosen_n[space]; i++) {
        const int k = e->chosen[space][i];
        printf("      best copy %d:", i);
        for (int s = 0; s < e->copy[k].n; s++)
            printf(" %d layers of mask %d;", e->cut[k * ALL_CUTS + e->chosen_cut[space][i]].layers[s],
                   e->copy[k].group[s]);
        printf("\n");
    }
}

// ---- against all ---------------------------------------------------------------------------------------------------

static const struct {
    const char *name;
    int space, kinds, same_lists;
} kinds[] = {{"any", ALL_ANY, GX_PLAN_ANY, 0},
             {"regular or a pipeline", ALL_MIXED, GX_PLAN_REGULAR | GX_PLAN_PIPELINE, 0},
             {"regular", ALL_REGULAR, GX_PLAN_REGULAR, 0},
             {"a pipeline", ALL_PIPELINE, GX_PLAN_PIPELINE, 0},
             {"regular, same lists", ALL_REGULAR, GX_PLAN_REGULAR, 1}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct {
    int fit, none, equal, off;
    double worst;
} Tally;

static int compare_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// One instance, one kind: the search is at most 3% slower than the best of all, and no faster.
static void check_kind(Toy *t, const Enumeration *e, int k, int number, Tally *of)
{
    const double best = e->best[kinds[k].space];
    t->p.kinds = kinds[k].kinds, t->p.same_lists = kinds[k].same_lists;
    const Found f = look_for(t);
    if (best == INFINITY) {
        of->none++;
        CHECK(f.status == GX_ERR_MEMORY, "instance %d, %s: it fits", number, kinds[k].name);
        return;
    }
    of->fit++;
    const double over = f.status == GX_OK ? f.found.fastest / best - 1 : INFINITY;
    of->equal += over<1e-6, of->off += over> 0.03;
    of->worst = fmax(of->worst, over);
    // 1e-9: the same sums in another order
    if (CHECK(over > -1e-9 && over < 0.03, "instance %d, %s: %.9g s, of all %.9g, %s", number, kinds[k].name,
              f.found.fastest, best, f.err.message))
        return;
    show(&f.a);
    show_best(e, kinds[k].space);
}

// How much longer windows are in the spaces (planner.md, section 5, prints the same of other instances).
static void show_spaces(double (*over)[ALL_SPACES], int n)
{
    static const char *const names[] = {"any", "best of the two", "regular",   "a pipeline",
                                        "dp",  "dp x tp",         "nobody out"};
    double sorted[2000];
    for (int k = 0; k < ALL_SPACES; k++) {
        int none = 0, off = 0;
        for (int i = 0; i < n; i++) {
            sorted[i] = over[i][k];
            none += sorted[i] == INFINITY, off += sorted[i] > 1.05 && sorted[i] < INFINITY;
        }
        qsort(sorted, (size_t)n, sizeof *sorted, compare_double);
        printf("     %-16s does not fit %3d, > 5%% off %3d, 90%% %6.2f, worst %6.2f\n", names[k], none, off,
               n > none ? sorted[(n - none) * 9 / 10] : 0, n > none ? sorted[n - none - 1] : 0);
    }
}

// Instance `number`: 2 to 4 machines; large: of up to 7 layers and 12 samples, not 6 and 8, and more often of 4.
static void instance(Toy *t, int number, int large)
{
    Dice d = {(uint64_t)number, 0};
    const int ranks = number % 10 < 2 ? 2 : number % 10 < (large ? 7 : 8) ? 3 : 4;
    const int quarter = dice_int(&d, 1, large ? 3 : 2), layers = dice_int(&d, 4, large ? 7 : 6);
    toy_random(t, &d, ranks, layers, quarter * 4, 4);
}

// Instances FIRST, ... of the environment, INSTANCES of them, large ones, each in all kinds; without, 200, each in two
// kinds. Nearly all are found exactly.
TEST(the_search_finds_what_looking_at_everything_finds)
{
    static Enumeration e, same;
    static double over[2000][ALL_SPACES];
    static Toy t;
    Tally tally[KINDS];
    const char *const asked = getenv("INSTANCES"), *const start = getenv("FIRST");
    const int n = asked               ? (int)gx_min(atoi(asked), 2000)
                  : TEST_IS_SANITIZED ? 30
                                      : 200,
              first = start ? atoi(start) : 0;
    int fit = 0;
    memset(tally, 0, sizeof tally);
    for (int i = first; i < first + n; i++) {
        instance(&t, i, asked != NULL);
        enumerate(&e, &t, 0);
        for (int k = 0; k < KINDS; k++) {
            if (!asked && k != 0 && k != 1 + i % (KINDS - 1)) continue;
            if (kinds[k].same_lists) enumerate(&same, &t, 1);
            check_kind(&t, kinds[k].same_lists ? &same : &e, k, i, &tally[k]);
        }
        if (e.best[ALL_ANY] == INFINITY) continue;
        for (int k = 0; k < ALL_SPACES; k++) over[fit][k] = e.best[k] / e.best[ALL_ANY];
        fit++;
    }
    for (int k = 0; k < KINDS; k++) {
        printf("     %-22s %4d fit, %3d do not; equal %4d, more than 3%% off %d, worst %.2f%%\n", kinds[k].name,
               tally[k].fit, tally[k].none, tally[k].equal, tally[k].off, 100 * tally[k].worst);
        CHECK(tally[k].equal >= 0.98 * tally[k].fit, "%s: %d of %d are equal", kinds[k].name, tally[k].equal,
              tally[k].fit);
    }
    show_spaces(over, fit);
    free(e.cut), free(same.cut);
    e.cut = same.cut = NULL;
}

// Where fast links make equal layers of the copies pay, memory says which lists a group has, or the last layer is not
// where the stages' times alone would have it.
TEST(instances_that_need_more_than_one_look_are_found)
{
    static const int numbers[] = {39, 43, 93, 398, 528, 669};
    static Enumeration e, same;
    static Toy t;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        instance(&t, numbers[i], 1);
        enumerate(&e, &t, 0), enumerate(&same, &t, 1);
        for (int k = 0; k < KINDS; k++) {
            Tally tally = {0, 0, 0, 0, 0};
            check_kind(&t, kinds[k].same_lists ? &same : &e, k, numbers[i], &tally);
        }
    }
    free(e.cut), free(same.cut);
    e.cut = same.cut = NULL;
}

// ---- what a window takes -------------------------------------------------------------------------------------------

// Stages whose costs are given: of every layer, sample, end, and so on.
typedef struct {
    double layer, head, step, grad_bytes; // seconds of a sample's forward; bytes of a layer
    int64_t memory, bytes;                // of a rank; of a layer and micro-batch that is alive
    int calls, fails;
} Plain;

static GxStatus plain_stage(void *user, GxStageCost *c, const GxStageRequest *r, GxError *err)
{
    Plain *p = (Plain *)user;
    p->calls++;
    if (p->fails) return GX_FAIL(err, GX_ERR_IO, "no such profile");
    const double b = (double)r->micro_batch / r->n;
    c->forward_layer = p->layer * b, c->backward_layer = 2 * c->forward_layer;
    c->forward = r->layers * c->forward_layer + r->has_head * p->head * b;
    c->backward = r->layers * c->backward_layer + r->has_head * 2 * p->head * b;
    c->step = p->step * r->layers, c->grad_bytes = p->grad_bytes * r->layers / r->n;
    c->room = p->memory - r->layers * r->alive * r->micro_batch * p->bytes / r->n;
    c->tightest = r->n - 1;
    return GX_OK;
}

static double plain_latency[16], plain_beta[16];
static GxPlanProblem plain_problem(Plain *plain, int ranks, int layers, int64_t samples)
{
    GxPlanProblem p = GX_ZERO;
    for (int i = 0; i < 16; i++) plain_latency[i] = 0.25, plain_beta[i] = 0.5;
    p.ranks = ranks, p.layers = layers, p.samples = samples, p.micro_most = 4;
    p.latency = plain_latency, p.seconds_per_byte = plain_beta;
    p.kinds = GX_PLAN_ANY, p.stage = plain_stage, p.user = plain;
    return p;
}

static GxAssignmentCost cost_of(const GxPlanProblem *p, const GxAssignment *a)
{
    GxStageCosts c;
    GxAssignmentCost cost = GX_ZERO;
    GxError err = GX_ZERO;
    CHECK(gx_stage_costs_open(&c, p, &err) == GX_OK && gx_assignment_losses(&cost, a, &c, &err) == GX_OK, "%s",
          err.message);
    gx_stage_costs_close(&c);
    const double parts = cost.computing + cost.bubble + cost.messages + cost.sums + cost.step;
    CHECK(fabs(parts - cost.seconds) < 1e-9 * cost.seconds, "the parts are %g of %g s", parts, cost.seconds);
    return cost;
}

// `copies` of `stages`, of one rank each, all with the same layers and samples.
static GxAssignment mesh_of(const GxPlanProblem *p, int copies, int stages, int64_t micro_batch, int warm)
{
    GxAssignment a = GX_ZERO;
    a.ranks = a.stages = copies * stages, a.copies = copies;
    for (int s = 0; s < a.stages; s++) {
        a.place[s].stage = (int16_t)s, a.stage[s].copy = (int16_t)(s / stages);
        a.stage[s].layers = (int16_t)(p->layers / stages);
        a.stage[s].warm = (int16_t)(warm * (stages - 1 - s % stages));
    }
    for (int r = 0; r < copies; r++) a.copy[r].samples = p->samples / copies, a.copy[r].micro_batch = micro_batch;
    return a;
}

#define CHECK_NEAR(x, y)                                                                                               \
    CHECK(fabs((x) - (y)) <= 1e-9 * fabs((double)(y)), "%s is %.9g; by hand it is %.9g", #x, (double)(x), (double)(y))

// 4 stages of a layer, F 1, B 2, 6 micro-batches: (m + p - 1) (F + B).
TEST(equal_stages_wait_for_each_other_p_minus_1_times)
{
    Plain plain = {1, 0, 0, 0, 100, 0, 0, 0};
    GxPlanProblem p = plain_problem(&plain, 4, 4, 6);
    GxAssignment a = mesh_of(&p, 1, 4, 1, 0);
    for (int i = 0; i < 16; i++) plain_latency[i] = plain_beta[i] = 0;
    const GxAssignmentCost c = cost_of(&p, &a);
    CHECK_NEAR(c.computing, 18);
    CHECK_NEAR(c.bubble, 9);
    CHECK_NEAR(c.seconds, 27);
    CHECK(c.messages == 0 && c.rounding == 0 && c.sums == 0, "%g %g %g", c.messages, c.rounding, c.sums);
    p.samples = 6000, a.copy[0].samples = 6000; // beyond what is looked at one by one: at a steady pace
    CHECK_NEAR(cost_of(&p, &a).seconds, 3 * 6003);
}

// Two stages, a message of 0.25 + 2 * 0.5 = 1.25 s. Blocking, of 2 micro-batches, by hand, F 1 and B 2 (S sends, R
// receives, each 1.25):
//     stage 0   F0 S F1 S ... R B0 R B1   0-1 -2.25 -3.25 -4.5, waits for dx
//     stage 1   R F0 B0 S R F1 B1 S       R 1-2.25, F0 -3.25, B0 -5.25, S -6.5, R -7.75, F1 -8.75, B1 -10.75, S -12
// dx0 is there at 5.25: stage 0 has B0 at 5.25 + 1.25 + 2 = 8.5, then B1 at max(8.5, 10.75) + 1.25 + 2 = 14.
TEST(messages_block_both_stages_unless_they_are_warm)
{
    Plain plain = {1, 0, 0, 0, 100, 0, 0, 0};
    GxPlanProblem p = plain_problem(&plain, 2, 2, 2);
    p.x_bytes = 2;
    GxAssignment a = mesh_of(&p, 1, 2, 1, 0);
    const GxAssignmentCost blocking = cost_of(&p, &a);
    CHECK_NEAR(blocking.seconds, 14);
    CHECK_NEAR(blocking.messages, 14 - 9);
    // F0 0-1, F1 1-2 | x0 2.25: F0 3.25, B0 5.25; x1 3.5: F1 6.25, B1 8.25 | dx0 6.5: B0 8.5, dx1 9.5: B1 11.5
    a = mesh_of(&p, 1, 2, 1, 1);
    CHECK_NEAR(cost_of(&p, &a).seconds, 11.5);
    // messages of 4 s follow each other on a link: x0 5, x1 9 | F0 6, B0 8, F1 10, B1 12 | dx0 12: B0 14, dx1 16: B1 18
    p.x_bytes = 7.5;
    CHECK_NEAR(cost_of(&p, &a).seconds, 18);
}

// Two copies of a rank: 2 (R-1)/R of 8 bytes at 0.5 s, and 2 times 0.25 s; they have 3 and 1 samples of 4.
TEST(gradients_are_summed_in_a_ring_and_the_slowest_copy_counts)
{
    Plain plain = {1, 0.5, 0.125, 4, 100, 0, 0, 0};
    GxPlanProblem p = plain_problem(&plain, 2, 2, 4);
    GxAssignment a = mesh_of(&p, 2, 1, 1, 0);
    a.copy[0].samples = 3, a.copy[1].samples = 1;
    const GxAssignmentCost c = cost_of(&p, &a);
    CHECK_NEAR(c.sums, 8 * 0.5 + 2 * 0.25);
    CHECK_NEAR(c.step, 0.25);
    CHECK_NEAR(c.computing, 3 * 3 * 2.5);
    CHECK_NEAR(c.rounding, 3 * 2.5); // with two samples each
    CHECK(c.slowest == 0 && c.lacks == 0, "copy %d, %ld", c.slowest, (long)c.lacks);
}

// Two copies of two stages, fast links between the first stages and between the second ones (4 bytes at 0.5 s), slow
// ones else (100 s). Layers 0-1 and 2 of one copy, 0 and 1-2 of the other: then stages of both kinds have layer 1, and
// stage 0 sums 8 bytes.
TEST(gradients_pass_over_the_links_between_ranks_that_have_them)
{
    Plain plain = {1, 0, 0, 4, 100, 0, 0, 0};
    GxPlanProblem p = plain_problem(&plain, 4, 2, 4);
    GxAssignment a = mesh_of(&p, 2, 2, 1, 0);
    for (int i = 0; i < 16; i++) plain_beta[i] = i / 4 % 2 == i % 2 ? 0.5 : 100;
    CHECK_NEAR(cost_of(&p, &a).sums, 4 * 0.5 + 2 * 0.25);
    p.layers = 3, a.stage[0].layers = a.stage[3].layers = 2;
    CHECK_NEAR(cost_of(&p, &a).sums, 8 * 100 + 2 * 0.25);
}

// The last micro-batch has 1 of 4 samples; the first two have 4.
TEST(the_last_micro_batch_may_be_smaller)
{
    Plain plain = {1, 0, 0, 0, 100, 0, 0, 0};
    GxPlanProblem p = plain_problem(&plain, 1, 2, 9);
    GxAssignment a = mesh_of(&p, 1, 1, 4, 0);
    CHECK_NEAR(cost_of(&p, &a).seconds, 2 * 3 * 9);
}

// Stage s of 3 has 3 - s micro-batches alive, and (2 - s) more if it is warm: 3, 2, 1 and 5, 3, 1 of 6 bytes.
TEST(what_is_alive_takes_memory)
{
    Plain plain = {1, 0, 0, 0, 0, 6, 0, 0};
    GxPlanProblem p = plain_problem(&plain, 3, 3, 9);
    for (int warm = 0; warm < 2; warm++) {
        const GxAssignment a = mesh_of(&p, 1, 3, 1, warm);
        const GxAssignmentCost c = cost_of(&p, &a);
        CHECK(c.lacks == (warm ? 54 : 36) && c.lacks_most == (warm ? 30 : 18) && c.tightest == 0, "%ld, %ld on %d",
              (long)c.lacks, (long)c.lacks_most, c.tightest);
        CHECK_NEAR(gx_assignment_value(&c), 1e12 * (1 + (warm ? 54 : 36)));
    }
    p.samples = 2; // never more than there are: 2, 2, 1
    const GxAssignment a = mesh_of(&p, 1, 3, 1, 1);
    CHECK(cost_of(&p, &a).lacks == 30, "%ld", (long)cost_of(&p, &a).lacks);
}

// ---- what the search promises --------------------------------------------------------------------------------------

static int is_used(const GxAssignment *a, int rank) { return a->place[rank].stage >= 0; }
static int used(const GxAssignment *a)
{
    int n = 0;
    for (int r = 0; r < a->ranks; r++) n += is_used(a, r);
    return n;
}

// Machines of 1 and 3, links that cost nothing: 10 and 30 samples.
TEST(copies_have_samples_by_their_speed)
{
    static Toy t;
    toy_problem(&t, 2, 4, 40, 2);
    t.speed[1] = 3e12, t.p.kinds = GX_PLAN_REGULAR, t.p.most_group = 1;
    toy_link(&t, 0, 1, 0, 1e15);
    const Found f = look_for(&t);
    CHECK(f.a.copies == 2 && f.a.copy[0].samples == 10 && f.a.copy[1].samples == 30, "%d copies, %ld and %ld samples",
          f.a.copies, (long)f.a.copy[0].samples, (long)f.a.copy[1].samples);
    CHECK(f.found.cost.rounding < 1e-3 * f.found.cost.seconds, "%g", f.found.cost.rounding);
}

// Three equal copies, four samples: one has two.
TEST(no_copy_is_without_a_sample)
{
    Plain plain = {1, 0, 0, 0, 100, 0, 0, 0};
    const GxPlanProblem p = plain_problem(&plain, 3, 2, 4);
    GxGrouping g = GX_ZERO;
    GxStageCosts c;
    GxDivider d;
    GxAssignment a = GX_ZERO;
    GxAssignmentCost cost;
    GxError err = GX_ZERO;
    g.ranks = g.groups = g.copies = 3;
    for (int i = 0; i < 3; i++) g.group[i] = g.copy[i] = (int16_t)i;
    CHECK(gx_stage_costs_open(&c, &p, &err) == GX_OK && gx_divider_open(&d, &c, &err) == GX_OK, "%s", err.message);
    CHECK(gx_grouping_divide(&a, &cost, &d, &g, INFINITY, &err) == GX_OK, "%s", err.message);
    CHECK(gx_assignment_check(&a, 2, 4, &err) == GX_OK, "%s", err.message);
    CHECK_NEAR(cost.seconds, 2 * 2 * 3 + 4 * 0.25);
    gx_divider_close(&d), gx_stage_costs_close(&c);
}

// Links of 10 kB/s, and one machine that is 20 times as fast.
TEST(one_machine_alone_is_chosen_where_it_is_best)
{
    static Toy t;
    toy_problem(&t, 4, 6, 8, 4);
    t.speed[2] = 20e12;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) toy_link(&t, i, j, 1e-3, 1e4);
    Found f = look_for(&t);
    CHECK(used(&f.a) == 1 && is_used(&f.a, 2), "%d machines", used(&f.a));
    CHECK(f.found.with[0] > 1.5 * f.found.cost.seconds && f.found.with[0] < INFINITY, "with rank 0: %g s; alone %g",
          f.found.with[0], f.found.cost.seconds);
    CHECK(f.found.with[2] == f.found.cost.seconds, "%g", f.found.with[2]);
    t.p.first_rank_stays = 1;
    f = look_for(&t);
    CHECK(is_used(&f.a, 0), "rank 0 was left out");
}

// Two copies of two stages, of five machines; the first is the slowest, and has the least memory.
TEST(a_mesh_that_leaves_a_machine_out_has_the_first_rank)
{
    static Toy t;
    toy_problem(&t, 5, 2, 32, 1);
    t.p.kinds = GX_PLAN_REGULAR, t.p.most_copies = 2, t.p.most_group = 1, t.p.first_rank_stays = 1;
    for (int i = 0; i < 5; i++) t.speed[i] = (6 + i) * 1e12, t.memory[i] = (0.8 + 0.01 * i) * toy_model_bytes(&t);
    const Found f = look_for(&t);
    CHECK(f.status == GX_OK && is_used(&f.a, 0) && used(&f.a) == 4, "%s, %d machines", f.err.message, used(&f.a));
}

// One that is 1.5% as fast is left out; one that is 10% as fast is not. Of 64 equal ones, each 1.6% of the
// whole, none is.
TEST(a_machine_that_gains_little_is_left_out)
{
    static Toy t;
    for (int k = 0; k < 2; k++) {
        toy_problem(&t, 3, 6, 512, 4);
        t.speed[1] = (k ? 0.1 : 0.015) * 1e12;
        const Found f = look_for(&t);
        CHECK(is_used(&f.a, 1) == k && used(&f.a) == 2 + k, "%d machines", used(&f.a));
        CHECK(f.found.with[1] <= f.found.cost.seconds && f.found.cost.seconds <= 1.03 * f.found.fastest,
              "with it %g s, without %g", f.found.with[1], f.found.cost.seconds);
        if (!k) CHECK(f.found.with[1] == f.found.fastest, "with it %g s, at best %g", f.found.with[1], f.found.fastest);
    }
    if (TEST_IS_SANITIZED) return; // many machines are more of the same
    toy_problem(&t, 64, 6, 64 * 63, 1);
    int klass[64] = {0};
    t.p.klass = klass, t.p.kinds = GX_PLAN_REGULAR, t.p.budget = 300;
    const Found f = look_for(&t);
    CHECK(used(&f.a) == 64, "%d of 64 machines", used(&f.a));
}

TEST(equal_machines_are_looked_at_once)
{
    static Toy t;
    int klass[4] = {0, 0, 1, 1};
    for (int seed = 0; seed < (TEST_IS_SANITIZED ? 2 : 6); seed++) {
        Dice d = {(uint64_t)seed, 0};
        toy_random(&t, &d, 4, 6, 8, 4);
        t.speed[1] = t.speed[0], t.speed[3] = t.speed[2], t.memory[1] = t.memory[0], t.memory[3] = t.memory[2];
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++) toy_link(&t, i, j, 1e-4, 1e9);
        const Found all = look_for(&t);
        t.p.klass = klass;
        const Found once = look_for(&t);
        CHECK(all.found.fastest == once.found.fastest, "%.9g and %.9g", all.found.fastest, once.found.fastest);
        CHECK(all.found.looked == 293 && once.found.looked < 150, "%ld and %ld looked at", (long)all.found.looked,
              (long)once.found.looked);
        for (int way = 0; way < 2; way++) { // a link of 0 is faster, in one direction: now no two are the same
            double *link = &t.beta[way ? 0 * 4 + 2 : 2 * 4 + 0];
            *link /= 2;
            const int64_t looked = look_for(&t).found.looked;
            CHECK(looked == 293, "%ld looked at", (long)looked);
            *link *= 2;
        }
    }
}

// The best of some groupings that a person would think of.
static double simple_plans(Toy *t)
{
    GxStageCosts c;
    GxDivider d;
    GxError err = GX_ZERO;
    double best = INFINITY;
    CHECK(gx_stage_costs_open(&c, &t->p, &err) == GX_OK && gx_divider_open(&d, &c, &err) == GX_OK, "%s", err.message);
    for (int way = 0; way < 2 + t->n; way++) { // copies; a pipeline by speed; a rank alone
        GxGrouping g = GX_ZERO;
        g.ranks = t->n, g.groups = way < 2 ? t->n : 1, g.copies = way ? 1 : t->n;
        for (int r = 0; r < t->n; r++) {
            int place = 0;
            for (int o = 0; o < t->n; o++) place += t->speed[o] > t->speed[r] || (t->speed[o] == t->speed[r] && o < r);
            g.group[r] = (int16_t)(way == 0 ? r : way == 1 ? place : r == way - 2 ? 0 : -1);
            g.copy[r] = (int16_t)(way ? 0 : r);
        }
        GxAssignment a = GX_ZERO;
        GxAssignmentCost cost;
        CHECK(gx_grouping_divide(&a, &cost, &d, &g, INFINITY, &err) == GX_OK, "%s", err.message);
        best = fmin(best, gx_assignment_value(&cost));
    }
    gx_divider_close(&d), gx_stage_costs_close(&c);
    return best;
}

// 10 machines, and the first 9 of them: the search is never worse than what a person would try, and with another
// machine at most as much as a search that looks at a part may miss. Twice the same.
TEST(a_plan_for_many_machines_is_no_worse_than_simple_ones_or_than_with_fewer)
{
    static Toy t, fewer;
    for (int seed = 0; seed < (TEST_IS_SANITIZED ? 1 : 2); seed++) {
        Dice d = {(uint64_t)seed, 0};
        toy_random(&t, &d, 10, 12, 32, 4);
        t.p.kinds = GX_PLAN_REGULAR | GX_PLAN_PIPELINE, t.p.budget = 400;
        const Found f = look_for(&t), again = look_for(&t);
        CHECK(f.status == GX_OK && memcmp(&f.a, &again.a, sizeof f.a) == 0, "%s, or another plan", f.err.message);
        const double simple = simple_plans(&t);
        CHECK(f.found.fastest <= simple * (1 + 1e-9), "%.6g s; a simple plan takes %.6g", f.found.fastest, simple);
        Dice once = {(uint64_t)seed, 0};
        toy_random(&fewer, &once, 10, 12, 32, 4);
        fewer.p.kinds = t.p.kinds, fewer.p.budget = 400;
        fewer.n = fewer.p.ranks = 9;
        for (int i = 0; i < 9; i++)
            for (int j = 0; j < 9; j++) {
                fewer.latency[i * 9 + j] = t.latency[i * 10 + j];
                fewer.beta[i * 9 + j] = t.beta[i * 10 + j];
            }
        const Found less = look_for(&fewer);
        CHECK(less.status != GX_OK || f.found.fastest <= 1.02 * less.found.fastest, "%.6g s with 10, %.6g with 9",
              f.found.fastest, less.found.fastest);
    }
}

TEST(every_rank_gets_its_part)
{
    static Toy t;
    toy_problem(&t, 2, 6, 1, 1); // one sample: a group, or alone
    t.speed[0] = 3e12;
    const Found f = look_for(&t);
    CHECK(f.a.stages == 1 && used(&f.a) == 2, "%d stages, %d ranks", f.a.stages, used(&f.a));
    CHECK(f.a.place[0].heads + f.a.place[1].heads == t.H && f.a.place[0].columns + f.a.place[1].columns == t.columns &&
              f.a.place[0].heads == 6 && f.a.place[0].columns == 12,
          "heads %ld %ld, columns %ld %ld", (long)f.a.place[0].heads, (long)f.a.place[1].heads,
          (long)f.a.place[0].columns, (long)f.a.place[1].columns);
}

// Two copies of three stages of random machines: unequal copies, each of which would have other layers.
TEST(copies_of_a_mesh_with_equal_lists_have_equal_layers)
{
    static Toy t;
    GxGrouping g = GX_ZERO;
    int fit = 0;
    g.ranks = g.groups = 6, g.copies = 2;
    for (int i = 0; i < 6; i++) g.group[i] = (int16_t)i, g.copy[i] = (int16_t)(i / 3);
    for (int seed = 0; seed < 60; seed++) {
        Dice d = {(uint64_t)seed, 0};
        GxStageCosts c;
        GxDivider divider;
        GxAssignment a = GX_ZERO;
        GxAssignmentCost cost;
        GxError err = GX_ZERO;
        toy_random(&t, &d, 6, 12, 24, 4);
        t.p.kinds = GX_PLAN_REGULAR, t.p.same_lists = t.p.most_warm = 1;
        CHECK(gx_stage_costs_open(&c, &t.p, &err) == GX_OK && gx_divider_open(&divider, &c, &err) == GX_OK &&
                  gx_grouping_divide(&a, &cost, &divider, &g, INFINITY, &err) == GX_OK,
              "%s", err.message);
        gx_divider_close(&divider), gx_stage_costs_close(&c);
        CHECK(gx_assignment_check(&a, 12, 24, &err) == GX_OK, "%s", err.message);
        for (int s = 0; s < 3; s++)
            CHECK(a.stage[s].layers == a.stage[3 + s].layers, "seed %d: stage %d has %d and %d layers", seed, s,
                  a.stage[s].layers, a.stage[3 + s].layers);
        fit += cost.lacks == 0;
    }
    CHECK(fit > 30, "only %d fit", fit);
}

TEST(where_nothing_fits_the_message_says_what_is_lacking)
{
    Plain plain = {1, 0, 0, 0, 5000000, 3000000, 0, 0};
    GxPlanProblem p = plain_problem(&plain, 2, 8, 4);
    GxAssignment a;
    GxSearchResult found;
    GxError err = GX_ZERO;
    // at the least: a group of two has 8 layers of a sample of 1.5 MB each
    CHECK(gx_search(&a, &found, &p, 1, &err) == GX_ERR_MEMORY, "it fits");
    CHECK(strstr(err.message, "lacks 7.0 MB on rank 1, 7.0 MB in all"), "%s", err.message);
}

static void check_refused(const GxPlanProblem *p, GxStatus status, const char *says)
{
    GxAssignment a;
    GxSearchResult found;
    GxError err = GX_ZERO;
    CHECK(gx_search(&a, &found, p, 1, &err) == status && strstr(err.message, says), "\"%s\", not \"%s\"", err.message,
          says);
}

TEST(problems_without_sense_are_refused)
{
    Plain plain = {1, 0, 0, 0, 100, 0, 0, 0};
    const GxPlanProblem good = plain_problem(&plain, 2, 2, 4);
    GxPlanProblem p = good;
    p.ranks = 0, check_refused(&p, GX_ERR_ARGUMENT, "a plan for 0 ranks");
    p = good, p.ranks = 257, check_refused(&p, GX_ERR_ARGUMENT, "1 to 256 ranks");
    p = good, p.samples = 0, check_refused(&p, GX_ERR_ARGUMENT, "0 samples");
    p = good, p.layers = 40000, check_refused(&p, GX_ERR_ARGUMENT, "40000 layers");
    p = good, p.stage = NULL, check_refused(&p, GX_ERR_ARGUMENT, "without what stages cost");
    p = good, p.kinds = 0, check_refused(&p, GX_ERR_ARGUMENT, "without a kind");
    p = good, p.kinds = GX_PLAN_PIPELINE, p.first_rank_stays = 1, p.most_group = -1;
    check_refused(&p, GX_ERR_ARGUMENT, "-1");
    plain_beta[2] = -1, check_refused(&good, GX_ERR_ARGUMENT, "from rank 1 to rank 0 takes 0.25 s and -1 s a byte");
    plain_beta[2] = NAN, check_refused(&good, GX_ERR_ARGUMENT, "rank 1 to rank 0");
    plain_beta[2] = 0.5, plain.fails = 1, check_refused(&good, GX_ERR_IO, "no such profile");
    plain.fails = 0, plain.layer = NAN,
    check_refused(&good, GX_ERR_ARGUMENT, "the cost of a stage of 1 layers on rank 0");
    plain.layer = INFINITY, check_refused(&good, GX_ERR_ARGUMENT, "can share the model");
}

int main(int argc, char **argv) { return test_main(argc, argv); }
