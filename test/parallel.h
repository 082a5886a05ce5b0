// test/parallel.h: runs a small model under a mode on several ranks, and says how far it is from serial. For the tests
// of modes and their mutants. It is a LLaMA, unless test_subject says otherwise.
#ifndef GX_TEST_PARALLEL_H
#define GX_TEST_PARALLEL_H
#include "model.h"
#include <assert.h>
#include <pthread.h>

#ifndef TEST_STEPS
#define TEST_STEPS (TEST_IS_SANITIZED ? 1 : 3)
#endif
enum {
    T = 8,
    SHORT_T = 7,
    STEPS = TEST_STEPS,
    MAX_RANKS = 8,
    MAX_COLUMNS = 24,
    MAX_MICRO = 3,
    SHOWN = 2,
    LAYERS = 2,
    HEAD_CHUNK = 7
};
#define TEST_SITE     "test" // of collectives by which a test reads what ranks share
#define TEST_SGD_RATE 0.5f
#define TEST_MAX_NORM 0.5f
#define TEST_BETA1    0.9f
#define TEST_BETA2    0.95f
// three K,V heads, two query heads to each; weights so large that attention is far from even
static const GxLlamaConfig model_config = {.vocab_size = 61,
                                           .hidden_size = 32,
                                           .intermediate_size = 40,
                                           .num_hidden_layers = LAYERS,
                                           .num_attention_heads = 6,
                                           .num_key_value_heads = 3,
                                           .head_dim = 8,
                                           .max_position_embeddings = 64,
                                           .rms_norm_eps = 1e-5,
                                           .rope_theta = 10000,
                                           .initializer_range = 0.2,
                                           .pad_token_id = -1};

static GxDtype test_dtype;       // that models compute in
static TestRequest test_request; // what else they should be
// 1: a run is the steps of SGD alone. Of AdamW and the validation nothing is there, and nothing is compared.
static int test_sgd_alone;

typedef struct {
    char what[400];
    const GxMode *mode;
    int dp, tp, micro;          // ranks: dp * tp, in each stage of a pipeline; micro-batches of a window
    int64_t samples[MAX_RANKS]; // of each data-parallel rank in a micro-batch
    int64_t kv_heads;           // of the model; 0: three
    int64_t heads[MAX_RANKS], columns[MAX_RANKS], vocab[MAX_RANKS],
        sequence[MAX_RANKS];              // of each rank of a tp group; 0: even
    int no_labels;                        // 1 + the data-parallel rank whose labels are all ignored
    int64_t no_label_begin, no_label_end; // tokens of every sample whose labels are ignored: a rank's slice
    int tied;
    int normed;     // heads of q and k are: the model is a Qwen3
    int64_t window; // of the model: a Mistral's, or where heads are normed of the first layer alone; 0: none
    int unrotated; // its first layer has no RoPE: the model is a SmolLM3 with all biases, and that layer alone has the window
    int gemma;      // it is a Gemma 3 with biases of attention; its first layer has the window and another RoPE
    int quantize;   // 1 + GxQuantKind of what is frozen; 0: it is in numbers
    int lora;       // 1 + which of test_loras is trained, and nothing else; 0: everything is
    int bottleneck; // 1 + which of test_bottlenecks is, alike
    int side;       // 1 + which of test_sides is, alike
    int prompt;     // 1 + which of test_prompts is, alike
    int pp;         // ranks of a pipeline, each with dp * tp; 0: one. Its order and stages are test_request's
    int wide;       // matrices have several blocks of the norm each

    // Of each rank of a pipeline: its tp group, instead of tp, with dp 1; 0: all as many. own: the lists above have an
    // entry for each rank of a copy, stage by stage.
    int width[MAX_RANKS], own;
    int cp, zigzags, ring;      // ranks that share each sequence; 0: one
    int64_t cp_rows[MAX_RANKS]; // of each; 0: even
} Layout;

