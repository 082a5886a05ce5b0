// test_train_plan.cu: plans in the programs (--plan, plan_split): planned runs train as serial ones, whatever the plan;
// ranks that are left out end; plans and measurements are kept, used again, and refused where they do not fit. See
// test/program.h. Plans as data are in test_planner.cu.
#include "test/program.h"

// Names of this machine's ranks in a plan.
static char host[200];

static void find_host(void)
{
    if (!host[0] && gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "unnamed");
}

// Writes a plan for `ranks` ranks on this machine. copies: the text of its copies, in which @0, @1, ... are ranks.
static void write_plan(const char *name, int samples, const char *mode, const char *copies, const char *left_out)
{
    FILE *f = fopen(name, "w");
    find_host();
    if (!CHECK(f != NULL, "%s cannot be written", name)) return;
    fprintf(f,
            "{\"format\": \"galaxy plan\", \"version\": 1, \"layers\": 2, \"samples\": %d, \"mode\": \"%s\", "
            "\"copies\": [",
            samples, mode);
    for (int text = 0; text < 2; text++) {
        for (const char *c = text ? left_out : copies; *c; c++) {
            if (*c != '@') {
                fputc(*c, f);
                continue;
            }
            const int rank = *++c - '0';
            fprintf(f, "\"machine\": \"%s", host);
            if (rank) fprintf(f, "-%d", rank);
            fprintf(f, "\", \"rank\": %d", rank);
        }
        fprintf(f, text ? "]}\n" : "], \"left_out\": [");
    }
    fclose(f);
}

#define SERIAL "--max_steps 3 --eval_steps 0 --micro_batch_size 2 --gradient_accumulation_steps 4"

static void check_as_serial(const char *what, const char *output_dir)
{
    const Log a = read_log("serial"), b = read_log(output_dir);
    if (!CHECK(a.steps == 3 && b.steps == 3, "%s: %d and %d steps", what, a.steps, b.steps)) return;
    check_close_series(what, b.loss, a.loss, 3, 1);
    check_close_series(what, b.grad_norm, a.grad_norm, 3, 1);
}

#define COPIES                                                                                                         \
    "{\"samples\": 5, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@0}]}]}, {\"samples\": 3, "        \
    "\"micro_batch\": 3, \"stages\": [{\"layers\": 2, \"ranks\": [{@1}]}]}"
#define RAGGED                                                                                                         \
    "{\"samples\": 8, \"micro_batch\": 2, \"stages\": [{\"layers\": 1, \"ranks\": ["                                   \
    "{@0, \"heads\": 3, \"columns\": 40, \"vocab\": 100}, {@2, \"heads\": 1, \"columns\": 24, \"vocab\": 156}]}, "     \
    "{\"layers\": 1, \"ranks\": [{@1}]}]}"

TEST(every_planned_run_trains_as_a_serial_one)
{
    static const struct {
        const char *name, *mode, *copies, *left_out, *says;
        int ranks;
    } plans[] = {
        {"copies", "tp", COPIES, "", "mode dp", 2},
        {"ragged", "tp", RAGGED, "", "pp 2 (1f1b, layers 1,1) x tp 2,1", 3},
        {"warm", "tp",
         "{\"samples\": 8, \"micro_batch\": 2, \"stages\": [{\"layers\": 1, \"warm\": 1, \"ranks\": [{@0}]}, "
         "{\"layers\": 1, \"ranks\": [{@1}]}]}",
         "", "pp 2 (1f1b, layers 1,1)", 2},
        {"galaxy", "galaxy",
         "{\"samples\": 8, \"micro_batch\": 4, \"stages\": [{\"layers\": 2, \"ranks\": [{@0, \"heads\": 1, "
         "\"columns\": "
         "20, \"vocab\": 56, \"rows\": 10}, {@1, \"heads\": 3, \"columns\": 44, \"vocab\": 200, \"rows\": 22}]}]}",
         "", "mode galaxy", 2},
        {"left_out", "tp",
         "{\"samples\": 2, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@0}]}]}, {\"samples\": 6, "
         "\"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@3}]}]}",
         "{@1}, {@2}", "mode dp", 4},
        {"alone", "tp", "{\"samples\": 8, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@0}]}]}",
         "{@1}", "mode serial", 2},
    };
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir serial --overwrite_output_dir %s", SERIAL));
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        if (is_brief() && i % 2 == 0) continue;
        write_plan("plan.json", 8, plans[i].mode, plans[i].copies, plans[i].left_out);
        CHECK_RAN(run("--output_dir %s --ranks %d --plan plan.json --max_steps 3 --eval_steps 0", plans[i].name,
                      plans[i].ranks));
        CHECK(strstr(out(), plans[i].says) != NULL, "%s: no \"%s\" in: %s", plans[i].name, plans[i].says, out());
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", plans[i].name, err());
        check_as_serial(plans[i].name, plans[i].name);
    }
}

