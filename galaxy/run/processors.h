// processors.h: how many cores this process may use, how many threads each rank has, and how threads wait for each
// other.
//
// The cores are those of the process's affinity (taskset, a batch system, mpirun's binding), but at most the CPU limit
// of its control groups (docker --cpus, Kubernetes), rounded up. Each rank of this machine gets an equal share, unless
// the program or --threads sets another number. OMP_NUM_THREADS is ignored, since torchrun sets it to 1.
//
// OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY bind the first thread to a core before main; the cores are then those
// of all places. OMP_DYNAMIC, which makes the number of threads depend on the load, is ignored. A limit on threads in
// the environment is refused, since the number of threads affects the bits of the results, and is part of what a run
// reports.
//
// Threads that wait for each other spin by default: libgomp's for some milliseconds, libomp's for 200. That takes cores
// from threads that have work to do, including the one that is waited for. With OMP_WAIT_POLICY=passive they sleep, and
// with GOMP_SPINCOUNT they first spin for about as long as waking a thread takes (20 to 50 us), so that short waits, of
// which generating a text has hundreds per token, need no waking. OpenMP reads these variables before main. So
// gx_launch executes the program again (launch.h), while a library can only warn.
#ifndef GX_PROCESSORS_H
#define GX_PROCESSORS_H
#include "../base/log.h"
#include "../comm/engine.h"
GX_BEGIN

int gx_cores(void);                     // that this process may use, at least 1
int gx_threads_for(const GxComm *comm); // cores / ranks on this machine, at least 1; comm NULL: one rank
// The CPUs that control groups allow this process, such as 1.5; 0: no limit. root: "", or, for tests, a folder with
// proc/self/cgroup and sys/fs/cgroup.
double gx_cpu_limit(const char *root);

// Sets the number of threads of this rank's parallel regions; GX_ERR_ARGUMENT: the environment allows fewer.
GxStatus gx_threads_take(int threads, GxError *err);
// Undoes OpenMP's binding of this thread, before something is started that would inherit it: the program again, or
// ranks as threads.
void gx_cores_unbind(void);

// Describes a rank's number of threads: "2 threads (2 cores / 1 rank)", "4 threads (--threads)", "1 thread (1 core / 1
// rank; the CPU limit of this container is 0.5)". asked: the number given by an option, or 0.
enum { GX_THREADS_TEXT = 240 };
void gx_threads_text(const GxComm *comm, int threads, int64_t asked, char text[GX_THREADS_TEXT]);

// Warns, one line each, of more threads than cores, of a binding to less than the process's share, and of threads that
// are set to spin although they share cores.
void gx_warn_cores(const GxLogger *log, int threads, int local_ranks);
// Warns, in one line, if several threads spin because no way of waiting is set.
void gx_warn_waiting(const GxLogger *log, int threads);
#define GX_SPIN_TURNS "1000"    // iterations of libgomp's loop before a thread sleeps
int gx_waiting_is_chosen(void); // 1: OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, or there is no OpenMP

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_PROCESSORS_IMPLEMENTED)
#define GX_PROCESSORS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

// ---- cores ---------------------------------------------------------------------------------------------------------

static int gx__processors_of_machine(void) { return (int)gx_max(sysconf(_SC_NPROCESSORS_ONLN), 1); }

typedef struct {
    unsigned char bit[4096]; // one for each core, as the system call takes them
} GxCoreMask;

static int gx__processors_count(const GxCoreMask *mask)
{
    int n = 0;
    for (size_t i = 0; i < sizeof mask->bit; i++) n += __builtin_popcount(mask->bit[i]);
    return n;
}

// The cores of the places to which OpenMP binds threads; none where it binds nothing.
static void gx__processors_of_places(GxCoreMask *mask)
{
    memset(mask, 0, sizeof *mask);
#ifdef _OPENMP
    for (int place = 0; omp_get_proc_bind() != omp_proc_bind_false && place < omp_get_num_places(); place++) {
        const int n = omp_get_place_num_procs(place);
        int *core = (int *)calloc((size_t)gx_max(n, 1), sizeof *core);
        if (core) omp_get_place_proc_ids(place, core);
        for (int i = 0; core && i < n; i++)
            if (core[i] / 8 < (int)sizeof mask->bit) mask->bit[core[i] / 8] |= (unsigned char)(1 << core[i] % 8);
        free(core);
    }
#endif
}

