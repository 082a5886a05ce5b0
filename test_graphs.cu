// test_graphs.cu: graphs of operations. What is kept under which key, on a device that only counts (run/graphs.h); what
// a device that has graphs captures, and launches (cuda/graph.cuh). Whole trainings by graphs: test_train_devices.cu.
#include "galaxy.h"
#include "test/test.h"

// ---- what is kept --------------------------------------------------------------------------------------------------

enum { ROWS = 3 };

static struct {
    int is_capturing, captured, launched, compared, closed, ran, marks, fails, warned;
    char said[300];
} seen;

struct GxGraph {
    int number;
};

static void counting_begin(GxContext *g) { (void)g, seen.is_capturing = 1; }
static GxGraph *counting_end(GxContext *g)
{
    seen.is_capturing = 0;
    if (gx_failed(g)) return NULL;
    GxGraph *graph = (GxGraph *)calloc(1, sizeof *graph);
    graph->number = ++seen.captured;
    return graph;
}
static void counting_launch(GxContext *g, const GxGraph *graph) { (void)g, (void)graph, seen.launched++; }
static void counting_close(GxGraph *graph)
{
    seen.closed++;
    free(graph);
}
static void counting_compare(GxContext *g, const GxGraph *kept, const GxGraph *now)
{
    seen.compared++;
    if (kept == now) GX_FAIL(&g->error, GX_ERR_DEVICE, "a graph is compared with itself");
}
static void counting_log(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    seen.warned++;
    snprintf(seen.said, sizeof seen.said, "%s", text);
}

// Writes a gradient, as a backward does.
static void counting_work(GxContext *g, void *store)
{
    seen.ran++;
    if (seen.marks >= 0) ((GxStore *)store)->place[seen.marks].is_written = 1;
    if (seen.fails) GX_FAIL(&g->error, GX_ERR_DEVICE, "the work failed");
}

typedef struct {
    GxContext g;
    GxDevice device;
    GxTable table;
    GxPlace place[ROWS];
    GxStore store;
    GxGraphs *graphs;
    GxGraphKey key;
} Kept;

static void kept_open(Kept *k)
{
    memset(k, 0, sizeof *k), memset(&seen, 0, sizeof seen);
    k->device.computes = 1;
    k->device.graph_begin = counting_begin, k->device.graph_end = counting_end;
    k->device.graph_launch = counting_launch, k->device.graph_close = counting_close;
    k->g.device = &k->device;
    k->g.log.write = counting_log;
    k->table.n = ROWS;
    k->store.table = &k->table, k->store.place = k->place;
    k->key.n = 7, k->key.batch.T = 32, k->key.batch.B = 2;
    CHECK(gx_graphs_open(&k->graphs, &k->store, &k->g.error) == GX_OK, "%s", k->g.error.message);
}
static void kept_close(Kept *k)
{
    gx_graphs_close(k->graphs);
    CHECK(seen.closed == seen.captured, "%d of %d graphs were closed", seen.closed, seen.captured);
}
static void kept_run(Kept *k, int written)
{
    gx_store_begin_window(&k->store);
    if (written >= 0) k->place[written].is_written = 1;
    gx_graphs_run(&k->g, k->graphs, &k->key, counting_work, &k->store);
}
static void saw(const char *what, int ran, int captured, int launched)
{
    CHECK(seen.ran == ran && seen.captured == captured && seen.launched == launched,
          "%s: it ran %d times, not %d; %d captured, not %d; %d launched, not %d", what, seen.ran, ran, seen.captured,
          captured, seen.launched, launched);
}

TEST(the_first_time_runs_the_second_is_captured_and_all_are_launched_from_then_on)
{
    Kept k;
    kept_open(&k);
    kept_run(&k, -1);
    saw("first", 1, 0, 0);
    kept_run(&k, -1);
    saw("second", 2, 1, 1);
    for (int i = 0; i < 3; i++) kept_run(&k, -1);
    saw("fifth", 2, 1, 4);
    k.key.batch.T = 31;
    kept_run(&k, -1);
    saw("another length", 3, 1, 4);
    k.key.batch.T = 32, k.key.scratch = 64;
    kept_run(&k, -1);
    saw("scratch elsewhere", 4, 1, 4);
    k.key.scratch = 0;
    kept_run(&k, -1);
    saw("as before", 4, 1, 5);
    CHECK(!gx_failed(&k.g) && !seen.warned, "%s%s", k.g.error.message, seen.said);
    kept_close(&k);
}

