// test_devices.cu: every operation of ops/device.h, on every device and in every type of activations, against the CPU
// in fp32.
//
// `ops` is a table of all operations: buffers, sizes, shapes, and the variants that their contracts allow (added to or
// written, optional arguments left out, results in the place of an input). test_ops.cu proves the CPU in fp32 against
// an oracle; here it is the reference:
// - inputs are drawn, rounded to the type, and given to both
// - fp32: the distance of the results, as relative 2-norm, is that of two fp32 computations: test_bound of twice the
//   depth, at most 1e-5
// - bf16: results in bf16 are off by 4e-3 at most (one rounding is up to 2^-8 = 3.9e-3: test_base.cu), gradients of
//   attention by 1e-2. What is fp32 there, too (statistics, losses, gradients of weights), comes from exact inputs and
//   is as near as in fp32; where a rounding lies between, the table says so
// - what is only moved is equal to the bit
// - attention in bf16, forward and backward, is off by no more than twice what plain PyTorch is in bf16
// And of every call: results begin as NaN, what lies beside them stays as it was, inputs too; the same call again gives
// the same bits; its scratch is what the plan says. All buffers lie in the device's own memory, each in an arena of its
// own, also one element behind an aligned address; the CPU's are blocks of the heap, so that AddressSanitizer sees
// whatever leaves them.
#include "galaxy/base/random.h"
#include "galaxy/cpu/cpu.h"
#include "galaxy/io/safetensors.h"
#include "galaxy/ops/quantized_linear.h"
#ifdef GX_WITH_CUDA
#include "galaxy/cuda/cuda.h"
#endif
#include "test/test.h"
#include "test/oracle.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { MAX_BUFFERS = 12, ACT = GX_DTYPES }; // ACT: the type of activations and weights
#ifdef __SANITIZE_ADDRESS__
enum { GUARD = 0 }; // the sanitizer's own is nearer
#else
enum { GUARD = 64 }; // bytes behind each buffer
#endif
// On the emulator the CPU is the reference alone: as a device it is tested in its own builds.
#ifdef GX_WITH_EMULATOR
enum { ON_EMULATOR = 1 };
#else
enum { ON_EMULATOR = 0 };
#endif
// Under ThreadSanitizer, which is 40 to 100 times slower, shapes that are `large` are left out: smaller ones go through
// the same code. Where conflicts of banks are counted (dev/emu/banks.h), too: what is left out has those of what is
// not.
#if (defined(__SANITIZE_THREAD__) || defined(GX_EMU_COUNTS_BANKS)) && defined(GX_WITH_CUDA)
enum { WITHOUT_LARGE = 1 };
#else
enum { WITHOUT_LARGE = 0 };
#endif
// A sanitizer, or who counts conflicts, looks at accesses; other builds look at results.
enum { LOOKS_AT_ACCESSES = TEST_IS_SANITIZED || WITHOUT_LARGE };
// On the emulator a long row is slow: where it is the edge of a kernel, it is met by the type whose edge that is, once.
// `make test-long` has all.
enum { OF_F32 = 1 << GX_F32, OF_BF16 = 1 << GX_BF16 };
enum { UNTOUCHED = 0xff }; // every byte of them, and of results before the call: NaN in all types

// ---- the table's words ---------------------------------------------------------------------------------------------

// d: sizes, as each operation's call says. RUN1, RUN2: runs of (length, position)
typedef struct {
    int64_t d[7];
    GxRuns q, k;
    int group, q_first, causal, layout;
    float factor;                    // of its inputs; 0: 1
    float sure;                      // added to a label's logit
    int documents[ORACLE_DOCUMENTS]; // of attention; none: no array
    int sources[ORACLE_DOCUMENTS];   // of the keys, if they are other texts; none: they are not
    float dropout, scale;            // of attention
    int identity;                    // attention's v is the identity, and in the backward do: o, dv are probabilities
    int large;                       // left out where WITHOUT_LARGE; on the emulator with fewer odd addresses
    int types, once;                 // on the emulator: bits of types, 0: all; in the first variant and no odd address
    int ignored;                     // a token without a gradient, which is not 0; 0: none
    int64_t sliding_window;          // of attention
    int64_t reach;                   // of attention's bias; 0: none
    float smooth;                    // of the labels of cross_entropy
} Shape;
#define RUN1(length, position)                                                                                         \
    {                                                                                                                  \
        1,                                                                                                             \
        {                                                                                                              \
            {                                                                                                          \
                0, length, position                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }
#define RUN2(length, position, length2, position2)                                                                     \
    {                                                                                                                  \
        2,                                                                                                             \
        {                                                                                                              \
            {0, length, position}, { length, length2, position2 }                                                      \
        }                                                                                                              \
    }

typedef enum { IN, OUT, ACCUMULATED, INOUT } Role; // ACCUMULATED: INOUT in variants that accumulate, else OUT
typedef struct {
    const char *name;
    Role role;
    int type; // a GxDtype or ACT
    int64_t (*elements)(const Shape *);
    double (*depth)(const Shape *); // of a result: roundings in the longest chain behind one element; NULL: it is exact
    int zeros;                      // 1: an exact 0 is one on every device
    double gate;                    // in bf16; 0: GATE where it is of type ACT, none where it is fp32
} Buffer;
#define GATE           4e-3 // one rounding, and a little
#define GATE_ATTENTION 1e-2
#define GATE_ROUNDING  (1.0 / 256) // of one input
#define GATE_ROUNDED_W (GATE + GATE_ROUNDING)

typedef struct {
    int accumulate;
    unsigned without; // bit i: buffer i is NULL
    int same[2][2];   // {a, b}: result a lies in the place of input b; {0, 0}: none
} Variant;

typedef struct {
    const char *name;
    size_t slot; // in GxDevice
    void (*call)(GxContext *, void **, const Shape *, GxDtype,
                 int accumulate);                     // the public function, on the table's buffers
    struct Case *(*prepare)(struct Case *);           // inputs that are not just random; NULL: all are
    double (*floor)(const struct Case *, int buffer); // norm of the terms where a result may cancel; NULL: 0
    int any_threads;                                  // the CPU gives the same bits for any number of threads
    const Shape *shape;
    int shapes;
    const Variant *variant;
    int variants;
    Buffer buffer[MAX_BUFFERS];
} Op;

typedef struct Case {
    const Op *op;
    const Shape *shape;
    const Variant *variant;
    GxDtype type;
    void *value[MAX_BUFFERS]; // inputs; those of type ACT as fp32 numbers that the type holds exactly
    GxStep step;
    GxContext *cpu; // for what is prepared
} Case;

typedef struct {
    void *value[MAX_BUFFERS]; // results, as in Case; NULL: an input, or left out
    GxStep step;
    GxError error;
} Results;

static int64_t one(const Shape *s) { return (void)s, 1; }
static int64_t d0(const Shape *s) { return s->d[0]; }
static int64_t d1(const Shape *s) { return s->d[1]; }
static int64_t d2(const Shape *s) { return s->d[2]; }
static int64_t d01(const Shape *s) { return s->d[0] * s->d[1]; }
static int64_t d12(const Shape *s) { return s->d[1] * s->d[2]; }
static int64_t twice_d01(const Shape *s) { return 2 * s->d[0] * s->d[1]; }

// A sum over a dimension, and at most 16 single roundings.
static double few(const Shape *s) { return (void)s, 16; }
static double sum_d0(const Shape *s) { return (double)s->d[0] + 16; }
static double sum_d1(const Shape *s) { return (double)s->d[1] + 16; }
static double sum_d01(const Shape *s) { return (double)(s->d[0] + s->d[1]) + 16; } // one behind the other
static double sum_d2(const Shape *s) { return (double)s->d[2] + 16; }

static const Variant plain[] = {{0, 0, {{0, 0}}}};
static const Variant accumulated[] = {{0, 0, {{0, 0}}}, {1, 0, {{0, 0}}}};

// ---- values: images in the host's memory, fp32 for ACT -------------------------------------------------------------

static GxDtype image_type(const Buffer *b) { return b->type == ACT ? GX_F32 : (GxDtype)b->type; }
static GxDtype stored_type(const Buffer *b, GxDtype type) { return b->type == ACT ? type : (GxDtype)b->type; }
static int64_t image_bytes(const Buffer *b, const Shape *s) { return b->elements(s) * gx_dtype_size(image_type(b)); }

static void *take(int64_t bytes) { return malloc((size_t)gx_max(bytes, 1)); }
static float *numbers(const Case *c, int i) { return (float *)c->value[i]; }
static int32_t *integers(const Case *c, int i) { return (int32_t *)c->value[i]; }

static float rounded(float x, GxDtype type) { return type == GX_BF16 ? gx_from_bf16(gx_to_bf16(x)) : x; }

static void image_to_storage(void *storage, GxDtype stored, const void *image, GxDtype type, int64_t n)
{
    if (stored == type) memcpy(storage, image, (size_t)(n * gx_dtype_size(type)));
    else
        for (int64_t i = 0; i < n; i++) ((uint16_t *)storage)[i] = gx_to_bf16(((const float *)image)[i]);
}
static void storage_to_image(void *image, GxDtype type, const void *storage, GxDtype stored, int64_t n)
{
    if (stored == type) memcpy(image, storage, (size_t)(n * gx_dtype_size(type)));
    else
        for (int64_t i = 0; i < n; i++) ((float *)image)[i] = gx_from_bf16(((const uint16_t *)storage)[i]);
}

static double value_at(const Buffer *b, const void *image, int64_t i)
{
    switch (image_type(b)) {
    case GX_F32: return ((const float *)image)[i];
    case GX_F64: return ((const double *)image)[i];
    case GX_U8: return ((const uint8_t *)image)[i];
    default: return ((const int32_t *)image)[i];
    }
}

static void scale_numbers(float *x, int64_t n, double factor)
{
    for (int64_t i = 0; factor != 0 && i < n; i++) x[i] *= (float)factor;
}

// ---- elementwise: d = n --------------------------------------------------------------------------------------------

static const Shape flat_shapes[] = {{.d = {1}}, {.d = {7}}, {.d = {257}}, {.d = {4096}}, {.d = {30011}}};
static const Shape sum_shapes[] = {
    {.d = {1}}, {.d = {7}}, {.d = {4096}}, {.d = {30011}}, {.d = {257 * 4096 + 3}}}; // over 256 blocks
static const Variant add_variants[] = {{0, 0, {{0, 0}}}, {0, 0, {{0, 1}}}, {0, 0, {{0, 2}}}};

static void call_zero(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)t, (void)a, gx_zero(g, b[0], s->d[0]);
}
static void call_copy(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)t, (void)a, gx_copy(g, b[0], b[1], s->d[0]);
}
static void call_narrow(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_convert(g, b[0], t, b[1], GX_F32, s->d[0]);
}
static void call_widen(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_convert(g, b[0], GX_F32, b[1], t, s->d[0]);
}
static void call_add(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_add(g, b[0], b[1], b[2], s->d[0], t);
}
static void call_scale(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_scale(g, b[0], b[1], s->d[0], 1.7f, t);
}
static void call_sum(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)t, gx_sum(g, (double *)b[0], (const float *)b[1], s->d[0], a);
}
// d: n, parts: x is cut into them, with an element between two that belongs to none. The list's first blocks are
// others'.
static const Shape squares_shapes[] = {
    {.d = {1, 1}},      {.d = {7, 1}}, {.d = {GX_SQUARES_BLOCK, 1}},         {.d = {100003, 1}}, {.d = {30011, 3}},
    {.d = {30011, 77}}, {.d = {9, 5}}, {.d = {8 * GX_SQUARES_BLOCK + 3, 2}}, {.d = {30011, 300}}};
static int64_t part_numbers(const Shape *s) { return s->d[1] * (int64_t)(sizeof(GxSumPart) / sizeof(int64_t)); }
static GxSumPart part_of(const Shape *s, int64_t i)
{
    const int64_t begin = s->d[0] * i / s->d[1], end = s->d[0] * (i + 1) / s->d[1] - (i + 1 < s->d[1]);
    const GxSumPart part = {begin, gx_max(end - begin, 1), 0};
    return part;
}
static GxSumParts parts_of(const Shape *s, GxSumPart *list) // list NULL: not wanted
{
    GxSumParts all = {list, s->d[1], 0, 0};
    for (int64_t i = 0; i < s->d[1]; i++) {
        GxSumPart part = part_of(s, i);
        part.blocks = 3 + all.blocks;
        if (list) list[i] = part;
        all.n += part.n, all.blocks += gx_ceil_div(part.n, GX_SQUARES_BLOCK);
    }
    return all;
}
static int64_t square_blocks_n(const Shape *s) { return parts_of(s, NULL).blocks; }
static void call_square_blocks(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    GxSumParts all = parts_of(s, NULL);
    all.part = (const GxSumPart *)b[2];
    (void)t, (void)a, gx_square_blocks(g, (double *)b[0], (const float *)b[1], &all);
}
static void call_add_blocks(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)t, gx_add_blocks(g, (double *)b[0], (const double *)b[1], s->d[0], a);
}
static Case *prepare_squares(Case *c) { return parts_of(c->shape, (GxSumPart *)c->value[2]), c; }

// Ties, to the even neighbour below and above; what rounds up into infinity; the smallest; what is not a number.
static Case *prepare_convert(Case *c)
{
    static const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f7f7fff, 0x00000001,
                                    0x80008000, 0x80000000, 0x7f800000, 0xff800000, 0x7f800001, 0xffffffff};
    for (int i = 0; i < COUNT(bits) && c->shape->d[0] > i; i++) memcpy(numbers(c, 1) + i, &bits[i], 4);
    return c;
}
static double sum_floor(const Case *c, int buffer)
{
    double sum = 0;
    for (int64_t i = 0; i < c->shape->d[0]; i++) sum += fabs((double)numbers(c, 1)[i]);
    return buffer == 0 ? sum : 0;
}

// ---- embedding: d = R, C, v_begin, v_end, vocabulary ---------------------------------------------------------------

static const Shape embedding_shapes[] = {
    {.d = {1, 1, 0, 1, 1}},
    {.d = {8, 7, 0, 13, 13}},
    {.d = {70, 130, 3, 9, 13}},
    {.d = {3, 1031, 5, 6, 7}},
    {.d = {40, 64, 0, 500, 500}},
    {.d = {300, 24, 0, 2, 3}},
    {.d = {70, 40, 3, 9, 13}, .ignored = 5},
    {.d = {130, 24, 0, 60, 60}, .ignored = 7},
    {.d = {5000, 8, 0, 13, 13}, .large = 1},
    {.d = {5000, 8, 0, 40, 40}, .large = 1}}; // more rows than a GPU takes at a time

static int64_t embedding_table(const Shape *s) { return (s->d[3] - s->d[2]) * s->d[1]; }
static GxEmbedding embedding_of(const Shape *s, GxDtype t, int accumulate)
{
    GxEmbedding e = gx_embedding_shape(s->d[0], s->d[1], s->d[3], t);
    e.v_begin = s->d[2];
    e.ignored = s->ignored ? s->ignored : -1;
    e.accumulate = accumulate;
    return e;
}
static void call_embedding_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxEmbedding e = embedding_of(s, t, a);
    gx_embedding_forward(g, b[0], b[1], (const int32_t *)b[2], &e);
}
static void call_embedding_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxEmbedding e = embedding_of(s, t, a);
    gx_embedding_backward(g, (float *)b[0], b[1], (const int32_t *)b[2], &e);
}
static Case *prepare_ids(Case *c)
{
    for (int64_t r = 0; r < c->shape->d[0]; r++)
        integers(c, 2)[r] = (int32_t)(r * r * 7 % c->shape->d[4]); // tokens come again
    return c;
}

// ---- norm: d = R, C, offset of its weights -------------------------------------------------------------------------

// What a GPU's kernels keep of a row in shared memory is 47 KiB at most: of 48, which every card gives without asking,
// what they declare themselves is taken off (cuda/kernel.cuh). For n bytes to a column: the longest row that is kept,
// one that is longer by half of what is taken off, and one that would take all 48.
enum { ALL_SHARED = 48 << 10, KEPT_SHARED = 47 << 10 };
#define AT_THE_EDGE(shape, n, types)                                                                                   \
    shape(KEPT_SHARED / (n), types), shape((KEPT_SHARED + 512) / (n), types), shape(ALL_SHARED / (n), types)

static const float NORM_EPS = 1e-5f;
#define NORM_ROWS(C, of)                                                                                               \
    {                                                                                                                  \
        .d = {1, C}, .large = 1, .types = of, .once = 1                                                                \
    }
static const Shape norm_shapes[] = {
    {.d = {1, 1}},
    {.d = {3, 7}},
    {.d = {257, 1}},
    {.d = {5, 64}},
    {.d = {65, 257, 1}},
    {.d = {130, 72, 1}},
    {.d = {2, 1031}},
    {.d = {3, 4096}},
    {.d = {33, 768}},
    {.d = {4100, 8}, .large = 1},              // more rows than the least that a GPU's block takes
    {.d = {17, 1032, 1}},                      // of which a GPU's thread takes few elements,
    {.d = {17, 4104}, .large = 1},             // or many again
    {.d = {17, 12288}, .large = 1, .once = 1}, // the longest that its registers hold
    {.d = {17, 12296}, .large = 1},
    {.d = {1, 24584}, .once = 1}, // rows longer than a GPU's shared memory, in fp32 and in bf16
    AT_THE_EDGE(NORM_ROWS, 4, OF_F32),
    AT_THE_EDGE(NORM_ROWS, 2, OF_BF16)};
static const Variant add_norm_variants[] = {{0, 0, {{0, 0}}}, {0, 0, {{0, 3}}}, {0, 0, {{0, 4}}}};
static const Variant norm_backward_variants[] = {
    {0, 0, {{0, 0}}}, {1, 0, {{0, 0}}}, {0, 1u << 3, {{0, 0}}}, {0, 1u << 1, {{0, 0}}}, {1, 0, {{0, 3}}}};

static float norm_offset(const Shape *s) { return (float)s->d[2]; } // of the weights
static void call_rms_norm_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_rms_norm_forward(g, b[0], (float *)b[1], b[2], b[3], norm_offset(s), s->d[0], s->d[1], NORM_EPS, t);
}
static void call_add_rms_norm_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_add_rms_norm_forward(g, b[0], b[1], (float *)b[2], b[3], b[4], b[5], norm_offset(s), s->d[0], s->d[1],
                                     NORM_EPS, t);
}
static void call_rms_norm_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    gx_rms_norm_backward(g, b[0], (float *)b[1], b[2], b[3], b[4], (const float *)b[5], b[6], norm_offset(s), s->d[0],
                         s->d[1], a, t);
}
static Case *prepare_rstd(Case *c)
{
    float *y = (float *)take(4 * d01(c->shape));
    gx_rms_norm_forward(c->cpu, y, numbers(c, 5), numbers(c, 4), numbers(c, 6), norm_offset(c->shape), c->shape->d[0],
                        c->shape->d[1], NORM_EPS, GX_F32);
    free(y);
    return c;
}
// dx is rstd*w*dy less its share along x: with one column nearly all of it cancels.
static double norm_backward_floor(const Case *c, int buffer)
{
    const int64_t C = c->shape->d[1];
    double squares = 0;
    for (int64_t i = 0; i < d01(c->shape); i++)
        squares +=
            pow((double)numbers(c, 5)[i / C] * (numbers(c, 6)[i % C] + norm_offset(c->shape)) * numbers(c, 2)[i], 2);
    return buffer == 0 ? sqrt(squares) : 0;
}

// ---- layer norm: d = R, C, mean of its inputs ----------------------------------------------------------------------

static const Shape layer_norm_shapes[] = {
    {.d = {1, 1}},
    {.d = {3, 7}},
    {.d = {257, 1}},
    {.d = {5, 64}},
    {.d = {65, 257}},
    {.d = {33, 72, 1000}},
    {.d = {2, 1031}},
    {.d = {33, 768}},
    {.d = {4100, 8}, .large = 1}, // more rows than the least that a GPU's block takes
    {.d = {17, 4096}, .large = 1},
    {.d = {17, 8192}, .large = 1, .once = 1}, // the longest that its registers hold
    {.d = {17, 8200}, .large = 1},
    {.d = {3, 12296}, .large = 1}, // than that for a row, in fp32 and in bf16
    {.d = {1, 24584}, .once = 1},
    AT_THE_EDGE(NORM_ROWS, 4, OF_F32),
    AT_THE_EDGE(NORM_ROWS, 2, OF_BF16)};
static const Variant layer_norm_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 1 | 1u << 2, {{0, 3}}}};
static const Variant layer_norm_backward_variants[] = {{0, 0, {{0, 0}}},
                                                       {1, 0, {{0, 3}}},
                                                       {1, 1u << 1, {{0, 0}}},
                                                       {0, 1u << 2, {{0, 0}}},
                                                       {0, 1u << 1 | 1u << 2, {{0, 0}}},
                                                       {1, 1u << 0, {{0, 0}}}};

static void call_layer_norm_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a,
        gx_layer_norm_forward(g, b[0], (float *)b[1], (float *)b[2], b[3], b[4], b[5], s->d[0], s->d[1], NORM_EPS, t);
}
static void call_layer_norm_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    gx_layer_norm_backward(g, b[0], (float *)b[1], (float *)b[2], b[3], b[4], (const float *)b[5], (const float *)b[6],
                           b[7], s->d[0], s->d[1], a, t);
}
static Case *prepare_layer_norm(Case *c)
{
    for (int64_t i = 0; i < d01(c->shape); i++) numbers(c, 3)[i] += (float)c->shape->d[2];
    return c;
}
// Mean and rstd of the rows of buffer x.
static void give_statistics(Case *c, int x, int mean, int rstd)
{
    const int64_t C = c->shape->d[1];
    float *y = (float *)take(4 * d01(c->shape)), *w = (float *)take(4 * C);
    for (int64_t i = 0; i < C; i++) w[i] = 1;
    gx_layer_norm_forward(c->cpu, y, numbers(c, mean), numbers(c, rstd), numbers(c, x), w, w, c->shape->d[0], C,
                          NORM_EPS, GX_F32);
    free(y), free(w);
}
static Case *prepare_layer_norm_backward(Case *c)
{
    for (int64_t i = 0; i < d01(c->shape); i++)
        numbers(c, 4)[i] = rounded(numbers(c, 4)[i] + (float)c->shape->d[2], c->type);
    give_statistics(c, 4, 5, 6);
    return c;
}
// The norm of what cancels: x*rstd*w in y and dy*x*rstd in dw where x is far from 0, rstd*w*dy in dx where columns are
// few.
static double norm_terms(const Case *c, int x, int factor, const float *w, int rstd)
{
    const int64_t C = c->shape->d[1];
    double squares = 0;
    for (int64_t i = 0; i < d01(c->shape); i++) {
        const double r = rstd >= 0 ? numbers(c, rstd)[i / C] : 1;
        squares += pow(
            r * (x >= 0 ? numbers(c, x)[i] : 1) * (w ? w[i % C] : 1) * (factor >= 0 ? numbers(c, factor)[i] : 1), 2);
    }
    return sqrt(squares);
}
static double layer_norm_floor(const Case *c, int buffer) // rstd is at least 1 over what the inputs are scattered by
{
    if (buffer == 0) return norm_terms(c, 3, -1, numbers(c, 4), -1);
    return buffer == 1 ? norm_terms(c, 3, -1, NULL, -1) / sqrt((double)c->shape->d[1]) : 0;
}
static double layer_norm_backward_floor(const Case *c, int buffer)
{
    if (buffer == 0) return norm_terms(c, -1, 3, numbers(c, 7), 6) * (1 + fabs((double)c->shape->d[2]));
    return buffer == 1 ? norm_terms(c, 4, 3, NULL, 6) : 0;
}

// ---- dropout and residual: d = R, C, p in thousandths, where its rows lie ------------------------------------------

enum { FROM_2, LISTED, FAR }; // rows of a slice; given one by one; whose numbers have more than 32 bits
static const Shape dropout_shapes[] = {{.d = {1, 1, 250, FROM_2}},   {.d = {9, 7, 900, LISTED}},
                                       {.d = {3, 768, 100, LISTED}}, {.d = {5, 64, 0, FROM_2}},
                                       {.d = {65, 257, 500, FAR}},   {.d = {70, 40, 250, FROM_2}}};
static const Variant dropout_variants[] = {{0, 0, {{0, 0}}}, {0, 0, {{0, 1}}}};
static const Shape residual_shapes[] = {
    {.d = {1, 1, 250, FROM_2}},
    {.d = {9, 7, 900, LISTED}},
    {.d = {3, 768, 100, LISTED}},
    {.d = {5, 64, 0, FROM_2}},
    {.d = {65, 257, 500, FAR}},
    {.d = {70, 72, 250, FROM_2}},
    {.d = {17, 4010, 100, LISTED}, .large = 1, .once = 1},
    {.d = {17, 4096, 100, LISTED}, .large = 1},
    {.d = {17, 8192, 100, LISTED}, .large = 1, .once = 1}, // the longest that a GPU's registers hold
    {.d = {17, (KEPT_SHARED + 512) / 4, 100, LISTED}, .large = 1, .types = OF_F32},
    {.d = {17, (KEPT_SHARED + 512) / 2, 100, LISTED}, .large = 1, .types = OF_BF16},
    {.d = {2, 24584, 250, FROM_2}, .large = 1, .once = 1}};