// Uses the system call: its wrapper is not declared if a system header came before ours, and knows only 1024 cores.
static int gx__processors_of_affinity(void)
{
    GxCoreMask mask;
    gx__processors_of_places(&mask);
    int n = gx__processors_count(&mask);
    if (n > 0) return n;
#ifdef SYS_sched_getaffinity
    if (syscall(SYS_sched_getaffinity, 0, sizeof mask.bit, mask.bit) > 0) n = gx__processors_count(&mask);
#endif
    return n > 0 ? n : gx__processors_of_machine();
}

void gx_cores_unbind(void)
{
#ifdef SYS_sched_setaffinity
    GxCoreMask mask;
    gx__processors_of_places(&mask);
    if (gx__processors_count(&mask)) syscall(SYS_sched_setaffinity, 0, sizeof mask.bit, mask.bit);
#endif
}

// Reads two numbers from a file. Returns how many there are: of "150000 100000" 2, of "max 100000" none.
static int gx__processors_read(const char *folder, const char *name, double *first, double *second)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    const int n = f ? fscanf(f, "%lf %lf", first, second) : 0;
    if (f) fclose(f);
    return n;
}

// The smallest limit of a group and of those around it. In a container the group's path may be one of the machine,
// while the files of the container's own group are at the top.
static double gx__processors_limit_of(const char *root, const char *hierarchy, const char *group)
{
    char folder[1024];
    double limit = 0, quota, period, rest; // microseconds; a quota of -1 is none
    const int top = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, hierarchy);
    if (top < 0 || (size_t)top >= sizeof folder) return 0;
    snprintf(folder + top, sizeof folder - (size_t)top, "%s", group);
    for (;;) {
        const int is_there = gx__processors_read(folder, "cpu.max", &quota, &period) == 2 ||
                             (gx__processors_read(folder, "cpu.cfs_quota_us", &quota, &rest) == 1 &&
                              gx__processors_read(folder, "cpu.cfs_period_us", &period, &rest) == 1);
        if (is_there && quota > 0 && period > 0 && (limit == 0 || quota / period < limit)) limit = quota / period;
        char *end = strrchr(folder + top, '/');
        if (!end) return limit;
        *end = 0;
    }
}

double gx_cpu_limit(const char *root)
{
    char path[1024], line[1024];
    double limit = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) { // "number:controllers:group"; version 2 has number 0 and no controllers
        char controllers[512] = "", group[512] = "", *names = strchr(line, ':'),
             *at = names ? strchr(names + 1, ':') : NULL;
        if (!at) continue;
        snprintf(controllers, sizeof controllers, ",%.*s,", (int)(at - names - 1), names + 1);
        snprintf(group, sizeof group, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
        if (!strstr(controllers, ",cpu,") && strcmp(controllers, ",,")) continue;
        const double here = gx__processors_limit_of(root, strcmp(controllers, ",,") ? "/cpu" : "", group);
        if (here > 0 && (limit == 0 || here < limit)) limit = here;
    }
    if (f) fclose(f);
    return limit;
}

int gx_cores(void)
{
    const double limit = gx_cpu_limit("");
    const int affinity = gx__processors_of_affinity();
    return limit > 0 && limit < affinity ? (int)limit + (limit > (int)limit) : affinity;
}

// ---- threads -------------------------------------------------------------------------------------------------------

static int gx__processors_local_ranks(const GxComm *comm) { return (int)gx_max(comm ? comm->local_ranks : 1, 1); }

int gx_threads_for(const GxComm *comm) { return (int)gx_max(gx_cores() / gx__processors_local_ranks(comm), 1); }

