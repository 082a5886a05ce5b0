// test_dpo.cu: direct preference optimisation: pairs as tokens, the loss and its gradients against PyTorch and PEFT
// (dumps of dev/ref/make_dpo_refs.py), in every mode against one rank, runs that go on with the bits that they had.
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/task_run.h"

#define REF "data/ref/dpo"

static int run(const char *name, const char *more)
{
    char line[6000];
    snprintf(line, sizeof line,
             "--output_dir %s/%s --model " REF " --train_data " REF "/pairs.jsonl --chat_template chatml --seq_len 128 "
             "--validation_fraction 0 --dpo_beta 0.4 --pack_pairs false --threads 1 --logging_steps 1 --max_steps 10 "
             "--warmup_steps 0 --lr_scheduler_type constant --max_grad_norm 0 "
             "--weight_decay 0 %s",
             folder, name, more);
    return run_line(&gx_llama, &gx_dpo, line);
}
#define SGD "--optimizer sgd --momentum 0 --learning_rate 0.3 "

// What log.jsonl has of `key` in its lines of training, or (is_validation) of validations. Returns how many.
static int series(const char *name, const char *key, double *x, int most)
{
    char path[100], what[60];
    snprintf(path, sizeof path, "%s/log.jsonl", name), snprintf(what, sizeof what, "\"%s\": ", key);
    char *text = read_file(path_of(path));
    int n = 0;
    for (char *at = text; n < most && (at = strstr(at, what)); n++) x[n] = strtod(at += strlen(what), NULL);
    free(text);
    return n;
}

// ---- pairs ---------------------------------------------------------------------------------------------------------

static GxStatus open_pairs(GxPairs *p, const char *path, int64_t most, const char *format, GxError *e)
{
    GxTokenizer t;
    const GxChatReading how = {gx_chat_format(format), NULL, NULL};
    gx_error_clear(e);
    if (!CHECK(gx_tokenizer_open(&t, REF, e) == GX_OK, "%s", e->message)) return GX_ERR_IO;
    const GxStatus status = gx_pairs_open(p, path, &t, &how, most, 2, e);
    gx_tokenizer_close(&t);
    return status;
}

// The template that is written of ChatML, executed: as many pairs, and the same tokens.
TEST(pairs_of_messages_are_written_by_a_template_as_by_its_format)
{
    GxTokenizer t;
    GxPairs named, own;
    GxError e = GX_ZERO;
    char *jinja = NULL;
    const GxChatFormat *f = NULL;
    GxJson *said = gx_json_new_object();
    if (!CHECK(gx_tokenizer_open(&t, REF, &e) == GX_OK, "%s", e.message)) return;
    gx_chat_jinja(gx_chat_format("chatml"), &jinja, &e);
    gx_json_set(said, "template", gx_json_new_string(jinja), &e);
    gx_json_set(said, "where", gx_json_new_string("T"), &e), gx_json_set(said, "variables", gx_json_new_object(), &e);
    CHECK(gx_chat_open(&f, said, "", &t, &e) == GX_OK, "%s", e.message);
    const GxChatReading how = {f, NULL, NULL};
    CHECK(open_pairs(&named, REF "/pairs.jsonl", 1000, "chatml", &e) == GX_OK &&
              gx_pairs_open(&own, REF "/pairs.jsonl", &t, &how, 1000, 2, &e) == GX_OK,
          "%s", e.message);
    CHECK(own.conversations == 3 && own.n == named.n && own.hash == named.hash && own.learned == named.learned,
          "%ld pairs, %ld tokens learned; by the name %ld", (long)own.n, (long)own.learned, (long)named.learned);
    gx_pairs_close(&own), gx_pairs_close(&named), gx_chat_close(f), gx_tokenizer_close(&t);
    gx_json_free(said), free(jinja);
}

