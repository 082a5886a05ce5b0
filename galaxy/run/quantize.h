// run/quantize.h: makes a quantized matrix of a store (base/quantized.h) from values that are read in pieces, such as a
// file's, so that the whole matrix is never in memory as floats.
//
// Rank 0 reads and quantizes a piece, broadcasts its codes and scales, an eighth of the bytes, and each rank keeps
// those of its box. So a matrix has the same bytes however it is split.
#ifndef GX_RUN_QUANTIZE_H
#define GX_RUN_QUANTIZE_H
#include "../base/store.h"
#include "../comm/comm.h"
#include "../cpu/quantize.h"
#include "../ops/memory.h"
GX_BEGIN

// The values of --quantize, for training programs and those that write text.
#define GX_QUANTIZE_NAMES "none|nf4|nf4_plain|int8"
#define GX_NOT_QUANTIZED  "none"
#define GX_QUANTIZE_HELP                                                                                               \
    "4 bits (nf4: with doubly quantized scales, an eighth of fp32's memory; nf4_plain: with plain scales) or in 8 "    \
    "bits (int8), as bitsandbytes does; a folder that is quantized already is taken as it is"
int gx_quantize_of(const char *name);       // 1 + GxQuantKind; "nf4" is GX_NF4_DOUBLED; 0: none of these names
const char *gx_quantize_name(int quantize); // "none" for 0

// Reads elements [first, first + n) of the whole matrix to x [n].
typedef void (*GxReadValues)(void *from, int64_t first, int64_t n, float *x, GxError *err);

// Quantizes tensor `row` of the store, in the way that the table says. Called on all ranks. read(from, ...) is called
// on rank 0, from the first element to the last. GX_ERR_FORMAT: a value is not finite, or too large.
void gx_quantize_tensor(GxContext *g, const GxStore *s, int row, GxReadValues read, void *from);
// The same for a matrix that is already quantized in a file, in the same way. On rank 0: first reads the codes of
// elements [first, first + n), where `first` begins a byte; then everything but the codes, to what `whole` points to.
typedef struct {
    void (*read_codes)(void *from, const GxQuantized *whole, int64_t first, int64_t n, uint8_t *codes, GxError *err);
    void (*read_scales)(void *from, const GxQuantized *whole, GxError *err);
    void *from;
} GxQuantizedSource;
void gx_quantize_take(GxContext *g, const GxStore *s, int row, const GxQuantizedSource *source);
// Plans the scratch memory: takes it from a dry arena, and releases it: on the host fp32 values and codes of 2^20
// elements, or of a row of int8 if that is longer, and all scales; with a card, also the box.
void gx_quantize_plan(GxContext *g, const GxStore *s, int row);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RUN_QUANTIZE_IMPLEMENTED)
#define GX_RUN_QUANTIZE_IMPLEMENTED
#include <math.h>
#include <string.h>

static const char *const gx__quantize_names[] = {GX_NOT_QUANTIZED, "nf4_plain", "nf4", "int8"}; // of 1 + GxQuantKind

int gx_quantize_of(const char *name)
{
    for (int i = 1; i <= GX_QUANT_KINDS; i++)
        if (!strcmp(name, gx__quantize_names[i])) return i;
    return 0;
}

const char *gx_quantize_name(int quantize)
{
    return gx__quantize_names[quantize > 0 && quantize <= GX_QUANT_KINDS ? quantize : 0];
}

typedef struct {
    const GxTensor *t;
    GxQuantKind kind;
    int64_t piece;     // elements
    float *x;          // [piece]
    uint8_t *codes;    // of a piece
    float *absmax;     // [blocks of the whole]
    GxQuantized whole; // only its scales
    GxQuantized box;   // this rank's, in the host's memory
    void *store;       // where it belongs; NULL: the ranks have parts of it
    int is_mine;       // 0: another stage of a pipeline has it, and this rank only takes part in what is sent to all
} gx__Quantizing;

