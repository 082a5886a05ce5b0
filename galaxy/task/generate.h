// task/generate.h: generates text with a model that is being trained, in any mode, one token after another, each
// sampled from the model's distribution.
//
// The model sees a window of the text. The window grows up to T tokens, the training's sequence length; then it
// restarts with their last half. In modes that have a KV cache (kv_cache.h) only the new tokens of the window are
// run; in modes that split the sequence, the whole window. All ranks take part and sample the same tokens, since the
// random numbers are a function of (seed, position). For several texts at once, and for what ends a text, see decode.h.
#ifndef GX_GENERATE_H
#define GX_GENERATE_H
#include "../base/mesh.h"
#include "decode.h"
GX_BEGIN

typedef struct { // buffers, laid out with the model's
    int64_t T;   // the longest window
    int least;   // tokens of the shortest: if the sequence is split, each rank of a tp group needs one
    GxDecoder decoder;
    int is_cached;     // 1: it uses the decoder; 0: the buffers below
    int32_t *tokens;   // [T]
    int32_t *row;      // [1]: the row whose logits are needed
    GxRows logits;     // [1,V]
    void *logits_host; // in the host's memory
    float *wide;       // [V], the host copy in fp32; NULL: the host copy is fp32 itself
} GxGenerator;
void gx_generator_allocate(GxContext *g, GxGenerator *w, GxModel *m,
                           int64_t T); // after gx_runner_allocate(T, 1 or more, …)

// Continues tokens[n], n >= 1, in host memory with room for `wanted`, until there are `wanted` of them or
// forward->stop asks to stop. Returns how many there are then. On a device that does not compute: runs once everything
// that takes memory.
int64_t gx_generate(GxContext *g, const GxForward *forward, GxGenerator *w, int32_t *tokens, int64_t n, int64_t wanted,
                    const GxSampling *s);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GENERATE_IMPLEMENTED)
#define GX_GENERATE_IMPLEMENTED
#include "../ops/elementwise.h"
#include "../ops/memory.h"

void gx_generator_allocate(GxContext *g, GxGenerator *w, GxModel *m, int64_t T)
{
    const GxDtype dtype = m->store.dtype;
    const int64_t V = gx_model_vocab(m);
    w->T = T, w->least = m->widest;
    w->is_cached = gx_kv_cache_is_possible(m);
    if (w->is_cached) {
        // with cp a model has memory for fewer rows at once
        gx_decoder_allocate(g, &w->decoder, m, T, 1, m->cp.n > 1 ? m->max_T : T, NULL);
        return;
    }
    if (m->cp.n > 1) w->least = T; // the ranks of cp share whole sequences alone
    w->tokens = (int32_t *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, 4 * T);
    w->row = (int32_t *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, sizeof *w->row);
    w->logits = gx_rows(NULL, dtype, 1, V);
    w->logits.data = gx_scratch(g, GX_MEM_ACTIVATIONS, gx_rows_bytes(w->logits));
    w->logits_host = gx_host_copy(g, GX_MEM_ACTIVATIONS, w->logits.data, gx_rows_bytes(w->logits));
    w->wide = dtype == GX_F32 ? NULL : (float *)gx_allocate_from(g, gx_host_arena(g), GX_MEM_ACTIVATIONS, 4 * V);
}

static const float *gx__generate_floats(const GxGenerator *w)
{
    const uint16_t *narrow = (const uint16_t *)w->logits_host;
    if (!w->wide) return (const float *)w->logits_host;
    for (int64_t v = 0; v < w->logits.cols; v++) w->wide[v] = gx_from_bf16(narrow[v]);
    return w->wide;
}

// The logits of the token after a window of n tokens; NULL: an error, or a device that does not compute.
static const float *gx__generate_whole(GxContext *g, const GxForward *forward, GxGenerator *w, const int32_t *window,
                                       int64_t n)
{
    const int32_t last = (int32_t)(n - 1);
    GxBatch b = GX_ZERO;
    b.tokens = w->tokens;
    b.T = gx_min(w->T, gx_max(n, w->least));
    b.B = 1;
    b.runs = gx_runs_one(b.T, 0);
    b.target[0].rows = w->row, b.target[0].rows_host = &last, b.target[0].n = 1, b.target[0].logits = w->logits;
    gx_to_device(g, w->row, &last, sizeof last);
    gx_zero(g, w->tokens, 4 * b.T);
    gx_to_device(g, w->tokens, window, 4 * n);
    forward->run(g, forward->user, &b, NULL);
    gx_to_host(g, w->logits_host, w->logits.data, gx_rows_bytes(w->logits));
    return gx_failed(g) || !g->device->computes ? NULL : gx__generate_floats(w);
}

int64_t gx_generate(GxContext *g, const GxForward *forward, GxGenerator *w, int32_t *tokens, int64_t n, int64_t wanted,
                    const GxSampling *s)
{
    const int64_t V = w->is_cached ? w->decoder.logits.cols : w->logits.cols;
    int64_t first = gx_max(0, n - w->T), fed = first; // the window's begin; the tokens before `fed` are in the cache
    if (w->is_cached && !g->device->computes) {
        gx_decoder_plan(g, &w->decoder, forward);
        return n;
    }
    if (w->is_cached) gx_decoder_begin(g, &w->decoder, NULL);
    for (; n < wanted && !gx_failed(g) && !(forward->stop && forward->stop(forward->stop_user)); n++) {
        if (n - first > w->T) {
            first = fed = n - gx_ceil_div(w->T, 2);
            if (w->is_cached) gx_decoder_begin(g, &w->decoder, NULL);
        }
        for (; w->is_cached && n - fed > w->decoder.chunk; fed += w->decoder.chunk)
            gx_decoder_run(g, &w->decoder, forward, tokens + fed, fed - first, w->decoder.chunk, 0);
        const float *logits = w->is_cached
                                  ? gx_decoder_run(g, &w->decoder, forward, tokens + fed, fed - first, n - fed, 1)
                                  : gx__generate_whole(g, forward, w, tokens + first, n - first);
        if (gx_failed(g)) break;
        fed = n;
        tokens[n] = logits ? gx_sample_token(logits, s->vocab ? s->vocab : V, s, n) : 0;
    }
    return n;
}
#endif
