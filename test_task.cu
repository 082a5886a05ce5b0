// test_task.cu: what a task promises the trainer, and the trainer a task (task/task.h): a task without text, tokenizer,
// baseline, files or sample is trained, validated, saved and resumed like any other; and what causal_lm says of a loss.
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/said.h"
#include <sys/stat.h>
#include <unistd.h>

// ---- a task: say every token again ---------------------------------------------------------------------------------

// Sample i of the training is T symbols drawn by (seed, i); held-out ones are drawn by other seeds. Every label is the
// token itself. The loss is a sum over tokens, divided by the number of samples: not by the labels that count.
typedef struct {
    int64_t symbols;                               // option, and what a checkpoint goes on with
    char note[GX_FIELD_TEXT], fail[GX_FIELD_TEXT]; // options: which a rank may have for itself; where it is to fail
    int64_t seq_len;
} Copy;
enum { HELD_OUT = 5 };
static int64_t held_out = HELD_OUT;
static int opened, closed; // of all ranks
static int64_t now;        // the step that was taken last
static double last_loss;   // of the validations that were told: the last one's

static const GxField copy_options[] = {
    {"symbols", GX_FIELD_INT, offsetof(Copy, symbols), "7", "different tokens", "1..256"},
    {"note", GX_FIELD_STRING, offsetof(Copy, note), "", "each rank's own", NULL},
    {"fail", GX_FIELD_STRING, offsetof(Copy, fail), "never", "where the task fails", "never|open|fill|held_out"},
};
static const char *const copy_own[] = {"note", NULL};

static GxStatus copy_open(GxContext *g, void *self, GxTaskSetup *setup)
{
    Copy *c = (Copy *)self;
    c->seq_len = setup->seq_len;
    if (!setup->vocab) setup->vocab = 256;
    __atomic_add_fetch(&opened, 1, __ATOMIC_RELAXED);
    if (!strcmp(c->fail, "open")) return GX_FAIL(&g->error, GX_ERR_FORMAT, "copy cannot be opened");
    return GX_OK;
}

static void copy_close(void *self)
{
    (void)self;
    __atomic_add_fetch(&closed, 1, __ATOMIC_RELAXED);
}

static void copy_describe(const void *self, FILE *out)
{
    fprintf(out, "data: %ld symbols\n", (long)((const Copy *)self)->symbols);
}

static void copy_draw(const Copy *c, GxBatch *b, int32_t *tokens, uint64_t seed, int64_t end)
{
    int32_t *labels = tokens + b->T * b->B;
    for (int64_t i = 0; i < b->B; i++)
        for (int64_t t = 0; t < b->T; t++) {
            const GxRandom4 r = gx_philox(seed, (uint64_t)(b->sample + i), (uint32_t)t, 99);
            const int counts = b->sample + i < end;
            tokens[t * b->B + i] = (int32_t)(r.w[0] % (uint32_t)c->symbols);
            labels[t * b->B + i] = counts ? tokens[t * b->B + i] : GX_IGNORE_INDEX;
        }
}

static GxStatus copy_fill(GxContext *g, void *self, GxBatch *b, void *host_copy, uint64_t seed, GxError *err)
{
    const Copy *c = (const Copy *)self;
    (void)g;
    if (!strcmp(c->fail, "fill") && b->sample >= 8) return GX_FAIL(err, GX_ERR_IO, "copy has no more samples");
    copy_draw(c, b, (int32_t *)host_copy, seed, INT64_MAX);
    return GX_OK;
}

static int64_t copy_held_out(const void *self)
{
    (void)self;
    return held_out;
}

static GxStatus copy_fill_held_out(GxContext *g, void *self, GxBatch *b, void *host_copy, int64_t samples, GxError *err)
{
    const Copy *c = (const Copy *)self;
    (void)g;
    if (!strcmp(c->fail, "held_out") && now == 6) return GX_FAIL(err, GX_ERR_IO, "copy has no more held-out samples");
    copy_draw(c, b, (int32_t *)host_copy, 1 << 20, samples);
    return GX_OK;
}

static void copy_counts(const void *self, const GxBatch *b, int64_t count[GX_MAX_LOSSES])
{
    (void)self;
    for (int64_t i = 0; i < b->B; i++) count[0] += gx_target_labels(&b->target[0])[i] != GX_IGNORE_INDEX;
}

// The probability that a token is said again, as the geometric mean over all tokens.
static int copy_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    const double loss = gx_losses_mean(losses, 0);
    const GxMetric both[2] = {{"loss", "loss %.4f", loss, -1},
                              {"rightness", "right %.4f", exp(-loss / (double)((const Copy *)self)->seq_len), 1}};
    (void)g;
    memcpy(metric, both, sizeof both);
    return 2;
}

static const GxTask copy = {
    "copy", // name
    {
        // options
        sizeof(Copy),            // size
        GX_FIELDS(copy_options), // fields, n_fields
        copy_own,                // own
        NULL,                    // defaults
        NULL,                    // reading
    },
    {
        // loss
        1,         // n
        NULL,      // names
        "samples", // counted
        NULL,      // unit
        NULL,      // best_metric
    },
    {
        // data
        copy_open,     // open
        copy_close,    // close
        NULL,          // head
        copy_describe, // describe
        NULL,          // show
        NULL,          // prepare
    },
    {
        // checkpoint
        copy_options, 1, // identity, n_identity
        // elsewhere
        "with other symbols",
        NULL, // write
        NULL, // changed
    },
    {
        // batch
        NULL,                  // allocate
        gx_task_layout_labels, // layout
        copy_fill,             // fill
        copy_counts,           // counts
        copy_held_out,         // held_out
        copy_fill_held_out,    // fill_held_out
        NULL,                  // see
        NULL,                  // stands_alone
    },
    {
        // metrics
        copy_metrics, // compute
        NULL,         // progress
        NULL,         // baseline
        NULL,         // lacks
        NULL,         // confusion
    },
    {
        // output
        NULL, // sample
        NULL, // predicts
        NULL, // predict
    },
};

// ---- a program that trains it --------------------------------------------------------------------------------------

static struct {
    double window[32], validation[32]; // losses, by the step
} told;                                // in numbers

static const GxTask *task = &copy;
static const char *shrinks; // this file, to 100 bytes, after the second step; NULL: none
static struct {
    int64_t first, end;
} sick; // windows whose gradients are not finite: a weight is a NaN as long as they last

static void step_once(GxTrainer *t)
{
    float *weight = (float *)t->session.model.store.weights + t->session.model.store.weights_n - 1; // of the head
    const int is_sick = t->run.at.step >= sick.first && t->run.at.step < sick.end;
    const float healthy = is_sick ? *weight : 0;
    if (is_sick) *weight = NAN;
    gx_trainer_step(t);
    if (is_sick) *weight = healthy; // the step has changed nothing
}

static int train_task(GxContext *g, int argc, char **argv)
{
    static const GxReporter reporter = {hear_out, NULL, NULL};
    GxTrainer t = GX_ZERO;
    GxLosses losses;
    char *own[60], path[GX_PATH];
    for (int i = 0; i < argc; i++) { // "text@" is text0 on rank 0 and text1 on rank 1
        const size_t n = strlen(argv[i]);
        snprintf(path, sizeof path, "%.*s%d", (int)n - 1, argv[i], g->rank);
        own[i] = n && argv[i][n - 1] == '@' ? strdup(path) : strdup(argv[i]);
    }
    g->reporter = &reporter;
    g->log.write = hear_log;
    gx_trainer_open(&t, g, &gx_llama, task, NULL, argc, own);
    while (gx_trainer_next(&t)) {
        step_once(&t);
        now = t.run.at.step;
        gx_evaluate(&t.session, 0, &losses);
        gx_trainer_report(&t);
        if (shrinks && t.run.at.step == 2 && g->rank == 0) CHECK(truncate(shrinks, 100) == 0, "cannot cut %s", shrinks);
        if (g->rank != 0 || t.run.at.step >= 32) continue;
        told.validation[t.run.at.step] = gx_losses_mean(&losses, 0);
        told.window[t.run.at.step] = gx_step_loss(&t.session.seen);
    }
    const int status = gx_trainer_close(&t);
    for (int i = 0; i < argc; i++) free(own[i]);
    return status;
}

static char folder[] = "/tmp/galaxy_test_task_XXXXXX";

// Exit status of a tiny model's training, in folder/<name>; "": where `more` says.
static int train(const char *name, const char *more)
{
    char line[4 * GX_PATH], *argv[60] = {(char *)"train"};
    int argc = 1;
    memset(&said, 0, sizeof said), memset(&told, 0, sizeof told);
    opened = closed = 0;
    snprintf(line, sizeof line,
             "%s%s%s%s --hidden_size 16 --intermediate_size 16 --num_hidden_layers 1 "
             "--num_attention_heads 2 --num_key_value_heads 1 --seq_len 8 --threads 1 --logging_steps 1 "
             "--learning_rate 0.02 %s %s",
             name[0] ? "--output_dir " : "", name[0] ? folder : "", name[0] ? "/" : "", name,
             strstr(more, "--lr_scheduler_type") ? "" : "--lr_scheduler_type constant", more);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    return gx_launch(train_task, argc, argv);
}

