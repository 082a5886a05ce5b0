// test_tcp.cu: how ranks find each other by TCP, and what strangers and broken peers can do to them: nothing but an
// error. All on loopback addresses. (What the engine promises as such, test_comm.cu tests beside the other engines;
// training programs started so, test_train_tcp.cu.)
#include "rooms/comm.c" // looks inside
#include "galaxy/base/random.h"
#include "galaxy/comm/tcp.h"
#include "test/test.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { MOST = 5 };

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

// A port of 127.0.0.1 that nobody has just now.
static int free_port(void)
{
    GxEndpoint e;
    gx_endpoint_numeric(&e, "127.0.0.1", 0);
    int fd = gx_socket_listen(&e);
    e = gx_socket_endpoint(fd, 0);
    gx_socket_close(&fd);
    return gx_endpoint_port(&e);
}

// A connection to a port of 127.0.0.1, where somebody will listen soon.
static int dial(int port)
{
    GxEndpoint e;
    int fd = -1;
    gx_endpoint_numeric(&e, "127.0.0.1", port);
    for (int i = 0; i < 500 && (fd = gx_socket_connect(&e, gx_seconds() + 5)) < 0; i++) usleep(10000);
    CHECK(fd >= 0, "nobody listens at port %d", port);
    return fd;
}

// ---- what a process was told ---------------------------------------------------------------------------------------

static const char *const variables[] = {
    "RANK",          "WORLD_SIZE",   "LOCAL_RANK",          "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",   "MASTER_PORT",  "SLURM_PROCID",        "SLURM_NTASKS",
    "SLURM_LOCALID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"};

// "RANK=1 WORLD_SIZE=2" and nothing else of all these.
static void set_environment(const char *text)
{
    char copy[400];
    for (unsigned i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) {
        char *equals = strchr(w, '=');
        *equals = 0;
        setenv(w, equals + 1, 1);
    }
}

TEST(environments_of_torchrun_and_srun_are_understood)
{
    static const struct {
        const char *text;
        int rank, world, local_rank, local_ranks, port;
        const char *host;
    } cases[] = {
        {"RANK=2 WORLD_SIZE=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=29500", 2, 3, 1, 2, 29500,
         "node0"},
        {"RANK=2 WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=29500", 2, 3, -1, 0, 29500, "127.0.0.1"},
        {"RANK=2 WORLD_SIZE=3 MASTER_ADDR=::1 MASTER_PORT=29500", 2, 3, -1, 0, 29500, "::1"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True", 0, 2, -1, 0, 29501,
         "a"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=False", 0, 2, -1, 0, 29500,
         "a"},
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 MASTER_ADDR=n MASTER_PORT=1234", 5, 8, 1, 0, 1234, "n"},
        {"RANK=0 WORLD_SIZE=2 SLURM_PROCID=5 SLURM_NTASKS=8 MASTER_ADDR=n MASTER_PORT=1234", 0, 2, -1, 0, 1234, "n"},
        {"RANK=0 WORLD_SIZE=1", 0, 1, -1, 0, 0, ""},
        {"SLURM_PROCID=5 SLURM_NTASKS=8", 0, 0, -1, 0, 0, ""},
        {"MASTER_ADDR=n MASTER_PORT=1234", 0, 0, -1, 0, 0, ""},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxRendezvous r = GX_ZERO;
        GxError err = GX_ZERO;
        set_environment(cases[i].text);
        CHECK(gx_rendezvous_environment(&r, &err) == GX_OK, "%s: %s", cases[i].text, err.message);
        CHECK(r.rank == cases[i].rank && r.world == cases[i].world && r.local_rank == cases[i].local_rank &&
                  r.local_ranks == cases[i].local_ranks && r.port == cases[i].port && !strcmp(r.host, cases[i].host),
              "%s: rank %d of %d, local %d of %d, %s, port %d", cases[i].text, r.rank, r.world, r.local_rank,
              r.local_ranks, r.host, r.port);
    }
    set_environment("");
}

