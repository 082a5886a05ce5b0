// test_profile.cu: what a step costs, module by module (run/modules.h, --profile_flops), what happens in it (--trace),
// and the memory that it needs (--plot_memory).
#include "galaxy.h"
#include "test/task_run.h"
#include <signal.h>

// ---- a dry run's costs ---------------------------------------------------------------------------------------------

enum { MOST_ROWS = 160 };
typedef struct {
    char path[400];
    GxModule row;
} Row;
typedef struct {
    Row row[MOST_ROWS];
    int n;
    GxPlan plan;
    int64_t parameters, trained; // of the table
    int64_t most, alive;         // of the list's region: bytes at the worst moment, twice
} Costs;
static Costs costs;

typedef struct {
    GxModules modules;
    GxRecorder recorder, *before;
} Watch;

static void watch_heard(void *self, const GxEvent *e, int64_t times)
{
    gx_modules_add(&((Watch *)self)->modules, e, times, 0);
}

static void watch_rehearse(void *self, GxSession *s, GxContext *dry)
{
    Watch *w = (Watch *)self;
    if (gx_modules_open(&w->modules, &s->model, "model", &s->g->error) != GX_OK) return;
    w->recorder.totals_only = 1, w->recorder.user = w, w->recorder.heard = watch_heard;
    w->before = w->recorder.also = dry->recorder, dry->recorder = &w->recorder;
}

static void watch_rehearsed(void *self, GxSession *s, GxContext *dry)
{
    (void)s;
    dry->recorder = ((Watch *)self)->before;
}

static void keep_costs(const GxModules *t, const GxSession *s)
{
    costs.n = (int)gx_min(t->n, MOST_ROWS), costs.plan = s->plan;
    costs.parameters = gx_table_parameters(&s->model.table), costs.trained = gx_table_trained(&s->model.table);
    for (int i = 0; i < costs.n; i++) {
        const int parent = t->row[i].parent;
        costs.row[i].row = t->row[i];
        snprintf(costs.row[i].path, sizeof costs.row[i].path, "%s%s%s", parent > 0 ? costs.row[parent].path : "",
                 parent > 0 ? "/" : "", t->row[i].name);
    }
}

static void keep_alive(const GxRunner *r, GxError *err)
{
    const int n = r->m->units;
    const GxStepsBytes bytes = {r->bytes, r->bytes + n, r->bytes + 2 * n, r->bytes + 3 * n, r->bytes + 4 * n};
    GxStepsAlive *alive = (GxStepsAlive *)calloc((size_t)r->train.n, sizeof *alive);
    costs.most = r->train.most, costs.alive = 0;
    if (gx_steps_alive(&r->train, &bytes, alive, err) == GX_OK)
        for (int i = 0; i < r->train.n; i++)
            costs.alive = gx_max(costs.alive, alive[i].rows + alive[i].weights + alive[i].grads);
    free(alive);
}

static int cost_rank(GxContext *g, int argc, char **argv)
{
    GxTrainRun run;
    GxSession s;
    memset(&s, 0, sizeof s), memset(&run, 0, sizeof run);
    g->log.write = hear_log;
    s.g = g, s.run = &run;
    if (gx_run_open(&run, g, running.family, running.task, NULL, NULL, argc, argv) == GX_OK) {
        GxWatcher *w = gx_watchers_add(&run.watchers, sizeof(Watch), &g->error);
        Watch *watch = (Watch *)w->self;
        w->rehearse = watch_rehearse, w->rehearsed = watch_rehearsed;
        if (gx_session_open(&s, &run, g) == GX_OK) {
            gx_modules_gather(g, &watch->modules);
            if (g->rank == 0) keep_costs(&watch->modules, &s), keep_alive(&s.runner, &g->error);
        }
        gx_modules_close(&watch->modules);
    }
    CHECK(!gx_failed(g), "%s", g->error.message);
    gx_session_close(&s);
    gx_run_close(&run);
    return gx_failed(g);
}

#define LLAMA                                                                                                          \
    "--threads 1 --hidden_size 32 --intermediate_size 48 --num_hidden_layers 4 --num_attention_heads 4 "               \
    "--num_key_value_heads 2 --seq_len 16 --sample_tokens 0 "
#define BERT                                                                                                           \
    "--threads 1 --hidden_size 32 --intermediate_size 48 --num_hidden_layers 3 --num_attention_heads 4 --seq_len 16 "
#define BART                                                                                                           \
    "--threads 1 --d_model 32 --encoder_layers 2 --decoder_layers 3 --encoder_attention_heads 4 "                      \
    "--decoder_attention_heads 2 --encoder_ffn_dim 48 --decoder_ffn_dim 40 --seq_len 16 --max_source_length 12 "

// The costs of a step of this family with these flags, in `costs`. 0, and a failed check: there are none.
static int cost(const GxFamily *family, const GxTask *task, const char *sizes, const char *more)
{
    char line[2000], *argv[80] = {(char *)"train"};
    int argc = 1;
    snprintf(line, sizeof line, "--dry_run %s%s", sizes, more);
    memset(&said, 0, sizeof said), memset(&costs, 0, sizeof costs);
    running.family = family, running.task = task;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    const int status = gx_launch(cost_rank, argc, argv);
    return CHECK(status == 0 && costs.n > 2, "%s: status %d, %d rows; %s", more, status, costs.n, said.log);
}
static int cost_llama(const char *more) { return cost(&gx_llama, &gx_causal_lm, LLAMA, more); }

