// plan/search.h: the best assignment of a training to unequal machines, of all that the runner can execute.
//
// It starts from many groupings (every regular mesh, dealt by speed, by memory and by neighbourhood; islands of fast
// links as groups; every rank alone), and goes on from the best of them by moves: a rank to another group, exchanged
// groups, a copy cut in two. A move that gains is followed at once; where none gains, the best grouping with moves
// left is next. So everything is looked at where the budget allows for it, which it does for five machines. Groupings
// that differ by ranks of a class are the same. A program gives the same assignment for the same problem and seed.
//
//     GxAssignment a;
//     GxSearchResult found;
//     GX_TRY(gx_search(&a, &found, &problem, 1, err));   // GX_ERR_MEMORY: none fits
//
// A machine that gains little is left out: if fewer machines take at most 3% longer, and at most 0.3 of an average
// machine's part for each that is left out. `found.with` says what it would be with each.
//
// What it does not do: it knows no model, it reads no clock. What an assignment costs is said in assignment_cost.h, how
// layers and samples are divided in assignment_divide.h.
#ifndef GX_SEARCH_H
#define GX_SEARCH_H
#include "../base/random.h"
#include "assignment_divide.h"
GX_BEGIN

typedef struct {
    GxAssignmentCost cost;          // of the assignment that was chosen, with losses
    double fastest;                 // seconds of the best one, machines that gain little included
    double with[GX_ASSIGNED_RANKS]; // [ranks]: seconds of the best one that has this rank; INFINITY: none fits
    int64_t looked;                 // at groupings
    int64_t asked;                  // calls of the problem's `stage`
} GxSearchResult;

GxStatus gx_search(GxAssignment *best, GxSearchResult *found, const GxPlanProblem *p, uint64_t seed, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SEARCH_IMPLEMENTED)
#define GX_SEARCH_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- moves ---------------------------------------------------------------------------------------------------------

typedef struct { // a grouping that is being changed: groups may be empty
    GxGrouping g;
    int place[GX_ASSIGNED_RANKS + 1]; // [groups]: order within a copy; those of a grouping are odd
    int16_t copy[GX_ASSIGNED_RANKS + 1];
    int groups;
} GxSearchDraft;

static void gx__search_draft(GxSearchDraft *d, const GxGrouping *g)
{
    d->g = *g;
    d->groups = g->groups;
    for (int i = 0; i < g->groups; i++) d->place[i] = 2 * i + 1, d->copy[i] = g->copy[i];
}

// The draft as a grouping: no group or copy is empty, groups are in order, and copies in that of their lowest ranks.
static void gx__search_finish(GxGrouping *g, const GxSearchDraft *d)
{
    int16_t by[GX_ASSIGNED_RANKS + 1], number[GX_ASSIGNED_RANKS + 1], lowest[GX_ASSIGNED_RANKS + 1];
    int is_empty[GX_ASSIGNED_RANKS + 1], n = 0;
    for (int i = 0; i < d->groups; i++) is_empty[i] = 1;
    for (int r = d->g.ranks - 1; r >= 0; r--) {
        if (d->g.group[r] < 0) continue;
        is_empty[d->g.group[r]] = 0, lowest[d->copy[d->g.group[r]]] = (int16_t)r;
    }
    for (int i = 0; i < d->groups; i++) {
        int at = n;
        if (is_empty[i]) continue;
        for (; at > 0; at--) {
            const int j = by[at - 1], order = lowest[d->copy[j]] - lowest[d->copy[i]];
            if (order < 0 || (order == 0 && d->place[j] < d->place[i])) break;
            by[at] = by[at - 1];
        }
        by[at] = (int16_t)i, n++;
    }
    g->ranks = d->g.ranks, g->groups = n, g->copies = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || d->copy[by[i]] != d->copy[by[i - 1]]) g->copies++;
        g->copy[i] = (int16_t)(g->copies - 1), number[by[i]] = (int16_t)i;
    }
    for (int r = 0; r < g->ranks; r++) g->group[r] = d->g.group[r] < 0 ? (int16_t)-1 : number[d->g.group[r]];
}

