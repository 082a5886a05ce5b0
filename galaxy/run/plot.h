// plot.h: draws the loss curve of a run, from its log.jsonl, to an SVG file.
//
// It uses the log, not memory, so that the picture of a resumed run shows the whole run. If a step was logged twice,
// the later line is used.
#ifndef GX_PLOT_H
#define GX_PLOT_H
#include "../io/json.h"
GX_BEGIN

// Lines with "step" and "loss" make the curve, lines with "step" and "eval_loss" the dots (except those of another
// step's weights); {"bigram_bits_per_byte": 2.5}, or another task's baseline, is a dashed line, converted to the unit
// of the axis (nats per token, where a token is a byte). unit: of the loss; NULL: the axis is labeled "loss" only. The
// axes begin and end with a tick, one of which is the last step; the last values are written beside the ends of the
// lines.
GxStatus gx_plot_loss(const char *log_path, const char *svg_path, const char *title, const char *unit, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLOT_IMPLEMENTED)
#define GX_PLOT_IMPLEMENTED
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GX__PLOT_LOG_CAP = 1 << 30,
    GX__PLOT_W = 760,
    GX__PLOT_H = 420,
    GX__PLOT_RIGHT = 72, // room for the last values
    GX__PLOT_TOP = 58,
    GX__PLOT_BOTTOM = 48,
    GX__PLOT_LETTER = 7, // width of a digit
    GX__PLOT_LINE = 13,  // height of one
    GX__PLOT_LABEL = 40  // bytes of a tick's
};

typedef struct {
    double step, loss;
} gx__PlotPoint;
typedef struct {
    gx__PlotPoint *train, *eval;
    int trains, evals;
    double baseline; // NAN: there is none
    char baseline_name[40];
    double step_max, low, high, tick; // low and high are multiples of tick
    int left;                         // where the axis is: right of the widest label
} gx__Plot;

static void gx__plot_put(gx__PlotPoint *list, int *n, double step, double loss)
{
    while (*n > 0 && list[*n - 1].step >= step) --*n; // a resumed run computed these steps again
    list[*n].step = step;
    list[(*n)++].loss = loss;
}

// 1: a number to draw. Those that no training has would leave no room for others.
static int gx__plot_has(const GxJson *loss)
{
    return gx_json_type(loss) == GX_JSON_REAL && fabs(gx_json_double(loss)) < 1e100;
}

