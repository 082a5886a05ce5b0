// test_demands.cu: every collective of a window, against what the layouts demand: on every rank the same list in the
// same order, and all bytes. The recording is of a real run on the threads engine; the dry run that plans memory must
// record the same.
#define TEST_STEPS 1 // the first window is what is looked at
#include "test/subjects.h"

static const Layout shapes[] = {
    {.what = "2 ranks", .dp = 1, .tp = 2, .micro = 1, .samples = {2}},
    {.what = "2 ranks, heads 4,2, tied, two micro-batches",
     .dp = 1,
     .tp = 2,
     .micro = 2,
     .samples = {3},
     .heads = {4, 2},
     .columns = {30, 10},
     .tied = 1},
    {.what = "3 ranks, heads 1,3,2, tokens 1,5,2, three micro-batches",
     .dp = 1,
     .tp = 3,
     .micro = 3,
     .samples = {2},
     .heads = {1, 3, 2},
     .columns = {5, 20, 15},
     .sequence = {1, 5, 2}},
    {.what = "4 ranks, heads 1,1,3,1, tokens 2,1,4,1, tied",
     .dp = 1,
     .tp = 4,
     .micro = 1,
     .samples = {2},
     .heads = {1, 1, 3, 1},
     .columns = {10, 3, 20, 7},
     .sequence = {2, 1, 4, 1},
     .tied = 1},
    {.what = "dp 2 x 2 ranks, tied", .dp = 2, .tp = 2, .micro = 1, .samples = {1, 2}, .tied = 1},
    {.what = "dp 2 x 2 ranks, heads 5,1, tokens 7,1, two micro-batches",
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .samples = {3, 1},
     .heads = {5, 1},
     .columns = {33, 7},
     .sequence = {7, 1}},
    {.what = "dp 2 x 3 ranks, heads 1,4,1, tokens 6,1,1, two micro-batches",
     .dp = 2,
     .tp = 3,
     .micro = 2,
     .samples = {1, 2},
     .heads = {1, 4, 1},
     .columns = {1, 38, 1},
     .sequence = {6, 1, 1}},
    {.what = "3 ranks, normed heads 1,3,2, tokens 1,5,2",
     .dp = 1,
     .tp = 3,
     .micro = 1,
     .samples = {2},
     .heads = {1, 3, 2},
     .sequence = {1, 5, 2},
     .normed = 1},
    {.what = "dp 2 x 2 ranks, normed heads, tied, two micro-batches",
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .samples = {1, 2},
     .tied = 1,
     .normed = 1},
};
static const Layout data_parallel[] = {
    // one rank to a tp group
    {.what = "1 rank", .dp = 1, .tp = 1, .micro = 2, .samples = {2}},
    {.what = "dp 3, 1, 3 and 2 samples", .dp = 3, .tp = 1, .micro = 1, .samples = {1, 3, 2}},
    {.what = "dp 2, two micro-batches", .dp = 2, .tp = 1, .micro = 2, .samples = {2, 1}},
    {.what = "dp 4, tied, three micro-batches", .dp = 4, .tp = 1, .micro = 3, .samples = {1, 1, 2, 1}, .tied = 1},
};
enum {
    SHAPES = sizeof shapes / sizeof *shapes,
    DATA_PARALLEL = sizeof data_parallel / sizeof *data_parallel,
    MOST = 400,
    MOVES = 100
};

// ---- what one rank's window must be --------------------------------------------------------------------------------

typedef struct {
    const char *name, *site;
    int unit, axes;
    int64_t bytes; // collectives: of all ranks of the group together; transfers: of this rank
} Expected;

typedef struct {
    const GxMesh *mesh;
    Expected list[MOST];
    int n;
} Expectation;

// A group of one records nothing.
static void expect(Expectation *e, const char *name, const char *site, int unit, int axes, int64_t bytes)
{
    const Expected x = {name, site, unit, gx_mesh_axes(e->mesh, axes), bytes};
    if (gx_mesh_size(e->mesh, axes) > 1 && e->n < MOST) e->list[e->n++] = x;
}

