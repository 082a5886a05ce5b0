// plan/costs.h: how long an operation takes on a machine, predicted from operations that were timed there.
//
//     GxCost cost;
//     GX_TRY(gx_cost_fit(&cost, sample, n, err));           // from the machine's measured operations
//     seconds = gx_cost_seconds(&cost, &recorder.event[i]); // of an operation that a dry run recorded
//     if (gx_cost_unknown(&cost)) ...                       // operations of this name were never measured
//     gx_cost_close(&cost);
//
// A measured shape takes what was measured: the median, if it was measured several times. Other shapes of the same kind
// (operations of one name) take c0 + c1 FLOPs + c2 bytes, times the ratio of measured to fitted seconds at the nearest
// measured shape. The three numbers are not negative, and minimise the sum of squared relative errors; the nearest
// shape has the least sum of squared differences of the logarithms of its dimensions. From a single shape of a kind
// nothing but a rate can be known: its seconds per FLOP, or per byte where it has no FLOPs.
//
// So the fit only carries a measurement over to a shape near it. Rates depend on shapes in ways that no such formula
// has (a product of few columns is slow), and measurements should surround what they are used for: the same model with
// few and with many samples, with all and with few of its heads and columns.
//
// Measured by dev/bench/costs.cu (its first comment has the command; two cores of an EPYC that others used, too; four
// runs): steps of 14 other shapes, from four measured ones, are off by 2 to 3% on average, at worst by 5 to 12%; the
// ratio of two ranks that share a layer 2:1 or 5:1 by 2 to 4%, at worst by 3 to 10%. From one measured shape: 5 to 7%,
// at worst 37%. On a machine that others fill, times must be of the CPU: by the clock short operations pass undisturbed
// and long ones do not, and steps were off by 20%.
//
// Seconds of collectives are not here: they depend on links (plan/machines.h).
//
// Source of the fit: Lawson & Hanson 1974, "Solving Least Squares Problems", chapter 23 (non-negative least squares),
// with all seven sets of three terms tried instead of exchanged.
#ifndef GX_COSTS_H
#define GX_COSTS_H
#include "../base/recorder.h"
#include "../base/status.h"
GX_BEGIN

enum { GX_COST_NAME = 48 }; // bytes of an operation's name with its terminating 0

typedef struct {
    char name[GX_COST_NAME];
    GxDims dims;
    double flops, bytes; // as in GxEvent
    double seconds;      // of one such operation
} GxCostSample;

enum { GX_COST_TERMS = 3 }; // seconds, seconds per FLOP, seconds per byte

typedef struct {
    GxCostSample of;
    double ratio; // measured over fitted seconds
    double log_dim[4];
} GxCostShape;

typedef struct {  // operations of one name
    int first, n; // its shapes
    double c[GX_COST_TERMS];
} GxCostKind;

typedef struct {
    char name[GX_COST_NAME]; // of the first; "": there was none
    int64_t times;
} GxCostUnknown;

typedef struct {
    GxCostShape *shape; // [shapes]: by name, dims, FLOPs, bytes
    GxCostKind *kind;   // [kinds]: by name
    int shapes, kinds;
    double scale;
    double flop, byte, least; // seconds of what was never measured: per FLOP, per byte, and at least
    GxCostUnknown *unknown;   // apart, because gx_cost_seconds counts
} GxCost;

// Whether the sample can be used: a name, no negative number, seconds above 0. who: what the message begins with.
GxStatus gx_cost_check(const GxCostSample *sample, const char *who, GxError *err);
// Fits; n at least 1, in any order. Close it, except after an error.
GxStatus gx_cost_fit(GxCost *cost, const GxCostSample *sample, int n, GxError *err);
// Seconds of the event on this machine; 0 for what is not an operation. An operation of a kind that was never measured
// takes the larger of its FLOPs and its bytes at the machine's mean rates, and is counted. One thread at a time.
double gx_cost_seconds(const GxCost *cost, const GxEvent *event);
// The first kind that was asked for and never measured; NULL: none. cost->unknown->times says how often that was.
const char *gx_cost_unknown(const GxCost *cost);
void gx_cost_scale(GxCost *cost, double factor); // everything takes so many times as long; above 0
void gx_cost_close(GxCost *cost);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_COSTS_IMPLEMENTED)
#define GX_COSTS_IMPLEMENTED
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- samples -------------------------------------------------------------------------------------------------------

