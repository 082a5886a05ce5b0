// model/pass.h: a unit's runtime view of the model and the batch (its pass), what it keeps for the backward (its slot),
// and the rows that its pairs work on.
//
// A unit is pure: it uses only its pass and the rows that it is given (unit.h). Inside a unit a mode says, for one
// pair, in which order enter, core and CON run and what is communicated between them. The rows of pair k that it passes
// around:
//     x, y, dx, dy   the stream before and after the pair, and their gradients: in CON's layout
//     in, out        the core's input and output; din, dout: their gradients; all rows, unless CON and core are both SP
//
// Which of these may be the same rows:
//     dx and dy      may be the same; din and dx never are
//     dout and dx    are the same unless CON has dropout, an adapter or a norm of `out`, a collective gives dout other
//                    rows, or the weight half is deferred. enter_backward writes dx, so it has to follow the weight
//                    half, which reads dout
//     in and x       are the same if enter is nothing and no rows are communicated
//     out and y      are the same if CON has nothing to compute. With a norm of `out`, it is what CON keeps
//
// A head works only on the rows of its target: enter picks them out of x, and from there on only these are
// communicated. A rank may have none of them. If the whole batch has none, a head's pair does nothing at all, not even
// collectives.
//
// Modes name a pair by (pass, k). The functions that compute the parts of a pair get a view of it (GxPairView), with
// its description, tensors and slot:
//
//     static void forward(const GxPairView *v, GxRows out, GxRows in)
//     {
//         gx_linear_apply(v->p, &v->pair->linear[0], v->slot->core[0], in, 0);
//         ...
//
// Rows that live no longer than one pair (out, din, dout, inner gradients) are scratch from the context's arena.
#ifndef GX_PASS_H
#define GX_PASS_H
#include "../ops/dropout.h"
#include "model.h"
GX_BEGIN

// ---- what a unit keeps ---------------------------------------------------------------------------------------------

typedef struct {        // of one pair
    GxRows stream;      // x of pair k > 0
    GxRows in;          // the core's input; no rows if it is x
    float *mean, *rstd; // of the norm before the core; for CON's rows
    GxRows enter[2];    // TRANSFORM: before and after the activation; POOL: after tanh
    GxRows sum;         // the input of CON's norm, of the sum or of the core's result; CON's rows
    float *con_mean, *con_rstd;
    GxRows adapter[2];    // CON's: its input and its hidden rows (bottleneck.h)
    GxRows core[4];       // the core's own
    float *lse, *qk_rstd; // of attention; of the norms of its heads
    GxRows product[2];    // of linears with a scale: what the scale multiplies (scale.h)
    GxRows prompt[7];     // attention's: what prompts keep (prompt.h)
    float *prompt_lse, *prompt_rstd;
    GxRows dout, dcore[2]; // read by deferred weight halves
    int is_entered;        // 1: the CON of the previous pair has already written `in`
} GxPairSlot;

typedef struct {  // of a side network's unit, for CON's rows
    GxRows down;  // Down(h), if the network is gated
    GxRows mixed; // what its first pair reads
    GxRows top;   // in the last unit: the input of Up
} GxSideSlot;

typedef struct {
    GxSplit rows;                 // the T*B rows of the batch over the tp group, if any block is split by SP
    GxSplit picked[GX_MAX_PAIRS]; // of a head: how its target's rows are split
    GxPairSlot pair[GX_MAX_PAIRS];
    GxSideSlot side;
} GxSlot;

typedef struct { // places a slot's buffers one after another
    GxArena arena;
    const GxModel *m;
    int unit;
    int64_t all, own, con; // how many rows: all, in this rank's slice, in CON's layout
    int64_t whole;         // of whole sequences: `all`, unless the batch has a part of them (cp)
    int64_t memory;        // of an encoder's output; 0: the model has none
    int64_t own_begin;     // the slice's first row
    int defers_weights;
} GxSlotLayout;
GxRows gx_slot_rows(GxSlotLayout *l, int64_t rows, int64_t cols);
float *gx_slot_floats(GxSlotLayout *l, int64_t n);

// ---- the pass ------------------------------------------------------------------------------------------------------

