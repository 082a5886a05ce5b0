// plot_memory.h: --plot_memory FILE: a picture (SVG) of the memory that rank 0 needs in a step: for each action of its
// list, the bytes of each kind when the most was in use. It comes from the step on the device `none` from which the
// plan is made, so it also works with --dry_run, for models of any size.
//
// Activations are rows and slots as long as they are needed. They lie in the list's region, whose size is that of the
// worst moment; the part of it that is not in use is drawn apart. If weights or gradients are sharded, whole ones are
// there, too, and are counted as what they are.
#ifndef GX_PLOT_MEMORY_H
#define GX_PLOT_MEMORY_H
#include "session.h"
GX_BEGIN

// What is in use at the worst moment of an action, in bytes; the last one: of the region, not in use.
enum { GX_PLOT_MEMORY_KINDS = GX_MEM_KINDS + 1 };
typedef struct {
    int64_t bytes[GX_PLOT_MEMORY_KINDS];
} GxMemoryMoment;

GxStatus gx_plot_memory_watch(GxTrainRun *r, GxError *err); // a watcher

// Draws n moments, which are those of the list's actions.
GxStatus gx_plot_memory(const char *path, const char *title, const GxSteps *list, const GxMemoryMoment *moment, int n,
                        GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLOT_MEMORY_IMPLEMENTED)
#define GX_PLOT_MEMORY_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../parallel/steps_place.h"
#include "output.h"
#include "reporter.h"

// ---- the picture ---------------------------------------------------------------------------------------------------

enum {
    GX__PLOT_MEMORY_W = 960,
    GX__PLOT_MEMORY_H = 460,
    GX__PLOT_MEMORY_LEFT = 70,
    GX__PLOT_MEMORY_RIGHT = 20,
    GX__PLOT_MEMORY_TOP = 70,
    GX__PLOT_MEMORY_BOTTOM = 60,
    GX__PLOT_MEMORY_COLUMNS = 1000, // the most; further actions share one
    GX__PLOT_MEMORY_LABELS = 14
};
#define GX__PLOT_MEMORY_HEAD "<svg xmlns=\"http://www.w3.org/2000/svg\""

static const char *const gx__plot_memory_colors[GX_PLOT_MEMORY_KINDS] = {"#3366aa", "#dd6622", "#558855", "#eebb44",
                                                                         "#aa5599", "#777777", "#dddddd"};

static const char *gx__plot_memory_name(int kind)
{
    return kind < GX_MEM_KINDS ? gx_memory_kind_name((GxMemoryKind)kind) : "reserved, not in use";
}

typedef struct {
    const GxSteps *list;
    GxMemoryMoment *column; // the largest of the actions that share it, kind by kind of the action that has most
    int n, actions;
    double high, tick; // bytes
    FILE *out;
} gx__PlotMemory;

static int64_t gx__plot_memory_all(const GxMemoryMoment *m, int kinds)
{
    int64_t all = 0;
    for (int k = 0; k < kinds; k++) all += m->bytes[k];
    return all;
}

static double gx__plot_memory_x(const gx__PlotMemory *p, double column)
{
    const double width = GX__PLOT_MEMORY_W - GX__PLOT_MEMORY_LEFT - GX__PLOT_MEMORY_RIGHT;
    return GX__PLOT_MEMORY_LEFT + width * column / p->n;
}

static double gx__plot_memory_y(const gx__PlotMemory *p, double bytes)
{
    const double height = GX__PLOT_MEMORY_H - GX__PLOT_MEMORY_TOP - GX__PLOT_MEMORY_BOTTOM;
    return GX__PLOT_MEMORY_H - GX__PLOT_MEMORY_BOTTOM - height * bytes / p->high;
}

static void gx__plot_memory_columns(gx__PlotMemory *p, const GxMemoryMoment *moment, int n)
{
    for (int i = 0; i < n; i++) {
        GxMemoryMoment *c = &p->column[(int64_t)i * p->n / n];
        if (gx__plot_memory_all(&moment[i], GX_MEM_KINDS) >= gx__plot_memory_all(c, GX_MEM_KINDS)) *c = moment[i];
    }
    int64_t high = 1;
    for (int i = 0; i < p->n; i++) high = gx_max(high, gx__plot_memory_all(&p->column[i], GX_PLOT_MEMORY_KINDS));
    const double raw = (double)high / 5, power = pow(10, floor(log10(raw))), m = raw / power;
    p->tick = power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
    p->high = ceil((double)high / p->tick) * p->tick;
}

