// test_train_pp.cu: pipelines (--pp) as their users meet them: the same bits as on one stage in losses, weights,
// optimizer state, validations and samples; resumed on another mesh; interrupted; refused. See test/program.h.
#include "test/program.h"
#include "galaxy/run/metrics.h"

typedef struct {
    const char *name, *program, *both, *one,
        *pipeline; // flags of both runs; of the run on one stage; of the pipeline's
} Way;

static void check_same_run(const Way *w, const char *one, const char *pipeline)
{
    char a[GX_PATH], b[GX_PATH];
    const Log x = read_log(one), y = read_log(pipeline);
    snprintf(a, sizeof a, "%s/checkpoint-3", one), snprintf(b, sizeof b, "%s/checkpoint-3", pipeline);
    CHECK(x.steps == 3 && y.steps == 3 && x.evals == y.evals && x.bits == y.bits,
          "%s: %d and %d steps, %.9g and %.9g bits", w->name, x.steps, y.steps, x.bits, y.bits);
    for (int s = 0; s < x.steps && s < y.steps; s++)
        CHECK(x.loss[s] == y.loss[s] && x.grad_norm[s] == y.grad_norm[s], "%s: step %d has loss %.9g and %.9g", w->name,
              s + 1, x.loss[s], y.loss[s]);
    check_whole(b);
    check_same_checkpoint(a, b);
}

// What the program shows behind "sample:", in memory that the caller frees.
static char *sample(void)
{
    const char *at = strstr(out(), "\nsample"), *end = at ? strstr(at, "\ndone: ") : NULL;
    return at && end ? strndup(at, (size_t)(end - at)) : strdup("none");
}

static void check_way(const Way *w)
{
    char one[100], pipeline[100];
    if (!use_program(w->program)) return;
    snprintf(one, sizeof one, "one_%s", w->name), snprintf(pipeline, sizeof pipeline, "pp_%s", w->name);
    CHECK_RAN(run("--output_dir %s --max_steps 3 --gradient_accumulation_steps 3 --micro_batch_size 2 %s %s", one,
                  w->both, w->one));
    char *shown = sample();
    CHECK_RAN(run("--output_dir %s --max_steps 3 --gradient_accumulation_steps 3 --micro_batch_size 2 %s %s", pipeline,
                  w->both, w->pipeline));
    char *by_pipeline = sample();
    CHECK(!strcmp(shown, by_pipeline), "%s: a pipeline shows\n%s, one stage\n%s", w->name, by_pipeline, shown);
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", w->name, err());
    check_same_run(w, one, pipeline);
    free(shown), free(by_pipeline);
}

