// toy_enumeration.h: the best assignment of a few machines, by looking at all: groupings, layers, sizes of
// micro-batches, samples. It shares no code with the planner: what an assignment takes is computed from the words at
// the top of galaxy/plan/assignment_cost.h.
#ifndef GX_TOY_ENUMERATION_H
#define GX_TOY_ENUMERATION_H
#include "test/toy_machines.h"

enum { ALL_RANKS = 4, ALL_LAYERS = 12, ALL_SAMPLES = 32, ALL_COPIES = 149, ALL_CUTS = 165, ALL_SIZES = 4 };

typedef struct { // a copy of the model: the ranks of its stages, as bits
    int n, all, group[ALL_RANKS];
} OrderedCopy;

// One pipeline of m micro-batches, in another way than the planner's: for each stage its list of work; each piece's end
// from those before it, until nothing changes.
typedef struct {
    double forward[ALL_RANKS], backward[ALL_RANKS], x[ALL_RANKS], dx[ALL_RANKS];
    int n, warm;
} OrderedTimes;

static double ordered_pipeline(const OrderedTimes *t, int m)
{
    static double end[2][ALL_RANKS][ALL_SAMPLES], came[2][ALL_RANKS][ALL_SAMPLES];
    const int p = t->n;
    double last = 0;
    memset(end, 0, sizeof end), memset(came, 0, sizeof came);
    for (int changed = 1; changed;) {
        changed = 0;
        for (int s = 0; s < p; s++) {
            const int first = (int)fmin(m, (p - 1 - s) * (1 + t->warm) + 1); // forwards before the first backward
            double free = 0, link[2] = {0, 0};
            for (int k = 0; k < 2 * m; k++) {
                // F * first, then B, F in turn, then B
                const int turns = k - first, is_back = k >= first && (turns % 2 == 0 || turns >= 2 * (m - first));
                const int i = !is_back                  ? (k < first ? k : first + turns / 2)
                              : turns < 2 * (m - first) ? turns / 2
                                                        : turns - (m - first);
                const int before = is_back ? s + 1 : s - 1, after = is_back ? s - 1 : s + 1;
                double start = free;
                if (before >= 0 && before < p) {
                    start = fmax(start, came[is_back][s][i]);
                    if (!t->warm) start += is_back ? t->dx[s] : t->x[before];
                }
                const double e = start + (is_back ? t->backward[s] : t->forward[s]);
                changed |= e != end[is_back][s][i];
                end[is_back][s][i] = e, free = e;
                if (after < 0 || after >= p) continue;
                const double hop = is_back ? t->dx[after] : t->x[s];
                if (!t->warm) free += hop;
                link[is_back] = t->warm ? fmax(link[is_back], e) + hop : e;
                changed |= came[is_back][after][i] != link[is_back];
                came[is_back][after][i] = link[is_back];
            }
            last = s ? fmax(last, free) : free;
        }
    }
    return last;
}

// What is known of a copy with some layers: the least seconds of 0, 1, ... samples, INFINITY if these do not fit.
typedef struct {
    int layers[ALL_RANKS];
    double seconds[ALL_SAMPLES + 1], step, grad_bytes[ALL_RANKS];
} OrderedCut;

// What is looked at: all, or less.
enum { ALL_ANY, ALL_MIXED, ALL_REGULAR, ALL_PIPELINE, ALL_DP, ALL_DP_TP, ALL_WORK, ALL_SPACES };

typedef struct {
    Toy *t;
    OrderedCopy copy[ALL_COPIES];
    OrderedCut *cut; // [copies][cuts]
    int cuts[ALL_COPIES];
    int copies, looked, same_lists; // same_lists: only regular ones, with the same lists and layers
    double best[ALL_SPACES];        // seconds; INFINITY: none fits
    int chosen[ALL_SPACES][ALL_RANKS], chosen_cut[ALL_SPACES][ALL_RANKS], chosen_n[ALL_SPACES];
} Enumeration;

static int bits_of(int mask, int16_t *rank)
{
    int n = 0;
    for (int r = 0; r < ALL_RANKS; r++)
        if (mask >> r & 1) rank[n++] = (int16_t)r;
    return n;
}

