// test_pairs.cu: every pair of options in one training at least, which is serial's: methods, ends, ranks, copies,
// uneven shares, models, tuning, quantised matrices, precisions, lists of the runner. Rows that meet all pairs come
// from test/pairs.h; what a program or a model refuses is in no row, and is shown to be refused.
//
//     ./test_pairs         all rows
//     ./test_pairs 17      row 17 alone
//     GX_TEST_SEED=2       other rows that meet all pairs
//     GX_TEST_SHARE=1/3    of the rows a third, where the test is named: ./test_pairs every_pair
#include "test/pairs.h"
#define TEST_STEPS (TEST_IS_SANITIZED ? 1 : 2)
#include "test/subjects.h"

// ---- factors -------------------------------------------------------------------------------------------------------

enum {
    METHODS, // the triples, then the modes by name
    ENDS,
    RANKS, // of a tp group
    COPIES,
    SPLIT,
    TIED,
    MICRO,
    LABELS,
    MODEL,
    TUNING,
    QUANTIZED,
    PRECISION,
    RECOMPUTED,
    ORDER,
    WEIGHTS,
    BUCKET,
    STAGES,
    SHARED,
    SEQUENCES,
    OVERLAPS,
    FACTORS
};
enum { NOTHING_SPLIT = TRIPLES - 1 }; // the last triple
enum { ENDS_FOLLOW, ENDS_NONE, ENDS_TP, ENDS_SP };
enum { ONE_F_ONE_B, GPIPE, ZB1P };
enum { LAYERS_AGAIN = 2 }; // the last of RECOMPUTED in which no core is
enum {
    LLAMA_ALONE,
    QWEN3,
    MISTRAL,
    SMOLLM3,
    GEMMA3,
    ONE_KV,
    TEXTS,
    LLAMA_LABELS,
    PRETRAINING,
    LABELS_OF_3,
    SEVERAL,
    NUMBERS,
    VECTORS,
    BART,
    T5
};
enum {
    ALL,
    LORA,
    LORA_OF_SOME,
    LORA_OF_EMBEDDING,
    LORA_OF_HEAD,
    ADAPTERS,
    ADAPTERS_AND_NORMS,
    SIDE,
    GATED,
    PROMPTS,
    V2
};

// triples, modes of the list but serial, and what is written by tiles
enum { METHODS_N = TRIPLES + MODES - 1 + TILED };
static const char *methods_names[METHODS_N];
#define NAMES(what, ...) static const char *const what[] = {__VA_ARGS__}
NAMES(ends_names, "ends as they follow", "ends none", "ends tp", "ends sp");
NAMES(ranks_names, "1 rank", "2 ranks", "3 ranks", "4 ranks");
NAMES(copies_names, "1 copy", "2 copies");
NAMES(split_names, "even", "uneven");
NAMES(tied_names, "untied", "tied");
NAMES(micro_names, "1 micro-batch", "2 micro-batches");
NAMES(labels_names, "all labels", "labels of some alone");
NAMES(model_names, "llama", "qwen3", "mistral", "smollm3", "gemma3", "one K,V head", "llama, texts", "llama, labels",
      "bert, pre-training", "bert, labels", "bert, several labels", "bert, numbers", "bert, vectors", "bart", "t5");
NAMES(tuning_names, "all", "lora", "lora of some, norms", "lora of the embedding", "lora of a head", "adapters",
      "adapters, norms", "side", "gated side", "prompts", "scales and biases");
NAMES(quantized_names, "none", "nf4_plain", "nf4", "int8"); // as --quantize calls them, of 1 + GxQuantKind
NAMES(precision_names, "fp32", "bf16");
// as --recompute calls them, of two layers
NAMES(recomputed_names, "none", "layer", "layer:1", "mlp", "att", "att+mlp", "mlp:0,layer:1", "layer:0,att:1");
NAMES(order_names, "1f1b", "gpipe", "zb1p"); // as --pipeline_schedule calls them
NAMES(weights_names, "weights at once", "weights put off");
NAMES(bucket_names, "one sum", "a sum a unit", "a sum a unit, started");
NAMES(shared_names, "nothing shared", "zero 1", "zero 2", "zero 2, in each micro-batch", "zero 3",
      "zero 3, uneven, all whole");
NAMES(sequences_names, "whole sequences", "cp 2", "cp 2, uneven, 2 zigzags", "cp 3",
      "cp 2, uneven, 2 zigzags, by a ring", "cp 3, by a ring");
NAMES(overlaps_names, "communication blocks", "communication overlaps");
NAMES(stages_names, "1 stage", "2 stages", "3 stages, uneven");

