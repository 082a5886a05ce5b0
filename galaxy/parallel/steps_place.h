// steps_place.h: where the rows and slots of a list of actions (steps.h) lie in memory.
//
// What an action makes is alive until an action ends it, or, if that one was started, until it has been waited for; this
// interval is its life. Lives that do not overlap in time
// may share bytes: they are packed into one region one after another, the largest first, each at the lowest offset
// where it overlaps no other (first fit; two other orders are tried, too, and the smallest region is taken). In a
// window of many micro-batches, lives of one kind and unit that follow one another are packed as one. With the sizes of
// real models the region is at most 3.5% larger than the most bytes alive at any time, which is the lower bound. B
// writes the gradient of a unit's input over that of its output if both have the same size. Sharded weights and
// gradients have their whole copies in the region, too.
#ifndef GX_STEPS_PLACE_H
#define GX_STEPS_PLACE_H
#include "steps_check.h"
GX_BEGIN

// Bytes by unit, [units] each: the unit's input (x[0] is not read: the embedding has none), its gradient (NULL: as x),
// its slot; if they are sharded, its whole weights and its whole gradients (otherwise not read).
typedef struct {
    const int64_t *x, *dx, *slot, *weights, *grads;
} GxStepsBytes;

// Fills operands, buffer, bytes and most. A list that gx_steps_check refuses has no placement.
GxStatus gx_steps_place(GxSteps *s, const GxStepsBytes *bytes, GxError *err);

// What of a placed list's region is in use during an action, in bytes: rows and slots; whole weights; whole gradients.
typedef struct {
    int64_t rows, weights, grads;
} GxStepsAlive;
// alive [s->n]
GxStatus gx_steps_alive(const GxSteps *s, const GxStepsBytes *bytes, GxStepsAlive *alive, GxError *err);

// Checks that no two things that are alive at once share a byte (except a gradient that is computed in place), that all
// lie in the region, and that every action's operands are where its rows were made.
GxStatus gx_steps_check_place(const GxSteps *s, const GxStepsBytes *bytes, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_STEPS_PLACE_IMPLEMENTED)
#define GX_STEPS_PLACE_IMPLEMENTED
#include "../base/arena.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

// ---- what has rows -------------------------------------------------------------------------------------------------

enum { GX__STEPS_ROWS = 5 }; // x, dx, slot, weights, gradients
// Lives that follow one another without a gap: with more than FEW of them, every order takes a tenth of a second, with
// more than MANY seconds. TRACKS: the most tracks (see below).
enum { GX__STEPS_FEW = 4000, GX__STEPS_MANY = 40000, GX__STEPS_TRACKS = 2000 };

static int gx__steps_is_rows(const GxStepsSpec *p, const GxEffect *e)
{
    if (e->object == GX_OBJECT_WEIGHTS) return p->sharded == GX__STEPS_WEIGHTS_SHARDED;
    if (e->object == GX_OBJECT_GRADS) return p->sharded > 1 && gx__steps_trains(p, e->unit);
    return e->object == GX_OBJECT_X || e->object == GX_OBJECT_DX || e->object == GX_OBJECT_SLOT;
}

static int64_t gx__steps_rows_cell(const GxStepsSpec *p, const GxEffect *e)
{
    const int kind = e->object == GX_OBJECT_WEIGHTS ? 3 : e->object == GX_OBJECT_GRADS ? 4 : e->object - GX_OBJECT_X;
    return ((int64_t)kind * p->units + e->unit) * p->micro_batches + gx_max(e->micro_batch, 0);
}

static int64_t gx__steps_rows_bytes(const GxStepsBytes *bytes, const GxEffect *e)
{
    const int64_t *of = bytes->x;
    switch (e->object) {
    case GX_OBJECT_SLOT: of = bytes->slot; break;
    case GX_OBJECT_WEIGHTS: of = bytes->weights; break;
    case GX_OBJECT_GRADS: of = bytes->grads; break;
    case GX_OBJECT_DX: of = bytes->dx ? bytes->dx : bytes->x; break;
    default: break;
    }
    return gx_round_up(of[e->unit], GX_ALIGN);
}

