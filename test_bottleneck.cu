// test_bottleneck.cu: bottleneck adapters in every mode against serial and against PyTorch, what they train and what
// they cost, and refusals.
#include "test/tuned_refs.h"

TEST(adapters_in_every_mode_are_serial) { check_tuned((Tuned){"LLaMA", .bottleneck = 1}, 0, 1); }
TEST(adapters_beside_norms_that_are_trained_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA", .bottleneck = 2}, 0, 1);
}

// BERT's have their input's bias, dropout and a norm behind them.
TEST(adapters_of_models_with_picked_rows_in_every_mode_are_serial)
{
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .bottleneck = 1}, i, SUBJECTS);
    }
    test_subject = NULL;
}
TEST(adapters_behind_biases_that_are_trained_in_every_mode_are_serial)
{
    for (int i = 0; i < 4; i++) {
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .bottleneck = 3}, i, 4);
    }
    test_subject = NULL;
}
TEST(adapters_behind_quantised_matrices_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA on doubled NF4", .bottleneck = 1, .quantize = 1 + GX_NF4_DOUBLED}, 0, 1);
    check_tuned((Tuned){"LLaMA on int8", .bottleneck = 2, .quantize = 1 + GX_INT8}, 0, 1);
    test_subject = &pretraining;
    check_tuned((Tuned){"pre-training on NF4", .bottleneck = 1, .quantize = 1 + GX_NF4}, 0, 1);
    test_subject = NULL;
}
TEST(adapters_in_all_18_triples_of_methods_are_serial) { check_all_triples((Tuned){"LLaMA", .bottleneck = 1}); }

// ---- against PyTorch (dev/ref/make_bottleneck_refs.py) -------------------------------------------------------------

static void adapters_as_pytorch(const char *base, int64_t reduction, const char *trainable, int trained)
{
    const GxBottleneck bottleneck = {reduction, trainable};
    TestRequest request = GX_ZERO;
    char ref[100];
    request.bottleneck = &bottleneck;
    snprintf(ref, sizeof ref, "bottleneck_%s", base);
    as_pytorch(base, ref, &request, trained);
}
TEST(adapters_of_a_llama_as_pytorch) { adapters_as_pytorch("llama_odd", 3, NULL, 3 * 2 * 4); }
TEST(adapters_of_a_llama_with_shared_heads_as_pytorch) { adapters_as_pytorch("llama_gqa", 16, NULL, 2 * 2 * 4); }
TEST(adapters_of_a_gemma3_before_the_norms_of_what_they_adapt_as_pytorch)
{
    adapters_as_pytorch("llama_gemma3_biased", 4, NULL, 2 * 2 * 4);
}
TEST(adapters_of_a_bert_behind_matrices_that_are_trained_as_pytorch)
{
    adapters_as_pytorch("bert_cls3", 2, "output.dense", 2 * 2 * (4 + 2) + 4);
}

// The lowest of these biases is behind the lowest core, in which nothing is trained.
TEST(biases_before_adapters_are_trained_without_their_matrices)
{
    Case k;
    static const GxBottleneck bottleneck = {2, "output.dense"};
    TestRequest request = GX_ZERO;
    request.bottleneck = &bottleneck, request.freeze = "bert.encoder.*output.dense.weight";
    if (!case_open(&k, "bert_cls3", "bottleneck_bert_cls3", &request)) return;
    const double backward = test_bound(test_reference_depth(&k.base, 1));
    float *norm = read_floats(&k.ref, "grad_norm", "", 1);
    CHECK(k.trained == 2 * 2 * (4 + 1) + 4, "%d tensors are trained", k.trained);
    gx_runner_train(&k.t.g, &k.t.r, &k.base.b, NULL, NULL);
    if (norm) compare(&k, "grad.", 1, backward, 1e-3 * norm[0] / sqrt(2 * 2 * (4 + 2) + 4));
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    free(norm);
    case_close(&k);
}

// ---- what is trained, and what it costs ----------------------------------------------------------------------------

static void expect_refusal(const GxBottleneck *bottleneck, const GxLora *lora, const char *said)
{
    GxLlamaConfig c = model_config;
    GxModelOptions o = GX_ZERO;
    o.adapter.bottleneck = *bottleneck;
    if (lora) o.adapter.lora = *lora;
    expect_no_model(&gx_llama, &c, &test_serial, &o, said);
}

TEST(reductions_that_are_no_divisors_of_the_width_and_modules_that_are_not_there_are_refused)
{
    static const GxBottleneck odd = {5, NULL}, wide = {64, NULL}, negative = {-1, NULL}, none = {4, "norms"},
                              good = {32, NULL};
    static const GxLora lora = {.r = 2, .alpha = 2};
    expect_refusal(&odd, NULL, "adapter_reduction_dim is 5; it must divide the model's width, which is 32");
    expect_refusal(&wide, NULL, "adapter_reduction_dim is 64");
    expect_refusal(&negative, NULL, "adapter_reduction_dim is -1");
    expect_refusal(&none, NULL, "\"norms\" matches no module of the model");
    expect_refusal(&good, &lora, "LoRA and bottleneck adapters are two ways");
}

