// base/store.h: the buffers of a rank's tensors: weights, and for trained tensors gradients, fp32 masters and optimizer
// moments. It is the only file that knows offsets; tensors.h describes the tensors themselves.
//
// A rank has the tensors of one or more ranges of units. The weights, frozen ones included, lie unit by unit in one
// buffer of the type that is computed in. Gradients, masters and moments each have a buffer of their own, in the same
// order, for trained tensors only: a frozen tensor has none of them. In fp32 the weights are their own masters. A
// packed row follows the row before without a gap, if the rank has both. Quantised matrices have a separate buffer of
// bytes.
//
// An alias is another name of a tensor, and has its storage. But where the tensor is on another stage of a pipeline,
// the first alias of it is a copy, with storage of its own in its own unit, and others are names of that.
//
//     GX_TRY(gx_store_open(&s, &table, gx_units_all(), GX_BF16, &g->error));    // counts
//     gx_store_allocate(g, &s, 2);                                                  // takes memory: two moments
//     const void *w = gx_store_weight(&s, id);
//     float *dw = gx_store_grad(&s, id, &accumulate);                           // NULL: frozen, or no gradients
//     GxQuantized q = gx_store_quantized(&s, id);                               // for a quantised matrix
//
// Shards (parallel/shards.h): several ranks may share each unit: every rank then has a part of its optimizer state, or
// of its gradients and weights, too. A part is a range of the unit's elements; where nothing is sharded, "mine" below
// is the whole unit. Sharded weights and gradients of a unit are whole only for as long as they are needed, at the
// addresses in GxStoreUnit.
//
// The first contribution to a gradient in a window is written, later ones are added (`is_written`), in whatever order
// the micro-batches and the uses of a tied weight come. A gradient without any contribution is zeroed at the end of the
// window.
#ifndef GX_STORE_H
#define GX_STORE_H
#include "context.h"
#include "tensors.h"
GX_BEGIN

typedef struct {
    int64_t weight;    // its offset in the rank's weights, in elements; -1: not on this rank, or quantised
    int64_t quantized; // its offset in the quantised matrices, in bytes; -1: not on this rank, or not quantised
    int64_t trainable; // its offset in what the rank trains, in elements; -1: frozen, or not on this rank
    int is_written;    // 1: its gradient has been written in this window
    int is_summed;     // 1: it has been summed over tp in this window, before the other sums
    int copy;          // 1 + the row of this rank that is a copy of this tensor, which is on another stage; 0: none
} GxPlace;

// The units of a rank: one range for each of its pipeline stages, in ascending order.
enum { GX_STORE_RANGES = 2 };
typedef struct {
    int n; // ranges; 0: all units
    int begin[GX_STORE_RANGES], end[GX_STORE_RANGES];
} GxUnits;
static inline GxUnits gx_units_all(void)
{
    const GxUnits u = GX_ZERO;
    return u;
}
static inline GxUnits gx_units(int begin, int end)
{
    const GxUnits u = {1, {begin, 0}, {end, 0}};
    return u;
}
static inline int gx_units_have(const GxUnits *u, int unit)
{
    int has = !u->n;
    for (int k = 0; k < u->n; k++) has |= unit >= u->begin[k] && unit < u->end[k];
    return has;
}

// What is sharded; each value includes those before it (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054, stages 1 to
// 3).
typedef enum { GX_SHARDS_NOTHING = 0, GX_SHARDS_OPTIMIZER, GX_SHARDS_GRADS, GX_SHARDS_WEIGHTS } GxSharded;

// A range of a unit, in elements of the rank's weights, in elements of what it trains, or in bytes of its quantised
// matrices.
typedef struct {
    GxRange all;  // the unit's
    GxRange mine; // the part of these that is in this rank's shard
    int64_t at;   // where `mine` begins in this rank's buffer
} GxStorePart;
typedef struct {
    GxStorePart weights, trained, quantized;
    // The whole unit's weights, quantised bytes and gradients for as long as they exist, otherwise NULL. The address of
    // a kind that the unit has none of is never accessed.
    char *w, *q;
    float *grads;
} GxStoreUnit;

