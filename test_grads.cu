// test_grads.cu: gradients of cut tensors (parallel/grads.h) and whole tensors from boxes (parallel/boxes.h), on the
// threads engine.
#include "galaxy.h"
#include "test/test.h"
#include <pthread.h>

enum { MOST = 5 };
enum { CUT = 0, BIAS, NORM, TENSORS }; // rows of the table

typedef struct { // one tensor: how it is cut
    const char *what;
    int64_t rows, cols; // cols 0: one dimension
    int dim, ranks;     // dim -1: not cut
    GxRange parts[MOST];
} Cut;

// Parts that overlap with one neighbour, with both, with all; parts inside others; none.
static const Cut cuts[] = {
    {"rows, apart", 12, 5, 0, 3, {{0, 1}, {1, 7}, {7, 12}}},
    {"rows, neighbours share", 12, 3, 0, 3, {{0, 4}, {3, 9}, {8, 12}}},
    {"rows, three share the middle", 9, 2, 0, 4, {{0, 3}, {1, 6}, {2, 8}, {5, 9}}},
    {"rows, all share all", 4, 7, 0, 4, {{0, 4}, {0, 4}, {0, 4}, {0, 4}}},
    {"rows, a part inside another", 10, 2, 0, 5, {{0, 4}, {2, 4}, {2, 10}, {4, 10}, {9, 10}}},
    {"a vector", 11, 0, 0, 3, {{0, 5}, {4, 5}, {4, 11}}},
    {"columns", 6, 10, 1, 3, {{0, 1}, {1, 8}, {8, 10}}},
    {"whole on all ranks", 5, 6, -1, 3, {{0, 0}}},
};
enum { CUTS = sizeof cuts / sizeof *cuts };

typedef struct {
    const Cut *cut;
    int dp; // copies of the group
    void (*job)(GxContext *g, const Cut *cut, GxStore *store);
    GxThreadsGroup *group;
    int rank;
    pthread_t thread;
} Rank;

// A table with the one tensor and a whole one behind it in one unit, and a whole one in a unit of its own: both of
// these are summed over tp.
static void open_table(GxContext *g, GxTable *table, const Cut *c)
{
    GxTensor t = GX_ZERO, bias = GX_ZERO, norm = GX_ZERO;
    const int me = gx_group_index(g, GX_AXIS_TP);
    memset(table, 0, sizeof *table);
    snprintf(t.name, sizeof t.name, "cut");
    t.ndim = c->cols ? 2 : 1;
    t.global_shape[0] = t.end[0] = c->rows, t.global_shape[1] = t.end[1] = c->cols;
    if (c->dim >= 0) {
        t.begin[c->dim] = c->parts[me].begin, t.end[c->dim] = c->parts[me].end;
        t.split_dim = c->dim, t.split_axes = GX_AXIS_TP, t.n_parts = c->ranks, t.parts = c->parts;
    }
    snprintf(bias.name, sizeof bias.name, "bias");
    bias.ndim = 1, bias.global_shape[0] = bias.end[0] = 3;
    norm = bias;
    snprintf(norm.name, sizeof norm.name, "norm");
    norm.global_shape[0] = norm.end[0] = 7, norm.unit = 1;
    bias.sums_over_tp = norm.sums_over_tp = 1;
    gx_table_add(table, &t, &g->error);
    gx_table_add(table, &bias, &g->error);
    gx_table_add(table, &norm, &g->error);
}

