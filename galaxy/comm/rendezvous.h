// comm/rendezvous.h: how ranks that are started as separate processes, on one machine or several, find each other. The
// result is a TCP connection between each two of them; tcp.h makes a communicator of these.
//
//     GxRendezvous r = GX_ZERO;
//     GX_TRY(gx_rendezvous_environment(&r, &err));       // variables of torchrun or srun; r.world 0: there are none
//     GX_TRY(gx_rendezvous_address(&r, 1, 3, "tcp://node0:29500", &err));     // or by hand: rank 1 of 3
//     int link[GX_MAX_PARTS];                            // sockets by rank, -1 for this one; the caller closes them
//     GX_TRY(gx_rendezvous(&r, link, &err));
//
// Steps
//     1. Rank 0 listens at the address. The others connect to it, retrying until it is there, and send their rank and
//        the port at which they listen themselves.
//     2. When all have connected, rank 0 sends each the addresses of the others: the address that it saw the connection
//        come from, and their port.
//     3. Of each two ranks the higher connects to the lower.
//     4. A rank that has all its connections tells rank 0. Rank 0 tells all when every rank has, or which rank it has
//        lost. So no rank waits for one that died meanwhile.
// When gx_rendezvous returns, no rank listens any more.
//
// A connection has to begin with a hello: a magic number, version, world, and the run's number, which rank 0 draws and
// sends to the others. A rank of another run or version is told why it is refused. A connection that sends anything
// else, or nothing for a few seconds, is closed. Neither delays the others. After `timeout` the error names the ranks
// that have not come, and the one that was refused last.
//
// Variables of torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and if they are set LOCAL_RANK, LOCAL_WORLD_SIZE,
// TORCHELASTIC_RUN_ID (must be the same on all ranks). If torchrun's own agent listens at MASTER_PORT
// (TORCHELASTIC_USE_AGENT_STORE=True), rank 0 takes the next port. Of srun: SLURM_PROCID, SLURM_NTASKS, SLURM_JOB_ID,
// and MASTER_ADDR, MASTER_PORT, which the job's script has to export; without these two srun's variables are ignored.
//
// Where ranks listen: if the address is numeric, at this address (so with 127.0.0.1 only inside the machine); if it is
// a name, at all addresses of the machine, since a machine may resolve its own name to a loopback address. Nothing is
// encrypted or authenticated: for trusted networks only.
//
// Not supported: ranks that have different addresses for different ranks (NAT), link-local IPv6 addresses, ranks that
// join or return later.
#ifndef GX_RENDEZVOUS_H
#define GX_RENDEZVOUS_H
#include "../base/log.h"
#include "../base/partition.h"
#include "sockets.h"
GX_BEGIN

typedef struct {
    int rank, world; // world 0: unknown
    // Among the ranks of this machine; -1 and 0: gx_rendezvous derives them from the machines' names.
    int local_rank, local_ranks;
    char host[256]; // where rank 0 listens: a name or a numeric address
    int port;
    double timeout; // seconds until all ranks must have connected; 0: 600
    GxLogger log;   // is told once, after five seconds, for whom this rank waits
} GxRendezvous;

// Sets all but the timeout. Variables that contradict each other, or of which some are missing, are an error that names
// them.
GxStatus gx_rendezvous_environment(GxRendezvous *r, GxError *err);
// address: tcp://host:port, tcp://[::1]:port.
GxStatus gx_rendezvous_address(GxRendezvous *r, int rank, int world, const char *address, GxError *err);
// link: [world]; non-blocking sockets with close-on-exec and TCP_NODELAY.
GxStatus gx_rendezvous(GxRendezvous *r, int *link, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RENDEZVOUS_IMPLEMENTED)
#define GX_RENDEZVOUS_IMPLEMENTED
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// ---- environment and address ---------------------------------------------------------------------------------------
// other: the variable for whose sake this one is read
static GxStatus gx__meet_environment_count(const char *name, const char *other, int least, int most, int *value,
                                           GxError *err)
{
    const char *text = getenv(name);
    char *end = NULL, cut[44];
    if (!text || !text[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is set (%s), but %s is not; set both, or unset %s", other,
                       gx_text_cut(getenv(other), cut, sizeof cut), name, other);
    const long n = strtol(text, &end, 10);
    if (*end || n < least || n > most)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is \"%s\"; it must be a number from %d to %d", name,
                       gx_text_cut(text, cut, sizeof cut), least, most);
    *value = (int)n;
    return GX_OK;
}

