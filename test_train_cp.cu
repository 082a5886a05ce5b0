// test_train_cp.cu: train_llama with --cp: ranks that share sequences train as one rank, write its text, go on as each
// other; what cannot be shared is refused. See test/program.h. A model's gradients are in test_pairs.cu.
#include "test/program.h"

// The same samples in every way, by SGD (AdamW turns rounding noise in gradients near zero into steps of lr).
static Log run_way(const char *dir, const char *flags)
{
    CHECK_RAN(run("--output_dir %s --max_steps 4 --optimizer sgd --learning_rate 0.5 %s", dir, flags));
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", flags, err());
    return read_log(dir);
}

static void check_losses(const char *what, const Log *l, const Log *serial)
{
    CHECK(l->steps == 4 && serial->steps == 4, "%s: %d and %d steps", what, l->steps, serial->steps);
    check_close_series(what, l->loss, serial->loss, 4, 1);
    check_close_series(what, l->grad_norm, serial->grad_norm, 4, 1);
    CHECK(fabs(l->bits - serial->bits) < 1e-4, "%s: %g bits per byte on the held-out text, not %g", what, l->bits,
          serial->bits);
}

TEST(ranks_that_share_sequences_have_the_losses_of_serial)
{
    static const struct {
        const char *flags, *says;
    } ways[] = {
        {"--ranks 2 --cp 2 --micro_batch_size 4", "mode cp 2,"},
        {"--ranks 3 --cp 3 --cp_list 20,7,5 --micro_batch_size 4", "mode cp 3,"},
        {"--ranks 3 --cp 3 --cp_list 20,7,5 --cp_method ring --micro_batch_size 4", "mode cp 3 (ring),"},
        {"--ranks 4 --cp 2 --mode galaxy --cp_zigzags 3 --micro_batch_size 4 --recompute layer --cp_method ring",
         "mode galaxy 2 x cp 2 (ring, 3 zigzags),"},
        {"--ranks 4 --cp 2 --micro_batch_size 2 --zero 3", "mode dp_shard 2 (zero 3) x cp 2,"},
        {"--ranks 4 --cp 2 --pp 2 --micro_batch_size 2 --gradient_accumulation_steps 2 --pipeline_schedule zb1p",
         "mode pp 2 (zb1p, layers 1,1) x cp 2,"},
        {"--ranks 4 --cp 2 --dp_samples_list 3,1 --micro_batch_size 2", "mode dp x cp 2,"},
    };
    if (!use_program("train_llama")) return;
    const Log serial = run_way("serial", "--micro_batch_size 4");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char dir[40];
        if (is_brief() && i % 2) continue;
        snprintf(dir, sizeof dir, "way%d", (int)i);
        const Log l = run_way(dir, ways[i].flags);
        check_losses(ways[i].flags, &l, &serial);
        CHECK(strstr(out(), ways[i].says) != NULL, "%s: no \"%s\" in: %s", ways[i].flags, ways[i].says, out());
    }
}

// Texts that do not attend to each other.
TEST(ranks_share_sequences_of_several_documents)
{
    if (!use_program("train_llama")) return;
    shell("for i in $(seq 60); do echo '{\"messages\": [{\"role\": \"user\", \"content\": \"'$i'\"}, {\"role\": "
          "\"assistant\", \"content\": \"it is '$((i * i * i))'\"}]}'; done > short.jsonl");
#define DOCUMENTS "--train_data short.jsonl --chat_template chatml --micro_batch_size 4 --seq_len 256"
    const Log serial = run_way("documents", DOCUMENTS);
    const Log l = run_way("documents_cp", DOCUMENTS " --ranks 2 --cp 2");
    CHECK(strstr(out(), "mode cp 2 (4 zigzags),") != NULL, "%s", out());
    check_close_series("documents", l.loss, serial.loss, 4, 4);
    check_close_series("documents", l.grad_norm, serial.grad_norm, 4, 4);
}

