// measure.h: measures the ranks of a run: how long the operations of its model take on each of them, in real steps of
// this model with one layer, and how fast the links between them are.
//
//     GxMeasured m;
//     if (gx_measure(&m, session, mode, 8, 32) == GX_OK) ...  // called by all ranks; all get all figures
//     gx_measured_free(&m);                                   // also after an error
//
// A step is timed at the shares of a layer that matter, since a product of half as many columns need not take half as
// long: all of it with the samples of a micro-batch, all of it with one sample, half of it, an eighth, an eighth with
// one sample; if there are cards, also all of it with a large micro-batch. All ranks compute at the same time, as in
// training, since those that share a machine share its memory and cores. The first step of each share is not counted.
// Then shares take turns, 0.6 seconds each: some steps as a whole, one operation by operation. Slow machines do less,
// within GX_MEASURE_SECONDS. If the steps of even and odd turns differ on a rank by more than a tenth, it takes twice as
// long, and the spread that remains is kept.
//
// Links are timed between each ordered pair of ranks, one pair at a time: an empty message (latency) and a large one
// (bandwidth). Then all ranks send at once, which shows a switch that they share.
#ifndef GX_MEASURE_H
#define GX_MEASURE_H
#include "../plan/costs.h"
#include "../plan/split_plan.h"
#include "stage_walk.h"
GX_BEGIN

enum { GX_MEASURE_SECONDS = 20, GX_MEASURE_LINK_SECONDS = 5, GX_MEASURE_TEXT = GX_PLAN_NAME };

typedef struct {                                       // a rank
    char host[GX_MEASURE_TEXT], name[GX_MEASURE_TEXT]; // name: gx_plan_machine_name
    char device[GX_MEASURE_TEXT];
    int64_t threads, memory; // bytes that it may take: its part of what is free, where ranks share a machine or a card
    int64_t samples, first;  // its samples: GxMeasured.sample[first .. first + samples)
    double step, spread;     // seconds of the step with all of a layer; how far even and odd turns are apart
} GxMeasuredRank;

typedef struct {
    int ranks;
    GxMeasuredRank *rank;               // [ranks]
    GxCostSample *sample;               // of all ranks
    double *latency, *seconds_per_byte; // [ranks][ranks], from row to column; 0 on the diagonal
    double together;                    // how much longer a message takes if all ranks send at once; at least 1
} GxMeasured;

// The session's data must be open, its memory must not. mode: of the groups, which decides what is split. few: samples
// of a micro-batch; most: of one that is measured, too, if there are cards.
GxStatus gx_measure(GxMeasured *m, GxSession *s, const GxMode *mode, int64_t few, int64_t most);
void gx_measured_free(GxMeasured *m);
void gx_measure_host(char *name, size_t size); // this machine's name

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MEASURE_IMPLEMENTED)
#define GX_MEASURE_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../comm/comm.h"
#include "../ops/memory.h"
#include "plan.h"
#include "process_memory.h"

// ---- operations ----------------------------------------------------------------------------------------------------

#define GX__MEASURE_SLICE  0.08 // seconds of steps of a share, a round
#define GX__MEASURE_ENOUGH 0.6  // and of all rounds, with those that are timed operation by operation
enum { GX__MEASURE_TIMED = 16, GX__MEASURE_KEYS = 512, GX__MEASURE_SHARES = 6 };

typedef struct { // the times of one operation with certain dimensions, in one share
    GxCostSample sample;
    double seconds[GX__MEASURE_TIMED]; // in each step: of all its calls
    int calls[GX__MEASURE_TIMED];
} gx__MeasureKey;

typedef struct {
    GxStageWalk w;
    int is_open;
    gx__MeasureKey key[GX__MEASURE_KEYS];
    int keys, timed, is_full; // timed: steps, operation by operation
    double first, slice;      // seconds: of the first step, the slowest rank's; of the steps of a round
    double sum[2];            // seconds of the steps that were timed as a whole, in even and odd rounds
    int64_t steps[2];
} gx__MeasureShare;

typedef struct {
    GxSession *s;
    gx__MeasureShare *share; // [shares]
    int shares;
    GxCostSample *kept; // of all shares
    int64_t n;
} gx__Measure;

