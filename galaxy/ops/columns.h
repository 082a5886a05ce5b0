// columns.h: scales each column by a learned number: y = s * x, where x is the result of a linear with its bias
// (model/scale.h). The backward also gives the gradient of that bias.
//
// Rows may have gaps, so that x can be some columns of a wider buffer.
#ifndef GX_OPS_COLUMNS_H
#define GX_OPS_COLUMNS_H
#include "device.h"
GX_BEGIN

struct GxColumns {
    int64_t R, C;
    int64_t stride; // elements from one row to the next, the same for x, y, dx and dy; 0: C
    GxDtype dtype;
};

// y[r,c] = x[r,c]*s[c]. x, y [R,C], s [C], all of the same type; y may be x. bytes: 2*R*C*size; FLOPs: R*C
void gx_scale_columns_forward(GxContext *g, void *y, const void *x, const void *s, const GxColumns *n);

// dx[r,c] = dy[r,c]*s[c]
// ds[c]   = (accumulate ? ds[c] : 0) + sum_r dy[r,c]*x[r,c]
// db[c]   = (accumulate ? db[c] : 0) + sum_r dy[r,c]*s[c]
// ds, db [C] fp32, without gaps. dx, ds, db NULL: not needed; x is read only for ds: it cannot be computed from y,
// since s may be 0. dx may be dy. bytes: (dy + dx + x with ds)*R*C*size; FLOPs per element: 1 with dx, 2 with ds, 2
// with db
void gx_scale_columns_backward(GxContext *g, void *dx, float *ds, float *db, const void *dy, const void *x,
                               const void *s, const GxColumns *n, int accumulate);

enum { GX_COLUMNS_BLOCK = 16 }; // rows whose shares of ds and db are summed together; blocks are then summed in order

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OPS_COLUMNS_IMPLEMENTED)
#define GX_OPS_COLUMNS_IMPLEMENTED

// 1: go on; *full is *n with its stride.
static int gx__columns_check(GxContext *g, const char *name, const GxColumns *n, GxColumns *full)
{
    *full = *n;
    if (n->stride == 0) full->stride = n->C;
    if (!gx_op_check(g, name, n->dtype, n->R, n->C)) return 0;
    if (full->stride >= n->C) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "%s: rows of %ld elements have a stride of %ld; it must be at least %ld, or 0: no gaps", name, (long)n->C,
            (long)n->stride, (long)n->C);
    return 0;
}

void gx_scale_columns_forward(GxContext *g, void *y, const void *x, const void *s, const GxColumns *n)
{
    GxColumns full;
    if (!gx__columns_check(g, "scale_columns_forward", n, &full)) return;
    if (gx_op_begin(g, "scale_columns_forward", gx_dims(n->R, n->C, 0, 0), 2 * n->R * n->C * gx_dtype_size(n->dtype),
                    (double)n->R * n->C))
        g->device->scale_columns_forward(g, y, x, s, &full);
}

void gx_scale_columns_backward(GxContext *g, void *dx, float *ds, float *db, const void *dy, const void *x,
                               const void *s, const GxColumns *n, int accumulate)
{
    GxColumns full;
    if ((!dx && !ds && !db) || !gx__columns_check(g, "scale_columns_backward", n, &full)) return;
    const int64_t shares = (ds ? 1 : 0) + (db ? 1 : 0), buffers = 1 + (dx ? 1 : 0) + (ds ? 1 : 0);
    const GxArenaMark mark = gx_arena_mark(g->arena);
    float *scratch =
        shares ? (float *)gx_scratch(g, GX_MEM_WORKSPACE, shares * gx_ceil_div(n->R, GX_COLUMNS_BLOCK) * n->C * 4)
               : NULL;
    if (gx_op_begin(g, "scale_columns_backward", gx_dims(n->R, n->C, 0, 0),
                    buffers * n->R * n->C * gx_dtype_size(n->dtype),
                    (double)((dx ? 1 : 0) + 2 * shares) * (double)(n->R * n->C)))
        g->device->scale_columns_backward(g, dx, ds, db, dy, x, s, &full, accumulate, scratch);
    gx_arena_release(g->arena, mark);
}
#endif
