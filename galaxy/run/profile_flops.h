// profile_flops.h: --profile_flops N: what N steps cost, module by module (modules.h), on all ranks: a summary, and a
// tree of the model with its parameters, MACs, FLOPs and times. With --dry_run the same without times, from the step on
// the device `none`.
//
// The first two steps of a process are slower (first touch of memory, kernels being compiled) and are not profiled. The
// host waits for the device before and after every operation, so operations run one at a time; only collectives that
// were started run alongside others.
//
// Times are means over the ranks: a rank that does not have a layer counts with 0, so that all rows together are the
// step. FLOP/s, bytes per second and the share of the peak are those of a rank while it is in the module.
#ifndef GX_PROFILE_FLOPS_H
#define GX_PROFILE_FLOPS_H
#include "modules.h"
#include "session.h"
GX_BEGIN

GxStatus gx_profile_flops_watch(GxTrainRun *r, GxError *err); // a watcher

// Prints the tree, after gx_modules_gather. steps: how many it is the sum of; has_times 0: without seconds. ranks: the
// world's. peak: FLOP/s of a rank's device; 0: unknown.
void gx_profile_flops_print(const GxModules *t, int64_t steps, int has_times, int ranks, double peak, FILE *out);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PROFILE_FLOPS_IMPLEMENTED)
#define GX_PROFILE_FLOPS_IMPLEMENTED
#include <string.h>
#include "../ops/memory.h"
#include "report.h"
#include "reporter.h"

// ---- the tree in print ---------------------------------------------------------------------------------------------

typedef struct {
    const GxModules *t;
    double steps, ranks, peak;
    int has_times, recomputes;
    double macs, seconds; // of the whole step
    FILE *out;
} gx__ProfileFlopsTable;

static double gx__profile_flops_macs(const GxModule *r) { return r->cost[GX_PHASE_FORWARD].products / 2; }

// A number in a column; empty if it is 0.
static void gx__profile_flops_number(FILE *out, int width, double x)
{
    char text[32];
    fprintf(out, " %*s", width, x > 0 ? gx_report_rate(x, text) : "");
}

static void gx__profile_flops_percent(FILE *out, double part, double whole)
{
    if (part > 0 && whole > 0) fprintf(out, " %5.1f%%", 100 * part / whole);
    else fprintf(out, " %6s", "");
}

static void gx__profile_flops_ms(FILE *out, double seconds)
{
    if (seconds > 0) fprintf(out, " %8.2f", 1e3 * seconds);
    else fprintf(out, " %8s", "");
}

static void gx__profile_flops_times(const gx__ProfileFlopsTable *p, const GxModule *r)
{
    const GxModuleCost all = gx_module_total(r);
    const double per = p->steps * p->ranks;
    gx__profile_flops_ms(p->out, r->cost[GX_PHASE_FORWARD].seconds / per);
    gx__profile_flops_ms(p->out, (r->cost[GX_PHASE_BACKWARD].seconds + r->cost[GX_PHASE_RECOMPUTE].seconds) / per);
    gx__profile_flops_ms(p->out, all.seconds / per);
    gx__profile_flops_percent(p->out, all.seconds, p->seconds);
    gx__profile_flops_number(p->out, 7, all.seconds > 0 ? all.flops / all.seconds : 0);
    if (p->peak > 0) gx__profile_flops_percent(p->out, all.flops, all.seconds * p->peak);
    gx__profile_flops_number(p->out, 7, all.seconds > 0 ? (all.bytes + all.sent) / all.seconds : 0);
    if (p->ranks > 1) fprintf(p->out, " %8.2f %8.2f", 1e3 * r->least / p->steps, 1e3 * r->most / p->steps);
}

enum { GX__PROFILE_FLOPS_NAME = 40 };

static void gx__profile_flops_row(const gx__ProfileFlopsTable *p, const GxModule *r, int depth)
{
    char name[GX_MODULE_NAME + 60], cut[GX__PROFILE_FLOPS_NAME + 1], times[24] = "";
    if (r->units > 1) snprintf(times, sizeof times, " x %d", r->units);
    snprintf(name, sizeof name, "%*s%s%s", 2 * depth, "", r->name, times);
    fprintf(p->out, "%-*s", GX__PROFILE_FLOPS_NAME, gx_text_cut(name, cut, sizeof cut));
    gx__profile_flops_number(p->out, 6, (double)r->parameters);
    gx__profile_flops_number(p->out, 7, (double)r->trained);
    gx__profile_flops_number(p->out, 6, gx__profile_flops_macs(r) / p->steps);
    gx__profile_flops_percent(p->out, gx__profile_flops_macs(r), p->macs);
    gx__profile_flops_number(p->out, 7, r->cost[GX_PHASE_FORWARD].flops / p->steps);
    gx__profile_flops_number(p->out, 8, r->cost[GX_PHASE_BACKWARD].flops / p->steps);
    if (p->recomputes) gx__profile_flops_number(p->out, 9, r->cost[GX_PHASE_RECOMPUTE].flops / p->steps);
    if (p->has_times) gx__profile_flops_times(p, r);
    fputc('\n', p->out);
}