static GxStatus gx__meet_check_rank(const GxRendezvous *r, const char *rank_name, const char *world_name, GxError *err)
{
    if (r->rank >= 0 && r->rank < r->world && r->world <= GX_MAX_PARTS) return GX_OK;
    if (r->world < 1 || r->world > GX_MAX_PARTS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %d; 1 to %d ranks are possible", world_name, r->world,
                       GX_MAX_PARTS);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %d, but %s is %d: ranks count from 0 to %d", rank_name, r->rank,
                   world_name, r->world, r->world - 1);
}

static int gx__meet_is_set(const char *name) { return getenv(name) && getenv(name)[0]; }

// Replaces "localhost" by its numeric address, so that ranks listen only inside the machine.
static int gx__meet_set_host(GxRendezvous *r, const char *host, int n)
{
    if (n == 9 && !strncmp(host, "localhost", 9)) host = "127.0.0.1";
    if (n < 1 || n >= (int)sizeof r->host) return 0;
    snprintf(r->host, sizeof r->host, "%.*s", n, host);
    return 1;
}

static GxStatus gx__meet_environment_master(GxRendezvous *r, GxError *err)
{
    const char *host = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!host || !host[0] || !gx__meet_is_set("MASTER_PORT"))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "the environment says rank %d of %d, but %s is not set: set MASTER_ADDR and MASTER_PORT to "
                       "where rank 0 listens, or unset "
                       "RANK and WORLD_SIZE",
                       r->rank, r->world, host && host[0] ? "MASTER_PORT" : "MASTER_ADDR");
    if (!gx__meet_set_host(r, host, (int)strlen(host)))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "MASTER_ADDR has %d characters", (int)strlen(host));
    GX_TRY(gx__meet_environment_count("MASTER_PORT", "MASTER_ADDR", 1, 65534, &r->port, err));
    if (agent && !strcmp(agent, "True")) r->port++;
    return GX_OK;
}

GxStatus gx_rendezvous_environment(GxRendezvous *r, GxError *err)
{
    const int torchrun = gx__meet_is_set("RANK") || gx__meet_is_set("WORLD_SIZE");
    const int slurm = !torchrun && gx__meet_is_set("SLURM_PROCID") && gx__meet_is_set("SLURM_NTASKS") &&
                      gx__meet_is_set("MASTER_ADDR") && gx__meet_is_set("MASTER_PORT");
    const char *rank_name = torchrun ? "RANK" : "SLURM_PROCID", *world_name = torchrun ? "WORLD_SIZE" : "SLURM_NTASKS";
    const char *local_name = torchrun ? "LOCAL_RANK" : "SLURM_LOCALID";
    r->world = r->rank = r->local_ranks = 0;
    r->local_rank = -1;
    if (!torchrun && !slurm) return GX_OK;
    GxRendezvous found = *r;
    GX_TRY(gx__meet_environment_count(world_name, rank_name, 1, GX_MAX_PARTS, &found.world, err));
    GX_TRY(gx__meet_environment_count(rank_name, world_name, 0, 1 << 20, &found.rank, err));
    GX_TRY(gx__meet_check_rank(&found, rank_name, world_name, err));
    if (gx__meet_is_set(local_name))
        GX_TRY(gx__meet_environment_count(local_name, rank_name, 0, found.world - 1, &found.local_rank, err));
    if (torchrun && gx__meet_is_set("LOCAL_WORLD_SIZE"))
        GX_TRY(gx__meet_environment_count("LOCAL_WORLD_SIZE", local_name, 1, found.world, &found.local_ranks, err));
    if (found.local_ranks && found.local_rank >= found.local_ranks)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "LOCAL_RANK is %d, but LOCAL_WORLD_SIZE is %d", found.local_rank,
                       found.local_ranks);
    if (found.world > 1) GX_TRY(gx__meet_environment_master(&found, err));
    *r = found;
    return GX_OK;
}

