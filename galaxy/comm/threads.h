// comm/threads.h: the engine for ranks that are threads of one process, without MPI or network: for tests and
// `--ranks N`.
//
//     GxThreadsGroup *group;
//     GX_TRY(gx_threads_group_open(&group, world, &err));
//     GxComm comm;                                  // from here on in each thread `rank`
//     gx_threads_comm(&comm, group, rank);
//     GX_TRY(gx_comm_open(g, &comm));               // ... collectives ...
//     gx_comm_close(g);
//     gx_threads_group_close(group);                // after all threads were joined
//
// How it works: each rank has a box. A sender puts a note with the address of its data into the receiver's box. The
// receiver finds it, compares headers, copies the data once, directly from the sender's buffer, and wakes the sender.
// Nothing is buffered, so nothing is allocated after the group is opened.
//
// If there is a core for every rank, a waiting rank spins for a fifth of a millisecond before it sleeps, since waking a
// thread takes longer than most messages. OMP_WAIT_POLICY=passive in the environment turns the spinning off, as it does
// for OpenMP's threads.
#ifndef GX_THREADS_H
#define GX_THREADS_H
#include "comm.h"
GX_BEGIN

typedef struct GxThreadsGroup GxThreadsGroup;

GxStatus gx_threads_group_open(GxThreadsGroup **group, int world, GxError *err);
void gx_threads_group_close(GxThreadsGroup *group); // NULL: nothing; after the last gx_comm_close
// Zeroes *comm; the caller may then set its timeout, chunk and slots.
void gx_threads_comm(GxComm *comm, GxThreadsGroup *group, int rank);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_THREADS_IMPLEMENTED)
#define GX_THREADS_IMPLEMENTED
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GX__THREADS_NOTE_POSTED = 1, GX__THREADS_NOTE_TAKEN, GX__THREADS_NOTE_DONE, GX__THREADS_NOTE_REFUSED };

// What a sender's message carries for this engine, in GxMessage.engine.
typedef struct {
    GxMessage *next; // in the receiver's box, under its lock
    int from;
    int state; // atomic
} GxNote;

typedef char gx__threads_note_fits[sizeof(GxNote) <= sizeof(((GxMessage *)0)->engine) ? 1 : -1];

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    GxMessage *first, *last; // notes that the receiver has not taken yet
    int64_t events;          // written under the lock, read without
    int left;                // this rank has closed
    char padding[64];        // a cache line between two boxes
} GxBox;

struct GxThreadsGroup {
    int world;
    double spin; // seconds
    int aborted; // atomic: abort_text is written
    int claimed;
    char abort_text[GX_FAILURE_TEXT];
    GxBox *box;
};

static GxNote *gx__threads_note(GxMessage *m) { return (GxNote *)(void *)m->engine; }
static GxThreadsGroup *gx__threads(const GxComm *comm) { return (GxThreadsGroup *)comm->state; }

static void gx__threads_wake(GxThreadsGroup *group, int rank)
{
    GxBox *box = &group->box[rank];
    pthread_mutex_lock(&box->lock);
    __atomic_add_fetch(&box->events, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&box->lock);
    pthread_cond_broadcast(&box->changed); // its own rank waits there, and finds the lock free when it wakes up
}

static GxStatus gx__threads_post(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    (void)err;
    for (int i = 0; i < n; i++) {
        GxMessage *m = &list[i];
        if (!m->is_send) continue;
        GxBox *box = &gx__threads(comm)->box[m->peer];
        gx__threads_note(m)->from = comm->rank;
        gx__threads_note(m)->next = NULL;
        pthread_mutex_lock(&box->lock);
        gx__threads_note(m)->state = GX__THREADS_NOTE_POSTED;
        if (box->first) gx__threads_note(box->last)->next = m;
        else box->first = m;
        box->last = m;
        __atomic_add_fetch(&box->events, 1, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&box->lock);
        pthread_cond_broadcast(&box->changed);
    }
    return GX_OK;
}

static void gx__threads_box_unlink(GxBox *box, GxMessage *before, GxMessage *m)
{
    if (before) gx__threads_note(before)->next = gx__threads_note(m)->next;
    else box->first = gx__threads_note(m)->next;
    if (box->last == m) box->last = before;
}

