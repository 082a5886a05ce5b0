// test_prompt.cu: prompts in attention in every mode against serial and against peft, what they train and what they
// cost, and refusals.
#include "test/tuned.h"

TEST(prompts_in_every_mode_are_serial) { check_tuned((Tuned){"LLaMA", .prompt = 1}, 0, 1); }
TEST(prompts_beside_norms_that_are_trained_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA", .prompt = 2}, 0, 1);
}
TEST(prompts_before_a_matrix_that_is_trained_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA", .prompt = 3}, 0, 1);
}
TEST(scales_and_biases_in_every_mode_are_serial) { check_tuned((Tuned){"LLaMA", .prompt = 4}, 0, 1); }
TEST(scales_and_biases_of_matrices_that_are_trained_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA", .prompt = 5}, 0, 1);
}
TEST(scales_and_biases_of_quantised_matrices_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA", .prompt = 4, .quantize = 1 + GX_NF4_DOUBLED}, 0, 1);
}
TEST(prompts_through_quantised_matrices_in_every_mode_are_serial)
{
    check_tuned((Tuned){"LLaMA", .prompt = 1, .quantize = 1 + GX_NF4_DOUBLED}, 0, 1);
    check_tuned((Tuned){"LLaMA", .prompt = 2, .quantize = 1 + GX_INT8}, 1, 1);
}
TEST(prompts_in_all_18_triples_of_methods_are_serial) { check_all_triples((Tuned){"LLaMA", .prompt = 3}); }
TEST(scales_and_biases_in_all_18_triples_of_methods_are_serial) { check_all_triples((Tuned){"LLaMA", .prompt = 5}); }

// With documents and padding, of which a rank may have the end alone.
TEST(prompts_of_texts_in_every_mode_are_serial)
{
    for (int i = 0; i < SUBJECTS; i++) {
        if (subjects[i]->family != &gx_llama) continue;
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .prompt = 3}, i, 1);
    }
    test_subject = NULL;
}

// ---- against peft, and against a formula in PyTorch (dev/ref/make_prompt_refs.py) ----------------------------------

typedef struct {
    TestModel t;
    GxLlamaConfig c;
    GxPeftConfig peft;
    GxPrompt prompt;
    GxSafetensors ref;
    GxBatch b;
    int32_t *tokens, *labels; // [T,B]
} Case;

static float *read_floats(const GxSafetensors *s, const char *what, const char *of, int64_t n)
{
    char name[200];
    GxError err = GX_ZERO;
    snprintf(name, sizeof name, "%s%s", what, of);
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    if (!CHECK(e && e->elements == n, "no %s of %ld elements", name, (long)n)) return NULL;
    float *x = (float *)malloc((size_t)(n + 1) * sizeof *x);
    CHECK(gx_safetensors_read(s, e, 0, n, x, &err) == GX_OK, "%s", err.message);
    return x;
}

static int32_t *read_tokens(Case *k, const char *name)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = gx_safetensors_find(&k->ref, name);
    int32_t *raw = (int32_t *)malloc((size_t)e->elements * 4), *out = (int32_t *)malloc((size_t)e->elements * 4);
    CHECK(gx_safetensors_read_raw(&k->ref, e, 0, e->elements, raw, &err) == GX_OK, "%s", err.message);
    k->b.B = e->shape[0], k->b.T = e->shape[1];
    for (int64_t i = 0; i < e->elements; i++) out[i % k->b.T * k->b.B + i / k->b.T] = raw[i];
    free(raw);
    return out;
}