TEST(environments_that_contradict_themselves_are_refused_by_name)
{
    static const char *const cases[][2] = {
        {"RANK=3 WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=1", "RANK is 3, but WORLD_SIZE is 3"},
        {"RANK=0", "RANK is set (0), but WORLD_SIZE is not; set both, or unset RANK"},
        {"WORLD_SIZE=2", "WORLD_SIZE is set (2), but RANK is not"},
        {"RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT is not set"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=http", "MASTER_PORT is \"http\""},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT is \"0\""},
        {"RANK=zero WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "RANK is \"zero\""},
        {"RANK=-1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "RANK is \"-1\""},
        {"RANK=0 WORLD_SIZE=0 MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE is \"0\""},
        {"RANK=0 WORLD_SIZE=99999 MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE is \"99999\""},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 MASTER_ADDR=a MASTER_PORT=1", "LOCAL_RANK is \"2\""},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1",
         "LOCAL_RANK is 1, but LOCAL_WORLD_SIZE is 1"},
        {"SLURM_PROCID=8 SLURM_NTASKS=8 MASTER_ADDR=n MASTER_PORT=1234", "SLURM_PROCID is 8, but SLURM_NTASKS is 8"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxRendezvous r = GX_ZERO;
        GxError err = GX_ZERO;
        set_environment(cases[i][0]);
        CHECK(gx_rendezvous_environment(&r, &err) == GX_ERR_ARGUMENT && strstr(err.message, cases[i][1]) &&
                  r.world == 0,
              "%s: %s", cases[i][0], err.message);
    }
    set_environment("");
}

TEST(addresses_by_hand_are_taken_or_refused)
{
    static const struct {
        const char *address, *host;
        int port;
    } cases[] = {{"tcp://node0:29500", "node0", 29500},
                 {"tcp://127.0.0.1:1", "127.0.0.1", 1},
                 {"tcp://localhost:1", "127.0.0.1", 1},
                 {"tcp://[::1]:65535", "::1", 65535},
                 {"", NULL, 0},
                 {"node0:29500", NULL, 0},
                 {"tcp://node0", NULL, 0},
                 {"tcp://:29500", NULL, 0},
                 {"tcp://node0:", NULL, 0},
                 {"tcp://node0:65536", NULL, 0},
                 {"tcp://node0:29500/x", NULL, 0},
                 {"tcp://[]:29500", NULL, 0},
                 {"http://node0:29500", NULL, 0}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxRendezvous r = GX_ZERO;
        GxError err = GX_ZERO;
        const GxStatus status = gx_rendezvous_address(&r, 1, 2, cases[i].address, &err);
        if (cases[i].host)
            CHECK(status == GX_OK && !strcmp(r.host, cases[i].host) && r.port == cases[i].port, "%s: %s, port %d; %s",
                  cases[i].address, r.host, r.port, err.message);
        else
            CHECK(status == GX_ERR_ARGUMENT && strstr(err.message, "tcp://host:port"), "\"%s\": %s", cases[i].address,
                  err.message);
    }
    GxRendezvous r = GX_ZERO;
    GxError high = GX_ZERO, many = GX_ZERO;
    CHECK(gx_rendezvous_address(&r, 2, 2, "tcp://a:1", &high) && strstr(high.message, "--rank is 2, but --world is 2"),
          "%s", high.message);
    CHECK(gx_rendezvous_address(&r, 0, 257, "tcp://a:1", &many) && strstr(many.message, "1 to 256"), "%s",
          many.message);
}

// ---- meeting -------------------------------------------------------------------------------------------------------

typedef struct {
    GxRendezvous r;
    int link[MOST];
    double delay, seconds;
    GxStatus status;
    GxError err;
    pthread_t thread;
} Party;

static Party party(int rank, int world, const char *host, int port, double timeout)
{
    Party p;
    char address[100];
    memset(&p, 0, sizeof p);
    snprintf(address, sizeof address, "tcp://%s:%d", host, port);
    CHECK(gx_rendezvous_address(&p.r, rank, world, address, &p.err) == GX_OK, "%s", p.err.message);
    p.r.timeout = timeout;
    return p;
}

static void *meet(void *user)
{
    Party *p = (Party *)user;
    usleep((useconds_t)(1e6 * p->delay));
    const double begin = gx_seconds();
    p->status = gx_rendezvous(&p->r, p->link, &p->err);
    p->seconds = gx_seconds() - begin;
    return NULL;
}

