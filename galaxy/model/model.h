// model.h: what the trainer, a pipeline, recomputation and FSDP see of a model: units with a forward and a backward
// each.
//
// Unit 0 turns tokens into the stream x, units 1 to L are layers, unit L+1 is the final norm and the head. A layer is a
// pure unit: it has no hidden state, what its backward needs lies in a saved slot, its parameters lie at unit[u] + the
// table's offset. So whoever wraps these calls (a pipeline's interpreter, recomputation, FSDP) wraps nothing else. The
// head's forward and backward are one call: its logits exist only in chunks.
//
// Rows of activations are [T,B,C]: row t*B + b. A slice of T is one block of rows, for every B.
#ifndef GX_MODEL_H
#define GX_MODEL_H
#include "../base/tensors.h"
#include "../base/partition.h"
#include "../ops/memory.h"
#include "../ops/rope.h"
GX_BEGIN

typedef struct {
    void *data;
    GxDtype dtype;
    int64_t rows, cols;
} GxRows;

GxRows gx_rows_take(GxArena *a, GxMemoryKind kind, GxDtype dtype, int64_t rows, int64_t cols);
static inline int64_t gx_rows_bytes(GxRows r) { return r.rows * r.cols * gx_dtype_size(r.dtype); }

// What flows from unit to unit: the stream; a side network's; an encoder's output. Data NULL: the model has none.
typedef struct {
    GxRows x, side, memory;
} GxState;

typedef struct {                    // one micro-batch of this rank
    const int32_t *tokens, *labels; // [T,B]; a label of GX_IGNORE_INDEX does not count
    const int32_t *labels_twin;     // the labels in the host's memory; NULL: `labels` are there
    int64_t T, B;
    GxRuns runs;          // which positions the T rows have
    int64_t first_sample; // its first sample's number in the whole training, for random numbers
    float scale;          // 1 / number of labels that count in the whole window, on all ranks
    int accumulate;       // 0: the window's first micro-batch: gradients are written; 1: they are added
} GxBatch;

static inline const int32_t *gx_batch_labels(const GxBatch *b) { return b->labels_twin ? b->labels_twin : b->labels; }

typedef struct GxModel GxModel;
typedef struct {      // a model family under a mode
    const char *name; // "llama"
    const char *mode; // "serial"
    void (*set_rows)(GxContext *, GxModel *, int64_t T,
                     int64_t B); // of the batches to come: at most what the buffers were taken for
    void (*embed_forward)(GxContext *, GxModel *, const GxBatch *, GxState out);
    void (*embed_backward)(GxContext *, GxModel *, const GxBatch *, GxState dout);
    void (*layer_forward)(GxContext *, GxModel *, int layer, const GxBatch *, GxState out, GxState in);
    void (*layer_backward)(GxContext *, GxModel *, int layer, const GxBatch *, GxState din,
                           GxState dout); // din may be dout
    void (*head)(GxContext *, GxModel *, const GxBatch *, GxState din, GxState in,
                 double *loss_sum); // adds; din.x.data NULL: loss only
    void (*logits)(GxContext *, GxModel *, GxRows logits, GxState in,
                   int64_t first_row); // [rows, whole vocabulary] from first_row on
} GxModelKind;

struct GxModel {
    const GxModelKind *kind;
    GxDtype dtype; // of weights and activations: fp32, unless it is set before buffers are taken
    GxTable table;
    GxUnit *unit; // [table.units]: where parameters and gradients lie
    int layers;
    GxState *state;   // [layers + 1]: the stream into each layer, and into the head
    GxState gradient; // of the stream, on its way back through all units
    GxSplit rows; // [T*B] of the batch over the tp group, where the stream is split; this rank is number `member` of it
    int member;
    void *self; // the family's own
};

// Points every unit into two flat buffers of gx_table_offset(table, units) elements, weights in the model's type. grads
// NULL: none are wanted.
GxStatus gx_model_attach(GxModel *m, void *weights, float *grads, GxError *err);
void gx_model_detach(GxModel *m);
static inline void *gx_model_weight(const GxModel *m, int unit, int64_t offset)
{
    return (char *)m->unit[unit].weights + offset * gx_dtype_size(m->dtype);
}

