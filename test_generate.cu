// test_generate.cu: text generation with a cache of keys and values against transformers (dumps of
// dev/ref/make_generate.py): what greedy decoding writes, serially and on several ranks, for prompts of different
// lengths, and what beam search finds (dev/ref/make_beams.py); cached logits against those of the whole sequence; what the filters of sampling leave.
#include "galaxy.h"
#include "test/test.h"
#include "test/beam_refs.h"
#include <pthread.h>
#include <string.h>

enum { MAX_B = 3, NEW = 24, V = 61, POSITIONS = 40, SEEN_LOGITS = 4 };

// ---- a model that writes -------------------------------------------------------------------------------------------

typedef struct { // zero: fp32, alone
    const char *name;
    GxDtype dtype;
    int64_t B, T, chunk;  // columns, positions of the cache, positions that are run at once
    const char *mode;     // NULL: serial, or tp
    const int64_t *first; // [B]: where texts begin at the earliest; NULL: at 0
    const GxSide *side;   // beside the model, drawn; NULL: nothing
    int has_prompts;      // in attention (model/prompt.h), with open gates; 2: v2, with scales (model/scale.h)
} Wish;

static const GxPrompt prompts = {5, 1, NULL, 0}, scaled = {5, 1, NULL, 1};

typedef struct {
    Wish request;
    GxContext g;
    GxMesh mesh;
    GxArena arena, host;
    GxLlamaConfig c; // of a GPT-2 its sizes alone
    GxGpt2Config gpt2;
    GxMode mode;
    GxModel m;
    GxRunner r;
    GxOptimizer o;
    GxDecoder d;
    GxForward forward;
    int64_t planned;
} Writer;

static void writer_allocate(Writer *w, GxContext *g)
{
    gx_decoder_allocate(g, &w->d, &w->m, w->request.T, w->request.B, w->request.chunk, w->request.first);
    gx_runner_allocate(g, &w->r, w->request.chunk, w->request.B, w->request.B);
}

static void writer_dry_run(Writer *w, GxComm *comm)
{
    GxArena arena, host;
    GxContext dry = w->g;
    GxDevice none = gx_device_none(w->g.device);
    GxComm nobody = GX_ZERO;
    nobody.rank = w->g.rank, nobody.world = w->g.world;
    gx_arena_open_dry(&arena);
    gx_arena_open_dry(&host);
    dry.arena = &arena, dry.device = &none, dry.comm = NULL;
    dry.host = none.shares_host_memory ? NULL : &host;
    if (comm) gx_comm_open(&dry, &nobody);
    writer_allocate(w, &dry);
    gx_decoder_plan(&dry, &w->d, &w->forward);
    gx_tensor_file_plan(&dry, &w->m.store, 1, 1);
    if (comm) gx_comm_close(&dry);
    CHECK(!gx_failed(&dry), "dry run: %s", dry.error.message);
    w->planned = arena.peak;
    gx_arenas_open(&w->g, &w->arena, &w->host, arena.peak, host.peak);
}

// The folder's weights. What Up of a side network and gates of prompts are drawn as is not 0.
static void writer_load(Writer *w, const char *folder)
{
    const uint64_t seed = 7;
    char path[200];
    GxWeightsHash hash;
    GxWeightsLoaded loaded;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    for (int i = 0; i < w->m.table.n; i++) {
        GxTensor *row = &w->m.table.row[i];
        if (row->is_added && row->role != GX_ROLE_NORM)
            row->init = GX_INIT_NORMAL, row->init_std = w->request.side || row->role == GX_ROLE_BIAS ? 0.3f : 1;
    }
    if (w->request.side || w->request.has_prompts)
        gx_checkpoint_start_from(&w->g, &w->m, folder, 1, &seed, &hash, &loaded);
    else gx_checkpoint_load_weights(&w->g, &w->m, path);
}

static int is_gpt2(const Writer *w) { return !strncmp(w->request.name, "gpt2", 4); }

// The positions of a GPT-2 are a table, which no request makes longer.
static void writer_read_config(Writer *w)
{
    const GxGpt2Config *c = &w->gpt2;
    char path[200];
    snprintf(path, sizeof path, "data/ref/generate_%s/config.json", w->request.name);
    if (!is_gpt2(w)) {
        gx_llama_config_read(&w->c, path, &gx_silent, &w->g.error);
        w->c.max_position_embeddings = gx_max(w->c.max_position_embeddings, w->request.T);
        return;
    }
    gx_gpt2_config_read(&w->gpt2, path, &gx_silent, &w->g.error);
    w->c.vocab_size = c->vocab_size, w->c.hidden_size = c->n_embd, w->c.intermediate_size = c->n_inner;
    w->c.num_hidden_layers = c->n_layer, w->c.num_attention_heads = c->n_head, w->c.head_dim = c->n_embd / c->n_head;
}

// 1: all is well. comm: of several ranks, all of one tp group; NULL: alone.
static int writer_open(Writer *w, const Wish *request, GxComm *comm)
{
    char path[200];
    GxMethods methods;
    GxRunnerSpec spec = GX_ZERO;
    GxModelOptions options = GX_ZERO;
    memset(w, 0, sizeof *w);
    w->request = *request;
    GxContext *g = &w->g;
    const int world = comm ? comm->world : 1, dims[GX_MESH_AXES] = {1, 1, 1, 1, world};
    g->device = gx_default_device(), g->threads = 1;
    g->world = world, g->rank = comm ? comm->rank : 0;
    g->comm = comm; // a device may want to know the rank on this machine
    gx_mesh_open(&w->mesh, dims, g->rank, world, &g->error);
    g->mesh = &w->mesh;
    gx_device_open(g);
    writer_read_config(w);
    gx_mode_methods(request->mode ? request->mode : world > 1 ? "tp" : "serial", &methods);
    w->mode = gx_composed(request->mode ? request->mode : "composed", methods);
    spec.forward_only = 1, options.freeze = "*", options.dtype = request->dtype;
    if (request->side) options.adapter.side = *request->side;
    if (request->has_prompts) options.adapter.prompt = request->has_prompts == 2 ? scaled : prompts;
    if (!gx_failed(g))
        gx_model_open(g, &w->m, is_gpt2(w) ? &gx_gpt2 : &gx_llama, is_gpt2(w) ? (void *)&w->gpt2 : &w->c, &w->mode,
                      &options);
    if (!gx_failed(g)) gx_runner_open(g, &w->r, &w->m, &w->o, &spec);
    w->forward = gx_runner_hook(&w->r);
    if (!gx_failed(g)) writer_dry_run(w, comm);
    g->comm = NULL;
    if (comm && !gx_failed(g)) gx_comm_open(g, comm);
    if (!gx_failed(g)) writer_allocate(w, g);
    snprintf(path, sizeof path, "data/ref/generate_%s", request->name);
    if (!gx_failed(g)) writer_load(w, path);
    return CHECK(!gx_failed(g), "%s: %s", request->name, g->error.message);
}

