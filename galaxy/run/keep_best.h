// keep_best.h: keeps the weights of the best validation (best.h). With --metric_for_best_model or
// --load_best_model_at_end, the checkpoint of a new best validation is saved, whatever --save_steps says. It is kept in
// addition to the newest --save_total_limit ones, and the weights of the last step are compared as well. If no
// validation of a run could be compared, a warning at the end says so, and the last weights are kept.
#ifndef GX_KEEP_BEST_H
#define GX_KEEP_BEST_H
#include "session.h"
GX_BEGIN

// A watcher: compares the validations during training, records and saves the best. When a resumed run begins, it runs
// the validation that was due at the checkpoint's step, if that is missing.
GxStatus gx_keep_best_watch(GxTrainRun *r, GxError *err);
void gx_keep_best_load(GxSession *s); // at the end: loads the best weights, with --load_best_model_at_end

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_KEEP_BEST_IMPLEMENTED)
#define GX_KEEP_BEST_IMPLEMENTED
#include <string.h>
#include "../comm/comm.h"
#include "best.h"
#include "checkpoint_load.h"
#include "evaluate.h"
#include "save.h"

// The validation is missing if a signal cut it short, or if the step was the last of a run that is now longer.
static void gx__keep_best_opened(void *self, GxSession *s)
{
    GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    (void)self;
    if (gx_options_is_inference(o) || !gx_best_is_tracked(o) || !r->resume.folder[0] || r->at.step == 0 ||
        r->best.validated == r->at.step)
        return;
    if (gx_run_is_validated(r)) gx_validate(s, gx_options_eval_samples(o, 0), 0);
}

// A validation whose weights could not be saved cannot be the best, since they would be missing at the end. It still
// counts for the patience.
static void gx__keep_best_save(GxSession *s, const GxBest *before)
{
    GxTrainRun *r = s->run;
    gx_save(s);
    if (gx_failed(s->g)) return;
    if (r->at.saved == r->at.step) {
        gx_run_name_best(&r->best);
        return;
    }
    r->best.metric = before->metric, r->best.step = before->step;
    memcpy(r->best.checkpoint, before->checkpoint, sizeof before->checkpoint);
}

static void gx__keep_best_validated(void *self, GxSession *s, const GxValidation *v)
{
    GxTrainRun *r = s->run;
    const GxBest before = r->best;
    (void)self;
    if (v->is_last || v->metrics == 0 || !gx_best_is_tracked(&r->o) || !gx_best_compare(s, v->metric, v->metrics))
        return;
    if (gx_options_saves_best(&r->o)) gx__keep_best_save(s, &before);
    if (!gx_failed(s->g) && gx_session_is_first(s)) gx_save_best(s);
}

GxStatus gx_keep_best_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, 0, err);
    if (w) w->opened = gx__keep_best_opened, w->validated = gx__keep_best_validated;
    return gx_error_code(err);
}

static void gx__keep_best_warn_incomparable(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    char folder[GX_PATH] = "";
    GxError ignored = GX_ZERO; // cannot fail: the path was built when the checkpoint was saved
    if (!gx_session_is_first(s) || !r->incomparable || r->best.step) return;
    gx_checkpoint_path(folder, r->o.output_dir, r->at.saved, &ignored);
    gx_log(&s->g->log, GX_LOG_WARNING,
           "no validation could be compared, because %s was not a finite number in any of them; the last weights are "
           "kept%s: %s",
           gx_best_name(r), r->o.load_best_model_at_end ? ", and --load_best_model_at_end loads no others" : "",
           folder);
}

void gx_keep_best_load(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    char folder[GX_PATH] = "";
    GxError torn = GX_ZERO;
    gx__keep_best_warn_incomparable(s);
    if (!r->o.load_best_model_at_end || gx_failed(g) || !r->best.step || r->best.step == r->at.step) return;
    int64_t is_whole = gx_best_folder(r, folder, &torn) == GX_OK && gx_session_is_first(s) &&
                       gx_folder_verify(folder, 1, &torn) == GX_OK;
    gx_at(g, -1, "best");
    gx_broadcast(g, GX_AXIS_ALL, 0, &is_whole, 1, GX_I64);
    if (gx_failed(g)) return;
    if (is_whole) {
        gx_checkpoint_load_weights(g, &s->model, folder);
        r->weights_step = r->best.step;
    } else if (gx_session_is_first(s))
        gx_log(&g->log, GX_LOG_WARNING,
               "the best weights, of step %ld, cannot be loaded; the last weights are used for what follows: %s",
               (long)r->best.step, torn.message);
}
#endif
