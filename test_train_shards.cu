// test_train_shards.cu: ranks that share weights, gradients and optimizer state (--zero, --dp_shard) as their users
// meet them: the files and the log of ranks that have everything; resumed on another mesh; killed; a full disk;
// refused; in the memory of the plan. See test/program.h.
#include "test/program.h"
#include "test/ranks.h"
#include "galaxy/run/metrics.h"

// ---- the same run, however it is shared ------------------------------------------------------------------------------

typedef struct {
    const char *name, *program, *both, *shares[3]; // flags of all runs; what else they share
} Way;

// log.jsonl without what depends on the clock and on memory, in memory that the caller frees.
static char *log_text(const char *output_dir)
{
    char path[GX_PATH];
    snprintf(path, sizeof path, "%s/log.jsonl", output_dir);
    char *text = read_text(path);
    for (char *at; (at = strstr(text, ", \"tokens_per_s\"")) != NULL;) {
        char *end = strstr(at, ", \"skipped\"");
        if (!end) break;
        memmove(at, end, strlen(end) + 1);
    }
    return text;
}

static void check_same_log(const char *name, const char *a, const char *b)
{
    char *x = log_text(a), *y = log_text(b);
    CHECK(strstr(x, "\"loss\"") && !strcmp(x, y), "%s: %s/log.jsonl has\n%.1500s\n%s/log.jsonl\n%.1500s", name, a, x, b,
          y);
    free(x), free(y);
}

// All files, but those that say how the run was shared.
static void check_same_files(const char *name, const char *a, const char *b)
{
    check_whole(b);
    CHECK(shell("diff -rq -x training_args.json -x manifest.json -x trainer_state.json %s %s", a, b) == 0,
          "%s: %s and %s differ", name, a, b);
}

// What the program shows behind its last "done": a text, predictions, the last validation; and before it "sample:". In
// memory that the caller frees.
static char *shown(void)
{
    const char *sample = strstr(out(), "\nsample"), *done = strstr(out(), "\ndone: "), *end = NULL;
    const char *last = done ? strstr(done, "\nvalidation loss ") : NULL; // before it: how long it took
    if (last) end = strstr(last, "\nthe best ");
    if (last && !end) end = strstr(last, "\npeak memory ");
    if (!end) return strdup("no end");
    const int n = sample && sample < done ? (int)(done - sample) : 0;
    char *text = (char *)malloc((size_t)n + (size_t)(end - last) + 1);
    sprintf(text, "%.*s%.*s", n, n ? sample : "", (int)(end - last), last);
    return text;
}

static void run_way(const Way *w, const char *output_dir, const char *share)
{
    CHECK_RAN(run("--output_dir %s --max_steps 3 --micro_batch_size 2 --max_eval_samples 2 %s %s", output_dir, w->both,
                  share));
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", share, err());
}

static void check_way(const Way *w)
{
    char whole[60], dir[60], a[100], b[100];
    if (!use_program(w->program)) return;
    snprintf(whole, sizeof whole, "whole_%s", w->name), snprintf(a, sizeof a, "%s/checkpoint-3", whole);
    run_way(w, whole, "--zero 0");
    char *expected = shown();
    for (int i = 0; i < 3 && w->shares[i]; i++) {
        snprintf(dir, sizeof dir, "shared%d_%s", i, w->name), snprintf(b, sizeof b, "%s/checkpoint-3", dir);
        run_way(w, dir, w->shares[i]);
        CHECK(strstr(out(), "(zero "), "%s: it does not say that ranks share: %s", w->name, out());
        char *text = shown();
        CHECK(!strcmp(expected, text), "%s, %s: it shows\n%s, not\n%s", w->name, w->shares[i], text, expected);
        free(text);
        check_same_log(w->name, whole, dir);
        check_same_files(w->name, a, b);
    }
    free(expected);
}
#define CHECK_WAYS(ways)                                                                                               \
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)                                                            \
        if (!is_brief() || i % 3 == 1) check_way(&ways[i])

