// comm/mpi.h: the engine for ranks that are processes started by an MPI launcher (mpirun, srun). The only file that
// uses MPI; compiled with it if GX_WITH_MPI is defined (flags: mpicc --showme:compile, --showme:link). Without it the
// same functions exist, and gx_mpi_comm is an error.
//
//     GX_TRY(gx_mpi_check_start(&err));          // refuses mpirun in a build without MPI: N serial copies would train
//     if (gx_mpi_started() > 1) GX_TRY(gx_mpi_comm(&comm, &err));
//     ... gx_comm_open(g, &comm) ... gx_comm_close(g);       // calls MPI_Finalize
//
// A rank that fails, or notices that another one is gone, logs that through g->log and calls MPI_Abort, which ends all
// processes: the only place where the library ends a process. So set g->log. If a rank is killed, the launcher notices,
// names it and ends the others.
//
// With Open MPI set OMPI_MCA_hwloc_base_binding_policy=none; otherwise two ranks are bound to one core each, however
// many threads they have.
#ifndef GX_MPI_H
#define GX_MPI_H
#include "comm.h"
GX_BEGIN

// Initialises MPI (main thread) and zeroes *comm; the caller may then set its timeout, chunk and slots.
GxStatus gx_mpi_comm(GxComm *comm, GxError *err);

int gx_mpi_started(void);                  // number of ranks according to the launcher's environment; 1: no launcher
int gx_mpi_is_offered(void);               // 1: the launcher is MPI's own, or speaks to MPI libraries (srun --mpi=...)
GxStatus gx_mpi_check_start(GxError *err); // GX_ERR_UNSUPPORTED if there are several ranks and this binary has no MPI

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MPI_IMPLEMENTED)
#define GX_MPI_IMPLEMENTED
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- how this process was started ----------------------------------------------------------------------------------
static int gx__mpi_environment_number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

// Open MPI; MPICH, Intel MPI, Slurm's PMI; srun (a batch script itself has no SLURM_STEP_NUM_TASKS)
static const char *const gx__mpi_sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
static const char *const gx__mpi_ranks[] = {"PMIX_RANK", "PMI_RANK"};

int gx_mpi_started(void)
{
    int n = 1;
    for (int i = 0; i < 3; i++) n = (int)gx_max(n, gx__mpi_environment_number(gx__mpi_sizes[i]));
    for (int i = 0; i < 2; i++)
        n = (int)gx_max(n, gx__mpi_environment_number(gx__mpi_ranks[i]) + 1); // PMIx alone does not tell the size
    return n;
}

int gx_mpi_is_offered(void)
{
    return getenv(gx__mpi_sizes[0]) || getenv(gx__mpi_sizes[1]) || getenv(gx__mpi_ranks[0]) || getenv(gx__mpi_ranks[1]);
}

GxStatus gx_mpi_check_start(GxError *err)
{
#ifdef GX_WITH_MPI
    (void)err;
    return GX_OK;
#else
    int n = gx_mpi_started();
    if (n <= 1) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "an MPI launcher started %d ranks, but this binary was built without MPI and would run %d "
                   "independent copies; build it with GX_WITH_MPI, or start it without the launcher and let the ranks "
                   "be threads, or tell each process which rank it is (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)",
                   n, n);
#endif
}

#ifndef GX_WITH_MPI
GxStatus gx_mpi_comm(GxComm *comm, GxError *err)
{
    memset(comm, 0, sizeof *comm);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "this binary was built without MPI; build it with GX_WITH_MPI");
}
#else
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1 // the C++ bindings are gone since MPI-3
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <limits.h>
#include <mpi.h>

enum { GX__MPI_GOODBYE = 1 << 13 }; // the tag of transfers over no axis, which no other message has

// MPI's counts are int. A payload above `limit` bytes is sent as blocks of `block` bytes and a rest, with the same tag,
// so that they keep their order.
typedef struct {
    MPI_Comm all;
    MPI_Datatype block_type;
    int64_t limit, block;
    int world, started; // started: MPI was initialised here, and is finalised here
    int level;          // which threads may call MPI
    MPI_Request goodbye;
    double *left; // the time when each rank's goodbye was received; 0: not yet
} GxMpi;

// What a message carries for this engine, in GxMessage.engine.
typedef struct {
    MPI_Request header, blocks, rest;
    int agreed; // for a receive: the header has arrived and agrees
} GxMpiMessage;
typedef char gx__mpi_message_fits[sizeof(GxMpiMessage) <= sizeof(((GxMessage *)0)->engine) ? 1 : -1];

