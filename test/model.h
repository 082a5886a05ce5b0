// test/model.h: a model for tests, a LLaMA unless the test wishes another family: context, arenas and model of one rank
// in one struct, its memory planned by a dry run as the trainer does.
//
// It computes on the device that the tests were built for. What a test looks at it copies out of the device's memory
// (test_kept, test_step), what it sets it copies in (test_put, test_set_step, test_put_batch).
#ifndef GX_TEST_MODEL_H
#define GX_TEST_MODEL_H
#include "../galaxy.h"
#include "test.h"

// What models compute on: the device that the tests were built for, unless a test says otherwise.
static const GxDevice *test_chosen_device;
__attribute__((
    unused)) static int test_uses_nccl; // 1: ranks move buffers of the device by NCCL, though they share a card
// NCCL wants a card of its own for each rank, but for the emulator's.
__attribute__((unused)) static int test_has_nccl(void)
{
    char text[300] = "";
    gx_default_device()->describe(text, sizeof text);
    return strstr(text, "emulator") || getenv("GX_TEST_NCCL");
}
__attribute__((unused)) static const GxDevice *test_device(void)
{
    return test_chosen_device ? test_chosen_device : gx_default_device();
}

// Micro-batches that have room; and numbers of a batch per token: tokens, types, positions, documents (2), and of two
// targets rows, labels and up to 5 values; with cp also the rows' numbers.
// Of a source: tokens, positions, documents (2), and who reads whom (2 + 2).
enum { TEST_WINDOW = 4, TEST_ARRAYS = 6 + 2 * 8 + 8 };

// The mode that one rank needs, and that of data parallelism: composed of nothing that is split.
static GxMode test_serial;
__attribute__((constructor)) static void test_make_serial(void)
{
    test_serial = gx_composed("serial", gx_methods(GX_METHOD_NONE, GX_METHOD_NONE, GX_METHOD_NONE));
}

typedef struct { // zero: fp32, one micro-batch, everything trained
    GxDtype dtype;
    GxRunnerSpec spec;
    const char *freeze;
    int first_unit, last_unit;
    int pp; // ranks of a pipeline, whose stages are spec.stage; 0: one. Of it the units above are those of its rank
    const int *width; // [pp]: how many ranks each has, instead of tp; NULL: all as many
    const GxHeadRequest *head;
    const GxFamily *family;         // NULL: LLaMA, of the configuration that is handed over
    void *config;                   // of another family; lent
    int64_t candidates;             // of vectors: GxTarget's
    const GxLora *lora;             // its factors B are drawn, not 0, with which A would have no gradient
    int quantize;                   // 1 + GxQuantKind; 0: nothing is
    const GxBottleneck *bottleneck; // of its adapters all but Down is drawn as large
    const GxSide *side;             // of its tensors those that are 0, too
    const GxPrompt *prompt;         // so are its gates, and rows
    GxSharded sharded;              // what data-parallel ranks share,
    GxPartList shares;              // how much each of it; NULL: even
    int replicate;                  // of so many groups of them each shares; 0: one
    const uint8_t *again;           // [layers]: what of them is computed again; NULL: nothing
    int cp, zigzags, ring;          // ranks that share each sequence; 0: one
    GxPartList cp_rows;             // of each of them; n 0: even
    int64_t source_T;               // of a model with an encoder: the longest source; 0: T
} TestRequest;

// Layers, as many as a test's model can have, that are computed again but for their inputs.
__attribute__((unused)) static const uint8_t test_layers_again[] = {
    GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER,
    GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER, GX_AGAIN_LAYER};

typedef struct {
    TestRequest request; // set before test_model_open_split
    GxContext g;
    GxArena arena, host;
    GxLlamaConfig config;
    GxModel m;
    GxRunner r;
    GxOptimizer o;
    GxMesh mesh;
    int32_t *tokens; // [TEST_WINDOW][TEST_ARRAYS][room]
    int64_t room;
    GxBatch source[TEST_WINDOW]; // of batches that have one
    int32_t *cut; // with cp: this rank's part of batches, in the host's memory; [TEST_WINDOW][TEST_ARRAYS][room]
} TestModel;

// A copy in the host's memory; the caller frees it.
__attribute__((unused)) static float *test_kept(TestModel *t, const void *buffer, int64_t n)
{
    float *x = (float *)malloc((size_t)n * sizeof *x + 1);
    if (n) gx_to_host(&t->g, x, buffer, 4 * n);
    return x;
}
__attribute__((unused)) static void test_put(TestModel *t, float *buffer, const float *x, int64_t n)
{
    gx_to_device(&t->g, buffer, x, 4 * n);
}

