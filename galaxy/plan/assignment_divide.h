// plan/assignment_divide.h: the best assignment of given groups: layers of the stages, samples and micro-batches of the
// copies.
//
// - Layers of a copy: they minimise (the sum of its stages) + (m - 1) (the slowest of them), the time of m
//   micro-batches if messages took none, among those that memory allows. A bound on the slowest stage leaves each
//   stage at most so many layers, and then those that are fastest take what they may; all bounds that could be best
//   are tried.
// - Micro-batches of 1, 2, 4, ... samples are tried, and stages that are ahead of 1F1B or not
//   (GxPlanProblem.most_warm).
// - Samples of the copies: a bound on seconds, by bisection, such that copies that end by then have all. Each is in the
//   micro-batches that are best for so many.
//
// Samples decide how many micro-batches are alive, and so what memory allows: all of it is done twice.
//
//     GxDivider d;
//     GX_TRY(gx_divider_open(&d, &costs, err));
//     GX_TRY(gx_grouping_divide(&assignment, &cost, &d, &grouping, err));
//     gx_divider_close(&d);
#ifndef GX_ASSIGNMENT_DIVIDE_H
#define GX_ASSIGNMENT_DIVIDE_H
#include "assignment_cost.h"
GX_BEGIN

// Which ranks are a group; which groups, in which order, are the stages of a copy.
typedef struct {
    int ranks, groups, copies;
    int16_t group[GX_ASSIGNED_RANKS]; // [ranks]; -1: left out
    int16_t copy[GX_ASSIGNED_RANKS];  // [groups]: ascending; the groups of a copy from the embedding to the head
} GxGrouping;

enum { GX_DIVIDER_SIZES = 16 }; // of micro-batches, the most

typedef struct { // an assignment of micro-batches of one size for all copies; private, like those of GxDivider
    GxAssignment a;
    GxAssignmentTimes t;
    double sums[GX_ASSIGNED_RANKS];   // [copies]: seconds
    int64_t lacks[GX_ASSIGNED_RANKS]; // [copies]: bytes; < 0: it was not tried, or a group cannot share a layer
} GxDividerVariant;

typedef struct {
    GxStageCosts *costs;
    GxDividerVariant *variant;
    int variants;
    GxMembers members;
    int64_t samples[GX_ASSIGNED_RANKS]; // [copies]
    int is_close;                       // 1: layers are divided with more care
    int is_same;                        // 1: all copies have the same layers
} GxDivider;

GxStatus gx_divider_open(GxDivider *d, GxStageCosts *costs, GxError *err);
void gx_divider_close(GxDivider *d);
// A grouping has no empty group or copy, no copy more stages than the model layers, and no more copies than samples.
// *cost may say that what is best does not fit. good: if a first look says that it takes longer (gx_assignment_value),
// it is not looked at more closely, which could make it some percent faster.
GxStatus gx_grouping_divide(GxAssignment *a, GxAssignmentCost *cost, GxDivider *d, const GxGrouping *g, double good,
                            GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ASSIGNMENT_DIVIDE_IMPLEMENTED)
#define GX_ASSIGNMENT_DIVIDE_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- layers of a copy ----------------------------------------------------------------------------------------------

typedef struct {
    double layer, ends; // seconds of a micro-batch; ends: what does not depend on layers
    int cap;            // layers at most
    int layers;
} GxDividerStage;

// Gives each stage so many layers that none takes longer than `bound`, and those with the fastest layers the most of
// them. by: the stages by the seconds of a layer. Returns the seconds of m micro-batches, or INFINITY: too few.
static double gx__assignment_divide_within(GxDividerStage *s, const int16_t *by, int n, int total, double bound,
                                           double m)
{
    double sum = 0, slowest = 0;
    int rest = total - n;
    for (int i = 0; i < n; i++) {
        GxDividerStage *of = &s[by[i]];
        const double fit = (bound * (1 + 1e-9) - of->ends) / of->layer;
        const int most = fit < of->cap ? (int)fit : of->cap;
        if (most < 1) return INFINITY;
        of->layers = 1 + (int)gx_min(most - 1, rest);
        rest -= of->layers - 1;
        const double seconds = of->ends + of->layers * of->layer;
        sum += seconds, slowest = fmax(slowest, seconds);
    }
    return rest ? INFINITY : sum + (m - 1) * slowest;
}

