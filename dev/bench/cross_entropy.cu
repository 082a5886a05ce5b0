// cross_entropy.cu: cross-entropy with its gradient, which is written over the logits (cpu/loss.h), beside a copy of as
// many logits, in turns: a chunk of the head's rows, more than the caches hold.
//
//     O=$(make -s print-folder); make $O/cross_entropy && $O/cross_entropy [THREADS]
//
// Prints GB per second that are read and written, each logit once in and once out: medians. The time is the
// processor's by threads, so that what else runs on the machine is not in it.
#include "galaxy.h"
#include "galaxy/cpu/loss.h"
#include "galaxy/cpu/vec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, R = 512, V = 32000 };

typedef struct {
    void *logits, *x; // kept; worked on
    int32_t labels[R];
    float losses[R];
    GxDtype type;
} Rows;

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static void copy_rows(GxContext *g, Rows *s)
{
    const int64_t bytes = V * gx_dtype_size(s->type);
    (void)g;
    GX_OMP(parallel for schedule(static) num_threads(gx_threads(g)))
    for (int64_t r = 0; r < R; r++)
        memcpy((char *)s->x + r * bytes, (const char *)s->logits + r * bytes, (size_t)bytes);
}

static void loss_of_rows(GxContext *g, Rows *s)
{
    const int64_t count = R;
    gx_cpu_cross_entropy(g, s->losses, s->x, s->x, s->labels, R, V, &count, NULL, 0, s->type);
}

static double rate(GxContext *g, Rows *s, void (*run)(GxContext *, Rows *))
{
    const clock_t begun = clock();
    run(g, s);
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC / gx_threads(g);
    return 2.0 * R * V * (double)gx_dtype_size(s->type) / seconds / 1e9;
}

static void compare(GxContext *g, GxDtype type)
{
    static Rows s;
    double copy[ROUNDS], loss[ROUNDS];
    s.type = type;
    s.logits = malloc((size_t)(R * V * gx_dtype_size(type)));
    s.x = malloc((size_t)(R * V * gx_dtype_size(type)));
    if (!s.logits || !s.x) fprintf(stderr, "no memory\n"), exit(1);
    for (int64_t i = 0; i < (int64_t)R * V; i++) gx_cpu_store(s.logits, i, (float)(i * 7919 % 2003) * 0.004f - 4, type);
    for (int r = 0; r < R; r++) s.labels[r] = r * 31 % V;
    copy_rows(g, &s); // first touches
    for (int round = 0; round < ROUNDS; round++)
        copy[round] = rate(g, &s, copy_rows), loss[round] = rate(g, &s, loss_of_rows);
    qsort(copy, ROUNDS, sizeof(double), by_value);
    qsort(loss, ROUNDS, sizeof(double), by_value);
    printf("%s [%d,%d]: %6.1f GB/s, a copy %6.1f, ratio %.2f\n", gx_dtype_name(type), R, V, loss[ROUNDS / 2],
           copy[ROUNDS / 2], loss[ROUNDS / 2] / copy[ROUNDS / 2]);
    free(s.logits), free(s.x);
}

int main(int argc, char **argv)
{
    static GxContext g;
    g.threads = argc > 1 ? atoi(argv[1]) : 2;
    g.device = gx_device_cpu();
    compare(&g, GX_F32);
    compare(&g, GX_BF16);
    return gx_failed(&g);
}