// Of all linears of attention and MLP; of some, one in a single layer, with dropout and norms that are trained besides;
// of all with it; of a BERT's, those before its heads among them; of the embedding of tokens besides, of a LLaMA's and
// of a BERT's, and of it alone; of a LLaMA's heads, the first beside the embedding, the second alone; of a BERT's; of
// ranks and alphas that differ, without some linears; the same of a head and of what is in one layer; of a BART's, among
// them what reads the encoder's output; of a T5's.
static const GxIntList test_layer_1 = {.n = 1, .v = {1}};
static const GxLora test_loras[] = {
    {.r = 3, .alpha = 5},
    {.r = 2,
     .alpha = 1,
     .is_scaled_by_root = 1,
     .dropout = 0.3f,
     .targets = "q_proj,model.layers.1.self_attn.v_proj,down_proj",
     .trainable = "norm,post_attention_layernorm"},
    {.r = 3, .alpha = 5, .dropout = 0.2f},
    {.r = 2, .alpha = 3, .dropout = 0.2f, .targets = "dense,query"},
    {.r = 7, .alpha = 5, .targets = "embed_tokens,v_proj"},
    {.r = 7, .alpha = 5, .dropout = 0.2f, .targets = "bert.embeddings.word_embeddings,query"},
    {.r = 31, .alpha = 2, .is_scaled_by_root = 1, .dropout = 0.2f, .targets = "embed_tokens"},
    {.r = 7, .alpha = 5, .dropout = 0.2f, .targets = "lm_head,embed_tokens,v_proj"},
    {.r = 31, .alpha = 2, .is_scaled_by_root = 1, .targets = "lm_head"},
    {.r = 5, .alpha = 2, .is_scaled_by_root = 1, .dropout = 0.2f, .targets = "score,q_proj"},
    {.r = 5, .alpha = 2, .is_scaled_by_root = 1, .dropout = 0.2f, .targets = "decoder,word_embeddings,query"},
    {.r = 5, .alpha = 3, .dropout = 0.2f, .targets = "decoder,seq_relationship,query"},
    {.r = 5, .alpha = 2, .is_scaled_by_root = 1, .dropout = 0.2f, .targets = "classifier,query"},
    {.r = 3,
     .alpha = 5,
     .is_scaled_by_root = 1,
     .dropout = 0.2f,
     .targets = "all-linear",
     .excluded = "o_proj,layers.0.mlp.up_proj",
     .rank_pattern = "{\"q_proj\":1,\"layers.1.self_attn.v_proj\":9,\"v_proj\":5,\"down_proj\":17}",
     .alpha_pattern = "{\"model.layers.1.self_attn.q_proj\":7,\"down_proj\":0.5}",
     .value = gx_module_number},
    {.r = 3,
     .alpha = 5,
     .targets = "lm_head,model.embed_tokens,v_proj,model.layers.0.mlp.gate_proj,down_proj",
     .layers = &test_layer_1,
     .lists = "layers",
     .rank_pattern = "{\"lm_head\":2,\"embed_tokens\":9,\"gate_proj\":1}",
     .alpha_pattern = "{\"lm_head\":1,\"embed_tokens\":3}",
     .value = gx_module_number},
    {.r = 2,
     .alpha = 3,
     .dropout = 0.2f,
     .targets = "q_proj,encoder_attn.v_proj,encoder_attn.k_proj,fc2",
     .trainable = "encoder_attn_layer_norm,layernorm_embedding"},
    {.r = 2,
     .alpha = 3,
     .dropout = 0.2f,
     .targets = "SelfAttention.q,EncDecAttention.v,EncDecAttention.k,wo",
     .trainable = "final_layer_norm,relative_attention_bias"},
    {.r = 2, .alpha = 3, .is_scaled_by_root = 1, .targets = "c_attn,mlp.c_proj,wte", .trainable = "ln_1,ln_f"}};

// Adapters alone; with the norms of a LLaMA; with a BERT's norms behind CON, and matrices whose biases are CON's; with a
// BART's; with a T5's.
static const GxBottleneck test_bottlenecks[] = {{4, NULL},
                                                {16, "norm"},
                                                {9, "output.dense,LayerNorm"},
                                                {9, "fc2,encoder_attn_layer_norm"},
                                                {9, "wo,layer.1.layer_norm"}};

// Plain; gated, with biases, and narrower; with a head that is trained besides.
static const GxSide test_sides[] = {{4, 0, 0, NULL}, {4, 1, 1, NULL}, {2, 1, 0, "model.norm"}};

static inline GxLlamaConfig model_config_of(const Layout *l)
{
    GxLlamaConfig c = model_config;
    c.tie_word_embeddings = l->tied;
    if (l->kv_heads) c.num_key_value_heads = l->kv_heads;
    if (l->normed || l->window) snprintf(c.model_type, sizeof c.model_type, l->normed ? "qwen3" : "mistral");
    if (l->unrotated) {
        snprintf(c.model_type, sizeof c.model_type, "smollm3");
        snprintf(c.no_rope_layers, sizeof c.no_rope_layers, "01");
        c.attention_bias = c.mlp_bias = 1;
    }
    if (l->gemma) {
        snprintf(c.model_type, sizeof c.model_type, "gemma3_text");
        c.attention_bias = 1, c.sliding_window_pattern = 2, c.query_pre_attn_scalar = 6, c.rope_local_base_freq = 20;
        snprintf(c.rope_type, sizeof c.rope_type, "linear"), c.rope_factor = 2;
    }
    if (l->window) c.sliding_window = l->window;
    if (l->wide) c.hidden_size = 192, c.intermediate_size = 400;
    if (l->window && l->normed) snprintf(c.layer_types, sizeof c.layer_types, "sf");
    return c;
}

// In all layers but two, which leaves one; with norms that are trained, of heads too; in all layers, beside a matrix
// that reads what they add; v2 in one layer; in all, beside matrices that are trained, which have scales.
static const GxPrompt test_prompts[] = {
    {23, 0, NULL, 0}, {18, 1, "norm", 0}, {10, 2, "o_proj", 0}, {7, 0, NULL, 1}, {5, 2, "o_proj,up_proj", 1}};

typedef struct {                     // flat buffers of one rank, in its table's order
    float *grads;                    // of the first step
    float *weights;                  // after STEPS steps of SGD
    float *adam_w, *adam_m, *adam_v; // after a step of AdamW from a given state
} Buffers;
enum { BUFFERS = 5 };