static char *read_file(const char *name)
{
    char path[GX_PATH], *text = NULL;
    int64_t bytes;
    GxError err = GX_ZERO;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return gx_file_read(path, 1 << 20, &text, &bytes, &err) == GX_OK ? text : (char *)calloc(1, 1);
}

static int has_file(const char *name)
{
    struct stat st;
    char path[GX_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) == 0;
}

// ---- what the trainer does with it ---------------------------------------------------------------------------------

TEST(a_task_without_text_tokenizer_baseline_and_sample_is_trained)
{
    static const char *const lines[] =
        {"data: 7 symbols\n", " | validation loss ", " | right ", " over 5 samples\n", "saved ", "done: 20 steps in "},
                             *const foreign[] = {"bigram", "sample:", "bits per byte", "held out", "train_data"};
    CHECK(train("plain", "--micro_batch_size 4 --max_steps 20 --eval_steps 10") == 0, "%s", said.log);
    CHECK(said.log[0] == 0 && opened == 1 && closed == 1, "%d opened, %d closed, %s", opened, closed, said.log);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(said.out, lines[i]), "no \"%s\" in: %s", lines[i], said.out);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        CHECK(!strstr(said.out, foreign[i]), "\"%s\" in: %s", foreign[i], said.out);
    // a sample's loss: 8 tokens of the 256 that the model knows, then of 7 symbols or better
    CHECK(fabs(told.window[1] - 8 * log(256.0)) < 1, "at first %g", told.window[1]);
    CHECK(told.window[20] < 8 * log(7.0), "at last %g", told.window[20]);
}

TEST(its_metrics_are_logged_by_name_and_its_identity_kept)
{
    char *log = read_file("plain/log.jsonl"), *state = read_file("plain/checkpoint-20/trainer_state.json"),
         *args = read_file("plain/training_args.json");
    const char *at = strstr(log, "{\"step\": 10, \"eval_loss\": "),
               *right = at ? strstr(at, "\"eval_rightness\": ") : 0;
    if (CHECK(at && right, "no validation of step 10 in %s", log)) {
        const double loss = strtod(at + 26, NULL), rightness = strtod(right + 18, NULL);
        CHECK(fabs(rightness - exp(-loss / 8)) < 1e-6, "loss %g, rightness %g", loss, rightness);
    }
    CHECK(!strstr(log, "bits_per_byte") && strstr(log, ", \"eval_samples\": 5}\n"), "%s", log);
    CHECK(strstr(state, "\"symbols\": 7") && !strstr(state, "text_") && !strstr(state, "tokenizer"), "%s", state);
    CHECK(strstr(args, "\"symbols\": 7") && strstr(args, "\"note\": \"\"") && !strstr(args, "train_data"), "%s", args);
    CHECK(has_file("plain/checkpoint-20/model.safetensors") && !has_file("plain/checkpoint-20/tokenizer.json"),
          "the checkpoint's files");
    free(log), free(state), free(args);
}

// The longest chain of roundings behind a loss of step `steps`: a sum per matrix product and norm, forward and
// backward; the attention's keys; the tokens of a window; and so on for each update before.
static double depth(int steps)
{
    const double H = 16, F = 16, T = 8, V = 256, layer = 4 * H + F + H + H / 2 + T, samples = 8;
    return (2 * (layer + H + V) + samples * T) * steps;
}

TEST(a_validation_does_not_depend_on_how_its_samples_meet_batches_and_ranks)
{
    static const char *const ways[] = {"--micro_batch_size 8",
                                       "--micro_batch_size 4 --gradient_accumulation_steps 2",
                                       "--micro_batch_size 2 --gradient_accumulation_steps 4",
                                       "--micro_batch_size 4 --ranks 2",
                                       "--dp_batch_size_list 7,1 --ranks 2",
                                       "--dp_samples_list 7,1 --ranks 2 --micro_batch_size 3",
                                       "--micro_batch_size 8 --ranks 2 --mode tp"};
    double validation[3], window[3];
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        char name[20], flags[300];
        snprintf(name, sizeof name, "way%d", (int)w);
        snprintf(flags, sizeof flags, "%s --max_steps 2 --optimizer sgd", ways[w]);
        if (!CHECK(train(name, flags) == 0, "%s: %s", ways[w], said.log)) continue;
        for (int s = 1; s <= 2; s++) {
            if (w == 0) validation[s] = told.validation[s], window[s] = told.window[s];
            const float ours[2] = {(float)told.validation[s], (float)told.window[s]};
            test_close("validation", &ours[0], &validation[s], 1, test_bound(depth(s + 1)), 0);
            test_close("window", &ours[1], &window[s], 1, test_bound(depth(s)), 0);
        }
    }
}

TEST(a_resumed_run_sees_the_samples_that_come_next_and_another_identity_is_refused)
{
    CHECK(train("whole", "--micro_batch_size 2 --max_steps 6 --eval_steps 0") == 0, "%s", said.log);
    const double window = told.window[6], validation = told.validation[6];
    CHECK(train("cut", "--micro_batch_size 2 --max_steps 3 --eval_steps 0") == 0, "%s", said.log);
    CHECK(train("cut", "--micro_batch_size 2 --max_steps 6 --eval_steps 0 --resume auto") == 0, "%s", said.log);
    CHECK(told.window[6] == window && told.validation[6] == validation && !said.log[0],
          "%.17g, uninterrupted %.17g; validation %.17g, %.17g; %s", told.window[6], window, told.validation[6],
          validation, said.log);
    CHECK(train("cut", "--micro_batch_size 2 --max_steps 7 --resume auto --symbols 5") == 1, "%s", said.log);
    CHECK(strstr(said.log, "was trained with other symbols (its symbols"), "%s", said.log);
}

// What a run compares is asked for before there is any: without data, buffers or another rank.
TEST(every_task_says_its_metrics_before_there_is_a_validation)
{
    static const struct {
        const GxTask *task;
        const char *names;
    } list[] = {{&gx_causal_lm, "loss bits_per_byte "},
                {&gx_masked_lm, "loss perplexity accuracy "},
                {&gx_classification, "loss accuracy f1 matthews_correlation "},
                {&gx_embedding_task, "loss mrr recall_1 recall_5 recall_10 "}};
    for (int i = 0; i < 4; i++) {
        GxContext g = GX_ZERO;
        GxMetric metric[GX_MAX_METRICS];
        char names[200] = "";
        void *self = calloc(1, list[i].task->options.size);
        if (list[i].task == &gx_classification) ((GxClassification *)self)->problem = GX_PROBLEM_SINGLE;
        if (list[i].task == &gx_embedding_task) ((GxEmbeddingTask *)self)->held_out.per = 2;
        const int n = list[i].task->metrics.compute(&g, self, NULL, metric);
        for (int m = 0; m < n; m++) {
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", metric[m].name);
            CHECK(metric[m].better, "%s: nobody knows whether a larger %s is better", list[i].task->name,
                  metric[m].name);
        }
        CHECK(!strcmp(names, list[i].names) && !gx_failed(&g), "%s: %s", list[i].task->name, names);
        free(self);
    }
    GxMaskedLm masked = GX_ZERO;
    GxContext g = GX_ZERO;
    GxMetric metric[GX_MAX_METRICS];
    masked.nsp = 1;
    CHECK(gx_masked_lm.metrics.compute(&g, &masked, NULL, metric) == 6 && !strcmp(metric[5].name, "nsp_accuracy"),
          "of pairs");
    CHECK(!strcmp(gx_masked_lm.metrics.lacks(&masked, "nsp_accuracy"), "needs --nsp true"), "pairs");
    CHECK(!gx_masked_lm.metrics.lacks(&masked, "accuracy"), "it has the accuracy of masked tokens always");
}

// ---- the best validation -------------------------------------------------------------------------------------------

// Metrics as the test says them, by the step; other ranks than the first say the contrary.
static double script[32];
static int scored_metrics(GxContext *g, void *self, const GxLosses *losses, GxMetric metric[GX_MAX_METRICS])
{
    const double said = g->rank ? -script[now] : script[now];
    const GxMetric all[4] = {{"loss", "loss %.4f", gx_losses_mean(losses, 0), -1},
                             {"score", "score %.4f", said, 1},
                             {"cost", "cost %.4f", said, -1},
                             {"oddity", "oddity %.4f", said, 0}};
    (void)self;
    if (g->rank == 0 && losses) last_loss = all[0].value;
    memcpy(metric, all, sizeof all);
    return 4;
}

static const char *scored_lacks(const void *self, const char *metric)
{
    (void)self;
    return strcmp(metric, "beauty") ? NULL : "needs an eye";
}

// A run of `scored`, whose validations at the steps 2, 4, ... say these; the rest as the last one.
static int train_scored(const char *name, const double *scores, int n, const char *more)
{
    GxTask scored = copy;
    scored.metrics.compute = scored_metrics, scored.metrics.lacks = scored_lacks;
    for (int i = 0; i < 32; i++) script[i] = scores[gx_max(0, gx_min(i / 2, n) - 1)];
    task = &scored;
    char flags[900];
    snprintf(flags, sizeof flags, "--micro_batch_size 2 --eval_steps 2 --save_total_limit 1 %s", more);
    const int status = train(name, flags);
    task = &copy;
    return status;
}
#define SCORES(...) (const double[]){__VA_ARGS__}, (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static int file_says(const char *name, const char *words)
{
    char *text = read_file(name);
    const int says = strstr(text, words) != NULL;
    free(text);
    return says;
}

