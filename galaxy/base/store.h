// base/store.h: the buffers of a rank's tensors: weights, and for trained tensors gradients, fp32 masters and optimizer
// moments. It is the only file that knows offsets; tensors.h describes the tensors themselves.
//
// A rank has the tensors of units [first, last). The weights, frozen ones included, lie unit by unit in one buffer of
// the type that is computed in. Gradients, masters and moments each have a buffer of their own, in the same order, for
// trained tensors only: a frozen tensor has none of them. In fp32 the weights are their own masters. A packed row
// follows the row before without a gap, if the rank has both. Quantised matrices have a separate buffer of bytes.
//
//     GX_TRY(gx_store_open(&s, &table, 0, table.units, GX_BF16, &g->error));    // counts
//     gx_store_take(g, &s, 2);                                                  // takes memory: two moments
//     const void *w = gx_store_weight(&s, id);
//     float *dw = gx_store_grad(&s, id, &accumulate);                           // NULL: frozen, or no gradients
//     GxQuantized q = gx_store_quantized(&s, id);                               // for a quantised matrix
//
// In a window the first contribution to a gradient is written, later ones are added (`is_written`), in whatever order
// the micro-batches and the uses of a tied weight come. A gradient without any contribution is zeroed at the end of the
// window.
#ifndef GX_STORE_H
#define GX_STORE_H
#include "context.h"
#include "tensors.h"
GX_BEGIN

typedef struct {
    int64_t weight;    // its offset in the weights, in elements; -1: not on this rank, or quantised
    int64_t quantized; // its offset in the quantised matrices, in bytes; -1: not on this rank, or not quantised
    int64_t trainable; // its offset in gradients, masters and moments, in elements; -1: frozen, or not on this rank
    int is_written;    // 1: its gradient has been written in this window
} GxPlace;

typedef struct {
    const GxTable *table;
    GxPlace *place;               // [table->n]; an alias has that of its tensor
    int first_unit, last_unit;    // units [first, last)
    int64_t weights_n, trained_n; // elements of the buffers
    int64_t quantized_n;          // bytes
    GxDtype dtype;                // of the weights
    void *weights;                // [weights_n]
    void *quantized;              // [quantized_n]; NULL: no matrix is quantised
    float *masters;               // [trained_n], fp32; NULL if the weights are fp32 and their own masters
    float *grads;                 // [trained_n]; NULL: no gradients are computed
    float *moment[2];             // [trained_n] each; NULL: the optimizer has none
} GxStore;

GxStatus gx_store_open(GxStore *s, const GxTable *table, int first_unit, int last_unit, GxDtype dtype, GxError *err);
void gx_store_take(GxContext *g, GxStore *s,
                   int moments); // from the context's arena; moments: 0 to 2, -1: weights alone
void gx_store_close(GxStore *s);

static inline int gx_store_has(const GxStore *s, int row)
{
    return s->place[row].weight >= 0 || s->place[row].quantized >= 0;
}
static inline int gx_store_trains(const GxStore *s, int row) { return s->place[row].trainable >= 0; }
int gx_store_trains_unit(const GxStore *s, int unit);

void *gx_store_weight(const GxStore *s, GxTensorId id);          // of a tensor that is not quantised
GxQuantized gx_store_quantized(const GxStore *s, GxTensorId id); // this rank's box of a quantised matrix
// The gradient, which is marked as written. *accumulate: 0: the caller must overwrite it, 1: add to it. NULL: frozen,
// or no gradients are computed.
float *gx_store_grad(GxStore *s, GxTensorId id, int *accumulate);
float *gx_store_master(const GxStore *s, int row); // fp32 values of a trained tensor, or of any in fp32; else NULL
// The gradient of a trained tensor, not marked as written; and a moment. NULL: frozen, or there is no such buffer.
static inline float *gx_store_grads(const GxStore *s, int row)
{
    return s->grads && gx_store_trains(s, row) ? s->grads + s->place[row].trainable : NULL;
}
static inline float *gx_store_moment(const GxStore *s, int number, int row)
{
    return s->moment[number] && gx_store_trains(s, row) ? s->moment[number] + s->place[row].trainable : NULL;
}
static inline char *gx_store_weights_at(const GxStore *s, int64_t at)
{
    return (char *)s->weights + at * gx_dtype_size(s->dtype);
}

void gx_store_begin_window(GxStore *s); // no gradient is written

// For captured graphs (run/graphs.h): which gradients have been written, a byte for each row of the table.
void gx_store_written(const GxStore *s, uint8_t *is_written);
void gx_store_set_written(GxStore *s, const uint8_t *is_written);

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

