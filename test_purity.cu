// test_purity.cu: a unit is pure: it sees its pass and the rows that it is handed, nothing else. So micro-batches may
// be in flight at once, weight halves put off, units computed again, units shared out, tensors frozen, and every
// gradient stays what it was: bit for bit, but where sums are taken in another order.
//
// Units are called by hand here, each micro-batch with buffers of its own, in the order that a script says; and by the
// runner, whose lists of actions do the same. Poisoned, everything that a call must not read is filled with NaN before
// it, and all that it must not write is compared behind it.
#include "test/subjects.h"

enum { UNITS = LAYERS + 2, HEAD = UNITS - 1, STAGES = 2, MICRO = 2, MOST_AREAS = 200 };

// Two ranks that share a K,V head, and all of what is uneven; one rank in the serial mode.
static const Layout shapes[] = {
    {.what = "2 ranks, uneven",
     .dp = 1,
     .tp = 2,
     .micro = MICRO,
     .samples = {2},
     .heads = {3, 3},
     .columns = {30, 10},
     .sequence = {5, 3}},
    {.what = "2 ranks, uneven, tied",
     .dp = 1,
     .tp = 2,
     .micro = MICRO,
     .samples = {2},
     .heads = {5, 1},
     .columns = {7, 33},
     .vocab = {20, 41},
     .sequence = {3, 5},
     .tied = 1},
};
enum { UNEVEN = 0, TIED };
static int has_normed_heads; // the model is a Qwen3, and a window slides in its first layer
static int has_lora, has_adapters;
static int turn_of_model; // in which diagonals such a model stands: each has others

static Layout layout_of(int mode, int shape)
{
    Layout l = test_layout(test_modes[mode], &shapes[shape]);
    if (mode == 0) l.tp = 1;
    l.normed = has_normed_heads, l.window = has_normed_heads ? 3 : 0, l.lora = has_lora, l.bottleneck = has_adapters;
    return l;
}

// ---- what a call may read and write --------------------------------------------------------------------------------

typedef struct {
    char *at, *saved;
    int64_t bytes;
    int reads, writes; // in the call at hand
} Area;

typedef struct {
    Area area[MOST_AREAS];
    int n;
} Areas;

static void areas_add(Areas *all, void *at, int64_t bytes)
{
    if (!at || bytes <= 0 || !CHECK(all->n < MOST_AREAS, "more than %d areas", MOST_AREAS)) return;
    Area *a = &all->area[all->n++];
    memset(a, 0, sizeof *a);
    a->at = (char *)at, a->bytes = bytes, a->saved = (char *)malloc((size_t)bytes);
}

static void areas_allow(Areas *all, const void *at, int reads, int writes)
{
    for (int i = 0; i < all->n && at; i++)
        if (all->area[i].at == at) all->area[i].reads |= reads, all->area[i].writes |= writes;
}

enum { NAN_BYTE = 0xff }; // four of them are a float that is not a number

static void areas_poison(Areas *all)
{
    for (int i = 0; i < all->n; i++) {
        Area *a = &all->area[i];
        memcpy(a->saved, a->at, (size_t)a->bytes);
        if (!a->reads) memset(a->at, NAN_BYTE, (size_t)a->bytes);
    }
}

static int is_poison(const Area *a) // its first byte is, and each is as the one before
{
    return (unsigned char)a->at[0] == NAN_BYTE && !memcmp(a->at, a->at + 1, (size_t)a->bytes - 1);
}

// Puts back what was not there to be written, and forgets what was allowed.
static void areas_heal(Areas *all, const char *what)
{
    for (int i = 0; i < all->n; i++) {
        Area *a = &all->area[i];
        const int kept = a->writes || (a->reads ? !memcmp(a->at, a->saved, (size_t)a->bytes) : is_poison(a));
        CHECK(kept, "%s writes area %d (%ld bytes), which is none of its own", what, i, (long)a->bytes);
        if (!a->writes) memcpy(a->at, a->saved, (size_t)a->bytes);
        a->reads = a->writes = 0;
    }
}

// ---- units called by hand ------------------------------------------------------------------------------------------

// How a window is computed.
typedef struct {
    const char *what;
    const char *script; // "F0 F1 B0 B1": F forward, B backward, C computed again and backward, W weight halves; of the
                        // micro-batches behind the letter, unit by unit in turn. NULL: by the runner
    int defers;         // backwards leave weight halves to W
    int in_place;       // every backward turns the gradient of its output into that of its input in place
    int poisons;
    int split; // units [0, split) are one model's, the others another's, which is handed the stream by copies. 0: one
    TestRequest request;
} Way;

typedef struct { // of one micro-batch alone
    GxBatch b;
    double loss[GX_MAX_LOSSES];
    GxRows x[STAGES][UNITS], dx[STAGES][UNITS]; // of each unit's input
    char *slot[UNITS];
    int64_t slot_bytes[UNITS];
} Flight;

typedef struct {
    const Way *way;
    TestModel *t[STAGES];
    Flight flight[MICRO];
    const int64_t *labels; // of the window
    Areas areas;
} Hand;

static int stages_of(const Way *w) { return w->split ? 2 : 1; }
static int stage_of(const Way *w, int unit) { return w->split && unit >= w->split; }

static GxRows new_rows(const GxModel *m, const GxBatch *b)
{
    GxRows r = gx_stream_rows(m, b->T, b->B, NULL);
    r.data = malloc((size_t)gx_rows_bytes(r));
    return r;
}

static void flight_open(Hand *h, Flight *f)
{
    for (int s = 0; s < stages_of(h->way); s++) {
        const GxModel *m = &h->t[s]->m;
        for (int u = 1; u < UNITS; u++) {
            f->x[s][u] = new_rows(m, &f->b);
            if (!h->way->in_place || u == 1) f->dx[s][u] = new_rows(m, &f->b);
            else f->dx[s][u] = f->dx[s][1];
            areas_add(&h->areas, f->x[s][u].data, gx_rows_bytes(f->x[s][u]));
            if (!h->way->in_place || u == 1) areas_add(&h->areas, f->dx[s][u].data, gx_rows_bytes(f->dx[s][u]));
        }
    }
    for (int u = 0; u < UNITS; u++) {
        const GxModel *m = &h->t[stage_of(h->way, u)]->m;
        f->slot_bytes[u] = gx_slot_bytes(m, u, f->b.T, f->b.B, h->way->defers);
        f->slot[u] = (char *)aligned_alloc(GX_ALIGN, (size_t)gx_round_up(f->slot_bytes[u] + 1, GX_ALIGN));
        areas_add(&h->areas, f->slot[u], f->slot_bytes[u]);
    }
}

static void flight_close(Hand *h, Flight *f)
{
    for (int s = 0; s < stages_of(h->way); s++)
        for (int u = 1; u < UNITS; u++) {
            free(f->x[s][u].data);
            if (!h->way->in_place || u == 1) free(f->dx[s][u].data);
        }
    for (int u = 0; u < UNITS; u++) free(f->slot[u]);
}

