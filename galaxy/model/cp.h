// cp.h: context parallelism: each rank of cp has some of the rows of every sequence, and the keys and values of all are
// brought together inside attention (att.h). Everything else works on a rank's own rows, as if they were the sequence.
//
// A causal query attends to all keys before it, so ranks with early rows would have little to do. Therefore a rank has
// a piece from the front of the sequence and one from the back, nested: with three ranks, from left to right,
//
//     0 1 2 2 1 0
//
// of n rows half in each piece. Then rank r has n (T + 1) / 2 pairs of a query and a key (n even), whatever shares the
// ranks have: rows in the proportion of their speeds balance rows and pairs. Where several documents share a sequence,
// pairs depend on where documents begin; the sequence is then divided into `zigzags` blocks, each as above.
//
// Positions, windows, documents and random numbers are those of whole sequences (GxRuns, GxBatch.row_of).
#ifndef GX_CP_H
#define GX_CP_H
#include "pass.h"
GX_BEGIN

// rows: those of each rank of cp, of one sequence; all at least 1. zigzags: 1 to GX_CP_ZIGZAGS.
GxStatus gx_cp_open(GxCp *cp, int me, const GxSplit *rows, int zigzags, GxError *err);
GxRuns gx_cp_runs(const GxCp *cp, int rank); // the positions of a rank's rows

// Rows of this rank -> those of all ranks of cp, by position. The backward sums rows of all ranks, in the order of
// ranks, to their owners.
void gx_cp_all_gather(GxPass *p, GxRows whole, GxRows mine);
void gx_cp_reduce_scatter(GxPass *p, GxRows mine, GxRows whole);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CP_IMPLEMENTED)
#define GX_CP_IMPLEMENTED
#include <string.h>
#include "../comm/comm.h"
#include "../ops/elementwise.h"

GxStatus gx_cp_open(GxCp *cp, int me, const GxSplit *rows, int zigzags, GxError *err)
{
    memset(cp, 0, sizeof *cp);
    if (zigzags < 1 || zigzags > GX_CP_ZIGZAGS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%d zigzags; 1 to %d are possible", zigzags, GX_CP_ZIGZAGS);
    for (int r = 0; r < rows->n; r++)
        if (gx_split_part(rows, r) < 1)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "rank %d of the %d of --cp has no rows of a sequence of %ld; use fewer ranks", r, rows->n,
                           (long)gx_split_total(rows));
    cp->n = rows->n, cp->me = me, cp->zigzags = zigzags, cp->rows = *rows;
    return GX_OK;
}

// Rows of a rank in one of the blocks.
static int64_t gx__cp_part(const GxCp *cp, int rank, int block)
{
    const GxSplit parts = gx_split_even(gx_split_part(&cp->rows, rank), cp->zigzags);
    return gx_split_part(&parts, block);
}

static void gx__cp_add_run(GxRuns *runs, int64_t position, int64_t length)
{
    GxRun *last = runs->n ? &runs->run[runs->n - 1] : NULL;
    if (!length) return;
    if (last && last->position + last->length == position) {
        last->length += length;
        return;
    }
    GxRun *next = &runs->run[runs->n++];
    next->row = last ? last->row + last->length : 0, next->length = length, next->position = position;
}

GxRuns gx_cp_runs(const GxCp *cp, int rank)
{
    GxRuns runs = GX_ZERO;
    int64_t begin = 0; // of the block
    for (int k = 0; k < cp->zigzags; k++) {
        int64_t length = 0, front = begin, behind = 0;
        for (int r = 0; r < cp->n; r++) {
            const int64_t n = gx__cp_part(cp, r, k);
            length += n;
            if (r < rank) front += n - n / 2, behind += n / 2;
        }
        const int64_t mine = gx__cp_part(cp, rank, k);
        gx__cp_add_run(&runs, front, mine - mine / 2);
        gx__cp_add_run(&runs, begin + length - behind - mine / 2, mine / 2);
        begin += length;
    }
    return runs;
}

// Copies between rows by position and rows by rank. Rows of one position are B, of each sample.
static void gx__cp_place(GxPass *p, GxRows by_position, GxRows by_rank, int to_positions)
{
    const GxCp *cp = p->b->cp;
    const int64_t B = p->b->B, bytes = by_position.cols * gx_dtype_size(by_position.dtype) * B; // of a position
    for (int r = 0; r < cp->n; r++) {
        const GxRuns runs = gx_cp_runs(cp, r);
        for (int i = 0; i < runs.n; i++) {
            char *a = (char *)by_position.data + runs.run[i].position * bytes,
                 *b = (char *)by_rank.data + (cp->rows.begin[r] + runs.run[i].row) * bytes;
            gx_copy(p->g, to_positions ? a : b, to_positions ? b : a, runs.run[i].length * bytes);
        }
    }
}

static GxSplit gx__cp_rows(const GxPass *p)
{
    GxSplit rows = p->b->cp->rows;
    for (int r = 0; r <= rows.n; r++) rows.begin[r] *= p->b->B;
    return rows;
}

void gx_cp_all_gather(GxPass *p, GxRows whole, GxRows mine)
{
    const GxSplit rows = gx__cp_rows(p);
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    const GxRows by_rank = gx_pass_rows(p, whole.rows, whole.cols);
    gx_all_gather(p->g, GX_AXIS_CP, &rows, by_rank.data, mine.data, whole.cols, whole.dtype);
    gx__cp_place(p, whole, by_rank, 1);
    gx_arena_release(p->g->arena, mark);
}

void gx_cp_reduce_scatter(GxPass *p, GxRows mine, GxRows whole)
{
    const GxSplit rows = gx__cp_rows(p);
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    const GxRows by_rank = gx_pass_rows(p, whole.rows, whole.cols);
    gx__cp_place(p, whole, by_rank, 0);
    gx_reduce_scatter(p->g, GX_AXIS_CP, &rows, mine.data, by_rank.data, whole.cols, whole.dtype);
    gx_arena_release(p->g->arena, mark);
}
#endif
