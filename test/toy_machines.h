// toy_machines.h: machines and a transformer of which only sizes and speeds are known, as a problem for the planner
// (galaxy/plan/assignment_cost.h); and the best assignment of few of them, by looking at all.
#ifndef GX_TOY_MACHINES_H
#define GX_TOY_MACHINES_H
#include "galaxy/base/random.h"
#include "galaxy/plan/assignment_cost.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- random numbers ------------------------------------------------------------------------------------------------

typedef struct {
    uint64_t seed, n;
} Dice;
static double dice(Dice *d) { return (double)gx_random_uniform(d->seed, d->n++, 0, 0); }
static int dice_int(Dice *d, int low, int high) { return low + (int)(dice(d) * (high - low + 1)); }
static double dice_log(Dice *d, double low, double high) { return low * pow(high / low, dice(d)); }

// ---- machines and a model ------------------------------------------------------------------------------------------

enum { TOY_RANKS = 64, TOY_HEADS = 16, TOY_COLUMNS = 32 };

typedef struct {
    int n, H, K, columns;        // columns of the MLP, in blocks
    double T, C, V, head, block; // tokens of a sample, width, vocabulary; numbers of a head, columns of a block
    double speed[TOY_RANKS], memory[TOY_RANKS]; // FLOP/s; bytes
    double call;                                // seconds that a layer takes beside its FLOPs, on a machine of 1e12
    double latency[TOY_RANKS * TOY_RANKS], beta[TOY_RANKS * TOY_RANKS];
    long asked;
    GxPlanProblem p;
} Toy;

static double toy_layer_numbers(const Toy *t)
{
    return 2 * t->C * t->C + 2 * t->C * t->K * t->head + 3 * t->C * t->columns * t->block;
}
static double toy_model_bytes(const Toy *t) { return 16 * (t->p.layers * toy_layer_numbers(t) + 2 * t->V * t->C); }

typedef struct {
    int heads[TOY_RANKS], kv[TOY_RANKS], columns[TOY_RANKS];
} ToyLists;

static int toy_kv(const Toy *t, int begin, int end)
{
    const int sharing = t->H / t->K;
    return (end + sharing - 1) / sharing - begin / sharing;
}

// Heads by weights: the least slowest of q + 2 kv (a K,V head costs as much as K and V), over weights.
static void toy_heads(const Toy *t, const double *weight, int n, ToyLists *l)
{
    double best[TOY_RANKS + 1][TOY_HEADS + 1];
    int from[TOY_RANKS + 1][TOY_HEADS + 1];
    for (int end = 0; end <= t->H; end++) best[0][end] = end ? INFINITY : 0;
    for (int d = 1; d <= n; d++)
        for (int end = 0; end <= t->H; end++) {
            best[d][end] = INFINITY, from[d][end] = 0;
            for (int begin = 0; begin < end; begin++) {
                const double mine = (2 * (end - begin) + toy_kv(t, begin, end)) / weight[d - 1];
                const double slowest = fmax(best[d - 1][begin], mine);
                if (slowest < best[d][end]) best[d][end] = slowest, from[d][end] = begin;
            }
        }
    for (int d = n, end = t->H; d > 0; end = from[d][end], d--) {
        l->heads[d - 1] = end - from[d][end];
        l->kv[d - 1] = toy_kv(t, from[d][end], end);
    }
}

static void toy_columns(const Toy *t, const double *weight, int n, ToyLists *l)
{
    for (int i = 0; i < n; i++) l->columns[i] = 1;
    for (int rest = t->columns - n; rest > 0; rest--) {
        int next = 0;
        for (int i = 1; i < n; i++)
            if ((l->columns[i] + 1) / weight[i] < (l->columns[next] + 1) / weight[next]) next = i;
        l->columns[next]++;
    }
}

// Weights of the lists' members: the least of all groups that must have the same lists. way 0: speed, 1: memory.
static void toy_lists(const Toy *t, const GxStageRequest *r, int way, ToyLists *l)
{
    double weight[TOY_RANKS] = {0};
    const double *of = way ? t->memory : t->speed;
    for (int i = 0; i < r->n; i++) {
        weight[i] = of[r->rank[i]];
        for (int k = 0; r->alike && k < r->groups; k++) weight[i] = fmin(weight[i], of[r->alike[k * r->n + i]]);
    }
    toy_heads(t, weight, r->n, l);
    toy_columns(t, weight, r->n, l);
}

// The numbers of layers and ends that the i-th rank has.
static double toy_numbers(const Toy *t, const GxStageRequest *r, const ToyLists *l, int i)
{
    const double layer = 2 * t->C * t->head * (l->heads[i] + l->kv[i]) + 3 * t->C * t->block * l->columns[i];
    return r->layers * layer + (r->has_embed + r->has_head) * t->V * t->C * l->columns[i] / t->columns;
}