static char *weight_of(const GxStore *s, int row) { return gx_store_weight_at(s, row, 0); }

static void add_tensors(Hand *h, TestModel *t)
{
    const GxStore *s = &t->m.store;
    for (int i = 0; i < t->m.table.n; i++) {
        const int64_t n = gx_tensor_count(&t->m.table.row[i]);
        if (t->m.table.row[i].has_alias || !gx_store_has(s, i)) continue;
        areas_add(&h->areas, weight_of(s, i), n * gx_dtype_size(s->dtype));
        areas_add(&h->areas, gx_store_grads(s, i), 4 * n);
    }
    for (int k = 0; k < 2; k++) areas_add(&h->areas, s->moment[k], 4 * s->trained_n);
    areas_add(&h->areas, t->r.region, t->r.region_bytes);
}

// Weight halves read no weights but LoRA's; a gradient is read where it was written before in this window.
static void allow_tensors(Hand *h, const TestModel *t, char what, int unit)
{
    const GxStore *s = &t->m.store;
    for (int i = 0; i < t->m.table.n; i++) {
        const GxTensor *row = &t->m.table.row[i];
        const int of = row->has_alias ? row->alias.index : i;
        if (row->unit != unit || !gx_store_has(s, of)) continue;
        if (what != 'W' || row->role == GX_ROLE_LORA) areas_allow(&h->areas, weight_of(s, of), 1, 0);
        if (what == 'B' || what == 'W') areas_allow(&h->areas, gx_store_grads(s, of), s->place[of].is_written, 1);
    }
}

static void allow_rows(Hand *h, const Flight *f, int stage, char what, int unit)
{
    Areas *all = &h->areas;
    const void *x = f->x[stage][unit].data, *y = unit < HEAD ? f->x[stage][unit + 1].data : NULL,
               *dx = f->dx[stage][unit].data, *dy = unit < HEAD ? f->dx[stage][unit + 1].data : NULL;
    areas_allow(all, x, 1, 0);
    if (what == 'F') areas_allow(all, y, 0, 1);
    if (what == 'F' || what == 'R') areas_allow(all, f->slot[unit], 0, 1);
    if (what == 'W') areas_allow(all, f->slot[unit], 1, 0);
    if (what != 'B') return;
    areas_allow(all, f->slot[unit], unit < HEAD, 1); // the head's is made in its backward
    areas_allow(all, dx, 0, 1);
    areas_allow(all, dy, 1, 1);
}

static GxState state_of(GxRows x)
{
    const GxState s = {x, gx_no_rows(), gx_no_rows()};
    return s;
}

// F, R (computed again), B or W of a unit; everything that it gets is laid anew, as the runner does.
static void call_unit(Hand *h, char what, int u, int micro_batch)
{
    const int stage = stage_of(h->way, u);
    TestModel *t = h->t[stage];
    Flight *f = &h->flight[micro_batch];
    GxArena *a = t->g.arena;
    GxSlot slot;
    GxPass p = GX_ZERO;
    const GxState none = state_of(gx_no_rows()), in = u ? state_of(f->x[stage][u]) : none,
                  y = u < HEAD ? state_of(f->x[stage][u + 1]) : none, dx = u ? state_of(f->dx[stage][u]) : none,
                  dy = u < HEAD ? state_of(f->dx[stage][u + 1]) : none;
    char name[40];
    p.g = &t->g, p.m = &t->m, p.b = &f->b, p.slot = &slot, p.unit = u, p.defers_weights = h->way->defers;
    p.is_training = 1, p.losses.count = h->labels, p.losses.sum = f->loss;
    gx_slot_layout(&p, f->slot[u]);
    snprintf(name, sizeof name, "%c of unit %d, micro-batch %d,", what, u, micro_batch);
    if (h->way->poisons) {
        allow_tensors(h, t, what, u);
        allow_rows(h, f, stage, what, u);
        areas_poison(&h->areas);
        memset(a->base + a->used, NAN_BYTE, (size_t)(a->capacity - a->used)); // scratch
    }
    if (what == 'F') gx_unit_forward(&p, y, in);
    if (what == 'R') gx_unit_forward(&p, none, in);
    if (what == 'B') gx_unit_backward(&p, dx, dy, in);
    if (what == 'W') gx_unit_weight(&p, in);
    if (h->way->poisons) areas_heal(&h->areas, name);
}

// The stream and its gradient at the border of two models.
static void hand_over(const Hand *h, char what, int u, const Flight *f)
{
    const int split = h->way->split;
    if (what == 'F' && u == split - 1)
        memcpy(f->x[1][split].data, f->x[0][split].data, (size_t)gx_rows_bytes(f->x[0][split]));
    if (what == 'B' && u == split)
        memcpy(f->dx[0][split].data, f->dx[1][split].data, (size_t)gx_rows_bytes(f->dx[0][split]));
}

// Of "F01": unit by unit, micro-batches 0 and 1 in turn.
static void call_units(Hand *h, const char *word)
{
    const int is_forward = word[0] == 'F';
    for (int i = 0; i < UNITS; i++)
        for (const char *digit = word + 1; *digit >= '0' && *digit < '0' + MICRO; digit++) {
            const int u = is_forward ? i : HEAD - i, b = *digit - '0', is_layer = u > 0 && u < HEAD;
            const char what = word[0] == 'C' ? 'B' : word[0];
            if (is_forward && u == HEAD) continue; // all of it is done in the backward
            if (word[0] == 'C' && is_layer) {
                memset(h->flight[b].slot[u], NAN_BYTE, (size_t)h->flight[b].slot_bytes[u]);
                call_unit(h, 'R', u, b);
            }
            call_unit(h, what, u, b);
            if (h->way->split) hand_over(h, what, u, &h->flight[b]);
        }
}

// ---- a window on every rank ----------------------------------------------------------------------------------------

typedef struct { // what it left behind; models stay open
    int stages;
    TestModel *t[STAGES];
    float *grads[STAGES];
    double loss;
    int64_t rows;      // of the window, on all ranks
    void *weights[2];  // before and after, as they lie; by the runner alone
    GxRecorder window; // the same
    char error[600];
} Kept;

typedef struct {
    const Layout *layout;
    const Way *way;
    GxComm comm[STAGES];
    Kept kept;
    pthread_t thread;
} WayRank;

