// test_lora.cu: LoRA in every mode against serial, what it trains and what it costs, and refusals.
#include "test/tuned.h"
#include <unistd.h>

TEST(lora_in_every_mode_is_serial) { check_tuned((Tuned){"LLaMA", .lora = 1}, 0, 1); }
TEST(lora_with_dropout_in_every_mode_is_serial) { check_tuned((Tuned){"LLaMA", .lora = 3}, 0, 1); }
TEST(lora_of_some_linears_in_every_mode_is_serial) { check_tuned((Tuned){"LLaMA", .lora = 2}, 0, 1); }

TEST(lora_of_models_with_picked_rows_in_every_mode_is_serial)
{
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .lora = 3}, i, SUBJECTS);
    }
    test_subject = NULL;
}

// q, k and v of a GPT-2 have one A, as the one matrix that they are in files.
TEST(lora_of_stacked_matrices_in_every_mode_is_serial)
{
    for (int i = 0; i < 3; i++) {
        test_subject = i % 2 ? &gpt2_scores : &gpt2_texts;
        check_tuned((Tuned){"a GPT-2", .lora = i == 2 ? 18 : 3}, i, 3);
    }
    test_subject = NULL;
}

// A BERT's "dense" is also what comes before its heads, on picked rows.
TEST(lora_before_heads_in_every_mode_is_serial)
{
    for (int i = 0; i < 4; i++) {
        if (i == 1) continue; // masked tokens alone: among those of 0
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .lora = 4}, i, 4);
    }
    test_subject = NULL;
}

TEST(lora_in_all_18_triples_of_methods_is_serial) { check_all_triples((Tuned){"LLaMA", .lora = 3}); }

TEST(lora_of_stacked_matrices_in_all_18_triples_of_methods_is_serial)
{
    test_subject = &gpt2_texts;
    check_all_triples((Tuned){"a GPT-2", .lora = 3});
    test_subject = NULL;
}

TEST(lora_of_the_embedding_in_every_mode_is_serial)
{
    check_tuned((Tuned){"LLaMA", .lora = 5}, 0, 1);
    check_tuned((Tuned){"LLaMA", .lora = 7}, 0, 1);
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .lora = test_subject->family == &gx_llama ? 5 : 6}, i, SUBJECTS);
    }
    test_subject = NULL;
}

TEST(lora_of_the_embedding_in_all_18_triples_of_methods_is_serial) { check_all_triples((Tuned){"LLaMA", .lora = 5}); }

// A head works on chunks of its target's rows: with dropout, of which each row has its own.
TEST(lora_of_heads_in_every_mode_is_serial)
{
    static const int which[SUBJECTS] = {12, 11, 13, 13, 13, 8, 10, 0, 0}; // vectors have no matrix
    check_tuned((Tuned){"LLaMA", .lora = 8}, 0, 1);
    check_tuned((Tuned){"LLaMA", .lora = 9}, 0, 1);
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        if (which[i]) check_tuned((Tuned){subject_names[i], .lora = which[i]}, i, SUBJECTS);
    }
    test_subject = NULL;
}

TEST(lora_of_a_head_in_all_18_triples_of_methods_is_serial) { check_all_triples((Tuned){"LLaMA", .lora = 8}); }

// Ranks and scales that differ from matrix to matrix, in the parts of a packed one, too.
TEST(lora_of_ranks_that_differ_in_every_mode_is_serial)
{
    check_tuned((Tuned){"LLaMA", .lora = 14}, 0, 1);
    check_tuned((Tuned){"LLaMA", .lora = 15}, 0, 1);
    check_tuned((Tuned){"LLaMA on doubled NF4", .lora = 14, .quantize = 1 + GX_NF4_DOUBLED}, 0, 1);
}

TEST(lora_of_ranks_that_differ_in_all_18_triples_of_methods_is_serial)
{
    check_all_triples((Tuned){"LLaMA", .lora = 14});
    check_all_triples((Tuned){"LLaMA", .lora = 15});
}

// ---- quantised matrices --------------------------------------------------------------------------------------------

TEST(lora_on_quantised_matrices_in_every_mode_is_serial)
{
    check_tuned((Tuned){"LLaMA on doubled NF4", .lora = 3, .quantize = 1 + GX_NF4_DOUBLED}, 0, 1);
    check_tuned((Tuned){"LLaMA on NF4", .lora = 1, .quantize = 1 + GX_NF4}, 0, 1);
    check_tuned((Tuned){"LLaMA on int8", .lora = 2, .quantize = 1 + GX_INT8}, 0, 1);
    for (int i = 0; i < SUBJECTS; i++) {
        test_subject = subjects[i];
        check_tuned((Tuned){subject_names[i], .lora = 1, .quantize = 1 + (i % 2 ? GX_INT8 : GX_NF4_DOUBLED)}, i,
                    SUBJECTS);
    }
    test_subject = NULL;
}

// A model with the values that the codes mean has the same losses, gradients and steps.
static void check_values_of_codes(GxQuantKind kind, GxDtype dtype)
{
    enum { B = 4, STEPS_HERE = 3 };
    TestModel *t[2];
    GxBatch b[2];
    int32_t tokens[2][T * B];
    for (int i = 0; i < T * B; i++) tokens[0][i] = token_at(i, 0), tokens[1][i] = token_at(i, 1);
    for (int i = 0; i < 2; i++) {
        t[i] = (TestModel *)calloc(1, sizeof **t);
        t[i]->request.lora = &test_loras[0], t[i]->request.dtype = dtype;
        t[i]->request.quantize = i ? 0 : 1 + (int)kind;
        if (!test_model_open_split(t[i], &model_config, &test_serial, T, B, HEAD_CHUNK, NULL, 1, 1, NULL)) return;
        memset(&b[i], 0, sizeof b[i]);
        b[i].tokens = tokens[0], b[i].target[0].labels = tokens[1], b[i].T = T, b[i].B = B;
        b[i].runs = gx_runs_one(T, 0);
        test_put_batch(t[i], &b[i], 0);
        test_init(t[i], 42);
    }
    const GxStore *quantized = &t[0]->m.store, *plain = &t[1]->m.store;
    int n = 0;
    for (int i = 0; i < t[0]->m.table.n; i++) {
        const int64_t count = gx_tensor_count(&t[0]->m.table.row[i]);
        if (!t[0]->m.table.row[i].quantized) continue;
        const GxArenaMark mark = gx_arena_mark(t[0]->g.arena), other = gx_arena_mark(t[1]->g.arena);
        float *kept = test_kept(t[0], gx_values_read(&t[0]->g, quantized, GX_VALUES_WEIGHTS, i, 0, count), count);
        float *values = gx_values_write(&t[1]->g, plain, GX_VALUES_WEIGHTS, i, 0, count);
        test_put(t[1], values, kept, count);
        gx_values_written(&t[1]->g, plain, GX_VALUES_WEIGHTS, i, 0, count, values);
        gx_arena_release(t[0]->g.arena, mark), gx_arena_release(t[1]->g.arena, other);
        free(kept);
        n++;
    }
    CHECK(n == 7 * LAYERS, "%d matrices are quantized", n);
    CHECK(quantized->trained_n == plain->trained_n && quantized->weights_n < plain->weights_n, "%ld and %ld numbers",
          (long)quantized->weights_n, (long)plain->weights_n);
    const double bound = test_bound(test_model_depth(&model_config, T, 1)) * (dtype == GX_BF16 ? 0x1p16 : 1);
    for (int s = 0; s < STEPS_HERE; s++) {
        double loss[2];
        for (int i = 0; i < 2; i++) {
            t[i]->o.kind = GX_OPTIMIZER_SGD;
            test_set_step(t[i], 0.1f, s);
            gx_runner_train(&t[i]->g, &t[i]->r, &b[i], NULL, NULL);
            const GxStep step = test_step(t[i]);
            loss[i] = gx_step_loss(&step);
        }
        test_close_number("the loss", loss[0], loss[1], (s + 1) * bound);
        float *grads[2] = {test_kept(t[0], quantized->grads, plain->trained_n),
                           test_kept(t[1], plain->grads, plain->trained_n)};
        test_close_f("gradients", grads[0], grads[1], plain->trained_n, (s + 1) * bound, 0);
        free(grads[0]), free(grads[1]);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(!gx_failed(&t[i]->g), "%s", t[i]->g.error.message);
        test_model_close(t[i]);
        free(t[i]);
    }
}
TEST(lora_on_quantised_matrices_is_lora_on_the_values_that_they_mean)
{
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++) {
        check_values_of_codes((GxQuantKind)kind, GX_F32);
        check_values_of_codes((GxQuantKind)kind, GX_BF16);
    }
}

