// train_galaxy_tiled.cu: trains any family in Galaxy's mode (train_galaxy.cu), with the transfers of its collectives
// beside the products next to them (Ye et al. 2024, arXiv:2405.17245, section 3.4). A tile is the slice of T of one
// rank. With three ranks, rank 0, time from left to right:
//
//     link        [slice 2][slice 1]      ...    [   1   ][   2   ]           slices arrive; summands of others leave
//     products    [   0   ][   2   ][   1   ] core [   1   ][   2   ][   0   ] + the others' summands of slice 0
//
// The first product of a core begins with this rank's own rows, and goes on as those of others arrive. The last one
// begins with the rows of others, whose summands are on their way while the rest is computed. The backward does the
// same from the other end; the weight half, which needs no other rank, runs while the last summands of din travel. A
// rank sends to its right neighbour first, and so receives from its left neighbour first.
//
// This is the source of the programs train_llama_galaxy_tiled and train_bert_galaxy_tiled. They compute what
// train_galaxy does, in the same order of ranks: the same bits, unless a row of the matrix product library depends on
// how many rows it is given at once (oneDNN in fp32).
#include "galaxy.h"

static void galaxy_tiled_pair_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k);
    GxTiles arriving, leaving;
    gx_enter_forward(p, k, gx_own(p, k, in), x);
    gx_tiles_gather(p, &arriving, k, GX_ENTRY, in); // FULL, while the core's first product
    gx_tiles_scatter(p, &leaving, k, GX_EXIT, out); // SEQ, while the core's last product
    gx_core_forward(p, k, out, in);
    gx_tiles_end(p, &arriving);
    gx_tiles_end(p, &leaving);
    gx_con_forward(p, k, y, x, gx_own(p, k, out));
}

static void galaxy_tiled_pair_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), din = gx_core_din(p, k), dout = gx_core_dout(p, k, dx);
    GxTiles arriving, leaving;
    gx_con_backward(p, k, dx, gx_own(p, k, dout), dy);
    gx_tiles_gather(p, &arriving, k, GX_EXIT, dout);
    gx_tiles_scatter(p, &leaving, k, GX_ENTRY, din);
    gx_core_backward_input(p, k, din, dout, in);
    gx_tiles_end(p, &arriving);
    gx_tiles_leave(p, &leaving);
    gx_core_backward_weight(p, k, dout, in); // while the last summands of din arrive
    gx_tiles_end(p, &leaving);
    gx_enter_backward(p, k, dx, gx_own(p, k, din), x);
}

const GxMode gx_galaxy_tiled = {.name = "galaxy",
                                .methods = {GX_METHOD_TP, GX_METHOD_SP, GX_METHOD_TP, GX_METHOD_TP},
                                .pair_forward = galaxy_tiled_pair_forward,
                                .pair_backward = galaxy_tiled_pair_backward,
                                .is_tiled = 1};

#ifndef GX_NO_MAIN
static int train(GxContext *g, int argc, char **argv)
{
    return gx_train(g, &GX_FAMILY, &GX_TASK, &gx_galaxy_tiled, argc, argv);
}
int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
