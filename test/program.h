// test/program.h: runs the built training programs as children, as their users meet them: output caught, a time limit
// on everything.
//
//     GX_TRAIN_LLAMA         train_llama (default: ./train_llama); train_llama_tp and others lie beside it
//     GX_TRAIN_LLAMA_NOMPI   one that was built with MPI=0, for the test that it refuses mpirun
//     GX_KEEP=1              leaves the temporary folder, for a look at what a failed test left behind
//     TMPDIR                 where that folder is made (default: /dev/shm where it has 4 GB left, since a disk that
//                            others write to answers each fsync late; else /tmp)
//
// Everything is written below one temporary folder, which is the working folder while the tests run: text,
// configurations, outputs. The text is made here (sentences of a small grammar), the models are tiny. A child that does
// not end in time is killed, and fails its test.
#ifndef GX_TEST_PROGRAM_H
#define GX_TEST_PROGRAM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memmem, strtok_r
#endif
#include "../galaxy/io/folder.h"
#include "../galaxy/io/safetensors.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#pragma GCC diagnostic ignored "-Wunused-function" // no test program uses all of this

static const double LIMIT = 60;          // seconds for a child, on a busy machine
enum { TEXT_BYTES = 60000, STEPS = 20 }; // STEPS: of a run that is interrupted

enum { TEST_PATH = 1024 }; // with room for flags behind it in a command line
static char program[TEST_PATH], program_nompi[TEST_PATH], repository[TEST_PATH], folder[TEST_PATH / 2];
static int has_mpi, is_sanitized;

// The program of this name beside the one that was given, from now on. 0, and a failed check: there is none.
static int use_program(const char *name)
{
    char *slash = strrchr(program, '/');
    snprintf(slash + 1, sizeof program - (size_t)(slash + 1 - program), "%s", name);
    return CHECK(access(program, X_OK) == 0, "there is no program %s", program);
}

// ---- what sanitizers are spared ------------------------------------------------------------------------------------

// A sanitized program is slow, and shows in some cases of a list what it shows in all.
static int is_brief(void) { return is_sanitized && !test_long(); }

// A test of numbers, which sanitizers do not look at, on a way through the programs that other tests go as well: where
// the programs are sanitized, it is left out, but for GX_TEST_LONG=1.
#define TEST_UNSANITIZED(test_name) TEST_ENTRY(test_name, 1)

static void leave_out_unsanitized(void)
{
    int n = 0;
    for (Test **t = &test_state.first; *t;)
        if ((*t)->is_unsanitized) *t = (*t)->next, n++;
        else t = &(*t)->next;
    if (n) printf("     %d tests of numbers are left out under a sanitizer; GX_TEST_LONG=1 runs them\n", n);
}

// ---- children ------------------------------------------------------------------------------------------------------

enum { TIMED_OUT = -1000 };

static struct {
    pid_t pid;
    int pipe[2];   // the reading ends of its stdout and stderr; -1: closed
    char *text[2]; // what came, '\0' at the end
    size_t bytes[2];
    int status; // exit status; -N: killed by signal N; TIMED_OUT
    double seconds;
    long peak_kb; // of its memory, or of this program's when it was started, if that was more (ru_maxrss outlives exec)
    double started;
} child;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

static const char *out(void) { return child.text[0] ? child.text[0] : ""; }
static const char *err(void) { return child.text[1] ? child.text[1] : ""; }

// "a b  c" becomes {"a", "b", "c", NULL}; words longer than the list are dropped. `line` is cut up.
static int cut_words(char *line, char **word, int most)
{
    int n = 0;
    for (char *w = strtok(line, " "); w && n < most - 1; w = strtok(NULL, " ")) word[n++] = w;
    word[n] = NULL;
    return n;
}