// For operations beside each other. On a CPU, seconds in which this thread computes, so that it does not matter during
// which of them it had to wait for its core.
static double gx__measure_clock(void *user)
{
    GxContext *g = &((gx__MeasureShare *)user)->w.g;
    struct timespec t;
    gx_device_wait(g);
    if (!g->device->shares_host_memory || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) return gx_seconds();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void gx__measure_timed(void *user, const GxEvent *e, double seconds)
{
    gx__MeasureShare *m = (gx__MeasureShare *)user;
    int i = 0;
    if (e->kind != GX_EVENT_OP) return;
    for (; i < m->keys; i++) {
        const GxCostSample *s = &m->key[i].sample;
        if (!strcmp(s->name, e->name) && !memcmp(&s->dims, &e->dims, sizeof e->dims) && s->flops == e->flops &&
            s->bytes == (double)e->bytes)
            break;
    }
    if (i == GX__MEASURE_KEYS) {
        m->is_full = 1;
        return;
    }
    gx__MeasureKey *k = &m->key[i];
    if (i == m->keys) {
        memset(k, 0, sizeof *k);
        snprintf(k->sample.name, sizeof k->sample.name, "%s", e->name);
        k->sample.dims = e->dims, k->sample.flops = e->flops, k->sample.bytes = (double)e->bytes;
        m->keys++;
    }
    k->seconds[m->timed] += seconds, k->calls[m->timed]++;
}

static int gx__measure_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double gx__measure_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, gx__measure_by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static double gx__measure_step(const gx__MeasureShare *h)
{
    return (h->sum[0] + h->sum[1]) / (double)(h->steps[0] + h->steps[1]);
}

// How far the means of even and odd rounds are apart.
static double gx__measure_spread(const gx__MeasureShare *h)
{
    if (!h->steps[0] || !h->steps[1]) return 0;
    const double even = h->sum[0] / (double)h->steps[0], odd = h->sum[1] / (double)h->steps[1];
    return fmax(even, odd) / fmin(even, odd) - 1;
}

// Keeps the median of each operation over the timed steps, so that together they take as long as a step does that is
// not timed operation by operation. What reading the clock costs, which is much on a card that has to be idle for it, is
// taken off each operation alike, but at most nine tenths of the shortest; the rest of the difference is in proportion:
// a machine whose time is given out in slices (a container with a quota) stands still now and then.
static void gx__measure_keep(gx__Measure *m, gx__MeasureShare *h)
{
    double all = 0, calls = 0, least = INFINITY;
    const double step = gx__measure_step(h);
    const int64_t first = m->n;
    for (int i = 0; i < h->keys; i++) {
        gx__MeasureKey *k = &h->key[i];
        double each[GX__MEASURE_TIMED];
        int n = 0;
        for (int j = 0; j < h->timed; j++)
            if (k->calls[j]) each[n++] = k->seconds[j] / k->calls[j];
        k->sample.seconds = gx__measure_median(each, n);
        all += k->sample.seconds * k->calls[0], calls += k->calls[0], least = fmin(least, k->sample.seconds);
        m->kept[m->n++] = k->sample;
    }
    const double clock = calls > 0 ? fmin(fmax((all - step) / calls, 0), 0.9 * least) : 0;
    for (int64_t i = first; i < m->n && all > 0; i++)
        m->kept[i].seconds = (m->kept[i].seconds - clock) * step / (all - calls * clock);
}

static GxStatus gx__measure_timed_step(gx__MeasureShare *h)
{
    GxRecorder rec = GX_ZERO;
    rec.totals_only = 1, rec.clock = gx__measure_clock, rec.timed = gx__measure_timed, rec.user = h;
    GX_TRY(gx_stage_walk_step(&h->w, &rec));
    h->timed++;
    if (!h->is_full) return GX_OK;
    return GX_FAIL(&h->w.g.error, GX_ERR_UNSUPPORTED, "a step has more than %d operations of different dimensions",
                   (int)GX__MEASURE_KEYS);
}

// Steps for a slice of time, and one that is timed operation by operation.
static GxStatus gx__measure_round(gx__MeasureShare *h, int round)
{
    const double begun = gx_seconds();
    for (double now = begun, since; now - begun < h->slice;) {
        since = now;
        GX_TRY(gx_stage_walk_step(&h->w, NULL));
        now = gx_seconds();
        h->sum[round % 2] += now - since, h->steps[round % 2]++;
    }
    return h->timed < GX__MEASURE_TIMED ? gx__measure_timed_step(h) : GX_OK;
}

// What takes too long for rounds: one step is all there is.
static GxStatus gx__measure_once(gx__MeasureShare *h)
{
    const double since = gx_seconds();
    GX_TRY(gx__measure_timed_step(h));
    h->sum[0] = gx_seconds() - since, h->steps[0] = 1;
    return GX_OK;
}

// A part of `total` and the rest, if the method splits it.
static void gx__measure_list(GxIntList *list, int is_split, int64_t total, int part)
{
    list->n = 0;
    if (!is_split || total < 2) return;
    list->v[0] = gx_max(total / part, 1), list->v[1] = total - list->v[0], list->n = 2;
}

// A layer and both ends, or a part of them: 1, all of it; 2, half.
static GxStageShape gx__measure_shape(const GxSession *s, const GxMode *mode, int64_t samples, int part)
{
    const GxMethods m = mode->methods;
    GxStageShape shape = gx_stage_shape(mode, samples);
    if (part == 1) return shape;
    shape.ranks = 2;
    gx__measure_list(&shape.heads, m.att == GX_METHOD_TP, gx_run_model_int(s->run, "num_attention_heads"), part);
    gx__measure_list(&shape.columns, m.mlp == GX_METHOD_TP, gx_run_model_int(s->run, "intermediate_size"), part);
    gx__measure_list(&shape.vocab, m.ends == GX_METHOD_TP, *s->run->family->vocab_size(s->run->model_config), part);
    gx__measure_list(&shape.rows, gx_methods_have(m, GX_METHOD_SP), s->run->o.seq_len, part);
    return shape;
}

// Opens the next share: a sample less and less, until it fits into this machine's memory. Nothing is allocated yet.
static GxStatus gx__measure_open(gx__Measure *m, const GxMode *mode, int64_t samples, int part, int64_t memory)
{
    gx__MeasureShare *h = &m->share[m->shares];
    for (;; samples /= 2) {
        const GxStageShape shape = gx__measure_shape(m->s, mode, samples, part);
        GxStatus status = gx_stage_walk_open(&h->w, m->s, &shape);
        h->is_open = 1;
        if (status == GX_OK) status = gx_stage_walk_dry(&h->w, NULL);
        if (status == GX_OK && h->w.needs.bytes > memory && samples > 1) {
            gx_stage_walk_close(&h->w);
            continue;
        }
        m->shares++;
        return status;
    }
}

// The most of all ranks.
static GxStatus gx__measure_agree(gx__Measure *m, double *x, int n)
{
    GxContext *g = m->s->g;
    if (g->world > 1) gx_all_reduce(g, GX_AXIS_ALL, GX_MAX, x, n, GX_F64);
    return gx_status(g);
}

// Allocates these shares and computes the first step of each, which is slower: first touches, kernels being compiled.
static GxStatus gx__measure_begin(gx__Measure *m, gx__MeasureShare *share, int n)
{
    double first[GX__MEASURE_SHARES];
    for (int k = 0; k < n; k++) {
        GX_TRY(gx_stage_walk_allocate(&share[k].w));
        const double since = gx_seconds();
        GX_TRY(gx_stage_walk_step(&share[k].w, NULL));
        first[k] = gx_seconds() - since;
    }
    GX_TRY(gx__measure_agree(m, first, n));
    for (int k = 0; k < n; k++) share[k].first = first[k], share[k].slice = fmax(GX__MEASURE_SLICE, first[k]);
    return GX_OK;
}

// Measures these shares in turns, round after round: a machine is faster in one second than in the next, and a plan
// compares shares. All ranks go on for as long as the slowest.
static GxStatus gx__measure_group(gx__Measure *m, gx__MeasureShare *share, int n, double budget)
{
    const double begun = gx_seconds();
    double round_seconds = 0;
    GX_TRY(gx__measure_begin(m, share, n));
    for (int k = 0; k < n; k++) round_seconds += share[k].slice + share[k].first;
    double state[2] = {gx_seconds() - begun + 2 * round_seconds - budget, 0}; // two rounds are too long; spread
    GX_TRY(gx__measure_agree(m, state, 1));
    for (int k = 0; k < n && state[0] > 0; k++) GX_TRY(gx__measure_once(&share[k]));
    for (int round = 0; state[0] <= 0; round++) {
        for (int k = 0; k < n; k++) GX_TRY(gx__measure_round(&share[k], round));
        const double seconds = gx_seconds() - begun, enough = n * GX__MEASURE_ENOUGH;
        state[1] = gx__measure_spread(&share[0]);
        GX_TRY(gx__measure_agree(m, &state[1], 1));
        state[0] = fmax(seconds + round_seconds - budget, seconds - (state[1] > 0.1 ? 2 * enough : enough));
        if (round % 2 == 0) state[0] = fmin(state[0], 0); // as many even ones as odd ones
        GX_TRY(gx__measure_agree(m, state, 1));
    }
    return GX_OK;
}

static void gx__measure_close(gx__MeasureShare *h)
{
    if (h->is_open) gx_stage_walk_close(&h->w);
    h->is_open = 0;
}

// The shares that matter: all of a layer with a few samples and with one; half of it; an eighth with a few and with
// one; all of it with many samples, on cards. Then as many of them at once as fit into the memory: all, or one.
static GxStatus gx__measure_shares(gx__Measure *m, const GxMode *mode, int64_t few, int64_t most, int64_t memory)
{
    static const int parts[] = {1, 1, 2, 8, 8, 1};
    const int64_t samples[] = {few, 1, few, few, 1, m->s->g->device->shares_host_memory ? few : most};
    const double begun = gx_seconds();
    double needs = 0, cards = !m->s->g->device->shares_host_memory;
    GX_TRY(gx__measure_agree(m, &cards, 1));
    for (int k = 0; k < GX__MEASURE_SHARES; k++) {
        if (parts[k] > 1 && !gx_methods_split(mode->methods)) continue;
        if ((k == 1 && few == 1) || (k == 5 && (most == few || cards == 0))) continue;
        GX_TRY(gx__measure_open(m, mode, samples[k], parts[k], memory));
        needs += (double)m->share[m->shares - 1].w.needs.bytes;
    }
    double lacks = needs - 0.9 * (double)memory;
    GX_TRY(gx__measure_agree(m, &lacks, 1));
    for (int k = 0, n = lacks > 0 ? 1 : m->shares; k < m->shares; k += n) {
        const double left = GX_MEASURE_SECONDS - (gx_seconds() - begun);
        GX_TRY(gx__measure_group(m, &m->share[k], n, left * n / (m->shares - k)));
        for (int i = k; i < k + n; i++) gx__measure_close(&m->share[i]);
    }
    return GX_OK;
}

static GxStatus gx__measure_operations(gx__Measure *m, const GxMode *mode, int64_t few, int64_t most,
                                       GxMeasuredRank *me)
{
    GxContext *g = m->s->g;
    m->share = (gx__MeasureShare *)calloc(GX__MEASURE_SHARES, sizeof *m->share);
    m->kept = (GxCostSample *)calloc(GX__MEASURE_SHARES * GX__MEASURE_KEYS, sizeof *m->kept);
    if (!m->share || !m->kept) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory to measure a step");
    GxStatus status = gx__measure_shares(m, mode, few, most, me->memory);
    for (int k = 0; k < m->shares; k++) {
        gx__MeasureShare *h = &m->share[k];
        if (h->is_open && gx_failed(&h->w.g) && !gx_failed(g)) g->error = h->w.g.error;
        if (status == GX_OK) gx__measure_keep(m, h);
        gx__measure_close(h);
    }
    if (status == GX_OK) me->step = gx__measure_step(m->share), me->spread = gx__measure_spread(m->share);
    free(m->share);
    return gx_status(g);
}

// ---- links ---------------------------------------------------------------------------------------------------------

enum { GX__MEASURE_SMALL = 1 << 20, GX__MEASURE_LARGE = 8 << 20, GX__MEASURE_PINGS = 20 };

// A message of n bytes from rank i to rank j, and an empty one back. Both ranks call it.
static double gx__measure_message(GxContext *g, int i, int j, char *buffer, int64_t n)
{
    const double since = gx_seconds();
    if (g->rank == i) gx_send(g, GX_AXIS_ALL, j, buffer, n, GX_U8), gx_recv(g, GX_AXIS_ALL, j, buffer, 1, GX_U8);
    if (g->rank == j) gx_recv(g, GX_AXIS_ALL, i, buffer, n, GX_U8), gx_send(g, GX_AXIS_ALL, i, buffer, 1, GX_U8);
    return gx_seconds() - since;
}

// budget: seconds for this link. Large messages are sent only over a link that has them through in time.
static void gx__measure_link(GxContext *g, int i, int j, char *buffer, double budget, double *latency, double *per_byte)
{
    double ping[GX__MEASURE_PINGS];
    for (int k = 0; k < GX__MEASURE_PINGS; k++) ping[k] = gx__measure_message(g, i, j, buffer, 1) / 2;
    *latency = fmax(gx__measure_median(ping, GX__MEASURE_PINGS), 1e-9);
    int64_t n = GX__MEASURE_SMALL;
    double took = gx__measure_message(g, i, j, buffer, n);
    int64_t goes_on = took * 8 < budget; // the sender decides
    if (g->rank == i) gx_send(g, GX_AXIS_ALL, j, &goes_on, 1, GX_I64);
    if (g->rank == j) gx_recv(g, GX_AXIS_ALL, i, &goes_on, 1, GX_I64);
    if (goes_on) n = GX__MEASURE_LARGE, took = gx__measure_message(g, i, j, buffer, n);
    *per_byte = fmax((took - 2 * *latency) / (double)n, 1e-13);
}

// Each rank sends to its neighbour at the same time: how much longer that takes than the slowest link alone.
static double gx__measure_together(GxContext *g, const GxMeasured *m, char *buffer)
{
    const int n = m->ranks, right = (g->rank + 1) % n, left = (g->rank + n - 1) % n;
    const GxTransfer ring[2] = {{right, 1, 0, buffer, GX__MEASURE_SMALL, GX_U8},
                                {left, 0, 0, buffer + GX__MEASURE_SMALL, GX__MEASURE_SMALL, GX_U8}};
    double alone = 0;
    gx_barrier(g, GX_AXIS_ALL);
    const double since = gx_seconds();
    gx_transfer(g, GX_AXIS_ALL, ring, 2);
    double took = gx_seconds() - since;
    gx_all_reduce(g, GX_AXIS_ALL, GX_MAX, &took, 1, GX_F64);
    for (int r = 0; r < n; r++) {
        const int64_t at = r * n + (r + 1) % n;
        alone = fmax(alone, m->latency[at] + GX__MEASURE_SMALL * m->seconds_per_byte[at]);
    }
    return fmax(took / alone, 1);
}

static GxStatus gx__measure_links(GxMeasured *m, GxContext *g)
{
    const int n = m->ranks;
    const GxSplit rows = gx_split_even(n, n);
    char *buffer = (char *)calloc(1, GX__MEASURE_LARGE);
    if (!buffer) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory to measure links");
    const double budget = (double)GX_MEASURE_LINK_SECONDS / gx_max(n * (n - 1), 1);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n && !gx_failed(g); j++) {
            if (i == j) continue;
            gx_barrier(g, GX_AXIS_ALL);
            if (g->rank == i || g->rank == j)
                gx__measure_link(g, i, j, buffer, budget, &m->latency[i * n + j], &m->seconds_per_byte[i * n + j]);
        }
    // what the senders have measured
    gx_all_gather(g, GX_AXIS_ALL, &rows, m->latency, m->latency + g->rank * n, n, GX_F64);
    gx_all_gather(g, GX_AXIS_ALL, &rows, m->seconds_per_byte, m->seconds_per_byte + g->rank * n, n, GX_F64);
    m->together = gx_failed(g) ? 1 : gx__measure_together(g, m, buffer);
    free(buffer);
    return gx_status(g);
}

