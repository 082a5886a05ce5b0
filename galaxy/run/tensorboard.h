// tensorboard.h: --report_to tensorboard: what log.jsonl gets also goes to event files (io/event_file.h), which
// `tensorboard --logdir out` shows.
//
//     out/runs/2026-01-31_23-59-59_host/events.out.tfevents.…
//
// The names are those of Hugging Face's Trainer: train/loss, train/grad_norm, train/learning_rate, train/epoch,
// eval/loss, eval/<metric>; further train/<loss of several>, train/<metric of the task>, train/tokens_per_second,
// train/memory_mb, and the options as a text. A validation of the best weights, which are of another step, has
// eval_best/ for eval/.
//
// A run that goes on writes a new file into the same folder, whose beginning says from which step on earlier files are
// void. What cannot be written is lost, with one warning; the training goes on. Rank 0 alone writes.
#ifndef GX_TENSORBOARD_H
#define GX_TENSORBOARD_H
#include "../io/event_file.h"
#include "metrics.h"
#include "options.h"
GX_BEGIN

typedef struct {
    GxEventFile file; // not open: it is not wanted
    int is_behind;    // 1: something was lost, and a warning said so
} GxTensorboard;

// Which of --report_to's names are there. Refuses others.
GxStatus gx_report_to(const GxTrainOptions *o, int *tensorboard, GxError *err);
// When the output folder is this run's, on rank 0; begun: the step that it goes on behind, 0 of a new one.
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

enum { GX__TENSORBOARD_TAGS = 8 + GX_MAX_LOSSES + GX_MAX_METRICS, GX__TENSORBOARD_TAG = 80 };
typedef struct {
    char tag[GX__TENSORBOARD_TAGS][GX__TENSORBOARD_TAG];
    GxEventScalar scalar[GX__TENSORBOARD_TAGS];
    int n;
} gx__TensorboardScalars;

GxStatus gx_report_to(const GxTrainOptions *o, int *tensorboard, GxError *err)
{
    char name[GX_FIELD_TEXT];
    int names = 0, none = 0;
    *tensorboard = 0;
    for (const char *from = o->report_to; from; from = strchr(from, ','), from = from ? from + 1 : NULL) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(from, ","), from);
        const int is_none = !strcmp(name, "none"), is_tensorboard = !strcmp(name, "tensorboard");
        if (!is_none && !is_tensorboard)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "--report_to is \"%s\", and there is nothing called \"%s\" to report to; expected none, or "
                           "tensorboard (log.jsonl is always written)",
                           o->report_to, name);
        names++, none += is_none, *tensorboard |= is_tensorboard;
    }
    if (none && names > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--report_to is \"%s\", and none stands alone; leave it out",
                       o->report_to);
    return GX_OK;
}

static void gx__tensorboard_warn(GxTensorboard *b, const GxError *lost, const GxLogger *log)
{
    const int is_behind = gx_error_code(lost) != GX_OK;
    if (is_behind && !b->is_behind)
        gx_log(log, GX_LOG_WARNING,
               "%s; the training goes on, and what TensorBoard would show of it is lost until there is room (log.jsonl "
               "has it)",
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

// The options as a block of code in Markdown, of which TensorBoard makes a text: four spaces before each line.
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
    GX_TRY(gx_report_to(o, &wanted, err));
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
#endif
