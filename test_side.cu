// test_side.cu: side networks in every mode against serial and against PyTorch, what they train and what they cost, and
// refusals.
#include "test/tuned_refs.h"

TEST(side_networks_in_every_mode_are_serial) { check_tuned((Tuned){"LLaMA", .side = 1}, 0, 1); }
TEST(gated_side_networks_with_biases_in_every_mode_are_serial) { check_tuned((Tuned){"LLaMA", .side = 2}, 0, 1); }
TEST(side_networks_with_a_norm_that_is_trained_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA", .side = 3}, 0, 1);
}
TEST(side_networks_of_models_with_picked_rows_in_every_mode_are_serial)
{
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .side = 1 + i % 2}, i, SUBJECTS);
    }
    test_subject = NULL;
}

// ---- against PyTorch (dev/ref/make_side_refs.py) --------------------------------------------------------------------

static void side_as_pytorch(const char *base, const char *ref, int64_t reduction, int is_gated, int has_bias,
                            int trained)
{
    const GxSide side = {reduction, is_gated, has_bias, NULL};
    TestRequest request = GX_ZERO;
    request.side = &side;
    as_pytorch(base, ref, &request, trained);
}
TEST(a_side_network_of_a_llama_as_pytorch) { side_as_pytorch("llama_odd", "side_llama_odd", 3, 0, 0, 3 * 9 + 4 + 1); }
TEST(a_gated_side_network_with_biases_of_a_llama_with_shared_heads_as_pytorch)
{
    side_as_pytorch("llama_gqa", "side_llama_gqa", 8, 1, 1, 2 * (9 + 1) + 2 * (3 + 1));
}
TEST(a_side_network_of_a_bert_as_pytorch) { side_as_pytorch("bert_cls3", "side_bert_cls3", 2, 0, 0, 2 * 16 + 4 + 4); }
TEST(a_gated_side_network_with_biases_of_a_bert_as_pytorch)
{
    side_as_pytorch("bert_cls3", "side_bert_cls3_gated", 2, 1, 1, 2 * (16 + 1) + 2 * 4 + 4);
}

// ---- what is trained, and what it costs ----------------------------------------------------------------------------

static void expect_refusal(const GxSide *side, const GxBottleneck *bottleneck, const GxMode *mode, const char *said)
{
    GxLlamaConfig c = model_config;
    GxModelOptions o = GX_ZERO;
    o.adapter.side = *side;
    if (bottleneck) o.adapter.bottleneck = *bottleneck;
    expect_no_model(&gx_llama, &c, mode, &o, said);
}

TEST(weight_decay_is_on_matrices_and_not_on_gates)
{
    const GxSide side = {2, 1, 0, NULL};
    GxContext g = GX_ZERO;
    GxModel m;
    GxLlamaConfig c = model_config;
    GxModelOptions o = GX_ZERO;
    int gates = 0, matrices = 0;
    o.adapter.side = side;
    g.device = test_device();
    g.world = 1;
    CHECK(gx_model_open(&g, &m, &gx_llama, &c, &test_serial, &o) == GX_OK, "%s", g.error.message);
    for (int i = 0; i < m.table.n; i++) {
        const GxTensor *t = &m.table.row[i];
        const int is_gate = strstr(t->name, "side.gate") != NULL, is_matrix = t->is_added && t->ndim == 2;
        if (is_gate || is_matrix) CHECK(t->decay == is_matrix, "%s has decay %d", t->name, t->decay);
        gates += is_gate, matrices += is_matrix;
    }
    CHECK(gates == c.num_hidden_layers && matrices > gates, "%d gates, %d matrices", gates, matrices);
    gx_model_close(&m);
}

