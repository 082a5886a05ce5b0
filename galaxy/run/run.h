// run.h: a run as data: what it trains, with which options, how far it has come and what it has written. It lives as
// long as the training, whichever ranks compute it; what a set of ranks opens and closes is a session (session.h).
// Every rank has its own GxTrainRun, the same on all ranks except for members that are said to be rank 0's.
//
//     GX_TRY(gx_run_open(&run, g, &gx_llama, &gx_causal_lm, NULL, NULL, argc, argv));   // reads the options
//     GX_TRY(gx_session_open(&session, &run, g));                 // on these ranks
//     ...
//     gx_session_close(&session);
//     gx_run_close(&run);
//
// A run that has had a session continues on other ranks with another gx_session_open: its options (except those about
// where it is computed), its weights and its place in the data then come from its last checkpoint, in its output
// folder. It keeps its log, its lock, its watchers and its clock.
#ifndef GX_RUN_H
#define GX_RUN_H
#include "../plan/machines_file.h"
#include "../plan/split_plan.h"
#include "../task/task.h"
#include "options.h"
#include "options_chosen.h"
#include "resume.h"
#include "run_log.h"
#include "schedule.h"
#include "source_folder.h"
#include "task_choice.h"
#include "watcher.h"
GX_BEGIN

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
} GxRunClock;

typedef struct {           // the same on all ranks
    int64_t step, samples; // windows begun; samples seen by all ranks
    int64_t begun;         // the step at which this process started
    int64_t saved;         // the step of the last checkpoint
    // steps of this process whose gradients were not finite; how many of the latest steps in a row
    int64_t skipped, skipped_in_a_row;
    int64_t unlearned, unlearned_in_a_row; // the same for steps in which no label counted
} GxPosition;

// What extends a session before its memory is planned (GxSessionExtra of session.h). open NULL: nothing does.
typedef struct {
    // Called when the data are open. samples: of an epoch, 0: not known; all: in a micro-batch of all ranks.
    GxStatus (*open)(void *self, GxSession *s, int64_t samples, int64_t all);
    void *self;
} GxRunExtends;

typedef struct {              // where a rank of a planned run comes from
    int16_t planned, machine; // its number in the plan; in the measurements that the first plan was made from
    double slower;            // how many times as long as measured then its operations take now
} GxRunPlace;

typedef struct GxTrainRun {
    // what is trained
    const GxFamily *family;
    const GxTask *task;
    GxTaskChoice task_choice;                // how it was chosen
    void *self;                              // the task's: its options, and what a session opens
    const GxMode *program_mode;              // the program's own; NULL: the options select it
    const GxStepsSchedule *program_schedule; // the program's own, which writes the lists of steps; NULL: generators do
    void *model_config;                      // the family's
    // with which options
    GxConfig config;
    GxTrainOptions o;
    GxChosen chosen;         // what their words mean, once all ranks have agreed on them
    GxResume resume;         // what it continues from
    GxSourceFolder source;   // on rank 0: the folder of the weights, whose other files are copied to checkpoints
    int64_t shard_bytes;     // largest size of a file of weights
    int64_t memory_limit;    // bytes; 0: what is free
    GxWeightsHash base_hash; // of an adapter's base, on rank 0; 0: the run trains no adapter
    int64_t number;          // this run's: chosen when it begins, kept when it is resumed
    int64_t epoch_samples;   // of all ranks; 0: not known
    GxTextFrame frame;       // of a family with an encoder
    const char *seq_len_is;  // what o.seq_len is, for messages: "the default of --seq_len"; NULL: as it was given
    // Rows of the embedding in --model, and in an adapter that the run begins with; 0 in a resumed run
    int64_t vocab_of_model, vocab_of_adapter;
    int64_t tokens_added;           // to the tokenizer, by --add_tokens
    GxSchedule schedule;            // of the learning rate
    GxSplitPlan *plan;              // which rank computes what (planner.h); NULL: the options say it
    GxSplitPlan *next_plan;         // another one, under which a further session continues (replan.h); NULL: none
    GxRunPlace place[GX_MAX_PARTS]; // with a plan: of each rank
    GxCostSample *plan_sample; // what operations took on this rank when it was measured for the plan; NULL: it was not
    int plan_samples;
    GxMachines machines; // on rank 0: what was measured for the plan; all zero: nothing was
    char *tuned;         // the table of --autotune, as text (autotune.h); NULL: none
    int tuned_is_kept;   // on rank 0: it comes from the checkpoint that the run continues from; nothing is timed
    // its position
    GxPosition at;
    GxBest best;             // the best validation so far (best.h)
    const char *best_format; // printf format of the best metric; NULL: not known before the first validation
    int64_t incomparable;    // validations of this process whose metric was not finite
    int64_t weights_step;    // the step whose weights were loaded at the end; 0: they are those of at.step
    GxValidation validation; // the last one, on rank 0
    GxRunClock clock;
    int sessions;       // so far
    int stop, done;     // asked to stop; nothing more to do (--help, --version, --dry_run)
    GxError data_error; // of this rank's data: it asks to stop
    int data_changed;   // 1: a warning has said that the data have changed since the start
    // its output, on rank 0
    int lock;     // file descriptor of output_dir, locked; -1: none
    GxRunLog log; // output_dir/log.jsonl
    char log_path[GX_PATH];
    GxError unsaved; // why the last checkpoint that was due could not be saved, on all ranks
    // its watchers, and what they change
    GxWatchers watchers;
    GxRunExtends extends;
    GxArena comm_arena; // of the communicator, which is needed before there is a plan of memory
    int argc;           // the command line, borrowed
    char **argv;
} GxTrainRun;

