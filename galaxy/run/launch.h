// launch.h: starts the ranks, each with a context of its own: as threads of this process (--ranks N), or as one of
// several processes that mpirun, torchrun, srun or the user (--world N --rank R --init tcp://host:port) started.
//
//     static int train(GxContext *g, int argc, char **argv) { ... return 0; }
//     int main(int argc, char **argv) { return gx_launch(train, argc, argv); }
//
// How ranks are started is decided in this order: mpirun, if the program was built with MPI; --world; torchrun's or
// srun's variables together with MASTER_ADDR and MASTER_PORT (comm/rendezvous.h); srun, if the program was built with
// MPI; --ranks. If a flag is given twice, the last one counts. Contradictions are refused (exit status 2).
//
// Each rank gets its device, its share of the cores, a logger that writes to stderr and a reporter (reporter.h) that
// writes to stdout. In a run of several ranks g->comm is an engine that is not open yet; the code that plans the memory
// opens it (gx_comm_open). Signals have their default action until gx_catch_stop_signals. gx_launch is meant to be all
// of a program's main: it exits by itself if the system starts fewer threads than there are ranks, since the running
// ranks would wait for the others forever.
//
// How OpenMP's threads wait (processors.h) is fixed before main begins. So if main passes on its own argv, and neither
// OMP_WAIT_POLICY nor GOMP_SPINCOUNT is set, gx_launch first executes the program again with OMP_WAIT_POLICY=passive:
// the same process and arguments, from the beginning. Therefore call it first in main. Under a tool that loses track of
// a program at exec (valgrind without --trace-children=yes), set the variable yourself.
#ifndef GX_LAUNCH_H
#define GX_LAUNCH_H
#include "../comm/mpi.h"
#include "../comm/tcp.h"
#include "../comm/threads.h"
GX_BEGIN

const GxDevice *gx_default_device(void); // the one that the program was built for (GX_WITH_CUDA: cuda)

typedef int GxRankMain(GxContext *g, int argc, char **argv); // returns the exit status
// Returns the largest of the ranks' exit statuses, or 1, with an error on stderr, if stdout could not be written to the
// end.
int gx_launch(GxRankMain *rank_main, int argc, char **argv);

// For a program that is one process: refuses to be one of several that mpirun, srun or torchrun has started, since each
// of them would do all of the work.
GxStatus gx_check_one_process(GxError *err);

// From this call on SIGINT, SIGTERM, SIGUSR1 and SIGHUP set a flag. A second one of the first three ends the process at
// once; a second SIGHUP does not, since a terminal that is closed sends several. A SIGHUP that the process was started
// to ignore (nohup) stays ignored.
void gx_catch_stop_signals(void);
int gx_stop_signal(void); // the number of the signal that asked to stop; 0: none
// From this call on, writing to stdout after its reader has closed it sets the stop flag, too, as SIGPIPE. For programs
// whose output is their only purpose.
void gx_stop_where_unread(void);

// The exit status for main. `status`, if everything printed to stdout was written; otherwise an error on stderr and 1.
// If the reader of a pipe has closed it (| head), 128 + SIGPIPE without a message, as if the signal had ended the
// program. gx_launch calls this itself.
int gx_exit_status(int status);

// Installs a signal handler that runs on an alternate stack in the calling thread. oneDNN's matrix products (seen in
// 2.6 and 3.2) use the stack pointer as a general register, so a handler on the thread's own stack would overwrite
// whatever it points to. Programs that install handlers by themselves need SA_ONSTACK and sigaltstack, too. once: after
// one signal the default action is restored.
void gx_on_signal(int number, void (*handler)(int), int once);

// For programs: if `call` fails, logs the context's error and returns 1 from the calling function.
#define GX_CHECK(g, call)                                                                                              \
    do {                                                                                                               \
        if ((call) != GX_OK) return gx_print_error(g);                                                                 \
    } while (0)
