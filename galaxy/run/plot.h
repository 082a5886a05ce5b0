// plot.h: the loss curve of a run, drawn from its log.jsonl into an SVG file.
//
// From the log and not from memory, so that the picture of a resumed run shows all of it. Where a step was logged
// twice, the later line counts.
#ifndef GX_PLOT_H
#define GX_PLOT_H
#include "../io/json.h"
GX_BEGIN

// Lines with "step" and "loss" are the curve, lines with "step" and "eval_loss" the dots.
GxStatus gx_plot_loss(const char *log_path, const char *svg_path, const char *title, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLOT_IMPLEMENTED)
#define GX_PLOT_IMPLEMENTED
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GX__PLOT_LOG_CAP = 1 << 30,
    GX__PLOT_W = 760,
    GX__PLOT_H = 420,
    GX__PLOT_LEFT = 64,
    GX__PLOT_RIGHT = 20,
    GX__PLOT_TOP = 44,
    GX__PLOT_BOTTOM = 48
};

typedef struct {
    double step, loss;
} gx__PlotPoint;
typedef struct {
    gx__PlotPoint *train, *eval;
    int trains, evals;
    double step_max, low, high;
} gx__Plot;

static void gx__plot_put(gx__PlotPoint *list, int *n, double step, double loss)
{
    while (*n > 0 && list[*n - 1].step >= step) --*n; // a resumed run went over this again
    list[*n].step = step;
    list[(*n)++].loss = loss;
}

static int gx__plot_has(const GxJson *loss) // numbers that no training has would leave no room for others
{
    return gx_json_type(loss) == GX_JSON_REAL && fabs(gx_json_double(loss)) < 1e100;
}

static void gx__plot_line(gx__Plot *p, const char *line, int64_t bytes, const char *path)
{
    GxError ignored = GX_ZERO; // a torn last line is no reason to have no picture
    GxJson *json;
    if (gx_json_parse(&json, line, bytes, path, &ignored) != GX_OK) return;
    const GxJson *loss = gx_json_get(json, "loss"), *eval = gx_json_get(json, "eval_loss");
    double step = gx_json_double(gx_json_get(json, "step"));
    if (gx__plot_has(loss)) gx__plot_put(p->train, &p->trains, step, gx_json_double(loss));
    if (gx__plot_has(eval)) gx__plot_put(p->eval, &p->evals, step, gx_json_double(eval));
    gx_json_free(json);
}

