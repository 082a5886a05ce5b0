// test_llama.cu: LLaMA against transformers (dumps of dev/ref/make_refs.py): activations at block boundaries, loss,
// every gradient, ten steps of SGD and of AdamW, on small odd shapes; in bf16 one step and ten, against the distance
// that PyTorch in bf16 has from fp32. The dumps are [B,T,C], Galaxy's rows are [T,B,C].
#include "test/model.h"
#include <unistd.h>

// ---- a mode that keeps what passes through a layer -----------------------------------------------------------------

enum { MAX_LAYERS = 4 };
typedef struct {
    GxMode mode;                                  // first: the model points at it
    float *x[MAX_LAYERS][2], *in[MAX_LAYERS][2];  // [rows, C] of each pair: the stream before it, what enters its core,
    float *out[MAX_LAYERS][2], *y[MAX_LAYERS][2]; // what comes out of it, the stream behind it
    int keeps;
} Keeper;

static void keep_rows(GxContext *g, float **kept, GxRows rows)
{
    free(*kept);
    *kept = (float *)malloc((size_t)gx_rows_bytes(rows) + 1);
    gx_to_host(g, *kept, rows.data, gx_rows_bytes(rows));
}

// CON adds the bias of the core's last matrix, which in transformers is a part of what comes out of the core.
static void add_bias(GxPass *p, int k, float *out, int64_t rows, int64_t cols)
{
    const GxTensorId id = p->m->unit[p->unit].pair[k].con_bias;
    if (id.index < 0) return;
    float *bias = (float *)malloc((size_t)cols * sizeof *bias);
    gx_to_host(p->g, bias, gx_store_weight(&p->m->store, id), cols * (int64_t)sizeof *bias);
    for (int64_t i = 0; i < rows * cols; i++) out[i] += bias[i % cols];
    free(bias);
}

// What comes out of a core lives as long as its pair alone: the core is asked once more, for the keeper.
static void keeper_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    Keeper *keeper = (Keeper *)(uintptr_t)p->m->mode;
    const int l = p->unit - 1, is_layer = l >= 0 && l < p->m->units - 2;
    test_serial.pair_forward(p, k, y, x);
    if (!is_layer || !y.data) return;
    const GxRows in = gx_core_in(p, k, x), before = gx_core_out(p, k),
                 out = gx_pass_rows(p, before.rows, before.cols); // not in place of what a norm of it keeps
    gx_core_forward(p, k, out, in);
    if (!keeper->keeps || !p->g->device->computes) return;
    keep_rows(p->g, &keeper->x[l][k], x), keep_rows(p->g, &keeper->in[l][k], in);
    keep_rows(p->g, &keeper->out[l][k], out), keep_rows(p->g, &keeper->y[l][k], y);
    add_bias(p, k, keeper->out[l][k], out.rows, out.cols);
}

static void keeper_open(Keeper *k)
{
    memset(k, 0, sizeof *k);
    k->mode = test_serial;
    k->mode.pair_forward = keeper_forward;
}

static void keeper_close(Keeper *k)
{
    for (int l = 0; l < MAX_LAYERS; l++)
        for (int i = 0; i < 2; i++) free(k->x[l][i]), free(k->in[l][i]), free(k->out[l][i]), free(k->y[l][i]);
}

// ---- a case of the reference ---------------------------------------------------------------------------------------

typedef struct {
    TestModel t;
    Keeper keeper;
    GxSafetensors ref;
    GxLlamaConfig c;
    GxBatch b;
    int32_t *tokens, *labels; // [T,B]
    int64_t T, B;
    GxArena logits; // of the device
} Case;

static float *read_tensor(GxSafetensors *ref, const char *name, int64_t *n)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = gx_safetensors_find(ref, name);
    if (!CHECK(e != NULL, "no %s in the reference", name)) return NULL;
    float *x = (float *)malloc((size_t)(e->elements + 1) * sizeof *x);
    CHECK(gx_safetensors_read(ref, e, 0, e->elements, x, &err) == GX_OK, "%s", err.message);
    if (n) *n = e->elements;
    return x;
}

