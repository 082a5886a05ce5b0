// test_shards.cu: ranks that share units (ZeRO 1 to 3, FSDP, HSDP) against the same ranks with whole units, bit for
// bit: losses, norms, every gradient, weights and moments after steps of SGD and AdamW, a validation. In modes, with
// stages, uneven shares, tuned in every way, of every family.
#include "test/test.h"
// the second sees what became of the first: whole weights that are old; of a card's graphs, which are not kept in the
// first, captured in the third, the fourth sees that they are launched without their host code
#ifdef GX_WITH_CUDA
#define TEST_STEPS 4
#else
#define TEST_STEPS (TEST_IS_SANITIZED ? 1 : 2)
#endif
#include "test/subjects.h"

typedef struct {
    const char *what;
    int dp, tp, pp, replicate, micro;
    int64_t shares[MAX_RANKS]; // of the ranks that share; 0: even
    int each, gathered;        // gradients are scattered in each micro-batch; units that are whole at once
    const GxMode *mode;
    TestSubject *subject; // NULL: a LLaMA
    const char *freeze;
    int wide, tied, lora, bottleneck, side, prompt, quantize; // as in Layout
    int order, defers, recomputes, normed;
    GxDtype dtype;
    int graphs; // what units compute is captured, on a card
} Case;

static const Case cases[] = {
    {.what = "2 ranks", .dp = 2, .micro = 2, .graphs = 1},
    {.what = "2 ranks, matrices of several blocks", .dp = 2, .micro = 1, .wide = 1},
    {.what = "4 ranks, uneven shares", .dp = 4, .micro = 1, .wide = 1, .shares = {3, 1, 1, 2}},
    {.what = "3 ranks, bf16, layers computed again",
     .dp = 3,
     .micro = 2,
     .wide = 1,
     .dtype = GX_BF16,
     .recomputes = 1,
     .gathered = 1},
    {.what = "2 ranks, tied", .dp = 2, .micro = 2, .tied = 1, .gathered = 2, .graphs = 1},
    {.what = "2 ranks, every unit whole at once", .dp = 2, .micro = 2, .gathered = 9},
    {.what = "weight halves at the end, Qwen3", .dp = 2, .micro = 2, .defers = 1, .normed = 1},
    {.what = "x tp 2", .dp = 2, .tp = 2, .micro = 2, .wide = 1, .mode = &gx_tp},
    {.what = "x tp 3, whose shares of K,V overlap", .dp = 2, .tp = 3, .micro = 1, .mode = &gx_galaxy},
    {.what = "x tp 2, sp, which share, too", .dp = 2, .tp = 2, .micro = 2, .wide = 1, .mode = &gx_sp},
    {.what = "tp 3 alone, sp", .dp = 1, .tp = 3, .micro = 2, .wide = 1, .mode = &gx_sp},
    {.what = "x tp 2, galaxy2, LoRA", .dp = 2, .tp = 2, .micro = 1, .mode = &gx_galaxy2, .lora = 2},
    {.what = "x 2 stages", .dp = 2, .pp = 2, .micro = 3, .wide = 1},
    {.what = "x 3 stages, zb1p, one unit whole",
     .dp = 2,
     .pp = 3,
     .micro = 3,
     .order = GX_ORDER_ZB1P,
     .defers = 1,
     .gathered = 1},
    {.what = "x 2 stages, tied", .dp = 2, .pp = 2, .micro = 2, .tied = 1, .wide = 1},
    {.what = "x 2 stages x tp 2 that share, tied",
     .dp = 1,
     .tp = 2,
     .pp = 2,
     .micro = 2,
     .tied = 1,
     .wide = 1,
     .mode = &gx_sp},
    {.what = "a frozen embedding and layer",
     .dp = 2,
     .micro = 2,
     .freeze = "model.embed_tokens.weight,model.layers.0.*"},
    {.what = "some of packed matrices frozen",
     .dp = 2,
     .micro = 2,
     .wide = 1,
     .freeze = "*.k_proj.weight,*.gate_proj.weight,*layernorm*"},
    {.what = "LoRA", .dp = 2, .micro = 2, .lora = 3, .wide = 1, .graphs = 1},
    {.what = "LoRA of ranks that differ", .dp = 2, .micro = 2, .lora = 14, .wide = 1},
    {.what = "LoRA on the embedding, weight halves at the end", .dp = 2, .micro = 2, .lora = 5, .defers = 1},
    {.what = "QLoRA x tp 2", .dp = 2, .tp = 2, .micro = 2, .mode = &gx_tp, .lora = 1, .quantize = 2},
    {.what = "QLoRA, uneven shares, bf16",
     .dp = 3,
     .micro = 1,
     .shares = {1, 4, 2},
     .lora = 3,
     .quantize = 3,
     .wide = 1,
     .dtype = GX_BF16},
    {.what = "adapters", .dp = 2, .micro = 2, .bottleneck = 2},
    {.what = "a side network", .dp = 2, .micro = 2, .side = 1, .graphs = 1},
    {.what = "prompts x tp 2", .dp = 2, .tp = 2, .micro = 2, .mode = &gx_galaxy, .prompt = 2},
    {.what = "BERT, pre-training, tied", .dp = 2, .micro = 2, .tied = 1, .subject = &pretraining},
    {.what = "BERT, labels, x tp 2", .dp = 2, .tp = 2, .micro = 2, .mode = &gx_tp, .subject = &labels},
    {.what = "vectors", .dp = 2, .micro = 2, .subject = &vectors},
    {.what = "x tp 2, sp, which share unevenly",
     .dp = 2,
     .tp = 2,
     .micro = 1,
     .wide = 1,
     .shares = {3, 1},
     .mode = &gx_sp},
};
enum { CASES = sizeof cases / sizeof *cases };

