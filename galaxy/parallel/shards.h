// parallel/shards.h: which rank has which part of a unit's weights, gradients and optimizer state, and how the parts
// are gathered into whole weights (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054; FSDP: Zhao et al. 2023,
// arXiv:2304.11277).
//
// The elements of a unit are cut into one range for each rank that shares the unit: the ranks of dp_shard and cp, and
// those of tp, too, if every rank of tp has the whole unit and its gradients are summed over tp. The ranges cover all
// tensors of the unit, frozen ones included. A range costs its rank the bytes of the weights, if these are sharded, and
// of gradients, masters and moments of what is trained. The ranks' shares of this cost are even, or given by a list.
// What is trained is cut only between two blocks of the norm (GX_SQUARES_BLOCK elements, counted from the first one of
// a tensor that this rank counts), so that a block's sum of squares, and with it the norm, has the same bits as
// unsharded. The bytes of quantised matrices are cut at any multiple of GX_ALIGN.
//
//     GX_TRY(gx_store_open(&s, &table, gx_units_all(), GX_BF16, &g->error));
//     GX_TRY(gx_shards_open(g, &s, GX_SHARDS_WEIGHTS, NULL));      // before gx_store_allocate
//     gx_shards_gather(g, &s, unit, buffer);                       // from now on gx_store_weight returns whole ones
//     gx_shards_free(&s, unit);
#ifndef GX_SHARDS_H
#define GX_SHARDS_H
#include "../base/partition.h"
#include "../base/store.h"
#include "../comm/comm.h"
GX_BEGIN

// To be called on all ranks; the context must have its mesh. list: the shares of the ranks of dp_shard, integers above
// 0 on any scale; NULL or empty: even. Nothing changes if `sharded` is GX_SHARDS_NOTHING or no ranks share anything.
GxStatus gx_shards_open(GxContext *g, GxStore *s, GxSharded sharded, const GxPartList *list);

// 1: the unit is the same on all ranks of tp: each has all of it, and what is trained is summed over tp. If two units
// on different stages have a tensor in common, both must meet this, so that its gradients are summed in one order on
// both.
int gx_shards_is_alike(const GxStore *s, int unit);
// The axes whose ranks share the unit; 0: it is not sharded.
int gx_shards_axes(const GxStore *s, int unit);

typedef enum { GX_SHARD_WEIGHTS = 0, GX_SHARD_TRAINED, GX_SHARD_QUANTIZED } GxShardOf;
// The ranks' ranges of the unit, counted from its first element (quantised: byte).
GxSplit gx_shards_split(const GxStore *s, int unit, GxShardOf of);
// The same for the unit's elements [begin, begin + n), counted from `begin`.
GxSplit gx_shards_split_part(const GxStore *s, int unit, GxShardOf of, int64_t begin, int64_t n);

// Bytes of a buffer for all weights of a unit, quantised ones included, and for all of its gradients.
int64_t gx_shards_weights_bytes(const GxStore *s, int unit);
int64_t gx_shards_grads_bytes(const GxStore *s, int unit);

// Gathers the unit's weights on all ranks that share it. Sharded weights: into `into` (gx_shards_weights_bytes), until
// gx_shards_free. Otherwise in place, and only those that are trained, of which each rank has updated its part.
void gx_shards_gather(GxContext *g, const GxStore *s, int unit, void *into);
// The same, started: the weights must not be used, nor freed, before gx_shards_gather_wait.
enum { GX_GATHER_TICKETS = 8 }; // collectives of a unit that can be in flight; further ones are blocking
typedef struct {
    GxTicket ticket[GX_GATHER_TICKETS];
    int tickets;
} GxGather;
void gx_shards_gather_start(GxContext *g, const GxStore *s, int unit, void *into, GxGather *gather);
void gx_shards_gather_wait(GxContext *g, int unit, GxGather *gather);
void gx_shards_free(const GxStore *s, int unit);
// For sharded gradients: the buffer (gx_shards_grads_bytes) that the unit's whole gradients are written to from now on.
// NULL: none.
void gx_shards_put_grads(const GxStore *s, int unit, void *buffer);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SHARDS_IMPLEMENTED)
#define GX_SHARDS_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../ops/optimizer.h"

