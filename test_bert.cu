// test_bert.cu: BERT, BART, mBART, T5 and GPT-2 against transformers (dumps of
// dev/ref/make_{bert,bart,t5,gpt2}_refs.py): activations at block boundaries, losses, every gradient, ten steps of SGD,
// with dropout and without; labels of whole texts; and LLaMAs that label texts and that have several texts in a column.
// The dumps are [B,T,C], Galaxy's rows are [T,B,C].
#include "test/bert.h"

// ---- a mode that keeps what passes through a layer -----------------------------------------------------------------

enum { MAX_LAYERS = 8 };
typedef struct {
    GxMode mode; // first: the model points at it
    // [rows, C] of each pair: the stream before it and behind it; by unit - 1
    float *x[MAX_LAYERS][GX_MAX_PAIRS], *y[MAX_LAYERS][GX_MAX_PAIRS];
    float *out[MAX_LAYERS][GX_MAX_PAIRS]; // what comes out of its core
    int keeps;
} Keeper;

static void keep_rows(GxContext *g, float **kept, GxRows rows)
{
    free(*kept);
    *kept = (float *)malloc((size_t)gx_rows_bytes(rows) + 1);
    gx_to_host(g, *kept, rows.data, gx_rows_bytes(rows));
}

// What comes out of a core lives as long as its pair alone: the core is asked once more, for the keeper.
static void keeper_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    Keeper *keeper = (Keeper *)(uintptr_t)p->m->mode;
    const int l = p->unit - 1, is_layer = gx_unit_spec(p->m, p->unit)->pair[k].con.kind == GX_CON_ADD;
    test_serial.pair_forward(p, k, y, x);
    if (!is_layer || !y.data) return;
    const GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k);
    gx_core_forward(p, k, out, in);
    if (!keeper->keeps || !p->g->device->computes) return;
    keep_rows(p->g, &keeper->x[l][k], x), keep_rows(p->g, &keeper->y[l][k], y);
    keep_rows(p->g, &keeper->out[l][k], out);
}

// ---- a case of the reference ---------------------------------------------------------------------------------------

typedef struct {
    TestModel t;
    Keeper keeper;
    TestReference ref;
    GxArena logits; // of the device
    float *outputs[2];
} Case;

