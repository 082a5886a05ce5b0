// device.h: a device computes operations: it is a table with one function per operation. Also how operations are called
// through it.
//
// An operation (ops/) is a contract: it checks its arguments, informs the recorder, takes scratch from the arena and
// calls the context's device. A device (cpu/, cuda/) computes. An operation's dtype is that of both activations and
// weights; statistics, losses, gradients of weights and the optimizer's state are fp32, and every sum is computed in
// fp32 or better and rounded once. gx_device_none() is a device that does everything except compute: a run on it yields
// the memory plan and the FLOPs of the real program, for models of any size, in almost no time.
//
// To add an operation: its contract in ops/<name>.h, a line here, its code in cpu/<name>.h (docs/architecture.md has
// the recipe).
#ifndef GX_DEVICE_H
#define GX_DEVICE_H
#include "../base/context.h"
#include "../base/dtype.h"
GX_BEGIN

typedef struct GxEmbedding GxEmbedding;     // ops/embedding.h
typedef struct GxDropout GxDropout;         // ops/dropout.h
typedef struct GxHeadNorm GxHeadNorm;       // ops/norm.h
typedef struct GxResidual GxResidual;       // ops/residual.h
typedef struct GxAttention GxAttention;     // ops/attention.h
typedef struct GxRuns GxRuns;               // ops/rope.h
typedef struct GxVocabPart GxVocabPart;     // ops/loss.h
typedef struct GxLinearShape GxLinearShape; // ops/linear.h; a device gets it with both strides
typedef struct GxColumns GxColumns;         // ops/columns.h; with its stride
typedef struct GxQuantized GxQuantized;     // base/quantized.h
typedef struct GxGraph GxGraph;             // a device's own
typedef struct GxSumParts GxSumParts;       // ops/optimizer.h
typedef struct GxUpdate GxUpdate;           // ops/optimizer.h
typedef struct GxAdamW GxAdamW;
typedef struct GxSgd GxSgd;

