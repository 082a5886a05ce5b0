// trainer.h: what every training program shares: configuration, gradient accumulation, clipping, the optimizer's step,
// progress, validation, checkpoints, resuming, signals. The data and the metrics come from a task (task/task.h), so
// that a training program's source shows only what is its own.
//
//     GxTrainer t = GX_ZERO;
//     gx_trainer_open(&t, g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
//     while (gx_trainer_next(&t)) {
//         gx_trainer_step(&t);                  // a window of micro-batches, and the update
//         gx_trainer_report(&t);                // log, evaluate, sample, save when due
//     }
//     return gx_trainer_close(&t);
//
// Or all of this in one: return gx_train(g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
//
// How a run is opened is in setup.h, what it prints in report.h, how the best validation is chosen and when a run stops
// early in best.h.
// Every rank calls every function; rank 0 alone prints and writes. An error stays in g->error: gx_trainer_next then
// returns 0, and gx_trainer_close logs it.
// A step whose gradients are not finite is skipped: it changes nothing. GX_SKIPPED_MOST such steps in a row, or a run
// that consists of nothing else, are an error; meanwhile no older checkpoint is removed. So many steps without any
// label that counts are an error, too.
// A signal to stop also ends a validation or a sample; what was trained is saved. The same happens when data can no
// longer be read: the run saves a checkpoint and ends with that error.
// If a checkpoint or a line of the log cannot be written, the run warns, continues, and tries again when the next is
// due. It is an error only if it is still missing at the end.
#ifndef GX_TRAINER_H
#define GX_TRAINER_H
#include "../task/task.h"
#include "checkpoint_load.h"
#include "interpreter.h"
#include "options.h"
#include "plan.h"
#include "profile.h"
#include "resume.h"
#include "run_log.h"
#include "schedule.h"
#include "task_choice.h"
#include "tensorboard.h"
GX_BEGIN

enum { GX_SKIPPED_MOST = 100 };

// When things began, in seconds as of gx_seconds, and how long they took.
typedef struct {
    double opened;                            // training began
    double training_seconds;                  // without validations and saving
    double interval_start;                    // of the progress line
    int64_t interval_steps, interval_padding; // padding: rows on this rank
    int64_t padding;                          // on all ranks, up to the last progress line
    // For the time left: since the first progress line, whose step was slow (first touches). steady_step 0: not yet
    // set.
    double steady_since;
    int64_t steady_step;
} GxTrainerClock;

typedef struct { // what a validation has measured
    GxMetric metric[GX_MAX_METRICS];
    int metrics;   // 0: there was no validation
    int64_t count; // over how many tokens, or whatever the task counts
} GxValidation;

typedef struct GxTrainer {
    GxContext *g;
    // what is run
    const GxFamily *family;
    const GxTask *task;
    GxTaskChoice choice;                   // how it was chosen
    void *self;                            // the task's
    const GxMode *mode;                    // the program's own, or &composed
    GxMode composed;                       // of --mode, or --att, --con, --mlp
    const GxStepsSchedule *steps_schedule; // the program's own, which writes the lists of steps; NULL: generators do
    GxConfig config;
    GxTrainOptions o;
    GxResume resume; // what it goes on from
    // on rank 0: the files and members of the folder that the weights are from, which checkpoints repeat
    GxSourceFolder source;
    int64_t shard_bytes;     // largest size of a file of weights
    GxWeightsHash base_hash; // of an adapter's base, on rank 0; 0: the run trains no adapter
    int64_t run;             // this run's number: chosen when it begins, kept when it is resumed
    void *model_config;
    GxModel model;
    GxRunner runner;
    struct GxSideCache *side_cache; // of --tuning side_only; NULL: none
    GxMesh mesh;
    GxSplit batch_split;             // samples of each rank in a micro-batch
    int64_t epoch_samples;           // of all ranks; 0: not known
    int16_t stage[GX_MAX_PARTS + 1]; // of a pipeline: the first unit of each stage, and the number of units (stages.h)
    GxSchedule schedule;
    GxOptimizer optimizer;
    // memory
    GxPlan plan;
    GxArena arena, host_arena; // exactly as planned: the device's memory; the host's, if that is separate
    GxArena comm_arena;        // of the communicator, which is needed before the plan is made
    GxBatch *batch;            // [accumulation + evals]: the window's micro-batches, then those of a validation
    GxBatch *eval;             // [evals]
    int evals;                 // of a validation that are under way at once (gx_stages_evals)
    int64_t block_bytes;       // size of a task's data in a micro-batch
    char *blocks;              // [gx_trainer_blocks][block_bytes]
    char *blocks_host;         // the same in the host's memory
    double *eval_loss;         // [GX_MAX_LOSSES]: sums over a validation
    // where the run is
    int64_t step, samples; // windows begun; samples seen by all ranks
    int64_t begun;         // the step at which this process started
    int64_t saved;         // the step of the last checkpoint
    // steps of this process whose gradients were not finite; how many of them just now in a row
    int64_t skipped, skipped_in_a_row;
    int64_t unlearned, unlearned_in_a_row; // the same of steps in which no label counted
    GxStep seen;                           // g->step as the host last read it
    int is_seen;                           // 1: `seen` is up to date
    GxBest best;                           // the best validation so far (best.h)
    const char *best_format; // printf format of the best metric; NULL: not known before the first validation
    int64_t incomparable;    // validations of this process whose metric was not finite
    int64_t weights_step;    // the step whose weights were loaded at the end; 0: they are those of `step`
    // Rows of the embedding that --model has, and an adapter that the run begins with; of a resumed run 0
    int64_t vocab_of_model, vocab_of_adapter;
    int64_t tokens_added;   // to the tokenizer, by --add_tokens
    const char *seq_len_is; // what o.seq_len is, for messages: "the default of --seq_len"; NULL: as it was given
    int stop, done;         // asked to stop; nothing more to do (--help, --version, --dry_run)
    GxError data_error;     // of this rank's data: it asks to stop
    char *tuned;            // the table of --autotune (autotune.h), as text; NULL: none
    int tuned_is_kept;      // 1, on rank 0: it is that of the checkpoint that the run goes on from; nothing is timed
    int times_products;     // 1: this step times the algorithms
    int data_changed;       // 1: a warning has said that the data have changed since the start
    // what is written and said
    int lock;                  // file descriptor of output_dir, locked; -1: none
    GxRunLog log;              // rank 0: output_dir/log.jsonl
    GxTensorboard tensorboard; // rank 0: of --report_to
    GxError unsaved;           // why the last checkpoint that was due could not be saved, on all ranks
    int log_is_behind;         // 1: the last line could not be written
    char log_path[GX_PATH];
    GxProfile profile; // of rank 0
    GxTrainerClock clock;
    GxValidation validation; // the last one, for the summary at the end (gx_report_summary)
} GxTrainer;