GxStatus gx_rendezvous_address(GxRendezvous *r, int rank, int world, const char *address, GxError *err)
{
    r->rank = rank;
    r->world = world;
    r->local_rank = -1;
    r->local_ranks = 0;
    GX_TRY(gx__meet_check_rank(r, "--rank", "--world", err));
    const char *host = strncmp(address, "tcp://", 6) ? NULL : address + 6, *colon = host ? strrchr(host, ':') : NULL;
    const int bracket = host && host[0] == '[' && colon && colon[-1] == ']';
    const int n = colon ? (int)(colon - host) - 2 * bracket : 0;
    char *end = NULL, cut[304];
    const long port = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!gx__meet_set_host(r, host + bracket, n) || port < 1 || port > 65535 || *end)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--init is \"%s\"; it must be tcp://host:port, where rank 0 listens (IPv6: tcp://[::1]:29500)",
                       gx_text_cut(address, cut, sizeof cut));
    r->port = (int)port;
    return GX_OK;
}

// ---- messages ------------------------------------------------------------------------------------------------------
static const uint64_t gx__meet_magic = 0x0079786c61676c61; // differs on a machine of the other byte order
enum { GX__MEET_VERSION = 1, GX__MEET_GUESTS = 64 };
static const double gx__meet_hello_seconds = 5; // between connecting and the end of the hello
static const double gx__meet_tell_seconds = 5;  // of waiting in silence

typedef struct {
    uint64_t magic;
    int32_t version, rank, world, port; // port: where this rank listens
    uint64_t run;                       // 0: not known yet
    char job[64], machine[64];          // the launcher's name of the job; the host's name
} GxHello;

typedef struct {
    uint64_t magic, run;
    int32_t version, refuses;
    char text[400]; // why
} GxAnswer;

typedef struct {
    int32_t family, port; // family 0: on rank 0's machine, at the address by which a rank reaches rank 0
    uint8_t ip[16];
    char machine[64];
} GxSeat;

typedef struct {
    const GxRendezvous *r;
    int *link;
    int listener;
    GxHello hello; // this rank's
    GxSeat seat[GX_MAX_PARTS];
    double deadline;
    double tell;       // when the log is told for whom this rank waits; 0: it was
    char refused[300]; // who was refused last
} GxMeeting;

typedef struct {
    int fd; // -1: a free place
    size_t got;
    double since;
    GxHello hello;
} GxGuest;

static double gx__meet_timeout(const GxRendezvous *r) { return r->timeout > 0 ? r->timeout : 600; }

// Tells the log once that this rank has been waiting for some time: for whom, and why so far.
static void gx__meet_tell(GxMeeting *m, const char *for_whom, const char *why)
{
    if (!m->tell || gx_seconds() < m->tell) return;
    m->tell = 0;
    gx_log(&m->r->log, GX_LOG_INFO, "waiting for %s, for up to %g s (--timeout)%s%s%s", for_whom,
           gx__meet_timeout(m->r), why[0] ? "; " : "", why[0] ? "so far: " : "", why);
}

static void gx__meet_introduce(GxMeeting *m)
{
    const char *job = getenv("TORCHELASTIC_RUN_ID");
    if (!job) job = getenv("SLURM_JOB_ID");
    GxHello *h = &m->hello;
    memset(h, 0, sizeof *h);
    h->magic = gx__meet_magic;
    h->version = GX__MEET_VERSION;
    h->rank = m->r->rank;
    h->world = m->r->world;
    snprintf(h->job, sizeof h->job, "%s", job ? job : "");
    gethostname(h->machine, sizeof h->machine - 1);
}

