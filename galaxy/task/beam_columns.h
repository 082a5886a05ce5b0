// task/beam_columns.h: how the columns of a batch go on in which beams are (beam_search.h): rank 0 searches, since not
// all ranks need have the logits, nor compute the same bits; the others are told which token each column gets, and
// whose text it goes on with.
//
//     gx_beam_columns_open(&c, columns, err);
//     gx_beam_columns_stay(&c);                                 // on rank 0, before each token:
//     gx_beam_columns_follow(&c, first, &search);               // a search that goes on, whose beams are from `first` on
//     left = gx_beam_columns_pass(g, &c, left);                 // on all ranks
//     for (int64_t b = 0; b < columns; b++) use(c.token[b], c.from[b]);
#ifndef GX_BEAM_COLUMNS_H
#define GX_BEAM_COLUMNS_H
#include "../comm/comm.h"
#include "beam_search.h"
GX_BEGIN

typedef struct {
    int64_t columns;
    int64_t *token; // [columns]; -1: none, its search is over
    int64_t *from;  // [columns]: the column that it follows
    int64_t *block; // of both, and of how many searches go on
} GxBeamColumns;

GxStatus gx_beam_columns_open(GxBeamColumns *c, int64_t columns, GxError *err); // GX_ERR_MEMORY
void gx_beam_columns_close(GxBeamColumns *c);
void gx_beam_columns_stay(GxBeamColumns *c);
void gx_beam_columns_follow(GxBeamColumns *c, int64_t first, const GxBeamSearch *search);
// Returns rank 0's `left` on all ranks; 0 if one has failed. On a failed context this tells the others.
int64_t gx_beam_columns_pass(GxContext *g, GxBeamColumns *c, int64_t left);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BEAM_COLUMNS_IMPLEMENTED)
#define GX_BEAM_COLUMNS_IMPLEMENTED
#include <stdlib.h>

GxStatus gx_beam_columns_open(GxBeamColumns *c, int64_t columns, GxError *err)
{
    c->columns = columns;
    c->block = (int64_t *)calloc((size_t)(2 * columns + 1), sizeof *c->block);
    if (!c->block) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %ld beams", (long)columns);
    c->token = c->block, c->from = c->token + columns;
    return GX_OK;
}

void gx_beam_columns_close(GxBeamColumns *c)
{
    free(c->block);
    c->block = NULL;
}

void gx_beam_columns_stay(GxBeamColumns *c)
{
    for (int64_t b = 0; b < c->columns; b++) c->token[b] = -1, c->from[b] = b;
}

void gx_beam_columns_follow(GxBeamColumns *c, int64_t first, const GxBeamSearch *search)
{
    for (int64_t k = 0; k < search->o.num_beams; k++) {
        const GxBeam *beam = gx_beam_search_live(search, k);
        c->token[first + k] = beam->tokens[beam->n - 1], c->from[first + k] = first + beam->from;
    }
}

int64_t gx_beam_columns_pass(GxContext *g, GxBeamColumns *c, int64_t left)
{
    c->block[2 * c->columns] = left;
    gx_at(g, -1, "beams");
    gx_broadcast(g, GX_AXIS_ALL, 0, c->block, 2 * c->columns + 1, GX_I64);
    return gx_failed(g) ? 0 : c->block[2 * c->columns];
}
#endif