// Whether this rank prints and writes, and how many samples of a micro-batch it takes.
static inline int gx_trainer_is_first(const GxTrainer *t) { return t->g->rank == 0; }
static inline int64_t gx_trainer_samples(const GxTrainer *t)
{
    return gx_split_part(&t->batch_split, gx_mesh_index(&t->mesh, GX_AXIS_DP));
}

// Micro-batch i of t->batch has its data in block i % gx_trainer_blocks: windows and validations take turns, and share
// blocks.
static inline int64_t gx_trainer_blocks(const GxTrainer *t)
{
    return gx_max(t->o.gradient_accumulation_steps + 1, (int64_t)t->evals);
}
// The host's copy of block i.
static inline void *gx_trainer_host_block(const GxTrainer *t, int64_t i) { return t->blocks_host + i * t->block_bytes; }

// The position of the run, as a checkpoint states it.
GxTrainState gx_trainer_state(const GxTrainer *t);

// mode NULL: the mode that the options select. Implemented in setup.h.
GxStatus gx_trainer_open(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                         int argc, char **argv);
// The same, with a schedule that writes the lists of training steps (parallel/steps_write.h). NULL: generators do.
GxStatus gx_trainer_open_by(GxTrainer *t, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                            const GxStepsSchedule *schedule, int argc, char **argv);
int gx_trainer_next(GxTrainer *t);
int gx_trainer_is_over(const GxTrainer *t); // 1: all steps are done, or the run stops early
void gx_trainer_step(GxTrainer *t);
void gx_trainer_report(GxTrainer *t);
int gx_trainer_close(GxTrainer *t); // last validation, samples, checkpoint, picture; the program's exit status
// Does all of these, as shown above. Returns the program's exit status; errors have been logged.
int gx_train(GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode, int argc, char **argv);
int gx_train_by(GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                const GxStepsSchedule *schedule, int argc, char **argv);

// Sums the losses over the first `samples` held-out samples; 0: all. If a signal stops it, t->stop is set, and the sums
// are over the samples so far.
void gx_trainer_evaluate(GxTrainer *t, int64_t samples, GxLosses *losses);
void gx_trainer_validate(GxTrainer *t);    // during training: printed, logged, and compared with the best (best.h)
void gx_trainer_save(GxTrainer *t);        // output_dir/checkpoint-<step>
GxStatus gx_trainer_prepare(GxTrainer *t); // what the task does before the first step; a signal may end it (t->stop)
void gx_trainer_show(GxTrainer *t);        // --evaluate, --sample_only: a validation, a sample

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TRAINER_IMPLEMENTED)
#define GX_TRAINER_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../ops/elementwise.h"
#include "autotune.h"
#include "best.h"
#include "epochs.h"
#include "launch.h"
#include "output.h"
#include "plot.h"
#include "plot_confusion.h"
#include "process_memory.h"
#include "report.h"
#include "setup.h"
#include "side_cache.h"
#include "watch.h"

// ---- a step --------------------------------------------------------------------------------------------------------

int gx_trainer_is_over(const GxTrainer *t) { return t->step >= t->o.max_steps || gx_best_stops_early(t); }

int gx_trainer_next(GxTrainer *t) { return !t->done && !gx_failed(t->g) && !t->stop && !gx_trainer_is_over(t); }

static void gx__trainer_load_window(GxTrainer *t)
{
    const int64_t first = t->batch_split.begin[gx_mesh_index(&t->mesh, GX_AXIS_DP)],
                  per_micro = gx_split_total(&t->batch_split);
    for (int64_t i = 0; i < t->o.gradient_accumulation_steps; i++) {
        t->batch[i].first_sample = gx_side_cache_sample(t, t->samples / per_micro + i) + first;
        t->task->fill(t->g, t->self, &t->batch[i], gx_trainer_host_block(t, i), (uint64_t)t->o.seed, &t->data_error);
        gx_to_device(t->g, t->blocks + i * t->block_bytes, gx_trainer_host_block(t, i), t->block_bytes);
        t->batch[i].first_sample = i * per_micro; // within the window: the random numbers of dropout follow from it
    }
}

