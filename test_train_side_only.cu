// test_train_side_only.cu: --tuning side_only as users meet it: what comes out of the model's layers is kept in the
// first epoch and read in the others, without changing a bit; what becomes of a cache that is damaged, cut off, about
// another model, or on a full disk. Of the file alone test_record_cache.cu.
#define SIDE "--model base/checkpoint-8 --side_reduction_factor 4 --train_data small.txt "
#define BASE SIDE "--tuning side_only "
#define TEXT "--train_data small.txt " // said again, since tiny.json names another
#include "test/tuned_runs.h"

// An epoch has 37 samples of 32 tokens, or 9 micro-batches of 4: STEPS_3 are three epochs, and one more step.
#define STEPS_3 "--gradient_accumulation_steps 1 --max_steps 28 --learning_rate 1e-2 "
#define EPOCHS  STEPS_3 "--micro_batch_size 4 "
enum { OF_EPOCH = 9, SAMPLES = 36, RECORD = 2 * 32 * 32 * 4 };

static int make_small(void)
{
    if (!make_base()) return 0;
    return exists("small.txt") || CHECK(shell("head -c 1300 text.txt > small.txt") == 0, "no small.txt");
}

// Of the line about epoch `epoch`, from 1: the share of its micro-batches that came from the cache, in percent. -1:
// there is none. Lines are wrapped.
static int share_of(int epoch)
{
    char words[60];
    snprintf(words, sizeof words, "side cache, epoch %d: ", epoch);
    const char *line = strstr(out(), words), *percent = line ? strchr(line, '%') : NULL;
    while (percent && percent > line && strchr("0123456789", percent[-1])) percent--;
    return percent ? atoi(percent) : -1;
}

static void check_shares(const char *what, int first, int later)
{
    CHECK(share_of(1) == first && share_of(2) == later && share_of(3) == later && share_of(4) == later,
          "%s: %d, %d, %d and %d%% came from the cache: %s", what, share_of(1), share_of(2), share_of(3), share_of(4),
          out());
}

static long size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

// ---- not a bit changes ----------------------------------------------------------------------------------------------

static void check_kept(const char *name, const char *more)
{
    char a[100], b[100];
    snprintf(a, sizeof a, "%s_none/checkpoint-28", name);
    CHECK_RAN(run(BASE EPOCHS "--output_dir %s_none --side_cache none %s", name, more));
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", more, err());
    CHECK(strstr(out(), "epoch 2: ") && share_of(2) < 0, "%s: without a cache: %s", more, out());
    for (int i = 0; i < 2; i++) {
        const char *where = i ? "memory" : "disk";
        CHECK_RAN(run(BASE EPOCHS "--output_dir %s_%s --side_cache %s %s", name, where, where, more));
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", more, err());
        check_shares(more, 0, 100);
        snprintf(b, sizeof b, "%s_%s/checkpoint-28", name, where);
        check_same_checkpoint(a, b);
    }
}

TEST(a_layer_that_is_read_trains_as_one_that_is_computed)
{
    if (!make_small()) return;
    check_kept("plain", "");
    CHECK(strstr(out(), "side cache: 0.008 MB a sample, 36 samples: 0.3 MB of memory"), "%s", out());
    const long stride = RECORD + 32;
    CHECK(size_of("plain_disk/side_cache/rank-0.rows") == 64 + SAMPLES * stride, "%ld bytes",
          size_of("plain_disk/side_cache/rank-0.rows"));
    CHECK(!exists("plain_memory/side_cache") && !exists("plain_none/side_cache"), "files of no cache");
}
TEST(so_it_does_in_bf16_of_a_quantised_model_with_micro_batches_and_layers_computed_again)
{
    if (!make_small()) return;
    check_kept("gated", "--side_mix gated --add_bias_sampling --precision bf16");
    check_kept("int8", "--quantize int8 --recompute layer");
    // windows of two micro-batches, of which every other epoch begins within one
    check_kept("two", "--micro_batch_size 2 --gradient_accumulation_steps 2 --trainable_modules model.norm");
}

