// stmatrix.h: a warp's fragments of matrices into shared memory: stmatrix.sync.aligned.m8n8 (x1, x2, x4; .trans), of an
// H100. The counterpart of ldmatrix.h; under nvcc the instruction itself.
//
//     gx_stmatrix<4, false>(row, r);   // N matrices of 8 x 8 elements of 16 bits; lane i brings the address of row i%8
//                                      // of matrix i/8
//
// Register i of a lane has two neighbours of row lane/4 of matrix i, the elements lane%4*2 and the next; transposed, of
// column lane/4. A row is written by the lane that brought its address, when it goes on: who reads it without a barrier
// or __syncwarp in between finds what was there. Addresses of lanes from 8*N on are not looked at.
//
// Source: PTX ISA, "stmatrix". Not modelled: bank conflicts.
#ifndef GX_EMU_STMATRIX_H
#define GX_EMU_STMATRIX_H
#ifdef GX_EMU
#include "ldmatrix.h"

namespace emu
{

struct StoredRow {
    unsigned short x[8];
};

template <int N, bool TRANS> void stmatrix_combine(Lanes<MatrixParts<N>> parts, Lanes<StoredRow> rows)
{
    for (int i = 0; i < N; i++)
        for (int lane = 0; lane < warp_lanes; lane++)
            for (int half = 0; half < 2; half++) {
                const int row = lane / 4, column = lane % 4 * 2 + half;
                const unsigned short x = (unsigned short)(parts[lane].r[i] >> 16 * half);
                if (TRANS) rows[i * 8 + column].x[row] = x;
                else rows[i * 8 + row].x[column] = x;
            }
}

} // namespace emu

template <int N, bool TRANS> void gx_stmatrix(void *row, const unsigned (&r)[N], GX_EMU_HERE)
{
    static_assert(N == 1 || N == 2 || N == 4);
    emu::MatrixParts<N> mine;
    memcpy(mine.r, r, sizeof mine.r);
    const bool brings_a_row = emu::self().lane < 8 * N;
    if (brings_a_row && emu::shared_address(row) % 16) emu::kernel_fails("stmatrix: a row at %p: misaligned", row);
    const auto stored =
        emu::warp_collective<emu::StoredRow>(~0u, {"stmatrix", where}, mine, [](unsigned lanes, auto parts, auto rows) {
            emu::whole_warp(lanes, "stmatrix");
            emu::stmatrix_combine<N, TRANS>(parts, rows);
        });
    if (brings_a_row) memcpy(row, stored.x, sizeof stored.x);
}

#else

template <int N, bool TRANS> static __device__ __forceinline__ void gx_stmatrix(void *row, const unsigned (&r)[N])
{
    static_assert(N == 1 || N == 2 || N == 4, "one, two or four matrices");
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (N == 1 && !TRANS)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};\n" ::"r"(at), "r"(r[0]) : "memory");
    else if constexpr (N == 1)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};\n" ::"r"(at), "r"(r[0]) : "memory");
    else if constexpr (N == 2 && !TRANS)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};\n" ::"r"(at), "r"(r[0]), "r"(r[1])
                     : "memory");
    else if constexpr (N == 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};\n" ::"r"(at), "r"(r[0]), "r"(r[1])
                     : "memory");
    else if constexpr (!TRANS)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(at), "r"(r[0]), "r"(r[1]),
                     "r"(r[2]), "r"(r[3])
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(at), "r"(r[0]),
                     "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
}

#endif
#endif
