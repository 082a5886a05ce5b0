// layer_norm.cu: layer norm, dropout, and what joins a core's result to the stream (bias, dropout, addition, layer
// norm), forward and backward: dev/cuda/workshop.h, docs/kernels.md.
//
// Each has one version, the shipped one. The residual is timed as BERT's training calls it: with everything, the sum in
// the place of the core's result, dx in the place of dy; and with nothing but bias and addition.
#define GALAXY_CUDA_IMPLEMENTATION
#include "galaxy/cuda/dropout.cuh"
#include "galaxy/cuda/norm.cuh"
#include "galaxy/cuda/residual.cuh"
#include "workshop.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const float EPS = 1e-12f, P = 0.1f;
enum { ROWS, COLUMNS };

// Roundings behind a normed value: two sums of C and single ones; the gradient has two sums more.
static double of_norm(const int64_t *d) { return 2 * (double)d[COLUMNS] + 9; }
static double of_gradient(const int64_t *d) { return 4 * (double)d[COLUMNS] + 16; }
// What cancels in a sum over rows of normal numbers, in a mean, in dx where columns are few.
static double of_rows(const int64_t *d) { return sqrt((double)(d[ROWS] * d[COLUMNS])); }
static double of_mean(const int64_t *d) { return sqrt((double)d[ROWS]); }

// Steps and batches that nothing depends on: one sample, the rows are its positions.
static void give_step(Work *w)
{
    GxStep *step = (GxStep *)work_given(w, "step", GX_U8, sizeof(GxStep));
    memset(step, 0, sizeof *step);
    step->seed = 5, step->step = 3;
}
static GxDropout dropped(const int64_t *d)
{
    GxDropout drop = GX_ZERO;
    drop.p = P;
    drop.T = d[ROWS], drop.B = 1;
    return drop;
}

// ---- layer norm ----------------------------------------------------------------------------------------------------

enum { NORM_Y, NORM_MEAN, NORM_RSTD, NORM_X, NORM_W, NORM_B };
enum { DX, DW, DB, DY, X, MEAN, RSTD, W, SPARE };

static void norm_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_layer_norm_forward(g, p[NORM_Y], (float *)p[NORM_MEAN], (float *)p[NORM_RSTD], p[NORM_X], p[NORM_W], p[NORM_B],
                          d[ROWS], d[COLUMNS], EPS, dtype);
}
static void norm_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_layer_norm_backward(g, p[DX], (float *)p[DW], (float *)p[DB], p[DY], p[X], (const float *)p[MEAN],
                           (const float *)p[RSTD], p[W], d[ROWS], d[COLUMNS], 0, dtype);
}
static void norm_statistics(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_layer_norm_forward(g, p[SPARE], (float *)p[MEAN], (float *)p[RSTD], p[X], p[W], p[W], d[ROWS], d[COLUMNS], EPS,
                          dtype);
}
static void open_norm_forward(Work *w, const int64_t *d)
{
    const int64_t n = d[ROWS] * d[COLUMNS];
    work_output(w, "y", w->dtype, n, of_norm(d), 1, of_rows(d));
    work_output(w, "mean", GX_F32, d[ROWS], (double)d[COLUMNS] + 1, 0, of_mean(d));
    work_output(w, "rstd", GX_F32, d[ROWS], of_norm(d), 0, 0);
    work_input(w, "x", w->dtype, n);
    work_input(w, "w", w->dtype, d[COLUMNS]);
    work_input(w, "b", w->dtype, d[COLUMNS]);
}
static void open_norm_backward(Work *w, const int64_t *d)
{
    const int64_t n = d[ROWS] * d[COLUMNS];
    work_output(w, "dx", w->dtype, n, of_gradient(d), 1, of_rows(d));
    work_output(w, "dw", GX_F32, d[COLUMNS], (double)d[ROWS] + of_norm(d), 0, of_rows(d));
    work_output(w, "db", GX_F32, d[COLUMNS], (double)d[ROWS], 0, of_rows(d));
    work_input(w, "dy", w->dtype, n);
    work_input(w, "x", w->dtype, n);
    work_input(w, "mean", GX_F32, d[ROWS]);
    work_input(w, "rstd", GX_F32, d[ROWS]);
    work_input(w, "w", w->dtype, d[COLUMNS]);
    work_input(w, "y", w->dtype, n); // of the forward that mean and rstd come from
}

