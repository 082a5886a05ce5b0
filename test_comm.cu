// test_comm.cu: layouts, collectives on threads, on TCP and on MPI.
//
//     ./test_comm [name ...]                  all tests; where mpirun is found, they start this program under it
//     mpirun -np 3 ./test_comm --mpi          the collectives' properties, one process per rank; the tests hold the
//                                             hashes against those of threads
//     mpirun -np 3 ./test_comm --mpi kill     (or mismatch, fail, leave, stall): rank 1 goes wrong in this way
#include "galaxy/base/random.h"
#include "rooms/comm.c" // looks inside
#include "galaxy/parallel/layout.h"
#include "galaxy/comm/mpi.h"
#include "galaxy/comm/tcp.h"
#include "galaxy/comm/threads.h"
#include "test/test.h"
#include <signal.h>

// ---- layouts -------------------------------------------------------------------------------------------------------
static const GxMethod NONE = GX_METHOD_NONE, TP = GX_METHOD_TP, SP = GX_METHOD_SP;

TEST(eighteen_triples_of_methods_are_valid_and_con_by_tp_is_not)
{
    int valid = 0;
    for (int m = 0; m < 27; m++) {
        const GxMethods methods = gx_methods((GxMethod)(m / 9), (GxMethod)(m / 3 % 3), (GxMethod)(m % 3));
        GxError err = GX_ZERO;
        if (gx_methods_check(methods, &err) == GX_OK) valid++;
        else CHECK(methods.con == TP && strstr(err.message, "CON by TP"), "%s", err.message);
    }
    CHECK(valid == 18, "%d triples are valid", valid);
    const GxMethods odd = gx_methods((GxMethod)7, NONE, NONE);
    GxError err = GX_ZERO;
    CHECK(gx_methods_check(odd, &err) == GX_ERR_ARGUMENT && strstr(err.message, "ATT"), "%s", err.message);
}

// The four doors of a layer.
typedef struct {
    const char *name;
    GxMove move;
} Door;
enum { LAYER_DOORS = 4 };

static void doors_of_layer(GxMethods m, Door *door)
{
    const Door doors[LAYER_DOORS] = {{gx_door_name(GX_CORE_ATT, GX_ENTRY), gx_core_entry(m.att, m.con)},
                                     {gx_door_name(GX_CORE_ATT, GX_EXIT), gx_core_exit(m.att, m.con)},
                                     {gx_door_name(GX_CORE_MLP, GX_ENTRY), gx_core_entry(m.mlp, m.con)},
                                     {gx_door_name(GX_CORE_MLP, GX_EXIT), gx_core_exit(m.mlp, m.con)}};
    memcpy(door, doors, sizeof doors);
}

static void has_moves(const char *name, GxMethods m, const char *expected)
{
    Door door[LAYER_DOORS];
    char text[400] = "";
    doors_of_layer(m, door);
    for (int i = 0; i < LAYER_DOORS; i++) {
        const GxTransition t = door[i].move.move;
        if (t.forward == GX_MOVE_NONE && t.backward == GX_MOVE_NONE) continue;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s/%s; ", door[i].name, gx_move_name(t.forward),
                 gx_move_name(t.backward));
    }
    CHECK(!strcmp(text, expected), "%s: %s", name, text);
}

TEST(published_modes_have_their_published_collectives)
{
    has_moves(
        "TP", gx_methods(TP, NONE, TP),
        "att_entry none/all_reduce; att_exit all_reduce/none; mlp_entry none/all_reduce; mlp_exit all_reduce/none; ");
    has_moves("SP", gx_methods(SP, SP, SP), ""); // K and V inside attention: see demands_of_all_modes_are_their_moves
    has_moves("Galaxy", gx_methods(TP, SP, TP),
              "att_entry all_gather/reduce_scatter; att_exit reduce_scatter/all_gather; "
              "mlp_entry all_gather/reduce_scatter; mlp_exit reduce_scatter/all_gather; ");
    has_moves("Galaxy2", gx_methods(TP, SP, SP),
              "att_entry all_gather/reduce_scatter; att_exit reduce_scatter/all_gather; ");
    has_moves("None, SP, None", gx_methods(NONE, SP, NONE),
              "att_entry all_gather/slice; att_exit slice/all_gather; mlp_entry all_gather/slice; mlp_exit "
              "slice/all_gather; ");
    has_moves("None", gx_methods(NONE, NONE, NONE), "");
}

TEST(half_collectives_of_a_step_are_as_published)
{
    const struct {
        const char *name;
        GxMethods methods;
        int per_layer;
    } mode[] = {{"TP", gx_methods(TP, NONE, TP), 8},
                {"Galaxy", gx_methods(TP, SP, TP), 8},
                {"SP", gx_methods(SP, SP, SP), 4},
                {"Galaxy2", gx_methods(TP, SP, SP), 4}};
    for (int i = 0; i < 4; i++) {
        const GxMethods m = mode[i].methods, vocabulary = {m.att, m.con, m.mlp, TP}; // published by rows of it
        const double ends = gx_move_halves(gx_core_exit(vocabulary.ends, vocabulary.con)) +
                            gx_move_halves(gx_core_entry(vocabulary.ends, vocabulary.con)),
                     layer = gx_layer_halves(m, 1);
        CHECK(layer == mode[i].per_layer && ends == 4, "%s: %gL + %g, expected %dL + 4", mode[i].name, layer, ends,
              mode[i].per_layer);
    }
    const double quarter = gx_layer_halves(gx_methods(SP, SP, SP), 0.25);
    CHECK(quarter == 1, "SP with a quarter of the K,V heads: %g", quarter);
}

// Every valid triple with each method of the ends.
static GxMethods methods_of(int m)
{
    const GxMethods methods = {(GxMethod)(m / 18), m / 9 % 2 ? SP : NONE, (GxMethod)(m / 3 % 3), (GxMethod)(m % 3)};
    return methods;
}
enum { ALL_METHODS = 54 };

// The list of a whole micro-batch against the moves that it is made of, in half-collectives of [rows, width]; and what
// a shorter list does.
TEST(demands_of_all_modes_are_their_moves)
{
    const GxDemandShape s = {3, 40, 32, 20, 8, 7};      // the head works on half of the rows
    const GxDemandShape by_row = {3, 40, 32, 20, 8, 1}; // one by one
    for (int i = 0; i < ALL_METHODS; i++) {
        const GxMethods m = methods_of(i);
        GxDemand list[100], three[3];
        const int n = gx_demands(m, &s, list, 100);
        const double half = 40 * 32 * 4, loss = m.ends == TP ? 2 * (1 + 2) * 20 * 4 : 0; // per other rank
        const double halves = 3 * gx_layer_halves(m, 0.25) + gx_move_halves(gx_core_exit(m.ends, m.con)) +
                              0.5 * gx_move_halves(gx_core_entry(m.ends, m.con));
        double bytes = 0;
        int of_loss = 0;
        for (int d = 0; d < n; d++)
            bytes += (double)gx_demand_bytes(&list[d], 3), of_loss += !strcmp(list[d].site, "head_inside");
        CHECK(bytes == 2 * (halves * half + loss), "methods %d: %g bytes, their moves have %g", i, bytes,
              2 * (halves * half + loss));
        CHECK(of_loss == (m.ends == TP ? 2 * 3 : 0), "methods %d: %d sums for 3 chunks", i, of_loss);
        CHECK(gx_demands(m, &by_row, NULL, 0) - n == (m.ends == TP ? 2 * (20 - 3) : 0), "methods %d: row by row", i);
        memset(three, 0, sizeof three);
        CHECK(gx_demands(m, &s, three, 3) == n, "methods %d: a short list", i);
        if (n < 3) continue;
        CHECK(three[2].unit == list[2].unit && three[2].site == list[2].site, "methods %d: a short list", i);
        CHECK(gx_demand_bytes(&list[0], 1) == 0, "methods %d: one rank sends %ld bytes", i,
              (long)gx_demand_bytes(&list[0], 1));
    }
    const int none = gx_demands(gx_methods(NONE, NONE, NONE), &s, NULL, 0);
    CHECK(none == 0, "a mode that splits nothing demands %d collectives", none);
}

// What a collective does to a layout, written down independently: the end of every move must be where the next block
// starts, and the backward move must be its conjugate.
TEST(moves_of_all_modes_lead_where_they_say)
{
    for (int m = 0; m < ALL_METHODS; m += 3) { // the ends are not of the layer
        Door door[LAYER_DOORS];
        doors_of_layer(methods_of(m), door);
        for (int i = 0; i < LAYER_DOORS; i++) {
            const GxMove move = door[i].move;
            const GxMoveKind f = move.move.forward, b = move.move.backward;
            const GxLayout to = f == GX_MOVE_NONE                                    ? move.from
                                : f == GX_MOVE_ALL_REDUCE || f == GX_MOVE_ALL_GATHER ? GX_LAYOUT_FULL
                                                                                     : GX_LAYOUT_SEQ;
            CHECK(to == move.to, "methods %d, %s: %s does not lead to %s", m, door[i].name, gx_move_name(f),
                  gx_layout_name(move.to));
            const GxLayout back = b == GX_MOVE_NONE                                    ? to
                                  : b == GX_MOVE_ALL_REDUCE || b == GX_MOVE_ALL_GATHER ? GX_LAYOUT_FULL
                                                                                       : GX_LAYOUT_SEQ;
            const GxLayout need = move.from == GX_LAYOUT_SEQ
                                      ? GX_LAYOUT_SEQ
                                      : GX_LAYOUT_FULL; // the gradient of a summand is the sum's, whole
            CHECK(back == need, "methods %d, %s: backward %s leads to %s", m, door[i].name, gx_move_name(b),
                  gx_layout_name(back));
        }
    }
}