// Folders of bitsandbytes' layout (dev/ref/make_quant_refs.py): what is loaded are their codes, not what they stand
// for, quantised once more, which doubled scales would show.
static void check_quantized_folder(const char *name, GxQuantKind kind)
{
    TestReference base;
    TestModel t;
    GxError err = GX_ZERO;
    GxWeightsLoaded loaded;
    GxWeightsHash hash;
    const uint64_t seed = 3;
    char path[100];
    int packed = 0;
    memset(&t, 0, sizeof t);
    memset(&base, 0, sizeof base);
    snprintf(path, sizeof path, "data/ref/%s/ref.safetensors", name);
    if (!CHECK(gx_safetensors_open(&base.file, path, &err) == GX_OK, "%s", err.message)) return;
    reference_batch(&base);
    base.b.target[0].labels = reference_rotated(&base, "labels");
    snprintf(path, sizeof path, "data/ref/%s/config.json", name);
    if (!CHECK(gx_llama_config_read(&base.llama, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return;
    t.request.lora = &test_loras[0], t.request.quantize = 1 + (int)kind;
    if (!test_model_open_split(&t, &base.llama, &test_serial, base.T, base.B, 4, NULL, 2, 1, NULL)) return;
    test_set_step(&t, 0, 0);
    test_put_batch(&t, &base.b, 0);
    snprintf(path, sizeof path, "data/ref/%s", name);
    gx_checkpoint_start_from(&t.g, &t.m, path, 1, &seed, &hash, &loaded);
    for (int i = 0; i < t.m.table.n; i++) {
        packed += t.m.table.row[i].quantized != 0;
        if (strstr(t.m.table.row[i].name, ".lora_B.") && !gx_failed(&t.g))
            gx_zero(&t.g, gx_store_master_at(&t.m.store, i, 0), 4 * gx_tensor_count(&t.m.table.row[i]));
    }
    t.o.kind = GX_OPTIMIZER_SGD;
    gx_runner_train(&t.g, &t.r, &base.b, NULL, NULL);
    const GxStep step = test_step(&t);
    CHECK(packed == 7 * base.llama.num_hidden_layers, "%d matrices are quantized", packed);
    if (CHECK(!gx_failed(&t.g), "%s", t.g.error.message))
        test_close_number(name, gx_step_loss(&step), test_reference_number(&base, "loss"),
                          test_bound(test_model_depth(&base.llama, base.T, 0)));
    test_model_close(&t);
    test_reference_close(&base);
}
TEST(folders_that_are_quantised_already_are_loaded_as_they_are)
{
    check_quantized_folder("bnb_nf4", GX_NF4_DOUBLED);
    check_quantized_folder("bnb_nf4_plain", GX_NF4);
    check_quantized_folder("bnb_int8", GX_INT8);
}

// Element i of a matrix that is read in pieces.
static void read_numbers(void *from, int64_t first, int64_t n, float *x, GxError *err)
{
    (void)from, (void)err;
    for (int64_t i = 0; i < n; i++) x[i] = gx_random_normal(5, (uint64_t)(first + i), 0, 7);
}

// A matrix of more elements than a piece, and a box of it.
TEST(a_matrix_that_is_quantised_in_pieces_is_that_which_is_quantised_as_a_whole)
{
    enum { ROWS = 1037, COLS = 1029, FIRST = 511 };
    float *x = (float *)malloc((size_t)ROWS * COLS * 4);
    GxError err = GX_ZERO;
    read_numbers(NULL, 0, (int64_t)ROWS * COLS, x, &err);
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++)
        for (int is_box = 0; is_box < 2; is_box++) {
            const GxRange parts[2] = {{0, FIRST}, {FIRST, COLS}};
            GxContext g = GX_ZERO;
            GxTable table = GX_ZERO;
            GxStore store;
            GxTensor t = GX_ZERO;
            GxArena arena, whole_memory;
            snprintf(t.name, sizeof t.name, "matrix.weight");
            t.ndim = 2, t.frozen = 1, t.quantized = 1 + kind;
            t.global_shape[0] = t.end[0] = ROWS, t.global_shape[1] = t.end[1] = COLS;
            if (is_box) t.begin[1] = FIRST, t.split_dim = 1, t.n_parts = 2, t.parts = parts;
            const GxTensorId id = gx_table_add(&table, &t, &g.error);
            g.device = gx_device_cpu(), g.arena = &arena, g.threads = 2, g.world = 1;
            gx_arena_open(&arena, 64 << 20, &g.error), gx_arena_open(&whole_memory, 16 << 20, &g.error);
            gx_store_open(&store, &table, gx_units(0, 1), GX_F32, &g.error);
            gx_store_allocate(&g, &store, -1);
            gx_quantize_tensor(&g, &store, id.index, read_numbers, NULL);
            GxQuantized whole = gx_quantized((GxQuantKind)kind, ROWS, COLS, NULL);
            whole = gx_quantized((GxQuantKind)kind, ROWS, COLS,
                                 gx_arena_allocate(&whole_memory, GX_MEM_WEIGHTS, gx_quantized_bytes(&whole)));
            float *absmax =
                (float *)gx_arena_allocate(&whole_memory, GX_MEM_WORKSPACE, 4 * gx_quantized_blocks(&whole));
            gx_cpu_quantize(&g, &whole, absmax, x);
            const int64_t col = t.begin[1], n = COLS - col;
            float *y = (float *)gx_arena_allocate(&arena, GX_MEM_WORKSPACE, 4 * ROWS * n),
                  *expected = (float *)gx_arena_allocate(&arena, GX_MEM_WORKSPACE, 4 * ROWS * n);
            const GxQuantized box = gx_store_quantized(&store, id);
            gx_dequantize(&g, y, GX_F32, &box, 0, ROWS, 0, n);
            gx_dequantize(&g, expected, GX_F32, &whole, 0, ROWS, col, n);
            CHECK(!gx_failed(&g) && !memcmp(y, expected, (size_t)(4 * ROWS * n)), "kind %d, from column %ld: %s", kind,
                  (long)col, g.error.message);
            gx_store_close(&store), gx_table_close(&table);
            gx_arena_close(&arena), gx_arena_close(&whole_memory);
        }
    free(x);
}

// w += s * B A of some rows, where each matrix has its own r and s: as the sum over its r products says.
TEST(pieces_of_a_matrix_get_the_rows_of_their_own_factors)
{
    enum { FIRST = 3 };
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    t->request.lora = &test_loras[13];
    if (!test_model_open_split(t, &model_config, &test_serial, T, 4, HEAD_CHUNK, NULL, 1, 1, NULL)) return;
    test_init(t, 42);
    for (int i = 0; i < t->m.table.n; i++) {
        const GxTensor *w = &t->m.table.row[i], *row = t->m.table.row;
        if (!w->has_lora) continue;
        const int64_t rows = w->global_shape[0], in = w->global_shape[1], r = row[w->lora.index].global_shape[0];
        const GxArenaMark mark = gx_arena_mark(t->g.arena);
        float *sum = (float *)gx_scratch(&t->g, GX_MEM_WORKSPACE, 4 * rows * in);
        float *zero = (float *)calloc((size_t)(rows * in), 4);
        test_put(t, sum, zero, rows * in);
        gx_lora_add(&t->g, &t->m, i, 0, FIRST, sum);
        gx_lora_add(&t->g, &t->m, i, FIRST, rows - FIRST, sum + FIRST * in);
        float *ours = test_kept(t, sum, rows * in), *want = (float *)calloc((size_t)(rows * in), 4),
              *a = test_kept(t, gx_store_master_at(&t->m.store, w->lora.index, 0), r * in),
              *b = test_kept(t, gx_store_master_at(&t->m.store, w->lora_b.index, 0), rows * r);
        for (int64_t e = 0; e < rows * in; e++) {
            double of_e = 0;
            for (int64_t k = 0; k < r; k++) of_e += (double)b[e / in * r + k] * a[k * in + e % in];
            want[e] = (float)(w->lora_scale * of_e);
        }
        test_close_f(w->name, ours, want, rows * in, test_bound(r), 0);
        free(zero), free(ours), free(want), free(a), free(b);
        gx_arena_release(t->g.arena, mark);
    }
    CHECK(!gx_failed(&t->g), "%s", t->g.error.message);
    test_model_close(t);
    free(t);
}

// ---- against PEFT (dev/ref/make_lora_refs.py) ----------------------------------------------------------------------

typedef struct {
    TestModel t;
    GxLlamaConfig c;
    GxPeftConfig peft;
    GxLora lora;
    GxSafetensors ref;
    GxBatch b;
    int32_t *tokens, *labels; // [T,B]
    GxStep step;              // the dump's: seed and step; 0: nothing is drawn
} Case;

static float *read_floats(const GxSafetensors *s, const char *name, int64_t *n)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = gx_safetensors_find(s, name);
    if (!CHECK(e != NULL, "no %s", name)) return NULL;
    float *x = (float *)malloc((size_t)(e->elements + 1) * sizeof *x);
    CHECK(gx_safetensors_read(s, e, 0, e->elements, x, &err) == GX_OK, "%s", err.message);
    *n = e->elements;
    return x;
}

static int32_t integer(Case *k, const char *name)
{
    GxError err = GX_ZERO;
    int32_t value = -1;
    const GxSafetensorsEntry *e = gx_safetensors_find(&k->ref, name);
    if (CHECK(e, "no %s", name))
        CHECK(gx_safetensors_read_raw(&k->ref, e, 0, 1, &value, &err) == GX_OK, "%s", err.message);
    return value;
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

static GxLora lora_of(const GxPeftConfig *c)
{
    GxLora l = {.r = c->r, .alpha = c->lora_alpha, .is_scaled_by_root = c->use_rslora};
    l.dropout = (float)c->lora_dropout, l.targets = c->targets, l.trainable = c->modules_to_save;
    l.finds = gx_module_is_pattern(c->targets) ? gx_module_pattern_finds : NULL;
    l.excluded = c->excluded, l.excludes = gx_module_is_pattern(c->excluded) ? gx_module_pattern_finds : NULL;
    l.layers = &c->layers, l.lists = c->layers_pattern;
    l.rank_pattern = c->rank_pattern, l.alpha_pattern = c->alpha_pattern, l.value = gx_module_number;
    return l;
}

static int case_open(Case *k, const char *name)
{
    char path[200];
    GxError err = GX_ZERO;
    GxWeightsHash hash;
    memset(k, 0, sizeof *k);
    snprintf(path, sizeof path, "data/ref/lora_%s/adapter_config.json", name);
    if (!CHECK(gx_peft_config_read(&k->peft, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    k->lora = lora_of(&k->peft);
    snprintf(path, sizeof path, "%.100s/config.json", k->peft.base);
    if (!CHECK(gx_llama_config_read(&k->c, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    snprintf(path, sizeof path, "data/ref/lora_%s/ref.safetensors", name);
    if (!CHECK(gx_safetensors_open(&k->ref, path, &err) == GX_OK, "%s", err.message)) return 0;
    k->tokens = read_tokens(k, "tokens"), k->labels = read_tokens(k, "labels");
    k->b.tokens = k->tokens, k->b.target[0].labels = k->labels, k->b.runs = gx_runs_one(k->b.T, 0);
    k->t.request.lora = &k->lora;
    if (!test_model_open_split(&k->t, &k->c, &test_serial, k->b.T, k->b.B, 4, NULL, 2, 1, NULL)) return 0;
    test_set_step(&k->t, 0, 0);
    test_put_batch(&k->t, &k->b, 0);
    snprintf(path, sizeof path, "data/ref/lora_%s", name);
    gx_checkpoint_start_with_adapter(&k->t.g, &k->t.m, k->peft.base, path, &hash);
    return CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

static void case_close(Case *k)
{
    free(k->tokens), free(k->labels);
    gx_safetensors_close(&k->ref);
    test_model_close(&k->t);
}

// Trained tensors against those of the dump, whose names begin so: gradients, or weights.
static int compare(Case *k, const char *what, int is_gradient, double bound, double floor)
{
    int compared = 0;
    for (int i = 0; i < k->t.m.table.n; i++) {
        char name[200];
        int64_t n = 0;
        if (!gx_store_trains(&k->t.m.store, i)) continue;
        snprintf(name, sizeof name, "%s%s%s", what, GX_PEFT_PREFIX, k->t.m.table.row[i].name);
        float *ref = read_floats(&k->ref, name, &n);
        if (!ref) continue;
        float *ours = test_kept(
            &k->t, is_gradient ? gx_store_grads(&k->t.m.store, i) : gx_store_master_at(&k->t.m.store, i, 0), n);
        test_close_f(name, ours, ref, n, bound, floor);
        compared++;
        free(ref), free(ours);
    }
    return compared;
}

static float number(Case *k, const char *name, int i)
{
    int64_t n = 0;
    float *x = read_floats(&k->ref, name, &n), value = x && i < n ? x[i] : NAN;
    free(x);
    return value;
}

// The dump's step, or the k-th after it.
static void set_step(Case *k, float lr, int after)
{
    GxStep s = k->step;
    s.lr = lr, s.step += (uint64_t)after;
    gx_to_device(&k->t.g, k->t.g.step, &s, sizeof s);
}

// Whose masks a factor has: that of its row.
static void check_site(Case *k, const GxTensor *t)
{
    char name[200];
    if (!strstr(t->name, ".lora_A.weight") && !strstr(t->name, ".lora_embedding_A")) return;
    snprintf(name, sizeof name, "site.%s%s", GX_PEFT_PREFIX, t->name);
    const GxSafetensorsEntry *e = gx_safetensors_find(&k->ref, name);
    if (!CHECK(e, "no %s", name)) return;
    const long ours = (long)(t - k->t.m.table.row), theirs = integer(k, name);
    CHECK(ours == theirs, "%s is row %ld, not %ld", t->name, ours, theirs);
}

// Loss and gradients, then ten steps of SGD.
static void check_steps(Case *k, GxBatch *b, double forward, double backward, int tensors)
{
    const double norm = number(k, "grad_norm", 0);
    k->t.o.kind = GX_OPTIMIZER_SGD;
    if (gx_safetensors_find(&k->ref, "seed")) {
        k->step.seed = (uint64_t)integer(k, "seed"), k->step.step = (uint64_t)integer(k, "step");
        b->window_sample = integer(k, "first_sample");
        for (int i = 0; i < k->t.m.table.n; i++) check_site(k, &k->t.m.table.row[i]);
    }
    set_step(k, 0, 0);
    gx_runner_train(&k->t.g, &k->t.r, b, NULL, NULL);
    const GxStep step = test_step(&k->t);
    test_close_number("loss", gx_step_loss(&step), number(k, "loss", 0), forward);
    test_close_number("grad_norm", sqrt(step.sum_squares), norm, backward);
    const int compared = compare(k, "grad.", 1, backward, 1e-3 * norm / sqrt(tensors));
    CHECK(compared == tensors, "%d gradients compared, not %d", compared, tensors);
    for (int s = 0; s < 10; s++) {
        set_step(k, 0.1f, s);
        gx_runner_train(&k->t.g, &k->t.r, b, NULL, NULL);
        const GxStep at = test_step(&k->t);
        test_close_number("sgd.losses", gx_step_loss(&at), number(k, "sgd.losses", s), (s + 1) * backward);
    }
    compare(k, "sgd.", 0, 10 * backward, 0);
    CHECK(!gx_failed(&k->t.g), "%s", k->t.g.error.message);
}

static void as_peft(const char *name, int tensors)
{
    Case k;
    if (!case_open(&k, name)) return;
    check_steps(&k, &k.b, test_bound(test_model_depth(&k.c, k.b.T, 0)), test_bound(test_model_depth(&k.c, k.b.T, 1)),
                tensors);
    case_close(&k);
}
TEST(lora_of_all_linears_as_peft) { as_peft("gqa", 2 * 2 * 7); }
TEST(lora_of_some_linears_scaled_by_the_root_as_peft) { as_peft("odd", 3 * 2 * 3); }
TEST(lora_of_linears_with_biases_and_of_one_layer_alone_as_peft) { as_peft("qwen2", 2 * 2 * 3 + 2); }

// Matrices that are one for peft: with an A for all of them, and B's rows apart.
TEST(lora_of_stacked_matrices_of_a_phi3_as_peft) { as_peft("phi3", 2 * (1 + 3 + 1 + 2 + 2)); }
TEST(lora_of_ranks_and_alphas_that_differ_as_peft) { as_peft("ranks", 2 * 2 + 2 * 2 + 2 * 2 + 2 + 2 * 2); }
TEST(lora_of_one_layer_and_of_a_whole_name_as_peft) { as_peft("layers", 3 * 2 + 2); }

// Of the second the head is tied to the embedding, and goes on with that.
TEST(lora_of_a_gemma3_whose_tokens_rows_are_scaled_as_peft) { as_peft("gemma3", 2 + 3 * 3 * 2); }
TEST(lora_of_the_embedding_of_a_llama_as_peft) { as_peft("embed", 2 + 2 * 2); }
TEST(lora_of_an_embedding_that_a_head_is_tied_to_as_peft) { as_peft("embed_tied", 2 + 3 * 2); }

// The folders as they are, on the batch of the base's dump.
static void as_peft_on(const char *base_name, const char *name, int tensors)
{
    TestReference base;
    Case k;
    GxError err = GX_ZERO;
    GxWeightsHash hash;
    char folder[100], path[140], base_folder[100];
    memset(&k, 0, sizeof k);
    if (!test_reference_open(&base, base_name)) return;
    snprintf(base_folder, sizeof base_folder, "data/ref/%s", base_name);
    snprintf(folder, sizeof folder, "data/ref/lora_%s", name);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    CHECK(gx_peft_config_read(&k.peft, path, &gx_silent, &err) == GX_OK, "%s", err.message);
    snprintf(path, sizeof path, "%s/ref.safetensors", folder);
    CHECK(gx_safetensors_open(&k.ref, path, &err) == GX_OK, "%s", err.message);
    k.lora = lora_of(&k.peft);
    k.t.request = base.request, k.t.request.lora = &k.lora;
    if (gx_error_code(&err) ||
        !test_model_open_split(&k.t, &base.llama, &test_serial, base.T, base.B, 4, NULL, 2, 1, NULL))
        return;
    test_set_step(&k.t, 0, 0);
    if (gx_safetensors_find(&k.ref, "tokens")) base.b.tokens = k.tokens = read_tokens(&k, "tokens"); // others
    test_put_batch(&k.t, &base.b, 0);
    gx_checkpoint_start_with_adapter(&k.t.g, &k.t.m, base_folder, folder, &hash);
    if (CHECK(!gx_failed(&k.t.g), "%s", k.t.g.error.message))
        check_steps(&k, &base.b, test_bound(test_reference_depth(&base, 0)), test_bound(test_reference_depth(&base, 1)),
                    tensors);
    case_close(&k);
    test_reference_close(&base);
}

// Its head is tied; some of its tokens are padding, which has no gradient.
TEST(lora_of_the_embedding_of_a_bert_as_peft) { as_peft_on("bert_mlm", "embed_bert", 2 + 2 * 2); }

// Of the second the head is tied to the embedding, which goes on as it is; of the third each has its own.
TEST(lora_of_the_head_of_a_llama_as_peft) { as_peft("head", 2 + 2 * 2); }
TEST(lora_of_a_head_that_is_tied_as_peft) { as_peft("head_tied", 2 + 3 * 2); }
TEST(lora_of_a_head_and_the_embedding_that_it_is_tied_to_as_peft) { as_peft("head_both", 2 + 2); }

// Of two that are tied one is trained whole: from then on they are two. So is what is in a module that is named.
TEST(one_of_two_tied_matrices_trained_whole_as_peft)
{
    as_peft("whole_embed", 3 * 2 + 1);
    as_peft("whole_head", 3 * 2 + 1 + 3);
}

// A pooler before one that has factors is trained whole.
TEST(lora_of_heads_of_a_bert_and_of_labels_as_peft)
{
    as_peft_on("bert_mlm", "head_bert", 2 + 2 * 2);
    as_peft_on("bert_pretrain", "head_pairs", 2 + 2 + 2);
    as_peft_on("bert_cls3", "head_cls", 2 + 2 + 2 * 2);
    as_peft_on("llama_score", "head_score", 2 + 2 * 2);
}

// PEFT is handed the masks of ops/dropout.h, other ones in each step. The BERT has dropout of its own besides; its head
// has factors, of whose rows those of labels alone are computed.
TEST(lora_with_dropout_as_peft) { as_peft("dropout", 2 + 2 * 2 * 7 + 2); }
TEST(lora_of_a_bert_with_dropout_as_peft) { as_peft_on("bert_mlm_dropout", "dropout_bert", 2 + 2 * 2 * 4 + 2 + 2); }

TEST(lora_of_stacked_matrices_of_a_gpt2_as_peft) { as_peft_on("gpt2_odd", "gpt2", 2 * (1 + 3 + 3 * 2)); }
TEST(lora_of_stacked_matrices_with_dropout_as_peft) { as_peft_on("gpt2_odd", "dropout_gpt2", 2 * (1 + 3 + 2)); }

// What programs of their own do: the adapter's folder alone is named, which says where its base is.
TEST(the_folder_of_a_berts_adapter_is_computed_with_as_peft)
{
    static GxInference s;
    TestReference base;
    Case k;
    GxContext g = GX_ZERO;
    GxError err = GX_ZERO;
    double loss[GX_MAX_LOSSES] = {0};
    memset(&k, 0, sizeof k);
    if (!test_reference_open(&base, "bert_mlm")) return;
    CHECK(gx_safetensors_open(&k.ref, "data/ref/lora_embed_bert/ref.safetensors", &err) == GX_OK, "%s", err.message);
    base.b.tokens = k.tokens = read_tokens(&k, "tokens");
    g.device = gx_device_cpu(), g.threads = 2, g.world = 1;
    if (CHECK(gx_inference_open(&g, &s, &gx_bert, "data/ref/lora_embed_bert", &base.head) == GX_OK &&
                  gx_inference_load(&g, &s, "data/ref/lora_embed_bert", &base.b) == GX_OK,
              "%s", g.error.message)) {
        gx_runner_forward(&g, &s.runner, &base.b, loss);
        CHECK(!gx_failed(&g), "%s", g.error.message);
        test_close_number("loss", loss[0] / (double)base.b.target[0].n, number(&k, "loss", 0),
                          test_bound(test_reference_depth(&base, 0)));
    }
    gx_inference_close(&s);
    free(k.tokens);
    gx_safetensors_close(&k.ref);
    test_reference_close(&base);
}

// ---- dropout: forth and back alike ---------------------------------------------------------------------------------

// The loss of the window of step 1, and with gradients where the learning rate is 0.
static double loss_at(TestModel *t, GxBatch *b)
{
    test_set_step(t, 0, 0);
    gx_runner_train(&t->g, &t->r, b, NULL, NULL);
    const GxStep step = test_step(t);
    return gx_step_loss(&step);
}

// Along its gradient g the loss rises by |g| per step of length 1: from half a hundredth before to as much behind,
// which the cubic term and the roundings of a loss of 4 change by less than a hundredth.
static void check_slope(int lora)
{
    const float length = 0.005f;
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    GxBatch b = GX_ZERO;
    int32_t tokens[2][T * 4];
    double squares = 0, loss[2];
    t->request.lora = &test_loras[lora - 1];
    for (int i = 0; i < T * 4; i++) tokens[0][i] = token_at(i, 0), tokens[1][i] = token_at(i, 1);
    b.tokens = tokens[0], b.target[0].labels = tokens[1], b.T = T, b.B = 4, b.runs = gx_runs_one(T, 0);
    if (!test_model_open_split(t, &model_config, &test_serial, T, 4, HEAD_CHUNK, NULL, 1, 1, NULL)) return;
    test_put_batch(t, &b, 0);
    gx_model_init(&t->g, &t->m, 42);
    loss_at(t, &b);
    const int64_t n = t->m.store.trained_n;
    float *grads = test_kept(t, t->m.store.grads, n);
    for (int i = 0; i < t->m.table.n; i++)
        for (int64_t e = 0; test_flat(t, i) >= 0 && e < gx_tensor_count(&t->m.table.row[i]); e++)
            squares += (double)grads[test_flat(t, i) + e] * grads[test_flat(t, i) + e];
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < t->m.table.n; i++) {
            const int64_t count = gx_tensor_count(&t->m.table.row[i]);
            if (test_flat(t, i) < 0) continue;
            float *w = test_kept(t, gx_store_master_at(&t->m.store, i, 0), count);
            for (int64_t e = 0; e < count; e++)
                w[e] += (float)((side ? 2 : -1) * length / sqrt(squares)) * grads[test_flat(t, i) + e];
            test_put(t, gx_store_master_at(&t->m.store, i, 0), w, count);
            free(w);
        }
        loss[side] = loss_at(t, &b);
    }
    const double slope = (loss[1] - loss[0]) / (2 * length) / sqrt(squares);
    CHECK(fabs(slope - 1) < 0.01, "LoRA %d: the loss rises by %g times its gradient's norm", lora, slope);
    free(grads);
    test_model_close(t);
    free(t);
}
TEST(gradients_of_lora_with_dropout_are_slopes_of_its_loss)
{
    check_slope(2), check_slope(3), check_slope(8), check_slope(14), check_slope(15);
}

// The loss and the gradients that the head's chunks of this many rows give; free() these.
static float *of_chunks(int64_t rows, const Layout *l, double *loss, int64_t *n)
{
    enum { B = 4 };
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    GxBatch b = GX_ZERO;
    GxLlamaConfig c = model_config;
    int32_t tokens[2][T * B], picked[T * B], labels[T * B];
    c.tie_word_embeddings = l->tied;
    t->request.lora = &test_loras[7];
    for (int i = 0; i < T * B; i++) tokens[0][i] = token_at(i, 0), tokens[1][i] = labels[i] = token_at(i, 1);
    b.tokens = tokens[0], b.target[0].labels = tokens[1], b.T = T, b.B = B, b.runs = gx_runs_one(T, 0);
    for (int i = 0; i < T * B && l->no_labels; i++) { // of every third row none
        if (i % 3 == 0) continue;
        picked[b.target[0].n] = i, labels[b.target[0].n++] = tokens[1][i];
        b.target[0].rows = picked, b.target[0].labels = labels;
    }
    if (!test_model_open_split(t, &c, &test_serial, T, B, rows, NULL, 1, 1, NULL)) return NULL;
    test_put_batch(t, &b, 0);
    test_init(t, 42);
    *loss = loss_at(t, &b), *n = t->m.store.trained_n;
    CHECK(!gx_failed(&t->g), "%s", t->g.error.message);
    float *grads = test_kept(t, t->m.store.grads, *n);
    test_model_close(t);
    free(t);
    return grads;
}

// Each row is dropped as it is, in whatever chunk it lies: only sums over rows are in another order.
TEST(chunks_of_a_head_have_the_dropout_of_all_rows)
{
    const double bound = test_bound(test_model_depth(&model_config, T, 1));
    for (int i = 0; i < 4; i++) {
        const Layout l = {.what = "1 rank", .no_labels = i / 2, .tied = i % 2};
        double loss[2];
        int64_t n[2];
        float *one = of_chunks(T * 4, &l, &loss[0], &n[0]), *many = of_chunks(3, &l, &loss[1], &n[1]);
        if (!one || !many || !CHECK(n[0] == n[1], "%ld and %ld numbers", (long)n[0], (long)n[1])) return;
        test_close_number("the loss", loss[1], loss[0], bound);
        test_close_f("gradients", many, one, n[0], bound, 0);
        free(one), free(many);
    }
}

// In a validation nothing is dropped.
TEST(dropout_of_lora_is_in_the_training_alone)
{
    Result without, with;
    Layout l = {.what = "1 rank", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 1, .samples = {4}, .lora = 1};
    run_serial(&l, &without);
    l.lora = 3;
    run_serial(&l, &with);
    CHECK(with.loss[0] != without.loss[0], "the loss is the same with dropout");
    free_result(&without), free_result(&with);
}

// ---- adapter_config.json -------------------------------------------------------------------------------------------

static char *config_path(char path[300])
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, 300, "%.200s/test_lora.%d.json", parent && parent[0] ? parent : "/tmp", (int)getpid());
    return path;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s was not written", path);
}

TEST(what_peft_cannot_mean_here_is_refused_by_its_key)
{
    static const char *const wrong[][2] = {
        {"\"peft_type\": \"IA3\"", "peft_type is \"IA3\""},
        {"\"peft_type\": \"PREFIX_TUNING\", \"num_virtual_tokens\": 8", "peft_type is \"PREFIX_TUNING\""},
        {"\"use_dora\": true", "use_dora is true, which is not supported: matrices are also scaled"},
        {"\"lora_bias\": true", "lora_bias is true, which is not supported"},
        {"\"bias\": \"all\"", "bias is \"all\", which is not supported: the file has biases"},
        {"\"bias\": \"lora_only\"", "bias is \"lora_only\", which is not supported"},
        {"\"rank_pattern\": {\"q_proj\": 0}", "rank_pattern: q_proj is 0; expected a number from 1 to 65536"},
        {"\"rank_pattern\": {\"a\": 2, \"q_proj\": 65537}", "rank_pattern: q_proj is 65537; expected"},
        {"\"rank_pattern\": {\"q_proj\": 2.5}", "rank_pattern: q_proj is 2.5; expected an integer"},
        {"\"rank_pattern\": {\"q_proj\": \"2\"}", "rank_pattern: q_proj is a string; expected an integer"},
        {"\"rank_pattern\": [2]", "rank_pattern is an array; expected an object with a number"},
        {"\"alpha_pattern\": {\"q_proj\": -1}", "alpha_pattern: q_proj is -1; expected a number from 1e-06 to"},
        {"\"alpha_pattern\": {\"q_proj\": 2e6}", "alpha_pattern: q_proj is 2000000; expected"},
        {"\"alpha_pattern\": {\"q_proj\": null}", "alpha_pattern: q_proj is null; expected a number"},
        {"\"layer_replication\": [[0, 1], [0, 2]]", "layer_replication is "},
        {"\"target_parameters\": [\"mlp.experts.up\"]", "target_parameters is "},
        {"\"trainable_token_indices\": [3]", "trainable_token_indices is [3], which is not supported"},
        {"\"megatron_config\": {\"tp\": 2}", "megatron_config is "},
        {"\"use_qalora\": true", "use_qalora is true"},
        {"\"use_bdlora\": {\"nblocks\": 2}", "use_bdlora is "},
        {"\"arrow_config\": {\"top_k\": 3}", "arrow_config is "},
        {"\"alora_invocation_tokens\": [1, 2]", "alora_invocation_tokens is [1,2]"},
        {"\"monteclora_config\": {\"buffer_size\": 1}", "monteclora_config is "},
        {"\"kasa_config\": {\"beta\": 1}", "kasa_config is {\"beta\":1}, which is not supported"},
        {"\"ensure_weight_tying\": true, \"target_modules\": [\"lm_head\"]",
         "ensure_weight_tying is true, and target_modules has lm_head, which is not supported"},
        {"\"layers_to_transform\": [0], \"target_modules\": \"all-linear\"", "but here they are a single text"},
        {"\"layers_to_transform\": [0], \"layers_pattern\": \"h|layers\"", "is the regular expression \"h|layers\""},
        {"\"layers_to_transform\": [0], \"target_modules\": \".*q\"", "but here they are a single text"},
        {"\"layers_to_transform\": [0.5], \"target_modules\": [\"q\"]", "expected numbers of layers"},
        {"\"layers_to_transform\": \"0\", \"target_modules\": [\"q\"]", "expected numbers of layers"},
        {"\"exclude_modules\": 1, \"target_modules\": [\"q\"]", "exclude_modules is an integer"},
        {"\"init_lora_weights\": \"pissa\"",
         "init_lora_weights is \"pissa\", for which peft changed the base model's weights"},
        {"\"init_lora_weights\": \"pissa_niter_16\"", "save it with path_initial_model_for_weight_conversion"},
        {"\"init_lora_weights\": \"OLoRA\"", "init_lora_weights is \"OLoRA\", for which"},
        {"\"init_lora_weights\": \"corda\"", "init_lora_weights is \"corda\", for which"},
        {"\"init_lora_weights\": \"lora_ga\"", "init_lora_weights is \"lora_ga\", for which"},
        {"\"init_lora_weights\": \"loftq\"",
         "the base model's folder; if --model is a folder with the changed weights"},
        {"\"init_lora_weights\": \"pissa_new\"", "which is not known and may have changed the base model's weights"},
        {"\"target_modules\": \".*\\\\bq_proj\"", "has \"\\b\" at byte 6"},
        {"\"target_modules\": \"(?P<n>q)_proj\"", "has \"(?P\" at byte 4"},
        {"\"target_modules\": \"a)|(b\"", "has a ) without a ("},
        {"\"target_modules\": \"*q_proj\"", "cannot be read"},
        {"\"target_modules\": 3", "expected a list of names, or a regular expression"},
        {"\"target_modules\": [\".*q\"]", "not the name of a module"},
        {"\"modules_to_save\": \".*norm\"", "expected a list of names"},
        {"\"target_modules\": [\"a,b\"]", "not the name of a module"},
        {"\"r\": 0", "r is 0"},
        {"\"r\": \"8\"", "r is"},
    };
    char path[300], text[300];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        GxPeftConfig c;
        GxError err = GX_ZERO;
        const int is_type = !strncmp(wrong[i][0], "\"peft_type", 10);
        if (!strncmp(wrong[i][0], "\"target_modules\": \"", 19) && !gx_regex_is_built()) continue;
        snprintf(text, sizeof text, "{%s%s}", is_type ? "" : "\"peft_type\": \"LORA\", ", wrong[i][0]);
        write_text(config_path(path), text);
        CHECK(gx_peft_config_read(&c, path, &gx_silent, &err) != GX_OK && strstr(err.message, wrong[i][1]) &&
                  strstr(err.message, config_path(path)),
              "%s: \"%s\"", text, err.message);
    }
    remove(path);
}

typedef struct {
    int n;
    char text[2000];
} Heard;
static void hear(void *user, GxLogLevel level, const char *text)
{
    Heard *h = (Heard *)user;
    (void)level;
    h->n++;
    snprintf(h->text + strlen(h->text), sizeof h->text - strlen(h->text), "%s\n", text);
}

// What LoraConfig and AdaptionPromptConfig of peft 0.21 save, each key of them: nothing is said of it, and nothing of
// values of those keys that change nothing in a trained adapter. (dev/ref/random_adapters.py compares the keys.)
TEST(every_key_of_peft_is_known)
{
    static const char lora[] =
        "{\"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null, \"auto_mapping\": null, "
        "\"base_model_name_or_path\": \"b\", \"bias\": \"none\", \"corda_config\": null, \"ensure_weight_tying\": "
        "false, \"eva_config\": null, \"exclude_modules\": null, \"fan_in_fan_out\": false, \"inference_mode\": true, "
        "\"init_lora_weights\": true, \"kasa_config\": null, \"layer_replication\": null, \"layers_pattern\": null, "
        "\"layers_to_transform\": null, \"loftq_config\": {}, \"lora_alpha\": 8, \"lora_bias\": false, "
        "\"lora_dropout\": 0.0, \"lora_ga_config\": null, \"megatron_config\": null, \"megatron_core\": "
        "\"megatron.core\", \"modules_to_save\": null, \"monteclora_config\": null, \"peft_type\": \"LORA\", "
        "\"peft_version\": \"0.21.2\", \"qalora_group_size\": 16, \"r\": 2, \"rank_pattern\": {}, \"revision\": null, "
        "\"target_modules\": [\"q_proj\"], \"target_parameters\": null, \"task_type\": null, "
        "\"trainable_token_indices\": null, \"use_bdlora\": null, \"use_dora\": false, \"use_qalora\": false, "
        "\"use_rslora\": false, \"velora_config\": null}",
                      prompt[] = "{\"adapter_layers\": 1, \"adapter_len\": 4, \"auto_mapping\": null, "
                                 "\"base_model_name_or_path\": \"b\", \"inference_mode\": true, \"peft_type\": "
                                 "\"ADAPTION_PROMPT\", \"peft_version\": \"0.21.2\", \"revision\": null, "
                                 "\"target_modules\": \"self_attn\", \"task_type\": \"CAUSAL_LM\"}";
    static const char *const fine[] = {
        "{}",
        "{\"init_lora_weights\": false}",
        "{\"init_lora_weights\": \"gaussian\"}",
        "{\"init_lora_weights\": \"orthogonal\"}",
        "{\"init_lora_weights\": \"mica\"}",
        "{\"init_lora_weights\": \"eva\", \"eva_config\": {\"rho\": 1.0}}",
        "{\"corda_config\": {\"corda_method\": \"ipm\"}, \"lora_ga_config\": {\"direction\": \"ArB2r\"}}",
        "{\"fan_in_fan_out\": true, \"velora_config\": {\"num_groups\": 4}, \"auto_mapping\": {\"parent\": \"x\"}}"};
    char path[300];
    for (size_t i = 0; i <= sizeof fine / sizeof *fine; i++) {
        const int is_prompt = i == sizeof fine / sizeof *fine;
        const char *text = is_prompt ? prompt : lora, *other = is_prompt ? "{}" : fine[i];
        Heard heard = GX_ZERO;
        const GxLogger log = {hear, &heard};
        GxPeftConfig c;
        GxError err = GX_ZERO;
        GxJson *json, *instead;
        if (!CHECK(gx_json_parse(&json, text, (int64_t)strlen(text), "a text", &err) == GX_OK &&
                       gx_json_parse(&instead, other, (int64_t)strlen(other), "a text", &err) == GX_OK,
                   "%s", err.message))
            return;
        for (GxJsonMember m = GX_ZERO; gx_json_next(instead, &m);)
            gx_json_set(json, m.key, gx_json_copy(m.value), &err);
        CHECK(gx_json_write(json, config_path(path), &err) == GX_OK, "%s", err.message);
        CHECK(gx_peft_config_read(&c, path, &log, &err) == GX_OK && !heard.n, "%s: %s%s", other, err.message,
              heard.text);
        CHECK(c.freezes_b == (strstr(other, "mica") != NULL), "%s: B is frozen: %d", other, c.freezes_b);
        gx_json_free(json), gx_json_free(instead);
    }
    remove(path);
}

TEST(an_adapter_of_a_task_that_is_not_built_is_refused)
{
#define OTHER(name) "\"task_type\": null, \"auto_mapping\": {\"base_model_class\": \"" name "\"}"
    static const char *const cases[][2] = {
        {"\"task_type\": \"SEQ_CLS\"", NULL},
        {"\"task_type\": \"CAUSAL_LM\"", NULL},
        {"\"task_type\": \"FEATURE_EXTRACTION\"", NULL},
        {OTHER("BertForSequenceClassification"), NULL},
        {OTHER("BertForMultipleChoice"), "classifier belongs to a BertForMultipleChoice, which is not supported"},
        {OTHER("BertForTokenClassification"), NULL},
        {"\"task_type\": \"TOKEN_CLS\"", NULL},
        {"\"task_type\": \"QUESTION_ANS\"", "task_type is \"QUESTION_ANS\""},
        {"\"task_type\": \"FOO\"", "task_type is \"FOO\""},
    };
#undef OTHER
    char path[300], text[600];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxPeftConfig c;
        GxError err = GX_ZERO;
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"modules_to_save\": [\"classifier\"], %s}",
                 cases[i][0]);
        write_text(config_path(path), text);
        const GxStatus status = gx_peft_config_read(&c, path, &gx_silent, &err);
        CHECK(status == (cases[i][1] ? GX_ERR_UNSUPPORTED : GX_OK) &&
                  (!cases[i][1] || strstr(err.message, cases[i][1])),
              "%s: %s", cases[i][0], err.message);
    }
    GxPeftConfig c;
    GxError err = GX_ZERO;
    write_text(config_path(path), "{\"r\": 8}");
    CHECK(gx_peft_config_read(&c, path, &gx_silent, &err) == GX_ERR_FORMAT && strstr(err.message, "has no peft_type"),
          "%s", err.message);
    remove(path);
}

TEST(a_key_that_nobody_knows_is_named)
{
    static const char *const types[] = {"LORA", GX_PEFT_PROMPT, GX_PEFT_PROMPT_V2, GX_PEFT_BOTTLENECK, GX_PEFT_SIDE};
    char path[300], text[600];
    for (int i = 0; i < 5; i++) {
        Heard heard = GX_ZERO;
        const GxLogger log = {hear, &heard};
        GxPeftConfig c;
        GxError err = GX_ZERO;
        snprintf(text, sizeof text,
                 "{\"peft_type\": \"%s\", \"a_later_key\": 1, %s \"another\": {\"x\": 2}, \"modules_to_save\": null}",
                 types[i],
                 i == 0   ? "\"r\": 4,"
                 : i < 3  ? "\"adapter_len\": 4, \"adapter_layers\": 1,"
                 : i == 3 ? "\"adapter_reduction_dim\": 4,"
                          : "\"side_reduction_factor\": 4, \"side_mix\": \"plain\", \"add_bias_sampling\": false,");
        write_text(config_path(path), text);
        CHECK(gx_peft_config_read(&c, path, &log, &err) == GX_OK && heard.n == 1 &&
                  strstr(heard.text, "2 keys are not known and not read: a_later_key, another;"),
              "%s: %s%s", types[i], err.message, heard.text);
    }
    remove(path);
}

// As check_target_module_exists of peft 0.21 chooses them.
TEST(layers_to_transform_and_exclude_modules_narrow_the_list_of_targets)
{
    static const char *const names[] = {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                                        "model.layers.10.self_attn.q_proj", "model.layers.1.mlp.down_proj", "lm_head"};
    static const char *const of_bert[] = {"bert.encoder.layer.1.output.dense", "bert.pooler.dense"};
    static const struct {
        int is_bert;
        const char *says, *found; // NULL: none has LoRA
    } cases[] = {
        {0, "\"target_modules\": [\"q_proj\", \"down_proj\"], \"layers_to_transform\": [1]", "01010"},
        {0, "\"target_modules\": [\"q_proj\", \"down_proj\"], \"layers_to_transform\": 10", "00100"},
        {0, "\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [0, 10]", "10100"},
        {0, "\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [0, 99]", "10000"},
        {0, "\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [99]", NULL},
        {0, "\"target_modules\": [\"q_proj\"], \"layers_to_transform\": []", "11100"},
        {0, "\"target_modules\": [\"lm_head\", \"q_proj\"], \"layers_to_transform\": [1]", "01001"},
        {0, "\"target_modules\": [\"model.layers.0.self_attn.q_proj\", \"down_proj\"], \"layers_to_transform\": [1]",
         "10010"},
        {1, "\"target_modules\": [\"dense\"], \"layers_to_transform\": [1]", "10"},
        {1, "\"target_modules\": [\"dense\"], \"layers_to_transform\": [1], \"layers_pattern\": \"layers\"", NULL},
        {0, "\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [1], \"layers_pattern\": \"model.layers\"",
         "01000"},
        {0, "\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [1], \"layers_pattern\": [\"h\", \"layers\"]",
         "01000"},
        {0, "\"target_modules\": [\"q_proj\"], \"exclude_modules\": [\"layers.1.self_attn.q_proj\"]", "10100"},
        {1, "\"target_modules\": [\"dense\"], \"exclude_modules\": [\"pooler.dense\"]", "10"},
        {0, "\"target_modules\": [\"q_proj\"], \"exclude_modules\": \".*0\\\\..*\"", "01000"},
        {0, "\"target_modules\": [\"q_proj\"], \"exclude_modules\": \"layers.*\"", "11100"},
        {0, "\"target_modules\": \".*_proj\", \"exclude_modules\": [\"down_proj\"]", "11100"},
        {0, "\"target_modules\": \"model.*\", \"exclude_modules\": \".*(norm|_tokens)\"", "11110"},
        {0, "\"target_modules\": \"all-linear\", \"exclude_modules\": [\"q_proj\"]", "00010"},
        {0, "\"exclude_modules\": [\"down_proj\"], \"layers_to_transform\": [1]", "01000"},
        {0, "\"target_modules\": [\"q_proj\", \"down_proj\"], \"exclude_modules\": [\"down_proj\"]", "11100"},
        {0, "\"target_modules\": [\"q_proj\"], \"exclude_modules\": [\"q_proj\"]", NULL},
        {0,
         "\"target_modules\": [\"q_proj\", \"down_proj\"], \"layers_to_transform\": [1], \"exclude_modules\": "
         "[\"down_proj\"]",
         "01000"},
    };
    char path[300], text[600];
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxPeftConfig c;
        GxContext g = GX_ZERO;
        GxModel m;
        GxModelOptions o = GX_ZERO;
        GxLlamaConfig llama = model_config;
        const int n = cases[i].is_bert ? 2 : 5;
        const char *const *name = cases[i].is_bert ? of_bert : names;
        char found[8] = "", bert[4096];
        llama.num_hidden_layers = 11;
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", %s}", cases[i].says);
        write_text(config_path(path), text);
        CHECK(gx_peft_config_read(&c, path, &gx_silent, &g.error) == GX_OK, "%s: %s", text, g.error.message);
        const GxLora lora = lora_of(&c);
        memcpy(bert, subjects[2]->config, subjects[2]->config_size);
        g.device = test_device(), g.world = 1, o.adapter.lora = lora, o.adapter.is_read = 1;
        if (cases[i].is_bert) o.head = &subjects[2]->head;
        gx_model_open(&g, &m, cases[i].is_bert ? &gx_bert : &gx_llama, cases[i].is_bert ? (void *)bert : &llama,
                      &test_serial, &o);
        if (!cases[i].found) {
            CHECK(strstr(g.error.message, "no module is left for LoRA"), "%s: \"%s\"", cases[i].says, g.error.message);
        } else if (CHECK(!gx_failed(&g), "%s: %s", cases[i].says, g.error.message)) {
            for (int k = 0; k < n; k++) {
                char weight[100];
                snprintf(weight, sizeof weight, "%s.weight", name[k]);
                found[k] = '?';
                for (int row = 0; row < m.table.n; row++)
                    if (!strcmp(m.table.row[row].name, weight)) found[k] = (char)('0' + m.table.row[row].has_lora);
            }
            CHECK(!strcmp(found, cases[i].found), "%s: %s, expected %s", cases[i].says, found, cases[i].found);
        }
        gx_model_close(&m);
    }
    remove(path);
}