// The operand of an action that an effect on rows refers to. Weights are recorded only where they are made: other uses
// go to *unread.
static int16_t *gx__steps_operand(const GxStepsSpec *p, GxOperands *o, const GxAction *a, const GxEffect *e,
                                  int16_t *unread)
{
    const int is_above = e->unit > a->unit;
    if (e->object == GX_OBJECT_WEIGHTS) return e->unit == a->unit ? &o->weights : unread;
    if (e->object == GX_OBJECT_GRADS) return e->unit == a->unit ? &o->grads : &o->tied;
    if (e->object == GX_OBJECT_SLOT) return &o->slot;
    if (e->unit == gx_steps_behind_encoder(p) && a->unit > e->unit)
        return e->object == GX_OBJECT_X ? &o->memory : &o->dmemory;
    if (e->object == GX_OBJECT_X) return is_above ? &o->y : &o->x;
    return is_above ? &o->dy : &o->dx;
}

// ---- lives ---------------------------------------------------------------------------------------------------------

typedef struct {
    int first, last; // actions, both included, since an action reads what it ends while it writes what it makes
    int buffer;
    int row;   // its kind and unit
    int track; // the number of its track (see below)
    int64_t bytes, offset;
} GxLife;
typedef struct {
    GxLife *life; // in the order in which they begin
    int n;
    int *life_of; // [x, dx, slot, weights, gradients][unit][micro-batch]: the latest; -1: none is alive
    // by ticket: what ends when the action that was started has been waited for; -1: nothing
    int ending[GX_TICKETS];
    GxLife **order; // [n]: the order of packing; afterwards by offset
    GxLife *placed; // [n]: copies of those that have been placed, by offset
    int64_t *live;  // [actions + 1]: bytes alive
    // for tracks, [n][n]: 1: the two are alive at once. NULL: these are lives, compared by first and last
    uint8_t *meets;
} GxLives;

// The gradient of a unit's input begins where that of its output ends: both are one life if they have the same size.
// That of an encoder's last rows is not computed in place of that of the memory, which stands in for a core's.
static int gx__steps_in_place(const GxSteps *s, const GxStepsBytes *bytes, const GxLives *l, int i, const GxEffect *e)
{
    GxEffect dy = *e;
    dy.unit = gx_steps_above(&s->spec, e->unit);
    if (s->action[i].what != GX_DO_BACKWARD || e->object != GX_OBJECT_DX || dy.unit == s->spec.units) return -1;
    if (dy.unit == gx_steps_behind_encoder(&s->spec)) return -1;
    const int same = gx__steps_rows_bytes(bytes, &dy) == gx__steps_rows_bytes(bytes, e);
    return same ? l->life_of[gx__steps_rows_cell(&s->spec, &dy)] : -1;
}

// The life that an effect refers to: a new one, or one that lasts at least until this action.
static GxLife *gx__steps_life(const GxSteps *s, const GxStepsBytes *bytes, GxLives *l, int i, const GxEffect *e)
{
    int *at = &l->life_of[gx__steps_rows_cell(&s->spec, e)];
    if (e->verb == GX_MAKES) *at = gx__steps_in_place(s, bytes, l, i, e);
    if ((e->verb == GX_MAKES || e->verb == GX_ADDS) && *at < 0) {
        *at = l->n++;
        l->life[*at].first = i;
        l->life[*at].row = (int)(gx__steps_rows_cell(&s->spec, e) / s->spec.micro_batches);
        l->life[*at].bytes = gx__steps_rows_bytes(bytes, e);
    }
    assert(*at >= 0); // the list was checked
    GxLife *life = &l->life[*at];
    life->last = i;
    if (e->verb == GX_ENDS && s->action[i].ticket >= 0) l->ending[s->action[i].ticket] = *at;
    if (e->verb == GX_ENDS) *at = -1;
    return life;
}