// The area of a kind, on top of those before it: steps, since an action has one moment.
static void gx__plot_memory_area(const gx__PlotMemory *p, int kind)
{
    int64_t most = 0;
    for (int i = 0; i < p->n; i++) most = gx_max(most, p->column[i].bytes[kind]);
    if (!most) return;
    fprintf(p->out, "<path fill=\"%s\" d=\"", gx__plot_memory_colors[kind]);
    for (int i = 0; i < p->n; i++) {
        const double y = gx__plot_memory_y(p, (double)gx__plot_memory_all(&p->column[i], kind + 1));
        fprintf(p->out, "%c%.1f %.1fH%.1f", i ? 'L' : 'M', gx__plot_memory_x(p, i), y, gx__plot_memory_x(p, i + 1));
    }
    for (int i = p->n - 1; i >= 0; i--) {
        const double y = gx__plot_memory_y(p, (double)gx__plot_memory_all(&p->column[i], kind));
        fprintf(p->out, "L%.1f %.1fH%.1f", gx__plot_memory_x(p, i + 1), y, gx__plot_memory_x(p, i));
    }
    fprintf(p->out, "Z\"/>\n");
}

static void gx__plot_memory_axes(const gx__PlotMemory *p)
{
    char size[GX_TEXT_SIZE], word[64];
    for (double at = 0; at <= p->high * 1.001; at += p->tick) {
        const double y = gx__plot_memory_y(p, at);
        fprintf(p->out,
                "<path d=\"M%d %.1fH%d\" stroke=\"#cccccc\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s"
                "</text>\n",
                GX__PLOT_MEMORY_LEFT, y, GX__PLOT_MEMORY_W - GX__PLOT_MEMORY_RIGHT, GX__PLOT_MEMORY_LEFT - 6, y + 4,
                gx_text_size((int64_t)at, size));
    }
    const int every = (int)gx_max(1, gx_ceil_div(p->actions, GX__PLOT_MEMORY_LABELS));
    for (int i = 0; i < p->actions; i += every)
        fprintf(p->out, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", gx__plot_memory_x(p, (double)i * p->n / p->actions),
                GX__PLOT_MEMORY_H - GX__PLOT_MEMORY_BOTTOM + 18, gx_steps_word(p->list, i, word));
    fprintf(p->out, "<text x=\"%d\" y=\"%d\">actions of the step, in their order</text>\n", GX__PLOT_MEMORY_LEFT,
            GX__PLOT_MEMORY_H - 14);
}

static void gx__plot_memory_legend(const gx__PlotMemory *p)
{
    int x = GX__PLOT_MEMORY_LEFT;
    for (int k = 0; k < GX_PLOT_MEMORY_KINDS; k++) {
        const char *name = gx__plot_memory_name(k);
        fprintf(p->out,
                "<rect x=\"%d\" y=\"44\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"54\">%s"
                "</text>\n",
                x, gx__plot_memory_colors[k], x + 17, name);
        x += 32 + 7 * (int)strlen(name);
    }
}

// A title with characters of markup replaced.
static void gx__plot_memory_title(FILE *out, const char *title)
{
    fprintf(out, "<text x=\"%d\" y=\"28\" font-size=\"16\">", GX__PLOT_MEMORY_LEFT);
    for (; *title; title++) fputc(strchr("<>&", *title) ? ' ' : *title, out);
    fprintf(out, "</text>\n");
}

static void gx__plot_memory_draw(gx__PlotMemory *p, const char *title)
{
    fprintf(p->out,
            GX__PLOT_MEMORY_HEAD " width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                                 "font-size=\"12\" fill=\"#222\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            GX__PLOT_MEMORY_W, GX__PLOT_MEMORY_H, GX__PLOT_MEMORY_W, GX__PLOT_MEMORY_H, GX__PLOT_MEMORY_W,
            GX__PLOT_MEMORY_H);
    gx__plot_memory_title(p->out, title);
    for (int k = 0; k < GX_PLOT_MEMORY_KINDS; k++) gx__plot_memory_area(p, k);
    gx__plot_memory_axes(p);
    gx__plot_memory_legend(p);
    fprintf(p->out, "</svg>\n");
}