static void *rank_main(void *user)
{
    Rank *r = (Rank *)user;
    GxContext g = GX_ZERO;
    GxComm comm;
    GxMesh mesh;
    GxArena arena;
    GxTable table;
    GxStore store;
    GxStep step = GX_ZERO;
    int dims[GX_MESH_AXES] = {1, 1, r->dp, 1, r->cut->ranks};
    gx_threads_comm(&comm, r->group, r->rank);
    comm.timeout = 20;
    g.device = gx_device_cpu();
    g.step = &step;
    gx_mesh_open(&mesh, dims, r->rank, r->dp * r->cut->ranks, &g.error);
    g.mesh = &mesh;
    gx_arena_open(&arena, 64 << 20, &g.error);
    g.arena = &arena;
    gx_comm_open(&g, &comm);
    open_table(&g, &table, r->cut);
    gx_store_open(&store, &table, gx_units(0, table.units), GX_F32, &g.error);
    gx_store_allocate(&g, &store, 0);
    r->job(&g, r->cut, &store);
    CHECK(!gx_failed(&g), "%s: rank %d: %s", r->cut->what, r->rank, g.error.message);
    gx_comm_close(&g);
    gx_store_close(&store);
    gx_table_close(&table);
    gx_arena_close(&arena);
    return NULL;
}