// Starts a command line. file_limit: largest file that it may write, in bytes; 0: any.
static void start_line(const char *line, long file_limit)
{
    char copy[4096], *word[200];
    int ends[2][2];
    snprintf(copy, sizeof copy, "%s", line);
    cut_words(copy, word, 200);
    for (int i = 0; i < 2; i++) {
        free(child.text[i]);
        child.text[i] = NULL;
        child.bytes[i] = 0;
        if (pipe(ends[i])) abort();
        fcntl(ends[i][0], F_SETFD, FD_CLOEXEC);
        child.pipe[i] = ends[i][0];
    }
    fflush(stdout);
    child.started = now();
    child.pid = fork();
    if (child.pid == 0) {
        struct rlimit limit = {(rlim_t)file_limit, RLIM_INFINITY}, no_core = {0, 0};
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_CORE, &no_core);
        if (file_limit) setrlimit(RLIMIT_FSIZE, &limit);
        dup2(ends[0][1], 1);
        dup2(ends[1][1], 2);
        close(ends[0][1]);
        close(ends[1][1]);
        if (!strcmp(word[0], "mpirun")) setenv("ASAN_OPTIONS", "detect_leaks=0", 1); // Open MPI leaks
        execvp(word[0], word);
        fprintf(stderr, "cannot run %s: %s\n", word[0], strerror(errno));
        _exit(127);
    }
    for (int i = 0; i < 2; i++) close(ends[i][1]);
}

static void take_output(int i)
{
    char part[4096];
    ssize_t n = read(child.pipe[i], part, sizeof part);
    if (n <= 0) {
        close(child.pipe[i]);
        child.pipe[i] = -1;
        return;
    }
    child.text[i] = (char *)realloc(child.text[i], child.bytes[i] + (size_t)n + 1);
    memcpy(child.text[i] + child.bytes[i], part, (size_t)n);
    child.bytes[i] += (size_t)n;
    child.text[i][child.bytes[i]] = 0;
}

static void allocate_outputs(int ms) // what it has said, or says within so many milliseconds
{
    struct pollfd p[2] = {{child.pipe[0], POLLIN, 0}, {child.pipe[1], POLLIN, 0}}; // poll leaves out -1
    if (poll(p, 2, ms) <= 0) return;
    for (int i = 0; i < 2; i++)
        if (p[i].revents) take_output(i);
}

// Waits until the running child has written this to stderr; 0: it does not.
__attribute__((unused)) static int wait_to_say(const char *words)
{
    for (double until = now() + LIMIT; now() < until && child.pipe[1] >= 0;) {
        if (strstr(err(), words)) return 1;
        allocate_outputs(100);
    }
    return strstr(err(), words) != NULL;
}

// What a sanitizer reports is wrong, whatever the test expects: a refused run ends with an error's status anyway.
static void check_unreported(void)
{
    const char *at = strstr(err(), "Sanitizer");
    if (!at) at = strstr(err(), "runtime error: ");
    if (at) CHECK(0, "status %d; a sanitizer reports: %.600s", child.status, at);
}

// Waits for the child; gives its status.
static int finish_within(double limit)
{
    struct rusage used;
    int raw = 0;
    pid_t ended = 0;
    memset(&used, 0, sizeof used);
    while (now() - child.started < limit && (child.pipe[0] >= 0 || child.pipe[1] >= 0)) allocate_outputs(100);
    while (now() - child.started < limit && (ended = wait4(child.pid, &raw, WNOHANG, &used)) == 0) sleep_ms(2);
    child.status = ended == 0 ? TIMED_OUT : WIFSIGNALED(raw) ? -WTERMSIG(raw) : WEXITSTATUS(raw);
    if (ended == 0) {
        kill(-child.pid, SIGTERM); // mpirun ends its ranks
        sleep_ms(1500);
        kill(-child.pid, SIGKILL);
        wait4(child.pid, &raw, 0, &used);
    }
    for (int i = 0; i < 2; i++)
        if (child.pipe[i] >= 0) close(child.pipe[i]);
    child.seconds = now() - child.started;
    child.peak_kb = used.ru_maxrss;
    child.pid = 0;
    check_unreported();
    return child.status;
}
static int finish(void) { return finish_within(LIMIT); }

