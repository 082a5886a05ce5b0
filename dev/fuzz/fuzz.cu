// dev/fuzz/fuzz.cu: hands the library files and arguments that somebody hostile, or a broken disk, could have made
// (docs/fuzzing.md). make fuzz builds it with AddressSanitizer and UBSan and runs all targets; by hand:
//
//     fuzz                        what targets there are
//     fuzz safetensors --seconds 600 --seed 7
//     fuzz all --seconds 2        every target; the last line is "N passed, N failed, N skipped"
//     fuzz safetensors --replay FILE
//     fuzz safetensors --minimise FILE     FILE.min: fewer bytes that fail in the same way
//
// Cases run inside of a child process, one after the other. A child that dies, or takes longer than --limit seconds for
// a case, is a finding: the case is made again (it is a function of target, seed and number), saved, and another child
// goes on behind it.
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include "targets.h"

// AddressSanitizer's, where it is compiled in.
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=1024:hard_rss_limit_mb=3000:detect_leaks=1:handle_abort="
           "0";
}

enum { FINDINGS_MOST = 5, REPORT_LINES = 25 };

static struct {
    double seconds, limit; // of a target; of a case
    uint64_t seed;
    const char *findings; // folder, absolute
    char folder[GX_PATH]; // temporary: the working folder
} run;

static struct { // of the target
    const Target *target;
    Case seed[SEEDS_MOST];
    int seeds;
} fuzz;

typedef struct { // shared with the child
    volatile int64_t number, accepted, refused;
    volatile int stop, interrupted;
} Progress;
static Progress *progress;

static void sleep_ms(int ms)
{
    const struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

// ---- a case --------------------------------------------------------------------------------------------------------

static Case make_case(int64_t number)
{
    Random r = {gx_hash(gx_hash(GX_HASH_START, &run.seed, sizeof run.seed), &number, sizeof number)};
    Case c = case_copy(&fuzz.seed[below(&r, fuzz.seeds)]);
    if (number >= fuzz.seeds) mutate_case(&r, &c, &fuzz.seed[below(&r, fuzz.seeds)]);
    else case_free(&c), c = case_copy(&fuzz.seed[number]); // the sound ones first
    return c;
}

static void run_case(const Case *c)
{
    const int fd = dup(1);
    const size_t held = __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
    close(fd);
    if (fuzz.target->run(c) == ACCEPTED) progress->accepted++;
    else progress->refused++;
    const int next = dup(1);
    close(next);
    EXPECT(fd == next, "a file was left open: the next descriptor was %d and is %d", fd, next);
    if (__sanitizer_get_current_allocated_bytes && __sanitizer_get_current_allocated_bytes() > held)
        EXPECT(!__lsan_do_recoverable_leak_check(), "memory was lost");
}

// ---- children ------------------------------------------------------------------------------------------------------

static void on_interrupt(int number)
{
    (void)number;
    progress->interrupted = progress->stop = 1;
}

// A child whose stdout goes nowhere, and whose stderr into a file.
static pid_t start_child(void)
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN); // the parent says when to stop
    const int nowhere = open("/dev/null", O_RDWR),
              said = open("stderr.txt", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    dup2(nowhere, 0), dup2(nowhere, 1), dup2(said, 2);
    close(nowhere), close(said);
    return 0;
}

static void child_run(int64_t first)
{
    for (int64_t number = first; !progress->stop; number++) {
        progress->number = number;
        if (ftruncate(2, 0)) abort(); // what a case said before is of no interest
        Case c = make_case(number);
        run_case(&c);
        case_free(&c);
    }
    _exit(0);
}

enum { RAN = 0, TOO_LONG = -1000 }; // or a signal as -N, or an exit status
static int status_of(int raw) { return WIFSIGNALED(raw) ? -WTERMSIG(raw) : WEXITSTATUS(raw); }

static int kill_child(pid_t pid)
{
    int raw;
    kill(pid, SIGKILL);
    waitpid(pid, &raw, 0);
    return TOO_LONG;
}

// Until the time is over, or the child ends.
static int watch_child(pid_t pid, double until)
{
    int raw;
    int64_t number = -1;
    double since = gx_seconds();
    for (;;) {
        if (waitpid(pid, &raw, WNOHANG) == pid) return status_of(raw);
        const double now = gx_seconds();
        if (now > until) progress->stop = 1;
        if (progress->number != number) number = progress->number, since = now;
        else if (now - since > run.limit) return kill_child(pid);
        sleep_ms(10);
    }
}

// One case alone, in a child.
static int try_case(const Case *c, double limit)
{
    const pid_t pid = start_child();
    if (pid == 0) {
        run_case(c);
        _exit(0);
    }
    int raw;
    for (const double since = gx_seconds(); gx_seconds() - since < limit; sleep_ms(2))
        if (waitpid(pid, &raw, WNOHANG) == pid) return status_of(raw);
    return kill_child(pid);
}

