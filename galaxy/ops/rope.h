// rope.h: rotary position embedding (Su et al. 2021, arXiv:2104.09864) in Hugging Face's order: elements i and i + h/2
// of a head are a pair.
//
// The global positions of rows are given by runs: a short list of (row, length, position), rows counted in steps of T
// (row t of a batch of B samples is rows t*B ... t*B + B-1 of the matrix). Whole sequences and slices of T have one
// run, a rank of context parallelism has several (model/cp.h).
#ifndef GX_ROPE_H
#define GX_ROPE_H
#include "device.h"
GX_BEGIN

enum { GX_MAX_RUNS = 16 };
typedef struct {
    int64_t row, length, position;
} GxRun;
struct GxRuns {
    int n;
    GxRun run[GX_MAX_RUNS];
}; // in rising order of rows, without gaps, from row 0 on

GxRuns gx_runs_one(int64_t length, int64_t position);
int64_t gx_runs_rows(const GxRuns *runs);
GxRuns gx_runs_slice(const GxRuns *runs, int64_t first, int64_t rows); // the runs of rows [first, first + rows)
int64_t gx_runs_position(const GxRuns *runs, int64_t row);             // global position of a row
int64_t gx_runs_row(const GxRuns *runs, int64_t position);             // the row of a position; -1: there is none
int gx_runs_check(GxContext *g, const char *what, const GxRuns *runs); // 1: they are valid

// Pair i is rotated by the angle position * f, f = theta^(-2i/head_dim), changed for sequences longer than those that
// the model was first trained on, which had `original` positions. A pair with the wavelength w = 2 pi / f turned
// original/w times in them.
//
//     LINEAR   f / factor: positions lie closer together (Chen et al. 2023, arXiv:2306.15595)
//     LLAMA3   f / factor for pairs that turned less than `low` times, f for those that turned more than `high` times,
//              and (1-s) f / factor + s f, s = (original/w - low) / (high - low), between them (Grattafiori et al. 2024,
//              arXiv:2407.21783)
//     YARN     the same, but s falls from 1 to 0 in proportion to i, from the last pair that turned `high` times to the
//              first that turned `low` times; both are the nearest pairs outside, unless keeps_fractions is 1 (Peng et
//              al. 2023, arXiv:2309.00071, section 3.2)
//
// The rotated q and k are longer than they were by attention_factor, and q k^T by its square (section 3.4 there).
typedef enum { GX_ROPE_UNSCALED = 0, GX_ROPE_LINEAR, GX_ROPE_LLAMA3, GX_ROPE_YARN } GxRopeScaling;
typedef struct {
    double theta; // 0: no RoPE
    GxRopeScaling scaling;
    double factor, low, high, original;
    double attention_factor; // 0: 1
    int keeps_fractions;     // YARN
} GxRope;
double gx_rope_frequency(const GxRope *r, int64_t head_dim, int64_t i);
static inline double gx_rope_attention_factor(const GxRope *r) { return r->attention_factor ? r->attention_factor : 1; }
// cosine, sine [positions, head_dim/2] of these angles, times attention_factor, computed in fp64 on the host. A
// backward with these tables is also right: it multiplies the gradient by the same factor.
void gx_rope_table(float *cosine, float *sine, int64_t positions, int64_t head_dim, const GxRope *r);

// In place, for `heads` heads of head_dim side by side in each row of x, rows `stride` elements apart: (x[i], x[i+h/2])
// = (x[i]*cos - x[i+h/2]*sin, x[i+h/2]*cos + x[i]*sin). The backward is the inverse rotation. x has the runs' rows
// times B rows.
void gx_rope_forward(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs, int64_t B,
                     int64_t heads, int64_t head_dim, int64_t stride, GxDtype dtype);
void gx_rope_backward(GxContext *g, void *dx, const float *cosine, const float *sine, const GxRuns *runs, int64_t B,
                      int64_t heads, int64_t head_dim, int64_t stride, GxDtype dtype);