// ---- all ranks -----------------------------------------------------------------------------------------------------

// This rank's part of the memory that is free, if `sharing` ranks share it.
static int64_t gx__measure_memory(GxContext *g, int sharing)
{
    int64_t has = gx_available_memory(), all;
    if (!g->device->shares_host_memory) g->device->memory(g, &has, &all);
    else has -= gx_plan_process_bytes(gx_threads(g)) - gx_process_memory();
    return gx_max(has, 0) / gx_max(sharing, 1);
}

void gx_measure_host(char *name, size_t size)
{
    char whole[256] = "";
    if (gethostname(whole, sizeof whole - 1) || !whole[0]) snprintf(whole, sizeof whole, "unnamed");
    snprintf(name, size, "%.*s", GX_MEASURE_TEXT - 1, whole);
}

static void gx__measure_describe(GxContext *g, GxMeasuredRank *me)
{
    gx_measure_host(me->host, sizeof me->host);
    char device[256] = "";
    g->device->describe(device, sizeof device);
    snprintf(me->device, sizeof me->device, "%s%s%.80s", g->device->name, device[0] ? ": " : "", device);
    me->threads = gx_threads(g);
}

// What each rank tells the others before it is measured, and afterwards.
static void gx__measure_tell(GxMeasured *m, GxContext *g, const GxMeasuredRank *me)
{
    const GxSplit one_each = gx_split_even(m->ranks, m->ranks);
    gx_all_gather(g, GX_AXIS_ALL, &one_each, m->rank, me, sizeof *me, GX_U8);
}

