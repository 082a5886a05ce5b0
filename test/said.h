// test/said.h: what runs in this process have said since `said` was emptied: to their reporter, and to their logger.
#ifndef GX_TEST_SAID_H
#define GX_TEST_SAID_H
#include "test.h"
#include <pthread.h>

static struct {
    char out[60000], log[8000];
} said;

static void hear_out(void *user, const char *text) // of a reporter
{
    const size_t have = strlen(said.out);
    (void)user;
    snprintf(said.out + have, sizeof said.out - have, "%s", text);
}

static void hear_log(void *user, GxLogLevel level, const char *text) // of a logger, of several ranks at once
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    (void)user, (void)level;
    pthread_mutex_lock(&one_at_a_time);
    const size_t have = strlen(said.log);
    snprintf(said.log + have, sizeof said.log - have, "%s\n", text);
    pthread_mutex_unlock(&one_at_a_time);
}
#endif