static float *read_floats(Case *k, const char *format, int number, int64_t *n)
{
    char name[200];
    snprintf(name, sizeof name, format, number);
    return read_tensor(&k->ref, name, n);
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

static int case_open(Case *k, const char *name, GxDtype dtype)
{
    char folder[100], path[140];
    GxError err = GX_ZERO;
    memset(k, 0, sizeof *k);
    keeper_open(&k->keeper);
    k->t.request.dtype = dtype;
    snprintf(folder, sizeof folder, "data/ref/llama_%s", name);
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (!CHECK(gx_llama_config_read(&k->c, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    snprintf(path, sizeof path, "%s/ref.safetensors", folder);
    if (!CHECK(gx_safetensors_open(&k->ref, path, &err) == GX_OK, "%s", err.message)) return 0;
    k->tokens = read_tokens(k, "tokens");
    k->labels = read_tokens(k, "labels");
    k->b.tokens = k->tokens, k->b.target[0].labels = k->labels, k->b.T = k->T, k->b.B = k->B,
    k->b.runs = gx_runs_one(k->T, 0);
    if (!test_model_open_split(&k->t, &k->c, &k->keeper.mode, k->T, k->B, 4, NULL, 2, 1, NULL))
        return 0; // logits in chunks of 4 rows
    k->t.g.device->arena_open(&k->t.g, &k->logits, 4 * k->T * k->B * k->c.vocab_size);
    test_set_step(&k->t, 0, 0);
    test_put_batch(&k->t, &k->b, 0);
    snprintf(path, sizeof path, "%s/model.safetensors",
             folder); // not the folder: ref.safetensors is none of its shards
    gx_checkpoint_load_weights(&k->t.g, &k->t.m, path);
    return CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

static void case_close(Case *k)
{
    free(k->tokens), free(k->labels);
    gx_safetensors_close(&k->ref);
    keeper_close(&k->keeper);
    k->t.g.device->arena_close(&k->t.g, &k->logits);
    test_model_close(&k->t);
}

// ours [T,B,C] against the dump [B,T,C]
static void compare_rows(Case *k, const char *format, int number, const float *ours, int64_t C, double depth)
{
    char what[80];
    int64_t n = 0;
    float *ref = read_floats(k, format, number, &n);
    if (!ref ||
        !CHECK(n == k->T * k->B * C, "%ld elements in the reference, %ld here", (long)n, (long)(k->T * k->B * C)))
        return;
    float *turned = (float *)malloc((size_t)n * 4);
    for (int64_t b = 0; b < k->B; b++)
        for (int64_t t = 0; t < k->T; t++)
            memcpy(turned + (b * k->T + t) * C, ours + (t * k->B + b) * C, (size_t)C * 4);
    snprintf(what, sizeof what, format, number);
    test_close_f(what, turned, ref, n, test_bound(depth), 0);
    free(turned), free(ref);
}

static float reference_number(Case *k, const char *name)
{
    float *x = read_floats(k, name, 0, NULL), value = x ? x[0] : NAN;
    free(x);
    return value;
}

// A forward alone, of the loss and of the logits.
static double check_activations(Case *k)
{
    const double depth = test_model_depth(&k->c, k->T, 0);
    const int64_t C = k->c.hidden_size, rows = k->T * k->B, V = k->c.vocab_size;
    const int L = (int)k->c.num_hidden_layers;
    Keeper *kept = &k->keeper;
    GxBatch b = k->b;
    kept->keeps = 1;
    gx_runner_forward(&k->t.g, &k->t.r, &b, k->t.g.step->loss_sum);
    kept->keeps = 0;
    if (!CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message)) return NAN;
    for (int l = 0; l < L; l++) {
        compare_rows(k, "x.%d", l, kept->x[l][0], C, depth);
        compare_rows(k, "h1.%d", l, kept->in[l][0], C, depth);
        compare_rows(k, "att.%d", l, kept->out[l][0], C, depth);
        compare_rows(k, "h2.%d", l, kept->in[l][1], C, depth);
        compare_rows(k, "mlp.%d", l, kept->out[l][1], C, depth);
    }
    compare_rows(k, "x.%d", L, kept->y[L - 1][1], C, depth);
    b.target[0].labels = NULL;
    b.target[0].logits = gx_rows(gx_arena_allocate(&k->logits, GX_MEM_ACTIVATIONS, 4 * rows * V), GX_F32, rows, V);
    gx_runner_forward(&k->t.g, &k->t.r, &b, NULL);
    float *logits = test_kept(&k->t, b.target[0].logits.data, rows * V);
    compare_rows(k, "logits", 0, logits, V, depth);
    free(logits);
    return test_step(&k->t).loss_sum[0];
}

// What the keeper took is what the layers passed on: y = x + out, if out is not normed, and the next pair begins where
// this one ended.
static void check_keeper(Case *k)
{
    const int64_t n = k->T * k->B * k->c.hidden_size;
    const int L = (int)k->c.num_hidden_layers;
    const Keeper *kept = &k->keeper;
    const int is_normed = gx_unit_spec(&k->t.m, 1)->pair[0].con.norms_result;
    for (int i = 0; i < 2 * L; i++) {
        const int l = i / 2, pair = i % 2;
        const float *x = kept->x[l][pair], *out = kept->out[l][pair], *y = kept->y[l][pair],
                    *next = i + 1 < 2 * L ? kept->x[(i + 1) / 2][(i + 1) % 2] : y;
        int64_t wrong = 0;
        for (int64_t e = 0; e < n; e++) wrong += (!is_normed && y[e] != x[e] + out[e]) || next[e] != y[e];
        CHECK(wrong == 0, "layer %d, pair %d: %ld elements of the stream are not x + out", l, pair, (long)wrong);
    }
}

static void check_gradients(Case *k)
{
    const GxTable *table = &k->t.m.table;
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
        float *grad = test_kept(&k->t, gx_store_grads(&k->t.m.store, i), n);
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
    if (!case_open(&k, name, GX_F32)) return;
    const double loss_sum = check_activations(&k);
    if (k.keeper.y[0][0]) check_keeper(&k);
    gx_runner_train(&k.t.g, &k.t.r, &k.b, NULL, NULL); // with a learning rate of 0
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    const GxStep step = test_step(&k.t);
    test_close_number("loss", gx_step_loss(&step), reference_number(&k, "loss"),
                      test_bound(test_model_depth(&k.c, k.T, 0)));
    CHECK(loss_sum == step.loss_sum[0], "losses sum to %.17g forward alone, to %.17g in training", loss_sum,
          step.loss_sum[0]);
    check_gradients(&k);
    case_close(&k);
}
TEST(llama_gqa_forward_and_backward_as_transformers) { forward_backward("gqa"); }
TEST(llama_odd_tied_head_dim_of_its_own_as_transformers) { forward_backward("odd"); }
TEST(llama_one_kv_head_as_transformers) { forward_backward("one"); }
TEST(llama3_scaled_rope_forward_and_backward_as_transformers) { forward_backward("scaled"); }
TEST(mistral_forward_and_backward_as_transformers) { forward_backward("mistral"); }
TEST(mistral_beyond_its_window_forward_and_backward_as_transformers) { forward_backward("mistral_window"); }
TEST(qwen2_with_a_window_in_its_last_layer_forward_and_backward_as_transformers) { forward_backward("qwen2_window"); }
TEST(qwen3_with_windows_in_the_layers_that_it_lists_forward_and_backward_as_transformers)
{
    forward_backward("qwen3_window");
}
TEST(qwen2_with_biases_forward_and_backward_as_transformers) { forward_backward("qwen2"); }
TEST(qwen3_with_normed_heads_forward_and_backward_as_transformers) { forward_backward("qwen3"); }
TEST(qwen3_tied_one_kv_head_forward_and_backward_as_transformers) { forward_backward("qwen3_tied"); }
TEST(gemma3_forward_and_backward_as_transformers) { forward_backward("gemma3"); }
TEST(gemma3_with_biases_forward_and_backward_as_transformers) { forward_backward("gemma3_biased"); }
TEST(smollm3_without_rope_in_some_layers_forward_and_backward_as_transformers) { forward_backward("smollm3"); }
TEST(smollm3_with_a_window_where_it_has_no_rope_forward_and_backward_as_transformers)
{
    forward_backward("smollm3_window");
}
TEST(yarn_scaled_rope_forward_and_backward_as_transformers) { forward_backward("yarn"); }
TEST(biases_of_all_matrices_forward_and_backward_as_transformers) { forward_backward("biased"); }
TEST(qwen3_with_biases_forward_and_backward_as_transformers) { forward_backward("qwen3_biased"); }
TEST(phi3_whose_file_has_matrices_stacked_forward_and_backward_as_transformers) { forward_backward("phi3"); }

// In bf16: as near to transformers in fp32 as transformers in bf16 is, or half as near.
static void bf16_distance(const char *name)
{
    Case k;
    if (!case_open(&k, name, GX_BF16)) return;
    gx_runner_train(&k.t.g, &k.t.r, &k.b, NULL, NULL); // with a learning rate of 0
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    const GxTable *table = &k.t.m.table;
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
        float *ref = read_floats(&k, what, 0, &n), *grad = test_kept(&k.t, gx_store_grads(&k.t.m.store, i), n);
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
TEST(llama3_scaled_rope_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("scaled"); }
TEST(mistral_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("mistral"); }
TEST(mistral_beyond_its_window_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("mistral_window"); }
TEST(qwen2_with_a_window_in_its_last_layer_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16)
{
    bf16_distance("qwen2_window");
}
TEST(qwen3_with_windows_in_the_layers_that_it_lists_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16)
{
    bf16_distance("qwen3_window");
}
TEST(qwen2_with_biases_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("qwen2"); }
TEST(qwen3_with_normed_heads_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("qwen3"); }
TEST(qwen3_tied_one_kv_head_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("qwen3_tied"); }
TEST(gemma3_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("gemma3"); }
TEST(gemma3_with_biases_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("gemma3_biased"); }
TEST(smollm3_without_rope_in_some_layers_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16)
{
    bf16_distance("smollm3");
}
TEST(smollm3_with_a_window_where_it_has_no_rope_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16)
{
    bf16_distance("smollm3_window");
}
TEST(yarn_scaled_rope_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("yarn"); }
TEST(biases_of_all_matrices_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("biased"); }
TEST(qwen3_with_biases_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("qwen3_biased"); }
TEST(phi3_whose_file_has_matrices_stacked_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("phi3"); }

// transformers rounds the root of hidden_size to bf16, too: of 24, 4.898979 becomes 4.90625.
TEST(rows_of_a_gemma3_in_bf16_are_multiplied_by_a_rounded_root)
{
    Case k;
    if (!case_open(&k, "gemma3", GX_BF16)) return;
    GxBatch b = k.b;
    const int64_t C = k.c.hidden_size, rows = k.T * k.B, bytes = k.c.vocab_size * C * 2;
    uint16_t *table = (uint16_t *)malloc((size_t)bytes);
    k.keeper.keeps = 1;
    gx_runner_forward(&k.t.g, &k.t.r, &b, k.t.g.step->loss_sum);
    gx_to_host(&k.t.g, table, gx_store_weight(&k.t.m.store, k.t.m.embedding), bytes);
    const uint16_t *x = (const uint16_t *)(const void *)k.keeper.x[0][0];
    int64_t wrong = 0, other = 0;
    for (int64_t i = 0; x && i < rows * C; i++) {
        const float w = gx_from_bf16(table[k.tokens[i / C] * C + i % C]);
        wrong += x[i] != gx_to_bf16(w * 4.90625f), other += x[i] != gx_to_bf16(w * 4.898979f);
    }
    if (k.t.g.device->computes)
        CHECK(x && !wrong && other, "%ld of %ld elements differ, %ld from those without a rounded root", (long)wrong,
              (long)(rows * C), (long)other);
    free(table);
    case_close(&k);
}

// Ten steps; the losses must be the reference's within `slack[step]`, the weights within `weight_slack` of each
// tensor's norm.
static void ten_steps(Case *k, const char *prefix, const double *loss_slack,
                      double (*weight_slack)(Case *, const char *, double))
{
    char name[160];
    const GxTable *table = &k->t.m.table;
    snprintf(name, sizeof name, "%s.losses", prefix);
    float *losses = read_floats(k, name, 0, NULL);
    for (int s = 0; losses && s < 10; s++) {
        gx_runner_train(&k->t.g, &k->t.r, &k->b, NULL, NULL);
        snprintf(name, sizeof name, "%s loss of step %d", prefix, s);
        const GxStep step = test_step(&k->t);
        test_close_number(name, gx_step_loss(&step), losses[s], loss_slack[s]);
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
        float *weights = test_kept(&k->t, gx_store_master_at(&k->t.m.store, i, 0), n);
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
    if (!case_open(&k, name, GX_F32)) return;
    k.t.o.kind = GX_OPTIMIZER_SGD;
    test_set_step(&k.t, 0.1f, 0);
    for (int s = 0; s < 10; s++) slack[s] = test_bound((s + 1) * test_model_depth(&k.c, k.T, 1));
    ten_steps(&k, "sgd", slack, sgd_slack);
    case_close(&k);
}
TEST(llama_gqa_ten_steps_of_sgd_as_transformers) { ten_of_sgd("gqa"); }
TEST(llama_odd_ten_steps_of_sgd_as_transformers) { ten_of_sgd("odd"); }
TEST(llama_one_ten_steps_of_sgd_as_transformers) { ten_of_sgd("one"); }
TEST(llama3_scaled_rope_ten_steps_of_sgd_as_transformers) { ten_of_sgd("scaled"); }
TEST(mistral_ten_steps_of_sgd_as_transformers) { ten_of_sgd("mistral"); }
TEST(mistral_beyond_its_window_ten_steps_of_sgd_as_transformers) { ten_of_sgd("mistral_window"); }
TEST(qwen2_with_a_window_in_its_last_layer_ten_steps_of_sgd_as_transformers) { ten_of_sgd("qwen2_window"); }
TEST(qwen3_with_windows_in_the_layers_that_it_lists_ten_steps_of_sgd_as_transformers) { ten_of_sgd("qwen3_window"); }
TEST(qwen2_with_biases_ten_steps_of_sgd_as_transformers) { ten_of_sgd("qwen2"); }
TEST(qwen3_with_normed_heads_ten_steps_of_sgd_as_transformers) { ten_of_sgd("qwen3"); }
TEST(qwen3_tied_one_kv_head_ten_steps_of_sgd_as_transformers) { ten_of_sgd("qwen3_tied"); }
TEST(gemma3_ten_steps_of_sgd_as_transformers) { ten_of_sgd("gemma3"); }
TEST(gemma3_with_biases_ten_steps_of_sgd_as_transformers) { ten_of_sgd("gemma3_biased"); }
TEST(smollm3_without_rope_in_some_layers_ten_steps_of_sgd_as_transformers) { ten_of_sgd("smollm3"); }
TEST(smollm3_with_a_window_where_it_has_no_rope_ten_steps_of_sgd_as_transformers) { ten_of_sgd("smollm3_window"); }
TEST(yarn_scaled_rope_ten_steps_of_sgd_as_transformers) { ten_of_sgd("yarn"); }
TEST(biases_of_all_matrices_ten_steps_of_sgd_as_transformers) { ten_of_sgd("biased"); }
TEST(qwen3_with_biases_ten_steps_of_sgd_as_transformers) { ten_of_sgd("qwen3_biased"); }
TEST(phi3_whose_file_has_matrices_stacked_ten_steps_of_sgd_as_transformers) { ten_of_sgd("phi3"); }

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
    if (!case_open(&k, name, GX_F32)) return;
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
TEST(llama3_scaled_rope_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("scaled"); }
TEST(mistral_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("mistral"); }
TEST(mistral_beyond_its_window_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("mistral_window"); }
TEST(qwen2_with_a_window_in_its_last_layer_ten_steps_of_adamw_within_the_reference_spread)
{
    ten_of_adamw("qwen2_window");
}
TEST(qwen3_with_windows_in_the_layers_that_it_lists_ten_steps_of_adamw_within_the_reference_spread)
{
    ten_of_adamw("qwen3_window");
}
TEST(qwen2_with_biases_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("qwen2"); }
TEST(qwen3_with_normed_heads_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("qwen3"); }
TEST(qwen3_tied_one_kv_head_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("qwen3_tied"); }
TEST(gemma3_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("gemma3"); }
TEST(gemma3_with_biases_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("gemma3_biased"); }
TEST(smollm3_without_rope_in_some_layers_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("smollm3"); }
TEST(smollm3_with_a_window_where_it_has_no_rope_ten_steps_of_adamw_within_the_reference_spread)
{
    ten_of_adamw("smollm3_window");
}
TEST(yarn_scaled_rope_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("yarn"); }
TEST(biases_of_all_matrices_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("biased"); }
TEST(qwen3_with_biases_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("qwen3_biased"); }
TEST(phi3_whose_file_has_matrices_stacked_ten_steps_of_adamw_within_the_reference_spread) { ten_of_adamw("phi3"); }

// ---- ten steps in bf16 ---------------------------------------------------------------------------------------------

typedef float Curve[2][10]; // losses and gradients' norms of the steps

// On a batch of its own: in curve i every token of the reference becomes the i-th behind it in the vocabulary.
static void curve_in_bf16(const char *name, int i, Curve curve)
{
    Case k;
    memset(curve, 0, sizeof(Curve));
    if (!case_open(&k, name, GX_BF16)) return;
    const GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    const int32_t V = (int32_t)k.c.vocab_size;
    for (int64_t j = 0; j < k.T * k.B; j++) {
        k.tokens[j] = (k.tokens[j] + i) % V;
        if (k.labels[j] != GX_IGNORE_INDEX) k.labels[j] = (k.labels[j] + i) % V;
    }
    k.b.tokens = k.tokens, k.b.target[0].labels = k.labels;
    test_put_batch(&k.t, &k.b, 0);
    k.t.o.adamw = adamw, k.t.o.max_grad_norm = 1;
    test_set_step(&k.t, 1e-3f, 0);
    for (int s = 0; s < 10; s++) {
        gx_runner_train(&k.t.g, &k.t.r, &k.b, NULL, NULL);
        const GxStep step = test_step(&k.t);
        curve[0][s] = (float)gx_step_loss(&step), curve[1][s] = (float)sqrt(step.sum_squares);
    }
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    case_close(&k);
}

// The largest of the steps' relative distances: that of one step may be next to nothing by chance.
static double curve_distance(const float *a, const float *b)
{
    double largest = 0;
    for (int s = 0; s < 10; s++) {
        const double distance = fabs((double)a[s] / b[s] - 1);
        if (distance > largest || isnan(distance)) largest = distance;
    }
    return largest;
}

// Of each model Galaxy's curves in bf16 are no further from PyTorch's in fp32 than twice PyTorch's own in bf16, whose
// weights, like Galaxy's, have fp32 behind them. Even the largest distance along a curve varies by a factor of two or
// three with how the roundings fall, so that of a model is its mean over the curves.
static void check_curves(GxSafetensors *ref, const char *model)
{
    char name[100];
    int64_t n = 0;
    double ours[2] = {0}, theirs[2] = {0};
    snprintf(name, sizeof name, "%s.fp32", model);
    Curve *fp32 = (Curve *)read_tensor(ref, name, &n); // [curves,2,10]
    snprintf(name, sizeof name, "%s.bf16", model);
    Curve *pytorch = (Curve *)read_tensor(ref, name, NULL);
    for (int i = 0; fp32 && pytorch && i < n / (2 * 10); i++) {
        Curve bf16;
        curve_in_bf16(model, i, bf16);
        for (int k = 0; k < 2; k++) {
            ours[k] += curve_distance(bf16[k], fp32[i][k]);
            theirs[k] += curve_distance(pytorch[i][k], fp32[i][k]);
        }
    }
    for (int k = 0; k < 2; k++) {
        const double ratio = ours[k] / theirs[k];
        CHECK(ratio <= 2, "%s: %s in bf16 are %.3g times as far from fp32 as PyTorch's", model, k ? "norms" : "losses",
              ratio);
        test_state.worst = fmax(test_state.worst, ratio / 2);
    }
    free(fp32), free(pytorch);
}

TEST(ten_steps_in_bf16_are_within_twice_what_pytorch_in_bf16_is_off_by)
{
    static const char *const models[] = {
        "gqa",          "odd",    "one",          "scaled",     "mistral",      "mistral_window", "qwen2_window",
        "qwen3_window", "qwen2",  "qwen3",        "qwen3_tied", "smollm3",      "smollm3_window", "phi3",
        "yarn",         "biased", "qwen3_biased", "gemma3",     "gemma3_biased"};
    GxSafetensors ref;
    GxError err = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&ref, "data/ref/llama_curves.safetensors", &err) == GX_OK, "%s", err.message))
        return;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) check_curves(&ref, models[i]);
    gx_safetensors_close(&ref);
}

// ---- RoPE's tables -------------------------------------------------------------------------------------------------

// transformers computes a frequency f <= 1 in fp32 in at most eight steps and an angle p f in one more: each is off by
// half a unit in the last place, 2^-24 of it; then cosine, sine, the factor and the table are rounded.
static void check_rope_table(const char *name, const char *config, const float *cosine, const float *sine)
{
    char path[40] = "/tmp/galaxy_test_llama_XXXXXX";
    GxLlamaConfig c;
    GxError err = GX_ZERO;
    enum { POSITIONS = 64, MOST = 64 * 10 };
    float ours[2][MOST];
    const int file = mkstemp(path);
    if (!CHECK(file >= 0, "no temporary file")) return;
    close(file);
    gx_file_write(path, config, (int64_t)strlen(config), &err);
    const GxStatus status = gx_llama_config_read(&c, path, &gx_silent, &err);
    unlink(path);
    if (!CHECK(status == GX_OK, "%s: %s", name, err.message)) return;
    const GxRope rope = gx_llama_rope(&c);
    const int64_t half = c.head_dim / 2;
    gx_rope_table(ours[0], ours[1], POSITIONS, c.head_dim, &rope);
    for (int64_t i = 0; i < POSITIONS * half; i++) {
        const double angle = (double)(i / half) * gx_rope_frequency(&rope, c.head_dim, i % half),
                     bound = gx_rope_attention_factor(&rope) * (9 * angle + 4) * 0x1p-24;
        for (int k = 0; k < 2; k++) {
            const double off = fabs((double)ours[k][i] - (double)(k ? sine : cosine)[i]);
            CHECK(off <= bound, "%s: position %ld, pair %ld: %g away", name, (long)(i / half), (long)(i % half), off);
            test_state.worst = fmax(test_state.worst, off / bound);
        }
    }
}

TEST(tables_of_every_scaling_of_rope_as_transformers)
{
    GxSafetensors ref;
    GxError err = GX_ZERO;
    int names = 0;
    if (!CHECK(gx_safetensors_open(&ref, "data/ref/rope.safetensors", &err) == GX_OK, "%s", err.message)) return;
    for (int e = 0; e < ref.n; e++) {
        char name[2][100], config[1000] = "";
        const int n = (int)gx_text_stem(ref.entry[e].name, ".config");
        if (n < 0) continue;
        snprintf(name[0], sizeof name[0], "%.*s.cosine", n, ref.entry[e].name);
        snprintf(name[1], sizeof name[1], "%.*s.sine", n, ref.entry[e].name);
        if (!CHECK(ref.entry[e].elements < (int64_t)sizeof config, "a config.json of %ld bytes",
                   (long)ref.entry[e].elements))
            continue;
        gx_safetensors_read_raw(&ref, &ref.entry[e], 0, ref.entry[e].elements, config, &err);
        float *cosine = read_tensor(&ref, name[0], NULL), *sine = read_tensor(&ref, name[1], NULL);
        if (cosine && sine) check_rope_table(name[1], config, cosine, sine), names++;
        free(cosine), free(sine);
    }
    CHECK(names == 12, "%d tables", names);
    gx_safetensors_close(&ref);
}

// ---- properties of its own -----------------------------------------------------------------------------------------

static const GxLlamaConfig small = {.vocab_size = 61,
                                    .hidden_size = 32,
                                    .intermediate_size = 40,
                                    .num_hidden_layers = 2,
                                    .num_attention_heads = 4,
                                    .num_key_value_heads = 2,
                                    .head_dim = 8,
                                    .max_position_embeddings = 64,
                                    .rms_norm_eps = 1e-5,
                                    .rope_theta = 10000,
                                    .initializer_range = 0.08,
                                    .pad_token_id = -1};

static void random_batch(GxBatch *b, int32_t *tokens, int32_t *labels, int64_t T, int64_t B, int64_t V)
{
    for (int64_t i = 0; i < T * B; i++) {
        tokens[i] = (int32_t)(gx_random_bits(5, (uint64_t)i, 0, 1) % (uint32_t)V);
        labels[i] = i % 7 == 3 ? GX_IGNORE_INDEX : (int32_t)(gx_random_bits(5, (uint64_t)i, 0, 2) % (uint32_t)V);
    }
    memset(b, 0, sizeof *b);
    b->tokens = tokens, b->target[0].labels = labels, b->T = T, b->B = B, b->runs = gx_runs_one(T, 0);
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
        if (!test_model_open(&t, &small, &test_serial, T, B, chunk[i], NULL, 1)) return;
        test_put_batch(&t, &b, 0);
        gx_model_init(&t.g, &t.m, 3);
        gx_runner_train(&t.g, &t.r, &b, NULL, NULL);
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

// One step of SGD from the same weights: gradients of what is trained, all weights behind it, and the loss.
typedef struct {
    TestModel t;
    double loss;
    float *weights, *grads;
} Frozen;

enum { FROZEN_T = 6, FROZEN_B = 2 };
static const float FROZEN_LR = 0.5f; // a product with it is exact
static void frozen_run(Frozen *f, const GxLlamaConfig *c, const char *freeze, GxDtype dtype)
{
    enum { T = FROZEN_T, B = FROZEN_B };
    int32_t tokens[T * B], labels[T * B];
    GxBatch b;
    memset(f, 0, sizeof *f);
    f->t.request.freeze = freeze, f->t.request.dtype = dtype;
    random_batch(&b, tokens, labels, T, B, c->vocab_size);
    if (!test_model_open_split(&f->t, c, &test_serial, T, B, 4, NULL, 1, 1, NULL)) return;
    gx_model_init(&f->t.g, &f->t.m, 3);
    test_put_batch(&f->t, &b, 0);
    f->t.o.kind = GX_OPTIMIZER_SGD;
    test_set_step(&f->t, FROZEN_LR, 0);
    gx_runner_train(&f->t.g, &f->t.r, &b, NULL, NULL);
    CHECK(!gx_failed(&f->t.g), "%s", f->t.g.error.message);
    f->loss = test_step(&f->t).loss_sum[0];
}

// Values of a tensor, in fp32; the caller frees them.
static float *frozen_values(Frozen *f, int row, int64_t n)
{
    GxContext *g = &f->t.g;
    const GxArenaMark mark = gx_arena_mark(g->arena);
    float *x = test_kept(&f->t, gx_values_read(g, &f->t.m.store, GX_VALUES_WEIGHTS, row, 0, n), n);
    gx_arena_release(g->arena, mark);
    return x;
}

// 1: a tensor that lies packed with this one, q, k and v or gate and up, is frozen.
static int frozen_beside(const Frozen *f, const GxTensor *t)
{
    static const char *const packs[][3] = {{".q_proj", ".k_proj", ".v_proj"}, {".gate_proj", ".up_proj", NULL}};
    int frozen = 0;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < 3 && packs[p][i]; i++) {
            const char *at = strstr(t->name, packs[p][i]);
            for (int k = 0; k < 3 && at && packs[p][k]; k++) {
                char name[GX_NAME];
                snprintf(name, sizeof name, "%.*s%s%s", (int)(at - t->name), t->name, packs[p][k],
                         at + strlen(packs[p][i]));
                const int row = gx_table_find(&f->t.m.table, name).index;
                if (CHECK(row >= 0, "there is no %s", name)) frozen |= !gx_store_trains(&f->t.m.store, row);
            }
        }
    return frozen;
}

// The gradient of packed tensors is one product, of the columns of dy that are trained. Where all are, it is the same
// call as before, with the same bits. Where some are frozen it has fewer columns, and a library is free to take another
// kernel for it, which adds up in another order: oneDNN does in bf16 on CPUs with AMX. What goes in is the same to the
// last bit, products of two numbers in bf16 are exact in fp32, and the result is not rounded to bf16: so both are sums
// of as many terms in fp32 as there are rows, each with the rounding errors of such a sum, and their difference has
// those of both.
static void check_frozen_grad(const Frozen *some, const char *freeze, const GxTensor *t, const float *grad,
                              const float *whole, int64_t n)
{
    char what[300];
    snprintf(what, sizeof what, "\"%s\": the gradient of %s", freeze, t->name);
    if (frozen_beside(some, t)) test_close_f(what, grad, whole, n, test_bound(2 * FROZEN_T * FROZEN_B), 0);
    else CHECK(!memcmp(grad, whole, (size_t)n * 4), "%s is another", what);
}

static void check_frozen(Frozen *some, Frozen *all, const char *freeze)
{
    const GxTable *table = &all->t.m.table;
    CHECK(some->loss == all->loss && some->loss > 0, "\"%s\": loss %.9g, %.9g if all is trained", freeze, some->loss,
          all->loss);
    for (int i = 0; i < table->n; i++) {
        const GxTensor *t = &table->row[i];
        const int64_t n = gx_tensor_count(t);
        const int trains = gx_store_trains(&some->t.m.store, i);
        if (t->has_alias) continue;
        float *expected = (float *)malloc((size_t)n * 4), *after = frozen_values(some, i, n);
        gx_tensor_init(t, 3, 0, n, expected);
        if (some->t.m.store.dtype == GX_BF16 && !trains)
            for (int64_t e = 0; e < n; e++) expected[e] = gx_from_bf16(gx_to_bf16(expected[e]));
        if (trains) {
            float *x = test_kept(&some->t, gx_store_grads(&some->t.m.store, i), n),
                  *y = test_kept(&all->t, gx_store_grads(&all->t.m.store, i), n);
            check_frozen_grad(some, freeze, t, x, y, n);
            for (int64_t e = 0; e < n; e++) expected[e] -= FROZEN_LR * x[e];
            free(x), free(y);
        }
        CHECK(!memcmp(after, expected, (size_t)n * 4), "\"%s\": %s is not what it was%s", freeze, t->name,
              trains ? " less the learning rate times its gradient" : "");
        free(expected), free(after);
    }
}

// Without clipping: the loss, and every gradient and weight of what is still trained; bit for bit, but for the rounding
// errors of check_frozen_grad.
static void frozen_changes_nothing_else(GxDtype dtype)
{
    static const char *const patterns[] = {"*embed*",
                                           "*layernorm*,model.norm.weight",
                                           "*q_proj*",
                                           "*k_proj*",
                                           "*v_proj*,*up_proj*",
                                           "*gate_proj*,*down_proj*,*o_proj*",
                                           "model.layers.1.*",
                                           "model.embed*,model.layers.0.*",
                                           "model.*",
                                           "model.layers.*,model.norm.weight,lm_head.weight",
                                           "model.embed*,*layernorm*,*mlp*,model.norm.weight,lm_head.weight",
                                           "*q_norm*,*.0.self_attn.k_norm*",
                                           "*_proj*,*embed*,*layernorm*,lm_head*"};
    for (int kind = 0; kind < 3; kind++) { // a LLaMA, a tied one, a Qwen3
        const int tied = kind == 1;
        GxLlamaConfig c = small;
        Frozen all;
        c.tie_word_embeddings = tied;
        if (kind == 2) snprintf(c.model_type, sizeof c.model_type, "qwen3");
        frozen_run(&all, &c, NULL, dtype);
        for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
            Frozen some;
            if (tied && !strcmp(patterns[i], "model.*")) continue; // that is everything
            if (kind != 2 && strstr(patterns[i], "q_norm")) continue;
            if (tied && strstr(patterns[i], "lm_head") && !strstr(patterns[i], "mlp")) continue;
            frozen_run(&some, &c, patterns[i], dtype);
            check_frozen(&some, &all, patterns[i]);
            CHECK(some.t.arena.peak == some.t.arena.capacity && some.t.arena.capacity < all.t.arena.capacity,
                  "\"%s\": %ld bytes of %ld planned, %ld if all is trained", patterns[i], (long)some.t.arena.peak,
                  (long)some.t.arena.capacity, (long)all.t.arena.capacity);
            test_model_close(&some.t);
        }
        test_model_close(&all.t);
    }
}
TEST(what_is_frozen_stays_and_changes_nothing_else) { frozen_changes_nothing_else(GX_F32); }
TEST(what_is_frozen_stays_and_changes_nothing_else_in_bf16) { frozen_changes_nothing_else(GX_BF16); }

TEST(a_model_whose_every_tensor_is_frozen_is_refused)
{
    GxContext g = GX_ZERO;
    GxModel m;
    GxRunner r;
    GxLlamaConfig c = small;
    GxModelOptions options = GX_ZERO;
    const GxOptimizer o = GX_ZERO;
    const GxRunnerSpec spec = GX_ZERO;
    g.world = 1;
    options.freeze = "*";
    CHECK(gx_model_open(&g, &m, &gx_llama, &c, &test_serial, &options) == GX_OK, "%s", g.error.message);
    CHECK(gx_runner_open(&g, &r, &m, &o, &spec) == GX_ERR_ARGUMENT && strstr(g.error.message, "nothing to train"), "%s",
          g.error.message);
    gx_runner_close(&r);
    gx_model_close(&m);
}

// What lies nowhere in fp32 is read and written by way of fp32 all the same, a piece at a time.
TEST(values_of_a_frozen_tensor_in_bf16_are_read_and_written_in_pieces)
{
    enum { N = 20, FIRST = 5, PIECE = 7 };
    static TestModel t;
    memset(&t, 0, sizeof t);
    t.request.dtype = GX_BF16, t.request.freeze = "*.0.self_attn.k_proj.weight";
    if (!test_model_open_split(&t, &small, &test_serial, 4, 1, 4, NULL, 1, 1, NULL)) return;
    gx_model_init(&t.g, &t.m, 3);
    const GxStore *s = &t.m.store;
    const int row = gx_table_find(&t.m.table, "model.layers.0.self_attn.k_proj.weight").index;
    const GxArenaMark mark = gx_arena_mark(&t.arena);
    float *before = test_kept(&t, gx_values_read(&t.g, s, GX_VALUES_WEIGHTS, row, 0, N), N);
    float *piece = test_kept(&t, gx_values_read(&t.g, s, GX_VALUES_WEIGHTS, row, FIRST, PIECE), PIECE);
    CHECK(!gx_store_master_at(s, row, 0) && !gx_values_exist(s, GX_VALUES_MOMENT_1, row), "it is not frozen");
    for (int i = 0; i < PIECE; i++) CHECK(piece[i] == before[FIRST + i] && piece[i] != 0, "%d: %g", i, piece[i]);
    for (int i = 0; i < PIECE; i++) piece[i] = (float)(i + 1);
    float *values = gx_values_write(&t.g, s, GX_VALUES_WEIGHTS, row, FIRST, PIECE);
    test_put(&t, values, piece, PIECE);
    gx_values_written(&t.g, s, GX_VALUES_WEIGHTS, row, FIRST, PIECE, values);
    float *after = test_kept(&t, gx_values_read(&t.g, s, GX_VALUES_WEIGHTS, row, 0, N), N);
    for (int i = 0; i < N; i++) {
        const int is_new = i >= FIRST && i < FIRST + PIECE;
        CHECK(after[i] == (is_new ? (float)(i - FIRST + 1) : before[i]), "%d: %g became %g", i, before[i], after[i]);
    }
    gx_arena_release(&t.arena, mark);
    CHECK(!gx_failed(&t.g), "%s", t.g.error.message);
    free(before), free(piece), free(after);
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
        if (!test_model_open(&t, &small, &test_serial, T, B, 4, NULL, 1)) return;
        GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.5f};
        GxSgd sgd = {0.9f, 0.5f};
        gx_model_init(&t.g, &t.m, 3);
        t.o.kind = (GxOptimizerKind)kind, t.o.adamw = adamw, t.o.sgd = sgd;
        test_set_step(&t, 0.5f, 0);
        test_put_batch(&t, &b, 0);
        const GxTable *table = &t.m.table;
        float *before = test_kept(&t, test_masters(&t), t.m.store.trained_n);
        gx_runner_train(&t.g, &t.r, &b, NULL, NULL);
        float *after = test_kept(&t, test_masters(&t), t.m.store.trained_n);
        for (int i = 0; i < table->n; i++) {
            const float keep = table->row[i].role == GX_ROLE_NORM ? 1.0f : 0.75f; // 1 - lr * weight_decay
            for (int64_t j = test_flat(&t, i); j < test_flat(&t, i) + gx_tensor_count(&table->row[i]); j++)
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
    if (!test_model_open(&t, &small, &test_serial, T, B, 4, NULL, 1)) return;
    gx_runner_forward(&t.g, &t.r, &b, NULL);
    CHECK(gx_failed(&t.g) && strstr(t.g.error.message, "3 sequences of 6 tokens") &&
              strstr(t.g.error.message, "at most 2"),
          "%s", t.g.error.message);
    test_model_close(&t);
}

TEST(a_head_that_llama_has_not_is_refused_by_its_name)
{
    const GxHeadKind kinds[] = {GX_HEAD_MASKED, GX_HEAD_VECTORS};
    for (int i = 0; i < 2; i++) {
        GxContext g = GX_ZERO;
        GxModel m;
        GxLlamaConfig c = small;
        GxHeadRequest head = GX_ZERO;
        GxModelOptions options = GX_ZERO;
        head.kind = kinds[i];
        options.head = &head;
        g.world = 1;
        CHECK(gx_model_open(&g, &m, &gx_llama, &c, &test_serial, &options) == GX_ERR_UNSUPPORTED &&
                  strstr(g.error.message, "has a head for the next token or for labels") &&
                  strstr(g.error.message, gx_head_name(kinds[i])),
              "%s", g.error.message);
        gx_model_close(&m);
    }
}

// Stores "name=value name=value" in a configuration, whatever the limits of an option are.
static void change(GxLlamaConfig *c, const char *to)
{
    char copy[200], *save = NULL;
    snprintf(copy, sizeof copy, "%s", to);
    for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        char *value = strchr(name, '=');
        if (!CHECK(value != NULL, "%s has no value", name)) return;
        *value++ = 0;
        GxFieldValue v;
        const GxField *f = gx_field_find(gx_llama.fields, gx_llama.n_fields, name);
        if (CHECK(f && gx_field_parse(f, value, &v), "%s is not %s", name, value)) gx_field_store(f, &v, c);
    }
}