#define FACTOR(name, values)                                                                                           \
    {                                                                                                                  \
        name, sizeof values / sizeof *values, values                                                                   \
    }
static const PairsFactor factors[FACTORS] = {
    FACTOR("methods", methods_names),       FACTOR("ends", ends_names),           FACTOR("ranks", ranks_names),
    FACTOR("copies", copies_names),         FACTOR("split", split_names),         FACTOR("tied", tied_names),
    FACTOR("micro-batches", micro_names),   FACTOR("labels", labels_names),       FACTOR("model", model_names),
    FACTOR("tuning", tuning_names),         FACTOR("quantized", quantized_names), FACTOR("precision", precision_names),
    FACTOR("recomputed", recomputed_names), FACTOR("order", order_names),         FACTOR("weights", weights_names),
    FACTOR("bucket", bucket_names),         FACTOR("stages", stages_names),       FACTOR("shared", shared_names),
    FACTOR("sequences", sequences_names),   FACTOR("overlaps", overlaps_names),
};

__attribute__((constructor)) static void name_methods(void)
{
    for (int i = 0; i < TRIPLES; i++) methods_names[i] = test_triple_name[i];
    for (int i = 1; i < MODES; i++) methods_names[TRIPLES + i - 1] = test_modes[i]->name;
    for (int i = 0; i < TILED; i++) methods_names[TRIPLES + MODES - 1 + i] = "galaxy by tiles";
}

static const GxMode *named_mode(const int *row)
{
    const int i = row[METHODS] - TRIPLES + 1;
    return i < MODES ? test_modes[i] : test_tiled[i - MODES];
}

// ---- what there is not ---------------------------------------------------------------------------------------------

static int is(const int *row, int factor, int value) { return row[factor] == value; }
static int is_not(const int *row, int factor, int value) { return row[factor] >= 0 && row[factor] != value; }
static int is_bert(const int *row) { return row[MODEL] >= PRETRAINING && row[MODEL] <= VECTORS; }

enum { MOST_RANKS = 6 }; // that are run at once

// A mode by name has its source's ends; with others it is composed of its triple. Where nothing is split, there is one
// rank to a copy. 2 times 4 ranks are more than MOST_RANKS.
static int allows_ranks(const int *row)
{
    const int follows = is(row, ENDS, ENDS_FOLLOW) || is(row, ENDS, ENDS_NONE);
    if (row[METHODS] >= TRIPLES && is_not(row, ENDS, ENDS_FOLLOW)) return 0;
    if (is(row, METHODS, NOTHING_SPLIT) && follows && is_not(row, RANKS, 0)) return 0;
    if (is(row, RANKS, 0) && (is_not(row, METHODS, NOTHING_SPLIT) || (row[ENDS] >= 0 && !follows))) return 0;
    if (is(row, RANKS, 0) && is(row, COPIES, 0)) return 0;
    return !(is(row, RANKS, 3) && is(row, COPIES, 1));
}

static int is_cp_3(const int *row) { return is(row, SEQUENCES, 3) || is(row, SEQUENCES, 5); }
static int cp_of(const int *row) { return is_cp_3(row) ? 3 : row[SEQUENCES] > 0 ? 2 : 1; }

// Of a sequence that is shared rows stand alone, and each rank of tp has one at least.
static int allows_sequences(const int *row)
{
    if (row[SEQUENCES] <= 0) return 1;
    if (is(row, MODEL, SEVERAL) || is(row, MODEL, NUMBERS) || is(row, MODEL, VECTORS)) return 0;
    return !(is_cp_3(row) && row[RANKS] > 1);
}

// Stages times ranks are MOST_RANKS at most; zb1p has weight halves.
static int allows_stages(const int *row)
{
    const int ranks = cp_of(row) * (row[RANKS] < 0 ? 1 : 1 + row[RANKS]) * (row[COPIES] < 0 ? 1 : 1 + row[COPIES]);
    if (ranks > MOST_RANKS) return 0;
    if (row[STAGES] > 0 && (1 + row[STAGES]) * ranks > MOST_RANKS) return 0;
    if (row[RECOMPUTED] > LAYERS_AGAIN && is(row, WEIGHTS, 1))
        return 0; // what is put off reads what would be computed again
    return !(is(row, ORDER, ZB1P) && is(row, WEIGHTS, 0));
}

// Prompts are a LLaMA's; vectors have no head; what is quantised is not trained.
static int allows_tuning(const int *row)
{
    if (is_bert(row) && (is(row, TUNING, PROMPTS) || is(row, TUNING, V2))) return 0;
    if (is(row, MODEL, VECTORS) && is(row, TUNING, LORA_OF_HEAD)) return 0;
    return !(is(row, TUNING, ALL) && is_not(row, QUANTIZED, 0));
}

