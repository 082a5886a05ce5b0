// session_weights.h: the weights that a session begins with: initialized, from --model, from an adapter, or from the
// checkpoint that the run continues from, whose moments and place in the data are then taken over, too.
#ifndef GX_SESSION_WEIGHTS_H
#define GX_SESSION_WEIGHTS_H
#include "session.h"
GX_BEGIN

GxStatus gx_session_load(GxSession *s); // after gx_session_open_memory

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SESSION_WEIGHTS_IMPLEMENTED)
#define GX_SESSION_WEIGHTS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../model/tuned.h"
#include "adapter.h"
#include "best.h"
#include "checkpoint_load.h"
#include "report.h"

// Takes over the checkpoint's step and counts.
static void gx__session_weights_position(GxSession *s)
{
    GxTrainRun *r = s->run;
    const GxTrainState *state = &r->resume.state;
    r->at.step = r->at.saved = state->step;
    if (!r->sessions) r->at.begun = state->step;
    r->at.samples = state->samples;
    s->seen.applied = state->applied;
    gx_to_device(s->g, s->g->step, &s->seen, sizeof s->seen);
}

static GxStatus gx__session_weights_report_resumed(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    char why[300];
    if (!gx_session_is_first(s) || !r->resume.args) return GX_OK;
    const GxTrainState now = gx_session_state(s);
    char *changes = gx_resume_changes(&r->resume, &r->config, &now, &g->error);
    gx_report_resumed(s, changes ? changes : "");
    free(changes);
    if (r->resume.folder[0] && r->at.step >= r->o.max_steps && !gx_options_is_inference(&r->o))
        gx_log(&g->log, GX_LOG_WARNING, "that is all of max_steps (%ld) already, so there is nothing to train",
               (long)r->o.max_steps);
    else if (r->resume.folder[0] && gx_run_stops_early(r) && !gx_options_is_inference(&r->o))
        gx_log(&g->log, GX_LOG_WARNING,
               "it was stopped early by %s, so there is nothing to train; continue with a larger one, or with 0",
               gx_best_reason(r, why));
    return gx_status(g);
}

// Loads the base weights of a resumed adapter, which must be the ones it was trained on.
static void gx__session_weights_load_base(GxSession *s)
{
    GxTrainRun *r = s->run;
    const uint64_t then = r->resume.state.base_hash.all;
    if (gx_session_is_first(s)) gx_adapter_check_config(&s->model, r->resume.folder, &s->g->log, &s->g->error);
    gx_checkpoint_load_base(s->g, &s->model, r->o.model, &r->base_hash);
    if (gx_failed(s->g) || !gx_session_is_first(s) || r->base_hash.all == then) return;
    GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
            "the weights of %s are not those that %s was trained on (their hash is 0x%016lx, and was 0x%016lx), and "
            "the adapter fits only those; put them back",
            r->o.model, r->resume.folder, (unsigned long)r->base_hash.all, (unsigned long)then);
}

static GxStatus gx__session_weights_resume(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    if (gx_tuning_has_adapter(&r->o.tuning)) gx__session_weights_load_base(s);
    gx_checkpoint_load_weights(g, &s->model, r->resume.folder);
    if (gx_options_is_inference(&r->o))
        r->at.step = r->at.begun = r->resume.state.step, r->at.samples = r->resume.state.samples;
    else {
        if (gx_session_is_first(s)) gx_resume_check_task(&r->resume, r->task, r->self, &g->error);
        gx_checkpoint_load_state(g, &s->model, &s->optimizer, r->resume.folder);
        gx__session_weights_position(s);
        gx_best_resume(s);
    }
    return gx_status(g);
}

// Training may start with a new head. Without training a new head is refused, unless --strict false asks for it.
static void gx__session_weights_start_from(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxWeightsLoaded loaded;
    const uint64_t seed = (uint64_t)r->o.seed;
    const int may_init = !gx_options_is_inference(&r->o) || !r->o.strict;
    GxWeightsHash hash;
    if (r->o.tuning.adapter[0]) {
        gx_checkpoint_start_with_adapter(s->g, &s->model, r->o.model, r->o.tuning.adapter, &r->base_hash);
        return;
    }
    gx_checkpoint_start_from(s->g, &s->model, r->o.model, r->o.strict, may_init ? &seed : NULL, &hash, &loaded);
    if (gx_tuning_has_adapter(&r->o.tuning)) r->base_hash = hash;
    if (!gx_failed(s->g) && gx_session_is_first(s)) gx_report_weights(s, &loaded);
}

GxStatus gx_session_load(GxSession *s)
{
    GxTrainRun *r = s->run;
    r->number = r->resume.state.run;
    const char *from = r->resume.folder[0] ? r->resume.folder : r->o.model;
    if (gx_session_is_first(s) && from[0]) gx_source_folder_open(&r->source, from, &s->g->error);
    if (r->resume.folder[0]) GX_TRY(gx__session_weights_resume(s));
    else if (r->o.model[0]) gx__session_weights_start_from(s);
    else gx_model_init(s->g, &s->model, (uint64_t)r->o.seed);
    GX_TRY(gx_status(s->g));
    if (r->o.freeze[0] && !r->resume.folder[0] && !gx_options_is_inference(&r->o))
        GX_TRY(gx_tuned_check_frozen(s->g, &s->model));
    return gx__session_weights_report_resumed(s);
}
#endif