struct GxPass {
    GxContext *g;
    GxModel *m;
    const GxBatch *b;
    GxSlot *slot;
    int unit;
    int is_training; // 0: only losses and outputs are computed, without dropout
    GxLossSums losses;
    int defers_weights; // 1: gx_unit_backward leaves the weight halves to gx_unit_weight; the slot owns what they
                        // read
    // set by the unit itself, for each pair
    GxRows y;        // where the pair's result is written; no rows: it is not needed
    int wants_din;   // 1: something below is trained, or the norm before the core
    int wants_core;  // 1: wants_din, or something in the core is trained; 0: the backward ends in CON
    GxRows dcore[2]; // inner gradients, passed from the input half to the weight half
    // An encoder's output, and the gradient of it: all rows, unless attention and CON are both SP. Units that attend to
    // it add to that gradient; with writes_memory, the first one in the backward writes it.
    GxRows memory, dmemory;
    int writes_memory;
    // set by a mode whose collectives go by tiles (tiles.h); NULL: none
    GxTiles *arriving, *leaving;
};

static inline const GxUnitKind *gx_pass_kind(const GxPass *p) { return &p->m->kind[p->m->unit[p->unit].kind]; }
static inline int gx_pass_is_side(const GxPass *p) { return gx_pass_kind(p)->spec.side != GX_SIDE_NONE; }

// What enter, core and CON of pair k of the pass's unit work with.
typedef struct {
    GxPass *p;
    int k;
    GxContext *g;
    GxModel *m;
    GxStore *store;
    const GxBatch *b;
    const GxUnitKind *kind;
    const GxPairSpec *spec;
    const GxPair *pair;     // its tensors
    GxPairSlot *slot;       // what it keeps
    const GxTarget *target; // of a head
} GxPairView;
GxPairView gx_view(const GxPass *p, int k);

static inline int gx_view_is_head(const GxPairView *v) { return gx_pair_is_head(v->spec); }
static inline int gx_view_rotates(const GxPairView *v) // 1: RoPE is applied to q and k
{
    return v->spec->core.rope.theta > 0 && !v->m->unit[v->p->unit].skips_rope;
}
static inline const GxRopeTable *gx_view_rope(const GxPairView *v) // of its attention
{
    return &v->m->rope[gx_pass_is_side(v->p)][v->m->unit[v->p->unit].local_rope];
}
static inline int gx_view_has_adapter(const GxPairView *v) { return v->pair->adapter[0].first.index >= 0; }
// A weight; NULL: the pair has no such tensor.
static inline void *gx_view_weight(const GxPairView *v, GxTensorId id)
{
    return id.index < 0 ? NULL : gx_store_weight(v->store, id);
}
// For recordings and errors: "att_norm", "att", "att_con".
typedef enum { GX_AT_NORM = 0, GX_AT_CORE, GX_AT_CON } GxPassPart;
const char *gx_site_name(GxCoreKind core, GxPassPart part);
void gx_view_at(const GxPairView *v, GxPassPart part);

// ---- rows of a pair, for modes -------------------------------------------------------------------------------------

GxMethod gx_core_method(const GxPass *p, int k);
GxRows gx_core_in(const GxPass *p, int k, GxRows x);
GxRows gx_core_out(GxPass *p, int k);
GxRows gx_core_din(GxPass *p, int k);                // without rows if nothing below is trained
GxRows gx_core_dout(GxPass *p, int k, GxRows dx);    // without rows if neither the core nor anything below is trained
GxRows gx_own(const GxPass *p, int k, GxRows whole); // this rank's slice of T; `whole` itself if it is that slice
const GxSplit *gx_pair_rows(const GxPass *p, int k); // how the core's rows (a head's: its target's) are split

// ---- rows of a pair, for enter, CON and cores ----------------------------------------------------------------------

GxMethod gx_view_method(const GxPairView *v);          // of the core
GxRows gx_con_rows(const GxPairView *v, GxRows whole); // the rows of CON's layout within those of the core
GxRows gx_slice(const GxPass *p, GxRows all);          // this rank's slice of all rows
int64_t gx_slice_begin(const GxPass *p);               // its first row
int64_t gx_memory_begin(const GxPairView *v);          // that of its slice of an encoder's output
int64_t gx_batch_rows(const GxPairView *v);            // all rows of the batch; of a head: of its target
// For a head: which row of its target is this rank's first, if rows are split by this method (CON's or the core's).
int64_t gx_picked_begin(const GxPairView *v, GxMethod by);
const int32_t *gx_entered_rows(const GxPairView *v); // which rows of the stream enter the pair on this rank; NULL: all
// 1 on ranks whose losses are summed: of ranks that compute the same rows, only on the first.
int gx_adds_loss(const GxPairView *v);
const int64_t *gx_view_count(const GxPairView *v);                            // the divisor of a head's loss. NULL: 1
void gx_view_add_losses(const GxPairView *v, const float *losses, int64_t n); // [n], to the sum of the head's loss
// 0: a head has nothing to do: its target has no rows on any rank of the tp group, or needs neither loss nor logits.
int gx_view_has_work(const GxPairView *v);
int gx_head_writes_dx(const GxPass *p); // 1: a head writes the gradient of its input; 0: it adds to it
// Dropout number `which` of the pair, for rows of CON's layout; in a validation its probability is 0.
// The core's: of attention's probabilities, of the MLP's activated rows; of the rows that enter reads before labels.
enum { GX_DROPOUT_CON = 0, GX_DROPOUT_CORE };
GxDropout gx_view_dropout(const GxPairView *v, int which, float probability);
// For other rows than CON's: those of the target from picked[0] on (a part of its `rows`), or, without any, the batch's
// from `first` on.
void gx_view_dropout_rows(const GxPairView *v, GxDropout *d, const int32_t *picked, int64_t first);