static int has_memory(const int *row) { return row[MODEL] >= BART; }

// A model with an encoder and a decoder has whole sequences and weight gradients at once; side networks and prompts are
// not beside it, and its head, but a T5's, is the embedding.
static int allows_memory(const int *row)
{
    if (!has_memory(row)) return 1;
    const int has_own_head = is(row, MODEL, T5) && !is(row, TIED, 1);
    if (row[SEQUENCES] > 0 || row[WEIGHTS] > 0 || is(row, ORDER, ZB1P)) return 0;
    if (is(row, TUNING, LORA_OF_HEAD)) return has_own_head;
    return row[TUNING] <= LORA_OF_SOME || is(row, TUNING, ADAPTERS) || is(row, TUNING, ADAPTERS_AND_NORMS);
}

// Of what ranks share a unit's gradients are summed by themselves.
static int allows_shared(const int *row) { return !(row[SHARED] > 0 && row[BUCKET] > 0); }

static int allows(const int *row)
{
    return allows_ranks(row) && allows_tuning(row) && allows_stages(row) && allows_shared(row) &&
           allows_sequences(row) && allows_memory(row);
}

static const PairsSpec *the_spec(void)
{
    static PairsSpec spec = {factors, FACTORS, allows, 1};
    const char *seed = getenv("GX_TEST_SEED");
    if (seed && seed[0]) spec.seed = strtoull(seed, NULL, 10);
    return &spec;
}

static const Pairs *the_pairs(void)
{
    static Pairs pairs;
    if (!pairs.rows) CHECK(pairs_make(the_spec(), &pairs), "%d rows do not meet all pairs", pairs.rows);
    return &pairs;
}

// ---- rows that are trained -----------------------------------------------------------------------------------------

static TestSubject *subject_of(const int *row)
{
    static TestSubject *const of_model[] = {NULL,     NULL,     NULL,     NULL,         NULL,
                                            NULL,     &texts,   &scores,  &pretraining, &labels,
                                            &several, &numbers, &vectors, &targets,     &t5_targets};
    return of_model[row[MODEL]];
}

// Numbers are 1 + which, of test/parallel.h. A Qwen3's and a Gemma 3's side layers have heads of four numbers: of two,
// a norm leaves one direction, in which there is little but rounding.
static void set_tuning(Layout *l, const int *row)
{
    static const int heads[] = {8, 8, 8, 8, 8, 8, 8, 10, 12, 13, 13, 13, 0, 9, 9};
    const int bert = is_bert(row), bart = is(row, MODEL, BART), t5 = is(row, MODEL, T5);
    switch (row[TUNING]) {
    case LORA: l->lora = 3; break;
    case LORA_OF_SOME: l->lora = bert ? 4 : bart ? 16 : t5 ? 17 : 2; break;
    case LORA_OF_EMBEDDING: l->lora = bert ? 6 : 5; break;
    case LORA_OF_HEAD: l->lora = heads[row[MODEL]]; break;
    case ADAPTERS: l->bottleneck = 1; break;
    case ADAPTERS_AND_NORMS: l->bottleneck = bert ? 3 : bart ? 4 : t5 ? 5 : 2; break;
    case SIDE: l->side = is(row, MODEL, QWEN3) || is(row, MODEL, GEMMA3) ? 3 : 1; break;
    case GATED: l->side = is(row, MODEL, QWEN3) || is(row, MODEL, GEMMA3) ? 3 : 2; break;
    case PROMPTS: l->prompt = 3; break;
    case V2: l->prompt = 5; break;
    default: break;
    }
}

static void set_shares(Layout *l, const int *row)
{
    static const Layout uneven[] = {
        {.samples = {3, 1}},
        {.samples = {3, 1}, .heads = {5, 1}, .columns = {33, 7}, .vocab = {20, 41}, .sequence = {3, 5}},
        {.samples = {1, 3}, .heads = {1, 3, 2}, .columns = {5, 20, 15}, .vocab = {40, 1, 20}, .sequence = {1, 5, 2}},
        {.samples = {4},
         .heads = {1, 1, 3, 1},
         .columns = {10, 3, 20, 7},
         .vocab = {30, 1, 20, 10},
         .sequence = {2, 1, 4, 1}}};
    const Layout *shares = &uneven[row[RANKS]];
    for (int r = 0; r < l->dp; r++) l->samples[r] = l->dp == 1 ? 4 : row[SPLIT] ? shares->samples[r] : 2;
    if (!row[SPLIT]) return;
    memcpy(l->heads, shares->heads, sizeof l->heads), memcpy(l->columns, shares->columns, sizeof l->columns);
    memcpy(l->vocab, shares->vocab, sizeof l->vocab), memcpy(l->sequence, shares->sequence, sizeof l->sequence);
}

