// memory.h: the device's memory, and how the host reaches it.
//
// All buffers that operations read and write are in the context's arena, in device memory. The host cannot access a
// GPU's memory: what it writes (tokens, the learning rate, weights from a file) goes there with gx_to_device, and what
// it reads (a loss, logits, a checkpoint) comes back with gx_to_host, from and to a host copy: host memory with the
// same contents. On a device that computes in host memory a buffer is its own host copy and these calls do nothing, so
// that a program is written only once.
//
//     GX_TRY(gx_device_open(&g));                                        // streams and handles, if it has any
//     GX_TRY(gx_arenas_open(&g, &arena, &host, bytes, host_bytes));      // sets g.arena and g.host
//     int32_t *tokens = gx_arena_allocate(g.arena, GX_MEM_ACTIVATIONS, 4 * n);
//     int32_t *host_copy = gx_host_copy(&g, GX_MEM_ACTIVATIONS, tokens, 4 * n);
//     fill(host_copy);
//     gx_to_device(&g, tokens, host_copy, 4 * n);
//
// Operations on a GPU run asynchronously. gx_to_device copies the host's bytes as they are at the time of the call, in
// order with the operations before and after it; gx_to_host waits for the operations before it.
#ifndef GX_MEMORY_H
#define GX_MEMORY_H
#include "device.h"
GX_BEGIN

GxStatus gx_device_open(GxContext *g);
void gx_device_close(GxContext *g);
// host_bytes 0: no host arena is needed.
GxStatus gx_arenas_open(GxContext *g, GxArena *arena, GxArena *host, int64_t bytes, int64_t host_bytes);
void gx_arenas_close(GxContext *g, GxArena *arena, GxArena *host);

GxArena *gx_host_arena(const GxContext *g);          // the arena in host memory
int gx_on_device(const GxContext *g, const void *p); // 1: in the arena of a device whose memory the host cannot access

enum { GX_STAGE = 1 << 20 }; // elements of a large buffer that are read from or written to a file at a time

// A buffer's host copy: the buffer itself if the host can access it. NULL, and the context has an error: the arena has
// less room than is needed.
void *gx_host_copy(GxContext *g, GxMemoryKind kind, void *buffer, int64_t bytes);
void gx_to_device(GxContext *g, void *buffer, const void *host_copy, int64_t bytes);
void gx_to_host(GxContext *g, void *host_copy, const void *buffer, int64_t bytes);
void gx_device_wait(GxContext *g); // waits until all operations are done, for clocks

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MEMORY_IMPLEMENTED)
#define GX_MEMORY_IMPLEMENTED
#include <string.h>

GxStatus gx_device_open(GxContext *g) { return g->device->open ? g->device->open(g) : GX_OK; }

void gx_device_close(GxContext *g)
{
    if (g->device->close) g->device->close(g);
}

GxStatus gx_arenas_open(GxContext *g, GxArena *arena, GxArena *host, int64_t bytes, int64_t host_bytes)
{
    GxArena none = GX_ZERO;
    *host = none;
    g->host = NULL;
    GX_TRY(g->device->arena_open(g, arena, bytes));
    g->arena = arena;
    if (g->device->shares_host_memory || host_bytes == 0) return GX_OK;
    GX_TRY(g->device->host_arena_open(g, host, host_bytes));
    g->host = host;
    return GX_OK;
}

void gx_arenas_close(GxContext *g, GxArena *arena, GxArena *host)
{
    if (host->base) g->device->host_arena_close(g, host);
    if (arena->base) g->device->arena_close(g, arena);
    g->arena = g->host = NULL;
}

GxArena *gx_host_arena(const GxContext *g) { return g->host ? g->host : g->arena; }

int gx_on_device(const GxContext *g, const void *p)
{
    const GxArena *a = g->arena;
    if (!g->device || g->device->shares_host_memory || !a) return 0; // a context that only communicates needs no device
    const uintptr_t first = (uintptr_t)a->base, size = (uintptr_t)(a->dry ? a->peak : a->capacity);
    return (uintptr_t)p - first < size; // wraps around if p is below `first`
}

void *gx_host_copy(GxContext *g, GxMemoryKind kind, void *buffer, int64_t bytes)
{
    if (g->device->shares_host_memory || !buffer) return buffer;
    return gx_allocate_from(g, gx_host_arena(g), kind, bytes);
}

void gx_to_device(GxContext *g, void *buffer, const void *host_copy, int64_t bytes)
{
    if (gx_failed(g) || buffer == host_copy || bytes <= 0 || !g->device->computes) return;
    g->device->to_device(g, buffer, host_copy, bytes);
}

void gx_to_host(GxContext *g, void *host_copy, const void *buffer, int64_t bytes)
{
    if (gx_failed(g) || buffer == host_copy || bytes <= 0 || !g->device->computes) return;
    g->device->to_host(g, host_copy, buffer, bytes);
}

void gx_device_wait(GxContext *g)
{
    if (!gx_failed(g) && g->device->computes && g->device->wait) g->device->wait(g);
}
#endif
