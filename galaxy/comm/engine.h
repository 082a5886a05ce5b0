// comm/engine.h: the interface of an engine (threads.h, tcp.h, mpi.h), and the communicator that holds it.
//
// An engine only sends and receives messages. Its functions do not block: `post` begins a list of messages, `poll`
// advances them as far as possible, and `idle` sleeps until there may be something to poll for. What a collective
// computes, when it gives up and what its errors say is written once for all engines (collective.h, flight.h), so every
// engine gives the same bits.
//
// An engine's own function makes the communicator, with rank and world (gx_threads_comm, gx_tcp_comm, gx_mpi_comm);
// gx_comm_open (comm.h) gives it memory, gx_comm_close ends it.
//
// All machines must have the same byte order and types: headers and data are sent as they are in memory.
#ifndef GX_ENGINE_H
#define GX_ENGINE_H
#include "../base/mesh.h"
#include "../base/partition.h"
#include <pthread.h>
GX_BEGIN

typedef struct GxEngine GxEngine;
typedef struct GxDeviceEngine GxDeviceEngine; // comm/device_buffers.h
typedef struct GxMessage GxMessage;
typedef struct GxCollective GxCollective; // comm/collective.h
typedef struct GxBackground GxBackground; // comm/background.h

// ---- the communicator ----------------------------------------------------------------------------------------------
enum { GX_MAX_SLOTS = 16, GX_COMM_SUMS = 2 }; // SUMS: the most sums among the operations in flight

struct GxComm {
    const GxEngine *engine;              // NULL: a dry run
    void *state;                         // the engine's; NULL after its close
    const GxDeviceEngine *device_engine; // for buffers of a device; NULL: they are copied through the host
    void *device_state;
    int rank, world;             // as the engine numbers them
    int local_rank, local_ranks; // among the ranks on this machine
    // [kept]: the engine's number of each rank of the context's world, if some were left out or renumbered
    // (gx_comm_keep). kept 0: the engine's numbers are the context's.
    int16_t place[GX_MAX_PARTS];
    int kept;
    double timeout;    // seconds without progress; 0: 600
    int64_t chunk;     // bytes of scratch of one sum; 0: 4 MB (a million fp32)
    int slots;         // operations in flight that start can hold; 0: GX_MAX_SLOTS, -1: none
    int no_background; // 1: what is in flight advances only while this rank is inside a call
    double seconds;    // spent inside collectives so far: the communication time that is not hidden
    // from here on private
    GxCollective *flight;                  // [slots]
    GxCollective *blocking;                // the blocking collective that this rank is in, or NULL
    GxMessage *message;                    // [1 + slots][2 * peers]: of the blocking one, then of the started ones
    char *pool;                            // [sums][chunk]: scratch of the sums in flight
    int64_t pooled[GX_COMM_SUMS];          // number of the ticket that holds a piece of the pool, 0: free
    int64_t ticket[GX_MAX_SLOTS], tickets; // number of the ticket that holds a slot, 0: free
    int64_t sequence[GX_AXIS_ALL + 1];     // collectives begun, per group
    int is_open, is_dead;
    GxBackground *background; // NULL: nothing has been started yet, or it does without
};

// The defaults filled in.
double gx_comm_timeout(const GxComm *comm); // seconds
int64_t gx_comm_chunk(const GxComm *comm);  // bytes; comm NULL: of a plan
int gx_comm_slots(const GxComm *comm);
int gx_comm_sums(const GxComm *comm);  // sums in flight that start can hold
int gx_comm_peers(const GxComm *comm); // the most ranks that one group can have
// Between the numbers of the context's world and those of the engine.
int gx_comm_engine_rank(const GxComm *comm, int rank);
int gx_comm_rank_of(const GxComm *comm, int engine_rank);

// The text that the other ranks are sent about this rank's error, so that all of them name the rank that caused it:
// "rank 1 failed: <message>". An error of the communicator (GX_ERR_COMM), such as "rank 0 died: ...", already names the
// rank, and is passed on unchanged.
enum { GX_FAILURE_TEXT = 600 };
void gx_comm_failure(const GxContext *g, const GxComm *comm, const char *message, char text[GX_FAILURE_TEXT]);

