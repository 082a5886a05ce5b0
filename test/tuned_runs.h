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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += is_brief() ? 2 : 1)
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

// What the folder says of its adapter, and that transformers does not take it for a model's. Lists end with NULL.
static void check_adapter_folder(const char *folder, const char *const *said, const char *const *unsaid)
{
    char path[TEST_PATH], other[TEST_PATH];
    check_whole(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder),
        snprintf(other, sizeof other, "%s/config.json", folder);
    CHECK(!exists(path) && !exists(other), "transformers would take %s for a model's", folder);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    for (; *said; said++) CHECK(file_contains(path, *said), "%s lacks %s", path, *said);
    for (; *unsaid; unsaid++) CHECK(!file_contains(path, *unsaid), "%s has %s", path, *unsaid);
}

// Six steps, and the last three of them anew, each way (a sanitizer sees the first); `ways` ends with NULL.
static void check_resumed(const char *const *ways)
{
    char whole[60], part[60];
    if (!make_base()) return;
    for (int i = 0; ways[i] && !(i && is_brief()); i++) {
        CHECK_RAN(run(BASE "--output_dir whole%d --max_steps 6 --save_steps 3 %s", i, ways[i]));
        CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
        CHECK_RAN(run("--resume whole%d/checkpoint-3 --output_dir part%d", i, i));
        snprintf(whole, sizeof whole, "whole%d/checkpoint-6", i);
        snprintf(part, sizeof part, "part%d/checkpoint-6", i);
        check_same_checkpoint(whole, part);
    }
    CHECK(exists("part0/checkpoint-6/adapter_model.safetensors"), "no adapter was saved");
}

static void check_recomputed(const char *more)
{
    static const char *const what[] = {"none", "layer", "mlp:0,layer:1"};
    if (!make_base()) return;
    for (int i = 0; i < 3; i++) {
        char adapter[100];
        snprintf(adapter, sizeof adapter, "again%d/checkpoint-3/adapter_model.safetensors", i);
        CHECK_RAN(run(BASE "--output_dir again%d --max_steps 3 --recompute %s %s", i, what[i], more));
        CHECK(same_file("again0/checkpoint-3/adapter_model.safetensors", adapter), "%s: another adapter", what[i]);
    }
}

// Trained for `steps` with the flags `training`, which lowers the loss by more than `by`; evaluated as it was saved,
// and the same again behind a step that does nothing.
static void check_begun_with(int steps, const char *training, double by, const char *nothing)
{
    char saved[60], file[2][100];
    if (!make_base()) return;
    snprintf(saved, sizeof saved, "first/checkpoint-%d", steps);
    CHECK_RAN(run(BASE "--output_dir first --max_steps %d %s", steps, training));
    CHECK_RAN(run("--adapter %s --evaluate --max_eval_samples 0", saved));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run("--resume %s --evaluate --max_eval_samples 0", saved));
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not the loss of the adapter, %g", out(), loss);
    CHECK_RAN(run("--model base/checkpoint-8 --evaluate --max_eval_samples 0"));
    CHECK(loss < number_behind(out(), "validation loss ") - by, "%s: without it, not worse than %g", out(), loss);
    CHECK_RAN(run("--adapter %s --output_dir second --max_steps 1 --learning_rate 0 %s", saved, nothing));
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "adapter_config.json" : "adapter_model.safetensors";
        if (i && nothing[0]) break; // which it says of itself
        snprintf(file[0], sizeof file[0], "%s/%s", saved, name);
        snprintf(file[1], sizeof file[1], "second/checkpoint-1/%s", name);
        CHECK(same_file(file[0], file[1]), "with learning rate 0 %s has changed", name);
    }
}

// What --chat answers to the lines of `said`; free() it.
static char *talk(const char *flags, const char *said)
{
    char script[3 * TEST_PATH];
    GxError e = GX_ZERO;
    use_program("generate_llama");
    snprintf(script, sizeof script,
             "printf '%s' | exec %s %s --chat --chat_template llama2 --max_new_tokens 24 --threads 1\n", said, program,
             flags);
    use_program("train_llama");
    gx_file_write("talk.sh", script, (int64_t)strlen(script), &e);
    start_line("bash talk.sh", 0);
    CHECK_RAN(finish());
    return strdup(out());
}

