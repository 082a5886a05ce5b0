// epochs.h: the length of a run and of its warm-up: in steps, or, as in Hugging Face's TrainingArguments, in epochs and
// as a fraction.
//
//     --num_train_epochs X   max_steps = ceil(X * samples of an epoch / samples per step)
//     --warmup_ratio X       warmup_steps = ceil(X * max_steps)
//
// The task defines how many samples an epoch has (GxTaskSetup.epoch_samples), over all sources of data together,
// whatever their weights. Epochs need not end with a step: the last step may go beyond the last epoch.
//
// If both ways are given, a flag has precedence over a file and the resumed run, and a file over the resumed run.
// Giving both as flags is an error. Within one file, and within the resumed run, epochs and ratio have precedence,
// since training_args.json always contains the resulting steps, too; if those of a file differ, there is a warning.
//
// A resumed run counts the samples that it has seen, so that its epochs stay the same with another global batch.
#ifndef GX_EPOCHS_H
#define GX_EPOCHS_H
#include "../base/log.h"
#include "options.h"
GX_BEGIN

typedef struct { // how far a run is
    int64_t step, samples;
} GxEpochsBegun;

// Called when the options are known, including the resumed run's: sets epochs and ratio to 0 if they are overridden.
GxStatus gx_epochs_choose(GxTrainOptions *o, const GxConfig *c, GxError *err);
// Called when the data are open and the batch is known: sets max_steps and warmup_steps. epoch_samples 0: the task does
// not know, or, in a dry run, the data are not open; max_steps is then not changed. log: of rank 0, otherwise NULL.
GxStatus gx_epochs_resolve(GxTrainOptions *o, const GxConfig *c, int64_t epoch_samples, GxEpochsBegun begun,
                           const GxLogger *log, GxError *err);
// The number of epochs in `samples`; 0 if the samples of an epoch are unknown.
static inline double gx_epochs_of(int64_t samples, int64_t epoch_samples)
{
    return epoch_samples > 0 ? (double)samples / (double)epoch_samples : 0;
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EPOCHS_IMPLEMENTED)
#define GX_EPOCHS_IMPLEMENTED
#include <math.h>

static GxStatus gx__epochs_choose(const GxConfig *c, const char *steps, const char *share, double *value, GxError *err)
{
    const GxOptionSource by_steps = gx_config_source(c, steps), by_share = gx_config_source(c, share);
    if (*value <= 0) return GX_OK;
    if (by_steps == GX_FROM_FLAG && by_share == GX_FROM_FLAG)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s and --%s are both given, but each determines the other; leave one of them out", steps,
                       share);
    if (by_steps > by_share) *value = 0;
    return GX_OK;
}

GxStatus gx_epochs_choose(GxTrainOptions *o, const GxConfig *c, GxError *err)
{
    GX_TRY(gx__epochs_choose(c, "max_steps", "num_train_epochs", &o->num_train_epochs, err));
    return gx__epochs_choose(c, "warmup_steps", "warmup_ratio", &o->warmup_ratio, err);
}

// Warns if a file has both and they differ.
static void gx__epochs_warn(const GxConfig *c, const char *steps, int64_t said, const char *share, double value,
                            int64_t now, const GxLogger *log)
{
    if (!log || said == now || gx_config_source(c, steps) != GX_FROM_FILE || gx_config_source(c, share) != GX_FROM_FILE)
        return;
    gx_log(log, GX_LOG_WARNING,
           "%s has \"%s\": %ld and \"%s\": %.15g, which is %ld here; the latter is used; to use the former, leave the "
           "latter out",
           c->file, steps, (long)said, share, value, (long)now);
}

// ceil(x), where x has the rounding error of a product and a quotient: 1.1 * 100 / 10 is 11.
static double gx__epochs_ceil(double x)
{
    const double nearest = round(x);
    return fabs(x - nearest) <= 4e-16 * fabs(x) ? nearest : ceil(x);
}

static GxStatus gx__epochs_resolve_steps(GxTrainOptions *o, const GxConfig *c, int64_t epoch_samples,
                                         GxEpochsBegun begun, const GxLogger *log, GxError *err)
{
    const int64_t said = o->max_steps;
    if (o->num_train_epochs <= 0 || (o->dry_run && epoch_samples < 1)) return GX_OK;
    if (epoch_samples < 1)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "--num_train_epochs %g: this task does not say how many samples an epoch has; use --max_steps",
                       o->num_train_epochs);
    const double left = o->num_train_epochs * (double)epoch_samples - (double)begun.samples,
                 steps = (double)begun.step + gx__epochs_ceil(left / (double)o->global_batch_size);
    if (steps > 9e15)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--num_train_epochs %g: that is %.3g steps of %ld samples, which is too many",
                       o->num_train_epochs, steps, (long)o->global_batch_size);
    o->max_steps = (int64_t)steps;
    gx__epochs_warn(c, "max_steps", said, "num_train_epochs", o->num_train_epochs, o->max_steps, log);
    return GX_OK;
}

GxStatus gx_epochs_resolve(GxTrainOptions *o, const GxConfig *c, int64_t epoch_samples, GxEpochsBegun begun,
                           const GxLogger *log, GxError *err)
{
    const int64_t said = o->warmup_steps;
    GX_TRY(gx__epochs_resolve_steps(o, c, epoch_samples, begun, log, err));
    if (o->warmup_ratio > 0) o->warmup_steps = (int64_t)ceil(o->warmup_ratio * (double)o->max_steps);
    else if (gx_config_source(c, "warmup_steps") == GX_FROM_DEFAULT)
        o->warmup_steps = gx_min(o->warmup_steps, o->max_steps / 5);
    if (o->warmup_ratio > 0)
        gx__epochs_warn(c, "warmup_steps", said, "warmup_ratio", o->warmup_ratio, o->warmup_steps, log);
    return GX_OK;
}
#endif