static void row_text(const int *row, char *text, size_t size)
{
    int n = 0;
    for (int k = 0; k < FACTORS && n < (int)size; k++)
        n += snprintf(text + n, size - (size_t)n, "%s%s", k ? "; " : "", factors[k].value[row[k]]);
}

static GxMethods methods_of(const int *row)
{
    static const GxMethod ends[] = {GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_TP, GX_METHOD_SP};
    const GxMode *mode = row[METHODS] < TRIPLES ? &test_triples[row[METHODS]] : named_mode(row);
    GxMethods m = mode->methods;
    if (row[ENDS] != ENDS_FOLLOW) m.ends = ends[row[ENDS]];
    return m;
}

static Layout layout_of(const int *row, const GxMode *mode)
{
    Layout l = {.mode = mode, .dp = 1 + row[COPIES], .tp = 1 + row[RANKS], .micro = 1 + row[MICRO]};
    l.pp = 1 + row[STAGES], l.cp = cp_of(row);
    l.ring = row[SEQUENCES] >= 4;
    if (row[SEQUENCES] == 2 || row[SEQUENCES] == 4) l.cp_rows[0] = 5, l.cp_rows[1] = 3, l.zigzags = 2;
    row_text(row, l.what, sizeof l.what);
    l.tied = row[TIED], l.quantize = row[QUANTIZED];
    l.normed = is(row, MODEL, QWEN3), l.unrotated = is(row, MODEL, SMOLLM3), l.gemma = is(row, MODEL, GEMMA3);
    l.window = is(row, MODEL, MISTRAL) || l.unrotated || l.gemma ? 3 : 0;
    l.kv_heads = is(row, MODEL, ONE_KV);
    set_shares(&l, row), set_tuning(&l, row);
    if (row[LABELS] && l.dp > 1) l.no_labels = l.samples[0] < l.samples[1] ? 1 : 2;
    else if (row[LABELS]) l.no_label_begin = 5, l.no_label_end = 8;
    return l;
}

// How far rounding brings the gradients of a serial training in bf16 from those in fp32, as a whole.
static double distance_in_bf16(const Layout *l, const Result *fp32)
{
    Result bf16;
    double error = 0, scale = 0;
    test_dtype = GX_BF16;
    run_serial(l, &bf16);
    CHECK(bf16.n == fp32->n, "%s: %ld and %ld gradients", l->what, (long)bf16.n, (long)fp32->n);
    for (int64_t i = 0; i < bf16.n && i < fp32->n; i++) {
        const double exact = fp32->flat.b.grads[i], off = bf16.flat.b.grads[i] - exact;
        error += off * off, scale += exact * exact;
    }
    free_result(&bf16);
    return sqrt(error / scale);
}

static int zero_of(const int *row) // --zero
{
    static const int zero[] = {0, 1, 2, 2, 3, 3};
    return zero[row[SHARED]];
}

static void wish_shared(const int *row)
{
    static const int64_t uneven[] = {3, 1};
    const int is_last = row[SHARED] == 5;
    test_request.sharded = (GxSharded)zero_of(row), test_request.spec.shard_grads_in_window = row[SHARED] == 3;
    test_request.shares.part = uneven, test_request.shares.n = is_last && row[COPIES] ? 2 : 0;
    test_request.spec.gathered_units = is_last ? GX_MAX_UNITS : 0;
}