// The text that generate_llama writes with `flags`; free() it.
static char *written(const char *flags, const char *more)
{
    char line[3000], train[TEST_PATH];
    snprintf(train, sizeof train, "%s", program);
    use_program("generate_llama");
    snprintf(line, sizeof line, "%s %s --prompt the --threads 1 %s", program, flags, more);
    snprintf(program, sizeof program, "%s", train);
    start_line(line, 0);
    CHECK_RAN(finish());
    return strdup(out());
}

// write/checkpoint-30 is an adapter of `base`: one rank and two write the same with it, which `base` does not, and
// merge_adapter says what stands in the way.
static void check_written(const char *base, const char *why, const char *more)
{
    char line[3000], train[TEST_PATH];
    snprintf(train, sizeof train, "%s", program);
    if (!use_program("merge_adapter")) return;
    snprintf(line, sizeof line, "%s --adapter write/checkpoint-30 --output_dir merged", program);
    snprintf(program, sizeof program, "%s", train);
    start_line(line, 0);
    CHECK(finish() > 0 && strstr(err(), why) && !exists("merged"), "%s", err());
    snprintf(line, sizeof line, "--model %s", base);
    char *one = written("--adapter write/checkpoint-30", more),
         *two = written("--adapter write/checkpoint-30 --ranks 2", more), *without = written(line, more);
    CHECK(!strcmp(one, two), "two texts: %s\n%s", one, two);
    CHECK(strcmp(one, without), "the base writes the same: %s", without);
    free(one), free(two), free(without);
}

// adapter_config.json has another hyperparameter than the run, and the manifest its hash. edit: of sed; keeps the
// bytes.
static void check_changed_config_of(const char *flags, const char *edit, const char *refusal)
{
    const char *const config = "edited/adapter_config.json";
    uint64_t before = 0, after = 0;
    int64_t bytes = 0;
    GxError e = GX_ZERO;
    if (!make_base()) return;
    CHECK_RAN(run(BASE "--output_dir to_edit --overwrite_output_dir true --max_steps 2 %s", flags));
    shell("rm -rf edited && cp -r to_edit/checkpoint-2 edited");
    gx_file_hash(config, &before, &bytes, &e);
    shell("sed -i '%s' %s", edit, config);
    gx_file_hash(config, &after, &bytes, &e);
    CHECK(!e.code && before != after, "\"%s\" changes nothing: %s", edit, e.message);
    shell("sed -i s/%016llx/%016llx/ edited/manifest.json", (unsigned long long)before, (unsigned long long)after);
    CHECK(run("--resume edited --output_dir from_edited --max_steps 3") > 0, "it went on");
    CHECK(strstr(err(), config) && strstr(err(), refusal), "%s", err());
}
__attribute__((unused)) static void check_changed_config(const char *edit, const char *refusal)
{
    check_changed_config_of("", edit, refusal);
}

// One byte of the base's weights is another one, and then they are not there.
static void check_changed_base(void)
{
    if (!make_base()) return;
    shell("cp -r base/checkpoint-8 other");
    CHECK_RAN(run(BASE "--model other --output_dir changed --max_steps 2"));
    shell("cd other && printf '\\125' | dd of=model.safetensors bs=1 seek=20001 conv=notrunc status=none && "
          "rm manifest.json");
    CHECK(run("--resume changed/checkpoint-2 --max_steps 3 --output_dir changed2") > 0, "it went on");
    CHECK(strstr(err(), "the weights of other are not those that changed/checkpoint-2 was trained on"), "%s", err());
    shell("rm -rf other");
    CHECK(run("--resume changed/checkpoint-2 --max_steps 3 --output_dir changed2") > 0 && strstr(err(), "other"), "%s",
          err());
}

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
    for (int i = is_brief(); i < 6; i += is_brief() ? 2 : 1) {
        snprintf(name, sizeof name, "many%d", i);
        check_way(flags, name, &serial, ways[i], i < 4 ? 1 : 2);
    }
}
#endif
