// train_pp.cu: trains any family with pipeline parallelism and the 1F1B schedule (Narayanan et al. 2021,
// arXiv:2104.04473): each rank has some of the layers, and micro-batches follow each other through them. Four stages
// and six micro-batches, time from left to right; numbers are micro-batches, and a backward takes two columns:
//   F0 F1 F2 F3 -- -- -- -- -- -- B0 B0 F4 B1 B1 F5 B2 B2 -- B3 B3 -- B4 B4 -- B5 B5
//   -- F0 F1 F2 -- -- -- -- B0 B0 F3 B1 B1 F4 B2 B2 F5 B3 B3 -- B4 B4 -- B5 B5 -- --
//   -- -- F0 F1 -- -- B0 B0 F2 B1 B1 F3 B2 B2 F4 B3 B3 F5 B4 B4 -- B5 B5 -- -- -- --
//   -- -- -- F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 F4 B4 B4 F5 B5 B5 -- -- -- -- -- --
// Every rank sends and receives messages in the order in which they are produced, so ranks never wait for each other in
// a circle. That is why an input is received before it is needed: it was produced while this rank computed.
//
// This is the source of the programs train_llama_pp, train_bart_pp and so on; between stages of
// a decoder, the encoder's output is sent with the input. train_llama --pp N does not run it, but the lists of actions
// that parallel/steps_make.h generates; tests check that both are equal.
#include "galaxy.h"

static void pp_forward(GxStepsWriter *w, int b) // micro-batch b through my units
{
    for (int u = w->first; u < w->last; u++) gx_put_forward(w, u, b);
}

static void pp_backward(GxStepsWriter *w, int b)
{
    for (int u = w->last - 1; u >= w->first; u--) gx_put_backward(w, u, b);
}

static void pp_window(GxStepsWriter *w)
{
    const int ahead = w->stages - w->stage; // forwards before the first gradient can arrive
    gx_put_receive(w, GX_OBJECT_X, 0);
    for (int b = 0; b < ahead; b++) {
        pp_forward(w, b);
        gx_put_receive(w, GX_OBJECT_X, b + 1);
        gx_put_send(w, GX_OBJECT_X, b);
    }
    for (int b = 0; b < w->micro_batches; b++) { // one backward, one forward
        gx_put_receive(w, GX_OBJECT_DX, b);
        pp_backward(w, b);
        if (b > 0) gx_put_receive(w, GX_OBJECT_X, b + ahead); // the first one's was received above
        gx_put_send(w, GX_OBJECT_DX, b);
        pp_forward(w, b + ahead);
        gx_put_send(w, GX_OBJECT_X, b + ahead);
    }
}

const GxStepsSchedule gx_pp = {.name = "pp", .order = GX_ORDER_1F1B, .window = pp_window};

#ifndef GX_NO_MAIN
static int train(GxContext *g, int argc, char **argv)
{
    return gx_train_by(g, &GX_FAMILY, &GX_TASK, NULL, &gx_pp, argc, argv); // NULL: the mode is that of --mode
}
int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