TEST(a_layer_of_a_side_network_has_the_window_of_the_layer_that_it_stands_beside)
{
    const GxSide side = {2, 0, 0, NULL};
    GxContext g = GX_ZERO;
    GxModel m;
    GxLlamaConfig c = model_config;
    GxModelOptions o = GX_ZERO;
    int64_t window[2][GX_MAX_UNITS];
    int layers[2] = {0, 0};
    snprintf(c.model_type, sizeof c.model_type, "qwen2");
    c.num_hidden_layers = 3, c.sliding_window = 5;
    snprintf(c.layer_types, sizeof c.layer_types, "sfs");
    o.adapter.side = side;
    g.device = test_device();
    g.world = 1;
    CHECK(gx_model_open(&g, &m, &gx_llama, &c, &test_serial, &o) == GX_OK, "%s", g.error.message);
    for (int u = 0; u < m.units; u++) {
        const int is_side = gx_unit_spec(&m, u)->side != GX_SIDE_NONE;
        if (gx_unit_spec(&m, u)->n_pairs && gx_unit_spec(&m, u)->pair[0].core.kind == GX_CORE_ATT)
            window[is_side][layers[is_side]++] = m.unit[u].sliding_window;
    }
    for (int s = 0; s < 2; s++)
        CHECK(layers[s] == 3 && window[s][0] == 5 && window[s][1] == 0 && window[s][2] == 5, "%d layers, of %s",
              layers[s], s ? "the side network" : "the model");
    gx_model_close(&m);
}

TEST(reductions_that_are_no_divisors_of_the_width_and_modules_without_a_gradient_are_refused)
{
    static const GxSide odd = {5, 0, 0, NULL}, wide = {64, 0, 0, NULL}, negative = {-1, 0, 0, NULL},
                        none = {4, 0, 0, "norms"}, beside = {4, 0, 0, "input_layernorm"}, good = {4, 0, 0, NULL};
    static const GxBottleneck adapters = {4, NULL};
    expect_refusal(&odd, NULL, &test_serial,
                   "side_reduction_factor is 5; it must divide the model's width (hidden_size), which is 32");
    expect_refusal(&wide, NULL, &test_serial, "side_reduction_factor is 64");
    expect_refusal(&negative, NULL, &test_serial, "side_reduction_factor is -1");
    expect_refusal(&none, NULL, &test_serial, "\"norms\" matches no module of the model");
    expect_refusal(&beside, NULL, &test_serial, "model.layers.0.input_layernorm.weight cannot be trained beside");
    expect_refusal(&good, &adapters, &test_serial, "bottleneck adapters and a side network are two ways");
}

// A window of the model's own draws, or of those that tests make larger; what is left of it.
typedef struct {
    double loss, validation; // in training; of the same batch in a validation
    float *grads;
    TestModel *t;
} Window;

