// cpu/dropout.h: ops/dropout.h on the CPU.
#ifndef GX_CPU_DROPOUT_H
#define GX_CPU_DROPOUT_H
#include "../ops/dropout.h"
GX_BEGIN

void gx_cpu_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d, GxDtype dtype);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_DROPOUT_IMPLEMENTED)
#define GX_CPU_DROPOUT_IMPLEMENTED
#include "team.h"
#include "vec.h"

// A row is processed in chunks; a chunk's random words are generated at once, into memory that stays in the L1 cache.
enum { GX__CPU_CHUNK_DRAWS = 64, GX__CPU_CHUNK_COLS = 4 * GX__CPU_CHUNK_DRAWS };

// The parameters of random numbers, the same for all rows.
typedef struct {
    uint64_t seed;
    uint32_t step, site, threshold;
    float scale;
    int drops;            // 0: nothing is dropped and nothing generated
    int64_t first_sample; // of the given rows, in the whole training
} GxCpuRandom;

static inline GxCpuRandom gx__cpu_random(const GxContext *g, const GxDropout *d)
{
    GxCpuRandom random = GX_ZERO;
    random.scale = 1;
    if (!(d->p > 0)) return random;
    random.drops = 1;
    random.seed = g->step->seed;
    random.step = (uint32_t)g->step->step;
    random.site = d->site;
    random.threshold = gx_dropout_threshold(d->p);
    random.scale = gx_dropout_scale(d->p);
    random.first_sample = g->step->first_sample + d->first_sample;
    return random;
}

// The index of row r's first Philox call.
static inline uint64_t gx__cpu_first_random(const GxCpuRandom *random, const GxDropout *d, int64_t r, int64_t C)
{
    if (!random->drops) return 0;
    return gx_dropout_row(random->first_sample, d->T, d->B, d->rows ? d->rows[r] : d->first_row + r, C);
}

// words[c]: the random bits of n elements, from Philox call `first` on. Philox is ten rounds of two 32-bit products;
// calls are computed side by side, so that compilers vectorize them.
static GX_CPU_INLINE void gx__cpu_random_words(uint32_t *words, const GxCpuRandom *d, uint64_t first, int64_t n)
{
    const uint64_t seed = d->seed;
    const uint32_t step = d->step, site = d->site;
    GX_OMP(simd)
    for (int64_t i = 0; i < (n + 3) / 4; i++) {
        const GxRandom4 r = gx_philox(seed, first + (uint64_t)i, step, site);
        words[4 * i] = r.w[0], words[4 * i + 1] = r.w[1], words[4 * i + 2] = r.w[2], words[4 * i + 3] = r.w[3];
    }
}

// y[c] = kept ? x[c]/(1 - p) : 0; `lead` words of the first call belong to earlier columns.
static GX_CPU_INLINE void gx__cpu_dropout_row(void *y, const void *x, int64_t C, const GxCpuRandom *d, uint64_t first,
                                              int64_t lead, GxDtype dtype)
{
    uint32_t words[GX__CPU_CHUNK_COLS + 4];
    const uint32_t threshold = d->threshold;
    const float scale = d->scale;
    for (int64_t c = 0; c < C; c += GX__CPU_CHUNK_COLS) {
        const int64_t n = gx_min(GX__CPU_CHUNK_COLS, C - c);
        gx__cpu_random_words(words, d, first + (uint64_t)c / 4, lead + n);
        GX_OMP(simd)
        for (int64_t i = 0; i < n; i++) {
            const float kept = gx_cpu_load(x, c + i, dtype) * scale;
            gx_cpu_store(y, c + i, words[lead + i] >= threshold ? kept : 0, dtype);
        }
    }
}

void gx_cpu_dropout(GxContext *g, void *y, const void *x, int64_t R, int64_t C, const GxDropout *d, GxDtype dtype)
{
    const GxCpuRandom random = gx__cpu_random(g, d);
    const int64_t columns = d->columns ? d->columns : C;
    GX_OMP(parallel for schedule(static) num_threads(gx_cpu_team(g, R * C)))
    for (int64_t r = 0; r < R; r++)
        GX_CPU_TYPES(dtype, gx__cpu_dropout_row, gx_cpu_at(y, r * C, dtype), gx_cpu_from(x, r * C, dtype), C, &random,
                     gx__cpu_first_random(&random, d, r, columns) + (uint64_t)d->first_column / 4, d->first_column % 4);
}
#endif