GxStatus gx_plot_memory(const char *path, const char *title, const GxSteps *list, const GxMemoryMoment *moment, int n,
                        GxError *err)
{
    gx__PlotMemory p;
    char *text = NULL;
    size_t size = 0;
    memset(&p, 0, sizeof p);
    p.list = list, p.actions = n, p.n = (int)gx_max(1, gx_min(n, GX__PLOT_MEMORY_COLUMNS));
    p.column = (GxMemoryMoment *)calloc((size_t)p.n, sizeof *p.column);
    p.out = p.column ? open_memstream(&text, &size) : NULL;
    int is_whole = p.out != NULL;
    if (is_whole) {
        gx__plot_memory_columns(&p, moment, n);
        gx__plot_memory_draw(&p, title);
        is_whole = !ferror(p.out);
        is_whole = fclose(p.out) == 0 && is_whole;
    }
    const GxStatus status = is_whole ? gx_file_write(path, text, (int64_t)size, err)
                                     : GX_FAIL(err, GX_ERR_MEMORY, "no memory to draw %s", path);
    free(p.column);
    free(text);
    return status;
}

// ---- what is in use ------------------------------------------------------------------------------------------------

typedef struct {
    GxRecorder recorder, *before;
    GxArena *arena;         // of the dry run
    GxMemoryMoment *moment; // [actions]
    uint8_t *is_seen;       // [actions]
    int n;
    int64_t running; // the action; -1: none
} gx__PlotMemoryWatch;

static void gx__plot_memory_close(gx__PlotMemoryWatch *w)
{
    free(w->moment), free(w->is_seen);
    memset(w, 0, sizeof *w);
}

static void gx__plot_memory_acted(void *self)
{
    gx__PlotMemoryWatch *w = (gx__PlotMemoryWatch *)self;
    if (w->running >= 0 && w->running < w->n) {
        memcpy(w->moment[w->running].bytes, w->arena->kind_top, sizeof w->arena->kind_top);
        w->is_seen[w->running] = 1;
    }
    w->running = w->recorder.action ? w->recorder.number : -1;
    gx_arena_watch(w->arena);
}

// The dry run leaves out micro-batches that are like the second one, and runs neighbouring NORMs as one: an action that
// it has not seen is like the last one of this kind and unit, or else like the one before.
static void gx__plot_memory_fill(gx__PlotMemoryWatch *w, const GxSteps *list)
{
    for (int i = 0; i < w->n; i++) {
        int like = i - 1;
        if (w->is_seen[i]) continue;
        for (int k = i - 1; k >= 0; k--)
            if (list->action[k].what == list->action[i].what && list->action[k].unit == list->action[i].unit) {
                like = k;
                break;
            }
        if (like >= 0) w->moment[i] = w->moment[like];
    }
}

// Divides the region, which is in `activations` and, beyond region_rows, in `communication`, by what is in use of it.
static GxStatus gx__plot_memory_divide(gx__PlotMemoryWatch *w, const GxRunner *r, GxError *err)
{
    const int units = r->m->units;
    const GxStepsBytes bytes = {r->bytes, r->bytes + units, r->bytes + 2 * units, r->bytes + 3 * units,
                                r->bytes + 4 * units};
    GxStepsAlive *alive = (GxStepsAlive *)calloc((size_t)w->n + 1, sizeof *alive);
    if (!alive) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a picture of %d actions", w->n);
    const GxStatus status = gx_steps_alive(&r->train, &bytes, alive, err);
    const int64_t rows = gx_round_up(r->region_rows, GX_ALIGN), others = r->region_bytes - r->region_rows;
    for (int i = 0; i < w->n && status == GX_OK; i++) {
        int64_t *b = w->moment[i].bytes;
        b[GX_MEM_ACTIVATIONS] += alive[i].rows - rows;
        b[GX_MEM_COMM] -= others > 0 ? gx_round_up(others, GX_ALIGN) : 0;
        b[GX_MEM_WEIGHTS] += alive[i].weights, b[GX_MEM_GRADS] += alive[i].grads;
        b[GX_MEM_KINDS] = r->region_bytes - alive[i].rows - alive[i].weights - alive[i].grads;
    }
    free(alive);
    return status;
}

// ---- as a watcher --------------------------------------------------------------------------------------------------