// Non-finite gradients are blamed on the weights: those that the run began with, if no step has changed them since.
static GxStatus gx__trainer_blame_weights(GxTrainer *t)
{
    GxError *err = &t->g->error;
    const char *from = t->resume.folder[0] ? t->resume.folder : t->o.model;
    char all[40] = "the only step";
    if (t->skipped > 1) snprintf(all, sizeof all, "all %ld steps", (long)t->skipped);
    if (t->skipped < t->step - t->begun)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the gradients of the last %ld steps were not finite: the weights have not changed since step "
                       "%ld, and further steps would not change them; resume an earlier checkpoint, or start again, "
                       "with a --learning_rate below %g",
                       (long)t->skipped_in_a_row, (long)(t->step - t->skipped_in_a_row), t->o.learning_rate);
    if (from[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the gradients of %s were not finite: the reason is the weights of %s, not the learning rate; "
                       "take others, such as an earlier checkpoint",
                       all, from);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the gradients of %s were not finite: the reason is the model as it is initialised, not the "
                   "learning rate; change its options",
                   all);
}

static void gx__trainer_count_skipped(GxTrainer *t)
{
    if (!t->seen.skip) {
        t->skipped_in_a_row = 0;
        return;
    }
    t->skipped++, t->skipped_in_a_row++;
    if (t->skipped_in_a_row == GX_SKIPPED_MOST || (t->step == t->o.max_steps && t->skipped == t->step - t->begun))
        gx__trainer_blame_weights(t);
}

// Data of which nothing is learned, by masks or by documents of one token, would have the loss 0.
static void gx__trainer_count_unlearned(GxTrainer *t)
{
    int64_t labels = 0;
    for (int k = 0; k < GX_MAX_LOSSES; k++) labels += t->seen.labels[k];
    if (labels) t->unlearned_in_a_row = 0;
    if (labels) return;
    t->unlearned++, t->unlearned_in_a_row++;
    if (t->unlearned_in_a_row == GX_SKIPPED_MOST || (t->step == t->o.max_steps && t->unlearned == t->step - t->begun))
        GX_FAIL(
            &t->g->error, GX_ERR_FORMAT,
            "nothing was learned in the last %ld step%s, since no label counts: by a mask, or since documents have one "
            "token each; --show_data 3 shows samples, what is learned between ⟦ and ⟧",
            (long)t->unlearned_in_a_row, gx_text_s(t->unlearned_in_a_row));
    else if (t->unlearned == 1 && gx_trainer_is_first(t))
        gx_log(&t->g->log, GX_LOG_WARNING, "nothing is learned in step %ld, since no label of its %ld sample%s counts",
               (long)t->step, (long)t->o.global_batch_size, gx_text_s(t->o.global_batch_size));
}

// Returns the step as the device left it. Waits for the device, once per step.
static const GxStep *gx__trainer_read_step(GxTrainer *t)
{
    if (t->is_seen) return &t->seen;
    gx_to_host(t->g, &t->seen, t->g->step, sizeof t->seen);
    t->is_seen = 1;
    if (!gx_failed(t->g)) gx__trainer_count_skipped(t);
    if (!gx_failed(t->g)) gx__trainer_count_unlearned(t);
    return &t->seen;
}

// The first two steps of a process are slower (first touch of memory, kernels being compiled) and are not profiled.
static int gx__trainer_profiles(const GxTrainer *t)
{
    return gx_trainer_is_first(t) && t->profile.steps < t->o.profile_steps && t->step >= t->begun + 2;
}

void gx_trainer_step(GxTrainer *t)
{
    GxContext *g = t->g;
    gx__trainer_load_window(t); // while the device may still be computing the previous step
    GxStep begun = *gx__trainer_read_step(t);
    int stop = gx_stop_signal() != 0 || gx_error_code(&t->data_error);
    begun.seed = (uint64_t)t->o.seed;
    begun.step = (uint64_t)t->step;
    begun.first_sample = t->samples + t->batch_split.begin[gx_mesh_index(&t->mesh, GX_AXIS_DP)];
    begun.lr = (float)gx_schedule_rate(&t->schedule, begun.applied);
    gx_to_device(g, g->step, &begun, offsetof(GxStep, clip));
    const int profiles = gx__trainer_profiles(t);
    if (profiles) gx_profile_begin(&t->profile);
    gx_runner_train(g, &t->runner, t->batch, NULL, &stop);
    if (profiles) gx_profile_end(&t->profile);
    t->stop = stop;
    if (stop) { // agreed on by all ranks: nothing of the window was computed
        t->profile.steps -= profiles;
        return;
    }
    t->step++;
    t->is_seen = 0;
    gx_autotune_agree(t);
    for (int64_t i = 0; i < t->o.gradient_accumulation_steps; i++) t->clock.interval_padding += t->batch[i].padding;
    t->samples += t->o.global_batch_size;
    t->clock.interval_steps++;
    gx_side_cache_count(t);
    if (profiles && t->profile.steps == t->o.profile_steps) gx_report_profile(t);
}

// ---- reports -------------------------------------------------------------------------------------------------------

