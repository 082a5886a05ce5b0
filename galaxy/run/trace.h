// trace.h: --trace FILE: what every rank does in some steps, event by event, in Chrome's trace event format, which
// https://ui.perfetto.dev and chrome://tracing show. ("Trace Event Format", Google, 2016; the form with an object.)
//
//     a process    a rank: "rank 3 (host)"
//     its threads  "compute": the step, in it the actions of its list (F3.1, B0), in these the operations;
//                  "communication": collectives and waits; above it, from its start to its wait, what is in flight
//     args         unit, site, dims, FLOPs and bytes; of a collective elements, ranks and bytes sent
//
// Every rank keeps its events in memory, and counts time from a barrier before the first of these steps, so clocks of
// several machines need not agree. After the last one, rank 0 asks one rank after another for its part, already as
// text, and writes the file: no shared disk is needed. What cannot be written is a warning, and training goes on. As
// with profiles, operations run one at a time while a trace is taken, and the first two steps are left out.
#ifndef GX_TRACE_H
#define GX_TRACE_H
#include "session.h"
GX_BEGIN

GxStatus gx_trace_watch(GxTrainRun *r, GxError *err); // a watcher

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TRACE_IMPLEMENTED)
#define GX_TRACE_IMPLEMENTED
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../comm/comm.h"
#include "../ops/memory.h"
#include "output.h"

#define GX__TRACE_HEAD "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"

enum { GX__TRACE_STEP = 0, GX__TRACE_ACTION, GX__TRACE_EVENT };
typedef struct {
    int what;
    double begin, end; // seconds since the barrier
    int64_t number;    // of the step; of the action in its list
    GxEvent e;
} gx__TraceSlice;

typedef struct {
    gx__TraceSlice *slice; // as they begin; an action before its events
    int64_t n, capacity;
    int64_t action, step; // the slice of the action that is running, and of the step; -1: none
    GxRecorder recorder, *before;
    GxContext *g;
    double origin; // when the barrier was passed
    int64_t steps;
    int is_wanted, is_on, is_done;
    int lost; // 1: memory ran out
} gx__Trace;

// ---- what happens --------------------------------------------------------------------------------------------------

static gx__TraceSlice *gx__trace_add(gx__Trace *t, int what, double begin, double end, int64_t number)
{
    if (t->n == t->capacity && !t->lost) {
        const int64_t capacity = t->capacity ? 2 * t->capacity : 1024;
        gx__TraceSlice *grown = (gx__TraceSlice *)realloc(t->slice, (size_t)capacity * sizeof *grown);
        if (grown) t->slice = grown, t->capacity = capacity;
        else t->lost = 1;
    }
    if (t->lost) return NULL;
    gx__TraceSlice *s = &t->slice[t->n++];
    memset(s, 0, sizeof *s);
    s->what = what, s->begin = begin, s->end = end, s->number = number;
    return s;
}

static double gx__trace_clock(void *self)
{
    const gx__Trace *t = (const gx__Trace *)self;
    gx_device_wait(t->g);
    return gx_seconds() - t->origin;
}

static void gx__trace_timed(void *self, const GxEvent *e, double seconds)
{
    gx__Trace *t = (gx__Trace *)self;
    const double begin = t->recorder.since;
    gx__TraceSlice *s = gx__trace_add(t, GX__TRACE_EVENT, begin, begin + seconds, 0);
    if (s) s->e = *e;
}

static void gx__trace_acted(void *self)
{
    gx__Trace *t = (gx__Trace *)self;
    const double now = gx__trace_clock(t);
    if (t->action >= 0) t->slice[t->action].end = now;
    t->action = -1;
    if (!t->recorder.action || !gx__trace_add(t, GX__TRACE_ACTION, now, now, t->recorder.number)) return;
    t->action = t->n - 1;
}

// ---- in JSON -------------------------------------------------------------------------------------------------------

enum { GX__TRACE_COMPUTE = 0, GX__TRACE_COMMUNICATION };

// Times are whole nanoseconds, so that a slice within another one stays within it.
static void gx__trace_slice(FILE *out, int rank, int thread, const char *name, const char *kind,
                            const gx__TraceSlice *s)
{
    const int64_t begin = (int64_t)(1e9 * s->begin), end = (int64_t)(1e9 * s->end), lasts = gx_max(0, end - begin);
    fprintf(out,
            "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %ld.%03ld, \"dur\": %ld.%03ld, \"name\": \"%s\", "
            "\"cat\": \"%s\"",
            rank, thread, (long)(begin / 1000), (long)(begin % 1000), (long)(lasts / 1000), (long)(lasts % 1000), name,
            kind);
}

