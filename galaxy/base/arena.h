// base/arena.h: all memory of a rank in one block, whose size is known before anything is allocated.
//
// The code that lays out buffers runs twice: first on a dry arena, which only counts (the addresses that it returns
// must not be accessed), then on an arena of exactly the size that the dry one needed. So the printed memory plan comes
// from the code itself and is not an estimate. Long-lived buffers are taken once; scratch is taken after a mark, and
// released by returning to the mark (a stack).
//
//     GxArena dry = GX_ZERO;                    gx_arena_open_dry(&dry);
//     lay_out(&model, &dry);                    // the same function, twice
//     GxArena arena = GX_ZERO;                  GX_TRY(gx_arena_open(&arena, dry.peak, &g->error));
//     lay_out(&model, &arena);                  // arena.peak == dry.peak, arena.kind_peak[] tells what for
#ifndef GX_ARENA_H
#define GX_ARENA_H
#include "status.h"
GX_BEGIN

typedef enum {
    GX_MEM_WEIGHTS = 0,
    GX_MEM_GRADS,
    GX_MEM_OPTIMIZER,
    GX_MEM_ACTIVATIONS,
    GX_MEM_COMM,
    GX_MEM_WORKSPACE,
    GX_MEM_KINDS
} GxMemoryKind;

enum { GX_ALIGN = 64 }; // bytes: a cache line, an AVX-512 register

typedef struct {
    char *base;
    int64_t capacity, used, peak; // bytes
    int64_t kind_used[GX_MEM_KINDS], kind_peak[GX_MEM_KINDS];
    int64_t top, kind_top[GX_MEM_KINDS]; // what was in use when the most was, since gx_arena_watch
    int dry;                             // 1: only counts
    int exhausted;                       // 1: a take did not fit and returned NULL
} GxArena;
typedef struct {
    int64_t used, kind_used[GX_MEM_KINDS];
} GxArenaMark;

void gx_arena_open_dry(GxArena *a);
// Zero-filled, on huge pages where the system gives them.
GxStatus gx_arena_open(GxArena *a, int64_t bytes, GxError *err);
void gx_arena_close(GxArena *a);
// GX_ALIGN-aligned; contents undefined after a release.
void *gx_arena_allocate(GxArena *a, GxMemoryKind kind, int64_t bytes);
GxArenaMark gx_arena_mark(const GxArena *a); // both take NULL: a context may have no arena
void gx_arena_release(GxArena *a, GxArenaMark mark);
void gx_arena_watch(GxArena *a); // from now on `top` is the most in use; at first, what is in use now
const char *gx_memory_kind_name(GxMemoryKind kind);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_ARENA_IMPLEMENTED)
#define GX_ARENA_IMPLEMENTED
#include <string.h>
#include <errno.h>
#include <sys/mman.h>

void gx_arena_open_dry(GxArena *a)
{
    memset(a, 0, sizeof *a);
    a->dry = 1;
    a->base = (char *)GX_ALIGN; // not NULL, which means "not needed" to operations
    a->capacity = INT64_MAX / 2;
}

GxStatus gx_arena_open(GxArena *a, int64_t bytes, GxError *err)
{
    memset(a, 0, sizeof *a);
    a->capacity = gx_round_up(gx_max(bytes, 1), GX_ALIGN);
    void *p = mmap(NULL, (size_t)a->capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return GX_FAIL(err, GX_ERR_MEMORY,
                       "the system refused %.1f MB for the arena: %s; use a smaller model, batch or sequence",
                       (double)bytes / 1e6, strerror(errno));
#ifdef MADV_HUGEPAGE
    madvise(p, (size_t)a->capacity, MADV_HUGEPAGE); // 3-6% of a step; refused: no harm
#endif
    a->base = (char *)p;
    return GX_OK;
}

void gx_arena_close(GxArena *a)
{
    if (a->base && !a->dry) munmap(a->base, (size_t)a->capacity);
    memset(a, 0, sizeof *a);
}

void *gx_arena_allocate(GxArena *a, GxMemoryKind kind, int64_t bytes)
{
    int64_t size = gx_round_up(gx_max(bytes, 1), GX_ALIGN);
    if (size > a->capacity - a->used) {
        a->exhausted = 1;
        return NULL;
    }
    char *p = a->base + a->used;
    a->used += size;
    a->peak = gx_max(a->peak, a->used);
    a->kind_used[kind] += size;
    a->kind_peak[kind] = gx_max(a->kind_peak[kind], a->kind_used[kind]);
    if (a->used > a->top) gx_arena_watch(a);
    return p;
}

void gx_arena_watch(GxArena *a)
{
    a->top = a->used;
    memcpy(a->kind_top, a->kind_used, sizeof a->kind_top);
}

GxArenaMark gx_arena_mark(const GxArena *a)
{
    GxArenaMark m = GX_ZERO;
    if (!a) return m;
    m.used = a->used;
    memcpy(m.kind_used, a->kind_used, sizeof m.kind_used);
    return m;
}

void gx_arena_release(GxArena *a, GxArenaMark mark)
{
    if (!a) return;
    a->used = mark.used;
    memcpy(a->kind_used, mark.kind_used, sizeof mark.kind_used);
}

const char *gx_memory_kind_name(GxMemoryKind kind)
{
    static const char *const names[GX_MEM_KINDS] = {"weights",     "gradients",     "optimizer",
                                                    "activations", "communication", "workspace"};
    return (unsigned)kind < GX_MEM_KINDS ? names[kind] : "?";
}
#endif
