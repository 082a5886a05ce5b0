// model/kv_cache.h: the KV cache: keys and values of the positions that a model has already processed, so that
// generating text costs only the forward of its new tokens.
//
// A layer's cache is a pool of pages in the arena (paged attention: Kwon et al. 2023, arXiv:2309.06180). A page has
// GX_PAGE positions of one column of the batch; a position has this rank's K heads of keys, after RoPE, followed by as
// many heads of values. One page table serves all layers. Pages are taken as the text grows, and none for the padding
// before a text, so memory grows with the texts' total length, not with the longest text times their number.
//
// The rows of a batch that names a cache (GxBatch.cache) are one run of positions. Their keys and values are written
// into the pages, and the queries attend to all positions up to their own; earlier positions must already be in the
// cache. Later positions are not read: to go back to an earlier position, feed a batch that begins there.
//
//     gx_kv_cache_allocate(g, &cache, &model, T, B, first); // before the model's own memory; twice: dry, then for real
//     gx_runner_allocate(g, &runner, most, B, chunk);       // batches of up to `most` positions
//     gx_kv_cache_begin(g, &cache, first);              // for new texts
//     gx_kv_cache_reach(g, &cache, n);                  // before each batch: pages up to its end
//     batch.T = n, batch.runs = gx_runs_one(n, 0), batch.cache = &cache;       // a prompt of n tokens, all at once
//     batch.T = 1, batch.runs = gx_runs_one(1, n);                             // then one token per column
//
// Columns advance together. If texts differ in length, the shorter ones begin at a later position, first[b]. The
// batch's `documents`, for all T positions, say so to attention; what precedes a text is padding, which is masked. RoPE
// depends only on differences of positions, so a text that begins at position 3 has the same results, up to rounding,
// as if it began at 0.
//
// In a model with an encoder the decoder's layers have a cache. The first batch after gx_kv_cache_begin runs the
// encoder, and each layer of the decoder keeps the keys and values of its output, too. Once gx_kv_cache_set_source says
// so, batches are computed without the encoder.
//
// Columns may go on with each other's texts (gx_kv_cache_follow): the beams of a search.
//
// Not supported: pages shared by several texts, modes that split the sequence, training.
#ifndef GX_KV_CACHE_H
#define GX_KV_CACHE_H
#include "pass.h"
GX_BEGIN

struct GxKvCache {
    int64_t T, B;
    int64_t pages, taken;        // in the pool; those in use
    int64_t reached;             // positions that have pages, in whole pages
    int64_t *first;              // [B], in host memory: where each column's text begins
    int32_t *table, *table_host; // [T/GX_PAGE, rounded up][B]: numbers of pages; -1: none (ops/rows.h)
    int32_t *table_before;       // and [B], in host memory, for gx_kv_cache_follow: the table before; who takes over
    int64_t *heir;               // a column's pages
    GxRows unit[GX_MAX_UNITS];   // [pages*GX_PAGE, 2Kh]; no rows: a unit without attention, or an encoder's
    GxRows source[GX_MAX_UNITS]; // [S*B, 2Kh]: of an encoder's output; no rows: a unit that does not read it
    int has_source;              // 1: `source` is there
};

int gx_kv_cache_is_possible(const GxModel *m); // 0: the mode splits the sequence
// first [B]: the earliest position at which each column's text may begin, from which the size of the pool follows;
// NULL: 0.
void gx_kv_cache_allocate(GxContext *g, GxKvCache *c, GxModel *m, int64_t T, int64_t B, const int64_t *first);
int64_t gx_kv_cache_bytes(const GxKvCache *c);

void gx_kv_cache_begin(GxContext *g, GxKvCache *c, const int64_t *first); // frees all pages; NULL: all begin at 0
void gx_kv_cache_reach(GxContext *g, GxKvCache *c, int64_t end); // takes pages for positions before `end`, at most T
void gx_kv_cache_end(GxKvCache *c, int64_t b);                   // column b's text has ended: it takes no more pages
// Column b goes on with the first `end` positions of column from[b] [B]. Texts begin at the same position, all of them or
// those of adjacent columns that follow each other.
void gx_kv_cache_follow(GxContext *g, GxKvCache *c, const int64_t *from, int64_t end);
static inline void gx_kv_cache_set_source(GxKvCache *c) { c->has_source = 1; } // after the first batch
// 1: the batch needs nothing of this unit: it is part of an encoder whose output has been read.
int gx_kv_cache_skips(const GxModel *m, int unit, const GxBatch *b);

