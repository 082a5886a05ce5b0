// task/source_batch.h: batches of pairs of a source and its target, for models with an encoder and a decoder: columns
// that hold one pair or several, beside the same columns of their sources (text_batch.h).
//
//     bytes = gx_source_layout(&layout, b, block, host_copy);      // a task's `layout`; b->source is set
//
//     GxSourceWriter w;                                            // a task's `fill`
//     gx_source_begin(&w, &layout, b, host_copy);
//     gx_source_put(&w, column, at, &pair);                        // at: where source and target begin; moved on
//     gx_source_finish(&w);
//
// The decoder reads what it has to predict, one place later: the start token, then the target without its last token.
// Every token of a target has a loss. Texts of a column do not see each other, and a row of a target attends to its own
// source alone.
#ifndef GX_SOURCE_BATCH_H
#define GX_SOURCE_BATCH_H
#include "../model/model.h"
#include "source_texts.h"
#include "task.h"
#include "text_batch.h"
GX_BEGIN

typedef struct {
    int32_t start; // what the decoder reads first
    GxTextLayout of[GX_OF_PAIR];
} GxSourceLayout;
// T: of the target's rows, all of which may have a label.
GxSourceLayout gx_source_layout_of(const GxTextFrame *frame, int64_t T);
// Like a task's `layout` (task.h): b->source has T and B.
int64_t gx_source_layout(const GxSourceLayout *l, GxBatch *b, void *block, void *host_copy);

typedef struct {
    const int32_t *ids[GX_OF_PAIR];
    int64_t n[GX_OF_PAIR];
} GxSourcePair;
typedef struct {
    const GxSourceLayout *l;
    GxTextWriter of[GX_OF_PAIR];
    int32_t *reads, *read_by; // the host copy's
} GxSourceWriter;

void gx_source_begin(GxSourceWriter *w, const GxSourceLayout *l, GxBatch *b, void *host_copy);
void gx_source_put(GxSourceWriter *w, int64_t column, int64_t at[GX_OF_PAIR], const GxSourcePair *pair);
// The two halves of that. Rows from s on are the m tokens of a source, which positions [t, t + n) of targets read; rows
// from t on are the n tokens of a target, which reads positions [s, s + m) of its source.
void gx_source_put_source(GxSourceWriter *w, int64_t column, int64_t s, const int32_t *ids, int64_t m, int64_t t,
                          int64_t n);
void gx_source_put_target(GxSourceWriter *w, int64_t column, int64_t t, const int32_t *ids, int64_t n, int64_t s,
                          int64_t m);
void gx_source_finish(GxSourceWriter *w);

// Metrics of a validation: loss, perplexity and accuracy of the targets' tokens, of which `right` are predicted. losses
// NULL: only the names. Returns how many.
int gx_source_metrics(const GxLosses *losses, int64_t right, GxMetric metric[GX_MAX_METRICS]);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SOURCE_BATCH_IMPLEMENTED)
#define GX_SOURCE_BATCH_IMPLEMENTED
#include <assert.h>
#include <math.h>
#include <string.h>

GxSourceLayout gx_source_layout_of(const GxTextFrame *frame, int64_t T)
{
    GxSourceLayout l = GX_ZERO;
    l.start = frame->start;
    for (int k = 0; k < GX_OF_PAIR; k++) l.of[k].pad = frame->pad, l.of[k].first_position = frame->first_position;
    l.of[GX_OF_TARGET].targets = 1, l.of[GX_OF_TARGET].target[0].most = T;
    return l;
}

// Where the arrays lie behind one another; each is a multiple of GX_ALIGN.
typedef struct {
    int64_t source, reads, read_by, end; // the target's arrays are the first
} GxSourcePlaces;

static GxSourcePlaces gx__source_places(const GxSourceLayout *l, const GxBatch *b)
{
    const GxBatch *s = b->source;
    GxTextArrays ignored;
    GxSourcePlaces p;
    p.source = gx_text_arrays(&l->of[GX_OF_TARGET], b->T, b->B, NULL, &ignored);
    p.reads = p.source + gx_text_arrays(&l->of[GX_OF_SOURCE], s->T, s->B, NULL, &ignored);
    p.read_by = p.reads + gx_round_up(8 * b->T * b->B, GX_ALIGN);
    p.end = p.read_by + gx_round_up(8 * s->T * s->B, GX_ALIGN);
    return p;
}

static void *gx__source_at(void *block, int64_t at) { return block ? (char *)block + at : NULL; }