TEST(a_pipeline_leaves_behind_what_one_stage_does)
{
    static const Way ways[] = {
        {"two", "train_llama", "--sample_tokens 12 --num_hidden_layers 3", "", "--ranks 2 --pp 2"},
        {"zb1p", "train_llama", "--num_hidden_layers 3", "",
         "--ranks 2 --pp 2 --pipeline_schedule zb1p --stage_num_hidden_layers_list 1,2"},
        {"interleaved", "train_llama", "--sample_tokens 12 --num_hidden_layers 5 --gradient_accumulation_steps 4", "",
         "--ranks 2 --pp 2 --pipeline_schedule interleaved --stage_num_hidden_layers_list 1,2,1,1"},
        {"zbv", "train_llama", "--sample_tokens 12 --num_hidden_layers 4", "--ranks 2",
         "--ranks 4 --pp 2 --pipeline_schedule zbv"},
        {"gpipe", "train_llama", "--num_hidden_layers 3 --recompute layer", "",
         "--ranks 3 --pp 3 --pipeline_schedule gpipe"},
        {"dp", "train_llama", "--precision bf16", "--ranks 2", "--ranks 4 --pp 2"},
        {"galaxy", "train_llama_galaxy", "--tp 2", "--ranks 2", "--ranks 4 --pp 2"},
        {"tied_shards", "train_llama", "--tie_word_embeddings --ranks 4 --pp 2", "", "--zero 3"},
        {"freeze", "train_llama", "--freeze model.embed_tokens.weight,model.layers.0.*", "", "--ranks 2 --pp 2"},
        {"again", "train_llama", "--num_hidden_layers 3", "", "--ranks 2 --pp 2 --recompute layer:0,2,att+mlp:1"},
        {"zb1p_again", "train_llama", "--num_hidden_layers 3", "",
         "--ranks 2 --pp 2 --pipeline_schedule zb1p --recompute layer:1-2"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (!is_brief() || i % 3 == 1) check_way(&ways[i]);
}

// The lines of validations, in memory that the caller frees.
static char *validations(const char *output_dir)
{
    char path[GX_PATH];
    snprintf(path, sizeof path, "%s/log.jsonl", output_dir);
    char *text = read_text(path), *found = (char *)calloc(strlen(text) + 2, 1), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strstr(line, "eval_")) strcat(strcat(found, line), "\n");
    free(text);
    return found;
}

static void write_data_of_tasks(void)
{
    shell("cp -r %s/data/ref/wordpiece words", repository);
    shell("(echo text; seq 60 | sed 's/.*/a cat &\tcat\\na dog &\tdog/') | sed '1s/$/\tlabel/' > labels.tsv");
    shell("(echo anchor; seq 60 | sed 's/.*/cats & run\tthe cat number & runs/') | sed '1s/$/\tpositive/' > pairs.tsv");
    shell("seq 60 | sed 's/.*/the cat number & runs.\\nit rains on day &.\\nall is well.\\n/' > documents.txt");
    shell("user='{\"role\": \"user\", \"content\": \"&\"}' by='{\"role\": \"assistant\", \"content\":'; "
          "seq 60 | sed \"s/.*/{\\\"chosen\\\": [$user, $by \\\"a cat\\\"}], \\\"rejected\\\": [$user, $by "
          "\\\"dog\\\"}]}/\""
          " > preferences.jsonl");
    shell("printf '{\"threads\": 1, \"logging_steps\": 1}' > plain.json");
}

// Whatever a task sees of a validation, of whose micro-batches many are under way at once (the last list is not
// full), or, where they share a place for their results, one.
TEST(a_task_sees_in_a_validation_what_it_does_on_one_stage)
{
#define BERT                                                                                                           \
    "--seq_len 32 --tokenizer words --hidden_size 32 --intermediate_size 64 --num_hidden_layers 2 "                    \
    "--num_attention_heads 4 "
    static const struct {
        const char *name, *program, *flags;
    } tasks[] = {
        {"labels", "train_llama",
         "--task classification --train_data labels.tsv --pack_texts false --seq_len 32 --model start/checkpoint-1"},
        {"labels_bf16", "train_llama",
         "--task classification --train_data labels.tsv --pack_texts false --seq_len 32 --model start/checkpoint-1 "
         "--precision bf16"},
        {"preferences", "train_llama",
         "--task dpo --train_data preferences.jsonl --chat_template chatml --seq_len 160 --model start/checkpoint-1"},
        {"vectors", "train_bert", BERT "--task embedding --pack_texts false --train_data pairs.tsv"},
        {"masked", "train_bert", BERT "--nsp true --tie_word_embeddings false --train_data documents.txt"},
    };
    write_data_of_tasks();
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir start --max_steps 1 --eval_steps 0"));
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        static const char *const stages[] = {"", "--ranks 2 --pp 2"};
        char *seen[2] = {NULL, NULL}, folder[100];
        if (!use_program(tasks[i].program)) continue;
        for (int k = 0; k < 2; k++) {
            snprintf(folder, sizeof folder, "%s_on_%d", tasks[i].name, k + 1);
            CHECK_RAN(
                run("--config plain.json --micro_batch_size 2 --gradient_accumulation_steps 2 "
                    "--max_steps 2 --eval_steps 1 --max_eval_samples 0 --validation_fraction 0.3 --output_dir %s %s %s",
                    folder, tasks[i].flags, stages[k]));
            CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
            seen[k] = validations(folder);
        }
        CHECK(seen[0][0] && !strcmp(seen[0], seen[1]), "%s: one stage:\n%s, two stages:\n%s", tasks[i].name, seen[0],
              seen[1]);
        free(seen[0]), free(seen[1]);
    }
}