// Replays the list: finds its lives, and sets its actions' operands to the lives' buffers (which are not known yet in
// the first replay).
static void gx__steps_find_lives(GxSteps *s, const GxStepsBytes *bytes, GxLives *l)
{
    GxEffect e[GX_EFFECTS];
    const int64_t cells = (int64_t)GX__STEPS_ROWS * s->spec.units * s->spec.micro_batches;
    l->n = 0;
    for (int64_t k = 0; k < cells; k++) l->life_of[k] = -1;
    for (int t = 0; t < GX_TICKETS; t++) l->ending[t] = -1;
    for (int i = 0; i < s->n; i++) {
        const GxAction *a = &s->action[i];
        GxOperands *o = &s->operands[i];
        const int n = gx_action_effects(&s->spec, a, e);
        int16_t unread;
        o->x = o->y = o->dx = o->dy = o->slot = o->weights = o->grads = o->tied = o->memory = o->dmemory = -1;
        if (a->what == GX_DO_WAIT && l->ending[a->ticket] >= 0) l->life[l->ending[a->ticket]].last = i;
        if (a->ticket >= 0) l->ending[a->ticket] = -1;
        for (int k = 0; k < n; k++) {
            if (!gx__steps_is_rows(&s->spec, &e[k])) continue;
            *gx__steps_operand(&s->spec, o, a, &e[k], &unread) = (int16_t)gx__steps_life(s, bytes, l, i, &e[k])->buffer;
        }
    }
}

// ---- packing -------------------------------------------------------------------------------------------------------

// Orders of packing. Which of them needs least depends on the list: for some lists, each alone is 5 to 30% above the
// lower bound.

static int gx__steps_less(int64_t a, int64_t b) { return a < b ? -1 : a > b; }

static int gx__steps_largest_earliest(const void *a, const void *b)
{
    const GxLife *x = *(GxLife *const *)a, *y = *(GxLife *const *)b;
    return x->bytes != y->bytes ? gx__steps_less(y->bytes, x->bytes) : x < y ? -1 : x > y; // as they begin
}

static int gx__steps_largest_latest(const void *a, const void *b)
{
    const GxLife *x = *(GxLife *const *)a, *y = *(GxLife *const *)b;
    if (x->bytes != y->bytes) return gx__steps_less(y->bytes, x->bytes);
    return x->last != y->last ? gx__steps_less(y->last, x->last) : gx__steps_largest_earliest(a, b);
}

static int gx__steps_longest(const void *a, const void *b)
{
    const GxLife *x = *(GxLife *const *)a, *y = *(GxLife *const *)b;
    const int lasts = gx__steps_less(y->last - y->first, x->last - x->first);
    return lasts ? lasts : gx__steps_largest_earliest(a, b);
}

static int gx__steps_meet(const GxLives *l, const GxLife *a, const GxLife *b)
{
    return l->meets ? l->meets[a->track * l->n + b->track] : a->last >= b->first && b->last >= a->first;
}

// Places each life, in this order, in the lowest gap between those that are alive at the same time. Returns the bytes
// of the region.
static int64_t gx__steps_pack_by(GxLives *l, int (*order)(const void *, const void *))
{
    int64_t region = 0;
    for (int i = 0; i < l->n; i++) l->order[i] = &l->life[i];
    qsort(l->order, (size_t)l->n, sizeof *l->order, order);
    for (int i = 0; i < l->n; i++) {
        GxLife *life = l->order[i];
        int64_t at = 0;
        int k;
        for (k = 0; k < i; k++) {
            const GxLife *other = &l->placed[k];
            if (!gx__steps_meet(l, other, life)) continue;
            if (other->offset >= at + life->bytes) break;
            at = gx_max(at, other->offset + other->bytes);
        }
        life->offset = at;
        region = gx_max(region, at + life->bytes);
        for (k = i; k > 0 && l->placed[k - 1].offset > at; k--) l->placed[k] = l->placed[k - 1];
        l->placed[k] = *life;
    }
    return region;
}

// The same in the order in which lives begin. Lives that have ended are skipped, so the time per life depends only on
// how many are alive. The region is up to a third above the lower bound.
static int64_t gx__steps_pack_as_they_begin(GxLives *l)
{
    int64_t region = 0;
    int alive = 0;
    for (int i = 0; i < l->n; i++) {
        GxLife *life = &l->life[i];
        int64_t at = 0;
        int n = 0, k;
        for (k = 0; k < alive; k++)
            if (l->placed[k].last >= life->first) l->placed[n++] = l->placed[k];
        for (k = 0; k < n && l->placed[k].offset < at + life->bytes; k++)
            at = gx_max(at, l->placed[k].offset + l->placed[k].bytes);
        life->offset = at;
        region = gx_max(region, at + life->bytes);
        for (k = n; k > 0 && l->placed[k - 1].offset > at; k--) l->placed[k] = l->placed[k - 1];
        l->placed[k] = *life;
        alive = n + 1;
    }
    for (int i = 0; i < l->n; i++) l->order[i] = &l->life[i];
    return region;
}

