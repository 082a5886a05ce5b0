// watcher.h: the watchers of a run: tables of functions that are called when something has happened. Progress lines,
// the log, event files, the choice of the best validation, profiles and caches are watchers; the trainer knows none of
// them.
//
//     static void cheer(void *self, GxSession *s) { gx_report(s->g, "another step\n"); }
//     GxStatus my_watch(GxTrainRun *r, GxError *err)
//     {
//         GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(Mine), err);   // w->self: zero, freed with the list
//         if (w) w->stepped = cheer;
//         return gx_error_code(err);
//     }
//
// They are called in the order in which they were added, on every rank, so that they may communicate; `logged` only on
// rank 0. Errors go to the session's context. A watcher changes a run only through the fields and hooks that run and
// session have for it (GxSessionExtra), or, if it measures, by a recorder that it sets between `begin` and `end`.
#ifndef GX_WATCHER_H
#define GX_WATCHER_H
#include "../base/context.h"
#include "metrics.h"
GX_BEGIN

typedef struct GxSession GxSession; // session.h

typedef struct { // what a validation has measured
    GxMetric metric[GX_MAX_METRICS];
    int metrics;   // 0: there was no validation
    int64_t count; // the number of tokens, or whatever the task counts
    int is_last;   // 1: the last one of a run, or that of --evaluate; 0: one during training
} GxValidation;

typedef struct { // any of them may be NULL
    // Around the step that the plan of memory is made from, on a context whose device computes nothing. They may set
    // its recorder, which passes everything on to the one before (`also`), and restore it.
    void (*rehearse)(void *self, GxSession *s, GxContext *dry);
    void (*rehearsed)(void *self, GxSession *s, GxContext *dry);
    void (*planned)(void *self, GxSession *s); // before memory is allocated; the last call of a dry run
    void (*opened)(void *self, GxSession *s);  // before its first step, or before it shows what the model does
    // Around the computation of a step: they may set the context's recorder, and restore it. `end` is called in the
    // opposite order. is_computed 0: all ranks stop, and nothing was computed.
    void (*begin)(void *self, GxSession *s);
    void (*end)(void *self, GxSession *s, int is_computed);
    void (*stepped)(void *self, GxSession *s); // after a step, which may still be running on the device
    void (*logged)(void *self, GxSession *s, const GxProgress *line); // on rank 0: figures of the steps since the last
    void (*validated)(void *self, GxSession *s, const GxValidation *v);
    void (*saved)(void *self, GxSession *s); // after a checkpoint was due, whether or not it could be written
    // After the last validation and sample of the session, or after an error, possibly without `opened`.
    void (*closed)(void *self, GxSession *s);
    void *self;
} GxWatcher;

enum { GX_WATCHERS_MOST = 16 };
typedef struct {
    GxWatcher watcher[GX_WATCHERS_MOST];
    int n, are_closed;
} GxWatchers;

// The next watcher of the list, with no functions, and `bytes` of zeros as its self. NULL, with an error: no room.
GxWatcher *gx_watchers_add(GxWatchers *w, size_t bytes, GxError *err);
void gx_watchers_free(GxWatchers *w);

void gx_watchers_rehearse(const GxWatchers *w, GxSession *s, GxContext *dry);
void gx_watchers_rehearsed(const GxWatchers *w, GxSession *s, GxContext *dry);
void gx_watchers_planned(const GxWatchers *w, GxSession *s, const GxError *err); // stops at an error
void gx_watchers_opened(GxWatchers *w, GxSession *s, const GxError *err);        // stops at an error
void gx_watchers_begin(const GxWatchers *w, GxSession *s);
void gx_watchers_end(const GxWatchers *w, GxSession *s, int is_computed);
void gx_watchers_stepped(const GxWatchers *w, GxSession *s);
void gx_watchers_logged(const GxWatchers *w, GxSession *s, const GxProgress *line);
void gx_watchers_validated(const GxWatchers *w, GxSession *s, const GxValidation *v);
void gx_watchers_saved(const GxWatchers *w, GxSession *s);
void gx_watchers_closed(GxWatchers *w, GxSession *s); // once per session

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WATCHER_IMPLEMENTED)
#define GX_WATCHER_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

GxWatcher *gx_watchers_add(GxWatchers *w, size_t bytes, GxError *err)
{
    void *self = w->n < GX_WATCHERS_MOST ? calloc(1, bytes ? bytes : 1) : NULL;
    if (!self) {
        GX_FAIL(err, GX_ERR_MEMORY, "no room for watcher %d of a run", w->n + 1);
        return NULL;
    }
    memset(&w->watcher[w->n], 0, sizeof *w->watcher);
    w->watcher[w->n].self = self;
    return &w->watcher[w->n++];
}

void gx_watchers_free(GxWatchers *w)
{
    for (int i = 0; i < w->n; i++) free(w->watcher[i].self);
    memset(w, 0, sizeof *w);
}

void gx_watchers_rehearse(const GxWatchers *w, GxSession *s, GxContext *dry)
{
    for (int i = 0; i < w->n; i++)
        if (w->watcher[i].rehearse) w->watcher[i].rehearse(w->watcher[i].self, s, dry);
}

void gx_watchers_rehearsed(const GxWatchers *w, GxSession *s, GxContext *dry)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (w->watcher[i].rehearsed) w->watcher[i].rehearsed(w->watcher[i].self, s, dry);
}

void gx_watchers_planned(const GxWatchers *w, GxSession *s, const GxError *err)
{
    for (int i = 0; i < w->n && !gx_error_code(err); i++)
        if (w->watcher[i].planned) w->watcher[i].planned(w->watcher[i].self, s);
}

void gx_watchers_begin(const GxWatchers *w, GxSession *s)
{
    for (int i = 0; i < w->n; i++)
        if (w->watcher[i].begin) w->watcher[i].begin(w->watcher[i].self, s);
}

void gx_watchers_end(const GxWatchers *w, GxSession *s, int is_computed)
{
    for (int i = w->n - 1; i >= 0; i--)
        if (w->watcher[i].end) w->watcher[i].end(w->watcher[i].self, s, is_computed);
}

void gx_watchers_opened(GxWatchers *w, GxSession *s, const GxError *err)
{
    w->are_closed = 0;
    for (int i = 0; i < w->n && !gx_error_code(err); i++)
        if (w->watcher[i].opened) w->watcher[i].opened(w->watcher[i].self, s);
}

void gx_watchers_stepped(const GxWatchers *w, GxSession *s)
{
    for (int i = 0; i < w->n; i++)
        if (w->watcher[i].stepped) w->watcher[i].stepped(w->watcher[i].self, s);
}

void gx_watchers_logged(const GxWatchers *w, GxSession *s, const GxProgress *line)
{
    for (int i = 0; i < w->n; i++)
        if (w->watcher[i].logged) w->watcher[i].logged(w->watcher[i].self, s, line);
}

void gx_watchers_validated(const GxWatchers *w, GxSession *s, const GxValidation *v)
{
    for (int i = 0; i < w->n; i++)
        if (w->watcher[i].validated) w->watcher[i].validated(w->watcher[i].self, s, v);
}

void gx_watchers_saved(const GxWatchers *w, GxSession *s)
{
    for (int i = 0; i < w->n; i++)
        if (w->watcher[i].saved) w->watcher[i].saved(w->watcher[i].self, s);
}

void gx_watchers_closed(GxWatchers *w, GxSession *s)
{
    for (int i = 0; i < w->n && !w->are_closed; i++)
        if (w->watcher[i].closed) w->watcher[i].closed(w->watcher[i].self, s);
    w->are_closed = 1;
}
#endif
