// report_start.h: what a training program prints before it trains: --help, --version; device, model, data, options,
// steps and the plan. Samples of the data are not wrapped.
#ifndef GX_REPORT_START_H
#define GX_REPORT_START_H
#include "session.h"
GX_BEGIN

void gx_report_help(const GxSession *s, const char *program);
void gx_report_version(const GxSession *s); // the version, and what the program was built with
void gx_report_start(const GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REPORT_START_IMPLEMENTED)
#define GX_REPORT_START_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../cpu/gemm.h"
#include "../io/config_help.h"
#include "../io/config_json.h"
#include "../text/regex.h"
#include "../text/unicode.h"
#include "adapter_kinds.h"
#include "epochs.h"
#include "help.h"
#include "options_mesh.h"
#include "processors.h"
#include "reporter.h"
#include "stages.h"
#include "tuning.h"

void gx_report_help(const GxSession *s, const char *program)
{
    GxReport r;
    int n;
    const GxHelpLine *common = gx_help_training(&n);
    gx_report_begin(&r, s->g);
    if (r.out && !s->run->config.help_about[0]) fprintf(r.out, "usage: %s [--option value ...]\n\n", program);
    if (r.out) gx_config_help(&s->run->config, common, n, r.out, gx_report_columns(s->g));
    gx_report_end(&r, s->g);
}

void gx_report_version(const GxSession *s)
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
    gx_report(s->g, "galaxy %s for device %s, matrix products by %s%s\n", GX_VERSION, s->g->device->name,
              gx_cpu_gemm_name(), s->g->device->card ? "; on the card by cuBLASLt" : "");
    gx_report(s->g, "MPI %s, JSON %s, OpenMP %s, utf8proc %s, PCRE2 %s\n", mpi, json, openmp, gx_unicode_version(),
              pcre2);
}

// "dp", of modes "dp 2"; "dp_shard 4 (zero 3)", "dp_replicate 2 x dp_shard 2 (zero 1)"
static void gx__report_start_copies_text(const GxSession *s, char *text, size_t size)
{
    const int shards = gx_mesh_size(&s->mesh, GX_AXIS_DP_SHARD), copies = gx_mesh_size(&s->mesh, GX_AXIS_DP_REPLICATE);
    const int zero = (int)s->model.store.sharded;
    if (s->model.store.sharded && copies > 1)
        snprintf(text, size, "dp_replicate %d x dp_shard %d (zero %d)", copies, shards, zero);
    else if (s->model.store.sharded) snprintf(text, size, "dp_shard %d (zero %d)", shards, zero);
    else if (gx_methods_split(s->mode->methods)) snprintf(text, size, "dp %d", copies * shards);
    else snprintf(text, size, "dp");
}

// "serial", "dp", "tp 2", "tp 2,1", "galaxy 2 x dp 2", "composed 2 (ATT TP, CON None, MLP SP, ends TP)"
static void gx__report_start_layer_text(const GxSession *s, char text[160])
{
    const GxMethods m = s->mode->methods;
    const int has_copies = gx_mesh_size(&s->mesh, GX_AXIS_DP) > 1 || s->model.store.sharded;
    char copies[80], tp[60];
    gx__report_start_copies_text(s, copies, sizeof copies);
    gx_options_tp_text(&s->run->o, tp, sizeof tp);
    if (!gx_methods_split(m)) snprintf(text, 160, "%s", has_copies ? copies : s->mode->name);
    else if (has_copies) snprintf(text, 160, "%s %s x %s", s->mode->name, tp, copies);
    else snprintf(text, 160, "%s %s", s->mode->name, tp);
    char methods[60];
    const size_t end = strlen(text);
    gx_methods_text(m, methods, sizeof methods);
    if (gx_methods_split(m) && !strcmp(s->mode->name, "composed")) snprintf(text + end, 160 - end, " (%s)", methods);
}