static Layout layout_of(const Case *c)
{
    Layout l;
    memset(&l, 0, sizeof l);
    snprintf(l.what, sizeof l.what, "%s", c->what);
    l.mode = c->mode ? c->mode : &test_serial;
    l.dp = c->dp, l.tp = (int)gx_max(c->tp, 1), l.pp = c->pp, l.micro = c->micro;
    for (int r = 0; r < l.dp; r++) l.samples[r] = 1 + r % 3;
    l.wide = c->wide, l.tied = c->tied, l.lora = c->lora, l.bottleneck = c->bottleneck, l.side = c->side;
    l.prompt = c->prompt, l.quantize = c->quantize, l.normed = c->normed;
    return l;
}

static void check_rank(const char *what, int r, const Result *a, const Result *b)
{
    const GxTable *table = &a->model->m.table;
    CHECK(!a->error[0] && !b->error[0], "%s: rank %d: %s%s", what, r, a->error, b->error);
    CHECK(!memcmp(a->labels, b->labels, sizeof a->labels), "%s: rank %d: labels", what, r);
    for (int s = 0; s < STEPS; s++)
        CHECK(a->loss[s] == b->loss[s] && a->norm[s] == b->norm[s],
              "%s: rank %d, step %d: loss %.17g %.17g, norm %.17g %.17g", what, r, s, a->loss[s], b->loss[s],
              a->norm[s], b->norm[s]);
    CHECK(a->validation == b->validation, "%s: rank %d: validation %.17g, not %.17g", what, r, a->validation,
          b->validation);
    if (a->logits)
        CHECK(!memcmp(a->logits, b->logits, (size_t)(a->columns * outputs_of()) * 4), "%s: rank %d: logits", what, r);
    for (int i = 0; i < table->n; i++) {
        if (test_flat(a->model, i) < 0 || table->row[i].has_alias) continue;
        for (int k = 0; k < BUFFERS; k++)
            CHECK(!memcmp(a->flat.all[k] + test_flat(a->model, i), b->flat.all[k] + test_flat(b->model, i),
                          4 * (size_t)gx_tensor_count(&table->row[i])),
                  "%s: rank %d: buffer %d of %s", what, r, k, table->row[i].name);
    }
}

// In front of each cut of a unit is what the ranks in front should have of its bytes, to half a block of the norm; and
// shards are aligned as the whole is.
static void check_shares(const char *what, const Case *c, const Layout *l, const GxStore *s)
{
    enum { SLACK = 8192 }; // bytes, of gaps between tensors
    const int64_t of_weights = s->sharded == GX_SHARDS_WEIGHTS ? gx_dtype_size(s->dtype) : 0;
    for (int u = 0; u < s->table->units; u++) {
        const GxStorePart *part[2] = {&s->unit[u].weights, &s->unit[u].trained};
        const GxSplit weights = gx_shards_split(s, u, GX_SHARD_WEIGHTS),
                      trained = gx_shards_split(s, u, GX_SHARD_TRAINED);
        const int n = trained.n, inner = n * (int)gx_max(c->replicate, 1) / l->dp;
        const int64_t all = of_weights * weights.begin[n] + 16 * trained.begin[n];
        int64_t shares = 0, front = 0;
        for (int r = 0; r < n; r++) shares += c->shares[0] ? c->shares[r / inner] : 1;
        for (int r = 0; r < n; front += c->shares[0] ? c->shares[r / inner] : 1, r++) {
            const int64_t has = of_weights * weights.begin[r] + 16 * trained.begin[r], wanted = all * front / shares;
            CHECK(llabs((long long)(has - wanted)) <= GX_SQUARES_BLOCK / 2 * (of_weights + 16) + SLACK,
                  "%s: unit %d: %ld bytes are in front of rank %d, not %ld", what, u, (long)has, r, (long)wanted);
        }
        for (int k = 0; k < 2; k++)
            CHECK(part[k]->at % GX_ALIGN == part[k]->mine.begin % GX_ALIGN, "%s: unit %d, %d: begins at %ld of %ld",
                  what, u, k, (long)part[k]->at, (long)part[k]->mine.begin);
    }
}