typedef struct { // what a run left behind on one rank
    double loss[STEPS], norm[STEPS];
    int64_t n, labels[GX_MAX_LOSSES];
    union {
        Buffers b;
        float *all[BUFFERS];
    } flat;
    TestModel *model; // its table says what the buffers hold
    float *y[LAYERS + 1],
        *dx[LAYERS + 1]; // of the first micro-batch: the stream behind each layer, and its gradient; [rows, D]
    int64_t rows;
    double validation; // the loss of the last window's samples, less their last tokens
    float *logits; // of these tokens' last rows of the first SHOWN micro-batches: [][columns, vocabulary]; fp32 alone
    int64_t column, columns; // of the first micro-batch on all ranks: those that this rank has
    GxRecorder window;       // the first window, with its update
    GxRecorder evaluation;   // of the logits
    char error[600];
} Result;

// Another model than the LLaMA: one with six heads, 40 columns, 61 tokens and sequences of T, so that layouts fit.
typedef struct {
    const GxFamily *family;
    size_t config_size;
    const void *config;
    void (*tie)(void *config, int tied);
    GxHeadRequest head;
    int targets;
    int64_t outputs, values; // of target 0: results, and numbers of a row of its values (1: there are none)
    double depth;            // of a forward
    // Completes micro-batch b, whose columns are samples sample[B] of the training: writes into `room` (T*B*TEST_ARRAYS
    // numbers), in the host's memory.
    void (*fill)(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room);
} TestSubject;
static const TestSubject *test_subject; // NULL: the LLaMA

// ---- data ----------------------------------------------------------------------------------------------------------

static inline int64_t columns_of(const Layout *l) // samples of a micro-batch on all ranks
{
    int64_t n = 0;
    for (int r = 0; r < l->dp; r++) n += l->samples[r];
    return n;
}

// Sample `s` of the whole training, element t. Labels vary in how many count, so that ranks and micro-batches have
// different numbers of them.
static inline int32_t token_at(int64_t s, int64_t t)
{
    return (int32_t)(gx_random_bits(11, (uint64_t)(s * T + t), 0, 1) % 61);
}
static inline int32_t label_at(const Layout *l, int64_t s, int64_t t)
{
    int64_t column = s % columns_of(l), begin = 0;
    for (int r = 0; r < l->dp; begin += l->samples[r++])
        if (column >= begin && column < begin + l->samples[r] && r + 1 == l->no_labels) return GX_IGNORE_INDEX;
    if (t >= l->no_label_begin && t < l->no_label_end) return GX_IGNORE_INDEX;
    if (gx_random_bits(11, (uint64_t)(s * T + t), 0, 3) % 5 < (uint32_t)(s % 4)) return GX_IGNORE_INDEX;
    return (int32_t)(gx_random_bits(11, (uint64_t)(s * T + t), 0, 2) % 61);
}

// Columns [begin, begin + B) of every micro-batch of a step; `micro` such make a window.
static inline void fill_window(const Layout *l, int64_t step, int64_t begin, int64_t B, int micro, GxBatch *batch,
                               int32_t *tokens)
{
    const int64_t window = l->micro * columns_of(l);
    for (int i = 0; i < micro; i++) {
        int32_t *token = tokens + (TEST_ARRAYS + 2) * i * T * MAX_COLUMNS, *label = token + T * MAX_COLUMNS;
        int64_t samples[MAX_COLUMNS];
        memset(&batch[i], 0, sizeof batch[i]);
        for (int64_t c = 0; c < B; c++)
            for (int64_t t = 0; t < T; t++) {
                const int64_t sample = samples[c] = step * window + i * (window / micro) + begin + c;
                token[t * B + c] = token_at(sample, t);
                label[t * B + c] = label_at(l, sample, t);
            }
        batch[i].tokens = token, batch[i].target[0].labels = label, batch[i].T = T, batch[i].B = B,
        batch[i].runs = gx_runs_one(T, 0);
        batch[i].number = i,
        batch[i].window_sample = samples[0] - step * window; // so that a graph of one step is that of the next, too
        if (test_subject) test_subject->fill(l, &batch[i], samples, label + T * MAX_COLUMNS);
    }
}

// The first `T` positions of a batch of longer sequences.
static inline void shorten(GxBatch *b, int64_t shorter)
{
    b->T = shorter, b->runs = gx_runs_one(shorter, 0);
    for (int k = 0; k < GX_MAX_LOSSES; k++) {
        GxTarget *t = &b->target[k];
        while (t->rows && t->n && t->rows[t->n - 1] >= shorter * b->B) t->n--;
        int32_t *part = (int32_t *)(uintptr_t)t->parts;
        for (int64_t i = 0; part && i < t->n; i++) part[3 * i + 2] = (int32_t)gx_min(part[3 * i + 2], shorter);
    }
    int32_t *d = (int32_t *)(uintptr_t)b->documents;
    for (int64_t i = 0; d && i < 2 * shorter * b->B; i++) d[i] = (int32_t)gx_min(d[i], shorter);
}

static inline int ranks_of(const Layout *l)
{
    int n = 0;
    for (int i = 0; i < l->pp; i++) n += l->width[i];
    return n ? n : (int)(gx_max(l->pp, 1) * gx_max(l->cp, 1)) * l->dp * l->tp;
}
static inline int64_t values_of(void) { return test_subject ? test_subject->values : 1; }
static inline int64_t outputs_of(void) { return test_subject ? test_subject->outputs : model_config.vocab_size; }

