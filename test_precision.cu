// test_precision.cu: training on every device and in every precision: ten steps of SGD on a device are those of the
// CPU; bf16 stays as near to fp32 as its rounding allows (the gates of reference measurements: each step's loss 2e-3;
// the first step's norm 1e-2, direction of each gradient 0.999). In every mode, over the host's engines and over NCCL.
// How far PyTorch's own bf16 is from fp32 is what test_llama.cu measures by.
//
// In a program built for the CPU alone, the CPU is the only device.
#define TEST_STEPS 10
#include "test/parallel.h"
#include <unistd.h>

// Two ranks, uneven; a mode takes of the lists those that it splits by. Eight samples: the gates are for means, and in
// bf16 that of three samples is off by up to 2e-3, noise of a few labels.
#define MODE_LAYOUT(name, att, con, mlp)                                                                               \
    {.what = #name " 2",                                                                                               \
     .mode = &gx_##name,                                                                                               \
     .dp = 1,                                                                                                          \
     .tp = 2,                                                                                                          \
     .micro = 1,                                                                                                       \
     .samples = {8},                                                                                                   \
     .heads = {2, 4},                                                                                                  \
     .sequence = {3, 5}},
static const Layout layouts[] = {
    {.what = "serial", .mode = &test_serial, .dp = 1, .tp = 1, .micro = 1, .samples = {8}},
    {.what = "dp 2", .mode = &test_serial, .dp = 2, .tp = 1, .micro = 1, .samples = {5, 3}},
    GX_MODES(MODE_LAYOUT)};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void choose(const GxDevice *device, GxDtype dtype, int nccl)
{
    test_chosen_device = device;
    test_dtype = dtype;
    test_uses_nccl = nccl;
}

static void run_on_cpu(const Layout *l, Result *out) // serially, in fp32
{
    choose(gx_device_cpu(), GX_F32, 0);
    run_serial(l, out);
}

// ---- fp32: within the bounds of its reductions ---------------------------------------------------------------------

static void fp32_is_the_cpu(const GxDevice *device, int nccl)
{
    for (int i = 0; i < LAYOUTS; i++) {
        const Layout *l = &layouts[i];
        Rank rank[MAX_RANKS];
        Result cpu;
        run_on_cpu(l, &cpu);
        choose(device, GX_F32, nccl);
        run_ranks(l, rank);
        Worst w = compare_ranks(l, rank, &cpu);
        CHECK(w.ratio >= 0 && w.ratio <= 1, "%s on %s: %s: %.3g times its bound", l->what, device->name, w.what,
              w.ratio);
        if (w.ratio > test_state.worst) test_state.worst = w.ratio;
        for (int r = 0; r < l->dp * l->tp; r++) {
            check_waits(l->what, r, &rank[r].result.window);
            CHECK(rank[r].result.window.tickets > 0 || l->tp == 1 || !(nccl || device->shares_host_memory),
                  "%s on %s: no collective was started", l->what, device->name);
        }
        free_ranks(l, rank);
        free_result(&cpu);
    }
    choose(NULL, GX_F32, 0);
}

TEST(ten_steps_of_sgd_in_every_mode_are_those_of_the_cpu) { fp32_is_the_cpu(gx_default_device(), 0); }

// ---- bf16: within the gates ----------------------------------------------------------------------------------------

static double cosine(const float *a, const double *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ab += a[i] * b[i], aa += (double)a[i] * a[i], bb += b[i] * b[i];
    return ab / sqrt(aa * bb);
}

// Gradients of the first step, tensor by tensor. A tensor without a gradient to speak of has no direction.
static void compare_directions(const Layout *l, const char *device, const Result *a, const Result *serial)
{
    const GxTable *table = &a->model->m.table;
    for (int i = 0; i < table->n; i++) {
        const GxTensor *t = &table->row[i];
        const int64_t n = gx_tensor_count(t);
        if (t->has_alias) continue;
        double *ref = (double *)malloc((size_t)n * sizeof *ref), norm = 0;
        for (int64_t e = 0; e < n; e++) {
            ref[e] = serial->flat.b.grads[test_flat(serial->model, i) + gx_tensor_global_index(t, e)];
            norm += ref[e] * ref[e];
        }
        const double c = cosine(a->flat.b.grads + test_flat(a->model, i), ref, n);
        if (sqrt(norm) > 1e-3 * serial->norm[0] / sqrt(table->n))
            CHECK(c >= 0.999, "%s on %s: gradient of %s points elsewhere: cosine %.6f", l->what, device, t->name, c);
        free(ref);
    }
}