static void gx__profile_flops_header(const gx__ProfileFlopsTable *p)
{
    fprintf(p->out, "%-*s %6s %7s %6s %6s %7s %8s", GX__PROFILE_FLOPS_NAME, "", "params", "trained", "MACs", "%",
            "FLOPs f", "FLOPs b");
    if (p->recomputes) fprintf(p->out, " %9s", "recompute");
    if (p->has_times) fprintf(p->out, " %8s %8s %8s %6s %7s", "ms f", "ms b", "ms", "%", "FLOP/s");
    if (p->has_times && p->peak > 0) fprintf(p->out, " %6s", "% peak");
    if (p->has_times) fprintf(p->out, " %7s", "B/s");
    if (p->has_times && p->ranks > 1) fprintf(p->out, " %8s %8s", "least ms", "most ms");
    fputc('\n', p->out);
}

static int gx__profile_flops_shows(const GxModule *r, int has_times)
{
    const GxModuleCost all = gx_module_total(r);
    return r->parameters > 0 || all.calls > 0 || (has_times && all.seconds > 0);
}

// The rows below `at`, each with those below it.
static void gx__profile_flops_below(const gx__ProfileFlopsTable *p, int at, int depth)
{
    for (int i = at + 1; i < p->t->n; i++) {
        const GxModule *r = &p->t->row[i];
        if (r->parent != at || !gx__profile_flops_shows(r, p->has_times)) continue;
        gx__profile_flops_row(p, r, depth);
        gx__profile_flops_below(p, i, depth + 1);
    }
}

void gx_profile_flops_print(const GxModules *t, int64_t steps, int has_times, int ranks, double peak, FILE *out)
{
    const GxModule *step = &t->row[GX_MODULES_STEP];
    gx__ProfileFlopsTable p = {t, (double)gx_max(steps, 1), (double)ranks, peak, has_times, 0, 0, 0, out};
    p.recomputes = step->cost[GX_PHASE_RECOMPUTE].calls > 0;
    p.macs = gx__profile_flops_macs(step), p.seconds = gx_module_total(step).seconds;
    gx__profile_flops_header(&p);
    gx__profile_flops_row(&p, step, 0);
    gx__profile_flops_below(&p, GX_MODULES_STEP, 1);
}

// ---- the summary ---------------------------------------------------------------------------------------------------

static const char *gx__profile_flops_attention(const GxModel *m)
{
    int causal = 0;
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) causal |= m->kind[i].spec.pair[k].core.is_causal;
    return causal ? "causal" : "in full";
}

static void gx__profile_flops_say_world(FILE *out, const GxSession *s, int64_t steps, int has_times)
{
    const int copies = gx_mesh_size(&s->mesh, GX_AXIS_DP), tp = gx_mesh_size(&s->mesh, GX_AXIS_TP),
              pp = gx_mesh_size(&s->mesh, GX_AXIS_PP);
    if (has_times)
        fprintf(out, "FLOPs of %ld step%s from the third on, of all %d rank%s", (long)steps, gx_text_s(steps),
                s->g->world, gx_text_s(s->g->world));
    else fprintf(out, "FLOPs of a step, of all %d rank%s", s->g->world, gx_text_s(s->g->world));
    if (s->g->world > 1)
        fprintf(out, ": %d cop%s of the model, each on %d stage%s x %d rank%s", copies, copies == 1 ? "y" : "ies", pp,
                gx_text_s(pp), tp, gx_text_s(tp));
    fprintf(out, "; attention is counted %s\n", gx__profile_flops_attention(&s->model));
}

static void gx__profile_flops_say_flops(FILE *out, const GxModules *t, double steps)
{
    const GxModule *step = &t->row[GX_MODULES_STEP];
    const double f = step->cost[GX_PHASE_FORWARD].flops, b = step->cost[GX_PHASE_BACKWARD].flops;
    char text[5][32];
    fprintf(out, "  FLOPs of a step      %s: forward %s, backward %s (%.2f x forward), recomputed %s, the rest %s\n",
            gx_report_rate(gx_module_total(step).flops / steps, text[0]), gx_report_rate(f / steps, text[1]),
            gx_report_rate(b / steps, text[2]), f > 0 ? b / f : 0,
            gx_report_rate(step->cost[GX_PHASE_RECOMPUTE].flops / steps, text[3]),
            gx_report_rate(step->cost[GX_PHASE_REST].flops / steps, text[4]));
}

