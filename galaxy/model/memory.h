// model/memory.h: what a decoder reads: an encoder's output, as a core.
//
// The unit that ends an encoder has one pair: enter is the encoder's last norm, if it has one, and the core's input is
// the memory itself. Nothing is left to compute; what the pair does is that the memory comes, once, into the layout that
// attention takes, and its gradient, to which all layers of the decoder have added, back from there.
//
// The memory lives as long as a layer may read it, its gradient from the decoder's last layer to its first: both are
// objects of a step's list (parallel/steps.h), and no unit passes them on.
#ifndef GX_MODEL_MEMORY_H
#define GX_MODEL_MEMORY_H
#include "pass.h"
GX_BEGIN
extern const GxCore gx_memory;
GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODEL_MEMORY_IMPLEMENTED)
#define GX_MODEL_MEMORY_IMPLEMENTED

static void gx__memory_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    (void)g, (void)k, (void)number;
    m->memory = unit;
}

static void gx__memory_layout(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s)
{
    (void)l, (void)u, (void)k, (void)rows, (void)s;
}

static void gx__memory_forward(const GxPairView *v, GxRows out, GxRows in) { (void)v, (void)out, (void)in; }

static void gx__memory_backward_input(const GxPairView *v, GxRows din, GxRows dout, GxRows in)
{
    (void)v, (void)din, (void)dout, (void)in; // din is the memory's gradient
}

static void gx__memory_backward_weight(const GxPairView *v, GxRows dout, GxRows in) { (void)v, (void)dout, (void)in; }

const GxCore gx_memory = {gx__memory_open, gx__memory_layout, gx__memory_forward, gx__memory_backward_input,
                          gx__memory_backward_weight};
#endif