// Logs each error once: on rank 0, and on ranks whose error is their own. Returns 1.
int gx_print_error(GxContext *g);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LAUNCH_IMPLEMENTED)
#define GX_LAUNCH_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "../cpu/cpu.h"
#include "../io/config_args.h"
#include "../io/json.h"
#include "processors.h"
#include "reporter.h"

#ifdef GX_WITH_CUDA
#include "../cuda/cuda.h"
const GxDevice *gx_default_device(void) { return gx_device_cuda(); }
#else
const GxDevice *gx_default_device(void) { return gx_device_cpu(); }
#endif

static volatile sig_atomic_t gx__launch_stop; // global, since a signal handler takes no argument

static void gx__launch_on_stop(int number) { gx__launch_stop = number; }

static int gx__launch_is_ignored(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void gx_catch_stop_signals(void)
{
    gx_on_signal(SIGINT, gx__launch_on_stop, 1);
    gx_on_signal(SIGTERM, gx__launch_on_stop, 1);
    gx_on_signal(SIGUSR1, gx__launch_on_stop, 1); // mpirun passes this one on to its ranks; on the others it kills them
    if (!gx__launch_is_ignored(SIGHUP)) gx_on_signal(SIGHUP, gx__launch_on_stop, 0);
}

void gx_stop_where_unread(void) { gx_on_signal(SIGPIPE, gx__launch_on_stop, 0); }

void gx_on_signal(int number, void (*handler)(int), int once)
{
    static __thread char memory[1 << 16]; // AVX-512 and AMX state alone take some 11 KB
    stack_t stack;
    struct sigaction action;
    memset(&stack, 0, sizeof stack);
    memset(&action, 0, sizeof action);
    if (sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE)) { // an existing alternate stack is kept
        stack.ss_sp = memory;
        stack.ss_size = sizeof memory;
        stack.ss_flags = 0;
        sigaltstack(&stack, NULL);
    }
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK | SA_RESTART | (once ? (int)SA_RESETHAND : 0);
    sigaction(number, &action, NULL);
}

int gx_stop_signal(void) { return (int)gx__launch_stop; }

static void gx__launch_log_stderr(void *user, GxLogLevel level, const char *text)
{
    const GxContext *g = (const GxContext *)user;
    const char *kind = level == GX_LOG_ERROR ? "error: " : level == GX_LOG_WARNING ? "warning: " : "";
    if (g->world > 1) fprintf(stderr, "rank %d: %s%s\n", g->rank, kind, text);
    else fprintf(stderr, "%s%s\n", kind, text);
}

// Of ranks that have not met yet.
static void gx__launch_log_waiting(void *user, GxLogLevel level, const char *text)
{
    (void)level;
    fprintf(stderr, "rank %d: %s\n", ((const GxRendezvous *)user)->rank, text);
}

// The first error of writing to stdout, which the whole process shares. A failed write drops its data, so that a later
// one may succeed: the error must be remembered here.
static GxError gx__launch_unheard;
#define GX__LAUNCH_UNHEARD "part of the output could not be written to standard output"

static void gx__launch_report_stdout(void *user, const char *text)
{
    (void)user;
    if (fputs(text, stdout) < 0 || fflush(stdout) != 0)
        GX_FAIL(&gx__launch_unheard, GX_ERR_IO, GX__LAUNCH_UNHEARD ": %s", strerror(errno));
}

