// random.h: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): a counter in, four
// random words out.
//
// There is no generator object and no state: every number is a function of where it is used. Key = seed (64 bits);
// counter = (GLOBAL element index / 4: 64 bits, step: 32 bits, site: 32 bits). Whatever the topology, element i of site
// s at step t is the same number.
#ifndef GX_RANDOM_H
#define GX_RANDOM_H
#include "common.h"
GX_BEGIN

typedef struct {
    uint32_t w[4];
} GxRandom4;

static inline GX_ANYWHERE GxRandom4 gx_philox(uint64_t seed, uint64_t block, uint32_t step, uint32_t site)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = step, c3 = site;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u; // Weyl sequence of the golden ratio and of sqrt(3) - 1
        k1 += 0xBB67AE85u;
    }
    GxRandom4 r = {{c0, c1, c2, c3}};
    return r;
}

// The 32 random bits of element `index`.
static inline uint32_t gx_random_bits(uint64_t seed, uint64_t index, uint32_t step, uint32_t site)
{
    return gx_philox(seed, index / 4, step, site).w[index % 4];
}

// Uniform in [0, 1), 24 bits.
static inline float gx_random_uniform(uint64_t seed, uint64_t index, uint32_t step, uint32_t site)
{
    return (float)(gx_random_bits(seed, index, step, site) >> 8) * (1.0f / 16777216.0f);
}

// Standard normal, by Box-Muller: elements 2i and 2i+1 are the cosine and the sine of one pair of uniforms.
float gx_random_normal(uint64_t seed, uint64_t index, uint32_t step, uint32_t site);

// A site for each purpose and number: 8 bits of purpose, 24 of number.
enum {
    GX_SITE_INIT = 1,
    GX_SITE_SHUFFLE = 2,
    GX_SITE_SAMPLE = 3,
    GX_SITE_DROPOUT = 4,
    GX_SITE_MASK = 5,  // which tokens are masked
    GX_SITE_PAIRS = 6, // which texts are paired
    GX_SITE_LORA = 7   // dropout of LoRA's input
};
static inline uint32_t gx_random_site(int purpose, int64_t number)
{
    return ((uint32_t)purpose << 24) | ((uint32_t)number & 0xFFFFFFu);
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RANDOM_IMPLEMENTED)
#define GX_RANDOM_IMPLEMENTED
#include <math.h>

float gx_random_normal(uint64_t seed, uint64_t index, uint32_t step, uint32_t site)
{
    GxRandom4 r = gx_philox(seed, index / 4, step, site);
    int pair = (int)(index % 4) & 2;
    double u = ((double)r.w[pair] + 1.0) * (1.0 / 4294967296.0); // (0, 1]
    double angle = 6.283185307179586 * ((double)r.w[pair + 1] * (1.0 / 4294967296.0));
    double radius = sqrt(-2.0 * log(u));
    return (float)(radius * (index & 1 ? sin(angle) : cos(angle)));
}
#endif