GxStatus gx_store_open(GxStore *s, const GxTable *table, int first_unit, int last_unit, GxDtype dtype, GxError *err)
{
    memset(s, 0, sizeof *s);
    s->table = table, s->first_unit = first_unit, s->last_unit = last_unit, s->dtype = dtype;
    s->place = (GxPlace *)calloc((size_t)table->n + 1, sizeof *s->place);
    if (!s->place) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the places of %d tensors", table->n);
    for (int i = 0; i < table->n; i++) {
        const GxTensor *t = &table->row[i];
        GxPlace *p = &s->place[i];
        p->weight = p->trainable = p->quantized = -1;
        if (t->unit < first_unit || t->unit >= last_unit) continue;
        if (t->has_alias) {
            *p = s->place[t->alias.index];
            if (p->weight < 0)
                return GX_FAIL(
                    err, GX_ERR_UNSUPPORTED,
                    "%s is tied to %s, which other ranks hold: stages of a pipeline (--pp) cannot share a tensor yet",
                    t->name, table->row[t->alias.index].name);
            continue;
        }
        if (t->quantized) {
            const GxQuantized box = gx__store_box(t, NULL);
            p->quantized = s->quantized_n;
            s->quantized_n += gx_quantized_bytes(&box);
            continue;
        }
        const int is_packed = t->packed && i > 0 && s->place[i - 1].weight >= 0 && table->row[i - 1].unit == t->unit;
        p->weight = gx__store_place(&s->weights_n, t, is_packed);
        if (!t->frozen) p->trainable = gx__store_place(&s->trained_n, t, is_packed && s->place[i - 1].trainable >= 0);
    }
    return GX_OK;
}

void gx_store_take(GxContext *g, GxStore *s, int moments)
{
    s->weights = gx_take_from(g, g->arena, GX_MEM_WEIGHTS, gx_dtype_size(s->dtype) * s->weights_n);
    s->quantized = s->quantized_n ? gx_take_from(g, g->arena, GX_MEM_WEIGHTS, s->quantized_n) : NULL;
    s->masters = s->grads = s->moment[0] = s->moment[1] = NULL;
    if (moments < 0 || s->trained_n == 0) return;
    if (s->dtype != GX_F32) s->masters = (float *)gx_take_from(g, g->arena, GX_MEM_OPTIMIZER, 4 * s->trained_n);
    s->grads = (float *)gx_take_from(g, g->arena, GX_MEM_GRADS, 4 * s->trained_n);
    for (int i = 0; i < moments; i++)
        s->moment[i] = (float *)gx_take_from(g, g->arena, GX_MEM_OPTIMIZER, 4 * s->trained_n);
}

void gx_store_close(GxStore *s)
{
    free(s->place);
    memset(s, 0, sizeof *s);
}

int gx_store_trains_unit(const GxStore *s, int unit)
{
    for (int i = 0; i < s->table->n; i++)
        if (s->table->row[i].unit == unit && gx_store_trains(s, i)) return 1;
    return 0;
}

static int gx__store_row(const GxStore *s, int row)
{
    return s->table->row[row].has_alias ? s->table->row[row].alias.index : row;
}

void *gx_store_weight(const GxStore *s, GxTensorId id) { return gx_store_weights_at(s, s->place[id.index].weight); }

GxQuantized gx_store_quantized(const GxStore *s, GxTensorId id)
{
    return gx__store_box(&s->table->row[id.index], (char *)s->quantized + s->place[id.index].quantized);
}

float *gx_store_grad(GxStore *s, GxTensorId id, int *accumulate)
{
    GxPlace *p = &s->place[gx__store_row(s, id.index)];
    if (!s->grads || p->trainable < 0) return NULL;
    *accumulate = p->is_written;
    p->is_written = 1;
    return s->grads + p->trainable;
}

float *gx_store_master(const GxStore *s, int row)
{
    const GxPlace *p = &s->place[row];
    if (s->dtype == GX_F32) return p->weight < 0 ? NULL : (float *)s->weights + p->weight;
    return p->trainable < 0 ? NULL : s->masters + p->trainable;
}

void gx_store_begin_window(GxStore *s)
{
    for (int i = 0; i < s->table->n; i++) s->place[i].is_written = 0;
}

void gx_store_written(const GxStore *s, uint8_t *is_written)
{
    for (int i = 0; i < s->table->n; i++) is_written[i] = (uint8_t)s->place[i].is_written;
}

void gx_store_set_written(GxStore *s, const uint8_t *is_written)
{
    for (int i = 0; i < s->table->n; i++) s->place[i].is_written = is_written[i];
}
#endif