// "bigram_bits_per_byte": the line of "bigram".
static void gx__plot_baseline(gx__Plot *p, const GxJsonMember *m)
{
    static const char unit[] = "_bits_per_byte";
    const int64_t n = gx_text_stem(m->key, unit);
    if (n <= 0 || !gx__plot_has(m->value)) return;
    p->baseline = gx_json_double(m->value) * log(2.0);
    snprintf(p->baseline_name, sizeof p->baseline_name, "%.*s", (int)gx_min(n, 39), m->key);
    for (char *c = p->baseline_name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = ' '; // also what would be markup
}

static void gx__plot_line(gx__Plot *p, const char *line, int64_t bytes, const char *path)
{
    GxError ignored = GX_ZERO; // a torn last line is skipped
    GxJson *json;
    if (gx_json_parse(&json, line, bytes, path, &ignored) != GX_OK) return;
    const GxJson *loss = gx_json_get(json, "loss"), *eval = gx_json_get(json, "eval_loss");
    double step = gx_json_double(gx_json_get(json, "step"));
    for (GxJsonMember m = GX_ZERO; !gx_json_get(json, "step") && gx_json_next(json, &m);) gx__plot_baseline(p, &m);
    if (gx__plot_has(loss)) gx__plot_put(p->train, &p->trains, step, gx_json_double(loss));
    if (gx__plot_has(eval) && !gx_json_get(json, "weights_of_step"))
        gx__plot_put(p->eval, &p->evals, step, gx_json_double(eval));
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

// The smallest of 1, 2, 5 times a power of ten that cuts `range` into at most `pieces`.
static double gx__plot_tick(double range, int pieces)
{
    double raw = range / pieces, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static void gx__plot_extent(gx__Plot *p)
{
    p->low = INFINITY, p->high = -INFINITY, p->step_max = 1;
    for (int i = 0; i < p->trains + p->evals; i++) {
        gx__PlotPoint q = i < p->trains ? p->train[i] : p->eval[i - p->trains];
        p->low = fmin(p->low, q.loss), p->high = fmax(p->high, q.loss), p->step_max = fmax(p->step_max, q.step);
    }
    p->low = fmin(p->low, p->baseline), p->high = fmax(p->high, p->baseline); // of a NAN and a number: the number
    if (p->low > p->high) p->low = 0, p->high = 1;                            // nothing was logged
    const double least = 1e-9 * fmax(fabs(p->low), fabs(p->high));            // below it, ticks would look alike
    if (p->high - p->low <= least) p->low -= fmax(0.5, least), p->high += fmax(0.5, least);
    p->tick = gx__plot_tick(p->high - p->low, 6);
    p->low = floor(p->low / p->tick) * p->tick, p->high = ceil(p->high / p->tick) * p->tick;
}

// Writes a tick's label, with enough digits to tell it from the ticks beside it. Returns its length.
static int gx__plot_label(double y, double tick, char text[GX__PLOT_LABEL])
{
    const int decimals = -(int)floor(log10(tick) + 1e-9), digits = y == 0 ? 0 : (int)floor(log10(fabs(y))) + decimals;
    if (decimals > 6 || fabs(y) >= 1e7) return snprintf(text, GX__PLOT_LABEL, "%.*e", (int)gx_max(digits, 0), y);
    return snprintf(text, GX__PLOT_LABEL, "%.*f", (int)gx_max(decimals, 0), y);
}

static double gx__plot_x(const gx__Plot *p, double step)
{
    return p->left + step / p->step_max * (GX__PLOT_W - p->left - GX__PLOT_RIGHT);
}
static double gx__plot_y(const gx__Plot *p, double loss)
{
    return GX__PLOT_TOP + (p->high - loss) / (p->high - p->low) * (GX__PLOT_H - GX__PLOT_TOP - GX__PLOT_BOTTOM);
}

static void gx__plot_loss_axis(gx__Plot *p, const char *unit, FILE *out)
{
    const double dy = p->tick, first = round(p->low / dy), last = round(p->high / dy);
    char text[GX__PLOT_LABEL];
    int longest = 0;
    for (double i = first; i <= last; i++) longest = (int)gx_max(longest, gx__plot_label(i * dy, dy, text));
    p->left = (int)gx_max(64, 36 + longest * GX__PLOT_LETTER);
    for (double i = first; i <= last; i++) {
        const double y = gx__plot_y(p, i * dy);
        gx__plot_label(i * dy, dy, text);
        fprintf(out,
                "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" "
                "fill=\"#555\">%s</text>\n",
                p->left, y, GX__PLOT_W - GX__PLOT_RIGHT, p->left - 8, y + 4, text);
    }
    fprintf(out, "<text x=\"16\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\" transform=\"rotate(-90 16 %d)\">loss",
            GX__PLOT_H / 2, GX__PLOT_H / 2);
    if (unit) fprintf(out, " (%s)", unit);
    fprintf(out, "</text>\n");
}

static void gx__plot_step(const gx__Plot *p, double step, FILE *out)
{
    const int bottom = GX__PLOT_H - GX__PLOT_BOTTOM;
    const double x = gx__plot_x(p, step);
    fprintf(out,
            "<path d=\"M%.1f %dv5\" stroke=\"#999\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" "
            "fill=\"#555\">%.0f</text>\n",
            x, bottom, x, bottom + 18, step);
}

static void gx__plot_step_axis(const gx__Plot *p, FILE *out)
{
    const double dx = fmax(1, gx__plot_tick(p->step_max, 8)); // there are no fractions of steps
    const double room = GX__PLOT_LETTER * (snprintf(NULL, 0, "%.0f", p->step_max) + 2);
    for (double x = 0; x < p->step_max && gx__plot_x(p, x) + room < gx__plot_x(p, p->step_max); x += dx)
        gx__plot_step(p, x, out);
    gx__plot_step(p, p->step_max, out);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">step</text>\n",
            (GX__PLOT_W - GX__PLOT_RIGHT + p->left) / 2, GX__PLOT_H - 10);
}

// Text between tags, with characters of markup escaped.
static void gx__plot_text(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '<') fputs("&lt;", out);
        else if (*text == '>') fputs("&gt;", out);
        else if (*text == '&') fputs("&amp;", out);
        else fputc(*text, out);
}

static void gx__plot_begin(FILE *out, const char *title)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            GX__PLOT_W, GX__PLOT_H, GX__PLOT_W, GX__PLOT_H);
    fprintf(out, "<text x=\"64\" y=\"22\" font-size=\"15\" fill=\"#222\">");
    gx__plot_text(out, title);
    fprintf(out, "</text>\n");
}