static double ordered_message(const Toy *t, int from, int to, double bytes)
{
    int16_t a[ALL_RANKS], b[ALL_RANKS];
    const int n = bits_of(from, a), m = bits_of(to, b);
    double slowest = 0;
    bytes *= (m + n - 1) / n;
    for (int j = 0; j < m; j++) {
        double least = INFINITY;
        for (int i = 0; i < n; i++)
            least = fmin(least, t->latency[a[i] * t->n + b[j]] + bytes * t->beta[a[i] * t->n + b[j]]);
        slowest = fmax(slowest, least);
    }
    return slowest;
}

// Fills in the seconds with micro-batches of b samples. alike: all ranks of all groups, if these have the same lists.
static void ordered_size(Toy *t, const OrderedCopy *c, OrderedCut *cut, int64_t b, int warm, const int16_t *alike,
                         int groups)
{
    GxError err = GX_ZERO;
    OrderedTimes times, last;
    double known[ALL_SAMPLES + 1] = {0};
    const int64_t samples = t->p.samples, most = (samples + b - 1) / b;
    memset(&times, 0, sizeof times), memset(&last, 0, sizeof last);
    times.n = c->n, times.warm = warm;
    for (int64_t m = 1; m <= most; m++) {
        double slowest = -1, one = 1;
        int fits = 1;
        for (int s = 0; s < c->n; s++) {
            int16_t rank[ALL_RANKS];
            GxStageRequest r = GX_ZERO;
            GxStageCost cost = GX_ZERO, of_one = GX_ZERO;
            r.rank = rank, r.n = bits_of(c->group[s], rank);
            if (alike && r.n > 1) r.alike = alike, r.groups = groups;
            r.layers = cut->layers[s], r.has_embed = s == 0, r.has_head = s == c->n - 1;
            r.alive = (int)fmin((c->n - s) + warm * (c->n - 1 - s), m);
            r.micro_batch = b;
            toy_stage(t, &cost, &r, &err);
            r.micro_batch = 1;
            toy_stage(t, &of_one, &r, &err);
            fits &= cost.room >= 0 && cost.forward < INFINITY;
            times.forward[s] = cost.forward, times.backward[s] = cost.backward;
            cut->grad_bytes[s] = cost.grad_bytes, cut->step = fmax(cut->step, cost.step);
            const double bytes = t->p.x_bytes * b;
            times.x[s] = s + 1 < c->n ? ordered_message(t, c->group[s], c->group[s + 1], bytes) : 0;
            times.dx[s] = s + 1 < c->n ? ordered_message(t, c->group[s + 1], c->group[s], bytes) : 0;
            if (cost.forward + cost.backward > slowest) {
                slowest = cost.forward + cost.backward;
                one = b > 1 ? fmin((of_one.forward + of_one.backward) / slowest, 1) : 1;
            }
        }
        if (!fits) return;                                             // more micro-batches need no less
        const int is_known = memcmp(&times, &last, sizeof times) == 0; // else fewer are alive, and lists others
        const double before = m == 1 ? 0 : is_known ? known[m - 1] : ordered_pipeline(&times, (int)m - 1);
        last = times;
        known[m] = ordered_pipeline(&times, (int)m);
        for (int64_t n = (m - 1) * b + 1; n <= m * b && n <= samples; n++) {
            const double part = n == m * b ? 1 : one + (1 - one) * (double)(n - (m - 1) * b - 1) / (double)(b - 1);
            cut->seconds[n] = fmin(cut->seconds[n], before + (known[m] - before) * part);
        }
    }
}

static void ordered_cut(Toy *t, const OrderedCopy *c, OrderedCut *cut, const int16_t *alike, int groups)
{
    cut->step = cut->seconds[0] = 0;
    for (int n = 1; n <= t->p.samples; n++) cut->seconds[n] = INFINITY;
    for (int64_t b = 1;; b = gx_min(2 * b, t->p.micro_most)) {
        for (int w = 0; w <= (c->n > 1 ? t->p.most_warm : 0); w++) ordered_size(t, c, cut, b, w, alike, groups);
        if (b == t->p.micro_most || b >= t->p.samples) break;
    }
}