TEST(pairs_of_a_table_are_those_of_json_lines_and_wrong_ones_are_left_out)
{
    static const struct {
        const char *name, *text;
        int skips; // pairs
    } list[] = {
        {"p.jsonl",
         "{\"prompt\": \"The sky\\nis\", \"chosen\": \" blue.\", \"rejected\": \" green, or red.\"}\n"
         "{\"prompt\": \"\", \"chosen\": \"say \\\"a\\\"\", \"rejected\": \"b\"}\n",
         0},
        {"p.csv", "rejected,prompt,chosen\n\" green, or red.\",\"The sky\nis\", blue.\nb,,\"say \"\"a\"\"\"\n", 0},
        {"p.tsv", "rejected\tprompt\tchosen\n green, or red.\t\"The sky\nis\"\t blue.\nb\t\t\"say \"\"a\"\"\"\n", 0},
        {"p.csv",
         "rejected,prompt,chosen\nx,y\n\" green, or red.\",\"The sky\nis\", blue.\nq,,q\nb,,\"say \"\"a\"\"\"\n", 2},
        {"p.jsonl",
         "{\n{\"prompt\": \"The sky\\nis\", \"chosen\": \" blue.\", \"rejected\": \" green, or red.\"}\n"
         "{\"prompt\": \"\xFF\", \"chosen\": \"1\", \"rejected\": \"2\"}\n"
         "{\"prompt\": \"\", \"chosen\": \"say \\\"a\\\"\", \"rejected\": \"b\"}\n{\"chosen\": \"a\"}\n",
         3}};
    static GxBadRecords skip;
    GxTokenizer t;
    GxPairs p;
    GxError e = GX_ZERO;
    uint64_t hash = 0;
    if (!CHECK(gx_tokenizer_open(&t, REF, &e) == GX_OK, "%s", e.message)) return;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxRecordReading reading = gx_record_reading;
        GxChatReading how = {NULL, NULL, &reading};
        char path[GX_PATH];
        snprintf(path, sizeof path, "/tmp/galaxy_test_dpo_%d_%s", (int)getpid(), list[i].name);
        CHECK(gx_file_write(path, list[i].text, (int64_t)strlen(list[i].text), &e) == GX_OK, "%s", e.message);
        memset(&skip, 0, sizeof skip);
        if (list[i].skips) {
            CHECK(gx_pairs_open(&p, path, &t, &how, 1000, 2, &e) == GX_ERR_FORMAT, "%d was taken", (int)i);
            gx_error_clear(&e);
            reading.skip = &skip;
        }
        if (CHECK(gx_pairs_open(&p, path, &t, &how, 1000, 2, &e) == GX_OK && p.n == 2 && p.records == 2 &&
                      skip.n == list[i].skips,
                  "%d: %ld pairs, %ld left out: %s", (int)i, (long)p.n, (long)skip.n, e.message)) {
            hash = i ? hash : p.hash;
            CHECK(p.hash == hash, "%d: other tokens", (int)i);
            gx_pairs_close(&p);
        }
        if (i == 3)
            CHECK(strstr(skip.why[0], "p.csv:2: 2 columns") && strstr(skip.why[1], "p.csv:5: \"chosen\" and"), "%s, %s",
                  skip.why[0], skip.why[1]);
        if (i == 4)
            CHECK(strstr(skip.why[0], "p.jsonl:1:") && strstr(skip.why[1], "p.jsonl:3: the byte 0xFF") &&
                      strstr(skip.why[2], "p.jsonl:5:"),
                  "%s, %s", skip.why[0], skip.why[1]);
        gx_error_clear(&e);
        unlink(path);
    }
    gx_tokenizer_close(&t);
}

TEST(pairs_of_texts_and_of_messages_have_the_tokens_of_transformers)
{
    GxPairs p;
    GxError e = GX_ZERO;
    char *text = read_file(REF "/expected.jsonl"), *line = text;
    if (!CHECK(open_pairs(&p, REF "/pairs.jsonl", 1000, "chatml", &e) == GX_OK, "%s", e.message)) return;
    CHECK(p.n == 7 && p.records == 7 && p.left_out == 0 && p.conversations == 3, "%ld pairs", (long)p.n);
    for (int64_t i = 0; i < p.n; i++) {
        GxJson *json = NULL;
        char *end = strchr(line, '\n');
        CHECK(end && gx_json_parse(&json, line, end - line, "", &e) == GX_OK, "%s", e.message);
        line = end + 1;
        CHECK(p.learned_from[i] == gx_json_int(gx_json_get(json, "learned_from")), "pair %ld is learned from token %ld",
              (long)i, (long)p.learned_from[i]);
        for (int k = 0; k < 2; k++) {
            const GxJson *ids = gx_json_get(json, k ? "rejected" : "chosen");
            const int64_t n = p.begin[2 * i + k + 1] - p.begin[2 * i + k];
            int same = gx_json_size(ids) == n;
            for (int64_t t = 0; same && t < n; t++)
                same = gx_json_int(gx_json_at(ids, t)) == p.ids[p.begin[2 * i + k] + t];
            CHECK(same, "pair %ld, text %d: other tokens", (long)i, k);
        }
        gx_json_free(json);
    }
    gx_pairs_close(&p);
    free(text);
}