// The row of this path below the model; a failed check, and one of zeros: there is none.
static const GxModule *row_of(const char *path)
{
    static const GxModule none;
    char whole[500];
    snprintf(whole, sizeof whole, "model/%s", path);
    for (int i = 0; i < costs.n; i++)
        if (!strcmp(costs.row[i].path, path) || !strcmp(costs.row[i].path, whole)) return &costs.row[i].row;
    CHECK(0, "there is no row %s", path);
    return &none;
}

static double macs(const GxModule *r) { return r->cost[GX_PHASE_FORWARD].products / 2; }

// ---- the parts of a step -------------------------------------------------------------------------------------------

// Sums are of whole numbers far below 2^53, so they are exact in any order.
static void check_adds_up(const char *what)
{
    const GxModule *step = &costs.row[GX_MODULES_STEP].row;
    CHECK(gx_module_total(step).flops == costs.plan.flops_all && costs.plan.flops_all > 0, "%s: %.0f FLOPs, not %.0f",
          what, gx_module_total(step).flops, costs.plan.flops_all);
    CHECK(step->parameters == costs.parameters && step->trained == costs.trained && costs.parameters > 0,
          "%s: %ld parameters, %ld trained; the table has %ld, %ld", what, (long)step->parameters, (long)step->trained,
          (long)costs.parameters, (long)costs.trained);
    for (int i = 0; i < costs.n; i++) {
        const GxModule *r = &costs.row[i].row;
        double flops[GX_PHASES] = {0};
        int64_t parameters = 0;
        int parts = 0;
        for (int k = 0; k < costs.n; k++) {
            if (costs.row[k].row.parent != i) continue;
            for (int p = 0; p < GX_PHASES; p++) flops[p] += costs.row[k].row.cost[p].flops;
            parameters += costs.row[k].row.parameters, parts++;
        }
        for (int p = 0; p < GX_PHASES && parts; p++)
            CHECK(flops[p] == r->cost[p].flops, "%s: the parts of %s have %.0f FLOPs in phase %d, it has %.0f", what,
                  costs.row[i].path, flops[p], p, r->cost[p].flops);
        if (parts) CHECK(parameters == r->parameters, "%s: the parts of %s", what, costs.row[i].path);
        if (!strcmp(r->name, "other"))
            CHECK(gx_module_total(r).calls == 0, "%s: %g operations are in %s, which no row explains", what,
                  gx_module_total(r).calls, costs.row[i].path);
    }
}

static void write_models(void) // folders to adapt: as dry runs read no weights, their configurations are enough
{
    static const char *const kinds[] = {"llama", "qwen3"};
    for (int i = 0; i < 2; i++) {
        char text[600], name[60];
        mkdir(path_of(kinds[i]), 0777);
        snprintf(
            text, sizeof text,
            "{\"architectures\": [\"%sForCausalLM\"], \"model_type\": \"%s\", \"vocab_size\": 256, "
            "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
            "\"num_key_value_heads\": 2, \"head_dim\": 8, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, "
            "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}",
            i ? "Qwen3" : "Llama", kinds[i]);
        snprintf(name, sizeof name, "%s/config.json", kinds[i]);
        write_file(name, text);
    }
}