// What the host notes of gradients while it launches is noted where a graph is launched instead.
TEST(gradients_that_are_written_are_part_of_the_key_and_noted_behind_a_graph)
{
    Kept k;
    kept_open(&k);
    seen.marks = 2;
    for (int i = 0; i < 3; i++) kept_run(&k, 0);
    saw("one is written before", 2, 1, 2);
    CHECK(k.place[0].is_written && !k.place[1].is_written && k.place[2].is_written, "%d, %d, %d behind a graph",
          k.place[0].is_written, k.place[1].is_written, k.place[2].is_written);
    kept_run(&k, 1);
    saw("another one is", 3, 1, 2);
    kept_close(&k);
}

TEST(a_device_that_compares_captures_each_time_again)
{
    Kept k;
    kept_open(&k);
    k.device.graph_compare = counting_compare;
    for (int i = 0; i < 4; i++) kept_run(&k, -1);
    saw("four times", 4, 3, 3);
    CHECK(seen.compared == 2 && seen.closed == 2 && !gx_failed(&k.g), "%d compared, %d closed: %s", seen.compared,
          seen.closed, k.g.error.message);
    kept_close(&k);
}

TEST(work_that_fails_is_launched_no_more)
{
    for (int when = 0; when < 3; when++) {
        Kept k;
        kept_open(&k);
        for (int i = 0; i < 4; i++) {
            seen.fails = i >= when;
            k.device.graph_compare = when == 2 ? counting_compare : NULL;
            kept_run(&k, -1);
        }
        saw("failed", when + 1, when == 2, when == 2);
        CHECK(!seen.is_capturing && strstr(k.g.error.message, "the work failed"), "%s", k.g.error.message);
        kept_close(&k);
    }
}

static void run_window(Kept *k, int keys)
{
    for (int i = 0; i < keys; i++) {
        k->key.first = i;
        kept_run(k, -1);
    }
}

// All keys of a window come again in the next. Where they are more than there are places, the first ones have graphs,
// and that there is no room for the others is said once.
TEST(places_are_for_the_keys_that_come_first)
{
    enum { MOST = GX_GRAPHS_MOST, MORE = 9 };
    Kept k;
    kept_open(&k);
    run_window(&k, MOST);
    saw("the first window", MOST, 0, 0);
    CHECK(!seen.warned, "%s", seen.said);
    run_window(&k, MOST);
    saw("the second", 2 * MOST, MOST, MOST);
    CHECK(!seen.warned, "%s", seen.said);
    kept_close(&k);
    kept_open(&k);
    for (int i = 0; i < 4; i++) run_window(&k, MOST + MORE);
    saw("more keys than places", 2 * MOST + 4 * MORE, MOST, 3 * MOST);
    CHECK(seen.warned == 1 && strstr(seen.said, "keeps CUDA graphs of 128 pieces of work"), "%d: %s", seen.warned,
          seen.said);
    kept_close(&k);
}

// ---- collectives between graphs ------------------------------------------------------------------------------------

// What a device and the communicator's two engines are asked for, in order; a number of 0 is not written.
static char asked[300];
static void ask(const char *what, long number)
{
    const size_t used = strlen(asked);
    snprintf(asked + used, sizeof asked - used, "%s%.0ld ", what, number);
}

static int64_t between_start(GxContext *g, const GxCollective *c)
{
    ask(gx_operation_name(c->operation), (long)c->count);
    CHECK(g->unit == 3 && !strcmp(g->site, "out"), "its site is unit %d, %s", g->unit, g->site); // for messages
    if (seen.fails) GX_FAIL(&g->error, GX_ERR_COMM, "rank 1 died");
    return gx_failed(g) ? 0 : 40 + c->count;
}
static void between_wait(GxContext *g, int64_t number) { (void)g, ask("wait", (long)number); }
static int64_t between_newest(const GxContext *g) { return (void)g, 99; }
static const GxDeviceEngine between_device_engine = {"asked", between_start, between_wait, between_newest, NULL};

