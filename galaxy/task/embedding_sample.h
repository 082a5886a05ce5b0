// task/embedding_sample.h: shows anchors of the held-out records with the positives that lie nearest to them.
#ifndef GX_EMBEDDING_SAMPLE_H
#define GX_EMBEDDING_SAMPLE_H
#include "embedding_texts.h"
GX_BEGIN

char *gx_embedding_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed); // for GxTaskOutput

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EMBEDDING_SAMPLE_IMPLEMENTED)
#define GX_EMBEDDING_SAMPLE_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ops/memory.h"
#include "embedding_batch.h"
#include "embedding_validation.h"

enum { GX__EMBEDDING_ANCHORS = 3, GX__EMBEDDING_RIVALS = 64, GX__EMBEDDING_QUOTE = 120 };

// The vector of text i of t, computed alone in a batch, on every rank.
static void gx__embedding_run_one(GxContext *g, GxEmbeddingTask *c, const GxForward *forward, const GxTexts *t,
                                  int64_t i, float *vector)
{
    GxBatch *b = &c->one.b;
    GxTextGroups alone = GX_ZERO;
    alone.per = 1;
    GxEmbeddingWriter w = gx_embedding_begin(c, b, c->one.host, &alone);
    gx_embedding_put_text(&w, t, i, 0, 0);
    b->target[0].logits = gx_some_rows(c->vectors, 0, 1);
    gx_to_device(g, c->one.block, c->one.host, c->one.bytes);
    forward->run(g, forward->user, b, NULL);
    gx_embedding_fetch(g, c, b);
    if (!gx_failed(g)) memcpy(vector, c->host_copy, (size_t)c->width * sizeof *vector);
}

// For a plan: takes the memory of a validation's vectors, which is enough for the sample's. Reads no array.
static void gx__embedding_dry_run(GxContext *g, GxEmbeddingTask *c, const GxForward *forward)
{
    GxBatch b = c->one.b;
    b.B = c->samples;
    gx_embedding_layout(c, &b, c->one.block, c->one.block);
    b.target[0].anchors = -1, b.target[0].logits = c->vectors;
    forward->run(g, forward->user, &b, NULL);
    if (c->held_out.n) gx_embedding_gather(g, c);
}

static double gx__embedding_cosine(const float *a, const float *b, int64_t C)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < C; i++) {
        ab += (double)a[i] * b[i], aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

// Prints an anchor and the three nearest of n positives. number[i]: the record of positive i; rival: the positives'
// vectors.
static void gx__embedding_tell(const GxEmbeddingTask *c, const float *anchor, const float *rival, const int64_t *number,
                               int64_t n, int64_t own, FILE *out)
{
    char text[GX__EMBEDDING_QUOTE];
    unsigned char told[GX__EMBEDDING_RIVALS] = {0};
    const GxTexts *a = &c->held_out.text[0], *p = &c->held_out.text[1];
    fprintf(out, "%s\n", gx_text_cut(gx_texts_field(a, number[own], a->file->text), text, sizeof text));
    for (int k = 0; k < 3 && k < n; k++) {
        int64_t best = -1;
        double most = 0;
        for (int64_t j = 0; j < n; j++) {
            const double cosine = gx__embedding_cosine(anchor, rival + j * c->width, c->width);
            if (!told[j] && (best < 0 || cosine > most)) best = j, most = cosine;
        }
        told[best] = 1;
        gx_text_cut(gx_texts_field(p, number[best], p->file->text), text, sizeof text);
        fprintf(out, "  %.3f%s %s\n", most, best == own ? " *" : "  ", text);
    }
}

char *gx_embedding_sample(GxContext *g, void *self, const GxForward *forward, uint64_t seed)
{
    GxEmbeddingTask *c = (GxEmbeddingTask *)self;
    const int64_t n = gx_min(GX__EMBEDDING_RIVALS, c->held_out.n);
    int64_t number[GX__EMBEDDING_RIVALS];
    char *text = NULL;
    size_t bytes;
    if (!g->device->computes) gx__embedding_dry_run(g, c, forward);
    if (!g->device->computes || !n || c->held_out.per < 2) return NULL;
    float *rival = (float *)malloc((size_t)((n + 1) * c->width) * sizeof *rival), *anchor = rival;
    FILE *out = rival ? open_memstream(&text, &bytes) : NULL;
    if (!out) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    if (rival) anchor += n * c->width;
    int stopped = 0;
    for (int64_t k = 0; k < n && !gx_failed(g) && !stopped; k++) {
        number[k] = gx_permute(seed, 0, c->held_out.n, k);
        gx__embedding_run_one(g, c, forward, &c->held_out.text[1], number[k], rival + k * c->width);
        stopped = forward->stop && forward->stop(forward->stop_user);
    }
    if (out) fprintf(out, "anchors, and the nearest of %ld held-out positives (*: their own)\n", (long)n);
    for (int64_t k = 0; k < n && k < GX__EMBEDDING_ANCHORS && !gx_failed(g) && !stopped; k++) {
        gx__embedding_run_one(g, c, forward, &c->held_out.text[0], number[k], anchor);
        if (!gx_failed(g)) gx__embedding_tell(c, anchor, rival, number, n, k, out);
    }
    free(rival);
    if (out && fclose(out) != 0) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a sample");
    if (!gx_failed(g) && !stopped) return text;
    free(text);
    return NULL;
}
#endif
