// train_llama_tp.cu: trains a LLaMA by tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053, section 3). Every
// rank of a tp group sees all rows [T*B, D]; query heads, MLP columns and the vocabulary are split among them, by list
// where the machines differ.
//   x --+-- norm -- ATT(my heads) -- SUM -- + --+-- norm -- MLP(my columns) -- SUM -- + -- y
//       +-----------------------------------+   +-------------------------------------+
#include "galaxy.h"

static void tp_embed_forward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows x)
{
    gx_llama_embed_forward(g, m, b, x);                      // PARTIAL: my tokens
    gx_tp_all_reduce(g, &m->model, -1, "embedding_exit", x); // FULL
}

static void tp_embed_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx)
{
    gx_llama_embed_backward(g, m, b, dx);
}

static void tp_layer_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows y, GxRows x)
{
    GxLlamaSaved *s = &m->saved[layer];
    gx_llama_norm1_forward(g, m, layer, s->h1, x);
    gx_llama_att_forward(g, m, layer, b, s->a, s->h1);         // PARTIAL: my heads
    gx_tp_all_reduce(g, &m->model, layer, "att_exit", s->a);   // FULL
    gx_llama_con1_forward(g, m, layer, s->x1, s->h2, x, s->a); // x1 = x + a, h2 = norm2(x1)
    gx_llama_mlp_forward(g, m, layer, b, s->m, s->h2);         // PARTIAL: my columns
    gx_tp_all_reduce(g, &m->model, layer, "mlp_exit", s->m);   // FULL
    gx_llama_con2_forward(g, m, layer, y, s->x1, s->m);        // y = x1 + m
}

static void tp_layer_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dy)
{
    GxLlamaSaved *s = &m->saved[layer];
    GxTicket sum;
    gx_llama_mlp_backward_input(g, m, layer, b, s->dh, dy); // CON2: dx1 = dm = dy. PARTIAL
    sum = gx_tp_all_reduce_start(g, &m->model, layer, "mlp_entry", s->dh);
    gx_llama_mlp_backward_weight(g, m, layer, b, dy);       // while dh is on its way
    gx_wait(g, sum);                                        // FULL
    gx_llama_con1_backward(g, m, layer, b, dx, dy, s->dh);  // dx = da = dx1 + norm2'(dh)
    gx_llama_att_backward_input(g, m, layer, b, s->dh, dx); // PARTIAL
    sum = gx_tp_all_reduce_start(g, &m->model, layer, "att_entry", s->dh);
    gx_llama_att_backward_weight(g, m, layer, b, dx);                            // while dh is on its way
    gx_wait(g, sum);                                                             // FULL
    gx_llama_norm1_backward(g, m, layer, b, dx, s->dh, m->model.state[layer].x); // dx += norm1'(dh)
}

static void tp_head_forward(GxContext *g, GxLlama *m, GxRows x) { gx_llama_final_norm_forward(g, m, m->h, x); }

static void tp_head_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx, GxRows x)
{
    gx_tp_all_reduce(g, &m->model, m->model.layers, "head_entry", m->dh); // FULL
    gx_llama_final_norm_backward(g, m, b, dx, m->dh, x);
}

const GxLlamaMode gx_llama_tp = {"tp",
                                 {GX_METHOD_TP, GX_METHOD_NONE, GX_METHOD_TP}, // ATT, CON, MLP
                                 tp_embed_forward,
                                 tp_embed_backward,
                                 tp_layer_forward,
                                 tp_layer_backward,
                                 tp_head_forward,
                                 tp_head_backward};

#ifndef GX_NO_MAIN // tests include this file and drive gx_llama_tp
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    GX_CHECK(g, gx_trainer_open(&t, g, &gx_llama_family, &gx_llama_tp, argc, argv)); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) {        // 0 at the end, on a signal, on an error
        gx_trainer_forward_backward(&t); // one window of micro-batches
        gx_trainer_update(&t);           // reduce, clip, optimizer
        gx_trainer_report(&t);           // log, evaluate, sample, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