// The order that needs least.
static int64_t gx__steps_pack_best(GxLives *l, int64_t most)
{
    int (*const orders[])(const void *, const void *) = {gx__steps_largest_earliest, gx__steps_largest_latest,
                                                         gx__steps_longest};
    int best = 0;
    int64_t least = INT64_MAX;
    for (int k = 0; k < 3 && least > most; k++) {
        const int64_t region = gx__steps_pack_by(l, orders[k]);
        if (region < least) least = region, best = k;
    }
    return gx__steps_pack_by(l, orders[best]);
}

// ---- tracks --------------------------------------------------------------------------------------------------------
// Lives of one kind and unit that follow one another, such as those of successive micro-batches, share a place: a
// track. A window of thousands of micro-batches has no more tracks than one of a few, so all orders can be tried.

// Assigns lives to tracks. Returns the number of tracks; -1: more than `most`. first_of: [rows], next: [most]: linked
// lists of each row's tracks.
static int gx__steps_place_tracks(const GxLives *l, GxLife *track, int most, int *first_of, int *next)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) first_of[l->life[i].row] = -1;
    for (int i = 0; i < l->n; i++) {
        GxLife *life = &l->life[i];
        int at = first_of[life->row];
        while (at >= 0 && track[at].last >= life->first) at = next[at];
        if (at < 0) {
            if (n == most) return -1;
            at = n++, track[at] = *life, track[at].track = at;
            next[at] = first_of[life->row], first_of[life->row] = at;
        }
        track[at].last = life->last, life->track = at;
    }
    return n;
}

// Marks the tracks that are alive at once.
static void gx__steps_meet_tracks(const GxLives *l, const GxLives *tracks)
{
    int alive = 0;
    for (int i = 0; i < l->n; i++) {
        const int me = l->life[i].track;
        int n = 0;
        for (int k = 0; k < alive; k++)
            if (l->order[k]->last >= l->life[i].first) l->order[n++] = l->order[k];
        for (int k = 0; k < n; k++) {
            const int other = l->order[k]->track;
            tracks->meets[other * tracks->n + me] = tracks->meets[me * tracks->n + other] = 1;
        }
        l->order[n] = &l->life[i], alive = n + 1;
    }
}

// INT64_MAX: there are too many, or the system had no memory.
static int64_t gx__steps_pack_tracks(GxLives *l, int64_t most)
{
    GxLives tracks = *l;
    const int at_most = (int)gx_min(l->n, GX__STEPS_TRACKS);
    int64_t region = INT64_MAX;
    int rows = 0;
    for (int i = 0; i < l->n; i++) rows = (int)gx_max(rows, l->life[i].row + 1), l->order[i] = &l->life[i];
    int *of_rows = (int *)malloc((size_t)(rows + at_most) * sizeof *of_rows);
    tracks.life = (GxLife *)malloc((size_t)at_most * sizeof *tracks.life);
    if (of_rows && tracks.life) tracks.n = gx__steps_place_tracks(l, tracks.life, at_most, of_rows, of_rows + rows);
    else tracks.n = -1;
    if (tracks.n > 0) tracks.meets = (uint8_t *)calloc((size_t)tracks.n, (size_t)tracks.n);
    if (tracks.meets) {
        gx__steps_meet_tracks(l, &tracks);
        region = gx__steps_pack_best(&tracks, most);
        for (int i = 0; i < l->n; i++)
            l->life[i].offset = tracks.life[l->life[i].track].offset, l->order[i] = &l->life[i];
    }
    free(of_rows);
    free(tracks.meets);
    free(tracks.life);
    return region;
}

// ---- a list's lives ------------------------------------------------------------------------------------------------

