// test_seq2seq.cu: sources and targets: beam search against transformers (dumps of dev/ref/make_beams.py), token for
// token; what its options and the model's folder say.
#include "galaxy.h"
#include "test/test.h"
#include "test/beam_refs.h"
#include "test/task_run.h"
#include <math.h>

// ---- a model that writes -------------------------------------------------------------------------------------------

enum { LANGUAGE = 6 }; // that an mBART's targets begin with

typedef struct {
    const char *name; // of a folder of data/ref
    int64_t B;        // columns of a batch
} Wish;
typedef struct {
    Wish request;
    GxContext g;
    GxMesh mesh;
    GxArena arena, host;
    const GxFamily *family;
    union {
        GxBartConfig bart;
        GxT5Config t5;
    } c;
    GxMode mode;
    GxModel m;
    GxRunner r;
    GxOptimizer o;
    GxForward forward;
    GxTextFrame frame;
    GxSourceLayout layout;
    int64_t planned;
} Model;

// The search that takes most.
static GxBeamOptions beams_most(const Model *w)
{
    GxBeamOptions o = GX_ZERO;
    o.num_beams = o.num_return_sequences = gx_min(w->request.B, MOST_BEAMS), o.max_length = MOST_TOKENS;
    return o;
}

static void model_dry_run(Model *w, int64_t S, GxComm *comm)
{
    GxArena arena, host;
    GxContext dry = w->g;
    GxTargetWriter writer;
    GxDevice none = gx_device_none(w->g.device);
    GxComm nobody = GX_ZERO;
    nobody.rank = w->g.rank, nobody.world = w->g.world;
    gx_arena_open_dry(&arena), gx_arena_open_dry(&host);
    dry.arena = &arena, dry.device = &none, dry.comm = NULL;
    dry.host = none.shares_host_memory ? NULL : &host;
    if (comm) gx_comm_open(&dry, &nobody);
    gx_runner_allocate(&dry, &w->r, MOST_TOKENS - 1, w->request.B, w->request.B);
    GxBeamOptions o = beams_most(w);
    const int64_t most = o.num_beams * TEXTS;
    for (int64_t i = 0; i < most; i++) { // fewer columns may need as much
        const GxArenaMark mark = gx_arena_mark(&arena), host_mark = gx_arena_mark(gx_host_arena(&dry));
        o.num_beams = o.num_return_sequences = 1 + i / TEXTS;
        gx_target_writer_allocate(&dry, &writer, &w->layout, &w->m, &o, S, 1 + i % TEXTS);
        if (!gx_failed(&dry)) gx_target_writer_run(&dry, &writer, &w->forward, NULL, NULL, 0, NULL);
        gx_arena_release(&arena, mark);
        if (dry.host) gx_arena_release(&host, host_mark);
    }
    gx_tensor_file_plan(&dry, &w->m.store, 1, 1);
    if (comm) gx_comm_close(&dry);
    CHECK(!gx_failed(&dry), "dry run: %s", dry.error.message);
    w->planned = arena.peak;
    gx_arenas_open(&w->g, &w->arena, &w->host, arena.peak, host.peak);
}

// 1: all is well. comm: of several ranks, all of one tp group; NULL: alone.
static int model_open(Model *w, const Wish *request, int64_t S, GxComm *comm)
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
    g->comm = comm;
    gx_mesh_open(&w->mesh, dims, g->rank, world, &g->error);
    g->mesh = &w->mesh;
    gx_device_open(g);
    w->family = !strncmp(request->name, "t5", 2) ? &gx_t5 : &gx_bart;
    snprintf(path, sizeof path, "data/ref/%s/config.json", request->name);
    w->family->read_config(&w->c, path, &gx_silent, &g->error);
    w->family->frame(&w->c, &w->frame);
    w->frame.language[GX_OF_TARGET] = LANGUAGE;
    if (w->frame.has_languages) w->frame.start = LANGUAGE;
    w->layout = gx_source_layout_of(&w->frame, MOST_TOKENS - 1);
    gx_mode_methods(world > 1 ? "tp" : "serial", &methods);
    w->mode = gx_composed("composed", methods);
    spec.forward_only = 1, options.freeze = "*";
    if (!gx_failed(g)) gx_model_open(g, &w->m, w->family, &w->c, &w->mode, &options);
    w->m.max_source_T = S;
    if (!gx_failed(g)) gx_runner_open(g, &w->r, &w->m, &w->o, &spec);
    w->forward = gx_runner_hook(&w->r);
    if (!gx_failed(g)) model_dry_run(w, S, comm);
    g->comm = NULL;
    if (comm && !gx_failed(g)) gx_comm_open(g, comm);
    if (!gx_failed(g)) gx_runner_allocate(g, &w->r, MOST_TOKENS - 1, request->B, request->B);
    snprintf(path, sizeof path, "data/ref/%s/model.safetensors", request->name);
    if (!gx_failed(g)) gx_checkpoint_load_weights(g, &w->m, path);
    return CHECK(!gx_failed(g), "%s: %s", request->name, g->error.message);
}

