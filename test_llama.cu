// test_llama.cu: LLaMA against transformers (dumps of dev/ref/make_refs.py): activations at block boundaries, loss,
// every gradient, ten steps of SGD and of AdamW, on small odd shapes. The dumps are [B,T,C], Galaxy's rows are [T,B,C].
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/model.h"

typedef struct {
    TestModel t;
    GxDtype dtype; // set before case_open
    GxSafetensors ref;
    GxLlamaConfig c;
    GxBatch b;
    int32_t *tokens, *labels; // [T,B]
    int64_t T, B;
    GxArena kept; // of the device: what each layer's ATT and MLP gave, and the logits
} Case;

static float *read_floats(Case *k, const char *format, int number, int64_t *n)
{
    char name[200];
    GxError err = GX_ZERO;
    snprintf(name, sizeof name, format, number);
    const GxSafetensorsEntry *e = gx_safetensors_find(&k->ref, name);
    if (!CHECK(e != NULL, "no %s in the reference", name)) return NULL;
    float *x = (float *)malloc((size_t)(e->elements + 1) * sizeof *x);
    CHECK(gx_safetensors_read(&k->ref, e, 0, e->elements, x, &err) == GX_OK, "%s", err.message);
    if (n) *n = e->elements;
    return x;
}

static int32_t *read_tokens(Case *k, const char *name)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = gx_safetensors_find(&k->ref, name);
    int32_t *raw = (int32_t *)malloc((size_t)e->elements * 4), *out = (int32_t *)malloc((size_t)e->elements * 4);
    CHECK(gx_safetensors_read_raw(&k->ref, e, 0, e->elements, raw, &err) == GX_OK, "%s", err.message);
    k->B = e->shape[0], k->T = e->shape[1];
    for (int64_t b = 0; b < k->B; b++)
        for (int64_t t = 0; t < k->T; t++) out[t * k->B + b] = raw[b * k->T + t];
    free(raw);
    return out;
}

// Each layer gets scratch of its own, so that what its blocks gave is still there after the whole forward.
static void keep_block_outputs(Case *k)
{
    int64_t L = k->c.num_hidden_layers, n = k->T * k->B * k->c.hidden_size, logits = k->T * k->B * k->c.vocab_size;
    k->t.g.device->arena_open(&k->t.g, &k->kept, 2 * L * gx_round_up(4 * n, GX_ALIGN) + 4 * logits);
    for (int64_t l = 0; l < L; l++) {
        k->t.m.saved[l].a.data = gx_arena_take(&k->kept, GX_MEM_ACTIVATIONS, 4 * n);
        k->t.m.saved[l].m.data = gx_arena_take(&k->kept, GX_MEM_ACTIVATIONS, 4 * n);
    }
}

