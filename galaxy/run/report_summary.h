// report_summary.h: what a training run prints at its end.
#ifndef GX_REPORT_SUMMARY_H
#define GX_REPORT_SUMMARY_H
#include "session.h"
GX_BEGIN

void gx_report_curve(const GxSession *s, const char *svg); // for a run that was stopped
// Five or six lines for a run that has ended, after all its steps or early: how long it took, how good the model is,
// the memory used, where the files are.
void gx_report_summary(const GxSession *s, const char *svg);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REPORT_SUMMARY_IMPLEMENTED)
#define GX_REPORT_SUMMARY_IMPLEMENTED
#include <string.h>
#include "best.h"
#include "output.h"
#include "process_memory.h"
#include "report.h"
#include "reporter.h"

void gx_report_curve(const GxSession *s, const char *svg)
{
    gx_report(s->g, "loss curve: %s\nlog: %s\n", svg, s->run->log_path);
}

// "done: 500 steps in 1m12s, 1.02M tokens, 17,800 tokens/s in training"; a resumed run: "500 steps, the last 100 in";
// with padding, which does not count as tokens: "880k tokens and 14.1% padding".
static void gx__report_summary_done(FILE *out, const GxTrainRun *r)
{
    char took[32], tokens[32], rate[40], padding[40] = "";
    const int64_t steps = r->at.step - r->at.begun;
    const int64_t rows = steps * r->o.global_batch_size * r->o.seq_len;
    const double n = (double)(rows - r->clock.padding);
    if (r->clock.padding > 0)
        snprintf(padding, sizeof padding, " and %.1f%% padding", 100 * (double)r->clock.padding / (double)rows);
    fprintf(out, "done: %ld step%s", (long)r->at.step, gx_text_s(r->at.step));
    if (!steps) fprintf(out, ", none of them now\n");
    if (!steps) return;
    if (r->at.begun) fprintf(out, ", the last %ld", (long)steps);
    fprintf(out, " in %s, %s token%s%s, %s tokens/s in training\n",
            gx_duration_text(gx_seconds() - r->clock.opened, took), gx_report_rate(n, tokens), n == 1 ? "" : "s",
            padding, gx_text_grouped(n / r->clock.training_seconds, rate));
}

// Means over different samples are not compared: validations during the run are over max_eval_samples, the last one
// over all samples.
static void gx__report_summary_best(FILE *out, const GxTrainRun *r)
{
    const GxMetric *last = &r->validation.metric[0];
    char text[GX_METRIC_TEXT];
    GxBestEvaluation best;
    GxError ignored = GX_ZERO; // if the log is gone by now, the line is left out
    if (gx_log_best(r->log_path, last->name, r->task->loss.counted, r->at.step, &best, &ignored) != GX_OK ||
        best.step < 0)
        return;
    if (best.count != r->validation.count) fprintf(out, "; before, the best was ");
    else if (best.value < last->value) fprintf(out, "; the best was ");
    else {
        fprintf(out, ", the best");
        return;
    }
    fprintf(out, "%s at step %ld", gx_metric_text(last->format, best.value, text), (long)best.step);
    if (best.count > 0 && best.count != r->validation.count)
        fprintf(out, " over %s", gx_report_counted(r, best.count, text));
}

// "validation loss 1.5103 (2.179 bits per byte) over 16384 tokens; the best was loss 1.5010 at step 400"
static void gx__report_summary_validated(FILE *out, const GxTrainRun *r)
{
    char text[GX_METRIC_TEXT];
    if (!r->validation.metrics) return;
    for (int i = 0; i < r->validation.metrics; i++)
        fprintf(out, "%s%s",
                i == 0   ? "validation "
                : i == 1 ? " ("
                         : ", ",
                gx_metric_text(r->validation.metric[i].format, r->validation.metric[i].value, text));
    fprintf(out, "%s over %s", r->validation.metrics > 1 ? ")" : "", gx_report_counted(r, r->validation.count, text));
    if (r->weights_step) fprintf(out, ", of the best weights");
    else if (!strcmp(r->validation.metric[0].name, "loss") && !r->best.step) gx__report_summary_best(out, r);
    fprintf(out, "\n");
}

// "the best on the way: loss 1.2500 at step 400, out/checkpoint-400"
static void gx__report_summary_kept(FILE *out, const GxTrainRun *r)
{
    char text[GX_METRIC_TEXT], folder[GX_PATH] = "";
    GxError ignored = GX_ZERO; // it was saved there
    if (!r->best.step) return;
    fprintf(out, "the best on the way: %s at step %ld", gx_best_text(r, text), (long)r->best.step);
    if (r->best.checkpoint[0] && gx_best_folder(r, folder, &ignored) == GX_OK) fprintf(out, ", %s", folder);
    fprintf(out, "\n");
}

void gx_report_summary(const GxSession *s, const char *svg)
{
    GxReport r;
    char folder[GX_PATH] = "";
    GxError ignored = GX_ZERO; // it was saved there
    gx_report_begin(&r, s->g);
    if (!r.out) return;
    gx_checkpoint_path(folder, s->run->o.output_dir, s->run->at.saved, &ignored);
    gx__report_summary_done(r.out, s->run);
    gx__report_summary_validated(r.out, s->run);
    gx__report_summary_kept(r.out, s->run);
    const int64_t peak = gx_process_peak_memory();
    const int in_file = s->plan.in_file != 0;
    fprintf(r.out, "peak memory%s %.0f MB%s, planned %.0f MB%s%s\n",
            s->g->world > 1 && s->plan.ranks_here == 1 ? " of rank 0" : "", (double)peak / 1e6,
            in_file ? " with pages of --offload_dir" : "", (double)gx_plan_total(&s->plan) / 1e6,
            in_file ? " without them" : "",
            peak > s->plan.peak_before ? "" : " for training;\n  the peak was earlier, when the data were opened");
    const char *last = s->run->at.saved > s->run->at.begun ? folder : s->run->resume.folder;
    fprintf(r.out, "checkpoint: %s\nloss curve: %s, log: %s\n", *last ? last : "none", svg, s->run->log_path);
    gx_report_end(&r, s->g);
}
#endif
