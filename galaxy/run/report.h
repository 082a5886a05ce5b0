// report.h: the lines that a run prints for people: the start, the plan, progress, validations, what was saved, the
// sample. They, and nothing else, go to the context's reporter, on rank 0. (Warnings and errors go to the logger:
// base/log.h.)
//
//     static void to_window(void *user, const char *text) { ... }
//     GxReporter reporter = {to_window, window, NULL};
//     g->reporter = &reporter;                      // gx_launch installs one that writes to stdout
//     gx_report(g, "saved %s\n", folder);
//
// Lines are wrapped to the width that the reporter gives, but to no less than 40 columns; to 80 if it gives none. The
// lines that follow are indented. A word that is longer than a line, samples of the data, and text that the model
// generated are not wrapped. Without a reporter a run is silent. Programs read log.jsonl (run_log.h), not these lines.
#ifndef GX_REPORT_H
#define GX_REPORT_H
#include "../base/context.h"
#include "../base/text.h"
#include "metrics.h"
#include <stdio.h>
GX_BEGIN

struct GxReporter {
    void (*write)(void *user, const char *text); // one or more whole lines, each with its newline
    void *user;
    int (*columns)(void *user); // the width of its lines at this moment; 0, or NULL: none
};

void gx_report(GxContext *g, const char *format, ...) GX_PRINTF(2, 3); // of any length
int gx_report_columns(const GxContext *g);                             // the width of a line; 80 without a reporter

// For text that is made piece by piece: fprintf(r.out, ...), if r.out is not NULL. On other ranks than 0 and without a
// reporter it is NULL. The reporter gets all of the text at the end.
typedef struct {
    FILE *out;
    char *text;
    size_t bytes;
} GxReport;
void gx_report_begin(GxReport *r, GxContext *g);
void gx_report_end(GxReport *r, GxContext *g);       // wraps lines that are too wide
void gx_report_end_as_is(GxReport *r, GxContext *g); // wraps nothing

typedef struct GxTrainer GxTrainer;             // trainer.h
typedef struct GxWeightsLoaded GxWeightsLoaded; // checkpoint_load.h

void gx_report_help(const GxTrainer *t, const char *program);
void gx_report_version(const GxTrainer *t); // the version, and what the program was built with
void gx_report_profile(const GxTrainer *t);
void gx_report_start(const GxTrainer *t);                        // device, model, data, options, steps, plan
void gx_report_resumed(const GxTrainer *t, const char *changes); // changes: of the options; "": none
void gx_report_weights(const GxTrainer *t,
                       const GxWeightsLoaded *w); // of --model: which tensors differ from the folder's
void gx_report_abandoned(const GxTrainer *t, int checkpoints, int64_t lines); // silent if both are 0
void gx_report_baseline(const GxTrainer *t, const GxMetric *metric);
void gx_report_progress(const GxTrainer *t, const GxProgress *p);
void gx_report_evaluation(const GxTrainer *t, const GxMetric *metric, int n, int64_t count);
void gx_report_confusion(const GxTrainer *t, const GxConfusion *c);
void gx_report_saved(const GxTrainer *t, const char *path);
void gx_report_stopped_early(const GxTrainer *t); // silent if it was not, or if that was before it was resumed
void gx_report_sample(const GxTrainer *t, const char *text);
void gx_report_curve(const GxTrainer *t, const char *svg);
// In five or six lines, for a run that has ended, after all of its steps or early: how long it took, how good the model
// is, the memory used, where the files are.
void gx_report_summary(const GxTrainer *t, const char *svg);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REPORT_IMPLEMENTED)
#define GX_REPORT_IMPLEMENTED
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "../cpu/gemm.h"
#include "../text/unicode.h"
#include "../text/regex.h"
#include "best.h"
#include "help.h"
#include "epochs.h"
#include "output.h"
#include "process_memory.h"
#include "processors.h"
#include "run_log.h"
#include "side_cache.h"
#include "stages.h"
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

void gx_report_end_as_is(GxReport *r, GxContext *g)
{
    if (!r->out) return;
    const int whole = !ferror(r->out);
    if (fclose(r->out) != 0 || !whole) gx__report_no_memory(g);
    else if (r->bytes) g->reporter->write(g->reporter->user, r->text);
    free(r->text);
}