// Puts group i at place k: before group k, or behind the last one of copy k - groups; that of no copy: a new copy.
static void gx__search_put(GxSearchDraft *d, int i, int k)
{
    const int is_before = k < d->g.groups;
    d->copy[i] = is_before ? d->copy[k] : (int16_t)(k - d->g.groups);
    d->place[i] = is_before ? d->place[k] - 1 : 2 * GX_ASSIGNED_RANKS;
}

// Moves, numbered from 0 by two indices; i < what the table says first, j < second.
static void gx__search_join(GxSearchDraft *d, int i, int j) { d->g.group[i] = (int16_t)(j - 1); } // group 0: left out
static void gx__search_alone(GxSearchDraft *d, int i, int j)
{
    const int own = d->groups++;
    gx__search_put(d, own, j);
    d->g.group[i] = (int16_t)own;
}
static void gx__search_exchange(GxSearchDraft *d, int i, int j)
{
    const int16_t of = d->g.group[i];
    d->g.group[i] = d->g.group[j], d->g.group[j] = of;
}
static void gx__search_exchange_groups(GxSearchDraft *d, int i, int j)
{
    const int16_t copy = d->copy[i];
    const int place = d->place[i];
    d->copy[i] = d->copy[j], d->place[i] = d->place[j];
    d->copy[j] = copy, d->place[j] = place;
}
static void gx__search_move_group(GxSearchDraft *d, int i, int j) { gx__search_put(d, i, j); }
static void gx__search_merge(GxSearchDraft *d, int i, int j)
{
    for (int r = 0; r < d->g.ranks; r++)
        if (d->g.group[r] == i) d->g.group[r] = (int16_t)(j - 1); // 0: the whole group is left out
}
// Cuts a group into its first and its last ranks: neighbouring stages, or the stages behind it are a new copy.
static void gx__search_cut(GxSearchDraft *d, int i, int j)
{
    int members = 0, seen = 0;
    for (int k = i + 1; j == 1 && k < d->groups; k++)
        if (d->copy[k] == d->copy[i]) d->copy[k] = (int16_t)d->g.copies;
    if (j == 1) return;
    for (int r = 0; r < d->g.ranks; r++) members += d->g.group[r] == i;
    const int own = d->groups++;
    d->copy[own] = d->copy[i], d->place[own] = d->place[i] + 1;
    for (int r = 0; r < d->g.ranks; r++)
        if (d->g.group[r] == i && 2 * seen++ >= members) d->g.group[r] = (int16_t)own;
}
// Copy i behind copy j; the same one: its stages in reverse order; none: it is left out.
static void gx__search_append(GxSearchDraft *d, int i, int j)
{
    for (int k = 0; k < d->groups; k++) {
        if (d->copy[k] != i) continue;
        if (j == d->g.copies) gx__search_merge(d, k, 0);
        else if (i == j) d->place[k] = -d->place[k];
        else d->copy[k] = (int16_t)j, d->place[k] += 4 * GX_ASSIGNED_RANKS;
    }
}

typedef struct { // how many: as ranks, groups or copies, and so many more
    int ranks, groups, copies, more;
} GxSearchSpan;
static const struct {
    void (*apply)(GxSearchDraft *d, int i, int j);
    GxSearchSpan i, j;
} gx__search_moves[] = {
    {gx__search_join, {1, 0, 0, 0}, {0, 1, 0, 1}},       {gx__search_alone, {1, 0, 0, 0}, {0, 1, 1, 1}},
    {gx__search_exchange, {1, 0, 0, 0}, {1, 0, 0, 0}},   {gx__search_exchange_groups, {0, 1, 0, 0}, {0, 1, 0, 0}},
    {gx__search_move_group, {0, 1, 0, 0}, {0, 1, 1, 1}}, {gx__search_merge, {0, 1, 0, 0}, {0, 1, 0, 1}},
    {gx__search_cut, {0, 1, 0, 0}, {0, 0, 0, 2}},        {gx__search_append, {0, 0, 1, 0}, {0, 0, 1, 1}},
};
enum { GX__SEARCH_MOVES = sizeof gx__search_moves / sizeof *gx__search_moves };

static int64_t gx__search_span(const GxGrouping *g, const GxSearchSpan *s)
{
    return s->ranks * g->ranks + s->groups * g->groups + s->copies * g->copies + s->more;
}

