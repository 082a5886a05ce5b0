// tiles.h: collectives at the doors of a core (its entry and its exit, doors.h), tile by tile, beside the products of
// the core that read or write their rows (Ye et al. 2024, arXiv:2405.17245, section 3.4; Chang et al. 2024,
// arXiv:2406.06858). A tile is the slice of T of one rank of the tp group.
//
//     GATHER    each rank sends its slice to all others at once. The product that reads the rows begins with this
//               rank's slice, and goes on with the others in the order in which they were sent.
//     SCATTER   the product that writes the rows begins with the slices of other ranks, each of which leaves when it is
//               computed, and ends with this rank's own. Each rank adds what arrives in rank order.
//
// If each of N ranks computes a tile in time g and sends one in time c, a gather and a product, or a product and a
// scatter, take max(N g, g + (N - 1) c); one after the other they take N g + (N - 1) c. The bytes are those of the
// collectives, and so are the sums, in rank order. Results are the same bits where a product's rows do not depend on
// how many are computed at once; those of oneDNN in fp32 do, in their last bits.
//
//     GxTiles arriving, leaving;
//     gx_tiles_gather(p, &arriving, k, GX_ENTRY, in);
//     gx_tiles_scatter(p, &leaving, k, GX_EXIT, out);
//     gx_core_forward(p, k, out, in);
//     gx_tiles_end(p, &arriving);
//     gx_tiles_end(p, &leaving); // this rank's slice of `out` is the sum
//
// In between, products (linear.h) look into the pass for rows that arrive or leave. Other cores than attention and MLP
// read rows in other ways: for these, gather and scatter do all of it at once, before and after the core.
#ifndef GX_TILES_H
#define GX_TILES_H
#include "../comm/comm.h"
#include "pass.h"
GX_BEGIN

struct GxTiles {          // of pass.h
    GxRows whole;         // rows that arrive, or leave; no rows: there is nothing to communicate
    const GxSplit *tiles; // of which rank they are
    int me, n, k;
    GxDoor door;
    int leaves;                    // 1: they leave; 0: they arrive
    int by_tiles;                  // 1: beside products
    int moved;                     // tiles that have arrived, or left; this rank's own one counts
    GxTicket ticket[GX_MAX_PARTS]; // of message number 1 to n - 1
    GxRows received;               // SCATTER: of other ranks, for this rank's slice, in the order of messages
};

void gx_tiles_gather(GxPass *p, GxTiles *t, int k, GxDoor door, GxRows whole);  // SEQ -> FULL
void gx_tiles_scatter(GxPass *p, GxTiles *t, int k, GxDoor door, GxRows whole); // PARTIAL -> SEQ
void gx_tiles_leave(GxPass *p, GxTiles *t); // of a SCATTER: those that have not left yet
void gx_tiles_end(GxPass *p, GxTiles *t);   // GATHER: all rows are there; SCATTER: this rank's slice is the sum

// For a core that is computed again from rows that have arrived: products take them in the same parts. Returns what was
// p->arriving before, to be set again.
GxTiles *gx_tiles_arrived(GxPass *p, GxTiles *t, int k, GxRows whole);

// For products: the number of parts in which y, of the rows of x, is computed: 1, unless one of the two is tiles.
// by_parts 0: the product cannot be computed in parts of rows.
int gx_tiles_parts(GxPass *p, GxRows y, GxRows x, int by_parts);
// Part i: its rows, which have arrived.
GxRange gx_tiles_begin_part(GxPass *p, GxRows y, GxRows x, int parts, int i);
void gx_tiles_end_part(GxPass *p, GxRows y, int parts, int i); // it is computed

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TILES_IMPLEMENTED)
#define GX_TILES_IMPLEMENTED
#include <string.h>
#include "sums.h"

// Message number i, from 1 on, goes to the rank that is i places to the right, and comes from the one to the left.
static int gx__tiles_right(const GxTiles *t, int i) { return (t->me + i) % t->n; }
static int gx__tiles_left(const GxTiles *t, int i) { return (t->me - i + t->n) % t->n; }