static int case_open(Case *k, const char *name, GxDtype dtype)
{
    char path[140];
    memset(k, 0, sizeof *k);
    k->keeper.mode = test_serial;
    k->keeper.mode.pair_forward = keeper_forward;
    if (!test_reference_open(&k->ref, name)) return 0;
    k->t.request = k->ref.request;
    k->t.request.dtype = dtype;
    if (!test_model_open_split(&k->t, &k->ref.llama, &k->keeper.mode, k->ref.T, k->ref.B, 4, NULL, 2, 1, NULL))
        return 0; // logits in chunks of 4 rows
    GxStep step = GX_ZERO;
    step.seed = k->ref.seed, step.step = k->ref.step;
    gx_to_device(&k->t.g, k->t.g.step, &step, sizeof step);
    test_put_batch_values(&k->t, &k->ref.b, 0, k->ref.outputs);
    snprintf(path, sizeof path, "data/ref/%s/model.safetensors", k->ref.folder);
    gx_checkpoint_load_weights(&k->t.g, &k->t.m, path);
    return CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

static void case_close(Case *k)
{
    for (int l = 0; l < MAX_LAYERS; l++)
        for (int i = 0; i < GX_MAX_PAIRS; i++)
            free(k->keeper.x[l][i]), free(k->keeper.y[l][i]), free(k->keeper.out[l][i]);
    test_reference_close(&k->ref);
    test_model_close(&k->t);
}

// What leaves a core, with the bias that CON adds: att.l and mlp.l of the reference.
static void compare_core(Case *k, const char *format, int l, int pair, double depth)
{
    const int64_t C = k->ref.C, rows = k->ref.T * k->ref.B;
    const int at = k->ref.has_memory ? k->ref.layers + 2 + l : l; // by unit - 1
    const GxTensorId id = k->t.m.unit[at + 1].pair[pair].con_bias;
    float *x = (float *)malloc((size_t)(rows * C) * 4),
          *bias = id.index < 0 ? NULL : test_kept(&k->t, gx_store_master_at(&k->t.m.store, id.index, 0), C);
    for (int64_t i = 0; i < rows * C; i++) x[i] = k->keeper.out[at][pair][i] + (bias ? bias[i % C] : 0);
    test_reference_rows(&k->ref, format, l, x, C, depth);
    free(x), free(bias);
}

// What enters the layers of an encoder and a decoder and leaves their last ones, and what leaves cross attention.
static void compare_stacks(Case *k, double depth)
{
    const TestReference *r = &k->ref;
    TestReference encoder = *r;
    encoder.T = r->source.T, encoder.documents = r->source.documents;
    const int L = r->layers, D = r->decoder_layers, first = L + 2; // the decoder's first layer, by unit - 1
    for (int l = 0; l < L; l++) test_reference_rows(&encoder, "encoder.x.%d", l, k->keeper.x[l][0], r->C, depth);
    test_reference_rows(&encoder, "encoder.x.%d", L, k->keeper.y[L - 1][1], r->C, depth);
    for (int l = 0; l < D; l++) {
        test_reference_rows(r, "decoder.x.%d", l, k->keeper.x[first + l][0], r->C, depth);
        compare_core(k, "cross.%d", l, 1, depth);
    }
    test_reference_rows(r, "decoder.x.%d", D, k->keeper.y[first + D - 1][2], r->C, depth);
}

// Results of target i as they come out of a forward: [n, outputs] on the host.
static float *outputs_of(Case *k, int i, int64_t outputs)
{
    GxBatch b = k->ref.b;
    const int64_t n = b.target[i].parts ? b.target[i].n : gx_target_n(&b, i);
    GxContext *g = &k->t.g;
    GxArena room;
    for (int j = 0; j < 2; j++) b.target[j].labels = NULL, b.target[j].values = NULL, b.target[j].anchors = -1;
    g->device->arena_open(g, &room, 4 * n * outputs + 1024);
    b.target[i].logits = gx_rows(gx_arena_allocate(&room, GX_MEM_ACTIVATIONS, 4 * n * outputs), GX_F32, n, outputs);
    gx_runner_forward(g, &k->t.r, &b, NULL);
    float *x = test_kept(&k->t, b.target[i].logits.data, n * outputs);
    g->device->arena_close(g, &room);
    return x;
}

// A forward alone: of the losses, then of the results.
static void check_activations(Case *k, double loss[2])
{
    const TestReference *r = &k->ref;
    const double depth = test_reference_depth(r, 0);
    const int L = r->layers, has_cores = r->is_bert && !r->variant[0];
    GxBatch b = r->b;
    GxStep step = test_step(&k->t);
    k->keeper.keeps = 1;
    for (int i = 0; i < 2; i++) step.loss_sum[i] = 0;
    gx_to_device(&k->t.g, k->t.g.step, &step, sizeof step);
    gx_runner_forward(&k->t.g, &k->t.r, &b, k->t.g.step->loss_sum);
    k->keeper.keeps = 0;
    if (!CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message)) return;
    step = test_step(&k->t);
    for (int i = 0; i < 2; i++) loss[i] = step.loss_sum[i];
    if (r->has_dropout) return; // the activations of the dumps are of training
    if (r->has_memory) compare_stacks(k, depth);
    for (int l = 0; l < L && !r->has_memory; l++) {
        test_reference_rows(r, "x.%d", l, k->keeper.x[l][0], r->C, depth);
        if (has_cores) compare_core(k, "att.%d", l, 0, depth), compare_core(k, "mlp.%d", l, 1, depth);
        if (has_cores) test_reference_rows(r, "mid.%d", l, k->keeper.y[l][0], r->C, depth);
    }
    if (!r->has_memory) test_reference_rows(r, "x.%d", L, k->keeper.y[L - 1][1], r->C, depth);
    for (int i = 0; i < r->targets; i++) {
        float *x = outputs_of(k, i, r->target_outputs[i]);
        test_reference_outputs(r, i, x, depth);
        free(x);
    }
}