TEST(a_planned_run_goes_on_on_other_machines_under_their_plan_or_none)
{
#define CONSTANT "--lr_scheduler_type constant --warmup_steps 0 --eval_steps 0"
    static const char *const ways[][2] = {
        {"--ranks 3 --plan others.json", "8 in 4 micro-batches"},
        {"--ranks 1", ""},
        {"--ranks 2 --mode tp", ""},
        {"--ranks 2 --plan less.json --rebalance off", "(2,6 in"}, // not those of the checkpoint
    };
    if (!use_program("train_llama")) return;
    write_plan("first.json", 8, "tp", COPIES, "");
    write_plan("others.json", 8, "tp", RAGGED, "");
    write_plan("less.json", 8, "tp",
               "{\"samples\": 2, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@0}]}]}, "
               "{\"samples\": 6, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@1}]}]}",
               "");
    CHECK_RAN(run("--output_dir whole --max_steps 4 --micro_batch_size 2 --gradient_accumulation_steps 4 " CONSTANT));
    const Log whole = read_log("whole");
    CHECK_RAN(run("--output_dir begun --ranks 2 --plan first.json --max_steps 2 " CONSTANT));
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char name[20];
        snprintf(name, sizeof name, "moved%d", (int)i);
        CHECK_RAN(run("--output_dir %s --resume begun/checkpoint-2 --global_batch_size 8 --max_steps 4 %s " CONSTANT,
                      name, ways[i][0]));
        const Log moved = read_log(name);
        CHECK(strstr(out(), ways[i][1]) != NULL, "%s: no \"%s\" in: %s", ways[i][0], ways[i][1], out());
        if (!CHECK(moved.steps == 2 && moved.step[0] == 3, "%s: %d steps", ways[i][0], moved.steps)) continue;
        check_close_series(ways[i][0], moved.loss, whole.loss + 2, 2, 1);
        check_close_series(ways[i][0], moved.grad_norm, whole.grad_norm + 2, 2, 1);
    }
}

TEST(a_run_that_was_measured_and_planned_trains_as_a_serial_one_and_keeps_its_plan)
{
    char copy[100];
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir serial --overwrite_output_dir %s", SERIAL));
    CHECK_RAN(run("--output_dir auto --ranks 2 --plan auto --global_batch_size 8 --max_steps 3 --eval_steps 0"));
    CHECK(strstr(out(), "measuring 2 ranks") && strstr(out(), "a step of 8 samples takes about"), "%s", out());
    check_as_serial("--plan auto", "auto");
    snprintf(copy, sizeof copy, "auto/checkpoint-3/plan.json");
    CHECK(exists("auto/plan.json") && exists("auto/machines.json") && same_file("auto/plan.json", copy),
          "the plan is not kept");
    CHECK_RAN(run("--output_dir again --ranks 2 --plan auto/plan.json --max_steps 3 --eval_steps 0"));
    check_as_serial("the plan that was kept", "again");
    CHECK_RAN(run("--output_dir auto --resume auto --ranks 1 --max_steps 4 --eval_steps 0"));
    CHECK(strstr(out(), "resumed from") != NULL, "%s", out());
}

