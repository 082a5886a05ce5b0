// test/subjects.h: models with picked rows for the tests of modes: BERT's masked tokens with pairs of texts, labels and
// numbers of whole texts (BERT, LLaMA), vectors of texts, and a LLaMA with texts that share a column and labels that do
// not count. All with documents and padding, BERT with dropout. And apart from these, a BART and an mBART: targets of
// sources.
#ifndef GX_TEST_SUBJECTS_H
#define GX_TEST_SUBJECTS_H
#include "bert.h"
#include "modes.h"

// ---- what is in a column -------------------------------------------------------------------------------------------
// Of each sample: a first text, perhaps a second, padding at the end. All follows from the sample's number, so that any
// rank makes the same.

typedef struct {
    int64_t first, second; // lengths; second 0: there is none
} Column;

static uint32_t draw(int64_t sample, int64_t t, int what)
{
    return gx_random_bits(23, (uint64_t)(sample * T + t), 0, (uint32_t)what);
}

static Column column_of(int64_t sample)
{
    const Column columns[] = {{T, 0}, {T - 2, 0}, {3, 4}, {4, T - 4}, {1, T - 1}};
    return columns[draw(sample, 0, 1) % 5];
}

typedef struct { // where a batch's arrays go, in the host's memory
    int32_t *types, *positions, *documents, *rows[2], *labels[2];
    float *values;
} Arrays;

static Arrays arrays_in(int32_t *room)
{
    enum { N = T * MAX_COLUMNS };
    const Arrays a = {room,
                      room + N,
                      room + 2 * N,
                      {room + 4 * N, room + 5 * N},
                      {room + 6 * N, room + 7 * N},
                      (float *)(room + 8 * N)};
    return a;
}

static void fill_columns(GxBatch *b, const int64_t *sample, const Arrays *a)
{
    for (int64_t c = 0; c < b->B; c++) {
        const Column column = column_of(sample[c]);
        for (int64_t t = 0; t < T; t++) {
            const int64_t row = t * b->B + c, used = column.first + column.second;
            const int64_t begin = t < column.first ? 0 : column.first, end = t < column.first ? column.first : used;
            a->types[row] = (int32_t)(draw(sample[c], t, 2) % 3);
            a->positions[row] = (int32_t)(t < used ? t - begin : 0);
            a->documents[2 * row] = (int32_t)(t < used ? begin : 0);
            a->documents[2 * row + 1] = (int32_t)(t < used ? end : 0);
        }
    }
    b->types = a->types, b->positions = a->positions, b->documents = a->documents;
}

// Labels [T,B] that count become those of the target's rows; padding has none.
static void pick_tokens(const Layout *l, GxBatch *b, const int64_t *sample, const Arrays *a)
{
    GxTarget *t = &b->target[0];
    for (int64_t row = 0; row < T * b->B; row++) {
        const int32_t label = label_at(l, sample[row % b->B], row / b->B);
        if (label == GX_IGNORE_INDEX || a->documents[2 * row] == a->documents[2 * row + 1]) continue;
        a->rows[0][t->n] = (int32_t)row, a->labels[0][t->n++] = label;
    }
    t->rows = a->rows[0], t->labels = a->labels[0];
}

static int has_no_labels(const Layout *l, int64_t sample)
{
    return l->no_labels && label_at(l, sample, 0) == GX_IGNORE_INDEX && label_at(l, sample, 1) == GX_IGNORE_INDEX &&
           label_at(l, sample, 2) == GX_IGNORE_INDEX;
}

// A row of each text: its first, or its last. Where no label of a rank's may count, none is there.
static void pick_texts(const Layout *l, GxBatch *b, const int64_t *sample, const Arrays *a, int target, int is_last,
                       int labels)
{
    GxTarget *t = &b->target[target];
    for (int64_t row = 0; row < T * b->B; row++) {
        const int64_t position = row / b->B, s = sample[row % b->B], begin = a->documents[2 * row],
                      end = a->documents[2 * row + 1];
        if (begin == end || position != (is_last ? end - 1 : begin)) continue;
        if (has_no_labels(l, s)) continue;
        a->rows[target][t->n] = (int32_t)row;
        for (int v = 0; v < labels; v++) a->values[t->n * labels + v] = (float)(draw(s, position, 10 + v) % 2);
        a->labels[target][t->n++] = (int32_t)(draw(s, position, 4) % (uint32_t)labels);
    }
    t->rows = a->rows[target], t->labels = a->labels[target];
}