typedef struct {
    GxTensor whole;
    uint64_t seed;
} TestDraw;
static void test_draw(void *from, int64_t first, int64_t n, float *x, GxError *err)
{
    const TestDraw *d = (const TestDraw *)from;
    (void)err;
    gx_tensor_init(&d->whole, d->seed, first, n, x);
}

// First weights, and what quantised matrices are made from: the numbers that they would have.
__attribute__((unused)) static void test_init(TestModel *t, uint64_t seed)
{
    gx_model_init(&t->g, &t->m, seed);
    for (int i = 0; i < t->m.table.n; i++) {
        TestDraw d = {t->m.table.row[i], seed};
        if (!d.whole.quantized) continue; // of any stage: all ranks take part
        for (int k = 0; k < d.whole.ndim; k++) d.whole.begin[k] = 0, d.whole.end[k] = d.whole.global_shape[k];
        d.whole.parts = NULL;
        gx_quantize_tensor(&t->g, &t->m.store, i, test_draw, &d);
    }
}

__attribute__((unused)) static GxStep test_step(TestModel *t)
{
    GxStep s = GX_ZERO;
    gx_to_host(&t->g, &s, t->g.step, sizeof s);
    return s;
}
__attribute__((unused)) static void test_set_step(TestModel *t, float lr, int64_t applied)
{
    GxStep s = GX_ZERO;
    s.lr = lr, s.applied = applied;
    gx_to_device(&t->g, t->g.step, &s, sizeof s);
}

// An array of n numbers of 4 bytes, from the host's memory to the place `at`, which moves on. NULL stays NULL.
static const int32_t *test_put_array(TestModel *t, int32_t **at, const void *x, int64_t n)
{
    int32_t *place = *at;
    if (!x) return NULL;
    *at += n;
    if (n) gx_to_device(&t->g, place, x, 4 * n);
    return place;
}

// Sequences of this many rows: those of this rank.
__attribute__((unused)) static int64_t test_rows(const TestModel *t, int64_t T)
{
    return t->m.cp.n > 1 ? gx_split_part(&t->m.cp.rows, t->m.cp.me) : T;
}

static const int32_t *test_cut_array(int32_t **at, const void *wanted, int64_t n)
{
    const int32_t *place = *at;
    if (wanted) *at += n;
    return wanted ? place : NULL;
}

// This rank's part of a batch, in the host's memory.
static void test_cut_batch(TestModel *t, GxBatch *b, int number)
{
    int32_t *const block = t->cut + TEST_ARRAYS * number * t->room, *at = block;
    GxBatch mine = *b;
    mine.cp = &t->m.cp, mine.T = test_rows(t, b->T), mine.runs = gx_cp_runs(mine.cp, mine.cp->me);
    const int64_t n = mine.T * mine.B;
    mine.tokens = test_cut_array(&at, b->tokens, n), mine.types = test_cut_array(&at, b->types, n);
    mine.positions = test_cut_array(&at, b->positions, n);
    mine.documents = test_cut_array(&at, b->documents, 2 * b->T * b->B);
    mine.row_of = test_cut_array(&at, b->tokens, n);
    for (int k = 0; k < 2; k++) {
        GxTarget *to = &mine.target[k];
        const GxTarget *from = &b->target[k];
        to->rows = test_cut_array(&at, from->rows, n), to->row_of = test_cut_array(&at, from->rows, n);
        to->labels = test_cut_array(&at, from->labels, n);
    }
    gx_batch_cut(&mine, b, (const char *)block, (char *)block);
    *b = mine;
}

static void test_put_source(TestModel *t, GxBatch *b, int number, int32_t **at)
{
    GxBatch *s = &t->source[number];
    *s = *b->source;
    const int64_t n = s->T * s->B;
    CHECK(n <= t->room, "a source of %ld tokens has no room", (long)n);
    s->tokens = test_put_array(t, at, s->tokens, n), s->positions = test_put_array(t, at, s->positions, n);
    s->documents = test_put_array(t, at, s->documents, 2 * n);
    b->reads = test_put_array(t, at, b->reads, 2 * b->T * b->B);
    b->read_by = test_put_array(t, at, b->read_by, 2 * n);
    b->source = s;
}

