// train_t5.cu: trains a T5: T5 1.0 and 1.1, Flan-T5, mT5. An encoder reads the source, a decoder predicts the target;
// each layer of the decoder attends to what the encoder has made, its memory. Layers are (core, CON) pairs with a norm
// before each core, as in train_llama.cu; attention's scores have a bias by distance, one table for a stack:
//
//     source --+-- norm -- ATT -- + --+-- norm -- MLP -- + -- ... -- norm -- memory
//              +------------------+   +------------------+                     |
//                                                              +---------------+
//     target --+-- norm -- ATT -- + --+-- norm -- ATT to memory -- + --+-- norm -- MLP -- + -- ... -- norm -- y
//              +------------------+   +----------------------------+   +------------------+
//
// Several ranks split the work as in train_bart.cu, and with the same limits.
#include "galaxy.h"

#ifndef GX_NO_MAIN // tests include this file
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    gx_trainer_open(&t, g, &gx_t5, &gx_seq2seq, NULL, argc, argv); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) { // 0 at the end, on a signal, or on an error, also one of gx_trainer_open
        gx_trainer_step(&t);      // a window of micro-batches, and the update
        gx_trainer_report(&t);    // log, evaluate, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