// Layers of n stages; seconds of m micro-batches. 0: the caps are too few.
static int gx__assignment_divide_layers(GxDividerStage *s, int n, int total, double m)
{
    int16_t by[GX_ASSIGNED_RANKS];
    double low = 0, high = 0;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && s[by[at - 1]].layer > s[i].layer; at--) by[at] = by[at - 1];
        by[at] = (int16_t)i;
        high = fmax(high, s[i].ends + s[i].cap * s[i].layer);
    }
    if (gx__assignment_divide_within(s, by, n, total, high, 1) == INFINITY) return 0;
    const double least = gx__assignment_divide_within(s, by, n, total, high, 1);
    for (int i = 0; i < 40; i++) {
        const double middle = (low + high) / 2;
        *(gx__assignment_divide_within(s, by, n, total, middle, 1) < INFINITY ? &high : &low) = middle;
    }
    double best = gx__assignment_divide_within(s, by, n, total, high, m), bound = high;
    for (int i = 0; i < n; i++) // bounds at which a stage may have one layer more
        for (int l = 1; l <= s[i].cap; l++) {
            const double next = s[i].ends + l * s[i].layer;
            if (next <= high || least + (m - 1) * next >= best) continue;
            const double seconds = gx__assignment_divide_within(s, by, n, total, next, m);
            if (seconds < best) best = seconds, bound = next;
        }
    gx__assignment_divide_within(s, by, n, total, bound, m);
    return 1;
}

// ---- layers that memory allows -------------------------------------------------------------------------------------

static GxStatus gx__assignment_divide_ask(GxDivider *d, GxDividerVariant *v, int stage, int layers, GxStageCost *cost,
                                          GxError *err)
{
    v->a.stage[stage].layers = (int16_t)layers;
    const GxStageRequest r = gx_stage_request(d->costs->problem, &v->a, &d->members, stage);
    return gx_stage_costs_get(d->costs, cost, &r, err);
}

// The most layers below `high`, with which it does not fit, with which a stage fits; 0: none.
static GxStatus gx__assignment_divide_cap(GxDivider *d, GxDividerVariant *v, int stage, int high, int *cap,
                                          GxError *err)
{
    for (*cap = 0; high - *cap > 1;) {
        GxStageCost cost;
        const int middle = (*cap + high) / 2;
        GX_TRY(gx__assignment_divide_ask(d, v, stage, middle, &cost, err));
        *(cost.room < 0 ? &high : cap) = middle;
    }
    return GX_OK;
}

// The i-th stage of copies [from, to), which have the same layers: what these cost with the layers that they have now,
// and whether so many fit. *changed: 1 if a cap is lower than before.
static GxStatus gx__assignment_divide_stage(GxDivider *d, GxDividerVariant *v, int from, int to, int i,
                                            GxDividerStage *s, int *changed, GxError *err)
{
    const int layers = v->a.stage[d->members.first[from] + i].layers;
    s->layer = s->ends = 0;
    for (int r = from; r < to; r++) {
        GxStageCost cost;
        const int stage = d->members.first[r] + i;
        const double weight = to - from > 1 ? (double)d->samples[r] : 1; // the copies' ways to the same end
        GX_TRY(gx__assignment_divide_ask(d, v, stage, layers, &cost, err));
        const double layer = cost.forward_layer + cost.backward_layer;
        s->layer = fmax(s->layer, weight * layer);
        s->ends = fmax(s->ends, weight * (cost.forward + cost.backward - layers * layer));
        if (cost.room >= 0 || layers > s->cap) continue;
        GX_TRY(gx__assignment_divide_cap(d, v, stage, layers, &s->cap, err));
        s->cap = (int)gx_max(s->cap, 1), *changed = layers > 1;
    }
    return GX_OK;
}