static void check_gradients(Case *k)
{
    const GxTable *table = &k->t.m.table;
    const double bound = test_bound(test_reference_depth(&k->ref, 1)),
                 norm = test_reference_number(&k->ref, "grad_norm");
    int tensors = 0, compared = 0;
    for (int i = 0; i < table->n; i++) tensors += !table->row[i].has_alias;
    for (int i = 0; i < table->n; i++) {
        int64_t n = gx_tensor_count(&table->row[i]);
        if (table->row[i].has_alias) continue;
        float *grad = test_kept(&k->t, gx_store_grads(&k->t.m.store, i), n);
        compared += test_reference_gradient(&k->ref, table->row[i].name, grad, n, bound, 1e-3 * norm / sqrt(tensors));
        free(grad);
    }
    CHECK(compared == tensors, "%d of %d tensors compared", compared, tensors);
    test_close_number("grad_norm", sqrt(test_step(&k->t).sum_squares), norm, bound);
}

static void forward_backward(const char *name)
{
    Case k;
    double loss[2] = {0, 0};
    if (!case_open(&k, name, GX_F32)) return;
    check_activations(&k, loss);
    gx_runner_train(&k.t.g, &k.t.r, &k.ref.b, NULL, NULL); // with a learning rate of 0
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    const GxStep step = test_step(&k.t);
    test_close_number("loss", gx_step_loss(&step), test_reference_number(&k.ref, "loss"),
                      test_bound(test_reference_depth(&k.ref, 0)));
    for (int i = 0; i < k.ref.targets && !k.ref.has_dropout; i++)
        CHECK(loss[i] == step.loss_sum[i], "losses sum to %.17g forward alone, to %.17g in training", loss[i],
              step.loss_sum[i]);
    check_gradients(&k);
    case_close(&k);
}
TEST(bert_masked_tokens_as_transformers) { forward_backward("bert_mlm"); }
TEST(bert_masked_tokens_with_dropout_as_transformers) { forward_backward("bert_mlm_dropout"); }
TEST(bert_masked_tokens_and_pairs_of_texts_as_transformers) { forward_backward("bert_pretrain"); }
TEST(bert_regression_as_transformers) { forward_backward("bert_cls1"); }
TEST(bert_one_label_of_several_as_transformers) { forward_backward("bert_cls3"); }
TEST(bert_one_label_with_dropout_as_transformers) { forward_backward("bert_cls3_dropout"); }
TEST(bert_several_labels_at_once_as_transformers) { forward_backward("bert_cls5"); }
TEST(roberta_masked_tokens_as_transformers) { forward_backward("roberta_mlm"); }
TEST(roberta_masked_tokens_with_dropout_as_transformers) { forward_backward("roberta_mlm_dropout"); }
TEST(xlmr_labels_as_transformers) { forward_backward("xlmr_cls3"); }
TEST(xlmr_labels_with_dropout_as_transformers) { forward_backward("xlmr_cls3_dropout"); }
TEST(bert_labels_of_tokens_as_transformers) { forward_backward("bert_ner"); }
TEST(bert_labels_of_tokens_with_dropout_as_transformers) { forward_backward("bert_ner_dropout"); }
TEST(roberta_labels_of_tokens_with_dropout_as_transformers) { forward_backward("roberta_ner_dropout"); }
TEST(distilbert_masked_tokens_as_transformers) { forward_backward("distilbert_mlm"); }
TEST(distilbert_masked_tokens_with_dropout_as_transformers) { forward_backward("distilbert_mlm_dropout"); }
TEST(distilbert_labels_as_transformers) { forward_backward("distilbert_cls3"); }
TEST(distilbert_labels_with_dropout_as_transformers) { forward_backward("distilbert_cls3_dropout"); }
TEST(distilbert_labels_of_tokens_with_dropout_as_transformers) { forward_backward("distilbert_ner_dropout"); }
TEST(bert_vectors_of_means_as_transformers) { forward_backward("bert_embed:mean"); }
TEST(bert_vectors_of_means_with_negatives_as_transformers) { forward_backward("bert_embed:mean_negatives"); }
TEST(bert_vectors_of_first_tokens_as_transformers) { forward_backward("bert_embed:cls"); }
TEST(bert_vectors_of_first_tokens_with_negatives_as_transformers) { forward_backward("bert_embed:cls_negatives"); }
TEST(bart_as_transformers) { forward_backward("bart_odd"); }
TEST(bart_with_dropout_as_transformers) { forward_backward("bart_dropout"); }
TEST(bart_with_scaled_embeddings_and_relu_as_transformers) { forward_backward("bart_scaled"); }
TEST(mbart_as_transformers) { forward_backward("mbart_odd"); }
TEST(mbart_with_dropout_as_transformers) { forward_backward("mbart_dropout"); }
TEST(t5_as_transformers) { forward_backward("t5_odd"); }
TEST(t5_with_a_gate_and_dropout_as_transformers) { forward_backward("t5_dropout"); }
TEST(mt5_as_transformers) { forward_backward("mt5_silu"); }
TEST(llama_labels_of_the_last_token_as_transformers) { forward_backward("llama_score"); }
TEST(gpt2_as_transformers) { forward_backward("gpt2_odd"); }
TEST(gpt2_with_scores_by_layer_as_transformers) { forward_backward("gpt2_inverse"); }
TEST(gpt2_with_dropout_as_transformers) { forward_backward("gpt2_dropout"); }
TEST(gpt2_texts_that_share_a_column_as_transformers) { forward_backward("gpt2_packed"); }
TEST(gpt2_labels_as_transformers) { forward_backward("gpt2_cls3"); }
TEST(llama_texts_that_share_a_column_as_transformers) { forward_backward("llama_packed"); }

