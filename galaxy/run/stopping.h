// stopping.h: how a run is asked to stop: by a signal, or because a rank's data can no longer be read. Either may reach
// only some ranks, so they agree: all stop, or none does.
#ifndef GX_STOPPING_H
#define GX_STOPPING_H
#include "session.h"
GX_BEGIN

int gx_agree_to_stop(GxSession *s); // 1, on all ranks, and run->stop is set
// How a task runs the session's model: its `stop` is gx_agree_to_stop.
GxForward gx_stopping_forward(GxSession *s);
// What the task does before the first step; a signal may end it (run->stop).
GxStatus gx_prepare(GxSession *s);
// If a rank's data could no longer be read, the run fails on all ranks. Called after the checkpoint.
void gx_fail_without_data(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STOPPING_IMPLEMENTED)
#define GX_STOPPING_IMPLEMENTED
#include "../comm/comm.h"
#include "hook.h"
#include "launch.h"

int gx_agree_to_stop(GxSession *s)
{
    GxTrainRun *r = s->run;
    int64_t asked = r->stop || gx_stop_signal() != 0 || gx_error_code(&r->data_error);
    gx_at(s->g, -1, "stop");
    gx_all_reduce(s->g, GX_AXIS_ALL, GX_SUM, &asked, 1, GX_I64);
    return r->stop = asked > 0;
}

static int gx__stopping_stops(void *session) { return gx_agree_to_stop((GxSession *)session); }

GxForward gx_stopping_forward(GxSession *s)
{
    GxForward forward = gx_runner_hook(&s->runner);
    forward.stop = gx__stopping_stops, forward.stop_user = s;
    return forward;
}

GxStatus gx_prepare(GxSession *s)
{
    const GxForward forward = gx_stopping_forward(s);
    return s->run->task->data.prepare ? s->run->task->data.prepare(s->g, s->run->self, &forward) : GX_OK;
}

void gx_fail_without_data(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    const GxError *mine = &r->data_error;
    int64_t rank = gx_error_code(mine) ? g->rank + 1 : 0;
    gx_at(g, -1, "data");
    gx_all_reduce(g, GX_AXIS_ALL, GX_MAX, &rank, 1, GX_I64);
    if (gx_failed(g) || rank == 0) return;
    if (gx_error_code(mine))
        GX_FAIL(&g->error, gx_error_code(mine), "%s; the run has stopped after step %ld", mine->message,
                (long)r->at.step);
    gx_barrier(g, GX_AXIS_ALL); // on a failed context this tells the other ranks
}
#endif