TEST(parts_add_up_to_the_step_and_every_operation_has_its_module)
{
    static const char *const llamas[] = {"",
                                         "--tie_word_embeddings true --recompute layer",
                                         "--model_type qwen3 --gradient_accumulation_steps 5",
                                         "--model_type qwen2 --freeze *.layers.0.*,*.layers.2.*",
                                         "--optimizer sgd --micro_batch_size 2 --ranks 2",
                                         "--ranks 2 --mode sp",
                                         "--ranks 2 --mode galaxy --precision bf16",
                                         "--ranks 2 --zero 3 --recompute layer --gradient_accumulation_steps 2",
                                         "--ranks 2 --pp 2 --gradient_accumulation_steps 4",
                                         "--ranks 2 --pp 2 --pipeline_schedule zbv --gradient_accumulation_steps 4"};
    static const char *const tunings[] = {
        "lora --lora_dim 4 --lora_dropout 0.1",
        "lora --lora_dim 4 --ranks 2 --mode tp",
        "adapter --adapter_reduction_dim 4",
        "prompt --prompt_len 3",
        "side --side_reduction_factor 2",
        "side --side_reduction_factor 2 --ranks 2 --pp 2 --gradient_accumulation_steps 2"};
    static const char *const berts[] = {"", "--ranks 2 --mode tp", "--ranks 2 --mode galaxy --recompute layer"};
    char more[600];
    for (size_t i = 0; i < sizeof llamas / sizeof *llamas; i++)
        if (cost_llama(llamas[i])) check_adds_up(llamas[i]);
    for (size_t i = 0; i < sizeof tunings / sizeof *tunings; i++) {
        snprintf(more, sizeof more,
                 "--threads 1 --seq_len 16 --sample_tokens 0 --tokenizer bytes --model %s --tuning %s",
                 path_of(i % 2 ? "llama" : "qwen3"), tunings[i]);
        if (cost(&gx_llama, &gx_causal_lm, "", more)) check_adds_up(more);
    }
    snprintf(more, sizeof more, "--threads 1 --seq_len 16 --tokenizer bytes --head_chunk 8 --model %s",
             path_of("llama"));
    if (cost(&gx_llama, &gx_dpo, "", more)) check_adds_up("dpo");
    for (size_t i = 0; i < sizeof berts / sizeof *berts; i++) {
        snprintf(more, sizeof more, "--tokenizer %s %s", path_of("tokens"), berts[i]);
        if (cost(&gx_bert, &gx_masked_lm, BERT, more)) check_adds_up(more);
        if (i == 0 && cost(&gx_bert, &gx_classification, BERT, more)) check_adds_up(more);
        if (cost(&gx_bert, &gx_embedding_task, BERT, more)) check_adds_up(more);
        if (cost(&gx_bart, &gx_seq2seq, BART, berts[i])) check_adds_up(berts[i]);
    }
    // per token of a decoder's layer: q, k, v and out, k and v of the memory's rows, fc1 and fc2; all pairs of 16 and
    // 12 rows
    const double rows = 16, sources = 12, C = 32,
                 cross = rows * 2 * C * C + sources * 2 * C * C + rows * sources * 2 * C;
    if (cost(&gx_bart, &gx_seq2seq, BART, "--micro_batch_size 1"))
        CHECK(macs(row_of("model/decoder/layers.0-2/encoder_attn")) == 3 * cross, "%g, not %g",
              macs(row_of("model/decoder/layers.0-2/encoder_attn")), 3 * cross);
}

// B sequences of T tokens; C columns, H heads of h, K heads for keys and values, F columns of the MLP, V tokens.
TEST(the_macs_of_a_llama_are_those_of_its_formula)
{
    const double B = 3, T = 16, C = 32, H = 4, K = 2, h = 8, F = 48, V = 256, L = 4,
                 n = 2 * B * T; // of 2 micro-batches
    if (!cost_llama("--micro_batch_size 3 --gradient_accumulation_steps 2")) return;
    const struct {
        const char *path;
        double macs, parameters;
    } list[] = {
        {"model/embed_tokens", 0, V * C},
        {"model/layers.0-3/self_attn/q_proj, k_proj, v_proj", L * n * C * (H + 2 * K) * h, L * C * (H + 2 * K) * h},
        {"model/layers.0-3/self_attn/attention", L * 2 * B * H * h * T * (T + 1),
         0}, // q k^T and p v, T (T+1) / 2 pairs
        {"model/layers.0-3/self_attn/o_proj", L * n * C * H * h, L * C * H * h},
        {"model/layers.0-3/mlp/gate_proj, up_proj", L * n * 2 * C * F, L * 2 * C * F},
        {"model/layers.0-3/mlp/down_proj", L * n * C * F, L * C * F},
        {"model/layers.0-3/input_layernorm", 0, L * C},
        {"lm_head", n * C * V, C * V},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const GxModule *r = row_of(list[i].path);
        const int is_linear = strstr(list[i].path, "proj") || strstr(list[i].path, "lm_head");
        CHECK(macs(r) == list[i].macs && (double)r->parameters == list[i].parameters, "%s: %.0f MACs, %ld parameters",
              list[i].path, macs(r), (long)r->parameters);
        if (is_linear) // of the input and of the weights
            CHECK(r->cost[GX_PHASE_BACKWARD].products == 4 * list[i].macs, "%s: backward %.0f", list[i].path,
                  r->cost[GX_PHASE_BACKWARD].products);
    }
    CHECK(row_of("model/layers.0-3")->units == 4, "%d layers", row_of("model/layers.0-3")->units);
}

// Its parts of one matrix are a row of that matrix's, with attention itself.
TEST(the_macs_of_a_gpt2_are_those_of_its_formula)
{
    static const char sizes[] =
        "--threads 1 --n_embd 32 --n_inner 48 --n_layer 3 --n_head 4 --seq_len 16 --sample_tokens 0 ";
    const double B = 3, T = 16, C = 32, F = 48, V = 256, L = 3, n = B * T;
    const struct {
        const char *path;
        double macs, parameters;
    } list[] = {{"model/transformer/wte", 0, V * C},
                {"model/transformer/wpe", 0, 1024 * C},
                {"model/transformer/h.0-2/attn/c_attn/q, k, v", L * n * 3 * C * C, L * (3 * C * C + 3 * C)},
                {"model/transformer/h.0-2/attn/c_attn/attention", L * B * C * T * (T + 1), 0},
                {"model/transformer/h.0-2/attn/c_proj", L * n * C * C, L * (C * C + C)},
                {"model/transformer/h.0-2/mlp/c_fc", L * n * C * F, L * (C * F + F)},
                {"model/transformer/h.0-2/mlp/c_proj", L * n * C * F, L * (C * F + C)},
                {"model/lm_head", n * C * V, 0}};
    if (!cost(&gx_gpt2, &gx_causal_lm, sizes, "--micro_batch_size 3")) return;
    check_adds_up("a GPT-2");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const GxModule *r = row_of(list[i].path);
        CHECK(macs(r) == list[i].macs && (double)r->parameters == list[i].parameters, "%s: %.0f MACs, %ld parameters",
              list[i].path, macs(r), (long)r->parameters);
    }
}