static int64_t gx__search_count(const GxGrouping *g)
{
    int64_t n = 0;
    for (int k = 0; k < GX__SEARCH_MOVES; k++)
        n += gx__search_span(g, &gx__search_moves[k].i) * gx__search_span(g, &gx__search_moves[k].j);
    return n;
}

// Move number `move` of all.
static void gx__search_move(GxGrouping *to, const GxGrouping *g, int64_t move)
{
    GxSearchDraft d;
    int k = 0;
    gx__search_draft(&d, g);
    for (;; k++) {
        const int64_t n = gx__search_span(g, &gx__search_moves[k].i) * gx__search_span(g, &gx__search_moves[k].j);
        if (move < n) break;
        move -= n;
    }
    const int64_t j = gx__search_span(g, &gx__search_moves[k].j);
    gx__search_moves[k].apply(&d, (int)(move / j), (int)(move % j));
    gx__search_finish(to, &d);
}

enum {
    GX__SEARCH_BUDGET = 3000, // groupings, unless the problem says how many; five machines have 2742
    GX__SEARCH_CLOSE = 300,   // so many are all looked at closely
    GX__SEARCH_CHAINS = 6     // starts that are followed
};

// ---- what has been looked at ---------------------------------------------------------------------------------------

typedef struct {
    GxGrouping g;
    double value;
    int machines;
    int64_t moves, tried, first, step; // its moves are tried in the order first + i step, modulo moves
} GxSearchNode;

typedef struct {
    GxStageCosts costs;
    GxDivider divider;
    GxSearchNode *node; // [looked], of at most budget
    uint64_t *seen;     // [seen_most]: hashes; 0: empty. Twice as many as are looked at
    int64_t looked, budget, seen_most;
    uint64_t seed;
    double good;                         // the least value
    double *with;                        // [ranks]
    int64_t best[GX_ASSIGNED_RANKS + 1]; // by the number of machines: a node; -1: none
} GxSearch;

// The same for groupings that differ by equal ranks, or by the order of copies.
static uint64_t gx__search_hash(const GxSearch *s, const GxGrouping *g)
{
    uint64_t group[GX_ASSIGNED_RANKS], copy[GX_ASSIGNED_RANKS], all = 0;
    for (int i = 0; i < g->groups; i++) group[i] = copy[i] = GX_HASH_START;
    for (int r = 0; r < g->ranks; r++)
        if (g->group[r] >= 0) group[g->group[r]] = gx_hash(group[g->group[r]], &s->costs.same[r], sizeof(int));
    for (int i = 0; i < g->groups; i++) copy[g->copy[i]] = gx_hash(copy[g->copy[i]], &group[i], sizeof *group);
    for (int i = 0; i < g->copies; i++) all += gx_hash(copy[i], "copy", 4);
    return all ? all : 1;
}

// Whether it is new; it no longer is.
static int gx__search_is_new(GxSearch *s, const GxGrouping *g)
{
    const uint64_t hash = gx__search_hash(s, g);
    int64_t i = (int64_t)(hash % (uint64_t)s->seen_most);
    for (; s->seen[i]; i = i + 1 == s->seen_most ? 0 : i + 1)
        if (s->seen[i] == hash) return 0;
    s->seen[i] = hash;
    return 1;
}

static int gx__search_is_allowed(const GxPlanProblem *p, const GxGrouping *g)
{
    int members[GX_ASSIGNED_RANKS] = {0}, stages[GX_ASSIGNED_RANKS] = {0}, is_regular = 1;
    if (g->groups == 0 || g->copies > p->samples || (p->most_copies && g->copies > p->most_copies)) return 0;
    if (p->first_rank_stays && g->group[0] < 0) return 0;
    for (int r = 0; r < g->ranks; r++)
        if (g->group[r] >= 0) members[g->group[r]]++;
    for (int i = 0; i < g->groups; i++) {
        if (p->most_group && members[i] > p->most_group) return 0;
        if (++stages[g->copy[i]] > p->layers) return 0;
        is_regular &= members[i] == members[0];
    }
    for (int i = 0; i < g->copies; i++) is_regular &= stages[i] == stages[0];
    return (p->kinds & GX_PLAN_ANY) || (g->copies == 1 && (p->kinds & GX_PLAN_PIPELINE)) ||
           (is_regular && (p->kinds & GX_PLAN_REGULAR));
}

