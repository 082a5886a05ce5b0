// model/kv_cache.h: the keys and values of positions that a model has seen, so that text is gone on with at the price
// of its new tokens alone.
//
// A layer's cache is rows [T,B,2Kh] in the arena: of position t in column b row t*B + b, this rank's K heads of keys,
// turned by their positions, and behind them as many of values. It is laid out once, for the longest text there will
// be. A batch that names a cache (GxBatch.cache) writes the keys and values of its rows, which are one run of
// positions, and its queries see all positions up to their own: those before the batch must be there already. What lies
// behind is not looked at, so to go back to an earlier position is to feed a batch from there on.
//
//     gx_kv_cache_take(g, &cache, &model, T, B);       // before the model's own memory; twice: dry, then for real
//     gx_runner_take(g, &runner, most, B, chunk);      // batches of up to `most` positions
//     batch.T = n, batch.runs = gx_runs_one(n, 0), batch.cache = &cache;       // a prompt of n tokens, all at once
//     batch.T = 1, batch.runs = gx_runs_one(1, n);                             // then one token per column
//
// Columns advance together. Of texts that are not equally long the shorter ones begin later: `documents` of all T
// positions says where, and what lies before is padding that nobody sees. Rotary positions act by their differences, so
// a text that begins at position 3 gives what it gives at 0, but for roundings.
//
// What it does not do: pages (all T positions are there from the beginning), modes that split the sequence, training.
#ifndef GX_KV_CACHE_H
#define GX_KV_CACHE_H
#include "unit.h"
GX_BEGIN

struct GxKvCache {
    int64_t T, B;
    GxRows unit[GX_MAX_UNITS]; // no rows: a unit without attention
};

void gx_kv_cache_take(GxContext *g, GxKvCache *c, GxModel *m, int64_t T, int64_t B);
int64_t gx_kv_cache_bytes(const GxKvCache *c);

// For attention: its unit's rows [T,B,2Kh]; no rows, and an error, where the batch does not fit the cache.
GxRows gx_kv_cache_rows(const GxPass *p);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_KV_CACHE_IMPLEMENTED)
#define GX_KV_CACHE_IMPLEMENTED
#include <string.h>

static int gx__kv_cache_has(const GxUnitSpec *u) // attention
{
    int some = 0;
    for (int k = 0; k < u->n_pairs; k++) some |= u->pair[k].core.kind == GX_CORE_ATT;
    return some;
}

void gx_kv_cache_take(GxContext *g, GxKvCache *c, GxModel *m, int64_t T, int64_t B)
{
    memset(c, 0, sizeof *c);
    if (gx_failed(g)) return;
    if (m->members > 1 && gx_methods_have(m->mode->methods, GX_METHOD_SP)) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "mode %s splits the sequence, and a cache of keys and values is not built for that; take mode tp, or "
                "serial",
                m->mode->name);
        return;
    }
    c->T = T, c->B = B;
    m->cached = T;
    for (int u = 0; u < m->units; u++) {
        const GxUnitKind *kind = &m->kind[m->unit[u].kind];
        if (!gx__kv_cache_has(&kind->spec)) continue;
        c->unit[u] = gx_rows(NULL, m->store.dtype, T * B, 2 * gx_share_count(&kind->kv));
        c->unit[u].data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(c->unit[u]));
    }
}

int64_t gx_kv_cache_bytes(const GxKvCache *c)
{
    int64_t bytes = 0;
    for (int u = 0; u < GX_MAX_UNITS; u++) bytes += gx_rows_bytes(c->unit[u]);
    return bytes;
}

GxRows gx_kv_cache_rows(const GxPass *p)
{
    const GxKvCache *c = p->b->cache;
    const GxRuns *runs = &p->b->runs;
    const int64_t end = runs->run[0].position + runs->run[0].length;
    if (p->b->is_training || runs->n != 1 || end > c->T || p->b->B != c->B) {
        GX_FAIL(&p->g->error, GX_ERR_ARGUMENT,
                "a batch of %ld columns up to position %ld for a cache of %ld columns and %ld positions; they must be "
                "as many columns, one run of positions, and no training",
                (long)p->b->B, (long)end, (long)c->B, (long)c->T);
        return gx_no_rows();
    }
    return c->unit[p->unit];
}
#endif
