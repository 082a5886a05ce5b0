// test_train.cu: train_llama as its users meet it. See test/program.h.
#include "test/program.h"
#include "galaxy/run/help.h"
#include "galaxy/base/text.h"
#include "galaxy/run/processors.h"
#include <sys/ioctl.h>

// ---- it trains -----------------------------------------------------------------------------------------------------

// Well-formed enough: tags close in order, attributes are quoted, nothing stands open at the end. NULL, or what is
// wrong.
static const char *xml_error(const char *p)
{
    char open[20][32];
    int depth = 0, elements = 0;
    for (; *p; p++) {
        if (*p == '&' && strncmp(p, "&amp;", 5) && strncmp(p, "&lt;", 4) && strncmp(p, "&gt;", 4) &&
            strncmp(p, "&quot;", 6))
            return "a bare &";
        if (*p != '<') continue;
        int closing = p[1] == '/', n = 0, quotes = 0;
        char name[32];
        for (p += 1 + closing; n < 31 && *p && !strchr(" />\n", *p); p++) name[n++] = *p;
        name[n] = 0;
        if (n == 0) return "a tag without a name";
        for (; *p && (*p != '>' || quotes % 2); p++) {
            if (*p == '<') return "a < inside a tag";
            quotes += *p == '"';
            if (*p == '=' && quotes % 2 == 0 && p[1] != '"') return "an attribute without quotation marks";
        }
        if (!*p) return "a tag that does not end";
        elements++;
        if (closing && (depth == 0 || strcmp(open[--depth], name))) return "a closing tag that closes nothing";
        if (!closing && p[-1] != '/') {
            if (depth == 20) return "too deep";
            memcpy(open[depth++], name, sizeof name);
        }
    }
    return depth ? "an element that is not closed" : elements ? NULL : "no element";
}

static void check_svg(const char *path, int points)
{
    char *svg = read_text(path);
    const char *wrong = xml_error(svg), *line = strstr(svg, "<polyline"),
               *list = line ? strstr(line, " points=\"") : NULL;
    int commas = 0;
    CHECK(wrong == NULL, "%s: %s", path, wrong);
    for (const char *p = list ? list + 9 : ""; *p && *p != '"'; p++) commas += *p == ',';
    CHECK(strstr(svg, "<svg ") == svg && commas == points, "%s: a polyline of %d points, not %d", path, commas, points);
    free(svg);
}

TEST(it_trains_and_leaves_a_log_a_picture_and_a_whole_checkpoint)
{
    static const char *const files[] = {"config.json",           "manifest.json",     "model.safetensors",
                                        "optimizer.safetensors", "tokenizer.json",    "tokenizer_config.json",
                                        "trainer_state.json",    "training_args.json"};
    CHECK_RAN(run("--output_dir trains --max_steps 80 --learning_rate 1e-2 --eval_steps 40"));
    Log l = read_log("trains");
    CHECK(l.steps == 80 && l.bad == 0 && l.evals == 2 && l.baselines == 1,
          "%d steps, %d validations, %d baselines, %d unknown lines", l.steps, l.evals, l.baselines, l.bad);
    CHECK(fabs(l.loss[0] - log(256)) < 0.1, "the first loss is %g; of 256 equally likely bytes it would be %g",
          l.loss[0], log(256));
    CHECK(l.loss[79] < 0.5 * l.loss[0], "the loss went from %g to %g only", l.loss[0], l.loss[79]);
    CHECK(fabs(l.bits * log(2) - l.loss[79]) < 0.5, "validation has %g bits per byte, training ended at %g nats",
          l.bits, l.loss[79]);
    CHECK(l.bigram > 1 && l.bigram < 8, "a bigram model of %g bits per byte", l.bigram);
    check_svg("trains/loss.svg", 80);
    check_whole("trains/checkpoint-80");
    GxFolder list;
    GxError e = GX_ZERO;
    if (!CHECK(gx_folder_list(&list, "trains/checkpoint-80", &e) == GX_OK, "%s", e.message)) return;
    CHECK(list.n == 8, "%d files in the checkpoint", list.n);
    for (int i = 0; i < list.n && i < 8; i++)
        CHECK(!strcmp(list.entry[i].name, files[i]), "the checkpoint holds %s where %s was expected",
              list.entry[i].name, files[i]);
    gx_folder_close(&list);
    CHECK(count_not_finite("trains/checkpoint-80/model.safetensors") == 0, "weights are not finite");
}

TEST(the_written_sample_goes_on_from_the_prompt)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config sampling.json --output_dir sample --max_steps 1 --sample_prompt Hello",
             program);
    start_line(line, 0);
    CHECK_RAN(finish());
    CHECK(strstr(out(), "sample:\nHello"), "no sample in: %s", out());
}

// training_args.json holds what was resolved; given back, it is the same run.
TEST(training_args_give_the_same_run_again)
{
    static const struct {
        const char *name, *flags;
    } runs[] = {
        {"plain", ""},
        {"accumulated", "--global_batch_size 8 --gradient_accumulation_steps 2"},
        {"tied",
         "--tie_word_embeddings --optimizer sgd --learning_rate 0.5 --lr_scheduler_type wsd --lr_decay_steps 2"},
        {"ranks", "--ranks 2 --micro_batch_size 2"},
        {"unequal", "--ranks 2 --dp_batch_size_list 3,1"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i += is_brief() ? 3 : 1) {
        char line[4096], a[100], b[100];
        CHECK_RAN(run("--output_dir args_%s --max_steps 4 %s", runs[i].name, runs[i].flags));
        snprintf(line, sizeof line, "%s --config args_%s/training_args.json --output_dir again_%s", program,
                 runs[i].name, runs[i].name);
        start_line(line, 0);
        if (!CHECK(finish() == 0, "%s: %s", runs[i].name, err())) continue;
        snprintf(a, sizeof a, "args_%s/checkpoint-4", runs[i].name);
        snprintf(b, sizeof b, "again_%s/checkpoint-4", runs[i].name);
        check_same_checkpoint(a, b);
    }
}

TEST_UNSANITIZED(the_same_run_twice_gives_the_same_bits)
{
    static const char *const runs[] = {"--max_steps 5", "--max_steps 5 --optimizer sgd", "--max_steps 5 --ranks 2",
                                       "--max_steps 5 --ranks 3 --dp_batch_size_list 1,3,2",
                                       "--max_steps 5 --gradient_accumulation_steps 3"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char a[100], b[100];
        for (int twice = 0; twice < 2; twice++) CHECK_RAN(run("--output_dir same%d_%d %s", (int)i, twice, runs[i]));
        snprintf(a, sizeof a, "same%d_0/checkpoint-5", (int)i);
        snprintf(b, sizeof b, "same%d_1/checkpoint-5", (int)i);
        check_same_checkpoint(a, b);
    }
}

// The table's rows: their number, and their shares' sum, in percent; `rows` is changed.
static int profile_rows(char *rows, double *percent)
{
    int n = 0;
    *percent = 0;
    for (char *line = strtok(rows, "\n"); line; line = strtok(NULL, "\n")) {
        const char *end = strrchr(line, '%');
        if (strncmp(line, "  ", 2) || !end) continue;
        while (end > line && end[-1] != ' ') end--;
        *percent += atof(end), n++;
    }
    return n;
}

// A profile in the last run's output: it has these rows and at least `least`, whose shares make 100%.
static void check_profile(const char *from, const char *const names[2], int least)
{
    char *text = strdup(out()), *begin = strstr(text, from), *next = begin ? strstr(begin, "\nstep ") : NULL,
         *end = begin && !next ? strstr(begin, "\ndone: ") : next;
    double percent;
    if (CHECK(begin && end, "no profile \"%s\" before the last lines: %s", from, text)) {
        *end = 0;
        for (int i = 0; i < 2; i++) CHECK(strstr(begin, names[i]), "no %sin %s", names[i], begin);
        const int n = profile_rows(begin, &percent);
        CHECK(n >= least && fabs(percent - 100) < 1, "%d rows, together %g%%", n, percent);
    }
    free(text);
}

TEST(a_profile_names_operations_and_collectives_and_changes_no_bit)
{
    // Waiting for another rank may take nearly all of the time, so that no operation has a row of its own.
    static const char *const of_ranks[] = {"wait ", "all_reduce "}, *const of_one[] = {"linear_forward ", "attention_"};
    CHECK_RAN(run("--output_dir unprofiled --max_steps 5 --mode tp --ranks 2"));
    CHECK_RAN(run("--output_dir profiled --max_steps 5 --mode tp --ranks 2 --profile_steps 2"));
    check_same_checkpoint("unprofiled/checkpoint-5", "profiled/checkpoint-5");
    check_profile("of 2 steps: ", of_ranks, 3);
    CHECK_RAN(run("--output_dir short_profile --max_steps 3 --profile_steps 5"));
    check_profile("of 1 step: ", of_one, 4);
    CHECK_RAN(run("--output_dir no_profile --max_steps 2 --profile_steps 5"));
    CHECK(strstr(out(), "no profile: it begins with the third step, and this run had 2"), "%s", out());
}

TEST_UNSANITIZED(two_threads_give_the_same_bits_again)
{
    for (int i = 0; i < 2; i++) {
        char line[4096];
        snprintf(line, sizeof line, "%s --config threads.json --max_steps 5 --output_dir threads%d", program, i);
        start_line(line, 0);
        CHECK_RAN(finish());
    }
    check_same_checkpoint("threads0/checkpoint-5", "threads1/checkpoint-5");
}

// A whole checkpoint of 3 steps, made once; later tests copy it.
static const char *good_checkpoint(void)
{
    if (!exists("good/checkpoint-3")) CHECK_RAN(run("--output_dir good --max_steps 3 --save_steps 2"));
    return "good/checkpoint-3";
}

// ---- resuming ------------------------------------------------------------------------------------------------------

TEST(a_resumed_run_is_the_uninterrupted_one_bit_for_bit)
{
    static const Interruption cases[] = {
        {"adamw_serial_killed", "--optimizer adamw --micro_batch_size 4", SIGKILL},
        {"sgd_serial_stopped", "--optimizer sgd --learning_rate 0.3 --micro_batch_size 4", SIGTERM},
        {"adamw_ranks_stopped", "--optimizer adamw --ranks 2 --micro_batch_size 2", SIGINT},
        {"sgd_ranks_killed", "--optimizer sgd --learning_rate 0.3 --ranks 2 --dp_batch_size_list 3,1", SIGKILL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += is_brief() ? 3 : 1) check_resume(&cases[i]);
}

TEST(resume_auto_begins_anew_where_there_is_nothing_and_says_nothing_of_resuming)
{
    CHECK_RAN(run("--output_dir nothing_yet --max_steps 2 --resume auto"));
    CHECK(!strstr(out(), "resumed"), "%s", out());
    check_whole("nothing_yet/checkpoint-2");
}

// Each rank with a command line of its own.
static int run_pair(const char *first, const char *second)
{
    char line[4096];
    snprintf(line, sizeof line,
             "mpirun -np 1 %s --config tiny.json --max_steps 2 --output_dir differ %s : -np 1 %s --config tiny.json "
             "--max_steps 2 "
             "--output_dir differ %s",
             program, first, program, second);
    start_line(line, 0);
    return finish_within(30);
}

TEST(ranks_with_different_texts_or_options_are_refused_with_both_values)
{
    NEED_MPI();
#define TEN     "1234567890"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
    static const struct {
        const char *first, *second, *says;
    } pairs[] = {
        {"--train_data text.txt", "--train_data other.txt", "is a different text"},
        {"--train_data long_a.txt", "--train_data long_b.txt",
         "is a different text"}, // but for one byte in their middle
        {"--learning_rate 1e-3 --seed 5", "--learning_rate 2e-3", "--seed is 5 on rank 0 and 1234 on rank 1"},
        {"--optimizer sgd", "", "--optimizer is \"sgd\" on rank 0 and \"adamw\" on rank 1"},
        {"--sample_prompt " HUNDRED "a", "--sample_prompt " HUNDRED "b", "--sample_prompt is \"1234567890"},
        {"--dp_batch_size_list 3,1", "--dp_batch_size_list 1,3",
         "--dp_batch_size_list is [3,1] on rank 0 and [1,3] on rank 1"},
        {"--model good/checkpoint-3", "", "--model is \"a folder\" on rank 0 and not given on rank 1"},
        {"", "--model good/checkpoint-3", "--model is not given on rank 0 and \"a folder\" on rank 1"},
        {"", "--resume good/checkpoint-2", "--resume is not given on rank 0 and \"a folder\" on rank 1"},
        {"--resume auto", "", "--resume is \"auto\" on rank 0 and not given on rank 1"},
        {"--hidden_size 64", "", "--hidden_size is 64 on rank 0 and 32 on rank 1"},
        {"--model other_eps", "--model other_eps --rms_norm_eps 1e-5", // the default, so that the options are the same
         "--rms_norm_eps is 1e-05, but the model to load has 1e-06 in its other_eps/config.json"},
    };
    shell("rm -rf other_eps; cp -r %s other_eps; sed -i 's/1e-05/1e-06/' other_eps/config.json; rm "
          "other_eps/manifest.json",
          good_checkpoint());
    shell("tr a-z A-Z < text.txt > other.txt");
    shell("head -c 1600000 /dev/zero | tr '\\0' x > half.txt; for c in a b; do { cat half.txt; echo $c; cat half.txt; "
          "} > "
          "long_$c.txt; done");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const int status = run_pair(pairs[i].first, pairs[i].second);
        CHECK(status != 0 && status != TIMED_OUT && strstr(err(), pairs[i].says) && strstr(err(), "rank 1"),
              "status %d: %.400s", status, err());
    }
}

TEST(weights_and_moments_do_not_depend_on_the_topology)
{
    static const Topology cases[] = {
        {"ranks_to_serial", "adamw", "train_llama", "--ranks 2 --micro_batch_size 2", "train_llama",
         "--micro_batch_size 4", 0},
        {"serial_to_ranks", "adamw", "train_llama", "--micro_batch_size 4", "train_llama",
         "--ranks 3 --dp_batch_size_list 1,2,1", 0},
        {"sgd_to_serial", "sgd", "train_llama", "--ranks 2 --micro_batch_size 2", "train_llama", "--micro_batch_size 4",
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += is_brief() ? 2 : 1) check_topology(&cases[i]);
}

TEST(weights_and_moments_go_on_under_mpi)
{
    static const Topology mpi = {"serial_to_mpi",        "adamw", "train_llama", "--micro_batch_size 4", "train_llama",
                                 "--micro_batch_size 2", 2};
    NEED_MPI();
    check_topology(&mpi);
}

// ---- topologies ----------------------------------------------------------------------------------------------------

TEST_UNSANITIZED(threads_and_mpi_give_the_same_bits)
{
    static const char *const splits[] = {"--micro_batch_size 2", "--dp_batch_size_list 3,1",
                                         "--dp_batch_size_list 1,3 --optimizer sgd --gradient_accumulation_steps 2"};
    NEED_MPI();
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        char flags[1000], a[100], b[100];
        CHECK_RAN(run("--output_dir ranks%d --max_steps 4 --ranks 2 %s", (int)i, splits[i]));
        snprintf(flags, sizeof flags, "--output_dir mpi%d --max_steps 4 %s", (int)i, splits[i]);
        CHECK_RAN(run_mpi(2, flags));
        snprintf(a, sizeof a, "ranks%d/checkpoint-4", (int)i);
        snprintf(b, sizeof b, "mpi%d/checkpoint-4", (int)i);
        check_same_checkpoint(a, b);
    }
}

// The same samples, differently divided, by SGD (AdamW turns rounding noise in gradients near zero into steps of lr).
TEST_UNSANITIZED(divided_samples_give_the_undivided_losses)
{
    static const struct {
        const char *name, *flags;
    } ways[] = {
        {"undivided", "--micro_batch_size 4"},
        {"unequal ranks", "--ranks 2 --dp_batch_size_list 3,1"},
        {"three ranks", "--ranks 3 --dp_batch_size_list 1,2,1"},
        {"accumulation", "--micro_batch_size 2 --gradient_accumulation_steps 2"},
        {"accumulation on ranks", "--ranks 2 --micro_batch_size 1 --gradient_accumulation_steps 2"},
        {"one by one", "--micro_batch_size 1 --global_batch_size 4"},
    };
    Log serial;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char dir[100];
        snprintf(dir, sizeof dir, "divided%d", (int)i);
        CHECK_RAN(run("--output_dir %s --max_steps 4 --optimizer sgd --learning_rate 0.5 %s", dir, ways[i].flags));
        Log l = read_log(dir);
        if (i == 0) serial = l;
        CHECK(l.steps == 4 && serial.steps == 4, "%s: %d and %d steps", ways[i].name, l.steps, serial.steps);
        check_close_series(ways[i].name, l.loss, serial.loss, 4, 1);
        check_close_series(ways[i].name, l.grad_norm, serial.grad_norm, 4, 1);
        CHECK(fabs(l.bits - serial.bits) < 1e-4, "%s: %g bits per byte on the held-out text, not %g", ways[i].name,
              l.bits, serial.bits);
    }
}

