// test_quantize.cu: quantised matrices: the bytes and values that dev/ref/make_quant_refs.py wrote down
// (data/ref/quant), what is refused, and products with them against products with what they are dequantised to.
//
// bnb.safetensors has some of them by the names of bitsandbytes (io/bnb.h). test_devices.cu holds gx_dequantize and the
// products on every device against the CPU, added to and with gaps too.
#include "galaxy/base/random.h"
#include "galaxy/cpu/cpu.h"
#include "galaxy/io/bnb.h"
#include "galaxy/ops/quantized_linear.h"
#include "test/test.h"
#include <unistd.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static void *take(int64_t bytes) { return malloc((size_t)gx_max(bytes, 1)); } // the sanitizers see its end
static float *random_floats(int64_t n, int number)
{
    float *x = (float *)take(4 * n);
    for (int64_t i = 0; i < n; i++) x[i] = gx_random_normal(3, (uint64_t)i, 0, (uint32_t)number);
    return x;
}

// A context of the CPU; small work is shared out, too.
typedef struct {
    GxContext g;
    GxDevice device;
    GxArena arena;
} Bench;
static void bench_open(Bench *b, int threads, int64_t tile)
{
    memset(b, 0, sizeof *b);
    b->device = *gx_device_cpu();
    b->device.quantized_tile = tile;
    b->g.device = &b->device, b->g.arena = &b->arena;
    b->g.threads = threads, gx_cpu_small = 0;
    CHECK(gx_arena_open(&b->arena, 1 << 24, &b->g.error) == GX_OK, "%s", b->g.error.message);
}
static void bench_close(Bench *b)
{
    CHECK(!gx_failed(&b->g), "%s", b->g.error.message);
    gx_arena_close(&b->arena);
}

// Each part of a matrix is a block of the heap of its own.
static GxQuantized matrix_open(GxQuantKind kind, int64_t rows, int64_t cols)
{
    GxQuantized w = gx_quantized(kind, rows, cols, NULL);
    w.codes = (uint8_t *)take(gx_quantized_code_bytes(&w));
    w.scales = (float *)take(4 * gx_quantized_scales(&w));
    if (kind != GX_NF4_DOUBLED) return w;
    w.scale_codes = (uint8_t *)take(gx_quantized_blocks(&w));
    w.offset = (float *)take(4);
    return w;
}
static void matrix_close(GxQuantized *w) { free(w->codes), free(w->scales), free(w->scale_codes), free(w->offset); }
static GxQuantized random_matrix(Bench *b, GxQuantKind kind, int64_t rows, int64_t cols)
{
    GxQuantized w = matrix_open(kind, rows, cols);
    float *x = random_floats(rows * cols, 1), *absmax = (float *)take(4 * gx_quantized_blocks(&w));
    gx_cpu_quantize(&b->g, &w, absmax, x);
    free(x), free(absmax);
    return w;
}

// ---- what the formulas give ----------------------------------------------------------------------------------------

static const char *const names[] = {"one",   "short", "odd",  "block",  "wide",      "zeros",
                                    "sizes", "ties",  "bf16", "groups", "scale_ties"};
static const char *const kinds[GX_QUANT_KINDS] = {"nf4", "nf4_doubled", "int8"};

static const GxSafetensorsEntry *entry_of(const GxSafetensors *s, const char *name, const char *part)
{
    char whole[80];
    snprintf(whole, sizeof whole, "%s.%s", name, part);
    return gx_safetensors_find(s, whole);
}
static void *read_part(const GxSafetensors *s, const char *name, const char *part, int64_t *bytes)
{
    const GxSafetensorsEntry *e = entry_of(s, name, part);
    GxError err = GX_ZERO;
    if (!CHECK(e != NULL, "%s.%s is not there", name, part)) return calloc(1, 1 << 20);
    void *x = take(*bytes = e->bytes);
    CHECK(gx_safetensors_read_raw(s, e, 0, e->elements, x, &err) == GX_OK, "%s", err.message);
    return x;
}

static void check_part(const GxSafetensors *s, const char *name, const char *part, const void *ours, int64_t bytes)
{
    int64_t n = 0, wrong = 0;
    unsigned char *theirs = (unsigned char *)read_part(s, name, part, &n);
    for (int64_t i = 0; n == bytes && i < n; i++) wrong += theirs[i] != ((const unsigned char *)ours)[i];
    CHECK(n == bytes && wrong == 0, "%s.%s: %ld bytes of %ld, %ld differ", name, part, (long)bytes, (long)n,
          (long)wrong);
    free(theirs);
}

static void check_bytes(const GxSafetensors *s, const char *name, const GxQuantized *w)
{
    const int is_int8 = w->kind == GX_INT8, is_doubled = w->kind == GX_NF4_DOUBLED;
    check_part(s, name, is_int8 ? "int8" : "nf4", w->codes, gx_quantized_code_bytes(w));
    check_part(s, name,
               is_int8      ? "SCB"
               : is_doubled ? "nested_absmax"
                            : "absmax",
               w->scales, 4 * gx_quantized_scales(w));
    if (!is_doubled) return;
    check_part(s, name, "scale_codes", w->scale_codes, gx_quantized_blocks(w));
    check_part(s, name, "offset", w->offset, 4);
}

// In parts of `part` rows or blocks, the last one shorter; 0: as a whole
static void quantize(Bench *b, const GxQuantized *w, const float *x, int64_t part)
{
    const int64_t n = w->rows * w->cols, step = part * (w->kind == GX_INT8 ? w->cols : GX_NF4_BLOCK);
    float *absmax = w->kind == GX_NF4_DOUBLED ? (float *)take(4 * gx_quantized_blocks(w)) : NULL;
    memset(w->codes, 0xff, (size_t)gx_quantized_code_bytes(w));
    if (part == 0) gx_cpu_quantize(&b->g, w, absmax, x);
    for (int64_t i = 0; part && i < n; i += step) gx_cpu_quantize_part(&b->g, w, absmax, i, gx_min(step, n - i), x + i);
    if (part) gx_cpu_quantize_scales(&b->g, w, absmax);
    free(absmax);
}

