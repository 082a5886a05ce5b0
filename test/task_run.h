// test/task_run.h: what tests of tasks on texts share: files in a folder of their own, a tokenizer of whole words, and
// runs of a tiny model in this process, of which `said` keeps what was said, `told` the losses of the first steps and
// the last validation.
//
//     static int run(const char *name, const char *more)    // with the test's own sizes
//     {
//         char line[6000];
//         snprintf(line, sizeof line, "--output_dir %s/%s %s", folder, name, more);
//         return run_line(&gx_bert, &gx_classification, line);
//     }
//     int main(int argc, char **argv) { return run_tests(argc, argv, write_tokenizer); }
#ifndef GX_TEST_TASK_RUN_H
#define GX_TEST_TASK_RUN_H
#include "said.h"
#include <sys/stat.h>
#include <unistd.h>
#pragma GCC diagnostic ignored "-Wunused-function" // no test program uses all of this

// ---- files ---------------------------------------------------------------------------------------------------------

static char folder[] = "/tmp/galaxy_test_task_run_XXXXXX";

static const char *path_of(const char *name) // good for the next 8 calls
{
    static char path[8][400];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static void write_file(const char *name, const char *text)
{
    GxError err = GX_ZERO;
    CHECK(gx_file_write(path_of(name), text, (int64_t)strlen(text), &err) == GX_OK, "%s", err.message);
}

static char *read_bytes(const char *path, int64_t *bytes) // free() it; "": there is no such file
{
    char *text = NULL;
    GxError err = GX_ZERO;
    return gx_file_read(path, 1 << 24, &text, bytes, &err) == GX_OK ? text : (char *)calloc(1, 1);
}

static char *read_file(const char *path)
{
    int64_t bytes;
    return read_bytes(path, &bytes);
}

static int file_has(const char *path, const char *words)
{
    char *text = read_file(path);
    const int has = strstr(text, words) != NULL;
    free(text);
    return has;
}

static int is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

enum { FIRST_WORD = 5 };                   // its id, behind those of [PAD] to [MASK]
static void write_vocab(const char *words) // a line each, into folder/tokens
{
    char vocab[1000];
    snprintf(vocab, sizeof vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n%s", words);
    CHECK(mkdir(path_of("tokens"), 0777) == 0, "no folder");
    write_file("tokens/vocab.txt", vocab);
}

// ---- runs ----------------------------------------------------------------------------------------------------------

static struct {
    GxMetric metric[GX_MAX_METRICS]; // of the last validation
    int metrics;
    int64_t count;
    double window[40]; // loss, by the step
} told;                // in numbers

static struct {
    const GxFamily *family;
    const GxTask *task;
} running;

static int run_rank(GxContext *g, int argc, char **argv)
{
    static const GxReporter reporter = {hear_out, NULL, NULL};
    GxTrainer t = GX_ZERO;
    char *own[80];
    for (int i = 0; i < argc; i++) own[i] = strdup(argv[i]);
    g->reporter = &reporter, g->log.write = hear_log;
    gx_trainer_open(&t, g, running.family, running.task, NULL, argc, own);
    while (gx_trainer_next(&t)) {
        gx_trainer_step(&t);
        gx_trainer_report(&t);
        if (g->rank == 0 && t.run.at.step < 40) told.window[t.run.at.step] = gx_step_loss(&t.session.seen);
    }
    const int status = gx_trainer_close(&t); // with the last validation
    if (g->rank == 0) {
        memcpy(told.metric, t.run.validation.metric, sizeof told.metric);
        told.metrics = t.run.validation.metrics, told.count = t.run.validation.count;
    }
    for (int i = 0; i < argc; i++) free(own[i]);
    return status;
}

// Exit status of a program with these flags, which are cut up.
static int run_line(const GxFamily *family, const GxTask *task, char *line)
{
    char *argv[80] = {(char *)"train"};
    int argc = 1;
    memset(&said, 0, sizeof said), memset(&told, 0, sizeof told);
    running.family = family, running.task = task;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    return gx_launch(run_rank, argc, argv);
}

static double metric(const char *name) // NAN: there is none
{
    for (int i = 0; i < told.metrics; i++)
        if (!strcmp(told.metric[i].name, name)) return told.metric[i].value;
    return NAN;
}

static int run_tests(int argc, char **argv, void (*prepare)(void))
{
    char command[100];
    if (!mkdtemp(folder)) return 1;
    prepare();
    const int status = test_main(argc, argv);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || status;
}
#endif