enum { GX__SHARDS_OF = 3, GX__SHARDS_TRAINED_BYTES = 16 }; // a gradient, a master and two moments in fp32

typedef struct {
    int ranks;           // at most: of dp_shard, cp and tp
    int *axes, *members; // [units]: the axes whose ranks share the unit, and the number of these ranks
    int64_t *cut;        // [units][GX__SHARDS_OF][ranks + 1]
} gx__Shards;

static int64_t *gx__shards_cut(const GxStore *s, int unit, GxShardOf of)
{
    const gx__Shards *all = (const gx__Shards *)s->shards;
    return all->cut + ((int64_t)unit * GX__SHARDS_OF + of) * (all->ranks + 1);
}

static int gx__shards_unit_is_alike(const GxTable *t, int unit)
{
    for (int i = 0; i < t->n; i++)
        if (t->row[i].unit == unit && !t->row[i].has_alias &&
            (t->row[i].parts || (!t->row[i].frozen && !t->row[i].sums_over_tp)))
            return 0;
    return 1;
}

// 1: a row of the unit is the tensor, or an alias of it.
static int gx__shards_shares(const GxTable *t, int unit, int tensor)
{
    int shares = t->row[tensor].unit == unit;
    for (int i = 0; i < t->n; i++)
        shares |= t->row[i].unit == unit && t->row[i].has_alias && t->row[i].alias.index == tensor;
    return shares;
}

// Units that share a tensor of which stages have copies are alike if all of them are.
int gx_shards_is_alike(const GxStore *s, int unit)
{
    const GxTable *t = s->table;
    int is_alike = gx__shards_unit_is_alike(t, unit);
    for (int i = 0; i < t->n && is_alike; i++) {
        if (!t->row[i].has_alias) continue;
        const int of = t->row[i].alias.index;
        if (!gx__shards_shares(t, unit, of) || !gx_store_is_apart(s, of)) continue;
        is_alike &= gx__shards_unit_is_alike(t, t->row[of].unit) & gx__shards_unit_is_alike(t, t->row[i].unit);
    }
    return is_alike;
}

int gx_shards_axes(const GxStore *s, int unit) { return s->shards ? ((const gx__Shards *)s->shards)->axes[unit] : 0; }

GxSplit gx_shards_split(const GxStore *s, int unit, GxShardOf of)
{
    const int64_t *cut = gx__shards_cut(s, unit, of);
    GxSplit split;
    split.n = ((const gx__Shards *)s->shards)->members[unit];
    for (int r = 0; r <= split.n; r++) split.begin[r] = cut[r];
    return split;
}

GxSplit gx_shards_split_part(const GxStore *s, int unit, GxShardOf of, int64_t begin, int64_t n)
{
    GxSplit split = gx_shards_split(s, unit, of);
    for (int r = 0; r <= split.n; r++) split.begin[r] = gx_min(gx_max(split.begin[r] - begin, 0), n);
    return split;
}

// ---- cuts ----------------------------------------------------------------------------------------------------------

// A place where a unit is cut: the numbers of its weights, and of its trained elements, before it.
typedef struct {
    int64_t weights, trained;
} gx__ShardsCut;

static int64_t gx__shards_cost(const GxStore *s, int row)
{
    const int64_t of_weights = s->sharded == GX_SHARDS_WEIGHTS ? gx_dtype_size(s->dtype) : 0;
    return of_weights + (gx_store_trains(s, row) ? GX__SHARDS_TRAINED_BYTES : 0);
}

static int gx__shards_has(const GxStore *s, int row, int unit)
{
    const GxTensor *t = &s->table->row[row];
    return t->unit == unit && !gx_store_is_alias(s, row) && s->place[row].weight >= 0;
}