// ---- a mode that keeps what passes through its layers --------------------------------------------------------------

typedef struct {
    GxMode mode; // first: the model points at it
    const GxMode *inner;
    Result *out;
} Probe;

static inline void probe_keep(GxContext *g, float **kept, GxRows x)
{
    if (*kept || !x.data || !g->device->computes) return;
    *kept = (float *)malloc((size_t)gx_rows_bytes(x) + 1);
    gx_to_host(g, *kept, x.data, gx_rows_bytes(x));
}

// 1: pair k is the last one of a layer.
static inline int probe_is_behind_layer(const GxPass *p, int k) { return p->unit >= 1 && p->unit <= LAYERS && k == 1; }

static inline void probe_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    const Probe *probe = (const Probe *)p->m->mode;
    probe->inner->pair_forward(p, k, y, x);
    if (!probe_is_behind_layer(p, k) || !y.data) return;
    if (!probe->out->rows) probe->out->rows = y.rows;
    probe_keep(p->g, &probe->out->y[p->unit], y);
}

static inline void probe_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x)
{
    const Probe *probe = (const Probe *)p->m->mode;
    if (probe_is_behind_layer(p, k)) probe_keep(p->g, &probe->out->dx[p->unit], dy);
    probe->inner->pair_backward(p, k, dx, dy, x);
    if (p->unit == 1 && k == 0) probe_keep(p->g, &probe->out->dx[0], dx);
}

// ---- a run ---------------------------------------------------------------------------------------------------------

// Moments as a training would have left them, by global index, so that they are the same in every topology.
static inline void set_moments(TestModel *t, int64_t n)
{
    float *first = (float *)calloc((size_t)n, sizeof *first), *second = (float *)calloc((size_t)n, sizeof *second);
    for (int i = 0; i < t->m.table.n; i++) {
        const GxTensor *row = &t->m.table.row[i];
        const int64_t at = test_flat(t, i);
        const uint32_t of = (uint32_t)(row->has_alias ? row->alias.index : i); // of a copy: as the tensor's
        for (int64_t k = 0; k < gx_tensor_count(row) && at >= 0; k++) {
            const uint64_t index = (uint64_t)gx_tensor_global_index(row, k);
            first[at + k] = 0.01f * (gx_random_uniform(5, index, of, 7) - 0.5f);
            second[at + k] = 1e-4f * (0.5f + gx_random_uniform(5, index, of, 8));
        }
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < t->m.table.n; i++) {
            const int64_t at = test_flat(t, i), count = gx_tensor_count(&t->m.table.row[i]);
            const GxValues what = k ? GX_VALUES_MOMENT_2 : GX_VALUES_MOMENT_1;
            if (at < 0 || gx_store_is_alias(&t->m.store, i)) continue;
            const GxArenaMark mark = gx_arena_mark(t->g.arena);
            float *values = gx_values_write(&t->g, &t->m.store, what, i, 0, count);
            test_put(t, values, (k ? second : first) + at, count);
            gx_values_written(&t->g, &t->m.store, what, i, 0, count, values);
            gx_arena_release(t->g.arena, mark);
        }
    free(first), free(second);
}

// Values as gradients lie, which have no room for what is frozen: whole, though ranks have parts.
static inline void keep_values(TestModel *t, Result *out, int which, GxValues what)
{
    out->flat.all[which] = (float *)calloc((size_t)out->n + 1, 4);
    gx_at(&t->g, -1, TEST_SITE);
    for (int i = 0; i < t->m.table.n; i++) {
        const GxTensor *row = &t->m.table.row[i];
        if (test_flat(t, i) < 0 || gx_store_is_alias(&t->m.store, i)) continue;
        const GxArenaMark mark = gx_arena_mark(t->g.arena);
        float *kept =
            test_kept(t, gx_values_read(&t->g, &t->m.store, what, i, 0, gx_tensor_count(row)), gx_tensor_count(row));
        memcpy(out->flat.all[which] + test_flat(t, i), kept, (size_t)gx_tensor_count(row) * 4);
        free(kept);
        gx_arena_release(t->g.arena, mark);
    }
}

// Of gradients of which ranks have parts, all of them.
static inline void keep_grads(TestModel *t, Result *out)
{
    const GxStore *s = &t->m.store;
    if (!s->sharded) {
        out->flat.all[0] = test_kept(t, s->grads, out->n);
        return;
    }
    out->flat.all[0] = (float *)calloc((size_t)out->n + 1, 4);
    gx_at(&t->g, -1, TEST_SITE);
    for (int u = 0; u < s->table->units; u++) {
        const GxRange all = s->unit[u].trained.all;
        if (!gx_range_count(all)) continue;
        const GxArenaMark mark = gx_arena_mark(t->g.arena);
        const GxSplit split = gx_shards_split(s, u, GX_SHARD_TRAINED);
        float *whole = (float *)gx_scratch(&t->g, GX_MEM_WORKSPACE, 4 * gx_range_count(all));
        gx_all_gather(&t->g, gx_shards_axes(s, u), &split, whole, gx_store_my_grads(s, u), 1, GX_F32);
        float *kept = test_kept(t, whole, gx_range_count(all));
        memcpy(out->flat.all[0] + all.begin, kept, 4 * (size_t)gx_range_count(all));
        free(kept);
        gx_arena_release(t->g.arena, mark);
    }
}

