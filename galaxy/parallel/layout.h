// layout.h: which collective stands at which block boundary of a layer, derived from the layouts of the rows: once,
// here, for every mode.
//
// A layer is ATT, CON1, MLP, CON2: attention and MLP are the cores, CON (connection: bias, dropout, residual add, norm)
// joins them to the stream. A mode is one method each for ATT, CON (both) and MLP inside the tp group. Rows [T*B, C] at
// a boundary are FULL (every rank has all), SEQ (rank r has its slice of T) or PARTIAL (every rank has a summand of
// all):
//
//     block                                      takes  gives
//     ATT by TP (heads), MLP by TP (columns)     FULL   PARTIAL
//     ATT, CON, MLP by SP (slices of T)          SEQ    SEQ
//     any block that is not split                FULL   FULL
//
// The stream between layers is in CON's layout; what a core needs stands at its entry, what its sum needs at its exit.
// So the four (att entry and exit, mlp entry and exit) are all there is, besides the gather of K and V inside attention
// by SP.
//
//     GxMode galaxy = {GX_METHOD_TP, GX_METHOD_SP, GX_METHOD_TP};
//     GxMove moves[GX_LAYER_MOVES];
//     int n = gx_layer_moves(galaxy, moves);  // 4: gather, scatter, gather, scatter; gx_layer_halves(galaxy, 1) == 8
//
// gx_mode_demands writes them out for a whole micro-batch, in order: what a recording of a step must contain, and what
// it must send.
#ifndef GX_LAYOUT_H
#define GX_LAYOUT_H
#include "../base/mesh.h"
GX_BEGIN

typedef enum { GX_LAYOUT_FULL = 0, GX_LAYOUT_SEQ, GX_LAYOUT_PARTIAL } GxLayout;
typedef enum { GX_BLOCK_ATT = 0, GX_BLOCK_CON, GX_BLOCK_MLP } GxBlock;
typedef enum { GX_METHOD_NONE = 0, GX_METHOD_TP, GX_METHOD_SP } GxMethod;
typedef enum {
    GX_MOVE_NONE = 0,
    GX_MOVE_ALL_REDUCE,
    GX_MOVE_REDUCE_SCATTER,
    GX_MOVE_ALL_GATHER,
    GX_MOVE_SLICE
} GxMoveKind;
typedef struct {
    GxMethod att, con, mlp;
} GxMode;
typedef struct {
    GxMoveKind forward, backward;
} GxTransition;

enum { GX_LAYER_MOVES = 5 };
typedef struct {
    const char *site; // "att_entry", "att_kv", "att_exit", "mlp_entry", "mlp_exit"
    GxLayout from, to;
    GxTransition move;
    int is_kv; // moves K and V, 2*K*h wide, instead of C
} GxMove;

// Valid are ATT, MLP in {TP, SP, None} with CON in {SP, None}: 18 modes.
GxStatus gx_mode_check(GxMode mode, GxError *err);
static inline int gx_mode_splits(GxMode mode) // anything at all: then embedding and head are split by vocabulary
{
    return mode.att != GX_METHOD_NONE || mode.con != GX_METHOD_NONE || mode.mlp != GX_METHOD_NONE;
}
GxLayout gx_block_takes(GxMethod method);
GxLayout gx_block_gives(GxMethod method);

// What brings rows from one layout into another at the entry of a block, and what brings their gradient back. `into` is
// the method of the block (or head) that is entered: FULL rows need their gradient summed under TP (each rank's is a
// summand) and nothing where all ranks compute the same. Nothing leads into PARTIAL: it only arises.
GxTransition gx_layout_transition(GxLayout from, GxLayout to, GxMethod into);

// Those that move something, in forward order; returns how many.
int gx_layer_moves(GxMode mode, GxMove moves[GX_LAYER_MOVES]);
GxMove gx_embedding_exit(GxMode mode); // embedding and head split by vocabulary
GxMove gx_head_entry(GxMode mode);

