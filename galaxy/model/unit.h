// model/unit.h: a unit at work: what it sees (its pass), what it keeps (its slot), and its three calls: forward,
// backward, and the weight halves that a backward left out.
//
// A unit is pure: it uses only its pass and the rows that it is given. This makes it possible to have several
// micro-batches in flight, to give a rank units [first, last), to recompute units, and to postpone weight halves. The
// order of the calls is a list of actions (parallel/steps.h), run by run/interpreter.h.
//
// Inside a unit a mode says, for one pair, how enter, core and CON follow each other and what is communicated between
// them. The rows that it hands around, of pair k:
//     x, y, dx, dy   the stream before and behind the pair, and their gradients: in CON's layout
//     in, out        into and out of the core; din, dout their gradients: all rows, unless CON and core are both by SP
//
// Which of these may be the same rows
//     dx and dy      may be the same; din and dx never are
//     dout and dx    are the same unless CON has dropout or an adapter, a collective gives dout other rows, or the
//                    weight half is postponed. enter_backward, which writes dx, has to follow the weight half, which
//                    reads dout
//     in and x       are the same if enter is nothing and no rows are communicated
//     out and y      are the same if CON has nothing to compute
//
// A head works only on the rows of its target: enter picks them out of x, and from there on only these are
// communicated. A rank may have none of them. If the whole batch has none, a head's pair does nothing, collectives
// included.
//
// The caller of a unit's forward places its slot for the current batch; only the largest size is fixed in advance.
// Rows that live no longer than one pair (out, din, dout, inner gradients) are scratch from the context's arena.
#ifndef GX_UNIT_H
#define GX_UNIT_H
#include "../ops/dropout.h"
#include "model.h"
GX_BEGIN

typedef struct {        // of one pair
    GxRows stream;      // x of pair k > 0
    GxRows in;          // the core's input; no rows if it is x
    float *mean, *rstd; // of the norm before the core, of CON's rows
    GxRows enter[2];    // TRANSFORM: before and after the activation; POOL: after tanh
    GxRows sum;         // of CON, before its norm; of CON's rows
    float *con_mean, *con_rstd;
    GxRows adapter[2];    // of CON: its input, and its hidden rows (bottleneck.h)
    GxRows core[4];       // the core's own
    float *lse, *qk_rstd; // of attention; of norms of its heads
    GxRows product[2];    // of linears with a scale: what is before it (scale.h)
    GxRows prompt[7];     // of attention: what prompts keep (prompt.h)
    float *prompt_lse, *prompt_rstd;
    GxRows dout, dcore[2]; // kept for postponed weight halves, which read them
    int is_entered;        // 1: the CON of the previous pair has already written `in`
} GxPairSlot;

typedef struct {  // of a side network's unit: of CON's rows
    GxRows down;  // Down(h), if the network is gated
    GxRows mixed; // what its first pair reads
    GxRows top;   // in the last unit: the input of Up
} GxSideSlot;

typedef struct {
    GxSplit rows;                 // [T*B] of the batch over the tp group, where anything is by SP
    GxSplit picked[GX_MAX_PAIRS]; // of a head: how its target's rows are split
    GxPairSlot pair[GX_MAX_PAIRS];
    GxSideSlot side;
} GxSlot;

struct GxPass {
    GxContext *g;
    GxModel *m;
    const GxBatch *b;
    GxSlot *slot;
    int unit;
    int defers_weights; // the slot owns what weight halves read; gx_unit_backward leaves them out, gx_unit_weight does
                        // them
    // from here on the unit's own, pair by pair
    GxRows y;        // where the pair's result is written; no rows: it is not needed
    int wants_din;   // 1: something below is trained, or the norm before the core
    int wants_core;  // 1: wants_din, or something in the core is trained; 0: the backward ends in CON
    GxRows dcore[2]; // inner gradients, from the input half to the weight half
};

// ---- units ---------------------------------------------------------------------------------------------------------

// The size in bytes of a slot for a batch of T x B; defers_weights: including what postponed weight halves read.
int64_t gx_slot_bytes(const GxModel *m, int unit, int64_t T, int64_t B, int defers_weights);
// Places the pass's slot at `base`, for the pass's batch. Call it before the forward. Refuses a batch larger than
// planned.
void gx_slot_layout(GxPass *p, void *base);

// `out` without rows: only what the slot keeps is wanted (when a unit is recomputed). In training a head does nothing
// here.
void gx_unit_forward(GxPass *p, GxState out, GxState in);
// din may be dout; it has no rows if nothing below is trained. `in`: as given to the forward. dout is overwritten. A
// head has no dout: its forward is computed here as well.
void gx_unit_backward(GxPass *p, GxState din, GxState dout, GxState in);
void gx_unit_weight(GxPass *p, GxState in); // the weight halves that a backward with defers_weights left out
// Copies the side network's stream past a unit of the backbone.
void gx_unit_pass_through(GxContext *g, GxState out, GxState in);

