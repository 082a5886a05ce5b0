// task/task.h: the interface of a task, what a model is trained for. It decides what a batch holds, what losses are
// divided by, which metrics a validation has, and what a checkpoint keeps of the data. The trainer (run/trainer.h) runs
// any task with any family and mode, and knows nothing of texts, tokenizers or metrics. causal_lm.h is an example.
//
// A task is a table of functions, in groups, and a struct of its own, which they get as `self`: first its options,
// described by a table of fields and shown by the program under the task's name, then whatever `open` sets up. The
// trainer calls, on every rank:
//
//     data.open               when the ranks have agreed on options and the model's configuration: data and tokenizer
//     data.head               returns the head that the model gets, which may depend on the data
//     batch.allocate          takes buffers of its own: from an arena that only counts, then from the real one
//     batch.layout            places the arrays of a micro-batch in its block of memory
//     data.prepare            before the first step, when the weights have been loaded
//     batch.fill, counts      before each window, for each of its micro-batches
//     metrics.compute, lacks  after open, if the run compares validations: which metrics they will have
//     metrics.progress        for a line about the training
//     batch.held_out, fill_held_out, counts, see; metrics.compute      in a validation
//     checkpoint.write, identity, changed                              in a checkpoint
//     output.sample, metrics.confusion                                 at the end: something for people to look at
//     output.predicts, predict                                         in place of training: predictions for a file
//     data.close              also after an error, even if data.open was never called
//
// A sample depends only on (seed, number of the sample), so that every topology and every resumed run sees the same
// samples. Errors go to g->error or err.
#ifndef GX_TASK_H
#define GX_TASK_H
#include "../base/fields.h"
#include "../model/model.h"
#include "confusion.h"
#include <stdio.h>
GX_BEGIN

enum { GX_MAX_METRICS = 16 };

typedef struct { // a validation's, over all ranks. A loss is sum / count
    double sum[GX_MAX_LOSSES];
    int64_t count[GX_MAX_LOSSES];
} GxLosses;

typedef struct {
    const char *name;   // in log.jsonl; metrics of a validation with "eval_" before it
    const char *format; // for people, of one double: "%.3f bits per byte"
    double value;
    int better; // +1: larger is better; -1: smaller is better; 0: neither
} GxMetric;

typedef struct {
    int64_t vocab;   // rows of the model's embedding; 0: open sets it to the size of the task's tokenizer
    int64_t seq_len; // tokens of a sample
    int is_dry;      // a dry run: no data is opened
    // The folder that the weights come from: that of the resumed checkpoint, or --model. "": none. Also set on ranks
    // other than 0, which need not have the folder.
    const char *model;
    int only_shows;               // only a validation, a sample or predictions: nothing is trained
    GxDtype dtype;                // of weights and activations
    int64_t samples, all_samples; // in a micro-batch: on this rank, and on all ranks
    int frames_texts;             // the family puts a text between [CLS] and [SEP]
    // A new training starts from --model's weights (a resumed checkpoint has its own head). With
    // --ignore_mismatched_sizes its head may then have another shape.
    int starts_from_model, ignore_mismatched_sizes;
    // Of the whole run, from its first step on; 0: nothing is trained. If epochs is not 0, the run has that many
    // epochs, and run_samples is not its length.
    int64_t run_samples;
    double epochs;
    uint64_t seed; // of the training
    // --label_smoothing_factor, of every loss over a vocabulary (model/head.h). A task that needs the loss unsmoothed
    // refuses it.
    double label_smoothing;
    // Set if the run repeats the samples of its first epoch in every epoch; a task that cannot do so refuses it.
    int repeats_epoch;
    // Set by open: samples of an epoch, over all ranks; of the first epoch if others have a few more or less. 0:
    // unknown, as before the data are opened.
    int64_t epoch_samples;
    const char *adapter;    // folder of the adapter that the run starts with, on rank 0; NULL, "": none
    const char *seq_len_is; // what messages call seq_len; NULL: "--seq_len"
    // 1: open may increase vocab for a tokenizer that extends the model's; the model gets the new rows.
    int may_grow;
    // A file of tokens to be added to the tokenizer (--add_tokens), which rank 0 reads; "", NULL: none. open sets
    // has_added, and how many of them were new.
    const char *add_tokens;
    int has_added;
    int64_t added;
    // Of a family with an encoder: what is put around texts; NULL: it has none. open sets source_len: the tokens of a
    // column of sources, beside seq_len of their targets.
    const GxTextFrame *frame;
    int64_t source_len;
    int keeps_tokenizer; // 1: use the model's tokenizer, to which tokens were added, whatever an option names
} GxTaskSetup;

