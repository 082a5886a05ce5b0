// test_train_devices.cu: the programs on the device that they were built for, beside the CPU, which every program has,
// too; in both precisions. See test/program.h. In a program built for the CPU alone the device is the CPU.
#include "test/ranks.h"
#include "test/model.h"

#ifdef GX_WITH_CUDA
#define DEVICE "cuda"
#else
#define DEVICE "cpu"
#endif

typedef struct {
    const char *program, *flags;
} Way;
static const Way ways[] = {
    {"train_llama", "--micro_batch_size 4"},
    {"train_llama", "--ranks 2 --dp_batch_size_list 3,1"},
    {"train_llama_tp", "--ranks 2 --micro_batch_size 4 --tp_num_attention_heads_list 1,3"},
    {"train_llama_galaxy", "--ranks 2 --micro_batch_size 4 --seq_scatter_list 20,12"},
    {"train_llama_sp", "--ranks 2 --micro_batch_size 4 --seq_scatter_list 20,12"},
    {"train_llama_galaxy2", "--ranks 2 --micro_batch_size 4 --tp_vocab_size_list 3,253"},
    {"train_llama", "--ranks 2 --micro_batch_size 4 --att sp --mlp tp --recompute layer"},
#ifdef GX_WITH_CUDA
    {"train_llama", "--ranks 2 --micro_batch_size 2 --device_comm nccl"},
    {"train_llama_tp", "--ranks 2 --micro_batch_size 4 --tp_intermediate_size_list 24,40 --device_comm nccl"},
    {"train_llama_galaxy", "--ranks 2 --micro_batch_size 4 --seq_scatter_list 20,12 --device_comm nccl"},
    {"train_llama_sp", "--ranks 2 --micro_batch_size 4 --seq_scatter_list 20,12 --device_comm nccl"},
    {"train_llama_galaxy2", "--ranks 2 --micro_batch_size 4 --device_comm nccl"},
#endif
};
enum { WAYS = sizeof ways / sizeof *ways, FEW = 4 };
#define SGD "--max_steps 4 --optimizer sgd --learning_rate 0.5 --global_batch_size 4"

static int is_by_nccl(const Way *w) { return strstr(w->flags, "--device_comm nccl") != NULL; }
static int can_run(const Way *w) { return !is_by_nccl(w) || test_has_nccl(); }

// Every mode in one precision by NCCL and in the other over the host: both in both are in test_precision.cu.
static int has_twin_by_nccl(const Way *w)
{
    for (int i = 1; i < WAYS; i++)
        if (!is_by_nccl(w) && w != &ways[0] && is_by_nccl(&ways[i]) && can_run(&ways[i]) &&
            !strcmp(ways[i].program, w->program))
            return 1;
    return 0;
}

static Log run_way(const Way *w, const char *dir, const char *flags)
{
    Log l;
    memset(&l, 0, sizeof l);
    if (!use_program(w->program)) return l;
    const int status = run("--output_dir %s %s %s %s", dir, SGD, w->flags, flags);
    if (!CHECK(status == 0, "%s %s %s: status %d: %s", w->program, w->flags, flags, status, err())) return l;
    CHECK(!strstr(err(), "the plan is wrong"), "%s %s: %s", w->program, w->flags, err());
    return read_log(dir);
}

TEST_UNSANITIZED(every_mode_on_the_device_has_the_losses_of_serial_on_the_cpu)
{
    const Log serial = run_way(&ways[0], "serial", "--device cpu");
    for (int i = 0; i < WAYS; i++) {
        char dir[40];
        if (!can_run(&ways[i]) || (has_twin_by_nccl(&ways[i]) && !test_long())) continue;
        snprintf(dir, sizeof dir, "way%d", i);
        const Log l = run_way(&ways[i], dir, "--device " DEVICE);
        CHECK(l.steps == FEW && serial.steps == FEW, "%s: %d and %d steps", ways[i].flags, l.steps, serial.steps);
        check_close_series(ways[i].flags, l.loss, serial.loss, FEW, 1);
        check_close_series(ways[i].flags, l.grad_norm, serial.grad_norm, FEW, 1);
        CHECK(fabs(l.bits - serial.bits) < 1e-4, "%s %s: %g bits per byte on the held-out text, not %g",
              ways[i].program, ways[i].flags, l.bits, serial.bits);
    }
}

// The gate of bf16: losses within 2e-3 of those in fp32.
TEST_UNSANITIZED(bf16_in_every_mode_has_nearly_the_losses_of_fp32)
{
    const Log serial = run_way(&ways[0], "wide", "--device cpu");
    for (int d = 0; d < (strcmp(DEVICE, "cpu") ? 2 : 1); d++)
        for (int i = 0; i < WAYS; i++) {
            char dir[40], flags[80];
            if (!can_run(&ways[i]) || (is_by_nccl(&ways[i]) && (d == 1 || !test_long()))) continue;
            snprintf(dir, sizeof dir, "narrow%d-%d", d, i);
            snprintf(flags, sizeof flags, "--precision bf16 --device %s", d ? "cpu" : DEVICE);
            const Log l = run_way(&ways[i], dir, flags);
            CHECK(l.steps == FEW, "%s: %d steps", ways[i].flags, l.steps);
            for (int s = 0; s < FEW; s++)
                CHECK(fabs(l.loss[s] / serial.loss[s] - 1) <= 2e-3 && l.loss[s] != serial.loss[s],
                      "%s %s %s, step %d: loss %.6f, in fp32 %.6f", ways[i].program, ways[i].flags, flags, s, l.loss[s],
                      serial.loss[s]);
        }
}

// TF32 has 10 bits: losses within 2e-3, too. A run goes on with it, and not where there is none.
TEST(products_in_tf32_have_nearly_the_losses_of_fp32_where_they_are_asked_for)
{
    if (!use_program("train_llama")) return;
    if (!strcmp(DEVICE, "cpu")) {
        CHECK(run("--output_dir none --tf32") > 0 && strstr(err(), "device cpu in fp32"), "%s", err());
        return;
    }
    setenv("GX_EMU_TF32", "1", 1);
    CHECK_RAN(run("--output_dir whole_products --max_steps 3 --device " DEVICE));
    CHECK_RAN(run("--output_dir tf32 --max_steps 3 --tf32 --device " DEVICE));
    CHECK(strstr(out(), ", fp32 with products in TF32\n") && strstr(out(), " tf32=true"), "%s", out());
    const Log a = read_log("whole_products"), b = read_log("tf32");
    for (int s = 0; s < 3; s++)
        CHECK(fabs(b.loss[s] / a.loss[s] - 1) <= 2e-3, "step %d: loss %.6f, in fp32 %.6f", s, b.loss[s], a.loss[s]);
    if (strstr(out(), "emulat")) CHECK(a.loss[2] != b.loss[2], "both have the loss %.9g", a.loss[2]);
    CHECK_RAN(run("--output_dir tf32_on --max_steps 4 --resume tf32/checkpoint-3"));
    CHECK(strstr(out(), "products in TF32"), "%s", out());
    CHECK(run("--output_dir none --max_steps 4 --device cpu --resume tf32/checkpoint-3") > 0 &&
              strstr(err(), "--tf32 needs fp32 on a card, but this run is on the device cpu in fp32"),
          "%s", err());
    CHECK_RAN(run("--output_dir cpu_on --max_steps 4 --device cpu --tf32 false --resume tf32/checkpoint-3"));
    CHECK(run("--output_dir none --tf32 --precision bf16 --device " DEVICE) > 0 && strstr(err(), "in bf16"), "%s",
          err());
    unsetenv("GX_EMU_TF32");
}

