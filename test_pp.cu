// test_pp.cu: a model whose units are on the ranks of a pipeline, against the same on one stage, bit for bit: losses,
// norms, every gradient, weights and moments after steps of SGD and AdamW, a validation whose micro-batches are under
// way at once. In every order that runs, with uneven stages, in modes, with data-parallel ranks, tuned in every way, of
// every family. Where a matrix that two stages have is trained, sums are in another order: within the bounds of serial,
// and both copies have the same bits.
#include "test/subjects.h"

typedef struct {
    const char *what;
    int pp, dp, tp, micro;
    int16_t stage[5]; // in halves of a layer of a model of 2: the embedding 0, 1; layers 2 to 5; the head 6, 7
    const GxMode *mode;
    TestSubject *subject; // NULL: a LLaMA
    const char *freeze;
    int tied, lora, bottleneck, side, prompt, quantize, wide; // as in Layout
    int order, defers, recomputes, bucket, starts_sums, normed;
    int sharded, each; // GxSharded, among data-parallel ranks; 1: scattered in each micro-batch
    int copies;        // of tensors that stages share, on all ranks of a pipeline
    GxDtype dtype;
    const GxStepsSchedule *schedule; // NULL: the generators'
} Case;

static const Case cases[] = {
    {.what = "2 stages", .pp = 2, .micro = 3, .stage = {0, 4, 8}},
    {.what = "2 stages, all forwards first, layers computed again",
     .pp = 2,
     .micro = 3,
     .stage = {0, 6, 8},
     .order = GX_ORDER_GPIPE,
     .recomputes = 1},
    {.what = "3 stages, the embedding alone, one micro-batch", .pp = 3, .micro = 1, .stage = {0, 2, 4, 8}},
    {.what = "4 stages, the head alone", .pp = 4, .micro = 3, .stage = {0, 2, 4, 6, 8}},
    {.what = "3 stages, zb1p", .pp = 3, .micro = 3, .stage = {0, 4, 6, 8}, .order = GX_ORDER_ZB1P, .defers = 1},
    {.what = "2 stages, zb1p, computed again, bf16",
     .pp = 2,
     .micro = 3,
     .stage = {0, 4, 8},
     .order = GX_ORDER_ZB1P,
     .defers = 1,
     .recomputes = 1,
     .dtype = GX_BF16},
    {.what = "weight halves at the end, Qwen3", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .defers = 1, .normed = 1},
    {.what = "2 stages x dp 2, buckets", .pp = 2, .dp = 2, .micro = 2, .stage = {0, 4, 8}, .bucket = 1},
    {.what = "3 stages x dp 2, buckets that are started",
     .pp = 3,
     .dp = 2,
     .micro = 2,
     .stage = {0, 2, 6, 8},
     .bucket = 1,
     .starts_sums = 1},
    {.what = "2 stages x tp 2", .pp = 2, .tp = 2, .micro = 2, .stage = {0, 4, 8}, .mode = &gx_tp},
    {.what = "3 stages x tp 2, sp", .pp = 3, .tp = 2, .micro = 2, .stage = {0, 4, 6, 8}, .mode = &gx_sp},
    {.what = "2 stages x tp 3, galaxy", .pp = 2, .tp = 3, .micro = 2, .stage = {0, 4, 8}, .mode = &gx_galaxy},
    {.what = "2 stages x tp 2, galaxy2, zb1p",
     .pp = 2,
     .tp = 2,
     .micro = 3,
     .stage = {0, 6, 8},
     .mode = &gx_galaxy2,
     .order = GX_ORDER_ZB1P,
     .defers = 1},
    {.what = "interleaved", .pp = 2, .micro = 2, .stage = {0, 2, 4, 6, 8}, .order = GX_ORDER_INTERLEAVED},
    {.what = "interleaved x dp 2 x tp 2, the head's stage has a layer",
     .pp = 2,
     .dp = 2,
     .tp = 2,
     .micro = 2,
     .stage = {0, 1, 3, 5, 8},
     .mode = &gx_sp,
     .order = GX_ORDER_INTERLEAVED,
     .side = 1},
    {.what = "zbv", .pp = 2, .micro = 3, .stage = {0, 2, 4, 6, 8}, .order = GX_ORDER_ZBV, .defers = 1},
    {.what = "zbv, LoRA, ZeRO 3",
     .pp = 2,
     .dp = 2,
     .micro = 3,
     .stage = {0, 2, 4, 6, 8},
     .lora = 3,
     .sharded = 3,
     .order = GX_ORDER_ZBV,
     .defers = 1},
    {.what = "interleaved, BERT, ZeRO 2",
     .pp = 2,
     .dp = 2,
     .micro = 2,
     .stage = {0, 2, 4, 6, 8},
     .subject = &pretraining,
     .sharded = 2,
     .order = GX_ORDER_INTERLEAVED},
    {.what = "the lower stage frozen",
     .pp = 2,
     .micro = 2,
     .stage = {0, 4, 8},
     .freeze = "model.embed_tokens.weight,model.layers.0.*"},
    {.what = "a stage in the middle frozen", .pp = 3, .micro = 2, .stage = {0, 2, 4, 8}, .freeze = "model.layers.0.*"},
    {.what = "LoRA", .pp = 3, .micro = 2, .stage = {0, 2, 4, 8}, .lora = 3},
    {.what = "LoRA of ranks that differ", .pp = 3, .micro = 2, .stage = {0, 2, 4, 8}, .lora = 14},
    {.what = "LoRA on the embedding, weight halves at the end",
     .pp = 2,
     .micro = 2,
     .stage = {0, 4, 8},
     .lora = 5,
     .defers = 1},
    {.what = "QLoRA x tp 2",
     .pp = 2,
     .tp = 2,
     .micro = 2,
     .stage = {0, 4, 8},
     .mode = &gx_tp,
     .lora = 1,
     .quantize = 2},
    {.what = "adapters", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .bottleneck = 2},
    {.what = "a side network", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .side = 1},
    {.what = "a side network, a stage that is passed by", .pp = 4, .micro = 2, .stage = {0, 3, 4, 6, 8}, .side = 2},
    {.what = "spelled out, computed again",
     .pp = 3,
     .micro = 3,
     .stage = {0, 2, 4, 8},
     .recomputes = 1,
     .schedule = &gx_pp},
    {.what = "spelled out, a stage that is passed by",
     .pp = 4,
     .micro = 3,
     .stage = {0, 3, 4, 6, 8},
     .side = 2,
     .schedule = &gx_pp},
    {.what = "prompts x tp 2", .pp = 2, .tp = 2, .micro = 2, .stage = {0, 4, 8}, .mode = &gx_galaxy, .prompt = 2},
    {.what = "BERT, pre-training", .pp = 3, .micro = 2, .stage = {0, 4, 6, 8}, .subject = &pretraining},
    {.what = "BERT, labels, zb1p",
     .pp = 2,
     .micro = 2,
     .stage = {0, 4, 8},
     .subject = &labels,
     .order = GX_ORDER_ZB1P,
     .defers = 1},
    {.what = "BERT, pairs of numbers, x dp 2", .pp = 2, .dp = 2, .micro = 2, .stage = {0, 2, 8}, .subject = &numbers},
    {.what = "vectors x dp 2", .pp = 2, .dp = 2, .micro = 2, .stage = {0, 4, 8}, .subject = &vectors},
    {.what = "texts that share a column", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .subject = &texts},
    {.what = "tied, the matrix frozen, bf16",
     .pp = 2,
     .micro = 2,
     .stage = {0, 4, 8},
     .tied = 1,
     .freeze = "model.embed_tokens.weight",
     .dtype = GX_BF16},
    {.what = "tied, LoRA on the embedding", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .tied = 1, .lora = 5},
    {.what = "tied, LoRA on both ends, 3 stages", .pp = 3, .micro = 2, .stage = {0, 2, 6, 8}, .tied = 1, .lora = 8},
    {.what = "tied, QLoRA x dp 2",
     .pp = 2,
     .dp = 2,
     .micro = 2,
     .stage = {0, 4, 8},
     .tied = 1,
     .lora = 1,
     .quantize = 2},
    {.what = "tied, adapters", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .tied = 1, .bottleneck = 2},
    {.what = "tied, a side network", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .tied = 1, .side = 3},
    {.what = "tied, prompts", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .tied = 1, .prompt = 4},
};
enum { CASES = sizeof cases / sizeof *cases };

