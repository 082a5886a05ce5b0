// reporter.h: prints lines for people: to the context's reporter, on rank 0. (Warnings and errors go to the logger:
// base/log.h. What a training run prints is in report.h; programs read log.jsonl instead.)
//
//     static void to_window(void *user, const char *text) { ... }
//     GxReporter reporter = {to_window, window, NULL};
//     g->reporter = &reporter;                      // gx_launch installs one that writes to stdout
//     gx_report(g, "saved %s\n", folder);
//
// Lines are wrapped to the width that the reporter gives, but to no less than 40 columns; to 80 if it gives none.
// Continuation lines are indented. A word that is longer than a line, and text that is reported as it is
// (gx_report_end_as_is), are not wrapped. Without a reporter a program is silent.
#ifndef GX_REPORTER_H
#define GX_REPORTER_H
#include "../base/context.h"
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

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REPORTER_IMPLEMENTED)
#define GX_REPORTER_IMPLEMENTED
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"

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
#endif