static int with_file(const char *name, GxQuantKind kind) { return strcmp(name, "groups") || kind == GX_NF4_DOUBLED; }

static void each_matrix(void (*check)(const GxSafetensors *, const char *, GxQuantized *, const float *x))
{
    GxSafetensors s;
    GxError err = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&s, "data/ref/quant/expected.safetensors", &err) == GX_OK, "%s", err.message))
        return;
    for (int i = 0; i < COUNT(names); i++)
        for (int kind = 0; kind < GX_QUANT_KINDS; kind++) {
            const GxSafetensorsEntry *e = entry_of(&s, names[i], "w");
            int64_t bytes;
            if (!with_file(names[i], (GxQuantKind)kind) || !CHECK(e && e->ndim == 2, "%s", names[i])) continue;
            float *x = (float *)read_part(&s, names[i], "w", &bytes);
            GxQuantized w = matrix_open((GxQuantKind)kind, e->shape[0], e->shape[1]);
            check(&s, names[i], &w, x);
            matrix_close(&w), free(x);
        }
    gx_safetensors_close(&s);
}

TEST(the_tables_are_those_of_the_formula)
{
    GxSafetensors s;
    GxError err = GX_ZERO;
    CHECK(gx_safetensors_open(&s, "data/ref/quant/expected.safetensors", &err) == GX_OK, "%s", err.message);
    check_part(&s, "table", "nf4", gx_nf4_values, sizeof gx_nf4_values);
    check_part(&s, "table", "scales", gx_scale_values, sizeof gx_scale_values);
    gx_safetensors_close(&s);
}

static void check_quantized(const GxSafetensors *s, const char *name, GxQuantized *w, const float *x)
{
    static const int64_t parts[] = {0, 1, 3};
    for (int threads = 1; threads <= 3; threads += 2)
        for (int p = 0; p < COUNT(parts); p++) {
            Bench b;
            bench_open(&b, threads, 1);
            quantize(&b, w, x, parts[p]);
            check_bytes(s, name, w);
            bench_close(&b);
        }
}
TEST(a_matrix_has_the_bytes_that_the_formulas_give_it_as_a_whole_and_in_parts) { each_matrix(check_quantized); }

// The box of a matrix, against the same elements of all values.
static void check_box(Bench *b, const GxQuantized *w, const float *values, GxDtype type, int64_t row, int64_t rows,
                      int64_t col, int64_t cols)
{
    int64_t wrong = 0;
    char *y = (char *)take(rows * cols * gx_dtype_size(type));
    gx_dequantize(&b->g, y, type, w, row, rows, col, cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        const float value = values[(row + i / cols) * w->cols + col + i % cols];
        const uint16_t narrow = gx_to_bf16(value);
        wrong += type == GX_BF16 ? memcmp(y + 2 * i, &narrow, 2) != 0 : memcmp(y + 4 * i, &value, 4) != 0;
    }
    CHECK(wrong == 0, "%s %ld x %ld, rows %ld + %ld, columns %ld + %ld, %s: %ld values have other bits", kinds[w->kind],
          (long)w->rows, (long)w->cols, (long)row, (long)rows, (long)col, (long)cols, gx_dtype_name(type), (long)wrong);
    free(y);
}
static void check_dequantized(const GxSafetensors *s, const char *name, GxQuantized *w, const float *x)
{
    char part[40];
    int64_t bytes;
    Bench b;
    snprintf(part, sizeof part, "%s.values", kinds[w->kind]);
    float *values = (float *)read_part(s, name, part, &bytes);
    CHECK(bytes == 4 * w->rows * w->cols, "%s.%s has %ld bytes", name, part, (long)bytes);
    bench_open(&b, 2, 1);
    quantize(&b, w, x, 0);
    for (int type = GX_F32; type <= GX_BF16; type++)
        for (int64_t row = 0; row < w->rows; row += 1 + row / 2)
            for (int64_t col = 0; col < w->cols; col += 1 + col / 3 * 2) {
                check_box(&b, w, values, (GxDtype)type, row, w->rows - row, col, w->cols - col);
                check_box(&b, w, values, (GxDtype)type, row, 1, col, gx_min(1 + col % 67, w->cols - col));
            }
    bench_close(&b);
    free(values);
}
TEST(every_box_of_a_matrix_is_dequantised_to_the_bits_of_the_formulas) { each_matrix(check_dequantized); }

// Half of what two neighbours are apart at most: of N -1 and -0.696, times a (max|w| of a block); of int8 a/127. A
// doubled scale, which is multiplied by 1 at most, is off by half of the largest gap of D, 0.0141, times A. Besides,
// what a code is chosen by and its value are rounded, three times and twice at most.
static double quantization_error(GxQuantKind kind, double a, double nested)
{
    const double gap = (1 - 0.6961928) / 2, gap_of_scale = 0.01407 / 2;
    if (kind == GX_INT8) return a / 127 / 2;
    return kind == GX_NF4 ? gap * a : gap * a + gap_of_scale * nested;
}
static void check_near(const GxSafetensors *s, const char *name, GxQuantized *w, const float *x)
{
    const int64_t n = w->rows * w->cols;
    float *y = (float *)take(4 * n);
    Bench b;
    (void)s;
    bench_open(&b, 2, 1);
    quantize(&b, w, x, 0);
    gx_dequantize(&b.g, y, GX_F32, w, 0, w->rows, 0, w->cols);
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = w->kind == GX_INT8 ? i / w->cols * w->cols : i / GX_NF4_BLOCK * GX_NF4_BLOCK;
        const int64_t end = gx_min(n, begin + (w->kind == GX_INT8 ? w->cols : GX_NF4_BLOCK));
        double a = 0;
        for (int64_t j = begin; j < end; j++) a = fmax(a, fabs((double)x[j]));
        const double nested = w->kind == GX_NF4_DOUBLED ? w->scales[i / GX_NF4_BLOCK / GX_SCALE_BLOCK] : 0;
        const double bound =
            quantization_error(w->kind, a, nested) + 5 * (FLT_EPSILON / 2) * (a + nested) + 1e-36; // smaller a are lost
        const double error = fabs((double)y[i] - x[i]);
        test_state.worst = fmax(test_state.worst, error / bound);
        CHECK(error <= bound, "%s, %s: element %ld is %g, not %g: off by more than %g", name, kinds[w->kind], (long)i,
              y[i], x[i], bound);
        CHECK(x[i] != 0 || (y[i] == 0), "%s, %s: element %ld is %g, not 0", name, kinds[w->kind], (long)i, y[i]);
    }
    bench_close(&b);
    free(y);
}
TEST(a_quantised_matrix_is_as_near_as_its_codes_are_to_each_other_and_zeros_stay_zeros) { each_matrix(check_near); }