// Tensors are cut between blocks of 32768 elements: MANY has such cuts within the embedding and the head.
#define MANY "--vocab_size 2560 "
TEST(ranks_that_share_leave_behind_what_ranks_that_have_everything_do)
{
    static const Way ways[] = {
        {"two", "train_llama", MANY "--ranks 2 --sample_tokens 12", {"--zero 1", "--zero 2", "--zero 3"}},
        {"bf16",
         "train_llama",
         MANY "--ranks 3 --global_batch_size 12 --gradient_accumulation_steps 2 --precision bf16 --recompute layer",
         {"--zero 3 --dp_shard_list 3,1,2", "--zero 2", "--zero 1 --dp_shard_list 1,9,1"}},
        {"stages",
         "train_llama",
         "--ranks 4 --pp 2 --gradient_accumulation_steps 4 --sample_tokens 8",
         {"--zero 3 --dp_shard 2", "--zero 2", "--zero 1"}},
        {"zb1p",
         "train_llama",
         "--ranks 4 --pp 2 --pipeline_schedule zb1p --gradient_accumulation_steps 4 --precision bf16",
         {"--zero 3 --gathered_units 3", "--zero 2 --dp_shard_list 1,2"}},
        {"tp",
         "train_llama",
         "--ranks 4 --mode tp --tp 2 --precision bf16 --gradient_accumulation_steps 2 --sample_tokens 8",
         {"--zero 3 --gathered_units 1", "--zero 2", "--zero 1"}},
        {"sp",
         "train_llama",
         "--ranks 4 --mode sp --tp 2 --recompute layer",
         {"--zero 3 --dp_shard_list 1,3", "--zero 1"}},
        {"sp_alone", "train_llama", "--ranks 2 --mode sp --tp 2", {"--zero 3"}}, // all of a layer is on both
        {"tied",
         "train_llama",
         MANY "--ranks 4 --micro_batch_size 1 --tie_word_embeddings true --optimizer sgd --momentum 0.9 "
              "--gradient_accumulation_steps 4",
         {"--zero 3", "--zero 2 --dp_shard_list 1,1,1,5"}},
        {"unequal",
         "train_llama",
         "--ranks 2 --micro_batch_size 0 --dp_batch_size_list 3,1 --save_dtype bf16",
         {"--zero 3", "--zero 1"}},
        {"frozen",
         "train_llama",
         "--ranks 4 --freeze model.embed_tokens.weight,model.layers.0.* --max_shard_size 20KB --precision bf16",
         {"--zero 3", "--zero 2"}},
        {"again", "train_llama", "--ranks 2", {"--zero 3 --recompute mlp:0,layer:1", "--zero 2 --recompute layer:0"}},
    };
    CHECK_WAYS(ways);
}

// The model that is tuned below: base/checkpoint-1.
static int make_base(void)
{
    if (!use_program("train_llama")) return 0;
    return exists("base/checkpoint-1") ||
           CHECK(run("--output_dir base --max_steps 1 --eval_steps 0") == 0, "%.300s", err());
}

#define BASE "--model base/checkpoint-1 --learning_rate 1e-2 "
TEST(ranks_that_share_tune_as_ranks_that_have_everything_do)
{
    static const Way ways[] = {
        {"lora", "train_llama", BASE "--ranks 2 --tuning lora --lora_dropout 0.2", {"--zero 3"}},
        {"lora_tokens",
         "train_llama",
         BASE "--ranks 4 --pp 2 --gradient_accumulation_steps 2 --tuning lora --target_modules "
              "embed_tokens,q_proj,lm_head --trainable_modules norm",
         {"--zero 3", "--zero 1"}},
        {"qlora",
         "train_llama",
         BASE "--ranks 3 --global_batch_size 12 --tuning lora --quantize nf4 --precision bf16",
         {"--zero 3 --dp_shard_list 5,1,1"}},
        {"qlora_tp",
         "train_llama",
         BASE "--ranks 4 --mode tp --tp 2 --tuning lora --quantize nf4",
         {"--zero 3", "--zero 1"}},
        {"adapter", "train_llama", BASE "--ranks 4 --tuning adapter --mode sp --tp 2", {"--zero 3"}},
        {"side", "train_llama", BASE "--ranks 4 --pp 2 --tuning side --side_mix gated", {"--zero 3", "--zero 2"}},
        {"prompt",
         "train_llama",
         BASE "--ranks 4 --mode tp --tp 2 --tuning prompt --prompt_len 4",
         {"--zero 3", "--zero 2"}},
        {"side_only", "train_llama", BASE "--ranks 2 --tuning side_only --quantize nf4", {"--zero 3"}},
    };
    if (make_base()) CHECK_WAYS(ways);
}

// Files for the tasks, and a tokenizer of words in the folder `words`.
static int make_tasks(void)
{
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1, \"seq_len\": 32, \"hidden_size\": 32, "
                                 "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4}";
    GxError e = GX_ZERO;
    if (!make_base() || !use_program("train_bert")) return 0;
    shell("cp tiny.json llama.json");
    gx_file_write("tiny.json", config, (int64_t)strlen(config), &e); // of both families: what run() takes
    shell("%.*s/tokenize --train text.txt --type wordpiece --vocab_size 300 --output_dir words >/dev/null",
          (int)(strrchr(program, '/') - program), program);
    shell(
        "(printf 'text\tlabel\n'; for i in $(seq 30); do printf 'a cat %%d\tcat\na dog %%d\tdog\n' $i $i; done) > "
        "labels.tsv; (printf 'anchor\tpositive\n'; for i in $(seq 60); do printf 'cats %%d run\tthe cat %%d runs\n' "
        "$i $i; done) > pairs.tsv; for i in $(seq 40); do echo '{\"prompt\": [{\"role\": \"user\", \"content\": \"cat "
        "'$i'\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"sits\"}], \"rejected\": [{\"role\": "
        "\"assistant\", \"content\": \"flies\"}]}'; done > pairs.jsonl");
    return 1;
}

