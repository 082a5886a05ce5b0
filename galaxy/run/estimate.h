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
    const GxAssignment *fixed;                     // the shares of groups; NULL: they are proportioned to speeds
    // What was found out, by what was asked: recordings and bytes of a rank by its shape, seconds of a group.
    struct GxEstimateTable *records, *bytes, *seconds;
    int costs; // how many of cost are open
} GxEstimate;

// All are borrowed until it is closed. Close it also after an error.
GxStatus gx_estimate_open(GxEstimate *c, const GxSession *s, const GxMode *mode, const GxMeasured *m,
                          int64_t micro_batch, GxError *err);
void gx_estimate_close(GxEstimate *c);
// Warns if a machine has no times of an operation that was asked for.
void gx_estimate_warn(const GxEstimate *c);

// For GxPlanProblem.stage and .parts; user: a GxEstimate. Rank 0 can only be in a first stage.
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

// ---- tables --------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t *key; // [n]
    int n;
    void *value;
} GxEstimateEntry;

typedef struct GxEstimateTable {
    GxEstimateEntry *entry; // [most], a power of two; value NULL: free
    int64_t entries, most;
} GxEstimateTable;

static GxEstimateEntry *gx__estimate_slot(const GxEstimateTable *t, const int64_t *key, int n)
{
    uint64_t at = gx_hash(GX_HASH_START, key, n * (int64_t)sizeof *key) & (uint64_t)(t->most - 1);
    for (;; at = (at + 1) & (uint64_t)(t->most - 1)) {
        GxEstimateEntry *e = &t->entry[at];
        if (!e->value || (e->n == n && !memcmp(e->key, key, (size_t)n * sizeof *key))) return e;
    }
}

static GxStatus gx__estimate_grow(GxEstimateTable *t, GxError *err)
{
    GxEstimateTable more = GX_ZERO;
    if (2 * t->entries < t->most) return GX_OK;
    more.most = gx_max(2 * t->most, 256), more.entries = t->entries;
    more.entry = (GxEstimateEntry *)calloc((size_t)more.most, sizeof *more.entry);
    if (!more.entry) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan %ld stages", (long)more.most);
    for (int64_t i = 0; i < t->most; i++)
        if (t->entry[i].value) *gx__estimate_slot(&more, t->entry[i].key, t->entry[i].n) = t->entry[i];
    free(t->entry);
    *t = more;
    return GX_OK;
}

// The value of a key, of `size` bytes. *is_new: it is all zero, and the caller fills it in. NULL: an error.
static void *gx__estimate_find(GxEstimateTable *t, const int64_t *key, int n, size_t size, int *is_new, GxError *err)
{
    if (gx__estimate_grow(t, err) != GX_OK) return NULL;
    GxEstimateEntry *e = gx__estimate_slot(t, key, n);
    *is_new = !e->value;
    if (e->value) return e->value;
    int64_t *copy = (int64_t *)malloc((size_t)n * sizeof *copy);
    void *value = calloc(1, size);
    if (!copy || !value) {
        free(copy);
        free(value);
        GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan a stage");
        return NULL;
    }
    memcpy(copy, key, (size_t)n * sizeof *copy);
    e->key = copy, e->n = n, e->value = value, t->entries++;
    return value;
}

static void gx__estimate_close_table(GxEstimateTable *t)
{
    for (int64_t i = 0; t && i < t->most; i++) {
        free(t->entry[i].key);
        free(t->entry[i].value);
    }
    if (t) free(t->entry);
    free(t);
}

enum { GX__ESTIMATE_KEY = 8 + 5 * GX_ASSIGNED_RANKS };

static int gx__estimate_add_list(int64_t *key, int n, const GxIntList *list)
{
    key[n++] = list->n;
    for (int i = 0; i < list->n; i++) key[n++] = list->v[i];
    return n;
}