// The program with the tiny model's configuration and more flags; "…" of mpirun(2, "…").
__attribute__((format(printf, 1, 2))) static void start(const char *format, ...)
{
    char flags[2000], line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof flags, format, args);
    va_end(args);
    snprintf(line, sizeof line, "%s --config tiny.json %s", program, flags);
    start_line(line, 0);
}
__attribute__((format(printf, 1, 2))) static int run(const char *format, ...)
{
    char flags[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof flags, format, args);
    va_end(args);
    start("%s", flags);
    return finish();
}
static int run_limited(long file_limit, const char *flags)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config tiny.json %s", program, flags);
    start_line(line, file_limit);
    return finish();
}
static void start_mpi(int ranks, const char *flags)
{
    char line[4096];
    snprintf(line, sizeof line, "mpirun -np %d %s --config tiny.json %s", ranks, program, flags);
    start_line(line, 0);
}
static int run_mpi(int ranks, const char *flags)
{
    start_mpi(ranks, flags);
    return finish();
}

#define NEED_MPI()                                                                                                     \
    do {                                                                                                               \
        if (system("command -v mpirun >/dev/null 2>&1")) SKIP("there is no mpirun here");                              \
        if (!has_mpi) SKIP("%.120s was built without MPI", program);                                                   \
    } while (0)

// Said right after a run that has to end well.
#define CHECK_RAN(ended)                                                                                               \
    do {                                                                                                               \
        const int ran = (ended) == 0; /* before its output is looked at */                                             \
        CHECK(ran, "status %d after %.1f s; it said: %.600s", child.status, child.seconds, err());                     \
    } while (0)

// Programs get the environment that a user has who says nothing of how OpenMP's threads wait (yes), or this one's again
// (no). OpenMP says at each start of a program what it has read (check_openmp_starts).
static void say_nothing_of_waiting(int yes)
{
    static const char *const variables[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
    static char kept[2][40];
    for (int i = 0; i < 2; i++) {
        const char *value = getenv(variables[i]);
        if (yes) snprintf(kept[i], sizeof kept[i], "%s", value ? value : "");
        if (yes) unsetenv(variables[i]);
        else if (kept[i][0]) setenv(variables[i], kept[i], 1);
    }
    if (yes) setenv("OMP_DISPLAY_ENV", "true", 1);
    else unsetenv("OMP_DISPLAY_ENV");
}

// libgomp says it when a program starts, libomp when threads are first needed.
static void check_openmp_starts(const char *what, const char *text, int expected)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, "DISPLAY ENVIRONMENT BEGIN")) != NULL; at++) n++;
#ifdef __clang__
    expected = n;
#endif
    CHECK(n == expected, "%s: started %d times, not %d", what, n, expected);
}

// ---- what a run leaves behind --------------------------------------------------------------------------------------

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
    char line[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return system(line);
}

static int exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static char *read_text(const char *path)
{
    char *text = NULL;
    int64_t bytes;
    GxError e = GX_ZERO;
    if (gx_file_read(path, 1 << 28, &text, &bytes, &e) != GX_OK) text = NULL;
    return text ? text : (char *)calloc(1, 1);
}

static int same_file(const char *a, const char *b)
{
    uint64_t hash[2] = {1, 2};
    int64_t bytes[2];
    GxError e = GX_ZERO;
    if (!CHECK(gx_file_hash(a, &hash[0], &bytes[0], &e) == GX_OK && gx_file_hash(b, &hash[1], &bytes[1], &e) == GX_OK,
               "%s", e.message))
        return 0;
    return hash[0] == hash[1] && bytes[0] == bytes[1];
}

// The name of a checkpoint's file of weights.
static const char *weights_of(const char *checkpoint)
{
    char path[GX_PATH + 40];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", checkpoint);
    return exists(path) ? "adapter_model.safetensors" : "model.safetensors";
}

// Weights and optimizer state of two checkpoints, bit for bit.
static void check_same_checkpoint(const char *a, const char *b)
{
    const char *const files[] = {weights_of(a), "optimizer.safetensors"};
    for (int i = 0; i < 2; i++) {
        char x[GX_PATH], y[GX_PATH];
        snprintf(x, sizeof x, "%s/%s", a, files[i]);
        snprintf(y, sizeof y, "%s/%s", b, files[i]);
        CHECK(same_file(x, y), "%s and %s differ", x, y);
    }
}

