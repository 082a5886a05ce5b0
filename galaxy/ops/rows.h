// rows.h: picks rows by number, adds them back, averages them over parts of samples, normalizes them to length one, and
// puts them into pages.
//
// Position t of column b of a batch is row t*B + b. A rank with positions [t_first, t_first + T) of all samples has the
// rows from t_first*B on, and computes its summand of a mean: the sum over ranks is the mean.
#ifndef GX_OPS_ROWS_H
#define GX_OPS_ROWS_H
#include "device.h"
GX_BEGIN

// y[i,:] = x[rows[i] - first, :]. y [n,C]; rows [n], each minus `first` a row of x. bytes: 2*n*C*size + 4*n
void gx_pick_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                  GxDtype dtype);

// y[rows[i] - first, :] += x[i,:]: the backward of gx_pick_rows. x [n,C]; rows [n], all different; other rows of y do
// not change. bytes: 3*n*C*size + 4*n; FLOPs: n*C
void gx_add_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                 GxDtype dtype);

// Rows in pages: a page has GX_PAGE positions of one column. pages [positions/GX_PAGE, rounded up][B] has their
// numbers; negative: no page. gx_page_row returns the row of position t in column b, or -1.
enum { GX_PAGE = 64 };
static inline GX_ANYWHERE int64_t gx_page_row(const int32_t *pages, int64_t t, int64_t B, int64_t b)
{
    const int64_t page = pages[t / GX_PAGE * B + b];
    return page < 0 ? -1 : page * GX_PAGE + t % GX_PAGE;
}

// y[gx_page_row(pages, t_first + t, B, b), :] = x[t*B + b, :]; a row without a page is not stored. x [T*B,C]; each page
// is only once in `pages`. bytes, as if each row had a page: 2*T*B*C*size + 4*T*B
void gx_put_pages(GxContext *g, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B, int64_t t_first,
                  int64_t C, GxDtype dtype);

// With parts [n][3] = (b, begin, end), column b of the batch and positions [begin, end) of the whole sequence:
// y[i,:] = 1/(end - begin) * sum of x[(t - t_first)*B + b, :] over the t in [begin,end) and [t_first, t_first + T), in
// order of t; 0 if there is none. y [n,C], x [T*B,C]. bytes, as if each row of x were in a part:
// (T*B + n)*C*size + 12*n; FLOPs likewise: T*B*C
void gx_mean_rows_forward(GxContext *g, void *y, const void *x, const int32_t *parts, int64_t n, int64_t T, int64_t B,
                          int64_t t_first, int64_t C, GxDtype dtype);

// dx[(t - t_first)*B + b, :] += dy[i,:]/(end - begin) for the same t. Parts of one column do not overlap; rows in no
// part do not change. bytes: (2*T*B + n)*C*size + 12*n; FLOPs: 2*T*B*C
void gx_mean_rows_backward(GxContext *g, void *dx, const void *dy, const int32_t *parts, int64_t n, int64_t T,
                           int64_t B, int64_t t_first, int64_t C, GxDtype dtype);

// norm[r] = max(|x[r,:]|, eps), y[r,:] = x[r,:]/norm[r]. x, y [R,C], norm [R] fp32 (kept for the backward; NULL: not
// needed). y may be x. bytes: 2*R*C*size; FLOPs: 3*R*C
void gx_normalize_rows_forward(GxContext *g, void *y, float *norm, const void *x, int64_t R, int64_t C, float eps,
                               GxDtype dtype);

// dx[r,c] = (dy[r,c] - y[r,c] * sum_j y[r,j]*dy[r,j]) / norm[r]. dx may be dy. For a row shorter than eps that is not
// zero this is not exactly the derivative, which is dy/eps. bytes: 3*R*C*size; FLOPs: 5*R*C
void gx_normalize_rows_backward(GxContext *g, void *dx, const void *dy, const void *y, const float *norm, int64_t R,
                                int64_t C, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPS_ROWS_IMPLEMENTED)
#define GX_OPS_ROWS_IMPLEMENTED

