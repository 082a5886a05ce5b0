// simulate_print.h: what a simulation (simulate.h) found, for people: a table, and a picture of the schedule with time
// to scale.
//
//     GX_TRY(gx_simulate(&s, &p, err));
//     gx_simulation_print(stdout, &p, &s);
//     FILE *svg = fopen("schedule.svg", "w");
//     gx_simulation_draw(svg, &s, 0);
#ifndef GX_SIMULATE_PRINT_H
#define GX_SIMULATE_PRINT_H
#include "simulate.h"
#include <stdio.h>
GX_BEGIN

// The mesh, the window, where its time goes in each rank of the pipeline, memory, and what slow ranks, jitter and
// failures cost.
void gx_simulation_print(FILE *out, const GxSimulationSpec *p, const GxSimulation *s);

// An SVG: a row for each rank of the pipeline; boxes are its forwards, backwards, weight gradients and recomputations,
// of neighbouring units of a micro-batch together; what is blank is communication or waiting. It ends where more than
// `boxes` (0: 400) would have begun.
void gx_simulation_draw(FILE *svg, const GxSimulation *s, int boxes);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SIMULATE_PRINT_IMPLEMENTED)
#define GX_SIMULATE_PRINT_IMPLEMENTED
#include <math.h>
#include <stdlib.h>

// ---- the table -----------------------------------------------------------------------------------------------------

static void gx__simulation_print_mesh(FILE *out, const GxSimulationSpec *p, const GxSimulation *s)
{
    fprintf(out, "%ld rank%s: pp %d x dp_replicate %ld x dp_shard %ld x tp %ld; %s, %d micro-batch%s, ZeRO %d; %s\n",
            (long)s->ranks, s->ranks == 1 ? "" : "s", s->pp, (long)gx_max(p->dp_replicate, 1),
            (long)gx_max(p->dp_shard, 1), (long)gx_max(p->tp, 1), gx_order_info(p->steps.order)->name,
            p->steps.micro_batches, p->steps.micro_batches == 1 ? "" : "es", p->steps.sharded,
            p->overlaps ? "communication beside computation (an estimate)" : "communication blocks");
    fprintf(out, "window %.4g s", s->window);
    if (s->tokens_per_second[0] > 0) fprintf(out, ", %.0f tokens/s", s->tokens_per_second[0]);
    fprintf(out, "\n\n");
}

// Columns that are 0 in every row are left out.
static void gx__simulation_print_stages(FILE *out, const GxSimulationSpec *p, const GxSimulation *s)
{
    double all[GX_SPENTS] = {0};
    for (int r = 0; r < s->pp; r++)
        for (int k = 0; k < GX_SPENTS; k++) all[k] += s->stage[r].spent[k];
    fprintf(out, "rank");
    for (int k = 0; k < GX_SPENTS; k++)
        if (all[k] > 0) fprintf(out, " %10s", gx_spent_name(k));
    fprintf(out, "  weights gradients   moments      rows  memory GB%s\n", p->only_window ? "" : "  if slow");
    for (int r = 0; r < s->pp; r++) {
        const GxSimulatedStage *t = &s->stage[r];
        fprintf(out, "%4d", r);
        for (int k = 0; k < GX_SPENTS; k++)
            if (all[k] > 0) fprintf(out, " %9.1f%%", 100 * t->spent[k] / s->window);
        fprintf(out, " %8.2f %9.2f %9.2f %9.2f %10.2f", t->weights / 1e9, t->grads / 1e9, t->moments / 1e9,
                t->rows / 1e9, (t->weights + t->grads + t->moments + t->rows) / 1e9);
        if (!p->only_window) fprintf(out, " %+7.1f%%", 100 * t->if_slow);
        fprintf(out, "\n");
    }
}

static void gx__simulation_print_interval(FILE *out, double seconds)
{
    if (seconds < 120) fprintf(out, "%.3g s", seconds);
    else if (seconds < 7200) fprintf(out, "%.3g min", seconds / 60);
    else fprintf(out, "%.3g h", seconds / 3600);
}