GxRows gx_pass_rows(GxPass *p, int64_t rows, int64_t cols); // scratch until the pair is done
// The same for rows of a head's target, split by this method. Memory is taken for the most rows that a batch may have.
GxRows gx_picked_rows(const GxPairView *v, GxMethod by, int64_t rows, int64_t cols);
int64_t gx_picked_most(const GxPairView *v, GxMethod by, int64_t rows);

// How the T*B rows of a batch are split over ranks with SP, into slices of T with all B columns; and this rank's part.
GxSplit gx_batch_slices(const GxModel *m, int64_t T, int64_t B);
int64_t gx_own_rows(const GxModel *m, const GxSplit *rows);
static inline int gx_is_sp(const GxModel *m, GxMethod method) { return method == GX_METHOD_SP && m->members > 1; }

// ---- the interface of a core; cores.h lists them -------------------------------------------------------------------

// Cores compute this rank's heads, columns, rows of the vocabulary, or slice of T.
typedef struct {
    void (*open)(GxContext *g, GxModel *m, int unit, int k, int number);                      // declares its tensors
    void (*layout)(GxSlotLayout *l, const GxUnitKind *u, int k, int64_t rows, GxPairSlot *s); // places what it keeps
    void (*forward)(const GxPairView *v, GxRows out, GxRows in);                              // `in` is never written
    void (*backward_input)(const GxPairView *v, GxRows din, GxRows dout, GxRows in);          // never writes dout
    void (*backward_weight)(const GxPairView *v, GxRows dout, GxRows in);                     // never communicates
} GxCore;

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PASS_IMPLEMENTED)
#define GX_PASS_IMPLEMENTED
#include <assert.h>
#include "../ops/elementwise.h"

GxPairView gx_view(const GxPass *p, int k)
{
    GxPairView v;
    v.p = (GxPass *)(uintptr_t)p, v.k = k;
    v.g = p->g, v.m = p->m, v.store = &p->m->store, v.b = p->b;
    v.kind = gx_pass_kind(p), v.spec = &v.kind->spec.pair[k];
    v.pair = &p->m->unit[p->unit].pair[k];
    v.slot = &p->slot->pair[k];
    v.target = &p->b->target[v.spec->core.target];
    return v;
}

const char *gx_site_name(GxCoreKind core, GxPassPart part)
{
    static const char *const names[][3] = {
        {"att_norm", "att", "att_con"},          {"mlp_norm", "mlp", "mlp_con"},
        {"embed_norm", "embed", "embed_con"},    {"head_norm", "head", "head_con"},
        {"labels_norm", "labels", "labels_con"}, {"vectors_norm", "vectors", "vectors_con"},
        {"memory_norm", "memory", "memory_con"}};
    static_assert(sizeof names / sizeof *names == GX_CORE_KINDS, "a row for each kind of core");
    return names[core][part];
}

void gx_view_at(const GxPairView *v, GxPassPart part)
{
    gx_at(v->g, v->p->unit, gx_site_name(v->spec->core.kind, part));
}

// ---- slots ---------------------------------------------------------------------------------------------------------

GxRows gx_slot_rows(GxSlotLayout *l, int64_t rows, int64_t cols)
{
    GxRows r = gx_rows(NULL, l->m->store.dtype, rows, cols);
    r.data = gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, gx_rows_bytes(r));
    return r;
}

float *gx_slot_floats(GxSlotLayout *l, int64_t n)
{
    return (float *)gx_arena_allocate(&l->arena, GX_MEM_ACTIVATIONS, 4 * n);
}