static int gx__meet_answer(int fd, const GxMeeting *m, const char *refusal)
{
    GxAnswer a;
    memset(&a, 0, sizeof a);
    a.magic = gx__meet_magic;
    a.version = GX__MEET_VERSION;
    a.run = m->hello.run;
    a.refuses = refusal != NULL;
    if (refusal) snprintf(a.text, sizeof a.text, "%s", refusal);
    return gx_socket_write(fd, &a, sizeof a, gx_seconds() + gx__meet_hello_seconds);
}

// 1: the connection has ended. A rank that waits sends nothing, so anything readable is the end. Its launcher may start
// it again.
static int gx__meet_has_gone(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) == 0;
}

// Why a hello is refused; "" if it is from a rank >= `first` that has not connected yet.
static void gx__meet_judge(const GxMeeting *m, const GxHello *h, int first, char *why, size_t n)
{
    why[0] = 0;
    if (h->version != GX__MEET_VERSION)
        snprintf(why, n, "it speaks version %d of this protocol, but rank %d speaks version %d", h->version, m->r->rank,
                 GX__MEET_VERSION);
    else if (h->world != m->r->world)
        snprintf(why, n, "it belongs to a world of %d ranks, and this one has %d", h->world, m->r->world);
    else if (strcmp(h->job, m->hello.job))
        snprintf(why, n, "it belongs to job \"%s\", and this is \"%s\"", h->job, m->hello.job);
    else if (h->run != (first == 1 ? 0 : m->hello.run)) snprintf(why, n, "it belongs to another run");
    else if (h->rank < first || h->rank >= m->r->world)
        snprintf(why, n, "rank %d does not connect to rank %d", h->rank, m->r->rank);
    else if (m->link[h->rank] >= 0 && !gx__meet_has_gone(m->link[h->rank]))
        snprintf(why, n, "rank %d is here already; was it started twice?", h->rank);
    else if (h->port < 1 || h->port > 65535) snprintf(why, n, "it listens at port %d", h->port);
}

// ---- incoming connections ------------------------------------------------------------------------------------------
static void gx__meet_seat_guest(GxMeeting *m, GxGuest *guest)
{
    const GxHello *h = &guest->hello;
    GxSeat *seat = &m->seat[h->rank];
    const GxEndpoint from = gx_socket_endpoint(guest->fd, 1);
    memset(seat, 0, sizeof *seat);
    seat->port = h->port;
    memcpy(seat->machine, h->machine, sizeof seat->machine);
    if (!gx_endpoint_is_loopback(&from)) {
        seat->family = from.any.sa_family == AF_INET ? 4 : 6;
        if (seat->family == 4) memcpy(seat->ip, &from.four.sin_addr, 4);
        else memcpy(seat->ip, &from.six.sin6_addr, 16);
    }
    gx_socket_close(&m->link[h->rank]); // the earlier connection of this rank, if it has ended
    m->link[h->rank] = guest->fd;
    guest->fd = -1;
}

// A complete hello has arrived. Accepts the rank (and answers it, unless this is rank 0), or tells it why it is
// refused.
static void gx__meet_receive_guest(GxMeeting *m, GxGuest *guest, int first)
{
    char why[200];
    guest->hello.job[sizeof guest->hello.job - 1] = guest->hello.machine[sizeof guest->hello.machine - 1] = 0;
    gx__meet_judge(m, &guest->hello, first, why, sizeof why);
    if (!why[0]) {
        if (first == 1 || gx__meet_answer(guest->fd, m, NULL)) gx__meet_seat_guest(m, guest);
        else gx_socket_close(&guest->fd);
        return;
    }
    const GxEndpoint from = gx_socket_endpoint(guest->fd, 1);
    snprintf(m->refused, sizeof m->refused, "%s: %s", gx_endpoint_text(&from).text, why);
    gx__meet_answer(guest->fd, m, why);
    gx_socket_close(&guest->fd);
}