TEST(configurations_that_cannot_be_are_refused)
{
    static const struct {
        const char *change, *says; // what is other than in `small`
    } bad[] = {
        {"num_attention_heads=3", "multiple of num_key_value_heads"},
        {"num_attention_heads=5 num_key_value_heads=5 head_dim=0", "set head_dim"},
        {"head_dim=7", "even"},
        {"vocab_size=0", "vocab_size is 0"},
        {"rms_norm_eps=0", "rms_norm_eps"},
        {"num_hidden_layers=1099511627776", "from 1 to 1000"},
        {"sliding_window=9", "a llama has no sliding window"},
        {"model_type=mistral sliding_window=-1", "sliding_window is -1"},
        {"model_type=qwen2 sliding_window=9 max_window_layers=-1", "max_window_layers -1"},
        {"model_type=mistral sliding_window=9 max_window_layers=1",
         "max_window_layers is 1, but only models of model_type qwen2 or qwen3"},
        {"model_type=mistral sliding_window=9 layer_types=sf",
         "layer_types is \"sf\", but only models of model_type qwen2, qwen3, smollm3 or gemma3_text"},
        {"model_type=qwen3 sliding_window=9 layer_types=sfs", "for each of the 2 layers"},
        {"model_type=qwen3 sliding_window=9 layer_types=sg", "layer_types is \"sg\"; expected one letter for each"},
        {"model_type=qwen3 layer_types=sf", "there is no sliding window"},
        {"model_type=qwen3 layer_types=ff", "there is no sliding window"},
        {"model_type=qwen2 max_window_layers=1",
         "max_window_layers is 1 and layer_types \"\", but there is no sliding window"},
        {"rope_factor=4", "rope_factor is 4; it belongs to rope_type linear|dynamic|yarn|llama3"},
        {"rope_type=llama3 rope_low_freq_factor=4", "low_freq_factor is 4, rope_high_freq_factor 4"},
        {"rope_type=llama3 rope_factor=0.5", "rope_factor is 0.5"},
        {"no_rope_layers=10", "only a smollm3 has layers without RoPE, not a llama"},
        {"model_type=qwen3 no_rope_layer_interval=2", "only a smollm3 has layers without RoPE, not a qwen3"},
        {"model_type=smollm3 no_rope_layer_interval=-1", "no_rope_layer_interval is -1"},
        {"model_type=smollm3 no_rope_layers=101", "no_rope_layers is \"101\"; expected one digit for each of the 2"},
        {"model_type=smollm3 no_rope_layers=12", "no_rope_layers is \"12\""},
        {"model_type=smollm3 sliding_window=4 max_window_layers=1", "max_window_layers is 1, but only"},
        {"rope_type=linear", "rope_factor is 0; with rope_type linear it must be at least 1"},
        {"rope_type=dynamic rope_factor=0.5", "rope_factor is 0.5; with rope_type dynamic"},
        {"rope_type=linear rope_factor=2 rope_beta_fast=8", "rope_beta_fast is 8; it belongs to rope_type yarn, but"},
        {"rope_type=yarn", "rope_factor is 0; with rope_type yarn"},
        {"rope_type=yarn rope_factor=-2", "rope_factor is -2"},
        {"rope_type=yarn rope_factor=2 rope_beta_slow=32", "rope_beta_slow is 32, rope_beta_fast 32"},
        {"rope_type=yarn rope_factor=2 rope_low_freq_factor=1",
         "rope_low_freq_factor is 1; it belongs to rope_type llama3"},
        {"rope_type=llama3 rope_untruncated=true", "rope_untruncated is true; it belongs to rope_type yarn"},
        {"rope_type=longrope", "rope_type is \"longrope\"; supported: default"},
        {"model_type=mistral attention_bias=true", "attention_bias is true, but only models"},
        {"model_type=gemma3_text mlp_bias=true", "mlp_bias is true, but only models of model_type llama or"},
        {"model_type=gemma3_text layer_types=sfs", "for each of the 2 layers"},
        {"model_type=gemma3_text max_window_layers=1", "max_window_layers is 1, but only"},
        {"model_type=gemma3_text query_pre_attn_scalar=-1",
         "query_pre_attn_scalar -1 and rope_local_base_freq 10000; all"},
        {"model_type=gemma3_text sliding_window_pattern=-2", "sliding_window_pattern is -2"},
        {"model_type=qwen3 rope_local_base_freq=10", "rope_local_base_freq 10, but only a gemma3_text has them"},
        {"query_pre_attn_scalar=10", "only a gemma3_text has them, not a llama"},
        {"model_type=qwen3 mlp_bias=true", "mlp_bias is true, but only models of model_type llama or"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GxError err = GX_ZERO;
        GxLlamaConfig c = small;
        change(&c, bad[i].change);
        CHECK(gx_llama_config_resolve(&c, &err) == GX_ERR_ARGUMENT && strstr(err.message, bad[i].says), "%s: %s",
              bad[i].change, err.message);
    }
}

int main(int argc, char **argv) { return test_main(argc, argv); }