// ---- layers computed again -----------------------------------------------------------------------------------------

TEST_UNSANITIZED(layers_that_are_computed_again_give_the_same_bits)
{
    static const char *const ways[] = {"--micro_batch_size 4", "--gradient_accumulation_steps 3 --micro_batch_size 2",
                                       "--ranks 2 --dp_batch_size_list 3,1", "--precision bf16",
                                       "--freeze *.layers.0.*"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char a[100], b[100];
        CHECK_RAN(run("--output_dir kept%d --max_steps 4 %s", (int)i, ways[i]));
        CHECK_RAN(run("--output_dir again%d --max_steps 4 --recompute layer %s", (int)i, ways[i]));
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", ways[i], err());
        snprintf(a, sizeof a, "kept%d/checkpoint-4", (int)i);
        snprintf(b, sizeof b, "again%d/checkpoint-4", (int)i);
        check_same_checkpoint(a, b);
        CHECK_RAN(run("--output_dir some%d --max_steps 4 --recompute %s %s", (int)i, i % 2 ? "mlp:0,layer:1" : "att:1",
                      ways[i]));
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", ways[i], err());
        snprintf(b, sizeof b, "some%d/checkpoint-4", (int)i);
        check_same_checkpoint(a, b);
    }
}

// Without, each layer keeps more than its input: q, k, v and attention's result, the stream between its pairs, gate and
// up, at least.
TEST(layers_that_are_computed_again_take_less_memory_and_more_flops)
{
    enum { LAYERS = 12, C = 64, KV = 32, F = 128, T = 32, B = 8 };
    const double saved = 4e-6 * T * B * (C + 2 * KV + C + C + 2 * F) * (LAYERS - 1);
    char flags[300];
    snprintf(flags, sizeof flags,
             "--dry_run --hidden_size %d --intermediate_size %d --num_hidden_layers %d --micro_batch_size %d", C, F,
             LAYERS, B);
    CHECK_RAN(run("%s", flags));
    const double kept = number_behind(out(), "activations "), flops = number_before(out(), "GFLOP per step");
    CHECK_RAN(run("--recompute layer %s", flags));
    const double again = number_behind(out(), "activations "), more = number_before(out(), "GFLOP per step");
    CHECK(kept - again >= saved, "activations take %.1f MB, with --recompute layer %.1f MB: less by %.1f at least",
          kept, again, saved);
    CHECK(more > 1.2 * flops && more < 1.34 * flops, "%.2f GFLOP, with --recompute layer %.2f", flops, more);
}

// ---- frozen tensors ------------------------------------------------------------------------------------------------

// Round to nearest, ties to even.
static float rounded_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

static float *read_tensor(const GxSafetensors *s, const GxSafetensorsEntry *e)
{
    GxError error = GX_ZERO;
    float *x = (float *)malloc((size_t)e->elements * sizeof *x);
    CHECK(gx_safetensors_read(s, e, 0, e->elements, x, &error) == GX_OK, "%s", error.message);
    return x;
}

// Of a run that began with the weights of `before`: tensors whose name contains one of the words (separated by commas)
// are what they were, bit for bit, and have no moments; all others were trained.
static void check_frozen(const char *before, const char *after, const char *words, int is_bf16)
{
    GxSafetensors a, b, moments;
    GxError e = GX_ZERO;
    char path[TEST_PATH];
    int frozen = 0;
    snprintf(path, sizeof path, "%s/optimizer.safetensors", after);
    if (!CHECK(gx_safetensors_open(&a, before, &e) == GX_OK && gx_safetensors_open(&b, after, &e) == GX_OK &&
                   gx_safetensors_open(&moments, path, &e) == GX_OK,
               "%s", e.message))
        return;
    CHECK(a.n == b.n, "%d tensors, before %d", b.n, a.n);
    for (int i = 0; i < a.n; i++) {
        const GxSafetensorsEntry *old = &a.entry[i], *now_is = gx_safetensors_find(&b, old->name);
        char list[200], name[200], *word[8];
        int is_frozen = 0;
        long same = 0;
        snprintf(list, sizeof list, "%s", words);
        for (char *c = list; *c; c++) *c = *c == ',' ? ' ' : *c;
        for (int k = cut_words(list, word, 8); k-- > 0;) is_frozen |= strstr(old->name, word[k]) != NULL;
        if (!CHECK(now_is && now_is->elements == old->elements, "%s: no such tensor", old->name)) continue;
        float *x = read_tensor(&a, old), *y = read_tensor(&b, now_is);
        for (long k = 0; k < old->elements; k++) same += y[k] == (is_frozen && is_bf16 ? rounded_to_bf16(x[k]) : x[k]);
        snprintf(name, sizeof name, "exp_avg_sq.%.150s", old->name);
        const int has_moments = gx_safetensors_find(&moments, name) != NULL;
        CHECK(is_frozen ? same == old->elements && !has_moments : same < old->elements && has_moments,
              "%s of %s: %ld of %ld values are the same, %s moments", old->name, after, same, (long)old->elements,
              has_moments ? "and it has" : "and no");
        frozen += is_frozen;
        free(x);
        free(y);
    }
    CHECK(frozen > 0 && frozen < a.n, "%d of %d tensors were frozen", frozen, a.n);
    gx_safetensors_close(&a), gx_safetensors_close(&b), gx_safetensors_close(&moments);
}

TEST(frozen_tensors_stay_as_they_are_bit_for_bit_and_the_others_are_trained)
{
    static const struct {
        const char *flags, *words; // in the names of those that are frozen
    } cases[] = {
        {"--freeze model.embed_tokens.weight", "embed_tokens"},
        {"--freeze *.layers.0.*", "layers.0."},
        {"--freeze model.embed_tokens*,*.layers.0.*", "embed_tokens,layers.0."},
        {"--freeze model.norm*,lm_head*", "model.norm,lm_head"},
        {"--freeze *norm*,*q_proj*,*up_proj*", "norm,q_proj,up_proj"},
        {"--freeze *.layers.*", "layers"},
        {"--freeze *k_proj*,*.layers.1.mlp.* --precision bf16", "k_proj,layers.1.mlp"},
        {"--freeze *k_proj*,*.layers.1.mlp.* --ranks 2 --dp_batch_size_list 1,3", "k_proj,layers.1.mlp"},
        {"--freeze *mlp*,model.embed_tokens* --ranks 3 --mode tp", "mlp,embed_tokens"},
        {"--freeze *mlp*,model.embed_tokens* --ranks 3 --mode tp --precision bf16", "mlp,embed_tokens"},
        {"--freeze *layernorm*,lm_head* --ranks 4 --tp 2 --mode galaxy", "layernorm,lm_head"},
        {"--freeze *self_attn*,*.layers.0.mlp* --ranks 2 --mode galaxy2", "self_attn,layers.0.mlp"},
        {"--freeze model.embed_tokens*,*v_proj* --ranks 2 --mode sp --precision bf16", "embed_tokens,v_proj"},
    };
    const char *good = good_checkpoint();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += is_brief() ? 4 : 1) {
        char path[100];
        CHECK_RAN(
            run("--model %s --output_dir frozen%d --max_steps 2 --warmup_steps 0 %s", good, (int)i, cases[i].flags));
        CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", cases[i].flags, err());
        snprintf(path, sizeof path, "frozen%d/checkpoint-2", (int)i);
        check_frozen(good, path, cases[i].words, strstr(cases[i].flags, "bf16") != NULL);
    }
}