static Window one_window(const Layout *l, const GxRunnerSpec *spec, int is_drawn_larger)
{
    Window w = {NAN, NAN, NULL, (TestModel *)calloc(1, sizeof(TestModel))};
    TestModel *t = w.t;
    GxLlamaConfig config = model_config_of(l);
    GxBatch batch[MAX_MICRO];
    GxModelOptions o = GX_ZERO;
    GxModel drawn;
    char other[4096];
    int32_t *tokens = (int32_t *)malloc((TEST_ARRAYS + 2) * MAX_MICRO * T * MAX_COLUMNS * sizeof *tokens);
    t->request.spec = *spec, t->request.again = test_request.again;
    wish_subject(&t->request, l, other, sizeof other);
    if (!test_model_open_split(t, &config, &test_serial, T, l->samples[0], HEAD_CHUNK, NULL, 1, 1, NULL)) exit(1);
    o.adapter = test_adapter(&t->request), o.head = t->request.head;
    CHECK(gx_model_open(&t->g, &drawn, t->m.family, (void *)(uintptr_t)t->m.config, &test_serial, &o) == GX_OK, "%s",
          t->g.error.message);
    for (int i = 0; i < drawn.table.n && !is_drawn_larger; i++)
        t->m.table.row[i].init = drawn.table.row[i].init, t->m.table.row[i].init_std = drawn.table.row[i].init_std;
    gx_model_close(&drawn);
    fill_window(l, 0, 0, l->samples[0], l->micro, batch, tokens);
    for (int i = 0; i < l->micro; i++) test_put_batch_values(t, &batch[i], i, values_of());
    gx_model_init(&t->g, &t->m, 42);
    gx_zero(&t->g, t->m.store.moment[0], 4 * t->m.store.trained_n);
    t->o.kind = GX_OPTIMIZER_SGD;
    test_set_step(t, 0, 0);
    gx_runner_train(&t->g, &t->r, batch, NULL, NULL);
    GxStep step = test_step(t);
    w.loss = step.loss_sum[0];
    w.grads = test_kept(t, t->m.store.grads, t->m.store.trained_n);
    memset(step.loss_sum, 0, sizeof step.loss_sum);
    gx_to_device(&t->g, t->g.step, &step, sizeof step);
    for (int i = 0; i < l->micro; i++) gx_runner_forward(&t->g, &t->r, &batch[i], t->g.step->loss_sum);
    step = test_step(t);
    w.validation = step.loss_sum[0];
    CHECK(!gx_failed(&t->g), "%s", t->g.error.message);
    free(tokens);
    return w;
}

static void window_close(Window *w)
{
    test_model_close(w->t);
    free(w->t), free(w->grads);
}

static const Layout alone = {.what = "1 rank", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 1, .samples = {4}};

// What Up adds is 0, to the bit, and all but Up is without a gradient. A BERT's dropout is nowhere but in its side
// layers: so in training the loss is that of a validation, and of the model alone.
static void begins_as_nothing(const char *what, int which)
{
    const GxRunnerSpec spec = {.micro_batches = 1, .counts = test_subject ? subject_counts : NULL};
    Layout l = alone;
    Window without = one_window(&l, &spec, 0);
    l.side = which;
    Window with = one_window(&l, &spec, 0);
    CHECK(with.loss == without.validation && with.validation == without.validation,
          "%s: a loss of %.9g in training, %.9g in a validation; of the model alone %.9g", what, with.loss,
          with.validation, without.validation);
    for (int i = 0; i < with.t->m.table.n; i++) {
        const GxTensor *t = &with.t->m.table.row[i];
        const int64_t at = test_flat(with.t, i);
        double squares = 0;
        for (int64_t e = 0; at >= 0 && e < gx_tensor_count(t); e++)
            squares += (double)with.grads[at + e] * with.grads[at + e];
        if (t->is_added)
            CHECK((squares > 0) == !strncmp(t->name, "side.up.", 8), "%s: %s has a gradient of norm %g", what, t->name,
                  sqrt(squares));
    }
    window_close(&with), window_close(&without);
}
TEST(a_side_network_begins_as_nothing_beside_a_model_in_evaluation_mode)
{
    begins_as_nothing("LLaMA", 1);
    begins_as_nothing("LLaMA, gated", 2);
    test_subject = &masked;
    begins_as_nothing("BERT", 1);
    begins_as_nothing("BERT, gated", 2);
    test_subject = NULL;
}

// again: of two layers. expected: the units that are
static void expect_recomputed(int side, const uint8_t *again, const int *expected, int n)
{
    Layout l = alone;
    GxRunnerSpec spec = {.micro_batches = 1};
    l.side = side;
    test_request.again = again;
    Window w = one_window(&l, &spec, 1);
    int found = 0;
    for (int i = 0; i < w.t->r.train.n; i++) {
        const GxAction *a = &w.t->r.train.action[i];
        if (a->what != GX_DO_RECOMPUTE) continue;
        CHECK(found < n && a->unit == expected[found], "side %d: unit %d is computed again", side, a->unit);
        found++;
    }
    CHECK(found == n, "side %d: %d units of %d are computed again", side, found, n);
    test_request.again = NULL;
    window_close(&w);
}