// The head's norm is on all rows, and not summed over tp; the matrix is.
static GxMode whole_con;
__attribute__((constructor)) static void make_whole_con(void)
{
    GxMethods m = gx_methods(GX_METHOD_TP, GX_METHOD_NONE, GX_METHOD_TP);
    m.ends = GX_METHOD_SP;
    whole_con = gx_composed("whole_con", m);
}

// The matrix of both ends is trained.
static const Case tied_cases[] = {
    {.what = "2 stages", .pp = 2, .micro = 3, .stage = {0, 4, 8}},
    {.what = "2 stages, spelled out", .pp = 2, .micro = 3, .stage = {0, 4, 8}, .schedule = &gx_pp},
    {.what = "4 stages, the ends alone, gpipe, layers computed again",
     .pp = 4,
     .micro = 3,
     .stage = {0, 2, 4, 6, 8},
     .order = GX_ORDER_GPIPE,
     .recomputes = 1},
    {.what = "3 stages, zb1p, the rest of both ends frozen",
     .pp = 3,
     .micro = 3,
     .stage = {0, 4, 6, 8},
     .order = GX_ORDER_ZB1P,
     .defers = 1,
     .freeze = "model.norm.weight,model.layers.0.*"},
    {.what = "2 stages x dp 3, buckets that are started",
     .pp = 2,
     .dp = 3,
     .micro = 2,
     .stage = {0, 6, 8},
     .bucket = 1,
     .starts_sums = 1},
    {.what = "interleaved x dp 2",
     .pp = 2,
     .dp = 2,
     .micro = 2,
     .stage = {0, 2, 4, 6, 8},
     .order = GX_ORDER_INTERLEAVED},
    {.what = "zbv, whose first rank has both ends, x dp 2",
     .pp = 2,
     .dp = 2,
     .micro = 3,
     .stage = {0, 2, 4, 6, 8},
     .order = GX_ORDER_ZBV,
     .defers = 1},
    {.what = "2 stages x tp 2", .pp = 2, .tp = 2, .micro = 2, .stage = {0, 4, 8}, .mode = &gx_tp},
    {.what = "3 stages x tp 2, sp", .pp = 3, .tp = 2, .micro = 2, .stage = {0, 4, 6, 8}, .mode = &gx_sp},
    {.what = "2 stages x tp 3, galaxy", .pp = 2, .tp = 3, .micro = 2, .stage = {0, 4, 8}, .mode = &gx_galaxy},
    {.what = "2 stages x tp 2, galaxy2", .pp = 2, .tp = 2, .micro = 2, .stage = {0, 4, 8}, .mode = &gx_galaxy2},
    {.what = "BERT, pre-training", .pp = 2, .micro = 2, .stage = {0, 4, 8}, .subject = &pretraining},
    {.what = "BERT x tp 2, sp",
     .pp = 3,
     .tp = 2,
     .micro = 2,
     .stage = {0, 2, 6, 8},
     .mode = &gx_sp,
     .subject = &pretraining},
    {.what = "x dp 2 x tp 2, which sums all of one end and some of the other",
     .pp = 2,
     .dp = 2,
     .tp = 2,
     .micro = 1,
     .stage = {0, 4, 8},
     .mode = &whole_con},
    {.what = "BART x dp 2 x tp 2, which sums some of the first end alone",
     .pp = 2,
     .dp = 2,
     .tp = 2,
     .micro = 1,
     .stage = {0, 4, 8},
     .mode = &whole_con,
     .subject = &targets,
     .copies = 1},
    {.what = "2 stages x dp 2, ZeRO 1", .pp = 2, .dp = 2, .micro = 2, .stage = {0, 4, 8}, .wide = 1, .sharded = 1},
    {.what = "2 stages x dp 3, ZeRO 2, each micro-batch",
     .pp = 2,
     .dp = 3,
     .micro = 2,
     .stage = {0, 4, 8},
     .wide = 1,
     .sharded = 2,
     .each = 1},
    {.what = "3 stages x dp 2, ZeRO 3, zb1p",
     .pp = 3,
     .dp = 2,
     .micro = 3,
     .stage = {0, 2, 6, 8},
     .sharded = 3,
     .order = GX_ORDER_ZB1P,
     .defers = 1},
    // of units 0 to 7: embedding, 2 layers, the encoder's end, the decoder's embedding, 2 layers, head
    {.what = "BART, an encoder and a decoder",
     .pp = 2,
     .micro = 3,
     .stage = {0, 4, 8},
     .subject = &targets,
     .copies = 1},
    {.what = "BART, spelled out, layers computed again, x dp 2, buckets",
     .pp = 3,
     .dp = 2,
     .micro = 3,
     .stage = {0, 2, 6, 8},
     .subject = &targets,
     .recomputes = 1,
     .bucket = 2,
     .schedule = &gx_pp,
     .copies = 2},
    {.what = "BART, the head alone, gpipe",
     .pp = 4,
     .micro = 2,
     .stage = {0, 4, 6, 7, 8},
     .subject = &targets,
     .order = GX_ORDER_GPIPE,
     .copies = 2},
    {.what = "BART, interleaved x tp 2, galaxy2",
     .pp = 2,
     .tp = 2,
     .micro = 2,
     .stage = {0, 2, 4, 6, 8},
     .mode = &gx_galaxy2,
     .subject = &targets,
     .order = GX_ORDER_INTERLEAVED,
     .copies = 1},
    {.what = "BART x dp 2, ZeRO 2, each micro-batch",
     .pp = 3,
     .dp = 2,
     .micro = 2,
     .stage = {0, 3, 5, 8},
     .subject = &targets,
     .wide = 1,
     .sharded = 2,
     .each = 1,
     .copies = 2},
    {.what = "mBART x tp 2, galaxy",
     .pp = 3,
     .tp = 2,
     .micro = 2,
     .stage = {0, 4, 6, 8},
     .mode = &gx_galaxy,
     .subject = &translations,
     .copies = 2},
    {.what = "mBART x tp 3, tp",
     .pp = 2,
     .tp = 3,
     .micro = 1,
     .stage = {0, 6, 8},
     .mode = &gx_tp,
     .subject = &translations,
     .copies = 1},
    {.what = "T5, an encoder and a decoder",
     .pp = 2,
     .micro = 3,
     .stage = {0, 4, 8},
     .subject = &t5_targets,
     .copies = 2},
    {.what = "T5 x tp 2, sp",
     .pp = 3,
     .tp = 2,
     .micro = 2,
     .stage = {0, 2, 6, 8},
     .mode = &gx_sp,
     .subject = &t5_targets,
     .copies = 5},
    {.what = "T5 x tp 2",
     .pp = 3,
     .tp = 2,
     .micro = 2,
     .stage = {0, 4, 6, 8},
     .mode = &gx_tp,
     .subject = &t5_targets,
     .copies = 4},
    {.what = "T5 x dp 2, ZeRO 3, spelled out",
     .pp = 3,
     .dp = 2,
     .micro = 2,
     .stage = {0, 4, 6, 8},
     .subject = &t5_targets,
     .sharded = 3,
     .schedule = &gx_pp,
     .copies = 4},
    {.what = "3 stages x tp 2, sp, whose ranks share, ZeRO 3",
     .pp = 3,
     .tp = 2,
     .micro = 2,
     .stage = {0, 4, 6, 8},
     .mode = &gx_sp,
     .wide = 1,
     .sharded = 3},
};
enum { TIED_CASES = sizeof tied_cases / sizeof *tied_cases };

