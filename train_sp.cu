// train_sp.cu: trains any family with sequence parallelism (Li et al. 2021, arXiv:2105.13120; here K and V are
// gathered, not sent around a ring). Below is one (core, CON) pair; each rank has all weights and, from the embedding
// to the loss, its slice of T. Only attention reads other ranks' rows, inside the core:
//   x --+-- enter -- core(my rows; K, V: GATHER) -- CON -- y
//       +--------------------------------------------+
//
// This is the source of the programs train_llama_sp and train_bert_sp. train_llama --mode sp does not run it, but the
// collectives that model/mode.h derives from the methods; tests check that both give the same results, bit for bit.
#include "galaxy.h"

static void sp_pair_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k);
    gx_enter_forward(p, k, in, x);
    gx_core_forward(p, k, out, in); // SEQ; ATT: my queries; K and V are gathered (GX_INSIDE)
    gx_con_forward(p, k, y, x, out);
}

static void sp_pair_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), din = gx_core_din(p, k), dout = gx_core_dout(p, k, dx);
    gx_con_backward(p, k, dx, dout, dy);
    gx_core_backward_input(p, k, din, dout, in); // SEQ; ATT: dK and dV are reduce-scattered (GX_INSIDE)
    gx_core_backward_weight(p, k, dout, in);
    gx_enter_backward(p, k, dx, din, x);
}

const GxMode gx_sp = {.name = "sp",
                      .methods = {GX_METHOD_SP, GX_METHOD_SP, GX_METHOD_SP, GX_METHOD_SP}, // ATT, CON, MLP, the ends
                      .pair_forward = sp_pair_forward,
                      .pair_backward = sp_pair_backward};

#ifndef GX_NO_MAIN
static int train(GxContext *g, int argc, char **argv) { return gx_train(g, &GX_FAMILY, &GX_TASK, &gx_sp, argc, argv); }
int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