// Forward and backward of a move in half-collectives: one is an all-gather or reduce-scatter of [T*B, C], an all-reduce
// is two. kv_width: K*h / C.
double gx_move_halves(const GxMove *move, double kv_width);
double gx_layer_halves(GxMode mode, double kv_width);

// All that a mode communicates over tp in one micro-batch, forward and backward, in order, of fp32. Embedding and head
// are split by vocabulary, unless nothing is split (a mode of None alone demands nothing): the head then agrees on the
// maximum and on two sums of each row (site "head_loss"), chunk by chunk of its rows.
typedef struct {
    int layers;
    int64_t rows, width;     // T*B of the micro-batch; C
    int64_t kv_width, chunk; // K*h; rows of the head at once, at least 1
} GxDemandShape;
typedef struct {
    int unit; // 0: the embedding; 1 to layers; layers + 1: the head
    const char *site;
    GxMoveKind kind;     // ALL_REDUCE, ALL_GATHER or REDUCE_SCATTER: the others communicate nothing
    int64_t rows, width; // of the whole, wherever its rows lie
} GxDemand;
// Returns how many; writes those within the capacity.
int gx_mode_demands(GxMode mode, const GxDemandShape *shape, GxDemand *list, int capacity);
int64_t gx_demand_bytes(const GxDemand *demand, int ranks); // that the group's ranks send together

// How a weight meets its rows. The rule for its gradient is per place of use: a tied weight asks twice.
typedef enum {
    GX_USE_WHOLE = 0, // all of it, on all rows of the layout: norms, biases, adapters, an unsplit matrix
    GX_USE_SPLIT, // the rank holds its own part of it: column- and row-parallel matrices, their LoRA factor that is cut
                  // alike
    GX_USE_OWN_SHARE // all of it, on this rank's heads, columns or summand only: q_norm, the LoRA factor not cut
} GxUse;
// GX_AXIS_TP: its gradient is summed over tp; 0: it is not. (GX_AXIS_LOSS always comes besides.)
int gx_grad_tp(GxLayout rows, GxUse use);

const char *gx_layout_name(GxLayout layout);
const char *gx_method_name(GxMethod method); // "None", "TP", "SP"
const char *gx_move_name(GxMoveKind kind);   // as the recorder has it: "all_reduce"

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LAYOUT_IMPLEMENTED)
#define GX_LAYOUT_IMPLEMENTED
#include <assert.h>

GxStatus gx_mode_check(GxMode mode, GxError *err)
{
    const GxMethod method[3] = {mode.att, mode.con, mode.mlp};
    static const char *const block[3] = {"ATT", "CON", "MLP"};
    for (int b = 0; b < 3; b++)
        if ((unsigned)method[b] > GX_METHOD_SP)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s has method number %d; it is one of None, TP, SP", block[b],
                           (int)method[b]);
    if (mode.con == GX_METHOD_TP)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "ATT by %s, CON by TP, MLP by %s: CON has no matrix to split, and its norm needs whole rows; "
                       "CON is SP (rows split) or None",
                       gx_method_name(mode.att), gx_method_name(mode.mlp));
    return GX_OK;
}

GxLayout gx_block_takes(GxMethod method) { return method == GX_METHOD_SP ? GX_LAYOUT_SEQ : GX_LAYOUT_FULL; }

GxLayout gx_block_gives(GxMethod method)
{
    return method == GX_METHOD_SP ? GX_LAYOUT_SEQ : method == GX_METHOD_TP ? GX_LAYOUT_PARTIAL : GX_LAYOUT_FULL;
}

