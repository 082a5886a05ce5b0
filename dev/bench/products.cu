// products.cu: the matrix products of a LLaMA's step (134M parameters: D 768, 12 heads, F 2048, V 32000; 1024 tokens),
// forward, of inputs and of weights, beside what the CPU's fused multiply-add instructions reach without memory, in the
// same run: what is left to gain by another library.
//
//     O=$(make -s print-folder); make $O/products && $O/products [THREADS]
//
// Prints GFLOP/s of all threads, medians, in turns with the peak. The time is the processor's by threads, so that what
// else runs on the machine is not in it. The peak is of fp32; instructions for bf16, where there are some, do twice
// that. sgemm: what oneDNN's other way (cpu/gemm.h) does of the same product.
#include "galaxy.h"
#include "galaxy/cpu/gemm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef GX_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

enum { ROUNDS = 5, TURNS = 10000000, SUMS = 10 };
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float))));

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}
static double median(double *x) { return qsort(x, ROUNDS, sizeof *x, by_value), x[ROUNDS / 2]; }

// Sums that do not wait for each other, in registers, each with numbers of its own: of equal ones one would be
// computed.
static float multiply_add(float factor)
{
    Lanes sum[SUMS], x;
    float all = 0;
    for (int i = 0; i < LANES; i++) x[i] = factor;
    for (int i = 0; i < SUMS * LANES; i++) sum[i / LANES][i % LANES] = factor * (float)i;
    for (int64_t t = 0; t < TURNS; t++)
#pragma GCC unroll 10
        for (int i = 0; i < SUMS; i++) sum[i] = sum[i] * x + x;
    for (int i = 0; i < SUMS * LANES; i++) all += sum[i / LANES][i % LANES];
    return all;
}

static double peak(int threads)
{
    float all = 0;
    const clock_t begun = clock();
    GX_OMP(parallel for num_threads(threads) reduction(+ : all))
    for (int i = 0; i < threads; i++) all += multiply_add(0.25f + 0.01f * (float)i);
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC / threads;
    if (all == 0) printf("no sum\n"); // so that they are computed
    return 2.0 * threads * TURNS * SUMS * LANES / seconds / 1e9;
}

static double product(const GxGemm *p, int threads, int is_sgemm)
{
    GxError err = GX_ZERO;
    const clock_t begun = clock();
#ifdef GX_WITH_ONEDNN
    if (is_sgemm)
        dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, 1, (const float *)p->A, p->lda,
                   (const float *)p->B, p->ldb, 0, (float *)p->C, p->ldc);
#endif
    if (!is_sgemm && gx_cpu_gemm(p, threads, &err)) fprintf(stderr, "%s\n", err.message), exit(1);
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC / threads;
    return 2.0 * (double)p->M * (double)p->N * (double)p->K / seconds / 1e9;
}

static void measure(const char *what, GxGemm p, int threads)
{
    double rate[ROUNDS], other[ROUNDS], most[ROUNDS];
    int has_sgemm = 0;
#ifdef GX_WITH_ONEDNN
    has_sgemm = p.type_ab == GX_F32;
#endif
    product(&p, threads, 0); // compiles the library's kernel
    for (int r = 0; r < ROUNDS; r++) {
        most[r] = peak(threads);
        rate[r] = product(&p, threads, 0);
        other[r] = has_sgemm ? product(&p, threads, 1) : 0;
    }
    const double top = median(most) * (p.type_ab == GX_BF16 && gx_cpu_gemm_has_bf16() ? 2 : 1);
    printf("%-4s %-7s %5ld x %5ld x %5ld: %6.1f of %6.1f, %.2f", gx_dtype_name(p.type_ab), what, (long)p.M, (long)p.N,
           (long)p.K, median(rate), top, median(rate) / top);
    if (has_sgemm) printf("; sgemm %6.1f", median(other));
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {// rows, in, out; of the head a chunk
                                        {1024, 768, 2304},
                                        {1024, 768, 768},
                                        {1024, 768, 4096},
                                        {1024, 2048, 768},
                                        {512, 768, 32000}};
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    printf("%s, %d threads\n", gx_cpu_gemm_name(), threads);
    for (int t = 0; t < 2; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const int64_t R = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
            const GxDtype type = t ? GX_BF16 : GX_F32;
            void *x = calloc((size_t)(R * in), 4), *w = calloc((size_t)(in * out), 4),
                 *y = calloc((size_t)(R * out), 4), *dw = calloc((size_t)(in * out), 4);
            if (!x || !w || !y || !dw) return fprintf(stderr, "no memory\n"), 1;
            const GxGemm p[3] = {{0, 1, R, out, in, 1, 0, x, w, in, in, y, out, type, type},
                                 {0, 0, R, in, out, 1, 0, y, w, out, in, x, in, type, type},
                                 {1, 0, out, in, R, 1, 0, y, x, out, in, dw, in, type, GX_F32}};
            measure("forward", p[0], threads);
            measure("input", p[1], threads);
            measure("weight", p[2], threads);
            free(x), free(w), free(y), free(dw);
        }
    return 0;
}
