// tcp.h: the engine whose ranks are processes without MPI: started by torchrun, by srun, or by hand. It needs nothing
// but sockets.
//
//     GxRendezvous r = GX_ZERO;
//     GX_TRY(gx_rendezvous_environment(&r, &err));     // or gx_rendezvous_address: see rendezvous.h
//     if (r.world > 1) GX_TRY(gx_tcp_comm(&comm, &r, &err));
//     ... gx_comm_open(g, &comm) ... gx_comm_close(g);
//
// How a message travels. The sender offers it: its header goes at once, and with it up to 256 bytes of data. The
// receiver keeps the offer until it has a receive of that tag; then it compares headers and says go. To an offer that
// held its data already, that is the receipt; for others the sender now sends the data, which go from the socket
// straight into their place. A send is done when its data were taken, or are on their way to one who waits for them.
//
// Why nothing can block for ever: whatever arrives has a place. An offer goes into a place of its own, of which there
// are as many as the sender can have sends in flight (flight.h: two per rank of a blocking call and one per slot; each
// ends with a go before the next is offered), data go where the receiver said go for. So a rank inside a call always
// empties its sockets, and who writes to it gets on; all waiting is for a receive that is not posted yet, as with any
// engine. Data go in segments of 256 KB with offers and goes between them, so that a connection works both ways.
//
// When somebody is gone. Who closes says goodbye, who aborts says which rank is to blame and why; both stay until
// the other machines have that, a second at most. A connection that ends without either is a rank that died, and the
// error names it. A machine that vanishes from the net ends nothing: there the communicator's timeout does. A peer that
// sends what no rank sends is treated as dead.
//
// Memory: the system's, all of it taken by gx_tcp_comm: 330 bytes x (2 x world + 16) for each rank. No threads of its
// own: data move while this rank is inside a call, and in the system's buffers.
//
// What it costs: a message of up to 256 bytes is there after one trip and known to be taken after two; a longer one is
// there after three.
//
// Not here: encryption (rendezvous.h), several connections between two ranks, RDMA.
#ifndef GX_TCP_H
#define GX_TCP_H
#include "comm.h"
#include "rendezvous.h"
GX_BEGIN

// Meets the other ranks, which takes as long as the last of them; r gets the local numbers. Zeroes *comm; the caller
// may then set its timeout, chunk, slots.
GxStatus gx_tcp_comm(GxComm *comm, GxRendezvous *r, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TCP_IMPLEMENTED)
#define GX_TCP_IMPLEMENTED
#include <sys/ioctl.h>
#include <sys/uio.h>
#ifdef __linux__
#include <linux/sockios.h>
#endif

enum { GX__TCP_OFFER = 1, GX__TCP_GO, GX__TCP_DATA, GX__TCP_ABORT, GX__TCP_GOODBYE };
enum { GX__TCP_INLINE = 256, GX__TCP_SEGMENT = 1 << 18 };

// Ahead of everything that is sent.
typedef struct {
    int32_t kind, tag;
    int64_t number;  // of the send, from 1 on each connection; the receiver's answers have it, too
    int64_t bytes;   // that follow
    GxHeader header; // of an OFFER
} GxTcpFrame;

typedef struct {
    GxTcpFrame frame;
    char data[GX__TCP_INLINE];
} GxTcpOffer;

// What a message carries for this engine, in GxMessage.engine.
typedef struct {
    GxMessage *next; // in one of its peer's queues
    int64_t number;  // 0: a receive that has no offer yet
    int64_t moved;   // bytes
    int done;        // nobody holds it any more; poll hands that out as its outcome
} GxTcpMessage;
typedef char gx__tcp_message_fits[sizeof(GxTcpMessage) <= sizeof(((GxMessage *)0)->engine) ? 1 : -1];

typedef struct {
    GxMessage *first, *last;
} GxTcpQueue;

