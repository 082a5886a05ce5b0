// layout.h: derives from the layouts of the rows which collective each door of a (core, CON) pair needs: once, for
// every mode and every family. A door is the place in a core where a collective may stand: its entry, its exit, or
// inside.
//
// Attention, MLP, embedding and head are cores; CON (connection: bias, dropout, residual add, norm) joins a core to the
// stream. A mode is one method each for ATT, CON, MLP and the ends (embedding and head) inside the tp group. Rows
// [T*B, C] at a boundary are FULL (every rank has all), SEQ (rank r has its slice of T) or PARTIAL (every rank has a
// summand of all):
//
//     block                                                      takes  gives
//     a core by TP (heads, columns, rows of the vocabulary)      FULL   PARTIAL
//     a core or CON by SP (slices of T)                          SEQ    SEQ
//     any block that is not split                                FULL   FULL
//
// An encoder's output (memory) is brought into the layout that attention takes, once, for all layers that attend to it.
// The stream between pairs is in CON's layout; the collective that brings it into the core's layout stands at the
// core's entry, the one that sums the core's output at its exit. Two cores also communicate inside: attention by SP
// gathers K and V, and a head by TP combines the loss over the parts of the vocabulary.
//
//     GxMethods galaxy = gx_methods(GX_METHOD_TP, GX_METHOD_SP, GX_METHOD_TP);    // ATT, CON, MLP; the ends follow
//     gx_core_entry(galaxy.att, galaxy.con).move.forward;                         // GX_MOVE_ALL_GATHER
//
// gx_demands lists them for a whole micro-batch, in order: the collectives that a recording of a step must contain, and
// their bytes.
#ifndef GX_LAYOUT_H
#define GX_LAYOUT_H
#include "../base/mesh.h"
GX_BEGIN

typedef enum { GX_LAYOUT_FULL = 0, GX_LAYOUT_SEQ, GX_LAYOUT_PARTIAL } GxLayout;
typedef enum { GX_METHOD_NONE = 0, GX_METHOD_TP, GX_METHOD_SP } GxMethod;
typedef enum {
    GX_CORE_ATT = 0,
    GX_CORE_MLP,
    GX_CORE_EMBED,
    GX_CORE_HEAD,
    GX_CORE_LABELS,
    GX_CORE_VECTORS,
    GX_CORE_MEMORY,
    GX_CORE_KINDS
} GxCoreKind;
typedef enum { GX_ENTRY = 0, GX_EXIT, GX_INSIDE } GxDoor; // where a collective stands in a core
typedef enum {
    GX_MOVE_NONE = 0,
    GX_MOVE_ALL_REDUCE,
    GX_MOVE_REDUCE_SCATTER,
    GX_MOVE_ALL_GATHER,
    GX_MOVE_SLICE
} GxMoveKind;
typedef struct {
    GxMethod att, con, mlp, ends;
} GxMethods;
typedef struct {
    GxMoveKind forward, backward;
} GxTransition;
typedef struct {
    GxLayout from, to;
    GxTransition move;
} GxMove;

// The ends: not split if nothing is; by SP if CON is by SP and no core by TP; otherwise by TP.
GxMethods gx_methods(GxMethod att, GxMethod con, GxMethod mlp);
// Valid are ATT, MLP in {TP, SP, None} with CON in {SP, None}, 18 triples, each with any method for the ends.
GxStatus gx_methods_check(GxMethods m, GxError *err);
static inline int gx_methods_split(GxMethods m) // anything at all
{
    return m.att != GX_METHOD_NONE || m.con != GX_METHOD_NONE || m.mlp != GX_METHOD_NONE || m.ends != GX_METHOD_NONE;
}
static inline int gx_methods_have(GxMethods m, GxMethod method) // somewhere
{
    return m.att == method || m.con == method || m.mlp == method || m.ends == method;
}
static inline GxMethod gx_methods_of(GxMethods m, GxCoreKind core)
{
    return core == GX_CORE_ATT || core == GX_CORE_MEMORY ? m.att : core == GX_CORE_MLP ? m.mlp : m.ends;
}
GxLayout gx_block_takes(GxMethod method);
GxLayout gx_block_gives(GxMethod method);