static GxMpi *gx__mpi(const GxComm *comm) { return (GxMpi *)comm->state; }
static GxMpiMessage *gx__mpi_message(GxMessage *m) { return (GxMpiMessage *)(void *)m->engine; }

static GxStatus gx__mpi_check(int code, const char *what, GxError *err)
{
    if (code == MPI_SUCCESS) return GX_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return GX_FAIL(err, GX_ERR_COMM, "%s: %s", what, text);
}

static int gx__mpi_begin(const GxMpi *mpi, const GxMessage *m, void *data, int64_t count, MPI_Datatype type, int tag,
                         MPI_Request *request)
{
    if (count == 0) return MPI_SUCCESS;
    return m->is_send ? MPI_Isend(data, (int)count, type, m->peer, tag, mpi->all, request)
                      : MPI_Irecv(data, (int)count, type, m->peer, tag, mpi->all, request);
}

static GxStatus gx__mpi_post(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    GxMpi *mpi = gx__mpi(comm);
    for (int i = 0; i < n; i++) {
        GxMessage *m = &list[i];
        GxMpiMessage *r = gx__mpi_message(m);
        r->header = r->blocks = r->rest = MPI_REQUEST_NULL;
        r->agreed = 0;
        int64_t bytes = m->header.bytes, blocks = bytes > mpi->limit ? bytes / mpi->block : 0;
        char *rest = blocks ? (char *)m->data + blocks * mpi->block : (char *)m->data;
        int code = gx__mpi_begin(mpi, m, m->is_send ? &m->header : &m->got, sizeof m->header, MPI_BYTE, 2 * m->tag,
                                 &r->header);
        if (!code) code = gx__mpi_begin(mpi, m, m->data, blocks, mpi->block_type, 2 * m->tag + 1, &r->blocks);
        if (!code) code = gx__mpi_begin(mpi, m, rest, bytes - blocks * mpi->block, MPI_BYTE, 2 * m->tag + 1, &r->rest);
        GX_TRY(gx__mpi_check(code, m->is_send ? "MPI_Isend" : "MPI_Irecv", err));
    }
    return GX_OK;
}

// 1: the request is complete, or there is none.
static int gx__mpi_test(MPI_Request *request, GxError *err)
{
    int done = 0;
    return gx__mpi_check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test", err) == GX_OK && done;
}

static void gx__mpi_poll_one(GxMpi *mpi, GxMessage *m, GxError *err)
{
    GxMpiMessage *r = gx__mpi_message(m);
    int has_header = r->agreed || gx__mpi_test(&r->header, err);
    if (has_header && !m->is_send && !r->agreed && !gx_header_agrees(&m->header, &m->got)) {
        m->outcome = GX_MESSAGE_MISMATCH; // the payload, which may be too long for its buffer, is not received
        return;
    }
    r->agreed = has_header;
    if (has_header && gx__mpi_test(&r->blocks, err) && gx__mpi_test(&r->rest, err)) m->outcome = GX_MESSAGE_DONE;
    else if (mpi->left[m->peer] > 0 && gx_seconds() - mpi->left[m->peer] > 0.5)
        m->outcome = GX_MESSAGE_LEFT; // everything that the peer sent has arrived by now
}

static int gx__mpi_poll(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    int moved = 0;
    for (int i = 0; i < n; i++) {
        if (list[i].outcome != GX_MESSAGE_OPEN) continue;
        gx__mpi_poll_one(gx__mpi(comm), &list[i], err);
        moved += list[i].outcome != GX_MESSAGE_OPEN;
    }
    return moved;
}

static int64_t gx__mpi_events(GxComm *comm)
{
    (void)comm;
    return 0;
}

static void gx__mpi_expect_goodbye(GxMpi *mpi)
{
    MPI_Irecv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, 2 * GX__MPI_GOODBYE, mpi->all, &mpi->goodbye);
}

static void gx__mpi_see_goodbyes(GxMpi *mpi)
{
    int done = 1;
    while (done && mpi->goodbye != MPI_REQUEST_NULL) {
        MPI_Status status;
        if (MPI_Test(&mpi->goodbye, &done, &status) != MPI_SUCCESS || !done) return;
        mpi->left[status.MPI_SOURCE] = gx_seconds();
        int missing = -1; // this rank sends itself no goodbye
        for (int r = 0; r < mpi->world; r++) missing += mpi->left[r] == 0;
        if (missing > 0) gx__mpi_expect_goodbye(mpi);
    }
}