static GxStatus between_post(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    (void)comm, (void)err;
    for (int i = 0; i < n; i++) list[i].outcome = GX_MESSAGE_DONE;
    ask("host", 0);
    return GX_OK;
}
static int between_poll(GxComm *comm, GxMessage *list, int n, GxError *err)
{
    (void)comm, (void)list, (void)n, (void)err;
    return 0;
}
static int64_t between_events(GxComm *comm) { return (void)comm, 0; }
static void between_abort(GxContext *g, GxComm *comm, const char *message)
{
    (void)g, (void)comm, (void)message;
    ask("abort", 0);
}

static void between_idle(GxContext *g) { (void)g, ask("idle", 0); }
static void between_begin(GxContext *g) { ask("(", 0), counting_begin(g); }
static GxGraph *between_end(GxContext *g) { return ask(")", 0), counting_end(g); }
static void between_launch(GxContext *g, const GxGraph *graph)
{
    counting_launch(g, graph);
    ask("graph", graph->number);
}
static void between_compare(GxContext *g, const GxGraph *kept, const GxGraph *now)
{
    ask("=", now->number - kept->number);
    counting_compare(g, kept, now);
}

typedef struct {
    Kept k;
    GxEngine engine;
    GxComm comm;
    GxMesh mesh;
    GxArena arena;
    int64_t count;   // of the gather's rows
    const char *bad; // what cannot be captured; NULL: all can
    GxTicket before; // of a gather that was started before
} Between;
static char between_memory[1 << 14];

// A sum that is waited for at once; a gather that goes on beside something else.
static void between_work(GxContext *g, void *between)
{
    Between *b = (Between *)between;
    float *x = (float *)between_memory;
    const GxSplit rows = gx_split_even(b->count, 2);
    seen.ran++;
    gx_at(g, 3, "out");
    gx_all_reduce(g, GX_AXIS_TP, GX_SUM, x, 5, GX_F32);
    const GxTicket t = gx_all_gather_start(g, GX_AXIS_TP, &rows, x + 8, x + 8, 1, GX_F32);
    if (b->bad && !strcmp(b->bad, "transfer")) gx_send(g, GX_AXIS_TP, 1, x, 4, GX_F32);
    if (b->bad && !strcmp(b->bad, "host")) gx_barrier(g, GX_AXIS_TP);
    if (b->bad && !strcmp(b->bad, "wait")) gx_wait(g, b->before);
    gx_wait(g, t);
}

static void between_open(Between *b)
{
    const int dims[GX_MESH_AXES] = {1, 1, 1, 1, 2};
    memset(b, 0, sizeof *b);
    kept_open(&b->k);
    GxContext *g = &b->k.g;
    b->k.device.graph_begin = between_begin, b->k.device.graph_end = between_end;
    b->k.device.graph_launch = between_launch;
    b->k.device.wait = between_idle;
    b->engine.post = between_post, b->engine.poll = between_poll, b->engine.events = between_events;
    b->engine.abort = between_abort;
    b->arena.base = between_memory, b->arena.capacity = sizeof between_memory, b->arena.used = 1 << 12;
    g->arena = &b->arena, g->mesh = &b->mesh;
    b->comm.engine = &b->engine, b->comm.world = 2, b->comm.slots = -1, b->count = 6;
    CHECK(gx_mesh_open(&b->mesh, dims, 0, 2, &g->error) == GX_OK && gx_comm_open(g, &b->comm) == GX_OK, "%s",
          g->error.message);
    b->comm.device_engine = &between_device_engine, b->comm.device_state = b;
}
static void between_run(Between *b, const char *what, const char *expected)
{
    asked[0] = 0;
    gx_at(&b->k.g, 1, "elsewhere");
    gx_graphs_run(&b->k.g, b->k.graphs, &b->k.key, between_work, b);
    CHECK(!strcmp(asked, expected), "%s: asked for\n%s, not\n%s", what, asked, expected);
    CHECK(b->comm.device_engine == &between_device_engine && b->comm.device_state == b, "%s: the engine is another",
          what);
}
#define BETWEEN_RUN      "all_reduce5 wait45 all_gather6 wait46 "
#define BETWEEN_CAPTURED "wait99 idle ( ) ( ) ( ) ( ) ( ) " BETWEEN_LAUNCH // not before the card is idle
#define BETWEEN_LAUNCH   "graph1 all_reduce5 graph2 wait45 graph3 all_gather6 graph4 wait46 graph5 "

