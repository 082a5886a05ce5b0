// test/modes.h: the modes that tests loop over: those of the list in galaxy/model/mode.h, and all that can be composed.
// A mode that is added to the list is in all of these tests by that.
#ifndef GX_TEST_MODES_H
#define GX_TEST_MODES_H
#include "parallel.h"

#define TEST__MODE(name, att, con, mlp) &gx_##name,
static const GxMode *const test_modes[] = {&test_serial, GX_MODES(TEST__MODE)}; // serial first
enum { MODES = sizeof test_modes / sizeof *test_modes, TRIPLES = 18 };
// Those that are written once more, by tiles.
#define TEST__TILED(name) &gx_##name##_tiled,
static const GxMode *const test_tiled[] = {GX_TILED_MODES(TEST__TILED)};
enum { TILED = sizeof test_tiled / sizeof *test_tiled };

// All valid triples of methods for ATT, CON and MLP; the ends follow.
static GxMode test_triples[TRIPLES];
static char test_triple_name[TRIPLES][40];
__attribute__((constructor)) static void test_make_triples(void)
{
    static const GxMethod cores[] = {GX_METHOD_TP, GX_METHOD_SP, GX_METHOD_NONE},
                          cons[] = {GX_METHOD_SP, GX_METHOD_NONE};
    for (int i = 0; i < TRIPLES; i++) {
        const GxMethod att = cores[i / 6], con = cons[i / 3 % 2], mlp = cores[i % 3];
        snprintf(test_triple_name[i], sizeof test_triple_name[i], "ATT %s, CON %s, MLP %s", gx_method_name(att),
                 gx_method_name(con), gx_method_name(mlp));
        test_triples[i] = gx_composed(test_triple_name[i], gx_methods(att, con, mlp));
    }
}

// The mode that is composed of what a mode of the list spells out.
__attribute__((unused)) static GxMode test_composed(const GxMode *mode)
{
    return gx_composed("composed", mode->methods);
}

// A shape in a mode: a layout whose name is both of theirs. Lists of what the mode does not split are left alone.
__attribute__((unused)) static Layout test_layout(const GxMode *mode, const Layout *shape)
{
    Layout l = *shape;
    l.mode = mode;
    snprintf(l.what, sizeof l.what, "%s, %.120s", mode->name, shape->what);
    return l;
}

// Which cases of a product a test takes: case i of n beside case j of m. Where test_pairs meets options two by two, a
// diagonal is enough, in which each case of either list is once at least; `turn` turns it, so that tests take different
// ones. GX_TEST_LONG=1: all.
__attribute__((unused)) static int test_diagonal(int turn, int i, int n, int j, int m)
{
    if (test_long()) return 1;
    return n < m ? (j + turn) % n == i : (i + turn) % m == j;
}

// Of a table of n shapes the one with this name.
__attribute__((unused)) static const Layout *test_shape(const Layout *shapes, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(shapes[i].what, what)) return &shapes[i];
    CHECK(0, "no shape \"%s\"", what);
    return shapes;
}

// Everything that two runs have left behind on a rank.
__attribute__((unused)) static int same_bits(const Result *a, const Result *b)
{
    int same = !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm) && a->n == b->n;
    same &= a->validation == b->validation && a->columns == b->columns &&
            !memcmp(a->logits, b->logits, (size_t)(a->columns * outputs_of()) * 4);
    for (int k = 0; same && k < BUFFERS; k++) same = !memcmp(a->flat.all[k], b->flat.all[k], (size_t)a->n * 4);
    return same;
}

// ---- against serial -----------------------------------------------------------------------------------------------

// What two ranks both hold, in gradients, weights and moments; and the numbers that all have.
__attribute__((unused)) static int common_is_same(const Result *a, const Result *b)
{
    const GxTable *x = &a->model->m.table, *y = &b->model->m.table;
    int same = !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm);
    for (int i = 0; i < x->n; i++) {
        const GxTensor *t = &x->row[i], *u = &y->row[i];
        if (t->has_alias || test_flat(a->model, i) < 0 || test_flat(b->model, i) < 0) continue;
        for (int64_t e = 0, f = 0; e < gx_tensor_count(t); e++) { // indices go up in both
            const int64_t index = gx_tensor_global_index(t, e);
            while (f < gx_tensor_count(u) && gx_tensor_global_index(u, f) < index) f++;
            if (f == gx_tensor_count(u) || gx_tensor_global_index(u, f) != index) continue;
            for (int k = 0; k < BUFFERS; k++)
                same &= !memcmp(a->flat.all[k] + test_flat(a->model, i) + e,
                                b->flat.all[k] + test_flat(b->model, i) + f, 4);
        }
    }
    return same;
}

__attribute__((unused)) static void check_ranks(const Layout *l, const Result *serial)
{
    Rank rank[MAX_RANKS];
    run_ranks(l, rank);
    const Worst w = compare_ranks(l, rank, serial);
    if (w.ratio > test_state.worst) test_state.worst = w.ratio;
    CHECK(w.ratio <= 1, "%s: %s is %.3g times its bound away from serial", l->what, w.what, w.ratio);
    for (int r = 1; r < ranks_of(l); r++)
        CHECK(common_is_same(&rank[0].result, &rank[r].result),
              "%s: rank %d and rank 0 differ in bits where they hold the same", l->what, r);
    for (int r = 2; r < ranks_of(l); r++)
        CHECK(common_is_same(&rank[r - 1].result, &rank[r].result), "%s: rank %d and rank %d differ in bits", l->what,
              r - 1, r);
    free_ranks(l, rank);
}

// Serial knows no ranks: one run of it serves all modes of a shape.
__attribute__((unused)) static void check_shape(const Layout *shape, const GxMode *const *modes, int n)
{
    Result serial;
    run_serial(shape, &serial);
    for (int i = 0; i < n; i++) {
        const Layout l = test_layout(modes[i], shape);
        check_ranks(&l, &serial);
    }
    free_result(&serial);
}

// The same of those modes that a diagonal has beside this shape, number i of n.
__attribute__((unused)) static void check_diagonal(int turn, const Layout *shape, int i, int n,
                                                   const GxMode *const *modes, int m)
{
    const GxMode *some[4 * TRIPLES];
    int k = 0;
    for (int j = 0; j < m; j++)
        if (test_diagonal(turn, i, n, j, m)) some[k++] = modes[j];
    if (k) check_shape(shape, some, k);
}
#endif
