// optimizer.h: the global norm, clipping, AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101), SGD with momentum.
//
// Weights, moments and gradients are fp32. If the model computes with narrower weights, `copy` gets them, rounded to
// `dtype`, in the same pass (copy NULL: not needed); a skipped step does not change it either. One call updates all
// contiguous elements, with or without weight decay, since on a GPU a call is a launch.
//
// What changes from step to step (learning rate, clip coefficient, skip flag, number of applied steps) is read from
// g->step, in device memory. The program writes the learning rate there, and gx_clip the others. gx_clip must therefore
// be called before gx_adamw and gx_sgd, which return GX_ERR_ARGUMENT for a step that it has not filled; the host
// remembers in g->clipped which step that was, and never reads device memory.
#ifndef GX_OPTIMIZER_H
#define GX_OPTIMIZER_H
#include "device.h"
GX_BEGIN

struct GxAdamW {
    float beta1, beta2, eps, weight_decay;
};
struct GxSgd {
    float momentum, weight_decay;
};

// The elements of an update that weight decay excludes: ranges [begin, end) in rising order. Ranges that overlap or
// extend beyond the elements are GX_ERR_ARGUMENT.
enum { GX_MOST_UNDECAYED = 16 };
typedef struct {
    int n;
    int64_t begin[GX_MOST_UNDECAYED], end[GX_MOST_UNDECAYED];
} GxUndecayed;

// What a step updates: n elements of each.
struct GxUpdate {
    float *w, *m, *v; // weights and moments; SGD has its momentum in m (NULL: none) and no v
    void *copy;
    const float *grad;
    int64_t n;
    GxDtype dtype; // of the copy
    GxUndecayed undecayed;
};

// Squares are summed in blocks of this many. One thread adds up the blocks' sums in order; with smaller blocks this
// would take a GPU longer than reading the blocks (docs/kernels.md).
enum { GX_SQUARES_BLOCK = 8 * GX_SUM_BLOCK };

// Elements [begin, begin + n) of an array, in blocks of GX_SQUARES_BLOCK of which the last may be shorter.
typedef struct {
    int64_t begin, n;
    int64_t blocks; // the number of blocks before it in the whole list
} GxSumPart;
typedef struct GxSumParts {
    const GxSumPart *part; // [parts], in device memory; it may begin within a longer list
    int64_t parts;
    int64_t n, blocks; // of all parts
} GxSumParts;

// total = (accumulate ? total : 0) + sum of x^2 over the parts, in fp64: part by part, each in blocks of
// GX_SQUARES_BLOCK in order. The bits are therefore the same if parts are spread over several calls. bytes: 4*n, FLOPs:
// 2*n
void gx_sum_squares(GxContext *g, double *total, const float *x, const GxSumParts *parts, int accumulate);

// The same in two steps, for parts whose blocks are on several ranks: blocks[b] = sum of x^2 over block b, for all
// blocks of the parts (bytes: 4*n, FLOPs: 2*n); then total = (accumulate ? total : 0) + blocks[0] + blocks[1] + ...
// (bytes: 8*n, FLOPs: n).
void gx_square_blocks(GxContext *g, double *blocks, const float *x, const GxSumParts *parts);
void gx_add_blocks(GxContext *g, double *total, const double *blocks, int64_t n, int accumulate);

// From step->sum_squares: step->clip = min(1, max_norm/(norm + 1e-6)) (max_norm <= 0: 1), step->skip = norm is not
// finite; step->applied goes up by one unless the step is skipped. No g->step: GX_ERR_ARGUMENT.
void gx_clip(GxContext *g, double max_norm);

// With g = clip*grad and t = step->applied: m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2; w -= lr*( (m/(1-b1^t)) /
// (sqrt(v/(1-b2^t)) + eps) + weight_decay*w ), the last term for those that decay. Nothing changes if step->skip.
// bytes: 28*n + copy
void gx_adamw(GxContext *g, const GxUpdate *u, const GxAdamW *o);

// g = clip*grad + weight_decay*w, the second term for those that decay; m = o.momentum*m + g; w -= lr*m. m NULL: w -=
// lr*g. No dampening, PyTorch's default. bytes: 20*n (m NULL: 12*n) + copy
void gx_sgd(GxContext *g, const GxUpdate *u, const GxSgd *o);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPTIMIZER_IMPLEMENTED)
#define GX_OPTIMIZER_IMPLEMENTED