int64_t gx_source_layout(const GxSourceLayout *l, GxBatch *b, void *block, void *host_copy)
{
    const GxSourcePlaces p = gx__source_places(l, b);
    gx_text_layout(&l->of[GX_OF_TARGET], b, block, host_copy);
    gx_text_layout(&l->of[GX_OF_SOURCE], b->source, gx__source_at(block, p.source), gx__source_at(host_copy, p.source));
    b->reads = (const int32_t *)gx__source_at(block, p.reads);
    b->read_by = (const int32_t *)gx__source_at(block, p.read_by);
    b->types = b->source->types = NULL;
    return p.end;
}

void gx_source_begin(GxSourceWriter *w, const GxSourceLayout *l, GxBatch *b, void *host_copy)
{
    const GxSourcePlaces p = gx__source_places(l, b);
    w->l = l;
    gx_text_begin(&w->of[GX_OF_TARGET], &l->of[GX_OF_TARGET], b, host_copy);
    gx_text_begin(&w->of[GX_OF_SOURCE], &l->of[GX_OF_SOURCE], b->source, gx__source_at(host_copy, p.source));
    w->reads = (int32_t *)gx__source_at(host_copy, p.reads);
    w->read_by = (int32_t *)gx__source_at(host_copy, p.read_by);
    memset(w->reads, 0, (size_t)(p.end - p.reads));
}

// Rows [at, at + n) of a column see, in the other text, positions [begin, begin + others).
static void gx__source_see(int32_t *sees, int64_t B, int64_t column, int64_t at, int64_t n, int64_t begin,
                           int64_t others)
{
    for (int64_t t = at; t < at + n; t++) {
        sees[2 * (t * B + column)] = (int32_t)begin;
        sees[2 * (t * B + column) + 1] = (int32_t)(begin + others);
    }
}

void gx_source_put_source(GxSourceWriter *w, int64_t column, int64_t s, const int32_t *ids, int64_t m, int64_t t,
                          int64_t n)
{
    gx_text_put(&w->of[GX_OF_SOURCE], column, s, ids, NULL, m);
    gx__source_see(w->read_by, w->of[GX_OF_SOURCE].b->B, column, s, m, t, n);
}

void gx_source_put_target(GxSourceWriter *w, int64_t column, int64_t t, const int32_t *ids, int64_t n, int64_t s,
                          int64_t m)
{
    GxTextWriter *target = &w->of[GX_OF_TARGET];
    const int64_t B = target->b->B;
    gx_text_put(target, column, t, ids, NULL, n); // in its own place; read one place later:
    for (int64_t i = n - 1; i > 0; i--) target->to.tokens[(t + i) * B + column] = ids[i - 1];
    if (n) target->to.tokens[t * B + column] = w->l->start;
    for (int64_t i = 0; i < n; i++) gx_text_label(target, 0, column, t + i, ids[i]);
    gx__source_see(w->reads, B, column, t, n, s, m);
}

void gx_source_put(GxSourceWriter *w, int64_t column, int64_t at[GX_OF_PAIR], const GxSourcePair *pair)
{
    const int64_t n = pair->n[GX_OF_TARGET], m = pair->n[GX_OF_SOURCE], t = at[GX_OF_TARGET], s = at[GX_OF_SOURCE];
    gx_source_put_source(w, column, s, pair->ids[GX_OF_SOURCE], m, t, n);
    gx_source_put_target(w, column, t, pair->ids[GX_OF_TARGET], n, s, m);
    at[GX_OF_TARGET] += n, at[GX_OF_SOURCE] += m;
}

void gx_source_finish(GxSourceWriter *w)
{
    for (int k = 0; k < GX_OF_PAIR; k++) gx_text_finish(&w->of[k]);
}

int gx_source_metrics(const GxLosses *losses, int64_t right, GxMetric metric[GX_MAX_METRICS])
{
    const double nats = losses && losses->count[0] ? gx_losses_mean(losses, 0) : NAN,
                 tokens = losses ? (double)losses->count[0] : NAN;
    const GxMetric loss = {"loss", "loss %.4f", nats, -1},
                   perplexity = {"perplexity", "perplexity %.3f", exp(nats), -1},
                   accuracy = {"accuracy", "accuracy of tokens %.4f", (double)right / tokens, 1};
    metric[0] = loss, metric[1] = perplexity, metric[2] = accuracy;
    return 3;
}
#endif
