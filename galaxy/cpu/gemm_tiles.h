// gemm_tiles.h: Galaxy's own matrix products, in C: all products if no library is compiled in, and bf16 products on
// CPUs without instructions for bf16. It needs gcc or clang, whose vector types map to the registers of the target
// machine (AVX-512, AVX, SSE2, NEON); there are no intrinsics.
//
// A thread computes a block of C at a time. For each panel of K it copies the block's rows of A and columns of B into
// contiguous buffers, converted to fp32 if they are bf16: columns of B, and rows of a transposed A, in the order in
// which they are multiplied, other rows of A as they are. A tile is a few rows by two vectors of C; its sums stay in
// registers over the whole panel. Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
// 2008.
//
// Numerics: sums are computed in fp32, panel by panel in the order of K, for any number of threads, so the same
// arguments give the same bits. A bf16 result is rounded once, after the last panel.
//
// Memory: up to a megabyte per thread, allocated for the product and freed after it.
#ifndef GX_CPU_GEMM_TILES_H
#define GX_CPU_GEMM_TILES_H
#include "../base/status.h"
#include "gemm_args.h"
GX_BEGIN

// Computes p, whose arguments gx_cpu_gemm has checked. Fails only with GX_ERR_MEMORY.
GxStatus gx_cpu_gemm_tiles(const GxGemm *p, int threads, GxError *err);
const char *gx_cpu_gemm_tile_name(void); // the compiled-in tiles: "tiles of 6 x 16"

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_GEMM_TILES_IMPLEMENTED)
#define GX_CPU_GEMM_TILES_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include "vec.h"
#ifdef _OPENMP
#include <omp.h>
#endif

// A tile's sums, two vectors of B and an element of A fill the registers: 31 of the 32 of AVX-512, 15 of 16 elsewhere.
#if defined(__AVX512F__)
enum { GX__TILE_LANES = 16, GX__TILE_M = 14 };
#elif defined(__AVX__)
enum { GX__TILE_LANES = 8, GX__TILE_M = 6 };
#else
enum { GX__TILE_LANES = 4, GX__TILE_M = 6 };
#endif
enum { GX__TILE_N = 2 * GX__TILE_LANES };
// The largest block of C and the longest panel. A block's part of a panel of A is 300 KB, which fits in the L2 cache,
// and a tile's part of a panel of B is 20 KB (40 KB with AVX-512), which fits in L1.
enum { GX__BLOCK_M = 240 / GX__TILE_M * GX__TILE_M, GX__BLOCK_N = 320, GX__BLOCK_K = 320 };

// Tiles' loops are unrolled at every optimization level, so that their sums stay in registers.
#if defined(__clang__)
#define GX__TILE_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__) && !defined(__CUDACC__)
#define GX__TILE_UNROLL _Pragma("GCC unroll 16")
#else
#define GX__TILE_UNROLL
#endif

typedef float GxTileVector __attribute__((vector_size(4 * GX__TILE_LANES), aligned(4), may_alias));

// A thread's copies of a panel, and its block of C if C is rounded.
typedef struct {
    float *a; // [rows][BLOCK_K]; if A is stored transposed [rows/TILE_M][k][TILE_M]
    float *b; // [columns/TILE_N][k][TILE_N]
    float *c; // [rows][columns]
} GxTileRoom;

// How many floats a row of A takes in a panel.
static int64_t gx__tile_a_row(const GxGemm *p, int64_t k) { return p->trans_a ? k : (int64_t)GX__BLOCK_K; }

// C[i,j] = alpha * sum_l a[i*row + l*step] b[l,j] + beta * C[i,j]; beta 0: C is only written.
static GX_CPU_INLINE void gx__tile_by(float *c, int64_t ldc, const float *a, int64_t row, int64_t step, const float *b,
                                      int64_t k, float alpha, float beta)
{
    const GxTileVector zero = GX_ZERO;
    GxTileVector sum[GX__TILE_M][2];
    GX__TILE_UNROLL
    for (int i = 0; i < GX__TILE_M; i++) {
        sum[i][0] = sum[i][1] = zero;
        __builtin_prefetch(c + i * ldc, 1);
        __builtin_prefetch(c + i * ldc + GX__TILE_N - 1, 1);
    }
    for (int64_t l = 0; l < k; l++, a += step, b += GX__TILE_N) {
        const GxTileVector left = *(const GxTileVector *)b, right = *(const GxTileVector *)(b + GX__TILE_LANES);
        GX__TILE_UNROLL
        for (int i = 0; i < GX__TILE_M; i++) sum[i][0] += a[i * row] * left, sum[i][1] += a[i * row] * right;
    }
    GX__TILE_UNROLL
    for (int i = 0; i < GX__TILE_M; i++) {
        GxTileVector *left = (GxTileVector *)(c + i * ldc), *right = (GxTileVector *)(c + i * ldc + GX__TILE_LANES);
        *left = beta == 0 ? alpha * sum[i][0] : alpha * sum[i][0] + beta * *left;
        *right = beta == 0 ? alpha * sum[i][1] : alpha * sum[i][1] + beta * *right;
    }
}

