// session_open.h: opens a session of a run on a set of ranks, up to its plan of memory, and closes it.
//
//     GX_TRY(gx_session_open(&session, &run, g));     // ranks, options, data, model, plan
//     if (run.o.dry_run) gx_plan_print(stdout, &session.plan);
//     GX_TRY(gx_session_open_memory(&session));       // session_memory.h: exactly as planned
//     GX_TRY(gx_session_load(&session));              // session_weights.h
//     ...
//     gx_session_close(&session);                     // also after an error
//
// The plan needs neither data nor memory nor weights, and no trainer. A run may have one session after another, on
// other ranks: what that needs is in its last checkpoint (gx_save). A context has one session.
#ifndef GX_SESSION_OPEN_H
#define GX_SESSION_OPEN_H
#include "session.h"
GX_BEGIN

// r: opened, and kept until the session is closed. s: is set to zero first.
GxStatus gx_session_open(GxSession *s, GxTrainRun *r, GxContext *g);
// Closes what the session and its task have opened, including the communicator and the device. The run stays open.
void gx_session_close(GxSession *s);
// The same, but the communicator stays open, for another session of the run on the same ranks.
void gx_session_pause(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_OPEN_IMPLEMENTED)
#define GX_SESSION_OPEN_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "best.h"
#include "machine.h"
#include "planner.h"
#include "recompute.h"
#include "session_agree.h"
#include "session_data.h"
#include "session_memory.h"
#include "session_model.h"
#include "simulation.h"

static GxStatus gx__session_open_parts(GxSession *s)
{
    GX_TRY(gx_session_agree(s));
    GX_TRY(gx_simulation_run(s));
    if (!s->run->done) GX_TRY(gx_planner_run(s));
    if (s->run->done) return GX_OK; // it was a prediction, or this rank is left out
    GX_TRY(gx_session_arrange(s));
    GX_TRY(gx_session_open_data(s));
    GX_TRY(gx_best_check(s, &s->g->error));
    return gx_session_open_model(s);
}

// Explains an error about a relative path that comes from the resumed run's options: it was resolved from this folder.
static GxStatus gx__session_open_explain_path(GxSession *s, const GxField *option, const char *path)
{
    GxError *err = &s->g->error, told = GX_ZERO;
    char *here = getcwd(NULL, 0);
    GX_FAIL(&told, gx_error_code(err),
            "%s; the resumed run was started with --%s %s, which is relative to the current folder, now %s; change to "
            "the folder where it was started, or give --%s again",
            err->message, option->name, path, here ? here : "another one", option->name);
    *err = told;
    free(here);
    return gx_status(s->g);
}

// 1: the path is the value of an option that was given in this command.
static int gx__session_open_path_is_given(const GxConfig *c, const char *path)
{
    for (int k = 0; k < c->groups; k++)
        for (int i = 0; i < c->group[k].n; i++) {
            const GxField *f = &c->group[k].option[i];
            if (f->type == GX_FIELD_PATH && gx_config_is_set(c, f->name) &&
                !strcmp((const char *)gx_field_in(f, c->group[k].target), path))
                return 1;
        }
    return 0;
}

// Explains options that do not fit because they are those of a plan for other ranks.
static GxStatus gx__session_open_explain_plan(GxSession *s)
{
    const GxTrainRun *r = s->run;
    GxError *err = &s->g->error, told = GX_ZERO;
    const char *plan = gx_json_string(gx_json_get(r->resume.args, "plan"));
    if (gx_error_code(err) != GX_ERR_ARGUMENT || !r->resume.folder[0] || !plan[0] || r->o.plan[0] ||
        r->resume.state.world == s->g->world)
        return gx_error_code(err);
    GX_FAIL(&told, GX_ERR_ARGUMENT,
            "%s; the resumed run had a plan for %ld rank%s, whose options do not fit %d: --plan auto makes another one",
            err->message, (long)r->resume.state.world, gx_text_s(r->resume.state.world), s->g->world);
    *err = told;
    return gx_status(s->g);
}

static GxStatus gx__session_open_explain_error(GxSession *s)
{
    const GxConfig *c = &s->run->config;
    const GxStatus code = gx__session_open_explain_plan(s);
    for (int k = 0; k < c->groups && code != GX_ERR_COMM; k++)
        for (int i = 0; i < c->group[k].n; i++) {
            const GxField *f = &c->group[k].option[i];
            const char *path = (const char *)gx_field_in(f, c->group[k].target);
            if (f->type != GX_FIELD_PATH || gx_config_source(c, f->name) != GX_FROM_CHECKPOINT) continue;
            if (path[0] && path[0] != '/' && access(path, F_OK) != 0 && strstr(s->g->error.message, path) &&
                !gx__session_open_path_is_given(c, path))
                return gx__session_open_explain_path(s, f, path);
        }
    return code;
}

GxStatus gx_session_open(GxSession *s, GxTrainRun *r, GxContext *g)
{
    memset(s, 0, sizeof *s);
    s->g = g, s->run = r;
    s->is_seen = 1; // s->seen is up to date: no step was done yet
    GX_TRY(gx_open_device(g, r->o.dry_run));
    if (gx__session_open_parts(s) != GX_OK) return gx__session_open_explain_error(s);
    return r->done ? GX_OK : gx_recompute_plan(s);
}

// 1: micro-batches may all have been smaller than planned, or become so.
static int gx__session_open_samples_vary(const GxSession *s)
{
    const GxWindow *w = &s->window;
    const int copy = gx_mesh_index(&s->mesh, GX_AXIS_DP);
    return w->is_own && (gx_options_rebalances(&s->run->o, w->samples.n) ||
                         gx_split_part(&w->samples, copy) < gx_split_part(&w->micro, copy));
}

// 1: the number of rows or texts that count differs between batches. The plan assumes the most, also for the scratch of
// operations, so that the arena's peak may stay below it.
static int gx__session_open_rows_vary(const GxSession *s)
{
    int vary = 0;
    for (int k = 0; k < s->run->task->loss.n; k++)
        vary |= s->eval->target[k].rows != NULL || s->eval->target[k].parts != NULL;
    return vary;
}

// All but the communicator.
static void gx__session_open_release(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    if (r->self) {
        r->task->data.close(r->self);
        memset(r->self, 0, r->task->options.size); // another session sets its options again
    }
    gx_runner_close(&s->runner);
    gx_model_close(&s->model);
    if (!gx_failed(g) && s->arena.base && r->at.step > r->at.begun &&
        s->arena.peak != s->plan.arena && // after an error, not all was taken
        !gx__session_open_rows_vary(s) && !gx__session_open_samples_vary(s))
        gx_log(&g->log, GX_LOG_WARNING, "the arena was planned with %ld bytes, %ld were used: the plan is wrong",
               (long)s->plan.arena, (long)s->arena.peak);
    free(s->batch); // only now: the check above reads the validation's
    gx_arenas_close(g, &s->arena, &s->host_arena);
    gx_device_close(g);
    memset(s, 0, sizeof *s);
    s->g = g, s->run = r;
    r->sessions++;
}

void gx_session_close(GxSession *s)
{
    if (s->g->comm && s->g->comm->is_open) gx_comm_close(s->g);
    gx__session_open_release(s);
    gx_arena_close(&s->run->comm_arena);
}

void gx_session_pause(GxSession *s)
{
    gx_comm_regroup(s->g);
    gx__session_open_release(s);
    s->g->arena = NULL, s->g->step = NULL;
}
#endif
