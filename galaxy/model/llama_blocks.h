// llama_blocks.h: the blocks of a LLaMA's layer, its embedding and its head: what a mode's source is written with.
//
// Blocks compute; they never communicate (but for the three numbers per row of the loss over a split vocabulary, and
// the gathered logits). Rows are handed in by the mode; weights, saved slots and shares are the model's. They are
// declared in llama.h. Each backward has two halves: the gradient of its input, and that of its weights, which may run
// while the first is on its way to other ranks.
#ifndef GX_LLAMA_BLOCKS_H
#define GX_LLAMA_BLOCKS_H
#include "llama.h"
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LLAMA_BLOCKS_IMPLEMENTED)
#define GX_LLAMA_BLOCKS_IMPLEMENTED
#include "../base/mesh.h"
#include "../ops/activation.h"
#include "../ops/attention.h"
#include "../ops/elementwise.h"
#include "../ops/embedding.h"
#include "../ops/loss.h"
#include "../ops/norm.h"

// ---- blocks --------------------------------------------------------------------------------------------------------

static float *gx__grad(const GxLlama *m, int layer, int64_t offset) // NULL where none is wanted
{
    float *grads = m->model.unit[layer + 1].grads;
    return grads ? grads + offset : NULL;
}

void gx_llama_norm1_forward(GxContext *g, GxLlama *m, int layer, GxRows h1, GxRows x)
{
    gx_at(g, layer + 1, "norm1");
    gx_rms_norm_forward(g, h1.data, m->saved[layer].rstd1, x.data,
                        gx_model_weight(&m->model, layer + 1, m->layer[layer].norm1), x.rows, x.cols,
                        (float)m->config.rms_norm_eps, x.dtype);
}

void gx_llama_norm1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dh1, GxRows x)
{
    gx_at(g, layer + 1, "norm1");
    int64_t norm = m->layer[layer].norm1;
    gx_rms_norm_backward(g, dx.data, gx__grad(m, layer, norm), dh1.data, dx.data, x.data, m->saved[layer].rstd1,
                         gx_model_weight(&m->model, layer + 1, norm), x.rows, x.cols, b->accumulate, x.dtype);
}

static char *gx__column(GxRows x, int64_t c) { return (char *)x.data + c * gx_dtype_size(x.dtype); } // of the first row

// q, k and v lie side by side in each row of qkv: H heads of q, K of k, K of v.
typedef struct {
    GxAttention a;
    int64_t k, v;
} GxLlamaAttention; // k, v: columns of a row

static GxLlamaAttention gx__llama_attention(const GxLlama *m, const GxBatch *b)
{
    GxLlamaAttention t = GX_ZERO;
    const int64_t h = m->config.head_dim;
    t.a.B = b->B;
    t.a.H = gx_share_count(&m->q) / h;
    t.a.K = gx_share_count(&m->kv) / h;
    t.a.head_dim = h;
    t.a.group = m->config.num_attention_heads / m->config.num_key_value_heads;
    t.a.q_first = m->q_first;
    t.a.q_runs = t.a.k_runs = b->runs;
    t.a.q_stride = t.a.kv_stride = (t.a.H + 2 * t.a.K) * h;
    t.a.o_stride = t.a.H * h;
    t.a.causal = 1;
    t.a.dtype = m->model.dtype;
    t.k = t.a.H * h;
    t.v = t.k + t.a.K * h;
    return t;
}

void gx_llama_att_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows a, GxRows h1)
{
    gx_at(g, layer + 1, "att");
    GxLlamaSaved *s = &m->saved[layer];
    GxLlamaAttention t = gx__llama_attention(m, b);
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].qkv, s->qkv, h1);
    gx_rope_forward(g, s->qkv.data, m->cosine, m->sine, &b->runs, b->B, t.a.H + t.a.K, t.a.head_dim, t.a.q_stride,
                    s->qkv.dtype);
    gx_attention_forward(g, s->att.data, s->lse, s->qkv.data, gx__column(s->qkv, t.k), gx__column(s->qkv, t.v), &t.a);
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].o, a, s->att);
}