// The same samples, differently divided, and in every mode: see divided_samples_give_the_undivided_losses. The lists of
// what is frozen take turns.
TEST_UNSANITIZED(frozen_tensors_leave_the_losses_alike_however_the_model_is_split)
{
    static const char *const ways[] = {"--micro_batch_size 4",
                                       "--ranks 2 --dp_batch_size_list 3,1",
                                       "--micro_batch_size 2 --gradient_accumulation_steps 2 --recompute layer",
                                       "--ranks 2 --micro_batch_size 4 --mode tp",
                                       "--ranks 2 --micro_batch_size 4 --mode sp",
                                       "--ranks 3 --micro_batch_size 4 --mode galaxy",
                                       "--ranks 2 --micro_batch_size 4 --mode galaxy2"};
    static const char *const frozen[] = {"*mlp*,model.embed_tokens*,*.layers.0.*", "*norm*,*v_proj*,lm_head*"};
    for (int f = 0; f < 2; f++) {
        Log serial;
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            char dir[100];
            if (i && !test_long() && (int)i % 2 != f) continue;
            snprintf(dir, sizeof dir, "frozen_way%d_%d", f, (int)i);
            CHECK_RAN(run("--output_dir %s --max_steps 4 --optimizer sgd --learning_rate 0.5 --freeze %s %s", dir,
                          frozen[f], ways[i]));
            const Log l = read_log(dir);
            if (i == 0) serial = l;
            CHECK(l.steps == 4 && serial.steps == 4, "%s: %d and %d steps", ways[i], l.steps, serial.steps);
            check_close_series(ways[i], l.loss, serial.loss, 4, 1);
            check_close_series(ways[i], l.grad_norm, serial.grad_norm, 4, 1);
        }
    }
}

// Frozen tensors cost their weights: no gradients, no moments, no weight gradients computed; and below the lowest
// trained tensor there is no backward at all.
TEST(frozen_tensors_have_no_gradients_and_no_moments_in_the_plan)
{
    enum { LAYERS = 4, C = 256, KV = 128, F = 688, V = 8192 };
    const double layer = 2.0 * C * C + 2.0 * C * KV + 3.0 * C * F + 2.0 * C, ends = (double)C * V;
    static const struct {
        const char *flags;
        double layers, ends; // that are trained, of LAYERS and 2
        int adamw;
    } cases[] = {{"", LAYERS, 2, 1},
                 {"--freeze model.embed_tokens*", LAYERS, 1, 1},
                 {"--freeze model.embed_tokens*,*.layers.0.*,*.layers.1.*", 2, 1, 1},
                 {"--freeze *.layers.* --optimizer sgd", 0, 2, 0},
                 {"--freeze *.layers.* --precision bf16", 0, 2, 1}};
    double flops[5];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[4096];
        const int is_bf16 = strstr(cases[i].flags, "bf16") != NULL;
        snprintf(line, sizeof line, "%s --config middle.json --dry_run --micro_batch_size 2 %s", program,
                 cases[i].flags);
        start_line(line, 0);
        CHECK_RAN(finish());
        const double trained = cases[i].layers * layer + cases[i].ends * ends + C, mb = 4 * trained / 1e6; // the norm
        const double all = LAYERS * layer + 2 * ends + C;
        const double weights = number_behind(out(), "weights "), grads = number_behind(out(), "gradients "),
                     optimizer = number_behind(out(), "optimizer ");
        flops[i] = number_before(out(), "GFLOP per step");
        CHECK(fabs(weights - (is_bf16 ? 2 : 4) * all / 1e6) < 0.1, "%s: %.1f MB of weights", cases[i].flags, weights);
        CHECK(fabs(grads - mb) < 0.1, "%s: %.1f MB of gradients, not %.1f", cases[i].flags, grads, mb);
        CHECK(fabs(optimizer - (is_bf16 + 1 + cases[i].adamw) * mb) < 0.1,
              "%s: %.1f MB for the optimizer, not for %d values of %.1f MB", cases[i].flags, optimizer,
              is_bf16 + 1 + cases[i].adamw, mb);
    }
    CHECK(flops[1] < flops[0] && flops[2] < 0.85 * flops[0] && flops[3] < 0.85 * flops[0],
          "%.2f GFLOP; %.2f, %.2f and %.2f with frozen tensors", flops[0], flops[1], flops[2], flops[3]);
}

TEST(a_resumed_run_with_frozen_tensors_is_the_uninterrupted_one_bit_for_bit)
{
    static const char *const ways[] = {
        "--freeze *mlp*,model.embed_tokens*", "--freeze *.layers.0.* --optimizer sgd --learning_rate 0.3",
        "--freeze *norm*,lm_head* --precision bf16", "--freeze *k_proj*,lm_head* --ranks 2 --mode tp --precision bf16"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += is_brief() ? 3 : 1) {
        char a[100], b[100];
        CHECK_RAN(
            run("--output_dir frozen_whole%d --max_steps 6 --save_steps 3 --micro_batch_size 2 %s", (int)i, ways[i]));
        CHECK_RAN(run("--output_dir frozen_half%d --max_steps 6 --micro_batch_size 2 --resume "
                      "frozen_whole%d/checkpoint-3 %s",
                      (int)i, (int)i, ways[i]));
        snprintf(a, sizeof a, "frozen_whole%d/checkpoint-6", (int)i);
        snprintf(b, sizeof b, "frozen_half%d/checkpoint-6", (int)i);
        check_same_checkpoint(a, b);
    }
}