// Where memory does not allow for all layers: all that it allows for, and the rest where most ranks share it.
static void gx__assignment_divide_rest(const GxDivider *d, int from, GxDividerStage *s, int n, int total)
{
    const int16_t *begin = d->members.begin + d->members.first[from];
    int largest = 0;
    for (int i = 0; i < n; i++) {
        if (begin[i + 1] - begin[i] > begin[largest + 1] - begin[largest]) largest = i;
        total -= s[i].layers = s[i].cap;
    }
    s[largest].layers += total;
}

// Layers of copies [from, to), the same for all of them.
static GxStatus gx__assignment_divide_copies(GxDivider *d, GxDividerVariant *v, int from, int to, GxError *err)
{
    const GxMembers *m = &d->members;
    const int n = m->first[from + 1] - m->first[from], layers = d->costs->problem->layers;
    GxDividerStage stage[GX_ASSIGNED_RANKS];
    double speed[GX_ASSIGNED_RANKS] = {0}, all = 0;
    for (int i = 0; i < n; all += speed[i++])
        for (int k = m->begin[m->first[from] + i]; k < m->begin[m->first[from] + i + 1]; k++)
            speed[i] += d->costs->speed[m->rank[k]];
    for (int i = 0; i < n; i++)
        stage[i].cap = layers, stage[i].layers = (int)gx_max((int64_t)(layers * speed[i] / all + 0.5), 1);
    const double micro = (double)gx_assignment_micro_batches(&v->a, from);
    for (int round = 0, changed = 1; changed; round++) {
        changed = round == 0;
        for (int r = from; r < to; r++)
            for (int i = 0; i < n; i++) v->a.stage[m->first[r] + i].layers = (int16_t)stage[i].layers;
        for (int i = 0; i < n; i++) GX_TRY(gx__assignment_divide_stage(d, v, from, to, i, &stage[i], &changed, err));
        if (changed && !gx__assignment_divide_layers(stage, n, layers, micro))
            gx__assignment_divide_rest(d, from, stage, n, layers), changed = 0;
    }
    for (int r = from; r < to; r++)
        for (int i = 0; i < n; i++) v->a.stage[m->first[r] + i].layers = (int16_t)stage[i].layers;
    return GX_OK;
}

// The variant with which a copy takes the least for so many samples, of those that lack the least. NULL: none.
static GxDividerVariant *gx__assignment_divide_best(GxDivider *d, int copy, int64_t samples, double *seconds)
{
    GxDividerVariant *best = NULL;
    *seconds = INFINITY;
    for (int i = 0; i < d->variants; i++) {
        GxDividerVariant *v = &d->variant[i];
        if (v->lacks[copy] < 0 || (best && v->lacks[copy] > best->lacks[copy])) continue;
        const double takes = gx_copy_seconds(d->costs, &v->t.copy[copy], samples) + v->sums[copy];
        if (best && v->lacks[copy] == best->lacks[copy] && takes >= *seconds) continue;
        best = v, *seconds = takes;
    }
    return best;
}

// ---- a layer more or less ------------------------------------------------------------------------------------------

enum { GX__ASSIGNMENT_DIVIDE_SHORT = 6 }; // stages

typedef struct { // a stage of some copy with a layer less, or one more
    double forward, backward;
    int fits;
} GxDividerShift;

// What the stages of copies [from, to) cost with so many layers more: shift[stages], by stage of the assignment.
static GxStatus gx__assignment_divide_shifted(GxDivider *d, GxDividerVariant *v, int from, int to, int more,
                                              GxDividerShift *shift, GxError *err)
{
    for (int s = d->members.first[from]; s < d->members.first[to]; s++) {
        GxStageCost cost;
        const int layers = v->a.stage[s].layers;
        shift[s].fits = 0;
        if (layers + more < 1) continue;
        GX_TRY(gx__assignment_divide_ask(d, v, s, layers + more, &cost, err));
        shift[s].forward = cost.forward, shift[s].backward = cost.backward, shift[s].fits = cost.room >= 0;
        v->a.stage[s].layers = (int16_t)layers;
    }
    return GX_OK;
}