static void check_whole(const char *path)
{
    GxError e = GX_ZERO;
    CHECK(gx_folder_verify(path, 1, &e) == GX_OK, "%s", e.message);
}

typedef struct {
    int steps, evals, baselines, bad; // lines of each kind; lines that are none
    int step[200];
    double loss[200], grad_norm[200], bits, bigram;
    int skipped, cards; // steps that say what is in use on the card
    double card_mb[200];
} Log;

static int has_keys(const GxJson *line, const char *keys) // exactly these, separated by spaces
{
    char copy[200], *word[20];
    snprintf(copy, sizeof copy, "%s", keys);
    int n = cut_words(copy, word, 20), found = 0;
    for (int i = 0; i < n; i++) found += gx_json_get(line, word[i]) != NULL;
    return found == n && gx_json_size(line) == n;
}

static void log_line(Log *l, const GxJson *line)
{
    char keys[100], keys_on_card[sizeof keys + 8];
    snprintf(keys, sizeof keys, "step loss grad_norm lr epoch tokens_per_s gflops memory_mb skipped%s",
             gx_json_get(line, "padding") ? " padding" : ""); // which is there if there is some
    snprintf(keys_on_card, sizeof keys_on_card, "%s card_mb", keys);
    const int on_card = has_keys(line, keys_on_card);
    if ((on_card || has_keys(line, keys)) && l->steps < 200) {
        if (on_card) l->card_mb[l->cards++] = gx_json_double(gx_json_get(line, "card_mb"));
        l->step[l->steps] = (int)gx_json_int(gx_json_get(line, "step"));
        l->loss[l->steps] = gx_json_double(gx_json_get(line, "loss"));
        l->grad_norm[l->steps++] = gx_json_double(gx_json_get(line, "grad_norm"));
        l->skipped += gx_json_bool(gx_json_get(line, "skipped"));
    } else if (has_keys(line, "step eval_loss eval_bits_per_byte eval_tokens epoch")) {
        l->bits = gx_json_double(gx_json_get(line, "eval_bits_per_byte"));
        l->evals++;
    } else if (has_keys(line, "bigram_bits_per_byte")) {
        l->bigram = gx_json_double(gx_json_get(line, "bigram_bits_per_byte"));
        l->baselines++;
    } else l->bad++;
}

static Log read_log(const char *output_dir)
{
    Log l;
    char path[GX_PATH];
    memset(&l, 0, sizeof l);
    snprintf(path, sizeof path, "%s/log.jsonl", output_dir);
    char *text = read_text(path), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        GxJson *json = NULL;
        GxError e = GX_ZERO;
        if (!CHECK(gx_json_parse(&json, line, (int64_t)strlen(line), path, &e) == GX_OK, "%s", e.message)) continue;
        log_line(&l, json);
        gx_json_free(json);
    }
    free(text);
    return l;
}

static void check_log_steps(const char *output_dir, int steps) // 1, 2, ..., steps, each once
{
    Log l = read_log(output_dir);
    CHECK(l.steps == steps && l.bad == 0 && l.baselines == 1, "%s: %d of %d steps, %d unknown lines, %d baselines",
          output_dir, l.steps, steps, l.bad, l.baselines);
    for (int i = 0; i < l.steps && i < steps; i++)
        CHECK(l.step[i] == i + 1, "%s: line %d is of step %d", output_dir, i + 1, l.step[i]);
}

// The longest chain of roundings behind a loss or a norm of the tiny model: a sum per matrix product and norm of both
// layers and the head, forward and backward; the attention's keys; the tokens of a window; `steps` updates on top.
static double tiny_depth(int steps)
{
    const double H = 32, F = 64, head = 8, T = 32, V = 256, layer = 4 * H + F + H + head + T, samples = 8;
    return (2 * (2 * layer + H + V) + samples * T) * steps;
}