int gx_report_columns(const GxContext *g)
{
    const GxReporter *r = g->reporter;
    const int columns = r && r->columns ? r->columns(r->user) : 0;
    return columns > 0 ? (int)gx_max(columns, 40) : 80;
}

// Prints `text`, with its lines wrapped at the ends of phrases and indented by two more columns. Changes `text`.
static void gx__report_wrap(FILE *out, char *text, int width)
{
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        const int ends = *end == '\n';
        if (ends) *end++ = 0;
        gx_text_wrap(out, line, ",;|", 0, (int)strspn(line, " ") + 2, width);
        if (ends) fputc('\n', out);
    }
}

void gx_report_end(GxReport *r, GxContext *g)
{
    GxReport wrapped;
    if (!r->out) return;
    gx_report_begin(&wrapped, g);
    const int whole = !ferror(r->out);
    if (fclose(r->out) == 0 && whole && wrapped.out) gx__report_wrap(wrapped.out, r->text, gx_report_columns(g));
    else gx__report_no_memory(g);
    free(r->text);
    gx_report_end_as_is(&wrapped, g);
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
    int n;
    const GxHelpLine *common = gx_help_training(&n);
    gx_report_begin(&r, t->g);
    if (r.out && !t->config.help_about[0]) fprintf(r.out, "usage: %s [--option value ...]\n\n", program);
    if (r.out) gx_config_help(&t->config, common, n, r.out, gx_report_columns(t->g));
    gx_report_end(&r, t->g);
}

void gx_report_version(const GxTrainer *t)
{
    const char *mpi = "no", *json = "no", *openmp = "no";
    const char *pcre2 = gx_regex_is_built() ? "yes" : "no";
#ifdef GX_WITH_MPI
    mpi = "yes";
#endif
#ifdef GX_WITH_JANSSON
    json = "yes";
#endif
#ifdef _OPENMP
    openmp = "yes";
#endif
    gx_report(t->g, "galaxy %s for device %s, matrix products by %s%s\n", GX_VERSION, t->g->device->name,
              gx_cpu_gemm_name(), t->g->device->card ? "; on the card by cuBLASLt" : "");
    gx_report(t->g, "MPI %s, JSON %s, OpenMP %s, utf8proc %s, PCRE2 %s\n", mpi, json, openmp, gx_unicode_version(),
              pcre2);
}

// "dp", of modes "dp 2"; "dp_shard 4 (zero 3)", "dp_replicate 2 x dp_shard 2 (zero 1)"
static void gx__report_copies_text(const GxTrainer *t, char *text, size_t size)
{
    const int shards = gx_mesh_size(&t->mesh, GX_AXIS_DP_SHARD), copies = gx_mesh_size(&t->mesh, GX_AXIS_DP_REPLICATE);
    const int zero = (int)t->model.store.sharded;
    if (t->model.store.sharded && copies > 1)
        snprintf(text, size, "dp_replicate %d x dp_shard %d (zero %d)", copies, shards, zero);
    else if (t->model.store.sharded) snprintf(text, size, "dp_shard %d (zero %d)", shards, zero);
    else if (gx_methods_split(t->mode->methods)) snprintf(text, size, "dp %d", copies * shards);
    else snprintf(text, size, "dp");
}

// "serial", "dp", "tp 2", "galaxy 2 x dp 2", "composed 2 (ATT TP, CON None, MLP SP, ends TP)"
static void gx__report_layer_text(const GxTrainer *t, char text[160])
{
    const GxMethods m = t->mode->methods;
    const int tp = gx_mesh_size(&t->mesh, GX_AXIS_TP),
              has_copies = gx_mesh_size(&t->mesh, GX_AXIS_DP) > 1 || t->model.store.sharded;
    char copies[80];
    gx__report_copies_text(t, copies, sizeof copies);
    if (!gx_methods_split(m)) snprintf(text, 160, "%s", has_copies ? copies : t->mode->name);
    else if (has_copies) snprintf(text, 160, "%s %d x %s", t->mode->name, tp, copies);
    else snprintf(text, 160, "%s %d", t->mode->name, tp);
    char methods[60];
    const size_t end = strlen(text);
    gx_methods_text(m, methods, sizeof methods);
    if (gx_methods_split(m) && !strcmp(t->mode->name, "composed")) snprintf(text + end, 160 - end, " (%s)", methods);
}