typedef struct {
    const GxTable *table;
    // [table->n]; an alias that is not a copy has the place of its tensor, or of the copy
    GxPlace *place;
    GxStoreUnit *unit;                                  // [table->units]
    GxUnits units;                                      // this rank's
    GxSharded sharded;                                  // by gx_shards_open
    int64_t weights_n, trained_n;                       // elements of all units' tensors
    int64_t quantized_n;                                // bytes
    int64_t my_weights_n, my_trained_n, my_quantized_n; // of the parts that this rank has
    GxDtype dtype;                                      // of the weights
    void *weights;                                      // [my_weights_n]; [weights_n] unless they are sharded
    void *quantized;                                    // [my_quantized_n] bytes; NULL: no matrix is quantised
    float *masters;   // [my_trained_n], fp32; NULL if the weights are fp32 and their own masters
    float *grads;     // [trained_n]; NULL: no gradients are computed, or they are sharded
    float *my_grads;  // [my_trained_n] if gradients are sharded; NULL: they are this rank's part of `grads`
    float *moment[2]; // [my_trained_n] each; NULL: the optimizer has none
    void *shards;     // private to parallel/shards.h: which rank has what
} GxStore;

GxStatus gx_store_open(GxStore *s, const GxTable *table, GxUnits units, GxDtype dtype, GxError *err);
void gx_store_allocate(GxContext *g, GxStore *s,
                       int moments); // from the context's arena; moments: 0 to 2, -1: weights alone
void gx_store_close(GxStore *s);

static inline int gx_store_has(const GxStore *s, int row)
{
    return s->place[row].weight >= 0 || s->place[row].quantized >= 0;
}
static inline int gx_store_trains(const GxStore *s, int row) { return s->place[row].trainable >= 0; }
int gx_store_trains_unit(const GxStore *s, int unit);
// 1: the row is another name of a tensor. 0: it is a tensor, or this rank's copy of one that is on another stage.
int gx_store_is_alias(const GxStore *s, int row);
int gx_store_unit(const GxStore *s, int row); // the unit that its values are in; of an alias, where its tensor's are
// The row that has a tensor's values on this rank: its own or that of a copy; -1: none.
static inline int gx_store_holder(const GxStore *s, int row)
{
    return gx_store_has(s, row) ? row : s->place[row].copy - 1;
}
// 1: `row` is a tensor, and a unit of another stage has an alias of it, or this stage has an alias and not the tensor.
int gx_store_is_apart(const GxStore *s, int row);

// ---- whole tensors: what units compute with ------------------------------------------------------------------------

void *gx_store_weight(const GxStore *s, GxTensorId id);          // of a tensor that is not quantised
GxQuantized gx_store_quantized(const GxStore *s, GxTensorId id); // this rank's box of a quantised matrix
// The gradient, which this marks as written. *accumulate: 0: the caller must overwrite it, 1: add to it. NULL: the
// tensor is frozen, or no gradients are computed.
float *gx_store_grad(GxStore *s, GxTensorId id, int *accumulate);
float *gx_store_grads(const GxStore *s, int row); // the same without marking it; NULL also if it does not exist now

void gx_store_begin_window(GxStore *s); // no gradient is written

// For captured graphs (run/graphs.h): which gradients have been written, a byte for each row of the table.
void gx_store_written(const GxStore *s, uint8_t *is_written);
void gx_store_set_written(GxStore *s, const uint8_t *is_written);

// ---- this rank's parts of tensors: what is initialised, updated, saved ---------------------------------------------