#define BERT "--tokenizer words --validation_fraction 0.2 "
TEST(ranks_that_share_train_every_task_as_ranks_that_have_everything_do)
{
    static const Way ways[] = {
        {"masks",
         "train_bert",
         "--tokenizer words --train_data text.txt --validation_fraction 0 --ranks 2",
         {"--zero 3", "--zero 2", "--zero 1"}},
        {"labels",
         "train_bert",
         BERT "--task classification --train_data labels.tsv --ranks 4 --mode tp --tp 2 --eval_steps 2 "
              "--load_best_model_at_end true",
         {"--zero 3", "--zero 1"}},
        {"vectors",
         "train_bert",
         BERT "--task embedding --train_data pairs.tsv --ranks 4 --pp 2 --gradient_accumulation_steps 2",
         {"--zero 3", "--zero 2"}},
        {"pairs",
         "train_llama",
         BASE "--task dpo --train_data pairs.jsonl --validation_fraction 0.2 --ranks 2 --tokenizer bytes "
              "--chat_template chatml --seq_len 256",
         {"--zero 3", "--zero 2"}},
        {"pairs_lora",
         "train_llama",
         BASE "--task dpo --train_data pairs.jsonl --validation_fraction 0.2 --ranks 4 --pp 2 --tuning lora "
              "--lora_dropout 0 --tokenizer bytes --chat_template chatml --seq_len 256",
         {"--zero 3"}},
    };
    if (make_tasks()) CHECK_WAYS(ways);
    shell("[ -e llama.json ] && mv llama.json tiny.json");
}

// ---- copies of ranks that share, and sums in a window: other orders of additions -------------------------------------

TEST(copies_of_ranks_that_share_train_to_rounding_as_ranks_that_have_everything)
{
    static const char flags[] =
        "--max_steps 3 --micro_batch_size 1 --global_batch_size 8 --gradient_accumulation_steps "
        "2 --optimizer sgd --learning_rate 0.5 --eval_steps 0 --ranks 4";
    static const char *const ways[] = {"--zero 3 --dp_replicate 2 --dp_shard 2", "--zero 1 --dp_replicate 2",
                                       "--zero 2 --shard_grads_in_window true",
                                       "--dp_replicate 2 --dp_shard 2 --shard_grads_in_window true --gathered_units 3"};
    long n, m;
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("%s --output_dir added", flags));
    const Log whole = read_log("added");
    float *expected = read_floats("added/checkpoint-3/model.safetensors", &n);
    for (int i = 0; i < 4; i++) {
        char dir[40], path[80];
        snprintf(dir, sizeof dir, "added%d", i), snprintf(path, sizeof path, "%s/checkpoint-3/model.safetensors", dir);
        CHECK_RAN(run("%s --output_dir %s %s", flags, dir, ways[i]));
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", ways[i], err());
        CHECK(i == 2 || strstr(out(), "dp_replicate 2 x dp_shard 2 (zero "), "%s: %s", ways[i], out());
        const Log l = read_log(dir);
        if (!CHECK(l.steps == 3 && whole.steps == 3, "%s: %d steps", ways[i], l.steps)) continue;
        check_close_series(ways[i], l.loss, whole.loss, 3, 1);
        check_close_series(ways[i], l.grad_norm, whole.grad_norm, 3, 1);
        float *x = read_floats(path, &m);
        if (CHECK(x && expected && n == m, "%s: %ld and %ld weights", ways[i], n, m))
            test_close_f(ways[i], x, expected, n, test_bound(tiny_depth(3)), 0);
        free(x);
        CHECK(shell("[ \"$(ls added/checkpoint-3)\" = \"$(ls %s/checkpoint-3)\" ]", dir) == 0, "%s: other files", dir);
    }
    free(expected);
}

// ---- checkpoints know nothing of shares ------------------------------------------------------------------------------

static void check_goes_on(const char *from, const char *dir, const char *mesh, const char *mode, int is_same)
{
    char a[80], b[80];
    const Log whole = read_log(from);
    CHECK_RAN(run("--resume %s/checkpoint-3 --output_dir %s %s", from, dir, mesh));
    CHECK(strstr(out(), mode), "%s: no \"%s\" in %s", mesh, mode, out());
    const Log l = read_log(dir);
    if (!CHECK(l.steps == 3 && whole.steps == 6, "%s: %d of %d steps", mesh, l.steps, whole.steps)) return;
    for (int s = 0; s < 3; s++) {
        if (is_same) CHECK(l.loss[s] == whole.loss[3 + s], "%s: step %d has loss %.9g", mesh, 4 + s, l.loss[s]);
        else test_close_number(mesh, l.loss[s], whole.loss[3 + s], test_bound(tiny_depth(4 + s)));
    }
    snprintf(a, sizeof a, "%s/checkpoint-6", from), snprintf(b, sizeof b, "%s/checkpoint-6", dir);
    if (is_same) check_same_checkpoint(a, b);
}

