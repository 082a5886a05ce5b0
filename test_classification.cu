// test_classification.cu: labels of texts (task/classification.h): what a batch holds, by hand; metrics and predictions
// that depend on neither packing nor ranks; every kind of problem; labels of a model; what is refused, and how.
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/task_run.h"
#include <signal.h>
#include <sys/resource.h>

// ---- files ---------------------------------------------------------------------------------------------------------

// ids: 5 good, 6 bad, 7 film, ...
static const char *const words[] = {"good", "bad",  "film", "a",     "very",  "the",  "plot", "was",
                                    "and",  "dull", "fine", "sport", "music", "news", "of",   "it"};
enum { WORDS = sizeof words / sizeof *words, VOCAB = WORDS + FIRST_WORD };

static void write_tokenizer(void)
{
    char vocab[400] = "";
    for (int i = 0; i < WORDS; i++) snprintf(vocab + strlen(vocab), sizeof vocab - strlen(vocab), "%s\n", words[i]);
    write_vocab(vocab);
}

// Texts that are as good as their words are: "good" counts 1, "bad" -1. kind: 0: a class; 1: several; 2: a number; 3:
// in groups of four, one of which is good; 4: without labels.
static void write_corpus(const char *name, int kind, int n, int seed)
{
    static char text[1 << 20];
    static const char *const header[] = {"text\tlabel\n", "text\tlabel\n", "text\tlabel\n",
                                         "group\ttext\ttext2\tlabel\n", "text\n"};
    size_t at = (size_t)snprintf(text, sizeof text, "%s", header[kind]);
    for (int i = 0; i < n; i++) {
        const GxRandom4 r = gx_philox((uint64_t)seed, (uint64_t)i, 0, 77);
        const int good = kind == 3 ? i % 4 == (int)(r.w[2] % 4) : (int)(r.w[0] % 2), sport = r.w[1] % 2,
                  more = (int)(r.w[3] % 9);
        if (kind == 3) at += (size_t)snprintf(text + at, sizeof text - at, "g%d\twas it\t", i / 4);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s film", good ? "good" : "bad");
        if (kind == 1 && sport) at += (size_t)snprintf(text + at, sizeof text - at, " of sport");
        for (int k = 0; k < more; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, " %s", words[3 + (r.w[2] >> k) % 5]);
        if (kind == 0) at += (size_t)snprintf(text + at, sizeof text - at, "\t%s", good ? "yes" : "no");
        if (kind == 1)
            at += (size_t)snprintf(text + at, sizeof text - at, "\t%s%s%s", good ? "fine" : "",
                                   good && sport ? ", " : "", sport ? "sport" : "");
        if (kind == 2) at += (size_t)snprintf(text + at, sizeof text - at, "\t%.2f", good ? 1.5 : -0.5 + 0.01 * more);
        if (kind == 3) at += (size_t)snprintf(text + at, sizeof text - at, "\t%d", good);
        at += (size_t)snprintf(text + at, sizeof text - at, "\n");
    }
    write_file(name, text);
}

// ---- the task alone ------------------------------------------------------------------------------------------------

static const GxFamily *family = &gx_bert;
static int renews_heads; // as --ignore_mismatched_sizes

static GxStatus open_task(GxClassification *c, GxContext *g, int64_t T, const char *model, const char *flags)
{
    char line[4 * GX_PATH], *argv[40] = {(char *)"task"};
    int argc = 1;
    GxConfig config;
    GxTaskSetup setup = GX_ZERO;
    memset(c, 0, sizeof *c), memset(g, 0, sizeof *g);
    g->device = gx_device_cpu(), g->world = 1, g->threads = 2;
    setup.vocab = 1000, setup.seq_len = T, setup.model = model;
    setup.starts_from_model = setup.ignore_mismatched_sizes = renews_heads;
    snprintf(line, sizeof line, "%s", flags);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    gx_config_open(&config);
    GX_TRY(gx_config_add(&config, "task", gx_classification.options.fields, gx_classification.options.n_fields, c,
                         &g->error));
    GX_TRY(gx_config_read_args(&config, argc, argv, &g->error));
    return gx_classification.data.open(g, c, &setup);
}

typedef struct {
    GxBatch b;
    char *block;
} Batch;

static Batch lay(const GxClassification *c, int64_t T, int64_t B, int64_t first)
{
    Batch x;
    memset(&x, 0, sizeof x);
    x.b.T = T, x.b.B = B, x.b.sample = first;
    x.block = (char *)calloc(1, (size_t)gx_classification.batch.layout(c, &x.b, NULL, NULL));
    gx_classification.batch.layout(c, &x.b, x.block, x.block);
    return x;
}

// "2 5 7 3 | 2 14 3" of a column: its tokens, texts apart.
static const char *column_text(const GxBatch *b, int64_t column)
{
    static char text[2000];
    size_t at = 0;
    text[0] = 0;
    for (int64_t t = 0; t < b->T; t++) {
        const int64_t row = t * b->B + column;
        if (b->documents[2 * row] == b->documents[2 * row + 1]) continue;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d%s", at ? " " : "", b->tokens[row],
                               b->types[row] ? "'" : "");
        if (t + 1 == b->documents[2 * row + 1]) at += (size_t)snprintf(text + at, sizeof text - at, " |");
    }
    return text;
}

TEST(a_batch_of_pairs_holds_their_tokens_types_and_labels)
{
    GxClassification c;
    GxContext g;
    char flags[600];
    write_file("pairs.tsv", "text\ttext2\tlabel\ngood film\ta plot\tyes\ngood film and very fine plot\tbad\tno\n");
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --tokenizer %s", path_of("pairs.tsv"),
             path_of("tokens"));
    if (!CHECK(open_task(&c, &g, 8, "", flags) == GX_OK, "%s", g.error.message)) return;
    Batch x = lay(&c, 8, 2, 0);
    CHECK(gx_classification.batch.fill(&g, &c, &x.b, x.block, 1, &g.error) == GX_OK, "%s", g.error.message);
    const int swapped = x.b.tokens[1 * 2 + 0] == 5 && x.b.tokens[2 * 2 + 0] == 7 && x.b.tokens[3 * 2 + 0] != 3;
    CHECK(!strcmp(column_text(&x.b, swapped), "2 5 7 3 8' 11' 3' |"), "%s", column_text(&x.b, swapped));
    CHECK(!strcmp(column_text(&x.b, !swapped), "2 5 7 13 9 3 6' 3' |"), "cut to 8: %s", column_text(&x.b, !swapped));
    CHECK(x.b.target[0].n == 2 && x.b.target[0].rows[0] == 0 && x.b.target[0].rows[1] == 1, "rows of [CLS]");
    CHECK(x.b.target[0].labels[swapped] == 1 && x.b.target[0].labels[!swapped] == 0, "no is 0, yes is 1");
    CHECK(c.train.cut == 1 && c.train.longest == 10, "%ld cut, %ld tokens", (long)c.train.cut, (long)c.train.longest);
    int64_t count[GX_MAX_LOSSES] = {0};
    gx_classification.batch.counts(&c, &x.b, count);
    CHECK(count[0] == 2, "%ld labels", (long)count[0]);
    free(x.block);
    gx_classification.data.close(&c);
}

// In any column, each text is one of the file's, its row counts once, with its label; every epoch has every text once.
static void check_epochs(const char *flags, int is_causal)
{
    enum { T = 40, N = 60 };
    GxClassification c;
    GxContext g;
    int seen[N] = {0}, texts = 0, columns = 0;
    if (!CHECK(open_task(&c, &g, T, "", flags) == GX_OK, "%s", g.error.message)) return;
    c.is_causal = is_causal;
    for (; texts < 2 * N; columns++) {
        Batch x = lay(&c, T, 1, columns);
        const GxTarget *t = &x.b.target[0];
        int64_t rows = 0;
        gx_classification.batch.fill(&g, &c, &x.b, x.block, 7, &g.error);
        for (int64_t at = 0, end; at < T && (end = x.b.documents[2 * at + 1]) > at; at = end) {
            int64_t i = 0;
            for (; i < N; i++)
                if (seen[i] == texts / N && c.train.length[i] == end - at &&
                    !memcmp(c.train.ids[i], x.b.tokens + at, (size_t)(end - at) * sizeof *x.b.tokens))
                    break;
            if (!CHECK(i < N, "column %d, position %ld: no such text is left", columns, (long)at)) return;
            CHECK(rows < t->n && t->rows[rows] == (is_causal ? end - 1 : at) && t->labels[rows] == c.train.label[i],
                  "text %ld: row %ld", (long)i, (long)t->rows[rows]);
            seen[i]++, texts++, rows++;
        }
        CHECK(rows == t->n && (c.pack_texts || rows == 1), "%ld rows, %ld texts", (long)t->n, (long)rows);
        free(x.block);
    }
    CHECK(texts == 2 * N && (c.pack_texts ? columns < N : columns == 2 * N), "%d texts in %d columns", texts, columns);
    gx_classification.data.close(&c);
}

TEST(every_epoch_has_every_text_once_with_its_label_packed_or_not)
{
    char flags[600];
    write_corpus("sixty.tsv", 0, 60, 1);
    for (int way = 0; way < 4; way++) {
        snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --tokenizer %s --pack_texts %s",
                 path_of("sixty.tsv"), path_of("tokens"), way & 1 ? "true" : "false");
        check_epochs(flags, way >> 1);
    }
}