TEST(the_first_epoch_is_that_of_a_side_network_without_a_cache)
{
    if (!make_small()) return;
    CHECK_RAN(run(SIDE EPOCHS "--tuning side --output_dir first_side"));
    CHECK_RAN(run(BASE EPOCHS "--output_dir first_only"));
    const Log side = read_log("first_side"), only = read_log("first_only");
    CHECK(side.steps == 28 && only.steps == 28, "%d and %d steps", side.steps, only.steps);
    for (int i = 0; i < OF_EPOCH; i++)
        CHECK(side.loss[i] == only.loss[i], "step %d: a loss of %.9g, not %.9g", i + 1, only.loss[i], side.loss[i]);
    int others = 0;
    for (int i = OF_EPOCH; i < 2 * OF_EPOCH; i++) others += side.loss[i] != only.loss[i];
    CHECK(others == OF_EPOCH, "%d of the second epoch's windows are others", others);
}

// 7 micro-batches of 5, not 37 samples.
TEST(epochs_of_num_train_epochs_are_those_of_the_cache)
{
    if (!make_small()) return;
    CHECK_RAN(run(BASE "--num_train_epochs 3 --micro_batch_size 5 --output_dir in_epochs"));
    CHECK(strstr(out(), "3 epochs = 21 steps of 5 samples"), "%s", out());
}

// In a run that learns nothing each micro-batch has the same loss whenever it comes; and the order is another one.
TEST_UNSANITIZED(each_epoch_has_the_micro_batches_of_the_first_in_another_order)
{
    if (!make_small()) return;
    CHECK_RAN(run(BASE EPOCHS "--learning_rate 0 --output_dir order"));
    const Log l = read_log("order");
    for (int e = 1; e < 3; e++) {
        int moved = 0;
        for (int i = 0; i < OF_EPOCH; i++) {
            int found = 0;
            for (int k = 0; k < OF_EPOCH; k++) found += l.loss[OF_EPOCH * e + i] == l.loss[k];
            CHECK(found == 1, "epoch %d: the loss of step %d is that of %d windows of the first", e + 1, i + 1, found);
            moved += l.loss[OF_EPOCH * e + i] != l.loss[i];
        }
        CHECK(moved > OF_EPOCH / 2, "epoch %d: %d windows are elsewhere", e + 1, moved);
    }
}

// From the disk, or from memory: the ways take turns.
TEST(every_mode_reads_what_its_ranks_have_computed)
{
    static const struct {
        const char *name, *flags;
    } ways[] = {{"tp", "--micro_batch_size 4 --ranks 2 --mode tp"},
                {"sp", "--micro_batch_size 4 --ranks 3 --mode sp --seq_scatter_list 8,4,20"},
                {"galaxy", "--micro_batch_size 4 --ranks 2 --mode galaxy"},
                {"galaxy2", "--micro_batch_size 4 --ranks 3 --mode galaxy2 --tp_vocab_size_list 100,6,150"},
                {"dp", "--ranks 2 --tp 1 --micro_batch_size 2"},
                {"uneven", "--ranks 2 --tp 1 --dp_batch_size_list 3,1"},
                {"dp_tp", "--ranks 4 --mode tp --tp 2 --micro_batch_size 2"}};
    char a[100], b[100];
    if (!make_small()) return;
    CHECK_RAN(run(BASE EPOCHS "--output_dir alone --optimizer sgd --side_cache none"));
    const Log serial = read_log("alone");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += is_brief() ? 3 : 1) {
        CHECK_RAN(
            run(BASE STEPS_3 "--optimizer sgd --output_dir %s_none --side_cache none %s", ways[i].name, ways[i].flags));
        const Log l = read_log(strcat(strcpy(a, ways[i].name), "_none"));
        check_close_series(ways[i].name, l.loss, serial.loss, 28, 1);
        snprintf(a, sizeof a, "%s_none/checkpoint-28", ways[i].name);
        for (int k = 0; k < 2; k++) {
            if (!test_long() && k != (int)i % 2) continue;
            snprintf(b, sizeof b, "%s_%d", ways[i].name, k);
            CHECK_RAN(run(BASE STEPS_3 "--optimizer sgd --output_dir %s --side_cache %s %s", b, k ? "memory" : "disk",
                          ways[i].flags));
            CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", b, err());
            check_shares(b, 0, 100);
            check_same_checkpoint(a, strcat(b, "/checkpoint-28"));
        }
    }
}