// ---- --autotune: on the emulator, where it is said how long each algorithm takes ------------------------------------

#define TABLE "table.txt"
#define SAVES "--max_steps 4 --save_steps 1 --save_total_limit 9"
static int has_emulator(void)
{
    if (!strcmp(DEVICE, "cpu")) return 0;
    CHECK_RAN(run("--output_dir look --overwrite_output_dir --max_steps 4"));
    return strstr(out(), "emulat") != NULL;
}

// Products of a table, and whether all have the algorithm of this number, which is at the end of its bytes.
static int table_has(const char *path, int number)
{
    char line[1000], end[20];
    int products = -1, others = 0; // the first line says what the table is for
    FILE *f = fopen(path, "r");
    snprintf(end, sizeof end, "%02x00000000000000\n", number);
    for (; f && fgets(line, sizeof line, f); products++)
        others += products >= 0 && (strlen(line) < strlen(end) || strcmp(line + strlen(line) - strlen(end), end));
    if (f) fclose(f);
    CHECK(others == 0, "%s: %d of %d products have another algorithm than %d", path, others, products, number);
    return products;
}
static void check_same_losses(const char *what, Log a, Log b, int from)
{
    CHECK(a.steps == FEW && b.steps == FEW, "%s: %d and %d steps", what, a.steps, b.steps);
    for (int s = from; s < FEW; s++)
        CHECK(a.loss[s] == b.loss[s] && a.grad_norm[s] == b.grad_norm[s],
              "%s, step %d: loss %.9g, gradients %.9g; expected %.9g, %.9g", what, s + 1, a.loss[s], a.grad_norm[s],
              b.loss[s], b.grad_norm[s]);
}

// The first step is computed as without, since timing changes nothing; those behind it have the bits of a run whose
// first algorithm is the fastest. LoRA's products are added to what is there. On two cards the first rank's choice
// counts, and the second's for shapes that it alone has. Moments show each bit.
TEST(autotune_computes_by_the_fastest_algorithm_from_the_second_step_on)
{
    static const struct {
        const char *flags, *machine, *others; // ms of the second card's algorithms
    } runs[] = {{"--micro_batch_size 2 --gradient_accumulation_steps 2", "", ""},
                {"--micro_batch_size 4 --tuning lora --adapter adapter/checkpoint-4", "", ""},
                {"--micro_batch_size 4 --precision bf16", "", ""},
                {"--micro_batch_size 2", "--ranks 2 --device_comm host", ";1000,8000,9000,7000"},
                {"", "--ranks 2 --device_comm host --dp_batch_size_list 3,1", ";9000,8000,1000,7000"}};
    if (!use_program("train_llama")) return;
    if (!has_emulator()) return;
    CHECK_RAN(run("--output_dir adapter --max_steps 4 --tuning lora --model look/checkpoint-4")); // B is not 0 any more
    setenv("GX_EMU_CARDS", "2", 1);
    for (int i = 0; i < 5; i++) {
        char ms[60];
        snprintf(ms, sizeof ms, "9000,8000,1000,7000%s", runs[i].others);
        setenv("GX_EMU_ALGORITHM_MS", ms, 1);
        char table[40], state[3][3][60]; // of plain, tuned and first, behind steps 1 and 4
        const char *flags = runs[i].flags, *machine = runs[i].machine;
        for (int d = 0; d < 3; d++)
            for (int step = 1; step <= 4; step += 3)
                snprintf(state[d][step / 3], sizeof state[d][0], "%s%d/checkpoint-%d/optimizer.safetensors",
                         d == 0   ? "plain"
                         : d == 1 ? "tuned"
                                  : "first",
                         i, step);
        snprintf(table, sizeof table, TABLE "%d", i);
        CHECK_RAN(run("--output_dir plain%d " SAVES " %s %s", i, flags, machine));
        CHECK_RAN(run("--output_dir tuned%d " SAVES " --autotune %s %s %s", i, table, flags, machine));
        CHECK(strstr(out(), "shapes of products were chosen") || strstr(err(), "were chosen"), "%s%s", out(), err());
        CHECK(table_has(table, 2) >= 8, "%s has too few products", table);
        setenv("GX_EMU_ALGORITHM_FIRST", "2", 1);
        CHECK_RAN(run("--output_dir first%d --max_steps 4 --resume plain%d/checkpoint-1 %s", i, i, machine));
        unsetenv("GX_EMU_ALGORITHM_FIRST");
        CHECK(same_file(state[0][0], state[1][0]), "%s %s: timing has changed the first step", flags, machine);
        CHECK(!same_file(state[0][1], state[1][1]), "%s %s: all is computed as without", flags, machine);
        CHECK(same_file(state[1][1], state[2][1]), "%s %s: not by the fastest algorithm", flags, machine);
    }
    unsetenv("GX_EMU_CARDS"), unsetenv("GX_EMU_ALGORITHM_MS");
}