// Each of n ranks sends n - 1 pieces of what it has, and its own piece of the sum to n - 1.
static void expect_sum(Expectation *e, const char *site, int axes, int64_t bytes)
{
    expect(e, "all_reduce", site, -1, axes, 2 * (gx_mesh_size(e->mesh, axes) - 1) * bytes);
}

// Rows of the first window's micro-batch i that the head of data-parallel copy `copy` works on.
static int64_t head_rows(const Layout *l, int copy, int i)
{
    static int32_t tokens[(TEST_ARRAYS + 2) * MAX_MICRO * T * MAX_COLUMNS];
    GxBatch batch[MAX_MICRO];
    int64_t begin = 0;
    for (int r = 0; r < copy; r++) begin += l->samples[r];
    fill_window(l, 0, begin, l->samples[copy], l->micro, batch, tokens);
    return gx_target_n(&batch[i], 0);
}

// With adapters alone the backward ends behind the attention of the first layer. A window's demands go up the units,
// and down again.
static int is_below_adapters(const Layout *l, const GxDemand *demand, int i)
{
    int is_back = 0;
    for (int k = 0; k < i; k++) is_back |= demand[k].unit == LAYERS + 1 || demand[k].unit > demand[k + 1].unit;
    return l->bottleneck && is_back &&
           (demand[i].unit == 0 || (demand[i].unit == 1 && !strncmp(demand[i].site, "att", 3)));
}

static void expect_demand(Expectation *e, const Layout *l, const GxDemand *d, int unit)
{
    expect(e, gx_move_name(d->kind), d->site, unit, GX_AXIS_TP, gx_demand_bytes(d, l->tp));
}

// The half of a layer's demands that are of its forward, which are the first, or of its backward.
static void expect_half(Expectation *e, const Layout *l, const GxDemand *demand, int n, int layer, int is_back,
                        int unit)
{
    int of_layer = 0, seen = 0;
    for (int i = 0; i < n; i++) of_layer += demand[i].unit == layer;
    CHECK(of_layer % 2 == 0, "%s: %d demands of layer %d", l->what, of_layer, layer);
    for (int i = 0; i < n; i++)
        if (demand[i].unit == layer && (seen++ >= of_layer / 2) == is_back) expect_demand(e, l, &demand[i], unit);
}

static int64_t side_head(const Layout *l) // columns of a side layer's head
{
    return gx_round_up(gx_ceil_div(model_config.head_dim, test_sides[l->side - 1].reduction), 2);
}

// Embedding 0, Down alone 1, then a layer and its side layer in turn, the head. Of the model only its forward and its
// head; of the side network what a model as narrow would demand.
static void expect_beside(Expectation *e, const Layout *l, const GxDemandShape *shape, const GxDemand *demand, int n)
{
    GxDemandShape narrow = *shape;
    GxDemand side[MOVES];
    narrow.width /= test_sides[l->side - 1].reduction;
    narrow.kv_width = model_config.num_key_value_heads * side_head(l);
    const int m = gx_demands(l->mode->methods, &narrow, side, MOVES);
    for (int i = 0; i < n && demand[i].unit == 0; i++) expect_demand(e, l, &demand[i], 0);
    for (int layer = 1; layer <= LAYERS; layer++) {
        expect_half(e, l, demand, n, layer, 0, 2 * layer);
        expect_half(e, l, side, m, layer, 0, 2 * layer + 1);
    }
    for (int i = 0; i < n; i++)
        if (demand[i].unit == LAYERS + 1) expect_demand(e, l, &demand[i], 2 * LAYERS + 2);
    for (int layer = LAYERS; layer > 0; layer--) expect_half(e, l, side, m, layer, 1, 2 * layer + 1);
}

static void expect_micro_batch(Expectation *e, const Layout *l, int copy, int micro)
{
    const GxLlamaConfig *c = &model_config;
    const GxDemandShape shape = {(int)c->num_hidden_layers,
                                 T * l->samples[copy],
                                 c->hidden_size,
                                 head_rows(l, copy, micro),
                                 c->num_key_value_heads * c->head_dim,
                                 HEAD_CHUNK};
    GxDemand demand[MOVES];
    const int n = gx_demands(l->mode->methods, &shape, demand, MOVES);
    CHECK(n <= MOVES, "%s: %d demands", l->what, n);
    if (l->side) expect_beside(e, l, &shape, demand, n);
    for (int i = 0; i < n && !l->side; i++)
        if (!is_below_adapters(l, demand, i)) expect_demand(e, l, &demand[i], demand[i].unit);
}

