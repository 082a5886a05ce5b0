// model/unit.h: runs a unit, in three calls: forward, backward, and the weight halves that a backward left out; and
// lays out what it keeps.
//
// A unit is pure: it uses only its pass (pass.h) and the rows that it is given. This makes it possible to have several
// micro-batches in flight, to give a rank units [first, last), to recompute units, and to defer weight halves. The
// order of the calls is a list of actions (parallel/steps.h), run by run/interpreter.h.
//
// The caller of a unit's forward lays out the unit's slot for the current batch; only the largest size is fixed in
// advance.
#ifndef GX_UNIT_H
#define GX_UNIT_H
#include "pass.h"
GX_BEGIN

// The bytes of a slot for a batch of T x B; with defers_weights including what deferred weight halves read.
int64_t gx_slot_bytes(const GxModel *m, int unit, int64_t T, int64_t B, int defers_weights);
// Lays out the pass's slot at `base` for the pass's batch. Call it before the forward. An error if the batch is larger
// than planned.
void gx_slot_layout(GxPass *p, void *base);

// `out` without rows: only what the slot keeps is needed (when a unit is recomputed). In training a head does nothing
// here.
void gx_unit_forward(GxPass *p, GxState out, GxState in);
// din may be dout; it has no rows if nothing below is trained. `in` is the forward's. dout is overwritten. A head has
// no dout, and its forward is computed here as well.
void gx_unit_backward(GxPass *p, GxState din, GxState dout, GxState in);
void gx_unit_weight(GxPass *p, GxState in); // the weight halves that a backward with defers_weights left out
// Copies the side network's stream past a unit of the backbone.
void gx_unit_pass_through(GxContext *g, GxState out, GxState in);

// The batch whose rows the unit computes (`b` or its source), and the one whose rows enter it.
const GxBatch *gx_unit_batch(const GxModel *m, int unit, const GxBatch *b);
const GxBatch *gx_entering_batch(const GxModel *m, int unit, const GxBatch *b);
// 1: a core of the unit attends to an encoder's output.
int gx_unit_reads_memory(const GxModel *m, int unit);

// The stream's rows at `data`, in CON's layout.
GxRows gx_stream_rows(const GxModel *m, int64_t T, int64_t B, void *data);
// What enters a unit, laid out at `data` (NULL: no rows): the stream, followed by a side network's stream; or, behind
// an encoder, its output: all rows, unless attention and CON are both SP. T is that of the batch whose rows enter the unit. Its
// gradient: in a unit of a side network that of the side stream only, otherwise that of the stream. And the bytes of
// each.
GxState gx_state_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data);
GxState gx_gradient_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data);
int64_t gx_state_bytes(const GxModel *m, int unit, int64_t T, int64_t B);
int64_t gx_gradient_bytes(const GxModel *m, int unit, int64_t T, int64_t B);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_UNIT_IMPLEMENTED)
#define GX_UNIT_IMPLEMENTED
#include <string.h>
#include "../ops/elementwise.h"
#include "cores.h"
#include "tuner.h"

// ---- what goes from unit to unit -----------------------------------------------------------------------------------

static GxRows gx__unit_stream(const GxModel *m, int64_t T, int64_t B, int64_t width, void *data)
{
    GxSplit rows;
    if (!gx_is_sp(m, m->mode->methods.con)) return gx_rows(data, m->store.dtype, T * B, width);
    rows = gx_batch_slices(m, T, B);
    return gx_rows(data, m->store.dtype, gx_own_rows(m, &rows), width);
}

GxRows gx_stream_rows(const GxModel *m, int64_t T, int64_t B, void *data)
{
    return gx__unit_stream(m, T, B, gx_model_width(m), data);
}

static GxRows gx__unit_side_stream(const GxModel *m, int64_t T, int64_t B, void *data)
{
    return gx__unit_stream(m, T, B, gx_model_width(m) / m->adapter.side.reduction, data);
}