TEST(gradients_are_summed_over_tp_where_ranks_compute_different_parts)
{
    CHECK(!gx_grad_sums_over_tp(GX_LAYOUT_FULL, GX_USE_WHOLE), "a norm on FULL rows: all compute the same");
    CHECK(gx_grad_sums_over_tp(GX_LAYOUT_SEQ, GX_USE_WHOLE), "a norm on SEQ rows");
    CHECK(!gx_grad_sums_over_tp(GX_LAYOUT_FULL, GX_USE_SPLIT) && !gx_grad_sums_over_tp(GX_LAYOUT_PARTIAL, GX_USE_SPLIT),
          "a column-parallel matrix");
    CHECK(gx_grad_sums_over_tp(GX_LAYOUT_FULL, GX_USE_OWN_SHARE), "q_norm on own heads");
    CHECK(gx_grad_sums_over_tp(GX_LAYOUT_PARTIAL, GX_USE_WHOLE), "LoRA's B on a summand");
}

// ---- ranks as threads ----------------------------------------------------------------------------------------------
typedef struct Job Job;
typedef struct {
    Job *job;
    GxContext g;
    GxComm comm;
    GxMesh mesh;
    GxArena arena;
    GxRecorder recorder;
    uint64_t hash;  // of all results
    double seconds; // until it returned
    pthread_t thread;
} Rank;
struct Job {
    int world;
    void (*run)(Rank *);
    double timeout;
    int64_t chunk;
    int slots, no_background;
    int variant;
    int64_t most; // elements of a sum, scatter or gather; 0: any
    GxThreadsGroup *group;
    int port; // of TCP on 127.0.0.1
    Rank rank[8];
};

// Tests of what every engine promises run on each that needs no launcher; on TCP, too, a rank is a thread here.
static enum { ON_THREADS = 0, ON_TCP } engine;
#define TEST_OF_ENGINES(name)                                                                                          \
    static void name(void);                                                                                            \
    TEST(threads_##name) { engine = ON_THREADS, name(); }                                                              \
    TEST(tcp_##name) { engine = ON_TCP, name(); }                                                                      \
    static void name(void)

static void open_mesh(GxMesh *m, int rank, int world, GxError *err)
{
    int dims[5] = {1, 1, -1, 1, world % 2 ? world : 2}; // 4: two groups of two
    gx_mesh_open(m, dims, rank, world, err);
}

static void open_rank(Rank *r)
{
    Job *job = r->job;
    open_mesh(&r->mesh, r->comm.rank, r->comm.world, &r->g.error);
    gx_arena_open(&r->arena, 16 << 20, &r->g.error);
    r->g.arena = &r->arena;
    r->g.mesh = &r->mesh;
    r->comm.timeout = job->timeout > 0 ? job->timeout : 20;
    r->comm.chunk = job->chunk;
    r->comm.slots = job->slots, r->comm.no_background = job->no_background;
    gx_comm_open(&r->g, &r->comm);
}

// A port of 127.0.0.1 that nobody has just now.
static int free_port(void)
{
    GxEndpoint e;
    memset(&e, 0, sizeof e);
    e.four.sin_family = AF_INET;
    e.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = gx_socket_listen(&e);
    e = gx_socket_endpoint(fd, 0);
    gx_socket_close(&fd);
    return gx_endpoint_port(&e);
}

static GxRendezvous by_hand(int rank, int world, int port)
{
    GxRendezvous r = GX_ZERO;
    GxError err = GX_ZERO;
    char address[40];
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", port);
    CHECK(gx_rendezvous_address(&r, rank, world, address, &err) == GX_OK, "%s", err.message);
    r.timeout = 20;
    return r;
}

static void *rank_main(void *argument)
{
    Rank *r = (Rank *)argument;
    const int rank = (int)(r - r->job->rank);
    if (engine == ON_TCP) {
        GxRendezvous meeting = by_hand(rank, r->job->world, r->job->port);
        CHECK(gx_tcp_comm(&r->comm, &meeting, &r->g.error) == GX_OK, "%s", r->g.error.message);
    } else gx_threads_comm(&r->comm, r->job->group, rank);
    double begin = gx_seconds();
    open_rank(r);
    r->job->run(r);
    gx_comm_close(&r->g);
    gx_recorder_close(&r->recorder);
    gx_arena_close(&r->arena);
    r->seconds = gx_seconds() - begin;
    return NULL;
}

static void run_job(Job *job)
{
    GxError err = GX_ZERO;
    CHECK(gx_threads_group_open(&job->group, job->world, &err) == GX_OK, "%s", err.message);
    job->port = free_port();
    for (int i = 0; i < job->world; i++) {
        job->rank[i].job = job;
        pthread_create(&job->rank[i].thread, NULL, rank_main, &job->rank[i]);
    }
    for (int i = 0; i < job->world; i++) pthread_join(job->rank[i].thread, NULL);
    gx_threads_group_close(job->group);
}

// ---- properties of the collectives, the same for every engine ------------------------------------------------------
enum { SUM_DTYPES = 5 };
static const GxDtype sum_dtypes[SUM_DTYPES] = {GX_F32, GX_F64, GX_I32, GX_I64, GX_BF16};

static void *room(int64_t bytes) { return calloc(1, (size_t)bytes + 64); }

// What rank `rank` puts into case `seed`: known to all, so that each can compute what should come out.
static void fill(void *x, GxDtype dtype, int64_t n, uint64_t seed, int rank)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = gx_random_bits(seed, (uint64_t)i, (uint32_t)rank, 1);
        double real = (double)(int32_t)bits * (1 + (double)(bits % 1000)); // many magnitudes: the order of a sum shows
        switch (dtype) {
        case GX_F32: ((float *)x)[i] = (float)real; break;
        case GX_F64: ((double *)x)[i] = real / 3; break;
        case GX_I32: ((int32_t *)x)[i] = (int32_t)bits; break;
        case GX_I64: ((int64_t *)x)[i] = (int64_t)((uint64_t)bits << 30); break;
        case GX_BF16: ((uint16_t *)x)[i] = gx_to_bf16((float)real); break;
        case GX_F16: ((uint16_t *)x)[i] = (uint16_t)bits; break;
        default: ((uint8_t *)x)[i] = (uint8_t)bits;
        }
    }
}

#define REDUCE_INTO(type, adding)                                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type *s = (type *)sum + i, v = ((const type *)x)[i];                                                           \
        *s = reduce == GX_MAX ? (v > *s ? v : *s) : (type)((adding)*s + (adding)v);                                    \
    }

static void reference(void *sum, GxDtype dtype, GxReduce reduce, int64_t n, uint64_t seed, const int *ranks,
                      int members)
{
    fill(sum, dtype, n, seed, ranks[0]);
    void *x = room(n * 8);
    float *wide = (float *)room(n * 4); // of bf16: summed in fp32, rounded once
    for (int64_t i = 0; i < n && dtype == GX_BF16; i++) wide[i] = gx_from_bf16(((uint16_t *)sum)[i]);
    for (int r = 1; r < members; r++) {
        fill(x, dtype, n, seed, ranks[r]);
        if (dtype == GX_F32) REDUCE_INTO(float, float)
        if (dtype == GX_F64) REDUCE_INTO(double, double)
        if (dtype == GX_I32) REDUCE_INTO(int32_t, uint32_t)
        if (dtype == GX_I64) REDUCE_INTO(int64_t, uint64_t)
        for (int64_t i = 0; i < n && dtype == GX_BF16; i++) {
            const float v = gx_from_bf16(((uint16_t *)x)[i]);
            wide[i] = reduce == GX_MAX ? (v > wide[i] ? v : wide[i]) : wide[i] + v;
        }
    }
    for (int64_t i = 0; i < n && dtype == GX_BF16; i++) ((uint16_t *)sum)[i] = gx_to_bf16(wide[i]);
    free(wide);
    free(x);
}

static void keep(Rank *r, const void *x, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) r->hash = (r->hash ^ ((const uint8_t *)x)[i]) * 1099511628211ull; // FNV-1a
}

static GxSplit some_split(int kind, int64_t total, int n)
{
    GxSplit s = gx_split_even(total, n);
    for (int p = 1; p < n && kind == 1; p++) s.begin[p] = 0;                       // all to the last
    for (int p = 1; p < n && kind == 2; p++) s.begin[p] = total * p * p / (n * n); // growing
    for (int p = 2; p < n && kind == 3; p++) s.begin[p] = s.begin[1];              // nothing in the middle
    return s;
}

static void reduces_in_rank_order(Rank *r, int axes, const int *ranks, int members)
{
    GxContext *g = &r->g;
    const int64_t sizes[] = {0, 1, 2, 3, 5, 127, 128, 129, 255, 256, 257, 258, 511, 513, 1000, 3001};
    for (int d = 0; d < SUM_DTYPES; d++)
        for (int op = 0; op < 2; op++)
            for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                int64_t n = sizes[k], bytes = n * gx_dtype_size(sum_dtypes[d]);
                if (r->job->most && n > r->job->most) continue;
                uint64_t seed = (uint64_t)(100 * k + 10 * (unsigned)d + (unsigned)op);
                void *x = room(bytes), *sum = room(bytes);
                fill(x, sum_dtypes[d], n, seed, g->rank);
                reference(sum, sum_dtypes[d], (GxReduce)op, n, seed, ranks, members);
                gx_all_reduce(g, axes, (GxReduce)op, x, n, sum_dtypes[d]);
                CHECK(!memcmp(x, sum, (size_t)bytes), "rank %d: all_reduce %d of %ld %s is not the sum in rank order",
                      g->rank, op, (long)n, gx_dtype_name(sum_dtypes[d]));
                keep(r, x, bytes);
                free(x);
                free(sum);
            }
}

