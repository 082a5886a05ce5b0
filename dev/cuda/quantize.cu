// quantize.cu: the kernels of quantised matrices in the making: dev/cuda/workshop.h, docs/kernels.md. What a matrix is:
// galaxy/base/quantized.h.
//
// Dequantise, 1: the formula, a thread to a value: a byte of codes is read by two threads, a scale by 64.
// Dequantise, 2: galaxy/cuda/quantize.cuh. A thread writes 16 bytes; it reads their codes at once and one scale.
#define GALAXY_CUDA_IMPLEMENTATION
#include "galaxy/cuda/quantize.cuh"
#include "workshop.h"

enum { ROWS, COLUMNS };                         // a shape
enum { Y, CODES, SCALES, SCALE_CODES, OFFSET }; // buffers

static GxQuantized matrix_of(GxQuantKind kind, const int64_t *d, void **p)
{
    GxQuantized w = gx_quantized(kind, d[ROWS], d[COLUMNS], NULL);
    if (!p) return w;
    w.codes = (uint8_t *)p[CODES], w.scales = (float *)p[SCALES];
    if (kind == GX_NF4_DOUBLED) w.scale_codes = (uint8_t *)p[SCALE_CODES], w.offset = (float *)p[OFFSET];
    return w;
}

// ---- version 1 -----------------------------------------------------------------------------------------------------

template <class T> __global__ void dequantize_thread_per_value(T *y, GxQuantized w, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (w.kind == GX_INT8) {
        y[i] = gx_from_float<T>((float)(int8_t)w.codes[i] * w.scales[i / w.cols] * GX_INT8_STEP);
    } else {
        const int code = w.codes[i / 2] >> (i % 2 ? 0 : 4) & 15;
        y[i] = gx_from_float<T>(gx__cuda_nf4_values[code] * gx__cuda_nf4_scale(w, i / GX_NF4_BLOCK));
    }
}
template <class T> static void launch_thread_per_value(GxContext *g, GxQuantKind kind, const int64_t *d, void **p)
{
    const int64_t n = d[ROWS] * d[COLUMNS];
    GX_LAUNCH((dequantize_thread_per_value<T>), (unsigned)gx_ceil_div(n, GX_CUDA_BLOCK), GX_CUDA_BLOCK, 0,
              gx_cuda(g)->stream, (T *)p[Y], matrix_of(kind, d, p), n);
    gx_cuda_check(g, "thread_per_value");
}

// ---- the operation -------------------------------------------------------------------------------------------------

static uint8_t *bytes(Work *w, const char *name, int64_t n)
{
    uint8_t *x = (uint8_t *)work_given(w, name, GX_U8, n);
    for (int64_t i = 0; i < n; i++) x[i] = (uint8_t)((uint64_t)i * 0x9E3779B97F4A7C15u >> 56); // no pattern of a warp's
    return x;
}

// One rounding each of the scale's two and the value's two operations at most.
static void open_matrix(Work *w, GxQuantKind kind, const int64_t *d)
{
    const GxQuantized q = matrix_of(kind, d, NULL);
    work_output(w, "y", w->dtype, d[ROWS] * d[COLUMNS], 4, 1, 0);
    bytes(w, "codes", gx_quantized_code_bytes(&q));
    work_input(w, "scales", GX_F32, gx_quantized_scales(&q));
    if (kind != GX_NF4_DOUBLED) return;
    bytes(w, "codes of scales", gx_quantized_blocks(&q));
    work_input(w, "offset", GX_F32, 1);
}
static void dequantize(GxContext *g, GxQuantKind kind, const int64_t *d, GxDtype dtype, void **p)
{
    const GxQuantized q = matrix_of(kind, d, p);
    gx_dequantize(g, p[Y], dtype, &q, 0, d[ROWS], 0, d[COLUMNS]);
}

#define KIND(name, kind)                                                                                               \
    static void open_##name(Work *w, const int64_t *d) { open_matrix(w, kind, d); }                                    \
    static void call_##name(GxContext *g, const int64_t *d, GxDtype dtype, void **p)                                   \
    {                                                                                                                  \
        dequantize(g, kind, d, dtype, p);                                                                              \
    }                                                                                                                  \
    static void thread_per_value_##name(GxContext *g, const int64_t *d, GxDtype dtype, void **p)                       \
    {                                                                                                                  \
        GX_CUDA_TYPES(dtype, launch_thread_per_value, g, kind, d, p);                                                  \
    }
KIND(nf4, GX_NF4)
KIND(nf4_doubled, GX_NF4_DOUBLED)
KIND(int8, GX_INT8)

#define ENTRY(name)                                                                                                    \
    {                                                                                                                  \
        "dequantize " #name, open_##name, call_##name, NULL, WORK_BOTH,                                                \
        {                                                                                                              \
            {"thread per value", thread_per_value_##name}, { "16 bytes to a thread (shipped)", NULL }                  \
        }                                                                                                              \
    }
static const WorkEntry entries[] = {ENTRY(nf4), ENTRY(nf4_doubled), ENTRY(int8)};

static const int64_t checked[][WORK_DIMS] = {{1, 1}, {3, 7}, {5, 64}, {33, 130}, {67, 264}, {9, 4097}};
static const int64_t timed[][WORK_DIMS] = {{4096, 4096}, {14336, 4096}, {4096, 14336}};

static void device(GxDevice *table) { table->dequantize = gx_cuda_dequantize; }

int main(int argc, char **argv)
{
    const Workshop shop = {"quantize",
                           {"rows", "columns"},
                           entries,
                           sizeof entries / sizeof *entries,
                           checked,
                           timed,
                           sizeof checked / sizeof *checked,
                           sizeof timed / sizeof *timed,
                           device};
    return work_main(&shop, 1, argc, argv);
}