// Whatever would be the fastest now: the checkpoint says what was. So does the file to another run; on another version
// of the library it is said, and timed anew.
TEST(autotune_keeps_its_choices_in_checkpoints_and_in_its_file)
{
    if (!use_program("train_llama") || !has_emulator()) return;
    setenv("GX_EMU_ALGORITHM_MS", "9000,8000,1000,7000", 1);
    CHECK_RAN(run("--output_dir whole --micro_batch_size 4 --save_steps 2 --max_steps 4 --autotune " TABLE));
    CHECK_RAN(run("--output_dir taken --micro_batch_size 4 --max_steps 4 --autotune " TABLE));
    const int products = table_has(TABLE, 2);
    const Log whole = read_log("whole"), taken = read_log("taken");
    CHECK(whole.loss[0] != taken.loss[0], "the first step was not computed by the file: %.9g", taken.loss[0]);
    setenv("GX_EMU_ALGORITHM_MS", "1000,8000,9000,7000", 1);
    CHECK_RAN(run("--output_dir again --micro_batch_size 4 --max_steps 4 --autotune " TABLE));
    check_same_losses("by the file", read_log("again"), taken, 0);
    CHECK(table_has(TABLE, 2) == products, "%s has %d products, had %d", TABLE, table_has(TABLE, 2), products);
    unlink(TABLE);
    CHECK_RAN(run("--max_steps 4 --resume whole/checkpoint-2 --output_dir whole"));
    check_same_losses("resumed", read_log("whole"), whole, 0);
    CHECK(access(TABLE, F_OK) != 0, "a resumed run has timed products");
    CHECK(same_file("whole/checkpoint-2/autotune.txt", "whole/checkpoint-4/autotune.txt"), "it keeps another table");
    CHECK_RAN(run("--evaluate --device cpu --resume whole/checkpoint-4")); // shows what it can without a card
    setenv("GX_EMU_CUBLASLT", "130100", 1);
    CHECK_RAN(run("--max_steps 4 --resume whole/checkpoint-2 --output_dir whole"));
    CHECK(strstr(err(), "checkpoint-2/autotune.txt is for another device or library") &&
              strstr(err(), "cuBLASLt 130000\", and this is") &&
              strstr(err(), "cuBLASLt 130100\"; its choices are not used"),
          "%s", err());
    CHECK(table_has(TABLE, 0) == products, "%s has not the %d products of the first run", TABLE, products);
    unsetenv("GX_EMU_CUBLASLT"), unsetenv("GX_EMU_ALGORITHM_MS");
    shell("head -c -2 whole/checkpoint-2/autotune.txt > " TABLE); // a digit of the last algorithm
    CHECK(run("--output_dir cut_table --max_steps 4 --autotune " TABLE) > 0, "a table that was cut is taken");
    CHECK(strstr(err(), TABLE ": line ") && strstr(err(), "is not a product with its algorithm"), "%s", err());
    CHECK(!exists("cut_table"), "the refused run has made its folder");
    CHECK(run("--output_dir no_table --max_steps 4 --autotune whole") > 0, "a folder is taken");
    CHECK(strstr(err(), "--autotune whole is a folder; expected a file"), "%s", err());
    CHECK(!exists("no_table"), "the refused run has made its folder");
    shell("echo weights > " TABLE);
    CHECK(run("--output_dir bad_table --max_steps 4 --autotune " TABLE) > 0 &&
              strstr(err(), "it begins with \"weights\""),
          "%s", err());
    CHECK(!exists("bad_table"), "the refused run has made its folder");
}

// ---- --autotune on the CPU -----------------------------------------------------------------------------------------

#define ON_CPU "--device cpu --micro_batch_size 4 --max_steps 4 --save_total_limit 9 "
#ifdef GX_WITH_ONEDNN
// How many products of a table are computed in this way; -1 where some are not.
static int table_says(const char *path, const char *way)
{
    char line[1000], end[40];
    int products = -1, others = 0;
    FILE *f = fopen(path, "r");
    snprintf(end, sizeof end, " %s\n", way);
    for (; f && fgets(line, sizeof line, f); products++)
        others += products >= 0 && (strlen(line) < strlen(end) || strcmp(line + strlen(line) - strlen(end), end));
    if (f) fclose(f);
    return others ? -1 : products;
}

// What is the fastest differs from run to run, so tables are written that have one way for all. The first step is
// computed as without a table, a resumed run by its checkpoint's, and so to the same bits.
TEST(autotune_on_the_cpu_times_in_the_first_step_and_keeps_its_choices)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir cpu_plain --save_steps 1 " ON_CPU));
    CHECK_RAN(run("--output_dir cpu_timed --save_steps 1 --autotune cpu.txt " ON_CPU));
    CHECK(strstr(err(), "shapes of products were chosen: they are listed in cpu.txt\n"), "%s", err());
    CHECK(same_file("cpu_plain/checkpoint-1/optimizer.safetensors", "cpu_timed/checkpoint-1/optimizer.safetensors"),
          "timing has changed the first step");
    CHECK(same_file("cpu.txt", "cpu_timed/checkpoint-4/autotune.txt"),
          "the checkpoint has another table than the file");
    shell("sed '2,$s/ [a-z]*$/ tiles/' cpu.txt > tiles.txt");
    // five matrices (q, k, v in one; o; gate and up in one; down; the head's), forward, of inputs, of weights
    CHECK(table_says("tiles.txt", "tiles") == 15, "tiles.txt has %d products", table_says("tiles.txt", "tiles"));
    CHECK_RAN(run("--output_dir cpu_tiles --save_steps 2 --autotune tiles.txt " ON_CPU));
    CHECK(table_says("tiles.txt", "tiles") >= 8, "a file's choices were exchanged");
    const Log whole = read_log("cpu_tiles");
    unlink("tiles.txt");
    CHECK_RAN(run("--device cpu --max_steps 4 --resume cpu_tiles/checkpoint-2 --output_dir cpu_tiles"));
    check_same_losses("resumed", read_log("cpu_tiles"), whole, 0);
    CHECK(access("tiles.txt", F_OK) != 0, "a resumed run has timed products");
    CHECK(same_file("cpu_tiles/checkpoint-2/autotune.txt", "cpu_tiles/checkpoint-4/autotune.txt"),
          "a resumed run keeps another table");
}

// A file that lacks shapes: all ranks time those, and take the others. A resumed run of several ranks times nothing.
TEST(autotune_on_several_ranks_takes_a_file_adds_to_it_and_is_resumed)
{
    static const char flags[] = "--ranks 2 --micro_batch_size 2 --device cpu --max_steps 4 --save_total_limit 9";
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir ranks_timed --autotune ranks.txt %s", flags));
    shell("sed '2,$s/ [a-z]*$/ tiles/' ranks.txt > whole.txt; head -n 7 whole.txt > ranks.txt");
    const int shapes = table_says("whole.txt", "tiles");
    CHECK(shapes > 6, "two ranks have timed %d products", shapes);
    CHECK_RAN(run("--output_dir ranks_added --save_steps 2 --autotune ranks.txt %s", flags));
    shell("sort whole.txt | cut -d' ' -f-12 > a; sort ranks.txt | cut -d' ' -f-12 > b");
    CHECK(same_file("a", "b"), "what the file lacked was not added");
    CHECK(!shell("head -n 7 whole.txt > a; head -n 7 ranks.txt > b; cmp -s a b"), "a file's choices were exchanged");
    const Log whole = read_log("ranks_added");
    unlink("ranks.txt");
    CHECK_RAN(run("--ranks 2 --device cpu --resume ranks_added/checkpoint-2 --output_dir ranks_added"));
    CHECK(strstr(err(), "--autotune: the algorithms of products come from ranks_added/checkpoint-2/autotune.txt; "
                        "ranks.txt is not needed"),
          "%s", err());
    check_same_losses("resumed", read_log("ranks_added"), whole, 0);
    CHECK(!exists("ranks.txt"), "a resumed run has written the file");
    start_ranks(BY_HAND, 2,
                "--config tiny.json --device cpu --micro_batch_size 2 --max_steps 4 --output_dir unequal "
                "--autotune unequal.txt",
                "--threads 3");
    CHECK(finish() == 2, "ranks with other threads train together");
    says(
        1,
        "--autotune needs the same device, library and threads on all ranks: rank 0 has \"galaxy autotune 1, 1 thread");
    CHECK(!exists("unequal") && !exists("unequal.txt"), "the refused run has made its folder");
}

