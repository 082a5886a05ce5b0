// train_fsdp.cu: trains any family fully sharded (ZeRO-3: Rajbhandari et al. 2020, arXiv:1910.02054; FSDP: Zhao et al.
// 2023, arXiv:2304.11277): each of n ranks has its own samples, and 1/n of the weights, gradients and optimizer state
// of every unit, that is of the embedding, each layer and the head. Whole weights exist only while the unit computes,
// whole gradients from its backward until SCATTER. A unit's weights and gradients in one step, time from left to right:
//
//     weights/n --+-- GATHER - F - FREE --+-- ... --+-- GATHER - B - FREE --+-- ... ----------+-- STEP -- weights/n
//                 +-----------------------+         +------------|----------+                 |
//                                                                +-- SCATTER -- gradients/n --+
//
// GATHER is an all-gather of the ranks' parts of the weights; FREE keeps only this rank's part. SCATTER reduce-scatters
// the gradients: each rank gets its part of their sum. For stages (--pp) and for sharding less (--zero 1, 2) use
// train_<family>.
//
// This is the source of the programs train_llama_fsdp and train_bert_fsdp. train_llama --zero 3 does not run it, but
// the lists of actions that parallel/steps_make.h generates; tests check that both are equal.
#include "galaxy.h"

static void fsdp_forward(GxStepsWriter *w, int u, int b) // micro-batch b through unit u
{
    gx_put_gather(w, GX_DO_FORWARD, u);
    gx_put_forward(w, u, b);
    gx_put_free(w, GX_DO_FORWARD, u);
}

static void fsdp_backward(GxStepsWriter *w, int u, int b)
{
    gx_put_gather(w, GX_DO_BACKWARD, u);
    gx_put_backward(w, u, b);
    gx_put_free(w, GX_DO_BACKWARD, u);
    const int is_last = b == w->micro_batches - 1;
    if (is_last || w->spec->scatters_each) gx_put_scatter(w, u); // until then whole gradients accumulate
}

static void fsdp_window(GxStepsWriter *w)
{
    for (int b = 0; b < w->micro_batches; b++) {
        for (int u = w->first; u < w->last; u++) fsdp_forward(w, u, b);
        for (int u = w->last - 1; u >= w->first; u--) fsdp_backward(w, u, b);
    }
}

const GxStepsSchedule gx_fsdp = {.name = "fsdp", .order = GX_ORDER_1F1B, .window = fsdp_window, .has_shards = 1};

#ifndef GX_NO_MAIN
static int train(GxContext *g, int argc, char **argv)
{
    return gx_train_by(g, &GX_FAMILY, &GX_TASK, NULL, &gx_fsdp, argc, argv); // NULL: the mode is that of --mode
}
int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