static void gx__quantizing_open(GxContext *g, gx__Quantizing *q, const GxStore *s, int row)
{
    GxArena *a = gx_host_arena(g);
    const GxTensorId id = {row};
    q->t = &s->table->row[row], q->kind = (GxQuantKind)(q->t->quantized - 1), q->is_mine = gx_store_has(s, row);
    q->whole = gx_quantized(q->kind, q->t->global_shape[0], q->t->global_shape[1], NULL);
    const int64_t cols = q->whole.cols, all = q->whole.rows * cols, blocks = gx_quantized_blocks(&q->whole);
    q->piece = gx_min(all, q->kind == GX_INT8 ? gx_max(1, GX_STAGE / cols) * cols : (int64_t)GX_STAGE);
    q->x = (float *)gx_allocate_from(g, a, GX_MEM_WORKSPACE, 4 * q->piece);
    q->codes = (uint8_t *)gx_allocate_from(g, a, GX_MEM_WORKSPACE, q->piece);
    q->absmax = q->whole.scales = (float *)gx_allocate_from(g, a, GX_MEM_WORKSPACE, 4 * blocks);
    if (q->kind == GX_NF4_DOUBLED) {
        q->whole.scales = (float *)gx_allocate_from(g, a, GX_MEM_WORKSPACE, 4 * gx_quantized_scales(&q->whole));
        q->whole.scale_codes = (uint8_t *)gx_allocate_from(g, a, GX_MEM_WORKSPACE, blocks);
        q->whole.offset = (float *)gx_allocate_from(g, a, GX_MEM_WORKSPACE, sizeof(float));
    }
    if (!q->is_mine) return;
    const GxQuantized box = gx_store_quantized(s, id);
    q->store = box.codes;
    void *host_copy = q->store ? gx_host_copy(g, GX_MEM_WORKSPACE, q->store, gx_quantized_bytes(&box))
                               : gx_allocate_from(g, a, GX_MEM_WORKSPACE, gx_quantized_bytes(&box));
    q->box = gx_quantized_box(q->kind, q->t->begin[0], box.rows, q->t->begin[1], box.cols, box.pitch, host_copy);
}

// Copies the box's bytes to the store, or this rank's part of them.
static void gx__quantizing_keep(GxContext *g, const gx__Quantizing *q, const GxStore *s, int row)
{
    const GxStorePart *p = &s->unit[s->table->row[row].unit].quantized;
    const int64_t at = s->place[row].quantized, bytes = gx_quantized_bytes(&q->box), begin = gx_max(p->mine.begin, at),
                  end = gx_min(p->mine.end, at + bytes);
    if (q->store) gx_to_device(g, q->store, q->box.codes, bytes);
    else if (begin < end)
        gx_to_device(g, gx_store_my_quantized_of(s, s->table->row[row].unit) + (begin - p->mine.begin),
                     (const char *)q->box.codes + (begin - at), end - begin);
}

// The piece as a matrix of its own: blocks continue over the ends of rows.
static GxQuantized gx__quantizing_piece(const gx__Quantizing *q, int64_t first, int64_t n)
{
    const int is_int8 = q->kind == GX_INT8;
    const int64_t cols = q->whole.cols, block = is_int8 ? cols : (int64_t)GX_NF4_BLOCK;
    GxQuantized piece = is_int8 ? gx_quantized(GX_INT8, n / cols, cols, NULL) : gx_quantized(GX_NF4, 1, n, NULL);
    piece.codes = q->codes, piece.scales = q->absmax + first / block;
    return piece;
}

// Replaces the error of the function that quantizes, which knows the value's place only in the piece, not in the
// tensor.
static void gx__quantizing_refuse(GxContext *g, const gx__Quantizing *q, int64_t first, int64_t n)
{
    int64_t i = 0;
    while (i < n - 1 && gx_cpu_quantizes(fabsf(q->x[i]))) i++;
    gx_error_clear(&g->error);
    GX_FAIL(&g->error, GX_ERR_FORMAT,
            "%s has the value %g in row %ld, column %ld; only finite numbers below 2^120 can be quantized: check where "
            "these weights come from",
            q->t->name, (double)q->x[i], (long)((first + i) / q->whole.cols), (long)((first + i) % q->whole.cols));
}