#define GOOD    "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
#define SAYS(s) "[{\"role\": \"assistant\", \"content\": \"" s "\"}]"
#define USER(s) "{\"role\": \"user\", \"content\": \"" s "\"}"
TEST(records_that_are_no_pairs_are_refused_with_file_and_line)
{
    static const struct {
        const char *line, *format, *words;
    } cases[] = {
        {"{\"prompt\": \"a\", \"chosen\": \"b\"}", "", "bad.jsonl:2: the record has no \"rejected\""},
        {"{\"prompt\": \"a\", \"rejected\": \"b\"}", "", "bad.jsonl:2: the record has no \"chosen\""},
        {"[1]", "", "bad.jsonl:2: the line is an array"},
        {"{\"chosen\"", "", "bad.jsonl:2:"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}", "",
         "bad.jsonl:2: \"chosen\" and \"rejected\" have the same"},
        {"{\"prompt\": \"a\", \"chosen\": \" \", \"rejected\": \"b\"}", "", "bad.jsonl:2: \"chosen\" is empty"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"\"}", "", "bad.jsonl:2: \"rejected\" is empty"},
        {"{\"chosen\": \"abc\", \"rejected\": \"abcd\"}", "", "bad.jsonl:2: \"chosen\" is empty after"},
        {"{\"prompt\": \"a\", \"chosen\": 7, \"rejected\": 8}", "",
         "bad.jsonl:2: \"chosen\" is an integer; expected a string, or a list of messages"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": 8}", "",
         "bad.jsonl:2: \"rejected\" is an integer, but \"chosen\" is a string; expected all of them to be strings"},
        {"{\"prompt\": \"a\", \"chosen\": " SAYS("b") ", \"rejected\": " SAYS("c") "}", "chatml",
         "bad.jsonl:2: \"prompt\" is "},
        {"{\"prompt\": [" USER("a") "], \"chosen\": " SAYS("b") ", \"rejected\": " SAYS("c") "}", "none",
         "bad.jsonl:2: the pair consists of messages, and neither"},
        {"{\"prompt\": [" USER("a") "], \"chosen\": [" USER("b") "], \"rejected\": " SAYS("c") "}", "chatml",
         "bad.jsonl:2: chosen[0] is a turn of the user"},
        {"{\"prompt\": [" USER("a") "], \"chosen\": " SAYS("b") ", \"rejected\": []}", "chatml",
         "bad.jsonl:2: \"rejected\" is empty"},
        {"{\"chosen\": " SAYS("b") ", \"rejected\": " SAYS("c") "}", "chatml",
         "bad.jsonl:2: chosen[0] is a turn of the assistant"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"tools\": [1]}", "",
         "bad.jsonl:2: the record has \"tools\""},
        {"\n" GOOD, "", "bad.jsonl:2: the line is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1000];
        GxPairs p;
        GxError e = GX_ZERO;
        snprintf(text, sizeof text, GOOD "%s\n" GOOD, cases[i].line);
        write_file("bad.jsonl", text);
        const GxStatus status = open_pairs(&p, path_of("bad.jsonl"), 100, cases[i].format, &e);
        CHECK(status != GX_OK && strstr(e.message, cases[i].words), "%s: no \"%s\": %s", cases[i].line, cases[i].words,
              e.message);
    }
    static const char turns[] = "{\"chosen\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\"}, " USER(
        "c") ", {\"role\": \"assistant\", \"content\": \"d\"}], \"rejected\": [" USER("a") ", {\"role\": "
                                                                                           "\"assistant\", "
                                                                                           "\"content\": \"x\"}, " USER(
                                                                                               "c") ", {\"role\": "
                                                                                                    "\"assistant\", "
                                                                                                    "\"content\": "
                                                                                                    "\"d\"}]}\n";
    GxPairs p;
    GxError e = GX_ZERO;
    write_file("bad.jsonl", turns);
    CHECK(open_pairs(&p, path_of("bad.jsonl"), 100, "chatml", &e) != GX_OK &&
              strstr(e.message, "bad.jsonl:1: \"chosen\" has 3 turns after a prompt of 1"),
          "%s", e.message);
}

TEST(of_several_pairs_that_are_wrong_the_first_ones_are_named_and_all_are_counted)
{
    static char text[60000];
    char *at = text;
    for (int i = 1; i <= 600; i++) // wrong are lines 3, 6, …, in more than one piece of those that are read together
        at += sprintf(at, "%s", i % 3 ? GOOD : "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}\n");
    GxPairs p;
    GxError e = GX_ZERO;
    write_file("bad.jsonl", text);
    CHECK(open_pairs(&p, path_of("bad.jsonl"), 100, "", &e) != GX_OK &&
              strstr(e.message, "bad.jsonl:3: \"chosen\" and \"rejected\" have the same tokens") &&
              strstr(e.message, " (200 of the records in lines 1 to 600 are wrong: lines 3, 6, 9, 12, 15 and others)"),
          "%s", e.message);
    CHECK(!p.ids && !p.n, "something is left");
}