static double logged(const char *log, int64_t step, const char *key) // NAN: it is not there
{
    char words[100];
    snprintf(words, sizeof words, "{\"step\": %ld, \"loss\"", (long)step);
    const char *line = strstr(log, words);
    snprintf(words, sizeof words, "\"%s\": ", key);
    const char *at = line ? strstr(line, words) : NULL;
    if (!at || at > strchr(line, '\n')) return NAN;
    at += strlen(words);
    return *at == 't' || *at == 'f' ? *at == 't' : strtod(at, NULL);
}

// Saved and kept beside the newest; in the end its weights are validated, and the folder names it.
TEST(the_best_validations_checkpoint_is_saved_kept_and_loaded_at_the_end)
{
    static const char *const ways[] = {"", "--ranks 2", "--ranks 2 --mode tp", "--precision bf16"};
    for (int w = 0; w < 4; w++) {
        char name[20], flags[300], file[60];
        snprintf(name, sizeof name, "best%d", w);
        snprintf(flags, sizeof flags, "--max_steps 8 --load_best_model_at_end true --metric_for_best_model score %s",
                 ways[w]);
        if (!CHECK(train_scored(name, SCORES(0.3, 0.9, 0.5, 0.4), flags) == 0 && !said.log[0], "%s: %s", ways[w],
                   said.log))
            continue;
        for (int step = 1; step <= 8; step++) {
            snprintf(file, sizeof file, "%s/checkpoint-%d/manifest.json", name, step);
            CHECK(has_file(file) == (step == 4 || step == 8), "%s: %s", ways[w], file);
        }
        snprintf(file, sizeof file, "%s/checkpoint-8/trainer_state.json", name);
        CHECK(file_says(file, "\"best_metric\": 0.9,") && file_says(file, "\"best_global_step\": 4,") &&
                  file_says(file, "\"best_model_checkpoint\": \"checkpoint-4\"") &&
                  file_says(file, "\"early_stopping_patience_counter\": 2"),
              "%s: %s says other things", ways[w], file);
        snprintf(file, sizeof file, "%s/run.json", name);
        CHECK(file_says(file, "\"best_metric\": 0.9,") && file_says(file, "\"best_global_step\": 4,") &&
                  file_says(file, "\"best_model_checkpoint\": \"checkpoint-4\""),
              "%s: %s says other things", ways[w], file);
        CHECK(last_loss == told.validation[4] && last_loss != told.validation[8],
              "%s: %.17g at the end, %.17g after step 4, %.17g after step 8", ways[w], last_loss, told.validation[4],
              told.validation[8]);
        CHECK(strstr(said.out, "\nstep     4, the best | validation loss ") &&
                  strstr(said.out, "the best on the way: score 0.9000 at step 4,") &&
                  strstr(said.out, "/checkpoint-4\n"),
              "%s: %s", ways[w], said.out);
        snprintf(file, sizeof file, "%s/log.jsonl", name);
        CHECK(file_says(file, "{\"step\": 8, \"weights_of_step\": 4, \"eval_loss\": "), "%s: %s", ways[w], said.out);
    }
}

// It is saved and kept also where the weights of the last step are those that the run ends with.
TEST(which_validation_is_the_best_follows_from_the_metric_and_its_direction)
{
    static const struct {
        const char *flags;
        int best, last;
    } list[] = {
        {"--metric_for_best_model score", 4, 8},
        {"--metric_for_best_model eval_score", 4, 8}, // as log.jsonl calls it
        {"--metric_for_best_model cost", 2, 8},
        {"--metric_for_best_model score --greater_is_better false", 2, 8},
        {"--metric_for_best_model oddity --greater_is_better true", 4, 8},
        {"--metric_for_best_model cost --max_steps 3", 2, 3},  // of equal ones the first
        {"--load_best_model_at_end true --max_steps 7", 7, 7}, // the loss falls; the last weights are compared, too
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[20], flags[200], path[80], best[60];
        snprintf(name, sizeof name, "which%d", (int)i);
        snprintf(flags, sizeof flags, "--max_steps 8 --save_steps 3 %s", list[i].flags);
        CHECK(train_scored(name, SCORES(0.3, 0.9, 0.5), flags) == 0 && !said.log[0], "%s: %s", list[i].flags, said.log);
        snprintf(best, sizeof best, "\"best_model_checkpoint\": \"checkpoint-%d\"", list[i].best);
        snprintf(path, sizeof path, "%s/run.json", name);
        CHECK(file_says(path, best), "%s: no %s", list[i].flags, best);
        snprintf(path, sizeof path, "%s/checkpoint-%d/manifest.json", name, list[i].best);
        CHECK(has_file(path), "%s is gone", path);
        CHECK(last_loss == told.validation[list[i].last], "%s: the last weights are not there", list[i].flags);
    }
}

TEST(a_metric_that_cannot_be_compared_is_refused_with_those_that_can)
{
    static const struct {
        const char *flags, *says;
    } list[] = {
        {"--metric_for_best_model eval_accuracy",
         "--metric_for_best_model is \"eval_accuracy\"; a validation of task copy reports loss, score, cost, oddity\n"},
        {"--metric_for_best_model accuracy --ranks 2", "reports loss, score, cost, oddity"},
        {"--metric_for_best_model beauty", "reports loss, score, cost, oddity; beauty needs an eye\n"},
        {"--greater_is_better false", "--greater_is_better false needs --metric_for_best_model, which is not given"},
        {"--greater_is_better true --load_best_model_at_end true", "--greater_is_better true needs --metric_for"},
        {"--early_stopping_threshold 0.1 --metric_for_best_model score",
         "--early_stopping_threshold 0.1 needs --early_stopping_patience, which is 0"},
        {"--metric_for_best_model oddity", "whether a larger oddity is better; set --greater_is_better true or false"},
        {"--metric_for_best_model score --eval_steps 0",
         "--metric_for_best_model compares validations during the training"},
        {"--load_best_model_at_end true --eval_steps 0",
         "--load_best_model_at_end compares validations during the training"},
        {"--early_stopping_patience 1 --eval_steps 0",
         "--early_stopping_patience compares validations during the training"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[20], flags[200];
        snprintf(name, sizeof name, "refused%d", (int)i);
        snprintf(flags, sizeof flags, "--max_steps 4 %s", list[i].flags);
        now = 0;
        CHECK(train_scored(name, SCORES(1), flags) == 1 && strstr(said.log, list[i].says), "%s: %s", list[i].flags,
              said.log);
        CHECK(now == 0 && !has_file(name), "%s: it was trained up to step %ld", list[i].flags, (long)now);
    }
    held_out = 0;
    CHECK(train_scored("refused", SCORES(1), "--early_stopping_patience 1") == 1 &&
              strstr(said.log, "task copy has no held-out samples"),
          "%s", said.log);
    held_out = HELD_OUT;
}

TEST(a_run_whose_validations_get_no_better_ends_early_as_a_whole_run)
{
    static const struct {
        double scores[8];
        const char *flags, *says;
        int end, best;
    } list[] = {
        {{0.3, 0.9, 0.5, 0.8}, "--early_stopping_patience 2", "2 validations in a row without a better score (", 8, 4},
        {{0.3, 0.9, 0.5, 0.8, 1}, "--early_stopping_patience 3", NULL, 12, 10},
        {{0.3, 0.9, 0.95, 0.5}, // the best all the same
         "--early_stopping_patience 2 --early_stopping_threshold 0.1",
         "2 validations in a row without a better score by more than 0.1 (",
         8,
         6},
        {{0.3, 0.3}, "--early_stopping_patience 1", "1 validation in a row without a better score (", 4, 2},
        {{0.3, NAN, 0.2}, "--early_stopping_patience 2", "2 validations in a row", 8, 2}, // NAN: it cannot be compared
        {{NAN, 0.3, NAN, NAN, 0.2, 0.1}, "--early_stopping_patience 2", "2 validations in a row", 12, 4},
        {{0.3, 0.2, 0.1, 0.1, 0.1, 0.1}, "", NULL, 12, 2},
    };
    static const char *const ways[] = {"", "--ranks 2", "--ranks 2 --mode sp"};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[20], flags[300], words[100];
        snprintf(name, sizeof name, "early%d", (int)i);
        snprintf(flags, sizeof flags, "--max_steps 12 --metric_for_best_model score --logging_steps 3 %s %s",
                 list[i].flags, ways[i % 3]);
        CHECK(train_scored(name, list[i].scores, 8, flags) == 0 && !said.log[0], "%s: %s", flags, said.log);
        snprintf(words, sizeof words, "stopped early after step %d of 12: ", list[i].end);
        char *one_line = strdup(said.out);
        for (char *at; (at = strstr(one_line, "\n  "));) memmove(at, at + 2, strlen(at + 2) + 1), *at = ' ';
        CHECK(!strstr(one_line, words) == !list[i].says && (!list[i].says || strstr(one_line, list[i].says)), "%s: %s",
              flags, said.out);
        free(one_line);
        snprintf(words, sizeof words, "step %5d/12  loss ", list[i].end);
        CHECK(strstr(said.out, words), "no line of the last steps: %s", said.out);
        snprintf(words, sizeof words, "done: %d steps in ", list[i].end);
        CHECK(strstr(said.out, words), "%s", said.out);
        snprintf(words, sizeof words, "\"best_global_step\": %d,", list[i].best);
        snprintf(flags, sizeof flags, "%s/checkpoint-%d/trainer_state.json", name, list[i].end);
        CHECK(file_says(flags, words), "no %s in %s", words, flags);
    }
}