static inline void train_sgd(TestModel *t, const Layout *l, int64_t begin, int64_t B, int micro, int32_t *tokens,
                             Result *out)
{
    GxBatch batch[MAX_MICRO];
    test_init(t, 42);
    if (t->m.store.my_trained_n) gx_zero(&t->g, t->m.store.moment[0], 4 * t->m.store.my_trained_n);
    t->o.kind = GX_OPTIMIZER_SGD;
    test_set_step(t, TEST_SGD_RATE, 0);
    for (int s = 0; s < STEPS; s++) {
        fill_window(l, s, begin, B, micro, batch, tokens);
        for (int i = 0; i < micro; i++) test_put_batch_values(t, &batch[i], i, values_of());
        t->g.recorder = s == 0 ? &out->window : NULL;
        gx_runner_train(&t->g, &t->r, batch, out->labels, NULL);
        t->g.recorder = NULL;
        if (s == 0) keep_grads(t, out);
        const GxStep step = test_step(t);
        out->loss[s] = gx_step_loss(&step);
        out->norm[s] = sqrt(step.sum_squares);
    }
    keep_values(t, out, 1, GX_VALUES_WEIGHTS);
}

static inline void train_adamw(TestModel *t, const Layout *l, int64_t begin, int64_t B, int micro, int32_t *tokens,
                               Result *out)
{
    static const GxAdamW adamw = {TEST_BETA1, TEST_BETA2, 1e-8f, 0.1f};
    GxBatch batch[MAX_MICRO];
    test_init(t, 42);
    set_moments(t, out->n);
    t->o.kind = GX_OPTIMIZER_ADAMW;
    t->o.adamw = adamw;
    test_set_step(t, 0.01f, 6);
    fill_window(l, 0, begin, B, micro, batch, tokens);
    for (int i = 0; i < micro; i++) test_put_batch_values(t, &batch[i], i, values_of());
    gx_runner_train(&t->g, &t->r, batch, NULL, NULL);
    keep_values(t, out, 2, GX_VALUES_WEIGHTS);
    keep_values(t, out, 3, GX_VALUES_MOMENT_1);
    keep_values(t, out, 4, GX_VALUES_MOMENT_2);
}

// Forward only, in sequences that are shorter than planned, so that their slices are others; of cp, which shares whole
// sequences alone, as they are, and logits of batches that are not divided yet.
static inline void validate(TestModel *t, const Layout *l, int64_t begin, int64_t B, int micro, int32_t *tokens,
                            Result *out)
{
    GxContext *g = &t->g;
    GxBatch batch[MAX_MICRO];
    GxStep step = test_step(t);
    memset(step.loss_sum, 0, sizeof step.loss_sum);
    gx_to_device(g, g->step, &step, sizeof step);
    fill_window(l, 0, begin, B, micro, batch, tokens);
    const int64_t length = l->cp > 1 ? T : SHORT_T;
    GxBatch whole[MAX_MICRO];
    for (int i = 0; i < micro; i++) {
        if (length < T) shorten(&batch[i], length);
        whole[i] = batch[i];
        test_put_batch_values(t, &batch[i], i, values_of());
    }
    gx_runner_evaluate(g, &t->r, batch, micro, g->step->loss_sum);
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, g->step->loss_sum, GX_MAX_LOSSES, GX_F64);
    step = test_step(t);
    for (int k = 0; k < GX_MAX_LOSSES; k++) out->validation += step.loss_sum[k];
    out->column = begin, out->columns = B;
    if (t->m.store.dtype != GX_F32) return;
    // where the third micro-batch's data would be: logits, then the rows that they are of
    const int shows = gx_has_head(g) || gx_group_index(g, GX_AXIS_PP) == 0;
    const int shown = (int)gx_min(micro, SHOWN);
    const int64_t n = B * outputs_of();
    float *logits = (float *)(t->tokens + 2 * TEST_ARRAYS * t->room);
    int32_t *picked = (int32_t *)(logits + shown * n);
    CHECK(shown * n + 3 * B <= TEST_ARRAYS * t->room, "no room for the logits of %d x %ld columns", shown, (long)B);
    GxTarget last = GX_ZERO;
    int32_t rows[MAX_COLUMNS], parts[3 * MAX_COLUMNS];
    for (int64_t i = 0; i < B; i++) {
        rows[i] = (int32_t)((length - 1) * B + i);
        parts[3 * i] = (int32_t)i, parts[3 * i + 1] = 1, parts[3 * i + 2] = (int32_t)length;
    }
    last.rows = picked, last.rows_host = rows, last.n = B;
    gx_to_device(g, picked, rows, (int64_t)sizeof *rows * B);
    if (batch[0].target[0].parts) { // of vectors: those of all but a column's first token
        last.parts = last.rows, last.parts_host = parts, last.anchors = -1;
        last.rows = last.rows_host = NULL;
        gx_to_device(g, picked, parts, (int64_t)sizeof *parts * 3 * B);
    }
    for (int i = 0; i < shown; i++) {
        memset(batch[i].target, 0, sizeof batch[i].target);
        batch[i].target[0] = last;
        batch[i].target[0].logits = gx_rows(logits + i * n, GX_F32, B, outputs_of());
    }
    g->recorder = &out->evaluation;
    if (t->m.cp.n < 2) gx_runner_evaluate(g, &t->r, batch, shown, NULL);
    for (int i = 0; i < shown && t->m.cp.n > 1; i++) {
        const GxForward forward = gx_runner_hook(&t->r);
        memcpy(whole[i].target, batch[i].target, sizeof whole[i].target);
        test_put_whole(t, &whole[i], i);
        forward.run(g, forward.user, &whole[i], NULL);
    }
    g->recorder = NULL;
    if (shows) out->logits = test_kept(t, logits, shown * n);
}

