// model/rows.h: what passes between units: rows of activations, the stream's state, and the batch that is at work.
//
// Rows of activations are [T,B,C]: row t*B + b. A slice of T is one block of rows, for every B.
#ifndef GX_ROWS_H
#define GX_ROWS_H
#include "../base/arena.h"
#include "../base/context.h"
#include "../base/dtype.h"
#include "../ops/rope.h"
GX_BEGIN

// Data NULL: no rows. What takes them then does nothing, on every rank, collectives included.
typedef struct {
    void *data;
    GxDtype dtype;
    int64_t rows, cols;
} GxRows;

static inline GxRows gx_rows(void *data, GxDtype dtype, int64_t rows, int64_t cols)
{
    GxRows r;
    r.data = data, r.dtype = dtype, r.rows = rows, r.cols = cols;
    return r;
}
static inline GxRows gx_no_rows(void) { return gx_rows(NULL, GX_F32, 0, 0); }
static inline int64_t gx_rows_bytes(GxRows r) { return r.rows * r.cols * gx_dtype_size(r.dtype); }
static inline GxRows gx_some_rows(GxRows x, int64_t first, int64_t rows)
{
    return gx_rows(x.data ? (char *)x.data + first * x.cols * gx_dtype_size(x.dtype) : NULL, x.dtype, rows, x.cols);
}
static inline char *gx_rows_column(GxRows x, int64_t c) { return (char *)x.data + c * gx_dtype_size(x.dtype); }

// Between units: the stream, in CON's layout; a side network's; an encoder's output. No rows: the model has none.
typedef struct {
    GxRows x, side, memory;
} GxState;

typedef struct {                    // one micro-batch of this rank; its arrays lie in the device's memory
    const int32_t *tokens, *labels; // [T,B]; a label of GX_IGNORE_INDEX does not count
    const int32_t *labels_twin;     // the labels in the host's memory; NULL: `labels` are there
    const int32_t *starts;          // [B], where documents begin: NULL: at position 0, the only case that is built
    int64_t T, B;
    GxRuns runs;          // which positions the T rows have
    int64_t first_sample; // its first sample's number in the whole training, for random numbers
    int number;           // micro-batch of the window
    int is_training;      // 0: the loss alone is wanted, and no dropout
    float scale;          // 1 / number of labels that count in the whole window, on all ranks
    double *loss;       // the head adds the sum of its token losses; under a vocabulary split by TP, all ranks the same
    GxRows logits;      // [rows, whole vocabulary]: where the head is to write logits instead of computing a loss
    int64_t logits_row; // of rows from this one on
} GxBatch;

static inline const int32_t *gx_batch_labels(const GxBatch *b) { return b->labels_twin ? b->labels_twin : b->labels; }

GX_END
#endif