// ---- it goes on -----------------------------------------------------------------------------------------------------

TEST(a_run_that_is_killed_and_resumed_ends_with_the_same_bits)
{
    static const Interruption killed = {"killed",
                                        "--model base/checkpoint-8 --tuning side_only --side_reduction_factor 4 "
                                        "--train_data middle.txt --micro_batch_size 4",
                                        SIGKILL};
    if (!make_base()) return;
    shell("head -c 6000 text.txt > middle.txt"); // 11 steps of 8 samples are an epoch
    check_resume(&killed);
}

// Gone on with from the middle of the second epoch, where `harm` was done to the cache before: how much of the rest of
// the epoch came from it is returned.
static int share_behind(const char *name, const char *harm)
{
    char b[100];
    if (!exists("whole/checkpoint-28"))
        CHECK_RAN(run(BASE EPOCHS "--output_dir whole --save_steps 14 --save_total_limit 0"));
    shell("cp -r whole %s && rm -r %s/checkpoint-28 && cd %s/side_cache && %s", name, name, name, harm);
    CHECK_RAN(run(TEXT "--resume auto --output_dir %s", name));
    CHECK(strstr(out(), "resumed from"), "%s: it began anew: %s", name, out());
    snprintf(b, sizeof b, "%s/checkpoint-28", name);
    check_same_checkpoint("whole/checkpoint-28", b);
    CHECK(share_of(3) >= share_of(2) && share_of(4) == 100, "%s: %d and %d%% came from the cache", name, share_of(3),
          share_of(4)); // what was lost is met, and kept, in the third epoch at the latest
    return share_of(2);
}

TEST(a_resumed_run_finds_what_was_kept_and_computes_what_was_lost)
{
    if (!make_small()) return;
    int share = share_behind("there", "true");
    CHECK(share == 100 && strstr(out(), "36 samples are in there/side_cache"), "%d%%: %s", share, out());
    CHECK(!strstr(err(), "cache"), "%s", err());
    share = share_behind("lost", "rm *");
    CHECK(share == 0, "%d%%", share);
    share = share_behind("cut", "truncate -s -90000 rank-0.rows");
    CHECK(share < 100 && share > 0 && !strstr(err(), "damaged"), "%d%%: %s", share, err());
    share = share_behind("head", "printf x | dd of=rank-0.rows bs=1 seek=9 conv=notrunc status=none");
    CHECK(share == 0 && strstr(err(), "rank-0.rows is for another model"), "%d%%: %s", share, err());
    // a byte of every record's values: each is found out, computed, and whole again in the next epoch
    share = share_behind("harmed", "for i in $(seq 0 35); do printf '\\333\\334' | dd of=rank-0.rows bs=1 "
                                   "seek=$((64 + 8224 * i + 4000)) conv=notrunc status=none; done");
    CHECK(share == 0 && strstr(err(), "a record of the side cache in harmed/side_cache is damaged"), "%d%%: %s", share,
          err());
    CHECK(size_of("harmed/side_cache/rank-0.rows") == size_of("whole/side_cache/rank-0.rows"), "it has grown");
}

// A rank that lacks its part of a sample has the others compute it, too: nobody waits for it in vain.
TEST(ranks_of_a_group_read_together_or_not_at_all)
{
    static const char sp[] = BASE EPOCHS "--ranks 2 --mode sp --timeout 20 --output_dir sliced ";
    if (!make_small()) return;
    CHECK_RAN(run("%s --save_steps 14 --save_total_limit 0", sp));
    shell("cp -r sliced sliced_all && rm -r sliced/checkpoint-28 && truncate -s -90000 sliced/side_cache/rank-1.rows");
    CHECK_RAN(run(TEXT "--resume auto --output_dir sliced --ranks 2 --mode sp --timeout 20"));
    CHECK(share_of(2) < 100 && share_of(4) == 100, "%d, %d%%: %s", share_of(2), share_of(4), out());
    check_same_checkpoint("sliced_all/checkpoint-28", "sliced/checkpoint-28");
}