static void check_close_series(const char *what, const double *a, const double *b, int n, int each_adds)
{
    for (int i = 0; i < n; i++) {
        float x = (float)a[i];
        test_close(what, &x, &b[i], 1, test_bound(tiny_depth(each_adds * (i + 1))), 0);
    }
}

// All tensors of a safetensors file, one after the other; free() it.
static float *read_floats(const char *path, long *n)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    *n = 0;
    if (!CHECK(gx_safetensors_open(&s, path, &e) == GX_OK, "%s", e.message)) return NULL;
    for (int i = 0; i < s.n; i++) *n += (long)s.entry[i].elements;
    float *x = (float *)malloc((size_t)(*n + 1) * sizeof *x), *at = x;
    for (int i = 0; i < s.n; at += s.entry[i++].elements)
        CHECK(gx_safetensors_read(&s, &s.entry[i], 0, s.entry[i].elements, at, &e) == GX_OK, "%s", e.message);
    gx_safetensors_close(&s);
    return x;
}

static long count_not_finite(const char *path)
{
    long n, bad = 0;
    float *x = read_floats(path, &n);
    for (long i = 0; i < n; i++) bad += !isfinite(x[i]);
    free(x);
    return bad;
}

// Validation after every step, of a quarter of the text, makes steps slow enough to be interrupted; it changes nothing
// in what is trained.
#define SLOW "--validation_fraction 0.5 --max_eval_samples 200"

// A validation of 23,000 samples, each a row of its own: most of a minute.
#define LONG_VALIDATION                                                                                                \
    "--train_data long.txt --validation_fraction 0.5 --seq_len 256 --hidden_size 64 --micro_batch_size 1 "             \
    "--eval_steps 1 --max_eval_samples 0"
static void write_long_text(void) { shell("for i in $(seq 200); do cat text.txt; done > long.txt"); }

static int wait_for(const char *path, const char *words) // NULL: that it exists
{
    for (double until = now() + LIMIT; now() < until; sleep_ms(1)) {
        if (!exists(path)) continue;
        if (!words) return 1;
        char *text = read_text(path);
        int there = strstr(text, words) != NULL;
        free(text);
        if (there) return 1;
    }
    return 0;
}

typedef struct {
    const char *name, *flags;
    int signal;
} Interruption;

static void begin_run(const Interruption *c, const char *output_dir, const char *more)
{
    start("--max_steps %d --save_steps 5 --save_total_limit 0 --gradient_accumulation_steps 2 --output_dir %s " SLOW
          " %s %s",
          STEPS, output_dir, c->flags, more);
}

static void check_interrupted(const Interruption *c, const char *broken)
{
    char path[GX_PATH];
    if (c->signal == SIGKILL) {
        snprintf(path, sizeof path, "%s/checkpoint-5", broken);
        CHECK(wait_for(path, NULL), "%s: no checkpoint came", c->name);
    }
    snprintf(path, sizeof path, "%s/log.jsonl",
             broken); // beyond the checkpoint: lines that the resumed run has to drop
    CHECK(wait_for(path, "\"step\": 7, "), "%s: step 7 did not come", c->name);
    kill(child.pid, c->signal);
    int status = finish();
    if (c->signal == SIGKILL) {
        CHECK(status == -SIGKILL, "%s: it ended with %d before it could be killed: %s", c->name, status, err());
        return;
    }
    CHECK(status == 128 + c->signal, "%s: status %d; it said %s", c->name, status, err());
    const char *last = strrchr(err(), '\n');
    while (last && last > err() && last[-1] != '\n') last--; // the beginning of the last line
    CHECK(last && strstr(last, "--resume auto"), "%s: the last words were %s", c->name, err());
    CHECK(!strstr(out(), "done: ") && strstr(out(), "\nloss curve: "), "%s: it says it is done: %s", c->name, out());
}