// Draws the weights into a flat fp32 buffer, by global index: the same in every topology.
void gx_model_init(GxContext *g, const GxModel *m, float *weights, uint64_t seed);

// One micro-batch through all units: adds to *loss_sum the sum of the token losses, and to the gradients those of scale
// * that sum.
void gx_model_forward_backward(GxContext *g, GxModel *m, const GxBatch *b, double *loss_sum);
void gx_model_loss(GxContext *g, GxModel *m, const GxBatch *b, double *loss_sum); // the same without gradients
void gx_model_forward(GxContext *g, GxModel *m, const GxBatch *b);                // up to the stream into the head

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_IMPLEMENTED)
#define GX_MODEL_IMPLEMENTED
#include <stdlib.h>

GxRows gx_rows_take(GxArena *a, GxMemoryKind kind, GxDtype dtype, int64_t rows, int64_t cols)
{
    GxRows r = {NULL, dtype, rows, cols};
    r.data = gx_arena_take(a, kind, gx_rows_bytes(r));
    return r;
}

GxStatus gx_model_attach(GxModel *m, void *weights, float *grads, GxError *err)
{
    if (!m->unit) m->unit = (GxUnit *)calloc((size_t)m->table.units, sizeof *m->unit);
    if (!m->unit) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d units", m->table.units);
    for (int u = 0; u < m->table.units; u++) {
        m->unit[u].weights = (char *)weights + gx_table_offset(&m->table, u) * gx_dtype_size(m->dtype);
        m->unit[u].grads = grads ? grads + gx_table_offset(&m->table, u) : NULL;
    }
    return GX_OK;
}

void gx_model_detach(GxModel *m)
{
    free(m->unit);
    m->unit = NULL;
}

static void gx__tensor_init(GxContext *g, const GxTensor *t, int number, float *values, uint64_t seed)
{
    const int64_t count = gx_tensor_count(t);
    GxArena *a = gx_host_arena(g);
    for (int64_t first = 0; first < count && !gx_failed(g); first += GX_STAGE) {
        const int64_t n = gx_min(GX_STAGE, count - first);
        const GxArenaMark mark = gx_arena_mark(a);
        float *twin = (float *)gx_host_twin(g, GX_MEM_WORKSPACE, values + first, 4 * n);
        if (twin && g->device->computes) gx_tensor_init(t, number, seed, first, n, twin);
        gx_to_device(g, values + first, twin, 4 * n);
        gx_arena_release(a, mark);
        if (!g->device->computes) return; // the others take no more
    }
}

void gx_model_init(GxContext *g, const GxModel *m, float *weights, uint64_t seed)
{
    for (int i = 0; i < m->table.n; i++)
        if (!m->table.row[i].has_alias)
            gx__tensor_init(g, &m->table.row[i], i, weights + gx_table_flat(&m->table, i), seed);
}

void gx_model_forward(GxContext *g, GxModel *m, const GxBatch *b)
{
    m->kind->set_rows(g, m, b->T, b->B);
    gx_at(g, 0, "embed");
    m->kind->embed_forward(g, m, b, m->state[0]);
    for (int l = 0; l < m->layers; l++) m->kind->layer_forward(g, m, l, b, m->state[l + 1], m->state[l]);
    gx_at(g, m->layers + 1, "head");
}

void gx_model_loss(GxContext *g, GxModel *m, const GxBatch *b, double *loss_sum)
{
    GxState none = GX_ZERO;
    gx_model_forward(g, m, b);
    m->kind->head(g, m, b, none, m->state[m->layers], loss_sum);
}

void gx_model_forward_backward(GxContext *g, GxModel *m, const GxBatch *b, double *loss_sum)
{
    gx_model_forward(g, m, b);
    m->kind->head(g, m, b, m->gradient, m->state[m->layers], loss_sum);
    for (int l = m->layers - 1; l >= 0; l--) m->kind->layer_backward(g, m, l, b, m->gradient, m->gradient);
    gx_at(g, 0, "embed");
    m->kind->embed_backward(g, m, b, m->gradient);
}
#endif