static int case_open(Case *k, const char *name)
{
    char folder[100], path[140];
    GxError err = GX_ZERO;
    const GxDtype dtype = k->dtype;
    memset(k, 0, sizeof *k);
    k->dtype = k->t.dtype = dtype;
    snprintf(folder, sizeof folder, "data/ref/llama_%s", name);
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (!CHECK(gx_llama_config_read(&k->c, path, &err) == GX_OK, "%s", err.message)) return 0;
    snprintf(path, sizeof path, "%s/ref.safetensors", folder);
    if (!CHECK(gx_safetensors_open(&k->ref, path, &err) == GX_OK, "%s", err.message)) return 0;
    k->tokens = read_tokens(k, "tokens");
    k->labels = read_tokens(k, "labels");
    k->b.tokens = k->tokens, k->b.labels = k->labels, k->b.T = k->T, k->b.B = k->B, k->b.runs = gx_runs_one(k->T, 0);
    if (!test_model_open_split(&k->t, &k->c, &gx_llama_serial, k->T, k->B, 4, NULL, 2, 1, NULL))
        return 0; // logits in chunks of 4 rows
    keep_block_outputs(k);
    test_put_batch(&k->t, &k->b, 0);
    snprintf(path, sizeof path, "%s/model.safetensors",
             folder); // not the folder: ref.safetensors is none of its shards
    gx_checkpoint_load_weights(&k->t.g, &k->t.m.model, k->t.o.weights, path);
    return CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

static void case_close(Case *k)
{
    free(k->tokens), free(k->labels);
    gx_safetensors_close(&k->ref);
    k->t.g.device->arena_close(&k->t.g, &k->kept);
    test_model_close(&k->t);
}

// ours [T,B,C], on the device, against the dump [B,T,C]
static void compare_rows(Case *k, const char *format, int number, const void *rows, int64_t C, double depth)
{
    char what[80];
    int64_t n = 0;
    float *ref = read_floats(k, format, number, &n);
    if (!ref ||
        !CHECK(n == k->T * k->B * C, "%ld elements in the reference, %ld here", (long)n, (long)(k->T * k->B * C)))
        return;
    float *turned = (float *)malloc((size_t)n * 4), *ours = test_kept(&k->t, rows, n);
    for (int64_t b = 0; b < k->B; b++)
        for (int64_t t = 0; t < k->T; t++)
            memcpy(turned + (b * k->T + t) * C, ours + (t * k->B + b) * C, (size_t)C * 4);
    snprintf(what, sizeof what, format, number);
    test_close_f(what, turned, ref, n, test_bound(depth), 0);
    free(turned), free(ref), free(ours);
}

static float reference_number(Case *k, const char *name)
{
    float *x = read_floats(k, name, 0, NULL), value = x ? x[0] : NAN;
    free(x);
    return value;
}

static void check_activations(Case *k)
{
    const double depth = test_model_depth(&k->c, k->T, 0);
    GxLlama *m = &k->t.m;
    const int64_t D = k->c.hidden_size, rows = k->T * k->B;
    for (int l = 0; l <= m->model.layers; l++) compare_rows(k, "x.%d", l, m->model.state[l].x.data, D, depth);
    for (int l = 0; l < m->model.layers; l++) {
        compare_rows(k, "h1.%d", l, m->saved[l].h1.data, D, depth);
        compare_rows(k, "att.%d", l, m->saved[l].a.data, D, depth);
        compare_rows(k, "h2.%d", l, m->saved[l].h2.data, D, depth);
        compare_rows(k, "mlp.%d", l, m->saved[l].m.data, D, depth);
    }
    const GxRows logits = gx_rows_take(&k->kept, GX_MEM_ACTIVATIONS, GX_F32, rows, k->c.vocab_size);
    for (int64_t r = 0; r < rows; r++) {
        const GxRows row = gx_some_rows(logits, r, 1);
        m->kind.logits(&k->t.g, &m->model, row, m->model.state[m->model.layers], r);
    }
    compare_rows(k, "logits", 0, logits.data, k->c.vocab_size, depth);
}

static void check_gradients(Case *k)
{
    const GxTable *table = &k->t.m.model.table;
    const double bound = test_bound(test_model_depth(&k->c, k->T, 1)), norm = reference_number(k, "grad_norm");
    int tensors = 0, compared = 0;
    for (int i = 0; i < table->n; i++) tensors += !table->row[i].has_alias;
    for (int i = 0; i < table->n; i++) {
        char name[160];
        int64_t n = 0;
        if (table->row[i].has_alias) continue;
        snprintf(name, sizeof name, "grad.%s", table->row[i].name);
        float *ref = read_floats(k, name, 0, &n);
        if (!ref || !CHECK(n == gx_tensor_count(&table->row[i]), "%s: %ld elements", name, (long)n)) continue;
        float *grad = test_kept(&k->t, k->t.o.grads + gx_table_flat(table, i), n);
        test_close_f(name, grad, ref, n, bound, 1e-3 * norm / sqrt(tensors));
        compared++;
        free(ref), free(grad);
    }
    CHECK(compared == tensors, "%d of %d tensors compared", compared, tensors);
    test_close_number("grad_norm", sqrt(test_step(&k->t).sum_squares), norm, bound);
}

static void forward_backward(const char *name)
{
    Case k;
    k.dtype = GX_F32;
    if (!case_open(&k, name)) return;
    gx_model_loss(&k.t.g, &k.t.m.model, &k.b,
                  &k.t.g.step->loss_sum); // the backward overwrites some of what the forward kept
    check_activations(&k);
    gx_window_gradients(&k.t.g, &k.t.m.model, &k.b, 1, &k.t.o, NULL, NULL);
    gx_grads_sum_squares(&k.t.g, &k.t.m.model.table, k.t.o.grads);
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    const GxStep step = test_step(&k.t);
    test_close_number("loss", gx_step_loss(&step), reference_number(&k, "loss"),
                      test_bound(test_model_depth(&k.c, k.T, 0)));
    check_gradients(&k);
    case_close(&k);
}
TEST(llama_gqa_forward_and_backward_as_transformers) { forward_backward("gqa"); }
TEST(llama_odd_tied_head_dim_of_its_own_as_transformers) { forward_backward("odd"); }
TEST(llama_one_kv_head_as_transformers) { forward_backward("one"); }

// In bf16: as near to transformers in fp32 as transformers in bf16 is, or half as near.
static void bf16_distance(const char *name)
{
    Case k;
    k.dtype = GX_BF16;
    if (!case_open(&k, name)) return;
    gx_window_copy_weights(&k.t.g, &k.t.m.model, &k.t.o);
    gx_window_gradients(&k.t.g, &k.t.m.model, &k.b, 1, &k.t.o, NULL, NULL);
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    const GxTable *table = &k.t.m.model.table;
    const GxStep step = test_step(&k.t);
    const double loss = reference_number(
        &k, "loss"); // its own distance may be next to nothing by chance: a rounding of the loss is the least
    const double theirs_of_loss = fmax(reference_number(&k, "bf16_distance.loss"), loss / 512);
    CHECK(fabs(gx_step_loss(&step) - loss) <= 2 * theirs_of_loss, "loss %.6f, %.6f in fp32", gx_step_loss(&step), loss);
    for (int i = 0; i < table->n; i++) {
        char what[200];
        int64_t n = 0;
        if (table->row[i].has_alias) continue;
        snprintf(what, sizeof what, "grad.%s", table->row[i].name);
        float *ref = read_floats(&k, what, 0, &n), *grad = test_kept(&k.t, k.t.o.grads + gx_table_flat(table, i), n);
        double squares = 0;
        for (int64_t e = 0; ref && e < n; e++) squares += pow((double)grad[e] - ref[e], 2);
        snprintf(what, sizeof what, "bf16_distance.%s", table->row[i].name);
        const double theirs = reference_number(&k, what), ratio = sqrt(squares) / (2 * theirs);
        CHECK(ratio <= 1, "%s: %.3g from fp32, transformers in bf16 %.3g", table->row[i].name, sqrt(squares), theirs);
        if (ratio > test_state.worst) test_state.worst = ratio;
        free(ref), free(grad);
    }
    case_close(&k);
}
TEST(llama_gqa_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("gqa"); }
TEST(llama_odd_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("odd"); }
TEST(llama_one_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("one"); }

// Ten steps; the losses must be the reference's within `slack[step]`, the weights within `weight_slack` of each
// tensor's norm.
static void ten_steps(Case *k, const char *prefix, const double *loss_slack,
                      double (*weight_slack)(Case *, const char *, double))
{
    char name[160];
    const GxTable *table = &k->t.m.model.table;
    snprintf(name, sizeof name, "%s.losses", prefix);
    float *losses = read_floats(k, name, 0, NULL);
    for (int s = 0; losses && s < 10; s++) {
        gx_window_gradients(&k->t.g, &k->t.m.model, &k->b, 1, &k->t.o, NULL, NULL);
        snprintf(name, sizeof name, "%s loss of step %d", prefix, s);
        const GxStep step = test_step(&k->t);
        test_close_number(name, gx_step_loss(&step), losses[s], loss_slack[s]);
        gx_window_update(&k->t.g, &k->t.m.model, &k->t.o);
    }
    free(losses);
    for (int i = 0; i < table->n; i++) {
        int64_t n = 0;
        if (table->row[i].has_alias) continue;
        snprintf(name, sizeof name, "%s.%s", prefix, table->row[i].name);
        float *ref = read_floats(k, name, 0, &n);
        if (!ref) continue;
        double norm = 0;
        for (int64_t j = 0; j < n; j++) norm += (double)ref[j] * ref[j];
        float *weights = test_kept(&k->t, k->t.o.weights + gx_table_flat(table, i), n);
        test_close_f(name, weights, ref, n, weight_slack(k, table->row[i].name, sqrt(norm)), 0);
        free(ref), free(weights);
    }
    CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

// SGD: ten steps pass through ten times the reductions.
static double sgd_slack(Case *k, const char *name, double norm)
{
    (void)name, (void)norm;
    return test_bound(10 * test_model_depth(&k->c, k->T, 1));
}

static void ten_of_sgd(const char *name)
{
    Case k;
    double slack[10];
    k.dtype = GX_F32;
    if (!case_open(&k, name)) return;
    k.t.o.kind = GX_OPTIMIZER_SGD;
    k.t.o.first = NULL;
    test_set_step(&k.t, 0.1f, 0);
    for (int s = 0; s < 10; s++) slack[s] = test_bound((s + 1) * test_model_depth(&k.c, k.T, 1));
    ten_steps(&k, "sgd", slack, sgd_slack);
    case_close(&k);
}
TEST(llama_gqa_ten_steps_of_sgd_as_transformers) { ten_of_sgd("gqa"); }
TEST(llama_odd_ten_steps_of_sgd_as_transformers) { ten_of_sgd("odd"); }
TEST(llama_one_ten_steps_of_sgd_as_transformers) { ten_of_sgd("one"); }

// AdamW divides by the root of the second moment: rounding noise in a gradient near zero becomes a step of the size of
// lr. So the reference's own spread under inputs changed by one ulp is the scale: four of it, and the bound of SGD for
// what the spread does not see.
static double adamw_slack(Case *k, const char *name, double norm)
{
    char spread[200];
    snprintf(spread, sizeof spread, "adamw_spread.%s", name);
    return 4 * reference_number(k, spread) / norm + test_bound(10 * test_model_depth(&k->c, k->T, 1));
}

static void ten_of_adamw(const char *name)
{
    Case k;
    double slack[10];
    k.dtype = GX_F32;
    if (!case_open(&k, name)) return;
    GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    k.t.o.adamw = adamw;
    test_set_step(&k.t, 1e-3f, 0);
    float *losses = read_floats(&k, "adamw.losses", 0, NULL), *spread = read_floats(&k, "adamw.spread", 0, NULL);
    for (int s = 0; losses && spread && s < 10; s++)
        slack[s] = 4 * spread[s] / losses[s] + test_bound((s + 1) * test_model_depth(&k.c, k.T, 1));
    ten_steps(&k, "adamw", slack, adamw_slack);
    free(losses), free(spread);
    case_close(&k);
}
TEST(llama_gqa_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("gqa"); }
TEST(llama_odd_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("odd"); }
TEST(llama_one_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("one"); }

// ---- properties of its own -----------------------------------------------------------------------------------------

static const GxLlamaConfig small = {61, 32, 40, 2, 4, 2, 8, 64, 1e-5, 10000, 0.08, 0};

static void random_batch(GxBatch *b, int32_t *tokens, int32_t *labels, int64_t T, int64_t B, int64_t V)
{
    for (int64_t i = 0; i < T * B; i++) {
        tokens[i] = (int32_t)(gx_random_bits(5, (uint64_t)i, 0, 1) % (uint32_t)V);
        labels[i] = i % 7 == 3 ? GX_IGNORE_INDEX : (int32_t)(gx_random_bits(5, (uint64_t)i, 0, 2) % (uint32_t)V);
    }
    memset(b, 0, sizeof *b);
    b->tokens = tokens, b->labels = labels, b->T = T, b->B = B, b->runs = gx_runs_one(T, 0);
}

TEST(the_loss_does_not_depend_on_the_head_chunk_and_the_arena_is_full_to_the_byte)
{
    enum { T = 9, B = 3 };
    int32_t tokens[T * B], labels[T * B];
    double loss[3];
    const int64_t chunk[] = {1, 5, 512};
    for (int i = 0; i < 3; i++) {
        TestModel t;
        GxBatch b;
        random_batch(&b, tokens, labels, T, B, small.vocab_size);
        if (!test_model_open(&t, &small, &gx_llama_serial, T, B, chunk[i], NULL, 1)) return;
        test_put_batch(&t, &b, 0);
        gx_model_init(&t.g, &t.m.model, t.o.weights, 3);
        gx_window_gradients(&t.g, &t.m.model, &b, 1, &t.o, NULL, NULL);
        gx_window_update(&t.g, &t.m.model, &t.o);
        CHECK(t.arena.peak == t.arena.capacity && !t.arena.exhausted, "planned %ld bytes, used %ld",
              (long)t.arena.capacity, (long)t.arena.peak);
        const GxStep step = test_step(&t);
        loss[i] = gx_step_loss(&step);
        test_model_close(&t);
    }
    double bound = test_bound(test_model_depth(&small, T, 0));
    CHECK(fabs(loss[0] - loss[1]) <= bound * loss[0] && fabs(loss[0] - loss[2]) <= bound * loss[0],
          "losses %.9g %.9g %.9g", loss[0], loss[1], loss[2]);
}

TEST(no_gradient_buffer_means_no_weight_gradient_and_the_same_loss)
{
    enum { T = 6, B = 2 };
    int32_t tokens[T * B], labels[T * B];
    TestModel t;
    GxBatch b;
    random_batch(&b, tokens, labels, T, B, small.vocab_size);
    if (!test_model_open(&t, &small, &gx_llama_serial, T, B, 4, NULL, 1)) return;
    gx_model_init(&t.g, &t.m.model, t.o.weights, 3);
    b.scale = 0.1f;
    test_put_batch(&t, &b, 0);
    test_set_step(&t, 0, 0); // no loss yet
    gx_model_forward_backward(&t.g, &t.m.model, &b, &t.g.step->loss_sum);
    const double with = test_step(&t).loss_sum;
    GxError err = GX_ZERO;
    gx_model_attach(&t.m.model, t.o.weights, NULL, &err);
    test_set_step(&t, 0, 0);
    gx_model_forward_backward(&t.g, &t.m.model, &b, &t.g.step->loss_sum);
    const double without = test_step(&t).loss_sum;
    CHECK(with == without && with > 0 && !gx_failed(&t.g), "%g and %g, %s", with, without, t.g.error.message);
    test_model_close(&t);
}

// With every label ignored gradients are 0, so that weight decay is all that an optimizer does.
TEST(weight_decay_shrinks_matrices_and_leaves_norms)
{
    enum { T = 4, B = 1 };
    for (int kind = GX_OPTIMIZER_ADAMW; kind <= GX_OPTIMIZER_SGD; kind++) {
        int32_t tokens[T * B] = {0}, labels[T * B];
        TestModel t;
        GxBatch b;
        random_batch(&b, tokens, labels, T, B, small.vocab_size);
        for (int i = 0; i < T * B; i++) labels[i] = GX_IGNORE_INDEX;
        if (!test_model_open(&t, &small, &gx_llama_serial, T, B, 4, NULL, 1)) return;
        GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.5f};
        GxSgd sgd = {0.9f, 0.5f};
        gx_model_init(&t.g, &t.m.model, t.o.weights, 3);
        t.o.kind = (GxOptimizerKind)kind, t.o.adamw = adamw, t.o.sgd = sgd;
        test_set_step(&t, 0.5f, 0);
        test_put_batch(&t, &b, 0);
        const GxTable *table = &t.m.model.table;
        float *before = test_kept(&t, t.o.weights, gx_table_offset(table, table->units));
        gx_window_gradients(&t.g, &t.m.model, &b, 1, &t.o, NULL, NULL);
        gx_window_update(&t.g, &t.m.model, &t.o);
        float *after = test_kept(&t, t.o.weights, gx_table_offset(table, table->units));
        for (int i = 0; i < table->n; i++) {
            const float keep = table->row[i].role == GX_ROLE_NORM ? 1.0f : 0.75f; // 1 - lr * weight_decay
            for (int64_t j = gx_table_flat(table, i); j < gx_table_flat(table, i) + gx_tensor_count(&table->row[i]);
                 j++)
                CHECK(after[j] == keep * before[j], "kind %d, %s: %g became %g", kind, table->row[i].name, before[j],
                      after[j]);
        }
        free(before), free(after);
        test_model_close(&t);
    }
}

TEST(a_batch_larger_than_its_buffers_is_refused)
{
    enum { T = 6, B = 2 };
    int32_t tokens[T * (B + 1)], labels[T * (B + 1)];
    TestModel t;
    GxBatch b;
    random_batch(&b, tokens, labels, T, B + 1, small.vocab_size);
    if (!test_model_open(&t, &small, &gx_llama_serial, T, B, 4, NULL, 1)) return;
    gx_model_loss(&t.g, &t.m.model, &b, &t.g.step->loss_sum);
    CHECK(gx_failed(&t.g) && strstr(t.g.error.message, "3 sequences of 6 tokens") &&
              strstr(t.g.error.message, "at most 2"),
          "%s", t.g.error.message);
    test_model_close(&t);
}

TEST(configurations_that_cannot_be_are_refused)
{
    const struct {
        GxLlamaConfig c;
        const char *says;
    } bad[] = {
        {{61, 32, 40, 2, 3, 2, 8, 64, 1e-5, 10000, 0.02, 0}, "multiple of num_key_value_heads"},
        {{61, 32, 40, 2, 5, 5, 0, 64, 1e-5, 10000, 0.02, 0}, "set head_dim"},
        {{61, 32, 40, 2, 4, 2, 7, 64, 1e-5, 10000, 0.02, 0}, "even"},
        {{0, 32, 40, 2, 4, 2, 8, 64, 1e-5, 10000, 0.02, 0}, "vocab_size is 0"},
        {{61, 32, 40, 2, 4, 2, 8, 64, 0, 10000, 0.02, 0}, "rms_norm_eps"},
        {{61, 32, 40, (int64_t)1 << 40, 4, 2, 8, 64, 1e-5, 10000, 0.02, 0}, "from 1 to 1000"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GxError err = GX_ZERO;
        GxLlamaConfig c = bad[i].c;
        CHECK(gx_llama_config_resolve(&c, &err) == GX_ERR_ARGUMENT && strstr(err.message, bad[i].says), "case %d: %s",
              (int)i, err.message);
    }
}

int main(int argc, char **argv) { return test_main(argc, argv); }