// All divisions of the layers among n stages.
static int all_cuts(OrderedCut *cut, int n, int layers)
{
    int count = 0, at[ALL_RANKS];
    for (int i = 0; i < n; i++) at[i] = 1;
    for (;;) {
        int sum = 0;
        for (int i = 0; i < n - 1; i++) sum += at[i];
        if (sum < layers) {
            for (int i = 0; i < n - 1; i++) cut[count].layers[i] = at[i];
            cut[count++].layers[n - 1] = layers - sum;
        }
        int i = 0;
        while (i < n - 1 && ++at[i] == layers) at[i++] = 1;
        if (i == n - 1) return count;
    }
}

// All copies whose first groups are `c` and which go on with some of `rest`.
static void all_copies(Enumeration *e, OrderedCopy c, int rest)
{
    if (c.n) e->copy[e->copies++] = c;
    for (int group = rest; group; group = (group - 1) & rest) {
        if (c.n == e->t->p.layers) return;
        OrderedCopy next = c;
        next.group[next.n++] = group, next.all |= group;
        all_copies(e, next, rest & ~group);
    }
}

static int overlap(const OrderedCut *a, int s, const OrderedCut *b, int u)
{
    int at[2] = {0, 0};
    for (int i = 0; i < s; i++) at[0] += a->layers[i];
    for (int i = 0; i < u; i++) at[1] += b->layers[i];
    return at[0] < at[1] + b->layers[u] && at[1] < at[0] + a->layers[s];
}

static double sums_of(const Enumeration *e, const OrderedCopy *const *c, const OrderedCut *const *cut, int n, int copy)
{
    double slowest = 0;
    for (int s = 0; s < c[copy]->n; s++) {
        double latency = 0, beta = 0;
        for (int o = 0; o < n; o++)
            for (int u = 0; o != copy && u < c[o]->n; u++) {
                int16_t a[ALL_RANKS], b[ALL_RANKS];
                const int na = bits_of(c[copy]->group[s], a), nb = bits_of(c[o]->group[u], b);
                if (!overlap(cut[copy], s, cut[o], u)) continue;
                for (int i = 0; i < na * nb; i++) { // links are the same in both directions here
                    latency = fmax(latency, e->t->latency[a[i / nb] * e->t->n + b[i % nb]]);
                    beta = fmax(beta, e->t->beta[a[i / nb] * e->t->n + b[i % nb]]);
                }
            }
        slowest = fmax(slowest, 2 * (n - 1) * latency + 2.0 * (n - 1) / n * cut[copy]->grad_bytes[s] * beta);
    }
    return slowest;
}

// The best division of the samples among these copies.
static double together(const Enumeration *e, const OrderedCopy *const *c, const OrderedCut *const *cut, int n)
{
    double best[ALL_SAMPLES + 1], step = 0;
    const int G = (int)e->t->p.samples;
    for (int g = 0; g <= G; g++) best[g] = g ? INFINITY : 0;
    for (int i = 0; i < n; i++) {
        const double sums = n > 1 ? sums_of(e, c, cut, n, i) : 0;
        step = fmax(step, cut[i]->step);
        for (int g = G; g >= 0; g--) {
            double least = INFINITY;
            for (int mine = 1; mine <= g; mine++)
                least = fmin(least, fmax(best[g - mine], cut[i]->seconds[mine] + sums));
            best[g] = least;
        }
    }
    return best[G] + step;
}

