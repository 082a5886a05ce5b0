// task/task.h: a task brings data in and takes metrics out: what a batch holds, what its losses are divided by, what a
// validation says, what a checkpoint keeps of it. The trainer (run/trainer.h) runs any task with any family and mode,
// and knows of no text, tokenizer or metric; causal_lm.h is the first task.
//
// A task is a table of functions, and a struct of its own that they get as `self`: first its options, which a table of
// fields describes and the program shows under the task's name, then whatever it opens. The trainer calls, on every
// rank:
//
//     open              once the options and the model's configuration are agreed on: data, tokenizer
//     wish              which head the model gets, which may follow from the data
//     take              buffers of its own: on an arena that only counts, then on the real one
//     lay               where the arrays of a micro-batch lie in its block of memory
//     prepare           before the first step, where the weights are known
//     fill, counts      before each window, for each of its micro-batches
//     metrics, lacks    once it is open: which metrics validations will have, where a run is to compare them
//     progress          for a line about the training
//     held_out, fill_held_out, counts, see, metrics               in a validation
//     write, identity, changed                                    in a checkpoint
//     sample, confusion at the end: something for people to look at
//     predicts, predict  what a model says of a file, in place of training
//     close             also after an error, and where it was never opened
//
// Which samples a batch holds is a function of (seed, number of the sample) and nothing else, so that every topology
// and every resumed run sees the same ones. Functions that may be NULL say so. An error goes to g->error or err.
#ifndef GX_TASK_H
#define GX_TASK_H
#include "../base/fields.h"
#include "../model/model.h"
#include "confusion.h"
#include <stdio.h>
GX_BEGIN

enum { GX_MAX_METRICS = 16 };

typedef struct { // of a validation, over all ranks. A loss is sum / count
    double sum[GX_MAX_LOSSES];
    int64_t count[GX_MAX_LOSSES];
} GxLosses;

typedef struct {
    const char *name;   // in log.jsonl; metrics of a validation with "eval_" before it
    const char *format; // for people, of one double: "%.3f bits per byte"
    double value;
    int better; // +1: the larger, the better; -1: the smaller; 0: it says nothing about that
} GxMetric;

typedef struct {
    int64_t vocab;   // rows of the model's embedding; 0: as many as the task's tokenizer has, which open sets
    int64_t seq_len; // tokens of a sample
    int is_dry;      // of a dry run: no data is opened
    // The folder that the weights are from: of the checkpoint that is resumed, or of --model. "" where there is none,
    // and on ranks other than 0, which need not have it.
    const char *model;
    int only_shows;               // of a validation, a sample or predictions: nothing is trained
    GxDtype dtype;                // of weights and activations
    int64_t samples, all_samples; // of a micro-batch: this rank's, and those of all ranks
    int frames_texts;             // a text stands between [CLS] and [SEP], as this family has it
    // A training begins with --model's weights (a checkpoint that is resumed has its own head): its head may then be
    // another one, where --ignore_mismatched_sizes asks for it.
    int starts_from_model, ignore_mismatched_sizes;
    int64_t run_samples; // that the whole run takes, from its first step on; 0: nothing is trained
    uint64_t seed;       // of the training
    // The training's samples are those of its first epoch, again and again: a task for which that is not sensible
    // refuses it. It sets how many an epoch has; 0: it does not know. One or two too many do no harm.
    int repeats_epoch;
    int64_t epoch_samples;
} GxTaskSetup;

typedef struct { // how a task reaches the model
    // Forward only: adds to the losses of b's targets, writes the results that they ask for.
    void (*run)(GxContext *g, void *user, const GxBatch *b);
    void *user;
    int (*stop)(void *stop_user); // 1, on all ranks: a signal asks to stop. NULL: nobody asks
    void *stop_user;
} GxForward;

// What a run has where its options say nothing.
typedef struct {
    double learning_rate, adapter_learning_rate; // of the whole model; of an adapter
    int without_dropout;                         // an adapter's, too: one that is asked for is refused
} GxTaskDefaults;