// One direction of a connection: a frame and what follows it, some of it moved already.
typedef struct {
    GxTcpFrame frame;
    char *data;
    int64_t moved;      // of frame and data
    GxMessage *message; // whose frame it is; out: NULL: nothing is under way
} GxTcpTraffic;

typedef struct {
    int fd;       // -1: closed
    int has_left; // said goodbye
    int is_deaf;  // writing failed; what it said before that can still be read
    int64_t sends, offers_seen;
    GxTcpTraffic in, out;
    GxTcpQueue talk;              // sends to be offered, receives to say go for
    GxTcpQueue data;              // sends whose data are wanted
    GxTcpQueue offered, awaiting; // sends without a go, receives without all their data
    GxTcpOffer *offer;            // [offers_most], in the order in which they came
    int offers;
    char failure[GX_FAILURE_TEXT]; // that it told of
} GxTcpPeer;

typedef struct {
    int rank, world, offers_most;
    const char *failure; // why a rank aborted; NULL: none did
    int dead;            // a rank whose connection broke, and how; -1: none
    char death[160];
    int is_finished;     // said abort or goodbye
    GxTcpPeer *peer;     // [world]
    struct pollfd *wait; // [world]
    GxTcpOffer *offers;  // [world][offers_most]
} GxTcp;

static GxTcp *gx__tcp(const GxComm *comm) { return (GxTcp *)comm->state; }
static GxTcpMessage *gx__tcp_message(GxMessage *m) { return (GxTcpMessage *)(void *)m->engine; }
static int gx__tcp_is_inline(const GxHeader *h) { return h->bytes <= GX__TCP_INLINE; }

static void gx__tcp_queue_add(GxTcpQueue *q, GxMessage *m)
{
    gx__tcp_message(m)->next = NULL;
    if (q->first) gx__tcp_message(q->last)->next = m;
    else q->first = m;
    q->last = m;
}

// number 0: the first. NULL: there is none of that number.
static GxMessage *gx__tcp_queue_take(GxTcpQueue *q, int64_t number)
{
    GxMessage *m = q->first, *before = NULL;
    for (; m && number && gx__tcp_message(m)->number != number; m = gx__tcp_message(m)->next) before = m;
    if (!m) return NULL;
    if (before) gx__tcp_message(before)->next = gx__tcp_message(m)->next;
    else q->first = gx__tcp_message(m)->next;
    if (q->last == m) q->last = before;
    return m;
}

static void gx__tcp_lose(GxTcp *tcp, int rank, const char *how)
{
    gx_socket_close(&tcp->peer[rank].fd);
    if (tcp->dead >= 0 || tcp->peer[rank].has_left) return;
    tcp->dead = rank;
    snprintf(tcp->death, sizeof tcp->death, "%s", how);
}

// ---- writing -------------------------------------------------------------------------------------------------------
static void gx__tcp_put_frame(GxTcpTraffic *out, int kind, GxMessage *m)
{
    GxTcpFrame *f = &out->frame;
    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->tag = m->tag;
    f->number = gx__tcp_message(m)->number;
    f->header = m->header;
    out->message = m;
    out->moved = 0;
    out->data = (char *)m->data + gx__tcp_message(m)->moved;
}

// Loads what goes next: offers and goes before data. 0: nothing.
static int gx__tcp_next_frame(GxTcpPeer *p)
{
    GxMessage *m = gx__tcp_queue_take(&p->talk, 0);
    if (m) {
        gx__tcp_put_frame(&p->out, m->is_send ? GX__TCP_OFFER : GX__TCP_GO, m);
        if (m->is_send && gx__tcp_is_inline(&m->header)) p->out.frame.bytes = m->header.bytes;
        return 1;
    }
    m = gx__tcp_queue_take(&p->data, 0);
    if (!m) return 0;
    gx__tcp_put_frame(&p->out, GX__TCP_DATA, m);
    p->out.frame.bytes = gx_min(GX__TCP_SEGMENT, m->header.bytes - gx__tcp_message(m)->moved);
    return 1;
}

