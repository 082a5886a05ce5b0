// cpu/tune.h: --autotune on the CPU (run/autotune.h): measures which way of computing a matrix product (gemm.h) is the
// fastest for its shape.
//
// While products are timed (gx_cpu_tune), each shape is computed several times in each way, and then once more as
// without --autotune, which is the result that is used. A product that adds to C is timed in scratch of up to 16 MB;
// if its result is larger, it is not timed. Nor is a product that can be computed in only one way. Attention's products
// are not tuned: they are small, and many threads compute some of them at the same time.
#ifndef GX_CPU_TUNE_H
#define GX_CPU_TUNE_H
#include "../base/context.h"
#include "gemm.h"
GX_BEGIN

// gx_cpu_gemm with the context's threads, in the way chosen for this shape, if there is one.
void gx_cpu_product(GxContext *g, const GxGemm *p);

// functions of GxDevice (ops/device.h)
void gx_cpu_tune(GxContext *g, int on);
char *gx_cpu_tuned_text(GxContext *g);
GxStatus gx_cpu_take_tuned(GxContext *g, const char *text, GxError *err);
void gx_cpu_close(GxContext *g);

extern double (*gx_cpu_tune_clock)(void); // seconds; gx_seconds, but tests set the time of each way

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_TUNE_IMPLEMENTED)
#define GX_CPU_TUNE_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../ops/device.h"
#include "../ops/tuned.h"

double (*gx_cpu_tune_clock)(void) = gx_seconds;

enum { GX__CPU_TUNING_SCRATCH = 16 << 20, GX__CPU_TIMINGS = 5 }; // bytes; rounds after a warm-up round

// What a choice is for. It has no padding, since keys are compared bytewise.
typedef struct {
    int64_t M, N, K, lda, ldb, ldc;
    int32_t trans_a, trans_b, type_ab, type_c;
    int32_t is_scaled, adds; // alpha is not 1; beta is not 0
} GxCpuProductKey;

typedef struct {
    GxCpuProductKey key;
    GxGemmWay way;
    int is_taken; // 0: timed in this step but not used yet
} GxCpuTuned;

// The CPU's GxContext.device_state, if products are tuned.
typedef struct {
    GxCpuTuned *tuned;
    int n, room, times;
    void *scratch;
    int64_t scratch_bytes;
} GxCpuTuning;

// NULL: nothing is tuned, or the context has another device.
static GxCpuTuning *gx__cpu_tuning(const GxContext *g)
{
    return g->device && g->device->tune == gx_cpu_tune ? (GxCpuTuning *)g->device_state : NULL;
}

static GxCpuProductKey gx__cpu_product_key(const GxGemm *p)
{
    const GxCpuProductKey key = {p->M,
                                 p->N,
                                 p->K,
                                 p->lda,
                                 p->ldb,
                                 p->ldc,
                                 p->trans_a,
                                 p->trans_b,
                                 (int32_t)p->type_ab,
                                 (int32_t)p->type_c,
                                 p->alpha != 1,
                                 p->beta != 0};
    return key;
}

static GxCpuTuned *gx__cpu_tuned_find(const GxCpuTuning *t, const GxCpuProductKey *key)
{
    for (int i = 0; i < t->n; i++)
        if (!memcmp(key, &t->tuned[i].key, sizeof *key)) return &t->tuned[i];
    return NULL;
}

static void gx__cpu_tuned_add(GxContext *g, const GxCpuTuned *one)
{
    GxCpuTuning *t = gx__cpu_tuning(g);
    if (t->n == t->room) {
        const int room = t->room ? 2 * t->room : 64;
        GxCpuTuned *larger = (GxCpuTuned *)realloc(t->tuned, (size_t)room * sizeof *larger);
        if (!larger) {
            GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %d choices of products", room);
            return;
        }
        t->tuned = larger, t->room = room;
    }
    t->tuned[t->n++] = *one;
}