TEST(a_part_is_held_out_by_what_texts_say_and_groups_stay_whole)
{
    enum { T = 40 };
    GxClassification c;
    GxContext g;
    char flags[600];
    write_corpus("groups.tsv", 3, 400, 2);
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0.3 --tokenizer %s --group_column group",
             path_of("groups.tsv"), path_of("tokens"));
    if (!CHECK(open_task(&c, &g, T, "", flags) == GX_OK, "%s", g.error.message)) return;
    CHECK(c.train.n + c.held_out.n == 400 && c.train.n % 4 == 0 && c.held_out.n % 4 == 0, "%ld and %ld",
          (long)c.train.n, (long)c.held_out.n);
    // of 100 groups, binomial with p 0.3: 8 standard deviations of 4.6
    CHECK(abs((int)c.held_out.n / 4 - 30) < 37 && c.held_out.n > 0, "%ld held out", (long)c.held_out.n);
    for (int64_t i = 0; i < c.held_out.n; i++)
        CHECK(c.held_out.record[i] / 4 == c.held_out.record[i / 4 * 4] / 4, "group of text %ld is torn", (long)i);
    for (int64_t i = 0; i < c.held_out.n; i++) // column by column, groups follow each other as wholes
        CHECK(c.order[i] / 4 == c.order[i / 4 * 4] / 4, "place %ld", (long)i);
    gx_classification.data.close(&c);
    // the order of lines means nothing
    char *text = read_file(path_of("groups.tsv")), *first = strchr(text, '\n') + 1;
    char *swapped = (char *)calloc(1, strlen(text) + 1), *second = strchr(first, '\n') + 1;
    snprintf(swapped, strlen(text) + 1, "%.*s%s", (int)(first - text), text, second);
    strncat(swapped, first, (size_t)(second - first));
    write_file("turned.tsv", swapped);
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0.3 --tokenizer %s --group_column group",
             path_of("turned.tsv"), path_of("tokens"));
    CHECK(open_task(&c, &g, T, "", flags) == GX_OK, "%s", g.error.message);
    CHECK(c.train.n + c.held_out.n == 400 && c.held_out.n % 4 == 0, "%ld held out", (long)c.held_out.n);
    gx_classification.data.close(&c);
    free(text), free(swapped);
}

TEST(held_out_columns_beyond_the_last_that_is_wanted_count_for_nothing)
{
    enum { T = 40, B = 4 };
    GxClassification c;
    GxContext g;
    char flags[900];
    write_corpus("sixty.tsv", 0, 60, 1);
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --tokenizer %s", path_of("sixty.tsv"),
             path_of("sixty.tsv"), path_of("tokens"));
    if (!CHECK(open_task(&c, &g, T, "", flags) == GX_OK, "%s", g.error.message)) return;
    CHECK(c.columns > 8 && c.begin[c.columns] == 60, "%ld columns", (long)c.columns);
    for (int64_t samples = 0; samples <= c.columns; samples++) {
        int64_t texts = 0, first = 0;
        for (; first < c.columns; first += B) {
            Batch x = lay(&c, T, B, first);
            gx_classification.batch.fill_held_out(&g, &c, &x.b, x.block, samples, &g.error);
            texts += x.b.target[0].n;
            for (int64_t row = 0; row < T * B; row++)
                CHECK(first + row % B < samples || x.b.documents[2 * row + 1] == 0, "of %ld: column %ld is not empty",
                      (long)samples, (long)(first + row % B));
            free(x.block);
        }
        CHECK(texts == c.begin[samples], "%ld texts in %ld columns, expected %ld", (long)texts, (long)samples,
              (long)c.begin[samples]);
    }
    gx_classification.data.close(&c);
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(what_is_wrong_with_the_data_is_named_with_its_place)
{
    static const struct {
        const char *train, *validation, *more, *message;
    } cases[] = {
        {"text\tlabl\ngood\tyes\n", NULL, "", "t.tsv:1: there is no column \"label\""},
        {"text\tlabel\ngood\tyes\n \tno\n", NULL, "", "t.tsv:3:"},
        {"text\tlabel\ngood\tyes\nbad\t\n", NULL, "", "t.tsv:3:"},
        {"text\tlabel\ngood\tyes\nfine\tyes\n", NULL, "",
         "there is only one label, \"yes\", so there is nothing to choose from"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", "text\tlabel\nbad\tnever\n", "",
         "v.tsv:2: the label \"never\" is not one of the 2 known labels: no, yes"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--labels yes,maybe",
         "t.tsv:3: the label \"no\" is not one of the 2 known labels: yes, maybe; --labels names them"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", "text\tlabel\nbad\tnever\n", "",
         "no, yes; these are those of the training data; --labels a,b,c names others"},
        {"text\tlabel\ngood\t1e38\nbad\t0.5\n", NULL, "",
         "t.tsv:2: \"label\" is \"1e38\"; expected a number between -1.8e19 and 1.8e19"},
        {"text\tlabel\ngood\t1.5\nbad\t2\n", "text\tlabel\nbad\tno\n", "",
         "v.tsv:2: \"label\" is \"no\"; expected a number such as 3 or -0.5; the labels of the training data are "
         "numbers"},
        {"text\tlabel\ngood\t1.5\nbad\t2\n", NULL, "--labels 1.5,2", "--labels is for choosing among labels"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--labels yes,yes", "--labels: the label \"yes\" is listed twice"},
        {"text\tlabel\ngood\t1.5\nbad\tno\n", NULL, "--problem_type regression",
         "t.tsv:3: \"label\" is \"no\"; expected a number such as 3 or -0.5; --problem_type is regression"},
        {"text\tlabel\ngood\ta,a\nbad\tb\n", NULL, "--problem_type multi_label_classification",
         "t.tsv:2: the label \"a\" is listed twice"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--text2_column other", "there is no column \"other\""},
        {"text\tlabel\ngood\tyes\nbad\tno\n", "text\ttext2\tlabel\nbad\tfilm\tno\n", "", "v.tsv has text2, "},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--text_column=", "is empty; expected the name of a column"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--text_column label",
         "--text_column and --label_column are both \"label\"; expected two different columns\""},
        {"text2\tlabel\ngood\tyes\nbad\tno\n", NULL, "--text_column text2",
         "--text_column and --text2_column are both \"text2\"; expected two different columns, or --text2_column ''"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--text2_column label",
         "--text2_column and --label_column are both \"label\"; expected two different columns, or --text2_column ''"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--group_column label",
         "--group_column and --label_column are both \"label\"; expected two different columns\""},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--validation_fraction 0.9", "with --validation_fraction 0.9"},
        {"text\tlabel\ngood\tyes\nbad\tno\n", NULL, "--predict x.tsv",
         "the model has no head for labels (its config.json names no ...ForSequenceClassification); train one first"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxClassification c;
        GxContext g;
        char flags[900];
        write_file("t.tsv", cases[i].train);
        if (cases[i].validation) write_file("v.tsv", cases[i].validation);
        snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s %s %s %s", path_of("t.tsv"), path_of("tokens"),
                 cases[i].validation ? "--validation_data" : "--validation_fraction",
                 cases[i].validation ? path_of("v.tsv") : "0", cases[i].more);
        char quoted[700]; // so that a case can say where the message ends
        const int is_refused = open_task(&c, &g, 16, "", flags) != GX_OK;
        snprintf(quoted, sizeof quoted, "%s\"", g.error.message);
        CHECK(is_refused && strstr(quoted, cases[i].message), "case %d: \"%s\", expected \"%s\"", (int)i,
              g.error.message, cases[i].message);
        gx_classification.data.close(&c);
    }
}

TEST(what_is_learned_follows_from_the_option_or_from_what_labels_look_like)
{
    static const struct {
        const char *text, *more;
        GxProblem problem;
        int outputs;
    } cases[] = {
        {"text\tlabel\ngood\t1\nbad\t10\nfine\t2\n", "", GX_PROBLEM_SINGLE, 3},
        {"text\tlabel\ngood\t1.0\nbad\t10\n", "", GX_PROBLEM_REGRESSION, 1},
        {"text\tlabel\ngood\t1e1\nbad\t10\n", "", GX_PROBLEM_REGRESSION, 1},
        {"text\tlabel\ngood\t1.0\nbad\tno\n", "", GX_PROBLEM_SINGLE, 2},
        {"text\tlabel\ngood\t1e38\nbad\tno\n", "", GX_PROBLEM_SINGLE, 2},
        {"text\tlabel\ngood\ta, b\nbad\tb\n", "", GX_PROBLEM_SINGLE, 2},
        {"text\tlabel\ngood\ta, b\nbad\t\n", "--problem_type multi_label_classification", GX_PROBLEM_MULTI, 2},
        {"text\tlabel\ngood\t1\nbad\t2\n", "--problem_type regression", GX_PROBLEM_REGRESSION, 1},
        {"text\tlabel\ngood\tyes\nbad\tno\n", "--labels yes,no,never", GX_PROBLEM_SINGLE, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxClassification c;
        GxContext g;
        char flags[900];
        write_file("t.tsv", cases[i].text);
        snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --validation_fraction 0 %s", path_of("t.tsv"),
                 path_of("tokens"), cases[i].more);
        CHECK(open_task(&c, &g, 16, "", flags) == GX_OK, "case %d: %s", (int)i, g.error.message);
        CHECK(c.problem == cases[i].problem && c.outputs == cases[i].outputs && c.head.labels == c.outputs,
              "case %d: %s, %d outputs", (int)i, gx_problem_name(c.problem), c.outputs);
        gx_classification.data.close(&c);
    }
}

