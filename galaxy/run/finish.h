// finish.h: the end of training: the last checkpoint, the last validation, possibly of the best weights, a sample, the
// pictures and the summary. Whatever could not be written until then is now an error.
#ifndef GX_FINISH_H
#define GX_FINISH_H
#include "session.h"
GX_BEGIN

void gx_finish(
    GxSession *s); // on all ranks, if the context has not failed; after a signal it does only what must not be lost

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_FINISH_IMPLEMENTED)
#define GX_FINISH_IMPLEMENTED
#include "health.h"
#include "evaluate.h"
#include "keep_best.h"
#include "plot.h"
#include "report.h"
#include "report_summary.h"
#include "save.h"
#include "show.h"
#include "stopping.h"

// A picture that cannot be drawn is only a warning.
static void gx__finish_draw(GxSession *s)
{
    GxTrainRun *r = s->run;
    char svg[GX_PATH], title[200];
    GxError disk = GX_ZERO;
    snprintf(title, sizeof title, "%s, %s, %ld step%s", r->family->name, r->task->name, (long)r->at.step,
             gx_text_s(r->at.step));
    gx_path_join(svg, r->o.output_dir, "loss.svg", &disk);
    if (gx_error_code(&disk) || gx_plot_loss(r->log_path, svg, title, r->task->loss.unit, &disk) != GX_OK)
        gx_log(&s->g->log, GX_LOG_WARNING, "the loss curve could not be drawn: %s", disk.message);
    if (gx_run_is_over(r) && !r->stop) gx_report_summary(s, svg);
    else gx_report_curve(s, svg);
}

// At the end, whatever could not be written so far is an error.
static void gx__finish_fail_unsaved(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    GxError disk = GX_ZERO;
    const int has_checkpoint = r->at.saved > r->at.begun || r->resume.folder[0];
    if (gx_error_code(&r->unsaved))
        GX_FAIL(&g->error, gx_session_is_first(s) ? GX_ERR_IO : GX_ERR_COMM,
                "step %ld is not saved: %s; correct that, and %s", (long)r->at.step, r->unsaved.message,
                has_checkpoint ? "continue from the last checkpoint with --resume auto"
                               : "start again: there is no checkpoint to continue from");
    if (gx_log_close(&r->log, &disk) != GX_OK)
        GX_FAIL(&g->error, GX_ERR_IO, "%s; the last lines of the log are lost", disk.message);
}

void gx_finish(GxSession *s)
{
    GxTrainRun *r = s->run;
    const int samples = r->task->output.sample != NULL, is_over = gx_run_is_over(r);
    const char *missing = samples ? "the last validation and the sample are" : "the last validation is";
    gx_save(s); // first, since later work may fail; also tries once more what could not be saved before
    if (s->extra.tell) s->extra.tell(s->extra.self, s);
    if (is_over && !r->stop) gx_report_stopped_early(s);
    if (is_over && !r->stop) gx_keep_best_load(s);
    if (is_over && !r->stop) gx_validate(s, gx_options_eval_samples(&r->o, 1), 1);
    if (is_over && !r->stop && !gx_failed(s->g) && gx_session_is_first(s)) gx_show_confusion(s, 1);
    if (is_over && !r->stop && samples) {
        missing = "the sample is";
        gx_show_written(s);
    }
    gx_watchers_closed(&r->watchers, s);
    if (r->at.skipped && gx_session_is_first(s)) gx_warn_skipped(s);
    if (!gx_failed(s->g) && gx_session_is_first(s)) gx__finish_draw(s);
    if (r->stop) gx_fail_without_data(s);
    gx__finish_fail_unsaved(s);
    if (!r->stop || gx_failed(s->g) || !gx_session_is_first(s)) return;
    if (is_over)
        gx_log(&s->g->log, GX_LOG_WARNING,
               "stopped by a signal after the last step: the training is complete and saved, but %s not", missing);
    else
        gx_log(&s->g->log, GX_LOG_WARNING,
               "stopped by a signal after step %ld of %ld; continue with --resume auto --output_dir %s",
               (long)r->at.step, (long)r->o.max_steps, r->o.output_dir);
}
#endif