static int case_open(Case *k, const char *name)
{
    char path[200];
    GxError err = GX_ZERO;
    GxWeightsLoaded loaded;
    GxSafetensors s;
    GxWeightsHash hash;
    const uint64_t seed = 1;
    memset(k, 0, sizeof *k);
    snprintf(path, sizeof path, "data/ref/prompt_%s/adapter_config.json", name);
    if (!CHECK(gx_peft_config_read(&k->peft, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    k->prompt.len = k->peft.prompt_len, k->prompt.layers = k->peft.prompt_layers;
    k->prompt.is_v2 = !strcmp(k->peft.type, GX_PEFT_PROMPT_V2);
    snprintf(path, sizeof path, "%.100s/config.json", k->peft.base);
    if (!CHECK(gx_llama_config_read(&k->c, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    snprintf(path, sizeof path, "data/ref/prompt_%s/ref.safetensors", name);
    if (!CHECK(gx_safetensors_open(&k->ref, path, &err) == GX_OK, "%s", err.message)) return 0;
    k->tokens = read_tokens(k, "tokens"), k->labels = read_tokens(k, "labels");
    k->b.tokens = k->tokens, k->b.target[0].labels = k->labels, k->b.runs = gx_runs_one(k->b.T, 0);
    k->t.request.prompt = &k->prompt;
    if (!test_model_open_split(&k->t, &k->c, &test_serial, k->b.T, k->b.B, 4, NULL, 2, 1, NULL)) return 0;
    test_set_step(&k->t, 0, 0);
    test_put_batch(&k->t, &k->b, 0);
    gx_checkpoint_start_from(&k->t.g, &k->t.m, k->peft.base, 1, &seed, &hash, &loaded);
    snprintf(path, sizeof path, "data/ref/prompt_%s/adapter_model.safetensors", name);
    if (!CHECK(gx_safetensors_open(&s, path, &err) == GX_OK, "%s", err.message)) return 0;
    for (int i = 0; i < k->t.m.table.n; i++) {
        const GxTensor *row = &k->t.m.table.row[i];
        const int64_t n = gx_tensor_count(row);
        if (!row->is_adapter) continue;
        float *x = read_floats(&s, GX_PEFT_PREFIX, row->name, n);
        if (x) test_put(&k->t, gx_store_master_at(&k->t.m.store, i, 0), x, n);
        free(x);
    }
    gx_safetensors_close(&s);
    return CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

static void case_close(Case *k)
{
    free(k->tokens), free(k->labels);
    gx_safetensors_close(&k->ref);
    test_model_close(&k->t);
}

// Trained tensors against those of the dump: gradients, or weights.
static int compare(Case *k, const char *what, int is_gradient, double bound, double floor)
{
    const GxStore *s = &k->t.m.store;
    int compared = 0;
    for (int i = 0; i < k->t.m.table.n; i++) {
        const int64_t n = gx_tensor_count(&k->t.m.table.row[i]);
        char prefix[60];
        snprintf(prefix, sizeof prefix, "%s%s", what, GX_PEFT_PREFIX);
        if (!gx_store_trains(s, i)) continue;
        float *ref = read_floats(&k->ref, prefix, k->t.m.table.row[i].name, n),
              *ours = test_kept(&k->t, is_gradient ? gx_store_grads(s, i) : gx_store_master_at(s, i, 0), n);
        if (ref) test_close_f(k->t.m.table.row[i].name, ours, ref, n, bound, floor), compared++;
        free(ref), free(ours);
    }
    return compared;
}

static void close_gates(Case *k)
{
    const float zero = 0;
    for (int i = 0; i < k->t.m.table.n; i++)
        if (k->t.m.table.row[i].is_added && k->t.m.table.row[i].ndim == 1)
            test_put(&k->t, gx_store_master_at(&k->t.m.store, i, 0), &zero, 1);
}

// Loss and gradients, then ten steps of SGD. What prompts add, a sum over len and one over head_dim, the bound, that of
// the base, leaves out.
static void as_peft(const char *name, int tensors)
{
    Case k;
    if (!case_open(&k, name)) return;
    const double forward = test_bound(test_model_depth(&k.c, k.b.T, 0)),
                 backward = test_bound(test_model_depth(&k.c, k.b.T, 1));
    float *loss = read_floats(&k.ref, "loss", "", 1), *norm = read_floats(&k.ref, "grad_norm", "", 1),
          *losses = read_floats(&k.ref, "sgd.losses", "", 10);
    k.t.o.kind = GX_OPTIMIZER_SGD;
    gx_runner_train(&k.t.g, &k.t.r, &k.b, NULL, NULL); // with a learning rate of 0
    const GxStep step = test_step(&k.t);
    if (loss) test_close_number("loss", gx_step_loss(&step), loss[0], forward);
    if (norm) test_close_number("grad_norm", sqrt(step.sum_squares), norm[0], backward);
    if (norm) {
        const int compared = compare(&k, "grad.", 1, backward, 1e-3 * norm[0] / sqrt(tensors));
        CHECK(compared == tensors, "%d gradients compared, not %d", compared, tensors);
    }
    test_set_step(&k.t, 0.1f, 0);
    for (int s = 0; s < 10 && losses; s++) {
        gx_runner_train(&k.t.g, &k.t.r, &k.b, NULL, NULL);
        const GxStep at = test_step(&k.t);
        test_close_number("sgd.losses", gx_step_loss(&at), losses[s], (s + 1) * backward);
    }
    compare(&k, "sgd.", 0, 10 * backward, 0);
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    free(loss), free(norm), free(losses);
    case_close(&k);
}
TEST(prompts_of_a_llama_with_shared_heads_as_peft) { as_peft("llama", 2 * 2); }
TEST(prompts_of_a_mistral_as_peft) { as_peft("mistral", 2 * 2); }
TEST(prompts_of_a_llama_whose_heads_are_wider_than_it_as_a_formula) { as_peft("odd", 2); }
TEST(prompts_through_biases_as_a_formula) { as_peft("qwen2", 2 * 2); }
TEST(prompts_through_norms_of_heads_as_a_formula) { as_peft("qwen3", 2 * 2); }

// LLaMA-Adapter v2: of each layer besides 7 scales, 7 biases and 2 norms (Qwen3: 4), and a final norm.
TEST(scales_and_biases_of_a_llama_with_shared_heads_as_a_formula) { as_peft("v2_llama", 2 * 2 + 3 * 16 + 1); }
TEST(scales_and_biases_of_a_llama_whose_heads_are_wider_than_it_as_a_formula) { as_peft("v2_odd", 2 + 3 * 16 + 1); }
TEST(scales_and_biases_beside_biases_as_a_formula) { as_peft("v2_qwen2", 2 * 2 + 2 * 16 + 1); }
TEST(scales_and_biases_before_norms_of_heads_as_a_formula) { as_peft("v2_qwen3", 2 * 2 + 2 * 18 + 1); }

// With gates that are closed, as they are at first, they alone have gradients.
static void as_peft_at_first(const char *name)
{
    Case k;
    if (!case_open(&k, name)) return;
    close_gates(&k);
    gx_runner_train(&k.t.g, &k.t.r, &k.b, NULL, NULL);
    compare(&k, "zero.grad.", 1, test_bound(test_model_depth(&k.c, k.b.T, 1)), 0);
    for (int i = 0; i < k.t.m.table.n; i++) {
        const int64_t n = gx_tensor_count(&k.t.m.table.row[i]);
        if (!gx_store_trains(&k.t.m.store, i)) continue;
        float *grad = test_kept(&k.t, gx_store_grads(&k.t.m.store, i), n), most = 0;
        for (int64_t e = 0; e < n; e++) most = fmaxf(most, fabsf(grad[e]));
        CHECK((most == 0) == (n > 1), "%s: %g", k.t.m.table.row[i].name, (double)most);
        free(grad);
    }
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    case_close(&k);
}
TEST(with_closed_gates_these_alone_have_gradients_as_in_peft)
{
    as_peft_at_first("llama"), as_peft_at_first("mistral"), as_peft_at_first("qwen3");
}

// ---- documents -----------------------------------------------------------------------------------------------------

// A window of `B` columns of `length` tokens, whose labels are those of `lengths` texts: all behind each other in one
// column, or each at the beginning of one of its own.
// Two micro-batches of the window are [from, from + micro): the second one has other tokens, and the same labels.
typedef struct {
    int is_v2, is_packed, from, micro;
    GxDtype dtype;
    const char *freeze; // NULL: no more than prompts do
} Training;
static void train_texts(TestModel *t, const int *lengths, int n, const Training *how)
{
    int32_t tokens[2][2 * T], documents[2 * T][2], other[2 * T]; // other: of a second micro-batch
    GxBatch b = GX_ZERO;
    static const GxPrompt prompts[2] = {{5, 2, NULL, 0}, {5, 2, NULL, 1}};
    const int is_packed = how->is_packed;
    int first = 0;
    t->request.prompt = &prompts[how->is_v2], t->request.dtype = how->dtype, t->request.spec.micro_batches = how->micro;
    t->request.freeze = how->freeze;
    b.T = T, b.B = is_packed ? 1 : n, b.runs = gx_runs_one(T, 0);
    for (int i = 0; i < 2 * T; i++)
        tokens[0][i] = 0, tokens[1][i] = GX_IGNORE_INDEX, documents[i][0] = documents[i][1] = 0;
    for (int d = 0; d < n; first += lengths[d++])
        for (int i = 0; i < lengths[d]; i++) {
            const int row = is_packed ? first + i : i * n + d, begin = is_packed ? first : 0;
            tokens[0][row] = token_at(d, i), tokens[1][row] = token_at(d, i + 1);
            documents[row][0] = begin, documents[row][1] = begin + lengths[d];
        }
    b.tokens = tokens[0], b.target[0].labels = tokens[1], b.documents = documents[0];
    if (!test_model_open_split(t, &model_config, &test_serial, T, 2, HEAD_CHUNK, NULL, 1, 1, NULL)) return;
    test_put_batch(t, &b, 0);
    test_init(t, 42);
    test_set_step(t, 0, 0);
    GxBatch window[2] = {b, b};
    for (int i = 0; i < 2 * T; i++) other[i] = (tokens[0][i] + 3) % 7;
    window[1].tokens = other;
    gx_runner_train(&t->g, &t->r, window + how->from, NULL, NULL);
    CHECK(!gx_failed(&t->g), "%s", t->g.error.message);
}

TEST(texts_in_one_column_find_in_prompts_what_each_finds_alone)
{
    static const int lengths[2] = {5, 3};
    TestModel *t[2];
    double loss[2];
    for (int i = 0; i < 2; i++) {
        t[i] = (TestModel *)calloc(1, sizeof **t);
        const Training how = {1, i, 0, 1, GX_F32, NULL};
        train_texts(t[i], lengths, 2, &how);
        const GxStep step = test_step(t[i]);
        loss[i] = gx_step_loss(&step);
    }
    const double bound = test_bound(2 * test_model_depth(&model_config, T, 1)); // positions are rounded otherwise
    const int64_t n = t[0]->m.store.trained_n;
    float *grads[2] = {test_kept(t[0], t[0]->m.store.grads, n), test_kept(t[1], t[1]->m.store.grads, n)};
    test_close_number("the loss", loss[1], loss[0], bound);
    test_close_f("gradients", grads[1], grads[0], n, bound, 0);
    for (int i = 0; i < 2; i++) test_model_close(t[i]), free(t[i]), free(grads[i]);
}

// ---- numbers in bf16 -----------------------------------------------------------------------------------------------

// The loss, and the gradients as a whole, of two micro-batches, are as far from fp32 as roundings to 8 bits of numbers
// of 6 sums of a layer may bring them, in fp32 of as many to 24.
static void check_bf16(int is_v2)
{
    static const int lengths[2] = {5, 3};
    TestModel *t[2];
    double loss[2];
    for (int i = 0; i < 2; i++) {
        t[i] = (TestModel *)calloc(1, sizeof **t);
        const Training how = {is_v2, 1, 0, 2, i ? GX_BF16 : GX_F32, NULL};
        train_texts(t[i], lengths, 2, &how);
        const GxStep step = test_step(t[i]);
        loss[i] = gx_step_loss(&step);
    }
    const double bound = test_bound(test_model_depth(&model_config, T, 1)) * 0x1p16;
    const int64_t n = t[0]->m.store.trained_n;
    float *grads[2] = {test_kept(t[0], t[0]->m.store.grads, n), test_kept(t[1], t[1]->m.store.grads, n)};
    test_close_number("the loss", loss[1], loss[0], bound);
    test_close_f("gradients", grads[1], grads[0], n, bound, 0);
    for (int i = 0; i < 2; i++) test_model_close(t[i]), free(t[i]), free(grads[i]);
}

TEST(prompts_in_bf16_are_near_those_in_fp32) { check_bf16(0); }
TEST(scales_and_biases_in_bf16_are_near_those_in_fp32) { check_bf16(1); }

// The loss of a window is the mean of its micro-batches', which have as many labels, so that its gradients are half the
// sum of theirs, and halves are exact. Of P each micro-batch's gradient is made by itself, then added: to the bit. The
// others' sums go on from what is there: they are as far as sums in another order.
static void check_accumulation(int is_v2, GxDtype dtype)
{
    static const int lengths[2] = {5, 3};
    TestModel *t[3];
    float *grads[3];
    for (int i = 0; i < 3; i++) { // both; the first; the second
        const Training how = {is_v2, 1, i == 2, i ? 1 : 2, dtype, NULL};
        t[i] = (TestModel *)calloc(1, sizeof **t);
        train_texts(t[i], lengths, 2, &how);
        grads[i] = test_kept(t[i], t[i]->m.store.grads, t[i]->m.store.trained_n);
    }
    const GxTable *table = &t[0]->m.table;
    const double bound = test_bound(test_model_depth(&model_config, T, 1));
    int prompts = 0;
    for (int i = 0; i < table->n; i++) {
        if (!gx_store_trains(&t[0]->m.store, i)) continue;
        const int64_t at = test_flat(t[0], i), n = gx_tensor_count(&table->row[i]);
        const int is_prompt = strstr(table->row[i].name, "adaption_prompt") != NULL;
        float *sum = (float *)malloc((size_t)n * sizeof *sum);
        double squares = 0;
        int64_t differ = 0;
        for (int64_t e = 0; e < n; e++) {
            const float a = grads[1][at + e], b = grads[2][at + e];
            sum[e] = (a + b) / 2, squares += (double)a * a + (double)b * b;
            differ += grads[0][at + e] != sum[e];
        }
        if (is_prompt) CHECK(!differ, "%s: %ld of %ld numbers differ", table->row[i].name, (long)differ, (long)n);
        else test_close_f(table->row[i].name, grads[0] + at, sum, n, bound, sqrt(squares) / 2);
        prompts += is_prompt && squares > 0;
        free(sum);
    }
    CHECK(prompts == 2, "%d prompts have gradients", prompts);
    for (int i = 0; i < 3; i++) test_model_close(t[i]), free(t[i]), free(grads[i]);
}
TEST(gradients_of_two_micro_batches_are_the_sum_of_those_of_each)
{
    for (int is_v2 = 0; is_v2 < 2; is_v2++) check_accumulation(is_v2, GX_F32), check_accumulation(is_v2, GX_BF16);
}

// Below the lowest prompt nothing is asked for then, and its layer's scales want the gradients of queries all the same.
TEST(frozen_norms_change_no_gradient_of_a_scale)
{
    static const int lengths[2] = {5, 3};
    static const char *const frozen[3] = {NULL, "*norm*", "*norm*,*o_proj*,*mlp*"};
    TestModel *t[3];
    for (int i = 0; i < 3; i++) {
        const Training how = {1, 1, 0, 1, GX_F32, frozen[i]};
        t[i] = (TestModel *)calloc(1, sizeof **t);
        train_texts(t[i], lengths, 2, &how);
    }
    for (int k = 1; k < 3; k++) {
        int compared = 0;
        for (int i = 0; i < t[0]->m.table.n; i++) {
            const int64_t n = gx_tensor_count(&t[0]->m.table.row[i]);
            if (!gx_store_trains(&t[k]->m.store, i)) continue;
            float *all = test_kept(t[0], gx_store_grads(&t[0]->m.store, i), n),
                  *some = test_kept(t[k], gx_store_grads(&t[k]->m.store, i), n);
            CHECK(!memcmp(all, some, (size_t)n * 4), "%s has another gradient", t[0]->m.table.row[i].name);
            free(all), free(some), compared++;
        }
        CHECK(compared == 2 * (k == 1 ? 2 + 14 : 2 + 6), "%d gradients compared", compared);
    }
    for (int i = 0; i < 3; i++) test_model_close(t[i]), free(t[i]);
}

// ---- what is trained, and what it costs ----------------------------------------------------------------------------

static void expect_refusal(const GxPrompt *prompt, const GxLora *lora, const GxFamily *family, void *config,
                           const char *said)
{
    GxModelOptions o = GX_ZERO;
    o.adapter.prompt = *prompt;
    if (lora) o.adapter.lora = *lora;
    if (family == &gx_bert) o.head = &pretraining.head;
    expect_no_model(family, config, &test_serial, &o, said);
}

TEST(models_and_numbers_without_prompts_are_refused)
{
    static const GxPrompt negative = {-1, 0, NULL, 0}, more = {4, 3, NULL, 0}, none = {4, 1, "norms", 0},
                          key = {4, 2, "k_proj", 0}, good = {4, 0, NULL, 0};
    static const GxLora lora = {.r = 2, .alpha = 2};
    GxLlamaConfig c = model_config;
    GxBertConfig *bert = (GxBertConfig *)calloc(1, sizeof *bert);
    memcpy(bert, pretraining.config, sizeof *bert);
    expect_refusal(&negative, NULL, &gx_llama, &c, "prompt_len is -1");
    expect_refusal(&more, NULL, &gx_llama, &c,
                   "prompt_layers is 3; it can be at most the model's number of layers, which is 2");
    expect_refusal(&none, NULL, &gx_llama, &c, "\"norms\" matches no module of the model");
    expect_refusal(&key, NULL, &gx_llama, &c, "model.layers.0.self_attn.k_proj.weight cannot be a trainable module");
    expect_refusal(&good, &lora, &gx_llama, &c, "LoRA and prompts are two ways");
    expect_refusal(&good, NULL, &gx_bert, bert, "bert is none; use --tuning lora or --tuning adapter");
    free(bert);
}

// Forward as the whole model; no gradients of the base, and nothing below the lowest prompt.
TEST(prompts_cost_no_gradients_of_the_base_and_nothing_below_the_lowest)
{
    Result all, some;
    Layout l = {.what = "1 rank", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 1, .samples = {4}};
    run_serial(&l, &all);
    l.prompt = 1; // in the second of two layers
    run_serial(&l, &some);
    double below = 0, products[2] = {0, 0};
    const Result *of[2] = {&all, &some};
    for (int r = 0; r < 2; r++)
        for (int64_t i = 0; i < of[r]->window.n; i++) {
            const GxEvent *e = &of[r]->window.event[i];
            if (!strncmp(e->name, "linear_", 7)) products[r] += e->flops;
            if (r == 1 && e->unit < 2 && strstr(e->name, "backward")) below += 1;
        }
    // Of the head, the last layer's MLP and its out projection the input's gradients alone; of attention those of K and
    // V to the prompt's rows, and forward these; and four products with the gate.
    const double tokens = (double)T * 4, C = (double)model_config.hidden_size,
                 F = (double)model_config.intermediate_size, Q = 6 * 8, KV = 3 * 8, rows = 23,
                 forward = 2 * tokens * (LAYERS * (C * (Q + 2 * KV) + Q * C + 3 * C * F) + C * 61),
                 back = 2 * tokens * (C * 61 + 3 * C * F + Q * C),
                 prompts = 2 * rows * C * 2 * KV * 2 + 3 * 2 * rows * KV;
    CHECK(products[1] == forward + back + prompts, "%.0f FLOPs of products; expected %.0f", products[1],
          forward + back + prompts);
    CHECK(below == 0, "%g operations of a backward below the lowest prompt", below);
    int64_t n = 0;
    for (int i = 0; i < some.model->m.table.n; i++)
        if (some.model->m.table.row[i].is_added) n += gx_tensor_count(&some.model->m.table.row[i]);
    CHECK(gx_table_trained(&some.model->m.table) == n && n == 1 + 23 * model_config.hidden_size,
          "%ld elements are trained", (long)gx_table_trained(&some.model->m.table));
    const GxArena *whole = &all.model->arena, *part = &some.model->arena;
    const int64_t bytes = 4 * some.model->m.store.trained_n;
    CHECK(some.model->m.store.trained_n <= n + 2 * GX_ALIGN / 4, "%ld elements have gradients",
          (long)some.model->m.store.trained_n);
    CHECK(part->kind_used[GX_MEM_GRADS] == gx_round_up(bytes, GX_ALIGN) &&
              part->kind_used[GX_MEM_OPTIMIZER] == 2 * gx_round_up(bytes, GX_ALIGN) && part->peak < whole->peak,
          "%ld bytes of gradients, %ld of moments, %ld of all, where all that is trained takes %ld",
          (long)part->kind_used[GX_MEM_GRADS], (long)part->kind_used[GX_MEM_OPTIMIZER], (long)part->peak,
          (long)whole->peak);
    free_result(&all), free_result(&some);
}

// v2: forward and input gradients of all layers, and no product for a gradient of the base's. What is trained has
// gradients and moments. Of each linear the product before its scale is kept.
TEST(scales_and_biases_cost_no_products_and_keep_one_row_of_each_linear)
{
    Result of[2]; // v1, v2
    Layout l = {.what = "1 rank", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 1, .samples = {4}};
    for (int i = 0; i < 2; i++) l.prompt = i ? 4 : 1, run_serial(&l, &of[i]);
    const GxModel *m = &of[1].model->m;
    const int64_t tokens = T * 4, C = model_config.hidden_size, F = model_config.intermediate_size, Q = 6 * 8,
                  KV = 3 * 8, rows = 7, out[4] = {Q + 2 * KV, C, 2 * F, C};
    double products = 0;
    for (int64_t i = 0; i < of[1].window.n; i++) {
        const GxEvent *e = &of[1].window.event[i];
        if (!strncmp(e->name, "linear_", 7)) products += e->flops;
    }
    const double once = 2.0 * (double)(tokens * (LAYERS * (C * (Q + 2 * KV) + Q * C + 3 * C * F) + C * 61)),
                 prompts = 2.0 * (double)(rows * C * 2 * KV * 2) + 3 * 2.0 * (double)(rows * KV);
    CHECK(products == 2 * once + prompts, "%.0f FLOPs of products; expected %.0f", products, 2 * once + prompts);
    int64_t kept = 0, n = 1 + rows * C + C; // the gate, the prompt; the last norm
    for (int i = 0; i < 4; i++) kept += gx_round_up(4 * tokens * out[i], GX_ALIGN), n += LAYERS * 2 * out[i];
    n += LAYERS * 2 * C; // norms
    const int64_t more = gx_slot_bytes(m, 1, T, 4, 0) - gx_slot_bytes(&of[0].model->m, 1, T, 4, 0);
    CHECK(more == kept, "a slot has %ld bytes more; expected %ld", (long)more, (long)kept);
    CHECK(gx_table_trained(&m->table) == n, "%ld elements are trained; expected %ld", (long)gx_table_trained(&m->table),
          (long)n);
    const GxArena *arena = &of[1].model->arena;
    const int64_t bytes = 4 * m->store.trained_n;
    CHECK(m->store.trained_n >= n && m->store.trained_n <= n + m->table.n * GX_ALIGN / 4 &&
              arena->kind_used[GX_MEM_GRADS] == gx_round_up(bytes, GX_ALIGN) &&
              arena->kind_used[GX_MEM_OPTIMIZER] == 2 * gx_round_up(bytes, GX_ALIGN),
          "%ld bytes of gradients, %ld of moments, where all that is trained takes %ld",
          (long)arena->kind_used[GX_MEM_GRADS], (long)arena->kind_used[GX_MEM_OPTIMIZER], (long)bytes);
    free_result(&of[0]), free_result(&of[1]);
}

TEST(weight_decay_is_on_prompts_and_gates_and_not_on_scales_and_biases)
{
    const GxPrompt prompt = {5, 0, NULL, 1};
    GxContext g = GX_ZERO;
    GxModel m;
    GxLlamaConfig c = model_config;
    GxModelOptions o = GX_ZERO;
    int without = 0, with = 0;
    o.adapter.prompt = prompt;
    g.device = test_device();
    g.world = 1;
    CHECK(gx_model_open(&g, &m, &gx_llama, &c, &test_serial, &o) == GX_OK, "%s", g.error.message);
    for (int i = 0; i < m.table.n; i++) {
        const GxTensor *t = &m.table.row[i];
        const int is_of_linear = strstr(t->name, "adaption_scale") || strstr(t->name, "adaption_bias");
        if (!t->is_added) continue;
        CHECK(t->decay == !is_of_linear, "%s has decay %d", t->name, t->decay);
        without += is_of_linear, with += !is_of_linear;
    }
    CHECK(without == 2 * 7 * c.num_hidden_layers && with >= 2, "%d without, %d with", without, with);
    gx_model_close(&m);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