static void gx__trace_args(FILE *out, const GxEvent *e)
{
    fprintf(out, ", \"args\": {\"unit\": %d, \"site\": \"%s\"", e->unit, e->site ? e->site : "");
    if (e->kind == GX_EVENT_OP) {
        int n = 4;
        while (n > 0 && !e->dims.n[n - 1]) n--;
        fprintf(out, ", \"dims\": [");
        for (int i = 0; i < n; i++) fprintf(out, "%s%ld", i ? ", " : "", (long)e->dims.n[i]);
        fprintf(out, "], \"flops\": %.0f, \"bytes\": %ld", e->flops, (long)e->bytes);
    } else if (e->kind == GX_EVENT_COLLECTIVE) {
        fprintf(out, ", \"elements\": %ld, \"dtype\": \"%s\", \"ranks\": %d, \"bytes sent\": %ld", (long)e->elements,
                gx_dtype_name(e->dtype), e->members, (long)e->bytes);
    }
    fprintf(out, "}},\n");
}

// The start of the collective that slice i waits for. NULL: it is not in the trace.
static const gx__TraceSlice *gx__trace_start(const gx__Trace *t, int64_t i)
{
    const int64_t ticket = t->slice[i].e.ticket;
    while (--i >= 0)
        if (t->slice[i].what == GX__TRACE_EVENT && t->slice[i].e.kind == GX_EVENT_COLLECTIVE &&
            t->slice[i].e.ticket == ticket)
            return &t->slice[i];
    return NULL;
}

// A collective from its start to the end of its wait: it may overlap others, so it is no slice of a thread.
static void gx__trace_flight(FILE *out, int rank, const gx__TraceSlice *start, const gx__TraceSlice *wait)
{
    const double at[2] = {start->begin, wait->end};
    for (int k = 0; k < 2; k++) {
        const int64_t ns = (int64_t)(1e9 * at[k]);
        fprintf(out,
                "{\"ph\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %ld.%03ld, \"name\": \"%s\", \"cat\": "
                "\"in flight\", \"id\": \"%d.%ld\"},\n",
                k ? "e" : "b", rank, GX__TRACE_COMMUNICATION, (long)(ns / 1000), (long)(ns % 1000), start->e.name, rank,
                (long)start->e.ticket);
    }
}

static void gx__trace_event(const gx__Trace *t, FILE *out, int rank, int64_t i)
{
    const gx__TraceSlice *s = &t->slice[i], *start = NULL;
    char name[80];
    static const char *const kinds[] = {"operation", "collective", "wait"};
    if (s->e.kind == GX_EVENT_WAIT) start = gx__trace_start(t, i);
    if (s->e.kind == GX_EVENT_WAIT) snprintf(name, sizeof name, "wait for %s", start ? start->e.name : "a collective");
    else snprintf(name, sizeof name, "%s%s", s->e.ticket ? "start " : "", s->e.name);
    gx__trace_slice(out, rank, s->e.kind == GX_EVENT_OP ? GX__TRACE_COMPUTE : GX__TRACE_COMMUNICATION, name,
                    kinds[s->e.kind], s);
    gx__trace_args(out, &s->e);
    if (start) gx__trace_flight(out, rank, start, s);
}

static void gx__trace_write(const gx__Trace *t, FILE *out, const GxSession *s, int64_t i)
{
    const gx__TraceSlice *slice = &t->slice[i];
    const GxSteps *list = &s->runner.train;
    char name[64] = "action";
    const int rank = s->g->rank, is_step = slice->what == GX__TRACE_STEP, at = (int)slice->number;
    if (slice->what == GX__TRACE_EVENT) {
        gx__trace_event(t, out, rank, i);
        return;
    }
    if (is_step) snprintf(name, sizeof name, "step %ld", (long)slice->number);
    else if (at < list->n) gx_steps_word(list, at, name);
    if (!is_step && at < list->n && list->action[at].what == GX_DO_STEP) name[strcspn(name, "-")] = 0; // one by one
    gx__trace_slice(out, rank, GX__TRACE_COMPUTE, name, is_step ? "step" : "action", slice);
    fprintf(out, "},\n");
}

static void gx__trace_write_names(FILE *out, int rank)
{
    static const char *const threads[] = {"compute", "communication"};
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.') *c = '_';
    fprintf(out,
            "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": \"rank %d (%s)\"}},\n"
            "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}},\n",
            rank, rank, host, rank, rank);
    for (int k = 0; k < 2; k++)
        fprintf(out,
                "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}},\n",
                rank, k, threads[k]);
}

