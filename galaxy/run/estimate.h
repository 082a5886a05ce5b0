// estimate.h: what a stage would cost on given ranks: for the planner's search (plan/search.h), which asks for seconds
// and memory of a group of ranks with some of the layers.
//
// Each question is answered by the run's own code on the device `none` (stage_walk.h), with the seconds that operations
// take on each machine (plan/costs.h) and those of the links between them. A stage's shares (heads, columns, rows of
// the vocabulary, rows of a sample) are proportioned to the speeds of its ranks (plan/splits.h); if a rank has too
// little memory for its shares, they move step by step towards what memory alone would say.
//
//     GxEstimate c;
//     GX_TRY(gx_estimate_open(&c, session, mode, &measured));
//     problem.stage = gx_estimate_stage, problem.parts = gx_estimate_parts, problem.user = &c;
//     ...
//     gx_estimate_close(&c);
#ifndef GX_ESTIMATE_H
#define GX_ESTIMATE_H
#include "../plan/search.h"
#include "measure.h"
GX_BEGIN

typedef struct { // seconds of a micro-batch of the measured size, forward and backward, by what is split
    double query, kv, column, vocab, row; // of a query head, of a K,V head, of a column, ...
} GxEstimateRates;

typedef struct {
    const GxSession *s;
    const GxMode *mode;
    const GxMeasured *m;
    GxCost *cost;                                  // [ranks]: of operations
    GxEstimateRates *rates;                        // [ranks]
    int64_t heads, kv_heads, columns, vocab, rows; // of the model; 0: not split by the mode
    int costs;                                     // how many of cost are open
} GxEstimate;

// All are borrowed until it is closed. Close it also after an error.
GxStatus gx_estimate_open(GxEstimate *c, const GxSession *s, const GxMode *mode, const GxMeasured *m,
                          int64_t micro_batch, GxError *err);
void gx_estimate_close(GxEstimate *c);

// For GxPlanProblem.stage and .parts; user: a GxEstimate.
GxStatus gx_estimate_stage(void *user, GxStageCost *cost, const GxStageRequest *request, GxError *err);
GxStatus gx_estimate_parts(void *user, GxAssignmentPlace *part, const GxStageRequest *request, GxError *err);
// Bytes of a sample in a message between two stages.
double gx_estimate_message(const GxEstimate *c);
// Bytes that each rank of the stage needs: needs [request->n].
GxStatus gx_estimate_memory(void *user, int64_t *needs, const GxStageRequest *request, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ESTIMATE_IMPLEMENTED)
#define GX_ESTIMATE_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../plan/splits.h"
#include "../plan/stage.h"

// ---- seconds of a head, a column, ... ------------------------------------------------------------------------------

enum { GX__ESTIMATE_BLOCKS = 4 };
typedef struct { // seconds of a step's forward and backward, by block: attention, MLP, the ends; and all of it
    double att, mlp, ends, all;
} gx__EstimateBlocks;

static gx__EstimateBlocks gx__estimate_blocks(const GxRecorder *rec, const GxCost *cost, int units)
{
    gx__EstimateBlocks b = GX_ZERO;
    for (int64_t i = 0; i < rec->n; i++) {
        const GxEvent *e = &rec->event[i];
        const double seconds = gx_cost_seconds(cost, e);
        if (e->kind != GX_EVENT_OP || !e->action || !e->site) continue;
        b.all += seconds;
        if (e->unit <= 0 || e->unit == units - 1) b.ends += seconds;
        else if (!strncmp(e->site, "att", 3)) b.att += seconds;
        else if (!strncmp(e->site, "mlp", 3)) b.mlp += seconds;
    }
    return b;
}