static const Shape undropped_shapes[] = {{.d = {1, 1}}, {.d = {9, 7}}, {.d = {40, 768}}, {.d = {65, 257}}};
enum {
    WITHOUT_NORM = 1u << 2 | 1u << 3 | 1u << 7 | 1u << 8,
    WITHOUT_NORM_BACK = 1u << 3 | 1u << 4 | 1u << 6 | 7u << 7
};
static const Variant residual_variants[] = {{0, 0, {{0, 0}}},
                                            {0, 1u << 6, {{1, 4}}},
                                            {0, 1u << 2 | 1u << 3, {{1, 5}}},
                                            {0, 1u << 1, {{0, 5}}},
                                            {0, WITHOUT_NORM, {{0, 0}}},
                                            {0, WITHOUT_NORM | 1u << 6, {{1, 4}, {0, 4}}},
                                            {0, WITHOUT_NORM | 1u << 1, {{0, 0}}}};
static const Variant residual_backward_variants[] = {{0, 0, {{0, 0}}},
                                                     {1, 0, {{0, 5}}},
                                                     {1, 1u << 0, {{0, 0}}},
                                                     {0, 1u << 1, {{0, 0}}},
                                                     {1, 1u << 2 | 1u << 4, {{0, 0}}},
                                                     {0, 7u << 2, {{0, 0}}},
                                                     {1, WITHOUT_NORM_BACK, {{0, 0}}},
                                                     {0, WITHOUT_NORM_BACK | 1u << 0, {{1, 5}}}};
static const Variant undropped_variants[] = {
    {0, 0, {{1, 0}}}, {1, WITHOUT_NORM_BACK, {{1, 0}}}, {1, 0, {{0, 5}, {1, 5}}}};

static GxDropout dropout_of(const Shape *s, const void *rows)
{
    GxDropout d = GX_ZERO;
    d.p = (float)s->d[2] / 1000;
    if (s->d[2] == 0) return d;
    d.site = gx_random_site(GX_SITE_DROPOUT, 3);
    d.first_sample = 600000010, d.B = 4;
    d.first_row = s->d[3] == FAR ? 5000000000 : 2;
    d.T = (d.first_row + s->d[0]) / d.B + 1;
    d.rows = s->d[3] == LISTED ? (const int32_t *)rows : NULL;
    return d;
}
static void give_rows(Case *c, int rows)
{
    c->step.seed = 0x123456789abcdef0, c->step.step = 9, c->step.first_sample = 4400000001;
    for (int64_t r = 0; r < c->shape->d[0]; r++) integers(c, rows)[r] = (int32_t)(r * 5 % c->shape->d[0]);
}
static void call_dropout(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxDropout d = dropout_of(s, b[2]);
    (void)a, gx_dropout(g, b[0], b[1], s->d[0], s->d[1], &d, t);
}
static Case *prepare_dropout(Case *c) { return give_rows(c, 2), c; }
static GxResidual residual_of(const Shape *s, const void *bias, const void *w, const void *b, const void *rows,
                              GxDtype t)
{
    GxResidual r = GX_ZERO;
    r.R = s->d[0], r.C = s->d[1];
    r.bias = bias, r.w = w, r.b = b;
    r.eps = NORM_EPS;
    r.dropout = dropout_of(s, rows);
    r.dtype = t;
    return r;
}
static void call_residual_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxResidual r = residual_of(s, b[6], b[7], b[8], b[9], t);
    (void)a, gx_residual_forward(g, b[0], b[1], (float *)b[2], (float *)b[3], b[4], b[5], &r);
}
static void call_residual_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxResidual r = residual_of(s, NULL, b[9], b[9], b[10], t); // b and the bias are not read
    gx_residual_backward(g, b[0], b[1], (float *)b[2], (float *)b[3], (float *)b[4], b[5], b[6], (const float *)b[7],
                         (const float *)b[8], &r, a);
}
static Case *prepare_residual(Case *c) { return give_rows(c, 9), c; }
static Case *prepare_residual_backward(Case *c)
{
    give_statistics(c, 6, 7, 8);
    return give_rows(c, 10), c;
}
static double residual_floor(const Case *c, int buffer)
{
    const double terms = norm_terms(c, 4, -1, NULL, -1) + norm_terms(c, 5, -1, NULL, -1);
    return buffer < 2 ? terms : buffer == 2 ? terms / sqrt((double)c->shape->d[1]) : 0;
}
static double residual_backward_floor(const Case *c, int buffer)
{
    const double terms = norm_terms(c, -1, 5, numbers(c, 9), 8);
    return buffer < 3 ? terms : buffer == 3 ? norm_terms(c, 6, 5, NULL, 8) : 0;
}

// ---- rows by number: d = n, C, first, rows of x; of means T, C, B, t_first, parts; of rows of length one R, C ------

static const Shape rows_shapes[] = {
    {.d = {1, 1, 0, 1}}, {.d = {5, 7, 3, 11}}, {.d = {40, 64, 1000, 70}}, {.d = {3, 1031, 0, 5}}};
static const Shape mean_shapes[] = {{.d = {1, 1, 1, 0, 1}},
                                    {.d = {6, 7, 3, 0, 4}},
                                    {.d = {9, 17, 2, 4, 4}},
                                    {.d = {33, 264, 3, 0, 5}},
                                    {.d = {5, 768, 1, 2, 3}}};
static const Variant normalize_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 1, {{0, 2}}}};
static const Variant normalize_backward_variants[] = {{0, 0, {{0, 0}}}, {0, 0, {{0, 1}}}};

static int64_t rows_of_x(const Shape *s) { return s->d[3] * s->d[1]; }
static void call_pick_rows(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_pick_rows(g, b[0], b[1], (const int32_t *)b[2], s->d[2], s->d[0], s->d[1], t);
}
static void call_add_rows(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_add_rows(g, b[0], b[1], (const int32_t *)b[2], s->d[2], s->d[0], s->d[1], t);
}
static Case *prepare_rows(Case *c)
{
    const int64_t *d = c->shape->d;
    for (int64_t i = 0; i < d[0]; i++) integers(c, 2)[i] = (int32_t)(d[2] + i * 3 % d[3]); // 3 divides no d[3]
    return c;
}
// d = positions, C, columns, first position: the first column has no page for the first of them
static const Shape put_shapes[] = {
    {.d = {1, 1, 1, 0}}, {.d = {70, 7, 3, 11}}, {.d = {1, 64, 2, 127}}, {.d = {130, 264, 2, 0}}};
static int64_t put_x(const Shape *s) { return s->d[0] * s->d[2] * s->d[1]; }
static int64_t put_pages(const Shape *s) { return gx_ceil_div(s->d[3] + s->d[0], GX_PAGE) * s->d[2]; }
static int64_t put_pool(const Shape *s) { return put_pages(s) * GX_PAGE * s->d[1]; }
static void call_put_pages(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_put_pages(g, b[0], b[1], (const int32_t *)b[2], s->d[0], s->d[2], s->d[3], s->d[1], t);
}
static Case *prepare_put_pages(Case *c)
{
    const int64_t n = put_pages(c->shape);
    for (int64_t i = 0; i < n; i++) integers(c, 2)[i] = (int32_t)(n - 1 - i);
    if (c->shape->d[0] > 1) integers(c, 2)[0] = -1;
    return c;
}
static int64_t mean_x(const Shape *s) { return s->d[0] * s->d[2] * s->d[1]; }
static int64_t mean_y(const Shape *s) { return s->d[4] * s->d[1]; }
static int64_t mean_parts(const Shape *s) { return 3 * s->d[4]; }
static void call_mean_rows_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_mean_rows_forward(g, b[0], b[1], (const int32_t *)b[2], s->d[4], s->d[0], s->d[2], s->d[3], s->d[1], t);
}
static void call_mean_rows_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a,
        gx_mean_rows_backward(g, b[0], b[1], (const int32_t *)b[2], s->d[4], s->d[0], s->d[2], s->d[3], s->d[1], t);
}
static Case *prepare_parts(Case *c) // one in each column, which may begin before the slice; more behind them, one empty
{
    const int64_t T = c->shape->d[0], B = c->shape->d[2], first = c->shape->d[3];
    for (int64_t i = 0; i < c->shape->d[4]; i++) {
        int32_t *part = integers(c, 2) + 3 * i;
        const int64_t cut = first + gx_max(1, T / 2);
        part[0] = (int32_t)(i % B);
        part[1] = (int32_t)(i < B ? gx_max(0, first - 1) : cut);
        part[2] = (int32_t)(i < B ? cut : i == B ? first + T + 3 : cut);
    }
    return c;
}
static void call_normalize_rows_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_normalize_rows_forward(g, b[0], (float *)b[1], b[2], s->d[0], s->d[1], NORM_EPS, t);
}
static void call_normalize_rows_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_normalize_rows_backward(g, b[0], b[1], b[2], (const float *)b[3], s->d[0], s->d[1], t);
}
static Case *prepare_normalize(Case *c) // the last row is zero
{
    memset(numbers(c, 2) + (c->shape->d[0] - 1) * c->shape->d[1], 0, (size_t)c->shape->d[1] * sizeof(float));
    return c;
}
static Case *prepare_normalize_backward(Case *c) // y from itself as x: of length one
{
    gx_normalize_rows_forward(c->cpu, numbers(c, 2), numbers(c, 3), numbers(c, 2), c->shape->d[0], c->shape->d[1],
                              NORM_EPS, GX_F32);
    return c;
}
static double normalize_backward_floor(const Case *c, int buffer) // with one column all of dy/norm cancels
{
    double squares = 0;
    for (int64_t i = 0; i < d01(c->shape); i++)
        squares += pow((double)numbers(c, 1)[i] / numbers(c, 3)[i / c->shape->d[1]], 2);
    return buffer == 0 ? sqrt(squares) : 0;
}

// ---- linear: d = R, In, Out, gap behind each row of x, of y --------------------------------------------------------

static const Shape linear_shapes[] = {{.d = {1, 1, 1}},           {.d = {3, 7, 5}},          {.d = {5, 16, 24}},
                                      {.d = {65, 257, 33}},       {.d = {130, 64, 40}},      {.d = {2, 1031, 70}},
                                      {.d = {1, 96, 1000}},       {.d = {257, 8, 1}},        {.d = {3, 7, 5, 1, 2}},
                                      {.d = {65, 24, 40, 8, 80}}, {.d = {70, 33, 65, 3, 7}}, {.d = {130, 64, 32, 0, 5}},
                                      {.d = {5, 16, 8, 1, 0}}};
static const Variant linear_forward_variants[] = {
    {0, 0, {{0, 0}}}, {0, 1u << 3, {{0, 0}}}, {1, 0, {{0, 0}}}, {1, 1u << 3, {{0, 0}}}};
static const Variant linear_weight_variants[] = {
    {0, 0, {{0, 0}}}, {1, 0, {{0, 0}}}, {0, 1u << 1, {{0, 0}}}, {1, 1u << 1, {{0, 0}}}, {1, 1u << 0, {{0, 0}}}};

static int64_t linear_x(const Shape *s) { return s->d[0] * (s->d[1] + s->d[3]); }
static int64_t linear_y(const Shape *s) { return s->d[0] * (s->d[2] + s->d[4]); }
static GxLinearShape linear_shape(const Shape *s, GxDtype type, int accumulate)
{
    GxLinearShape l = gx_linear_shape(s->d[0], s->d[1], s->d[2], type);
    if (s->d[3]) l.x_stride = s->d[1] + s->d[3];
    if (s->d[4]) l.y_stride = s->d[2] + s->d[4];
    l.accumulate = accumulate;
    return l;
}
static void call_linear_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxLinearShape l = linear_shape(s, t, a);
    gx_linear_forward(g, b[0], b[1], b[2], b[3], &l);
}
static void call_linear_backward_input(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxLinearShape l = linear_shape(s, t, a);
    gx_linear_backward_input(g, b[0], b[1], b[2], &l);
}
static void call_linear_backward_weight(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxLinearShape l = linear_shape(s, t, a);
    gx_linear_backward_weight(g, (float *)b[0], (float *)b[1], b[2], b[3], &l);
}
// The same as forward of one row and one column, by backward_input: dx [1,1] += dy [1,2] W [2,1].
static void call_linear_transposed(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const Shape transposed = {.d = {s->d[0], s->d[2], s->d[1]}};
    const GxLinearShape l = linear_shape(&transposed, t, a);
    gx_linear_backward_input(g, b[0], b[1], b[2], &l);
}
static void forget_gaps(float *x, int64_t rows, int64_t width,
                        int64_t stride) // between rows: NaN, which must stay and go nowhere
{
    for (int64_t r = 0; r < rows; r++) memset(x + r * stride + width, UNTOUCHED, (size_t)(stride - width) * sizeof *x);
}
static Case *forget_linear_gaps(Case *c, int x, int y)
{
    const int64_t *d = c->shape->d;
    forget_gaps(numbers(c, x), d[0], d[1], d[1] + d[3]);
    forget_gaps(numbers(c, y), d[0], d[2], d[2] + d[4]);
    return c;
}
static Case *prepare_linear_forward(Case *c) { return forget_linear_gaps(c, 1, 0); }
static Case *prepare_linear_backward_input(Case *c) { return forget_linear_gaps(c, 0, 1); }
static Case *prepare_linear_backward_weight(Case *c) { return forget_linear_gaps(c, 3, 2); }

// ---- quantized: d = rows, columns, GxQuantKind, margins of what is read: rows, columns; of a box of a larger matrix:
// the column that it begins with, columns behind it; products: d = R, In, Out, kind, gap

static const Shape quantized_shapes[] = {{.d = {1, 1, GX_NF4}},
                                         {.d = {3, 7, GX_NF4}},
                                         {.d = {5, 64, GX_NF4}},
                                         {.d = {9, 65, GX_NF4, 2, 1}},
                                         {.d = {65, 257, GX_NF4, 3, 20}},
                                         {.d = {70, 96, GX_NF4, 1, 8}},
                                         {.d = {1, 1, GX_NF4_DOUBLED}},
                                         {.d = {7, 67, GX_NF4_DOUBLED}},
                                         {.d = {9, 130, GX_NF4_DOUBLED, 2, 33}},
                                         {.d = {3, 72, GX_NF4_DOUBLED}},
                                         {.d = {66, 260, GX_NF4_DOUBLED, 1, 4}},
                                         {.d = {66, 64, GX_NF4_DOUBLED, 0, 0, 8, 56}},
                                         {.d = {67, 260, GX_NF4_DOUBLED, 1, 4, 37, 2}},
                                         {.d = {9, 66, GX_NF4, 0, 0, 3, 5}},
                                         {.d = {1, 1, GX_INT8}},
                                         {.d = {3, 7, GX_INT8}},
                                         {.d = {65, 264, GX_INT8, 1, 8}},
                                         {.d = {9, 65, GX_INT8, 2, 1}},
                                         {.d = {4, 96, GX_INT8}}};
static const Shape quantized_product_shapes[] = {
    {.d = {1, 1, 1, GX_NF4}},        {.d = {3, 7, 5, GX_NF4_DOUBLED}},
    {.d = {5, 130, 136, GX_NF4, 8}}, {.d = {2, 72, 200, GX_NF4_DOUBLED, 3}},
    {.d = {4, 136, 67, GX_INT8, 1}}, {.d = {65, 24, 80, GX_INT8}}};
static const Variant quantized_forward_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 2, {{0, 0}}}, {1, 0, {{0, 0}}}};

// Its parts are the buffers b[0], codes, b[1], scales, b[2], codes of scales, and b[3], their offset.
static GxQuantized quantized_of(const int64_t *d, void **b)
{
    const int64_t pitch = d[5] + d[1] + d[6];
    GxQuantized w = gx_quantized_box((GxQuantKind)d[2], d[5] ? 3 : 0, d[0], d[5], d[1], pitch, NULL);
    if (!b) return w;
    w.codes = (uint8_t *)b[0], w.scales = (float *)b[1], w.scale_codes = (uint8_t *)b[2], w.offset = (float *)b[3];
    return w;
}
static int64_t quantized_codes(const Shape *s)
{
    const GxQuantized w = quantized_of(s->d, NULL);
    return gx_quantized_code_bytes(&w);
}
static int64_t quantized_scales(const Shape *s)
{
    const GxQuantized w = quantized_of(s->d, NULL);
    return gx_quantized_scales(&w);
}
static int64_t quantized_blocks(const Shape *s)
{
    const GxQuantized w = quantized_of(s->d, NULL);
    return gx_quantized_blocks(&w);
}
static int64_t quantized_box(const Shape *s) { return (s->d[0] - 2 * s->d[3]) * (s->d[1] - 2 * s->d[4]); }
static void call_dequantize(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const int64_t *d = s->d;
    const GxQuantized w = quantized_of(d, b + 1);
    (void)a, gx_dequantize(g, b[0], t, &w, d[3], d[0] - 2 * d[3], d[4], d[1] - 2 * d[4]);
}

static Shape matrix_of_product(const Shape *s) { return (Shape){.d = {s->d[2], s->d[1], s->d[3]}}; }
static int64_t product_codes(const Shape *s)
{
    const Shape w = matrix_of_product(s);
    return quantized_codes(&w);
}
static int64_t product_scales(const Shape *s)
{
    const Shape w = matrix_of_product(s);
    return quantized_scales(&w);
}
static int64_t product_blocks(const Shape *s)
{
    const Shape w = matrix_of_product(s);
    return quantized_blocks(&w);
}
static int64_t product_x(const Shape *s) { return s->d[0] * (s->d[1] + s->d[4]); }
static int64_t product_y(const Shape *s) { return s->d[0] * (s->d[2] + s->d[4]); }
static GxLinearShape product_shape(const Shape *s, GxDtype type, int accumulate)
{
    const Shape linear = {.d = {s->d[0], s->d[1], s->d[2], s->d[4], s->d[4]}};
    return linear_shape(&linear, type, accumulate);
}
static void call_quantized_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxLinearShape l = product_shape(s, t, a);
    const GxQuantized w = quantized_of(matrix_of_product(s).d, b + 3);
    gx_quantized_linear_forward(g, b[0], b[1], &w, 1, b[2], &l);
}
static void call_quantized_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxLinearShape l = product_shape(s, t, a);
    const GxQuantized w = quantized_of(matrix_of_product(s).d, b + 2);
    gx_quantized_linear_backward_input(g, b[0], b[1], &w, 1, &l);
}
static Case *forget_product_gaps(Case *c, int x, int y)
{
    const int64_t *d = c->shape->d;
    forget_gaps(numbers(c, x), d[0], d[1], d[1] + d[4]);
    forget_gaps(numbers(c, y), d[0], d[2], d[2] + d[4]);
    return c;
}
static Case *prepare_quantized_forward(Case *c) { return forget_product_gaps(c, 1, 0); }
static Case *prepare_quantized_backward(Case *c) { return forget_product_gaps(c, 0, 1); }

// ---- rope: d = B, heads, h, gap ------------------------------------------------------------------------------------

enum { POSITIONS = 256 };
static const Shape rope_shapes[] = {{.d = {1, 1, 2, 1}, .q = RUN1(1, 0)},
                                    {.d = {2, 3, 8, 0}, .q = RUN1(6, 4)},
                                    {.d = {3, 2, 10, 5}, .q = RUN2(5, 2, 4, 40)},
                                    {.d = {2, 3, 64, 7}, .q = RUN2(33, 100, 32, 3)},
                                    {.d = {1, 4, 128, 64}, .q = RUN1(17, 200)}};

static int64_t rope_stride(const Shape *s) { return s->d[1] * s->d[2] + s->d[3]; }
static int64_t rope_x(const Shape *s) { return gx_runs_rows(&s->q) * s->d[0] * rope_stride(s); }
static int64_t rope_table(const Shape *s) { return POSITIONS * s->d[2] / 2; }
static void call_rope_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_rope_forward(g, b[0], (const float *)b[1], (const float *)b[2], &s->q, s->d[0], s->d[1], s->d[2],
                             rope_stride(s), t);
}
static void call_rope_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_rope_backward(g, b[0], (const float *)b[1], (const float *)b[2], &s->q, s->d[0], s->d[1], s->d[2],
                              rope_stride(s), t);
}
static int64_t rope_documents(const Shape *s) { return 2 * POSITIONS * s->d[0]; }
static void call_rope_restart_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_rope_restart_forward(g, b[0], (const float *)b[1], (const float *)b[2], &s->q, (const int32_t *)b[3],
                                     s->d[0], s->d[1], s->d[2], rope_stride(s), t);
}
static void call_rope_restart_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_rope_restart_backward(g, b[0], (const float *)b[1], (const float *)b[2], &s->q, (const int32_t *)b[3],
                                      s->d[0], s->d[1], s->d[2], rope_stride(s), t);
}
static Case *prepare_rope(Case *c)
{
    const Shape *s = c->shape;
    const GxRope rope = {.theta = 10000};
    gx_rope_table(numbers(c, 1), numbers(c, 2), POSITIONS, s->d[2], &rope);
    forget_gaps(numbers(c, 0), gx_runs_rows(&s->q) * s->d[0], s->d[1] * s->d[2], rope_stride(s));
    return c;
}

static Case *prepare_rope_restart(Case *c) // documents of 7 positions, from another one on in each column
{
    for (int64_t i = 0; i < rope_documents(c->shape); i++) {
        const int64_t b = i / 2 % c->shape->d[0], position = i / 2 / c->shape->d[0];
        integers(c, 3)[i] = (int32_t)((position + b) / 7 * 7 - b + 7 * (i % 2));
        if (integers(c, 3)[i] < 0) integers(c, 3)[i] = 0;
    }
    return prepare_rope(c);
}

static int64_t positions_rows(const Shape *s) { return gx_runs_rows(&s->q) * s->d[0]; }
static void call_text_positions(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)t, (void)a, gx_text_positions(g, (int32_t *)b[0], &s->q, (const int32_t *)b[1], s->d[0]);
}
static Case *prepare_text_positions(Case *c) // documents of 7 positions, from another one on in each column
{
    for (int64_t i = 0; i < rope_documents(c->shape); i++) {
        const int64_t b = i / 2 % c->shape->d[0], position = i / 2 / c->shape->d[0];
        integers(c, 1)[i] = (int32_t)gx_max(0, (position + b) / 7 * 7 - b + 7 * (i % 2));
    }
    return c;
}

// ---- norm of heads: d = R, heads, h, gap behind each row of x, of what is kept, offset of its weights --------------

#define NORM_HEADS(h, of)                                                                                              \
    {                                                                                                                  \
        .d = {1, 1, h, 0, 0}, .large = 1, .types = of, .once = 1                                                       \
    }
static const Shape head_norm_shapes[] = {{.d = {1, 1, 1, 0, 0}},
                                         {.d = {3, 2, 7, 1, 2}},
                                         {.d = {257, 1, 1, 0, 3}},
                                         {.d = {40, 9, 2, 5, 0}},
                                         {.d = {5, 3, 64, 64, 8}},
                                         {.d = {65, 6, 10, 5, 0, 1}},
                                         {.d = {33, 4, 128, 128, 64, 1}},
                                         {.d = {17, 2, 256, 8, 4}},
                                         {.d = {18, 2, 1031, 0, 1}},
                                         {.d = {3, 3, 4096, 0, 0}, .large = 1}, // fewer shares in a GPU's shared memory
                                         {.d = {17, 2, 12296, 0, 0}, .large = 1}, // none
                                         AT_THE_EDGE(NORM_HEADS, 4, OF_F32),      // one, and two to eight: of fp32
                                         AT_THE_EDGE(NORM_HEADS, 8, OF_F32),      // whatever the type
                                         AT_THE_EDGE(NORM_HEADS, 32, OF_F32 | OF_BF16)};
static const Variant head_norm_backward_variants[] = {{0, 0, {{0, 0}}}, {1, 0, {{0, 0}}}, {0, 1u << 1, {{0, 0}}}};

