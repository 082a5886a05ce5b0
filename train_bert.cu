// train_bert.cu: trains a BERT, RoBERTa, XLM-R or DistilBERT. A layer is two (core, CON) pairs: CON adds the core's
// result to the residual stream and then applies the norm:
//
//     x --+-- ATT -- + -- norm --+-- MLP -- + -- norm -- y
//         +----------+           +----------+
//
// One rank computes everything. Several ranks split the work by --mode tp|sp|galaxy|galaxy2, or by --att, --con, --mlp
// and --ends, each of which is none, tp (splits heads, columns, the vocabulary) or sp (splits the sequence). With --tp
// N, N ranks share one model; other groups of N have other samples (data parallelism). The collectives between the
// blocks follow from the layouts of the rows (model/mode.h):
//
//     --mode tp      ATT -- SUM -- + -- norm          --mode galaxy  GATHER -- ATT -- SCATTER -- + -- norm
//
// --task chooses what the model is trained for; each task has its own options, which --help shows.
// train_tp.cu, train_sp.cu, train_galaxy.cu and train_galaxy2.cu each spell out one mode, for every family, and
// train_galaxy_tiled.cu Galaxy's with messages by tiles; train_pp.cu spells out the schedule of a pipeline (--pp), and
// train_fsdp.cu that of a fully sharded model (--zero 3). They are separate programs (train_bert_tp, ...), none of
// which runs here.
#include "galaxy.h"

#ifndef GX_NO_MAIN // tests include this file
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    gx_trainer_open(&t, g, &gx_bert, &gx_masked_lm, NULL, argc, argv); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) { // 0 at the end, on a signal, or on an error, also one of gx_trainer_open
        gx_trainer_step(&t);      // a window of micro-batches, and the update
        gx_trainer_report(&t);    // log, evaluate, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
