// test_train_runs.cu: the life of a run as its user meets it: going on, going back, folders that were used before,
// disks that fill, a validation or a sample alone. See test/program.h.
#include "test/program.h"
#include "test/ranks.h"
#include "galaxy/run/output.h"

// The program with these flags and nothing else: no configuration is given again.
__attribute__((format(printf, 1, 2))) static int run_plain(const char *format, ...)
{
    char flags[2000], line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof flags, format, args);
    va_end(args);
    snprintf(line, sizeof line, "%s --threads 1 %s", program, flags);
    start_line(line, 0);
    return finish();
}

static int has_words(const char *path, const char *words)
{
    char *text = read_text(path);
    const int there = strstr(text, words) != NULL;
    free(text);
    return there;
}

// ---- options -------------------------------------------------------------------------------------------------------

// What was said when a run began need not be said again. Each differs from its default in what would move the weights.
TEST(a_run_that_is_resumed_without_its_flags_is_the_uninterrupted_one_bit_for_bit)
{
    static const struct {
        const char *name, *flags, *again;
    } ways[] = {
        {"adamw",
         "--learning_rate 0.01 --lr_scheduler_type linear --min_lr_ratio 0.5 --warmup_steps 3 --weight_decay 0.3 "
         "--adam_beta1 0.8 --adam_beta2 0.9 --adam_epsilon 1e-6 --max_grad_norm 0.5 --seed 77 --micro_batch_size 2 "
         "--gradient_accumulation_steps 3 --validation_fraction 0.2",
         ""},
        {"sgd", "--optimizer sgd --momentum 0.5 --learning_rate 0.3 --freeze *mlp* --recompute layer --seed 5", ""},
        {"unequal", "--optimizer sgd --learning_rate 0.3 --ranks 2 --dp_batch_size_list 3,1 --seed 9", "--ranks 2"},
        {"split", "--ranks 2 --mode galaxy --tp_num_attention_heads_list 2,2 --seq_scatter_list 20,12 --precision bf16",
         "--ranks 2"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char a[100], b[100];
        CHECK_RAN(run("--output_dir told_%s --max_steps 6 --save_steps 3 %s", ways[i].name, ways[i].flags));
        shell("mkdir untold_%s; cp -r told_%s/checkpoint-3 untold_%s", ways[i].name, ways[i].name, ways[i].name);
        CHECK_RAN(run_plain("--resume auto --output_dir untold_%s %s", ways[i].name, ways[i].again));
        CHECK(!strstr(out(), "changed since then"), "%s: %s", ways[i].name, out());
        snprintf(a, sizeof a, "told_%s/checkpoint-6", ways[i].name);
        snprintf(b, sizeof b, "untold_%s/checkpoint-6", ways[i].name);
        check_same_checkpoint(a, b);
    }
}

// The weights that others read may be narrow, and in several files: what a resume needs is there in fp32.
// Earlier versions wrote the hash of the text as a signed number.
TEST(a_checkpoint_with_the_hash_of_its_text_as_a_number_goes_on)
{
    char temporary[GX_PATH], number[40];
    GxError e = GX_ZERO;
    CHECK_RAN(run("--max_steps 4 --save_steps 2 --output_dir hashed"));
    shell("mkdir hashed_older && cp -r hashed/checkpoint-2 hashed_older");
    char *state = read_text("hashed_older/checkpoint-2/trainer_state.json"), *at = strstr(state, "\"text_hash\": \"0x");
    if (!CHECK(at, "%s", state)) return;
    snprintf(number, sizeof number, "%lld", (long long)strtoull(at + 14, NULL, 16));
    free(state);
    shell("mv hashed_older/checkpoint-2 older-2 && rm older-2/manifest.json");
    CHECK(gx_publish_begin("hashed_older/checkpoint-2", temporary, &e) == GX_OK, "%s", e.message);
    shell("mv older-2/* %s/ && sed -i 's/\"text_hash\": \"[^\"]*\"/\"text_hash\": %s/' %s/trainer_state.json",
          temporary, number, temporary);
    CHECK(gx_publish_finish("hashed_older/checkpoint-2", &e) == GX_OK, "%s", e.message);
    state = read_text("hashed_older/checkpoint-2/trainer_state.json");
    CHECK(strstr(state, number) && !strstr(state, "0x"), "%s", state);
    free(state);
    CHECK_RAN(run_plain("--resume auto --output_dir hashed_older"));
    check_same_checkpoint("hashed/checkpoint-4", "hashed_older/checkpoint-4");
}

TEST(a_checkpoint_of_any_type_in_any_number_of_files_goes_on_bit_for_bit)
{
    static const struct {
        const char *name, *flags, *again, *dtype;
        int files;
    } ways[] = {{"bf16", "--save_dtype bf16 --max_shard_size 20KB", "", "bfloat16", 0},
                {"fp16", "--save_dtype fp16 --freeze *mlp* --ranks 2 --mode tp", "--ranks 2", "float16", 1},
                {"sgd", "--save_dtype bf16 --optimizer sgd --momentum 0 --learning_rate 0.3", "", "bfloat16", 1},
                {"narrow", "--save_dtype bf16 --precision bf16 --freeze *mlp*", "", "bfloat16", 1},
                {"wide", "--max_shard_size 0.05MB", "", "float32", 0}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char a[100], b[100];
        CHECK_RAN(run("--output_dir one_%s --max_steps 6 --save_steps 3 %s", ways[i].name, ways[i].flags));
        shell("rm -rf two_%s; mkdir two_%s; cp -r one_%s/checkpoint-3 two_%s", ways[i].name, ways[i].name, ways[i].name,
              ways[i].name);
        CHECK_RAN(run_plain("--resume auto --output_dir two_%s %s", ways[i].name, ways[i].again));
        snprintf(a, sizeof a, "one_%s/checkpoint-6", ways[i].name);
        snprintf(b, sizeof b, "two_%s/checkpoint-6", ways[i].name);
        CHECK(
            shell("cmp %s/optimizer.safetensors %s/optimizer.safetensors && for f in %s/model*; do cmp $f %s/${f##*/} "
                  "|| exit 1; done",
                  a, b, a, b) == 0,
            "%s: other bits", ways[i].name);
        CHECK(shell("grep -q '\"torch_dtype\": \"%s\"' %s/config.json", ways[i].dtype, b) == 0, "%s: its dtype",
              ways[i].name);
        CHECK(shell("test $(ls %s/model*.safetensors | wc -l) %s", b, ways[i].files ? "-eq 1" : "-gt 1") == 0,
              "%s: files", ways[i].name);
        CHECK(exists("one_bf16/checkpoint-6/model.safetensors.index.json") &&
                  !exists("one_bf16/checkpoint-6/model.safetensors"),
              "an index in place of one file");
        // what others read loads by itself, within its roundings
        CHECK_RAN(run("--output_dir from_%s --overwrite_output_dir true --max_steps 1 --model %s", ways[i].name, a));
    }
}

TEST(weights_beyond_fp16_are_saved_in_fp32_with_a_warning)
{
    CHECK_RAN(run("--output_dir huge --max_steps 1 --optimizer sgd --learning_rate 1e9 --warmup_steps 0 "
                  "--max_grad_norm 0 --save_dtype fp16"));
    CHECK(strstr(out(), "the largest fp16 value is 65504; the weights are saved in fp32") ||
              strstr(err(), "the largest fp16 value is 65504; the weights are saved in fp32"),
          "%s%s", out(), err());
    check_whole("huge/checkpoint-1");
    CHECK(shell("grep -q '\"torch_dtype\": \"float32\"' huge/checkpoint-1/config.json") == 0, "its dtype");
    static const Refusal refused[] = {
        {"--max_shard_size 5TB", {"max_shard_size is \"5TB\"; expected a size such as 500MB or 5GB", NULL}},
        {"--max_shard_size -1MB", {"max_shard_size is", NULL}},
        {"--save_dtype int8", {"save_dtype", "fp32|bf16|fp16", NULL}},
    };
    check_refusals(refused, sizeof refused / sizeof *refused);
}

TEST(a_run_whose_tokenizers_path_is_gone_goes_on_with_its_checkpoints)
{
    static const Refusal begins[] = {{"--tokenizer words --output_dir fresh", {"words", NULL, NULL}}};
    CHECK_RAN(run("--output_dir wordy --max_steps 1"));
    shell("rm -rf words; mkdir words; cp wordy/checkpoint-1/tokenizer*.json words");
    CHECK_RAN(run("--output_dir worded --max_steps 4 --save_steps 2 --tokenizer words"));
    shell("rm -rf words; mkdir reworded; cp -r worded/checkpoint-2 reworded");
    CHECK_RAN(run_plain("--resume auto --output_dir reworded --ranks 1"));
    CHECK(strstr(err(), "the tokenizer words does not exist; that of reworded/checkpoint-2 is used"), "%s", err());
    check_same_checkpoint("worded/checkpoint-4", "reworded/checkpoint-4");
    CHECK_REFUSALS(begins);
}

// A model's folder says more than is computed here: it goes along, also through a resume, as it was when it was opened.
TEST(what_a_models_folder_says_besides_stays_in_its_checkpoints)
{
    CHECK_RAN(run("--output_dir bare --max_steps 1"));
    CHECK(
        shell(
            "rm -rf rich; cp -r bare/checkpoint-1 rich; rm rich/manifest.json; cd rich; echo '{\"eos_token_id\": [2, "
            "7]}'"
            " >generation_config.json; echo 'a b' >merges.txt; sed -i 's/^{/{\"use_cache\": true, \"dtype\": "
            "\"bfloat16\", "
            "\"note\": {\"of\": [1, 2.5, null]},/; s/\"eos_token_id\": null/\"eos_token_id\": 7/' config.json; sed -i "
            "'/torch_dtype/d; s/\"eos_token_id\": 7,/\"eos_token_id\": 7/' config.json") == 0,
        "a folder: %s", err());
    CHECK_RAN(run("--output_dir further --max_steps 2 --save_steps 1 --save_dtype bf16 --model rich"));
    CHECK_RAN(run_plain("--resume further/checkpoint-1 --output_dir resumed --save_dtype fp32 --max_steps 2"));
    static const char *const folders[] = {"further/checkpoint-2", "resumed/checkpoint-2"};
    for (int i = 0; i < 2; i++) {
        char config[100], other[200];
        snprintf(config, sizeof config, "%s/config.json", folders[i]);
        static const char *const words[] = {"\"use_cache\": true", "\"eos_token_id\": 7", "2.5",
                                            "\"LlamaForCausalLM\""};
        for (int k = 0; k < 4; k++) CHECK(has_words(config, words[k]), "%s: no %s", config, words[k]);
        CHECK(has_words(config, i ? "\"dtype\": \"float32\"" : "\"dtype\": \"bfloat16\"") &&
                  !has_words(config, "torch_dtype"),
              "%s: its dtype", config);
        snprintf(other, sizeof other, "%s/generation_config.json", folders[i]);
        CHECK(same_file("rich/generation_config.json", other), "%s", other);
        snprintf(other, sizeof other, "%s/merges.txt", folders[i]);
        CHECK(same_file("rich/merges.txt", other), "%s", other);
    }
}

TEST(what_is_said_now_wins_and_every_difference_is_told)
{
    static const struct {
        const char *flags, *says[3];
    } ways[] = {
        {"--learning_rate 0.002 --max_steps 3", {"max_steps 2 -> 3", "learning_rate 0.1 -> 0.002\n", NULL}},
        {"--max_steps 3 --freeze= --precision bf16",
         {"precision \"fp32\" -> \"bf16\", freeze \"*mlp*\" -> \"\"\n", NULL}},
        {"--max_steps 3 --global_batch_size 16",
         {"gradient_accumulation_steps 1 -> 2, global_batch_size 8 -> 16", "max_steps 2 -> 3\n", NULL}},
        {"--max_steps 3 --ranks 2", {"micro_batch_size 8 -> 4", "ranks 1 -> 2\n", NULL}},
        {"--max_steps 3 --ranks 2 --mode tp", {"mode \"serial\" -> \"tp\"", "split ATT None, CON None,", NULL}},
    };
    CHECK_RAN(run("--output_dir told --max_steps 2 --optimizer sgd --momentum 0 --learning_rate 0.1 --freeze *mlp*"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        CHECK_RAN(run_plain("--resume told/checkpoint-2 --output_dir told_again%d %s", (int)i, ways[i].flags));
        const char *line = strstr(out(), "changed since then: ");
        for (int k = 0; k < 2 && ways[i].says[k]; k++)
            CHECK(line && strstr(line, ways[i].says[k]), "%s: no \"%s\" in %s", ways[i].flags, ways[i].says[k],
                  line ? line : out());
    }
}

// Another data order, or another state: with the way to do it on purpose.
TEST(what_would_make_it_another_run_is_refused_with_the_way_to_begin_a_new_one)
{
    static const Refusal cases[] = {
        {"--resume was_adamw/checkpoint-2 --seed 7",
         {"--seed 1234, but this command says 7", "leave out --seed", "--model was_adamw/checkpoint-2"}},
        {"--resume was_adamw/checkpoint-2 --seq_len 16", {"--seq_len 32, but this command says 16", "--model", NULL}},
        {"--resume was_adamw/checkpoint-2 --optimizer sgd", {"--optimizer adamw", "says sgd", "--model"}},
        {"--resume was_still/checkpoint-2 --momentum 0.9",
         {"--momentum 0, but this command says 0.9", "--model", NULL}},
        {"--resume was_moved/checkpoint-2 --momentum 0", {"--momentum 0.9, but this command says 0", "--model", NULL}},
        {"--resume was_adamw/checkpoint-2 --train_data shouted.txt",
         {"was trained on another text", "text_hash", "--model was_adamw/checkpoint-2"}},
        {"--resume was_adamw/checkpoint-2 --validation_fraction 0.2",
         {"was trained on another text", "text_bytes", NULL}},
        {"--resume was_adamw/checkpoint-2 --overwrite_output_dir", {"--overwrite_output_dir begins a new run", NULL}},
    };
    shell("tr a-z A-Z < text.txt > shouted.txt"); // as long as the other one
    CHECK_RAN(run("--output_dir was_adamw --max_steps 2"));
    CHECK_RAN(run("--output_dir was_still --max_steps 2 --optimizer sgd --momentum 0"));
    CHECK_RAN(run("--output_dir was_moved --max_steps 2 --optimizer sgd"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_plain("--max_steps 4 --output_dir refused %s", cases[i].flags);
        check_refused(&cases[i]);
    }
    CHECK(!exists("refused"), "a refused run left a folder");
    CHECK_RAN(run_plain("--model was_adamw/checkpoint-2 --output_dir on_purpose --max_steps 1 --seed 7 --seq_len 16 "
                        "--optimizer sgd --train_data shouted.txt"));
}

// A checkpoint has a model: what --model says beside it would count for nothing, and be written down all the same.
TEST(a_run_that_goes_on_takes_no_other_model_and_writes_down_the_one_that_it_began_from)
{
    static const Refusal cases[] = {
        {"--output_dir begun_from",
         {"--model is other_base/checkpoint-1", "began from base/checkpoint-1", "leave out"}},
        {"--output_dir begun_from --dry_run", {"began from base/checkpoint-1", "another --output_dir", NULL}},
        {"--output_dir begun_from --evaluate", {"began from base/checkpoint-1", NULL, NULL}},
        {"--output_dir begun_from --ranks 2", {"began from base/checkpoint-1", NULL, NULL}},
        {"--output_dir base", {"began without a --model", "(base/checkpoint-1)", NULL}},
    };
    static const char *const same[] = {"", "--model base/checkpoint-1", "--model ./base/../base/checkpoint-1/"};
    CHECK_RAN(run("--output_dir base --max_steps 1"));
    CHECK_RAN(run("--output_dir other_base --max_steps 1 --seed 5"));
    CHECK_RAN(run("--output_dir begun_from --max_steps 1 --model base/checkpoint-1"));
    shell("cp -r begun_from begun_before");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_plain("--resume auto --max_steps 3 --model other_base/checkpoint-1 %s", cases[i].flags);
        check_refused(&cases[i]);
    }
    CHECK(shell("diff -r begun_from begun_before") == 0, "a refused run has changed something");
    for (int i = 0; i < 3; i++) {
        char path[80];
        CHECK_RAN(run_plain("--resume auto --output_dir begun_from --max_steps %d %s", i + 2, same[i]));
        CHECK(!strstr(out(), "changed since then: model"), "%s", out());
        snprintf(path, sizeof path, "begun_from/checkpoint-%d/training_args.json", i + 2);
        CHECK(has_words(path, "\"model\": \"base/checkpoint-1\"") &&
                  has_words("begun_from/training_args.json", "\"model\": \"base/checkpoint-1\""),
              "%s: it wrote down another model", same[i]);
    }
    shell("rm -r begun_from/checkpoint-*"); // it begins again, from the same
    CHECK_RAN(run_plain("--resume auto --output_dir begun_from --max_steps 1"));
    check_same_checkpoint("begun_from/checkpoint-1", "begun_before/checkpoint-1");
}

// 1: the line of options has these, each behind a space; those that have their default are not in it.
static int has_options(const char *text, const char *options)
{
    static const char *const usual[] = {"gradient_accumulation_steps=1", "tp_num_attention_heads_list=[]"};
    char word[100], name[100];
    int has = 1, n = 0;
    for (const char *p = options; sscanf(p, "%98s%n", word + 1, &n) == 1; p += n) {
        int is_usual = 0;
        word[0] = ' ';
        for (int i = 0; i < 2; i++) is_usual |= !strcmp(word + 1, usual[i]);
        snprintf(name, sizeof name, "%.*s", (int)(strcspn(word, "=") + 1), word);
        has &= is_usual ? !strstr(text, name) : strstr(text, word) != NULL;
    }
    return has;
}

// Samples are numbered: on however many ranks, a step sees the same ones.
TEST(the_global_batch_stays_on_any_number_of_ranks)
{
    static const struct {
        const char *begun, *flags, *says;
    } ways[] = {
        {"batch_of_two", "", "micro_batch_size=3 gradient_accumulation_steps=2 global_batch_size=6"},
        {"batch_of_two", "--ranks 3", "micro_batch_size=2 gradient_accumulation_steps=1 global_batch_size=6"},
        {"batch_of_two", "--micro_batch_size 2",
         "micro_batch_size=2 gradient_accumulation_steps=3 global_batch_size=6"},
        {"batch_of_two", "--gradient_accumulation_steps 6",
         "micro_batch_size=1 gradient_accumulation_steps=6 global_batch_size=6"},
        {"batch_of_two", "--micro_batch_size 2 --gradient_accumulation_steps 2",
         "micro_batch_size=2 gradient_accumulation_steps=2 global_batch_size=4"},
        {"batch_of_two", "--ranks 2 --dp_batch_size_list 1,2",
         "micro_batch_size=0 gradient_accumulation_steps=2 global_batch_size=6"},
        {"batch_of_list", "", "micro_batch_size=4 gradient_accumulation_steps=1 global_batch_size=4"},
        {"batch_of_two", "--config batch.json", "micro_batch_size=3 gradient_accumulation_steps=2 global_batch_size=6"},
        {"batch_of_heads", "--ranks 2 --tp 1", "tp=1 tp_num_attention_heads_list=[]"},
        {"batch_of_heads", "--ranks 2 --mode sp", "tp=2 tp_num_attention_heads_list=[]"},
        {"batch_of_heads", "--ranks 2", "tp=2 tp_num_attention_heads_list=[2,2]"},
        {"batch_of_heads", "", "tp=1 tp_num_attention_heads_list=[]"},
        {"batch_of_list", "--ranks 2", "micro_batch_size=0 gradient_accumulation_steps=1 global_batch_size=4"},
    };
    CHECK_RAN(run("--output_dir batch_of_two --max_steps 1 --ranks 2 --micro_batch_size 3"));
    GxError e = GX_ZERO;
    const char *batch = "{\"micro_batch_size\": 3, \"gradient_accumulation_steps\": 1}"; // as it was then
    CHECK(gx_file_write("batch.json", batch, (int64_t)strlen(batch), &e) == GX_OK, "%s", e.message);
    CHECK_RAN(run("--output_dir batch_of_heads --max_steps 1 --ranks 2 --mode tp --tp_num_attention_heads_list 2,2"));
    CHECK_RAN(run("--output_dir batch_of_list --max_steps 1 --ranks 2 --dp_batch_size_list 3,1"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        CHECK_RAN(run_plain("--dry_run --resume %s/checkpoint-1 %s", ways[i].begun, ways[i].flags));
        CHECK(has_options(out(), ways[i].says), "%s %s: not \"%s\" in %s", ways[i].begun, ways[i].flags, ways[i].says,
              out());
    }
    run_plain("--dry_run --resume batch_of_two/checkpoint-1 --ranks 4");
    CHECK(child.status == 1 && strstr(err(), "global_batch_size 6 is not"), "status %d: %s", child.status, err());
}

// Of a run whose global batch was changed on its way: so many, not steps times the batch.
TEST(samples_are_counted_as_they_were_seen)
{
    CHECK_RAN(run("--output_dir counted --max_steps 2"));
    CHECK_RAN(run_plain("--output_dir counted --resume auto --max_steps 3 --global_batch_size 16"));
    CHECK_RAN(run_plain("--output_dir counted --resume auto --max_steps 4"));
    CHECK(strstr(out(), "step 3, 32 samples seen") &&
              has_words("counted/checkpoint-4/trainer_state.json", "\"samples_seen\": 48"),
          "%s", out());
}

// ---- going back ----------------------------------------------------------------------------------------------------

// Steps 1..n once each in the log, and `apart` lines of steps set apart.
static void check_branch(const char *dir, int steps, int apart)
{
    char path[GX_PATH];
    check_log_steps(dir, steps);
    snprintf(path, sizeof path, "%s/abandoned", dir);
    Log l = read_log(path); // beside lines that say where it was left
    CHECK(l.steps == apart, "%s: %d steps are set apart, not %d", dir, l.steps, apart);
}

TEST(going_back_leaves_the_older_way_whole_and_apart)
{
    CHECK_RAN(run("--output_dir back --max_steps 6 --save_steps 2 --save_total_limit 0"));
    shell("cp -r back before_back");
    CHECK_RAN(run_plain("--resume back/checkpoint-2 --max_steps 3 --learning_rate 0.1"));
    CHECK(strstr(out(), "moved to back/abandoned what the run had after step 2: 2 checkpoints, 5 lines"), "%s", out());
    check_branch("back", 3, 4);
    CHECK(shell("diff -r before_back/checkpoint-4 back/abandoned/checkpoint-4 && "
                "diff -r before_back/checkpoint-6 back/abandoned/checkpoint-6") == 0,
          "the older way has changed");
    CHECK_RAN(run_plain("--resume auto --output_dir back --max_steps 5"));
    CHECK(strstr(out(), "resumed from back/checkpoint-3") && !strstr(out(), "moved to"), "%s", out());
    check_branch("back", 5, 4);
    CHECK_RAN(run_plain("--resume back/checkpoint-2 --max_steps 4"));
    check_branch("back", 4, 4 + 3);
    CHECK(exists("back/abandoned/checkpoint-4-2") && exists("back/abandoned/checkpoint-5") &&
              exists("back/abandoned/checkpoint-3"),
          "what was behind step 2 the second time is not set apart");
    check_whole("back/checkpoint-4");
}

// Killed after the decision and before the last folder was moved: whoever comes next goes on with that.
TEST(going_back_goes_on_where_it_was_killed)
{
    CHECK_RAN(run("--output_dir half_back --max_steps 6 --save_steps 2 --save_total_limit 0"));
    shell("sed -i 's/\"returns_to\": -1/\"returns_to\": 2/' half_back/run.json; mkdir half_back/abandoned; "
          "mv half_back/checkpoint-6 half_back/abandoned");
    CHECK_RAN(run_plain("--resume auto --output_dir half_back --max_steps 3"));
    CHECK(strstr(out(), "resumed from half_back/checkpoint-2"), "%s", out());
    CHECK(exists("half_back/abandoned/checkpoint-4") && !has_words("half_back/run.json", "\"returns_to\": 2"),
          "half a return is left");
    CHECK_RAN(run_plain("--resume auto --output_dir half_back --max_steps 6"));
    CHECK_RAN(run_plain("--resume auto --output_dir half_back --max_steps 7"));
    CHECK(strstr(out(), "resumed from half_back/checkpoint-6"), "%s", out());
    check_log_steps("half_back", 7);
}

// It cannot go on with setting apart, and says so; what it had decided stands.
TEST(going_back_that_fails_half_way_is_finished_by_the_next_one)
{
    CHECK_RAN(run("--output_dir stuck --max_steps 6 --save_steps 2 --save_total_limit 0"));
    shell("echo in the way > stuck/abandoned");
    run_plain("--resume stuck/checkpoint-2");
    CHECK(child.status == 1 && strstr(err(), "stuck/abandoned") && has_words("stuck/run.json", "\"returns_to\": 2"),
          "status %d: %s", child.status, err());
    shell("rm stuck/abandoned");
    CHECK_RAN(run_plain("--evaluate --resume auto --output_dir stuck"));
    CHECK(strstr(out(), "resumed from stuck/checkpoint-2: step 2, 16 samples"), "%s", out());
    CHECK_RAN(run_plain("--resume auto --output_dir stuck"));
    CHECK(strstr(out(), "resumed from stuck/checkpoint-2") && exists("stuck/abandoned/checkpoint-6"), "%s", out());
    check_log_steps("stuck", 6);
}

TEST(a_damaged_newest_checkpoint_costs_its_steps_and_nothing_else)
{
    static const char *const damage[] = {
        "truncate -s 100 damaged/checkpoint-4/optimizer.safetensors",
        "printf X | dd of=damaged/checkpoint-4/trainer_state.json bs=1 seek=30 conv=notrunc 2>/dev/null",
        "printf X | dd of=damaged/checkpoint-4/model.safetensors bs=1 seek=100000 conv=notrunc 2>/dev/null",
        "rm damaged/checkpoint-4/training_args.json",
        "rm damaged/checkpoint-4/manifest.json",
    };
    CHECK_RAN(run("--output_dir undamaged --max_steps 6 --save_steps 2 --save_total_limit 0"));
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        shell("rm -rf damaged; cp -r undamaged damaged; rm -r damaged/checkpoint-6; %s", damage[i]);
        CHECK_RAN(run_plain("--resume auto --output_dir damaged"));
        CHECK(strstr(err(), "damaged/checkpoint-4 is incomplete, and is skipped") &&
                  strstr(out(), "resumed from damaged/checkpoint-2"),
              "%s: %s%s", damage[i], out(), err());
        check_same_checkpoint("undamaged/checkpoint-6", "damaged/checkpoint-6");
        check_whole("damaged/checkpoint-4");
        check_log_steps("damaged", 6);
        CHECK(exists("damaged/abandoned/checkpoint-4"), "%s: the damaged one was removed", damage[i]);
    }
}

static char logged[4096];
static void keep_log(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

// Each file of the newest checkpoint: gone, empty, and cut in half.
TEST(no_file_of_a_checkpoint_can_be_lost_without_a_warning_that_names_it)
{
    static const char *const damages[] = {"rm %s", "truncate -s 0 %s", "truncate -s $(($(stat -c %%s %s) / 2)) %s"};
    const GxLogger log = {keep_log, NULL};
    GxFolder files;
    GxError e = GX_ZERO;
    CHECK_RAN(run("--output_dir complete --max_steps 4 --save_steps 2 --save_total_limit 0"));
    if (!CHECK(gx_folder_list(&files, "complete/checkpoint-4", &e) == GX_OK && files.n >= 8, "%s", e.message)) return;
    for (int i = 0; i < files.n; i++)
        for (int k = 0; k < 3; k++) {
            char path[GX_PATH], newest[GX_PATH], line[4 * GX_PATH];
            const char *name = files.entry[i].name;
            int moved = 0;
            snprintf(path, sizeof path, "incomplete/checkpoint-4/%s", name);
            snprintf(line, sizeof line, damages[k], path, path);
            shell("rm -rf incomplete; cp -r complete incomplete; %s", line);
            const GxRunInfo r = gx_run_read("incomplete");
            CHECK(gx_checkpoint_newest("incomplete", r.run, newest, &log, &e) == GX_OK &&
                      !strcmp(newest, "incomplete/checkpoint-2") && strstr(logged, name) &&
                      strstr(logged, "checkpoint-4 is incomplete, and is skipped"),
                  "%s: %s, newest %s, said %s", line, e.message, newest, logged);
            CHECK(gx_output_refuse_conflicts("incomplete", r.run, 2, 6, &e) == GX_OK &&
                      gx_output_rewind("incomplete", &r, 2, &moved, &e) == GX_OK && moved == 1 &&
                      exists("incomplete/abandoned/checkpoint-4") && !exists("incomplete/checkpoint-4"),
                  "%s: %d were set apart: %s", line, moved, e.message);
            gx_error_clear(&e);
        }
    gx_folder_close(&files);
}

TEST(a_run_that_has_lost_its_run_json_says_so_and_how_to_go_on)
{
    static const Refusal cases[] = {
        {"--resume auto --output_dir nameless",
         {"and checkpoints (nameless/checkpoint-4 is the newest complete one), but no run.json",
          "cannot open nameless/run.json", "--resume nameless/checkpoint-4 --output_dir nameless-2"}},
        {"--resume auto --output_dir torn_name",
         {"torn_name/checkpoint-4", "torn_name/run.json:", "--output_dir torn_name-2"}},
        {"--train_data text.txt --output_dir no_number", {"no_number/run.json: it has no run number", NULL, NULL}},
        {"--train_data text.txt --output_dir torn_name --overwrite_output_dir",
         {"no run that --overwrite_output_dir could replace (torn_name/run.json:", NULL, NULL}}};
    CHECK_RAN(run("--output_dir named_run --max_steps 4 --save_steps 2"));
    shell(
        "cp -r named_run nameless; rm nameless/run.json; cp -r named_run torn_name; truncate -s 20 torn_name/run.json");
    shell("cp -r named_run no_number; echo '{}' > no_number/run.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_plain("--max_steps 6 %s", cases[i].flags);
        check_refused(&cases[i]);
    }
    CHECK_RAN(run_plain("--resume nameless/checkpoint-4 --output_dir nameless-2 --max_steps 5")); // as it says
    check_whole("nameless-2/checkpoint-5");
}

// Without trainer_state.json: not another run's, and not to be gone on with.
TEST(a_checkpoint_without_its_state_is_damaged_and_says_what_its_weights_are_good_for)
{
    static const Refusal cases[] = {
        {"--resume stateless/checkpoint-4",
         {"there is no stateless/checkpoint-4/trainer_state.json", "remove stateless/checkpoint-4/manifest.json",
          "--model stateless/checkpoint-4"}},
        {"--resume nobodys/checkpoint-2",
         {"save step 4 to nobodys/checkpoint-4, which has no trainer_state.json", NULL, "move it away"}},
    };
    CHECK_RAN(run("--output_dir stated --max_steps 6 --save_steps 2 --save_total_limit 0"));
    shell("cp -r stated stateless; rm -r stateless/checkpoint-6; rm stateless/checkpoint-4/trainer_state.json");
    shell("cp -r stated nobodys; rm -r nobodys/checkpoint-[46]; mkdir nobodys/checkpoint-4; echo '{\"files\": []}' > "
          "nobodys/checkpoint-4/manifest.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_plain("%s", cases[i].flags);
        check_refused(&cases[i]);
    }
    shell("cp -r stateless/checkpoint-4 weights; rm weights/manifest.json");
    CHECK_RAN(run("--output_dir from_weights --max_steps 1 --model weights"));
    CHECK_RAN(run_plain("--resume auto --output_dir stateless"));
    CHECK(strstr(err(), "stateless/checkpoint-4 is incomplete, and is skipped") &&
              exists("stateless/abandoned/checkpoint-4/model.safetensors"),
          "%s", err());
    check_same_checkpoint("stated/checkpoint-6", "stateless/checkpoint-6");
}

TEST(a_folder_of_a_run_is_no_model_and_its_newest_checkpoint_is_named)
{
    static const Refusal cases[] = {
        {"--model several",
         {"--model several: that folder contains checkpoints", "--model several/checkpoint-4", NULL}},
        {"--model several/ --dry_run", {"--model several/checkpoint-4", NULL, NULL}},
        {"--model several --evaluate", {"--model several/checkpoint-4", NULL, NULL}},
        {"--model torn_of_several", {"--model torn_of_several/checkpoint-2", NULL, NULL}},
        {"--model none_of_several",
         {"none_of_several: that is the folder of a run without a complete checkpoint", NULL}},
        {"--model text_of_several", {"cannot open text_of_several/config.json", NULL, NULL}},
    };
    CHECK_RAN(run("--output_dir several --max_steps 4 --save_steps 2"));
    shell("cp -r several torn_of_several; truncate -s 100 torn_of_several/checkpoint-4/model.safetensors");
    shell("cp -r several none_of_several; rm -r none_of_several/checkpoint-*; mkdir text_of_several");
    CHECK_REFUSALS(cases);
    shell("cp several/checkpoint-2/config.json several/checkpoint-2/model.safetensors several");
    CHECK_RAN(run("--model several --tokenizer bytes --max_steps 1 --output_dir from_several"));
}

// ---- folders that were used before ---------------------------------------------------------------------------------

TEST(a_new_run_does_not_touch_a_folder_that_was_used_before)
{
    static const Refusal cases[] = {
        {"--output_dir used", {"used already holds a run; continue it (--resume auto", "--output_dir used-3", NULL}},
        {"--output_dir used/", {"--output_dir used-3", "--overwrite_output_dir", NULL}},
        {"--output_dir used --model elsewhere/checkpoint-1", {"used already holds a run", NULL, NULL}},
        {"--output_dir used --resume elsewhere/checkpoint-1", {"which is not the one that is resumed", "used-3", NULL}},
        {"--output_dir notes", {"notes holds training_args.json", "move it away", "--output_dir notes-2"}},
        {"--output_dir notes --overwrite_output_dir",
         {"notes holds training_args.json, but no run", "move it away", NULL}},
        {"--output_dir used/checkpoint-3/deeper/still",
         {"lies in ", "used/checkpoint-3, which has a manifest.json", NULL}},
        {"--output_dir other_way --resume used/checkpoint-3",
         {"a different course of the one that is resumed", NULL, NULL}},
        {"--output_dir used//", {"used// already holds a run", "(--output_dir used-3)", NULL}},
        {"--output_dir used --overwrite_output_dir --model ./used/checkpoint-3",
         {"lies in used, which --overwrite_output_dir would empty", "another --output_dir", NULL}},
        {"--output_dir notes --resume auto", {"notes holds training_args.json", NULL, NULL}},
        {"--output_dir notes --resume elsewhere/checkpoint-1", {"notes holds training_args.json", NULL, NULL}},
    };
    CHECK_RAN(run("--output_dir used --max_steps 3"));
    CHECK_RAN(run("--output_dir elsewhere --max_steps 1"));
    CHECK_RAN(run("--output_dir other_way --max_steps 4 --resume used/checkpoint-3"));
    shell("mkdir used-2 notes; echo mine > notes/training_args.json; cp -r used used_before; cp -r notes notes_before");
    CHECK_REFUSALS(cases);
    CHECK(chdir("used/checkpoint-3") == 0, "no folder"); // of the new one, nothing is there yet
    for (int i = 0; i < 2; i++) {
        run_plain("--max_steps 1 --train_data ../../text.txt --output_dir %s", i ? "new" : "new/deeper/");
        CHECK(child.status == 1 && strstr(err(), "used/checkpoint-3, which has a manifest.json"), "%s", err());
    }
    CHECK(chdir(folder) == 0, "no way back");
    CHECK(shell("diff -r used used_before && diff -r notes notes_before") == 0, "something in a folder has changed");
}

TEST(a_run_that_overwrites_a_folder_leaves_nothing_of_the_one_before)
{
    CHECK_RAN(run("--output_dir over --max_steps 6 --save_steps 2 --save_total_limit 0"));
    CHECK_RAN(run_plain("--resume over/checkpoint-2 --max_steps 5"));
    shell("mkdir over/checkpoint-8; echo mine > over/abandoned/mine.txt; echo {} > over/checkpoint-8/manifest.json");
    shell("mkdir over/checkpoint-9 over/mine; echo precious > over/checkpoint-9/notes.txt; echo mine > over/notes.txt");
    CHECK_RAN(run("--output_dir over --max_steps 3 --overwrite_output_dir"));
    CHECK(
        shell("cd over; test \"$(echo *)\" = 'abandoned checkpoint-3 checkpoint-8 checkpoint-9 log.jsonl loss.svg mine "
              "notes.txt run.json training_args.json' && test $(ls abandoned) = mine.txt") == 0,
        "the folder holds other names");
    check_log_steps("over", 3);
    CHECK_RAN(run_plain("--resume auto --output_dir over --max_steps 4"));
    CHECK(strstr(out(), "resumed from over/checkpoint-3"), "%s", out());
}

TEST(resume_auto_passes_over_checkpoints_of_other_runs)
{
    CHECK_RAN(run("--output_dir guest --max_steps 9"));
    CHECK_RAN(run("--output_dir host --max_steps 2"));
    shell("cp -r guest/checkpoint-9 host");
    CHECK_RAN(run_plain("--output_dir host --resume auto --max_steps 3"));
    CHECK(strstr(out(), "resumed from host/checkpoint-2") &&
              strstr(err(), "checkpoint-9 does not belong to the last run"),
          "%s", err());
}

// 8 samples of a conversation each: 17 + 1 + 11 of the user, 22 + 1 + 10 of the assistant, and the newline behind.
TEST(padding_is_no_token_in_the_rate_in_the_log_and_in_the_summary)
{
    shell("for i in 1 2 3 4 5 6 7 8; do echo '{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
          "\"assistant\", \"content\": \"b\"}]}'; done > chats.jsonl");
    static const char *const ways[] = {"--micro_batch_size 8", "--micro_batch_size 8 --separate_documents false",
                                       "--ranks 2 --micro_batch_size 4", "--ranks 2 --mode tp --micro_batch_size 8",
                                       "--ranks 2 --pp 2 --micro_batch_size 8"};
    for (int i = 0; i < 5; i++) {
        char path[100];
        CHECK_RAN(run("--output_dir padded%d --max_steps 3 --train_data chats.jsonl --chat_template chatml --seq_len "
                      "100 --validation_fraction 0 %s",
                      i, ways[i]));
        CHECK(strstr(out(), ", 1.51k tokens and 37.0% padding, "), "%s: %s", ways[i], out()); // 3 * 8 * 63
        snprintf(path, sizeof path, "padded%d/log.jsonl", i);
        char *text = read_text(path), *second = strstr(text, "\"step\": 2,");
        CHECK(second && number_behind(second, "\"padding\": ") == 0.37, "%s", text);
        free(text);
    }
    CHECK_RAN(run("--output_dir full --max_steps 2"));
    char *text = read_text("full/log.jsonl");
    CHECK(!strstr(text, "padding") && strstr(out(), ", 512 tokens, "), "%s", out());
    free(text);
}

// A flag that is taken and changes nothing is said to; one of a file may be of other runs.
TEST(flags_that_change_nothing_are_said_to)
{
    static const struct {
        const char *flags, *words; // NULL: nothing is said
    } cases[] = {
        {"--momentum 0.5", "--momentum changes nothing with --optimizer \"adamw\"; leave it out\n"},
        {"--momentum 0.5 --optimizer sgd", NULL},
        {"--adam_beta1 0.5 --optimizer sgd", "--adam_beta1 changes nothing with --optimizer \"sgd\""},
        {"--adam_beta2 0.5", NULL},
        {"--min_lr_ratio 0.5 --lr_scheduler_type constant", "--min_lr_ratio changes nothing with --lr_scheduler_type "},
        {"--min_lr_ratio 0.5 --lr_scheduler_type linear", NULL},
        {"--lr_decay_steps 1", "--lr_decay_steps changes nothing with --lr_scheduler_type \"cosine\""},
        {"--temperature 0.5", "--temperature changes nothing with --sample_tokens 0"},
        {"--temperature 0.5 --sample_tokens 1", NULL},
        {"--eval_steps 1 --validation_fraction 0", "--eval_steps changes nothing with --validation_fraction 0.0"},
        {"--max_eval_samples 1", NULL},
        {"--max_eval_samples 1 --validation_fraction 0",
         "--max_eval_samples changes nothing with --validation_fraction 0.0"},
        {"--chat_template chatml", "--chat_template chatml changes nothing: the training data are texts"},
        {"--config unused.json", NULL},
    };
    shell("sed 's/^{/{\"momentum\": 0.5, \"top_k\": 3, /' tiny.json > unused.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_RAN(run("--output_dir unused%d --max_steps 1 %s", (int)i, cases[i].flags));
        CHECK(cases[i].words ? strstr(err(), cases[i].words) != NULL : !err()[0], "%s: %s", cases[i].flags, err());
    }
}

TEST(a_run_in_which_nothing_is_learned_is_an_error_and_a_step_in_which_nothing_is_a_warning)
{
    shell("for i in $(seq 100); do echo '{\"text\": \"a\"}'; done > ones.jsonl; (cat ones.jsonl; echo '{\"text\": "
          "\"abcdefgh\"}') "
          "> few.jsonl");
    start("--output_dir ones --max_steps 3 --train_data ones.jsonl --seq_len 4 --validation_fraction 0");
    finish();
    CHECK(child.status == 1 &&
              strstr(err(), "nothing is learned in step 1, because no label of its 8 samples counts") &&
              strstr(err(), "nothing was learned in the last 3 steps"),
          "status %d: %s", child.status, err());
    CHECK_RAN(run("--output_dir together --max_steps 3 --train_data ones.jsonl --seq_len 4 --validation_fraction 0 "
                  "--separate_documents false"));
    CHECK(!strstr(err(), "nothing is learned"), "%s", err());
    CHECK_RAN(run("--output_dir few --max_steps 26 --micro_batch_size 1 --train_data few.jsonl --seq_len 4 "
                  "--validation_fraction 0"));
    CHECK(strstr(err(), "nothing is learned in step"), "%s", err());
}

TEST(what_is_one_is_said_to_be_one)
{
    CHECK_RAN(run("--output_dir single --max_steps 1 --seq_len 1 --micro_batch_size 1 --validation_fraction 0"));
    CHECK(strstr(out(), "1 step of 1 sample x 1 token (1 micro-batch)") && strstr(out(), ", 1 token, "), "%s", out());
    shell("tail -c 1 text.txt > last.txt");
    start("--output_dir single2 --max_steps 1 --train_data last.txt --validation_fraction 0");
    finish();
    CHECK(strstr(err(), "last.txt: 1 byte is left for training; one sample of 32 tokens needs 33"), "%s", err());
    shell("echo '{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
          "\"b\"}]}' > chat.jsonl; echo '{\"text\": \"A text of a few words that is long enough.\"}' > one.jsonl; for "
          "i in 1 "
          "2; do echo '{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}'; done > pairs.jsonl");
    start("--output_dir single3 --max_steps 1 --train_data chat.jsonl --chat_template chatml --validation_fraction 0");
    finish();
    CHECK(strstr(err(), "its only conversation has no answer"), "%s", err());
    CHECK_RAN(run("--output_dir single4 --max_steps 1 --train_data one.jsonl --validation_fraction 0"));
    CHECK(strstr(out(), "; 1 document\n"), "%s", out());
    start("--output_dir single5 --max_steps 1 --train_data one.jsonl --train_data_weights 1,2 --validation_fraction 0");
    finish();
    CHECK(strstr(err(), "there are 2 weights (1,2), but 1 source of data"), "%s", err());
}

static double logged_rate(const char *output_dir, int step)
{
    char path[GX_PATH], key[40];
    snprintf(path, sizeof path, "%s/log.jsonl", output_dir);
    snprintf(key, sizeof key, "\"step\": %d,", step);
    char *text = read_text(path), *line = strstr(text, key);
    const double rate = line ? number_behind(line, "\"lr\": ") : NAN;
    free(text);
    return rate;
}

// Each in one line, behind the start, with what to do.
TEST(a_rate_that_goes_up_again_a_mode_of_one_rank_and_a_run_that_begins_anew_are_said_where_a_run_begins)
{
    static const char up[] = "rises again";
    CHECK_RAN(run("--output_dir cosine --max_steps 4 --warmup_steps 0 --learning_rate 0.01 --min_lr_ratio 0.1"));
    CHECK(!err()[0], "%s", err());
    shell("for i in constant form higher lower inside; do cp -r cosine cosine_$i; done");
    CHECK_RAN(run_plain("--output_dir cosine --resume auto --max_steps 8"));
    // 0.01 (0.1 + 0.9 (1 + cos(5/8 pi)) / 2)
    CHECK(strstr(err(), "the learning rate rises again, from 0.001 to 0.00378 in step 5: max_steps was 4 and is now 8, "
                        "over which cosine stretches; to continue with the last one, say --lr_scheduler_type constant "
                        "--learning_rate 0.001\n"),
          "%s", err());
    CHECK(fabs(logged_rate("cosine", 5) - 0.00378) < 5e-6, "step 5 has the rate %g", logged_rate("cosine", 5));
    CHECK_RAN(run_plain("--output_dir cosine_constant --resume auto --max_steps 8 --lr_scheduler_type constant "
                        "--learning_rate 0.001"));
    CHECK(!strstr(err(), up), "%s", err());
    CHECK(fabs(logged_rate("cosine_constant", 5) - 0.001) < 1e-9, "%g", logged_rate("cosine_constant", 5));
    CHECK_RAN(run_plain("--output_dir cosine_form --resume auto --max_steps 5 --lr_scheduler_type constant"));
    CHECK(strstr(err(), "in step 5: lr_scheduler_type was cosine and is now constant; to continue"), "%s", err());
    CHECK_RAN(run_plain("--output_dir cosine_higher --resume auto --max_steps 8 --learning_rate 0.02"));
    CHECK(!strstr(err(), up), "it was asked for: %s", err());
    CHECK_RAN(run_plain("--output_dir cosine_lower --resume auto --max_steps 8 --learning_rate 0.01"));
    CHECK(strstr(err(), up), "the rate is what it was: %s", err());
    CHECK_RAN(run_plain("--output_dir cosine_inside --resume auto --max_steps 4"));
    CHECK(!strstr(err(), up), "%s", err());
    CHECK_RAN(run("--output_dir warming --max_steps 8 --warmup_steps 8 --save_steps 2 --save_total_limit 0"));
    CHECK_RAN(run_plain("--resume warming/checkpoint-4 --output_dir warmed"));
    CHECK(!strstr(err(), up), "a rate that warms up does so: %s", err());

    CHECK_RAN(run("--output_dir alone --max_steps 1 --mode galaxy"));
    CHECK(strstr(err(), "mode galaxy splits the model among ranks, but there is only one, so it is computed as without "
                        "a mode; --ranks N"),
          "%s", err());
    CHECK_RAN(run("--output_dir alone2 --max_steps 1 --mode tp --ranks 2 --tp 1"));
    CHECK(strstr(err(),
                 "mode tp splits the model among the ranks of --tp, which is 1, so each of the 2 ranks has all of it"),
          "%s", err());
    CHECK_RAN(run("--output_dir both --max_steps 1 --mode tp --ranks 2"));
    CHECK(!strstr(err(), "splits the model"), "%s", err());

    CHECK_RAN(run("--output_dir alone_ --max_steps 1 --resume auto"));
    CHECK(strstr(err(), "there is nothing to resume in alone_, so a new run starts at step 1. To continue another run, "
                        "stop this one and name the other's folder: --output_dir alone\n"),
          "%s", err());
    run("--output_dir alone_2 --max_steps 1 --resume auto --evaluate");
    CHECK(strstr(err(), "nothing to resume in alone_2; there is a run in --output_dir alone"), "%s", err());
    CHECK_RAN(run("--output_dir alone/chekpoint-1 --max_steps 1 --resume auto")); // a checkpoint, mistyped
    CHECK(strstr(err(), "name the other's folder: --output_dir alone\n"), "%s", err());
    CHECK_RAN(run("--output_dir many/one --max_steps 1"));
    CHECK_RAN(run("--output_dir many --max_steps 1 --resume auto"));
    CHECK(strstr(err(), "name the other's folder: --output_dir many/one\n"), "%s", err());
    CHECK_RAN(run("--output_dir quite/else --max_steps 1 --resume auto"));
    CHECK(strstr(err(), "name the other's folder: --output_dir FOLDER\n"), "%s", err());
}

TEST(a_mistyped_folder_has_nothing_to_resume_and_a_run_without_checkpoint_begins_again_as_itself)
{
    CHECK_RAN(run("--output_dir mistipd --max_steps 2 --resume auto"));
    CHECK(strstr(err(), "nothing to resume in mistipd, so a new run starts") && !strstr(out(), "resumed"), "%s", err());
    run_plain("--output_dir mistopd --evaluate --resume auto");
    CHECK(child.status == 1 && strstr(err(), "no checkpoint in mistopd") && !strstr(err(), "begins"), "%s", err());
    check_whole("mistipd/checkpoint-2");
    CHECK_RAN(run("--output_dir early --max_steps 4 --learning_rate 0.1 --seed 3"));
    shell("cp -r early early_again; rm -r early_again/checkpoint-4");
    CHECK_RAN(run_plain("--output_dir early_again --resume auto"));
    CHECK(strstr(err(), "starts again, with its options"), "%s", err());
    check_same_checkpoint("early/checkpoint-4", "early_again/checkpoint-4");
    check_branch("early_again", 4, 4);
}

// Its last validation is the only thing that is done again.
TEST(a_finished_run_that_is_resumed_says_so_and_its_log_stays_as_it_is)
{
    CHECK_RAN(run("--output_dir finished --max_steps 3 --eval_steps 2"));
    shell("cp finished/log.jsonl finished.jsonl");
    shell("ls -i finished/checkpoint-3 > finished_before.txt");
    CHECK_RAN(run_plain("--output_dir finished --resume auto"));
    CHECK(shell("ls -i finished/checkpoint-3 | diff -q - finished_before.txt >/dev/null") == 0, "it was saved again");
    CHECK(strstr(err(), "that is all of max_steps (3) already"), "%s", err());
    Log l = read_log("finished");
    CHECK(l.steps == 3 && l.evals == 2 && l.bad == 0 && l.baselines == 1 && !exists("finished/abandoned"),
          "%d steps, %d validations", l.steps, l.evals);
    CHECK_RAN(run_plain("--output_dir finished --resume auto --max_steps 4"));
    l = read_log("finished");
    CHECK(l.steps == 4 && l.evals == 3 && !exists("finished/abandoned"), "%d steps, %d validations", l.steps, l.evals);
}

// Its weights are elsewhere until it has a checkpoint of its own.
TEST(a_run_that_went_on_in_another_folder_goes_on_there_from_where_it_came)
{
    CHECK_RAN(run("--output_dir home --max_steps 4 --save_steps 2 --save_total_limit 0"));
    CHECK_RAN(run_plain("--resume home/checkpoint-2 --output_dir away --max_steps 3"));
    shell("rm -r away/checkpoint-3"); // as if it had been killed before
    CHECK_RAN(run_plain("--resume auto --output_dir away --max_steps 4"));
    CHECK(strstr(out(), "home/checkpoint-2: step 2"), "%s", out());
    check_same_checkpoint("home/checkpoint-4", "away/checkpoint-4");
    CHECK(!exists("home/abandoned"), "the folder that it came from was touched");
    shell("rm -r away/checkpoint-4; mv home elsewhere_now");
    run_plain("--resume auto --output_dir away");
    CHECK(child.status == 1 && strstr(err(), "there is no folder"), "status %d: %s", child.status, err());
}

// The folder is that which the checkpoint lies in, however it is named; what was set apart is not gone on with in
// place.
TEST(a_checkpoint_may_be_named_by_a_link_or_a_dot_and_stays_whole)
{
    char line[4096];
    CHECK_RAN(run("--output_dir named --max_steps 4 --save_steps 2 --save_total_limit 0"));
    shell("mkdir links; ln -s ../named/checkpoint-4 links/best");
    CHECK_RAN(run_plain("--resume links/best --max_steps 5"));
    check_whole("named/checkpoint-5");
    snprintf(line, sizeof line, "%s/text.txt", folder);
    CHECK(chdir("named/checkpoint-4") == 0, "no folder");
    CHECK_RAN(run_plain("--resume . --max_steps 5 --train_data %s", line));
    CHECK(chdir(folder) == 0, "no way back");
    check_whole("named/checkpoint-4");
    check_log_steps("named", 5);
    static const Refusal cases[] = {
        {"--resume named/abandoned/checkpoint-5", {"was set aside", "--output_dir", NULL}},
        {"--resume named", {"is the folder of a run", "--resume auto --output_dir named", NULL}},
        {"--resume named/checkpoint-4 --max_steps 3",
         {"is of step 4, and max_steps is 3", "an earlier checkpoint", NULL}},
    };
    shell("cp -r named named_before");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_plain("%s", cases[i].flags);
        check_refused(&cases[i]);
    }
    CHECK(shell("diff -r named named_before") == 0, "a refused run has changed something");
    CHECK_RAN(run_plain("--resume named/abandoned/checkpoint-5 --output_dir named_again --max_steps 6"));
}

TEST(a_resumed_checkpoint_does_not_take_a_users_own_files)
{
    static const Refusal own = {"--resume own/checkpoint-2 --max_steps 3",
                                {"own holds log.jsonl", "move it away", NULL}};
    CHECK_RAN(run("--output_dir owned --max_steps 2"));
    shell("mkdir own; cp -r owned/checkpoint-2 own; echo '{\"my\": \"own\"}' > own/log.jsonl");
    run_plain("%s", own.flags);
    check_refused(&own);
    shell("mv own/log.jsonl own/mine.jsonl");
    CHECK_RAN(run_plain("%s", own.flags));
}

TEST(a_run_is_not_resumed_while_another_process_writes_it)
{
    CHECK_RAN(run("--output_dir shared_by_two --max_steps 2 --validation_fraction 0.5"));
    char line[4096];
    start("--output_dir shared_by_two --resume auto --max_steps 100000 --eval_steps 1 " SLOW);
    CHECK(wait_for("shared_by_two/log.jsonl", "\"step\": 4, "), "no fourth step came");
    snprintf(line, sizeof line, "%s --resume auto --output_dir shared_by_two >second.txt 2>&1", program);
    const int status = system(line);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1 && has_words("second.txt", "another run is writing to"),
          "status %d", WEXITSTATUS(status));
    kill(child.pid, SIGTERM);
    finish();
}

static int saved_step(const char *dir) // the newest checkpoint's, 0: none
{
    GxFolder list;
    GxError e = GX_ZERO;
    int newest = 0;
    if (gx_folder_list(&list, dir, &e) != GX_OK) return 0;
    for (int i = 0, n; i < list.n; i++)
        if (sscanf(list.entry[i].name, "checkpoint-%d", &n) == 1 && !strchr(list.entry[i].name, '.') && n > newest)
            newest = n;
    gx_folder_close(&list);
    return newest;
}

// ---- a terminal that is closed -------------------------------------------------------------------------------------

// A terminal that goes away sends SIGHUP more than once: by the shell, then by the system.
TEST(a_terminal_that_is_closed_ends_a_run_behind_a_checkpoint)
{
    static const char *const ways[] = {"", "--ranks 2"};
    for (int i = 0; i < 2; i++) {
        char dir[40], path[80];
        snprintf(dir, sizeof dir, "hung_up%d", i);
        snprintf(path, sizeof path, "%s/log.jsonl", dir);
        start("--output_dir %s --max_steps 100000 --eval_steps 1 " SLOW " %s", dir, ways[i]);
        CHECK(wait_for(path, "\"step\": 2, "), "no second step came");
        for (int k = 0; k < 3; k++) kill(child.pid, SIGHUP), sleep_ms(1);
        const int status = finish(), step = saved_step(dir);
        CHECK(status == 128 + SIGHUP && step >= 2 && strstr(err(), "continue with --resume auto"), "%s: status %d: %s",
              ways[i], status, err());
        snprintf(path, sizeof path, "%s/checkpoint-%d", dir, step);
        check_whole(path);
    }
}

TEST(a_run_under_nohup_outlives_its_terminal)
{
    char line[4096];
    snprintf(line, sizeof line,
             "nohup %s --config tiny.json --output_dir kept_on --max_steps 100000 --eval_steps 1 " SLOW, program);
    start_line(line, 0);
    CHECK(wait_for("kept_on/log.jsonl", "\"step\": 2, "), "no second step came");
    kill(child.pid, SIGHUP);
    char *log = read_text("kept_on/log.jsonl"), words[40];
    int step = 0;
    for (const char *at = log; (at = strstr(at, "\"step\": ")) != NULL;) step = atoi(at += 8);
    free(log);
    snprintf(words, sizeof words, "\"step\": %d, ", step + 3); // beyond the one that was under way
    CHECK(wait_for("kept_on/log.jsonl", words), "the signal ended it: %s", err());
    kill(child.pid, SIGTERM);
    const int status = finish();
    CHECK(status == 128 + SIGTERM, "status %d: %s", status, err());
}

TEST(sighup_to_one_rank_of_mpi_ends_all_behind_a_checkpoint)
{
    pid_t rank[8];
    NEED_MPI();
    start_mpi(2, "--output_dir hung_up_mpi --max_steps 100000 --eval_steps 1 " SLOW);
    CHECK(wait_for("hung_up_mpi/log.jsonl", "\"step\": 2, "), "no second step came");
    const int n = children_of(child.pid, rank, 8);
    if (CHECK(n >= 2, "mpirun has %d children", n)) kill(rank[n - 1], SIGHUP);
    finish();
    CHECK(child.status > 0 && strstr(err(), "continue with --resume auto"), "status %d: %s", child.status, err());
    char path[80];
    snprintf(path, sizeof path, "hung_up_mpi/checkpoint-%d", saved_step("hung_up_mpi"));
    check_whole(path);
}

// ---- the best validation -------------------------------------------------------------------------------------------

// Killed at any moment, also while it validates and saves; the loss goes up and down at this rate.
TEST(a_killed_run_that_goes_on_has_the_best_validation_and_the_end_of_the_uninterrupted_one)
{
    static const char flags[] =
        "--max_steps 60 --save_steps 1 --eval_steps 2 --max_eval_samples 20 --learning_rate 0.5 "
        "--lr_scheduler_type constant --optimizer sgd --momentum 0 --save_total_limit 2 "
        "--load_best_model_at_end true --early_stopping_patience 3";
    static const char *const ways[] = {"", "--ranks 2 --mode tp"};
    for (int i = 0; i < 2; i++) {
        char dir[40], path[80], words[40];
        CHECK_RAN(run("--output_dir whole%d %s %s", i, flags, ways[i]));
        snprintf(dir, sizeof dir, "whole%d", i);
        const int end = saved_step(dir);
        snprintf(dir, sizeof dir, "killed%d", i);
        for (int k = 1; k <= 2; k++) {
            start("--output_dir %s %s %s %s", dir, flags, ways[i], k > 1 ? "--resume auto" : "");
            snprintf(path, sizeof path, "%s/log.jsonl",
                     dir); // which stays; a checkpoint may be gone when it is looked for
            snprintf(words, sizeof words, "\"step\": %d, ", k * end / 3);
            CHECK(wait_for(path, words), "step %d did not come", k * end / 3);
            kill(child.pid, SIGKILL);
            CHECK(finish() == -SIGKILL, "it ended by itself: %s", out());
        }
        CHECK_RAN(run("--output_dir %s %s %s --resume auto", dir, flags, ways[i]));
        CHECK(shell("grep best_ whole%d/run.json > a; grep best_ %s/run.json | cmp a -", i, dir) == 0 &&
                  shell("test -s a") == 0,
              "another best: %s", out());
        CHECK(
            shell("cd whole%d; grep -v '\"run\"' checkpoint-%d/trainer_state.json > ../a; cd ../%s; grep -v '\"run\"' "
                  "checkpoint-%d/trainer_state.json | cmp ../a -",
                  i, end, dir, end) == 0,
            "another state after step %d, or another end", end);
        CHECK(shell("tail -n 1 whole%d/log.jsonl > a; tail -n 1 %s/log.jsonl | cmp a -", i, dir) == 0,
              "another last validation");
        CHECK(shell("ls whole%d > a; ls %s | grep -v abandoned | cmp a -", i, dir) == 0, "other checkpoints");
    }
}

// ---- disks that fill -----------------------------------------------------------------------------------------------

// The limit on the size of a file that a running program may write.
static void limit_files(long bytes)
{
    const struct rlimit limit = {bytes < 0 ? RLIM_INFINITY : (rlim_t)bytes, RLIM_INFINITY};
    CHECK(prlimit(child.pid, RLIMIT_FSIZE, &limit, NULL) == 0, "no limit: %s", strerror(errno));
}

#define SAVES "--max_steps 200 --save_steps 1 --save_total_limit 3 --eval_steps 1 " SLOW
// The training goes on meanwhile; what is due next is tried again.
TEST(a_disk_that_fills_and_has_room_again_costs_a_warning)
{
    static const char *const ways[] = {"", "--ranks 2 --mode tp"};
    for (int i = 0; i < 2; i++) {
        char dir[40], path[60];
        snprintf(dir, sizeof dir, "filled%d", i);
        snprintf(path, sizeof path, "%s/log.jsonl", dir);
        start("--output_dir %s " SAVES " %s", dir, ways[i]);
        CHECK(wait_for(path, "\"step\": 2, "), "no second step came");
        limit_files(100);
        CHECK(wait_to_say("could not be saved"), "%s: nothing is said: %s", ways[i], err());
        const int stuck = saved_step(dir);
        sleep_ms(200);
        CHECK(saved_step(dir) == stuck, "%s: checkpoint-%d was saved on a full disk", ways[i], saved_step(dir));
        limit_files(-1);
        CHECK(wait_to_say("log.jsonl is complete again"), "%s: the log is not complete again: %s", ways[i], err());
        for (double until = now() + LIMIT; now() < until && saved_step(dir) <= stuck;) sleep_ms(5);
        kill(child.pid, SIGTERM);
        const int status = finish();
        CHECK(status == 128 + SIGTERM, "%s: status %d: %s", ways[i], status, err());
        CHECK(strstr(err(), "File too large"), "%s: %s", ways[i], err());
        CHECK(saved_step(dir) > stuck + 1, "%s: nothing was saved after checkpoint-%d", ways[i], stuck);
        Log l = read_log(dir);
        for (int k = 0; k < l.steps; k++)
            CHECK(l.step[k] == k + 1, "%s: line %d is of step %d", ways[i], k + 1, l.step[k]);
    }
}

TEST(what_a_full_disk_has_not_taken_at_the_end_is_an_error_on_all_ranks)
{
    static const char *const ways[] = {"", "--ranks 2"};
    for (int i = 0; i < 2; i++) {
        char dir[40], path[60];
        snprintf(dir, sizeof dir, "stays_full%d", i);
        snprintf(path, sizeof path, "%s/log.jsonl", dir);
        start("--output_dir %s --max_steps 12 --save_steps 1 --eval_steps 1 " SLOW " %s", dir, ways[i]);
        CHECK(wait_for(path, "\"step\": 2, "), "no second step came");
        limit_files(100);
        const int status = finish();
        CHECK(status == 1 && strstr(err(), "step 12 is not saved: ") && strstr(out(), "step    12/12"),
              "%s: status %d: %s%s", ways[i], status, out(), err());
        CHECK(saved_step(dir) > 0, "the older checkpoints are gone");
        snprintf(path, sizeof path, "%s/checkpoint-%d", dir, saved_step(dir));
        check_whole(path);
        CHECK_RAN(run_plain("--resume auto --output_dir %s %s", dir, i ? "--ranks 2" : ""));
        check_log_steps(dir, 12);
    }
}

TEST(more_checkpoints_than_the_disk_has_room_for_are_said_before_training)
{
    CHECK_RAN(run("--output_dir roomy --max_steps 2 --save_steps 1"));
    CHECK(!strstr(err(), "its disk has"), "%s", err());
    start("--output_dir cramped --max_steps 1000000000000 --save_steps 1 --save_total_limit 0");
    CHECK(wait_for("cramped/log.jsonl", "\"step\": 1, "), "no step came");
    kill(child.pid, SIGINT);
    finish();
    CHECK(strstr(err(), "1000000000000 checkpoints of 0.4 MB will be in cramped at once") &&
              strstr(err(), "--save_total_limit"),
          "%s", err());
}

// ---- texts that change ---------------------------------------------------------------------------------------------

#define UNTIL_CUT "--max_steps 100000 --train_data cut.txt --output_dir cut " SLOW

// The text of a run that has been started is cut short; all ranks end, behind a checkpoint. status: of the child.
static void cut_short(const char *text, int status)
{
    char path[60];
    CHECK(wait_for("cut/log.jsonl", "\"step\": 2, "), "no second step came: %s", err());
    shell("truncate -s 100 %s", text);
    CHECK(finish() == status, "status %d: %s", child.status, err());
    CHECK(saved_step("cut") >= 2, "nothing was saved");
    snprintf(path, sizeof path, "cut/checkpoint-%d", saved_step("cut"));
    check_whole(path);
    shell("rm -rf cut; cp text.txt cut.txt");
}

TEST(a_text_that_is_cut_short_ends_the_run_on_every_engine_behind_a_checkpoint)
{
    shell("cp text.txt cut.txt");
    start(UNTIL_CUT);
    cut_short("cut.txt", 1);
    CHECK(strstr(err(), "cut.txt ends at byte 100") && strstr(err(), "the run has stopped after step"), "%s", err());
    start(UNTIL_CUT " --ranks 2");
    cut_short("cut.txt", 1);
    CHECK(strstr(err(), "cut.txt ends at byte 100"), "%s", err());
    shell("cp text.txt cut_of_rank_1.txt");
    start_ranks(BY_TORCHRUN, 2, "--config tiny.json " UNTIL_CUT, "--train_data cut_of_rank_1.txt");
    cut_short("cut_of_rank_1.txt", 2);
    says(0, "rank 1 failed: cut_of_rank_1.txt ends at byte 100");
    says(1, "cut_of_rank_1.txt ends at byte 100");
    NEED_MPI();
    start_mpi(2, UNTIL_CUT);
    cut_short("cut.txt", 1);
    CHECK(strstr(err(), "cut.txt ends at byte 100"), "%s", err());
}

TEST(a_text_that_has_changed_is_said_at_the_next_checkpoint)
{
    shell("cp text.txt restless.txt");
    start("--output_dir restless --max_steps 100000 --train_data restless.txt --eval_steps 1 " SLOW);
    CHECK(wait_for("restless/log.jsonl", "\"step\": 2, "), "no second step came");
    shell("touch restless.txt");
    sleep_ms(100);
    kill(child.pid, SIGTERM);
    finish();
    CHECK(strstr(err(), "restless.txt has changed since the training began"), "%s", err());
}

// ---- a validation, a sample ----------------------------------------------------------------------------------------

TEST(evaluate_and_sample_only_show_the_model_and_write_nothing)
{
    char line[4096], loss[80];
    snprintf(line, sizeof line, "%s --config sampling.json --output_dir shown --max_steps 3", program);
    start_line(line, 0);
    CHECK_RAN(finish());
    const char *at = strstr(out(), "step     3 | validation");
    snprintf(loss, sizeof loss, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
    char *sample = strdup(strstr(out(), "sample:") ? strstr(out(), "sample:") : "");
    sample[strlen("sample:\nIn the beginning")] = 0;
    shell("cp -r shown shown_before");
    CHECK_RAN(run_plain("--evaluate --resume auto --output_dir shown"));
    CHECK(loss[0] && strstr(out(), loss) && !strstr(out(), "sample:"), "no \"%s\" in %s", loss, out());
    CHECK(strstr(out(), "\n8 samples x 32 tokens at a time; nothing is trained\n") && !strstr(out(), " steps of ") &&
              !strstr(out(), "of them trained"),
          "%s", out());
    CHECK_RAN(run_plain("--evaluate --dry_run --model shown/checkpoint-3 --seq_len 32 --micro_batch_size 512"));
    const double forward = number_before(out(), " GFLOP per batch and rank");
    CHECK_RAN(run_plain("--dry_run --model shown/checkpoint-3 --seq_len 32 --micro_batch_size 512"));
    const double step = number_before(out(), " GFLOP per step and rank");
    CHECK(step > 2.9 * forward && step < 3.1 * forward, "%g GFLOP to show, %g to train", forward, step);
    CHECK_RAN(run_plain("--sample_only --resume shown/checkpoint-3 --ranks 2 --mode tp"));
    CHECK(sample[0] && strstr(out(), sample) && !strstr(out(), "validation loss"), "no \"%s\" in %s", sample, out());
    free(sample);
    CHECK_RAN(run_plain(
        "--evaluate --sample_only --model shown/checkpoint-3 --train_data text.txt --seq_len 32 --output_dir none"));
    CHECK(strstr(out(), "sample:") && strstr(out(), strstr(loss, "validation")), "%s", out());
    CHECK(shell("diff -r shown shown_before") == 0 && !exists("none") && !exists("out"), "something was written");
    run_plain("--evaluate");
    CHECK(child.status == 1 && strstr(err(), "--evaluate needs a model"), "%s", err());
    run_plain("--evaluate --resume auto --output_dir none");
    CHECK(child.status == 1 && strstr(err(), "no checkpoint in none"), "%s", err());
}

// There are no steps then, and no batch that would have to stay the same.
TEST(a_model_is_shown_whatever_would_not_fit_a_training)
{
    static const char *const ways[] = {
        "--resume auto --max_steps 1 --warmup_steps 7",
        "--resume auto --lr_scheduler_type wsd --lr_decay_steps 1000",
        "--resume auto --ranks 4 --micro_batch_size 1",
        "--resume auto --ranks 4",
        "--resume auto --global_batch_size 7 --gradient_accumulation_steps 3",
        "--resume auto --seed 77 --optimizer sgd --freeze * --overwrite_output_dir",
        "--model showing/checkpoint-2 --seq_len 32 --train_data text.txt --warmup_steps 5000",
        "--model showing/checkpoint-2 --seq_len 32 --train_data text.txt --global_batch_size 7 "
        "--load_best_model_at_end true --eval_steps 0",
    };
    double loss = NAN;
    CHECK_RAN(run("--output_dir showing --max_steps 2 --ranks 2 --micro_batch_size 3"));
    shell("cp -r showing showing_before");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        CHECK_RAN(run_plain("--evaluate --output_dir showing %s", ways[i]));
        const double found = number_behind(out(), "validation loss ");
        if (i == 0) loss = found;
        CHECK(fabs(found - loss) < 2e-4, "%s: a loss of %g, not %g", ways[i], found, loss);
    }
    CHECK(shell("diff -r showing showing_before") == 0, "something was written");
}

// ---- where it is looked for ----------------------------------------------------------------------------------------

TEST(a_path_of_the_run_that_is_not_there_is_named_with_the_folder_that_it_was_looked_for_from)
{
    static const struct {
        const char *flags, *says[3];
    } cases[] = {
        {"--resume ../moved/checkpoint-2",
         {"cannot open near.txt", "--train_data near.txt, which is relative to the current folder, now /",
          "/working; change to the folder where it was started, or give --train_data"}},
        {"--resume auto --output_dir ../moved --ranks 2", {"started with --train_data near.txt", "/working; ", NULL}},
        {"--resume auto --output_dir ../rebegun --train_data ../near.txt",
         {"started with --model moved/checkpoint-2, which is relative to the current folder, now /", "/working; ",
          "give --model again"}},
    };
    shell("cp text.txt near.txt; mkdir working");
    CHECK_RAN(run("--output_dir moved --max_steps 2 --train_data near.txt"));
    CHECK_RAN(run("--output_dir rebegun --max_steps 1 --train_data near.txt --model moved/checkpoint-2"));
    shell("rm -r rebegun/checkpoint-1");
    CHECK(chdir("working") == 0, "no folder");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_plain("--max_steps 3 %s", cases[i].flags);
        CHECK(child.status == 1, "%s: status %d", cases[i].flags, child.status);
        for (int k = 0; k < 3 && cases[i].says[k]; k++)
            CHECK(strstr(err(), cases[i].says[k]), "%s: no \"%s\" in %s", cases[i].flags, cases[i].says[k], err());
    }
    run_plain("--resume ../moved/checkpoint-2 --max_steps 3 --train_data nowhere.txt"); // said now
    CHECK(child.status == 1 && strstr(err(), "cannot open nowhere.txt") && !strstr(err(), "begun with"), "%s", err());
    CHECK_RAN(run_plain("--resume ../moved/checkpoint-2 --max_steps 3 --train_data ../near.txt"));
    CHECK(chdir(folder) == 0, "no way back");
    CHECK_RAN(run_plain("--resume moved/checkpoint-3 --max_steps 4 --train_data near.txt"));
}