static GxHeadNorm head_norm_of(const Shape *s, GxDtype t)
{
    const int64_t width = s->d[1] * s->d[2];
    const GxHeadNorm n = {s->d[0], s->d[1], s->d[2], width + s->d[3], width + s->d[4], NORM_EPS, t, (float)s->d[5]};
    return n;
}
static int64_t head_norm_x(const Shape *s) { return s->d[0] * head_norm_of(s, GX_F32).stride; }
static int64_t head_norm_kept(const Shape *s) { return s->d[0] * head_norm_of(s, GX_F32).kept_stride; }
static double sum_all_heads(const Shape *s) { return (double)(s->d[0] * s->d[1] + s->d[2]) + 16; }
static void call_head_norm_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxHeadNorm n = head_norm_of(s, t);
    (void)a, gx_head_norm_forward(g, b[0], b[1], (float *)b[2], b[3], &n);
}
static void call_head_norm_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxHeadNorm n = head_norm_of(s, t);
    gx_head_norm_backward(g, b[0], (float *)b[1], b[2], (const float *)b[3], b[4], &n, a);
}
static Case *prepare_head_norm(Case *c)
{
    const GxHeadNorm n = head_norm_of(c->shape, GX_F32);
    forget_gaps(numbers(c, 0), n.R, n.heads * n.head_dim, n.stride);
    return c;
}
static Case *prepare_head_norm_backward(Case *c) // rstd from the forward of what is kept
{
    GxHeadNorm n = head_norm_of(c->shape, GX_F32);
    const int64_t elements = head_norm_kept(c->shape);
    float *x = (float *)take(4 * elements), *kept = (float *)take(4 * elements);
    prepare_head_norm(c);
    forget_gaps(numbers(c, 2), n.R, n.heads * n.head_dim, n.kept_stride);
    memcpy(x, numbers(c, 2), (size_t)(4 * elements));
    n.stride = n.kept_stride;
    gx_head_norm_forward(c->cpu, x, kept, numbers(c, 3), numbers(c, 4), &n);
    free(x), free(kept);
    return c;
}
static double head_norm_backward_floor(const Case *c, int buffer) // of heads of one element all of it cancels
{
    const GxHeadNorm n = head_norm_of(c->shape, GX_F32);
    double squares = 0;
    for (int64_t i = 0; i < n.R * n.heads * n.head_dim; i++) {
        const int64_t head = i / n.head_dim, r = head / n.heads, column = i - r * n.heads * n.head_dim;
        squares += pow((double)numbers(c, 3)[head] * (numbers(c, 4)[i % n.head_dim] + n.offset) *
                           numbers(c, 0)[r * n.stride + column],
                       2);
    }
    return buffer == 0 ? sqrt(squares) : 0;
}

// ---- attention: d = B, H, K, h -------------------------------------------------------------------------------------

enum {
    DENSE,
    GAPS,
    PACKED
}; // GAPS: 3 elements behind each row (o: 6); PACKED: as far apart as q, k and v side by side
static const Shape attention_shapes[] = {
    {.d = {1, 1, 1, 1}, .q = RUN1(1, 0), .k = RUN1(1, 0), .causal = 1},
    {.d = {2, 6, 2, 10}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = PACKED},
    {.d = {2, 3, 1, 2}, .q = RUN1(5, 3), .k = RUN1(8, 0), .causal = 1, .layout = GAPS},
    {.d = {1, 2, 1, 4},
     .q = RUN2(3, 0, 4, 9),
     .k = RUN2(4, 1, 3, 10),
     .causal = 1,
     .layout = GAPS,
     .factor = 2},                                                      // row 0 sees no key
    {.d = {2, 2, 2, 2}, .q = RUN1(4, 0), .k = RUN1(3, 4), .causal = 1}, // no row sees any
    {.d = {1, 4, 4, 48}, .q = RUN1(65, 0), .k = RUN1(130, 0), .layout = GAPS},
    {.d = {3, 6, 2, 8},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .causal = 1,
     .layout = PACKED,
     .large = 1}, // a balanced rank's two runs
    {.d = {1, 3, 1, 64}, .q = RUN1(70, 60), .k = RUN1(130, 0), .causal = 1},
    {.d = {1, 2, 1, 128}, .q = RUN1(129, 0), .k = RUN1(129, 0), .causal = 1, .layout = PACKED},
    {.d = {2, 2, 1, 16},
     .q = RUN2(40, 500, 37, 590),
     .k = RUN2(530, 0, 70, 540),
     .causal = 1,
     .layout = GAPS,
     .large = 1},
    {.d = {1, 1, 1, 32}, .q = RUN1(40, 0), .k = RUN1(257, 0), .layout = DENSE},
    {.d = {1, 2, 1, 160}, .q = RUN1(37, 3), .k = RUN1(40, 0), .causal = 1, .layout = GAPS},
    {.d = {1, 1, 1, 256}, .q = RUN1(33, 0), .k = RUN1(33, 0), .causal = 1},
    {.d = {1, 2, 2, 6},
     .q = RUN1(130, 0),
     .k = RUN2(30, 70, 50, 20),
     .causal = 1}, // a tile of queries before, in and behind its keys
    // a rank's part of the heads, which begins or ends inside a group
    {.d = {2, 3, 2, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .group = 2, .q_first = 1, .causal = 1, .layout = PACKED},
    {.d = {3, 5, 3, 2}, .q = RUN1(7, 0), .k = RUN1(5, 0), .group = 2, .q_first = 1, .layout = GAPS},
    {.d = {2, 4, 2, 16}, .q = RUN1(6, 0), .k = RUN1(7, 0), .group = 3, .q_first = 2},
    {.d = {1, 3, 2, 64}, .q = RUN1(66, 0), .k = RUN1(66, 0), .group = 2, .q_first = 1, .causal = 1, .layout = PACKED},
    // documents and padding, each column's others; dropout; both
    {.d = {3, 2, 2, 4}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .documents = {2, -1, 5}},
    {.d = {2, 1, 1, 2}, .q = RUN1(5, 0), .k = RUN1(5, 0), .documents = {-5}},
    {.d = {2, 3, 1, 16}, .q = RUN1(67, 31), .k = RUN1(150, 0), .layout = GAPS, .documents = {40, 60, -5, 30}},
    {.d = {2, 2, 1, 64},
     .q = RUN1(136, 0),
     .k = RUN1(136, 0),
     .layout = PACKED,
     .documents = {70, -30, 33},
     .large = 1},
    {.d = {1, 2, 1, 128}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1, .documents = {30, 13, -17}},
    {.d = {1, 2, 1, 160}, .q = RUN1(40, 0), .k = RUN1(40, 0), .layout = GAPS, .documents = {20, -7, 11}},
    {.d = {2, 3, 3, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = PACKED, .dropout = 0.5f},
    {.d = {1, 2, 1, 64}, .q = RUN1(37, 33), .k = RUN1(67, 2), .causal = 1, .dropout = 0.1f},
    {.d = {1, 1, 1, 128}, .q = RUN1(33, 0), .k = RUN1(70, 0), .layout = GAPS, .dropout = 0.2f},
    {.d = {1, 2, 2, 160}, .q = RUN1(33, 0), .k = RUN1(35, 1), .dropout = 0.2f},
    {.d = {2, 2, 1, 16},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .layout = PACKED,
     .documents = {65, 73, -4, 52},
     .dropout = 0.2f}, // one document lies in both runs
    // keys of other texts, more or fewer; texts that end within tiles, and some that fill several
    {.d = {3, 2, 2, 4}, .q = RUN1(9, 0), .k = RUN1(14, 0), .documents = {2, -1, 5}, .sources = {3, 4, 6}},
    {.d = {2, 3, 1, 64}, .q = RUN1(70, 0), .k = RUN1(200, 0), .documents = {30, 40}, .sources = {150, 35}},
    {.d = {2, 2, 1, 128},
     .q = RUN1(190, 0),
     .k = RUN1(70, 0),
     .documents = {20, 130, 38},
     .sources = {-5, 60, 3},
     .large = 1},
    // documents that are longer than tiles, so that all rows of some see all of others; and within a window
    {.d = {1, 2, 1, 8},
     .q = RUN1(330, 0),
     .k = RUN1(330, 0),
     .causal = 1,
     .documents = {30, 120, 169, 11}, // the last begins with the last of 64 rows
     .sliding_window = 170},
    {.d = {1, 2, 1, 64},
     .q = RUN1(330, 0),
     .k = RUN1(330, 0),
     .causal = 1,
     .documents = {-33, 180, -9, 98},
     .large = 1},
    {.d = {1, 2, 1, 8},
     .q = RUN1(330, 0),
     .k = RUN1(330, 0),
     .layout = PACKED,
     .documents = {30, 129, 126, 45}}, // one begins behind a tile's first row, one ends before a tile's last
    // what tensor cores take: rows in whole packs, of every padded size of head; one row; more queries than keys
    {.d = {1, 6, 2, 64}, .q = RUN1(257, 0), .k = RUN1(257, 0), .causal = 1, .layout = PACKED, .large = 1},
    {.d = {2, 6, 2, 96}, .q = RUN1(1, 40), .k = RUN1(41, 0), .causal = 1},
    {.d = {1, 6, 2, 96}, .q = RUN1(129, 0), .k = RUN1(129, 0), .layout = PACKED, .large = 1},
    {.d = {1, 2, 1, 72}, .q = RUN1(150, 0), .k = RUN1(33, 0), .layout = PACKED},
    {.d = {1, 3, 2, 88},
     .q = RUN2(31, 1, 66, 99),
     .k = RUN2(66, 3, 64, 101),
     .group = 2,
     .q_first = 1,
     .causal = 1,
     .documents = {90, -9, 66},
     .dropout = 0.1f},
    {.d = {2, 6, 2, 128},
     .q = RUN1(150, 0),
     .k = RUN1(150, 0),
     .causal = 1,
     .layout = PACKED,
     .documents = {70, -30, 50},
     .dropout = 0.1f,
     .large = 1},
    {.d = {1, 2, 1, 64}, .q = RUN1(67, 0), .k = RUN1(67, 0), .causal = 1, .scale = 0.5f},
    {.d = {1, 2, 1, 64}, .q = RUN1(20, 0), .k = RUN1(67, 0), .scale = -0.1f}, // which tensor cores do not take
    // in fp32 they take heads of whole packs that bf16 has not
    {.d = {1, 2, 1, 20}, .q = RUN1(37, 30), .k = RUN1(67, 0), .causal = 1, .dropout = 0.1f},
    {.d = {2, 2, 2, 68}, .q = RUN1(40, 0), .k = RUN1(40, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 2, 1, 100}, .q = RUN1(33, 2), .k = RUN1(70, 0)},
    // windows, which end and begin within tiles, at their edges and beyond the sequence, in every size of head
    {.d = {2, 6, 2, 10}, .q = RUN1(9, 0), .k = RUN1(9, 0), .causal = 1, .layout = PACKED, .sliding_window = 1},
    {.d = {1, 2, 1, 4},
     .q = RUN2(3, 0, 4, 9),
     .k = RUN2(4, 1, 3, 10),
     .causal = 1,
     .layout = GAPS,
     .sliding_window = 3},
    {.d = {2, 2, 2, 2}, .q = RUN1(4, 8), .k = RUN1(3, 0), .causal = 1, .sliding_window = 5}, // no row sees any
    {.d = {2, 3, 1, 16},
     .q = RUN1(110, 40),
     .k = RUN1(150, 0),
     .causal = 1,
     .layout = GAPS,
     .documents = {40, 60, -5, 30},
     .sliding_window = 17},
    {.d = {1, 2, 1, 64}, .q = RUN1(150, 0), .k = RUN1(150, 0), .causal = 1, .layout = PACKED, .sliding_window = 1},
    {.d = {1, 2, 1, 64}, .q = RUN1(150, 0), .k = RUN1(150, 0), .causal = 1, .sliding_window = INT64_MAX},
    {.d = {1, 3, 2, 64},
     .q = RUN1(257, 0),
     .k = RUN1(257, 0),
     .group = 2,
     .q_first = 1,
     .causal = 1,
     .layout = PACKED,
     .sliding_window = 64,
     .large = 1},
    {.d = {1, 6, 2, 96}, .q = RUN1(129, 0), .k = RUN1(129, 0), .causal = 1, .layout = PACKED, .sliding_window = 65},
    {.d = {1, 2, 1, 72}, .q = RUN1(33, 117), .k = RUN1(150, 0), .causal = 1, .layout = PACKED, .sliding_window = 31},
    {.d = {1, 2, 1, 128},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .causal = 1,
     .layout = PACKED,
     .sliding_window = 96,
     .large = 1}, // the second run's first queries see the end of the first run
    {.d = {2, 6, 2, 128},
     .q = RUN1(150, 0),
     .k = RUN1(150, 0),
     .causal = 1,
     .layout = PACKED,
     .documents = {70, -30, 50},
     .dropout = 0.1f,
     .large = 1,
     .sliding_window = 34},
    {.d = {1, 2, 1, 160}, .q = RUN1(70, 3), .k = RUN1(73, 0), .causal = 1, .layout = GAPS, .sliding_window = 34},
    // one run of keys and several of queries, whose tiles end in the next run's rows; more queries than keys
    {.d = {2, 4, 2, 64}, .q = RUN2(66, 0, 64, 130), .k = RUN1(194, 0), .causal = 1, .layout = PACKED, .large = 1},
    {.d = {1, 6, 2, 128}, .q = RUN1(131, 0), .k = RUN1(70, 0)},
    // the last query that sees a tile of keys is the first of its own tile: of 64 keys, and of 64 or 128
    {.d = {1, 2, 1, 64}, .q = RUN1(140, 0), .k = RUN1(140, 0), .causal = 1, .layout = PACKED, .sliding_window = 66},
    {.d = {1, 2, 1, 64}, .q = RUN1(140, 0), .k = RUN1(140, 0), .causal = 1, .layout = PACKED, .sliding_window = 2},
};

static GxAttention attention_of(const Shape *s, GxDtype type)
{
    const int64_t B = s->d[0], H = s->d[1], K = s->d[2], h = s->d[3], gap = s->layout == GAPS ? 3 : 0;
    const int64_t packed = (H + 2 * K) * h, q_stride = s->layout == PACKED ? packed : H * h + gap;
    const int64_t kv_stride = s->layout == PACKED ? packed : K * h + gap;
    GxAttention a = GX_ZERO;
    a.B = B, a.H = H, a.K = K, a.head_dim = h, a.group = s->group, a.q_first = s->q_first;
    a.q_runs = s->q, a.k_runs = s->k;
    a.q_stride = q_stride, a.kv_stride = kv_stride, a.o_stride = H * h + 2 * gap;
    a.causal = s->causal, a.sliding_window = s->sliding_window, a.scale = s->scale, a.dtype = type;
    a.dropout = s->dropout, a.site = gx_random_site(GX_SITE_DROPOUT, 7);
    a.first_sample = 3, a.T = oracle_positions(&s->q, &s->k), a.heads = H + 5, a.head_first = 3;
    return a;
}
static GxAttention attention_on(const Shape *s, GxDtype type, const void *documents)
{
    GxAttention a = attention_of(s, type);
    if (s->documents[0]) a.documents = (const int32_t *)documents;
    if (s->sources[0]) a.key_documents = a.documents + oracle_positions(&s->q, &s->k) * s->d[0] * 2;
    return a;
}
static int64_t attention_documents(const Shape *s)
{
    return s->documents[0] ? oracle_positions(&s->q, &s->k) * s->d[0] * (s->sources[0] ? 4 : 2) : 1;
}
static int64_t attention_q(const Shape *s) { return gx_runs_rows(&s->q) * s->d[0] * attention_of(s, GX_F32).q_stride; }
static int64_t attention_kv(const Shape *s)
{
    return gx_runs_rows(&s->k) * s->d[0] * attention_of(s, GX_F32).kv_stride;
}
static int64_t attention_o(const Shape *s) { return gx_runs_rows(&s->q) * s->d[0] * attention_of(s, GX_F32).o_stride; }
static int64_t attention_lse(const Shape *s) { return gx_runs_rows(&s->q) * s->d[0] * s->d[1]; }

// A score is a sum over h, a probability is behind a sum over the keys, an output behind another; gradients of k and v
// are sums over the queries of all heads of a group.
static double attention_forward_depth(const Shape *s) { return (double)(s->d[3] + 2 * gx_runs_rows(&s->k)) + 16; }
static double attention_backward_depth(const Shape *s)
{
    return (double)(3 * s->d[3] + 2 * gx_runs_rows(&s->k) + gx_runs_rows(&s->q) * s->d[1]) + 16;
}

static void call_attention_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int accumulate)
{
    const GxAttention a = attention_on(s, t, b[5]);
    (void)accumulate, gx_attention_forward(g, b[0], (float *)b[1], b[2], b[3], b[4], &a);
}
static void call_attention_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int accumulate)
{
    const GxAttention a = attention_on(s, t, b[9]);
    (void)accumulate, gx_attention_backward(g, b[0], b[1], b[2], b[3], b[4], (const float *)b[5], b[6], b[7], b[8], &a);
}

static void forget_attention_gaps(const Case *c, int q, int k, int v)
{
    const Shape *s = c->shape;
    const GxAttention a = attention_of(s, GX_F32);
    const int64_t Tq = gx_runs_rows(&s->q) * a.B, Tk = gx_runs_rows(&s->k) * a.B, h = a.head_dim;
    scale_numbers(numbers(c, q), attention_q(s), s->factor);
    forget_gaps(numbers(c, q), Tq, a.H * h, a.q_stride);
    forget_gaps(numbers(c, k), Tk, a.K * h, a.kv_stride);
    forget_gaps(numbers(c, v), Tk, a.K * h, a.kv_stride);
}
// Row t of each sample and head is 1 in column t, else 0.
static void make_identity(float *x, int64_t rows, int64_t B, int64_t heads, int64_t h, int64_t stride)
{
    for (int64_t i = 0; i < rows * B * heads * h; i++) {
        const int64_t row = i / (heads * h), column = i % (heads * h);
        x[row * stride + column] = column % h == row / B;
    }
}
static Case *prepare_attention(Case *c, int documents)
{
    const Shape *s = c->shape;
    const int64_t positions = oracle_positions(&s->q, &s->k), n = positions * s->d[0] * 2;
    for (int keys = 0; keys < (s->sources[0] ? 2 : s->documents[0] != 0); keys++) {
        const int *own = keys ? s->sources : s->documents, *others = keys ? s->documents : s->sources;
        int32_t *made = s->sources[0] ? oracle_crossing(own, others, positions, s->d[0])
                                      : oracle_documents(own, positions, s->d[0]);
        memcpy(integers(c, documents) + keys * n, made, (size_t)n * sizeof *made);
        free(made);
    }
    c->step.seed = 0x123456789abcdefULL, c->step.step = 9, c->step.first_sample = 2;
    return c;
}
static Case *prepare_attention_forward(Case *c)
{
    const GxAttention a = attention_of(c->shape, GX_F32);
    forget_attention_gaps(c, 2, 3, 4);
    if (c->shape->identity) make_identity(numbers(c, 4), gx_runs_rows(&a.k_runs), a.B, a.K, a.head_dim, a.kv_stride);
    return prepare_attention(c, 5);
}
// The keys in pages, from the last to the first; the first page of the last column is not there.
static const Shape paged_shapes[] = {
    {.d = {1, 1, 1, 1}, .q = RUN1(1, 0), .k = RUN1(1, 0), .causal = 1},
    {.d = {2, 6, 2, 10}, .q = RUN1(9, 60), .k = RUN1(69, 0), .causal = 1},
    {.d = {3, 3, 1, 64}, .q = RUN1(1, 199), .k = RUN1(200, 0), .causal = 1, .layout = PACKED},
    {.d = {2, 4, 2, 128}, .q = RUN1(70, 60), .k = RUN1(130, 0), .causal = 1, .documents = {-75, 55}},
    {.d = {2, 2, 1, 160}, .q = RUN1(5, 127), .k = RUN1(132, 0), .causal = 1, .layout = GAPS, .documents = {-10, 122}},
    {.d = {2, 3, 2, 16}, .q = RUN1(67, 31), .k = RUN1(150, 0), .group = 2, .q_first = 1, .documents = {40, 60, 50}},
    {.d = {3, 6, 2, 96}, .q = RUN1(2, 198), .k = RUN1(200, 0), .causal = 1, .layout = PACKED, .dropout = 0.1f},
    {.d = {2, 3, 1, 64}, .q = RUN1(1, 199), .k = RUN1(200, 0), .causal = 1, .layout = PACKED, .sliding_window = 70},
    {.d = {2, 3, 1, 160}, .q = RUN1(9, 191), .k = RUN1(200, 0), .causal = 1, .sliding_window = 64},
};
static int64_t paged_pages(const Shape *s) { return gx_ceil_div(gx_runs_rows(&s->k), GX_PAGE) * s->d[0]; }
static int64_t paged_kv(const Shape *s) { return paged_pages(s) * GX_PAGE * attention_of(s, GX_F32).kv_stride; }
static void call_attention_over_pages(GxContext *g, void **b, const Shape *s, GxDtype t, int accumulate)
{
    GxAttention a = attention_on(s, t, b[5]);
    a.pages = (const int32_t *)b[6];
    (void)accumulate, gx_attention_forward(g, b[0], (float *)b[1], b[2], b[3], b[4], &a);
}
static Case *prepare_attention_over_pages(Case *c)
{
    const Shape *s = c->shape;
    const GxAttention a = attention_of(s, GX_F32);
    const int64_t pages = paged_pages(s);
    for (int i = 3; i <= 4; i++) forget_gaps(numbers(c, i), pages * GX_PAGE, a.K * a.head_dim, a.kv_stride);
    for (int64_t i = 0; i < pages; i++) integers(c, 6)[i] = (int32_t)(pages - 1 - i);
    if (pages > a.B) integers(c, 6)[a.B - 1] = -1;
    return prepare_attention(c, 5);
}
// d: rows, heads, head_dim. Some heads have seen no key on one side or on both; what they have there is 0.
static int64_t merge_lse(const Shape *s) { return s->d[0] * s->d[1]; }
static int64_t merge_o(const Shape *s) { return s->d[0] * s->d[1] * s->d[2]; }
static Case *prepare_attention_merge(Case *c)
{
    const int64_t h = c->shape->d[2];
    for (int64_t i = 0; i < merge_lse(c->shape); i++)
        for (int side = 0; side < 2; side++) {
            if ((i + side) % 5 > 1) continue;
            numbers(c, 2 * side + 1)[i] = -INFINITY;
            memset(numbers(c, 2 * side) + i * h, 0, (size_t)h * 4);
        }
    return c;
}
static void call_attention_merge(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a,
        gx_attention_merge(g, (float *)b[0], (float *)b[1], b[2], (const float *)b[3], s->d[0], s->d[1], s->d[2], t);
}
static const Shape merge_shapes[] = {{.d = {1, 1, 1}}, {.d = {7, 3, 10}}, {.d = {33, 2, 64}}, {.d = {5, 4, 128}}};
static Case *prepare_attention_backward(Case *c) // o and lse are those of q, k and v
{
    prepare_attention(c, 9);
    GxAttention a = attention_on(c->shape, GX_F32, c->value[9]);
    if (c->shape->reach) a.bias = c->value[10], a.reach = c->shape->reach;
    const int64_t rows = gx_runs_rows(&a.q_runs) * a.B;
    forget_attention_gaps(c, 6, 7, 8);
    if (c->shape->identity) make_identity(numbers(c, 3), gx_runs_rows(&a.q_runs), a.B, a.H, a.head_dim, a.o_stride);
    forget_gaps(numbers(c, 3), rows, a.H * a.head_dim, a.o_stride);
    forget_gaps(numbers(c, 4), rows, a.H * a.head_dim, a.o_stride);
    c->cpu->step = &c->step;
    gx_attention_forward(c->cpu, numbers(c, 4), numbers(c, 5), numbers(c, 6), numbers(c, 7), numbers(c, 8), &a);
    c->cpu->step = NULL;
    return c;
}

// With heads of the sizes that tensor cores' backward turns back itself, of one that it pads, and of one that it does
// not take.
static const Shape rotated_shapes[] = {
    {.d = {2, 3, 2, 64}, .q = RUN1(66, 3), .k = RUN1(66, 3), .group = 2, .q_first = 1, .causal = 1, .layout = PACKED},
    {.d = {1, 2, 1, 64}, .q = RUN2(35, 60, 30, 100), .k = RUN2(67, 20, 31, 99), .causal = 1, .documents = {75, -5, 70}},
    {.d = {1, 2, 1, 96}, .q = RUN1(33, 0), .k = RUN1(70, 0), .dropout = 0.1f},
    {.d = {1, 2, 2, 128}, .q = RUN2(20, 0, 50, 90), .k = RUN2(20, 0, 50, 90), .causal = 1, .layout = PACKED},
    {.d = {1, 2, 1, 128}, .q = RUN1(70, 63), .k = RUN1(133, 0), .causal = 1},
    {.d = {1, 2, 1, 88}, .q = RUN1(33, 5), .k = RUN1(40, 0), .causal = 1, .layout = PACKED},
    {.d = {1, 2, 2, 6}, .q = RUN1(9, 2), .k = RUN1(9, 2), .causal = 1}, // rows of the same length, apart
    {.d = {2, 2, 2, 6}, .q = RUN1(9, 2), .k = RUN1(9, 2), .causal = 1, .layout = PACKED},
    {.d = {1, 2, 1, 160}, .q = RUN1(17, 3), .k = RUN1(20, 0), .causal = 1, .layout = GAPS},
    {.d = {1, 2, 1, 64}, .q = RUN1(70, 2), .k = RUN1(70, 2), .causal = 1, .layout = PACKED, .sliding_window = 40},
};
static int64_t rotated_table(const Shape *s) { return oracle_positions(&s->q, &s->k) * s->d[3] / 2; }
static void call_attention_backward_rotated(GxContext *g, void **b, const Shape *s, GxDtype t, int accumulate)
{
    GxAttention a = attention_on(s, t, b[9]);
    a.cosine = (const float *)b[10], a.sine = (const float *)b[11];
    (void)accumulate, gx_attention_backward(g, b[0], b[1], b[2], b[3], b[4], (const float *)b[5], b[6], b[7], b[8], &a);
}
static Case *prepare_attention_backward_rotated(Case *c)
{
    const GxRope rope = {.theta = 100};
    gx_rope_table(numbers(c, 10), numbers(c, 11), oracle_positions(&c->shape->q, &c->shape->k), c->shape->d[3], &rope);
    return prepare_attention_backward(c);
}