TEST(parts_in_one_memory_lie_behind_each_other_and_its_size_is_known)
{
    static const int64_t sizes[][2] = {{1, 1}, {5, 7}, {64, 64}, {131, 127}, {300, 4096}};
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++)
        for (int i = 0; i < COUNT(sizes); i++) {
            const int64_t rows = sizes[i][0], cols = sizes[i][1], n = rows * cols;
            const GxQuantized empty = gx_quantized((GxQuantKind)kind, rows, cols, NULL);
            const int64_t bytes = gx_quantized_bytes(&empty);
            const int64_t blocks = (n + 63) / 64, scales = kind == GX_NF4_DOUBLED ? (blocks + 255) / 256 : blocks;
            char *memory = (char *)aligned_alloc(GX_ALIGN, (size_t)bytes);
            Bench b;
            const GxQuantized w = gx_quantized((GxQuantKind)kind, rows, cols, memory);
            float *x = random_floats(n, 2);
            bench_open(&b, 1, 1);
            quantize(&b, &w, x, 0); // AddressSanitizer sees what leaves it
            const int64_t wanted = kind == GX_INT8 ? gx_round_up(n, 64) + gx_round_up(4 * rows, 64)
                                                   : gx_round_up((n + 1) / 2, 64) + gx_round_up(4 * scales, 64) +
                                                         (kind == GX_NF4 ? 0 : gx_round_up(blocks, 64) + 64);
            CHECK(bytes == wanted, "%s %ld x %ld: %ld bytes, not %ld", kinds[kind], (long)rows, (long)cols, (long)bytes,
                  (long)wanted);
            CHECK((char *)w.codes == memory && (uintptr_t)w.scales % GX_ALIGN == 0 &&
                      (kind == GX_NF4_DOUBLED) == (w.offset && w.scale_codes),
                  "%s: parts are not where they belong", kinds[kind]);
            bench_close(&b);
            free(memory), free(x);
        }
}

// ---- boxes ---------------------------------------------------------------------------------------------------------

// The box [row, row + rows) x [col, col + cols) of a matrix, cut from its codes in pieces of `piece` elements, against
// the same elements of the whole.
static void check_cut(Bench *b, const GxQuantized *whole, int64_t row, int64_t rows, int64_t col, int64_t cols,
                      int64_t piece)
{
    const int64_t n = whole->rows * whole->cols, is_int8 = whole->kind == GX_INT8;
    GxQuantized box = gx_quantized_box(whole->kind, row, rows, col, cols, whole->cols, NULL);
    const int64_t bytes = gx_quantized_bytes(&box);
    void *memory = aligned_alloc(GX_ALIGN, (size_t)bytes);
    float *x = (float *)take(4 * rows * cols), *y = (float *)take(4 * rows * cols);
    memset(memory, 0xa5, (size_t)bytes);
    box = gx_quantized_box(whole->kind, row, rows, col, cols, whole->cols, memory);
    for (int64_t first = 0; first < n; first += piece)
        gx_cpu_quantized_take_codes(&box, row, col, whole->codes + (is_int8 ? first : first / 2), first,
                                    gx_min(piece, n - first));
    gx_cpu_quantized_take_scales(&box, row, col, whole);
    gx_dequantize(&b->g, y, GX_F32, &box, 0, rows, 0, cols);
    gx_dequantize(&b->g, x, GX_F32, whole, row, rows, col, cols);
    CHECK(!memcmp(x, y, (size_t)(4 * rows * cols)),
          "%s %ld x %ld: rows %ld + %ld, columns %ld + %ld in pieces of %ld have other values", kinds[whole->kind],
          (long)whole->rows, (long)whole->cols, (long)row, (long)rows, (long)col, (long)cols, (long)piece);
    if (!is_int8 && rows * cols % 2)
        CHECK((box.codes[rows * cols / 2] & 15) == 7, "the last half is %d", box.codes[rows * cols / 2] & 15);
    if (rows > 1) gx_dequantize(&b->g, y, GX_F32, &box, 1, 1, cols / 2, cols - cols / 2); // a box of the box
    if (rows > 1)
        CHECK(!memcmp(x + cols + cols / 2, y, (size_t)(4 * (cols - cols / 2))), "%s: its second row",
              kinds[whole->kind]);
    free(memory), free(x), free(y);
}
TEST(a_box_of_a_matrix_has_the_values_of_the_whole_wherever_it_is_cut)
{
    static const int64_t sizes[][2] = {{7, 9}, {5, 64}, {33, 65}, {12, 192}, {300, 129}};
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++)
        for (int i = 0; i < COUNT(sizes); i++) {
            const int64_t R = sizes[i][0], C = sizes[i][1];
            Bench b;
            bench_open(&b, 2, 1);
            GxQuantized w = random_matrix(&b, (GxQuantKind)kind, R, C);
            for (int64_t row = 0; row < R; row += 1 + R / 4)
                for (int64_t col = 0; col < C; col += 1 + C / 5) {
                    check_cut(&b, &w, row, R - row, 0, C, 64 * 1000); // rows of it
                    check_cut(&b, &w, 0, R, col, C - col, 64);        // columns of it
                    check_cut(&b, &w, row, (R - row + 1) / 2, col, 1, 192);
                    check_cut(&b, &w, row, R - row, 0, col + 1, 2 * 64);
                }
            matrix_close(&w);
            bench_close(&b);
        }
}