static void gx__profile_flops_say_times(FILE *out, const GxSession *s, const GxModules *t, double steps)
{
    const GxModule *step = &t->row[GX_MODULES_STEP];
    const GxModuleCost all = gx_module_total(step);
    const double per = 1e3 / steps / s->g->world, seconds = all.seconds / steps / s->g->world;
    char text[3][32];
    if (seconds <= 0) return;
    fprintf(out, "  time of a step       %.2f ms: forward %.2f, backward %.2f, recomputed %.2f, the rest %.2f\n",
            1e3 * seconds, per * step->cost[GX_PHASE_FORWARD].seconds, per * step->cost[GX_PHASE_BACKWARD].seconds,
            per * step->cost[GX_PHASE_RECOMPUTE].seconds, per * step->cost[GX_PHASE_REST].seconds);
    fprintf(out, "  rate                 %s samples/s, %s tokens/s, %s FLOP/s per rank",
            gx_report_rate((double)s->run->o.global_batch_size / seconds, text[0]),
            gx_report_rate((double)(s->run->o.global_batch_size * s->run->o.seq_len) / seconds, text[1]),
            gx_report_rate(all.flops / all.seconds, text[2]));
    if (s->run->o.peak_tflops > 0)
        fprintf(out, ", %.1f%% of the peak", 100 * all.flops / all.seconds / (1e12 * s->run->o.peak_tflops));
    fputc('\n', out);
}

static void gx__profile_flops_say(FILE *out, const GxSession *s, const GxModules *t, int64_t steps, int has_times)
{
    const GxTrainOptions *o = &s->run->o;
    const GxModule *step = &t->row[GX_MODULES_STEP];
    const double macs = gx__profile_flops_macs(step) / (double)steps;
    const int64_t samples = gx_split_total(&s->batch_split);
    char text[2][32];
    gx__profile_flops_say_world(out, s, steps, has_times);
    fprintf(out, "  parameters           %s, of which %s are trained\n",
            gx_report_rate((double)step->parameters, text[0]), gx_report_rate((double)step->trained, text[1]));
    fprintf(out,
            "  MACs, forward        %s of a step, %s of a micro-batch of all copies (%ld sample%s x %ld token%s)\n",
            gx_report_rate(macs, text[0]), gx_report_rate(macs / (double)o->gradient_accumulation_steps, text[1]),
            (long)samples, gx_text_s(samples), (long)o->seq_len, gx_text_s(o->seq_len));
    gx__profile_flops_say_flops(out, t, (double)steps);
    if (has_times) gx__profile_flops_say_times(out, s, t, (double)steps);
    fprintf(out, "  f: forward, b: backward%s; %% of all MACs%s\n",
            has_times ? ", with what is recomputed; ms, FLOP/s, B/s: the mean of the ranks" : "",
            has_times ? ", and of the step's time" : "");
}

// ---- as a watcher --------------------------------------------------------------------------------------------------

typedef struct {
    GxModules modules;
    GxRecorder recorder, *before; // before: the one to restore
    GxContext *g;
    double seconds, since; // of the steps; when the current one began
    int64_t steps;
    int is_open, is_on, is_done; // is_on: this step is profiled; is_done: it has been printed
} gx__ProfileFlops;

static void gx__profile_flops_heard(void *self, const GxEvent *e, int64_t times)
{
    gx_modules_add(&((gx__ProfileFlops *)self)->modules, e, times, 0);
}

static double gx__profile_flops_clock(void *self)
{
    gx_device_wait(((gx__ProfileFlops *)self)->g);
    return gx_seconds();
}

static void gx__profile_flops_timed(void *self, const GxEvent *e, double seconds)
{
    gx_modules_add(&((gx__ProfileFlops *)self)->modules, e, 1, seconds);
}

static void gx__profile_flops_open(gx__ProfileFlops *p, GxSession *s)
{
    const GxTrainRun *r = s->run;
    if (p->is_open) gx_modules_close(&p->modules);
    memset(p, 0, sizeof *p);
    p->is_open = gx_modules_open(&p->modules, &s->model, r->family->architecture(r->model_config, &s->model.head),
                                 &s->g->error) == GX_OK;
    p->g = s->g;
    p->recorder.totals_only = 1, p->recorder.user = p;
}