static void run_by_hand(Kept *k, const Way *way, const GxBatch *batch)
{
    Hand *h = (Hand *)calloc(1, sizeof *h);
    int64_t labels[GX_MAX_LOSSES] = {0};
    h->way = way;
    for (int s = 0; s < k->stages; s++) {
        h->t[s] = k->t[s];
        add_tensors(h, k->t[s]);
        gx_store_begin_window(&k->t[s]->m.store);
    }
    for (int i = 0; i < MICRO; i++) {
        h->flight[i].b = batch[i];
        h->flight[i].b.number = i;
        k->t[0]->r.counts(k->t[0]->r.task, &batch[i], labels);
        flight_open(h, &h->flight[i]);
    }
    h->labels = labels;
    for (const char *word = way->script; word; word = strchr(word, ' ') ? strchr(word, ' ') + 1 : NULL)
        call_units(h, word);
    for (int i = 0; i < MICRO; i++)
        for (int j = 0; j < GX_MAX_LOSSES; j++) k->loss += h->flight[i].loss[j];
    for (int s = 0; s < k->stages; s++) gx_grads_reduce(&k->t[s]->g, &k->t[s]->m.store, 0, UNITS);
    TestModel *last = k->t[k->stages - 1];
    gx_all_reduce(&last->g, GX_AXIS_ALL, GX_SUM, &k->loss, 1, GX_F64);
    for (int i = 0; i < MICRO; i++) flight_close(h, &h->flight[i]);
    for (int i = 0; i < h->areas.n; i++) free(h->areas.area[i].saved);
    free(h);
}

static void *copy_of(const void *x, int64_t bytes)
{
    void *copy = malloc((size_t)bytes + 1);
    return memcpy(copy, x, (size_t)bytes);
}

static void run_by_runner(Kept *k, GxBatch *batch)
{
    static const GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    TestModel *t = k->t[0];
    const GxStore *s = &t->m.store;
    const int64_t bytes = s->weights_n * gx_dtype_size(s->dtype);
    t->o.kind = GX_OPTIMIZER_ADAMW, t->o.adamw = adamw;
    test_set_step(t, 0.1f, 0);
    k->weights[0] = copy_of(s->weights, bytes);
    t->g.recorder = &k->window;
    gx_runner_train(&t->g, &t->r, batch, NULL, NULL);
    t->g.recorder = NULL;
    k->weights[1] = copy_of(s->weights, bytes);
    const GxStep step = test_step(t);
    for (int i = 0; i < GX_MAX_LOSSES; i++) k->loss += step.loss_sum[i];
}

static void open_stages(WayRank *r)
{
    const Layout *l = r->layout;
    const Way *w = r->way;
    const GxSplitLists lists = {{l->heads, l->heads[0] ? l->tp : 0},
                                {l->columns, l->columns[0] ? l->tp : 0},
                                {l->vocab, l->vocab[0] ? l->tp : 0},
                                {l->sequence, l->sequence[0] ? l->tp : 0}};
    char other[4096];
    GxLlamaConfig config = model_config_of(l);
    r->kept.stages = stages_of(w);
    for (int s = 0; s < r->kept.stages; s++) {
        TestModel *t = r->kept.t[s] = (TestModel *)calloc(1, sizeof *t);
        t->request = w->request;
        t->request.spec.micro_batches = MICRO;
        wish_subject(&t->request, l, other, sizeof other);
        if (w->split) t->request.first_unit = s ? w->split : 0, t->request.last_unit = s ? UNITS : w->split;
        // a runner of a range hands no gradient on below it, and plans none; here it is handed on: room of eight more
        if (!test_model_open_split(t, &config, l->mode, T, l->samples[0] + (w->split ? 8 : 0), HEAD_CHUNK,
                                   l->tp > 1 ? &r->comm[s] : NULL, 1, l->tp, &lists)) {
            fprintf(stderr, "%s, %s: the model did not open\n", l->what, w->what);
            exit(1); // others would wait
        }
        test_init(t, 42);
        gx_zero(&t->g, t->m.store.moment[0], 4 * t->m.store.trained_n);
        gx_zero(&t->g, t->m.store.moment[1], 4 * t->m.store.trained_n);
    }
}

static void *rank_work(void *user)
{
    WayRank *r = (WayRank *)user;
    Kept *k = &r->kept;
    GxBatch batch[MICRO];
    int32_t *tokens = (int32_t *)malloc((TEST_ARRAYS + 2) * MICRO * T * MAX_COLUMNS * sizeof *tokens);
    open_stages(r);
    fill_window(r->layout, 0, 0, r->layout->samples[0], MICRO, batch, tokens);
    k->rows = MICRO * T * r->layout->samples[0];
    if (r->way->script) run_by_hand(k, r->way, batch);
    else run_by_runner(k, batch);
    for (int s = 0; s < k->stages; s++) {
        TestModel *t = k->t[s];
        k->grads[s] = test_kept(t, t->m.store.grads, t->m.store.trained_n);
        if (gx_failed(&t->g)) snprintf(k->error, sizeof k->error, "%s", t->g.error.message);
        if (t->g.comm) gx_comm_close(&t->g);
        t->g.comm = NULL;
    }
    free(tokens);
    return NULL;
}

