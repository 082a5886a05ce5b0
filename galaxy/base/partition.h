// base/partition.h: splits a count (heads, columns, rows, layers, samples) among the ranks of a group. Parts are
// contiguous and in rank order. They may differ in size: for machines of different speed, or if the count is not a
// multiple of the ranks.
//
//     GxSplit heads;
//     GX_TRY(gx_split_list(&heads, "tp_num_attention_heads_list", list, n, H, ranks, err));   // list NULL: even
//     for (int64_t h = heads.begin[me]; h < heads.begin[me + 1]; h++) ...
#ifndef GX_PARTITION_H
#define GX_PARTITION_H
#include "tensors.h"
GX_BEGIN

enum { GX_MAX_PARTS = 256 }; // the largest group

typedef struct {
    int n;
    int64_t begin[GX_MAX_PARTS + 1]; // part r is [begin[r], begin[r + 1]); begin[0] is 0, begin[n] the total
} GxSplit;

static inline int64_t gx_split_total(const GxSplit *s) { return s->begin[s->n]; }
static inline int64_t gx_split_part(const GxSplit *s, int r) { return s->begin[r + 1] - s->begin[r]; }

// As even as possible: the first parts get one more each until the remainder is used up. Parts may be empty. n: 1 to
// GX_MAX_PARTS.
GxSplit gx_split_even(int64_t total, int n);

// Splits by a user's list, entry r for rank r: n entries of at least 1 that sum up to the total. NULL: evenly, and an
// error if a part would be empty. what: the list's name in messages.
GxStatus gx_split_list(GxSplit *s, const char *what, const int64_t *list, int n_list, int64_t total, int n,
                       GxError *err);

// Splits another total, at least n, in the same proportions, with parts of at least 1. If the total is not larger, no
// part becomes larger.
GxSplit gx_split_like(const GxSplit *s, int64_t total);

typedef struct { // contiguous shares of a count, one for each member of a group, in order; neighbours' may overlap
    int n, me;
    // 1: it is split; a group of one then has all of it, where the tp groups of a pipeline have different sizes
    int is_split;
    GxRange part[GX_MAX_PARTS];
} GxShares;
static inline GxRange gx_share_mine(const GxShares *s) { return s->part[s->me]; }
static inline int64_t gx_share_count(const GxShares *s) { return gx_range_count(gx_share_mine(s)); }
GxShares gx_shares_whole(int64_t total); // one member, which has all
// The parts of a split, multiplied by the number of elements that each split item has.
GxShares gx_shares_of(const GxSplit *s, int me, int64_t elements);

// Grouped-query attention: the shares of the K key-value heads that the members' query heads use. heads: the split of
// the H query heads. A K,V head that several members use is in the shares of all of them: H 6, K 3, heads 1,3,2 give
// {0}, {0,1}, {2}. elements: those of one head. *q_first: the index of this member's first query head among the query
// heads that share its first K,V head.
GxStatus gx_shares_kv(GxShares *kv, int64_t *q_first, const GxSplit *heads, int64_t K, int me, int64_t elements,
                      GxError *err);

// The user's lists of how tp groups split a model.
typedef struct {
    const int64_t *part; // of each member; of each rank of a copy of the model, stage by stage, if groups differ
    int n;               // 0: as even as possible
} GxPartList;
typedef struct {
    // Query heads, MLP columns, rows of embedding and head, tokens of a sequence.
    GxPartList heads, columns, vocab, sequence;
} GxSplitLists;

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PARTITION_IMPLEMENTED)
#define GX_PARTITION_IMPLEMENTED
#include <assert.h>
#include <stdio.h>
#include <string.h>

GxSplit gx_split_even(int64_t total, int n)
{
    assert(n >= 1 && n <= GX_MAX_PARTS && total >= 0);
    GxSplit s;
    s.n = n;
    s.begin[0] = 0;
    for (int r = 0; r < n; r++) s.begin[r + 1] = s.begin[r] + total / n + (r < total % n);
    return s;
}

static const char *gx__split_list_text(const int64_t *list, int n, char text[160])
{
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < n; r++) {
        if (used > 130) {
            snprintf(text + used, 160 - used, ",...");
            break;
        }
        used += (size_t)snprintf(text + used, 160 - used, "%s%ld", r ? "," : "", (long)list[r]);
    }
    return text;
}