static inline void subject_counts(const void *task, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    (void)task;
    for (int k = 0; k < test_subject->targets; k++)
        count[k] += b->target[k].parts    ? b->target[k].anchors
                    : b->target[k].values ? gx_target_n(b, k) * test_subject->values
                                          : gx_target_n(b, k);
}

// The subject's part of a request; its configuration goes to `room`.
static inline void wish_subject(TestRequest *request, const Layout *l, void *room, size_t size)
{
    request->lora = l->lora ? &test_loras[l->lora - 1] : NULL;
    request->bottleneck = l->bottleneck ? &test_bottlenecks[l->bottleneck - 1] : NULL;
    request->side = l->side ? &test_sides[l->side - 1] : NULL;
    request->prompt = l->prompt ? &test_prompts[l->prompt - 1] : NULL;
    request->quantize = l->quantize;
    if (!test_subject) return;
    assert(test_subject->config_size <= size);
    memcpy(room, test_subject->config, test_subject->config_size);
    test_subject->tie(room, l->tied);
    request->family = test_subject->family, request->config = room, request->head = &test_subject->head;
    request->spec.counts = subject_counts;
}

static inline double forward_depth(void)
{
    return test_subject ? test_subject->depth : test_model_depth(&model_config, T, 0);
}

// One rank: columns [begin, begin + B) of each of `micro` micro-batches. comm NULL: alone. The model stays open until
// free_result.
static inline void run_rank(const Layout *l, const GxMode *mode, int tp, int64_t begin, int64_t B, int micro,
                            GxComm *comm, Result *out)
{
    const int entries = comm && l->own ? ranks_of(l) / l->dp : tp;
    const GxSplitLists lists = {{l->heads, l->heads[0] ? entries : 0},
                                {l->columns, l->columns[0] ? entries : 0},
                                {l->vocab, l->vocab[0] ? entries : 0},
                                {l->sequence, l->sequence[0] ? entries : 0}};
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    Probe probe = {*mode, mode, out};
    GxLlamaConfig config = model_config_of(l);
    char other[4096];
    int32_t *tokens = (int32_t *)malloc((TEST_ARRAYS + 2) * MAX_MICRO * T * MAX_COLUMNS * sizeof *tokens);
    memset(out, 0, sizeof *out);
    probe.mode.pair_forward = probe_forward, probe.mode.pair_backward = probe_backward;
    out->model = t;
    t->request = test_request;
    t->request.dtype = test_dtype;
    t->request.spec.micro_batches = micro;
    t->request.pp = comm ? l->pp : 0, t->request.width = comm && l->width[0] ? l->width : NULL;
    t->request.cp = l->cp, t->request.zigzags = l->zigzags, t->request.ring = l->ring;
    t->request.cp_rows.part = l->cp_rows, t->request.cp_rows.n = l->cp_rows[0] ? l->cp : 0;
    wish_subject(&t->request, l, other, sizeof other);
    t->request.candidates = 2 * columns_of(l) * (l->micro / micro);
    if (!test_model_open_split(t, &config, &probe.mode, T, B, HEAD_CHUNK, comm, 1, tp, &lists)) {
        fprintf(stderr, "%s: the model did not open\n", l->what);
        exit(1); // others would wait
    }
    out->n = t->m.store.trained_n;
    t->o.max_grad_norm = TEST_MAX_NORM; // clips
    train_sgd(t, l, begin, B, micro, tokens, out);
    if (!test_sgd_alone) {
        train_adamw(t, l, begin, B, micro, tokens, out);
        validate(t, l, begin, B, micro, tokens, out);
    }
    snprintf(out->error, sizeof out->error, "%s", t->g.error.message);
    if (t->g.comm) gx_comm_close(&t->g);
    t->g.comm = NULL;
    t->m.mode = mode; // the probe ends here
    free(tokens);
}

// Every collective that was started is waited for once, behind its start.
static inline void check_waits(const char *what, int rank, const GxRecorder *r)
{
    for (int64_t ticket = 1; ticket <= r->tickets; ticket++) {
        int64_t start = -1, wait = -1, events = 0;
        for (int64_t i = 0; i < r->n; i++) {
            if (r->event[i].ticket != ticket) continue;
            *(r->event[i].kind == GX_EVENT_WAIT ? &wait : &start) = i;
            events++;
        }
        CHECK(events == 2 && start >= 0 && wait > start,
              "%s: rank %d: ticket %ld has %ld events, its start is event %ld, its wait %ld", what, rank, (long)ticket,
              (long)events, (long)start, (long)wait);
    }
}