// Of a run that is stopped between its look at the file and its first step's end, a second or more later: meanwhile the
// file becomes a copy of `other`.
static void run_meanwhile(const char *dir, const char *file, const char *other)
{
    char line[TEST_PATH + 300], log[60];
    snprintf(log, sizeof log, "%s/log.jsonl", dir);
    snprintf(line, sizeof line,
             "%s --config tiny.json --output_dir %s --seq_len 256 --global_batch_size 512 --eval_steps 0 "
             "--max_steps 1 --autotune %s --device cpu --micro_batch_size 8",
             program, dir, file);
    start_line(line, 0);
    for (int ms = 0; !exists(log) && ms < 30000; ms++) sleep_ms(1);
    kill(child.pid, SIGSTOP);
    CHECK(!exists(file) && !shell("cp %s %s", other, file), "the first step was too fast for this test");
    kill(child.pid, SIGCONT);
    CHECK(finish() == 0, "%s", err());
    CHECK(!shell("grep -q '^2048 ' %s/checkpoint-1/autotune.txt", dir), "the checkpoint lacks its own shapes");
}

TEST_UNSANITIZED(autotune_keeps_what_comes_into_the_files_place_meanwhile)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir other --seq_len 8 --autotune other.txt " ON_CPU));
    run_meanwhile("meanwhile", "shared.txt", "other.txt");
    shell("tail -n +2 other.txt | sort > a; tail -n +2 shared.txt | sort > b; comm -12 a b > c");
    CHECK(same_file("a", "c"), "the other run's shapes are lost");
    CHECK(!shell("grep -q '^2048 ' shared.txt && ! grep -q '^2048 ' other.txt"), "its own shapes are lost");
    run_meanwhile("meanwhile_text", "notes.txt", "text.txt");
    CHECK(same_file("notes.txt", "text.txt") && strstr(err(), "notes.txt is no longer a table, and is left as it is"),
          "%s", err());
}

TEST(autotune_on_the_cpu_refuses_tables_that_are_damaged_and_times_anew_on_another_cpu)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir cpu_table --autotune good.txt " ON_CPU));
    shell("sed '1s/oneDNN/another library/' good.txt > other.txt");
    CHECK_RAN(run("--output_dir cpu_other --autotune other.txt " ON_CPU));
    CHECK(strstr(err(), "other.txt is for another device or library: it says \"galaxy autotune 1, ") &&
              strstr(err(), "; its choices are not used"),
          "%s", err());
    CHECK(!shell("head -n 1 good.txt > a; head -n 1 other.txt > b; cmp -s a b"), "the file is still for another CPU");
    shell("sed '$s/ [a-z]*$/ fastest/' good.txt > bad.txt");
    CHECK(run("--output_dir cpu_bad --autotune bad.txt " ON_CPU) > 0 && strstr(err(), "bad.txt: line ") &&
              strstr(err(), "is not a product with its algorithm; if it is a damaged table, remove it"),
          "%s", err());
    static const char *const damage[][2] = {
        {"sed '2s/^[0-9]*/-8/' good.txt", "line 2 is not a product"},
        {"sed '2s/^[0-9]*/99999999999999999999999/' good.txt", "line 2 is not a product"},
        {"sed '2s/^\\([0-9]* [0-9]* [0-9]*\\) [0-9]*/\\1 0/' good.txt", "line 2 is not a product"}, // lda
        {"head -c 30 good.txt", "it begins with \"galaxy autotune 1, "},
        {"echo galaxy autotune results of last week", "it begins with \"galaxy autotune results "},
        {"(cat good.txt; printf '\\000')", "it has a byte of value 0"}};
    for (int i = 0; i < (int)(sizeof damage / sizeof *damage); i++) {
        shell("%s > bad.txt; cp bad.txt same.txt", damage[i][0]);
        CHECK(run("--output_dir cpu_bad --autotune bad.txt " ON_CPU) > 0 && strstr(err(), damage[i][1]), "%s: %s",
              damage[i][0], err());
        CHECK(same_file("bad.txt", "same.txt"), "%s: it was written over", damage[i][0]);
    }
    CHECK(!exists("cpu_bad"), "the refused run has made its folder");
    // a run that goes on by its checkpoint's table, and one that only validates, do not need the file
    shell("cp bad.txt good.txt");
    CHECK_RAN(run("--evaluate --resume cpu_table/checkpoint-4 --output_dir cpu_table --device cpu"));
    CHECK_RAN(run("--resume cpu_table/checkpoint-4 --output_dir cpu_table --device cpu --max_steps 5"));
    CHECK(same_file("bad.txt", "good.txt"), "the file was written over");
}

