// test/bert.h: a case of dev/ref/make_{bert,bart,t5,gpt2}_refs.py: configuration, batch, what transformers computes.
// The dumps are [B,T,C], Galaxy's rows are [T,B,C].
#ifndef GX_TEST_BERT_H
#define GX_TEST_BERT_H
#include "model.h"

typedef struct {
    GxSafetensors file;
    char folder[40], variant[40]; // variant: of a case that has several, whose numbers have it before their names
    int is_bert, is_distilled, has_dropout, layers, targets;
    int has_memory, decoder_layers; // 1: a BART or a T5, and `layers` are its encoder's
    GxLlamaConfig llama;
    GxBertConfig bert;
    GxBartConfig bart;
    GxT5Config t5;
    GxGpt2Config gpt2;
    GxBatch source;
    GxHeadRequest head;
    TestRequest request;
    GxBatch b;
    const int32_t *documents; // the batch's, in the host's memory
    int64_t T, B, C, outputs; // outputs: numbers of a row of target 0's values; 1: there are none
    int64_t target_outputs[2];
    uint64_t seed, step;
    double depth; // of a forward
    void *owned[32];
    int n_owned;
} TestReference;

static void *reference_own(TestReference *r, size_t bytes) { return r->owned[r->n_owned++] = calloc(1, bytes + 1); }

// Of a variant: its own number, or that of all. A model without a head has no "bert." in its names.
static const GxSafetensorsEntry *reference_find(const TestReference *r, const char *name)
{
    char own[240];
    const char *bert = r->variant[0] ? strstr(name, "bert.") : NULL;
    const int before = (int)(bert ? bert - name : (ptrdiff_t)strlen(name));
    snprintf(own, sizeof own, "%s.%.*s%s", r->variant, before, name, bert ? bert + 5 : "");
    const GxSafetensorsEntry *e = r->variant[0] ? gx_safetensors_find(&r->file, own) : NULL;
    return e ? e : gx_safetensors_find(&r->file, name);
}

static float *test_reference_floats(const TestReference *r, const char *format, int number, int64_t *n)
{
    char name[200];
    GxError err = GX_ZERO;
    snprintf(name, sizeof name, format, number);
    const GxSafetensorsEntry *e = reference_find(r, name);
    if (!CHECK(e != NULL, "no %s in the reference", name)) return NULL;
    float *x = (float *)malloc((size_t)(e->elements + 1) * sizeof *x);
    CHECK(gx_safetensors_read(&r->file, e, 0, e->elements, x, &err) == GX_OK, "%s", err.message);
    if (n) *n = e->elements;
    return x;
}

__attribute__((unused)) static float test_reference_number(const TestReference *r, const char *name)
{
    float *x = test_reference_floats(r, name, 0, NULL), value = x ? x[0] : NAN;
    free(x);
    return value;
}

// Whole numbers as they lie in the file; NULL: there are none of this name.
static int32_t *reference_integers(TestReference *r, const char *name)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = reference_find(r, name);
    if (!e) return NULL;
    int32_t *x = (int32_t *)reference_own(r, (size_t)e->elements * 4);
    CHECK(gx_safetensors_read_raw(&r->file, e, 0, e->elements, x, &err) == GX_OK, "%s: %s", name, err.message);
    return x;
}

static int reference_integer(TestReference *r, const char *name, int otherwise)
{
    const int32_t *x = reference_integers(r, name);
    return x ? x[0] : otherwise;
}

// [B,T] as [T,B]
static int32_t *reference_rotated_of(TestReference *r, const char *name, int64_t T)
{
    const int32_t *raw = reference_integers(r, name);
    if (!raw) return NULL;
    int32_t *x = (int32_t *)reference_own(r, (size_t)(T * r->B) * 4);
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t t = 0; t < T; t++) x[t * r->B + b] = raw[b * T + t];
    return x;
}
static int32_t *reference_rotated(TestReference *r, const char *name) { return reference_rotated_of(r, name, r->T); }

// ---- the batch -----------------------------------------------------------------------------------------------------