static inline void free_result(Result *r)
{
    for (int i = 0; i < BUFFERS; i++) free(r->flat.all[i]);
    for (int i = 0; i <= LAYERS; i++) free(r->y[i]), free(r->dx[i]);
    free(r->logits);
    gx_recorder_close(&r->window), gx_recorder_close(&r->evaluation);
    if (r->model) test_model_close(r->model);
    free(r->model);
}

typedef struct {
    const Layout *layout;
    int rank;
    GxComm comm;
    Result result;
    pthread_t thread;
} Rank;

static inline void *rank_main(void *user)
{
    Rank *r = (Rank *)user;
    const Layout *l = r->layout;
    int64_t begin = 0;
    const int dp = l->width[0] ? 0 : r->rank / (int)(l->tp * gx_max(l->cp, 1)) % l->dp;
    for (int i = 0; i < dp; i++) begin += l->samples[i];
    run_rank(l, l->mode, l->tp, begin, l->samples[dp], l->micro, &r->comm, &r->result);
    return NULL;
}

static inline void run_ranks(const Layout *l, Rank *rank)
{
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    const int ranks = ranks_of(l);
    memset(rank, 0, (size_t)ranks * sizeof *rank);
    if (!CHECK(gx_threads_group_open(&group, ranks, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < ranks; r++) {
        rank[r].layout = l;
        rank[r].rank = r;
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, rank_main, &rank[r]);
    }
    for (int r = 0; r < ranks; r++) pthread_join(rank[r].thread, NULL);
    gx_threads_group_close(group);
}

static inline void free_ranks(const Layout *l, Rank *rank)
{
    for (int r = 0; r < ranks_of(l); r++) free_result(&rank[r].result);
}

// The whole window on one rank: in one micro-batch, but for texts that are ranked among those of their micro-batch.
static inline void run_serial(const Layout *l, Result *out)
{
    if (test_subject && test_subject->head.kind == GX_HEAD_VECTORS) {
        run_rank(l, &test_serial, 1, 0, columns_of(l), l->micro, NULL, out);
        return;
    }
    run_rank(l, &test_serial, 1, 0, l->micro * columns_of(l), 1, NULL, out);
}

// ---- how far a rank is from serial ---------------------------------------------------------------------------------

typedef struct {
    double ratio; // error / bound, of the worst
    char what[200];
} Worst;

__attribute__((format(printf, 3, 4))) static inline void worse(Worst *w, double ratio, const char *format, ...)
{
    if (ratio <= w->ratio) return;
    w->ratio = ratio;
    va_list args;
    va_start(args, format);
    vsnprintf(w->what, sizeof w->what, format, args);
    va_end(args);
}

// In bf16: how far a run may be from serial's in fp32, relatively. What rounding to 8 bits comes to depends on how much
// a model amplifies it, so a test that sets this has measured it: by a serial run in bf16.
static double test_bf16_bound;

static inline double bound_of(double depth) { return test_dtype == GX_BF16 ? test_bf16_bound : test_bound(depth); }

// The loss without gradients, and logits, of weights after a step of AdamW.
static inline void compare_validation(const Result *a, const Result *serial, double depth, Worst *w)
{
    const float loss = (float)a->validation;
    const int64_t V = outputs_of();
    double ref[MAX_COLUMNS * 61];
    worse(w, test_ratio(&loss, &serial->validation, 1, bound_of(2 * depth), 0), "loss of a validation");
    if (!a->logits || !serial->logits) return;
    for (int64_t i = 0; i < a->columns * V; i++) ref[i] = serial->logits[a->column * V + i];
    worse(w, test_ratio(a->logits, ref, a->columns * V, bound_of(2 * depth), 0), "logits");
}

static inline double norm_of_grad(const Result *serial, int row)
{
    const float *grad = serial->flat.b.grads + test_flat(serial->model, row);
    double squares = 0;
    for (int64_t e = 0; e < gx_tensor_count(&serial->model->m.table.row[row]); e++)
        squares += (double)grad[e] * grad[e];
    return sqrt(squares);
}

static inline double norm_as_drawn(const Result *serial, int row)
{
    const GxTensor *t = &serial->model->m.table.row[row];
    const int64_t n = gx_tensor_count(t);
    float *x = (float *)malloc((size_t)n * sizeof *x);
    double squares = 0;
    gx_tensor_init(t, 42, 0, n, x);
    for (int64_t e = 0; e < n; e++) squares += (double)x[e] * x[e];
    free(x);
    return sqrt(squares);
}

// The gradient of a gate is a sum that may cancel to nothing, where its terms' error does not. A prompt's (the next in
// the table) is <dV, V> / g = <dV Wv, P> / g, where dV Wv is a part of dP: so dP's error, a part of its norm, makes one
// of as large a part of |dP| |P| / |g|. A side layer's has (1 - mu) / T <da, a> = (1 - mu) / T <dW, W> of a = x W^T, of
// which mu = sigmoid(g / T) is mixed in; T is 0.1.
static inline double gate_scale(const Result *serial, const char *name)
{
    const GxTable *table = &serial->model->m.table;
    const int row = gx_table_find(table, name).index, is_side = strstr(name, "side.gate.") != NULL;
    char down[GX_NAME];
    float gate = 0;
    snprintf(down, sizeof down, "side.down.%s", is_side ? name + strlen("side.gate.") : "");
    const int beside = is_side ? gx_table_find(table, down).index : row + 1;
    gx_tensor_init(&table->row[row], 42, 0, 1, &gate); // as it was drawn
    return norm_of_grad(serial, beside) * norm_as_drawn(serial, beside) *
           (is_side ? 10 / (1 + exp(10 * (double)gate)) : 1 / fabs((double)gate));
}

// The least norm that differences of gradients are judged by. A key bias's gradient is 0 but for rounding, and little
// more where keys are rotated: that of its weight, or of the scale beside it, is the scale. In bf16 what is small
// beside the others is a difference of what is not, rounded.
static inline double least_gradient(const Result *serial, const char *name)
{
    static const char *const keys[][2] = {{"key.bias", "key.weight"},
                                          {"k_lin.bias", "k_lin.weight"},   // of a DistilBERT
                                          {"k_proj.bias", "k_proj.weight"}, // of a BART
                                          {"c_attn.k.bias", "c_attn.k.weight"},
                                          {"k_proj.adaption_bias", "k_proj.adaption_scale"}};
    const GxTable *table = &serial->model->m.table;
    const double least = (test_dtype == GX_BF16 ? 1 : 1e-3) * serial->norm[0] / sqrt(table->n);
    char beside[GX_NAME];
    if (strstr(name, "adaption_gate") || strstr(name, "side.gate.")) return fmax(least, gate_scale(serial, name));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *key = strstr(name, keys[i][0]);
        if (!key) continue;
        snprintf(beside, sizeof beside, "%.*s%s", (int)(key - name), name, keys[i][1]);
        return norm_of_grad(serial, gx_table_find(table, beside).index);
    }
    return least;
}