// The place nearest to element i of a row's box at which the row may be cut.
static int64_t gx__shards_snap(const GxStore *s, int row, int64_t i)
{
    const GxTensor *t = &s->table->row[row];
    const int64_t count = gx_tensor_count(t);
    int64_t begin = 0, block = GX_ALIGN;
    if (gx_store_trains(s, row)) {
        block = GX_SQUARES_BLOCK;
        for (int r = 0; t->parts && r < t->n_parts; r++) // elements that a lower rank has, too, are not counted here
            if (t->parts[r].begin == t->begin[t->split_dim] && t->parts[r].end == t->end[t->split_dim]) {
                const GxRange owned = gx_tensor_owned(t, r);
                begin = (owned.begin - t->parts[r].begin) * (count / gx_range_count(t->parts[r]));
                break;
            }
    }
    if (i <= begin) return i;
    const int64_t lower = begin + (i - begin) / block * block, upper = gx_min(lower + block, count);
    return i - lower < upper - i ? lower : upper;
}

// The place at which the part of the unit before it costs about `cost`.
static gx__ShardsCut gx__shards_find(const GxStore *s, int unit, int64_t cost)
{
    const GxStoreUnit *u = &s->unit[unit];
    gx__ShardsCut cut = {0, 0};
    int64_t front = 0;
    for (int i = 0; i < s->table->n && front <= cost; i++) {
        if (!gx__shards_has(s, i, unit)) continue;
        const int64_t each = gx__shards_cost(s, i), count = gx_tensor_count(&s->table->row[i]);
        if (!each) continue;
        const int64_t n = gx__shards_snap(s, i, gx_min((cost - front) / each, count));
        if (n > 0) cut.weights = s->place[i].weight - u->weights.all.begin + n;
        if (n > 0 && gx_store_trains(s, i)) cut.trained = s->place[i].trainable - u->trained.all.begin + n;
        front += each * count;
    }
    return cut;
}

static int64_t gx__shards_unit_cost(const GxStore *s, int unit)
{
    int64_t cost = 0;
    for (int i = 0; i < s->table->n; i++)
        if (gx__shards_has(s, i, unit)) cost += gx__shards_cost(s, i) * gx_tensor_count(&s->table->row[i]);
    return cost;
}

// a * b / c, where a * b may overflow
static int64_t gx__shards_part(int64_t a, int64_t b, int64_t c) { return (int64_t)((double)a * (double)b / (double)c); }

// Cuts a unit among `ranks` ranks, the first k of which have the fraction front[k] / front[ranks].
static void gx__shards_cut_unit(GxStore *s, int unit, const int64_t *front, int ranks)
{
    const GxStoreUnit *u = &s->unit[unit];
    int64_t *weights = gx__shards_cut(s, unit, GX_SHARD_WEIGHTS), *trained = gx__shards_cut(s, unit, GX_SHARD_TRAINED),
            *quantized = gx__shards_cut(s, unit, GX_SHARD_QUANTIZED);
    const int64_t cost = gx__shards_unit_cost(s, unit), bytes = gx_range_count(u->quantized.all);
    for (int r = 0; r <= ranks; r++) {
        const gx__ShardsCut cut = gx__shards_find(s, unit, gx__shards_part(cost, front[r], front[ranks]));
        weights[r] = r == 0 ? 0 : r == ranks ? gx_range_count(u->weights.all) : cut.weights;
        trained[r] = r == 0 ? 0 : r == ranks ? gx_range_count(u->trained.all) : cut.trained;
        quantized[r] = gx__shards_part(bytes, front[r], front[ranks]) / GX_ALIGN * GX_ALIGN;
    }
    quantized[ranks] = bytes;
}

// Gives rank `me` its part: room in the buffer after *n, at an address that is aligned as in the whole.
static void gx__shards_keep(GxStorePart *p, const int64_t *cut, int me, int64_t *n)
{
    p->mine.begin = p->all.begin + cut[me], p->mine.end = p->all.begin + cut[me + 1];
    p->at = gx_round_up(*n, GX_ALIGN) + p->mine.begin % GX_ALIGN;
    *n = p->at + gx_range_count(p->mine);
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__shards_check_list(GxContext *g, const GxPartList *list)
{
    const int n = gx_group_size(g, GX_AXIS_DP_SHARD);
    if (!list || !list->n) return GX_OK;
    if (list->n != n)
        return GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                       "dp_shard_list has %d shares for the %d ranks of dp_shard: one for each", list->n, n);
    for (int i = 0; i < n; i++)
        if (list->part[i] < 1)
            return GX_FAIL(&g->error, GX_ERR_ARGUMENT, "dp_shard_list: the share of rank %d is %ld; it must be above 0",
                           i, (long)list->part[i]);
    return GX_OK;
}