static void scatter_and_gather_are_all_reduce(Rank *r, int axes, const int *ranks, int members)
{
    GxContext *g = &r->g;
    int me = gx_mesh_index(g->mesh, axes);
    const int64_t rows_of[] = {1, 3, 4, 7, 130, 801};
    for (int variant = 0; variant < 6 * SUM_DTYPES * 4 * 2; variant++) {
        int64_t rows = rows_of[variant % 6], row = variant % 5 == 0 ? 1 : 3, n = rows * row;
        if (r->job->most && n > r->job->most) continue;
        GxDtype dtype = sum_dtypes[variant / 6 % SUM_DTYPES];
        GxSplit split = some_split(variant / (6 * SUM_DTYPES) % 4, rows, members);
        int in_place = variant / (6 * SUM_DTYPES * 4);
        int64_t size = gx_dtype_size(dtype), own = gx_split_part(&split, me) * row * size,
                first = split.begin[me] * row * size;
        char *partial = (char *)room(n * size), *sum = (char *)room(n * size), *full = (char *)room(n * size),
             *mine = (char *)room(own);
        fill(partial, dtype, n, (uint64_t)variant, g->rank);
        reference(sum, dtype, GX_SUM, n, (uint64_t)variant, ranks, members);
        char *part = in_place ? partial + first : mine;
        gx_reduce_scatter(g, axes, &split, part, partial, row, dtype);
        CHECK(!memcmp(part, sum + first, (size_t)own), "rank %d: reduce_scatter of %ld rows, split %d, in place %d",
              g->rank, (long)rows, variant / (6 * SUM_DTYPES) % 4, in_place);
        if (in_place) memcpy(full + first, part, (size_t)own);
        gx_all_gather(g, axes, &split, full, in_place ? full + first : part, row, dtype);
        CHECK(!memcmp(full, sum, (size_t)(n * size)), "rank %d: all_gather of %ld rows, split %d, in place %d", g->rank,
              (long)rows, variant / (6 * SUM_DTYPES) % 4, in_place);
        keep(r, full, n * size);
        free(partial);
        free(sum);
        free(full);
        free(mine);
    }
}

static int64_t rows_between(int from, int to) { return (from * 3 + to * 2 + 1) % 4; }

static void all_to_all_is_a_transpose(Rank *r, int axes, const int *ranks, int members)
{
    GxContext *g = &r->g;
    int me = gx_mesh_index(g->mesh, axes);
    GxSplit send = gx_split_even(0, members), recv = send, other;
    for (int i = 0; i < members; i++) {
        send.begin[i + 1] = send.begin[i] + rows_between(me, i);
        recv.begin[i + 1] = recv.begin[i] + rows_between(i, me);
    }
    uint16_t out[64], in[64] = {0}, from[64];
    fill(out, GX_BF16, gx_split_total(&send) * 2, 5, g->rank);
    gx_all_to_all(g, axes, &send, out, &recv, in, 2, GX_BF16);
    for (int i = 0; i < members; i++) {
        other = send;
        for (int k = 0; k < members; k++) other.begin[k + 1] = other.begin[k] + rows_between(i, k);
        fill(from, GX_BF16, gx_split_total(&other) * 2, 5, ranks[i]);
        CHECK(!memcmp(in + recv.begin[i] * 2, from + other.begin[me] * 2, (size_t)gx_split_part(&recv, i) * 4),
              "rank %d: part of member %d", g->rank, i);
    }
    keep(r, in, gx_split_total(&recv) * 4);
}

static void broadcast_reaches_all(Rank *r, int axes, const int *ranks, int members)
{
    uint8_t x[301], expected[301];
    for (int root = 0; root < members; root++) {
        fill(x, GX_U8, 301, 9, r->g.rank);
        fill(expected, GX_U8, 301, 9, ranks[root]);
        gx_broadcast(&r->g, axes, root, x, 301, GX_U8);
        CHECK(!memcmp(x, expected, 301), "rank %d: broadcast from member %d", r->g.rank, root);
        keep(r, x, 301);
        gx_barrier(&r->g, axes);
    }
}

// A ring: all send to the right and receive from the left at once; then two channels, received against the order in
// which they were sent.
static void transfers_arrive(Rank *r, int axes, const int *ranks, int members)
{
    GxContext *g = &r->g;
    int me = gx_mesh_index(g->mesh, axes), right = (me + 1) % members, left = (me + members - 1) % members;
    if (members == 1) return;
    float out[2][500], in[500], expected[500];
    fill(out, GX_F32, 1000, 11, g->rank);
    fill(expected, GX_F32, 500, 11, ranks[left]);
    GxTransfer ring[2] = {{right, 1, 0, out[0], 500, GX_F32}, {left, 0, 0, in, 500, GX_F32}};
    gx_transfer(g, axes, ring, 2);
    CHECK(!memcmp(in, expected, sizeof in), "rank %d: the ring", g->rank);
    keep(r, in, sizeof in);
    if (me == 0) {
        GxTransfer two[2] = {{1, 1, 2, out[0], 300, GX_F32}, {1, 1, 3, out[1], 300, GX_F32}};
        gx_transfer(g, axes, two, 2);
        gx_recv(g, axes, 1, in, 7, GX_F32);
    } else if (me == 1) {
        float both[2][500];
        fill(both, GX_F32, 1000, 11, ranks[0]);
        for (int channel = 3; channel >= 2; channel--) {
            GxTransfer one = {0, 0, channel, in, 300, GX_F32};
            gx_transfer(g, axes, &one, 1);
            CHECK(!memcmp(in, both[channel - 2], 1200), "channel %d", channel);
        }
        gx_send(g, axes, 0, in, 7, GX_F32);
    }
}

// Three in flight, waited for in different orders, with blocking ones between, and a third sum, of which two may be.
static void several_in_flight(Rank *r, int axes, const int *ranks, int members)
{
    GxContext *g = &r->g;
    int me = gx_mesh_index(g->mesh, axes), n = 700;
    GxSplit split = some_split(2, n, members);
    float *x = (float *)room(n * 4), *partial = (float *)room(n * 4), *full = (float *)room(n * 4),
          *mine = (float *)room(n * 4), *sum = (float *)room(n * 4);
    int64_t one = 1;
    for (int round = 0; round < 20; round++) {
        fill(x, GX_F32, n, 20, g->rank);
        fill(partial, GX_F32, n, 21, g->rank);
        fill(full + split.begin[me], GX_F32, gx_split_part(&split, me), 22, g->rank);
        GxTicket a = gx_all_reduce_start(g, axes, GX_SUM, x, n, GX_F32);
        GxTicket b = gx_reduce_scatter_start(g, axes, &split, mine, partial, 1, GX_F32);
        if (round == 0) CHECK(members == 1 || (a.slot == 1 && b.slot == 2), "slots %d and %d", a.slot, b.slot);
        gx_all_reduce(g, axes, GX_SUM, &one, 1, GX_I64);
        const GxTicket third = gx_all_reduce_start(g, axes, GX_SUM, &one, 1, GX_I64);
        CHECK(third.slot == 0, "a third sum got slot %d", third.slot);
        GxTicket c = gx_all_gather_start(g, axes, &split, full, full + split.begin[me], 1, GX_F32);
        CHECK(members == 1 || c.slot == (gx_comm_slots(&r->comm) > 2 ? 3 : 0), "a gather got slot %d", c.slot);
        if (me % 2) gx_wait(g, a), gx_wait(g, b), gx_wait(g, a);
        else gx_wait(g, b), gx_wait(g, a), gx_wait(g, b);
        gx_wait(g, c);
        reference(sum, GX_F32, GX_SUM, n, 20, ranks, members);
        CHECK(!memcmp(x, sum, (size_t)n * 4), "rank %d: started all_reduce", g->rank);
        reference(sum, GX_F32, GX_SUM, n, 21, ranks, members);
        CHECK(!memcmp(mine, sum + split.begin[me], (size_t)gx_split_part(&split, me) * 4),
              "rank %d: started reduce_scatter", g->rank);
        for (int i = 0; i < members; i++) {
            fill(sum, GX_F32, gx_split_part(&split, i), 22, ranks[i]);
            CHECK(!memcmp(full + split.begin[i], sum, (size_t)gx_split_part(&split, i) * 4),
                  "rank %d: started all_gather, part %d", g->rank, i);
        }
        keep(r, x, n * 4);
    }
    free(x);
    free(partial);
    free(full);
    free(mine);
    free(sum);
}

static void all_properties(Rank *r)
{
    const int masks[] = {GX_AXIS_TP, GX_AXIS_DP_SHARD, GX_AXIS_ALL}; // 4 ranks: sub-groups of two talk at the same time
    int64_t used = r->arena.used;
    r->hash = 14695981039346656037ull;
    for (int i = 0; i < 3; i++) {
        int ranks[8], members = gx_mesh_group(r->g.mesh, masks[i], ranks, 8, NULL);
        if (masks[i] == GX_AXIS_ALL && gx_mesh_size(r->g.mesh, GX_AXIS_TP) == members) continue; // the same once more
        reduces_in_rank_order(r, masks[i], ranks, members);
        scatter_and_gather_are_all_reduce(r, masks[i], ranks, members);
        all_to_all_is_a_transpose(r, masks[i], ranks, members);
        broadcast_reaches_all(r, masks[i], ranks, members);
        transfers_arrive(r, masks[i], ranks, members);
        several_in_flight(r, masks[i], ranks, members);
    }
    CHECK(!gx_failed(&r->g), "rank %d: %s", r->g.rank, r->g.error.message);
    CHECK(r->arena.used == used, "%ld bytes of scratch were not given back", (long)(r->arena.used - used));
    int64_t beyond = 0;
    for (int64_t i = r->arena.peak; i < r->arena.capacity; i++) beyond += r->arena.base[i] != 0;
    CHECK(beyond == 0, "%ld bytes were written behind what was taken", (long)beyond);
}

// The hash of each rank's results, on so many ranks of an engine; they run once for all tests that ask.
enum { MOST_RANKS = 5 };
static const uint64_t *hashes_of(int of_engine, int world)
{
    static uint64_t known[2][MOST_RANKS + 1][MOST_RANKS];
    uint64_t *hash = known[of_engine][world];
    if (hash[0]) return hash;
    Job job = GX_ZERO;
    engine = of_engine ? ON_TCP : ON_THREADS;
    job.world = world;
    job.run = all_properties;
    job.chunk = 1024; // 256 fp32: several chunks
    run_job(&job);
    for (int i = 0; i < world; i++) CHECK((hash[i] = job.rank[i].hash) != 0, "rank %d of %d has no hash", i, world);
    return hash;
}