static void toy_cost(const Toy *t, const GxStageRequest *r, const ToyLists *l, GxStageCost *c)
{
    const double b = (double)r->micro_batch, rows = t->T * b;
    double att = 0, mlp = 0, con = 0, head = 0, moves = 0;
    c->room = INT64_MAX;
    for (int i = 0; i < r->n; i++) {
        const double v = t->speed[r->rank[i]], call = t->call * 1e12 / v;
        att = fmax(att, call + rows * t->head * (4 * t->C * (l->heads[i] + l->kv[i]) + 4 * t->T * l->heads[i]) / v);
        mlp = fmax(mlp, call + rows * 6 * t->C * t->block * l->columns[i] / v);
        con = fmax(con, rows * 20 * t->C / v);
        head = fmax(head, call + rows * 2 * t->C * t->V * l->columns[i] / t->columns / v);
        const double kept =
            4 * rows * (3 * t->C + 2 * t->head * (l->heads[i] + l->kv[i]) + 2 * t->block * l->columns[i]);
        const double used = 16 * toy_numbers(t, r, l, i) + r->alive * r->layers * kept +
                            r->has_head * 4 * rows * t->V * l->columns[i] / t->columns;
        const int64_t room = (int64_t)(t->memory[r->rank[i]] - used);
        if (room < c->room) c->room = room, c->tightest = i;
        for (int j = 0; j < r->n && i != j; j++) {
            const int link = r->rank[i] * t->n + r->rank[j];
            const double half = t->latency[link] * (r->n - 1) + 4 * rows * t->C * (r->n - 1) / r->n * t->beta[link];
            moves = fmax(moves, 4 * half);
        }
    }
    const double own = att + mlp + con;
    c->forward_layer = own + moves, c->backward_layer = 2 * own + moves;
    c->forward = r->layers * c->forward_layer + r->has_head * head;
    c->backward = r->layers * c->backward_layer + r->has_head * 2 * head + r->has_embed * con;
}

static GxStatus toy_stage(void *user, GxStageCost *c, const GxStageRequest *r, GxError *err)
{
    Toy *t = (Toy *)user;
    ToyLists speed, memory;
    GxStageCost other = GX_ZERO;
    (void)err;
    t->asked++;
    if (r->n > t->H) {
        c->forward = c->backward = c->forward_layer = c->backward_layer = INFINITY;
        return GX_OK;
    }
    toy_lists(t, r, 0, &speed);
    for (int i = 0; i < r->n; i++) { // of the lists by speed, whatever memory asks for
        c->grad_bytes = fmax(c->grad_bytes, 4 * toy_numbers(t, r, &speed, i));
        c->step = fmax(c->step, 20 * toy_numbers(t, r, &speed, i) / t->speed[r->rank[i]]);
    }
    other.grad_bytes = c->grad_bytes, other.step = c->step;
    toy_cost(t, r, &speed, c);
    if (c->room >= 0 || r->n == 1) return GX_OK;
    toy_lists(t, r, 1, &memory);
    toy_cost(t, r, &memory, &other);
    if (other.room > c->room) *c = other;
    return GX_OK;
}

static GxStatus toy_parts(void *user, GxAssignmentPlace *part, const GxStageRequest *r, GxError *err)
{
    ToyLists l;
    (void)err;
    toy_lists((Toy *)user, r, 0, &l);
    for (int i = 0; i < r->n; i++) part[i].heads = l.heads[i], part[i].columns = l.columns[i];
    return GX_OK;
}

static void toy_link(Toy *t, int a, int b, double latency, double bytes_per_second)
{
    t->latency[a * t->n + b] = t->latency[b * t->n + a] = latency;
    t->beta[a * t->n + b] = t->beta[b * t->n + a] = 1 / bytes_per_second;
}

static void toy_problem(Toy *t, int n, int layers, int64_t samples, int64_t micro_most)
{
    memset(t, 0, sizeof *t);
    t->n = n, t->H = 8, t->K = 4, t->columns = 16;
    t->T = 512, t->C = 1024, t->V = 8000, t->call = 1e-4;
    t->head = t->C / t->H, t->block = 2.75 * t->C / t->columns;
    t->p.ranks = n, t->p.layers = layers, t->p.samples = samples, t->p.micro_most = micro_most;
    t->p.latency = t->latency, t->p.seconds_per_byte = t->beta;
    t->p.x_bytes = 4 * t->T * t->C;
    t->p.kinds = GX_PLAN_ANY;
    t->p.stage = toy_stage, t->p.parts = toy_parts, t->p.user = t;
    for (int i = 0; i < n; i++) t->speed[i] = 1e12, t->memory[i] = 1e12;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) toy_link(t, i, j, 1e-5, 1e10);
}

// Machines whose speeds are up to 1:20 apart, links of 100 Mbit/s to 200 GB/s, in one island or two, and memory of 0.2
// to 50 copies of the model.
static void toy_random(Toy *t, Dice *d, int n, int layers, int64_t samples, int64_t micro_most)
{
    static const int heads[][2] = {{8, 4}, {8, 8}, {6, 3}, {4, 2}, {12, 4}};
    toy_problem(t, n, layers, samples, micro_most);
    const int k = dice_int(d, 0, 4), islands = dice_int(d, 1, 2), is_tight = dice(d) < 0.35;
    t->H = heads[k][0], t->K = heads[k][1], t->head = t->C / t->H;
    t->call = dice_log(d, 1e-6, 1e-3);
    t->p.most_warm = dice_int(d, 0, 1);
    const double spread = dice_log(d, 1, 20), beta = dice_log(d, 1.25e7, 2e11),
                 inside = fmin(beta * dice_log(d, 4, 1000), 2e11);
    const double latency = dice_log(d, 2e-6, 1e-3), model = toy_model_bytes(t);
    for (int i = 0; i < n; i++) {
        t->speed[i] = 2e12 / dice_log(d, 1, spread);
        t->memory[i] = model * (is_tight ? dice_log(d, 0.25, 1.3) : dice_log(d, 0.7, 50));
        for (int j = 0; j < i; j++) {
            const int is_near = islands == 2 && i % 2 == j % 2;
            toy_link(t, i, j, is_near ? latency / 5 : latency, is_near ? inside : beta);
        }
    }
}
#endif