// "pp 2 (1f1b, layers 3,2) x tp 2"; of one stage what its layers are
static void gx__report_mode_text(const GxTrainer *t, char text[400])
{
    char layer[160];
    gx__report_layer_text(t, layer);
    const int is_serial = gx_mesh_size(&t->mesh, GX_AXIS_ALL & ~GX_AXIS_PP) == 1;
    text[0] = 0;
    if (t->o.pp > 1) gx_stages_text(t, text, 280);
    const size_t end = strlen(text);
    if (!end || !is_serial) snprintf(text + end, 400 - end, "%s%s", end ? " x " : "", layer);
}

static void gx__report_device(FILE *out, const GxTrainer *t)
{
    const GxContext *g = t->g;
    char device[300], engine[64] = "", threads[GX_THREADS_TEXT];
    g->device->describe(device, sizeof device);
    const char *on_cards = g->device->shares_host_memory       ? ""
                           : g->comm && g->comm->device_engine ? ", nccl"
                                                               : ", cards through the host";
    if (g->comm && g->comm->engine) snprintf(engine, sizeof engine, " (%s%s)", g->comm->engine->name, on_cards);
    gx_threads_text(g->comm, gx_threads(g), t->o.threads, threads);
    fprintf(out, "galaxy %s | device %s: %s | %d rank%s%s x %s\n", GX_VERSION, g->device->name, device, g->world,
            g->world > 1 ? "s" : "", engine, threads);
}

// Where attention runs without the tensor cores that it could have, and takes many times as long: in a line for each
// size of head.
static void gx__report_attention(FILE *out, const GxTrainer *t)
{
    const GxDevice *device = t->g->device;
    const GxModel *m = &t->model;
    const GxDtype dtype = strcmp(t->o.precision, "bf16") ? GX_F32 : GX_BF16;
    if (!device->attention_misses_tensor_cores) return;
    int64_t said = 0;
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) {
            const GxCoreSpec *c = &m->kind[i].spec.pair[k].core;
            if (c->kind != GX_CORE_ATT || c->head_dim == said) continue;
            if (!device->attention_misses_tensor_cores(t->g, dtype, c->head_dim)) continue;
            said = c->head_dim;
            fprintf(out,
                    "attention: heads of %ld are computed without tensor cores, which in %s take multiples of %d up to "
                    "128: expect it to be slow\n",
                    (long)said, t->o.precision, (int)(16 / gx_dtype_size(dtype)));
        }
}

// The options whose values differ from their defaults, none of them shortened; all options are in training_args.json.
static void gx__report_options(FILE *out, const GxTrainer *t)
{
    const int columns = gx_report_columns(t->g);
    GxError ignored = GX_ZERO; // without it only this line is missing
    GxJson *json = gx_config_changed_to_json(&t->config, &ignored);
    int column = fprintf(out, "options, where not the default:");
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);) {
        char *text = NULL;
        int64_t bytes = 0;
        if (gx_json_dump(m.value, 0, &text, &bytes, &ignored) != GX_OK) break;
        const int width = gx_text_columns(text, bytes) + (int)strlen(m.key) + 2;
        if (column + width > columns) column = fprintf(out, "\n ") - 1;
        fprintf(out, " %s=%s", m.key, text);
        column += width;
        free(text);
    }
    fprintf(out, "%s\n", gx_json_size(json) ? "" : " none");
    gx_json_free(json);
}

// If a token sees only those before it, half of the pairs count.
static int gx__report_is_causal(const GxModel *m)
{
    int causal = 0;
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) causal |= m->kind[i].spec.pair[k].core.is_causal;
    return causal;
}

// unit: "step", or "batch" if nothing is trained.
static void gx__report_costs(FILE *out, const GxPlan *p, const GxModel *m, int world, const char *unit)
{
    const int alike = p->least == p->most;
    fprintf(out, "  %.2f GFLOP per %s%s (attention counted %s)", p->flops / 1e9, unit,
            alike ? " and rank" : " on rank 0", gx__report_is_causal(m) ? "causal" : "in full");
    if (!alike) fprintf(out, ", %.2f on all", p->flops_all / 1e9);
    if (p->flops_kept > 0) fprintf(out, ", %.2f where the side cache has all", (p->flops - p->flops_kept) / 1e9);
    if (world > 1)
        fprintf(out, ", %.2f MB sent per %s%s", (double)p->comm_bytes / 1e6, unit, alike ? " and rank" : " by rank 0");
    fprintf(out, "\n");
}

