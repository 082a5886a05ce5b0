// test_shards.cu: ranks that share units (ZeRO 1 to 3, FSDP, HSDP) against the same ranks with whole units, bit for bit:
// losses, norms, every gradient, weights and moments after steps of SGD and AdamW, a validation. In modes, with stages,
// uneven shares, tuned in every way, of every family.
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
    int order, puts_off, recomputes, normed;
    GxDtype dtype;
    int weights_only; // ZeRO 3 alone
} Case;

static const Case cases[] = {
    {.what = "2 ranks", .dp = 2, .micro = 2},
    {.what = "2 ranks, matrices of several blocks", .dp = 2, .micro = 1, .wide = 1},
    {.what = "4 ranks, uneven shares", .dp = 4, .micro = 1, .wide = 1, .shares = {3, 1, 1, 2}},
    {.what = "3 ranks, bf16, layers computed again",
     .dp = 3,
     .micro = 2,
     .wide = 1,
     .dtype = GX_BF16,
     .recomputes = 1,
     .gathered = 1},
    {.what = "2 ranks, tied", .dp = 2, .micro = 2, .tied = 1, .gathered = 2},
    {.what = "2 ranks, every unit whole at once", .dp = 2, .micro = 2, .gathered = 9},
    {.what = "weight halves at the end, Qwen3", .dp = 2, .micro = 2, .puts_off = 1, .normed = 1},
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
     .puts_off = 1,
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
    {.what = "LoRA", .dp = 2, .micro = 2, .lora = 3, .wide = 1},
    {.what = "LoRA on the embedding, weight halves at the end", .dp = 2, .micro = 2, .lora = 5, .puts_off = 1},
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
    {.what = "a side network", .dp = 2, .micro = 2, .side = 1},
    {.what = "prompts x tp 2", .dp = 2, .tp = 2, .micro = 2, .mode = &gx_galaxy, .prompt = 2},
    {.what = "BERT, pre-training, tied", .dp = 2, .micro = 2, .tied = 1, .subject = &pretraining},
    {.what = "BERT, labels, x tp 2", .dp = 2, .tp = 2, .micro = 2, .mode = &gx_tp, .subject = &labels},
    {.what = "vectors", .dp = 2, .micro = 2, .subject = &vectors},
};
enum { CASES = sizeof cases / sizeof *cases };

static Layout layout_of(const Case *c)
{
    Layout l;
    memset(&l, 0, sizeof l);
    snprintf(l.what, sizeof l.what, "%s", c->what);
    l.mode = c->mode ? c->mode : &test_serial;
    l.dp = c->dp, l.tp = (int)gx_max(c->tp, 1), l.pp = c->pp, l.micro = c->micro;
    for (int r = 0; r < l.dp; r++) l.samples[r] = 2 + r;
    l.wide = c->wide, l.tied = c->tied, l.lora = c->lora, l.bottleneck = c->bottleneck, l.side = c->side;
    l.prompt = c->prompt, l.quantize = c->quantize, l.normed = c->normed;
    return l;
}

// Of the gradients a rank has its part.
static void check_gradient(const char *what, int r, const Result *a, const Result *b, int row)
{
    const GxStore *s = &a->model->m.store;
    const GxRange mine = gx_store_my_trained(s, row);
    const int64_t at = test_flat(a->model, row) + mine.begin, there = test_flat(b->model, row) + mine.begin;
    if (gx_range_count(mine))
        CHECK(!memcmp(a->flat.all[0] + at, b->flat.all[0] + there, 4 * (size_t)gx_range_count(mine)),
              "%s: rank %d: its gradient of %s", what, r, s->table->row[row].name);
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
        check_gradient(what, r, a, b, i);
        for (int k = 1; k < BUFFERS; k++)
            CHECK(!memcmp(a->flat.all[k] + test_flat(a->model, i), b->flat.all[k] + test_flat(b->model, i),
                          4 * (size_t)gx_tensor_count(&table->row[i])),
                  "%s: rank %d: buffer %d of %s", what, r, k, table->row[i].name);
    }
}

// Every element of every unit is one rank's of those that share it, and each has about its share.
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
    test_wish.freeze = c->freeze;
    test_wish.spec.recomputes_layers = c->recomputes, test_wish.spec.puts_off_weights = c->puts_off;
    test_wish.spec.stage = c->pp ? stages[c->pp] : NULL, test_wish.spec.order = c->order;
    test_wish.sharded = (GxSharded)sharded, test_wish.replicate = c->replicate;
    test_wish.spec.shard_grads_in_window = sharded ? c->each : 0;
    test_wish.spec.gathered_units = c->gathered;
    test_wish.shares.part = c->shares, test_wish.shares.n = c->shares[0] && sharded ? c->dp : 0;
    run_ranks(&l, rank);
    memset(&test_wish, 0, sizeof test_wish);
}

static void check_case(const Case *c)
{
    Rank whole[MAX_RANKS], shares[MAX_RANKS];
    Layout l = layout_of(c);
    run_case(c, 0, whole);
    for (int sharded = 1; sharded <= 3; sharded++) {
        char what[200];
        snprintf(what, sizeof what, "%s, ZeRO %d", c->what, sharded);
        run_case(c, sharded, shares);
        check_parts(what, &l, shares);
        for (int r = 0; r < ranks_of(&l); r++) check_rank(what, r, &shares[r].result, &whole[r].result);
        free_ranks(&l, shares);
    }
    free_ranks(&l, whole);
    test_subject = NULL, test_dtype = GX_F32;
}

TEST(ranks_that_share_units_have_the_bits_of_those_with_whole_ones)
{
    for (int i = 0; i < CASES; i++)
        if (test_share(i)) check_case(&cases[i]);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