// Seconds of copies [from, to) if their i-th stages had a layer less and their j-th ones a layer more; INFINITY: they
// do not fit. i == j: as they are.
static double gx__assignment_divide_try(GxDivider *d, GxDividerVariant *v, int from, int to, int i, int j,
                                        const GxDividerShift *less, const GxDividerShift *more)
{
    double seconds = 0;
    for (int r = from; r < to; r++) {
        GxCopyTimes *t = &v->t.copy[r];
        const GxDividerShift *of[] = {&less[d->members.first[r] + i], &more[d->members.first[r] + j]};
        const int at[] = {i, j};
        double was[4];
        if (i != j && !(of[0]->fits && of[1]->fits)) return INFINITY;
        for (int k = 0; k < 2 && i != j; k++) {
            was[2 * k] = t->forward[at[k]], was[2 * k + 1] = t->backward[at[k]];
            t->forward[at[k]] = of[k]->forward, t->backward[at[k]] = of[k]->backward;
        }
        gx_copy_times_changed(t, 2 * t->stages + 8);
        seconds = fmax(seconds, gx_copy_seconds(d->costs, t, d->samples[r]));
        for (int k = 0; k < 2 && i != j; k++) t->forward[at[k]] = was[2 * k], t->backward[at[k]] = was[2 * k + 1];
        gx_copy_times_changed(t, 0);
    }
    return seconds;
}

// Moves layers between the stages of copies [from, to), which have the same layers, as long as this gains: with
// messages, with few micro-batches, or where memory says which lists a group has, the time is not what was assumed. Of
// long pipelines, only layers of the slowest stage are moved.
static GxStatus gx__assignment_divide_shift(GxDivider *d, GxDividerVariant *v, int from, int to, GxError *err)
{
    GxDividerShift less[GX_ASSIGNED_RANKS], more[GX_ASSIGNED_RANKS];
    const int16_t *first = d->members.first;
    const int n = first[from + 1] - first[from];
    for (int r = from; r < to; r++) { // hardly, if micro-batches of another size are much faster
        double best, seconds;
        GX_TRY(gx_copy_times(&v->t, &v->a, &d->members, r, d->costs, err));
        seconds = gx_copy_seconds(d->costs, &v->t.copy[r], d->samples[r]);
        if (gx__assignment_divide_best(d, r, d->samples[r], &best) && seconds > 1.3 * best) return GX_OK;
    }
    double last = INFINITY;
    for (int went = n > 1; went;) {
        int slowest = 0, to_i = -1, to_j = -1;
        for (int r = from; r < to; r++) GX_TRY(gx_copy_times(&v->t, &v->a, &d->members, r, d->costs, err));
        GX_TRY(gx__assignment_divide_shifted(d, v, from, to, -1, less, err));
        GX_TRY(gx__assignment_divide_shifted(d, v, from, to, 1, more, err));
        const GxCopyTimes *t = &v->t.copy[from];
        for (int s = 0; s < n; s++)
            if (t->forward[s] + t->backward[s] > t->forward[slowest] + t->backward[slowest]) slowest = s;
        const double now = gx__assignment_divide_try(d, v, from, to, 0, 0, less, more);
        double best = now * (1 - 1e-6);
        if (now >= last) return GX_OK; // another stage is the slowest, whose last micro-batch takes longer
        last = now;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                if (i == j || (n > GX__ASSIGNMENT_DIVIDE_SHORT && i != slowest)) continue;
                const double seconds = gx__assignment_divide_try(d, v, from, to, i, j, less, more);
                if (seconds < best) best = seconds, to_i = i, to_j = j;
            }
        went = to_i >= 0;
        for (int r = from; r < to && went; r++)
            v->a.stage[first[r] + to_i].layers--, v->a.stage[first[r] + to_j].layers++;
    }
    return GX_OK;
}

// ---- samples of the copies -----------------------------------------------------------------------------------------

static int gx__assignment_divide_is_too_large(const GxDivider *d, const GxDividerVariant *v, int copy)
{
    return v->a.copy[copy].micro_batch >= 2 * d->samples[copy];
}