// ---- findings ------------------------------------------------------------------------------------------------------

static int is_telling(const char *line)
{
    return strstr(line, "fuzz: ") || strstr(line, "runtime error") || strstr(line, "ERROR: ") ||
           strstr(line, "SUMMARY");
}

static void print_said(void)
{
    char line[2000];
    FILE *f = fopen("stderr.txt", "r");
    int lines = 0;
    while (f && fgets(line, sizeof line, f) && lines < REPORT_LINES)
        if (lines || is_telling(line))
            printf("    %.300s%s", line, strchr(line, '\n') && strlen(line) <= 300 ? "" : "\n"), lines++;
    if (f) fclose(f);
}

// How it failed, to compare: "SUMMARY: AddressSanitizer: heap-buffer-overflow safetensors.h:300 in gx__st_load".
static void read_cause(char cause[120], int status)
{
    char line[2000];
    FILE *f = fopen("stderr.txt", "r");
    snprintf(cause, 120, "status %d", status);
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, "fuzz: ") || strstr(line, "SUMMARY") || strstr(line, "runtime error")) {
            const char *at = strstr(line, "fuzz: ");
            snprintf(cause, 120, "%.*s", at ? 32 : 119, at ? at : line);
            break;
        }
    if (f) fclose(f);
}

static void save_finding(int64_t number, int status)
{
    char path[GX_PATH + 100];
    Case c = make_case(number);
    Bytes text = case_write(&c);
    GxError e = GX_ZERO;
    gx_folder_make(run.findings, &e);
    snprintf(path, sizeof path, "%s/%s-%llu-%ld", run.findings, fuzz.target->name, (unsigned long long)run.seed,
             (long)number);
    put(path, text.p, text.n);
    if (status == TOO_LONG)
        printf("FINDING %s: case %ld took longer than %g s\n", fuzz.target->name, (long)number, run.limit);
    else
        printf("FINDING %s: case %ld ended with %s %d\n", fuzz.target->name, (long)number,
               status < 0 ? "signal" : "status", abs(status));
    if (status != TOO_LONG) print_said();
    printf("    replay: fuzz %s --replay %s\n", fuzz.target->name, path);
    free(text.p);
    case_free(&c);
}

// Cuts pieces out of its parts as long as it fails in the same way.
static void minimise(Case *c, double limit)
{
    char cause[120], other[120];
    const int status = try_case(c, limit);
    read_cause(cause, status);
    if (status == RAN) printf("it does not fail\n");
    for (int i = 0; i < c->n && status != RAN; i++)
        for (int64_t piece = c->part[i].bytes.n; piece > 0; piece /= 2)
            for (int64_t at = 0; at < c->part[i].bytes.n;) {
                Case less = case_copy(c);
                bytes_splice(&less.part[i].bytes, at, gx_min(piece, c->part[i].bytes.n - at), NULL, 0);
                const int now = try_case(&less, limit);
                read_cause(other, now);
                if (now == status && !strcmp(cause, other)) {
                    case_free(c);
                    *c = less;
                } else {
                    case_free(&less);
                    at += piece;
                }
            }
    printf("%s\n", cause);
}

// ---- a target ------------------------------------------------------------------------------------------------------

static void open_target(const Target *t)
{
    for (int i = 0; i < fuzz.seeds; i++) case_free(&fuzz.seed[i]);
    memset(&fuzz, 0, sizeof fuzz);
    fuzz.target = t;
    fuzz.seeds = t->make(fuzz.seed);
}

// 1: no findings.
static int run_target(const Target *t)
{
    open_target(t);
    progress->number = progress->accepted = progress->refused = 0;
    progress->stop = progress->interrupted;
    const double began = gx_seconds(), until = began + run.seconds;
    int findings = 0;
    int64_t first = 0;
    while (!progress->stop && findings < FINDINGS_MOST) {
        const pid_t pid = start_child();
        if (pid == 0) child_run(first);
        const int status = watch_child(pid, until);
        if (status == RAN) break;
        save_finding(progress->number, status);
        findings++;
        first = progress->number + 1;
    }
    const double seconds = gx_seconds() - began;
    const int64_t cases = progress->accepted + progress->refused + findings;
    const int both = progress->accepted > 0 && (progress->refused > 0 || cases < 50); // the first are sound
    printf("%s fuzz_%s: %ld cases in %.1f s (%.0f/s), %ld accepted, %ld refused, seed %llu%s%s\n",
           findings || !both ? "FAIL" : "ok  ", t->name, (long)cases, seconds, (double)cases / seconds,
           (long)progress->accepted, (long)progress->refused, (unsigned long long)run.seed,
           findings ? ": see the findings above" : "", !findings && !both ? ": expected some of both" : "");
    fflush(stdout);
    return !findings && both;
}