// The frame under way has gone, and its data.
static void gx__tcp_frame_sent(GxTcpPeer *p)
{
    GxMessage *m = p->out.message;
    GxTcpMessage *t = gx__tcp_message(m);
    p->out.message = NULL;
    if (p->out.frame.kind == GX__TCP_DATA) t->moved += p->out.frame.bytes;
    if (p->out.frame.kind == GX__TCP_OFFER) gx__tcp_queue_add(&p->offered, m);
    else if (t->moved == m->header.bytes) t->done = 1;
    else gx__tcp_queue_add(m->is_send ? &p->data : &p->awaiting, m);
}

// Writes what it can of the frame under way and its data. 1: all has gone.
static int gx__tcp_write(GxTcpPeer *p)
{
    GxTcpTraffic *out = &p->out;
    const int64_t head = (int64_t)sizeof out->frame, all = head + out->frame.bytes;
    while (out->moved < all) {
        struct iovec part[2];
        struct msghdr message;
        const int64_t of_frame = gx_min(out->moved, head), of_data = out->moved - of_frame;
        memset(&message, 0, sizeof message);
        part[0].iov_base = (char *)&out->frame + of_frame;
        part[0].iov_len = (size_t)(head - of_frame);
        part[1].iov_base = out->data + of_data;
        part[1].iov_len = (size_t)(out->frame.bytes - of_data);
        message.msg_iov = part[0].iov_len ? part : part + 1;
        message.msg_iovlen = (size_t)(part[0].iov_len > 0) + (part[1].iov_len > 0);
        const ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL);
        if (n > 0) out->moved += n;
        else if (errno == EAGAIN) return 0;
        else if (errno != EINTR) {
            p->is_deaf = 1;
            return 0;
        }
    }
    return 1;
}

static void gx__tcp_flush(GxTcpPeer *p)
{
    while (p->fd >= 0 && !p->is_deaf && (p->out.message || gx__tcp_next_frame(p))) {
        if (!gx__tcp_write(p)) return;
        gx__tcp_frame_sent(p);
    }
}

// ---- reading -------------------------------------------------------------------------------------------------------
// A frame's head is here. Finds the place of what follows; 0: it cannot come from a rank of this program.
static int gx__tcp_place(GxTcp *tcp, GxTcpPeer *p)
{
    const GxTcpFrame *f = &p->in.frame;
    GxMessage *m = NULL;
    p->in.data = NULL;
    p->in.message = NULL;
    switch (f->kind) {
    case GX__TCP_OFFER:
        if (p->offers == tcp->offers_most || f->header.bytes < 0 || f->number != ++p->offers_seen) return 0;
        p->in.data = p->offer[p->offers].data;
        return f->bytes == (gx__tcp_is_inline(&f->header) ? f->header.bytes : 0);
    case GX__TCP_GO:
        if (f->number > 0) p->in.message = gx__tcp_queue_take(&p->offered, f->number);
        return p->in.message && f->bytes == 0;
    case GX__TCP_DATA:
        for (m = p->awaiting.first; m && gx__tcp_message(m)->number != f->number;) m = gx__tcp_message(m)->next;
        if (!m || f->bytes < 1 || f->bytes > m->header.bytes - gx__tcp_message(m)->moved) return 0;
        p->in.data = (char *)m->data + gx__tcp_message(m)->moved;
        p->in.message = m;
        return 1;
    case GX__TCP_ABORT: p->in.data = p->failure; return f->bytes > 0 && f->bytes < (int64_t)sizeof p->failure;
    default: return f->kind == GX__TCP_GOODBYE && f->bytes == 0;
    }
}