// The stream's rows in CON's layout, at `data`.
GxRows gx_stream_rows(const GxModel *m, int64_t T, int64_t B, void *data);
// What enters a unit, laid out at `data` (NULL: without rows): the stream, and a side network's stream behind it. Its
// gradient: for a unit of a side network of the side stream only, else of the stream. And how many bytes they take.
GxState gx_state_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data);
GxState gx_gradient_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data);
int64_t gx_state_bytes(const GxModel *m, int unit, int64_t T, int64_t B);
int64_t gx_gradient_bytes(const GxModel *m, int unit, int64_t T, int64_t B);

// ---- rows of a pair, for modes -------------------------------------------------------------------------------------

GxMethod gx_core_method(const GxPass *p, int k);
GxRows gx_core_in(const GxPass *p, int k, GxRows x);
GxRows gx_core_out(GxPass *p, int k);
GxRows gx_core_din(GxPass *p, int k);                // without rows if nothing below is trained
GxRows gx_core_dout(GxPass *p, int k, GxRows dx);    // without rows if neither the core nor anything below is trained
GxRows gx_own(const GxPass *p, int k, GxRows whole); // this rank's slice of T; `whole` itself if it is only that
const GxSplit *gx_pair_rows(const GxPass *p, int k); // the split of the core's rows (a head's: its target's) over ranks
// For enter, CON and cores: the rows of CON's layout within those of a core; this rank's slice of all rows; the first
// row of the slice.
GxRows gx_con_rows(const GxPass *p, int k, GxRows whole);
GxRows gx_slice(const GxPass *p, GxRows all);
int64_t gx_slice_begin(const GxPass *p);
// For a head: its target; and which of the target's rows is this rank's first, if rows are split by this method (that
// of CON or of the core).
static inline const GxTarget *gx_pass_target(const GxPass *p, int k);
int64_t gx_picked_begin(const GxPass *p, int k, GxMethod by);
const int32_t *gx_entered_rows(const GxPass *p, int k); // which rows of the stream enter pair k on this rank; NULL: all
// 1 on the ranks whose losses are summed: of the ranks that compute the same rows, only the first.
int gx_adds_loss(const GxPass *p, int k);
// Dropout number `which` of pair k, for the rows of CON's layout; in a validation its probability is 0.
enum { GX_DROPOUT_CON = 0, GX_DROPOUT_ATT };
GxDropout gx_pass_dropout(const GxPass *p, int k, int which, float probability);

// ---- what a pair is made of: enter.h, con.h ------------------------------------------------------------------------

void gx_enter_forward(GxPass *p, int k, GxRows in, GxRows x);              // in = enter(x), unless CON has done so
void gx_enter_backward(GxPass *p, int k, GxRows dx, GxRows din, GxRows x); // dx += enter'(din)
void gx_con_forward(GxPass *p, int k, GxRows y, GxRows x, GxRows out); // y = x + out; and the norm of pair k+1, if any
void gx_con_backward(GxPass *p, int k, GxRows dx, GxRows dout, GxRows dy); // dx: around the core; dout: into it

// Compute this rank's heads, columns, rows of the vocabulary, or slice of T. `in` is never written.
void gx_core_forward(GxPass *p, int k, GxRows out, GxRows in);
void gx_core_backward_input(GxPass *p, int k, GxRows din, GxRows dout, GxRows in); // never writes dout
void gx_core_backward_weight(GxPass *p, int k, GxRows dout, GxRows in);            // never communicates

// ---- the interface of a core; cores.h lists them -------------------------------------------------------------------

typedef struct { // places a slot's buffers one after another
    GxArena arena;
    const GxModel *m;
    int unit;
    int64_t all, own, con; // the pair's rows: all, those of this rank's slice, those of CON's layout
    int64_t own_begin;     // the slice's first row
    int defers_weights;
} GxSlotLayout;

typedef struct {
    void (*open)(GxContext *g, GxModel *m, int unit, int k, int number);                      // declares its tensors
    void (*layout)(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s); // places what it keeps
    void (*forward)(GxPass *p, int k, GxRows out, GxRows in);
    void (*backward_input)(GxPass *p, int k, GxRows din, GxRows dout, GxRows in);
    void (*backward_weight)(GxPass *p, int k, GxRows dout, GxRows in);
} GxCore;
void gx_bottleneck_layout(GxSlotLayout *l, const GxUnitKind *u, int k,
                          GxPairSlot *s);                                  // bottleneck.h: places what it keeps
void gx_scale_layout(GxSlotLayout *l, int k, int64_t rows, GxPairSlot *s); // scale.h, likewise
// side.h: what a unit of a side network computes before its first pair (enter: returns that pair's input) and after its
// last one (leave), and their backward.
void gx_side_layout(GxSlotLayout *l, const GxUnitKind *u, GxSideSlot *s);
GxRows gx_side_enter(GxPass *p, GxState out, GxState in);
void gx_side_leave(GxPass *p, GxState out, GxState in);
GxRows gx_side_leave_backward(GxPass *p, GxState dout);
void gx_side_enter_backward(GxPass *p, GxState din, GxRows dmixed, GxState in);
int gx_side_trains_enter(const GxPass *p);
const GxCore *gx_core(GxCoreKind kind); // cores.h