// Reads the part of a hello that has arrived. A connection that does not begin with the magic number gets no answer.
static void gx__meet_hear_guest(GxMeeting *m, GxGuest *guest, int first)
{
    const ssize_t got = recv(guest->fd, (char *)&guest->hello + guest->got, sizeof guest->hello - guest->got, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) guest->got += (size_t)got;
    if (got <= 0 || (guest->got >= sizeof guest->hello.magic && guest->hello.magic != gx__meet_magic))
        gx_socket_close(&guest->fd);
    else if (guest->got == sizeof guest->hello) gx__meet_receive_guest(m, guest, first);
}

// Accepts a connection. If all places are taken, it replaces the connection that has been silent for the longest time.
static void gx__meet_accept_guest(GxMeeting *m, GxGuest *guests)
{
    const int fd = gx_socket_accept(m->listener);
    if (fd < 0) return;
    GxGuest *place = guests;
    for (int i = 0; i < GX__MEET_GUESTS && place->fd >= 0; i++)
        if (guests[i].fd < 0 || guests[i].since < place->since) place = &guests[i];
    gx_socket_close(&place->fd);
    place->fd = fd;
    place->got = 0;
    place->since = gx_seconds();
}

static int gx__meet_missing(const GxMeeting *m, int first, char *text, size_t n)
{
    int missing = 0;
    text[0] = 0;
    for (int r = first; r < m->r->world; r++) {
        if (m->link[r] >= 0) continue;
        const size_t used = strlen(text);
        snprintf(text + used, n - used, "%s%d", missing++ ? ", " : "", r);
    }
    return missing;
}

// Reads rank 0's final message: all ranks are connected, or why not.
static GxStatus gx__meet_hear_first(GxMeeting *m, GxError *err)
{
    GxAnswer a;
    memset(&a, 0, sizeof a);
    const int is_there = gx_socket_read(m->link[0], &a, sizeof a, m->deadline) && a.magic == gx__meet_magic;
    a.text[sizeof a.text - 1] = 0;
    if (is_there && !a.refuses) return GX_OK;
    if (is_there) return GX_FAIL(err, GX_ERR_COMM, "%s", a.text); // it names the rank that caused the failure
    return GX_FAIL(err, GX_ERR_COMM, "rank 0 has gone before rank %d had met all others", m->r->rank);
}

// Waits briefly for a connection or a message, and handles it. Returns 0 if rank 0 ends the rendezvous.
static int gx__meet_attend(GxMeeting *m, GxGuest *guests, int first)
{
    struct pollfd p[2 + GX__MEET_GUESTS];
    for (int i = 0; i < 2 + GX__MEET_GUESTS; i++) {
        p[i].fd = i == 0 ? m->listener : i == 1 ? m->link[0] : guests[i - 2].fd; // poll leaves out -1
        p[i].events = POLLIN;
        p[i].revents = 0;
    }
    if (poll(p, 2 + GX__MEET_GUESTS, 100) < 0) return 1;
    for (int i = 0; i < GX__MEET_GUESTS; i++) {
        if (guests[i].fd >= 0 && p[i + 2].revents) gx__meet_hear_guest(m, &guests[i], first);
        else if (guests[i].fd >= 0 && gx_seconds() - guests[i].since > gx__meet_hello_seconds)
            gx_socket_close(&guests[i].fd);
    }
    if (p[0].revents) gx__meet_accept_guest(m, guests);
    return !p[1].revents;
}

// Accepts connections until all ranks from `first` on have connected.
static GxStatus gx__meet_admit(GxMeeting *m, int first, GxError *err)
{
    GxGuest guests[GX__MEET_GUESTS];
    char missing[120], for_whom[160];
    int goes_on = 1, all;
    for (int i = 0; i < GX__MEET_GUESTS; i++) guests[i].fd = -1;
    while (goes_on && gx_seconds() < m->deadline && (all = gx__meet_missing(m, first, missing, sizeof missing)) > 0) {
        snprintf(for_whom, sizeof for_whom, "rank%s %s of %d to connect", gx_text_s(all), missing, m->r->world);
        gx__meet_tell(m, for_whom, m->refused);
        goes_on = gx__meet_attend(m, guests, first);
    }
    for (int i = 0; i < GX__MEET_GUESTS; i++) gx_socket_close(&guests[i].fd);
    if (!goes_on) return gx__meet_hear_first(m, err);
    if (!gx__meet_missing(m, first, missing, sizeof missing)) return GX_OK;
    return GX_FAIL(err, GX_ERR_COMM,
                   "rank %d waited %g s for rank %s of %d to connect%s%s%s: were they started, with the same address?",
                   m->r->rank, gx__meet_timeout(m->r), missing, m->r->world, m->refused[0] ? " (refused: " : "",
                   m->refused, m->refused[0] ? ")" : "");
}