// Ten steps of SGD pass through ten times the reductions. With dropout every step draws its own masks.
static void ten_steps(const char *name)
{
    Case k;
    char what[160];
    if (!case_open(&k, name, GX_F32)) return;
    const GxTable *table = &k.t.m.table;
    GxStep step = test_step(&k.t);
    float *losses = test_reference_floats(&k.ref, "sgd.losses", 0, NULL);
    k.t.o.kind = GX_OPTIMIZER_SGD;
    step.lr = test_reference_number(&k.ref, "sgd.lr");
    for (int s = 0; losses && s < 10; s++) {
        step.step = k.ref.step + (uint64_t)s;
        gx_to_device(&k.t.g, k.t.g.step, &step, sizeof step);
        gx_runner_train(&k.t.g, &k.t.r, &k.ref.b, NULL, NULL);
        const GxStep after = test_step(&k.t);
        snprintf(what, sizeof what, "loss of step %d", s);
        test_close_number(what, gx_step_loss(&after), losses[s], test_bound((s + 1) * test_reference_depth(&k.ref, 1)));
    }
    free(losses);
    for (int i = 0; i < table->n; i++) {
        int64_t n = 0;
        if (table->row[i].has_alias) continue;
        snprintf(what, sizeof what, "sgd.%s", table->row[i].name);
        if (k.ref.variant[0] && strcmp(k.ref.variant, "mean_negatives")) continue; // the others have losses alone
        float *ref = test_reference_floats(&k.ref, what, 0, &n);
        if (!ref) continue;
        float *weights = test_kept(&k.t, gx_store_master_at(&k.t.m.store, i, 0), n);
        test_close_f(what, weights, ref, n, test_bound(10 * test_reference_depth(&k.ref, 1)), 0);
        free(ref), free(weights);
    }
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    case_close(&k);
}
TEST(bert_masked_tokens_ten_steps_of_sgd_as_transformers) { ten_steps("bert_mlm"); }
TEST(bert_masked_tokens_ten_steps_with_dropout_as_transformers) { ten_steps("bert_mlm_dropout"); }
TEST(bert_masked_tokens_and_pairs_ten_steps_of_sgd_as_transformers) { ten_steps("bert_pretrain"); }
TEST(bert_regression_ten_steps_of_sgd_as_transformers) { ten_steps("bert_cls1"); }
TEST(bert_one_label_ten_steps_of_sgd_as_transformers) { ten_steps("bert_cls3"); }
TEST(bert_one_label_ten_steps_with_dropout_as_transformers) { ten_steps("bert_cls3_dropout"); }
TEST(bert_several_labels_ten_steps_of_sgd_as_transformers) { ten_steps("bert_cls5"); }
TEST(roberta_masked_tokens_ten_steps_of_sgd_as_transformers) { ten_steps("roberta_mlm"); }
TEST(roberta_masked_tokens_ten_steps_with_dropout_as_transformers) { ten_steps("roberta_mlm_dropout"); }
TEST(xlmr_labels_ten_steps_of_sgd_as_transformers) { ten_steps("xlmr_cls3"); }
TEST(xlmr_labels_ten_steps_with_dropout_as_transformers) { ten_steps("xlmr_cls3_dropout"); }
TEST(bert_labels_of_tokens_ten_steps_of_sgd_as_transformers) { ten_steps("bert_ner"); }
TEST(bert_labels_of_tokens_ten_steps_with_dropout_as_transformers) { ten_steps("bert_ner_dropout"); }
TEST(roberta_labels_of_tokens_ten_steps_with_dropout_as_transformers) { ten_steps("roberta_ner_dropout"); }
TEST(distilbert_masked_tokens_ten_steps_of_sgd_as_transformers) { ten_steps("distilbert_mlm"); }
TEST(distilbert_masked_tokens_ten_steps_with_dropout_as_transformers) { ten_steps("distilbert_mlm_dropout"); }
TEST(distilbert_labels_ten_steps_of_sgd_as_transformers) { ten_steps("distilbert_cls3"); }
TEST(distilbert_labels_ten_steps_with_dropout_as_transformers) { ten_steps("distilbert_cls3_dropout"); }
TEST(distilbert_labels_of_tokens_ten_steps_with_dropout_as_transformers) { ten_steps("distilbert_ner_dropout"); }
TEST(bert_vectors_of_means_ten_steps_of_sgd_as_transformers) { ten_steps("bert_embed:mean"); }
TEST(bert_vectors_with_negatives_ten_steps_of_sgd_as_transformers) { ten_steps("bert_embed:mean_negatives"); }
TEST(bert_vectors_of_first_tokens_ten_steps_of_sgd_as_transformers) { ten_steps("bert_embed:cls"); }
TEST(bert_vectors_of_first_tokens_with_negatives_ten_steps_as_transformers) { ten_steps("bert_embed:cls_negatives"); }
TEST(bart_ten_steps_of_sgd_as_transformers) { ten_steps("bart_odd"); }
TEST(bart_ten_steps_with_dropout_as_transformers) { ten_steps("bart_dropout"); }
TEST(bart_scaled_ten_steps_of_sgd_as_transformers) { ten_steps("bart_scaled"); }
TEST(mbart_ten_steps_of_sgd_as_transformers) { ten_steps("mbart_odd"); }
TEST(mbart_ten_steps_with_dropout_as_transformers) { ten_steps("mbart_dropout"); }
TEST(t5_ten_steps_of_sgd_as_transformers) { ten_steps("t5_odd"); }
TEST(t5_with_a_gate_ten_steps_with_dropout_as_transformers) { ten_steps("t5_dropout"); }
TEST(mt5_ten_steps_of_sgd_as_transformers) { ten_steps("mt5_silu"); }
TEST(gpt2_ten_steps_of_sgd_as_transformers) { ten_steps("gpt2_odd"); }
TEST(gpt2_with_scores_by_layer_ten_steps_of_sgd_as_transformers) { ten_steps("gpt2_inverse"); }
TEST(gpt2_ten_steps_with_dropout_as_transformers) { ten_steps("gpt2_dropout"); }
TEST(gpt2_texts_in_a_column_ten_steps_of_sgd_as_transformers) { ten_steps("gpt2_packed"); }
TEST(gpt2_labels_ten_steps_of_sgd_as_transformers) { ten_steps("gpt2_cls3"); }
TEST(llama_labels_ten_steps_of_sgd_as_transformers) { ten_steps("llama_score"); }
TEST(llama_texts_in_a_column_ten_steps_of_sgd_as_transformers) { ten_steps("llama_packed"); }