// As get_pattern_key of peft 0.21 finds them: the first key that matches the name's end.
TEST(a_modules_number_is_that_of_the_first_key_that_matches_the_end_of_its_name)
{
    static const char q[] = "model.layers.10.self_attn.q_proj", up[] = "bert.encoder.layer.1.up";
    static const struct {
        const char *numbers, *module;
        double number;
        int is_regex;
    } cases[] = {
        {"{\"q_proj\":8}", q, 8, 0},
        {"{\"_proj\":8}", q, -1, 0},
        {"{\"q_pro\":8}", q, -1, 0},
        {"{\"self_attn.q_proj\":8.5}", q, 8.5, 0},
        {"{\"self.attn.q_proj\":8}", q, 8, 0}, // a dot is any character
        {"{\"elf_attn.q_proj\":8}", q, -1, 0},
        {"{\"model.layers.10.self_attn.q_proj\":8}", q, 8, 0},
        {"{\"a.model.layers.10.self_attn.q_proj\":8}", q, -1, 0},
        {"{\"\":8}", q, -1, 0},
        {"{\"k_proj\":3,\"q_proj\":4,\"self_attn.q_proj\":5}", q, 4, 0},
        {"{\"self_attn.q_proj\":5,\"q_proj\":4}", q, 5, 0},
        {"{\"[kq]_proj\":8}", q, 8, 1},
        {"{\"[kq]_pro\":8}", q, -1, 1},
        {"{\"[_]proj\":8}", q, -1, 1},
        {"{\"layers\\\\.1\\\\..*\":8}", q, -1, 1},
        {"{\"layers\\\\.1\\\\..*\":8,\"layers\\\\.\\\\d+\\\\..*\":9}", q, 9, 1},
        {"{\"k_proj|q_proj\":8}", q, 8, 1},
        {"{\"q_proj$\":8}", q, 8, 1},
        {"{\"^q_proj\":8}", q, -1, 1},
        {"{\"^model.*q_proj\":8}", q, 8, 1},
        {"{\".*roj\":8}", q, 8, 1},
        {"{\"q_proj\":8,\"layer.1.up\":2}", up, 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].is_regex && !gx_regex_is_built()) continue;
        const double number = gx_module_number(cases[i].numbers, cases[i].module, -1);
        CHECK(number == cases[i].number, "%s: %g, expected %g", cases[i].numbers, number, cases[i].number);
    }
}