static void begin_to_meet(Party *p) { pthread_create(&p->thread, NULL, meet, p); }
static void has_met(Party *p)
{
    pthread_join(p->thread, NULL);
    CHECK(p->status == GX_OK, "rank %d: %s", p->r.rank, p->err.message);
}
static void has_not_met(Party *p, const char *says)
{
    pthread_join(p->thread, NULL);
    CHECK(p->status == GX_ERR_COMM && strstr(p->err.message, says), "rank %d does not say \"%s\": %s", p->r.rank, says,
          p->err.message);
}
static void part(Party *p)
{
    for (int i = 0; i < p->r.world && p->status == GX_OK; i++) gx_socket_close(&p->link[i]);
}

static void meet_at(const char *host, int last)
{
    enum { WORLD = 4 };
    Party p[WORLD];
    const int port = free_port();
    for (int r = 0; r < WORLD; r++) {
        p[r] = party(r, WORLD, host, port, 20);
        p[r].delay = r == last ? 0.2 : 0;
    }
    for (int r = 0; r < WORLD; r++) begin_to_meet(&p[r]);
    for (int r = 0; r < WORLD; r++) has_met(&p[r]);
    for (int a = 0; a < WORLD; a++)
        for (int b = 0; b < WORLD && p[a].status == GX_OK && p[b].status == GX_OK; b++) {
            char said[2] = {(char)(16 * a + b), 0};
            if (a == b) continue;
            CHECK(fcntl(p[a].link[b], F_GETFD) & FD_CLOEXEC && fcntl(p[a].link[b], F_GETFL) & O_NONBLOCK,
                  "link %d of rank %d", b, a);
            CHECK(gx_socket_write(p[a].link[b], said, 1, gx_seconds() + 5) &&
                      gx_socket_read(p[b].link[a], said + 1, 1, gx_seconds() + 5) && said[0] == said[1],
                  "%s: rank %d heard another than rank %d", host, b, a);
        }
    for (int r = 0; r < WORLD; r++) {
        CHECK(p[r].r.local_rank == r && p[r].r.local_ranks == WORLD, "rank %d is local rank %d of %d", r,
              p[r].r.local_rank, p[r].r.local_ranks);
        part(&p[r]);
    }
}

TEST(each_two_ranks_get_a_connection_whoever_comes_last)
{
    const int before = open_files();
    set_environment("");
    for (int last = 0; last < 4; last += 3) {
        meet_at("127.0.0.1", last);
        meet_at("[::1]", last);
    }
    CHECK(open_files() == before, "%d files are open, %d were", open_files(), before);
}

TEST(a_rank_that_never_comes_is_named_by_all)
{
    const int before = open_files(), port = free_port();
    Party p[3] = {party(0, 4, "127.0.0.1", port, 0.5), party(1, 4, "127.0.0.1", port, 20),
                  party(3, 4, "127.0.0.1", port, 20)};
    for (int i = 0; i < 3; i++) begin_to_meet(&p[i]);
    for (int i = 0; i < 3; i++) {
        has_not_met(&p[i], "rank 0 waited 0.5 s for rank 2 of 4");
        CHECK(p[i].seconds < 5, "rank %d took %g s", p[i].r.rank, p[i].seconds);
    }
    CHECK(open_files() == before, "%d files are open, %d were", open_files(), before);
}

TEST(without_rank_0_the_others_say_where_they_looked_for_it)
{
    char says[100];
    Party p = party(1, 2, "127.0.0.1", free_port(), 0.3);
    snprintf(says, sizeof says, "rank 1 waited 0.3 s for rank 0 at 127.0.0.1, port %d: Connection refused", p.r.port);
    begin_to_meet(&p);
    has_not_met(&p, says);
    CHECK(p.seconds < 3, "%g s", p.seconds);
}