// Serial in fp32 keeps all, computes weights at once and sums at the end. In bf16 nothing on a rank is further from it
// than 8 times (as in test_bound) as far as serial in bf16 is, where sums of ranks have as many parts as there are
// ranks, each of them rounded.
static void train_row(const int *row, int number)
{
    static const int orders[] = {GX_ORDER_1F1B, GX_ORDER_GPIPE, GX_ORDER_ZB1P};
    // units of the model: embedding, two layers, head; beside a side network Down alone and two side layers, too; or
    // embedding, two layers and the end of an encoder, and the same of a decoder
    static const int16_t stages[3][3][4] = {
        {{0, 4}, {0, 2, 4}, {0, 1, 3, 4}}, {{0, 7}, {0, 4, 7}, {0, 2, 5, 7}}, {{0, 8}, {0, 4, 8}, {0, 2, 6, 8}}};
    Result serial;
    const GxMode composed = gx_composed("composed", methods_of(row));
    const Layout l = layout_of(row, row[METHODS] < TRIPLES ? &composed : named_mode(row));
    const int failures = test_state.failures;
    test_subject = subject_of(row);
    run_serial(&l, &serial);
    CHECK(serial.norm[0] > 0, "%s: there is no gradient", l.what);
    if (row[PRECISION]) test_bf16_bound = 8 * sqrt(l.tp) * distance_in_bf16(&l, &serial);
    uint8_t again[GX_MAX_UNITS];
    GxError err = GX_ZERO;
    CHECK(gx_recompute_read(recomputed_names[row[RECOMPUTED]], 2, again, &err) == GX_OK, "%s", err.message);
    test_request.again = again, test_request.spec.order = orders[row[ORDER]];
    test_request.spec.stage = stages[has_memory(row) ? 2 : l.side != 0][row[STAGES]];
    test_request.spec.defers_weights = row[WEIGHTS];
    test_request.spec.bucket = row[BUCKET] > 0, test_request.spec.starts_sums = row[BUCKET] > 1;
    test_request.spec.overlaps = row[OVERLAPS];
    wish_shared(row);
    check_ranks(&l, &serial);
    free_result(&serial);
    memset(&test_request, 0, sizeof test_request);
    test_subject = NULL, test_dtype = GX_F32;
    if (test_state.failures > failures) printf("    row %d: ./test_pairs %d runs it alone\n", number, number);
}

static int chosen_row = -1; // of the command line; -1: all

TEST(every_pair_of_options_trains_as_serial)
{
    const Pairs *pairs = the_pairs();
    CHECK(chosen_row < pairs->rows, "there are rows 0 to %d", pairs->rows - 1);
    for (int i = 0; i < pairs->rows; i++)
        if (chosen_row < 0 ? test_share(i) : i == chosen_row) train_row(pairs->row[i], i);
}

// ---- what programs take, and what they refuse ----------------------------------------------------------------------

enum { MOST_ARGS = 60 };
typedef struct {
    char *arg[MOST_ARGS], text[MOST_ARGS][80];
    int n;
} Args;

__attribute__((format(printf, 3, 4))) static void add_option(Args *a, const char *name, const char *format, ...)
{
    va_list args;
    CHECK(a->n + 2 <= MOST_ARGS, "no room for --%s", name);
    snprintf(a->text[a->n], sizeof a->text[0], "--%s", name);
    va_start(args, format);
    vsnprintf(a->text[a->n + 1], sizeof a->text[0], format, args);
    va_end(args);
    a->n += 2;
}

static void add_list(Args *a, const char *name, const int64_t *list, int n)
{
    char text[60] = "";
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%ld", i ? "," : "", (long)list[i]);
    if (list[0]) add_option(a, name, "%s", text);
}

static const char *method_option(GxMethod m) { return m == GX_METHOD_TP ? "tp" : m == GX_METHOD_SP ? "sp" : "none"; }

static void add_mode(Args *a, const int *row)
{
    static const char *const ends[] = {"auto", "none", "tp", "sp"};
    const GxMethods m = methods_of(row);
    if (row[METHODS] >= TRIPLES) {
        add_option(a, "mode", "%s", named_mode(row)->name);
        return;
    }
    add_option(a, "att", "%s", method_option(m.att)), add_option(a, "con", "%s", method_option(m.con));
    add_option(a, "mlp", "%s", method_option(m.mlp)), add_option(a, "ends", "%s", ends[row[ENDS]]);
}

// The lists of what these methods split.
static void add_lists(Args *a, const Layout *l, GxMethods m)
{
    if (m.att == GX_METHOD_TP) add_list(a, "tp_num_attention_heads_list", l->heads, l->tp);
    if (m.mlp == GX_METHOD_TP) add_list(a, "tp_intermediate_size_list", l->columns, l->tp);
    if (m.ends == GX_METHOD_TP) add_list(a, "tp_vocab_size_list", l->vocab, l->tp);
    if (gx_methods_have(m, GX_METHOD_SP)) add_list(a, "seq_scatter_list", l->sequence, l->tp);
}

static void add_tuning(Args *a, const int *row)
{
    static const char *const of_tuning[] = {"full",    "lora", "lora", "lora",   "lora",  "adapter",
                                            "adapter", "side", "side", "prompt", "prompt"};
    if (row[TUNING] != ALL)
        add_option(a, "model", "some/folder"), add_option(a, "tuning", "%s", of_tuning[row[TUNING]]);
    if (row[TUNING] == GATED) add_option(a, "side_mix", "gated");
    if (row[TUNING] == V2) add_option(a, "prompt_variant", "v2");
    if (row[QUANTIZED]) add_option(a, "quantize", "%s", quantized_names[row[QUANTIZED]]);
}

