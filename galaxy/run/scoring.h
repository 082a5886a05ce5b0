// scoring.h: --score: computes the likelihood of a file's texts under a writer's model (writer.h): runs each line's
// windows (data/score_requests.h) through task/likelihood.h, and writes a line of JSON for each line, in order:
//
//     {"loglikelihood": -11.25, "tokens": 3, "is_greedy": false}
//
// loglikelihood is the sum of the natural logarithms of the scored tokens' probabilities. Nothing is written before all
// are known.
#ifndef GX_SCORING_H
#define GX_SCORING_H
#include "writer.h"
GX_BEGIN

GxStatus gx_writer_score(GxWriter *w);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SCORING_IMPLEMENTED)
#define GX_SCORING_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "launch.h"
#include "reporter.h"

#define GX__SCORING_PATIENCE 5 // seconds between two lines of progress

typedef struct {
    GxWriter *w;
    double said;
} gx__Scoring;

static int gx__scoring_stop(void *user)
{
    GxContext *g = ((gx__Scoring *)user)->w->g;
    int64_t stops = gx_stop_signal() != 0; // that of rank 0 counts
    gx_at(g, -1, "stop");
    gx_broadcast(g, GX_AXIS_ALL, 0, &stops, 1, GX_I64);
    return gx_failed(g) || stops;
}

static void gx__scoring_progress(void *user, int64_t done, int64_t all)
{
    gx__Scoring *x = (gx__Scoring *)user;
    if (x->w->g->rank != 0 || gx_seconds() - x->said < GX__SCORING_PATIENCE) return;
    x->said = gx_seconds();
    gx_log(&x->w->g->log, GX_LOG_INFO, "%ld of %ld texts scored", (long)done, (long)all);
}

// ---- results, on rank 0 --------------------------------------------------------------------------------------------

typedef struct { // of a line
    double logprob;
    int64_t tokens;
    int is_greedy;
} gx__ScoredLine;

static GxStatus gx__scoring_print(FILE *out, const gx__ScoredLine *l, GxError *err)
{
    char *text = NULL;
    int64_t bytes;
    GxJson *line = gx_json_new_object(), *number = gx_json_new_double(l->logprob);
    if (!number) GX_FAIL(err, GX_ERR_FORMAT, "a text's log-probability is %g: the weights are damaged", l->logprob);
    else gx_json_set(line, "loglikelihood", number, err);
    gx_json_set(line, "tokens", gx_json_new_int(l->tokens), err);
    gx_json_set(line, "is_greedy", gx_json_new_bool(l->is_greedy), err);
    if (gx_error_code(err) == GX_OK && gx_json_dump(line, 0, &text, &bytes, err) == GX_OK) fprintf(out, "%s\n", text);
    free(text);
    gx_json_free(line);
    return gx_error_code(err);
}

// Writes one result for all windows of a line.
static GxStatus gx__scoring_print_all(const GxWriter *w, const GxScoredText *text, FILE *out, GxError *err)
{
    const GxScoreRequests *r = &w->requests;
    for (int64_t line = 0, i = 0; line < r->lines; line++) {
        gx__ScoredLine l = {0, 0, 1};
        for (; i < r->windows && r->window[i].line == line; i++)
            l.logprob += text[i].logprob, l.tokens += text[i].scored, l.is_greedy &= text[i].is_greedy;
        GX_TRY(gx__scoring_print(out, &l, err));
    }
    return GX_OK;
}

static GxStatus gx__scoring_write(GxWriter *w, const GxScoredText *text)
{
    const GxReporter *r = w->g->reporter;
    GxError *err = &w->g->error;
    char *all = NULL;
    size_t bytes;
    FILE *out = open_memstream(&all, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the results");
    GxStatus status = gx__scoring_print_all(w, text, out, err);
    if (fclose(out) != 0 && status == GX_OK) status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for the results");
    if (status == GX_OK && w->o->output_file[0]) status = gx_file_write(w->o->output_file, all, (int64_t)bytes, err);
    else if (status == GX_OK && r && r->write) r->write(r->user, all);
    free(all);
    return status;
}

// ---- the run -------------------------------------------------------------------------------------------------------

GxStatus gx_writer_score(GxWriter *w)
{
    GxContext *g = w->g;
    const GxScoreRequests *r = &w->requests;
    gx__Scoring x = {w, gx_seconds()};
    const double begun = x.said;
    if (w->done || gx_failed(g)) return gx_status(g);
    gx_catch_stop_signals();
    GxScoredText *text = (GxScoredText *)calloc((size_t)r->windows + 1, sizeof *text);
    if (!text) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld texts", (long)r->windows);
    for (int64_t i = 0; i < r->windows; i++)
        text[i].ids = r->ids + r->window[i].at, text[i].n = r->window[i].n, text[i].scored = r->window[i].scored;
    w->likelihood.stop = gx__scoring_stop, w->likelihood.progress = gx__scoring_progress, w->likelihood.user = &x;
    const int64_t passes = gx_likelihood_run(g, &w->likelihood, &w->forward, text, r->windows);
    if (g->rank == 0 && !gx_failed(g) && !gx_stop_signal()) gx__scoring_write(w, text);
    const double seconds = gx_seconds() - begun;
    if (g->rank == 0 && !gx_failed(g) && !gx_stop_signal())
        gx_log(&g->log, GX_LOG_INFO, "%ld line%s scored: %ld token%s in %ld pass%s in %.2f s, %.0f tokens/s",
               (long)r->lines, gx_text_s(r->lines), (long)r->tokens, gx_text_s(r->tokens), (long)passes,
               passes == 1 ? "" : "es", seconds, (double)r->tokens / (seconds > 0 ? seconds : 1));
    free(text);
    return gx_status(g);
}
#endif