TEST(a_port_in_use_is_named_at_once)
{
    GxEndpoint e;
    gx_endpoint_numeric(&e, "127.0.0.1", 0);
    int fd = gx_socket_listen(&e);
    e = gx_socket_endpoint(fd, 0);
    char says[100];
    Party first = party(0, 2, "127.0.0.1", gx_endpoint_port(&e), 20),
          second = party(1, 2, "127.0.0.1", gx_endpoint_port(&e), 0.5);
    snprintf(says, sizeof says, "rank 0 cannot listen at 127.0.0.1, port %d: Address already in use", first.r.port);
    begin_to_meet(&first);
    begin_to_meet(&second); // somebody else is at home there, who says nothing
    has_not_met(&first, says);
    has_not_met(&second, "something listens there, but has not answered");
    CHECK(first.seconds < 1 && second.seconds < 3, "%g s, %g s", first.seconds, second.seconds);
    gx_socket_close(&fd);
}

// Rank 0 waits for rank 1 of 2. Whoever does not belong to them learns why; they meet all the same.
TEST(ranks_of_other_runs_are_refused_with_the_reason)
{
    const int port = free_port();
    Party first = party(0, 2, "127.0.0.1", port, 20), second = party(1, 2, "127.0.0.1", port, 20);
    Party larger = party(2, 3, "127.0.0.1", port, 20), other = party(1, 2, "127.0.0.1", port, 20);
    begin_to_meet(&first);
    begin_to_meet(&larger);
    has_not_met(&larger, "rank 2 was refused by rank 0 at 127.0.0.1");
    CHECK(strstr(larger.err.message, "it belongs to a world of 3 ranks, and this one has 2"), "%s", larger.err.message);
    set_environment("TORCHELASTIC_RUN_ID=monday");
    begin_to_meet(&other);
    has_not_met(&other, "it belongs to job \"monday\", and this is \"\"");
    set_environment("");
    GxMeeting raw;
    GxAnswer answer;
    memset(&raw, 0, sizeof raw);
    raw.r = &second.r;
    gx__meet_introduce(&raw);
    raw.hello.version = 99;
    raw.hello.port = 1;
    int fd = dial(port);
    CHECK(gx_socket_write(fd, &raw.hello, sizeof raw.hello, gx_seconds() + 5) &&
              gx_socket_read(fd, &answer, sizeof answer, gx_seconds() + 5) && answer.refuses &&
              strstr(answer.text, "version 99"),
          "%s", answer.text);
    gx_socket_close(&fd);
    begin_to_meet(&second);
    has_met(&first);
    has_met(&second);
    part(&first), part(&second);
}

TEST(a_rank_that_is_started_twice_is_refused_and_one_that_is_started_again_is_not)
{
    const int port = free_port();
    Party first = party(0, 3, "127.0.0.1", port, 20), second = party(1, 3, "127.0.0.1", port, 20), twice = second,
          third = party(2, 3, "127.0.0.1", port, 20);
    GxMeeting gone;
    memset(&gone, 0, sizeof gone);
    gone.r = &second.r;
    gx__meet_introduce(&gone);
    gone.hello.port = 1;
    begin_to_meet(&first);
    int fd = dial(port);
    CHECK(gx_socket_write(fd, &gone.hello, sizeof gone.hello, gx_seconds() + 5), "no hello");
    gx_socket_close(&fd); // killed while it waited
    usleep(100000);
    begin_to_meet(&second);
    usleep(300000);
    begin_to_meet(&twice);
    has_not_met(&twice, "rank 1 is here already");
    begin_to_meet(&third);
    has_met(&first), has_met(&second), has_met(&third);
    part(&first), part(&second), part(&third);
}

// ---- strangers -----------------------------------------------------------------------------------------------------

static void send_rubbish(int fd, size_t n, uint64_t seed)
{
    char bytes[5000];
    for (size_t i = 0; i < n; i++) bytes[i] = (char)gx_random_bits(seed, i, 0, 0);
    if (send(fd, bytes, n, MSG_NOSIGNAL) < 0) return; // hung up on already
}

