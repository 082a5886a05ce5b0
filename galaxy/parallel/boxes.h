// boxes.h: puts a whole tensor together from the boxes that the ranks of a group have, and splits it again: for files,
// which do not depend on how a run is split.
//
// A tensor is moved by as many rows of its dimension 0 as fit into scratch, so no rank ever holds all of it. Each
// element comes from its owner: where parts overlap, the lowest member.
#ifndef GX_BOXES_H
#define GX_BOXES_H
#include "../base/tensors.h"
#include "../comm/comm.h"
GX_BEGIN

// The rows of dimension 0 that are moved at once, the elements in one row, and the bytes of scratch that the functions
// below need for the largest split tensor of a table (0: none is split).
int64_t gx_box_rows(const GxTensor *t);
int64_t gx_box_row(const GxTensor *t);
int64_t gx_boxes_scratch(const GxTable *table);

// Gathers rows [first, first + rows) on member 0 of the tensor's group, into scratch, as they lie in the whole tensor;
// returns them. The other members send theirs, and get nothing to read. values: in the device's memory; scratch:
// gx_boxes_scratch bytes of the host's. Split tensors have one or two dimensions.
const float *gx_box_gather(GxContext *g, const GxTensor *t, const float *values, int64_t first, int64_t rows,
                           void *scratch);

// Copies this rank's part of rows [first, first + rows) of the whole tensor, which lie at the beginning of scratch, to
// its box.
void gx_box_take(GxContext *g, const GxTensor *t, float *values, int64_t first, int64_t rows, void *scratch);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BOXES_IMPLEMENTED)
#define GX_BOXES_IMPLEMENTED
#include <string.h>

enum { GX__BOX_CHUNK = 1 << 20 }; // elements

int64_t gx_box_row(const GxTensor *t) { return gx_tensor_global_count(t) / t->global_shape[0]; }
int64_t gx_box_rows(const GxTensor *t) { return gx_min(t->global_shape[0], gx_max(1, GX__BOX_CHUNK / gx_box_row(t))); }

int64_t gx_boxes_scratch(const GxTable *table)
{
    int64_t most = 0;
    for (int i = 0; i < table->n; i++)
        if (table->row[i].parts) most = gx_max(most, gx_box_rows(&table->row[i]) * gx_box_row(&table->row[i]));
    return 2 * 4 * most; // the rows, and one member's part of them
}

// What a member contributes to rows [first, first + rows): rows of dimension 0 and the columns in each.
typedef struct {
    GxRange rows, cols;
} GxBoxPiece;

static GxBoxPiece gx__box_piece(const GxTensor *t, int member, int64_t first, int64_t rows)
{
    GxBoxPiece p = {{first, first + rows}, {0, gx_box_row(t)}};
    const GxRange owned = gx_tensor_owned(t, member);
    if (t->split_dim == 0) p.rows.begin = gx_max(p.rows.begin, owned.begin), p.rows.end = gx_min(p.rows.end, owned.end);
    else p.cols = owned;
    return p;
}

static int64_t gx__box_piece_count(const GxBoxPiece *p) { return gx_range_count(p->rows) * gx_range_count(p->cols); }

static void gx__box_place(const GxTensor *t, float *whole, int64_t first, const GxBoxPiece *p, const float *piece)
{
    const int64_t row = gx_box_row(t), width = gx_range_count(p->cols);
    for (int64_t i = 0; i < gx_range_count(p->rows); i++)
        memcpy(whole + (p->rows.begin - first + i) * row + p->cols.begin, piece + i * width,
               (size_t)width * sizeof *whole);
}

const float *gx_box_gather(GxContext *g, const GxTensor *t, const float *values, int64_t first, int64_t rows,
                           void *scratch)
{
    float *whole = (float *)scratch, *arrived = whole + rows * gx_box_row(t);
    const int me = gx_group_index(g, t->split_axes);
    const GxBoxPiece mine = gx__box_piece(t, me, first, rows);
    const int64_t width = t->split_dim == 0 ? gx_box_row(t) : t->end[1] - t->begin[1]; // of a row of the box
    const float *own = values + (mine.rows.begin - t->begin[0]) *
                                    // parts in dimension 1 do not overlap, so the piece has whole rows of the box
                                    width;
    if (gx_on_device(g, own)) {
        gx_to_host(g, arrived, own, 4 * gx__box_piece_count(&mine));
        own = arrived;
    }
    if (me) {
        if (gx__box_piece_count(&mine)) gx_send(g, t->split_axes, 0, own, gx__box_piece_count(&mine), GX_F32);
        return NULL;
    }
    gx__box_place(t, whole, first, &mine, own);
    for (int r = 1; r < t->n_parts && !gx_failed(g); r++) {
        const GxBoxPiece piece = gx__box_piece(t, r, first, rows);
        if (!gx__box_piece_count(&piece)) continue;
        gx_recv(g, t->split_axes, r, arrived, gx__box_piece_count(&piece), GX_F32);
        if (!gx_failed(g)) gx__box_place(t, whole, first, &piece, arrived);
    }
    return whole;
}

void gx_box_take(GxContext *g, const GxTensor *t, float *values, int64_t first, int64_t rows, void *scratch)
{
    const int64_t row = gx_box_row(t), col = t->split_dim == 0 ? 0 : t->begin[1],
                  width = t->split_dim == 0 ? row : t->end[1] - col;
    const int64_t begin = gx_max(first, t->begin[0]), end = gx_min(first + rows, t->end[0]);
    const float *whole = (const float *)scratch;
    float *own = (float *)scratch + rows * row;
    for (int64_t i = begin; i < end; i++)
        memcpy(own + (i - begin) * width, whole + (i - first) * row + col, (size_t)width * sizeof *own);
    if (end > begin) gx_to_device(g, values + (begin - t->begin[0]) * width, own, 4 * (end - begin) * width);
}
#endif