static void bf16_is_near(const GxDevice *device, int nccl)
{
    for (int i = 0; i < LAYOUTS; i++) {
        const Layout *l = &layouts[i];
        Rank rank[MAX_RANKS];
        Result cpu;
        run_on_cpu(l, &cpu);
        choose(device, GX_BF16, nccl);
        run_ranks(l, rank);
        for (int r = 0; r < l->dp * l->tp; r++) {
            const Result *a = &rank[r].result;
            CHECK(!a->error[0], "%s on %s, rank %d: %s", l->what, device->name, r, a->error);
            for (int s = 0; s < STEPS; s++)
                CHECK(fabs(a->loss[s] / cpu.loss[s] - 1) <= 2e-3, "%s on %s, step %d: loss %.6f, in fp32 %.6f", l->what,
                      device->name, s, a->loss[s], cpu.loss[s]);
            CHECK(fabs(a->norm[0] / cpu.norm[0] - 1) <= 1e-2, "%s on %s: grad norm %.6f, in fp32 %.6f", l->what,
                  device->name, a->norm[0], cpu.norm[0]);
            compare_directions(l, device->name, a, &cpu);
        }
        free_ranks(l, rank);
        free_result(&cpu);
    }
    choose(NULL, GX_F32, 0);
}

TEST(bf16_on_the_cpu_stays_near_fp32_in_every_mode) { bf16_is_near(gx_device_cpu(), 0); }

#ifdef GX_WITH_CUDA
TEST(bf16_on_the_device_stays_near_fp32_in_every_mode) { bf16_is_near(gx_default_device(), 0); }

// ---- by NCCL -------------------------------------------------------------------------------------------------------

TEST(ten_steps_of_sgd_by_nccl_are_those_of_the_cpu)
{
    if (!test_has_nccl()) SKIP("two ranks share the card; GX_TEST_NCCL=1 where each has one");
    fp32_is_the_cpu(gx_default_device(), 1);
}

TEST(bf16_by_nccl_stays_near_fp32)
{
    if (!test_has_nccl()) SKIP("two ranks share the card; GX_TEST_NCCL=1 where each has one");
    bf16_is_near(gx_default_device(), 1);
}

// On the emulator, whose cards have the UUID that is asked for, and all lie at the same place of the same machine.
TEST(a_card_is_told_from_others_by_its_uuid_alone)
{
    static const char *const uuids[] = {"one", "another", "one"};
    uint64_t card[3];
    char device[300] = "";
    gx_default_device()->describe(device, sizeof device);
    if (!strstr(device, "emulator")) SKIP("it takes cards that exchange their UUIDs, which only the emulator has");
    for (int i = 0; i < 3; i++) {
        GxContext g = GX_ZERO;
        g.device = gx_default_device();
        setenv("GX_EMU_UUID", uuids[i], 1);
        CHECK(gx_device_open(&g) == GX_OK, "%s", g.error.message);
        card[i] = g.device->card(&g);
        gx_device_close(&g);
    }
    unsetenv("GX_EMU_UUID");
    CHECK(card[0] && card[0] != card[1] && card[0] == card[2], "%lx, %lx, %lx", (long)card[0], (long)card[1],
          (long)card[2]);
}

// Rank 1 leaves rank 0 alone in a collective on the card: it stalls, or it fails. The host of rank 0 never waited for
// the collective, so it learns of it where it waits for the device: by itself, for numbers that go into memory of the
// host's own, as a step's loss does, or since more is asked of the device than its queue holds.
typedef enum { FOR_THE_DEVICE, FOR_A_NUMBER, FOR_MANY_NUMBERS, FOR_ROOM, WAYS_TO_WAIT } Waits;
typedef struct {
    GxComm comm;
    int rank, fails;
    Waits waits;
    double seconds;
    char error[600];
    pthread_t thread;
} Lonely;