// Reads the options, and chooses g's device and threads by them. mode and schedule: see GxTrainRun. Sets done if help
// or the version was asked for (config.help, config.version). Close the run, also after an error.
GxStatus gx_run_open(GxTrainRun *r, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                     const GxStepsSchedule *schedule, int argc, char **argv);
void gx_run_close(GxTrainRun *r);

// Before another session on a rank that has had one: sets a new command line, of which only the options about where the
// run is computed count (gx_resume_local_options).
GxStatus gx_run_set_command(GxTrainRun *r, GxContext *g, int argc, char **argv);
// When another session begins (session_agree.h), on every rank, including those that are new to the run: forgets all
// other options, and continues from `folder`, the run's last checkpoint.
GxStatus gx_run_rejoin(GxTrainRun *r, const char *folder, GxError *err);

// An integer of the model's configuration, such as hidden_size (gx_family_field); 0: the family has none of this name.
int64_t gx_run_model_int(const GxTrainRun *r, const char *name);
// Layers of the encoder of a model that also has a decoder; 0: another model.
static inline int64_t gx_run_encoder_layers(const GxTrainRun *r)
{
    return gx_run_model_int(r, "encoder_layers") + gx_run_model_int(r, "num_layers"); // BART, T5
}
// Layers of the model. A decoder's are counted behind its encoder's.
static inline int64_t gx_run_layers(const GxTrainRun *r)
{
    return gx_run_model_int(r, "num_hidden_layers") + // LLaMA, BERT, GPT-2
           gx_run_encoder_layers(r) + gx_run_model_int(r, "decoder_layers") + gx_run_model_int(r, "num_decoder_layers");
}

// 1: the run ends early, at this step, by --early_stopping_patience.
static inline int gx_run_stops_early(const GxTrainRun *r)
{
    return r->o.early_stopping_patience > 0 && r->best.patience_counter >= r->o.early_stopping_patience;
}
// 1: all steps are done, or the run stops early.
static inline int gx_run_is_over(const GxTrainRun *r) { return r->at.step >= r->o.max_steps || gx_run_stops_early(r); }
// Sets the folder of the best validation's checkpoint, which is being saved, or was.
static inline void gx_run_name_best(GxBest *b)
{
    if (b->step) snprintf(b->checkpoint, sizeof b->checkpoint, "checkpoint-%ld", (long)b->step);
}
// 1: the step is a multiple of `every`. every 0: never.
static inline int gx_run_is_due(const GxTrainRun *r, int64_t every) { return every > 0 && r->at.step % every == 0; }
// 1: this step has a validation that can be the best. The last step has one only if the best is saved: all held-out
// samples follow at the end in any case.
static inline int gx_run_is_validated(const GxTrainRun *r)
{
    return r->at.step == r->o.max_steps ? gx_options_saves_best(&r->o) : gx_run_is_due(r, r->o.eval_steps);
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RUN_IMPLEMENTED)
#define GX_RUN_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../io/config_args.h"
#include "machine.h"
#include "options_table.h"
#include "processors.h"

static GxStatus gx__run_add_options(GxTrainRun *r, GxError *err)
{
    gx_config_open(&r->config);
    GX_TRY(gx_task_add_options(&r->task_choice, &r->config, r->family, r->task, r->self, err));
    GX_TRY(gx_options_add(&r->config, &r->o, r->program_mode, r->program_schedule, r->family->name, err));
    GX_TRY(gx_config_add(&r->config, "model", r->family->fields, r->family->n_fields, r->model_config, err));
    return gx_config_read_args(&r->config, r->argc, r->argv, err);
}