TEST(a_pair_that_is_too_long_is_left_out_and_counted_never_cut)
{
    GxPairs p;
    GxError e = GX_ZERO;
    write_file("long.jsonl", GOOD "{\"prompt\": \"ab\", \"chosen\": \"b\", \"rejected\": \"xyzuvw\"}\n" GOOD);
    CHECK(open_pairs(&p, path_of("long.jsonl"), 1000, "", &e) == GX_OK && p.n == 3, "%s", e.message);
    const int64_t both = p.begin[4] - p.begin[2], end = p.ids[p.begin[1] - 1];
    gx_pairs_close(&p);
    CHECK(end == 1, "the text ends with %ld, not with </s>", (long)end);
    CHECK(open_pairs(&p, path_of("long.jsonl"), both, "", &e) == GX_OK && p.n == 3 && p.left_out == 0, "%s", e.message);
    gx_pairs_close(&p);
    CHECK(open_pairs(&p, path_of("long.jsonl"), both - 1, "", &e) == GX_OK && p.n == 2 && p.left_out == 1, "%s",
          e.message);
    gx_pairs_close(&p);
    CHECK(open_pairs(&p, path_of("long.jsonl"), 5, "", &e) != GX_OK && strstr(e.message, "none of its 3 pairs"), "%s",
          e.message);
    gx_error_clear(&e);
    write_file("long.jsonl", GOOD);
    CHECK(open_pairs(&p, path_of("long.jsonl"), 3, "", &e) != GX_OK &&
              strstr(e.message, "its only pair has not both texts"),
          "%s", e.message);
}

// ---- against PyTorch -----------------------------------------------------------------------------------------------

static struct {
    GxSafetensors ref;
    const char *name, *prefix; // full, lora; of the names of tensors in the dump
    int tensors;
    double bound;
} pytorch;

static float *dumped(const char *what, const char *tensor, int64_t *n)
{
    char name[300];
    GxError e = GX_ZERO;
    snprintf(name, sizeof name, "%s.%s%s%s", pytorch.name, what, tensor[0] ? pytorch.prefix : "", tensor);
    const GxSafetensorsEntry *entry = gx_safetensors_find(&pytorch.ref, name);
    if (!CHECK(entry != NULL, "no %s", name)) return NULL;
    float *x = (float *)malloc((size_t)(entry->elements + 1) * sizeof *x);
    CHECK(gx_safetensors_read(&pytorch.ref, entry, 0, *n = entry->elements, x, &e) == GX_OK, "%s", e.message);
    return x;
}

static int compare(GxTrainer *t, const char *what, int is_gradient, double bound, double floor)
{
    int compared = 0;
    for (int i = 0; i < t->session.model.table.n; i++) {
        const GxTensor *row = &t->session.model.table.row[i];
        int64_t n = 0;
        if (!gx_store_trains(&t->session.model.store, i) || row->has_alias) continue;
        float *ref = dumped(what, row->name, &n);
        if (!ref || !CHECK(n == gx_tensor_count(row), "%s: %ld elements", row->name, (long)n)) continue;
        float *ours = (float *)malloc((size_t)n * sizeof *ours);
        gx_to_host(t->session.g, ours,
                   is_gradient ? gx_store_grads(&t->session.model.store, i)
                               : gx_store_master_at(&t->session.model.store, i, 0),
                   4 * n);
        test_close_f(row->name, ours, ref, n, bound, floor);
        compared++;
        free(ref), free(ours);
    }
    return compared;
}

static int rank_as_pytorch(GxContext *g, int argc, char **argv)
{
    static const GxReporter reporter = {hear_out, NULL, NULL};
    GxTrainer t = GX_ZERO;
    g->reporter = &reporter, g->log.write = hear_log;
    gx_trainer_open(&t, g, &gx_llama, &gx_dpo, NULL, argc, argv);
    int64_t n = 0;
    float *logps = gx_failed(g) ? NULL : dumped("logps", "", &n);
    for (int64_t i = 0; logps && i < n; i++)
        test_close_number("logp", ((GxDpo *)t.run.self)->reference[i], (double)logps[i], pytorch.bound);
    free(logps);
    while (gx_trainer_next(&t)) {
        gx_trainer_step(&t);
        gx_trainer_report(&t);
        if (t.run.at.step == 3) {
            const double norm = sqrt(t.session.seen.sum_squares);
            const int compared = compare(&t, "grad.", 1, 9 * pytorch.bound, 1e-3 * norm / sqrt(pytorch.tensors));
            CHECK(compared == pytorch.tensors, "%d gradients", compared);
        }
    }
    compare(&t, "sgd.", 0, 30 * pytorch.bound, 0);
    return gx_trainer_close(&t);
}