static void wait_for(TestModel *t, Waits waits)
{
    float number;
    const int64_t bytes = t->arena.capacity; // more than goes through pinned memory at once
    if (waits == FOR_THE_DEVICE) gx_device_wait(&t->g);
    if (waits == FOR_A_NUMBER) gx_to_host(&t->g, &number, t->m.store.grads, sizeof number);
    for (int i = 0; i < 3000 && waits == FOR_ROOM; i++)
        gx_scale(&t->g, t->m.store.grads, t->m.store.grads, 1, 1.0f, GX_F32);
    if (waits != FOR_MANY_NUMBERS) return;
    void *all = malloc((size_t)bytes);
    CHECK(bytes > 256 << 10, "an arena of %ld bytes", (long)bytes);
    gx_to_host(&t->g, all, t->arena.base, bytes);
    free(all);
}

static void *lonely_main(void *user)
{
    Lonely *r = (Lonely *)user;
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    r->comm.timeout = r->fails ? 30 : 1;
    if (test_model_open_split(t, &model_config, &test_serial, T, 1, HEAD_CHUNK, &r->comm, 1, 1, NULL)) {
        const double started = gx_seconds();
        CHECK(t->g.comm->device_engine != NULL, "NCCL is not there");
        gx_at(&t->g, -1, "lonely");
        gx_all_reduce(&t->g, GX_AXIS_ALL, GX_SUM, t->m.store.grads, 100, GX_F32); // both: the group stands
        gx_device_wait(&t->g);
        if (r->rank == 0) gx_all_reduce(&t->g, GX_AXIS_ALL, GX_SUM, t->m.store.grads, 123, GX_F32);
        else if (r->fails) GX_FAIL(&t->g.error, GX_ERR_DEVICE, "the card is on fire");
        else usleep(2500000);
        wait_for(t, r->waits);
        r->seconds = gx_seconds() - started;
    }
    snprintf(r->error, sizeof r->error, "%s", t->g.error.message);
    test_model_close(t);
    free(t);
    return NULL;
}

static void leave_alone(Lonely rank[2], int fails, Waits waits)
{
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    memset(rank, 0, 2 * sizeof *rank);
    choose(gx_default_device(), GX_F32, 1);
    if (!CHECK(gx_threads_group_open(&group, 2, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < 2; r++) {
        rank[r].rank = r, rank[r].fails = fails, rank[r].waits = waits;
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, lonely_main, &rank[r]);
    }
    for (int r = 0; r < 2; r++) pthread_join(rank[r].thread, NULL);
    gx_threads_group_close(group);
    choose(NULL, GX_F32, 0);
}

TEST(a_collective_on_the_card_that_nobody_joins_times_out_with_its_name)
{
    Lonely rank[2];
    if (!test_has_nccl()) SKIP("two ranks share the card; GX_TEST_NCCL=1 where each has one");
    for (int waits = 0; waits < WAYS_TO_WAIT; waits++) {
        leave_alone(rank, 0, (Waits)waits);
        CHECK(strstr(rank[0].error, "rank 0 waited 1 s in all_reduce of 123 F32") &&
                  strstr(rank[0].error, "site lonely"),
              "way %d to wait: %s", waits, rank[0].error);
        CHECK(rank[0].seconds < 2.5, "way %d to wait: after %.1f s", waits, rank[0].seconds);
    }
}

TEST(a_rank_that_fails_ends_those_that_wait_for_it_on_the_card)
{
    Lonely rank[2];
    if (!test_has_nccl()) SKIP("two ranks share the card; GX_TEST_NCCL=1 where each has one");
    for (int waits = 0; waits < WAYS_TO_WAIT; waits++) {
        leave_alone(rank, 1, (Waits)waits);
        CHECK(strstr(rank[0].error, "rank 1 failed: the card is on fire"), "way %d to wait: %s", waits, rank[0].error);
        CHECK(rank[0].seconds < 5, "way %d to wait: after %.1f s", waits, rank[0].seconds);
    }
}
#endif

int main(int argc, char **argv) { return test_main(argc, argv); }