// Layers of all copies in micro-batches of one size. Copies that have too few samples have those of the size before.
static GxStatus gx__assignment_divide_layers_of(GxDivider *d, GxDividerVariant *v, const GxDividerVariant *before,
                                                GxError *err)
{
    for (int r = 0; r < v->a.copies; r++) v->a.copy[r].samples = d->samples[r];
    if (d->is_same) {
        GX_TRY(gx__assignment_divide_copies(d, v, 0, v->a.copies, err));
        return d->is_close ? gx__assignment_divide_shift(d, v, 0, v->a.copies, err) : GX_OK;
    }
    for (int r = 0; r < v->a.copies; r++) {
        if (gx__assignment_divide_is_too_large(d, v, r)) {
            for (int s = d->members.first[r]; s < d->members.first[r + 1]; s++)
                v->a.stage[s].layers = before->a.stage[s].layers;
            continue;
        }
        GX_TRY(gx__assignment_divide_copies(d, v, r, r + 1, err));
        if (d->is_close) GX_TRY(gx__assignment_divide_shift(d, v, r, r + 1, err));
    }
    return GX_OK;
}

static GxStatus gx__assignment_divide_variant(GxDivider *d, GxDividerVariant *v, const GxDividerVariant *before,
                                              GxError *err)
{
    GX_TRY(gx__assignment_divide_layers_of(d, v, before, err));
    for (int r = 0; r < v->a.copies; r++) {
        int can_share = 1;
        v->lacks[r] = -1;
        if (gx__assignment_divide_is_too_large(d, v, r)) continue;
        GX_TRY(gx_copy_times(&v->t, &v->a, &d->members, r, d->costs, err));
        if (v->a.copies > 1) gx_copy_times_changed(&v->t.copy[r], 4 * v->t.copy[r].stages + 4); // for many samples
        for (int s = d->members.first[r]; s < d->members.first[r + 1]; s++)
            can_share &= v->t.stage[s].forward + v->t.stage[s].backward < INFINITY;
        if (!can_share) continue;
        v->lacks[r] = gx_copy_lacks(&v->t, &d->members, r);
        v->sums[r] = v->a.copies == 1 ? 0 : gx_copy_sums(&v->t, &v->a, &d->members, r, d->costs->problem);
    }
    return GX_OK;
}

// The most samples, from `low` to `high`, that a copy has done by then; `low` it has.
static int64_t gx__assignment_divide_samples(GxDivider *d, int copy, double by, int64_t low, int64_t high)
{
    for (high++; high - low > 1;) {
        double seconds;
        const int64_t middle = (low + high) / 2;
        gx__assignment_divide_best(d, copy, middle, &seconds);
        *(seconds <= by ? &low : &high) = middle;
    }
    return low;
}

// One sample less of the copy that ends last.
static void gx__assignment_divide_take(GxDivider *d, int copies)
{
    int last = -1;
    double latest = -1, seconds;
    for (int r = 0; r < copies; r++) {
        if (d->samples[r] == 1) continue;
        gx__assignment_divide_best(d, r, d->samples[r], &seconds);
        if (seconds > latest) latest = seconds, last = r;
    }
    d->samples[last]--;
}

// Leaves out the variants with which a copy takes much longer for about as many samples.
static void gx__assignment_divide_prune(GxDivider *d, int copy)
{
    double best;
    const GxDividerVariant *const of = gx__assignment_divide_best(d, copy, d->samples[copy], &best);
    for (int i = 0; i < d->variants; i++) {
        GxDividerVariant *v = &d->variant[i];
        if (v->lacks[copy] < 0 || v == of) continue;
        const double takes = gx_copy_seconds(d->costs, &v->t.copy[copy], d->samples[copy]) + v->sums[copy];
        if (v->lacks[copy] > of->lacks[copy] || takes > 1.3 * best) v->lacks[copy] = -1;
    }
}

