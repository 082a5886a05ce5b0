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
// Memory: gx_split_heads allocates some 20 bytes for each rank and head, during the call; gx_split_bound nothing.
#ifndef GX_SPLITS_H
#define GX_SPLITS_H
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

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SPLITS_IMPLEMENTED)
#define GX_SPLITS_IMPLEMENTED
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- what costs the same each --------------------------------------------------------------------------------------

static const int64_t gx__split_most = (int64_t)1 << 50; // up to which n / rate differs from (n + 1) / rate in a double
enum { GX__SPLIT_FEW = 16 };                            // so many can be taken back one by one

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
    const double most = floor(seconds * s->rate[d]);
    return gx_max(most < (double)cap ? (int64_t)most : cap, least);
}

// What all do in these seconds, beyond the total; GX__SPLIT_FEW or more: GX__SPLIT_FEW.
static int64_t gx__split_excess(const GxSplitTask *s, double seconds)
{
    int64_t sum = -s->total;
    for (int d = 0; d < s->n && sum < GX__SPLIT_FEW; d++) sum += gx__split_within(s, d, seconds);
    return gx_min(sum, GX__SPLIT_FEW);
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

// Seconds that suffice, in which all do little beyond the total, or no shorter ones suffice.
static double gx__split_seconds(const GxSplitTask *s)
{
    double rates = 0, low = 0, high = 0;
    for (int d = 0; d < s->n; d++) rates += s->rate[d];
    if (s->total) high = fmax((double)s->total / rates, DBL_MIN); // what all would need if things could be cut
    int64_t excess = gx__split_excess(s, high);
    for (; excess < 0; excess = gx__split_excess(s, high)) low = high, high *= 2;
    for (double middle = low + (high - low) / 2; excess >= GX__SPLIT_FEW && middle > low && middle < high;
         middle = low + (high - low) / 2) {
        const int64_t there = gx__split_excess(s, middle);
        if (there < 0) low = middle;
        else high = middle, excess = there;
    }
    return high;
}

GxStatus gx_split_bound(int64_t *part, const double *rate, const int64_t *least, const int64_t *cap, int n,
                        int64_t total, GxError *err)
{
    const GxSplitTask s = {rate, least, cap, n, total};
    int64_t excess = -total;
    GX_TRY(gx__split_check(&s, err));
    const double seconds = gx__split_seconds(&s);
    for (int d = 0; d < n; d++) excess += part[d] = gx__split_within(&s, d, seconds);
    for (; excess > 0; excess--) { // of the ranks that are done last, the slowest one gives one back
        int last = -1;
        double latest = -1;
        for (int d = 0; d < n; d++) {
            if (part[d] <= gx__split_least(&s, d)) continue;
            const double seconds = (double)part[d] / rate[d];
            if (seconds > latest || (seconds == latest && rate[d] <= rate[last])) last = d, latest = seconds;
        }
        part[last]--;
    }
    return GX_OK;
}

// ---- heads ---------------------------------------------------------------------------------------------------------

typedef struct {
    const GxHeadsShared *s;
    int heads;
    // [ranks][heads + 1]: seconds of that many query heads, K,V heads; beyond a rank's cap INFINITY. Products may be
    // rounded in more than one way (FMA), and the search compares for equality: so they are computed once.
    double *query, *kv;
    int16_t *first, *after;     // [heads + 1]: of a range that begins, that ends there: its first K,V head; behind it
    int most_end[GX_MAX_PARTS]; // [ranks]: where the range of a rank ends at the latest
    double *best;               // [2][heads + 1]
    int16_t *begin;             // [ranks][heads + 1]
} GxHeadsTask;

// The seconds of rank d with the heads [begin, end), which grow with the range; INFINITY: they do not fit.
static double gx__split_heads_seconds(const GxHeadsTask *t, int d, int begin, int end)
{
    const GxHeadsShared *s = t->s;
    const int q = end - begin, k = t->after[end] - t->first[begin], row = d * (t->heads + 1);
    if (s->bytes && q * s->query_bytes + k * s->kv_bytes > s->bytes[d]) return INFINITY;
    return t->query[row + q] + t->kv[row + k];
}

// The last end, up to `limit`, of a range from `begin` that rank d has computed in these seconds; begin: none.
static int gx__split_heads_end(const GxHeadsTask *t, int d, int begin, int limit, double seconds)
{
    int end = begin;
    while (end < limit) {
        const int middle = end + (limit - end + 1) / 2;
        if (gx__split_heads_seconds(t, d, begin, middle) <= seconds) end = middle;
        else limit = middle - 1;
    }
    return end;
}

// Each rank takes as many heads as it computes in `most` seconds, up to one for each rank behind it; more never make it
// harder for those. Fills most_end, and returns whether all heads are taken. *used: the seconds of the last rank to be
// done. *needed: less than these, and more than `most`, would change nothing.
static int gx__split_heads_take(GxHeadsTask *t, double most, double *used, double *needed)
{
    int begin = 0;
    *used = 0, *needed = INFINITY;
    for (int d = 0; d < t->s->ranks; d++) {
        const int limit = t->heads - (t->s->ranks - 1 - d), end = gx__split_heads_end(t, d, begin, limit, most);
        if (end < limit) *needed = fmin(*needed, gx__split_heads_seconds(t, d, begin, end + 1));
        if (end == begin) return 0;
        *used = fmax(*used, gx__split_heads_seconds(t, d, begin, end));
        t->most_end[d] = begin = end;
    }
    return begin == t->heads;
}

// The least seconds in which all heads can be taken; INFINITY: caps and memory do not hold them.
static double gx__split_heads_least(GxHeadsTask *t)
{
    double low = 0, high, used, needed; // fewer seconds than low do not suffice; high ones do
    if (!gx__split_heads_take(t, DBL_MAX, &high, &needed)) return INFINITY;
    while (low < high) {
        const double middle = low + (high - low) / 2; // of neighbouring numbers it may be the high one
        if (gx__split_heads_take(t, middle < high ? middle : low, &used, &needed)) high = used;
        else low = needed;
    }
    gx__split_heads_take(t, high, &used, &needed);
    return high;
}

// best[end] of the ranks up to d, the least sum of squares of seconds, from those of the ranks before, by all ranges
// that end there and take no more than `most`. t->begin: where the best one begins.
static void gx__split_heads_next(GxHeadsTask *t, int d, double most, const double *before, double *best)
{
    for (int end = 0; end <= t->heads; end++) best[end] = INFINITY;
    for (int end = d + 1; end <= t->most_end[d]; end++)
        for (int begin = end - 1; begin >= d; begin--) {
            const double seconds = gx__split_heads_seconds(t, d, begin, end);
            if (seconds > most) break;
            const double sum = before[begin] + seconds * seconds;
            if (sum < best[end]) best[end] = sum, t->begin[d * (t->heads + 1) + end] = (int16_t)begin;
        }
}

static void gx__split_heads_even(GxHeadsTask *t, double most, int64_t *part)
{
    const int row = t->heads + 1, ranks = t->s->ranks;
    for (int end = 0; end < row; end++) t->best[end] = end ? INFINITY : 0;
    for (int d = 0; d < ranks; d++)
        gx__split_heads_next(t, d, most, t->best + d % 2 * row, t->best + (d + 1) % 2 * row);
    for (int d = ranks - 1, end = t->heads; d >= 0; d--) {
        const int begin = t->begin[d * row + end];
        part[d] = end - begin, end = begin;
    }
}

static GxStatus gx__split_heads_check(const GxHeadsShared *s, GxError *err)
{
    if (s->heads < 1 || s->heads > GX_SPLIT_MOST_HEADS || s->kv_heads < 1 || s->heads % s->kv_heads)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%ld query heads share %ld key-value heads; the second must divide the first, which is 1 to %d",
                       (long)s->heads, (long)s->kv_heads, GX_SPLIT_MOST_HEADS);
    if (s->ranks < 1 || s->ranks > gx_min(s->heads, GX_MAX_PARTS))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%ld heads for %d ranks, of which each needs at least 1; %d are the most",
                       (long)s->heads, s->ranks, GX_MAX_PARTS);
    if (s->query_bytes < 0 || s->kv_bytes < 0 || gx_max(s->query_bytes, s->kv_bytes) > gx__split_most / 2)
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