TEST(strangers_neither_get_in_nor_keep_anybody_waiting)
{
    enum { SILENT = 100 };
    const int before = open_files(), port = free_port();
    int stranger[SILENT + 4];
    Party first = party(0, 2, "127.0.0.1", port, 20), second = party(1, 2, "127.0.0.1", port, 20);
    begin_to_meet(&first);
    for (int i = 0; i < SILENT + 4; i++) stranger[i] = dial(port); // more than there are places for guests
    send_rubbish(stranger[SILENT], 3, 1);
    send_rubbish(stranger[SILENT + 1], 5000, 2);
    CHECK(send(stranger[SILENT + 2], "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, MSG_NOSIGNAL) == 27, "no request");
    CHECK(send(stranger[SILENT + 3], &gx__meet_magic, 8, MSG_NOSIGNAL) == 8, "no beginning of a hello");
    begin_to_meet(&second);
    has_met(&second);
    has_met(&first);
    CHECK(second.seconds < 3, "%g s", second.seconds);
    for (int i = 0; i < SILENT + 4; i++) {
        char byte;
        CHECK(!gx_socket_read(stranger[i], &byte, 1, gx_seconds() + 5) && errno == ECONNRESET,
              "stranger %d was not hung up on", i);
        gx_socket_close(&stranger[i]);
    }
    part(&first), part(&second);
    CHECK(open_files() == before, "%d files are open, %d were", open_files(), before);
}

// This test plays rank 2 of 3. gx__meet_join_ranks is the first thing that it does.
static GxMeeting *come_as(Party *me)
{
    GxMeeting *m = (GxMeeting *)calloc(1, sizeof *m);
    m->r = &me->r;
    m->link = me->link;
    m->listener = -1;
    m->deadline = gx_seconds() + 20;
    me->link[0] = me->link[1] = me->link[2] = -1;
    gx__meet_introduce(m);
    return m;
}

// It comes to rank 1 as a stranger and as a rank of another run before it comes as itself.
TEST(a_lower_rank_lets_in_nobody_but_the_ranks_of_its_run)
{
    const int port = free_port();
    Party first = party(0, 3, "127.0.0.1", port, 20), second = party(1, 3, "127.0.0.1", port, 20),
          me = party(2, 3, "127.0.0.1", port, 20);
    GxMeeting *m = come_as(&me);
    begin_to_meet(&first);
    begin_to_meet(&second);
    CHECK(gx__meet_join_ranks(m, &me.err) == GX_OK, "%s", me.err.message);
    const int of_second = m->seat[1].port;
    int silent = dial(of_second), rubbish = dial(of_second);
    send_rubbish(rubbish, 500, 3);
    m->hello.run ^= 1;
    CHECK(gx__meet_connect_to_lower(m, 1, &me.err) == GX_ERR_COMM && strstr(me.err.message, "another run"), "%s",
          me.err.message);
    gx_socket_close(&me.link[1]);
    m->hello.run ^= 1;
    gx_error_clear(&me.err);
    CHECK(gx__meet_connect_to_lower(m, 1, &me.err) == GX_OK, "%s", me.err.message);
    CHECK(gx__meet_confirm(m, &me.err) == GX_OK, "%s", me.err.message);
    has_met(&first);
    has_met(&second);
    part(&first), part(&second), part(&me);
    gx_socket_close(&m->listener);
    gx_socket_close(&silent), gx_socket_close(&rubbish);
    free(m);
}

// It is seated by rank 0, and dies before it has connected to rank 1, which waits for it.
TEST(a_rank_that_dies_while_they_meet_ends_all_with_its_number)
{
    const int before = open_files(), port = free_port();
    Party first = party(0, 3, "127.0.0.1", port, 20), second = party(1, 3, "127.0.0.1", port, 20),
          me = party(2, 3, "127.0.0.1", port, 20);
    GxMeeting *m = come_as(&me);
    begin_to_meet(&first);
    begin_to_meet(&second);
    CHECK(gx__meet_join_ranks(m, &me.err) == GX_OK, "%s", me.err.message);
    gx_socket_close(&me.link[0]);
    has_not_met(&first, "rank 2 died while the ranks met");
    has_not_met(&second, "rank 2 died while the ranks met");
    CHECK(!strcmp(first.err.message, second.err.message), "%s, but %s", first.err.message, second.err.message);
    CHECK(first.seconds < 3 && second.seconds < 3, "%g s, %g s", first.seconds, second.seconds);
    gx_socket_close(&m->listener);
    free(m);
    CHECK(open_files() == before, "%d files are open, %d were", open_files(), before);
}

// ---- peers that are broken -----------------------------------------------------------------------------------------

// Rank 0 of 2, whose link to rank 1 ends in this test.
typedef struct {
    GxContext g;
    GxComm comm;
    GxMesh mesh;
    GxArena arena;
    float x[2000];
    pthread_t thread;
    double seconds;
} Victim;

static void make_rank(Victim *v, int rank, int link)
{
    int dims[5] = {1, 1, 1, 1, 2};
    memset(v, 0, sizeof *v);
    GxTcp *tcp = gx__tcp_new(rank, 2);
    tcp->peer[1 - rank].fd = link;
    tcp->peer[rank].fd = -1;
    for (int i = 0; i < 2; i++) tcp->peer[i].offer = tcp->offers + i * tcp->offers_most;
    v->comm.engine = &gx__tcp_engine;
    v->comm.state = tcp;
    v->comm.rank = rank;
    v->comm.world = 2;
    v->comm.timeout = 5;
    gx_mesh_open(&v->mesh, dims, rank, 2, &v->g.error);
    gx_arena_open(&v->arena, 16 << 20, &v->g.error);
    v->g.arena = &v->arena;
    v->g.mesh = &v->mesh;
    gx_comm_open(&v->g, &v->comm);
}

static void *sum_up(void *user)
{
    Victim *v = (Victim *)user;
    const double begin = gx_seconds();
    for (int i = 0; i < 2000; i++) v->x[i] = (float)(i + v->g.rank);
    gx_all_reduce(&v->g, GX_AXIS_ALL, GX_SUM, v->x, 2000, GX_F32);
    gx_comm_close(&v->g);
    gx_arena_close(&v->arena);
    v->seconds = gx_seconds() - begin;
    return NULL;
}

static void make_pair(int *end)
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, end) == 0, "%s", strerror(errno));
    for (int i = 0; i < 2; i++) fcntl(end[i], F_SETFL, O_NONBLOCK);
}