TEST(an_adapter_config_is_read_back_as_it_was_written)
{
    char path[300];
    GxError err = GX_ZERO;
    GxPeftConfig c = GX_ZERO, back;
    snprintf(c.type, sizeof c.type, "LORA");
    c.r = 16, c.lora_alpha = 32.5, c.lora_dropout = 0.05, c.use_rslora = 1;
    snprintf(c.excluded, sizeof c.excluded, "o_proj,layers.1.mlp.down_proj");
    c.layers.n = 2, c.layers.v[0] = 1, c.layers.v[1] = 7;
    snprintf(c.layers_pattern, sizeof c.layers_pattern, "layers,h");
    snprintf(c.rank_pattern, sizeof c.rank_pattern, "{\"q_proj\":4,\"v_proj\":8}");
    snprintf(c.alpha_pattern, sizeof c.alpha_pattern, "{\"q_proj\":0.1}");
    snprintf(c.targets, sizeof c.targets, "q_proj,model.layers.1.mlp.up_proj");
    snprintf(c.modules_to_save, sizeof c.modules_to_save, "score");
    snprintf(c.task_type, sizeof c.task_type, "SEQ_CLS");
    snprintf(c.base, sizeof c.base, "some/where");
    config_path(path);
    CHECK(gx_peft_config_write(&c, path, &err) == GX_OK && gx_peft_config_read(&back, path, &gx_silent, &err) == GX_OK,
          "%s", err.message);
    CHECK(back.r == c.r && back.lora_alpha == c.lora_alpha && back.lora_dropout == c.lora_dropout &&
              back.use_rslora == 1 && !strcmp(back.targets, c.targets) &&
              !strcmp(back.modules_to_save, c.modules_to_save) && !strcmp(back.task_type, c.task_type) &&
              !strcmp(back.base, c.base) && !strcmp(back.excluded, c.excluded) && back.layers.n == 2 &&
              back.layers.v[0] == 1 && back.layers.v[1] == 7 && !strcmp(back.layers_pattern, c.layers_pattern) &&
              !strcmp(back.rank_pattern, c.rank_pattern) && !strcmp(back.alpha_pattern, c.alpha_pattern),
          "another one came back");
    remove(path);
}

