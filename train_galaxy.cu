// train_galaxy.cu: trains any family with Galaxy's hybrid of tensor and sequence parallelism (Ye et al. 2024,
// arXiv:2405.17245; here with a backward). Cores are split by TP (my query heads, columns and vocabulary), CON by SP
// (my slice of the sequence). Below is one (core, CON) pair; x and y are my slice of T:
//   x --+-- enter -- GATHER -- core(mine) -- SCATTER -- CON -- y
//       +------------------------------------------------+
//
// This is the source of the programs train_llama_galaxy and train_bert_galaxy. train_llama --mode galaxy does not run
// it, but the collectives that model/mode.h derives from the methods; tests check that both give the same results, bit
// for bit.
#include "galaxy.h"

static void galaxy_pair_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k);
    gx_enter_forward(p, k, gx_own(p, k, in), x);
    gx_tp_all_gather(p, k, GX_ENTRY, in, gx_own(p, k, in));      // FULL
    gx_core_forward(p, k, out, in);                              // PARTIAL
    gx_tp_reduce_scatter(p, k, GX_EXIT, gx_own(p, k, out), out); // SEQ
    gx_con_forward(p, k, y, x, gx_own(p, k, out));
}

static void galaxy_pair_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), din = gx_core_din(p, k), dout = gx_core_dout(p, k, dx);
    gx_con_backward(p, k, dx, gx_own(p, k, dout), dy);
    gx_tp_all_gather(p, k, GX_EXIT, dout, gx_own(p, k, dout)); // FULL
    gx_core_backward_input(p, k, din, dout, in);               // PARTIAL
    GxTicket sum = gx_tp_reduce_scatter_start(p, k, GX_ENTRY, gx_own(p, k, din), din);
    gx_core_backward_weight(p, k, dout, in); // while din is in transfer
    gx_wait(p->g, sum);                      // SEQ
    gx_enter_backward(p, k, dx, gx_own(p, k, din), x);
}

const GxMode gx_galaxy = {
    .name = "galaxy",
    .methods = {GX_METHOD_TP, GX_METHOD_SP, GX_METHOD_TP, GX_METHOD_TP}, // ATT, CON, MLP, the ends
    .pair_forward = galaxy_pair_forward,
    .pair_backward = galaxy_pair_backward};

#ifndef GX_NO_MAIN
static int train(GxContext *g, int argc, char **argv)
{
    return gx_train(g, &GX_FAMILY, &GX_TASK, &gx_galaxy, argc, argv);
}
int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
