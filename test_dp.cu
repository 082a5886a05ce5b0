// test_dp.cu: data parallelism against serial, on the threads engine: loss, every gradient by name, grad norm, parameters after three steps of SGD.
// A subset runs under MPI, too: ./test_dp starts itself by mpirun, `mpirun -np N ./test_dp --mpi I` is one rank of layout I.
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test_model.h"
#include <pthread.h>

enum { T = 8, STEPS = 3, MAX_RANKS = 4, MAX_COLUMNS = 24, MAX_MICRO = 3 };
static const GxLlamaConfig model_config = {61, 32, 40, 2, 4, 2, 8, 64, 1e-5, 10000, 0.08, 0};

typedef struct {
    const char *what;
    int ranks, micro;        // micro-batches of a window
    int64_t list[MAX_RANKS]; // samples of each rank in a micro-batch
    int ignored_rank;        // whose labels are all ignored; -1: nobody's
    int tied;
} Layout;

typedef struct { // what a run left behind
    double loss[STEPS], norm[STEPS];
    int64_t n;
    float *grads; // of the first step
    float *weights;
    int64_t labels;
} Result;

typedef struct {
    const Layout *layout;
    int rank;
    GxComm comm;
    Result result;
    pthread_t thread;
} Rank;

static int64_t columns(const Layout *l) // samples of a micro-batch on all ranks
{
    int64_t n = 0;
    for (int r = 0; r < l->ranks; r++) n += l->list[r];
    return n;
}

// Sample `s` of the whole training, element t. Labels vary in how many count, so that ranks and micro-batches have different numbers of them.
static int32_t token_at(int64_t s, int64_t t) { return (int32_t)(gx_random_bits(11, (uint64_t)(s * T + t), 0, 1) % 61); }
static int32_t label_at(const Layout *l, int64_t s, int64_t t)
{
    int64_t column = s % columns(l), begin = 0;
    for (int r = 0; r < l->ranks; begin += l->list[r++])
        if (column >= begin && column < begin + l->list[r] && r == l->ignored_rank) return GX_IGNORE_INDEX;
    if (gx_random_bits(11, (uint64_t)(s * T + t), 0, 3) % 5 < (uint32_t)(s % 4)) return GX_IGNORE_INDEX;
    return (int32_t)(gx_random_bits(11, (uint64_t)(s * T + t), 0, 2) % 61);
}

// Columns [begin, begin + B) of every micro-batch of every step; `micro` such make a window of `window` samples.
static void run(const Layout *l, int64_t begin, int64_t B, int micro, GxComm *comm, Result *out)
{
    const int64_t window = l->micro * columns(l);
    static const GxAdamW unused = {0, 0, 0, 0};
    TestModel *t = (TestModel *)calloc(1, sizeof *t);
    GxLlamaConfig config = model_config;
    GxBatch batch[MAX_MICRO];
    int32_t tokens[MAX_MICRO][T * MAX_COLUMNS], labels[MAX_MICRO][T * MAX_COLUMNS];
    config.tie_word_embeddings = l->tied;
    if (!test_model_open(t, &config, &gx_llama_serial, T, B, 7, comm, 1)) exit(1); // others would wait
    gx_model_init(&t->m.model, 42);
    t->o.kind = GX_OPTIMIZER_SGD;
    t->o.adamw = unused;
    t->o.max_grad_norm = 0.5; // clips
    t->step.lr = 0.5f;
    out->n = gx_table_offset(&t->m.model.table, t->m.model.table.units);
    out->grads = (float *)malloc((size_t)out->n * 4);
    out->weights = (float *)malloc((size_t)out->n * 4);
    memset(t->o.first, 0, (size_t)out->n * 4);
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < micro; i++) {
            memset(&batch[i], 0, sizeof batch[i]);
            for (int64_t c = 0; c < B; c++)
                for (int64_t x = 0; x < T; x++) {
                    int64_t sample = s * window + i * (window / micro) + begin + c;
                    tokens[i][x * B + c] = token_at(sample, x);
                    labels[i][x * B + c] = label_at(l, sample, x);
                }
            batch[i].tokens = tokens[i], batch[i].labels = labels[i], batch[i].T = T, batch[i].B = B, batch[i].runs = gx_runs_one(T, 0);
        }
        gx_window_gradients(&t->g, &t->m.model, batch, micro, &t->o, &out->labels, NULL);
        if (s == 0) memcpy(out->grads, t->o.grads, (size_t)out->n * 4);
        gx_window_update(&t->g, &t->m.model, &t->o);
        out->loss[s] = t->step.loss;
        out->norm[s] = sqrt(t->step.sum_squares);
    }
    memcpy(out->weights, t->o.weights, (size_t)out->n * 4);
    CHECK(!gx_failed(&t->g), "%s: %s", l->what, t->g.error.message);
    test_model_close(t);
    free(t);
}