static int has_gradient(const GxTensor *t) { return !t->frozen && !t->has_alias; }

// 1: every gradient of the row's unit is summed over tp, so that they have one sum over all axes.
static int is_alike(const GxTable *t, int row)
{
    int alike = 1;
    for (int i = 0; i < t->n; i++)
        if (t->row[i].unit == t->row[row].unit && !t->row[i].has_alias)
            alike &= !t->row[i].parts && (!has_gradient(&t->row[i]) || t->row[i].sums_over_tp);
    return alike;
}

static int axes_of(const GxTable *t, int row, int is_last)
{
    if (is_last) return is_alike(t, row) ? GX_AXIS_LOSS | GX_AXIS_TP : GX_AXIS_LOSS;
    return t->row[row].sums_over_tp && !is_alike(t, row) ? GX_AXIS_TP : 0;
}

// The sums over tp, then those over the loss's axes: neighbours in the table that are summed over the same axes make
// one collective, with the gaps between them.
static void expect_grads(Expectation *e, const TestModel *m, const char *site, int is_last)
{
    const GxTable *t = &m->m.table;
    for (int i = 0, next; i < t->n; i = next) {
        int last = i;
        next = i + 1;
        if (!has_gradient(&t->row[i])) continue;
        for (; next < t->n; next++) {
            if (!has_gradient(&t->row[next])) continue;
            if (axes_of(t, next, is_last) != axes_of(t, i, is_last)) break;
            last = next;
        }
        const int64_t end = test_flat(m, last) + gx_tensor_count(&t->row[last]);
        expect_sum(e, site, axes_of(t, i, is_last), 4 * (end - test_flat(m, i)));
    }
}

// The K,V heads that rank r of a tp group uses: query head h uses h / 2.
static GxRange kv_heads(const Layout *l, int r)
{
    const int64_t H = model_config.num_attention_heads, group = H / model_config.num_key_value_heads;
    GxSplit heads = gx_split_even(H, l->tp);
    for (int i = 0; l->heads[0] && i < l->tp; i++) heads.begin[i + 1] = heads.begin[i] + l->heads[i];
    GxRange kv = {heads.begin[r] / group, (heads.begin[r + 1] - 1) / group + 1};
    return kv;
}

// Weights k and v of each layer: the heads that two ranks share go both ways.
static void expect_shared_grads(Expectation *e, const Layout *l)
{
    const int64_t head = l->side ? side_head(l) * (model_config.hidden_size / test_sides[l->side - 1].reduction) * 4
                                 : model_config.head_dim * model_config.hidden_size * 4;
    const int me = gx_mesh_index(e->mesh, GX_AXIS_TP);
    const GxRange mine = kv_heads(l, me);
    for (int weight = 0; weight < 2 * LAYERS; weight++)
        for (int r = 0; r < l->tp; r++) {
            const GxRange theirs = kv_heads(l, r),
                          both = {gx_max(mine.begin, theirs.begin), gx_min(mine.end, theirs.end)};
            if (r == me || !gx_range_count(both)) continue;
            expect(e, "send", "shared_grads", -1, GX_AXIS_TP, gx_range_count(both) * head);
            expect(e, "recv", "shared_grads", -1, GX_AXIS_TP, 0);
        }
}

// One window: whatever the number of its micro-batches, gradients are synchronised once.
static void expect_window(Expectation *e, const Layout *l, const Result *r, int copy)
{
    e->mesh = &r->model->mesh;
    e->n = 0;
    expect_sum(e, "window", GX_AXIS_ALL, (GX_MAX_LOSSES + 1) * 8); // labels and the stop flag
    for (int i = 0; i < l->micro; i++) expect_micro_batch(e, l, copy, i);
    if (l->mode->methods.att == GX_METHOD_TP && !l->bottleneck) expect_shared_grads(e, l);
    expect_grads(e, r->model, "shared_grads", 0);
    expect_grads(e, r->model, "grads", 1);
    expect_sum(e, "norm", GX_AXIS_TP, 8);
    expect_sum(e, "loss", GX_AXIS_ALL, GX_MAX_LOSSES * 8);
}