// What was frozen has no moments to go on with. The other way round there is nothing missing.
TEST(a_resumed_run_that_trains_what_was_frozen_is_refused_and_one_that_freezes_more_goes_on)
{
    static const Refusal cases[] = {
        {"--resume cold/checkpoint-2 --freeze=",
         {"cold/checkpoint-2 was trained with model.layers.0.mlp.gate_proj.weight frozen", "resume with the same",
          "--model"}},
        {"--resume cold/checkpoint-2 --freeze *self_attn*", {"mlp.gate_proj.weight frozen", "--freeze", NULL}},
        {"--resume cold/checkpoint-2 --freeze *gate_proj* --ranks 2 --mode tp", {"mlp.up_proj.weight frozen", NULL}},
    };
    CHECK_RAN(run("--output_dir cold --max_steps 2 --freeze *mlp*"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start("--max_steps 4 --output_dir warm %s", cases[i].flags);
        finish_within(20);
        check_refused(&cases[i]);
    }
    CHECK(!exists("warm"), "a refused run left a folder");
    CHECK_RAN(run("--output_dir colder --max_steps 4 --resume cold/checkpoint-2 --freeze *mlp*,*self_attn*"));
    check_frozen("cold/checkpoint-2", "colder/checkpoint-4", "mlp,self_attn", 0);
    CHECK_RAN(run("--output_dir warm --max_steps 4 --model cold/checkpoint-2"));
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(flags_that_are_wrong_are_refused_with_what_would_be_right)
{
    static const Refusal cases[] = {
        {"--learning_rat 1", {"--learning_rat;", "did you mean --learning_rate?", NULL}},
        {"--zzzzzzzzzzzz 1", {"no option --zzzzzzzzzzzz", "--help", NULL}},
        {"bareword", {"\"bareword\" is not an option", "--help", NULL}},
        {"--seq_len ten", {"--seq_len is \"ten\"", "an integer", NULL}},
        {"--seq_len 1.5", {"--seq_len is \"1.5\"", "an integer", NULL}},
        {"--seq_len 0", {"--seq_len is \"0\"", "expected an integer", NULL}},
        {"--seq_len", {"--seq_len needs a value", NULL, NULL}},
        {"--learning_rate nan", {"--learning_rate is \"nan\"", "a number, at least 0", NULL}},
        {"--learning_rate inf", {"--learning_rate is \"inf\"", NULL, NULL}},
        {"--learning_rate -1", {"--learning_rate is \"-1\"", "at least 0", NULL}},
        {"--adam_beta1 1", {"--adam_beta1", "from 0 to 0.999999", NULL}},
        {"--optimizer adam", {"--optimizer is \"adam\"", "one of adamw|sgd", NULL}},
        {"--precision fp8", {"--precision", "fp32", NULL}},
        {"--device cpu --tf32", {"--tf32 needs fp32 on a card", "device cpu in fp32", NULL}},
        {"--recompute all", {"--recompute is \"all\"", "one of none|att|mlp|att+mlp|layer|auto", NULL}},
        {"--freeze *.layers.7.*", {"no tensor is called \"*.layers.7.*\"", "names are like model.layers.", NULL}},
        {"--freeze lm_head*,embed*", {"no tensor is called \"embed*\"", "* stands for anything", NULL}},
        {"--freeze lm_head*,,model.norm*", {"no tensor is called \"\"", NULL, NULL}},
        {"--freeze *", {"every tensor of the model is frozen", "nothing to train", NULL}},
        {"--freeze model.*,lm_head*", {"every tensor of the model is frozen", NULL, NULL}},
        {"--freeze model.layers*,model.norm*,lm_head* --tie_word_embeddings", {"every tensor", "is frozen", NULL}},
        {"--ranks 257", {"--ranks is \"257\"", "from 1 to 256", NULL}},
        {"--dp_batch_size_list 3,x", {"--dp_batch_size_list", "each from 1 to 16777216, such as 3,1", NULL}},
        {"--warmup_steps 3", {"warmup_steps (3)", "max_steps (2)", NULL}},
        {"--lr_scheduler_type wsd --lr_decay_steps 9", {"lr_decay_steps", "max_steps (2)", NULL}},
    };
    CHECK_REFUSALS(cases);
}

TEST(configurations_that_are_wrong_are_refused_by_file_and_key)
{
    static const struct {
        const char *json;
        const char *words[2];
    } cases[] = {
        {"{\"learning_rat\": 1}", {"wrong.json", "did you mean learning_rate?"}},
        {"{\"seq_len\": \"32\"}", {"wrong.json: seq_len is \"32\"", "an integer"}},
        {"{\"seq_len\": 32", {"wrong.json:1:14", "near end of file"}},
        {"{\"seed\": 1, \"seed\": 2}", {"wrong.json", "seed"}},
        {"[]", {"wrong.json holds an array", "an object"}},
        {"", {"wrong.json", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[4096];
        GxError e = GX_ZERO;
        Refusal r = {cases[i].json, {cases[i].words[0], cases[i].words[1], NULL}};
        CHECK(gx_file_write("wrong.json", cases[i].json, (int64_t)strlen(cases[i].json), &e) == GX_OK, "%s", e.message);
        snprintf(line, sizeof line, "%s --config wrong.json --max_steps 2", program);
        start_line(line, 0);
        finish_within(20);
        check_refused(&r);
    }
}

TEST(texts_that_cannot_be_trained_on_are_refused_by_path)
{
    static const struct {
        const char *text;
        Refusal r;
    } cases[] = {
        {"missing.txt", {"", {"missing.txt", "No such file", "`make data` makes data/text.txt"}}},
        {"short.txt", {"--validation_fraction 0", {"short.txt", "20 bytes", "needs 33"}}},
        {"empty.txt", {"", {"empty.txt is empty", NULL, NULL}}},
        {"text.txt/x", {"", {"text.txt/x", "Not a directory", NULL}}},
        {"pipe.txt", {"", {"pipe.txt", "regular file", NULL}}},
        {"pipe.json", {"", {"pipe.json", "regular file", NULL}}},
        {"/dev/zero", {"", {"/dev/zero", "regular file", NULL}}},
        {"blank",
         {"", {"there is no text in blank", "expected .txt, or another text file; .jsonl, .csv or .tsv", NULL}}},
        {"text.txt", {"--seq_len 2000 --validation_fraction 0.001", {"held out", "validation_fraction", NULL}}},
    };
    GxError e = GX_ZERO;
    CHECK(gx_folder_make("blank", &e) == GX_OK, "%s", e.message);
    CHECK(gx_file_write("short.txt", "twenty bytes of text", 20, &e) == GX_OK &&
              gx_file_write("empty.txt", "", 0, &e) == GX_OK,
          "%s", e.message);
    if (!exists("pipe.txt"))
        CHECK(mkfifo("pipe.txt", 0600) == 0 && mkfifo("pipe.json", 0600) == 0, "no named pipe: %s", strerror(errno));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start("--max_steps 2 --output_dir refused --train_data %s %s", cases[i].text, cases[i].r.flags);
        finish_within(20);
        check_refused(&cases[i].r);
    }
    CHECK(!exists("refused"), "a refused run left a folder");
    // where a text's source may be told stands a pipe
    shell("cp text.txt told.txt; test -p told.txt.source || mkfifo told.txt.source");
    start("--max_steps 1 --output_dir told --train_data told.txt --dry_run");
    CHECK(finish_within(20) == 0, "%s", err());
}

TEST(models_and_batches_that_do_not_fit_are_refused_with_their_numbers)
{
    static const Refusal cases[] = {
        {"--num_attention_heads 3 --num_key_value_heads 3", {"hidden_size (32)", "num_attention_heads (3)", NULL}},
        {"--num_key_value_heads 3", {"num_key_value_heads", "3", "4"}},
        {"--head_dim 7", {"head_dim", "7", "even"}},
        {"--vocab_size 255", {"vocab_size is 255", "256", NULL}},
        {"--seq_len 64 --max_position_embeddings 32",
         {"longer than the 32 positions that the model has", "set --seq_len to at most that", "of a new model"}},
        {"--global_batch_size 6 --micro_batch_size 4", {"global_batch_size 6", "4", "are 4 and 8"}},
        {"--global_batch_size 6 --ranks 4",
         {"the smallest that fits is 32", "--dp_batch_size_list 2,2,1,1 divides it unequally\n", NULL}},
        {"--global_batch_size 33 --ranks 3 --micro_batch_size 4",
         {"--dp_batch_size_list 4,4,3 --gradient_accumulation_steps 3 divides it unequally, without --micro_batch_size",
          NULL, NULL}},
        {"--global_batch_size 7 --ranks 3 --gradient_accumulation_steps 2",
         {"nearest that fit are 6 and 12\n", NULL, NULL}},
        {"--help=1", {"--help=1: --help takes no value; leave out \"=1\"", NULL, NULL}},
        {"--version=yes", {"--version takes no value", NULL, NULL}},
        {"--global_batch_size 8 --micro_batch_size 4 --gradient_accumulation_steps 3",
         {"global_batch_size 8", "= 12", NULL}},
        {"--ranks 2 --dp_batch_size_list 3,1 --micro_batch_size 2",
         {"micro_batch_size and dp_batch_size_list", NULL, NULL}},
        {"--ranks 2 --dp_batch_size_list 3,1,1", {"dp_batch_size_list", "3", "2"}},
        {"--ranks 2 --dp_batch_size_list 3,0", {"dp_batch_size_list is \"3,0\"", "integers", NULL}},
        {"--dp_batch_size_list 3,1", {"dp_batch_size_list", "2", "1"}},
        {"--sliding_window 4", {"sliding_window is 4", "a llama has no sliding window", NULL}},
        {"--model_type qwen2 --sliding_window 4 --layer_types s",
         {"layer_types is \"s\"", "s (sliding window)", "or f"}},
        {"--rope_factor 4", {"rope_factor is 4", "belongs to rope_type linear|dynamic|yarn|llama3", NULL}},
        {"--rope_theta 0", {"rope_theta", "at least 1e-06", NULL}},
        {"--model_type phi3 --rope_type linear --rope_factor 4",
         {"rope_type is linear", "of a phi3 only default", NULL}},
    };
    CHECK_REFUSALS(cases);
}

// What cannot be held is refused from the plan, before memory is taken; numbers beyond 64 bits are refused as such and
// not after they wrapped around.
TEST(plans_that_cannot_be_are_refused_at_once_and_in_little_memory)
{
    static const Refusal cases[] = {
        {"--hidden_size 65536", {"the plan needs", "MB left", "smaller"}},
        {"--micro_batch_size 10000000", {"the plan needs", "samples per micro-batch would fit", NULL}},
        {"--micro_batch_size 1000000000000", {"micro_batch_size", NULL, NULL}},
        {"--micro_batch_size 9000000000000000000", {"micro_batch_size", NULL, NULL}},
        {"--hidden_size 9000000000000000000", {"hidden_size", NULL, NULL}},
        {"--hidden_size 4000000000", {"hidden_size", NULL, NULL}},
        {"--intermediate_size 4611686018427387904", {"intermediate_size", NULL, NULL}},
        {"--vocab_size 9000000000000000000", {"vocab_size", NULL, NULL}},
        {"--head_dim 9000000000000000002", {"head_dim", NULL, NULL}},
        {"--num_hidden_layers 2147483649", {"num_hidden_layers", "2147483649", NULL}},
        {"--micro_batch_size 10000000 --seq_len 1000 --max_position_embeddings 1000",
         {"micro_batch_size", "seq_len", NULL}},
        {"--gradient_accumulation_steps 1000000000000", {"gradient_accumulation_steps", NULL, NULL}},
        {"--ranks 2 --dp_batch_size_list 9223372036854775807,9223372036854775807",
         {"dp_batch_size_list", "9223372036854775807", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start("--max_steps 2 --output_dir too_large %s", cases[i].flags);
        finish_within(10);
        check_refused(&cases[i]);
        CHECK(child.peak_kb < 400 << 10 || is_sanitized, "%s: it took %ld MB first", cases[i].flags,
              child.peak_kb >> 10);
    }
    CHECK(!exists("too_large"), "a refused run left a folder");
}

// ---- folders that are not what they should be ----------------------------------------------------------------------

TEST(folders_to_resume_from_are_verified)
{
    static const struct {
        const char *damage;
        Refusal r;
    } cases[] = {
        {"rm -r bad", {"--resume bad", {"there is no folder bad", "--resume needs auto", NULL}}},
        {"truncate -s 100000 bad/model.safetensors", {"--resume bad", {"bad", "damaged", "model.safetensors"}}},
        {"truncate -s 100000 bad/optimizer.safetensors", {"--resume bad", {"bad", "damaged", "optimizer.safetensors"}}},
        {"printf X | dd of=bad/model.safetensors bs=1 seek=100000 conv=notrunc 2>/dev/null",
         {"--resume bad", {"bad", "damaged", "hash"}}},
        {"printf X | dd of=bad/trainer_state.json bs=1 seek=30 conv=notrunc 2>/dev/null",
         {"--resume bad", {"bad", "damaged", "trainer_state.json"}}},
        {"rm bad/manifest.json", {"--resume bad", {"bad has no manifest.json", "never finished", "--resume auto"}}},
        {"rm bad/optimizer.safetensors", {"--resume bad", {"bad", "damaged", "optimizer.safetensors"}}},
        {"true", {"--resume bad --optimizer sgd", {"adamw", "sgd", "--model"}}},
        {"true", {"--resume bad --seed 7", {"seed", "--model", NULL}}},
        {"true", {"--resume bad --model bad", {"--model", "--resume", NULL}}},
        {"true",
         {"--resume bad --vocab_size 300", {"--vocab_size is 300", "has 256 in its bad/config.json", "leave out"}}},
        {"rm -r bad; mkdir bad; echo hello >bad/notes.txt", {"--resume bad", {"bad has no manifest.json", NULL, NULL}}},
        {"rm -r bad; echo hello >bad", {"--resume bad", {"there is no folder bad", NULL, NULL}}},
        {"truncate -s 100000 bad/model.safetensors",
         {"--model bad", {"bad is damaged: model.safetensors has 100000 bytes", "on purpose", "bad/manifest.json"}}},
        {"printf X | dd of=bad/model.safetensors bs=1 seek=100000 conv=notrunc 2>/dev/null",
         {"--model bad", {"bad is damaged: model.safetensors has the hash", NULL, NULL}}},
    };
    const char *good = good_checkpoint();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shell("rm -rf bad; cp -r %s bad; %s", good, cases[i].damage);
        start("--output_dir of_bad --max_steps 5 %s", cases[i].r.flags);
        finish_within(20);
        check_refused(&cases[i].r);
    }
}

TEST(resume_auto_passes_over_torn_checkpoints)
{
    good_checkpoint();
    shell("rm -rf torn; cp -r good torn; truncate -s 100 torn/checkpoint-3/model.safetensors");
    CHECK_RAN(run("--output_dir torn --max_steps 5 --resume auto"));
    CHECK(strstr(err(), "torn/checkpoint-3 is incomplete"), "no warning in: %s", err());
    CHECK(strstr(out(), "resumed from torn/checkpoint-2: step 2"), "%s", out());
    check_whole("torn/checkpoint-5");
}

// config.json of a copy of the good model, changed by sed.
TEST(models_of_other_kinds_are_refused_by_key)
{
    static const struct {
        const char *sed, *words[2];
    } cases[] = {
        {"s/\"model_type\": \"llama\"/\"model_type\": \"mixtral\"/", {"\"mixtral\"", "one of \"llama\""}},
        {"s/\"rope_type\": \"default\"/\"rope_type\": \"longrope\"/", {"longrope", "\"yarn\" and \"llama3\""}},
        {"s/\"hidden_act\": \"silu\"/\"hidden_act\": \"gelu\"/", {"gelu", "silu"}},
        {"s/\"attention_bias\": false/\"attention_bias\": true/", {"has no tensor", "o_proj.bias"}},
        {"s/\"hidden_size\": 32/\"hidden_size\": \"32\"/", {"hidden_size", "config.json"}},
        {"s/\"hidden_size\": 32/\"hidden_size\": -32/", {"hidden_size", "-32"}},
        {"s/\"num_key_value_heads\": 2/\"num_key_value_heads\": -2/",
         {"other/config.json: num_key_value_heads is -2", "expected an integer, at least 0"}},
        {"s/\"rms_norm_eps\": 1e-05/\"rms_norm_eps\": 0/", {"other/config.json: rms_norm_eps is 0", "at least 1e-30"}},
        {"s/\"rope_theta\": 10000.0/\"rope_theta\": -1/",
         {"other/config.json: rope_theta is -1", "expected a number, at least 1e-06"}},
        {"s/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1001/",
         {"other/config.json: num_hidden_layers is 1001", "from 1 to 1000"}},
        {"s/\"intermediate_size\": 64/\"intermediate_size\": 48/", {"mlp", "48"}},
        {"s/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/", {"holds", "model.layers.1."}},
        {"s/\"num_hidden_layers\": 2/\"num_hidden_layers\": 3/", {"has no tensor", "model.layers.2."}},
        {"s/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/",
         {"ties lm_head.weight", "tie_word_embeddings to false"}},
        {"/hidden_size/d", {"hidden_size", "config.json"}},
        {"s/{/[/", {"config.json", NULL}},
    };
    const char *good = good_checkpoint();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[4096];
        Refusal r = {cases[i].sed, {cases[i].words[0], cases[i].words[1], NULL}};
        shell("rm -rf other; cp -r %s other; rm other/manifest.json; sed -i '%s' other/config.json", good,
              cases[i].sed);
        snprintf(line, sizeof line, "%s --config no_model.json --model other --output_dir of_other --max_steps 2",
                 program);
        start_line(line, 0);
        finish_within(20);
        check_refused(&r);
    }
    CHECK(!exists("of_other"), "a refused run left a folder");
}

// Copies the good model's weights without tensor `without` (NULL: all of them), and with one more of the name `more`
// (NULL: none).
static void write_changed_weights(const char *path, const char *without, const char *more)
{
    GxSafetensors s;
    GxSafetensorsWriter w;
    GxError e = GX_ZERO;
    int n = 0;
    float zeros[4] = {0, 0, 0, 0};
    if (!CHECK(gx_safetensors_open(&s, good_checkpoint(), &e) == GX_OK, "%s", e.message)) return;
    GxSafetensorsEntry *list = (GxSafetensorsEntry *)calloc((size_t)s.n + 1, sizeof *list);
    for (int i = 0; i < s.n; i++)
        if (!without || strcmp(s.entry[i].name, without)) list[n++] = s.entry[i];
    if (more) {
        snprintf(list[n].name, sizeof list[n].name, "%s", more);
        list[n].dtype = GX_F32, list[n].ndim = 1, list[n++].shape[0] = 4;
    }
    GxStatus status = gx_safetensors_create(&w, path, list, n, NULL, 0, &e);
    for (int i = 0; i < s.n && status == GX_OK; i++) {
        float *x = (float *)malloc((size_t)s.entry[i].elements * sizeof *x);
        if (!without || strcmp(s.entry[i].name, without)) {
            status = gx_safetensors_read(&s, &s.entry[i], 0, s.entry[i].elements, x, &e);
            if (status == GX_OK)
                status = gx_safetensors_write_floats(&w, s.entry[i].name, 0, x, s.entry[i].elements, &e);
        }
        free(x);
    }
    if (more && status == GX_OK) status = gx_safetensors_write_floats(&w, more, 0, zeros, 4, &e);
    if (status == GX_OK) status = gx_safetensors_finish(&w, &e);
    gx_safetensors_abort(&w);
    CHECK(status == GX_OK, "%s", e.message);
    gx_safetensors_close(&s);
    free(list);
}

TEST(weights_with_missing_or_foreign_tensors_are_refused_by_name)
{
    static const struct {
        const char *without, *more;
        int fits;
        const char *words[2];
    } cases[] = {
        {"model.layers.1.mlp.up_proj.weight", NULL, 0, {"has no tensor model.layers.1.mlp.up_proj.weight", "other"}},
        {"lm_head.weight", NULL, 0, {"has no tensor lm_head.weight", NULL}},
        {NULL, "model.layers.0.self_attn.q_proj.lora_A.weight", 0, {"holds 1 tensor that", "lora_A"}},
        {NULL, "model.layers.0.self_attn.rotary_emb.inv_freq", 1, {NULL, NULL}}, // old files carry this table
        {NULL, NULL, 1, {NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[4096];
        shell("rm -rf other from_other; mkdir other; cp %s/config.json other", good_checkpoint());
        write_changed_weights("other/model.safetensors", cases[i].without, cases[i].more);
        snprintf(line, sizeof line,
                 "%s --config no_model.json --model other --tokenizer bytes --output_dir from_other --max_steps 2",
                 program);
        start_line(line, 0);
        finish_within(20);
        Refusal r = {cases[i].more ? cases[i].more : cases[i].without, {cases[i].words[0], cases[i].words[1], NULL}};
        if (cases[i].fits) CHECK(child.status == 0, "%s", err());
        else check_refused(&r);
    }
}

TEST(a_model_with_too_small_a_vocabulary_is_refused)
{
    char line[4096], path[TEST_PATH + 40];
    snprintf(path, sizeof path, "%s/data/ref/llama_gqa", repository);
    if (!exists(path)) SKIP("%.150s is not there", path);
    Refusal r = {"--model data/ref/llama_gqa", {"has 256 tokens", "97 rows for them", "--add_tokens"}};
    snprintf(line, sizeof line, "%s --config no_model.json --model %s --tokenizer bytes --max_steps 2", program, path);
    start_line(line, 0);
    finish_within(20);
    check_refused(&r);
}

// ---- output that cannot be written ---------------------------------------------------------------------------------

TEST(an_output_folder_that_cannot_be_made_is_named)
{
    static const Refusal cases[] = {
        {"--output_dir text.txt", {"text.txt", NULL, NULL}},
        {"--output_dir text.txt/out", {"text.txt", "a file of that name is there", NULL}},
        {"--output_dir /proc/galaxy", {"/proc/galaxy", NULL, NULL}},
    };
    CHECK_REFUSALS(cases);
}

// A disk that is full: here, a limit on the size of a file. The optimizer's state does not fit, the weights do.
TEST(a_checkpoint_that_cannot_be_written_leaves_the_older_one_and_no_half)
{
    CHECK_RAN(run("--output_dir full --max_steps 2"));
    int status = run_limited(200000, "--output_dir full --max_steps 4 --resume auto");
    CHECK(status == 1, "status %d; it said %s", status, err());
    CHECK(strstr(err(), "step 4 is not saved") && strstr(err(), "optimizer.safetensors") &&
              strstr(err(), "File too large"),
          "%s", err());
    CHECK(strstr(err(), "continue from the last checkpoint") && strstr(out(), "checkpoint: full/checkpoint-2\n"),
          "%s%s", out(), err());
    CHECK(!exists("full/checkpoint-4") && !exists("full/checkpoint-4.gx-new"), "half a checkpoint was left");
    check_whole("full/checkpoint-2");
    status = run_limited(200000, "--output_dir full_at_once --max_steps 2");
    CHECK(status == 1 && strstr(err(), "there is no checkpoint to continue from") &&
              strstr(out(), "checkpoint: none\n"),
          "status %d: %s%s", status, out(), err());
    CHECK_RAN(run("--output_dir full --max_steps 4 --resume auto"));
    check_whole("full/checkpoint-4");
}

// ---- checkpoints are not lost --------------------------------------------------------------------------------------

// Going on from an older checkpoint: what was just saved is newer than what has a larger number.
TEST(a_checkpoint_that_was_just_saved_is_not_pruned)
{
    good_checkpoint();
    shell("rm -rf used torn1; cp -r good used; cp -r good torn1; truncate -s 100 torn1/checkpoint-3/model.safetensors");
    shell("cp -r used/checkpoint-3 used/checkpoint-90; cp -r used/checkpoint-3 used/checkpoint-91");
    CHECK_RAN(run("--output_dir used --max_steps 4 --resume used/checkpoint-3"));
    CHECK(exists("used/checkpoint-4"), "it said \"%s\", and the folder is not there",
          strstr(out(), "saved") ? strstr(out(), "saved") : "");
    shell("mv torn1/checkpoint-3 torn1/checkpoint-10");
    CHECK_RAN(run("--output_dir torn1 --max_steps 4 --resume auto --save_total_limit 1"));
    CHECK(exists("torn1/checkpoint-4"), "a torn checkpoint was kept in the place of the whole one that was just saved");
}

TEST(folders_of_other_programs_are_not_pruned)
{
    CHECK_RAN(run("--output_dir foreign --max_steps 2"));
    shell("mkdir foreign/checkpoint-1; echo precious >foreign/checkpoint-1/pytorch_model.bin");
    CHECK_RAN(run("--output_dir foreign --max_steps 4 --save_total_limit 1 --resume auto"));
    CHECK(exists("foreign/checkpoint-1/pytorch_model.bin"),
          "a folder without a manifest, which this program cannot have written, was removed");
    CHECK(!exists("foreign/checkpoint-2") && exists("foreign/checkpoint-4"), "pruning does not work");
}

// A run may have to save at any step, so that what is in the way is said before it trains.
TEST(what_stands_in_the_way_of_a_checkpoint_is_refused_before_training_and_left_alone)
{
    static const struct {
        const char *make, *kept;
        Refusal r;
    } cases[] = {
        {"mkdir -p way/checkpoint-2; echo precious >way/checkpoint-2/notes.txt",
         "way/checkpoint-2/notes.txt",
         {"--max_steps 4", {"way holds checkpoint-2", "--output_dir way-2", "move it away"}}},
        {"mkdir -p way/checkpoint-2; echo precious >way/checkpoint-2/notes.txt",
         "way/checkpoint-2/notes.txt",
         {"--max_steps 4 --overwrite_output_dir", {"way/checkpoint-2", "step 2", "choose another --output_dir"}}},
        {"cp -r good way; rm -r way/checkpoint-3; mkdir way/checkpoint-3; echo precious >way/checkpoint-3/notes.txt",
         "way/checkpoint-3/notes.txt",
         {"--max_steps 4 --resume auto", {"way/checkpoint-3", "step 3", "choose another --output_dir"}}},
        {"mkdir way; echo precious >way/checkpoint-4",
         "way/checkpoint-4",
         {"--max_steps 4", {"way/checkpoint-4", "step 4", "move it away"}}},
        {"mkdir way; ln -s /nowhere way/checkpoint-4",
         "way/checkpoint-4",
         {"--max_steps 4", {"way/checkpoint-4", "step 4", NULL}}},
        {"cp -r good way; rm way/checkpoint-3/manifest.json way/checkpoint-3/trainer_state.json",
         "way/checkpoint-3/model.safetensors",
         {"--resume auto --max_steps 4", {"way/checkpoint-3", "manifest.json", "did not finish"}}},
    };
    good_checkpoint();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shell("rm -rf way; %s", cases[i].make);
        start("--output_dir way %s", cases[i].r.flags);
        finish_within(20);
        check_refused(&cases[i].r);
        CHECK(exists(cases[i].kept), "%s: it was removed", cases[i].make);
    }
}

// As a run leaves them that is killed while it saves, and while it removes older ones: the names are free again.
TEST(leftovers_of_a_killed_run_are_swept_when_the_next_one_begins)
{
    good_checkpoint();
    shell("rm -rf swept; cp -r good swept; cd swept; mv checkpoint-2 checkpoint-2.gx-old; rm "
          "checkpoint-2.gx-old/config.json");
    shell("cp -r good/checkpoint-3 swept/checkpoint-4.gx-new; rm swept/checkpoint-4.gx-new/manifest.json; mkdir "
          "swept/mine.gx-old");
    CHECK_RAN(run("--output_dir swept --max_steps 5 --resume auto"));
    CHECK(strstr(out(), "resumed from swept/checkpoint-3"), "%s", out());
    CHECK(!exists("swept/checkpoint-2.gx-old") && !exists("swept/checkpoint-4.gx-new"), "a leftover is still there");
    CHECK(!exists("swept/checkpoint-2"), "a checkpoint that was removed in part has its name again");
    CHECK(exists("swept/mine.gx-old"), "a folder that is no checkpoint was swept away");
    check_whole("swept/checkpoint-5");
}

TEST(checkpoints_of_other_runs_are_not_pruned)
{
    good_checkpoint();
    CHECK_RAN(run("--output_dir mixed --max_steps 2 --save_steps 1"));
    CHECK_RAN(run("--output_dir mixed_in --max_steps 4 --save_steps 1 --resume good/checkpoint-3"));
    shell("mv mixed/checkpoint-1 mixed/checkpoint-2 mixed_in");
    CHECK_RAN(run("--output_dir mixed_in --max_steps 6 --save_total_limit 1 --resume auto"));
    check_whole("mixed_in/checkpoint-1");
    check_whole("mixed_in/checkpoint-2");
    CHECK(exists("mixed_in/checkpoint-6") && !exists("mixed_in/checkpoint-4") && !exists("mixed_in/checkpoint-5"),
          "pruning does not work");
}

TEST(only_the_newest_checkpoints_are_kept)
{
    CHECK_RAN(run("--output_dir pruned --max_steps 9 --save_steps 2 --save_total_limit 2"));
    CHECK(exists("pruned/checkpoint-8") && exists("pruned/checkpoint-9") && !exists("pruned/checkpoint-6") &&
              !exists("pruned/checkpoint-2"),
          "wrong ones");
    CHECK_RAN(run("--output_dir unpruned --max_steps 4 --save_steps 1 --save_total_limit 0"));
    CHECK(exists("unpruned/checkpoint-1") && exists("unpruned/checkpoint-4"), "0 keeps all");
}

// Hours of training must not hang on the last page of text: what comes after the last step may fail, or be interrupted;
// the weights are saved.
TEST(the_last_checkpoint_does_not_wait_for_the_sample)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config sampling_long.json --output_dir impatient --max_steps 2", program);
    start_line(line, 0);
    for (double until = now() + 10; now() < until && !exists("impatient/checkpoint-2");) sleep_ms(5);
    kill(child.pid, SIGKILL);
    CHECK(finish() == -SIGKILL, "two million bytes were sampled in no time");
    check_whole("impatient/checkpoint-2");
}

TEST(a_signal_ends_the_sample_too)
{
    static const struct {
        const char *flags;
        int signal;
    } ways[] = {{"--micro_batch_size 2", SIGTERM}, {"--ranks 2 --micro_batch_size 1", SIGINT}};
    for (int i = 0; i < 2; i++) {
        char line[4096], checkpoint[100], log[100];
        snprintf(checkpoint, sizeof checkpoint, "cut_short%d/checkpoint-2", i);
        snprintf(log, sizeof log, "cut_short%d/log.jsonl", i);
        snprintf(line, sizeof line, "%s --config sampling_long.json --output_dir cut_short%d --max_steps 2 %s", program,
                 i, ways[i].flags);
        start_line(line, 0);
        CHECK(wait_for(checkpoint, NULL), "no checkpoint came");
        CHECK(wait_for(log, "eval_loss"), "no validation came");
        sleep_ms(100); // the sample follows
        kill(child.pid, ways[i].signal);
        const int status = finish_within(20);
        CHECK(status == 128 + ways[i].signal, "%s: status %d after %.1f s: %s", ways[i].flags, status, child.seconds,
              err());
        CHECK(strstr(out(), "sample:\nIn the beginning") && strstr(err(), "complete and saved"), "%s: it said %s",
              ways[i].flags, err());
        check_whole(checkpoint);
    }
}

// Within one row of samples, which takes milliseconds, and what a checkpoint takes.
TEST(a_signal_ends_a_long_validation_and_half_of_one_is_not_reported)
{
    static const struct {
        const char *flags;
        int signal;
        const char *says;
    } ways[] = {{"--max_steps 3", SIGTERM, "after step 1 of 3; continue with --resume auto"},
                {"--max_steps 3 --ranks 2", SIGINT, "after step 1 of 3; continue with --resume auto"},
                {"--max_steps 1", SIGTERM, "complete and saved, but the last validation and the sample are not"}};
    write_long_text();
    for (int i = 0; i < (is_brief() ? 1 : 3); i++) {
        char output[100], path[140];
        snprintf(output, sizeof output, "long_validation%d", i);
        snprintf(path, sizeof path, "%s/log.jsonl", output);
        start("--output_dir %s " LONG_VALIDATION " %s", output, ways[i].flags);
        CHECK(wait_for(path, "\"step\": 1, "), "no first step came");
        sleep_ms(150); // the validation has begun
        kill(child.pid, ways[i].signal);
        const double at = now() - child.started;
        const int status = finish_within(at + 10);
        CHECK(status == 128 + ways[i].signal, "%s: status %d %.1f s after the signal: %s", ways[i].flags, status,
              child.seconds - at, err());
        CHECK(strstr(err(), ways[i].says), "%s: it said %s", ways[i].flags, err());
        const Log l = read_log(output);
        CHECK(l.steps == 1 && l.evals == 0 && l.bad == 0 && !strstr(out(), "validation loss"),
              "%s: %d steps, %d validations; %s", ways[i].flags, l.steps, l.evals, out());
        snprintf(path, sizeof path, "%s/checkpoint-1", output);
        check_whole(path);
    }
}

TEST(a_sample_that_cannot_be_made_does_not_cost_the_checkpoint)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config sampling_much.json --output_dir no_sample --max_steps 2", program);
    start_line(line, 0);
    finish_within(20);
    CHECK(child.status >= 0 && child.status < 128, "it ended with %d", child.status);
    CHECK(exists("no_sample/checkpoint-2") || !strstr(out(), "step     2/2"),
          "two steps were trained and nothing was saved");
}

// ---- plan ----------------------------------------------------------------------------------------------------------

// Forward and backward of every matrix product: 6 FLOPs per weight and token. Attention, causal: T(T+1)/2 visible pairs
// per head and sample, 4h FLOPs forward and 10h backward each (scores are computed again).
static double llama_gflop(double C, double L, double F, double H, double K, double V, double T, double B)
{
    double h = C / H, weights = L * (C * (H + 2 * K) * h + H * h * C + 3 * C * F) + C * V;
    return (6 * weights * T * B + L * B * H * (T * (T + 1) / 2) * 14 * h) / 1e9;
}

TEST(a_dry_run_of_a_70b_model_takes_seconds_and_touches_nothing)
{
    char line[4096];
    snprintf(
        line, sizeof line,
        "%s --dry_run --hidden_size 8192 --num_hidden_layers 80 --intermediate_size 28672 --num_attention_heads 64 "
        "--num_key_value_heads 8 --vocab_size "
        "128256 --seq_len 2048 --micro_batch_size 2 --train_data not_there.txt --output_dir dry",
        program);
    start_line(line, 0);
    CHECK_RAN(finish_within(20));
    CHECK(child.peak_kb < 400 << 10 || is_sanitized, "it took %ld MB", child.peak_kb >> 10);
    CHECK(!exists("dry"), "it made the output folder");
    double found = number_before(out(), "GFLOP per step"),
           derived = llama_gflop(8192, 80, 28672, 64, 8, 128256, 2048, 2);
    CHECK(found >= derived && found < 1.02 * derived, "%g GFLOP; products and attention alone are %g", found, derived);
    CHECK(strstr(out(), "causal"), "it does not say how attention is counted");
    CHECK(fabs(number_before(out(), "M parameters") - 70553.71) < 0.01,
          "%g million parameters; Llama 3 70B has 70553.71", number_before(out(), "M parameters"));
    CHECK(fabs(number_behind(out(), "weights ") - 4 * 70553.7065) < 1, "%g MB of weights",
          number_behind(out(), "weights "));
}

TEST(the_process_takes_the_memory_of_its_plan)
{
    if (is_sanitized) SKIP("sanitizers have memory of their own");
    check_memory("memory0", FEW_TOKENS);
    check_memory("memory1", MANY_TOKENS "--ranks 2 --micro_batch_size 12");
}

// As torchrun starts it: what a process was before exec is not the program's.
// In the folder of the program, which is on a disk, unlike the test's own.
#define OFFLOADED "optimizer,gradients,activations,parameters --offload_dir "
TEST(memory_in_a_file_changes_no_bit_is_counted_apart_and_leaves_nothing_behind)
{
    static const char *const ways[] = {"", "--ranks 2 --zero 3 --precision bf16"};
    char disk[TEST_PATH];
    snprintf(disk, sizeof disk, "%s", program);
    char *end = strrchr(disk, '/');
    if (!CHECK(end != NULL, "%s has no folder", program)) return;
    *end = 0;
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        char a[60], b[60];
        CHECK_RAN(run("--output_dir in_memory%u --max_steps 4 %s", i, ways[i]));
        start("--output_dir in_file%u --max_steps 4 --save_steps 2 %s --offload " OFFLOADED "%s", i, ways[i], disk);
        if (finish() && strstr(err(), "tmpfs")) SKIP("the program's folder is in memory");
        CHECK(child.status == 0, "%s", err());
        CHECK(strstr(out(), i ? "of it in --offload_dir, the rest of" : "of it in --offload_dir + program"), "%s",
              out());
        CHECK(strstr(out(), "MB with pages of --offload_dir, planned ") && strstr(out(), "MB without them"), "%s",
              out());
        CHECK(shell("test $(ls -a %s | grep -c '^galaxy-') = 0", disk) == 0, "a file is left in %s", disk);
        snprintf(a, sizeof a, "in_memory%u/checkpoint-4", i), snprintf(b, sizeof b, "in_file%u/checkpoint-4", i);
        check_same_checkpoint(a, b);
        CHECK(shell("rm -r %s", b) == 0, "there is no %s", b);
        CHECK_RAN(run("--output_dir in_file%u --max_steps 4 --resume auto %s --offload %s", i, ways[i],
                      i ? "none" : "optimizer"));
        check_same_checkpoint(a, b);
    }
}

TEST(what_cannot_be_offloaded_is_refused)
{
    static const Refusal refusals[] = {
        {"--offload optimizer", {"--offload optimizer needs a folder on a disk", "--offload_dir", NULL}},
        {"--offload_dir /tmp", {"--offload_dir /tmp, but nothing is offloaded", "--offload optimizer", NULL}},
        {"--offload moments,gradients --offload_dir /tmp",
         {"there is no \"moments\"", "none, or a list of optimizer, gradients, activations, parameters", NULL}},
        {"--offload optimizer, --offload_dir /tmp", {"there is no \"\"", NULL}},
        {"--offload ,optimizer --offload_dir /tmp", {"there is no \"\"", NULL}},
        {"--dry_run --offload optimizer --offload_dir nowhere",
         {"--offload_dir nowhere: no file can be made there", "No such file", NULL}},
#ifdef __linux__
        {"--offload optimizer --offload_dir /dev/shm", {"--offload_dir /dev/shm is in memory itself (tmpfs)", NULL}},
#endif
    };
    CHECK_REFUSALS(refusals);
}

// What a dry run plans with --recompute `what`: MB of the process, GFLOP of a step of all ranks; what auto chose.
typedef struct {
    char what[40];
    double mb, gflop;
} Recomputed;
#define LARGE                                                                                                          \
    "--hidden_size 192 --num_hidden_layers 4 --num_attention_heads 4 --seq_len 512 --max_position_embeddings 512 "     \
    "--micro_batch_size 32 --global_batch_size 64 "
static Recomputed recomputed(const char *what, const char *flags)
{
    Recomputed r = GX_ZERO;
    start("--dry_run --recompute %s %s", what, flags);
    CHECK_RAN(finish());
    const char *mb = strstr(out(), "libraries "), *gflop = strstr(out(), " on all"),
               *chosen = strstr(err(), "--recompute auto: ");
    if (!gflop) gflop = strstr(out(), " GFLOP per step");
    if (!CHECK(mb && strstr(mb, " = ") && gflop, "%s", out())) return r;
    while (gflop[-1] != ' ') gflop--;
    r.mb = atof(strstr(mb, " = ") + 3), r.gflop = atof(gflop);
    const char *end = chosen ? strstr(chosen, ", which fits") : NULL;
    snprintf(r.what, sizeof r.what, "%.*s", end ? (int)(end - chosen - 18) : 0, chosen ? chosen + 18 : "");
    return r;
}

// Limits a little above what each way needs that auto may choose: of each part the first layers of each stage. Program
// and libraries take some MB more in one run than in another, so a way that needs about the limit may be taken or not.
static void check_auto(const char *flags, const char *const *lists, int n)
{
    enum { PARTS = 4, MOST = 4 };
    static const char *const parts[PARTS] = {"att", "mlp", "att+mlp", "layer"};
    Recomputed way[1 + PARTS * MOST];
    const int ways = 1 + PARTS * n;
    way[0] = recomputed("none", flags), snprintf(way[0].what, sizeof way->what, "none");
    for (int i = 1; i < ways; i++) {
        char what[40];
        snprintf(what, sizeof what, "%s%s", parts[(i - 1) / n], lists[(i - 1) % n]);
        way[i] = recomputed(what, flags), memcpy(way[i].what, what, sizeof what);
    }
    for (int limit = 0; limit < ways; limit += TEST_IS_SANITIZED ? 4 : 1) {
        char more[400];
        double fewest = INFINITY;
        int is = 0;
        snprintf(more, sizeof more, "%s --memory_limit %.1fMB", flags, way[limit].mb + 10);
        for (int i = 0; i < ways; i++)
            if (way[i].mb <= way[limit].mb + 5) fewest = fmin(fewest, way[i].gflop);
        const Recomputed chosen = recomputed("auto", more);
        while (is < ways && strcmp(way[is].what, chosen.what)) is++;
        if (!CHECK(is < ways, "%s: \"%s\" is none of the ways", more, chosen.what)) continue;
        CHECK(chosen.mb <= way[limit].mb + 10 && chosen.gflop <= fewest, "%s: %s takes %g MB and %g GFLOP, others %g",
              more, chosen.what, chosen.mb, chosen.gflop, fewest);
        CHECK(fabs(chosen.mb - way[is].mb) < 8 && chosen.gflop == way[is].gflop,
              "%s: %s takes %g MB and %g GFLOP, by hand %g and %g", more, chosen.what, chosen.mb, chosen.gflop,
              way[is].mb, way[is].gflop);
        const Recomputed *fewer = is > 0 && (is - 1) % n ? &way[is - 1] : &way[0];
        CHECK(is == 0 || fewer->mb > way[limit].mb + 5, "%s: %s, though %s takes %g MB", more, chosen.what, fewer->what,
              fewer->mb);
    }
}

TEST(recompute_auto_takes_as_few_layers_as_fit_with_the_fewest_flops)
{
    static const char *const one[] = {":0", ":0-1", ":0-2", ""}, *const two[] = {":0,3", ":0-1,3", ""};
    check_auto(LARGE, one, 4);
#define STAGES LARGE "--ranks 2 --pp 2 --micro_batch_size 16 --gradient_accumulation_steps 4 "
    check_auto(STAGES "--stage_num_hidden_layers_list 3,1", two, 3);
    const double most = recomputed("none", STAGES "--pipeline_schedule zb1p").mb;
    start("--dry_run --recompute auto " STAGES "--pipeline_schedule zb1p --memory_limit %.0fMB", most - 20);
    CHECK_RAN(finish());
    CHECK(strstr(err(), "--recompute auto: layer:0,2, which fits"), "%s", err());
}

TEST(recompute_auto_changes_no_bit_and_is_refused_where_nothing_fits)
{
    const char *medium = "--hidden_size 64 --num_hidden_layers 4 --num_attention_heads 4 --seq_len 256 "
                         "--max_position_embeddings 256 --micro_batch_size 32";
    const Recomputed none = recomputed("none", medium), layer = recomputed("layer", medium);
    CHECK_RAN(run("--output_dir kept --max_steps 1 --max_eval_samples 1 %s", medium));
    CHECK_RAN(run("--output_dir chosen --max_steps 1 --max_eval_samples 1 %s --recompute auto --memory_limit %.0fMB",
                  medium, (none.mb + layer.mb) / 2));
    CHECK(strstr(err(), "--recompute auto: layer:0") && !strstr(err(), "the plan is wrong"), "%s", err());
    check_same_checkpoint("kept/checkpoint-1", "chosen/checkpoint-1");
    const Recomputed least = recomputed("layer", LARGE);
    start(LARGE "--recompute auto --memory_limit %.0fMB", least.mb - 15);
    CHECK(finish() > 0 && strstr(err(), "--recompute auto: nothing fits; layer needs the least memory") &&
              strstr(err(), " MB of --memory_limit; about "),
          "%s", err());
    static const Refusal refusals[] = {
        {"--memory_limit much",
         {"--memory_limit is \"much\"; expected a size such as 500MB or 5GB (in KB, MB or GB), or 0", NULL}},
        {"--recompute auto --ranks 2 --plan auto", {"--recompute auto", "--plan auto needs to know", "none, att"}},
    };
    CHECK_REFUSALS(refusals);
}

TEST(recompute_of_some_layers_is_refused_where_it_does_not_fit_the_model_or_a_plan_of_equal_layers)
{
    static const Refusal refusals[] = {
        {"--recompute layer:0,mlp:2", {"\"layer:0,mlp:2\", but the model has no layer 2; its layers are 0 to 1", NULL}},
        {"--recompute mlp:0,layer:0-1", {"names layer 0 twice; name it once", "(att+mlp)", NULL}},
        {"--recompute layer:0 --ranks 2 --plan auto",
         {"--recompute layer:0 is not the same for all layers", "--plan auto takes all layers to be alike",
          "say none, att, mlp, att+mlp or layer"}},
        {"--recompute layer:0 --simulate machines.json", {"--simulate takes all layers to be alike", NULL}},
    };
    CHECK_REFUSALS(refusals);
}

// A list that is longer than most options, in the run's options, and when the run goes on.
TEST(recompute_of_many_layers_is_kept_and_goes_on)
{
    char list[1000] = "", said[1100];
    for (int l = 0; l < 62; l += 2)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", l ? ",layer:" : "layer:", l);
    CHECK_RAN(
        run("--output_dir long --num_hidden_layers 63 --max_eval_samples 1 --max_steps 2 --save_steps 1 --recompute %s",
            list));
    CHECK_RAN(run("--output_dir long_on --num_hidden_layers 63 --resume long/checkpoint-1"));
    snprintf(said, sizeof said, "\"recompute\": \"%s\"", list);
    for (int i = 0; i < 2; i++) {
        char *args = read_text(i ? "long_on/training_args.json" : "long/training_args.json");
        CHECK(args && strstr(args, said), "%s of %s", list, args);
        free(args);
    }
    check_same_checkpoint("long/checkpoint-2", "long_on/checkpoint-2");
}

TEST(a_dry_run_says_that_the_run_would_be_refused)
{
    CHECK_RAN(run("--dry_run --vocab_size 1000000 --hidden_size 65536 --intermediate_size 65536 --num_hidden_layers 3 "
                  "--num_attention_heads 64"));
    CHECK(strstr(err(), "warning: this run would be refused: the plan needs ") && strstr(err(), "smaller model"), "%s",
          err());
    CHECK_RAN(run("--dry_run"));
    CHECK(!strstr(err(), "refused"), "%s", err());
}

TEST(a_program_reports_its_own_peak_whatever_started_it)
{
    enum { FAT = 300 << 20 };
    if (is_sanitized) SKIP("sanitizers have memory of their own");
    volatile char *fat = (volatile char *)malloc(FAT);
    if (!CHECK(fat, "no memory")) return;
    for (int i = 0; i < FAT; i += 4096) fat[i] = 1;
    start("--max_steps 1 --output_dir lean");
    free((void *)fat);
    CHECK_RAN(finish());
    const double peak = number_behind(out(), "peak memory ");
    CHECK(child.peak_kb > FAT >> 10, "the child began with %ld KB only", child.peak_kb);
    CHECK(peak > 5 && peak < 150, "a peak of %g MB in: %s", peak, out());
}

// ---- what goes wrong while it trains -------------------------------------------------------------------------------

TEST(gradients_that_are_not_finite_are_said_and_never_saved_in_silence)
{
    static const char *const ways[] = {"--learning_rate 1e10", "--optimizer sgd --learning_rate 1e10 --max_grad_norm 0",
                                       "--optimizer sgd --learning_rate 1e30", "--ranks 2 --learning_rate 1e38"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char weights[200], dir[100];
        snprintf(dir, sizeof dir, "blown%d", (int)i);
        snprintf(weights, sizeof weights, "%s/checkpoint-6/model.safetensors", dir);
        int status = run("--output_dir %s --max_steps 6 %s", dir, ways[i]);
        CHECK(status >= 0 && status < 128, "%s: status %d", ways[i], status);
        Log l = read_log(dir);
        CHECK(l.bad == 0, "%s: %d lines of the log are of no known kind", ways[i], l.bad);
        CHECK(status || (l.skipped > 0 && strstr(out(), "  skipped: gradients are not finite")),
              "%s: %d skipped steps in the log; on the console: %s", ways[i], l.skipped, out());
        CHECK(status || strstr(err(), "not finite"), "%s: %d steps were skipped; the run ends as if all were well",
              ways[i], l.skipped);
        if (!exists(weights)) CHECK(status != 0, "%s: it ended well without a checkpoint", ways[i]);
        else
            CHECK(count_not_finite(weights) == 0 || strstr(err(), "not finite"),
                  "%s: weights that are not finite were saved without a word on stderr", ways[i]);
    }
}

TEST(a_run_that_only_skips_steps_ends_with_an_error_and_keeps_what_was_good)
{
    CHECK_RAN(run("--output_dir burst --max_steps 3 --optimizer sgd --warmup_steps 0"));
    const int status = run("--output_dir burst --max_steps 500 --optimizer sgd --warmup_steps 0 --learning_rate 1e30 "
                           "--save_steps 10 --resume auto");
    CHECK(status == 1, "status %d: %s", status, err());
    CHECK(strstr(err(), "the last 100 steps") && strstr(err(), "a --learning_rate below 1e+30"), "%s", err());
    Log l = read_log("burst");
    CHECK(l.skipped == 99 && l.steps < 110, "%d of %d steps were skipped", l.skipped,
          l.steps); // the last one is the error
    check_whole("burst/checkpoint-3");
    CHECK(count_not_finite("burst/checkpoint-3/model.safetensors") == 0, "the older checkpoint is not what it was");
}

TEST(a_run_that_ends_while_it_skips_says_that_its_weights_may_be_of_no_use)
{
    CHECK_RAN(run("--output_dir brink --max_steps 6 --optimizer sgd --warmup_steps 0 --learning_rate 1e30"));
    CHECK(strstr(err(), "have not changed since step") && strstr(err(), "a --learning_rate below 1e+30"), "%s", err());
}

TEST(weights_that_give_no_finite_gradients_are_blamed_and_not_the_learning_rate)
{
    shell("rm -rf nans; cp -r %s nans; rm nans/manifest.json; printf '\\377\\377\\377\\177%%.0s' $(seq 100) | dd "
          "of=nans/model.safetensors "
          "bs=4 seek=25000 "
          "conv=notrunc "
          "2>/dev/null",
          good_checkpoint());
    const int status = run("--model nans --output_dir from_nans --max_steps 5");
    CHECK(status == 1, "status %d: %s", status, err());
    CHECK(strstr(err(), "all 5 steps") && strstr(err(), "the weights of nans") && !strstr(err(), "--learning_rate"),
          "%s", err());
    CHECK(!exists("from_nans/checkpoint-5"), "what it did not change was saved");
}

TEST(mpirun_and_ranks_together_are_refused)
{
    NEED_MPI();
    int status = run_mpi(2, "--ranks 2 --max_steps 2 --output_dir both");
    CHECK(status != 0 && status != TIMED_OUT && strstr(err(), "leave out --ranks"), "status %d: %s", status, err());
    CHECK(!exists("both"), "it trained");
}

TEST(a_killed_rank_ends_the_others)
{
    pid_t rank[8];
    NEED_MPI();
    start_mpi(2, "--output_dir orphans --max_steps 100000 --eval_steps 1 --micro_batch_size 2 " SLOW);
    CHECK(wait_for("orphans/log.jsonl", "\"step\": 2, "), "no second step came");
    int n = children_of(child.pid, rank, 8);
    if (!CHECK(n >= 2, "%d children of mpirun were found", n)) n = 0;
    double killed = now() - child.started;
    if (n) kill(rank[n - 1], SIGKILL);
    int status = finish_within(killed + 30);
    CHECK(status != 0 && status != TIMED_OUT, "status %d %.1f s after a rank was killed: %s", status,
          child.seconds - killed, err());
    for (double until = now() + 5; now() < until && is_alive(rank[0]); sleep_ms(20)) {}
    for (int i = 0; i < n; i++) CHECK(!is_alive(rank[i]), "rank %d is still there", i);
}

// Rank 1 may not take the memory that its plan says.
TEST(a_rank_without_memory_ends_all_with_its_name)
{
    char line[4096], script[600];
    GxError e = GX_ZERO;
    NEED_MPI();
    if (is_sanitized) SKIP("sanitizers need more address space than the limit gives");
    const char *flags = "--config tiny.json --output_dir no_memory --max_steps 2 --micro_batch_size 12000";
    snprintf(script, sizeof script, "#!/bin/sh\nulimit -v 1000000\nexec %.400s \"$@\"\n", program);
    CHECK(gx_file_write("limited.sh", script, (int64_t)strlen(script), &e) == GX_OK && chmod("limited.sh", 0700) == 0,
          "%s", e.message);
    snprintf(line, sizeof line, "mpirun -np 1 %s %s : -np 1 ./limited.sh %s", program, flags, flags);
    start_line(line, 0);
    int status = finish_within(30);
    CHECK(status != 0 && status != TIMED_OUT, "status %d after %.1f s: %s", status, child.seconds, err());
    CHECK(strstr(err(), "rank 1") && strstr(err(), "arena"), "%s", err());
}

// No disk is shared: only rank 0's working folder has the checkpoint and the model.
TEST(ranks_without_rank_0s_disk_load_what_it_loads)
{
    static const char *const ways[] = {"--resume out/checkpoint-3", "--resume auto",
                                       "--model out/checkpoint-3 --output_dir new"};
    NEED_MPI();
    for (int i = 0; i < 3; i++) {
        char line[4096], flags[200];
        good_checkpoint();
        shell("rm -rf here there; mkdir here there; cp tiny.json text.txt here; cp tiny.json text.txt there; cp -r "
              "good here/out");
        snprintf(flags, sizeof flags, "--config tiny.json --micro_batch_size 2 --max_steps 5 --timeout 20 %s", ways[i]);
        snprintf(line, sizeof line, "mpirun -np 1 -wdir %s/here %s %s : -np 1 -wdir %s/there %s %s", folder, program,
                 flags, folder, program, flags);
        start_line(line, 0);
        int status = finish_within(40);
        CHECK(status == 0, "%s: status %d: %.250s", ways[i], status, err());
        check_whole(i < 2 ? "here/out/checkpoint-5" : "here/new/checkpoint-5");
    }
}

TEST(a_program_without_mpi_refuses_mpirun)
{
    char line[4096];
    if (!program_nompi[0]) SKIP("no binary without MPI was given: set GX_TRAIN_LLAMA_NOMPI");
    snprintf(line, sizeof line, "env OMPI_COMM_WORLD_SIZE=2 %s --config tiny.json --max_steps 2 --output_dir lonely",
             program_nompi);
    start_line(line, 0);
    int status = finish_within(20);
    CHECK(status > 0 && strstr(err(), "without MPI"), "status %d: %s", status, err());
    CHECK(!exists("lonely"), "it trained");
}

// A terminal that is closed (| head -1) must not cost the run: it goes on to its checkpoint, or stops with one.
TEST(a_closed_stdout_does_not_cost_the_run)
{
    char line[4096];
    snprintf(line, sizeof line, "%s --config tiny.json --max_steps 4 --output_dir piped", program);
    start_line(line, 0);
    close(child.pipe[0]);
    child.pipe[0] = -1;
    int status = finish();
    CHECK(status == 128 + SIGPIPE && !strstr(err(), "rror"), "status %d: %s", status, err());
    GxError e = GX_ZERO;
    char path[] = "piped/checkpoint-4";
    CHECK(gx_folder_verify(path, 1, &e) == GX_OK, "%s", e.message);
}

// Two runs in one folder would mix their logs and take each other's unfinished folders away.
TEST(waiting_threads_sleep_unless_the_user_says_otherwise)
{
    static const struct {
        const char *variable, *value;
        int starts;
    } cases[] = {{NULL, NULL, 2}, {"OMP_WAIT_POLICY", "active", 1}, {"GOMP_SPINCOUNT", "1000", 1}};
    say_nothing_of_waiting(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].variable) setenv(cases[i].variable, cases[i].value, 1);
        CHECK_RAN(run("--dry_run --threads 2"));
        check_openmp_starts(cases[i].variable ? cases[i].variable : "nothing is set", err(), cases[i].starts);
        CHECK(strstr(out(), "1 rank x 2 threads (--threads)\n"), "%s", out());
        if (cases[i].variable) unsetenv(cases[i].variable);
    }
    say_nothing_of_waiting(0);
}