static int gx__plot_memory_is_wanted(const GxSession *s)
{
    return s->run->o.plot_memory[0] && gx_session_is_first(s) && s->runner.train.n > 0;
}

static void gx__plot_memory_rehearse(void *self, GxSession *s, GxContext *dry)
{
    gx__PlotMemoryWatch *w = (gx__PlotMemoryWatch *)self;
    if (!gx__plot_memory_is_wanted(s)) return;
    gx__plot_memory_close(w);
    w->n = s->runner.train.n, w->arena = dry->arena, w->running = -1;
    w->moment = (GxMemoryMoment *)calloc((size_t)w->n, sizeof *w->moment);
    w->is_seen = (uint8_t *)calloc((size_t)w->n, 1);
    if (!w->moment || !w->is_seen) {
        GX_FAIL(&dry->error, GX_ERR_MEMORY, "no memory for a picture of %d actions", w->n);
        return;
    }
    w->recorder.totals_only = 1, w->recorder.user = w, w->recorder.acted = gx__plot_memory_acted;
    w->before = w->recorder.also = dry->recorder;
    dry->recorder = &w->recorder;
}

static void gx__plot_memory_rehearsed(void *self, GxSession *s, GxContext *dry)
{
    gx__PlotMemoryWatch *w = (gx__PlotMemoryWatch *)self;
    if (!gx__plot_memory_is_wanted(s) || dry->recorder != &w->recorder) return;
    dry->recorder = w->before;
    gx__plot_memory_fill(w, &s->runner.train);
    gx__plot_memory_divide(w, &s->runner, &dry->error);
}

static GxStatus gx__plot_memory_save(const gx__PlotMemoryWatch *w, const GxSession *s, GxError *err)
{
    const char *path = s->run->o.plot_memory;
    int64_t most = 0;
    int at = 0;
    char title[300], word[64], size[GX_TEXT_SIZE];
    for (int i = 0; i < w->n; i++) {
        const int64_t all = gx__plot_memory_all(&w->moment[i], GX_MEM_KINDS);
        if (all > most) most = all, at = i;
    }
    snprintf(title, sizeof title, "%s, %s: memory in a step of rank 0 (of %d), at most %s, in %s", s->run->family->name,
             s->run->task->name, s->g->world, gx_text_size(most, size), gx_steps_word(&s->runner.train, at, word));
    GX_TRY(gx_plot_memory(path, title, &s->runner.train, w->moment, w->n, err));
    gx_report(s->g, "memory in a step: %s\n", path);
    return GX_OK;
}

// In a dry run the picture is what was asked for; otherwise it waits for the output folder.
static void gx__plot_memory_planned(void *self, GxSession *s)
{
    gx__PlotMemoryWatch *w = (gx__PlotMemoryWatch *)self;
    const GxTrainOptions *o = &s->run->o;
    if (!o->plot_memory[0] || !gx_session_is_first(s)) return;
    if (!w->moment)
        GX_FAIL(&s->g->error, GX_ERR_ARGUMENT,
                "--plot_memory draws a step of a training, but with these options nothing is trained; leave it out");
    else if (gx_output_check_replaceable("--plot_memory", o->plot_memory, o->output_dir, GX__PLOT_MEMORY_HEAD,
                                         "a picture", &s->g->error) == GX_OK &&
             o->dry_run)
        gx__plot_memory_save(w, s, &s->g->error);
}

static void gx__plot_memory_opened(void *self, GxSession *s)
{
    gx__PlotMemoryWatch *w = (gx__PlotMemoryWatch *)self;
    GxError disk = GX_ZERO;
    if (!w->moment || !gx__plot_memory_is_wanted(s)) return;
    if (gx__plot_memory_save(w, s, &disk) != GX_OK)
        gx_log(&s->g->log, GX_LOG_WARNING, "the picture of the memory could not be drawn: %s", disk.message);
}

static void gx__plot_memory_closed(void *self, GxSession *s)
{
    (void)s;
    gx__plot_memory_close((gx__PlotMemoryWatch *)self);
}

GxStatus gx_plot_memory_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__PlotMemoryWatch), err);
    if (!w) return gx_error_code(err);
    w->rehearse = gx__plot_memory_rehearse, w->rehearsed = gx__plot_memory_rehearsed;
    w->planned = gx__plot_memory_planned, w->opened = gx__plot_memory_opened, w->closed = gx__plot_memory_closed;
    return GX_OK;
}
#endif