// Whatever else is in the file's place stays as it is, on resume, too, where the checkpoint's table may not be for this
// number of threads. A link stays one.
TEST(autotune_writes_over_nothing_but_tables)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir cpu_first --save_steps 2 --autotune first.txt " ON_CPU "--threads 1"));
    shell("cp text.txt book.txt; cp text.txt same.txt; mkfifo pipe; ln -s linked.txt link; ln -s nowhere broken");
    static const char *const refused[][2] = {{"book.txt", "book.txt: it begins with "},
                                             {"pipe", "--autotune pipe is not a regular file"},
                                             {"broken", "--autotune broken is not a regular file"},
                                             {"/dev/zero", "--autotune /dev/zero is not a regular file"}};
    for (int i = 0; i < 4; i++) {
        CHECK(run("--output_dir cpu_none --autotune %s " ON_CPU, refused[i][0]) > 0 && strstr(err(), refused[i][1]),
              "%s: %s", refused[i][0], err());
        CHECK(run("--output_dir cpu_none --device cpu --threads 2 --resume cpu_first/checkpoint-2 --autotune %s",
                  refused[i][0]) > 0 &&
                  strstr(err(), refused[i][1]),
              "resumed, %s: %s", refused[i][0], err());
        CHECK(!exists("cpu_none"), "%s: the refused run has made its folder", refused[i][0]);
    }
    static const char *const place[][2] = {
        {"cpu_none", "--autotune cpu_none lies in --output_dir cpu_none"},
        {"cpu_none/log.jsonl", "--autotune cpu_none/log.jsonl lies in --output_dir cpu_none"},
        {"cpu_first/checkpoint-2/autotune.txt", "cpu_first/checkpoint-2, which has a manifest.json"},
        {"nowhere/table.txt", "the folder nowhere does not exist; make it first"}};
    for (int i = 0; i < 4; i++) {
        CHECK(run("--output_dir cpu_none --autotune %s " ON_CPU, place[i][0]) > 0 && strstr(err(), place[i][1]),
              "%s: %s", place[i][0], err());
        CHECK(!exists("cpu_none"), "%s: the refused run has made its folder", place[i][0]);
    }
    CHECK(same_file("book.txt", "same.txt") && !shell("test -p pipe && test -L broken"), "a file was exchanged");
    shell("cp first.txt linked.txt; sed -i '1s/oneDNN/another library/' linked.txt");
    CHECK_RAN(run("--output_dir cpu_link --autotune link " ON_CPU "--threads 1"));
    CHECK(!shell("test -L link && grep -q oneDNN linked.txt"), "a link was exchanged for a file, or was not followed");
    // the checkpoint's table is for one thread, the file's for two: the file's is taken, and keeps its shapes
    CHECK_RAN(run("--output_dir cpu_two --autotune two.txt " ON_CPU "--threads 2"));
    shell("sed '2,$s/ [a-z]*$/ tiles/' two.txt > two_tiles.txt");
    CHECK_RAN(
        run("--output_dir cpu_other_threads --device cpu --max_steps 4 --threads 2 --resume cpu_first/checkpoint-2 "
            "--autotune two_tiles.txt"));
    CHECK(strstr(err(), "autotune.txt is for another device or library: it says \"galaxy autotune 1, 1 thread, "), "%s",
          err());
    CHECK(table_says("two_tiles.txt", "tiles") >= 8 &&
              same_file("two_tiles.txt", "cpu_other_threads/checkpoint-4/autotune.txt"),
          "the file's table was not taken");
}
#else
TEST(autotune_on_the_cpu_is_refused_where_there_is_one_way_to_compute_products)
{
    if (!use_program("train_llama")) return;
    CHECK(run("--output_dir none --autotune cpu.txt " ON_CPU) > 0 &&
              strstr(err(), "--autotune chooses among ways to compute a matrix product, but on the device cpu this "
                            "program has only one (a build with oneDNN has others)"),
          "%s", err());
    CHECK(!exists("none") && !exists("cpu.txt"), "the refused run has made its folder or its table");
}
#endif

#ifdef GX_WITH_CUDA
// ---- CUDA graphs ---------------------------------------------------------------------------------------------------

#define GRAPH_WINDOWS "--micro_batch_size 2 --gradient_accumulation_steps 2 --save_steps 3 --save_total_limit 0 "
#define GRAPH_STEPS   "--max_steps 5 " GRAPH_WINDOWS
#define GRAPH_MODEL   "--model graph_base/checkpoint-1 "
#define GRAPH_BERT                                                                                                     \
    "--config graph_bert.json --tokenizer words --seq_len 32 --hidden_size 32 "                                        \
    "--intermediate_size 64 --num_hidden_layers 2 --num_attention_heads 4 "

typedef struct {
    const char *program, *flags;
    int per_step; // graphs launched in a step once all are there, on all ranks
} GraphWay;
// A micro-batch's graph is of all its units, but for what asks the host between them: a head of some rows (BERT),
// layers whose outputs are kept, gradients that are summed on the way, collectives within a layer. Those of tp, with
// two layers: forward 1 behind the embedding and 4, backward 2 of the head and 5, of which the layers' 4 go on beside a
// weight half, a graph too; so 17 of each rank's micro-batches.
static const GraphWay graph_ways[] = {
    {"train_llama", "", 2},
    {"train_llama", "--precision bf16 --recompute layer --tie_word_embeddings --eval_steps 2 --max_eval_samples 3", 2},
    {"train_llama", "--train_data graph_texts.jsonl --tokenizer bytes --validation_fraction 0", 2},
    {"train_llama", GRAPH_MODEL "--tuning lora --lora_dim 3 --lora_dropout 0.3", 2},
    {"train_llama", GRAPH_MODEL "--tuning prompt --prompt_len 3", 2},
    {"train_llama",
     GRAPH_MODEL "--tuning side_only --side_reduction_factor 4 --train_data graph_texts.jsonl --tokenizer "
                 "bytes --validation_fraction 0 --side_cache memory",
     6},
    {"train_llama", "--ranks 2 --device_comm host", 4},
    {"train_bert",
     GRAPH_BERT "--train_data graph_text.txt --validation_fraction 0.2 --eval_steps 2 --max_eval_samples 3", 4},
    {"train_bert", GRAPH_BERT "--task classification --train_data graph_labels.tsv", 4},
    {"train_llama", "--ranks 2 --reduce_bucket 2 --device_comm nccl", 6},
    {"train_llama_tp", "--ranks 2 --tp_num_attention_heads_list 1,3 --device_comm host", 68},
    {"train_llama_tp", "--ranks 2 --head_chunk 20 --device_comm nccl", 92},
    {"train_llama_tp", GRAPH_MODEL "--ranks 2 --tuning lora --lora_dim 3 --lora_dropout 0.3 --device_comm nccl", 60},
    {"train_llama_sp", "--ranks 2 --seq_scatter_list 20,12 --device_comm host", 20},
    {"train_llama_sp", GRAPH_MODEL "--ranks 2 --tuning lora --lora_dim 3 --device_comm nccl", 20},
    {"train_llama_galaxy", "--ranks 2 --seq_scatter_list 20,12 --device_comm nccl", 108},
    {"train_llama_galaxy", GRAPH_MODEL "--ranks 2 --tuning lora --lora_dim 3 --device_comm host", 96},
    {"train_llama_galaxy2", "--ranks 2 --tp_vocab_size_list 3,253 --device_comm host", 68},
    {"train_llama_galaxy2", "--ranks 2 --precision bf16 --recompute layer --device_comm nccl", 84},
};