// For attention: the pool of the pass's unit, of its own text or of an encoder's output. Sets an error and returns no
// rows if the batch does not fit the cache.
GxRows gx_kv_cache_rows(const GxPass *p, int reads_memory);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_KV_CACHE_IMPLEMENTED)
#define GX_KV_CACHE_IMPLEMENTED
#include <string.h>
#include "../ops/elementwise.h"
#include "../ops/memory.h"
#include "../ops/rows.h"

// 1: the unit has attention to rows of its own text; to an encoder's output.
static int gx__kv_cache_has(const GxModel *m, int unit, int reads_memory)
{
    const GxUnitSpec *u = &m->kind[m->unit[unit].kind].spec;
    int some = 0;
    if (unit < m->memory || !gx_units_have(&m->store.units, unit)) return 0;
    for (int k = 0; k < u->n_pairs; k++)
        some |= u->pair[k].core.kind == GX_CORE_ATT && u->pair[k].core.reads_memory == reads_memory;
    return some;
}

static int64_t gx__kv_cache_pages(int64_t T, int64_t first) // the pages of one column
{
    return gx_max(0, gx_ceil_div(T, GX_PAGE) - first / GX_PAGE);
}

int gx_kv_cache_is_possible(const GxModel *m)
{
    return m->widest == 1 || !gx_methods_have(m->mode->methods, GX_METHOD_SP);
}

static GxRows gx__kv_cache_pool(GxContext *g, const GxModel *m, int unit, int64_t rows)
{
    const GxUnitKind *kind = &m->kind[m->unit[unit].kind];
    GxRows pool = gx_rows(NULL, m->store.dtype, rows, 2 * gx_share_count(&kind->kv));
    pool.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(pool));
    return pool;
}

void gx_kv_cache_allocate(GxContext *g, GxKvCache *c, GxModel *m, int64_t T, int64_t B, const int64_t *first)
{
    const int64_t table_bytes = 4 * gx_ceil_div(T, GX_PAGE) * B;
    memset(c, 0, sizeof *c);
    if (gx_failed(g)) return;
    if (!gx_kv_cache_is_possible(m)) {
        GX_FAIL(&g->error, GX_ERR_UNSUPPORTED,
                "mode %s splits the sequence, which a cache of keys and values does not support; use mode tp or serial",
                m->mode->name);
        return;
    }
    c->T = T, c->B = B;
    m->cached = T;
    for (int64_t b = 0; b < B; b++) c->pages += gx__kv_cache_pages(T, first ? first[b] : 0);
    c->first = (int64_t *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_ACTIVATIONS, 8 * B);
    c->table = (int32_t *)gx_scratch(g, GX_MEM_ACTIVATIONS, table_bytes);
    c->table_host = (int32_t *)gx_host_copy(g, GX_MEM_ACTIVATIONS, c->table, table_bytes);
    c->table_before = (int32_t *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_ACTIVATIONS, table_bytes);
    c->heir = (int64_t *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_ACTIVATIONS, 8 * B);
    for (int u = 0; u < m->units; u++) {
        if (gx__kv_cache_has(m, u, 0)) c->unit[u] = gx__kv_cache_pool(g, m, u, c->pages * GX_PAGE);
        if (gx__kv_cache_has(m, u, 1)) c->source[u] = gx__kv_cache_pool(g, m, u, m->max_source_T * B);
    }
}

int64_t gx_kv_cache_bytes(const GxKvCache *c)
{
    int64_t bytes = 0;
    for (int u = 0; u < GX_MAX_UNITS; u++) bytes += gx_rows_bytes(c->unit[u]) + gx_rows_bytes(c->source[u]);
    return bytes;
}

void gx_kv_cache_begin(GxContext *g, GxKvCache *c, const int64_t *first)
{
    if (gx_failed(g) || !g->device->computes) return;
    c->taken = c->reached = 0, c->has_source = 0;
    for (int64_t b = 0; b < c->B; b++) c->first[b] = first ? first[b] : 0;
    memset(c->table_host, 0xFF, (size_t)(4 * gx_ceil_div(c->T, GX_PAGE) * c->B)); // -1
}

