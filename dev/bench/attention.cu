// attention.cu: attention forward and backward on the CPU (cpu/attention.h), causal, of heads of 64, in fp32 and bf16.
//
//     O=$(make -s print-folder); make $O/attention && $O/attention [THREADS]
//     ONEDNN_MAX_CPU_ISA=AVX512_CORE $O/attention [THREADS]     as on a CPU without instructions for bf16
//
// Prints milliseconds, medians, and GFLOP/s of the pairs that see each other. The time is the processor's by threads,
// so that what else runs on the machine is not in it.
#include "galaxy.h"
#include "galaxy/cpu/gemm.h"
#include "galaxy/cpu/vec.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, H = 6, K = 2, HEAD = 64, ROWS = 1024 }; // ROWS = T*B

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static void *some_values(int64_t n, int period, GxDtype type)
{
    void *x = malloc((size_t)(n * gx_dtype_size(type)));
    if (!x) fprintf(stderr, "no memory\n"), exit(1);
    for (int64_t i = 0; i < n; i++) gx_cpu_store(x, i, (float)(i % period) / (float)period - 0.5f, type);
    return x;
}

static void measure(GxContext *g, GxDtype type, int64_t T)
{
    const int64_t B = ROWS / T, q_size = (int64_t)ROWS * H * HEAD, k_size = (int64_t)ROWS * K * HEAD;
    GxAttention a = GX_ZERO;
    a.q_runs = a.k_runs = gx_runs_one(T, 0);
    a.B = B, a.H = H, a.K = K, a.head_dim = HEAD, a.causal = 1, a.dtype = type;
    a.q_stride = a.o_stride = H * HEAD, a.kv_stride = K * HEAD;
    void *q = some_values(q_size, 61, type), *k = some_values(k_size, 67, type), *v = some_values(k_size, 71, type),
         *o = some_values(q_size, 1, type), *d_o = some_values(q_size, 73, type), *dq = some_values(q_size, 1, type),
         *dk = some_values(k_size, 1, type), *dv = some_values(k_size, 1, type);
    float *lse = (float *)some_values((int64_t)ROWS * H, 1, GX_F32);
    double ms[2][ROUNDS];
    for (int round = -1; round < ROUNDS; round++) // the first compiles the library's kernels
        for (int back = 0; back < 2; back++) {
            const clock_t begun = clock();
            if (back) gx_attention_backward(g, dq, dk, dv, d_o, o, lse, q, k, v, &a);
            else gx_attention_forward(g, o, lse, q, k, v, &a);
            ms[back][round < 0 ? 0 : round] = (double)(clock() - begun) * 1e3 / CLOCKS_PER_SEC / gx_threads(g);
        }
    for (int back = 0; back < 2; back++) {
        qsort(ms[back], ROUNDS, sizeof(double), by_value);
        printf("%-4s B %ld, T %4ld, %s: %7.3f ms %6.1f GFLOP/s\n", gx_dtype_name(type), (long)B, (long)T,
               back ? "backward" : "forward ", ms[back][ROUNDS / 2],
               (back ? 10.0 : 4.0) * HEAD * H * (double)(B * gx_attention_pairs(&a)) / ms[back][ROUNDS / 2] / 1e6);
    }
    free(q), free(k), free(v), free(o), free(d_o), free(dq), free(dk), free(dv), free(lse);
}

int main(int argc, char **argv)
{
    static GxContext g;
    static GxArena arena;
    g.threads = argc > 1 ? atoi(argv[1]) : 2;
    g.device = gx_device_cpu();
    g.arena = &arena;
    g.world = 1;
    if (gx_arena_open(&arena, 64 << 20, &g.error) != GX_OK) return fprintf(stderr, "%s\n", g.error.message), 1;
    printf("%s, %d threads\n", gx_cpu_gemm_name(), g.threads);
    for (int64_t T = 128; T <= ROWS; T *= 2)
        for (int type = 0; type < 2; type++) measure(&g, type ? GX_BF16 : GX_F32, T);
    gx_arena_close(&arena);
    if (gx_failed(&g)) fprintf(stderr, "%s\n", g.error.message);
    return gx_failed(&g);
}