// Units of the model: between embedding and head layers, or of a side network Down alone, layers and side layers.
static void cut(const Case *c, int16_t stage[6])
{
    const int is_seq2seq = c->subject == &targets || c->subject == &translations || c->subject == &t5_targets,
              units = is_seq2seq ? 2 * LAYERS + 4
                      : c->side  ? 2 * LAYERS + 3
                                 : LAYERS + 2;
    for (int s = 0; s <= c->pp * gx_order_info(c->order)->chunks; s++)
        stage[s] = (int16_t)((c->stage[s] * units + 4) / 8);
}

static Layout layout_of(const Case *c)
{
    Layout l;
    memset(&l, 0, sizeof l);
    snprintf(l.what, sizeof l.what, "%s", c->what);
    l.mode = c->mode ? c->mode : &test_serial;
    l.dp = (int)gx_max(c->dp, 1), l.tp = (int)gx_max(c->tp, 1), l.micro = c->micro;
    for (int r = 0; r < l.dp; r++) l.samples[r] = 2 + r;
    l.lora = c->lora, l.bottleneck = c->bottleneck, l.side = c->side, l.prompt = c->prompt;
    l.quantize = c->quantize, l.normed = c->normed, l.tied = c->tied, l.wide = c->wide;
    return l;
}

// Everything that a rank of the pipeline has against what the rank of one stage in its place has.
static void check_rank(const Case *c, int r, const Result *a, const Result *b)
{
    const GxTable *table = &a->model->m.table;
    int rows = 0;
    CHECK(!a->error[0] && !b->error[0], "%s: rank %d: %s%s", c->what, r, a->error, b->error);
    CHECK(!memcmp(a->labels, b->labels, sizeof a->labels), "%s: rank %d: %ld labels, not %ld", c->what, r,
          (long)a->labels[0], (long)b->labels[0]);
    for (int s = 0; s < STEPS; s++)
        CHECK(a->loss[s] == b->loss[s] && a->norm[s] == b->norm[s],
              "%s: rank %d, step %d: loss %.17g %.17g, norm %.17g %.17g", c->what, r, s, a->loss[s], b->loss[s],
              a->norm[s], b->norm[s]);
    CHECK(a->validation == b->validation, "%s: rank %d: validation %.17g, not %.17g", c->what, r, a->validation,
          b->validation);
    if (a->logits)
        CHECK(!memcmp(a->logits, b->logits, (size_t)(gx_min(c->micro, SHOWN) * a->columns * outputs_of()) * 4),
              "%s: rank %d: logits", c->what, r);
    for (int i = 0; i < table->n; i++) {
        const int64_t at = test_flat(a->model, i), there = test_flat(b->model, i),
                      bytes = 4 * gx_tensor_count(&table->row[i]);
        if (at < 0 || table->row[i].has_alias) continue;
        rows++;
        for (int k = 0; k < BUFFERS; k++)
            CHECK(!memcmp(a->flat.all[k] + at, b->flat.all[k] + there, (size_t)bytes), "%s: rank %d: buffer %d of %s",
                  c->what, r, k, table->row[i].name);
    }
    const int trained = gx_store_trains_unit(&a->model->m.store, a->model->m.store.units.begin[0]);
    CHECK(rows > 0 || !trained, "%s: rank %d has nothing that is trained", c->what, r);
}