// The same tokens, which see each other or do not.
TEST(a_sample_is_what_the_model_sees_of_it)
{
    if (!make_small()) return;
    shell("sed 's/.*/{\"text\": \"&\"}/' small.txt | head -n 24 > small.jsonl");
    static const char flags[] = BASE EPOCHS "--train_data small.jsonl --tokenizer bytes --validation_fraction 0 ";
    CHECK_RAN(run("%s --output_dir seen1 --side_cache_dir seen", flags));
    CHECK(share_of(2) == 100, "%d%%: %s", share_of(2), out());
    CHECK_RAN(run("%s --separate_documents false --output_dir seen2 --side_cache_dir seen", flags));
    CHECK(share_of(1) == 0 && share_of(2) == 100, "%d, %d%%: %s", share_of(1), share_of(2), out());
    CHECK_RAN(run("%s --separate_documents false --output_dir seen3 --side_cache none", flags));
    check_same_checkpoint("seen2/checkpoint-28", "seen3/checkpoint-28");
}

TEST(other_ranks_than_before_read_what_they_can)
{
    static const char flags[] = BASE EPOCHS "--save_steps 14 --save_total_limit 0 ";
    if (!make_small()) return;
    CHECK_RAN(run("%s --output_dir others --ranks 2 --tp 1 --micro_batch_size 2", flags));
    shell("rm -r others/checkpoint-28");
    CHECK_RAN(run(TEXT "--resume others/checkpoint-14 --output_dir others --ranks 1 --micro_batch_size 4"));
    CHECK(share_of(2) == 100 && share_of(3) == 100, "one rank, of what two have kept: %d, %d%%: %s", share_of(2),
          share_of(3), out());
    shell("rm -r others/checkpoint-28");
    CHECK_RAN(run(TEXT "--resume others/checkpoint-14 --output_dir others --ranks 2 --mode tp --micro_batch_size 4"));
    CHECK(share_of(2) == 0 && share_of(3) > 0 &&
              strstr(err(), "for another model, another part of it, or another version"),
          "a part of the work: %d, %d%%: %s", share_of(2), share_of(3), err());
}

TEST(a_folder_of_records_serves_further_runs_on_the_same_model_alone)
{
    if (!make_small()) return;
    CHECK_RAN(run(BASE EPOCHS "--output_dir dir1 --side_cache_dir records"));
    CHECK(!exists("dir1/side_cache") && exists("records/rank-0.rows"), "not in the folder");
    CHECK_RAN(run(BASE EPOCHS "--output_dir dir2 --side_cache_dir records --side_reduction_factor 8 --seed 7"));
    check_shares("another side network, the samples in another order", 100, 100);
    CHECK_RAN(run("--output_dir base2 --max_steps 8 --learning_rate 1e-2"));
    for (int i = 0; i < 2; i++)
        CHECK_RAN(run(BASE EPOCHS "--model base2/checkpoint-8 --output_dir dir%d %s", 4 + i,
                      i ? "--side_cache_dir records" : "--side_cache none"));
    check_same_checkpoint("dir4/checkpoint-28", "dir5/checkpoint-28");
    CHECK(strstr(err(), "records/rank-0.rows is for another model"), "%s", err());
    check_shares("other weights", 0, 100);
    CHECK_RAN(run(BASE EPOCHS "--output_dir dir3 --side_cache_dir records --precision bf16"));
    CHECK(strstr(err(), "records/rank-0.rows is for another model"), "%s", err());
    check_shares("another type", 0, 100);
    CHECK_RAN(run(BASE EPOCHS "--output_dir dir6 --side_cache_dir records --precision bf16 --quantize nf4"));
    check_shares("other numbers of its matrices", 0, 100);
    CHECK(shell("cp -r base/checkpoint-8 turned && cd turned && rm -f manifest.json && sed -i "
                "'s/\"rope_theta\": [0-9.]*/\"rope_theta\": 500.0/' config.json && grep -q 500.0 config.json") == 0,
          "no other configuration");
    CHECK_RAN(run(BASE EPOCHS "--output_dir dir7 --side_cache_dir records2"));
    CHECK_RAN(run(BASE EPOCHS "--model turned --output_dir dir8 --side_cache_dir records2"));
    CHECK(strstr(err(), "records2/rank-0.rows is for another model"), "%s", err());
    check_shares("another configuration", 0, 100);
}