// "several": in a table between commas, in JSON lines as a list.
TEST(lists_of_labels_in_json_lines_are_those_of_the_table)
{
    static const char json[] = "{\"text\": \"good\", \"label\": [\"b\", \"two words\"]}\n"
                               "{\"text\": \"bad\", \"label\": []}\n{\"text\": \"fine\", \"label\": [\"b\"]}\n";
    static const unsigned char expected[] = {1, 1, 0, 0, 1, 0};
    GxContext g;
    GxClassification c;
    char flags[900];
    write_file("t.tsv", "text\tlabel\ngood\tb, two words\nbad\t\nfine\tb\n");
    write_file("t.jsonl", json);
    for (int is_json = 0; is_json < 2; is_json++) {
        snprintf(flags, sizeof flags,
                 "--train_data %s --tokenizer %s --validation_fraction 0 --problem_type multi_label_classification",
                 path_of(is_json ? "t.jsonl" : "t.tsv"), path_of("tokens"));
        if (!CHECK(open_task(&c, &g, 16, "", flags) == GX_OK, "%s", g.error.message)) continue;
        CHECK(c.outputs == 2 && !strcmp(c.labels.name[1], "two words") && !memcmp(c.train.has, expected, 6),
              "%d labels", c.outputs);
        gx_classification.data.close(&c);
    }
    write_file("null.jsonl", "{\"text\": \"good\", \"label\": [\"b\"]}\n{\"text\": \"bad\", \"label\": null}\n");
    snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --problem_type multi_label_classification",
             path_of("null.jsonl"), path_of("tokens"));
    CHECK(open_task(&c, &g, 16, "", flags) != GX_OK &&
              strstr(g.error.message, "null.jsonl:2: \"label\" is null, so there is no label; expected a string, or a "
                                      "list (if there are no labels: [])"),
          "%s", g.error.message);
    gx_classification.data.close(&c);
    snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s", path_of("t.jsonl"), path_of("tokens"));
    CHECK(open_task(&c, &g, 16, "", flags) != GX_OK &&
              strstr(g.error.message, "t.jsonl:1: \"label\" is an array; expected a string or a number; to give a text "
                                      "several labels, use --problem_type multi_label_classification"),
          "%s", g.error.message);
    gx_classification.data.close(&c);
}

TEST(metrics_are_known_before_there_is_a_validation)
{
    static const struct {
        const char *text, *more, *names;
    } cases[] = {
        {"text\tlabel\ngood\ta\nbad\tb\n", "", "loss accuracy f1 matthews_correlation "},
        {"g\ttext\tlabel\nx\tgood\ta\nx\tbad\tb\n", "--group_column g",
         "loss accuracy f1 matthews_correlation mrr ndcg "},
        {"g\ttext\tlabel\nx\tgood\ta\nx\tbad\tb\nx\tfine\tc\n", "--group_column g",
         "loss accuracy f1 matthews_correlation "},
        {"text\tlabel\ngood\ta\nbad\tb\n", "--problem_type multi_label_classification",
         "loss f1_micro f1_macro accuracy "},
        {"g\ttext\tlabel\nx\tgood\t1.5\nx\tbad\t2\n", "--group_column g", "loss mse pearson spearmanr mrr ndcg "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxClassification c;
        GxContext g;
        GxMetric metric[GX_MAX_METRICS];
        char flags[900], names[200] = "";
        write_file("t.tsv", cases[i].text);
        snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --validation_fraction 0 %s", path_of("t.tsv"),
                 path_of("tokens"), cases[i].more);
        if (!CHECK(open_task(&c, &g, 16, "", flags) == GX_OK, "%s", g.error.message)) continue;
        const int n = gx_classification.metrics.compute(&g, &c, NULL, metric);
        for (int m = 0; m < n; m++)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", metric[m].name);
        CHECK(!strcmp(names, cases[i].names), "%s, expected %s", names, cases[i].names);
        gx_classification.data.close(&c);
    }
}

// ---- runs ----------------------------------------------------------------------------------------------------------

// Exit status of a tiny model's run in folder/<name>.
static int run(const char *name, const char *more)
{
    char line[6000];
    const char *sizes = family == &gx_bert ? "--max_position_embeddings 64" : "--num_key_value_heads 1";
    snprintf(
        line, sizeof line,
        "--output_dir %s/%s --seq_len 32 --threads 1 --lr_scheduler_type constant --warmup_steps 0 --weight_decay 0 "
        "--learning_rate 0.01 %s %s",
        folder, name,
        strstr(more, "--model ") || strstr(more, "--resume ")
            ? ""
            : "--hidden_size 16 --intermediate_size 16 --num_hidden_layers 1 --num_attention_heads 2",
        more);
    if (!strstr(more, "--model ") && !strstr(more, "--resume ")) {
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s", sizes);
        if (!strstr(more, "--vocab_size "))
            snprintf(line + strlen(line), sizeof line - strlen(line), " --vocab_size %d --tokenizer %s", VOCAB,
                     path_of("tokens"));
    }
    return run_line(family, &gx_classification, line);
}

// The longest chain of roundings behind a loss: a sum per matrix product and norm, the attention's keys; the texts.
static double depth(void) { return 2 * (4 * 16 + 16 + 16 + 8 + 32 + 16) + 100; }

static void train_yes_and_no(void)
{
    static int done;
    char flags[900];
    if (done++) return;
    write_corpus("train.tsv", 0, 300, 3);
    write_corpus("validation.tsv", 0, 101, 4);
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 4 --max_steps 20 --eval_steps 10",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("class", flags) == 0, "%s", said.log);
}

TEST(a_bert_learns_one_label_of_several_and_says_how_well)
{
    static const char *const lines[] = {"300 texts to train on",
                                        "101 held out",
                                        "one of 2 labels (no, yes)",
                                        "always the most frequent label: accuracy ",
                                        " | accuracy ",
                                        " | f1 ",
                                        "matthews ",
                                        " over 101 labels\n",
                                        "truth ↓ as →",
                                        "predicted ",
                                        "; it is "};
    train_yes_and_no();
    CHECK(said.log[0] == 0, "%s", said.log);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(said.out, lines[i]), "no \"%s\" in: %s", lines[i], said.out);
    CHECK(metric("accuracy") == 1 && metric("f1") == 1 && fabs(metric("matthews_correlation") - 1) < 1e-12 &&
              told.count == 101,
          "accuracy %g, f1 %g, matthews %g", metric("accuracy"), metric("f1"), metric("matthews_correlation"));
    char *log = read_file(path_of("class/log.jsonl")), *config = read_file(path_of("class/checkpoint-20/config.json"));
    CHECK(strstr(log, "\"eval_accuracy\": 1") && strstr(log, "\"eval_matthews_correlation\": ") &&
              strstr(log, "\"eval_labels\": 101, \"epoch\": 0.8889}") && strstr(log, "{\"majority_accuracy\": "),
          "%s", log);
    CHECK(strstr(config, "\"1\": \"yes\"") && strstr(config, "\"problem_type\": \"single_label_classification\""), "%s",
          config);
    CHECK(is_there(path_of("class/confusion.svg")) && is_there(path_of("class/checkpoint-20/tokenizer.json")), "files");
    free(log), free(config);
}

// The loss of a model that has learned nothing is checked by hand: log 2 per text.
TEST(metrics_depend_on_neither_packing_nor_batches_nor_ranks_nor_modes)
{
    static const char *const ways[] = {"--micro_batch_size 4",
                                       "--micro_batch_size 4 --pack_texts false",
                                       "--micro_batch_size 7",
                                       "--micro_batch_size 2 --ranks 3",
                                       "--dp_batch_size_list 3,1,2 --ranks 3",
                                       "--micro_batch_size 5 --ranks 3 --pack_texts false",
                                       "--micro_batch_size 4 --ranks 2 --mode tp",
                                       "--micro_batch_size 4 --ranks 2 --mode sp",
                                       "--micro_batch_size 4 --ranks 2 --mode galaxy"};
    char flags[1200];
    GxMetric first[GX_MAX_METRICS];
    train_yes_and_no();
    // a model in the making, so that metrics are neither 0 nor 1
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --micro_batch_size 1 --max_steps 3",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("young", flags) == 0, "%s", said.log);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        snprintf(flags, sizeof flags, "--model %s --evaluate true --validation_data %s %s",
                 path_of("young/checkpoint-3"), path_of("validation.tsv"), ways[w]);
        if (!CHECK(run("none", flags) == 0 && told.metrics == 4, "%s: %s", ways[w], said.log)) continue;
        if (w == 0) memcpy(first, told.metric, sizeof first);
        const float loss = (float)told.metric[0].value;
        test_close("loss", &loss, &first[0].value, 1, test_bound(depth()), 0);
        for (int m = 1; m < 4; m++)
            CHECK(told.metric[m].value == first[m].value, "%s: %s %g, %g", ways[w], first[m].name, told.metric[m].value,
                  first[m].value);
        CHECK(told.count == 101, "%s: %ld texts", ways[w], (long)told.count);
    }
    CHECK(first[1].value > 0.2 && first[1].value < 1, "accuracy %g", first[1].value);
}