static void wish_case(const Case *c)
{
    test_subject = c->subject, test_dtype = c->dtype;
    test_request.freeze = c->freeze;
    test_request.again = c->recomputes ? test_layers_again : NULL, test_request.spec.defers_weights = c->defers;
    test_request.spec.bucket = c->bucket, test_request.spec.starts_sums = c->starts_sums;
    test_request.sharded = (GxSharded)c->sharded, test_request.spec.shard_grads_in_window = c->each;
}

// The rank's list is the one that the schedule writes. Returns 1 if the generators' is another one.
static int check_list(const Case *c, int r, const GxSteps *s)
{
    GxSteps written, made;
    GxError err = GX_ZERO;
    CHECK(gx_steps_write(&written, c->schedule, &s->spec, &err) == GX_OK, "%s: %s", c->what, err.message);
    CHECK(gx_steps_make(&made, &s->spec, &err) == GX_OK, "%s: %s", c->what, err.message);
    const size_t bytes = (size_t)s->n * sizeof *s->action;
    CHECK(written.n == s->n && !memcmp(written.action, s->action, bytes), "%s: rank %d runs another list", c->what, r);
    const int differ = made.n != s->n || memcmp(made.action, s->action, bytes);
    gx_steps_close(&written), gx_steps_close(&made);
    return differ;
}

