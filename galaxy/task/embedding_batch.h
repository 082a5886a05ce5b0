// task/embedding_batch.h: the batches of the task embedding: texts side by side in columns, and where each begins and
// ends.
#ifndef GX_EMBEDDING_BATCH_H
#define GX_EMBEDDING_BATCH_H
#include "embedding_texts.h"
GX_BEGIN

// Members of GxTaskBatches.
int64_t gx_embedding_layout(const void *self, GxBatch *b, void *block, void *host_copy);
GxStatus gx_embedding_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err);
void gx_embedding_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES]);
int64_t gx_embedding_held_out(const void *self);
GxStatus gx_embedding_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                    GxError *err);

// Calls `at` for the texts of a batch's columns in the order of its parts: all anchors, all positives, all negatives.
// Columns from number `end` on are empty.
typedef void GxEmbeddingAt(void *user, int k, int64_t group, int64_t column, int64_t begin);
void gx_embedding_each(GxTextGroups *s, const GxBatch *b, uint64_t seed, int64_t end, GxEmbeddingAt *at, void *user);

// Writes a batch text by text. s: where its texts come from.
typedef struct {
    GxTextWriter w;
    const GxTextGroups *s;
    int32_t *part;
    int is_cls;
} GxEmbeddingWriter;
GxEmbeddingWriter gx_embedding_begin(const GxEmbeddingTask *c, GxBatch *b, void *host_copy, const GxTextGroups *s);
void gx_embedding_put_text(GxEmbeddingWriter *w, const GxTexts *t, int64_t i, int64_t column, int64_t begin);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_BATCH_IMPLEMENTED)
#define GX_EMBEDDING_BATCH_IMPLEMENTED

// The parts, [most][3], follow the arrays of text_batch.h.
int64_t gx_embedding_layout(const void *self, GxBatch *b, void *block, void *host_copy)
{
    const GxEmbeddingTask *c = (const GxEmbeddingTask *)self;
    GxTarget *t = &b->target[0];
    const int64_t bytes = gx_text_layout(&c->layout, b, block, host_copy), records = gx_embedding_records(c) * b->B;
    t->parts = block ? (const int32_t *)((char *)block + bytes) : NULL;
    t->parts_host = host_copy ? (const int32_t *)((char *)host_copy + bytes) : NULL;
    t->n = records * c->per;
    t->anchors = c->per > 1 && c->is_trained ? records : -1;
    t->layers = c->layer, t->n_layers = c->modules.dense_n;
    t->candidates = (c->per - 1) * gx_embedding_records(c) * c->all_samples;
    return bytes + gx_round_up(12 * t->n, GX_ALIGN);
}

void gx_embedding_each(GxTextGroups *s, const GxBatch *b, uint64_t seed, int64_t end, GxEmbeddingAt *at, void *user)
{
    for (int k = 0; k < s->per; k++)
        for (int64_t column = 0; column < b->B && b->sample + column < end; column++) {
            const int64_t *group;
            int64_t n, begin = 0;
            gx_text_packing_column(&s->packing, seed, b->sample + column, &group, &n);
            for (int64_t i = 0; i < n; begin += s->length[group[i++]]) {
                int64_t inside = 0;
                for (int j = 0; j < k; j++) inside += s->text[j].length[group[i]];
                at(user, k, group[i], column, begin + inside);
            }
        }
}

void gx_embedding_put_text(GxEmbeddingWriter *w, const GxTexts *t, int64_t i, int64_t column, int64_t begin)
{
    GxTarget *target = &w->w.b->target[0];
    int32_t *part = w->part + 3 * target->n++;
    gx_text_put(&w->w, column, begin, t->ids[i], NULL, t->length[i]);
    part[0] = (int32_t)column, part[1] = (int32_t)begin;
    part[2] = (int32_t)(begin + (w->is_cls ? 1 : t->length[i]));
}

static void gx__embedding_put(void *user, int k, int64_t group, int64_t column, int64_t begin)
{
    GxEmbeddingWriter *w = (GxEmbeddingWriter *)user;
    gx_embedding_put_text(w, &w->s->text[k], group, column, begin);
    w->w.b->target[0].anchors += k == 0 && w->s->per > 1;
}

GxEmbeddingWriter gx_embedding_begin(const GxEmbeddingTask *c, GxBatch *b, void *host_copy, const GxTextGroups *s)
{
    GxEmbeddingWriter w;
    GxTextArrays ignored;
    gx_text_begin(&w.w, &c->layout, b, host_copy);
    w.s = s, w.is_cls = gx_embedding_is_cls(c);
    w.part = (int32_t *)((char *)host_copy + gx_text_arrays(&c->layout, b->T, b->B, NULL, &ignored));
    b->target[0].n = 0, b->target[0].anchors = s->per > 1 ? 0 : -1;
    return w;
}

GxStatus gx_embedding_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    GxEmbeddingWriter w = gx_embedding_begin(c, b, host_copy, &c->train);
    (void)g, (void)err;
    gx_embedding_each(&c->train, b, seed, INT64_MAX, gx__embedding_put, &w);
    return GX_OK;
}

int64_t gx_embedding_held_out(const void *self) { return ((const GxEmbeddingTask *)self)->held_out.columns; }

GxStatus gx_embedding_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples,
                                    GxError *err)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    GxEmbeddingWriter w = gx_embedding_begin(c, b, host_copy, &c->held_out);
    (void)g, (void)err;
    c->columns = gx_min(samples, c->held_out.columns);
    gx_embedding_each(&c->held_out, b, 0, c->columns, gx__embedding_put, &w);
    b->target[0].logits = gx_some_rows(c->vectors, 0, b->target[0].n);
    b->target[0].anchors = -1; // the loss is that of all vectors together
    return GX_OK;
}

void gx_embedding_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    const GxTarget *t = &b->target[0];
    count[0] += t->anchors >= 0 ? t->anchors : t->n / gx_max(1, ((const GxEmbeddingTask *)self)->held_out.per);
}
#endif
