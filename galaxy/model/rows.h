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

typedef struct GxBatch GxBatch;
typedef struct GxKvCache GxKvCache; // kv_cache.h

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

// What a task makes of the losses of a head's rows, where they belong together (a preference pair's two texts): the
// loss, and by what each row's gradient is multiplied.
typedef struct {
    // In the host's memory, of all rows of the target, which every rank of a tp group gets alike; it writes them anew.
    // losses: in, of each row; out, what adds up to the loss. weights: the derivative of that by each row's.
    float *losses, *weights;
    void (*weigh)(void *user, const GxBatch *b);
    void *user;
} GxWeighing;

// What one loss is about: rows of the stream, and what is wanted of them. A head's pair names its target by number.
typedef struct {
    // [n], ascending: the numbers t*B + b of the rows that count, on which alone the head works. NULL: all T*B rows, n
    // is not read. rows_twin: the same in the host's memory; NULL: `rows` are there.
    const int32_t *rows, *rows_twin;
    int64_t n, most;            // most: the largest n of all batches, of which memory is taken; 0: n
    const int32_t *labels;      // [n], a class each; one of GX_IGNORE_INDEX does not count
    const int32_t *labels_twin; // in the host's memory; NULL: `labels` are there
    const float *values;        // [n, outputs], where numbers are wanted, not a class
    // What the loss is divided by, in the device's memory: labels of the whole window, on all ranks. NULL: 1
    const int64_t *count;
    double *loss;  // the head adds the sum of its losses
    GxRows logits; // [n, outputs]: where the head is to write its results, on every rank of a tp group
    // In a validation of a head over a vocabulary: it adds how many labels have the largest logit, which over all ranks
    // is each label once. In the host's memory. NULL: not wanted.
    int64_t *right;
    // [n][3], of a head that makes vectors: a text each, of which the rows of positions [begin, end) of a column count:
    // (column, begin, end); a column's do not overlap. `rows` is then NULL, and n the number of texts, 0 included. They
    // are `anchors` texts, then as many, the positive of each, then negatives; anchors < 0: no loss is wanted.
    const int32_t *parts, *parts_twin;
    int64_t anchors;
    // Texts that are no anchors, of all ranks' micro-batches together: the most there can be, for where memory is
    // planned and nobody can be asked. 0: all ranks have as many texts as this one.
    int64_t candidates;
    // Of a head over a vocabulary: a row's loss is not counted as it is. NULL: it is.
    const GxWeighing *weighing;
} GxTarget;

struct GxBatch {              // one micro-batch of this rank; its arrays lie in the device's memory
    const int32_t *tokens;    // [T,B]
    const int32_t *types;     // [T,B], of the token; and its position in its text: of models that have tables for them
    const int32_t *positions; // [T,B]
    // [T*B][2]: of each row the positions [begin, end) of its text, where several share a column without seeing each
    // other, or padding is seen by nobody (begin = end). NULL: each column is one text.
    const int32_t *documents;
    GxTarget target[GX_MAX_LOSSES];
    int64_t T, B;
    GxRuns runs;          // which positions the T rows have
    int64_t first_sample; // its first sample's number, less g->step->first_sample, for random numbers
    int number;           // micro-batch of the window
    int is_training;      // 0: losses and results alone are wanted, and no dropout
    // Where keys and values of earlier positions are, and those of this batch go; `documents` is then of all its
    // positions. NULL: the batch is all there is.
    const GxKvCache *cache;
};

static inline const int32_t *gx_target_rows(const GxTarget *t) { return t->rows_twin ? t->rows_twin : t->rows; }
static inline const int32_t *gx_target_labels(const GxTarget *t) { return t->labels_twin ? t->labels_twin : t->labels; }
static inline int64_t gx_target_n(const GxBatch *b, int target)
{
    return b->target[target].rows ? b->target[target].n : b->T * b->B;
}

GX_END
#endif