static void run_way(const Layout *l, const Way *w, WayRank *rank)
{
    GxThreadsGroup *group[STAGES];
    GxError err = GX_ZERO;
    memset(rank, 0, (size_t)l->tp * sizeof *rank);
    for (int s = 0; s < STAGES; s++)
        if (!CHECK(gx_threads_group_open(&group[s], l->tp, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < l->tp; r++) {
        rank[r].layout = l, rank[r].way = w;
        for (int s = 0; s < STAGES; s++) gx_threads_comm(&rank[r].comm[s], group[s], r);
        pthread_create(&rank[r].thread, NULL, rank_work, &rank[r]);
    }
    for (int r = 0; r < l->tp; r++) pthread_join(rank[r].thread, NULL);
    for (int s = 0; s < STAGES; s++) gx_threads_group_close(group[s]);
    for (int r = 0; r < l->tp; r++)
        CHECK(!rank[r].kept.error[0], "%s, %s: rank %d: %s", l->what, w->what, r, rank[r].kept.error);
}

static void free_way(const Layout *l, WayRank *rank)
{
    for (int r = 0; r < l->tp; r++) {
        Kept *k = &rank[r].kept;
        for (int s = 0; s < k->stages; s++) {
            free(k->grads[s]);
            test_model_close(k->t[s]);
            free(k->t[s]);
        }
        free(k->weights[0]), free(k->weights[1]);
        gx_recorder_close(&k->window);
    }
}

// ---- what is compared ----------------------------------------------------------------------------------------------

static const float *grad_of(const Kept *k, int row)
{
    for (int s = 0; s < k->stages; s++)
        if (gx_store_trains(&k->t[s]->m.store, row)) return k->grads[s] + test_flat(k->t[s], row);
    return NULL; // frozen
}

typedef enum { BITS = 0, BOUND } Closeness;

// Gradients of what both train, and the loss. Returns of how many tensors.
static int check_same(const Layout *l, const Way *w, int rank, const Kept *a, const Kept *ref, Closeness closeness)
{
    const GxTable *table = &a->t[0]->m.table;
    const double bound = test_bound(3 * forward_depth() + (double)a->rows);
    double norm = 0;
    int compared = 0;
    for (int64_t i = 0; i < ref->t[0]->m.store.trained_n; i++) norm += (double)ref->grads[0][i] * ref->grads[0][i];
    CHECK(a->loss == ref->loss, "%s, %s: rank %d: loss %.17g, not %.17g", l->what, w->what, rank, a->loss, ref->loss);
    for (int i = 0; i < table->n; i++) {
        const float *x = grad_of(a, i), *y = grad_of(ref, i);
        const int64_t n = gx_tensor_count(&table->row[i]);
        char what[600];
        if (table->row[i].has_alias || !x || !y) continue;
        snprintf(what, sizeof what, "%s, %s: rank %d: gradient of %s", l->what, w->what, rank, table->row[i].name);
        if (closeness == BITS) CHECK(!memcmp(x, y, (size_t)n * 4), "%s has other bits", what);
        else test_close_f(what, x, y, n, bound, 1e-3 * sqrt(norm / table->n));
        compared++;
    }
    return compared;
}

static const Way one_after_the_other = {.what = "one after the other", .script = "F0 B0 F1 B1"};
static const Way by_the_runner = {.what = "by the runner"};

// A window in a way, against one micro-batch after the other by hand: each way in a mode.
static void check_ways(int shape, const Way *ways, const Closeness *closeness, int n)
{
    for (int mode = 0; mode < MODES; mode++) {
        WayRank ref[MAX_RANKS], rank[MAX_RANKS];
        const Layout l = layout_of(mode, shape);
        run_way(&l, &one_after_the_other, ref);
        for (int i = 0; i < n; i++) {
            if (!test_diagonal(turn_of_model + shape, i, n, mode, MODES)) continue;
            run_way(&l, &ways[i], rank);
            for (int r = 0; r < l.tp; r++)
                CHECK(check_same(&l, &ways[i], r, &rank[r].kept, &ref[r].kept, closeness[i]) > 7 * LAYERS,
                      "%s, %s: hardly a gradient", l.what, ways[i].what);
            free_way(&l, rank);
        }
        free_way(&l, ref);
    }
}

// Norms behind CON, biases, dropout, picked rows, two heads.
static void of_a_bert(void (*check)(void))
{
    test_subject = &pretraining, turn_of_model += 1;
    check();
    test_subject = NULL, turn_of_model -= 1;
}

static void of_a_qwen3(void (*check)(void))
{
    has_normed_heads = 1, turn_of_model = 2;
    check();
    has_normed_heads = 0, turn_of_model = 0;
}

static void of_lora(void (*check)(void))
{
    has_lora = 1, turn_of_model = 3;
    check();
    has_lora = 0, turn_of_model = 0;
}

static void of_adapters(void (*check)(void))
{
    has_adapters = 1, turn_of_model = 4;
    check();
    of_a_bert(check);
    has_adapters = 0, turn_of_model = 0;
}

// ---- two micro-batches in flight -----------------------------------------------------------------------------------

static void in_flight(void)
{
    static const Way ways[] = {
        {.what = "by the runner"},
        {.what = "both forwards first", .script = "F0 F1 B0 B1"},
        {.what = "both forwards first, later ones before", .script = "F1 F0 B0 B1"},
        {.what = "unit by unit in turn", .script = "F01 B01"},
        {.what = "in place", .script = "F0 F1 B0 B1", .in_place = 1},
        {.what = "by the runner, all forwards first", .request = {.spec = {.order = GX_ORDER_GPIPE}}},
        {.what = "the last one back first", .script = "F0 F1 B1 B0"},
    };
    static const Closeness closeness[] = {BITS, BITS, BITS, BITS, BITS, BITS, BOUND};
    for (int shape = UNEVEN; shape <= TIED; shape++) {
        // tied, both uses of a weight take turns with the micro-batches
        Closeness c[7];
        for (int i = 0; i < 7; i++) c[i] = shape == TIED && i == 3 ? BOUND : closeness[i];
        check_ways(shape, ways, c, 7);
    }
}
TEST(two_micro_batches_in_flight_give_the_gradients_of_one_after_the_other) { in_flight(); }
TEST(two_micro_batches_in_flight_give_the_gradients_of_one_after_the_other_of_a_bert) { of_a_bert(in_flight); }
TEST(two_micro_batches_in_flight_give_the_gradients_of_one_after_the_other_of_a_qwen3) { of_a_qwen3(in_flight); }
TEST(two_micro_batches_in_flight_give_the_gradients_of_one_after_the_other_of_lora) { of_lora(in_flight); }
TEST(two_micro_batches_in_flight_give_the_gradients_of_one_after_the_other_of_adapters) { of_adapters(in_flight); }

static void deferred(void)
{
    static const Way ways[] = {
        {.what = "weights last", .script = "F0 B0 F1 B1 W0 W1", .defers = 1},
        {.what = "weights last, in flight, in place", .script = "F0 F1 B0 B1 W0 W1", .defers = 1, .in_place = 1},
        {.what = "weights last, unit by unit", .script = "F01 B0 B1 W01", .defers = 1},
        {.what = "by the runner", .request = {.spec = {.defers_weights = 1}}},
        {.what = "by the runner, in flight", .request = {.spec = {.order = GX_ORDER_GPIPE, .defers_weights = 1}}},
        {.what = "weights last, the last one's first", .script = "F0 F1 B0 B1 W1 W0", .defers = 1},
    };
    static const Closeness untied[] = {BITS, BITS, BITS, BITS, BITS, BOUND};
    // by hand the embedding's are put off, too: behind the head's use of the same weight in all micro-batches
    static const Closeness tied[] = {BOUND, BOUND, BOUND, BITS, BITS, BOUND};
    check_ways(UNEVEN, ways, untied, 6);
    check_ways(TIED, ways, tied, 6);
}
TEST(weight_halves_put_off_to_the_end_change_no_bit) { deferred(); }
TEST(weight_halves_put_off_to_the_end_change_no_bit_of_a_bert) { of_a_bert(deferred); }
TEST(weight_halves_put_off_to_the_end_change_no_bit_of_a_qwen3) { of_a_qwen3(deferred); }
TEST(weight_halves_put_off_to_the_end_change_no_bit_of_lora) { of_lora(deferred); }
TEST(weight_halves_put_off_to_the_end_change_no_bit_of_adapters) { of_adapters(deferred); }

static void computed_again(void)
{
    static const uint8_t of_some[] = {GX_AGAIN_LAYER, GX_AGAIN_MLP}, of_one[] = {0, GX_AGAIN_LAYER};
    static const Way ways[] = {
        {.what = "computed again", .script = "F0 F1 C0 C1"},
        {.what = "computed again, weights last", .script = "F0 F1 C0 C1 W0 W1", .defers = 1},
        {.what = "by the runner", .request = {.again = test_layers_again}},
        {.what = "by the runner, in flight",
         .request = {.again = test_layers_again, .spec = {.order = GX_ORDER_GPIPE}}},
        {.what = "by the runner, in flight, weights last",
         .request = {.again = test_layers_again, .spec = {.order = GX_ORDER_GPIPE, .defers_weights = 1}}},
        {.what = "of one layer all, of the other the MLP", .request = {.again = of_some}},
        {.what = "of one layer, in flight", .request = {.again = of_one, .spec = {.order = GX_ORDER_GPIPE}}},
    };
    static const Closeness closeness[] = {BITS, BITS, BITS, BITS, BITS, BITS, BITS};
    check_ways(UNEVEN, ways, closeness, 7);
}
TEST(units_computed_again_change_no_bit) { computed_again(); }
TEST(units_computed_again_change_no_bit_of_a_bert) { of_a_bert(computed_again); }
TEST(units_computed_again_change_no_bit_of_a_qwen3) { of_a_qwen3(computed_again); }
TEST(units_computed_again_change_no_bit_of_lora) { of_lora(computed_again); }
TEST(units_computed_again_change_no_bit_of_adapters) { of_adapters(computed_again); }

// Everything that a run leaves behind: losses, gradients, weights after three steps, moments, a validation.
static void by_lists(void)
{
    // each alone, all pairs of the first three, all but the last, sums that are started, everything
    static const int choices[] = {1, 2, 4, 8, 3, 5, 6, 15, 24, 31};
    for (int mode = 0; mode < MODES; mode++) {
        Rank ref[MAX_RANKS], rank[MAX_RANKS];
        const Layout l = layout_of(mode, mode % 2 ? UNEVEN : TIED);
        run_ranks(&l, ref);
        for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
            const int i = choices[k];
            if (!test_diagonal(turn_of_model, (int)k, sizeof choices / sizeof *choices, mode, MODES)) continue;
            test_request.spec.order = i & 1, test_request.spec.defers_weights = i >> 1 & 1;
            test_request.again = i >> 2 & 1 ? test_layers_again : NULL, test_request.spec.bucket = i >> 3 & 1;
            test_request.spec.starts_sums = i >> 4;
            run_ranks(&l, rank);
            for (int r = 0; r < l.tp; r++)
                CHECK(!rank[r].result.error[0] && same_bits(&rank[r].result, &ref[r].result),
                      "%s: order %d, weights %s, layers %s, bucket %d%s: rank %d: other bits; %s", l.what, i & 1,
                      i & 2 ? "put off" : "at once", i & 4 ? "computed again" : "kept", i >> 3 & 1,
                      i >> 4 ? ", started" : "", r, rank[r].result.error);
            free_ranks(&l, rank);
        }
        memset(&test_request, 0, sizeof test_request);
        free_ranks(&l, ref);
    }
}
TEST(the_runners_lists_change_no_bit_of_a_training) { by_lists(); }
TEST(the_runners_lists_change_no_bit_of_a_training_of_a_bert) { of_a_bert(by_lists); }
TEST(the_runners_lists_change_no_bit_of_a_training_of_a_qwen3) { of_a_qwen3(by_lists); }
TEST(the_runners_lists_change_no_bit_of_a_training_of_lora) { of_lora(by_lists); }
TEST(the_runners_lists_change_no_bit_of_a_training_of_adapters) { of_adapters(by_lists); }

// ---- poison --------------------------------------------------------------------------------------------------------

static void poisoned(void)
{
    static const Way ways[] = {
        {.what = "poisoned", .script = "F0 F1 B0 B1", .poisons = 1},
        {.what = "poisoned, in place, unit by unit", .script = "F01 B0 B1", .in_place = 1, .poisons = 1},
        {.what = "poisoned, computed again", .script = "F01 C0 C1", .poisons = 1},
        {.what = "poisoned, weights last", .script = "F0 F1 B0 B1 W0 W1", .defers = 1, .poisons = 1},
        {.what = "poisoned, weights last, computed again, in place",
         .script = "F0 F1 C0 C1 W0 W1",
         .defers = 1,
         .in_place = 1,
         .poisons = 1},
    };
    static const Closeness untied[] = {BITS, BITS, BITS, BITS, BITS}, tied[] = {BITS, BITS, BITS, BOUND, BOUND};
    check_ways(UNEVEN, ways, untied, 5);
    check_ways(TIED, ways, tied, 5);
}
TEST(a_unit_reads_and_writes_nothing_but_its_pass_and_its_rows) { poisoned(); }
TEST(a_unit_reads_and_writes_nothing_but_its_pass_and_its_rows_of_a_bert) { of_a_bert(poisoned); }
TEST(a_unit_reads_and_writes_nothing_but_its_pass_and_its_rows_of_a_qwen3) { of_a_qwen3(poisoned); }
TEST(a_unit_reads_and_writes_nothing_but_its_pass_and_its_rows_of_lora) { of_lora(poisoned); }
TEST(a_unit_reads_and_writes_nothing_but_its_pass_and_its_rows_of_adapters) { of_adapters(poisoned); }

// ---- units shared out ----------------------------------------------------------------------------------------------

static const Way ranges[] = {
    {.what = "units 0 and 1 apart", .script = "F0 F1 B0 B1", .split = 2},
    {.what = "units 0 and 1 apart, weights last", .script = "F0 F1 B0 B1 W0 W1", .defers = 1, .split = 2},
    {.what = "the embedding apart", .script = "F0 B0 F1 B1", .split = 1},
    {.what = "the head apart, poisoned", .script = "F0 F1 B0 B1", .poisons = 1, .split = HEAD},
};
static const Closeness in_bits[] = {BITS, BITS, BITS, BITS};
static void in_ranges(void) { check_ways(UNEVEN, ranges, in_bits, 4); }
static void in_ranges_of_layers(void) { check_ways(UNEVEN, ranges, in_bits, 2); } // both train something
TEST(ranges_of_units_that_hand_the_stream_over_are_serial_bit_for_bit) { in_ranges(); }
TEST(ranges_of_units_that_hand_the_stream_over_are_serial_bit_for_bit_of_a_bert) { of_a_bert(in_ranges); }
TEST(ranges_of_units_that_hand_the_stream_over_are_serial_bit_for_bit_of_a_qwen3) { of_a_qwen3(in_ranges); }
TEST(ranges_of_units_that_hand_the_stream_over_are_serial_bit_for_bit_of_lora) { of_lora(in_ranges_of_layers); }
TEST(ranges_of_units_that_hand_the_stream_over_are_serial_bit_for_bit_of_adapters) { of_adapters(in_ranges_of_layers); }

TEST(each_of_two_ranges_holds_its_units_tensors_alone)
{
    static const Way apart = {.what = "apart", .script = "F0 F1 B0 B1", .split = 2};
    WayRank whole[MAX_RANKS], rank[MAX_RANKS];
    const Layout l = layout_of(0, UNEVEN);
    run_way(&l, &one_after_the_other, whole);
    run_way(&l, &apart, rank);
    const GxStore *all = &whole[0].kept.t[0]->m.store;
    int64_t elements = 0;
    for (int s = 0; s < STAGES; s++) {
        const GxStore *some = &rank[0].kept.t[s]->m.store;
        elements += some->weights_n;
        for (int i = 0; i < all->table->n; i++)
            CHECK(gx_store_has(some, i) == (all->table->row[i].unit >= 2 ? s == 1 : s == 0), "stage %d: %s", s,
                  all->table->row[i].name);
    }
    CHECK(elements >= all->weights_n && elements < all->weights_n + 2 * GX_ALIGN, "%ld elements on two, %ld on one",
          (long)elements, (long)all->weights_n);
    free_way(&l, rank);
    free_way(&l, whole);
}

// ---- frozen --------------------------------------------------------------------------------------------------------

#define ALL_BUT_LAYER_1 "model.embed_tokens.weight,lm_head.weight,model.norm.weight,model.layers.0.*"

// Trained elements as the store lays them out: packed rows behind each other, others on a line of their own.
static int64_t trained_elements(const GxTable *t, int unit)
{
    int64_t n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->row[i].unit == unit && !t->row[i].has_alias)
            n = (t->row[i].packed ? n : gx_round_up(n, GX_ALIGN / 4)) + gx_tensor_count(&t->row[i]);
    return n;
}