static GxStatus gx__measure_gather(GxMeasured *m, GxContext *g, const gx__Measure *mine)
{
    GxSplit rows = gx_split_even(m->ranks, m->ranks);
    for (int r = 0; r < m->ranks; r++) {
        m->rank[r].first = rows.begin[r];
        rows.begin[r + 1] = rows.begin[r] + m->rank[r].samples;
    }
    m->sample = (GxCostSample *)malloc((size_t)(gx_split_total(&rows) + 1) * sizeof *m->sample);
    if (!m->sample) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the measurements of %d ranks", m->ranks);
    gx_all_gather(g, GX_AXIS_ALL, &rows, m->sample, mine->kept, sizeof *m->sample, GX_U8);
    return gx_status(g);
}

static void gx__measure_name(const GxMeasured *m, int rank, char name[GX_PLAN_NAME])
{
    char host[GX_MAX_PARTS][GX_PLAN_NAME];
    for (int r = 0; r <= rank; r++) memcpy(host[r], m->rank[r].host, GX_PLAN_NAME);
    gx_plan_machine_name((const char(*)[GX_PLAN_NAME])host, rank, name);
}

static GxStatus gx__measure_all(GxMeasured *m, gx__Measure *mine, GxSession *s, const GxMode *mode, int64_t few,
                                int64_t most)
{
    GxContext *g = s->g;
    GxMeasuredRank me = GX_ZERO;
    int sharing = 0, is_first = 1;
    const uint64_t card = gx_plan_card(g);
    gx__measure_describe(g, &me);
    me.memory = (int64_t)(card >> 12); // for a moment: who shares a card or a machine
    gx__measure_tell(m, g, &me);
    gx__measure_name(m, g->rank, me.name);
    for (int r = 0; r < m->ranks; r++) sharing += !strcmp(m->rank[r].host, me.host) && m->rank[r].memory == me.memory;
    for (int r = 0; r < g->rank; r++) is_first &= strcmp(m->rank[r].host, me.host) || m->rank[r].memory != me.memory;
    if (is_first && sharing > 1 && !g->device->shares_host_memory)
        gx_log(&g->log, GX_LOG_WARNING,
               "%d ranks share this card, and were measured while the others computed: a plan that leaves one of them "
               "out foresees too long a step. Start one rank for each card",
               sharing);
    me.memory = gx__measure_memory(g, sharing);
    GX_TRY(gx__measure_operations(mine, mode, few, most, &me));
    me.samples = mine->n;
    gx__measure_tell(m, g, &me);
    GX_TRY(gx__measure_gather(m, g, mine));
    return m->ranks > 1 ? gx__measure_links(m, g) : GX_OK;
}