// ---- rank 0 --------------------------------------------------------------------------------------------------------
// Listens as rank 0. A numeric address that is not one of this machine's may be that of a gateway to it: listens at all
// addresses then.
static GxStatus gx__meet_listen_as_first(GxMeeting *m, GxError *err)
{
    const GxRendezvous *r = m->r;
    GxEndpoint e;
    const int is_number = gx_endpoint_numeric(&e, r->host, r->port);
    if (is_number) m->listener = gx_socket_listen(&e);
    if (!is_number || (m->listener < 0 && errno == EADDRNOTAVAIL)) m->listener = gx_socket_listen_everywhere(r->port);
    if (m->listener >= 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_COMM,
                   "rank 0 cannot listen at %s, port %d: %s; choose another port (MASTER_PORT, or --init) on all ranks",
                   r->host, r->port, strerror(errno));
}

static void gx__meet_tell_all(GxMeeting *m, const char *refusal)
{
    for (int r = 1; r < m->r->world; r++)
        if (m->link[r] >= 0) gx__meet_answer(m->link[r], m, refusal);
}

// Waits until every other rank has reported that it has all its connections.
static GxStatus gx__meet_confirm_all(GxMeeting *m, GxError *err)
{
    struct pollfd p[GX_MAX_PARTS];
    int open = m->r->world - 1;
    for (int r = 0; r < m->r->world; r++) p[r].fd = m->link[r], p[r].events = POLLIN, p[r].revents = 0;
    while (open && gx_seconds() < m->deadline) {
        if (poll(p, (nfds_t)m->r->world, 100) < 1) continue;
        for (int r = 1; r < m->r->world; r++) {
            char byte;
            if (p[r].fd < 0 || !p[r].revents) continue;
            if (!gx_socket_read(p[r].fd, &byte, 1, m->deadline))
                return GX_FAIL(err, GX_ERR_COMM, "rank %d died while the ranks met", r);
            p[r].fd = -1;
            open--;
        }
    }
    if (!open) return GX_OK;
    return GX_FAIL(err, GX_ERR_COMM, "%d of %d ranks could not connect to each other in %g s", open, m->r->world,
                   gx__meet_timeout(m->r));
}

static GxStatus gx__meet_seat_all(GxMeeting *m, GxError *err)
{
    GX_TRY(gx__meet_admit(m, 1, err));
    gx__meet_tell_all(m, NULL);
    for (int r = 1; r < m->r->world; r++) // a rank that has died is noticed below, since it does not confirm
        gx_socket_write(m->link[r], m->seat, (size_t)m->r->world * sizeof *m->seat, m->deadline);
    return gx__meet_confirm_all(m, err);
}

static GxStatus gx__meet_gather_ranks(GxMeeting *m, GxError *err)
{
    while (m->hello.run == 0)
        if (getrandom(&m->hello.run, sizeof m->hello.run, 0) < 0 && errno != EINTR)
            m->hello.run = (uint64_t)time(NULL) << 32 | (uint32_t)getpid();
    GX_TRY(gx__meet_listen_as_first(m, err));
    memcpy(m->seat[0].machine, m->hello.machine, sizeof m->hello.machine);
    const GxStatus status = gx__meet_seat_all(m, err);
    gx__meet_tell_all(m, status == GX_OK ? NULL : err->message);
    return status;
}

