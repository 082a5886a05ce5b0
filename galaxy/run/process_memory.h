// process_memory.h: how much memory this process has, has had, and could still get.
#ifndef GX_PROCESS_MEMORY_H
#define GX_PROCESS_MEMORY_H
#include "../base/status.h"
GX_BEGIN

int64_t gx_process_memory(void);      // bytes resident now; 0: not known
int64_t gx_process_peak_memory(void); // bytes, the most so far
int64_t gx_available_memory(void);    // bytes that the system can still provide; 0: not known

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PROCESS_MEMORY_IMPLEMENTED)
#define GX_PROCESS_MEMORY_IMPLEMENTED
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

int64_t gx_process_memory(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*s %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

// getrusage also counts what the process was before exec: all of Python, in a program that torchrun has started.
int64_t gx_process_peak_memory(void)
{
    char line[256];
    long kb = 0;
    struct rusage r;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld", &kb) == 1) break;
    if (f) fclose(f);
    if (kb == 0 && getrusage(RUSAGE_SELF, &r) == 0) kb = (long)r.ru_maxrss; // without /proc
    return (int64_t)kb * 1024;
}

// What the control group (a container, a batch job) may still take, in bytes; INT64_MAX: no limit.
static int64_t gx__process_memory_group_memory(void)
{
    long long limit = 0, used = 0;
    FILE *f = fopen("/sys/fs/cgroup/memory.max", "r"), *u = fopen("/sys/fs/cgroup/memory.current", "r");
    int both = f && u && fscanf(f, "%lld", &limit) == 1 && fscanf(u, "%lld", &used) == 1; // "max" is not a number
    if (f) fclose(f);
    if (u) fclose(u);
    return both ? gx_max(limit - used, 0) : INT64_MAX;
}

int64_t gx_available_memory(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %ld", &kb) == 1) break;
    if (f) fclose(f);
    return gx_min((int64_t)kb * 1024, gx__process_memory_group_memory());
}
#endif