int gx_head_writes_dx(const GxPass *p); // 1: a head writes the gradient of its input; 0: it adds to it

GxRows gx_slot_rows(GxSlotLayout *l, int64_t rows, int64_t cols);
GxRows gx_pass_rows(GxPass *p, int64_t rows, int64_t cols); // scratch until the pair is done
// The same for a head's target's rows, split by this method. The memory is for the most rows that a batch may have.
GxRows gx_pass_picked(GxPass *p, int k, GxMethod by, int64_t rows, int64_t cols);
int64_t gx_picked_most(const GxPass *p, int k, GxMethod by, int64_t rows);

// For the parts of a pair: their name in recordings and errors, their description, their tensors.
typedef enum { GX_AT_NORM = 0, GX_AT_CORE, GX_AT_CON } GxPassPart;
void gx_pass_at(const GxPass *p, int k, GxPassPart part); // "att_norm", "att", "att_con"
static inline const GxUnitKind *gx_pass_kind(const GxPass *p) { return &p->m->kind[p->m->unit[p->unit].kind]; }
static inline const GxPairSpec *gx_pass_spec(const GxPass *p, int k) { return &gx_pass_kind(p)->spec.pair[k]; }
static inline const GxPair *gx_pass_pair(const GxPass *p, int k) { return &p->m->unit[p->unit].pair[k]; }
static inline int gx_pass_has_adapter(const GxPass *p, int k) // bottleneck.h
{
    return gx_pass_pair(p, k)->adapter[0].first.index >= 0;
}
static inline int gx_pass_is_side(const GxPass *p) { return gx_pass_kind(p)->spec.side != GX_SIDE_NONE; }
static inline GxPairSlot *gx_pass_slot(const GxPass *p, int k) { return &p->slot->pair[k]; }
static inline const GxTarget *gx_pass_target(const GxPass *p, int k)
{
    return &p->b->target[gx_pass_spec(p, k)->core.target];
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_UNIT_IMPLEMENTED)
#define GX_UNIT_IMPLEMENTED
#include <string.h>
#include "../ops/elementwise.h"

void gx_pass_at(const GxPass *p, int k, GxPassPart part)
{
    static const char *const names[GX_CORE_KINDS][3] = {
        {"att_norm", "att", "att_con"},          {"mlp_norm", "mlp", "mlp_con"},
        {"embed_norm", "embed", "embed_con"},    {"head_norm", "head", "head_con"},
        {"labels_norm", "labels", "labels_con"}, {"vectors_norm", "vectors", "vectors_con"}};
    gx_at(p->g, p->unit, names[gx_pass_spec(p, k)->core.kind][part]);
}

// ---- rows ----------------------------------------------------------------------------------------------------------

static int gx__unit_is_sp(const GxModel *m, GxMethod method) { return method == GX_METHOD_SP && m->members > 1; }

// How the T*B rows of a batch are split over the ranks of SP: slices of T, with all B columns.
static GxSplit gx__unit_slices(const GxModel *m, int64_t T, int64_t B)
{
    GxSplit rows = T == m->max_T ? m->sequence : gx_split_like(&m->sequence, T);
    for (int r = 0; r <= rows.n; r++) rows.begin[r] *= B;
    return rows;
}

static int64_t gx__unit_own(const GxModel *m, const GxSplit *rows)
{
    return rows->n > 1 ? gx_split_part(rows, m->member) : gx_split_total(rows);
}

GxMethod gx_core_method(const GxPass *p, int k)
{
    return gx_methods_of(p->m->mode->methods, gx_pass_spec(p, k)->core.kind);
}

// CON and core are both split by SP: each rank has only its slice.
static int gx__unit_stays(const GxPass *p, int k)
{
    return gx__unit_is_sp(p->m, p->m->mode->methods.con) && gx_core_method(p, k) == GX_METHOD_SP;
}
// CON is split by SP and the core is not: rows are moved between them.
static int gx__unit_moves(const GxPass *p, int k)
{
    return gx__unit_is_sp(p->m, p->m->mode->methods.con) && gx_core_method(p, k) != GX_METHOD_SP;
}

static int gx__unit_is_end(const GxPairSpec *s) { return s->con.kind == GX_CON_NOTHING; } // a head's pair

const GxSplit *gx_pair_rows(const GxPass *p, int k)
{
    return gx__unit_is_end(gx_pass_spec(p, k)) ? &p->slot->picked[k] : &p->slot->rows;
}

static int64_t gx__unit_all(const GxPass *p, int k)
{
    return gx__unit_is_end(gx_pass_spec(p, k)) ? gx_target_n(p->b, gx_pass_spec(p, k)->core.target) : p->b->T * p->b->B;
}