// By tracks or one by one, whichever needs less. If there are many, tracks are accepted at up to 2% above the lower
// bound.
static int64_t gx__steps_pack(GxLives *l, int64_t most)
{
    const int64_t by_tracks = gx__steps_pack_tracks(l, most);
    if (by_tracks <= most + (l->n > GX__STEPS_FEW ? most / 50 : 0)) return by_tracks;
    const int64_t by_lives = l->n > GX__STEPS_MANY ? gx__steps_pack_as_they_begin(l) : gx__steps_pack_best(l, most);
    return by_lives <= by_tracks ? by_lives : gx__steps_pack_tracks(l, most);
}

// Packs lives by groups between which nothing is alive, such as micro-batches that are computed one after another. So
// the time grows linearly with the number of micro-batches, not quadratically. Returns the bytes of the region.
static int64_t gx__steps_pack_groups(const GxLives *l, int64_t most)
{
    int64_t region = 0;
    for (int first = 0, end; first < l->n; first = end) {
        GxLives group = *l;
        int last = l->life[first].last;
        for (end = first + 1; end < l->n && l->life[end].first <= last; end++)
            last = (int)gx_max(last, l->life[end].last);
        group.life += first, group.order += first, group.placed += first;
        group.n = end - first;
        region = gx_max(region, gx__steps_pack(&group, most));
    }
    return region;
}

static int64_t gx__steps_worst_moment(const GxLives *l, int actions)
{
    int64_t live = 0, most = 0;
    memset(l->live, 0, (size_t)(actions + 1) * sizeof *l->live);
    for (int i = 0; i < l->n; i++)
        l->live[l->life[i].first] += l->life[i].bytes, l->live[l->life[i].last + 1] -= l->life[i].bytes;
    for (int i = 0; i < actions; i++) live += l->live[i], most = gx_max(most, live);
    return most;
}

static int gx__steps_lowest_offset(const void *a, const void *b)
{
    const GxLife *x = *(GxLife *const *)a, *y = *(GxLife *const *)b;
    return x->offset != y->offset ? gx__steps_less(x->offset, y->offset) : gx__steps_largest_earliest(a, b);
}

// Lives with the same place and size are one buffer.
static void gx__steps_number_buffers(GxSteps *s, GxLives *l)
{
    s->n_buffers = 0;
    qsort(l->order, (size_t)l->n, sizeof *l->order, gx__steps_lowest_offset);
    for (int i = 0; i < l->n; i++) {
        GxLife *life = l->order[i];
        GxBuffer *b = s->n_buffers ? &s->buffer[s->n_buffers - 1] : NULL;
        if (!b || b->offset != life->offset || b->bytes != life->bytes) {
            b = &s->buffer[s->n_buffers++];
            b->offset = life->offset;
            b->bytes = life->bytes;
        }
        life->buffer = s->n_buffers - 1;
    }
}

static GxStatus gx__steps_place_lives(GxSteps *s, const GxStepsBytes *bytes, GxLives *l, GxError *err)
{
    gx__steps_find_lives(s, bytes, l);
    s->most = gx__steps_worst_moment(l, s->n);
    s->bytes = gx__steps_pack_groups(l, s->most);
    gx__steps_number_buffers(s, l);
    if (s->n_buffers > INT16_MAX)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "the list needs %d buffers, and %d are the most: fewer micro-batches in a window, or an order "
                       "with fewer of them under way",
                       s->n_buffers, INT16_MAX);
    gx__steps_find_lives(s, bytes, l);
    return GX_OK;
}

GxStatus gx_steps_place(GxSteps *s, const GxStepsBytes *bytes, GxError *err)
{
    const size_t cells = (size_t)GX__STEPS_ROWS * (size_t)s->spec.units * (size_t)s->spec.micro_batches,
                 lives = GX__STEPS_MAKES * (size_t)s->n;
    const size_t size =
        lives * (2 * sizeof(GxLife) + sizeof(GxLife *)) + (size_t)(s->n + 1) * sizeof(int64_t) + cells * sizeof(int);
    GxLives l = GX_ZERO;
    GX_TRY(gx_steps_check(s, err));
    char *memory = (char *)calloc(1, size);
    if (!memory)
        return GX_FAIL(err, GX_ERR_MEMORY, "the system refused %.1f MB to place the rows of a list of %d actions",
                       (double)size / 1e6, s->n);
    l.life = (GxLife *)memory;
    l.placed = l.life + lives;
    l.order = (GxLife **)(l.placed + lives);
    l.live = (int64_t *)(l.order + lives);
    l.life_of = (int *)(l.live + s->n + 1);
    GxStatus status = gx__steps_place_lives(s, bytes, &l, err);
    free(memory);
    return status;
}

