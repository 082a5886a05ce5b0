// gguf_rope.h: LLaMA 3.1's RoPE scaling in GGUF files: the tensor rope_freqs.weight has the usual frequencies divided
// by the scaled ones.
#ifndef GX_GGUF_ROPE_H
#define GX_GGUF_ROPE_H
#include "../io/gguf.h"
#include "gguf_work.h"
GX_BEGIN

#define GX_GGUF_ROPE_FREQS "rope_freqs.weight"

// factor [head_dim / 2]: how many times lower than usual each frequency is.
void gx_gguf_rope_factors(const GxLlamaConfig *c, float *factor);
// Finds out which known scaling the file's tensor describes (LLaMA 3.1's, 3.2's or none), and sets w->config. Refuses
// others.
GxStatus gx_gguf_find_scaling(GxGgufWork *w, const GxGguf *g, const GxGgufTensor *t);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_ROPE_IMPLEMENTED)
#define GX_GGUF_ROPE_IMPLEMENTED
#include <math.h>
#include <stdio.h>

void gx_gguf_rope_factors(const GxLlamaConfig *c, float *factor)
{
    const double pi = 3.14159265358979323846, original = (double)c->rope_original_max_position_embeddings;
    for (int64_t i = 0; i < c->head_dim / 2; i++) {
        const double f = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim), periods = original * f / (2 * pi);
        const double s = (periods - c->rope_low_freq_factor) / (c->rope_high_freq_factor - c->rope_low_freq_factor);
        factor[i] = periods > c->rope_high_freq_factor  ? 1
                    : periods < c->rope_low_freq_factor ? (float)c->rope_factor
                                                        : (float)(1 / ((1 - s) / c->rope_factor + s));
    }
}

// Other programs compute the factors in fp32: s is then off by about 1e-6, and the factor by at most 32 times that.
GxStatus gx_gguf_find_scaling(GxGgufWork *w, const GxGguf *g, const GxGgufTensor *t)
{
    static const double known[] = {1, 8, 32};
    const int64_t n = w->config.head_dim / 2;
    float *ours = w->rows, *theirs = w->rows + n;
    if (t->elements != n || 2 * n > GX_GGUF_FLOATS)
        return GX_FAIL(&w->g.error, GX_ERR_FORMAT, "%s: tensor %s has %ld elements; expected %ld, half a head", w->path,
                       t->name, (long)t->elements, (long)n);
    GX_TRY(gx_gguf_read(g, t, 0, n, theirs, &w->g.error));
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        GxLlamaConfig c = w->config;
        int64_t same = 0;
        snprintf(c.rope_type, sizeof c.rope_type, "%s", known[k] > 1 ? "llama3" : "default");
        c.rope_factor = known[k], c.rope_low_freq_factor = 1, c.rope_high_freq_factor = 4;
        c.rope_original_max_position_embeddings = 8192;
        gx_gguf_rope_factors(&c, ours);
        while (same < n && fabsf(ours[same] - theirs[same]) <= 1e-4f * ours[same]) same++;
        if (same < n) continue;
        if (known[k] > 1) w->config = c;
        return GX_OK;
    }
    return GX_FAIL(&w->g.error, GX_ERR_UNSUPPORTED,
                   "%s: %s scales RoPE in an unknown way; supported: LLaMA 3.1's and 3.2's, factors 8 and 32", w->path,
                   t->name);
}
#endif
