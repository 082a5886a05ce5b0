// test_ragged.cu: pipelines whose tp groups have different sizes, or split the model by lists of their own: 3 machines
// as 2 + 1. Losses, norms, gradients, weights and moments are serial's, within the bounds of any other topology, in
// every mode and triple of methods, order, family and tuning; what two stages have of one tensor stays one, bit for
// bit. Which messages there are, and in which meshes.
#include "test/subjects.h"

typedef struct {
    const char *what;
    int pp, width[4], tp; // width: none: pp x tp
    int16_t stage[5];     // in halves of a layer of a model of 2: the embedding 0, 1; layers 2 to 5; the head 6, 7
    int64_t heads[6], columns[6], vocab[6], sequence[6];
} Shape;

static const Shape shapes[] = {
    {.what = "2+1", .pp = 2, .width = {2, 1}, .stage = {0, 4, 8}},
    {.what = "1+2", .pp = 2, .width = {1, 2}, .stage = {0, 4, 8}},
    {.what = "2+1, lists",
     .pp = 2,
     .width = {2, 1},
     .stage = {0, 6, 8},
     .heads = {5, 1, 6},
     .columns = {33, 7, 40},
     .vocab = {20, 41, 61},
     .sequence = {3, 5, 8}},
    {.what = "3+1+2, lists",
     .pp = 3,
     .width = {3, 1, 2},
     .stage = {0, 3, 5, 8},
     .heads = {1, 3, 2, 6, 4, 2},
     .columns = {5, 20, 15, 40, 11, 29},
     .vocab = {40, 1, 20, 61, 30, 31},
     .sequence = {1, 5, 2, 8, 6, 2}},
    {.what = "2+2+1", .pp = 3, .width = {2, 2, 1}, .stage = {0, 3, 5, 8}},
    {.what = "2x2, own lists",
     .pp = 2,
     .tp = 2,
     .stage = {0, 4, 8},
     .heads = {5, 1, 2, 4},
     .columns = {33, 7, 10, 30},
     .vocab = {20, 41, 50, 11},
     .sequence = {3, 5, 6, 2}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct { // what is trained on a shape
    const char *what;
    TestSubject *subject; // NULL: a LLaMA
    const char *freeze;
    int tied, lora, bottleneck, side, prompt, quantize;
    int order, recomputes;
    int bucket, starts_sums;
    GxDtype dtype;
} Way;

// Units of the model: between embedding and head layers, or of a side network Down alone, layers and side layers.
static void cut(const Shape *s, int has_side, int16_t stage[6])
{
    const int units = has_side ? 2 * LAYERS + 3 : LAYERS + 2;
    for (int i = 0; i <= s->pp; i++) stage[i] = (int16_t)((s->stage[i] * units + 4) / 8);
}

static Layout layout_of(const Shape *s, const Way *w, const GxMode *mode)
{
    Layout l;
    memset(&l, 0, sizeof l);
    snprintf(l.what, sizeof l.what, "%s, %s, %s", mode->name, s->what, w->what);
    l.mode = mode, l.dp = 1, l.tp = (int)gx_max(s->tp, 1), l.micro = 2, l.samples[0] = 3;
    for (int i = 0; i < s->pp; i++) l.width[i] = s->width[i];
    l.own = 1;
    for (int i = 0; i < 6; i++)
        l.heads[i] = s->heads[i], l.columns[i] = s->columns[i], l.vocab[i] = s->vocab[i],
        l.sequence[i] = s->sequence[i];
    l.tied = w->tied, l.lora = w->lora, l.bottleneck = w->bottleneck, l.side = w->side, l.prompt = w->prompt;
    l.quantize = w->quantize;
    return l;
}

static void wish(const Way *w)
{
    memset(&test_request, 0, sizeof test_request);
    test_subject = w->subject, test_dtype = w->dtype;
    test_request.freeze = w->freeze;
    test_request.again = w->recomputes ? test_layers_again : NULL, test_request.spec.order = w->order;
    test_request.spec.defers_weights = gx_order_info(w->order)->has_halves;
    test_request.spec.bucket = w->bucket, test_request.spec.starts_sums = w->starts_sums;
}

static void forget(void)
{
    memset(&test_request, 0, sizeof test_request);
    test_subject = NULL, test_dtype = GX_F32;
}

// The row that has the values of the tensor on that rank: its own, or its copy; -1: none.
static int row_of(const Result *r, int i)
{
    const GxTable *t = &r->model->m.table;
    for (int k = 0; k < t->n; k++)
        if ((k == i || (t->row[k].has_alias && t->row[k].alias.index == i)) && test_flat(r->model, k) >= 0 &&
            !gx_store_is_alias(&r->model->m.store, k))
            return k;
    return -1;
}

// What two ranks both have of a tensor, as the tensor or as a copy of it on another stage, has the same bits. Returns
// how many numbers these are.
static int64_t check_same(const char *what, const Result *a, const Result *b)
{
    const GxTable *x = &a->model->m.table, *y = &b->model->m.table;
    int64_t n = 0;
    for (int i = 0; i < x->n; i++) {
        const int of_a = row_of(a, i), of_b = row_of(b, i);
        if (x->row[i].has_alias || of_a < 0 || of_b < 0) continue;
        const GxTensor *t = &x->row[of_a], *u = &y->row[of_b];
        const int64_t at = test_flat(a->model, of_a), there = test_flat(b->model, of_b);
        int same = 1;
        for (int64_t e = 0, f = 0; e < gx_tensor_count(t); e++) { // indices go up in both
            const int64_t index = gx_tensor_global_index(t, e);
            while (f < gx_tensor_count(u) && gx_tensor_global_index(u, f) < index) f++;
            if (f == gx_tensor_count(u) || gx_tensor_global_index(u, f) != index) continue;
            n++;
            for (int k = 0; k < BUFFERS; k++) same &= !memcmp(a->flat.all[k] + at + e, b->flat.all[k] + there + f, 4);
        }
        CHECK(same, "%s: two ranks have other bits of %s", what, t->name);
    }
    return n;
}

// The memory that a rank took is what the plan says, or less where heads pick fewer rows than they might.
static void check_plan(const Layout *l, int r, const TestModel *t)
{
    const GxArena *a = &t->arena;
    CHECK(test_subject ? a->peak <= a->capacity : a->peak == a->capacity,
          "%s: rank %d: the peak is %ld bytes, the plan %ld", l->what, r, (long)a->peak, (long)a->capacity);
}

static void check_run(const Layout *l, const Result *serial)
{
    Rank rank[MAX_RANKS];
    const int n = ranks_of(l);
    run_ranks(l, rank);
    const Worst w = compare_ranks(l, rank, serial);
    if (w.ratio > test_state.worst) test_state.worst = w.ratio;
    CHECK(w.ratio >= 0 && w.ratio <= 1, "%s: %s is %.3g times its bound away from serial", l->what, w.what, w.ratio);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            CHECK(!memcmp(rank[a].result.loss, rank[b].result.loss, sizeof rank[a].result.loss) &&
                      !memcmp(rank[a].result.norm, rank[b].result.norm, sizeof rank[a].result.norm),
                  "%s: ranks %d and %d have other losses or norms", l->what, a, b);
            check_same(l->what, &rank[a].result, &rank[b].result);
        }
    for (int r = 0; r < n; r++) check_plan(l, r, rank[r].result.model);
    for (int r = 0; r < n; r++) // the first stage and the last one know what the head wrote
        CHECK(test_dtype == GX_BF16 || rank[r].result.logits ||
                  (gx_mesh_pp_of(&rank[r].result.model->mesh, r) > 0 && !gx_has_head(&rank[r].result.model->g)),
              "%s: rank %d has no logits", l->what, r);
    free_ranks(l, rank);
}

static void check_way(const Shape *s, const Way *w, const GxMode *const *modes, int n)
{
    Result serial;
    int16_t stage[6];
    Layout l = layout_of(s, w, &test_serial);
    wish(w);
    run_serial(&l, &serial);
    cut(s, w->side, stage);
    test_request.spec.stage = stage;
    for (int i = 0; i < n; i++) {
        l = layout_of(s, w, modes[i]);
        l.pp = s->pp;
        check_run(&l, &serial);
    }
    free_result(&serial);
    forget();
}

TEST(stages_of_any_sizes_train_as_serial_in_every_mode)
{
    static const Way plain = {.what = "plain"}, tied = {.what = "tied", .tied = 1};
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < 2; k++)
            if (test_share(2 * i + k)) check_way(&shapes[i], k ? &tied : &plain, test_modes + 1, MODES - 1);
}

