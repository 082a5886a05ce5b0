// ldmatrix.h: a warp's fragments of matrices in shared memory: ldmatrix.sync.aligned.m8n8 (x1, x2, x4; .trans).
//
//     gx_ldmatrix<4, false>(r, row);   // N matrices of 8 x 8 elements of 16 bits; lane i brings row i%8 of matrix i/8
//
// Register i of a lane gets two neighbours of row lane/4 of matrix i, the elements lane%4*2 and the next; transposed,
// of column lane/4. Each lane reads its row when it comes, before the others have come: who wrote it without a barrier
// or __syncwarp in between shows.
//
// A matrix is read at once: its 8 rows of 16 bytes should lie in different banks. How often they do not is counted;
// with GX_EMU_BANKS=refuse it is a fault (banks.h counts all other accesses, too).
#ifndef GX_EMU_LDMATRIX_H
#define GX_EMU_LDMATRIX_H
#include "mma_sync.h"

namespace emu
{

inline long long bank_conflicts; // further accesses that matrices took because rows met in a bank

struct MatrixRow {
    unsigned short x[8];
    unsigned address;
};
template <int N> struct MatrixParts {
    unsigned r[N];
};

// Of one matrix. The same row twice is no conflict.
inline int conflicts_of_matrix(Lanes<MatrixRow> rows, int first)
{
    BankRequest r = {0xffu << first, {}};
    for (int lane = first; lane < first + 8; lane++) r.address[lane] = rows[lane].address;
    return bank_passes(r, r.lanes, sizeof rows[0].x, BankUse::load) - 1;
}

template <int N, bool TRANS> void ldmatrix_combine(Lanes<MatrixRow> rows, Lanes<MatrixParts<N>> out)
{
    for (int i = 0; i < N; i++) {
        const int conflicts = conflicts_of_matrix(rows, i * 8);
        bank_conflicts += conflicts;
        if (conflicts && refuses_bank_conflicts())
            kernel_fails("ldmatrix: the rows of matrix %d, the first at %u in shared memory, take %d accesses", i,
                         rows[i * 8].address, conflicts + 1);
        for (int lane = 0; lane < warp_lanes; lane++) {
            unsigned pair = 0;
            for (int half = 0; half < 2; half++) {
                const int row = lane / 4, column = lane % 4 * 2 + half;
                const unsigned x = TRANS ? rows[i * 8 + column].x[row] : rows[i * 8 + row].x[column];
                pair |= x << 16 * half;
            }
            out[lane].r[i] = pair;
        }
    }
}

} // namespace emu

// Addresses of lanes from 8*N on are not looked at.
template <int N, bool TRANS> __forceinline__ void gx_ldmatrix(unsigned (&r)[N], const void *row, GX_EMU_HERE)
{
    static_assert(N == 1 || N == 2 || N == 4);
    emu::MatrixRow mine = {};
    if (emu::self().lane < 8 * N) {
        mine.address = emu::shared_address(row);
        if (mine.address % 16) emu::kernel_fails("ldmatrix: a row at %p: misaligned", row);
        memcpy(mine.x, row, sizeof mine.x);
    }
    const auto parts = emu::warp_collective<emu::MatrixParts<N>>(~0u, {"ldmatrix", where}, mine,
                                                                 [](unsigned lanes, auto rows, auto out) {
                                                                     emu::whole_warp(lanes, "ldmatrix");
                                                                     emu::ldmatrix_combine<N, TRANS>(rows, out);
                                                                 });
    for (int i = 0; i < N; i++) r[i] = parts.r[i];
}

#endif
