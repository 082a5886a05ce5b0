// plot_confusion.h: draws a confusion matrix, from its counts (task/confusion.h), to an SVG file.
//
// A row is a true class, a column a predicted one. A cell's darkness is the square root of its share of the row, so
// that rare confusions are visible. The diagonal, the correct predictions, has another colour. With up to
// GX_PLOT_COUNTS classes cells show their counts, with up to GX_PLOT_NAMES rows and columns have names; with more
// classes the size of the picture no longer grows.
#ifndef GX_PLOT_CONFUSION_H
#define GX_PLOT_CONFUSION_H
#include "../io/files.h"
GX_BEGIN

enum { GX_PLOT_COUNTS = 12, GX_PLOT_NAMES = 40 };

// count [classes][classes]: [truth][prediction]; name [classes].
GxStatus gx_plot_confusion(const int64_t *count, int classes, const char *const *name, const char *svg_path,
                           const char *title, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLOT_CONFUSION_IMPLEMENTED)
#define GX_PLOT_CONFUSION_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__MATRIX_TOP = 78, GX__MATRIX_RIGHT = 28, GX__MATRIX_LETTER = 7, GX__MATRIX_NAME = 24 }; // pixels; bytes

typedef struct {
    const int64_t *count;
    const char *const *name;
    int classes;
    double cell;   // its width and height
    int left, top; // where the cells begin
    int names;     // pixels of the longest; 0: they are left out
} gx__Matrix;

// Text in a picture: characters of markup are escaped, control characters become question marks.
static void gx__matrix_text(FILE *out, const char *text, size_t most)
{
    char cut[200];
    gx_text_cut(text, cut, most < sizeof cut ? most : sizeof cut);
    gx_text_clean(cut);
    for (const char *p = cut; *p; p++) {
        if (*p == '<') fputs("&lt;", out);
        else if (*p == '&') fputs("&amp;", out);
        else fputc(*p == '\n' || *p == '\t' ? ' ' : *p, out);
    }
}

static void gx__matrix_layout(gx__Matrix *m)
{
    char cut[GX__MATRIX_NAME];
    for (int c = 0; c < m->classes && m->classes <= GX_PLOT_NAMES; c++) {
        gx_text_cut(m->name[c], cut, sizeof cut);
        m->names = (int)gx_max(m->names, GX__MATRIX_LETTER * gx_text_columns(cut, (int64_t)strlen(cut)));
    }
    m->cell = m->classes <= 6                ? 64
              : m->classes <= GX_PLOT_COUNTS ? 48
              : m->classes <= GX_PLOT_NAMES  ? 16
                                             : 640.0 / m->classes;
    m->left = 48 + m->names;
    m->top = GX__MATRIX_TOP + (m->names > m->cell - 6 ? m->names : 14); // names that are too wide are rotated
}

static void gx__matrix_begin(const gx__Matrix *m, FILE *out, const char *title)
{
    const double side = m->cell * m->classes;
    const int title_width = 40 + 8 * gx_text_columns(title, (int64_t)strlen(title));
    const int w = (int)gx_max((int64_t)side + m->left + GX__MATRIX_RIGHT, title_width), h = (int)side + m->top + 24;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            w, h, w, h);
    fprintf(out, "<text x=\"16\" y=\"22\" font-size=\"15\" fill=\"#222\">");
    gx__matrix_text(out, title, 200);
    fprintf(out, "</text>\n");
    fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">taken for</text>\n",
            m->left + side / 2, GX__MATRIX_TOP - 20);
    fprintf(out,
            "<text x=\"20\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#555\" transform=\"rotate(-90 20 "
            "%.1f)\">truth</text>\n",
            m->top + side / 2, m->top + side / 2);
}

static void gx__matrix_names(const gx__Matrix *m, FILE *out)
{
    const int is_upright = m->names > m->cell - 6;
    for (int c = 0; c < m->classes && m->names; c++) {
        const double middle = (c + 0.5) * m->cell, x = m->left + middle, y = m->top - 8;
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#222\">", m->left - 8, m->top + middle + 4);
        gx__matrix_text(out, m->name[c], GX__MATRIX_NAME);
        if (is_upright)
            fprintf(out, "</text><text x=\"%.1f\" y=\"%.1f\" fill=\"#222\" transform=\"rotate(-90 %.1f %.1f)\">", x + 4,
                    y, x + 4, y);
        else fprintf(out, "</text><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#222\">", x, y);
        gx__matrix_text(out, m->name[c], GX__MATRIX_NAME);
        fprintf(out, "</text>\n");
    }
}

// dark: 0 is white, 1 the full colour.
static void gx__matrix_colour(char out[8], double dark, const int full[3])
{
    int rgb[3];
    for (int k = 0; k < 3; k++) rgb[k] = (int)(255 + dark * (full[k] - 255) + 0.5);
    snprintf(out, 8, "#%02x%02x%02x", (unsigned)rgb[0] & 255, (unsigned)rgb[1] & 255, (unsigned)rgb[2] & 255);
}

static void gx__matrix_row(const gx__Matrix *m, FILE *out, int truth)
{
    static const int right[3] = {0x33, 0x66, 0xaa}, wrong[3] = {0xdd, 0x66, 0x22};
    const int64_t *count = m->count + (int64_t)truth * m->classes;
    int64_t all = 0;
    char colour[8];
    for (int p = 0; p < m->classes; p++) all += count[p];
    for (int p = 0; p < m->classes; p++) {
        const double x = m->left + p * m->cell, y = m->top + truth * m->cell,
                     dark = all ? sqrt((double)count[p] / (double)all) : 0;
        if (count[p] == 0 && m->classes > GX_PLOT_COUNTS) continue; // white on white
        gx__matrix_colour(colour, dark, p == truth ? right : wrong);
        fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>", x, y, m->cell, m->cell,
                colour);
        if (m->classes <= GX_PLOT_COUNTS)
            fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\">%ld</text>", x + m->cell / 2,
                    y + m->cell / 2 + 4,
                    dark > 0.6 ? "white"
                    : count[p] ? "#222"
                               : "#999",
                    (long)count[p]);
        fprintf(out, "\n");
    }
}

// Lines between the cells, where there is room for them, and around all of them.
static void gx__matrix_grid(const gx__Matrix *m, FILE *out)
{
    const double side = m->cell * m->classes;
    for (int c = 0; c <= m->classes; c++) {
        if (m->classes > GX_PLOT_NAMES && c > 0 && c < m->classes) continue;
        fprintf(out, "<path d=\"M%d %.1fh%.1fM%.1f %dv%.1f\" stroke=\"#ddd\"/>\n", m->left, m->top + c * m->cell, side,
                m->left + c * m->cell, m->top, side);
    }
}

GxStatus gx_plot_confusion(const int64_t *count, int classes, const char *const *name, const char *svg_path,
                           const char *title, GxError *err)
{
    gx__Matrix m = GX_ZERO;
    char *text = NULL;
    size_t bytes = 0;
    m.count = count, m.name = name, m.classes = classes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to draw %s", svg_path);
    gx__matrix_layout(&m);
    gx__matrix_begin(&m, out, title);
    gx__matrix_names(&m, out);
    for (int truth = 0; truth < classes; truth++) gx__matrix_row(&m, out, truth);
    gx__matrix_grid(&m, out);
    fprintf(out, "</svg>\n");
    fclose(out);
    const GxStatus status = text ? gx_file_write(svg_path, text, (int64_t)bytes, err)
                                 : GX_FAIL(err, GX_ERR_MEMORY, "no memory to draw %s", svg_path);
    free(text);
    return status;
}
#endif
