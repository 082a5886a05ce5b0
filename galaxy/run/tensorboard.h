// tensorboard.h: --report_to tensorboard: writes the contents of log.jsonl also to event files (io/event_file.h), which
// `tensorboard --logdir out` shows.
//
//     out/runs/2026-01-31_23-59-59_host/events.out.tfevents.…
//
// The names are those of Hugging Face's Trainer: train/loss, train/grad_norm, train/learning_rate, train/epoch,
// eval/loss, eval/<metric>; also train/<name> for each of several losses, train/<metric of the task>,
// train/tokens_per_second, train/memory_mb, and the options as a text. A validation of the best weights, which are from
// another step, has eval_best/ instead of eval/.
//
// A resumed run writes a new file to the same folder, whose beginning says from which step on earlier files are void.
// What cannot be written is lost, with one warning; training continues. Only rank 0 writes.
#ifndef GX_TENSORBOARD_H
#define GX_TENSORBOARD_H
#include "../io/event_file.h"
#include "session.h"
GX_BEGIN

typedef struct {
    GxEventFile file; // not open if it is not wanted
    int is_behind;    // 1: something was lost, and a warning said so
} GxTensorboard;

GxStatus gx_tensorboard_watch(GxTrainRun *r, GxError *err); // a watcher

// Called on rank 0, once the output folder belongs to this run. begun: the step after which it resumes; 0: a new run.
GxStatus gx_tensorboard_open(GxTensorboard *b, const GxTrainOptions *o, const GxConfig *c, int64_t begun, GxError *err);
void gx_tensorboard_progress(GxTensorboard *b, const GxProgress *p, const GxLogger *log);
void gx_tensorboard_evaluation(GxTensorboard *b, int64_t step, int64_t weights_of, const GxMetric *metric, int n,
                               const GxLogger *log);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TENSORBOARD_IMPLEMENTED)
#define GX_TENSORBOARD_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../io/config_json.h"

enum { GX__TENSORBOARD_TAGS = 8 + GX_MAX_LOSSES + GX_MAX_METRICS, GX__TENSORBOARD_TAG = 80 };
typedef struct {
    char tag[GX__TENSORBOARD_TAGS][GX__TENSORBOARD_TAG];
    GxEventScalar scalar[GX__TENSORBOARD_TAGS];
    int n;
} gx__TensorboardScalars;

static void gx__tensorboard_warn(GxTensorboard *b, const GxError *lost, const GxLogger *log)
{
    const int is_behind = gx_error_code(lost) != GX_OK;
    if (is_behind && !b->is_behind)
        gx_log(log, GX_LOG_WARNING,
               "%s; the training continues, but TensorBoard will lack these values until there is room (log.jsonl has "
               "them)",
               lost->message);
    b->is_behind |= is_behind;
}

static void gx__tensorboard_put(gx__TensorboardScalars *s, const char *group, const char *name, double value)
{
    if (s->n == GX__TENSORBOARD_TAGS) return;
    snprintf(s->tag[s->n], GX__TENSORBOARD_TAG, "%s/%.60s", group, name);
    s->scalar[s->n].tag = s->tag[s->n], s->scalar[s->n].value = value;
    s->n++;
}