// Files of ranks that are no more, of another part of the model: gone from the run's own folder, left in a shared one.
TEST(files_of_another_split_are_named_and_removed_where_they_are_surely_the_runs_own)
{
    static const char tp[] = BASE EPOCHS "--ranks 3 --mode sp --max_steps 10 --save_steps 9 ";
    if (!make_small()) return;
    CHECK_RAN(run("%s --output_dir split", tp));
    shell("echo mine > split/side_cache/rank-7.rows && cp split/side_cache/rank-2.rows split/side_cache/rank-02.rows");
    CHECK_RAN(run(TEXT "--resume split/checkpoint-9 --output_dir split --ranks 1 --mode serial --max_steps 12"));
    CHECK(strstr(err(), "split/side_cache/rank-1.rows and 1 more, ") && strstr(err(), "another part of it; removed"),
          "%s", err());
    CHECK(!exists("split/side_cache/rank-1.rows") && !exists("split/side_cache/rank-2.rows"), "they are still there");
    CHECK(exists("split/side_cache/rank-7.rows") && exists("split/side_cache/rank-02.rows"), "others' files are gone");
    CHECK_RAN(run("%s --output_dir split1 --side_cache_dir shared", tp));
    CHECK_RAN(run(BASE EPOCHS "--output_dir split2 --side_cache_dir shared --max_steps 2"));
    CHECK(strstr(err(), "shared/rank-1.rows and 1 more, ") && strstr(err(), "not read, and left for other runs"), "%s",
          err());
    CHECK(exists("shared/rank-1.rows") && exists("shared/rank-2.rows"), "another run's are gone");
    CHECK_RAN(run(BASE EPOCHS "--output_dir split3 --side_cache_dir data_parallel --ranks 2 --tp 1 --micro_batch_size "
                              "2"));
    CHECK_RAN(run(BASE EPOCHS "--output_dir split4 --side_cache_dir data_parallel --max_steps 2"));
    CHECK(!strstr(err(), "ranks that this run does not have") && exists("data_parallel/rank-1.rows"), "%s", err());
}

TEST(a_disk_that_takes_no_more_is_a_warning)
{
    if (!make_small()) return;
    CHECK_RAN(run(BASE EPOCHS "--output_dir room"));
    const int status = run_limited(100000, BASE EPOCHS "--output_dir full");
    CHECK(status == 0, "status %d: %s", status, err());
    const char *said = strstr(err(), "the side cache takes no more samples");
    CHECK(said && !strstr(said + 1, "the side cache takes no more samples"), "%s", err());
    CHECK(share_of(2) > 0 && share_of(2) < 100 && share_of(3) > 0, "%d, %d%%", share_of(2), share_of(3));
    check_same_checkpoint("room/checkpoint-28", "full/checkpoint-28");
    CHECK(size_of("full/side_cache/rank-0.rows") <= 100000, "%ld bytes", size_of("full/side_cache/rank-0.rows"));
}

TEST(a_new_run_in_the_folder_removes_the_records_of_the_old_one)
{
    if (!make_small()) return;
    CHECK_RAN(run(BASE EPOCHS "--output_dir again"));
    CHECK_RAN(run(BASE "--tuning side --output_dir again --overwrite_output_dir --max_steps 1"));
    CHECK(!exists("again/side_cache"), "they are still there");
}

// ---- a side network is one
// -------------------------------------------------------------------------------------------