// Bounds that are far beyond every machine, and within which no sum of squares below leaves the range of double.
static const double gx__costs_seconds[2] = {1e-12, 1e9}, gx__costs_work[2] = {0, 1e30};

static int gx__costs_within(double x, const double range[2]) { return x >= range[0] && x <= range[1]; }

GxStatus gx_cost_check(const GxCostSample *s, const char *who, GxError *err)
{
    if (!s->name[0]) return GX_FAIL(err, GX_ERR_FORMAT, "%s: an operation without a name", who);
    for (int i = 0; i < 4; i++)
        if (s->dims.n[i] < 0)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s has the dimension %ld; expected at least 0", who, s->name,
                           (long)s->dims.n[i]);
    const double work[2] = {s->flops, s->bytes};
    for (int i = 0; i < 2; i++)
        if (!gx__costs_within(work[i], gx__costs_work))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: %s has %g %s; expected a number from %g to %g", who, s->name,
                           work[i], i ? "bytes" : "FLOPs", gx__costs_work[0], gx__costs_work[1]);
    if (!gx__costs_within(s->seconds, gx__costs_seconds))
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: %s takes %g seconds; expected a number from %g to %g: measure it again, or remove it", who,
                       s->name, s->seconds, gx__costs_seconds[0], gx__costs_seconds[1]);
    return GX_OK;
}

static int gx__costs_order(double a, double b) { return (a > b) - (a < b); }

static int gx__costs_compare_dims(const GxDims *a, const GxDims *b)
{
    for (int i = 0; i < 4; i++)
        if (a->n[i] != b->n[i]) return a->n[i] < b->n[i] ? -1 : 1;
    return 0;
}

// Of what they measure: by name, dims, FLOPs, bytes.
static int gx__costs_compare_shapes(const GxCostSample *a, const GxCostSample *b)
{
    int order = strcmp(a->name, b->name);
    if (!order) order = gx__costs_compare_dims(&a->dims, &b->dims);
    if (!order) order = gx__costs_order(a->flops, b->flops);
    return order ? order : gx__costs_order(a->bytes, b->bytes);
}

static int gx__costs_compare(const void *a, const void *b)
{
    const GxCostSample *x = (const GxCostSample *)a, *y = (const GxCostSample *)b;
    const int order = gx__costs_compare_shapes(x, y);
    return order ? order : gx__costs_order(x->seconds, y->seconds);
}

static void gx__costs_log_dims(double log_dim[4], const GxDims *dims)
{
    for (int i = 0; i < 4; i++) log_dim[i] = dims->n[i] > 0 ? log((double)dims->n[i]) : -1;
}

// Samples in order become shapes and kinds.
static void gx__costs_collect(GxCost *cost, const GxCostSample *sample, int n)
{
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !gx__costs_compare_shapes(&sample[i], &sample[end]);) end++;
        GxCostShape *shape = &cost->shape[cost->shapes];
        shape->of = sample[i];
        shape->of.seconds = (sample[(i + end - 1) / 2].seconds + sample[(i + end) / 2].seconds) / 2;
        gx__costs_log_dims(shape->log_dim, &shape->of.dims);
        if (!i || strcmp(sample[i - 1].name, sample[i].name)) cost->kind[cost->kinds++].first = cost->shapes;
        cost->kind[cost->kinds - 1].n++;
        cost->shapes++;
    }
}

// ---- the fit -------------------------------------------------------------------------------------------------------

static double gx__costs_fitted(const double c[GX_COST_TERMS], double flops, double bytes)
{
    return c[0] + c[1] * flops + c[2] * bytes;
}

// The terms of a shape over its measured seconds: with the right coefficients they add up to 1.
static void gx__costs_terms(double term[GX_COST_TERMS], const GxCostSample *s)
{
    term[0] = 1 / s->seconds, term[1] = s->flops / s->seconds, term[2] = s->bytes / s->seconds;
}

// Solves the normal equations of the terms in `set` by elimination; the diagonal is 1. 0: their columns depend on each
// other.
static int gx__costs_solve(double c[GX_COST_TERMS], double a[GX_COST_TERMS][GX_COST_TERMS], double *right, unsigned set)
{
    const double dependent = 1e-9; // what is left of a column of length 1 whose angle to the others is below 3e-5
    for (int k = 0; k < GX_COST_TERMS; k++) {
        if (!(set >> k & 1)) continue;
        if (a[k][k] < dependent) return 0;
        for (int i = k + 1; i < GX_COST_TERMS; i++) {
            const double factor = a[i][k] / a[k][k];
            for (int j = k; j < GX_COST_TERMS; j++) a[i][j] -= factor * a[k][j];
            right[i] -= factor * right[k];
        }
    }
    for (int k = GX_COST_TERMS - 1; k >= 0; k--) {
        c[k] = 0;
        if (!(set >> k & 1)) continue;
        c[k] = right[k];
        for (int j = k + 1; j < GX_COST_TERMS; j++) c[k] -= a[k][j] * c[j];
        c[k] /= a[k][k];
    }
    return 1;
}