// The arrays of micro-batch `number`, so far in the host's memory, where they stay as long as the batch is used.
// values: numbers of a row of the targets' values.
__attribute__((unused)) static void test_put_batch_values(TestModel *t, GxBatch *b, int number, int64_t values)
{
    const int64_t whole = b->T * b->B;
    if (t->m.cp.n > 1) test_cut_batch(t, b, number);
    const int64_t n = b->T * b->B;
    int32_t *at = t->tokens + TEST_ARRAYS * number * t->room;
    CHECK(number < TEST_WINDOW && n <= t->room, "micro-batch %d of %ld tokens has no room", number, (long)n);
    b->tokens = test_put_array(t, &at, b->tokens, n);
    b->types = test_put_array(t, &at, b->types, n), b->positions = test_put_array(t, &at, b->positions, n);
    b->documents = test_put_array(t, &at, b->documents, 2 * whole), b->row_of = test_put_array(t, &at, b->row_of, n);
    if (b->source) test_put_source(t, b, number, &at);
    for (int k = 0; k < 2; k++) {
        GxTarget *target = &b->target[k];
        const int64_t rows = gx_target_n(b, k);
        target->parts_host = target->parts;
        if (target->parts) target->parts = test_put_array(t, &at, target->parts, 3 * target->n);
        target->rows_host = target->rows, target->labels_host = target->labels;
        target->rows = test_put_array(t, &at, target->rows, rows);
        target->row_of = test_put_array(t, &at, target->row_of, rows);
        target->labels = test_put_array(t, &at, target->labels, rows);
        target->values = (const float *)test_put_array(t, &at, target->values, values * rows);
    }
}

// The same without targets, of whole sequences.
__attribute__((unused)) static void test_put_whole(TestModel *t, GxBatch *b, int number)
{
    const int64_t n = b->T * b->B;
    int32_t *at = t->tokens + TEST_ARRAYS * number * t->room;
    b->tokens = test_put_array(t, &at, b->tokens, n);
    b->types = test_put_array(t, &at, b->types, n), b->positions = test_put_array(t, &at, b->positions, n);
    b->documents = test_put_array(t, &at, b->documents, 2 * n);
}

__attribute__((unused)) static void test_put_batch(TestModel *t, GxBatch *b, int number)
{
    test_put_batch_values(t, b, number, 1);
}

static void test_model_allocate(TestModel *t, GxContext *g, int64_t T, int64_t B, int64_t chunk)
{
    g->step = (GxStep *)gx_arena_allocate(g->arena, GX_MEM_WORKSPACE, sizeof *g->step);
    t->m.max_source_T = t->m.memory ? gx_max(t->request.source_T, t->request.source_T ? 1 : T) : 0;
    t->room = gx_max(T, t->m.max_source_T) * B;
    t->tokens = (int32_t *)gx_arena_allocate(g->arena, GX_MEM_ACTIVATIONS, 4 * TEST_ARRAYS * TEST_WINDOW * t->room);
    t->o.kind = GX_OPTIMIZER_ADAMW; // both moments, whatever a test does with them
    gx_runner_allocate(g, &t->r, test_rows(t, T), B, chunk);
}

// A test reads what ranks share as files do, and whole gradients.
static void test_plan_reading(TestModel *t, GxContext *dry)
{
    if (!t->m.store.sharded) return;
    gx_tensor_file_plan(dry, &t->m.store, 1, 2);
    for (int u = 0; u < t->m.units; u++) {
        const GxArenaMark mark = gx_arena_mark(dry->arena);
        gx_scratch(dry, GX_MEM_WORKSPACE, gx_shards_grads_bytes(&t->m.store, u));
        gx_arena_release(dry->arena, mark);
    }
}

// With cp: logits of the rows of whole sequences that a test has picked.
static void test_plan_whole(TestModel *t, GxContext *dry, const GxBatch *b, int64_t T)
{
    const GxForward forward = gx_runner_hook(&t->r);
    GxBatch whole = *b;
    if (t->m.cp.n < 2) return;
    whole.T = T, whole.cp = NULL, whole.runs = gx_runs_one(T, 0);
    whole.types = whole.positions = whole.tokens; // those of a BERT
    memset(whole.target, 0, sizeof whole.target);
    whole.target[0].rows = t->tokens, whole.target[0].n = b->B;
    whole.target[0].logits = gx_rows(t->tokens, t->m.store.dtype, b->B, gx_model_vocab(&t->m));
    forward.run(dry, forward.user, &whole, NULL);
}