typedef struct { // how a task runs the model
    // A forward pass: writes the results that b's targets ask for. loss [GX_MAX_LOSSES], in device memory: the sums of
    // the batch's losses are added to it; NULL: losses are not wanted.
    void (*run)(GxContext *g, void *user, const GxBatch *b, double *loss);
    void *user;
    int (*stop)(void *stop_user); // 1, on all ranks, if a signal asks to stop. NULL: never
    void *stop_user;
} GxForward;

// Defaults that differ from the program's.
typedef struct {
    double learning_rate, adapter_learning_rate; // for the whole model; for an adapter
    int without_dropout;                         // 1: dropout, also an adapter's, is 0, and another value is refused
} GxTaskDefaults;

// A task is filled in group by group, each member on a line with its name. A function may be NULL where its comment
// says so.
typedef struct {           // its options
    size_t size;           // of self, which is all zero before the options are set
    const GxField *fields; // in self
    int n_fields;
    const char *const *own;         // names of options that may differ between ranks (paths), then NULL. NULL: none
    const GxTaskDefaults *defaults; // NULL: the program's
    // Names of options that say how texts are read, then NULL. Without training they are, if they are not given, what
    // the model was trained with, like --seq_len. NULL: there are no others
    const char *const *reading;
} GxTaskOptions;

typedef struct {
    int n;                    // losses, 1 to GX_MAX_LOSSES; loss k is that of target k
    const char *const *names; // [n], in log.jsonl: "mlm_loss". NULL: only their sum is logged, as "loss"
    const char *counted;      // what the first loss is a mean over: "tokens"
    const char *unit;         // of the loss, for the axis of its plot. NULL: none is shown
    const char *best_metric;  // the metric by which validations are compared, if no option names one. NULL: "loss"
} GxTaskLoss;

typedef struct { // its data
    // Fails if the data do not fit the model, or are not the same on all ranks.
    GxStatus (*open)(GxContext *g, void *self, GxTaskSetup *setup);
    void (*close)(void *self);
    const GxHeadRequest *(*head)(const void *self); // lives as long as self. NULL: a causal language model's head
    void (*describe)(const void *self, FILE *out);  // prints lines about the data
    void (*show)(const void *self, FILE *out);      // prints samples, whose lines are not wrapped. NULL: none
    // Called once, before the first step and before any output, when the weights have been loaded, initial or resumed.
    // On a device that does not compute it runs once what takes memory. NULL: nothing to do.
    GxStatus (*prepare)(GxContext *g, void *self, const GxForward *forward);
} GxTaskData;

typedef struct { // what a checkpoint keeps of the task
    // What identifies the data: fields of self, set by open, which a checkpoint keeps in trainer_state.json (those that
    // are texts also in model.safetensors). If a resumed checkpoint has other values, or another seq_len, a warning
    // says that it "was trained <elsewhere> or seq_len".
    const GxField *identity;
    int n_identity;
    const char *elsewhere; // "on another text, or with another validation_fraction". NULL if there are no fields
    GxStatus (*write)(const void *self, const char *folder, GxError *err); // files. NULL: none
    // The path of a file of the data that has changed since the task was opened; it lives as long as self. NULL: none
    // has. NULL function: none ever does.
    const char *(*changed)(const void *self);
} GxTaskCheckpoint;

typedef struct {                                                       // its samples
    void (*allocate)(GxContext *g, void *self, GxModel *m, int64_t T); // T: of the longest batch. NULL: nothing
    // Points b's arrays, for b->T x b->B tokens, into `block` in the device's memory, and the host copies of these
    // arrays into `host_copy`, a block of the same size in the host's memory. Returns the bytes of one block; both may
    // be NULL if only that is asked for. If b has a source, its arrays lie in the same block.
    int64_t (*layout)(const void *self, GxBatch *b, void *block, void *host_copy);
    // Writes the host copy: b->B training samples from b->sample on. Errors go only to err, which need not be
    // &g->error: the trainer decides whether the run goes on.
    GxStatus (*fill)(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err);
    // Adds to count[k] what loss k of the batch is divided by: labels, or samples.
    void (*counts)(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);
    int64_t (*held_out)(const void *self); // how many samples are held out; 0: there is no validation
    // As `fill`, for held-out samples; none of those from number `samples` on may count in a loss.
    GxStatus (*fill_held_out)(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples, GxError *err);
    // Called before a validation (b NULL) and after each of its batches, when the results that its targets asked for
    // have been written. NULL: losses are enough.
    void (*see)(GxContext *g, void *self, const GxBatch *b);
    // 1: each row of a batch has its own loss, which needs nothing of other rows but their keys and values, so the rows
    // of a sequence can be on several ranks (cp). NULL: they cannot.
    int (*stands_alone)(const void *self);
} GxTaskBatches;