// ---- what is refused -----------------------------------------------------------------------------------------------

static void refused(GxContext *g, GxStatus code, const char *says)
{
    CHECK(gx_error_code(&g->error) == code && strstr(g->error.message, says), "\"%s\" instead of \"%s\"",
          g->error.message, says);
    gx_error_clear(&g->error);
}

TEST(what_is_not_finite_or_too_large_is_refused_and_named)
{
    static const struct {
        float value;
        const char *says;
    } wrong[] = {{NAN, "nan"},
                 {-NAN, "nan"},
                 {INFINITY, "is inf"},
                 {-INFINITY, "is -inf"},
                 {-0x1p120f, "is -1.32923e+36"},
                 {FLT_MAX, "is 3.40282e+38"}};
    enum { ROWS = 3, COLS = 45, N = ROWS * COLS };
    static const int places[] = {0, 44, 45, 63, 64, 127, N - 1};
    Bench b;
    bench_open(&b, 2, 1);
    float *x = random_floats(N, 1);
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++)
        for (int i = 0; i < COUNT(wrong); i++)
            for (int p = 0; p < COUNT(places); p++) {
                char says[60];
                float absmax[3], before = x[places[p]];
                GxQuantized w = matrix_open((GxQuantKind)kind, ROWS, COLS);
                x[places[p]] = wrong[i].value;
                gx_cpu_quantize(&b.g, &w, absmax, x);
                snprintf(says, sizeof says, "row %d, column %d of a matrix is ", places[p] / COLS, places[p] % COLS);
                CHECK(strstr(b.g.error.message, wrong[i].says) != NULL, "\"%s\"", b.g.error.message);
                refused(&b.g, GX_ERR_FORMAT, says);
                x[places[p]] = nextafterf(0x1p120f, 0); // the largest that is not
                CHECK(gx_cpu_quantize(&b.g, &w, absmax, x) == GX_OK, "%s", b.g.error.message);
                float y[N];
                gx_dequantize(&b.g, y, GX_F32, &w, 0, ROWS, 0, COLS);
                for (int e = 0; e < N; e++) CHECK(isfinite(y[e]), "%s: element %d became %g", kinds[kind], e, y[e]);
                x[places[p]] = before;
                matrix_close(&w);
            }
    free(x);
    bench_close(&b);
}

TEST(parts_that_are_no_blocks_and_boxes_outside_are_refused)
{
    static const int64_t parts[][2] = {{1, 64}, {0, 63}, {64, 65}, {64, 0}, {-64, 64}, {64, 72}, {192, 1}};
    static const int64_t boxes[][4] = {{-1, 2, 0, 1}, {2, 2, 0, 1},  {0, 4, 0, 1},
                                       {0, 1, -1, 2}, {0, 1, 44, 2}, {0, 1, 0, 46}};
    enum { ROWS = 3, COLS = 45 };
    Bench b;
    bench_open(&b, 1, 1);
    float *x = random_floats(ROWS * COLS, 1);
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++) {
        GxQuantized w = matrix_open((GxQuantKind)kind, ROWS, COLS);
        float absmax[3], y[200];
        gx_cpu_quantize(&b.g, &w, absmax, x);
        for (int i = 0; i < COUNT(parts); i++) {
            gx_cpu_quantize_part(&b.g, &w, absmax, parts[i][0], parts[i][1], x);
            refused(&b.g, GX_ERR_ARGUMENT, kind == GX_INT8 ? "not whole blocks of 45" : "not whole blocks of 64");
        }
        for (int i = 0; i < COUNT(boxes); i++) {
            gx_dequantize(&b.g, y, GX_F32, &w, boxes[i][0], boxes[i][1], boxes[i][2], boxes[i][3]);
            refused(&b.g, GX_ERR_ARGUMENT, "do not lie inside a matrix of 3 x 45");
        }
        gx_dequantize(&b.g, y, GX_F16, &w, 0, 1, 0, 1);
        refused(&b.g, GX_ERR_UNSUPPORTED, "dequantize: the device cpu does not compute in F16");
        GxLinearShape s = gx_linear_shape(1, ROWS, COLS, GX_F32);
        gx_quantized_linear_forward(&b.g, y, x, &w, 1, NULL, &s);
        refused(&b.g, GX_ERR_ARGUMENT, "quantized_linear_forward: the quantized matrix is 3 x 45; the product expects");
        gx_quantized_linear_backward_input(&b.g, y, x, &w, 1, &s);
        refused(&b.g, GX_ERR_ARGUMENT, "quantized_linear_backward_input: the quantized matrix is 3 x 45;");
        matrix_close(&w);
    }
    CHECK(b.arena.peak == 0, "refused, but scratch was taken");
    free(x);
    bench_close(&b);
}

// ---- products ------------------------------------------------------------------------------------------------------

