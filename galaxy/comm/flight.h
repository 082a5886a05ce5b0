// comm/flight.h: collectives in flight: how a collective runs, from its first message to its last.
//
// Several collectives can be in flight at once: the started ones, and the blocking one that this rank is in. Whenever a
// rank is inside a call, all of them advance: the messages of a step are posted, polled until they are complete, and
// summed; then those of the next step are posted. So ranks may wait for them in any order without deadlock.
//
// Overlap: start posts the first messages and returns; data are moved and summed while this rank is inside a call, and
// between calls by its second thread (background.h). gx_progress handles what has arrived, and never waits; it is for
// communicators without that thread. comm->seconds is the time that was not hidden.
//
// A rank that fails aborts all others with its message, and then touches no buffer any more. If ranks call different
// collectives, the error names both ranks and both operations; on a time-out it names the rank that is waited for.
#ifndef GX_FLIGHT_H
#define GX_FLIGHT_H
#include "../ops/memory.h"
#include "background.h"
#include "collective.h"
GX_BEGIN

typedef struct {
    int slot;
    int64_t number;
    int64_t recorded; // GxEvent.ticket; 0: there is no recorder
} GxTicket;           // zero: nothing to wait for

int gx__comm_dry(const GxContext *g); // 1: a dry run: collectives only record, and take scratch
int gx__comm_is_ready(GxContext *g);  // 0, and the context's error: the communicator is not open
int64_t gx__comm_record(GxContext *g, const GxCollective *c, int is_started); // returns its ticket in the recording

void gx__comm_run(GxContext *g, GxCollective *c);       // blocking
GxTicket gx__comm_start(GxContext *g, GxCollective *c); // if no slot is free: blocking
void gx__comm_finish(GxContext *g, GxTicket ticket);    // waits for it, and frees its slot
void gx__comm_progress(GxContext *g);                   // advances all in flight, without waiting
// Ends this rank's part in the communicator: tells the other ranks the reason; from then on none of this rank's memory
// is touched.
void gx__comm_give_up(GxContext *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_FLIGHT_IMPLEMENTED)
#define GX_FLIGHT_IMPLEMENTED
#include <stdio.h>
#include <string.h>

int gx__comm_dry(const GxContext *g)
{
    const GxArena *a = gx_host_arena(g);
    return (g->comm ? !g->comm->engine : g->world > 1) || (a && a->dry);
}

// ---- errors --------------------------------------------------------------------------------------------------------
typedef struct {
    char text[160];
} GxCallText;

static GxCallText gx__comm_call_text(int operation, const GxHeader *h)
{
    GxCallText t;
    const char *name = gx_operation_name(operation);
    const char *of_max = operation == GX__COMM_ALL_REDUCE && h->detail == GX_MAX ? " (max)" : "";
    int has_count = operation != GX__COMM_BARRIER && operation != GX__COMM_ALL_TO_ALL;
    if (!has_count) snprintf(t.text, sizeof t.text, "%s", name);
    else if (operation == GX__COMM_BROADCAST)
        snprintf(t.text, sizeof t.text, "broadcast of %ld %s elements from member %d", (long)h->count,
                 gx_dtype_name((GxDtype)h->dtype), h->detail);
    else
        snprintf(t.text, sizeof t.text, "%s%s of %ld %s elements", name, of_max, (long)h->count,
                 gx_dtype_name((GxDtype)h->dtype));
    return t;
}

void gx__comm_give_up(GxContext *g)
{
    GxComm *comm = g->comm;
    if (!comm || comm->is_dead || !comm->is_open || gx__comm_dry(g)) return;
    gx__background_enter(g);
    comm->is_dead = 1;
    comm->engine->abort(g, comm, g->error.message);
    for (int i = 0; i <= gx_comm_slots(comm); i++) {
        GxCollective *c = i < gx_comm_slots(comm) ? &comm->flight[i] : comm->blocking;
        if (c && c->running) comm->engine->cancel(comm, c->message, c->messages);
        if (c) c->running = 0;
    }
    memset(comm->ticket, 0, sizeof comm->ticket);
    memset(comm->pooled, 0, sizeof comm->pooled);
    gx__background_leave(g);
}

