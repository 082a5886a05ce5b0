// recompute.h: --recompute: which layers are computed again in a run, and how auto chooses them.
//
// auto goes through att, mlp, att+mlp and layer. Of each it looks for the fewest layers whose plan of memory fits on
// every rank, by bisection: a layer more never needs more memory. Of what fits, none included, it takes what takes the
// fewest FLOPs. It recomputes the first layers of each stage, since the last ones save nothing at the peak: what is
// kept of them is read at once. n of a stage's layers stand for as large a part of each other stage, rounded up.
#ifndef GX_RECOMPUTE_H
#define GX_RECOMPUTE_H
#include "session.h"
GX_BEGIN

// When the model is known: refuses layers that it does not have, and options beside --recompute auto, or beside a list
// of layers, that measure or predict one layer for all.
GxStatus gx_recompute_check(const GxTrainRun *r, GxError *err);
// Called by all ranks together, with a session that is open up to its model: makes s->plan, and with --recompute auto
// opens the model again in each way that it tries, the last time in the one that is chosen. If none fits, it chooses
// the one that needs the least memory.
GxStatus gx_recompute_plan(GxSession *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RECOMPUTE_IMPLEMENTED)
#define GX_RECOMPUTE_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "session_memory.h"
#include "session_model.h"
#include "stages.h"

GxStatus gx_recompute_check(const GxTrainRun *r, GxError *err)
{
    const GxTrainOptions *o = &r->o;
    const char *beside = !strcmp(o->plan, "auto") ? "--plan auto"
                         : o->machines[0]         ? "--machines"
                         : o->simulate[0]         ? "--simulate"
                                                  : NULL;
    const int is_auto = !strcmp(o->recompute, "auto"), is_list = gx_recompute_is_list(o->recompute);
    char cut[GX_TEXT_VALUE];
    GxChosen chosen;
    GX_TRY(gx_recompute_read(o->recompute, gx_run_layers(r), chosen.again, err));
    if (!beside || (!is_auto && !is_list)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "--recompute %s %s, but %s %s; say none, att, mlp, att+mlp or layer",
                   gx_text_cut(o->recompute, cut, sizeof cut),
                   is_auto ? "chooses when the plan of memory is made" : "is not the same for all layers", beside,
                   is_auto ? "needs to know before what is computed again" : "takes all layers to be alike");
}

typedef struct {
    int again;           // GX_AGAIN_..., 0: of no layer
    int64_t layers;      // of the longest stage
    int fits;            // on every rank
    double flops, bytes; // of all ranks; of the fullest machine or card
} gx__RecomputeWay;
typedef struct {
    GxSession *s;
    GxSplit stages;
    int64_t most; // layers of the longest stage
    gx__RecomputeWay open, best;
} gx__RecomputeSearch;

static int gx__recompute_is_better(const gx__RecomputeWay *a, const gx__RecomputeWay *b)
{
    if (a->fits != b->fits) return a->fits;
    return a->fits && a->flops != b->flops ? a->flops < b->flops : a->bytes < b->bytes;
}

// What the open model's plan needs; the same on all ranks.
static void gx__recompute_look(gx__RecomputeSearch *w, int again, int64_t layers)
{
    gx__RecomputeWay *open = &w->open;
    open->again = again, open->layers = layers, open->flops = w->s->plan.flops_all;
    open->fits = gx_session_too_large(w->s, &open->bytes) < 0;
    if (gx__recompute_is_better(open, &w->best)) w->best = *open;
}

static void gx__recompute_mark(const gx__RecomputeSearch *w, int again, int64_t layers, uint8_t *marked)
{
    memset(marked, 0, GX_MAX_UNITS);
    for (int i = 0; i < w->stages.n; i++) {
        const int64_t n = gx_ceil_div(layers * gx_split_part(&w->stages, i), w->most);
        memset(marked + w->stages.begin[i], again, (size_t)n);
    }
}

static GxStatus gx__recompute_open(gx__RecomputeSearch *w, int again, int64_t layers)
{
    GxSession *s = w->s;
    gx_runner_close(&s->runner);
    gx_model_close(&s->model);
    free(s->batch);
    s->batch = NULL;
    gx__recompute_mark(w, again, layers, s->run->chosen.again);
    GX_TRY(gx_session_open_model(s));
    GX_TRY(gx_session_plan(s));
    gx__recompute_look(w, again, layers);
    return gx_status(s->g);
}

// The fewest layers that fit, unless what is known to be too few already takes more FLOPs than another way.
static GxStatus gx__recompute_fewest(gx__RecomputeSearch *w, int again)
{
    int64_t too_few = 0, enough = w->most;
    GX_TRY(gx__recompute_open(w, again, w->most));
    if (!w->open.fits) return GX_OK;
    while (enough - too_few > 1) {
        const int64_t middle = (too_few + enough) / 2;
        GX_TRY(gx__recompute_open(w, again, middle));
        if (w->open.fits) enough = middle;
        else too_few = middle;
        if (!w->open.fits && w->open.flops >= w->best.flops) break;
    }
    return GX_OK;
}

static void gx__recompute_say(const gx__RecomputeSearch *w)
{
    const GxSession *s = w->s;
    uint8_t again[GX_MAX_UNITS];
    char text[GX_PATH];
    gx__recompute_mark(w, w->best.again, w->best.layers, again);
    gx_log(&s->g->log, GX_LOG_INFO,
           w->best.fits ? "--recompute auto: %s, which fits and takes the fewest FLOPs"
                        : "--recompute auto: nothing fits; %s needs the least memory",
           gx_recompute_write(again, gx_split_total(&w->stages), text, sizeof text));
}

GxStatus gx_recompute_plan(GxSession *s)
{
    static const int ways[] = {GX_AGAIN_ATT, GX_AGAIN_MLP, GX_AGAIN_ATT | GX_AGAIN_MLP, GX_AGAIN_LAYER};
    GxTrainRun *r = s->run;
    gx__RecomputeSearch w = GX_ZERO;
    const int halves = r->o.pp > 1 && gx_order_info(r->chosen.order)->has_halves;
    GX_TRY(gx_session_plan(s));
    if (strcmp(r->o.recompute, "auto") || gx_options_is_inference(&r->o)) return GX_OK;
    w.s = s, w.best.bytes = INFINITY;
    GX_TRY(gx_stages_layers(s, &w.stages));
    for (int i = 0; i < w.stages.n; i++) w.most = gx_max(w.most, gx_split_part(&w.stages, i));
    gx__recompute_look(&w, 0, 0);
    for (int i = 0; i < 4 && !(w.best.fits && !w.best.again); i++) {
        if (halves && ways[i] != GX_AGAIN_LAYER) continue; // those that gx_session_open_model refuses
        GX_TRY(gx__recompute_fewest(&w, ways[i]));
    }
    if (gx_session_is_first(s)) gx__recompute_say(&w);
    if (w.open.again == w.best.again && w.open.layers == w.best.layers) return gx_status(s->g);
    return gx__recompute_open(&w, w.best.again, w.best.layers);
}
#endif
