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
    test_request.spec.recomputes_layers = w->recomputes, test_request.spec.order = w->order;
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

int main(int argc, char **argv) { return test_main(argc, argv); }
