// test_emu_tiles.h: a part of test_emu.cu: instructions on a warp's tiles: stmatrix (stmatrix.h), which no kernel of
// the library uses yet, and products of TF32 (mma_tf32.h), which attention in fp32 uses. Where elements lie is written
// down from the formulas of the PTX ISA.
#ifndef GX_TEST_EMU_TILES_H
#define GX_TEST_EMU_TILES_H
#include "ldmatrix.h"
#include "mma_tf32.h"
#include "stmatrix.h"

// Element [row,column] of matrix i is 64 i + 8 row + column, in the registers as in y; back again by ldmatrix.
template <int N, bool TRANS> __global__ void store_matrices(unsigned short *y, unsigned *back, int stride)
{
    GX_DYNAMIC_SHARED(char, tile);
    const int lane = (int)threadIdx.x;
    unsigned r[N];
    for (int i = 0; i < N; i++) {
        const unsigned first = (unsigned)(64 * i + 8 * (lane >> 2) + 2 * (lane & 3));
        r[i] = first | (first + 1) << 16;
    }
    gx_stmatrix<N, TRANS>(lane < 8 * N ? tile + lane * stride : nullptr, r);
    __syncwarp();
    if (lane < 8 * N) memcpy(y + 8 * lane, tile + lane * stride, 16);
    gx_ldmatrix<N, TRANS>(r, lane < 8 * N ? tile + lane * stride : nullptr);
    for (int i = 0; i < N; i++) back[i * 32 + lane] = r[i];
}
template <int N, bool TRANS> static void check_stmatrix(const char *order)
{
    for (int stride : {16, 48, 144}) {
        Buffer<unsigned short> y(64 * N);
        Buffer<unsigned> back(32 * N);
        GX_LAUNCH((store_matrices<N, TRANS>), 1, 32, (size_t)(32 * stride), 0, y.data, back.data, stride);
        const std::vector<unsigned short> stored = y.download();
        const std::vector<unsigned> loaded = back.download();
        for (int at = 0; at < 64 * N; at++) {
            const int i = at / 64, row = at / 8 % 8, column = at % 8;
            const int expected = 64 * i + (TRANS ? 8 * column + row : 8 * row + column);
            CHECK(stored[(size_t)at] == expected, "%s: x%d%s: matrix %d [%d,%d] is %d, not %d", order, N,
                  TRANS ? ".trans" : "", i, row, column, stored[(size_t)at], expected);
        }
        for (int at = 0; at < 32 * N; at++) {
            const unsigned first = (unsigned)(2 * at);
            CHECK(loaded[(size_t)at] == (first | (first + 1) << 16), "%s: x%d%s: lane %d gets %#x back", order, N,
                  TRANS ? ".trans" : "", at % 32, loaded[(size_t)at]);
        }
    }
}
TEST(stmatrix_puts_each_lanes_parts_where_ldmatrix_finds_them)
{
    in_every_order([](const char *order) {
        check_stmatrix<1, false>(order), check_stmatrix<1, true>(order);
        check_stmatrix<2, false>(order), check_stmatrix<2, true>(order);
        check_stmatrix<4, false>(order), check_stmatrix<4, true>(order);
    });
}

// a [16,8], b [8,8], d [16,8], all row by row
__global__ void multiply_tf32(float *d, const float *a, const float *b)
{
    const int group = (int)threadIdx.x >> 2, k = (int)threadIdx.x & 3;
    const int row[4] = {group, group, group + 8, group + 8}, column[4] = {2 * k, 2 * k + 1, 2 * k, 2 * k + 1};
    const unsigned in_a[4] = {gx_tf32(a[group * 8 + k]), gx_tf32(a[(group + 8) * 8 + k]), gx_tf32(a[group * 8 + k + 4]),
                              gx_tf32(a[(group + 8) * 8 + k + 4])};
    float sums[4];
    for (int i = 0; i < 4; i++) sums[i] = d[row[i] * 8 + column[i]];
    gx_mma_tf32(sums, in_a, gx_tf32(b[k * 8 + group]), gx_tf32(b[(k + 4) * 8 + group]));
    for (int i = 0; i < 4; i++) d[row[i] * 8 + column[i]] = sums[i];
}
TEST(mma_sync_of_tf32_multiplies_fragments)
{
    in_every_order([](const char *order) {
        std::vector<float> a, b, d;
        for (int i = 0; i < 128; i++) a.push_back((float)(i * 37 % 101 - 50)), d.push_back((float)(i * 11 % 31));
        for (int i = 0; i < 64; i++) b.push_back((float)(i * 53 % 97 - 48) / 64);
        Buffer<float> on_card_a(a), on_card_b(b), on_card_d(d);
        GX_LAUNCH(multiply_tf32, 1, 32, 0, 0, on_card_d.data, on_card_a.data, on_card_b.data);
        const std::vector<float> product = on_card_d.download();
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 8; column++) {
                float expected = d[(size_t)(row * 8 + column)]; // of whole 64ths: no rounding
                for (int k = 0; k < 8; k++) expected += a[(size_t)(row * 8 + k)] * b[(size_t)(k * 8 + column)];
                const float got = product[(size_t)(row * 8 + column)];
                CHECK(got == expected, "%s: [%d,%d] is %g, not %g", order, row, column, got, expected);
            }
    });
}
TEST(sums_of_tf32_are_cut_off_towards_zero)
{
    for (const float sign : {1.0f, -1.0f}) {
        std::vector<float> a(128, ldexpf(1, -13)), b(64, sign * ldexpf(1, -13)), d(128, sign);
        for (int column = 0; column < 8; column++) b[(size_t)column] = 0;
        Buffer<float> on_card_a(a), on_card_b(b), on_card_d(d);
        GX_LAUNCH(multiply_tf32, 1, 32, 0, 0, on_card_d.data, on_card_a.data, on_card_b.data);
        for (const float got : on_card_d.download()) // 1 + 2^-23 is the next number, and the sum is 1 + 7/8 * 2^-23
            CHECK(got == sign, "%g and 7 times 2^-26 are %.9g", sign, got);
    }
}
TEST(tf32_has_ten_bits_of_fraction_and_rounds_ties_away_from_zero)
{
    const float ulp = 1.0f / 1024;
    const float rounded[][2] = {{1 + 0.49f * ulp, 1},
                                {1 + 0.5f * ulp, 1 + ulp},
                                {-1 - 0.5f * ulp, -1 - ulp},
                                {1 + 1.5f * ulp, 1 + 2 * ulp},
                                {3, 3},
                                {0, 0}};
    for (const float(&r)[2] : rounded)
        CHECK(__uint_as_float(gx_tf32(r[0])) == r[1], "%.9g becomes %.9g, not %.9g", r[0],
              __uint_as_float(gx_tf32(r[0])), r[1]);
}

#endif
