// report.h: what a run says on its way: the start, the plan, progress, validations, what was saved, the sample. All of
// it, and nothing else, goes to the context's reporter, on rank 0. (Warnings and errors go to the logger: base/log.h.)
//
//     static void to_window(void *user, const char *text) { ... }
//     GxReporter reporter = {to_window, window};
//     g->reporter = &reporter;                      // gx_launch installs one that writes to stdout
//     gx_report(g, "saved %s\n", folder);
//
// Without a reporter a run is silent. What programs read is log.jsonl (metrics.h), not these lines.
#ifndef GX_REPORT_H
#define GX_REPORT_H
#include "../base/context.h"
#include "metrics.h"
#include <stdio.h>
GX_BEGIN

struct GxReporter {
    void (*write)(void *user, const char *text); // one or more whole lines, each with its newline
    void *user;
};

void gx_report(GxContext *g, const char *format, ...) GX_PRINTF(2, 3); // of any length

// For text that is put together piece by piece: fprintf(r.out, ...) where r.out is not NULL, which it is on other ranks
// and without a reporter; the reporter gets all of it at the end.
typedef struct {
    FILE *out;
    char *text;
    size_t bytes;
} GxReport;
void gx_report_begin(GxReport *r, GxContext *g);
void gx_report_end(GxReport *r, GxContext *g);

typedef struct GxTrainer GxTrainer; // trainer.h

void gx_report_help(const GxTrainer *t, const char *program);
void gx_report_start(const GxTrainer *t);                        // device, model, data, options, steps, plan
void gx_report_resumed(const GxTrainer *t, const char *changes); // of the options; "": none
void gx_report_set_apart(const GxTrainer *t, int checkpoints, int64_t lines); // 0 and 0: nothing is said
void gx_report_baseline(const GxTrainer *t, const GxMetric *metric);
void gx_report_progress(const GxTrainer *t, const GxProgress *p);
void gx_report_evaluation(const GxTrainer *t, const GxMetric *metric, int n, int64_t count);
void gx_report_saved(const GxTrainer *t, const char *folder);
void gx_report_sample(const GxTrainer *t, const char *text);
void gx_report_curve(const GxTrainer *t, const char *svg);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REPORT_IMPLEMENTED)
#define GX_REPORT_IMPLEMENTED
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "output.h"
#include "trainer.h"

// ---- the reporter --------------------------------------------------------------------------------------------------

static void gx__report_no_memory(GxContext *g) { GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a line of text"); }

void gx_report_begin(GxReport *r, GxContext *g)
{
    memset(r, 0, sizeof *r);
    if (g->rank != 0 || !g->reporter || !g->reporter->write) return;
    r->out = open_memstream(&r->text, &r->bytes);
    if (!r->out) gx__report_no_memory(g);
}

void gx_report_end(GxReport *r, GxContext *g)
{
    if (!r->out) return;
    const int whole = !ferror(r->out);
    if (fclose(r->out) == 0 && whole) g->reporter->write(g->reporter->user, r->text);
    else gx__report_no_memory(g);
    free(r->text);
}

void gx_report(GxContext *g, const char *format, ...)
{
    GxReport r;
    va_list args;
    gx_report_begin(&r, g);
    va_start(args, format);
    if (r.out) vfprintf(r.out, format, args);
    va_end(args);
    gx_report_end(&r, g);
}

// ---- the start -----------------------------------------------------------------------------------------------------

void gx_report_help(const GxTrainer *t, const char *program)
{
    GxReport r;
    gx_report_begin(&r, t->g);
    if (r.out) fprintf(r.out, "usage: %s [--config file.json] [--option value ...]\n\n", program);
    if (r.out) gx_config_help(&t->config, r.out);
    gx_report_end(&r, t->g);
}

// "serial", "dp", "tp 2", "galaxy 2 x dp 2", "composed 2 (ATT TP, CON None, MLP SP, ends TP)"
static void gx__report_mode_text(const GxTrainer *t, char text[100])
{
    const GxMethods m = t->mode->methods;
    const int tp = gx_mesh_size(&t->mesh, GX_AXIS_TP), dp = gx_mesh_size(&t->mesh, GX_AXIS_DP);
    if (!gx_methods_split(m)) snprintf(text, 100, "%s", dp > 1 ? "dp" : t->mode->name);
    else if (dp > 1) snprintf(text, 100, "%s %d x dp %d", t->mode->name, tp, dp);
    else snprintf(text, 100, "%s %d", t->mode->name, tp);
    char methods[60];
    const size_t end = strlen(text);
    gx_methods_text(m, methods, sizeof methods);
    if (gx_methods_split(m) && !strcmp(t->mode->name, "composed")) snprintf(text + end, 100 - end, " (%s)", methods);
}

static void gx__report_device(FILE *out, const GxContext *g)
{
    char device[300], engine[64] = "";
    g->device->describe(device, sizeof device);
    const char *on_cards = g->device->shares_host_memory       ? ""
                           : g->comm && g->comm->device_engine ? ", nccl"
                                                               : ", cards through the host";
    if (g->comm && g->comm->engine) snprintf(engine, sizeof engine, " (%s%s)", g->comm->engine->name, on_cards);
    fprintf(out, "galaxy %s | device %s: %s | %d rank%s%s x %d thread%s\n", GX_VERSION, g->device->name, device,
            g->world, g->world > 1 ? "s" : "", engine, gx_threads(g), gx_threads(g) > 1 ? "s" : "");
}

// All options as they were resolved, in lines of at most 140 columns.
static void gx__report_options(FILE *out, const GxTrainer *t)
{
    GxError ignored = GX_ZERO; // printing is all that would fail
    GxJson *json = gx_config_to_json(&t->config, &ignored);
    int column = fprintf(out, "options:");
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);) {
        char *text = NULL;
        int64_t bytes = 0;
        if (gx_json_dump(m.value, 0, &text, &bytes, &ignored) != GX_OK) break;
        const int width = (int)(strlen(m.key) + (size_t)bytes) + 2;
        if (column + width > 140) column = fprintf(out, "\n ") - 1;
        column += fprintf(out, " %s=%s", m.key, text);
        free(text);
    }
    fprintf(out, "\n");
    gx_json_free(json);
}

