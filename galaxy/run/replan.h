// replan.h: another plan while a run goes on: with --plan auto, when the ranks' speeds are no longer what they were when
// they were measured. Samples move between copies of the model after any step (rebalance.h); layers and shares of layers
// move at a checkpoint, by another session on the same ranks (gx_session_pause).
//
// Every rank measures how long it computes the micro-batches of a step, as for rebalancing. Divided by what the same
// operations took when the rank was measured (GxTrainRun.plan_sample), this is how many times slower the rank is now.
// When a checkpoint has been saved, and these are means over at least 50 steps, rank 0 searches again with all
// measurements that many times as long. If what the run has now would take over 10% longer than the new plan, and at
// least 50 steps are left, the run goes on under the new plan, from that checkpoint.
//
// So it also corrects a plan whose measurements were disturbed. Links are taken as they were measured.
//
// A rank that the new plan leaves out ends, as one that is left out at the start. --rebalance off: the plan stays. There
// is no new plan in a run with --plan FILE, which has no measurements.
#ifndef GX_REPLAN_H
#define GX_REPLAN_H
#include "session.h"
GX_BEGIN

enum { GX_REPLAN_STEPS = 50 };
#define GX_REPLAN_GAIN 0.1

// A watcher. When it has found a better plan, it sets run->next_plan on all ranks.
GxStatus gx_replan_watch(GxTrainRun *r, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REPLAN_IMPLEMENTED)
#define GX_REPLAN_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "measured_machines.h"
#include "planner_search.h"
#include "reporter.h"

enum { GX__REPLAN_FIRST = 8 }; // steps of a session that are not measured: plan_watch.h slows some of them down

typedef struct {
    GxCost cost;
    GxRecorder recorder, *before;
    double planned; // seconds of a sample on this rank, as its operations were measured
    double worked;  // sum of the same, as they are now, over so many steps
    int64_t steps, first;
    int has_cost, is_on;
} gx__Replan;

// ---- what a sample takes on this rank ------------------------------------------------------------------------------

static int gx__replan_is_wanted(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    return r->plan && r->plan_samples && s->g->world > 1 && strcmp(r->o.rebalance, "off") != 0 && !r->o.dry_run &&
           !gx_options_is_inference(&r->o);
}

static int64_t gx__replan_samples(const GxSession *s) // of this rank's window
{
    return gx_split_part(&s->window.samples, gx_mesh_index(&s->mesh, GX_AXIS_DP));
}

static void gx__replan_heard(void *self, const GxEvent *e, int64_t times)
{
    gx__Replan *p = (gx__Replan *)self;
    if (e->action > 0 && e->action <= GX_DO_WEIGHT + 1) p->planned += (double)times * gx_cost_seconds(&p->cost, e);
}

static void gx__replan_rehearse(void *self, GxSession *s, GxContext *dry)
{
    gx__Replan *p = (gx__Replan *)self;
    const GxTrainRun *r = s->run;
    p->planned = 0;
    if (!gx__replan_is_wanted(s) || gx_cost_fit(&p->cost, r->plan_sample, r->plan_samples, &dry->error) != GX_OK)
        return;
    p->has_cost = 1;
    memset(&p->recorder, 0, sizeof p->recorder);
    p->recorder.totals_only = 1, p->recorder.heard = gx__replan_heard, p->recorder.user = p;
    p->before = p->recorder.also = dry->recorder, dry->recorder = &p->recorder;
}

static void gx__replan_rehearsed(void *self, GxSession *s, GxContext *dry)
{
    gx__Replan *p = (gx__Replan *)self;
    if (!p->has_cost) return;
    dry->recorder = p->before;
    p->planned /= (double)gx__replan_samples(s);
    gx_cost_close(&p->cost);
    p->has_cost = 0;
}

static void gx__replan_opened(void *self, GxSession *s)
{
    gx__Replan *p = (gx__Replan *)self;
    const GxTrainRun *r = s->run;
    p->is_on = gx__replan_is_wanted(s);
    p->worked = 0, p->steps = 0, p->first = r->at.step + gx_max(GX__REPLAN_FIRST, r->o.profile_steps + 3);
    if (p->is_on) s->runner.is_timed = 1;
}

static void gx__replan_stepped(void *self, GxSession *s)
{
    gx__Replan *p = (gx__Replan *)self;
    if (!p->is_on || s->run->at.step <= p->first) return;
    p->worked += s->runner.worked / (double)gx__replan_samples(s), p->steps++;
}

// ---- whether another plan is better --------------------------------------------------------------------------------

// What the run has now: its plan, with the samples that each copy has come to, by the numbers of its ranks.
static void gx__replan_now(GxAssignment *now, const GxSession *s)
{
    const GxTrainRun *r = s->run;
    *now = r->plan->a;
    now->ranks = s->g->world;
    for (int i = 0; i < now->ranks; i++) now->place[i] = r->plan->a.place[r->place[i].planned];
    for (int c = 0; c < now->copies && s->window.is_own; c++)
        now->copy[c].samples = gx_split_part(&s->window.samples, c);
}