// The least squares of a set of terms. 0: it has no solution, or one with a negative coefficient.
static int gx__costs_fit_set(double c[GX_COST_TERMS], const GxCostShape *shape, int n, unsigned set)
{
    double a[GX_COST_TERMS][GX_COST_TERMS] = GX_ZERO, right[GX_COST_TERMS] = GX_ZERO, size[GX_COST_TERMS] = GX_ZERO;
    double term[GX_COST_TERMS];
    for (int s = 0; s < n; s++) {
        gx__costs_terms(term, &shape[s].of);
        for (int i = 0; i < GX_COST_TERMS; i++) {
            right[i] += term[i];
            for (int j = 0; j < GX_COST_TERMS; j++) a[i][j] += term[i] * term[j];
        }
    }
    for (int i = 0; i < GX_COST_TERMS; i++) size[i] = a[i][i] > 0 ? sqrt(a[i][i]) : 1;
    for (int i = 0; i < GX_COST_TERMS; i++) {
        right[i] /= size[i];
        for (int j = 0; j < GX_COST_TERMS; j++) a[i][j] /= size[i] * size[j];
    }
    if (!gx__costs_solve(c, a, right, set)) return 0;
    for (int i = 0; i < GX_COST_TERMS; i++) {
        c[i] /= size[i];
        if (c[i] < 0) return 0;
    }
    return 1;
}

// The sum of squared relative errors; infinite if a shape would take no time, to which nothing can be in a ratio.
static double gx__costs_error(const double c[GX_COST_TERMS], const GxCostShape *shape, int n)
{
    double sum = 0;
    for (int s = 0; s < n; s++) {
        const double fitted = gx__costs_fitted(c, shape[s].of.flops, shape[s].of.bytes) / shape[s].of.seconds;
        sum += fitted > 0 ? (fitted - 1) * (fitted - 1) : INFINITY;
    }
    return sum;
}

static void gx__costs_fit_kind(GxCostKind *kind, GxCostShape *shape)
{
    // few terms first: more are taken if they are better by what is not rounding
    static const unsigned sets[] = {2, 4, 1, 3, 5, 6, 7}; // bit 0: c0; 1: FLOPs; 2: bytes
    const double rounding = 1e-12 * kind->n;
    double least = INFINITY;
    // One shape: its first set that fits is a rate. All have c0 alone.
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        double c[GX_COST_TERMS];
        if (!gx__costs_fit_set(c, shape, kind->n, sets[i])) continue;
        const double error = gx__costs_error(c, shape, kind->n);
        if (error >= least - rounding) continue;
        least = error;
        memcpy(kind->c, c, sizeof kind->c);
    }
    for (int s = 0; s < kind->n; s++)
        shape[s].ratio = shape[s].of.seconds / gx__costs_fitted(kind->c, shape[s].of.flops, shape[s].of.bytes);
}

// Mean rates: per FLOP of the kinds that compute, per byte of those that move bytes; of all, where there is no such
// kind.
static void gx__costs_rates(GxCost *cost)
{
    const double computes = 4; // FLOPs per byte, from which on it is not memory that bounds an operation
    double seconds[2][2] = GX_ZERO, work[2][2] = GX_ZERO; // [of that sort only, of all][FLOPs, bytes]
    cost->least = cost->shape[0].of.seconds;
    for (int s = 0; s < cost->shapes; s++) {
        const GxCostSample *of = &cost->shape[s].of;
        const int sort = of->flops >= computes * of->bytes ? 0 : 1;
        const double amount[2] = {of->flops, of->bytes};
        for (int w = 0; w < 2; w++)
            for (int all = w != sort; all < 2; all++)
                if (amount[w] > 0) seconds[all][w] += of->seconds, work[all][w] += amount[w];
        cost->least = fmin(cost->least, of->seconds);
    }
    for (int w = 0; w < 2; w++) {
        const int all = work[0][w] <= 0;
        *(w ? &cost->byte : &cost->flop) = work[all][w] > 0 ? seconds[all][w] / work[all][w] : 0;
    }
}