static int64_t gx__unit_whole(const GxPass *p, int k)
{
    return gx__unit_stays(p, k) ? gx__unit_own(p->m, gx_pair_rows(p, k)) : gx__unit_all(p, k);
}

static GxRows gx__unit_stream(const GxModel *m, int64_t T, int64_t B, int64_t width, void *data)
{
    GxSplit rows;
    if (!gx__unit_is_sp(m, m->mode->methods.con)) return gx_rows(data, m->store.dtype, T * B, width);
    rows = gx__unit_slices(m, T, B);
    return gx_rows(data, m->store.dtype, gx__unit_own(m, &rows), width);
}

GxRows gx_stream_rows(const GxModel *m, int64_t T, int64_t B, void *data)
{
    return gx__unit_stream(m, T, B, gx_model_width(m), data);
}

static GxRows gx__unit_side_stream(const GxModel *m, int64_t T, int64_t B, void *data)
{
    return gx__unit_stream(m, T, B, gx_model_width(m) / m->side.reduction, data);
}

GxState gx_state_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data)
{
    GxState s = {gx_no_rows(), gx_no_rows(), gx_no_rows()};
    if (!data) return s;
    s.x = gx_stream_rows(m, T, B, data);
    if (m->unit[unit].has_side)
        s.side = gx__unit_side_stream(m, T, B, (char *)data + gx_round_up(gx_rows_bytes(s.x), GX_ALIGN));
    return s;
}

// 1: only the side network is trained below this unit, so only its stream has a gradient.
static int gx__unit_has_side_gradient(const GxModel *m, int unit)
{
    return m->unit[unit].has_side && gx_unit_spec(m, unit)->side != GX_SIDE_NONE;
}

GxState gx_gradient_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data)
{
    GxState s = {gx_no_rows(), gx_no_rows(), gx_no_rows()};
    if (!data) return s;
    if (gx__unit_has_side_gradient(m, unit)) s.side = gx__unit_side_stream(m, T, B, data);
    else s.x = gx_stream_rows(m, T, B, data);
    return s;
}

int64_t gx_state_bytes(const GxModel *m, int unit, int64_t T, int64_t B)
{
    const int64_t x = gx_rows_bytes(gx_stream_rows(m, T, B, NULL));
    if (!m->unit[unit].has_side) return x;
    return gx_round_up(x, GX_ALIGN) + gx_rows_bytes(gx__unit_side_stream(m, T, B, NULL));
}

int64_t gx_gradient_bytes(const GxModel *m, int unit, int64_t T, int64_t B)
{
    return gx_rows_bytes(gx__unit_has_side_gradient(m, unit) ? gx__unit_side_stream(m, T, B, NULL)
                                                             : gx_stream_rows(m, T, B, NULL));
}

int64_t gx_slice_begin(const GxPass *p) { return p->slot->rows.n > 1 ? p->slot->rows.begin[p->m->member] : 0; }
GxRows gx_slice(const GxPass *p, GxRows all)
{
    return all.data ? gx_some_rows(all, gx_slice_begin(p), gx__unit_own(p->m, &p->slot->rows)) : all;
}
static GxRows gx__unit_cut(const GxPass *p, const GxSplit *rows, GxRows all)
{
    if (!all.data || rows->n == 1) return all;
    return gx_some_rows(all, rows->begin[p->m->member], gx_split_part(rows, p->m->member));
}
GxRows gx_own(const GxPass *p, int k, GxRows whole)
{
    return gx__unit_stays(p, k) ? whole : gx__unit_cut(p, gx_pair_rows(p, k), whole);
}
GxRows gx_con_rows(const GxPass *p, int k, GxRows whole)
{
    return gx__unit_moves(p, k) ? gx__unit_cut(p, gx_pair_rows(p, k), whole) : whole;
}

int64_t gx_picked_begin(const GxPass *p, int k, GxMethod by)
{
    return gx__unit_is_sp(p->m, by) ? gx_pair_rows(p, k)->begin[p->m->member] : 0;
}

const int32_t *gx_entered_rows(const GxPass *p, int k)
{
    const int32_t *rows = gx__unit_is_end(gx_pass_spec(p, k)) ? gx_pass_target(p, k)->rows : NULL;
    return rows ? rows + gx_picked_begin(p, k, p->m->mode->methods.con) : NULL;
}

int gx_adds_loss(const GxPass *p, int k) { return gx_core_method(p, k) == GX_METHOD_SP || p->m->member == 0; }

GxDropout gx_pass_dropout(const GxPass *p, int k, int which, float probability)
{
    GxDropout d = gx_no_dropout();
    if (!p->b->is_training) return d;
    d.p = probability;
    d.site = gx_random_site(GX_SITE_DROPOUT, 2 * (GX_MAX_PAIRS + 1) * p->unit + 2 * k + which);
    d.first_sample = p->b->first_sample, d.T = p->b->T, d.B = p->b->B;
    d.first_row = gx__unit_is_sp(p->m, p->m->mode->methods.con) ? gx_slice_begin(p) : 0;
    return d;
}

