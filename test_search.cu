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

static void show_best(const Enumeration *e)
{
    for (int i = 0; i < e->chosen_n; i++) {
        const OrderedCopy *c = &e->copy[e->chosen[i]];
        printf("      best copy %d:", i);
        for (int s = 0; s < c->n; s++)
            printf(" %d layers of mask %d;", e->cut[e->chosen[i] * ALL_CUTS + e->chosen_cut[i]].layers[s], c->group[s]);
        printf("\n");
    }
}

static const struct {
    int kinds, same_lists;
    const char *name;
} kinds[] = {{GX_PLAN_ANY, 0, "any"},
             {GX_PLAN_REGULAR | GX_PLAN_PIPELINE, 0, "regular or a pipeline"},
             {GX_PLAN_REGULAR, 0, "regular"},
             {GX_PLAN_PIPELINE, 0, "a pipeline"},
             {GX_PLAN_REGULAR, 1, "regular, same lists"}};

TEST(the_search_finds_what_looking_at_everything_finds)
{
    static Enumeration e;
    static Toy t;
    const int n = getenv("INSTANCES") ? atoi(getenv("INSTANCES")) : 100,
              first = getenv("FIRST") ? atoi(getenv("FIRST")) : 0;
    int equal[5] = {0}, off[5] = {0}, all[5] = {0}, none[5] = {0};
    double worst[5] = {0}, seconds[2] = {0, 0};
    for (int i = first; i < first + n; i++) {
        Dice d = {(uint64_t)i, 0};
        const int ranks = i % 10 < 2 ? 2 : i % 10 < 7 ? 3 : 4;
        toy_random(&t, &d, ranks, dice_int(&d, 4, 7), dice_int(&d, 1, 3) * 4, 4);
        e.t = NULL;
        for (int k = 0; k < 5; k++) {
            t.p.kinds = kinds[k].kinds, t.p.same_lists = kinds[k].same_lists;
            const double start = gx_seconds();
            const double best = enumerate(&e, &t);
            const double between = gx_seconds();
            const Found f = look_for(&t);
            seconds[0] += between - start, seconds[1] += gx_seconds() - between;
            if (best == INFINITY) {
                none[k]++;
                CHECK(f.status == GX_ERR_MEMORY, "%s", f.err.message);
                continue;
            }
            all[k]++;
            CHECK(f.status == GX_OK, "instance %d, %s: %s", i, kinds[k].name, f.err.message);
            const double over = f.found.fastest / best - 1;
            if (over < 1e-3) equal[k]++;
            if (over > 0.03) off[k]++;
            worst[k] = fmax(worst[k], over);
            CHECK(over > -1e-3, "instance %d, %s: %.6g, of all %.6g", i, kinds[k].name, f.found.fastest, best);
            if (!CHECK(over < 0.03, "instance %d, %s, %d ranks: %.6g, best of %d is %.6g (%.3f)", i, kinds[k].name,
                       ranks, f.found.fastest, e.looked, best, over)) {
                show(&f.a);
                show_best(&e);
            }
        }
    }
    for (int k = 0; k < 5; k++)
        printf("     %-24s %3d fit, %3d do not; equal %d, more than 3%% off %d, worst %.2f%%\n", kinds[k].name, all[k],
               none[k], equal[k], off[k], 100 * worst[k]);
    printf("     %.2f s of looking at everything, %.2f s of search\n", seconds[0], seconds[1]);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