// The first note from a rank with a tag, or NULL; it is the caller's then.
static GxMessage *gx__threads_box_take(GxBox *box, int from, int tag)
{
    pthread_mutex_lock(&box->lock);
    GxMessage *m = box->first, *before = NULL;
    for (; m && (gx__threads_note(m)->from != from || m->tag != tag); m = gx__threads_note(m)->next) before = m;
    if (m) {
        gx__threads_box_unlink(box, before, m);
        __atomic_store_n(&gx__threads_note(m)->state, GX__THREADS_NOTE_TAKEN, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&box->lock);
    return m;
}

static void gx__threads_receive(GxComm *comm, GxMessage *m)
{
    GxThreadsGroup *group = gx__threads(comm);
    // Read before the box: if it has left, everything that it posted is visible.
    int left = __atomic_load_n(&group->box[m->peer].left, __ATOMIC_ACQUIRE);
    GxMessage *sent = gx__threads_box_take(&group->box[comm->rank], m->peer, m->tag);
    if (!sent) {
        if (left) m->outcome = GX_MESSAGE_LEFT;
        return;
    }
    m->got = sent->header;
    int agrees = gx_header_agrees(&m->header, &m->got);
    if (agrees && m->header.bytes > 0) memcpy(m->data, sent->data, (size_t)m->header.bytes);
    m->outcome = agrees ? GX_MESSAGE_DONE : GX_MESSAGE_MISMATCH;
    __atomic_store_n(&gx__threads_note(sent)->state, agrees ? GX__THREADS_NOTE_DONE : GX__THREADS_NOTE_REFUSED,
                     __ATOMIC_RELEASE); // from here on the note belongs to the sender again
    gx__threads_wake(group, m->peer);
}

static void gx__threads_sent(GxComm *comm, GxMessage *m)
{
    int left = __atomic_load_n(&gx__threads(comm)->box[m->peer].left, __ATOMIC_ACQUIRE);
    int state = __atomic_load_n(&gx__threads_note(m)->state, __ATOMIC_ACQUIRE);
    if (state == GX__THREADS_NOTE_DONE) m->outcome = GX_MESSAGE_DONE;
    else if (left && state == GX__THREADS_NOTE_POSTED)
        m->outcome = GX_MESSAGE_LEFT; // refused: the receiver's abort follows
}

static int gx__threads_poll(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    GxThreadsGroup *group = gx__threads(comm);
    int moved = 0;
    for (int i = 0; i < n; i++) {
        if (list[i].outcome != GX_MESSAGE_OPEN) continue;
        if (list[i].is_send) gx__threads_sent(comm, &list[i]);
        else gx__threads_receive(comm, &list[i]);
        moved += list[i].outcome != GX_MESSAGE_OPEN;
    }
    // Read after the boxes: a rank that aborts and then leaves counts as failed, not as left.
    if (__atomic_load_n(&group->aborted, __ATOMIC_ACQUIRE)) GX_FAIL(err, GX_ERR_COMM, "%s", group->abort_text);
    return moved;
}

static int64_t gx__threads_events(GxComm *comm)
{
    return __atomic_load_n(&gx__threads(comm)->box[comm->rank].events, __ATOMIC_ACQUIRE);
}

static void gx__threads_sleep(GxComm *comm, int64_t events)
{
    GxBox *box = &gx__threads(comm)->box[comm->rank];
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double wait = comm->timeout > 0 && comm->timeout < 1 ? comm->timeout : 1; // so that a time-out is noticed in time
    until.tv_nsec += (long)(wait * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&box->lock);
    while (box->events == events && pthread_cond_timedwait(&box->changed, &box->lock, &until) != ETIMEDOUT) {}
    pthread_mutex_unlock(&box->lock);
}

static void gx__threads_idle(GxComm *comm, int64_t events)
{
    const double spin = gx__threads(comm)->spin;
    for (double until = gx_seconds() + spin; spin > 0 && gx_seconds() < until;)
        for (int i = 0; i < 100; i++)
            if (gx__threads_events(comm) != events) return;
    gx__threads_sleep(comm, events);
}

static void gx__threads_rest(GxComm *comm, int64_t events, pthread_mutex_t *lock)
{
    pthread_mutex_unlock(lock);
    gx__threads_sleep(comm, events);
    pthread_mutex_lock(lock);
}

static void gx__threads_wake_own(GxComm *comm) { gx__threads_wake(gx__threads(comm), comm->rank); }

// Takes back notes that no receiver has taken, and waits for receivers that are copying.
static void gx__threads_cancel(GxComm *comm, GxMessage *list, int n)
{
    for (int i = 0; i < n; i++) {
        if (!list[i].is_send) continue;
        GxBox *box = &gx__threads(comm)->box[list[i].peer];
        pthread_mutex_lock(&box->lock);
        GxMessage *m = box->first, *before = NULL;
        for (; m && m != &list[i]; m = gx__threads_note(m)->next) before = m;
        if (m) gx__threads_box_unlink(box, before, m);
        pthread_mutex_unlock(&box->lock);
        while (!m && __atomic_load_n(&gx__threads_note(&list[i])->state, __ATOMIC_ACQUIRE) == GX__THREADS_NOTE_TAKEN)
            sched_yield();
    }
}

static void gx__threads_abort(GxContext *g, GxComm *comm, const char *message)
{
    GxThreadsGroup *group = gx__threads(comm);
    int nobody = 0;
    if (!__atomic_compare_exchange_n(&group->claimed, &nobody, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        while (!__atomic_load_n(&group->aborted, __ATOMIC_ACQUIRE))
            sched_yield(); // waits until the other's text is written, before this rank leaves
        return;
    }
    gx_comm_failure(g, comm, message, group->abort_text);
    __atomic_store_n(&group->aborted, 1, __ATOMIC_RELEASE);
    for (int r = 0; r < group->world; r++) gx__threads_wake(group, r);
}

static void gx__threads_close(GxComm *comm)
{
    GxThreadsGroup *group = gx__threads(comm);
    __atomic_store_n(&group->box[comm->rank].left, 1, __ATOMIC_RELEASE);
    for (int r = 0; r < group->world; r++) gx__threads_wake(group, r);
    comm->state = NULL;
}

static const GxEngine gx__threads_engine = {
    "threads",        gx__threads_post,     gx__threads_poll,   gx__threads_events, gx__threads_idle,
    gx__threads_rest, gx__threads_wake_own, gx__threads_cancel, gx__threads_abort,  gx__threads_close};

void gx_threads_comm(GxComm *comm, GxThreadsGroup *group, int rank)
{
    memset(comm, 0, sizeof *comm);
    comm->engine = &gx__threads_engine;
    comm->state = group;
    comm->rank = comm->local_rank = rank;
    comm->world = comm->local_ranks = group->world;
}

GxStatus gx_threads_group_open(GxThreadsGroup **out, int world, GxError *err)
{
    *out = NULL;
    if (world < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "a group of %d ranks; it takes at least 1", world);
    GxThreadsGroup *group = (GxThreadsGroup *)calloc(1, sizeof *group);
    if (group) group->box = (GxBox *)calloc((size_t)world, sizeof *group->box);
    if (!group || !group->box) {
        free(group);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a group of %d threads", world);
    }
    group->world = world;
    const char *policy = getenv("OMP_WAIT_POLICY");
    const int is_passive = policy && (policy[0] == 'p' || policy[0] == 'P');
    group->spin = !is_passive && sysconf(_SC_NPROCESSORS_ONLN) >= world ? 2e-4 : 0;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    for (int r = 0; r < world; r++) {
        pthread_mutex_init(&group->box[r].lock, NULL);
        pthread_cond_init(&group->box[r].changed, &clock);
    }
    pthread_condattr_destroy(&clock);
    *out = group;
    return GX_OK;
}

void gx_threads_group_close(GxThreadsGroup *group)
{
    if (!group) return;
    for (int r = 0; r < group->world; r++) {
        pthread_mutex_destroy(&group->box[r].lock);
        pthread_cond_destroy(&group->box[r].changed);
    }
    free(group->box);
    free(group);
}
#endif