GxStatus gx_threads_take(int threads, GxError *err)
{
    int taken = threads;
#ifdef _OPENMP
    omp_set_dynamic(0);
    taken = 0;
    GX_OMP(parallel num_threads(threads) reduction(+ : taken))
    taken++;
#endif
    if (taken == threads) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "OpenMP allows %d of the %d threads that this rank needs; unset OMP_THREAD_LIMIT and "
                   "OMP_MAX_ACTIVE_LEVELS, or say --threads %d",
                   taken, threads, taken);
}

// "2 cores / 1 rank", and which limits or variables make that less, or do not count.
static void gx__processors_share_text(const GxComm *comm, int threads, char *text, size_t size)
{
    const int cores = gx_cores(), affinity = gx__processors_of_affinity(), machine = gx__processors_of_machine(),
              ranks = gx__processors_local_ranks(comm);
    const double limit = gx_cpu_limit("");
    const char *variable = getenv("OMP_NUM_THREADS");
    size_t n = (size_t)snprintf(text, size, "%d core%s / %d rank%s%s", cores, gx_text_s(cores), ranks, gx_text_s(ranks),
                                comm && comm->world > ranks ? " here" : "");
    if (affinity < machine)
        n += (size_t)snprintf(text + n, size - n, "; this process may use %d of the machine's %d cores", affinity,
                              machine);
    if (limit > 0 && limit < affinity)
        n += (size_t)snprintf(text + n, size - n, "; the CPU limit of this container is %g", limit);
    if (variable && atoi(variable) != threads) snprintf(text + n, size - n, "; OMP_NUM_THREADS is ignored");
}

void gx_threads_text(const GxComm *comm, int threads, int64_t asked, char text[GX_THREADS_TEXT])
{
    char why[GX_THREADS_TEXT - 40];
#ifndef _OPENMP
    (void)comm, (void)asked, (void)gx__processors_share_text;
    threads = 1;
    snprintf(why, sizeof why, "built without OpenMP");
#else
    if (asked > 0) snprintf(why, sizeof why, "--threads");
    else if (threads != gx_threads_for(comm)) snprintf(why, sizeof why, "as the program says");
    else gx__processors_share_text(comm, threads, why, sizeof why);
#endif
    snprintf(text, GX_THREADS_TEXT, "%d thread%s (%s)", threads, gx_text_s(threads), why);
}

void gx_warn_cores(const GxLogger *log, int threads, int local_ranks)
{
    const int cores = gx_cores(), affinity = gx__processors_of_affinity(), machine = gx__processors_of_machine(),
              share = (int)gx_max(machine / gx_max(local_ranks, 1), 1);
    const char *policy = getenv("OMP_WAIT_POLICY");
    if (threads > cores)
        gx_log(log, GX_LOG_WARNING, "%d threads on %d cores wait for each other; use %d threads%s", threads, cores,
               cores,
               affinity < machine ? ", or remove the binding (Open MPI: OMPI_MCA_hwloc_base_binding_policy=none)" : "");
    else if (affinity < share)
        gx_log(
            log, GX_LOG_WARNING,
            "this process is bound to %d of the machine's %d cores, although its share is %d; taskset, a batch system, "
            "an OpenMP variable, or Open MPI did that (OMPI_MCA_hwloc_base_binding_policy=none turns it off)",
            affinity, machine, share);
    else if (threads > 1 && threads * local_ranks > machine && gx_waiting_is_chosen() &&
             !(policy && (policy[0] == 'p' || policy[0] == 'P')))
        gx_log(log, GX_LOG_WARNING,
               "%d ranks of %d threads on %d cores spin while they wait; set OMP_WAIT_POLICY=passive, or use fewer "
               "threads",
               local_ranks, threads, machine);
}

// ---- waiting -------------------------------------------------------------------------------------------------------

int gx_waiting_is_chosen(void)
{
#ifdef _OPENMP
    return getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL;
#else
    return 1;
#endif
}

void gx_warn_waiting(const GxLogger *log, int threads)
{
    if (threads > 1 && !gx_waiting_is_chosen())
        gx_log(log, GX_LOG_WARNING,
               "OpenMP's threads spin while they wait, which slows down everything on this machine, including this "
               "program; set OMP_WAIT_POLICY=passive before it starts (or OMP_WAIT_POLICY=active, if that is what you "
               "want)");
}
#endif