TEST(frozen_layers_are_apart_and_what_is_not_computed_does_not_count)
{
    if (!cost_llama("--freeze *embed_tokens*,*.layers.0.*,*.layers.2.*")) return;
    const GxModule *lowest = row_of("model/layers.0,2/mlp/down_proj"),
                   *trained = row_of("model/layers.1,3/mlp/down_proj");
    CHECK(lowest->trained == 0 && trained->trained == trained->parameters && trained->parameters > 0, "%ld and %ld",
          (long)lowest->trained, (long)trained->trained);
    // of two frozen layers only the upper one has a backward, without weight gradients
    CHECK(lowest->cost[GX_PHASE_BACKWARD].products == lowest->cost[GX_PHASE_FORWARD].products / 2, "%.0f and %.0f",
          lowest->cost[GX_PHASE_BACKWARD].products, lowest->cost[GX_PHASE_FORWARD].products);
    CHECK(trained->cost[GX_PHASE_BACKWARD].products == 2 * trained->cost[GX_PHASE_FORWARD].products, "%.0f",
          trained->cost[GX_PHASE_BACKWARD].products);
    CHECK(gx_module_total(row_of("model/embed_tokens")).flops == 0, "the embedding has no gradient");
}

TEST(recomputation_counts_as_such)
{
    if (!cost_llama("")) return;
    const GxModuleCost before[] = {row_of("model/layers.0-3")->cost[0], row_of("model/layers.0-3")->cost[1]};
    CHECK(row_of("model")->cost[GX_PHASE_RECOMPUTE].calls == 0, "something is recomputed");
    if (!cost_llama("--recompute layer")) return;
    const GxModule *r = row_of("model/layers.0-3"), *down = row_of("model/layers.0-3/mlp/down_proj");
    CHECK(r->cost[0].products == before[0].products && r->cost[1].products == before[1].products, "the other phases");
    const double skipped = down->cost[GX_PHASE_FORWARD].products; // a slot does not keep the layer's result
    CHECK(r->cost[GX_PHASE_RECOMPUTE].products == before[0].products - skipped, "%.0f, not %.0f - %.0f",
          r->cost[GX_PHASE_RECOMPUTE].products, before[0].products, skipped);
}

TEST(adapters_have_rows_of_their_own)
{
    char more[500];
    const double n = 8 * 16, C = 32, r = 4, out = (4 + 2 * 2) * 8; // tokens; q, k and v
    snprintf(more, sizeof more,
             "--threads 1 --seq_len 16 --sample_tokens 0 --tokenizer bytes --model %s --tuning lora --lora_dim 4",
             path_of("llama"));
    if (!cost(&gx_llama, &gx_causal_lm, "", more)) return;
    const GxModule *lora = row_of("model/layers.0-3/self_attn/q_proj, k_proj, v_proj (LoRA)"),
                   *linear = row_of("model/layers.0-3/self_attn/q_proj, k_proj, v_proj");
    CHECK(lora->parameters == 4 * (3 * C * r + out * r) && lora->trained == lora->parameters && linear->trained == 0,
          "%ld of LoRA", (long)lora->parameters);
    CHECK(macs(lora) == 4 * n * (3 * C * r + out * r) && macs(linear) == 4 * n * C * out, "%.0f and %.0f", macs(lora),
          macs(linear));
    snprintf(more, sizeof more,
             "--threads 1 --seq_len 16 --sample_tokens 0 --tokenizer bytes --model %s --tuning prompt --prompt_len 3",
             path_of("llama"));
    if (!cost(&gx_llama, &gx_causal_lm, "", more)) return;
    CHECK(macs(row_of("model/layers.2-3/self_attn/adaption_prompt")) >= 2 * 2 * 4 * 8 * n * 3,
          "attention to prompts: %.0f", macs(row_of("model/layers.2-3/self_attn/adaption_prompt")));
}