static const WorkEntry layer_norm[] = {
    {"forward", open_norm_forward, norm_forward, NULL, WORK_BOTH, {{"a block to a row, read once (shipped)", NULL}}},
    {"backward",
     open_norm_backward,
     norm_backward,
     norm_statistics,
     WORK_BOTH,
     {{"a block to 16 rows, partial sums (shipped)", NULL}}},
};
// With one column dx is a difference of two equal numbers times 1/sqrt(eps), whatever the rounding.
static const int64_t layer_norm_checked[][WORK_DIMS] = {{3, 7}, {5, 64}, {33, 130}, {67, 288}, {2, 4096}, {2, 13000}};
static const int64_t layer_norm_timed[][WORK_DIMS] = {{8192, 768}, {8192, 1024}, {16384, 768}};

static void layer_norm_device(GxDevice *table)
{
    table->layer_norm_forward = gx_cuda_layer_norm_forward;
    table->layer_norm_backward = gx_cuda_layer_norm_backward;
}

// ---- dropout -------------------------------------------------------------------------------------------------------

enum { DROP_Y, DROP_STEP };

static void drop(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxDropout what = dropped(d);
    g->step = (GxStep *)p[DROP_STEP];
    gx_dropout(g, p[DROP_Y], p[DROP_Y], d[ROWS], d[COLUMNS], &what, dtype);
}
static void open_drop(Work *w, const int64_t *d)
{
    work_in_place(w, "x, then y", w->dtype, d[ROWS] * d[COLUMNS], 1, 1, 0);
    give_step(w);
}

static const WorkEntry dropout[] = {
    {"forward, backward", open_drop, drop, NULL, WORK_BOTH, {{"16 bytes to a thread, in place (shipped)", NULL}}}};
static const int64_t dropout_checked[][WORK_DIMS] = {{1, 1}, {3, 7}, {5, 64}, {33, 130}, {67, 288}};
static const int64_t dropout_timed[][WORK_DIMS] = {{8192, 768}, {8192, 1024}, {16384, 768}};

static void dropout_device(GxDevice *table) { table->dropout = gx_cuda_dropout; }

// ---- residual ------------------------------------------------------------------------------------------------------

enum { SUM, RES_X, BIAS, RES_Y, RES_MEAN, RES_RSTD, RES_W, RES_B, RES_STEP };
enum { RES_DX, DOUT, DBIAS, RES_DW, RES_DB, BACK_SUM, BACK_MEAN, BACK_RSTD, BACK_W, BACK_STEP, BACK_Y };
enum { PLAIN_DX, PLAIN_DBIAS };