TEST(what_is_frozen_has_no_gradient_no_master_and_no_moment)
{
    static const GxDtype dtypes[] = {GX_F32, GX_BF16};
    for (int d = 0; d < 2; d++)
        for (int mode = 0; mode < MODES; mode++) {
            const Way full = {.what = "full", .request = {.dtype = dtypes[d]}},
                      frozen = {.what = "frozen", .request = {.dtype = dtypes[d], .freeze = ALL_BUT_LAYER_1}};
            WayRank a[MAX_RANKS], b[MAX_RANKS];
            const Layout l = layout_of(mode, UNEVEN);
            run_way(&l, &full, a);
            run_way(&l, &frozen, b);
            for (int r = 0; r < l.tp; r++) {
                const TestModel *t = b[r].kept.t[0], *whole = a[r].kept.t[0];
                const GxStore *s = &t->m.store;
                const int64_t n = trained_elements(s->table, 2), bytes = gx_round_up(4 * n, GX_ALIGN);
                const int masters = d == 1;
                CHECK(s->trained_n == n && s->weights_n == whole->m.store.weights_n,
                      "%s: %ld trained elements, not %ld; %ld weights", l.what, (long)s->trained_n, (long)n,
                      (long)s->weights_n);
                CHECK(!s->masters == !masters && t->arena.kind_used[GX_MEM_GRADS] == bytes &&
                          t->arena.kind_used[GX_MEM_OPTIMIZER] == (2 + masters) * bytes &&
                          t->arena.kind_used[GX_MEM_WEIGHTS] == whole->arena.kind_used[GX_MEM_WEIGHTS],
                      "%s: %ld bytes of gradients, %ld of the optimizer, where %ld are one copy", l.what,
                      (long)t->arena.kind_used[GX_MEM_GRADS], (long)t->arena.kind_used[GX_MEM_OPTIMIZER], (long)bytes);
                for (int i = 0; i < s->table->n; i++) {
                    const int is_trained = s->table->row[i].unit == 2;
                    CHECK(!gx_store_grads(s, i) == !is_trained && !gx_store_moment_at(s, 0, i, 0) == !is_trained &&
                              !gx_store_moment_at(s, 1, i, 0) == !is_trained &&
                              (d == 0 || !gx_store_master_at(s, i, 0) == !is_trained),
                          "%s: %s", l.what, s->table->row[i].name);
                }
                CHECK(t->arena.peak < whole->arena.peak, "%s: %ld bytes, and %ld when everything is trained", l.what,
                      (long)t->arena.peak, (long)whole->arena.peak);
            }
            free_way(&l, a);
            free_way(&l, b);
        }
}