static void model_close(Model *w)
{
    CHECK(w->arena.peak <= w->planned && !w->arena.exhausted, "%ld bytes were planned, %ld taken", (long)w->planned,
          (long)w->arena.peak);
    if (w->g.comm) gx_comm_close(&w->g);
    gx_runner_close(&w->r);
    gx_model_close(&w->m);
    gx_arenas_close(&w->g, &w->arena, &w->host);
    gx_device_close(&w->g);
}

// ---- searches ------------------------------------------------------------------------------------------------------

typedef struct {
    GxWrittenTarget target[MOST_RESULTS];
    int32_t ids[MOST_RESULTS][MOST_TOKENS];
} Results;

// Texts first, first + step, … of the reference, as many at once as there is room for.
static void search(Model *w, const BeamReference *r, const GxBeamOptions *o, int first, int step, Results *out)
{
    GxContext *g = &w->g;
    GxTargetWriter writer;
    const int64_t N = o->num_return_sequences;
    const GxArenaMark mark = gx_arena_mark(&w->arena), host_mark = gx_arena_mark(&w->host);
    for (int i = 0; i < MOST_RESULTS; i++) out->target[i].ids = out->ids[i];
    gx_target_writer_allocate(g, &writer, &w->layout, &w->m, o, r->longest, TEXTS);
    for (int i = first; i < TEXTS && !gx_failed(g);) {
        const int32_t *source[TEXTS];
        int32_t length[TEXTS];
        GxWrittenTarget target[MOST_RESULTS];
        int n = 0, text[TEXTS];
        for (; n < writer.texts && i < TEXTS; n++, i += step)
            source[n] = r->source[i], length[n] = r->length[i], text[n] = i;
        for (int64_t k = 0; k < n * N; k++) target[k] = out->target[text[k / N] * N + k % N];
        CHECK(gx_target_writer_run(g, &writer, &w->forward, source, length, n, target), "not complete");
        for (int64_t k = 0; k < n * N; k++) out->target[text[k / N] * N + k % N] = target[k];
    }
    gx_arena_release(&w->arena, mark);
    if (g->host) gx_arena_release(&w->host, host_mark);
    CHECK(!gx_failed(g), "%s", g->error.message);
}

// All searches of the reference; with sanitizers every third.
static void check_searches(Model *w, const BeamReference *r)
{
    const int64_t every = TEST_IS_SANITIZED ? 3 : 1;
    static Results of_rank[2];
    Results *out = &of_rank[w->g.rank];
    int64_t at = 0, from = 0, compared = 0;
    for (int64_t s = 0; s < r->searches; s++) {
        const GxBeamOptions o = beam_reference_search(r, s, w->frame.end);
        if (s % every == 0) search(w, r, &o, 0, 1, out);
        for (int i = 0; i < TEXTS; i++)
            for (int64_t k = 0; k < o.num_return_sequences; from += r->count[at], at++, k++) {
                if (!r->count[at] || s % every) continue; // 0: left out, since its result is not clear
                compared++;
                const GxWrittenTarget *t = &out->target[i * o.num_return_sequences + k];
                check_beam(w->request.name, w->g.rank, r, s, i, k, at, from, t->ids, t->n, t->score);
            }
    }
    CHECK(at == r->results && (double)(compared * every) > 0.9 * (double)at, "%ld of %ld results were compared",
          (long)compared, (long)at);
}

typedef struct {
    Wish request;
    const BeamReference *ref;
    GxComm comm;
    pthread_t thread;
} Rank;

static void *rank_main(void *user)
{
    Rank *k = (Rank *)user;
    Model *w = (Model *)malloc(sizeof *w);
    if (!model_open(w, &k->request, k->ref->longest, &k->comm)) exit(1); // others would wait
    check_searches(w, k->ref);
    model_close(w);
    free(w);
    return NULL;
}