// The distances of a handful of numbers are draws of chance, ours as theirs: a bias of so few is judged with its
// matrix.
enum { FEW = 16 };

static int is_few_of(const GxTensor *t, const char *weight)
{
    const size_t n = strlen(weight) - strlen("weight");
    return t->role == GX_ROLE_BIAS && !t->has_alias && gx_tensor_count(t) < FEW && !strncmp(t->name, weight, n) &&
           !strcmp(t->name + n, "bias");
}

// Adds the square of how far tensor i's gradient is from fp32, and of how far transformers' is.
static void bf16_squares(Case *k, int i, double *squares, double *theirs)
{
    char what[200];
    int64_t n = 0;
    snprintf(what, sizeof what, "grad.%s", k->t.m.table.row[i].name);
    float *ref = test_reference_floats(&k->ref, what, 0, &n),
          *grad = test_kept(&k->t, gx_store_grads(&k->t.m.store, i), n);
    for (int64_t e = 0; ref && e < n; e++) *squares += pow((double)grad[e] - ref[e], 2);
    snprintf(what, sizeof what, "bf16_distance.%s", k->t.m.table.row[i].name);
    *theirs += pow(test_reference_number(&k->ref, what), 2);
    free(ref), free(grad);
}

// In bf16: as near to transformers in fp32 as transformers in bf16 is, or half as near.
static void bf16_distance(const char *name)
{
    Case k;
    if (!case_open(&k, name, GX_BF16)) return;
    gx_runner_train(&k.t.g, &k.t.r, &k.ref.b, NULL, NULL); // with a learning rate of 0
    CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message);
    const GxTable *table = &k.t.m.table;
    const GxStep step = test_step(&k.t);
    const double loss = test_reference_number(&k.ref, "loss"),
                 theirs_of_loss = fmax(test_reference_number(&k.ref, "bf16_distance.loss"), loss / 512);
    CHECK(fabs(gx_step_loss(&step) - loss) <= 2 * theirs_of_loss, "loss %.6f, %.6f in fp32", gx_step_loss(&step), loss);
    for (int i = 0; i < table->n; i++) {
        const char *name = table->row[i].name;
        double squares = 0, theirs = 0;
        if (table->row[i].has_alias || strstr(name, "key.bias") || strstr(name, "k_lin.bias") ||
            strstr(name, "c_attn.k.bias"))
            continue;                                                                              // 0 but for rounding
        if (table->row[i].role == GX_ROLE_BIAS && gx_tensor_count(&table->row[i]) < FEW) continue; // with its matrix
        bf16_squares(&k, i, &squares, &theirs);
        for (int j = 0; j < table->n; j++)
            if (is_few_of(&table->row[j], name)) bf16_squares(&k, j, &squares, &theirs);
        const double ratio = sqrt(squares / theirs) / 2;
        CHECK(ratio <= 1, "%s: %.3g from fp32, transformers in bf16 %.3g", name, sqrt(squares), sqrt(theirs));
        if (ratio > test_state.worst) test_state.worst = ratio;
    }
    case_close(&k);
}
TEST(bert_masked_tokens_in_bf16_are_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("bert_mlm"); }
TEST(bert_pairs_in_bf16_are_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("bert_pretrain"); }
TEST(roberta_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("roberta_mlm"); }
TEST(xlmr_labels_in_bf16_are_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("xlmr_cls3"); }
TEST(bert_labels_in_bf16_are_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("bert_cls3"); }
TEST(bert_labels_of_tokens_in_bf16_are_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("bert_ner"); }
TEST(distilbert_labels_in_bf16_are_as_near_to_fp32_as_transformers_in_bf16) { bf16_distance("distilbert_cls3"); }
TEST(gpt2_in_bf16_is_as_near_to_fp32_as_transformers_in_bf16)
{
    bf16_distance("gpt2_odd"), bf16_distance("gpt2_inverse");
}

int main(int argc, char **argv) { return test_main(argc, argv); }