// Rotates the results of rope_forward back by the position at which their document begins, as if each document began at
// position 0; the backward is the inverse. The tables must be those of an attention_factor of 1. documents
// [positions*B][2], on the device: ops/attention.h. bytes: as for RoPE, and 8 per row.
void gx_rope_restart_forward(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs,
                             const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride,
                             GxDtype dtype);
void gx_rope_restart_backward(GxContext *g, void *dx, const float *cosine, const float *sine, const GxRuns *runs,
                              const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride,
                              GxDtype dtype);

// positions[t*B + b] = the position of row t of column b, counted from the begin of its document: the row of a learned
// table of positions. positions [rows of the runs * B]; documents NULL: each column is one. bytes: 4 per row, and 8
// with documents
void gx_text_positions(GxContext *g, int32_t *positions, const GxRuns *runs, const int32_t *documents, int64_t B);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ROPE_IMPLEMENTED)
#define GX_ROPE_IMPLEMENTED
#include <math.h>

GxRuns gx_runs_one(int64_t length, int64_t position)
{
    GxRuns r = GX_ZERO;
    r.n = 1;
    r.run[0].length = length;
    r.run[0].position = position;
    return r;
}

int64_t gx_runs_rows(const GxRuns *runs)
{
    return runs->n ? runs->run[runs->n - 1].row + runs->run[runs->n - 1].length : 0;
}

GxRuns gx_runs_slice(const GxRuns *runs, int64_t first, int64_t rows)
{
    GxRuns r = GX_ZERO;
    for (int i = 0; i < runs->n; i++) {
        const GxRun *all = &runs->run[i];
        const int64_t begin = gx_max(all->row, first), end = gx_min(all->row + all->length, first + rows);
        if (end <= begin) continue;
        r.run[r.n].row = begin - first, r.run[r.n].length = end - begin;
        r.run[r.n++].position = all->position + begin - all->row;
    }
    return r;
}

int64_t gx_runs_position(const GxRuns *runs, int64_t row)
{
    int i = runs->n - 1;
    while (i > 0 && row < runs->run[i].row) i--;
    return runs->run[i].position + row - runs->run[i].row;
}

int64_t gx_runs_row(const GxRuns *runs, int64_t position)
{
    for (int i = 0; i < runs->n; i++) {
        const int64_t within = position - runs->run[i].position;
        if (within >= 0 && within < runs->run[i].length) return runs->run[i].row + within;
    }
    return -1;
}

int gx_runs_check(GxContext *g, const char *what, const GxRuns *runs)
{
    int64_t row = 0;
    int ok = runs->n >= 1 && runs->n <= GX_MAX_RUNS;
    for (int i = 0; ok && i < runs->n; i++) {
        ok = runs->run[i].row == row && runs->run[i].length >= 1 && runs->run[i].position >= 0;
        row += runs->run[i].length;
    }
    if (!ok)
        GX_FAIL(&g->error, GX_ERR_ARGUMENT,
                "%s: runs must be 1 to %d, from row 0 on without holes, each of a row or more", what, GX_MAX_RUNS);
    return ok;
}

// The pair, with a fraction, that turns `turns` times in `original` positions.
static double gx__rope_pair(const GxRope *r, int64_t head_dim, double turns)
{
    return (double)head_dim * log(r->original / (turns * 6.283185307179586)) / (2 * log(r->theta));
}

// The weight of the unchanged frequency of pair i.
static double gx__rope_yarn(const GxRope *r, int64_t head_dim, int64_t i)
{
    double first = gx__rope_pair(r, head_dim, r->high), last = gx__rope_pair(r, head_dim, r->low);
    if (!r->keeps_fractions) first = floor(first), last = ceil(last);
    first = fmax(first, 0), last = fmin(last, (double)(head_dim - 1)); // the bound of Hugging Face's implementation
    if (first == last) last += 0.001;                                  // as there
    return 1 - fmin(fmax(((double)i - first) / (last - first), 0), 1);
}

double gx_rope_frequency(const GxRope *r, int64_t head_dim, int64_t i)
{
    const double f = pow(r->theta, -2.0 * (double)i / (double)head_dim), turns = r->original * f / 6.283185307179586;
    double stays = 0;
    if (r->scaling == GX_ROPE_UNSCALED) return f;
    if (r->scaling == GX_ROPE_LLAMA3) stays = fmin(fmax((turns - r->low) / (r->high - r->low), 0), 1);
    if (r->scaling == GX_ROPE_YARN) stays = gx__rope_yarn(r, head_dim, i);
    return (1 - stays) * f / r->factor + stays * f;
}