static void gx__mpi_idle(GxComm *comm, int64_t events)
{
    (void)events;
    gx__mpi_see_goodbyes(gx__mpi(comm));
    sched_yield(); // there may be more ranks than cores
}

// MPI has no call that sleeps until something arrives.
static void gx__mpi_rest(GxComm *comm, int64_t events, pthread_mutex_t *lock)
{
    const struct timespec pause = {0, 100000};
    (void)events;
    gx__mpi_see_goodbyes(gx__mpi(comm));
    pthread_mutex_unlock(lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(lock);
}

static void gx__mpi_wake(GxComm *comm) { (void)comm; }

static void gx__mpi_cancel(GxComm *comm, GxMessage *list, int n)
{
    (void)comm, (void)list, (void)n; // after MPI_Abort there is nothing to cancel
}

static void gx__mpi_abort(GxContext *g, GxComm *comm, const char *message)
{
    const char *blame = gx_status(g) == GX_ERR_COMM ? "" : "failed and "; // an error of the communicator: engine.h
    gx_log(&g->log, GX_LOG_ERROR, "rank %d %sends all ranks: %s", comm->rank, blame, message);
    MPI_Abort(gx__mpi(comm)->all, 1);
}

// Sends a goodbye, so that ranks that wait for this one fail at once, and waits for the others' goodbyes, so that
// MPI_Finalize does not interrupt messages in flight.
static void gx__mpi_close(GxComm *comm)
{
    GxMpi *mpi = gx__mpi(comm);
    for (int r = 0; r < mpi->world; r++)
        if (r != comm->rank) MPI_Send(NULL, 0, MPI_BYTE, r, 2 * GX__MPI_GOODBYE, mpi->all);
    while (mpi->goodbye != MPI_REQUEST_NULL) {
        struct timespec pause = {0, 100000};
        gx__mpi_see_goodbyes(mpi);
        if (mpi->goodbye != MPI_REQUEST_NULL) nanosleep(&pause, NULL);
    }
    MPI_Type_free(&mpi->block_type);
    MPI_Comm_free(&mpi->all);
    if (mpi->started) MPI_Finalize();
    free(mpi->left);
    free(mpi);
    comm->state = NULL;
}

static const GxEngine gx__mpi_engine = {"mpi",        gx__mpi_post, gx__mpi_poll,   gx__mpi_events, gx__mpi_idle,
                                        gx__mpi_rest, gx__mpi_wake, gx__mpi_cancel, gx__mpi_abort,  gx__mpi_close};

static GxStatus gx__mpi_start(GxMpi *mpi, GxError *err)
{
    int before = 0;
    MPI_Initialized(&before);
    mpi->started = !before;
    if (!before)
        GX_TRY(gx__mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &mpi->level), "MPI_Init_thread", err));
    else MPI_Query_thread(&mpi->level);
    GX_TRY(gx__mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &mpi->all), "MPI_Comm_dup", err));
    MPI_Comm_set_errhandler(mpi->all, MPI_ERRORS_RETURN);
    MPI_Comm_size(mpi->all, &mpi->world);
    mpi->limit = INT_MAX;
    mpi->block = 1 << 20;
    MPI_Type_contiguous((int)mpi->block, MPI_BYTE, &mpi->block_type);
    GX_TRY(gx__mpi_check(MPI_Type_commit(&mpi->block_type), "MPI_Type_commit", err));
    mpi->left = (double *)calloc((size_t)mpi->world, sizeof *mpi->left);
    mpi->goodbye = MPI_REQUEST_NULL;
    if (!mpi->left) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d ranks", mpi->world);
    if (mpi->world > 1) gx__mpi_expect_goodbye(mpi);
    return GX_OK;
}

GxStatus gx_mpi_comm(GxComm *comm, GxError *err)
{
    memset(comm, 0, sizeof *comm);
    GxMpi *mpi = (GxMpi *)calloc(1, sizeof *mpi);
    if (!mpi) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the communicator");
    GxStatus status = gx__mpi_start(mpi, err);
    if (status != GX_OK) {
        free(mpi->left);
        free(mpi);
        return status;
    }
    MPI_Comm here;
    MPI_Comm_split_type(mpi->all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_rank(here, &comm->local_rank);
    MPI_Comm_size(here, &comm->local_ranks);
    MPI_Comm_free(&here);
    MPI_Comm_rank(mpi->all, &comm->rank);
    comm->world = mpi->world;
    comm->engine = &gx__mpi_engine;
    comm->state = mpi;
    comm->no_background = mpi->level < MPI_THREAD_SERIALIZED;
    return GX_OK;
}
#endif
#endif