// ---- rows ----------------------------------------------------------------------------------------------------------

GxSplit gx_batch_slices(const GxModel *m, int64_t T, int64_t B)
{
    GxSplit rows = T == m->max_T ? m->sequence : gx_split_like(&m->sequence, T);
    for (int r = 0; r <= rows.n; r++) rows.begin[r] *= B;
    return rows;
}

int64_t gx_own_rows(const GxModel *m, const GxSplit *rows)
{
    return rows->n > 1 ? gx_split_part(rows, m->member) : gx_split_total(rows);
}

GxMethod gx_view_method(const GxPairView *v) { return gx_methods_of(v->m->mode->methods, v->spec->core.kind); }

// 1: CON and core are both split by SP, so each rank has only its slice.
static int gx__pass_stays(const GxPairView *v)
{
    return gx_is_sp(v->m, v->m->mode->methods.con) && gx_view_method(v) == GX_METHOD_SP;
}
// 1: CON is split by SP and the core is not, so rows are moved between them.
static int gx__pass_moves(const GxPairView *v)
{
    return gx_is_sp(v->m, v->m->mode->methods.con) && gx_view_method(v) != GX_METHOD_SP;
}

static const GxSplit *gx__pass_split(const GxPairView *v)
{
    return gx_view_is_head(v) ? &v->p->slot->picked[v->k] : &v->p->slot->rows;
}

int64_t gx_batch_rows(const GxPairView *v)
{
    return gx_view_is_head(v) ? gx_target_n(v->b, v->spec->core.target) : v->b->T * v->b->B;
}

static int64_t gx__pass_whole(const GxPairView *v)
{
    return gx__pass_stays(v) ? gx_own_rows(v->m, gx__pass_split(v)) : gx_batch_rows(v);
}

static GxRows gx__pass_cut(const GxPass *p, const GxSplit *rows, GxRows all)
{
    if (!all.data || rows->n == 1) return all;
    return gx_some_rows(all, rows->begin[p->m->member], gx_split_part(rows, p->m->member));
}

int64_t gx_slice_begin(const GxPass *p) { return p->slot->rows.n > 1 ? p->slot->rows.begin[p->m->member] : 0; }
int64_t gx_memory_begin(const GxPairView *v)
{
    const GxSplit rows = gx_batch_slices(v->m, v->b->source->T, v->b->source->B);
    return rows.n > 1 ? rows.begin[v->m->member] : 0;
}

GxRows gx_slice(const GxPass *p, GxRows all)
{
    return all.data ? gx_some_rows(all, gx_slice_begin(p), gx_own_rows(p->m, &p->slot->rows)) : all;
}

GxRows gx_con_rows(const GxPairView *v, GxRows whole)
{
    return gx__pass_moves(v) ? gx__pass_cut(v->p, gx__pass_split(v), whole) : whole;
}

int64_t gx_picked_begin(const GxPairView *v, GxMethod by)
{
    return gx_is_sp(v->m, by) ? gx__pass_split(v)->begin[v->m->member] : 0;
}

const int32_t *gx_entered_rows(const GxPairView *v)
{
    const int32_t *rows = gx_view_is_head(v) ? v->target->rows : NULL;
    return rows ? rows + gx_picked_begin(v, v->m->mode->methods.con) : NULL;
}

int gx_adds_loss(const GxPairView *v) { return gx_view_method(v) == GX_METHOD_SP || v->m->member == 0; }

const int64_t *gx_view_count(const GxPairView *v)
{
    return v->p->losses.count ? v->p->losses.count + v->spec->core.target : NULL;
}

void gx_view_add_losses(const GxPairView *v, const float *losses, int64_t n)
{
    if (v->p->losses.sum) gx_sum(v->g, v->p->losses.sum + v->spec->core.target, losses, n, 1);
}

int gx_view_has_work(const GxPairView *v)
{
    const GxTarget *t = v->target;
    if (!gx_view_is_head(v)) return 1;
    return gx_batch_rows(v) > 0 && (t->labels || t->values || t->parts || t->logits.data);
}

// A head of one pair that reads all rows writes the gradient of its input. Others add to it: their pairs share the
// input, or leave out rows.
int gx_head_writes_dx(const GxPass *p)
{
    const GxPairView v = gx_view(p, 0);
    return v.kind->spec.n_pairs == 1 && !v.target->rows && gx_view_has_work(&v);
}

