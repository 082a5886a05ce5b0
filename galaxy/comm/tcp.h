// comm/tcp.h: the engine for ranks that are processes without MPI, started by torchrun, by srun, or by hand. It needs
// only sockets.
//
//     GxRendezvous r = GX_ZERO;
//     GX_TRY(gx_rendezvous_environment(&r, &err));     // or gx_rendezvous_address: see rendezvous.h
//     if (r.world > 1) GX_TRY(gx_tcp_comm(&comm, &r, &err));
//     ... gx_comm_open(g, &comm) ... gx_comm_close(g);
//
// The protocol of a message (as MPI's eager and rendezvous protocols):
//     OFFER   The sender sends the header at once, with the data if they are at most 256 bytes.
//     GO      The receiver keeps the offer until it has a receive of that tag; then it compares headers and answers go.
//             If the offer had the data, this is the receipt.
//     DATA    Otherwise the sender now sends the data, which are read from the socket directly into their buffer.
// A send is complete when its data have been accepted, or handed to the system for a receiver that waits for them.
//
// Why ranks cannot block each other for ever: everything that arrives has a buffer. There are as many places for offers
// as the sender can have sends in flight (flight.h: two per rank of a blocking call and one per slot; each ends with a
// go before the next is offered), and data are sent only after a go. So a rank inside a call always reads its sockets
// empty, and ranks that write to it make progress; a rank only ever waits for a receive that is not posted yet, as with
// any engine. Data are sent in segments of 256 KB with offers and goes between them, so both directions make progress.
//
// When a rank leaves: one that closes sends a goodbye, one that aborts sends which rank has failed and why. Both stay
// until the other machines have received that, for at most a second. A connection that ends without either means that
// the rank has died, and the error names it. If a machine disappears from the network, no connection ends; there the
// communicator's timeout ends the run. A peer that breaks the protocol is treated as dead.
//
// Memory: from the system, all taken by gx_tcp_comm: 330 bytes x (2 x world + 16) for each rank.
//
// Latency: a message of up to 256 bytes arrives after one network latency, and its receipt after two; a longer message
// arrives after three.
//
// Not supported: encryption (rendezvous.h), several connections between two ranks, RDMA.
#ifndef GX_TCP_H
#define GX_TCP_H
#include "comm.h"
#include "rendezvous.h"
GX_BEGIN

// Connects to all other ranks (gx_rendezvous), which waits for the last of them; sets local_rank and local_ranks of r.
// Zeroes *comm; the caller may then set its timeout, chunk and slots.
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

// Precedes everything that is sent.
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
    int done;        // it is in no queue any more; the next poll sets its outcome
} GxTcpMessage;
typedef char gx__tcp_message_fits[sizeof(GxTcpMessage) <= sizeof(((GxMessage *)0)->engine) ? 1 : -1];

typedef struct {
    GxMessage *first, *last;
} GxTcpQueue;

// One direction of a connection: the current frame and its data, of which `moved` bytes have been transferred.
typedef struct {
    GxTcpFrame frame;
    char *data;
    int64_t moved;      // of frame and data
    GxMessage *message; // the frame's message; for `out` NULL: nothing is being sent
} GxTcpTraffic;

typedef struct {
    int fd;       // -1: closed
    int has_left; // it has sent a goodbye
    int is_deaf;  // writing to it failed; what it sent before can still be read
    int64_t sends, offers_seen;
    GxTcpTraffic in, out;
    GxTcpQueue talk;              // sends to be offered, receives to be answered by go
    GxTcpQueue data;              // sends that have got their go, and whose data are to be sent
    GxTcpQueue offered, awaiting; // sends without a go, receives without all their data
    GxTcpOffer *offer;            // [offers_most], in the order in which they came
    int offers;
    char failure[GX_FAILURE_TEXT]; // the reason of its abort
} GxTcpPeer;

typedef struct {
    int rank, world, offers_most;
    const char *failure; // why a rank aborted; NULL: none did
    int dead;            // a rank whose connection broke, and how; -1: none
    char death[160];
    int is_finished;     // this rank has sent an abort or goodbye
    GxTcpPeer *peer;     // [world]
    struct pollfd *wait; // [world]
    GxTcpOffer *offers;  // [world][offers_most]
    // of the thread that advances messages while the rank computes: what it waits for, and a pipe that wakes it
    struct pollfd *rest; // [world + 1]
    int is_resting, pipe[2];
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

// Removes and returns the message of this number (0: the first); NULL: there is none.
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

// Chooses the next frame to send: offers and goes before data. Returns 0 if there is none.
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

// The current frame and its data have been sent.
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

// Writes as much of the current frame and its data as possible. Returns 1 if all of it has been written.
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
// A frame has arrived; finds the buffer for the data that follow it. Returns 0 if the frame breaks the protocol.
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

// A frame has arrived with all its data: handles it.
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
        p->has_left = 1; // so the end of its connection is not a death
        if (!tcp->failure) tcp->failure = p->failure;
        return;
    default: p->has_left = 1;
    }
}