static GxStatus gx__split_heads_open(GxHeadsTask *t, const GxHeadsShared *s, GxError *err)
{
    const int row = (int)s->heads + 1, all = s->ranks * row, sharing = (int)(s->heads / s->kv_heads);
    double *memory =
        (double *)malloc((size_t)(2 * (all + row)) * sizeof(double) + (size_t)(all + 2 * row) * sizeof(int16_t));
    if (!memory)
        return GX_FAIL(err, GX_ERR_MEMORY, "the system refused memory to share %ld heads among %d ranks",
                       (long)s->heads, s->ranks);
    t->s = s, t->heads = row - 1;
    t->query = memory, t->kv = t->query + all, t->best = t->kv + all;
    t->first = (int16_t *)(t->best + 2 * row), t->after = t->first + row, t->begin = t->after + row;
    for (int i = 0; i < row; i++) t->first[i] = (int16_t)(i / sharing), t->after[i] = (int16_t)gx_ceil_div(i, sharing);
    for (int d = 0; d < s->ranks; d++)
        for (int i = 0; i < row; i++) {
            t->query[d * row + i] = s->cap && i > s->cap[d] ? INFINITY : i * s->query[d];
            t->kv[d * row + i] = s->kv ? i * s->kv[d] : 0;
        }
    return GX_OK;
}

GxStatus gx_split_heads(int64_t *part, const GxHeadsShared *s, GxError *err)
{
    GxHeadsTask t = GX_ZERO;
    GX_TRY(gx__split_heads_check(s, err));
    GX_TRY(gx__split_heads_open(&t, s, err));
    const double most = gx__split_heads_least(&t);
    if (most < INFINITY) gx__split_heads_even(&t, most, part);
    free(t.query);
    if (most < INFINITY) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "the %d ranks' caps and memory hold fewer than %ld query heads", s->ranks,
                   (long)s->heads);
}
#endif