// The collective that converts rows from one layout to another at the entry of a block, and the one that converts their
// gradient back. into: the method of the block that is entered: the gradient of FULL rows must be summed under TP (each
// rank's is a summand), and needs nothing where all ranks compute the same. Nothing is converted to PARTIAL, which only
// results from a block.
GxTransition gx_layout_transition(GxLayout from, GxLayout to, GxMethod into);
GxMove gx_core_entry(GxMethod core, GxMethod con); // from the stream into a core
GxMove gx_core_exit(GxMethod core, GxMethod con);  // from a core into CON

// The forward and backward collectives of a move, and those of a layer (ATT, CON, MLP, CON), counted in halves: an
// all-gather or reduce-scatter of [T*B, C] is one half, an all-reduce two. kv_width: K*h / C.
double gx_move_halves(GxMove move);
double gx_layer_halves(GxMethods m, double kv_width);

// Everything that is communicated over tp in one micro-batch, forward and backward, in order, in fp32. A head by TP
// combines the maximum and two sums of each row, one chunk of rows at a time.
typedef struct {
    int layers;
    int64_t rows, width;     // T*B of the micro-batch; C
    int64_t head_rows;       // the rows that the head computes: all, or those that the target selects
    int64_t kv_width, chunk; // K*h; rows of the head at once, at least 1
} GxDemandShape;
typedef struct {
    int unit; // 0: the embedding; 1 to layers; layers + 1: the head
    const char *site;
    GxMoveKind kind;     // ALL_REDUCE, ALL_GATHER or REDUCE_SCATTER; the other moves communicate nothing
    int64_t rows, width; // of the whole, however its rows are split
} GxDemand;
// returns their number; writes those that fit
int gx_demands(GxMethods m, const GxDemandShape *shape, GxDemand *list, int capacity);
int64_t gx_demand_bytes(const GxDemand *demand, int ranks); // that all ranks of the group send together

// How a rank uses a weight. The rule for its gradient holds for each place of use: a tied weight has two.
typedef enum {
    GX_USE_WHOLE = 0, // all of it, on all rows of the layout: norms, biases, adapters, an unsplit matrix
    // the rank holds its own part of it: column- and row-parallel matrices, and the factor of their LoRA that is split
    // like them
    GX_USE_SPLIT,
    // all of it, on this rank's heads, columns or summand only: q_norm, k_norm, LoRA's factor that is not split
    GX_USE_OWN_SHARE
} GxUse;
int gx_grad_sums_over_tp(GxLayout rows, GxUse use); // besides GX_AXIS_LOSS, over which every gradient is summed

const char *gx_layout_name(GxLayout layout);
const char *gx_method_name(GxMethod method);                // "None", "TP", "SP"
void gx_methods_text(GxMethods m, char *text, size_t size); // "ATT TP, CON None, MLP TP, ends TP"
const char *gx_move_name(GxMoveKind kind);                  // as the recorder has it: "all_reduce"
const char *gx_core_name(GxCoreKind core);                  // "att", "mlp", "embed", "head", ...
const char *gx_door_name(GxCoreKind core, GxDoor door);     // "att_entry": the site in a recording

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LAYOUT_IMPLEMENTED)
#define GX_LAYOUT_IMPLEMENTED
#include <assert.h>

GxMethods gx_methods(GxMethod att, GxMethod con, GxMethod mlp)
{
    GxMethods m = {att, con, mlp, GX_METHOD_TP};
    const int core_by_tp = att == GX_METHOD_TP || mlp == GX_METHOD_TP;
    if (con == GX_METHOD_SP && !core_by_tp) m.ends = GX_METHOD_SP;
    if (att == GX_METHOD_NONE && con == GX_METHOD_NONE && mlp == GX_METHOD_NONE) m.ends = GX_METHOD_NONE;
    return m;
}