// The width of the terminal if stdout is one, otherwise the variable COLUMNS if it is a plausible number.
static int gx__launch_columns(void *user)
{
    struct winsize w;
    const char *said = getenv("COLUMNS");
    char *end = NULL;
    (void)user;
    if (isatty(1) && ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    const long columns = said ? strtol(said, &end, 10) : 0;
    return end && end != said && !*end && columns > 0 && columns <= 1000 ? (int)columns : 0;
}
static const GxReporter gx__launch_reporter = {gx__launch_report_stdout, NULL, gx__launch_columns};

int gx_print_error(GxContext *g)
{
    // Wrong arguments are wrong on all ranks alike, so rank 0 reports them; an error of the communicator repeats what
    // the rank that caused it reports itself.
    if (g->rank == 0 || (g->error.code != GX_ERR_COMM && g->error.code != GX_ERR_ARGUMENT))
        gx_log(&g->log, GX_LOG_ERROR, "%s", g->error.message);
    return 1;
}

static void gx__launch_context_init(GxContext *g, GxComm *comm)
{
    memset(g, 0, sizeof *g);
    g->device = gx_default_device();
    g->comm = comm;
    g->rank = comm ? comm->rank : 0;
    g->local_rank = comm ? comm->local_rank : 0;
    g->world = comm ? comm->world : 1;
    g->threads = gx_threads_for(comm);
    g->log.write = gx__launch_log_stderr;
    g->log.user = g;
    g->reporter = &gx__launch_reporter;
}

// If a rank ends before it has opened its communicator, the others must be told, or they would wait for it.
static int gx__launch_run_rank(GxRankMain *rank_main, GxContext *g, int argc, char **argv)
{
    GxComm *comm = g->comm;
    int status = rank_main(g, argc, argv);
    if (comm && comm->engine && comm->state && !comm->is_dead) {
        if (status == 0) comm->engine->close(comm); // --help
        else comm->engine->abort(g, comm, g->error.message[0] ? g->error.message : "it ended early");
    }
    return status;
}

typedef struct {
    GxRankMain *rank_main;
    GxContext g;
    GxComm comm;
    pthread_t thread;
    int argc, status;
    char **argv;
} gx__LaunchThread;

static void *gx__launch_thread_main(void *user)
{
    gx__LaunchThread *r = (gx__LaunchThread *)user;
    r->status = gx__launch_run_rank(r->rank_main, &r->g, r->argc, r->argv);
    return NULL;
}

enum { GX__LAUNCH_STACK = 8 << 20 }; // bytes, of a rank that is a thread

static int gx__launch_threads(GxRankMain *rank_main, int ranks, int argc, char **argv)
{
    GxError err = GX_ZERO;
    GxThreadsGroup *group = NULL;
    gx__LaunchThread *rank = (gx__LaunchThread *)calloc((size_t)ranks, sizeof *rank);
    if (!rank || gx_threads_group_open(&group, ranks, &err) != GX_OK) {
        fprintf(stderr, "error: %s\n", rank ? err.message : "no memory for the ranks");
        free(rank);
        return 1;
    }
    int started = 0, status = 0;
    pthread_attr_t attributes; // so that a small limit of the shell (ulimit -s) does not apply to ranks
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, GX__LAUNCH_STACK);
    gx_cores_unbind(); // otherwise all ranks would run where OpenMP has bound this thread
    for (; started < ranks; started++) {
        gx__LaunchThread *r = &rank[started];
        r->rank_main = rank_main;
        r->argc = argc;
        r->argv = argv;
        gx_threads_comm(&r->comm, group, started);
        gx__launch_context_init(&r->g, &r->comm);
        if (pthread_create(&r->thread, &attributes, gx__launch_thread_main, r) == 0) continue;
        fprintf(stderr, "error: the system started %d of %d threads for the ranks; use fewer ranks\n", started, ranks);
        r->comm.engine->abort(&r->g, &r->comm, "it was not started"); // ranks that run already would wait for it
        status = 1;
        break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(rank[i].thread, NULL);
        status = rank[i].status > status ? rank[i].status : status;
    }
    pthread_attr_destroy(&attributes);
    gx_threads_group_close(group);
    free(rank);
    return status;
}