// Batches follow each other through the stages: nothing comes back before all have passed.
static void check_overlap(const Case *c, int r, const Result *result)
{
    const GxRecorder *e = &result->evaluation;
    int messages = 0, results = 0;
    for (int64_t i = 0; i < e->n; i++) {
        const GxEvent *x = &e->event[i];
        const int is_result = x->site && !strcmp(x->site, "results");
        if (x->kind != GX_EVENT_COLLECTIVE || x->axes != GX_AXIS_PP) continue;
        CHECK(is_result || !results, "%s: rank %d: batch %d waits for the results of others", c->what, r, messages);
        messages += !is_result, results += is_result;
    }
    CHECK(messages >= gx_min(c->micro, SHOWN) || c->dtype == GX_BF16, "%s: rank %d: %d messages", c->what, r, messages);
}

// nccl: the pipeline's ranks move what they send by NCCL.
static void check_case(const Case *c, int nccl)
{
    Rank one[MAX_RANKS], pipeline[MAX_RANKS];
    int16_t stage[6];
    Layout l = layout_of(c);
    cut(c, stage);
    wish_case(c);
    run_ranks(&l, one);
    l.pp = c->pp;
    test_request.spec.stage = stage, test_request.spec.order = c->order, test_request.spec.schedule = c->schedule;
    test_uses_nccl = nccl;
    run_ranks(&l, pipeline);
    test_uses_nccl = 0;
    for (int r = 0; r < ranks_of(&l); r++) {
        check_rank(c, r, &pipeline[r].result, &one[r % (l.dp * l.tp)].result);
        check_overlap(c, r, &pipeline[r].result);
    }
    int differ = 0;
    for (int r = 0; r < ranks_of(&l) && c->schedule; r++)
        differ += check_list(c, r, &pipeline[r].result.model->r.train);
    CHECK(!c->schedule || !c->side || differ, "%s: no rank's list tells the schedule from the generators", c->what);
    free_ranks(&l, pipeline);
    l.pp = 0;
    free_ranks(&l, one);
    memset(&test_request, 0, sizeof test_request);
    test_subject = NULL, test_dtype = GX_F32;
}