// What train_llama and train_bert are given above. 0: not to be had.
static int make_graph_data(void)
{
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1}";
    GxError e = GX_ZERO;
    gx_file_write("graph_bert.json", config, (int64_t)strlen(config), &e);
    shell("%.*s/tokenize --train text.txt --type wordpiece --vocab_size 300 --output_dir words >/dev/null",
          (int)(strrchr(program, '/') - program), program);
    shell("sed 'n;n;n;G' text.txt > graph_text.txt");
    shell(
        "sed 's/.*/{\"text\": \"&\"}/' text.txt | head -n 30 > graph_texts.jsonl; (printf 'text\\tlabel\\n'; for i in "
        "$(seq 40); do printf 'a cat %%d\\tcat\\na dog that barks %%d\\tdog\\n' $i $i; done) > graph_labels.tsv");
    return use_program("train_llama") && CHECK(run("--output_dir graph_base --max_steps 1") == 0, "%s", err());
}

// Of the emulator's last line.
static long graphs_launched(void)
{
    const char *at = strstr(err(), " of them graphs of ");
    while (at && at > err() && strchr("0123456789", at[-1])) at--;
    return at ? atol(at) : -1;
}

static void check_graphs(const GraphWay *w, int number)
{
    char whole[60], same[60];
    snprintf(whole, sizeof whole, "kernels%d", number), snprintf(same, sizeof same, "graphs%d", number);
    if (!use_program(w->program)) return;
    CHECK_RAN(run("--max_steps 4 %s %s --output_dir %s", GRAPH_WINDOWS, w->flags, whole));
    setenv("GX_EMU_COUNT", "1", 1), setenv("GX_EMU_GRAPHS", "compare", 1);
    CHECK_RAN(run("--max_steps 4 %s %s --output_dir %s --cuda_graphs", GRAPH_WINDOWS, w->flags, same));
    CHECK(strstr(out(), "cuda_graphs=true"), "%s", out());
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", w->flags, err());
    // the first step without, then three with them
    if (strstr(out(), "emulat"))
        CHECK(graphs_launched() == 3 * w->per_step, "%s %s: %ld graphs, not 3*%d", w->program, w->flags,
              graphs_launched(), w->per_step);
    const Log a = read_log(whole), b = read_log(same);
    for (int s = 0; s < 4; s++)
        CHECK(a.steps == 4 && b.steps == 4 && a.loss[s] == b.loss[s], "%s, step %d: loss %.9g, by graphs %.9g",
              w->flags, s + 1, a.loss[s], b.loss[s]);
    strcat(whole, "/checkpoint-4"), strcat(same, "/checkpoint-4");
    check_same_checkpoint(whole, same);
    unsetenv("GX_EMU_COUNT"), unsetenv("GX_EMU_GRAPHS");
}

TEST(graphs_of_kernels_are_the_kernels_bit_for_bit)
{
    if (!make_graph_data()) return;
    for (int i = 0; i < (int)(sizeof graph_ways / sizeof *graph_ways); i++)
        if (!strstr(graph_ways[i].flags, "nccl") || test_has_nccl()) check_graphs(&graph_ways[i], i);
}

TEST(a_run_goes_on_with_graphs_and_is_profiled_without)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run(GRAPH_STEPS "--output_dir all_kernels"));
    CHECK_RAN(run("--output_dir on_by_graphs --max_steps 5 --cuda_graphs --resume all_kernels/checkpoint-3"));
    check_same_checkpoint("all_kernels/checkpoint-5", "on_by_graphs/checkpoint-5");
    CHECK_RAN(run(GRAPH_STEPS "--output_dir half_graphs --cuda_graphs --profile_steps 2"));
    CHECK(strstr(out(), "attention_backward"), "%s", out());
    check_same_checkpoint("all_kernels/checkpoint-5", "half_graphs/checkpoint-5");
    CHECK_RAN(run("--output_dir on_with_graphs --max_steps 5 --resume half_graphs/checkpoint-3"));
    CHECK(strstr(out(), ", by CUDA graphs\n"), "%s", out());
    check_same_checkpoint("all_kernels/checkpoint-5", "on_with_graphs/checkpoint-5");
    if (!use_program("train_llama_galaxy")) return;
    CHECK_RAN(run("--ranks 2 " GRAPH_STEPS "--output_dir all_galaxy"));
    CHECK_RAN(run("--ranks 2 --output_dir on_galaxy --max_steps 5 --cuda_graphs --resume all_galaxy/checkpoint-3"));
    check_same_checkpoint("all_galaxy/checkpoint-5", "on_galaxy/checkpoint-5");
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--sample_only --device cpu --resume half_graphs/checkpoint-3"));
    CHECK_RAN(run("--output_dir on_without --max_steps 5 --device cpu --cuda_graphs false --resume "
                  "half_graphs/checkpoint-3"));
}

// In the first window nothing is captured yet: there products are timed, which waits for each of them, and a graph
// would keep the algorithms of before.
TEST(graphs_begin_behind_the_step_whose_products_are_timed)
{
    if (!use_program("train_llama") || !has_emulator()) return;
    setenv("GX_EMU_ALGORITHM_MS", "9000,8000,1000,7000", 1);
    CHECK_RAN(run("--output_dir timed_kernels " GRAPH_STEPS "--autotune timed_kernels.txt"));
    CHECK_RAN(run("--output_dir timed_graphs " GRAPH_STEPS "--autotune timed_graphs.txt --cuda_graphs"));
    CHECK(table_has("timed_graphs.txt", 2) >= 8, "the table has too few products");
    unsetenv("GX_EMU_ALGORITHM_MS");
    check_same_checkpoint("timed_kernels/checkpoint-5", "timed_graphs/checkpoint-5");
}
#endif

TEST(graphs_are_refused_where_there_are_none)
{
    if (!use_program("train_llama")) return;
    CHECK(run("--output_dir none --cuda_graphs --device cpu") == 1 &&
              strstr(err(), "--cuda_graphs needs a card, but this run is on the device cpu"),
          "%s", err());
#ifdef GX_WITH_CUDA
    CHECK(run("--output_dir none --cuda_graphs --ranks 2 --cp 2 --cp_method ring") == 1 &&
              strstr(err(), "--cp_method ring sends messages inside layers"),
          "%s", err());
    if (!use_program("train_llama_galaxy_tiled")) return;
    CHECK(run("--output_dir none --cuda_graphs --ranks 2") == 1 && strstr(err(), "use the program without _tiled"),
          "%s", err());
#endif
}