TEST_OF_ENGINES(collectives_keep_their_promises_on_1_to_5_ranks)
{
    for (int world = 1; world <= MOST_RANKS; world++) hashes_of(engine, world);
}

TEST(chunk_size_changes_no_bit)
{
    engine = ON_THREADS;
    uint64_t hash[3][3];
    const int64_t chunk[3] = {1, 192, 1 << 20}; // 1 is rounded up to a cache line
    for (int k = 0; k < 3; k++) {
        Job job = GX_ZERO;
        job.world = 3;
        job.run = all_properties;
        job.chunk = chunk[k];
        job.most = 600; // of fp64: 75 of the smallest chunks
        run_job(&job);
        for (int i = 0; i < 3; i++) hash[k][i] = job.rank[i].hash;
    }
    CHECK(!memcmp(hash[0], hash[1], sizeof hash[0]) && !memcmp(hash[0], hash[2], sizeof hash[0]),
          "the results depend on the chunk");
}

// Messages of many segments, more than the system's buffers hold, all ways at once and two operations in flight.
static void many_megabytes(Rank *r)
{
    enum { N = 1500000, PART = 400000 };
    GxContext *g = &r->g;
    const int world = g->world, right = (g->rank + 1) % world, left = (g->rank + world - 1) % world;
    GxSplit rows = gx_split_even(N, world);
    float *x = (float *)room(4 * N), *y = (float *)room(4 * N), *out = (float *)room(4 * PART),
          *in = (float *)room(4 * PART);
    for (int i = 0; i < N; i++) x[i] = y[i] = (float)(i % 1000 + g->rank);
    for (int i = 0; i < PART; i++) out[i] = (float)(i % 1000 + g->rank);
    GxTicket a = gx_all_reduce_start(g, GX_AXIS_ALL, GX_SUM, x, N, GX_F32);
    GxTicket b = gx_all_gather_start(g, GX_AXIS_ALL, &rows, y, y + rows.begin[g->rank], 1, GX_F32);
    GxTransfer ring[2] = {{right, 1, 0, out, PART, GX_F32}, {left, 0, 0, in, PART, GX_F32}};
    gx_transfer(g, GX_AXIS_ALL, ring, 2);
    gx_wait(g, g->rank ? a : b);
    gx_wait(g, g->rank ? b : a);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        int owner = 0;
        while (i >= rows.begin[owner + 1]) owner++;
        wrong += x[i] != (float)(world * (i % 1000) + world * (world - 1) / 2) || y[i] != (float)(i % 1000 + owner);
    }
    for (int i = 0; i < PART; i++) wrong += in[i] != (float)(i % 1000 + left);
    CHECK(!wrong && !gx_failed(g), "rank %d: %d elements are wrong; %s", g->rank, wrong, g->error.message);
    free(x), free(y), free(out), free(in);
}

TEST_OF_ENGINES(messages_of_many_megabytes_arrive_whole)
{
    Job job = GX_ZERO;
    job.world = 3;
    job.run = many_megabytes;
    run_job(&job);
}

static void nan_in_max(Rank *r)
{
    float x[4] = {1, 2, (float)r->g.rank, -1};
    if (r->g.rank == 1) x[1] = NAN;
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_MAX, x, 4, GX_F32);
    CHECK(x[0] == 1 && isnan(x[1]) && x[2] == 2 && x[3] == -1, "%g %g %g %g", x[0], x[1], x[2], x[3]);
}

TEST_OF_ENGINES(max_hands_a_nan_on)
{
    Job job = GX_ZERO;
    job.world = 3;
    job.run = nan_in_max;
    run_job(&job);
}

// ---- some of the ranks go on ----------------------------------------------------------------------------------------
// Of four, ranks 3, 0 and 2 go on as 0, 1 and 2; rank 1 leaves. Then of these the last two as 0 and 1.
static void some_go_on(Rank *r)
{
    static const int16_t first[3] = {3, 0, 2}, second[2] = {1, 2};
    GxContext *g = &r->g;
    const int launched = g->rank;
    for (int time = 0; time < 2 && g->world; time++) {
        gx_comm_keep(g, time ? second : first, time ? 2 : 3);
        const int expected = time ? (launched == 0   ? 0
                                     : launched == 2 ? 1
                                                     : -1)
                                  : (launched == 3   ? 0
                                     : launched == 0 ? 1
                                     : launched == 2 ? 2
                                                     : -1);
        CHECK((expected < 0) == (g->world == 0) && (expected < 0 || expected == g->rank), "rank %d is rank %d of %d",
              launched, g->rank, g->world);
        if (!g->world) return;
        const int world = g->world, right = (g->rank + 1) % world, left = (g->rank + world - 1) % world;
        const int dims[5] = {1, 1, -1, 1, 1};
        gx_mesh_open(&r->mesh, dims, g->rank, world, &g->error);
        int64_t sum = 1 << launched, root = launched, out = launched, in = -1;
        gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, &sum, 1, GX_I64);
        gx_broadcast(g, GX_AXIS_ALL, 0, &root, 1, GX_I64);
        const GxTransfer ring[2] = {{right, 1, 0, &out, 1, GX_I64}, {left, 0, 0, &in, 1, GX_I64}};
        gx_transfer(g, GX_AXIS_ALL, ring, 2);
        const int left_launched = time ? second[left] == 1 ? 0 : 2 : first[left];
        CHECK(sum == (time ? 5 : 13) && root == (time ? 0 : 3) && in == left_launched && !gx_failed(g),
              "rank %d of %d: sum %ld, root %ld, from %ld: %s", g->rank, world, (long)sum, (long)root, (long)in,
              g->error.message);
    }
}

TEST_OF_ENGINES(some_of_the_ranks_go_on_in_a_new_order)
{
    Job job = GX_ZERO;
    job.world = 4;
    job.run = some_go_on;
    run_job(&job);
}

// ---- time inside collectives ---------------------------------------------------------------------------------------
// Rank 1 comes 50 ms late. Rank 0 is in a blocking call meanwhile (variant 0), has started and computes for longer than
// that (1), or has started and waits at once (2). What the communicator says is held against the ranks' own clocks,
// since a loaded machine may hold up either of them, also between the one's reading of the clock and the other's.
static double came[2], around[2]; // when a rank was ready for the sum; how long its calls took

static void one_is_late(Rank *r)
{
    const int variant = r->job->variant, me = r->g.rank;
    float x[64] = {0};
    GxTicket t = GX_ZERO;
    gx_barrier(&r->g, GX_AXIS_ALL);
    r->comm.seconds = 0;
    if (me == 1) usleep(50000);
    came[me] = gx_seconds();
    if (variant == 0) gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 64, GX_F32);
    else t = gx_all_reduce_start(&r->g, GX_AXIS_ALL, GX_SUM, x, 64, GX_F32);
    around[me] = gx_seconds() - came[me];
    if (variant == 0) return;
    if (variant == 1 && me == 0) usleep(100000);
    const double waits = gx_seconds();
    gx_wait(&r->g, t);
    around[me] += gx_seconds() - waits;
}

TEST_OF_ENGINES(time_inside_collectives_is_what_waiting_for_a_late_rank_costs)
{
    for (int variant = 0; variant < 3; variant++) {
        Job job = GX_ZERO;
        job.world = 2;
        job.run = one_is_late;
        job.variant = variant;
        run_job(&job);
        for (int r = 0; r < 2; r++) {
            const double inside = job.rank[r].comm.seconds, late = r == 0 && variant != 1 ? came[1] - came[0] : 0;
            CHECK(!gx_failed(&job.rank[r].g), "%s", job.rank[r].g.error.message);
            CHECK(inside > 0 && inside > late / 2 && inside <= around[r],
                  "variant %d, rank %d: %g s inside, %g s by its clock; %g s late", variant, r, inside, around[r],
                  late);
        }
    }
}