// ---- the clock -----------------------------------------------------------------------------------------------------

// Room for the result of a product that adds to C; NULL: it is too large.
static void *gx__cpu_tuning_scratch(GxCpuTuning *t, const GxGemm *p)
{
    const int64_t bytes = ((p->M - 1) * p->ldc + p->N) * gx_dtype_size(p->type_c);
    if (bytes > GX__CPU_TUNING_SCRATCH) return NULL;
    if (bytes > t->scratch_bytes) {
        free(t->scratch);
        t->scratch = calloc(1, (size_t)bytes);
        t->scratch_bytes = t->scratch ? bytes : 0;
    }
    return t->scratch;
}

// The ways alternate, and the shortest time of each counts: on a shared machine it is the most meaningful one.
static void gx__cpu_tune_product(GxContext *g, const GxGemm *p)
{
    GxCpuTuned best = {gx__cpu_product_key(p), gx_cpu_gemm_way(p), 0};
    GxGemm timed = *p;
    double least[GX_GEMM_WAYS];
    int ways = 0;
    for (int way = 0; way < GX_GEMM_WAYS; way++) ways += gx_cpu_gemm_can(p, (GxGemmWay)way);
    if (ways == 1) return;
    if (p->beta != 0 && !(timed.C = gx__cpu_tuning_scratch(gx__cpu_tuning(g), p))) return;
    for (int round = -1; round < GX__CPU_TIMINGS; round++)
        for (int way = 0; way < GX_GEMM_WAYS; way++) {
            if (!gx_cpu_gemm_can(p, (GxGemmWay)way)) continue;
            const double begun = gx_cpu_tune_clock();
            if (gx_cpu_gemm_by(&timed, (GxGemmWay)way, gx_threads(g), &g->error)) return;
            const double seconds = gx_cpu_tune_clock() - begun;
            if (round <= 0 || seconds < least[way]) least[way] = seconds;
        }
    for (int way = 0; way < GX_GEMM_WAYS; way++)
        if (gx_cpu_gemm_can(p, (GxGemmWay)way) && least[way] < least[best.way]) best.way = (GxGemmWay)way;
    gx__cpu_tuned_add(g, &best);
}

void gx_cpu_product(GxContext *g, const GxGemm *p)
{
    const GxCpuTuning *t = gx__cpu_tuning(g);
    const GxCpuProductKey key = gx__cpu_product_key(p);
    const GxCpuTuned *tuned = t ? gx__cpu_tuned_find(t, &key) : NULL;
    if (tuned && tuned->is_taken) {
        gx_cpu_gemm_by(p, tuned->way, gx_threads(g), &g->error);
        return;
    }
    if (t && t->times && !tuned) gx__cpu_tune_product(g, p);
    if (!gx_failed(g)) gx_cpu_gemm(p, gx_threads(g), &g->error);
}

// ---- the table -----------------------------------------------------------------------------------------------------

static GxCpuTuning *gx__cpu_tuning_open(GxContext *g)
{
    if (!g->device_state) g->device_state = calloc(1, sizeof(GxCpuTuning));
    if (!g->device_state) GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a table of products");
    return gx__cpu_tuning(g);
}

void gx_cpu_tune(GxContext *g, int on)
{
    GxCpuTuning *t = gx__cpu_tuning_open(g);
    if (!t) return;
    t->times = on;
    if (on) return;
    free(t->scratch);
    t->scratch = NULL, t->scratch_bytes = 0;
    t->n = 0;
}

void gx_cpu_close(GxContext *g)
{
    GxCpuTuning *t = (GxCpuTuning *)g->device_state;
    if (t) free(t->tuned), free(t->scratch), free(t);
    g->device_state = NULL;
}