typedef struct GxTask {
    const char *name;
    size_t size; // of self; all zero before the options are set
    const GxField *fields;
    int n_fields;
    const char *const *own; // options that ranks may have different: paths; NULL at the end. NULL: none
    int losses;             // 1 to GX_MAX_LOSSES: that of target k is number k
    const char *counted;    // what the first of them is a mean over: "tokens"

    // What the training goes on with: fields of self, set by open, that a checkpoint's trainer_state.json keeps (texts
    // among them stand in model.safetensors, too). A resumed checkpoint that has others, or another seq_len, "was
    // trained <elsewhere> or seq_len": a warning.
    const GxField *identity;
    int n_identity;
    const char *elsewhere; // "on another text, or with another validation_fraction". NULL, and 0 fields: there are none

    // Refuses what does not fit the model, and ranks whose data are not rank 0's.
    GxStatus (*open)(GxContext *g, void *self, GxTaskSetup *setup);
    void (*close)(void *self);
    const GxHeadWish *(*wish)(const void *self);   // lives as long as self. NULL: a causal language model
    void (*describe)(const void *self, FILE *out); // the data: whole lines
    // What a model must beat on the held-out samples to have learned anything: into metric[GX_MAX_METRICS], whose names
    // are all NULL; the first that stays so ends them. NULL: it is never known.
    GxStatus (*baseline)(const void *self, GxMetric *metric, GxError *err);

    void (*take)(GxContext *g, void *self, GxModel *m, int64_t T); // NULL: none. T: of the longest batch
    // Sets b's arrays for b->T x b->B tokens: in `block`, in the device's memory, and where b has a twin for it in
    // `twin`, its twin in the host's. Returns the bytes of either; both NULL: these alone are wanted.
    int64_t (*lay)(const void *self, GxBatch *b, void *block, void *twin);
    // Writes the twin: b->B samples of the training from b->first_sample on. What goes wrong goes to err alone, which
    // need not be g's: the trainer decides what becomes of the run.
    GxStatus (*fill)(GxContext *g, void *self, GxBatch *b, void *twin, uint64_t seed, GxError *err);
    int64_t (*held_out)(const void *self); // how many samples are held out; 0: there is no validation
    // The same of held-out samples; those from number `samples` on must count for nothing.
    GxStatus (*fill_held_out)(GxContext *g, void *self, GxBatch *b, void *twin, int64_t samples, GxError *err);
    // Adds to count what each loss of the batch is divided by: labels, samples.
    void (*counts)(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);
    // Before a validation (b NULL), and behind each of its batches, when the results that its targets asked for are
    // there. NULL: losses are all.
    void (*see)(GxContext *g, void *self, const GxBatch *b);
    // On all ranks; rank 0's are told. Returns how many. losses NULL: which ones a validation will have, before there
    // is any; their values are not looked at, and nothing is sent.
    int (*metrics)(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS]);

    // What the model makes, as text: free() it. NULL: nothing, or an error. NULL function: never anything. On a device
    // that does not compute: what takes memory, once.
    char *(*sample)(GxContext *g, void *self, const GxForward *forward, uint64_t seed);
    GxStatus (*write)(const void *self, const char *folder, GxError *err); // files of a checkpoint. NULL: none
    // What of the data is no longer as it was when the task was opened: a path, which lives as long as self; NULL:
    // nothing. NULL function: that never happens.
    const char *(*changed)(const void *self);
    const char *const *loss_names; // [losses], in log.jsonl: "mlm_loss". NULL: it has their sum alone, "loss"

    // Which class was taken for which in the last validation: 1, and *c, which lives until the next. NULL: never is
    // known.
    int (*confusion)(const void *self, GxConfusion *c);
    // The option that asks for predictions, not for training ("predict"; NULL: none does): the held-out samples are
    // then those of another file. Behind a validation of all of them and `metrics` (which may return 0: they have no
    // labels), predict writes what the model said, on rank 0, and returns where. Both NULL: never.
    const char *(*predicts)(const void *self);
    const char *(*predict)(GxContext *g, void *self);
    const char *loss_unit; // what the loss is measured in, for the axis of its picture. NULL: nothing is said
    // What a metric that it does not have now would need: "needs --nsp true". NULL: there is none of that name. NULL
    // function: never.
    const char *(*lacks)(const void *self, const char *metric);
    const char *best_metric;        // by which validations are compared where the user names none. NULL: "loss"
    const GxTaskDefaults *defaults; // NULL: the program's
    // Once, before the first step and before anything is shown: with the weights that the run begins with, or goes on
    // from. On a device that does not compute: what takes memory, once. NULL: nothing is to be done.
    GxStatus (*prepare)(GxContext *g, void *self, const GxForward *forward);
    // On all ranks, for rank 0's line of progress: what is known of the training since the last call. Returns how many.
    // NULL: nothing but the loss.
    int (*progress)(GxContext *g, void *self, GxMetric metric[GX_MAX_METRICS]);
} GxTask;

// Refuses a rank one of whose n numbers, hashes of files as a rule, is not rank 0's: by what it is of. The last that
// differs is named. n: at most 8.
GxStatus gx_task_agree(GxContext *g, const char *const *what, const int64_t *mine, int n);

// For tasks with a label per token: tokens [T,B], then target 0's labels [T,B], as `lay` and `counts` of such a task.
int64_t gx_task_lay_labels(const void *self, GxBatch *b, void *block, void *twin);
void gx_task_count_labels(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);

static inline double gx_losses_mean(const GxLosses *l, int k) // 0: nothing was counted, or l is NULL
{
    return l && l->count[k] > 0 ? l->sum[k] / (double)l->count[k] : 0;
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TASK_IMPLEMENTED)
#define GX_TASK_IMPLEMENTED
#include <string.h>
#include "../comm/comm.h"
#include "../ops/loss.h"

GxStatus gx_task_agree(GxContext *g, const char *const *what, const int64_t *mine, int n)
{
    int64_t first[8];
    memcpy(first, mine, (size_t)n * sizeof *first);
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, first, n, GX_I64);
    GX_TRY(gx_status(g));
    for (int i = n - 1; i >= 0; i--)
        if (mine[i] != first[i])
            return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                           "rank %d: %s is not the same here as on rank 0; all ranks need the same: copy rank 0's",
                           g->rank, what[i]);
    return GX_OK;
}

int64_t gx_task_lay_labels(const void *self, GxBatch *b, void *block, void *twin)
{
    const int64_t rows = b->T * b->B;
    (void)self;
    b->tokens = (const int32_t *)block;
    b->target[0].labels = block ? b->tokens + rows : NULL;
    b->target[0].labels_twin = twin ? (const int32_t *)twin + rows : NULL;
    return 2 * rows * (int64_t)sizeof(int32_t);
}

void gx_task_count_labels(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const int32_t *labels = gx_target_labels(&b->target[0]);
    (void)self;
    for (int64_t i = 0; i < gx_target_n(b, 0); i++) count[0] += labels[i] != GX_IGNORE_INDEX;
}
#endif