// The sum of the shares before each rank that shares a unit: the list's shares for dp_shard, each split evenly over cp
// and tp.
static int gx__shards_fronts(const GxContext *g, const GxPartList *list, int axes, int64_t *front)
{
    const int shards = gx_group_size(g, GX_AXIS_DP_SHARD), inner = gx_group_size(g, axes & ~GX_AXIS_DP_SHARD);
    front[0] = 0;
    for (int r = 0; r < shards * inner; r++) front[r + 1] = front[r] + (list && list->n ? list->part[r / inner] : 1);
    return shards * inner;
}

static GxStatus gx__shards_take(GxStore *s, int ranks, GxError *err)
{
    const size_t units = (size_t)s->table->units, cuts = units * GX__SHARDS_OF * (size_t)(ranks + 1);
    gx__Shards *all = (gx__Shards *)calloc(1, sizeof *all + cuts * sizeof(int64_t) + 2 * units * sizeof(int));
    if (!all) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the shards of %d units", s->table->units);
    all->ranks = ranks;
    all->cut = (int64_t *)(all + 1);
    all->axes = (int *)(all->cut + cuts);
    all->members = all->axes + units;
    s->shards = all;
    return GX_OK;
}

// The largest number of ranks that share a unit.
static int gx__shards_most(const GxContext *g, const GxStore *s)
{
    int is_alike = 0;
    for (int i = 0; i < s->table->units; i++) is_alike |= gx_shards_is_alike(s, i);
    return gx_group_size(g, GX_AXIS_FSDP | (is_alike ? GX_AXIS_TP : 0));
}

GxStatus gx_shards_open(GxContext *g, GxStore *s, GxSharded sharded, const GxPartList *list)
{
    int64_t front[GX_MAX_PARTS + 1];
    const int most = gx__shards_most(g, s);
    GX_TRY(gx__shards_check_list(g, list));
    if (sharded == GX_SHARDS_NOTHING || most == 1) return GX_OK;
    if (most > GX_MAX_PARTS)
        return GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%d ranks share a unit; at most %d are possible", most,
                       GX_MAX_PARTS);
    GX_TRY(gx__shards_take(s, most, &g->error));
    s->sharded = sharded;
    s->my_trained_n = 0;
    if (sharded == GX_SHARDS_WEIGHTS) s->my_weights_n = s->my_quantized_n = 0;
    for (int i = 0; i < s->table->units; i++) {
        GxStoreUnit *u = &s->unit[i];
        const int axes = GX_AXIS_FSDP | (gx_shards_is_alike(s, i) ? GX_AXIS_TP : 0),
                  ranks = gx__shards_fronts(g, list, axes, front), me = gx_group_index(g, axes);
        ((gx__Shards *)s->shards)->axes[i] = axes, ((gx__Shards *)s->shards)->members[i] = ranks;
        gx__shards_cut_unit(s, i, front, ranks);
        gx__shards_keep(&u->trained, gx__shards_cut(s, i, GX_SHARD_TRAINED), me, &s->my_trained_n);
        if (sharded < GX_SHARDS_WEIGHTS) continue;
        gx__shards_keep(&u->weights, gx__shards_cut(s, i, GX_SHARD_WEIGHTS), me, &s->my_weights_n);
        gx__shards_keep(&u->quantized, gx__shards_cut(s, i, GX_SHARD_QUANTIZED), me, &s->my_quantized_n);
    }
    return GX_OK;
}

// ---- whole weights, whole gradients --------------------------------------------------------------------------------