static int gx__trainer_is_due(const GxTrainer *t, int64_t every) { return every > 0 && t->step % every == 0; }

// Warns once when a line of the log cannot be written, and once when it can again.
static void gx__trainer_check_log(GxTrainer *t, const GxError *disk)
{
    const int is_behind = gx_error_code(disk) != GX_OK;
    if (is_behind && !t->log_is_behind)
        gx_log(&t->g->log, GX_LOG_WARNING, "%s; the training goes on, and the lines wait for the next one",
               disk->message);
    if (!is_behind && t->log_is_behind) gx_log(&t->g->log, GX_LOG_INFO, "%s is complete again", t->log_path);
    t->log_is_behind = is_behind;
}

// How many of the task's losses its batches have targets for.
static int gx__trainer_losses(const GxTrainer *t)
{
    int n = 0;
    for (const GxTarget *of = t->eval->target; n < t->task->losses && (of[n].labels || of[n].values || of[n].parts);)
        n++;
    return n;
}

// padding: rows on all ranks, since the line before.
static void gx__trainer_report_progress(GxTrainer *t, const GxMetric *metric, int metrics, int64_t padding)
{
    const GxStep *s = &t->seen;
    double seconds = gx_seconds() - t->clock.interval_start,
           per_step = seconds / (double)gx_max(1, t->clock.interval_steps);
    GxProgress p = GX_ZERO;
    t->clock.training_seconds += seconds;
    p.step = t->step, p.steps = t->o.max_steps, p.epoch = gx_epochs_of(t->samples, t->epoch_samples);
    p.loss = gx_step_loss(s), p.grad_norm = sqrt(s->sum_squares), p.lr = s->lr, p.skipped = (int)s->skip;
    if (gx__trainer_losses(t) > 1) p.losses = gx__trainer_losses(t), p.loss_names = t->task->loss_names;
    for (int k = 0; k < p.losses; k++) p.each[k] = s->labels[k] ? s->loss_sum[k] / (double)s->labels[k] : NAN;
    p.metrics = metrics;
    memcpy(p.metric, metric, (size_t)metrics * sizeof *metric);
    const int64_t rows = t->clock.interval_steps * t->o.global_batch_size * t->o.seq_len;
    p.tokens_per_s = (double)(rows - padding) / seconds, p.padding = (double)padding / (double)gx_max(1, rows);
    p.gflops = (t->plan.flops_all - gx_side_cache_share(t) * t->plan.flops_kept_all) / per_step / 1e9;
    p.memory_mb = (double)gx_process_memory() / 1e6;
    if (t->g->device->memory) {
        int64_t free_bytes, all_bytes;
        t->g->device->memory(t->g, &free_bytes, &all_bytes);
        p.card_mb = (double)(all_bytes - free_bytes) / 1e6;
    }
    if (t->clock.steady_step)
        p.seconds_left = (gx_seconds() - t->clock.steady_since) / (double)(t->step - t->clock.steady_step) *
                         (double)(t->o.max_steps - t->step);
    else p.seconds_left = per_step * (double)(t->o.max_steps - t->step);
    if (!t->clock.steady_step) t->clock.steady_step = t->step, t->clock.steady_since = gx_seconds();
    gx_report_progress(t, &p);
    GxError disk = GX_ZERO;
    gx_progress_log(&t->log, &p, &disk);
    gx__trainer_check_log(t, &disk);
    gx_tensorboard_progress(&t->tensorboard, &p, &t->g->log);
}

// A signal or an error of the data may reach only some ranks, so they agree: all stop, or none does.
static int gx__trainer_agree_to_stop(GxTrainer *t)
{
    int64_t asked = t->stop || gx_stop_signal() != 0 || gx_error_code(&t->data_error);
    gx_at(t->g, -1, "stop");
    gx_all_reduce(t->g, GX_AXIS_ALL, GX_SUM, &asked, 1, GX_I64);
    return t->stop = asked > 0;
}

// Each rank takes its samples of micro-batches from `row` on; samples beyond the last have no weight. Returns how many
// micro-batches there are.
static int gx__trainer_load_evaluation(GxTrainer *t, int64_t row, int64_t samples)
{
    const int64_t first = t->batch_split.begin[gx_mesh_index(&t->mesh, GX_AXIS_DP)],
                  per_micro = gx_split_total(&t->batch_split);
    int n = 0;
    for (; n < t->evals && (row + n) * per_micro < samples; n++) {
        const int64_t i = (t->o.gradient_accumulation_steps + n) % gx_trainer_blocks(t);
        t->eval[n].first_sample = (row + n) * per_micro + first;
        t->task->fill_held_out(t->g, t->self, &t->eval[n], gx_trainer_host_block(t, i), samples, &t->data_error);
        gx_to_device(t->g, t->blocks + i * t->block_bytes, gx_trainer_host_block(t, i), t->block_bytes);
    }
    return n;
}

// 1: the task has one place for the results of all micro-batches, and sees them before the next ones are written.
static int gx__trainer_shares_results(const GxTrainer *t)
{
    int shares = 0;
    for (int k = 0; k < t->task->losses && t->evals > 1; k++) {
        const void *results = t->eval[0].target[k].logits.data;
        shares |= results && results == t->eval[1].target[k].logits.data;
    }
    return shares;
}