// The elements of a tensor (of this rank's box) whose weights this rank has, and those that it trains.
GxRange gx_store_my_weights(const GxStore *s, int row);
GxRange gx_store_my_trained(const GxStore *s, int row);
// Element i of those.
char *gx_store_weight_at(const GxStore *s, int row, int64_t i);
float *gx_store_master_at(const GxStore *s, int row, int64_t i); // fp32; NULL: frozen and not fp32, so it has none
float *gx_store_moment_at(const GxStore *s, int number, int row, int64_t i); // NULL: there is no such buffer
float *gx_store_my_grad_at(const GxStore *s, int row, int64_t i);            // NULL: no gradients are computed
// This rank's part of a unit's gradients: elements unit->trained.mine.
float *gx_store_my_grads(const GxStore *s, int unit);
char *gx_store_my_weights_of(const GxStore *s, int unit);   // elements unit->weights.mine
char *gx_store_my_quantized_of(const GxStore *s, int unit); // bytes unit->quantized.mine

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STORE_IMPLEMENTED)
#define GX_STORE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// Places a tensor after *n elements. A row that is not packed is aligned so that in fp32 it begins at a multiple of
// GX_ALIGN bytes.
static int64_t gx__store_place(int64_t *n, const GxTensor *t, int is_packed)
{
    const int64_t at = is_packed ? *n : gx_round_up(*n, GX_ALIGN / 4);
    *n = at + gx_tensor_count(t);
    return at;
}

static GxQuantized gx__store_box(const GxTensor *t, void *memory)
{
    return gx_quantized_box((GxQuantKind)(t->quantized - 1), t->begin[0], t->end[0] - t->begin[0], t->begin[1],
                            t->end[1] - t->begin[1], t->global_shape[1], memory);
}

// Extends the unit's range by [begin, end). A unit's tensors lie next to each other.
static void gx__store_grow(GxStorePart *p, int64_t begin, int64_t end)
{
    if (!gx_range_count(p->all)) p->all.begin = p->at = begin;
    p->all.end = end, p->mine = p->all;
}

static void gx__store_place_all(GxStore *s)
{
    const GxTable *table = s->table;
    for (int i = 0; i < table->n; i++) {
        const GxTensor *t = &table->row[i];
        GxPlace *p = &s->place[i];
        GxStoreUnit *u = &s->unit[t->unit];
        p->weight = p->trainable = p->quantized = -1;
        if (!gx_units_have(&s->units, t->unit)) continue;
        if (t->has_alias && gx_store_has(s, t->alias.index)) {
            *p = s->place[t->alias.index];
            continue;
        }
        const int copy = t->has_alias ? s->place[t->alias.index].copy : 0;
        if (copy) {
            *p = s->place[copy - 1];
            continue;
        }
        if (t->has_alias) s->place[t->alias.index].copy = i + 1;
        if (t->quantized) {
            const GxQuantized box = gx__store_box(t, NULL);
            p->quantized = s->quantized_n;
            s->quantized_n += gx_quantized_bytes(&box);
            gx__store_grow(&u->quantized, p->quantized, s->quantized_n);
            continue;
        }
        const int is_packed = t->packed && i > 0 && s->place[i - 1].weight >= 0 && table->row[i - 1].unit == t->unit;
        p->weight = gx__store_place(&s->weights_n, t, is_packed);
        gx__store_grow(&u->weights, p->weight, s->weights_n);
        if (t->frozen) continue;
        p->trainable = gx__store_place(&s->trained_n, t, is_packed && s->place[i - 1].trainable >= 0);
        gx__store_grow(&u->trained, p->trainable, s->trained_n);
    }
}

GxStatus gx_store_open(GxStore *s, const GxTable *table, GxUnits units, GxDtype dtype, GxError *err)
{
    memset(s, 0, sizeof *s);
    s->table = table, s->units = units, s->dtype = dtype;
    s->place = (GxPlace *)calloc((size_t)table->n + 1, sizeof *s->place);
    s->unit = (GxStoreUnit *)calloc((size_t)table->units + 1, sizeof *s->unit);
    if (!s->place || !s->unit) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the places of %d tensors", table->n);
    gx__store_place_all(s);
    s->my_weights_n = s->weights_n, s->my_trained_n = s->trained_n, s->my_quantized_n = s->quantized_n;
    return GX_OK;
}