// A bias by distance: of every kernel's size of head, with tiles within its reach, across its ends and beyond them, on
// both sides.
static const Shape bias_shapes[] = {
    {.d = {2, 2, 1, 6}, .q = RUN1(9, 0), .k = RUN1(9, 0), .layout = GAPS, .scale = 1, .reach = 3},
    {.d = {1, 1, 1, 1}, .q = RUN1(1, 0), .k = RUN1(1, 0), .reach = 1},
    {.d = {2, 3, 1, 16}, .q = RUN1(67, 31), .k = RUN1(150, 0), .causal = 1, .layout = GAPS, .reach = 20},
    {.d = {2, 4, 2, 64},
     .q = RUN1(140, 0),
     .k = RUN1(140, 0),
     .layout = PACKED,
     .scale = 1,
     .factor = 0.3f,
     .reach = 30},
    {.d = {1, 3, 2, 64},
     .q = RUN2(66, 0, 64, 130),
     .k = RUN2(66, 0, 64, 130),
     .group = 2,
     .q_first = 1,
     .causal = 1,
     .layout = PACKED,
     .reach = 128},
    {.d = {1, 2, 1, 64},
     .q = RUN1(70, 200),
     .k = RUN1(140, 0),
     .documents = {120, 60, -5, 90},
     .dropout = 0.1f,
     .reach = 1},
    {.d = {1, 2, 2, 96}, .q = RUN1(33, 0), .k = RUN1(70, 100), .reach = 9}, // all keys are beyond the last row
    {.d = {2, 2, 1, 88}, .q = RUN1(40, 0), .k = RUN1(40, 0), .layout = PACKED, .reach = 200},
    {.d = {1, 2, 1, 128},
     .q = RUN1(129, 0),
     .k = RUN1(129, 0),
     .causal = 1,
     .layout = PACKED,
     .dropout = 0.2f,
     .sliding_window = 96,
     .reach = 50},
    {.d = {1, 2, 1, 160}, .q = RUN1(37, 3), .k = RUN1(40, 0), .layout = GAPS, .documents = {20, -7, 13}, .reach = 11},
    {.d = {1, 1, 1, 256}, .q = RUN1(33, 0), .k = RUN1(33, 0), .scale = 0.5f, .factor = 0.1f, .reach = 12},
    {.d = {2, 2, 2, 2}, .q = RUN1(4, 0), .k = RUN1(3, 4), .causal = 1, .reach = 2}, // no row sees any
};
static const Shape paged_bias_shapes[] = {
    {.d = {2, 3, 1, 64}, .q = RUN1(1, 199), .k = RUN1(200, 0), .causal = 1, .layout = PACKED, .reach = 128},
    {.d = {2, 6, 2, 10}, .q = RUN1(9, 60), .k = RUN1(69, 0), .causal = 1, .scale = 1, .reach = 30},
};
static const Variant dbias_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 11, {{0, 0}}}};

static int64_t attention_bias(const Shape *s) { return (2 * s->reach + 1) * s->d[1]; }
static double dbias_depth(const Shape *s)
{
    return (double)(3 * s->d[3] + gx_runs_rows(&s->k) + gx_runs_rows(&s->q) * gx_runs_rows(&s->k) * s->d[0]) + 16;
}
static void call_attention_with_bias(GxContext *g, void **b, const Shape *s, GxDtype t, int accumulate)
{
    GxAttention a = attention_on(s, t, b[5]);
    a.bias = b[6], a.reach = s->reach;
    (void)accumulate, gx_attention_forward(g, b[0], (float *)b[1], b[2], b[3], b[4], &a);
}
static void call_attention_over_pages_with_bias(GxContext *g, void **b, const Shape *s, GxDtype t, int accumulate)
{
    GxAttention a = attention_on(s, t, b[5]);
    a.pages = (const int32_t *)b[6], a.bias = b[7], a.reach = s->reach;
    (void)accumulate, gx_attention_forward(g, b[0], (float *)b[1], b[2], b[3], b[4], &a);
}
static void call_attention_backward_with_bias(GxContext *g, void **b, const Shape *s, GxDtype t, int accumulate)
{
    GxAttention a = attention_on(s, t, b[9]);
    a.bias = b[10], a.dbias = (float *)b[11], a.reach = s->reach;
    (void)accumulate, gx_attention_backward(g, b[0], b[1], b[2], b[3], b[4], (const float *)b[5], b[6], b[7], b[8], &a);
}

static double lse_floor(const Case *c, int buffer) // a logarithm: its absolute error is the sum's relative one
{
    return buffer == 1 ? sqrt((double)attention_lse(c->shape)) : 0;
}
static double attention_backward_floor(const Case *c, int buffer) // dp - D may cancel
{
    enum { DOCUMENTS = 9, BIAS, DBIAS, BUFFERS };
    GxAttention a = attention_on(c->shape, GX_F32, c->value[DOCUMENTS]);
    double terms[3], *x[BUFFERS] = {NULL};
    a.reach = c->shape->reach;
    if (buffer > 1 && buffer != DBIAS) return 0;
    for (int i = 0; i < (a.reach ? BUFFERS : DOCUMENTS); i++) {
        const int64_t n = c->op->buffer[i].elements(c->shape);
        if (i == DOCUMENTS) continue;
        x[i] = (double *)take(n * 8);
        for (int64_t e = 0; e < n; e++) x[i][e] = i < 3 || i == DBIAS ? 0 : numbers(c, i)[e];
    }
    oracle_attention_backward(x[0], x[1], x[2], x[DBIAS], terms, x[3], x[6], x[7], x[8], x[BIAS], &a, &c->step);
    for (int i = 0; i < BUFFERS; i++) free(x[i]);
    return terms[buffer == DBIAS ? 2 : buffer];
}

// ---- swiglu: d = R, F ----------------------------------------------------------------------------------------------

static const Shape swiglu_shapes[] = {{.d = {1, 1}},    {.d = {3, 7}},    {.d = {5, 64}},
                                      {.d = {65, 257}}, {.d = {2, 1031}}, {.d = {4, 64}, .factor = 60}};
static const Variant swiglu_backward_variants[] = {
    {0, 0, {{0, 0}}}, {0, 1u << 1, {{0, 0}}}, {0, 0, {{0, 3}}}, {0, 0, {{1, 2}}}, {0, 0, {{0, 3}, {1, 2}}}};

static void call_swiglu_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_swiglu_forward(g, b[0], b[1], s->d[0], s->d[1], t);
}
static void call_swiglu_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_swiglu_backward(g, b[0], b[1], b[2], b[3], s->d[0], s->d[1], t);
}
static Case *prepare_swiglu_forward(Case *c)
{
    return scale_numbers(numbers(c, 1), twice_d01(c->shape), c->shape->factor), c;
}
static Case *prepare_swiglu_backward(Case *c)
{
    return scale_numbers(numbers(c, 3), twice_d01(c->shape), c->shape->factor), c;
}
// dgate is dy*up*s times a sum that passes through zero at gate = -1.28
static double swiglu_floor(const Case *c, int buffer)
{
    const int64_t F = c->shape->d[1];
    double squares = 0;
    for (int64_t i = 0; i < d01(c->shape); i++) {
        const float *gate = numbers(c, 3) + i / F * 2 * F + i % F;
        squares += pow((double)numbers(c, 2)[i] * gate[F] * oracle_sigmoid(gate[0]), 2);
    }
    return buffer == 0 ? sqrt(squares) : 0;
}

// ---- cross-entropy: d = R, V, v_begin, size of the whole vocabulary, every how many-th row is ignored (0: none) ----

static const Shape cross_entropy_shapes[] = {{.d = {1, 1, 0, 1, 0}},
                                             {.d = {3, 7, 0, 7, 2}},
                                             {.d = {6, 64, 0, 64, 0}, .factor = 3},
                                             {.d = {66, 257, 0, 257, 3}, .factor = 2},
                                             {.d = {4, 9, 0, 9, 1}}, // all are ignored
                                             {.d = {5, 1031, 0, 1031, 4}},
                                             {.d = {9, 72, 0, 72, 0}, .sure = 8},  // p - 1 is small:
                                             {.d = {9, 72, 0, 72, 0}, .sure = 12}, // p must not be rounded before
                                             {.d = {66, 257, 0, 257, 3}, .factor = 2, .smooth = 0.1f},
                                             {.d = {6, 64, 0, 64, 0}, .factor = 3, .smooth = 0.25f},
                                             {.d = {9, 72, 0, 72, 0}, .sure = 8, .smooth = 0.1f},
                                             {.d = {3, 32000, 0, 32000, 0}, .factor = 2, .large = 1}};
static const Shape part_shapes[] = {{.d = {1, 1, 0, 1, 0}},
                                    {.d = {3, 7, 2, 20, 2}},
                                    {.d = {66, 257, 257, 771, 3}, .factor = 2},
                                    {.d = {5, 64, 64, 128, 0}},
                                    {.d = {4, 9, 0, 30, 1}},
                                    {.d = {7, 1, 3, 5, 0}},
                                    {.d = {9, 72, 0, 72, 0}, .sure = 12},
                                    {.d = {66, 257, 257, 771, 3}, .factor = 2, .smooth = 0.1f},
                                    {.d = {5, 64, 64, 128, 0}, .smooth = 0.25f},
                                    {.d = {3, 16001, 15999, 32000, 0}, .large = 1}};
static const Variant cross_entropy_variants[] = {{0, 1u << 4, {{0, 0}}},
                                                 {0, 1u << 1 | 1u << 4, {{0, 0}}},
                                                 {0, 1u << 4, {{1, 2}}},
                                                 {0, 0, {{0, 0}}},
                                                 {0, 1u << 5, {{1, 2}}}};
static const Variant dlogits_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 1, {{0, 0}}}, {0, 0, {{1, 2}}}};
static const Variant finish_variants[] = {{0, 1u << 5, {{0, 0}}},
                                          {0, 1u << 1 | 1u << 5, {{0, 0}}},
                                          {0, 1u << 1 | 1u << 2 | 1u << 5, {{0, 0}}},
                                          {0, 1u << 5, {{1, 2}}},
                                          {0, 0, {{0, 0}}},
                                          {0, 1u << 6, {{1, 2}}}};

static GxVocabPart vocab_part(const Shape *s)
{
    const GxVocabPart part = {s->d[0], s->d[1], s->d[2], s->d[3], s->smooth};
    return part;
}
static int64_t sums_of(const Shape *s)
{
    const GxVocabPart part = vocab_part(s);
    return gx_cross_entropy_sums_n(&part);
}
static void call_cross_entropy(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_cross_entropy(g, (float *)b[0], b[1], b[2], (const int32_t *)b[3], s->d[0], s->d[1],
                              (const int64_t *)b[5], (const float *)b[4], s->smooth, t);
}
static void call_cross_entropy_maximum(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_cross_entropy_maximum(g, (float *)b[0], b[1], s->d[0], s->d[1], t);
}
static void call_cross_entropy_sums(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxVocabPart part = vocab_part(s);
    (void)a;
    gx_cross_entropy_sums(g, (float *)b[0], b[1], b[2], (const float *)b[3], (const int32_t *)b[4], &part, t);
}
static void call_cross_entropy_finish(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxVocabPart part = vocab_part(s);
    (void)a, gx_cross_entropy_finish(g, (float *)b[0], b[1], b[2], (const float *)b[3], (const int32_t *)b[4], &part,
                                     (const int64_t *)b[6], (const float *)b[5], t);
}

static void prepare_labels(Case *c, int labels, int logits)
{
    const Shape *s = c->shape;
    const int64_t V = s->d[1], every = s->d[4];
    scale_numbers(numbers(c, logits), d01(s), s->factor);
    for (int64_t r = 0; r < s->d[0]; r++) {
        const int64_t label = every && r % every == 0 ? GX_IGNORE_INDEX : r * 5 % s->d[3], column = label - s->d[2];
        integers(c, labels)[r] = (int32_t)label;
        if (column >= 0 && column < V) numbers(c, logits)[r * V + column] += s->sure;
    }
}
// In every other row it is a larger number, of another part; not where a label is to be sure.
static void prepare_maximum(const Case *c, float *maximum, const float *logits)
{
    gx_cross_entropy_maximum(c->cpu, maximum, logits, c->shape->d[0], c->shape->d[1], GX_F32);
    for (int64_t r = 1; r < c->shape->d[0] && !c->shape->sure; r += 2) maximum[r] += 0.5f;
}
static void set_count(Case *c, int i, int64_t count) { memcpy(c->value[i], &count, sizeof count); }
static float loss_scale(const Case *c, int count)
{
    int64_t n;
    memcpy(&n, c->value[count], sizeof n);
    return c->variant->without >> count & 1 ? 1 : 1.0f / (float)n;
}
static Case *prepare_cross_entropy(Case *c)
{
    set_count(c, 5, c->shape->d[0]);
    return prepare_labels(c, 3, 2), c;
}
static Case *prepare_sums(Case *c)
{
    prepare_labels(c, 4, 2);
    for (int64_t i = 0; i < d01(c->shape); i++) numbers(c, 2)[i] = rounded(numbers(c, 2)[i], c->type);
    prepare_maximum(c, numbers(c, 3), numbers(c, 2));
    return c;
}
static Case *prepare_finish(Case *c) // the other parts' sums are as large, and have the label where it is not here
{
    const Shape *s = c->shape;
    float *maximum = (float *)take(4 * s->d[0]), *sums = numbers(c, 3);
    set_count(c, 6, s->d[0]);
    prepare_labels(c, 4, 2);
    prepare_maximum(c, maximum, numbers(c, 2));
    void *buffers[] = {sums, c->value[2], c->value[2], maximum, c->value[4]};
    call_cross_entropy_sums(c->cpu, buffers, s, GX_F32, 0);
    for (int64_t r = 0; r < s->d[0]; r++) {
        const int64_t label = integers(c, 4)[r] - s->d[2];
        sums[r] *= (float)s->d[3] / (float)s->d[1];
        if (label < 0 || label >= s->d[1]) sums[s->d[0] + r] = -1;
        if (s->smooth != 0) sums[2 * s->d[0] + r] *= (float)s->d[3] / (float)s->d[1];
    }
    free(maximum);
    return c;
}
static double
loss_floor(const Case *c,
           int buffer) // a loss may be near 0 where the label is sure, and p - 1 too: errors are of 1's size
{
    const int labels = c->op->buffer[3].type == GX_I32 ? 3 : 4;
    double rows = 0;
    for (int64_t r = 0; r < c->shape->d[0]; r++) rows += integers(c, labels)[r] != GX_IGNORE_INDEX;
    return sqrt(rows) * (buffer == 0 ? 1 : loss_scale(c, labels + 2));
}

// ---- optimizer: d = n, t, skip, ranges that do not decay, the first of these behind others (0: at the beginning) ----

static const GxAdamW ADAMW = {0.9f, 0.95f, 1e-8f, 0.1f};
static const GxSgd SGD = {0.9f, 0.01f};
static const Shape optimizer_shapes[] = {{.d = {1, 1}},
                                         {.d = {7, 2}},
                                         {.d = {257, 1000, 0, 3}},
                                         {.d = {30011, 3, 0, GX_MOST_UNDECAYED, 1}},
                                         {.d = {37, 4, 1}}};
static const Variant adamw_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 3, {{0, 0}}}};
static const Variant sgd_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 2, {{0, 0}}}, {0, 1u << 1, {{0, 0}}}};

static GxUpdate update_of(void *w, void *m, void *v, const Shape *s, GxDtype t)
{
    GxUpdate u = GX_ZERO;
    u.w = (float *)w, u.m = (float *)m, u.v = (float *)v, u.n = s->d[0], u.dtype = t;
    u.undecayed.n = (int)s->d[3];
    for (int r = 0; r < u.undecayed.n; r++) { // every second part of the elements
        const int64_t part = 2 * r + s->d[4], parts = 2 * s->d[3];
        u.undecayed.begin[r] = part * u.n / parts, u.undecayed.end[r] = (part + 1) * u.n / parts;
    }
    return u;
}
static void call_adamw(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    GxUpdate u = update_of(b[0], b[1], b[2], s, t);
    u.copy = b[3], u.grad = (const float *)b[4];
    (void)a, gx_adamw(g, &u, &ADAMW);
}
static void call_sgd(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    GxUpdate u = update_of(b[0], b[1], NULL, s, t);
    u.copy = b[2], u.grad = (const float *)b[3];
    (void)a, gx_sgd(g, &u, &SGD);
}
static Case *prepare_step(Case *c, float *grad)
{
    c->step.lr = 0.01f, c->step.clip = 0.3f, c->step.applied = c->shape->d[1], c->step.skip = c->shape->d[2];
    if (c->step.skip) grad[0] = NAN;
    return c;
}
static Case *prepare_adamw(Case *c) // second moments are not negative
{
    float *m = numbers(c, 1), *v = numbers(c, 2);
    for (int64_t i = 0; i < c->shape->d[0]; i++) v[i] *= v[i], m[i] *= sqrtf(v[i]);
    return prepare_step(c, numbers(c, 4));
}
static Case *prepare_sgd(Case *c) { return prepare_step(c, numbers(c, 3)); }

// clip: d = number of the case; it has no buffers but the step
static const struct {
    double squares, max_norm;
} clips[] = {{25, 1}, {0.25, 1}, {25, 0}, {25, -1}, {0, 1}, {1e60, 1}, {25, 5}, {INFINITY, 1}, {NAN, 1}, {NAN, 0}};
static const Shape clip_shapes[] = {{.d = {0}}, {.d = {1}}, {.d = {2}}, {.d = {3}}, {.d = {4}},
                                    {.d = {5}}, {.d = {6}}, {.d = {7}}, {.d = {8}}, {.d = {9}}};
static void call_clip(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)b, (void)t, (void)a, gx_clip(g, clips[s->d[0]].max_norm);
}
static Case *prepare_clip(Case *c)
{
    c->step.sum_squares = clips[c->shape->d[0]].squares;
    c->step.applied = 41, c->step.clip = 7, c->step.skip = c->shape->d[0] & 1; // of the step before
    return c;
}

// ---- gelu, geglu: d = R, F, kind; relu, tanh: d = n -----------------------------------------------------------------------------

static const Shape gelu_shapes[] = {{.d = {1, 1, GX_GELU_ERF}},
                                    {.d = {3, 7, GX_GELU_TANH}},
                                    {.d = {5, 64, GX_GELU_ERF}},
                                    {.d = {2, 1031, GX_GELU_TANH}},
                                    {.d = {33, 264, GX_GELU_TANH}},
                                    {.d = {4, 64, GX_GELU_ERF}, .factor = 100},
                                    {.d = {4, 64, GX_GELU_TANH}, .factor = 100}};
static const Variant gelu_variants[] = {{0, 0, {{0, 0}}}, {0, 0, {{0, 1}}}, {0, 1u << 2, {{0, 0}}}};
static const Variant gelu_backward_variants[] = {
    {0, 0, {{0, 0}}}, {0, 0, {{0, 3}, {1, 2}}}, {0, 1u << 1, {{0, 2}}}, {0, 1u << 1 | 1u << 4, {{0, 0}}}};
static const Variant in_place[] = {{0, 0, {{0, 0}}}, {0, 0, {{0, 1}}}};

static void call_gelu_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_gelu_forward(g, b[0], b[1], b[2], s->d[0], s->d[1], (GxGelu)s->d[2], t);
}
static void call_gelu_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_gelu_backward(g, b[0], b[1], b[2], b[3], b[4], s->d[0], s->d[1], (GxGelu)s->d[2], t);
}
static Case *prepare_gelu(Case *c) { return scale_numbers(numbers(c, 1), d01(c->shape), c->shape->factor), c; }
static Case *prepare_gelu_backward(Case *c) { return scale_numbers(numbers(c, 3), d01(c->shape), c->shape->factor), c; }
// The slope of gelu passes through zero: errors of dgate are of dy*up's size.
static const Shape geglu_shapes[] = {{.d = {1, 1, GX_GELU_ERF}},
                                     {.d = {3, 7, GX_GELU_TANH}},
                                     {.d = {5, 64, GX_GELU_ERF}},
                                     {.d = {2, 1031, GX_GELU_TANH}},
                                     {.d = {33, 264, GX_GELU_TANH}},
                                     {.d = {4, 64, GX_GELU_ERF}, .factor = 60},
                                     {.d = {4, 64, GX_GELU_TANH}, .factor = 60}};
static void call_geglu_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_geglu_forward(g, b[0], b[1], s->d[0], s->d[1], (GxGelu)s->d[2], t);
}
static void call_geglu_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_geglu_backward(g, b[0], b[1], b[2], b[3], s->d[0], s->d[1], (GxGelu)s->d[2], t);
}
static double geglu_floor(const Case *c, int buffer)
{
    const int64_t F = c->shape->d[1];
    double squares = 0;
    for (int64_t i = 0; i < d01(c->shape); i++)
        squares += pow((double)numbers(c, 2)[i] * numbers(c, 3)[i / F * 2 * F + i % F + F], 2);
    return buffer == 0 ? sqrt(squares) : 0;
}
static const Variant relu_backward_variants[] = {
    {0, 0, {{0, 0}}}, {0, 1u << 1, {{0, 0}}}, {0, 0, {{0, 3}, {1, 2}}}, {0, 1u << 1, {{0, 2}}}};
static void call_relu_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_relu_forward(g, b[0], b[1], s->d[0], t);
}
static void call_relu_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_relu_backward(g, b[0], b[1], b[2], b[3], s->d[0], t);
}

static void call_tanh_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_tanh_forward(g, b[0], b[1], s->d[0], t);
}
static void call_tanh_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_tanh_backward(g, b[0], b[1], b[2], s->d[0], t);
}

// ---- gate: d = n ---------------------------------------------------------------------------------------------------

static const Variant gate_backward_variants[] = {{0, 0, {{0, 0}}}, {1, 0, {{0, 3}}}, {0, 1u << 1, {{1, 3}}}};

static void call_gate_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_gate_forward(g, b[0], b[1], b[2], b[3], 0.7f, s->d[0], t);
}
static void call_gate_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    gx_gate_backward(g, b[0], b[1], (float *)b[2], b[3], b[4], b[5], b[6], 0.7f, s->d[0], a, t);
}
static double gate_floor(const Case *c, int buffer) // dgate: a sum that may cancel
{
    double sum = 0;
    for (int64_t i = 0; i < c->shape->d[0]; i++)
        sum += fabs((double)numbers(c, 3)[i]) * (fabs((double)numbers(c, 4)[i]) + fabs((double)numbers(c, 5)[i]));
    return buffer == 2 ? sum : 0;
}

// ---- scaled columns: d = R, C, gap ----------------------------------------------------------------------------------

static const Shape columns_shapes[] = {{.d = {1, 1, 0}},    {.d = {3, 7, 2}},    {.d = {257, 1, 1}},
                                       {.d = {40, 64, 64}}, {.d = {65, 257, 0}}, {.d = {17, 40, 4}},
                                       {.d = {2, 1031, 5}}, {.d = {33, 4096, 0}}};
static const Variant columns_backward_variants[] = {{0, 0, {{0, 0}}},       {1, 0, {{0, 3}}},
                                                    {0, 1u << 0, {{0, 0}}}, {1, 1u << 1 | 1u << 4, {{0, 0}}},
                                                    {0, 1u << 2, {{0, 3}}}, {0, 1u << 1 | 1u << 2 | 1u << 4, {{0, 3}}}};

