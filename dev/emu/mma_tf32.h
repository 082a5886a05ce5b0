// mma_tf32.h: a warp's product of small matrices of TF32 in tensor cores: mma.sync.aligned.m16n8k8.row.col with fp32
// sums, from sm_80 on. On a card it is that of galaxy/cuda/mma.cuh.
//
//     gx_mma_tf32(d, a, b0, b1);      // d [16,8] += a [16,8] b [8,8]; a register holds one element of TF32
//
// TF32 is fp32 with 10 bits of fraction, to which gx_tf32(x) rounds (cvt.rna.tf32.f32: ties away from zero). What a
// card makes of an element that was not rounded is its own affair: here it is a fault. A sum is cut off towards zero
// where fp32 ends, as cards do it: one that is carried through many products drifts. What a card drops before is its
// own.
//
// Sources: PTX ISA, "Matrix Fragments for mma.m16n8k8"; Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores".
#ifndef GX_EMU_MMA_TF32_H
#define GX_EMU_MMA_TF32_H
#include "mma_sync.h"
#include "small_float.h"

namespace emu
{

constexpr int mma_tf32_k = 8;

inline float tf32_element(unsigned x)
{
    const float value = __builtin_bit_cast(float, x);
    if (round_to_tf32(value) != value && value == value)
        kernel_fails("mma.sync: %.9g is no TF32; gx_tf32 rounds to one", (double)value);
    return value;
}

inline float cut_off(double x)
{
    const float nearest = (float)x;
    return fabs((double)nearest) > fabs(x) ? nextafterf(nearest, 0.0f) : nearest;
}

inline void mma_tf32_combine(Lanes<MmaFragments> in, Lanes<MmaSums> out)
{
    float a[mma_m][mma_tf32_k], b[mma_tf32_k][mma_n];
    for (int lane = 0; lane < warp_lanes; lane++) {
        const int group = lane / 4, k = lane % 4;
        for (int i = 0; i < 4; i++) a[group + i % 2 * 8][k + i / 2 * 4] = tf32_element(in[lane].a[i]);
        for (int i = 0; i < 2; i++) b[k + i * 4][group] = tf32_element(in[lane].b[i]);
    }
    for (int lane = 0; lane < warp_lanes; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = in[lane].d[i];
            for (int k = 0; k < mma_tf32_k; k++) sum += (double)a[row][k] * b[k][column];
            out[lane].d[i] = cut_off(sum);
        }
}

} // namespace emu

inline unsigned gx_tf32(float x) { return __builtin_bit_cast(unsigned, emu::round_to_tf32(x)); }

inline void gx_mma_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, GX_EMU_HERE)
{
    const emu::MmaFragments mine = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    const emu::MmaSums sums =
        emu::warp_collective<emu::MmaSums>(~0u, {"mma.sync", where}, mine, [](unsigned lanes, auto in, auto out) {
            emu::whole_warp(lanes, "mma.sync");
            emu::mma_tf32_combine(in, out);
        });
    for (int i = 0; i < 4; i++) d[i] = sums.d[i];
}

#endif
