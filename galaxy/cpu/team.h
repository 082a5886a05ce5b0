// team.h: how many threads an operation on the CPU uses.
//
// Waiting threads sleep (run/processors.h), and waking one takes about 5 to 50 us. Work that takes one thread less time
// than that is done by one thread: when generating a token, everything except the products. Results do not depend on
// it.
#ifndef GX_CPU_TEAM_H
#define GX_CPU_TEAM_H
#include "../base/context.h"
GX_BEGIN

// Fewer elements than this, with about ten operations each, are left to one thread: 16384, which take 5 us in a norm or
// an activation. Tests set it to 0, so that several threads compute small shapes, too.
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