// Elementwise operations that all ranks do, such as norms with TP, count for each of them; products do not.
TEST(in_every_mode_the_ranks_together_have_the_tree_of_one_rank)
{
    static const char *const modes[] = {"--mode tp",
                                        "--mode sp",
                                        "--mode galaxy",
                                        "--mode galaxy2",
                                        "--zero 3",
                                        "--zero 1 --micro_batch_size 2",
                                        "--pp 2 --micro_batch_size 2 --gradient_accumulation_steps 2"};
    static Costs serial;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char more[200];
        if (!cost_llama("--global_batch_size 4 --micro_batch_size 4")) return;
        serial = costs;
        snprintf(more, sizeof more, "--ranks 2 --global_batch_size 4 --micro_batch_size %s %s",
                 strstr(modes[i], "zero") ? "2" : "4", modes[i]);
        if (!cost_llama(more)) return;
        CHECK(costs.n == serial.n, "%s: %d rows, not %d", more, costs.n, serial.n);
        for (int k = 0; k < costs.n; k++) {
            const GxModule *a = &costs.row[k].row, *b = &serial.row[k].row;
            CHECK(!strcmp(costs.row[k].path, serial.row[k].path) && a->parameters == b->parameters &&
                      a->trained == b->trained,
                  "%s: %s has %ld parameters, not %ld", more, costs.row[k].path, (long)a->parameters,
                  (long)b->parameters);
            for (int p = 0; p < GX_PHASES; p++)
                if (strstr(a->name, "proj") || strstr(a->name, "lm_head"))
                    CHECK(a->cost[p].products == b->cost[p].products, "%s: %s has %.0f FLOPs of products, not %.0f",
                          more, costs.row[k].path, a->cost[p].products, b->cost[p].products);
            CHECK(macs(a) == macs(b), "%s: %s has %.0f MACs, not %.0f", more, costs.row[k].path, macs(a), macs(b));
        }
    }
}

// ---- --profile_flops -----------------------------------------------------------------------------------------------

static int train(const char *name, const char *more)
{
    static char line[3000];
    snprintf(line, sizeof line, "--train_data %s --output_dir %s/%s " LLAMA "%s--max_eval_samples 2 --eval_steps 0 %s",
             path_of("text.txt"), folder, name, strstr(more, "dp_batch_size_list") ? "" : "--micro_batch_size 2 ",
             more);
    return run_line(&gx_llama, &gx_causal_lm, line);
}

enum { TREE = 40 + 1 + 6 + 1 + 7 + 1 + 6 + 1 + 6 + 1 + 7 + 1 + 8 }; // columns without times, up to the backward's FLOPs

// The rows of the tree that was printed last, without times.
static void printed_tree(char *out, size_t size)
{
    const char *at = strstr(said.out, "\nstep              ");
    out[0] = 0;
    for (at = at ? at + 1 : NULL; at && (!strncmp(at, "  ", 2) || !strncmp(at, "step              ", 18));
         at = strchr(at, '\n') + 1) {
        const int is_between = strstr(at, "between operations") && strstr(at, "between operations") < strchr(at, '\n');
        const size_t n = strlen(out);
        if (!is_between) snprintf(out + n, size - n, "%.*s\n", (int)gx_min((int64_t)strcspn(at, "\n"), TREE), at);
    }
}

static double printed_number(const char *before) // behind these words
{
    const char *at = strstr(said.out, before);
    return at ? atof(at + strlen(before)) : NAN;
}

// ---- reading a trace -----------------------------------------------------------------------------------------------

enum { MOST_RANKS = 3, THREADS = 2, DEPTH = 4 };
typedef struct {
    int64_t end[MOST_RANKS][THREADS][DEPTH]; // of the slices that are open, in nanoseconds
    int depth[MOST_RANKS][THREADS];
    int slices[MOST_RANKS], names[MOST_RANKS], waits, flights, actions, inside;
    int64_t steps; // nanoseconds of all steps of all ranks
} Seen;

static int64_t nanoseconds(const GxJson *number) { return (int64_t)llround(1e3 * gx_json_double(number)); }

// Slices of a thread come as they begin, so each lies within those that are open, or behind them.
static void see_slice(Seen *s, const GxJson *e, int rank, int thread)
{
    const int64_t begin = nanoseconds(gx_json_get(e, "ts")), end = begin + nanoseconds(gx_json_get(e, "dur"));
    const char *kind = gx_json_string(gx_json_get(e, "cat"));
    int *depth = &s->depth[rank][thread];
    while (*depth && s->end[rank][thread][*depth - 1] <= begin) --*depth;
    CHECK(end >= begin && (!*depth || end <= s->end[rank][thread][*depth - 1]), "%s of rank %d crosses another slice",
          gx_json_string(gx_json_get(e, "name")), rank);
    s->steps += strcmp(kind, "step") ? 0 : end - begin;
    s->slices[rank]++, s->waits += !strcmp(kind, "wait"), s->actions += !strcmp(kind, "action");
    if (!strcmp(kind, "operation")) {
        const GxJson *args = gx_json_get(e, "args");
        s->inside += *depth == 2; // in an action, in a step
        CHECK(*depth == 2 && gx_json_get(args, "unit") && gx_json_get(args, "flops") && gx_json_get(args, "bytes") &&
                  gx_json_get(args, "dims"),
              "an operation at depth %d", *depth);
    }
    if (CHECK(*depth < DEPTH, "more than %d slices in each other", DEPTH)) s->end[rank][thread][(*depth)++] = end;
}