// Gives the copies their samples, so that they end together: the least bound on their seconds by which all are done.
static void gx__assignment_divide_together(GxDivider *d, int copies)
{
    const int64_t samples = d->costs->problem->samples;
    int64_t few[GX_ASSIGNED_RANKS] = {0}, now[GX_ASSIGNED_RANKS], sum = 0;
    double low = 0, high = 0, seconds;
    if (copies == 1) {
        d->samples[0] = samples;
        return;
    }
    for (int r = 0; r < copies; r++) {
        gx__assignment_divide_prune(d, r);
        gx__assignment_divide_best(d, r, gx_ceil_div(samples, copies), &seconds);
        high = fmax(high, seconds);
    }
    for (int r = 0; r < copies; r++) sum += d->samples[r] = gx__assignment_divide_samples(d, r, high, 0, samples);
    for (int i = 0; i < 32 && sum > samples; i++) {
        const double middle = (low + high) / 2;
        int64_t all = 0;
        for (int r = 0; r < copies; r++)
            all += now[r] = gx__assignment_divide_samples(d, r, middle, few[r], d->samples[r]);
        if (all >= samples) high = middle, sum = all;
        else low = middle;
        memcpy(all >= samples ? d->samples : few, now, (size_t)copies * sizeof *now);
    }
    for (int r = 0; r < copies; r++)
        if (d->samples[r] == 0) d->samples[r] = 1, sum++;
    for (; sum > samples; sum--) gx__assignment_divide_take(d, copies);
}

// ---- all of it -----------------------------------------------------------------------------------------------------

GxStatus gx_divider_open(GxDivider *d, GxStageCosts *costs, GxError *err)
{
    memset(d, 0, sizeof *d);
    d->costs = costs;
    d->variant = (GxDividerVariant *)calloc(2 * GX_DIVIDER_SIZES, sizeof *d->variant);
    if (!d->variant) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the division of assignments");
    for (int i = 0; i < 2 * GX_DIVIDER_SIZES; i++)
        GX_TRY(gx_assignment_times_open(&d->variant[i].t, costs->problem, err));
    return GX_OK;
}

void gx_divider_close(GxDivider *d)
{
    for (int i = 0; d->variant && i < 2 * GX_DIVIDER_SIZES; i++) gx_assignment_times_close(&d->variant[i].t);
    free(d->variant);
    memset(d, 0, sizeof *d);
}

static void gx__assignment_divide_start(GxAssignment *a, const GxGrouping *g, int64_t micro_batch, int warm)
{
    a->ranks = g->ranks, a->copies = g->copies, a->stages = g->groups;
    for (int r = 0; r < g->ranks; r++) {
        memset(&a->place[r], 0, sizeof a->place[r]);
        a->place[r].stage = g->group[r];
    }
    for (int s = g->groups - 1, behind = 0; s >= 0; s--) {
        behind = s + 1 < g->groups && g->copy[s] == g->copy[s + 1] ? behind + 1 : 0;
        a->stage[s].copy = g->copy[s], a->stage[s].layers = 0, a->stage[s].warm = (int16_t)(warm * behind);
    }
    for (int r = 0; r < g->copies; r++) a->copy[r].micro_batch = micro_batch;
}

// Micro-batches of 1, 2, 4, ..., and the largest allowed.
static GxStatus gx__assignment_divide_variants(GxDivider *d, const GxGrouping *g, GxError *err)
{
    const GxPlanProblem *p = d->costs->problem;
    const int warms = p->most_warm && g->groups > g->copies ? 2 : 1;
    int64_t most = 1, size = 0;
    for (int r = 0; r < g->copies; r++) most = gx_max(most, d->samples[r]);
    d->variants = 0;
    for (int i = 0; i < GX_DIVIDER_SIZES && size < gx_min(p->micro_most, most); i++) {
        size = size ? gx_min(2 * size, p->micro_most) : 1;
        for (int w = 0; w < warms; w++) {
            GxDividerVariant *v = &d->variant[d->variants];
            gx__assignment_divide_start(&v->a, g, size, w * p->most_warm);
            GX_TRY(gx__assignment_divide_variant(d, v, v - warms, err)); // with a sample nothing is too large
            d->variants++;
        }
    }
    return GX_OK;
}

// The first guess: samples by the sum of the speeds of a copy's ranks.
static void gx__assignment_divide_guess(GxDivider *d, const GxGrouping *g)
{
    double speed[GX_ASSIGNED_RANKS] = {0}, all = 0;
    for (int r = 0; r < g->ranks; r++) {
        if (g->group[r] < 0) continue;
        speed[g->copy[g->group[r]]] += d->costs->speed[r];
        all += d->costs->speed[r];
    }
    for (int r = 0; r < g->copies; r++)
        d->samples[r] = gx_max((int64_t)((double)d->costs->problem->samples * speed[r] / all + 0.5), 1);
}