static void *rank_main(void *user)
{
    Rank *r = (Rank *)user;
    int64_t begin = 0;
    for (int i = 0; i < r->rank; i++) begin += r->layout->list[i];
    run(r->layout, begin, r->layout->list[r->rank], r->layout->micro, &r->comm, &r->result);
    return NULL;
}

static void run_ranks(const Layout *l, Rank *rank)
{
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    memset(rank, 0, (size_t)l->ranks * sizeof *rank);
    if (!CHECK(gx_threads_group_open(&group, l->ranks, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < l->ranks; r++) {
        rank[r].layout = l;
        rank[r].rank = r;
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, rank_main, &rank[r]);
    }
    for (int r = 0; r < l->ranks; r++) pthread_join(rank[r].thread, NULL);
    gx_threads_group_close(group);
}

static void free_result(Result *r) { free(r->grads), free(r->weights); }

static int same_bits(const Result *a, const Result *b)
{
    return !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm) && a->n == b->n &&
           !memcmp(a->grads, b->grads, (size_t)a->n * 4) && !memcmp(a->weights, b->weights, (size_t)a->n * 4);
}

static void compare_with_serial(const Layout *l, const Result *a, const Result *serial)
{
    char what[200];
    GxContext g = GX_ZERO;
    GxLlama m;
    GxLlamaConfig config = model_config;
    config.tie_word_embeddings = l->tied;
    const double rows = (double)(l->micro * columns(l) * T),
                 depth = test_model_depth(&config, T, 1) + rows; // weight gradients sum over rows
    gx_llama_open(&g, &m, &config, &gx_llama_serial);
    CHECK(a->labels == serial->labels, "%s: %ld labels, serially %ld", l->what, (long)a->labels, (long)serial->labels);
    for (int s = 0; s < STEPS; s++) {
        snprintf(what, sizeof what, "%s: loss of step %d", l->what, s);
        test_close_number(what, a->loss[s], serial->loss[s], test_bound((s + 1) * depth));
        snprintf(what, sizeof what, "%s: grad norm of step %d", l->what, s);
        test_close_number(what, a->norm[s], serial->norm[s], test_bound((s + 1) * depth));
    }
    for (int i = 0; i < m.model.table.n; i++) {
        const GxTensor *t = &m.model.table.row[i];
        int64_t at = gx_table_flat(&m.model.table, i), n = gx_tensor_count(t);
        if (t->has_alias) continue;
        snprintf(what, sizeof what, "%s: gradient of %s", l->what, t->name);
        test_close_f(what, a->grads + at, serial->grads + at, n, test_bound(depth), 1e-3 * serial->norm[0] / sqrt(m.model.table.n));
        snprintf(what, sizeof what, "%s: %s after %d steps", l->what, t->name, STEPS);
        test_close_f(what, a->weights + at, serial->weights + at, n, test_bound((double)STEPS * depth), 0);
    }
    gx_llama_close(&m);
}