// Losses, rewards, gradients of the third step, when every pair has another factor, and ten steps of SGD.
static void as_pytorch(const char *name, const char *prefix, int tensors, const char *more)
{
    static const char *const key[] = {"loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies"},
                             *const ref[] = {"losses", "chosen", "rejected", "accuracy"};
    char line[4000], *argv[80] = {(char *)"train"}, out[100];
    int argc = 1;
    GxError e = GX_ZERO;
    GxLlamaConfig c;
    memset(&said, 0, sizeof said);
    pytorch.name = name, pytorch.prefix = prefix, pytorch.tensors = tensors;
    if (!CHECK(gx_llama_config_read(&c, REF "/config.json", &gx_silent, &e) == GX_OK, "%s", e.message)) return;
    // forward, as test_model_depth has it, of texts of 60 tokens; and their sum
    const double layer = 4.0 * (double)c.hidden_size +
                         (double)(c.head_dim + 60 + c.num_attention_heads * c.head_dim + c.intermediate_size);
    pytorch.bound = test_bound((double)c.num_hidden_layers * layer + (double)(c.hidden_size + c.vocab_size) + 60);
    if (!CHECK(gx_safetensors_open(&pytorch.ref, REF "/ref.safetensors", &e) == GX_OK, "%s", e.message)) return;
    snprintf(out, sizeof out, "as_%s", name);
    snprintf(line, sizeof line,
             "--output_dir %s --train_data " REF
             "/pairs.jsonl --chat_template chatml --seq_len 128 --micro_batch_size 7 "
             "--validation_fraction 0 --dpo_beta 0.4 --pack_pairs false --threads 1 --logging_steps 1 --max_steps 10 "
             "--gradient_accumulation_steps 1 --warmup_steps 0 --lr_scheduler_type constant --max_grad_norm 0 "
             "--weight_decay 0 --optimizer sgd --momentum 0 %s",
             path_of(out), more);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    CHECK(gx_launch(rank_as_pytorch, argc, argv) == 0 && !said.log[0], "%s", said.log);
    for (int k = 0; k < 4; k++) {
        double x[20] = {0};
        int64_t n = 0;
        float *theirs = dumped(ref[k], "", &n);
        CHECK(series(out, key[k], x, 20) == 10 && n == 10, "%s: other steps", key[k]);
        // log-probabilities of up to 60 times beta, of which rewards are differences
        for (int i = 0; i < 10 && theirs; i++)
            CHECK(fabs(x[i] - (double)theirs[i]) <= (1 + 3 * i) * pytorch.bound * 0.4 * 60, "%s of step %d: %g, not %g",
                  key[k], i + 1, x[i], (double)theirs[i]);
        free(theirs);
    }
    gx_safetensors_close(&pytorch.ref);
}
TEST(a_whole_model_learns_as_in_pytorch) { as_pytorch("full", "", 20, "--model " REF " --learning_rate 0.3"); }
TEST(lora_learns_as_in_peft)
{
    as_pytorch("lora", GX_PEFT_PREFIX, 12,
               "--tuning lora --adapter " REF "/adapter --model " REF " --learning_rate 0.5");
}

// ---- a rank alone and many -----------------------------------------------------------------------------------------

// The derivative along the gradient, where pairs have different factors: at step 4 a rate of e goes on to w - e g.
TEST(gradients_are_slopes_of_the_loss)
{
    double loss[2][6], norm[6];
    CHECK(run("slope", SGD "--micro_batch_size 7 --max_steps 2 --learning_rate 0.1") == 0, "%s", said.log);
    for (int i = 0; i < 2; i++) {
        char more[300], name[40];
        snprintf(name, sizeof name, "slope%d", i);
        snprintf(more, sizeof more,
                 "--micro_batch_size 7 --optimizer sgd --momentum 0 --max_steps 4 --resume %s "
                 "--learning_rate %g",
                 path_of("slope/checkpoint-2"), i ? 0.01 : 0.005);
        char line[2000];
        snprintf(line, sizeof line, "--output_dir %s %s", path_of(name), more);
        CHECK(run_line(&gx_llama, &gx_dpo, line) == 0, "%s", said.log);
        CHECK(series(name, "loss", loss[i], 6) == 2 && series(name, "grad_norm", norm, 6) == 2, "other steps");
    }
    const double half = (loss[0][0] - loss[0][1]) / 0.005, one = (loss[1][0] - loss[1][1]) / 0.01;
    // 2 half - one has no term of e; what is left is of the size of its square
    CHECK(fabs(2 * half - one - norm[0] * norm[0]) <
              2 * fabs(half - one) * fabs(half - one) / (norm[0] * norm[0]) + 1e-3 * norm[0] * norm[0],
          "slopes %g, %g, norm^2 %g", half, one, norm[0] * norm[0]);
}