static void test_model_dry_run(TestModel *t, GxContext *dry, int64_t T, int64_t B, int64_t chunk)
{
    GxBatch b[TEST_WINDOW];
    GxStep step = GX_ZERO;
    memset(b, 0, sizeof b);
    test_model_allocate(t, dry, T, B, chunk);
    dry->step = &step; // the one in the arena must not be touched
    for (int i = 0; i < TEST_WINDOW; i++) {
        b[i].T = test_rows(t, T), b[i].B = B, b[i].runs = gx_runs_one(T, 0);
        b[i].tokens = b[i].target[0].labels = t->tokens;
        if (t->m.memory) t->source[i] = b[i], t->source[i].T = t->m.max_source_T, b[i].source = &t->source[i];
        if (t->m.memory) t->source[i].runs = gx_runs_one(t->source[i].T, 0);
        if (t->m.cp.n > 1) b[i].cp = &t->m.cp, b[i].runs = gx_cp_runs(b[i].cp, b[i].cp->me), b[i].row_of = t->tokens;
        for (int k = 0; k < 2 && t->request.head; k++) // rows that are picked, as many as there can be
            b[i].target[k].rows = b[i].target[k].labels = b[i].target[k].row_of = t->tokens,
            b[i].target[k].n = b[i].T * B, b[i].target[k].values = (const float *)t->tokens;
        if (t->request.head && t->request.head->kind == GX_HEAD_VECTORS) { // texts of a token each
            GxTarget *target = &b[i].target[0];
            memset(target, 0, sizeof *target);
            target->parts = t->tokens, target->n = T * B, target->anchors = T * B / 2;
            target->candidates = t->request.candidates;
        }
    }
    gx_model_init(dry, &t->m, 0);
    for (int i = 0; i < t->m.table.n; i++)
        if (t->m.table.row[i].quantized) gx_quantize_plan(dry, &t->m.store, i);
    gx_runner_train(dry, &t->r, b, NULL, NULL);
    gx_runner_forward(dry, &t->r, &b[0], dry->step->loss_sum);
    test_plan_whole(t, dry, &b[0], T);
    test_plan_reading(t, dry);
}

__attribute__((unused)) static GxAdapter test_adapter(const TestRequest *request)
{
    GxAdapter a = GX_ZERO;
    if (request->lora) a.lora = *request->lora;
    if (request->bottleneck) a.bottleneck = *request->bottleneck;
    if (request->side) a.side = *request->side;
    if (request->prompt) a.prompt = *request->prompt;
    return a;
}