// Rank 1 hears from rank 0 every 2 ms. Spinning, it would burn a fifth of a millisecond of each.
static void waits_often(Rank *r)
{
    enum { TIMES = 50 };
    struct timespec begin, end;
    int32_t x = 0;
    gx_barrier(&r->g, GX_AXIS_ALL);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (int i = 0; i < TIMES; i++) {
        if (r->g.rank == 0) usleep(2000);
        gx_broadcast(&r->g, GX_AXIS_ALL, 0, &x, 1, GX_I32);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    const double used = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    CHECK(r->g.rank == 0 || used < TIMES * 1e-4, "rank 1 waited %d times and took %.2f ms of CPU each", TIMES,
          1e3 * used / TIMES);
}

// A job on threads under this policy of waiting.
static void run_job_under(const char *policy, Job *job)
{
    const char *found = getenv("OMP_WAIT_POLICY");
    char *before = found ? strdup(found) : NULL;
    engine = ON_THREADS;
    setenv("OMP_WAIT_POLICY", policy, 1);
    run_job(job);
    if (before) setenv("OMP_WAIT_POLICY", before, 1);
    else unsetenv("OMP_WAIT_POLICY");
    free(before);
}

TEST(threads_leave_the_cores_to_others_where_the_policy_is_passive)
{
    Job job = GX_ZERO;
    job.world = 2;
    job.run = waits_often;
    run_job_under("passive", &job);
}

TEST(threads_that_spin_before_they_sleep_give_the_same_bits)
{
    uint64_t hash[2][2];
    for (int k = 0; k < 2; k++) {
        Job job = GX_ZERO;
        job.world = 2;
        job.run = all_properties;
        job.most = 200;
        run_job_under(k ? "active" : "passive", &job);
        for (int i = 0; i < 2; i++) hash[k][i] = job.rank[i].hash;
    }
    CHECK(!memcmp(hash[0], hash[1], sizeof hash[0]), "the results depend on the policy");
}

// Nobody waits: what was started is taken to its end by progress alone. Sums of several chunks, two at a time.
static void progresses(Rank *r)
{
    enum { N = 5000 };
    float *x = (float *)room(4 * N), *y = (float *)room(4 * N);
    GxSplit rows = gx_split_even(N, r->g.world);
    for (int i = 0; i < N; i++) x[i] = y[i] = (float)(i + r->g.rank);
    GxTicket a = gx_all_reduce_start(&r->g, GX_AXIS_ALL, GX_SUM, x, N, GX_F32),
             b = gx_reduce_scatter_start(&r->g, GX_AXIS_ALL, &rows, y + rows.begin[r->g.rank], y, 1, GX_F32);
    const double until = gx_seconds() + 10;
    while ((r->comm.flight[0].running || r->comm.flight[1].running) && gx_seconds() < until) {
        gx_progress(&r->g);
        usleep(100);
    }
    CHECK(!r->comm.flight[0].running && !r->comm.flight[1].running, "rank %d: progress did not end them", r->g.rank);
    gx_wait(&r->g, a);
    gx_wait(&r->g, b);
    const float ranks = (float)(r->g.world * (r->g.world - 1) / 2);
    for (int i = 0; i < N; i++) {
        const float sum = (float)(r->g.world * i) + ranks;
        CHECK(x[i] == sum, "rank %d: x[%d] is %g, not %g", r->g.rank, i, x[i], sum);
        if (i >= rows.begin[r->g.rank] && i < rows.begin[r->g.rank + 1])
            CHECK(y[i] == sum, "rank %d: y[%d] is %g, not %g", r->g.rank, i, y[i], sum);
    }
    gx_progress(&r->g); // with nothing under way: nothing
    CHECK(!gx_failed(&r->g), "%s", r->g.error.message);
    free(x), free(y);
}

TEST_OF_ENGINES(progress_takes_what_was_started_to_its_end)
{
    for (int world = 1; world <= 4; world++) {
        Job job = GX_ZERO;
        job.world = world;
        job.run = progresses;
        job.chunk = 1024;
        job.no_background = 1;
        run_job(&job);
    }
}

// Progress is no wait, but it learns that there is nothing to wait for any more.
static void progresses_without_rank_1(Rank *r)
{
    float x[64] = {0};
    if (r->g.rank == 1) {
        GX_FAIL(&r->g.error, GX_ERR_MEMORY, "rank 1 has had enough");
        return;
    }
    GxTicket t = gx_all_reduce_start(&r->g, GX_AXIS_ALL, GX_SUM, x, 64, GX_F32);
    for (double until = gx_seconds() + 10; !gx_failed(&r->g) && gx_seconds() < until; usleep(100)) gx_progress(&r->g);
    CHECK(gx_failed(&r->g) && strstr(r->g.error.message, "rank 1"), "\"%s\"", r->g.error.message);
    gx_progress(&r->g);
    gx_wait(&r->g, t);
}

TEST_OF_ENGINES(progress_ends_with_the_error_of_a_rank_that_failed)
{
    Job job = GX_ZERO;
    job.world = 3;
    job.run = progresses_without_rank_1;
    run_job(&job);
    CHECK(job.rank[0].seconds < 5, "it took %g s", job.rank[0].seconds);
}

static void alone(Rank *r)
{
    float x[64] = {0};
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 64, GX_F32);
    gx_wait(&r->g, gx_all_reduce_start(&r->g, GX_AXIS_ALL, GX_SUM, x, 64, GX_F32));
    CHECK(r->comm.seconds == 0, "%g s", r->comm.seconds);
}

TEST(one_rank_alone_spends_no_time_inside_collectives)
{
    engine = ON_THREADS;
    Job job = GX_ZERO;
    job.world = 1;
    job.run = alone;
    run_job(&job);
}

// ---- recording and dry runs ----------------------------------------------------------------------------------------
static void record_some(GxContext *g, float *x, float *y)
{
    GxSplit split = some_split(2, 90, g->world);
    int me = gx_mesh_index(g->mesh, GX_AXIS_ALL), other = me ? 0 : 1;
    gx_at(g, 3, "att");
    gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, x, 99, GX_F32);
    gx_reduce_scatter(g, GX_AXIS_ALL, &split, y, x, 1, GX_F32);
    gx_all_gather(g, GX_AXIS_ALL, &split, x, y, 1, GX_F32);
    gx_broadcast(g, GX_AXIS_ALL, 1, x, 10, GX_F64);
    gx_all_reduce(g, GX_AXIS_DP, GX_SUM, x, 99, GX_F32); // a group of one
    GxTicket a = gx_all_reduce_start(g, GX_AXIS_TP, GX_SUM, x, 50, GX_F32),
             b = gx_all_reduce_start(g, GX_AXIS_TP, GX_SUM, y, 500, GX_F32);
    GxTicket c =
        gx_all_reduce_start(g, GX_AXIS_TP, GX_SUM, y + 500, 777, GX_F32); // no slot left: the most scratch of all
    gx_wait(g, b);
    gx_wait(g, c);
    gx_wait(g, a);
    gx_wait(g, a); // nothing is left to wait for
    if (me < 2) {
        GxTransfer pair[2] = {{other, 1, 0, x, 10, GX_F32}, {other, 0, 0, y, 10, GX_F32}};
        gx_transfer(g, GX_AXIS_ALL, pair, 2);
    }
}

// What a simulator of overlap reads from a recording of record_some.
static void check_starts_and_waits(const GxRecorder *rec)
{
    static const struct {
        GxEventKind kind;
        const char *name;
        int64_t elements, ticket;
        GxDtype dtype;
    } expected[] = {{GX_EVENT_COLLECTIVE, "all_reduce", 99, 0, GX_F32},
                    {GX_EVENT_COLLECTIVE, "reduce_scatter", 90, 0, GX_F32},
                    {GX_EVENT_COLLECTIVE, "all_gather", 90, 0, GX_F32},
                    {GX_EVENT_COLLECTIVE, "broadcast", 10, 0, GX_F64},
                    {GX_EVENT_COLLECTIVE, "all_reduce", 50, 1, GX_F32},
                    {GX_EVENT_COLLECTIVE, "all_reduce", 500, 2, GX_F32},
                    {GX_EVENT_COLLECTIVE, "all_reduce", 777, 0, GX_F32}, // no slot was left: it blocked
                    {GX_EVENT_WAIT, "wait", 0, 2, GX_F32},
                    {GX_EVENT_WAIT, "wait", 0, 1, GX_F32},
                    {GX_EVENT_COLLECTIVE, "send", 10, 0, GX_F32},
                    {GX_EVENT_COLLECTIVE, "recv", 10, 0, GX_F32}};
    const int all = (int)(sizeof expected / sizeof *expected);
    CHECK(rec->n == all || rec->n == all - 2, "%ld events",
          (long)rec->n); // a member does not take part in the transfer
    for (int i = 0; i < rec->n && i < all; i++) {
        const GxEvent *e = &rec->event[i];
        CHECK(e->kind == expected[i].kind && !strcmp(e->name, expected[i].name) &&
                  e->elements == expected[i].elements && e->ticket == expected[i].ticket &&
                  e->dtype == expected[i].dtype && e->members == (e->kind == GX_EVENT_WAIT ? 0 : 3),
              "event %d: %s of %ld %s elements among %d, ticket %ld", i, e->name, (long)e->elements,
              gx_dtype_name(e->dtype), e->members, (long)e->ticket);
    }
}

static void record_real_and_dry(Rank *r)
{
    float *x = (float *)room(8000), *y = (float *)room(8000);
    r->g.recorder = &r->recorder;
    record_some(&r->g, x, y);
    free(x);
    free(y);
    GxContext dry = GX_ZERO;
    GxComm comm = GX_ZERO;
    GxArena arena;
    GxRecorder recorder = GX_ZERO;
    gx_arena_open_dry(&arena);
    comm.rank = r->g.rank;
    comm.world = r->g.world;
    comm.chunk = r->comm.chunk;
    dry.arena = &arena;
    dry.mesh = &r->mesh;
    dry.recorder = &recorder;
    gx_comm_open(&dry, &comm);
    record_some(&dry, (float *)gx_arena_allocate(&arena, GX_MEM_ACTIVATIONS, 8000),
                (float *)gx_arena_allocate(&arena, GX_MEM_ACTIVATIONS, 8000));
    CHECK(!gx_failed(&dry), "%s", dry.error.message);
    CHECK(arena.kind_peak[GX_MEM_COMM] == r->arena.kind_peak[GX_MEM_COMM], "planned %ld, taken %ld",
          (long)arena.kind_peak[GX_MEM_COMM], (long)r->arena.kind_peak[GX_MEM_COMM]);
    CHECK(recorder.n == r->recorder.n && recorder.comm_bytes == r->recorder.comm_bytes, "%ld events of %ld",
          (long)recorder.n, (long)r->recorder.n);
    for (int64_t i = 0; i < recorder.n && i < r->recorder.n; i++) {
        const GxEvent *a = &recorder.event[i], *b = &r->recorder.event[i];
        CHECK(a->name == b->name && a->bytes == b->bytes && a->axes == b->axes && a->unit == 3 &&
                  !strcmp(a->site, "att"),
              "event %ld", (long)i);
    }
    check_starts_and_waits(&r->recorder);
    check_starts_and_waits(&recorder);
    const GxEvent *e = r->recorder.event;
    const int64_t part[3] = {10, 30, 50};
    CHECK(e[0].kind == GX_EVENT_COLLECTIVE && !strcmp(e[0].name, "all_reduce") && e[0].bytes == 4 * 99 * 2 * 2 / 3,
          "%s, %ld", e[0].name, (long)e[0].bytes);
    CHECK(!strcmp(e[1].name, "reduce_scatter") && e[1].bytes == 4 * (90 - part[r->g.rank]), "%s, %ld", e[1].name,
          (long)e[1].bytes);
    CHECK(!strcmp(e[2].name, "all_gather") && e[2].bytes == 4 * 2 * part[r->g.rank], "%s, %ld", e[2].name,
          (long)e[2].bytes);
    CHECK(!strcmp(e[3].name, "broadcast") && e[3].bytes == (r->g.rank == 1 ? 160 : 0), "%s, %ld", e[3].name,
          (long)e[3].bytes);
    gx_comm_close(&dry);
    gx_recorder_close(&recorder);
}