// Points to the whole weights and gradients that are not sharded: these exist all the time.
static void gx__store_point(GxStore *s)
{
    for (int i = 0; i < s->table->units; i++) {
        GxStoreUnit *u = &s->unit[i];
        const int is_whole = s->sharded < GX_SHARDS_WEIGHTS;
        u->w = is_whole ? (char *)s->weights + u->weights.all.begin * gx_dtype_size(s->dtype) : NULL;
        u->q = is_whole && s->quantized ? (char *)s->quantized + u->quantized.all.begin : NULL;
        u->grads = s->grads ? s->grads + u->trained.all.begin : NULL;
    }
}

void gx_store_allocate(GxContext *g, GxStore *s, int moments)
{
    const int trains = moments >= 0 && s->trained_n > 0;
    s->weights = gx_allocate_from(g, g->arena, GX_MEM_WEIGHTS, gx_dtype_size(s->dtype) * s->my_weights_n);
    s->quantized = s->my_quantized_n ? gx_allocate_from(g, g->arena, GX_MEM_WEIGHTS, s->my_quantized_n) : NULL;
    s->masters = s->grads = s->my_grads = s->moment[0] = s->moment[1] = NULL;
    if (trains && s->dtype != GX_F32)
        s->masters = (float *)gx_allocate_from(g, g->arena, GX_MEM_OPTIMIZER, 4 * s->my_trained_n);
    if (trains && s->sharded < GX_SHARDS_GRADS)
        s->grads = (float *)gx_allocate_from(g, g->arena, GX_MEM_GRADS, 4 * s->trained_n);
    else if (trains) s->my_grads = (float *)gx_allocate_from(g, g->arena, GX_MEM_GRADS, 4 * s->my_trained_n);
    for (int i = 0; trains && i < moments; i++)
        s->moment[i] = (float *)gx_allocate_from(g, g->arena, GX_MEM_OPTIMIZER, 4 * s->my_trained_n);
    gx__store_point(s);
}

void gx_store_close(GxStore *s)
{
    free(s->place);
    free(s->unit);
    free(s->shards);
    memset(s, 0, sizeof *s);
}

int gx_store_trains_unit(const GxStore *s, int unit) { return gx_range_count(s->unit[unit].trained.all) > 0; }

int gx_store_is_alias(const GxStore *s, int row)
{
    const GxTensor *t = &s->table->row[row];
    return t->has_alias && s->place[t->alias.index].copy != row + 1;
}

static int gx__store_row(const GxStore *s, int row)
{
    if (!gx_store_is_alias(s, row)) return row;
    const int tensor = s->table->row[row].alias.index, holder = gx_store_holder(s, tensor);
    return holder >= 0 ? holder : tensor;
}

int gx_store_is_apart(const GxStore *s, int row)
{
    const GxTensor *t = s->table->row;
    int is_apart = 0;
    for (int i = 0; i < s->table->n; i++)
        is_apart |= t[i].has_alias && t[i].alias.index == row &&
                    gx_units_have(&s->units, t[i].unit) != gx_units_have(&s->units, t[row].unit);
    return is_apart;
}

int gx_store_unit(const GxStore *s, int row) { return s->table->row[gx__store_row(s, row)].unit; }

// ---- whole tensors -------------------------------------------------------------------------------------------------

void *gx_store_weight(const GxStore *s, GxTensorId id)
{
    const GxStoreUnit *u = &s->unit[gx_store_unit(s, id.index)];
    return u->w + (s->place[id.index].weight - u->weights.all.begin) * gx_dtype_size(s->dtype);
}

GxQuantized gx_store_quantized(const GxStore *s, GxTensorId id)
{
    const GxStoreUnit *u = &s->unit[s->table->row[id.index].unit];
    char *at = u->q ? u->q + (s->place[id.index].quantized - u->quantized.all.begin) : NULL;
    return gx__store_box(&s->table->row[id.index], at);
}