GxStatus gx_methods_check(GxMethods m, GxError *err)
{
    const GxMethod method[4] = {m.att, m.con, m.mlp, m.ends};
    static const char *const block[4] = {"ATT", "CON", "MLP", "the ends"};
    for (int b = 0; b < 4; b++)
        if ((unsigned)method[b] > GX_METHOD_SP)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s has method number %d; it is one of None, TP, SP", block[b],
                           (int)method[b]);
    if (m.con == GX_METHOD_TP)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "ATT by %s, CON by TP, MLP by %s: CON has no matrix to split, and its norm needs whole rows; CON "
            "is SP (rows split) or None",
            gx_method_name(m.att), gx_method_name(m.mlp));
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

static GxMove gx__layout_move(GxLayout from, GxMethod into)
{
    GxMove m;
    m.from = from;
    m.to = gx_block_takes(into);
    m.move = gx_layout_transition(from, m.to, into);
    return m;
}
GxMove gx_core_entry(GxMethod core, GxMethod con) { return gx__layout_move(gx_block_gives(con), core); }
GxMove gx_core_exit(GxMethod core, GxMethod con) { return gx__layout_move(gx_block_gives(core), con); }

static int gx__layout_halves(GxMoveKind kind)
{
    return kind == GX_MOVE_ALL_REDUCE ? 2 : kind == GX_MOVE_ALL_GATHER || kind == GX_MOVE_REDUCE_SCATTER;
}

double gx_move_halves(GxMove m) { return gx__layout_halves(m.move.forward) + gx__layout_halves(m.move.backward); }

double gx_layer_halves(GxMethods m, double kv_width)
{
    return gx_move_halves(gx_core_entry(m.att, m.con)) + gx_move_halves(gx_core_exit(m.att, m.con)) +
           gx_move_halves(gx_core_entry(m.mlp, m.con)) + gx_move_halves(gx_core_exit(m.mlp, m.con)) +
           (m.att == GX_METHOD_SP ? 2 * 2 * kv_width : 0); // K and V are gathered, their gradients reduce-scattered
}

typedef struct {
    const GxDemandShape *shape;
    GxMethods methods;
    GxDemand *list;
    int capacity, n;
} GxDemands;

static void gx__layout_demand(GxDemands *d, int unit, GxCoreKind core, GxDoor door, GxMoveKind kind, int64_t rows,
                              int64_t width)
{
    if (!gx__layout_halves(kind)) return;
    const GxDemand demand = {unit, gx_door_name(core, door), kind, rows, width};
    if (d->n < d->capacity) d->list[d->n] = demand;
    d->n++;
}

// The collectives inside a core. In attention by SP each rank's gradient of all of K and V is a summand, as at the
// entry of a block by TP.
static void gx__layout_demand_inside(GxDemands *d, int unit, GxCoreKind core, int backward)
{
    const GxDemandShape *s = d->shape;
    if (core == GX_CORE_ATT && d->methods.att == GX_METHOD_SP)
        gx__layout_demand(d, unit, core, GX_INSIDE, backward ? GX_MOVE_REDUCE_SCATTER : GX_MOVE_ALL_GATHER, s->rows,
                          2 * s->kv_width);
    if (core != GX_CORE_HEAD || d->methods.ends != GX_METHOD_TP || backward) return;
    for (int64_t r = 0; r < s->head_rows; r += s->chunk)
        for (int numbers = 1; numbers <= 2; numbers++) // the maximum; both sums
            gx__layout_demand(d, unit, core, GX_INSIDE, GX_MOVE_ALL_REDUCE, gx_min(s->chunk, s->head_rows - r),
                              numbers);
}

