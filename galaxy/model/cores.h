// model/cores.h: the list of all kinds of cores. To add a kind, write its header (like att.h) and add it to the list
// here and to GxCoreKind (parallel/layout.h).
#ifndef GX_CORES_H
#define GX_CORES_H
#include "att.h"
#include "con.h"
#include "embed.h"
#include "head.h"
#include "labels.h"
#include "mlp.h"
#include "vectors.h"
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CORES_IMPLEMENTED)
#define GX_CORES_IMPLEMENTED

const GxCore *gx_core(GxCoreKind kind)
{
    switch (kind) {
    case GX_CORE_ATT: return &gx_att;
    case GX_CORE_MLP: return &gx_mlp;
    case GX_CORE_EMBED: return &gx_embed;
    case GX_CORE_LABELS: return &gx_labels;
    case GX_CORE_VECTORS: return &gx_vectors;
    default: return &gx_head;
    }
}

void gx_core_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    gx_core(gx_unit_spec(m, unit)->pair[k].core.kind)->open(g, m, unit, k, number);
}
#endif