// "cp 2", "cp 2 (ring, 4 zigzags)"; "": sequences are whole
static void gx__report_start_cp_text(const GxSession *s, char text[60])
{
    const GxCp *cp = &s->model.cp;
    text[0] = 0;
    if (cp->n < 2) return;
    if (cp->zigzags > 1) snprintf(text, 60, "cp %d (%s%d zigzags)", cp->n, cp->by_ring ? "ring, " : "", cp->zigzags);
    else snprintf(text, 60, "cp %d%s", cp->n, cp->by_ring ? " (ring)" : "");
}

// "pp 2 (1f1b, layers 3,2) x tp 2"; with one stage, only what its layers are
static void gx__report_start_mode_text(const GxSession *s, char text[400])
{
    char layer[160], cp[60];
    gx__report_start_layer_text(s, layer);
    gx__report_start_cp_text(s, cp);
    const int has_layer = gx_mesh_size(&s->mesh, GX_AXIS_DP | GX_AXIS_TP) > 1;
    if (cp[0] && !has_layer) snprintf(layer, sizeof layer, "%s", cp);
    else if (cp[0]) snprintf(layer + strlen(layer), sizeof layer - strlen(layer), " x %s", cp);
    const int is_serial = gx_mesh_size(&s->mesh, GX_AXIS_ALL & ~GX_AXIS_PP) == 1 && !s->mesh.is_ragged;
    text[0] = 0;
    if (s->run->o.pp > 1) gx_stages_text(s, text, 280);
    const size_t end = strlen(text);
    if (!end || !is_serial) snprintf(text + end, 400 - end, "%s%s", end ? " x " : "", layer);
}

static void gx__report_start_device(FILE *out, const GxSession *s)
{
    const GxContext *g = s->g;
    char device[300], engine[64] = "", threads[GX_THREADS_TEXT];
    g->device->describe(device, sizeof device);
    const char *on_cards = g->device->shares_host_memory       ? ""
                           : g->comm && g->comm->device_engine ? ", nccl"
                                                               : ", cards through the host";
    if (g->comm && g->comm->engine) snprintf(engine, sizeof engine, " (%s%s)", g->comm->engine->name, on_cards);
    gx_threads_text(g->comm, gx_threads(g), s->run->o.threads, threads);
    fprintf(out, "galaxy %s | device %s: %s | %d rank%s%s x %s\n", GX_VERSION, g->device->name, device, g->world,
            g->world > 1 ? "s" : "", engine, threads);
}

// Says for which sizes of heads attention runs without the tensor cores, and so takes many times as long; a line for
// each size.
static void gx__report_start_attention(FILE *out, const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const GxDevice *device = s->g->device;
    const GxModel *m = &s->model;
    const GxDtype dtype = r->chosen.dtype;
    if (!device->attention_misses_tensor_cores) return;
    int64_t said = 0;
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) {
            const GxCoreSpec *c = &m->kind[i].spec.pair[k].core;
            if (c->kind != GX_CORE_ATT || c->head_dim == said) continue;
            if (!device->attention_misses_tensor_cores(s->g, dtype, c->head_dim)) continue;
            said = c->head_dim;
            fprintf(out,
                    "attention: heads of %ld are computed without tensor cores, which in %s support multiples of %d up "
                    "to 128; expect it to be slow\n",
                    (long)said, r->o.precision, (int)(16 / gx_dtype_size(dtype)));
        }
}

// The options whose values differ from their defaults, none of them shortened; all options are in training_args.json.
static void gx__report_start_options(FILE *out, const GxSession *s)
{
    const int columns = gx_report_columns(s->g);
    GxError ignored = GX_ZERO; // without it only this line is missing
    GxJson *json = gx_config_changed_to_json(&s->run->config, &ignored);
    int column = fprintf(out, "options that differ from their defaults:");
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

// 1: a token sees only those before it, so half of the pairs count.
static int gx__report_start_is_causal(const GxModel *m)
{
    int causal = 0;
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) causal |= m->kind[i].spec.pair[k].core.is_causal;
    return causal;
}

