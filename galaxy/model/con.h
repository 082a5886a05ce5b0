// model/con.h: what joins cores to the stream: enter (the norm before a core) and CON (the addition behind it).
//
//     enter: in = norm(x)            CON: y = x + out
//
// An addition and the norm of the next pair that follows it are one operation. At a unit's edge they are two: only the
// stream crosses it.
#ifndef GX_CON_H
#define GX_CON_H
#include "unit.h"
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CON_IMPLEMENTED)
#define GX_CON_IMPLEMENTED
#include "../ops/elementwise.h"
#include "../ops/norm.h"

static const void *gx__con_norm(const GxPass *p, int k)
{
    return gx_store_weight(&p->m->store, gx_pass_pair(p, k)->norm);
}

void gx_enter_forward(GxPass *p, int k, GxRows in, GxRows x)
{
    GxPairSlot *s = gx_pass_slot(p, k);
    const GxEnterSpec *enter = &gx_pass_spec(p, k)->enter;
    if (enter->kind == GX_ENTER_NOTHING || s->is_entered) return;
    gx_pass_at(p, k, GX_AT_NORM);
    gx_rms_norm_forward(p->g, in.data, s->rstd, x.data, gx__con_norm(p, k), x.rows, x.cols, enter->eps, x.dtype);
}

// dx = dx + norm'(din); in front of a head nothing goes around the core: dx = norm'(din).
void gx_enter_backward(GxPass *p, int k, GxRows dx, GxRows din, GxRows x)
{
    const GxPairSpec *spec = gx_pass_spec(p, k);
    const void *around = spec->con.kind == GX_CON_NOTHING && k == 0 ? NULL : dx.data;
    int accumulate = 0;
    if (!din.data || spec->enter.kind == GX_ENTER_NOTHING) return;
    float *dw = gx_store_grad(&p->m->store, gx_pass_pair(p, k)->norm, &accumulate);
    gx_pass_at(p, k, GX_AT_NORM);
    gx_rms_norm_backward(p->g, dx.data, dw, din.data, around, x.data, gx_pass_slot(p, k)->rstd, gx__con_norm(p, k),
                         x.rows, x.cols, accumulate, x.dtype);
}

// y = x + out; with the norm of pair k+1: its input, too.
static void gx__con_add(GxPass *p, int k, GxRows y, GxRows x, GxRows out)
{
    const int next = k + 1,
              fuses = next < gx_pass_kind(p)->spec.n_pairs && gx_pass_spec(p, next)->enter.kind == GX_ENTER_NORM;
    if (!fuses) {
        gx_add(p->g, y.data, x.data, out.data, y.rows * y.cols, y.dtype);
        return;
    }
    GxPairSlot *s = gx_pass_slot(p, next);
    const GxRows in = gx_con_rows(p, next, s->in);
    gx_add_rms_norm_forward(p->g, y.data, in.data, s->rstd, x.data, out.data, gx__con_norm(p, next), x.rows, x.cols,
                            gx_pass_spec(p, next)->enter.eps, x.dtype);
    s->is_entered = 1;
}

void gx_con_forward(GxPass *p, int k, GxRows y, GxRows x, GxRows out)
{
    const GxConKind con = gx_pass_spec(p, k)->con.kind;
    if (!y.data || con == GX_CON_NOTHING) return;
    gx_pass_at(p, k, GX_AT_CON);
    if (con == GX_CON_ADD) gx__con_add(p, k, y, x, out);
    else if (y.data != out.data) gx_copy(p->g, y.data, out.data, gx_rows_bytes(y));
}

// dx = dy, dout = dx: the addition hands its gradient on to both sides.
void gx_con_backward(GxPass *p, int k, GxRows dx, GxRows dout, GxRows dy)
{
    if (gx_pass_spec(p, k)->con.kind == GX_CON_NOTHING) return;
    gx_pass_at(p, k, GX_AT_CON);
    if (dx.data != dy.data) gx_copy(p->g, dx.data, dy.data, gx_rows_bytes(dy));
    if (dout.data != dx.data) gx_copy(p->g, dout.data, dx.data, gx_rows_bytes(dx));
}
#endif
