// trainer.h: the loop of a training: the learning rate, a window of micro-batches and the update, the log, validations
// and checkpoints when they are due. The data and the metrics come from a task (task/task.h), so that a training
// program's source shows only what is its own.
//
//     GxTrainer t = GX_ZERO;
//     gx_trainer_open(&t, g, &gx_llama, &gx_causal_lm, NULL, argc, argv);      // setup.h
//     while (gx_trainer_next(&t)) {
//         gx_trainer_step(&t);                  // a window of micro-batches, and the update
//         gx_trainer_report(&t);                // log, evaluate, save when due
//     }
//     return gx_trainer_close(&t);
//
// Or all of this in one: return gx_train(g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
//
// A trainer is a run (run.h: options, position, log), a session of it (session.h: ranks, model, memory), and its
// watchers (watcher.h), which print, log, profile and choose the best.
//
// Every rank calls every function; only rank 0 prints and writes. An error stays in g->error: gx_trainer_next then
// returns 0, and gx_trainer_close logs it. A step whose gradients are not finite is skipped (health.h). A signal to
// stop also ends a validation or a sample; what was trained is saved. The same happens when data can no longer be read:
// the run saves a checkpoint and ends with that error (stopping.h).
#ifndef GX_TRAINER_H
#define GX_TRAINER_H
#include "session.h"
GX_BEGIN

typedef struct GxTrainer {
    GxTrainRun run; // and its watchers
    GxSession session;
} GxTrainer;

int gx_trainer_next(const GxTrainer *t); // 1: there is a step to do
void gx_trainer_step(GxTrainer *t);
void gx_trainer_report(GxTrainer *t);
int gx_trainer_close(GxTrainer *t); // last validation, samples, checkpoint, picture; the program's exit status
// Instead of gx_trainer_close: saves a checkpoint and closes the session, but keeps the run, for another session on
// other ranks (gx_trainer_rejoin in setup.h); a rank that does not take part in that closes the run itself
// (gx_run_close). An error, on all ranks, if the session had failed, or nothing was saved.
GxStatus gx_trainer_leave(GxTrainer *t);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TRAINER_IMPLEMENTED)
#define GX_TRAINER_IMPLEMENTED
#include "../ops/memory.h"
#include "evaluate.h"
#include "finish.h"
#include "health.h"
#include "launch.h"
#include "progress.h"
#include "save.h"
#include "session_memory.h"
#include "session_open.h"
#include "setup_session.h"

int gx_trainer_next(const GxTrainer *t)
{
    const GxTrainRun *r = &t->run;
    return !r->done && !gx_failed(t->session.g) && !r->stop && !gx_run_is_over(r);
}

static void gx__trainer_fill(GxSession *s, GxBatch *b, void *host_copy, void *user)
{
    GxTrainRun *r = s->run;
    (void)user;
    r->task->batch.fill(s->g, r->self, b, host_copy, (uint64_t)r->o.seed, &r->data_error);
}

// Loads this rank's samples of the window's micro-batches.
static void gx__trainer_load_window(GxSession *s)
{
    for (int64_t i = 0; i < gx_session_micro_batches(s); i++) {
        s->batch[i].sample = gx_session_sample_of(s, i);
        gx_session_fill(s, i, gx__trainer_fill, NULL);
    }
}

// What the device needs to know of the step that begins: its number, its samples, its learning rate.
static void gx__trainer_begin_step(GxSession *s)
{
    const GxTrainRun *r = s->run;
    GxStep begun = *gx_read_step(s);
    begun.seed = (uint64_t)r->o.seed;
    begun.step = (uint64_t)r->at.step;
    begun.first_sample = r->at.samples + gx_session_range(s, 0).begin;
    begun.lr = (float)gx_schedule_rate(&r->schedule, begun.applied);
    gx_to_device(s->g, s->g->step, &begun, offsetof(GxStep, clip));
}

void gx_trainer_step(GxTrainer *t)
{
    GxSession *s = &t->session;
    GxTrainRun *r = &t->run;
    gx__trainer_load_window(s); // while the device may still be computing the previous step
    gx__trainer_begin_step(s);
    int stop = gx_stop_signal() != 0 || gx_error_code(&r->data_error);
    gx_watchers_begin(&r->watchers, s);
    gx_runner_train(s->g, &s->runner, s->batch, NULL, &stop);
    gx_watchers_end(&r->watchers, s, !stop);
    r->stop = stop;
    if (stop) return; // all ranks agreed: nothing of the window was computed
    s->is_seen = 0;
    for (int64_t i = 0; i < gx_session_micro_batches(s); i++) r->clock.interval_padding += s->batch[i].padding;
    r->at.step++, r->at.samples += r->o.global_batch_size;
    r->clock.interval_steps++;
    gx_watchers_stepped(&r->watchers, s);
}

// In another session, from the checkpoint that was just saved.
static void gx__trainer_continue(GxTrainer *t)
{
    GxContext *g = t->session.g;
    gx_watchers_closed(&t->run.watchers, &t->session);
    gx_session_pause(&t->session);
    if (!gx_failed(g)) gx_setup_session(&t->session, &t->run, g);
}

void gx_trainer_report(GxTrainer *t)
{
    GxSession *s = &t->session;
    GxTrainRun *r = &t->run;
    const GxTrainOptions *o = &r->o;
    const int is_last = r->at.step == o->max_steps, is_first = !r->clock.steady_step;
    if (gx_failed(s->g)) return;
    if (r->clock.interval_steps && (gx_run_is_due(r, o->logging_steps) || is_first || is_last || r->stop))
        gx_progress_line(s);
    if (!gx_failed(s->g) && !r->stop && gx_run_is_validated(r)) gx_validate(s, gx_options_eval_samples(o, 0), 0);
    if (!gx_failed(s->g) && !r->stop && gx_run_stops_early(r) && r->clock.interval_steps) gx_progress_line(s);
    if (!r->stop && gx_run_is_due(r, o->save_steps)) {
        gx_save(s);
        gx_watchers_saved(&r->watchers, s);
    }
    if (!gx_failed(s->g) && r->next_plan) gx__trainer_continue(t);
}

static void gx__trainer_close_session(GxTrainer *t)
{
    gx_watchers_closed(&t->run.watchers, &t->session);
    gx_session_close(&t->session);
}

GxStatus gx_trainer_leave(GxTrainer *t)
{
    const GxContext *g = t->session.g;
    gx_save(&t->session);
    gx__trainer_close_session(t);
    return gx_failed(g) ? gx_status(g) : gx_error_code(&t->run.unsaved);
}

int gx_trainer_close(GxTrainer *t)
{
    GxTrainRun *r = &t->run;
    GxContext *g = t->session.g;
    if (!r->done && !gx_failed(g)) gx_finish(&t->session);
    const int signal = gx_stop_signal() ? gx_stop_signal() : 15;
    const int status = gx_failed(g) ? gx_print_error(g) : r->stop ? 128 + signal : 0;
    gx__trainer_close_session(t);
    gx_run_close(r);
    return status;
}
#endif