GxStatus gx_cost_fit(GxCost *cost, const GxCostSample *sample, int n, GxError *err)
{
    memset(cost, 0, sizeof *cost);
    if (n < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "costs of no operations; measure at least one");
    for (int i = 0; i < n; i++) GX_TRY(gx_cost_check(&sample[i], "costs", err));
    GxCostSample *sorted = (GxCostSample *)malloc((size_t)n * sizeof *sorted);
    cost->shape = (GxCostShape *)calloc((size_t)n, sizeof *cost->shape);
    cost->kind = (GxCostKind *)calloc((size_t)n, sizeof *cost->kind);
    cost->unknown = (GxCostUnknown *)calloc(1, sizeof *cost->unknown);
    if (!sorted || !cost->shape || !cost->kind || !cost->unknown) {
        free(sorted);
        gx_cost_close(cost);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the costs of %d operations", n);
    }
    memcpy(sorted, sample, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, gx__costs_compare);
    gx__costs_collect(cost, sorted, n);
    free(sorted);
    for (int k = 0; k < cost->kinds; k++) gx__costs_fit_kind(&cost->kind[k], &cost->shape[cost->kind[k].first]);
    gx__costs_rates(cost);
    cost->scale = 1;
    return GX_OK;
}

// ---- use -----------------------------------------------------------------------------------------------------------

static const GxCostKind *gx__costs_find(const GxCost *cost, const char *name)
{
    int low = 0, high = cost->kinds;
    while (low < high) {
        const int middle = (low + high) / 2;
        const int order = strcmp(cost->shape[cost->kind[middle].first].of.name, name);
        if (!order) return &cost->kind[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

static double gx__costs_apart(double a, double b) // as factors
{
    return a > 0 && b > 0 ? fabs(log(a / b)) : a > 0 || b > 0 ? INFINITY : 0;
}

// Of equally near shapes the one with the nearest FLOPs and bytes: some operations read more than their dims tell.
static const GxCostShape *gx__costs_nearest(const GxCostShape *shape, int n, const GxEvent *e)
{
    const GxCostShape *best = shape;
    double at[4], least = INFINITY, least_work = INFINITY;
    gx__costs_log_dims(at, &e->dims);
    for (int s = 0; s < n; s++) {
        double distance = 0;
        for (int i = 0; i < 4; i++) distance += (at[i] - shape[s].log_dim[i]) * (at[i] - shape[s].log_dim[i]);
        if (distance > least) continue;
        const double work =
            gx__costs_apart(shape[s].of.flops, e->flops) + gx__costs_apart(shape[s].of.bytes, (double)e->bytes);
        if (distance == least && work >= least_work) continue;
        best = &shape[s], least = distance, least_work = work;
    }
    return best;
}

static double gx__costs_of_unknown(const GxCost *cost, const GxEvent *e)
{
    if (!cost->unknown->times++) snprintf(cost->unknown->name, GX_COST_NAME, "%s", e->name);
    return fmax(cost->least, fmax(e->flops * cost->flop, (double)e->bytes * cost->byte));
}

double gx_cost_seconds(const GxCost *cost, const GxEvent *e)
{
    assert(cost->kinds > 0);
    if (e->kind != GX_EVENT_OP) return 0;
    const GxCostKind *kind = gx__costs_find(cost, e->name);
    if (!kind) return cost->scale * gx__costs_of_unknown(cost, e);
    const GxCostShape *near = gx__costs_nearest(&cost->shape[kind->first], kind->n, e);
    const int is_measured = !gx__costs_compare_dims(&near->of.dims, &e->dims) && near->of.flops == e->flops &&
                            near->of.bytes == (double)e->bytes;
    if (is_measured) return cost->scale * near->of.seconds;
    return cost->scale * near->ratio * gx__costs_fitted(kind->c, e->flops, (double)e->bytes);
}

const char *gx_cost_unknown(const GxCost *cost) { return cost->unknown->times ? cost->unknown->name : NULL; }

void gx_cost_scale(GxCost *cost, double factor)
{
    assert(factor > 0);
    cost->scale *= factor;
}

void gx_cost_close(GxCost *cost)
{
    free(cost->shape), free(cost->kind), free(cost->unknown);
    memset(cost, 0, sizeof *cost);
}
#endif