// ---- regular expressions --------------------------------------------------------------------------------------------

// As re.fullmatch of Python has it.
TEST(a_pattern_matches_whole_names_as_in_python)
{
    static const char name[] = "model.layers.10.self_attn.q_proj";
    static const struct {
        const char *pattern;
        int finds;
    } cases[] = {
        {".*", 1},
        {".*q_proj", 1},
        {".*q_proj$", 1},
        {"^.*q_proj", 1},
        {"q_proj", 0},
        {".*q_pro", 0},
        {"model\\.layers\\.\\d+\\.self_attn\\.[qv]_proj", 1},
        {"model\\.layers\\.\\d\\.self_attn\\.[qv]_proj", 0},
        {"model\\.layers\\.[\\d]{2}\\..*(k|v|q)_proj", 1},
        {"\\w+\\.\\w+\\.\\d*\\.\\w+\\.\\w+", 1},
        {"\\w+", 0},
        {"\\D+", 0},
        {"\\D+10\\D+", 1},
        {"k_proj|.*q_proj", 1},
        {"(?!.*q_proj).*", 0},
        {"(?!.*k_proj$).*", 1},
        {"model.layers.10.self_attn.q_proj", 1},
        {".*q_proj\\n", 0},
        {".*q_proj.", 0},
        {".*q_proj\\s", 0},
    };
    GxError err = GX_ZERO;
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(gx_module_pattern_check(cases[i].pattern, "here", &err) == GX_OK, "%s", err.message);
        CHECK(gx_module_pattern_finds(cases[i].pattern, name) == cases[i].finds, "%s: not %d", cases[i].pattern,
              cases[i].finds);
    }
    CHECK(gx_module_is_pattern("a|b") && !gx_module_is_pattern("model.layers.1.q_proj,v-proj"), "taken for the other");
}