// ---- what was recorded ---------------------------------------------------------------------------------------------

typedef struct {
    const GxEvent *list[MOST];
    int n;
} Recorded;

static Recorded collectives_of(const GxRecorder *r)
{
    Recorded c;
    c.n = 0;
    CHECK(!r->lost, "the recorder ran out of memory");
    for (int64_t i = 0; i < r->n; i++)
        if (r->event[i].kind == GX_EVENT_COLLECTIVE && CHECK(c.n < MOST, "more than %d collectives", MOST))
            c.list[c.n++] = &r->event[i];
    return c;
}

static int is_transfer(const GxEvent *e) { return !strcmp(e->name, "send") || !strcmp(e->name, "recv"); }

static int is_of(const GxEvent *e, int axes) { return e->axes == axes && !is_transfer(e); }

// What the group sends in the collective that is number i of one of its ranks: the nth of this group on all of them.
static int64_t bytes_of_group(const Recorded *recorded, const GxMesh *mesh, int i)
{
    int ranks[MAX_RANKS], nth = 0;
    int64_t bytes = 0;
    const Recorded *mine = &recorded[mesh->rank];
    const int axes = mine->list[i]->axes, n = gx_mesh_group(mesh, axes, ranks, MAX_RANKS, NULL);
    for (int k = 0; k < i; k++) nth += is_of(mine->list[k], axes);
    for (int r = 0; r < n; r++) {
        const Recorded *other = &recorded[ranks[r]];
        for (int k = 0, seen = 0; k < other->n; k++)
            if (is_of(other->list[k], axes) && seen++ == nth) bytes += other->list[k]->bytes;
    }
    return bytes;
}

static void check_rank(const Layout *l, int rank, const Recorded *recorded, const Expectation *e)
{
    const Recorded *mine = &recorded[rank];
    for (int i = 0; i < mine->n && i < e->n; i++) {
        const GxEvent *found = mine->list[i];
        const Expected *x = &e->list[i];
        const int same = !strcmp(found->name, x->name) && !strcmp(found->site, x->site) && found->unit == x->unit &&
                         found->axes == x->axes;
        if (!CHECK(same,
                   "%s: rank %d: collective %d is %s at %s of unit %d over axes %d; the layouts demand %s at %s of "
                   "unit %d over axes %d",
                   l->what, rank, i, found->name, found->site, found->unit, found->axes, x->name, x->site, x->unit,
                   x->axes))
            return;
        const int64_t bytes = is_transfer(found) ? found->bytes : bytes_of_group(recorded, e->mesh, i);
        CHECK(bytes == x->bytes, "%s: rank %d: collective %d, %s at %s of unit %d: %ld bytes, expected %ld", l->what,
              rank, i, x->name, x->site, x->unit, (long)bytes, (long)x->bytes);
    }
    CHECK(mine->n == e->n, "%s: rank %d: %d collectives, the layouts demand %d", l->what, rank, mine->n, e->n);
}

static int64_t bytes_at(const Recorded *recorded, int first_rank, int ranks, const char *door)
{
    int64_t bytes = 0;
    for (int r = first_rank; r < first_rank + ranks; r++)
        for (int i = 0; i < recorded[r].n; i++) {
            const char *site = recorded[r].list[i]->site;
            const size_t n = strlen(site), m = strlen(door);
            if (n >= m && !strcmp(site + n - m, door)) bytes += recorded[r].list[i]->bytes;
        }
    return bytes;
}

