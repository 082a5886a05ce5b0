// log_lines.h: writes a run's figures into its log.jsonl (run_log.h), as a watcher. If a line cannot be written, the
// run warns once, continues, and tries again with the next one.
#ifndef GX_LOG_LINES_H
#define GX_LOG_LINES_H
#include "session.h"
GX_BEGIN

GxStatus gx_log_lines_watch(GxTrainRun *r, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LOG_LINES_IMPLEMENTED)
#define GX_LOG_LINES_IMPLEMENTED
#include "epochs.h"

typedef struct {
    int is_behind; // 1: the last line could not be written
} gx__LogLines;

// Warns once when a line of the log cannot be written, and once when it can again.
static void gx__log_lines_check(gx__LogLines *l, const GxSession *s, const GxError *disk)
{
    const int is_behind = gx_error_code(disk) != GX_OK;
    if (is_behind && !l->is_behind)
        gx_log(&s->g->log, GX_LOG_WARNING,
               "%s; the training continues, and the lines are written when it is possible again", disk->message);
    if (!is_behind && l->is_behind) gx_log(&s->g->log, GX_LOG_INFO, "%s is complete again", s->run->log_path);
    l->is_behind = is_behind;
}

static void gx__log_lines_logged(void *self, GxSession *s, const GxProgress *line)
{
    GxError disk = GX_ZERO;
    gx_progress_log(&s->run->log, line, &disk);
    gx__log_lines_check((gx__LogLines *)self, s, &disk);
}

static void gx__log_lines_validated(void *self, GxSession *s, const GxValidation *v)
{
    GxTrainRun *r = s->run;
    GxError disk = GX_ZERO;
    if (!gx_session_is_first(s)) return;
    gx_evaluation_log(&r->log, r->at.step, gx_epochs_of(r->at.samples, r->epoch_samples),
                      r->weights_step ? r->weights_step : r->at.step, v->metric, v->metrics, v->count,
                      r->task->loss.counted, &disk);
    gx__log_lines_check((gx__LogLines *)self, s, &disk);
}

GxStatus gx_log_lines_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__LogLines), err);
    if (w) w->logged = gx__log_lines_logged, w->validated = gx__log_lines_validated;
    return gx_error_code(err);
}
#endif