TEST(a_text_for_target_modules_is_a_pattern_or_all_linear)
{
    static const char *const cases[][2] = {
        {"\".*q_proj\"", ".*q_proj"}, {"\"q_proj\"", "(?:q_proj)"}, {"\"All-Linear\"", "All-Linear"}};
    char path[300], text[300];
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxPeftConfig c;
        GxError err = GX_ZERO;
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"target_modules\": %s}", cases[i][0]);
        write_text(config_path(path), text);
        CHECK(gx_peft_config_read(&c, path, &gx_silent, &err) == GX_OK && !strcmp(c.targets, cases[i][1]), "%s: %s %s",
              cases[i][0], c.targets, err.message);
    }
    remove(path);
}

// ---- what is trained, and what it costs ----------------------------------------------------------------------------

static void expect_refusal(GxLora lora, const char *said)
{
    GxLlamaConfig c = model_config;
    GxModelOptions o = GX_ZERO;
    o.adapter.lora = lora;
    expect_no_model(&gx_llama, &c, &test_serial, &o, said);
}

TEST(targets_that_no_linear_is_are_refused_by_name)
{
    const GxLora positions = {.r = 2, .alpha = 2, .targets = "q_proj,position_embeddings"},
                 part = {.r = 2, .alpha = 2, .targets = "proj"},
                 norm = {.r = 2, .alpha = 2, .targets = "input_layernorm"};
    expect_refusal(positions, "\"position_embeddings\"");
    expect_refusal(part, "\"proj\"");
    expect_refusal(norm, "\"input_layernorm\"");
    const GxLora all = {.r = 2, .alpha = 2, .targets = ".*_proj|.*norm", .finds = gx_module_pattern_finds},
                 nobody = {.r = 2, .alpha = 2, .targets = "[qv]_proj", .finds = gx_module_pattern_finds};
    if (!gx_regex_is_built()) return;
    expect_refusal(all, "also matches model.layers.0.input_layernorm, which cannot have LoRA");
    expect_refusal(nobody, "matches no module of the model");
}