static void *in_type(const float *x, int64_t n, GxDtype type)
{
    char *y = (char *)take(n * gx_dtype_size(type));
    for (int64_t i = 0; i < n; i++) {
        const uint16_t narrow = gx_to_bf16(x[i]);
        if (type == GX_BF16) memcpy(y + 2 * i, &narrow, 2);
        else memcpy(y + 4 * i, x + i, 4);
    }
    return y;
}
static double number(const void *x, int64_t i, GxDtype type)
{
    return type == GX_BF16 ? gx_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

// Products with W, dequantised by tiles, and with W, dequantised as a whole: `exactly` to the bit, else as two fp32
// sums of `terms` differ in their order, and then may be rounded to neighbours in bf16.
static void check_product(const char *what, const void *tiles, const void *whole, int64_t n, int64_t terms,
                          GxDtype type, int exactly)
{
    double squares = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = number(tiles, i, type), b = number(whole, i, type);
        squares += (a - b) * (a - b), size += b * b;
    }
    const double bound = (test_bound(2 * (double)terms) + (type == GX_BF16 ? 0x1p-8 : 0)) * sqrt(size);
    test_state.worst = fmax(test_state.worst, sqrt(squares) / bound);
    CHECK(sqrt(squares) <= bound, "%s: off by %g of %g", what, sqrt(squares), sqrt(size));
    if (exactly) CHECK(!memcmp(tiles, whole, (size_t)(n * gx_dtype_size(type))), "%s: other bits", what);
}

// R, Out, In, and the tile's elements: 1 is 64 rows.
static void check_products(const int64_t *d, GxQuantKind kind, GxDtype type)
{
    const int64_t R = d[0], Out = d[1], In = d[2], tile = d[3];
    const int plain = !strncmp(gx_cpu_gemm_name(), "plain", 5);
    const GxLinearShape s = gx_linear_shape(R, In, Out, type);
    const int64_t size = gx_dtype_size(type);
    char what[120];
    Bench b;
    bench_open(&b, 2, tile);
    GxQuantized w = random_matrix(&b, kind, Out, In);
    float *numbers[3] = {random_floats(R * In, 3), random_floats(R * Out, 4), random_floats(Out, 5)};
    void *x = in_type(numbers[0], R * In, type), *dy = in_type(numbers[1], R * Out, type),
         *bias = in_type(numbers[2], Out, type), *dense = take(Out * In * size);
    void *y[2] = {take(R * Out * size), take(R * Out * size)}, *dx[2] = {take(R * In * size), take(R * In * size)};
    gx_dequantize(&b.g, dense, type, &w, 0, Out, 0, In);
    for (int has_bias = 0; has_bias < 2; has_bias++) {
        gx_linear_forward(&b.g, y[1], x, dense, has_bias ? bias : NULL, &s);
        memset(y[0], 0xff, (size_t)(R * Out * size)); // NaN
        gx_quantized_linear_forward(&b.g, y[0], x, &w, 1, has_bias ? bias : NULL, &s);
        snprintf(what, sizeof what, "y, %s %s, R %ld, Out %ld, In %ld, bias %d", kinds[kind], gx_dtype_name(type),
                 (long)R, (long)Out, (long)In, has_bias);
        check_product(what, y[0], y[1], R * Out, In, type,
                      plain || R == 1 || gx_quantized_tile(&b.g, In, Out) == Out); // R = 1: a sum of its own each
    }
    gx_linear_backward_input(&b.g, dx[1], dy, dense, &s);
    memset(dx[0], 0xff, (size_t)(R * In * size));
    gx_quantized_linear_backward_input(&b.g, dx[0], dy, &w, 1, &s);
    what[0] = 'd';
    check_product(what, dx[0], dx[1], R * In, Out, type, plain || gx_quantized_tile(&b.g, Out, In) == In);
    if (type == GX_F32) { // the gradient of <dy, y> by x: <dx, x> is <dy, x W^T>
        double forward = 0, backward = 0, terms = 0;
        gx_quantized_linear_forward(&b.g, y[0], x, &w, 1, NULL, &s);
        for (int64_t i = 0; i < R * Out; i++) forward += number(dy, i, type) * number(y[0], i, type);
        for (int64_t i = 0; i < R * In; i++) {
            backward += number(x, i, type) * number(dx[0], i, type);
            terms += pow(number(x, i, type) * number(dx[0], i, type), 2);
        }
        CHECK(fabs(forward - backward) <= test_bound((double)(In + Out)) * (sqrt(terms) + fabs(forward)),
              "%s: <dy, y> is %.9g, <dx, x> %.9g", what, forward, backward);
    }
    free(x), free(dy), free(bias), free(dense), free(y[0]), free(y[1]), free(dx[0]), free(dx[1]);
    for (int i = 0; i < 3; i++) free(numbers[i]);
    matrix_close(&w);
    bench_close(&b);
}

TEST(products_by_tiles_are_those_of_the_whole_dequantised_matrix)
{
    static const int64_t shapes[][4] = {
        {1, 1, 1, 1},     {3, 5, 7, 1},           {5, 64, 64, 1},          {1, 200, 130, 1},
        {33, 130, 65, 1}, {7, 65, 129, 1},        {66, 300, 200, 1},       {4, 257, 96, 96 * 128},
        {9, 70, 33, 1},   {5, 200, 130, 1 << 20}, {2, 192, 448, 448 * 191}};
    for (int i = 0; i < COUNT(shapes); i++)
        for (int kind = 0; kind < GX_QUANT_KINDS; kind++)
            for (int type = GX_F32; type <= GX_BF16; type++)
                check_products(shapes[i], (GxQuantKind)kind, (GxDtype)type);
}