// The run, whole; interrupted and resumed: the same losses, weights and moments, bit for bit.
static void check_resume(const Interruption *c)
{
    char whole[100], broken[100], a[GX_PATH], b[GX_PATH];
    snprintf(whole, sizeof whole, "whole_%s", c->name);
    snprintf(broken, sizeof broken, "broken_%s", c->name);
    begin_run(c, whole, "--eval_steps 0");
    CHECK_RAN(finish());
    begin_run(c, broken, "--eval_steps 1");
    check_interrupted(c, broken);
    begin_run(c, broken, "--eval_steps 0 --resume auto");
    CHECK_RAN(finish());
    CHECK(strstr(out(), "resumed from"), "%s: it began anew: %s", c->name, out());
    snprintf(a, sizeof a, "%s/checkpoint-%d", whole, STEPS);
    snprintf(b, sizeof b, "%s/checkpoint-%d", broken, STEPS);
    check_same_checkpoint(a, b);
    check_log_steps(broken, STEPS);
    Log l = read_log(whole), m = read_log(broken);
    for (int s = 0; s < l.steps && s < m.steps; s++)
        CHECK(l.loss[s] == m.loss[s], "%s: step %d has loss %.9g and %.9g", c->name, s + 1, l.loss[s], m.loss[s]);
}

// Every tensor of `after` is `factor` times that of `before`.
static void check_scaled(const char *before, const char *after, const char *file, float factor)
{
    char a[GX_PATH], b[GX_PATH];
    long n, m, wrong = 0;
    snprintf(a, sizeof a, "%s/%s", before, file);
    snprintf(b, sizeof b, "%s/%s", after, file);
    float *x = read_floats(a, &n), *y = read_floats(b, &m);
    for (long i = 0; i < n && n == m; i++) wrong += y[i] != factor * x[i] && fabsf(x[i]) > 1e-30f;
    CHECK(x && y && n == m && wrong == 0, "%s: %ld of %ld values are not %g times those of %s", b, wrong, n, factor, a);
    free(x);
    free(y);
}

typedef struct {
    const char *name, *optimizer, *save_program, *save, *load_program, *load;
    int mpi; // ranks that load; 0: as flags say
} Topology;

// One more step on another topology with learning rate 0, gradients clipped to nothing and decays of 1/2 leaves the
// weights as they were and halves the moments exactly: so what was loaded can be read off.
static void check_topology(const Topology *c)
{
    char flags[1000], a[GX_PATH], b[GX_PATH];
    snprintf(a, sizeof a, "topology_%s/checkpoint-3", c->name);
    snprintf(b, sizeof b, "topology_%s/checkpoint-4", c->name);
    if (!use_program(c->save_program)) return;
    CHECK_RAN(run("--output_dir topology_%s --max_steps 3 --optimizer %s %s", c->name, c->optimizer, c->save));
    snprintf(flags, sizeof flags,
             "--output_dir topology_%s --resume auto --max_steps 4 --optimizer %s %s --learning_rate 0 --max_grad_norm "
             "1e-38 --weight_decay 0 "
             "--adam_beta1 0.5 --adam_beta2 0.5 --momentum 0.5",
             c->name, c->optimizer, c->load);
    if (!use_program(c->load_program)) return;
    CHECK_RAN(c->mpi ? run_mpi(c->mpi, flags) : run("%s", flags));
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", c->name, err());
    check_scaled(a, b, weights_of(a), 1);
    check_scaled(a, b, "optimizer.safetensors", 0.5f);
}

// ---- what is refused -----------------------------------------------------------------------------------------------

typedef struct {
    const char *flags, *words[3];
} Refusal; // what stderr must contain

static void check_refused(const Refusal *r)
{
    CHECK(child.status > 0 && child.status < 128, "%s: status %d after %.1f s; it said %.300s", r->flags, child.status,
          child.seconds, err());
    for (int i = 0; i < 3 && r->words[i]; i++)
        CHECK(strstr(err(), r->words[i]), "%s: no \"%s\" in: %.500s", r->flags, r->words[i], err());
    CHECK(!strstr(out(), "step     1/"), "%s: it trained", r->flags);
}

static void check_refusals(const Refusal *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        start("--max_steps 2 %s", r[i].flags);
        finish_within(20);
        check_refused(&r[i]);
    }
}
#define CHECK_REFUSALS(table) check_refusals(table, sizeof table / sizeof *table)