static void gx__trainer_run_evaluation(GxTrainer *t, int n, GxLosses *losses)
{
    GxContext *g = t->g;
    const int at_once = gx__trainer_shares_results(t) ? 1 : t->evals;
    for (int i = 0; i < n && gx_counts_samples(g); i++) t->task->counts(t->self, &t->eval[i], losses->count);
    for (int i = 0; i < n; i += at_once) {
        const int some = (int)gx_min(at_once, n - i);
        gx_runner_evaluate(g, &t->runner, &t->eval[i], some);
        for (int k = 0; k < some && t->task->see; k++) t->task->see(g, t->self, &t->eval[i + k]);
    }
}

void gx_trainer_evaluate(GxTrainer *t, int64_t samples, GxLosses *losses)
{
    GxContext *g = t->g;
    const int64_t all = t->task->held_out(t->self);
    samples = samples > 0 ? gx_min(samples, all) : all;
    memset(losses, 0, sizeof *losses);
    gx_zero(g, t->eval_loss, sizeof losses->sum);
    if (t->task->see) t->task->see(g, t->self, NULL);
    GxWatch watch = gx_watch(g, "validation", "samples", samples);
    for (int64_t row = 0; row * gx_split_total(&t->batch_split) < samples && !gx_failed(g); row += t->evals) {
        const int n = gx__trainer_load_evaluation(t, row, samples);
        if (gx__trainer_agree_to_stop(t)) break; // a validation may take longer than a stop request should wait
        gx__trainer_run_evaluation(t, n, losses);
        gx_watch_done(&watch, gx_min(samples, (row + n) * gx_split_total(&t->batch_split)));
    }
    gx_to_host(g, losses->sum, t->eval_loss, sizeof losses->sum);
    gx_at(g, -1, "evaluate");
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, losses->sum, GX_MAX_LOSSES, GX_F64);
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, losses->count, GX_MAX_LOSSES, GX_I64);
}

// Returns the number of metrics, the same on all ranks; 0: there was no validation.
static int gx__trainer_report_evaluation(GxTrainer *t, int64_t samples, GxMetric metric[GX_MAX_METRICS])
{
    GxLosses losses;
    memset(metric, 0, GX_MAX_METRICS * sizeof *metric);
    if (t->task->held_out(t->self) == 0) return 0;
    const double started = gx_seconds();
    gx_trainer_evaluate(t, samples, &losses);
    t->clock.interval_start += gx_seconds() - started; // the progress line is about training
    if (gx_failed(t->g) || t->stop) return 0;
    const int n = t->task->metrics(t->g, t->self, &losses, metric);
    if (gx_failed(t->g)) return 0;
    if (!gx_trainer_is_first(t)) return n;
    gx_report_evaluation(t, metric, n, losses.count[0]);
    GxError disk = GX_ZERO;
    const int64_t weights_of = t->weights_step ? t->weights_step : t->step;
    gx_evaluation_log(&t->log, t->step, gx_epochs_of(t->samples, t->epoch_samples), weights_of, metric, n,
                      losses.count[0], t->task->counted, &disk);
    gx__trainer_check_log(t, &disk);
    gx_tensorboard_evaluation(&t->tensorboard, t->step, weights_of, metric, n, &t->g->log);
    memcpy(t->validation.metric, metric, sizeof t->validation.metric);
    t->validation.metrics = n, t->validation.count = losses.count[0];
    return n;
}

static void gx__trainer_set_best_folder(GxBest *b)
{
    if (b->step) snprintf(b->checkpoint, sizeof b->checkpoint, "checkpoint-%ld", (long)b->step);
}

GxTrainState gx_trainer_state(const GxTrainer *t)
{
    const GxMethods m = t->mode->methods;
    GxTrainState s = GX_ZERO;
    s.step = t->step, s.applied = t->seen.applied, s.samples = t->samples;
    s.seed = t->o.seed, s.seq_len = t->o.seq_len, s.run = t->run;
    s.world = t->g->world, s.threads = gx_threads(t->g), s.base_hash = t->base_hash;
    snprintf(s.optimizer, sizeof s.optimizer, "%s", t->o.optimizer);
    gx_methods_text(m, s.methods, sizeof s.methods);
    s.best = t->best;
    if (s.best.step == t->step) gx__trainer_set_best_folder(&s.best); // the checkpoint being written is the best one
    return s;
}

// On rank 0: notes in run.json which validation is the best.
static void gx__trainer_write_best(GxTrainer *t)
{
    GxError disk = GX_ZERO;
    GxRunInfo r = gx_run_read(t->o.output_dir);
    gx_best_describe(t, &r);
    if (gx_run_write(t->o.output_dir, &r, &disk) != GX_OK)
        gx_log(&t->g->log, GX_LOG_WARNING, "that step %ld is the best so far could not be noted: %s", (long)t->step,
               disk.message);
}

// On rank 0: reports whether a checkpoint was saved, and removes older ones.
static void gx__trainer_after_save(GxTrainer *t, const char *folder)
{
    GxError disk = GX_ZERO;
    if (gx_error_code(&t->unsaved)) {
        gx_log(&t->g->log, GX_LOG_WARNING, "%s could not be saved: %s", folder, t->unsaved.message);
        return;
    }
    gx_report_saved(t, folder);
    if (!t->skipped_in_a_row &&
        gx_checkpoint_prune(t->o.output_dir, t->run, t->step, t->o.save_total_limit, t->best.step, &disk) != GX_OK)
        gx_log(&t->g->log, GX_LOG_WARNING, "an older checkpoint could not be removed: %s", disk.message);
}