// How long the run is: "500 steps"; "3 epochs = 1,234 steps"; of a dry run, which does not open the data, "3 epochs".
static void gx__report_length(FILE *out, const GxTrainer *t)
{
    char steps[40];
    const double epochs = t->o.num_train_epochs;
    if (epochs > 0) fprintf(out, "%g epoch%s", epochs, epochs == 1 ? "" : "s");
    if (epochs > 0 && !t->epoch_samples) return;
    fprintf(out, "%s%s step%s", epochs > 0 ? " = " : "", gx_text_grouped((double)t->o.max_steps, steps),
            gx_text_s(t->o.max_steps));
}

// "500 steps of 8 samples x 256 tokens (1 micro-batch) | adamw, lr 0.002, cosine | 2.31 epochs"; "3 epochs = 1,234
// steps of ..."; or "8 samples x 256 tokens at a time"
static void gx__report_work(FILE *out, const GxTrainer *t)
{
    const GxTrainOptions *o = &t->o;
    const int64_t shown = gx_split_total(&t->batch_split);
    if (gx_options_is_inference(o)) {
        fprintf(out, "%ld sample%s x %ld token%s at a time; nothing is trained\n", (long)shown, gx_text_s(shown),
                (long)o->seq_len, gx_text_s(o->seq_len));
        return;
    }
    gx__report_length(out, t);
    fprintf(out, " of %ld sample%s x %ld token%s (%ld micro-batch%s) | %s, lr %g, %s", (long)o->global_batch_size,
            gx_text_s(o->global_batch_size), (long)o->seq_len, gx_text_s(o->seq_len),
            (long)o->gradient_accumulation_steps, o->gradient_accumulation_steps > 1 ? "es" : "", o->optimizer,
            o->learning_rate, o->lr_scheduler_type);
    const double epochs = gx_epochs_of(o->max_steps, t->epoch_samples) * (double)o->global_batch_size;
    if (o->num_train_epochs <= 0 && t->epoch_samples)
        fprintf(out, epochs < 100 ? " | %.3g epochs" : " | %.0f epochs", epochs);
    fprintf(out, "\n");
}

void gx_report_profile(const GxTrainer *t)
{
    GxReport r;
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    if (t->profile.steps) gx_profile_print(&t->profile, r.out);
    else
        fprintf(r.out, "no profile: it begins with the third step, and this run had %ld\n", (long)(t->step - t->begun));
    gx_report_end_as_is(&r, t->g);
}

// Prints what r has until now, then samples of the data, and begins r again; 0: there was no memory for that.
static int gx__report_samples(const GxTrainer *t, GxReport *r)
{
    gx_report_end(r, t->g);
    gx_report_begin(r, t->g);
    if (!r->out) return 0;
    t->task->show(t->self, r->out);
    gx_report_end_as_is(r, t->g);
    gx_report_begin(r, t->g);
    return r->out != NULL;
}