// It neither ends the run nor is it passed over in silence.
TEST(validations_that_cannot_be_compared_are_a_warning_at_the_end)
{
    static const char *const ways[] = {"", "--load_best_model_at_end true", "--early_stopping_patience 1 --ranks 2"};
    for (int w = 0; w < 3; w++) {
        char name[20], flags[200], file[60], *one_line;
        snprintf(name, sizeof name, "unknown%d", w);
        snprintf(flags, sizeof flags, "--max_steps 8 --metric_for_best_model score %s", ways[w]);
        CHECK(train_scored(name, SCORES(NAN, INFINITY, NAN), flags) == 0, "%s: %s", ways[w], said.log);
        one_line = strstr(said.log, "no validation could be compared, because score was not a finite number in any of "
                                    "them; the last weights are kept");
        CHECK(one_line && !strstr(one_line + 1, "no validation") && strstr(one_line, "/checkpoint-8\n"), "%s: %s",
              ways[w], said.log);
        CHECK(!strstr(said.log, "--load_best_model_at_end loads no others") == (w != 1), "%s: %s", ways[w], said.log);
        CHECK(last_loss == told.validation[8] && !strstr(said.out, "the best on the way"), "%s: %s", ways[w], said.out);
        snprintf(file, sizeof file, "%s/checkpoint-8/trainer_state.json", name);
        CHECK(file_says(file, "\"best_global_step\": 0,") && file_says(file, "patience_counter\": 0"), "%s", file);
    }
    CHECK(train_scored("known", SCORES(NAN, 0.1, NAN), "--max_steps 8 --metric_for_best_model score") == 0 &&
              !said.log[0],
          "%s", said.log);
}

// What the run was begun with is no error of who switches it off.
TEST(a_threshold_of_the_run_that_is_resumed_may_stay_without_its_patience)
{
    char more[300];
    const char *flags = "--metric_for_best_model score --greater_is_better false --early_stopping_threshold 0.1";
    snprintf(more, sizeof more, "--max_steps 2 --early_stopping_patience 3 %s", flags);
    CHECK(train_scored("off", SCORES(1), more) == 0, "%s", said.log);
    CHECK(train_scored("off", SCORES(1), "--max_steps 4 --resume auto --early_stopping_patience 0") == 0, "%s",
          said.log);
}

#define PATIENT                                                                                                        \
    "--max_steps 20 --metric_for_best_model score --load_best_model_at_end true --early_stopping_patience 3 "          \
    "--save_steps 1 --save_total_limit 0 "
#define PATIENCE SCORES(0.3, 0.9, 0.5, 0.95, 0.1, 0.2, 0.3, 0.4) // ends after step 14

// Wherever it is cut: the same best, the same end, the same state.
TEST(a_run_that_goes_on_compares_and_ends_as_the_uninterrupted_one)
{
    char flags[400], *state, *log;
    CHECK(train_scored("patient", PATIENCE, PATIENT) == 0 && strstr(said.out, "stopped early after step 14"), "%s",
          said.out);
    state = read_file("patient/checkpoint-14/trainer_state.json"), log = read_file("patient/run.json");
    CHECK(strstr(state, "\"best_global_step\": 8,") && strstr(state, "\"early_stopping_patience_counter\": 3"), "%s",
          state);
    const double best_loss = told.validation[8];
    CHECK(last_loss == best_loss, "the best was not loaded");
    for (int cut = 3; cut <= 13; cut += 2 + (cut == 5)) { // before the best, after it, at a validation
        snprintf(flags, sizeof flags, PATIENT "--resume %s/patient/checkpoint-%d", folder, cut);
        CHECK(train_scored("patient", PATIENCE, flags) == 0 && !said.log[0], "%d: %s", cut, said.log);
        char *again = read_file("patient/checkpoint-14/trainer_state.json"), *run = read_file("patient/run.json");
        CHECK(!strcmp(state, again) && !strcmp(log, run), "%d: %s%s, uninterrupted %s%s", cut, again, run, state, log);
        CHECK(last_loss == best_loss, "%d: the best was not loaded", cut);
        free(again), free(run);
    }
    free(state), free(log);
}

// A validation that was cut short is made up for: after the same step.
TEST(a_validation_that_a_signal_cut_short_is_made_when_the_run_goes_on)
{
    const char *flags = "--max_steps 10 --metric_for_best_model score --early_stopping_patience 2";
    char more[400];
    CHECK(train_scored("uncut", SCORES(0.3, 0.2, 0.9, 0.8, 0.7), flags) == 0, "%s", said.log);
    snprintf(more, sizeof more, "%s --fail held_out", flags);
    CHECK(train_scored("cut_short", SCORES(0.3, 0.2, 0.9, 0.8, 0.7), more) == 1 &&
              has_file("cut_short/checkpoint-6/manifest.json") &&
              file_says("cut_short/checkpoint-6/trainer_state.json", "\"last_validation_step\": 4"),
          "%s", said.log);
    now = 6; // where it goes on
    snprintf(more, sizeof more, "%s --fail never --resume auto", flags);
    CHECK(train_scored("cut_short", SCORES(0.3, 0.2, 0.9, 0.8, 0.7), more) == 0, "%s", said.log);
    char *whole = read_file("uncut/checkpoint-10/trainer_state.json"),
         *half = read_file("cut_short/checkpoint-10/trainer_state.json");
    const char *a = strstr(whole, "\"best_metric\""), *b = strstr(half, "\"best_metric\"");
    CHECK(a && b && !strcmp(a, b), "%s, uninterrupted %s", half, whole);
    free(whole), free(half);
}

TEST(a_run_that_was_stopped_early_says_so_and_goes_on_with_more_patience_alone)
{
    const char *flags = "--max_steps 12 --metric_for_best_model score --load_best_model_at_end true";
    char more[400];
    snprintf(more, sizeof more, "%s --early_stopping_patience 2", flags);
    CHECK(train_scored("gave_up", SCORES(0.9, 0.5, 0.4, 0.3, 0.2), more) == 0, "%s", said.log);
    char *log = read_file("gave_up/log.jsonl");
    snprintf(more, sizeof more, "%s --resume auto --early_stopping_patience 2", flags);
    now = 6;
    CHECK(train_scored("gave_up", SCORES(0.9, 0.5, 0.4, 0.3, 0.2), more) == 0 &&
              strstr(said.log, "it was stopped early by 2 validations in a row without a better score") &&
              strstr(said.out, "done: 6 steps, none of them now"),
          "%s%s", said.log, said.out);
    char *log_now = read_file("gave_up/log.jsonl");
    CHECK(!strcmp(log_now, log), "%s before, now %s", log, log_now);
    free(log_now);
    CHECK(!has_file("gave_up/abandoned/log.jsonl"), "lines were set apart");
    snprintf(more, sizeof more, "%s --resume auto --early_stopping_patience 4", flags);
    CHECK(train_scored("gave_up", SCORES(0.9, 0.5, 0.4, 0.3, 0.2), more) == 0 &&
              strstr(said.out, "stopped early after step 10 of 12") &&
              file_says("gave_up/run.json", "\"best_model_checkpoint\": \"checkpoint-2\""),
          "%s%s", said.log, said.out);
    free(log);
}

TEST(the_best_begins_anew_where_it_cannot_be_compared_or_loaded)
{
    static const struct {
        const char *flags, *says;
        int removes;
    } list[] = {
        {"--metric_for_best_model cost", "metric_for_best_model has changed", 0},
        {"--greater_is_better false", "greater_is_better has changed", 0},
        {"--max_eval_samples 3", "max_eval_samples has changed", 0},
        {"", "the checkpoint of the best validation so far, of step 2, is not in ", 1},
    };
    char flags[400], gone[GX_PATH];
    GxError err = GX_ZERO;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[20];
        snprintf(name, sizeof name, "anew%d", (int)i);
        CHECK(train_scored(name, SCORES(0.9, 0.5), "--max_steps 5 --metric_for_best_model score") == 0, "%s", said.log);
        snprintf(gone, sizeof gone, "%s/%s/checkpoint-2", folder, name);
        if (list[i].removes) CHECK(gx_folder_remove(gone, &err) == GX_OK, "%s", err.message);
        snprintf(flags, sizeof flags, "--metric_for_best_model score --max_steps 8 --resume auto %s", list[i].flags);
        CHECK(train_scored(name, SCORES(0.9, 0.5, 0.6, 0.6), flags) == 0 && strstr(said.log, list[i].says), "%s: %s",
              list[i].flags, said.log);
        snprintf(flags, sizeof flags, "%s/run.json", name);
        CHECK(file_says(flags, "\"best_global_step\": 6,"), "%s: another step is the best", list[i].flags);
    }
}

