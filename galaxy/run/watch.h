// watch.h: reports the progress of something long, such as a validation of all held-out samples, with a line every few
// seconds. Anything shorter prints nothing.
//
//     GxWatch w = gx_watch(g, "validation", "samples", n);
//     for (i < n) { …; gx_watch_done(&w, i + 1); }     // "validation: 1,200 of 5,000 samples, 24%, 1m12s left"
#ifndef GX_WATCH_H
#define GX_WATCH_H
#include "../base/context.h"
GX_BEGIN

typedef struct {
    GxContext *g;
    const char *what, *counted;
    int64_t all;
    double began, said; // seconds as of gx_seconds
    double every;       // seconds between two lines: 5
} GxWatch;

GxWatch gx_watch(GxContext *g, const char *what, const char *counted, int64_t all);
void gx_watch_done(GxWatch *w, int64_t done); // done: the number so far, at least 1

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WATCH_IMPLEMENTED)
#define GX_WATCH_IMPLEMENTED
#include "../base/text.h"
#include "metrics.h"
#include "reporter.h"

GxWatch gx_watch(GxContext *g, const char *what, const char *counted, int64_t all)
{
    const double now = gx_seconds();
    const GxWatch w = {g, what, counted, all, now, now, 5};
    return w;
}

void gx_watch_done(GxWatch *w, int64_t done)
{
    const double now = gx_seconds();
    char some[40], all[40], left[32];
    if (now - w->said < w->every || done >= w->all) return;
    w->said = now;
    gx_report(w->g, "%s: %s of %s %s, %.0f%%, %s left\n", w->what, gx_text_grouped((double)done, some),
              gx_text_grouped((double)w->all, all), w->counted, 100 * (double)done / (double)w->all,
              gx_duration_text((now - w->began) / (double)done * (double)(w->all - done), left));
}
#endif