static void same_as(const char *name, const char *serial, const char *way)
{
    static const char *const key[] = {"loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "grad_norm"};
    for (int k = 0; k < 5; k++) {
        double x[20], y[20];
        const int n = series(serial, key[k], x, 20);
        CHECK(n == 10 && series(name, key[k], y, 20) == n, "%s: other steps", way);
        // Rewards are differences of log-probabilities of up to 60, whose roundings are of their size. In the first
        // step all are 0 but for these, so which of two is the larger one is theirs to say.
        for (int i = !strcmp(key[k], "rewards/accuracies"); i < n; i++)
            CHECK(fabs(x[i] - y[i]) <= 4e-5 * (1 + i), "%s: %s of step %d: %.9g, not %.9g", way, key[k], i + 1, y[i],
                  x[i]);
    }
    CHECK(!strstr(said.log, "the plan is wrong"), "%s: %s", way, said.log);
}

static void every_mode(const char *what, const char *with)
{
    static const char *const ways[] = {
        "--micro_batch_size 1 --gradient_accumulation_steps 7",
        "--micro_batch_size 7 --head_chunk 37",
        "--micro_batch_size 7 --recompute layer",
        "--ranks 2 --dp_batch_size_list 5,2",
        "--ranks 3 --dp_batch_size_list 2,4,1",
        "--ranks 2 --dp_samples_list 5,2 --micro_batch_size 2",
        "--micro_batch_size 7 --ranks 2 --mode tp",
        "--micro_batch_size 7 --ranks 3 --mode tp --tp_vocab_size_list 300,1,119",
        "--micro_batch_size 7 --ranks 2 --mode sp --head_chunk 50",
        "--micro_batch_size 7 --ranks 3 --mode sp --seq_scatter_list 100,3,25",
        "--micro_batch_size 7 --ranks 2 --mode galaxy",
        "--micro_batch_size 7 --ranks 3 --mode galaxy --tp_vocab_size_list 20,100,300",
        "--micro_batch_size 7 --ranks 2 --mode galaxy2",
        "--micro_batch_size 7 --ranks 3 --mode galaxy2 --seq_scatter_list 8,20,100",
        "--ranks 4 --mode tp --tp 2 --dp_batch_size_list 3,4",
        "--ranks 4 --mode galaxy2 --tp 2 --dp_batch_size_list 6,1",
    };
    char serial[40], name[40], more[400];
    snprintf(serial, sizeof serial, "%s_serial", what);
    snprintf(more, sizeof more, "%s --micro_batch_size 7", with);
    CHECK(run(serial, more) == 0 && !said.log[0], "%s", said.log);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(name, sizeof name, "%s_%d", what, (int)i);
        snprintf(more, sizeof more, "%s %s", with, ways[i]);
        if (CHECK(run(name, more) == 0, "%s: %s", ways[i], said.log)) same_as(name, serial, ways[i]);
    }
}
TEST(every_mode_has_the_losses_and_rewards_of_serial) { every_mode("full", SGD); }
TEST(lora_in_every_mode_has_the_losses_and_rewards_of_serial)
{
    every_mode("lora", "--tuning lora --lora_dim 3 --optimizer sgd --momentum 0 --learning_rate 0.5");
}

// And of the embedding that it is tied to.
TEST(lora_of_the_head_in_every_mode_has_the_losses_and_rewards_of_serial)
{
    every_mode("lora_head",
               "--tuning lora --lora_dim 3 --target_modules lm_head,embed_tokens --optimizer sgd --momentum 0 "
               "--learning_rate 0.5");
}

// Where an epoch ends within a micro-batch, that may hold a pair twice.
TEST(a_pair_that_a_micro_batch_has_twice_counts_twice)
{
    CHECK(run("twice", SGD "--micro_batch_size 10") == 0, "%s", said.log);
    CHECK(run("twice1", SGD "--micro_batch_size 1 --gradient_accumulation_steps 10") == 0, "%s", said.log);
    same_as("twice1", "twice", "one by one");
}

// All pairs are in two samples, or in seven: a step sees them all.
TEST(pairs_that_share_a_sample_do_not_see_each_other)
{
    CHECK(run("apart", SGD "--micro_batch_size 7 --seq_len 250") == 0, "%s", said.log);
    CHECK(run("packed", SGD "--micro_batch_size 2 --seq_len 250 --pack_pairs true --show_data 1") == 0, "%s", said.log);
    CHECK(strstr(said.out, "2 samples of 250 tokens") && strstr(said.out, "3.50 pairs"), "%s", said.out);
    same_as("packed", "apart", "packed");
}

TEST(a_pair_is_shown_with_its_own_lines)
{
    static const char text[] = "Be brief, kind, calm, and polite; answer in a line, without a list, a table, or a note";
    char record[400], more[600];
    snprintf(record, sizeof record, "{\"prompt\": \"%s\", \"chosen\": \" a\", \"rejected\": \" b\"}\n", text);
    write_file("wide.jsonl", record);
    snprintf(more, sizeof more, "--max_steps 1 --micro_batch_size 1 --seq_len 250 --show_data 1 --train_data %s",
             path_of("wide.jsonl"));
    CHECK(run("wide", more) == 0, "%s", said.log);
    snprintf(more, sizeof more, "\n<s>%s⟦ a", text);
    CHECK(strstr(said.out, more), "%s", said.out);
}

// ---- a run ---------------------------------------------------------------------------------------------------------

// Answers in capital letters are preferred.
static void write_preferences(void)
{
    static const char *const word[] = {"ship", "song", "day", "tree", "sea", "road", "king", "bird"};
    FILE *f = fopen(path_of("made.jsonl"), "w");
    if (!CHECK(f != NULL, "cannot write")) return;
    for (int i = 0; i < 64; i++) {
        const char *a = word[i % 8], *b = word[i / 8];
        fprintf(f, "{\"prompt\": \"Say %s and %s:\", \"chosen\": \" %c%c!\", \"rejected\": \" %s %s\"}\n", a, b,
                a[0] - 32, b[0] - 32, a, b);
    }
    fclose(f);
}