static int64_t lay_both(const void *self, GxBatch *b, void *block, void *host_copy) // of the second none counts
{
    const int64_t bytes = gx_task_layout_labels(self, b, block, host_copy);
    b->target[1].labels = b->target[0].labels;
    return bytes;
}

TEST(losses_that_have_names_and_targets_are_logged_one_by_one)
{
    static const char *const names[] = {"copy_loss", "other_loss"};
    GxTask two = copy;
    two.loss.n = 2, two.loss.names = names;
    task = &two;
    CHECK(train("one_of_two", "--max_steps 2 --micro_batch_size 2") == 0, "%s", said.log);
    CHECK(!file_says("one_of_two/log.jsonl", "_loss\": null") && !file_says("one_of_two/log.jsonl", "copy_loss"),
          "a loss without a target is logged");
    two.batch.layout = lay_both;
    CHECK(train("two", "--max_steps 2 --micro_batch_size 2") == 0, "%s", said.log);
    task = &copy;
    char *log = read_file("two/log.jsonl");
    CHECK(logged(log, 2, "copy_loss") == logged(log, 2, "loss") && strstr(log, ", \"other_loss\": null, \"grad_norm\""),
          "%s", log);
    CHECK(!file_says("plain/log.jsonl", "copy_loss"), "one loss has no name");
    free(log);
}

// ---- steps that are skipped ----------------------------------------------------------------------------------------

#define DESCENDING                                                                                                     \
    "--micro_batch_size 2 --max_steps 8 --warmup_steps 2 --lr_scheduler_type linear --min_lr_ratio 0 --eval_steps 0 "  \
    "--save_steps 5 "

// A rate belongs to an update, not to a window: what was skipped has used none up.
TEST(the_learning_rate_waits_while_steps_are_skipped)
{
    GxSchedule schedule;
    GxError err = GX_ZERO;
    CHECK(gx_schedule_open(&schedule, "linear", 0.02, 0, 2, 1, 8, &err) == GX_OK, "%s", err.message);
    sick.first = 2, sick.end = 4;
    CHECK(train("skips", DESCENDING) == 0, "%s", said.log);
    sick.first = sick.end = 0;
    char *log = read_file("skips/log.jsonl"), *state = read_file("skips/checkpoint-8/trainer_state.json");
    for (int step = 1, applied = 0; step <= 8; step++) {
        const int is_skipped = step == 3 || step == 4;
        CHECK(logged(log, step, "skipped") == is_skipped, "step %d: %s", step, log);
        test_close_number("lr", logged(log, step, "lr"), gx_schedule_rate(&schedule, applied), test_bound(1));
        applied += !is_skipped;
    }
    CHECK(strstr(state, "\"global_step\": 8") && strstr(state, "\"applied_steps\": 6"), "%s", state);
    CHECK(strstr(said.log, "2 of 8 steps were skipped"), "%s", said.log);
    free(log), free(state);
}

TEST(a_run_that_has_skipped_steps_goes_on_from_its_checkpoint_bit_for_bit)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "trainer_state.json"};
    char flags[500];
    snprintf(flags, sizeof flags, DESCENDING "--resume %s/skips/checkpoint-5", folder);
    CHECK(train("skipped", flags) == 0, "%s", said.log);
    char *whole = read_file("skips/log.jsonl"), *half = read_file("skipped/log.jsonl");
    for (int step = 6; step <= 8; step++)
        CHECK(logged(whole, step, "loss") == logged(half, step, "loss") &&
                  logged(whole, step, "lr") == logged(half, step, "lr"),
              "step %d of the uninterrupted run and of the other:\n%s\n%s", step, whole, half);
    for (int i = 0; i < 3; i++) {
        char a[GX_PATH], b[GX_PATH];
        uint64_t hash[2] = {0, 1};
        int64_t bytes;
        GxError err = GX_ZERO;
        snprintf(a, sizeof a, "%s/skips/checkpoint-8/%s", folder, files[i]);
        snprintf(b, sizeof b, "%s/skipped/checkpoint-8/%s", folder, files[i]);
        CHECK(gx_file_hash(a, &hash[0], &bytes, &err) == GX_OK && gx_file_hash(b, &hash[1], &bytes, &err) == GX_OK &&
                  hash[0] == hash[1],
              "%s and %s differ; %s", a, b, err.message);
    }
    free(whole), free(half);
}

// The task holds out 5 samples, all of which the 64 of the default have.
TEST(the_last_validation_takes_max_eval_samples_where_they_are_said_and_so_does_evaluate)
{
    CHECK(train("windows", "--micro_batch_size 2 --max_steps 4 --eval_steps 2 --max_eval_samples 3") == 0, "%s",
          said.log);
    const char *first = strstr(said.out, " over "), *last = first ? strstr(first + 1, " over ") : NULL;
    CHECK(first && last && !strncmp(first, " over 3 samples\n", 16) && !strncmp(last, " over 3 samples\n", 16), "%s",
          said.out);
    CHECK(train("windows", "--resume auto --micro_batch_size 2 --max_steps 5") == 0, "%s", said.log);
    CHECK(strstr(said.out, " over 3 samples\n") && !strstr(said.out, " over 5"), "a resumed run: %s", said.out);
    CHECK(train("windows", "--resume auto --evaluate") == 0 && strstr(said.out, " over 5 samples\n"), "%s", said.out);
    CHECK(train("windows", "--resume auto --evaluate --max_eval_samples 2") == 0 &&
              strstr(said.out, " over 2 samples\n"),
          "%s", said.out);
    CHECK(train("windows", "--resume auto --micro_batch_size 2 --max_steps 6 --max_eval_samples 0") == 0 &&
              strstr(said.out, " over 5 samples\n"),
          "%s", said.out);
}

TEST(without_max_eval_samples_validations_take_64_and_the_last_one_all)
{
    GxTrainOptions o = GX_ZERO;
    o.max_eval_samples = -1;
    CHECK(gx_options_eval_samples(&o, 0) == 64 && gx_options_eval_samples(&o, 1) == 0, "%ld, %ld",
          (long)gx_options_eval_samples(&o, 0), (long)gx_options_eval_samples(&o, 1));
    o.max_eval_samples = 7;
    CHECK(gx_options_eval_samples(&o, 0) == 7 && gx_options_eval_samples(&o, 1) == 7, "7 are not 7");
    CHECK(train("untold", "--micro_batch_size 2 --max_steps 2") == 0 && strstr(said.out, " over 5 samples\n"), "%s",
          said.out);
}

TEST(its_options_are_options_of_the_program_and_agreed_on)
{
    CHECK(train("x", "--help all") == 0 && strstr(said.out, "\ncopy\n") && strstr(said.out, "--symbols N") &&
              !strstr(said.out, "--train_data"),
          "%s", said.out);
    CHECK(train("x", "--train_data text.txt") == 1 && strstr(said.log, "no option --train_data"), "%s", said.log);
    CHECK(train("x", "--symbols 0") == 1 && strstr(said.log, "--symbols is \"0\""), "%s", said.log);
    GxConfig c;
    Copy self = GX_ZERO;
    GxError err = GX_ZERO;
    char *text = NULL;
    int64_t bytes;
    gx_config_open(&c);
    GxTrainOptions o;
    CHECK(gx_options_add(&c, &o, NULL, NULL, "llama", &err) == GX_OK &&
              gx_config_add(&c, copy.name, copy.options.fields, copy.options.n_fields, &self, &err) == GX_OK &&
              gx_options_shared(&c, "p", copy.options.own, &text, &bytes, &err) == GX_OK,
          "%s", err.message);
    CHECK(text && strstr(text, "\"symbols\"") && !strstr(text, "\"note\"") && !strstr(text, "\"output_dir\"") &&
              !strstr(text, "offload_dir"),
          "%s", text);
    free(text);
}

TEST(a_task_that_fails_ends_the_run_and_is_closed)
{
    CHECK(train("x", "--fail open") == 1 && strstr(said.log, "copy cannot be opened") && closed == 1, "%d closed, %s",
          closed, said.log);
    CHECK(train("y", "--fail fill --micro_batch_size 4 --max_steps 5") == 1 &&
              strstr(said.log, "copy has no more samples") && strstr(said.out, "step     2/5") &&
              !strstr(said.out, "step     3/5"),
          "%s %s", said.log, said.out);
    CHECK(opened == 1 && closed == 1, "%d opened, %d closed", opened, closed);
}

TEST(a_task_with_more_losses_than_models_have_is_refused)
{
    GxContext g = GX_ZERO;
    GxTrainer t;
    GxTask two = copy;
    char *argv[] = {(char *)"train"};
    two.loss.n = GX_MAX_LOSSES + 1;
    g.device = gx_device_cpu(), g.world = 1, g.log.write = hear_log;
    memset(&said, 0, sizeof said), memset(&told, 0, sizeof told);
    CHECK(gx_trainer_open(&t, &g, &gx_llama, &two, NULL, 1, argv) == GX_ERR_UNSUPPORTED &&
              strstr(g.error.message, "task copy has 5 losses"),
          "%s", g.error.message);
    CHECK(gx_trainer_close(&t) == 1, "the status of a run that was not opened");
}