// The options as a block of code in Markdown, four spaces before each line, which TensorBoard shows as text.
static GxStatus gx__tensorboard_options(GxTensorboard *b, const GxConfig *c, int64_t step, GxError *err)
{
    char *json = NULL, *text = NULL;
    int64_t bytes = 0;
    size_t length = 0;
    GxJson *options = gx_config_to_json(c, err);
    if (!options) return gx_error_code(err);
    GxStatus status = gx_json_dump(options, 2, &json, &bytes, err);
    FILE *out = status == GX_OK ? open_memstream(&text, &length) : NULL;
    for (char *line = json; out && *line;) {
        const size_t n = strcspn(line, "\n");
        fprintf(out, "    %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    const int whole = out && !ferror(out);
    if ((!out || fclose(out) != 0 || !whole) && status == GX_OK)
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for the options as a text");
    if (status == GX_OK) status = gx_event_text(&b->file, step, "args/text_summary", text, (int64_t)length, err);
    free(json), free(text);
    gx_json_free(options);
    return status;
}

GxStatus gx_tensorboard_open(GxTensorboard *b, const GxTrainOptions *o, const GxConfig *c, int64_t begun, GxError *err)
{
    char runs[GX_PATH];
    int wanted;
    memset(b, 0, sizeof *b);
    GX_TRY(gx_options_report_to(o, &wanted, err));
    if (!wanted) return GX_OK;
    GX_TRY(gx_path_join(runs, o->output_dir, "runs", err));
    GX_TRY(gx_event_file_open(&b->file, runs, err));
    GX_TRY(gx_event_start(&b->file, begun + 1, err));
    return gx__tensorboard_options(b, c, begun, err);
}

void gx_tensorboard_progress(GxTensorboard *b, const GxProgress *p, const GxLogger *log)
{
    gx__TensorboardScalars s;
    GxError lost = GX_ZERO;
    s.n = 0;
    gx__tensorboard_put(&s, "train", "loss", p->loss);
    for (int k = 0; k < p->losses && p->loss_names; k++) gx__tensorboard_put(&s, "train", p->loss_names[k], p->each[k]);
    for (int k = 0; k < p->metrics; k++) gx__tensorboard_put(&s, "train", p->metric[k].name, p->metric[k].value);
    gx__tensorboard_put(&s, "train", "grad_norm", p->grad_norm);
    gx__tensorboard_put(&s, "train", "learning_rate", p->lr);
    if (p->epoch > 0) gx__tensorboard_put(&s, "train", "epoch", p->epoch);
    gx__tensorboard_put(&s, "train", "tokens_per_second", p->tokens_per_s);
    gx__tensorboard_put(&s, "train", "memory_mb", p->memory_mb);
    gx_event_scalars(&b->file, p->step, s.scalar, s.n, &lost);
    gx__tensorboard_warn(b, &lost, log);
}

void gx_tensorboard_evaluation(GxTensorboard *b, int64_t step, int64_t weights_of, const GxMetric *metric, int n,
                               const GxLogger *log)
{
    gx__TensorboardScalars s;
    GxError lost = GX_ZERO;
    s.n = 0;
    for (int i = 0; i < n; i++)
        gx__tensorboard_put(&s, weights_of == step ? "eval" : "eval_best", metric[i].name, metric[i].value);
    gx_event_scalars(&b->file, step, s.scalar, s.n, &lost);
    gx__tensorboard_warn(b, &lost, log);
}

// ---- as a watcher --------------------------------------------------------------------------------------------------

static void gx__tensorboard_opened(void *self, GxSession *s)
{
    GxTensorboard *b = (GxTensorboard *)self;
    GxTrainRun *r = s->run;
    if (!gx_session_is_first(s) || gx_options_is_inference(&r->o) || b->file.is_open) return;
    gx_tensorboard_open(b, &r->o, &r->config, r->at.step, &s->g->error);
}

static void gx__tensorboard_logged(void *self, GxSession *s, const GxProgress *line)
{
    gx_tensorboard_progress((GxTensorboard *)self, line, &s->g->log);
}

static void gx__tensorboard_validated(void *self, GxSession *s, const GxValidation *v)
{
    const GxTrainRun *r = s->run;
    if (!gx_session_is_first(s)) return;
    gx_tensorboard_evaluation((GxTensorboard *)self, r->at.step, r->weights_step ? r->weights_step : r->at.step,
                              v->metric, v->metrics, &s->g->log);
}

static void gx__tensorboard_closed(void *self, GxSession *s)
{
    (void)s;
    gx_event_file_close(&((GxTensorboard *)self)->file);
}

GxStatus gx_tensorboard_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(GxTensorboard), err);
    if (!w) return gx_error_code(err);
    w->opened = gx__tensorboard_opened, w->logged = gx__tensorboard_logged;
    w->validated = gx__tensorboard_validated, w->closed = gx__tensorboard_closed;
    return GX_OK;
}
#endif
