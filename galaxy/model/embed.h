// model/embed.h: the token embedding as a core: out = E[token]; its pair has no incoming stream.
// TP: a rank has some rows of E [V,C]; `out` is its summand, 0 for tokens whose row another rank has.
// SP: a rank looks up the tokens of its slice of T.
//
// With LoRA (lora.h) out += s * h B^T, where row i of h is column `token i` of A [r,V]. h is looked up again in the
// backward. By TP a rank has the columns of A of its own tokens, and h is 0 for the others. The padding token, whose
// row of E gets no gradient, gets none in A either.
#ifndef GX_EMBED_H
#define GX_EMBED_H
#include "lora.h"
#include "unit.h"
GX_BEGIN
extern const GxCore gx_embed;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBED_IMPLEMENTED)
#define GX_EMBED_IMPLEMENTED
#include "../ops/embedding.h"
#include "../ops/linear.h"

static void gx__embed_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxPairSpec *s = &u->spec.pair[k];
    const GxTensorUse use = {s->core.matrix[0],
                             number,
                             GX_ROLE_EMBEDDING,
                             {s->core.vocab, u->spec.width},
                             &u->vocab,
                             NULL,
                             gx_block_takes(m->mode->methods.ends),
                             0,
                             0,
                             0};
    m->unit[unit].pair[k].matrix = m->embedding = gx_model_tensor(g, m, unit, k, &use);
}

static void gx__embed_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    (void)l, (void)u, (void)k, (void)rows, (void)s; // tokens are in the batch
}

static const int32_t *gx__embed_tokens(const GxPass *p, int k)
{
    return p->b->tokens + (gx_core_method(p, k) == GX_METHOD_SP ? gx_slice_begin(p) : 0);
}

static GxEmbedding gx__embed_shape(const GxPass *p, int k, GxRows rows)
{
    const GxRange v = gx_share_mine(&gx_pass_kind(p)->vocab);
    GxEmbedding e = gx_embedding_shape(rows.rows, rows.cols, 0, rows.dtype);
    e.v_begin = v.begin, e.v_end = v.end;
    e.ignored = gx_pass_spec(p, k)->core.ignored;
    return e;
}

// ---- LoRA ----------------------------------------------------------------------------------------------------------

typedef struct {
    GxTensorId a, b;
    GxEmbedding look_up; // of A
    GxLinearShape up;    // between r columns and the embedding's, times s
} GxEmbedLora;

static GxEmbedLora gx__embed_lora(const GxPass *p, int k, GxRows rows)
{
    const GxTensor *t = &p->m->table.row[gx_pass_pair(p, k)->matrix.index];
    const int64_t r = gx_lora_rank(p->m, t);
    GxEmbedLora lora;
    lora.a = lora.b = t->lora;
    lora.b.index++;
    lora.look_up = gx__embed_shape(p, k, gx_rows(NULL, rows.dtype, rows.rows, r));
    lora.look_up.is_transposed = 1;
    lora.up = gx_linear_shape(rows.rows, r, rows.cols, rows.dtype);
    lora.up.scale = (float)t->lora_scale;
    return lora;
}

static int gx__embed_has_lora(const GxPass *p, int k)
{
    return p->m->table.row[gx_pass_pair(p, k)->matrix.index].has_lora;
}

// h[i,:] = A[:, token i]
static GxRows gx__embed_lora_down(GxPass *p, int k, const GxEmbedLora *lora, GxRows rows)
{
    const GxRows h = gx_pass_rows(p, rows.rows, lora->up.In);
    gx_embedding_forward(p->g, h.data, gx_store_weight(&p->m->store, lora->a), gx__embed_tokens(p, k), &lora->look_up);
    return h;
}

// out += s * h B^T
static void gx__embed_lora_forward(GxPass *p, int k, GxRows out)
{
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    GxEmbedLora lora = gx__embed_lora(p, k, out);
    const GxRows h = gx__embed_lora_down(p, k, &lora, out);
    lora.up.accumulate = 1;
    gx_linear_forward(p->g, out.data, h.data, gx_store_weight(&p->m->store, lora.b), NULL, &lora.up);
    gx_arena_release(p->g->arena, mark);
}

// dA[:,v] = sum of dh over the tokens v, dh = s * dout B; dB = s * dout^T h
static void gx__embed_lora_backward_weight(GxPass *p, int k, GxRows dout)
{
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    GxEmbedLora lora = gx__embed_lora(p, k, dout);
    float *da = gx_store_grad(&p->m->store, lora.a, &lora.look_up.accumulate);
    if (da) {
        const GxRows dh = gx_pass_rows(p, dout.rows, lora.up.In);
        gx_linear_backward_input(p->g, dh.data, dout.data, gx_store_weight(&p->m->store, lora.b), &lora.up);
        gx_embedding_backward(p->g, da, dh.data, gx__embed_tokens(p, k), &lora.look_up);
    }
    lora.look_up.accumulate = 0;
    float *db = gx_store_grad(&p->m->store, lora.b, &lora.up.accumulate);
    if (db) gx_linear_backward_weight(p->g, db, NULL, dout.data, gx__embed_lora_down(p, k, &lora, dout).data, &lora.up);
    gx_arena_release(p->g->arena, mark);
}

// ---- the embedding -------------------------------------------------------------------------------------------------

static void gx__embed_forward(GxPass *p, int k, GxRows out, GxRows in)
{
    const GxEmbedding e = gx__embed_shape(p, k, out);
    (void)in;
    if (!out.data) return;
    gx_embedding_forward(p->g, out.data, gx_store_weight(&p->m->store, gx_pass_pair(p, k)->matrix),
                         gx__embed_tokens(p, k), &e);
    if (gx__embed_has_lora(p, k)) gx__embed_lora_forward(p, k, out);
}

static void gx__embed_backward_input(GxPass *p, int k, GxRows din, GxRows dout, GxRows in)
{
    (void)p, (void)k, (void)din, (void)dout, (void)in; // tokens have no gradient
}

static void gx__embed_backward_weight(GxPass *p, int k, GxRows dout, GxRows in)
{
    GxEmbedding e = gx__embed_shape(p, k, dout);
    float *dw = gx_store_grad(&p->m->store, gx_pass_pair(p, k)->matrix, &e.accumulate);
    (void)in;
    if (dw) gx_embedding_backward(p->g, dw, dout.data, gx__embed_tokens(p, k), &e);
    if (gx__embed_has_lora(p, k)) gx__embed_lora_backward_weight(p, k, dout);
}

const GxCore gx_embed = {gx__embed_open, gx__embed_layout, gx__embed_forward, gx__embed_backward_input,
                         gx__embed_backward_weight};
#endif