// The other one measures for seconds more.
TEST(a_machine_that_disappears_while_it_is_measured_ends_the_others)
{
    static const char script[] =
        "#!/bin/sh\n\"$@\" --rank 1 >other.txt 2>&1 & other=$!\n\"$@\" --rank 0 >first.txt 2>&1 & first=$!\n"
        "while ! grep -q measuring first.txt && kill -0 $first; do sleep 0.05; done\nsleep 0.3; kill -9 $other\n"
        "wait $first; status=$?; cat first.txt >&2; exit $status\n";
    char line[2000];
    GxError e = GX_ZERO;
    if (!use_program("train_llama")) return;
    CHECK(gx_file_write("pair.sh", script, (int64_t)strlen(script), &e) == GX_OK && chmod("pair.sh", 0700) == 0, "%s",
          e.message);
    snprintf(line, sizeof line,
             "./pair.sh %s --config tiny.json --world 2 --init tcp://127.0.0.1:%d --plan auto --global_batch_size 8 "
             "--output_dir vanished",
             program, 20000 + (int)getpid() % 20000);
    start_line(line, 0);
    const int status = finish_within(30);
    CHECK(status == 1 && strstr(err(), "rank 1"), "status %d after %.1f s: %s", status, child.seconds, err());
    CHECK(!strstr(err(), "takes about") && !exists("vanished/log.jsonl"), "it trained: %s", err());
}

// Measurements of so many ranks, an earlier test's or new ones; then the program is train_llama.
static int have_measured(const char *folder, int ranks)
{
    char path[60];
    snprintf(path, sizeof path, "%s/machines.json", folder);
    if (!exists(path)) {
        if (!use_program("plan_split")) return 0;
        CHECK_RAN(run("--output_dir %s --ranks %d --global_batch_size 8", folder, ranks));
    }
    return CHECK(exists(path), "%s is not there", path) && use_program("train_llama");
}

TEST(plan_split_plans_machines_that_are_not_there_and_trains_nothing)
{
    if (!have_measured("auto", 2) || !use_program("plan_split")) return;
    CHECK_RAN(run("--output_dir one --global_batch_size 8"));
    CHECK(strstr(out(), "plan: one/plan.json") && strstr(out(), "what was measured: one/machines.json"), "%s", out());
    CHECK(exists("one/plan.json") && !exists("one/log.jsonl"), "plan_split trained");
    CHECK_RAN(run("--machines auto/machines.json --output_dir split2 --global_batch_size 8"));
    CHECK(strstr(out(), "a step of 8 samples takes about") && !strstr(out(), "memory plan"), "%s", out());
    static const Refusal refusals[] = {
        {"--machines one/machines.json --hidden_size 64", {"hidden_size", "measure"}},
        {"--machines nowhere.json", {"nowhere.json"}},
        {"--family cnn", {"--family is llama, bert or gpt2"}},
    };
    CHECK_REFUSALS(refusals);
}

// Copies measurements with the seconds of a clock of our own: what has FLOPs takes rate[machine] seconds for each,
// whatever its shape; other operations take next to nothing. bandwidth: of all links, bytes a second.
static void write_synthetic(const char *name, const char *measured, const double *rate, double bandwidth)
{
    FILE *f = fopen(name, "w");
    char *text = read_text(measured), *save = NULL, *line = strtok_r(text, "\n", &save);
    int machine = -1;
    if (!CHECK(f && line, "%s", measured)) return;
    for (; line; line = strtok_r(NULL, "\n", &save)) {
        double flops, bytes, seconds;
        int at = 0;
        const char *dims = strchr(line, ']');
        if (strstr(line, "\"operations\"")) machine++;
        if (strstr(line, "\"from\""))
            fprintf(f, "%.*s\"latency\": 1e-9, \"bandwidth\": %g}%s\n", (int)(strstr(line, "\"latency") - line), line,
                    bandwidth, strchr(line, '}') + 1);
        else if (dims && sscanf(dims, "], %lf, %lf, %lf%n", &flops, &bytes, &seconds, &at) == 3)
            fprintf(f, "%.*s], %.0f, %.0f, %.6g%s\n", (int)(dims - line), line, flops, bytes,
                    fmax(flops * rate[machine], 1e-10), dims + at);
        else fprintf(f, "%s\n", line);
    }
    fclose(f);
    free(text);
}

