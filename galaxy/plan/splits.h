// plan/splits.h: divides what unequal ranks share so that the slowest one is done as early as possible: exactly, in
// microseconds.
//
// gx_split_bound divides things of which each costs a rank the same: columns of an MLP, a vocabulary, tokens of a
// sequence, samples of a window. gx_split_heads divides attention's query heads, of which several share a key-value
// head: a K,V head that two ranks use is computed by both.
//
//     const double rate[3] = {3, 1, 1};           // columns per second, or relative to one another
//     int64_t part[3];
//     GX_TRY(gx_split_bound(part, rate, NULL, NULL, 3, 11008, err)); // 6606, 2201, 2201
//
// Memory: gx_split_heads allocates some 40 bytes for each rank and head, during the call; gx_split_bound nothing.
#ifndef GX_PLAN_SPLITS_H
#define GX_PLAN_SPLITS_H
#include "../base/partition.h"
GX_BEGIN

enum { GX_SPLIT_MOST_HEADS = 4096 };

// Whole parts that sum up to `total` and minimise the largest part[d] / rate[d]; of all of these, the one whose second
// largest is smallest, and so on. rate[n]: finite, in any unit; 0: such a rank gets nothing. least[d] <= part[d] <=
// cap[d]; NULL: 0, no cap. Errors: the caps are too small, or the leasts too large; a total over 2^50, a rate so small
// that its part has no finite time.
GxStatus gx_split_bound(int64_t *part, const double *rate, const int64_t *least, const int64_t *cap, int n,
                        int64_t total, GxError *err);

typedef struct {
    int ranks;
    int64_t heads, kv_heads; // the second divides the first, as gx_shares_kv asks
    const double *query;     // [ranks]: seconds of a query head
    const double *kv;        // [ranks]: of a K,V head, in addition to those of its query heads. NULL: none
    const int64_t *cap;      // [ranks]: the most query heads. NULL: no caps
    // [ranks]: q heads that use k K,V heads may need q * query_bytes + k * kv_bytes. NULL: any number
    const int64_t *bytes;
    int64_t query_bytes, kv_bytes;
} GxHeadsShared;

// Contiguous ranges of query heads in the order of the ranks, 1 head at least each, that minimise the largest
// q * query[d] + k * kv[d]; of all of these, the one with the smallest sum of squares of these seconds: it is even, and
// few K,V heads are computed twice. part[ranks]: query heads. Errors name what cannot be: more ranks than heads, a rank
// that cannot have one, caps and memory that hold fewer than all.
GxStatus gx_split_heads(int64_t *part, const GxHeadsShared *s, GxError *err);

// How many K,V heads the query heads [begin, end) use, if `sharing` query heads share one.
static inline int64_t gx_kv_heads_of(int64_t begin, int64_t end, int64_t sharing)
{
    return gx_ceil_div(end, sharing) - begin / sharing;
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PLAN_SPLITS_IMPLEMENTED)
#define GX_PLAN_SPLITS_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- what costs the same each --------------------------------------------------------------------------------------

static const int64_t gx__split_most = (int64_t)1 << 50; // up to which n / rate differs from (n + 1) / rate in a double

typedef struct {
    const double *rate;
    const int64_t *least, *cap;
    int n;
    int64_t total;
} GxSplitTask;

static int64_t gx__split_least(const GxSplitTask *s, int d) { return s->least ? s->least[d] : 0; }
static int64_t gx__split_cap(const GxSplitTask *s, int d)
{
    const int64_t cap = s->cap ? gx_min(s->cap[d], s->total) : s->total;
    return s->rate[d] > 0 ? cap : 0;
}

// The most that rank d does in these seconds, but not less than it has to.
static int64_t gx__split_within(const GxSplitTask *s, int d, double seconds)
{
    const int64_t least = gx__split_least(s, d), cap = gx__split_cap(s, d);
    const double about = floor(seconds * s->rate[d]);
    int64_t part = about < (double)cap ? (int64_t)about : cap;
    if (part < cap && (double)(part + 1) / s->rate[d] <= seconds) part++; // the product was rounded
    else if (part > 0 && (double)part / s->rate[d] > seconds) part--;
    return gx_max(part, least);
}