void gx_report_start(const GxTrainer *t)
{
    GxReport r;
    char mode[400], said[GX_TUNING_SAID];
    const GxTrainOptions *o = &t->o;
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    gx__report_mode_text(t, mode);
    gx__report_device(r.out, t);
    const int64_t all = gx_table_parameters(&t->model.table), trained = gx_table_trained(&t->model.table);
    fprintf(r.out, "model: %s, mode %s, %.2fM parameters", t->family->name, mode, (double)all / 1e6);
    if (trained < all && !gx_options_is_inference(o)) fprintf(r.out, ", %.2fM of them trained", (double)trained / 1e6);
    fprintf(r.out, ", %s%s%s\n", o->precision, o->tf32 ? " with products in TF32" : "",
            o->cuda_graphs && !gx_options_is_inference(o) ? ", by CUDA graphs" : "");
    gx__report_attention(r.out, t);
    if (t->model.lora.r)
        fprintf(r.out, "LoRA: r %ld, alpha %g%s, dropout %g, on %s%s%s%s\n", (long)t->model.lora.r, t->model.lora.alpha,
                t->model.lora.is_scaled_by_root ? " (rsLoRA)" : "", (double)t->model.lora.dropout,
                t->model.lora.targets[0] ? t->model.lora.targets : "all matrices of attention and MLP",
                gx_tuning_say_modules(&o->tuning, said), gx_tuning_quantize(&o->tuning) ? "; the model in " : "",
                gx_tuning_quantize(&o->tuning) ? o->tuning.quantize : "");
    if (t->model.bottleneck.reduction)
        fprintf(r.out, "adapters: width %ld, %ld inside, behind attention and MLP of each layer\n",
                (long)gx_model_width(&t->model), (long)(gx_model_width(&t->model) / t->model.bottleneck.reduction));
    if (t->model.side.reduction)
        fprintf(r.out, "side network: width %ld beside %ld, %s, %s biases; no gradient goes through the model\n",
                (long)(gx_model_width(&t->model) / t->model.side.reduction), (long)gx_model_width(&t->model),
                t->model.side.is_gated ? "gated" : "plain", t->model.side.has_bias ? "with" : "without");
    if (t->model.prompt.len)
        fprintf(r.out, "prompts: %ld rows in the attention of each of the last %ld layers%s\n",
                (long)t->model.prompt.len, (long)t->model.prompt.layers,
                t->model.prompt.is_v2 ? "; a scale and a bias of each linear of attention and MLP, and norms" : "");
    if (!o->dry_run) t->task->describe(t->self, r.out);
    if (!o->dry_run && t->task->show && !gx__report_samples(t, &r)) return;
    gx__report_options(r.out, t);
    gx__report_work(r.out, t);
    gx_side_cache_describe(t, r.out);
    gx_plan_print(r.out, &t->plan);
    gx__report_costs(r.out, &t->plan, &t->model, t->g->world, gx_options_is_inference(o) ? "batch" : "step");
    gx_report_end(&r, t->g);
}

void gx_report_resumed(const GxTrainer *t, const char *changes)
{
    const GxResume *r = &t->resume;
    if (r->folder[0])
        gx_report(t->g, "resumed from %s: step %ld, %ld sample%s seen\n", r->folder, (long)t->step, (long)t->samples,
                  gx_text_s(t->samples));
    if (changes[0]) gx_report(t->g, "  other than before: %s\n", changes);
}

void gx_report_weights(const GxTrainer *t, const GxWeightsLoaded *w)
{
    if (w->reinitialised.n)
        gx_report(t->g, "  new, in place of those in %s (--ignore_mismatched_sizes): %s\n", t->o.model,
                  w->reinitialised.text);
    if (w->missing.n) gx_report(t->g, "  new, not in %s: %s\n", t->o.model, w->missing.text);
    if (w->mismatched.n) gx_report(t->g, "  new, of another shape in %s: %s\n", t->o.model, w->mismatched.text);
    if (w->unexpected.n) gx_report(t->g, "  not needed of %s: %s\n", t->o.model, w->unexpected.text);
}

void gx_report_abandoned(const GxTrainer *t, int checkpoints, int64_t lines)
{
    if (!checkpoints && !lines) return;
    gx_report(t->g, "  set apart in %s/%s, what came after step %ld before: %d checkpoint%s, %ld line%s of the log\n",
              t->o.output_dir, GX_ABANDONED, (long)t->step, checkpoints, gx_text_s(checkpoints), (long)lines,
              gx_text_s(lines));
}

void gx_report_baseline(const GxTrainer *t, const GxMetric *metric)
{
    char text[GX_METRIC_TEXT];
    gx_report(t->g, "  %s\n", gx_metric_text(metric->format, metric->value, text));
}

// ---- on the way ----------------------------------------------------------------------------------------------------

// "5.5451": as many digits as fit into `width` columns; "1e+09" where none do.
static const char *gx__report_number(double x, int width, char text[32])
{
    if (isnan(x)) x = NAN; // whatever its sign
    for (int digits = width - 2; digits >= 0; digits--)
        if (snprintf(text, 32, "%.*f", digits, x) <= width) return text;
    snprintf(text, 32, "%.0e", x);
    return text;
}