// A model has embedding, two layers, head; beside a side network embedding, Down alone, twice a layer and a side layer,
// head.
TEST(layers_are_computed_again_by_their_numbers)
{
    static const uint8_t first[] = {GX_AGAIN_LAYER, 0}, last[] = {GX_AGAIN_MLP, GX_AGAIN_LAYER};
    static const int unit_1[] = {1}, unit_2[] = {2}, of_side_1[] = {3, 1}, of_side_2[] = {5};
    expect_recomputed(0, first, unit_1, 1), expect_recomputed(0, last, unit_2, 1);
    expect_recomputed(1, first, of_side_1, 2), expect_recomputed(1, last, of_side_2, 1);
}

// Micro-batches all forward first, layers computed again, weight halves put off: not a bit of a gradient changes.
static void lists_change_nothing(const char *what, int which)
{
    static const uint8_t of_two[] = {GX_AGAIN_ATT, GX_AGAIN_LAYER};
    static const struct {
        GxRunnerSpec spec;
        const uint8_t *again;
    } lists[] = {{.again = test_layers_again},
                 {.again = of_two},
                 {.spec = {.order = GX_ORDER_GPIPE}},
                 {.spec = {.defers_weights = 1}},
                 {.spec = {.order = GX_ORDER_GPIPE, .defers_weights = 1}, .again = test_layers_again},
                 {.spec = {.bucket = 1}}};
    Layout l = alone;
    l.micro = 2, l.side = which;
    GxRunnerSpec spec = {.micro_batches = 2, .counts = test_subject ? subject_counts : NULL};
    Window plain = one_window(&l, &spec, 1);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const GxRunnerSpec *s = &lists[i].spec;
        test_request.again = lists[i].again, spec.order = s->order, spec.bucket = s->bucket;
        spec.defers_weights = s->defers_weights;
        Window other = one_window(&l, &spec, 1);
        CHECK(other.loss == plain.loss, "%s, list %d: a loss of %.9g, not %.9g", what, (int)i, other.loss, plain.loss);
        CHECK(!memcmp(other.grads, plain.grads, (size_t)plain.t->m.store.trained_n * 4), "%s, list %d: other gradients",
              what, (int)i);
        window_close(&other);
    }
    test_request.again = NULL;
    window_close(&plain);
}
TEST(other_lists_change_no_bit_of_a_side_networks_gradients)
{
    lists_change_nothing("LLaMA", 1);
    lists_change_nothing("LLaMA, gated", 2);
    test_subject = &masked;
    lists_change_nothing("BERT", 1);
    lists_change_nothing("BERT, gated", 2);
    test_subject = NULL;
}