// Three matrices behind each other are one with all their rows.
TEST(a_product_with_several_matrices_is_that_with_their_rows_behind_each_other)
{
    enum { R = 6, IN = 130, PARTS = 3, OUT = 70 + 9 + 200 };
    static const int64_t out[PARTS] = {70, 9, 200};
    for (int kind = 0; kind < GX_QUANT_KINDS; kind++)
        for (int type = GX_F32; type <= GX_BF16; type++) {
            const int64_t size = gx_dtype_size((GxDtype)type);
            const GxLinearShape s = gx_linear_shape(R, IN, OUT, (GxDtype)type);
            GxQuantized w[PARTS];
            char what[80];
            Bench b;
            bench_open(&b, 2, 1);
            float *numbers[3] = {random_floats(R * IN, 3), random_floats(R * OUT, 4), random_floats(OUT, 5)};
            void *x = in_type(numbers[0], R * IN, (GxDtype)type), *dy = in_type(numbers[1], R * OUT, (GxDtype)type),
                 *bias = in_type(numbers[2], OUT, (GxDtype)type), *dense = take(OUT * IN * size);
            void *y[2] = {take(R * OUT * size), take(R * OUT * size)},
                 *dx[2] = {take(R * IN * size), take(R * IN * size)};
            for (int i = 0, row = 0; i < PARTS; row += (int)out[i++]) {
                w[i] = matrix_open((GxQuantKind)kind, out[i], IN);
                float *values = random_floats(out[i] * IN, 10 + i),
                      *absmax = (float *)take(4 * gx_quantized_blocks(&w[i]));
                gx_cpu_quantize(&b.g, &w[i], absmax, values);
                gx_dequantize(&b.g, (char *)dense + row * IN * size, (GxDtype)type, &w[i], 0, out[i], 0, IN);
                free(values), free(absmax);
            }
            gx_linear_forward(&b.g, y[1], x, dense, bias, &s);
            gx_quantized_linear_forward(&b.g, y[0], x, w, PARTS, bias, &s);
            gx_linear_backward_input(&b.g, dx[1], dy, dense, &s);
            gx_quantized_linear_backward_input(&b.g, dx[0], dy, w, PARTS, &s);
            snprintf(what, sizeof what, "y, %s %s", kinds[kind], gx_dtype_name((GxDtype)type));
            check_product(what, y[0], y[1], R * OUT, IN, (GxDtype)type, 0);
            snprintf(what, sizeof what, "dx, %s %s", kinds[kind], gx_dtype_name((GxDtype)type));
            check_product(what, dx[0], dx[1], R * IN, OUT, (GxDtype)type, 0);
            gx_quantized_linear_forward(&b.g, y[0], x, w, PARTS - 1, bias, &s);
            refused(&b.g, GX_ERR_ARGUMENT, "the quantized matrix is 79 x 130; the product expects");
            for (int i = 0; i < PARTS; i++) matrix_close(&w[i]), free(numbers[i]);
            free(x), free(dy), free(bias), free(dense), free(y[0]), free(y[1]), free(dx[0]), free(dx[1]);
            bench_close(&b);
        }
}

// Of the scratch that a product takes, and of what it records, on a device that computes nothing.
TEST(a_product_takes_scratch_of_one_tile_and_records_what_it_is_made_of)
{
    enum { R = 5, OUT = 200, IN = 96 };
    for (int backward = 0; backward < 2; backward++) {
        const GxLinearShape s = gx_linear_shape(R, IN, OUT, GX_BF16);
        const GxQuantized w = gx_quantized(GX_NF4_DOUBLED, OUT, IN, NULL);
        GxDevice none = gx_device_none(gx_device_cpu());
        GxContext g = GX_ZERO;
        GxArena dry;
        GxRecorder recorder = GX_ZERO;
        gx_arena_open_dry(&dry);
        none.quantized_tile = 1;
        g.device = &none, g.arena = &dry, g.recorder = &recorder;
        if (backward) gx_quantized_linear_backward_input(&g, dry.base, dry.base, &w, 1, &s);
        else gx_quantized_linear_forward(&g, dry.base, dry.base, &w, 1, NULL, &s);
        const int tiles = backward ? 2 : 4;
        const int64_t scratch = 2 * 64 * (backward ? OUT : IN);
        CHECK(!gx_failed(&g) && dry.used == 0 && dry.peak == scratch, "%ld bytes of scratch, not %ld: %s",
              (long)dry.peak, (long)scratch, g.error.message);
        CHECK(recorder.n == 2 * tiles && recorder.flops == 2.0 * R * OUT * IN + OUT * IN, "%ld events, %.0f FLOPs",
              (long)recorder.n, recorder.flops);
        for (int i = 0; i < 2 * tiles; i++) {
            const char *name = i % 2 == 0 ? "dequantize" : backward ? "linear_backward_input" : "linear_forward";
            CHECK(!strcmp(recorder.event[i].name, name), "event %d is %s", i, recorder.event[i].name);
        }
        gx_recorder_close(&recorder);
    }
}

// ---- files ---------------------------------------------------------------------------------------------------------

static const char bnb_file[] = "data/ref/quant/bnb.safetensors";
static const struct {
    const char *name, *matrix; // in bnb.safetensors, in expected.safetensors
    GxQuantKind kind;
    GxDtype dtype;
} stored[] = {{"layers.0.q_proj.weight", "odd", GX_NF4, GX_F32},
              {"layers.0.k_proj.weight", "zeros", GX_NF4_DOUBLED, GX_BF16},
              {"layers.0.v_proj.weight", "short", GX_INT8, GX_F32},
              {"layers.0.o_proj.weight", "bf16", GX_NF4_DOUBLED, GX_F16}}; // the last with codes stored as BF16

// As written, each matrix is what the formulas give; returns how many entries belong to them.
static int check_file(const char *path)
{
    GxSafetensors s, expected;
    GxError err = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&s, path, &err) == GX_OK &&
                   gx_safetensors_open(&expected, "data/ref/quant/expected.safetensors", &err) == GX_OK,
               "%s", err.message))
        return 0;
    for (int i = 0; i < COUNT(stored); i++) {
        GxBnbMatrix m;
        const GxSafetensorsEntry *e = entry_of(&expected, stored[i].matrix, "w");
        CHECK(gx_bnb_find(&s, stored[i].name, &m, &err) == GX_OK && m.is_quantized && m.kind == stored[i].kind &&
                  m.rows == e->shape[0] && m.cols == e->shape[1] && m.dtype == stored[i].dtype,
              "%s: kind %d, %ld x %ld of %s: %s", stored[i].name, m.kind, (long)m.rows, (long)m.cols,
              gx_dtype_name(m.dtype), err.message);
        GxQuantized w = matrix_open(stored[i].kind, e->shape[0], e->shape[1]);
        CHECK(gx_bnb_read(&s, stored[i].name, &w, &err) == GX_OK, "%s", err.message);
        check_bytes(&expected, stored[i].matrix, &w);
        matrix_close(&w);
    }
    const int n = s.n;
    gx_safetensors_close(&s), gx_safetensors_close(&expected);
    return n;
}