void gx_sum_squares(GxContext *g, double *total, const float *x, const GxSumParts *parts, int accumulate)
{
    const int64_t n = parts->n;
    if (!gx_op_check(g, "sum_squares", GX_F32, n, parts->parts)) return;
    GxArenaMark mark = gx_arena_mark(g->arena);
    double *scratch = (double *)gx_scratch(g, GX_MEM_WORKSPACE, parts->blocks * 8);
    if (gx_op_begin(g, "sum_squares", gx_dims(n, 0, 0, 0), 4 * n, 2.0 * n)) {
        g->device->square_blocks(g, scratch, x, parts);
        g->device->add_blocks(g, total, scratch, parts->blocks, accumulate);
    }
    gx_arena_release(g->arena, mark);
}

void gx_square_blocks(GxContext *g, double *blocks, const float *x, const GxSumParts *parts)
{
    const int64_t n = parts->n;
    if (!gx_op_check(g, "square_blocks", GX_F32, n, parts->parts)) return;
    if (gx_op_begin(g, "square_blocks", gx_dims(n, 0, 0, 0), 4 * n, 2.0 * n))
        g->device->square_blocks(g, blocks, x, parts);
}

void gx_add_blocks(GxContext *g, double *total, const double *blocks, int64_t n, int accumulate)
{
    if (!gx_op_check(g, "add_blocks", GX_F32, n, 1)) return;
    if (gx_op_begin(g, "add_blocks", gx_dims(n, 0, 0, 0), 8 * n, (double)n))
        g->device->add_blocks(g, total, blocks, n, accumulate);
}

static int gx__optimizer_has_step(GxContext *g, const char *name)
{
    if (g->step) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: the context has no step; let g->step point to a GxStep in its device's memory", name);
    return 0;
}

static int gx__optimizer_is_clipped(GxContext *g, const char *name)
{
    if (!gx__optimizer_has_step(g, name)) return 0;
    if (g->clipped == g->step) return 1;
    GX_FAIL(
        &g->error, GX_ERR_ARGUMENT,
        "%s: g->step has no clip coefficient and no number of applied steps yet; call gx_clip before it (max_norm 0: "
        "without clipping)",
        name);
    return 0;
}

void gx_clip(GxContext *g, double max_norm)
{
    if (gx_failed(g) || !gx__optimizer_has_step(g, "clip")) return;
    g->clipped = g->step;
    if (gx_op_begin(g, "clip", gx_dims(0, 0, 0, 0), 0, 0)) g->device->clip(g, max_norm);
}

static int gx__optimizer_ranges_fit(GxContext *g, const char *name, const GxUpdate *u)
{
    const GxUndecayed *of = &u->undecayed;
    int64_t at = 0;
    int fit = of->n >= 0 && of->n <= GX_MOST_UNDECAYED;
    for (int r = 0; fit && r < of->n; at = of->end[r++]) fit = at <= of->begin[r] && of->begin[r] <= of->end[r];
    if (fit && at <= u->n) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: there are %d ranges that do not decay; expected up to %d within %ld elements, one after the other",
            name, of->n, (int)GX_MOST_UNDECAYED, (long)u->n);
    return 0;
}

// An element takes `of_each` bytes, plus its copy. 1: the device is to be called.
static int gx__optimizer_begin(GxContext *g, const char *name, const GxUpdate *u, int64_t of_each, double flops)
{
    if (!gx_op_check(g, name, u->dtype, u->n, 1) || !gx__optimizer_is_clipped(g, name) ||
        !gx__optimizer_ranges_fit(g, name, u))
        return 0;
    const int64_t bytes = of_each + (u->copy ? gx_dtype_size(u->dtype) : 0);
    return gx_op_begin(g, name, gx_dims(u->n, 0, 0, 0), bytes * u->n, flops * (double)u->n);
}

void gx_adamw(GxContext *g, const GxUpdate *u, const GxAdamW *o)
{
    if (gx__optimizer_begin(g, "adamw", u, 28, 14)) g->device->adamw(g, u, o);
}

void gx_sgd(GxContext *g, const GxUpdate *u, const GxSgd *o)
{
    if (gx__optimizer_begin(g, "sgd", u, u->m ? 20 : 12, 6)) g->device->sgd(g, u, o);
}
#endif