static GxStatus gx__plot_read(gx__Plot *p, const char *path, GxError *err)
{
    char *text;
    int64_t bytes, lines = 1;
    GX_TRY(gx_file_read(path, GX__PLOT_LOG_CAP, &text, &bytes, err));
    for (int64_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    p->train = (gx__PlotPoint *)calloc((size_t)lines, sizeof *p->train);
    p->eval = (gx__PlotPoint *)calloc((size_t)lines, sizeof *p->eval);
    for (char *line = text; p->train && p->eval && *line;) {
        size_t n = strcspn(line, "\n");
        gx__plot_line(p, line, (int64_t)n, path);
        line += n + (line[n] == '\n');
    }
    free(text);
    return p->train && p->eval ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a plot of %ld points", (long)lines);
}

static void gx__plot_extent(gx__Plot *p)
{
    p->low = INFINITY, p->high = -INFINITY, p->step_max = 1;
    for (int i = 0; i < p->trains + p->evals; i++) {
        gx__PlotPoint q = i < p->trains ? p->train[i] : p->eval[i - p->trains];
        p->low = fmin(p->low, q.loss), p->high = fmax(p->high, q.loss), p->step_max = fmax(p->step_max, q.step);
    }
    if (p->low > p->high) p->low = p->high = 0; // there are no points
    const double size = fmax(fabs(p->low), fabs(p->high)), margin = fmax(0.5, 1e-6 * size);
    if (p->high - p->low < 1e-6 * fmax(size, 1)) p->low -= margin, p->high += margin; // or ticks would be one number
}

// The smallest of 1, 2, 5 times a power of ten that cuts `range` into at most `pieces`.
static double gx__plot_tick(double range, int pieces)
{
    double raw = range / pieces, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static double gx__plot_x(const gx__Plot *p, double step)
{
    return GX__PLOT_LEFT + step / p->step_max * (GX__PLOT_W - GX__PLOT_LEFT - GX__PLOT_RIGHT);
}
static double gx__plot_y(const gx__Plot *p, double loss)
{
    return GX__PLOT_TOP + (p->high - loss) / (p->high - p->low) * (GX__PLOT_H - GX__PLOT_TOP - GX__PLOT_BOTTOM);
}

static void gx__plot_axes(const gx__Plot *p, FILE *out, const char *title)
{
    double dy = gx__plot_tick(p->high - p->low, 6), dx = gx__plot_tick(p->step_max, 8);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n",
            GX__PLOT_W, GX__PLOT_H, GX__PLOT_W, GX__PLOT_H);
    fprintf(out,
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\" "
            "fill=\"#222\">%s</text>\n",
            GX__PLOT_LEFT, title);
    for (double y = ceil(p->low / dy) * dy; y <= p->high; y += dy)
        fprintf(out,
                "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" "
                "fill=\"#555\">%.*f</text>\n",
                GX__PLOT_LEFT, gx__plot_y(p, y), GX__PLOT_W - GX__PLOT_RIGHT, GX__PLOT_LEFT - 8, gx__plot_y(p, y) + 4,
                dy < 0.1 ? 2 : 1, y);
    for (double x = 0; x <= p->step_max; x += dx)
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%.0f</text>\n", gx__plot_x(p, x),
                GX__PLOT_H - GX__PLOT_BOTTOM + 18, x);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">step</text>\n",
            (GX__PLOT_W + GX__PLOT_LEFT) / 2, GX__PLOT_H - 10);
    fprintf(out,
            "<text x=\"16\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\" transform=\"rotate(-90 16 %d)\">loss (nats "
            "per token)</text>\n",
            GX__PLOT_H / 2, GX__PLOT_H / 2);
}

static void gx__plot_curves(const gx__Plot *p, FILE *out)
{
    fprintf(out, "<polyline fill=\"none\" stroke=\"#3366aa\" stroke-width=\"1.5\" points=\"");
    for (int i = 0; i < p->trains; i++)
        fprintf(out, "%.1f,%.1f ", gx__plot_x(p, p->train[i].step), gx__plot_y(p, p->train[i].loss));
    fprintf(out, "\"/>\n");
    for (int i = 0; i < p->evals; i++)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#dd6622\"/>\n", gx__plot_x(p, p->eval[i].step),
                gx__plot_y(p, p->eval[i].loss));
    fprintf(out,
            "<path d=\"M%d 40h24\" stroke=\"#3366aa\" stroke-width=\"2\"/><text x=\"%d\" y=\"44\" "
            "fill=\"#222\">training</text><circle cx=\"%d\" cy=\"40\" r=\"4\" fill=\"#dd6622\"/><text x=\"%d\" "
            "y=\"44\" fill=\"#222\">validation</text>\n</svg>\n",
            GX__PLOT_W - 220, GX__PLOT_W - 190, GX__PLOT_W - 110, GX__PLOT_W - 98);
}

GxStatus gx_plot_loss(const char *log_path, const char *svg_path, const char *title, GxError *err)
{
    gx__Plot p = GX_ZERO;
    char *text = NULL;
    size_t bytes = 0;
    GxStatus status = gx__plot_read(&p, log_path, err);
    FILE *out = status == GX_OK ? open_memstream(&text, &bytes) : NULL;
    if (out) {
        gx__plot_extent(&p);
        gx__plot_axes(&p, out, title);
        gx__plot_curves(&p, out);
        fclose(out);
        status = gx_file_write(svg_path, text, (int64_t)bytes, err);
    } else if (status == GX_OK) {
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory to draw %s", svg_path);
    }
    free(text);
    free(p.train);
    free(p.eval);
    return status;
}
#endif
