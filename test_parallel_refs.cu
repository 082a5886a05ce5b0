// test_parallel_refs.cu: three steps of AdamW, serially, in pipelines and on data-parallel ranks, against PyTorch: its
// pipelines, FSDP2 and one rank agree, so that one dump has the losses, norms and weights of all (data/ref/parallel, by
// dev/ref/make_parallel_refs.py). The dump's samples are [T], Galaxy's rows are [T,B].
#include "test/model.h"
#include <pthread.h>

enum { STEPS = 3, MAX_RANKS = 4, MAX_TENSORS = 64 };
#define FOLDER "data/ref/parallel"

// How a window is computed. Its ranks are pp * dp_shard; each data-parallel rank has as many samples as the others, in
// `micro` micro-batches.
typedef struct {
    const char *what;
    int pp, dp_shard, micro, order;
    int zero, replicate; // what the ranks of dp_shard share; how many copies of what they share they are
} Way;

static const Way ways[] = {
    {"serial, one batch", 1, 1, 1, 0, 0, 0},
    {"serial, micro-batches", 1, 1, 4, 0, 0, 0},
    {"pp 2, 1f1b", 2, 1, 4, GX_ORDER_1F1B, 0, 0},
    {"pp 2, gpipe", 2, 1, 4, GX_ORDER_GPIPE, 0, 0},
    {"pp 2, zb1p", 2, 1, 4, GX_ORDER_ZB1P, 0, 0},
    {"pp 4, 1f1b", 4, 1, 4, GX_ORDER_1F1B, 0, 0},
    {"pp 4, gpipe", 4, 1, 4, GX_ORDER_GPIPE, 0, 0},
    {"pp 4, zb1p", 4, 1, 4, GX_ORDER_ZB1P, 0, 0},
    {"dp_shard 2", 1, 2, 2, 0, 0, 0},
    {"dp_shard 4", 1, 4, 2, 0, 0, 0},
    {"pp 2 x dp_shard 2, 1f1b", 2, 2, 4, GX_ORDER_1F1B, 0, 0},
    {"dp_shard 2, ZeRO 1", 1, 2, 2, 0, 1, 0},
    {"dp_shard 2, ZeRO 2", 1, 2, 1, 0, 2, 0},
    {"dp_shard 2, ZeRO 3", 1, 2, 2, 0, 3, 0},
    {"dp_shard 4, ZeRO 3", 1, 4, 2, 0, 3, 0},
    {"dp_replicate 2 x dp_shard 2, ZeRO 3", 1, 4, 2, 0, 3, 2},
    {"pp 2 x dp_shard 2, 1f1b, ZeRO 3", 2, 2, 4, GX_ORDER_1F1B, 3, 0},
};
enum { WAYS = sizeof ways / sizeof *ways };

// ---- the reference -------------------------------------------------------------------------------------------------

typedef struct {
    GxSafetensors file;
    GxLlamaConfig c;
    int32_t *tokens, *labels; // [STEPS,samples,T]
    int64_t samples, T;
} Reference;

static int32_t *read_integers(Reference *ref, const char *name)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = gx_safetensors_find(&ref->file, name);
    if (!CHECK(e && e->ndim == 3 && e->shape[0] == STEPS, "no %s of %d steps in the reference", name, STEPS))
        return NULL;
    int32_t *x = (int32_t *)malloc((size_t)e->elements * sizeof *x);
    CHECK(gx_safetensors_read_raw(&ref->file, e, 0, e->elements, x, &err) == GX_OK, "%s", err.message);
    ref->samples = e->shape[1], ref->T = e->shape[2];
    return x;
}

static int reference_open(Reference *ref)
{
    GxError err = GX_ZERO;
    memset(ref, 0, sizeof *ref);
    if (!CHECK(gx_llama_config_read(&ref->c, FOLDER "/config.json", &gx_silent, &err) == GX_OK &&
                   gx_safetensors_open(&ref->file, FOLDER "/ref.safetensors", &err) == GX_OK,
               "%s", err.message))
        return 0;
    ref->tokens = read_integers(ref, "tokens"), ref->labels = read_integers(ref, "labels");
    return ref->tokens && ref->labels;
}

static void reference_close(Reference *ref)
{
    free(ref->tokens), free(ref->labels);
    gx_safetensors_close(&ref->file);
}

// n numbers by their name, which is that of the kind of steps, a part and what it is; free them. NULL: not there.
static float *read_floats(Reference *ref, const char *kind, const char *part, const char *what, int64_t n)
{
    char name[GX_NAME + 40];
    GxError err = GX_ZERO;
    snprintf(name, sizeof name, "%s%s%s", kind, part, what);
    const GxSafetensorsEntry *e = gx_safetensors_find(&ref->file, name);
    if (!CHECK(e && e->elements == n, "no %s of %ld elements in the reference", name, (long)n)) return NULL;
    float *x = (float *)malloc((size_t)n * sizeof *x);
    CHECK(gx_safetensors_read(&ref->file, e, 0, n, x, &err) == GX_OK, "%s", err.message);
    return x;
}