GxRows gx_pass_rows(GxPass *p, int64_t rows, int64_t cols)
{
    const GxDtype dtype = p->m->store.dtype;
    GxRows r = gx_rows(NULL, dtype, rows, cols);
    r.data = gx_scratch(p->g, GX_MEM_ACTIVATIONS, gx_rows_bytes(r));
    return r;
}

int64_t gx_picked_most(const GxPass *p, int k, GxMethod by, int64_t rows)
{
    const GxTarget *t = gx_pass_target(p, k);
    const int64_t most = t->rows && t->most ? t->most : rows;
    if (gx_pass_spec(p, k)->con.kind != GX_CON_NOTHING) return rows;
    return gx__unit_is_sp(p->m, by) && t->rows ? gx_min(most, gx__unit_own(p->m, &p->slot->rows)) : most;
}

GxRows gx_pass_picked(GxPass *p, int k, GxMethod by, int64_t rows, int64_t cols)
{
    GxRows r = gx_pass_rows(p, gx_picked_most(p, k, by, rows), cols);
    r.rows = rows;
    return r;
}

GxRows gx_core_in(const GxPass *p, int k, GxRows x) { return gx_pass_slot(p, k)->in.data ? gx_pass_slot(p, k)->in : x; }

GxRows gx_core_out(GxPass *p, int k)
{
    const GxConKind con = gx_pass_spec(p, k)->con.kind;
    if (!p->y.data || con == GX_CON_NOTHING) return gx_no_rows();
    if (con == GX_CON_EMBED && p->y.rows == gx__unit_whole(p, k))
        return gx_pass_spec(p, k)->con.has_norm ? gx_pass_slot(p, k)->sum : p->y;
    return gx_pass_rows(p, gx__unit_whole(p, k), gx_pass_kind(p)->spec.width);
}

GxRows gx_core_din(GxPass *p, int k)
{
    if (!p->wants_din) return gx_no_rows();
    return gx_pass_picked(p, k, gx__unit_stays(p, k) ? GX_METHOD_SP : GX_METHOD_NONE, gx__unit_whole(p, k),
                          gx_pass_kind(p)->spec.width);
}

GxRows gx_core_dout(GxPass *p, int k, GxRows dx)
{
    if (gx_pass_spec(p, k)->con.kind == GX_CON_NOTHING || !p->wants_core) return gx_no_rows();
    if (p->defers_weights) return gx_pass_slot(p, k)->dout;
    const GxConSpec *con = &gx_pass_spec(p, k)->con;
    const int is_apart =
        gx__unit_moves(p, k) || (con->kind == GX_CON_ADD && (con->dropout > 0 || gx_pass_has_adapter(p, k)));
    return is_apart ? gx_pass_rows(p, gx__unit_whole(p, k), gx_pass_kind(p)->spec.width) : dx;
}

// ---- slots ---------------------------------------------------------------------------------------------------------

GxRows gx_slot_rows(GxSlotLayout *l, int64_t rows, int64_t cols)
{
    GxRows r = gx_rows(NULL, l->m->store.dtype, rows, cols);
    r.data = gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, gx_rows_bytes(r));
    return r;
}

static float *gx__unit_layout_floats(GxSlotLayout *l, int64_t n)
{
    return (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * n);
}

static void gx__unit_layout_enter(GxSlotLayout *l, const GxEnterSpec *enter, int64_t C, GxPairSlot *s)
{
    const int kept = enter->kind == GX_ENTER_TRANSFORM ? 2 : enter->kind == GX_ENTER_POOL;
    for (int i = 0; i < kept; i++) s->enter[i] = gx_slot_rows(l, l->con, C);
    if (enter->kind == GX_ENTER_NORM || enter->kind == GX_ENTER_TRANSFORM) s->rstd = gx__unit_layout_floats(l, l->con);
    if (enter->kind == GX_ENTER_TRANSFORM) s->mean = gx__unit_layout_floats(l, l->con);
}