static void check_near(const char *what, double x, double expected)
{
    CHECK(fabs(x - expected) <= 0.01 * expected, "%s: %g s, expected %g", what, x, expected);
}

// Of a run, --profile_flops counts the FLOPs of each of its operations, on the device that computes nothing.
TEST(what_a_plan_foresees_is_what_the_run_computes_at_the_rates_of_a_clock_of_our_own)
{
    static const double rate[] = {2e-9, 6e-9};
    if (!have_measured("one", 1) || !have_measured("auto", 2)) return;
    CHECK_RAN(run("--dry_run --profile_flops 1 --micro_batch_size 2 --gradient_accumulation_steps 4"));
    const char *of_step = strstr(out(), "FLOPs of a step");
    const double flops = of_step ? number_behind(of_step, "FLOPs of a step      ") * 1e6 : -1;
    if (!CHECK(of_step && strchr(of_step, 'M') < strchr(of_step, ':'), "not in millions: %s", out())) return;
    const double rest = number_behind(of_step, "the rest ") * 1e3; // the optimizer's, which no division makes less
    write_synthetic("alone.json", "one/machines.json", rate, 1e15);
    CHECK_RAN(run("--dry_run --plan auto --machines alone.json --global_batch_size 8 --output_dir alone"));
    CHECK(strstr(out(), "a step of 8 samples takes about") != NULL, "%s", out());
    check_near("one rank", number_behind(out(), "a step of 8 samples takes about "), flops * rate[0]);
    CHECK_RAN(
        run("--simulate alone.json --micro_batch_size 2 --gradient_accumulation_steps 4 --output_dir simulation"));
    check_near("the simulator", number_behind(out(), "window "), flops * rate[0]);
    CHECK(!strstr(err(), "guessed"), "%s", err());
    shell("grep -v '\"attention_forward\"' alone.json > less.json");
    CHECK_RAN(run("--dry_run --plan auto --machines less.json --global_batch_size 8 --output_dir less"));
    CHECK(strstr(err(), "no times of attention_forward for machine") != NULL, "%s", err());
    write_synthetic("pair.json", "auto/machines.json", rate, 1e15); // rank 1 has 2 of 8 samples, and all of the rest
    CHECK_RAN(run("--dry_run --plan auto --machines pair.json --global_batch_size 8 --ranks 2 --output_dir pair"));
    CHECK(!strstr(err(), "in --machines"), "%s", err());
    CHECK(strstr(out(), "6 by") && strstr(out(), "2 by"), "%s", out());
    check_near("two ranks", number_behind(out(), "a step of 8 samples takes about "),
               ((flops - rest) * 0.25 + rest) * rate[1]);
    CHECK_RAN(run("--simulate pair.json --micro_batch_size 2 --gradient_accumulation_steps 4 --output_dir simulation"));
    check_near("two kinds, simulated", number_behind(out(), "window "), flops * rate[1]);
    shell(
        "sed 's/\"threads\": 1/\"threads\": 3/; s/-1\"/-x\"/; s/\"name\": \"'$(hostname)'\"/\"name\": \"elsewhere\"/; "
        "s/\"from\": \"'$(hostname)'\"/\"from\": \"elsewhere\"/; s/\"to\": \"'$(hostname)'\"/\"to\": "
        "\"elsewhere\"/' pair.json > moved.json");
    CHECK_RAN(run("--dry_run --plan auto --machines moved.json --global_batch_size 8 --ranks 2 --output_dir moved"));
    CHECK(strstr(err(), "the machine of rank 0 in --machines is elsewhere, but it was started on") &&
              strstr(err(), "was measured with 3 threads, but it has 1 now (--threads)") &&
              !strstr(err(), "the machine of rank 1 in --machines is"),
          "%s", err());
}