TEST(a_dry_run_opens_no_data_and_plans_the_tasks_buffers)
{
    CHECK(train("z", "--dry_run") == 0 && !strstr(said.out, "data:") && strstr(said.out, "memory plan"), "%s",
          said.out);
    CHECK(!has_file("z"), "a dry run left a folder");
}

// ---- causal_lm -----------------------------------------------------------------------------------------------------

// The same for the task causal_lm, on a text of its own.
static int train_text(const char *name, const char *more)
{
    task = &gx_causal_lm;
    const int status = train(name, more);
    task = &copy;
    return status;
}

static const char *path_of(const char *name) // good for the next 4 calls
{
    static char paths[4][GX_PATH];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, GX_PATH, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *name, int64_t bytes, int64_t other) // byte `other` is another letter; -1: none
{
    char *text = (char *)malloc((size_t)bytes);
    GxError err = GX_ZERO;
    for (int64_t i = 0; i < bytes; i++) text[i] = i % 32 == 31 ? '\n' : (char)('a' + i * i % 23);
    if (other >= 0) text[other] ^= 1;
    CHECK(gx_file_write(path_of(name), text, bytes, &err) == GX_OK, "%s", err.message);
    free(text);
}

// However far from its ends: of each pair, one byte is another.
TEST(ranks_whose_texts_differ_in_one_byte_do_not_train_together)
{
    enum { N = 3300000 };
    static const int64_t places[] = {-1, 0, N / 2, N - 1};
    write_text("same0", N, -1);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char flags[400];
        write_text("same1", N, places[i]);
        snprintf(flags, sizeof flags,
                 "--ranks 2 --train_data %s@ --validation_fraction 0.0001 --max_steps 1 --sample_tokens 0",
                 path_of("same"));
        const int status = train_text(places[i] < 0 ? "same" : "other", flags);
        CHECK(status == (places[i] >= 0) && !strstr(said.log, "rank 1: ") == (places[i] < 0) &&
                  !strstr(said.log, "same1 is a different text here (3300000 bytes, hash ") == (places[i] < 0),
              "byte %ld: status %d, %s", (long)places[i], status, said.log);
    }
}

TEST(a_text_that_is_cut_short_during_a_run_ends_it_with_its_path)
{
    char flags[400];
    write_text("cut.txt", 4000, -1);
    shrinks = path_of("cut.txt");
    snprintf(flags, sizeof flags, "--train_data %s --max_steps 5 --sample_tokens 0", path_of("cut.txt"));
    CHECK(
        train_text("cut_text", flags) == 1 &&
            strstr(said.log, "cut.txt ends at byte 100, but 4000 were expected: it was shortened during the training"),
        "%s", said.log);
    shrinks = NULL;
}

#define BLEND "--global_batch_size 6 --max_steps 6 --optimizer sgd --sample_tokens 0 --eval_steps 0 --threads 1 "

static void write_blend(char flags[1200], const char *weights, const char *more)
{
    write_text("one.txt", 900, -1), write_text("two.txt", 3000, 500), write_text("three.txt", 1500, 700);
    snprintf(flags, 1200, BLEND "--train_data %s,%s,%s %s %s", path_of("one.txt"), path_of("two.txt"),
             path_of("three.txt"), weights, more);
}

// 3 samples of 6 to a rank, or 2, or all: the same ones, by number.
TEST(a_blend_is_the_same_on_any_number_of_ranks)
{
    static const char *const ways[] = {"--micro_batch_size 6", "--micro_batch_size 2", "--micro_batch_size 3 --ranks 2",
                                       "--micro_batch_size 2 --ranks 3", "--dp_batch_size_list 1,4,1 --ranks 3"};
    double validation = 0, window[8];
    char flags[1200], name[20];
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        snprintf(name, sizeof name, "blend%d", (int)w);
        write_blend(flags, "--train_data_weights 2,1,1", ways[w]);
        if (!CHECK(train_text(name, flags) == 0 && !said.log[0], "%s: %s", ways[w], said.log)) continue;
        if (w == 0) validation = told.validation[6], memcpy(window, told.window, sizeof window);
        test_close_number("validation", told.validation[6], validation, test_bound(depth(7)));
        for (int s = 1; s <= 6; s++) test_close_number("window", told.window[s], window[s], test_bound(depth(s)));
    }
    // 36 samples: 18 of the 105 windows of 8 bytes that 850 have, 9 of 353 and 9 of 176 of the others
    static const char *const lines[] = {"/one.txt, 900 bytes",
                                        "/three.txt, 1.5 KB",
                                        "  50.00% of all samples; ",
                                        "  25.00% of all samples; ",
                                        " windows of 8 tokens, which the run sees 0.17 times\n",
                                        " which the run sees 0.03 times\n",
                                        " which the run sees 0.05 times\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(said.out, lines[i]), "no \"%s\" in: %s", lines[i], said.out);
}

TEST(a_blend_that_is_resumed_goes_on_bit_for_bit_and_another_one_is_refused)
{
    static const char *const changes[] = {"--train_data_weights 2,1,1.5", "--train_data %s,%s --train_data_weights 2,1",
                                          "--train_data %s,%s,%s"};
    char flags[1200], more[400], list[700];
    write_blend(flags, "--train_data_weights 2,1,1", "--micro_batch_size 2");
    CHECK(train_text("blended", flags) == 0, "%s", said.log);
    const double window = told.window[6], validation = told.validation[6];
    write_blend(flags, "--train_data_weights 2,1,1", "--micro_batch_size 2 --save_steps 4");
    CHECK(train_text("cut_blend", flags) == 0, "%s", said.log);
    snprintf(more, sizeof more, "--resume %s", path_of("cut_blend/checkpoint-4"));
    CHECK(train_text("", more) == 0 && !said.log[0] && strstr(said.out, "  50.00% of all samples; "), "%s%s", said.log,
          said.out);
    CHECK(told.window[6] == window && told.validation[6] == validation,
          "%.17g, uninterrupted %.17g; validation %.17g, %.17g", told.window[6], window, told.validation[6],
          validation);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        snprintf(list, sizeof list, changes[i], path_of("two.txt"), path_of("one.txt"), path_of("three.txt"));
        snprintf(flags, sizeof flags, "--max_steps 8 %s %s", more, list);
        CHECK(train_text("", flags) == 1 &&
                  strstr(said.log, "was trained on another text, or with other --train_data_weights or "),
              "%s: %s", changes[i], said.log);
    }
    snprintf(flags, sizeof flags, "--max_steps 8 %s --train_data_weights 0.50,0.25,0.25", more); // the same ones
    CHECK(train_text("", flags) == 0, "%s", said.log);
}

TEST(ranks_with_other_sources_do_not_train_together)
{
    char flags[700];
    write_text("same0", 900, -1), write_text("same1", 900, -1);
    write_text("b0", 900, -1), write_text("b1", 900, 300);
    snprintf(flags, sizeof flags, BLEND "--micro_batch_size 3 --ranks 2 --train_data %s,%s@", path_of("same0"),
             path_of("b"));
    CHECK(train_text("others", flags) == 1 && strstr(said.log, "b1 is a different text here (900 bytes, hash "), "%s",
          said.log);
    char path[300]; // on rank 1 the list is the name of a file
    GxError err = GX_ZERO;
    snprintf(path, sizeof path, "%s/same0,%s", folder, folder);
    CHECK(gx_folder_make(path, &err) == GX_OK, "%s", err.message);
    snprintf(path, sizeof path, "same0,%s/b1", folder);
    write_text(path, 900, -1);
    CHECK(train_text("others", flags) == 1 &&
              strstr(said.log, "/b1 has 1 source of data, but rank 0's has 2; all ranks need the same"),
          "%s", said.log);
}

// Of tokens alone nobody knows the bytes.
TEST(a_bin_file_is_trained_on_and_validated_in_nats_per_token)
{
    enum { N = 2000 };
    static unsigned char file[1024 + 2 * N];
    const int32_t header[3] = {20240520, 1, N};
    char flags[600];
    GxError err = GX_ZERO;
    memcpy(file, header, sizeof header);
    for (int i = 0; i < N; i++) file[1024 + 2 * i] = (unsigned char)(3 + i % 50);
    CHECK(gx_file_write(path_of("x.bin"), file, sizeof file, &err) == GX_OK, "%s", err.message);
    snprintf(
        flags, sizeof flags,
        "--train_data %s --tokenizer data/ref/bpe/byte_level.json --micro_batch_size 2 --max_steps 2 --eval_steps 0 "
        "--sample_tokens 0",
        path_of("x.bin"));
    CHECK(train_text("bins", flags) == 0 && !said.log[0] && strstr(said.out, "x.bin; tokens: ") &&
              strstr(said.out, " 1.9k for training, 0.1k held out;") && strstr(said.out, " without documents: the ") &&
              strstr(said.out, "validation loss ") && !strstr(said.out, "bits per byte") && !strstr(said.out, "bigram"),
          "%s%s", said.log, said.out);
    char *log = read_file("bins/log.jsonl");
    CHECK(strstr(log, "\"eval_loss\"") && !strstr(log, "bits_per_byte"), "%s", log);
    free(log);
    snprintf(strstr(flags, "--eval_steps 0"), 100, "--eval_steps 1 --metric_for_best_model bits_per_byte");
    CHECK(
        train_text("no_bits", flags) == 1 &&
            strstr(said.log, "bits_per_byte needs texts whose number of bytes is known, and that of .bin files is not"),
        "%s", said.log);
}