static void on_all_ranks(const Cut *cut, int dp, void (*job)(GxContext *, const Cut *, GxStore *))
{
    Rank rank[2 * MOST];
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    const int n = dp * cut->ranks;
    if (!CHECK(gx_threads_group_open(&group, n, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < n; r++) {
        const Rank one = {cut, dp, job, group, r, 0};
        rank[r] = one;
        pthread_create(&rank[r].thread, NULL, rank_main, &rank[r]);
    }
    for (int r = 0; r < n; r++) pthread_join(rank[r].thread, NULL);
    gx_threads_group_close(group);
}

static int has(const Cut *c, int member, int64_t element)
{
    const int64_t cols = c->cols ? c->cols : 1, i = c->dim == 1 ? element % cols : element / cols;
    return c->dim < 0 || (i >= c->parts[member].begin && i < c->parts[member].end);
}

// Rank `rank`'s summand of element `index` of tensor `t`: of many magnitudes, so that the order of a sum shows in its
// bits. (Inlined, its product would be fused into the sum and not be rounded.)
__attribute__((noinline)) static float summand(int t, int64_t index, int rank)
{
    const uint32_t bits = gx_random_bits(31, (uint64_t)index, (uint32_t)rank, (uint32_t)t);
    return (float)(int32_t)bits * (1 + (float)(bits % 1000));
}

// Over the members that have the element first, in their order, then over the copies of the group: of a unit that has
// something that is not summed over tp. Else over all ranks at once.
static float expected(const GxContext *g, const Cut *c, int t, int64_t index)
{
    const int dp = gx_group_size(g, GX_AXIS_DP), tp = gx_group_size(g, GX_AXIS_TP), me = gx_group_index(g, GX_AXIS_TP);
    float sum = 0;
    for (int r = 0; r < dp * tp && t == NORM; r++) sum = r ? sum + summand(t, index, r) : summand(t, index, r);
    for (int d = 0; d < dp && t != NORM; d++) {
        float group = 0;
        int some = 0;
        for (int m = 0; m < tp; m++) {
            if (t == CUT && (c->dim < 0 ? m != me : !has(c, m, index))) continue; // not cut: no sum over tp
            group = some++ ? group + summand(t, index, d * tp + m) : summand(t, index, d * tp + m);
        }
        sum = d ? sum + group : group;
    }
    return sum;
}

// The values of all gradients, as a backward leaves them.
static void write_grads(const GxContext *g, GxStore *s, float (*value)(int t, int64_t index, int rank))
{
    gx_store_begin_window(s);
    for (int t = 0; t < TENSORS; t++) {
        int accumulate;
        const GxTensorId id = {t};
        float *grad = gx_store_grad(s, id, &accumulate);
        const GxTensor *row = &s->table->row[t];
        for (int64_t i = 0; i < gx_tensor_count(row); i++) grad[i] = value(t, gx_tensor_global_index(row, i), g->rank);
    }
}

static void check_sums(GxContext *g, const Cut *c, const GxStore *s)
{
    for (int t = 0; t < TENSORS; t++) {
        const GxTensor *row = &s->table->row[t];
        for (int64_t i = 0; i < gx_tensor_count(row); i++) {
            const int64_t index = gx_tensor_global_index(row, i);
            const float found = gx_store_grads(s, t)[i], wanted = expected(g, c, t, index);
            CHECK(found == wanted, "%s: rank %d, %s[%ld] is %.9g, not %.9g", c->what, g->rank, row->name, (long)index,
                  found, wanted);
        }
    }
}

// What is started is the last sum of each unit: that over the loss's axes, or over tp if there are no others.
static void check_started(GxContext *g, const Cut *c, GxStore *s)
{
    GxGradsSum sum;
    write_grads(g, s, summand);
    gx_grads_start(g, s, 0, 2, &sum);
    CHECK(sum.tickets == 2, "%s: rank %d: %d sums are under way, not 2", c->what, g->rank, sum.tickets);
    gx_grads_wait(g, &sum);
    check_sums(g, c, s);
}

// All units at once; and one by one, in either order.
static void check_reduced(GxContext *g, const Cut *c, GxStore *s)
{
    write_grads(g, s, summand);
    gx_grads_reduce(g, s, 0, 2);
    check_sums(g, c, s);
    for (int first = 0; first < 2; first++) {
        write_grads(g, s, summand);
        gx_grads_reduce(g, s, first, 1);
        gx_grads_reduce(g, s, 1 - first, 1);
        check_sums(g, c, s);
    }
    check_started(g, c, s);
}

TEST(a_shared_piece_is_summed_in_order_over_those_who_share_it)
{
    for (int i = 0; i < CUTS; i++)
        for (int dp = 1; dp <= 2; dp++) on_all_ranks(&cuts[i], dp, check_reduced);
}

// Whole numbers, whose squares have an exact sum: counted once, whoever holds them.
static float whole_number(int t, int64_t index, int rank)
{
    (void)rank;
    return (float)(1 + 100 * t + index);
}

// Unit by unit, or both in one go.
static void sum_squares(GxContext *g, GxStore *s, int at_once)
{
    GxGradsParts counted;
    g->step->sum_squares = 0;
    if (gx_grads_parts_open(&counted, s->table, &g->error) == GX_OK) {
        const GxArenaMark mark = gx_arena_mark(g->arena);
        gx_grads_parts_allocate(g, &counted, s);
        if (at_once) gx_grads_sum_squares(g, s, &counted, 0, 2);
        for (int unit = 0; unit < 2 && !at_once; unit++) gx_grads_sum_squares(g, s, &counted, unit, 1);
        gx_arena_release(g->arena, mark);
    }
    gx_grads_parts_close(&counted);
    gx_grads_agree(g, 0);
}

static void check_counted(GxContext *g, const Cut *c, GxStore *s)
{
    double sum = 0;
    write_grads(g, s, whole_number);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; i < gx_tensor_global_count(&s->table->row[t]); i++) sum += pow(whole_number(t, i, 0), 2);
    for (int at_once = 0; at_once < 2; at_once++) {
        sum_squares(g, s, at_once);
        CHECK(g->step->sum_squares == sum, "%s: rank %d has %.17g, not %.17g", c->what, g->rank, g->step->sum_squares,
              sum);
    }
    write_grads(g, s, summand); // whose squares have no exact sum: the same bits all the same
    sum_squares(g, s, 0);
    sum = g->step->sum_squares;
    sum_squares(g, s, 1);
    CHECK(g->step->sum_squares == sum, "%s: rank %d has %.17g in one go, not %.17g", c->what, g->rank,
          g->step->sum_squares, sum);
}

TEST(the_norm_counts_every_element_once)
{
    for (int i = 0; i < CUTS; i++)
        for (int dp = 1; dp <= 2; dp++) on_all_ranks(&cuts[i], dp, check_counted);
}

// ---- shards --------------------------------------------------------------------------------------------------------

// Of several blocks of the norm; what a rank counts begins inside its part, and a shard's end inside what it counts.
static const Cut large[] = {
    {"rows, neighbours share, of several blocks", 12, 20000, 0, 3, {{0, 5}, {3, 9}, {8, 12}}},
    {"a vector of several blocks", 230000, 0, 0, 2, {{0, 120000}, {40000, 230000}}},
};

// Scatters the same summands as `whole` has; the shards' sums and the norm have the bits of whole ones.
static void check_scattered(GxContext *g, const Cut *c, GxStore *whole, const GxPartList *list)
{
    GxStore s;
    GxGradsParts counted;
    const double expected_sum = g->step->sum_squares;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    gx_store_open(&s, whole->table, gx_units(0, whole->table->units), GX_F32, &g->error);
    gx_shards_open(g, &s, GX_SHARDS_GRADS, list);
    gx_store_allocate(g, &s, 0);
    g->step->sum_squares = 0;
    if (!gx_failed(g) && gx_grads_parts_open(&counted, s.table, &g->error) == GX_OK) {
        gx_grads_parts_allocate(g, &counted, &s);
        gx_grads_begin(g, &counted);
        for (int u = 0; u < 2; u++)
            gx_shards_put_grads(&s, u, gx_scratch(g, GX_MEM_COMM, gx_shards_grads_bytes(&s, u)));
        write_grads(g, &s, summand);
        for (int u = 0; u < 2; u++) gx_grads_scatter(g, &s, u, 0);
        gx_grads_sum_squares(g, &s, &counted, 0, 2);
        gx_grads_add_shards(g, &s, &counted, 0, 2);
        gx_grads_parts_close(&counted);
    }
    gx_grads_agree(g, 0);
    CHECK(g->step->sum_squares == expected_sum, "%s: rank %d: the norm of shards is %.17g, not %.17g", c->what, g->rank,
          g->step->sum_squares, expected_sum);
    for (int t = 0; t < TENSORS && !gx_failed(g); t++) {
        const GxRange mine = gx_store_my_trained(&s, t);
        if (t < NORM && mine.begin < mine.end)
            CHECK(!memcmp(gx_store_my_grad_at(&s, t, mine.begin), gx_store_grads(whole, t) + mine.begin,
                          4 * (size_t)(mine.end - mine.begin)),
                  "%s: rank %d: the shard of %s", c->what, g->rank, s.table->row[t].name);
    }
    gx_arena_release(g->arena, mark);
    gx_store_close(&s);
}

static void check_shards(GxContext *g, const Cut *c, GxStore *whole)
{
    int64_t shares[3][3] = {{1, 1, 1}, {3, 1, 2}, {1, 5, 1}};
    for (int k = 0; k < 3; k++) {
        const GxPartList list = {shares[k], gx_group_size(g, GX_AXIS_DP_SHARD)};
        write_grads(g, whole, summand);
        gx_grads_reduce(g, whole, 0, 2);
        sum_squares(g, whole, 1);
        check_scattered(g, c, whole, &list);
    }
}

TEST(shards_of_what_ranks_share_have_the_bits_of_the_whole)
{
    for (unsigned i = 0; i < sizeof large / sizeof *large; i++)
        for (int dp = 2; dp <= 3; dp++) on_all_ranks(&large[i], dp, check_shards);
}

// Values that are written to shards, and read from them, in pieces that begin and end anywhere.
static void check_pieces(GxContext *g, const Cut *c, GxStore *s, GxValues what, int row, int64_t piece)
{
    const int64_t count = gx_tensor_count(&s->table->row[row]);
    const float plus = (float)(what + 1);
    int64_t wrong = 0;
    for (int64_t first = 0; first < count && !gx_failed(g); first += piece) {
        const GxArenaMark mark = gx_arena_mark(g->arena);
        const int64_t n = gx_min(piece, count - first);
        float *values = gx_values_write(g, s, what, row, first, n);
        for (int64_t i = 0; i < n && values; i++) values[i] = (float)((first + i) % 251) + plus; // exact in bf16
        gx_values_written(g, s, what, row, first, n, values);
        gx_arena_release(g->arena, mark);
    }
    piece = piece * 3 / 2 + 1;
    for (int64_t first = 0; first < count && !gx_failed(g); first += piece) {
        const GxArenaMark mark = gx_arena_mark(g->arena);
        const int64_t n = gx_min(piece, count - first);
        const float *values = gx_values_read(g, s, what, row, first, n);
        for (int64_t i = 0; i < n && values; i++) wrong += values[i] != (float)((first + i) % 251) + plus;
        gx_arena_release(g->arena, mark);
    }
    CHECK(wrong == 0, "%s: rank %d: %ld of %ld values of kind %d of %s are wrong, in pieces of %ld", c->what, g->rank,
          (long)wrong, (long)count, what, s->table->row[row].name, (long)piece);
}

static void check_values(GxContext *g, const Cut *c, GxStore *whole)
{
    for (int k = 0; k < 8; k++) { // ZeRO 1 and 3, trained and frozen, in fp32 and bf16
        const GxArenaMark mark = gx_arena_mark(g->arena);
        GxStore s;
        GxTensor *row = whole->table->row;
        row[CUT].frozen = k / 2 % 2;
        gx_store_open(&s, whole->table, gx_units(0, whole->table->units), k / 4 ? GX_BF16 : GX_F32, &g->error);
        gx_shards_open(g, &s, k % 2 ? GX_SHARDS_WEIGHTS : GX_SHARDS_OPTIMIZER, NULL);
        gx_store_allocate(g, &s, 2);
        for (int what = GX_VALUES_WEIGHTS; what <= GX_VALUES_MOMENT_2; what++)
            for (int t = 0; t < TENSORS; t++)
                if (gx_values_exist(&s, (GxValues)what, t)) {
                    check_pieces(g, c, &s, (GxValues)what, t, 7001);
                    check_pieces(g, c, &s, (GxValues)what, t, 1 << 20);
                }
        row[CUT].frozen = 0;
        gx_arena_release(g->arena, mark);
        gx_store_close(&s);
    }
}

TEST(values_come_to_shards_and_from_them_in_any_pieces)
{
    for (unsigned i = 0; i < sizeof large / sizeof *large; i++) on_all_ranks(&large[i], 2, check_values);
}

// A tensor of two stages that is larger than what is sent at a time.
static void check_tie(GxContext *g, const Cut *c, GxStore *unused)
{
    enum { COLS = 5, ROWS = GX_STAGE / 2 };
    const int dims[GX_MESH_AXES] = {2, 1, 1, 1, 1};
    const GxMesh *mesh = g->mesh;
    GxMesh stages;
    GxTable table = GX_ZERO;
    GxStore s;
    GxTensor t = GX_ZERO, alias;
    int accumulate = 0;
    int64_t wrong = 0;
    const GxShares vocab = gx_shares_whole(ROWS); // of the other stage's only rank
    (void)unused;
    gx_mesh_open(&stages, dims, g->rank, 2, &g->error);
    g->mesh = &stages;
    snprintf(t.name, sizeof t.name, "matrix");
    t.ndim = 2, t.global_shape[0] = t.end[0] = ROWS, t.global_shape[1] = t.end[1] = COLS;
    alias = t;
    snprintf(alias.name, sizeof alias.name, "copy");
    alias.unit = 1, alias.has_alias = 1;
    gx_table_add(&table, &t, &g->error);
    gx_table_add(&table, &alias, &g->error);
    gx_store_open(&s, &table, gx_units(g->rank, g->rank + 1), GX_F32, &g->error);
    gx_store_allocate(g, &s, 0);
    const GxTensorId id = {g->rank};
    float *grad = gx_failed(g) ? NULL : gx_store_grad(&s, id, &accumulate);
    for (int64_t i = 0; i < ROWS * COLS && grad; i++) grad[i] = (float)(i % 100003 + (g->rank ? 7 * (i % 11) : 0));
    gx_grads_tie(g, &s, 0, 1 - g->rank, 0, &vocab);
    for (int64_t i = 0; i < ROWS * COLS && grad; i++) wrong += grad[i] != (float)(2 * (i % 100003) + 7 * (i % 11));
    CHECK(grad && wrong == 0, "%s: rank %d: %ld sums of two stages are wrong", c->what, g->rank, (long)wrong);
    gx_store_begin_window(&s); // what neither has written is a summand of 0
    gx_grads_tie(g, &s, 0, 1 - g->rank, 0, &vocab);
    CHECK(grad && grad[1] == 0, "%s: rank %d: a sum of what nobody has written is %g", c->what, g->rank, grad[1]);
    for (int64_t i = 0; i < ROWS * COLS && grad; i++) grad[i] = (float)(i % 100003 + 5 * g->rank);
    gx_grads_tie(g, &s, 0, 1 - g->rank, 1, &vocab); // the upper stage takes the lower one's
    for (int64_t i = 0; i < ROWS * COLS && grad; i++) wrong += grad[i] != (float)(i % 100003);
    CHECK(wrong == 0, "%s: rank %d: %ld of the lower stage's are not here", c->what, g->rank, (long)wrong);
    gx_store_close(&s);
    gx_table_close(&table);
    g->mesh = mesh;
}

TEST(a_tensor_of_two_stages_is_added_up_in_pieces) { on_all_ranks(&large[1], 1, check_tie); }

// What a step before left behind, and nobody has written in this window, is a gradient of 0: on its own, or as a
// summand of what other ranks have written.
static void check_unwritten(GxContext *g, const Cut *c, GxStore *s)
{
    const float *cut = gx_store_grads(s, CUT), *norm = gx_store_grads(s, NORM);
    const GxTensorId id = {NORM};
    const int writes = g->rank == 0;
    int accumulate = 7;
    write_grads(g, s, summand);
    gx_store_begin_window(s);
    if (writes) {
        float *grad = gx_store_grad(s, id, &accumulate);
        CHECK(accumulate == 0, "%s: the first to come adds", c->what);
        for (int i = 0; i < 7; i++) grad[i] = (float)i;
    }
    gx_grads_reduce(g, s, 0, 2);
    for (int64_t i = 0; i < gx_tensor_count(&s->table->row[0]); i++)
        CHECK(cut[i] == 0, "%s: rank %d, element %ld is %g", c->what, g->rank, (long)i, cut[i]);
    for (int i = 0; i < 7; i++) CHECK(norm[i] == (float)i, "%s: rank %d, norm[%d] is %g", c->what, g->rank, i, norm[i]);
    write_grads(g, s, summand);
    gx_store_begin_window(s); // without a reduction the norm finds them itself
    sum_squares(g, s, 1);
    CHECK(g->step->sum_squares == 0, "%s: rank %d: %g of gradients that nobody has written", c->what, g->rank,
          g->step->sum_squares);
}

TEST(a_gradient_that_nobody_has_written_is_0)
{
    for (int i = 0; i < CUTS; i++)
        for (int dp = 1; dp <= 2; dp++) on_all_ranks(&cuts[i], dp, check_unwritten);
}

// ---- boxes ---------------------------------------------------------------------------------------------------------

static float value_at(int64_t index) { return (float)(index % 16000000); }

// To member 0 in as many chunks as it takes, from there to all, and into boxes again. What is nobody's to give (a
// higher sharer's) is spoilt first.
static void check_boxes(GxContext *g, const Cut *c, GxStore *store)
{
    const GxTable *table = store->table;
    const GxTensor *t = &table->row[0];
    const int me = gx_group_index(g, GX_AXIS_TP);
    const int64_t n = gx_tensor_count(t), row = gx_box_row(t), chunk = gx_box_rows(t);
    float *box = (float *)malloc((size_t)n * sizeof *box), *back = (float *)calloc((size_t)n, sizeof *back);
    float *whole = (float *)malloc((size_t)gx_tensor_global_count(t) * sizeof *whole);
    void *scratch = gx_scratch(g, GX_MEM_WORKSPACE, gx_boxes_scratch(table));
    int64_t chunks = 0, wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t index = gx_tensor_global_index(t, i);
        int lower = 0;
        for (int m = 0; m < me; m++) lower |= has(c, m, index);
        box[i] = lower ? -1 : value_at(index);
    }
    for (int64_t first = 0; first < t->global_shape[0]; first += chunk, chunks++) {
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        const float *some = gx_box_gather(g, t, box, first, rows, scratch);
        if (me == 0) memcpy(whole + first * row, some, (size_t)(rows * row) * sizeof *whole);
    }
    gx_broadcast(g, GX_AXIS_TP, 0, whole, gx_tensor_global_count(t), GX_F32);
    for (int64_t i = 0; i < gx_tensor_global_count(t); i++) wrong += whole[i] != value_at(i);
    CHECK(wrong == 0, "%s: rank %d: %ld elements of the whole are wrong", c->what, g->rank, (long)wrong);
    for (int64_t first = 0; first < t->global_shape[0]; first += chunk) { // of a chunk, nothing else is there
        const int64_t rows = gx_min(chunk, t->global_shape[0] - first);
        float *some = (float *)malloc((size_t)(2 * rows * row) * sizeof *some);
        memcpy(some, whole + first * row, (size_t)(rows * row) * sizeof *some);
        gx_box_take(g, t, back, first, rows, some);
        free(some);
    }
    for (int64_t i = 0; i < n; i++) wrong += back[i] != value_at(gx_tensor_global_index(t, i));
    CHECK(wrong == 0, "%s: rank %d: %ld elements of the box are wrong", c->what, g->rank, (long)wrong);
    CHECK(c->rows * row < 1 << 20 || chunks > 1, "%s: one chunk", c->what);
    free(box), free(back), free(whole);
}