static GxColumns columns_of(const Shape *s, GxDtype t)
{
    const GxColumns n = {s->d[0], s->d[1], s->d[1] + s->d[2], t};
    return n;
}
static int64_t columns_elements(const Shape *s) { return s->d[0] * (s->d[1] + s->d[2]); }
static void call_scale_columns_forward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxColumns n = columns_of(s, t);
    (void)a, gx_scale_columns_forward(g, b[0], b[1], b[2], &n);
}
static void call_scale_columns_backward(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    const GxColumns n = columns_of(s, t);
    gx_scale_columns_backward(g, b[0], (float *)b[1], (float *)b[2], b[3], b[4], b[5], &n, a);
}
static Case *prepare_columns(Case *c)
{
    const GxColumns n = columns_of(c->shape, GX_F32);
    forget_gaps(numbers(c, 1), n.R, n.C, n.stride);
    return c;
}
static Case *prepare_columns_backward(Case *c)
{
    const GxColumns n = columns_of(c->shape, GX_F32);
    forget_gaps(numbers(c, 3), n.R, n.C, n.stride), forget_gaps(numbers(c, 4), n.R, n.C, n.stride);
    return c;
}
static double columns_floor(const Case *c, int buffer) // sums that may cancel
{
    const GxColumns n = columns_of(c->shape, GX_F32);
    double squares[3] = {0, 0, 0};
    for (int64_t i = 0; i < n.R * n.C; i++) {
        const int64_t at = i / n.C * n.stride + i % n.C;
        squares[1] += pow((double)numbers(c, 3)[at] * numbers(c, 4)[at], 2);
        squares[2] += pow((double)numbers(c, 3)[at] * numbers(c, 5)[i % n.C], 2);
    }
    return sqrt(squares[buffer]);
}

// ---- losses with targets: d = R, V ---------------------------------------------------------------------------------

static const Shape target_shapes[] = {{.d = {1, 1}},   {.d = {257, 1}},  {.d = {5, 3}},
                                      {.d = {40, 17}}, {.d = {3, 1031}}, {.d = {8, 33}, .factor = 100}};
static const Variant target_variants[] = {{0, 0, {{0, 0}}}, {0, 1u << 4, {{1, 2}}}, {0, 1u << 1, {{0, 0}}}};

static void call_squared_error(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a,
        gx_squared_error(g, (float *)b[0], b[1], b[2], (const float *)b[3], s->d[0], s->d[1], (const int64_t *)b[4], t);
}
static void call_binary_cross_entropy(GxContext *g, void **b, const Shape *s, GxDtype t, int a)
{
    (void)a, gx_binary_cross_entropy(g, (float *)b[0], b[1], b[2], (const float *)b[3], s->d[0], s->d[1],
                                     (const int64_t *)b[4], t);
}
static Case *prepare_targets(Case *c)
{
    scale_numbers(numbers(c, 2), d01(c->shape), c->shape->factor);
    for (int64_t i = 0; i < d01(c->shape); i++) numbers(c, 3)[i] = gx_random_uniform(3, (uint64_t)i, 0, 0);
    set_count(c, 4, 4);
    return c;
}
static double targets_floor(const Case *c, int buffer)
{
    double squares = 0;
    for (int64_t i = 0; i < d01(c->shape); i++) squares += pow((double)numbers(c, 2)[i], 2);
    return buffer == 0 ? sqrt(squares) : loss_scale(c, 4) * sqrt((double)d01(c->shape));
}

// ---- the table -----------------------------------------------------------------------------------------------------

#define CALLED(name, function, call) name, offsetof(GxDevice, function), call
#define SLOT(function)               CALLED(#function, function, call_##function)
#define LIST(array)                  array, COUNT(array)
#define FLAT                         LIST(flat_shapes)
#define SUMS                         LIST(sum_shapes)

// Buffers: inputs; results that are equal to the bit; near; near, with exact zeros; with another gate in bf16.
#define INPUT(name, type, elements)                                                                                    \
    {                                                                                                                  \
        name, IN, type, elements, NULL, 0, 0                                                                           \
    }
#define EXACT(name, role, type, elements)                                                                              \
    {                                                                                                                  \
        name, role, type, elements, NULL, 0, 0                                                                         \
    }
#define RESULT(name, role, type, elements, depth)                                                                      \
    {                                                                                                                  \
        name, role, type, elements, depth, 0, 0                                                                        \
    }
#define ZEROS(name, role, type, elements, depth)                                                                       \
    {                                                                                                                  \
        name, role, type, elements, depth, 1, 0                                                                        \
    }
#define ROUNDED(name, role, type, elements, depth, gate)                                                               \
    {                                                                                                                  \
        name, role, type, elements, depth, 0, gate                                                                     \
    }

static const Op ops[] = {
    {SLOT(zero), NULL, NULL, 1, FLAT, LIST(plain), {EXACT("x", OUT, GX_U8, d0)}},
    {SLOT(copy), NULL, NULL, 1, FLAT, LIST(plain), {EXACT("y", OUT, GX_U8, d0), INPUT("x", GX_U8, d0)}},
    {CALLED("convert_to", convert, call_narrow),
     prepare_convert,
     NULL,
     1,
     FLAT,
     LIST(plain),
     {EXACT("y", OUT, ACT, d0), INPUT("x", GX_F32, d0)}},
    {CALLED("convert_from", convert, call_widen),
     prepare_convert,
     NULL,
     1,
     FLAT,
     LIST(plain),
     {EXACT("y", OUT, GX_F32, d0), INPUT("x", ACT, d0)}},
    {SLOT(add),
     NULL,
     NULL,
     1,
     FLAT,
     LIST(add_variants), // one sum: exact
     {EXACT("y", OUT, ACT, d0), INPUT("a", ACT, d0), INPUT("b", ACT, d0)}},
    {SLOT(scale), NULL, NULL, 1, FLAT, LIST(in_place), {EXACT("y", OUT, ACT, d0), INPUT("x", ACT, d0)}}, // one product
    {SLOT(sum),
     NULL,
     sum_floor,
     1,
     SUMS,
     LIST(accumulated),
     {RESULT("total", ACCUMULATED, GX_F64, one, sum_d0), INPUT("x", GX_F32, d0)}},
    {SLOT(square_blocks),
     prepare_squares,
     NULL,
     1,
     LIST(squares_shapes),
     LIST(plain),
     {RESULT("blocks", OUT, GX_F64, square_blocks_n, sum_d0), INPUT("x", GX_F32, d0),
      INPUT("parts", GX_I64, part_numbers)}},
    {SLOT(add_blocks),
     NULL,
     NULL,
     1,
     SUMS,
     LIST(accumulated),
     {EXACT("total", ACCUMULATED, GX_F64, one), INPUT("blocks", GX_F64, d0)}},
    {SLOT(embedding_forward),
     prepare_ids,
     NULL,
     1,
     LIST(embedding_shapes),
     LIST(accumulated),
     {EXACT("y", ACCUMULATED, ACT, d01), INPUT("w", ACT, embedding_table), INPUT("ids", GX_I32, d0)}},
    {SLOT(embedding_backward),
     prepare_ids,
     NULL,
     1,
     LIST(embedding_shapes),
     LIST(accumulated),
     {ZEROS("dw", ACCUMULATED, GX_F32, embedding_table, sum_d0), INPUT("dy", ACT, d01), INPUT("ids", GX_I32, d0)}},
    {SLOT(rms_norm_forward),
     NULL,
     NULL,
     1,
     LIST(norm_shapes),
     LIST(plain),
     {RESULT("y", OUT, ACT, d01, sum_d1), RESULT("rstd", OUT, GX_F32, d0, sum_d1), INPUT("x", ACT, d01),
      INPUT("w", ACT, d1)}},
    {SLOT(add_rms_norm_forward),
     NULL,
     NULL,
     1,
     LIST(norm_shapes),
     LIST(add_norm_variants), // the sum is rounded before its norm is taken
     {EXACT("sum", OUT, ACT, d01), RESULT("y", OUT, ACT, d01, sum_d1),
      ROUNDED("rstd", OUT, GX_F32, d0, sum_d1, GATE_ROUNDING), INPUT("x", ACT, d01), INPUT("a", ACT, d01),
      INPUT("w", ACT, d1)}},
    {SLOT(rms_norm_backward),
     prepare_rstd,
     norm_backward_floor,
     1,
     LIST(norm_shapes),
     LIST(norm_backward_variants),
     {RESULT("dx", OUT, ACT, d01, sum_d1), RESULT("dw", ACCUMULATED, GX_F32, d1, sum_d0), INPUT("dy", ACT, d01),
      INPUT("dresidual", ACT, d01), INPUT("x", ACT, d01), INPUT("rstd", GX_F32, d0), INPUT("w", ACT, d1)}},
    {SLOT(head_norm_forward),
     prepare_head_norm,
     NULL,
     1,
     LIST(head_norm_shapes),
     LIST(plain),
     {RESULT("x", INOUT, ACT, head_norm_x, sum_d2), EXACT("kept", OUT, ACT, head_norm_kept),
      RESULT("rstd", OUT, GX_F32, d01, sum_d2), INPUT("w", ACT, d2)}},
    {SLOT(head_norm_backward),
     prepare_head_norm_backward,
     head_norm_backward_floor,
     1,
     LIST(head_norm_shapes),
     LIST(head_norm_backward_variants),
     {RESULT("dx", INOUT, ACT, head_norm_x, sum_d2), RESULT("dw", ACCUMULATED, GX_F32, d2, sum_all_heads),
      INPUT("kept", ACT, head_norm_kept), INPUT("rstd", GX_F32, d01), INPUT("w", ACT, d2)}},
    {SLOT(linear_forward),
     prepare_linear_forward,
     NULL,
     0,
     LIST(linear_shapes),
     LIST(linear_forward_variants),
     {RESULT("y", ACCUMULATED, ACT, linear_y, sum_d1), INPUT("x", ACT, linear_x), INPUT("w", ACT, d12),
      INPUT("bias", ACT, d2)}},
    {SLOT(linear_backward_input),
     prepare_linear_backward_input,
     NULL,
     0,
     LIST(linear_shapes),
     LIST(accumulated),
     {RESULT("dx", ACCUMULATED, ACT, linear_x, sum_d2), INPUT("dy", ACT, linear_y), INPUT("w", ACT, d12)}},
    {SLOT(linear_backward_weight),
     prepare_linear_backward_weight,
     NULL,
     0,
     LIST(linear_shapes),
     LIST(linear_weight_variants),
     {RESULT("dw", ACCUMULATED, GX_F32, d12, sum_d0), RESULT("dbias", ACCUMULATED, GX_F32, d2, sum_d0),
      INPUT("dy", ACT, linear_y), INPUT("x", ACT, linear_x)}},
    {SLOT(dequantize),
     NULL,
     NULL,
     1,
     LIST(quantized_shapes),
     LIST(plain),
     {EXACT("y", OUT, ACT, quantized_box), INPUT("codes", GX_U8, quantized_codes),
      INPUT("scales", GX_F32, quantized_scales), INPUT("codes of scales", GX_U8, quantized_blocks),
      INPUT("offset", GX_F32, one)}},
    {CALLED("quantized_linear_forward", dequantize, call_quantized_forward),
     prepare_quantized_forward,
     NULL,
     0,
     LIST(quantized_product_shapes),
     LIST(quantized_forward_variants), // W is rounded before
     {ROUNDED("y", ACCUMULATED, ACT, product_y, sum_d1, GATE_ROUNDED_W), INPUT("x", ACT, product_x),
      INPUT("bias", ACT, d2), INPUT("codes", GX_U8, product_codes), INPUT("scales", GX_F32, product_scales),
      INPUT("codes of scales", GX_U8, product_blocks), INPUT("offset", GX_F32, one)}},
    {CALLED("quantized_linear_backward_input", dequantize, call_quantized_backward),
     prepare_quantized_backward,
     NULL,
     0,
     LIST(quantized_product_shapes),
     LIST(accumulated),
     {ROUNDED("dx", ACCUMULATED, ACT, product_x, sum_d2, GATE_ROUNDED_W), INPUT("dy", ACT, product_y),
      INPUT("codes", GX_U8, product_codes), INPUT("scales", GX_F32, product_scales),
      INPUT("codes of scales", GX_U8, product_blocks), INPUT("offset", GX_F32, one)}},
    {CALLED("rope_forward", rope, call_rope_forward),
     prepare_rope,
     NULL,
     1,
     LIST(rope_shapes),
     LIST(plain),
     {RESULT("x", INOUT, ACT, rope_x, few), INPUT("cosine", GX_F32, rope_table), INPUT("sine", GX_F32, rope_table)}},
    {CALLED("rope_backward", rope, call_rope_backward),
     prepare_rope,
     NULL,
     1,
     LIST(rope_shapes),
     LIST(plain),
     {RESULT("dx", INOUT, ACT, rope_x, few), INPUT("cosine", GX_F32, rope_table), INPUT("sine", GX_F32, rope_table)}},
    {CALLED("rope_restart_forward", rope, call_rope_restart_forward),
     prepare_rope_restart,
     NULL,
     1,
     LIST(rope_shapes),
     LIST(plain),
     {RESULT("x", INOUT, ACT, rope_x, few), INPUT("cosine", GX_F32, rope_table), INPUT("sine", GX_F32, rope_table),
      INPUT("documents", GX_I32, rope_documents)}},
    {CALLED("rope_restart_backward", rope, call_rope_restart_backward),
     prepare_rope_restart,
     NULL,
     1,
     LIST(rope_shapes),
     LIST(plain),
     {RESULT("dx", INOUT, ACT, rope_x, few), INPUT("cosine", GX_F32, rope_table), INPUT("sine", GX_F32, rope_table),
      INPUT("documents", GX_I32, rope_documents)}},
    {SLOT(text_positions),
     prepare_text_positions,
     NULL,
     1,
     LIST(rope_shapes),
     LIST(plain),
     {EXACT("positions", OUT, GX_I32, positions_rows), INPUT("documents", GX_I32, rope_documents)}},
    {SLOT(attention_forward),
     prepare_attention_forward,
     lse_floor,
     0,
     LIST(attention_shapes),
     LIST(plain),
     {ZEROS("o", OUT, ACT, attention_o, attention_forward_depth),
      RESULT("lse", OUT, GX_F32, attention_lse, attention_forward_depth), INPUT("q", ACT, attention_q),
      INPUT("k", ACT, attention_kv), INPUT("v", ACT, attention_kv), INPUT("documents", GX_I32, attention_documents)}},
    {CALLED("attention_over_pages", attention_forward, call_attention_over_pages),
     prepare_attention_over_pages,
     lse_floor,
     0,
     LIST(paged_shapes),
     LIST(plain),
     {ZEROS("o", OUT, ACT, attention_o, attention_forward_depth),
      RESULT("lse", OUT, GX_F32, attention_lse, attention_forward_depth), INPUT("q", ACT, attention_q),
      INPUT("k", ACT, paged_kv), INPUT("v", ACT, paged_kv), INPUT("documents", GX_I32, attention_documents),
      INPUT("pages", GX_I32, paged_pages)}},
    {CALLED("attention_with_bias", attention_forward, call_attention_with_bias),
     prepare_attention_forward,
     lse_floor,
     0,
     LIST(bias_shapes),
     LIST(plain),
     {ZEROS("o", OUT, ACT, attention_o, attention_forward_depth),
      RESULT("lse", OUT, GX_F32, attention_lse, attention_forward_depth), INPUT("q", ACT, attention_q),
      INPUT("k", ACT, attention_kv), INPUT("v", ACT, attention_kv), INPUT("documents", GX_I32, attention_documents),
      INPUT("bias", ACT, attention_bias)}},
    {CALLED("attention_over_pages_with_bias", attention_forward, call_attention_over_pages_with_bias),
     prepare_attention_over_pages,
     lse_floor,
     0,
     LIST(paged_bias_shapes),
     LIST(plain),
     {ZEROS("o", OUT, ACT, attention_o, attention_forward_depth),
      RESULT("lse", OUT, GX_F32, attention_lse, attention_forward_depth), INPUT("q", ACT, attention_q),
      INPUT("k", ACT, paged_kv), INPUT("v", ACT, paged_kv), INPUT("documents", GX_I32, attention_documents),
      INPUT("pages", GX_I32, paged_pages), INPUT("bias", ACT, attention_bias)}},
    {SLOT(attention_merge),
     prepare_attention_merge,
     NULL,
     1,
     LIST(merge_shapes),
     LIST(plain),
     {RESULT("o", INOUT, GX_F32, merge_o, few), RESULT("lse", INOUT, GX_F32, merge_lse, few), INPUT("o2", ACT, merge_o),
      INPUT("lse2", GX_F32, merge_lse)}},
    {SLOT(attention_backward),
     prepare_attention_backward,
     attention_backward_floor,
     0,
     LIST(attention_shapes),
     LIST(plain),
     {ROUNDED("dq", OUT, ACT, attention_q, attention_backward_depth, GATE_ATTENTION),
      ROUNDED("dk", OUT, ACT, attention_kv, attention_backward_depth, GATE_ATTENTION),
      ROUNDED("dv", OUT, ACT, attention_kv, attention_backward_depth, GATE_ATTENTION), INPUT("do", ACT, attention_o),
      INPUT("o", ACT, attention_o), INPUT("lse", GX_F32, attention_lse), INPUT("q", ACT, attention_q),
      INPUT("k", ACT, attention_kv), INPUT("v", ACT, attention_kv), INPUT("documents", GX_I32, attention_documents)}},
    {CALLED("attention_backward_with_bias", attention_backward, call_attention_backward_with_bias),
     prepare_attention_backward,
     attention_backward_floor,
     0,
     LIST(bias_shapes),
     LIST(dbias_variants),
     {ROUNDED("dq", OUT, ACT, attention_q, attention_backward_depth, GATE_ATTENTION),
      ROUNDED("dk", OUT, ACT, attention_kv, attention_backward_depth, GATE_ATTENTION),
      ROUNDED("dv", OUT, ACT, attention_kv, attention_backward_depth, GATE_ATTENTION), INPUT("do", ACT, attention_o),
      INPUT("o", ACT, attention_o), INPUT("lse", GX_F32, attention_lse), INPUT("q", ACT, attention_q),
      INPUT("k", ACT, attention_kv), INPUT("v", ACT, attention_kv), INPUT("documents", GX_I32, attention_documents),
      INPUT("bias", ACT, attention_bias), RESULT("dbias", OUT, GX_F32, attention_bias, dbias_depth)}},
    {CALLED("attention_backward_rotated", attention_backward, call_attention_backward_rotated),
     prepare_attention_backward_rotated,
     attention_backward_floor,
     0,
     LIST(rotated_shapes),
     LIST(plain),
     {ROUNDED("dq", OUT, ACT, attention_q, attention_backward_depth, GATE_ATTENTION),
      ROUNDED("dk", OUT, ACT, attention_kv, attention_backward_depth, GATE_ATTENTION),
      ROUNDED("dv", OUT, ACT, attention_kv, attention_backward_depth, GATE_ATTENTION), INPUT("do", ACT, attention_o),
      INPUT("o", ACT, attention_o), INPUT("lse", GX_F32, attention_lse), INPUT("q", ACT, attention_q),
      INPUT("k", ACT, attention_kv), INPUT("v", ACT, attention_kv), INPUT("documents", GX_I32, attention_documents),
      INPUT("cosine", GX_F32, rotated_table), INPUT("sine", GX_F32, rotated_table)}},
    {SLOT(swiglu_forward),
     prepare_swiglu_forward,
     NULL,
     1,
     LIST(swiglu_shapes),
     LIST(plain),
     {RESULT("y", OUT, ACT, d01, few), INPUT("gate|up", ACT, twice_d01)}},
    {SLOT(swiglu_backward),
     prepare_swiglu_backward,
     swiglu_floor,
     1,
     LIST(swiglu_shapes),
     LIST(swiglu_backward_variants),
     {RESULT("dgate|dup", OUT, ACT, twice_d01, few), RESULT("y", OUT, ACT, d01, few), INPUT("dy", ACT, d01),
      INPUT("gate|up", ACT, twice_d01)}},
    {SLOT(cross_entropy),
     prepare_cross_entropy,
     loss_floor,
     1,
     LIST(cross_entropy_shapes),
     LIST(cross_entropy_variants),
     {ZEROS("losses", OUT, GX_F32, d0, sum_d1), ZEROS("dlogits", OUT, ACT, d01, sum_d1), INPUT("logits", ACT, d01),
      INPUT("labels", GX_I32, d0), INPUT("weights", GX_F32, d0), INPUT("count", GX_I64, one)}},
    {SLOT(cross_entropy_maximum),
     NULL,
     NULL,
     1,
     LIST(part_shapes),
     LIST(plain),
     {EXACT("maximum", OUT, GX_F32, d0), INPUT("logits", ACT, d01)}},
    {SLOT(cross_entropy_sums),
     prepare_sums,
     NULL,
     1,
     LIST(part_shapes),
     LIST(dlogits_variants),
     {ZEROS("sums", OUT, GX_F32, sums_of, sum_d1), RESULT("exps", OUT, ACT, d01, few), INPUT("logits", ACT, d01),
      INPUT("maximum", GX_F32, d0), INPUT("labels", GX_I32, d0)}},
    {SLOT(cross_entropy_finish),
     prepare_finish,
     loss_floor,
     1,
     LIST(part_shapes),
     LIST(finish_variants),
     {ZEROS("losses", OUT, GX_F32, d0, few), ZEROS("dlogits", OUT, ACT, d01, few), INPUT("exps", ACT, d01),
      INPUT("sums", GX_F32, sums_of), INPUT("labels", GX_I32, d0), INPUT("weights", GX_F32, d0),
      INPUT("count", GX_I64, one)}},
    {SLOT(clip), prepare_clip, NULL, 1, LIST(clip_shapes), LIST(plain), {INPUT(NULL, 0, NULL)}},
    {SLOT(adamw),
     prepare_adamw,
     NULL,
     1,
     LIST(optimizer_shapes),
     LIST(adamw_variants),
     {RESULT("w", INOUT, GX_F32, d0, few), RESULT("m", INOUT, GX_F32, d0, few), RESULT("v", INOUT, GX_F32, d0, few),
      RESULT("copy", OUT, ACT, d0, few), INPUT("grad", GX_F32, d0)}},
    {SLOT(sgd),
     prepare_sgd,
     NULL,
     1,
     LIST(optimizer_shapes),
     LIST(sgd_variants),
     {RESULT("w", INOUT, GX_F32, d0, few), RESULT("momentum", INOUT, GX_F32, d0, few),
      RESULT("copy", OUT, ACT, d0, few), INPUT("grad", GX_F32, d0)}},
    {SLOT(layer_norm_forward),
     prepare_layer_norm,
     layer_norm_floor,
     1,
     LIST(layer_norm_shapes),
     LIST(layer_norm_variants),
     {RESULT("y", OUT, ACT, d01, sum_d1), RESULT("mean", OUT, GX_F32, d0, sum_d1),
      RESULT("rstd", OUT, GX_F32, d0, sum_d1), INPUT("x", ACT, d01), INPUT("w", ACT, d1), INPUT("b", ACT, d1)}},
    {SLOT(layer_norm_backward),
     prepare_layer_norm_backward,
     layer_norm_backward_floor,
     1,
     LIST(layer_norm_shapes),
     LIST(layer_norm_backward_variants),
     {RESULT("dx", OUT, ACT, d01, sum_d1), RESULT("dw", ACCUMULATED, GX_F32, d1, sum_d0),
      RESULT("db", ACCUMULATED, GX_F32, d1, sum_d0), INPUT("dy", ACT, d01), INPUT("x", ACT, d01),
      INPUT("mean", GX_F32, d0), INPUT("rstd", GX_F32, d0), INPUT("w", ACT, d1)}},
    {SLOT(dropout),
     prepare_dropout,
     NULL,
     1,
     LIST(dropout_shapes),
     LIST(dropout_variants), // one product: exact
     {EXACT("y", OUT, ACT, d01), INPUT("x", ACT, d01), INPUT("rows", GX_I32, d0)}},
    {SLOT(residual_forward),
     prepare_residual,
     residual_floor,
     1,
     LIST(residual_shapes),
     LIST(residual_variants), // the sum is rounded before its norm is taken
     {RESULT("y", OUT, ACT, d01, sum_d1), RESULT("sum", OUT, ACT, d01, few),
      ROUNDED("mean", OUT, GX_F32, d0, sum_d1, GATE_ROUNDING), ROUNDED("rstd", OUT, GX_F32, d0, sum_d1, GATE_ROUNDING),
      INPUT("x", ACT, d01), INPUT("out", ACT, d01), INPUT("bias", ACT, d1), INPUT("w", ACT, d1), INPUT("b", ACT, d1),
      INPUT("rows", GX_I32, d0)}},
    {SLOT(residual_backward),
     prepare_residual_backward,
     residual_backward_floor,
     1,
     LIST(residual_shapes),
     LIST(residual_backward_variants),
     {RESULT("dx", OUT, ACT, d01, sum_d1), ZEROS("dout", OUT, ACT, d01, sum_d1),
      RESULT("dbias", ACCUMULATED, GX_F32, d1, sum_d01), RESULT("dw", ACCUMULATED, GX_F32, d1, sum_d0),
      RESULT("db", ACCUMULATED, GX_F32, d1, sum_d0), INPUT("dy", ACT, d01), INPUT("sum", ACT, d01),
      INPUT("mean", GX_F32, d0), INPUT("rstd", GX_F32, d0), INPUT("w", ACT, d1), INPUT("rows", GX_I32, d0)}},
    {CALLED("residual_backward_undropped", residual_backward, call_residual_backward),
     prepare_residual_backward,
     residual_backward_floor,
     1,
     LIST(undropped_shapes),
     LIST(undropped_variants), // dout is dx
     {RESULT("dx", OUT, ACT, d01, sum_d1), RESULT("dout", OUT, ACT, d01, sum_d1),
      RESULT("dbias", ACCUMULATED, GX_F32, d1, sum_d01), RESULT("dw", ACCUMULATED, GX_F32, d1, sum_d0),
      RESULT("db", ACCUMULATED, GX_F32, d1, sum_d0), INPUT("dy", ACT, d01), INPUT("sum", ACT, d01),
      INPUT("mean", GX_F32, d0), INPUT("rstd", GX_F32, d0), INPUT("w", ACT, d1), INPUT("rows", GX_I32, d0)}},
    {SLOT(pick_rows),
     prepare_rows,
     NULL,
     1,
     LIST(rows_shapes),
     LIST(plain),
     {EXACT("y", OUT, ACT, d01), INPUT("x", ACT, rows_of_x), INPUT("rows", GX_I32, d0)}},
    {SLOT(add_rows),
     prepare_rows,
     NULL,
     1,
     LIST(rows_shapes),
     LIST(plain), // one sum: exact
     {EXACT("y", INOUT, ACT, rows_of_x), INPUT("x", ACT, d01), INPUT("rows", GX_I32, d0)}},
    {SLOT(put_pages),
     prepare_put_pages,
     NULL,
     1,
     LIST(put_shapes),
     LIST(plain), // a copy: exact
     {EXACT("y", INOUT, ACT, put_pool), INPUT("x", ACT, put_x), INPUT("pages", GX_I32, put_pages)}},
    {SLOT(mean_rows_forward),
     prepare_parts,
     NULL,
     1,
     LIST(mean_shapes),
     LIST(plain),
     {ZEROS("y", OUT, ACT, mean_y, sum_d0), INPUT("x", ACT, mean_x), INPUT("parts", GX_I32, mean_parts)}},
    {SLOT(mean_rows_backward),
     prepare_parts,
     NULL,
     1,
     LIST(mean_shapes),
     LIST(plain),
     {RESULT("dx", INOUT, ACT, mean_x, few), INPUT("dy", ACT, mean_y), INPUT("parts", GX_I32, mean_parts)}},
    {SLOT(normalize_rows_forward),
     prepare_normalize,
     NULL,
     1,
     LIST(norm_shapes),
     LIST(normalize_variants),
     {ZEROS("y", OUT, ACT, d01, sum_d1), RESULT("norm", OUT, GX_F32, d0, sum_d1), INPUT("x", ACT, d01)}},
    {SLOT(normalize_rows_backward),
     prepare_normalize_backward,
     normalize_backward_floor,
     1,
     LIST(norm_shapes),
     LIST(normalize_backward_variants),
     {RESULT("dx", OUT, ACT, d01, sum_d1), INPUT("dy", ACT, d01), INPUT("y", ACT, d01), INPUT("norm", GX_F32, d0)}},
    {SLOT(gelu_forward),
     prepare_gelu,
     NULL,
     1,
     LIST(gelu_shapes),
     LIST(gelu_variants),
     {RESULT("y", OUT, ACT, d01, few), INPUT("x", ACT, d01), INPUT("bias", ACT, d1)}},
    {SLOT(gelu_backward),
     prepare_gelu_backward,
     NULL,
     1,
     LIST(gelu_shapes),
     LIST(gelu_backward_variants),
     {RESULT("dx", OUT, ACT, d01, few), RESULT("y", OUT, ACT, d01, few), INPUT("dy", ACT, d01), INPUT("x", ACT, d01),
      INPUT("bias", ACT, d1)}},
    {SLOT(geglu_forward),
     prepare_swiglu_forward,
     NULL,
     1,
     LIST(geglu_shapes),
     LIST(plain),
     {RESULT("y", OUT, ACT, d01, few), INPUT("gate|up", ACT, twice_d01)}},
    {SLOT(geglu_backward),
     prepare_swiglu_backward,
     geglu_floor,
     1,
     LIST(geglu_shapes),
     LIST(swiglu_backward_variants),
     {RESULT("dgate|dup", OUT, ACT, twice_d01, few), RESULT("y", OUT, ACT, d01, few), INPUT("dy", ACT, d01),
      INPUT("gate|up", ACT, twice_d01)}},
    {SLOT(relu_forward), NULL, NULL, 1, FLAT, LIST(in_place), {EXACT("y", OUT, ACT, d0), INPUT("x", ACT, d0)}},
    {SLOT(relu_backward),
     NULL,
     NULL,
     1,
     FLAT,
     LIST(relu_backward_variants),
     {EXACT("dx", OUT, ACT, d0), EXACT("y", OUT, ACT, d0), INPUT("dy", ACT, d0), INPUT("x", ACT, d0)}},
    {SLOT(tanh_forward), NULL, NULL, 1, FLAT, LIST(in_place), {RESULT("y", OUT, ACT, d0, few), INPUT("x", ACT, d0)}},
    {SLOT(tanh_backward),
     NULL,
     NULL,
     1,
     FLAT,
     LIST(in_place),
     {RESULT("dx", OUT, ACT, d0, few), INPUT("dy", ACT, d0), INPUT("y", ACT, d0)}},
    {SLOT(gate_forward),
     NULL,
     NULL,
     1,
     FLAT,
     LIST(add_variants),
     {RESULT("y", OUT, ACT, d0, few), INPUT("a", ACT, d0), INPUT("b", ACT, d0), INPUT("gate", ACT, one)}},
    {SLOT(gate_backward),
     NULL,
     gate_floor,
     1,
     FLAT,
     LIST(gate_backward_variants),
     {RESULT("da", OUT, ACT, d0, few), RESULT("db", OUT, ACT, d0, few),
      RESULT("dgate", ACCUMULATED, GX_F32, one, sum_d0), INPUT("dy", ACT, d0), INPUT("a", ACT, d0), INPUT("b", ACT, d0),
      INPUT("gate", ACT, one)}},
    {SLOT(scale_columns_forward),
     prepare_columns,
     NULL,
     1,
     LIST(columns_shapes),
     LIST(in_place),
     {RESULT("y", OUT, ACT, columns_elements, few), INPUT("x", ACT, columns_elements), INPUT("s", ACT, d1)}},
    {SLOT(scale_columns_backward),
     prepare_columns_backward,
     columns_floor,
     1,
     LIST(columns_shapes),
     LIST(columns_backward_variants),
     {RESULT("dx", OUT, ACT, columns_elements, few), RESULT("ds", ACCUMULATED, GX_F32, d1, sum_d0),
      RESULT("db", ACCUMULATED, GX_F32, d1, sum_d0), INPUT("dy", ACT, columns_elements),
      INPUT("x", ACT, columns_elements), INPUT("s", ACT, d1)}},
    {SLOT(squared_error),
     prepare_targets,
     targets_floor,
     1,
     LIST(target_shapes),
     LIST(target_variants),
     {RESULT("losses", OUT, GX_F32, d0, sum_d1), RESULT("dlogits", OUT, ACT, d01, few), INPUT("logits", ACT, d01),
      INPUT("targets", GX_F32, d01), INPUT("count", GX_I64, one)}},
    {SLOT(binary_cross_entropy),
     prepare_targets,
     targets_floor,
     1,
     LIST(target_shapes),
     LIST(target_variants),
     {RESULT("losses", OUT, GX_F32, d0, sum_d1), RESULT("dlogits", OUT, ACT, d01, few), INPUT("logits", ACT, d01),
      INPUT("targets", GX_F32, d01), INPUT("count", GX_I64, one)}},
};