const GxBatch *gx_unit_batch(const GxModel *m, int unit, const GxBatch *b)
{
    return gx_unit_spec(m, unit)->is_encoder ? b->source : b;
}

// What enters the unit behind an encoder, an embedding, is the encoder's.
static int gx__unit_is_behind_encoder(const GxModel *m, int unit) { return m->memory && unit == m->memory + 1; }

const GxBatch *gx_entering_batch(const GxModel *m, int unit, const GxBatch *b)
{
    return gx__unit_is_behind_encoder(m, unit) ? b->source : gx_unit_batch(m, unit, b);
}

int gx_unit_reads_memory(const GxModel *m, int unit)
{
    const GxUnitSpec *u = gx_unit_spec(m, unit);
    int reads = 0;
    for (int k = 0; k < u->n_pairs; k++) reads |= u->pair[k].core.reads_memory;
    return reads;
}

static GxRows gx__unit_memory(const GxModel *m, int64_t T, int64_t B, void *data)
{
    const GxSplit rows = gx_batch_slices(m, T, B);
    const int is_sp = gx_is_sp(m, m->mode->methods.att) && gx_is_sp(m, m->mode->methods.con);
    return gx_rows(data, m->store.dtype, is_sp ? gx_own_rows(m, &rows) : T * B, gx_model_width(m));
}

GxState gx_state_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data)
{
    GxState s = {gx_no_rows(), gx_no_rows(), gx_no_rows()};
    if (!data) return s;
    if (gx__unit_is_behind_encoder(m, unit)) {
        s.memory = gx__unit_memory(m, T, B, data);
        return s;
    }
    s.x = gx_stream_rows(m, T, B, data);
    if (m->unit[unit].has_side)
        s.side = gx__unit_side_stream(m, T, B, (char *)data + gx_round_up(gx_rows_bytes(s.x), GX_ALIGN));
    return s;
}

// 1: below this unit only the side network is trained, so only its stream has a gradient.
static int gx__unit_has_side_gradient(const GxModel *m, int unit)
{
    return m->unit[unit].has_side && gx_unit_spec(m, unit)->side != GX_SIDE_NONE;
}

GxState gx_gradient_at(const GxModel *m, int unit, int64_t T, int64_t B, void *data)
{
    GxState s = {gx_no_rows(), gx_no_rows(), gx_no_rows()};
    if (!data) return s;
    if (gx__unit_is_behind_encoder(m, unit)) s.memory = gx__unit_memory(m, T, B, data);
    else if (gx__unit_has_side_gradient(m, unit)) s.side = gx__unit_side_stream(m, T, B, data);
    else s.x = gx_stream_rows(m, T, B, data);
    return s;
}

int64_t gx_state_bytes(const GxModel *m, int unit, int64_t T, int64_t B)
{
    const int64_t x = gx_rows_bytes(gx_stream_rows(m, T, B, NULL));
    if (gx__unit_is_behind_encoder(m, unit)) return gx_rows_bytes(gx__unit_memory(m, T, B, NULL));
    if (!m->unit[unit].has_side) return x;
    return gx_round_up(x, GX_ALIGN) + gx_rows_bytes(gx__unit_side_stream(m, T, B, NULL));
}

int64_t gx_gradient_bytes(const GxModel *m, int unit, int64_t T, int64_t B)
{
    if (gx__unit_is_behind_encoder(m, unit)) return gx_rows_bytes(gx__unit_memory(m, T, B, NULL));
    return gx_rows_bytes(gx__unit_has_side_gradient(m, unit) ? gx__unit_side_stream(m, T, B, NULL)
                                                             : gx_stream_rows(m, T, B, NULL));
}

// ---- slots ---------------------------------------------------------------------------------------------------------