// Texts that follow each other in a column: runs of equal numbers; 0 in `mask`: padding.
static void reference_documents(TestReference *r, const int32_t *number, const int32_t *mask)
{
    int32_t *d = (int32_t *)reference_own(r, (size_t)(2 * r->T * r->B) * 4);
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t t = 0, end; t < r->T; t = end) {
            const int64_t row = t * r->B + b;
            const int is_padding = mask && !mask[row];
            for (end = t + 1; end < r->T; end++) {
                const int64_t next = end * r->B + b;
                if (number ? number[next] != number[row] : (mask[next] == 0) != is_padding) break;
            }
            for (int64_t i = t; i < end; i++)
                d[2 * (i * r->B + b)] = is_padding ? 0 : (int32_t)t,
                                  d[2 * (i * r->B + b) + 1] = is_padding ? 0 : (int32_t)end;
        }
    r->b.documents = r->documents = d;
}

// Of labels [T,B] those that count, with their rows.
static void reference_pick(TestReference *r, const int32_t *labels)
{
    int32_t *rows = (int32_t *)reference_own(r, (size_t)(r->T * r->B) * 4),
            *picked = (int32_t *)reference_own(r, (size_t)(r->T * r->B) * 4);
    GxTarget *t = &r->b.target[0];
    for (int32_t i = 0; i < r->T * r->B; i++)
        if (labels[i] != GX_IGNORE_INDEX) rows[t->n] = i, picked[t->n++] = labels[i];
    t->rows = rows, t->labels = picked;
}

// One row of each sample: its first, or those that `position` says.
static void reference_pick_samples(TestReference *r, int target, const int32_t *position)
{
    int32_t *rows = (int32_t *)reference_own(r, (size_t)r->B * 4);
    GxTarget *t = &r->b.target[target];
    for (int64_t b = 0; b < r->B; b++) rows[b] = (int32_t)((position ? position[b] : 0) * r->B + b);
    t->rows = rows, t->n = r->B;
}

// The rows of a target ascend: samples that are labelled at other positions come in that order.
static void reference_sort(TestReference *r, int target)
{
    GxTarget *t = &r->b.target[target];
    int32_t *rows = (int32_t *)(uintptr_t)t->rows, *labels = (int32_t *)(uintptr_t)t->labels;
    for (int64_t i = 1; i < t->n; i++)
        for (int64_t j = i; j > 0 && rows[j] < rows[j - 1]; j--) {
            const int32_t row = rows[j], label = labels[j];
            rows[j] = rows[j - 1], rows[j - 1] = row, labels[j] = labels[j - 1], labels[j - 1] = label;
        }
}

static void reference_batch(TestReference *r)
{
    const GxSafetensorsEntry *tokens = reference_find(r, "tokens");
    GxBatch *b = &r->b;
    int32_t *positions;
    r->B = b->B = r->variant[0] ? reference_find(r, "embeddings")->shape[0] : tokens->shape[0],
    r->T = b->T = tokens->shape[1];
    b->tokens = reference_rotated(r, "tokens"), b->types = reference_rotated(r, "types");
    b->runs = gx_runs_one(r->T, 0);
    if (!(positions = reference_rotated(r, "positions"))) {
        positions = (int32_t *)reference_own(r, (size_t)(r->T * r->B) * 4);
        for (int64_t i = 0; i < r->T * r->B; i++) positions[i] = (int32_t)(i / r->B);
    }
    b->positions = positions;
    const int32_t *number = reference_rotated(r, "documents"), *mask = reference_rotated(r, "mask");
    if (number || mask) reference_documents(r, number, mask);
    b->window_sample = reference_integer(r, "first_sample", 0);
    r->seed = (uint64_t)reference_integer(r, "seed", 0), r->step = (uint64_t)reference_integer(r, "step", 0);
    r->has_dropout = reference_find(r, "seed") != NULL;
}

// ---- the head ------------------------------------------------------------------------------------------------------

static void reference_counts(const void *task, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const TestReference *r = (const TestReference *)task;
    for (int i = 0; i < r->targets; i++)
        count[i] += b->target[i].parts ? b->target[i].anchors
                                       : gx_target_n(b, i) * (b->target[i].values ? r->target_outputs[i] : 1);
}

static void reference_labels(TestReference *r, int64_t outputs)
{
    const GxSafetensorsEntry *labels = reference_find(r, "labels");
    r->head.kind = GX_HEAD_LABELS, r->head.labels = r->target_outputs[0] = outputs;
    reference_pick_samples(r, 0, reference_integers(r, "rows"));
    if (labels->dtype == GX_F32) {
        r->head.loss = outputs == 1 ? GX_SQUARED_ERROR : GX_BINARY_CROSS_ENTROPY;
        float *values = test_reference_floats(r, "labels", 0, NULL);
        r->owned[r->n_owned++] = values, r->b.target[0].values = values;
        r->outputs = outputs;
        return;
    }
    r->b.target[0].labels = reference_integers(r, "labels");
    reference_sort(r, 0);
}

