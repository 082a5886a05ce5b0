// metrics.h: what a run measures: the figures of a progress line, and how metrics and durations are formatted for
// people. They are used in report.h (lines), run_log.h (log.jsonl) and tensorboard.h (event files).
#ifndef GX_METRICS_H
#define GX_METRICS_H
#include "../task/task.h"
#include <stdio.h>
GX_BEGIN

typedef struct {
    int64_t step, steps; // steps: max_steps
    double loss, grad_norm, lr;
    double tokens_per_s, gflops; // 0: not known yet; tokens of texts, without padding
    double memory_mb, card_mb;   // of the process; in use on this rank's card, by all processes (0: no card)
    double seconds_left;
    int skipped; // 1: gradients were not finite
    // the losses that `loss` is the sum of, if there are several and they have names; otherwise NULL, 0
    const char *const *loss_names;
    int losses;
    double each[GX_MAX_LOSSES];
    int metrics; // further metrics of the task, of the training samples
    GxMetric metric[GX_MAX_METRICS];
    double padding; // its fraction of all rows
    double epoch;   // epochs so far; 0: unknown
} GxProgress;

const char *gx_duration_text(double seconds, char text[32]); // "1m12s"
// Formats a metric for people: "loss 1.5000". A value of more than seven digits before the point becomes "loss
// 1.235e+30", any NaN "loss nan".
enum { GX_METRIC_TEXT = 200 };
const char *gx_metric_text(const char *format, double value, char text[GX_METRIC_TEXT]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_METRICS_IMPLEMENTED)
#define GX_METRICS_IMPLEMENTED
#include <math.h>
#include <string.h>

const char *gx_duration_text(double seconds, char text[32])
{
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600) snprintf(text, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else if (s >= 60) snprintf(text, 32, "%ldm%02lds", s / 60, s % 60);
    else snprintf(text, 32, "%lds", s);
    return text;
}

// Finds the conversion in a format, from its % through its letter; *n: its length.
static const char *gx__metrics_conversion(const char *format, size_t *n)
{
    const char *at = strchr(format, '%');
    while (at && at[1] == '%') at = strchr(at + 2, '%');
    *n = at ? strcspn(at, "feg") + 1 : 0;
    return at;
}

const char *gx_metric_text(const char *format, double value, char text[GX_METRIC_TEXT])
{
    char shorter[GX_METRIC_TEXT];
    size_t n;
    const char *at = gx__metrics_conversion(format, &n);
    if (at && fabs(value) >= 1e7) {
        snprintf(shorter, sizeof shorter, "%.*s%%.4g%s", (int)(at - format), format, at + n);
        format = shorter;
    }
    snprintf(text, GX_METRIC_TEXT, format, isnan(value) ? NAN : value);
    return text;
}
#endif