// This rank's slices [first, end) as text: free() it. NULL: no memory.
static char *gx__trace_text(const gx__Trace *t, const GxSession *s, int64_t first, int64_t end, int64_t *bytes)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    if (first == 0) gx__trace_write_names(out, s->g->rank);
    for (int64_t i = first; i < end; i++) gx__trace_write(t, out, s, i);
    const int is_whole = !ferror(out);
    *bytes = fclose(out) == 0 && is_whole ? (int64_t)size : 0;
    if (*bytes) return text;
    free(text);
    return NULL;
}

// ---- the file ------------------------------------------------------------------------------------------------------

typedef struct {
    GxNewFile file;
    int64_t at;
    GxError why; // why it cannot be written
} gx__TraceFile;

static void gx__trace_put(gx__TraceFile *f, const char *text, int64_t bytes)
{
    if (gx_error_code(&f->why) || !f->file.is_open) return;
    gx_file_write_at(f->file.fd, f->file.path, text, bytes, f->at, &f->why);
    f->at += bytes;
}

enum { GX__TRACE_CHUNK = 4096 }; // slices that are sent at once

// This rank's text from slice `first` on; *bytes 0: it has ended, below 0: there was no memory.
static char *gx__trace_part(const gx__Trace *t, const GxSession *s, int64_t first, int64_t *bytes)
{
    char *text = NULL;
    *bytes = 0;
    if (first < t->n) text = gx__trace_text(t, s, first, gx_min(t->n, first + GX__TRACE_CHUNK), bytes);
    if (first < t->n && !text) *bytes = -1;
    return text;
}

// Sends a part to rank 0, or receives it there from rank r.
static char *gx__trace_pass(GxContext *g, int r, char *text, int64_t *bytes)
{
    if (g->rank == r) gx_send(g, GX_AXIS_ALL, 0, bytes, 1, GX_I64);
    else gx_recv(g, GX_AXIS_ALL, r, bytes, 1, GX_I64);
    if (gx_failed(g) || *bytes <= 0) return text;
    if (g->rank == 0) text = (char *)malloc((size_t)*bytes);
    if (!text) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for the trace of rank %d", r);
    if (g->rank == r) gx_send(g, GX_AXIS_ALL, 0, text, *bytes, GX_U8);
    else gx_recv(g, GX_AXIS_ALL, r, text, *bytes, GX_U8);
    return text;
}

// Rank 0 writes the parts of one rank after another.
static void gx__trace_gather(gx__Trace *t, GxSession *s, gx__TraceFile *f)
{
    GxContext *g = s->g;
    for (int r = 0; r < g->world; r++) {
        if (g->rank != 0 && g->rank != r) continue;
        int64_t bytes = 1;
        for (int64_t first = 0; bytes > 0 && !gx_failed(g); first += GX__TRACE_CHUNK) {
            char *text = g->rank == r ? gx__trace_part(t, s, first, &bytes) : NULL;
            if (r) text = gx__trace_pass(g, r, text, &bytes);
            if (g->rank == 0 && bytes > 0 && !gx_failed(g)) gx__trace_put(f, text, bytes);
            if (g->rank == 0 && bytes < 0) GX_FAIL(&f->why, GX_ERR_MEMORY, "rank %d had no memory for its part", r);
            free(text);
        }
    }
}

// The end of the list: an event may follow each comma, so one closes it.
static void gx__trace_end(gx__TraceFile *f)
{
    static const char end[] = "{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_labels\", \"args\": {\"labels\": "
                              "\"Galaxy\"}}\n]}\n";
    gx__trace_put(f, end, (int64_t)sizeof end - 1);
    if (gx_error_code(&f->why)) gx_file_abandon(&f->file);
    else gx_file_commit(&f->file, &f->why);
}