TEST_OF_ENGINES(dry_run_records_and_plans_what_the_real_one_does)
{
    Job job = GX_ZERO;
    job.world = 3;
    job.run = record_real_and_dry;
    job.chunk = 1024;
    run_job(&job);
    for (int i = 0; i < 3; i++) CHECK(!gx_failed(&job.rank[i].g), "%s", job.rank[i].g.error.message);
}

TEST(without_a_communicator_a_large_world_is_only_counted)
{
    GxContext g = GX_ZERO;
    GxMesh mesh;
    GxRecorder recorder = GX_ZERO;
    int dims[5] = {1, 1, 64, 1, 8};
    gx_mesh_open(&mesh, dims, 9, 512, &g.error);
    g.mesh = &mesh;
    g.recorder = &recorder;
    g.rank = 9;
    g.world = 512;
    gx_all_reduce(&g, GX_AXIS_DP, GX_SUM, NULL, (int64_t)64 << 30, GX_F32);
    gx_wait(&g, gx_all_reduce_start(&g, GX_AXIS_TP, GX_SUM, NULL, 8, GX_F32));
    CHECK(!gx_failed(&g) && recorder.n == 2 && recorder.comm_bytes == ((int64_t)63 << 33) + 56, "%s; %ld bytes",
          g.error.message, (long)recorder.comm_bytes);
    gx_recorder_close(&recorder);
}

TEST(one_rank_alone_copies_and_records_nothing)
{
    GxContext g = GX_ZERO;
    GxRecorder recorder = GX_ZERO;
    g.recorder = &recorder;
    g.world = 1;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0}, z[6] = {0}, w[6] = {0};
    GxSplit all = gx_split_even(3, 1);
    gx_all_reduce(&g, GX_AXIS_ALL, GX_SUM, x, 6, GX_F32);
    gx_all_gather(&g, GX_AXIS_TP, &all, y, x, 2, GX_F32);
    gx_wait(&g, gx_reduce_scatter_start(&g, GX_AXIS_TP, &all, z, y, 2, GX_F32));
    gx_all_to_all(&g, GX_AXIS_TP, &all, z, &all, w, 2, GX_F32);
    gx_broadcast(&g, GX_AXIS_TP, 0, w, 6, GX_F32);
    gx_barrier(&g, GX_AXIS_ALL);
    CHECK(!gx_failed(&g) && !memcmp(w, x, sizeof x) && recorder.n == 0, "%s; %ld events", g.error.message,
          (long)recorder.n);
}

// ---- when things go wrong ------------------------------------------------------------------------------------------
static void says(const Rank *r, const char *what)
{
    CHECK(strstr(r->g.error.message, what), "rank %d says \"%s\", not \"%s\"", r->g.rank, r->g.error.message, what);
}
static void fails(Job *job, int world, void (*run)(Rank *))
{
    job->world = world;
    job->run = run;
    if (!job->timeout) job->timeout = 20;
    run_job(job);
}

static void one_gathers(Rank *r)
{
    float x[12] = {0};
    GxSplit split = gx_split_even(10, r->g.world);
    if (r->g.rank == 1) gx_all_gather(&r->g, GX_AXIS_ALL, &split, x, x + split.begin[1], 1, GX_F32);
    else gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 12, GX_F32);
}

TEST_OF_ENGINES(different_operations_are_an_error_that_names_both)
{
    Job job = GX_ZERO;
    fails(&job, 3, one_gathers);
    int full = 0; // who finds it first tells the others
    for (int i = 0; i < 3; i++) {
        says(&job.rank[i], "all_reduce of 12 F32 elements");
        says(&job.rank[i], "all_gather of 10 F32 elements");
        says(&job.rank[i], "rank 1");
        full += strstr(job.rank[i].g.error.message,
                       "rank 1 is in all_gather of 10 F32 elements while rank 0 is in all_reduce of 12 F32 elements") ||
                strstr(job.rank[i].g.error.message,
                       "rank 0 is in all_reduce of 12 F32 elements while rank 1 is in all_gather of 10 F32 elements") ||
                strstr(job.rank[i].g.error.message,
                       "rank 1 is in all_gather of 10 F32 elements while rank 2 is in all_reduce of 12 F32 elements") ||
                strstr(job.rank[i].g.error.message,
                       "rank 2 is in all_reduce of 12 F32 elements while rank 1 is in all_gather of 10 F32 elements");
        CHECK(gx_status(&job.rank[i].g) == GX_ERR_COMM && job.rank[i].seconds < 5, "rank %d: %g s", i,
              job.rank[i].seconds);
    }
    CHECK(full == 3, "%d of 3 name both ranks and both operations", full);
}

static void one_differs(Rank *r)
{
    double x[8] = {0};
    static const int64_t even[2] = {4, 4}, odd[2] = {5, 3};
    GxSplit split;
    GxError err = GX_ZERO;
    int first = r->g.rank == 0;
    switch (r->job->variant) {
    case 1: gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, first ? 3 : 4, GX_F32); break;
    case 2: gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 4, first ? GX_F32 : GX_I32); break;
    case 3: gx_all_reduce(&r->g, GX_AXIS_ALL, first ? GX_MAX : GX_SUM, x, 4, GX_F32); break;
    case 4:
        gx_split_list(&split, "rows", first ? even : odd, 2, 8, 2, &err);
        gx_all_gather(&r->g, GX_AXIS_ALL, &split, x, x + split.begin[r->g.rank], 1, GX_F64);
        break;
    case 5: gx_broadcast(&r->g, GX_AXIS_ALL, first ? 0 : 1, x, 4, GX_F32); break;
    case 6:
        if (first) gx_send(&r->g, GX_AXIS_ALL, 1, x, 3, GX_F32);
        else gx_recv(&r->g, GX_AXIS_ALL, 0, x, 4, GX_F32);
        break;
    case 7: // only the operation differs
        split = some_split(0, 4, 2);
        split.begin[1] = 4;
        if (first) gx_all_gather(&r->g, GX_AXIS_ALL, &split, x, x, 1, GX_F32);
        else gx_broadcast(&r->g, GX_AXIS_ALL, 0, x, 4, GX_F32);
        break;
    default:
        if (first) gx_barrier(&r->g, GX_AXIS_ALL);
        gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 4, GX_F32);
    }
}

TEST_OF_ENGINES(every_divergence_is_found)
{
    const char *const what[9] = {"", "of 3 F32",      "of 4 I32",           "(max)",  "bytes",
                                 "", "send of 3 F32", "broadcast of 4 F32", "barrier"};
    for (int variant = 1; variant < 9; variant++) {
        Job job = GX_ZERO;
        job.variant = variant;
        if (variant == 5) job.timeout = 0.3; // both are roots: nobody receives what the other sends
        fails(&job, 2, one_differs);
        for (int i = 0; i < 2; i++) {
            CHECK(gx_status(&job.rank[i].g) == GX_ERR_COMM && job.rank[i].seconds < 5, "variant %d, rank %d: %d, %g s",
                  variant, i, gx_status(&job.rank[i].g), job.rank[i].seconds);
            says(&job.rank[i], what[variant]);
        }
    }
}

static void one_leaves(Rank *r)
{
    float x[5] = {0};
    gx_barrier(&r->g, GX_AXIS_ALL);
    if (r->g.rank == 2) {
        usleep(200000); // the others are asleep
        return;
    }
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 5, GX_F32);
}

TEST_OF_ENGINES(who_waits_for_a_rank_that_left_learns_its_number_within_a_second)
{
    Job job = GX_ZERO;
    fails(&job, 3, one_leaves);
    for (int i = 0; i < 2; i++) {
        says(&job.rank[i], "rank 2 left");
        says(&job.rank[i], "all_reduce of 5 F32 elements");
        CHECK(job.rank[i].seconds < 0.9, "rank %d took %g s", i, job.rank[i].seconds);
    }
    CHECK(!gx_failed(&job.rank[2].g), "the one that left: %s", job.rank[2].g.error.message);
}

static void recv_from_one_that_leaves(Rank *r)
{
    float x[5] = {0};
    if (r->g.rank == 0) gx_recv(&r->g, GX_AXIS_ALL, 1, x, 5, GX_F32);
}

static void send_to_one_that_leaves(Rank *r)
{
    float x[5] = {0};
    if (r->g.rank == 0) gx_send(&r->g, GX_AXIS_ALL, 1, x, 5, GX_F32);
}

TEST_OF_ENGINES(transfers_with_a_rank_that_left_fail_on_either_side)
{
    Job recv = GX_ZERO, send = GX_ZERO;
    fails(&recv, 2, recv_from_one_that_leaves);
    fails(&send, 2, send_to_one_that_leaves);
    says(&recv.rank[0], "rank 1 left while rank 0 waits for it in recv of 5 F32 elements");
    says(&send.rank[0], "rank 1 left while rank 0 waits for it in send of 5 F32 elements");
}

static void leave_in_turn(Rank *r)
{
    float x[3] = {1, 1, 1};
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 3, GX_F32);
    if (r->g.mesh->coord[2] == 1) return; // this half of the world is through
    for (int i = 0; i < 50; i++) gx_all_reduce(&r->g, GX_AXIS_TP, GX_MAX, x, 3, GX_F32);
    CHECK(x[0] == 4, "%g", x[0]);
}