static int64_t gx__search_gcd(int64_t a, int64_t b) { return b ? gx__search_gcd(b, a % b) : a; }

// Looks at a grouping, unless it is not allowed or not new. *node: which one it is now, or -1.
static GxStatus gx__search_look(GxSearch *s, const GxGrouping *g, int64_t *node, GxError *err)
{
    *node = -1;
    if (s->looked == s->budget || !gx__search_is_allowed(s->costs.problem, g) || !gx__search_is_new(s, g)) return GX_OK;
    GxAssignment a = GX_ZERO;
    GxAssignmentCost cost;
    GxSearchNode *n = &s->node[s->looked];
    GX_TRY(gx_grouping_divide(&a, &cost, &s->divider, g, s->looked < GX__SEARCH_CLOSE ? INFINITY : 1.2 * s->good, err));
    n->g = *g, n->value = gx_assignment_value(&cost), n->machines = 0;
    n->moves = gx__search_count(g), n->tried = 0;
    const GxRandom4 random = gx_philox(s->seed, (uint64_t)s->looked, 0, 0);
    n->first = random.w[0] % n->moves, n->step = 1 + random.w[1] % n->moves;
    while (gx__search_gcd(n->step, n->moves) != 1) n->step++;
    for (int r = 0; r < g->ranks; r++) {
        if (g->group[r] < 0) continue;
        n->machines++;
        if (!cost.lacks) s->with[r] = fmin(s->with[r], n->value);
    }
    int64_t *best = &s->best[n->machines];
    if (*best < 0 || n->value < s->node[*best].value) *best = s->looked;
    s->good = fmin(s->good, n->value);
    *node = s->looked++;
    return GX_OK;
}

// Tries moves of `from`, and of what is better, until there are none left, or `until` groupings have been looked at.
static GxStatus gx__search_descend(GxSearch *s, int64_t from, int64_t until, GxError *err)
{
    while (s->looked < until && s->node[from].tried < s->node[from].moves) {
        GxSearchNode *n = &s->node[from];
        GxGrouping next;
        int64_t node;
        gx__search_move(&next, &n->g, (n->first + n->tried++ * n->step) % n->moves);
        GX_TRY(gx__search_look(s, &next, &node, err));
        if (node >= 0 && s->node[node].value < n->value) from = node;
    }
    return GX_OK;
}

// The best of nodes [0, n) that has moves left, of those that are not as good as node `behind`; -1: none.
static int64_t gx__search_next(const GxSearch *s, int64_t n, int64_t behind)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        const GxSearchNode *of = &s->node[i];
        if (of->tried == of->moves || (behind >= 0 && of->value <= s->node[behind].value)) continue;
        if (best < 0 || of->value < s->node[best].value) best = i;
    }
    return best;
}

// ---- starts --------------------------------------------------------------------------------------------------------

enum { GX__SEARCH_ORDERS = 3 }; // by speed, by memory, by neighbourhood

// Seconds of a megabyte from a rank to another or back, the slower way.
static double gx__search_distance(const GxPlanProblem *p, int a, int b)
{
    const int to = a * p->ranks + b, back = b * p->ranks + a;
    return fmax(p->latency[to] + 1e6 * p->seconds_per_byte[to], p->latency[back] + 1e6 * p->seconds_per_byte[back]);
}

// Whether rank a comes before rank b in an order, if `last` came before them.
static int gx__search_is_before(const GxSearch *s, int order, int a, int b, int last)
{
    const GxStageCosts *c = &s->costs;
    if (c->problem->first_rank_stays && (a == 0 || b == 0)) return a == 0; // else it is not in what leaves some out
    if (order == 1 && c->room[a] != c->room[b]) return c->room[a] > c->room[b];
    if (order == 2 && last >= 0) {
        const double to_a = gx__search_distance(c->problem, last, a), to_b = gx__search_distance(c->problem, last, b);
        if (to_a != to_b) return to_a < to_b;
    }
    return c->speed[a] > c->speed[b];
}

