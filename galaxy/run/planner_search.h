// planner_search.h: which assignment of a run to measured ranks takes the shortest step: the search (plan/search.h) and
// the estimates of stages (estimate.h), put together for a session. On rank 0; planner.h and replan.h tell the others.
#ifndef GX_PLANNER_SEARCH_H
#define GX_PLANNER_SEARCH_H
#include "../plan/split_plan.h"
#include "measure.h"
GX_BEGIN

enum { GX_PLANNER_MICRO_BATCH = 8 }; // samples of a micro-batch that is measured

// Samples of a step: as given, or what equal ranks would take.
int64_t gx_planner_samples(const GxSession *s);
// Samples of the largest micro-batch that a plan may have.
int64_t gx_planner_micro_most(const GxSession *s);
// The mode of groups: as the options say, or tp.
GxMode gx_planner_mode(const GxSession *s);

// The session's data must be open. plan: with what is expected of it.
GxStatus gx_planner_search(GxSplitPlan *plan, const GxSession *s, const GxMode *mode, const GxMeasured *m,
                           GxError *err);
// Seconds of a step under an assignment of all ranks of m, with the shares that it says.
GxStatus gx_planner_seconds(double *seconds, const GxAssignment *a, const GxSession *s, const GxMode *mode,
                            const GxMeasured *m, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLANNER_SEARCH_IMPLEMENTED)
#define GX_PLANNER_SEARCH_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../plan/search.h"
#include "estimate.h"

enum {
    GX__PLANNER_SEARCH_MOST = 32,    // of a micro-batch
    GX__PLANNER_SEARCH_BUDGET = 600, // groupings of more than six ranks that are looked at
    GX__PLANNER_SEARCH_KINDS = GX_PLAN_REGULAR | GX_PLAN_PIPELINE
};

int64_t gx_planner_samples(const GxSession *s)
{
    const GxTrainOptions *o = &s->run->o;
    return o->global_batch_size ? o->global_batch_size : gx_max(o->micro_batch_size, 1) * s->g->world;
}

int64_t gx_planner_micro_most(const GxSession *s)
{
    const int64_t given = gx_config_is_set(&s->run->config, "micro_batch_size") ? s->run->o.micro_batch_size : 0;
    return gx_min(given ? given : (int64_t)GX__PLANNER_SEARCH_MOST, gx_planner_samples(s));
}

GxMode gx_planner_mode(const GxSession *s)
{
    if (gx_methods_split(s->mode->methods)) return *s->mode;
    return gx_composed("tp", gx_methods(GX_METHOD_TP, GX_METHOD_NONE, GX_METHOD_TP));
}

typedef struct {
    const GxSession *s;
    const GxMode *mode;
    const GxMeasured *m;
    GxEstimate estimate;
    GxPlanProblem problem;
    double *per_byte; // [ranks][ranks]: seconds, while all links are used
    int *klass;       // [ranks]
} gx__PlannerSearch;

// Ranks with the same operations, memory and threads are of a class.
static void gx__planner_search_classes(gx__PlannerSearch *p)
{
    const GxMeasured *m = p->m;
    for (int r = 0; r < m->ranks; r++) {
        p->klass[r] = r;
        for (int k = r - 1; k > 0; k--) { // rank 0 is like no other (estimate.h)
            const GxMeasuredRank *a = &m->rank[r], *b = &m->rank[k];
            if (a->first == b->first && a->samples == b->samples && a->memory == b->memory) p->klass[r] = p->klass[k];
        }
    }
}

static void gx__planner_search_problem(gx__PlannerSearch *p)
{
    GxPlanProblem *problem = &p->problem;
    const GxMeasured *m = p->m;
    problem->ranks = m->ranks, problem->layers = (int)gx_run_layers(p->s->run);
    problem->samples = gx_planner_samples(p->s);
    problem->micro_most = gx_planner_micro_most(p->s);
    problem->latency = m->latency, problem->seconds_per_byte = p->per_byte, problem->klass = p->klass;
    problem->x_bytes = gx_estimate_message(&p->estimate);
    problem->first_rank_stays = 1, problem->same_lists = 1;
    problem->kinds = GX__PLANNER_SEARCH_KINDS, problem->budget = m->ranks > 6 ? GX__PLANNER_SEARCH_BUDGET : 0;
    problem->stage = gx_estimate_stage, problem->parts = gx_estimate_parts, problem->user = &p->estimate;
}

// Close it also after an error.
static GxStatus gx__planner_search_open(gx__PlannerSearch *p, const GxSession *s, const GxMode *mode,
                                        const GxMeasured *m, GxError *err)
{
    const int64_t n = m->ranks;
    memset(p, 0, sizeof *p);
    p->s = s, p->mode = mode, p->m = m;
    p->per_byte = (double *)malloc((size_t)(n * n) * sizeof *p->per_byte);
    p->klass = (int *)malloc((size_t)n * sizeof *p->klass);
    if (!p->per_byte || !p->klass) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to plan %ld ranks", (long)n);
    for (int64_t i = 0; i < n * n; i++) p->per_byte[i] = m->seconds_per_byte[i] * m->together;
    GX_TRY(gx_estimate_open(&p->estimate, s, mode, m, GX_PLANNER_MICRO_BATCH, err));
    gx__planner_search_classes(p);
    gx__planner_search_problem(p);
    return GX_OK;
}