static void writer_close(Writer *w)
{
    CHECK(w->arena.peak <= w->planned && !w->arena.exhausted, "%ld bytes were planned, %ld taken", (long)w->planned,
          (long)w->arena.peak);
    if (w->g.comm) gx_comm_close(&w->g);
    gx_runner_close(&w->r);
    gx_model_close(&w->m);
    gx_arenas_close(&w->g, &w->arena, &w->host);
    gx_device_close(&w->g);
}

// As much as the plan says, where as much is run as the plan has.
TEST(the_arena_is_as_planned)
{
    const Wish request = {.name = "llama", .B = 2, .T = 20, .chunk = 6};
    static Writer w;
    const int32_t tokens[12] = {0};
    if (!writer_open(&w, &request, NULL)) return;
    gx_decoder_begin(&w.g, &w.d, NULL);
    gx_decoder_run(&w.g, &w.d, &w.forward, tokens, 0, 6, 1);
    gx_decoder_run(&w.g, &w.d, &w.forward, tokens, 14, 6, 1);
    CHECK(w.arena.peak == w.planned && !gx_failed(&w.g), "%ld bytes were planned, %ld taken; %s", (long)w.planned,
          (long)w.arena.peak, w.g.error.message);
    CHECK(gx_kv_cache_bytes(&w.d.cache) == 2 * GX_PAGE * 2 * (2 * 2 * 8) * 4, "the cache has %ld bytes",
          (long)gx_kv_cache_bytes(&w.d.cache)); // layers, a page, columns, K and V of two heads of 8, fp32
    writer_close(&w);
}

// ---- the reference -------------------------------------------------------------------------------------------------

typedef struct {
    int32_t prompt[MAX_B][POSITIONS], length[MAX_B];
    int32_t greedy[MAX_B][NEW], penalised[MAX_B][NEW];
    float logits[SEEN_LOGITS][MAX_B][V]; // of the first new tokens
    int64_t longest;
} Reference;

static void read_raw(GxSafetensors *f, const char *name, void *out, int64_t n)
{
    GxError err = GX_ZERO;
    const GxSafetensorsEntry *e = gx_safetensors_find(f, name);
    if (!CHECK(e && e->elements == n, "%s is not there, or not of %ld", name, (long)n)) return;
    CHECK(gx_safetensors_read_raw(f, e, 0, n, out, &err) == GX_OK, "%s", err.message);
}

static int read_reference(Reference *r, const char *name)
{
    char path[200];
    GxSafetensors f;
    GxError err = GX_ZERO;
    int32_t flat[MAX_B * POSITIONS] = {0};
    snprintf(path, sizeof path, "data/ref/generate_%s/ref.safetensors", name);
    if (!CHECK(gx_safetensors_open(&f, path, &err) == GX_OK, "%s", err.message)) return 0;
    memset(r, 0, sizeof *r);
    read_raw(&f, "lengths", r->length, MAX_B);
    for (int b = 0; b < MAX_B; b++) r->longest = gx_max(r->longest, r->length[b]);
    read_raw(&f, "prompts", flat, r->length[0] + r->length[1] + r->length[2]);
    for (int b = 0, at = 0; b < MAX_B; at += r->length[b], b++)
        memcpy(r->prompt[b], flat + at, (size_t)r->length[b] * 4);
    read_raw(&f, "greedy", r->greedy, MAX_B * NEW);
    read_raw(&f, "greedy_penalty_1.3", r->penalised, MAX_B * NEW);
    read_raw(&f, "logits", r->logits, SEEN_LOGITS * MAX_B * V);
    gx_safetensors_close(&f);
    return 1;
}

// ---- greedy --------------------------------------------------------------------------------------------------------

typedef struct {
    int32_t ids[MAX_B][POSITIONS];
    GxDecodedText text[MAX_B];
} Texts;

static void begin_texts(Texts *t, const Reference *r)
{
    memset(t, 0, sizeof *t);
    for (int b = 0; b < MAX_B; b++) {
        memcpy(t->ids[b], r->prompt[b], (size_t)r->length[b] * 4);
        t->text[b].ids = t->ids[b], t->text[b].n = r->length[b];
    }
}

static void check_greedy(Writer *w, const Reference *r)
{
    Texts t;
    GxDecodePlan plan = GX_ZERO;
    plan.new_tokens = NEW;
    for (int penalised = 0; penalised < 2; penalised++) {
        plan.sampling.repetition_penalty = penalised ? 1.3 : 0;
        begin_texts(&t, r);
        const GxArenaMark mark = gx_arena_mark(&w->arena);
        gx_decode(&w->g, &w->d, &w->forward, t.text, &plan);
        CHECK(!gx_failed(&w->g), "%s", w->g.error.message);
        CHECK(w->arena.used == mark.used, "decoding left %ld bytes in the arena", (long)(w->arena.used - mark.used));
        for (int b = 0; b < MAX_B; b++) {
            const int32_t *expected = penalised ? r->penalised[b] : r->greedy[b], *ids = t.ids[b] + r->length[b];
            CHECK(t.text[b].n == r->length[b] + NEW && t.text[b].end == GX_TEXT_LENGTH, "text %d has %ld tokens", b,
                  (long)t.text[b].n);
            for (int i = 0; i < NEW; i++)
                if (!CHECK(ids[i] == expected[i], "rank %d, text %d, penalty %d: new token %d is %d, transformers' %d",
                           w->g.rank, b, penalised, i, ids[i], expected[i]))
                    break;
        }
    }
}

typedef struct {
    Wish request;
    Reference *ref;
    GxComm comm;
    pthread_t thread;
    void (*check)(Writer *w, const Reference *r);
} Rank;

static void *rank_main(void *user)
{
    Rank *k = (Rank *)user;
    Writer *w = (Writer *)malloc(sizeof *w);
    if (!writer_open(w, &k->request, &k->comm)) exit(1); // others would wait
    k->check(w, k->ref);
    writer_close(w);
    free(w);
    return NULL;
}