static void gx__simulation_print_chance(FILE *out, const GxSimulationSpec *p, const GxSimulation *s)
{
    const double factor = p->straggler > 0 ? p->straggler : 1.3;
    fprintf(out, "\n");
    if (!p->only_window)
        fprintf(out, "slow ranks: one at 1/%.3g of the speed makes the window longer as above, a whole copy %+.1f%%\n",
                factor, 100 * s->if_copy_slow);
    if (p->jitter > 0 && !p->only_window)
        fprintf(out, "jitter of %.3g%% of each computation: %+.1f%%\n", 100 * p->jitter, 100 * s->jitter);
    if (p->rank_jitter > 0 && !p->only_window)
        fprintf(out, "jitter of %.3g%% of each rank and window: %+.1f%%, the slowest of %ld\n", 100 * p->rank_jitter,
                100 * s->rank_jitter, (long)s->ranks);
    fprintf(out, "failures: one every ");
    gx__simulation_print_interval(out, s->failures.between);
    if (s->failures.interval > 0) {
        fprintf(out, "; save every ");
        gx__simulation_print_interval(out, s->failures.interval);
    }
    fprintf(out, "; %.1f%% of the time trains\n", 100 * s->failures.trains);
    fprintf(out, "expected, with jitter and failures: %.4g s a window", s->expected);
    if (s->tokens_per_second[1] > 0) fprintf(out, ", %.0f tokens/s", s->tokens_per_second[1]);
    fprintf(out, "\n");
}

void gx_simulation_print(FILE *out, const GxSimulationSpec *p, const GxSimulation *s)
{
    gx__simulation_print_mesh(out, p, s);
    gx__simulation_print_stages(out, p, s);
    gx__simulation_print_chance(out, p, s);
}

// ---- the picture ---------------------------------------------------------------------------------------------------

enum {
    GX__DRAW_BOXES = 400,
    GX__DRAW_LEFT = 66,
    GX__DRAW_TOP = 66,
    GX__DRAW_WIDTH = 1100, // of the time that is shown
    GX__DRAW_LANE = 24,
    GX__DRAW_STEP = 30,  // from row to row
    GX__DRAW_LETTER = 7, // the width of a digit
    GX__DRAW_RIGHT = 30,
    GX__DRAW_BELOW = 70
};

typedef struct {
    int what, micro_batch;
    int last; // unit
    double begin, end;
} gx__DrawBox;

static const struct {
    int what;
    const char *name, *fill, *stroke;
} gx__draw_kinds[] = {{GX_DO_FORWARD, "forward", "#d5e7f7", "#1f6fb2"},
                      {GX_DO_BACKWARD, "backward", "#d6efdf", "#1d8a4e"},
                      {GX_DO_WEIGHT, "weight gradients", "#fbe3cc", "#c2660c"},
                      {GX_DO_RECOMPUTE, "forward again", "#e4dcf3", "#6b4fa0"}};
enum { GX__DRAW_KINDS = sizeof gx__draw_kinds / sizeof *gx__draw_kinds };

static int gx__draw_kind(int what) // -1: not a box
{
    for (int k = 0; k < GX__DRAW_KINDS; k++)
        if (gx__draw_kinds[k].what == what) return k;
    return -1;
}

// The box that begins with action *i of a list, and all that follow without a pause and belong to it; *i: the next
// action that may begin one. Returns 0 at the end of the list.
static int gx__draw_next(const GxSimulation *s, int rank, int *i, gx__DrawBox *box)
{
    const GxSteps *list = &s->list[rank];
    const double *begin = s->begin + s->first[rank], *end = s->end + s->first[rank];
    int is_open = 0;
    for (; *i < list->n; ++*i) {
        const GxAction *a = &list->action[*i];
        if (gx__draw_kind(a->what) < 0 || end[*i] <= begin[*i]) continue;
        const int goes_on = is_open && a->what == box->what && a->micro_batch == box->micro_batch &&
                            abs(a->unit - box->last) == 1 && begin[*i] - box->end <= 1e-9 * s->window;
        if (is_open && !goes_on) return 1;
        if (!is_open) box->what = a->what, box->micro_batch = a->micro_batch, box->begin = begin[*i];
        box->last = a->unit, box->end = end[*i], is_open = 1;
    }
    return is_open;
}

static int gx__draw_count(const GxSimulation *s, double until)
{
    int n = 0;
    gx__DrawBox box;
    for (int r = 0; r < s->pp; r++)
        for (int i = 0; gx__draw_next(s, r, &i, &box) && box.begin < until; n++) {}
    return n;
}

// Until when at most `most` boxes begin.
static double gx__draw_until(const GxSimulation *s, int most)
{
    double low = 0, high = s->window;
    if (gx__draw_count(s, high) <= most) return high;
    for (int i = 0; i < 50; i++) {
        const double middle = (low + high) / 2;
        *(gx__draw_count(s, middle) <= most ? &low : &high) = middle;
    }
    return low > 0 ? low : s->window;
}