// What decides what a rank of a stage does, whichever machine it is on.
static int gx__estimate_key(const GxStageShape *shape, int64_t *key)
{
    int n = 0;
    key[n++] = shape->layers, key[n++] = 2 * shape->has_embedding + shape->has_head, key[n++] = shape->alive;
    key[n++] = shape->micro_batch;
    n = gx__estimate_add_list(key, n, &shape->heads), n = gx__estimate_add_list(key, n, &shape->columns);
    n = gx__estimate_add_list(key, n, &shape->vocab), n = gx__estimate_add_list(key, n, &shape->rows);
    key[n++] = shape->ranks, key[n++] = shape->rank;
    return n;
}

// ---- seconds of a head, a column, ... ------------------------------------------------------------------------------

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

typedef struct {
    GxRecorder rec;
    int units;
} gx__EstimateRecord;

// A step of one rank of a group with one layer and both ends, as it was recorded. NULL: an error.
static const gx__EstimateRecord *gx__estimate_record(const GxEstimate *c, const GxStageShape *shape, GxError *err)
{
    int64_t key[GX__ESTIMATE_KEY];
    int is_new = 0;
    gx__EstimateRecord *r =
        (gx__EstimateRecord *)gx__estimate_find(c->records, key, gx__estimate_key(shape, key), sizeof *r, &is_new, err);
    if (!r || !is_new) return r;
    GxStageNeeds needs;
    gx_stage_walk_once(c->s, shape, &r->rec, &needs, err);
    r->units = needs.units;
    return gx_error_code(err) ? NULL : r;
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
    GxStageShape shape = gx_stage_shape(c->mode, micro_batch);
    const gx__EstimateRecord *whole = gx__estimate_record(c, &shape, err), *head = NULL;
    if (c->heads > 1 && whole) {
        shape.ranks = 2, shape.heads.n = 2, shape.heads.v[0] = 1, shape.heads.v[1] = c->heads - 1;
        head = gx__estimate_record(c, &shape, err);
    }
    if (gx_error_code(err)) return gx_error_code(err);
    for (int r = 0; r < c->m->ranks; r++)
        c->rates[r] = gx__estimate_solve(c, gx__estimate_blocks(&whole->rec, &c->cost[r], whole->units),
                                         head ? gx__estimate_blocks(&head->rec, &c->cost[r], head->units).att : 0);
    return GX_OK;
}

GxStatus gx_estimate_open(GxEstimate *c, const GxSession *s, const GxMode *mode, const GxMeasured *m,
                          int64_t micro_batch, GxError *err)
{
    const GxMethods methods = mode->methods;
    memset(c, 0, sizeof *c);
    c->s = s, c->mode = mode, c->m = m;
    c->cost = (GxCost *)calloc((size_t)m->ranks, sizeof *c->cost);
    c->rates = (GxEstimateRates *)calloc((size_t)m->ranks, sizeof *c->rates);
    c->records = (GxEstimateTable *)calloc(1, sizeof *c->records);
    c->bytes = (GxEstimateTable *)calloc(1, sizeof *c->bytes);
    c->seconds = (GxEstimateTable *)calloc(1, sizeof *c->seconds);
    if (!c->cost || !c->rates || !c->records || !c->bytes || !c->seconds)
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan %d ranks", m->ranks);
    for (; c->costs < m->ranks; c->costs++)
        GX_TRY(
            gx_cost_fit(&c->cost[c->costs], m->sample + m->rank[c->costs].first, (int)m->rank[c->costs].samples, err));
    if (methods.att == GX_METHOD_TP) {
        c->heads = gx_run_model_int(s->run, "num_attention_heads");
        c->kv_heads = gx_run_model_int(s->run, "num_key_value_heads");
        if (!c->kv_heads) c->kv_heads = c->heads;
    }
    if (methods.mlp == GX_METHOD_TP) c->columns = gx_run_model_int(s->run, "intermediate_size");
    if (methods.ends == GX_METHOD_TP) c->vocab = *s->run->family->vocab_size(s->run->model_config);
    if (gx_methods_have(methods, GX_METHOD_SP)) c->rows = s->run->o.seq_len;
    return gx__estimate_rates(c, micro_batch, err);
}