// t is zeroed, but for its request. `comm`: an engine of several ranks, or NULL; `tp` of them to a group, the others
// data-parallel. lists NULL: even. 1: all is well.
__attribute__((unused)) static int test_model_open_split(TestModel *t, const GxLlamaConfig *config, const GxMode *mode,
                                                         int64_t T, int64_t B, int64_t chunk, GxComm *comm, int threads,
                                                         int tp, const GxSplitLists *lists)
{
    const TestRequest request = t->request;
    GxModelOptions options = GX_ZERO;
    options.lists = lists, options.freeze = request.freeze, options.dtype = request.dtype;
    if (request.last_unit) options.units = gx_units(request.first_unit, request.last_unit);
    options.head = request.head, options.again = request.again;
    options.adapter = test_adapter(&request), options.quantize = request.quantize;
    options.sharded = request.sharded, options.shard_list = comm ? &request.shares : NULL;
    memset(t, 0, sizeof *t);
    GxContext *g = &t->g;
    GxArena dry_arena, dry_host;
    t->request = request;
    if (config) t->config = *config;
    g->device = test_device();
    g->comm = comm; // a device may want to know the rank on this machine
    g->local_rank = comm ? comm->local_rank : 0;
    g->threads = threads;
    g->world = comm ? comm->world : 1;
    g->rank = comm ? comm->rank : 0;
    GxCp cp;
    const int cps = comm ? (int)gx_max(request.cp, 1) : 1;
    GxSplit cp_rows = gx_split_even(T, cps);
    int dims[GX_MESH_AXES] = {(int)gx_max(request.pp, 1), (int)gx_max(request.replicate, 1), -1, cps, tp};
    if (request.width) gx_mesh_open_stages(&t->mesh, request.width, request.pp, g->rank, g->world, &g->error);
    else gx_mesh_open(&t->mesh, dims, g->rank, g->world, &g->error);
    g->mesh = &t->mesh;
    for (int r = 0; r < cps && request.cp_rows.n; r++)
        cp_rows.begin[r + 1] = cp_rows.begin[r] + request.cp_rows.part[r];
    if (cps > 1 && !CHECK(gx_cp_open(&cp, gx_group_index(g, GX_AXIS_CP), &cp_rows, (int)gx_max(request.zigzags, 1),
                                     &g->error) == GX_OK,
                          "%s", g->error.message))
        return 0;
    cp.by_ring = request.ring;
    options.cp = cps > 1 ? &cp : NULL;
    t->cut = cps > 1 ? (int32_t *)malloc((size_t)(4 * TEST_ARRAYS * TEST_WINDOW * T * B)) : NULL;
    if (request.pp > 1) {
        options.units =
            gx_steps_units(request.spec.order, request.pp, gx_group_index(g, GX_AXIS_PP), request.spec.stage);
        t->mesh.head = gx_order_info(request.spec.order)->is_v ? 0 : request.pp - 1;
    }
    if (!CHECK(gx_device_open(g) == GX_OK, "%s", g->error.message)) return 0;
    const GxFamily *family = request.family ? request.family : &gx_llama;
    if (!CHECK(gx_model_open(g, &t->m, family, request.family ? request.config : &t->config, mode, &options) == GX_OK,
               "%s", g->error.message))
        return 0;
    for (int i = 0; i < t->m.table.n; i++) {
        GxTensor *row = &t->m.table.row[i];
        if (row->is_added && row->init != GX_INIT_UNIFORM && row->role != GX_ROLE_NORM)
            row->init = GX_INIT_NORMAL, row->init_std = strstr(row->name, "adaption_scale") ? 1 : 0.2f;
    }
    if (!CHECK(gx_runner_open(g, &t->r, &t->m, &t->o, &t->request.spec) == GX_OK, "%s", g->error.message)) return 0;
    GxContext dry = *g;
    GxDevice none = gx_device_none(g->device);
    GxComm nobody = GX_ZERO;
    nobody.rank = g->rank, nobody.world = g->world;
    gx_arena_open_dry(&dry_arena);
    gx_arena_open_dry(&dry_host);
    dry.arena = &dry_arena, dry.device = &none, dry.comm = NULL;
    dry.host = none.shares_host_memory ? NULL : &dry_host;
    if (comm) gx_comm_open(&dry, &nobody);
    test_model_dry_run(t, &dry, T, B, chunk);
    if (comm) gx_comm_close(&dry);
    CHECK(!gx_failed(&dry), "dry run: %s", dry.error.message);
    if (!CHECK(gx_arenas_open(g, &t->arena, &t->host, dry_arena.peak, dry_host.peak) == GX_OK, "%s", g->error.message))
        return 0;
    g->comm = NULL;
    if (comm && !CHECK(gx_comm_open(g, comm) == GX_OK, "%s", g->error.message)) return 0;
#ifdef GX_WITH_CUDA
    if (test_uses_nccl && !CHECK(gx_nccl_open(g) == GX_OK, "%s", g->error.message)) return 0;
#endif
    test_model_allocate(t, g, T, B, chunk);
    return CHECK(!gx_failed(g), "%s", g->error.message);
}

__attribute__((unused)) static int test_model_open(TestModel *t, const GxLlamaConfig *config, const GxMode *mode,
                                                   int64_t T, int64_t B, int64_t chunk, GxComm *comm, int threads)
{
    memset(t, 0, sizeof *t);
    return test_model_open_split(t, config, mode, T, B, chunk, comm, threads, 1, NULL);
}

__attribute__((unused)) static void test_model_close(TestModel *t)
{
    if (t->g.comm) gx_comm_close(&t->g);
    gx_runner_close(&t->r);
    gx_model_close(&t->m);
    gx_arenas_close(&t->g, &t->arena, &t->host);
    gx_device_close(&t->g);
    free(t->cut);
}

// fp32 values of all trained tensors, as they lie in gradients and moments.
__attribute__((unused)) static float *test_masters(const TestModel *t)
{
    return t->m.store.masters ? t->m.store.masters : (float *)t->m.store.weights;
}
__attribute__((unused)) static int64_t test_flat(const TestModel *t, int row)
{
    return t->m.store.place[row].trainable;
}

// All reductions that a number of this model has passed through, forward: the depth for test_bound. A gradient has
// passed through three times as many: forward, and two matrix products for each of its own.
__attribute__((unused)) static double test_model_depth(const GxLlamaConfig *c, int64_t T, int backward)
{
    double layer = 4.0 * (double)c->hidden_size +
                   (double)(c->head_dim + T + c->num_attention_heads * c->head_dim + c->intermediate_size);
    double forward = (double)c->num_hidden_layers * layer + (double)(c->hidden_size + c->vocab_size);
    return backward ? 3 * forward : forward;
}
#endif