static const char *const patterns[] = {
    ALL_BUT_LAYER_1,
    "model.embed_tokens.weight",
    "lm_head.weight,model.norm.weight",
    "model.layers.*",
    "model.embed_tokens.weight,model.layers.*,lm_head.weight",    // the last norm alone
    "model.embed_tokens.weight,model.layers.*,model.norm.weight", // the head's matrix alone
    "model.layers.*,model.norm.weight,lm_head.weight",            // the embedding alone
    "*.self_attn.*,*norm*",
    "model.embed*,*norm*,*.q_proj.*,*.k_proj.*,*.v_proj.*,*mlp*,lm_head*", // o_proj alone
    "model.embed*,*norm*,*self_attn*,*.gate_proj.*,*.up_proj.*,lm_head*",  // down_proj alone
    "model.layers.?.mlp.gate_proj.weight,*.o_proj.weight,*.0.*",
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

TEST(gradients_of_what_is_trained_do_not_depend_on_what_is_frozen)
{
    for (int mode = 0; mode < MODES; mode++) {
        WayRank full[MAX_RANKS], rank[MAX_RANKS];
        const Layout l = layout_of(mode, UNEVEN);
        run_way(&l, &by_the_runner, full);
        for (int p = 0; p < PATTERNS; p++) {
            if (!test_diagonal(0, p, PATTERNS, mode, MODES)) continue;
            const Way frozen = {.what = patterns[p],
                                .request = {.spec = {.defers_weights = p % 2}, .freeze = patterns[p]}};
            const int packed = p == PATTERNS - 1; // the rest of a packed matrix is a product of its own
            run_way(&l, &frozen, rank);
            for (int r = 0; r < l.tp; r++)
                CHECK(check_same(&l, &frozen, r, &rank[r].kept, &full[r].kept, packed ? BOUND : BITS) > 0,
                      "%s, %s: no gradient", l.what, patterns[p]);
            free_way(&l, rank);
        }
        free_way(&l, full);
    }
}

// q, k and v are one product; without q the others are one of their own.
TEST(a_frozen_part_of_a_packed_matrix_leaves_the_gradients_of_the_others)
{
    static const char *const parts[] = {"*.q_proj.weight", "*.k_proj.weight", "*.v_proj.weight", "*.up_proj.weight"};
    for (int mode = 0; mode < MODES; mode++) {
        WayRank full[MAX_RANKS], rank[MAX_RANKS];
        const Layout l = layout_of(mode, UNEVEN);
        run_way(&l, &by_the_runner, full);
        for (int p = 0; p < 4; p++) {
            const Way frozen = {.what = parts[p], .request = {.freeze = parts[p]}};
            run_way(&l, &frozen, rank);
            for (int r = 0; r < l.tp; r++)
                CHECK(check_same(&l, &frozen, r, &rank[r].kept, &full[r].kept, BOUND) ==
                          full[r].kept.t[0]->m.table.n - LAYERS,
                      "%s, %s: other tensors are frozen, too", l.what, parts[p]);
            free_way(&l, rank);
        }
        free_way(&l, full);
    }
}

TEST(frozen_weights_stay_and_the_others_move)
{
    static const GxDtype dtypes[] = {GX_F32, GX_BF16};
    for (int mode = 0; mode < MODES; mode++)
        for (int p = 0; p < PATTERNS; p++) {
            if (!test_diagonal(2, p, PATTERNS, mode, MODES)) continue;
            const Way frozen = {.what = patterns[p],
                                .request = {.dtype = dtypes[(mode + p) % 2], .freeze = patterns[p]}};
            WayRank rank[MAX_RANKS];
            const Layout l = layout_of(mode, UNEVEN);
            run_way(&l, &frozen, rank);
            for (int r = 0; r < l.tp; r++) {
                const Kept *k = &rank[r].kept;
                const GxStore *s = &k->t[0]->m.store;
                for (int i = 0; i < s->table->n; i++) {
                    const int64_t size = gx_dtype_size(s->dtype), at = s->place[i].weight * size,
                                  bytes = gx_tensor_count(&s->table->row[i]) * size;
                    const int moved =
                        memcmp((char *)k->weights[0] + at, (char *)k->weights[1] + at, (size_t)bytes) != 0;
                    CHECK(moved == !s->table->row[i].frozen, "%s, %s: rank %d: %s %s", l.what, patterns[p], r,
                          s->table->row[i].name, moved ? "has moved" : "has not moved");
                }
            }
            free_way(&l, rank);
        }
}

// Up to which pair gradients must go.
typedef struct {
    const char *freeze;
    int unit, is_mlp; // the lowest pair of which something is trained
} Lowest;

static int is_below(const Lowest *lowest, const GxEvent *e)
{
    return e->unit < lowest->unit || (e->unit == lowest->unit && lowest->is_mlp && !strncmp(e->site, "att", 3));
}

static int is_of_backward(const GxEvent *e)
{
    return e->kind == GX_EVENT_OP && e->unit >= 0 &&
           (strstr(e->name, "backward") || !strcmp(e->name, "adamw") || !strcmp(e->name, "sum_squares"));
}

static void check_nothing_below(const Layout *l, const Lowest *lowest, const GxRecorder *rec)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rec->n; i++) {
        const GxEvent *e = &rec->event[i];
        if (!is_of_backward(e)) continue;
        CHECK(!is_below(lowest, e), "%s, frozen %s: %s at %s of unit %d", l->what, lowest->freeze, e->name, e->site,
              e->unit);
        n++;
    }
    CHECK(n > 0, "%s, frozen %s: no backward operation", l->what, lowest->freeze);
}

