// one_row.cu: products of one row, c = a B^T: gx_cpu_gemm's own way beside the library of matrix products
// (cpu/gemm.h), in turns, on weights that lie in no cache: as many matrices as fill 256 MB, one after another.
//
//     O=$(make -s print-folder); make $O/one_row && $O/one_row [THREADS]
//
// Prints GB of weights per second, medians.
#include "galaxy.h"
#include "galaxy/cpu/gemm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, BYTES = 256 << 20 };

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static double run_all(GxGemm p, const char *weights, int64_t matrices, int threads, int is_library)
{
    GxError err = GX_ZERO;
    GxGemmWay way = is_library ? p.type_ab == GX_F32 ? GX_GEMM_SGEMM : GX_GEMM_MATMUL : GX_GEMM_ROW;
    const int64_t bytes = p.N * p.K * gx_dtype_size(p.type_ab);
    if (!gx_cpu_gemm_can(&p, way)) way = GX_GEMM_TILES;
    const double begun = gx_seconds();
    for (int64_t i = 0; i < matrices; i++) {
        p.B = weights + i * bytes;
        if (gx_cpu_gemm_by(&p, way, threads, &err)) fprintf(stderr, "%s\n", err.message), exit(1);
    }
    return (double)(matrices * bytes) / (gx_seconds() - begun) / 1e9;
}

static void compare(GxDtype type, int64_t N, int64_t K, int threads)
{
    const int64_t size = gx_dtype_size(type), matrices = BYTES / (N * K * size);
    char *w = (char *)malloc(BYTES), *x = (char *)calloc((size_t)K, 4), *y = (char *)calloc((size_t)N, 4);
    double rate[2][ROUNDS];
    if (!w || !x || !y) fprintf(stderr, "no memory\n"), exit(1);
    for (int64_t i = 0; i < BYTES; i++) w[i] = (char)(i % 61);
    const GxGemm p = {0, 1, 1, N, K, 1, 0, x, w, K, K, y, N, type, type};
    for (int round = -1; round < ROUNDS; round++)
        for (int way = 0; way < 2; way++) rate[way][round < 0 ? 0 : round] = run_all(p, w, matrices, threads, way);
    for (int way = 0; way < 2; way++) qsort(rate[way], ROUNDS, sizeof(double), by_value);
    printf("%s, B [%ld,%ld]: %6.1f GB/s, library %6.1f, ratio %.2f\n", gx_dtype_name(type), (long)N, (long)K,
           rate[0][ROUNDS / 2], rate[1][ROUNDS / 2], rate[0][ROUNDS / 2] / rate[1][ROUNDS / 2]);
    free(w), free(x), free(y);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    static const GxDtype types[2] = {GX_F32, GX_BF16};
    static const int64_t shapes[3][2] = {{576, 576}, {1536, 576}, {4096, 4096}};
    printf("%s, %d threads\n", gx_cpu_gemm_name(), threads);
    for (int t = 0; t < 2; t++)
        for (int s = 0; s < 3; s++) compare(types[t], shapes[s][0], shapes[s][1], threads);
    return 0;
}
