// train_tp.cu: trains any family with tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053, section 3). Below is
// one (core, CON) pair; all rows are on every rank, and "my" means this rank's. The embedding is a pair without x (my
// tokens), the head a pair without y (my part of the vocabulary):
//   x --+-- enter -- core(my heads, my columns) -- SUM -- CON -- y
//       +--------------------------------------------------+
//
// This is the source of the programs train_llama_tp and train_bert_tp. train_llama --mode tp does not run it, but the
// collectives that model/mode.h derives from the methods; tests check that both give the same results, bit for bit.
#include "galaxy.h"

static void tp_pair_forward(GxPass *p, int k, GxRows y, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), out = gx_core_out(p, k);
    gx_enter_forward(p, k, in, x);
    gx_core_forward(p, k, out, in);       // PARTIAL
    gx_tp_all_reduce(p, k, GX_EXIT, out); // FULL
    gx_con_forward(p, k, y, x, out);
}

static void tp_pair_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxRows x)
{
    GxRows in = gx_core_in(p, k, x), din = gx_core_din(p, k), dout = gx_core_dout(p, k, dx);
    gx_con_backward(p, k, dx, dout, dy);
    gx_core_backward_input(p, k, din, dout, in); // PARTIAL
    GxTicket sum = gx_tp_all_reduce_start(p, k, GX_ENTRY, din);
    gx_core_backward_weight(p, k, dout, in); // while din is in transfer
    gx_wait(p->g, sum);                      // FULL
    gx_enter_backward(p, k, dx, din, x);
}

const GxMode gx_tp = {.name = "tp",
                      .methods = {GX_METHOD_TP, GX_METHOD_NONE, GX_METHOD_TP, GX_METHOD_TP}, // ATT, CON, MLP, the ends
                      .pair_forward = tp_pair_forward,
                      .pair_backward = tp_pair_backward};

#ifndef GX_NO_MAIN
static int train(GxContext *g, int argc, char **argv) { return gx_train(g, &GX_FAMILY, &GX_TASK, &gx_tp, argc, argv); }
int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