static GxRange gx__tiles_rows(const GxTiles *t, int rank)
{
    const GxRange r = {t->tiles->begin[rank], t->tiles->begin[rank + 1]};
    return r;
}

static GxRows gx__tiles_of(const GxTiles *t, int rank)
{
    return gx_some_rows(t->whole, t->tiles->begin[rank], gx_split_part(t->tiles, rank));
}

// Where message i of a SCATTER is received.
static GxRows gx__tiles_received(const GxTiles *t, int i)
{
    const int64_t rows = gx_split_part(t->tiles, t->me);
    return gx_some_rows(t->received, (i - 1) * rows, rows);
}

// Stands at the door for a while; *site and *unit: where to return to.
static void gx__tiles_at(GxPass *p, const GxTiles *t, const char **site, int *unit)
{
    *site = p->g->site, *unit = p->g->unit;
    gx_at(p->g, p->unit, gx_door_name(gx_pass_kind(p)->spec.pair[t->k].core.kind, t->door));
}

static void gx__tiles_wait(GxPass *p, const GxTiles *t, int i)
{
    const char *site;
    int unit;
    gx__tiles_at(p, t, &site, &unit);
    gx_wait(p->g, t->ticket[i]);
    gx_at(p->g, unit, site);
}

static void gx__tiles_start(GxPass *p, GxTiles *t, int i)
{
    const int to = gx__tiles_right(t, i), from = gx__tiles_left(t, i);
    const GxRows sent = gx__tiles_of(t, t->leaves ? to : t->me),
                 received = t->leaves ? gx__tiles_received(t, i) : gx__tiles_of(t, from);
    const char *site;
    int n = 0, unit;
    GxTransfer list[2];
    if (sent.rows) {
        const GxTransfer send = {to, 1, 0, sent.data, sent.rows * sent.cols, sent.dtype};
        list[n++] = send;
    }
    if (received.rows) {
        const GxTransfer receive = {from, 0, 0, received.data, received.rows * received.cols, received.dtype};
        list[n++] = receive;
    }
    gx__tiles_at(p, t, &site, &unit);
    if (n) t->ticket[i] = gx_transfer_start(p->g, GX_AXIS_TP, list, n);
    gx_at(p->g, unit, site);
}

// 0: there is nothing to communicate.
static int gx__tiles_open(GxPass *p, GxTiles *t, int k, GxDoor door, GxRows whole, int leaves)
{
    const GxCoreKind kind = gx_pass_kind(p)->spec.pair[k].core.kind;
    memset(t, 0, sizeof *t);
    t->tiles = gx_pair_rows(p, k);
    if (!whole.data || t->tiles->n == 1) return 0;
    t->whole = whole, t->me = p->m->member, t->n = t->tiles->n, t->k = k, t->door = door, t->leaves = leaves;
    t->by_tiles = (kind == GX_CORE_ATT || kind == GX_CORE_MLP) &&
                  !(leaves && door == GX_ENTRY && p->b->cp); // din is written twice: from q, and from k and v
    return 1;
}

void gx_tiles_gather(GxPass *p, GxTiles *t, int k, GxDoor door, GxRows whole)
{
    if (!gx__tiles_open(p, t, k, door, whole, 0)) return;
    for (int i = 1; i < t->n; i++) gx__tiles_start(p, t, i);
    t->moved = 1;
    if (t->by_tiles) p->arriving = t;
    else gx_tiles_end(p, t);
}

void gx_tiles_scatter(GxPass *p, GxTiles *t, int k, GxDoor door, GxRows whole)
{
    if (!gx__tiles_open(p, t, k, door, whole, 1)) return;
    t->received = gx_pass_rows(p, (t->n - 1) * gx_split_part(t->tiles, t->me), whole.cols);
    if (t->by_tiles) p->leaving = t;
}

