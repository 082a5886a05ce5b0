// train_bert.cu: trains a BERT. A layer is two (core, CON) pairs; CON adds what comes out of a core to the stream, and
// the norm stands behind the sum:
//
//     x --+-- ATT -- + -- norm --+-- MLP -- + -- norm -- y
//         +----------+           +----------+
//
// One rank computes all of it. Several ranks share it out: --mode tp|sp|galaxy|galaxy2, or --att, --con, --mlp and
// --ends, each none, tp (heads, columns, the vocabulary split) or sp (the sequence split); and --tp N of them, while
// the others see other samples (data parallelism). Between the blocks stands what the layouts of the rows derive
// (model/mode.h):
//
//     --mode tp      ATT -- SUM -- + -- norm          --mode galaxy  GATHER -- ATT -- SCATTER -- + -- norm
//
// What it is trained for, --task says; each task has options of its own, which --help shows.
// train_tp.cu, train_sp.cu, train_galaxy.cu and train_galaxy2.cu spell one mode out each, for every family.
#include "galaxy.h"

#ifndef GX_NO_MAIN // tests include this file
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    GX_CHECK(g, gx_trainer_open(&t, g, &gx_bert, &gx_masked_lm, NULL, argc, argv)); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) { // 0 at the end, on a signal, on an error
        gx_trainer_step(&t);      // a window of micro-batches, and the update
        gx_trainer_report(&t);    // log, evaluate, sample, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