struct GxDevice {
    const char *name;
    int computes;     // 0: nothing is touched (the device `none`)
    unsigned dtypes;  // bit GX_F32 set: activations and weights can be fp32, and so on
    int64_t head_dim; // the largest for attention; 0: any
    // 1: heads of this size miss the tensor cores that other sizes of this type use. NULL: no tensor cores
    int (*attention_misses_tensor_cores)(const GxContext *, GxDtype, int64_t head_dim);
    int64_t quantized_tile;                    // how many elements of a quantized matrix are dequantized at a time
    void (*describe)(char *text, size_t size); // the hardware and its libraries, in one line
    // memory
    int shares_host_memory; // 1: the host can access its buffers
    GxStatus (*open)(GxContext *);
    void (*close)(GxContext *);
    GxStatus (*arena_open)(GxContext *, GxArena *, int64_t bytes);
    void (*arena_close)(GxContext *, GxArena *);
    GxStatus (*host_arena_open)(GxContext *, GxArena *, int64_t bytes);
    void (*host_arena_close)(GxContext *, GxArena *);
    void (*to_device)(GxContext *, void *device, const void *host, int64_t bytes);
    void (*to_host)(GxContext *, void *host, const void *device, int64_t bytes);
    void (*wait)(GxContext *);
    uint64_t (*card)(const GxContext *); // a number that identifies the GPU; 0: not open. NULL: no GPUs
    // of the GPU; NULL: it is the host's memory
    void (*memory)(const GxContext *, int64_t *free_bytes, int64_t *all_bytes);
    // chooses algorithms of matrix products by timing (run/autotune.h). All NULL: it has no choice
    void (*tune)(GxContext *, int on); // 1: times products as they occur; 0: stops, and forgets all
    char *(*tuned_text)(GxContext *);  // the choices, after a line that says what for; free() it; NULL: no memory
    GxStatus (*take_tuned)(GxContext *, const char *text, GxError *why); // adds them; or GX_ERR_UNSUPPORTED, _FORMAT
    // graphs: operations called between begin and end do not run. They are captured with their arguments as a graph,
    // which may be empty and can be launched any number of times. In between the host must not wait for the device or
    // copy bytes to or from it: that sets the context's error. end must also be called after an error; it then returns
    // NULL. The functions are NULL if a device has no graphs
    void (*graph_begin)(GxContext *);
    GxGraph *(*graph_end)(GxContext *);
    void (*graph_launch)(GxContext *, const GxGraph *);
    void (*graph_close)(GxGraph *);
    // For tests: sets the context's error if the two graphs do not have the same operations with the same arguments.
    // NULL: not compared
    void (*graph_compare)(GxContext *, const GxGraph *kept, const GxGraph *now);
    // elementwise
    void (*zero)(GxContext *, void *x, int64_t bytes);
    void (*copy)(GxContext *, void *y, const void *x, int64_t bytes);
    void (*convert)(GxContext *, void *y, GxDtype to, const void *x, GxDtype from, int64_t n);
    void (*add)(GxContext *, void *y, const void *a, const void *b, int64_t n, GxDtype);
    void (*scale)(GxContext *, void *y, const void *x, int64_t n, float factor, GxDtype);
    void (*sum)(GxContext *, double *total, const float *x, int64_t n, int accumulate, double *scratch);
    // embedding
    void (*embedding_forward)(GxContext *, void *y, const void *w, const int32_t *ids, const GxEmbedding *);
    void (*embedding_backward)(GxContext *, float *dw, const void *dy, const int32_t *ids, const GxEmbedding *);
    // rows
    void (*pick_rows)(GxContext *, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                      GxDtype);
    void (*add_rows)(GxContext *, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                     GxDtype);
    void (*put_pages)(GxContext *, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B, int64_t t_first,
                      int64_t C, GxDtype);
    void (*mean_rows_forward)(GxContext *, void *y, const void *x, const int32_t *parts, int64_t n, int64_t T,
                              int64_t B, int64_t t_first, int64_t C, GxDtype);
    void (*mean_rows_backward)(GxContext *, void *dx, const void *dy, const int32_t *parts, int64_t n, int64_t T,
                               int64_t B, int64_t t_first, int64_t C, GxDtype);
    void (*normalize_rows_forward)(GxContext *, void *y, float *norm, const void *x, int64_t R, int64_t C, float eps,
                                   GxDtype);
    void (*normalize_rows_backward)(GxContext *, void *dx, const void *dy, const void *y, const float *norm, int64_t R,
                                    int64_t C, GxDtype);
    // norm
    void (*rms_norm_forward)(GxContext *, void *y, float *rstd, const void *x, const void *w, float offset, int64_t R,
                             int64_t C, float eps, GxDtype);
    void (*add_rms_norm_forward)(GxContext *, void *sum, void *y, float *rstd, const void *x, const void *a,
                                 const void *w, float offset, int64_t R, int64_t C, float eps, GxDtype);
    void (*rms_norm_backward)(GxContext *, void *dx, float *dw, const void *dy, const void *dresidual, const void *x,
                              const float *rstd, const void *w, float offset, int64_t R, int64_t C, int accumulate,
                              GxDtype, float *scratch);
    void (*head_norm_forward)(GxContext *, void *x, void *kept, float *rstd, const void *w, const GxHeadNorm *);
    void (*head_norm_backward)(GxContext *, void *dx, float *dw, const void *kept, const float *rstd, const void *w,
                               const GxHeadNorm *, int accumulate, float *scratch);
    void (*layer_norm_forward)(GxContext *, void *y, float *mean, float *rstd, const void *x, const void *w,
                               const void *b, int64_t R, int64_t C, float eps, GxDtype);
    void (*layer_norm_backward)(GxContext *, void *dx, float *dw, float *db, const void *dy, const void *x,
                                const float *mean, const float *rstd, const void *w, int64_t R, int64_t C,
                                int accumulate, GxDtype, float *scratch);
    // dropout, if p > 0; the bias, dropout, addition and norm after a core
    void (*dropout)(GxContext *, void *y, const void *x, int64_t R, int64_t C, const GxDropout *, GxDtype);
    void (*residual_forward)(GxContext *, void *y, void *sum, float *mean, float *rstd, const void *x, const void *out,
                             const GxResidual *);
    void (*residual_backward)(GxContext *, void *dx, void *dout, float *dbias, float *dw, float *db, const void *dy,
                              const void *sum, const float *mean, const float *rstd, const GxResidual *, int accumulate,
                              float *scratch);
    // linear
    void (*linear_forward)(GxContext *, void *y, const void *x, const void *w, const void *bias, const GxLinearShape *,
                           void *scratch);
    void (*linear_backward_input)(GxContext *, void *dx, const void *dy, const void *w, const GxLinearShape *);
    void (*linear_backward_weight)(GxContext *, float *dw, float *dbias, const void *dy, const void *x,
                                   const GxLinearShape *, float *scratch);
    // quantize
    void (*dequantize)(GxContext *, void *y, GxDtype, const GxQuantized *, int64_t row, int64_t rows, int64_t col,
                       int64_t cols);
    // rope: direction +1 forward, -1 backward; by a row's position, or with documents by the beginning of its document
    void (*rope)(GxContext *, void *x, const float *cosine, const float *sine, const GxRuns *, const int32_t *documents,
                 int64_t B, int64_t heads, int64_t head_dim, int64_t stride, int direction, GxDtype);
    void (*text_positions)(GxContext *, int32_t *positions, const GxRuns *, const int32_t *documents, int64_t B);
    // attention
    int64_t (*attention_scratch)(const GxContext *, const GxAttention *, int backward); // bytes
    void (*attention_forward)(GxContext *, void *o, float *lse, const void *q, const void *k, const void *v,
                              const GxAttention *, void *scratch);
    void (*attention_backward)(GxContext *, void *dq, void *dk, void *dv, const void *d_o, const void *o,
                               const float *lse, const void *q, const void *k, const void *v, const GxAttention *,
                               void *scratch);
    void (*attention_merge)(GxContext *, float *o, float *lse, const void *o2, const float *lse2, int64_t rows,
                            int64_t head_dim, GxDtype); // rows: of all heads
    // activation
    void (*swiglu_forward)(GxContext *, void *y, const void *gate_up, int64_t R, int64_t F, GxDtype);
    void (*swiglu_backward)(GxContext *, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                            int64_t F, GxDtype);
    void (*gelu_forward)(GxContext *, void *y, const void *x, const void *bias, int64_t R, int64_t F, int kind,
                         GxDtype); // kind: a GxGelu
    void (*gelu_backward)(GxContext *, void *dx, void *y, const void *dy, const void *x, const void *bias, int64_t R,
                          int64_t F, int kind, GxDtype);
    void (*geglu_forward)(GxContext *, void *y, const void *gate_up, int64_t R, int64_t F, int kind, GxDtype);
    void (*geglu_backward)(GxContext *, void *dgate_up, void *y, const void *dy, const void *gate_up, int64_t R,
                           int64_t F, int kind, GxDtype);
    void (*relu_forward)(GxContext *, void *y, const void *x, int64_t n, GxDtype);
    void (*relu_backward)(GxContext *, void *dx, void *y, const void *dy, const void *x, int64_t n, GxDtype);
    void (*tanh_forward)(GxContext *, void *y, const void *x, int64_t n, GxDtype);
    void (*tanh_backward)(GxContext *, void *dx, const void *dy, const void *y, int64_t n, GxDtype);
    // gate
    void (*gate_forward)(GxContext *, void *y, const void *a, const void *b, const void *gate, float temperature,
                         int64_t n, GxDtype);
    void (*gate_backward)(GxContext *, void *da, void *db, float *dgate, const void *dy, const void *a, const void *b,
                          const void *gate, float temperature, int64_t n, int accumulate, GxDtype, double *scratch);
    // columns
    void (*scale_columns_forward)(GxContext *, void *y, const void *x, const void *s, const GxColumns *);
    void (*scale_columns_backward)(GxContext *, void *dx, float *ds, float *db, const void *dy, const void *x,
                                   const void *s, const GxColumns *, int accumulate, float *scratch);
    // loss
    void (*cross_entropy)(GxContext *, float *losses, void *dlogits, const void *logits, const int32_t *labels,
                          int64_t R, int64_t V, const int64_t *count, const float *weights, float smoothing, GxDtype);
    void (*cross_entropy_maximum)(GxContext *, float *maximum, const void *logits, int64_t R, int64_t V, GxDtype);
    void (*cross_entropy_sums)(GxContext *, float *sums, void *exps, const void *logits, const float *maximum,
                               const int32_t *labels, const GxVocabPart *, GxDtype);
    void (*cross_entropy_finish)(GxContext *, float *losses, void *dlogits, const void *exps, const float *sums,
                                 const int32_t *labels, const GxVocabPart *, const int64_t *count, const float *weights,
                                 GxDtype);
    void (*squared_error)(GxContext *, float *losses, void *dlogits, const void *logits, const float *targets,
                          int64_t R, int64_t V, const int64_t *count, GxDtype);
    void (*binary_cross_entropy)(GxContext *, float *losses, void *dlogits, const void *logits, const float *targets,
                                 int64_t R, int64_t V, const int64_t *count, GxDtype);
    // optimizer
    void (*square_blocks)(GxContext *, double *blocks, const float *x, const GxSumParts *);
    void (*add_blocks)(GxContext *, double *total, const double *blocks, int64_t n, int accumulate);
    void (*clip)(GxContext *, double max_norm);
    void (*adamw)(GxContext *, const GxUpdate *, const GxAdamW *);
    void (*sgd)(GxContext *, const GxUpdate *, const GxSgd *);
};