TEST(several_labels_at_once_are_learned)
{
    char flags[900];
    write_corpus("several.tsv", 1, 400, 5);
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_fraction 0.2 --problem_type multi_label_classification --micro_batch_size 8 "
             "--max_steps 100 --hidden_size 32 --initializer_range 0.2 --hidden_dropout_prob 0 "
             "--attention_probs_dropout_prob 0",
             path_of("several.tsv"));
    CHECK(run("several", flags) == 0 && !said.log[0], "%s", said.log);
    CHECK(metric("f1_micro") == 1 && metric("f1_macro") == 1 && metric("accuracy") == 1, "f1 %g, %g; accuracy %g",
          metric("f1_micro"), metric("f1_macro"), metric("accuracy"));
    CHECK(strstr(said.out, "any of 2 labels (fine, sport)") && !strstr(said.out, "truth ↓"), "%s", said.out);
    // a mean over texts and labels: at first log 2 of each
    CHECK(told.count % 2 == 0 && fabs(told.window[1] - log(2.0)) < 0.1, "%ld labels, loss %g", (long)told.count,
          told.window[1]);
}

TEST(a_number_is_learned)
{
    char flags[900];
    write_corpus("number.tsv", 2, 400, 6);
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0.2 --micro_batch_size 4 --max_steps 40",
             path_of("number.tsv"));
    CHECK(run("number", flags) == 0 && !said.log[0], "%s", said.log);
    CHECK(metric("pearson") > 0.95 && metric("spearmanr") > 0.7 && metric("mse") < 0.1,
          "pearson %g, spearman %g, mse %g", metric("pearson"), metric("spearmanr"), metric("mse"));
    const float loss = (float)metric("loss");
    const double mse = metric("mse");
    test_close("the loss is the mean square error", &loss, &mse, 1, test_bound(100), 0);
    CHECK(strstr(said.out, "always the mean of the training data: mse "), "%s", said.out);
}

TEST(candidates_are_ranked_within_their_groups)
{
    char flags[900];
    write_corpus("rerank.tsv", 3, 800, 7);
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_fraction 0.2 --group_column group --micro_batch_size 4 --max_steps 30 "
             "--eval_steps 15 --max_eval_samples 4",
             path_of("rerank.tsv"));
    CHECK(run("rerank", flags) == 0 && !said.log[0], "%s", said.log);
    CHECK(metric("mrr") == 1 && metric("ndcg") == 1, "mrr %g, ndcg %g", metric("mrr"), metric("ndcg"));
    CHECK(strstr(said.out, "step    15 | validation") && !strstr(said.out, "nan"), "%s", said.out);
}

// Nothing is saved, and nothing computed.
TEST(a_metric_that_these_labels_do_not_have_is_refused_before_the_training)
{
    static const struct {
        const char *flags, *says;
    } cases[] = {
        {"--metric_for_best_model accurcy", "--metric_for_best_model is \"accurcy\"; a validation of task "
                                            "classification reports loss, accuracy, f1, matthews_correlation\n"},
        {"--metric_for_best_model eval_mrr", "is \"eval_mrr\"; a validation of task classification reports loss, "
                                             "accuracy, f1, matthews_correlation; mrr needs --group_column"},
        {"--metric_for_best_model pearson", "; pearson is of --problem_type regression\n"},
        {"--metric_for_best_model f1_micro --ranks 2", "; f1_micro is of --problem_type multi_label_classification\n"},
        {"--metric_for_best_model accuracy --problem_type regression --train_data @number.tsv",
         "reports loss, mse, pearson, spearmanr; accuracy is of --problem_type single_label_classification\n"},
        {"--metric_for_best_model mrr --group_column text --labels no,yes,maybe", "; mrr needs two labels"},
        {"--label_smoothing_factor 0.1", "--label_smoothing_factor 0.1 is for the loss of tokens, but task "
                                         "classification has a loss of labels or numbers"},
    };
    char flags[1200];
    train_yes_and_no();
    write_corpus("number.tsv", 2, 400, 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *at = strdup(cases[i].flags), *file = strchr(at, '@');
        if (file) *file = 0;
        snprintf(flags, sizeof flags, "--train_data %s --max_steps 4 --eval_steps 2 %s%s%s", path_of("train.tsv"), at,
                 file ? path_of("") : "", file ? file + 1 : "");
        CHECK(run("refused", flags) == 1 && strstr(said.log, cases[i].says), "%s: %s", flags, said.log);
        CHECK(!is_there(path_of("refused")) && !said.out[0], "%s: %s", flags, said.out);
        free(at);
    }
}

// A correlation with what is always the same is no number: it ends nothing.
TEST(a_metric_that_is_not_defined_ends_no_run)
{
    char flags[1200], text[4000] = "text\tlabel\n";
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s film %s\t1.5\n", words[i % 11], words[i % 7]);
    write_file("constant.tsv", text);
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_fraction 0.3 --max_steps 6 --eval_steps 2 --metric_for_best_model pearson "
             "--load_best_model_at_end true --early_stopping_patience 1",
             path_of("constant.tsv"));
    CHECK(run("constant", flags) == 0 &&
              strstr(said.log, "no validation could be compared, because pearson was not a finite"),
          "%s", said.log);
    CHECK(strstr(said.log, "/constant/checkpoint-6\n") && is_there(path_of("constant/checkpoint-6/manifest.json")) &&
              isnan(metric("pearson")) && strstr(said.out, "done: 6 steps"),
          "%s%s", said.log, said.out);
}

TEST(groups_of_what_cannot_be_ranked_are_a_warning)
{
    char flags[1200];
    train_yes_and_no();
    write_corpus("several.tsv", 1, 40, 5);
    snprintf(flags, sizeof flags,
             "--train_data %s --max_steps 1 --group_column text --problem_type multi_label_classification",
             path_of("several.tsv"));
    CHECK(run("grouped", flags) == 0 &&
              strstr(said.log, "--group_column text keeps groups together, but their texts cannot be ranked: that "
                               "needs two labels, or numbers to predict, and here it is any of 2 labels\n"),
          "%s", said.log);
}

// As a flag, and as a list in a file: more bytes than other options may have.
TEST(a_list_of_labels_may_be_long)
{
    static char config[20000];
    GxClassification c;
    GxContext g;
    char flags[1200];
    size_t at = (size_t)snprintf(config, sizeof config, "{\"labels\": [\"yes\", \"no\"");
    for (int i = 0; i < 80; i++) at += (size_t)snprintf(config + at, sizeof config - at, ", \"%0200d\"", i);
    snprintf(config + at, sizeof config - at, "]}");
    write_file("labels.json", config);
    write_file("t.tsv", "text\tlabel\ngood\tyes\nbad\tno\n");
    snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --validation_fraction 0 --config %s",
             path_of("t.tsv"), path_of("tokens"), path_of("labels.json"));
    CHECK(open_task(&c, &g, 16, "", flags) == GX_OK && c.outputs == 82 && c.train.label[0] == 0 &&
              strlen(c.labels.name[81]) == 200,
          "%d labels, %s", c.outputs, g.error.message);
    gx_classification.data.close(&c);
}

// ---- predictions ---------------------------------------------------------------------------------------------------

// "yes yes no": the labels of a file of predictions, in its order.
static const char *labels_of(const char *path)
{
    static char labels[4000];
    char *text = read_file(path), *line = text;
    const int is_tsv = strstr(path, ".tsv") != NULL;
    size_t at = 0;
    labels[0] = 0;
    if (is_tsv) line = text + strcspn(text, "\n") + (text[0] != 0);
    for (; *line; line += strcspn(line, "\n") + 1) {
        const char *begin = is_tsv ? line : strstr(line, "\"label\":\"") + 9;
        at += (size_t)snprintf(labels + at, sizeof labels - at, "%.*s ", (int)strcspn(begin, is_tsv ? "\t" : "\""),
                               begin);
    }
    free(text);
    return labels;
}