// By a model of the test above.
TEST(a_pipeline_predicts_what_one_stage_does)
{
    static const char *const stages[] = {"", "--ranks 2 --pp 2", "--ranks 4 --pp 2"};
    char *said[3];
    if (!use_program("train_llama")) return;
    for (int k = 0; k < 3; k++) {
        char path[100];
        snprintf(path, sizeof path, "said%d.tsv", k);
        CHECK_RAN(run("--config plain.json --model labels_on_1/checkpoint-2 --task classification --predict labels.tsv "
                      "--predictions %s --micro_batch_size 5 %s",
                      path, stages[k]));
        said[k] = read_text(path);
        CHECK(said[k][0] && !strcmp(said[0], said[k]), "%s: other predictions", stages[k]);
    }
    for (int k = 0; k < 3; k++) free(said[k]);
}

// From the checkpoint of the run above: what is trained is on some stages, the base's matrices are quantised on each.
TEST_UNSANITIZED(a_pipeline_tunes_as_one_stage_does)
{
    static const Way ways[] = {
        {"qlora", "train_llama", "--model base/checkpoint-1 --tuning lora --quantize nf4", "",
         "--ranks 2 --pp 2 --recompute att:0,layer:1"},
        {"side", "train_llama", "--model base/checkpoint-1 --tuning side", "", "--ranks 2 --pp 2"},
        {"adapter", "train_llama", "--model base/checkpoint-1 --tuning adapter --mode tp --tp 2", "--ranks 2",
         "--ranks 4 --pp 2"},
        {"tied", "train_llama", "--model tied_base/checkpoint-1 --tuning lora --quantize int8 --sample_tokens 12", "",
         "--ranks 2 --pp 2"},
    };
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir base --max_steps 1 --eval_steps 0"));
    CHECK_RAN(run("--output_dir tied_base --max_steps 1 --eval_steps 0 --tie_word_embeddings"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) check_way(&ways[i]);
}

// The first and the last stage have the embedding's matrix: drawn, or from a file, and trained. Losses are those of one
// stage but for the order of sums; with a learning rate of 0, so are the files.
TEST(a_head_that_is_the_embedding_is_trained_on_two_stages)
{
    static const char *const starts[] = {"", "--model tied_0_one/checkpoint-3"}, *const rates[] = {"0", "0.003"};
    static const char *const ways[] = {"one", "two"}, *const flags[] = {"", "--ranks 2 --pp 2 --sample_tokens 8"};
    if (!use_program("train_llama")) return;
    for (int k = 0; k < 2; k++) {
        Log log[2];
        char folder[2][100];
        for (int i = 0; i < 2; i++) {
            snprintf(folder[i], sizeof folder[i], "tied_%d_%s", k, ways[i]);
            CHECK_RAN(run("--output_dir %s --max_steps 3 --gradient_accumulation_steps 2 --micro_batch_size 2 "
                          "--learning_rate %s %s %s %s",
                          folder[i], rates[k], k ? "" : "--tie_word_embeddings", starts[k], flags[i]));
            CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
            log[i] = read_log(folder[i]);
        }
        check_close_series("loss", log[0].loss, log[1].loss, 3, 1);
        check_close_series("norm", log[0].grad_norm, log[1].grad_norm, 3, 1);
        CHECK(k || !shell("cmp %s/checkpoint-3/model.safetensors %s/checkpoint-3/model.safetensors", folder[0],
                          folder[1]),
              "the files of %s and %s differ", folder[0], folder[1]);
    }
}

// Whoever saved, whoever goes on: moments and weights are those that were saved.
TEST(checkpoints_know_no_stages)
{
    static const Topology topologies[] = {
        {"from_stages", "adamw", "train_llama", "--ranks 2 --pp 2", "train_llama", "--ranks 1", 0},
        {"to_stages", "adamw", "train_llama", "", "train_llama", "--pp 2 --mode tp --tp 2", 4},
        {"of_stages", "sgd", "train_llama", "--ranks 2 --pp 2 --num_hidden_layers 3", "train_llama",
         "--ranks 3 --pp 3 --num_hidden_layers 3", 0},
        {"from_tied", "adamw", "train_llama", "--tie_word_embeddings --ranks 2 --pp 2", "train_llama",
         "--tie_word_embeddings --ranks 1", 0},
        {"from_ragged", "adamw", "train_llama", "--ranks 3 --stage_tp_list 2,1 --mode galaxy", "train_llama",
         "--ranks 1", 0},
        {"of_ragged", "adamw", "train_llama", "--ranks 3 --stage_tp_list 2,1 --mode sp", "train_llama",
         "--stage_tp_list 1,3 --mode tp --tp_num_attention_heads_list 4,1,2,1", 4},
        {"to_ragged", "sgd", "train_llama", "--tie_word_embeddings", "train_llama",
         "--tie_word_embeddings --ranks 3 --stage_tp_list 1,2 --mode tp", 0},
        {"to_tied", "sgd", "train_llama", "--tie_word_embeddings --precision bf16", "train_llama",
         "--tie_word_embeddings --precision bf16 --ranks 2 --pp 2", 0},
    };
    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++)
        if (!topologies[i].mpi || has_mpi) check_topology(&topologies[i]);
}