// A text in each column, of which all tokens count, or the first.
static void reference_vectors(TestReference *r)
{
    GxTarget *t = &r->b.target[0];
    int32_t *parts = (int32_t *)reference_own(r, (size_t)(3 * r->B) * 4);
    for (int64_t b = 0; b < r->B; b++)
        parts[3 * b] = (int32_t)b, parts[3 * b + 2] = strncmp(r->variant, "cls", 3) ? r->documents[2 * b + 1] : 1;
    t->parts = parts, t->n = r->B, t->anchors = reference_integer(r, "n", 0);
    r->head.kind = GX_HEAD_VECTORS, r->target_outputs[0] = r->C;
}

static void reference_head(TestReference *r, int64_t vocab)
{
    const GxSafetensorsEntry *logits = reference_find(r, "logits");
    r->targets = 1, r->outputs = 1;
    if (r->variant[0]) {
        reference_vectors(r);
        return;
    }
    if (logits->ndim == 2) {
        reference_labels(r, logits->shape[1]);
        return;
    }
    r->head.kind = logits->shape[2] != vocab ? GX_HEAD_TOKEN_LABELS : r->is_bert ? GX_HEAD_MASKED : GX_HEAD_CAUSAL;
    r->head.labels = r->target_outputs[0] = logits->shape[2];
    reference_pick(r, reference_rotated(r, "labels"));
    if (!reference_find(r, "next_sentence")) return;
    r->head.with_pairs = 1, r->targets = 2, r->target_outputs[1] = 2;
    reference_pick_samples(r, 1, NULL);
    r->b.target[1].labels = reference_integers(r, "next_sentence");
}

// ---- a case --------------------------------------------------------------------------------------------------------

// All reductions that a number has passed through, forward. A norm behind CON is two sums over C, and divides by what
// it has found.
static double reference_depth_of(double C, double T, double Q, double F, double V, double L)
{
    return L * (4 * C + (Q + T + F) + 4 * C) + (4 * C + V);
}

