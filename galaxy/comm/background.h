// comm/background.h: the thread that advances started collectives while their rank computes.
//
// Collectives advance while their rank is inside a call (flight.h). Between two calls, if any is in flight, a second
// thread of the rank advances them: messages are received and sent, sums are taken, and a collective's next step is
// posted. It sleeps while nothing can move, and it exists from the rank's first started collective on. The two threads
// take turns: a call begins by taking the collectives over, and ends by leaving those that are still in flight to the
// thread. So nothing else in comm/ needs a lock, and no bit depends on who advanced what.
//
// What the thread finds wrong, such as a rank that has died, becomes the context's error at the next call.
//
// Not for buffers in a device's memory, which the device's engine moves by itself or which are blocking.
#ifndef GX_BACKGROUND_H
#define GX_BACKGROUND_H
#include "engine.h"
#include "../base/context.h"
GX_BEGIN

// Advances the started collectives, without waiting. Returns 1 if anything moved.
typedef int GxAdvance(GxContext *g);

// Makes the thread, if there is none. It is not made if the communicator does without (GxComm.no_background), the engine
// cannot be called by several threads, or the system refuses, which is logged.
void gx__background_begin(GxContext *g, GxAdvance *advance);
void gx__background_end(GxContext *g); // takes over, and ends the thread

// Around every call, which may be nested: takes over what is in flight, and leaves it. The context has failed after
// enter if the thread's has.
void gx__background_enter(GxContext *g);
void gx__background_leave(GxContext *g);
int gx__background_has_failed(const GxComm *comm); // between calls: the next one will find an error

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_BACKGROUND_IMPLEMENTED)
#define GX_BACKGROUND_IMPLEMENTED
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "collective.h"

enum { GX__BACKGROUND_STACK = 1 << 19 };

struct GxBackground {
    pthread_t thread;
    pthread_mutex_t lock; // held by the thread, but while it sleeps
    pthread_cond_t changed;
    int drives;     // atomic: the collectives in flight are the thread's
    int has_failed; // atomic
    int ends, depth;
    GxContext g; // the thread's own, for its errors
    GxAdvance *advance;
};

static int gx__background_flies(const GxComm *comm)
{
    int flies = 0;
    for (int i = 0; i < gx_comm_slots(comm); i++) flies |= comm->flight[i].running;
    return flies;
}

static void *gx__background_run(void *background)
{
    GxBackground *b = (GxBackground *)background;
    GxComm *comm = b->g.comm;
    pthread_mutex_lock(&b->lock);
    while (!b->ends) {
        if (!__atomic_load_n(&b->drives, __ATOMIC_ACQUIRE) || gx_failed(&b->g) || !gx__background_flies(comm)) {
            pthread_cond_wait(&b->changed, &b->lock);
            continue;
        }
        const int64_t events = comm->engine->events(comm);
        if (!b->advance(&b->g)) comm->engine->rest(comm, events, &b->lock);
        if (gx_failed(&b->g)) __atomic_store_n(&b->has_failed, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

// The program's signals go to its other threads.
static int gx__background_start(GxBackground *b)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, GX__BACKGROUND_STACK);
    const int refused = pthread_create(&b->thread, &attributes, gx__background_run, b);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !refused;
}

void gx__background_begin(GxContext *g, GxAdvance *advance)
{
    GxComm *comm = g->comm;
    if (comm->background || comm->no_background || !comm->engine->rest) return;
    GxBackground *b = (GxBackground *)calloc(1, sizeof *b);
    if (b) {
        pthread_mutex_init(&b->lock, NULL);
        pthread_cond_init(&b->changed, NULL);
        b->g.comm = comm, b->g.rank = g->rank, b->g.world = g->world;
        b->advance = advance, b->depth = 1; // this call's
        if (gx__background_start(b)) {
            comm->background = b;
            return;
        }
        free(b);
    }
    comm->no_background = 1;
    gx_log(&g->log, GX_LOG_WARNING, "the system refused a thread: communication does not overlap with computation");
}

void gx__background_enter(GxContext *g)
{
    GxBackground *b = g->comm ? g->comm->background : NULL;
    if (!b || b->depth++ || !b->drives) return;
    __atomic_store_n(&b->drives, 0, __ATOMIC_RELEASE); // so that it does not take the lock again
    pthread_mutex_lock(&b->lock);
    pthread_mutex_unlock(&b->lock);
    if (gx_failed(&b->g) && !gx_failed(g)) g->error = b->g.error;
}

void gx__background_leave(GxContext *g)
{
    GxComm *comm = g->comm;
    GxBackground *b = comm ? comm->background : NULL;
    if (!b || --b->depth || gx_failed(g) || comm->is_dead || !gx__background_flies(comm)) return;
    pthread_mutex_lock(&b->lock);
    b->g.rank = g->rank, b->g.world = g->world;
    __atomic_store_n(&b->drives, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&b->changed);
    comm->engine->wake(comm);
    pthread_mutex_unlock(&b->lock);
}

int gx__background_has_failed(const GxComm *comm)
{
    return comm->background && __atomic_load_n(&comm->background->has_failed, __ATOMIC_ACQUIRE);
}

void gx__background_end(GxContext *g)
{
    GxBackground *b = g->comm->background;
    if (!b) return;
    gx__background_enter(g);
    pthread_mutex_lock(&b->lock);
    b->ends = 1;
    pthread_cond_signal(&b->changed);
    if (g->comm->state) g->comm->engine->wake(g->comm);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->changed);
    free(b);
    g->comm->background = NULL;
}
#endif