static double read_number(Reference *ref, const char *kind, const char *part, const char *what)
{
    float *x = read_floats(ref, kind, part, what, 1);
    const double value = x ? x[0] : NAN;
    free(x);
    return value;
}

// ---- a rank --------------------------------------------------------------------------------------------------------

typedef struct {
    const Way *way;
    const Reference *ref;
    double max_norm;
    int rank;
    GxComm comm;
    pthread_t thread;
    TestModel t;
    double loss[STEPS], norm[STEPS];
    float *weights[MAX_TENSORS]; // after the steps, by row of the table; NULL: another stage has them
} Rank;

static int ranks_of(const Way *way) { return way->pp * way->dp_shard; }
static int64_t columns_of(const Rank *r) { return r->ref->samples / (r->way->dp_shard * r->way->micro); }

// Layers are cut evenly; the embedding is the first stage's, the head the last's.
static void wish_for(TestRequest *request, const Rank *r, int16_t *stage)
{
    const Way *way = r->way;
    const int layers = (int)r->ref->c.num_hidden_layers;
    for (int s = 1; s < way->pp; s++) stage[s] = (int16_t)(1 + s * layers / way->pp);
    stage[0] = 0, stage[way->pp] = (int16_t)(layers + 2);
    request->pp = way->pp;
    request->spec.micro_batches = way->micro, request->spec.order = way->order;
    request->spec.defers_weights = way->order == GX_ORDER_ZB1P;
    if (way->pp > 1) request->spec.stage = stage;
    request->sharded = (GxSharded)way->zero, request->replicate = way->replicate;
}

// The rank's samples of a step's window, as they stand in the dump one behind the other; room: [2,samples,T].
static void put_window(Rank *r, int step, GxBatch *batch, int32_t *room)
{
    const Reference *ref = r->ref;
    const int64_t T = ref->T, B = columns_of(r);
    for (int i = 0; i < r->way->micro; i++) {
        const int64_t first = (gx_group_index(&r->t.g, GX_AXIS_DP) * r->way->micro + i) * B;
        int32_t *token = room + 2 * i * T * B, *label = token + T * B;
        for (int64_t c = 0; c < B; c++)
            for (int64_t t = 0; t < T; t++) {
                const int64_t from = ((step * ref->samples) + first + c) * T + t;
                token[t * B + c] = ref->tokens[from], label[t * B + c] = ref->labels[from];
            }
        memset(&batch[i], 0, sizeof batch[i]);
        batch[i].tokens = token, batch[i].target[0].labels = label;
        batch[i].T = T, batch[i].B = B, batch[i].runs = gx_runs_one(T, 0);
        test_put_batch(&r->t, &batch[i], i);
    }
}

static void train(Rank *r)
{
    static const GxAdamW adamw = {0.9f, 0.95f, 1e-8f, 0.1f};
    TestModel *t = &r->t;
    GxBatch batch[TEST_WINDOW];
    int32_t *room = (int32_t *)malloc((size_t)(2 * r->ref->samples * r->ref->T) * sizeof *room);
    t->o.kind = GX_OPTIMIZER_ADAMW, t->o.adamw = adamw, t->o.max_grad_norm = r->max_norm;
    test_set_step(t, 1e-3f, 0);
    gx_checkpoint_load_weights(&t->g, &t->m, FOLDER "/model.safetensors");
    for (int s = 0; s < STEPS; s++) {
        put_window(r, s, batch, room);
        gx_runner_train(&t->g, &t->r, batch, NULL, NULL);
        const GxStep step = test_step(t);
        r->loss[s] = gx_step_loss(&step), r->norm[s] = sqrt(step.sum_squares);
    }
    free(room);
}

static void keep_weights(Rank *r)
{
    const GxStore *s = &r->t.m.store;
    for (int i = 0; i < s->table->n && i < MAX_TENSORS; i++) {
        const int64_t n = gx_tensor_count(&s->table->row[i]);
        if (!gx_store_has(s, i)) continue;
        const GxArenaMark mark = gx_arena_mark(r->t.g.arena);
        r->weights[i] = test_kept(&r->t, gx_values_read(&r->t.g, s, GX_VALUES_WEIGHTS, i, 0, n), n);
        gx_arena_release(r->t.g.arena, mark);
    }
}

static void *rank_main(void *user)
{
    Rank *r = (Rank *)user;
    int16_t stage[MAX_RANKS + 1];
    wish_for(&r->t.request, r, stage);
    if (!test_model_open_split(&r->t, &r->ref->c, &test_serial, r->ref->T, columns_of(r), 4, &r->comm, 1, 1, NULL)) {
        fprintf(stderr, "%s: the model of rank %d did not open\n", r->way->what, r->rank);
        exit(1); // others would wait
    }
    train(r);
    keep_weights(r);
    if (r->t.g.comm) gx_comm_close(&r->t.g);
    r->t.g.comm = NULL;
    return NULL;
}