TEST(a_resumed_run_is_the_run_bit_for_bit_on_the_device_in_both_precisions)
{
    static const char *const precisions[] = {"fp32", "bf16", "bf16 --freeze *mlp*,lm_head*"};
    for (int p = 0; p < 3; p++) {
        char whole[60], half[60];
        if (!use_program("train_llama")) return;
        snprintf(whole, sizeof whole, "whole%d", p);
        snprintf(half, sizeof half, "half%d", p);
        CHECK_RAN(run("--output_dir %s --max_steps 6 --precision %s --save_steps 3 --save_total_limit 0", whole,
                      precisions[p]));
        CHECK_RAN(
            run("--output_dir %s --max_steps 6 --precision %s --resume %s/checkpoint-3", half, precisions[p], whole));
        strcat(whole, "/checkpoint-6"), strcat(half, "/checkpoint-6");
        check_same_checkpoint(whole, half);
    }
}

TEST(a_checkpoint_goes_on_on_another_device_and_in_another_precision)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir from --max_steps 3 --device " DEVICE));
    CHECK_RAN(run("--output_dir to --max_steps 4 --device cpu --resume from/checkpoint-3"));
    CHECK_RAN(run("--output_dir here --max_steps 4 --device " DEVICE " --resume from/checkpoint-3"));
    CHECK_RAN(run("--output_dir narrow --max_steps 4 --precision bf16 --resume from/checkpoint-3"));
    const Log a = read_log("to"), b = read_log("here"), c = read_log("narrow");
    CHECK(a.steps == 1 && fabs(a.loss[0] / b.loss[0] - 1) < 1e-4 && fabs(a.loss[0] / c.loss[0] - 1) < 2e-3,
          "losses %.6f on the cpu, %.6f on " DEVICE ", %.6f in bf16", a.loss[0], b.loss[0], c.loss[0]);
}

// The number behind `words` in what the program printed; -1: it is not there.
static double printed(const char *words)
{
    const char *at = strstr(out(), words);
    return at ? atof(at + strlen(words)) : -1;
}

static double card_all(void) // MB, as the first line says it in GiB
{
    const char *gib = strstr(out(), " GiB");
    while (gib && gib > out() && strchr("0123456789.", gib[-1])) gib--;
    return gib ? atof(gib) * 1073.74 : 0;
}

TEST(the_log_says_what_is_in_use_on_the_card)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir cards --max_steps 2 --device " DEVICE));
    const double arena = printed("  arena ");
    const Log l = read_log("cards");
    CHECK(l.steps == 2 && l.cards == (strcmp(DEVICE, "cpu") ? 2 : 0), "%d of %d steps say what is in use on the card",
          l.cards, l.steps);
    for (int s = 0; s < l.cards; s++)
        CHECK(arena > 0 && l.card_mb[s] >= arena - 0.05 && l.card_mb[s] < card_all() / 2,
              "%.3f MB of %.0f in use, the arena is %.1f", l.card_mb[s], card_all(), arena);
    CHECK_RAN(run("--output_dir no_cards --max_steps 2 --device cpu"));
    CHECK(read_log("no_cards").cards == 0 && read_log("no_cards").steps == 2, "a run on the CPU tells of a card");
}

#ifdef GX_WITH_CUDA
TEST(ranks_on_cards_and_ranks_on_cpus_train_together)
{
    if (!use_program("train_llama")) return;
    // gradients: 1.3M numbers
    CHECK_RAN(run("--output_dir alike --max_steps 4 --ranks 2 --micro_batch_size 2 --vocab_size 20000 --device cpu"));
    start_ranks(BY_TORCHRUN, 2,
                "--config tiny.json --max_steps 4 --micro_batch_size 2 --vocab_size 20000 --output_dir unlike",
                "--device cpu");
    CHECK(finish() == 0, "%d ranks failed", child.status);
    says(0, "device cuda");
    says(0, "cards through the host");
    const Log a = read_log("alike"), b = read_log("unlike");
    CHECK(a.steps == FEW && b.steps == FEW, "%d and %d steps", a.steps, b.steps);
    check_close_series("losses", b.loss, a.loss, FEW, 1);
    start_ranks(BY_TORCHRUN, 2, "--config tiny.json --max_steps 4 --output_dir by_nccl --device_comm nccl",
                "--device cpu");
    CHECK(finish() == 2, "%d of 2 ranks failed", child.status);
    says(1, "--device_comm nccl moves buffers between cards, but rank 1 is on cpu");
}

TEST(heads_that_miss_the_tensor_cores_of_their_card_are_named)
{
    static const struct {
        const char *flags, *capability;
        int is_named;
    } runs[] = {{"--hidden_size 320 --precision bf16", "8.0", 1}, // heads of 160
                {"--hidden_size 24 --precision bf16", "8.0", 1},  // of 12
                {"--hidden_size 256 --precision bf16", "8.0", 0}, // of 128
                {"--hidden_size 320 --precision bf16", "12.0", 1},
                {"--hidden_size 320 --precision fp32", "8.0", 1},
                {"--hidden_size 12 --precision fp32", "8.0", 1}, // of 6
                {"--hidden_size 24 --precision fp32", "8.0", 0},
                {"--hidden_size 320 --precision fp32", "12.0", 0}, // whose attention in fp32 has no tensor cores
                {"--hidden_size 320 --precision bf16 --device cpu", "8.0", 0}};
    if (!use_program("train_llama")) return;
    const int on_emulator = has_emulator();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (!on_emulator && strstr(runs[i].flags, "fp32")) continue; // which depends on the card
        setenv("GX_EMU_CAPABILITY", runs[i].capability, 1);
        CHECK_RAN(run("%s --num_attention_heads 2 --num_key_value_heads 2 --dry_run", runs[i].flags));
        const int is_named = strstr(out(), "computed without tensor cores") != NULL;
        CHECK(is_named == runs[i].is_named, "%s: \"%.300s\"", runs[i].flags, out());
    }
    unsetenv("GX_EMU_CAPABILITY");
}

TEST(a_plan_needs_no_card)
{
    if (!use_program("train_llama") || !has_emulator()) return;
    setenv("GX_EMU_CARDS", "0", 1);
    CHECK_RAN(run("--dry_run --precision fp32"));
    CHECK_RAN(run("--dry_run --precision bf16"));
    CHECK(run("--output_dir without_a_card") > 0 && strstr(err(), "the driver shows no card"),
          "it trained without a card, or does not say that there is none: %s%s", out(), err());
    unsetenv("GX_EMU_CARDS");
}