// Writes a valid list to `nearest`, of n entries of at least 1 that sum up to the total, close to the proportions of
// `list`.
static void gx__split_list_nearest(const int64_t *list, int64_t total, int n, int64_t *nearest)
{
    double weight[GX_MAX_PARTS], sum = 0;
    for (int r = 0; r < n; r++) sum += (weight[r] = list[r] > 0 ? (double)list[r] : 1);
    int64_t rest = total;
    for (int r = 0; r < n; r++) rest -= nearest[r] = gx_max((int64_t)(weight[r] * (double)total / sum), 1);
    while (rest) { // at most n rounds: the roundings above
        int step = rest > 0 ? 1 : -1, choice = -1;
        double most = 0;
        for (int r = 0; r < n; r++) {
            double missing = step * (weight[r] * (double)total / sum - (double)nearest[r]);
            if (nearest[r] + step < 1 || (choice >= 0 && missing <= most)) continue;
            choice = r;
            most = missing;
        }
        nearest[choice] += step;
        rest -= step;
    }
}

GxStatus gx_split_list(GxSplit *s, const char *what, const int64_t *list, int n_list, int64_t total, int n,
                       GxError *err)
{
    memset(s, 0, sizeof *s);
    if (n < 1 || n > GX_MAX_PARTS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: a group of %d ranks; 1 to %d are possible", what, n, GX_MAX_PARTS);
    if (total < n)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s: %ld cannot be split among %d ranks, since each needs at least 1; use at most %ld rank%s",
                       what, (long)total, n, (long)gx_max(total, 1), total > 1 ? "s" : "");
    GxSplit even = gx_split_even(total, n);
    if (!list) {
        *s = even;
        return GX_OK;
    }
    char found[160], valid[160];
    int64_t nearest[GX_MAX_PARTS];
    if (n_list != n) {
        for (int r = 0; r < n; r++) nearest[r] = gx_split_part(&even, r);
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s [%s] has %d %s for %d rank%s; valid is for example [%s]", what,
                       gx__split_list_text(list, n_list, found), n_list, n_list == 1 ? "entry" : "entries", n,
                       n == 1 ? "" : "s", gx__split_list_text(nearest, n, valid));
    }
    int64_t sum = 0, smallest = list[0];
    for (int r = 0; r < n; r++) {
        sum += list[r];
        smallest = gx_min(smallest, list[r]);
    }
    if (sum != total || smallest < 1) {
        gx__split_list_nearest(list, total, n, nearest);
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s [%s] sums to %ld with a smallest entry of %ld; it must sum to %ld with entries of at least "
                       "1, nearest is [%s]",
                       what, gx__split_list_text(list, n, found), (long)sum, (long)smallest, (long)total,
                       gx__split_list_text(nearest, n, valid));
    }
    s->n = n;
    for (int r = 0; r < n; r++) s->begin[r + 1] = s->begin[r] + list[r];
    return GX_OK;
}

GxSplit gx_split_like(const GxSplit *s, int64_t total)
{
    int64_t part[GX_MAX_PARTS] = {0}, nearest[GX_MAX_PARTS] = {0};
    GxSplit like;
    assert(total >= s->n);
    for (int r = 0; r < s->n; r++) part[r] = gx_split_part(s, r);
    gx__split_list_nearest(part, total, s->n, nearest);
    like.n = s->n;
    like.begin[0] = 0;
    for (int r = 0; r < s->n; r++) like.begin[r + 1] = like.begin[r] + nearest[r];
    return like;
}

GxShares gx_shares_whole(int64_t total)
{
    GxShares s;
    s.n = 1, s.me = s.is_split = 0;
    s.part[0].begin = 0, s.part[0].end = total;
    return s;
}

GxShares gx_shares_of(const GxSplit *split, int me, int64_t elements)
{
    GxShares s;
    s.n = split->n, s.me = me, s.is_split = split->n > 1;
    for (int r = 0; r < s.n; r++)
        s.part[r].begin = split->begin[r] * elements, s.part[r].end = split->begin[r + 1] * elements;
    return s;
}

GxStatus gx_shares_kv(GxShares *kv, int64_t *q_first, const GxSplit *heads, int64_t K, int me, int64_t elements,
                      GxError *err)
{
    int64_t H = gx_split_total(heads);
    if (K < 1 || H % K)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%ld query heads cannot share %ld key-value heads: the second must divide the first", (long)H,
                       (long)K);
    int64_t sharing = H / K; // query heads per K,V head
    kv->n = heads->n, kv->me = me, kv->is_split = heads->n > 1;
    *q_first = heads->begin[me] % sharing;
    for (int r = 0; r < heads->n; r++) {
        kv->part[r].begin = heads->begin[r] / sharing * elements;
        kv->part[r].end = gx_ceil_div(heads->begin[r + 1], sharing) * elements;
    }
    return GX_OK;
}
#endif
