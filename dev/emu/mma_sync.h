// mma_sync.h: a warp's product of small matrices in tensor cores: mma.sync.aligned.m16n8k16.row.col with fp32 sums.
//
//     gx_mma<__nv_bfloat16>(d, a, b0, b1);      // d [16,8] += a [16,16] b [16,8]; or <__half>
//
// A lane holds parts of each: two neighbours to a register of a and b, the one with the lower index in the lower half.
// Sums are taken in fp32 in the order of k; a card's order and roundings are its own.
#ifndef GX_EMU_MMA_SYNC_H
#define GX_EMU_MMA_SYNC_H
#include "words.h"

namespace emu
{

constexpr int mma_m = 16, mma_n = 8, mma_k = 16;

struct MmaFragments {
    float d[4];
    unsigned a[4], b[2];
};
struct MmaSums {
    float d[4];
};

template <class T> float mma_element(unsigned pair, int half)
{
    static_assert(sizeof(T) == 2);
    return (float)__builtin_bit_cast(T, (unsigned short)(pair >> 16 * half));
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": where the registers' elements lie.
template <class T> void mma_combine(Lanes<MmaFragments> in, Lanes<MmaSums> out)
{
    float a[mma_m][mma_k], b[mma_k][mma_n], d[mma_m][mma_n];
    for (int lane = 0; lane < warp_lanes; lane++) {
        const int group = lane / 4, pair = lane % 4 * 2;
        const MmaFragments &f = in[lane];
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < 4; i++) a[group + i % 2 * 8][pair + half + i / 2 * 8] = mma_element<T>(f.a[i], half);
            for (int i = 0; i < 2; i++) b[pair + half + i * 8][group] = mma_element<T>(f.b[i], half);
            for (int i = 0; i < 2; i++) d[group + i * 8][pair + half] = f.d[i * 2 + half];
        }
    }
    for (int m = 0; m < mma_m; m++)
        for (int k = 0; k < mma_k; k++)
            for (int n = 0; n < mma_n; n++) d[m][n] += a[m][k] * b[k][n];
    for (int lane = 0; lane < warp_lanes; lane++)
        for (int i = 0; i < 4; i++) out[lane].d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

inline void whole_warp(unsigned lanes, const char *what)
{
    if (lanes != ~0u) kernel_fails("%s needs all lanes of a warp; this one has %s", what, text_of_lanes(lanes).c_str());
}

} // namespace emu

template <class T> void gx_mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, GX_EMU_HERE)
{
    const emu::MmaFragments mine = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    const emu::MmaSums sums =
        emu::warp_collective<emu::MmaSums>(~0u, {"mma.sync", where}, mine, [](unsigned lanes, auto in, auto out) {
            emu::whole_warp(lanes, "mma.sync");
            emu::mma_combine<T>(in, out);
        });
    for (int i = 0; i < 4; i++) d[i] = sums.d[i];
}

#endif