static const Op *op_named(const char *name)
{
    for (int i = 0; i < COUNT(ops); i++)
        if (!strcmp(ops[i].name, name)) return &ops[i];
    return NULL;
}
static int is_buffer(const Op *op, int i) { return i < MAX_BUFFERS && op->buffer[i].elements; }
static int is_result(const Case *c, int i) { return c->op->buffer[i].role != IN && !(c->variant->without >> i & 1); }
static int is_read(const Case *c, int i)
{
    const Role role = c->op->buffer[i].role;
    return role == IN || role == INOUT || (role == ACCUMULATED && c->variant->accumulate);
}

// ---- devices -------------------------------------------------------------------------------------------------------

static GxStatus heap_open(GxContext *g, GxArena *a, int64_t bytes)
{
    void *p = NULL;
    memset(a, 0, sizeof *a);
    if (posix_memalign(&p, GX_ALIGN, (size_t)gx_max(bytes, 1)))
        return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for %ld bytes", (long)bytes);
    a->base = (char *)p;
    a->capacity = bytes;
    return GX_OK;
}
static void heap_close(GxContext *g, GxArena *a)
{
    (void)g;
    free(a->base);
    memset(a, 0, sizeof *a);
}

enum { CPU, CUDA, DEVICES, FIRST_DEVICE = ON_EMULATOR ? CUDA : CPU };
static int device_open(GxDevice *device, int which) // 0: it is not compiled in
{
    if (which == CPU) {
        *device = *gx_device_cpu();
        device->quantized_tile = 1; // small matrices have several
        device->arena_open = heap_open;
        device->arena_close = heap_close;
        return 1;
    }
#ifdef GX_WITH_CUDA
    *device = *gx_device_cuda();
    device->quantized_tile = 1;
    return 1;
#else
    return 0;
#endif
}

typedef struct {
    GxArena arena;
    char *before, *after; // the host's images of all its bytes
    int64_t shift, used;  // bytes in front of the buffer, and of it
    int64_t bytes;
} Memory; // of one buffer: what is in front of it, the buffer, the guard

static void memory_open(GxContext *g, Memory *m, int64_t shift, int64_t used)
{
    m->shift = shift, m->used = used, m->bytes = shift + used + GUARD;
    m->before = (char *)take(m->bytes);
    m->after = (char *)take(m->bytes);
    memset(m->before, UNTOUCHED, (size_t)m->bytes);
    memset(m->after, 0, (size_t)m->bytes);
    g->device->arena_open(g, &m->arena, m->bytes);
}
static char *memory_at(const Memory *m) { return m->arena.base + m->shift; }
static void memory_send(GxContext *g, Memory *m) { gx_to_device(g, m->arena.base, m->before, m->bytes); }

static void memory_fetch(GxContext *g, Memory *m, const char *what, int is_written)
{
    gx_to_host(g, m->after, m->arena.base, m->bytes);
    if (gx_failed(g)) return;
    const int64_t end = m->shift + m->used;
    CHECK(!memcmp(m->before, m->after, (size_t)m->shift), "%s: something in front of it was written", what);
    CHECK(!memcmp(m->before + end, m->after + end, GUARD), "%s: something behind it was written", what);
    CHECK(is_written || !memcmp(m->before, m->after, (size_t)m->bytes), "%s is only read, but was changed", what);
}
static void memory_close(GxContext *g, Memory *m)
{
    if (m->arena.base) g->device->arena_close(g, &m->arena);
    free(m->before), free(m->after);
}

// ---- a call --------------------------------------------------------------------------------------------------------

typedef struct {
    GxContext g;
    GxDevice none;
    Memory buffer[MAX_BUFFERS], step, scratch;
    void *pointer[MAX_BUFFERS];
    int place[MAX_BUFFERS]; // the buffer in whose memory it lies
    GxArena arena;
} Bench;

static void bench_buffer(Bench *b, const Case *c, int i, GxDtype type, int shift)
{
    const Buffer *s = &c->op->buffer[i];
    const GxDtype stored = stored_type(s, type);
    Memory *m = &b->buffer[i];
    if (c->variant->without >> i & 1 || b->place[i] != i) return;
    memory_open(&b->g, m, shift * gx_dtype_size(stored), s->elements(c->shape) * gx_dtype_size(stored));
    if (is_read(c, i))
        image_to_storage(m->before + m->shift, stored, c->value[i], image_type(s), s->elements(c->shape));
    memory_send(&b->g, m);
}

// The scratch of the same call on the device `none`, exactly.
static void bench_scratch(Bench *b, const Case *c, GxDtype type)
{
    GxContext plan = b->g;
    GxArena dry;
    gx_arena_open_dry(&dry);
    b->none = gx_device_none(b->g.device);
    plan.device = &b->none;
    plan.arena = &dry;
    c->op->call(&plan, b->pointer, c->shape, type, c->variant->accumulate);
    memory_open(&b->g, &b->scratch, 0, dry.peak);
    memory_send(&b->g, &b->scratch);
    b->arena = b->scratch.arena;
    b->arena.capacity = dry.peak;
    b->g.arena = &b->arena;
}

static int with_tf32; // of the next context
static void bench_open(Bench *b, const Case *c, const GxDevice *device, GxDtype type, int threads, int shift,
                       int in_place)
{
    memset(b, 0, sizeof *b);
    b->g.device = device;
    b->g.threads = threads, b->g.tf32 = with_tf32, gx_cpu_small = 0;
    gx_device_open(&b->g);
    for (int i = 0; is_buffer(c->op, i); i++) b->place[i] = i;
    for (int k = 0; in_place && k < 2; k++)
        if (c->variant->same[k][0] != c->variant->same[k][1]) b->place[c->variant->same[k][0]] = c->variant->same[k][1];
    for (int i = 0; is_buffer(c->op, i); i++) bench_buffer(b, c, i, type, shift);
    for (int i = 0; is_buffer(c->op, i); i++)
        b->pointer[i] = c->variant->without >> i & 1 ? NULL : memory_at(&b->buffer[b->place[i]]);
    memory_open(&b->g, &b->step, 0, sizeof c->step);
    memcpy(b->step.before, &c->step, sizeof c->step);
    memory_send(&b->g, &b->step);
    b->g.clipped = b->g.step = (GxStep *)b->step.arena.base;
    if (!gx_failed(&b->g)) bench_scratch(b, c, type);
}

static void bench_fetch(Bench *b, const Case *c, GxDtype type, Results *r, const char *run)
{
    char what[200];
    int written[MAX_BUFFERS] = {0};
    for (int i = 0; is_buffer(c->op, i); i++) written[b->place[i]] |= c->op->buffer[i].role != IN;
    for (int i = 0; is_buffer(c->op, i); i++) {
        snprintf(what, sizeof what, "%s: %s", run, c->op->buffer[i].name);
        if (b->buffer[i].arena.base) memory_fetch(&b->g, &b->buffer[i], what, written[i]);
    }
    snprintf(what, sizeof what, "%s: scratch", run);
    memory_fetch(&b->g, &b->scratch, what, 1);
    snprintf(what, sizeof what, "%s: step", run);
    memory_fetch(&b->g, &b->step, what, 1);
    for (int i = 0; is_buffer(c->op, i); i++) {
        const Buffer *s = &c->op->buffer[i];
        const Memory *m = &b->buffer[b->place[i]];
        if (!is_result(c, i)) continue;
        r->value[i] = take(image_bytes(s, c->shape));
        storage_to_image(r->value[i], image_type(s), m->after + m->shift, stored_type(s, type), s->elements(c->shape));
    }
    memcpy(&r->step, b->step.after, sizeof r->step);
}

static void bench_close(Bench *b, const Case *c)
{
    for (int i = 0; is_buffer(c->op, i); i++) memory_close(&b->g, &b->buffer[i]);
    memory_close(&b->g, &b->step);
    memory_close(&b->g, &b->scratch);
    gx_device_close(&b->g);
}

static Results run_once(const Case *c, const GxDevice *device, GxDtype type, int threads, int shift, int in_place,
                        const char *what)
{
    Bench b;
    Results r;
    memset(&r, 0, sizeof r);
    bench_open(&b, c, device, type, threads, shift, in_place);
    c->op->call(&b.g, b.pointer, c->shape, type, c->variant->accumulate);
    CHECK(b.arena.used == 0 && b.arena.peak == b.arena.capacity,
          "%s: %ld bytes of scratch of the planned %ld, %ld kept", what, (long)b.arena.peak, (long)b.arena.capacity,
          (long)b.arena.used);
    bench_fetch(&b, c, type, &r, what);
    r.error = b.g.error;
    bench_close(&b, c);
    return r;
}
static Results run(const Case *c, const GxDevice *device, GxDtype type, int threads, int shift, int in_place,
                   const char *what)
{
    Results r = run_once(c, device, type, threads, shift, in_place, what);
    CHECK(!gx_error_code(&r.error), "%s: %s", what, r.error.message);
    return r;
}
static void results_close(Results *r)
{
    for (int i = 0; i < MAX_BUFFERS; i++) free(r->value[i]);
}

// ---- cases ---------------------------------------------------------------------------------------------------------

static void round_inputs(Case *c)
{
    for (int i = 0; is_buffer(c->op, i); i++) {
        const int64_t n = c->op->buffer[i].type == ACT ? c->op->buffer[i].elements(c->shape) : 0;
        for (int64_t e = 0; e < n; e++) numbers(c, i)[e] = rounded(numbers(c, i)[e], c->type);
    }
}

// Normal numbers, again and again from another place for each buffer: drawn once, since to draw takes longer than many
// an operation. No row has as many elements, nor a multiple of them.
static float drawn(int64_t i, int number)
{
    enum { NUMBERS = 65521, APART = 5003 };
    static float table[NUMBERS];
    if (table[0] == 0)
        for (int k = 0; k < NUMBERS; k++) table[k] = gx_random_normal(17, (uint64_t)k, 0, 0);
    return table[(i + (int64_t)number * APART) % NUMBERS];
}

static void draw(void *image, GxDtype type, int64_t n, int number)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = drawn(i, number);
        if (type == GX_F32) ((float *)image)[i] = x;
        if (type == GX_F64) ((double *)image)[i] = x;
        if (type == GX_I32) ((int32_t *)image)[i] = 0;
        if (type == GX_I64) ((int64_t *)image)[i] = 0;
        if (type == GX_U8) ((uint8_t *)image)[i] = (uint8_t)(i * 31 + 7);
    }
}

static void case_open(Case *c, GxContext *cpu, const Op *op, const Shape *shape, const Variant *variant, GxDtype type)
{
    memset(c, 0, sizeof *c);
    c->op = op, c->shape = shape, c->variant = variant, c->type = type, c->cpu = cpu;
    for (int i = 0; is_buffer(op, i); i++) {
        c->value[i] = take(image_bytes(&op->buffer[i], shape));
        draw(c->value[i], image_type(&op->buffer[i]), op->buffer[i].elements(shape), i);
    }
    round_inputs(c);
    if (op->prepare) op->prepare(c);
    round_inputs(c);
}
static void case_close(Case *c)
{
    for (int i = 0; i < MAX_BUFFERS; i++) free(c->value[i]);
}

// ---- comparisons ---------------------------------------------------------------------------------------------------

// Elements that are equal whatever the rounding: untouched ones (NaN), infinities; zeros and everything where the table
// says so.
static int must_be_equal(const Buffer *s, double reference)
{
    return !s->depth || isnan(reference) || isinf(reference) || (s->zeros && reference == 0);
}
static int is_equal(const Buffer *s, GxDtype type, double x, double reference)
{
    if (isnan(reference)) return isnan(x);
    if (s->type == ACT) reference = rounded((float)reference, type);
    return x == reference && (s->depth || signbit(x) == signbit(reference));
}

// What two computations may differ by: both err in fp32 (fp64 has its own u), and the type's roundings come on top.
static double allowed(const Case *c, int i, double size, double floor)
{
    const Buffer *s = &c->op->buffer[i];
    const double u = s->type == GX_F64 ? DBL_EPSILON / FLT_EPSILON : 1;
    const double bound = fmin(test_bound(2 * s->depth(c->shape)), 1e-5) * u;
    const double gate = c->type == GX_F32 ? 0 : s->gate > 0 ? s->gate : s->type == ACT ? GATE : 0;
    return gate * size + bound * fmax(size, floor);
}

static void compare_buffer(const Case *c, int i, const void *result, const void *reference, double floor,
                           const char *run)
{
    const Buffer *s = &c->op->buffer[i];
    int64_t wrong = 0;
    const int64_t n = s->elements(c->shape);
    double squares = 0, size = 0;
    for (int64_t e = 0; e < n; e++) {
        const double x = value_at(s, result, e), y = value_at(s, reference, e);
        if (must_be_equal(s, y)) wrong += !is_equal(s, c->type, x, y);
        else squares += (x - y) * (x - y), size += y * y;
    }
    CHECK(wrong == 0, "%s: %s: %ld of %ld values that are exact differ", run, s->name, (long)wrong, (long)n);
    if (size == 0) return;
    const double error = sqrt(squares), bound = allowed(c, i, sqrt(size), floor);
    test_state.worst = fmax(test_state.worst, error / bound);
    CHECK(error <= bound, "%s: %s: off by %.3g of %.3g, allowed is %.3g", run, s->name, error, sqrt(size), bound);
}

static void compare_step(const GxStep *a, const GxStep *b, const char *run)
{
    GxStep x = *a;
    CHECK(fabs((double)a->clip - b->clip) <= test_bound(4) * fabs((double)b->clip), "%s: clip is %.9g, not %.9g", run,
          a->clip, b->clip);
    x.clip = b->clip;
    CHECK(!memcmp(&x, b, sizeof x), "%s: the step has other numbers", run);
}

static void compare(const Case *c, const Results *r, const Results *reference, const char *run)
{
    for (int i = 0; is_buffer(c->op, i); i++)
        if (is_result(c, i))
            compare_buffer(c, i, r->value[i], reference->value[i], c->op->floor ? c->op->floor(c, i) : 0, run);
    compare_step(&r->step, &reference->step, run);
}

static void compare_bits(const Case *c, const Results *a, const Results *b, const char *run, const char *promise)
{
    for (int i = 0; is_buffer(c->op, i); i++)
        if (is_result(c, i))
            CHECK(!memcmp(a->value[i], b->value[i], (size_t)image_bytes(&c->op->buffer[i], c->shape)), "%s: %s: %s",
                  run, c->op->buffer[i].name, promise);
    CHECK(!memcmp(&a->step, &b->step, sizeof a->step), "%s: step: %s", run, promise);
}

// Weights for computing are the optimizer's, rounded once: to the bit.
static void check_copy(const Case *c, const Results *r, const char *run)
{
    for (int i = 0; is_buffer(c->op, i); i++) {
        if (strcmp(c->op->buffer[i].name, "copy") || !is_result(c, i) || c->step.skip) continue;
        const float *w = (const float *)r->value[0], *copy = (const float *)r->value[i];
        int64_t wrong = 0;
        for (int64_t e = 0; e < c->shape->d[0]; e++) wrong += copy[e] != rounded(w[e], c->type);
        CHECK(wrong == 0, "%s: %ld copies are not the rounded weights", run, (long)wrong);
    }
}

// ---- the loop ------------------------------------------------------------------------------------------------------

// Whether the same call is made again, to compare bits: not on the emulator in a fixed order, which cannot give others,
// and not where accesses are looked at, which are the same again.
static int calls_again(void)
{
    const char *order = getenv("GX_EMU_ORDER");
    return !LOOKS_AT_ACCESSES && (!ON_EMULATOR || (order && !strncmp(order, "random", 6)));
}

// Whether a case also has an odd address. Most kernels then are the simplest ones, whatever the shape, and a fifth of
// the cases, with some of each variant, is enough of large shapes, and where accesses are looked at.
static int has_odd_address(const Case *c)
{
    const int64_t shape = c->shape - c->op->shape, variant = c->variant - c->op->variant;
    if (!ON_EMULATOR || test_long()) return 1;
    if (c->shape->once) return 0;
    return !(LOOKS_AT_ACCESSES || c->shape->large) || (shape - variant) % 5 == 0;
}

static int is_case(const Shape *s, int variant, GxDtype type)
{
    if (WITHOUT_LARGE && s->large) return 0;
    if (!ON_EMULATOR || test_long()) return 1;
    return (!s->types || s->types >> type & 1) && (!s->once || variant == 0);
}

// One thread, two, two again; threads are the CPU's, so elsewhere the first is left out.
static void check_on_device(const Case *c, const GxDevice *device, int shift, const Results *reference,
                            const char *what)
{
    const Results none = GX_ZERO;
    Results r[3];
    char name[3][160];
    for (int i = 0; i < 3; i++) {
        r[i] = none;
        if ((i == 0 && !device->shares_host_memory) || (i == 2 && !calls_again())) continue;
        snprintf(name[i], sizeof name[i], "%s, shift %d, threads %d", what, shift, i ? 2 : 1);
        r[i] = run(c, device, c->type, i ? 2 : 1, shift, 1, name[i]);
        if (i < 2) compare(c, &r[i], reference, name[i]);
        if (i < 2) check_copy(c, &r[i], name[i]);
    }
    if (calls_again()) compare_bits(c, &r[1], &r[2], name[1], "the same call gave other bits");
    if (device->shares_host_memory && c->op->any_threads)
        compare_bits(c, &r[0], &r[1], name[1], "two threads give other bits than one");
    for (int i = 0; i < 3; i++) results_close(&r[i]);
}