static const Layout layouts[] = {
    {"1 rank", 1, 1, {4}, -1, 0},
    {"2 ranks", 2, 1, {2, 2}, -1, 0},
    {"2 ranks, 3 and 1 samples", 2, 1, {3, 1}, -1, 0},
    {"2 ranks, accumulation", 2, 2, {1, 3}, -1, 0},
    {"2 ranks, tied head, accumulation", 2, 2, {2, 1}, -1, 1},
    {"2 ranks, all labels of rank 1 ignored", 2, 1, {2, 2}, 1, 0},
    {"2 ranks, all labels of rank 0 ignored, accumulation", 2, 3, {2, 1}, 0, 0},
    {"3 ranks", 3, 1, {2, 2, 2}, -1, 0},
    {"3 ranks, 1, 3 and 2 samples, accumulation", 3, 2, {1, 3, 2}, -1, 0},
    {"3 ranks, tied head, all labels of rank 2 ignored", 3, 1, {1, 1, 2}, 2, 1},
    {"4 ranks", 4, 1, {2, 2, 2, 2}, -1, 0},
    {"4 ranks, 1, 1, 4 and 1 samples, accumulation", 4, 3, {1, 1, 4, 1}, -1, 0},
};

TEST(data_parallel_is_serial)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const Layout *l = &layouts[i];
        Rank rank[MAX_RANKS];
        Result serial = {{0}, {0}, 0, NULL, NULL, 0};
        run(l, 0, l->micro * columns(l), 1, NULL, &serial); // the whole window in one micro-batch
        run_ranks(l, rank);
        for (int r = 0; r < l->ranks; r++) {
            compare_with_serial(l, &rank[r].result, &serial);
            CHECK(same_bits(&rank[r].result, &rank[0].result), "%s: rank %d and rank 0 differ in bits", l->what, r);
        }
        if (l->ranks == 1) CHECK(same_bits(&rank[0].result, &serial), "one rank is not serial bit for bit");
        for (int r = 0; r < l->ranks; r++) free_result(&rank[r].result);
        free_result(&serial);
    }
}

// ---- under MPI ----------------------------------------------------------------------------------------------------------------------

// Of everything that a run left behind: losses, norms, every gradient, every weight.
static uint64_t hash_of(const Result *r)
{
    uint64_t h = gx_hash(GX_HASH_START, r->loss, sizeof r->loss);
    h = gx_hash(h, r->norm, sizeof r->norm);
    h = gx_hash(h, r->grads, 4 * r->n);
    return gx_hash(h, r->weights, 4 * r->n);
}

static const char *program; // argv[0]

static int mpi_main(int index)
{
    Rank r;
    GxError err = GX_ZERO;
    memset(&r, 0, sizeof r);
    if (gx_mpi_comm(&r.comm, &err) != GX_OK) return fprintf(stderr, "%s\n", err.message), 1;
    r.layout = &layouts[index];
    r.rank = r.comm.rank;
    rank_main(&r);
    printf("rank %d hash %016llx\n", r.rank, (unsigned long long)hash_of(&r.result));
    return test_state.failures != 0;
}

TEST(mpi_gives_the_bits_of_threads_in_losses_gradients_and_weights)
{
#ifndef GX_WITH_MPI
    SKIP("built without GX_WITH_MPI");
#endif
    static const int subset[] = {2, 4, 6, 9, 11}; // 2, 3 and 4 ranks; unequal samples, tied head, accumulation, labels ignored
    if (system("command -v mpirun >/dev/null 2>&1")) SKIP("there is no mpirun here");
    for (size_t i = 0; i < sizeof subset / sizeof *subset; i++) {
        const Layout *l = &layouts[subset[i]];
        Rank rank[MAX_RANKS];
        char line[1200];
        int seen = 0;
        run_ranks(l, rank);
        snprintf(line, sizeof line,
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
                 "OMPI_MCA_hwloc_base_binding_policy=none ASAN_OPTIONS=detect_leaks=0 timeout 60 mpirun -np %d %.600s --mpi %d",
                 l->ranks, program, subset[i]);
        FILE *out = popen(line, "r");
        while (out && fgets(line, sizeof line, out)) {
            int r;
            unsigned long long hash;
            if (sscanf(line, "rank %d hash %llx", &r, &hash) != 2 || r < 0 || r >= l->ranks) continue;
            CHECK(hash == hash_of(&rank[r].result), "%s: rank %d has other bits under MPI", l->what, r);
            seen++;
        }
        int status = out ? pclose(out) : -1;
        CHECK(seen == l->ranks && status == 0, "%s: %d ranks answered, mpirun ended with %d", l->what, seen, status);
        for (int r = 0; r < l->ranks; r++) free_result(&rank[r].result);
    }
}