TEST_UNSANITIZED(a_pipeline_that_was_interrupted_goes_on_to_the_same_bits)
{
    static const Interruption cases[] = {
        {"pp_killed", "--ranks 2 --pp 2", SIGKILL},
        {"pp_interrupted", "--ranks 4 --pp 2 --mode sp --tp 2", SIGINT},
        {"pp_ragged", "--ranks 3 --stage_tp_list 1,2 --mode galaxy --tie_word_embeddings", SIGINT},
        {"pp_tied", "--tie_word_embeddings --precision bf16 --ranks 2 --pp 2", SIGINT}};
    if (!use_program("train_llama")) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_resume(&cases[i]);
}

TEST(files_of_train_config_are_taken)
{
    static const char *const files[] = {"full", "lora"};
    char line[4000];
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir of_config --max_steps 1 --eval_steps 0"));
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "%s --config %s/train_config/llama/pp/%s.json --model of_config/checkpoint-1 --train_data text.txt "
                 "--ranks 2 --threads 1 --max_steps 1 --seq_len 32 --output_dir config_%s",
                 program, repository, files[i], files[i]);
        start_line(line, 0);
        CHECK_RAN(finish());
        CHECK(strstr(out(), "mode pp 2 (1f1b, layers 1,1)"), "%s", out());
    }
}

TEST(a_pipeline_takes_the_memory_of_its_plan)
{
    if (!use_program("train_llama")) return;
    check_memory("memory", "--ranks 2 --pp 2 --gradient_accumulation_steps 4 " FEW_TOKENS);
    check_memory("memory_ragged", "--ranks 3 --stage_tp_list 2,1 --mode galaxy --gradient_accumulation_steps 4 "
                                  "--tie_word_embeddings " FEW_TOKENS);
}