typedef struct {
    // Called on all ranks; rank 0's metrics are reported. Returns how many. losses NULL: only names and formats are
    // wanted, before the first validation; then it must not communicate.
    int (*compute)(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS]);
    // Called on all ranks for rank 0's line of progress: metrics of the training since the last call. Returns how many.
    // NULL: only the loss is shown.
    int (*progress)(GxContext *g, void *self, GxMetric metric[GX_MAX_METRICS]);
    // What a model must beat on the held-out samples to have learned anything. Fills metric[GX_MAX_METRICS] from the
    // front; all names are NULL before, and the first NULL ends the list. NULL function: never known.
    GxStatus (*baseline)(const void *self, GxMetric *metric, GxError *err);
    // What a metric that this run does not have would need: "needs --nsp true". NULL: there is no metric of that name.
    // NULL function: no metric needs anything.
    const char *(*lacks)(const void *self, const char *metric);
    // Sets *c to the last validation's confusion matrix, valid until the next one, and returns 1; 0: there is none.
    // NULL function: never any.
    int (*confusion)(const void *self, GxConfusion *c);
} GxTaskMetrics;

typedef struct { // what the model produces
    // A text that the model writes; the caller frees it. NULL: none, or an error. NULL function: never any. On a device
    // that does not compute it runs once what takes memory.
    char *(*sample)(GxContext *g, void *self, const GxForward *forward, uint64_t seed);
    // The name of the option that asks for predictions in place of training ("predict"); NULL: it was not given. The
    // held-out samples are then those of another file. After a validation of all of them and `compute` (which may
    // return 0: without labels) predict writes the predictions, on rank 0, and returns the path. NULL functions: never.
    const char *(*predicts)(const void *self);
    const char *(*predict)(GxContext *g, void *self);
} GxTaskOutput;

typedef struct GxTask {
    const char *name;
    GxTaskOptions options;
    GxTaskLoss loss;
    GxTaskData data;
    GxTaskCheckpoint checkpoint;
    GxTaskBatches batch;
    GxTaskMetrics metrics;
    GxTaskOutput output;
} GxTask;

static inline const char *gx_task_length_name(const GxTaskSetup *setup)
{
    return setup->seq_len_is ? setup->seq_len_is : "--seq_len";
}

// Compares mine[n] (usually hashes of files; n at most 8) with those of rank 0. Fails on a rank where some differ, with
// what[i], the name of the last of these. All ranks call it.
GxStatus gx_task_agree(GxContext *g, const char *const *what, const int64_t *mine, int n);

// `layout` and `counts` for tasks with a label per token: tokens [T,B], then target 0's labels [T,B].
int64_t gx_task_layout_labels(const void *self, GxBatch *b, void *block, void *host_copy);
void gx_task_count_labels(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);

static inline double gx_losses_mean(const GxLosses *l, int k) // 0: nothing was counted, or l is NULL
{
    return l && l->count[k] > 0 ? l->sum[k] / (double)l->count[k] : 0;
}

// A batch of a task's own, beside the trainer's: of a sample, or of a reference. It lasts as long as the arena.
typedef struct {
    GxBatch b;
    void *block, *host; // what the task's `layout` points into
    int64_t bytes;      // of each
} GxTaskBatch;
// In a task's `allocate`: T positions of B columns. layout: the task's.
void gx_task_batch_allocate(GxContext *g, GxTaskBatch *own, int64_t T, int64_t B,
                            int64_t (*layout)(const void *self, GxBatch *b, void *block, void *host_copy),
                            const void *self);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TASK_IMPLEMENTED)
#define GX_TASK_IMPLEMENTED
#include <string.h>
#include "../comm/comm.h"
#include "../ops/loss.h"
#include "../ops/memory.h"

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

void gx_task_batch_allocate(GxContext *g, GxTaskBatch *own, int64_t T, int64_t B,
                            int64_t (*layout)(const void *self, GxBatch *b, void *block, void *host_copy),
                            const void *self)
{
    memset(own, 0, sizeof *own);
    own->b.T = T, own->b.B = B, own->b.runs = gx_runs_one(T, 0);
    own->bytes = layout(self, &own->b, NULL, NULL);
    own->block = gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, own->bytes);
    own->host = gx_host_copy(g, GX_MEM_ACTIVATIONS, own->block, own->bytes);
    if (!gx_failed(g)) layout(self, &own->b, own->block, own->host);
}

int64_t gx_task_layout_labels(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const int64_t rows = b->T * b->B;
    (void)self;
    b->tokens = (const int32_t *)block;
    b->target[0].labels = block ? b->tokens + rows : NULL;
    b->target[0].labels_host = host_copy ? (const int32_t *)host_copy + rows : NULL;
    return 2 * rows * (int64_t)sizeof(int32_t);
}

void gx_task_count_labels(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const int32_t *labels = gx_target_labels(&b->target[0]);
    (void)self;
    for (int64_t i = 0; i < gx_target_n(b, 0); i++) count[0] += labels[i] != GX_IGNORE_INDEX;
}
#endif