// unit: "step", or "batch" if nothing is trained.
static void gx__report_start_costs(FILE *out, const GxPlan *p, const GxModel *m, int world, const char *unit)
{
    const int alike = p->least == p->most;
    fprintf(out, "  %.2f GFLOP per %s%s (attention counted %s)", p->flops / 1e9, unit,
            alike ? " and rank" : " on rank 0", gx__report_start_is_causal(m) ? "causal" : "in full");
    if (!alike) fprintf(out, ", %.2f on all", p->flops_all / 1e9);
    if (p->flops_kept > 0) fprintf(out, ", %.2f where the side cache has all", (p->flops - p->flops_kept) / 1e9);
    if (world > 1)
        fprintf(out, ", %.2f MB sent per %s%s", (double)p->comm_bytes / 1e6, unit, alike ? " and rank" : " by rank 0");
    fprintf(out, "\n");
}

// How long the run is: "500 steps"; "3 epochs = 1,234 steps"; of a dry run, which does not open the data, "3 epochs".
static void gx__report_start_length(FILE *out, const GxTrainRun *r)
{
    char steps[40];
    const double epochs = r->o.num_train_epochs;
    if (epochs > 0) fprintf(out, "%g epoch%s", epochs, epochs == 1 ? "" : "s");
    if (epochs > 0 && !r->epoch_samples) return;
    fprintf(out, "%s%s step%s", epochs > 0 ? " = " : "", gx_text_grouped((double)r->o.max_steps, steps),
            gx_text_s(r->o.max_steps));
}

// "1 micro-batch"; of copies with numbers of their own: "24,8 in 3,1 micro-batches"
static void gx__report_start_window(FILE *out, const GxSession *s)
{
    const GxWindow *w = &s->window;
    char text[200];
    if (!w->is_own) {
        fprintf(out, "%ld micro-batch%s", (long)gx_window_micro_batches(w, 0),
                gx_window_micro_batches(w, 0) > 1 ? "es" : "");
        return;
    }
    fprintf(out, "%s in ", gx_window_text(&w->samples, text, sizeof text));
    for (int i = 0; i < w->samples.n; i++) fprintf(out, "%s%ld", i ? "," : "", (long)gx_window_micro_batches(w, i));
    fprintf(out, " micro-batch%s", w->samples.n == 1 && gx_window_micro_batches(w, 0) == 1 ? "" : "es");
    if (gx_options_rebalances(&s->run->o, w->samples.n)) // what gx_session_micro_most blocks of data take
        fprintf(out, ", to be rebalanced: %.2f MB for data that may move here",
                (double)((gx_session_micro_most(s) - gx_session_micro_batches(s)) * s->block_bytes) / 1e6);
}

// "500 steps of 8 samples x 256 tokens (1 micro-batch) | adamw, lr 0.002, cosine | 2.31 epochs"; "3 epochs = 1,234
// steps of ..."; or "8 samples x 256 tokens at a time"
static void gx__report_start_work(FILE *out, const GxSession *s)
{
    const GxTrainRun *r = s->run;
    const GxTrainOptions *o = &r->o;
    const int64_t shown = gx_split_total(&s->batch_split);
    if (gx_options_is_inference(o)) {
        fprintf(out, "%ld sample%s x %ld token%s at a time; nothing is trained\n", (long)shown, gx_text_s(shown),
                (long)o->seq_len, gx_text_s(o->seq_len));
        return;
    }
    gx__report_start_length(out, r);
    fprintf(out, " of %ld sample%s x %ld token%s (", (long)o->global_batch_size, gx_text_s(o->global_batch_size),
            (long)o->seq_len, gx_text_s(o->seq_len));
    gx__report_start_window(out, s);
    fprintf(out, ") | %s, lr %g, %s", o->optimizer, o->learning_rate, o->lr_scheduler_type);
    const double epochs = gx_epochs_of(o->max_steps, r->epoch_samples) * (double)o->global_batch_size;
    if (o->num_train_epochs <= 0 && r->epoch_samples)
        fprintf(out, epochs < 100 ? " | %.3g epochs" : " | %.0f epochs", epochs);
    fprintf(out, "\n");
}