// The letters of a text as a file of tokens, documents of 100; which: 0: without a mask; 1: with one; 2: with what it
// leaves out.
static void write_masked(const char *name, int which)
{
    enum { N = 3000 };
    static int32_t ids[N];
    static unsigned char mask[N / 8 + 1];
    GxTokenDocument document[N / 100];
    GxTokenFile f = {0, N, N / 100, N, "", 0, document, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, GX_ZERO, 0};
    GxError err = GX_ZERO;
    const GxTokenizer bytes = gx_tokenizer_bytes();
    memcpy(f.tokenizer, bytes.identity, sizeof f.tokenizer);
    for (int i = 0; i < N; i++) ids[i] = 'a' + i * i % 23;
    for (int i = 0; i < N / 100; i++) document[i].begin = 100 * i, document[i].bytes = 100;
    for (int i = 0; i <= N / 8; i++) mask[i] = (unsigned char)((i * i % 7 * 37) ^ (which == 2 ? 0xFF : 0));
    unlink(path_of(name));
    CHECK(gx_token_file_write(path_of(name), &f, ids, which ? mask : NULL, &err) == GX_OK, "%s", err.message);
}

// Labels that count in the first 6 samples, and in all that are held out.
static void count_learned(const char *name, int64_t count[2])
{
    int32_t tokens[8], labels[8], documents[16];
    const GxTokenizer bytes = gx_tokenizer_bytes();
    const GxBlendSample to = {tokens, labels, documents, GX_IGNORE_INDEX, 1};
    GxBlend b;
    GxError err = GX_ZERO;
    count[0] = count[1] = 0;
    if (!CHECK(gx_blend_open(&b, path_of(name), "", &bytes, NULL, 0.1, 8, 1, NULL, &err) == GX_OK, "%s", err.message))
        return;
    for (int part = 0; part < 2; part++)
        for (int64_t i = 0; i < (part ? gx_blend_eval_samples(&b) : 6); i++) {
            CHECK((part ? gx_blend_eval_sample(&b, i, 8, &to, &err)
                        : gx_blend_sample(&b, 1234, i, 8, &to, NULL, &err)) == GX_OK,
                  "%s", err.message);
            for (int t = 0; t < 8; t++) count[part] += labels[t] != GX_IGNORE_INDEX;
        }
    gx_blend_close(&b);
}

// What a mask leaves and what it leaves out are all: so are the sums of their losses, of the same weights.
TEST(a_loss_is_the_mean_over_the_tokens_that_a_mask_leaves_on_any_number_of_ranks)
{
    static const char *const ways[] = {"--micro_batch_size 6", "--micro_batch_size 1 --gradient_accumulation_steps 6",
                                       "--micro_batch_size 3 --ranks 2", "--dp_batch_size_list 1,1,4 --ranks 3"};
    int64_t count[3][2];
    double window[3], validation[3];
    char flags[600], name[30];
    for (int which = 0; which < 3; which++) {
        snprintf(name, sizeof name, "%d.tokens", which);
        write_masked(name, which), count_learned(name, count[which]);
        for (int w = 0; w < 4; w++) {
            snprintf(flags, sizeof flags,
                     "--train_data %s --validation_fraction 0.1 --max_steps 1 --optimizer sgd --learning_rate 1e-30 "
                     "--eval_steps 0 --sample_tokens 0 %s",
                     path_of(name), ways[w]);
            snprintf(name, sizeof name, "mask%d%d", which, w);
            if (!CHECK(train_text(name, flags) == 0 && !said.log[0], "%s: %s", ways[w], said.log)) return;
            if (w == 0) window[which] = told.window[1], validation[which] = told.validation[1];
            test_close_number("window", told.window[1], window[which], test_bound(depth(1)));
            test_close_number("validation", told.validation[1], validation[which], test_bound(depth(1)));
            CHECK(!strstr(said.out, "bits per byte") == (which > 0) &&
                      !strstr(said.out, "a mask says which tokens are learned") == !which,
                  "%s", said.out);
            snprintf(flags, sizeof flags, " over %ld tokens\n", (long)count[which][1]);
            CHECK(strstr(said.out, flags), "no \"%s\": %s", flags, said.out);
            snprintf(name, sizeof name, "%d.tokens", which);
        }
    }
    CHECK(count[1][0] > 5 && count[2][0] > 5 && count[1][0] + count[2][0] == count[0][0], "%ld and %ld of %ld labels",
          (long)count[1][0], (long)count[2][0], (long)count[0][0]);
    for (int part = 0; part < 2; part++) {
        const double *loss = part ? validation : window,
                     both = loss[1] * (double)count[1][part] + loss[2] * (double)count[2][part];
        test_close_number("the sum", both, loss[0] * (double)count[0][part], test_bound(depth(1)));
        CHECK(fabs(loss[1] - loss[0]) > 1e-4, "all losses are %g", loss[0]);
    }
}

// A path of n bytes for a file in a folder that is made.
static void long_path(char path[GX_PATH], const char *name, int n)
{
    GxError err = GX_ZERO;
    snprintf(path, GX_PATH, "%s/%s", folder, name);
    for (int i = (int)strlen(path); i < n; i++) path[i] = i % 250 == 0 && i < n - 1 ? '/' : 'd', path[i + 1] = 0;
    char *end = strrchr(path, '/');
    *end = 0;
    CHECK(gx_folder_make(path, &err) == GX_OK, "%s", err.message);
    *end = '/';
}

TEST(text_output_model_and_checkpoint_have_paths_up_to_the_systems_limit)
{
    static const int most = GX_PATH - (int)sizeof "/checkpoint-999999999999999.gx-new/model-00001-of-00001.safetensors";
    static char text[GX_PATH], output[GX_PATH], flags[3 * GX_PATH];
    GxError err = GX_ZERO;
    char *bytes = NULL;
    int64_t n;
    long_path(text, "t", GX_PATH - 1);
    write_text("text.txt", 4000, -1);
    CHECK(gx_file_read(path_of("text.txt"), 5000, &bytes, &n, &err) == GX_OK &&
              gx_file_write(text, bytes, n, &err) == GX_OK,
          "%s", err.message);
    free(bytes);
    static const char run[] = "--micro_batch_size 2 --sample_tokens 0 --max_steps";
    task = &gx_causal_lm;
    long_path(output, "o", most);
    snprintf(flags, sizeof flags, "%s 1 --train_data %s --output_dir %s", run, text, output);
    CHECK(train("", flags) == 0 && !said.log[0], "%s", said.log);
    snprintf(flags, sizeof flags, "%s 2 --train_data %s --output_dir %s --resume auto", run, text, output);
    CHECK(train("", flags) == 0 && !said.log[0] && strstr(said.out, "checkpoint-2\n"), "%s", said.log);
    snprintf(flags, sizeof flags, "%s 3 --train_data %s --output_dir %s/o --resume %s/checkpoint-2", run, text, folder,
             output);
    CHECK(train("", flags) == 0 && !said.log[0], "%s", said.log);
    snprintf(flags, sizeof flags, "%s 1 --train_data %s --output_dir %s/m --model %s/checkpoint-2", run, text, folder,
             output);
    CHECK(train("", flags) == 0 && !said.log[0], "%s", said.log);
    CHECK(gx_folder_remove(output, &err) == GX_OK, "%s", err.message);
    long_path(output, "u", most + 1); // refused before it trains
    snprintf(flags, sizeof flags, "%s 1 --train_data %s --output_dir %s", run, text, output);
    CHECK(train("", flags) == 1 &&
              strstr(said.log, "--output_dir has 4029 bytes; with checkpoints and their files in it, 4028 fit") &&
              !strstr(said.out, "| loss"),
          "%s%s", said.log, said.out);
    snprintf(flags, sizeof flags, "%s 1 --train_data %sd --output_dir %s/o", run, text, folder);
    CHECK(train("", flags) == 1 && strstr(said.log, "--train_data is \"") &&
              strstr(said.log, "UTF-8 text of at most 4095 bytes"),
          "%s", said.log);
    task = &copy;
}

// The model that a run left, with other files of a tokenizer, or none; NULL text: the file is removed.
static void change_model(const char *file, const char *text)
{
    GxError err = GX_ZERO;
    char name[100];
    snprintf(name, sizeof name, "model/checkpoint-1/%s", file);
    if (!text) unlink(path_of(name));
    else CHECK(gx_file_write(path_of(name), text, (int64_t)strlen(text), &err) == GX_OK, "%s", err.message);
}

