// train_bart.cu: trains a BART or an mBART. An encoder reads the source, a decoder predicts the target; each layer of
// the decoder attends to what the encoder has made, its memory. Layers are (core, CON) pairs, as in train_bert.cu (an
// mBART's norms are before ATT and MLP, as in train_t5.cu):
//
//     source --+-- ATT -- + -- norm --+-- MLP -- + -- norm -- ... -- memory
//              +----------+           +----------+                     |
//                                                          +-----------+
//     target --+-- ATT -- + -- norm --+-- ATT to memory -- + -- norm --+-- MLP -- + -- norm -- y
//              +----------+           +--------------------+           +----------+
//
// One rank computes everything. Several ranks split the work by --mode tp|sp|galaxy|galaxy2, or by --att, --con, --mlp
// and --ends, as in train_bert.cu; --zero shards what they keep. The memory is brought to where attention needs it once,
// and so is its gradient, to which all layers of the decoder have added (model/memory.h). In a pipeline (--pp) stages
// hand it on. Context parallelism (--cp) of a model with an encoder is not there yet.
// train_tp.cu, train_sp.cu, train_galaxy.cu and train_galaxy2.cu each spell out one mode, for every family; they are
// separate programs (train_bart_tp, ...), none of which runs here.
#include "galaxy.h"

#ifndef GX_NO_MAIN // tests include this file
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    gx_trainer_open(&t, g, &gx_bart, &gx_seq2seq, NULL, argc, argv); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) { // 0 at the end, on a signal, or on an error, also one of gx_trainer_open
        gx_trainer_step(&t);      // a window of micro-batches, and the update
        gx_trainer_report(&t);    // log, evaluate, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