TEST(a_pipeline_has_the_bits_of_one_stage)
{
    for (int i = 0; i < CASES; i++)
        if (test_share(i)) check_case(&cases[i], 0);
#ifdef GX_WITH_CUDA
    for (int i = 0; i < CASES && test_has_nccl(); i += 9) check_case(&cases[i], 1);
#endif
}

// The copies that another stage has of the first one's tensors: their gradients, and whatever came of them. Returns how
// many there are.
static int check_copies(const Case *c, int r, const Result *first, const Result *last)
{
    const GxTable *table = &first->model->m.table;
    int copies = 0;
    for (int i = 0; i < table->n; i++) {
        if (!table->row[i].has_alias || gx_store_is_alias(&last->model->m.store, i)) continue;
        const int64_t at = test_flat(first->model, table->row[i].alias.index), copy = test_flat(last->model, i);
        const size_t bytes = 4 * (size_t)gx_tensor_count(&table->row[i]);
        copies++;
        CHECK(at >= 0 && copy >= 0, "%s: %s is not trained", c->what, table->row[i].name);
        for (int k = c->sharded ? 1 : 0; k < BUFFERS; k++)
            CHECK(!memcmp(first->flat.all[k] + at, last->flat.all[k] + copy, bytes),
                  "%s: rank %d: buffer %d of %s is not the first stage's", c->what, r, k, table->row[i].name);
    }
    return copies;
}

static void check_tied(const Case *c, int nccl)
{
    Rank rank[MAX_RANKS];
    Result serial;
    int16_t stage[6];
    Layout l = layout_of(c);
    l.tied = 1;
    cut(c, stage);
    wish_case(c);
    run_serial(&l, &serial);
    l.pp = c->pp;
    test_request.spec.stage = stage, test_request.spec.order = c->order, test_request.spec.schedule = c->schedule;
    test_uses_nccl = nccl;
    run_ranks(&l, rank);
    test_uses_nccl = 0;
    const Worst w = compare_ranks(&l, rank, &serial);
    if (w.ratio > test_state.worst) test_state.worst = w.ratio;
    CHECK(w.ratio >= 0 && w.ratio <= 1, "%s: %s is %.3g times its bound away from serial", c->what, w.what, w.ratio);
    for (int r = 0; r < l.dp * l.tp; r++) {
        const int expected = c->copies ? c->copies : !gx_order_info(c->order)->is_v;
        int copies = 0;
        for (int s = 1; s < c->pp; s++)
            copies += check_copies(c, r, &rank[r].result, &rank[s * l.dp * l.tp + r].result);
        CHECK(copies == expected, "%s: rank %d: stages have %d copies of tensors, expected %d", c->what, r, copies,
              expected);
    }
    free_ranks(&l, rank);
    free_result(&serial);
    memset(&test_request, 0, sizeof test_request);
    test_subject = NULL, test_dtype = GX_F32;
}

