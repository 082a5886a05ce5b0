// chance.h: what chance costs a training on many ranks: ranks that are slower in one window than in another, and ranks
// that fail.
//
// All ranks wait for the slowest, so a window takes as long as the longest of n random times: with a standard deviation
// of 2%, 2% * gx_expected_most(n) more than the mean. Failures come as a Poisson process; after one, what was computed
// since the last checkpoint is lost. The interval between checkpoints loses least where what saving costs equals what
// failures cost: sqrt(2 * save * M), M the mean time between two failures (Young 1974, "A first order approximation to
// the optimum checkpoint interval").
//
//     GxFailures f = GX_ZERO;
//     f.save = 10, f.restart = 600;
//     const GxFailureCost cost = gx_failure_cost(&f, 10240); // cost.interval: 597 s, cost.trains: 0.93
#ifndef GX_CHANCE_H
#define GX_CHANCE_H
#include "../base/common.h"
GX_BEGIN

// The expected largest of n independent standard normals: 1.42 of 8, 3.86 of 10,240. n below 1 (0: of one): 0.
double gx_expected_most(double n);

typedef struct {
    double hours;         // of one rank between two failures, on average. 0: 50,700, as in the training of Llama 3: 419
                          // failures in 54 days on 16,384 GPUs (arXiv:2407.21783, section 3.3.4)
    double save, restart; // seconds that a checkpoint stops the training for, and that a restart takes
} GxFailures;

typedef struct {
    double between;  // seconds between two failures of any rank
    double interval; // seconds between two checkpoints, of the least loss; 0: they cost nothing
    // The share of the time that trains: 1 - save/interval - interval/(2 between) - restart/between; at least 0. Exact
    // to 0.005 while it is above 0.88; below that, it is too low.
    double trains;
} GxFailureCost;
GxFailureCost gx_failure_cost(const GxFailures *f, double ranks);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHANCE_IMPLEMENTED)
#define GX_CHANCE_IMPLEMENTED
#include <math.h>

enum { GX__CHANCE_STEPS = 4096, GX__CHANCE_HOURS = 50700 };

// The mean of the largest is the integral of [x > 0] - P(all are below x), P = (1 - Q(x))^n, by trapezoids. Beyond 12
// standard deviations there is nothing. The integrand jumps at 0, which is the end of two ranges.
double gx_expected_most(double n)
{
    const double step = 12.0 / GX__CHANCE_STEPS;
    double sum = 0;
    if (!(n > 1)) return 0;
    for (int i = 0; i <= GX__CHANCE_STEPS; i++) {
        const double above = 0.5 * erfc(i * step * sqrt(0.5)), weight = i == 0 || i == GX__CHANCE_STEPS ? 0.5 : 1;
        sum += weight * (-expm1(n * log1p(-above)) - pow(above, n)); // at x, and at -x, where Q is 1 - Q(x)
    }
    return sum * step;
}

GxFailureCost gx_failure_cost(const GxFailures *f, double ranks)
{
    GxFailureCost c = GX_ZERO;
    c.between = 3600 * (f->hours > 0 ? f->hours : (double)GX__CHANCE_HOURS) / fmax(ranks, 1);
    c.interval = sqrt(2 * fmax(f->save, 0) * c.between);
    const double saves = c.interval > 0 ? f->save / c.interval : 0;
    c.trains = fmax(0, 1 - saves - c.interval / (2 * c.between) - fmax(f->restart, 0) / c.between);
    return c;
}
#endif
