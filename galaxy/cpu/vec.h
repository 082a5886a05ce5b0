// vec.h: scalar functions that compilers turn into vector code inside a `GX_OMP(simd)` loop, where libm's would stay calls.
#ifndef GX_CPU_VEC_H
#define GX_CPU_VEC_H
#include "../base/common.h"
#include <string.h>

// exp(x) to about 1.5 ulp; 0 below -87, saturated above 88.3 (2.2e38, so that 1/(1 + exp) stays exact); NaN stays NaN.
// x = n*ln2 + r with |r| <= ln2/2; exp(r) by its Taylor polynomial of degree 7 (next term below 5.2e-9); times 2^n by its bits.
static inline float gx_cpu_exp(float x)
{
    float z = x > -87.0f ? x : -87.0f; // NaN too: it must not become an integer
    z = z < 88.3f ? z : 88.3f;
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to the nearest integer
    float n = (z * 1.44269504f + magic) - magic;
    float r = (z - n * 0.693359375f) - n * -2.12194440e-4f; // ln2 in two parts, the first exact in 9 bits
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits = (int32_t)((uint32_t)((int32_t)n + 127) << 23);
    float power;
    memcpy(&power, &bits, 4);
    return x >= -87.0f ? p * power : x < -87.0f ? 0.0f : x;
}
#endif
