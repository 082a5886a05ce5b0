// setup.h: opens a training: its run, its watchers, its session on these ranks; and prints the lines at the start.
//
//     the run       run.h            the task and its options, flags and --config; --help and --version end here
//     the session   setup_session.h  everything else, up to the first step
#ifndef GX_SETUP_H
#define GX_SETUP_H
#include "trainer.h"
GX_BEGIN

// mode NULL: the mode that the options select. Close it with gx_trainer_close, also after an error.
GxStatus gx_trainer_open(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                         int argc, char **argv);
// The same, with a schedule that writes the lists of training steps (parallel/steps_write.h). NULL: generators do.
GxStatus gx_trainer_open_by(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                            const GxStepsSchedule *schedule, int argc, char **argv);
// Another session of a run whose last session was left (gx_trainer_leave), on g's ranks, which may be more or fewer
// than before. All ranks continue from the run's last checkpoint, in its output folder; of the command line, only the
// options about where the run is computed count. Rank 0 must be one that has the run; a rank that is new to it calls
// gx_trainer_open, with the same command line. Close it with gx_trainer_close, also after an error.
GxStatus gx_trainer_rejoin(GxTrainer *t, GxContext *g, int argc, char **argv);

// Opens, trains and closes, as trainer.h shows. Returns the program's exit status; errors have been logged.
int gx_train(GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode, int argc, char **argv);
int gx_train_by(GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                const GxStepsSchedule *schedule, int argc, char **argv);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SETUP_IMPLEMENTED)
#define GX_SETUP_IMPLEMENTED
#include <string.h>
#include "autotune.h"
#include "keep_best.h"
#include "launch.h"
#include "log_lines.h"
#include "plan_watch.h"
#include "plot_memory.h"
#include "profile_flops.h"
#include "profile_steps.h"
#include "rebalance.h"
#include "replan.h"
#include "report.h"
#include "setup_session.h"
#include "side_cache.h"
#include "tensorboard.h"
#include "trace.h"

// The watchers of a run, in the order in which they are called.
static GxStatus (*const gx__setup_watchers[])(GxTrainRun *r, GxError *err) = {
    gx_autotune_watch,  gx_side_cache_watch,  gx_profile_steps_watch, gx_plan_watch,        gx_rebalance_watch,
    gx_replan_watch,    gx_trace_watch,       gx_profile_flops_watch, gx_plot_memory_watch, gx_report_watch,
    gx_log_lines_watch, gx_tensorboard_watch, gx_keep_best_watch,
};

static GxStatus gx__setup_add_watchers(GxTrainRun *r, GxError *err)
{
    for (size_t i = 0; i < sizeof gx__setup_watchers / sizeof *gx__setup_watchers; i++)
        GX_TRY(gx__setup_watchers[i](r, err));
    return GX_OK;
}

GxStatus gx_trainer_open(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                         int argc, char **argv)
{
    return gx_trainer_open_by(t, g, family, task, mode, NULL, argc, argv);
}

GxStatus gx_trainer_open_by(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                            const GxStepsSchedule *schedule, int argc, char **argv)
{
    GxTrainRun *r = &t->run;
    memset(t, 0, sizeof *t);
    t->session.g = g, t->session.run = r; // for gx_trainer_close
    GX_TRY(gx_run_open(r, g, family, task, mode, schedule, argc, argv));
    if (r->config.help) gx_report_help(&t->session, argv[0]);
    else if (r->config.version) gx_report_version(&t->session);
    if (r->done) return GX_OK;
    GX_TRY(gx__setup_add_watchers(r, &g->error));
    return gx_setup_session(&t->session, &t->run, g);
}

GxStatus gx_trainer_rejoin(GxTrainer *t, GxContext *g, int argc, char **argv)
{
    t->session.g = g;
    GX_TRY(gx_run_set_command(&t->run, g, argc, argv));
    return gx_setup_session(&t->session, &t->run, g);
}

int gx_train(GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode, int argc, char **argv)
{
    return gx_train_by(g, family, task, mode, NULL, argc, argv);
}

int gx_train_by(GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                const GxStepsSchedule *schedule, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    gx_trainer_open_by(&t, g, family, task, mode, schedule, argc, argv);
    while (gx_trainer_next(&t)) {
        gx_trainer_step(&t);
        gx_trainer_report(&t);
    }
    return gx_trainer_close(&t); // also if opening the run failed
}
#endif
