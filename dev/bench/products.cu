// products.cu: the matrix products of a step of a LLaMA (134M parameters: D 768, 12 heads, F 2048, V 32000; and 24M: D
// 288, 6 heads, 2 of keys, F 768, V 32000; 1024 tokens), forward, of inputs and of weights, in each way that there is
// (cpu/gemm.h), beside what the CPU's fused multiply-add instructions reach without memory, in the same run.
//
//     O=$(make -s print-folder); make $O/products && $O/products [THREADS [LIBRARY]]
//
// Beside them, two ways that Galaxy does not have (products.h): oneDNN's matmul with B packed beforehand, which the
// time leaves out and is given as a share of the product's; and cblas_sgemm of LIBRARY, such as libopenblas.so.0.
//
// Prints GFLOP/s of all threads, medians of rounds in which the ways take turns, and their shares of the peak; * marks
// the way that is taken without --autotune. The time is the processor's by threads, so that what else runs on the
// machine is not in it. The peak is of fp32; instructions for bf16, where there are some, do twice that.
#include "galaxy.h"
#include "galaxy/cpu/gemm.h"
#include "products.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, TURNS = 10000000, SUMS = 10 };
static const double ENOUGH = 2e10; // FLOPs that are timed at least: the processor's clock may count in steps of 4 ms
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

// The ways of gemm.h, and behind them
enum { PACKED = GX_GEMM_WAYS, PACKING, BLAS, WAYS };
static const char *const other_name[] = {"packed", "packing alone", "blas"};

typedef struct {
    GxGemm p;
    int threads;
    BlasProduct *blas; // NULL: no other library was asked for
    Packed packed;
} Product;

static int can(const Product *x, int way)
{
    if (way == BLAS) return x->blas && x->p.type_ab == GX_F32;
    if (way == PACKED || way == PACKING) return packed_can(&x->p);
    return gx_cpu_gemm_can(&x->p, (GxGemmWay)way);
}

static void run(Product *x, int way)
{
    GxError err = GX_ZERO;
    if (way == BLAS) {
        blas_run(x->blas, &x->p);
        return;
    }
    if (way == PACKED || way == PACKING) {
        way == PACKED ? packed_run(&x->packed) : packed_pack(&x->packed);
        return;
    }
    if (gx_cpu_gemm_by(&x->p, (GxGemmWay)way, x->threads, &err)) fprintf(stderr, "%s\n", err.message), exit(1);
}

static double flops(const GxGemm *p) { return 2.0 * (double)p->M * (double)p->N * (double)p->K; }

// GFLOP/s; of packing what a product as long would have
static double rate_of(Product *x, int way)
{
    const int times = 1 + (int)(ENOUGH / flops(&x->p));
    const clock_t begun = clock();
    for (int i = 0; i < times; i++) run(x, way);
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC / x->threads;
    return times * flops(&x->p) / (seconds > 0 ? seconds : 1e-9) / 1e9;
}

static void show(const Product *x, double rate[WAYS][ROUNDS], double top)
{
    for (int way = 0; way < WAYS; way++) {
        if (!can(x, way) || way == PACKING) continue;
        printf(", %s%s %.1f (%.2f)",
               way < GX_GEMM_WAYS ? gx_cpu_gemm_way_name((GxGemmWay)way) : other_name[way - PACKED],
               way == (int)gx_cpu_gemm_way(&x->p) ? "*" : "", median(rate[way]), median(rate[way]) / top);
    }
    if (can(x, PACKED) && x->packed.lies_so) printf(": nothing to pack");
    else if (can(x, PACKED)) printf(": packing takes %.2f of it", median(rate[PACKED]) / median(rate[PACKING]));
    printf("\n");
    fflush(stdout);
}

static void measure(const char *what, GxGemm p, int threads, BlasProduct *blas)
{
    Product x = GX_ZERO;
    double rate[WAYS][ROUNDS], most[ROUNDS];
    x.p = p, x.threads = threads, x.blas = blas;
    if (can(&x, PACKED)) packed_open(&x.packed, &p), packed_pack(&x.packed);
    for (int r = -1; r < ROUNDS; r++) { // the first round compiles the library's kernels
        if (r >= 0) most[r] = peak(threads);
        for (int way = 0; way < WAYS; way++) {
            const double once = can(&x, way) ? rate_of(&x, way) : 0;
            if (r >= 0) rate[way][r] = once;
        }
    }
    const double top = median(most) * (p.type_ab == GX_BF16 && gx_cpu_gemm_has_bf16() ? 2 : 1);
    printf("%-4s %-7s %5ld x %5ld x %5ld: of %6.1f", gx_dtype_name(p.type_ab), what, (long)p.M, (long)p.N, (long)p.K,
           top);
    show(&x, rate, top);
    if (can(&x, PACKED)) packed_close(&x.packed);
}

// Small numbers, as fp32 or bf16, in memory as training has it (huge pages). They are written, since pages that never
// were are all the same one, in the first cache.
static void *numbers(GxArena *arena, int64_t n)
{
    uint32_t *x = (uint32_t *)gx_arena_allocate(arena, GX_MEM_WORKSPACE, n * (int64_t)sizeof *x), state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = 0x3c003c00u |
               (state & 0x807f807fu); // as two of bf16 or as one of fp32 between 2^-7 and 2^-6, of either sign
    }
    return x;
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {// rows, in, out; of the head a chunk
                                        {1024, 768, 2304}, {1024, 768, 768},  {1024, 768, 4096},
                                        {1024, 2048, 768}, {512, 768, 32000}, {1024, 288, 480},
                                        {1024, 288, 1536}, {1024, 768, 288},  {512, 288, 32000}};
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    GxError err = GX_ZERO;
    BlasProduct *blas = argc > 2 ? blas_open(argv[2]) : NULL;
    printf("%s, %d threads\n", gx_cpu_gemm_name(), threads);
    for (int t = 0; t < 2; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const int64_t R = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
            const GxDtype type = t ? GX_BF16 : GX_F32;
            GxArena arena = GX_ZERO;
            if (gx_arena_open(&arena, 4 * (R * in + R * out + 2 * in * out) + 4 * GX_ALIGN, &err))
                fprintf(stderr, "%s\n", err.message), exit(1);
            void *x = numbers(&arena, R * in), *w = numbers(&arena, in * out), *y = numbers(&arena, R * out),
                 *dw = numbers(&arena, in * out);
            const GxGemm p[3] = {{0, 1, R, out, in, 1, 0, x, w, in, in, y, out, type, type},
                                 {0, 0, R, in, out, 1, 0, y, w, out, in, x, in, type, type},
                                 {1, 0, out, in, R, 1, 0, y, x, out, in, dw, in, type, GX_F32}};
            measure("forward", p[0], threads, blas);
            measure("input", p[1], threads, blas);
            measure("weight", p[2], threads, blas);
            gx_arena_close(&arena);
        }
    return 0;
}