TEST(a_run_goes_on_however_its_ranks_share)
{
    static const struct {
        const char *mesh, *mode; // of two ranks with --zero 3 before
        int is_same;
    } ways[] = {
        {"--ranks 2", "mode dp_shard 2 (zero 3)", 1},
        {"--ranks 2 --zero 0", "mode dp,", 1},
        {"--ranks 2 --zero 1 --dp_shard_list 3,1", "mode dp_shard 2 (zero 1)", 1},
        {"--ranks 4 --pp 2 --dp_shard 2", "pp 2 (1f1b, layers 1,1) x dp_shard 2 (zero 3)", 1},
        {"--ranks 4 --pp 2", "pp 2 (1f1b, layers 1,1) x dp_shard 2 (zero 3)", 1},
        {"--ranks 4", "mode dp_shard 4 (zero 3)", 0},
        {"--ranks 4 --zero 2", "mode dp_shard 4 (zero 2)", 0},
        {"--ranks 2 --mode tp --tp 2", "mode tp 2,", 0},
        {"", "mode serial,", 0},
    };
    char dir[40];
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir shares --max_steps 6 --save_steps 3 --ranks 2 --zero 3 --precision fp32"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(dir, sizeof dir, "onward%d", (int)i);
        check_goes_on("shares", dir, ways[i].mesh, ways[i].mode, ways[i].is_same);
    }
    CHECK_RAN(run("--output_dir wholes --max_steps 6 --save_steps 3 --ranks 2"));
    check_goes_on("wholes", "to_shares", "--ranks 2 --zero 3", "mode dp_shard 2 (zero 3)", 1);
    check_goes_on("wholes", "to_stages", "--ranks 4 --pp 2 --zero 2", "x dp_shard 2 (zero 2)", 1);
}

TEST(moments_and_weights_are_loaded_into_any_shares)
{
    static const Topology topologies[] = {
        {"shares_one", "adamw", "train_llama", "--ranks 3 --zero 3 --dp_shard_list 1,5,2 --precision bf16",
         "train_llama", "--precision bf16", 0},
        {"tp_shares", "adamw", "train_llama", "--ranks 2 --mode tp", "train_llama", "--ranks 4 --zero 3", 0},
        {"copies_stages", "sgd", "train_llama", "--ranks 4 --zero 2 --dp_replicate 2", "train_llama",
         "--ranks 4 --pp 2 --zero 1", 0},
        {"shares_mpi", "adamw", "train_llama", "--ranks 2 --zero 3", "train_llama", "--pp 2 --dp_shard 2", 4},
    };
    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++)
        if (!topologies[i].mpi || has_mpi) check_topology(&topologies[i]);
}

static int64_t saved_option(const char *path, const char *name) // of training_args.json; -1: it is not there
{
    GxJson *json = NULL;
    GxError e = GX_ZERO;
    if (!CHECK(gx_json_read(&json, path, 1 << 20, &e) == GX_OK, "%s", e.message)) return -1;
    const GxJson *value = gx_json_get(json, name);
    const int64_t n = !value                                  ? -1
                      : gx_json_type(value) == GX_JSON_STRING ? atoi(gx_json_string(value))
                                                              : gx_json_int(value);
    gx_json_free(json);
    return n;
}

TEST(training_args_say_how_ranks_shared_and_go_with_other_ranks)
{
    static const char shares[] = "shares_said/training_args.json", wholes[] = "wholes_said/training_args.json";
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir shares_said --max_steps 1 --eval_steps 0 --ranks 2 --dp_shard -1"));
    CHECK(saved_option(shares, "zero") == 3 && saved_option(shares, "dp_shard") == 2, "zero %d, dp_shard %d",
          (int)saved_option(shares, "zero"), (int)saved_option(shares, "dp_shard"));
    CHECK_RAN(run("--config %s --output_dir shares_again", shares));
    CHECK(strstr(out(), "mode dp_shard 2 (zero 3)"), "%s", out());
    check_same_checkpoint("shares_said/checkpoint-1", "shares_again/checkpoint-1");
    CHECK_RAN(run("--output_dir wholes_said --max_steps 1 --eval_steps 0 --ranks 2"));
    CHECK(saved_option(wholes, "zero") == 0, "zero %d", (int)saved_option(wholes, "zero"));
    CHECK_RAN(run("--config %s --output_dir of_wholes --ranks 4 --micro_batch_size 4", wholes));
    CHECK(strstr(out(), "mode dp,"), "%s", out());
    CHECK_RAN(run("--config %s --output_dir of_wholes2 --ranks 4 --micro_batch_size 4 --zero 2", wholes));
    CHECK(strstr(out(), "mode dp_shard 4 (zero 2)"), "%s", out());
}