static void gx__comm_say_mismatch(GxContext *g, const GxMessage *m)
{
    const GxHeader *mine = &m->header, *got = &m->got;
    char axes[64];
    GxHeader same_bytes = *mine;
    same_bytes.bytes = got->bytes;
    GxCallText theirs = gx__comm_call_text(got->operation, got),
               ours = gx__comm_call_text(mine->operation == GX__COMM_SEND ? GX__COMM_RECV : mine->operation, mine);
    if (gx_header_agrees(&same_bytes, got))
        GX_FAIL(&g->error, GX_ERR_COMM,
                "rank %d sends %ld bytes where rank %d expects %ld, in %s (call %ld over %s): their splits differ",
                gx_comm_rank_of(g->comm, m->peer), (long)got->bytes, g->rank, (long)mine->bytes, ours.text,
                (long)mine->sequence, gx_axes_name(mine->axes, axes));
    else
        GX_FAIL(&g->error, GX_ERR_COMM,
                "rank %d is in %s while rank %d is in %s (call %ld over %s): all ranks of a group make the same calls "
                "in the same order",
                gx_comm_rank_of(g->comm, m->peer), theirs.text, g->rank, ours.text, (long)mine->sequence,
                gx_axes_name(mine->axes, axes));
}

static void gx__comm_say_left(GxContext *g, const GxMessage *m)
{
    char axes[64];
    int operation = m->header.operation == GX__COMM_SEND && !m->is_send ? GX__COMM_RECV : m->header.operation;
    GxCallText ours = gx__comm_call_text(operation, &m->header);
    GX_FAIL(&g->error, GX_ERR_COMM, "rank %d left while rank %d waits for it in %s (call %ld over %s)",
            gx_comm_rank_of(g->comm, m->peer), g->rank, ours.text, (long)m->header.sequence,
            gx_axes_name(m->header.axes, axes));
}

static void gx__comm_say_timeout(GxContext *g, const GxCollective *c)
{
    char axes[64], ranks[128] = "";
    const GxMessage *first = NULL;
    for (int i = 0; i < c->messages; i++) {
        const GxMessage *m = &c->message[i];
        int known = m->outcome != GX_MESSAGE_OPEN;
        for (int k = 0; k < i; k++) known |= c->message[k].outcome == GX_MESSAGE_OPEN && c->message[k].peer == m->peer;
        if (known) continue;
        size_t used = strlen(ranks);
        snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "", gx_comm_rank_of(g->comm, m->peer));
        if (!first) first = m;
    }
    if (!first) return;
    GxCallText ours = gx__comm_call_text(
        c->operation == GX__COMM_SEND && !first->is_send ? GX__COMM_RECV : c->operation, &first->header);
    GX_FAIL(&g->error, GX_ERR_COMM,
            "rank %d waited %g s in %s (call %ld over %s) for rank %s: dead, stalled, or in another group's call",
            g->rank, gx_comm_timeout(g->comm), ours.text, (long)c->sequence, gx_axes_name(c->axes, axes), ranks);
}

// ---- how an operation runs -----------------------------------------------------------------------------------------
// For an all-reduce in device memory `out` is a copy of one chunk: it is copied to the host before the chunk's first
// step, and back to the device after its second.
static void gx__comm_stage(GxContext *g, const GxCollective *c, int after)
{
    if (!c->staged || c->step % 2 != after) return;
    char *there = c->staged + gx__comm_chunk_begin(c) * c->size;
    if (after) gx_to_device(g, there, c->out, gx__comm_chunk_size(c) * c->size);
    else gx_to_host(g, c->out, there, gx__comm_chunk_size(c) * c->size);
}

static void gx__comm_add_message(GxCollective *c, const GxComm *comm, int member, int is_send, GxPart part)
{
    if (part.bytes < 0) return;
    GxMessage *m = &c->message[c->messages++];
    memset(m, 0, sizeof *m);
    m->peer = c->rank[member];
    m->is_send = is_send;
    m->tag = (int)(c->sequence & 255) << 5 | c->axes; // differs among those in flight; the header has the whole number
    m->data = part.data;
    m->header.sequence = c->sequence;
    m->header.count = c->count;
    m->header.bytes = part.bytes;
    m->header.operation = c->operation;
    m->header.dtype = c->dtype;
    m->header.detail = c->detail;
    m->header.axes = c->axes;
    m->header.step = (int32_t)c->step;
    m->header.rank = is_send ? comm->rank : m->peer;
}

// Transfers have no sequence number: two ranks share only the order of their messages in a channel.
static void gx__comm_add_transfer(GxCollective *c, const GxComm *comm, const GxTransfer *t)
{
    gx__comm_add_message(c, comm, t->peer, t->is_send, gx__comm_part(t->data, 0, t->n, gx_dtype_size(t->dtype)));
    GxMessage *m = &c->message[c->messages - 1];
    m->tag = 1 << 13 | t->channel << 5 | c->axes;
    m->header.count = t->n;
    m->header.dtype = t->dtype;
    m->header.detail = t->channel;
}