GxTiles *gx_tiles_arrived(GxPass *p, GxTiles *t, int k, GxRows whole)
{
    GxTiles *before = p->arriving;
    if (gx__tiles_open(p, t, k, GX_ENTRY, whole, 0)) t->moved = t->n;
    p->arriving = t->whole.data && t->by_tiles ? t : NULL;
    return before;
}

static void gx__tiles_arrive(GxPass *p, GxTiles *t, int tiles) // until so many are here
{
    for (; t->moved < tiles; t->moved++) gx__tiles_wait(p, t, t->moved);
}

static void gx__tiles_leave(GxPass *p, GxTiles *t, int tiles)
{
    if (!t->leaves) return; // they arrive
    for (; t->moved < tiles; t->moved++)
        if (t->moved + 1 < t->n) gx__tiles_start(p, t, t->moved + 1);
}

// This rank's slice becomes the sum of what all ranks have computed of it, in rank order, rounded once.
static void gx__tiles_sum(GxPass *p, GxTiles *t)
{
    const GxRows own = gx__tiles_of(t, t->me);
    const int64_t n = own.rows * own.cols;
    const GxArenaMark mark = gx_arena_mark(p->g->arena);
    float *sum = (float *)gx_scratch(p->g, GX_MEM_ACTIVATIONS, 4 * n),
          *wide = own.dtype == GX_F32 ? NULL : (float *)gx_scratch(p->g, GX_MEM_ACTIVATIONS, 4 * n);
    for (int i = 1; i < t->n; i++) gx__tiles_wait(p, t, i);
    for (int r = 0; r < t->n && n; r++) {
        const int message = (t->me - r + t->n) % t->n;
        gx_rows_add(p->g, sum, message ? gx__tiles_received(t, message) : own, wide, r == 0);
    }
    if (n) gx_rows_round(p->g, own, sum);
    gx_arena_release(p->g->arena, mark);
}

void gx_tiles_leave(GxPass *p, GxTiles *t)
{
    if (p->leaving == t) p->leaving = NULL;
    if (t->whole.data) gx__tiles_leave(p, t, t->n);
}

void gx_tiles_end(GxPass *p, GxTiles *t)
{
    gx_tiles_leave(p, t);
    if (p->arriving == t) p->arriving = NULL;
    if (!t->whole.data) return;
    if (t->leaves) gx__tiles_sum(p, t);
    else gx__tiles_arrive(p, t, t->n);
    t->whole = gx_no_rows();
}

// ---- beside products -----------------------------------------------------------------------------------------------

static int gx__tiles_are(const GxTiles *t, GxRows x) { return t && t->whole.data == x.data && t->whole.rows == x.rows; }

int gx_tiles_parts(GxPass *p, GxRows y, GxRows x, int by_parts)
{
    const int arrives = gx__tiles_are(p->arriving, x), leaves = gx__tiles_are(p->leaving, y) && p->leaving->moved == 0;
    if (arrives && by_parts && !leaves) return p->arriving->n;
    if (arrives) gx__tiles_arrive(p, p->arriving, p->arriving->n);
    return leaves && by_parts ? p->leaving->n : 1;
}

GxRange gx_tiles_begin_part(GxPass *p, GxRows y, GxRows x, int parts, int i)
{
    const GxRange all = {0, x.rows};
    if (parts == 1) return all;
    if (gx__tiles_are(p->leaving, y)) return gx__tiles_rows(p->leaving, gx__tiles_right(p->leaving, i + 1));
    gx__tiles_arrive(p, p->arriving, i + 1);
    return gx__tiles_rows(p->arriving, gx__tiles_left(p->arriving, i));
}

void gx_tiles_end_part(GxPass *p, GxRows y, int parts, int i)
{
    if (parts > 1 && gx__tiles_are(p->leaving, y)) gx__tiles_leave(p, p->leaving, i + 1);
}
#endif