// A frame is whole, with what follows it.
static void gx__tcp_frame_came(GxTcp *tcp, GxTcpPeer *p)
{
    const GxTcpFrame *f = &p->in.frame;
    GxMessage *m = p->in.message;
    p->in.moved = 0;
    switch (f->kind) {
    case GX__TCP_OFFER: p->offer[p->offers++].frame = *f; return;
    case GX__TCP_GO:
        if (gx__tcp_is_inline(&m->header)) gx__tcp_message(m)->done = 1;
        else gx__tcp_queue_add(&p->data, m);
        return;
    case GX__TCP_DATA:
        gx__tcp_message(m)->moved += f->bytes;
        if (gx__tcp_message(m)->moved < m->header.bytes) return;
        gx__tcp_queue_take(&p->awaiting, f->number);
        gx__tcp_message(m)->done = 1;
        return;
    case GX__TCP_ABORT:
        p->failure[f->bytes] = 0;
        p->has_left = 1; // it ends now, and that is no death
        if (!tcp->failure) tcp->failure = p->failure;
        return;
    default: p->has_left = 1;
    }
}

// Reads once. 1: there may be more.
static int gx__tcp_read(GxTcp *tcp, int rank)
{
    GxTcpPeer *p = &tcp->peer[rank];
    GxTcpTraffic *in = &p->in;
    const int64_t head = (int64_t)sizeof in->frame, end = in->moved < head ? head : head + in->frame.bytes;
    char *to = in->moved < head ? (char *)&in->frame + in->moved : in->data + (in->moved - head);
    const ssize_t n = recv(p->fd, to, (size_t)(end - in->moved), 0);
    if (n <= 0) {
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
        gx__tcp_lose(tcp, rank, n == 0 ? "its connection ended without a goodbye" : strerror(errno));
        return 0;
    }
    const int whole_head = in->moved < head && in->moved + n == head, all = in->moved + n == end;
    in->moved += n;
    if (whole_head && !gx__tcp_place(tcp, p)) {
        gx__tcp_lose(tcp, rank, "it sent what no rank of this program sends");
        return 0;
    }
    if (all && in->moved == head + in->frame.bytes) gx__tcp_frame_came(tcp, p);
    return all;
}

// Waits up to so many milliseconds for something to read, or room for what there is to write; EINTR counts as
// something.
static void gx__tcp_await(GxTcp *tcp, int milliseconds)
{
    for (int r = 0; r < tcp->world; r++) {
        const GxTcpPeer *p = &tcp->peer[r];
        const int has_more = (p->out.message || p->talk.first || p->data.first) && !p->is_deaf;
        tcp->wait[r].fd = p->fd; // poll leaves out -1
        tcp->wait[r].events = has_more ? POLLIN | POLLOUT : POLLIN;
        tcp->wait[r].revents = 0;
    }
    poll(tcp->wait, (nfds_t)tcp->world, milliseconds);
}

static void gx__tcp_read_all(GxTcp *tcp)
{
    gx__tcp_await(tcp, 0);
    for (int r = 0; r < tcp->world; r++)
        while (tcp->wait[r].revents && tcp->peer[r].fd >= 0 && gx__tcp_read(tcp, r)) {}
}

// ---- the engine ----------------------------------------------------------------------------------------------------
static GxStatus gx__tcp_post(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    (void)err; // what goes wrong here is found by poll
    for (int i = 0; i < n; i++) {
        GxTcpMessage *t = gx__tcp_message(&list[i]);
        GxTcpPeer *p = &gx__tcp(comm)->peer[list[i].peer];
        memset(t, 0, sizeof *t);
        if (!list[i].is_send) continue;
        t->number = ++p->sends;
        gx__tcp_queue_add(&p->talk, &list[i]);
        gx__tcp_flush(p);
    }
    return GX_OK;
}