// Reads once. Returns 1 if there may be more.
static int gx__tcp_read(GxTcp *tcp, int rank)
{
    GxTcpPeer *p = &tcp->peer[rank];
    GxTcpTraffic *in = &p->in;
    const int64_t head = (int64_t)sizeof in->frame, end = in->moved < head ? head : head + in->frame.bytes;
    char *to = in->moved < head ? (char *)&in->frame + in->moved : in->data + (in->moved - head);
    const ssize_t n = recv(p->fd, to, (size_t)(end - in->moved), 0);
    if (n <= 0) {
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
        gx__tcp_lose(tcp, rank, n == 0 ? "its connection ended without notice" : strerror(errno));
        return 0;
    }
    const int whole_head = in->moved < head && in->moved + n == head, all = in->moved + n == end;
    in->moved += n;
    if (whole_head && !gx__tcp_place(tcp, p)) {
        gx__tcp_lose(tcp, rank, "it sent what no rank of this program would send");
        return 0;
    }
    if (all && in->moved == head + in->frame.bytes) gx__tcp_frame_came(tcp, p);
    return all;
}

// Waits up to `milliseconds` until something can be read, or written if there is something to write. EINTR also ends
// the wait.
static void gx__tcp_list_waits(const GxTcp *tcp, struct pollfd *wait)
{
    for (int r = 0; r < tcp->world; r++) {
        const GxTcpPeer *p = &tcp->peer[r];
        const int has_more = (p->out.message || p->talk.first || p->data.first) && !p->is_deaf;
        wait[r].fd = p->fd; // poll leaves out -1
        wait[r].events = has_more ? POLLIN | POLLOUT : POLLIN;
        wait[r].revents = 0;
    }
}

static void gx__tcp_await(GxTcp *tcp, int milliseconds)
{
    gx__tcp_list_waits(tcp, tcp->wait);
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
    (void)err; // poll reports what fails here
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
    if (tcp->failure) // checked first, since a death may be its consequence
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
    // At most the timeout, so that it is noticed in time.
    const double wait = comm->timeout > 0 && comm->timeout < 1 ? comm->timeout : 1;
    gx__tcp_await(gx__tcp(comm), (int)(wait * 1000) + 1);
}

static void gx__tcp_rest(GxComm *comm, int64_t events, pthread_mutex_t *lock)
{
    (void)events;
    GxTcp *tcp = gx__tcp(comm);
    struct pollfd *pipe = &tcp->rest[tcp->world];
    char woken[16];
    gx__tcp_list_waits(tcp, tcp->rest);
    pipe->fd = tcp->pipe[0], pipe->events = POLLIN, pipe->revents = 0;
    tcp->is_resting = 1;
    pthread_mutex_unlock(lock);
    poll(tcp->rest, (nfds_t)tcp->world + 1, 1000);
    pthread_mutex_lock(lock);
    tcp->is_resting = 0;
    while (pipe->revents && read(tcp->pipe[0], woken, sizeof woken) > 0) {}
}

static void gx__tcp_wake(GxComm *comm)
{
    const GxTcp *tcp = gx__tcp(comm);
    if (tcp->is_resting && write(tcp->pipe[1], "", 1) < 0) return; // full: it is awake
}

static void gx__tcp_cancel(GxComm *comm, GxMessage *list, int n)
{
    (void)comm, (void)list, (void)n; // the abort has already removed all messages from the queues
}

// ---- the end -------------------------------------------------------------------------------------------------------
// Queues an abort or goodbye after the current frame, in place of everything else that was to be sent.
static void gx__tcp_load_farewell(GxTcpPeer *p, int kind, char *text)
{
    GxTcpFrame *f = &p->out.frame;
    memset(f, 0, sizeof *f);
    f->kind = kind;
    f->bytes = (int64_t)strlen(text);
    p->out.data = text;
    p->out.moved = 0;
}

// Advances the farewell to one peer. Returns 1 if nothing is left to do.
static int gx__tcp_part_from(GxTcpPeer *p, int kind, char *text)
{
    char unread[4096];
    if (p->fd < 0) return 1;
    ssize_t n = 1; // closing a socket with unread data would discard what is on its way to the peer
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
    // Errors that a program prints on rank 0 only (gx_print_error): logged here, since rank 0 may have another
    // terminal.
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
    free(tcp->rest);
    free(tcp->offers);
    for (int i = 0; i < 2; i++) gx_socket_close(&tcp->pipe[i]);
    free(tcp);
}

static void gx__tcp_close(GxComm *comm)
{
    char nothing[1] = "";
    gx__tcp_finish(gx__tcp(comm), GX__TCP_GOODBYE, nothing);
    gx__tcp_free(gx__tcp(comm));
    comm->state = NULL;
}

static const GxEngine gx__tcp_engine = {"tcp",        gx__tcp_post, gx__tcp_poll,   gx__tcp_events, gx__tcp_idle,
                                        gx__tcp_rest, gx__tcp_wake, gx__tcp_cancel, gx__tcp_abort,  gx__tcp_close};

static GxTcp *gx__tcp_new(int rank, int world)
{
    GxTcp *tcp = (GxTcp *)calloc(1, sizeof *tcp);
    if (!tcp) return NULL;
    tcp->rank = rank;
    tcp->world = world;
    tcp->dead = -1;
    tcp->pipe[0] = tcp->pipe[1] = -1;
    tcp->offers_most = 2 * world + GX_MAX_SLOTS;
    tcp->peer = (GxTcpPeer *)calloc((size_t)world, sizeof *tcp->peer);
    tcp->wait = (struct pollfd *)calloc((size_t)world, sizeof *tcp->wait);
    tcp->rest = (struct pollfd *)calloc((size_t)world + 1, sizeof *tcp->rest);
    tcp->offers = (GxTcpOffer *)calloc((size_t)world * (size_t)tcp->offers_most, sizeof *tcp->offers);
    if (tcp->peer && tcp->wait && tcp->rest && tcp->offers && gx_socket_pipe(tcp->pipe)) return tcp;
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