// These flags decide how many contexts there are and how ranks find each other, so they are read before the options are
// parsed.
typedef struct {
    int64_t ranks, world, rank; // world 0, rank -1: not given
    double timeout;
    char init[256]; // "": not given
    int is_wrong;   // a value is malformed; the option parser reports it
} gx__LaunchFlags;

static int64_t gx__launch_number(gx__LaunchFlags *l, const GxJson *file, int argc, char **argv, const char *name,
                                 int64_t least, int64_t otherwise)
{
    const char *flag = gx_config_argument(argc, argv, name);
    const GxJson *in_file = gx_json_get(file, name);
    char *end = NULL;
    if (!flag && !in_file) return otherwise;
    const int64_t value = flag ? strtol(flag, &end, 10) : gx_json_int(in_file);
    if (value >= least && value <= GX_MAX_PARTS && (!flag || !*end)) return value;
    l->is_wrong = 1;
    return otherwise;
}

static gx__LaunchFlags gx__launch_read_flags(int argc, char **argv)
{
    const char *path = gx_config_argument(argc, argv, "config"), *init = gx_config_argument(argc, argv, "init"),
               *timeout = gx_config_argument(argc, argv, "timeout");
    gx__LaunchFlags l = GX_ZERO;
    GxJson *file = NULL;
    GxError ignored = GX_ZERO;
    if (path && gx_json_read(&file, path, 1 << 20, &ignored) != GX_OK) file = NULL;
    l.ranks = gx__launch_number(&l, file, argc, argv, "ranks", 1, 1);
    l.world = gx__launch_number(&l, file, argc, argv, "world", 1, 0);
    l.rank = gx__launch_number(&l, file, argc, argv, "rank", 0, -1);
    l.timeout = timeout ? atof(timeout) : gx_json_double(gx_json_get(file, "timeout"));
    if (!init) init = gx_json_string(gx_json_get(file, "init"));
    snprintf(l.init, sizeof l.init, "%s", init);
    gx_json_free(file);
    return l;
}

static GxStatus gx__launch_check_by_hand(const gx__LaunchFlags *l, const GxRendezvous *told, GxError *err)
{
    if (l->world == 0 && (l->rank > 0 || l->init[0]))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--rank and --init need --world, which is not given; for example, three ranks on one machine "
                       "are started by --world 3 --rank 0 (then 1, 2) --init tcp://127.0.0.1:29500");
    if (l->world <= 1) return GX_OK;
    if (l->rank < 0 || !l->init[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--world %ld needs --rank (0 to %ld, a different one for each process) and --init "
                       "tcp://host:port (where rank 0 listens, the same for all)",
                       (long)l->world, (long)l->world - 1);
    if (told->world > 0 && (told->world != l->world || told->rank != l->rank))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--world %ld --rank %ld, but the environment says rank %d of %d (RANK, WORLD_SIZE, or Slurm's); "
                       "leave one of them out",
                       (long)l->world, (long)l->rank, told->rank, told->world);
    return GX_OK;
}

// Finds out which of several processes this is, if they were started without MPI: by the flags and the config file, or
// otherwise by the environment. r->world 0 or 1: it is the only one.
static GxStatus gx__launch_find_others(GxRendezvous *r, const gx__LaunchFlags *l, GxError *err)
{
    GxError of_environment = GX_ZERO;
    gx_rendezvous_environment(r, &of_environment);
    GX_TRY(gx__launch_check_by_hand(l, r, err));
    if (l->world > 1 || l->rank > 0) return gx_rendezvous_address(r, (int)l->rank, (int)l->world, l->init, err);
    return of_environment.code == GX_OK ? GX_OK
                                        : GX_FAIL(err, (GxStatus)of_environment.code, "%s", of_environment.message);
}

typedef enum {
    GX__LAUNCH_START_ALONE = 0,
    GX__LAUNCH_START_THREADS,
    GX__LAUNCH_START_MPI,
    GX__LAUNCH_START_TCP
} gx__LaunchStart;