static void args_of(const int *row, Args *a)
{
    const Layout l = layout_of(row, NULL);
    memset(a, 0, sizeof *a);
    a->n = 1; // the program's name
    add_mode(a, row), add_option(a, "tp", "%d", l.tp), add_lists(a, &l, methods_of(row));
    add_option(a, "pp", "%d", l.pp), add_option(a, "cp", "%d", l.cp);
    add_option(a, "cp_method", "%s", l.ring ? "ring" : "gather");
    if (l.cp_rows[0]) add_list(a, "cp_list", l.cp_rows, l.cp), add_option(a, "seq_len", "%d", T);
    if (l.pp > 1) add_option(a, "pipeline_schedule", "%s", order_names[row[ORDER]]);
    if (l.dp > 1) add_list(a, "dp_batch_size_list", l.samples, l.dp);
    add_option(a, "gradient_accumulation_steps", "%d", l.micro);
    add_option(a, "precision", "%s", precision_names[row[PRECISION]]);
    add_option(a, "recompute", "%s", recomputed_names[row[RECOMPUTED]]);
    add_option(a, "reduce_bucket", "%d", row[BUCKET] > 0);
    add_option(a, "zero", "%d", zero_of(row));
    if (row[SHARED] == 3) add_option(a, "shard_grads_in_window", "true");
    add_tuning(a, row);
}

// As a program reads them on the first of `world` ranks: what it says; "" where it takes them. *mode: which it then
// has.
static void said_of(Args *a, int world, GxMode *mode, char said[600])
{
    GxTrainOptions *o = (GxTrainOptions *)calloc(1, sizeof *o);
    GxConfig c;
    GxSplit batch;
    GxError err = GX_ZERO;
    for (int i = 0; i < a->n; i++) a->arg[i] = a->text[i];
    gx_config_open(&c);
    if (gx_options_add(&c, o, NULL, NULL, "llama", &err) == GX_OK &&
        gx_config_read_args(&c, a->n, a->arg, &err) == GX_OK && gx_options_resolve_mode(o, &c, mode, &err) == GX_OK &&
        gx_options_check_lists(o, mode, &err) == GX_OK && gx_options_resolve_mesh(o, &c, mode, world, &err) == GX_OK &&
        gx_tuning_resolve(&o->tuning, &c, o->model, &err) == GX_OK)
        gx_options_resolve_batch(o, &c, (int)(world / o->tp / o->pp / o->cp), &batch, &err);
    snprintf(said, 600, "%s", err.message);
    free(o);
}

TEST(programs_take_the_options_of_every_row)
{
    const Pairs *pairs = the_pairs();
    for (int i = 0; i < pairs->rows; i++) {
        const int *row = pairs->row[i], world = (1 + row[RANKS]) * (1 + row[COPIES]) * (1 + row[STAGES]) * cp_of(row);
        const GxMethods m = methods_of(row);
        GxMode mode = GX_ZERO;
        Args a;
        char said[600], text[400];
        args_of(row, &a), row_text(row, text, sizeof text);
        said_of(&a, world, &mode, said);
        CHECK(!said[0] && !memcmp(&mode.methods, &m, sizeof m), "row %d, %s: \"%s\"", i, text, said);
    }
}

// A row that differs from this in no more than it says.
static void plain_row(int *row)
{
    for (int k = 0; k < FACTORS; k++) row[k] = 0;
    row[RANKS] = 1;
}

TEST(where_nothing_is_split_several_ranks_to_a_copy_are_refused)
{
    for (int methods = 0; methods < METHODS_N; methods++)
        for (int ends = ENDS_FOLLOW; ends <= (methods < TRIPLES ? ENDS_SP : ENDS_FOLLOW); ends++) {
            GxMode mode = GX_ZERO;
            Args a;
            char said[600];
            int row[FACTORS];
            plain_row(row);
            row[METHODS] = methods, row[ENDS] = ends;
            args_of(row, &a), said_of(&a, 2, &mode, said);
            CHECK(allows(row) ? !said[0] : strstr(said, "splits nothing among ranks") != NULL, "%s, %s: \"%s\"",
                  methods_names[methods], ends_names[ends], said);
        }
}