TEST(predictions_of_a_file_come_in_its_order_with_or_without_labels_on_any_ranks)
{
    static const char *const ways[] = {"", "--ranks 3", "--ranks 2 --mode tp", "--pack_texts false",
                                       "--precision bf16"};
    char flags[1200], expected[4000] = "";
    train_yes_and_no();
    char *text = read_file(path_of("validation.tsv"));
    for (char *line = strchr(text, '\n') + 1; *line; line += strcspn(line, "\n") + 1)
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%s",
                 strncmp(line, "good", 4) ? "no " : "yes ");
    free(text);
    write_corpus("new.jsonl", 4, 0, 4); // a table by another name is not JSON
    write_corpus("new.tsv", 4, 101, 4);
    for (size_t w = 0; w < 2 * sizeof ways / sizeof *ways; w++) {
        const int is_labelled = w & 1, is_tsv = w >> 1 & 1;
        char name[40];
        snprintf(name, sizeof name, "said%d.%s", (int)w, is_tsv ? "tsv" : "jsonl");
        snprintf(flags, sizeof flags, "--model %s --predict %s --predictions %s --micro_batch_size 3 %s",
                 path_of("class/checkpoint-20"), path_of(is_labelled ? "validation.tsv" : "new.tsv"), path_of(name),
                 ways[w / 2]);
        if (!CHECK(run("none", flags) == 0, "%s: %s", flags, said.log)) continue;
        CHECK(!strcmp(labels_of(path_of(name)), expected), "%s: %s, expected %s", ways[w / 2], labels_of(path_of(name)),
              expected);
        CHECK(!strstr(said.out, "| validation loss") == !is_labelled && strstr(said.out, "saved "), "%s", said.out);
    }
    CHECK(!is_there(path_of("none")), "a folder was made");
    write_file("odd.tsv", "text\tlabel\ngood\tmaybe\n");
    snprintf(flags, sizeof flags, "--model %s --predict %s --predictions %s", path_of("class/checkpoint-20"),
             path_of("odd.tsv"), path_of("odd.jsonl"));
    CHECK(run("none", flags) == 1 && strstr(said.log, "to predict without labels, set --label_column"), "%s", said.log);
    strcat(flags, " --label_column none");
    CHECK(run("none", flags) == 0 && is_there(path_of("odd.jsonl")), "%s", said.log);
    char *first = read_file(path_of("said0.jsonl")), *table = read_file(path_of("said2.tsv"));
    CHECK(!strncmp(first, "{\"label\":\"", 10) && strstr(first, "\"score\":0.") && strstr(first, "\"scores\":{\"no\":"),
          "%s", first);
    CHECK(!strncmp(table, "label\tscore\tno\tyes\n", 19), "%s", table);
    free(first), free(table);
}

TEST(predictions_that_cannot_be_written_are_refused_before_anything_is_computed)
{
    static const struct {
        const char *predictions, *message;
    } cases[] = {{"said0.jsonl", "said0.jsonl already exists; remove it, or choose another name"},
                 {"x.csv", "its name must end with .tsv or .jsonl"},
                 {"nowhere/x.tsv", "nowhere"}};
    char flags[1200];
    train_yes_and_no();
    write_file("said0.jsonl", "mine");
    write_corpus("new.tsv", 4, 101, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(flags, sizeof flags, "--model %s --predict %s --predictions %s", path_of("class/checkpoint-20"),
                 path_of("new.tsv"), path_of(cases[i].predictions));
        CHECK(run("none", flags) == 1 && strstr(said.log, cases[i].message), "%s", said.log);
        CHECK(!said.out[0], "%s", said.out);
    }
    char *mine = read_file(path_of("said0.jsonl"));
    CHECK(!strcmp(mine, "mine"), "%s", mine);
    free(mine);
    snprintf(flags, sizeof flags, "--predict %s", path_of("new.tsv"));
    CHECK(run("none", flags) == 1 && strstr(said.log, "--predict needs a model"), "%s", said.log);
    snprintf(flags, sizeof flags, "--model %s --evaluate true --predict %s", path_of("class/checkpoint-20"),
             path_of("new.tsv"));
    CHECK(run("none", flags) == 1 && strstr(said.log, "--evaluate reads held-out samples, but --predict reads another"),
          "%s", said.log);
}

TEST(a_disk_that_takes_no_predictions_is_an_error_and_leaves_no_file)
{
    struct rlimit before, little;
    char flags[1200];
    train_yes_and_no();
    write_corpus("new.tsv", 4, 101, 4);
    snprintf(flags, sizeof flags, "--model %s --predict %s --predictions %s --ranks 2", path_of("class/checkpoint-20"),
             path_of("new.tsv"), path_of("full.tsv"));
    getrlimit(RLIMIT_FSIZE, &before);
    little = before, little.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    const int status = run("none", flags);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(status == 1 && strstr(said.log, "full.tsv") && !is_there(path_of("full.tsv")), "%d: %s", status, said.log);
    CHECK(!strstr(said.out, "saved /"), "%s", said.out);
}

// ---- a model's labels ----------------------------------------------------------------------------------------------

static void change(const char *name, const char *from, const char *to)
{
    char *text = read_file(path_of(name)), *at = strstr(text, from);
    char *changed = (char *)calloc(1, strlen(text) + strlen(to) + 1);
    if (CHECK(at, "no %s in %s", from, text)) {
        snprintf(changed, strlen(text) + strlen(to) + 1, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
        write_file(name, changed);
    }
    free(text), free(changed);
}

TEST(a_model_brings_its_labels_in_their_order)
{
    GxClassification c;
    GxContext g;
    char flags[900];
    write_file("t.tsv", "text\tlabel\ngood\tb\nbad\ta\n");
    CHECK(mkdir(path_of("model"), 0777) == 0, "no folder");
    static const char config[] =
        "{\"architectures\": [\"BertForSequenceClassification\"], \"id2label\": {\"0\": \"b\", "
        "\"1\": \"a\"}, \"problem_type\": null}";
    write_file("model/config.json", config);
    snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --validation_fraction 0", path_of("t.tsv"),
             path_of("tokens"));
    CHECK(open_task(&c, &g, 16, path_of("model"), flags) == GX_OK, "%s", g.error.message);
    CHECK(c.labels.n == 2 && !strcmp(c.labels.name[0], "b") && c.train.label[0] == 0 && c.train.label[1] == 1,
          "labels of the model");
    gx_classification.data.close(&c);
    // names that say nothing give way to as many of the data's
    change("model/config.json", "\"b\"", "\"LABEL_0\"");
    change("model/config.json", "\"a\"", "\"LABEL_1\"");
    CHECK(open_task(&c, &g, 16, path_of("model"), flags) == GX_OK, "%s", g.error.message);
    CHECK(!strcmp(c.labels.name[0], "a") && c.train.label[0] == 1, "labels of the data");
    gx_classification.data.close(&c);
    for (renews_heads = 1; renews_heads >= 0; renews_heads--) { // of another number they are others, in any case
        CHECK(open_task(&c, &g, 16, path_of("model"), flags) == GX_OK && !c.head.is_new && c.outputs == 2, "%s",
              g.error.message);
        gx_classification.data.close(&c);
        write_file("t.tsv", "text\tlabel\ngood\tb\nbad\ta\nfine\tc\n");
        const GxStatus status = open_task(&c, &g, 16, path_of("model"), flags);
        if (renews_heads) CHECK(status == GX_OK && c.head.is_new && c.outputs == 3, "%s", g.error.message);
        else
            CHECK(status != GX_OK &&
                      strstr(g.error.message, "lines 2, 3, 4); these stand for the head's outputs, which the model's "
                                              "config.json does not name; --labels a,b,c names them"),
                  "%s", g.error.message);
        gx_classification.data.close(&c);
        write_file("t.tsv", "text\tlabel\ngood\tb\nbad\ta\n");
    }
    renews_heads = 0;
    // another number of labels
    snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --validation_fraction 0 --labels a,b,c",
             path_of("t.tsv"), path_of("tokens"));
    CHECK(open_task(&c, &g, 16, path_of("model"), flags) != GX_OK &&
              strstr(g.error.message, "--labels names 3, but the model's head has 2 labels (LABEL_0, LABEL_1)"),
          "%s", g.error.message);
    gx_classification.data.close(&c);
    snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --validation_fraction 0 --problem_type regression",
             path_of("t.tsv"), path_of("tokens"));
    CHECK(open_task(&c, &g, 16, path_of("model"), flags) != GX_OK &&
              strstr(g.error.message,
                     "--problem_type is regression, but the model's head is for single_label_classification"),
          "%s", g.error.message);
    gx_classification.data.close(&c);
    change("model/config.json", "BertForSequenceClassification", "BertForMaskedLM"); // no head: its names mean nothing
    snprintf(flags, sizeof flags, "--train_data %s --tokenizer %s --validation_fraction 0 --labels b,a,c",
             path_of("t.tsv"), path_of("tokens"));
    CHECK(open_task(&c, &g, 16, path_of("model"), flags) == GX_OK && c.outputs == 3, "%s", g.error.message);
    gx_classification.data.close(&c);
}

// The same names in another order would turn the head's answers round; another kind of problem, their meaning.
TEST(a_trained_head_keeps_the_order_of_its_labels_and_its_kind)
{
    static const struct {
        const char *flags, *says;
    } bad[] = {{"--labels yes,no", "--labels has \"yes\" as number 0, but the model's head has it as number 1"},
               {"--problem_type multi_label_classification", "but the model's head is for single_label_classification"},
               {"--seq_len 2", "with [CLS] and [SEP] around it a text needs at least 3"}};
    char flags[1200];
    train_yes_and_no();
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --micro_batch_size 2 --max_steps 3",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("head", flags) == 0, "%s", said.log);
    for (int i = 0; i < 3; i++) {
        snprintf(flags, sizeof flags,
                 "--model %s --train_data %s --validation_data %s --micro_batch_size 2 --max_steps 3 %s",
                 path_of("head/checkpoint-3"), path_of("train.tsv"), path_of("validation.tsv"), bad[i].flags);
        CHECK(run("other", flags) == 1 && strstr(said.log, bad[i].says), "%s: %s", bad[i].flags, said.log);
    }
}