static void check_case(const Op *op, const Shape *shape, const Variant *variant, const GxDevice *device, GxDtype type,
                       GxContext *cpu)
{
    Case c;
    GxDevice reference_device;
    char what[120];
    case_open(&c, cpu, op, shape, variant, type);
    snprintf(what, sizeof what, "%s %s, shape %d, variant %d", device->name, gx_dtype_name(type),
             (int)(shape - op->shape), (int)(variant - op->variant));
    device_open(&reference_device, CPU);
    Results reference = run(&c, &reference_device, GX_F32, 1, 0, 0, what);
    for (int shift = 0; shift <= has_odd_address(&c); shift++) check_on_device(&c, device, shift, &reference, what);
    results_close(&reference);
    case_close(&c);
}

// The context in which references are computed, and its scratch.
static void cpu_open(GxContext *cpu, GxArena *scratch)
{
    cpu->device = gx_device_cpu();
    cpu->arena = scratch;
    CHECK(gx_arena_open(scratch, 1 << 24, &cpu->error) == GX_OK, "%s", cpu->error.message);
}
static void cpu_close(const GxContext *cpu, GxArena *scratch)
{
    CHECK(!gx_failed(cpu), "%s", cpu->error.message);
    gx_arena_close(scratch);
}

static void check_shapes(const Op *op)
{
    static const GxDtype types[] = {GX_F32, GX_BF16};
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    cpu_open(&cpu, &scratch);
    for (int d = FIRST_DEVICE; d < DEVICES; d++)
        for (int t = 0; t < COUNT(types); t++) {
            GxDevice device;
            if (!device_open(&device, d)) continue;
            for (int s = 0; s < op->shapes; s++)
                for (int v = 0; v < op->variants; v++)
                    if (test_share_if_named(s + v + t) && is_case(&op->shape[s], v, types[t]))
                        check_case(op, &op->shape[s], &op->variant[v], &device, types[t], &cpu);
        }
    cpu_close(&cpu, &scratch);
}

static void check_op(const char *name)
{
    const Op *op = op_named(name);
    if (CHECK(op != NULL, "%s is not in the table", name)) check_shapes(op);
}

TEST(zero_is_the_same_on_every_device) { check_op("zero"); }
TEST(copy_is_the_same_on_every_device) { check_op("copy"); }
TEST(conversion_to_a_type_is_the_same_on_every_device) { check_op("convert_to"); }
TEST(conversion_from_a_type_is_the_same_on_every_device) { check_op("convert_from"); }
TEST(add_is_the_same_on_every_device) { check_op("add"); }
TEST(scale_is_the_same_on_every_device) { check_op("scale"); }
TEST(sum_is_the_same_on_every_device) { check_op("sum"); }
TEST(embedding_forward_is_the_same_on_every_device) { check_op("embedding_forward"); }
TEST(embedding_backward_is_the_same_on_every_device) { check_op("embedding_backward"); }
TEST(rms_norm_forward_is_the_same_on_every_device) { check_op("rms_norm_forward"); }
TEST(add_rms_norm_forward_is_the_same_on_every_device) { check_op("add_rms_norm_forward"); }
TEST(rms_norm_backward_is_the_same_on_every_device) { check_op("rms_norm_backward"); }
TEST(head_norm_forward_is_the_same_on_every_device) { check_op("head_norm_forward"); }
TEST(head_norm_backward_is_the_same_on_every_device) { check_op("head_norm_backward"); }
TEST(layer_norm_forward_is_the_same_on_every_device) { check_op("layer_norm_forward"); }
TEST(layer_norm_backward_is_the_same_on_every_device) { check_op("layer_norm_backward"); }
TEST(dropout_is_the_same_on_every_device) { check_op("dropout"); }
TEST(residual_forward_is_the_same_on_every_device) { check_op("residual_forward"); }
TEST(residual_backward_is_the_same_on_every_device) { check_op("residual_backward"); }
TEST(residual_backward_without_dropout_is_the_same_on_every_device) { check_op("residual_backward_undropped"); }
TEST(pick_rows_is_the_same_on_every_device) { check_op("pick_rows"); }
TEST(add_rows_is_the_same_on_every_device) { check_op("add_rows"); }
TEST(put_pages_is_the_same_on_every_device) { check_op("put_pages"); }
TEST(mean_rows_forward_is_the_same_on_every_device) { check_op("mean_rows_forward"); }
TEST(mean_rows_backward_is_the_same_on_every_device) { check_op("mean_rows_backward"); }
TEST(normalize_rows_forward_is_the_same_on_every_device) { check_op("normalize_rows_forward"); }
TEST(normalize_rows_backward_is_the_same_on_every_device) { check_op("normalize_rows_backward"); }
TEST(gelu_forward_is_the_same_on_every_device) { check_op("gelu_forward"); }
TEST(gelu_backward_is_the_same_on_every_device) { check_op("gelu_backward"); }
TEST(geglu_forward_is_the_same_on_every_device) { check_op("geglu_forward"); }
TEST(geglu_backward_is_the_same_on_every_device) { check_op("geglu_backward"); }
TEST(relu_forward_is_the_same_on_every_device) { check_op("relu_forward"); }
TEST(relu_backward_is_the_same_on_every_device) { check_op("relu_backward"); }
TEST(tanh_forward_is_the_same_on_every_device) { check_op("tanh_forward"); }
TEST(tanh_backward_is_the_same_on_every_device) { check_op("tanh_backward"); }
TEST(gate_forward_is_the_same_on_every_device) { check_op("gate_forward"); }
TEST(gate_backward_is_the_same_on_every_device) { check_op("gate_backward"); }
TEST(scale_columns_forward_is_the_same_on_every_device) { check_op("scale_columns_forward"); }
TEST(scale_columns_backward_is_the_same_on_every_device) { check_op("scale_columns_backward"); }
TEST(squared_error_is_the_same_on_every_device) { check_op("squared_error"); }
TEST(binary_cross_entropy_is_the_same_on_every_device) { check_op("binary_cross_entropy"); }
TEST(linear_forward_is_the_same_on_every_device) { check_op("linear_forward"); }
TEST(linear_backward_input_is_the_same_on_every_device) { check_op("linear_backward_input"); }
TEST(linear_backward_weight_is_the_same_on_every_device) { check_op("linear_backward_weight"); }

// y + x W^T + bias = 1 + (2^-9 + 2^-17) + 2^-9 in one rounding is 1 + 2^-7. A bf16 on the way would lose 2^-17, or 2^-9
// beside the 1; what is left is a tie, which goes to 1. Without the bias the first weight is 2^-8.
static void check_rounded_once(const GxDevice *device, int has_bias, int backward)
{
    static const Op op = {
        "rounded once",
        0,
        NULL,
        NULL,
        NULL,
        0,
        NULL,
        0,
        NULL,
        0,
        {EXACT("y", INOUT, ACT, d0), INPUT("x", ACT, d1), INPUT("w", ACT, d1), INPUT("bias", ACT, d2)}};
    static const Shape shape = {.d = {1, 2, 1}};
    Op of_call = op;
    of_call.call = backward ? call_linear_transposed : call_linear_forward;
    const Variant variant = {1, has_bias ? 0u : 1u << 3, {{0, 0}}};
    const float values[4][2] = {{1, 0}, {1, 1}, {has_bias ? 0x1p-9f : 0x1p-8f, 0x1p-17f}, {0x1p-9f, 0}};
    char what[100];
    snprintf(what, sizeof what, "%s, %s", device->name, backward ? "dx" : has_bias ? "y and a bias" : "y");
    for (int shift = 0; shift < 2; shift++) {
        Case c;
        case_open(&c, NULL, &of_call, &shape, &variant, GX_BF16);
        for (int i = 0; i < 4; i++) memcpy(c.value[i], values[i], (size_t)image_bytes(&op.buffer[i], &shape));
        Results r = run(&c, device, GX_BF16, 1, shift, 0, what);
        CHECK(*(float *)r.value[0] == 1 + 0x1p-7f, "%s, shift %d: 1 became 1 + 2^%.3g", what, shift,
              log2((double)*(float *)r.value[0] - 1));
        results_close(&r);
        case_close(&c);
    }
}
TEST(linear_rounds_what_it_adds_in_bf16_once_on_every_device)
{
    for (int d = FIRST_DEVICE; d < DEVICES; d++)
        for (int i = 0; i < 3; i++) {
            GxDevice device;
            if (device_open(&device, d)) check_rounded_once(&device, i == 0, i == 2);
        }
}
// 1 + 2^-11 has a bit more than TF32: 1, or 1 + 2^-10. In fp32 it is whole, on every device; where TF32 is allowed a
// card may take either, and the emulator rounds.
static float product_of_one(const GxDevice *device, int tf32)
{
    static const Op op = {"tf32",
                          0,
                          call_linear_forward,
                          NULL,
                          NULL,
                          0,
                          NULL,
                          0,
                          NULL,
                          0,
                          {EXACT("y", OUT, ACT, d0), INPUT("x", ACT, d1), INPUT("w", ACT, d1), INPUT("bias", ACT, d2)}};
    static const Shape shape = {.d = {1, 2, 1}};
    static const float values[4][2] = {{0, 0}, {1 + 0x1p-11f, 0}, {1, 0}, {0, 0}};
    const Variant variant = {0, 1u << 3, {{0, 0}}};
    Case c;
    case_open(&c, NULL, &op, &shape, &variant, GX_F32);
    for (int i = 0; i < 4; i++) memcpy(c.value[i], values[i], (size_t)image_bytes(&op.buffer[i], &shape));
    with_tf32 = tf32;
    Results r = run(&c, device, GX_F32, 1, 0, 0, device->name);
    with_tf32 = 0;
    const float y = *(float *)r.value[0];
    results_close(&r);
    case_close(&c);
    return y;
}
TEST(products_of_fp32_take_tf32_on_a_card_where_it_is_allowed)
{
    setenv("GX_EMU_TF32", "1", 1);
    for (int d = FIRST_DEVICE; d < DEVICES; d++) {
        GxDevice device;
        char name[300];
        if (!device_open(&device, d)) continue;
        device.describe(name, sizeof name);
        const float whole = product_of_one(&device, 0), allowed = product_of_one(&device, 1), exact = 1 + 0x1p-11f;
        CHECK(whole == exact, "%s: 1 + 2^-11 became %.9g", name, (double)whole);
        if (strstr(name, "emulat")) CHECK(allowed == 1 + 0x1p-10f, "%s: by TF32 %.9g", name, (double)allowed);
        else
            CHECK(allowed == exact || (d != CPU && fabsf(allowed - exact) == 0x1p-11f), "%s: %.9g", name,
                  (double)allowed);
    }
    unsetenv("GX_EMU_TF32");
}
TEST(dequantize_is_the_same_on_every_device) { check_op("dequantize"); }
TEST(products_with_a_quantised_matrix_are_the_same_on_every_device)
{
    check_op("quantized_linear_forward");
    check_op("quantized_linear_backward_input");
}
TEST(rope_forward_is_the_same_on_every_device) { check_op("rope_forward"); }
TEST(rope_backward_is_the_same_on_every_device) { check_op("rope_backward"); }
TEST(rope_restart_is_the_same_on_every_device)
{
    check_op("rope_restart_forward");
    check_op("rope_restart_backward");
}
TEST(text_positions_is_the_same_on_every_device) { check_op("text_positions"); }
TEST(attention_forward_is_the_same_on_every_device) { check_op("attention_forward"); }
TEST(attention_over_pages_is_the_same_on_every_device) { check_op("attention_over_pages"); }
TEST(attention_with_bias_is_the_same_on_every_device)
{
    check_op("attention_with_bias");
    check_op("attention_over_pages_with_bias");
}
TEST(attention_backward_with_bias_is_the_same_on_every_device) { check_op("attention_backward_with_bias"); }
TEST(attention_merge_is_the_same_on_every_device) { check_op("attention_merge"); }
TEST(attention_backward_is_the_same_on_every_device) { check_op("attention_backward"); }
TEST(attention_backward_that_rotates_back_is_the_same_on_every_device) { check_op("attention_backward_rotated"); }
TEST(swiglu_forward_is_the_same_on_every_device) { check_op("swiglu_forward"); }
TEST(swiglu_backward_is_the_same_on_every_device) { check_op("swiglu_backward"); }
TEST(cross_entropy_is_the_same_on_every_device) { check_op("cross_entropy"); }
TEST(cross_entropy_maximum_is_the_same_on_every_device) { check_op("cross_entropy_maximum"); }
TEST(cross_entropy_sums_is_the_same_on_every_device) { check_op("cross_entropy_sums"); }
TEST(cross_entropy_finish_is_the_same_on_every_device) { check_op("cross_entropy_finish"); }
TEST(square_blocks_is_the_same_on_every_device) { check_op("square_blocks"); }
TEST(add_blocks_is_the_same_on_every_device) { check_op("add_blocks"); }
TEST(clip_is_the_same_on_every_device) { check_op("clip"); }
TEST(adamw_is_the_same_on_every_device) { check_op("adamw"); }
TEST(sgd_is_the_same_on_every_device) { check_op("sgd"); }

// ---- contracts -----------------------------------------------------------------------------------------------------

TEST(the_table_has_every_operation_of_a_device)
{
    for (size_t slot = offsetof(GxDevice, zero); slot < sizeof(GxDevice); slot += sizeof(void (*)(void))) {
        int found = slot == offsetof(GxDevice, attention_scratch); // each of attention's calls asks for it
        for (int i = 0; i < COUNT(ops); i++) found |= ops[i].slot == slot;
        CHECK(found, "function %d of a device is in no row",
              (int)((slot - offsetof(GxDevice, zero)) / sizeof(void (*)(void))));
    }
}

static void check_wrong_label(const char *name, int labels, const GxDevice *device, GxDtype type, GxContext *cpu)
{
    static const int32_t wrong[] = {7, -1, -99, 2147483647, -2147483647 - 1};
    static const Shape shape = {.d = {3, 7, 0, 7, 0}};
    for (int i = 0; i < COUNT(wrong); i++) {
        Case c;
        char expected[64];
        case_open(&c, cpu, op_named(name), &shape, &plain[0], type);
        integers(&c, labels)[1] = wrong[i];
        Results r = run_once(&c, device, type, 2, 0, 0, name);
        snprintf(expected, sizeof expected, "label %ld in row 1", (long)wrong[i]);
        CHECK(gx_error_code(&r.error) == GX_ERR_ARGUMENT && strstr(r.error.message, expected),
              "%s, %s: \"%s\" instead of \"%s\"", device->name, name, r.error.message, expected);
        results_close(&r);
        case_close(&c);
    }
}

TEST(a_wrong_label_is_an_error_on_every_device)
{
    GxContext cpu = GX_ZERO;
    cpu.device = gx_device_cpu();
    for (int d = FIRST_DEVICE; d < DEVICES; d++)
        for (int t = GX_F32; t <= GX_BF16; t++) {
            GxDevice device;
            if (!device_open(&device, d)) continue;
            check_wrong_label("cross_entropy", 3, &device, (GxDtype)t, &cpu);
            check_wrong_label("cross_entropy_sums", 4, &device, (GxDtype)t, &cpu);
        }
}

static void set_value(Case *c, int i, const void *value)
{
    memcpy(c->value[i], value, (size_t)image_bytes(&c->op->buffer[i], c->shape));
}

static void check_steps(const Shape *shape, const GxDevice *device, GxContext *cpu)
{
    static const char *const names[] = {"cross_entropy", "cross_entropy_maximum", "cross_entropy_sums",
                                        "cross_entropy_finish"};
    Case c[4];
    Results r[4];
    for (int i = 0; i < 4; i++) {
        case_open(&c[i], cpu, op_named(names[i]), shape, &plain[0], GX_F32);
        if (i == 1) set_value(&c[1], 1, c[0].value[2]);
        if (i == 2) set_value(&c[2], 2, c[0].value[2]), set_value(&c[2], 3, r[1].value[0]);
        if (i == 3)
            set_value(&c[3], 2, r[2].value[1]), set_value(&c[3], 3, r[2].value[0]), set_value(&c[3], 5, c[0].value[4]);
        r[i] = run(&c[i], device, GX_F32, 2, 0, 0, names[i]);
    }
    for (int i = 0; i < 2; i++)
        CHECK(!memcmp(r[0].value[i], r[3].value[i], (size_t)image_bytes(&c[0].op->buffer[i], shape)),
              "%s, shape %d: %s in steps have other bits than at once", device->name,
              (int)(shape - cross_entropy_shapes), c[0].op->buffer[i].name);
    for (int i = 0; i < 4; i++) results_close(&r[i]), case_close(&c[i]);
}

// In fp32: in bf16 exps are rounded between the steps, where a device that has all of a row may keep them in fp32.
TEST(cross_entropy_in_steps_has_the_bits_of_the_whole_at_once_on_every_device)
{
    GxContext cpu = GX_ZERO;
    cpu.device = gx_device_cpu();
    for (int d = FIRST_DEVICE; d < DEVICES; d++)
        for (int s = 0; s < COUNT(cross_entropy_shapes); s++) {
            GxDevice device;
            if (!(WITHOUT_LARGE && cross_entropy_shapes[s].large) && device_open(&device, d))
                check_steps(&cross_entropy_shapes[s], &device, &cpu);
        }
}

// bf16 has 8 bits: what is rounded once is off by half of the last one.
static double half_a_bit(double x) { return ldexp(1, ilogb(x) - 8); }

static void check_label_gradients(const Op *op, const Shape *shape, const GxDevice *device, GxContext *cpu)
{
    const Variant without_weights = {0, op->buffer[3].type == GX_I32 ? 1u << 4 : 1u << 5, {{0, 0}}};
    const int in_steps = op->buffer[3].type != GX_I32;
    const int64_t R = shape->d[0], V = shape->d[1];
    Case c;
    case_open(&c, cpu, op, shape, &without_weights, GX_BF16);
    Results r = run(&c, device, GX_BF16, 2, 0, 0, op->name);
    for (int64_t i = 0; i < R; i++) {
        const float *x = numbers(&c, 2) + i * V, *sums = numbers(&c, 3);
        const int32_t label = integers(&c, in_steps ? 4 : 3)[i];
        double sum = 0;
        for (int64_t v = 0; v < V; v++) sum += exp((double)x[v] - x[label]);
        const double p = in_steps ? exp((double)sums[R + i]) / sums[i] : 1 / sum, e = (double)shape->smooth,
                     exact = (p - (1 - e) - e / (double)shape->d[3]) / (double)R,
                     got = ((const float *)r.value[1])[i * V + label];
        CHECK(fabs(got - exact) <= half_a_bit(exact) + test_bound(sum_d1(shape)) * p / (double)R,
              "%s, %s: p - 1 of label %d in row %d is %.9g, and rounded once %.9g is expected", device->name, op->name,
              (int)label, (int)i, got * (double)R, exact * (double)R);
    }
    results_close(&r);
    case_close(&c);
}

// Other columns' exps may be rounded on their way. The label's may not: where it is sure, p - 1 cancels, and elsewhere
// a rounding of p would be the second one.
TEST(the_gradient_of_a_label_in_bf16_is_rounded_once_on_every_device)
{
    static const Shape shapes[] = {{.d = {64, 3, 0, 3, 0}}, // the label is, or is not, the largest
                                   {.d = {9, 72, 0, 72, 0}, .sure = 8},
                                   {.d = {9, 72, 0, 72, 0}, .sure = 12},
                                   {.d = {9, 72, 0, 72, 0}, .sure = 4, .smooth = 0.1f}};
    GxContext cpu = GX_ZERO;
    cpu.device = gx_device_cpu();
    for (int d = FIRST_DEVICE; d < DEVICES; d++)
        for (int s = 0; s < COUNT(shapes); s++) {
            GxDevice device;
            if (!device_open(&device, d)) continue;
            check_label_gradients(op_named("cross_entropy"), &shapes[s], &device, &cpu);
            check_label_gradients(op_named("cross_entropy_finish"), &shapes[s], &device, &cpu);
        }
}

// ---- attention: edges of tiles, what is dropped, and what is not touched -------------------------------------------

// Sequences that end in, at and behind the edges of tiles, with no window (0), and windows from a few keys to all.
static void check_edges(const char *name, int n_windows)
{
    static const int64_t lengths[] = {1, 16, 17, 63, 64, 65, 127, 128, 129, 193, 257}, heads[] = {64, 96, 128};
    enum { WINDOWS = 5 };
    Shape shapes[COUNT(lengths) * WINDOWS];
    Op op = *op_named(name);
    op.shape = shapes, op.shapes = 0;
    for (int i = 0; i < COUNT(lengths) * n_windows; i++) {
        const int64_t T = lengths[i / n_windows], windows[WINDOWS] = {0, 7, T - 1, 1, T};
        const Shape s = {.d = {1, 6, 2, heads[i % COUNT(heads)]},
                         .q = RUN1(T, 0),
                         .k = RUN1(T, 0),
                         .causal = 1,
                         .layout = PACKED,
                         .large = T > 65,
                         .sliding_window = windows[i % n_windows]};
        shapes[op.shapes++] = s;
    }
    check_shapes(&op);
}

TEST(attention_at_the_edges_of_tiles_is_the_same_on_every_device) { check_edges("attention_forward", 5); }
TEST(attention_backward_at_the_edges_of_tiles_is_the_same_on_every_device) { check_edges("attention_backward", 4); }

// v and do are the identity: o[i][j] is what is left of query i's probability of key j, dv[j][i] too.
static const Shape dropped_shapes[] = {
    {.d = {2, 3, 3, 64}, .q = RUN1(61, 31), .k = RUN1(62, 3), .dropout = 0.3f, .identity = 1},
    {.d = {1, 2, 2, 128}, .q = RUN1(70, 0), .k = RUN2(30, 50, 97, 81), .causal = 1, .dropout = 0.5f, .identity = 1},
    {.d = {1, 2, 2, 96}, .q = RUN1(90, 2), .k = RUN1(93, 1), .causal = 1, .dropout = 0.2f, .identity = 1},
    {.d = {1, 2, 2, 256}, .q = RUN1(40, 0), .k = RUN1(203, 1), .dropout = 0.1f, .identity = 1, .large = 1},
    {.d = {1, 2, 2, 96},
     .q = RUN1(90, 2),
     .k = RUN1(93, 1),
     .causal = 1,
     .dropout = 0.2f,
     .identity = 1,
     .sliding_window = 35},
    {.d = {1, 2, 2, 160},
     .q = RUN1(90, 2),
     .k = RUN1(93, 1),
     .causal = 1,
     .dropout = 0.2f,
     .identity = 1,
     .sliding_window = 35},
};

static void check_dropped(const Case *c, const float *x, int backward, const char *device)
{
    const GxAttention a = attention_of(c->shape, GX_F32);
    const int64_t Tq = gx_runs_rows(&a.q_runs), Tk = gx_runs_rows(&a.k_runs), h = a.head_dim;
    int64_t wrong = 0, kept = 0;
    for (int64_t n = 0; n < Tq * Tk * a.B * a.H; n++) {
        const int64_t i = n % Tq, j = n / Tq % Tk, b = n / Tq / Tk % a.B, head = n / Tq / Tk / a.B;
        const int expected = oracle_sees(&a, i, j, b) && oracle_keep(&a, &c->step, i, j, b, head) != 0;
        const float left =
            backward ? x[(j * a.B + b) * a.kv_stride + head * h + i] : x[(i * a.B + b) * a.o_stride + head * h + j];
        wrong += (left != 0) != expected;
        kept += expected;
    }
    CHECK(wrong == 0 && kept > 0, "%s, %s, h = %ld, %s: of %ld probabilities %ld are kept; wrong are %ld", device,
          gx_dtype_name(c->type), (long)h, c->op->name, (long)(Tq * Tk * a.B * a.H), (long)kept, (long)wrong);
}

TEST(attention_drops_the_same_probabilities_on_every_device_forward_and_backward)
{
    static const char *const names[] = {"attention_forward", "attention_backward"};
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    cpu_open(&cpu, &scratch);
    for (int n = 0; n < (DEVICES - FIRST_DEVICE) * 4 * COUNT(dropped_shapes); n++) {
        const int backward = n % 2, type = n / 2 % 2 ? GX_BF16 : GX_F32, s = n / 4 % COUNT(dropped_shapes);
        GxDevice device;
        Case c;
        if (WITHOUT_LARGE && dropped_shapes[s].large) continue;
        if (!device_open(&device, FIRST_DEVICE + n / 4 / COUNT(dropped_shapes))) continue;
        case_open(&c, &cpu, op_named(names[backward]), &dropped_shapes[s], &plain[0], (GxDtype)type);
        Results r = run(&c, &device, (GxDtype)type, 2, 0, 0, names[backward]);
        check_dropped(&c, (const float *)r.value[backward ? 2 : 0], backward, device.name);
        results_close(&r);
        case_close(&c);
    }
    cpu_close(&cpu, &scratch);
}