static int see_trace(const char *path, Seen *s)
{
    int64_t bytes;
    char *text = read_bytes(path, &bytes);
    GxJson *json = NULL;
    GxError err = GX_ZERO;
    memset(s, 0, sizeof *s);
    const int is_json = CHECK(gx_json_parse(&json, text, bytes, path, &err) == GX_OK, "%s", err.message);
    const GxJson *events = is_json ? gx_json_get(json, "traceEvents") : NULL;
    for (int64_t i = 0; events && i < gx_json_size(events); i++) {
        const GxJson *e = gx_json_at(events, i);
        const char *phase = gx_json_string(gx_json_get(e, "ph")), *name = gx_json_string(gx_json_get(e, "name"));
        const int rank = (int)gx_json_int(gx_json_get(e, "pid")), thread = (int)gx_json_int(gx_json_get(e, "tid"));
        if (!CHECK(rank >= 0 && rank < MOST_RANKS && thread >= 0 && thread < THREADS, "rank %d, thread %d", rank,
                   thread))
            break;
        if (!strcmp(phase, "X")) see_slice(s, e, rank, thread);
        s->flights += !strcmp(phase, "b") ? 1 : !strcmp(phase, "e") ? -1 : 0;
        s->names[rank] += !strcmp(name, "process_name");
    }
    gx_json_free(json);
    free(text);
    return is_json;
}

TEST(the_tree_of_a_dry_run_is_the_measured_one_without_times)
{
    static const char *const runs[] = {"", "--ranks 2 --mode tp",
                                       "--ranks 2 --pp 2 --gradient_accumulation_steps 4 --recompute layer",
                                       "--ranks 2 --zero 3 --precision bf16 --freeze *.layers.1.*"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        static char dry[20000], measured[20000];
        char more[400], name[20];
        snprintf(name, sizeof name, "tree%d", (int)i);
        snprintf(more, sizeof more, "%s --max_steps 5 --profile_flops 2 --dry_run", runs[i]);
        if (!CHECK(train(name, more) == 0, "%s", said.log)) continue;
        printed_tree(dry, sizeof dry);
        more[strlen(more) - strlen("--dry_run")] = 0;
        if (!CHECK(train(name, more) == 0, "%s", said.log)) continue;
        printed_tree(measured, sizeof measured);
        CHECK(strstr(dry, "mlp") && !strcmp(dry, measured), "%s: the dry run's\n%sand measured\n%s", runs[i], dry,
              measured);
        CHECK(strstr(said.out, "FLOPs of 2 steps from the third on") && !strstr(said.log, "wrong"), "%s", said.out);
        const double step = printed_number("time of a step       "), f = printed_number("ms: forward "),
                     b = printed_number(" ms: forward ") >= 0 ? printed_number(", backward ") : NAN;
        CHECK(step > 0 && f > 0 && isfinite(b), "%g ms, forward %g", step, f);
    }
}

// What is shown in hundredths of milliseconds is off by at most half of one in each row.
TEST(the_times_of_the_parts_are_the_time_of_the_step)
{
    if (!CHECK(train("times", "--ranks 2 --mode galaxy --max_steps 5 --profile_flops 3 --peak_tflops 0.5") == 0, "%s",
               said.log))
        return;
    const char *at = strstr(said.out, "\nstep              ");
    double whole = 0, parts = 0;
    int rows = 0;
    for (at = at ? at + 1 : NULL; at && (!strncmp(at, "  ", 2) || !strncmp(at, "step              ", 18));
         at = strchr(at, '\n') + 1) {
        char ms[9] = "";
        if (strcspn(at, "\n") < TREE + 27) continue;
        memcpy(ms, at + TREE + 19, 8); // behind forward and backward
        if (at[0] == 's') whole = atof(ms);
        else if (at[2] != ' ') parts += atof(ms), rows++;
    }
    CHECK(whole > 0 && rows >= 4 && fabs(whole - parts) <= 0.005 * (rows + 1) + 1e-9,
          "%d rows of %.2f ms, the step %.2f: %s", rows, parts, whole, said.out);
    CHECK(strstr(said.out, "% peak") && strstr(said.out, "% of the peak") && strstr(said.out, "least ms"), "%s",
          said.out);
}

TEST(measuring_changes_no_bit_and_goes_together)
{
    char more[600], *plain, *measured;
    int64_t bytes;
    if (!CHECK(train("plain", "--ranks 2 --mode tp --max_steps 4") == 0, "%s", said.log)) return;
    snprintf(more, sizeof more,
             "--ranks 2 --mode tp --max_steps 4 --profile_steps 2 --profile_flops 2 --trace_steps 2 --trace %s "
             "--plot_memory %s",
             path_of("all.json"), path_of("all.svg"));
    if (!CHECK(train("measured", more) == 0, "%s", said.log)) return;
    CHECK(strstr(said.out, "where a step's time goes") && strstr(said.out, "FLOPs of 2 steps") &&
              is_there(path_of("all.json")) && is_there(path_of("all.svg")) && !strstr(said.log, "warning"),
          "%s%s", said.out, said.log);
    static Seen seen;
    const double ms = printed_number("time of a step       ");
    // the trace is begun before the profile and ends after it
    if (see_trace(path_of("all.json"), &seen))
        CHECK(ms > 0 && ms - 0.005 <= (double)seen.steps / 4 / 1e6, "a step takes %g ms, and in the trace %g", ms,
              (double)seen.steps / 4 / 1e6);
    plain = read_bytes(path_of("plain/checkpoint-4/model.safetensors"), &bytes);
    measured = read_bytes(path_of("measured/checkpoint-4/model.safetensors"), &bytes);
    CHECK(bytes > 1000 && !memcmp(plain, measured, (size_t)bytes), "other weights");
    free(plain), free(measured);
}