#define DEEP                                                                                                           \
    "--hidden_size 64 --intermediate_size 128 --num_hidden_layers 8 --max_steps 112 --eval_steps 0 --seq_len 32 "
#define SLOWLY "--lr_scheduler_type constant --warmup_steps 0 --learning_rate 1e-5 --global_batch_size 8 "

// The machines are said to be of different speeds, but both ranks are on this one.
TEST(a_run_whose_ranks_are_not_as_fast_as_they_were_measured_goes_on_under_another_plan)
{
    static const double rate[] = {2e-11, 8e-11};
    if (!use_program("plan_split")) return;
    CHECK_RAN(run(DEEP SLOWLY "--output_dir deep --ranks 2"));
    write_synthetic("unlike.json", "deep/machines.json", rate, 5e8);
    if (!use_program("train_llama")) return;
    CHECK_RAN(run(DEEP SLOWLY "--output_dir steady --micro_batch_size 2"));
    CHECK_RAN(run(DEEP SLOWLY "--output_dir replanned --ranks 2 --plan auto --machines unlike.json --save_steps 60"));
    const char *again = strstr(out(), "the run goes on under that one");
    if (!CHECK(again && strstr(again, "resumed from replanned/checkpoint-60"), "%s%s", err(), out())) return;
    CHECK(!strstr(err(), "the plan is wrong"), "%s", err());
    CHECK(!same_file("replanned/checkpoint-60/plan.json", "replanned/checkpoint-112/plan.json") &&
              same_file("replanned/plan.json", "replanned/checkpoint-112/plan.json"),
          "the plan is the same");
    const Log steady = read_log("steady"), replanned = read_log("replanned");
    if (!CHECK(steady.steps == replanned.steps && steady.steps > 60, "%d steps", replanned.steps)) return;
    check_close_series("another plan", replanned.loss, steady.loss, steady.steps, 1);
    CHECK_RAN(run(DEEP SLOWLY "--output_dir kept --ranks 2 --plan auto --machines unlike.json --save_steps 60 "
                              "--rebalance off"));
    CHECK(!strstr(out(), "the run goes on under that one"), "%s", out());
}

TEST(a_step_on_thousands_of_machines_is_predicted_from_the_measurements_of_one)
{
    if (!have_measured("one", 1)) return;
    FILE *f = fopen("many.json", "w");
    char *text = read_text("one/machines.json"), *at = strstr(text, "\"count\": 1");
    if (!CHECK(f && at, "no count in %s", text)) return;
    fprintf(f, "%.*s\"count\": 2048, \"per_host\": 8, \"same_host\": {\"latency\": 1e-5, \"bandwidth\": 1e11}%s",
            (int)(at - text), text, at + strlen("\"count\": 1"));
    fclose(f);
    shell("sed -i 's/\"links\": \\[/\"links\": [{\"from\": \"'$(hostname)'\", \"to\": \"'$(hostname)'\", \"latency\": "
          "2e-5, \"bandwidth\": 1e10}/' many.json");
    CHECK_RAN(run("--simulate many.json --output_dir simulated --pp 2 --gradient_accumulation_steps 4 "
                  "--micro_batch_size 2"));
    CHECK(strstr(out(), "2048 ranks: pp 2 x dp_replicate 1024") &&
              strstr(out(), "schedule: simulated/simulation.svg") && exists("simulated/simulation.svg"),
          "%s", out());
    CHECK_RAN(run("--simulate many.json --machines_count 10240 --output_dir simulated --pp 2 "
                  "--gradient_accumulation_steps 4 --micro_batch_size 2"));
    CHECK(strstr(out(), "10240 ranks: pp 2 x dp_replicate 5120"), "%s", out());
    static const Refusal refusals[] = {
        {"--simulate many.json --ranks 2", {"which one process does; it was started with 2 ranks"}},
        {"--simulate one/machines.json --pp 2", {"--pp 2 does not divide 1 rank"}},
        {"--simulate many.json --plan auto", {"--plan"}},
        {"--simulate many.json --trace t.json", {"--trace"}},
        {"--simulate many.json --profile_flops 1", {"--profile_flops", "--dry_run counts"}},
        {"--simulate many.json --pp 3", {"--pp 3 does not divide 2048 ranks"}},
        {"--simulate many.json --global_batch_size 7", {"--global_batch_size 7 is no multiple of"}},
        {"--simulate many.json --hidden_size 64", {"hidden_size"}},
    };
    CHECK_REFUSALS(refusals);
    free(text);
}