static void gx__planner_search_close(gx__PlannerSearch *p)
{
    gx_estimate_close(&p->estimate);
    free(p->per_byte);
    free(p->klass);
}

// Samples per second of a rank that computes all of the model.
static GxStatus gx__planner_search_alone(gx__PlannerSearch *p, int16_t rank, int64_t micro_batch, double *speed,
                                         GxError *err)
{
    GxStageRequest q = GX_ZERO;
    GxStageCost cost = GX_ZERO;
    q.rank = &rank, q.n = 1, q.layers = p->problem.layers, q.has_embed = q.has_head = q.alive = 1;
    q.micro_batch = micro_batch;
    GX_TRY(gx_estimate_stage(&p->estimate, &cost, &q, err));
    *speed = (double)micro_batch / (cost.forward + cost.backward);
    return GX_OK;
}

// What is expected of each rank: how much of the time it computes, and its memory; and of all: how long a step would
// take if nothing were lost.
static GxStatus gx__planner_search_expect(gx__PlannerSearch *p, GxSplitPlan *plan, GxError *err)
{
    const GxAssignment *a = &plan->a;
    double speed = 0;
    int64_t needs[GX_ASSIGNED_RANKS];
    GxMembers members;
    gx_assignment_members(&members, a);
    for (int stage = 0; stage < a->stages; stage++) {
        const GxStageRequest q = gx_stage_request(&p->problem, a, &members, stage);
        const double samples = (double)a->copy[a->stage[stage].copy].samples;
        GxStageCost cost = GX_ZERO;
        GX_TRY(gx_estimate_memory(&p->estimate, needs, &q, err));
        GX_TRY(gx_estimate_stage(&p->estimate, &cost, &q, err));
        for (int i = 0; i < q.n; i++) {
            GxSplitPlanRank *of = &plan->rank[q.rank[i]];
            double alone;
            GX_TRY(gx__planner_search_alone(p, q.rank[i], q.micro_batch, &alone, err));
            speed += alone;
            of->needs = needs[i], of->has = p->m->rank[q.rank[i]].memory;
            of->busy = (cost.forward + cost.backward) * samples / (double)q.micro_batch / plan->seconds;
            of->busy = fmin(of->busy, 1), of->is_tight = of->has - of->needs < of->needs / 10;
        }
    }
    plan->ideal = (double)plan->samples / speed;
    return GX_OK;
}

static void gx__planner_search_take(const gx__PlannerSearch *p, GxSplitPlan *plan, const GxSearchResult *found)
{
    const GxAssignmentCost *c = &found->cost;
    plan->layers = p->problem.layers, plan->samples = p->problem.samples;
    plan->seconds = c->seconds, plan->bubble = c->bubble, plan->messages = c->messages, plan->sums = c->sums;
    plan->with_all = 0;
    snprintf(plan->mode, sizeof plan->mode, "%s", p->mode->name);
    for (int r = 0; r < p->m->ranks; r++) {
        memcpy(plan->rank[r].machine, p->m->rank[r].name, GX_PLAN_NAME);
        if (plan->a.place[r].stage < 0 && isfinite(found->with[r]))
            plan->with_all = fmax(plan->with_all, found->with[r]);
    }
}

static GxStatus gx__planner_search_find(gx__PlannerSearch *p, GxSplitPlan *plan, GxError *err)
{
    GxSearchResult *found = (GxSearchResult *)calloc(1, sizeof *found);
    if (!found) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a search");
    if (gx_search(&plan->a, found, &p->problem, (uint64_t)p->s->run->o.seed, err) == GX_OK) {
        const int16_t stage = plan->a.place[0].stage; // of rank 0, whose copy becomes the first
        gx_assignment_swap(&plan->a, stage >= 0 ? plan->a.stage[stage].copy : 0);
        gx__planner_search_take(p, plan, found);
        gx__planner_search_expect(p, plan, err);
    }
    free(found);
    return gx_error_code(err);
}

GxStatus gx_planner_search(GxSplitPlan *plan, const GxSession *s, const GxMode *mode, const GxMeasured *m, GxError *err)
{
    gx__PlannerSearch p;
    if (gx__planner_search_open(&p, s, mode, m, err) == GX_OK && gx__planner_search_find(&p, plan, err) == GX_OK)
        gx_estimate_warn(&p.estimate);
    gx__planner_search_close(&p);
    return gx_error_code(err);
}

GxStatus gx_planner_seconds(double *seconds, const GxAssignment *a, const GxSession *s, const GxMode *mode,
                            const GxMeasured *m, GxError *err)
{
    gx__PlannerSearch p;
    GxStageCosts costs;
    GxAssignmentCost cost = GX_ZERO;
    if (gx__planner_search_open(&p, s, mode, m, err) == GX_OK) {
        p.estimate.fixed = a;
        if (gx_stage_costs_open(&costs, &p.problem, err) == GX_OK) gx_assignment_cost(&cost, a, &costs, err);
        gx_stage_costs_close(&costs);
    }
    gx__planner_search_close(&p);
    *seconds = cost.seconds;
    return gx_error_code(err);
}
#endif