void gx_llama_att_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh1, GxRows da)
{
    gx_at(g, layer + 1, "att");
    GxLlamaSaved *s = &m->saved[layer];
    GxLlamaAttention t = gx__llama_attention(m, b);
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].o, s->d_att, da);
    gx_attention_backward(g, s->dqkv.data, gx__column(s->dqkv, t.k), gx__column(s->dqkv, t.v), s->d_att.data,
                          s->att.data, s->lse, s->qkv.data, gx__column(s->qkv, t.k), gx__column(s->qkv, t.v), &t.a);
    gx_rope_backward(g, s->dqkv.data, m->cosine, m->sine, &b->runs, b->B, t.a.H + t.a.K, t.a.head_dim, t.a.q_stride,
                     s->dqkv.dtype);
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].qkv, dh1, s->dqkv);
}

void gx_llama_att_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows da)
{
    gx_at(g, layer + 1, "att");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].o, da, s->att, b->accumulate);
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].qkv, s->dqkv, s->h1, b->accumulate);
}

void gx_llama_con1_forward(GxContext *g, GxLlama *m, int layer, GxRows x1, GxRows h2, GxRows x, GxRows a)
{
    gx_at(g, layer + 1, "con1");
    gx_add_rms_norm_forward(g, x1.data, h2.data, m->saved[layer].rstd2, x.data, a.data,
                            gx_model_weight(&m->model, layer + 1, m->layer[layer].norm2), x.rows, x.cols,
                            (float)m->config.rms_norm_eps, x.dtype);
}

void gx_llama_con1_backward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dx, GxRows dx1, GxRows dh2)
{
    gx_at(g, layer + 1, "con1");
    const GxLlamaSaved *s = &m->saved[layer];
    int64_t norm = m->layer[layer].norm2;
    gx_rms_norm_backward(g, dx.data, gx__grad(m, layer, norm), dh2.data, dx1.data, s->x1.data, s->rstd2,
                         gx_model_weight(&m->model, layer + 1, norm), dx.rows, dx.cols, b->accumulate, dx.dtype);
}

void gx_llama_mlp_forward(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows out, GxRows h2)
{
    (void)b;
    gx_at(g, layer + 1, "mlp");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].gate_up, s->gate_up, h2);
    gx_swiglu_forward(g, s->s.data, s->gate_up.data, s->s.rows, s->s.cols, s->s.dtype);
    gx_linear_layer_forward(g, &m->model, &m->layer[layer].down, out, s->s);
}

void gx_llama_mlp_backward_input(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dh2, GxRows dm)
{
    (void)b;
    gx_at(g, layer + 1, "mlp");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].down, s->s, dm); // s: its gradient ...
    gx_swiglu_backward(g, s->gate_up.data, s->s.data, s->s.data, s->gate_up.data, s->s.rows, s->s.cols,
                       s->s.dtype); // ... and s itself again
    gx_linear_layer_backward_input(g, &m->model, &m->layer[layer].gate_up, dh2, s->gate_up);
}

void gx_llama_mlp_backward_weight(GxContext *g, GxLlama *m, int layer, const GxBatch *b, GxRows dm)
{
    gx_at(g, layer + 1, "mlp");
    GxLlamaSaved *s = &m->saved[layer];
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].down, dm, s->s, b->accumulate);
    gx_linear_layer_backward_weight(g, &m->model, &m->layer[layer].gate_up, s->gate_up, s->h2, b->accumulate);
}

void gx_llama_con2_forward(GxContext *g, GxLlama *m, int layer, GxRows y, GxRows x1, GxRows mlp)
{
    (void)m;
    gx_at(g, layer + 1, "con2");
    gx_add(g, y.data, x1.data, mlp.data, y.rows * y.cols, y.dtype);
}

// ---- embedding and head --------------------------------------------------------------------------------------------

static void *gx__weight_of(const GxLlama *m, GxTensorId id)
{
    const GxTensor *t = &m->model.table.row[id.index];
    return gx_model_weight(&m->model, t->unit, t->offset);
}
static float *gx__grad_of(const GxLlama *m, GxTensorId id) // NULL where none is wanted
{
    const GxTensor *t = &m->model.table.row[id.index];
    float *grads = m->model.unit[t->unit].grads;
    return grads ? grads + t->offset : NULL;
}

void gx_llama_embed_forward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows x)
{
    const GxRange v = gx_share_mine(&m->vocab);
    gx_at(g, 0, "embed");
    gx_embedding_forward(g, x.data, gx__weight_of(m, m->embed), b->tokens, x.rows, x.cols, v.begin, v.end, x.dtype);
}

void gx_llama_embed_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx)
{
    const GxRange v = gx_share_mine(&m->vocab);
    float *dw = gx__grad_of(m, m->embed);
    int accumulate = b->accumulate || m->config.tie_word_embeddings; // tied: the head wrote there before
    gx_at(g, 0, "embed");
    if (dw) gx_embedding_backward(g, dw, dx.data, b->tokens, dx.rows, dx.cols, v.begin, v.end, accumulate, dx.dtype);
}