// ---- communication beside computation --------------------------------------------------------------------------------

TEST(communication_beside_computation_changes_no_bit)
{
    static const char *const shares[] = {
        "--ranks 3 --reduce_bucket 1",
        "--ranks 3 --zero 1",
        "--ranks 4 --zero 2 --dp_replicate 2 --dp_shard 2 --shard_grads_in_window true --gradient_accumulation_steps 2",
        "--ranks 3 --zero 3 --gathered_units 3 --tie_word_embeddings --gradient_accumulation_steps 2",
        "--ranks 3 --pp 3 --pipeline_schedule zb1p --num_hidden_layers 3 --gradient_accumulation_steps 5",
        "--ranks 2 --pp 2 --pipeline_schedule zbv --num_hidden_layers 4 --gradient_accumulation_steps 6 --recompute "
        "layer",
        "--ranks 4 --pp 2 --pipeline_schedule interleaved --zero 2 --num_hidden_layers 4 --gradient_accumulation_steps "
        "4",
        "--ranks 3 --stage_tp_list 1,2 --mode galaxy --gradient_accumulation_steps 3",
    };
    if (!use_program("train_llama")) return;
    for (unsigned k = 0; k < sizeof shares / sizeof *shares; k++) {
        char a[40], b[40];
        for (int overlaps = 0; overlaps < 2; overlaps++) {
            CHECK_RAN(run("--output_dir beside%u_%d --max_steps 3 --micro_batch_size 1 %s --overlap %s", k, overlaps,
                          shares[k], overlaps ? "true" : "false"));
            CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", shares[k], err());
        }
        snprintf(a, sizeof a, "beside%u_0", k), snprintf(b, sizeof b, "beside%u_1", k);
        check_same_log(shares[k], a, b);
        snprintf(a, sizeof a, "beside%u_0/checkpoint-3", k), snprintf(b, sizeof b, "beside%u_1/checkpoint-3", k);
        check_same_files(shares[k], a, b);
    }
}

// ---- processes -------------------------------------------------------------------------------------------------------

#define MESH "--pp 2 --dp_shard 2 --gradient_accumulation_steps 4 --micro_batch_size 1 --precision bf16 "
TEST(processes_that_share_give_the_bits_of_threads)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir by_threads --max_steps 3 --ranks 4 --overlap false " MESH));
    CHECK(run_ranks(BY_HAND, 4, "--config tiny.json --output_dir by_tcp --max_steps 3 " MESH) == 0,
          "%d of 4 ranks failed", child.status);
    says(0, "x dp_shard 2 (zero 3)");
    check_same_files("tcp", "by_threads/checkpoint-3", "by_tcp/checkpoint-3");
    check_same_log("tcp", "by_threads", "by_tcp");
    NEED_MPI();
    CHECK_RAN(run_mpi(4, "--output_dir by_mpi --max_steps 3 " MESH));
    check_same_files("mpi", "by_threads/checkpoint-3", "by_mpi/checkpoint-3");
    check_same_log("mpi", "by_threads", "by_mpi");
}

TEST(a_killed_process_that_shares_is_named_and_the_run_goes_on_to_the_same_bits)
{
    static const char flags[] = "--config tiny.json --max_steps 5 --save_steps 1 --timeout 20 " MESH SLOW;
    if (!use_program("train_llama")) return;
    CHECK(run_ranks(BY_HAND, 4,
                    "--config tiny.json --max_steps 5 --save_steps 1 --eval_steps 0 --output_dir left " MESH SLOW) == 0,
          "%d of 4 ranks failed", child.status);
    for (int killed = is_brief() ? 3 : 0; killed < 4; killed += 3) {
        char more[400], log[60], pid_path[20], words[40];
        snprintf(more, sizeof more, "%s --eval_steps 1 --output_dir killed%d", flags, killed);
        snprintf(log, sizeof log, "killed%d/log.jsonl", killed), snprintf(pid_path, sizeof pid_path, "pid%d", killed);
        start_ranks(BY_HAND, 4, more, "");
        CHECK(wait_for(log, "\"step\": 2, "), "no second step came");
        sleep_ms(10 * killed);
        char *pid = read_text(pid_path);
        if (CHECK(atoi(pid) > 1, "no process %s", pid)) kill((pid_t)atoi(pid), SIGKILL);
        free(pid);
        const double at = now() - child.started;
        const int status = finish_within(at + 20);
        CHECK(status == 4, "status %d %.1f s after rank %d was killed", status, child.seconds - at, killed);
        snprintf(words, sizeof words, "rank %d died", killed);
        for (int r = 0; r < 4; r++)
            if (r != killed) says(r, words);
        snprintf(more, sizeof more, "%s --eval_steps 0 --output_dir killed%d --resume auto", flags, killed);
        CHECK(run_ranks(BY_HAND, 4, more) == 0, "%d of 4 ranks do not go on", child.status);
        says(0, "resumed from");
        snprintf(more, sizeof more, "killed%d/checkpoint-5", killed);
        check_same_checkpoint("left/checkpoint-5", more);
    }
}

