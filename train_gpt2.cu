// train_gpt2.cu: trains a GPT-2. A layer is two (core, CON) pairs: a core reads the layer norm of the residual stream,
// and CON adds the core's result, its bias and dropout to the stream:
//
//     x --+-- norm -- ATT -- dropout -- + --+-- norm -- MLP -- dropout -- + -- y
//         +-----------------------------+   +-----------------------------+
//
// What several ranks do with a pair is in train_llama.cu: --mode, --tp, --pp, --zero and the others are the same here.
// train_gpt2_tp, train_gpt2_sp, ... are built from train_tp.cu and its siblings, which serve every family.
#include "galaxy.h"

#ifndef GX_NO_MAIN // tests include this file
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    gx_trainer_open(&t, g, &gx_gpt2, &gx_causal_lm, NULL, argc, argv); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) { // 0 at the end, on a signal, or on an error, also one of gx_trainer_open
        gx_trainer_step(&t);      // a window of micro-batches, and the update
        gx_trainer_report(&t);    // log, evaluate, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