// ---- messages ------------------------------------------------------------------------------------------------------
// Precedes every message. The receiver compares it with the header that it expects; if they differ, no data are
// received.
typedef struct {
    int64_t sequence, count, bytes; // the call's number in its group; its elements; bytes of this message
    int32_t operation, dtype, detail, axes, step, rank; // detail: reduction, root or channel; rank: the sender
} GxHeader;
int gx_header_agrees(const GxHeader *expected, const GxHeader *got);

typedef enum { GX_MESSAGE_OPEN = 0, GX_MESSAGE_DONE, GX_MESSAGE_MISMATCH, GX_MESSAGE_LEFT } GxOutcome;

struct GxMessage {
    int peer; // world rank
    int tag;  // 0 to 16383; messages of one tag between two ranks keep their order
    int is_send;
    void *data; // [header.bytes]
    GxHeader header, got;
    GxOutcome outcome; // MISMATCH: `got` differs from `header`; LEFT: the peer has closed without sending it
    int64_t engine[4]; // private
};

// ---- the engine ----------------------------------------------------------------------------------------------------
struct GxEngine {
    const char *name;
    // Begins all messages. The list must stay in place until they are done.
    GxStatus (*post)(GxComm *comm, GxMessage *list, int n, GxError *err);
    // Advances messages as far as possible. Returns how many outcomes changed. err is set if the communicator has
    // failed.
    int (*poll)(GxComm *comm, GxMessage *list, int n, GxError *err);
    // An event count: it changes when there may be something to poll for.
    int64_t (*events)(GxComm *comm);
    // Sleeps until the event count differs from `events`, for at most a second.
    void (*idle)(GxComm *comm, int64_t events);
    // For the thread that advances messages while the rank computes (background.h). rest: as idle, also until wake;
    // `lock` is held at its call and at its return, and not while it sleeps. wake: with the lock held, by another
    // thread, after messages were posted. Calls of the engine's other functions take turns, with the lock held at each
    // change of turns. rest NULL: this engine is called by one thread only.
    void (*rest)(GxComm *comm, int64_t events, pthread_mutex_t *lock);
    void (*wake)(GxComm *comm);
    // After an abort: from its return on, the engine does not touch the list or its data.
    void (*cancel)(GxComm *comm, GxMessage *list, int n);
    // Tells all ranks that this one has failed, and why: their next poll fails with the text of gx_comm_failure.
    void (*abort)(GxContext *g, GxComm *comm, const char *message);
    void (*close)(GxComm *comm);
};

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ENGINE_IMPLEMENTED)
#define GX_ENGINE_IMPLEMENTED
#include <stdio.h>

double gx_comm_timeout(const GxComm *comm) { return comm->timeout > 0 ? comm->timeout : 600; }

int64_t gx_comm_chunk(const GxComm *comm)
{
    return comm && comm->chunk > 0 ? gx_round_up(comm->chunk, GX_ALIGN) : (int64_t)1 << 22;
}

int gx_comm_slots(const GxComm *comm)
{
    return comm->slots < 0 ? 0 : comm->slots == 0 ? GX_MAX_SLOTS : (int)gx_min(comm->slots, GX_MAX_SLOTS);
}

int gx_comm_sums(const GxComm *comm) { return (int)gx_min(gx_comm_slots(comm), GX_COMM_SUMS); }

int gx_comm_peers(const GxComm *comm) { return (int)gx_min(comm->world, GX_MAX_PARTS); }

int gx_comm_engine_rank(const GxComm *comm, int rank) { return rank < comm->kept ? comm->place[rank] : rank; }

int gx_comm_rank_of(const GxComm *comm, int engine_rank)
{
    for (int r = 0; r < comm->kept; r++)
        if (comm->place[r] == engine_rank) return r;
    return engine_rank;
}

void gx_comm_failure(const GxContext *g, const GxComm *comm, const char *message, char text[GX_FAILURE_TEXT])
{
    if (gx_status(g) == GX_ERR_COMM) snprintf(text, GX_FAILURE_TEXT, "%s", message);
    else snprintf(text, GX_FAILURE_TEXT, "rank %d failed: %s", gx_comm_rank_of(comm, comm->rank), message);
}

int gx_header_agrees(const GxHeader *a, const GxHeader *b)
{
    return a->sequence == b->sequence && a->count == b->count && a->bytes == b->bytes && a->operation == b->operation &&
           a->dtype == b->dtype && a->detail == b->detail && a->axes == b->axes && a->step == b->step &&
           a->rank == b->rank;
}
#endif