// Decides how the ranks of this run are started. Refuses to start several processes that do not know of each other.
static GxStatus gx__launch_choose_start(gx__LaunchStart *start, const gx__LaunchFlags *l, GxRendezvous *r, GxError *err)
{
    const int started = gx_mpi_started();
    const char *others = "an MPI launcher";
    int has_mpi = 0;
#ifdef GX_WITH_MPI
    has_mpi = 1;
#endif
    *start = GX__LAUNCH_START_MPI;
    if (!has_mpi || started == 1 || !gx_mpi_is_offered()) {
        GX_TRY(gx__launch_find_others(r, l, err));
        *start = r->world > 1   ? GX__LAUNCH_START_TCP
                 : started > 1  ? GX__LAUNCH_START_MPI
                 : l->ranks > 1 ? GX__LAUNCH_START_THREADS
                                : GX__LAUNCH_START_ALONE;
    } else if (l->world > 1)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "an MPI launcher started %d ranks, but --world says %ld; leave out --world, --rank and --init",
                       started, (long)l->world);
    if (*start == GX__LAUNCH_START_MPI) GX_TRY(gx_mpi_check_start(err));
    if (*start == GX__LAUNCH_START_TCP) others = "somebody";
    if (l->ranks > 1 && (*start == GX__LAUNCH_START_MPI || *start == GX__LAUNCH_START_TCP))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s started %d ranks, and --ranks asks for %ld more in each; leave out --ranks, or say --ranks "
                       "1 if a --config file sets it",
                       others, *start == GX__LAUNCH_START_TCP ? r->world : started, (long)l->ranks);
    return GX_OK;
}

GxStatus gx_check_one_process(GxError *err)
{
    const char *world = getenv("RANK") ? getenv("WORLD_SIZE") : NULL; // torchrun's
    const int started = (int)gx_max(gx_mpi_started(), world ? atoi(world) : 1);
    if (started <= 1) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "a launcher (mpirun, srun, torchrun) says that this is one of %d processes, but this program runs "
                   "as a single process that uses all cores; start it without the launcher, or as one process (mpirun "
                   "-np 1, srun -n 1), or unset RANK and WORLD_SIZE",
                   started);
}

#if defined(_OPENMP) && defined(__linux__)
// 1: argv is the process's real command line. 0 in a test that makes one up, or under ld.so PROGRAM.
static int gx__launch_is_command_line(int argc, char **argv)
{
    FILE *f = fopen("/proc/self/cmdline", "r");
    int same = f != NULL;
    for (int i = 0; i < argc && same; i++)
        for (const char *c = argv[i]; (same = same && getc(f) == (unsigned char)*c) && *c; c++) {}
    same = same && getc(f) == EOF;
    if (f) fclose(f);
    return same;
}

// Executes the program again with threads that sleep while they wait. If that fails, they spin, and gx_warn_waiting
// warns.
static void gx__launch_wait_passively(int argc, char **argv)
{
    char path[4096] = "";
    if (gx_waiting_is_chosen() || !gx__launch_is_command_line(argc, argv)) return;
    if (setenv("OMP_WAIT_POLICY", "passive", 1) != 0 || setenv("GOMP_SPINCOUNT", GX_SPIN_TURNS, 1) != 0) return;
    gx_cores_unbind();
    fflush(NULL);
    if (readlink("/proc/self/exe", path, sizeof path - 1) > 0) execv(path, argv); // ps and top show the program's name
    execv("/proc/self/exe", argv); // the file was moved or removed: ps and top show "exe"
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
}
#else
static void gx__launch_wait_passively(int argc, char **argv) { (void)argc, (void)argv; }
#endif

