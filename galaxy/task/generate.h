// task/generate.h: text from a model: the next token again and again, each drawn from the model's distribution.
//
// Simple form: every token runs its whole window through the model (no cache of keys and values). All ranks take part
// and draw the same tokens, since the numbers come from (seed, position).
#ifndef GX_GENERATE_H
#define GX_GENERATE_H
#include "../base/mesh.h"
#include "sampling.h"
#include "task.h"
GX_BEGIN

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
#include "../ops/elementwise.h"
#include "../ops/memory.h"

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