// Records a step of one rank of a group with one layer and both ends.
static GxStatus gx__estimate_record(const GxEstimate *c, const GxStageShape *shape, GxRecorder *rec, int *units,
                                    GxError *err)
{
    GxStageWalk *w = (GxStageWalk *)calloc(1, sizeof *w);
    if (!w) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan a stage");
    GxStatus status = gx_stage_walk_open(w, c->s, shape);
    if (status == GX_OK) status = gx_stage_walk_dry(w, rec);
    if (status != GX_OK) *err = w->g.error;
    *units = w->s.model.units;
    if (status == GX_OK && rec->lost) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory to record a step");
    gx_stage_walk_close(w);
    free(w);
    return status;
}

static GxStageShape gx__estimate_shape(const GxEstimate *c, int64_t micro_batch)
{
    GxStageShape shape = GX_ZERO;
    shape.layers = 1, shape.has_embedding = shape.has_head = 1, shape.alive = 1, shape.ranks = 1;
    shape.micro_batch = micro_batch, shape.mode = c->mode;
    return shape;
}

// Attention of H query heads and K shared ones takes H query + K kv; that of one query head query + kv.
static GxEstimateRates gx__estimate_solve(const GxEstimate *c, gx__EstimateBlocks all, double one_head)
{
    const double H = (double)gx_max(c->heads, 1), K = (double)gx_max(c->kv_heads, 1);
    GxEstimateRates r = GX_ZERO;
    r.query = all.att / H;
    if (K < H && one_head > 0) {
        const double query = (all.att - K * one_head) / (H - K);
        if (query > 0 && query < r.query) r.query = query, r.kv = (all.att - H * query) / K;
    }
    r.column = all.mlp / (double)gx_max(c->columns, 1), r.vocab = all.ends / (double)gx_max(c->vocab, 1);
    r.row = all.all / (double)gx_max(c->rows, 1);
    return r;
}

static GxStatus gx__estimate_rates(GxEstimate *c, int64_t micro_batch, GxError *err)
{
    GxRecorder whole = GX_ZERO, head = GX_ZERO;
    int units = 0;
    GxStageShape shape = gx__estimate_shape(c, micro_batch);
    GxStatus status = gx__estimate_record(c, &shape, &whole, &units, err);
    if (c->heads > 1 && status == GX_OK) {
        shape.ranks = 2, shape.heads.n = 2, shape.heads.v[0] = 1, shape.heads.v[1] = c->heads - 1;
        status = gx__estimate_record(c, &shape, &head, &units, err);
    }
    for (int r = 0; r < c->m->ranks && status == GX_OK; r++)
        c->rates[r] = gx__estimate_solve(c, gx__estimate_blocks(&whole, &c->cost[r], units),
                                         gx__estimate_blocks(&head, &c->cost[r], units).att);
    gx_recorder_close(&whole);
    gx_recorder_close(&head);
    return status;
}

static int64_t gx__estimate_field(const GxSession *s, const char *name)
{
    const GxField *f = gx_field_find(s->run->family->fields, s->run->family->n_fields, name);
    return f ? *(const int64_t *)gx_field_in(f, s->run->model_config) : 0;
}

GxStatus gx_estimate_open(GxEstimate *c, const GxSession *s, const GxMode *mode, const GxMeasured *m,
                          int64_t micro_batch, GxError *err)
{
    const GxMethods methods = mode->methods;
    memset(c, 0, sizeof *c);
    c->s = s, c->mode = mode, c->m = m;
    c->cost = (GxCost *)calloc((size_t)m->ranks, sizeof *c->cost);
    c->rates = (GxEstimateRates *)calloc((size_t)m->ranks, sizeof *c->rates);
    if (!c->cost || !c->rates) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan %d ranks", m->ranks);
    for (; c->costs < m->ranks; c->costs++)
        GX_TRY(
            gx_cost_fit(&c->cost[c->costs], m->sample + m->rank[c->costs].first, (int)m->rank[c->costs].samples, err));
    if (methods.att == GX_METHOD_TP) {
        c->heads = gx__estimate_field(s, "num_attention_heads");
        c->kv_heads = gx__estimate_field(s, "num_key_value_heads");
        if (!c->kv_heads) c->kv_heads = c->heads;
    }
    if (methods.mlp == GX_METHOD_TP) c->columns = gx__estimate_field(s, "intermediate_size");
    if (methods.ends == GX_METHOD_TP) c->vocab = *s->run->family->vocab_size(s->run->model_config);
    if (gx_methods_have(methods, GX_METHOD_SP)) c->rows = s->run->o.seq_len;
    return gx__estimate_rates(c, micro_batch, err);
}

