// task/sampling.h: samples a token from logits x, with the parameters of Hugging Face's transformers, in its order:
//
//     repetition_penalty   for every token in the text, once: x < 0 ? x * penalty : x / penalty
//     temperature          x / temperature
//     top_k                keeps the k largest logits
//     top_p                of these, keeps the likeliest whose probabilities sum up to at least p
//     min_p                of these, keeps those that are at least min_p times as likely as the likeliest
//
// Each filter keeps all logits that are at least some value, so nothing is sorted. Ties at this value are all kept.
// transformers does the same for top_k; for top_p it drops some of several equal logits, depending on its sort.
//
// The random number is a function of (seed, place), so a text does not depend on which ranks generate it, or which
// other texts are generated with it.
#ifndef GX_SAMPLING_H
#define GX_SAMPLING_H
#include "../base/dtype.h"
GX_BEGIN

typedef struct {        // zero: the likeliest token
    double temperature; // 0: the likeliest token
    int64_t top_k;      // 0: all
    uint64_t seed;
    int64_t vocab;             // tokens of the tokenizer; the model may have more rows; 0: all
    double top_p;              // 0 or 1: all
    double min_p;              // 0: all
    double repetition_penalty; // 0 or 1: none
} GxSampling;

// Applies the repetition penalty to the logits [V] of the tokens v with seen[v] != 0.
void gx_sampling_penalize(float *logits, const uint8_t *seen, int64_t V, double penalty);
// The smallest logit, divided by the temperature, that the filters keep; s->temperature must be above 0.
float gx_sampling_cut(const float *logits, int64_t V, const GxSampling *s);
static inline float gx_sampling_scaled(float logit, const GxSampling *s) { return logit / (float)s->temperature; }

int gx_sampling_is_sound(const float *logits, int64_t V); // 1: all of them are finite
// Samples a token from logits [V], with the random number of (seed, place). Returns 0 if all logits are NaN.
int32_t gx_sample_token(const float *logits, int64_t V, const GxSampling *s, int64_t place);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SAMPLING_IMPLEMENTED)
#define GX_SAMPLING_IMPLEMENTED
#include <math.h>
#include <string.h>
#include "../base/random.h"

void gx_sampling_penalize(float *logits, const uint8_t *seen, int64_t V, double penalty)
{
    const float p = (float)penalty;
    if (penalty == 0 || penalty == 1) return;
    for (int64_t v = 0; v < V; v++)
        if (seen[v]) logits[v] = logits[v] < 0 ? logits[v] * p : logits[v] / p;
}

int gx_sampling_is_sound(const float *logits, int64_t V)
{
    int all = 1;
    for (int64_t v = 0; v < V; v++) all &= isfinite(logits[v]) != 0;
    return all;
}

// Maps floats to integers of the same order.
static uint32_t gx__sampling_key(float x)
{
    const uint32_t bits = gx_float_bits(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
static float gx__sampling_of_key(uint32_t key)
{
    return gx_float_of_bits(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

typedef struct { // scaled logits: those from `least` on, of which `best` is the largest
    const float *logits;
    const GxSampling *s;
    int64_t V;
    float best, least;
} GxSamplingSet;

// A token's weight: 1 (is_counted), or its unnormalized probability.
static double gx__sampling_weight(const GxSamplingSet *set, float x, int is_counted)
{
    return is_counted ? 1 : exp((double)x - set->best);
}

// The smallest value such that the logits above it have less total weight than `limit`. Radix select: a histogram of
// the keys' first bits, then of the next bits of the keys in the bin that contains the value.
static float gx__sampling_least(const GxSamplingSet *set, int is_counted, double limit)
{
    enum { BITS = 11, BINS = 1 << BITS };
    double bin[BINS], above = 0;
    uint32_t prefix = 0;
    for (int shift = 32 - BITS, known = 0; known<32; known += BITS, shift = shift> BITS ? shift - BITS : 0) {
        const int bits = known + BITS > 32 ? 32 - known : BITS;
        memset(bin, 0, sizeof bin);
        for (int64_t v = 0; v < set->V; v++) {
            const float x = gx_sampling_scaled(set->logits[v], set->s);
            const uint32_t key = gx__sampling_key(x);
            if (!(x >= set->least) || (known && key >> (32 - known) != prefix)) continue;
            bin[key >> shift & ((1u << bits) - 1)] += gx__sampling_weight(set, x, is_counted);
        }
        int lowest = -1; // the lowest bin that is not empty and above which there is less than `limit`
        double below = above;
        for (int b = (1 << bits) - 1; b >= 0 && (lowest < 0 || below < limit); b--) {
            if (bin[b] == 0) continue;
            lowest = b, above = below;
            below += bin[b];
        }
        if (lowest < 0) return set->least;
        prefix = prefix << bits | (uint32_t)lowest;
    }
    return gx__sampling_of_key(prefix);
}

float gx_sampling_cut(const float *logits, int64_t V, const GxSampling *s)
{
    GxSamplingSet set = {logits, s, V, -INFINITY, -INFINITY};
    for (int64_t v = 0; v < V; v++) {
        const float x = gx_sampling_scaled(logits[v], s);
        if (x > set.best) set.best = x;
    }
    if (s->top_k > 0 && s->top_k < V) set.least = gx__sampling_least(&set, 1, (double)s->top_k);
    if (s->top_p > 0 && s->top_p < 1) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++) {
            const float x = gx_sampling_scaled(logits[v], s);
            if (x >= set.least) sum += gx__sampling_weight(&set, x, 0);
        }
        set.least = gx__sampling_least(&set, 0, s->top_p * sum);
    }
    const float least = s->min_p > 0 ? (float)(set.best + log(s->min_p)) : -INFINITY;
    return least > set.least ? least : set.least;
}

int32_t gx_sample_token(const float *logits, int64_t V, const GxSampling *s, int64_t place)
{
    int64_t best = 0;
    for (int64_t v = 1; v < V; v++)
        if (logits[v] > logits[best] || isnan(logits[best])) best = v;
    if (s->temperature <= 0) return (int32_t)best;
    const float cut = gx_sampling_cut(logits, V, s), top = gx_sampling_scaled(logits[best], s);
    double sum = 0;
    for (int64_t v = 0; v < V; v++) {
        const float x = gx_sampling_scaled(logits[v], s);
        if (x >= cut) sum += exp((double)x - top);
    }
    double target = sum * gx_random_uniform(s->seed, (uint64_t)place, 0, gx_random_site(GX_SITE_SAMPLE, 0));
    for (int64_t v = 0; v < V; v++) {
        const float x = gx_sampling_scaled(logits[v], s);
        if (x >= cut) target -= exp((double)x - top);
        if (target < 0) return (int32_t)v;
    }
    return (int32_t)best;
}
#endif