// The tables' own draws, which test/model.h has made larger, and the loss of a window with them.
static double first_loss(const GxBottleneck *bottleneck, int *without_gradient)
{
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    GxBatch b = GX_ZERO;
    int32_t tokens[2][T * 4];
    t->request.bottleneck = bottleneck;
    for (int i = 0; i < T * 4; i++) tokens[0][i] = token_at(i, 0), tokens[1][i] = token_at(i, 1);
    b.tokens = tokens[0], b.target[0].labels = tokens[1], b.T = T, b.B = 4, b.runs = gx_runs_one(T, 0);
    if (!test_model_open_split(t, &model_config, &test_serial, T, 4, HEAD_CHUNK, NULL, 1, 1, NULL)) return NAN;
    GxModel drawn;
    GxModelOptions o = GX_ZERO;
    o.adapter = test_adapter(&t->request);
    CHECK(gx_model_open(&t->g, &drawn, &gx_llama, &t->config, &test_serial, &o) == GX_OK, "%s", t->g.error.message);
    for (int i = 0; i < drawn.table.n; i++)
        t->m.table.row[i].init = drawn.table.row[i].init, t->m.table.row[i].init_std = drawn.table.row[i].init_std;
    gx_model_close(&drawn);
    test_put_batch(t, &b, 0);
    gx_model_init(&t->g, &t->m, 42);
    test_set_step(t, 0, 0);
    gx_runner_train(&t->g, &t->r, &b, NULL, NULL);
    const GxStep step = test_step(t);
    *without_gradient = 0;
    for (int i = 0; i < t->m.table.n; i++) {
        const int64_t n = gx_tensor_count(&t->m.table.row[i]);
        double squares = 0;
        if (!gx_store_trains(&t->m.store, i)) continue;
        float *grad = test_kept(t, gx_store_grads(&t->m.store, i), n);
        for (int64_t e = 0; e < n; e++) squares += (double)grad[e] * grad[e];
        *without_gradient += !(squares > 0);
        free(grad);
    }
    CHECK(!gx_failed(&t->g), "%s", t->g.error.message);
    test_model_close(t);
    free(t);
    return gx_step_loss(&step);
}

// What is added is less than a hundredth of what it is added to, and so is what becomes of the loss.
TEST(adapters_begin_as_nearly_nothing_with_gradients_everywhere)
{
    int zeros = 0;
    const double without = first_loss(NULL, &zeros), with = first_loss(&test_bottlenecks[0], &zeros);
    CHECK(with != without && fabs(with - without) < 0.01 * without, "a loss of %g, and %g without them", with, without);
    CHECK(zeros == 0, "%d tensors have no gradient", zeros);
}

// Forward as the whole model; backward through all but the lowest attention, without gradients of the base. An adapter
// has two products forward and four backward, and the lowest one three: its input's gradient is nobody's.
TEST(adapters_cost_no_gradients_of_the_base_and_nothing_below_the_lowest)
{
    Result all, some;
    Layout l = {.what = "1 rank", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 1, .samples = {4}};
    run_serial(&l, &all);
    l.bottleneck = 1;
    run_serial(&l, &some);
    double products[2] = {0, 0}, below = 0, up_to_there = 0;
    const Result *of[2] = {&all, &some};
    for (int r = 0; r < 2; r++)
        for (int64_t i = 0; i < of[r]->window.n; i++) {
            const GxEvent *e = &of[r]->window.event[i];
            if (!strncmp(e->name, "linear_", 7)) products[r] += e->flops;
            if (r == 1 && e->unit == 1 && !strcmp(e->site, "att") && strstr(e->name, "backward")) below += e->flops;
            if (r == 1 && e->unit == 0 && strstr(e->name, "backward")) below += e->flops;
            if (r == 1 && e->unit == 1 && !strcmp(e->site, "att_norm") && strstr(e->name, "backward")) below += 1;
        }
    const double tokens = (double)T * 4, C = (double)model_config.hidden_size, F = C / 4,
                 attention = 2 * tokens * (C * (6 + 2 * 3) * 8 + 6 * 8 * C);
    up_to_there = products[0] * 2 / 3 - attention + (2 * LAYERS * 6 - 1) * 2 * tokens * C * F;
    CHECK(below == 0, "%g FLOPs of a backward below the lowest adapter", below);
    CHECK(products[1] == up_to_there, "%.0f FLOPs of products; expected %.0f", products[1], up_to_there);
    int64_t n = 0;
    for (int i = 0; i < some.model->m.table.n; i++)
        if (some.model->m.table.row[i].is_added) n += gx_tensor_count(&some.model->m.table.row[i]);
    CHECK(gx_table_trained(&some.model->m.table) == n && n == (int64_t)(2 * LAYERS * (2 * C * F + C + F)),
          "%ld elements are trained", (long)gx_table_trained(&some.model->m.table));
    const GxArena *whole = &all.model->arena, *part = &some.model->arena;
    const int64_t bytes = 4 * some.model->m.store.trained_n;
    CHECK(some.model->m.store.trained_n <= n + 2 * LAYERS * 4 * GX_ALIGN / 4, "%ld elements have gradients",
          (long)some.model->m.store.trained_n);
    CHECK(part->kind_used[GX_MEM_GRADS] == gx_round_up(bytes, GX_ALIGN) &&
              part->kind_used[GX_MEM_OPTIMIZER] == 2 * gx_round_up(bytes, GX_ALIGN) && part->peak < whole->peak,
          "%ld bytes of gradients, %ld of moments, %ld of all, where all that is trained takes %ld",
          (long)part->kind_used[GX_MEM_GRADS], (long)part->kind_used[GX_MEM_OPTIMIZER], (long)part->peak,
          (long)whole->peak);
    free_result(&all), free_result(&some);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