// As another version might write them.
TEST(options_that_a_run_has_and_this_program_does_not_are_warned_of_by_name)
{
    CHECK_RAN(run("--output_dir newer --max_steps 1"));
    shell("rm -r newer/checkpoint-1; sed -i 's/^{/{\"_comment\": \"mine\", \"warp_factor\": 9, \"phase_of_the_moon\": "
          "[1, 2],/' newer/training_args.json");
    CHECK_RAN(run_plain("--resume auto --output_dir newer"));
    CHECK(strstr(err(),
                 "newer/training_args.json says warp_factor, phase_of_the_moon, which this program does not know") &&
              !strstr(err(), "_comment"),
          "%s", err());
    CHECK_RAN(run_plain("--resume auto --output_dir newer --max_steps 2"));
    CHECK(!strstr(err(), "does not know"), "%s", err());
    if (use_program("train_llama_tp")) {
        CHECK_RAN(run_plain("--resume auto --output_dir newer --max_steps 3"));
        CHECK(!strstr(err(), "does not know"), "options of another program: %s", err());
        use_program("train_llama");
    }
}

// ---- stdout --------------------------------------------------------------------------------------------------------

static int status_of(const char *format, const char *way) // of a line of the shell, in which %s is the program
{
    char line[4096];
    snprintf(line, sizeof line, format, program);
    const int status = shell("%s %s 2>shell_err.txt", line, way);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Trained and saved all the same.
TEST(what_stdout_does_not_take_is_an_error_at_the_end)
{
    static const char *const lines[] = {"%s --version",
                                        "%s --help",
                                        "%s --config tiny.json --dry_run",
                                        "%s --config tiny.json --max_steps 2 --output_dir unheard",
                                        "%s --config tiny.json --max_steps 2 --output_dir unheard_of_two --ranks 2",
                                        "%s --evaluate --resume auto --output_dir unheard"};
    if (access("/dev/full", W_OK)) SKIP("there is no /dev/full");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const int status = status_of(lines[i], ">/dev/full");
        char *said = read_text("shell_err.txt");
        CHECK(status == 1 &&
                  strstr(said, "error: part of the output could not be written to standard output: No space"),
              "%s: status %d: %s", lines[i], status, said);
        free(said);
    }
    check_whole("unheard/checkpoint-2");
    check_whole("unheard_of_two/checkpoint-2");
    // closed on purpose: nobody wants to hear it, and no file gets their place
    CHECK(status_of("%s --config tiny.json --max_steps 2 --output_dir closed", "<&- >&-") == 0, "closed streams");
    CHECK(shell("%s --config tiny.json --max_steps 2 --output_dir closed_all <&- >&- 2>&-", program) == 0,
          "all closed");
    check_log_steps("closed", 2);
    check_log_steps("closed_all", 2);
    CHECK(status_of("%s --config tiny.json --max_steps -1", ">/dev/full") == 1, "another error");
    use_program("tokenize");
    CHECK(status_of("%s --version", ">/dev/full") == 1 && status_of("%s --help", ">/dev/full") == 1 &&
              status_of("%s --train text.txt --vocab_size 60 --output_dir tokens", ">/dev/full") == 1 &&
              status_of("%s --version", "") == 0,
          "tokenize does not mind");
    use_program("train_llama");
}

int main(int argc, char **argv)
{
    setenv("COLUMNS", "1000", 1); // no line is wrapped
    return program_main(argc, argv);
}