TEST(a_run_that_is_too_short_says_so)
{
    char more[400];
    snprintf(more, sizeof more, "--max_steps 2 --profile_flops 5 --trace %s", path_of("short.json"));
    CHECK(train("short", more) == 0 &&
              strstr(said.out, "no profile of FLOPs: it begins with the third step, and this run had 2") &&
              strstr(said.log, "there is no trace: it begins with the third step, and this run had 2"),
          "%s%s", said.out, said.log);
    snprintf(more, sizeof more, "--max_steps 3 --profile_flops 5 --trace_steps 9 --trace %s", path_of("one.json"));
    CHECK(train("shorter", more) == 0 && strstr(said.out, "FLOPs of 1 step from") &&
              strstr(said.log, "the trace of 1 step is in"),
          "%s%s", said.out, said.log);
}

// ---- --trace -------------------------------------------------------------------------------------------------------

TEST(a_trace_has_all_ranks_and_its_slices_do_not_cross)
{
    static const char *const runs[] = {"--ranks 2 --mode tp", "--ranks 3 --dp_batch_size_list 1,2,1 --reduce_bucket 1",
                                       "--ranks 2 --pp 2 --gradient_accumulation_steps 3 --pipeline_schedule zb1p", ""};
    static Seen seen;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char more[500], name[30], file[30];
        snprintf(name, sizeof name, "traced%d", (int)i), snprintf(file, sizeof file, "traced%d.json", (int)i);
        snprintf(more, sizeof more, "%s --max_steps 5 --trace_steps 3 --trace %s", runs[i], path_of(file));
        if (!CHECK(train(name, more) == 0 && strstr(said.log, "the trace of 3 steps is in"), "%s", said.log)) continue;
        if (!see_trace(path_of(file), &seen)) continue;
        const int ranks = strstr(runs[i], "--ranks") ? atoi(strstr(runs[i], "--ranks") + 8) : 1;
        for (int r = 0; r < MOST_RANKS; r++)
            CHECK((seen.slices[r] > 100) == (r < ranks) && seen.names[r] == (r < ranks),
                  "%s: rank %d has %d slices, %d names", runs[i], r, seen.slices[r], seen.names[r]);
        CHECK(seen.flights == 0 && seen.actions > 3 * 10 * ranks && seen.inside > 300, "%s: %d in flight, %d actions",
              runs[i], seen.flights, seen.actions);
        CHECK((seen.waits > 0) == (i < 3), "%s: %d waits", runs[i], seen.waits);
        CHECK(file_has(path_of(file), i == 2 ? "\"name\": \"F1.2\"" : "\"name\": \"F1\"") &&
                  file_has(path_of(file), "\"name\": \"step 5\""),
              "%s: names", runs[i]);
    }
}

TEST(a_trace_that_cannot_be_written_is_refused_before_or_a_warning_after)
{
    char more[500];
    write_file("precious.json", "{\"my\": 1}");
    mkdir(path_of("a_folder"), 0777);
    const struct {
        const char *path, *said;
    } list[] = {{"precious.json", "exists and is not a trace"},
                {"a_folder", "which cannot be written to"},
                {"no/such/trace.json", "does not exist; make it first"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(more, sizeof more, "--ranks 2 --max_steps 4 --trace %s", path_of(list[i].path));
        CHECK(train("refused", more) == 1 && strstr(said.log, list[i].said) && !is_there(path_of("refused")), "%s: %s",
              list[i].path, said.log);
    }
    snprintf(more, sizeof more, "--max_steps 4 --trace %s/in/trace.json", folder); // that folder is made by the run
    CHECK(train("in", more) == 0 && is_there(path_of("in/trace.json")), "%s", said.log);
    snprintf(more, sizeof more, "--max_steps 4 --overwrite_output_dir --trace %s/in/trace.json",
             folder); // a trace is replaced
    CHECK(train("in", more) == 0 && strstr(said.log, "the trace of 2 steps"), "%s", said.log);
    snprintf(more, sizeof more, "--dry_run --trace %s", path_of("dry.json"));
    CHECK(train("dry", more) == 1 && strstr(said.log, "--dry_run none is computed"), "%s", said.log);
    // no more than 600 kB fit into a file: checkpoints are smaller, the trace is larger
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before), small = before, small.rlim_cur = 600000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    snprintf(more, sizeof more, "--max_steps 42 --trace_steps 40 --trace %s", path_of("large.json"));
    const int status = train("large", more);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(status == 0 && strstr(said.log, "there is no trace: cannot write") &&
              strstr(said.log, "the training continues") && !is_there(path_of("large.json")) &&
              is_there(path_of("large/checkpoint-42")),
          "%d: %s", status, said.log);
}

// ---- --plot_memory -------------------------------------------------------------------------------------------------