void gx_estimate_close(GxEstimate *c)
{
    for (int r = 0; r < c->costs; r++) gx_cost_close(&c->cost[r]);
    free(c->cost);
    free(c->rates);
    memset(c, 0, sizeof *c);
}

double gx_estimate_message(const GxEstimate *c)
{
    return (double)(c->s->run->o.seq_len * gx__estimate_field(c->s, "hidden_size") *
                    gx_dtype_size(c->s->run->chosen.dtype));
}

// ---- shares --------------------------------------------------------------------------------------------------------

// Seconds of one (a head, a column, ...) on the i-th rank of the group, or of all groups that must have the same lists.
static double gx__estimate_rate(const GxEstimate *c, const GxStageRequest *q, int i, size_t rate)
{
    double most = 1e-15;
    for (int k = 0; k < (q->alike ? q->groups : 1); k++) {
        const int rank = q->alike ? q->alike[k * q->n + i] : q->rank[i];
        most = fmax(most, *(const double *)((const char *)&c->rates[rank] + rate));
    }
    return most;
}

static double gx__estimate_room(const GxEstimate *c, const GxStageRequest *q, int i)
{
    double least = INFINITY;
    for (int k = 0; k < (q->alike ? q->groups : 1); k++) {
        const int rank = q->alike ? q->alike[k * q->n + i] : q->rank[i];
        least = fmin(least, (double)c->m->rank[rank].memory);
    }
    return fmax(least, 1);
}

// Speed and memory of the i-th rank, mixed: by_memory 0: its speed; 1: its memory.
static double gx__estimate_mix(const GxEstimate *c, const GxStageRequest *q, int i, size_t rate, double by_memory)
{
    return pow(1 / gx__estimate_rate(c, q, i, rate), 1 - by_memory) * pow(gx__estimate_room(c, q, i), by_memory);
}

// Splits `total` (0: not split).
static GxStatus gx__estimate_split(const GxEstimate *c, const GxStageRequest *q, size_t rate, int64_t total,
                                   double by_memory, GxIntList *list, GxError *err)
{
    double speed[GX_ASSIGNED_RANKS];
    int64_t least[GX_ASSIGNED_RANKS];
    list->n = 0;
    if (!total || q->n == 1) return GX_OK;
    for (int i = 0; i < q->n; i++) speed[i] = gx__estimate_mix(c, q, i, rate, by_memory), least[i] = 1;
    list->n = q->n;
    return gx_split_bound(list->v, speed, least, NULL, q->n, total, err);
}

static GxStatus gx__estimate_split_heads(const GxEstimate *c, const GxStageRequest *q, double by_memory,
                                         GxIntList *list, GxError *err)
{
    double query[GX_ASSIGNED_RANKS], kv[GX_ASSIGNED_RANKS];
    GxHeadsShared shared = GX_ZERO;
    const size_t of_query = offsetof(GxEstimateRates, query), of_kv = offsetof(GxEstimateRates, kv);
    list->n = 0;
    if (!c->heads || q->n == 1) return GX_OK;
    for (int i = 0; i < q->n; i++) {
        query[i] = 1 / gx__estimate_mix(c, q, i, of_query, by_memory);
        kv[i] = gx__estimate_rate(c, q, i, of_kv) / gx__estimate_rate(c, q, i, of_query) * query[i];
    }
    list->n = q->n;
    shared.ranks = q->n, shared.heads = c->heads, shared.kv_heads = c->kv_heads;
    shared.query = query, shared.kv = kv;
    return gx_split_heads(list->v, &shared, err);
}