static GxTcpFrame frame(int kind, int tag, int64_t number, int64_t bytes, int64_t header_bytes)
{
    GxTcpFrame f;
    memset(&f, 0, sizeof f);
    f.kind = kind;
    f.tag = tag;
    f.number = number;
    f.bytes = bytes;
    f.header.bytes = header_bytes;
    return f;
}

TEST(frames_that_no_rank_sends_are_an_error_and_nothing_else)
{
    const struct {
        GxTcpFrame frame;
        const char *says;
    } cases[] = {
        {frame(0, 0, 0, 0, 0), "sent what no rank"},
        {frame(77, 0, 0, 0, 0), "sent what no rank"},
        {frame(GX__TCP_OFFER, 5, 1, 0, -1), "sent what no rank"},
        {frame(GX__TCP_OFFER, 5, 1, 10, 11), "sent what no rank"},
        {frame(GX__TCP_OFFER, 5, 1, 1000, 1000), "sent what no rank"}, // too long to come with its header
        {frame(GX__TCP_OFFER, 5, 1, -5, -5), "sent what no rank"},
        {frame(GX__TCP_OFFER, 5, 1, (int64_t)1 << 62, (int64_t)1 << 62), "sent what no rank"},
        {frame(GX__TCP_GO, 0, 99, 0, 0), "sent what no rank"}, // nothing of this number was offered
        {frame(GX__TCP_GO, 0, 0, 0, 0), "sent what no rank"},
        {frame(GX__TCP_GO, 0, 1, 8, 0), "sent what no rank"},
        {frame(GX__TCP_DATA, 0, 1, 8, 8), "sent what no rank"}, // nobody said go
        {frame(GX__TCP_DATA, 0, 0, 8, 8), "sent what no rank"},
        {frame(GX__TCP_ABORT, 1, 0, 100000, 0), "sent what no rank"},
        {frame(GX__TCP_ABORT, 1, 0, -1, 0), "sent what no rank"},
        {frame(GX__TCP_ABORT, 1, 0, 0, 0), "sent what no rank"}, // it does not say why
        {frame(GX__TCP_GOODBYE, 0, 0, 1, 0), "sent what no rank"},
        {frame(GX__TCP_GOODBYE, 0, 0, 0, 0), "rank 1 left while rank 0 waits for it"},
    };
    static Victim v;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        int end[2];
        make_pair(end);
        make_rank(&v, 0, end[0]);
        pthread_create(&v.thread, NULL, sum_up, &v);
        CHECK(write(end[1], &cases[i].frame, sizeof cases[i].frame) == (ssize_t)sizeof cases[i].frame, "%s",
              strerror(errno));
        pthread_join(v.thread, NULL);
        CHECK(strstr(v.g.error.message, cases[i].says) && v.seconds < 4, "case %u: %s, after %g s", i,
              v.g.error.message, v.seconds);
        close(end[1]);
    }
}

