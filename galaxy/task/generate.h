// task/generate.h: text from a model: the next token again and again, each drawn from the model's distribution.
//
// Simple form: every token runs its whole window through the model (no cache of keys and values). All ranks take part
// and draw the same tokens, since the numbers come from (seed, position).
#ifndef GX_GENERATE_H
#define GX_GENERATE_H
#include "../base/mesh.h"
#include "task.h"
GX_BEGIN

typedef struct {
    double temperature; // 0: the likeliest token
    int64_t top_k;      // 0: all; ties at the k-th stay
    uint64_t seed;
    int64_t vocab; // tokens that the tokenizer knows: the model may have rows beyond; 0: all
} GxSampling;

// A token from V logits, by the random number of (seed, position).
int32_t gx_sample_token(const float *logits, int64_t V, const GxSampling *s, int64_t position);

typedef struct {       // buffers, laid out with the model's
    int32_t *tokens;   // [T]
    int32_t *row;      // [1]: of which the logits are wanted
    GxRows logits;     // [1,V]
    void *logits_twin; // in the host's memory
    float *wide;       // [V] there, in fp32; NULL: the twin is that
    int64_t T;         // the longest window
} GxGenerator;
void gx_generator_take(GxContext *g, GxGenerator *w, int64_t T, int64_t V, GxDtype dtype); // dtype: the model's

// Continues `tokens` (on the host), of which n >= 1 exist, up to `wanted`, or until it is asked to stop. Returns how
// many exist then.
int64_t gx_generate(GxContext *g, const GxForward *forward, GxGenerator *w, int32_t *tokens, int64_t n, int64_t wanted,
                    const GxSampling *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GENERATE_IMPLEMENTED)
#define GX_GENERATE_IMPLEMENTED
#include <math.h>
#include "../base/random.h"
#include "../ops/elementwise.h"
#include "../ops/memory.h"

// The k-th largest of V values: at each round the largest below the last one, with how many are equal to it.
static float gx__generate_kth_largest(const float *x, int64_t V, int64_t k)
{
    float bound = INFINITY;
    while (k > 0) {
        float best = -INFINITY;
        int64_t equal = 0;
        for (int64_t v = 0; v < V; v++) {
            if (x[v] >= bound || x[v] < best) continue;
            equal = x[v] > best ? 1 : equal + 1;
            best = x[v];
        }
        if (equal == 0) break;
        bound = best;
        k -= equal;
    }
    return bound;
}

int32_t gx_sample_token(const float *logits, int64_t V, const GxSampling *s, int64_t position)
{
    int64_t best = 0;
    for (int64_t v = 1; v < V; v++)
        if (logits[v] > logits[best]) best = v;
    if (s->temperature <= 0) return (int32_t)best;
    float cut = s->top_k > 0 && s->top_k < V ? gx__generate_kth_largest(logits, V, s->top_k) : -INFINITY;
    double sum = 0;
    for (int64_t v = 0; v < V; v++)
        if (logits[v] >= cut) sum += exp(((double)logits[v] - logits[best]) / s->temperature);
    double target = sum * gx_random_uniform(s->seed, (uint64_t)position, 0, gx_random_site(GX_SITE_SAMPLE, 0));
    for (int64_t v = 0; v < V; v++) {
        if (logits[v] >= cut) target -= exp(((double)logits[v] - logits[best]) / s->temperature);
        if (target < 0) return (int32_t)v;
    }
    return (int32_t)best;
}

void gx_generator_take(GxContext *g, GxGenerator *w, int64_t T, int64_t V, GxDtype dtype)
{
    w->T = T;
    w->tokens = (int32_t *)gx_arena_take(g->arena, GX_MEM_ACTIVATIONS, 4 * T);
    w->row = (int32_t *)gx_arena_take(g->arena, GX_MEM_ACTIVATIONS, sizeof *w->row);
    w->logits = gx_rows(NULL, dtype, 1, V);
    w->logits.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(w->logits));
    w->logits_twin = gx_host_twin(g, GX_MEM_ACTIVATIONS, w->logits.data, gx_rows_bytes(w->logits));
    w->wide = dtype == GX_F32 ? NULL : (float *)gx_take_from(g, gx_host_arena(g), GX_MEM_ACTIVATIONS, 4 * V);
}

static const float *gx__generate_logits_floats(const GxGenerator *w)
{
    const uint16_t *narrow = (const uint16_t *)w->logits_twin;
    if (!w->wide) return (const float *)w->logits_twin;
    for (int64_t v = 0; v < w->logits.cols; v++) w->wide[v] = gx_from_bf16(narrow[v]);
    return w->wide;
}

int64_t gx_generate(GxContext *g, const GxForward *forward, GxGenerator *w, int32_t *tokens, int64_t n, int64_t wanted,
                    const GxSampling *s)
{
    for (; n < wanted && !gx_failed(g) && !(forward->stop && forward->stop(forward->stop_user)); n++) {
        const int64_t first = gx_max(0, n - w->T), have = n - first; // the window: the last T tokens
        GxBatch b = GX_ZERO;
        b.tokens = w->tokens;
        b.T = gx_min(w->T, gx_max(have, gx_group_size(g, GX_AXIS_TP))); // each rank of a mode by SP needs a token
        b.B = 1;
        b.runs = gx_runs_one(b.T, 0);
        const int32_t last = (int32_t)(have - 1);
        b.target[0].rows = w->row, b.target[0].rows_twin = &last, b.target[0].n = 1, b.target[0].logits = w->logits;
        gx_to_device(g, w->row, &last, sizeof last);
        gx_zero(g, w->tokens, 4 * b.T);
        gx_to_device(g, w->tokens, tokens + first, 4 * have);
        forward->run(g, forward->user, &b);
        gx_to_host(g, w->logits_twin, w->logits.data, gx_rows_bytes(w->logits));
        if (gx_failed(g)) break;
        tokens[n] = g->device->computes
                        ? gx_sample_token(gx__generate_logits_floats(w), s->vocab ? s->vocab : w->logits.cols, s, n)
                        : 0;
    }
    return n;
}
#endif