// What a tp group sends in a micro-batch, as it was published (docs/modes.md), in half-collectives of [T*B, C]: at the
// doors of a layer, at those of both ends together, and inside a layer's attention.
static void check_published(const Layout *l, const Recorded *recorded, int64_t B, int first_rank)
{
    const double kv =
        2.0 * (double)(model_config.num_key_value_heads * model_config.head_dim) / (double)model_config.hidden_size;
    const struct {
        const char *mode;
        double layer, ends, inside;
    } published[] = {{"tp", 8, 4, 0}, {"galaxy", 8, 4, 0}, {"galaxy2", 4, 4, 0}, {"sp", 0, 0, 2 * kv}};
    const double half = (double)((l->tp - 1) * l->micro * T * B * model_config.hidden_size * 4);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        if (strcmp(published[i].mode, l->mode->name)) continue;
        const double doors = (published[i].layer * LAYERS + published[i].ends) * half,
                     inside = published[i].inside * LAYERS * half;
        const int64_t at_doors = bytes_at(recorded, first_rank, l->tp, "_entry") +
                                 bytes_at(recorded, first_rank, l->tp, "_exit"),
                      at_inside = bytes_at(recorded, first_rank, l->tp, "att_inside");
        CHECK((double)at_doors == doors && (double)at_inside == inside,
              "%s: %ld bytes at the doors of cores and %ld inside attention, published are %.0f and %.0f", l->what,
              (long)at_doors, (long)at_inside, doors, inside);
    }
}

static void check_layout(const Layout *l)
{
    Rank rank[MAX_RANKS];
    Recorded recorded[MAX_RANKS];
    static Expectation e;
    run_ranks(l, rank);
    for (int r = 0; r < l->dp * l->tp; r++) recorded[r] = collectives_of(&rank[r].result.window);
    for (int r = 0; r < l->dp * l->tp; r++) {
        const int64_t B = l->samples[r / l->tp];
        CHECK(!rank[r].result.error[0], "%s: rank %d: %s", l->what, r, rank[r].result.error);
        expect_window(&e, l, &rank[r].result, r / l->tp);
        check_rank(l, r, recorded, &e);
        if (r % l->tp == 0 && !test_subject && !l->bottleneck && !l->side) check_published(l, recorded, B, r);
    }
    free_ranks(l, rank);
}

TEST(data_parallelism_synchronises_once_per_window_and_communicates_nothing_else)
{
    for (int i = 0; i < DATA_PARALLEL; i++) {
        const Layout l = test_layout(&test_serial, &data_parallel[i]);
        check_layout(&l);
    }
}

// A LLaMA in which `what` is set: in every mode and shape that a diagonal has, and in the triples, shapes in turn.
static void check_layouts(Layout what, int turn)
{
    for (int i = 0; i < SHAPES * (MODES - 1); i++) {
        Layout l = test_layout(test_modes[1 + i / SHAPES], &shapes[i % SHAPES]);
        l.bottleneck = what.bottleneck, l.side = what.side;
        if (test_diagonal(turn, i / SHAPES, MODES - 1, i % SHAPES, SHAPES)) check_layout(&l);
    }
    for (int i = 0; i < TRIPLES; i++) {
        Layout l = test_layout(&test_triples[i], &shapes[i % SHAPES]);
        l.bottleneck = what.bottleneck, l.side = what.side ? 2 : 0;
        if (test_diagonal(turn, i, TRIPLES, 0, 2)) check_layout(&l);
    }
}

TEST(every_mode_communicates_what_its_layouts_demand)
{
    for (int i = 0; i < SHAPES * (MODES - 1); i++) {
        const Layout l = test_layout(test_modes[1 + i / SHAPES], &shapes[i % SHAPES]);
        check_layout(&l);
    }
}

TEST(all_18_triples_of_methods_communicate_what_their_layouts_demand)
{
    for (int i = 0; i < TRIPLES; i++)
        for (int k = 0; k < 2; k++) { // shapes in turn
            const Layout l = test_layout(&test_triples[i], &shapes[(2 * i + k) % SHAPES]);
            check_layout(&l);
        }
}

TEST(a_head_of_picked_rows_communicates_these_alone)
{
    test_subject = &texts;
    check_layouts((Layout){.what = "texts"}, 0);
    test_subject = NULL;
}

TEST(adapters_communicate_what_the_layouts_demand_down_to_the_lowest_of_them)
{
    check_layouts((Layout){.bottleneck = 1}, 1);
}

TEST(a_side_network_communicates_what_its_layouts_demand_and_the_model_beside_it_forward_alone)
{
    check_layouts((Layout){.side = 1}, 2);
}

// ---- the dry run ---------------------------------------------------------------------------------------------------