// Where `in` has more rows than the stream and enter is nothing, the stream is this rank's slice of `in`.
static void gx__unit_layout_pair(GxSlotLayout *l, const GxUnitKind *u, int k, GxPairSlot *s)
{
    const GxPairSpec *spec = &u->spec.pair[k];
    const GxMethods *by = &l->m->mode->methods;
    const GxMethod core = gx_methods_of(*by, spec->core.kind);
    const int64_t rows = core == GX_METHOD_SP ? l->own : l->all, whole = core == GX_METHOD_SP ? l->con : l->all,
                  C = u->spec.width;
    const int is_end = gx__unit_is_end(spec), has_stream = k > 0 && !is_end,
              is_x = spec->enter.kind == GX_ENTER_NOTHING && whole == l->con && !is_end,
              lies_inside = has_stream && spec->enter.kind == GX_ENTER_NOTHING && !is_x;
    if (has_stream && !lies_inside) s->stream = gx_slot_rows(l, l->con, C);
    if (spec->core.kind != GX_CORE_EMBED && !is_x) s->in = gx_slot_rows(l, whole, C);
    if (lies_inside) s->stream = gx_some_rows(s->in, l->own_begin, l->con);
    gx__unit_layout_enter(l, &spec->enter, C, s);
    if (spec->con.has_norm) {
        s->sum = gx_slot_rows(l, l->con, C);
        s->con_mean = gx__unit_layout_floats(l, l->con), s->con_rstd = gx__unit_layout_floats(l, l->con);
    }
    gx_bottleneck_layout(l, u, k, s);
    if (l->defers_weights && !is_end) s->dout = gx_slot_rows(l, whole, C);
    gx_core(spec->core.kind)->layout(l, u, k, rows, s);
    gx_scale_layout(l, k, rows, s);
}

static void gx__unit_layout_rows(GxSlotLayout *l, const GxSplit *own, int64_t all)
{
    l->all = all;
    l->own = own->n > 1 ? gx_split_part(own, l->m->member) : l->all;
    l->own_begin = own->n > 1 ? own->begin[l->m->member] : 0;
    l->con = gx__unit_is_sp(l->m, l->m->mode->methods.con) ? l->own : l->all;
}

// Places all buffers of a slot at `base` and returns their size. picked NULL: a head is planned for as many rows as the
// batch has.
static int64_t gx__unit_layout(const GxModel *m, int unit, const GxSplit *rows, const GxSplit *picked, int64_t all,
                               int defers_weights, void *base, GxPairSlot *pair, GxSideSlot *side)
{
    const GxUnitKind *u = &m->kind[m->unit[unit].kind];
    GxSlotLayout l = GX_ZERO;
    gx_arena_open_dry(&l.arena);
    if (base) l.arena.base = (char *)base;
    l.m = m, l.unit = unit, l.defers_weights = defers_weights;
    memset(pair, 0, GX_MAX_PAIRS * sizeof *pair);
    memset(side, 0, sizeof *side);
    for (int k = 0; k < u->spec.n_pairs; k++) {
        const GxSplit *own = picked && gx__unit_is_end(&u->spec.pair[k]) ? &picked[k] : rows;
        gx__unit_layout_rows(&l, own, own == rows ? all : gx_split_total(own));
        gx__unit_layout_pair(&l, u, k, &pair[k]);
    }
    gx__unit_layout_rows(&l, rows, all);
    gx_side_layout(&l, u, side);
    return l.arena.used;
}

int64_t gx_slot_bytes(const GxModel *m, int unit, int64_t T, int64_t B, int defers_weights)
{
    const GxSplit rows = gx__unit_slices(m, T, B);
    GxPairSlot pair[GX_MAX_PAIRS];
    GxSideSlot side;
    return gx__unit_layout(m, unit, &rows, NULL, T * B, defers_weights, NULL, pair, &side);
}

// How many of a target's rows lie in each rank's slice. A device that does not compute has no rows to count: the plan
// then assumes that this rank's slice has as many as it can.
static GxSplit gx__unit_picked(const GxPass *p, const GxSplit *slices, const GxTarget *t)
{
    GxSplit s = *slices;
    const int me = p->m->member, is_last = me == s.n - 1;
    const int32_t *rows = gx_target_rows(t);
    if (!t->rows) return s;
    s.begin[s.n] = t->n;
    if (s.n == 1) return s;
    const int64_t most = gx_min(t->n, gx_split_part(slices, me));
    for (int r = 1; r < s.n; r++) {
        int64_t at = r <= me ? (is_last ? t->n - most : 0) : most;
        if (p->g->device->computes)
            for (at = s.begin[r - 1]; at < t->n && rows[at] < slices->begin[r];) at++;
        s.begin[r] = at;
    }
    return s;
}

void gx_slot_layout(GxPass *p, void *base)
{
    const GxModel *m = p->m;
    const GxBatch *b = p->b;
    if (b->T < m->sequence.n || b->T > m->max_T || b->B < 1 || b->B > m->max_B) {
        GX_FAIL(&p->g->error, GX_ERR_ARGUMENT,
                "a batch of %ld sequences of %ld tokens; memory was taken for at most %ld of %d to %ld tokens",
                (long)b->B, (long)b->T, (long)m->max_B, m->sequence.n, (long)m->max_T);
        return;
    }
    const GxUnitSpec *u = gx_unit_spec(m, p->unit);
    p->slot->rows = gx__unit_slices(m, b->T, b->B);
    for (int k = 0; k < u->n_pairs; k++)
        if (gx__unit_is_end(&u->pair[k]))
            p->slot->picked[k] = gx__unit_picked(p, &p->slot->rows, &b->target[u->pair[k].core.target]);
    gx__unit_layout(m, p->unit, &p->slot->rows, p->slot->picked, b->T * b->B, p->defers_weights, base, p->slot->pair,
                    &p->slot->side);
}

