// model/lora_merge.h: merges LoRA's factors (lora.h) into the matrices that they change, and takes them out again.
#ifndef GX_LORA_MERGE_H
#define GX_LORA_MERGE_H
#include "lora.h"
GX_BEGIN

// sign 1: W += s * B A; sign -1: W -= s * B A; for the matrices, or parts of them, that this rank has. In bf16 the
// result is rounded, so subtracting does not restore the exact bits of W. A quantized W stays as it is: its values are
// read as fp32 (parallel/values.h), and gx_lora_add adds to those.
void gx_lora_merge(GxContext *g, GxModel *m, int sign);
// w [rows,in] += s * B A, for the matrix's rows [first, first + rows); w: fp32, in device memory. Does nothing for a
// matrix without factors. The matrix must be a linear's, and whole on this rank.
void gx_lora_add(GxContext *g, const GxModel *m, int row, int64_t first, int64_t rows, float *w);
// For a plan: takes and releases the scratch of gx_lora_merge and that of a quantized matrix's rows: at most GX_STAGE
// elements or one row, in fp32 and in a narrower type.
void gx_lora_merge_plan(GxContext *g, const GxModel *m);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LORA_MERGE_IMPLEMENTED)
#define GX_LORA_MERGE_IMPLEMENTED
#include "../ops/embedding.h"
#include "../ops/linear.h"
#include "../ops/memory.h"
#include "../parallel/values.h"

// B^T [r,C], from B [C,r].
static float *gx__lora_transposed(GxContext *g, const GxTensor *b, const float *values)
{
    const int64_t r = b->global_shape[1], C = b->global_shape[0];
    float *rows = (float *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * r * C);
    int32_t *ids = (int32_t *)gx_scratch(g, GX_MEM_WORKSPACE, 4 * r);
    GxEmbedding e = gx_embedding_shape(r, C, r, GX_F32);
    e.is_transposed = 1;
    for (int64_t i = 0; i < r && !gx_failed(g); i++) {
        const int32_t id = (int32_t)i;
        gx_to_device(g, ids + i, &id, sizeof id);
    }
    if (!gx_failed(g) && values) gx_embedding_forward(g, rows, values, ids, &e);
    return rows;
}

static void gx__lora_plan_embedding(GxContext *g, const GxModel *m)
{
    const GxArenaMark mark = gx_arena_mark(g->arena);
    if (m->embedding.index < 0 || !m->table.row[m->embedding.index].has_lora) return;
    gx__lora_transposed(g, &m->table.row[m->table.row[m->embedding.index].lora_b.index], NULL);
    gx_arena_release(g->arena, mark);
}

void gx_lora_merge_plan(GxContext *g, const GxModel *m)
{
    const GxArenaMark mark = gx_arena_mark(g->arena);
    int64_t most = 0;
    for (int i = 0; i < m->table.n; i++)
        if (m->table.row[i].quantized)
            most = gx_max(most, gx_min(gx_tensor_count(&m->table.row[i]),
                                       gx_max(GX_STAGE, m->table.row[i].end[1] - m->table.row[i].begin[1])));
    if (most) gx_scratch(g, GX_MEM_WORKSPACE, 4 * most), gx_scratch(g, GX_MEM_WORKSPACE, 2 * most);
    gx_arena_release(g->arena, mark);
    gx__lora_plan_embedding(g, m);
}

// Uses the backward of a linear: dx = s * dy w is s * B A, for dy = B [out,r] and w = A [r,in]; dw = s * dy^T x is s *
// A^T B^T, for dy = A [r,V] and x = B^T [r,C].
static void gx__lora_merge_row(GxContext *g, GxModel *m, int row, int sign)
{
    const GxTensor *t = &m->table.row[row], *a = &m->table.row[t->lora.index], *b = &m->table.row[t->lora_b.index];
    const GxArenaMark mark = gx_arena_mark(g->arena);
    const int64_t n = gx_tensor_count(t), in = t->end[1] - t->begin[1], r = gx_lora_rank(m, t);
    const float scale = (float)sign * (float)t->lora_scale;
    GxLinearShape s = gx_linear_shape(t->end[0] - t->begin[0], in, r, GX_F32);
    s.accumulate = 1, s.scale = scale;
    float *w = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, row, 0, n),
          *x = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora.index, 0, gx_tensor_count(a)),
          *y = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora_b.index, 0, gx_tensor_count(b));
    if (t->role == GX_ROLE_EMBEDDING) {
        const float *rows = gx__lora_transposed(g, b, y);
        s = gx_linear_shape(r, in, t->end[0] - t->begin[0], GX_F32);
        s.accumulate = 1, s.scale = scale;
        if (!gx_failed(g)) gx_linear_backward_weight(g, w, NULL, x, rows, &s);
    } else if (!gx_failed(g)) gx_linear_backward_input(g, w, y, x, &s);
    gx_values_written(g, &m->store, GX_VALUES_WEIGHTS, row, 0, n, w);
    gx_arena_release(g->arena, mark);
}

void gx_lora_merge(GxContext *g, GxModel *m, int sign)
{
    for (int i = 0; i < m->table.n && !gx_failed(g); i++)
        if (m->table.row[i].has_lora && !m->table.row[i].quantized && gx_store_has(&m->store, i))
            gx__lora_merge_row(g, m, i, sign);
}

void gx_lora_add(GxContext *g, const GxModel *m, int row, int64_t first, int64_t rows, float *w)
{
    const GxTensor *t = &m->table.row[row];
    if (!t->has_lora) return;
    const GxTensor *a = &m->table.row[t->lora.index], *b = &m->table.row[t->lora_b.index];
    const GxArenaMark mark = gx_arena_mark(g->arena);
    const int64_t r = gx_lora_rank(m, t);
    GxLinearShape s = gx_linear_shape(rows, t->global_shape[1], r, GX_F32);
    s.accumulate = 1, s.scale = (float)t->lora_scale;
    const float *x = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora.index, 0, gx_tensor_count(a)),
                *y = gx_values_read(g, &m->store, GX_VALUES_WEIGHTS, t->lora_b.index, 0, gx_tensor_count(b));
    if (!gx_failed(g)) gx_linear_backward_input(g, w, y + first * r, x, &s);
    gx_arena_release(g->arena, mark);
}
#endif