static void gx__unit_layout_enter(GxSlotLayout *l, const GxEnterSpec *enter, int64_t C, GxPairSlot *s)
{
    const int kept = enter->kind == GX_ENTER_TRANSFORM ? 2 : enter->kind == GX_ENTER_POOL;
    for (int i = 0; i < kept; i++) s->enter[i] = gx_slot_rows(l, l->con, C);
    if (enter->kind == GX_ENTER_NORM || enter->kind == GX_ENTER_TRANSFORM) s->rstd = gx_slot_floats(l, l->con);
    if (enter->kind == GX_ENTER_TRANSFORM || (enter->kind == GX_ENTER_NORM && enter->norm == GX_LAYER_NORM))
        s->mean = gx_slot_floats(l, l->con);
}

// If `in` has more rows than the stream and enter is nothing, the stream is this rank's slice of `in`.
static void gx__unit_layout_pair(GxSlotLayout *l, const GxUnitKind *u, int k, GxPairSlot *s)
{
    const GxPairSpec *spec = &u->spec.pair[k];
    const GxMethods *by = &l->m->mode->methods;
    const GxMethod core = gx_methods_of(*by, spec->core.kind);
    const int64_t rows = core == GX_METHOD_SP ? l->own : l->all, whole = core == GX_METHOD_SP ? l->con : l->all,
                  C = u->spec.width;
    const int is_end = gx_pair_is_head(spec), has_stream = k > 0 && !is_end,
              is_x = spec->enter.kind == GX_ENTER_NOTHING && whole == l->con && !is_end,
              lies_inside = has_stream && spec->enter.kind == GX_ENTER_NOTHING && !is_x;
    if (has_stream && !lies_inside) s->stream = gx_slot_rows(l, l->con, C);
    if (spec->core.kind != GX_CORE_EMBED && spec->core.kind != GX_CORE_MEMORY && !is_x)
        s->in = gx_slot_rows(l, whole, C);
    if (lies_inside) s->stream = gx_some_rows(s->in, l->own_begin, l->con);
    gx__unit_layout_enter(l, &spec->enter, C, s);
    if (spec->con.has_norm || spec->con.norms_result) {
        s->sum = gx_slot_rows(l, l->con, C);
        if (spec->con.has_norm) s->con_mean = gx_slot_floats(l, l->con);
        s->con_rstd = gx_slot_floats(l, l->con);
    }
    if (l->defers_weights && !is_end) s->dout = gx_slot_rows(l, whole, C);
    if (!gx_core_is_again(l->m, l->unit, k)) gx_core(spec->core.kind)->layout(l, u, k, rows, s);
    for (int i = 0; i < l->m->tuners; i++)
        if (l->m->tuner[i].layout) l->m->tuner[i].layout(l, u, k, rows, s);
}

static void gx__unit_layout_rows(GxSlotLayout *l, const GxSplit *own, int64_t all)
{
    l->all = all;
    l->own = own->n > 1 ? gx_split_part(own, l->m->member) : l->all;
    l->own_begin = own->n > 1 ? own->begin[l->m->member] : 0;
    l->con = gx_is_sp(l->m, l->m->mode->methods.con) ? l->own : l->all;
}

// Lays out all buffers of a slot at `base` and returns their size. picked NULL: a head is planned for all rows of the
// batch.
static int64_t gx__unit_layout(const GxModel *m, int unit, const GxSplit *rows, const GxSplit *picked, int64_t all,
                               int64_t whole, int64_t memory, int defers_weights, void *base, GxSlot *slot)
{
    const GxUnitKind *u = &m->kind[m->unit[unit].kind];
    GxSlotLayout l = GX_ZERO;
    gx_arena_open_dry(&l.arena);
    if (base) l.arena.base = (char *)base;
    l.m = m, l.unit = unit, l.defers_weights = defers_weights, l.whole = whole, l.memory = memory;
    memset(slot->pair, 0, sizeof slot->pair);
    memset(&slot->side, 0, sizeof slot->side);
    for (int k = 0; k < u->spec.n_pairs; k++) {
        const GxSplit *own = picked && gx_pair_is_head(&u->spec.pair[k]) ? &picked[k] : rows;
        gx__unit_layout_rows(&l, own, own == rows ? all : gx_split_total(own));
        gx__unit_layout_pair(&l, u, k, &slot->pair[k]);
    }
    gx__unit_layout_rows(&l, rows, all);
    for (int i = 0; i < m->tuners; i++)
        if (m->tuner[i].layout_unit) m->tuner[i].layout_unit(&l, u, slot);
    return l.arena.used;
}

