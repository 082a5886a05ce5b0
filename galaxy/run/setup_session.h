// setup_session.h: opens a session of a training up to its first step, and prints the lines at its start:
//
//     the session   session_open.h    ranks, checkpoint, data, model, plan; --dry_run ends here
//     memory        session_memory.h  exactly as planned
//     weights       session_weights.h initialized, loaded or resumed; --evaluate and its like end here (show.h)
//     output        run_folder.h      the folder is locked; a folder of another run is refused
#ifndef GX_SETUP_SESSION_H
#define GX_SETUP_SESSION_H
#include "session.h"
GX_BEGIN

// r: open, with its watchers. Sets r->done if there is nothing to train. Close the session with gx_session_close, also
// after an error.
GxStatus gx_setup_session(GxSession *s, GxTrainRun *r, GxContext *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SETUP_SESSION_IMPLEMENTED)
#define GX_SETUP_SESSION_IMPLEMENTED
#include "autotune.h"
#include "launch.h"
#include "notes.h"
#include "processors.h"
#include "report_start.h"
#include "run_folder.h"
#include "session_memory.h"
#include "session_open.h"
#include "session_weights.h"
#include "show.h"
#include "side_cache.h"
#include "stopping.h"

// In a dry run: that the run would be refused. Said by the first rank that would refuse it.
static void gx__setup_session_warn_refused(GxSession *s)
{
    GxError refused = GX_ZERO;
    double most;
    if (gx_session_too_large(s, &most) != s->g->rank) return;
    gx_session_refuse_too_large(s, &refused);
    gx_log(&s->g->log, GX_LOG_WARNING, "this run would be refused: %s", refused.message);
}

GxStatus gx_setup_session(GxSession *s, GxTrainRun *r, GxContext *g)
{
    GX_TRY(gx_session_open(s, r, g));
    if (r->done) return GX_OK; // this rank is left out of the plan
    gx_report_start(s);
    gx_notes(s);
    if (r->o.dry_run) gx__setup_session_warn_refused(s);
    gx_watchers_planned(&r->watchers, s, &g->error);
    r->done = r->o.dry_run;
    if (r->done || gx_failed(g)) return gx_status(g);
    if (gx_session_is_first(s)) gx_warn_cores(&g->log, gx_threads(g), g->comm ? g->comm->local_ranks : 1);
    if (gx_session_is_first(s)) gx_warn_waiting(&g->log, gx_threads(g));
    GX_TRY(gx_side_cache_refuse(s));
    GX_TRY(gx_session_open_memory(s));
    GX_TRY(gx_session_load(s));
    GX_TRY(gx_autotune_find(s));
    if (gx_options_is_inference(&r->o)) {
        gx_catch_stop_signals();
        gx_show(s);
        return gx_status(g);
    }
    GX_TRY(gx_run_folder_open(s));
    GX_TRY(gx_side_cache_open(s, gx_run_folder_bytes(s)));
    gx_catch_stop_signals(); // before this there is nothing to save
    GX_TRY(gx_prepare(s));
    r->clock.interval_start = gx_seconds();
    if (!r->sessions) r->clock.opened = r->clock.interval_start;
    gx_watchers_opened(&r->watchers, s, &g->error);
    return gx_status(g);
}
#endif