// This test is a rank 1 that knows the headers, up to the point where it breaks: 0: its offer has no number; 1: it
// offers the same twice; 2: it sends more data than it offered; 3: it sends its data twice; 4: all is well.
static void answer_as(int end, int how)
{
    const double until = gx_seconds() + 5;
    GxTcpFrame theirs, f;
    CHECK(gx_socket_read(end, &theirs, sizeof theirs, until) && theirs.kind == GX__TCP_OFFER, "no offer");
    f = theirs;
    f.header.rank = 1;
    f.number = how == 0 ? 0 : 1;
    CHECK(gx_socket_write(end, &f, sizeof f, until), "%s", strerror(errno));
    if (how == 1) CHECK(gx_socket_write(end, &f, sizeof f, until), "%s", strerror(errno));
    if (how < 2) return;
    CHECK(gx_socket_read(end, &theirs, sizeof theirs, until) && theirs.kind == GX__TCP_GO && theirs.number == 1,
          "no go");
    char *data = (char *)calloc(1, (size_t)f.header.bytes + 1);
    f.kind = GX__TCP_DATA;
    f.bytes = f.header.bytes + (how == 2);
    for (int i = 0; i < (how == 3 ? 2 : 1); i++) {
        gx_socket_write(end, &f, sizeof f, until); // hung up on, perhaps
        gx_socket_write(end, data, (size_t)f.bytes, until);
    }
    const GxTcpFrame goodbye = frame(GX__TCP_GOODBYE, 0, 0, 0, 0);
    gx_socket_write(end, &goodbye, sizeof goodbye, until);
    free(data);
}

TEST(a_peer_that_knows_the_headers_does_no_harm_either)
{
    static Victim v;
    for (int how = 0; how <= 4; how++) {
        int end[2];
        make_pair(end);
        make_rank(&v, 0, end[0]);
        pthread_create(&v.thread, NULL, sum_up, &v);
        answer_as(end[1], how);
        pthread_join(v.thread, NULL);
        CHECK(strstr(v.g.error.message, how < 4 ? "rank 1 died: it sent what no rank" : "rank 1 left") && v.seconds < 4,
              "case %d: %s, after %g s", how, v.g.error.message, v.seconds);
        close(end[1]);
    }
}

TEST(more_offers_than_a_rank_can_have_in_flight_are_an_error)
{
    static Victim v;
    int end[2];
    make_pair(end);
    make_rank(&v, 0, end[0]);
    const int most = gx__tcp(&v.comm)->offers_most;
    CHECK(most == 2 * 2 + GX_MAX_SLOTS, "%d", most);
    GxMessage none;
    for (int i = 0; i <= most; i++) {
        const GxTcpFrame f = frame(GX__TCP_OFFER, 5, i + 1, 0, 1 << 20); // of a tag that nobody waits for
        CHECK(!gx_failed(&v.g) && gx__tcp(&v.comm)->peer[1].offers == i, "%d offers: %s", i, v.g.error.message);
        CHECK(write(end[1], &f, sizeof f) == (ssize_t)sizeof f, "%s", strerror(errno));
        gx__tcp_poll(&v.comm, &none, 0, &v.g.error);
    }
    CHECK(strstr(v.g.error.message, "rank 1 died: it sent what no rank"), "%s", v.g.error.message);
    gx_comm_close(&v.g);
    gx_arena_close(&v.arena);
    close(end[1]);
}