static int64_t gx__unit_source_rows(const GxBatch *b) { return b->source ? b->source->T * b->source->B : 0; }

// Places what a core that is computed again keeps at `base`. Returns its size.
static int64_t gx__unit_layout_core(const GxPass *p, int k, void *base)
{
    const GxUnitKind *u = gx_pass_kind(p);
    const GxCoreKind kind = u->spec.pair[k].core.kind;
    GxSlotLayout l = GX_ZERO;
    gx_arena_open_dry(&l.arena);
    if (base) l.arena.base = (char *)base;
    l.m = p->m, l.unit = p->unit, l.whole = gx_batch_positions(p->b) * p->b->B, l.memory = gx__unit_source_rows(p->b);
    gx__unit_layout_rows(&l, &p->slot->rows, p->b->T * p->b->B);
    const int is_sp = gx_methods_of(p->m->mode->methods, kind) == GX_METHOD_SP;
    gx_core(kind)->layout(&l, u, k, is_sp ? l.own : l.all, &p->slot->pair[k]);
    return l.arena.used;
}

// It lies in scratch, from the pair's forward, or its backward, to its end.
static void gx__unit_lay_core(GxPass *p, int k)
{
    if (!gx_core_is_again(p->m, p->unit, k)) return;
    gx__unit_layout_core(p, k, gx_scratch(p->g, GX_MEM_ACTIVATIONS, gx__unit_layout_core(p, k, NULL)));
}

int64_t gx_slot_bytes(const GxModel *m, int unit, int64_t T, int64_t B, int defers_weights)
{
    const GxSplit rows = gx_batch_slices(m, T, B);
    GxSlot slot;
    const int64_t whole = m->cp.n > 1 ? gx_split_total(&m->cp.rows) : T;
    return gx__unit_layout(m, unit, &rows, NULL, T * B, whole * B, m->max_source_T * B, defers_weights, NULL, &slot);
}

// How many of a target's rows are in each rank's slice. A device that does not compute has no rows to count: a plan
// assumes that this rank's slice has as many as it can.
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
    const int64_t most = gx_unit_spec(m, p->unit)->is_encoder ? m->max_source_T : m->max_T;
    if (b->T < m->sequence.n || b->T > most || b->B < 1 || b->B > m->max_B) {
        GX_FAIL(&p->g->error, GX_ERR_ARGUMENT,
                "a batch of %ld sequences of %ld tokens is too large: memory was allocated for at most %ld sequences "
                "of %d to %ld tokens",
                (long)b->B, (long)b->T, (long)m->max_B, m->sequence.n, (long)most);
        return;
    }
    const GxUnitSpec *u = gx_unit_spec(m, p->unit);
    p->slot->rows = gx_batch_slices(m, b->T, b->B);
    for (int k = 0; k < u->n_pairs; k++)
        if (gx_pair_is_head(&u->pair[k]))
            p->slot->picked[k] = gx__unit_picked(p, &p->slot->rows, &b->target[u->pair[k].core.target]);
    gx__unit_layout(m, p->unit, &p->slot->rows, p->slot->picked, b->T * b->B, gx_batch_positions(b) * b->B,
                    gx__unit_source_rows(b), p->defers_weights, base, p->slot);
}

// ---- units ---------------------------------------------------------------------------------------------------------

// The pair's x. All pairs of a head read what enters the head.
static GxRows gx__unit_x(const GxPairView *v, GxState in)
{
    if (gx_view_is_head(v)) return in.x;
    if (v->k) return v->slot->stream;
    return gx_pass_is_side(v->p) ? v->p->slot->side.mixed : in.x;
}