// Gives a receive the first offer of its tag, if there is one.
static void gx__tcp_match(GxTcpPeer *p, GxMessage *m)
{
    int i = 0;
    while (i < p->offers && p->offer[i].frame.tag != m->tag) i++;
    if (i == p->offers) return;
    GxTcpMessage *t = gx__tcp_message(m);
    m->got = p->offer[i].frame.header;
    if (!gx_header_agrees(&m->header, &m->got)) m->outcome = GX_MESSAGE_MISMATCH;
    else {
        t->number = p->offer[i].frame.number;
        t->moved = gx__tcp_is_inline(&m->header) ? m->header.bytes : 0;
        if (t->moved) memcpy(m->data, p->offer[i].data, (size_t)t->moved);
        gx__tcp_queue_add(&p->talk, m);
    }
    p->offers--;
    memmove(&p->offer[i], &p->offer[i + 1], (size_t)(p->offers - i) * sizeof *p->offer);
}

static int gx__tcp_poll(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    GxTcp *tcp = gx__tcp(comm);
    int moved = 0;
    gx__tcp_read_all(tcp);
    for (int i = 0; i < n; i++) {
        GxMessage *m = &list[i];
        if (m->outcome == GX_MESSAGE_OPEN && !m->is_send && !gx__tcp_message(m)->number)
            gx__tcp_match(&tcp->peer[m->peer], m);
        moved += m->outcome == GX_MESSAGE_MISMATCH;
    }
    for (int r = 0; r < tcp->world; r++) gx__tcp_flush(&tcp->peer[r]);
    for (int i = 0; i < n; i++) {
        GxMessage *m = &list[i];
        if (m->outcome != GX_MESSAGE_OPEN) continue;
        if (gx__tcp_message(m)->done) m->outcome = GX_MESSAGE_DONE;
        else if (tcp->peer[m->peer].has_left) m->outcome = GX_MESSAGE_LEFT;
        moved += m->outcome != GX_MESSAGE_OPEN;
    }
    if (tcp->failure) // before the other, which may follow from it
        GX_FAIL(err, GX_ERR_COMM, "%s", tcp->failure);
    else if (tcp->dead >= 0) GX_FAIL(err, GX_ERR_COMM, "rank %d died: %s", tcp->dead, tcp->death);
    return moved;
}

static int64_t gx__tcp_events(GxComm *comm)
{
    (void)comm;
    return 0;
}

// Sockets stay ready until they are read, so nothing that came since the last poll is missed.
static void gx__tcp_idle(GxComm *comm, int64_t events)
{
    (void)events;
    // So that a time-out is noticed in time.
    const double wait = comm->timeout > 0 && comm->timeout < 1 ? comm->timeout : 1;
    gx__tcp_await(gx__tcp(comm), (int)(wait * 1000) + 1);
}

static void gx__tcp_cancel(GxComm *comm, GxMessage *list, int n)
{
    (void)comm, (void)list, (void)n; // the abort has let go of all messages
}

// ---- the end -------------------------------------------------------------------------------------------------------
// Behind the frame that is under way, and instead of all that should have followed.
static void gx__tcp_load_farewell(GxTcpPeer *p, int kind, char *text)
{
    GxTcpFrame *f = &p->out.frame;
    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->bytes = (int64_t)strlen(text);
    p->out.data = text;
    p->out.moved = 0;
}

// 1: nothing is left to do for this peer.
static int gx__tcp_part_from(GxTcpPeer *p, int kind, char *text)
{
    char unread[4096];
    if (p->fd < 0) return 1;
    ssize_t n = 1; // closing with something unread would cost the peer what is on its way to it
    for (int i = 0; i < 100 && n > 0; i++) n = recv(p->fd, unread, sizeof unread, 0);
    const int is_gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (is_gone) return 1;
    if (p->out.message && gx__tcp_write(p)) {
        p->out.message = NULL;
        gx__tcp_load_farewell(p, kind, text);
    }
    if (p->is_deaf || p->out.message || !gx__tcp_write(p)) return p->is_deaf;
#ifdef SIOCOUTQ
    int unconfirmed = 0;
    return ioctl(p->fd, SIOCOUTQ, &unconfirmed) != 0 || unconfirmed == 0;
#else
    return 1;
#endif
}