TEST(lists_are_refused_where_their_blocks_are_not_split)
{
    static const char *const lists[][2] = {{"tp_num_attention_heads_list", "5,1"},
                                           {"tp_intermediate_size_list", "33,7"},
                                           {"tp_vocab_size_list", "20,41"},
                                           {"seq_scatter_list", "100,156"}};
    for (int i = 0; i < 4 * METHODS_N; i++) {
        GxMode mode = GX_ZERO;
        Args a;
        char said[600];
        int row[FACTORS];
        plain_row(row);
        row[METHODS] = i / 4;
        if (!allows(row)) continue;
        const GxMethods m = methods_of(row);
        const int splits[] = {m.att == GX_METHOD_TP, m.mlp == GX_METHOD_TP, m.ends == GX_METHOD_TP,
                              gx_methods_have(m, GX_METHOD_SP)};
        args_of(row, &a), add_option(&a, lists[i % 4][0], "%s", lists[i % 4][1]);
        said_of(&a, 2, &mode, said);
        CHECK(splits[i % 4] ? !said[0] : strstr(said, lists[i % 4][0]) != NULL, "%s, --%s: \"%s\"",
              methods_names[i / 4], lists[i % 4][0], said);
    }
}

// Opens the row's model on one rank: what it says; "" where it is well.
static void model_said(const int *row, char said[600])
{
    const Layout l = layout_of(row, &test_serial);
    GxLlamaConfig config = model_config_of(&l);
    TestRequest request = GX_ZERO;
    char other[4096];
    GxContext g = GX_ZERO;
    GxModel m;
    test_subject = subject_of(row);
    wish_subject(&request, &l, other, sizeof other);
    if (row[MODEL] == VECTORS && row[TUNING] == LORA_OF_HEAD) request.lora = &test_loras[12]; // labels have one
    GxModelOptions o = GX_ZERO;
    o.head = request.head, o.adapter = test_adapter(&request), o.quantize = request.quantize;
    g.device = test_device(), g.world = 1;
    gx_model_open(&g, &m, request.family ? request.family : &gx_llama, request.family ? request.config : &config,
                  &test_serial, &o);
    gx_model_close(&m);
    snprintf(said, 600, "%s", g.error.message);
    test_subject = NULL;
}

TEST(a_model_refuses_the_tuning_that_no_row_gives_it_and_takes_the_others)
{
    for (int i = 0; i < factors[MODEL].n * factors[TUNING].n * 2; i++) {
        int row[FACTORS];
        char said[600];
        plain_row(row);
        row[TUNING] = i / 2 % factors[TUNING].n, row[MODEL] = i / 2 / factors[TUNING].n, row[QUANTIZED] = i % 2;
        model_said(row, said);
        const int is_pair = has_memory(row), is_side = row[TUNING] == SIDE || row[TUNING] == GATED;
        const char *expected = row[TUNING] == ALL   ? "nothing to quantize: no matrix of attention or MLP is frozen"
                               : is_pair && is_side ? "a side network beside a model with an encoder"
                               : is_pair && row[TUNING] < SIDE ? "since encoder, decoder and head share it"
                               : row[TUNING] == LORA_OF_HEAD   ? "matches no linear"
                                                               : "use --tuning lora or --tuning adapter";
        CHECK(allows(row) ? !said[0] : strstr(said, expected) != NULL, "%s, %s, %s: \"%s\"", model_names[row[MODEL]],
              tuning_names[row[TUNING]], quantized_names[row[QUANTIZED]], said);
    }
}

TEST(programs_refuse_quantised_matrices_without_an_adapter)
{
    GxMode mode = GX_ZERO;
    Args a;
    char said[600];
    int row[FACTORS];
    for (int q = 1; q < factors[QUANTIZED].n; q++) {
        plain_row(row);
        row[QUANTIZED] = q;
        CHECK(!allows(row), "a row trains quantized matrices");
        args_of(row, &a), said_of(&a, 2, &mode, said);
        CHECK(strstr(said, "--quantize is an option for adapters"), "\"%s\"", said);
    }
}

// ---- the rows themselves -------------------------------------------------------------------------------------------

static uint8_t met[PAIRS_FACTORS][PAIRS_VALUES][PAIRS_FACTORS][PAIRS_VALUES];

static int count_met(const PairsSpec *spec, const Pairs *pairs)
{
    int n = 0;
    memset(met, 0, sizeof met);
    for (int i = 0; i < pairs->rows; i++)
        for (int a = 0; a < spec->n; a++)
            for (int b = a + 1; b < spec->n; b++) {
                uint8_t *m = &met[a][pairs->row[i][a]][b][pairs->row[i][b]];
                n += !*m, *m = 1;
            }
    return n;
}

// Three factors of a row must not have these values together, and two others not these.
static int forbidden_three[3][2], forbidden_two[2][2];
static int allows_some(const int *row)
{
    int three = 1, two = 1;
    for (int i = 0; i < 3; i++) three &= row[forbidden_three[i][0]] == forbidden_three[i][1];
    for (int i = 0; i < 2; i++) two &= row[forbidden_two[i][0]] == forbidden_two[i][1];
    return !three && !two;
}