// The entries and contents of a file.
typedef struct {
    GxSafetensorsEntry entry[32];
    char *data[32];
    int n;
} Contents;
static void write_contents(const Contents *c, const char *path)
{
    GxSafetensorsWriter to;
    GxError err = GX_ZERO;
    CHECK(gx_safetensors_create(&to, path, c->entry, c->n, NULL, 0, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < c->n; i++)
        CHECK(gx_safetensors_write(&to, c->entry[i].name, 0, c->data[i], c->entry[i].elements, &err) == GX_OK, "%s",
              err.message);
    CHECK(gx_safetensors_finish(&to, &err) == GX_OK, "%s", err.message);
    gx_safetensors_abort(&to);
}
static void contents_open(Contents *c, const char *path)
{
    GxSafetensors s;
    GxError err = GX_ZERO;
    CHECK(gx_safetensors_open(&s, path, &err) == GX_OK, "%s", err.message);
    for (c->n = 0; c->n < s.n; c->n++) {
        c->entry[c->n] = s.entry[c->n];
        c->data[c->n] = (char *)calloc(1, (size_t)s.entry[c->n].bytes + 64);
        gx_safetensors_read_raw(&s, &s.entry[c->n], 0, s.entry[c->n].elements, c->data[c->n], &err);
    }
    gx_safetensors_close(&s);
}
static void contents_close(Contents *c)
{
    for (int i = 0; i < c->n; i++) free(c->data[i]);
}
static int contents_find(const Contents *c, const char *name)
{
    int i = 0;
    while (i < c->n && strcmp(c->entry[i].name, name)) i++;
    return CHECK(i < c->n, "%s is not there", name) ? i : 0;
}

TEST(files_by_the_formula_are_read_and_what_is_written_is_the_same_again)
{
    char path[] = "/tmp/galaxy_bnb_XXXXXX";
    GxSafetensors s;
    GxSafetensorsWriter to;
    GxSafetensorsEntry entry[COUNT(stored) * GX_BNB_ENTRIES];
    GxQuantized w[COUNT(stored)];
    GxError err = GX_ZERO;
    int n = 0;
    close(mkstemp(path));
    const int theirs = check_file(bnb_file);
    CHECK(gx_safetensors_open(&s, bnb_file, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < COUNT(stored); i++) {
        GxBnbMatrix m;
        gx_bnb_find(&s, stored[i].name, &m, &err);
        w[i] = matrix_open(m.kind, m.rows, m.cols);
        gx_bnb_read(&s, stored[i].name, &w[i], &err);
        n += gx_bnb_entries(entry + n, stored[i].name, &w[i], m.dtype, &err);
    }
    CHECK(gx_safetensors_create(&to, path, entry, n, NULL, 0, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < COUNT(stored); i++)
        CHECK(gx_bnb_write(&to, stored[i].name, &w[i], stored[i].dtype, &err) == GX_OK, "%s", err.message);
    CHECK(gx_safetensors_finish(&to, &err) == GX_OK, "%s", err.message);
    CHECK(check_file(path) == n && n == theirs - 1, "%d entries, not %d", n, theirs - 1); // without the norm's
    Contents a, b;
    contents_open(&a, bnb_file), contents_open(&b, path);
    for (int i = 0; i < b.n; i++) { // but for the text of a state, which may have other spaces, and o_proj's type
        const GxSafetensorsEntry *e = &a.entry[contents_find(&a, b.entry[i].name)];
        if (strstr(e->name, "quant_state") || !strcmp(e->name, "layers.0.o_proj.weight")) continue;
        CHECK(e->dtype == b.entry[i].dtype && e->ndim == b.entry[i].ndim && e->elements == b.entry[i].elements &&
                  !memcmp(a.data[contents_find(&a, e->name)], b.data[i], (size_t)e->bytes),
              "%s differs", e->name);
    }
    contents_close(&a), contents_close(&b);
    for (int i = 0; i < COUNT(stored); i++) matrix_close(&w[i]);
    gx_safetensors_close(&s);
    unlink(path);
}

// A file where one thing is wrong: the text `from` of an entry is `to`; or the entry has another type, or is not there.
typedef struct {
    const char *matrix, *part, *from, *to;
    int type;    // a GxDtype of the same size; 0: stays
    int without; // 1: the entry is not there
    GxStatus code;
    const char *says;
} Wrong;
#define STATE ".quant_state.bitsandbytes__nf4"

static void check_wrong(const Wrong *w)
{
    char path[] = "/tmp/galaxy_bnb_XXXXXX", name[200], matrix[100];
    Contents c;
    GxSafetensors s;
    GxBnbMatrix m;
    GxError err = GX_ZERO;
    close(mkstemp(path));
    contents_open(&c, bnb_file);
    snprintf(matrix, sizeof matrix, "layers.0.%s.weight", w->matrix);
    snprintf(name, sizeof name, w->part[0] == '!' ? "layers.0.%s%s" : "layers.0.%s.weight%s", w->matrix,
             w->part + (w->part[0] == '!'));
    const int i = contents_find(&c, name);
    GxSafetensorsEntry *e = &c.entry[i];
    if (w->type) e->dtype = w->type;
    if (w->from) {
        char *at = strstr(c.data[i], w->from);
        const size_t from = strlen(w->from), to = strlen(w->to);
        if (!CHECK(at != NULL, "\"%s\" is not in %s", w->from, name)) return;
        memmove(at + to, at + from, strlen(at + from) + 1);
        memcpy(at, w->to, to);
        e->elements = e->bytes = e->shape[0] = e->shape[0] + (int64_t)to - (int64_t)from;
    }
    if (w->without) { // it has another name
        snprintf(e->name, sizeof e->name, "elsewhere");
    }
    if (!w->from && !w->type && !w->without) memcpy(c.data[i], w->to, 4); // its first four bytes
    write_contents(&c, path);
    CHECK(gx_safetensors_open(&s, path, &err) == GX_OK, "%s", err.message);
    GxStatus code = gx_bnb_find(&s, matrix, &m, &err);
    if (code == GX_OK) {
        GxQuantized q = matrix_open(m.kind, m.rows, m.cols);
        code = gx_bnb_read(&s, matrix, &q, &err);
        matrix_close(&q);
    }
    CHECK(code == w->code && strstr(err.message, w->says), "%s: code %d, \"%s\" instead of \"%s\"", name, (int)code,
          err.message, w->says);
    gx_safetensors_close(&s), contents_close(&c);
    unlink(path);
}

TEST(files_that_are_not_whole_or_of_other_blocks_are_refused)
{
    static const Wrong wrong[] = {
        {"q_proj", STATE, "\"nf4\"", "\"fp4\"", 0, 0, GX_ERR_UNSUPPORTED, "quant_type fp4 in blocks of 64"},
        {"q_proj", STATE, "64", "128", 0, 0, GX_ERR_UNSUPPORTED, "in blocks of 128"},
        {"q_proj", STATE, "float32", "float64", 0, 0, GX_ERR_UNSUPPORTED, "dtype is \"float64\""},
        {"q_proj", STATE, "[33, 65]", "[33]", 0, 0, GX_ERR_FORMAT, "shape is not that of a matrix"},
        {"q_proj", STATE, "[33, 65]", "[33, -65]", 0, 0, GX_ERR_FORMAT, "shape is not that of a matrix"},
        {"q_proj", STATE, "[33, 65]", "[99999999999, 99999999999]", 0, 0, GX_ERR_FORMAT, "shape is not that"},
        {"q_proj", STATE, "[33, 65]", "[33, 67]", 0, 0, GX_ERR_FORMAT,
         "weight has 1073 bytes of type U8; expected 1106"},
        {"q_proj", STATE, "}", "", 0, 0, GX_ERR_FORMAT, "quant_state.bitsandbytes__nf4:1:"},
        {"q_proj", STATE, "\"blocksize\"", "\"block\"", 0, 0, GX_ERR_FORMAT, "blocksize"},
        {"k_proj", STATE, "256", "128", 0, 0, GX_ERR_UNSUPPORTED, "scales in groups of 128"},
        {"k_proj", STATE, "nested_offset\": ", "nested_offset\": 1e300,\"x\":", 0, 0, GX_ERR_FORMAT,
         "is not an fp32 number"},
        {"k_proj", STATE, "nested_offset", "offset", 0, 0, GX_ERR_FORMAT, "nested_offset"},
        {"k_proj", STATE, "nested_blocksize", "blocks", 0, 0, GX_ERR_UNSUPPORTED, "has \"blocks\", which is not known"},
        {"k_proj", STATE, "\"nested_blocksize\": 256, ", "", 0, 0, GX_ERR_FORMAT,
         "absmax has 11 bytes of type U8; expected 44"},
        {"q_proj", ".absmax", NULL, NULL, 0, 1, GX_ERR_FORMAT, "q_proj.weight.absmax is missing"},
        {"q_proj", ".absmax", NULL, NULL, GX_I32, 0, GX_ERR_FORMAT, "bytes of type I32; expected 136 of type F32"},
        {"q_proj", ".absmax", NULL, "\0\0\xc0\x7f", 0, 0, GX_ERR_FORMAT, "scale 0 is nan"},
        {"q_proj", ".quant_map", NULL, "\0\0\0\0", 0, 0, GX_ERR_UNSUPPORTED,
         "code 0 stands for 0; only -1 is supported"},
        {"k_proj", ".nested_quant_map", NULL, "\0\0\0\0", 0, 0, GX_ERR_UNSUPPORTED, "code 0 stands for 0;"},
        {"k_proj", ".nested_absmax", NULL, NULL, 0, 1, GX_ERR_FORMAT, "nested_absmax is missing"},
        {"v_proj", "", NULL, NULL, GX_U8, 0, GX_ERR_FORMAT, "v_proj.weight is not a matrix of type I8"},
        {"v_proj", "!.SCB", NULL, NULL, GX_I32, 0, GX_ERR_FORMAT, "SCB has 20 bytes of type I32"},
        {"v_proj", "!.SCB", NULL, "\0\0\x80\x7f", 0, 0, GX_ERR_FORMAT, "scale 0 is inf"},
        {"v_proj", "!.weight_format", NULL, "\1\0\0\0", 0, 0, GX_ERR_UNSUPPORTED, "weight_format 1; only 0, rows"},
    };
    for (int i = 0; i < COUNT(wrong); i++) check_wrong(&wrong[i]);
    GxSafetensors s;
    GxBnbMatrix m;
    GxError err = GX_ZERO;
    CHECK(gx_safetensors_open(&s, bnb_file, &err) == GX_OK, "%s", err.message);
    CHECK(gx_bnb_find(&s, "layers.0.norm.weight", &m, &err) == GX_OK && !m.is_quantized, "%s", err.message);
    CHECK(gx_bnb_find(&s, "none.weight", &m, &err) == GX_OK && !m.is_quantized, "%s", err.message);
    GxQuantized w = matrix_open(GX_NF4, 65, 33);
    CHECK(gx_bnb_read(&s, "layers.0.q_proj.weight", &w, &err) == GX_ERR_ARGUMENT, "%s", err.message);
    gx_error_clear(&err);
    GxSafetensorsEntry entry[GX_BNB_ENTRIES];
    CHECK(gx_bnb_entries(entry, "x.weight", &w, GX_I32, &err) == 0 && strstr(err.message, "values of type I32"), "%s",
          err.message);
    matrix_close(&w);
    gx_safetensors_close(&s);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