GxStatus gx_measure(GxMeasured *m, GxSession *s, const GxMode *mode, int64_t few, int64_t most)
{
    GxContext *g = s->g;
    gx__Measure mine = GX_ZERO;
    GxArena sums = GX_ZERO, *host = g->host; // the communicator's arena has no room for sums
    const size_t n = (size_t)g->world;
    memset(m, 0, sizeof *m);
    m->ranks = g->world, m->together = 1, mine.s = s;
    m->rank = (GxMeasuredRank *)calloc(n, sizeof *m->rank);
    m->latency = (double *)calloc(2 * n * n, sizeof *m->latency);
    m->seconds_per_byte = m->latency ? m->latency + n * n : NULL;
    gx_at(g, -1, "measure");
    if (gx_arena_open(&sums, 2 * gx_comm_chunk(g->comm), &g->error) == GX_OK) g->host = &sums;
    if (!m->rank || !m->latency)
        GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the measurements of %d ranks", m->ranks);
    else gx__measure_all(m, &mine, s, mode, few, most);
    if (gx_failed(g) && g->world > 1) gx_barrier(g, GX_AXIS_ALL); // tells the other ranks
    g->host = host;
    gx_arena_close(&sums);
    free(mine.kept);
    return gx_status(g);
}

void gx_measured_free(GxMeasured *m)
{
    free(m->rank);
    free(m->sample);
    free(m->latency);
    memset(m, 0, sizeof *m);
}
#endif