// ---- processes -----------------------------------------------------------------------------------------------------

// mpirun's children, from /proc; the number found.
static int children_of(pid_t parent, pid_t *list, int most)
{
    char path[GX_PATH];
    int n = 0;
    long pid;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *f = fopen(path, "r");
    while (f && n < most && fscanf(f, "%ld", &pid) == 1) list[n++] = (pid_t)pid;
    if (f) fclose(f);
    return n;
}

static int is_alive(pid_t pid) // a zombie that nobody buries is not
{
    char path[GX_PATH], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    if (f) fclose(f);
    return state != 'Z';
}

// ---- numbers in an output ------------------------------------------------------------------------------------------

static double number_behind(const char *text, const char *words) // NAN: it is not there
{
    const char *at = strstr(text, words);
    return at ? strtod(at + strlen(words), NULL) : NAN;
}

static double number_before(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    while (at && at > text && at[-1] == ' ') at--;
    while (at && at > text && strchr("0123456789.", at[-1])) at--;
    return at ? strtod(at, NULL) : NAN;
}

// A step of middle.json takes the memory that the plan says, to 3 % or 64 MB. Most of it is the weights', or that of
// what passes through: with both, a step would take seconds.
#define FEW_TOKENS  "--seq_len 64 --micro_batch_size 1 "
#define MANY_TOKENS "--hidden_size 64 --intermediate_size 172 --vocab_size 512 "
static void check_memory(const char *output_dir, const char *flags)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config middle.json --max_steps 1 --output_dir %s %s", program, output_dir, flags);
    start_line(line, 0);
    CHECK_RAN(finish());
    const double plan = number_before(out(), "MB\n  "), peak = (double)child.peak_kb * 1024 / 1e6,
                 most = fmax(0.03 * plan, 64);
    CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
    CHECK(plan > 120, "the plan's total was not found, or is too little, in: %s", out());
    CHECK(fabs(peak - plan) <= most, "%s: the plan says %.1f MB, the peak was %.1f MB; %.1f are allowed", flags, plan,
          peak, most);
    test_state.worst = fmax(test_state.worst, fabs(peak - plan) / most);
}

// ---- what the programs are given -----------------------------------------------------------------------------------

// "The old gray cat slowly sees a tall tree near the river." and the like, drawn from a fixed sequence.
static int write_grammar_text(const char *path)
{
    static const char *const adjectives[] = {"old", "gray", "tall", "quiet", "bright", "small", "warm", "strange"};
    static const char *const nouns[] = {"cat",  "river", "tree",  "king",  "house",
                                        "road", "bird",  "stone", "child", "garden"};
    static const char *const verbs[] = {"sees", "finds", "follows", "leaves", "hears", "builds", "loves"};
    static const char *const places[] = {"near", "under", "behind", "beside"};
    unsigned x = 12345;
    int n = 0;
    char *text = (char *)malloc(TEXT_BYTES + 200);
    GxError e = GX_ZERO;
#define PICK(list) list[(x = x * 1664525u + 1013904223u) / 65536 % (sizeof list / sizeof *list)]
    while (n < TEXT_BYTES) {
        n += sprintf(text + n, "The %s", PICK(adjectives));
        n += sprintf(text + n, " %s", PICK(nouns));
        n += sprintf(text + n, " %s", PICK(verbs));
        n += sprintf(text + n, " the %s", PICK(nouns));
        n += sprintf(text + n, " %s", PICK(places));
        n += sprintf(text + n, " the %s.\n", PICK(nouns));
    }
#undef PICK
    GxStatus status = gx_file_write(path, text, n, &e);
    free(text);
    return status == GX_OK;
}

#define TINY_DATA "\"train_data\": \"text.txt\", \"seq_len\": 32, \"logging_steps\": 1"
#define TINY_MODEL                                                                                                     \
    "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "           \
    "\"num_key_value_heads\": 2"