TEST(folders_of_side_and_side_only_are_the_same)
{
    if (!make_small()) return;
    CHECK_RAN(run(BASE EPOCHS "--output_dir kind1"));
    CHECK_RAN(run(TEXT "--adapter kind1/checkpoint-28 --output_dir kind2 --max_steps 1 --learning_rate 0"));
    CHECK(strstr(out(), "tuning=\"side\""), "%s", out());
    CHECK_RAN(run(TEXT "--adapter kind2/checkpoint-1 --tuning side_only --output_dir kind3 "
                       "--max_steps 1 --learning_rate 0"));
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "adapter_config.json" : "adapter_model.safetensors";
        char a[100], b[100];
        snprintf(a, sizeof a, "kind1/checkpoint-28/%s", name), snprintf(b, sizeof b, "kind3/checkpoint-1/%s", name);
        CHECK(same_file(a, b), "%s and %s differ", a, b);
    }
    CHECK_RAN(run(TEXT "--resume kind1/checkpoint-28 --tuning side --output_dir kind4 --max_steps 30"));
    CHECK(!strstr(out(), "side cache"), "%s", out());
    CHECK_RAN(run(TEXT "--resume kind4/checkpoint-30 --tuning side_only --output_dir kind5 --max_steps 32"));
    CHECK(strstr(out(), "side cache, epoch 4: 2 steps"), "%s", out());
}

TEST(a_bert_for_labels_or_vectors_reads_what_it_has_computed)
{
    static const char common[] = "--config no_sample.json --model bert/checkpoint-4 --tuning side_only --seq_len 32 "
                                 "--validation_fraction 0 --micro_batch_size 4 --max_steps 20 ";
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1}";
    static const struct {
        const char *name, *flags;
    } tasks[] = {{"labels", "--task classification --train_data labels.tsv"},
                 {"single", "--task classification --train_data labels.tsv --pack_texts false"},
                 {"ranks", "--task classification --train_data labels.tsv --ranks 2 --mode galaxy"},
                 {"vectors", "--task embedding --train_data pairs.tsv"}};
    char train[TEST_PATH], a[100], b[100];
    GxError e = GX_ZERO;
    snprintf(train, sizeof train, "%s", program);
    if (!use_program("train_bert")) return;
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    shell("%.*s/tokenize --train text.txt --type wordpiece --vocab_size 300 --output_dir words >/dev/null",
          (int)(strrchr(program, '/') - program), program);
    CHECK_RAN(run("--config no_sample.json --train_data text.txt --validation_fraction 0 --seq_len 32 --hidden_size "
                  "32 --intermediate_size 64 --num_hidden_layers 2 --num_attention_heads 4 --tokenizer words "
                  "--output_dir bert --max_steps 4"));
    shell("(printf 'text\\tlabel\\n'; grep -h cat text.txt | sed -n '1,60s/$/\\tcat/p'; grep -h bird text.txt | sed -n "
          "'1,60s/$/\\tbird/p') > labels.tsv; (printf 'anchor\\tpositive\\n'; paste - - < text.txt | head -n 60) > "
          "pairs.tsv");
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        CHECK_RAN(run("%s %s --output_dir %s_none --side_cache none", common, tasks[i].flags, tasks[i].name));
        CHECK_RAN(run("%s %s --output_dir %s", common, tasks[i].flags, tasks[i].name));
        CHECK(share_of(1) <= 0 && (strcmp(tasks[i].name, "single") ? share_of(2) == 100 : 1), "%s: %d, %d%%: %s",
              tasks[i].name, share_of(1), share_of(2), out());
        snprintf(a, sizeof a, "%s/checkpoint-20", tasks[i].name),
            snprintf(b, sizeof b, "%s_none/checkpoint-20", tasks[i].name);
        check_same_checkpoint(a, b);
    }
    start("%s --task masked_lm --train_data text.txt --output_dir masked", common);
    finish();
    CHECK(child.status > 0 && strstr(err(), "masks other tokens each time; use --tuning side"), "%s", err());
    snprintf(program, sizeof program, "%s", train);
}

TEST(preference_pairs_are_learned_with_a_model_that_is_run_once)
{
    static const char common[] =
        "--config dpo.json --model base/checkpoint-8 --side_reduction_factor 4 --tuning side_only --task dpo "
        "--train_data pairs.jsonl --seq_len 256 --micro_batch_size 2 --validation_fraction 0 --chat_template chatml "
        "--gradient_accumulation_steps 1 --max_steps 21 --learning_rate 1e-2";
    if (!make_base()) return;
    shell("echo '{\"threads\": 1, \"logging_steps\": 1}' > dpo.json");
    FILE *f = fopen("pairs.jsonl", "w");
    for (int i = 0; i < 40; i++)
        fprintf(f,
                "{\"prompt\": [{\"role\": \"user\", \"content\": \"cat %d\"}], \"chosen\": [{\"role\": \"assistant\", "
                "\"content\": \"sees %d\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"is\"}]}\n",
                i, i * i);
    fclose(f);
    CHECK_RAN(run("%s --output_dir pairs_none --side_cache none", common));
    CHECK_RAN(run("%s --output_dir pairs", common));
    CHECK(share_of(1) <= 0 && share_of(2) == 100, "%d, %d%%: %s", share_of(1), share_of(2), out());
    check_same_checkpoint("pairs/checkpoint-21", "pairs_none/checkpoint-21");
}

