// save.h: saves a run's checkpoint, output_dir/checkpoint-<step>, and removes older ones.
//
// If a checkpoint cannot be written, the run warns, continues, and tries again when the next is due (run->unsaved). It
// is an error only if it is still missing at the end.
#ifndef GX_SAVE_H
#define GX_SAVE_H
#include "session.h"
GX_BEGIN

void gx_save(GxSession *s);            // called by all ranks; does nothing if this step is saved already
void gx_save_best(const GxSession *s); // on rank 0: records in run.json which validation is the best

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SAVE_IMPLEMENTED)
#define GX_SAVE_IMPLEMENTED
#include "best.h"
#include "checkpoint.h"
#include "health.h"
#include "output.h"
#include "reporter.h"

void gx_save_best(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    GxError disk = GX_ZERO;
    GxRunInfo info = gx_run_read(r->o.output_dir);
    gx_best_describe(r, &info);
    if (gx_run_write(r->o.output_dir, &info, &disk) != GX_OK)
        gx_log(&s->g->log, GX_LOG_WARNING, "that step %ld is the best so far could not be recorded: %s",
               (long)r->at.step, disk.message);
}

// On rank 0: reports whether a checkpoint was saved, and removes older ones.
static void gx__save_after_save(GxSession *s, const char *folder)
{
    GxTrainRun *r = s->run;
    GxError disk = GX_ZERO;
    if (gx_error_code(&r->unsaved)) {
        gx_log(&s->g->log, GX_LOG_WARNING, "%s could not be saved: %s", folder, r->unsaved.message);
        return;
    }
    gx_report(s->g, "saved %s\n", folder);
    if (!r->at.skipped_in_a_row && gx_checkpoint_prune(r->o.output_dir, r->number, r->at.step, r->o.save_total_limit,
                                                       r->best.step, &disk) != GX_OK)
        gx_log(&s->g->log, GX_LOG_WARNING, "an older checkpoint could not be removed: %s", disk.message);
}

// Warns, on each rank, if the data files have changed: a resumed run would not find what was trained on.
static void gx__save_check_data(GxSession *s)
{
    GxTrainRun *r = s->run;
    const char *changed = r->task->checkpoint.changed ? r->task->checkpoint.changed(r->self) : NULL;
    if (!changed || r->data_changed || gx_error_code(&r->data_error)) return;
    r->data_changed = 1;
    gx_log(&s->g->log, GX_LOG_WARNING,
           "%s has changed since the training began; the training continues with its present contents, and cannot be "
           "resumed with them",
           changed);
}

void gx_save(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxContext *g = s->g;
    char folder[GX_PATH];
    if (gx_failed(g) || r->at.saved == r->at.step) return;
    gx__save_check_data(s);
    const double started = gx_seconds();
    gx_read_step(s); // on all ranks, so that an error in it is raised on all alike
    if (gx_failed(g)) return;
    const GxTrainState state = gx_session_state(s);
    GxError ignored = GX_ZERO; // a line that cannot be written is reported elsewhere
    gx_log_sync(&r->log, &ignored);
    gx_error_clear(&r->unsaved);
    if (gx_checkpoint_path(folder, r->o.output_dir, r->at.step, &g->error) != GX_OK) return;
    GxCheckpoint c = GX_ZERO;
    c.m = &s->model, c.o = &s->optimizer;
    c.task = r->task, c.self = r->self;
    c.state = &state, c.args = &r->config;
    c.source = &r->source, c.base = r->o.model, c.tuned = r->tuned, c.plan = r->plan;
    c.dtype = r->chosen.save_dtype, c.shard_bytes = r->shard_bytes;
    gx_checkpoint_save(g, folder, &c, &r->unsaved);
    if (gx_failed(g)) return;
    if (!gx_error_code(&r->unsaved)) {
        r->at.saved = r->at.step;
        if (r->best.step == r->at.step) gx_run_name_best(&r->best);
    }
    if (gx_session_is_first(s)) gx__save_after_save(s, folder);
    if (gx_session_is_first(s) && r->best.step == r->at.step) gx_save_best(s);
    r->clock.interval_start += gx_seconds() - started;
}
#endif