// Reads the options, and chooses g's threads and device by them.
static GxStatus gx__run_read_options(GxTrainRun *r, GxContext *g)
{
    GX_TRY(gx__run_add_options(r, &g->error));
    r->done = r->config.help || r->config.version;
    if (r->done) return GX_OK;
    if (r->o.threads) g->threads = (int)r->o.threads;
    GX_TRY(gx_threads_take(gx_threads(g), &g->error));
    r->o.predicts = r->task->output.predicts ? r->task->output.predicts(r->self) : NULL;
    return gx_choose_device(g, r->o.device);
}

static GxStatus gx__run_choose_task(GxTrainRun *r, GxError *err)
{
    GX_TRY(gx_task_choose(&r->task_choice, r->family, &r->task, r->argc, r->argv, err));
    if (r->task->loss.n >= 1 && r->task->loss.n <= GX_MAX_LOSSES) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "task %s has %d losses; 1 to %d are possible", r->task->name,
                   r->task->loss.n, GX_MAX_LOSSES);
}

static GxStatus gx__run_check_folders(const GxTrainOptions *o, GxError *err)
{
    if (o->model[0] && o->resume[0] && strcmp(o->resume, "auto") && !gx_path_is_adapter(o->resume))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--model and --resume both name a folder, but a checkpoint that is resumed has its own model; "
                       "leave out --model");
    if (o->overwrite_output_dir && o->resume[0] && !gx_options_is_inference(o))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--overwrite_output_dir begins a new run, but --resume continues one; leave one of them out");
    if (gx_options_is_inference(o) && !o->model[0] && !o->resume[0] && !o->tuning.adapter[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s needs a model: --resume auto, --resume FOLDER or --model FOLDER",
                       o->predicts   ? o->predicts
                       : o->evaluate ? "evaluate"
                                     : "sample_only");
    if (o->predicts && (o->evaluate || o->sample_only))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s reads held-out samples, but --%s reads another file instead; use them in two runs of the "
                       "program",
                       o->evaluate ? "evaluate" : "sample_only", o->predicts);
    if (o->trace[0] && !strcmp(o->trace, o->plot_memory))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--trace and --plot_memory both write %s; give one of them another file",
                       o->trace);
    if (o->ignore_mismatched_sizes && !o->model[0])
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--ignore_mismatched_sizes is for the head of --model, which is not given; give it, or leave this out");
    if (!o->strict && !o->model[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--strict false is for the weights of --model, which is not given; give it, or leave this out%s",
                       o->resume[0] ? " (a resumed checkpoint must always match)" : "");
    return GX_OK;
}

GxStatus gx_run_open(GxTrainRun *r, GxContext *g, const GxFamily *family, const GxTask *task, const GxMode *mode,
                     const GxStepsSchedule *schedule, int argc, char **argv)
{
    GxError *err = &g->error;
    memset(r, 0, sizeof *r);
    r->lock = -1;
    r->family = family, r->task = task, r->program_mode = mode, r->program_schedule = schedule;
    r->argc = argc, r->argv = argv;
    GX_TRY(gx__run_choose_task(r, err));
    r->model_config = calloc(1, family->config_size);
    r->self = calloc(1, r->task->options.size);
    if (!r->model_config || !r->self) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    GX_TRY(gx__run_read_options(r, g));
    return r->done ? GX_OK : gx__run_check_folders(&r->o, err);
}

GxStatus gx_run_set_command(GxTrainRun *r, GxContext *g, int argc, char **argv)
{
    r->argc = argc, r->argv = argv;
    return gx__run_read_options(r, g);
}

GxStatus gx_run_rejoin(GxTrainRun *r, const char *folder, GxError *err)
{
    gx_resume_close(&r->resume);
    gx_source_folder_close(&r->source);
    memset(r->model_config, 0, r->family->config_size);
    GX_TRY(gx__run_add_options(r, err));
    gx_config_reset(&r->config, gx_resume_local_options());
    snprintf(r->o.resume, sizeof r->o.resume, "%s", folder);
    r->vocab_of_model = r->vocab_of_adapter = r->tokens_added = 0;
    return GX_OK;
}

int64_t gx_run_model_int(const GxTrainRun *r, const char *name)
{
    const GxField *f = gx_family_field(r->family, name);
    return f ? *(const int64_t *)gx_field_in(f, r->model_config) : 0;
}

void gx_run_close(GxTrainRun *r)
{
    GxError ignored = GX_ZERO; // the run has failed or is over: a last line that cannot be written changes nothing
    gx_log_close(&r->log, &ignored);
    gx_resume_close(&r->resume);
    gx_source_folder_close(&r->source);
    gx_watchers_free(&r->watchers);
    if (r->lock >= 0) close(r->lock);
    free(r->self);
    free(r->model_config);
    free(r->tuned);
    free(r->plan);
    free(r->next_plan);
    free(r->plan_sample);
    gx_machines_close(&r->machines);
}
#endif