// ---- what is refused, and the plan
// -----------------------------------------------------------------------------------

TEST(a_cache_where_none_can_be_is_refused)
{
    static const Refusal cases[] = {
        {SIDE "--tuning side --side_cache memory",
         {"--side_cache is an option of --tuning side_only, but this run has --tuning side"}},
        {"--side_cache_dir records", {"--side_cache_dir is an option for", "--tuning side_only"}},
        {BASE "--side_cache ram", {"disk|memory|none"}},
        {"--tuning side_only", {"--tuning side_only needs a pretrained model to adapt", "--model"}},
        {BASE "--trainable_modules input_layernorm", {"cannot be trained beside a side network"}},
        {BASE "--side_cache_dir small.txt --output_dir in_the_way", {"small.txt"}},
        {BASE "--side_cache memory --side_cache_dir records",
         {"--side_cache_dir names a folder for --side_cache disk"}},
        {BASE "--output_dir placed --side_cache_dir placed/checkpoint-4 --max_steps 4", {"the folder of a checkpoint"}},
        {BASE "--output_dir placed --side_cache_dir of_pipe", {"of_pipe/rank-0.rows is a pipe"}},
        {BASE "--output_dir placed --side_cache_dir of_folder", {"of_folder/rank-0.rows is a folder"}},
        {BASE "--output_dir placed --side_cache_dir of_device", {"of_device/rank-0.rows is a device"}},
        {BASE "--output_dir placed --side_cache_dir of_text", {"of_text/rank-0.rows is not a cache of records"}},
        {BASE "--output_dir placed --side_cache_dir of_one/ --ranks 2", {"of_one/rank-1.rows is a pipe"}},
        {BASE "--output_dir placed --side_cache_dir small.txt/deeper", {"of a side cache: small.txt is not a folder"}},
        {BASE "--output_dir placed --side_cache_dir dangling/x", {"of a side cache: dangling is not a folder"}},
    };
    if (!make_small()) return;
    shell("mkdir -p of_pipe of_folder/rank-0.rows of_device of_text of_one && mkfifo of_pipe/rank-0.rows && "
          "mkfifo of_one/rank-1.rows && ln -s /dev/null of_device/rank-0.rows && ln -s gone dangling && echo words > "
          "of_text/rank-0.rows");
    CHECK_REFUSALS(cases);
    CHECK(!exists("placed"), "the output folder was made for a run that was refused");
    const Refusal staged = {BASE "--output_dir staged --ranks 4 --pp 2",
                            {"--tuning side_only keeps the outputs of all layers", "use --tuning side"}};
    check_refusals(&staged, 1);
    const char *first = strstr(err(), "error:");
    CHECK(first && !strstr(first + 1, "error:"), "more than one rank says so: %s", err());
}

TEST(a_dry_run_says_how_large_the_cache_is)
{
    if (!make_small()) return;
    CHECK_RAN(run(BASE EPOCHS "--dry_run --output_dir dry"));
    CHECK(strstr(out(), "side cache: 0.008 MB a sample, at most the run's 112 samples: 0.9 MB on the disk"), "%s",
          out());
    const double disk = number_behind(out(), "  arena ");
    CHECK_RAN(run(BASE EPOCHS "--dry_run --side_cache memory --output_dir dry"));
    const double memory = number_behind(out(), "  arena ");
    CHECK(fabs(memory - disk - 112 * RECORD / 1e6) < 0.11, "%g MB and %g MB", disk, memory); // in steps of 0.1
    CHECK(!exists("dry"), "it has written");
}

int main(int argc, char **argv) { return program_main(argc, argv); }