// ---- what is in use, action by action ------------------------------------------------------------------------------

static void gx__steps_count_alive(GxStepsAlive *at, const GxEffect *e, int64_t bytes)
{
    if (e->object == GX_OBJECT_WEIGHTS) at->weights += bytes;
    else if (e->object == GX_OBJECT_GRADS) at->grads += bytes;
    else at->rows += bytes;
}

// Goes on from `now`, what is in use before action i: *during, and `now` after it. is_there: [cells]; ending: by ticket,
// what ends when the action that was started has been waited for.
static void gx__steps_replay_alive(const GxSteps *s, const GxStepsBytes *bytes, int i, uint8_t *is_there,
                                   GxEffect *ending, GxStepsAlive *now, GxStepsAlive *during)
{
    const GxOperands *o = &s->operands[i];
    const GxAction *a = &s->action[i];
    GxEffect e[GX_EFFECTS];
    const int n = gx_action_effects(&s->spec, a, e);
    int64_t in_place = 0;
    for (int k = 0; k < n; k++) {
        uint8_t *there = gx__steps_is_rows(&s->spec, &e[k]) ? &is_there[gx__steps_rows_cell(&s->spec, &e[k])] : NULL;
        if (!there || *there || (e[k].verb != GX_MAKES && e[k].verb != GX_ADDS)) continue;
        *there = 1;
        gx__steps_count_alive(now, &e[k], gx__steps_rows_bytes(bytes, &e[k]));
        if (e[k].object == GX_OBJECT_DX && o->dx == o->dy) in_place += gx__steps_rows_bytes(bytes, &e[k]);
    }
    *during = *now;
    during->rows -= in_place; // the gradient is written over that of the output, which ends here
    if (a->what == GX_DO_WAIT && ending[a->ticket].object)
        gx__steps_count_alive(now, &ending[a->ticket], -gx__steps_rows_bytes(bytes, &ending[a->ticket]));
    if (a->ticket >= 0) ending[a->ticket].object = GX_OBJECT_NONE;
    for (int k = 0; k < n; k++) {
        if (e[k].verb != GX_ENDS || !gx__steps_is_rows(&s->spec, &e[k])) continue;
        is_there[gx__steps_rows_cell(&s->spec, &e[k])] = 0;
        if (a->ticket >= 0) ending[a->ticket] = e[k];
        else gx__steps_count_alive(now, &e[k], -gx__steps_rows_bytes(bytes, &e[k]));
    }
}

GxStatus gx_steps_alive(const GxSteps *s, const GxStepsBytes *bytes, GxStepsAlive *alive, GxError *err)
{
    const size_t cells = (size_t)GX__STEPS_ROWS * (size_t)s->spec.units * (size_t)s->spec.micro_batches;
    GxStepsAlive now = GX_ZERO;
    GxEffect ending[GX_TICKETS] = GX_ZERO;
    uint8_t *is_there = (uint8_t *)calloc(cells, 1);
    if (!is_there) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to follow a list of %d actions", s->n);
    for (int i = 0; i < s->n; i++) gx__steps_replay_alive(s, bytes, i, is_there, ending, &now, &alive[i]);
    free(is_there);
    return GX_OK;
}

// ---- the checker of a placement ------------------------------------------------------------------------------------
// It does not use lives: it goes through the list and keeps track of what is there, each thing with its buffer.

typedef struct {
    GxEffect thing;
    int buffer;
    int ticket; // it has ended, but for the action with this ticket, which still reads it; -1: it has not
} GxPlaced;