// Embedding 0, Down alone 1, layers 2 and 4, side layers 3 and 5, head 6.
TEST(the_model_beside_a_side_network_has_no_backward_and_keeps_nothing)
{
    static const char list[] = "COUNT F0 F1 F2 F3 F4 F5 B6 B5 B3 B1 NORM1 NORM3 NORM5 AGREE STEP1 STEP3 STEP5";
    Result all, some;
    char text[400];
    Layout l = alone;
    run_serial(&l, &all);
    l.side = 2;
    run_serial(&l, &some);
    const GxModel *m = &some.model->m;
    const GxRunner *r = &some.model->r;
    gx_steps_print(&r->train, text, sizeof text);
    CHECK(!strcmp(text, list), "%s", text);
    int backwards = 0;
    for (int64_t i = 0; i < some.window.n; i++) {
        const GxEvent *e = &some.window.event[i];
        const int is_beside = e->unit == 0 || e->unit == 2 || e->unit == 4,
                  is_back = strstr(e->name, "backward") != NULL;
        CHECK(!is_beside || !is_back, "%s of unit %d at %s", e->name, e->unit, e->site);
        backwards += is_back;
    }
    CHECK(backwards > 0, "no backward at all");
    int64_t n = 0, kept = 0, largest = 0;
    for (int i = 0; i < m->table.n; i++)
        if (m->table.row[i].is_added) n += gx_tensor_count(&m->table.row[i]);
    CHECK(gx_table_trained(&m->table) == n, "%ld elements are trained; the side network has %ld",
          (long)gx_table_trained(&m->table), (long)n);
    const GxArena *whole = &all.model->arena, *part = &some.model->arena;
    const int64_t bytes = 4 * m->store.trained_n;
    CHECK(part->kind_used[GX_MEM_GRADS] == gx_round_up(bytes, GX_ALIGN) &&
              part->kind_used[GX_MEM_OPTIMIZER] == 2 * gx_round_up(bytes, GX_ALIGN) && part->peak < whole->peak,
          "%ld bytes of gradients, %ld of moments, %ld of all, where all that is trained takes %ld",
          (long)part->kind_used[GX_MEM_GRADS], (long)part->kind_used[GX_MEM_OPTIMIZER], (long)part->peak,
          (long)whole->peak);
    // what is there when the head's backward begins: what enters each side unit and what it keeps, and what enters the
    // head, with its gradient; in a forward, what enters and leaves one unit, and its slot, besides
    for (int u = 1; u < m->units; u++)
        if (!gx_side_is_beside(m, u))
            kept +=
                gx_round_up(gx_state_bytes(m, u, T, 4), GX_ALIGN) + gx_round_up(gx_slot_bytes(m, u, T, 4, 0), GX_ALIGN);
    for (int u = 0; u < m->units; u++)
        largest = gx_max(largest, gx_round_up(gx_slot_bytes(m, u, T, 4, 0), GX_ALIGN) +
                                      2 * gx_round_up(gx_state_bytes(m, gx_max(u, 1), T, 4), GX_ALIGN));
    CHECK(r->train.most <= kept + largest, "the worst moment has %ld bytes; what is kept are %ld, and a unit's %ld",
          (long)r->train.most, (long)kept, (long)largest);
    const GxStepsBytes sizes = {r->bytes, r->bytes + m->units, r->bytes + 2 * m->units, NULL, NULL};
    GxError err = GX_ZERO;
    CHECK(gx_steps_check_place(&r->train, &sizes, &err) == GX_OK, "%s", err.message);
    CHECK((double)r->train.bytes <= 1.035 * (double)r->train.most,
          "%ld bytes are placed, %ld are there at the worst moment", (long)r->train.bytes, (long)r->train.most);
    free_result(&all), free_result(&some);
}

// ---- what comes out of the model's layers is there already ---------------------------------------------------------

typedef struct { // of one micro-batch after the other, by its number
    int has, finds, reads, writes;
    char *x[MAX_MICRO][LAYERS];
} Kept;

static int kept_find(GxContext *g, void *user, const GxBatch *b)
{
    Kept *k = (Kept *)user;
    (void)g, (void)b;
    k->finds++;
    return k->has;
}
static void kept_read(GxContext *g, void *user, const GxBatch *b, int layer, GxRows x)
{
    Kept *k = (Kept *)user;
    k->reads++;
    gx_to_device(g, x.data, k->x[b->number][layer], gx_rows_bytes(x));
}
static void kept_write(GxContext *g, void *user, const GxBatch *b, int layer, GxRows x)
{
    Kept *k = (Kept *)user;
    char **at = &k->x[b->number][layer];
    k->writes++;
    if (!*at) *at = (char *)malloc((size_t)gx_rows_bytes(x));
    gx_to_host(g, *at, x.data, gx_rows_bytes(x));
}