// ---- BERT ----------------------------------------------------------------------------------------------------------

static const GxBertConfig bert_config = {61, 36, 40, LAYERS, 6, 16, 3, 0, "gelu", 0.1, 0.2, 0.3, 1e-12, 0.2, 1, "bert"};

static const GxBertConfig roberta_config = {61,     36,  40,  LAYERS, 6,     16,  3, 1,
                                            "gelu", 0.1, 0.2, 0.3,    1e-12, 0.2, 1, "roberta"};

static const GxBertConfig distilled_config = {61,     36,  40,  LAYERS, 6,     16,  2, 0,
                                              "gelu", 0.1, 0.2, 0.3,    1e-12, 0.2, 1, "distilbert"};

static void bert_tie(void *config, int tied) { ((GxBertConfig *)config)->tie_word_embeddings = tied; }

static void fill_pretraining(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    const Arrays a = arrays_in(room);
    fill_columns(b, sample, &a);
    b->target[0].labels = NULL;
    pick_tokens(l, b, sample, &a);
    pick_texts(l, b, sample, &a, 1, 0, 2);
}

static void fill_labels(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    const Arrays a = arrays_in(room);
    fill_columns(b, sample, &a);
    pick_texts(l, b, sample, &a, 0, 0, 3);
}

static void fill_values(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    const Arrays a = arrays_in(room);
    fill_labels(l, b, sample, room);
    b->target[0].labels = NULL, b->target[0].values = a.values;
}

// Columns of two texts are an anchor and its positive, those of one are negatives. Where no label of a rank's may
// count, it has no text.
static void fill_parts(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room, int is_first_alone)
{
    const Arrays a = arrays_in(room);
    GxTarget *t = &b->target[0];
    int32_t *part = a.rows[0]; // and on over all that is behind it
    fill_columns(b, sample, &a);
    t->labels = NULL, t->parts = part;
    for (int which = 0; which < 3; which++)
        for (int64_t c = 0; c < b->B; c++) {
            const Column column = column_of(sample[c]);
            const int64_t begin = which == 1 ? column.first : 0, n = which == 1 ? column.second : column.first;
            if ((column.second == 0) != (which == 2) || has_no_labels(l, sample[c])) continue;
            part[3 * t->n] = (int32_t)c, part[3 * t->n + 1] = (int32_t)begin;
            part[3 * t->n + 2] = (int32_t)(begin + (is_first_alone ? 1 : n));
            t->n++, t->anchors += which == 0;
        }
}

static void fill_vectors(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    fill_parts(l, b, sample, room, 0);
}

static void fill_first_tokens(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    fill_parts(l, b, sample, room, 1);
}

// Rows of tokens, as of masked ones, with one of three labels each.
static void fill_token_labels(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    const Arrays a = arrays_in(room);
    fill_columns(b, sample, &a);
    pick_tokens(l, b, sample, &a);
    for (int64_t i = 0; i < b->target[0].n; i++) a.labels[0][i] %= 3;
}

// ---- LLaMA ---------------------------------------------------------------------------------------------------------

static void llama_tie(void *config, int tied) { ((GxLlamaConfig *)config)->tie_word_embeddings = tied; }

static void fill_texts(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    const Arrays a = arrays_in(room);
    fill_columns(b, sample, &a);
    pick_tokens(l, b, sample, &a);
}

static void fill_scores(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    const Arrays a = arrays_in(room);
    fill_columns(b, sample, &a);
    pick_texts(l, b, sample, &a, 0, 1, 3);
}

// ---- GPT-2 ---------------------------------------------------------------------------------------------------------

static const GxGpt2Config gpt2_config = {61, 16, 36, LAYERS, 6, 40, "gelu_new", 0.1, 0.3, 0.2, 1e-5, 0.2, 1, 1, 1, -1};

