// model/embed.h: the token embedding as a core: out = scale * E[token]; its pair has no incoming stream.
// TP: a rank has some rows of E [V,C]; `out` is its summand, which is 0 for tokens whose row another rank has.
// SP: a rank looks up the tokens of its slice of T.
#ifndef GX_EMBED_H
#define GX_EMBED_H
#include "lora.h"
#include "relative.h"
#include "unit_tensors.h"
GX_BEGIN
extern const GxCore gx_embed;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBED_IMPLEMENTED)
#define GX_EMBED_IMPLEMENTED
#include "../ops/elementwise.h"
#include "../ops/embedding.h"
#include "../ops/linear.h"

static void gx__embed_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxPairSpec *s = &u->spec.pair[k];
    GxTensorUse use = gx_tensor_use(s->core.matrix[0], number, GX_ROLE_EMBEDDING, s->core.vocab, u->spec.width,
                                    gx_block_takes(m->mode->methods.ends));
    use.rows = &u->vocab;
    use.alias = m->embedding.index + 1; // a decoder's is that of its encoder
    m->unit[unit].pair[k].matrix = gx_model_tensor(g, m, unit, k, &use);
    if (use.alias) return;
    m->embedding = m->unit[unit].pair[k].matrix;
    if (s->core.relative.buckets) gx_relative_open_tables(g, m, unit, k);
    if (!s->core.matrix[1]) return;
    use.name = s->core.matrix[1], use.alias = m->embedding.index + 1;
    gx_model_tensor(g, m, unit, k, &use);
}

static void gx__embed_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    (void)l, (void)u, (void)k, (void)rows, (void)s; // tokens are in the batch
}

static const int32_t *gx__embed_tokens(const GxPairView *v)
{
    return v->b->tokens + (gx_view_method(v) == GX_METHOD_SP ? gx_slice_begin(v->p) : 0);
}

static GxEmbedding gx__embed_shape(const GxPairView *v, GxRows rows)
{
    const GxRange own = gx_share_mine(&v->kind->vocab);
    GxEmbedding e = gx_embedding_shape(rows.rows, rows.cols, 0, rows.dtype);
    e.v_begin = own.begin, e.v_end = own.end;
    e.ignored = v->spec->core.ignored;
    return e;
}

static int gx__embed_has_lora(const GxPairView *v) { return v->m->table.row[v->pair->matrix.index].has_lora; }

static float gx__embed_scale(const GxPairView *v)
{
    const GxCoreSpec *c = &v->spec->core;
    return c->rounds_scale && v->store->dtype == GX_BF16 ? gx_from_bf16(gx_to_bf16(c->scale)) : c->scale;
}

static void gx__embed_forward(const GxPairView *v, GxRows out, GxRows in)
{
    const GxEmbedding e = gx__embed_shape(v, out);
    const float scale = gx__embed_scale(v);
    (void)in;
    if (!out.data) return;
    gx_embedding_forward(v->g, out.data, gx_store_weight(v->store, v->pair->matrix), gx__embed_tokens(v), &e);
    if (gx__embed_has_lora(v)) gx_lora_embed_forward(v, &e, gx__embed_tokens(v), out);
    if (scale != 0) gx_scale(v->g, out.data, out.data, out.rows * out.cols, scale, out.dtype);
}

static void gx__embed_backward_input(const GxPairView *v, GxRows din, GxRows dout, GxRows in)
{
    (void)v, (void)din, (void)dout, (void)in; // tokens have no gradient
}

static void gx__embed_backward_weight(const GxPairView *v, GxRows dout, GxRows in)
{
    GxEmbedding e = gx__embed_shape(v, dout);
    float *dw = gx_store_grad(v->store, v->pair->matrix, &e.accumulate);
    const float scale = gx__embed_scale(v);
    const int has_lora = gx__embed_has_lora(v);
    GxRows d = dout;
    (void)in;
    if (scale != 0 && (dw || has_lora)) {
        d = gx_pass_rows(v->p, dout.rows, dout.cols);
        gx_scale(v->g, d.data, dout.data, d.rows * d.cols, scale, d.dtype);
    }
    if (dw) gx_embedding_backward(v->g, dw, d.data, gx__embed_tokens(v), &e);
    if (has_lora) gx_lora_embed_backward_weight(v, &e, gx__embed_tokens(v), d);
}

const GxCore gx_embed = {gx__embed_open, gx__embed_layout, gx__embed_forward, gx__embed_backward_input,
                         gx__embed_backward_weight};
#endif
