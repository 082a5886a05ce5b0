// report.h: the lines that a training run prints for people while it runs: what it resumes from, progress, validations.
// They go to the context's reporter (reporter.h), on rank 0. The lines at the start are in report_start.h, those at the
// end in report_summary.h. Programs read log.jsonl (run_log.h), not these lines.
#ifndef GX_REPORT_H
#define GX_REPORT_H
#include "session.h"
GX_BEGIN

typedef struct GxWeightsLoaded GxWeightsLoaded; // checkpoint_load.h

GxStatus gx_report_watch(GxTrainRun *r, GxError *err); // a watcher: progress and validations

void gx_report_resumed(const GxSession *s, const char *changes); // changes: of the options; "": none
void gx_report_weights(const GxSession *s,
                       const GxWeightsLoaded *w); // for --model: which tensors differ from the folder's
void gx_report_abandoned(const GxSession *s, int checkpoints, int64_t lines); // silent if both are 0
void gx_report_baseline(const GxSession *s, const GxMetric *metric);
void gx_report_progress(const GxSession *s, const GxProgress *p);
void gx_report_evaluation(const GxSession *s, const GxMetric *metric, int n, int64_t count);
void gx_report_confusion(const GxSession *s, const GxConfusion *c);
void gx_report_stopped_early(const GxSession *s); // prints nothing if it did not, or did before it was resumed
void gx_report_sample(const GxSession *s, const char *text); // not wrapped

// "987", "17.8k", "1.78M": three digits of a number of at least 0.
const char *gx_report_rate(double x, char text[32]);
// "160 tokens", "1 pair": in the task's unit
const char *gx_report_counted(const GxTrainRun *r, int64_t count, char text[GX_METRIC_TEXT]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REPORT_IMPLEMENTED)
#define GX_REPORT_IMPLEMENTED
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include "best.h"
#include "checkpoint_load.h"
#include "output.h"
#include "reporter.h"

void gx_report_resumed(const GxSession *s, const char *changes)
{
    const GxResume *r = &s->run->resume;
    if (r->folder[0])
        gx_report(s->g, "resumed from %s: step %ld, %ld sample%s seen\n", r->folder, (long)s->run->at.step,
                  (long)s->run->at.samples, gx_text_s(s->run->at.samples));
    if (changes[0]) gx_report(s->g, "  changed since then: %s\n", changes);
}

void gx_report_weights(const GxSession *s, const GxWeightsLoaded *w)
{
    const GxTrainRun *r = s->run;
    if (w->reinitialised.n)
        gx_report(s->g, "  newly initialized instead of those in %s%s: %s\n", r->o.model,
                  r->o.ignore_mismatched_sizes ? " (--ignore_mismatched_sizes)" : ", which are of another head",
                  w->reinitialised.text);
    if (w->missing.n) gx_report(s->g, "  newly initialized, not in %s: %s\n", r->o.model, w->missing.text);
    if (w->mismatched.n)
        gx_report(s->g, "  newly initialized, of another shape in %s: %s\n", r->o.model, w->mismatched.text);
    if (w->unexpected.n) gx_report(s->g, "  not needed from %s: %s\n", r->o.model, w->unexpected.text);
}

void gx_report_abandoned(const GxSession *s, int checkpoints, int64_t lines)
{
    const GxTrainRun *r = s->run;
    if (!checkpoints && !lines) return;
    gx_report(s->g, "  moved to %s/%s what the run had after step %ld: %d checkpoint%s, %ld line%s of the log\n",
              r->o.output_dir, GX_ABANDONED, (long)r->at.step, checkpoints, gx_text_s(checkpoints), (long)lines,
              gx_text_s(lines));
}

void gx_report_baseline(const GxSession *s, const GxMetric *metric)
{
    char text[GX_METRIC_TEXT];
    gx_report(s->g, "  %s\n", gx_metric_text(metric->format, metric->value, text));
}

// ---- progress ------------------------------------------------------------------------------------------------------

// "5.5451": as many digits as fit into `width` columns; "1e+09" where none do.
static const char *gx__report_number(double x, int width, char text[32])
{
    if (isnan(x)) x = NAN; // whatever its sign
    for (int digits = width - 2; digits >= 0; digits--)
        if (snprintf(text, 32, "%.*f", digits, x) <= width) return text;
    snprintf(text, 32, "%.0e", x);
    return text;
}

const char *gx_report_rate(double x, char text[32])
{
    const char *const unit[] = {"", "k", "M", "G", "T"};
    int u = 0;
    for (; x >= 999.5 && u < 4; u++) x /= 1000;
    snprintf(text, 32, "%.*f%s", u == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2, x, unit[u]);
    return text;
}

enum { GX__REPORT_FIELDS = 10 };
typedef struct {
    char text[GX__REPORT_FIELDS][80]; // in their order on the line; "": left out
    int weight[GX__REPORT_FIELDS];    // the lightest are left out first
    int n;
} gx__ReportLine;

static void gx__report_field(gx__ReportLine *l, int weight, const char *format, ...) GX_PRINTF(3, 4);
static void gx__report_field(gx__ReportLine *l, int weight, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->text[l->n], sizeof l->text[0], format, args);
    va_end(args);
    l->weight[l->n++] = weight;
}

// Leaves out the lightest field until the line has at most `columns`.
static void gx__report_fit(gx__ReportLine *l, int columns)
{
    for (int left = l->n; left > 1; left--) {
        int width = -2, lightest = 0;
        for (int i = 0; i < l->n; i++) {
            if (!l->text[i][0]) continue;
            width += 2 + (int)strlen(l->text[i]);
            if (!l->text[lightest][0] || l->weight[i] < l->weight[lightest]) lightest = i;
        }
        if (width <= columns) return;
        l->text[lightest][0] = 0;
    }
}