// The cost of an assignment whose copies may have their layers from different variants. If all must have the same: with
// those of the copy that are best for all.
static GxStatus gx__assignment_divide_cost(GxDivider *d, GxAssignment *a, GxAssignmentCost *cost, GxError *err)
{
    const int stages = a->stages / a->copies;
    GxAssignment best = *a;
    GX_TRY(gx_assignment_cost(cost, a, d->costs, err));
    for (int r = 0, is_first = 1; d->is_same && r < a->copies; r++, is_first = 0) {
        GxAssignment next = *a;
        GxAssignmentCost costs;
        for (int s = 0; s < a->stages; s++) next.stage[s].layers = a->stage[r * stages + s % stages].layers;
        GX_TRY(gx_assignment_cost(&costs, &next, d->costs, err));
        if (is_first || gx_assignment_value(&costs) < gx_assignment_value(cost)) best = next, *cost = costs;
    }
    *a = best;
    return GX_OK;
}

// Samples by d->samples, which it changes; micro-batches, layers and warm are those that are best for so many.
// *changed: whether other samples than in `a`. Returns 0, and changes nothing, if a group cannot share a layer.
static int gx__assignment_divide_choose(GxDivider *d, GxAssignment *a, int *changed)
{
    double seconds;
    for (int r = 0; r < a->copies; r++)
        if (!gx__assignment_divide_best(d, r, 1, &seconds)) return 0;
    gx__assignment_divide_together(d, a->copies);
    *changed = 0;
    for (int r = 0; r < a->copies; r++) {
        const GxAssignment *from = &gx__assignment_divide_best(d, r, d->samples[r], &seconds)->a;
        *changed |= a->copy[r].samples != d->samples[r];
        a->copy[r].samples = d->samples[r], a->copy[r].micro_batch = from->copy[r].micro_batch;
        for (int s = d->members.first[r]; s < d->members.first[r + 1]; s++) a->stage[s] = from->stage[s];
    }
    return 1;
}

// At first from a guess, then from the samples of the round before. Takes over into *a what is better than *cost.
static GxStatus gx__assignment_divide_rounds(GxAssignment *a, GxAssignmentCost *cost, GxDivider *d, const GxGrouping *g,
                                             double good, GxError *err)
{
    static const int rounds = 3;
    GxAssignment next = *a;
    double value = INFINITY;
    gx__assignment_divide_guess(d, g);
    for (int round = 0, changed = 1; round < rounds && (changed || round < 2) && (round == 0 || value <= good);
         round++) {
        GxAssignmentCost costs;
        d->is_close = round > 0;
        GX_TRY(gx__assignment_divide_variants(d, g, err));
        if (!gx__assignment_divide_choose(d, &next, &changed)) return GX_OK;
        GX_TRY(gx__assignment_divide_cost(d, &next, &costs, err));
        value = fmin(value, gx_assignment_value(&costs));
        if (gx_assignment_value(&costs) < gx_assignment_value(cost)) *a = next, *cost = costs;
    }
    return GX_OK;
}

GxStatus gx_grouping_divide(GxAssignment *a, GxAssignmentCost *cost, GxDivider *d, const GxGrouping *g, double good,
                            GxError *err)
{
    const GxPlanProblem *p = d->costs->problem;
    int is_regular = g->copies > 1 && g->groups > g->copies;
    gx__assignment_divide_start(a, g, 1, 0);
    gx_assignment_members(&d->members, a);
    for (int r = 0; r < g->copies; r++)
        is_regular &= d->members.first[r + 1] - d->members.first[r] == g->groups / g->copies;
    memset(cost, 0, sizeof *cost);
    cost->seconds = INFINITY;
    d->is_same = is_regular && p->same_lists && !(p->kinds & GX_PLAN_ANY);
    GX_TRY(gx__assignment_divide_rounds(a, cost, d, g, good, err));
    // with the same layers, gradients may be summed over faster links
    if (d->is_same || !is_regular || cost->sums < 0.03 * cost->seconds) return GX_OK;
    d->is_same = 1;
    return gx__assignment_divide_rounds(a, cost, d, g, good, err);
}
#endif