// What is said of shares leaves alone what each rank computes: tp, its lists, the samples of unequal machines.
TEST(a_run_that_goes_on_with_other_shares_keeps_the_rest_of_its_layout)
{
    static const struct {
        const char *before, *more, *mode;
    } ways[] = {
        {"--zero 2 --dp_shard_list 3,1", "", "mode tp 2 x dp_shard 2 (zero 2)"},
        {"--zero 2 --dp_shard_list 3,1", "--zero 3", "mode tp 2 x dp_shard 2 (zero 3)"},
        {"--zero 2 --dp_shard_list 3,1", "--zero 0", "mode tp 2 x dp 2,"},
        {"--zero 0", "--dp_shard 2", "mode tp 2 x dp_shard 2 (zero 3)"},
        {"--zero 3", "--dp_replicate 2", "mode tp 2 x dp 2,"},
    };
    char from[40], dir[40], mesh[80];
    if (!use_program("train_llama")) return;
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++) {
        snprintf(from, sizeof from, "split%d", i), snprintf(dir, sizeof dir, "split_on%d", i);
        snprintf(mesh, sizeof mesh, "--ranks 4 %s", ways[i].more);
        CHECK_RAN(run("--output_dir %s --max_steps 6 --save_steps 3 --ranks 4 --mode tp --tp 2 --micro_batch_size 0 "
                      "--dp_batch_size_list 3,1 %s --precision fp32",
                      from, ways[i].before));
        check_goes_on(from, dir, mesh, ways[i].mode, 1);
    }
}

TEST_UNSANITIZED(a_run_that_shares_and_was_interrupted_goes_on_to_the_same_bits)
{
    static const Interruption cases[] = {{"killed_shares", "--ranks 4 --pp 2 --dp_shard 2", SIGKILL},
                                         {"stopped_shares", "--ranks 2 --zero 2 --dp_shard_list 3,1", SIGINT}};
    if (!use_program("train_llama")) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_resume(&cases[i]);
}

// ---- a full disk -----------------------------------------------------------------------------------------------------

// A limit on the size of files stands for it. Whether weights, moments or nothing fit: the run ends as one rank's does.
TEST(a_full_disk_ends_ranks_that_share_as_it_ends_others)
{
    static const char *const ways[] = {"--ranks 2 --zero 3", "--ranks 4 --pp 2 --zero 2",
                                       "--ranks 4 --mode tp --tp 2 --zero 3 --precision bf16"};
    static const long limits[] = {200000, 60000, 100000};
    if (!use_program("train_llama")) return;
    for (int i = 0; i < 3; i++) {
        char flags[200], dir[40], path[80];
        snprintf(dir, sizeof dir, "full%d", i), snprintf(path, sizeof path, "%s/checkpoint-2", dir);
        CHECK_RAN(run("--output_dir %s --max_steps 2 %s", dir, ways[i]));
        snprintf(flags, sizeof flags, "--output_dir %s --max_steps 4 --resume auto", dir);
        snprintf(flags + strlen(flags), sizeof flags - strlen(flags), " %.*s", (int)(strstr(ways[i], " --") - ways[i]),
                 ways[i]); // the ranks alone: the rest is the run's
        const int status = run_limited(limits[i], flags);
        CHECK(status == 1 && child.seconds < 20, "%s: status %d after %.1f s: %s", ways[i], status, child.seconds,
              err());
        CHECK(strstr(err(), "step 4 is not saved") && strstr(err(), ".safetensors") && strstr(err(), "File too large"),
              "%s: %s", ways[i], err());
        CHECK(!strstr(err(), "rank 0 could not save"), "%s: the reason is missing: %s", ways[i], err());
        CHECK(strstr(out(), "step     4/4") && strstr(out(), "(zero "), "%s: %s", ways[i], out());
        check_whole(path);
        CHECK_RAN(run("%s", flags));
        snprintf(path, sizeof path, "%s/checkpoint-4", dir);
        check_whole(path);
    }
}

// ---- memory ----------------------------------------------------------------------------------------------------------

TEST(ranks_that_share_take_the_memory_of_their_plan)
{
    if (!use_program("train_llama")) return;
    check_memory("memory3", "--ranks 2 --zero 3 --precision bf16 " FEW_TOKENS);
}