static void rank_close(Rank *r)
{
    for (int i = 0; i < MAX_TENSORS; i++) free(r->weights[i]);
    test_model_close(&r->t);
}

// ---- against the reference -----------------------------------------------------------------------------------------

// As in test_llama.cu: AdamW makes a step of a rounding where a gradient is near zero, so that the scale is how far
// PyTorch's own runs are that begin one ulp away. Four of it, and the bound of the steps' reductions.
static double bound_of(Reference *ref, const char *kind, const char *what, double scale, int steps)
{
    return 4 * read_number(ref, kind, "_spread.", what) / scale +
           test_bound(steps * test_model_depth(&ref->c, ref->T, 1));
}

static void check_numbers(Reference *ref, const char *kind, const char *what, const Rank *r, const double *ours)
{
    char name[100];
    float *theirs = read_floats(ref, kind, ".", what, STEPS);
    for (int s = 0; theirs && s < STEPS; s++) {
        snprintf(name, sizeof name, "%s, rank %d, %s: %s of step %d", r->way->what, r->rank, kind, what, s);
        test_close_number(name, ours[s], theirs[s], bound_of(ref, kind, what, theirs[s], s + 1));
    }
    free(theirs);
}

// has: of each tensor, how many ranks have it so far.
static void check_weights(Reference *ref, const char *kind, const Rank *r, int *has)
{
    const GxTable *table = &r->t.m.table;
    for (int i = 0; i < table->n && i < MAX_TENSORS; i++) {
        char name[GX_NAME + 100];
        const int64_t n = gx_tensor_count(&table->row[i]);
        if (!r->weights[i]) continue;
        has[i]++;
        float *theirs = read_floats(ref, kind, ".", table->row[i].name, n);
        if (!theirs) continue;
        double squares = 0;
        for (int64_t e = 0; e < n; e++) squares += (double)theirs[e] * theirs[e];
        snprintf(name, sizeof name, "%s, rank %d, %s: %s", r->way->what, r->rank, kind, table->row[i].name);
        test_close_f(name, r->weights[i], theirs, n, bound_of(ref, kind, table->row[i].name, sqrt(squares), STEPS), 0);
        free(theirs);
    }
}

static void run_ranks(const Way *way, Reference *ref, double max_norm, Rank *rank)
{
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    if (!CHECK(gx_threads_group_open(&group, ranks_of(way), &err) == GX_OK, "%s", err.message)) exit(1);
    for (int r = 0; r < ranks_of(way); r++) {
        rank[r].way = way, rank[r].ref = ref, rank[r].max_norm = max_norm, rank[r].rank = r;
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, rank_main, &rank[r]);
    }
    for (int r = 0; r < ranks_of(way); r++) pthread_join(rank[r].thread, NULL);
    gx_threads_group_close(group);
}

static void check_way(const Way *way, Reference *ref, const char *kind, double max_norm)
{
    int has[MAX_TENSORS] = {0};
    Rank *rank = (Rank *)calloc(MAX_RANKS, sizeof *rank);
    run_ranks(way, ref, max_norm, rank);
    const GxTable *table = &rank[0].t.m.table;
    for (int r = 0; r < ranks_of(way); r++) {
        CHECK(!gx_failed(&rank[r].t.g), "%s, rank %d: %s", way->what, r, rank[r].t.g.error.message);
        check_numbers(ref, kind, "losses", &rank[r], rank[r].loss);
        check_numbers(ref, kind, "norms", &rank[r], rank[r].norm);
        check_weights(ref, kind, &rank[r], has);
    }
    CHECK(table->n <= MAX_TENSORS, "%d tensors", table->n);
    for (int i = 0; i < table->n && i < MAX_TENSORS; i++)
        CHECK(has[i] == way->dp_shard, "%s: %d ranks have %s", way->what, has[i], table->row[i].name);
    for (int r = 0; r < ranks_of(way); r++) rank_close(&rank[r]);
    free(rank);
}

static void check_ways(const char *kind, int is_clipped)
{
    Reference ref;
    if (reference_open(&ref)) {
        const double max_norm = is_clipped ? read_number(&ref, "", "", "max_norm") : 0;
        for (int i = 0; i < WAYS; i++)
            if (test_share(i)) check_way(&ways[i], &ref, kind, max_norm);
    }
    reference_close(&ref);
}

TEST(three_steps_are_those_of_pytorch_in_every_way_to_compute_them) { check_ways("adamw", 0); }
TEST(three_steps_that_clip_are_those_of_pytorch_in_every_way_to_compute_them) { check_ways("clipped", 1); }

int main(int argc, char **argv) { return test_main(argc, argv); }