static void gpt2_tie(void *config, int tied) { ((GxGpt2Config *)config)->tie_word_embeddings = tied; }

// Its positions follow from the texts.
static void fill_gpt2_texts(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    fill_texts(l, b, sample, room);
    b->positions = NULL;
}

static void fill_gpt2_scores(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    fill_scores(l, b, sample, room);
    b->positions = NULL;
}

// ---- BART ----------------------------------------------------------------------------------------------------------

enum { SOURCE_T = 7 }; // sources are shorter than targets
static const GxBartConfig bart_config = {61, 36, LAYERS, LAYERS, 6,   6,   40,   40,  16, 1,
                                         0,  2,  2,      "gelu", 0.1, 0.2, 0.15, 0.2, 0,  "bart"};
static const GxBartConfig mbart_config = {61, 36, LAYERS, LAYERS, 6,   6,   40,   40,  16, 1,
                                          0,  2,  -1,     "relu", 0.1, 0.2, 0.15, 0.2, 1,  "mbart"};

static void bart_tie(void *config, int tied) { (void)config, (void)tied; }

// Buckets for more distances than texts are long, and for fewer.
static const GxT5Config t5_config = {61, 36,           5,   40,   LAYERS, LAYERS, 6,  8,   6, 0, 1,
                                     0,  "gated-gelu", 0.2, 1e-6, 1,      0,      -1, "t5"};

static void t5_tie(void *config, int tied) { ((GxT5Config *)config)->tie_word_embeddings = tied; }

// Sources of 1 to SOURCE_T tokens, padded; targets without padding, of whose labels some do not count.
static void fill_targets(const Layout *l, GxBatch *b, const int64_t *sample, int32_t *room)
{
    enum { N = T * MAX_COLUMNS };
    const Arrays a = arrays_in(room);
    GxBatch *s = (GxBatch *)(room + 16 * N);
    int32_t *tokens = room + 19 * N, *positions = room + 20 * N, *own = room + 21 * N, *reads = room + 23 * N,
            *read_by = room + 25 * N;
    assert(sizeof *s <= 3 * N * sizeof *room);
    memset(s, 0, sizeof *s);
    memset(own, 0, 6 * N * sizeof *own); // and reads, and read_by
    for (int64_t row = 0; row < T * b->B; row++) {
        const int32_t length = 1 + (int32_t)(draw(sample[row % b->B], 0, 5) % SOURCE_T);
        const int64_t t = row / b->B;
        a.positions[row] = (int32_t)t + GX_BART_FIRST_POSITION, reads[2 * row + 1] = length;
        if (t >= SOURCE_T) continue;
        tokens[row] = (int32_t)(draw(sample[row % b->B], t, 6) % 61);
        positions[row] = (int32_t)t + GX_BART_FIRST_POSITION;
        if (t < length) own[2 * row + 1] = length, read_by[2 * row + 1] = T;
    }
    s->tokens = tokens, s->positions = positions, s->documents = own, s->T = SOURCE_T, s->B = b->B;
    s->runs = gx_runs_one(SOURCE_T, 0), s->number = b->number, s->window_sample = b->window_sample;
    b->positions = a.positions, b->reads = reads, b->read_by = read_by, b->source = s;
    GxTarget *target = &b->target[0];
    for (int64_t row = 0; row < T * b->B; row++) {
        const int32_t label = label_at(l, sample[row % b->B], row / b->B);
        if (label != GX_IGNORE_INDEX) a.rows[0][target->n] = (int32_t)row, a.labels[0][target->n++] = label;
    }
    target->rows = a.rows[0], target->labels = a.labels[0];
}

// ---- subjects ------------------------------------------------------------------------------------------------------