// Sums over all elements are sums of blocks of this many, added in order: the same bits for any number of threads.
enum { GX_SUM_BLOCK = 4096 };

GxDevice gx_device_none(const GxDevice *like); // takes scratch and supports types like `like`

// Every operation begins with this call, which records it and returns 1 if the device is to be called. bytes: read +
// written.
// dims, in this order:
//     zero, copy                                    bytes
//     convert, add, scale, sum, sum_squares, square_blocks, add_blocks, adamw, sgd
//                                                   n
//     clip                                          none
//     embedding_...                                 R, C, rows of the table that this rank has
//     pick_rows, add_rows                           n, C
//     put_pages                                     T, B, C
//     mean_rows_...                                 n, T, B, C
//     rms_norm_..., add_rms_norm_..., layer_norm_..., normalize_rows_..., dropout, residual_...
//                                                   R, C
//     linear_...                                    R, In, Out
//     dequantize                                    rows, cols
//     head_norm_..., rope_...                       R, heads, head_dim
//     text_positions                                R, B
//     attention_merge                               R, heads, head_dim
//     attention_forward, attention_backward         Tq, Tk, B*H, head_dim
//     swiglu_..., gelu_..., geglu_...               R, F
//     relu_..., tanh_..., gate_...                  n
//     cross_entropy..., squared_error, binary_cross_entropy
//                                                   R, V
int gx_op_begin(GxContext *g, const char *name, GxDims dims, int64_t bytes, double flops);
// 1: go on. 0, and the context has an error: the device cannot compute in this type, or a size is not positive.
int gx_op_check(GxContext *g, const char *name, GxDtype dtype, int64_t rows, int64_t cols);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DEVICE_IMPLEMENTED)
#define GX_DEVICE_IMPLEMENTED

