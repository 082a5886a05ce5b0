// model/relative.h: T5's positions (Raffel et al. 2020, arXiv:1910.10683, section 2.1): a number that is added to each
// score of attention, by head and by how far the key is from the query. Distances share numbers: near ones have their
// own, farther ones are put together in buckets whose sizes grow by a factor, and all from max_distance on are in one.
//
// Each stack has one table [buckets, heads], which all its layers read. Both tables belong to the first unit, and those
// of layers are other names of them, so that the table's gradient is the sum over layers. With TP a rank has the columns
// of its heads. What a layer adds to the scores [2*max_distance + 1, heads] is looked up before each call of attention:
// a row for each distance; and its gradient goes back into the buckets' rows, in the order of distances.
#ifndef GX_RELATIVE_H
#define GX_RELATIVE_H
#include "../ops/attention.h"
#include "pass.h"
GX_BEGIN

// The bucket of a key that is `distance` positions behind its query (negative: before it). Causal: all buckets are for
// keys before it; otherwise the second half is for those behind it. buckets: at least 2, if not causal even and at least
// 4; max_distance: more than half of the buckets of one side.
int64_t gx_relative_bucket(int64_t distance, const GxRelative *r, int is_causal);

void gx_relative_open_tables(GxContext *g, GxModel *m, int unit, int k);      // of both stacks, in an embedding
void gx_relative_open(GxContext *g, GxModel *m, int unit, int k, int number); // a layer's name of its stack's
void gx_relative_allocate(GxContext *g, GxModel *m);                          // each distance's bucket
void gx_relative_bias(const GxPairView *v, GxAttention *a);                   // sets a->bias and a->reach
void gx_relative_begin_backward(const GxPairView *v, GxAttention *a);         // also a->dbias, if it is needed
void gx_relative_backward(const GxPairView *v, const GxAttention *a);         // adds a->dbias to the table's

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RELATIVE_IMPLEMENTED)
#define GX_RELATIVE_IMPLEMENTED
#include <math.h>
#include "../ops/embedding.h"
#include "../ops/memory.h"
#include "unit_tensors.h"

static int64_t gx__relative_rows(const GxRelative *r) { return 2 * r->max_distance + 1; }

int64_t gx_relative_bucket(int64_t distance, const GxRelative *r, int is_causal)
{
    const int64_t n = is_causal ? r->buckets : r->buckets / 2, near = n / 2, first = !is_causal && distance > 0 ? n : 0,
                  away = is_causal      ? gx_max(-distance, 0)
                         : distance < 0 ? -distance
                                        : distance;
    if (away < near) return first + away;
    const double far = log((double)away / (double)near) / log((double)r->max_distance / (double)near);
    return first + gx_min(n - 1, near + (int64_t)(far * (double)(n - near)));
}

// ---- tensors -------------------------------------------------------------------------------------------------------

static GxTensorUse gx__relative_use(const GxModel *m, int unit, int k, int which, int number)
{
    const GxUnitKind *u = &m->kind[m->unit[unit].kind];
    const GxCoreSpec *c = &u->spec.pair[k].core;
    GxTensorUse use = gx_tensor_use(c->relative.table[which], number, GX_ROLE_EMBEDDING, c->relative.buckets, c->heads,
                                    gx_block_takes(m->mode->methods.att));
    use.cols = &u->heads;
    return use;
}

void gx_relative_open_tables(GxContext *g, GxModel *m, int unit, int k)
{
    for (int causal = 0; causal < 2; causal++) {
        const GxTensorUse use = gx__relative_use(m, unit, k, causal, 0);
        m->relative[causal] = gx_model_tensor(g, m, unit, k, &use);
        if (m->relative[causal].index >= 0) m->table.row[m->relative[causal].index].decay = 0;
    }
}