#define BERT  &gx_bert, sizeof bert_config, &bert_config, bert_tie
#define LLAMA &gx_llama, sizeof model_config, &model_config, llama_tie
static TestSubject pretraining =
                       {BERT, {GX_HEAD_MASKED, 1, 0, GX_CROSS_ENTROPY, NULL, 0}, 2, 61, 1, 0, fill_pretraining},
                   masked = {BERT, {GX_HEAD_MASKED, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 61, 1, 0, fill_texts},
                   labels = {BERT, {GX_HEAD_LABELS, 0, 3, GX_CROSS_ENTROPY, NULL, 0}, 1, 3, 1, 0, fill_labels},
                   several = {BERT, {GX_HEAD_LABELS, 0, 3, GX_BINARY_CROSS_ENTROPY, NULL, 0}, 1, 3, 3, 0, fill_values},
                   numbers = {BERT, {GX_HEAD_LABELS, 0, 3, GX_SQUARED_ERROR, NULL, 0}, 1, 3, 3, 0, fill_values},
                   texts = {LLAMA, {GX_HEAD_CAUSAL, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 61, 1, 0, fill_texts},
                   scores = {LLAMA, {GX_HEAD_LABELS, 0, 3, GX_CROSS_ENTROPY, NULL, 0}, 1, 3, 1, 0, fill_scores},
                   vectors = {BERT, {GX_HEAD_VECTORS, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 36, 1, 0, fill_vectors},
                   firsts = {BERT, {GX_HEAD_VECTORS, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 36, 1, 0, fill_first_tokens};
static TestSubject targets = {
    &gx_bart, sizeof bart_config, &bart_config, bart_tie, {GX_HEAD_CAUSAL, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 61, 1,
    0,        fill_targets};
#define BERT_LIKE(config) &gx_bert, sizeof config, &config, bert_tie
static TestSubject translations = {
    &gx_bart, sizeof mbart_config, &mbart_config, bart_tie, {GX_HEAD_CAUSAL, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 61, 1,
    0,        fill_targets};
static TestSubject t5_targets = {
    &gx_t5, sizeof t5_config, &t5_config, t5_tie, {GX_HEAD_CAUSAL, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 61, 1,
    0,      fill_targets};
#define GPT2 &gx_gpt2, sizeof gpt2_config, &gpt2_config, gpt2_tie
static TestSubject gpt2_texts = {GPT2, {GX_HEAD_CAUSAL, 0, 0, GX_CROSS_ENTROPY, NULL, 0}, 1, 61, 1, 0, fill_gpt2_texts},
                   gpt2_scores = {
                       GPT2, {GX_HEAD_LABELS, 0, 3, GX_CROSS_ENTROPY, NULL, 0}, 1, 3, 1, 0, fill_gpt2_scores};
static TestSubject roberta_labels = {BERT_LIKE(roberta_config),
                                     {GX_HEAD_LABELS, 0, 3, GX_CROSS_ENTROPY, NULL, 0},
                                     1,
                                     3,
                                     1,
                                     0,
                                     fill_labels},
                   distilled_labels = {BERT_LIKE(distilled_config),
                                       {GX_HEAD_LABELS, 0, 3, GX_CROSS_ENTROPY, NULL, 0},
                                       1,
                                       3,
                                       1,
                                       0,
                                       fill_labels},
                   token_labels = {
                       BERT, {GX_HEAD_TOKEN_LABELS, 0, 3, GX_CROSS_ENTROPY, NULL, 0}, 1, 3, 1, 0, fill_token_labels};
static TestSubject *const subjects[] = {&pretraining, &masked, &labels,  &several, &numbers,
                                        &texts,       &scores, &vectors, &firsts};
static const char *const subject_names[] = {"pre-training",   "masked tokens", "labels",
                                            "several labels", "numbers",       "LLaMA, texts",
                                            "LLaMA, labels",  "vectors",       "vectors of first tokens"};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

__attribute__((constructor)) static void set_depths(void)
{
    roberta_labels.depth = distilled_labels.depth = token_labels.depth = reference_depth_of(36, T, 36, 40, 61, LAYERS);
    gpt2_texts.depth = gpt2_scores.depth = reference_depth_of(36, T, 36, 40, 61, LAYERS);
    t5_targets.depth = targets.depth = translations.depth = 2 * reference_depth_of(36, T + 5 * 36, 36, 40, 61, LAYERS);
    for (int i = 0; i < SUBJECTS; i++)
        subjects[i]->depth = subjects[i]->family == &gx_llama ? test_model_depth(&model_config, T, 0)
                                                              : reference_depth_of(36, T, 36, 40, 61, LAYERS);
}
#endif