#ifdef _OPENMP
// OpenMP's variables change neither how many threads there are nor, by that, a bit; where they limit them, the run is
// refused.
TEST_UNSANITIZED(openmp_has_no_say_in_the_number_of_threads)
{
    static const char *const variables[][2] = {
        {"OMP_DYNAMIC", "true"}, {"OMP_PROC_BIND", "true"}, {"OMP_PLACES", "cores"}, {"OMP_NUM_THREADS", "7"}};
    static const char *const limits[][2] = {{"OMP_THREAD_LIMIT", "1"}, {"OMP_MAX_ACTIVE_LEVELS", "0"}};
    char machine[200], dir[40];
    CHECK_RAN(run("--output_dir openmp --max_steps 3 --threads 2"));
    const Log whole = read_log("openmp");
    CHECK_RAN(run("--dry_run"));
    const char *line = strstr(out(), " threads (");
    if (!line) line = strstr(out(), " thread (");
    snprintf(machine, sizeof machine, "%.*s", line ? (int)strcspn(line, ";)") : 0, line ? line : "");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        snprintf(dir, sizeof dir, "openmp_%zu", i);
        setenv(variables[i][0], variables[i][1], 1);
        CHECK_RAN(run("--dry_run"));
        CHECK(machine[0] && strstr(out(), machine), "%s: not \"%s\": %s", variables[i][0], machine, out());
        CHECK_RAN(run("--output_dir %s --max_steps 3 --threads 2", dir));
        const Log log = read_log(dir);
        for (int s = 0; s < 3; s++)
            CHECK(whole.steps == 3 && log.steps == 3 && log.loss[s] == whole.loss[s],
                  "%s: step %d has loss %.9g, not %.9g", variables[i][0], s + 1, log.loss[s], whole.loss[s]);
        CHECK_RAN(run("--output_dir %s_ranks --max_steps 3 --ranks 2 --micro_batch_size 2", dir));
        unsetenv(variables[i][0]);
    }
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        setenv(limits[i][0], limits[i][1], 1);
        CHECK(run("--output_dir limited --max_steps 3 --threads 2") == 1 &&
                  strstr(err(), "OpenMP allows 1 of the 2 threads that this rank needs; unset OMP_THREAD_LIMIT"),
              "%s: %s", limits[i][0], err());
        CHECK_RAN(run("--output_dir limited_%zu --max_steps 3 --threads 1", i));
        unsetenv(limits[i][0]);
    }
    CHECK(!exists("limited"), "the refused run has made its folder");
}