static int64_t collectives_below(const Lowest *lowest, const GxRecorder *rec, int unit)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rec->n; i++) {
        const GxEvent *e = &rec->event[i];
        n += e->kind == GX_EVENT_COLLECTIVE && e->unit == unit && is_below(lowest, e);
    }
    return n;
}

TEST(nothing_is_computed_or_sent_below_the_lowest_tensor_that_is_trained)
{
    static const Lowest lowest[] = {
        {"model.embed_tokens.weight", 1, 0},
        {"model.embed_tokens.weight,*.0.self_attn.*,*.0.input_layernorm.*", 1, 1},
        {"model.embed_tokens.weight,model.layers.0.*", 2, 0},
        {"model.embed_tokens.weight,model.layers.0.*,*.1.self_attn.*,*.1.input_layernorm.*", 2, 1},
        {"model.embed_tokens.weight,model.layers.*", HEAD, 0},
    };
    for (int mode = 0; mode < MODES; mode++) {
        WayRank full[MAX_RANKS], rank[MAX_RANKS];
        const Layout l = layout_of(mode, UNEVEN);
        run_way(&l, &by_the_runner, full);
        for (size_t i = 0; i < sizeof lowest / sizeof *lowest; i++) {
            const Way frozen = {.what = lowest[i].freeze, .request = {.freeze = lowest[i].freeze}};
            run_way(&l, &frozen, rank);
            for (int r = 0; r < l.tp; r++) {
                const GxRecorder *rec = &rank[r].kept.window, *all = &full[r].kept.window;
                check_nothing_below(&l, &lowest[i], rec);
                for (int u = 0; u < HEAD; u++) {
                    // A layer's backward mirrors its forward: one of each is left. The embedding's forward has one.
                    const int64_t n = collectives_below(&lowest[i], all, u), forward = u ? n / 2 : gx_min(n, MICRO),
                                  left = collectives_below(&lowest[i], rec, u);
                    CHECK(left == forward, "%s, frozen %s: unit %d: %ld collectives below, %ld of them forward", l.what,
                          lowest[i].freeze, u, (long)left, (long)forward);
                }
                CHECK(rec->flops < all->flops || i == 0, "%s, frozen %s: as much work as without", l.what,
                      lowest[i].freeze);
            }
            free_way(&l, rank);
        }
        free_way(&l, full);
    }
}

static int64_t count_at(const GxRecorder *rec, const char *name, const char *site, int unit)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rec->n; i++) {
        const GxEvent *e = &rec->event[i];
        n += e->kind != GX_EVENT_WAIT && e->unit == unit && (!name || !strcmp(e->name, name)) &&
             (!site || !strcmp(e->site, site));
    }
    return n;
}

// Nor is the gradient of what the lowest pair reads, unless its norm is trained: of the MLP's two products of input
// gradients the inner one is left, and at its entry nothing goes back.
TEST(no_gradient_leaves_the_lowest_pair_where_its_norm_is_frozen)
{
    static const Way frozen = {
        .what = "MLP of layer 0 the lowest, without its norm",
        .request = {.freeze = "model.embed_tokens.weight,*.0.self_attn.*,*.0.*layernorm.weight"}};
    for (int mode = 0; mode < MODES; mode++) {
        WayRank rank[MAX_RANKS];
        const Layout l = layout_of(mode, UNEVEN);
        const GxMoveKind entry = gx_core_entry(l.mode->methods.mlp, l.mode->methods.con).move.forward;
        const int64_t enters = entry == GX_MOVE_NONE || entry == GX_MOVE_SLICE || l.tp == 1 ? 0 : MICRO;
        run_way(&l, &frozen, rank);
        for (int r = 0; r < l.tp; r++) {
            const GxRecorder *rec = &rank[r].kept.window;
            const int64_t inputs = count_at(rec, "linear_backward_input", NULL, 1),
                          weights = count_at(rec, "linear_backward_weight", NULL, 1),
                          norms = count_at(rec, "rms_norm_backward", NULL, 1),
                          sent = count_at(rec, NULL, "mlp_entry", 1);
            CHECK(inputs == MICRO && weights == 2 * MICRO && norms == 0 && sent == enters,
                  "%s: %ld gradients of inputs, %ld of weights, %ld of norms, %ld collectives at the entry, not %ld",
                  l.what, (long)inputs, (long)weights, (long)norms, (long)sent, (long)enters);
        }
        free_way(&l, rank);
    }
}

// ---- refusals ------------------------------------------------------------------------------------------------------

// What opening a model and its runner says; "" where it is well.
static void open_error(const GxModelOptions *options, int tied, char text[600])
{
    GxContext g = GX_ZERO;
    GxLlamaConfig config = model_config;
    GxMesh mesh;
    GxModel m;
    GxRunner r;
    GxOptimizer o = GX_ZERO;
    const GxRunnerSpec spec = GX_ZERO;
    int dims[GX_MESH_AXES] = {1, 1, 1, 1, 1};
    config.tie_word_embeddings = tied;
    g.device = test_device(), g.world = 1, g.threads = 1;
    gx_mesh_open(&mesh, dims, 0, 1, &g.error);
    g.mesh = &mesh;
    if (gx_model_open(&g, &m, &gx_llama, &config, &test_serial, options) == GX_OK) {
        gx_runner_open(&g, &r, &m, &o, &spec);
        gx_runner_close(&r);
    }
    gx_model_close(&m);
    snprintf(text, 600, "%s", g.error.message);
}