GxDevice gx_device_none(const GxDevice *like)
{
    GxDevice d = *like;
    d.name = "none";
    d.computes = 0;
    return d;
}

int gx_op_begin(GxContext *g, const char *name, GxDims dims, int64_t bytes, double flops)
{
    if (gx_failed(g)) return 0;
    if (g->recorder) {
        GxEvent e = GX_ZERO;
        e.kind = GX_EVENT_OP;
        e.name = name;
        e.site = g->site;
        e.unit = g->unit, e.pair = g->pair, e.tensor = g->tensor;
        e.bytes = bytes;
        e.flops = flops;
        e.dims = dims;
        gx_recorder_add(g->recorder, &e);
    }
    return g->device->computes;
}

int gx_op_check(GxContext *g, const char *name, GxDtype dtype, int64_t rows, int64_t cols)
{
    if (gx_failed(g)) return 0;
    if (rows < 1 || cols < 1) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: %ld rows of %ld columns; both must be at least 1", name, (long)rows,
                (long)cols);
        return 0;
    }
    if ((unsigned)dtype >= GX_DTYPES || !(g->device->dtypes >> dtype & 1)) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED, "%s: the device %s does not compute in %s", name, g->device->name,
                gx_dtype_name(dtype));
        return 0;
    }
    return 1;
}
#endif