static void gx__search_order(const GxSearch *s, int order, int16_t *by)
{
    const int n = s->costs.problem->ranks;
    for (int i = 0; i < n; i++) by[i] = (int16_t)i;
    for (int i = 0; i < n; i++) {
        int next = i;
        for (int j = i + 1; j < n; j++)
            if (gx__search_is_before(s, order, by[j], by[next], i ? by[i - 1] : -1)) next = j;
        const int16_t rank = by[next];
        for (int j = next; j > i; j--) by[j] = by[j - 1];
        by[i] = rank;
    }
}

// The first n ranks of an order in groups of t, dealt to R copies: in turn, or to each those that are next to each
// other.
static GxStatus gx__search_deal(GxSearch *s, const int16_t *by, int n, int t, int R, int in_turn, GxError *err)
{
    GxSearchDraft d;
    GxGrouping g;
    int64_t node;
    const int groups = (int)gx_ceil_div(n, t), stages = (int)gx_ceil_div(groups, R);
    d.g.ranks = s->costs.problem->ranks, d.g.groups = d.groups = groups, d.g.copies = R;
    for (int r = 0; r < d.g.ranks; r++) d.g.group[r] = -1;
    for (int i = 0; i < n; i++) d.g.group[by[i]] = (int16_t)(i / t);
    for (int i = 0; i < groups; i++) d.place[i] = 2 * i + 1, d.copy[i] = (int16_t)(in_turn ? i % R : i / stages);
    gx__search_finish(&g, &d);
    return gx__search_look(s, &g, &node, err);
}

// Every so many of the meshes of R copies of p stages of t ranks. is_whole: of the longest ones, and of all ranks in
// groups of t, dealt to R copies; else of the others. every 0: none. *n: how many there are.
static GxStatus gx__search_deal_meshes(GxSearch *s, const int16_t *by, int in_turn, int is_whole, double every,
                                       int64_t *n, GxError *err)
{
    const GxPlanProblem *p = s->costs.problem;
    const int most_group = p->most_group ? (int)gx_min(p->most_group, p->ranks) : p->ranks;
    const int64_t most_copies = gx_min(p->most_copies ? p->most_copies : p->ranks, p->samples);
    double next = 0;
    *n = 0;
    for (int t = 1; t <= most_group; t++)
        for (int R = 1; R * t <= p->ranks && R <= most_copies; R++) {
            const int longest = (int)gx_min(p->ranks / (R * t), p->layers);
            const int first = is_whole ? longest : 1, last = is_whole ? longest + 1 : longest - 1;
            for (int stages = first; stages <= last; stages++, (*n)++) {
                if (every == 0 || (double)*n < next) continue;
                next += every;
                GX_TRY(gx__search_deal(s, by, stages > longest ? p->ranks : stages * R * t, t, R, in_turn, err));
            }
        }
    return GX_OK;
}

// About `most` of the meshes.
static GxStatus gx__search_start_meshes(GxSearch *s, const int16_t *by, int in_turn, int64_t most, GxError *err)
{
    for (int is_whole = 1; is_whole >= 0; is_whole--) {
        int64_t n;
        GX_TRY(gx__search_deal_meshes(s, by, in_turn, is_whole, 0, &n, err));
        GX_TRY(gx__search_deal_meshes(s, by, in_turn, is_whole, fmax((double)n / (double)gx_max(most / 2, 1), 1), &n,
                                      err));
    }
    return GX_OK;
}

static int gx__search_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The number of each rank's island, if links are of two kinds, of which one is at least four times as fast. Returns how
// many islands there are; 1: links are alike.
static int gx__search_islands(const GxPlanProblem *p, int16_t *island, double *distance)
{
    int n = 0, islands = 0;
    double limit = 0, jump = 4;
    for (int a = 0; a < p->ranks; a++)
        for (int b = 0; b < a; b++) distance[n++] = gx__search_distance(p, a, b);
    qsort(distance, (size_t)n, sizeof *distance, gx__search_compare);
    for (int i = 1; i < n; i++)
        if (distance[i] >= jump * distance[i - 1]) jump = distance[i] / distance[i - 1], limit = distance[i];
    for (int r = 0; r < p->ranks; r++) island[r] = -1;
    for (int r = 0; r < p->ranks; r++) {
        if (island[r] >= 0) continue;
        island[r] = (int16_t)islands++;
        for (int went = 1; went;) {
            went = 0;
            for (int a = 0; a < p->ranks; a++)
                for (int b = 0; b < p->ranks; b++)
                    if (island[a] == islands - 1 && island[b] < 0 && gx__search_distance(p, a, b) < limit)
                        island[b] = island[a], went = 1;
        }
    }
    return limit > 0 ? islands : 1;
}