// A prompt that is longer than a rank's rows; modes with a cache, and without one.
TEST(ranks_that_share_sequences_write_the_text_of_serial)
{
    static const char *const ways[] = {"", "--ranks 2 --cp 2", "--ranks 4 --cp 2 --mode sp --cp_method ring",
                                       "--ranks 3 --cp 3 --mode tp"};
    char *serial = NULL;
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir taught --max_steps 150 --micro_batch_size 4 --learning_rate 1e-2"));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        CHECK_RAN(run("--model taught/checkpoint-150 --max_steps 1 --learning_rate 0 --weight_decay 0 --output_dir "
                      "text%d --sample_tokens 60 --temperature 0 --sample_prompt The_first_of_all_those_words %s",
                      (int)i, ways[i]));
        const char *text = strstr(out(), "sample:\nThe_"), *end = text ? strstr(text, "\ndone: ") : NULL;
        if (!CHECK(end && end - text > 60, "%s wrote no sample: %s", ways[i], out())) break;
        char *wrote = strndup(text, (size_t)(end - text));
        if (i == 0) serial = strdup(wrote);
        CHECK(!strcmp(wrote, serial), "%s wrote \"%s\", serial \"%s\"", ways[i], wrote, serial);
        free(wrote);
    }
    free(serial);
}

TEST(a_run_goes_on_with_other_ranks_that_share_sequences)
{
    static const char *const ways[] = {"--ranks 2 --cp 2", "--ranks 4 --cp 4 --cp_list 8,4,4,16", "--ranks 2"};
#define CONSTANT                                                                                                       \
    "--lr_scheduler_type constant --warmup_steps 0 --optimizer sgd --learning_rate 0.5 --global_batch_size 4 "         \
    "--micro_batch_size 2"
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir steady --max_steps 4 " CONSTANT));
    CHECK_RAN(run("--output_dir begun --ranks 3 --cp 3 --cp_list 8,4,20 --max_steps 2 " CONSTANT));
    const Log steady = read_log("steady");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char name[20];
        snprintf(name, sizeof name, "on%d", (int)i);
        CHECK_RAN(run("--output_dir %s --resume begun/checkpoint-2 --max_steps 4 %s " CONSTANT, name, ways[i]));
        const Log l = read_log(name);
        if (!CHECK(l.steps == 2 && l.step[0] == 3, "%s: %d steps", ways[i], l.steps)) continue;
        check_close_series(ways[i], l.loss, steady.loss + 2, 2, 1);
    }
    CHECK_RAN(run("--output_dir same --resume begun/checkpoint-2 --max_steps 4 --ranks 3"));
    CHECK(strstr(out(), "mode cp 3,") != NULL, "the arrangement of the run is kept: %s", out());
}

TEST(sequences_that_cannot_be_shared_are_refused_by_name)
{
    static const Refusal refusals[] = {
        {"--ranks 4 --mode galaxy --cp 2 --cp_list 31,1", {"rank 1 of cp has 1 of 32 rows", "2 ranks of tp", NULL}},
        {"--ranks 3 --cp 2", {"--cp 2 does not divide 3 ranks; use 1 or 3"}},
        {"--ranks 2 --cp_list 16,16", {"--cp_list divides a sequence among the ranks of --cp, which is 1"}},
        {"--ranks 2 --cp_zigzags 4", {"--cp_zigzags divides a sequence"}},
        {"--ranks 2 --cp 2 --cp_list 16,8,8", {"cp_list has 3 entries, but --cp 2"}},
        {"--ranks 2 --cp 2 --cp_list 16,15", {"cp_list has 31 rows together, but a sequence has 32 (--seq_len)"}},
        {"--ranks 2 --cp 2 --cp_list 32,0", {"cp_list"}},
        {"--ranks 2 --cp 2 --seq_len 1", {"a sequence has 1 token (--seq_len), fewer than there are ranks"}},
        {"--ranks 2 --cp 2 --mode galaxy --tp 2", {"--tp 2 does not divide 1 rank with the same rows"}},
        {"--ranks 3 --cp 3 --stage_tp_list 2,1 --mode tp", {"--cp 3: stages of different sizes"}},
        {"--ranks 2 --cp 2 --plan auto", {"--plan does not divide sequences among ranks"}},
        {"--simulate nowhere.json --cp 2", {"--simulate does not predict --cp"}},
    };
    if (!use_program("train_llama")) return;
    CHECK_REFUSALS(refusals);
}

int main(int argc, char **argv) { return program_main(argc, argv); }