#endif

// The shell's limit on stacks holds for the first thread alone.
TEST(ranks_have_stacks_of_their_own_size)
{
    char line[TEST_PATH + 300];
    snprintf(line, sizeof line,
             "ulimit -s 512; exec %s --config tiny.json --output_dir small_stack --max_steps 2 "
             "--ranks 2 --micro_batch_size 2",
             program);
    CHECK(!shell("(%s) > small.out 2>&1", line), "it failed in a shell with small stacks");
}

// Of the running child: "comm", "cmdline" or "environ"; its strings lie behind each other.
static size_t read_of_child(const char *what, char *text, size_t size)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/%s", child.pid, what);
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    return n;
}

TEST(a_program_that_started_again_is_the_same_process_with_the_same_name_and_words)
{
    static char text[1 << 17];
    int said = 0;
    say_nothing_of_waiting(1);
    start("--output_dir again --max_steps 100000 " SLOW);
    CHECK(wait_for("again/log.jsonl", "\"step\": 1, "), "no first step came");
    read_of_child("comm", text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    CHECK(!strcmp(text, strrchr(program, '/') + 1), "its name is %s", text);
    read_of_child("cmdline", text, sizeof text);
    CHECK(!strcmp(text, program) && !strcmp(text + strlen(text) + 1, "--config"), "it is called %s", text);
    const size_t bytes = read_of_child("environ", text, sizeof text);
    for (char *at = text; at < text + bytes; at += strlen(at) + 1)
        said += !strcmp(at, "OMP_WAIT_POLICY=passive") || !strcmp(at, "GOMP_SPINCOUNT=" GX_SPIN_TURNS);
    CHECK(said == 2, "of two variables by which threads sleep soon, %d are set", said);
    kill(child.pid, SIGKILL);
    CHECK(finish() == -SIGKILL, "status %d", child.status);
    check_openmp_starts("a run", err(), 2);
    say_nothing_of_waiting(0);
}

// There the program that runs is the loader, which would not know what to start.
TEST(a_program_that_is_started_by_its_loader_trains_and_says_that_threads_spin)
{
    const char *loader = "/lib64/ld-linux-x86-64.so.2";
    char line[GX_PATH + 300];
    if (access(loader, X_OK)) SKIP("there is no %s", loader);
    if (is_sanitized) SKIP("AddressSanitizer does not start like this");
    snprintf(line, sizeof line,
             "%s %s --config tiny.json --max_steps 1 --threads 2 --max_eval_samples 1 --output_dir loaded", loader,
             program);
    say_nothing_of_waiting(1);
    start_line(line, 0);
    CHECK_RAN(finish());
    say_nothing_of_waiting(0);
    check_openmp_starts("the loader", err(), 1);
    CHECK(strstr(err(), "warning: OpenMP's threads spin while they wait"), "%s", err());
}

TEST(a_second_run_in_the_same_folder_is_refused)
{
    start("--output_dir busy --max_steps 100000 --eval_steps 1 " SLOW);
    CHECK(wait_for("busy/log.jsonl", "\"step\": 2, "), "no second step came");
    char line[4096];
    snprintf(line, sizeof line, "%s --config tiny.json --output_dir busy --max_steps 2 >second.txt 2>&1", program);
    int status = system(line);
    kill(child.pid, SIGTERM);
    int first = finish();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 0, "the second run was not refused (status %d)",
          WEXITSTATUS(status));
    CHECK(first == 128 + SIGTERM, "the first run ended with %d: %s", first, err());
    Log l = read_log("busy");
    for (int i = 0; i < l.steps; i++) CHECK(l.step[i] == i + 1, "line %d of the log is of step %d", i + 1, l.step[i]);
}