// ---- the others ----------------------------------------------------------------------------------------------------
// Listens for other ranks, at a port of the system's choice. fd: the connection to rank 0.
static int gx__meet_listen_for_others(const GxMeeting *m, int fd)
{
    GxEndpoint e;
    if (!gx_endpoint_numeric(&e, m->r->host, m->r->port)) return gx_socket_listen_everywhere(0);
    e = gx_socket_endpoint(fd, 0);
    gx_endpoint_set_port(&e, 0);
    return gx_socket_listen(&e);
}

typedef enum { GX__MEET_ASK_AGAIN = 0, GX__MEET_ASK_WELCOME, GX__MEET_ASK_REFUSED } GxAsked;

// Sends a hello and reads the answer. why[n]: the reason of a failure.
static GxAsked gx__meet_ask(GxMeeting *m, int fd, GxAnswer *a, char *why, size_t n)
{
    memset(a, 0, sizeof *a);
    if (!gx_socket_write(fd, &m->hello, sizeof m->hello, m->deadline) ||
        !gx_socket_read(fd, a, sizeof *a, m->deadline)) {
        snprintf(why, n, errno == ETIMEDOUT ? "something listens there, but has not answered" : "%s", strerror(errno));
        return GX__MEET_ASK_AGAIN;
    }
    if (a->magic != gx__meet_magic) {
        snprintf(why, n, "what answers there is not a rank of this program");
        return GX__MEET_ASK_AGAIN;
    }
    a->text[sizeof a->text - 1] = 0;
    if (!a->refuses && a->version == GX__MEET_VERSION) return GX__MEET_ASK_WELCOME;
    snprintf(why, n, "%s", a->refuses ? a->text : "it speaks another version of this protocol");
    return GX__MEET_ASK_REFUSED;
}

// One attempt to connect to rank 0 and be accepted.
static GxAsked gx__meet_ask_first(GxMeeting *m, char *why, size_t n)
{
    GxAnswer a;
    int fd = gx_socket_connect_to_host(m->r->host, m->r->port, gx__meet_hello_seconds, m->deadline, why, n);
    if (fd < 0) return GX__MEET_ASK_AGAIN;
    if (m->listener < 0) m->listener = gx__meet_listen_for_others(m, fd);
    if (m->listener < 0) {
        snprintf(why, n, "rank %d cannot listen: %s", m->r->rank, strerror(errno));
        gx_socket_close(&fd);
        return GX__MEET_ASK_REFUSED;
    }
    const GxEndpoint here = gx_socket_endpoint(m->listener, 0);
    m->hello.port = gx_endpoint_port(&here);
    GxAsked asked = gx__meet_ask(m, fd, &a, why, n);
    if (asked == GX__MEET_ASK_WELCOME &&
        !gx_socket_read(fd, m->seat, (size_t)m->r->world * sizeof *m->seat, m->deadline)) {
        snprintf(why, n, "%s", strerror(errno));
        asked = GX__MEET_ASK_AGAIN;
    }
    m->hello.run = asked == GX__MEET_ASK_WELCOME ? a.run : 0;
    if (asked == GX__MEET_ASK_WELCOME) m->link[0] = fd;
    else gx_socket_close(&fd);
    return asked;
}

static GxStatus gx__meet_join_ranks(GxMeeting *m, GxError *err)
{
    const GxRendezvous *r = m->r;
    char why[400] = "", for_whom[320];
    snprintf(for_whom, sizeof for_whom, "rank 0 at %s, port %d", r->host, r->port);
    for (double pause = 0.01;; pause = pause < 0.5 ? 2 * pause : 1) {
        const GxAsked asked = gx__meet_ask_first(m, why, sizeof why);
        if (asked == GX__MEET_ASK_WELCOME) return GX_OK;
        if (asked == GX__MEET_ASK_REFUSED)
            return GX_FAIL(err, GX_ERR_COMM, "rank %d was refused by rank 0 at %s, port %d: %s", r->rank, r->host,
                           r->port, why);
        gx__meet_tell(m, for_whom, why);
        if (gx_seconds() + pause > m->deadline)
            return GX_FAIL(err, GX_ERR_COMM,
                           "rank %d waited %g s for rank 0 at %s, port %d: %s; was it started, with the same address?",
                           r->rank, gx__meet_timeout(r), r->host, r->port, why);
        const struct timespec t = {(time_t)pause, (long)((pause - (double)(time_t)pause) * 1e9)};
        nanosleep(&t, NULL);
    }
}