typedef struct {
    double weights, gradients, optimizer, communication, least, most; // MB of rank 0; arenas of all ranks
} Planned;

static Planned planned(const char *share)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config middle.json --dry_run --ranks 4 %s " FEW_TOKENS, program, share);
    start_line(line, 0);
    CHECK_RAN(finish());
    const char *of_ranks = "(of the ranks: ";
    Planned p = {number_behind(out(), "weights "),   number_behind(out(), "gradients "),
                 number_behind(out(), "optimizer "), number_behind(out(), "communication "),
                 number_behind(out(), "\n  arena "), 0};
    p.most = p.least;
    const char *at = strstr(out(), of_ranks);
    if (at) p.least = strtod(at + strlen(of_ranks), NULL), p.most = number_behind(at, " to ");
    CHECK(p.weights > 0 && p.most > 0, "%s: no plan in %s", share, out());
    return p;
}

// Each of six units is cut between blocks of 32768 elements, to half a block at both ends of a part, so that it has at
// most one more or less than a quarter; of 4 bytes, and MB are shown to a tenth.
TEST(a_quarter_of_the_model_is_planned_on_each_of_four_ranks)
{
    const double each = 6 * 32768 * 4 / 1e6 + 0.1, embedding = 8192 * 256 * 4 / 1e6;
    if (!use_program("train_llama")) return;
    const Planned whole = planned("--zero 0"), three = planned("--zero 3"), two = planned("--zero 2"),
                  one = planned("--zero 1"), uneven = planned("--zero 3 --dp_shard_list 3,1,1,1");
    CHECK(fabs(three.weights - whole.weights / 4) <= each && fabs(three.gradients - whole.gradients / 4) <= each &&
              fabs(three.optimizer - whole.optimizer / 4) <= 2 * each,
          "%g, %g and %g MB of %g, %g and %g", three.weights, three.gradients, three.optimizer, whole.weights,
          whole.gradients, whole.optimizer);
    CHECK(two.weights == whole.weights && fabs(two.gradients - whole.gradients / 4) <= each &&
              fabs(two.optimizer - whole.optimizer / 4) <= 2 * each,
          "ZeRO 2: %g, %g and %g MB", two.weights, two.gradients, two.optimizer);
    CHECK(one.weights == whole.weights && one.gradients == whole.gradients &&
              fabs(one.optimizer - whole.optimizer / 4) <= 2 * each,
          "ZeRO 1: %g, %g and %g MB", one.weights, one.gradients, one.optimizer);
    CHECK(three.communication <= whole.communication + 3 * embedding + 0.2, "%g MB of whole units, beside %g",
          three.communication, whole.communication); // two units' weights, a unit's gradients
    CHECK(three.most - three.least <= 4 * each, "arenas of %g to %g MB", three.least, three.most);
    CHECK(fabs(uneven.weights - whole.weights / 2) <= each, "half of %g MB are %g", whole.weights, uneven.weights);
}

// A layer is 0.72M elements, 2.9 MB in fp32, the embedding and the head 8.4 MB each.
TEST(whole_units_take_the_memory_that_is_said)
{
    const double layer = 2.8, embedding = 8.3;
    if (!use_program("train_llama")) return;
    const Planned one = planned("--zero 3 --gathered_units 1"), two = planned("--zero 3"),
                  four = planned("--zero 3 --gathered_units 4"),
                  window = planned("--zero 2 --gradient_accumulation_steps 2"),
                  each = planned("--zero 2 --gradient_accumulation_steps 2 --shard_grads_in_window true"),
                  blocking = planned("--zero 2 --gradient_accumulation_steps 2 --shard_grads_in_window true "
                                     "--overlap false");
    CHECK(two.communication - one.communication > layer && four.communication - two.communication > 2 * layer,
          "%g, %g and %g MB for 1, 2 and 4 whole units", one.communication, two.communication, four.communication);
    CHECK(window.communication - blocking.communication > 3 * layer + embedding, // all units' gradients, or one's
          "%g MB with gradients summed behind each micro-batch, %g without", blocking.communication,
          window.communication);
    const double more = each.communication - blocking.communication; // another unit's, and room for a sum
    CHECK(more > layer && more < layer + embedding / 4 + 0.3, "%g MB while they are summed, %g if nothing overlaps",
          each.communication, blocking.communication);
}

// ---- what is refused, what is said -----------------------------------------------------------------------------------