// ---- help ----------------------------------------------------------------------------------------------------------

TEST(help_lists_every_option_with_its_default)
{
    char line[TEST_PATH + 20];
    GxJson *args = NULL;
    GxError e = GX_ZERO;
    good_checkpoint();
    if (!CHECK(gx_json_read(&args, "good/training_args.json", 1 << 20, &e) == GX_OK, "%s", e.message)) return;
    snprintf(line, sizeof line, "%s --help all", program);
    start_line(line, 0);
    CHECK_RAN(finish());
    CHECK(gx_json_size(args) > 40, "training_args.json has %ld options", (long)gx_json_size(args));
    for (GxJsonMember m = GX_ZERO; gx_json_next(args, &m);) {
        char name[100];
        snprintf(name, sizeof name, "\n  --%s ", m.key);
        const char *at = strstr(out(), name), *end = at ? strstr(at + 1, "\n  --") : NULL,
                   *standard = at ? strstr(at, "default: ") : NULL;
        CHECK(at && standard && (!end || standard < end), "--help says nothing, or no default, of %s", m.key);
    }
    gx_json_free(args);
}

// Of --help alone: what most people need, with --config and --help all. Each of its lines is an option of some program.
TEST(help_alone_is_a_page_of_options_that_some_task_has)
{
    static const char *const starts[] = {"%s --help", "%s --task classification --help", "%s --task dpo --help"};
    static char all[30000];
    char line[TEST_PATH + 60], option[100];
    int n, options = 0;
    const GxHelpLine *common = gx_help_training(&n);
    all[0] = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, starts[i], program);
        start_line(line, 0);
        CHECK_RAN(finish());
        CHECK(!strncmp(out(), "usage: ", 7) && strstr(out(), " [--option"), "%s", out());
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s", out());
        options = 0;
        for (const char *at = out(); (at = strstr(at, "\n  --")) != NULL; at++) options++;
        CHECK(options >= 17 && options <= 21, "%s: %d options", line, options);
    }
    for (int i = 0; i < n; i++) {
        if (gx_text_is_among(common[i].option, "embed|d_model|n_embd"))
            continue; // of train_bert, train_bart, train_gpt2
        snprintf(option, sizeof option, "\n  --%s ", common[i].option);
        CHECK(strstr(all, option), "no task has%s", option + 1);
    }
}