// What all do in these seconds, beyond the total; n or more: n.
static int64_t gx__split_excess(const GxSplitTask *s, double seconds)
{
    int64_t sum = -s->total;
    for (int d = 0; d < s->n && sum < s->n; d++) sum += gx__split_within(s, d, seconds);
    return gx_min(sum, s->n);
}

static GxStatus gx__split_check(const GxSplitTask *s, GxError *err)
{
    int64_t least = 0, cap = 0;
    if (s->n < 1 || s->total < 0 || s->total > gx__split_most)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%ld shared by %d ranks; there must be a rank, and 0 to 2^50 to share",
                       (long)s->total, s->n);
    for (int d = 0; d < s->n; d++) {
        if (!(s->rate[d] >= 0) || !isfinite(s->rate[d]) || (s->rate[d] > 0 && !isfinite((double)s->total / s->rate[d])))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d has a rate of %g; it must be 0 or more, and finite", d,
                           s->rate[d]);
        if (gx__split_least(s, d) < 0 || gx__split_least(s, d) > gx__split_cap(s, d))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d must have at least %ld, and can have at most %ld", d,
                           (long)gx__split_least(s, d), (long)gx__split_cap(s, d));
        least = gx_min(least + gx__split_least(s, d), gx__split_most + 1);
        cap = gx_min(cap + gx__split_cap(s, d), s->total);
    }
    if (least > s->total)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the ranks must have at least %ld together, and there are %ld",
                       (long)least, (long)s->total);
    if (cap < s->total)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the ranks can have at most %ld together, and there are %ld", (long)cap,
                       (long)s->total);
    return GX_OK;
}

// Seconds that suffice, in which all do less than n beyond the total, or no shorter ones suffice.
static double gx__split_seconds(const GxSplitTask *s)
{
    double rates = 0, low = 0, high = 0;
    for (int d = 0; d < s->n; d++) rates += s->rate[d];
    if (s->total && rates > 0) high = (double)s->total / rates;
    while (gx__split_excess(s, high) < 0) low = high, high *= 2;
    for (;;) {
        const double middle = low + (high - low) / 2;
        if (gx__split_excess(s, high) < s->n || !(middle > low && middle < high)) return high;
        if (gx__split_excess(s, middle) < 0) low = middle;
        else high = middle;
    }
}

GxStatus gx_split_bound(int64_t *part, const double *rate, const int64_t *least, const int64_t *cap, int n,
                        int64_t total, GxError *err)
{
    const GxSplitTask s = {rate, least, cap, n, total};
    int64_t excess = -total;
    GX_TRY(gx__split_check(&s, err));
    const double seconds = gx__split_seconds(&s);
    for (int d = 0; d < n; d++) excess += part[d] = gx__split_within(&s, d, seconds);
    for (; excess > 0; excess--) { // of the ranks that are done last, the last one gives one back
        int last = -1;
        for (int d = 0; d < n; d++) {
            if (part[d] <= gx__split_least(&s, d)) continue;
            if (last < 0 || (double)part[d] / rate[d] >= (double)part[last] / rate[last]) last = d;
        }
        part[last]--;
    }
    return GX_OK;
}

// ---- heads ---------------------------------------------------------------------------------------------------------

typedef struct {
    const GxHeadsShared *s;
    int heads, sharing;
    double *best, *next; // [heads + 1]: of the ranks so far, which have the heads before this one
    int16_t *begin;      // [ranks][heads + 1]: where the range of a rank begins that ends there; -1: none can
} GxHeadsTable;

// The seconds of rank d with the heads [begin, end); < 0: they do not fit. Both grow with the range.
static double gx__split_heads_seconds(const GxHeadsTable *t, int d, int begin, int end)
{
    const GxHeadsShared *s = t->s;
    const int64_t q = end - begin, k = gx_kv_heads_of(begin, end, t->sharing);
    if (s->cap && q > s->cap[d]) return -1;
    if (s->bytes && q * s->query_bytes + k * s->kv_bytes > s->bytes[d]) return -1;
    return (double)q * s->query[d] + (s->kv ? (double)k * s->kv[d] : 0);
}

