// health.h: checks the latest step of a run: gradients that are not finite, no labels that count.
//
// A step whose gradients are not finite is skipped: it changes nothing. GX_SKIPPED_MOST such steps in a row, or a run
// of nothing else, are an error, which names the weights that the run began with, or the learning rate, as the cause;
// until then no older checkpoint is removed. The same number of steps without any label that counts is an error, too.
#ifndef GX_HEALTH_H
#define GX_HEALTH_H
#include "session.h"
GX_BEGIN

enum { GX_SKIPPED_MOST = 100 };

// Returns the step as the device left it, and counts it. Waits for the device, once per step. Called on all ranks, so
// that all raise the same error.
const GxStep *gx_read_step(GxSession *s);
void gx_warn_skipped(const GxSession *s); // at the end, if there were any

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_HEALTH_IMPLEMENTED)
#define GX_HEALTH_IMPLEMENTED
#include <stdio.h>

// Non-finite gradients are blamed on the weights: those that the run began with, if no step has changed them since.
static GxStatus gx__health_blame_weights(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxError *err = &s->g->error;
    const char *from = r->resume.folder[0] ? r->resume.folder : r->o.model;
    char all[40] = "the only step";
    if (r->at.skipped > 1) snprintf(all, sizeof all, "all %ld steps", (long)r->at.skipped);
    if (r->at.skipped < r->at.step - r->at.begun)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the gradients of the last %ld steps were not finite, so the weights have not changed since "
                       "step %ld, and further steps would not change them; resume an earlier checkpoint, or start "
                       "again, with a --learning_rate below %g",
                       (long)r->at.skipped_in_a_row, (long)(r->at.step - r->at.skipped_in_a_row), r->o.learning_rate);
    if (from[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the gradients of %s were not finite, because of the weights of %s, not of the learning rate; "
                       "use other weights, such as an earlier checkpoint",
                       all, from);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "the gradients of %s were not finite, because of the initialized model, not of the learning rate; "
                   "change the model's options",
                   all);
}

static void gx__health_count_skipped(GxSession *s)
{
    GxTrainRun *r = s->run;
    if (!s->seen.skip) {
        r->at.skipped_in_a_row = 0;
        return;
    }
    r->at.skipped++, r->at.skipped_in_a_row++;
    if (r->at.skipped_in_a_row == GX_SKIPPED_MOST ||
        (r->at.step == r->o.max_steps && r->at.skipped == r->at.step - r->at.begun))
        gx__health_blame_weights(s);
}

// Data from which nothing is learned, because of masks or documents of one token, would have the loss 0.
static void gx__health_count_unlearned(GxSession *s)
{
    GxTrainRun *r = s->run;
    int64_t labels = 0;
    for (int k = 0; k < GX_MAX_LOSSES; k++) labels += s->seen.labels[k];
    if (labels) r->at.unlearned_in_a_row = 0;
    if (labels) return;
    r->at.unlearned++, r->at.unlearned_in_a_row++;
    if (r->at.unlearned_in_a_row == GX_SKIPPED_MOST ||
        (r->at.step == r->o.max_steps && r->at.unlearned == r->at.step - r->at.begun))
        GX_FAIL(
            &s->g->error, GX_ERR_FORMAT,
            "nothing was learned in the last %ld step%s, because no label counts: a mask excludes them, or documents "
            "have one token each; --show_data 3 shows samples, with the tokens trained on between ⟦ and ⟧",
            (long)r->at.unlearned_in_a_row, gx_text_s(r->at.unlearned_in_a_row));
    else if (r->at.unlearned == 1 && gx_session_is_first(s))
        gx_log(&s->g->log, GX_LOG_WARNING,
               "nothing is learned in step %ld, because no label of its %ld sample%s counts", (long)r->at.step,
               (long)r->o.global_batch_size, gx_text_s(r->o.global_batch_size));
}

const GxStep *gx_read_step(GxSession *s)
{
    if (s->is_seen) return &s->seen;
    gx_to_host(s->g, &s->seen, s->g->step, sizeof s->seen);
    s->is_seen = 1;
    if (!gx_failed(s->g)) gx__health_count_skipped(s);
    if (!gx_failed(s->g)) gx__health_count_unlearned(s);
    return &s->seen;
}

void gx_warn_skipped(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const GxLogger *log = &s->g->log;
    gx_log(log, GX_LOG_WARNING, "%ld of %ld step%s %s skipped, because %s gradients were not finite",
           (long)r->at.skipped, (long)(r->at.step - r->at.begun), gx_text_s(r->at.step - r->at.begun),
           r->at.skipped == 1 ? "was" : "were", r->at.skipped == 1 ? "its" : "their");
    if (!r->at.skipped_in_a_row)
        gx_log(log, GX_LOG_WARNING, "the weights changed in later steps; a --learning_rate below %g is safer",
               r->o.learning_rate);
    else
        gx_log(log, GX_LOG_WARNING,
               "the last %ld among them, so the weights have not changed since step %ld, and may be of no use; resume "
               "an earlier checkpoint, or start again, with a --learning_rate below %g",
               (long)r->at.skipped_in_a_row, (long)(r->at.step - r->at.skipped_in_a_row), r->o.learning_rate);
}
#endif