TEST(what_cannot_be_a_pipeline_is_refused)
{
    static const Refusal refusals[] = {
        {"--ranks 4 --pp 4", {"--pp 4: the model has 2 layers, but each stage needs at least one; use at most --pp 2"}},
        {"--ranks 4 --pp 3", {"--pp 3 does not divide 4 ranks; use 1, 2 or 4"}},
        {"--ranks 2 --pp 2 --stage_num_hidden_layers_list 1,2", {"stage_num_hidden_layers_list", "nearest is [1,1]"}},
        {"--ranks 2 --stage_num_hidden_layers_list 1,1", {"has 2 entries, but --pp 1 makes 1 stage; give the layers"}},
        {"--ranks 2 --pp 2 --stage_num_hidden_layers_list 2",
         {"has 1 entry, but --pp 2 makes 2 stages; give the layers"}},
        {"--ranks 2 --pp 2 --pipeline_schedule zbv --gradient_accumulation_steps 4",
         {"--pipeline_schedule zbv puts two stages on each rank", "2 layers, fewer than two ranks need"}},
        {"--ranks 3 --pp 3 --pipeline_schedule zbv --num_hidden_layers 5 --gradient_accumulation_steps 4",
         {"--pp 3: the model has 5 layers, but each stage needs at least one, two of them on each rank",
          "use at most --pp 2"}},
        {"--ranks 2 --pp 2 --pipeline_schedule interleaved --num_hidden_layers 4 --gradient_accumulation_steps 1",
         {"1 micro-batch on 2 ranks; order interleaved needs a multiple of the number of ranks"}},
        {"--ranks 2 --pp 2 --pipeline_schedule interleaved --num_hidden_layers 4 --gradient_accumulation_steps 3",
         {"3 micro-batches on 2 ranks; order interleaved needs a multiple of the number of ranks"}},
        {"--ranks 2 --pp 2 --pipeline_schedule zbv --num_hidden_layers 4 --stage_num_hidden_layers_list 2,2",
         {"has 2 entries, but --pp 2 makes 4 stages, two on each rank; give the layers of each"}},
        {"--ranks 2 --pp 2 --pipeline_schedule zb1p --gradient_accumulation_steps 4 --recompute mlp",
         {"--recompute mlp computes again what --pipeline_schedule zb1p still needs", "use --recompute layer"}},
        {"--ranks 2 --pp 2 --pipeline_schedule zb1p --gradient_accumulation_steps 4 --recompute layer:0,mlp:1",
         {"--recompute layer:0,mlp:1 computes again what --pipeline_schedule zb1p still needs", "or layer:0-5 of"}},
        {"--stage_num_hidden_layers_list 3", {"sums to 3"}},
        {"--ranks 2 --pipeline_schedule gpipe", {"--pipeline_schedule gpipe needs several stages, but --pp is 1"}},
        {"--ranks 4 --pp 2 --mode tp --tp 4", {"--tp 4 does not divide 2 ranks of a stage; use 1 or 2"}},
        {"--ranks 4 --stage_tp_list 2,1 --mode tp", {"--stage_tp_list 2,1 has 3 ranks, but there are 4"}},
        {"--ranks 3 --stage_tp_list 2,1", {"--stage_tp_list 2,1: mode serial splits nothing"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --pp 3", {"--pp 3, but --stage_tp_list 2,1 has 2 stages"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --tp 2", {"--tp 2, but --stage_tp_list 2,1 says how many ranks"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --zero 1", {"--zero is about several copies of the model"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --dp_shard 2", {"--dp_shard is about several copies of the model"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --dp_batch_size_list 1,1",
         {"--dp_batch_size_list is about several copies of the model"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --pipeline_schedule zbv --num_hidden_layers 4",
         {"--pipeline_schedule zbv puts two stages on each rank", "use 1f1b, gpipe or zb1p"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --stage_num_hidden_layers_list 1,1,1",
         {"has 3 entries, but --pp 2 makes 2 stages"}},
        {"--ranks 3 --stage_tp_list 1,1,1", {"--pp 3: the model has 2 layers"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --tp_vocab_size_list 100,156",
         {"tp_vocab_size_list has 2 entries, but the stages have 2+1 ranks; give one for each of the 3"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode tp --tp_vocab_size_list 100,156,200",
         {"tp_vocab_size_list of stage 1 [200] sums to 200", "it must sum to 256"}},
        {"--ranks 3 --stage_tp_list 2,1 --mode sp --seq_scatter_list 30,3,32",
         {"seq_scatter_list of stage 0 [30,3] sums to 33", "it must sum to"}},
        {"--ranks 4 --pp 2 --mode tp --tp 2 --tp_intermediate_size_list 1,2,3",
         {"tp_intermediate_size_list [1,2,3] has 3 entries for 2 ranks"}},
    };
    if (!use_program("train_llama")) return;
    check_refusals(refusals, sizeof refusals / sizeof *refusals);
}

// Numbers within 1e-3 of each other, everything between them the same.
static void check_close_texts(const char *what, const char *a, const char *b)
{
    const char *x = a, *y = b;
    int n = 0;
    while (*x && *y) {
        char *end_x, *end_y;
        const double of_x = strtod(x, &end_x), of_y = strtod(y, &end_y);
        if (end_x == x || end_y == y) {
            if (*x != *y) break;
            x++, y++;
            continue;
        }
        if (!CHECK(fabs(of_x - of_y) <= 1e-3 * fmax(1, fabs(of_x)), "%s: %.9g and %.9g", what, of_x, of_y)) return;
        x = end_x, y = end_y, n++;
    }
    CHECK(!*x && !*y && n > 3, "%s: \"%.80s\" and \"%.80s\"", what, x, y);
}

// Losses, norms and what validations see are one rank's but for rounding; so is a sample.
TEST(stages_of_different_sizes_train_as_one_rank)
{
#define LISTS                                                                                                          \
    "--tp_num_attention_heads_list 4,2,6 --tp_intermediate_size_list 100,28,128 --tp_vocab_size_list 200,56,256 "      \
    "--seq_scatter_list 20,12,32"
    static const Way ways[] = {
        {"r_tp", "train_llama", "--sample_tokens 12 --num_hidden_layers 3", "",
         "--ranks 3 --stage_tp_list 2,1 --mode tp"},
        {"r_sp", "train_llama", "--sample_tokens 12 --tie_word_embeddings", "",
         "--ranks 3 --stage_tp_list 1,2 --mode sp --pipeline_schedule zb1p"},
        {"r_galaxy", "train_llama_galaxy",
         "--sample_tokens 12 --intermediate_size 128 --num_attention_heads 6 "
         "--num_key_value_heads 3 --head_dim 8 --seq_len 32",
         "--ranks 1", "--ranks 3 --stage_tp_list 2,1 " LISTS},
        {"r_own", "train_llama", "--mode tp --num_attention_heads 6 --num_key_value_heads 3 --head_dim 8", "--ranks 1",
         "--ranks 4 --pp 2 --tp 2 --tp_num_attention_heads_list 4,2,1,5"},
        {"r_schedule", "train_llama_pp", "--num_hidden_layers 3", "--ranks 1",
         "--ranks 3 --stage_tp_list 1,2 --mode galaxy2"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const Way *w = &ways[i];
        char folder[2][100], *shown[2], *seen[2];
        Log log[2];
        if (!use_program(w->program)) continue;
        for (int k = 0; k < 2; k++) {
            snprintf(folder[k], sizeof folder[k], "%s_%d", w->name, k);
            CHECK_RAN(run("--output_dir %s --max_steps 3 --gradient_accumulation_steps 3 --micro_batch_size 2 %s %s",
                          folder[k], w->both, k ? w->pipeline : w->one));
            CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", w->name, err());
            shown[k] = sample(), log[k] = read_log(folder[k]), seen[k] = validations(folder[k]);
        }
        check_close_series("loss", log[0].loss, log[1].loss, 3, 1);
        check_close_series("norm", log[0].grad_norm, log[1].grad_norm, 3, 1);
        CHECK(!strcmp(shown[0], shown[1]), "%s shows\n%s, one rank\n%s", w->name, shown[1], shown[0]);
        free(shown[0]), free(shown[1]), free(seen[0]), free(seen[1]);
    }
}

// On stages of different sizes the results of a validation, and predictions, arrive where they are judged.
TEST(tasks_see_on_stages_of_different_sizes_what_they_do_on_one_rank)
{
    static const char *const stages[] = {"", "--ranks 3 --stage_tp_list 1,2 --mode sp",
                                         "--ranks 3 --stage_tp_list 2,1 --mode tp"};
    static const struct {
        const char *name, *program, *flags;
    } tasks[] = {
        {"labels", "train_llama",
         "--task classification --train_data labels.tsv --pack_texts false --seq_len 32 --model "
         "ragged_start/checkpoint-1"},
        {"preferences", "train_llama",
         "--task dpo --train_data preferences.jsonl --chat_template chatml --seq_len 160 --model "
         "ragged_start/checkpoint-1"},
        {"vectors", "train_bert", BERT "--task embedding --pack_texts false --train_data pairs.tsv"},
        {"masked", "train_bert", BERT "--nsp true --train_data documents.txt"},
    };
    write_data_of_tasks();
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir ragged_start --max_steps 1 --eval_steps 0"));
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        char *seen[2] = {NULL, NULL}, folder[100];
        if (!use_program(tasks[i].program)) continue;
        for (int k = 0; k < 2; k++) {
            snprintf(folder, sizeof folder, "ragged_%s_%d", tasks[i].name, k);
            CHECK_RAN(
                run("--config plain.json --micro_batch_size 2 --gradient_accumulation_steps 2 "
                    "--max_steps 2 --eval_steps 1 --max_eval_samples 0 --validation_fraction 0.3 --output_dir %s %s %s",
                    folder, tasks[i].flags, k ? stages[1 + i % 2] : ""));
            CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
            seen[k] = validations(folder);
        }
        check_close_texts(folder, seen[0], seen[1]);
        free(seen[0]), free(seen[1]);
    }
    if (!use_program("train_llama")) return;
    char *said[3];
    for (int k = 0; k < 3; k++) {
        char path[100];
        snprintf(path, sizeof path, "ragged_said%d.tsv", k);
        CHECK_RAN(run("--config plain.json --model ragged_labels_0/checkpoint-2 --task classification --predict "
                      "labels.tsv --predictions %s --micro_batch_size 5 %s",
                      path, stages[k]));
        said[k] = read_text(path);
        if (k) check_close_texts(path, said[0], said[k]);
    }
    for (int k = 0; k < 3; k++) free(said[k]);
}

TEST(a_run_on_stages_of_different_sizes_keeps_them_unless_it_is_moved)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir keeps --max_steps 1 --eval_steps 0 --ranks 3 --stage_tp_list 2,1 --mode tp"));
    CHECK(strstr(out(), "mode pp 2 (1f1b, layers 1,1) x tp 2,1"), "%s", out());
    CHECK(!strstr(err(), "changes nothing") && !strstr(err(), "splits the model"), "%s", err());
    CHECK_RAN(run("--output_dir keeps --resume auto --max_steps 2 --eval_steps 0 --ranks 3"));
    CHECK(strstr(out(), "mode pp 2 (1f1b, layers 1,1) x tp 2,1"), "%s", out());
    CHECK_RAN(run("--output_dir keeps --resume auto --max_steps 3 --eval_steps 0 --ranks 3 --stage_tp_list 1,2"));
    CHECK(strstr(out(), "x tp 1,2"), "%s", out());
    CHECK_RAN(run("--output_dir keeps --resume auto --max_steps 4 --eval_steps 0 --ranks 3 --tp 3"));
    CHECK(strstr(out(), "mode tp 3"), "%s", out());
    CHECK_RAN(run("--output_dir keeps --resume auto --max_steps 5 --eval_steps 0 --ranks 2"));
    CHECK(strstr(out(), "mode tp 2"), "%s", out());
    CHECK_RAN(run("--output_dir keeps --resume auto --max_steps 6 --eval_steps 0 --ranks 4 --stage_tp_list 2,2"));
    CHECK(strstr(out(), "mode pp 2 (1f1b, layers 1,1) x tp 2,"), "%s", out());
}

TEST(stages_that_wait_are_warned_of)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir waits --max_steps 1 --eval_steps 0 --ranks 2 --pp 2 --gradient_accumulation_steps 1"));
    CHECK(strstr(err(), "1 micro-batch per step for 2 stages"), "%s", err());
    CHECK(strstr(out(), "pp 2 (1f1b, layers 1,1)") && strstr(out(), "of the stages: "), "%s", out());
    CHECK_RAN(run("--output_dir works --max_steps 1 --eval_steps 0 --ranks 2 --pp 2 --gradient_accumulation_steps 4"));
    CHECK(!strstr(err(), "micro-batch"), "%s", err());
}

int main(int argc, char **argv) { return program_main(argc, argv); }