// Islands as groups, of one pipeline or of a copy each; as pipelines of single ranks, a copy each.
static GxStatus gx__search_start_islands(GxSearch *s, GxError *err)
{
    const GxPlanProblem *p = s->costs.problem;
    int16_t island[GX_ASSIGNED_RANKS];
    double *distance = (double *)malloc((size_t)(p->ranks * p->ranks) * sizeof *distance);
    if (!distance) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the links of %d ranks", p->ranks);
    const int islands = gx__search_islands(p, island, distance);
    free(distance);
    for (int way = 0; way < 3 && islands > 1; way++) {
        GxSearchDraft d;
        GxGrouping g;
        int64_t node;
        d.g.ranks = p->ranks, d.groups = way == 2 ? p->ranks : islands;
        for (int r = 0; r < p->ranks; r++) {
            const int group = d.g.group[r] = way == 2 ? (int16_t)r : island[r];
            d.place[group] = 2 * group + 1, d.copy[group] = way ? island[r] : 0;
        }
        gx__search_finish(&g, &d);
        GX_TRY(gx__search_look(s, &g, &node, err));
    }
    return GX_OK;
}

static GxStatus gx__search_start(GxSearch *s, GxError *err)
{
    const GxPlanProblem *p = s->costs.problem;
    int16_t by[GX__SEARCH_ORDERS][GX_ASSIGNED_RANKS];
    for (int order = 0; order < GX__SEARCH_ORDERS; order++) gx__search_order(s, order, by[order]);
    for (int r = 0; r < p->ranks; r++) { // alone
        const int16_t rank = (int16_t)r;
        GX_TRY(gx__search_deal(s, &rank, 1, 1, 1, 0, err));
    }
    GX_TRY(gx__search_start_islands(s, err));
    for (int k = 0; k < 2 * GX__SEARCH_ORDERS; k++)
        GX_TRY(gx__search_start_meshes(s, by[k / 2], k % 2, s->budget / 3 / (2 * GX__SEARCH_ORDERS), err));
    return GX_OK;
}

// ---- the search ----------------------------------------------------------------------------------------------------

static GxStatus gx__search_open(GxSearch *s, double *with, const GxPlanProblem *p, uint64_t seed, GxError *err)
{
    memset(s, 0, sizeof *s);
    GX_TRY(gx_stage_costs_open(&s->costs, p, err));
    GX_TRY(gx_divider_open(&s->divider, &s->costs, err));
    s->budget = p->budget > 0 ? p->budget : (int64_t)GX__SEARCH_BUDGET;
    s->seen_most = 2 * s->budget + 2;
    s->seed = seed, s->with = with, s->good = INFINITY;
    s->node = (GxSearchNode *)malloc((size_t)s->budget * sizeof *s->node);
    s->seen = (uint64_t *)calloc((size_t)s->seen_most, sizeof *s->seen);
    if (!s->node || !s->seen) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to look at %ld groupings", (long)s->budget);
    for (int i = 0; i <= GX_ASSIGNED_RANKS; i++) s->best[i] = -1;
    for (int r = 0; r < GX_ASSIGNED_RANKS; r++) with[r] = INFINITY;
    return GX_OK;
}

static void gx__search_close(GxSearch *s)
{
    free(s->node);
    free(s->seen);
    gx_divider_close(&s->divider);
    gx_stage_costs_close(&s->costs);
}

static GxStatus gx__search_run(GxSearch *s, GxError *err)
{
    GX_TRY(gx__search_start(s, err));
    const int64_t starts = s->looked, rest = s->budget - starts;
    int64_t from = -1;
    for (int i = 1; i <= GX__SEARCH_CHAINS; i++) {
        from = gx__search_next(s, starts, from);
        if (from < 0) break;
        GX_TRY(gx__search_descend(s, from, starts + rest / 2 * i / GX__SEARCH_CHAINS, err));
    }
    while (s->looked < s->budget && (from = gx__search_next(s, s->looked, -1)) >= 0)
        GX_TRY(gx__search_descend(s, from, s->budget, err));
    return GX_OK;
}

