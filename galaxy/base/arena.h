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
    // gx_arena_offload: kinds whose memory is in a file (a mask of 1 << GxMemoryKind), and how much of the file is used
    int in_file, file;
    int64_t file_used, file_bytes;
} GxArena;
typedef struct {
    int64_t used, kind_used[GX_MEM_KINDS];
} GxArenaMark;

void gx_arena_open_dry(GxArena *a);
// Zero-filled, on huge pages where the system gives them.
GxStatus gx_arena_open(GxArena *a, int64_t bytes, GxError *err);
void gx_arena_close(GxArena *a);
// From now on what is taken of these kinds (a mask of 1 << GxMemoryKind), up to `bytes` of it, is memory in a file
// without a name in `folder`: the system keeps what was used last in memory, and the rest on the disk. Whole pages of
// it, where nothing was taken before. The disk's room is taken at once. For an arena that is in the host's memory, and
// that was opened and not used yet. An error names a folder where no file can be made, and a full disk.
GxStatus gx_arena_offload(GxArena *a, const char *folder, int kinds, int64_t bytes, GxError *err);
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
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

GxStatus gx_arena_offload(GxArena *a, const char *folder, int kinds, int64_t bytes, GxError *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/galaxy-XXXXXX", folder) >= (int)sizeof path)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the name of the folder for offloaded memory is too long");
    const int file = mkstemp(path);
    if (file < 0)
        return GX_FAIL(err, GX_ERR_IO, "%s: no file for offloaded memory can be made there: %s", folder,
                       strerror(errno));
    unlink(path);
    const int code = posix_fallocate(file, 0, (off_t)bytes);
    if (code) close(file);
    if (code)
        return GX_FAIL(err, GX_ERR_IO, "%s: there is no room for %.1f MB of offloaded memory: %s", folder,
                       (double)bytes / 1e6, strerror(code));
    a->file = file, a->in_file = kinds, a->file_used = 0, a->file_bytes = bytes;
    return GX_OK;
}

// Puts the whole pages of [from, to), which nothing has used yet, into the file, as far as it has room.
static void gx__arena_put_in_file(GxArena *a, int64_t from, int64_t to)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    from = gx_round_up(from, page), to = to / page * page;
    to = gx_min(to, from + (a->file_bytes - a->file_used) / page * page);
    if (to <= from) return;
    const void *p = mmap(a->base + from, (size_t)(to - from), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, a->file,
                         (off_t)a->file_used);
    if (p != MAP_FAILED) a->file_used += to - from;
    else a->exhausted = 1;
}

void gx_arena_close(GxArena *a)
{
    if (a->base && !a->dry) munmap(a->base, (size_t)a->capacity);
    if (a->in_file) close(a->file);
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
    if (a->in_file >> kind & 1) gx__arena_put_in_file(a, gx_max(a->used, a->peak), a->used + size);
    if (a->exhausted) return NULL;
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