void gx_estimate_close(GxEstimate *c)
{
    for (int r = 0; r < c->costs; r++) gx_cost_close(&c->cost[r]);
    for (int64_t i = 0; c->records && i < c->records->most; i++)
        if (c->records->entry[i].value) gx_recorder_close(&((gx__EstimateRecord *)c->records->entry[i].value)->rec);
    gx__estimate_close_table(c->records);
    gx__estimate_close_table(c->bytes);
    gx__estimate_close_table(c->seconds);
    free(c->cost);
    free(c->rates);
    memset(c, 0, sizeof *c);
}

void gx_estimate_warn(const GxEstimate *c)
{
    for (int r = 0; r < c->costs; r++) {
        const char *unknown = gx_cost_unknown(&c->cost[r]);
        if (!unknown) continue;
        gx_log(&c->s->g->log, GX_LOG_WARNING,
               "there are no times of %s for machine %s, and they are guessed from those of its other operations; "
               "measure it again",
               unknown, c->m->rank[r].name);
        return;
    }
}

double gx_estimate_message(const GxEstimate *c)
{
    return (double)(c->s->run->o.seq_len * gx_run_model_int(c->s->run, "hidden_size") *
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

// The shares that an assignment says; list->n 0: this is not split.
static void gx__estimate_fixed_list(const GxEstimate *c, const GxStageRequest *q, size_t share, int64_t total,
                                    GxIntList *list)
{
    list->n = total && q->n > 1 ? q->n : 0;
    for (int i = 0; i < list->n; i++)
        list->v[i] = *(const int64_t *)((const char *)&c->fixed->place[q->rank[i]] + share);
}

static GxStatus gx__estimate_fixed(const GxEstimate *c, const GxStageRequest *q, GxStageShape *shape)
{
    gx__estimate_fixed_list(c, q, offsetof(GxAssignmentPlace, heads), c->heads, &shape->heads);
    gx__estimate_fixed_list(c, q, offsetof(GxAssignmentPlace, columns), c->columns, &shape->columns);
    gx__estimate_fixed_list(c, q, offsetof(GxAssignmentPlace, vocab), c->vocab, &shape->vocab);
    gx__estimate_fixed_list(c, q, offsetof(GxAssignmentPlace, rows), c->rows, &shape->rows);
    return GX_OK;
}

static GxStatus gx__estimate_shares(const GxEstimate *c, const GxStageRequest *q, double by_memory, GxStageShape *shape,
                                    GxError *err)
{
    if (c->fixed) return gx__estimate_fixed(c, q, shape);
    GX_TRY(gx__estimate_split_heads(c, q, by_memory, &shape->heads, err));
    GX_TRY(gx__estimate_split(c, q, offsetof(GxEstimateRates, column), c->columns, by_memory, &shape->columns, err));
    GX_TRY(gx__estimate_split(c, q, offsetof(GxEstimateRates, vocab), c->vocab, by_memory, &shape->vocab, err));
    return gx__estimate_split(c, q, offsetof(GxEstimateRates, row), c->rows, by_memory, &shape->rows, err);
}

// ---- memory --------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t bytes;
    double grads; // bytes of gradients
} gx__EstimateBytes;

// What a rank of a stage needs. NULL: an error.
static const gx__EstimateBytes *gx__estimate_bytes(const GxEstimate *c, const GxStageShape *shape, GxError *err)
{
    int64_t key[GX__ESTIMATE_KEY];
    int is_new = 0;
    gx__EstimateBytes *b =
        (gx__EstimateBytes *)gx__estimate_find(c->bytes, key, gx__estimate_key(shape, key), sizeof *b, &is_new, err);
    if (!b || !is_new) return b;
    GxStageNeeds needs;
    gx_stage_walk_once(c->s, shape, NULL, &needs, err);
    b->bytes = needs.bytes, b->grads = (double)needs.kind[GX_MEM_GRADS];
    return gx_error_code(err) ? NULL : b;
}

// The same, from walks with few layers and micro-batches: what a stage needs grows with both, nearly evenly, as
// base + layers * (a + alive * b) + alive * c. Within a fifth of the memory that there is, it is walked through.
static GxStatus gx__estimate_bytes_near(const GxEstimate *c, const GxStageShape *shape, int64_t memory,
                                        gx__EstimateBytes *bytes, GxError *err)
{
    enum { FEW = 2, MORE = 4 };
    const gx__EstimateBytes *at[2][2]; // few or more layers, one or two micro-batches
    const int alive = shape->alive > 2;
    if (shape->layers > MORE || alive) {
        for (int i = 0; i < 4; i++) {
            GxStageShape corner = *shape;
            corner.layers = i & 1 ? MORE : FEW, corner.alive = alive ? 1 + i / 2 : shape->alive;
            at[i & 1][i / 2] = gx__estimate_bytes(c, &corner, err);
            if (!at[i & 1][i / 2]) return gx_error_code(err);
        }
        const double layers = (double)(shape->layers - FEW) / (MORE - FEW), batches = alive ? shape->alive - 1 : 0;
        const double base = (double)at[0][0]->bytes, more = (double)at[1][0]->bytes - base,
                     next = (double)at[0][1]->bytes - base, both = (double)at[1][1]->bytes - base - more - next;
        const double all = base + layers * more + batches * next + layers * batches * both;
        bytes->bytes = (int64_t)all;
        bytes->grads = at[0][0]->grads + layers * (at[1][0]->grads - at[0][0]->grads);
        if (all < 0.8 * (double)memory || all > 1.2 * (double)memory) return GX_OK;
    }
    const gx__EstimateBytes *exact = gx__estimate_bytes(c, shape, err);
    if (exact) *bytes = *exact;
    return gx_error_code(err);
}

// Bytes that each rank of the group needs with these shares; *grads: the most bytes of gradients of one.
static GxStatus gx__estimate_needs(const GxEstimate *c, const GxStageRequest *q, GxStageShape shape, int is_exact,
                                   int64_t *needs, double *grads, GxError *err)
{
    shape.layers = q->layers, shape.has_embedding = q->has_embed, shape.has_head = q->has_head;
    shape.alive = q->has_embed && q->has_head ? 1 : q->alive;
    *grads = 0;
    for (shape.rank = 0; shape.rank < q->n; shape.rank++) {
        gx__EstimateBytes b = GX_ZERO;
        const gx__EstimateBytes *exact = is_exact ? gx__estimate_bytes(c, &shape, err) : NULL;
        if (exact) b = *exact;
        else if (!is_exact) gx__estimate_bytes_near(c, &shape, c->m->rank[q->rank[shape.rank]].memory, &b, err);
        if (gx_error_code(err)) return gx_error_code(err);
        needs[shape.rank] = b.bytes, *grads = fmax(*grads, b.grads);
    }
    return GX_OK;
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
        GxStageShape shape = gx_stage_shape(c->mode, q->micro_batch);
        int64_t room = INT64_MAX;
        int tightest = 0;
        shape.ranks = q->n;
        GX_TRY(gx__estimate_shares(c, q, mixtures[k], &shape, err));
        GX_TRY(gx__estimate_needs(c, q, shape, needs != NULL, each, &grads, err));
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

typedef struct { // GxStageSeconds, without its ranks
    double forward[GX_STAGE_KINDS], backward[GX_STAGE_KINDS], step[GX_STAGE_KINDS], rest;
} gx__EstimateSeconds;

// Of a stage with these layers and ends.
static double gx__estimate_units(const GxStageRequest *q, const double seconds[GX_STAGE_KINDS])
{
    return q->layers * seconds[GX_STAGE_LAYER] + q->has_embed * seconds[GX_STAGE_EMBEDDING] +
           q->has_head * seconds[GX_STAGE_HEAD];
}

static GxStatus gx__estimate_compute(const GxEstimate *c, const GxStageRequest *q, GxStageShape shape,
                                     gx__EstimateSeconds *seconds, GxError *err)
{
    GxStageMember member[GX_ASSIGNED_RANKS];
    GxStageSeconds *s = (GxStageSeconds *)calloc(1, sizeof *s);
    double latency, per_byte;
    int units = 0;
    if (!s) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan a stage");
    for (shape.rank = 0; shape.rank < q->n && !gx_error_code(err); shape.rank++) {
        const gx__EstimateRecord *r = gx__estimate_record(c, &shape, err);
        if (!r) break;
        member[shape.rank].event = r->rec.event, member[shape.rank].n = r->rec.n, units = r->units;
        member[shape.rank].cost = &c->cost[q->rank[shape.rank]];
    }
    gx__estimate_link(c, q, &latency, &per_byte);
    if (!gx_error_code(err)) gx_stage_seconds(s, member, q->n, latency, per_byte, units, err);
    memcpy(seconds->forward, s->forward, sizeof s->forward);
    memcpy(seconds->backward, s->backward, sizeof s->backward);
    memcpy(seconds->step, s->step, sizeof s->step);
    seconds->rest = s->rest;
    free(s);
    return gx_error_code(err);
}

// Seconds of a micro-batch, from what each rank would do with one layer and both ends. NULL: an error.
static const gx__EstimateSeconds *gx__estimate_seconds(const GxEstimate *c, const GxStageRequest *q, GxStageShape shape,
                                                       GxError *err)
{
    int64_t key[GX__ESTIMATE_KEY];
    int is_new = 0;
    shape.layers = 1, shape.has_embedding = shape.has_head = 1, shape.alive = 1, shape.rank = 0;
    int n = gx__estimate_key(&shape, key);
    for (int i = 0; i < q->n; i++) key[n++] = q->rank[i];
    gx__EstimateSeconds *s = (gx__EstimateSeconds *)gx__estimate_find(c->seconds, key, n, sizeof *s, &is_new, err);
    if (!s || !is_new) return s;
    return gx__estimate_compute(c, q, shape, s, err) == GX_OK ? s : NULL;
}

GxStatus gx_estimate_stage(void *user, GxStageCost *cost, const GxStageRequest *q, GxError *err)
{
    const GxEstimate *c = (const GxEstimate *)user;
    const int64_t total[] = {c->heads, c->columns, c->vocab, c->rows};
    int is_possible = q->rank[0] > 0 || q->has_embed; // rank 0, which has the files, begins the mesh
    for (int i = 0; i < 4 && q->n > 1; i++) is_possible &= !total[i] || total[i] >= q->n; // or a rank would have none
    if (!is_possible) {
        memset(cost, 0, sizeof *cost);
        cost->forward = cost->backward = INFINITY;
        return GX_OK;
    }
    GxStageShape shape = GX_ZERO;
    GX_TRY(gx__estimate_fit(c, q, &shape, NULL, cost, err));
    const gx__EstimateSeconds *s = gx__estimate_seconds(c, q, shape, err);
    if (!s) return gx_error_code(err);
    cost->forward_layer = s->forward[GX_STAGE_LAYER], cost->backward_layer = s->backward[GX_STAGE_LAYER];
    cost->forward = gx__estimate_units(q, s->forward), cost->backward = gx__estimate_units(q, s->backward);
    cost->step = gx__estimate_units(q, s->step) + s->rest;
    return GX_OK;
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