static void gx__plot_curves(const gx__Plot *p, FILE *out)
{
    if (isfinite(p->baseline))
        fprintf(out, "<path d=\"M%d %.1fH%d\" stroke=\"#558855\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"/>\n",
                p->left, gx__plot_y(p, p->baseline), GX__PLOT_W - GX__PLOT_RIGHT);
    fprintf(out, "<polyline fill=\"none\" stroke=\"#3366aa\" stroke-width=\"1.5\" points=\"");
    for (int i = 0; i < p->trains; i++)
        fprintf(out, "%.1f,%.1f ", gx__plot_x(p, p->train[i].step), gx__plot_y(p, p->train[i].loss));
    fprintf(out, "\"/>\n");
    if (p->trains == 1) // a line of one point shows nothing
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"#3366aa\"/>\n", gx__plot_x(p, p->train[0].step),
                gx__plot_y(p, p->train[0].loss));
    for (int i = 0; i < p->evals; i++)
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#dd6622\"/>\n", gx__plot_x(p, p->eval[i].step),
                gx__plot_y(p, p->eval[i].loss));
}

static void gx__plot_value(double y, double loss, const char *color, FILE *out)
{
    char text[GX__PLOT_LABEL];
    snprintf(text, sizeof text, fabs(loss) < 999 ? "%#.4g" : "%.4g",
             loss); // with trailing zeros, if there is a point
    fprintf(out, "<text x=\"%d\" y=\"%.1f\" fill=\"%s\">%s</text>\n", GX__PLOT_W - GX__PLOT_RIGHT + 8, y + 4, color,
            text);
}

// The last value of each curve, at its height; two that would touch are moved apart.
static void gx__plot_last_values(const gx__Plot *p, FILE *out)
{
    const double train = p->trains ? p->train[p->trains - 1].loss : p->high,
                 eval = p->evals ? p->eval[p->evals - 1].loss : p->high;
    double y = gx__plot_y(p, train), z = gx__plot_y(p, eval);
    const double apart = (GX__PLOT_LINE - fabs(y - z)) / 2;
    if (p->trains && p->evals && apart > 0) y += y < z ? -apart : apart, z += y < z ? apart : -apart;
    const double below = fmax(fmax(y, z) - (GX__PLOT_H - GX__PLOT_BOTTOM - 4), 0); // where the steps are
    y -= below, z -= below;
    if (p->trains) gx__plot_value(y, train, "#3366aa", out);
    if (p->evals) gx__plot_value(z, eval, "#dd6622", out);
}

// On a line of its own, below the title.
static void gx__plot_legend(const gx__Plot *p, FILE *out)
{
    fprintf(out, "<path d=\"M64 40h24\" stroke=\"#3366aa\" stroke-width=\"2\"/><text x=\"94\" y=\"44\" "
                 "fill=\"#222\">training</text>\n");
    if (p->evals)
        fprintf(out, "<circle cx=\"174\" cy=\"40\" r=\"4\" fill=\"#dd6622\"/><text x=\"186\" y=\"44\" "
                     "fill=\"#222\">validation</text>\n");
    if (isfinite(p->baseline))
        fprintf(out,
                "<path d=\"M270 40h24\" stroke=\"#558855\" stroke-width=\"2\" stroke-dasharray=\"6 4\"/><text "
                "x=\"300\" y=\"44\" fill=\"#222\">%s: %.4g (%.3f bits per byte)</text>\n",
                p->baseline_name, p->baseline, p->baseline / log(2.0));
}

GxStatus gx_plot_loss(const char *log_path, const char *svg_path, const char *title, const char *unit, GxError *err)
{
    gx__Plot p = GX_ZERO;
    p.baseline = NAN;
    char *text = NULL;
    size_t bytes = 0;
    GxStatus status = gx__plot_read(&p, log_path, err);
    FILE *out = status == GX_OK ? open_memstream(&text, &bytes) : NULL;
    if (out) {
        gx__plot_extent(&p);
        gx__plot_begin(out, title);
        gx__plot_loss_axis(&p, unit, out);
        gx__plot_step_axis(&p, out);
        gx__plot_curves(&p, out);
        gx__plot_last_values(&p, out);
        gx__plot_legend(&p, out);
        fprintf(out, "</svg>\n");
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
