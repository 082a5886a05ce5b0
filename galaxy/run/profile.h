// profile.h: how long each operation of a step takes: a table of operations with calls, time, FLOP/s and bytes per
// second, for one rank. It is the recorder (base/recorder.h) with a clock, so it works with every family, mode and
// device.
//
//     GxProfile p;
//     gx_profile_open(&p, g);
//     gx_profile_begin(&p);          // ... a step ...
//     gx_profile_end(&p);            // again and again
//     gx_profile_print(&p, stdout);
//
// It waits for the device before it reads the clock. So while a profile is taken, operations run one at a time; only
// collectives that were started run alongside others, and their time is that of their start and of their wait. The time
// of an operation ends when the next one begins, so it includes what the host does in between.
#ifndef GX_PROFILE_H
#define GX_PROFILE_H
#include "../ops/memory.h"
#include <stdio.h>
GX_BEGIN

enum { GX_PROFILE_ROWS = 96 }; // the most different names; a device has some 70 operations

typedef struct {
    const char *name;
    int64_t calls;
    double seconds, flops, bytes;
} GxProfileRow;

typedef struct {
    GxContext *g;
    GxRecorder recorder, *before; // before: the recorder to restore in gx_profile_end
    GxProfileRow row[GX_PROFILE_ROWS];
    int n;
    int64_t steps;
    double seconds, since; // total of the steps; when the current step began
} GxProfile;

void gx_profile_open(GxProfile *p, GxContext *g); // needs no close
void gx_profile_begin(GxProfile *p);              // replaces g->recorder until gx_profile_end
void gx_profile_end(GxProfile *p);

// Prints the mean over the steps, of which there must be at least one: the slowest operations first, and those below
// half a percent together in one line.
void gx_profile_print(const GxProfile *p, FILE *out);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PROFILE_IMPLEMENTED)
#define GX_PROFILE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

static double gx__profile_clock(void *profile)
{
    gx_device_wait(((GxProfile *)profile)->g);
    return gx_seconds();
}

static void gx__profile_add(void *profile, const GxEvent *e, double seconds)
{
    GxProfile *p = (GxProfile *)profile;
    int i = 0;
    while (i < p->n && strcmp(p->row[i].name, e->name)) i++;
    if (i == GX_PROFILE_ROWS) i--; // more names than rows: the last row sums up the rest
    if (i == p->n) p->row[p->n++].name = e->name;
    GxProfileRow *r = &p->row[i];
    r->calls++, r->seconds += seconds, r->flops += e->flops, r->bytes += (double)e->bytes;
}

void gx_profile_open(GxProfile *p, GxContext *g)
{
    memset(p, 0, sizeof *p);
    p->g = g;
    p->recorder.totals_only = 1;
    p->recorder.clock = gx__profile_clock, p->recorder.timed = gx__profile_add, p->recorder.user = p;
}

void gx_profile_begin(GxProfile *p)
{
    p->before = p->g->recorder;
    p->g->recorder = &p->recorder;
    p->since = gx__profile_clock(p);
}

void gx_profile_end(GxProfile *p)
{
    gx_recorder_settle(&p->recorder);
    p->g->recorder = p->before;
    p->seconds += gx_seconds() - p->since;
    p->steps++;
}

static int gx__profile_by_time(const void *a, const void *b)
{
    const double x = ((const GxProfileRow *)a)->seconds, y = ((const GxProfileRow *)b)->seconds;
    return (x < y) - (x > y);
}

static void gx__profile_print_row(const GxProfile *p, const GxProfileRow *r, FILE *out)
{
    const double steps = (double)p->steps;
    fprintf(out, "  %-32s %8.1f %10.2f %6.1f%%", r->name, (double)r->calls / steps, r->seconds / steps * 1e3,
            100 * r->seconds / p->seconds);
    if (r->flops > 0 && r->seconds > 0) fprintf(out, " %10.1f", r->flops / r->seconds / 1e9);
    else fprintf(out, " %10s", "");
    if (r->bytes > 0 && r->seconds > 0) fprintf(out, " %8.1f", r->bytes / r->seconds / 1e9);
    fputc('\n', out);
}

void gx_profile_print(const GxProfile *p, FILE *out)
{
    GxProfileRow row[GX_PROFILE_ROWS], few = {"less than 0.5% each", 0, 0, 0, 0},
                                       outside = {"between steps' operations", 0, 0, 0, 0};
    memcpy(row, p->row, sizeof row);
    qsort(row, (size_t)p->n, sizeof *row, gx__profile_by_time);
    fprintf(out, "where a step's time goes, on this rank, of %ld step%s: %.2f ms each\n", (long)p->steps,
            p->steps == 1 ? "" : "s", p->seconds / (double)p->steps * 1e3);
    fprintf(out, "  %-32s %8s %10s %7s %10s %8s\n", "", "calls", "ms", "share", "GFLOP/s", "GB/s");
    outside.seconds = p->seconds;
    for (int i = 0; i < p->n; i++) {
        outside.seconds -= row[i].seconds;
        if (row[i].seconds >= 0.005 * p->seconds) gx__profile_print_row(p, &row[i], out);
        else few.calls += row[i].calls, few.seconds += row[i].seconds;
    }
    if (few.calls) gx__profile_print_row(p, &few, out);
    if (outside.seconds >= 0.005 * p->seconds) gx__profile_print_row(p, &outside, out);
}
#endif
