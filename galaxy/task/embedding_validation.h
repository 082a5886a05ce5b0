// task/embedding_validation.h: keeps the vectors of held-out texts, and ranks each anchor's positive among them.
#ifndef GX_EMBEDDING_VALIDATION_H
#define GX_EMBEDDING_VALIDATION_H
#include "embedding_texts.h"
GX_BEGIN

void gx_embedding_fetch(GxContext *g, GxEmbeddingTask *c, const GxBatch *b); // copies the batch's vectors to the host
void gx_embedding_gather(GxContext *g, GxEmbeddingTask *c);                  // those of all ranks, on all of them
// Members of GxTask.
void gx_embedding_see(GxContext *g, void *self, const GxBatch *b);
int gx_embedding_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_VALIDATION_IMPLEMENTED)
#define GX_EMBEDDING_VALIDATION_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../model/vectors.h"
#include "../ops/memory.h"
#include "../parallel/stage_messages.h"
#include "embedding_batch.h"
#include "scores.h"

// Copies the vectors of batch b to the host.
void gx_embedding_fetch(GxContext *g, GxEmbeddingTask *c, const GxBatch *b)
{
    const GxRows some = gx_some_rows(c->vectors, 0, b->target[0].n);
    if (!c->host_copy) c->host_copy = (float *)malloc((size_t)gx_rows_bytes(c->vectors) + 1);
    if (!c->host_copy) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for vectors of %ld texts", (long)c->vectors.rows);
    if (!gx_failed(g) && some.rows) gx_to_host(g, c->host_copy, some.data, gx_rows_bytes(some));
}

static void gx__embedding_forget(GxContext *g, GxEmbeddingTask *c)
{
    const size_t bytes = (size_t)(c->held_out.n * c->width) * sizeof(float);
    if (!c->known) c->known = (int32_t *)malloc((size_t)c->held_out.n * sizeof *c->known);
    for (int k = 0; k < 2; k++) {
        if (!c->found[k]) c->found[k] = (float *)malloc(bytes);
        if (c->found[k]) memset(c->found[k], 0, bytes);
    }
    if (c->known) memset(c->known, 0, (size_t)c->held_out.n * sizeof *c->known);
    if (!c->known || !c->found[0] || !c->found[1])
        GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for vectors of %ld records", (long)c->held_out.n);
}

typedef struct {
    GxEmbeddingTask *c;
    int64_t i; // index of the batch's text
} gx__EmbeddingReader;

static void gx__embedding_keep(void *user, int k, int64_t group, int64_t column, int64_t begin)
{
    gx__EmbeddingReader *r = (gx__EmbeddingReader *)user;
    const int64_t C = r->c->width, i = r->i++;
    (void)column, (void)begin;
    if (k < 2) memcpy(r->c->found[k] + group * C, r->c->host_copy + i * C, (size_t)C * sizeof(float));
    r->c->known[group] = 1;
}

void gx_embedding_see(GxContext *g, void *self, const GxBatch *b)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    gx__EmbeddingReader reader = {c, 0};
    if (!b) gx__embedding_forget(g, c);
    if (!b || gx_failed(g) || !gx_has_head(g)) return;
    gx_embedding_fetch(g, c, b);
    if (!gx_failed(g) && b->target[0].n) gx_embedding_each(&c->held_out, b, 0, c->columns, gx__embedding_keep, &reader);
}

void gx_embedding_gather(GxContext *g, GxEmbeddingTask *c)
{
    gx_at(g, -1, "vectors");
    for (int k = 0; k < 2; k++) gx_stage_sum_results(g, c->found[k], c->held_out.n * c->width, GX_F32);
    gx_stage_sum_results(g, c->known, c->held_out.n, GX_I32);
}

typedef struct {   // of the records of a validation
    int64_t n;     // records whose vectors are known; 0: vectors are not finite, or there is only one record
    int64_t *rank; // [n] ranks of their positives
    double *loss;  // [n]
    int64_t *same; // [n] hashes of their positives
} gx__EmbeddingRanks;

static GxStatus gx__embedding_open_ranks(gx__EmbeddingRanks *r, int64_t all, GxError *err)
{
    r->n = 0;
    r->rank = (int64_t *)malloc((size_t)all * sizeof *r->rank);
    r->loss = (double *)malloc((size_t)all * sizeof *r->loss);
    r->same = (int64_t *)malloc((size_t)all * sizeof *r->same);
    if (r->rank && r->loss && r->same) return GX_OK;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory to rank %ld records", (long)all);
}

// Ranks the positives. Moves the known vectors to the front of c->found.
static void gx__embedding_rank(GxContext *g, const GxEmbeddingTask *c, gx__EmbeddingRanks *r)
{
    const int64_t C = c->width;
    GxError unsound = GX_ZERO; // vectors that are not finite do not end the run
    for (int64_t i = 0; i < c->held_out.n; i++) {
        const char *text = gx_embedding_positive(&c->held_out, i);
        if (!c->known[i]) continue;
        for (int k = 0; k < 2; k++) memmove(c->found[k] + r->n * C, c->found[k] + i * C, (size_t)C * sizeof(float));
        r->same[r->n++] = (int64_t)gx_hash(GX_HASH_START, text, (int64_t)strlen(text));
    }
    const GxCosines x = {c->found[0], c->found[1], r->n, r->n, C, r->same};
    if (r->n < 2 ||
        gx_rank_and_loss_by_cosine(&x, (double)GX_COSINE_SCALE, gx_threads(g), r->rank, r->loss, &unsound) != GX_OK)
        r->n = 0;
}

// Warns if --max_eval_samples leaves only one pair to validate.
static void gx__embedding_warn_of_one(GxContext *g, GxEmbeddingTask *c, int64_t pairs)
{
    if (pairs != 1 || c->has_warned || g->rank) return;
    c->has_warned = 1;
    gx_log(&g->log, GX_LOG_WARNING,
           "a validation of one pair has nothing to rank its positive among, and says nothing; increase "
           "--max_eval_samples "
           "(0: all samples)");
}

int gx_embedding_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    static const struct {
        int64_t first;
        const char *name, *format;
    } recalls[] = {
        {1, "recall_1", "recall of the first %.4f"}, {5, "recall_5", "of 5 %.4f"}, {10, "recall_10", "of 10 %.4f"}};
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    GxMetric loss = {"loss", "loss %.4f", NAN, -1}, mrr = {"mrr", "mrr %.4f", NAN, 1};
    gx__EmbeddingRanks r = GX_ZERO;
    if (losses) gx_embedding_gather(g, c);
    if (gx_failed(g) || c->held_out.per < 2) return 0;
    if (losses && gx__embedding_open_ranks(&r, c->held_out.n, &g->error) == GX_OK) gx__embedding_rank(g, c, &r);
    if (losses) gx__embedding_warn_of_one(g, c, losses->count[0]);
    if (r.n > 0) loss.value = 0, mrr.value = gx_ranking_of_ranks(r.rank, r.n, 1).mrr;
    for (int64_t i = 0; i < r.n; i++) loss.value += r.loss[i] / (double)r.n;
    metric[0] = loss, metric[1] = mrr;
    for (int i = 0; i < 3; i++) {
        const GxMetric recall = {recalls[i].name, recalls[i].format,
                                 r.n > 0 ? gx_ranking_of_ranks(r.rank, r.n, recalls[i].first).recall : NAN, 1};
        metric[2 + i] = recall;
    }
    free(r.rank), free(r.loss), free(r.same);
    return 5;
}
#endif