TEST(collectives_come_between_the_graphs_in_their_order_whether_captured_or_launched)
{
    Between b;
    between_open(&b);
    between_run(&b, "first", BETWEEN_RUN);
    between_run(&b, "captured", BETWEEN_CAPTURED);
    between_run(&b, "launched", BETWEEN_LAUNCH);
    CHECK(seen.ran == 2 && !gx_failed(&b.k.g), "it ran %d times: %s", seen.ran, b.k.g.error.message);
    seen.fails = 1;
    between_run(&b, "a rank is lost", "graph1 all_reduce5 abort ");
    CHECK(strstr(b.k.g.error.message, "rank 1 died"), "%s", b.k.g.error.message);
    kept_close(&b.k);
}

TEST(a_collective_that_has_changed_is_found)
{
    Between b;
    between_open(&b);
    b.k.device.graph_compare = between_compare;
    between_run(&b, "first", BETWEEN_RUN);
    between_run(&b, "captured", BETWEEN_CAPTURED);
    between_run(&b, "compared", "( ) ( ) ( ) ( ) ( ) =5 =5 =5 =5 =5 " BETWEEN_LAUNCH);
    CHECK(!gx_failed(&b.k.g), "%s", b.k.g.error.message);
    b.count = 7;
    between_run(&b, "another gather", "( ) ( ) ( ) ( ) ( ) =10 =10 =10 ");
    CHECK(strstr(b.k.g.error.message, "not what would be asked for without graphs: the one after graph 2 (unit 3, "),
          "%s", b.k.g.error.message);
    kept_close(&b.k);
}

TEST(what_cannot_come_between_graphs_is_refused_when_it_is_captured)
{
    static const char *const bad[][2] = {{"transfer", "transfers (unit 3, out) in work that is captured"},
                                         {"host", "a collective of the host's buffers in work that is captured"},
                                         {"wait", "waits for a collective that was started before (unit 3, out)"}};
    for (int i = 0; i < 3; i++) {
        Between b;
        between_open(&b);
        between_run(&b, "first", BETWEEN_RUN);
        gx_at(&b.k.g, 3, "out");
        const GxSplit rows = gx_split_even(6, 2);
        float *x = (float *)between_memory;
        b.before = gx_all_gather_start(&b.k.g, GX_AXIS_TP, &rows, x, x, 1, GX_F32);
        b.bad = bad[i][0];
        asked[0] = 0;
        gx_graphs_run(&b.k.g, b.k.graphs, &b.k.key, between_work, &b);
        CHECK(strstr(b.k.g.error.message, bad[i][1]) && !seen.is_capturing && !seen.launched, "%s: %s", bad[i][0],
              b.k.g.error.message);
        CHECK(b.comm.device_engine == &between_device_engine, "the engine is another");
        kept_close(&b.k);
    }
}

#ifdef GX_WITH_CUDA
// ---- what a device captures ----------------------------------------------------------------------------------------

enum { N = 1000 };

typedef struct {
    GxContext g;
    GxArena arena, host;
    float *x, *y, host_copy[N];
} Device;