TEST(texts_that_the_tokenizer_does_not_know_are_said_once)
{
    char flags[700];
    write_file("unknown.tsv", "text\tlabel\nwhat who\tyes\nthe who\tno\nwhen\tyes\nwhy\tno\n");
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --tokenizer %s --max_steps 1 --pad_token_id 3",
             path_of("unknown.tsv"), path_of("unknown.tsv"), path_of("tokens"));
    CHECK(run("unknown", flags) == 0, "%s", said.log);
    const char *words = strstr(said.log, "unknown.tsv: 83% of its words are [UNK]");
    CHECK(words && !strstr(words + 30, "of its words") && strstr(said.log, "the model's pad_token_id is 3"), "%s",
          said.log);
}

TEST(a_resumed_run_goes_on_with_its_texts_and_another_list_of_labels_is_refused)
{
    char flags[1200];
    train_yes_and_no();
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --micro_batch_size 2 --max_steps 6",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("whole", flags) == 0, "%s", said.log);
    const double window = told.window[6], loss = metric("loss");
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --validation_fraction 0 --max_eval_samples -1 --micro_batch_size 2 "
             "--max_steps 3",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("cut", flags) == 0 && !said.log[0], "%s",
          said.log); // no warning: with --validation_data they count
    CHECK(run("cut", "--max_steps 6 --resume auto") == 0, "%s", said.log);
    CHECK(told.window[6] == window && metric("loss") == loss && !said.log[0],
          "%.17g, uninterrupted %.17g; %.17g, %.17g; %s", told.window[6], window, metric("loss"), loss, said.log);
    CHECK(run("cut", "--max_steps 7 --resume auto --labels yes,no") == 1 && strstr(said.log, "in the head's order"),
          "%s", said.log);
    write_corpus("train.tsv", 0, 299, 3);
    CHECK(run("cut", "--max_steps 7 --resume auto") == 1 && strstr(said.log, "(its texts differs"), "%s", said.log);
    write_corpus("train.tsv", 0, 300, 3);
}

TEST(labels_that_never_occur_in_training_are_a_warning)
{
    char flags[1200];
    train_yes_and_no();
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 2 --max_steps 1 --labels no,perhaps,yes",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("warned", flags) == 0 &&
              strstr(said.log, "1 of 3 labels never occurs in the training data, and cannot be learned: perhaps"),
          "%s", said.log);
}

TEST(classes_whose_names_are_numbers_with_a_comma_or_several_labels_are_said_to_be_classes)
{
    static const struct {
        const char *text, *words; // NULL: nothing is said
    } cases[] = {{"a film\t1,5\nb film\t-2,5\n",
                  "t.tsv: its labels, such as \"-2,5\", are taken as classes; to predict numbers"},
                 {"a film\tsport\nb film\tsport, politics\nc film\tpolitics\n",
                  "the label \"sport, politics\" is taken as one class; to give a text several labels"},
                 {"a film\tgood, really\nb film\tbad\n", NULL}};
    char text[300], flags[1200];
    train_yes_and_no();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "text\tlabel\n%s", cases[i].text);
        write_file("t.tsv", text);
        snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --micro_batch_size 2 --max_steps 1",
                 path_of("t.tsv"));
        snprintf(text, sizeof text, "commas%d", (int)i);
        CHECK(run(text, flags) == 0 && (cases[i].words ? strstr(said.log, cases[i].words) != NULL : !said.log[0]), "%s",
              said.log);
    }
}

// ---- another head --------------------------------------------------------------------------------------------------

// 1: both files have this tensor, with the same values.
static int same_tensor(const char *a, const char *b, const char *name)
{
    GxSafetensors file[2];
    GxError err = GX_ZERO;
    float value[2][4096] = {{0}};
    int64_t n[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        if (!CHECK(gx_safetensors_open(&file[i], i ? b : a, &err) == GX_OK, "%s", err.message)) return 0;
        const GxSafetensorsEntry *e = gx_safetensors_find(&file[i], name);
        n[i] = e && e->elements <= 4096 ? e->elements : 0;
        if (n[i]) gx_safetensors_read(&file[i], e, 0, n[i], value[i], &err);
        gx_safetensors_close(&file[i]);
    }
    CHECK(n[0] && n[1], "no %s", name);
    return n[0] == n[1] && !memcmp(value[0], value[1], (size_t)n[0] * sizeof **value);
}

// Steps of a learning rate of 0 leave what was begun with.
#define STILL "--micro_batch_size 2 --max_steps 2 --learning_rate 0 --ignore_mismatched_sizes true"
TEST(a_head_for_other_labels_is_new_if_that_is_asked_for_and_all_else_is_loaded)
{
    static const struct {
        const char *text, *more, *problem;
        int outputs, is_new, from_number;
    } cases[] = {
        {"text\tlabel\ngood\ta\nbad\tb\nfine\tc\n", "", "single_label_classification", 3, 1, 0},
        {"text\tlabel\ngood\tyes\nbad\tno\n", "", "single_label_classification", 2, 1, 1},
        {"text\tlabel\ngood\t1\nbad\t2\n", "", "regression", 1, 0, 1},
        {"text\tlabel\ngood\t1\nbad\t2\n", "--problem_type single_label_classification", "single_label_classification",
         2, 1, 1},
        {"text\tlabel\ngood\ta\nbad\tb\nfine\tc\n", "--ranks 2 --mode tp", "single_label_classification", 3, 1, 0},
        {"text\tlabel\ngood\tja\nbad\tnein\n", "", "single_label_classification", 2, 1, 0}, // as many, but others
        {"text\tlabel\ngood\tja\nbad\tnein\n", "--labels nein,ja", "single_label_classification", 2, 0, 0}, // new names
        {"text\tlabel\ngood\tyes\nbad\tno\n", "--labels yes,no", "single_label_classification", 2, 1,
         0}, // turned round
        {"text\tlabel\ngood\tyes\nbad\tno\n", "--labels no,perhaps,yes", "single_label_classification", 3, 1, 0},
        {"text\tlabel\ngood\tyes\nbad\tno\n", "", "single_label_classification", 2, 0, 0},
        {"text\tlabel\ngood\tyes\nbad\tno\n", "--problem_type multi_label_classification", "multi_label_classification",
         2, 1, 0},
        {"text\tlabel\ngood\t1.5\nbad\t2\n", "", "regression", 1, 1, 0},
    };
    static const char *const other[] = {"bert.embeddings.word_embeddings.weight", "bert.pooler.dense.weight",
                                        "bert.encoder.layer.0.output.dense.weight"};
    char flags[1200], name[20], made[GX_PATH], config[GX_PATH];
    train_yes_and_no();
    write_corpus("number.tsv", 2, 40, 6);
    snprintf(flags, sizeof flags, "--train_data %s --max_steps 1 --validation_fraction 0", path_of("number.tsv"));
    CHECK(run("number1", flags) == 0, "%s", said.log);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *from = cases[i].from_number ? "number1/checkpoint-1" : "class/checkpoint-20";
        write_file("t.tsv", cases[i].text);
        snprintf(name, sizeof name, "renewed%d", (int)i);
        snprintf(flags, sizeof flags, "--model %s --train_data %s --validation_fraction 0 %s " STILL, path_of(from),
                 path_of("t.tsv"), cases[i].more);
        if (!CHECK(run(name, flags) == 0, "%s: %s", flags, said.log)) continue;
        CHECK(!strstr(said.out, "(--ignore_mismatched_sizes): classifier.weight, classifier.bias\n") ==
                  !cases[i].is_new,
              "%s: %s", flags, said.out);
        snprintf(made, sizeof made, "%s/%s/checkpoint-2", folder, name);
        for (int k = 0; k < 3; k++)
            CHECK(same_tensor(path_of(from), made, other[k]), "%s: %s is another", flags, other[k]);
        CHECK(same_tensor(path_of(from), made, "classifier.weight") == !cases[i].is_new, "%s: the head", flags);
        snprintf(config, sizeof config, "%.2000s/config.json", made);
        char *text = read_file(config), last[20];
        snprintf(last, sizeof last, "\"%d\": ", cases[i].outputs - 1);
        CHECK(strstr(text, cases[i].problem) && strstr(text, last), "%s: %s", flags, text);
        free(text);
    }
}

// A run with a new head goes on as itself: the head that it has by now is its own.
TEST(a_run_with_a_new_head_goes_on_as_the_uninterrupted_one)
{
    char flags[1200];
    train_yes_and_no();
    write_file("t.tsv", "text\tlabel\ngood\ta\nbad\tb\nfine\tc\nit was\ta\n");
    snprintf(flags, sizeof flags,
             "--model %s --train_data %s --validation_fraction 0 --micro_batch_size 2 --ignore_mismatched_sizes true "
             "--max_steps 4",
             path_of("class/checkpoint-20"), path_of("t.tsv"));
    CHECK(run("uncut", flags) == 0, "%s", said.log);
    const double window = told.window[4];
    flags[strlen(flags) - 1] = '2';
    CHECK(run("cut_new", flags) == 0, "%s", said.log);
    CHECK(run("cut_new", "--resume auto --max_steps 4") == 0 && told.window[4] == window, "%s%g, uninterrupted %g",
          said.log, told.window[4], window);
    CHECK(run("cut_new", "--resume auto --max_steps 5 --labels c,b,a") == 1 &&
              strstr(said.log, "(id2label in its config.json)\n"),
          "%s", said.log);
}