// The window of a rank once more, on the device that does not compute, without an engine. The arena that counts lies
// where the real one is: the model's buffers are inside.
static void record_dry(const Layout *l, const Result *r, int rank, GxRecorder *recorder)
{
    TestModel *t = r->model;
    GxContext dry = t->g;
    GxDevice none = gx_device_none(t->g.device);
    GxArena arena = t->arena, host;
    GxComm nobody = GX_ZERO;
    GxBatch batch[MAX_MICRO];
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < l->micro; i++) {
        batch[i].T = T, batch[i].B = l->samples[rank / l->tp], batch[i].runs = gx_runs_one(T, 0);
        batch[i].tokens = batch[i].target[0].labels = t->tokens;
    }
    arena.dry = 1, arena.capacity = INT64_MAX / 2;
    gx_arena_open_dry(&host);
    dry.device = &none, dry.arena = &arena, dry.recorder = recorder;
    dry.host = none.shares_host_memory ? NULL : &host;
    nobody.rank = rank, nobody.world = l->dp * l->tp;
    gx_comm_open(&dry, &nobody);
    t->o.kind = GX_OPTIMIZER_SGD;
    gx_runner_train(&dry, &t->r, batch, NULL, NULL);
    gx_comm_close(&dry);
    CHECK(!gx_failed(&dry), "%s: rank %d, dry: %s", l->what, rank, dry.error.message);
}

static int same_event(const GxEvent *a, const GxEvent *b)
{
    return a->kind == b->kind && !strcmp(a->name, b->name) && !strcmp(a->site ? a->site : "", b->site ? b->site : "") &&
           a->unit == b->unit && a->axes == b->axes && a->bytes == b->bytes && a->flops == b->flops &&
           !memcmp(&a->dims, &b->dims, sizeof a->dims) && a->elements == b->elements && a->dtype == b->dtype &&
           a->members == b->members && a->ticket == b->ticket;
}

static void check_dry(const Layout *l)
{
    Rank rank[MAX_RANKS];
    run_ranks(l, rank);
    for (int r = 0; r < l->dp * l->tp; r++) {
        const GxRecorder *real = &rank[r].result.window;
        GxRecorder dry = GX_ZERO;
        record_dry(l, &rank[r].result, r, &dry);
        check_waits(l->what, r, real);
        CHECK(dry.n == real->n && dry.comm_bytes == real->comm_bytes && dry.bytes == real->bytes &&
                  dry.flops == real->flops,
              "%s: rank %d: %ld events and %ld bytes sent, dry %ld and %ld", l->what, r, (long)real->n,
              (long)real->comm_bytes, (long)dry.n, (long)dry.comm_bytes);
        for (int64_t k = 0; k < dry.n && k < real->n; k++)
            if (!CHECK(same_event(&dry.event[k], &real->event[k]),
                       "%s: rank %d: event %ld is %s at %s of unit %d, dry %s at %s of unit %d", l->what, r, (long)k,
                       real->event[k].name, real->event[k].site, real->event[k].unit, dry.event[k].name,
                       dry.event[k].site, dry.event[k].unit))
                break;
        gx_recorder_close(&dry);
    }
    free_ranks(l, rank);
}

TEST(a_dry_run_records_the_operations_collectives_and_bytes_of_the_real_one)
{
    for (int i = 0; i < DATA_PARALLEL; i++) {
        const Layout l = test_layout(&test_serial, &data_parallel[i]);
        check_dry(&l);
    }
    for (int i = 0; i < 3 * (MODES - 1 + TRIPLES); i++) {
        const int mode = i / 3, kind = i % 3;
        Layout l = test_layout(mode < MODES - 1 ? test_modes[1 + mode] : &test_triples[mode - (MODES - 1)],
                               &shapes[(3 * mode + 2) % SHAPES]);
        l.bottleneck = kind == 1, l.side = kind == 2 ? 2 : 0;
        if (test_diagonal(0, mode, MODES - 1 + TRIPLES, kind, 3)) check_dry(&l);
    }
}

static double no_clock(void *user)
{
    (void)user;
    return 0;
}
static void count_event(void *user, const GxEvent *e, double seconds)
{
    (void)e, (void)seconds;
    ++*(int64_t *)user;
}