// The best node, or one of fewer machines that takes hardly longer. *fastest: seconds of the best. -1: no grouping is
// allowed.
static int64_t gx__search_choose(const GxSearch *s, double *fastest)
{
    int most = 0;
    *fastest = INFINITY;
    for (int n = 1; n <= s->costs.problem->ranks; n++)
        if (s->best[n] >= 0 && s->node[s->best[n]].value < *fastest) most = n, *fastest = s->node[s->best[n]].value;
    for (int n = 1; n < most; n++) {
        const double longer = fmin(0.03, 0.3 * (most - n) / most);
        if (s->best[n] >= 0 && s->node[s->best[n]].value <= *fastest * (1 + longer)) return s->best[n];
    }
    return most ? s->best[most] : -1;
}

// The same number of micro-batches, as alike as they can be.
static GxStatus gx__search_even(GxSearch *s, GxAssignment *a, GxAssignmentCost *cost, GxError *err)
{
    GxAssignment even = *a;
    GxAssignmentCost costs;
    for (int r = 0; r < a->copies; r++)
        even.copy[r].micro_batch = gx_ceil_div(a->copy[r].samples, gx_assignment_micro_batches(a, r));
    GX_TRY(gx_assignment_cost(&costs, &even, &s->costs, err));
    if (gx_assignment_value(&costs) < gx_assignment_value(cost)) *a = even;
    return GX_OK;
}

static GxStatus gx__search_parts(const GxPlanProblem *p, GxAssignment *a, GxError *err)
{
    GxMembers m;
    gx_assignment_members(&m, a);
    for (int stage = 0; p->parts && stage < a->stages; stage++) {
        GxAssignmentPlace part[GX_ASSIGNED_RANKS];
        const GxStageRequest r = gx_stage_request(p, a, &m, stage);
        memset(part, 0, sizeof part);
        GX_TRY(p->parts(p->user, part, &r, err));
        for (int i = 0; i < r.n; i++) {
            a->place[r.rank[i]] = part[i];
            a->place[r.rank[i]].stage = (int16_t)stage;
        }
    }
    return GX_OK;
}

static GxStatus gx__search_end(GxSearch *s, GxAssignment *a, GxSearchResult *found, GxError *err)
{
    const GxPlanProblem *p = s->costs.problem;
    const int64_t node = gx__search_choose(s, &found->fastest);
    if (node < 0)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "of %ld groupings of %d ranks none is allowed, or can share the model",
                       (long)s->looked, p->ranks);
    GX_TRY(gx_grouping_divide(a, &found->cost, &s->divider, &s->node[node].g, INFINITY, err));
    if (found->cost.lacks)
        return GX_FAIL(err, GX_ERR_MEMORY,
                       "no assignment fits, of %ld groupings: the one that lacks the least lacks %.1f MB on rank %d, "
                       "%.1f MB in all; add memory or a rank, or recompute, shard or quantise more",
                       (long)s->looked, 1e-6 * (double)found->cost.lacks_most, found->cost.tightest,
                       1e-6 * (double)found->cost.lacks);
    GX_TRY(gx__search_even(s, a, &found->cost, err));
    GX_TRY(gx_assignment_losses(&found->cost, a, &s->costs, err));
    GX_TRY(gx__search_parts(p, a, err));
    found->looked = s->looked, found->asked = s->costs.asked;
    return gx_assignment_check(a, p->layers, p->samples, err);
}

GxStatus gx_search(GxAssignment *best, GxSearchResult *found, const GxPlanProblem *p, uint64_t seed, GxError *err)
{
    GxSearch s;
    memset(best, 0, sizeof *best);
    memset(found, 0, sizeof *found);
    GxStatus status = gx__search_open(&s, found->with, p, seed, err);
    if (status == GX_OK) status = gx__search_run(&s, err);
    if (status == GX_OK) status = gx__search_end(&s, best, found, err);
    gx__search_close(&s);
    return status;
}
#endif