static GxStatus gx__estimate_shares(const GxEstimate *c, const GxStageRequest *q, double by_memory, GxStageShape *shape,
                                    GxError *err)
{
    GX_TRY(gx__estimate_split_heads(c, q, by_memory, &shape->heads, err));
    GX_TRY(gx__estimate_split(c, q, offsetof(GxEstimateRates, column), c->columns, by_memory, &shape->columns, err));
    GX_TRY(gx__estimate_split(c, q, offsetof(GxEstimateRates, vocab), c->vocab, by_memory, &shape->vocab, err));
    return gx__estimate_split(c, q, offsetof(GxEstimateRates, row), c->rows, by_memory, &shape->rows, err);
}

// ---- memory --------------------------------------------------------------------------------------------------------

// Bytes that each rank of the group needs with these shares; *grads: the most bytes of gradients of one.
static GxStatus gx__estimate_needs(const GxEstimate *c, const GxStageRequest *q, GxStageShape shape, int64_t *needs,
                                   double *grads, GxError *err)
{
    GxStageWalk *w = (GxStageWalk *)calloc(1, sizeof *w);
    GxStatus status = w ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan a stage");
    shape.layers = q->layers, shape.has_embedding = q->has_embed, shape.has_head = q->has_head, shape.alive = q->alive;
    *grads = 0;
    for (shape.rank = 0; shape.rank < q->n && status == GX_OK; shape.rank++) {
        status = gx_stage_walk_open(w, c->s, &shape);
        if (status == GX_OK) status = gx_stage_walk_dry(w, NULL);
        if (status != GX_OK) *err = w->g.error;
        needs[shape.rank] = w->bytes, *grads = fmax(*grads, (double)w->kind[GX_MEM_GRADS]);
        gx_stage_walk_close(w);
    }
    free(w);
    return status;
}

// Shares that fit, or those that lack the least.
static GxStatus gx__estimate_fit(const GxEstimate *c, const GxStageRequest *q, GxStageShape *best, int64_t *needs,
                                 GxStageCost *cost, GxError *err)
{
    static const double mixtures[] = {0, 1.0 / 3, 2.0 / 3, 1};
    int64_t each[GX_ASSIGNED_RANKS];
    double grads;
    cost->room = INT64_MIN;
    for (int k = 0; k < (q->n > 1 ? 4 : 1) && cost->room < 0; k++) {
        GxStageShape shape = gx__estimate_shape(c, q->micro_batch);
        int64_t room = INT64_MAX;
        int tightest = 0;
        shape.ranks = q->n;
        GX_TRY(gx__estimate_shares(c, q, mixtures[k], &shape, err));
        GX_TRY(gx__estimate_needs(c, q, shape, each, &grads, err));
        for (int i = 0; i < q->n; i++) {
            const int64_t left = c->m->rank[q->rank[i]].memory - each[i];
            if (left < room) room = left, tightest = i;
        }
        if (room <= cost->room) continue;
        cost->room = room, cost->tightest = tightest, cost->grad_bytes = grads, *best = shape;
        if (needs) memcpy(needs, each, (size_t)q->n * sizeof *needs);
    }
    return GX_OK;
}

// ---- seconds -------------------------------------------------------------------------------------------------------

// The slowest link inside a group.
static void gx__estimate_link(const GxEstimate *c, const GxStageRequest *q, double *latency, double *per_byte)
{
    const int n = c->m->ranks;
    *latency = *per_byte = 0;
    for (int i = 0; i < q->n; i++)
        for (int j = 0; j < q->n; j++) {
            const int at = q->rank[i] * n + q->rank[j];
            *latency = fmax(*latency, c->m->latency[at]), *per_byte = fmax(*per_byte, c->m->seconds_per_byte[at]);
        }
}

