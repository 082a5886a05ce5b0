// model/embed.h: the embedding as a core: out = rows of the vocabulary's matrix, by token; a pair without a stream that
// enters. By TP a rank has its rows of the matrix: `out` is its summand, 0 for the tokens of others. By SP it looks up
// the tokens of its slice of T.
#ifndef GX_EMBED_H
#define GX_EMBED_H
#include "unit.h"
GX_BEGIN
extern const GxCore gx_embed;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBED_IMPLEMENTED)
#define GX_EMBED_IMPLEMENTED
#include "../ops/embedding.h"

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

static void gx__embed_lay(GxSlotLayer *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
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

static void gx__embed_forward(GxPass *p, int k, GxRows out, GxRows in)
{
    const GxEmbedding e = gx__embed_shape(p, k, out);
    (void)in;
    if (!out.data) return;
    gx_embedding_forward(p->g, out.data, gx_store_weight(&p->m->store, gx_pass_pair(p, k)->matrix),
                         gx__embed_tokens(p, k), &e);
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
}

const GxCore gx_embed = {gx__embed_open, gx__embed_lay, gx__embed_forward, gx__embed_backward_input,
                         gx__embed_backward_weight};
#endif