// Where the quantised bytes begin, after the weights.
static int64_t gx__shards_quantized_at(const GxStore *s, int unit)
{
    return gx_round_up(gx_range_count(s->unit[unit].weights.all) * gx_dtype_size(s->dtype), GX_ALIGN);
}

int64_t gx_shards_weights_bytes(const GxStore *s, int unit)
{
    return gx__shards_quantized_at(s, unit) + gx_range_count(s->unit[unit].quantized.all);
}

int64_t gx_shards_grads_bytes(const GxStore *s, int unit) { return 4 * gx_range_count(s->unit[unit].trained.all); }

// gather NULL: blocking.
static void gx__shards_gather(GxContext *g, int axes, const GxSplit *split, void *whole, const void *mine,
                              GxDtype dtype, GxGather *gather)
{
    if (!gather || gather->tickets == GX_GATHER_TICKETS) gx_all_gather(g, axes, split, whole, mine, 1, dtype);
    else gather->ticket[gather->tickets++] = gx_all_gather_start(g, axes, split, whole, mine, 1, dtype);
}

// Consecutive trained tensors, with the gaps between them, are gathered in one collective.
static void gx__shards_gather_trained(GxContext *g, const GxStore *s, int unit, GxGather *gather)
{
    const int64_t first = s->unit[unit].weights.all.begin, size = gx_dtype_size(s->dtype);
    const int me = gx_group_index(g, gx_shards_axes(s, unit));
    for (int i = 0; i < s->table->n;) {
        if (!gx__shards_has(s, i, unit) || !gx_store_trains(s, i)) {
            i++;
            continue;
        }
        const int64_t begin = s->place[i].weight - first;
        int64_t end = begin;
        for (; i < s->table->n && gx__shards_has(s, i, unit) && gx_store_trains(s, i); i++)
            end = s->place[i].weight - first + gx_tensor_count(&s->table->row[i]);
        const GxSplit run = gx_shards_split_part(s, unit, GX_SHARD_WEIGHTS, begin, end - begin);
        char *whole = s->unit[unit].w + begin * size;
        gx__shards_gather(g, gx_shards_axes(s, unit), &run, whole, whole + run.begin[me] * size, s->dtype, gather);
    }
}

static void gx__shards_gather_unit(GxContext *g, const GxStore *s, int unit, void *into, GxGather *gather)
{
    GxStoreUnit *u = &s->unit[unit];
    const int axes = gx_shards_axes(s, unit);
    gx_at(g, unit, "gather");
    if (s->sharded < GX_SHARDS_WEIGHTS) {
        gx__shards_gather_trained(g, s, unit, gather);
        return;
    }
    u->w = (char *)into, u->q = (char *)into + gx__shards_quantized_at(s, unit);
    const GxSplit weights = gx_shards_split(s, unit, GX_SHARD_WEIGHTS),
                  quantized = gx_shards_split(s, unit, GX_SHARD_QUANTIZED);
    if (gx_split_total(&weights))
        gx__shards_gather(g, axes, &weights, u->w, gx_store_my_weights_of(s, unit), s->dtype, gather);
    if (gx_split_total(&quantized))
        gx__shards_gather(g, axes, &quantized, u->q, gx_store_my_quantized_of(s, unit), GX_U8, gather);
}

void gx_shards_gather(GxContext *g, const GxStore *s, int unit, void *into)
{
    gx__shards_gather_unit(g, s, unit, into, NULL);
}

void gx_shards_gather_start(GxContext *g, const GxStore *s, int unit, void *into, GxGather *gather)
{
    gather->tickets = 0;
    gx__shards_gather_unit(g, s, unit, into, gather);
}

void gx_shards_gather_wait(GxContext *g, int unit, GxGather *gather)
{
    gx_at(g, unit, "gather");
    for (int i = 0; i < gather->tickets; i++) gx_wait(g, gather->ticket[i]);
}

void gx_shards_free(const GxStore *s, int unit) { s->unit[unit].w = s->unit[unit].q = NULL; }

void gx_shards_put_grads(const GxStore *s, int unit, void *buffer) { s->unit[unit].grads = (float *)buffer; }
#endif