// Each triple of methods for ATT, CON and MLP on one of the shapes, the shapes in turn; with ends that do not follow.
TEST(stages_of_any_sizes_train_as_serial_in_every_triple)
{
    static const Way plain = {.what = "plain"}, tied = {.what = "tied", .tied = 1};
    static GxMode other_ends[2 * TRIPLES];
    const GxMode *of_shape[SHAPES][3 * TRIPLES];
    int n[SHAPES] = {0};
    for (int i = 0; i < TRIPLES - 1; i++) { // the last one splits nothing
        const GxMethods m = test_triples[i].methods;
        of_shape[i % SHAPES][n[i % SHAPES]++] = &test_triples[i];
        for (int k = 0; k < 2; k++) {
            GxMethods other = m;
            GxMode *mode = &other_ends[2 * i + k];
            other.ends = (GxMethod)((m.ends + 1 + k) % 3);
            *mode = gx_composed("other ends", other);
            of_shape[(i + 1 + 2 * k) % SHAPES][n[(i + 1 + 2 * k) % SHAPES]++] = mode;
        }
    }
    for (int s = 0; s < SHAPES; s++)
        if (test_share(s)) check_way(&shapes[s], s % 2 ? &tied : &plain, of_shape[s], n[s]);
}

// Whatever else there is: orders, families, tuning, precisions, sums that are started.
TEST(stages_of_any_sizes_train_whatever_others_do)
{
    static const struct {
        int shape;
        const GxMode *mode;
        Way way;
    } cases[] = {
        {0, &gx_tp, {.what = "gpipe, computed again", .order = GX_ORDER_GPIPE, .recomputes = 1}},
        {2, &gx_sp, {.what = "zb1p", .order = GX_ORDER_ZB1P}},
        {3, &gx_galaxy, {.what = "zb1p, computed again, tied", .order = GX_ORDER_ZB1P, .recomputes = 1, .tied = 1}},
        {3, &gx_galaxy2, {.what = "buckets that are started", .bucket = 1, .starts_sums = 1}},
        {3, &gx_sp, {.what = "buckets that are started, tied", .bucket = 1, .starts_sums = 1, .tied = 1}},
        {2, &gx_galaxy, {.what = "LoRA", .lora = 3}},
        {3, &gx_tp, {.what = "LoRA on the embedding", .lora = 5}},
        {1, &gx_galaxy2, {.what = "LoRA of ranks that differ", .lora = 14}},
        {2, &gx_sp, {.what = "LoRA on tied ends", .lora = 8, .tied = 1}},
        {3, &gx_tp, {.what = "QLoRA", .lora = 1, .quantize = 2}},
        {2, &gx_galaxy, {.what = "adapters and norms", .bottleneck = 2}},
        {3, &gx_galaxy, {.what = "a gated side network", .side = 2}},
        {1, &gx_sp, {.what = "a side network", .side = 1}},
        {2, &gx_tp, {.what = "prompts", .prompt = 3}},
        {0, &gx_galaxy, {.what = "scales and biases", .prompt = 5}},
        {0, &gx_galaxy, {.what = "the lower stage frozen", .freeze = "model.embed_tokens.weight,model.layers.0.*"}},
        {2, &gx_sp, {.what = "BERT, pre-training, tied", .subject = &pretraining, .tied = 1}},
        {3, &gx_tp, {.what = "BERT, masked, tied", .subject = &masked, .tied = 1}},
        {3, &gx_galaxy, {.what = "BERT, masked, tied, zb1p", .subject = &masked, .tied = 1, .order = GX_ORDER_ZB1P}},
        {1, &gx_galaxy2, {.what = "BERT, pre-training", .subject = &pretraining}},
        {2, &gx_galaxy, {.what = "BERT, labels", .subject = &labels}},
        {3, &gx_sp, {.what = "BERT, pairs of numbers", .subject = &numbers}},
        {0, &gx_tp, {.what = "vectors", .subject = &vectors}},
        {1, &gx_sp, {.what = "vectors of first tokens", .subject = &firsts}},
        {3, &gx_galaxy2, {.what = "texts that share a column", .subject = &texts}},
        {2, &gx_galaxy, {.what = "LLaMA, labels", .subject = &scores}},
        {5, &gx_sp, {.what = "BERT, pre-training, tied", .subject = &pretraining, .tied = 1}},
        {5, &gx_tp, {.what = "zb1p, tied", .tied = 1, .order = GX_ORDER_ZB1P}},
        {5, &gx_galaxy, {.what = "a side network", .side = 2}},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (test_share((int)i)) check_way(&shapes[cases[i].shape], &cases[i].way, &cases[i].mode, 1);
}

// ---- messages ------------------------------------------------------------------------------------------------------

// Parts of n members of a total: slices, or all of it on each.
static GxShares draw_shares(uint64_t seed, int64_t total, int is_cut)
{
    const int n = 1 + (int)(gx_random_bits(3, seed, 0, 0) % 5);
    int64_t list[8], rest = total;
    GxSplit s;
    GxError e = GX_ZERO;
    if (!is_cut) return gx_shares_each(total, n, 0);
    for (int i = 0; i < n; i++) {
        list[i] = i + 1 < n ? 1 + gx_random_bits(3, seed, 1, (uint32_t)i) % (uint32_t)(rest - (n - 1 - i)) : rest;
        rest -= list[i];
    }
    CHECK(gx_split_list(&s, "", list, n, total, n, &e) == GX_OK, "%s", e.message);
    return gx_shares_of(&s, 0, 1);
}

// Whatever the groups: a member receives each element that it has once, from one that has it; who sends nothing to
// anybody has nothing that others lack.
TEST(every_member_receives_what_it_has_once)
{
    enum { TOTAL = 17 };
    for (uint64_t seed = 0; seed < 400; seed++) {
        const GxShares from = draw_shares(2 * seed, TOTAL, seed & 1),
                       to = draw_shares(2 * seed + 1, TOTAL, seed >> 1 & 1);
        for (int r = 0; r < to.n; r++) {
            int times[TOTAL] = {0};
            for (int s = 0; s < from.n; s++) {
                const GxRange m = gx_stage_message(&from, s, &to, r);
                for (int64_t i = m.begin; i < m.end; i++) {
                    times[i]++;
                    CHECK(i >= from.part[s].begin && i < from.part[s].end, "seed %ld: %d sends what it has not",
                          (long)seed, s);
                }
            }
            for (int i = 0; i < TOTAL; i++)
                CHECK(times[i] == (i >= to.part[r].begin && i < to.part[r].end), "seed %ld: member %d gets %d %d times",
                      (long)seed, r, i, times[i]);
        }
    }
}

// The events of messages between stages: their axes, how many there are, and elements that are sent.
typedef struct {
    int along_pp, to_ranks;
    int64_t sent;
} Messages;
static Messages messages_of(const Layout *l, const Rank *rank)
{
    Messages m = {0, 0, 0};
    for (int r = 0; r < ranks_of(l); r++) {
        const GxRecorder *e = &rank[r].result.window;
        for (int64_t i = 0; i < e->n; i++) {
            if (e->event[i].kind != GX_EVENT_COLLECTIVE || strcmp(e->event[i].site ? e->event[i].site : "", "stage"))
                continue;
            *(e->event[i].axes == GX_AXIS_PP ? &m.along_pp : &m.to_ranks) += 1;
            m.sent += e->event[i].bytes / 4;
        }
    }
    return m;
}

static Messages messages_in(const Shape *s, const GxMode *mode)
{
    static const Way plain = {.what = "messages"};
    Rank rank[MAX_RANKS];
    int16_t stage[6];
    Layout l = layout_of(s, &plain, mode);
    wish(&plain);
    cut(s, 0, stage);
    test_request.spec.stage = stage, l.pp = s->pp;
    test_sgd_alone = 1;
    run_ranks(&l, rank);
    const Messages m = messages_of(&l, rank);
    test_sgd_alone = 0;
    free_ranks(&l, rank);
    forget();
    return m;
}

// With the same parts in all stages, ranks send as they always did; slices pass once, whatever the lists; where each rank
// has all rows, each gets them from one. A window of 2 micro-batches of T x 3 rows of 32, forward and back.
TEST(rows_pass_as_rarely_as_they_can)
{
    enum { ROWS = 2 * 2 * T * 3 * 32 };
    static const Shape even = {.what = "2x2", .pp = 2, .tp = 2, .stage = {0, 4, 8}};
    const struct {
        const Shape *shape;
        const GxMode *mode;
        Messages is;
    } cases[] = {
        {&even, &gx_tp, {16, 0, 2 * ROWS}},                                 // 2 x 2 messages of 2 pairs, at both ends
        {&even, &gx_galaxy, {16, 0, ROWS}},                                 // halves
        {&shapes[5], &gx_tp, {16, 0, 2 * ROWS}},                            // lists of heads change no rows
        {&shapes[5], &gx_galaxy, {0, 24, ROWS}},                            // 3,5 and 6,2: three overlaps
        {&shapes[2], &gx_galaxy, {0, 16, ROWS}},                            // 3,5 and 8: two
        {&shapes[0], &gx_tp, {0, 12, 3 * ROWS / 2}},                        // one gets them, and sends to both
        {&shapes[3], &gx_sp, {0, 4 * 3 + 4 * 2 + 4 * 3 + 4 * 2, 2 * ROWS}}, // 3+1+2: three overlaps, and two
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Messages m = messages_in(cases[i].shape, cases[i].mode), is = cases[i].is;
        CHECK(m.along_pp == is.along_pp && m.to_ranks == is.to_ranks && m.sent == is.sent,
              "%s, %s: %d messages along pp, %d to ranks, %ld numbers; expected %d, %d, %ld", cases[i].shape->what,
              cases[i].mode->name, m.along_pp, m.to_ranks, (long)m.sent, is.along_pp, is.to_ranks, (long)is.sent);
    }
}

// ---- a tensor that two stages have ---------------------------------------------------------------------------------

typedef struct {
    GxThreadsGroup *group;
    int rank, is_cut;
    int64_t wrong;
    char error[600];
    pthread_t thread;
} Adder;

enum { ADD_ROWS = GX_STAGE / 2 + 3, ADD_COLS = 5 }; // several pieces, and the end of one
static int64_t of_lower(int64_t i) { return i % 100003; }
static int64_t of_higher(int64_t i) { return 7 * (i % 11); }

// Stages of 2 and 1 ranks add up what both have: by slices of the rows, or all of it on each rank.
static void *add_main(void *user)
{
    static const int width[] = {2, 1};
    Adder *a = (Adder *)user;
    GxContext g = GX_ZERO;
    GxComm comm;
    GxMesh mesh;
    GxArena arena;
    gx_threads_comm(&comm, a->group, a->rank);
    comm.timeout = 20;
    gx_mesh_open_stages(&mesh, width, 2, a->rank, 3, &g.error);
    g.device = gx_device_cpu(), g.mesh = &mesh;
    gx_arena_open(&arena, 80 << 20, &g.error);
    g.arena = &arena;
    gx_comm_open(&g, &comm);
    const int pp = gx_group_index(&g, GX_AXIS_PP), me = gx_group_index(&g, GX_AXIS_TP);
    GxSplit split = gx_split_even(ADD_ROWS, width[pp]);
    if (!pp) split.begin[1] = GX_STAGE / 3; // where no piece begins
    const GxShares mine = a->is_cut ? gx_shares_of(&split, me, 1) : gx_shares_each(ADD_ROWS, width[pp], me);
    GxSplit other = gx_split_even(ADD_ROWS, width[1 - pp]);
    if (pp) other.begin[1] = GX_STAGE / 3;
    const GxShares theirs = a->is_cut ? gx_shares_of(&other, 0, 1) : gx_shares_each(ADD_ROWS, width[1 - pp], 0);
    const int64_t first = gx_share_mine(&mine).begin * ADD_COLS, n = gx_share_count(&mine) * ADD_COLS;
    float *x = (float *)gx_scratch(&g, GX_MEM_GRADS, 4 * n);
    for (int64_t i = 0; i < n && x; i++) x[i] = (float)(pp ? of_higher(first + i) : of_lower(first + i));
    gx_stage_add(&g, 1 - pp, x, ADD_COLS, &mine, &theirs);
    for (int64_t i = 0; i < n && x; i++) a->wrong += x[i] != (float)(of_lower(first + i) + of_higher(first + i));
    snprintf(a->error, sizeof a->error, "%s", g.error.message);
    gx_comm_close(&g);
    gx_arena_close(&arena);
    return NULL;
}

TEST(a_tensor_of_two_stages_is_added_up_whatever_their_sizes)
{
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        Adder rank[3];
        GxThreadsGroup *group;
        GxError e = GX_ZERO;
        memset(rank, 0, sizeof rank);
        if (!CHECK(gx_threads_group_open(&group, 3, &e) == GX_OK, "%s", e.message)) return;
        for (int r = 0; r < 3; r++) {
            rank[r].group = group, rank[r].rank = r, rank[r].is_cut = is_cut;
            pthread_create(&rank[r].thread, NULL, add_main, &rank[r]);
        }
        for (int r = 0; r < 3; r++) pthread_join(rank[r].thread, NULL);
        for (int r = 0; r < 3; r++)
            CHECK(!rank[r].error[0] && !rank[r].wrong, "rank %d: %ld sums are wrong; %s", r, (long)rank[r].wrong,
                  rank[r].error);
        gx_threads_group_close(group);
    }
}