// A window that computes, and one that reads: each bit of the gradients is the same, and in the second no layer of the
// model does anything but hand on what goes past it. Validations compute.
static void kept_layers_change_nothing(const char *what, int which)
{
    static Kept kept;
    memset(&kept, 0, sizeof kept);
    const GxUnitCache cache = {kept_find, kept_read, kept_write, &kept};
    GxRunnerSpec spec = {.micro_batches = 2, .counts = test_subject ? subject_counts : NULL, .cache = &cache};
    Layout l = alone;
    l.micro = 2, l.side = which;
    for (int order = 0; order < 2; order++) {
        spec.order = order ? GX_ORDER_GPIPE : GX_ORDER_1F1B;
        memset(&kept, 0, sizeof kept);
        Window computed = one_window(&l, &spec, 1);
        const GxModel *m = &computed.t->m;
        CHECK(kept.finds == 2 && kept.reads == 0 && kept.writes == 2 * LAYERS, "%s: %d finds, %d reads, %d writes",
              what, kept.finds, kept.reads, kept.writes);
        kept.has = 1;
        Window read = one_window(&l, &spec, 1);
        CHECK(kept.finds == 4 && kept.reads == 2 * LAYERS && kept.writes == 2 * LAYERS,
              "%s: %d finds, %d reads, %d writes", what, kept.finds, kept.reads, kept.writes);
        CHECK(computed.loss == read.loss && computed.validation == read.validation, "%s: losses of %.9g and %.9g", what,
              computed.loss, read.loss);
        CHECK(!memcmp(computed.grads, read.grads, (size_t)m->store.trained_n * 4), "%s: other gradients", what);
        // other outputs are other gradients: they are read
        memset(kept.x[1][0], 0, 64);
        Window other = one_window(&l, &spec, 1);
        CHECK(memcmp(computed.grads, other.grads, (size_t)m->store.trained_n * 4), "%s: what was kept is not read",
              what);
        window_close(&computed), window_close(&read), window_close(&other);
        for (int i = 0; i < MAX_MICRO; i++)
            for (int k = 0; k < LAYERS; k++) free(kept.x[i][k]);
    }
}
TEST(layers_of_the_model_whose_outputs_were_kept_change_no_bit_of_a_gradient)
{
    kept_layers_change_nothing("LLaMA", 1);
    kept_layers_change_nothing("LLaMA, gated", 2);
    test_subject = &masked;
    kept_layers_change_nothing("BERT", 1);
    kept_layers_change_nothing("BERT, gated", 2);
    test_subject = NULL;
}

TEST(the_layers_of_a_model_whose_outputs_were_kept_do_nothing)
{
    static Kept kept;
    memset(&kept, 0, sizeof kept);
    const GxUnitCache cache = {kept_find, kept_read, kept_write, &kept};
    Layout l = alone;
    Result computed, read;
    l.side = 2;
    test_request.spec.cache = &cache;
    run_serial(&l, &computed);
    kept.has = 1;
    run_serial(&l, &read);
    test_request.spec.cache = NULL;
    int before = 0, beside = 0;
    for (int64_t i = 0; i < computed.window.n; i++) before += computed.window.event[i].unit == 2;
    for (int64_t i = 0; i < read.window.n; i++) {
        const GxEvent *e = &read.window.event[i];
        if (e->unit != 2 && e->unit != 4) continue;
        CHECK(!strcmp(e->site, "side_cache") && !strcmp(e->name, "copy"), "%s at %s of unit %d", e->name, e->site,
              e->unit);
        beside++;
    }
    CHECK(before > 5 && beside <= 2, "%d operations of a layer that is computed, %d of two that are read", before,
          beside);
    free_result(&computed), free_result(&read);
    for (int i = 0; i < MAX_MICRO; i++)
        for (int k = 0; k < LAYERS; k++) free(kept.x[i][k]);
}

TEST(side_networks_in_all_18_triples_of_methods_are_serial) { check_all_triples((Tuned){"LLaMA", .side = 2}); }

int main(int argc, char **argv) { return test_main(argc, argv); }