static GxStatus gx__meet_connect_to_lower(GxMeeting *m, int rank, GxError *err)
{
    const GxSeat *seat = &m->seat[rank];
    GxEndpoint e = gx_socket_endpoint(m->link[0], 1);
    GxAnswer a;
    char why[400] = "";
    if (seat->family) memset(&e, 0, sizeof e), e.any.sa_family = seat->family == 4 ? AF_INET : AF_INET6;
    if (seat->family == 4) memcpy(&e.four.sin_addr, seat->ip, 4);
    if (seat->family == 6) memcpy(&e.six.sin6_addr, seat->ip, 16);
    gx_endpoint_set_port(&e, seat->port);
    m->link[rank] = gx_socket_connect(&e, m->deadline);
    if (m->link[rank] < 0) snprintf(why, sizeof why, "%s", strerror(errno));
    else if (gx__meet_ask(m, m->link[rank], &a, why, sizeof why) == GX__MEET_ASK_WELCOME && a.run == m->hello.run)
        return GX_OK;
    return GX_FAIL(err, GX_ERR_COMM, "rank %d cannot connect to rank %d at %s: %s", m->r->rank, rank,
                   gx_endpoint_text(&e).text, why);
}

static GxStatus gx__meet_confirm(GxMeeting *m, GxError *err)
{
    gx_socket_write(m->link[0], "", 1, m->deadline); // one byte; if this fails, reading the answer fails, too
    return gx__meet_hear_first(m, err);
}

// A rank first connects to all lower ones, then accepts all higher ones. Rank 1 accepts at once, so rank 2 gets to
// accepting, and so on: there is no cycle of ranks that wait for each other.
static GxStatus gx__meet_connect_all(GxMeeting *m, GxError *err)
{
    GX_TRY(gx__meet_join_ranks(m, err));
    for (int r = 1; r < m->r->rank; r++) GX_TRY(gx__meet_connect_to_lower(m, r, err));
    GX_TRY(gx__meet_admit(m, m->r->rank + 1, err));
    return gx__meet_confirm(m, err);
}

// Numbers the ranks of a machine, which are those with the same host name, in rank order.
static void gx__meet_find_local(GxRendezvous *r, const GxSeat *seat)
{
    int before = 0, all = 0;
    for (int i = 0; i < r->world; i++) {
        const int is_here = !strncmp(seat[i].machine, seat[r->rank].machine, sizeof seat[i].machine);
        all += is_here;
        before += is_here && i < r->rank;
    }
    if (r->local_rank < 0) r->local_rank = before;
    if (!r->local_ranks) r->local_ranks = (int)gx_max(all, r->local_rank + 1);
}

GxStatus gx_rendezvous(GxRendezvous *r, int *link, GxError *err)
{
    GxMeeting *m = (GxMeeting *)calloc(1, sizeof *m);
    if (!m) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a meeting of %d ranks", r->world);
    m->r = r;
    m->link = link;
    m->listener = -1;
    m->deadline = gx_seconds() + gx__meet_timeout(r), m->tell = gx_seconds() + gx__meet_tell_seconds;
    for (int i = 0; i < r->world; i++) link[i] = -1;
    gx__meet_introduce(m);
    const GxStatus status = r->rank == 0 ? gx__meet_gather_ranks(m, err) : gx__meet_connect_all(m, err);
    gx_socket_close(&m->listener);
    for (int i = 0; i < r->world; i++) {
        int yes = 1;
        if (status != GX_OK) gx_socket_close(&link[i]);
        else if (link[i] >= 0) setsockopt(link[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    if (status == GX_OK) gx__meet_find_local(r, m->seat);
    free(m);
    return status;
}
#endif