// On all ranks, after the last step.
static void gx__trace_save(gx__Trace *t, GxSession *s)
{
    const char *path = s->run->o.trace;
    gx__TraceFile f;
    memset(&f, 0, sizeof f);
    t->is_done = 1;
    int64_t lost = t->lost;
    gx_at(s->g, -1, "trace");
    gx_all_reduce(s->g, GX_AXIS_ALL, GX_SUM, &lost, 1, GX_I64);
    if (gx_session_is_first(s) && gx_file_create(&f.file, path, &f.why) == GX_OK)
        gx__trace_put(&f, GX__TRACE_HEAD, (int64_t)strlen(GX__TRACE_HEAD));
    gx__trace_gather(t, s, &f);
    if (!gx_session_is_first(s)) return;
    if (gx_failed(s->g)) gx_file_abandon(&f.file);
    else gx__trace_end(&f);
    if (gx_failed(s->g)) return;
    if (gx_error_code(&f.why))
        gx_log(&s->g->log, GX_LOG_WARNING, "there is no trace: %s; the training continues", f.why.message);
    else if (lost)
        gx_log(&s->g->log, GX_LOG_WARNING, "the trace %s is incomplete: %ld rank%s had no memory for more", path,
               (long)lost, lost == 1 ? "" : "s");
    else
        gx_log(&s->g->log, GX_LOG_INFO, "the trace of %ld step%s is in %s (ui.perfetto.dev shows it)", (long)t->steps,
               t->steps == 1 ? "" : "s", path);
}

// ---- as a watcher --------------------------------------------------------------------------------------------------

static GxStatus gx__trace_check(const GxTrainOptions *o, GxError *err)
{
    if (o->dry_run || gx_options_is_inference(o))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--trace is of steps of a training, but with %s none is computed; leave one of them out",
                       o->dry_run ? "--dry_run" : "these options");
    return gx_output_check_replaceable("--trace", o->trace, o->output_dir, GX__TRACE_HEAD, "a trace", err);
}

// Refuses a file that cannot be written, before the run begins.
static void gx__trace_planned(void *self, GxSession *s)
{
    gx__Trace *t = (gx__Trace *)self;
    GxContext *g = s->g;
    t->is_wanted = s->run->o.trace[0] != 0;
    if (!t->is_wanted) return;
    if (gx_session_is_first(s)) gx__trace_check(&s->run->o, &g->error);
    gx_at(g, -1, "trace");
    gx_barrier(g, GX_AXIS_ALL); // on a failed context this tells the other ranks
}

static void gx__trace_begin(void *self, GxSession *s)
{
    gx__Trace *t = (gx__Trace *)self;
    const GxTrainRun *r = s->run;
    t->is_on = t->is_wanted && !t->is_done && t->steps < r->o.trace_steps && r->at.step >= r->at.begun + 2;
    if (!t->is_on) return;
    t->g = s->g;
    if (!t->n) {
        gx_at(s->g, -1, "trace");
        gx_barrier(s->g, GX_AXIS_ALL);
        t->origin = gx_seconds();
    }
    t->recorder.totals_only = 1, t->recorder.user = t;
    t->recorder.clock = gx__trace_clock, t->recorder.timed = gx__trace_timed, t->recorder.acted = gx__trace_acted;
    t->before = t->recorder.also = s->g->recorder;
    s->g->recorder = &t->recorder;
    const double now = gx__trace_clock(t);
    t->action = -1, t->step = gx__trace_add(t, GX__TRACE_STEP, now, now, r->at.step + 1) ? t->n - 1 : -1;
}

static void gx__trace_finish(void *self, GxSession *s, int is_computed)
{
    gx__Trace *t = (gx__Trace *)self;
    if (!t->is_on) return;
    gx_recorder_settle(&t->recorder);
    s->g->recorder = t->before;
    const double now = gx__trace_clock(t);
    if (t->action >= 0) t->slice[t->action].end = now; // after an error
    if (t->step >= 0) t->slice[t->step].end = now;
    t->steps += is_computed;
}

static void gx__trace_stepped(void *self, GxSession *s)
{
    gx__Trace *t = (gx__Trace *)self;
    if (t->is_on && t->steps == s->run->o.trace_steps && !gx_failed(s->g)) gx__trace_save(t, s);
}

static void gx__trace_closed(void *self, GxSession *s)
{
    gx__Trace *t = (gx__Trace *)self;
    const int is_training = t->is_wanted && !t->is_done && !gx_failed(s->g) && !s->run->done;
    if (is_training && t->steps) gx__trace_save(t, s);
    else if (is_training && gx_session_is_first(s))
        gx_log(&s->g->log, GX_LOG_WARNING, "there is no trace: it begins with the third step, and this run had %ld",
               (long)(s->run->at.step - s->run->at.begun));
    free(t->slice);
    t->slice = NULL, t->n = t->capacity = 0;
}

GxStatus gx_trace_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(gx__Trace), err);
    if (!w) return gx_error_code(err);
    w->planned = gx__trace_planned;
    w->begin = gx__trace_begin, w->end = gx__trace_finish;
    w->stepped = gx__trace_stepped, w->closed = gx__trace_closed;
    return GX_OK;
}
#endif
