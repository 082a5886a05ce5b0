// dropout.h: dropout (Srivastava et al. 2014) without a mask in memory: whether an element is kept is a function of
// (seed, step, site, number of the element in the whole training), so that every topology, every batch order and every
// backward generates the same mask.
//
// Seed and step are read from g->step, and so is the number of the window's first sample, to which first_sample is
// relative. With first_sample as the sum of both, the number of an element of rows [T*B, C] (row t*B + b) is
//     ((first_sample + b)*T + t) * (C rounded up to 4) + c
// and that of one of attention's probabilities is
//     (((first_sample + b)*heads + head)*T + tq) * (T rounded up to 4) + tk
// with the whole sequence's T, the whole model's heads, and positions in the whole sequence. Four adjacent elements of
// a row share one call of Philox. A kept element is multiplied by 1/(1 - p), in fp32, and rounded once.
//
// Dropout of a core's result is part of ops/residual.h, together with the addition that follows; dropout of attention's
// probabilities is part of ops/attention.h.
#ifndef GX_DROPOUT_H
#define GX_DROPOUT_H
#include "../base/random.h"
#include "device.h"
GX_BEGIN

struct GxDropout {
    float p;              // probability that an element is dropped, in [0, 1); 0: nothing else is read
    uint32_t site;        // which dropout of the model: gx_random_site(GX_SITE_DROPOUT, number)
    int64_t first_sample; // number of the batch's first sample minus g->step->first_sample
    int64_t T, B;         // positions of the whole sequence; samples of the batch
    int64_t first_row;    // number t*B + b of the first given row, where a slice begins
    const int32_t *rows;  // number t*B + b of each given row; NULL: first_row and the following ones
    // Only for gx_dropout: where the given columns begin within whole rows, and how many columns these have; 0: the
    // given rows are whole.
    int64_t first_column, columns;
};

static inline GxDropout gx_no_dropout(void)
{
    GxDropout d = GX_ZERO;
    return d;
}

// Elements whose 32 random bits are at least this are kept.
static inline GX_ANYWHERE uint32_t gx_dropout_threshold(float p) { return (uint32_t)((double)p * 4294967296.0); }

// The index of the first Philox call (of four elements) of row t*B + b of [T*B, C]; the row's element c is word c % 4
// of the call c / 4 after it.
static inline GX_ANYWHERE uint64_t gx_dropout_row(int64_t first_sample, int64_t T, int64_t B, int64_t row, int64_t C)
{
    return (uint64_t)((first_sample + row % B) * T + row / B) * (uint64_t)((C + 3) / 4);
}
// The same for the probabilities of one query: sample is its number in the whole training, head in the whole model, tq
// the query's position.
static inline GX_ANYWHERE uint64_t gx_dropout_query(int64_t sample, int64_t heads, int64_t head, int64_t T, int64_t tq)
{
    return (uint64_t)((sample * heads + head) * T + tq) * (uint64_t)((T + 3) / 4);
}

// What a kept element is multiplied by: 1/(1 - p).
static inline float gx_dropout_scale(float p) { return 1.0f / (1.0f - p); }

// y[r,c] = x[r,c]/(1 - p) if the element is kept, otherwise 0. x, y [R,C]; y may be x. It is its own backward: with dy
// instead of x it computes dx. d->p 0: a copy. d->rows is in device memory, or NULL.
// bytes: 2*R*C*size; FLOPs: R*C
void gx_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d, GxDtype dtype);

// 1: go on. 0, and the context has an error: p is not in [0, 1), or if p > 0 a batch has no samples or positions or the
// context has no g->step.
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
