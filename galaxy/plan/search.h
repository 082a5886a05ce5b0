// plan/search.h: stub
#ifndef GX_SEARCH_H
#define GX_SEARCH_H
#include "assignment.h"
GX_BEGIN
typedef struct {
    const int16_t *rank;
    int n;
    int layers, has_embed, has_head, alive;
    int64_t micro_batch;
} GxStageRequest;
typedef struct {
    double forward, backward, forward_layer, backward_layer, step, grad_bytes;
    int64_t lacks, needs[GX_ASSIGNED_RANKS];
    GxAssignmentPlace part[GX_ASSIGNED_RANKS];
} GxStageCost;
typedef struct {
    int ranks, layers;
    int64_t samples, micro_most;
    const double *latency, *seconds_per_byte;
    double x_bytes;
    int first_rank_stays;
    GxStatus (*stage)(void *user, const GxStageRequest *, GxStageCost *, GxError *);
    void *user;
} GxSearchProblem;
typedef struct {
    double seconds;
} GxSearchResult;
GxStatus gx_search(GxAssignment *best, GxSearchResult *result, const GxSearchProblem *p, uint64_t seed, GxError *err);
GX_END
#endif
#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SEARCH_IMPLEMENTED)
#define GX_SEARCH_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "splits.h"
GxStatus gx_search(GxAssignment *a, GxSearchResult *result, const GxSearchProblem *p, uint64_t seed, GxError *err)
{
    double rate[256];
    int64_t part[256], least[256];
    (void)seed;
    GxStageCost *c = (GxStageCost *)calloc(1, sizeof *c);
    memset(a, 0, sizeof *a);
    a->ranks = a->copies = a->stages = p->ranks;
    for (int r = 0; r < p->ranks; r++) {
        int16_t one = (int16_t)r;
        GxStageRequest q = {&one, 1, p->layers, 1, 1, 1, p->micro_most};
        GX_TRY(p->stage(p->user, &q, c, err));
        rate[r] = 1 / (c->forward + c->backward), least[r] = 1;
        fprintf(stderr, "rank %d: F %g B %g step %g lacks %ld needs %ld grads %g\n", r, c->forward, c->backward,
                c->step, (long)c->lacks, (long)c->needs[0], c->grad_bytes);
        a->place[r].stage = (int16_t)r, a->stage[r].copy = (int16_t)r, a->stage[r].layers = (int16_t)p->layers,
        a->copy[r].micro_batch = p->micro_most;
        if (r == p->ranks - 1 && r) {
            int16_t g[2] = {0, 1};
            GxStageRequest q2 = {g, 2, p->layers, 1, 1, 1, p->micro_most};
            GX_TRY(p->stage(p->user, &q2, c, err));
            fprintf(stderr, "0+1: F %g B %g step %g lacks %ld heads %ld,%ld columns %ld,%ld vocab %ld,%ld\n",
                    c->forward, c->backward, c->step, (long)c->lacks, (long)c->part[0].heads, (long)c->part[1].heads,
                    (long)c->part[0].columns, (long)c->part[1].columns, (long)c->part[0].vocab, (long)c->part[1].vocab);
        }
    }
    GX_TRY(gx_split_bound(part, rate, least, NULL, p->ranks, p->samples, err));
    for (int r = 0; r < p->ranks; r++) {
        a->copy[r].samples = part[r];
        double t = (double)part[r] / (double)p->micro_most / rate[r];
        if (t > result->seconds) result->seconds = t;
    }
    free(c);
    return GX_OK;
}
#endif