void gx_relative_open(GxContext *g, GxModel *m, int unit, int k, int number)
{
    const int is_causal = gx_unit_spec(m, unit)->pair[k].core.is_causal;
    GxTensorUse use = gx__relative_use(m, unit, k, is_causal, number);
    use.alias = m->relative[is_causal].index + 1;
    m->unit[unit].pair[k].relative = gx_model_tensor(g, m, unit, k, &use);
}

// ---- the constants -------------------------------------------------------------------------------------------------

static const GxCoreSpec *gx__relative_attention(const GxModel *m, int is_causal)
{
    for (int i = 0; i < m->kinds; i++)
        for (int k = 0; k < m->kind[i].spec.n_pairs; k++) {
            const GxCoreSpec *c = &m->kind[i].spec.pair[k].core;
            if (c->kind == GX_CORE_ATT && c->relative.buckets && c->is_causal == is_causal) return c;
        }
    return NULL;
}

void gx_relative_allocate(GxContext *g, GxModel *m)
{
    for (int causal = 0; causal < 2; causal++) {
        const GxCoreSpec *c = gx__relative_attention(m, causal);
        m->bucket[causal] = NULL;
        if (!c) continue;
        const int64_t rows = gx__relative_rows(&c->relative), bytes = rows * (int64_t)sizeof(int32_t);
        m->bucket[causal] = (int32_t *)gx_scratch(g, GX_MEM_ACTIVATIONS, bytes);
        GxArena *host = gx_host_arena(g);
        const GxArenaMark mark = gx_arena_mark(host);
        int32_t *ids = (int32_t *)gx_host_copy(g, GX_MEM_WORKSPACE, m->bucket[causal], bytes);
        for (int64_t i = 0; ids && g->device->computes && i < rows; i++)
            ids[i] = (int32_t)gx_relative_bucket(i - c->relative.max_distance, &c->relative, causal);
        gx_to_device(g, m->bucket[causal], ids, bytes);
        gx_arena_release(host, mark);
    }
}

// ---- attention -----------------------------------------------------------------------------------------------------

static const GxRelative *gx__relative_of(const GxPairView *v)
{
    return v->pair->relative.index >= 0 ? &v->spec->core.relative : NULL;
}

static GxEmbedding gx__relative_lookup(const GxPairView *v, const GxAttention *a, GxDtype dtype)
{
    const GxRelative *r = gx__relative_of(v);
    return gx_embedding_shape(gx__relative_rows(r), a->H, r->buckets, dtype);
}

void gx_relative_bias(const GxPairView *v, GxAttention *a)
{
    const GxRelative *r = gx__relative_of(v);
    if (!r) return;
    const GxEmbedding e = gx__relative_lookup(v, a, a->dtype);
    void *bias = gx_scratch(v->g, GX_MEM_ACTIVATIONS, gx__relative_rows(r) * a->H * gx_dtype_size(a->dtype));
    gx_embedding_forward(v->g, bias, gx_view_weight(v, v->pair->relative), v->m->bucket[a->causal], &e);
    a->bias = bias, a->reach = r->max_distance;
}

void gx_relative_begin_backward(const GxPairView *v, GxAttention *a)
{
    const GxRelative *r = gx__relative_of(v);
    gx_relative_bias(v, a);
    if (r && gx_store_trains(v->store, v->pair->relative.index))
        a->dbias = (float *)gx_scratch(v->g, GX_MEM_ACTIVATIONS, gx__relative_rows(r) * a->H * 4);
}

void gx_relative_backward(const GxPairView *v, const GxAttention *a)
{
    if (!a->dbias) return;
    const int row = v->pair->relative.index, before = gx_of_tensor(v->g, -(row + 1));
    GxEmbedding e = gx__relative_lookup(v, a, GX_F32);
    float *dtable = gx_store_grad(v->store, v->pair->relative, &e.accumulate);
    if (dtable) gx_embedding_backward(v->g, dtable, a->dbias, v->m->bucket[a->causal], &e);
    gx_of_tensor(v->g, before);
}
#endif