static GxStatus gx__steps_check_made(const GxSteps *s, const GxStepsBytes *bytes, const GxPlaced *there, int n, int i,
                                     const GxPlaced *made, GxError *err)
{
    char name[48], thing[96];
    const GxBuffer *b = &s->buffer[made->buffer];
    const GxEffect *e = &made->thing;
    gx_action_name(&s->action[i], name);
    if (b->offset < 0 || b->offset % GX_ALIGN || b->offset + b->bytes > s->bytes ||
        b->bytes < gx__steps_rows_bytes(bytes, e))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "action %d (%s): its %s of %ld bytes has %ld bytes at %ld; the region has %ld, and buffers begin "
            "at multiples of %d",
            i, name, gx_object_name(e->object), (long)gx__steps_rows_bytes(bytes, e), (long)b->bytes, (long)b->offset,
            (long)s->bytes, (int)GX_ALIGN);
    for (int k = 0; k < n; k++) {
        const GxBuffer *other = &s->buffer[there[k].buffer];
        const int is_dy = s->action[i].what == GX_DO_BACKWARD && there[k].ticket < 0 && e->object == GX_OBJECT_DX &&
                          there[k].thing.object == GX_OBJECT_DX &&
                          there[k].thing.unit == gx_steps_above(&s->spec, e->unit) &&
                          there[k].thing.micro_batch == e->micro_batch && there[k].buffer == made->buffer;
        if (!is_dy && b->offset < other->offset + other->bytes && other->offset < b->offset + b->bytes)
            return GX_FAIL(
                err, GX_ERR_ARGUMENT, "action %d (%s): its %s would lie over %s, still in use", i, name,
                gx_object_name(e->object),
                gx__steps_thing_name(there[k].thing.object, there[k].thing.unit, there[k].thing.micro_batch, thing));
    }
    return GX_OK;
}

static GxStatus gx__steps_check_places(const GxSteps *s, const GxStepsBytes *bytes, GxPlaced *there, GxError *err)
{
    GxEffect e[GX_EFFECTS];
    char name[48];
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const int effects = gx_action_effects(&s->spec, &s->action[i], e), ticket = s->action[i].ticket;
        for (int k = 0; k < n && s->action[i].what == GX_DO_WAIT; k++)
            if (there[k].ticket == ticket) there[k--] = there[--n];
        for (int j = 0; j < effects; j++) {
            GxOperands o = s->operands[i];
            int16_t unread = -1;
            int k = n;
            if (!gx__steps_is_rows(&s->spec, &e[j])) continue;
            const int16_t *operand = gx__steps_operand(&s->spec, &o, &s->action[i], &e[j], &unread);
            for (k = 0; k < n; k++)
                if (there[k].ticket < 0 &&
                    gx__steps_rows_cell(&s->spec, &there[k].thing) == gx__steps_rows_cell(&s->spec, &e[j]))
                    break;
            const int makes = e[j].verb == GX_MAKES || (e[j].verb == GX_ADDS && k == n),
                      expected = k < n ? there[k].buffer : -1;
            GxPlaced p = {e[j], operand == &unread ? expected : *operand, -1};
            if (p.buffer < 0 || p.buffer >= s->n_buffers || (!makes && p.buffer != expected))
                return GX_FAIL(err, GX_ERR_ARGUMENT, "action %d (%s): its %s is in buffer %d of %d, but was made in %d",
                               i, gx_action_name(&s->action[i], name), gx_object_name(e[j].object), p.buffer,
                               s->n_buffers, expected);
            if (makes) {
                GX_TRY(gx__steps_check_made(s, bytes, there, n, i, &p, err));
                there[n++] = p;
            }
            if (e[j].verb == GX_ENDS && ticket >= 0) there[k].ticket = ticket;
            else if (e[j].verb == GX_ENDS) there[k] = there[--n];
        }
    }
    return GX_OK;
}

GxStatus gx_steps_check_place(const GxSteps *s, const GxStepsBytes *bytes, GxError *err)
{
    GxPlaced *there = (GxPlaced *)malloc((size_t)(GX__STEPS_MAKES * s->n + 1) * sizeof *there);
    if (!there) return GX_FAIL(err, GX_ERR_MEMORY, "the system refused memory to check a list of %d actions", s->n);
    GxStatus status = gx__steps_check_places(s, bytes, there, err);
    free(there);
    return status;
}
#endif