static int widest_line(const char *text)
{
    int widest = 0;
    for (; *text; text += strcspn(text, "\n"), text += *text != 0) {
        const int columns = gx_text_columns(text, (int64_t)strcspn(text, "\r\n"));
        widest = columns > widest ? columns : widest;
    }
    return widest;
}

// What the program writes as its help to a terminal of so many columns.
static void help_on_terminal(int columns, char *text, size_t size)
{
    char line[GX_PATH + 40];
    const struct winsize w = {25, (unsigned short)columns, 0, 0};
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    size_t n = 0;
    text[0] = 0;
    if (!CHECK(terminal >= 0 && !grantpt(terminal) && !unlockpt(terminal), "there is no terminal")) return;
    const int other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    ioctl(terminal, TIOCSWINSZ, &w);
    snprintf(line, sizeof line, "%s --help all >%s", program, ptsname(terminal));
    FILE *f = popen(line, "r");
    struct pollfd p = {terminal, POLLIN, 0};
    for (ssize_t got = 1; got > 0 && n + 1 < size && poll(&p, 1, strstr(text, "tie_word") ? 200 : 20000) > 0;
         text[n] = 0)
        n += (size_t)((got = read(terminal, text + n, size - n - 1)) > 0 ? got : 0);
    CHECK(n + 1 < size, "the help is longer than %zu bytes", size);
    close(other);
    close(terminal); // a program that still writes gets an error instead of waiting for a reader
    CHECK(f && pclose(f) == 0, "%s failed", line);
}

TEST(help_is_as_wide_as_the_terminal_or_COLUMNS_or_80)
{
    static const struct {
        const char *environment;
        int terminal, columns;
    } list[] = {{"COLUMNS=100", 0, 100},  {"COLUMNS=0", 0, 80},      {"COLUMNS=12x", 0, 80},
                {"COLUMNS=99999", 0, 80}, {"COLUMNS=100", 120, 120}, {"COLUMNS=100", 60, 60}};
    static char text[200000];
    char line[GX_PATH + 100];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (list[i].terminal) {
            setenv("COLUMNS", list[i].environment + 8, 1);
            help_on_terminal(list[i].terminal, text, sizeof text);
            unsetenv("COLUMNS");
        } else {
            snprintf(line, sizeof line, "env %s %s --help all", list[i].environment, program);
            start_line(line, 0);
            CHECK_RAN(finish());
            snprintf(text, sizeof text, "%s", out());
        }
        const char *options = strstr(text, "--config FILE"); // before it stands the program's path
        const int widest = options ? widest_line(options) : 0;
        CHECK(widest <= list[i].columns && widest > list[i].columns - 5, "%s, a terminal of %d: %d columns",
              list[i].environment, list[i].terminal, widest);
    }
}

TEST(version_says_what_the_program_was_built_with_once)
{
    char line[GX_PATH + 60];
    const char *const starts[] = {"%s --version", "%s --version --ranks 3", "mpirun -np 2 %s --version"};
    for (int i = 0; i < 3; i++) {
        if (i == 2) NEED_MPI();
        snprintf(line, sizeof line, starts[i], program);
        start_line(line, 0);
        CHECK_RAN(finish());
        const char *first = strstr(out(), "galaxy " GX_VERSION " for device cpu, matrix products by ");
        CHECK(first == out() && !strstr(first + 1, "galaxy "), "%s: %s", line, out());
        CHECK(strstr(out(), has_mpi ? "\nMPI yes, JSON yes, OpenMP " : "\nMPI no, JSON yes, OpenMP "), "%s", out());
        // a version, where it was built with it
        CHECK(strstr(out(), program_contains("built without utf8proc") ? ", utf8proc no\n" : ", utf8proc 2."), "%s",
              out());
        CHECK(!*err(), "%s: it also said %s", line, err());
    }
}

int main(int argc, char **argv) { return program_main(argc, argv); }
