// team.h: how many threads an operation of the CPU is worth.
//
// Threads that wait sleep (run/processors.h), and waking one takes some 5 to 50 us. Work that one thread
// finishes sooner than that it does alone: when generating a token, all but the products. Results do not depend on it.
#ifndef GX_CPU_TEAM_H
#define GX_CPU_TEAM_H
#include "../base/context.h"
GX_BEGIN

// Fewer elements than this, each with some ten operations, are left to one thread: 16384, 5 us of a norm or an
// activation. Tests set it to 0, so that threads share small shapes, too.
extern int64_t gx_cpu_small;

static inline int gx_cpu_team(const GxContext *g, int64_t elements)
{
    return elements < gx_cpu_small ? 1 : gx_threads(g);
}

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CPU_TEAM_IMPLEMENTED)
#define GX_CPU_TEAM_IMPLEMENTED

int64_t gx_cpu_small = 1 << 14;
#endif