// How many times as slow as measured a rank is, beside the others.
static double gx__replan_beside(const GxSession *s, int rank)
{
    double sum = 0;
    for (int i = 0; i < s->g->world; i++) sum += log(s->run->place[i].slower);
    return s->run->place[rank].slower / exp(sum / s->g->world);
}

static void gx__replan_say(const GxSession *s, double now, double then)
{
    int most = 0;
    for (int i = 1; i < s->g->world; i++)
        if (fabs(log(gx__replan_beside(s, i))) > fabs(log(gx__replan_beside(s, most)))) most = i;
    const double change = gx__replan_beside(s, most);
    gx_report(
        s->g,
        "step %ld: beside the others, rank %d (%s) is %.2g times as %s as when it was measured: a step would take "
        "%.3g s under another plan, instead of %.3g s; the run goes on under that one\n",
        (long)s->run->at.step, most, s->run->plan->rank[s->run->place[most].planned].machine,
        change > 1 ? change : 1 / change, change > 1 ? "slow" : "fast", then, now);
}

// On rank 0: 1, with a plan, if it is worth going on under that one.
static int gx__replan_find(GxSplitPlan *plan, const GxSession *s, GxError *err)
{
    const GxTrainRun *r = s->run;
    const GxMode mode = gx_planner_mode(s);
    GxMeasured m = GX_ZERO;
    GxAssignment now;
    int16_t machine[GX_MAX_PARTS];
    double slower[GX_MAX_PARTS], seconds = 0;
    for (int i = 0; i < s->g->world; i++) machine[i] = r->place[i].machine, slower[i] = r->place[i].slower;
    gx__replan_now(&now, s);
    if (gx_measured_from_machines(&m, &r->machines, s, GX_MACHINES_FILE, err) == GX_OK &&
        gx_measured_keep(&m, machine, slower, s->g->world, err) == GX_OK &&
        gx_planner_seconds(&seconds, &now, s, &mode, &m, err) == GX_OK)
        gx_planner_search(plan, s, &mode, &m, err);
    gx_measured_free(&m);
    if (gx_error_code(err) || seconds <= (1 + GX_REPLAN_GAIN) * plan->seconds) return 0;
    gx__replan_say(s, seconds, plan->seconds);
    return 1;
}

// Of all ranks: how many times as slow as measured they are.
static void gx__replan_gather(gx__Replan *p, GxSession *s)
{
    const GxSplit one_each = gx_split_even(s->g->world, s->g->world);
    const double mine = p->worked / (double)p->steps / p->planned;
    double all[GX_MAX_PARTS];
    gx_at(s->g, -1, "replan");
    gx_all_gather(s->g, GX_AXIS_ALL, &one_each, all, &mine, 1, GX_F64);
    for (int i = 0; i < s->g->world && !gx_failed(s->g); i++) s->run->place[i].slower = all[i];
    p->worked = 0, p->steps = 0;
}

static void gx__replan_saved(void *self, GxSession *s)
{
    gx__Replan *p = (gx__Replan *)self;
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxError failed = GX_ZERO; // then the plan stays
    int64_t is_better = 0;
    if (!p->is_on || p->steps < GX_REPLAN_STEPS || r->at.saved != r->at.step ||
        r->o.max_steps - r->at.step < GX_REPLAN_STEPS)
        return;
    gx__replan_gather(p, s);
    GxSplitPlan *plan = (GxSplitPlan *)calloc(1, sizeof *plan);
    if (!plan) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a plan");
    if (gx_session_is_first(s) && !gx_failed(g)) is_better = gx__replan_find(plan, s, &failed);
    if (gx_error_code(&failed))
        gx_log(&g->log, GX_LOG_WARNING, "the run keeps its plan, since another one cannot be made: %s", failed.message);
    gx_broadcast(g, GX_AXIS_ALL, 0, &is_better, 1, GX_I64); // on a failed context this tells the other ranks
    if (is_better && !gx_failed(g)) gx_broadcast(g, GX_AXIS_ALL, 0, plan, sizeof *plan, GX_U8);
    if (!is_better || gx_failed(g)) free(plan);
    else r->next_plan = plan;
}

GxStatus gx_replan_watch(GxTrainRun *r, GxError *err)
{
    if (strcmp(r->o.plan, "auto") != 0) return GX_OK;
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__Replan), err);
    if (!w) return gx_error_code(err);
    w->rehearse = gx__replan_rehearse, w->rehearsed = gx__replan_rehearsed;
    w->opened = gx__replan_opened, w->stepped = gx__replan_stepped, w->saved = gx__replan_saved;
    return GX_OK;
}
#endif
