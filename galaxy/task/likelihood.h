// task/likelihood.h: how likely a causal language model takes the ends of texts to be: the sum of the log-probabilities
// of their last tokens, each given all tokens before it.
//
//     gx_likelihood_allocate(g, &l, T);                                // before gx_runner_allocate(g, …)
//     GxScoredText text[] = {{ids, 12, 3, 0, 0}};                  // of 12 tokens the last 3 are scored
//     gx_likelihood_run(g, &l, &forward, text, 1);
//     … text[0].logprob, text[0].is_greedy …
//
// Forward passes without a cache. As many texts as fit share the T positions of a pass (packing.h) without seeing each
// other, so a text's result does not depend on the others, up to rounding. A text's last token is only a label. The
// head computes only the rows whose labels are scored, in chunks. With TP, all ranks that share the model get the
// results.
//
// Memory: 40 T bytes; on a device with memory of its own, 20 T there and 40 T on the host. In addition, the packing of
// the texts (packing.h).
#ifndef GX_LIKELIHOOD_H
#define GX_LIKELIHOOD_H
#include "../data/packing.h"
#include "task.h"
GX_BEGIN

typedef struct {
    const int32_t *ids; // [n]
    int64_t n, scored;  // how many of the last tokens are scored, 1 to n - 1; n - 1 is at most T
    // results
    double logprob; // natural logarithm
    // 1: greedy decoding would yield the scored tokens, each after the right ones. A token that shares the largest
    // logit with another one counts (in bf16 that happens).
    int is_greedy;
} GxScoredText;

typedef struct {
    int64_t T;
    int32_t *block, *host_copy; // tokens [T], documents [T][2], rows [T], labels [T]; their host copy in host memory
    float *losses, *behind, *weights; // [T], of the rows, in host memory
    int64_t *owner;                   // [T] the text that a row belongs to
    GxScoredText *text;
    GxWeighing weighing;
    // Returns 1, on all ranks, to end before the next pass. NULL: never
    int (*stop)(void *user);
    void (*progress)(void *user, int64_t done, int64_t all); // after each pass: numbers of texts. NULL: none
    void *user;
} GxLikelihood;

// Allocates: call it twice, first with a dry arena, then with the real one. T: positions of a pass.
void gx_likelihood_allocate(GxContext *g, GxLikelihood *l, int64_t T);
// For a plan, on a device that does not compute: runs everything that takes memory once.
void gx_likelihood_plan(GxContext *g, GxLikelihood *l, const GxForward *forward);
// The same texts on all ranks. Returns how many passes were run.
int64_t gx_likelihood_run(GxContext *g, GxLikelihood *l, const GxForward *forward, GxScoredText *text, int64_t n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LIKELIHOOD_IMPLEMENTED)
#define GX_LIKELIHOOD_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../ops/loss.h"
#include "../ops/memory.h"

enum { GX__LIKELIHOOD_ARRAYS = 5 }; // of T numbers each; documents are two of them

void gx_likelihood_allocate(GxContext *g, GxLikelihood *l, int64_t T)
{
    const int64_t bytes = GX__LIKELIHOOD_ARRAYS * 4 * T;
    GxArena *host = gx_host_arena(g);
    l->T = T;
    l->block = (int32_t *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, bytes);
    l->host_copy = (int32_t *)gx_host_copy(g, GX_MEM_ACTIVATIONS, l->block, bytes);
    l->losses = (float *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, 4 * T);
    l->behind = (float *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, 4 * T);
    l->weights = (float *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, 4 * T);
    l->owner = (int64_t *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, 8 * T);
}

// The head has computed each row's loss: -log-probability of its label.
static void gx__likelihood_weigh(void *user, const GxBatch *b, int is_training)
{
    (void)is_training;
    GxLikelihood *l = (GxLikelihood *)user;
    for (int64_t r = 0; r < b->target[0].n; r++) {
        GxScoredText *text = &l->text[l->owner[r]];
        text->logprob -= (double)l->losses[r];
        text->is_greedy &= l->behind[r] == 0;
        l->losses[r] = l->weights[r] = 0; // no loss and no gradient
    }
}

