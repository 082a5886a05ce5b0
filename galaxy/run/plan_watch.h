// plan_watch.h: writes the plan of a run (planner.h) and what was measured for it into the output folder, as plan.json
// and machines.json; and compares the run's first steps with the plan: it warns if they take over a tenth longer or
// shorter, and names the operation that makes the largest difference.
//
// Steps 3 to 7 of a process count, since the first two are slower. While they run, every operation is timed.
#ifndef GX_PLAN_WATCH_H
#define GX_PLAN_WATCH_H
#include "session.h"
GX_BEGIN

GxStatus gx_plan_watch(GxTrainRun *r, GxError *err); // a watcher

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLAN_WATCH_IMPLEMENTED)
#define GX_PLAN_WATCH_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "../comm/comm.h"
#include "../io/files.h"
#include "../ops/memory.h"

enum { GX__PLAN_WATCH_FROM = 2, GX__PLAN_WATCH_STEPS = 5, GX__PLAN_WATCH_KINDS = 96 };

typedef struct { // operations of one name, in all steps
    char name[GX_COST_NAME];
    double planned, measured;
} gx__PlanWatchKind;

typedef struct {
    GxContext *g;
    GxCost cost;
    GxRecorder recorder, *before;
    gx__PlanWatchKind kind[GX__PLAN_WATCH_KINDS];
    int kinds, steps, has_cost, is_on;
    int64_t begun;         // the session's first step
    double seconds, since; // of the steps
} gx__PlanWatch;

static double gx__plan_watch_clock(void *self)
{
    gx_device_wait(((gx__PlanWatch *)self)->g);
    return gx_seconds();
}

static void gx__plan_watch_timed(void *self, const GxEvent *e, double seconds)
{
    gx__PlanWatch *c = (gx__PlanWatch *)self;
    int i = 0;
    if (e->kind != GX_EVENT_OP) return;
    while (i < c->kinds && strcmp(c->kind[i].name, e->name)) i++;
    if (i == GX__PLAN_WATCH_KINDS) return;
    if (i == c->kinds) snprintf(c->kind[c->kinds++].name, GX_COST_NAME, "%s", e->name);
    c->kind[i].measured += seconds, c->kind[i].planned += gx_cost_seconds(&c->cost, e);
}

static int gx__plan_watch_is_due(const gx__PlanWatch *c, const GxTrainRun *r)
{
    return r->plan && r->plan->seconds > 0 && r->plan_samples && !r->o.profile_steps &&
           c->steps < GX__PLAN_WATCH_STEPS && r->at.step >= c->begun + GX__PLAN_WATCH_FROM;
}

static void gx__plan_watch_begin(void *self, GxSession *s)
{
    gx__PlanWatch *c = (gx__PlanWatch *)self;
    GxTrainRun *r = s->run;
    c->is_on = gx__plan_watch_is_due(c, r);
    if (!c->is_on) return;
    if (!c->has_cost && gx_cost_fit(&c->cost, r->plan_sample, r->plan_samples, &s->g->error) != GX_OK) return;
    c->has_cost = 1, c->g = s->g;
    gx_cost_scale(&c->cost, r->place[s->g->rank].slower);
    c->recorder.totals_only = 1;
    c->recorder.clock = gx__plan_watch_clock, c->recorder.timed = gx__plan_watch_timed, c->recorder.user = c;
    c->before = c->recorder.also = s->g->recorder, s->g->recorder = &c->recorder;
    c->since = gx__plan_watch_clock(c);
}

// The kind whose times differ the most from the plan's, as a fraction of all of its steps.
static const gx__PlanWatchKind *gx__plan_watch_worst(const gx__PlanWatch *c)
{
    const gx__PlanWatchKind *worst = NULL;
    for (int i = 0; i < c->kinds; i++) {
        const double off = fabs(c->kind[i].measured - c->kind[i].planned);
        if (!worst || off > fabs(worst->measured - worst->planned)) worst = &c->kind[i];
    }
    return worst;
}

typedef struct { // what each rank tells
    gx__PlanWatchKind worst;
    double off; // seconds
} gx__PlanWatchRank;

static void gx__plan_watch_tell(gx__PlanWatch *c, GxSession *s)
{
    GxContext *g = s->g;
    gx__PlanWatchRank all[GX_MAX_PARTS], mine = GX_ZERO;
    const gx__PlanWatchKind *worst = gx__plan_watch_worst(c);
    const GxSplit one_each = gx_split_even(g->world, g->world);
    const double planned = s->run->plan->seconds, step = c->seconds / c->steps;
    if (worst) mine.worst = *worst, mine.off = fabs(worst->measured - worst->planned);
    gx_at(g, -1, "plan");
    gx_all_gather(g, GX_AXIS_ALL, &one_each, all, &mine, sizeof mine, GX_U8);
    if (gx_failed(g) || !gx_session_is_first(s) || fabs(step / planned - 1) <= 0.1) return;
    int at = 0;
    for (int r = 1; r < g->world; r++)
        if (all[r].off > all[at].off) at = r;
    const gx__PlanWatchKind *k = &all[at].worst;
    gx_log(&g->log, GX_LOG_WARNING,
           "a step takes %.3g s, %.0f%% %s than the plan says (%.3g s); the largest difference is in %s on rank %d: "
           "%.3g s a step instead of %.3g s. Other programs may use the machine; --plan auto measures it again",
           step, 100 * fabs(step / planned - 1), step > planned ? "more" : "less", planned, k->name, at,
           k->measured / c->steps, k->planned / c->steps);
}

static void gx__plan_watch_end(void *self, GxSession *s, int is_computed)
{
    gx__PlanWatch *c = (gx__PlanWatch *)self;
    if (!c->is_on || s->g->recorder != &c->recorder) return;
    gx_recorder_settle(&c->recorder);
    s->g->recorder = c->before, c->is_on = 0;
    if (!is_computed) return;
    c->seconds += gx_seconds() - c->since, c->steps++;
    if (c->steps == GX__PLAN_WATCH_STEPS) gx__plan_watch_tell(c, s);
}

static void gx__plan_watch_closed(void *self, GxSession *s)
{
    gx__PlanWatch *c = (gx__PlanWatch *)self;
    (void)s;
    if (c->has_cost) gx_cost_close(&c->cost);
    c->has_cost = 0;
}

static void gx__plan_watch_opened(void *self, GxSession *s)
{
    gx__PlanWatch *c = (gx__PlanWatch *)self;
    const GxTrainRun *r = s->run;
    GxError failed = GX_ZERO;
    char path[GX_PATH];
    c->begun = r->at.step, c->kinds = c->steps = 0, c->seconds = 0;
    if (!gx_session_is_first(s) || !r->plan) return;
    if (gx_path_join(path, r->o.output_dir, GX_PLAN_FILE, &failed) == GX_OK)
        gx_split_plan_write(r->plan, path, &failed);
    if (r->machines.machines && gx_path_join(path, r->o.output_dir, GX_MACHINES_FILE, &failed) == GX_OK)
        gx_machines_write(&r->machines, path, &failed);
    if (gx_error_code(&failed)) gx_log(&s->g->log, GX_LOG_WARNING, "the plan is not kept: %s", failed.message);
}

GxStatus gx_plan_watch(GxTrainRun *r, GxError *err)
{
    if (!r->o.plan[0]) return GX_OK;
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__PlanWatch), err);
    if (!w) return gx_error_code(err);
    w->opened = gx__plan_watch_opened, w->closed = gx__plan_watch_closed;
    w->begin = gx__plan_watch_begin, w->end = gx__plan_watch_end;
    return GX_OK;
}
#endif