TEST(a_model_without_a_tokenizer_that_is_read_is_refused_unless_another_or_bytes_are_named)
{
    static const struct {
        const char *file, *text, *says;
    } others[] = {
        {"tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}}}", "tokenizer.json: "},
        {"tokenizer.json", "{", "tokenizer.json:1"},
        {"tokenizer.model", "sentencepiece", "(it has tokenizer.model, which is not read"},
        {"vocab.json", "{}", "(it has vocab.json"},
        {"merges.txt", "a b", "(it has merges.txt"},
        {"other.txt", "a b", "has neither tokenizer.json nor vocab.txt; --tokenizer FOLDER names"},
    };
    char made[600], model[1000], flags[1200];
    write_text("text.txt", 4000, -1);
    snprintf(made, sizeof made, "--train_data %.300s --max_steps 1 --sample_tokens 0 --micro_batch_size 2",
             path_of("text.txt"));
    CHECK(train_text("model", made) == 0, "%s", said.log);
    snprintf(model, sizeof model, "%s --model %.300s", made, path_of("model/checkpoint-1"));
    snprintf(flags, sizeof flags, "%s --dry_run", model);
    CHECK(train_text("ours", flags) == 0 && !said.log[0], "its own tokenizer: %s", said.log);
    change_model("manifest.json", NULL); // what comes now is on purpose
    CHECK(rename(path_of("model/checkpoint-1/tokenizer.json"), path_of("kept.json")) == 0 &&
              symlink(path_of("gone.json"), path_of("model/checkpoint-1/tokenizer.json")) == 0,
          "links");
    CHECK(train_text("refused", flags) == 1 && strstr(said.log, "tokenizer.json"), "a broken link: %s", said.log);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        static const char *const ways[] = {"", "--dry_run", "--ranks 2"};
        change_model("tokenizer.json", NULL);
        change_model(others[i].file, others[i].text);
        snprintf(flags, sizeof flags, "%s %s", model, ways[i % 3]);
        CHECK(train_text("refused", flags) == 1 && strstr(said.log, "model/checkpoint-1") &&
                  strstr(said.log, others[i].says),
              "%s: %s", others[i].file, said.log);
        change_model(others[i].file, NULL);
    }
    CHECK(!has_file("refused"), "a refused run left a folder");
    snprintf(flags, sizeof flags, "%s --ranks 2 --dry_run --tokenizer bytes", model);
    CHECK(train_text("bytes", flags) == 0 && !said.log[0], "bytes: %s", said.log);
    snprintf(flags, sizeof flags, "%s --ranks 2 --dry_run --tokenizer data/ref/bpe/byte_level.json", model);
    CHECK(train_text("refused", flags) == 1 && strstr(said.log, "has 1162 tokens"), "a larger one: %s", said.log);
}

// As huggingface_hub lays out what it downloads: every file of the model is a link into blobs/.
TEST(a_model_in_hugging_faces_cache_is_trained)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    GxError err = GX_ZERO;
    char flags[1000], old[300], name[300], blob[40];
    CHECK(gx_folder_make(path_of("hub/models--me--bytes/blobs"), &err) == GX_OK &&
              gx_folder_make(path_of("hub/models--me--bytes/snapshots/5d0f2e"), &err) == GX_OK,
          "%s", err.message);
    write_text("text.txt", 4000, -1);
    snprintf(flags, sizeof flags, "--train_data %.300s --max_steps 1 --sample_tokens 0 --micro_batch_size 2",
             path_of("text.txt"));
    CHECK(train_text("downloaded", flags) == 0, "%s", said.log);
    for (int i = 0; i < 4; i++) {
        snprintf(old, sizeof old, "downloaded/checkpoint-1/%s", files[i]);
        snprintf(name, sizeof name, "hub/models--me--bytes/blobs/%d", i);
        CHECK(rename(path_of(old), path_of(name)) == 0, "%s is not there", old);
        snprintf(blob, sizeof blob, "../../blobs/%d", i);
        snprintf(name, sizeof name, "hub/models--me--bytes/snapshots/5d0f2e/%s", files[i]);
        CHECK(symlink(blob, path_of(name)) == 0, "no link %s", name);
    }
    snprintf(flags, sizeof flags,
             "--train_data %.300s --max_steps 1 --sample_tokens 0 --micro_batch_size 2 --model "
             "%.300s/hub/models--me--bytes/snapshots/5d0f2e",
             path_of("text.txt"), folder);
    CHECK(train_text("of_cache", flags) == 0 && !said.log[0], "%s", said.log);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "hub/models--me--bytes/snapshots/5d0f2e/%s", files[i]);
        CHECK(unlink(path_of(name)) == 0, "%s", name);
    }
}

TEST(causal_lm_says_a_loss_in_bits_per_byte)
{
    GxCausalLm self = GX_ZERO;
    GxLosses losses = GX_ZERO;
    GxMetric metric[GX_MAX_METRICS];
    losses.sum[0] = 30, losses.count[0] = 20;
    CHECK(gx_causal_lm.metrics.compute(NULL, &self, &losses, metric) == 2, "two metrics");
    CHECK(!strcmp(metric[0].name, "loss") && metric[0].value == 1.5, "%s %g", metric[0].name, metric[0].value);
    CHECK(!strcmp(metric[1].name, "bits_per_byte") && fabs(metric[1].value - 1.5 / log(2.0)) < 1e-12, "%s %g",
          metric[1].name, metric[1].value);
}

// A text of letters below n whose last fifth has the others: which part a batch is from stands in its tokens.
TEST(causal_lm_trains_on_the_first_part_of_its_text_and_validates_on_the_rest)
{
    enum { T = 6, B = 4, BYTES = 1000, HELD = 200 };
    char text[BYTES];
    int32_t host_copy[2 * T * B];
    GxContext g = GX_ZERO;
    GxCausalLm self = GX_ZERO;
    GxBatch b = GX_ZERO;
    GxTaskSetup setup = {.vocab = 256, .seq_len = T, .model = "", .dtype = GX_F32, .samples = 1, .all_samples = 1};
    snprintf(self.chat_template, sizeof self.chat_template, "auto");
    snprintf(self.text_column, sizeof self.text_column, "text");
    snprintf(self.prompt_column, sizeof self.prompt_column, "prompt");
    snprintf(self.completion_column, sizeof self.completion_column, "completion");
    for (int i = 0; i < BYTES; i++) text[i] = (char)(i % 10 == 9 ? '\n' : (i < BYTES - HELD ? 'a' : 'n') + i * i % 13);
    snprintf(self.train_data, sizeof self.train_data, "%.200s/parts.txt", folder);
    CHECK(gx_file_write(self.train_data, text, BYTES, &g.error) == GX_OK, "%s", g.error.message);
    g.device = gx_device_cpu(), g.world = 1;
    self.validation_fraction = (double)HELD / BYTES;
    if (!CHECK(gx_causal_lm.data.open(&g, &self, &setup) == GX_OK, "%s", g.error.message)) return;
    const int64_t samples = gx_causal_lm.batch.held_out(&self);
    CHECK(samples == (HELD - 1) / T, "%ld samples of %d tokens are held out", (long)samples, T);
    b.T = T, b.B = B;
    for (b.sample = 0; b.sample < samples + B; b.sample += B) {
        gx_causal_lm.batch.fill(&g, &self, &b, host_copy, 7, &g.error);
        for (int i = 0; i < 2 * T * B; i++)
            CHECK(host_copy[i] < 'n', "it trains on %c, which is held out", host_copy[i]);
        gx_causal_lm.batch.fill_held_out(&g, &self, &b, host_copy, samples, &g.error);
        for (int i = 0; i < T * B; i++) {
            const int64_t sample = b.sample + i % B, at = BYTES - HELD + sample * T + i / B;
            const int label = sample < samples ? text[at + 1] : GX_IGNORE_INDEX;
            CHECK((sample >= samples || host_copy[i] == text[at]) && host_copy[T * B + i] == label,
                  "held-out sample %ld: token %d, label %d", (long)sample, host_copy[i], host_copy[T * B + i]);
        }
    }
    gx_causal_lm.data.close(&self);
}

TEST(labels_that_are_ignored_are_not_counted)
{
    int32_t block[2 * 6] = {1, 2, 3, 4, 5, 6, 7, GX_IGNORE_INDEX, 9, GX_IGNORE_INDEX, 11, 12};
    GxBatch b = GX_ZERO;
    int64_t count[GX_MAX_LOSSES] = {100, 0, 0, 0};
    b.T = 3, b.B = 2;
    CHECK(gx_task_layout_labels(NULL, &b, NULL, NULL) == sizeof block, "bytes");
    CHECK(gx_task_layout_labels(NULL, &b, block, NULL) == sizeof block && b.tokens == block &&
              b.target[0].labels == block + 6,
          "where the arrays are");
    gx_task_count_labels(NULL, &b, count);
    CHECK(count[0] == 104 && count[1] == 0, "%ld, %ld", (long)count[0], (long)count[1]);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    if (!mkdtemp(folder)) return 1;
    const int status = test_main(argc, argv);
    if (gx_folder_remove(folder, &err) != GX_OK) printf("%s\n", err.message);
    return status;
}