static void check_alone(const char *name, int64_t B)
{
    static BeamReference ref;
    const Wish request = {name, B};
    Model *w = (Model *)malloc(sizeof *w);
    if (beam_reference_read(&ref, name) && model_open(w, &request, ref.longest, NULL)) check_searches(w, &ref);
    model_close(w);
    free(w);
}

// As many columns as all beams of all texts; and fewer, so that texts are written one by one or two at once.
TEST(a_bart_of_one_layer_writes_what_transformers_writes) { check_alone("bart_beams_one", MOST_BEAMS * TEXTS); }
TEST(a_bart_with_a_deeper_decoder_writes_what_transformers_writes) { check_alone("bart_beams_deep", 5); }
TEST(a_bart_with_a_deeper_encoder_writes_what_transformers_writes) { check_alone("bart_beams_wide", 11); }
TEST(a_t5_writes_what_transformers_writes) { check_alone("t5_beams", 11); }

TEST(an_mbart_writes_what_transformers_writes) { check_alone("mbart_beams", MOST_BEAMS * TEXTS); }

static void check_two_ranks(const char *name)
{
    static BeamReference ref;
    Rank rank[2];
    GxThreadsGroup *group;
    GxError err = GX_ZERO;
    memset(rank, 0, sizeof rank);
    if (!beam_reference_read(&ref, name)) return;
    if (!CHECK(gx_threads_group_open(&group, 2, &err) == GX_OK, "%s", err.message)) return;
    for (int r = 0; r < 2; r++) {
        rank[r].request.name = name, rank[r].request.B = 10, rank[r].ref = &ref;
        gx_threads_comm(&rank[r].comm, group, r);
        pthread_create(&rank[r].thread, NULL, rank_main, &rank[r]);
    }
    for (int r = 0; r < 2; r++) pthread_join(rank[r].thread, NULL);
    gx_threads_group_close(group);
}
TEST(two_ranks_write_what_transformers_writes) { check_two_ranks("bart_beams_wide"); }
TEST(two_ranks_of_an_mbart_write_what_transformers_writes) { check_two_ranks("mbart_beams"); }

// A text beside others gets the targets that it gets alone.
TEST(a_target_does_not_depend_on_the_other_texts)
{
    static BeamReference ref;
    static Results together, some;
    const Wish request = {"bart_beams_deep", MOST_BEAMS * TEXTS};
    Model *w = (Model *)malloc(sizeof *w);
    if (beam_reference_read(&ref, "bart_beams_deep") && model_open(w, &request, ref.longest, NULL)) {
        GxBeamOptions o = beam_reference_search(&ref, 0, w->frame.end);
        o.num_beams = 3, o.num_return_sequences = 2;
        search(w, &ref, &o, 0, 1, &together);
        for (int first = 0; first < TEXTS; first++) {
            search(w, &ref, &o, first, TEXTS, &some);
            for (int k = 0; k < 2; k++) {
                const GxWrittenTarget *a = &together.target[first * 2 + k], *b = &some.target[first * 2 + k];
                CHECK(a->n == b->n && !memcmp(a->ids, b->ids, (size_t)a->n * 4), "text %d, result %d: others", first,
                      k);
                CHECK(fabsf(a->score - b->score) <= 1e-5f * fabsf(a->score), "scores %g and %g", a->score, b->score);
            }
        }
    }
    model_close(w);
    free(w);
}

// ---- searches of a toy ---------------------------------------------------------------------------------------------

enum { TOY = 4 }; // tokens

// With logits[i] for token i < rows of a target, and the last ones for those behind, whatever is before them.
static void toy_search(GxBeamSearch *s, const GxBeamOptions *o, const float (*logits)[TOY], int rows)
{
    GxError err = GX_ZERO;
    CHECK(gx_beam_search_open(s, o, TOY, &err) == GX_OK, "%s", err.message);
    const int32_t start = TOY - 1;
    gx_beam_search_begin(s, &start, 1);
    for (int n = 0; n < o->max_length && !s->is_finished; n++) {
        for (int64_t k = 0; k < o->num_beams; k++) {
            float x[TOY];
            memcpy(x, logits[n < rows ? n : rows - 1], sizeof x);
            gx_beam_search_see(s, k, x);
        }
        gx_beam_search_advance(s);
    }
    CHECK(s->is_finished, "the search does not end");
}

