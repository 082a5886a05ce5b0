// profile_steps.h: --profile_steps N: prints a table of where rank 0's time goes in N steps (profile.h). The first two
// steps of a process are slower (first touch of memory, kernels being compiled) and are not profiled.
#ifndef GX_PROFILE_STEPS_H
#define GX_PROFILE_STEPS_H
#include "session.h"
GX_BEGIN

GxStatus gx_profile_steps_watch(GxTrainRun *r, GxError *err); // a watcher

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PROFILE_STEPS_IMPLEMENTED)
#define GX_PROFILE_STEPS_IMPLEMENTED
#include "profile.h"
#include "reporter.h"

typedef struct {
    GxProfile profile;  // of rank 0
    int is_open, is_on; // is_on: this step is profiled
} gx__ProfileSteps;

static void gx__profile_steps_opened(void *self, GxSession *s)
{
    gx__ProfileSteps *p = (gx__ProfileSteps *)self;
    if (!p->is_open) gx_profile_open(&p->profile, s->g);
    p->profile.g = s->g, p->is_open = !gx_options_is_inference(&s->run->o);
}

static void gx__profile_steps_begin(void *self, GxSession *s)
{
    gx__ProfileSteps *p = (gx__ProfileSteps *)self;
    const GxTrainRun *r = s->run;
    p->is_on = gx_session_is_first(s) && p->profile.steps < r->o.profile_steps && r->at.step >= r->at.begun + 2;
    if (p->is_on) gx_profile_begin(&p->profile);
}

static void gx__profile_steps_end(void *self, GxSession *s, int is_computed)
{
    gx__ProfileSteps *p = (gx__ProfileSteps *)self;
    (void)s;
    if (p->is_on) gx_profile_end(&p->profile);
    if (p->is_on && !is_computed) p->profile.steps--;
}

static void gx__profile_steps_report(const gx__ProfileSteps *p, const GxSession *s)
{
    GxReport r;
    gx_report_begin(&r, s->g);
    if (!r.out) return;
    if (p->profile.steps) gx_profile_print(&p->profile, r.out);
    else
        fprintf(r.out, "no profile: it begins with the third step, and this run had %ld\n",
                (long)(s->run->at.step - s->run->at.begun));
    gx_report_end_as_is(&r, s->g);
}

static void gx__profile_steps_stepped(void *self, GxSession *s)
{
    const gx__ProfileSteps *p = (const gx__ProfileSteps *)self;
    if (p->is_on && p->profile.steps == s->run->o.profile_steps) gx__profile_steps_report(p, s);
}

static void gx__profile_steps_closed(void *self, GxSession *s)
{
    const gx__ProfileSteps *p = (const gx__ProfileSteps *)self;
    if (gx_failed(s->g) || !p->is_open || !gx_session_is_first(s)) return;
    if (p->profile.steps < s->run->o.profile_steps) gx__profile_steps_report(p, s);
}

GxStatus gx_profile_steps_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__ProfileSteps), err);
    if (!w) return gx_error_code(err);
    w->opened = gx__profile_steps_opened, w->stepped = gx__profile_steps_stepped, w->closed = gx__profile_steps_closed;
    w->begin = gx__profile_steps_begin, w->end = gx__profile_steps_end;
    return GX_OK;
}
#endif