// ---- meshes --------------------------------------------------------------------------------------------------------

TEST(a_ragged_mesh_has_the_groups_of_its_stages)
{
    static const int width[] = {3, 1, 2}, even[] = {2, 2};
    GxMesh m;
    GxError e = GX_ZERO;
    for (int r = 0; r < 6; r++) {
        static const int stage[] = {0, 0, 0, 1, 2, 2}, first[] = {0, 3, 4},
                         masks[] = {GX_AXIS_TP, GX_AXIS_TP | GX_AXIS_LOSS};
        int ranks[6], me;
        CHECK(gx_mesh_open_stages(&m, width, 3, r, 6, &e) == GX_OK && m.is_ragged && m.head == 2, "%s", e.message);
        for (int k = 0; k < 2; k++) {
            CHECK(gx_mesh_group(&m, masks[k], ranks, 6, &me) == width[stage[r]] && me == r - first[stage[r]], "rank %d",
                  r);
            for (int i = 0; i < width[stage[r]]; i++) CHECK(ranks[i] == first[stage[r]] + i, "rank %d", r);
        }
        CHECK(gx_mesh_group(&m, GX_AXIS_ALL, ranks, 6, &me) == 6 && me == r && ranks[5] == 5, "rank %d", r);
        CHECK(gx_mesh_group(&m, GX_AXIS_DP, ranks, 6, &me) == 1 && ranks[0] == r && me == 0, "rank %d", r);
        CHECK(gx_mesh_group(&m, GX_AXIS_RESULTS, ranks, 6, &me) == 0, "rank %d has a group along pp", r);
        CHECK(gx_mesh_size(&m, GX_AXIS_PP) == 3 && gx_mesh_index(&m, GX_AXIS_PP) == stage[r], "rank %d", r);
        CHECK(gx_mesh_axes(&m, GX_AXIS_ALL) == (GX_AXIS_PP | GX_AXIS_TP), "rank %d", r);
        CHECK(gx_mesh_widest(&m) == 3 && gx_mesh_width(&m, 1) == 1 && gx_mesh_rank(&m, 2, 1) == 5, "rank %d", r);
        for (int i = 0; i < 6; i++) CHECK(gx_mesh_pp_of(&m, i) == stage[i], "rank %d", i);
    }
    static const int dims[GX_MESH_AXES] = {2, 1, 2, 1, 2};
    CHECK(gx_mesh_open_stages(&m, even, 2, 3, 4, &e) == GX_OK && !m.is_ragged && gx_mesh_size(&m, GX_AXIS_PP) == 2,
          "%s", e.message);
    CHECK(gx_mesh_open(&m, dims, 3, 8, &e) == GX_OK && gx_mesh_rank(&m, 1, 0) == 6 && gx_mesh_rank(&m, 0, 1) == 3 &&
              gx_mesh_pp_of(&m, 6) == 1 && gx_mesh_width(&m, 1) == 2,
          "%s", e.message);
    static const int zero[] = {2, 0};
    CHECK(gx_mesh_open_stages(&m, width, 3, 0, 7, &e) != GX_OK && strstr(e.message, "stages of 3+1+2 ranks are 6"),
          "%s", e.message);
    gx_error_clear(&e);
    CHECK(gx_mesh_open_stages(&m, zero, 2, 0, 2, &e) != GX_OK && strstr(e.message, "stage 1 of 0 ranks"), "%s",
          e.message);
    gx_error_clear(&e);
    CHECK(gx_mesh_open_stages(&m, width, 0, 0, 2, &e) != GX_OK && strstr(e.message, "a pipeline of 0 stages"), "%s",
          e.message);
}

TEST(collectives_without_a_group_are_refused)
{
    static const int width[] = {2, 1};
    GxContext g = GX_ZERO;
    GxMesh m;
    double x = 1;
    gx_mesh_open_stages(&m, width, 2, 0, 3, &g.error);
    g.mesh = &m, g.world = 3, g.device = test_device();
    gx_all_reduce(&g, GX_AXIS_PP, GX_SUM, &x, 1, GX_F64);
    CHECK(strstr(g.error.message, "all_reduce over pp: the stages of this mesh have different numbers of ranks"), "%s",
          g.error.message);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