// ---- units ---------------------------------------------------------------------------------------------------------

void gx_core_forward(GxPass *p, int k, GxRows out, GxRows in)
{
    gx_pass_at(p, k, GX_AT_CORE);
    gx_core(gx_pass_spec(p, k)->core.kind)->forward(p, k, out, in);
}

void gx_core_backward_input(GxPass *p, int k, GxRows din, GxRows dout, GxRows in)
{
    if (!p->wants_core) return;
    gx_pass_at(p, k, GX_AT_CORE);
    gx_core(gx_pass_spec(p, k)->core.kind)->backward_input(p, k, din, dout, in);
}

void gx_core_backward_weight(GxPass *p, int k, GxRows dout, GxRows in)
{
    if (p->defers_weights || !p->wants_core) return;
    gx_pass_at(p, k, GX_AT_CORE);
    gx_core(gx_pass_spec(p, k)->core.kind)->backward_weight(p, k, dout, in);
}

// All pairs of a head read what enters it.
static GxRows gx__unit_x(const GxPass *p, int k, GxState in)
{
    if (gx__unit_is_end(gx_pass_spec(p, k))) return in.x;
    if (k) return gx_pass_slot(p, k)->stream;
    return gx_pass_is_side(p) ? p->slot->side.mixed : in.x;
}

// A head has nothing to do if its target has no row on any rank of the tp group, or asks for neither a loss nor logits.
static int gx__unit_has_work(const GxPass *p, int k)
{
    if (!gx__unit_is_end(gx_pass_spec(p, k))) return 1;
    const GxTarget *t = gx_pass_target(p, k);
    return gx__unit_all(p, k) > 0 && (t->labels || t->values || t->parts || t->logits.data);
}

static void gx__unit_pair_forward(GxPass *p, int k, GxRows y, GxState in)
{
    GxArena *a = p->g->arena;
    const GxArenaMark mark = gx_arena_mark(a);
    if (!gx__unit_has_work(p, k)) return;
    // CON's norm, an adapter and a scale of the last matrix write what the slot keeps together with their result, so
    // the result is computed even if the caller does not need it
    if (!y.data &&
        (gx_pass_spec(p, k)->con.has_norm || gx_pass_has_adapter(p, k) || gx_pair_has_scale(p->m, p->unit, k)))
        y = gx_pass_rows(p, gx_stream_rows(p->m, p->b->T, p->b->B, NULL).rows, gx_pass_kind(p)->spec.width);
    p->y = y;
    p->m->mode->pair_forward(p, k, y, gx__unit_x(p, k, in));
    gx_arena_release(a, mark);
}

static int gx__unit_is_head(const GxPass *p)
{
    const int n = gx_pass_kind(p)->spec.n_pairs;
    return n > 0 && gx__unit_is_end(gx_pass_spec(p, n - 1));
}

// A head of one pair that reads all rows writes the gradient of its input. Others add to it: their pairs share the
// input, or leave out rows.
int gx_head_writes_dx(const GxPass *p)
{
    return gx_pass_kind(p)->spec.n_pairs == 1 && !gx_pass_target(p, 0)->rows && gx__unit_has_work(p, 0);
}

void gx_unit_pass_through(GxContext *g, GxState out, GxState in)
{
    if (out.side.data) gx_copy(g, out.side.data, in.side.data, gx_rows_bytes(out.side));
}

void gx_unit_forward(GxPass *p, GxState out, GxState in)
{
    const int n = gx_pass_kind(p)->spec.n_pairs, is_side = gx_pass_is_side(p);
    if (p->b->is_training && gx__unit_is_head(p)) return;
    const GxRows y = is_side ? gx_side_enter(p, out, in) : out.x;
    for (int k = 0; k < n && !gx_failed(p->g); k++)
        gx__unit_pair_forward(p, k, k + 1 < n ? gx_pass_slot(p, k + 1)->stream : y, in);
    if (is_side) gx_side_leave(p, out, in);
    else gx_unit_pass_through(p->g, out, in);
}

static int gx__unit_trains(const GxPass *p, GxTensorId id)
{
    return id.index >= 0 && gx_store_trains(&p->m->store, id.index);
}

static int gx__unit_trains_lora(const GxPass *p, const GxLinear *l) // of a linear of one part
{
    const GxTensor *t = l->first.index < 0 ? NULL : &p->m->table.row[l->first.index];
    const GxTensorId b = {t ? t->lora.index + 1 : -1};
    return t && t->has_lora && (gx__unit_trains(p, t->lora) || gx__unit_trains(p, b));
}