GxDropout gx_view_dropout(const GxPairView *v, int which, float probability)
{
    GxDropout d = gx_no_dropout();
    if (!v->p->is_training) return d;
    d.p = probability;
    d.site = gx_random_site(GX_SITE_DROPOUT, 2 * (GX_MAX_PAIRS + 1) * v->p->unit + 2 * v->k + which);
    d.first_sample = v->b->window_sample, d.T = gx_batch_positions(v->b), d.B = v->b->B;
    gx_view_dropout_rows(v, &d, NULL, gx_is_sp(v->m, v->m->mode->methods.con) ? gx_slice_begin(v->p) : 0);
    return d;
}

void gx_view_dropout_rows(const GxPairView *v, GxDropout *d, const int32_t *picked, int64_t first)
{
    d->rows = picked, d->first_row = first;
    if (!v->b->cp) return;
    d->rows = picked ? v->target->row_of + (picked - v->target->rows) : v->b->row_of + first;
}

GxRows gx_pass_rows(GxPass *p, int64_t rows, int64_t cols)
{
    const GxDtype dtype = p->m->store.dtype;
    GxRows r = gx_rows(NULL, dtype, rows, cols);
    r.data = gx_scratch(p->g, GX_MEM_ACTIVATIONS, gx_rows_bytes(r));
    return r;
}

int64_t gx_picked_most(const GxPairView *v, GxMethod by, int64_t rows)
{
    const GxTarget *t = v->target;
    const int64_t most = t->rows && t->most ? t->most : rows;
    if (!gx_view_is_head(v)) return rows;
    return gx_is_sp(v->m, by) && t->rows ? gx_min(most, gx_own_rows(v->m, &v->p->slot->rows)) : most;
}

GxRows gx_picked_rows(const GxPairView *v, GxMethod by, int64_t rows, int64_t cols)
{
    GxRows r = gx_pass_rows(v->p, gx_picked_most(v, by, rows), cols);
    r.rows = rows;
    return r;
}

// ---- for modes -----------------------------------------------------------------------------------------------------

GxMethod gx_core_method(const GxPass *p, int k)
{
    const GxPairView v = gx_view(p, k);
    return gx_view_method(&v);
}

const GxSplit *gx_pair_rows(const GxPass *p, int k)
{
    const GxPairView v = gx_view(p, k);
    return gx__pass_split(&v);
}

GxRows gx_own(const GxPass *p, int k, GxRows whole)
{
    const GxPairView v = gx_view(p, k);
    return gx__pass_stays(&v) ? whole : gx__pass_cut(p, gx__pass_split(&v), whole);
}

GxRows gx_core_in(const GxPass *p, int k, GxRows x)
{
    const GxPairView v = gx_view(p, k);
    if (v.spec->con.kind == GX_CON_MEMORY) return p->memory;
    return v.slot->in.data ? v.slot->in : x;
}

GxRows gx_core_out(GxPass *p, int k)
{
    const GxPairView v = gx_view(p, k);
    const GxConKind con = v.spec->con.kind;
    if (!p->y.data || con == GX_CON_NOTHING || con == GX_CON_MEMORY) return gx_no_rows();
    if (con == GX_CON_EMBED && p->y.rows == gx__pass_whole(&v)) return v.spec->con.has_norm ? v.slot->sum : p->y;
    if (v.spec->con.norms_result && p->y.rows == gx__pass_whole(&v)) return v.slot->sum; // which CON norms
    return gx_pass_rows(p, gx__pass_whole(&v), v.kind->spec.width);
}

GxRows gx_core_din(GxPass *p, int k)
{
    const GxPairView v = gx_view(p, k);
    if (!p->wants_din) return gx_no_rows();
    if (v.spec->con.kind == GX_CON_MEMORY) return p->dmemory;
    return gx_picked_rows(&v, gx__pass_stays(&v) ? GX_METHOD_SP : GX_METHOD_NONE, gx__pass_whole(&v),
                          v.kind->spec.width);
}

GxRows gx_core_dout(GxPass *p, int k, GxRows dx)
{
    const GxPairView v = gx_view(p, k);
    const GxConSpec *con = &v.spec->con;
    if (con->kind == GX_CON_NOTHING || con->kind == GX_CON_MEMORY || !p->wants_core) return gx_no_rows();
    if (p->defers_weights) return v.slot->dout;
    const int is_apart = gx__pass_moves(&v) || (con->kind == GX_CON_ADD &&
                                                (con->dropout > 0 || con->norms_result || gx_view_has_adapter(&v)));
    return is_apart ? gx_pass_rows(p, gx__pass_whole(&v), v.kind->spec.width) : dx;
}
#endif