static GxResidual joined(const int64_t *d, GxDtype dtype, const void *bias, const void *w, const void *b)
{
    GxResidual r = GX_ZERO;
    r.R = d[ROWS], r.C = d[COLUMNS], r.dtype = dtype;
    r.bias = bias, r.w = w, r.b = b, r.eps = EPS;
    if (w) r.dropout = dropped(d);
    return r;
}
static void residual_forward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxResidual r = joined(d, dtype, p[BIAS], p[RES_W], p[RES_B]);
    g->step = (GxStep *)p[RES_STEP];
    gx_residual_forward(g, p[RES_Y], p[SUM], (float *)p[RES_MEAN], (float *)p[RES_RSTD], p[RES_X], p[SUM], &r);
}
static void residual_plain(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxResidual r = joined(d, dtype, p[BIAS], NULL, NULL);
    gx_residual_forward(g, p[SUM], NULL, NULL, NULL, p[RES_X], p[SUM], &r);
}
static void residual_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxResidual r = joined(d, dtype, NULL, p[BACK_W], p[BACK_W]);
    g->step = (GxStep *)p[BACK_STEP];
    gx_residual_backward(g, p[RES_DX], p[DOUT], (float *)p[DBIAS], (float *)p[RES_DW], (float *)p[RES_DB], p[RES_DX],
                         p[BACK_SUM], (const float *)p[BACK_MEAN], (const float *)p[BACK_RSTD], &r, 0);
}
static void residual_statistics(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    gx_layer_norm_forward(g, p[BACK_Y], (float *)p[BACK_MEAN], (float *)p[BACK_RSTD], p[BACK_SUM], p[BACK_W], p[BACK_W],
                          d[ROWS], d[COLUMNS], EPS, dtype);
}
static void residual_plain_backward(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxResidual r = joined(d, dtype, NULL, NULL, NULL);
    gx_residual_backward(g, p[PLAIN_DX], p[PLAIN_DX], (float *)p[PLAIN_DBIAS], NULL, NULL, p[PLAIN_DX], NULL, NULL,
                         NULL, &r, 0);
}
static void open_sum(Work *w, const int64_t *d)
{
    const int64_t n = d[ROWS] * d[COLUMNS];
    work_in_place(w, "out, then sum", w->dtype, n, 5, 1, of_rows(d));
    work_input(w, "x", w->dtype, n);
    work_input(w, "bias", w->dtype, d[COLUMNS]);
}
static void open_residual_forward(Work *w, const int64_t *d)
{
    open_sum(w, d);
    work_output(w, "y", w->dtype, d[ROWS] * d[COLUMNS], of_norm(d) + 5, 2, of_rows(d));
    work_output(w, "mean", GX_F32, d[ROWS], (double)d[COLUMNS] + 6, 1, of_mean(d));
    work_output(w, "rstd", GX_F32, d[ROWS], of_norm(d) + 5, 1, 0);
    work_input(w, "w", w->dtype, d[COLUMNS]);
    work_input(w, "b", w->dtype, d[COLUMNS]);
    give_step(w);
}
static void open_residual_backward(Work *w, const int64_t *d)
{
    const int64_t n = d[ROWS] * d[COLUMNS];
    const double rows = (double)d[ROWS];
    work_in_place(w, "dy, then dx", w->dtype, n, of_gradient(d), 1, of_rows(d));
    work_output(w, "dout", w->dtype, n, of_gradient(d) + 3, 1, of_rows(d));
    work_output(w, "dbias", GX_F32, d[COLUMNS], rows + of_gradient(d), 0, of_rows(d));
    work_output(w, "dw", GX_F32, d[COLUMNS], rows + of_norm(d), 0, of_rows(d));
    work_output(w, "db", GX_F32, d[COLUMNS], rows, 0, of_rows(d));
    work_input(w, "sum", w->dtype, n);
    work_input(w, "mean", GX_F32, d[ROWS]);
    work_input(w, "rstd", GX_F32, d[ROWS]);
    work_input(w, "w", w->dtype, d[COLUMNS]);
    give_step(w);
    work_input(w, "y", w->dtype, n); // of the forward that mean and rstd come from
}
static void open_residual_plain_backward(Work *w, const int64_t *d)
{
    work_in_place(w, "dy, then dx and dout", w->dtype, d[ROWS] * d[COLUMNS], 0, 0, 0);
    work_output(w, "dbias", GX_F32, d[COLUMNS], (double)d[ROWS], 0, of_rows(d));
}

static const WorkEntry residual[] = {
    {"forward",
     open_residual_forward,
     residual_forward,
     NULL,
     WORK_BOTH,
     {{"bias, dropout, norm: a block to a row (shipped)", NULL}}},
    {"forward, the sum alone", open_sum, residual_plain, NULL, WORK_BOTH, {{"16 bytes to a thread (shipped)", NULL}}},
    {"backward",
     open_residual_backward,
     residual_backward,
     residual_statistics,
     WORK_BOTH,
     {{"norm, dropout, bias: a block to 16 rows (shipped)", NULL}}},
    {"backward, the sum alone",
     open_residual_plain_backward,
     residual_plain_backward,
     NULL,
     WORK_BOTH,
     {{"a block to 16 rows (shipped)", NULL}}},
};
static const int64_t residual_checked[][WORK_DIMS] = {{3, 7}, {5, 64}, {33, 130}, {67, 288}, {2, 4096}, {2, 13000}};
static const int64_t residual_timed[][WORK_DIMS] = {{8192, 768}, {8192, 1024}, {16384, 768}};

static void residual_device(GxDevice *table)
{
    layer_norm_device(table);
    table->residual_forward = gx_cuda_residual_forward;
    table->residual_backward = gx_cuda_residual_backward;
}

#define SHOP(name)                                                                                                     \
    name, COUNT(name), name##_checked, name##_timed, COUNT(name##_checked), COUNT(name##_timed), name##_device
int main(int argc, char **argv)
{
    static const Workshop shops[] = {
        {"layer_norm", {"R", "C"}, SHOP(layer_norm)},
        {"dropout", {"R", "C"}, SHOP(dropout)},
        {"residual", {"R", "C"}, SHOP(residual)},
    };
    return work_main(shops, COUNT(shops), argc, argv);
}