// The strides are constants that the compiler can put into instructions.
static void gx__tile(float *c, int64_t ldc, const float *a, int trans_a, const float *b, int64_t k, float alpha,
                     float beta)
{
    if (trans_a) gx__tile_by(c, ldc, a, 1, GX__TILE_M, b, k, alpha, beta);
    else gx__tile_by(c, ldc, a, GX__BLOCK_K, 1, b, k, alpha, beta);
}

// A tile at the edge of C, with only m rows and n columns: computes the whole tile, on a copy.
static void gx__tile_cut(float *c, int64_t ldc, int64_t m, int64_t n, const float *a, int trans_a, const float *b,
                         int64_t k, float alpha, float beta)
{
    float whole[GX__TILE_M * GX__TILE_N] = GX_ZERO;
    for (int64_t i = 0; beta != 0 && i < m; i++) memcpy(whole + i * GX__TILE_N, c + i * ldc, (size_t)n * sizeof *c);
    gx__tile(whole, GX__TILE_N, a, trans_a, b, k, alpha, beta);
    for (int64_t i = 0; i < m; i++) memcpy(c + i * ldc, whole + i * GX__TILE_N, (size_t)n * sizeof *c);
}

// Copies n rows of A, or columns of B, of k elements each, `width` at a time: [n/width][k][width], with zeros after the
// last one. Element l of row i is x[first + i*ld + l] if in_rows, otherwise x[first + l*ld + i].
static GX_CPU_INLINE void gx__tile_pack(float *to, int64_t width, const void *x, int64_t first, int64_t ld, int in_rows,
                                        int64_t n, int64_t k, GxDtype type)
{
    const int64_t whole = n / width * width;
    if (in_rows)
        for (int64_t i = 0; i < whole; i += width)
            for (int64_t l = 0; l < k; l++)
                for (int64_t r = 0; r < width; r++)
                    to[i * k + l * width + r] = gx_cpu_load(x, first + (i + r) * ld + l, type);
    else
        for (int64_t l = 0; l < k; l++)
            for (int64_t i = 0; i < whole; i += width) {
                GX_OMP(simd)
                for (int64_t r = 0; r < width; r++)
                    to[i * k + l * width + r] = gx_cpu_load(x, first + l * ld + i + r, type);
            }
    for (int64_t l = 0; l < k && whole < n; l++)
        for (int64_t i = whole; i < whole + width; i++)
            to[whole * k + l * width + i - whole] =
                i < n ? gx_cpu_load(x, first + (in_rows ? i * ld + l : l * ld + i), type) : 0;
}
static GX_CPU_INLINE void gx__tile_pack_a(float *to, const GxGemm *p, int64_t m0, int64_t m, int64_t k0, int64_t k,
                                          GxDtype type)
{
    if (p->trans_a) {
        gx__tile_pack(to, GX__TILE_M, p->A, k0 * p->lda + m0, p->lda, 0, m, k, type);
        return;
    }
    for (int64_t i = 0; i < m; i++) {
        GX_OMP(simd)
        for (int64_t l = 0; l < k; l++) to[i * GX__BLOCK_K + l] = gx_cpu_load(p->A, (m0 + i) * p->lda + k0 + l, type);
    }
    for (int64_t i = m; i < gx_round_up(m, GX__TILE_M); i++) memset(to + i * GX__BLOCK_K, 0, (size_t)k * sizeof *to);
}
static GX_CPU_INLINE void gx__tile_pack_b(float *to, const GxGemm *p, int64_t n0, int64_t n, int64_t k0, int64_t k,
                                          GxDtype type)
{
    const int64_t first = p->trans_b ? n0 * p->ldb + k0 : k0 * p->ldb + n0;
    gx__tile_pack(to, GX__TILE_N, p->B, first, p->ldb, p->trans_b, n, k, type);
}

// Computes the tiles of c[m,n], which is at row m0 of C, for the columns of B in s.
static void gx__tile_rows(const GxTileRoom *s, float *c, int64_t ldc, const GxGemm *p, int64_t m0, int64_t m, int64_t n,
                          int64_t k0, int64_t k)
{
    const float beta = k0 ? 1 : p->beta;
    GX_CPU_TYPES(p->type_ab, gx__tile_pack_a, s->a, p, m0, m, k0, k);
    for (int64_t j = 0; j < n; j += GX__TILE_N)
        for (int64_t i = 0; i < m; i += GX__TILE_M) {
            const float *a = s->a + i * gx__tile_a_row(p, k), *b = s->b + j * k;
            const int64_t rows = gx_min(GX__TILE_M, m - i), cols = gx_min(GX__TILE_N, n - j);
            float *to = c + i * ldc + j;
            if (rows == GX__TILE_M && cols == GX__TILE_N) gx__tile(to, ldc, a, p->trans_a, b, k, p->alpha, beta);
            else gx__tile_cut(to, ldc, rows, cols, a, p->trans_a, b, k, p->alpha, beta);
        }
}