static void gx__report_step_costs(FILE *out, const GxPlan *p, int world)
{
    const int alike = p->least == p->most;
    fprintf(out, "  %.2f GFLOP per step%s (attention counted causal)", p->flops / 1e9,
            alike ? " and rank" : " on rank 0");
    if (!alike) fprintf(out, ", %.2f on all", p->flops_all / 1e9);
    if (world > 1)
        fprintf(out, ", %.2f MB sent per step%s", (double)p->comm_bytes / 1e6, alike ? " and rank" : " by rank 0");
    fprintf(out, "\n");
}

void gx_report_start(const GxTrainer *t)
{
    GxReport r;
    char mode[100];
    const GxTrainOptions *o = &t->o;
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    gx__report_mode_text(t, mode);
    gx__report_device(r.out, t->g);
    const int64_t all = gx_table_parameters(&t->model.table), trained = gx_table_trained(&t->model.table);
    fprintf(r.out, "model: %s, mode %s, %.2fM parameters", t->family->name, mode, (double)all / 1e6);
    if (trained < all) fprintf(r.out, ", %.2fM of them trained", (double)trained / 1e6);
    fprintf(r.out, ", %s\n", o->precision);
    if (!o->dry_run) t->task->describe(t->self, r.out);
    gx__report_options(r.out, t);
    fprintf(r.out, "%ld steps of %ld samples x %ld tokens (%ld micro-batch%s) | %s, lr %g, %s\n", (long)o->max_steps,
            (long)o->global_batch_size, (long)o->seq_len, (long)o->gradient_accumulation_steps,
            o->gradient_accumulation_steps > 1 ? "es" : "", o->optimizer, o->learning_rate, o->lr_scheduler_type);
    gx_plan_print(r.out, &t->plan);
    gx__report_step_costs(r.out, &t->plan, t->g->world);
    gx_report_end(&r, t->g);
}

void gx_report_resumed(const GxTrainer *t, const char *changes)
{
    const GxResume *r = &t->resume;
    if (r->folder[0])
        gx_report(t->g, "resumed from %s: step %ld, %ld samples seen\n", r->folder, (long)t->step, (long)t->samples);
    if (changes[0]) gx_report(t->g, "  other than before: %s\n", changes);
}

void gx_report_set_apart(const GxTrainer *t, int checkpoints, int64_t lines)
{
    if (!checkpoints && !lines) return;
    gx_report(t->g, "  set apart in %s/%s, what came after step %ld before: %d checkpoint%s, %ld line%s of the log\n",
              t->o.output_dir, GX_ABANDONED, (long)t->step, checkpoints, checkpoints == 1 ? "" : "s", (long)lines,
              lines == 1 ? "" : "s");
}

void gx_report_baseline(const GxTrainer *t, const GxMetric *metric)
{
    GxReport r;
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    fprintf(r.out, "  ");
    fprintf(r.out, metric->format, metric->value);
    fprintf(r.out, "\n");
    gx_report_end(&r, t->g);
}

// ---- on the way ----------------------------------------------------------------------------------------------------

void gx_report_progress(const GxTrainer *t, const GxProgress *p)
{
    char left[32], card[40] = "";
    if (p->card_mb > 0) snprintf(card, sizeof card, ", card %.0f MB", p->card_mb);
    gx_report(t->g,
              "step %5ld/%ld | loss %7.4f | grad norm %7.3f | lr %.2e | %7.0f tokens/s | %5.0f GFLOP/s | %5.0f MB%s | "
              "%s left%s\n",
              (long)p->step, (long)p->steps, p->loss, p->grad_norm, p->lr, p->tokens_per_s, p->gflops, p->memory_mb,
              card, gx_duration_text(p->seconds_left, left), p->skipped ? " | skipped: gradients are not finite" : "");
}

// "step    20 | validation loss 1.5000 | 2.164 bits per byte over 160 tokens"
void gx_report_evaluation(const GxTrainer *t, const GxMetric *metric, int n, int64_t count)
{
    GxReport r;
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    fprintf(r.out, "step %5ld", (long)t->step);
    for (int i = 0; i < n; i++) {
        fprintf(r.out, i ? " | " : " | validation ");
        fprintf(r.out, metric[i].format, metric[i].value);
    }
    fprintf(r.out, " over %ld %s\n", (long)count, t->task->counted);
    gx_report_end(&r, t->g);
}

void gx_report_saved(const GxTrainer *t, const char *folder) { gx_report(t->g, "saved %s\n", folder); }

void gx_report_sample(const GxTrainer *t, const char *text) { gx_report(t->g, "sample:\n%s\n", text); }

void gx_report_curve(const GxTrainer *t, const char *svg)
{
    gx_report(t->g, "loss curve: %s\nlog: %s\n", svg, t->log_path);
}
#endif