static void gx__layout_demand_pair(GxDemands *d, int unit, GxCoreKind core, int backward)
{
    const GxDemandShape *s = d->shape;
    const GxMethod method = gx_methods_of(d->methods, core);
    const int64_t rows = core == GX_CORE_HEAD ? s->head_rows : s->rows; // of the core's input
    const GxMove entry = gx_core_entry(method, d->methods.con), exit = gx_core_exit(method, d->methods.con);
    if (core != GX_CORE_EMBED && !backward) // the embedding takes no rows, the head gives none
        gx__layout_demand(d, unit, core, GX_ENTRY, entry.move.forward, rows, s->width);
    if (core != GX_CORE_HEAD && backward)
        gx__layout_demand(d, unit, core, GX_EXIT, exit.move.backward, s->rows, s->width);
    gx__layout_demand_inside(d, unit, core, backward);
    if (core != GX_CORE_HEAD && !backward)
        gx__layout_demand(d, unit, core, GX_EXIT, exit.move.forward, s->rows, s->width);
    if (core != GX_CORE_EMBED && backward)
        gx__layout_demand(d, unit, core, GX_ENTRY, entry.move.backward, rows, s->width);
}

int gx_demands(GxMethods m, const GxDemandShape *shape, GxDemand *list, int capacity)
{
    GxDemands d = {shape, m, list, capacity, 0};
    const int head = shape->layers + 1;
    assert(shape->chunk >= 1);
    gx__layout_demand_pair(&d, 0, GX_CORE_EMBED, 0);
    for (int unit = 1; unit < head; unit++)
        for (int k = 0; k < 2; k++) gx__layout_demand_pair(&d, unit, k ? GX_CORE_MLP : GX_CORE_ATT, 0);
    for (int backward = 0; backward < 2; backward++) gx__layout_demand_pair(&d, head, GX_CORE_HEAD, backward);
    for (int unit = head - 1; unit > 0; unit--)
        for (int k = 1; k >= 0; k--) gx__layout_demand_pair(&d, unit, k ? GX_CORE_MLP : GX_CORE_ATT, 1);
    gx__layout_demand_pair(&d, 0, GX_CORE_EMBED, 1);
    return d.n;
}

// A gather brings every rank what the others have, a scatter brings every rank the others' summands of its part: n - 1
// times the whole, however it is split.
int64_t gx_demand_bytes(const GxDemand *demand, int ranks)
{
    return gx__layout_halves(demand->kind) * (ranks - 1) * demand->rows * demand->width * 4;
}

int gx_grad_sums_over_tp(GxLayout rows, GxUse use)
{
    if (use == GX_USE_SPLIT) return 0; // no other rank has this part
    return use == GX_USE_OWN_SHARE || rows != GX_LAYOUT_FULL;
}

const char *gx_layout_name(GxLayout layout)
{
    static const char *const names[] = {"FULL", "SEQ", "PARTIAL"};
    return (unsigned)layout < sizeof names / sizeof *names ? names[layout] : "?";
}

void gx_methods_text(GxMethods m, char *text, size_t size)
{
    snprintf(text, size, "ATT %s, CON %s, MLP %s, ends %s", gx_method_name(m.att), gx_method_name(m.con),
             gx_method_name(m.mlp), gx_method_name(m.ends));
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

const char *gx_core_name(GxCoreKind core)
{
    static const char *const names[] = {"att", "mlp", "embed", "head", "labels", "vectors", "memory"};
    static_assert(sizeof names / sizeof *names == GX_CORE_KINDS, "a row for each kind of core");
    return (unsigned)core < GX_CORE_KINDS ? names[core] : "?";
}

const char *gx_door_name(GxCoreKind core, GxDoor door)
{
    static const char *const names[][3] = {
        {"att_entry", "att_exit", "att_inside"},          {"mlp_entry", "mlp_exit", "mlp_inside"},
        {"embed_entry", "embed_exit", "embed_inside"},    {"head_entry", "head_exit", "head_inside"},
        {"labels_entry", "labels_exit", "labels_inside"}, {"vectors_entry", "vectors_exit", "vectors_inside"},
        {"memory_entry", "memory_exit", "memory_inside"}};
    static_assert(sizeof names / sizeof *names == GX_CORE_KINDS, "a row for each kind of core");
    return (unsigned)core < GX_CORE_KINDS && (unsigned)door <= GX_INSIDE ? names[core][door] : "?";
}
#endif