static int reference_bert(TestReference *r, const char *path)
{
    GxError err = GX_ZERO;
    const GxBertConfig *c = &r->bert;
    if (!CHECK(gx_bert_config_read(&r->bert, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    r->C = c->hidden_size, r->layers = (int)c->num_hidden_layers;
    reference_head(r, c->vocab_size);
    r->depth = reference_depth_of((double)r->C, (double)r->T, (double)r->C, (double)c->intermediate_size,
                                  (double)c->vocab_size, r->layers);
    r->request.family = &gx_bert, r->request.config = &r->bert;
    return 1;
}

static int32_t *reference_positions(TestReference *r, int64_t T)
{
    int32_t *positions = (int32_t *)reference_own(r, (size_t)(T * r->B) * 4);
    for (int64_t i = 0; i < T * r->B; i++) positions[i] = (int32_t)(i / r->B) + GX_BART_FIRST_POSITION;
    return positions;
}

// The source: of a column the tokens of mask 1 see each other, and all rows of the target see them.
static void reference_source(TestReference *r)
{
    const int64_t S = reference_find(r, "source")->shape[1], T = r->T, B = r->B;
    const int32_t *mask = reference_rotated_of(r, "source_mask", S);
    int32_t *own = (int32_t *)reference_own(r, (size_t)(2 * S * B) * 4),
            *reads = (int32_t *)reference_own(r, (size_t)(2 * T * B) * 4),
            *read_by = (int32_t *)reference_own(r, (size_t)(2 * S * B) * 4);
    GxBatch *s = &r->source;
    s->tokens = reference_rotated_of(r, "source", S);
    s->positions = reference_positions(r, S), r->b.positions = reference_positions(r, T);
    s->T = S, s->B = B, s->runs = gx_runs_one(S, 0), s->window_sample = r->b.window_sample;
    for (int64_t b = 0; b < B; b++) {
        int32_t length = 0;
        while (length < S && mask[length * B + b]) length++;
        for (int64_t t = 0; t < length; t++)
            own[2 * (t * B + b) + 1] = length, read_by[2 * (t * B + b) + 1] = (int32_t)T;
        for (int64_t t = 0; t < T; t++) reads[2 * (t * B + b) + 1] = length;
    }
    s->documents = own, r->b.reads = reads, r->b.read_by = read_by, r->b.source = s;
}

static int reference_bart(TestReference *r, const char *path)
{
    GxError err = GX_ZERO;
    const GxBartConfig *c = &r->bart;
    if (!CHECK(gx_bart_config_read(&r->bart, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    r->C = c->d_model, r->layers = (int)c->encoder_layers, r->decoder_layers = (int)c->decoder_layers;
    reference_head(r, c->vocab_size);
    reference_source(r);
    const double C = (double)r->C, S = (double)r->source.T, T = (double)r->T, V = (double)c->vocab_size;
    r->depth = reference_depth_of(C, S, C, (double)c->encoder_ffn_dim, V, (double)c->encoder_layers) +
               reference_depth_of(C, S + T + 4 * C, C, (double)c->decoder_ffn_dim, V, (double)c->decoder_layers);
    r->request.family = &gx_bart, r->request.config = &r->bart, r->request.source_T = r->source.T;
    return 1;
}

static int reference_t5(TestReference *r, const char *path)
{
    GxError err = GX_ZERO;
    const GxT5Config *c = &r->t5;
    if (!CHECK(gx_t5_config_read(&r->t5, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    r->C = c->d_model, r->layers = (int)c->num_layers, r->decoder_layers = (int)c->num_decoder_layers;
    reference_head(r, c->vocab_size);
    reference_source(r);
    const double C = (double)r->C, S = (double)r->source.T, T = (double)r->T, V = (double)c->vocab_size,
                 Q = (double)(c->num_heads * c->d_kv), F = (double)c->d_ff;
    r->depth = reference_depth_of(C, S, Q, F, V, (double)c->num_layers) +
               reference_depth_of(C, S + T + 4 * C, Q, F, V, (double)c->num_decoder_layers);
    r->request.family = &gx_t5, r->request.config = &r->t5, r->request.source_T = r->source.T;
    return 1;
}

// The batch does not name positions: they follow from the texts.
static int reference_gpt2(TestReference *r, const char *path)
{
    GxError err = GX_ZERO;
    const GxGpt2Config *c = &r->gpt2;
    if (!CHECK(gx_gpt2_config_read(&r->gpt2, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    r->C = c->n_embd, r->layers = (int)c->n_layer;
    reference_head(r, c->vocab_size);
    r->b.positions = NULL;
    r->depth = reference_depth_of((double)r->C, (double)r->T, (double)r->C, (double)c->n_inner, (double)c->vocab_size,
                                  r->layers);
    r->request.family = &gx_gpt2, r->request.config = &r->gpt2;
    return 1;
}

static int reference_llama(TestReference *r, const char *path)
{
    GxError err = GX_ZERO;
    const GxLlamaConfig *c = &r->llama;
    if (!CHECK(gx_llama_config_read(&r->llama, path, &gx_silent, &err) == GX_OK, "%s", err.message)) return 0;
    r->C = c->hidden_size, r->layers = (int)c->num_hidden_layers;
    reference_head(r, c->vocab_size);
    r->depth = test_model_depth(c, r->T, 0);
    return 1;
}

// name: a folder of data/ref, and a variant of it: "bert_embed:mean". r stays where it is: the request points into it.
__attribute__((unused)) static int test_reference_open(TestReference *r, const char *name)
{
    char path[140];
    GxError err = GX_ZERO;
    memset(r, 0, sizeof *r);
    r->is_distilled = !strncmp(name, "distilbert", 10);
    r->is_bert =
        r->is_distilled || !strncmp(name, "bert", 4) || !strncmp(name, "roberta", 7) || !strncmp(name, "xlmr", 4);
    const int is_bart = strstr(name, "bart_") != NULL, is_t5 = strstr(name, "t5_") != NULL;
    const int is_gpt2 = !strncmp(name, "gpt2", 4);
    r->has_memory = is_bart || is_t5;
    sscanf(name, "%39[^:]:%39s", r->folder, r->variant);
    snprintf(path, sizeof path, "data/ref/%s/ref.safetensors", r->folder);
    if (!CHECK(gx_safetensors_open(&r->file, path, &err) == GX_OK, "%s", err.message)) return 0;
    reference_batch(r);
    snprintf(path, sizeof path, "data/ref/%s/config.json", r->folder);
    if (!(r->is_bert ? reference_bert(r, path)
          : is_bart  ? reference_bart(r, path)
          : is_t5    ? reference_t5(r, path)
          : is_gpt2  ? reference_gpt2(r, path)
                     : reference_llama(r, path)))
        return 0;
    r->request.head = &r->head;
    r->request.spec.counts = reference_counts, r->request.spec.task = r;
    return 1;
}

__attribute__((unused)) static void test_reference_close(TestReference *r)
{
    for (int i = 0; i < r->n_owned; i++) free(r->owned[i]);
    gx_safetensors_close(&r->file);
}

__attribute__((unused)) static double test_reference_depth(const TestReference *r, int backward)
{
    return backward ? 3 * r->depth : r->depth;
}

// Ours [T,B,C] against the first B of the dump [B or more,T,C], without padding.
__attribute__((unused)) static void test_reference_rows(const TestReference *r, const char *format, int number,
                                                        const float *ours, int64_t C, double depth)
{
    char what[80];
    int64_t n = 0, kept = 0;
    float *ref = test_reference_floats(r, format, number, &n);
    if (!ref || !CHECK(n == r->T * r->B * C || (r->variant[0] && n > r->T * r->B * C),
                       "%ld elements in the reference, %ld here", (long)n, (long)(r->T * r->B * C)))
        return;
    float *turned = (float *)malloc((size_t)n * 4);
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t t = 0; t < r->T; t++) {
            const int64_t row = t * r->B + b;
            if (r->documents && r->documents[2 * row] == r->documents[2 * row + 1]) continue;
            memcpy(turned + kept * C, ours + row * C, (size_t)C * 4);
            memmove(ref + kept * C, ref + (b * r->T + t) * C, (size_t)C * 4);
            kept++;
        }
    snprintf(what, sizeof what, format, number);
    test_close_f(what, turned, ref, kept * C, test_bound(depth), 0);
    free(turned), free(ref);
}

// Results of target i, [n, outputs], against the logits of its rows.
__attribute__((unused)) static void test_reference_outputs(const TestReference *r, int i, const float *ours,
                                                           double depth)
{
    const char *name = i ? "next_sentence_logits" : r->variant[0] ? "embeddings" : "logits";
    const int is_whole = i == 0 && r->head.kind != GX_HEAD_LABELS && r->head.kind != GX_HEAD_VECTORS;
    const int64_t V = r->target_outputs[i], n = r->b.target[i].n;
    const int32_t *rows = gx_target_rows(&r->b.target[i]);
    float *all = test_reference_floats(r, name, 0, NULL);
    if (!all) return;
    float *ref = (float *)malloc((size_t)(n * V) * 4);
    for (int64_t j = 0; j < n; j++) {
        const int64_t t = rows ? rows[j] / r->B : 0, b = rows ? rows[j] % r->B : j;
        memcpy(ref + j * V, all + (is_whole ? b * r->T + t : b) * V, (size_t)V * 4);
    }
    test_close_f(name, ours, ref, n * V, test_bound(depth), 0);
    free(ref), free(all);
}

// 1: it was compared. A key bias's gradient is 0 but for rounding, of which its weight's is the scale.
__attribute__((unused)) static int test_reference_gradient(const TestReference *r, const char *name, const float *grad,
                                                           int64_t count, double bound, double floor)
{
    char what[200], weight[200];
    int64_t n = 0, m = 0;
    double squares = 0;
    const char *key = strstr(name, r->has_memory                   ? "k_proj.bias"
                                   : r->is_distilled               ? "k_lin.bias"
                                   : r->request.family == &gx_gpt2 ? "c_attn.k.bias"
                                                                   : "key.bias");
    snprintf(what, sizeof what, "grad.%s", name);
    float *ref = test_reference_floats(r, what, 0, &n);
    if (!ref || !CHECK(n == count, "%s: %ld elements", what, (long)n)) return 0;
    snprintf(weight, sizeof weight, "grad.%.*sweight", (int)(strlen(name) - strlen("bias")), name);
    float *scale = key ? test_reference_floats(r, weight, 0, &m) : NULL;
    for (int64_t i = 0; i < m; i++) squares += (double)scale[i] * scale[i];
    test_close_f(what, grad, ref, n, bound, key ? sqrt(squares) : floor);
    free(ref), free(scale);
    return 1;
}
#endif