static void gx__quantizing_part(GxContext *g, gx__Quantizing *q, int64_t first, int64_t n, GxReadValues read,
                                void *from)
{
    const GxQuantized piece = gx__quantizing_piece(q, first, n);
    if (g->rank == 0 && !gx_failed(g)) read(from, first, n, q->x, &g->error);
    if (g->rank == 0 && !gx_failed(g) && gx_cpu_quantize_part(g, &piece, NULL, 0, n, q->x) != GX_OK)
        gx__quantizing_refuse(g, q, first, n);
    gx_broadcast(g, GX_AXIS_ALL, 0, q->codes, gx_quantized_code_bytes(&piece), GX_U8); // also tells of an error
    gx_broadcast(g, GX_AXIS_ALL, 0, piece.scales, gx_quantized_blocks(&piece), GX_F32);
    if (!gx_failed(g) && q->is_mine)
        gx_cpu_quantized_take_codes(&q->box, q->t->begin[0], q->t->begin[1], q->codes, first, n);
}

void gx_quantize_tensor(GxContext *g, const GxStore *s, int row, GxReadValues read, void *from)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    gx__Quantizing q = GX_ZERO;
    gx__quantizing_open(g, &q, s, row);
    const int64_t all = q.whole.rows * q.whole.cols;
    for (int64_t first = 0; first < all && !gx_failed(g); first += q.piece)
        gx__quantizing_part(g, &q, first, gx_min(q.piece, all - first), read, from);
    if (!gx_failed(g) && q.is_mine) {
        gx_cpu_quantize_scales(g, &q.whole, q.absmax);
        gx_cpu_quantized_take_scales(&q.box, q.t->begin[0], q.t->begin[1], &q.whole);
        gx__quantizing_keep(g, &q, s, row);
    }
    gx_arena_release(a, mark);
}

void gx_quantize_take(GxContext *g, const GxStore *s, int row, const GxQuantizedSource *source)
{
    GxArena *a = gx_host_arena(g);
    const GxArenaMark mark = gx_arena_mark(a);
    gx__Quantizing q = GX_ZERO;
    gx__quantizing_open(g, &q, s, row);
    const int64_t all = q.whole.rows * q.whole.cols;
    for (int64_t first = 0; first < all && !gx_failed(g); first += q.piece) {
        const int64_t n = gx_min(q.piece, all - first);
        const GxQuantized piece = gx__quantizing_piece(&q, first, n);
        if (g->rank == 0) source->read_codes(source->from, &q.whole, first, n, q.codes, &g->error);
        gx_broadcast(g, GX_AXIS_ALL, 0, q.codes, gx_quantized_code_bytes(&piece), GX_U8); // also tells of an error
        if (!gx_failed(g) && q.is_mine)
            gx_cpu_quantized_take_codes(&q.box, q.t->begin[0], q.t->begin[1], q.codes, first, n);
    }
    if (g->rank == 0 && !gx_failed(g)) source->read_scales(source->from, &q.whole, &g->error);
    gx_broadcast(g, GX_AXIS_ALL, 0, q.whole.scales, gx_quantized_scales(&q.whole), GX_F32);
    if (q.kind == GX_NF4_DOUBLED) {
        gx_broadcast(g, GX_AXIS_ALL, 0, q.whole.scale_codes, gx_quantized_blocks(&q.whole), GX_U8);
        gx_broadcast(g, GX_AXIS_ALL, 0, q.whole.offset, 1, GX_F32);
    }
    if (!gx_failed(g) && q.is_mine) {
        gx_cpu_quantized_take_scales(&q.box, q.t->begin[0], q.t->begin[1], &q.whole);
        gx__quantizing_keep(g, &q, s, row);
    }
    gx_arena_release(a, mark);
}

void gx_quantize_plan(GxContext *g, const GxStore *s, int row)
{
    const GxArenaMark mark = gx_arena_mark(gx_host_arena(g));
    gx__Quantizing q = GX_ZERO;
    gx__quantizing_open(g, &q, s, row);
    gx_arena_release(gx_host_arena(g), mark);
}
#endif
