// window.h: which samples of a window (the data of an optimizer step) each copy of the model takes, and in which
// micro-batches.
//
// Usually every micro-batch has samples of all copies, so that all copies have the same number of micro-batches. With
// two copies that take 3 and 1 samples at once, in two micro-batches:
//
//     copy 0: 0 1 2 | 4 5 6        copy 1: 3 | 7
//
// If each copy has a number of samples of its own (--dp_samples_list 5,3), they lie one behind the other, and each copy
// computes its own in as few micro-batches as it can; the last one may be smaller:
//
//     copy 0: 0 1 2 | 3 4          copy 1: 5 | 6 | 7
//
// Samples are counted over all copies, so another division of a window has the same samples, and the same random
// numbers. The loss is divided by what counts in the whole window, so the gradients differ in rounding alone.
#ifndef GX_WINDOW_H
#define GX_WINDOW_H
#include "../base/partition.h"
GX_BEGIN

enum { GX_MICRO_BATCHES_MOST = 32767 }; // of a copy, in a window

typedef struct {
    GxSplit micro;   // samples of each copy in a micro-batch (is_own: the most)
    GxSplit samples; // of each copy in a window, at least 1
    int is_own;      // 1: each copy has a number of micro-batches of its own
} GxWindow;

GxWindow gx_window_of_equal(const GxSplit *micro, int64_t micro_batches); // the same number for each copy
// samples: those of each copy, at least 1.
GxWindow gx_window_of_own(const GxSplit *micro, const int64_t *samples);

int64_t gx_window_micro_batches(const GxWindow *w, int copy);
// The samples of the copy's micro-batch i, counted from the window's first one.
GxRange gx_window_range(const GxWindow *w, int copy, int64_t i);
// The most samples that the copy can have, if the others keep one each.
int64_t gx_window_most(const GxWindow *w, int copy);
// "24,8"; truncated if it does not fit.
const char *gx_window_text(const GxSplit *samples, char *text, size_t size);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_WINDOW_IMPLEMENTED)
#define GX_WINDOW_IMPLEMENTED
#include <stdio.h>

GxWindow gx_window_of_equal(const GxSplit *micro, int64_t micro_batches)
{
    GxWindow w = GX_ZERO;
    w.micro = w.samples = *micro;
    for (int r = 0; r <= micro->n; r++) w.samples.begin[r] *= micro_batches;
    return w;
}

GxWindow gx_window_of_own(const GxSplit *micro, const int64_t *samples)
{
    GxWindow w = GX_ZERO;
    w.micro = w.samples = *micro, w.is_own = 1;
    for (int r = 0; r < micro->n; r++) w.samples.begin[r + 1] = w.samples.begin[r] + samples[r];
    return w;
}

int64_t gx_window_micro_batches(const GxWindow *w, int copy)
{
    return gx_ceil_div(gx_split_part(&w->samples, copy), gx_max(gx_split_part(&w->micro, copy), 1));
}

GxRange gx_window_range(const GxWindow *w, int copy, int64_t i)
{
    const int64_t each = gx_split_part(&w->micro, copy), end = w->samples.begin[copy + 1];
    GxRange r;
    r.begin = w->is_own ? w->samples.begin[copy] + i * each : i * gx_split_total(&w->micro) + w->micro.begin[copy];
    r.end = w->is_own ? gx_min(r.begin + each, end) : r.begin + each;
    return r;
}

int64_t gx_window_most(const GxWindow *w, int copy)
{
    if (!w->is_own) return gx_split_part(&w->samples, copy);
    return gx_min(gx_split_total(&w->samples) - (w->samples.n - 1),
                  GX_MICRO_BATCHES_MOST * gx_split_part(&w->micro, copy));
}

const char *gx_window_text(const GxSplit *samples, char *text, size_t size)
{
    int n = 0;
    text[0] = 0;
    for (int r = 0; r < samples->n && n < (int)size; r++)
        n += snprintf(text + n, size - (size_t)n, "%s%ld", r ? "," : "", (long)gx_split_part(samples, r));
    return text;
}
#endif