// Three documents and padding of as many rows as a tile: all that is not of document number d is NaN (of padding, all),
// and d's results keep their bits. So nothing of the others is computed with.
static void check_untouched(Case *c, const GxDevice *device, int d, const Results *reference)
{
    enum { ROWS = 64 };
    char what[100];
    const Shape *s = c->shape;
    const int64_t rows = gx_runs_rows(&s->q);
    Case alone = *c;
    snprintf(what, sizeof what, "%s, %s, %s, document %d", device->name, gx_dtype_name(c->type), c->op->name, d);
    for (int i = 0; is_buffer(c->op, i); i++) {
        const Buffer *b = &c->op->buffer[i];
        const int64_t width = b->elements(s) / rows;
        alone.value[i] = take(image_bytes(b, s));
        memcpy(alone.value[i], c->value[i], (size_t)image_bytes(b, s));
        for (int64_t e = 0; b->type != GX_I32 && e < b->elements(s); e++)
            if (e / width / ROWS != d || d == 3) numbers(&alone, i)[e] = NAN;
    }
    Results r = run(&alone, device, c->type, 2, 0, 0, what);
    for (int i = 0; is_buffer(c->op, i); i++) {
        const int64_t n = c->op->buffer[i].elements(s) / (rows / ROWS);
        if (is_result(c, i))
            CHECK(!memcmp((float *)r.value[i] + d * n, (float *)reference->value[i] + d * n, (size_t)n * 4),
                  "%s: %s has other bits", what, c->op->buffer[i].name);
        free(alone.value[i]);
    }
    results_close(&r);
}

TEST(attention_computes_nothing_with_what_no_query_of_a_tile_sees_on_any_device)
{
    static const char *const names[] = {"attention_forward", "attention_backward"};
    static const Shape shapes[] = {
        {.d = {1, 2, 2, 8}, .q = RUN1(256, 0), .k = RUN1(256, 0), .documents = {64, 64, 64}},
        {.d = {1, 2, 2, 8}, .q = RUN1(256, 0), .k = RUN1(256, 0), .causal = 1, .documents = {64, 64, 64}}};
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    cpu_open(&cpu, &scratch);
    for (int n = 0; n < (DEVICES - FIRST_DEVICE) * 8; n++) {
        const int pass = n % 2, type = n / 2 % 2 ? GX_BF16 : GX_F32;
        GxDevice device;
        Case c;
        if (!device_open(&device, FIRST_DEVICE + n / 8)) continue;
        case_open(&c, &cpu, op_named(names[pass]), &shapes[n / 4 % 2], &plain[0], (GxDtype)type);
        Results r = run(&c, &device, (GxDtype)type, 2, 0, 0, names[pass]);
        for (int d = 0; d < 4; d++) check_untouched(&c, &device, d, &r);
        results_close(&r);
        case_close(&c);
    }
    cpu_close(&cpu, &scratch);
}

// Rows of `untouched`, and of those that lie with it, become NaN: keys and values, or queries with all that is theirs.
static void forget_rows(Case *c, const char *untouched, int64_t begin, int64_t end)
{
    static const char *const with[][5] = {{"k", "v", NULL}, {"q", "do", "o", "lse", NULL}};
    const char *const *names = with[!strcmp(untouched, "q")];
    const int64_t rows = gx_runs_rows(strcmp(untouched, "q") ? &c->shape->k : &c->shape->q);
    for (int i = 0; is_buffer(c->op, i); i++)
        for (int n = 0; names[n]; n++) {
            const int64_t elements = c->op->buffer[i].elements(c->shape), width = elements / rows;
            if (strcmp(c->op->buffer[i].name, names[n]) || is_result(c, i)) continue;
            for (int64_t e = begin * width; e < end * width; e++) numbers(c, i)[e] = NAN;
        }
}

// The results of rows [begin, end), if any row of them may be read.
static void check_rows(const Case *c, const Results *r, const Results *reference, const char *result, int64_t begin,
                       int64_t end, const char *device)
{
    const int is_of_keys = !strcmp(result, "dk") || !strcmp(result, "dv");
    for (int i = 0; is_buffer(c->op, i); i++) {
        if (!is_result(c, i) || strcmp(c->op->buffer[i].name, result)) continue;
        const int64_t width =
            c->op->buffer[i].elements(c->shape) / gx_runs_rows(is_of_keys ? &c->shape->k : &c->shape->q);
        CHECK(!memcmp((float *)r->value[i] + begin * width, (float *)reference->value[i] + begin * width,
                      (size_t)((end - begin) * width) * 4),
              "%s, %s, %s, h = %ld: %s of rows %ld to %ld has other bits", device, gx_dtype_name(c->type), c->op->name,
              (long)c->shape->d[3], result, (long)begin, (long)end - 1);
    }
}

// What lies before all windows of a query tile, or behind all that see a tile of keys, is NaN, and results keep their
// bits. With windows of 64, queries from 256 on see keys from 193 on, and keys up to 127 are seen by queries up to 190.
// Nobody's tiles cross a multiple of 64 or, of queries, are of more than 128.
static void check_window_untouched(GxContext *cpu, const GxDevice *device, const char *op, const Shape *s, GxDtype type)
{
    enum { FROM = 256, SEEN = 192, UNTIL = 128, SEEING = 192 };
    const int64_t rows = gx_runs_rows(&s->q);
    const int backward = !strcmp(op, "attention_backward");
    Case c;
    case_open(&c, cpu, op_named(op), s, &plain[0], type);
    const Results whole = run(&c, device, type, 2, 0, 0, op);
    Case before = c, behind = c;
    for (int i = 0; is_buffer(c.op, i); i++) {
        const int64_t bytes = image_bytes(&c.op->buffer[i], s);
        before.value[i] = memcpy(take(bytes), c.value[i], (size_t)bytes);
        behind.value[i] = memcpy(take(bytes), c.value[i], (size_t)bytes);
    }
    forget_rows(&before, "k", 0, SEEN);
    Results r = run(&before, device, type, 2, 0, 0, op);
    check_rows(&c, &r, &whole, backward ? "dq" : "o", FROM, rows, device->name);
    results_close(&r);
    if (backward) {
        forget_rows(&behind, "q", SEEING, rows);
        r = run(&behind, device, type, 2, 0, 0, op);
        check_rows(&c, &r, &whole, "dk", 0, UNTIL, device->name);
        check_rows(&c, &r, &whole, "dv", 0, UNTIL, device->name);
        results_close(&r);
    }
    results_close((Results *)&whole);
    for (int i = 0; is_buffer(c.op, i); i++) free(before.value[i]), free(behind.value[i]);
    case_close(&c);
}

TEST(attention_computes_nothing_with_what_is_in_no_window_of_a_tile_on_any_device)
{
    static const char *const names[] = {"attention_forward", "attention_backward"};
    static const Shape shapes[] = {
        {.d = {1, 2, 2, 8}, .q = RUN1(320, 0), .k = RUN1(320, 0), .causal = 1, .sliding_window = 64},
        {.d = {1, 2, 1, 128}, .q = RUN1(320, 0), .k = RUN1(320, 0), .causal = 1, .sliding_window = 64, .large = 1},
        {.d = {1, 1, 1, 160}, .q = RUN1(320, 0), .k = RUN1(320, 0), .causal = 1, .sliding_window = 64, .large = 1}};
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    cpu_open(&cpu, &scratch);
    for (int n = 0; n < (DEVICES - FIRST_DEVICE) * 4 * COUNT(shapes); n++) {
        GxDevice device;
        const int s = n / 4 % COUNT(shapes);
        if (WITHOUT_LARGE && shapes[s].large) continue;
        if (!device_open(&device, FIRST_DEVICE + n / 4 / COUNT(shapes))) continue;
        check_window_untouched(&cpu, &device, names[n % 2], &shapes[s], n / 2 % 2 ? GX_BF16 : GX_F32);
    }
    cpu_close(&cpu, &scratch);
}

// A run of keys that no query sees, or of queries that see no key, is NaN, and its rows lie behind those of one that
// ends within a tile.
static void check_run_untouched(GxContext *cpu, const GxDevice *device, const char *op, const Shape *s, GxDtype type)
{
    const int of_queries = s->q.n == 2;
    const GxRuns *runs = of_queries ? &s->q : &s->k;
    Case c;
    case_open(&c, cpu, op_named(op), s, &plain[0], type);
    Results whole = run(&c, device, type, 2, 0, 0, op);
    forget_rows(&c, of_queries ? "q" : "k", runs->run[1].row, gx_runs_rows(runs));
    Results r = run(&c, device, type, 2, 0, 0, op);
    const int64_t queries = of_queries ? s->q.run[1].row : gx_runs_rows(&s->q),
                  keys = of_queries ? gx_runs_rows(&s->k) : s->k.run[1].row;
    check_rows(&c, &r, &whole, "o", 0, queries, device->name); // those that the operation has
    check_rows(&c, &r, &whole, "dq", 0, queries, device->name);
    check_rows(&c, &r, &whole, "dk", 0, keys, device->name);
    check_rows(&c, &r, &whole, "dv", 0, keys, device->name);
    results_close(&whole), results_close(&r);
    case_close(&c);
}

TEST(attention_computes_nothing_with_a_run_that_sees_or_is_seen_by_nobody_on_any_device)
{
    static const char *const names[] = {"attention_forward", "attention_backward"};
    static const Shape shapes[] = {
        {.d = {1, 2, 1, 64}, .q = RUN1(64, 0), .k = RUN2(40, 0, 64, 100), .causal = 1},
        {.d = {2, 2, 2, 96}, .q = RUN1(40, 10), .k = RUN2(40, 10, 64, 100), .causal = 1, .layout = PACKED},
        {.d = {1, 2, 1, 64}, .q = RUN2(40, 100, 64, 0), .k = RUN1(64, 100), .causal = 1}};
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    cpu_open(&cpu, &scratch);
    for (int n = 0; n < (DEVICES - FIRST_DEVICE) * 4 * COUNT(shapes); n++) {
        GxDevice device;
        if (!device_open(&device, FIRST_DEVICE + n / 4 / COUNT(shapes))) continue;
        check_run_untouched(&cpu, &device, names[n % 2], &shapes[n / 4 % COUNT(shapes)], n / 2 % 2 ? GX_BF16 : GX_F32);
    }
    cpu_close(&cpu, &scratch);
}

// One number of head 0 of q, k or v is the NaN that a card makes itself, all of whose bits but the sign's are set: in o
// that row's head is NaN, or all rows' where it is a key's, or one column of all rows; all else keeps its bits.
static void check_nan(GxContext *cpu, const GxDevice *device, const Shape *s, const char *input, GxDtype type)
{
    enum { O = 0, ROW = 3, COLUMN = 5 };
    Case c;
    case_open(&c, cpu, op_named("attention_forward"), s, &plain[0], type);
    const GxAttention a = attention_of(s, GX_F32);
    Results whole = run(&c, device, type, 2, 0, 0, input);
    for (int i = 0; is_buffer(c.op, i); i++) {
        static const uint32_t nan = 0x7fffffff;
        if (strcmp(c.op->buffer[i].name, input)) continue;
        memcpy(numbers(&c, i) + ROW * (*input == 'q' ? a.q_stride : a.kv_stride) + COLUMN, &nan, sizeof nan);
    }
    Results r = run(&c, device, type, 2, 0, 0, input);
    for (int64_t e = 0; e < gx_runs_rows(&s->q) * a.o_stride; e++) {
        const int64_t row = e / a.o_stride, column = e % a.o_stride;
        const int expected = *input == 'v' ? column == COLUMN : column < a.head_dim && (*input == 'k' || row == ROW);
        const float *x = (const float *)r.value[O] + e, *before = (const float *)whole.value[O] + e;
        CHECK(expected ? *x != *x : !memcmp(x, before, sizeof *x),
              "%s, %s, h = %ld, NaN in %s: o[%ld,%ld] is %g, was %g", device->name, gx_dtype_name(type),
              (long)a.head_dim, input, (long)row, (long)column, *x, *before);
    }
    results_close(&whole), results_close(&r);
    case_close(&c);
}

TEST(attention_hands_a_nan_on_on_any_device)
{
    static const char *const inputs[] = {"q", "k", "v"};
    static const Shape shapes[] = {{.d = {1, 2, 2, 64}, .q = RUN1(20, 0), .k = RUN1(20, 0), .layout = PACKED},
                                   {.d = {1, 2, 2, 160}, .q = RUN1(20, 0), .k = RUN1(20, 0)}};
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    cpu_open(&cpu, &scratch);
    for (int n = 0; n < (DEVICES - FIRST_DEVICE) * 12; n++) {
        GxDevice device;
        if (!device_open(&device, FIRST_DEVICE + n / 12)) continue;
        check_nan(&cpu, &device, &shapes[n % 2], inputs[n / 2 % 3], n / 6 % 2 ? GX_BF16 : GX_F32);
    }
    cpu_close(&cpu, &scratch);
}

// Sums of thousands of terms, over keys and over queries, whose roundings must not all go to one side: tensor cores cut
// off what they add up. Not where accesses are looked at, which are those of shorter ones.
TEST(attention_in_fp32_adds_up_thousands_of_terms_on_every_device)
{
    static const char *const names[] = {"attention_forward", "attention_backward"};
    static const Shape shapes[] = {{.d = {1, 1, 1, 64}, .q = RUN1(4, 0), .k = RUN1(4096, 0)},
                                   {.d = {1, 1, 1, 64}, .q = RUN1(2048, 0), .k = RUN1(4, 0)}};
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    cpu_open(&cpu, &scratch);
    for (int n = 0; n < (DEVICES - FIRST_DEVICE) * 4 && !LOOKS_AT_ACCESSES; n++) {
        GxDevice device;
        Case c;
        if (!device_open(&device, FIRST_DEVICE + n / 4)) continue;
        case_open(&c, &cpu, op_named(names[n % 2]), &shapes[n / 2 % 2], &plain[0], GX_F32);
        Results reference = run(&c, gx_device_cpu(), GX_F32, 1, 0, 0, names[n % 2]);
        Results r = run(&c, &device, GX_F32, 2, 0, 1, names[n % 2]);
        compare(&c, &r, &reference, names[n % 2]);
        results_close(&reference), results_close(&r);
        case_close(&c);
    }
    cpu_close(&cpu, &scratch);
}

// ---- attention in bf16, beside PyTorch's ---------------------------------------------------------------------------
// From inputs that bf16 holds exactly, forward and backward, o and lse handed from one to the other as in training. The
// truth is the oracle's, in double precision; the file has a part of PyTorch's own in float64, which must be the same,
// and how far the farthest number of a plain computation in bf16 tensors is off in PyTorch (dev/ref/make_refs.py). Ours
// may be off by twice that.

enum { ATTENTION_O, ATTENTION_DQ, ATTENTION_DK, ATTENTION_DV, ATTENTION_RESULTS };
static const char *const attention_results[ATTENTION_RESULTS] = {"o", "dq", "dk", "dv"};
static const struct {
    const char *name;
    Shape shape;
} attention_references[] = {
    {"odd", {.d = {2, 4, 2, 14}, .q = RUN1(37, 0), .k = RUN1(37, 0), .causal = 1}},
    {"odd_full", {.d = {1, 3, 1, 14}, .q = RUN1(37, 0), .k = RUN1(130, 0)}},
    {"64", {.d = {1, 2, 2, 64}, .q = RUN1(37, 0), .k = RUN1(37, 0), .causal = 1}},
    {"64_gqa", {.d = {1, 2, 1, 64}, .q = RUN1(130, 0), .k = RUN1(130, 0), .causal = 1}},
    {"128_gqa_full", {.d = {1, 2, 1, 128}, .q = RUN1(37, 0), .k = RUN1(37, 0)}},
    {"128", {.d = {1, 1, 1, 128}, .q = RUN1(130, 0), .k = RUN1(130, 0), .causal = 1}},
    {"96", {.d = {1, 2, 1, 96}, .q = RUN1(70, 0), .k = RUN1(70, 0), .causal = 1}},
    {"documents", {.d = {2, 2, 2, 64}, .q = RUN1(70, 0), .k = RUN1(70, 0), .documents = {33, 20, -4}}},
    {"dropout", {.d = {1, 2, 1, 64}, .q = RUN1(37, 33), .k = RUN1(70, 0), .dropout = 0.1f}},
    {"documents_dropout",
     {.d = {2, 2, 2, 14}, .q = RUN1(70, 0), .k = RUN1(70, 0), .documents = {33, 20, -4}, .dropout = 0.1f}},
    {"window", {.d = {1, 2, 1, 64}, .q = RUN1(130, 0), .k = RUN1(130, 0), .causal = 1, .sliding_window = 45}},
    {"window_128", {.d = {1, 2, 1, 128}, .q = RUN1(37, 93), .k = RUN1(130, 0), .causal = 1, .sliding_window = 70}},
    {"window_odd",
     {.d = {2, 2, 2, 14},
      .q = RUN1(70, 0),
      .k = RUN1(70, 0),
      .causal = 1,
      .documents = {33, 20, -4},
      .dropout = 0.1f,
      .sliding_window = 9}},
};

static int reference_read(const GxSafetensors *file, const char *name, const char *tensor, float *out, int64_t n)
{
    char full[80];
    GxError err = GX_ZERO;
    snprintf(full, sizeof full, "%s.%s", name, tensor);
    const GxSafetensorsEntry *e = gx_safetensors_find(file, full);
    if (!CHECK(e && e->elements == n, "%s has %ld elements instead of %ld", full, e ? (long)e->elements : 0L, (long)n))
        return 0;
    return CHECK(gx_safetensors_read(file, e, 0, n, out, &err) == GX_OK, "%s", err.message);
}

static int64_t file_index(int64_t i, int64_t rows, int64_t B,
                          int64_t width) // of our [T,B,width] in the file's [B,T,width]
{
    const int64_t row = i / width;
    return (row % B * (rows / B) + row / B) * width + i % width;
}

static int reference_input(const GxSafetensors *file, const char *name, const char *tensor, Case *c, int buffer,
                           int64_t rows)
{
    const int64_t n = c->op->buffer[buffer].elements(c->shape);
    float *in_file = (float *)take(n * 4);
    const int ok = reference_read(file, name, tensor, in_file, n);
    for (int64_t i = 0; ok && i < n; i++)
        numbers(c, buffer)[i] = in_file[file_index(i, rows, c->shape->d[0], n / rows)];
    free(in_file);
    return ok;
}

// Every `step`-th number of PyTorch's results, rounded to fp32 once, is the oracle's.
static int check_truth(const GxSafetensors *file, const char *name, int result, const double *truth, int64_t n,
                       int64_t rows, int64_t B)
{
    enum { STEP = 7 };
    char tensor[40], what[100];
    const int64_t samples = (n + STEP - 1) / STEP;
    float *in_file = (float *)take(samples * 4);
    double *ours = (double *)take(samples * 8);
    snprintf(tensor, sizeof tensor, "truth.%s", attention_results[result]);
    snprintf(what, sizeof what, "oracle and PyTorch, %s.%s", name, tensor);
    for (int64_t i = 0; i < n; i++)
        if (file_index(i, rows, B, n / rows) % STEP == 0) ours[file_index(i, rows, B, n / rows) / STEP] = truth[i];
    const int ok = reference_read(file, name, tensor, in_file, samples) &&
                   test_close(what, in_file, ours, (long)samples, test_bound(1), 0);
    free(in_file), free(ours);
    return ok;
}

static void check_beside_pytorch(const GxSafetensors *file, const char *name, int result, const float *x,
                                 const double *truth, int64_t n, const char *device)
{
    char tensor[40];
    float pytorch = 0;
    double farthest = 0, squares = 0, size = 0;
    const double gate = result == ATTENTION_O ? GATE : GATE_ATTENTION;
    snprintf(tensor, sizeof tensor, "max_error.%s", attention_results[result]);
    if (!reference_read(file, name, tensor, &pytorch, 1)) return;
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs((double)x[i] - truth[i]);
        if (!(error <= farthest)) farthest = error; // NaN stays
        squares += error * error, size += truth[i] * truth[i];
    }
    test_state.worst = fmax(test_state.worst, fmax(farthest / (2 * pytorch), sqrt(squares / size) / gate));
    CHECK(farthest <= 2 * pytorch, "%s, %s: a number of %s is off by %.3g, PyTorch's in bf16 by %.3g", device, name,
          attention_results[result], farthest, pytorch);
    CHECK(sqrt(squares / size) <= gate, "%s, %s: %s is off by %.3g, allowed is %.3g", device, name,
          attention_results[result], sqrt(squares / size), gate);
}

static void check_attention_reference(const GxSafetensors *file, const char *name, const Shape *s,
                                      const GxDevice *device, GxContext *cpu)
{
    enum { FORWARD, BACKWARD };
    static const char *const inputs[] = {"q", "k", "v", "do"};
    static const int buffer[2][4] = {{2, 3, 4, -1}, {6, 7, 8, 3}}; // of the inputs, in the table
    const int64_t B = s->d[0], q_rows = gx_runs_rows(&s->q) * B, kv_rows = gx_runs_rows(&s->k) * B;
    const int64_t rows[] = {q_rows, kv_rows, kv_rows, q_rows}, result_rows[] = {q_rows, q_rows, kv_rows, kv_rows};
    const int64_t sizes[] = {attention_q(s), attention_kv(s), attention_kv(s), attention_o(s)};
    const int64_t result_sizes[] = {attention_o(s), attention_q(s), attention_kv(s), attention_kv(s)};
    double *in[4], *truth[ATTENTION_RESULTS], *lse = (double *)take(attention_lse(s) * 8), terms[3];
    Case c[2];
    Results r[2];
    int ok = 1;
    case_open(&c[FORWARD], cpu, op_named("attention_forward"), s, &plain[0], GX_BF16);
    case_open(&c[BACKWARD], cpu, op_named("attention_backward"), s, &plain[0], GX_BF16);
    const GxAttention a = attention_on(s, GX_F32, c[FORWARD].value[5]);
    for (int i = 0; i < 4; i++) {
        in[i] = (double *)take(sizes[i] * 8);
        truth[i] = (double *)take(result_sizes[i] * 8);
        for (int pass = i == 3; pass < 2; pass++)
            ok &= reference_input(file, name, inputs[i], &c[pass], buffer[pass][i], rows[i]);
        for (int64_t e = 0; e < sizes[i]; e++) in[i][e] = numbers(&c[BACKWARD], buffer[BACKWARD][i])[e];
    }
    oracle_attention_forward(truth[ATTENTION_O], lse, in[0], in[1], in[2], NULL, &a, &c[FORWARD].step);
    oracle_attention_backward(truth[ATTENTION_DQ], truth[ATTENTION_DK], truth[ATTENTION_DV], NULL, terms, in[3], in[0],
                              in[1], in[2], NULL, &a, &c[FORWARD].step);
    r[FORWARD] = run(&c[FORWARD], device, GX_BF16, 2, 0, 0, name);
    set_value(&c[BACKWARD], 4, r[FORWARD].value[0]);
    set_value(&c[BACKWARD], 5, r[FORWARD].value[1]);
    r[BACKWARD] = run(&c[BACKWARD], device, GX_BF16, 2, 0, 0, name);
    for (int i = 0; ok && i < ATTENTION_RESULTS; i++) {
        const float *x = (const float *)(i == ATTENTION_O ? r[FORWARD].value[0] : r[BACKWARD].value[i - ATTENTION_DQ]);
        if (check_truth(file, name, i, truth[i], result_sizes[i], result_rows[i], a.B))
            check_beside_pytorch(file, name, i, x, truth[i], result_sizes[i], device->name);
    }
    for (int i = 0; i < 2; i++) results_close(&r[i]), case_close(&c[i]);
    for (int i = 0; i < 4; i++) free(in[i]), free(truth[i]);
    free(lse);
}

TEST(attention_in_bf16_is_off_by_no_more_than_twice_what_pytorch_is)
{
    GxSafetensors file;
    GxError err = GX_ZERO;
    GxContext cpu = GX_ZERO;
    GxArena scratch = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&file, "data/ref/attention_bf16.safetensors", &err) == GX_OK, "%s", err.message))
        return;
    cpu_open(&cpu, &scratch);
    for (int d = FIRST_DEVICE; d < DEVICES; d++)
        for (int i = 0; i < COUNT(attention_references); i++) {
            GxDevice device;
            if (!device_open(&device, d)) continue;
            check_attention_reference(&file, attention_references[i].name, &attention_references[i].shape, &device,
                                      &cpu);
        }
    cpu_close(&cpu, &scratch);
    gx_safetensors_close(&file);
}

int main(int argc, char **argv)
{
    if (WITHOUT_LARGE) printf("without large shapes: see WITHOUT_LARGE\n");
    return test_main(argc, argv);
}