TEST(modules_that_are_trained_besides_are_the_models_and_have_no_factors)
{
    const GxLora none = {.r = 2, .alpha = 2, .trainable = "norms"},
                 both = {.r = 2, .alpha = 2, .targets = "q_proj", .trainable = "norm,self_attn.q_proj"};
    expect_refusal(none, "\"norms\" matches no module of the model");
    expect_refusal(both, "q_proj.weight is to have LoRA and to be trained whole");
}

TEST(ranks_scales_and_dropouts_that_cannot_be_are_refused)
{
    const GxLora rank = {.r = -1, .alpha = 2}, alpha = {.r = 2}, dropout = {.r = 2, .alpha = 2, .dropout = 1},
                 none = {.r = 2, .alpha = NAN};
    expect_refusal(rank, "LoRA's r is -1");
    expect_refusal(alpha, "LoRA's alpha is 0");
    expect_refusal(none, "LoRA's alpha is nan");
    expect_refusal(dropout, "LoRA's dropout is 1");
}

// A pooler before labels is trained whole; with factors of its own its matrix and its bias stay as they are.
TEST(a_bias_beside_factors_stays_as_it_is)
{
    for (int has_factors = 0; has_factors < 2; has_factors++) {
        const GxLora lora = {.r = 2, .alpha = 2, .targets = has_factors ? "query,pooler.dense" : "query"};
        GxContext g = GX_ZERO;
        GxModel m;
        GxBertConfig c;
        GxHeadRequest request = GX_ZERO;
        GxModelOptions o = GX_ZERO;
        request.kind = GX_HEAD_LABELS, request.labels = 2;
        o.adapter.lora = lora, o.head = &request;
        g.device = test_device(), g.world = 1;
        memset(&c, 0, sizeof c);
        if (!CHECK(gx_bert_config_read(&c, "data/ref/bert_cls3/config.json", &gx_silent, &g.error) == GX_OK, "%s",
                   g.error.message))
            return;
        if (!CHECK(gx_model_open(&g, &m, &gx_bert, &c, &test_serial, &o) == GX_OK, "%s", g.error.message)) return;
        const int bias = gx_table_find(&m.table, "bert.pooler.dense.bias").index,
                  matrix = gx_table_find(&m.table, "bert.pooler.dense.weight").index,
                  head = gx_table_find(&m.table, "classifier.bias").index;
        CHECK(bias >= 0 && m.table.row[bias].frozen == has_factors && m.table.row[matrix].frozen == has_factors,
              "of a pooler with%s factors the matrix or the bias is not as it should be", has_factors ? "" : "out");
        CHECK(head >= 0 && !m.table.row[head].frozen && m.table.row[head].is_adapter, "the head is not trained");
        gx_model_close(&m);
    }
}