TEST(what_is_in_use_of_a_region_is_at_most_what_its_plan_says_and_once_that)
{
    static const char *const runs[] = {
        "",
        "--recompute layer --gradient_accumulation_steps 4",
        "--ranks 2 --zero 3 --gradient_accumulation_steps 3",
        "--ranks 2 --zero 3 --shard_grads_in_window true --gradient_accumulation_steps 3 --tie_word_embeddings true",
        "--ranks 2 --pp 2 --pipeline_schedule zbv --gradient_accumulation_steps 6",
        "--ranks 2 --zero 2"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (cost_llama(runs[i]))
            CHECK(costs.alive == costs.most && costs.most > 0, "%s: %ld bytes, not %ld", runs[i], (long)costs.alive,
                  (long)costs.most);
}

// How many different heights the upper edge of the first area, that of the weights, has: from left to right.
static int heights_of_weights(const char *svg)
{
    double seen[8], before = 0;
    int n = 0;
    const char *at = strstr(svg, "<path fill="), *end = at ? strstr(at, "Z") : NULL;
    for (at = at ? strstr(at, " d=\"") + 4 : NULL; at && at < end && n < 8;
         at += strcspn(at, "LHZ"), at += *at != 'Z') {
        double x, y;
        int known = 0;
        if (sscanf(*at == 'M' ? at + 1 : at, "%lf %lf", &x, &y) != 2) continue; // of an H
        if (x < before || x > 939.9) break;                                     // the right end: the lower edge follows
        before = x;
        for (int i = 0; i < n; i++) known |= seen[i] == y;
        if (!known) seen[n++] = y;
    }
    return n;
}

// Weights are there in all actions, also those of micro-batches that the dry run leaves out; and the most that is in
// use is what the arena needs for a step: at least most of it, which a validation or loading may exceed.
TEST(the_picture_shows_what_the_plan_says)
{
    static const char *const runs[] = {"", "--gradient_accumulation_steps 6 --recompute layer"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char more[400];
        snprintf(more, sizeof more, "--dry_run --seq_len 256 %s --plot_memory %s", runs[i], path_of("planned.svg"));
        if (!CHECK(train("planned", more) == 0, "%s", said.log)) continue;
        char *svg = read_file(path_of("planned.svg"));
        const char *most = strstr(svg, "at most ");
        const double shown = most ? atof(most + 8) * (strstr(most, "KB,") ? 1e3 : 1e6) : 0,
                     arena = 1e6 * printed_number("  arena ");
        CHECK(shown <= arena + 1e5 && shown >= 0.7 * arena, "%s: %.0f bytes are drawn, %.0f planned", runs[i], shown,
              arena);
        CHECK(heights_of_weights(svg) == 1, "%s: the weights have %d heights", runs[i], heights_of_weights(svg));
        free(svg);
    }
}

TEST(the_memory_of_a_step_is_drawn_also_of_a_dry_run)
{
    char more[600];
    const char *const names[] = {">weights<", ">gradients<", ">optimizer<", ">activations<", ">reserved, not in use<",
                                 ">COUNT<",   "at most "};
    static const char *const runs[] = {
        "--dry_run", "--max_steps 1",
        "--dry_run --ranks 2 --zero 3 --gradient_accumulation_steps 400 --recompute layer"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char file[30];
        snprintf(file, sizeof file, "memory%d.svg", (int)i);
        snprintf(more, sizeof more, "%s --plot_memory %s", runs[i], path_of(file));
        if (!CHECK(train("drawn", more) == 0 && strstr(said.out, "memory in a step: "), "%s", said.log)) continue;
        char *svg = read_file(path_of(file));
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            CHECK(strstr(svg, names[k]), "%s: no %s in the picture", runs[i], names[k]);
        CHECK(!strncmp(svg, "<svg", 4) && strstr(svg, "</svg>") && !strstr(svg, "nan") && strlen(svg) < 400000,
              "%s: %.300s", runs[i], svg);
        free(svg);
    }
    snprintf(more, sizeof more, "--dry_run --plot_memory %s", path_of("memory0.svg"));
    CHECK(train("drawn", more) == 0, "a picture is replaced: %s", said.log);
    snprintf(more, sizeof more, "--dry_run --plot_memory %s", path_of("precious.json"));
    CHECK(train("drawn", more) == 1 && strstr(said.log, "exists and is not a picture"), "%s", said.log);
}

TEST(without_training_there_is_nothing_to_measure)
{
    static const char *const options[] = {"--profile_flops 2", "--trace t.json", "--plot_memory m.svg"};
    char more[600];
    if (!CHECK(train("model", "--max_steps 1") == 0, "%s", said.log)) return;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        snprintf(more, sizeof more, "--evaluate --resume auto %s", options[i]);
        CHECK(train("model", more) == 1 && strstr(said.log, "leave"), "%s: %s", options[i], said.log);
    }
}

static void write_all(void)
{
    char text[20000] = "";
    for (size_t n = 0, i = 0; n + 60 < sizeof text; i++)
        n +=
            (size_t)snprintf(text + n, sizeof text - n, "line %zu of a text about %s\n", i, i % 3 ? "rivers" : "hills");
    write_file("text.txt", text);
    write_vocab("river\nhill\ngold\nsilver\nking\n");
    write_models();
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_all); }