static void gx__comm_post(GxContext *g, GxCollective *c)
{
    GxComm *comm = g->comm;
    c->messages = 0;
    gx__comm_stage(g, c, 0);
    if (gx_failed(g)) return;
    if (c->operation == GX__COMM_SEND) {
        for (int64_t i = 0; i < c->count; i++) gx__comm_add_transfer(c, comm, &c->list[i]);
    } else {
        for (int k = 1; k < c->n; k++) { // each begins with its neighbour, so that not all send to rank 0 at once
            int to = (c->me + k) % c->n, from = (c->me + c->n - k) % c->n;
            gx__comm_add_message(c, comm, to, 1, gx__comm_part_to(c, to));
            gx__comm_add_message(c, comm, from, 0, gx__comm_part_from(c, from));
        }
    }
    c->deadline = gx_seconds() + gx_comm_timeout(comm);
    comm->engine->post(comm, c->message, c->messages, &g->error);
}

// Begins the next step of a collective if the messages of the current one are complete. Returns 1 if anything moved.
static int gx__comm_advance(GxContext *g, GxCollective *c)
{
    int moved = g->comm->engine->poll(g->comm, c->message, c->messages, &g->error), open = 0;
    for (int i = 0; i < c->messages; i++) {
        const GxMessage *m = &c->message[i];
        open += m->outcome == GX_MESSAGE_OPEN;
        if (m->outcome == GX_MESSAGE_MISMATCH) gx__comm_say_mismatch(g, m);
        if (m->outcome == GX_MESSAGE_LEFT) gx__comm_say_left(g, m);
    }
    if (gx_failed(g)) return 0;
    if (moved) c->deadline = gx_seconds() + gx_comm_timeout(g->comm);
    if (open) return moved > 0;
    gx__comm_finish_step(c);
    gx__comm_stage(g, c, 1);
    if (++c->step < c->steps) gx__comm_post(g, c);
    else c->running = 0;
    return 1;
}

// Advances all collectives in flight. Returns 1 if anything moved.
static int gx__comm_advance_all(GxContext *g)
{
    GxComm *comm = g->comm;
    int moved = 0;
    for (int i = 0; i <= gx_comm_slots(comm) && !gx_failed(g); i++) {
        GxCollective *c = i < gx_comm_slots(comm) ? &comm->flight[i] : comm->blocking;
        if (c && c->running) moved |= gx__comm_advance(g, c);
    }
    return moved;
}

// Waits for one collective, and advances all others in flight, since ranks may wait for them in different orders. Time
// is measured here, in gx__comm_launch and in gx__comm_progress; none of them calls another, so none is counted twice.
static void gx__comm_complete(GxContext *g, GxCollective *c)
{
    GxComm *comm = g->comm;
    const double begin = gx_seconds();
    c->deadline = begin + gx_comm_timeout(comm);
    while (c->running && !gx_failed(g)) {
        int64_t events = comm->engine->events(comm);
        const int moved = gx__comm_advance_all(g);
        if (moved || !c->running || gx_failed(g)) continue;
        if (gx_seconds() > c->deadline) gx__comm_say_timeout(g, c);
        else comm->engine->idle(comm, events);
    }
    comm->seconds += gx_seconds() - begin;
    if (gx_failed(g)) gx__comm_give_up(g);
}

static void gx__comm_record_transfers(GxContext *g, const GxCollective *c, GxEvent e)
{
    for (int64_t i = 0; i < c->count; i++) {
        const GxTransfer *t = &c->list[i];
        e.name = gx_operation_name(t->is_send ? GX__COMM_SEND : GX__COMM_RECV);
        e.bytes = t->is_send ? t->n * gx_dtype_size(t->dtype) : 0;
        e.elements = t->n;
        e.dtype = t->dtype;
        gx_recorder_add(g->recorder, &e);
    }
}

int64_t gx__comm_record(GxContext *g, const GxCollective *c, int is_started)
{
    if (!g->recorder) return 0;
    GxEvent e = GX_ZERO;
    e.kind = GX_EVENT_COLLECTIVE;
    e.name = gx_operation_name(c->operation);
    e.site = g->site;
    e.unit = g->unit, e.pair = g->pair;
    e.axes = c->axes;
    e.members = c->n;
    if (is_started) e.ticket = ++g->recorder->tickets; // one for all transfers of a list
    if (c->operation == GX__COMM_SEND) {
        gx__comm_record_transfers(g, c, e);
        return e.ticket;
    }
    e.bytes = gx__comm_bytes_sent(c);
    e.elements = c->operation == GX__COMM_ALL_TO_ALL ? gx_split_total(&c->to) * c->row : c->count;
    e.dtype = c->dtype;
    gx_recorder_add(g->recorder, &e);
    return e.ticket;
}