TEST(what_cannot_be_shared_is_refused_with_what_can)
{
    static const Refusal refusals[] = {
        {"--ranks 4 --dp_shard 3", {"--dp_shard 3 does not divide 4 ranks; use 1, 2 or 4"}},
        {"--ranks 4 --pp 2 --dp_shard 4",
         {"--dp_shard 4 does not divide 2 ranks, which --pp 2 and --tp 1 leave of 4; use 1 or 2"}},
        {"--dp_shard 2", {"--dp_shard 2 does not divide 1 rank; use 1"}},
        {"--ranks 4 --dp_shard 2 --zero 0", {"--dp_shard is for sharding, but --zero is 0", "say --zero 1, 2 or 3"}},
        {"--ranks 4 --dp_shard -1 --zero 0",
         {"--dp_shard is for sharding, but --zero is 0", "or leave out --dp_shard"}},
        {"--ranks 4 --dp_replicate 2", {"--dp_replicate is for sharding, but --zero is 0", "say --zero 1, 2 or 3"}},
        {"--ranks 4 --dp_replicate 3 --zero 2", {"--dp_replicate 3 does not divide 4 ranks; use 1, 2 or 4"}},
        {"--ranks 4 --dp_replicate 2 --dp_shard 4",
         {"--dp_replicate 2 x --dp_shard 4 makes 8 ranks, but there are 4; leave out one of the two"}},
        {"--ranks 4 --dp_replicate 2 --dp_shard 1 --zero 1", {"makes 2 ranks, but there are 4"}},
        {"--ranks 4 --dp_shard_list 1,2",
         {"dp_shard_list has 2 entries, but the model is sharded among 4 ranks (--dp_shard)"}},
        {"--ranks 4 --dp_shard 2 --dp_shard_list 1",
         {"dp_shard_list has 1 entry, but the model is sharded among 2 ranks"}},
        {"--ranks 2 --zero 3 --dp_shard 1 --dp_shard_list 1,2",
         {"dp_shard_list lists 2 ranks, but each data-parallel rank has everything (--dp_shard 1)"}},
        {"--ranks 2 --pp 2 --micro_batch_size 0 --dp_batch_size_list 3,1",
         {"dp_batch_size_list has 2 entries for 1 copy of the model (2 ranks each: --pp x --tp)"}},
        {"--ranks 2 --dp_shard_list 1,0", {"--dp_shard_list is \"1,0\"", "each from 1 to 65536"}},
        {"--ranks 2 --dp_shard_list 1,2 --zero 0", {"--dp_shard_list is for sharding, but --zero is 0"}},
        {"--ranks 2 --zero 1 --shard_grads_in_window true", {"with --zero 1 each rank has all", "say --zero 2 or 3"}},
        {"--ranks 2 --shard_grads_in_window true", {"with --zero 0 each rank has all of them", "say --zero 2 or 3"}},
        {"--ranks 2 --zero 2 --gathered_units 3", {"with --zero 2 each rank has all of them", "say --zero 3"}},
        {"--ranks 2 --zero 3 --gathered_units 1 --tie_word_embeddings true",
         {"--gathered_units 1", "units of a stage share tensors, such as a head the embedding's", "say 2"}},
        {"--ranks 2 --zero 2 --reduce_bucket 4", {"--reduce_bucket", "--zero 2", "leave out one of the two"}},
        {"--ranks 2 --zero 4", {"--zero is \"4\"; expected one of auto|0|1|2|3"}},
    };
    if (!use_program("train_llama")) return;
    CHECK_REFUSALS(refusals);
}

TEST(shares_that_change_nothing_are_said_to)
{
    static const Refusal warnings[] = {
        {"--zero 3", {"--zero 3 changes nothing", "there is only one (1 rank, --pp 1, --tp 1)", "--ranks N"}},
        {"--ranks 2 --mode tp --tp 2 --zero 2", {"--zero 2 changes nothing", "(2 ranks, --pp 1, --tp 2)"}},
        {"--ranks 2 --zero 1 --dp_shard 1", {"--zero 1 changes nothing: --dp_shard is 1", "2 data-parallel ranks"}},
        {"--ranks 2 --zero 2 --shard_grads_in_window true",
         {"--shard_grads_in_window changes nothing", "leave it out"}},
    };
    if (!use_program("train_llama")) return;
    for (size_t i = 0; i < sizeof warnings / sizeof *warnings; i++) {
        CHECK_RAN(run("--output_dir nothing%d --max_steps 1 --eval_steps 0 %s", (int)i, warnings[i].flags));
        for (int k = 0; k < 3 && warnings[i].words[k]; k++)
            CHECK(strstr(err(), warnings[i].words[k]), "%s: no \"%s\" in %s", warnings[i].flags, warnings[i].words[k],
                  err());
    }
    CHECK_RAN(run("--output_dir something --max_steps 1 --eval_steps 0 --ranks 2 --zero 2 --micro_batch_size 2 "
                  "--gradient_accumulation_steps 2 --shard_grads_in_window true"));
    CHECK(!err()[0], "%s", err());
}

int main(int argc, char **argv) { return program_main(argc, argv); }
