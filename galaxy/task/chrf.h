// task/chrf.h: chrF2 of a corpus: how many runs of one to six characters written texts and their targets have in common
// (Popović 2015, chrF: character n-gram F-score for automatic MT evaluation). It needs no words, so it is for every
// language. The number is that of the package sacrebleu (2.6) with its defaults: white space is left out, upper and
// lower case are apart, and recall weighs twice as much as precision.
//
//     GxChrf c = GX_ZERO;
//     GX_TRY(gx_chrf_add(&c, written, target, err)); // for each text
//     double score = gx_chrf_score(&c);              // 0 to 100
#ifndef GX_CHRF_H
#define GX_CHRF_H
#include "../base/status.h"
GX_BEGIN

enum { GX_CHRF_ORDERS = 6 };
typedef struct { // n-grams, summed over texts; all 0 at first
    int64_t right[GX_CHRF_ORDERS], written[GX_CHRF_ORDERS], target[GX_CHRF_ORDERS];
} GxChrf;
GxStatus gx_chrf_add(GxChrf *c, const char *written, const char *target, GxError *err); // both are UTF-8
// 5 P R / (4 P + R), times 100; P, R: means of precision and recall over the orders that both sides have
double gx_chrf_score(const GxChrf *c);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHRF_IMPLEMENTED)
#define GX_CHRF_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "../text/unicode.h"
#include "ngrams.h"

// Appends the characters of a text without white space.
static int64_t gx__chrf_characters(int32_t *to, const char *text)
{
    int64_t n = 0;
    uint32_t c;
    for (const char *p = text, *end = text + strlen(text); p < end;) {
        p += gx_unicode_decode(p, end, &c);
        if (!gx_unicode_is_python_space(c)) to[n++] = (int32_t)c;
    }
    return n;
}

GxStatus gx_chrf_add(GxChrf *c, const char *written, const char *target, GxError *err)
{
    int32_t *character = (int32_t *)malloc((strlen(written) + strlen(target) + 1) * sizeof *character);
    GxNgrams count[GX_CHRF_ORDERS];
    if (!character) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the characters of a text");
    const int64_t n = gx__chrf_characters(character, written), m = gx__chrf_characters(character + n, target);
    const GxStatus status = gx_ngrams_count(character, n, m, GX_CHRF_ORDERS, count, err);
    free(character);
    if (status != GX_OK) return status;
    for (int k = 0; k < GX_CHRF_ORDERS; k++) {
        c->right[k] += count[k].common, c->target[k] += count[k].of[1];
        c->written[k] += count[k].of[1] ? count[k].of[0] : 0; // not counted where the target is too short
    }
    return GX_OK;
}

double gx_chrf_score(const GxChrf *c)
{
    double precision = 0, recall = 0;
    int orders = 0;
    for (int k = 0; k < GX_CHRF_ORDERS; k++) {
        if (!c->written[k] || !c->target[k]) continue;
        precision += (double)c->right[k] / (double)c->written[k];
        recall += (double)c->right[k] / (double)c->target[k];
        orders++;
    }
    if (!(precision + recall > 0)) return 0;
    precision /= orders, recall /= orders;
    return 100 * 5 * precision * recall / (4 * precision + recall);
}
#endif