// Warns, on each rank, if the data files have changed: a resumed run would not find what was trained on.
static void gx__trainer_check_data(GxTrainer *t)
{
    const char *changed = t->task->changed ? t->task->changed(t->self) : NULL;
    if (!changed || t->data_changed || gx_error_code(&t->data_error)) return;
    t->data_changed = 1;
    gx_log(&t->g->log, GX_LOG_WARNING,
           "%s has changed since the training began; it goes on with what is there now, and cannot be resumed with it",
           changed);
}

void gx_trainer_save(GxTrainer *t)
{
    GxContext *g = t->g;
    char folder[GX_PATH];
    if (gx_failed(g) || t->saved == t->step) return;
    gx__trainer_check_data(t);
    const double started = gx_seconds();
    gx__trainer_read_step(t); // on all ranks, so that an error in it is raised on all alike
    if (gx_failed(g)) return;
    const GxTrainState s = gx_trainer_state(t);
    GxError ignored = GX_ZERO; // a line that cannot be written is reported elsewhere
    gx_log_sync(&t->log, &ignored);
    gx_error_clear(&t->unsaved);
    if (gx_checkpoint_path(folder, t->o.output_dir, t->step, &g->error) != GX_OK) return;
    GxCheckpoint c = GX_ZERO;
    c.m = &t->model, c.o = &t->optimizer;
    c.task = t->task, c.self = t->self;
    c.state = &s, c.args = &t->config;
    c.source = &t->source, c.base = t->o.model, c.tuned = t->tuned;
    c.dtype = gx_options_save_dtype(&t->o), c.shard_bytes = t->shard_bytes;
    gx_checkpoint_save(g, folder, &c, &t->unsaved);
    if (gx_failed(g)) return;
    if (!gx_error_code(&t->unsaved)) {
        t->saved = t->step;
        if (t->best.step == t->step) gx__trainer_set_best_folder(&t->best);
    }
    if (gx_trainer_is_first(t)) gx__trainer_after_save(t, folder);
    if (gx_trainer_is_first(t) && t->best.step == t->step) gx__trainer_write_best(t);
    t->clock.interval_start += gx_seconds() - started;
}

// A validation whose weights could not be saved cannot be the best, since they would be missing at the end. It counts
// for the patience all the same.
static void gx__trainer_keep_best(GxTrainer *t, const GxBest *before)
{
    gx_trainer_save(t);
    if (gx_failed(t->g)) return;
    if (t->saved == t->step) {
        gx__trainer_set_best_folder(&t->best);
        return;
    }
    t->best.metric = before->metric, t->best.step = before->step;
    memcpy(t->best.checkpoint, before->checkpoint, sizeof before->checkpoint);
}

void gx_trainer_validate(GxTrainer *t)
{
    GxMetric metric[GX_MAX_METRICS];
    const GxBest before = t->best;
    const int n = gx__trainer_report_evaluation(t, gx_options_eval_windows(&t->o, 0), metric);
    if (n == 0 || !gx_best_is_tracked(&t->o) || !gx_best_compare(t, metric, n)) return;
    if (gx_best_is_saved(&t->o)) gx__trainer_keep_best(t, &before);
    if (!gx_failed(t->g) && gx_trainer_is_first(t)) gx__trainer_write_best(t);
}

static void gx__trainer_end_interval(GxTrainer *t)
{
    gx__trainer_read_step(t); // on all ranks, so that an error in it is raised on all alike
    GxMetric metric[GX_MAX_METRICS] = GX_ZERO;
    const int metrics = !gx_failed(t->g) && t->task->progress ? t->task->progress(t->g, t->self, metric) : 0;
    if (gx_failed(t->g)) return;
    int64_t padding = gx_counts_samples(t->g) ? t->clock.interval_padding : 0;
    gx_at(t->g, -1, "progress");
    gx_all_reduce(t->g, GX_AXIS_ALL, GX_SUM, &padding, 1, GX_I64);
    if (gx_failed(t->g)) return;
    t->clock.padding += padding;
    if (gx_trainer_is_first(t)) gx__trainer_report_progress(t, metric, metrics, padding);
    else t->clock.steady_step = t->step;
    t->clock.interval_start = gx_seconds();
    t->clock.interval_steps = t->clock.interval_padding = 0;
}

void gx_trainer_report(GxTrainer *t)
{
    const int is_last = t->step == t->o.max_steps;
    if (gx_failed(t->g)) return;
    if (t->clock.interval_steps &&
        (gx__trainer_is_due(t, t->o.logging_steps) || !t->clock.steady_step || is_last || t->stop))
        gx__trainer_end_interval(t);
    if (!gx_failed(t->g) && !t->stop && (is_last ? gx_best_is_saved(&t->o) : gx__trainer_is_due(t, t->o.eval_steps)))
        gx_trainer_validate(t);
    if (!gx_failed(t->g) && !t->stop && gx_best_stops_early(t) && t->clock.interval_steps) gx__trainer_end_interval(t);
    if (!t->stop && gx__trainer_is_due(t, t->o.save_steps)) gx_trainer_save(t);
}

// ---- closing -------------------------------------------------------------------------------------------------------