static void gx__tcp_finish(GxTcp *tcp, int kind, char *text)
{
    const double until = gx_seconds() + 1;
    if (tcp->is_finished) return;
    tcp->is_finished = 1;
    for (int r = 0; r < tcp->world; r++)
        if (!tcp->peer[r].out.message) gx__tcp_load_farewell(&tcp->peer[r], kind, text);
    for (int open = 1; open && gx_seconds() < until;) {
        const struct timespec pause = {0, 200000};
        open = 0;
        for (int r = 0; r < tcp->world; r++) open += !gx__tcp_part_from(&tcp->peer[r], kind, text);
        if (open) nanosleep(&pause, NULL);
    }
    for (int r = 0; r < tcp->world; r++) gx_socket_close(&tcp->peer[r].fd);
}

static void gx__tcp_abort(GxContext *g, GxComm *comm, const char *message)
{
    GxTcp *tcp = gx__tcp(comm);
    char text[GX_FAILURE_TEXT];
    // What a program leaves to rank 0 to say (gx_print_error), whose terminal may be another one.
    const int is_left_out = comm->rank != 0 && (g->error.code == GX_ERR_COMM || g->error.code == GX_ERR_ARGUMENT);
    if (is_left_out && !tcp->is_finished) gx_log(&g->log, GX_LOG_ERROR, "%s", message);
    gx_comm_failure(g, comm, message, text);
    gx__tcp_finish(tcp, GX__TCP_ABORT, text);
}

static void gx__tcp_free(GxTcp *tcp)
{
    if (!tcp) return;
    free(tcp->peer);
    free(tcp->wait);
    free(tcp->offers);
    free(tcp);
}

static void gx__tcp_close(GxComm *comm)
{
    char nothing[1] = "";
    gx__tcp_finish(gx__tcp(comm), GX__TCP_GOODBYE, nothing);
    gx__tcp_free(gx__tcp(comm));
    comm->state = NULL;
}

static const GxEngine gx__tcp_engine = {"tcp",        gx__tcp_post,   gx__tcp_poll,  gx__tcp_events,
                                        gx__tcp_idle, gx__tcp_cancel, gx__tcp_abort, gx__tcp_close};

static GxTcp *gx__tcp_new(int rank, int world)
{
    GxTcp *tcp = (GxTcp *)calloc(1, sizeof *tcp);
    if (!tcp) return NULL;
    tcp->rank = rank;
    tcp->world = world;
    tcp->dead = -1;
    tcp->offers_most = 2 * world + GX_MAX_SLOTS;
    tcp->peer = (GxTcpPeer *)calloc((size_t)world, sizeof *tcp->peer);
    tcp->wait = (struct pollfd *)calloc((size_t)world, sizeof *tcp->wait);
    tcp->offers = (GxTcpOffer *)calloc((size_t)world * (size_t)tcp->offers_most, sizeof *tcp->offers);
    if (tcp->peer && tcp->wait && tcp->offers) return tcp;
    gx__tcp_free(tcp);
    return NULL;
}

GxStatus gx_tcp_comm(GxComm *comm, GxRendezvous *r, GxError *err)
{
    int link[GX_MAX_PARTS];
    memset(comm, 0, sizeof *comm);
    GxTcp *tcp = gx__tcp_new(r->rank, r->world);
    if (!tcp) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the connections of %d ranks", r->world);
    const GxStatus status = gx_rendezvous(r, link, err);
    if (status != GX_OK) {
        gx__tcp_free(tcp);
        return status;
    }
    for (int i = 0; i < r->world; i++) {
        tcp->peer[i].fd = link[i];
        tcp->peer[i].offer = tcp->offers + (int64_t)i * tcp->offers_most;
    }
    comm->engine = &gx__tcp_engine;
    comm->state = tcp;
    comm->rank = r->rank;
    comm->world = r->world;
    comm->local_rank = r->local_rank;
    comm->local_ranks = r->local_ranks;
    return GX_OK;
}
#endif