static int is_in(int space, const Toy *t, const OrderedCopy *const *c, int n)
{
    int16_t ranks[ALL_RANKS];
    int all = 0, is_regular = 1, is_flat = 1, is_single = 1;
    for (int i = 0; i < n; i++) {
        all |= c[i]->all;
        is_regular &= c[i]->n == c[0]->n, is_flat &= c[i]->n == 1;
        for (int s = 0; s < c[i]->n; s++) {
            const int members = bits_of(c[i]->group[s], ranks);
            is_regular &= members == bits_of(c[0]->group[0], ranks), is_single &= members == 1;
        }
    }
    const int is_whole = all == (1 << t->n) - 1;
    switch (space) {
    case ALL_MIXED: return is_regular || n == 1;
    case ALL_REGULAR: return is_regular;
    case ALL_PIPELINE: return n == 1;
    case ALL_DP: return is_flat && is_single && is_whole;
    case ALL_DP_TP: return is_regular && is_flat && is_whole;
    case ALL_WORK: return is_whole;
    default: return 1;
    }
}

static void take(Enumeration *e, int space, double seconds, const int *copy, const int *at, int n)
{
    if (seconds >= e->best[space]) return;
    e->best[space] = seconds, e->chosen_n[space] = n;
    for (int k = 0; k < n; k++) e->chosen[space][k] = copy[k], e->chosen_cut[space][k] = at[k];
}

static void try_cuts(Enumeration *e, const int *copy, int n)
{
    const OrderedCopy *c[ALL_RANKS];
    const OrderedCut *cut[ALL_RANKS];
    int at[ALL_RANKS] = {0}, groups = 0, in[ALL_SPACES];
    for (int i = 0; i < n; i++) c[i] = &e->copy[copy[i]];
    for (int k = 0; k < ALL_SPACES; k++) in[k] = is_in(k, e->t, c, n);
    if (e->same_lists && !in[ALL_REGULAR]) return;
    e->looked++;
    if (e->same_lists) { // then what copies cost depends on all
        int16_t alike[ALL_RANKS];
        for (int i = 0, k = 0; i < n; i++)
            for (int s = 0; s < c[i]->n; s++, groups++) k += bits_of(c[i]->group[s], alike + k);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < e->cuts[copy[i]]; k++)
                ordered_cut(e->t, c[i], &e->cut[copy[i] * ALL_CUTS + k], groups > 1 ? alike : NULL, groups);
    }
    for (;;) {
        int i = 0;
        for (int k = 0; k < n; k++) cut[k] = &e->cut[copy[k] * ALL_CUTS + at[k]];
        const double seconds = together(e, c, cut, n);
        for (int k = 0; k < ALL_SPACES; k++)
            if (in[k]) take(e, k, seconds, copy, at, n);
        if (e->same_lists) { // the same layers have the same numbers
            if (++at[0] == e->cuts[copy[0]]) return;
            for (int k = 1; k < n; k++) at[k] = at[0];
            continue;
        }
        while (i < n && ++at[i] == e->cuts[copy[i]]) at[i++] = 0;
        if (i == n) return;
    }
}

static void try_copies(Enumeration *e, int *copy, int n, int used)
{
    if (n) try_cuts(e, copy, n);
    for (int k = n ? copy[n - 1] + 1 : 0; n < ALL_RANKS && k < e->copies; k++) {
        if ((e->copy[k].all & used) || n + 1 > e->t->p.samples) continue;
        copy[n] = k;
        try_copies(e, copy, n + 1, used | e->copy[k].all);
    }
}

// The best of each space. Free e->cut in the end.
static void enumerate(Enumeration *e, Toy *t, int same_lists)
{
    int copy[ALL_RANKS];
    OrderedCopy none;
    memset(&none, 0, sizeof none);
    if (!e->cut) e->cut = (OrderedCut *)malloc(sizeof *e->cut * ALL_COPIES * ALL_CUTS);
    e->t = t, e->copies = e->looked = 0, e->same_lists = same_lists;
    for (int k = 0; k < ALL_SPACES; k++) e->best[k] = INFINITY;
    all_copies(e, none, (1 << t->n) - 1);
    for (int k = 0; k < e->copies; k++) {
        e->cuts[k] = all_cuts(e->cut + k * ALL_CUTS, e->copy[k].n, t->p.layers);
        for (int i = 0; i < e->cuts[k] && !same_lists; i++)
            ordered_cut(t, &e->copy[k], &e->cut[k * ALL_CUTS + i], NULL, 0);
    }
    try_copies(e, copy, 0, 0);
}
#endif