static int gx__trainer_stops(void *trainer) { return gx__trainer_agree_to_stop((GxTrainer *)trainer); }

GxStatus gx_trainer_prepare(GxTrainer *t)
{
    GxForward forward = gx_runner_hook(&t->runner);
    forward.stop = gx__trainer_stops, forward.stop_user = t;
    return t->task->prepare ? t->task->prepare(t->g, t->self, &forward) : GX_OK;
}

static void gx__trainer_report_sample(GxTrainer *t)
{
    GxForward forward = gx_runner_hook(&t->runner);
    forward.stop = gx__trainer_stops, forward.stop_user = t;
    char *text = t->task->sample(t->g, t->self, &forward, (uint64_t)t->o.seed);
    if (text) gx_report_sample(t, text);
    free(text);
}

// Prints the confusion matrix of the last validation; with `draws` also writes output_dir/confusion.svg.
static void gx__trainer_show_confusion(GxTrainer *t, int draws)
{
    char svg[GX_PATH], title[200];
    GxError disk = GX_ZERO;
    GxConfusion c = GX_ZERO;
    if (!t->task->confusion || !t->task->confusion(t->self, &c)) return;
    gx_report_confusion(t, &c);
    if (!draws) return;
    snprintf(title, sizeof title, "%s, step %ld, held-out %s", t->family->name, (long)t->step, t->task->counted);
    gx_path_join(svg, t->o.output_dir, "confusion.svg", &disk);
    if (gx_error_code(&disk) || gx_plot_confusion(c.count, c.classes, c.name, svg, title, &disk) != GX_OK)
        gx_log(&t->g->log, GX_LOG_WARNING, "the confusions could not be drawn: %s", disk.message);
}

// A picture that cannot be drawn is only a warning.
static void gx__trainer_draw(GxTrainer *t)
{
    char svg[GX_PATH], title[200];
    GxError disk = GX_ZERO;
    snprintf(title, sizeof title, "%s, %s, %ld step%s", t->family->name, t->task->name, (long)t->step,
             gx_text_s(t->step));
    gx_path_join(svg, t->o.output_dir, "loss.svg", &disk);
    if (gx_error_code(&disk) || gx_plot_loss(t->log_path, svg, title, t->task->loss_unit, &disk) != GX_OK)
        gx_log(&t->g->log, GX_LOG_WARNING, "the loss curve could not be drawn: %s", disk.message);
    if (gx_trainer_is_over(t) && !t->stop) gx_report_summary(t, svg);
    else gx_report_curve(t, svg);
}

// If a rank's data can no longer be read, the run ends on all ranks: here, after the checkpoint.
static void gx__trainer_fail_without_data(GxTrainer *t)
{
    GxContext *g = t->g;
    const GxError *mine = &t->data_error;
    int64_t rank = gx_error_code(mine) ? g->rank + 1 : 0;
    gx_at(g, -1, "data");
    gx_all_reduce(g, GX_AXIS_ALL, GX_MAX, &rank, 1, GX_I64);
    if (gx_failed(g) || rank == 0) return;
    if (gx_error_code(mine))
        GX_FAIL(&g->error, gx_error_code(mine), "%s; the run has stopped after step %ld", mine->message, (long)t->step);
    gx_barrier(g, GX_AXIS_ALL); // on a failed context this tells the other ranks
}

// At the end, whatever could not be written so far is an error.
static void gx__trainer_fail_unsaved(GxTrainer *t)
{
    GxContext *g = t->g;
    GxError disk = GX_ZERO;
    const int has_checkpoint = t->saved > t->begun || t->resume.folder[0];
    if (gx_error_code(&t->unsaved))
        GX_FAIL(&g->error, gx_trainer_is_first(t) ? GX_ERR_IO : GX_ERR_COMM,
                "step %ld is not saved: %s; mend that, and %s", (long)t->step, t->unsaved.message,
                has_checkpoint ? "go on from the last checkpoint with --resume auto"
                               : "begin again: there is no checkpoint to go on from");
    if (gx_log_close(&t->log, &disk) != GX_OK)
        GX_FAIL(&g->error, GX_ERR_IO, "%s; the last lines of the log are lost", disk.message);
}

static void gx__trainer_warn_skipped(const GxTrainer *t)
{
    const GxLogger *log = &t->g->log;
    gx_log(log, GX_LOG_WARNING, "%ld of %ld step%s %s skipped: %s gradients were not finite", (long)t->skipped,
           (long)(t->step - t->begun), gx_text_s(t->step - t->begun), t->skipped == 1 ? "was" : "were",
           t->skipped == 1 ? "its" : "their");
    if (!t->skipped_in_a_row)
        gx_log(log, GX_LOG_WARNING, "the weights moved on after them; a --learning_rate below %g is safer",
               t->o.learning_rate);
    else
        gx_log(log, GX_LOG_WARNING,
               "the last %ld among them: the weights have not changed since step %ld, and may be of no use; resume an "
               "earlier checkpoint, or start again, with a --learning_rate below %g",
               (long)t->skipped_in_a_row, (long)(t->step - t->skipped_in_a_row), t->o.learning_rate);
}

