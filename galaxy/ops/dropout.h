// dropout.h: dropout (Srivastava et al. 2014) without a mask in memory: whether an element is kept is a function of
// (seed, step, site, number of the element in the whole training), so that every topology, every batch order and every
// backward generates the same mask.
//
// Seed and step are read from g->step, and the number of the window's first sample, from which first_sample counts on.
// The number of an element of rows [T*B, C] (row t*B + b) is, with first_sample as both of them together,
//     ((first_sample + b)*T + t) * (C rounded up to 4) + c
// and of attention's probabilities
//     (((first_sample + b)*heads + head)*T + tq) * (T rounded up to 4) + tk
// with the whole sequence's T, the whole model's heads, and positions in the whole sequence: four neighbours of a row
// share one call of Philox. A kept element is multiplied by 1/(1 - p), in fp32, and rounded once.
//
// Dropout of a core's result is part of ops/residual.h, together with the addition that follows; dropout of attention's
// probabilities is part of ops/attention.h.
#ifndef GX_DROPOUT_H
#define GX_DROPOUT_H
#include "../base/random.h"
#include "device.h"
GX_BEGIN

struct GxDropout {
    float p;              // probability of an element to be dropped, in [0, 1); 0: nothing is, and nothing else is read
    uint32_t site;        // which dropout of the model: gx_random_site(GX_SITE_DROPOUT, number)
    int64_t first_sample; // number of the batch's first sample, less g->step->first_sample
    int64_t T, B;         // positions of the whole sequence; samples of the batch
    int64_t first_row;    // number t*B + b of the first row given: where a slice begins
    const int32_t *rows;  // of each given row its number t*B + b; NULL: first_row and those that follow
    // Of gx_dropout alone: where the given columns begin among those of whole rows, and how many these have; 0: they
    // are whole.
    int64_t first_column, columns;
};

static inline GxDropout gx_no_dropout(void)
{
    GxDropout d = GX_ZERO;
    return d;
}

// Elements whose 32 random bits are at or above this are kept.
static inline GX_ANYWHERE uint32_t gx_dropout_threshold(float p) { return (uint32_t)((double)p * 4294967296.0); }

// The index of the Philox call (four elements each) with which row t*B + b of [T*B, C] begins; the row's c-th element
// is word c % 4 of call c / 4 from there on.
static inline GX_ANYWHERE uint64_t gx_dropout_row(int64_t first_sample, int64_t T, int64_t B, int64_t row, int64_t C)
{
    return (uint64_t)((first_sample + row % B) * T + row / B) * (uint64_t)((C + 3) / 4);
}
// The same of the probabilities of one query: sample is the number in the whole training, head in the whole model, tq
// the query's position.
static inline GX_ANYWHERE uint64_t gx_dropout_query(int64_t sample, int64_t heads, int64_t head, int64_t T, int64_t tq)
{
    return (uint64_t)((sample * heads + head) * T + tq) * (uint64_t)((T + 3) / 4);
}

// What a kept element is multiplied by: 1/(1 - p).
static inline float gx_dropout_scale(float p) { return 1.0f / (1.0f - p); }

// y[r,c] = x[r,c]/(1 - p) where the element is kept, else 0. x, y [R,C]; y may be x. It is its own backward: with dy in
// the place of x it gives dx. d->p 0: a copy. d->rows, where not NULL, is an array in the device's memory.
// bytes: 2*R*C*size; FLOPs: R*C
void gx_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d, GxDtype dtype);

// Refuses (by the context's error) a p that is not in [0, 1) and, where something is dropped, a batch without samples
// or positions, and a context without g->step. 1: go on.
int gx_dropout_check(GxContext *g, const char *name, const GxDropout *d);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DROPOUT_IMPLEMENTED)
#define GX_DROPOUT_IMPLEMENTED

int gx_dropout_check(GxContext *g, const char *name, const GxDropout *d)
{
    if (gx_failed(g)) return 0;
    if (!(d->p >= 0 && d->p < 1)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: dropout's p is %g; it must be 0 or more and below 1", name,
                (double)d->p);
        return 0;
    }
    if (d->p > 0 && (d->T < 1 || d->B < 1)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: dropout in a batch of %ld samples of %ld positions; both must be at least 1", name, (long)d->B,
                (long)d->T);
        return 0;
    }
    if (d->p > 0 && !g->step) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: dropout needs seed and step, but the context has no step; let g->step point to a GxStep in its "
                "device's memory",
                name);
        return 0;
    }
    return 1;
}

void gx_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d, GxDtype dtype)
{
    if (!gx_op_check(g, "dropout", dtype, R, C) || !gx_dropout_check(g, "dropout", d)) return;
    if (d->first_column < 0 || (d->columns ? d->first_column + C > d->columns : d->first_column != 0)) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "dropout: %ld columns from column %ld on, of rows that have %ld", (long)C,
                (long)d->first_column, (long)(d->columns ? d->columns : C));
        return;
    }
    if (!gx_op_begin(g, "dropout", gx_dims(R, C, 0, 0), 2 * R * C * gx_dtype_size(dtype), (double)R * C)) return;
    if (d->p > 0) g->device->dropout(g, y, x, R, C, d, dtype);
    else if (y != x) g->device->copy(g, y, x, R * C * gx_dtype_size(dtype));
}
#endif