// 1: a tensor of enter, which precedes the core, is trained.
static int gx__unit_trains_enter(const GxPass *p, int k)
{
    const GxPair *pair = gx_pass_pair(p, k);
    return gx__unit_trains(p, pair->norm.weight) || gx__unit_trains(p, pair->norm.bias) ||
           gx__unit_trains(p, pair->enter.first) || gx__unit_trains(p, pair->enter.bias) ||
           gx__unit_trains_lora(p, &pair->enter);
}

// 1: row i of the table is CON's of pair k.
static int gx__unit_is_of_con(const GxPass *p, int k, int i)
{
    const GxPair *pair = gx_pass_pair(p, k);
    const GxTensorId of_con[] = {
        pair->con_norm.weight,  pair->con_norm.bias,   pair->con_bias,         pair->positions,      pair->types,
        pair->adapter[0].first, pair->adapter[0].bias, pair->adapter[1].first, pair->adapter[1].bias};
    int is = 0;
    for (size_t n = 0; n < sizeof of_con / sizeof *of_con; n++) is |= of_con[n].index == i;
    return is;
}

static int gx__unit_trains_core(const GxPass *p, int k)
{
    const GxUnit *u = &p->m->unit[p->unit];
    int some = 0;
    for (int i = u->first_row; i < u->first_row + u->rows; i++)
        some |= p->m->table.row[i].pair == k && gx_store_trains(&p->m->store, i) && !gx__unit_is_of_con(p, k, i);
    return some;
}

static int gx__unit_trains_pair(const GxPass *p, int k)
{
    const GxUnit *u = &p->m->unit[p->unit];
    int some = 0;
    for (int i = u->first_row; i < u->first_row + u->rows; i++)
        some |= p->m->table.row[i].pair == k && gx_store_trains(&p->m->store, i);
    return some;
}

// 1: something below pair k is trained: in an earlier pair of this unit, or below the unit (din then has rows).
static int gx__unit_trains_below(const GxPass *p, int k, GxState din)
{
    int some = din.x.data || din.side.data || (gx_pass_is_side(p) && gx_side_trains_enter(p));
    for (int i = 0; i < k; i++) some |= gx__unit_trains_pair(p, i);
    return some;
}

void gx_unit_backward(GxPass *p, GxState din, GxState dout, GxState in)
{
    GxArena *a = p->g->arena;
    const GxArenaMark mark = gx_arena_mark(a);
    const int n = gx_pass_kind(p)->spec.n_pairs;
    const int is_side = gx_pass_is_side(p);
    GxRows dy = dout.x, dx = din.x.data ? din.x : dout.x;
    if (is_side) dy = gx_side_leave_backward(p, dout), dx = din.side.data ? din.side : dy;
    for (int k = 0; k < n && gx__unit_is_head(p); k++) gx__unit_pair_forward(p, k, gx_no_rows(), in);
    if (!dx.data) dx = gx_pass_rows(p, in.x.rows, in.x.cols); // only the head is trained: dx is scratch
    if (gx__unit_is_head(p) && !gx_head_writes_dx(p)) gx_zero(p->g, dx.data, gx_rows_bytes(dx));
    for (int k = n - 1; k >= 0 && !gx_failed(p->g); k--, dy = dx) {
        const int below = gx__unit_is_head(p) ? din.x.data != NULL : gx__unit_trains_below(p, k, din);
        const GxArenaMark pair = gx_arena_mark(a);
        if (!below && !gx__unit_trains_pair(p, k)) {
            if (gx__unit_is_head(p)) continue; // a head's pairs all read x, so an earlier one may still be trained
            break;
        }
        if (!gx__unit_has_work(p, k)) continue;
        p->wants_din = below || gx__unit_trains_enter(p, k);
        p->wants_core = p->wants_din || gx__unit_trains_core(p, k);
        p->m->mode->pair_backward(p, k, dx, dy, gx__unit_x(p, k, in));
        gx_arena_release(a, pair);
    }
    if (is_side) gx_side_enter_backward(p, din, dx, in);
    gx_arena_release(a, mark);
}

void gx_unit_weight(GxPass *p, GxState in)
{
    GxArena *a = p->g->arena;
    GxPass w = *p;
    w.defers_weights = 0;
    for (int k = gx_pass_kind(p)->spec.n_pairs - 1; k >= 0; k--) {
        const GxArenaMark pair = gx_arena_mark(a);
        const GxPairSlot *s = gx_pass_slot(p, k);
        const int is_sp = gx_core_method(p, k) == GX_METHOD_SP;
        GxRows dout = s->dout, core_in = gx_core_in(p, k, gx__unit_x(p, k, in));
        w.wants_core = gx__unit_trains_core(p, k);
        w.dcore[0] = s->dcore[0], w.dcore[1] = s->dcore[1];
        if (dout.data && w.wants_core)
            gx_core_backward_weight(&w, k, is_sp ? gx_own(p, k, dout) : dout, is_sp ? gx_own(p, k, core_in) : core_in);
        gx_arena_release(a, pair);
    }
}
#endif