// Frames whose fields are drawn from the values that matter, with random bytes between them. Whatever they do, it is an
// error or a number.
TEST(random_frames_do_no_harm)
{
    static Victim v;
    for (uint64_t round = 0; round < 300; round++) {
        const int64_t numbers[] = {0, 1, 2, -1, 1 << 20},
                      lengths[] = {0, 1, 8, 256, 257, 4000, -1, INT64_MIN, INT64_MAX};
        const int tags[] = {0, 1, 1 << 5 | GX_AXIS_TP, -1, 16383};
        int end[2];
        make_pair(end);
        make_rank(&v, 0, end[0]);
        v.comm.timeout = 0.05;
        int64_t offers = 0;
        for (uint32_t i = 0; i < 20; i++) {
            const uint32_t draw = gx_random_bits(round, i, 0, 0);
            const int64_t bytes = lengths[draw / 25 % 9];
            const int kind = (int)(1 + draw % 5);
            const int64_t number = kind == GX__TCP_OFFER && draw / 40500 % 8 ? ++offers : numbers[draw / 5 % 5];
            const GxTcpFrame f =
                frame(kind, tags[draw / 225 % 5], number, bytes, draw % 3 ? bytes : lengths[draw / 1125 % 9]);
            if (send(end[1], &f, sizeof f, MSG_NOSIGNAL) < 0) break;
            if (draw / 10125 % 4) send_rubbish(end[1], (size_t)gx_max(0, gx_min(bytes, 5000)), round + i);
        }
        sum_up(&v);
        CHECK(gx_failed(&v.g), "round %ld: the sum came out", (long)round);
        close(end[1]);
    }
}

// ---- pieces, interruptions -----------------------------------------------------------------------------------------

typedef struct {
    int from, to;
} Pipe;

// Hands on a few bytes at a time.
static void *trickle(void *user)
{
    const Pipe *p = (const Pipe *)user;
    char bytes[13];
    for (uint64_t i = 0;; i++) {
        struct pollfd wait = {p->from, POLLIN, 0};
        poll(&wait, 1, 1000);
        const ssize_t n = recv(p->from, bytes, 1 + gx_random_bits(1, i, 0, 0) % sizeof bytes, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
        if (n > 0 && !gx_socket_write(p->to, bytes, (size_t)n, gx_seconds() + 5)) break;
    }
    shutdown(p->to, SHUT_WR);
    return NULL;
}

static void interrupt(int number) { (void)number; }

TEST(messages_in_small_pieces_and_calls_that_are_interrupted_change_nothing)
{
    static Victim v[2];
    int end[2][2];
    pthread_t hand[2];
    const struct itimerval often = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt; // without SA_RESTART
    sigaction(SIGALRM, &action, &before);
    for (int r = 0; r < 2; r++) {
        make_pair(end[r]);
        make_rank(&v[r], r, end[r][0]);
    }
    Pipe pipes[2] = {{end[0][1], end[1][1]}, {end[1][1], end[0][1]}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int r = 0; r < 2; r++) pthread_create(&hand[r], NULL, trickle, &pipes[r]);
    for (int r = 0; r < 2; r++) pthread_create(&v[r].thread, NULL, sum_up, &v[r]);
    for (int r = 0; r < 2; r++) pthread_join(v[r].thread, NULL);
    for (int r = 0; r < 2; r++) pthread_join(hand[r], NULL);
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &before, NULL);
    for (int r = 0; r < 2; r++) {
        int wrong = 0;
        for (int i = 0; i < 2000; i++) wrong += v[r].x[i] != (float)(2 * i + 1);
        CHECK(!wrong && !gx_failed(&v[r].g), "rank %d: %d of 2000 are wrong; %s", r, wrong, v[r].g.error.message);
        close(end[r][1]);
    }
}

// Who says nothing, but is there, keeps a closing rank for a second at most.
TEST(leaving_does_not_wait_for_a_peer_that_never_reads)
{
    static Victim v;
    int end[2];
    make_pair(end);
    make_rank(&v, 0, end[0]);
    const double begin = gx_seconds();
    gx_comm_close(&v.g);
    CHECK(gx_seconds() - begin < 1.5, "%g s", gx_seconds() - begin);
    GxTcpFrame said;
    CHECK(read(end[1], &said, sizeof said) == (ssize_t)sizeof said && said.kind == GX__TCP_GOODBYE, "no goodbye");
    gx_arena_close(&v.arena);
    close(end[1]);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