// Seconds of a micro-batch, from what each rank would do with one layer and both ends.
static GxStatus gx__estimate_seconds(const GxEstimate *c, const GxStageRequest *q, GxStageShape shape,
                                     GxStageSeconds *seconds, GxError *err)
{
    GxRecorder *rec = (GxRecorder *)calloc((size_t)q->n, sizeof *rec);
    GxStageMember member[GX_ASSIGNED_RANKS];
    GxStatus status = rec ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan a stage");
    double latency, per_byte;
    int units = 0;
    shape.layers = 1, shape.has_embedding = shape.has_head = 1, shape.alive = 1;
    for (shape.rank = 0; shape.rank < q->n && status == GX_OK; shape.rank++) {
        status = gx__estimate_record(c, &shape, &rec[shape.rank], &units, err);
        member[shape.rank].event = rec[shape.rank].event, member[shape.rank].n = rec[shape.rank].n;
        member[shape.rank].cost = &c->cost[q->rank[shape.rank]];
    }
    gx__estimate_link(c, q, &latency, &per_byte);
    if (status == GX_OK) status = gx_stage_seconds(seconds, member, q->n, latency, per_byte, units, err);
    for (int i = 0; i < q->n && rec; i++) gx_recorder_close(&rec[i]);
    free(rec);
    return status;
}

GxStatus gx_estimate_stage(void *user, GxStageCost *cost, const GxStageRequest *q, GxError *err)
{
    const GxEstimate *c = (const GxEstimate *)user;
    const int64_t total[] = {c->heads, c->columns, c->vocab, c->rows};
    for (int i = 0; i < 4 && q->n > 1; i++)
        if (total[i] && total[i] < q->n) { // a rank would have none
            memset(cost, 0, sizeof *cost);
            cost->forward = cost->backward = INFINITY;
            return GX_OK;
        }
    GxStageSeconds *s = (GxStageSeconds *)calloc(1, sizeof *s);
    GxStageShape shape = GX_ZERO;
    GxStatus status = s ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan a stage");
    if (status == GX_OK) status = gx__estimate_fit(c, q, &shape, NULL, cost, err);
    if (status == GX_OK) status = gx__estimate_seconds(c, q, shape, s, err);
    if (status == GX_OK) {
        cost->forward_layer = s->forward[GX_STAGE_LAYER], cost->backward_layer = s->backward[GX_STAGE_LAYER];
        cost->forward = q->layers * cost->forward_layer + q->has_embed * s->forward[GX_STAGE_EMBEDDING] +
                        q->has_head * s->forward[GX_STAGE_HEAD];
        cost->backward = q->layers * cost->backward_layer + q->has_embed * s->backward[GX_STAGE_EMBEDDING] +
                         q->has_head * s->backward[GX_STAGE_HEAD];
        cost->step = s->step * q->layers;
    }
    free(s);
    return status;
}

GxStatus gx_estimate_parts(void *user, GxAssignmentPlace *part, const GxStageRequest *q, GxError *err)
{
    const GxEstimate *c = (const GxEstimate *)user;
    GxStageShape shape = GX_ZERO;
    GxStageCost cost;
    GX_TRY(gx__estimate_fit(c, q, &shape, NULL, &cost, err));
    for (int i = 0; i < q->n; i++) {
        part[i].heads = shape.heads.n ? shape.heads.v[i] : 0,
        part[i].columns = shape.columns.n ? shape.columns.v[i] : 0;
        part[i].vocab = shape.vocab.n ? shape.vocab.v[i] : 0, part[i].rows = shape.rows.n ? shape.rows.v[i] : 0;
    }
    return GX_OK;
}

GxStatus gx_estimate_memory(void *user, int64_t *needs, const GxStageRequest *q, GxError *err)
{
    GxStageShape shape = GX_ZERO;
    GxStageCost cost;
    return gx__estimate_fit((const GxEstimate *)user, q, &shape, needs, &cost, err);
}
#endif