// The tuning method whose own unit this is; it runs before the first pair and after the last one. NULL: none.
static const GxTuner *gx__unit_tuner(const GxPass *p)
{
    const GxTuner *of = NULL;
    for (int i = 0; i < p->m->tuners && gx_pass_is_side(p) && !of; i++)
        if (p->m->tuner[i].enter) of = &p->m->tuner[i];
    return of;
}

// 1: what the pair keeps is computed together with its result.
static int gx__unit_needs_result(const GxPairView *v)
{
    int needs = v->spec->con.has_norm || v->spec->con.norms_result;
    for (int i = 0; i < v->m->tuners; i++)
        needs |= v->m->tuner[i].needs_result && v->m->tuner[i].needs_result(v->m, v->p->unit, v->k);
    return needs;
}

static void gx__unit_pair_forward(GxPass *p, int k, GxRows y, GxState in)
{
    const GxPairView v = gx_view(p, k);
    GxArena *a = p->g->arena;
    const GxArenaMark mark = gx_arena_mark(a);
    if (!gx_view_has_work(&v)) return;
    gx__unit_lay_core(p, k);
    p->g->pair = k;
    // even if the caller does not need the result, it is computed if what the slot keeps is computed with it
    if (!y.data && gx__unit_needs_result(&v))
        y = gx_pass_rows(p, gx_stream_rows(p->m, p->b->T, p->b->B, NULL).rows, v.kind->spec.width);
    p->y = y;
    p->m->mode->pair_forward(p, k, y, gx__unit_x(&v, in));
    gx_arena_release(a, mark);
}

static int gx__unit_is_head(const GxPass *p)
{
    const int n = gx_pass_kind(p)->spec.n_pairs;
    return n > 0 && gx_pair_is_head(&gx_pass_kind(p)->spec.pair[n - 1]);
}

static int gx__unit_ends_encoder(const GxPass *p) { return p->m->memory && p->unit == p->m->memory; }

void gx_unit_pass_through(GxContext *g, GxState out, GxState in)
{
    if (out.side.data) gx_copy(g, out.side.data, in.side.data, gx_rows_bytes(out.side));
}

void gx_unit_forward(GxPass *p, GxState out, GxState in)
{
    const int n = gx_pass_kind(p)->spec.n_pairs;
    const GxTuner *own = gx__unit_tuner(p);
    if (p->is_training && gx__unit_is_head(p)) return;
    p->memory = gx__unit_ends_encoder(p) ? out.memory : in.memory;
    const GxRows y = own ? own->enter(p, out, in) : out.x;
    for (int k = 0; k < n && !gx_failed(p->g); k++)
        gx__unit_pair_forward(p, k, k + 1 < n ? p->slot->pair[k + 1].stream : y, in);
    if (own) own->leave(p, out, in);
    else gx_unit_pass_through(p->g, out, in);
}

static int gx__unit_trains(const GxPass *p, GxTensorId id)
{
    return id.index >= 0 && gx_store_trains(&p->m->store, id.index);
}

static int gx__unit_trains_lora(const GxPass *p, const GxLinear *l) // l has one part
{
    const GxTensor *t = l->first.index < 0 ? NULL : &p->m->table.row[l->first.index];
    return t && t->has_lora && (gx__unit_trains(p, t->lora) || gx__unit_trains(p, t->lora_b));
}

// 1: a tensor of enter, which precedes the core, is trained.
static int gx__unit_trains_enter(const GxPairView *v)
{
    const GxPass *p = v->p;
    const GxPair *pair = v->pair;
    return gx__unit_trains(p, pair->norm.weight) || gx__unit_trains(p, pair->norm.bias) ||
           gx__unit_trains(p, pair->enter.first) || gx__unit_trains(p, pair->enter.bias) ||
           gx__unit_trains_lora(p, &pair->enter);
}