void gx_pick_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                  GxDtype dtype)
{
    if (!gx_op_check(g, "pick_rows", dtype, n, C)) return;
    if (gx_op_begin(g, "pick_rows", gx_dims(n, C, 0, 0), 2 * n * C * gx_dtype_size(dtype) + 4 * n, 0))
        g->device->pick_rows(g, y, x, rows, first, n, C, dtype);
}

void gx_add_rows(GxContext *g, void *y, const void *x, const int32_t *rows, int64_t first, int64_t n, int64_t C,
                 GxDtype dtype)
{
    if (!gx_op_check(g, "add_rows", dtype, n, C)) return;
    if (gx_op_begin(g, "add_rows", gx_dims(n, C, 0, 0), 3 * n * C * gx_dtype_size(dtype) + 4 * n, (double)n * C))
        g->device->add_rows(g, y, x, rows, first, n, C, dtype);
}

void gx_put_pages(GxContext *g, void *y, const void *x, const int32_t *pages, int64_t T, int64_t B, int64_t t_first,
                  int64_t C, GxDtype dtype)
{
    if (!gx_op_check(g, "put_pages", dtype, T, C) || !gx_op_check(g, "put_pages", dtype, B, C)) return;
    if (gx_op_begin(g, "put_pages", gx_dims(T, B, C, 0), 2 * T * B * C * gx_dtype_size(dtype) + 4 * T * B, 0))
        g->device->put_pages(g, y, x, pages, T, B, t_first, C, dtype);
}

static int gx__mean_rows_check(GxContext *g, const char *name, int64_t n, int64_t T, int64_t B, int64_t C,
                               GxDtype dtype)
{
    return gx_op_check(g, name, dtype, n, C) && gx_op_check(g, name, dtype, T, B);
}

void gx_mean_rows_forward(GxContext *g, void *y, const void *x, const int32_t *parts, int64_t n, int64_t T, int64_t B,
                          int64_t t_first, int64_t C, GxDtype dtype)
{
    if (!gx__mean_rows_check(g, "mean_rows_forward", n, T, B, C, dtype)) return;
    if (gx_op_begin(g, "mean_rows_forward", gx_dims(n, T, B, C), (T * B + n) * C * gx_dtype_size(dtype) + 12 * n,
                    (double)T * B * C))
        g->device->mean_rows_forward(g, y, x, parts, n, T, B, t_first, C, dtype);
}

void gx_mean_rows_backward(GxContext *g, void *dx, const void *dy, const int32_t *parts, int64_t n, int64_t T,
                           int64_t B, int64_t t_first, int64_t C, GxDtype dtype)
{
    if (!gx__mean_rows_check(g, "mean_rows_backward", n, T, B, C, dtype)) return;
    if (gx_op_begin(g, "mean_rows_backward", gx_dims(n, T, B, C), (2 * T * B + n) * C * gx_dtype_size(dtype) + 12 * n,
                    2.0 * T * B * C))
        g->device->mean_rows_backward(g, dx, dy, parts, n, T, B, t_first, C, dtype);
}

void gx_normalize_rows_forward(GxContext *g, void *y, float *norm, const void *x, int64_t R, int64_t C, float eps,
                               GxDtype dtype)
{
    if (!gx_op_check(g, "normalize_rows_forward", dtype, R, C)) return;
    if (gx_op_begin(g, "normalize_rows_forward", gx_dims(R, C, 0, 0), 2 * R * C * gx_dtype_size(dtype), 3.0 * R * C))
        g->device->normalize_rows_forward(g, y, norm, x, R, C, eps, dtype);
}

void gx_normalize_rows_backward(GxContext *g, void *dx, const void *dy, const void *y, const float *norm, int64_t R,
                                int64_t C, GxDtype dtype)
{
    if (!gx_op_check(g, "normalize_rows_backward", dtype, R, C)) return;
    if (gx_op_begin(g, "normalize_rows_backward", gx_dims(R, C, 0, 0), 3 * R * C * gx_dtype_size(dtype), 5.0 * R * C))
        g->device->normalize_rows_backward(g, dx, dy, y, norm, R, C, dtype);
}
#endif