GxTransition gx_layout_transition(GxLayout from, GxLayout to, GxMethod into)
{
    // clang-format off
    static const struct { GxLayout from, to; int tp; GxTransition move; } table[] = {
        // from              to           into TP?  forward                 backward
        {GX_LAYOUT_FULL,    GX_LAYOUT_FULL, 0, {GX_MOVE_NONE,           GX_MOVE_NONE}},
        {GX_LAYOUT_FULL,    GX_LAYOUT_FULL, 1, {GX_MOVE_NONE,           GX_MOVE_ALL_REDUCE}},
        {GX_LAYOUT_FULL,    GX_LAYOUT_SEQ,  0, {GX_MOVE_SLICE,          GX_MOVE_ALL_GATHER}},
        {GX_LAYOUT_SEQ,     GX_LAYOUT_SEQ,  0, {GX_MOVE_NONE,           GX_MOVE_NONE}},
        {GX_LAYOUT_SEQ,     GX_LAYOUT_FULL, 0, {GX_MOVE_ALL_GATHER,     GX_MOVE_SLICE}},
        {GX_LAYOUT_SEQ,     GX_LAYOUT_FULL, 1, {GX_MOVE_ALL_GATHER,     GX_MOVE_REDUCE_SCATTER}},
        {GX_LAYOUT_PARTIAL, GX_LAYOUT_FULL, 0, {GX_MOVE_ALL_REDUCE,     GX_MOVE_NONE}},
        {GX_LAYOUT_PARTIAL, GX_LAYOUT_FULL, 1, {GX_MOVE_ALL_REDUCE,     GX_MOVE_ALL_REDUCE}},
        {GX_LAYOUT_PARTIAL, GX_LAYOUT_SEQ,  0, {GX_MOVE_REDUCE_SCATTER, GX_MOVE_ALL_GATHER}},
    };
    // clang-format on
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].from == from && table[i].to == to && table[i].tp == (into == GX_METHOD_TP)) return table[i].move;
    assert(!"no block takes PARTIAL rows, and a block by TP takes FULL ones");
    return table[0].move;
}

static GxMove gx__layout_move(const char *site, GxLayout from, GxMethod into)
{
    GxMove m;
    m.site = site;
    m.from = from;
    m.to = gx_block_takes(into);
    m.move = gx_layout_transition(from, m.to, into);
    m.is_kv = 0;
    return m;
}

int gx_layer_moves(GxMode mode, GxMove moves[GX_LAYER_MOVES])
{
    GxMove all[GX_LAYER_MOVES];
    all[0] = gx__layout_move("att_entry", gx_block_gives(mode.con), mode.att);
    // Gathered where each rank's gradient of all of K and V is a summand.
    all[1] = gx__layout_move("att_kv", GX_LAYOUT_SEQ, GX_METHOD_TP);
    all[1].is_kv = 1;
    all[2] = gx__layout_move("att_exit", gx_block_gives(mode.att), mode.con);
    all[3] = gx__layout_move("mlp_entry", gx_block_gives(mode.con), mode.mlp);
    all[4] = gx__layout_move("mlp_exit", gx_block_gives(mode.mlp), mode.con);
    int n = 0;
    for (int i = 0; i < GX_LAYER_MOVES; i++) {
        int nothing = all[i].move.forward == GX_MOVE_NONE && all[i].move.backward == GX_MOVE_NONE;
        if (!nothing && (!all[i].is_kv || mode.att == GX_METHOD_SP)) moves[n++] = all[i];
    }
    return n;
}

GxMove gx_embedding_exit(GxMode mode) { return gx__layout_move("embedding_exit", GX_LAYOUT_PARTIAL, mode.con); }
GxMove gx_head_entry(GxMode mode) { return gx__layout_move("head_entry", gx_block_gives(mode.con), GX_METHOD_TP); }

static int gx__layout_halves(GxMoveKind kind)
{
    return kind == GX_MOVE_ALL_REDUCE ? 2 : kind == GX_MOVE_ALL_GATHER || kind == GX_MOVE_REDUCE_SCATTER;
}