TEST(boxes_make_the_whole_and_the_whole_makes_boxes)
{
    static const Cut large[] = {
        {"many rows", 3001, 700, 0, 3, {{0, 1500}, {1000, 1499 + 2}, {1400, 3001}}},
        {"many columns", 1700, 1301, 1, 3, {{0, 3}, {3, 1300}, {1300, 1301}}},
        {"rows longer than a chunk", 3, (1 << 20) + 5, 0, 3, {{0, 1}, {0, 2}, {1, 3}}},
    };
    for (int i = 0; i < CUTS; i++)
        if (cuts[i].dim >= 0) on_all_ranks(&cuts[i], 1, check_boxes);
    for (int i = 0; i < 3; i++) on_all_ranks(&large[i], 1, check_boxes);
}

TEST(parts_that_leave_gaps_or_overlap_in_columns_are_refused)
{
    static const Cut wrong[] = {
        {"a gap", 12, 5, 0, 2, {{0, 5}, {6, 12}}},           {"no beginning", 12, 5, 0, 2, {{1, 5}, {5, 12}}},
        {"no end", 12, 5, 0, 2, {{0, 5}, {5, 11}}},          {"downwards", 12, 5, 0, 2, {{5, 12}, {0, 5}}},
        {"an empty part", 12, 5, 0, 2, {{0, 0}, {0, 12}}},   {"columns that overlap", 12, 5, 1, 2, {{0, 3}, {2, 5}}},
        {"somebody else's", 12, 5, 0, 2, {{0, 6}, {6, 12}}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const Cut *c = &wrong[i];
        GxTable table = GX_ZERO;
        GxTensor t = GX_ZERO;
        GxError err = GX_ZERO;
        snprintf(t.name, sizeof t.name, "cut");
        t.ndim = 2;
        t.global_shape[0] = t.end[0] = c->rows, t.global_shape[1] = t.end[1] = c->cols;
        t.begin[c->dim] = c->parts[0].begin, t.end[c->dim] = c->parts[0].end;
        if (i == 6) t.begin[0] = 1; // not the part of anybody
        t.split_dim = c->dim, t.n_parts = c->ranks, t.parts = c->parts;
        CHECK(gx_table_add(&table, &t, &err).index < 0 && strstr(err.message, "cut"), "%s: %s", c->what, err.message);
        gx_table_close(&table);
    }
}

int main(int argc, char **argv) { return test_main(argc, argv); }
