// cpu/memory.h: ops/memory.h on the CPU, whose memory is the host's.
#ifndef GX_CPU_MEMORY_H
#define GX_CPU_MEMORY_H
#include "../ops/memory.h"
GX_BEGIN

GxStatus gx_cpu_arena_open(GxContext *g, GxArena *a, int64_t bytes);
void gx_cpu_arena_close(GxContext *g, GxArena *a);
void gx_cpu_to_device(GxContext *g, void *buffer, const void *host_copy, int64_t bytes);
void gx_cpu_to_host(GxContext *g, void *host_copy, const void *buffer, int64_t bytes);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_MEMORY_IMPLEMENTED)
#define GX_CPU_MEMORY_IMPLEMENTED
#include <string.h>

GxStatus gx_cpu_arena_open(GxContext *g, GxArena *a, int64_t bytes) { return gx_arena_open(a, bytes, &g->error); }

void gx_cpu_arena_close(GxContext *g, GxArena *a)
{
    (void)g;
    gx_arena_close(a);
}

void gx_cpu_to_device(GxContext *g, void *buffer, const void *host_copy, int64_t bytes)
{
    (void)g;
    memcpy(buffer, host_copy, (size_t)bytes);
}

void gx_cpu_to_host(GxContext *g, void *host_copy, const void *buffer, int64_t bytes)
{
    (void)g;
    memcpy(host_copy, buffer, (size_t)bytes);
}
#endif