// "step     1/500  epoch 0.016  loss 5.5451  norm 1.234  lr 1.00e-4  17.8k tok/s   1m12s left  1.23k GFLOP/s  123 MB"
// Fields are always equally wide, so that all lines of a run have the same fields.
static void gx__report_progress_fields(gx__ReportLine *l, const GxProgress *p, int by_epochs)
{
    char text[32], lr[32];
    gx__report_field(l, 11, "step %5ld/%ld", (long)p->step, (long)p->steps);
    if (p->epoch > 0) gx__report_field(l, by_epochs ? 5 : 3, "epoch %5s", gx__report_number(p->epoch, 5, text));
    gx__report_field(l, 10, "loss %6s", gx__report_number(p->loss, 6, text));
    snprintf(lr, sizeof lr, "%.2e", p->lr); // 1.00e-04 becomes 1.00e-4, 1.23e-12 becomes 1.2e-12
    if (lr[6] == '0') memmove(lr + 6, lr + 7, strlen(lr + 6));
    else snprintf(lr, sizeof lr, "%.1e", p->lr);
    if (p->skipped) gx__report_field(l, 9, "skipped: gradients are not finite");
    else {
        gx__report_field(l, 8, "norm %5s", gx__report_number(p->grad_norm, 5, text));
        gx__report_field(l, 4, "lr %7s", lr);
    }
    gx__report_field(l, 6, "%5s tok/s", gx_report_rate(p->tokens_per_s, text));
    gx__report_field(l, 7, "%6s left", gx_duration_text(p->seconds_left, text));
    gx__report_field(l, 2, "%5s GFLOP/s", gx_report_rate(p->gflops, text));
    gx__report_field(l, 1, "%6.0f MB", p->memory_mb);
    if (p->card_mb > 0) gx__report_field(l, 0, "card %6.0f MB", p->card_mb);
}

void gx_report_progress(const GxSession *s, const GxProgress *p)
{
    GxReport r;
    gx__ReportLine line = GX_ZERO;
    gx_report_begin(&r, s->g);
    if (!r.out) return;
    gx__report_progress_fields(&line, p, s->run->o.num_train_epochs > 0);
    gx__report_fit(&line, gx_report_columns(s->g));
    for (int i = 0; i < line.n; i++)
        if (line.text[i][0]) fprintf(r.out, "%s%s", i ? "  " : "", line.text[i]);
    fprintf(r.out, "\n");
    gx_report_end(&r, s->g);
}

// ---- validations ---------------------------------------------------------------------------------------------------

const char *gx_report_counted(const GxTrainRun *r, int64_t count, char text[GX_METRIC_TEXT])
{
    const char *counted = r->task->loss.counted;
    const int n = (int)strlen(counted);
    snprintf(text, GX_METRIC_TEXT, "%ld %.*s", (long)count, n - (count == 1 && n > 0 && counted[n - 1] == 's'),
             counted);
    return text;
}

// "step    20 | validation loss 1.5000 | 2.164 bits per byte over 160 tokens"; if the best weights were loaded at the
// end: "step    10, the best | validation ..."
void gx_report_evaluation(const GxSession *s, const GxMetric *metric, int n, int64_t count)
{
    GxReport r;
    char text[GX_METRIC_TEXT];
    gx_report_begin(&r, s->g);
    if (!r.out) return;
    if (s->run->weights_step) fprintf(r.out, "step %5ld, the best", (long)s->run->weights_step);
    else fprintf(r.out, "step %5ld", (long)s->run->at.step);
    for (int i = 0; i < n; i++)
        fprintf(r.out, "%s%s", i ? " | " : " | validation ", gx_metric_text(metric[i].format, metric[i].value, text));
    fprintf(r.out, " over %s\n", gx_report_counted(s->run, count, text));
    gx_report_end(&r, s->g);
}

void gx_report_confusion(const GxSession *s, const GxConfusion *c)
{
    GxReport r;
    char line[GX_CONFUSION_LINE];
    gx_report_begin(&r, s->g);
    if (!r.out) return;
    for (int k = 0; gx_confusion_line(line, sizeof line, c->count, c->classes, c->name, k); k++)
        fprintf(r.out, "%s\n", line);
    gx_report_end_as_is(&r, s->g);
}

void gx_report_stopped_early(const GxSession *s)
{
    const GxTrainRun *r = s->run;
    char why[300];
    if (gx_run_stops_early(r) && r->at.step > r->at.begun)
        gx_report(s->g, "stopped early after step %ld of %ld: %s\n", (long)r->at.step, (long)r->o.max_steps,
                  gx_best_reason(r, why));
}

void gx_report_sample(const GxSession *s, const char *text)
{
    GxReport r;
    gx_report_begin(&r, s->g);
    if (r.out) fprintf(r.out, "sample:\n%s\n", text);
    gx_report_end_as_is(&r, s->g);
}

static void gx__report_logged(void *self, GxSession *s, const GxProgress *line)
{
    (void)self;
    gx_report_progress(s, line);
}

static void gx__report_validated(void *self, GxSession *s, const GxValidation *v)
{
    (void)self;
    if (gx_session_is_first(s)) gx_report_evaluation(s, v->metric, v->metrics, v->count);
}

GxStatus gx_report_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, 0, err);
    if (w) w->logged = gx__report_logged, w->validated = gx__report_validated;
    return gx_error_code(err);
}
#endif