static GxBatch gx__likelihood_batch(GxLikelihood *l, int64_t T, int64_t rows)
{
    GxBatch b = GX_ZERO;
    int32_t *const at[] = {l->block, l->host_copy};
    b.T = T, b.B = 1, b.runs = gx_runs_one(T, 0);
    b.tokens = at[0], b.documents = at[0] + l->T;
    b.target[0].rows = at[0] + 3 * l->T, b.target[0].rows_host = at[1] + 3 * l->T;
    b.target[0].labels = at[0] + 4 * l->T, b.target[0].labels_host = at[1] + 4 * l->T;
    b.target[0].n = rows, b.target[0].most = l->T;
    l->weighing.losses = l->losses, l->weighing.weights = l->weights, l->weighing.behind = l->behind;
    l->weighing.weigh = gx__likelihood_weigh, l->weighing.user = l;
    b.target[0].weighing = &l->weighing;
    return b;
}

void gx_likelihood_plan(GxContext *g, GxLikelihood *l, const GxForward *forward)
{
    const GxBatch b = gx__likelihood_batch(l, l->T, l->T);
    forward->run(g, forward->user, &b, NULL);
}

// Puts a text, all but its last token, into positions [at, …). *rows: how many are scored so far.
static int64_t gx__likelihood_put(GxLikelihood *l, int64_t number, int64_t at, int64_t *rows)
{
    const GxScoredText *text = &l->text[number];
    const int64_t n = text->n - 1;
    int32_t *tokens = l->host_copy, *documents = tokens + l->T, *row = tokens + 3 * l->T, *labels = tokens + 4 * l->T;
    memcpy(tokens + at, text->ids, (size_t)n * sizeof *tokens);
    for (int64_t t = 0; t < n; t++) {
        documents[2 * (at + t)] = (int32_t)at, documents[2 * (at + t) + 1] = (int32_t)(at + n);
        if (t < n - text->scored) continue;
        row[*rows] = (int32_t)(at + t), labels[*rows] = text->ids[t + 1];
        l->owner[(*rows)++] = number;
    }
    return n;
}

static void gx__likelihood_pass(GxContext *g, GxLikelihood *l, const GxForward *forward, const GxPacking *p, int64_t s)
{
    int64_t T = 0, rows = 0;
    for (int64_t i = p->begin[s]; i < p->begin[s + 1]; i++) T += gx__likelihood_put(l, p->text[i], T, &rows);
    const GxBatch b = gx__likelihood_batch(l, T, rows);
    gx_to_device(g, l->block, l->host_copy, GX__LIKELIHOOD_ARRAYS * 4 * l->T);
    forward->run(g, forward->user, &b, NULL);
}

static GxStatus gx__likelihood_pack(GxContext *g, const GxLikelihood *l, GxPacking *p, int64_t n)
{
    int64_t *length = (int64_t *)malloc((size_t)(n + 1) * sizeof *length);
    GxStatus status = length ? GX_OK : GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory to pack %ld texts", (long)n);
    for (int64_t i = 0; i < n && status == GX_OK; i++) {
        length[i] = l->text[i].n - 1;
        if (length[i] < 1 || length[i] > l->T || l->text[i].scored < 1 || l->text[i].scored > length[i])
            status = GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                             "text %ld has %ld tokens, of which %ld are scored; expected 2 to %ld tokens, of which at "
                             "most all but the first are scored",
                             (long)i, (long)l->text[i].n, (long)l->text[i].scored, (long)l->T + 1);
    }
    if (status == GX_OK) status = gx_packing_make(p, length, n, l->T, &g->error);
    free(length);
    return status;
}

int64_t gx_likelihood_run(GxContext *g, GxLikelihood *l, const GxForward *forward, GxScoredText *text, int64_t n)
{
    GxPacking p = GX_ZERO;
    int64_t done = 0, s = 0;
    l->text = text;
    if (gx_failed(g) || n == 0 || gx__likelihood_pack(g, l, &p, n) != GX_OK) return 0;
    for (int64_t i = 0; i < n; i++) text[i].logprob = 0, text[i].is_greedy = 1;
    for (; s < p.samples && !gx_failed(g) && !(l->stop && l->stop(l->user)); s++) {
        gx__likelihood_pass(g, l, forward, &p, s);
        done += p.begin[s + 1] - p.begin[s];
        if (l->progress) l->progress(l->user, done, n);
    }
    gx_packing_close(&p);
    return s;
}
#endif