double gx_move_halves(const GxMove *move, double kv_width)
{
    return (gx__layout_halves(move->move.forward) + gx__layout_halves(move->move.backward)) *
           (move->is_kv ? 2 * kv_width : 1);
}

double gx_layer_halves(GxMode mode, double kv_width)
{
    GxMove moves[GX_LAYER_MOVES];
    double halves = 0;
    int n = gx_layer_moves(mode, moves);
    for (int i = 0; i < n; i++) halves += gx_move_halves(&moves[i], kv_width);
    return halves;
}

typedef struct {
    const GxDemandShape *shape;
    GxDemand *list;
    int capacity, n;
} GxDemands;

static void gx__layout_demand(GxDemands *d, int unit, const char *site, GxMoveKind kind, int64_t rows, int64_t width)
{
    if (!gx__layout_halves(kind)) return;
    const GxDemand demand = {unit, site, kind, rows, width};
    if (d->n < d->capacity) d->list[d->n] = demand;
    d->n++;
}

static void gx__layout_demand_move(GxDemands *d, int unit, const GxMove *move, int backward)
{
    const GxDemandShape *s = d->shape;
    gx__layout_demand(d, unit, move->site, backward ? move->move.backward : move->move.forward, s->rows,
                      move->is_kv ? 2 * s->kv_width : s->width);
}

int gx_mode_demands(GxMode mode, const GxDemandShape *shape, GxDemand *list, int capacity)
{
    const GxMove in = gx_embedding_exit(mode), out = gx_head_entry(mode);
    const int head = shape->layers + 1;
    GxMove moves[GX_LAYER_MOVES];
    GxDemands d = {shape, list, capacity, 0};
    assert(shape->chunk >= 1);
    const int n = gx_layer_moves(mode, moves);
    if (!gx_mode_splits(mode)) return 0;
    gx__layout_demand_move(&d, 0, &in, 0);
    for (int unit = 1; unit < head; unit++)
        for (int i = 0; i < n; i++) gx__layout_demand_move(&d, unit, &moves[i], 0);
    gx__layout_demand_move(&d, head, &out, 0);
    for (int64_t r = 0; r < shape->rows; r += shape->chunk)
        for (int numbers = 1; numbers <= 2; numbers++) // the maximum; both sums
            gx__layout_demand(&d, head, "head_loss", GX_MOVE_ALL_REDUCE, gx_min(shape->chunk, shape->rows - r),
                              numbers);
    gx__layout_demand_move(&d, head, &out, 1);
    for (int unit = head - 1; unit > 0; unit--)
        for (int i = n - 1; i >= 0; i--) gx__layout_demand_move(&d, unit, &moves[i], 1);
    gx__layout_demand_move(&d, 0, &in, 1);
    return d.n;
}

// A gather brings every rank what the others have, a scatter every rank the others' summands of what it keeps: n - 1 of
// everything, however it is split.
int64_t gx_demand_bytes(const GxDemand *demand, int ranks)
{
    return gx__layout_halves(demand->kind) * (ranks - 1) * demand->rows * demand->width * 4;
}

int gx_grad_tp(GxLayout rows, GxUse use)
{
    if (use == GX_USE_SPLIT) return 0; // nobody else has this part
    return use == GX_USE_OWN_SHARE || rows != GX_LAYOUT_FULL ? GX_AXIS_TP : 0;
}

const char *gx_layout_name(GxLayout layout)
{
    static const char *const names[] = {"FULL", "SEQ", "PARTIAL"};
    return (unsigned)layout < sizeof names / sizeof *names ? names[layout] : "?";
}

const char *gx_method_name(GxMethod method)
{
    static const char *const names[] = {"None", "TP", "SP"};
    return (unsigned)method < sizeof names / sizeof *names ? names[method] : "?";
}

const char *gx_move_name(GxMoveKind kind)
{
    static const char *const names[] = {"none", "all_reduce", "reduce_scatter", "all_gather", "slice"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "?";
}
#endif