static int predict_again(const char *name, const char *flags)
{
    char line[1600];
    unlink(path_of("predictions.jsonl"));
    snprintf(line, sizeof line, "%s --predictions %s", flags, path_of("predictions.jsonl"));
    return run(name, line);
}

TEST(names_that_are_a_guess_and_a_column_that_is_not_read_are_said)
{
    static const char guess[] =
        "does not name its head's 2 outputs: the sorted labels of the data are taken for them in this order, which is "
        "a guess (LABEL_0 is \"bad\", LABEL_1 is \"good\"); to say which is which, give --labels a,b,c";
    char line[2000], flags[1200];
    train_yes_and_no();
    snprintf(line, sizeof line,
             "cd %s && cp -r class/checkpoint-20 unnamed && rm unnamed/manifest.json && "
             "sed -i 's/\"no\"/\"LABEL_0\"/;s/\"yes\"/\"LABEL_1\"/' unnamed/config.json",
             folder);
    CHECK(system(line) == 0, "%s", line);
    write_file("t.tsv", "text\tlabel\ngood\tgood\nbad\tbad\n");
    snprintf(flags, sizeof flags, "--model %s --predict %s", path_of("unnamed"), path_of("t.tsv"));
    CHECK(predict_again("guessed", flags) == 0 && strstr(said.log, guess), "%s", said.log);
    strcat(flags, " --labels good,bad");
    CHECK(predict_again("named", flags) == 0 && !strstr(said.log, "a guess"), "%s", said.log);
    write_file("t.tsv", "text\tlabel\ngood\t1\nbad\t0\n"); // the outputs' numbers are no guess
    snprintf(flags, sizeof flags, "--model %s --predict %s", path_of("unnamed"), path_of("t.tsv"));
    CHECK(predict_again("numbered", flags) == 0 && !strstr(said.log, "a guess"), "%s", said.log);
    // transformers' name of a second text
    static const char *const files[][2] = {
        {"t.tsv", "text\tlabel\ttext_pair\ngood\t1\tbad\nbad\t0\tgood\n"},
        {"t.jsonl", "{\"text\": \"good\", \"label\": 1, \"text_pair\": \"a\"}\n{\"text\": \"bad\", \"label\": 0, "
                    "\"text_pair\": \"b\"}\n"}};
    for (int i = 0; i < 2; i++) {
        write_file(files[i][0], files[i][1]);
        snprintf(flags, sizeof flags, "--model %s --predict %s", path_of("unnamed"), path_of(files[i][0]));
        CHECK(predict_again("unread", flags) == 0 &&
                  strstr(said.log, "its column \"text_pair\" is not read; if it is the second text of a pair, say "
                                   "--text2_column text_pair"),
              "%s: %s", files[i][0], said.log);
        strcat(flags, " --text2_column text_pair");
        CHECK(predict_again("read", flags) == 0 && !strstr(said.log, "is not read"), "%s: %s", files[i][0], said.log);
    }
}

TEST(a_head_for_other_labels_is_refused_with_what_can_be_done)
{
    static const struct {
        const char *model, *text, *more, *says;
    } cases[] = {
        {"class/checkpoint-20", "good\ta\nbad\tb\nfine\tc\n", "",
         "t.tsv:2: the label \"a\" is not one of the 2 known labels: no, yes (3 of the records in lines 2 to 4 are "
         "wrong: lines 2, 3, 4); these are the head's (id2label in the model's config.json); --labels a,b,c renames "
         "them (there must be as many), and --ignore_mismatched_sizes true"},
        {"class/checkpoint-20", "good\ta\nbad\tb\n", "--evaluate true", "(id2label in the model's config.json)\n"},
        {"class/checkpoint-20", "good\ta\nbad\tb\nfine\tc\n", "--labels a,b,c",
         "or train a new head with --ignore_mismatched_sizes true"},
        {"class/checkpoint-20", "good\t1\nbad\t2\n", "--problem_type regression",
         "the model's head is for single_label_classification: leave it out, or train a new head with --ignore_mis"},
        {"regression/checkpoint-1", "good\tyes\nbad\tno\n", "",
         "t.tsv:2: \"label\" is \"yes\"; expected a number such as 3 or -0.5 (2 of the records in lines 2 to 3 are "
         "wrong: lines 2, 3); the model's config.json asks for a regression (by problem_type, or by one label in "
         "id2label); --problem_type single_label_classification --ignore_mismatched_sizes true trains a new head"},
        {"class/checkpoint-20", "good\tyes\nbad\tno\n", "--task masked_lm --ignore_mismatched_sizes true",
         "--ignore_mismatched_sizes needs a head for labels, which task masked_lm does not have"},
    };
    char flags[1200], text[200];
    train_yes_and_no();
    write_corpus("number.tsv", 2, 40, 6);
    snprintf(flags, sizeof flags, "--train_data %s --max_steps 1 --validation_fraction 0", path_of("number.tsv"));
    CHECK(run("regression", flags) == 0, "%s", said.log);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int is_masked = strstr(cases[i].more, "masked_lm") != NULL;
        snprintf(text, sizeof text, "text\tlabel\n%s", cases[i].text);
        write_file("t.tsv", text), write_file("t.txt", text);
        snprintf(flags, sizeof flags, "--model %s --train_data %s --validation_fraction 0 %s%s %s",
                 path_of(cases[i].model), path_of(is_masked ? "t.txt" : "t.tsv"), is_masked ? "" : "--validation_data ",
                 is_masked ? "" : path_of("t.tsv"), cases[i].more);
        CHECK(run("none", flags) == 1 && strstr(said.log, cases[i].says), "%s: %s", flags, said.log);
        CHECK(!is_there(path_of("none")), "%s: it was begun", flags);
    }
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --ranks 2 --cp 2", path_of("number.tsv"));
    CHECK(run("none", flags) == 1 && strstr(said.log, "--cp 2 divides sequences among ranks, but task "
                                                      "classification needs whole texts on each"),
          "%s", said.log);
    CHECK(run("none", "--ignore_mismatched_sizes true") == 1 &&
              strstr(said.log, "--ignore_mismatched_sizes is for the head of --model, which is not given"),
          "%s", said.log);
    snprintf(flags, sizeof flags, "--task masked_lm --train_data %s --labels a,b", path_of("t.tsv"));
    CHECK(run("none", flags) == 1 && strstr(said.log, "no option --labels for this task; it belongs to --task "
                                                      "classification or --task token_classification: choose that"),
          "%s", said.log);
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --classifier_dropout ", path_of("t.tsv"));
    strcat(flags, "-0.5");
    CHECK(run("none", flags) == 1 && strstr(said.log, "classifier_dropout is -0.5"), "%s", said.log);
    strcpy(strstr(flags, "-0.5"), "1");
    CHECK(run("none", flags) == 1 && strstr(said.log, "classifier_dropout is 1"), "%s", said.log);
}

// ---- a LLaMA -------------------------------------------------------------------------------------------------------

TEST(a_llama_labels_texts_from_their_last_token_and_goes_on_from_its_own_checkpoint)
{
    static const char *const ways[] = {"--micro_batch_size 4", "--micro_batch_size 3 --pack_texts false --ranks 2"};
    char flags[1200];
    double accuracy = NAN;
    train_yes_and_no();
    family = &gx_llama;
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --micro_batch_size 4 --max_steps 30",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("llama", flags) == 0 && !said.log[0], "%s", said.log);
    CHECK(metric("accuracy") > 0.9, "accuracy %g", metric("accuracy"));
    accuracy = metric("accuracy");
    for (int w = 0; w < 2; w++) {
        snprintf(flags, sizeof flags, "--model %s --evaluate true --validation_data %s %s",
                 path_of("llama/checkpoint-30"), path_of("validation.tsv"), ways[w]);
        CHECK(run("none", flags) == 0 && metric("accuracy") == accuracy, "%s: %g, %g", said.log, metric("accuracy"),
              accuracy);
    }
    write_file("t.tsv", "text\tlabel\ngood\ta\nbad\tb\nfine\tc\n");
    snprintf(flags, sizeof flags, "--model %s --train_data %s --validation_fraction 0 " STILL,
             path_of("llama/checkpoint-30"), path_of("t.tsv"));
    CHECK(run("llama_new", flags) == 0 && strstr(said.out, "(--ignore_mismatched_sizes): score.weight\n"), "%s%s",
          said.log, said.out);
    CHECK(same_tensor(path_of("llama/checkpoint-30"), path_of("llama_new/checkpoint-2"), "model.norm.weight") &&
              !same_tensor(path_of("llama/checkpoint-30"), path_of("llama_new/checkpoint-2"), "score.weight"),
          "%s", said.out);
    family = &gx_bert;
}