TEST_OF_ENGINES(a_rank_that_nobody_waits_for_may_leave)
{
    Job job = GX_ZERO;
    fails(&job, 4, leave_in_turn);
    for (int i = 0; i < 4; i++) CHECK(!gx_failed(&job.rank[i].g), "rank %d: %s", i, job.rank[i].g.error.message);
}

// Rank 0 alone waits for rank 1, which goes; rank 2 waits for rank 0, and hears of it at second hand.
static void one_goes_and_one_hears_of_it(Rank *r)
{
    float x[5] = {0};
    gx_barrier(&r->g, GX_AXIS_ALL);
    if (r->g.rank == 1 && r->job->variant == 1) gx_socket_close(&gx__tcp(&r->comm)->peer[0].fd); // as if it were killed
    else if (r->g.rank != 1) gx_recv(&r->g, GX_AXIS_ALL, r->g.rank == 0 ? 1 : 0, x, 5, GX_F32);
}

TEST_OF_ENGINES(all_ranks_name_the_one_that_left_or_died_in_the_same_words)
{
    static const char *const words[] = {"rank 1 left while rank 0 waits for it in recv", "rank 1 died: its connection"};
    for (int variant = 0; variant <= (engine == ON_TCP); variant++) {
        Job job = GX_ZERO;
        job.variant = variant;
        fails(&job, 3, one_goes_and_one_hears_of_it);
        for (int i = 0; i < 3; i += 2)
            CHECK(strstr(job.rank[i].g.error.message, words[variant]) == job.rank[i].g.error.message, "rank %d: %s", i,
                  job.rank[i].g.error.message);
    }
}

static void one_has_failed(Rank *r)
{
    float x[5] = {7}, y[5] = {7};
    gx_barrier(&r->g, GX_AXIS_ALL);
    GxTicket t = gx_all_reduce_start(&r->g, GX_AXIS_ALL, GX_SUM, x, 5, GX_F32);
    if (r->g.rank == 1) GX_FAIL(&r->g.error, GX_ERR_DEVICE, "the matrix is full of holes");
    if (r->g.rank != 0) gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, y, 5, GX_F32);
    gx_wait(&r->g, t);
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, y, 5, GX_F32); // rank 0 may have its sum; here at the latest it learns
    CHECK(y[0] == 7, "a failed context took part: %g", y[0]);
}

TEST_OF_ENGINES(failed_rank_ends_the_others_with_its_message)
{
    for (int round = 0; round < 20; round++) {
        Job job = GX_ZERO;
        fails(&job, 3, one_has_failed);
        CHECK(gx_status(&job.rank[1].g) == GX_ERR_DEVICE, "%s", job.rank[1].g.error.message);
        for (int i = 0; i < 3; i += 2) {
            says(&job.rank[i], "rank 1 failed: the matrix is full of holes");
            CHECK(job.rank[i].seconds < 5, "rank %d took %g s", i, job.rank[i].seconds);
        }
    }
}

static void fail_and_close(Rank *r)
{
    if (r->g.rank == 1) GX_FAIL(&r->g.error, GX_ERR_IO, "disk full");
    else gx_barrier(&r->g, GX_AXIS_ALL);
}

TEST_OF_ENGINES(failed_rank_that_closes_gives_its_message_too)
{
    for (int round = 0; round < 20; round++) {
        Job job = GX_ZERO;
        fails(&job, 3, fail_and_close);
        says(&job.rank[0], "rank 1 failed: disk full");
        says(&job.rank[2], "rank 1 failed: disk full");
    }
}

static void one_stalls(Rank *r)
{
    float x[5] = {0};
    if (r->g.rank == 1) usleep(1000000);
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 5, GX_F32);
}

TEST_OF_ENGINES(timeout_names_operation_and_rank)
{
    Job job = GX_ZERO;
    job.timeout = 0.2;
    fails(&job, 3, one_stalls);
    for (int i = 0; i < 3; i++) {
        says(&job.rank[i], "waited 0.2 s in all_reduce of 5 F32 elements");
        says(&job.rank[i], "for rank 1:");
        CHECK(!strstr(job.rank[i].g.error.message, "failed"), "rank %d: %s", i, job.rank[i].g.error.message);
    }
    CHECK(job.rank[0].seconds < 0.9 && job.rank[2].seconds < 0.9, "%g s, %g s", job.rank[0].seconds,
          job.rank[2].seconds);
}

static void recv_from_nobody(Rank *r)
{
    float x[5] = {0};
    if (r->g.rank == 0) gx_recv(&r->g, GX_AXIS_ALL, 1, x, 5, GX_F32);
    else usleep(500000);
}

TEST_OF_ENGINES(timeout_of_a_recv_names_the_sender)
{
    Job job = GX_ZERO;
    job.timeout = 0.1;
    fails(&job, 2, recv_from_nobody);
    says(&job.rank[0], "waited 0.1 s in recv of 5 F32 elements");
    says(&job.rank[0], "for rank 1:");
}

static void misuse(Rank *r)
{
    GxContext *g = &r->g;
    float x[8] = {0};
    uint16_t half[8] = {0};
    GxSplit three = gx_split_even(3, 3), two = gx_split_even(6, 2);
    GxTransfer self = {g->rank, 1, 0, x, 1, GX_F32}, channel = {1 - g->rank, 1, GX_CHANNELS, x, 1, GX_F32};
    if (g->rank == 0) switch (r->job->variant) {
        case 1: gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, half, 8, GX_F16); break;
        case 2: gx_all_gather(g, GX_AXIS_ALL, &three, x, x, 1, GX_F32); break;
        case 3: gx_all_gather(g, GX_AXIS_ALL, &two, x, x + 1, 1, GX_F32); break;
        case 4: gx_reduce_scatter(g, GX_AXIS_ALL, &two, x + 3, x, 1, GX_F32); break;
        case 5: gx_broadcast(g, GX_AXIS_ALL, 2, x, 1, GX_F32); break;
        case 6: gx_transfer(g, GX_AXIS_ALL, &self, 1); break;
        default: gx_transfer(g, GX_AXIS_ALL, &channel, 1);
        }
    gx_barrier(g, GX_AXIS_ALL);
}

TEST_OF_ENGINES(misuse_is_an_error_for_all_ranks)
{
    const char *const what[8] = {"",
                                 "sums are taken in F32",
                                 "a split of 3 parts for a group of 2",
                                 "not in their place",
                                 "not in their place",
                                 "broadcast from member 2",
                                 "between member 0 and member 0",
                                 "channel 128"};
    for (int variant = 1; variant < 8; variant++) {
        Job job = GX_ZERO;
        job.variant = variant;
        fails(&job, 2, misuse);
        for (int i = 0; i < 2; i++) says(&job.rank[i], what[variant]);
        says(&job.rank[1], "rank 0 failed: ");
    }
}

static void after_close(Rank *r)
{
    int64_t one = 1;
    gx_barrier(&r->g, GX_AXIS_ALL);
    gx_comm_close(&r->g);
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, &one, 1, GX_I64);
}

TEST_OF_ENGINES(collective_after_close_is_an_error_not_a_dry_run)
{
    Job job = GX_ZERO;
    fails(&job, 2, after_close);
    for (int i = 0; i < 2; i++) says(&job.rank[i], "without an open communicator");
}

static void forgets_to_wait(Rank *r)
{
    static float sums[2][300];
    for (int i = 0; i < 300; i++) sums[r->g.rank][i] = 1;
    gx_all_reduce_start(&r->g, GX_AXIS_ALL, GX_SUM, sums[r->g.rank], 300, GX_F32);
    gx_comm_close(&r->g);
    CHECK(sums[r->g.rank][299] == 2, "%g", sums[r->g.rank][299]);
}

TEST_OF_ENGINES(close_finishes_what_was_started)
{
    Job job = GX_ZERO;
    fails(&job, 2, forgets_to_wait);
    for (int i = 0; i < 2; i++) CHECK(!gx_failed(&job.rank[i].g), "%s", job.rank[i].g.error.message);
}

static void full_arena(Rank *r)
{
    float x[1000] = {0};
    if (r->g.rank == 0) gx_arena_allocate(&r->arena, GX_MEM_WEIGHTS, r->arena.capacity - r->arena.used - 64);
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 1000, GX_F32);
}

TEST_OF_ENGINES(scratch_that_does_not_fit_ends_all)
{
    Job job = GX_ZERO;
    fails(&job, 2, full_arena);
    says(&job.rank[0], "the arena of");
    says(&job.rank[1], "rank 0 failed: the arena of");
}

// ---- what launchers leave behind -----------------------------------------------------------------------------------
TEST(launcher_is_seen_in_the_environment)
{
    const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "PMI_RANK"};
    if (gx_mpi_started() > 1) SKIP("started by a launcher");
    for (int i = 0; i < 5; i++) {
        setenv(names[i], "3", 1);
        int n = gx_mpi_started();
        GxError err = GX_ZERO;
        GxStatus status = gx_mpi_check_start(&err);
        unsetenv(names[i]);
        CHECK(n == (i < 3 ? 3 : 4), "%s=3: %d ranks", names[i], n);
#ifdef GX_WITH_MPI
        CHECK(status == GX_OK, "%s", err.message);
#else
        CHECK(status == GX_ERR_UNSUPPORTED && strstr(err.message, "built without MPI"), "%s", err.message);
#endif
    }
    CHECK(gx_mpi_started() == 1, "%d ranks", gx_mpi_started());
}

// ---- ranks as processes: one of them goes wrong --------------------------------------------------------------------
static const char *fault;   // kill, stall, leave, fail, mismatch; NULL: none
static int faulty_rank = 1; // whose it is