// A window of `micro` micro-batches as the plan records it, or, event by event, the long way. Returns how many events
// were recorded.
static int64_t record_sums(const Layout *l, const Result *r, int rank, int micro, int totals_only, GxRecorder *recorder)
{
    TestModel *t = r->model;
    GxContext dry = t->g;
    GxDevice none = gx_device_none(t->g.device);
    GxArena arena, host;
    GxComm nobody = GX_ZERO;
    GxRunner runner;
    GxRunnerSpec spec = t->request.spec;
    GxStep step = GX_ZERO;
    GxBatch batch[8];
    const int64_t B = l->samples[rank / l->tp % l->dp];
    int64_t events = 0;
    memset(batch, 0, sizeof batch), memset(recorder, 0, sizeof *recorder);
    for (int i = 0; i < micro; i++) {
        batch[i].T = T, batch[i].B = B, batch[i].runs = gx_runs_one(T, 0);
        batch[i].tokens = batch[i].target[0].labels = t->tokens;
    }
    recorder->totals_only = totals_only;
    recorder->clock = no_clock, recorder->timed = count_event, recorder->user = &events;
    gx_arena_open_dry(&arena), gx_arena_open_dry(&host);
    dry.device = &none, dry.arena = &arena, dry.recorder = recorder, dry.step = &step;
    dry.host = none.shares_host_memory ? NULL : &host;
    nobody.rank = rank, nobody.world = ranks_of(l);
    gx_comm_open(&dry, &nobody);
    spec.micro_batches = micro;
    gx_runner_open(&dry, &runner, &t->m, &t->o, &spec);
    gx_runner_allocate(&dry, &runner, T, B, HEAD_CHUNK);
    gx_runner_train(&dry, &runner, batch, NULL, NULL);
    gx_recorder_settle(recorder);
    CHECK(!gx_failed(&dry), "%s: rank %d, dry: %s", l->what, rank, dry.error.message);
    gx_runner_close(&runner);
    gx_comm_close(&dry);
    return events;
}

// Whatever is between the first and the last is alike; of how many there are, the plan takes no longer.
TEST(the_plan_of_a_window_is_that_of_its_micro_batches_one_by_one_in_the_time_of_three)
{
    static const int16_t stage[3] = {0, 2, LAYERS + 2};
    for (int i = 0; i < MODES + 4; i++) {
        const int is_pipeline = i >= MODES + 2;
        Layout l = i == 0 || is_pipeline ? test_layout(&test_serial, &data_parallel[0])
                                         : test_layout(test_modes[gx_min(i, MODES - 1)], &shapes[i % SHAPES]);
        l.bottleneck = i == MODES, l.side = i == MODES + 1, l.pp = is_pipeline ? 2 : 0;
        if (is_pipeline) test_request.spec.stage = stage;
        if (i == MODES + 3) test_request.spec.order = GX_ORDER_ZB1P, test_request.spec.defers_weights = 1;
        Rank rank[MAX_RANKS];
        run_ranks(&l, rank);
        for (int r = 0; r < ranks_of(&l); r++) {
            int64_t three = 0;
            for (int micro = 1; micro <= 8; micro += 1 + (micro > 4)) {
                GxRecorder whole, sums;
                const int64_t all = record_sums(&l, &rank[r].result, r, micro, 0, &whole),
                              some = record_sums(&l, &rank[r].result, r, micro, 1, &sums);
                CHECK(whole.n == all && all > 0 && sums.flops == whole.flops && sums.bytes == whole.bytes &&
                          sums.comm_bytes == whole.comm_bytes,
                      "%s: rank %d, %d micro-batches: %g FLOPs, %g bytes, %ld sent; one by one %g, %g, %ld", l.what, r,
                      micro, sums.flops, sums.bytes, (long)sums.comm_bytes, whole.flops, whole.bytes,
                      (long)whole.comm_bytes);
                if (micro == 3) three = some;
                CHECK(micro <= 3 ? some == all : some == three, "%s: %d micro-batches: %ld events of %ld", l.what,
                      micro, (long)some, (long)all);
                gx_recorder_close(&whole), gx_recorder_close(&sums);
            }
        }
        free_ranks(&l, rank);
    }
    memset(&test_request, 0, sizeof test_request);
}

int main(int argc, char **argv)
{
    test_sgd_alone = 1;
    return test_main(argc, argv);
}
