// model/cores.h: the list of all kinds of cores, and the functions of a pair's core that modes call. To add a kind,
// write its header (like mlp.h) and add it to the list here and to GxCoreKind (parallel/layout.h).
#ifndef GX_CORES_H
#define GX_CORES_H
#include "pass.h"
GX_BEGIN

const GxCore *gx_core(GxCoreKind kind);

int gx_core_is_again(const GxModel *m, int unit, int k); // 1: pair k's core is computed again in its backward
void gx_core_open(GxContext *g, GxModel *m, int unit, int k, int number); // the tensors of pair k's
// These compute this rank's heads, columns, rows of the vocabulary, or slice of T. `in` is never written.
void gx_core_forward(GxPass *p, int k, GxRows out, GxRows in);
void gx_core_backward_input(GxPass *p, int k, GxRows din, GxRows dout, GxRows in); // never writes dout
void gx_core_backward_weight(GxPass *p, int k, GxRows dout, GxRows in);            // never communicates

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CORES_IMPLEMENTED)
#define GX_CORES_IMPLEMENTED
#include "../parallel/steps.h"
#include "att.h"
#include "embed.h"
#include "head.h"
#include "labels.h"
#include "memory.h"
#include "mlp.h"
#include "tiles.h"
#include "vectors.h"

enum { GX__CORES_RECORDERS = 8 }; // at most, that pass events on to each other

const GxCore *gx_core(GxCoreKind kind)
{
    switch (kind) {
    case GX_CORE_ATT: return &gx_att;
    case GX_CORE_MLP: return &gx_mlp;
    case GX_CORE_EMBED: return &gx_embed;
    case GX_CORE_LABELS: return &gx_labels;
    case GX_CORE_HEAD: return &gx_head;
    case GX_CORE_VECTORS: return &gx_vectors;
    case GX_CORE_MEMORY: return &gx_memory;
    case GX_CORE_KINDS: break;
    }
    return NULL; // never reached: the compiler warns if a kind is missing above
}

void gx_core_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    gx_core(gx_unit_spec(m, unit)->pair[k].core.kind)->open(g, m, unit, k, number);
}

void gx_core_forward(GxPass *p, int k, GxRows out, GxRows in)
{
    const GxPairView v = gx_view(p, k);
    gx_view_at(&v, GX_AT_CORE);
    gx_core(v.spec->core.kind)->forward(&v, out, in);
}

int gx_core_is_again(const GxModel *m, int unit, int k)
{
    const GxCoreKind kind = gx_unit_spec(m, unit)->pair[k].core.kind;
    const int again = m->unit[unit].again;
    return (again & GX_AGAIN_ATT && kind == GX_CORE_ATT) || (again & GX_AGAIN_MLP && kind == GX_CORE_MLP);
}

// What the core would have kept. Recorders take it for what it is.
static void gx__core_again(const GxPairView *v, GxRows in)
{
    int16_t action[GX__CORES_RECORDERS];
    int n = 0;
    for (GxRecorder *r = v->g->recorder; r && n < GX__CORES_RECORDERS; r = r->also)
        action[n++] = r->action, r->action = GX_DO_RECOMPUTE + 1;
    GxTiles tiles, *const before = v->m->mode->is_tiled ? gx_tiles_arrived(v->p, &tiles, v->k, in) : v->p->arriving;
    gx_core(v->spec->core.kind)->forward(v, gx_no_rows(), in);
    v->p->arriving = before;
    n = 0;
    for (GxRecorder *r = v->g->recorder; r && n < GX__CORES_RECORDERS; r = r->also) r->action = action[n++];
}

void gx_core_backward_input(GxPass *p, int k, GxRows din, GxRows dout, GxRows in)
{
    const GxPairView v = gx_view(p, k);
    if (!p->wants_core) return;
    gx_view_at(&v, GX_AT_CORE);
    if (gx_core_is_again(p->m, p->unit, k)) gx__core_again(&v, in);
    gx_core(v.spec->core.kind)->backward_input(&v, din, dout, in);
}

void gx_core_backward_weight(GxPass *p, int k, GxRows dout, GxRows in)
{
    const GxPairView v = gx_view(p, k);
    if (p->defers_weights || !p->wants_core) return;
    gx_view_at(&v, GX_AT_CORE);
    gx_core(v.spec->core.kind)->backward_weight(&v, dout, in);
}
#endif