// Prints what r has so far, then samples of the data, and begins r again; 0: there was no memory for that.
static int gx__report_start_samples(const GxSession *s, GxReport *r)
{
    gx_report_end(r, s->g);
    gx_report_begin(r, s->g);
    if (!r->out) return 0;
    s->run->task->data.show(s->run->self, r->out);
    gx_report_end_as_is(r, s->g);
    gx_report_begin(r, s->g);
    return r->out != NULL;
}

// Says which source computes the mode, for those who read or change it: the composed mode and a mode's own source
// compute the same bits, but --mode always means the composed one.
static void gx__report_start_source(FILE *out, const GxSession *s)
{
    const char *mode = s->mode->name;
    GxMethods methods;
    const int is_listed = gx_methods_split(s->mode->methods) && gx_mode_methods(mode, &methods);
    if (s->run->program_schedule)
        fprintf(out, "  steps are written by this program's own schedule, \"%s\"\n", s->run->program_schedule->name);
    if (!is_listed) return;
    if (gx_mode_is_composed(s->mode))
        fprintf(out,
                "  mode %s is composed of its blocks' methods (galaxy/model/mode.h); train_%s_%s runs train_%s.cu "
                "instead\n",
                mode, s->run->family->name, mode, mode);
    else fprintf(out, "  mode %s is computed by train_%s%s.cu\n", mode, mode, s->mode->is_tiled ? "_tiled" : "");
}

// Says what is trained instead of the model.
static void gx__report_start_tuning(FILE *out, const GxSession *s)
{
    const GxTuningOptions *o = &s->run->o.tuning;
    const GxModel *m = &s->model;
    const GxAdapterKind *kind = gx_adapter_kind(&m->adapter);
    char said[GX_TUNING_SAID];
    if (!kind) return;
    kind->describe(out, &m->adapter, gx_model_width(m));
    fprintf(out, "%s%s%s\n", gx_tuning_say_modules(o, said), gx_tuning_quantize(o) ? "; the model in " : "",
            gx_tuning_quantize(o) ? o->quantize : "");
}

void gx_report_start(const GxSession *s)
{
    GxReport r;
    char mode[400];
    const GxTrainOptions *o = &s->run->o;
    gx_report_begin(&r, s->g);
    if (!r.out) return;
    gx__report_start_mode_text(s, mode);
    gx__report_start_device(r.out, s);
    const int64_t all = gx_table_parameters(&s->model.table), trained = gx_table_trained(&s->model.table);
    fprintf(r.out, "model: %s, mode %s, %.2fM parameters", s->run->family->name, mode, (double)all / 1e6);
    if (trained < all && !gx_options_is_inference(o)) fprintf(r.out, ", %.2fM of them trained", (double)trained / 1e6);
    fprintf(r.out, ", %s%s%s\n", o->precision, o->tf32 ? " with products in TF32" : "",
            o->cuda_graphs && !gx_options_is_inference(o) ? ", by CUDA graphs" : "");
    gx__report_start_source(r.out, s);
    gx__report_start_attention(r.out, s);
    gx__report_start_tuning(r.out, s);
    if (!o->dry_run) s->run->task->data.describe(s->run->self, r.out);
    if (!o->dry_run && s->run->task->data.show && !gx__report_start_samples(s, &r)) return;
    gx__report_start_options(r.out, s);
    gx__report_start_work(r.out, s);
    if (s->extra.describe) s->extra.describe(s->extra.self, s, r.out);
    gx_plan_print(r.out, &s->plan);
    gx__report_start_costs(r.out, &s->plan, &s->model, s->g->world, gx_options_is_inference(o) ? "batch" : "step");
    gx_report_end(&r, s->g);
}
#endif