static void go_wrong(Rank *r)
{
    float x[12] = {0};
    GxSplit split = gx_split_even(10, r->g.world);
    gx_barrier(&r->g, GX_AXIS_ALL);
    if (r->g.rank == faulty_rank) {
        if (!strcmp(fault, "kill")) raise(SIGKILL);
        if (!strcmp(fault, "stall")) usleep(1500000);
        if (!strcmp(fault, "leave")) return;
        if (!strcmp(fault, "fail")) GX_FAIL(&r->g.error, GX_ERR_DEVICE, "the matrix is full of holes");
        if (!strcmp(fault, "mismatch"))
            gx_all_gather(&r->g, GX_AXIS_ALL, &split, x, x + split.begin[faulty_rank], 1, GX_F32);
    }
    gx_all_reduce(&r->g, GX_AXIS_ALL, GX_SUM, x, 12, GX_F32);
}

// ---- TCP -----------------------------------------------------------------------------------------------------------
TEST(tcp_gives_the_bits_of_threads)
{
    for (int world = 2; world <= MOST_RANKS; world++)
        CHECK(!memcmp(hashes_of(ON_THREADS, world), hashes_of(ON_TCP, world), (size_t)world * 8),
              "%d ranks: other bits", world);
}

// One process, one rank: test_comm --tcp RANK WORLD PORT FAULT FAULTY_RANK.
static int tcp_main(char **argument)
{
    static Job job;
    Rank *r = &job.rank[0];
    GxRendezvous meeting = by_hand(atoi(argument[0]), atoi(argument[1]), atoi(argument[2]));
    fault = argument[3];
    faulty_rank = atoi(argument[4]);
    r->job = &job;
    job.timeout = !strcmp(fault, "stall") ? 0.3 : 20;
    if (gx_tcp_comm(&r->comm, &meeting, &r->g.error) == GX_OK) {
        open_rank(r);
        go_wrong(r);
        gx_comm_close(&r->g);
    }
    gx_arena_close(&r->arena);
    printf("rank %d ends: %s\n", meeting.rank, r->g.error.message);
    return gx_failed(&r->g);
}

// Runs so many ranks of this program side by side. What they said, in one.
static void run_processes(int world, const char *fault_name, int whose, char *text, size_t n, double *seconds)
{
    char self[1024] = "", command[8192] = "";
    const int port = free_port();
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 1) return;
    for (int r = 0; r < world; r++) {
        const size_t used = strlen(command);
        snprintf(command + used, sizeof command - used, "'%s' --tcp %d %d %d %s %d 2>&1 & ", self, r, world, port,
                 fault_name, whose);
    }
    snprintf(command + strlen(command), sizeof command - strlen(command), "wait");
    *seconds = gx_seconds();
    FILE *f = popen(command, "r");
    size_t used = 0, got;
    while (f && used + 1 < n && (got = fread(text + used, 1, n - 1 - used, f)) > 0) used += got;
    text[used] = 0;
    if (f) pclose(f);
    *seconds = gx_seconds() - *seconds;
}

TEST(tcp_process_that_goes_wrong_ends_the_others_with_its_number)
{
    static const struct {
        const char *fault, *says; // %d: whose fault it is; of a mismatch, any two ranks may be the first to find it
    } cases[] = {
        {"kill", "rank %d died: "},
        {"fail", "rank %d failed: the matrix is full of holes"},
        {"leave", "rank %d left while rank "},
        {"stall", "waited 0.3 s in all_reduce of 12 F32 elements (call 2 over tp) for rank %d"},
        {"mismatch", "all_gather of 10 F32 elements"},
    };
    static char text[65536];
    double seconds = 0;
    for (unsigned i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i / 3].fault;
        const int whose = (int)(i % 3);
        char says[200];
        snprintf(says, sizeof says, cases[i / 3].says, whose);
        run_processes(3, name, whose, text, sizeof text, &seconds);
        CHECK(seconds < 10, "%s of rank %d: it took %g s", name, whose, seconds);
        for (int r = 0; r < 3; r++) {
            char line[240];
            if (r == whose) continue;
            // who stalls is named by who waited; everything else begins with whose fault it is
            snprintf(line, sizeof line, "rank %d ends: %s", r, i / 3 < 3 ? says : "rank ");
            CHECK(strstr(text, line), "%s of rank %d: no \"%s\" in: %s", name, whose, line, text);
        }
        CHECK(i / 3 == 1 || !strstr(text, "failed"), "%s of rank %d: another one is blamed: %s", name, whose, text);
        CHECK(strstr(text, says), "no \"%s\" in: %s", says, text);
    }
}

// ---- MPI -----------------------------------------------------------------------------------------------------------
#ifdef GX_WITH_MPI
static void to_stderr(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", text);
}

// One process, one rank; says its hash.
static int mpi_main(void)
{
    static Job job;
    Rank *r = &job.rank[0];
    GxError err = GX_ZERO;
    r->job = &job;
    r->g.log.write = to_stderr;
    job.chunk = 1024;
    job.timeout = fault && !strcmp(fault, "stall") ? 0.3 : 20;
    if (!CHECK(gx_mpi_comm(&r->comm, &err) == GX_OK, "%s", err.message)) return 1;
    CHECK(r->comm.local_ranks == r->comm.world && r->comm.local_rank == r->comm.rank, "local rank %d of %d",
          r->comm.local_rank, r->comm.local_ranks);
    open_rank(r);
    if (fault) {
        go_wrong(r);
        gx_comm_close(&r->g);
        return gx_failed(&r->g);
    }
    all_properties(r);
    uint64_t hash = r->hash;
    GxMpi *mpi = gx__mpi(&r->comm); // once more, as if messages of more than 100 bytes were too long for an int
    MPI_Type_free(&mpi->block_type);
    mpi->limit = 100;
    mpi->block = 64;
    MPI_Type_contiguous(64, MPI_BYTE, &mpi->block_type);
    MPI_Type_commit(&mpi->block_type);
    all_properties(r);
    CHECK(r->hash == hash, "rank %d: messages in blocks differ", r->g.rank);
    printf("rank %d of %d: %d checks, %d failed, hash %016llx\n", r->g.rank, r->comm.world, test_state.checks,
           test_state.failures, (unsigned long long)hash);
    gx_comm_close(&r->g);
    return test_state.failures != 0;
}

// Runs this program under mpirun; Open MPI leaks, and takes its own locks in different orders. Returns its exit status,
// its output and how long it took; -1: no mpirun.
static int mpirun(int ranks, const char *mode, char *text, size_t room_for_text, double *seconds)
{
    char self[1024] = "", command[2048];
    if (system("command -v mpirun > /dev/null 2>&1") || readlink("/proc/self/exe", self, sizeof self - 1) < 1)
        return -1;
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=detect_deadlocks=0 OMPI_ALLOW_RUN_AS_ROOT=1 "
             "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
             "OMPI_MCA_rmaps_base_oversubscribe=1 "
             "OMPI_MCA_hwloc_base_binding_policy=none mpirun -np %d '%s' --mpi %s 2>&1",
             ranks, self, mode);
    double begin = gx_seconds();
    FILE *f = popen(command, "r");
    size_t n = 0, got;
    char rest[512];
    while (f && n + 1 < room_for_text && (got = fread(text + n, 1, room_for_text - 1 - n, f)) > 0) n += got;
    while (f && fread(rest, 1, sizeof rest, f) > 0) {}
    text[n] = 0;
    int status = f ? pclose(f) : -1;
    *seconds = gx_seconds() - begin;
    return status;
}
#endif

TEST(mpi_gives_the_bits_of_threads)
{
#ifndef GX_WITH_MPI
    SKIP("built without GX_WITH_MPI");
#else
    static char text[65536];
    double seconds;
    for (int ranks = 2; ranks <= 4; ranks++) {
        int status = mpirun(ranks, "", text, sizeof text, &seconds);
        if (status == -1) SKIP("no mpirun");
        CHECK(status == 0, "%d ranks, status %d: %s", ranks, status, text);
        for (int rank = 0; rank < ranks; rank++) {
            char first[40], last[60];
            snprintf(first, sizeof first, "rank %d of %d: ", rank, ranks);
            snprintf(last, sizeof last, " 0 failed, hash %016llx\n",
                     (unsigned long long)hashes_of(ON_THREADS, ranks)[rank]);
            const char *line = strstr(text, first), *end = line ? strchr(line, '\n') + 1 : NULL;
            CHECK(end && end - line > (long)strlen(last) && !memcmp(end - strlen(last), last, strlen(last)),
                  "rank %d of %d: no \"%s\" in: %s", rank, ranks, last, text);
        }
    }
#endif
}

TEST(mpi_rank_that_goes_wrong_ends_the_job_with_its_number)
{
#ifndef GX_WITH_MPI
    SKIP("built without GX_WITH_MPI");
#else
    const struct {
        const char *fault, *says;
    } cases[] = {
        {"kill", "rank 1"},
        {"mismatch", "all_gather of 10 F32 elements"},
        {"mismatch", "all_reduce of 12 F32 elements"},
        {"fail", "rank 1 failed and ends all ranks: the matrix is full of holes"},
        {"leave", "ends all ranks: rank 1 left while rank"},
        {"stall", "waited 0.3 s in all_reduce of 12 F32 elements (call 2 over tp) for rank 1"},
    };
    static char text[65536];
    double seconds;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = mpirun(3, cases[i].fault, text, sizeof text, &seconds);
        if (status == -1) SKIP("no mpirun");
        CHECK(status != 0 && seconds < 30, "%s: status %d after %g s", cases[i].fault, status, seconds);
        CHECK(strcmp(cases[i].fault, "fail") == 0 || !strstr(text, " failed and"), "%s: %s", cases[i].fault, text);
        CHECK(strstr(text, cases[i].says), "%s: no \"%s\" in: %s", cases[i].fault, cases[i].says, text);
    }
#endif
}

int main(int argc, char **argv)
{
    if (argc == 7 && !strcmp(argv[1], "--tcp")) return tcp_main(argv + 2);
#ifdef GX_WITH_MPI
    if (argc > 1 && !strcmp(argv[1], "--mpi")) {
        fault = argc > 2 ? argv[2] : NULL;
        return mpi_main();
    }
#endif
    return test_main(argc, argv);
}