TEST(heads_that_the_device_cannot_compute_are_refused_by_a_dry_run)
{
    if (!use_program("train_llama")) return;
    const int status = run("--hidden_size 600 --num_attention_heads 2 --num_key_value_heads 2 --dry_run");
    CHECK(status == 1 && strstr(err(), "head_dim is 300; this device computes heads of up to 256"), "status %d: %s",
          status, err());
    CHECK_RAN(run("--hidden_size 600 --num_attention_heads 2 --num_key_value_heads 2 --dry_run --device cpu"));
}

TEST(a_plan_that_the_card_cannot_hold_is_refused)
{
    char device[300] = "";
    gx_default_device()->describe(device, sizeof device);
    if (!strstr(device, "emulator")) SKIP("it takes a card of 24 MB, which only the emulator has");
    if (!use_program("train_llama")) return;
    setenv("GX_EMU_MEMORY", "24", 1);
    CHECK_RAN(run("--output_dir held --max_steps 1"));
    int status = run("--output_dir too_large --micro_batch_size 8192");
    CHECK(status == 1 && strstr(err(), "on this rank's card, which has ") && strstr(err(), "(--micro_batch_size "),
          "status %d: %s", status, err());
    char *fits = strstr(err(), "about ");
    const int samples = fits ? atoi(fits + 6) : 0;
    CHECK(samples > 4 && samples < 8192, "%d samples would fit", samples);
    CHECK_RAN(run("--output_dir fits --max_steps 1 --micro_batch_size %d", samples));
    const double arena = printed("  arena ");
    CHECK_RAN(run("--ranks 2 --micro_batch_size %d --device_comm host --dry_run",
                  samples)); // whose buffers for each other are the host's
    CHECK(fabs(printed("  arena ") - arena) < 0.5, "an arena of %.1f MB, of two ranks %.1f", arena,
          printed("  arena "));
    const double both = printed(" on this card, which has ");
    CHECK(both > 20 && both < 25.2, "the card has %.1f MB left", both);
    status = run("--output_dir two --max_steps 1 --ranks 2 --micro_batch_size %d --device_comm host",
                 samples); // both on the one card
    CHECK(status == 1 && strstr(err(), "on this rank's card, which has "), "status %d: %s", status, err());
    status = run("--output_dir list --ranks 2 --micro_batch_size 0 --dp_batch_size_list %d,1 --device_comm host", 8192);
    CHECK(status == 1 && strstr(err(), "% of the samples in --dp_batch_size_list"), "status %d: %s", status, err());
    unsetenv("GX_EMU_MEMORY");
}

// On the emulator, whose driver then does all that it may do at the worst time: a group of NCCL, a buffer or a kernel
// that came behind a collective would be waited for by nobody.
TEST(threads_as_ranks_ask_a_driver_that_waits_for_nothing_behind_a_collective)
{
    static const Way threads[] = {
        {"train_llama", "--ranks 2 --micro_batch_size 2 --device_comm nccl"},
        {"train_llama", "--ranks 2 --micro_batch_size 2 --reduce_bucket 1 --device_comm nccl --cuda_graphs"},
        {"train_llama_tp", "--ranks 4 --tp 2 --micro_batch_size 2 --device_comm nccl"},
        {"train_llama_galaxy", "--ranks 2 --micro_batch_size 2 --gradient_accumulation_steps 2 --reduce_bucket 1 "
                               "--device_comm nccl --cuda_graphs"},
    };
    char device[300] = "";
    gx_default_device()->describe(device, sizeof device);
    if (!strstr(device, "emulator")) SKIP("it takes a driver that waits where it may, which only the emulator has");
    for (int i = 0; i < (int)(sizeof threads / sizeof *threads); i++) {
        char dir[40];
        snprintf(dir, sizeof dir, "driver%d", i);
        setenv("GX_EMU_DRIVER", "blocking", 1);
        const Log l = run_way(&threads[i], dir, "");
        unsetenv("GX_EMU_DRIVER");
        CHECK(l.steps == FEW, "%s: %d steps", threads[i].flags, l.steps);
    }
}

TEST(ranks_with_a_card_each_train_by_nccl_and_those_that_share_one_through_the_host)
{
    char device[300] = "";
    gx_default_device()->describe(device, sizeof device);
    if (!strstr(device, "emulator")) SKIP("it takes as many cards as are asked for, which only the emulator has");
    for (int cards = 1; cards <= 3; cards++) {
        char dir[40], number[20];
        const Way way = {"train_llama", "--ranks 3 --dp_batch_size_list 2,1,1"};
        snprintf(dir, sizeof dir, "of%d", cards);
        snprintf(number, sizeof number, "%d", cards);
        setenv("GX_EMU_CARDS", number, 1);
        const Log l = run_way(&way, dir, "--device " DEVICE);
        unsetenv("GX_EMU_CARDS");
        CHECK(l.steps == FEW && strstr(out(), cards < 3 ? "cards through the host" : "(threads, nccl)"),
              "%d cards, %d steps: %s", cards, l.steps, out());
    }
}

TEST(buffers_of_the_host_are_planned_only_where_they_are_used)
{
    if (!use_program("train_llama_galaxy")) return;
    if (!test_has_nccl()) SKIP("two ranks share the card; GX_TEST_NCCL=1 where each has one");
    CHECK_RAN(run("--ranks 2 --dry_run --hidden_size 1024 --seq_len 1024")); // both on the one card
    CHECK(strstr(out(), "cards through the host"), "%s", out());
    CHECK_RAN(run("--ranks 2 --dry_run --hidden_size 1024 --seq_len 1024 --device_comm host"));
    const double staged = printed("of the host's: buffers ");
    CHECK_RAN(run("--ranks 2 --dry_run --hidden_size 1024 --seq_len 1024 --device_comm nccl"));
    const double by_nccl = printed("of the host's: buffers ");
    CHECK(staged > by_nccl && by_nccl > 0, "%.1f MB by NCCL, %.1f through the host", by_nccl, staged);
}
#endif

TEST(the_first_lines_say_device_and_precision)
{
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--dry_run --precision bf16 --device " DEVICE));
    CHECK(strstr(out(), "| device " DEVICE ": ") && strstr(out(), " parameters, bf16"), "%s", out());
}

TEST(a_device_that_the_program_was_not_built_for_is_refused)
{
    if (!use_program("train_llama")) return;
    int status = run("--device tpu");
    CHECK(status == 1 && strstr(err(), "--device") && strstr(err(), "cuda"), "%s", err());
#ifndef GX_WITH_CUDA
    status = run("--device_comm nccl");
    CHECK(status == 1 && strstr(err(), "make DEVICE=cuda"), "%s", err());
    status = run("--device cuda");
    CHECK(status == 1 && strstr(err(), "make DEVICE=cuda"), "%s", err());
#endif
}

int main(int argc, char **argv) { return program_main(argc, argv); }