TEST(a_model_learns_what_is_preferred)
{
    double x[80] = {0}, margin[80] = {0}, right[80] = {0};
    char more[500];
    write_preferences();
    snprintf(more, sizeof more,
             "--train_data %s --pack_pairs true --validation_fraction 0.2 --micro_batch_size 4 --max_steps 60 "
             "--eval_steps 30 --learning_rate 3e-3 --dpo_beta 0.1 --show_data 1 --tuning lora",
             path_of("made.jsonl"));
    CHECK(run("said", more) == 0 && strstr(said.log, "--chat_template chatml changes nothing: the pairs are texts"),
          "%s", said.log);
    strcat(more, " --chat_template auto");
    if (!CHECK(run("learns", more) == 0 && !said.log[0], "%s", said.log)) return;
    CHECK(series("learns", "loss", x, 80) == 60 && series("learns", "rewards/margins", margin, 80) == 60 &&
              series("learns", "rewards/accuracies", right, 80) == 60,
          "other lines");
    CHECK(fabs(x[0] - log(2.0)) < 1e-6 && margin[0] == 0 && right[0] == 0, "it begins with %g, %g, %g", x[0], margin[0],
          right[0]);
    CHECK(x[59] < 0.1 && margin[59] > margin[20] && margin[20] > 0 && right[59] == 1, "it ends with %g, %g, %g", x[59],
          margin[59], right[59]);
    CHECK(metric("loss") < 0.2 && metric("rewards/accuracies") == 1 && metric("rewards/margins") > 1 &&
              metric("rewards/margins") == metric("rewards/chosen") - metric("rewards/rejected") && told.count == 13,
          "validation %g, %g, %g", metric("loss"), metric("rewards/accuracies"), metric("rewards/margins"));
    CHECK(strstr(said.out, "64 preference pairs") && strstr(said.out, "13 pairs are held out") &&
              strstr(said.out, "!</s>⟧\n") && strstr(said.out, "<s>Say ") && strstr(said.out, "learning_rate=0.003"),
          "%s", said.out);
    CHECK(strstr(said.out, "lora_dropout=0.0"), "there is dropout: %s", said.out);
    CHECK(series("learns", "eval_rewards/margins", x, 80) == 2, "other validations");
    snprintf(more, sizeof more, "--output_dir %s --resume auto --evaluate", path_of("learns")); // the second, alone
    CHECK(run_line(&gx_llama, &gx_dpo, more) == 0 && fabs(metric("rewards/margins") - x[1]) <= 1e-6 * x[1] &&
              x[1] > x[0],
          "margins of %g, and of %g when they are looked at again: %s", x[1], metric("rewards/margins"), said.log);
}

TEST(rates_are_those_of_preferences_and_what_cannot_be_is_refused)
{
    char none[] = "--max_steps 1 --output_dir none";
    CHECK(run("rate", "--micro_batch_size 7 --dry_run true") == 0 && strstr(said.out, "learning_rate=1e-06"), "%s",
          said.out);
    CHECK(run("rate", "--micro_batch_size 7 --dry_run true --tuning lora") == 0 &&
              strstr(said.out, "learning_rate=1e-05") && strstr(said.out, "lora_dropout=0.0"),
          "%s", said.out);
    CHECK(run("rate", "--micro_batch_size 7 --tuning lora --lora_dropout 0.1") == 1 &&
              strstr(said.log, "--lora_dropout is 0.1, but --task dpo needs 0"),
          "%s", said.log);
    CHECK(run("rate", "--micro_batch_size 7 --label_smoothing_factor 0.1") == 1 &&
              strstr(said.log, "--label_smoothing_factor 0.1 is for the loss of tokens; task dpo compares"),
          "%s", said.log);
    CHECK(run_line(&gx_llama, &gx_dpo, none) == 1 && strstr(said.log, "--train_data is empty"), "%s", said.log);
    CHECK(run("rate", "--evaluate --micro_batch_size 7 --validation_fraction 0.3") == 0 &&
              strstr(said.log, "the model is its own reference") && strstr(said.out, "loss 0.6931") &&
              strstr(said.out, "accuracy 0.0000 over 3 pairs"),
          "%s%s", said.log, said.out);
    CHECK(run("rate", "--micro_batch_size 7 --validation_fraction 0.9 --seq_len 24") == 1 &&
              strstr(said.log, "none would be left to train on"),
          "%s", said.log);
}