TEST(freezing_nothing_or_everything_is_refused_by_name)
{
    const struct {
        const char *freeze, *says;
        int tied;
    } cases[] = {
        {"model.layers.7.*", "\"model.layers.7.*\"", 0},
        {"lm_head.weight,model.layer.0.*", "\"model.layer.0.*\"", 0},
        {"*", "every tensor of the model is frozen", 0},
        {"model.*,lm_head.weight", "every tensor of the model is frozen", 0},
        {"model.*", "every tensor of the model is frozen", 1}, // the head is the embedding
        {"lm_head.weight", "", 1},
        {"model.*", "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxModelOptions options = GX_ZERO;
        char text[600];
        options.freeze = cases[i].freeze;
        open_error(&options, cases[i].tied, text);
        CHECK(cases[i].says[0] ? strstr(text, cases[i].says) != NULL : !text[0], "--freeze %s: \"%s\"", cases[i].freeze,
              text);
    }
}

// Where all units are together head and embedding have one matrix; where they are not, each has one, and both are drawn
// alike.
TEST(a_tied_head_without_its_embedding_has_a_copy_of_the_matrix)
{
    static const int units[3][2] = {{0, UNITS}, {0, 2}, {2, UNITS}};
    TestModel *t[3];
    float *matrix[3];
    GxLlamaConfig config = model_config;
    config.tie_word_embeddings = 1;
    for (int k = 0; k < 3; k++) {
        t[k] = (TestModel *)calloc(1, sizeof *t[k]);
        t[k]->request.first_unit = units[k][0], t[k]->request.last_unit = units[k][1];
        if (!test_model_open_split(t[k], &config, &test_serial, T, 1, 7, NULL, 1, 1, NULL)) return;
        test_init(t[k], 42);
        const GxStore *s = &t[k]->m.store;
        const int embedding = gx_table_find(&t[k]->m.table, "model.embed_tokens.weight").index,
                  head = gx_table_find(&t[k]->m.table, "lm_head.weight").index, of = k == 2 ? head : embedding;
        CHECK(gx_store_is_alias(s, head) == (k < 2) && gx_store_holder(s, embedding) == of &&
                  gx_store_is_apart(s, embedding) == (k > 0) && gx_store_unit(s, of) == (k == 2 ? HEAD : 0),
              "units %d to %d: row %d has the values, %d: of two stages", units[k][0], units[k][1] - 1,
              gx_store_holder(s, embedding), gx_store_is_apart(s, embedding));
        matrix[k] = test_kept(t[k], gx_store_weight_at(s, of, 0), 61 * 32);
        CHECK(!memcmp(matrix[0], matrix[k], 4 * 61 * 32), "units %d to %d: another matrix", units[k][0],
              units[k][1] - 1);
    }
    CHECK(t[1]->m.store.weights_n + t[2]->m.store.weights_n == t[0]->m.store.weights_n + 61 * 32,
          "%ld and %ld weights of %ld, and a copy", (long)t[1]->m.store.weights_n, (long)t[2]->m.store.weights_n,
          (long)t[0]->m.store.weights_n);
    for (int k = 0; k < 3; k++) free(matrix[k]), test_model_close(t[k]), free(t[k]);
}

typedef struct {
    const char *what, *says;
    int64_t T, B;
    int action; // action: what one of the list becomes
} Refusal;

static void check_refusal(const Refusal *c)
{
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    GxBatch batch;
    int32_t *tokens = (int32_t *)calloc(4 * T * MAX_COLUMNS, sizeof *tokens);
    char text[600];
    if (test_model_open(t, &model_config, &test_serial, T, 2, HEAD_CHUNK, NULL, 1)) {
        test_init(t, 42);
        test_set_step(t, 0.1f, 0);
        float *before = test_kept(t, t->m.store.weights, t->m.store.weights_n);
        memset(&batch, 0, sizeof batch);
        batch.tokens = tokens, batch.target[0].labels = tokens + 2 * T * MAX_COLUMNS, batch.T = c->T, batch.B = c->B,
        batch.runs = gx_runs_one(c->T, 0);
        if (c->action) t->r.train.action[3].what = (int8_t)c->action;
        gx_runner_train(&t->g, &t->r, &batch, NULL, NULL);
        snprintf(text, sizeof text, "%s", t->g.error.message);
        CHECK(strstr(text, c->says), "%s: \"%s\"", c->what, text);
        CHECK(!memcmp(before, t->m.store.weights, (size_t)t->m.store.weights_n * 4), "%s: weights have moved", c->what);
        free(before);
    }
    test_model_close(t);
    free(tokens);
    free(t);
}

TEST(the_runner_refuses_what_it_has_no_memory_for_and_what_is_not_built)
{
    static const Refusal cases[] = {
        {"too many samples", "a batch of 3 sequences of 8 tokens is too large: memory was allocated for at most 2", T,
         3, 0},
        {"too long",
         "a batch of 2 sequences of 9 tokens is too large: memory was allocated for at most 2 sequences of 1 to 8",
         T + 1, 2, 0},
        {"no samples", "a batch of 0 sequences", T, 0, 0},
        {"an action of offloading", "action 3 of the list (SPILL", T, 2, GX_DO_SPILL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_refusal(&cases[i]);
}

// Of a layer: keys and values, queries and the result of attention with its log-sum-exps; gate and up of the MLP.
TEST(a_core_that_is_computed_again_keeps_nothing)
{
    const GxLlamaConfig *c = &model_config;
    const int64_t R = T * 3, h = c->head_dim, q = c->num_attention_heads * h, kv = c->num_key_value_heads * h,
                  att = gx_round_up(4 * R * (q + 2 * kv), GX_ALIGN) + gx_round_up(4 * R * q, GX_ALIGN) +
                        gx_round_up(4 * R * c->num_attention_heads, GX_ALIGN),
                  mlp = gx_round_up(8 * R * c->intermediate_size, GX_ALIGN);
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    if (!CHECK(test_model_open(t, c, &test_serial, T, 3, 8, NULL, 1), "no model")) return;
    const int64_t all = gx_slot_bytes(&t->m, 1, T, 3, 0), other = gx_slot_bytes(&t->m, 2, T, 3, 0);
    for (int again = 1; again <= (GX_AGAIN_ATT | GX_AGAIN_MLP); again++) {
        t->m.unit[1].again = again;
        const int64_t without = (again & GX_AGAIN_ATT ? att : 0) + (again & GX_AGAIN_MLP ? mlp : 0);
        CHECK(all - gx_slot_bytes(&t->m, 1, T, 3, 0) == without, "%d: %ld bytes less, not %ld", again,
              (long)(all - gx_slot_bytes(&t->m, 1, T, 3, 0)), (long)without);
        CHECK(gx_slot_bytes(&t->m, 2, T, 3, 0) == other, "%d: of another layer, too", again);
    }
    test_model_close(t);
    free(t);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
