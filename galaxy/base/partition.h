// partition.h: how a count (heads, columns, rows, layers, samples) is cut among the ranks of a group. Parts are
// contiguous, in rank order, and of different sizes wherever the machines are, or the count is not a multiple.
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

// As even as it goes, the remainder to the first; parts may be empty. n: 1 to GX_MAX_PARTS.
GxSplit gx_split_even(int64_t total, int n);

// A user's list, entry r for rank r: n entries of at least 1 that sum to the total. NULL: even, refused where a part
// would be empty. `what` is the list's name in messages.
GxStatus gx_split_list(GxSplit *s, const char *what, const int64_t *list, int n_list, int64_t total, int n,
                       GxError *err);

// The same proportions of another total, n at least, with parts of at least 1: of a total that is not larger no part
// becomes larger.
GxSplit gx_split_like(const GxSplit *s, int64_t total);

typedef struct { // contiguous shares of a count, one for each member of a group, in order; neighbours' may overlap
    int n, me;
    GxRange part[GX_MAX_PARTS];
} GxShares;
static inline GxRange gx_share_mine(const GxShares *s) { return s->part[s->me]; }
static inline int64_t gx_share_count(const GxShares *s) { return gx_range_count(gx_share_mine(s)); }
GxShares gx_shares_whole(int64_t total); // one member, which has all
// Parts of a split in elements of which each of its things has so many.
GxShares gx_shares_of(const GxSplit *s, int me, int64_t elements);

// Grouped-query attention: member r's query heads are heads' part r of H; they use part r of the K key-value heads. A
// K,V head that several members use lies in all their parts: H 6, K 3, heads 1,3,2 give {0}, {0,1}, {2}. elements: of
// one head. *q_first: the number of this member's first query head among those that share its first K,V head.
GxStatus gx_shares_kv(GxShares *kv, int64_t *q_first, const GxSplit *heads, int64_t K, int me, int64_t elements,
                      GxError *err);

// What a user says about how a group splits a model.
typedef struct {
    const int64_t *part; // of each member
    int n;               // 0: as even as it goes
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

// The list of n entries of at least 1 that sums to the total and keeps the proportions of the one that was given.
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
                       "%s: %ld cannot be split among %d ranks, each takes at least 1; use at most %ld rank%s", what,
                       (long)total, n, (long)gx_max(total, 1), total > 1 ? "s" : "");
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
    s.n = 1, s.me = 0;
    s.part[0].begin = 0, s.part[0].end = total;
    return s;
}

GxShares gx_shares_of(const GxSplit *split, int me, int64_t elements)
{
    GxShares s;
    s.n = split->n, s.me = me;
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
    int64_t sharing = H / K; // query heads to one K,V head
    kv->n = heads->n, kv->me = me;
    *q_first = heads->begin[me] % sharing;
    for (int r = 0; r < heads->n; r++) {
        kv->part[r].begin = heads->begin[r] / sharing * elements;
        kv->part[r].end = gx_ceil_div(heads->begin[r + 1], sharing) * elements;
    }
    return GX_OK;
}
#endif