static void gx__draw_box(FILE *svg, const gx__DrawBox *box, int rank, double scale, double until)
{
    const int kind = gx__draw_kind(box->what), y = GX__DRAW_TOP + rank * GX__DRAW_STEP;
    const double x = GX__DRAW_LEFT + box->begin * scale, width = (fmin(box->end, until) - box->begin) * scale;
    fprintf(svg,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"%s\" stroke-width=\"0.7\"/>\n",
            x, y, width, GX__DRAW_LANE, gx__draw_kinds[kind].fill, gx__draw_kinds[kind].stroke);
    if (width < GX__DRAW_LETTER * (box->micro_batch < 10 ? 1 : box->micro_batch < 100 ? 2 : 3) + 2) return;
    fprintf(svg, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\" fill=\"#222\">%d</text>\n", x + width / 2,
            y + GX__DRAW_LANE / 2 + 4, box->micro_batch);
}

static void gx__draw_axis(FILE *svg, int y, double scale, double until)
{
    const double raw = until / 10, power = pow(10, floor(log10(raw))), m = raw / power,
                 tick = power * (m <= 1   ? 1
                                 : m <= 2 ? 2
                                 : m <= 5 ? 5
                                          : 10);
    fprintf(svg, "<path d=\"M%d %dh%d\" stroke=\"#888\"/>\n", GX__DRAW_LEFT, y, GX__DRAW_WIDTH);
    for (int i = 0; i * tick <= until * (1 + 1e-9); i++)
        fprintf(svg,
                "<path d=\"M%.1f %dv5\" stroke=\"#888\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" "
                "fill=\"#555\">%.6g s</text>\n",
                GX__DRAW_LEFT + i * tick * scale, y, GX__DRAW_LEFT + i * tick * scale, y + 18, i * tick);
}

static void gx__draw_keys(FILE *svg, int y)
{
    int x = GX__DRAW_LEFT;
    for (int k = 0; k < GX__DRAW_KINDS; k++, x += 160)
        fprintf(svg,
                "<rect x=\"%d\" y=\"%d\" width=\"16\" height=\"12\" fill=\"%s\" stroke=\"%s\"/><text x=\"%d\" y=\"%d\" "
                "fill=\"#444\">%s</text>\n",
                x, y - 10, gx__draw_kinds[k].fill, gx__draw_kinds[k].stroke, x + 22, y, gx__draw_kinds[k].name);
    fprintf(svg,
            "<text x=\"%d\" y=\"%d\" fill=\"#444\">numbers are micro-batches; blank: communication, waiting</text>\n",
            x, y);
}

void gx_simulation_draw(FILE *svg, const GxSimulation *s, int boxes)
{
    const double until = gx__draw_until(s, boxes > 0 ? boxes : GX__DRAW_BOXES),
                 scale = until > 0 ? GX__DRAW_WIDTH / until : 0;
    const int bottom = GX__DRAW_TOP + s->pp * GX__DRAW_STEP, width = GX__DRAW_LEFT + GX__DRAW_WIDTH + GX__DRAW_RIGHT,
              height = bottom + GX__DRAW_BELOW;
    fprintf(svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
    fprintf(svg, "<text x=\"12\" y=\"26\" font-size=\"17\" fill=\"#222\">A window of %.4g s on %ld ranks", s->window,
            (long)s->ranks);
    if (until < s->window) fprintf(svg, ", the first %.4g s of it", until);
    fprintf(svg, "</text>\n");
    for (int r = 0; r < s->pp; r++) {
        const int y = GX__DRAW_TOP + r * GX__DRAW_STEP;
        gx__DrawBox box;
        fprintf(svg,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f7f7f9\"/><text x=\"12\" y=\"%d\" "
                "fill=\"#222\">rank %d</text>\n",
                GX__DRAW_LEFT, y, GX__DRAW_WIDTH, GX__DRAW_LANE, y + GX__DRAW_LANE / 2 + 4, r);
        for (int i = 0; gx__draw_next(s, r, &i, &box) && box.begin < until;) gx__draw_box(svg, &box, r, scale, until);
    }
    if (until > 0) gx__draw_axis(svg, bottom + 4, scale, until);
    gx__draw_keys(svg, bottom + 50);
    fprintf(svg, "</svg>\n");
}
#endif