static GxBeamOptions toy_options(void)
{
    GxBeamOptions o = GX_ZERO;
    o.num_beams = o.num_return_sequences = 2, o.max_length = 6, o.length_penalty = o.repetition_penalty = 1;
    o.forced_bos = o.forced_eos = -1, o.ends = 1;
    return o;
}

static void check_toy(const GxBeamSearch *s, int64_t i, const char *expected)
{
    const GxBeam *b = gx_beam_search_result(s, i);
    char text[20] = "";
    for (int64_t t = 0; t < b->n; t++) snprintf(text + strlen(text), 4, "%d", b->tokens[t]);
    CHECK(!strcmp(text, expected), "result %ld is %s, expected %s", (long)i, text, expected);
}

TEST(of_equal_candidates_the_first_counts)
{
    static const float logits[1][TOY] = {{1, 1, 1, 0}};
    GxBeamSearch s;
    GxBeamOptions o = toy_options();
    o.num_beams = o.num_return_sequences = 3, o.max_length = 4, o.no_repeat_ngram_size = 1, o.end[0] = 3;
    toy_search(&s, &o, logits, 1);
    check_toy(&s, 0, "3012"), check_toy(&s, 1, "3021"), check_toy(&s, 2, "3102");
    gx_beam_search_close(&s);
}

// Where longer targets are worse, no later one can be better than a live beam is now, also with early_stopping never.
TEST(a_negative_length_penalty_bounds_by_the_length_so_far)
{
    static const float logits[3][TOY] = {{0, 5, -5, -5}, {0, 5, -5, -5}, {5, 0, -5, -5}};
    GxBeamSearch s;
    GxBeamOptions o = toy_options();
    o.length_penalty = -4, o.max_length = 14, o.early_stopping = GX_EARLY_STOPPING_NEVER;
    toy_search(&s, &o, logits, 3);
    check_toy(&s, 0, "3110"), check_toy(&s, 1, "30");
    gx_beam_search_close(&s);
}

// So many candidates are kept that K live on, however many of them are ends. Ends are the likeliest here, and the
// longest targets the best.
TEST(beams_live_on_beside_as_many_ends_as_there_are)
{
    static const float logits[1][TOY] = {{2, 2, 0.1f, 0}};
    GxBeamSearch s;
    GxBeamOptions o = toy_options();
    o.end[0] = 0, o.end[1] = 1, o.ends = 2, o.length_penalty = 10, o.early_stopping = GX_EARLY_STOPPING_NEVER;
    toy_search(&s, &o, logits, 1);
    check_toy(&s, 0, "322220"), check_toy(&s, 1, "322221");
    gx_beam_search_close(&s);
}

// Where no token is left, there is a result all the same, which is a beam that is not complete; transformers returns an
// arbitrary one.
TEST(a_search_ends_where_every_token_is_banned)
{
    static const float logits[1][TOY] = {{0.5f, 0.25f, 0, 0}};
    GxBeamSearch s;
    GxBeamOptions o = toy_options();
    o.no_repeat_ngram_size = 1, o.min_length = 6, o.end[0] = 2;
    toy_search(&s, &o, logits, 1);
    CHECK(gx_beam_search_results(&s) == 1 && gx_beam_search_result(&s, 0)->n > 1, "no result");
    gx_beam_search_close(&s);
}

// ---- options -------------------------------------------------------------------------------------------------------

static int run(const char *more)
{
    char line[3000];
    snprintf(line, sizeof line,
             "--seq_len 16 --micro_batch_size 4 --d_model 16 --encoder_ffn_dim 16 --decoder_ffn_dim 16 "
             "--encoder_layers 1 --decoder_layers 1 --encoder_attention_heads 2 --decoder_attention_heads 2 "
             "--max_steps 2 --sample_lines 0 --train_data %s --output_dir %s/run --overwrite_output_dir true %s",
             path_of("train.tsv"), folder, more);
    return run_line(&gx_bart, &gx_seq2seq, line);
}

static int predict(const char *more)
{
    char line[3000];
    unlink(path_of("new.jsonl"));
    snprintf(line, sizeof line, "--model %s/run/checkpoint-2 --seq_len 16 %s --predict %s --predictions %s %s", folder,
             strstr(more, "batch") ? "" : "--micro_batch_size 4", path_of("new.tsv"), path_of("new.jsonl"), more);
    return run_line(&gx_bart, &gx_seq2seq, line);
}