void gx_rope_table(float *cosine, float *sine, int64_t positions, int64_t head_dim, const GxRope *r)
{
    const int64_t half = head_dim / 2;
    const double longer = gx_rope_attention_factor(r);
    for (int64_t i = 0; i < half; i++) {
        const double frequency = gx_rope_frequency(r, head_dim, i);
        for (int64_t p = 0; p < positions; p++) {
            cosine[p * half + i] = (float)(longer * cos((double)p * frequency));
            sine[p * half + i] = (float)(longer * sin((double)p * frequency));
        }
    }
}

// documents NULL: rotates by positions.
static void gx__rope(GxContext *g, const char *name, void *x, const float *cosine, const float *sine,
                     const GxRuns *runs, const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim,
                     int64_t stride, int direction, GxDtype dtype)
{
    if (gx_failed(g) || !gx_runs_check(g, name, runs)) return;
    int64_t R = gx_runs_rows(runs) * B;
    if (!gx_op_check(g, name, dtype, R, heads)) return;
    if (stride < heads * head_dim) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: rows are %ld elements apart, %ld heads of %ld need %ld", name,
                (long)stride, (long)heads, (long)head_dim, (long)(heads * head_dim));
        return;
    }
    if (head_dim < 2 || head_dim % 2) {
        GX_FAIL(&g->error, GX_ERR_ARGUMENT, "%s: head_dim is %ld; rotation needs pairs, so an even number", name,
                (long)head_dim);
        return;
    }
    if (gx_op_begin(g, name, gx_dims(R, heads, head_dim, 0),
                    2 * R * heads * head_dim * gx_dtype_size(dtype) + (documents ? 8 * R : 0),
                    3.0 * R * heads * head_dim))
        g->device->rope(g, x, cosine, sine, runs, documents, B, heads, head_dim, stride, direction, dtype);
}

void gx_rope_forward(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs, int64_t B,
                     int64_t heads, int64_t head_dim, int64_t stride, GxDtype dtype)
{
    gx__rope(g, "rope_forward", x, cosine, sine, runs, NULL, B, heads, head_dim, stride, +1, dtype);
}

void gx_rope_backward(GxContext *g, void *dx, const float *cosine, const float *sine, const GxRuns *runs, int64_t B,
                      int64_t heads, int64_t head_dim, int64_t stride, GxDtype dtype)
{
    gx__rope(g, "rope_backward", dx, cosine, sine, runs, NULL, B, heads, head_dim, stride, -1, dtype);
}

void gx_rope_restart_forward(GxContext *g, void *x, const float *cosine, const float *sine, const GxRuns *runs,
                             const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride,
                             GxDtype dtype)
{
    gx__rope(g, "rope_restart_forward", x, cosine, sine, runs, documents, B, heads, head_dim, stride, -1, dtype);
}

void gx_rope_restart_backward(GxContext *g, void *dx, const float *cosine, const float *sine, const GxRuns *runs,
                              const int32_t *documents, int64_t B, int64_t heads, int64_t head_dim, int64_t stride,
                              GxDtype dtype)
{
    gx__rope(g, "rope_restart_backward", dx, cosine, sine, runs, documents, B, heads, head_dim, stride, +1, dtype);
}

void gx_text_positions(GxContext *g, int32_t *positions, const GxRuns *runs, const int32_t *documents, int64_t B)
{
    if (gx_failed(g) || !gx_runs_check(g, "text_positions", runs)) return;
    const int64_t R = gx_runs_rows(runs) * B;
    if (!gx_op_check(g, "text_positions", GX_F32, R, B)) return;
    if (gx_op_begin(g, "text_positions", gx_dims(R, B, 0, 0), 4 * R + (documents ? 8 * R : 0), 0))
        g->device->text_positions(g, positions, runs, documents, B);
}
#endif