TEST(a_matrix_that_two_stages_have_stays_one)
{
    for (int i = 0; i < TIED_CASES; i++)
        if (test_share(i)) check_tied(&tied_cases[i], 0);
#ifdef GX_WITH_CUDA
    for (int i = 0; i < TIED_CASES && test_has_nccl(); i += 4) check_tied(&tied_cases[i], 1);
#endif
}

// Stages that the model has not, or that nothing says; two stages of a rank.
TEST(pipelines_that_do_not_run_are_refused)
{
    static const struct {
        int rank, order;
        int16_t stage[5];
        const char *says;
    } cases[] = {
        {0, 0, {0, 2, 4}, "unit 2 of the model is here, and rank 1 of the pipeline's"},
        {1, 0, {0, 2, 4}, "unit 0 of the model is here, and rank 0 of the pipeline's"},
        {0, GX_ORDER_ZBV, {0, 1, 2, 3, 4}, "rank 0 of the pipeline has the head, and the mesh says rank 1"},
        {0, 0, {0, 2, 3}, "the stages have 3 units, and the model 4"},
        {0, 0, {-1}, "a pipeline of 2 ranks, and nothing says which units each has"},
        {0, 0, {0, 4, 4}, "a cache of layers' outputs on 2 stages"},
    };
    static const int dims[GX_MESH_AXES] = {2, 1, 1, 1, 1};
    TestModel t;
    if (!test_model_open(&t, &model_config, &test_serial, T, 1, 7, NULL, 1)) return;
    GxContext g = t.g;
    GxMesh mesh;
    for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
        GxRunner r;
        const GxUnitCache cache = GX_ZERO;
        GxRunnerSpec spec = GX_ZERO;
        spec.cache = strstr(cases[k].says, "a cache") ? &cache : NULL;
        spec.order = cases[k].order, spec.stage = cases[k].stage[0] < 0 ? NULL : cases[k].stage;
        gx_mesh_open(&mesh, dims, cases[k].rank, 2, &g.error);
        g.mesh = &mesh, g.rank = cases[k].rank, g.world = 2;
        CHECK(gx_runner_open(&g, &r, &t.m, &t.o, &spec) != GX_OK && strstr(g.error.message, cases[k].says), "%u: %s", k,
              g.error.message);
        gx_error_clear(&g.error);
        gx_runner_close(&r);
    }
    test_model_close(&t);
}

// Keys and values are kept of a stage's own layers.
TEST(a_stage_has_the_cache_of_its_own_layers)
{
    static const int units[3][2] = {{0, 2}, {2, LAYERS + 2}, {0, 0}}; // two stages; all
    int64_t bytes[3] = {0};
    for (int k = 0; k < 3; k++) {
        TestModel *t = (TestModel *)calloc(1, sizeof *t);
        GxKvCache *cache = (GxKvCache *)calloc(1, sizeof *cache);
        GxArena dry;
        t->request.first_unit = units[k][0], t->request.last_unit = units[k][1];
        if (!test_model_open_split(t, &model_config, &test_serial, T, 1, 7, NULL, 1, 1, NULL)) return;
        GxContext g = t->g;
        gx_arena_open_dry(&dry);
        g.arena = &dry;
        gx_kv_cache_allocate(&g, cache, &t->m, T, 2, NULL);
        bytes[k] = gx_kv_cache_bytes(cache);
        CHECK(!gx_failed(&g) && bytes[k] > 0, "stage %d: %ld bytes; %s", k, (long)bytes[k], g.error.message);
        test_model_close(t);
        free(t), free(cache);
    }
    CHECK(bytes[0] + bytes[1] == bytes[2] && bytes[0] == bytes[1], "stages have %ld and %ld bytes, one rank %ld",
          (long)bytes[0], (long)bytes[1], (long)bytes[2]);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