void gx_kv_cache_reach(GxContext *g, GxKvCache *c, int64_t end)
{
    if (gx_failed(g) || !g->device->computes || end <= c->reached) return;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t p = gx_max(c->reached, c->first[b]) / GX_PAGE; p * GX_PAGE < end; p++) {
            if (c->taken == c->pages) {
                GX_FAIL(&g->error, GX_ERR_MEMORY,
                        "all %ld pages of the cache are taken, and column %ld of %ld needs one at position %ld: memory "
                        "was planned for texts that begin later",
                        (long)c->pages, (long)b, (long)c->B, (long)p * GX_PAGE);
                return;
            }
            c->table_host[p * c->B + b] = (int32_t)c->taken++; // a column's pages are adjacent where possible
        }
    c->reached = gx_round_up(end, GX_PAGE);
    gx_to_device(g, c->table, c->table_host, 4 * gx_ceil_div(c->T, GX_PAGE) * c->B);
}

void gx_kv_cache_end(GxKvCache *c, int64_t b) { c->first[b] = gx_round_up(c->T, GX_PAGE); }

static void gx__kv_cache_copy(GxContext *g, const GxKvCache *c, int64_t to, int64_t from, int64_t rows)
{
    for (int u = 0; u < GX_MAX_UNITS; u++) {
        const GxRows *pool = &c->unit[u];
        const int64_t bytes = pool->cols * gx_dtype_size(pool->dtype);
        char *data = (char *)pool->data;
        if (pool->rows) gx_copy(g, data + to * GX_PAGE * bytes, data + from * GX_PAGE * bytes, rows * bytes);
    }
}

// Column b gets the pages of column `of`, and what is in them is a copy of what column `from` has.
static void gx__kv_cache_take(GxContext *g, GxKvCache *c, int64_t b, int64_t of, int64_t from, int64_t end)
{
    for (int64_t p = 0; p * GX_PAGE < c->reached; p++) {
        const int32_t *was = c->table_before + p * c->B;
        const int64_t rows = gx_min(GX_PAGE, end - p * GX_PAGE);
        c->table_host[p * c->B + b] = was[of];
        if (of != from && rows > 0 && was[of] >= 0) gx__kv_cache_copy(g, c, was[of], was[from], rows);
    }
}

// A column that follows a text takes over its pages; others that follow it, too, copy them into the pages of texts that
// nobody follows, of which there are as many.
void gx_kv_cache_follow(GxContext *g, GxKvCache *c, const int64_t *from, int64_t end)
{
    const int64_t table_bytes = 4 * gx_ceil_div(c->T, GX_PAGE) * c->B;
    int64_t free_column = 0, others = 0;
    if (gx_failed(g) || !g->device->computes) return;
    for (int64_t b = 0; b < c->B; b++) others += from[b] != b;
    if (!others) return;
    memcpy(c->table_before, c->table_host, (size_t)table_bytes);
    for (int64_t b = 0; b < c->B; b++) c->heir[b] = -1;
    for (int64_t b = 0; b < c->B; b++)
        if (c->heir[from[b]] < 0 || from[b] == b) c->heir[from[b]] = b;
    for (int64_t b = 0; b < c->B; b++) {
        if (c->heir[from[b]] == b) {
            gx__kv_cache_take(g, c, b, from[b], from[b], end);
            continue;
        }
        while (c->heir[free_column] >= 0) free_column++;
        gx__kv_cache_take(g, c, b, free_column++, from[b], end);
    }
    gx_to_device(g, c->table, c->table_host, table_bytes);
}

int gx_kv_cache_skips(const GxModel *m, int unit, const GxBatch *b)
{
    return b->cache && b->cache->has_source && unit <= m->memory;
}

GxRows gx_kv_cache_rows(const GxPass *p, int reads_memory)
{
    const GxKvCache *c = p->b->cache;
    const GxRuns *runs = &p->b->runs;
    const int64_t end = runs->run[0].position + runs->run[0].length;
    if (p->is_training || runs->n != 1 || end > c->T || p->b->B != c->B) {
        GX_FAIL(&p->g->error, GX_ERR_ARGUMENT,
                "a batch of %ld columns up to position %ld for a cache of %ld columns and %ld positions; expected as "
                "many columns, one run of positions, and no training",
                (long)p->b->B, (long)end, (long)c->B, (long)c->T);
        return gx_no_rows();
    }
    return reads_memory ? c->source[p->unit] : c->unit[p->unit];
}
#endif