// A step of all has three products for each matrix, with LoRA two: no gradients of matrices, and none of what enters
// the lowest pair. Each factor has four: forth, for the gradient of what enters, for its own, and made again for the
// other's.
TEST(lora_trains_its_factors_alone_and_costs_two_thirds)
{
    Result all, lora;
    Layout l = {.what = "1 rank", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 1, .samples = {4}};
    run_serial(&l, &all);
    l.lora = 1;
    run_serial(&l, &lora);
    const GxTable *t = &lora.model->m.table;
    double products[2] = {0, 0};
    int64_t factors = 0, n = 0;
    for (int i = 0; i < t->n; i++) {
        CHECK(t->row[i].frozen == (t->row[i].role != GX_ROLE_LORA), "%s", t->row[i].name);
        if (t->row[i].role == GX_ROLE_LORA) factors++, n += gx_tensor_count(&t->row[i]);
    }
    CHECK(factors == 2 * 7 * LAYERS && gx_table_trained(t) == n, "%ld factors of %ld elements, %ld are trained",
          (long)factors, (long)n, (long)gx_table_trained(t));
    const Result *of[2] = {&all, &lora};
    for (int r = 0; r < 2; r++)
        for (int64_t i = 0; i < of[r]->window.n; i++)
            if (!strncmp(of[r]->window.event[i].name, "linear_", 7)) products[r] += of[r]->window.event[i].flops;
    const double tokens = (double)T * 4, width = (double)model_config.hidden_size, qkv = (6 + 2 * 3) * 8,
                 not_below = 2 * tokens * (width * qkv + 3 * (3 * width + qkv)),
                 expected = products[0] * 2 / 3 + 8 * tokens * (double)n - not_below;
    CHECK(products[1] == expected, "%.0f FLOPs of products; expected %.0f", products[1], expected);
    free_result(&all), free_result(&lora);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