float *gx_store_grads(const GxStore *s, int row)
{
    const GxStoreUnit *u = &s->unit[gx_store_unit(s, row)];
    return u->grads && gx_store_trains(s, row) ? u->grads + (s->place[row].trainable - u->trained.all.begin) : NULL;
}

float *gx_store_grad(GxStore *s, GxTensorId id, int *accumulate)
{
    GxPlace *p = &s->place[gx__store_row(s, id.index)];
    float *grads = gx_store_grads(s, id.index);
    if (!grads) return NULL;
    *accumulate = p->is_written;
    p->is_written = 1;
    return grads;
}

void gx_store_begin_window(GxStore *s)
{
    for (int i = 0; i < s->table->n; i++) s->place[i].is_written = s->place[i].is_summed = 0;
}

void gx_store_written(const GxStore *s, uint8_t *is_written)
{
    for (int i = 0; i < s->table->n; i++) is_written[i] = (uint8_t)s->place[i].is_written;
}

void gx_store_set_written(GxStore *s, const uint8_t *is_written)
{
    for (int i = 0; i < s->table->n; i++) s->place[i].is_written = is_written[i];
}

// ---- this rank's parts ---------------------------------------------------------------------------------------------

// The elements of [at, at + n), counted from `at`, that are in the range.
static GxRange gx__store_common(GxRange range, int64_t at, int64_t n)
{
    const GxRange r = {gx_min(gx_max(range.begin - at, 0), n), gx_max(gx_min(range.end - at, n), 0)};
    return r;
}

GxRange gx_store_my_weights(const GxStore *s, int row)
{
    return gx__store_common(s->unit[gx_store_unit(s, row)].weights.mine, s->place[row].weight,
                            gx_tensor_count(&s->table->row[row]));
}

GxRange gx_store_my_trained(const GxStore *s, int row)
{
    return gx__store_common(s->unit[gx_store_unit(s, row)].trained.mine, s->place[row].trainable,
                            gx_tensor_count(&s->table->row[row]));
}

// Where element i, counted over the whole, lies in this rank's buffer.
static int64_t gx__store_at(const GxStorePart *p, int64_t i) { return p->at + (i - p->mine.begin); }

static float *gx__store_trained_at(const GxStore *s, float *buffer, int row, int64_t i)
{
    if (!buffer || !gx_store_trains(s, row)) return NULL;
    return buffer + gx__store_at(&s->unit[gx_store_unit(s, row)].trained, s->place[row].trainable + i);
}

char *gx_store_weight_at(const GxStore *s, int row, int64_t i)
{
    const int64_t at = gx__store_at(&s->unit[gx_store_unit(s, row)].weights, s->place[row].weight + i);
    return (char *)s->weights + at * gx_dtype_size(s->dtype);
}

float *gx_store_master_at(const GxStore *s, int row, int64_t i)
{
    if (s->dtype == GX_F32) return s->place[row].weight < 0 ? NULL : (float *)gx_store_weight_at(s, row, i);
    return gx__store_trained_at(s, s->masters, row, i);
}

float *gx_store_moment_at(const GxStore *s, int number, int row, int64_t i)
{
    return gx__store_trained_at(s, s->moment[number], row, i);
}

float *gx_store_my_grad_at(const GxStore *s, int row, int64_t i)
{
    if (s->grads && gx_store_trains(s, row)) return gx_store_grads(s, row) + i;
    return gx__store_trained_at(s, s->my_grads, row, i);
}

float *gx_store_my_grads(const GxStore *s, int unit)
{
    const GxStorePart *p = &s->unit[unit].trained;
    return s->grads ? s->grads + p->mine.begin : s->my_grads ? s->my_grads + p->at : NULL;
}

char *gx_store_my_weights_of(const GxStore *s, int unit)
{
    return (char *)s->weights + s->unit[unit].weights.at * gx_dtype_size(s->dtype);
}

char *gx_store_my_quantized_of(const GxStore *s, int unit)
{
    return s->quantized ? (char *)s->quantized + s->unit[unit].quantized.at : NULL;
}
#endif