static GxJson *predicted(int line) // of new.jsonl; gx_json_free() it
{
    char *text = read_file(path_of("new.jsonl")), *at = text;
    GxJson *json = NULL;
    GxError err = GX_ZERO;
    for (; line > 0 && strchr(at, '\n'); line--) at = strchr(at, '\n') + 1;
    CHECK(gx_json_parse(&json, at, (int64_t)strcspn(at, "\n"), "new.jsonl", &err) == GX_OK, "%s", err.message);
    free(text);
    return json;
}

static void refused(const char *flags, const char *words)
{
    CHECK(predict(flags) != 0 && strstr(said.log, words), "%s: expected \"%s\", said: %s", flags, words, said.log);
}

static int is_run(void) { return is_there(path_of("run/checkpoint-2")) || CHECK(run("") == 0, "%s", said.log); }

TEST(options_of_a_search_that_do_not_fit_are_refused_by_name)
{
    if (!is_run()) return;
    refused("--num_beams 5", "--num_beams is 5, but a batch has 4 columns; use --micro_batch_size 5");
    refused("--num_return_sequences 2", "--num_return_sequences is 2, but only 1 beam is searched");
    refused("--num_beams 2 --num_return_sequences 3", "use --num_beams 3 or more");
    refused("--length_penalty one", "--length_penalty is \"one\"; expected a number");
    refused("--early_stopping maybe", "--early_stopping is \"maybe\"; expected one of");
    refused("--max_length 18", "--max_length is 18, but --seq_len 16 leaves room for 17 tokens");
    refused("--max_length 1", "--max_length is 1, which is the start token alone");
    refused("--max_length 8 --min_length 9", "--min_length is 9, more than the 8 tokens");
    refused("--forced_bos_token_id 256", "forced_bos_token_id is 256, but the vocabulary ends at 255");
    refused("--forced_eos_token_id 300", "forced_eos_token_id is 300, but the vocabulary ends at 255");
    refused("--repetition_penalty 0.0001", "--repetition_penalty is 0.0001");
}

// Also where ranks have room for different numbers of texts, and share weights.
TEST(ranks_with_micro_batches_of_different_sizes_write_what_one_writes)
{
    if (!is_run() || !CHECK(predict("--num_beams 2") == 0, "%s", said.log)) return;
    char *alone = read_file(path_of("new.jsonl"));
    CHECK(predict("--num_beams 2 --ranks 2 --dp_batch_size_list 5,2 --zero 3") == 0, "%s", said.log);
    char *together = read_file(path_of("new.jsonl"));
    CHECK(strlen(alone) > 100 && !strcmp(alone, together), "%s, and %s", alone, together);
    free(alone), free(together);
}

// Beams of more positions than a page of the cache has, which take over pages of others and copy them; modes that split
// the sequence have no cache.
TEST(a_cache_changes_no_target)
{
    static const char *const ways[] = {"--ranks 2 --mode tp", "--ranks 2 --mode sp", "--ranks 2 --mode galaxy"};
    if (!CHECK(run("--seq_len 160 --max_position_embeddings 160 --init_std 0.6 --learning_rate 1e-9") == 0, "%s",
               said.log))
        return;
    char *alone = NULL;
    for (int i = -1; i < 3; i++) {
        char more[200];
        snprintf(more, sizeof more, "--seq_len 160 --min_length 140 --num_beams 4 --num_return_sequences 4 %s",
                 i < 0 ? "" : ways[i]);
        if (!CHECK(predict(more) == 0, "%s", said.log)) break;
        char *written = read_file(path_of("new.jsonl"));
        CHECK(i < 0 || !strcmp(alone, written), "%s: %s, and %s", i < 0 ? "" : ways[i], alone, written);
        if (i < 0) alone = written;
        else free(written);
    }
    free(alone);
    CHECK(run("") == 0, "%s", said.log);
}

TEST(predictions_have_the_targets_of_a_source_by_their_scores)
{
    if (!is_run()) return;
    if (!CHECK(predict("--num_beams 4 --num_return_sequences 3") == 0, "%s", said.log)) return;
    for (int i = 0; i < 6; i++) {
        GxJson *line = predicted(i), *targets = gx_json_get(line, "targets");
        CHECK(gx_json_size(targets) == 3, "line %d: %ld targets", i, (long)gx_json_size(targets));
        CHECK(!strcmp(gx_json_string(gx_json_get(line, "target")), gx_json_string(gx_json_at(targets, 0))),
              "line %d: the target is not the first", i);
        gx_json_free(line);
    }
    if (!CHECK(predict("--num_beams 4") == 0, "%s", said.log)) return;
    GxJson *line = predicted(0);
    CHECK(gx_json_get(line, "target") && !gx_json_get(line, "targets"), "a list of one target");
    gx_json_free(line);
}