// A pair is one text with a newline before the second; [CLS] and [SEP] are not there.
TEST(without_a_tokenizer_tokens_are_bytes_and_a_text_has_no_frame)
{
    GxClassification c;
    GxContext g;
    char flags[1200];
    write_file("bytes.tsv", "text\ttext2\tlabel\nab\tc\tyes\nabcdef\tghi\tno\n");
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0", path_of("bytes.tsv"));
    if (!CHECK(open_task(&c, &g, 6, "", flags) == GX_OK, "%s", g.error.message)) return;
    CHECK(c.train.length[0] == 4 && c.train.second[0] == 2 && c.train.ids[0][0] == 'a' && c.train.ids[0][2] == '\n' &&
              c.train.ids[0][3] == 'c',
          "ab, newline, c");
    CHECK(c.train.length[1] == 6 && c.train.second[1] == 3 && c.train.ids[1][2] == 'c' && c.train.ids[1][3] == '\n' &&
              c.train.ids[1][5] == 'h',
          "abc, newline, gh: %d tokens, %d", c.train.length[1], c.train.second[1]);
    gx_classification.data.close(&c);
    train_yes_and_no();
    family = &gx_llama;
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 4 --max_steps 4 --vocab_size 256 --seq_len 40",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("bytes", flags) == 0 && strstr(said.out, "tokens: byte-256") &&
              strstr(said.out, "have more than 40 tokens"),
          "%s%s", said.log, said.out);
    snprintf(flags, sizeof flags, "--model %s --evaluate true --validation_data %s --seq_len 40",
             path_of("bytes/checkpoint-4"), path_of("validation.tsv"));
    const double loss = metric("loss");
    CHECK(run("none", flags) == 0 && fabs(metric("loss") - loss) <= test_bound(depth()) * loss, "%s%g, %g", said.log,
          metric("loss"), loss);
    family = &gx_bert;
}

// ---- predictions by hand, baselines --------------------------------------------------------------------------------

TEST(metrics_of_outputs_by_hand_and_of_outputs_that_are_not_finite)
{
    static const float logits[5][2] = {{1, 0}, {0, 1}, {2, 3}, {1, 3}, {9, 9}};
    GxClassification c;
    GxContext g;
    GxMetric m[GX_MAX_METRICS];
    char flags[900];
    write_file("t.tsv", "text\tlabel\ngood\ta\nbad\ta\nfine\tb\nfilm\tb\nplot\tb\n");
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --tokenizer %s", path_of("t.tsv"),
             path_of("t.tsv"), path_of("tokens"));
    if (!CHECK(open_task(&c, &g, 16, "", flags) == GX_OK, "%s", g.error.message)) return;
    gx_predictions_begin(&c.predicted);
    for (int i = 0; i < 4; i++) gx_predictions_put(&c.predicted, i, logits[i]); // the fifth is not known
    CHECK(gx_predictions_metrics(&c.predicted, m, &g.error) == 3, "%s", g.error.message);
    // truth a a b b, said a b b b: F1 of a 2/3, of b 4/5; Matthews (3*4 - 2*1 - 2*3) / sqrt((16 - 8) (16 - 10))
    CHECK(!strcmp(m[0].name, "accuracy") && m[0].value == 0.75 && fabs(m[1].value - 11 / 15.0) < 1e-12 &&
              fabs(m[2].value - 4 / sqrt(48)) < 1e-12,
          "%g %g %g", m[0].value, m[1].value, m[2].value);
    CHECK(m[0].better == 1 && m[1].better == 1 && m[2].better == 1, "more is better");
    const float sick[2] = {NAN, 0};
    gx_predictions_put(&c.predicted, 2, sick);
    CHECK(gx_predictions_metrics(&c.predicted, m, &g.error) == 3 && isnan(m[0].value) && isnan(m[2].value) &&
              !gx_failed(&g),
          "%g, %s", m[0].value, g.error.message);
    GxError err = GX_ZERO;
    CHECK(gx_predictions_write(&c.predicted, path_of("sick.tsv"), &err) != GX_OK &&
              strstr(err.message, "t.tsv:4: the model's output for this text is nan") && !is_there(path_of("sick.tsv")),
          "%s", err.message);
    gx_classification.data.close(&c);
}

TEST(rankings_are_means_over_groups_that_are_wholly_known)
{
    static const float logits[6][2] = {{0, 2}, {0, 5}, {0, 1}, {0, 0}, {0, 0}, {3, 0}};
    GxClassification c;
    GxContext g;
    GxMetric m[GX_MAX_METRICS];
    char flags[900];
    // group a: the sought one is the second; b: the first; nothing is sought in c
    write_file("t.tsv", "group\ttext\tlabel\na\tgood\t0\nb\tfilm\t1\na\tbad\t1\nc\tit\t0\na\tfine\t0\n"
                        "b\tplot\t0\n");
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --tokenizer %s --group_column group",
             path_of("t.tsv"), path_of("t.tsv"), path_of("tokens"));
    if (!CHECK(open_task(&c, &g, 16, "", flags) == GX_OK, "%s", g.error.message)) return;
    int torn = -2; // of three groups, of three, two and one texts, each is in one piece
    for (int64_t i = 1; i < 6; i++) torn += c.predicted.group[c.order[i]] != c.predicted.group[c.order[i - 1]];
    CHECK(torn == 0, "%d pieces too many", torn);
    gx_predictions_begin(&c.predicted);
    for (int i = 0; i < 6; i++)
        if (i != 5) gx_predictions_put(&c.predicted, i, logits[i]);
    CHECK(gx_predictions_metrics(&c.predicted, m, &g.error) == 5 && !strcmp(m[3].name, "mrr"), "%s", g.error.message);
    CHECK(m[3].value == 0.5 && fabs(m[4].value - 1 / log2(3)) < 1e-12, "a alone: %g, %g", m[3].value, m[4].value);
    gx_predictions_put(&c.predicted, 5, logits[5]);
    gx_predictions_metrics(&c.predicted, m, &g.error);
    const double both[2] = {m[3].value, m[4].value};
    gx_predictions_begin(&c.predicted); // of the validation before nothing is known any more
    gx_predictions_metrics(&c.predicted, m, &g.error);
    CHECK(isnan(m[0].value) && isnan(m[3].value), "accuracy %g, mrr %g of nothing", m[0].value, m[3].value);
    m[3].value = both[0], m[4].value = both[1];
    CHECK(m[3].value == 0.75 && fabs(m[4].value - (1 + 1 / log2(3)) / 2) < 1e-12, "a and b: %g, %g", m[3].value,
          m[4].value);
    gx_classification.data.close(&c);
}

TEST(baselines_are_the_most_frequent_label_and_a_regression_on_tokens)
{
    GxClassification c;
    GxContext g;
    GxMetric m[GX_MAX_METRICS];
    char flags[900];
    train_yes_and_no();
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --tokenizer %s --baseline_regression true",
             path_of("train.tsv"), path_of("validation.tsv"), path_of("tokens"));
    if (!CHECK(open_task(&c, &g, 32, "", flags) == GX_OK, "%s", g.error.message)) return;
    memset(m, 0, sizeof m);
    CHECK(gx_classification.metrics.baseline(&c, m, &g.error) == GX_OK, "%s", g.error.message);
    const int best = c.train.count[1] > c.train.count[0];
    int right = 0;
    for (int64_t i = 0; i < c.held_out.n; i++) right += c.held_out.label[i] == best;
    CHECK(!strcmp(m[0].name, "majority_accuracy") && m[0].value == right / 101.0, "%g", m[0].value);
    CHECK(!strcmp(m[1].name, "regression_accuracy") && m[1].value == 1 && !m[2].name, "%g", m[1].value);
    // labels that have nothing to do with the words
    for (int64_t i = 0; i < c.train.n; i++) c.train.label[i] = (int32_t)(gx_philox(1, (uint64_t)i, 0, 5).w[0] % 2);
    CHECK(gx_classification.metrics.baseline(&c, m, &g.error) == GX_OK && fabs(m[1].value - 0.5) < 0.45, "%g",
          m[1].value);
    gx_classification.data.close(&c);
}

TEST(a_plan_counts_what_a_run_takes)
{
    char flags[1200];
    train_yes_and_no();
    for (int r = 1; r <= 3; r++) { // a warning says where it does not
        snprintf(flags, sizeof flags,
                 "--train_data %s --validation_data %s --micro_batch_size 2 --max_steps 2 --ranks %d "
                 "--precision %s --overwrite_output_dir true",
                 path_of("train.tsv"), path_of("validation.tsv"), r, r == 2 ? "bf16" : "fp32");
        CHECK(run("plan", flags) == 0 && !said.log[0], "%d ranks: %s", r, said.log);
    }
    // more outputs to gather than a step has activations
    size_t at = (size_t)snprintf(flags, sizeof flags,
                                 "--train_data %s --validation_data %s --micro_batch_size 1 "
                                 "--max_steps 1 --ranks 2 --seq_len 16 --labels no,yes",
                                 path_of("train.tsv"), path_of("train.tsv"));
    for (int l = 0; l < 60; l++) at += (size_t)snprintf(flags + at, sizeof flags - at, ",%d", l);
    CHECK(run("many", flags) == 0, "%s", said.log);
    CHECK(run("dry", "--dry_run true --train_data /nowhere/x.tsv") == 0 && !said.log[0], "%s", said.log);
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_tokenizer); }