// "galaxy autotune 1, 2 threads, tiles of 6 x 16, AMD EPYC, 2 cores (avx2), oneDNN 2.6.3": what the choices are for
static void gx__cpu_tuned_header(const GxContext *g, char *text, size_t size)
{
    char cpu[GX_TUNED_HEADER - 90];
    const int threads = gx_threads(g);
    g->device->describe(cpu, sizeof cpu);
    snprintf(text, size, GX_TUNED ", %d thread%s, %s, %s", threads, threads == 1 ? "" : "s", gx_cpu_gemm_tile_name(),
             cpu);
}

#define GX__CPU_KEY_FORMAT "%ld %ld %ld %ld %ld %ld %d %d %d %d %d %d"
enum { GX__CPU_KEY_TEXT = 200 };

static void gx__cpu_key_text(const GxCpuProductKey *k, char text[GX__CPU_KEY_TEXT])
{
    snprintf(text, GX__CPU_KEY_TEXT, GX__CPU_KEY_FORMAT " ", (long)k->M, (long)k->N, (long)k->K, (long)k->lda,
             (long)k->ldb, (long)k->ldc, k->trans_a, k->trans_b, k->type_ab, k->type_c, k->is_scaled, k->adds);
}

char *gx_cpu_tuned_text(GxContext *g)
{
    const GxCpuTuning *t = gx__cpu_tuning_open(g);
    char *text = NULL, header[GX_TUNED_HEADER];
    size_t size = 0;
    FILE *out = t ? open_memstream(&text, &size) : NULL;
    if (!out) return NULL;
    gx__cpu_tuned_header(g, header, sizeof header);
    fprintf(out, "%s\n", header);
    for (int i = 0; i < t->n; i++) {
        char key[GX__CPU_KEY_TEXT];
        gx__cpu_key_text(&t->tuned[i].key, key);
        fprintf(out, "%s%s\n", key, gx_cpu_gemm_way_name(t->tuned[i].way));
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static int gx__cpu_take_line(GxContext *g, const char *line)
{
    GxCpuTuned one = GX_ZERO;
    GxCpuProductKey *k = &one.key;
    GxError ignored = GX_ZERO;
    char key[GX__CPU_KEY_TEXT];
    long n[6];
    if (sscanf(line, GX__CPU_KEY_FORMAT, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &k->trans_a, &k->trans_b,
               &k->type_ab, &k->type_c, &k->is_scaled, &k->adds) != 12)
        return 0;
    k->M = n[0], k->N = n[1], k->K = n[2], k->lda = n[3], k->ldb = n[4], k->ldc = n[5];
    gx__cpu_key_text(k, key);
    const size_t at = strlen(key);
    if (strncmp(line, key, at)) return 0; // for example a number that is too large
    one.is_taken = 1;
    for (int way = 0; way < GX_GEMM_WAYS; way++) {
        const char *name = gx_cpu_gemm_way_name((GxGemmWay)way);
        if (strcspn(line + at, "\n") != strlen(name) || strncmp(line + at, name, strlen(name))) continue;
        one.way = (GxGemmWay)way;
        const GxGemm p = {
            k->trans_a, k->trans_b, k->M,   k->N, k->K,   k->is_scaled ? 0.5f : 1.0f, k->adds ? 1.0f : 0.0f, NULL,
            NULL,       k->lda,     k->ldb, NULL, k->ldc, (GxDtype)k->type_ab,        (GxDtype)k->type_c};
        if (gx__cpu_gemm_checked(&p, &ignored) != GX_OK || !gx_cpu_gemm_can(&p, one.way)) return 0;
        if (!gx__cpu_tuned_find(gx__cpu_tuning(g), k)) gx__cpu_tuned_add(g, &one);
        return 1;
    }
    return 0;
}

GxStatus gx_cpu_take_tuned(GxContext *g, const char *text, GxError *err)
{
    char header[GX_TUNED_HEADER];
    if (!gx__cpu_tuning_open(g)) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a table of products");
    gx__cpu_tuned_header(g, header, sizeof header);
    return gx_tuned_read(g, text, header, gx__cpu_take_line, err);
}
#endif
