// train_llama_galaxy.cu: trains a LLaMA by Galaxy's hybrid of tensor and sequence parallelism (Ye et al. 2024,
// arXiv:2405.17245; here with a backward pass).
// Query heads, MLP columns and the vocabulary are split among the ranks of a tp group; between these cores each rank
// has its slice of the sequence.
//
// x -+- norm -- GATHER -- ATT(my heads) -- SCATTER -- + -+- norm -- GATHER -- MLP(my columns) -- SCATTER -- + -- y
//    +------------------------------------------------+  +--------------------------------------------------+
// x, y: my slice of T
#include "galaxy.h"

static void galaxy_embed_forward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows x)
{
    gx_llama_embed_forward(g, m, b, m->h);                             // PARTIAL: my tokens
    gx_tp_reduce_scatter(g, &m->model, -1, "embedding_exit", x, m->h); // SEQ
}

static void galaxy_embed_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx)
{
    gx_tp_all_gather(g, &m->model, -1, "embedding_exit", m->h, dx); // FULL
    gx_llama_embed_backward(g, m, b, m->h);
}

static void galaxy_layer_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows y, GxRows x)
{
    GxLlamaSaved *s = &m->saved[layer];
    const GxRows h1 = gx_own_rows(&m->model, s->h1), h2 = gx_own_rows(&m->model, s->h2),
                 own = gx_own_rows(&m->model, s->a); // s->m lies there, too
    gx_llama_norm1_forward(g, m, layer, h1, x);
    gx_tp_all_gather(g, &m->model, layer, "att_entry", s->h1, h1);    // FULL
    gx_llama_att_forward(g, m, layer, b, s->a, s->h1);                // PARTIAL: my heads
    gx_tp_reduce_scatter(g, &m->model, layer, "att_exit", own, s->a); // SEQ
    gx_llama_con1_forward(g, m, layer, s->x1, h2, x, own);            // x1 = x + a, h2 = norm2(x1)
    gx_tp_all_gather(g, &m->model, layer, "mlp_entry", s->h2, h2);    // FULL
    gx_llama_mlp_forward(g, m, layer, b, s->m, s->h2);                // PARTIAL: my columns
    gx_tp_reduce_scatter(g, &m->model, layer, "mlp_exit", own, s->m); // SEQ
    gx_llama_con2_forward(g, m, layer, y, s->x1, own);                // y = x1 + m
}

static void galaxy_layer_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dy)
{
    GxLlamaSaved *s = &m->saved[layer];
    const GxRows dh = gx_own_rows(&m->model, s->dh);
    GxTicket sum;
    gx_tp_all_gather(g, &m->model, layer, "mlp_exit", s->m, dy); // FULL; CON2: dx1 = dm = dy
    gx_llama_mlp_backward_input(g, m, layer, b, s->dh, s->m);    // PARTIAL
    sum = gx_tp_reduce_scatter_start(g, &m->model, layer, "mlp_entry", dh, s->dh);
    gx_llama_mlp_backward_weight(g, m, layer, b, s->m);          // while dh is on its way
    gx_wait(g, sum);                                             // SEQ
    gx_llama_con1_backward(g, m, layer, b, dx, dy, dh);          // dx = da = dx1 + norm2'(dh)
    gx_tp_all_gather(g, &m->model, layer, "att_exit", s->a, dx); // FULL
    gx_llama_att_backward_input(g, m, layer, b, s->dh, s->a);    // PARTIAL
    sum = gx_tp_reduce_scatter_start(g, &m->model, layer, "att_entry", dh, s->dh);
    gx_llama_att_backward_weight(g, m, layer, b, s->a);                       // while dh is on its way
    gx_wait(g, sum);                                                          // SEQ
    gx_llama_norm1_backward(g, m, layer, b, dx, dh, m->model.state[layer].x); // dx += norm1'(dh)
}

static void galaxy_head_forward(GxContext *g, GxLlama *m, GxRows x)
{
    const GxRows h = gx_own_rows(&m->model, m->h);
    gx_llama_final_norm_forward(g, m, h, x);
    gx_tp_all_gather(g, &m->model, m->model.layers, "head_entry", m->h, h); // FULL
}

static void galaxy_head_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx, GxRows x)
{
    const GxRows dh = gx_own_rows(&m->model, m->dh);
    gx_tp_reduce_scatter(g, &m->model, m->model.layers, "head_entry", dh, m->dh); // SEQ
    gx_llama_final_norm_backward(g, m, b, dx, dh, x);
}

const GxLlamaMode gx_llama_galaxy = {"galaxy",
                                     {GX_METHOD_TP, GX_METHOD_SP, GX_METHOD_TP}, // ATT, CON, MLP
                                     galaxy_embed_forward,
                                     galaxy_embed_backward,
                                     galaxy_layer_forward,
                                     galaxy_layer_backward,
                                     galaxy_head_forward,
                                     galaxy_head_backward};

#ifndef GX_NO_MAIN // tests include this file and drive gx_llama_galaxy
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    GX_CHECK(g, gx_trainer_open(&t, g, &gx_llama_family, &gx_llama_galaxy, argc, argv)); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) {        // 0 at the end, on a signal, on an error
        gx_trainer_forward_backward(&t); // one window of micro-batches
        gx_trainer_update(&t);           // reduce, clip, optimizer
        gx_trainer_report(&t);           // log, evaluate, sample, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