// "987", "17.8k", "1.78M": three digits of a number of at least 0.
static const char *gx__report_rate(double x, char text[32])
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
    gx__report_field(l, 6, "%5s tok/s", gx__report_rate(p->tokens_per_s, text));
    gx__report_field(l, 7, "%6s left", gx_duration_text(p->seconds_left, text));
    gx__report_field(l, 2, "%5s GFLOP/s", gx__report_rate(p->gflops, text));
    gx__report_field(l, 1, "%6.0f MB", p->memory_mb);
    if (p->card_mb > 0) gx__report_field(l, 0, "card %6.0f MB", p->card_mb);
}

void gx_report_progress(const GxTrainer *t, const GxProgress *p)
{
    GxReport r;
    gx__ReportLine line = GX_ZERO;
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    gx__report_progress_fields(&line, p, t->o.num_train_epochs > 0);
    gx__report_fit(&line, gx_report_columns(t->g));
    for (int i = 0; i < line.n; i++)
        if (line.text[i][0]) fprintf(r.out, "%s%s", i ? "  " : "", line.text[i]);
    fprintf(r.out, "\n");
    gx_report_end(&r, t->g);
}

// "160 tokens", "1 pair": what the task counts
static const char *gx__report_counted(const GxTrainer *t, int64_t count, char text[GX_METRIC_TEXT])
{
    const char *counted = t->task->counted;
    const int n = (int)strlen(counted);
    snprintf(text, GX_METRIC_TEXT, "%ld %.*s", (long)count, n - (count == 1 && n > 0 && counted[n - 1] == 's'),
             counted);
    return text;
}

// "step    20 | validation loss 1.5000 | 2.164 bits per byte over 160 tokens"; if the best weights were loaded at the
// end "step    10, the best | validation ..."
void gx_report_evaluation(const GxTrainer *t, const GxMetric *metric, int n, int64_t count)
{
    GxReport r;
    char text[GX_METRIC_TEXT];
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    if (t->weights_step) fprintf(r.out, "step %5ld, the best", (long)t->weights_step);
    else fprintf(r.out, "step %5ld", (long)t->step);
    for (int i = 0; i < n; i++)
        fprintf(r.out, "%s%s", i ? " | " : " | validation ", gx_metric_text(metric[i].format, metric[i].value, text));
    fprintf(r.out, " over %s\n", gx__report_counted(t, count, text));
    gx_report_end(&r, t->g);
}

void gx_report_confusion(const GxTrainer *t, const GxConfusion *c)
{
    GxReport r;
    char line[GX_CONFUSION_LINE];
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    for (int k = 0; gx_confusion_line(line, sizeof line, c->count, c->classes, c->name, k); k++)
        fprintf(r.out, "%s\n", line);
    gx_report_end_as_is(&r, t->g);
}

void gx_report_saved(const GxTrainer *t, const char *path) { gx_report(t->g, "saved %s\n", path); }

void gx_report_stopped_early(const GxTrainer *t)
{
    char why[300];
    if (gx_best_stops_early(t) && t->step > t->begun)
        gx_report(t->g, "stopped early after step %ld of %ld: %s\n", (long)t->step, (long)t->o.max_steps,
                  gx_best_reason(t, why));
}

void gx_report_sample(const GxTrainer *t, const char *text)
{
    GxReport r;
    gx_report_begin(&r, t->g);
    if (r.out) fprintf(r.out, "sample:\n%s\n", text);
    gx_report_end_as_is(&r, t->g);
}

void gx_report_curve(const GxTrainer *t, const char *svg)
{
    gx_report(t->g, "loss curve: %s\nlog: %s\n", svg, t->log_path);
}

// ---- the end -------------------------------------------------------------------------------------------------------

// "done: 500 steps in 1m12s, 1.02M tokens, 17,800 tokens/s in training"; a resumed run: "500 steps, the last 100 in";
// where there was padding, which is no token: "880k tokens and 14.1% padding".
static void gx__report_done(FILE *out, const GxTrainer *t)
{
    char took[32], tokens[32], rate[40], padding[40] = "";
    const int64_t steps = t->step - t->begun;
    const int64_t rows = steps * t->o.global_batch_size * t->o.seq_len;
    const double n = (double)(rows - t->clock.padding);
    if (t->clock.padding > 0)
        snprintf(padding, sizeof padding, " and %.1f%% padding", 100 * (double)t->clock.padding / (double)rows);
    fprintf(out, "done: %ld step%s", (long)t->step, gx_text_s(t->step));
    if (!steps) fprintf(out, ", none of them now\n");
    if (!steps) return;
    if (t->begun) fprintf(out, ", the last %ld", (long)steps);
    fprintf(out, " in %s, %s token%s%s, %s tokens/s in training\n",
            gx_duration_text(gx_seconds() - t->clock.opened, took), gx__report_rate(n, tokens), n == 1 ? "" : "s",
            padding, gx_text_grouped(n / t->clock.training_seconds, rate));
}

