// train_llama.cu: trains a LLaMA: serial, and data-parallel where there are several ranks (the trainer sums the
// gradients once per window).
//   x --+-- norm -- ATT -- + --+-- norm -- MLP -- + -- y
//       +------------------+   +------------------+
#include "galaxy.h"

static void serial_layer_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows y, GxRows x)
{
    GxLlamaSaved *s = &m->saved[layer];
    gx_llama_norm1_forward(g, m, layer, s->h1, x);
    gx_llama_att_forward(g, m, layer, b, s->a, s->h1);
    gx_llama_con1_forward(g, m, layer, s->x1, s->h2, x, s->a); // x1 = x + a, h2 = norm2(x1)
    gx_llama_mlp_forward(g, m, layer, b, s->m, s->h2);
    gx_llama_con2_forward(g, m, layer, y, s->x1, s->m); // y = x1 + m
}

static void serial_layer_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dy)
{
    GxLlamaSaved *s = &m->saved[layer];
    gx_llama_mlp_backward_input(g, m, layer, b, s->dh, dy); // CON2: dx1 = dm = dy
    gx_llama_mlp_backward_weight(g, m, layer, b, dy);
    gx_llama_con1_backward(g, m, layer, b, dx, dy, s->dh); // dx = da = dx1 + norm2'(dh)
    gx_llama_att_backward_input(g, m, layer, b, s->dh, dx);
    gx_llama_att_backward_weight(g, m, layer, b, dx);
    gx_llama_norm1_backward(g, m, layer, b, dx, s->dh, m->model.state[layer].x); // dx += norm1'(dh)
}

static void serial_head_forward(GxContext *g, GxLlama *m, GxRows x) { gx_llama_final_norm_forward(g, m, m->h, x); }

static void serial_head_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx, GxRows x)
{
    gx_llama_final_norm_backward(g, m, b, dx, m->dh, x);
}

const GxLlamaMode gx_llama_serial = {"serial",
                                     {GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE}, // ATT, CON, MLP
                                     gx_llama_embed_forward,
                                     gx_llama_embed_backward,
                                     serial_layer_forward,
                                     serial_layer_backward,
                                     serial_head_forward,
                                     serial_head_backward};

#ifndef GX_NO_MAIN // tests include this file and drive gx_llama_serial
static int train(GxContext *g, int argc, char **argv)
{
    GxTrainer t = GX_ZERO;
    GX_CHECK(g, gx_trainer_open(&t, g, &gx_llama_family, &gx_llama_serial, argc, argv)); // flags, plan, memory, weights
    while (gx_trainer_next(&t)) {        // 0 at the end, on a signal, on an error
        gx_trainer_forward_backward(&t); // one window of micro-batches
        gx_trainer_update(&t);           // reduce, clip, optimizer
        gx_trainer_report(&t);           // log, evaluate, sample, save when due
    }
    return gx_trainer_close(&t);
}

int main(int argc, char **argv) { return gx_launch(train, argc, argv); } // one call of train per rank
#endif