static void gx__trainer_finish(GxTrainer *t)
{
    GxMetric metric[GX_MAX_METRICS];
    const int samples = t->task->sample != NULL, is_over = gx_trainer_is_over(t);
    const char *missing = samples ? "the last validation and the sample are" : "the last validation is";
    gx_trainer_save(t); // first, since later work may fail; also tries once more what could not be saved before
    gx_side_cache_report(t);
    if (is_over && !t->stop) gx_report_stopped_early(t);
    if (is_over && !t->stop) gx_best_load(t);
    if (is_over && !t->stop) gx__trainer_report_evaluation(t, gx_options_eval_windows(&t->o, 1), metric);
    if (is_over && !t->stop && !gx_failed(t->g) && gx_trainer_is_first(t)) gx__trainer_show_confusion(t, 1);
    if (is_over && !t->stop && samples) {
        missing = "the sample is";
        gx__trainer_report_sample(t);
    }
    if (gx_trainer_is_first(t) && t->profile.steps < t->o.profile_steps) gx_report_profile(t);
    if (t->skipped && gx_trainer_is_first(t)) gx__trainer_warn_skipped(t);
    if (!gx_failed(t->g) && gx_trainer_is_first(t)) gx__trainer_draw(t);
    if (t->stop) gx__trainer_fail_without_data(t);
    gx__trainer_fail_unsaved(t);
    if (!t->stop || gx_failed(t->g) || !gx_trainer_is_first(t)) return;
    if (is_over)
        gx_log(&t->g->log, GX_LOG_WARNING,
               "stopped by a signal after the last step: the training is complete and saved, %s not", missing);
    else
        gx_log(&t->g->log, GX_LOG_WARNING,
               "stopped by a signal after step %ld of %ld; go on with --resume auto --output_dir %s", (long)t->step,
               (long)t->o.max_steps, t->o.output_dir);
}

// After a validation of the file's samples, or, without labels, after only running the model on them.
static void gx__trainer_predict(GxTrainer *t)
{
    GxLosses losses;
    GxMetric metric[GX_MAX_METRICS] = GX_ZERO;
    gx_trainer_evaluate(t, 0, &losses);
    if (gx_failed(t->g) || t->stop) return;
    const int n = t->task->metrics(t->g, t->self, &losses, metric);
    const char *path = !gx_failed(t->g) && gx_trainer_is_first(t) ? t->task->predict(t->g, t->self) : NULL;
    gx_barrier(t->g, GX_AXIS_ALL); // on a failed context this tells the other ranks
    if (gx_failed(t->g) || !path) return;
    if (n) gx_report_evaluation(t, metric, n, losses.count[0]);
    gx_report_saved(t, path);
}

void gx_trainer_show(GxTrainer *t)
{
    GxMetric metric[GX_MAX_METRICS];
    if (gx_trainer_prepare(t) != GX_OK || gx_autotune_open(t) != GX_OK) return;
    if (t->o.predicts && !t->stop) gx__trainer_predict(t);
    // what a resumed run was told is about its own validations
    const int64_t samples = gx_config_is_set(&t->config, "eval_windows") ? gx_options_eval_windows(&t->o, 1) : 0;
    if (t->o.evaluate && !t->o.predicts && !t->stop) gx__trainer_report_evaluation(t, samples, metric);
    if ((t->o.evaluate || t->o.predicts) && !t->stop && !gx_failed(t->g) && gx_trainer_is_first(t))
        gx__trainer_show_confusion(t, 0);
    if (t->o.sample_only && !t->stop && t->task->sample) gx__trainer_report_sample(t);
    if (t->stop) gx__trainer_fail_without_data(t);
    t->done = 1;
}

// 1: the number of rows or texts that count differs between batches. The plan assumes the most, also for the scratch of
// operations, so that the arena's peak may stay below it.
static int gx__trainer_rows_vary(const GxTrainer *t)
{
    int vary = 0;
    for (int k = 0; k < t->task->losses; k++)
        vary |= t->eval->target[k].rows != NULL || t->eval->target[k].parts != NULL;
    return vary;
}

int gx_trainer_close(GxTrainer *t)
{
    GxContext *g = t->g;
    GxError ignored = GX_ZERO; // the run has failed or is over: a last line that cannot be written changes nothing
    if (!t->done && !gx_failed(g)) gx__trainer_finish(t);
    int status = gx_failed(g) ? gx_print_error(g) : t->stop ? 128 + (gx_stop_signal() ? gx_stop_signal() : 15) : 0;
    gx_log_close(&t->log, &ignored);
    gx_event_file_close(&t->tensorboard.file);
    gx_resume_close(&t->resume);
    gx_source_folder_close(&t->source);
    gx_side_cache_close(t);
    if (t->lock >= 0) close(t->lock);
    if (g->comm && g->comm->is_open) gx_comm_close(g);
    if (t->self) t->task->close(t->self);
    gx_runner_close(&t->runner);
    gx_model_close(&t->model);
    free(t->self);
    free(t->model_config);
    free(t->tuned);
    if (!gx_failed(g) && t->arena.base && t->step > t->begun &&
        t->arena.peak != t->plan.arena && // after an error, not all was taken
        !gx__trainer_rows_vary(t))
        gx_log(&g->log, GX_LOG_WARNING, "the arena was planned with %ld bytes, %ld were used: the plan is wrong",
               (long)t->plan.arena, (long)t->arena.peak);
    free(t->batch); // with what a validation's are like
    gx_arenas_close(g, &t->arena, &t->host_arena);
    gx_arena_close(&t->comm_arena);
    gx_device_close(g);
    return status;
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
