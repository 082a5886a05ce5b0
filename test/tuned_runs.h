// test/tuned_runs.h: what runs with --tuning have in common, whatever the method: the model that they adapt, and how
// they are held to serial. BASE, which a test defines before, is what each of them begins with, TUNED_TRAINABLE what
// can be trained besides.
#ifndef GX_TEST_TUNED_RUNS_H
#define GX_TEST_TUNED_RUNS_H
#include "program.h"
#ifndef TUNED_TRAINABLE
#define TUNED_TRAINABLE "norm"
#endif

// A model to adapt, of whose training the tests know nothing: base/checkpoint-8.
static int has_base;
static int make_base(void)
{
    if (has_base) return 1;
    return has_base = CHECK(run("--output_dir base --max_steps 8 --learning_rate 2e-2") == 0, "%.300s", err());
}

static int file_contains(const char *path, const char *words)
{
    char *text = read_text(path);
    const int found = strstr(text, words) != NULL;
    free(text);
    return found;
}

// Saved by ranks of one mode, gone on with by those of another.
static void check_topologies(void)
{
    static const Topology cases[] = {
        {"one_tp", "adamw", "train_llama", BASE, "train_llama", "--ranks 2 --mode tp", 0},
        {"tp_galaxy", "adamw", "train_llama", BASE "--ranks 2 --mode tp --tp_num_attention_heads_list 1,3",
         "train_llama", "--ranks 3 --mode galaxy", 0},
        {"sp_one", "sgd", "train_llama", BASE "--ranks 3 --mode sp --trainable_modules " TUNED_TRAINABLE, "train_llama",
         "", 0},
        {"dp_mpi", "adamw", "train_llama", BASE "--ranks 2", "train_llama", "--mode galaxy2", 2},
    };
    if (!make_base()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!cases[i].mpi || has_mpi) check_topology(&cases[i]);
}

// Four steps of one rank, and the same ones `way`: `name` is a folder's for each.
static void check_way(const char *flags, const char *name, const Log *serial, const char *way, int copies)
{
    CHECK_RAN(run("%s --output_dir %s %s %s", flags, name, way, copies > 1 ? "--micro_batch_size 2" : ""));
    CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", way, err());
    const Log l = read_log(name);
    CHECK(l.steps == 4 && serial->steps == 4, "%s: %d and %d steps", way, l.steps, serial->steps);
    check_close_series(way, l.loss, serial->loss, 4, 1);
    check_close_series(way, l.grad_norm, serial->grad_norm, 4, 1);
}
#define TUNED_STEPS                                                                                                    \
    "--max_steps 4 --optimizer sgd --learning_rate 0.5 --micro_batch_size 4 --gradient_accumulation_steps 1 "

static void check_every_mode(const char *more)
{
    static const char *const ways[] = {
        "--ranks 2 --mode tp",     "--ranks 3 --mode sp --seq_scatter_list 8,4,20",
        "--ranks 2 --mode galaxy", "--ranks 3 --mode galaxy2 --tp_vocab_size_list 100,6,150",
        "--ranks 2 --tp 1",        "--ranks 4 --mode tp --tp 2"};
    char flags[400], name[40];
    if (!make_base()) return;
    snprintf(flags, sizeof flags, BASE TUNED_STEPS "%s", more);
    CHECK_RAN(run("%s --output_dir alone", flags));
    const Log serial = read_log("alone");
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "many%d", i);
        check_way(flags, name, &serial, ways[i], i < 4 ? 1 : 2);
    }
}
#endif