// Every element of every unit is one rank's of those that share it.
static void check_parts(const char *what, const Layout *l, const Rank *rank)
{
    const GxStore *first = &rank[0].result.model->m.store;
    for (int u = 0; u < first->table->units; u++)
        for (int k = 0; k < 2; k++) {
            int64_t all = 0, mine = 0;
            for (int r = 0; r < ranks_of(l); r++) {
                const GxStore *s = &rank[r].result.model->m.store;
                const GxStorePart *p = k ? &s->unit[u].trained : &s->unit[u].weights;
                const int shared = gx_shards_axes(s, u) & GX_AXIS_TP ? 1 : l->tp;
                mine += gx_range_count(p->mine) * (k || s->sharded == GX_SHARDS_WEIGHTS ? 1 : 0);
                all += gx_range_count(p->all) * shared;
            }
            all /= l->dp * l->tp; // each has whole units
            if (k || first->sharded == GX_SHARDS_WEIGHTS)
                CHECK(mine == all, "%s: unit %d, %d: ranks have %ld of %ld elements", what, u, k, (long)mine,
                      (long)all);
        }
}

static void run_case(const Case *c, int sharded, Rank *rank)
{
    static const int16_t stages[4][5] = {{0}, {0, 4}, {0, 2, 4}, {0, 2, 3, 4}};
    Layout l = layout_of(c);
    test_subject = c->subject, test_dtype = c->dtype;
    test_request.freeze = c->freeze;
    test_request.again = c->recomputes ? test_layers_again : NULL, test_request.spec.defers_weights = c->defers;
    test_request.spec.stage = c->pp ? stages[c->pp] : NULL, test_request.spec.order = c->order;
    test_request.sharded = (GxSharded)sharded, test_request.replicate = c->replicate;
    test_request.spec.shard_grads_in_window = sharded ? c->each : 0;
    test_request.spec.gathered_units = c->gathered;
    test_request.spec.keeps_graphs = c->graphs;
    test_request.shares.part = c->shares, test_request.shares.n = c->shares[0] && sharded ? c->dp : 0;
    run_ranks(&l, rank);
    memset(&test_request, 0, sizeof test_request);
}

// With ZeRO 3 and the other, 1 or 2. nccl: the ranks that share move what they do by NCCL.
static void check_case(const Case *c, int other, int nccl)
{
    Rank whole[MAX_RANKS], shares[MAX_RANKS];
    Layout l = layout_of(c);
    run_case(c, 0, whole);
    for (int sharded = other; sharded <= 3; sharded += 3 - other) {
        char what[200];
        snprintf(what, sizeof what, "%s, ZeRO %d", c->what, sharded);
        test_uses_nccl = nccl;
        run_case(c, sharded, shares);
        test_uses_nccl = 0;
        check_parts(what, &l, shares);
        for (int r = 0; r < ranks_of(&l); r++) check_shares(what, c, &l, &shares[r].result.model->m.store);
        for (int r = 0; r < ranks_of(&l); r++) check_rank(what, r, &shares[r].result, &whole[r].result);
        free_ranks(&l, shares);
    }
    free_ranks(&l, whole);
    test_subject = NULL, test_dtype = GX_F32;
}

// What adds up in another order than ranks with whole units: copies of ranks that share; gradients that are scattered
// in each micro-batch. Against one rank.
static const Case near[] = {
    {.what = "2 copies of 2 ranks", .dp = 4, .replicate = 2, .micro = 2, .wide = 1},
    {.what = "2 copies of 2 ranks, scattered in each micro-batch", .dp = 4, .replicate = 2, .micro = 2, .each = 1},
    {.what = "scattered in each micro-batch, tied", .dp = 3, .micro = 3, .each = 1, .tied = 1},
    {.what = "scattered in each, 2 stages, zb1p",
     .dp = 2,
     .pp = 2,
     .micro = 3,
     .each = 1,
     .order = GX_ORDER_ZB1P,
     .defers = 1},
    {.what = "2 copies of 1 rank x tp 2, sp", .dp = 2, .tp = 2, .replicate = 2, .micro = 2, .mode = &gx_sp},
    {.what = "scattered in each, LoRA", .dp = 2, .micro = 2, .each = 1, .lora = 3},
};

