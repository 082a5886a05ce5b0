// workshop.h: where kernels are made: versions of an operation side by side, held against the CPU and timed against the
// card's ceilings.
//
// A program of the workshop (rms_norm.cu, layer_norm.cu, attention.cu, quantize.cu, memory_bound.cu) holds the kernels
// and describes the operations: a `Workshop` has shapes and entries (forward, backward), each with its buffers, how it
// is called, and its versions; a program has one or several. The call through the library is the reference on the CPU
// and the shipped version on the GPU alike; where nothing computes, it says how many bytes and FLOPs the work is and
// how much scratch it takes.
//
//     rms_norm                          checks; on a GPU times, too
//     rms_norm --check | --time         one of the two
//     rms_norm --time --version 2       the second version of each entry
//     rms_norm --time --csv FILE        the table goes to stdout (Markdown), and into FILE with all figures
//
// A version is right when its outputs are as near to the CPU's as rounding allows. A time is the median of repeats,
// each after the L2 cache was overwritten; what is computed in place begins each repeat with the same values, copied
// there before the clock runs. Ceilings (a copy's bandwidth; cuBLASLt's product of 8192 x 8192 matrices of the same
// type) are measured in the same run. Compiled for the emulator it checks only. docs/kernels.md is the manual.
#ifndef WORKSHOP_H
#define WORKSHOP_H
#include "galaxy/base/random.h"
#include "galaxy/cpu/cpu.h"
#include "galaxy/cuda/memory.cuh"
#include "test/test.h"

enum { WORK_BUFFERS = 12, WORK_DIMS = 9, WORK_VERSIONS = 8 };

// An operation's call: on the context g, for a shape d, with the buffers p in the order of the entry's `open`.
typedef void WorkCall(GxContext *g, const int64_t *d, GxDtype dtype, void **p);

typedef struct {
    const char *name;
    GxDtype type;
    int64_t n;
    int compared; // an output: NaN before each version, then held against the CPU's
    int in_place; // an output that is an input, too: it begins as `start`
    int squared;  // an input whose numbers are not negative
    double depth; // of an output: roundings in the longest chain behind one value
    int rounded;  // of an output: roundings to the work's type in that chain, its own included
    double floor; // of an output: norm of the terms, where the result is a difference that may cancel
    void *given;  // an input that is not random: its values
    void *host;   // the values behind the device's, as the reference reads and writes them: bf16 as fp32
    void *device, *start;
} WorkBuffer;

typedef struct {
    const char *what;
    WorkCall *run; // NULL: the shipped kernels, through the library
} WorkVersion;

enum { WORK_F32 = 1 << GX_F32, WORK_BF16 = 1 << GX_BF16, WORK_BOTH = WORK_F32 | WORK_BF16 };

typedef struct Work Work;
typedef struct {
    const char *name;
    void (*open)(Work *w, const int64_t *d); // work_input and work_output, in the order of the call's buffers
    WorkCall *call;                          // through the library
    WorkCall *prepare; // through the library: turns random inputs into those that there are; NULL: they stay random
    unsigned types;    // in which it is there
    WorkVersion version[WORK_VERSIONS]; // from naive to best
} WorkEntry;

typedef struct {
    const char *name;
    const char *dim[WORK_DIMS]; // a shape's letters, as the table shows them
    const WorkEntry *entry;
    int entries;
    const int64_t (*checked)[WORK_DIMS], (*timed)[WORK_DIMS];
    int checks, times;
    void (*device)(GxDevice *); // puts the operation's functions into the table
} Workshop;

// One entry for one shape and type, and all that is needed to run it.
struct Work {
    const Workshop *shop;
    const WorkEntry *entry;
    const int64_t *d;
    GxDtype dtype;
    GxDevice cuda;
    GxContext g;
    GxArena scratch;
    WorkBuffer buffer[WORK_BUFFERS];
    int buffers;
    int64_t bytes; // read and written, and
    double flops;  // computed: the contract's figures
};