// On `ranks` threads as ranks; 1: alone.
static void on_ranks(int ranks, const Wish *request, Reference *ref, void (*check)(Writer *w, const Reference *r))
{
    Rank rank[4];
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    if (ranks == 1) {
        Writer *w = (Writer *)malloc(sizeof *w);
        if (writer_open(w, request, NULL)) check(w, ref);
        writer_close(w);
        free(w);
        return;
    }
    memset(rank, 0, sizeof rank);
    if (!CHECK(gx_threads_group_open(&group, ranks, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < ranks; r++) {
        rank[r].request = *request, rank[r].ref = ref, rank[r].check = check;
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, rank_main, &rank[r]);
    }
    for (int r = 0; r < ranks; r++) pthread_join(rank[r].thread, NULL);
    gx_threads_group_close(group);
}

// Prompts at once, and in pieces of three positions, the first of which have padding alone.
static void greedy_on_ranks(const char *name)
{
    Reference ref;
    if (!read_reference(&ref, name)) return;
    for (int ranks = 1; ranks <= 3; ranks++) {
        const Wish whole = {.name = name, .B = MAX_B, .T = POSITIONS, .chunk = POSITIONS},
                   pieces = {.name = name, .B = MAX_B, .T = POSITIONS, .chunk = 3};
        on_ranks(ranks, &whole, &ref, check_greedy);
        on_ranks(ranks, &pieces, &ref, check_greedy);
    }
}
TEST(llama_with_grouped_heads_writes_what_transformers_writes) { greedy_on_ranks("llama"); }
TEST(mistral_writes_what_transformers_writes) { greedy_on_ranks("mistral"); }
TEST(mistral_writes_what_transformers_writes_beyond_its_window) { greedy_on_ranks("mistral_window"); }
TEST(qwen3_writes_what_transformers_writes_beyond_windows_of_some_layers) { greedy_on_ranks("qwen3_window"); }
TEST(qwen2_writes_what_transformers_writes) { greedy_on_ranks("qwen2"); }
TEST(qwen3_writes_what_transformers_writes) { greedy_on_ranks("qwen3"); }
TEST(smollm3_writes_what_transformers_writes) { greedy_on_ranks("smollm3"); }
TEST(phi3_writes_what_transformers_writes) { greedy_on_ranks("phi3"); }
TEST(gemma3_writes_what_transformers_writes) { greedy_on_ranks("gemma3"); }
TEST(yarn_writes_what_transformers_writes) { greedy_on_ranks("yarn"); }
TEST(gpt2_writes_what_transformers_writes) { greedy_on_ranks("gpt2"); }

// ---- beams ---------------------------------------------------------------------------------------------------------

static BeamReference beams;

// 1: searches take long: with sanitizers, or in the emulator.
static int is_slow(void)
{
    char text[300] = "";
    gx_default_device()->describe(text, sizeof text);
    return TEST_IS_SANITIZED || strstr(text, "emulator") != NULL;
}

// All searches (where they take long, every third) with as many beams as there are columns for each of the prompts,
// which are of different lengths.
static void check_beams(Writer *w, const Reference *unused)
{
    (void)unused;
    const int64_t K = w->request.B / TEXTS, every = is_slow() ? 3 : 1;
    int64_t at = 0, from = 0, compared = 0, all = 0;
    for (int64_t s = 0; s < beams.searches; s++) {
        int32_t ids[MOST_RESULTS][SOURCES + MOST_TOKENS];
        GxDecodedText text[MOST_RESULTS];
        GxBeamPlan plan = GX_ZERO;
        plan.options = beam_reference_search(&beams, s, 1);
        const int64_t R = plan.options.num_return_sequences;
        plan.options.max_length--, plan.options.min_length = gx_max(0, plan.options.min_length - 1);
        memset(text, 0, sizeof text);
        for (int i = 0; i < TEXTS * R; i++) {
            const int64_t n = beams.length[i / R];
            memcpy(ids[i], beams.source[i / R], (size_t)n * 4);
            text[i].ids = ids[i], text[i].n = n;
        }
        const GxArenaMark mark = gx_arena_mark(&w->arena);
        const int is_run = plan.options.num_beams == K && s % every == 0;
        if (is_run) gx_decode_beams(&w->g, &w->d, &w->forward, text, TEXTS, &plan);
        CHECK(!gx_failed(&w->g), "%s", w->g.error.message);
        CHECK(w->arena.used == mark.used, "a search left %ld bytes in the arena", (long)(w->arena.used - mark.used));
        for (int64_t i = 0; i < TEXTS * R; from += beams.count[at], at++, i++) {
            if (!is_run || w->g.rank > 0) continue;
            all++;
            if (!beams.count[at]) continue; // left out, since its result is not clear
            const GxDecodedText *t = &text[i];
            compared++;
            check_beam(w->request.name, w->g.rank, &beams, s, (int)(i / R), i % R, at, from, t->ids + t->prompt,
                       t->n - t->prompt, t->score);
            const int is_end = gx_beam_ends(&plan.options, t->ids[t->n - 1]);
            CHECK(t->end == (is_end ? GX_TEXT_TOKEN : GX_TEXT_LENGTH), "ended by %d", (int)t->end);
        }
    }
    CHECK(at == beams.results && (w->g.rank > 0 || compared > 0.9 * (double)all), "%ld of %ld results were compared",
          (long)compared, (long)all);
}

// chunk: positions of the prompts that are run at once; 0: all of them
static void beams_of_on_ranks(const char *name, int ranks, int64_t K, int64_t chunk)
{
    char folder[80];
    snprintf(folder, sizeof folder, "generate_%s", name);
    if (!beam_reference_read(&beams, folder)) return;
    const Wish request = {
        .name = name, .B = TEXTS * K, .T = beams.longest + MOST_TOKENS - 1, .chunk = chunk ? chunk : beams.longest};
    on_ranks(ranks, &request, NULL, check_beams);
}
static void beams_on_ranks(int ranks, int64_t K, int64_t chunk) { beams_of_on_ranks("beams", ranks, K, chunk); }
TEST(beams_of_a_gemma3_find_what_transformers_finds)
{
    beams_of_on_ranks("gemma3_beams", 1, 3, 3);
    beams_of_on_ranks("gemma3_beams", 2, 4, 0);
}
TEST(a_search_without_beams_finds_what_transformers_finds) { beams_on_ranks(1, 1, 0); }
TEST(beams_find_what_transformers_finds)
{
    for (int64_t K = 2; K <= MOST_BEAMS; K++) beams_on_ranks(1, K, K == 3 ? 3 : 0);
}
TEST(beams_of_a_gpt2_find_what_transformers_finds)
{
    for (int64_t K = 1; K <= MOST_BEAMS; K += K == 1 ? 2 : 1) beams_of_on_ranks("gpt2_beams", 1, K, K == 3 ? 3 : 0);
    beams_of_on_ranks("gpt2_beams", 2, 4, 0);
}
TEST(beams_on_ranks_find_what_transformers_finds) { beams_on_ranks(2, 3, 0), beams_on_ranks(3, 4, 0); }

// A prompt beside others, the first of which are longer than a page of the cache, finds what it finds alone.
TEST(what_beams_find_does_not_depend_on_the_other_prompts)
{
    enum { K = 4, LONG = GX_PAGE + 5, NEW_TOKENS = GX_PAGE };
    static int32_t ids[2][2][LONG + NEW_TOKENS];
    GxBeamPlan plan = GX_ZERO;
    plan.options.num_beams = K, plan.options.num_return_sequences = 1, plan.options.max_length = NEW_TOKENS;
    plan.options.length_penalty = plan.options.repetition_penalty = 1;
    plan.options.forced_bos = plan.options.forced_eos = -1;
    for (int alone = 0; alone < 2; alone++) {
        const Wish request = {.name = "beams", .B = alone ? K : 2 * K, .T = LONG + NEW_TOKENS, .chunk = LONG};
        static Writer w;
        GxDecodedText text[2];
        memset(text, 0, sizeof text);
        for (int i = 0; i < LONG; i++) ids[alone][0][i] = 2 + i % 31, ids[alone][1][i] = 3 + i;
        text[0].ids = ids[alone][0], text[0].n = LONG, text[1].ids = ids[alone][1], text[1].n = 3;
        if (!writer_open(&w, &request, NULL)) return;
        gx_decode_beams(&w.g, &w.d, &w.forward, alone ? text + 1 : text, alone ? 1 : 2, &plan);
        CHECK(!gx_failed(&w.g) && text[1].n == 3 + NEW_TOKENS, "%s", w.g.error.message);
        writer_close(&w);
    }
    CHECK(!memcmp(ids[0][1], ids[1][1], (3 + NEW_TOKENS) * 4), "another text");
}

// ---- logits --------------------------------------------------------------------------------------------------------

typedef struct {
    float x[NEW][MAX_B][V]; // before each new token
} Logits;

// With the cache: the prompts, then token by token, each what transformers wrote.
static void cached_logits(Writer *w, const Reference *r, Logits *out)
{
    int64_t first[MAX_B];
    int32_t tokens[POSITIONS * MAX_B] = {0};
    for (int b = 0; b < MAX_B; b++) {
        first[b] = r->longest - r->length[b];
        for (int i = 0; i < r->length[b]; i++) tokens[(first[b] + i) * MAX_B + b] = r->prompt[b][i];
    }
    gx_decoder_begin(&w->g, &w->d, first);
    const float *x = gx_decoder_run(&w->g, &w->d, &w->forward, tokens, 0, r->longest, 1);
    for (int i = 0; x; i++) {
        memcpy(out->x[i], x, sizeof out->x[i]);
        if (i + 1 == NEW) break;
        for (int b = 0; b < MAX_B; b++) tokens[b] = r->greedy[b][i];
        x = gx_decoder_run(&w->g, &w->d, &w->forward, tokens, r->longest + i, 1, 1);
    }
    CHECK(x != NULL, "%s", w->g.error.message);
}

// Without: the logits of the last of n tokens, as a batch of their own from position 0.
static void whole_row(Writer *w, const int32_t *tokens, int64_t n, float *logits)
{
    GxBatch batch = GX_ZERO;
    memcpy(w->d.tokens_host, tokens, (size_t)n * 4);
    w->d.rows_host[0] = (int32_t)n - 1;
    gx_to_device(&w->g, w->d.tokens, w->d.tokens_host, 4 * n);
    gx_to_device(&w->g, w->d.rows, w->d.rows_host, 4);
    batch.tokens = w->d.tokens, batch.T = n, batch.B = 1, batch.runs = gx_runs_one(n, 0);
    batch.target[0].rows = w->d.rows, batch.target[0].rows_host = w->d.rows_host, batch.target[0].n = 1;
    batch.target[0].logits = w->d.logits;
    gx_runner_forward(&w->g, &w->r, &batch, NULL);
    gx_to_host(&w->g, w->d.logits_host, w->d.logits.data, gx_rows_bytes(w->d.logits));
    for (int v = 0; v < V; v++)
        logits[v] = w->request.dtype == GX_F32 ? ((const float *)w->d.logits_host)[v]
                                               : gx_from_bf16(((const uint16_t *)w->d.logits_host)[v]);
}

static void whole_logits_of(const Wish *as, const Reference *r, Logits *out)
{
    Wish request = *as;
    request.B = 1, request.T = POSITIONS, request.chunk = POSITIONS;
    Writer *w = (Writer *)malloc(sizeof *w);
    if (!writer_open(w, &request, NULL)) return;
    for (int b = 0; b < MAX_B; b++)
        for (int i = 0; i < NEW; i++) {
            int32_t tokens[POSITIONS];
            memcpy(tokens, r->prompt[b], (size_t)r->length[b] * 4);
            memcpy(tokens + r->length[b], r->greedy[b], (size_t)i * 4);
            whole_row(w, tokens, r->length[b] + i, out->x[i][b]);
        }
    CHECK(!gx_failed(&w->g), "%s", w->g.error.message);
    writer_close(w);
    free(w);
}

static void whole_logits(const char *name, GxDtype dtype, const Reference *r, Logits *out)
{
    const Wish request = {.name = name, .dtype = dtype};
    whole_logits_of(&request, r, out);
}

static double depth_of(const GxLlamaConfig *c, int64_t T)
{
    const double layer = 4.0 * (double)c->hidden_size +
                         (double)(c->head_dim + T + c->num_attention_heads * c->head_dim + c->intermediate_size);
    return (double)c->num_hidden_layers * layer + (double)(c->hidden_size + c->vocab_size);
}

static Logits whole; // of the model at work

// All at once, and the new ones one by one: both have passed through as many sums, so the bound is of two.
static void check_logits(Writer *w, const Reference *r)
{
    Logits *cached = (Logits *)calloc(1, sizeof *cached);
    const double bound = test_bound((w->request.side ? 4 : 2) * depth_of(&w->c, POSITIONS));
    cached_logits(w, r, cached);
    static pthread_mutex_t one_rank = PTHREAD_MUTEX_INITIALIZER; // test_close notes the worst for all
    pthread_mutex_lock(&one_rank);
    for (int i = 0; i < NEW; i++)
        for (int b = 0; b < MAX_B; b++) {
            double largest = 0, squares = 0;
            test_close_f("cached logits", cached->x[i][b], whole.x[i][b], V, bound, 0);
            for (int v = 0; v < V; v++) {
                largest = fmax(largest, fabs((double)cached->x[i][b][v] - whole.x[i][b][v]));
                squares += (double)whole.x[i][b][v] * whole.x[i][b][v];
            }
            const double allowed = bound * sqrt(squares / V); // of one logit: the bound, of a logit of typical size
            test_state.worst = fmax(test_state.worst, largest / allowed);
            CHECK(largest <= allowed, "text %d, new token %d: a logit is off by %.2g, allowed is %.2g", b, i, largest,
                  allowed);
            if (i < SEEN_LOGITS && !w->request.side && !w->request.has_prompts)
                test_close_f("transformers' logits", cached->x[i][b], r->logits[i][b], V, bound, 0);
        }
    pthread_mutex_unlock(&one_rank);
    free(cached);
}

static void logits_beside_on_ranks(const char *name, const GxSide *side)
{
    Reference ref;
    if (!read_reference(&ref, name)) return;
    const Wish beside = {.name = name, .side = side};
    whole_logits_of(&beside, &ref, &whole);
    for (int ranks = 1; ranks <= 3; ranks++) {
        const Wish request = {.name = name, .B = MAX_B, .T = POSITIONS, .chunk = POSITIONS, .side = side};
        on_ranks(ranks, &request, &ref, check_logits);
    }
}
static void logits_on_ranks(const char *name) { logits_beside_on_ranks(name, NULL); }
TEST(llama_has_the_same_logits_with_a_cache) { logits_on_ranks("llama"); }
TEST(mistral_has_the_same_logits_with_a_cache) { logits_on_ranks("mistral"); }
TEST(mistral_has_the_same_logits_with_a_cache_beyond_its_window) { logits_on_ranks("mistral_window"); }
TEST(qwen3_has_the_same_logits_with_a_cache_beyond_windows_of_some_layers) { logits_on_ranks("qwen3_window"); }
TEST(qwen2_has_the_same_logits_with_a_cache) { logits_on_ranks("qwen2"); }
TEST(qwen3_has_the_same_logits_with_a_cache) { logits_on_ranks("qwen3"); }
TEST(smollm3_has_the_same_logits_with_a_cache) { logits_on_ranks("smollm3"); }
TEST(phi3_has_the_same_logits_with_a_cache) { logits_on_ranks("phi3"); }
TEST(gemma3_has_the_same_logits_with_a_cache) { logits_on_ranks("gemma3"); }
TEST(yarn_has_the_same_logits_with_a_cache) { logits_on_ranks("yarn"); }
TEST(gpt2_has_the_same_logits_with_a_cache) { logits_on_ranks("gpt2"); }
// Its layers have pages of their own.
TEST(models_with_a_side_network_have_the_same_logits_with_a_cache)
{
    static const GxSide plain = {4, 0, 0, NULL}, gated = {2, 1, 1, NULL};
    logits_beside_on_ranks("llama", &plain);
    logits_beside_on_ranks("qwen3", &gated);
}

static double distance(const Logits *a, const Logits *b);

// Of prompts in attention, too, which make other ones of them.
static void prompted_logits_on_ranks(const char *name, int has_prompts)
{
    Reference ref;
    Logits *plain = (Logits *)calloc(1, sizeof *plain), *zero = (Logits *)calloc(1, sizeof *zero);
    if (!read_reference(&ref, name)) return;
    for (int ranks = 1; ranks <= 3; ranks++) {
        const Wish request = {.name = name, .B = MAX_B, .T = POSITIONS, .chunk = POSITIONS, .has_prompts = has_prompts};
        if (ranks == 1) whole_logits_of(&request, &ref, &whole);
        on_ranks(ranks, &request, &ref, check_logits);
    }
    whole_logits(name, GX_F32, &ref, plain);
    const double change = distance(plain, &whole) / distance(plain, zero);
    CHECK(change > 0.01, "prompts change logits by %.2g of them", change);
    free(plain), free(zero);
}
TEST(prompts_in_attention_make_the_same_logits_with_a_cache)
{
    prompted_logits_on_ranks("llama", 1);
    prompted_logits_on_ranks("qwen3", 1);
}
TEST(scales_and_biases_of_linears_make_the_same_logits_with_a_cache)
{
    prompted_logits_on_ranks("qwen2", 2);
    prompted_logits_on_ranks("qwen3", 2);
}

static double distance(const Logits *a, const Logits *b)
{
    double sum = 0;
    for (int i = 0; i < NEW * MAX_B * V; i++) sum += pow((double)(&a->x[0][0][0])[i] - (&b->x[0][0][0])[i], 2);
    return sqrt(sum);
}

static Logits whole_bf16;

// As near to fp32 as the whole sequence in bf16 is, or half as near: both round as often, but not the same numbers.
static void check_bf16(Writer *w, const Reference *r)
{
    Logits *cached = (Logits *)calloc(1, sizeof *cached);
    cached_logits(w, r, cached);
    const double ours = distance(cached, &whole), theirs = distance(&whole_bf16, &whole);
    CHECK(ours <= 2 * theirs && theirs > 0, "with a cache %.4g from fp32, without %.4g", ours, theirs);
    free(cached);
}

TEST(in_bf16_a_cache_is_as_near_to_fp32_as_the_whole_sequence)
{
    Reference ref;
    static const char *const names[] = {"llama", "mistral", "qwen2", "qwen3", "mistral_window"};
    for (int i = 0; i < 5; i++) {
        const Wish request = {.name = names[i], .dtype = GX_BF16, .B = MAX_B, .T = POSITIONS, .chunk = POSITIONS};
        if (!read_reference(&ref, names[i])) return;
        whole_logits(names[i], GX_F32, &ref, &whole);
        whole_logits(names[i], GX_BF16, &ref, &whole_bf16);
        for (int ranks = 1; ranks <= 2; ranks++) on_ranks(ranks, &request, &ref, check_bf16);
    }
}

// ---- pages ---------------------------------------------------------------------------------------------------------

enum { APART = 3, APART_T = 270, LONGEST = 200, EVERY = 10, SEEN = (APART_T - LONGEST) / EVERY };
static const int64_t apart_length[APART] = {LONGEST, 10, 131}, apart_first[APART] = {0, 190, 69};

typedef struct {
    float x[SEEN][APART][V]; // behind the prompts, then every EVERY tokens
} ApartLogits;
static ApartLogits apart_whole, apart_whole_bf16;

static int32_t apart_token(int64_t b, int64_t position) // of text b; before it: padding
{
    const int64_t i = position - apart_first[b];
    return i < 0 ? 0 : (int32_t)((i * i * 7 + i * 13 + b * 31 + 5) % V);
}

static void apart_cached(Writer *w, ApartLogits *out)
{
    int32_t tokens[APART_T * APART];
    const float *x = NULL;
    gx_decoder_begin(&w->g, &w->d, apart_first);
    for (int64_t at = 0, n; at < APART_T; at += n) {
        n = at < LONGEST ? gx_min(w->d.chunk, LONGEST - at) : 1;
        for (int64_t i = 0; i < n * APART; i++) tokens[i] = apart_token(i % APART, at + i / APART);
        x = gx_decoder_run(&w->g, &w->d, &w->forward, tokens, at, n, 1);
        const int64_t seen = at + n - LONGEST;
        if (x && seen >= 0 && seen % EVERY == 0 && seen / EVERY < SEEN) memcpy(out->x[seen / EVERY], x, sizeof *out->x);
    }
    CHECK(x != NULL, "%s", w->g.error.message);
    CHECK(w->d.cache.taken == w->d.cache.pages && w->d.cache.pages == 5 + 3 + 4, "%ld of %ld pages were taken",
          (long)w->d.cache.taken, (long)w->d.cache.pages);
}

static void apart_alone(GxDtype dtype, ApartLogits *out)
{
    const Wish request = {.name = "llama", .dtype = dtype, .B = 1, .T = APART_T, .chunk = APART_T};
    Writer *w = (Writer *)malloc(sizeof *w);
    int32_t tokens[APART_T];
    if (!writer_open(w, &request, NULL)) return;
    for (int b = 0; b < APART; b++) {
        for (int64_t i = 0; i < APART_T - apart_first[b]; i++) tokens[i] = apart_token(b, apart_first[b] + i);
        for (int i = 0; i < SEEN; i++) whole_row(w, tokens, apart_length[b] + i * EVERY, out->x[i][b]);
    }
    CHECK(!gx_failed(&w->g), "%s", w->g.error.message);
    writer_close(w);
    free(w);
}

static double apart_distance(const ApartLogits *a, const ApartLogits *b)
{
    double sum = 0;
    for (int i = 0; i < SEEN * APART * V; i++) sum += pow((double)(&a->x[0][0][0])[i] - (&b->x[0][0][0])[i], 2);
    return sqrt(sum);
}

static void check_apart(Writer *w, const Reference *r)
{
    ApartLogits *cached = (ApartLogits *)calloc(1, sizeof *cached);
    const double bound = test_bound(2 * depth_of(&w->c, APART_T));
    static pthread_mutex_t one_rank = PTHREAD_MUTEX_INITIALIZER;
    (void)r;
    apart_cached(w, cached);
    pthread_mutex_lock(&one_rank);
    for (int i = 0; i < SEEN && w->request.dtype == GX_F32; i++)
        for (int b = 0; b < APART; b++)
            test_close_f("cached logits", cached->x[i][b], apart_whole.x[i][b], V, bound, 0);
    if (w->request.dtype == GX_BF16) { // as above
        const double ours = apart_distance(cached, &apart_whole),
                     theirs = apart_distance(&apart_whole_bf16, &apart_whole);
        CHECK(ours <= 2 * theirs && theirs > 0, "with a cache %.4g from fp32, without %.4g", ours, theirs);
    }
    pthread_mutex_unlock(&one_rank);
    free(cached);
}

// Pages that lie anywhere, pieces of prompts that end inside of them, columns that have none at first; GQA, and by TP.
TEST(texts_of_any_length_have_the_same_logits_from_pages)
{
    apart_alone(GX_F32, &apart_whole), apart_alone(GX_BF16, &apart_whole_bf16);
    for (int narrow = 0; narrow < 2; narrow++)
        for (int ranks = 1; ranks <= 3 - narrow; ranks++) {
            const Wish request = {.name = "llama",
                                  .dtype = narrow ? GX_BF16 : GX_F32,
                                  .B = APART,
                                  .T = APART_T,
                                  .chunk = 33,
                                  .first = apart_first};
            on_ranks(ranks, &request, NULL, check_apart);
        }
}

// Prompts of 1000 and of 10 tokens: the short one has a page or two, and both are refused more than was planned.
TEST(the_cache_is_as_large_as_the_texts_are_together)
{
    enum { NEW_TOKENS = 80, T = 1000 + NEW_TOKENS, STOP_AT = 5 };
    static const int64_t first[2] = {0, 990};
    const Wish apart = {.name = "llama", .B = 2, .T = T, .chunk = 100, .first = first},
               alike = {.name = "llama", .B = 2, .T = T, .chunk = 100};
    const int64_t page = 2 * GX_PAGE * (2 * 2 * 8) * 4; // of all layers
    static int32_t ids[2][T];
    static Writer w, other;
    GxDecodePlan plan = GX_ZERO;
    if (!writer_open(&w, &apart, NULL) || !writer_open(&other, &alike, NULL)) return;
    CHECK(gx_kv_cache_bytes(&w.d.cache) == (17 + 2) * page && gx_kv_cache_bytes(&other.d.cache) == 2 * 17 * page,
          "%ld and %ld bytes", (long)gx_kv_cache_bytes(&w.d.cache), (long)gx_kv_cache_bytes(&other.d.cache));
    CHECK(other.planned - w.planned == 15 * page, "the plan of equal texts has %ld bytes more",
          (long)(other.planned - w.planned));
    writer_close(&other);
    for (int pass = 0; pass < 2; pass++) { // then the short one ends at a token that it writes
        GxDecodedText text[2] = {{ids[0], 1000, 0, GX_TEXT_GROWS, 0}, {ids[1], 10, 0, GX_TEXT_GROWS, 0}};
        int32_t stop = -1;
        for (int i = 0; i < 1000; i++) ids[0][i] = i % V;
        for (int i = 0; i < 10; i++) ids[1][i] = i * 5 % V;
        if (pass) stop = ids[1][10 + STOP_AT], plan.stop = &stop, plan.n_stop = 1;
        plan.new_tokens = NEW_TOKENS;
        gx_decode(&w.g, &w.d, &w.forward, text, &plan);
        CHECK(!gx_failed(&w.g), "%s", w.g.error.message);
        const int64_t ends[2] = {text[0].n, text[1].n};
        const int64_t pages =
            gx_ceil_div(gx_max(ends[0], 990 + ends[1]), GX_PAGE) + gx_ceil_div(990 + ends[1], GX_PAGE) - 15;
        CHECK(w.d.cache.taken == pages, "%ld pages were taken, expected %ld: texts of %ld and %ld tokens",
              (long)w.d.cache.taken, (long)pages, (long)ends[0], (long)ends[1]);
    }
    gx_decoder_begin(&w.g, &w.d, NULL);
    for (int64_t at = 0; at < T && !gx_failed(&w.g); at += 100)
        gx_decoder_run(&w.g, &w.d, &w.forward, ids[0], at, gx_min(100, T - at), 0);
    CHECK(w.g.error.code == GX_ERR_MEMORY &&
              strstr(w.g.error.message,
                     "all 19 pages of the cache are taken, and column 1 of 2 needs one at position 576"),
          "%s", w.g.error.message);
    gx_error_clear(&w.g.error);
    writer_close(&w);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

static void open_llama(Writer *w, Reference *ref, int64_t B)
{
    const Wish request = {.name = "llama", .B = B, .T = POSITIONS, .chunk = 5};
    if (!read_reference(ref, "llama") || !writer_open(w, &request, NULL)) exit(1);
}

// By temperature: drawn by the text's number and place, and not by what lies beside it.
TEST(a_text_is_the_same_alone_and_in_a_batch)
{
    Reference ref;
    Texts t, alone;
    static Writer w;
    GxDecodePlan plan = GX_ZERO;
    plan.new_tokens = NEW, plan.sampling.temperature = 1, plan.sampling.seed = 3, plan.sampling.top_p = 0.95;
    open_llama(&w, &ref, MAX_B);
    begin_texts(&t, &ref);
    gx_decode(&w.g, &w.d, &w.forward, t.text, &plan);
    CHECK(!gx_failed(&w.g), "%s", w.g.error.message);
    writer_close(&w);
    open_llama(&w, &ref, 1);
    begin_texts(&alone, &ref);
    gx_decode(&w.g, &w.d, &w.forward, alone.text, &plan);
    CHECK(!memcmp(alone.ids[0], t.ids[0], (size_t)t.text[0].n * 4), "the first text is another one alone");
    CHECK(memcmp(t.ids[0] + ref.length[0], ref.greedy[0], NEW * 4), "temperature 1 draws the likeliest tokens");
    writer_close(&w);
}

TEST(a_stop_token_ends_its_text_and_stays_in_it)
{
    Reference ref;
    Texts t;
    static Writer w;
    GxDecodePlan plan = GX_ZERO;
    open_llama(&w, &ref, MAX_B);
    const int32_t stop[2] = {ref.greedy[1][9], -1};
    plan.new_tokens = NEW, plan.stop = stop, plan.n_stop = 2;
    begin_texts(&t, &ref);
    gx_decode(&w.g, &w.d, &w.forward, t.text, &plan);
    for (int b = 0; b < MAX_B; b++) {
        int n = 0;
        while (n < NEW && ref.greedy[b][n] != stop[0]) n++;
        const int expected = n < NEW ? n + 1 : NEW;
        CHECK(t.text[b].n == ref.length[b] + expected && t.text[b].end == (n < NEW ? GX_TEXT_TOKEN : GX_TEXT_LENGTH),
              "text %d has %ld new tokens, expected %d", b, (long)(t.text[b].n - ref.length[b]), expected);
        CHECK(!memcmp(t.ids[b] + ref.length[b], ref.greedy[b], (size_t)expected * 4), "text %d is another one", b);
    }
    writer_close(&w);
}

// A single text as gx_decode goes on with it, with 6 new tokens.
static void go_on(Writer *w, int32_t *ids, int64_t n)
{
    GxDecodedText text = {ids, n, 0, GX_TEXT_GROWS, 0};
    GxDecodePlan plan = GX_ZERO;
    plan.new_tokens = 6;
    gx_decode(&w->g, &w->d, &w->forward, &text, &plan);
    CHECK(!gx_failed(&w->g) && text.n == n + 6, "%ld tokens; %s", (long)text.n, w->g.error.message);
}

// What the text before began with is in the cache: only what is new is run. Where it began otherwise, that is, too.
TEST(a_conversation_runs_only_what_is_new_in_it)
{
    Reference ref;
    static Writer w, alone;
    static int32_t ids[POSITIONS], turn[2][POSITIONS], other[2][POSITIONS];
    open_llama(&w, &ref, 1);
    const int64_t first = ref.length[1], second = first + 6 + 4;
    memcpy(ids, ref.prompt[1], (size_t)first * 4);
    go_on(&w, ids, first);
    CHECK(w.d.times.prompt_tokens == first, "%ld tokens were run", (long)w.d.times.prompt_tokens);
    memcpy(ids + first + 6, ref.prompt[2], 4 * 4);
    for (int i = 0; i < 2; i++) memcpy(turn[i], ids, sizeof ids), memcpy(other[i], ids, sizeof ids);
    for (int i = 0; i < 2; i++) other[i][2] = (ids[2] + 1) % V;
    go_on(&w, turn[0], second);
    CHECK(w.d.times.prompt_tokens == 5, "%ld tokens were run; new are 4, and the last that was drawn",
          (long)w.d.times.prompt_tokens);
    go_on(&w, other[0], second);
    CHECK(w.d.times.prompt_tokens == second - 2, "%ld tokens were run; the third is another one",
          (long)w.d.times.prompt_tokens);
    writer_close(&w);
    open_llama(&alone, &ref, 1);
    go_on(&alone, turn[1], second);
    CHECK(!memcmp(turn[0], turn[1], sizeof turn[0]), "the conversation is another one from its beginning");
    writer_close(&alone);
    open_llama(&alone, &ref, 1);
    go_on(&alone, other[1], second);
    CHECK(!memcmp(other[0], other[1], sizeof other[0]), "what began otherwise goes on as the text before");
    CHECK(memcmp(other[0] + second, turn[0] + second, 6 * 4),
          "the third token changes nothing"); // or this shows nothing
    writer_close(&alone);
}

static void expect_error(Writer *w, const char *words)
{
    const GxError none = GX_ZERO;
    CHECK(gx_failed(&w->g) && strstr(w->g.error.message, words), "expected \"%s\": %s", words, w->g.error.message);
    w->g.error = none;
}

TEST(what_does_not_fit_the_cache_is_refused)
{
    Reference ref;
    Texts t;
    static Writer w;
    GxDecodePlan plan = GX_ZERO;
    int32_t token[MAX_B] = {1, 1, 1};
    open_llama(&w, &ref, MAX_B);
    plan.new_tokens = POSITIONS;
    begin_texts(&t, &ref);
    gx_decode(&w.g, &w.d, &w.forward, t.text, &plan);
    expect_error(&w, "a prompt of 7 tokens and 40 new ones are too many: memory was allocated for 40");
    gx_decoder_run(&w.g, &w.d, &w.forward, token, POSITIONS, 1, 1);
    expect_error(&w, "1 tokens from position 40 on");
    GxBatch b = GX_ZERO;
    b.tokens = w.d.tokens, b.T = 1, b.B = 2, b.runs = gx_runs_one(1, 0), b.cache = &w.d.cache;
    b.target[0].rows = w.d.rows, b.target[0].rows_host = w.d.rows_host;
    gx_runner_forward(&w.g, &w.r, &b, NULL);
    expect_error(&w, "a batch of 2 columns up to position 1 for a cache of 3 columns");
    plan.new_tokens = 2;
    begin_texts(&t, &ref);
    t.ids[1][2] = V;
    gx_decode(&w.g, &w.d, &w.forward, t.text, &plan);
    expect_error(&w, "token 2 of text 1 is 61");
    begin_texts(&t, &ref);
    t.text[2].n = 0;
    gx_decode(&w.g, &w.d, &w.forward, t.text, &plan);
    expect_error(&w, "text 2 has no tokens");
    writer_close(&w);
}

// Of two ranks, without a communicator: the plan is where it ends.
TEST(modes_that_split_the_sequence_are_refused_by_name)
{
    static const char *const modes[] = {"sp", "galaxy", "galaxy2"};
    for (int i = 0; i < 3; i++) {
        GxContext g = GX_ZERO;
        GxMesh mesh;
        GxModel m;
        GxMethods methods;
        GxLlamaConfig c;
        GxArena arena;
        static GxKvCache cache;
        const int dims[GX_MESH_AXES] = {1, 1, 1, 1, 2};
        GxDevice none = gx_device_none(gx_device_cpu());
        g.device = &none, g.world = 2;
        gx_mesh_open(&mesh, dims, 0, 2, &g.error);
        g.mesh = &mesh;
        gx_arena_open_dry(&arena);
        g.arena = &arena;
        gx_llama_config_read(&c, "data/ref/generate_llama/config.json", &gx_silent, &g.error);
        gx_mode_methods(modes[i], &methods);
        const GxMode mode = gx_composed(modes[i], methods);
        CHECK(gx_model_open(&g, &m, &gx_llama, &c, &mode, NULL) == GX_OK, "%s", g.error.message);
        gx_kv_cache_allocate(&g, &cache, &m, 8, 1, NULL);
        CHECK(g.error.code == GX_ERR_UNSUPPORTED && strstr(g.error.message, modes[i]), "%s: %s", modes[i],
              g.error.message);
        gx_model_close(&m);
    }
}

// ---- sampling ------------------------------------------------------------------------------------------------------

enum { ROW = 300, ROWS = 1000, SHOWN = 8, TIED = 826 }; // TIED: the row with a tie at the cut of top_p

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return x ^ x >> 16;
}

// As make_generate.py makes them: whole numbers, so that both have the same bits.
static void row_logits(int row, float *x)
{
    for (int v = 0; v < ROW; v++) {
        int total = -2 * 0xFFFF;
        for (int k = 0; k < 4; k++) total += (int)(mix((uint32_t)((row * ROW + v) * 4 + k)) & 0xFFFF);
        x[v] = (float)total / 8192;
    }
}

static uint32_t pick(int row, int number, uint32_t n) { return mix((uint32_t)(row * 16 + number) + 0x51ED2700u) % n; }

static GxSampling row_settings(int row, uint8_t seen[ROW])
{
    static const double temperature[] = {0.5, 1, 1.25, 3}, top_p[] = {1, 0.9, 0.5, 0.95}, min_p[] = {0, 0.05, 0.3},
                        penalty[] = {1, 1.2, 0.8};
    static const int64_t top_k[] = {0, 1, 7, 50};
    static const int count[] = {0, 3, 40};
    GxSampling s = GX_ZERO;
    s.temperature = temperature[pick(row, 0, 4)], s.top_k = top_k[pick(row, 1, 4)], s.top_p = top_p[pick(row, 2, 4)];
    s.min_p = min_p[pick(row, 3, 3)], s.repetition_penalty = penalty[pick(row, 4, 3)];
    memset(seen, 0, ROW);
    for (int i = 0; i < count[pick(row, 5, 3)]; i++) seen[mix((uint32_t)(row * 64 + i) + 0x2545F491u) % ROW] = 1;
    return s;
}

TEST(filters_leave_what_those_of_transformers_leave_of_1000_rows)
{
    static int32_t hash[ROWS], count[ROWS];
    static float rows[SHOWN][ROW];
    GxSafetensors f;
    GxError err = GX_ZERO;
    if (!CHECK(gx_safetensors_open(&f, "data/ref/sampling.safetensors", &err) == GX_OK, "%s", err.message)) return;
    read_raw(&f, "kept_hash", hash, ROWS), read_raw(&f, "kept_count", count, ROWS);
    read_raw(&f, "rows", rows, SHOWN * ROW);
    gx_safetensors_close(&f);
    for (int row = 0; row < ROWS; row++) {
        float x[ROW];
        uint8_t seen[ROW];
        uint32_t h = 2166136261u;
        int kept = 0, tied = -1; // tied: of two equal logits at the cut of top_p transformers drops one
        const GxSampling s = row_settings(row, seen);
        row_logits(row, x);
        gx_sampling_penalize(x, seen, ROW, s.repetition_penalty);
        const float cut = gx_sampling_cut(x, ROW, &s);
        for (int v = 0; v < ROW; v++) {
            const float scaled = gx_sampling_scaled(x[v], &s);
            const int stays = scaled >= cut;
            if (stays) h = (h ^ (uint32_t)v) * 16777619u, kept++, tied += scaled == cut;
            if (row < SHOWN)
                CHECK(stays ? scaled == rows[row][v] : isinf(rows[row][v]),
                      "row %d, token %d: %.9g, transformers' %.9g", row, v, stays ? scaled : -INFINITY, rows[row][v]);
        }
        if (row == TIED) CHECK(tied == 1 && kept == count[row] + 1, "row %d: %d tokens stay", row, kept);
        else
            CHECK(kept == count[row] && (int32_t)h == hash[row],
                  "row %d (temperature %g, top_k %ld, top_p %g, min_p %g, penalty %g): %d tokens stay, of "
                  "transformers' %d",
                  row, s.temperature, (long)s.top_k, s.top_p, s.min_p, s.repetition_penalty, kept, count[row]);
    }
}

// Only tokens that the filters leave are drawn, all of them, and as often as the softmax has it.
TEST(tokens_are_drawn_from_what_the_filters_leave)
{
    enum { N = 20000 };
    const float logits[6] = {2, 1, 0, -1, -2, -3};
    GxSampling s = GX_ZERO;
    int count[6] = {0};
    double sum = 0, chi = 0;
    s.temperature = 1, s.top_p = 0.95, s.min_p = 0.06, s.seed = 11; // probabilities 0.63, 0.23, 0.086, 0.031, …
    for (int i = 0; i < N; i++) count[gx_sample_token(logits, 6, &s, i)]++;
    for (int v = 0; v < 3; v++) sum += exp(logits[v]);
    for (int v = 0; v < 6; v++) {
        const double expected = v < 3 ? N * exp(logits[v]) / sum : 0;
        if (v < 3) chi += pow(count[v] - expected, 2) / expected;
        else CHECK(count[v] == 0, "token %d is drawn %d times", v, count[v]);
    }
    CHECK(chi < 23, "chi-squared %.1f with 2 degrees of freedom", chi); // 23: one in 100,000
}

// Of equal logits at the cut of top_p all stay; transformers drops some, by the order in which its sort leaves them.
TEST(ties_at_the_cut_of_top_p_stay)
{
    const float logits[4] = {1, 1, 1, 1};
    GxSampling s = GX_ZERO;
    int seen = 0;
    s.temperature = 1, s.top_p = 0.5;
    for (int i = 0; i < 500; i++) seen |= 1 << gx_sample_token(logits, 4, &s, i);
    CHECK(seen == 15, "tokens %x are drawn", seen);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