// Means over different samples are not compared: validations during the run are over eval_windows, the last one over
// all samples.
static void gx__report_best(FILE *out, const GxTrainer *t)
{
    const GxMetric *last = &t->validation.metric[0];
    char text[GX_METRIC_TEXT];
    GxBestEvaluation best;
    GxError ignored = GX_ZERO; // if the log is gone by now, the line is left out
    if (gx_log_best(t->log_path, last->name, t->task->counted, t->step, &best, &ignored) != GX_OK || best.step < 0)
        return;
    if (best.count != t->validation.count) fprintf(out, "; before, the best was ");
    else if (best.value < last->value) fprintf(out, "; the best was ");
    else {
        fprintf(out, ", the best");
        return;
    }
    fprintf(out, "%s at step %ld", gx_metric_text(last->format, best.value, text), (long)best.step);
    if (best.count > 0 && best.count != t->validation.count)
        fprintf(out, " over %s", gx__report_counted(t, best.count, text));
}

// "validation loss 1.5103 (2.179 bits per byte) over 16384 tokens; the best was loss 1.5010 at step 400"
static void gx__report_validated(FILE *out, const GxTrainer *t)
{
    char text[GX_METRIC_TEXT];
    if (!t->validation.metrics) return;
    for (int i = 0; i < t->validation.metrics; i++)
        fprintf(out, "%s%s",
                i == 0   ? "validation "
                : i == 1 ? " ("
                         : ", ",
                gx_metric_text(t->validation.metric[i].format, t->validation.metric[i].value, text));
    fprintf(out, "%s over %s", t->validation.metrics > 1 ? ")" : "", gx__report_counted(t, t->validation.count, text));
    if (t->weights_step) fprintf(out, ", of the best weights");
    else if (!strcmp(t->validation.metric[0].name, "loss") && !t->best.step) gx__report_best(out, t);
    fprintf(out, "\n");
}

// "the best on the way: loss 1.2500 at step 400, out/checkpoint-400"
static void gx__report_kept(FILE *out, const GxTrainer *t)
{
    char text[GX_METRIC_TEXT], folder[GX_PATH] = "";
    GxError ignored = GX_ZERO; // it was saved there
    if (!t->best.step) return;
    fprintf(out, "the best on the way: %s at step %ld", gx_best_text(t, text), (long)t->best.step);
    if (t->best.checkpoint[0] && gx_best_folder(t, folder, &ignored) == GX_OK) fprintf(out, ", %s", folder);
    fprintf(out, "\n");
}

void gx_report_summary(const GxTrainer *t, const char *svg)
{
    GxReport r;
    char folder[GX_PATH] = "";
    GxError ignored = GX_ZERO; // it was saved there
    gx_report_begin(&r, t->g);
    if (!r.out) return;
    gx_checkpoint_path(folder, t->o.output_dir, t->saved, &ignored);
    gx__report_done(r.out, t);
    gx__report_validated(r.out, t);
    gx__report_kept(r.out, t);
    const int64_t peak = gx_process_peak_memory();
    fprintf(r.out, "peak memory%s %.0f MB, planned %.0f MB%s\n",
            t->g->world > 1 && t->plan.ranks_here == 1 ? " of rank 0" : "", (double)peak / 1e6,
            (double)gx_plan_total(&t->plan) / 1e6,
            peak > t->plan.peak_before ? "" : " for training;\n  the peak was before, when the data were opened");
    const char *last = t->saved > t->begun ? folder : t->resume.folder;
    fprintf(r.out, "checkpoint: %s\nloss curve: %s, log: %s\n", *last ? last : "none", svg, t->log_path);
    gx_report_end(&r, t->g);
}
#endif
