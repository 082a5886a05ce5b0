// show.h: shows what the model does: a sample, its confusions, predictions; also for --evaluate, --predict and
// --sample_only, which do so instead of training.
#ifndef GX_SHOW_H
#define GX_SHOW_H
#include "session.h"
GX_BEGIN

void gx_show(GxSession *s); // a validation, predictions, a sample, by the options; sets run->done
void gx_show_written(GxSession *s);
// Prints the confusion matrix of the last validation; with `draws` also writes output_dir/confusion.svg.
void gx_show_confusion(GxSession *s, int draws);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SHOW_IMPLEMENTED)
#define GX_SHOW_IMPLEMENTED
#include <stdlib.h>
#include "../comm/comm.h"
#include "evaluate.h"
#include "plot_confusion.h"
#include "report.h"
#include "reporter.h"
#include "stopping.h"

void gx_show_written(GxSession *s)
{
    GxTrainRun *r = s->run;
    const GxForward forward = gx_stopping_forward(s);
    char *text = r->task->output.sample(s->g, r->self, &forward, (uint64_t)r->o.seed);
    if (text) gx_report_sample(s, text);
    free(text);
}

void gx_show_confusion(GxSession *s, int draws)
{
    GxTrainRun *r = s->run;
    char svg[GX_PATH], title[200];
    GxError disk = GX_ZERO;
    GxConfusion c = GX_ZERO;
    if (!r->task->metrics.confusion || !r->task->metrics.confusion(r->self, &c)) return;
    gx_report_confusion(s, &c);
    if (!draws) return;
    snprintf(title, sizeof title, "%s, step %ld, held-out %s", r->family->name, (long)r->at.step,
             r->task->loss.counted);
    gx_path_join(svg, r->o.output_dir, "confusion.svg", &disk);
    if (gx_error_code(&disk) || gx_plot_confusion(c.count, c.classes, c.name, svg, title, &disk) != GX_OK)
        gx_log(&s->g->log, GX_LOG_WARNING, "the confusions could not be drawn: %s", disk.message);
}

// Writes predictions, after a validation of the file's samples or, without labels, after only running the model on
// them.
static void gx__show_predict(GxSession *s)
{
    GxTrainRun *r = s->run;
    GxLosses losses;
    GxMetric metric[GX_MAX_METRICS] = GX_ZERO;
    gx_evaluate(s, 0, &losses);
    if (gx_failed(s->g) || r->stop) return;
    const int n = r->task->metrics.compute(s->g, r->self, &losses, metric);
    const char *path = !gx_failed(s->g) && gx_session_is_first(s) ? r->task->output.predict(s->g, r->self) : NULL;
    gx_barrier(s->g, GX_AXIS_ALL); // on a failed context this tells the other ranks
    if (gx_failed(s->g) || !path) return;
    if (n) gx_report_evaluation(s, metric, n, losses.count[0]);
    gx_report(s->g, "saved %s\n", path);
}

void gx_show(GxSession *s)
{
    GxTrainRun *r = s->run;
    if (gx_prepare(s) != GX_OK) return;
    gx_watchers_opened(&r->watchers, s, &s->g->error);
    if (gx_failed(s->g)) return;
    if (r->o.predicts && !r->stop) gx__show_predict(s);
    // a resumed run's value is about its own validations
    const int64_t samples = gx_config_is_set(&r->config, "max_eval_samples") ? gx_options_eval_samples(&r->o, 1) : 0;
    if (r->o.evaluate && !r->o.predicts && !r->stop) gx_validate(s, samples, 1);
    if ((r->o.evaluate || r->o.predicts) && !r->stop && !gx_failed(s->g) && gx_session_is_first(s))
        gx_show_confusion(s, 0);
    if (r->o.sample_only && !r->stop && r->task->output.sample) gx_show_written(s);
    if (r->stop) gx_fail_without_data(s);
    r->done = 1;
}
#endif