static void check_near(const Case *c)
{
    Rank shares[MAX_RANKS];
    Result serial;
    Layout l = layout_of(c);
    test_subject = c->subject;
    run_serial(&l, &serial);
    for (int sharded = 1 + (c->each > 0); sharded <= 3; sharded++) {
        run_case(c, sharded, shares);
        const Worst w = compare_ranks(&l, shares, &serial);
        CHECK(w.ratio <= 1, "%s, ZeRO %d: %g of the bound: %s", c->what, sharded, w.ratio, w.what);
        free_ranks(&l, shares);
    }
    free_result(&serial);
    test_subject = NULL, test_dtype = GX_F32;
}

TEST(copies_of_ranks_that_share_and_scattered_micro_batches_are_near_one_rank)
{
    for (unsigned i = 0; i < sizeof near / sizeof *near; i++)
        if (test_share((int)i)) check_near(&near[i]);
}

TEST(ranks_that_share_units_have_the_bits_of_those_with_whole_ones)
{
    for (int i = 0; i < CASES; i++)
        if (test_share(i)) check_case(&cases[i], 1 + i % 2, 0);
#ifdef GX_WITH_CUDA
    for (int i = 0; i < 7 && test_has_nccl(); i += 6)
        if (test_share(i)) check_case(&cases[i], 1 + i % 2, 1);
#endif
}

// ---- what is sent --------------------------------------------------------------------------------------------------

// Bytes that all ranks send at a site, in the first step.
static int64_t sent_at(const Rank *rank, int ranks, const char *site)
{
    int64_t bytes = 0;
    for (int r = 0; r < ranks; r++) {
        const GxRecorder *e = &rank[r].result.window;
        for (int64_t i = 0; i < e->n; i++)
            if (e->event[i].kind == GX_EVENT_COLLECTIVE && !strcmp(e->event[i].site, site)) bytes += e->event[i].bytes;
    }
    return bytes;
}

// A unit that is gathered, or scattered, is sent by all ranks together as often as there are others. Of a step's
// micro-batches each forward and each backward gathers what it reads, where one unit is whole at a time: but a head has
// no forward of its own, and an embedding's backward looks into no weights.
static void check_sent(const Case *c, int sharded)
{
    Rank rank[MAX_RANKS];
    int64_t weights = 0, grads = 0, ends = 0;
    run_case(c, sharded, rank);
    const GxStore *s = &rank[0].result.model->m.store;
    for (int u = 0; u < s->table->units; u++) {
        const int64_t bytes = 4 * gx_range_count(s->unit[u].weights.all);
        weights += bytes, grads += 4 * gx_range_count(s->unit[u].trained.all);
        if (u == 0 || u == s->table->units - 1) ends += bytes;
    }
    const int64_t others = c->dp - 1, gathers = sharded < 3 ? grads : c->micro * (2 * (weights - ends) + ends),
                  scatters = grads * (c->each ? c->micro : 1), gathered = sent_at(rank, c->dp, "gather"),
                  scattered = sent_at(rank, c->dp, "scatter");
    CHECK(gathered == others * gathers, "%s, ZeRO %d: %ld bytes gathered, not %ld", c->what, sharded, (long)gathered,
          (long)(others * gathers));
    CHECK(scattered == others * scatters, "%s, ZeRO %d: %ld bytes scattered, not %ld", c->what, sharded,
          (long)scattered, (long)(others * scatters));
    const Layout l = layout_of(c);
    free_ranks(&l, rank);
}

TEST(ranks_that_share_send_what_formulas_say)
{
    static const Case sends[] = {
        {.what = "2 ranks", .dp = 2, .micro = 2, .gathered = 1, .wide = 1},
        {.what = "3 ranks, scattered in each micro-batch", .dp = 3, .micro = 3, .each = 1, .gathered = 1},
        {.what = "frozen between trained", .dp = 2, .micro = 1, .gathered = 1, .wide = 1, .freeze = "*.k_proj.weight"},
    };
    for (unsigned i = 0; i < sizeof sends / sizeof *sends; i++)
        for (int sharded = 1 + sends[i].each; sharded <= 3; sharded++) check_sent(&sends[i], sharded);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