// Called before CUDA starts, in runs of several ranks. With lazy loading (CUDA Programming Guide) the first launch of a
// kernel may wait until the card is idle, and a card is not idle while a collective on it waits for another rank. The
// host would then hang inside the driver, where it cannot notice ranks that died; if ranks are threads of one process,
// the other ranks would hang as well. So all kernels are loaded at the start, and for ranks that are threads NCCL
// connects a group when it is created.
static void gx__launch_prepare_cards(int are_threads)
{
#ifdef GX_WITH_CUDA
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (are_threads) setenv("NCCL_RUNTIME_CONNECT", "0", 0);
#else
    (void)are_threads;
#endif
}

static int gx__launch_print_start_error(const GxError *err)
{
    fprintf(stderr, "error: %s\n", err->message);
    return err->code == GX_ERR_ARGUMENT || err->code == GX_ERR_UNSUPPORTED ? 2 : 1;
}

static int gx__launch_ranks(GxRankMain *rank_main, int argc, char **argv)
{
    GxError err = GX_ZERO;
    GxContext g;
    GxComm comm;
    GxRendezvous r = GX_ZERO;
    gx__LaunchStart start = GX__LAUNCH_START_ALONE;
    const gx__LaunchFlags l = gx__launch_read_flags(argc, argv);
    r.timeout = l.timeout, r.log.write = gx__launch_log_waiting, r.log.user = &r;
    signal(SIGPIPE, SIG_IGN); // a closed pipe (| head) must not end a run
    signal(SIGXFSZ, SIG_IGN); // exceeding the file size limit makes write fail, which is reported with a path
    if (!l.is_wrong && gx__launch_choose_start(&start, &l, &r, &err) != GX_OK)
        return gx__launch_print_start_error(&err);
    if (start != GX__LAUNCH_START_ALONE) gx__launch_prepare_cards(start == GX__LAUNCH_START_THREADS);
    if (start == GX__LAUNCH_START_THREADS) return gx__launch_threads(rank_main, (int)l.ranks, argc, argv);
    if (start == GX__LAUNCH_START_MPI) gx_mpi_comm(&comm, &err);
    if (start == GX__LAUNCH_START_TCP) gx_tcp_comm(&comm, &r, &err);
    if (err.code != GX_OK) return gx__launch_print_start_error(&err);
    if (start == GX__LAUNCH_START_TCP && l.world > 1 && l.rank > 0) // started by hand: somebody looks at this terminal
        fprintf(stderr, "rank %d: connected to the other rank%s; rank 0 prints what happens\n", comm.rank,
                gx_text_s(comm.world - 1));
    gx__launch_context_init(&g, start == GX__LAUNCH_START_ALONE ? NULL : &comm);
    const int status = gx__launch_run_rank(rank_main, &g, argc, argv);
    if (start == GX__LAUNCH_START_TCP && comm.state) comm.engine->close(&comm); // after an abort: frees its memory
    return status;
}

// If stdin, stdout or stderr is closed, the next file or socket to be opened would get its descriptor, and the messages
// meant for it. So /dev/null is opened in its place.
static void gx__launch_open_standard_streams(void)
{
    int fd = 0;
    while (fd >= 0 && fd <= 2) fd = open("/dev/null", O_RDWR);
    if (fd > 2) close(fd);
}

static int gx__launch_is_unread(void) // stdout is a pipe or a socket whose reader is gone
{
    struct pollfd out = {1, 0, 0};
    return poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
}

int gx_exit_status(int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) GX_FAIL(&gx__launch_unheard, GX_ERR_IO, GX__LAUNCH_UNHEARD);
    if (gx_error_code(&gx__launch_unheard) == GX_OK) return status;
    if (gx__launch_is_unread()) return status ? status : 128 + SIGPIPE;
    fprintf(stderr, "error: %s\n", gx__launch_unheard.message);
    return status ? status : 1;
}

int gx_launch(GxRankMain *rank_main, int argc, char **argv)
{
    gx__launch_open_standard_streams();
    gx__launch_wait_passively(argc, argv);
    return gx_exit_status(gx__launch_ranks(rank_main, argc, argv));
}
#endif