// best[end] of the ranks up to d, from that of those before, by all ranges that end there. most < 0: the largest
// seconds. Otherwise the sum of squares, where none is above `most`.
static void gx__split_heads_next(GxHeadsTable *t, int d, double most)
{
    int16_t *begins = t->begin + (int64_t)d * (t->heads + 1);
    for (int end = 0; end <= t->heads; end++) {
        t->next[end] = INFINITY, begins[end] = -1;
        for (int begin = end - 1; begin >= d; begin--) {
            const double seconds = gx__split_heads_seconds(t, d, begin, end);
            if (seconds < 0 || (most < 0 ? seconds >= t->next[end] : seconds > most)) break;
            const double before = t->best[begin];
            const double value = most >= 0 ? before + seconds * seconds : before > seconds ? before : seconds;
            if (value < t->next[end]) t->next[end] = value, begins[end] = (int16_t)begin;
        }
    }
    double *swap = t->best;
    t->best = t->next, t->next = swap;
}

// The best of all ranks and heads.
static double gx__split_heads_best(GxHeadsTable *t, double most)
{
    for (int end = 0; end <= t->heads; end++) t->best[end] = end ? INFINITY : 0;
    for (int d = 0; d < t->s->ranks; d++) gx__split_heads_next(t, d, most);
    return t->best[t->heads];
}

static GxStatus gx__split_heads_check(const GxHeadsShared *s, GxError *err)
{
    if (s->heads < 1 || s->heads > GX_SPLIT_MOST_HEADS || s->kv_heads < 1 || s->heads % s->kv_heads)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%ld query heads share %ld key-value heads; the second must divide the first, which is 1 to %d",
                       (long)s->heads, (long)s->kv_heads, GX_SPLIT_MOST_HEADS);
    if (s->ranks < 1 || s->ranks > s->heads)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%ld heads for %d ranks, of which each needs at least 1", (long)s->heads,
                       s->ranks);
    if (s->query_bytes < 0 || s->kv_bytes < 0 || s->query_bytes > gx__split_most || s->kv_bytes > gx__split_most)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a query head of %ld bytes, a key-value head of %ld", (long)s->query_bytes,
                       (long)s->kv_bytes);
    for (int d = 0; d < s->ranks; d++) {
        const double seconds = s->query[d] + (s->kv ? s->kv[d] : 0);
        if (!(s->query[d] >= 0) || (s->kv && !(s->kv[d] >= 0)) || !(seconds < 1e100))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "rank %d takes %g s for a query head, %g s for a key-value head; these must be 0 or more", d,
                           s->query[d], s->kv ? s->kv[d] : 0);
        if (s->cap && s->cap[d] < 1)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "rank %d can have %ld heads, and needs at least 1", d,
                           (long)s->cap[d]);
        if (s->bytes && s->query_bytes + s->kv_bytes > s->bytes[d])
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "rank %d has %ld bytes, and a query head with its key-value head needs %ld", d,
                           (long)s->bytes[d], (long)(s->query_bytes + s->kv_bytes));
    }
    return GX_OK;
}

GxStatus gx_split_heads(int64_t *part, const GxHeadsShared *s, GxError *err)
{
    GxHeadsTable t = GX_ZERO;
    GX_TRY(gx__split_heads_check(s, err));
    t.s = s, t.heads = (int)s->heads, t.sharing = (int)(s->heads / s->kv_heads);
    const size_t row = (size_t)t.heads + 1;
    void *memory = malloc(2 * row * sizeof(double) + (size_t)s->ranks * row * sizeof(int16_t));
    if (!memory)
        return GX_FAIL(err, GX_ERR_MEMORY, "the system refused memory to share %d heads among %d ranks", t.heads,
                       s->ranks);
    t.best = (double *)memory, t.next = t.best + row, t.begin = (int16_t *)(t.next + row);
    const double most = gx__split_heads_best(&t, -1);
    if (most < INFINITY) gx__split_heads_best(&t, most);
    for (int d = s->ranks - 1, end = t.heads; d >= 0 && most < INFINITY; d--) {
        const int begin = t.begin[(int64_t)d * (t.heads + 1) + end];
        part[d] = end - begin, end = begin;
    }
    free(memory);
    if (most < INFINITY) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "the %d ranks' caps and memory hold fewer than %d query heads", s->ranks,
                   t.heads);
}
#endif