static void same_file(const char *a, const char *b, const char *file)
{
    char path[2][200];
    int64_t n[2];
    snprintf(path[0], sizeof path[0], "%s/%s", a, file), snprintf(path[1], sizeof path[1], "%s/%s", b, file);
    char *x = read_bytes(path_of(path[0]), &n[0]), *y = read_bytes(path_of(path[1]), &n[1]);
    CHECK(n[0] > 0 && n[0] == n[1] && !memcmp(x, y, (size_t)n[0]), "%s and %s differ", path[0], path[1]);
    free(x), free(y);
}

static int go_on(const char *name, const char *from, const char *more)
{
    char line[2000];
    snprintf(line, sizeof line, "--output_dir %s --resume %s %s", path_of(name), path_of(from), more);
    return run_line(&gx_llama, &gx_dpo, line);
}

TEST(a_run_that_is_resumed_ends_with_the_same_bits)
{
    static const char *const ways[] = {"--learning_rate 1e-3", "--tuning lora --learning_rate 1e-2",
                                       "--learning_rate 1e-3 --ranks 2 --mode tp --precision bf16"};
    for (int i = 0; i < 3; i++) {
        char whole[40], part[40], a[80], b[80], more[300];
        snprintf(whole, sizeof whole, "whole%d", i), snprintf(part, sizeof part, "part%d", i);
        snprintf(more, sizeof more, "--micro_batch_size 3 --max_steps 6 --save_steps 3 --validation_fraction 0.2 %s",
                 ways[i]);
        CHECK(run(whole, more) == 0, "%s", said.log);
        snprintf(a, sizeof a, "%s/checkpoint-3", whole);
        CHECK(go_on(part, a, i == 2 ? "--ranks 2" : "--threads 1") == 0, "%s", said.log); // threads are given anew
        snprintf(a, sizeof a, "%s/checkpoint-6", whole), snprintf(b, sizeof b, "%s/checkpoint-6", part);
        same_file(a, b, i == 1 ? "adapter_model.safetensors" : "model.safetensors");
        same_file(a, b, "optimizer.safetensors"), same_file(a, b, "dpo_reference.tsv");
    }
    // what a run begins with is its reference, an adapter included
    char line[600];
    double first[2];
    snprintf(line, sizeof line, "--micro_batch_size 7 --max_steps 1 --tuning lora --adapter %s",
             path_of("whole1/checkpoint-6"));
    CHECK(run("again", line) == 0 && series("again", "loss", first, 2) == 1 && fabs(first[0] - log(2.0)) < 1e-6, "%s",
          said.log);
    // shown: with the reference that the run had
    snprintf(line, sizeof line, "--output_dir %s --resume auto --evaluate", path_of("whole0"));
    double x[4];
    CHECK(run_line(&gx_llama, &gx_dpo, line) == 0 && series("whole0", "eval_loss", x, 4) == 1, "%s", said.log);
    char text[60];
    snprintf(text, sizeof text, "validation loss %.4f", x[0]);
    CHECK(fabs(x[0] - log(2.0)) > 1e-3 && strstr(said.out, text), "%s: %s", text, said.out);
}

TEST(a_run_does_not_go_on_with_other_pairs_or_a_damaged_reference)
{
    char more[200];
    write_preferences();
    CHECK(run("other", "--micro_batch_size 7 --max_steps 2") == 0, "%s", said.log);
    snprintf(more, sizeof more, "--max_steps 3 --train_data %s", path_of("made.jsonl"));
    CHECK(go_on("other2", "other/checkpoint-2", more) == 1 && strstr(said.log, "has the reference's log-probabilities"),
          "%s", said.log);
    char *text = read_file(path_of("other/checkpoint-2/dpo_reference.tsv"));
    *strrchr(text, '\t') = 0;
    write_file("other/checkpoint-2/dpo_reference.tsv", text);
    free(text);
    CHECK(go_on("other2", "other/checkpoint-2", "--max_steps 3") == 1 && strstr(said.log, "dpo_reference.tsv"), "%s",
          said.log);
    CHECK(unlink(path_of("other/checkpoint-2/manifest.json")) == 0, "there is no list of files"); // a model's folder
    snprintf(more, sizeof more, "--model %s --evaluate --micro_batch_size 7", path_of("other/checkpoint-2"));
    CHECK(run("other3", more) == 1 && strstr(said.log, "line 8 does not hold two numbers"), "%s", said.log);
    text = read_file(path_of("other/checkpoint-2/dpo_reference.tsv"));
    const char *line = strchr(text, '\n') + 1;
    char *infinite = (char *)malloc(strlen(text) + 5);
    sprintf(infinite, "%.*snan%s", (int)(line - text), text, strchr(line, '\t'));
    write_file("other/checkpoint-2/dpo_reference.tsv", infinite);
    free(infinite), free(text);
    CHECK(run("other3", more) == 1 && strstr(said.log, "line 2 does not hold two numbers"), "%s", said.log);
}

static void nothing(void) {}
int main(int argc, char **argv) { return run_tests(argc, argv, nothing); }