// 1: row i of the table belongs to this pair's CON.
static int gx__unit_is_of_con(const GxPair *pair, int i)
{
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
        some |= p->m->table.row[i].pair == k && gx_store_trains(&p->m->store, i) && !gx__unit_is_of_con(&u->pair[k], i);
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

// 1: something below pair k is trained, in an earlier pair of this unit or below the unit (din then has rows).
static int gx__unit_trains_below(const GxPass *p, int k, GxState din)
{
    const GxTuner *own = gx__unit_tuner(p);
    int some = din.x.data || din.side.data || (own && own->trains_enter(p));
    for (int i = 0; i < k; i++) some |= gx__unit_trains_pair(p, i);
    return some;
}

// Returns 0 if nothing in the pair or below it is trained, so that the backward may end here.
static int gx__unit_pair_backward(GxPass *p, int k, GxRows dx, GxRows dy, GxState din, GxState in)
{
    const GxPairView v = gx_view(p, k);
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    const int is_head = gx_view_is_head(&v), below = is_head ? din.x.data != NULL : gx__unit_trains_below(p, k, din);
    if (!below && !gx__unit_trains_pair(p, k))
        return is_head; // a head's pairs all read x: an earlier one may be trained
    if (!gx_view_has_work(&v)) return 1;
    p->wants_din = below || gx__unit_trains_enter(&v);
    p->wants_core = p->wants_din || gx__unit_trains_core(p, k);
    gx__unit_lay_core(p, k);
    p->g->pair = k;
    p->m->mode->pair_backward(p, k, dx, dy, gx__unit_x(&v, in));
    gx_arena_release(p->g->arena, mark);
    return 1;
}

void gx_unit_backward(GxPass *p, GxState din, GxState dout, GxState in)
{
    GxArena *a = p->g->arena;
    const GxArenaMark mark = gx_arena_mark(a);
    const int n = gx_pass_kind(p)->spec.n_pairs, is_head = gx__unit_is_head(p);
    const GxTuner *own = gx__unit_tuner(p);
    GxRows dy = dout.x, dx = din.x.data ? din.x : dout.x;
    p->memory = in.memory, p->dmemory = gx__unit_ends_encoder(p) ? dout.memory : din.memory;
    if (own) dy = own->leave_backward(p, dout), dx = din.side.data ? din.side : dy;
    for (int k = 0; k < n && is_head; k++) gx__unit_pair_forward(p, k, gx_no_rows(), in);
    if (!dx.data) dx = gx_pass_rows(p, in.x.rows, in.x.cols); // only the head is trained: dx is scratch
    if (gx__unit_ends_encoder(p)) {
        const GxPairView v = gx_view(p, 0);
        gx_view_at(&v, GX_AT_NORM), p->g->pair = 0;
    }
    if ((is_head && !gx_head_writes_dx(p)) || gx__unit_ends_encoder(p)) gx_zero(p->g, dx.data, gx_rows_bytes(dx));
    for (int k = n - 1; k >= 0 && !gx_failed(p->g); k--, dy = dx)
        if (!gx__unit_pair_backward(p, k, dx, dy, din, in)) break;
    if (own) own->enter_backward(p, din, dx, in);
    gx_arena_release(a, mark);
}

void gx_unit_weight(GxPass *p, GxState in)
{
    GxArena *a = p->g->arena;
    GxPass w = *p;
    w.defers_weights = 0, w.memory = in.memory;
    for (int k = gx_pass_kind(p)->spec.n_pairs - 1; k >= 0; k--) {
        const GxPairView v = gx_view(p, k);
        const GxArenaMark pair = gx_arena_mark(a);
        const int is_sp = gx_view_method(&v) == GX_METHOD_SP;
        const GxRows dout = v.slot->dout, core_in = gx_core_in(p, k, gx__unit_x(&v, in));
        w.wants_core = gx__unit_trains_core(p, k);
        p->g->pair = k;
        w.dcore[0] = v.slot->dcore[0], w.dcore[1] = v.slot->dcore[1];
        if (dout.data && w.wants_core)
            gx_core_backward_weight(&w, k, is_sp ? gx_own(p, k, dout) : dout, is_sp ? gx_own(p, k, core_in) : core_in);
        gx_arena_release(a, pair);
    }
}
#endif