static int replay(const Target *t, const char *path, int smaller)
{
    char *text, full[GX_PATH + 8];
    int64_t n;
    Case c;
    GxError e = GX_ZERO;
    open_target(t);
    if (gx_file_read(path, INT64_C(64) << 20, &text, &n, &e) != GX_OK || !case_read(&c, text, n)) {
        fprintf(stderr, "fuzz: %s\n", e.code ? e.message : "this is no saved case");
        return 2;
    }
    free(text);
    if (smaller) {
        minimise(&c, run.limit);
        Bytes less = case_write(&c);
        snprintf(full, sizeof full, "%s.min", path);
        put(full, less.p, less.n);
        printf("%s: %ld bytes of %ld\n", full, (long)less.n, (long)n);
        free(less.p);
        case_free(&c);
        return 0;
    }
    const int status = try_case(&c, run.limit);
    case_free(&c);
    if (status == RAN) printf("ok   it ran: %s\n", progress->accepted ? "accepted" : "refused");
    else
        printf("FAIL %s %d\n", status == TOO_LONG ? "it takes longer than --limit" : "it ended with", status),
            print_said();
    return status != RAN;
}

// ---- the program ---------------------------------------------------------------------------------------------------

static int usage(void)
{
    printf("fuzz TARGET|all [--seconds 10] [--seed 1] [--limit 20] [--findings build/findings] [--replay FILE | "
           "--minimise FILE]\n");
    for (int i = 0; i < TARGETS; i++) printf("  %-12s %s\n", targets[i].name, targets[i].what);
    return 2;
}

// The corpus comes from a child, so that no thread of the library is alive when others are forked.
static int open_folder(void)
{
    const char *const places[] = {"/dev/shm", getenv("TMPDIR"), "/tmp"};
    for (int i = 0; i < 3; i++) {
        snprintf(run.folder, sizeof run.folder, "%s/galaxy_fuzz_XXXXXX", places[i] ? places[i] : "");
        if (places[i] && mkdtemp(run.folder) && !chdir(run.folder)) break;
        if (i == 2) return 0;
    }
    const pid_t pid = start_child();
    int raw;
    if (pid == 0) _exit(!make_corpus());
    waitpid(pid, &raw, 0);
    if (status_of(raw) == 0) return 1;
    printf("FAIL the tiny run that cases are made from: status %d\n", status_of(raw));
    print_said();
    return 0;
}

static int close_folder(int status)
{
    GxError e = GX_ZERO;
    if (chdir("/") || gx_folder_remove(run.folder, &e) != GX_OK) printf("%s stays: %s\n", run.folder, e.message);
    return status;
}

static int fuzz_all(const char *name)
{
    int passed = 0, failed = 0;
    for (int i = 0; i < TARGETS && !progress->interrupted; i++)
        if (!strcmp(name, "all") || !strcmp(name, targets[i].name)) *(run_target(&targets[i]) ? &passed : &failed) += 1;
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}

int main(int argc, char **argv)
{
    const char *file = NULL, *name = argc > 1 ? argv[1] : "", *findings = "build/findings";
    const Target *target = NULL;
    int smaller = 0, is_all = !strcmp(name, "all");
    static char full_file[GX_PATH], full_findings[GX_PATH], here[GX_PATH / 2];
    run.seconds = 10, run.limit = 20, run.seed = 1;
    for (int i = 0; i < TARGETS; i++)
        if (!strcmp(name, targets[i].name)) target = &targets[i];
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seconds")) run.seconds = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--seed")) run.seed = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--limit")) run.limit = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--findings")) findings = argv[i + 1];
        else if (!strcmp(argv[i], "--replay") || !strcmp(argv[i], "--minimise"))
            file = argv[i + 1], smaller = !strcmp(argv[i], "--minimise");
        else return usage();
    }
    if ((!target && !is_all) || argc % 2 || (file && !target) || !getcwd(here, sizeof here)) return usage();
    snprintf(full_findings, sizeof full_findings, "%s%s%s", findings[0] == '/' ? "" : here,
             findings[0] == '/' ? "" : "/", findings);
    if (file)
        snprintf(full_file, sizeof full_file, "%s%s%s", file[0] == '/' ? "" : here, file[0] == '/' ? "" : "/", file);
    run.findings = full_findings;
    progress = (Progress *)mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    signal(SIGINT, on_interrupt), signal(SIGTERM, on_interrupt);
    learn_words();
    if (progress == MAP_FAILED || !open_folder()) {
        printf("0 passed, 1 failed, 0 skipped\n");
        return close_folder(1);
    }
    return close_folder(file ? replay(target, full_file, smaller) : fuzz_all(name));
}