TEST(data_parallel_gives_the_same_bits_twice)
{
    Rank a[MAX_RANKS], b[MAX_RANKS];
    const Layout *l = &layouts[8];
    run_ranks(l, a);
    run_ranks(l, b);
    for (int r = 0; r < l->ranks; r++) {
        CHECK(same_bits(&a[r].result, &b[r].result), "rank %d", r);
        free_result(&a[r].result), free_result(&b[r].result);
    }
}

TEST(a_window_without_labels_has_loss_0_and_gradients_0)
{
    const Layout l = {"nothing counts", 1, 2, {2}, 0, 0};
    Result r = {{0}, {0}, 0, NULL, NULL, 0};
    run(&l, 0, 2, l.micro, NULL, &r);
    double sum = 0;
    for (int64_t i = 0; i < r.n; i++) sum += fabs((double)r.grads[i]);
    CHECK(r.labels == 0 && r.loss[0] == 0 && r.norm[0] == 0 && sum == 0, "%ld labels, loss %g, norm %g, sum of |gradients| %g",
          (long)r.labels, r.loss[0], r.norm[0], sum);
    free_result(&r);
}

// One synchronisation per window: whatever the accumulation, a rank sends its gradients once, with two numbers before and one after.
TEST(gradients_are_synchronised_once_per_window)
{
    for (int micro = 1; micro <= MAX_MICRO; micro++) {
        TestModel *t = (TestModel *)calloc(1, sizeof *t);
        GxBatch batch[MAX_MICRO];
        GxRecorder rec = GX_ZERO;
        GxContext dry;
        int reduces = 0;
        if (!test_model_open(t, &model_config, &gx_llama_serial, T, 2, 7, NULL, 1)) return;
        memset(batch, 0, sizeof batch);
        for (int i = 0; i < micro; i++) batch[i].T = T, batch[i].B = 2, batch[i].runs = gx_runs_one(T, 0);
        GxDevice none = gx_device_none(t->g.device);
        GxArena arena;
        GxComm nobody = GX_ZERO;
        GxMesh mesh;
        int dims[GX_MESH_AXES] = {1, 1, 4, 1, 1};
        gx_arena_open_dry(&arena);
        dry = t->g;
        dry.device = &none, dry.recorder = &rec, dry.arena = &arena;
        gx_mesh_open(&mesh, dims, 1, 4, &dry.error);
        dry.mesh = &mesh, nobody.rank = 1, nobody.world = 4;
        gx_comm_open(&dry, &nobody);
        gx_window_gradients(&dry, &t->m.model, batch, micro, &t->o, NULL, NULL);
        int64_t n = gx_table_offset(&t->m.model.table, t->m.model.table.units), bytes = 0;
        for (int64_t i = 0; i < rec.n; i++) {
            if (rec.event[i].kind != GX_EVENT_COLLECTIVE) continue;
            reduces++;
            bytes += rec.event[i].bytes;
        }
        // an all-reduce of n floats over 4 ranks sends 2*(3/4)*n of them; pieces of n that is no multiple of 4 differ by an element
        double expected = 2.0 * 3 / 4 * (4.0 * (double)n + 2 * 8 + 8);
        CHECK(reduces == 3 && !gx_failed(&dry), "%d collectives, %s", reduces, dry.error.message);
        CHECK(fabs((double)bytes - expected) < 100, "%ld bytes, about %.0f expected", (long)bytes, expected);
        gx_comm_close(&dry);
        gx_recorder_close(&rec);
        test_model_close(t);
        free(t);
    }
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && !strcmp(argv[1], "--mpi")) return mpi_main(atoi(argv[2]));
    return test_main(argc, argv);
}