static int device_open(Device *d)
{
    memset(d, 0, sizeof *d);
    d->g.device = gx_default_device();
    if (!d->g.device->graph_begin) return 0;
    if (!CHECK(gx_device_open(&d->g) == GX_OK && gx_arenas_open(&d->g, &d->arena, &d->host, 1 << 20, 1 << 10) == GX_OK,
               "%s", d->g.error.message))
        return 0;
    d->x = (float *)gx_arena_allocate(&d->arena, GX_MEM_ACTIVATIONS, 4 * N);
    d->y = (float *)gx_arena_allocate(&d->arena, GX_MEM_ACTIVATIONS, 4 * N);
    return 1;
}
static void device_close(Device *d)
{
    gx_arenas_close(&d->g, &d->arena, &d->host);
    gx_device_close(&d->g);
}
static void device_set(Device *d, float *to, float value)
{
    for (int i = 0; i < N; i++) d->host_copy[i] = value;
    gx_to_device(&d->g, to, d->host_copy, 4 * N);
}
static void device_has(Device *d, const char *what, float value)
{
    gx_to_host(&d->g, d->host_copy, d->y, 4 * N);
    for (int i = 0; i < N; i += N - 1)
        CHECK(d->host_copy[i] == value, "%s: y[%d] is %g, not %g: %s", what, i, d->host_copy[i], value,
              d->g.error.message);
}
static GxGraph *scaled(Device *d, float factor) // y = factor x
{
    d->g.device->graph_begin(&d->g);
    gx_scale(&d->g, d->y, d->x, N, factor, GX_F32);
    return d->g.device->graph_end(&d->g);
}

TEST(a_graph_runs_when_it_is_launched_on_what_is_in_memory_then)
{
    Device d;
    if (!CHECK(device_open(&d), "no graphs: %s", d.g.error.message)) return;
    device_set(&d, d.x, 3), device_set(&d, d.y, -1);
    GxGraph *twice = scaled(&d, 2), *thrice = scaled(&d, 3);
    if (!CHECK(twice && thrice, "%s", d.g.error.message)) return;
    device_has(&d, "captured", -1);
    d.g.device->graph_launch(&d.g, twice);
    device_has(&d, "launched", 6);
    device_set(&d, d.x, 5);
    d.g.device->graph_launch(&d.g, twice);
    device_has(&d, "launched again", 10);
    d.g.device->graph_launch(&d.g, thrice);
    d.g.device->graph_close(thrice); // under way
    device_has(&d, "another one", 15);
    CHECK(!gx_failed(&d.g), "%s", d.g.error.message);
    d.g.device->graph_close(twice);
    device_close(&d);
}

TEST(an_argument_that_has_changed_is_found)
{
    Device d;
    if (!CHECK(device_open(&d), "no graphs: %s", d.g.error.message)) return;
    if (!d.g.device->graph_compare) SKIP("only the emulator knows the bytes of arguments");
    GxGraph *kept = scaled(&d, 2), *same = scaled(&d, 2), *stale = scaled(&d, 2.5f);
    d.g.device->graph_compare(&d.g, kept, same);
    CHECK(!gx_failed(&d.g), "%s", d.g.error.message);
    d.g.device->graph_compare(&d.g, kept, stale);
    CHECK(strstr(d.g.error.message, "differs from what would be launched without it: operation 0, kernel"), "%s",
          d.g.error.message);
    GxGraph *all[] = {kept, same, stale};
    for (int i = 0; i < 3; i++) d.g.device->graph_close(all[i]);
    device_close(&d);
}

TEST(the_host_neither_waits_nor_passes_bytes_while_it_captures)
{
    static const char *const words[] = {"to_host (unit 3, head)", "to_device (unit 3, head)",
                                        "a wait for the device (unit 3, head)"};
    Device d;
    if (!CHECK(device_open(&d), "no graphs: %s", d.g.error.message)) return;
    for (int what = 0; what < 3; what++) {
        gx_error_clear(&d.g.error);
        device_set(&d, d.x, 4), device_set(&d, d.y, 0);
        gx_at(&d.g, 3, "head");
        d.g.device->graph_begin(&d.g);
        gx_scale(&d.g, d.y, d.x, N, 2, GX_F32);
        if (what == 0) gx_to_host(&d.g, d.host_copy, d.y, 4 * N);
        else if (what == 1) gx_to_device(&d.g, d.x, d.host_copy, 4 * N);
        else gx_device_wait(&d.g);
        CHECK(!d.g.device->graph_end(&d.g) && strstr(d.g.error.message, words[what]), "%s", d.g.error.message);
        gx_error_clear(&d.g.error);
        gx_scale(&d.g, d.y, d.x, N, 0.5f, GX_F32); // no longer captured
        device_has(&d, words[what], 2);
    }
    device_close(&d);
}
#endif

int main(int argc, char **argv)
{
    setenv("GX_EMU_GRAPHS", "compare", 1); // before a device is asked for
    return test_main(argc, argv);
}