#define WORK_CUDA(call)                                                                                                \
    do {                                                                                                               \
        const cudaError_t work_error = (call);                                                                         \
        if (work_error != cudaSuccess) work_exit(#call, cudaGetErrorString(work_error));                               \
    } while (0)

static void work_exit(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void work_require(const GxContext *g)
{
    if (gx_failed(g)) work_exit("failed", g->error.message);
}

// ---- buffers -------------------------------------------------------------------------------------------------------

static WorkBuffer *work_buffer(Work *w, const char *name, GxDtype type, int64_t n)
{
    WorkBuffer *b = &w->buffer[w->buffers++];
    b->name = name, b->type = type, b->n = n;
    return b;
}
static inline WorkBuffer *work_input(Work *w, const char *name, GxDtype type, int64_t n)
{
    return work_buffer(w, name, type, n);
}
static inline WorkBuffer *work_output(Work *w, const char *name, GxDtype type, int64_t n, double depth, int rounded,
                                      double floor)
{
    WorkBuffer *b = work_buffer(w, name, type, n);
    b->compared = 1, b->depth = depth, b->rounded = rounded, b->floor = floor;
    return b;
}
static inline WorkBuffer *work_in_place(Work *w, const char *name, GxDtype type, int64_t n, double depth, int rounded,
                                        double floor)
{
    WorkBuffer *b = work_output(w, name, type, n, depth, rounded, floor);
    b->in_place = 1;
    return b;
}
// An input whose n values (bf16: as fp32) the caller writes into what this returns.
static inline void *work_given(Work *w, const char *name, GxDtype type, int64_t n)
{
    WorkBuffer *b = work_buffer(w, name, type, n);
    b->given = malloc((size_t)(n * gx_dtype_size(type == GX_BF16 ? GX_F32 : type)));
    return b->given;
}

static int64_t work_bytes(const WorkBuffer *b) { return b->n * gx_dtype_size(b->type); }

// n values into device memory of the buffer's type; one that bf16 has not is rounded.
static void work_upload(const WorkBuffer *b, const void *values, int64_t n)
{
    uint16_t *half = b->type == GX_BF16 ? (uint16_t *)malloc((size_t)n * 2) : NULL;
    for (int64_t i = 0; half && i < n; i++) half[i] = gx_to_bf16(((const float *)values)[i]);
    WORK_CUDA(
        cudaMemcpy(b->device, half ? half : values, (size_t)(n * gx_dtype_size(b->type)), cudaMemcpyHostToDevice));
    free(half);
}

// The device's values, bf16 as fp32; to be freed.
static void *work_download(const WorkBuffer *b)
{
    void *values = malloc((size_t)(b->type == GX_BF16 ? 2 : 1) * (size_t)work_bytes(b));
    WORK_CUDA(cudaMemcpy(values, b->device, (size_t)work_bytes(b), cudaMemcpyDeviceToHost));
    for (int64_t i = b->n - 1; b->type == GX_BF16 && i >= 0; i--)
        ((float *)values)[i] = gx_from_bf16(((const uint16_t *)values)[i]);
    return values;
}
static double work_number(const WorkBuffer *b, const void *values, int64_t i)
{
    return b->type == GX_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

// Normal numbers; of a large buffer the first million again and again, which a multiplier does not notice.
static void work_fill(const WorkBuffer *b, int number)
{
    const int64_t pattern = gx_min(b->n, 1 << 20), size = gx_dtype_size(b->type);
    float *values = (float *)malloc((size_t)pattern * 4);
    for (int64_t i = 0; i < pattern; i++) {
        values[i] = gx_random_normal(3, (uint64_t)i, 0, (uint32_t)number);
        if (b->squared) values[i] *= values[i];
    }
    work_upload(b, values, pattern);
    for (int64_t at = pattern; at < b->n; at += pattern)
        WORK_CUDA(cudaMemcpy((char *)b->device + at * size, b->device, (size_t)(gx_min(pattern, b->n - at) * size),
                             cudaMemcpyDeviceToDevice));
    free(values);
}

// Before a run: what is computed in place has its values again.
static void work_restore(const Work *w)
{
    for (int i = 0; i < w->buffers; i++)
        if (w->buffer[i].start)
            WORK_CUDA(cudaMemcpyAsync(w->buffer[i].device, w->buffer[i].start, (size_t)work_bytes(&w->buffer[i]),
                                      cudaMemcpyDeviceToDevice, gx_cuda(&w->g)->stream));
}

static void work_pointers(Work *w, void **p, int of_host)
{
    for (int i = 0; i < w->buffers; i++) p[i] = of_host ? w->buffer[i].host : w->buffer[i].device;
}

// ---- an entry for a shape: opened, called, closed ------------------------------------------------------------------

// On a device that computes nothing: the work's bytes and FLOPs, and its scratch.
static int64_t work_count(Work *w)
{
    GxDevice none = gx_device_none(&w->cuda);
    GxRecorder recorder = GX_ZERO;
    GxArena arena;
    GxContext g = GX_ZERO;
    void *p[WORK_BUFFERS] = {};
    gx_arena_open_dry(&arena);
    g.device = &none, g.arena = &arena, g.recorder = &recorder;
    work_pointers(w, p, 0);
    if (w->entry->prepare) w->entry->prepare(&g, w->d, w->dtype, p);
    const int64_t before = recorder.n;
    w->entry->call(&g, w->d, w->dtype, p);
    work_require(&g);
    for (int64_t i = before; i < recorder.n; i++)
        w->bytes += recorder.event[i].bytes, w->flops += recorder.event[i].flops;
    gx_recorder_close(&recorder);
    return arena.peak;
}

static void work_open_device(Work *w)
{
    w->cuda.name = "cuda", w->cuda.computes = 1, w->cuda.dtypes = 1u << GX_F32 | 1u << GX_BF16;
    w->cuda.linear_forward = gx_cuda_linear_forward;
    w->shop->device(&w->cuda);
    w->g.device = &w->cuda;
    gx_cuda_open(&w->g);
    work_require(&w->g);
}

static void work_open(Work *w, const Workshop *shop, const WorkEntry *entry, const int64_t *d, GxDtype dtype)
{
    void *p[WORK_BUFFERS] = {};
    memset(w, 0, sizeof *w);
    w->shop = shop, w->entry = entry, w->d = d, w->dtype = dtype;
    work_open_device(w);
    entry->open(w, d);
    for (int i = 0; i < w->buffers; i++) {
        WorkBuffer *b = &w->buffer[i];
        WORK_CUDA(cudaMalloc(&b->device, (size_t)work_bytes(b)));
        if (b->given) work_upload(b, b->given, b->n);
        else if (!b->compared || b->in_place) work_fill(b, i);
    }
    WORK_CUDA(cudaDeviceSynchronize()); // a copy from pageable memory may return before it is done, and the context's
                                        // stream does not wait for it
    gx_cuda_arena_open(&w->g, &w->scratch, work_count(w));
    w->g.arena = &w->scratch;
    work_pointers(w, p, 0);
    if (entry->prepare) entry->prepare(&w->g, d, dtype, p);
    gx_cuda_wait(&w->g);
    work_require(&w->g);
    for (int i = 0; i < w->buffers; i++) {
        WorkBuffer *b = &w->buffer[i];
        if (!b->in_place) continue;
        WORK_CUDA(cudaMalloc(&b->start, (size_t)work_bytes(b)));
        WORK_CUDA(cudaMemcpy(b->start, b->device, (size_t)work_bytes(b), cudaMemcpyDeviceToDevice));
    }
    WORK_CUDA(cudaDeviceSynchronize());
}

static void work_close(Work *w)
{
    gx_cuda_arena_close(&w->g, &w->scratch);
    for (int i = 0; i < w->buffers; i++) {
        WORK_CUDA(cudaFree(w->buffer[i].device));
        WORK_CUDA(cudaFree(w->buffer[i].start));
        free(w->buffer[i].host);
        free(w->buffer[i].given);
    }
    gx_cuda_close(&w->g);
}

static void work_run(Work *w, const WorkVersion *v)
{
    void *p[WORK_BUFFERS] = {};
    work_pointers(w, p, 0);
    (v->run ? v->run : w->entry->call)(&w->g, w->d, w->dtype, p);
}

static void work_shape_text(char *text, size_t size, const Workshop *shop, const int64_t *d)
{
    text[0] = 0;
    for (int i = 0; i < WORK_DIMS && shop->dim[i]; i++)
        snprintf(text + strlen(text), size - strlen(text), "%s%s %ld", i ? " " : "", shop->dim[i], (long)d[i]);
}

// ---- --check -------------------------------------------------------------------------------------------------------

static void work_reference(Work *w)
{
    GxContext cpu = GX_ZERO;
    GxArena arena;
    void *p[WORK_BUFFERS] = {};
    for (int i = 0; i < w->buffers; i++) w->buffer[i].host = work_download(&w->buffer[i]);
    work_pointers(w, p, 1);
    cpu.device = gx_device_cpu(), cpu.threads = 2, cpu.arena = &arena;
    gx_arena_open(&arena, 64 << 20, &cpu.error);
    w->entry->call(&cpu, w->d, GX_F32, p);
    work_require(&cpu);
    gx_arena_close(&arena);
}

// Both sides round on the way, each within test_bound; a rounding to bf16 (8 bits) is off by 2^-8 at most. Infinities
// are where the CPU has them.
static void work_compare(const char *what, const WorkBuffer *b, GxDtype dtype)
{
    void *of_device = work_download(b);
    float *values = (float *)malloc((size_t)b->n * 4);
    double *reference = (double *)malloc((size_t)b->n * 8);
    int64_t wrong = 0;
    for (int64_t i = 0; i < b->n; i++) {
        reference[i] = work_number(b, b->host, i);
        values[i] = (float)work_number(b, of_device, i);
        if (!isinf(reference[i])) continue;
        wrong += (double)values[i] != reference[i];
        reference[i] = values[i] = 0;
    }
    CHECK(wrong == 0, "%s: %ld infinities are not where the CPU has them", what, (long)wrong);
    test_close(what, values, reference, (long)b->n,
               2 * test_bound(b->depth) + (dtype == GX_BF16 ? ldexp(b->rounded, -8) : 0), b->floor);
    free(of_device), free(values), free(reference);
}

static void work_check_version(Work *w, int number)
{
    char shape[160], what[320];
    work_shape_text(shape, sizeof shape, w->shop, w->d);
    for (int i = 0; i < w->buffers; i++) // every bit set is a NaN of both types
        if (w->buffer[i].compared) WORK_CUDA(cudaMemset(w->buffer[i].device, 0xff, (size_t)work_bytes(&w->buffer[i])));
    WORK_CUDA(cudaDeviceSynchronize());
    work_restore(w);
    work_run(w, &w->entry->version[number]);
    gx_cuda_wait(&w->g);
    CHECK(!gx_failed(&w->g), "%s", w->g.error.message);
    for (int i = 0; i < w->buffers; i++) {
        snprintf(what, sizeof what, "%s, version %d (%s), %s, %s: %s", w->entry->name, number + 1,
                 w->entry->version[number].what, shape, gx_dtype_name(w->dtype), w->buffer[i].name);
        if (w->buffer[i].compared) work_compare(what, &w->buffer[i], w->dtype);
    }
}

static const GxDtype work_types[] = {GX_F32, GX_BF16};
static int work_is_there(const WorkEntry *e, GxDtype dtype) { return (int)(e->types >> dtype & 1); }

static void work_check(const Workshop *shop, int only)
{
    Work w;
    for (int e = 0; e < shop->entries; e++)
        for (int s = 0; s < shop->checks; s++)
            for (int t = 0; t < 2; t++) {
                if (!work_is_there(&shop->entry[e], work_types[t])) continue;
                work_open(&w, shop, &shop->entry[e], shop->checked[s], work_types[t]);
                work_reference(&w);
                for (int v = 0; v < WORK_VERSIONS && shop->entry[e].version[v].what; v++)
                    if (!only || v + 1 == only) work_check_version(&w, v);
                work_close(&w);
            }
}

// ---- --time --------------------------------------------------------------------------------------------------------
#if !defined(GX_EMU)

typedef struct {
    double copy;     // bytes per second, read and written
    double products; // FLOPs per second
} WorkCeiling;

typedef struct {
    cudaEvent_t begin, end;
    void *flush; // larger than the L2 cache
    int64_t flush_bytes;
    WorkCeiling ceiling[GX_DTYPES];
    FILE *csv;
} WorkClock;

static void work_clock_open(WorkClock *c, const char *csv)
{
    int l2 = 0, card = 0;
    memset(c, 0, sizeof *c);
    WORK_CUDA(cudaGetDevice(&card));
    WORK_CUDA(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, card));
    c->flush_bytes = gx_max(2 * (int64_t)l2, 64 << 20);
    WORK_CUDA(cudaMalloc(&c->flush, (size_t)c->flush_bytes));
    WORK_CUDA(cudaEventCreate(&c->begin));
    WORK_CUDA(cudaEventCreate(&c->end));
    if (!csv) return;
    c->csv = fopen(csv, "w");
    if (!c->csv) work_exit(csv, "cannot be written");
    fprintf(c->csv, "operation,entry,version,what,shape,dtype,microseconds_median,microseconds_min,repeats,bytes,flops,"
                    "gb_per_s,tflop_per_s,"
                    "percent_of_ceiling,ceiling_gb_per_s,ceiling_tflop_per_s\n");
}

static void work_clock_close(WorkClock *c)
{
    WORK_CUDA(cudaEventDestroy(c->begin));
    WORK_CUDA(cudaEventDestroy(c->end));
    WORK_CUDA(cudaFree(c->flush));
    if (c->csv) fclose(c->csv);
}

// Seconds of one run after the L2 cache was overwritten: the card is busy with that while the host launches, so
// launches cost nothing here.
static double work_seconds_once(WorkClock *c, Work *w, const WorkVersion *v)
{
    float ms = 0;
    const cudaStream_t stream = gx_cuda(&w->g)->stream;
    work_restore(w);
    WORK_CUDA(cudaMemsetAsync(c->flush, 0, (size_t)c->flush_bytes, stream));
    WORK_CUDA(cudaEventRecord(c->begin, stream));
    work_run(w, v);
    WORK_CUDA(cudaEventRecord(c->end, stream));
    WORK_CUDA(cudaEventSynchronize(c->end));
    work_require(&w->g);
    WORK_CUDA(cudaEventElapsedTime(&ms, c->begin, c->end));
    return ms * 1e-3;
}

static int work_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct {
    double median, minimum;
    int repeats;
} WorkTime;

// 5 to 50 repeats, as many as fit into a third of a second, after two runs that warm up; a version that takes longer
// than a tenth of a second runs once more.
static WorkTime work_seconds(WorkClock *c, Work *w, const WorkVersion *v)
{
    double t[50];
    work_seconds_once(c, w, v);
    const double first = work_seconds_once(c, w, v);
    const int n = first > 0.1 ? 1 : (int)fmin(50, fmax(5, 0.33 / first));
    for (int i = 0; i < n; i++) t[i] = work_seconds_once(c, w, v);
    qsort(t, (size_t)n, sizeof *t, work_by_size);
    const WorkTime result = {n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2, t[0], n};
    return result;
}

// What the ceilings are measured with: a copy of 512 MiB, and y = x w^T of 8192 x 8192 matrices.
enum { WORK_SIDE = 8192, WORK_COPY = 512 << 20 };

static void work_copy(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    (void)d, (void)dtype;
    WORK_CUDA(cudaMemcpyAsync(p[1], p[0], WORK_COPY, cudaMemcpyDeviceToDevice, gx_cuda(g)->stream));
}
static void work_product(GxContext *g, const int64_t *d, GxDtype dtype, void **p)
{
    const GxLinearShape s = gx_linear_shape(d[0], d[0], d[0], dtype);
    gx_linear_forward(g, p[2], p[0], p[1], NULL, &s);
}
static void work_open_ceiling(Work *w, const int64_t *d)
{
    const int64_t n = gx_max(d[0] * d[0], WORK_COPY / gx_dtype_size(w->dtype));
    work_input(w, "x", w->dtype, n);
    work_input(w, "w", w->dtype, n);
    work_output(w, "y", w->dtype, d[0] * d[0], 1, 1, 0);
}

static void work_measure_ceilings(WorkClock *c, const Workshop *shop)
{
    static const int64_t d[WORK_DIMS] = {WORK_SIDE};
    const WorkEntry ceiling = {"ceiling", work_open_ceiling, work_product,
                               NULL,      WORK_BOTH,         {{"copy", work_copy}, {"product", NULL}}};
    for (int t = 0; t < 2; t++) {
        Work w;
        work_open(&w, shop, &ceiling, d, work_types[t]);
        const WorkCeiling found = {2.0 * WORK_COPY / work_seconds(c, &w, &ceiling.version[0]).median,
                                   w.flops / work_seconds(c, &w, &ceiling.version[1]).median};
        c->ceiling[work_types[t]] = found;
        work_close(&w);
        printf("%s: copy %.0f GB/s, product %.1f TFLOP/s\n", gx_dtype_name(work_types[t]), found.copy / 1e9,
               found.products / 1e12);
    }
}

static void work_report(WorkClock *c, const Work *w, int number, WorkTime t)
{
    char shape[160];
    const WorkCeiling *most = &c->ceiling[w->dtype];
    const double bytes = (double)w->bytes / t.median, flops = w->flops / t.median;
    const double least = fmax((double)w->bytes / most->copy, w->flops / most->products);
    const double percent = 100 * least / t.median;
    const char *what = w->entry->version[number].what, *dtype = gx_dtype_name(w->dtype);
    work_shape_text(shape, sizeof shape, w->shop, w->d);
    printf("| %s | %d %s | %s | %s | %.1f | %.2f | %.1f | %.1f | %.0f | %.2f | %.1f |\n", w->entry->name, number + 1,
           what, shape, dtype, (double)w->bytes / 1e6, w->flops / 1e9, least * 1e6, t.median * 1e6, bytes / 1e9,
           flops / 1e12, percent);
    fflush(stdout);
    if (!c->csv) return;
    fprintf(c->csv, "%s,\"%s\",%d,\"%s\",\"%s\",%s,%.3f,%.3f,%d,%ld,%.0f,%.1f,%.3f,%.2f,%.1f,%.2f\n", w->shop->name,
            w->entry->name, number + 1, what, shape, dtype, t.median * 1e6, t.minimum * 1e6, t.repeats, (long)w->bytes,
            w->flops, bytes / 1e9, flops / 1e12, percent, most->copy / 1e9, most->products / 1e12);
}

static void work_time_shop(WorkClock *clock, const Workshop *shop, int only)
{
    Work w;
    printf("\n| %s | version | shape | dtype | MB | GFLOP | floor, us | us | GB/s | TFLOP/s | %% of ceiling |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n",
           shop->name);
    for (int e = 0; e < shop->entries; e++)
        for (int s = 0; s < shop->times; s++)
            for (int t = 0; t < 2; t++) {
                if (!work_is_there(&shop->entry[e], work_types[t])) continue;
                work_open(&w, shop, &shop->entry[e], shop->timed[s], work_types[t]);
                for (int v = 0; v < WORK_VERSIONS && shop->entry[e].version[v].what; v++)
                    if (!only || v + 1 == only)
                        work_report(clock, &w, v, work_seconds(clock, &w, &shop->entry[e].version[v]));
                work_close(&w);
            }
}

static void work_time(const Workshop *shop, int shops, int only, const char *csv)
{
    WorkClock clock;
    work_clock_open(&clock, csv);
    work_measure_ceilings(&clock, shop);
    for (int i = 0; i < shops; i++) work_time_shop(&clock, &shop[i], only);
    work_clock_close(&clock);
}
#else
static void work_time(const Workshop *shop, int shops, int only, const char *csv)
{
    (void)shop, (void)shops, (void)only, (void)csv;
    work_exit("--time", "the emulator has no speed to measure; build with nvcc and run on a GPU");
}
#endif

// ---- main ----------------------------------------------------------------------------------------------------------

static const Workshop *work_shop;
static int work_shops, work_only; // this version; 0: all

TEST(every_version_computes_what_the_cpu_does)
{
    for (int i = 0; i < work_shops; i++) work_check(&work_shop[i], work_only);
}

static int work_main(const Workshop *shop, int shops, int argc, char **argv)
{
    const char *csv = NULL;
    int check = 0, time = 0, failed = 0;
    work_shop = shop, work_shops = shops;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--check")) check = 1;
        else if (!strcmp(argv[i], "--time")) time = 1;
        else if (!strcmp(argv[i], "--csv") && i + 1 < argc) csv = argv[++i];
        else if (!strcmp(argv[i], "--version") && i + 1 < argc && atoi(argv[i + 1]) > 0) work_only = atoi(argv[++i]);
        else work_exit(argv[i], "unknown; there is --check, --time, --csv FILE, --version N (from 1 on)");
    }
#if defined(GX_EMU)
    check |= !time;
#else
    if (!check && !time) check = time = 1;
#endif
    if (check) failed = test_main(1, argv);
    if (time) work_time(shop, shops, work_only, csv);
    return failed;
}
#endif