void gx_llama_final_norm_forward(GxContext *g, GxLlama *m, GxRows h, GxRows x)
{
    gx_at(g, m->model.layers + 1, "final_norm");
    gx_rms_norm_forward(g, h.data, m->rstd, x.data, gx__weight_of(m, m->norm), x.rows, x.cols,
                        (float)m->config.rms_norm_eps, x.dtype);
}

void gx_llama_final_norm_backward(GxContext *g, GxLlama *m, const GxBatch *b, GxRows dx, GxRows dh, GxRows x)
{
    gx_at(g, m->model.layers + 1, "final_norm");
    gx_rms_norm_backward(g, dx.data, gx__grad_of(m, m->norm), dh.data, NULL, x.data, m->rstd, gx__weight_of(m, m->norm),
                         x.rows, x.cols, b->accumulate, x.dtype);
}

// Over a split vocabulary every rank has its part of each row's logits (Shoeybi et al. 2019, section 3): the ranks
// agree on the row's largest, then on the sum of exponentials and the label's logit.
static void gx__llama_cross_entropy(GxContext *g, GxLlama *m, float *losses, void *dlogits, GxRows logits,
                                    const int32_t *labels, float scale)
{
    const int64_t R = logits.rows, V = logits.cols, first = gx_share_mine(&m->vocab).begin;
    if (m->vocab.n == 1) {
        gx_cross_entropy(g, losses, dlogits, logits.data, labels, R, V, scale, logits.dtype);
        return;
    }
    gx_cross_entropy_maximum(g, m->maximum, logits.data, R, V, logits.dtype);
    gx_at(g, m->model.layers + 1, "head_loss");
    gx_all_reduce(g, GX_AXIS_TP, GX_MAX, m->maximum, R, GX_F32);
    gx_cross_entropy_sums(g, m->sums, dlogits, logits.data, m->maximum, labels, R, V, first, m->config.vocab_size,
                          logits.dtype);
    gx_all_reduce(g, GX_AXIS_TP, GX_SUM, m->sums, 2 * R, GX_F32);
    gx_at(g, m->model.layers + 1, "head");
    gx_cross_entropy_finish(g, losses, dlogits, dlogits, m->sums, labels, R, V, first, scale, logits.dtype);
}

void gx_llama_head_core(GxContext *g, GxLlama *m, const GxBatch *b, int gradients, double *loss_sum)
{
    const int64_t chunk = m->logits.rows;
    gx_at(g, m->model.layers + 1, "head");
    for (int64_t r = 0; r < m->h.rows; r += chunk) {
        int64_t rows = gx_min(chunk, m->h.rows - r);
        GxRows logits = gx_some_rows(m->logits, 0, rows), h = gx_some_rows(m->h, r, rows);
        gx_linear_layer_forward(g, &m->model, &m->head, logits, h);
        gx__llama_cross_entropy(g, m, m->losses + r, gradients ? logits.data : NULL, logits, b->labels + r, b->scale);
        if (!gradients) continue;
        gx_linear_layer_backward_input(g, &m->model, &m->head, gx_some_rows(m->dh, r, rows), logits);
        gx_linear_layer_backward_weight(g, &m->model, &m->head, logits, h, b->accumulate || r > 0);
    }
    gx_sum(g, loss_sum, m->losses, m->h.rows, 1);
}

void gx_llama_logits(GxContext *g, GxLlama *m, GxRows logits, int64_t first_row)
{
    GxSplit parts;
    parts.n = m->vocab.n;
    for (int r = 0; r < parts.n; r++)
        parts.begin[r] = m->vocab.part[r].begin, parts.begin[r + 1] = m->vocab.part[r].end;
    for (int64_t r = 0; r < logits.rows; r++) {
        GxRows own = parts.n > 1 ? gx_some_rows(m->logits, 0, 1) : gx_some_rows(logits, r, 1);
        gx_at(g, m->model.layers + 1, "head");
        gx_linear_layer_forward(g, &m->model, &m->head, own, gx_some_rows(m->h, first_row + r, 1));
        gx_at(g, m->model.layers + 1, "logits");
        if (parts.n > 1)
            gx_all_gather(g, GX_AXIS_TP, &parts, gx_some_rows(logits, r, 1).data, own.data, 1, logits.dtype);
    }
}
#endif