// All rows that there can be, one by one: which pairs they have.
static int pairs_of_all_rows(const PairsSpec *spec)
{
    int row[PAIRS_FACTORS] = {0}, n = 0;
    static uint8_t seen[PAIRS_FACTORS][PAIRS_VALUES][PAIRS_FACTORS][PAIRS_VALUES];
    memset(seen, 0, sizeof seen);
    for (int k = 0; k < spec->n;) {
        for (int a = 0; a < spec->n && spec->allows(row); a++)
            for (int b = a + 1; b < spec->n; b++) n += !seen[a][row[a]][b][row[b]], seen[a][row[a]][b][row[b]] = 1;
        for (k = 0; k < spec->n && ++row[k] == spec->factor[k].n; k++) row[k] = 0;
    }
    return n;
}

TEST(rows_meet_each_pair_that_can_be_and_none_that_cannot)
{
    static Pairs pairs;
    for (uint64_t seed = 0; seed < 60; seed++) {
        PairsFactor some[5];
        const PairsSpec spec = {some, 5, allows_some, seed};
        for (int k = 0; k < 5; k++)
            some[k].name = "", some[k].n = 2 + (int)(gx_random_bits(31, seed, (uint32_t)k, 0) % 4);
        for (int i = 0; i < 5; i++) {
            int *f = i < 3 ? forbidden_three[i] : forbidden_two[i - 3];
            f[0] = i < 3 ? i : (int)((seed + (uint64_t)i) % 5);
            f[1] = (int)(gx_random_bits(31, seed, (uint32_t)i, 1) % (uint32_t)some[f[0]].n);
        }
        CHECK(pairs_make(&spec, &pairs), "seed %ld: not all pairs are met", (long)seed);
        const int can_be = pairs_of_all_rows(&spec), are_met = count_met(&spec, &pairs);
        CHECK(can_be == are_met && can_be == pairs.pairs, "seed %ld: %d pairs can be, %d are met, %d were counted",
              (long)seed, can_be, are_met, pairs.pairs);
        for (int i = 0; i < pairs.rows; i++)
            CHECK(allows_some(pairs.row[i]), "seed %ld: row %d cannot be", (long)seed, i);
    }
}

TEST(rows_of_options_meet_all_pairs_but_those_that_are_forbidden)
{
    const PairsSpec *spec = the_spec();
    const Pairs *pairs = the_pairs();
    int missing = 0;
    CHECK(count_met(spec, pairs) == pairs->pairs, "%d pairs are met, not %d", count_met(spec, pairs), pairs->pairs);
    for (int i = 0; i < pairs->rows; i++) CHECK(allows(pairs->row[i]), "row %d cannot be", i);
    for (int a = 0; a < FACTORS; a++)
        for (int b = a + 1; b < FACTORS; b++)
            for (int x = 0; x < factors[a].n; x++)
                for (int y = 0; y < factors[b].n; y++) {
                    missing += !met[a][x][b][y];
                    CHECK(met[a][x][b][y] || !pairs_is_allowed(spec, a, x, b, y), "no row has %s and %s",
                          factors[a].value[x], factors[b].value[y]);
                }
    CHECK(missing == pairs->forbidden, "%d pairs are not met, %d are forbidden", missing, pairs->forbidden);
}

// The options of dev's sketch: 22, 5, 5, 4, 3, 3, 3 values and seven times 2.
TEST(a_product_of_millions_has_a_hundred_rows_that_are_the_same_each_time)
{
    static const int n[14] = {22, 4, 3, 2, 2, 2, 2, 5, 5, 3, 2, 2, 3, 2};
    static Pairs one, same, other;
    PairsFactor some[14];
    PairsSpec spec = {some, 14, NULL, 5};
    for (int k = 0; k < 14; k++) some[k].name = "", some[k].n = n[k];
    CHECK(pairs_make(&spec, &one) && pairs_make(&spec, &same), "not all pairs are met");
    CHECK(one.pairs == 1438 && one.rows >= 22 * 5 && one.rows <= 125, "%d pairs, %d rows", one.pairs, one.rows);
    CHECK(!memcmp(&one, &same, sizeof one), "the same seed makes other rows");
    spec.seed = 6;
    CHECK(pairs_make(&spec, &other) && memcmp(&one, &other, sizeof one), "another seed makes the same rows");
}

int main(int argc, char **argv)
{
    static char *of_rows[] = {NULL, (char *)(uintptr_t) "every_pair_of_options_trains", NULL};
    if (argc != 2 || argv[1][strspn(argv[1], "0123456789")] || !argv[1][0]) return test_main(argc, argv);
    chosen_row = atoi(argv[1]), of_rows[0] = argv[0];
    return test_main(2, of_rows);
}