static void gx__profile_flops_close(gx__ProfileFlops *p)
{
    if (p->is_open) gx_modules_close(&p->modules);
    p->is_open = 0;
}

static void gx__profile_flops_push(gx__ProfileFlops *p, GxContext *g)
{
    p->before = p->recorder.also = g->recorder;
    g->recorder = &p->recorder;
}

static int gx__profile_flops_rehearses(const GxSession *s)
{
    return s->run->o.profile_flops > 0 && s->run->o.dry_run && !gx_options_is_inference(&s->run->o);
}

static void gx__profile_flops_rehearse(void *self, GxSession *s, GxContext *dry)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    if (!gx__profile_flops_rehearses(s)) return;
    gx__profile_flops_open(p, s);
    p->recorder.heard = gx__profile_flops_heard;
    if (p->is_open) gx__profile_flops_push(p, dry);
}

static void gx__profile_flops_rehearsed(void *self, GxSession *s, GxContext *dry)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    if (p->is_open && gx__profile_flops_rehearses(s)) dry->recorder = p->before, p->steps = 1;
}

// On all ranks, after the last step.
static void gx__profile_flops_report(gx__ProfileFlops *p, GxSession *s, int has_times)
{
    GxReport r;
    p->is_done = 1;
    if (p->steps) gx_modules_gather(s->g, &p->modules);
    if (gx_failed(s->g)) return;
    gx_report_begin(&r, s->g);
    if (!r.out) return;
    if (p->steps) {
        gx__profile_flops_say(r.out, s, &p->modules, p->steps, has_times);
        gx_profile_flops_print(&p->modules, p->steps, has_times, s->g->world, 1e12 * s->run->o.peak_tflops, r.out);
    } else {
        fprintf(r.out, "no profile of FLOPs: it begins with the third step, and this run had %ld\n",
                (long)(s->run->at.step - s->run->at.begun));
    }
    gx_report_end_as_is(&r, s->g);
}

static void gx__profile_flops_planned(void *self, GxSession *s)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    if (s->run->o.profile_flops > 0 && gx_options_is_inference(&s->run->o))
        GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
                "--profile_flops measures steps of a training, but with these options nothing is trained; leave it "
                "out");
    if (p->is_open && s->run->o.dry_run) gx__profile_flops_report(p, s, 0);
}

static void gx__profile_flops_opened(void *self, GxSession *s)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    if (s->run->o.profile_flops <= 0 || p->is_done || gx_options_is_inference(&s->run->o)) return;
    gx__profile_flops_open(p, s);
    p->recorder.clock = gx__profile_flops_clock, p->recorder.timed = gx__profile_flops_timed;
}

static void gx__profile_flops_begin(void *self, GxSession *s)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    const GxTrainRun *r = s->run;
    p->is_on =
        p->is_open && !p->is_done && p->steps < r->o.profile_flops && r->at.step >= r->at.begun + 2 && !gx_failed(s->g);
    if (!p->is_on) return;
    gx__profile_flops_push(p, s->g);
    p->since = gx__profile_flops_clock(p);
}

static void gx__profile_flops_end(void *self, GxSession *s, int is_computed)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    if (!p->is_on) return;
    gx_recorder_settle(&p->recorder);
    s->g->recorder = p->before;
    p->seconds += gx_seconds() - p->since;
    p->steps += is_computed;
}

static void gx__profile_flops_stepped(void *self, GxSession *s)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    if (!p->is_on || p->steps < s->run->o.profile_flops) return;
    gx_modules_add_rest(&p->modules, p->seconds);
    gx__profile_flops_report(p, s, 1);
}

static void gx__profile_flops_closed(void *self, GxSession *s)
{
    gx__ProfileFlops *p = (gx__ProfileFlops *)self;
    if (p->is_open && !p->is_done && !gx_failed(s->g) && !s->run->o.dry_run) {
        gx_modules_add_rest(&p->modules, p->seconds);
        gx__profile_flops_report(p, s, 1);
    }
    gx__profile_flops_close(p);
}

GxStatus gx_profile_flops_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__ProfileFlops), err);
    if (!w) return gx_error_code(err);
    w->rehearse = gx__profile_flops_rehearse, w->rehearsed = gx__profile_flops_rehearsed;
    w->planned = gx__profile_flops_planned, w->opened = gx__profile_flops_opened;
    w->begin = gx__profile_flops_begin, w->end = gx__profile_flops_end;
    w->stepped = gx__profile_flops_stepped, w->closed = gx__profile_flops_closed;
    return GX_OK;
}
#endif