static void gx__comm_launch(GxContext *g, GxCollective *c, int slot)
{
    GxComm *comm = g->comm;
    const double begin = gx_seconds();
    c->message = comm->message + (int64_t)slot * 2 * gx_comm_peers(comm);
    if (c->operation != GX__COMM_SEND) c->sequence = ++comm->sequence[c->axes];
    c->running = 1;
    gx__comm_post(g, c);
    comm->seconds += gx_seconds() - begin;
}

int gx__comm_is_ready(GxContext *g)
{
    if (gx__comm_dry(g) || (g->comm && g->comm->is_open)) return 1;
    GX_FAIL(&g->error, GX_ERR_ARGUMENT,
            "a collective of rank %d without an open communicator; it goes between gx_comm_open and gx_comm_close",
            g->rank);
    return 0;
}

void gx__comm_run(GxContext *g, GxCollective *c)
{
    if (!gx__comm_is_ready(g)) return;
    gx__comm_record(g, c, 0);
    GxArena *a = gx_host_arena(g);
    GxArenaMark mark = gx_arena_mark(a);
    if (c->scratch_bytes > 0 && (a || !gx__comm_dry(g)))
        c->scratch = (char *)gx_allocate_from(g, a, GX_MEM_COMM, c->scratch_bytes);
    gx__background_enter(g);
    if (gx_failed(g)) gx__comm_give_up(g);
    else if (!gx__comm_dry(g)) {
        g->comm->blocking = c;
        gx__comm_launch(g, c, 0);
        gx__comm_complete(g, c);
        g->comm->blocking = NULL;
    }
    gx__background_leave(g);
    gx_arena_release(a, mark);
}

// ---- started ones --------------------------------------------------------------------------------------------------

static int gx__comm_free_slot(const GxComm *comm) // -1: none
{
    for (int slot = 0; comm && comm->is_open && slot < gx_comm_slots(comm); slot++)
        if (!comm->ticket[slot]) return slot;
    return -1;
}

// A piece of the pool for a sum; GX_COMM_SUMS: none is free.
static int gx__comm_free_piece(const GxComm *comm)
{
    for (int i = 0; comm && i < gx_comm_sums(comm); i++)
        if (!comm->pooled[i]) return i;
    return GX_COMM_SUMS;
}

GxTicket gx__comm_start(GxContext *g, GxCollective *c)
{
    GxTicket t = GX_ZERO;
    GxComm *comm = g->comm;
    const int slot = gx__comm_free_slot(comm), sums = c->scratch_bytes > 0,
              piece = sums ? gx__comm_free_piece(comm) : 0;
    if (slot < 0 || piece == GX_COMM_SUMS) {
        gx__comm_run(g, c);
        return t;
    }
    t.recorded = gx__comm_record(g, c, 1);
    t.slot = slot + 1;
    t.number = comm->ticket[slot] = ++comm->tickets;
    if (sums) comm->pooled[piece] = t.number;
    if (gx__comm_dry(g)) return t;
    gx__background_enter(g);
    GxCollective *own = &comm->flight[slot];
    *own = *c;
    own->scratch = comm->pool + piece * gx_comm_chunk(comm);
    if (!gx_failed(g)) {
        gx__background_begin(g, gx__comm_advance_all);
        gx__comm_launch(g, own, slot + 1);
    }
    if (gx_failed(g)) gx__comm_give_up(g);
    gx__background_leave(g);
    return t;
}

void gx__comm_finish(GxContext *g, GxTicket ticket)
{
    GxComm *comm = g->comm;
    if (!comm || !ticket.slot || comm->ticket[ticket.slot - 1] != ticket.number) return;
    if (g->recorder) gx_recorder_wait(g->recorder, ticket.recorded, g->site, g->unit);
    gx__background_enter(g);
    if (gx_failed(g)) gx__comm_give_up(g);
    else if (!gx__comm_dry(g)) gx__comm_complete(g, &comm->flight[ticket.slot - 1]);
    gx__background_leave(g);
    comm->ticket[ticket.slot - 1] = 0;
    for (int i = 0; i < GX_COMM_SUMS; i++)
        if (comm->pooled[i] == ticket.number) comm->pooled[i] = 0;
}

void gx__comm_progress(GxContext *g)
{
    GxComm *comm = g->comm;
    if (!comm || !comm->is_open || gx_failed(g) || gx__comm_dry(g)) return;
    if (comm->background && !gx__background_has_failed(comm)) return;
    const double begin = gx_seconds();
    gx__background_enter(g);
    while (!gx_failed(g) && gx__comm_advance_all(g)) {}
    gx__background_leave(g);
    comm->seconds += gx_seconds() - begin;
    if (gx_failed(g)) gx__comm_give_up(g);
}
#endif
