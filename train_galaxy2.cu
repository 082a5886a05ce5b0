// train_galaxy2.cu: trains any family with Galaxy's second hybrid: ATT is split by TP (my query heads), MLP and CON by
// SP (all columns, my slice of T), and the ends by TP (my vocabulary). Below is one (core, CON) pair; x and y are my
// slice of T. What is in brackets is not needed for the MLP, which works on the same rows:
//   x --+-- enter -- [GATHER] -- core(mine) -- [SCATTER] -- CON -- y
//       +----------------------------------------------------+
//
// This is the source of the programs train_llama_galaxy2 and train_bert_galaxy2. train_llama --mode galaxy2 does not
// run it, but the collectives that model/mode.h derives from the methods; tests check that both give the same results,
// bit for bit.
#include "galaxy.h"

static void galaxy2_pair_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    const int moves = gx_core_method(p, k) == GX_METHOD_TP;
    GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k), my_in = gx_own(p, k, in), my_out = gx_own(p, k, out);
    gx_enter_forward(p, k, my_in, x);
    if (moves) gx_tp_all_gather(p, k, GX_ENTRY, in, my_in);      // FULL
    gx_core_forward(p, k, out, in);                              // PARTIAL; MLP: SEQ
    if (moves) gx_tp_reduce_scatter(p, k, GX_EXIT, my_out, out); // SEQ
    gx_con_forward(p, k, y, x, my_out);
}

static void galaxy2_pair_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x)
{
    const int moves = gx_core_method(p, k) == GX_METHOD_TP;
    GxRows in = gx_core_in(p, k, x), din = gx_core_din(p, k), dout = gx_core_dout(p, k, dx);
    GxRows my_din = gx_own(p, k, din), my_dout = gx_own(p, k, dout);
    GxTicket sum = GX_ZERO;
    gx_con_backward(p, k, dx, my_dout, dy);
    if (moves) gx_tp_all_gather(p, k, GX_EXIT, dout, my_dout); // FULL
    gx_core_backward_input(p, k, din, dout, in);               // PARTIAL; MLP: SEQ
    if (moves) sum = gx_tp_reduce_scatter_start(p, k, GX_ENTRY, my_din, din);
    gx_core_backward_weight(p, k, dout, in); // while din is in transfer
    gx_wait(p->g, sum);                      // SEQ; the MLP has nothing to wait for
    gx_enter_backward(p, k, dx, my_din, x);
}

const GxMode gx_galaxy2 = {
    .name = "galaxy2",
    .methods = {GX_METHOD_TP, GX_METHOD_SP, GX_METHOD_SP, GX_METHOD_TP}, // ATT, CON, MLP, the ends
    .pair_forward = galaxy2_pair_forward,
    .pair_backward = galaxy2_pair_backward};

#ifndef GX_NO_MAIN
static int train(GxContext *g, int argc, char **argv)
{
    return gx_train(g, &GX_FAMILY, &GX_TASK, &gx_galaxy2, argc, argv);
}
int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
