// test/ranks.h: for tests of programs: a program as processes that find each other by TCP, started as torchrun, srun
// and people do. All on 127.0.0.1. Beside test/program.h.
#ifndef TEST_RANKS_H
#define TEST_RANKS_H
#include "program.h"
#include <arpa/inet.h>
#include <sys/socket.h>

// A port of 127.0.0.1 that nobody has just now.
static int free_port(void)
{
    struct sockaddr_in at;
    socklen_t n = sizeof at;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&at, n) || getsockname(fd, (struct sockaddr *)&at, &n)) abort();
    close(fd);
    return ntohs(at.sin_port);
}

typedef enum { BY_TORCHRUN = 0, BY_SRUN, BY_HAND } Launcher;

static void rank_line(char *line, size_t n, Launcher way, int rank, int world, int port)
{
    if (way == BY_TORCHRUN)
        snprintf(line, n,
                 "RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d %s",
                 rank, world, rank, world, port, program);
    else if (way == BY_SRUN)
        snprintf(line, n,
                 "SLURM_PROCID=%d SLURM_NTASKS=%d SLURM_STEP_NUM_TASKS=%d SLURM_LOCALID=%d MASTER_ADDR=localhost "
                 "MASTER_PORT=%d %s",
                 rank, world, world, rank, port, program);
    else snprintf(line, n, "%s --world %d --rank %d --init tcp://127.0.0.1:%d", program, world, rank, port);
}

// Starts so many processes by a script, which ends after the last of them with the number of those that failed. What
// rank r says is in rank<r>.txt, its process number in pid<r>. more: flags that rank 1 alone has.
static void start_ranks(Launcher way, int world, const char *flags, const char *more)
{
    char script[20000] = "#!/bin/sh\nfailed=0\n", line[TEST_PATH + 300];
    GxError e = GX_ZERO;
    const int port = free_port();
    for (int r = 0; r < world; r++) {
        const size_t used = strlen(script);
        rank_line(line, sizeof line, way, r, world, port);
        snprintf(script + used, sizeof script - used, "%s %s %s >rank%d.txt 2>&1 &\necho $! >pid%d\n", line, flags,
                 r == 1 ? more : "", r, r);
    }
    for (int r = 0; r < world; r++)
        snprintf(script + strlen(script), sizeof script - strlen(script),
                 "wait $(cat pid%d) || failed=$((failed + 1))\n", r);
    snprintf(script + strlen(script), sizeof script - strlen(script), "exit $failed\n");
    CHECK(gx_file_write("ranks.sh", script, (int64_t)strlen(script), &e) == GX_OK, "%s", e.message);
    shell("rm -f rank*.txt pid*");
    start_line("sh ranks.sh", 0);
}
__attribute__((unused)) static int run_ranks(Launcher way, int world, const char *flags)
{
    start_ranks(way, world, flags, "");
    return finish();
}

static int says(int rank, const char *words)
{
    char path[20];
    snprintf(path, sizeof path, "rank%d.txt", rank);
    char *text = read_text(path);
    const int found = strstr(text, words) != NULL;
    CHECK(found, "rank %d does not say \"%s\": %.400s", rank, words, text);
    free(text);
    return found;
}
#endif