TEST(plans_that_do_not_fit_are_refused)
{
    static const char one[] = "{\"samples\": 8, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@0}]}]}";
    if (!use_program("train_llama")) return;
    CHECK_RAN(run("--output_dir shown --max_steps 1 --eval_steps 0"));
    write_plan("one.json", 8, "tp", one, "");
    write_plan("pair.json", 8, "tp", COPIES, "");
    write_plan("foo.json", 8, "foo", COPIES, "");
    write_plan("other.json", 8, "tp",
               "{\"samples\": 8, \"micro_batch\": 2, \"stages\": [{\"layers\": 1, \"ranks\": [{@1}]}, {\"layers\": 1, "
               "\"ranks\": [{@0}]}]}",
               "");
    write_plan(
        "differ.json", 8, "tp",
        "{\"samples\": 4, \"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@0, \"heads\": 3, \"columns\": "
        "32, \"vocab\": 128}, {@1, \"heads\": 1, \"columns\": 32, \"vocab\": 128}]}]}, {\"samples\": 4, "
        "\"micro_batch\": 2, \"stages\": [{\"layers\": 2, \"ranks\": [{@2, \"heads\": 2, \"columns\": 32, \"vocab\": "
        "128}, {@3, \"heads\": 2, \"columns\": 32, \"vocab\": 128}]}]}",
        "");
    CHECK_RAN(run("--output_dir two --ranks 2 --plan pair.json --max_steps 1 --eval_steps 0"));
    static const Refusal refusals[] = {
        {"--output_dir two --resume auto --ranks 3 --max_steps 2", {"a plan for 2 ranks, whose options do not fit 3"}},
        {"--trace t.json --plot_memory t.json", {"--trace and --plot_memory both write t.json"}},
        {"--plan differ.json --ranks 4", {"the plan's copies of the model differ"}},
        {"--machines any.json --ranks 2", {"--machines any.json", "--plan auto"}},
        {"--plan foo.json --ranks 2", {"\"foo\"", "none of"}},
        {"--plan auto --ranks 2 --stage_warm_list 1,0", {"--plan decides --stage_warm_list"}},
        {"--plan auto --ranks 2 --stage_tp_list 1,1", {"--plan decides --stage_tp_list"}},
        {"--plan one.json --ranks 2", {"rank 1 was started on the machine", "which the plan does not have"}},
        {"--plan one.json --num_hidden_layers 3", {"one.json is for 2 layers, but the model has 3"}},
        {"--plan one.json --global_batch_size 6", {"for steps of 8 samples, but --global_batch_size is 6"}},
        {"--plan one.json --tp 1", {"--plan decides --tp"}},
        {"--plan auto --ranks 2 --dp_batch_size_list 1,2", {"--plan decides --dp_batch_size_list"}},
        {"--plan auto --evaluate --resume auto --output_dir shown", {"--plan is for training"}},
        {"--plan nowhere.json", {"nowhere.json"}},
        {"--plan other.json --ranks 2", {"the plan does not begin with rank 0"}},
    };
    CHECK_REFUSALS(refusals);
}

int main(int argc, char **argv) { return program_main(argc, argv); }