// And of what is made of them: weights that steps have brought near 0, and moments, have the error of the gradients
// that went into them, clipped. (The second moment's is 2 g dg.)
static inline double least_scale(const Result *serial, const char *name, int buffer)
{
    const double clip = fmin(1, TEST_MAX_NORM / serial->norm[0]), least = least_gradient(serial, name),
                 grad = norm_of_grad(serial, gx_table_find(&serial->model->m.table, name).index),
                 most = clip * fmax(grad, least);
    const double of_buffer[BUFFERS] = {least, STEPS * TEST_SGD_RATE * most, 0, (1 - TEST_BETA1) * most,
                                       2 * (1 - TEST_BETA2) * clip * grad * most};
    return of_buffer[buffer];
}

// Everything that a rank has against the same elements of serial: losses, norms, its boxes of every gradient, weight
// and moment.
static inline void compare_rank(const Layout *l, const Result *a, const Result *serial, Worst *w)
{
    static const char *const names[BUFFERS] = {"gradient", "weights after SGD", "weights after AdamW", "first moment",
                                               "second moment"};
    const GxTable *table = &a->model->m.table;
    const GxStore *s = &a->model->m.store;
    const double rows = (double)(l->micro * columns_of(l) * T),
                 through = l->side ? 2 : 1,           // a side network's layers are as many, and no deeper
        depth = 3 * through * forward_depth() + rows; // weight gradients sum over rows
    if (a->error[0]) worse(w, INFINITY, "error: %s", a->error);
    if (memcmp(a->labels, serial->labels, sizeof a->labels))
        worse(w, INFINITY, "%ld labels, serially %ld", (long)a->labels[0], (long)serial->labels[0]);
    for (int k = 0; k < STEPS; k++) {
        const float loss = (float)a->loss[k], norm = (float)a->norm[k];
        worse(w, test_ratio(&loss, &serial->loss[k], 1, bound_of((k + 1) * depth), 0), "loss of step %d", k);
        worse(w, test_ratio(&norm, &serial->norm[k], 1, bound_of((k + 1) * depth), 0), "grad norm of step %d", k);
    }
    if (!test_sgd_alone) compare_validation(a, serial, depth, w);
    for (int i = 0; i < table->n; i++) {
        const GxTensor *t = &table->row[i];
        const int64_t at = test_flat(a->model, i), there = test_flat(serial->model, i), n = gx_tensor_count(t);
        if (t->has_alias || at < 0) continue;
        double *ref = (double *)malloc((size_t)n * sizeof *ref);
        for (int k = 0; k < BUFFERS && a->flat.all[k]; k++) {
            const GxRange all = {0, n},
                          mine = k || !s->sharded ? all : gx_store_my_trained(s, i); // of gradients its part
            for (int64_t e = 0; e < n; e++) ref[e] = serial->flat.all[k][there + gx_tensor_global_index(t, e)];
            worse(w,
                  test_ratio(a->flat.all[k] + at + mine.begin, ref + mine.begin, gx_range_count(mine),
                             bound_of((k == 1 ? STEPS : 1) * depth), least_scale(serial, t->name, k)),
                  "%s of %s", names[k], t->name);
        }
        free(ref);
    }
}

static inline Worst compare_ranks(const Layout *l, const Rank *rank, const Result *serial)
{
    Worst w = {-1, ""};
    for (int r = 0; r < ranks_of(l); r++) compare_rank(l, &rank[r].result, serial, &w);
    return w;
}
#endif