// The length of the pieces if n is divided into as few as `most` allows, of about equal length, in whole units.
static int64_t gx__tile_even(int64_t n, int64_t most, int64_t unit)
{
    return gx_round_up(gx_ceil_div(n, gx_ceil_div(n, most)), unit);
}
static int64_t gx__tile_panel(const GxGemm *p) { return gx__tile_even(p->K, GX__BLOCK_K, 1); }

// Computes c[m,n], which is at row m0 and column n0 of C; n up to BLOCK_N.
static void gx__tile_block(const GxTileRoom *s, float *c, int64_t ldc, const GxGemm *p, int64_t m0, int64_t m,
                           int64_t n0, int64_t n)
{
    const int64_t panel = gx__tile_panel(p), rows = gx__tile_even(m, GX__BLOCK_M, GX__TILE_M);
    for (int64_t k0 = 0; k0 < p->K; k0 += panel) {
        const int64_t k = gx_min(panel, p->K - k0);
        GX_CPU_TYPES(p->type_ab, gx__tile_pack_b, s->b, p, n0, n, k0, k);
        for (int64_t i = 0; i < m; i += rows)
            gx__tile_rows(s, c + i * ldc, ldc, p, m0 + i, gx_min(rows, m - i), n, k0, k);
    }
}

// The same if C is bf16: summed in fp32 and rounded once; m up to BLOCK_M.
static void gx__tile_block_rounded(const GxTileRoom *s, const GxGemm *p, int64_t m0, int64_t m, int64_t n0, int64_t n)
{
    uint16_t *to = (uint16_t *)p->C + m0 * p->ldc + n0;
    for (int64_t i = 0; p->beta != 0 && i < m; i++) {
        GX_OMP(simd)
        for (int64_t j = 0; j < n; j++) s->c[i * n + j] = gx_from_bf16(to[i * p->ldc + j]);
    }
    gx__tile_block(s, s->c, n, p, m0, m, n0, n);
    for (int64_t i = 0; i < m; i++) {
        GX_OMP(simd)
        for (int64_t j = 0; j < n; j++) to[i * p->ldc + j] = gx_to_bf16(s->c[i * n + j]);
    }
}

// The size of the blocks that are divided among threads: of about equal size, and small enough for each thread to get
// some.
static void gx__tile_blocks(const GxGemm *p, int threads, int64_t *m, int64_t *n)
{
    int64_t most_m = p->type_c == GX_BF16 ? GX__BLOCK_M : 4 * GX__BLOCK_M, most_n = GX__BLOCK_N;
    for (;;) {
        *m = gx__tile_even(gx_max(p->M, 1), most_m, GX__TILE_M);
        *n = gx__tile_even(gx_max(p->N, 1), most_n, GX__TILE_N);
        if (threads == 1 || gx_ceil_div(p->M, *m) * gx_ceil_div(p->N, *n) >= 4 * threads) return;
        if (*m <= 4 * GX__TILE_M && *n <= 2 * GX__TILE_N) return;
        if (*m > *n) most_m = *m / 2;
        else most_n = *n / 2;
    }
}

const char *gx_cpu_gemm_tile_name(void)
{
    return GX__TILE_LANES == 16 ? "tiles of 14 x 32" : GX__TILE_LANES == 8 ? "tiles of 6 x 16" : "tiles of 6 x 8";
}

GxStatus gx_cpu_gemm_tiles(const GxGemm *p, int threads, GxError *err)
{
    int64_t m, n;
    gx__tile_blocks(p, threads, &m, &n);
    const int64_t rows = gx_round_up(gx_min(m, GX__BLOCK_M), GX__TILE_M), cols = gx_round_up(n, GX__TILE_N);
    const int64_t panel = gx__tile_panel(p), a = gx_round_up(rows * gx__tile_a_row(p, panel), 16),
                  b = gx_round_up(cols * panel, 16);
    const int64_t each = a + b + (p->type_c == GX_BF16 ? gx_round_up(m * n, 16) : 0); // floats, in whole cache lines
    const int64_t across = gx_ceil_div(p->N, n), blocks = gx_ceil_div(p->M, m) * across;
    char *taken = (char *)malloc((size_t)(gx_max(threads, 1) * each * 4 + 64));
    if (!taken)
        return GX_FAIL(err, GX_ERR_MEMORY,
                       "no memory for the panels of a matrix product: %ld KB for each of %d threads",
                       (long)(each * 4 >> 10), threads);
    float *room = (float *)(taken + (64 - (uintptr_t)taken % 64) % 64);
    GX_OMP(parallel for schedule(dynamic) num_threads(threads))
    for (int64_t i = 0; i < blocks; i++) {
#ifdef _OPENMP
        float *mine = room + omp_get_thread_num() * each;
#else
        float *mine = room;
#endif
        const GxTileRoom s = {mine, mine + a, mine + a + b};
        const int64_t m0 = i / across * m, n0 = i % across * n, here = gx_min(m, p->M - m0),
                      wide = gx_min(n, p->N - n0);
        if (p->type_c == GX_BF16) gx__tile_block_rounded(&s, p, m0, here, n0, wide);
        else gx__tile_block(&s, (float *)p->C + m0 * p->ldc + n0, p->ldc, p, m0, here, n0, wide);
    }
    free(taken);
    return GX_OK;
}
#endif