// Forced 'd' after the start, lengths of 5 with the start and the end: three more bytes.
TEST(what_the_folder_says_holds_where_no_option_is_given)
{
    if (!is_run()) return;
    write_file("run/checkpoint-2/generation_config.json",
               "{\"num_beams\": 3, \"num_return_sequences\": 2, \"forced_bos_token_id\": 100, \"min_length\": 5, "
               "\"max_length\": 5, \"forced_eos_token_id\": 2, \"early_stopping\": \"never\", \"do_sample\": true, "
               "\"diversity_penalty\": 0.5, \"top_k\": 7, \"other\": 1}");
    if (!CHECK(predict("") == 0, "%s", said.log)) return;
    CHECK(strstr(said.log, "do_sample is true, which is ignored") && strstr(said.log, "diversity_penalty is 0.5") &&
              strstr(said.log, "other is not known") && !strstr(said.log, "top_k"),
          "%s", said.log);
    GxJson *line = predicted(0);
    const char *target = gx_json_string(gx_json_get(line, "target"));
    CHECK(gx_json_size(gx_json_get(line, "targets")) == 2 && target[0] == 'd', "%s", target);
    gx_json_free(line);
    if (!CHECK(predict("--num_return_sequences 1 --forced_bos_token_id 101") == 0, "%s", said.log)) return;
    line = predicted(0);
    target = gx_json_string(gx_json_get(line, "target"));
    CHECK(!gx_json_get(line, "targets") && target[0] == 'e', "%s", target);
    gx_json_free(line);
    write_file("run/checkpoint-2/generation_config.json", "{\"max_length\": 142, \"min_length\": 56}");
    CHECK(predict("") == 0 && strstr(said.log, "may have 142 tokens") && strstr(said.log, "must have 56 tokens"), "%s",
          said.log);
    write_file("run/checkpoint-2/generation_config.json", "{\"early_stopping\": 3}");
    refused("", "early_stopping is an integer; expected true, false or \"never\"");
    unlink(path_of("run/checkpoint-2/generation_config.json"));
}

// Without generation_config.json the keys of config.json count, as those of old folders; other keys of it are not ours.
TEST(old_folders_say_it_in_config_json)
{
    if (!is_run()) return;
    char *config = read_file(path_of("run/checkpoint-2/config.json")), more[6000];
    snprintf(more, sizeof more, "{\"forced_bos_token_id\": 100, \"num_beams\": 2, \"num_return_sequences\": 2, %s",
             strchr(config, '{') + 1);
    write_file("run/checkpoint-2/config.json", more);
    unlink(path_of("run/checkpoint-2/manifest.json")); // it has the file's size
    CHECK(predict("") == 0 && !strstr(said.log, "warning") && !strstr(said.log, "not known"), "%s", said.log);
    GxJson *line = predicted(0);
    CHECK(gx_json_size(gx_json_get(line, "targets")) == 2, "not two targets");
    CHECK(gx_json_string(gx_json_get(line, "target"))[0] == 'd', "not forced");
    gx_json_free(line);
    write_file("run/checkpoint-2/generation_config.json", "{}"); // which then counts alone
    CHECK(predict("") == 0, "%s", said.log);
    line = predicted(0);
    CHECK(!gx_json_get(line, "targets"), "config.json was read, too");
    gx_json_free(line);
    unlink(path_of("run/checkpoint-2/generation_config.json"));
    write_file("run/checkpoint-2/config.json", config);
    free(config);
}

static void write_pairs(void)
{
    static const char *const words[] = {"abc", "bd", "cade", "dab", "ea", "bead"};
    char train[3000] = "source\ttarget\n", new_sources[300] = "source\n";
    for (int i = 0; i < 30; i++) sprintf(train + strlen(train), "%s%s\t%s\n", words[i % 6], words[i / 6], words[i % 6]);
    for (int i = 0; i < 6; i++) sprintf(new_sources + strlen(new_sources), "%s\n", words[i]);
    write_file("train.tsv", train), write_file("new.tsv", new_sources);
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_pairs); }