static int write_configurations(void)
{
    static const struct {
        const char *path, *json;
    } files[] = {
        {"tiny.json", "{" TINY_DATA ", \"threads\": 1, \"sample_tokens\": 0, " TINY_MODEL "}"},
        {"threads.json", "{" TINY_DATA ", \"threads\": 2, \"sample_tokens\": 0, " TINY_MODEL "}"},
        {"sampling.json", "{" TINY_DATA ", \"threads\": 1, \"sample_tokens\": 10, " TINY_MODEL "}"},
        {"sampling_long.json", "{" TINY_DATA ", \"threads\": 1, \"sample_tokens\": 2000000, " TINY_MODEL "}"},
        {"sampling_much.json", "{" TINY_DATA ", \"threads\": 1, \"sample_tokens\": 100000000000000, " TINY_MODEL "}"},
        {"no_model.json", "{" TINY_DATA ", \"threads\": 1, \"sample_tokens\": 0}"},
        {"middle.json", "{\"train_data\": \"text.txt\", \"threads\": 1, \"sample_tokens\": 0, \"max_eval_samples\": 4, "
                        "\"validation_fraction\": "
                        "0.02, \"seq_len\": 256, \"hidden_size\": 256, "
                        "\"intermediate_size\": 688, \"num_hidden_layers\": 4, \"num_attention_heads\": 8, "
                        "\"num_key_value_heads\": 4, "
                        "\"vocab_size\": 8192}"},
    };
    GxError e = GX_ZERO;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (gx_file_write(files[i].path, files[i].json, (int64_t)strlen(files[i].json), &e) != GX_OK) return 0;
    return 1;
}

static int find_program(const char *variable, const char *standard,
                        char *path) // absolute, since the tests run in a folder of their own
{
    const char *name = getenv(variable);
    if (!name || !name[0]) name = standard;
    char *full = name ? realpath(name, NULL) : NULL;
    int found = full && access(full, X_OK) == 0 && (int)strlen(full) < TEST_PATH;
    if (found) snprintf(path, TEST_PATH, "%s", full);
    free(full);
    return found;
}

static int program_contains(const char *words)
{
    char *bytes = NULL;
    int64_t n = 0;
    GxError e = GX_ZERO;
    if (gx_file_read(program, 1 << 30, &bytes, &n, &e) != GX_OK) return 0;
    int found = memmem(bytes, (size_t)n, words, strlen(words)) != NULL;
    free(bytes);
    return found;
}

static int make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    struct statvfs memory;
    if (!parent || !parent[0])
        parent = !statvfs("/dev/shm", &memory) && (double)memory.f_bavail * (double)memory.f_frsize > 4e9 ? "/dev/shm"
                                                                                                          : "/tmp";
    snprintf(folder, sizeof folder, "%s/galaxy_test_train_XXXXXX", parent);
    return mkdtemp(folder) && !chdir(folder);
}

static int program_main(int argc, char **argv)
{
    char back[TEST_PATH];
    signal(SIGHUP, SIG_DFL); // where the tests run under nohup, their programs do not
    if (!getcwd(back, sizeof back)) return 1;
    snprintf(repository, sizeof repository, "%s", back);
    if (!find_program("GX_TRAIN_LLAMA", "./train_llama", program)) {
        printf("FAIL there is no program to test: make train_llama, or set GX_TRAIN_LLAMA\n0 passed, 1 failed, 0 "
               "skipped\n");
        return 1;
    }
    find_program("GX_TRAIN_LLAMA_NOMPI", NULL, program_nompi);
    has_mpi = program_contains("MPI_Init");
    is_sanitized = program_contains("__asan_init") || program_contains("__tsan_init");
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    if (!make_folder() || !write_grammar_text("text.txt") || !write_configurations()) {
        printf("FAIL the temporary folder %s: %s\n0 passed, 1 failed, 0 skipped\n", folder, strerror(errno));
        return 1;
    }
    if (is_brief()) leave_out_unsanitized();
    int status = test_main(argc, argv);
    for (int i = 0; i < 2; i++) free(child.text[i]);
    if (chdir(back)) return 1;
    if (getenv("GX_KEEP")) fprintf(stderr, "kept: %s\n", folder);
    else if (shell("rm -rf %s", folder)) return 1;
    return status;
}
#endif
