// model/rows.h: what is passed between units: rows of activations, the state of the residual stream, and the batch.
//
// Rows of activations are [T,B,C]: row t*B + b. A slice of T is one block of rows, for every B.
#ifndef GX_ROWS_H
#define GX_ROWS_H
#include "../base/arena.h"
#include "../base/context.h"
#include "../base/dtype.h"
#include "../base/partition.h"
#include "../ops/rope.h"
GX_BEGIN

typedef struct GxBatch GxBatch;
typedef struct GxKvCache GxKvCache; // kv_cache.h

enum { GX_CP_ZIGZAGS = GX_MAX_RUNS / 2 };
typedef struct { // which rows of a sequence each rank of cp has (cp.h)
    int n, me, zigzags;
    int by_ring;  // 1: keys and values go round (ring.h); 0: they are gathered
    GxSplit rows; // of each rank; the total is the length of a sequence
} GxCp;

// data NULL: no rows. Functions that are given no rows do nothing, not even collectives, on any rank.
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

// What units pass on: the residual stream, in CON's layout; a side network's stream; an encoder's output. No rows: the
// model has no such stream.
typedef struct {
    GxRows x, side, memory;
} GxState;

// For a task whose loss is not the sum of its rows' losses, such as that of a preference pair's two texts. From the
// losses of all rows of the target, `weigh` computes the task's loss and the factor of each row's gradient.
typedef struct {
    // Both for all rows of the target, in host memory, the same on every rank of a tp group. `weigh` writes both.
    // losses: on entry each row's loss, on return summands of the task's loss. weights: the derivative of the task's
    // loss with respect to each row's loss.
    float *losses, *weights;
    // [n], on entry: each label's logit minus the largest logit of its row, so 0 or less. Set in a validation whose
    // rows are not split over ranks. NULL: not requested.
    float *behind;
    void (*weigh)(void *user, const GxBatch *b, int is_training);
    void *user;
} GxWeighing;

// A layer that may follow the pooling of a head that makes vectors: y = x W^T + b, or tanh of it. Frozen; in fp32, in
// device memory.
enum { GX_VECTOR_LAYERS = 4 };
typedef struct {
    int64_t in, out;
    const float *weight, *bias; // [out,in]; [out], NULL: 0
    int is_tanh;
} GxVectorLayer;

// What one loss is computed from: rows of the stream, and their labels or values. A head's pair refers to its target by
// number. Arrays are borrowed, and in device memory unless stated otherwise.
typedef struct {
    // [n], ascending: the indices t*B + b of the rows that the head works on. NULL: all T*B rows, and n is ignored.
    // rows_host: a copy in host memory; NULL: `rows` itself is in host memory. row_of: the same rows' numbers in whole
    // sequences, if the batch has a part of them (cp).
    const int32_t *rows, *rows_host, *row_of;
    int64_t n, most;            // most: the largest n of any batch, for which memory is planned; 0: n
    const int32_t *labels;      // [n], class indices; GX_IGNORE_INDEX: the row does not count
    const int32_t *labels_host; // a copy in host memory; NULL: `labels` itself is in host memory
    const float *values;        // [n, outputs], for losses on numbers instead of classes
    GxRows logits; // [n, outputs]: where a validation writes the outputs, on every rank of a tp group; no rows: nowhere
    // For a validation of a head over a vocabulary, in host memory: the head adds the number of labels whose logit is
    // the largest. Each label is counted on only one rank of a tp group. NULL: not needed.
    int64_t *right;
    // [n][3], for a head that makes vectors: (column, begin, end): a text is the positions [begin, end) of a column;
    // texts of a column do not overlap. `rows` is then NULL, and n, which may be 0, is the number of texts. The first
    // `anchors` texts are anchors, followed by the positive of each, then by negatives. anchors < 0: no loss.
    const int32_t *parts, *parts_host;
    int64_t anchors;
    // For a plan, which cannot ask other ranks: the most texts other than anchors that the micro-batches of all ranks
    // together can have. 0: all ranks have as many texts as this one.
    int64_t candidates;
    const GxVectorLayer *layers; // [n_layers] for a head that makes vectors
    int n_layers;
    // For a head over a vocabulary: how the task weighs the rows' losses. NULL: their sum is the loss.
    const GxWeighing *weighing;
} GxTarget;

// One micro-batch of this rank; its arrays are in device memory. Of a model with an encoder it has the texts that the
// decoder predicts, the targets, and `source` those that the encoder reads: column b is the source of column b.
struct GxBatch {
    const int32_t *tokens; // [T,B]
    const int32_t *types;  // [T,B], token types; NULL if the model has no table for them
    // [T,B], for each token the row of the table of positions: its position in its text, from the family's first row on
    // (GxTextFrame). NULL if the model has no such table, or if the first row is 0: then they follow from `documents`
    const int32_t *positions;
    // [T*B][2], with cp of whole sequences: for each row the positions [begin, end) of its text, if several texts share
    // a column (attention does not cross between them) or if there is padding (begin = end: it is masked). NULL: each
    // column is one text.
    const int32_t *documents;
    GxTarget target[GX_MAX_LOSSES];
    int64_t T, B;
    GxRuns runs; // which positions the T rows have
    // Its rows are those of this rank of cp; NULL: it has whole sequences. row_of [T*B]: each row's number t*B + b in
    // whole sequences.
    const GxCp *cp;
    const int32_t *row_of;
    int64_t sample;        // the number of its first sample in the training, or in the held-out data
    int64_t window_sample; // in training: that number minus g->step->first_sample, for random numbers
    int number;            // index of the micro-batch in the window
    int64_t padding;       // how many of its rows are padding; set by whoever fills the batch
    // The cache that has the keys and values of earlier positions and gets those of this batch; `documents` then covers
    // all positions of the cache. NULL: no cache.
    const GxKvCache *cache;
    // A batch of as many columns, with its own T, tokens, positions, documents and runs. NULL: the model has no encoder.
    // Where nothing is trained, it may have fewer columns, S, of which B is a multiple: column b reads column b % S.
    GxBatch *source;
    // [T*B][2], for each row the positions [begin, end) of its column of the source that it attends to, and
    // [source->T*B][2], for each row of the source the positions of the rows that attend to it. Both NULL: all.
    const int32_t *reads, *read_by;
};

typedef struct {          // where heads add up losses, entry k for target k; in device memory
    const int64_t *count; // [GX_MAX_LOSSES], divisors: number of labels in the whole window, on all ranks. NULL: 1
    double *sum;          // [GX_MAX_LOSSES], added to. NULL: losses are not needed
} GxLossSums;

static inline const int32_t *gx_target_rows(const GxTarget *t) { return t->rows_host ? t->rows_host : t->rows; }
static inline const int32_t *gx_target_labels(const GxTarget *t) { return t->labels_host ? t->labels_host : t->labels; }
static inline int64_t gx_batch_positions(const GxBatch *b) // of whole sequences
{
    return b->cp ? gx_split_total(&b->cp->rows) : b->T;
}
static inline int64_t gx_target_n(const GxBatch *b, int target)
{
    return b->target[target].rows ? b->target[target].n : b->T * b->B;
}

GX_END
#endif
