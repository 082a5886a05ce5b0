// test_embedding.cu: vectors of texts (task/embedding.h): what a batch holds, by hand; training and metrics that depend
// on neither batches nor ranks nor modes; vectors in a file; what others read of a checkpoint; what is refused, and
// how.
#define GX_NO_MAIN
#include "train_bert.cu"
#include "test/task_run.h"

// ---- files ---------------------------------------------------------------------------------------------------------

// ids: 5 red, 6 blue, ... topics; then words around them
enum { TOPICS = 12, FIRST_TOPIC = FIRST_WORD, AROUND = FIRST_TOPIC + TOPICS, WORDS = 6, VOCAB = AROUND + WORDS };
static const char *const around[WORDS] = {"where", "is", "here", "grows", "some", "much"};

static void write_tokenizer(void)
{
    char vocab[400] = "";
    for (int i = 0; i < TOPICS; i++) snprintf(vocab + strlen(vocab), sizeof vocab - strlen(vocab), "t%c\n", 'a' + i);
    for (int i = 0; i < WORDS; i++) snprintf(vocab + strlen(vocab), sizeof vocab - strlen(vocab), "%s\n", around[i]);
    write_vocab(vocab);
}

// Records i of n: topic, by its number; texts of different lengths. kind: 2: pairs, 3: with negatives, 1: one text.
static void write_corpus(const char *name, int kind, int n, int seed)
{
    static char text[1 << 18];
    static const char *const header[] = {"", "text\n", "anchor\tpositive\n", "anchor\tpositive\tnegative\n"};
    size_t at = (size_t)snprintf(text, sizeof text, "%s", header[kind]);
    for (int i = 0; i < n; i++) {
        const GxRandom4 r = gx_philox((uint64_t)seed, (uint64_t)i, 0, 77);
        const int topic = (int)(r.w[0] % TOPICS), other = (topic + 1 + (int)(r.w[1] % (TOPICS - 1))) % TOPICS,
                  longer = r.w[2] % 2, first = (int)(r.w[2] / 2 % WORDS), second = (int)(r.w[3] % WORDS);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s t%c%s", around[first], 'a' + topic,
                               longer ? " is here" : "");
        if (kind > 1) at += (size_t)snprintf(text + at, sizeof text - at, "\tsome t%c %s", 'a' + topic, around[second]);
        if (kind > 2) at += (size_t)snprintf(text + at, sizeof text - at, "\tmuch t%c", 'a' + other);
        at += (size_t)snprintf(text + at, sizeof text - at, "\n");
    }
    write_file(name, text);
}

// ---- the task alone ------------------------------------------------------------------------------------------------

static GxStatus open_task(GxEmbeddingTask *c, GxContext *g, int64_t T, const char *model, const char *flags)
{
    char line[4 * GX_PATH], *argv[40] = {(char *)"task"};
    int argc = 1;
    GxConfig config;
    GxTaskSetup setup = GX_ZERO;
    memset(c, 0, sizeof *c), memset(g, 0, sizeof *g);
    g->device = gx_device_cpu(), g->world = 1, g->threads = 2;
    setup.vocab = 1000, setup.seq_len = T, setup.model = model, setup.samples = 2, setup.all_samples = 6;
    snprintf(line, sizeof line, "%s --tokenizer %s", flags, path_of("tokens"));
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    gx_config_open(&config);
    GX_TRY(gx_config_add(&config, "task", gx_embedding_task.options.fields, gx_embedding_task.options.n_fields, c,
                         &g->error));
    GX_TRY(gx_config_read_args(&config, argc, argv, &g->error));
    return gx_embedding_task.data.open(g, c, &setup);
}

static GxBatch lay(const GxEmbeddingTask *c, int64_t T, int64_t B, int64_t first, char **block)
{
    GxBatch b = GX_ZERO;
    b.T = T, b.B = B, b.sample = first;
    *block = (char *)calloc(1, (size_t)gx_embedding_task.batch.layout(c, &b, NULL, NULL));
    gx_embedding_task.batch.layout(c, &b, *block, *block);
    return b;
}

// "2 5 3": the tokens of part i.
static const char *part_text(const GxBatch *b, int64_t i)
{
    static char text[400];
    const int32_t *part = b->target[0].parts_host + 3 * i;
    size_t at = 0;
    text[0] = 0;
    for (int32_t t = part[1]; t < part[2]; t++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", at ? " " : "", b->tokens[t * b->B + part[0]]);
    return text;
}

TEST(a_batch_holds_anchors_then_positives_then_negatives_as_parts_of_its_columns)
{
    enum { T = 24 };
    GxEmbeddingTask c;
    GxContext g;
    char *block, flags[900];
    int64_t count[GX_MAX_LOSSES] = {0};
    write_file("by_hand.tsv", "negative\tanchor\tpositive\nmuch tc\twhere ta\tsome ta\n");
    for (int cls = 0; cls < 2; cls++) {
        const char *const expected[2][3] = {{"2 17 5 3", "2 21 5 3", "2 22 7 3"}, {"2", "2", "2"}};
        snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --pooling %s", path_of("by_hand.tsv"),
                 cls ? "cls" : "mean");
        if (!CHECK(open_task(&c, &g, T, "", flags) == GX_OK, "%s", g.error.message)) return;
        GxBatch b = lay(&c, T, 2, 0, &block);
        const GxTarget *t = &b.target[0];
        CHECK(t->n == 2 * 3 && t->anchors == 2 && t->candidates == 2 * 6, "planned %ld, %ld, %ld", (long)t->n,
              (long)t->anchors, (long)t->candidates);
        CHECK(gx_embedding_task.batch.fill(&g, &c, &b, block, 5, &g.error) == GX_OK, "%s", g.error.message);
        CHECK(t->n == 6 && t->anchors == 2 && !t->rows && !t->labels, "%ld texts, %ld anchors", (long)t->n,
              (long)t->anchors);
        for (int64_t i = 0; i < 6; i++) { // the one record is in both columns
            const int32_t *part = t->parts_host + 3 * i;
            CHECK(part[0] == i % 2 && part[1] == 4 * (i / 2), "part %ld: column %d, from %d on", (long)i, part[0],
                  part[1]);
            CHECK(!strcmp(part_text(&b, i), expected[cls][i / 2]), "part %ld: %s", (long)i, part_text(&b, i));
            CHECK(b.positions[part[1] * 2 + part[0]] == 0 && b.documents[2 * (part[1] * 2 + part[0])] == part[1] &&
                      b.documents[2 * (part[1] * 2 + part[0]) + 1] == part[1] + 4,
                  "part %ld is no text of its own", (long)i);
        }
        CHECK(b.documents[2 * (12 * 2)] == b.documents[2 * (12 * 2) + 1], "padding is seen");
        gx_embedding_task.batch.counts(&c, &b, count);
        CHECK(count[0] == 2 * (cls + 1), "%ld counted", (long)count[0]);
        gx_embedding_task.data.close(&c);
        free(block);
    }
}

TEST(names_of_special_tokens_in_a_text_are_tokens_unless_they_are_split)
{
    GxEmbeddingTask c;
    GxContext g;
    char flags[900];
    write_file("names.tsv", "anchor\tpositive\nta [SEP] is[MASK]\ttb\nta\ttc\n");
    for (int splits = 0; splits < 2; splits++) {
        snprintf(flags, sizeof flags, "--validation_fraction 0 --train_data %s%s", path_of("names.tsv"),
                 splits ? " --split_special_tokens true" : "");
        if (!CHECK(open_task(&c, &g, 24, "", flags) == GX_OK, "%s", g.error.message)) return;
        const int32_t *ids = c.train.text[0].ids[0], tokens[] = {2, 5, 3, 18, 4, 3};
        const int64_t n = c.train.text[0].length[0];
        CHECK(splits ? n == 10 && ids[2] == 1 : n == 6 && !memcmp(ids, tokens, sizeof tokens), "%ld tokens, %d",
              (long)n, ids[2]);
        gx_embedding_task.data.close(&c);
    }
}

TEST(every_epoch_has_every_record_once_and_no_record_is_torn)
{
    enum { T = 48, N = 40 };
    GxEmbeddingTask c;
    GxContext g;
    char *block, flags[900];
    write_corpus("epoch.tsv", 3, N, 3);
    for (int packed = 0; packed < 2; packed++) {
        int seen[N] = {0}, columns = 0, most = 0;
        snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --pack_texts %s", path_of("epoch.tsv"),
                 packed ? "true" : "false");
        if (!CHECK(open_task(&c, &g, T, "", flags) == GX_OK, "%s", g.error.message)) return;
        GxBatch b = lay(&c, T, 1, 0, &block);
        for (int total = 0; total < N; columns++) {
            b.sample = columns;
            gx_embedding_task.batch.fill(&g, &c, &b, block, 7, &g.error);
            const int64_t n = b.target[0].anchors;
            CHECK(b.target[0].n == 3 * n && n >= 1, "%ld texts, %ld anchors", (long)b.target[0].n, (long)n);
            for (int64_t i = 0; i < n; i++) {
                const int32_t *anchor = b.target[0].parts_host + 3 * i, *positive = anchor + 3 * n;
                CHECK(positive[1] == anchor[2], "a positive is not behind its anchor");
                for (int r = 0; r < N; r++)
                    seen[r] += c.train.text[0].length[r] == anchor[2] - anchor[1] &&
                               !memcmp(b.tokens + anchor[1], c.train.text[0].ids[r],
                                       (size_t)(anchor[2] - anchor[1]) * sizeof *b.tokens) &&
                               !memcmp(b.tokens + positive[1], c.train.text[1].ids[r],
                                       (size_t)(positive[2] - positive[1]) * sizeof *b.tokens) &&
                               !memcmp(b.tokens + positive[2], c.train.text[2].ids[r], 4 * sizeof *b.tokens);
            }
            most = (int)gx_max(most, n), total += (int)n;
        }
        for (int r = 0; r < N; r++) CHECK(seen[r] >= 1, "record %d is in no column", r);
        CHECK(packed ? most == 2 && columns < N : most == 1 && columns == N, "%d columns of up to %d", columns, most);
        gx_embedding_task.data.close(&c);
        free(block);
    }
}

TEST(equal_anchors_are_held_out_together)
{
    GxEmbeddingTask c;
    GxContext g;
    char flags[900], text[8000] = "anchor\tpositive\n";
    for (int i = 0; i < 120; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "where t%c %s\tsome %s\n", 'a' + i % 12,
                 around[i / 12 % 4], around[i % 5]);
    write_file("together.tsv", text);
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0.3", path_of("together.tsv"));
    if (!CHECK(open_task(&c, &g, 32, "", flags) == GX_OK, "%s", g.error.message)) return;
    CHECK(c.train.n + c.held_out.n == 120 && c.held_out.n > 10 && c.train.n > 50, "%ld and %ld", (long)c.train.n,
          (long)c.held_out.n);
    for (int64_t i = 0; i < c.train.n; i++)
        for (int64_t j = 0; j < c.held_out.n; j++)
            CHECK(strcmp(gx_texts_field(&c.train.text[0], i, 0), gx_texts_field(&c.held_out.text[0], j, 0)),
                  "an anchor is in both parts");
    gx_embedding_task.data.close(&c);
}

TEST(what_is_wrong_with_the_data_is_named_with_its_place)
{
    static const struct {
        const char *train, *more, *message;
        int T;
    } cases[] = {
        {"anchor\tother\nta\ttb\n", "", "t.tsv:1: there is no column \"positive\"", 32},
        {"anchor\tpositive\nta\t \n", "", "t.tsv:2:", 32},
        {"anchor\tpositive\tnegative\nta\tta\ttb\nta\tta\t\n", "", "t.tsv:3:", 32},
        {"anchor\tpositive\nta\tta\n", "--negative_column wrong", "there is no column \"wrong\"", 32},
        {"anchor\tpositive\nta\tta\n", "--negative_column=positive", "every positive would be its own negative", 32},
        {"anchor\tpositive\nta\tta\n", "--positive_column=", "is an empty name; expected the name of a column", 32},
        {"anchor\tpositive\tnegative\nta\tta\ttb\n", "",
         "seq_len is 8; a sample holds 3 texts between [CLS] and [SEP], so it must be at least 9", 8},
        {"text\nta\n", "--embed @", "seq_len is 2; a sample holds 1 text between", 2},
        {"anchor\tpositive\nta\tta\n", "--validation_fraction 0.9", "with --validation_fraction 0.9", 32},
        {"anchor\tpositive\nta\tta\n", "--embed nowhere.tsv", "nowhere.tsv", 32},
        {"anchor\tpositive\nta\tta\n", "--validation_fraction 0",
         "t.tsv: the pairs to train on (1) all have the same positive text, and no other text to tell it from; "
         "expected at least two different positives, or negatives",
         32},
        {"anchor\tpositive\nta\tta\ntb\tta\n", "--validation_fraction 0", "the pairs to train on (2) all have", 32},
        {"anchor\tpositive\nta\tta\ntb\ttb\n", "--validation_data @.one.tsv",
         "one.tsv: the pairs of the validation (1) all have the same positive text", 32},
        {"text\nta\n", "--embed @ --embed_output x.txt", "--embed_output x.txt: its name must end with .npy", 32},
        {"text\nta\n", "--embed @ --embed_output /tmp/no/such/x.npy", "No such file", 32},
        {"text\nta\n", "--embed @ --embed_column words", "there is no column \"words\"", 32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxEmbeddingTask c;
        GxContext g;
        char flags[900], more[600];
        const char *at = strchr(cases[i].more, '@');
        write_file("t.tsv", cases[i].train);
        write_file("t.tsv.one.tsv", "anchor\tpositive\nta\tta\n");
        snprintf(more, sizeof more, "%s", cases[i].more);
        if (at)
            snprintf(more, sizeof more, "%.*s%s%s", (int)(at - cases[i].more), cases[i].more, path_of("t.tsv"), at + 1);
        snprintf(flags, sizeof flags, "--train_data %s %s", path_of("t.tsv"), more);
        CHECK(open_task(&c, &g, cases[i].T, "", flags) != GX_OK && strstr(g.error.message, cases[i].message),
              "case %d: \"%s\", expected \"%s\"", (int)i, g.error.message, cases[i].message);
        gx_embedding_task.data.close(&c);
    }
}

TEST(the_pooling_is_the_options_or_the_models_or_the_mean)
{
    static const struct {
        const char *file, *more, *pooling, *message;
    } cases[] = {
        {NULL, "", "mean", NULL},
        {"{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}", "", "cls", NULL},
        {"{\"embedding_dimension\": 4, \"pooling_mode\": \"cls\"}", "", "cls", NULL},
        {"{\"pooling_mode\": \"mean\"}", "", "mean", NULL},
        {"{\"pooling_mode\": \"mean\"}", "--pooling cls", "cls", NULL},
        {"{\"pooling_mode_max_tokens\": true}", "", NULL, "asks for a pooling other than the mean"},
        {"{\"pooling_mode_max_tokens\": true, \"pooling_mode_cls_token\": true}", "", NULL,
         "asks for a pooling other than"},
        {"{\"pooling_mode\": \"lasttoken\"}", "", NULL, "asks for a pooling other than"},
    };
    write_corpus("pairs.tsv", 2, 20, 1);
    mkdir(path_of("pooled"), 0777), mkdir(path_of("pooled/1_Pooling"), 0777);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxEmbeddingTask c;
        GxContext g;
        char flags[900];
        if (cases[i].file) write_file("pooled/1_Pooling/config.json", cases[i].file);
        snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 %s", path_of("pairs.tsv"),
                 cases[i].more);
        const GxStatus status = open_task(&c, &g, 32, path_of("pooled"), flags);
        if (cases[i].pooling)
            CHECK(status == GX_OK && !strcmp(c.pooling_name, cases[i].pooling), "case %d: %s %s", (int)i,
                  c.pooling_name, g.error.message);
        else
            CHECK(status != GX_OK && strstr(g.error.message, cases[i].message), "case %d: %s", (int)i, g.error.message);
        gx_embedding_task.data.close(&c);
    }
}

// ---- runs ----------------------------------------------------------------------------------------------------------

// Exit status of a tiny model's run in folder/<name>.
static int run(const char *name, const char *more)
{
    char line[6000];
    snprintf(line, sizeof line,
             "--output_dir %s/%s --seq_len 32 --threads 1 --lr_scheduler_type constant --warmup_steps 0 "
             "--weight_decay 0 --learning_rate 0.01 %s",
             folder, name, more);
    if (!strstr(more, "--model "))
        snprintf(line + strlen(line), sizeof line - strlen(line),
                 " --hidden_size 16 --intermediate_size 16 --num_hidden_layers 1 --num_attention_heads 2 "
                 "--max_position_embeddings 64 --initializer_range 0.2 --tokenizer %s",
                 path_of("tokens"));
    return run_line(&gx_bert, &gx_embedding_task, line);
}

// The longest chain of roundings behind a loss: a sum per matrix product and norm, the attention's keys, the mean over
// a text, its length and the scores, which are 20 times their cosines: so 400 times as many.
static double depth(void) { return 2 * (4 * 16 + 16 + 16 + 8 + 32 + 16) + 400 * (16 + 16 + 16) + 100; }

static void train_pairs(void)
{
    static int done;
    char flags[900];
    if (done++) return;
    write_corpus("train.tsv", 3, 200, 3);
    write_corpus("validation.tsv", 2, 61, 4);
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 6 --max_steps 24 --eval_steps 12",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("pairs", flags) == 0, "%s", said.log);
}

TEST(a_bert_learns_which_texts_belong_together_and_says_how_well)
{
    static const char *const lines[] = {"200 pairs with negatives to train on",
                                        "61 held out",
                                        "each pair has 11 rivals, the other texts of its micro-batch (6 samples)",
                                        "vectors: the mean of a text's tokens",
                                        "by chance: mrr ",
                                        " | mrr ",
                                        "recall of the first ",
                                        " over 61 pairs\n",
                                        "nearest of 61 held-out positives",
                                        " * some t"};
    static const char *const files[] = {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
                                        "config_sentence_transformers.json", "vocab.txt"};
    char name[200];
    GxError err = GX_ZERO;
    train_pairs();
    CHECK(said.log[0] == 0, "%s", said.log);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(said.out, lines[i]), "no \"%s\" in: %s", lines[i], said.out);
    CHECK(metric("mrr") > 0.5 && metric("recall_1") <= metric("recall_5") &&
              metric("recall_5") <= metric("recall_10") && metric("recall_10") > 0.8 && told.count == 61,
          "mrr %g, recall %g, %g, %g", metric("mrr"), metric("recall_1"), metric("recall_5"), metric("recall_10"));
    CHECK(file_has(path_of("pairs/log.jsonl"), "\"eval_recall_10\": ") &&
              file_has(path_of("pairs/log.jsonl"), "{\"chance_mrr\": "),
          "log.jsonl");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(name, sizeof name, "pairs/checkpoint-24/%s", files[i]);
        CHECK(is_there(path_of(name)), "no %s", name);
    }
    CHECK(file_has(path_of("pairs/checkpoint-24/config.json"), "\"BertModel\""), "architectures");
    CHECK(file_has(path_of("pairs/checkpoint-24/1_Pooling/config.json"), "\"pooling_mode_mean_tokens\": true"),
          "pooling");
    CHECK(file_has(path_of("pairs/checkpoint-24/sentence_bert_config.json"), "\"max_seq_length\": 32"),
          "not the length that --embed cuts at");
    CHECK(gx_folder_verify(path_of("pairs/checkpoint-24"), 1, &err) == GX_OK, "%s", err.message);
}

// The candidates of all ranks are those of one: losses of every step, and metrics.
TEST(training_and_metrics_depend_on_neither_ranks_nor_modes)
{
    static const char *const ways[] = {"--micro_batch_size 6",
                                       "--micro_batch_size 3 --ranks 2",
                                       "--dp_batch_size_list 1,4,1 --ranks 3",
                                       "--micro_batch_size 6 --ranks 2 --mode tp",
                                       "--micro_batch_size 6 --ranks 2 --mode sp",
                                       "--micro_batch_size 3 --ranks 4 --tp 2 --mode galaxy2",
                                       "--micro_batch_size 6 --recompute layer"};
    char flags[1200], name[40];
    GxMetric first[GX_MAX_METRICS];
    double window[5] = {0};
    train_pairs();
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        snprintf(flags, sizeof flags,
                 "--train_data %s --validation_data %s --max_steps 4 --optimizer sgd --learning_rate 0.001 %s",
                 path_of("train.tsv"), path_of("validation.tsv"), ways[w]);
        snprintf(name, sizeof name, "way%d", (int)w);
        if (!CHECK(run(name, flags) == 0 && told.metrics == 5, "%s: %s", ways[w], said.log)) continue;
        if (w == 0) memcpy(first, told.metric, sizeof first), memcpy(window, told.window, sizeof window);
        for (int s = 1; s <= 4; s++) {
            const float loss = (float)told.window[s];
            test_close("loss of a step", &loss, &window[s], 1, test_bound(3 * s * depth()), 0);
        }
        const float loss = (float)told.metric[0].value;
        test_close("loss", &loss, &first[0].value, 1, test_bound(12 * depth()), 0);
        for (int m = 1; m < 5; m++)
            CHECK(fabs(told.metric[m].value - first[m].value) < 1e-9, "%s: %s %g, %g", ways[w], first[m].name,
                  told.metric[m].value, first[m].value);
    }
    CHECK(window[1] > 1 && window[4] > 0, "losses %g, %g", window[1], window[4]);
}

// ---- rivals --------------------------------------------------------------------------------------------------------

// A file of the texts of one column of the validation's pairs, and their vectors: rows of length 1.
static float *embed_column(const char *column)
{
    char flags[1200];
    int64_t bytes = 0;
    unlink(path_of("column.npy"));
    snprintf(flags, sizeof flags, "--model %s --embed %s --embed_column %s --embed_output %s --micro_batch_size 5",
             path_of("pairs/checkpoint-24"), path_of("validation.tsv"), column, path_of("column.npy"));
    CHECK(run("none", flags) == 0, "%s", said.log);
    char *file = read_bytes(path_of("column.npy"), &bytes);
    float *x = (float *)calloc(61 * 16, sizeof *x);
    if (CHECK(bytes == 128 + 4 * 61 * 16, "%ld bytes", (long)bytes)) memcpy(x, file + 128, 4 * 61 * 16);
    free(file);
    return x;
}

// Mean of log(sum_j exp(20 a_i p_j)) - 20 a_i p_i over the validation; equal texts are no rivals.
static double loss_by_hand(void)
{
    GxRecords r;
    GxError err = GX_ZERO;
    const GxRecordColumn column = {"positive", GX_COLUMN_REQUIRED, 0, NULL};
    double loss = 0;
    float *a = embed_column("anchor"), *p = embed_column("positive");
    CHECK(gx_records_open(&r, path_of("validation.tsv"), GX_RECORDS_BY_NAME, &column, 1, NULL, &err) == GX_OK, "%s",
          err.message);
    for (int i = 0; i < 61 && r.n == 61; i++) {
        double sum = 0, own = 0;
        for (int j = 0; j < 61; j++) {
            double s = 0;
            for (int k = 0; k < 16; k++) s += 20 * (double)a[i * 16 + k] * (double)p[j * 16 + k];
            if (j == i) own = s;
            if (j == i || strcmp(gx_record(&r, i, 0), gx_record(&r, j, 0))) sum += exp(s);
        }
        loss += (log(sum) - own) / 61;
    }
    gx_records_close(&r);
    free(a), free(p);
    return loss;
}

TEST(a_validation_says_the_same_whatever_ranks_and_micro_batches_compute_it)
{
    static const char *const ways[] = {"--micro_batch_size 6",
                                       "--micro_batch_size 1",
                                       "--micro_batch_size 1 --pack_texts false",
                                       "--dp_batch_size_list 3,1 --ranks 2",
                                       "--micro_batch_size 1 --ranks 3",
                                       "--micro_batch_size 2 --ranks 4 --tp 2 --mode galaxy"};
    char flags[1200];
    GxMetric first[GX_MAX_METRICS];
    train_pairs();
    const double expected = loss_by_hand();
    CHECK(expected > 0.1, "loss %g", expected);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        snprintf(flags, sizeof flags, "--model %s --evaluate true --validation_data %s %s",
                 path_of("pairs/checkpoint-24"), path_of("validation.tsv"), ways[w]);
        if (!CHECK(run("none", flags) == 0 && told.metrics == 5 && told.count == 61, "%s: %s", ways[w], said.log))
            continue;
        if (w == 0) memcpy(first, told.metric, sizeof first);
        const float loss = (float)told.metric[0].value;
        test_close(ways[w], &loss, &expected, 1, test_bound(12 * depth()), 0);
        for (int m = 1; m < 5; m++)
            CHECK(fabs(told.metric[m].value - first[m].value) < 1e-9, "%s: %s %g, %g", ways[w], first[m].name,
                  told.metric[m].value, first[m].value);
    }
}

// --max_eval_samples: the first samples, however many come beside them in a batch.
TEST(a_validation_of_some_samples_is_over_the_same_ones_in_all_micro_batches)
{
    static const char *const ways[] = {"--micro_batch_size 7", "--micro_batch_size 4",
                                       "--micro_batch_size 3 --ranks 2"};
    double first[3] = {0}, value[3];
    train_pairs();
    for (int w = 0; w < 3; w++) {
        char flags[1200], name[40];
        int64_t bytes;
        snprintf(name, sizeof name, "some%d", w);
        snprintf(flags, sizeof flags,
                 "--train_data %s --validation_data %s --max_eval_samples 7 --eval_steps 1 --max_steps 2 "
                 "--learning_rate 0 %s",
                 path_of("train.tsv"), path_of("validation.tsv"), ways[w]);
        if (!CHECK(run(name, flags) == 0, "%s: %s", ways[w], said.log)) continue;
        snprintf(name, sizeof name, "some%d/log.jsonl", w);
        char *log = read_bytes(path_of(name), &bytes), *pairs = strstr(log, "\"eval_pairs\": "),
             *line = strstr(log, "{\"step\": 1, \"eval_loss\": ");
        if (CHECK(line && pairs, "%s", log) &&
            CHECK(sscanf(line, "{\"step\": 1, \"eval_loss\": %lf, \"eval_mrr\": %lf", &value[0], &value[1]) == 2, "%s",
                  line)) {
            value[2] = atof(pairs + strlen("\"eval_pairs\": "));
            if (w == 0) memcpy(first, value, sizeof first);
            for (int i = 0; i < 3; i++)
                CHECK(fabs(value[i] - first[i]) < 1e-4 && first[i] > 0, "%s: number %d is %g, %g", ways[w], i, value[i],
                      first[i]);
        }
        free(log);
    }
    CHECK(first[2] >= 7 && first[2] < 61, "%g pairs", first[2]);
}

TEST(the_best_validation_is_that_of_the_largest_mrr)
{
    char flags[900];
    train_pairs();
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 6 --max_steps 4 --eval_steps 2 "
             "--load_best_model_at_end true",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("best", flags) == 0 && strstr(said.out, "the best on the way: mrr "), "%s%s", said.log, said.out);
    CHECK(run("best", "--resume auto --max_steps 6") == 0 && !strstr(said.log, "has changed"), "%s", said.log);
    snprintf(flags, sizeof flags, "--resume auto --max_steps 8 --validation_data %s", path_of("train.tsv"));
    CHECK(run("best", flags) == 0 && strstr(said.log, "validation_data has changed: the best"), "%s", said.log);
}

TEST(a_run_does_not_go_on_with_another_number_of_rivals)
{
    char flags[900];
    train_pairs();
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 2 --gradient_accumulation_steps 2 --max_steps 2 "
             "--pack_texts false",
             path_of("train.tsv"), path_of("validation.tsv"));
    if (!CHECK(run("rivals", flags) == 0 && strstr(said.out, "each pair has 3 rivals, the other texts of its "), "%s%s",
               said.log, said.out))
        return;
    CHECK(run("rivals", "--resume auto --max_steps 4 --ranks 2") != 0 && // 2 ranks of 2 samples
              strstr(said.log, "number of rivals (that of --micro_batch_size times the data-parallel ranks) (its "
                               "rivals differs: 3 then, 7 now), so it would not be the same run"),
          "%s", said.log);
    CHECK(run("rivals", "--resume auto --max_steps 4 --ranks 2 --micro_batch_size 1") == 0, "%s", said.log);
}

TEST(texts_that_the_tokenizer_does_not_know_and_another_padding_are_said_once)
{
    char flags[900];
    write_file("unknown.tsv", "anchor\tpositive\nta who\twho what\nwhy\tte\nhow\ttb\nwhen who\ttc\n");
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --micro_batch_size 4 --max_steps 1 %s",
             path_of("unknown.tsv"), path_of("unknown.tsv"), "--pad_token_id 3 --ranks 2");
    CHECK(run("unknown", flags) == 0, "%s", said.log);
    const char *words =
                   strstr(said.log, "unknown.tsv: 64% of its words are [UNK], because the tokenizer (wordpiece-23-"),
               *padding = strstr(said.log, "the model's pad_token_id is 3, but the tokenizer's padding has the id 0");
    CHECK(words && !strstr(words + 30, "of its words") && padding && !strstr(padding + 30, "pad_token_id is"), "%s",
          said.log);
}

TEST(a_pair_without_a_rival_is_refused_or_said)
{
    char flags[900];
    const char *said_once;
    train_pairs();
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --micro_batch_size 1 --pack_texts false",
             path_of("validation.tsv"));
    CHECK(run("lonely", flags) != 0 &&
              strstr(said.log, "a micro-batch has one pair, and no other text to tell its positive from, so that the "
                               "loss would always be 0; use a larger --micro_batch_size, or a file with negatives"),
          "%s", said.log);
    snprintf(flags, sizeof flags, "--train_data %s --label_smoothing_factor 0.1", path_of("train.tsv"));
    CHECK(run("smoothed", flags) != 0 &&
              strstr(said.log, "for the loss of tokens, but task embedding has a loss of vectors"),
          "%s", said.log);
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 2 --pack_texts false --max_eval_samples 1 "
             "--eval_steps 1 --max_steps 3",
             path_of("train.tsv"), path_of("validation.tsv"));
    CHECK(run("window", flags) == 0, "%s", said.log);
    said_once = strstr(said.log, "a validation of one pair has nothing to rank its positive among");
    CHECK(said_once && !strstr(said_once + 1, "a validation of one pair"), "%s", said.log);
    CHECK(file_has(path_of("window/log.jsonl"), "\"eval_loss\": null, \"eval_mrr\": null"), "no null");
}

TEST(micro_batches_that_differ_between_copies_are_refused)
{
    char flags[900];
    train_pairs();
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --ranks 2 --dp_samples_list 3,1",
             path_of("train.tsv"));
    CHECK(run("unequal", flags) != 0 && strstr(said.log, "--dp_samples_list") &&
              strstr(said.log, "task embedding compares the texts of all copies in each micro-batch"),
          "%s", said.log);
}

// ---- vectors in a file ---------------------------------------------------------------------------------------------

enum { TEXTS = 37, WIDTH = 16 };

// The numbers of a file that --embed wrote; NULL, and a failed check: it is something else.
static float *read_vectors(const char *path)
{
    static const char expected[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (37, 16), }";
    int64_t bytes = 0;
    char *file = read_bytes(path, &bytes);
    float *x = (float *)malloc(TEXTS * WIDTH * sizeof *x);
    const int is_whole = bytes == 128 + 4 * TEXTS * WIDTH && !memcmp(file, "\x93NUMPY\x01\x00\x76\x00", 10) &&
                         !memcmp(file + 10, expected, sizeof expected - 1) && file[127] == '\n';
    CHECK(is_whole, "%s: %ld bytes", path, (long)bytes);
    if (is_whole) memcpy(x, file + 128, TEXTS * WIDTH * sizeof *x);
    else memset(x, 0, TEXTS * WIDTH * sizeof *x);
    free(file);
    return x;
}

TEST(vectors_of_a_file_come_in_its_order_and_of_length_one_on_any_ranks)
{
    static const char *const ways[] = {"--micro_batch_size 4", "--micro_batch_size 1 --pack_texts false",
                                       "--dp_batch_size_list 3,1 --ranks 2", "--micro_batch_size 2 --ranks 2 --mode sp",
                                       "--micro_batch_size 2 --ranks 2 --mode tp"};
    char flags[1200], name[60];
    double first[TEXTS * WIDTH];
    train_pairs();
    write_corpus("texts.tsv", 1, TEXTS, 9);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        snprintf(name, sizeof name, "way%d.npy", (int)w);
        snprintf(flags, sizeof flags, "--model %s --embed %s --embed_output %s %s", path_of("pairs/checkpoint-24"),
                 path_of("texts.tsv"), path_of(name), ways[w]);
        if (!CHECK(run("none", flags) == 0, "%s: %s", ways[w], said.log)) continue;
        float *x = read_vectors(path_of(name));
        for (int i = 0; i < TEXTS * WIDTH && w == 0; i++) first[i] = x[i];
        for (int i = 0; i < TEXTS; i++) {
            double squares = 0;
            for (int j = 0; j < WIDTH; j++) squares += (double)x[i * WIDTH + j] * x[i * WIDTH + j];
            CHECK(fabs(squares - 1) < 1e-6, "%s: vector %d has the length %g", ways[w], i, sqrt(squares));
        }
        CHECK(strstr(said.out, " at a time; nothing is trained\n") && strstr(said.out, "\nsaved ") &&
                  !strstr(said.out, " steps of ") && !strstr(said.out, "per step") && !strstr(said.out, "predictions"),
              "%s", said.out);
        test_close(ways[w], x, first, TEXTS * WIDTH, test_bound(depth()), 0);
        free(x);
    }
    CHECK(!is_there(path_of("none")), "an output folder of a run that trains nothing");
    CHECK(run("none", flags) != 0 && strstr(said.log, "already exists; remove it, or choose another name"), "%s",
          said.log);
    snprintf(flags, sizeof flags, "--embed %s", path_of("texts.tsv"));
    CHECK(run("none", flags) == 1 && strstr(said.log, "--embed needs a model"), "%s", said.log);
}

// Text i alone in its file has the vector that it has among others.
TEST(a_vector_does_not_depend_on_the_texts_around_it)
{
    char flags[1200], line[200];
    train_pairs();
    write_corpus("texts.tsv", 1, TEXTS, 9);
    snprintf(flags, sizeof flags, "--model %s --embed %s --embed_output %s", path_of("pairs/checkpoint-24"),
             path_of("texts.tsv"), path_of("among.npy"));
    if (!CHECK(run("none", flags) == 0, "%s", said.log)) return;
    float *all = read_vectors(path_of("among.npy"));
    GxRecords records;
    GxError err = GX_ZERO;
    const GxRecordColumn column = {"text", GX_COLUMN_REQUIRED, 0, NULL};
    CHECK(gx_records_open(&records, path_of("texts.tsv"), GX_RECORDS_BY_NAME, &column, 1, NULL, &err) == GX_OK, "%s",
          err.message);
    snprintf(line, sizeof line, "text\n%s\n", gx_record(&records, 20, 0));
    write_file("alone.tsv", line);
    snprintf(flags, sizeof flags, "--model %s --embed %s --embed_output %s", path_of("pairs/checkpoint-24"),
             path_of("alone.tsv"), path_of("alone.npy"));
    if (CHECK(run("none", flags) == 0, "%s", said.log)) {
        int64_t bytes = 0;
        char *file = read_bytes(path_of("alone.npy"), &bytes);
        double expected[WIDTH];
        for (int j = 0; j < WIDTH; j++) expected[j] = all[20 * WIDTH + j];
        if (CHECK(bytes == 128 + 4 * WIDTH, "%ld bytes", (long)bytes))
            test_close("alone", (const float *)(file + 128), expected, WIDTH, test_bound(depth()), 0);
        free(file);
    }
    gx_records_close(&records);
    free(all);
}

// Labels go to the device in blocks of 256; each of these ranks has fewer.
TEST(a_batch_of_more_than_256_anchors_has_the_loss_of_several_ranks)
{
    static const char *const ways[] = {"--micro_batch_size 700", "--dp_batch_size_list 233,233,234 --ranks 3"};
    enum { N = 700 };
    char flags[900];
    double loss[2] = {0};
    write_corpus("many.tsv", 2, N, 31);
    for (int w = 0; w < 2; w++) {
        snprintf(flags, sizeof flags,
                 "--train_data %s --validation_fraction 0 --pack_texts false --seq_len 12 --max_steps 1 "
                 "--hidden_dropout_prob 0 --attention_probs_dropout_prob 0 %s",
                 path_of("many.tsv"), ways[w]);
        if (!CHECK(run(w ? "many3" : "many1", flags) == 0, "%s", said.log)) return;
        CHECK(strstr(said.out, "each pair has 699 rivals"), "%s", said.out);
        loss[w] = told.window[1];
    }
    CHECK(loss[0] > 1 && fabs(loss[0] / loss[1] - 1) < 1e-5, "%.9g and %.9g", loss[0], loss[1]);
}

// ---- folders of sentence-transformers -------------------------------------------------------------------------------

#define OF(type)           "sentence_transformers.models." type
#define MODULE(path, type) "{\"idx\": 0, \"name\": \"0\", \"path\": \"" path "\", \"type\": \"" type "\"}"
#define TRANSFORMER        MODULE("", OF("Transformer"))
#define POOLING            MODULE("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling")
#define NORMALIZE          MODULE("9_Normalize", "sentence_transformers.base.modules.normalize.Normalize")
#define DENSE(path)        MODULE(path, "sentence_transformers.base.modules.dense.Dense")

// folder/st: a small model without dropout, and these files; NULL: not there.
static void write_folder(const char *modules, const char *pooling, const char *bert, const char *config)
{
    static int done;
    char line[1000];
    if (!done++) {
        write_corpus("base.tsv", 2, 40, 6);
        snprintf(line, sizeof line,
                 "--train_data %s --validation_fraction 0 --micro_batch_size 4 --max_steps 3 --hidden_dropout_prob 0 "
                 "--attention_probs_dropout_prob 0",
                 path_of("base.tsv"));
        CHECK(run("base", line) == 0, "%s", said.log);
    }
    snprintf(line, sizeof line,
             "rm -rf %s/st && mkdir -p %s/st/1_Pooling && cd %s/base/checkpoint-3 && cp config.json *.safetensors "
             "tokenizer* vocab.txt ../../st",
             folder, folder, folder);
    CHECK(system(line) == 0, "no folder");
    if (modules) write_file("st/modules.json", modules);
    if (pooling) write_file("st/1_Pooling/config.json", pooling);
    if (bert) write_file("st/sentence_bert_config.json", bert);
    if (config) write_file("st/config_sentence_transformers.json", config);
}

enum { DENSE_OUT = 5 };
static float dense_weight[WIDTH * WIDTH], dense_bias[WIDTH];

// A module of sentence-transformers, with values that follow from their places.
static void write_dense(const char *name, int in, int out, const char *activation, int has_bias)
{
    char file[100], text[400];
    GxSafetensorsEntry e[2];
    GxSafetensorsWriter w;
    GxError err = GX_ZERO;
    memset(e, 0, sizeof e);
    snprintf(file, sizeof file, "st/%s", name), mkdir(path_of(file), 0777);
    snprintf(text, sizeof text,
             "{\"in_features\": %d, \"out_features\": %d, \"bias\": %s, \"activation_function\": \"%s\"}", in, out,
             has_bias ? "true" : "false", activation);
    snprintf(file, sizeof file, "st/%s/config.json", name), write_file(file, text);
    for (int i = 0; i < out * in; i++) dense_weight[i] = 0.4f * (float)((7 * i) % 11 - 5) / 5;
    for (int i = 0; i < out; i++) dense_bias[i] = 0.1f * (float)(i - 2);
    strcpy(e[0].name, "linear.weight"), strcpy(e[1].name, "linear.bias");
    e[0].dtype = e[1].dtype = GX_F32, e[0].ndim = 2, e[1].ndim = 1;
    e[0].shape[0] = e[1].shape[0] = out, e[0].shape[1] = in;
    snprintf(file, sizeof file, "st/%s/model.safetensors", name);
    CHECK(gx_safetensors_create(&w, path_of(file), e, 1 + has_bias, NULL, 0, &err) == GX_OK &&
              gx_safetensors_write_floats(&w, "linear.weight", 0, dense_weight, out * in, &err) == GX_OK &&
              (!has_bias || gx_safetensors_write_floats(&w, "linear.bias", 0, dense_bias, out, &err) == GX_OK) &&
              gx_safetensors_finish(&w, &err) == GX_OK,
          "%s", err.message);
}

// What --embed makes of folder/<model> and a file; n * width numbers, or NULL.
static float *embed(const char *model, const char *texts, int n, int width, const char *more)
{
    char line[2000];
    int64_t bytes;
    unlink(path_of("x.npy"));
    snprintf(line, sizeof line, "--task embedding --model %s --embed %s --embed_output %s --threads 1 %s",
             path_of(model), path_of(texts), path_of("x.npy"), more);
    if (!CHECK(run_line(&gx_bert, &gx_embedding_task, line) == 0, "%s: %s", model, said.log)) return NULL;
    char *file = read_bytes(path_of("x.npy"), &bytes);
    if (!CHECK(bytes == 128 + 4 * n * width, "%s: %ld bytes", model, (long)bytes)) return NULL;
    memmove(file, file + 128, (size_t)(4 * n * width));
    return (float *)(void *)file;
}

static void check_vectors(const char *what, const float *a, const float *b, int n)
{
    double expected[TEXTS * WIDTH];
    for (int i = 0; i < n && b; i++) expected[i] = b[i];
    if (CHECK(a && b, "%s: no vectors", what)) test_close(what, a, expected, n, test_bound(depth()), 0);
}

TEST(a_text_is_cut_and_prompted_as_the_folder_says)
{
    static const char mean[] = "{\"pooling_mode\": \"mean\"}";
    write_file("long.tsv", "text\nwhere is ta here\n \ntb\n");
    write_file("asked.tsv", "text\nis where is ta here\nis\nis tb\n");
    write_file("short.tsv", "text\nis where\nis\nis tb\n");
    write_folder("[" TRANSFORMER ", " POOLING ", " NORMALIZE "]", mean, "{\"max_seq_length\": 20}", NULL);
    float *whole = embed("st", "asked.tsv", 3, WIDTH, ""), *cut = embed("st", "short.tsv", 3, WIDTH, "");
    CHECK(!said.log[0], "%s", said.log);
    write_folder("[" TRANSFORMER ", " POOLING ", " NORMALIZE "]", mean, "{\"max_seq_length\": 20}",
                 "{\"prompts\": {\"a\": \"some \", \"b\": \"is \"}, \"default_prompt_name\": \"b\", "
                 "\"similarity_fn_name\": \"dot\"}");
    float *asked = embed("st", "long.tsv", 3, WIDTH, "");
    check_vectors("with its prompt", asked, whole, 3 * WIDTH);
    CHECK(strstr(said.out, "prompt is put before each text: \"is \""), "%s", said.out);
    write_file("st/sentence_bert_config.json", "{\"max_seq_length\": 4}");
    float *both = embed("st", "long.tsv", 3, WIDTH, "");
    check_vectors("cut at max_seq_length", both, cut, 3 * WIDTH);
    free(both), both = embed("st", "long.tsv", 3, WIDTH, "--seq_len 32");
    check_vectors("cut at --seq_len", both, whole, 3 * WIDTH);
    CHECK(strstr(said.log, "cut to 32 tokens (--seq_len); the model's folder says 4"), "%s", said.log);
    // the tokenizer's length, where the other file has none
    write_file("st/sentence_bert_config.json", "{}"),
        write_file("st/tokenizer_config.json", "{\"model_max_length\": 4}");
    free(both), both = embed("st", "long.tsv", 3, WIDTH, "");
    check_vectors("cut at model_max_length", both, cut, 3 * WIDTH);
    // an old name of the file
    unlink(path_of("st/tokenizer_config.json")), unlink(path_of("st/sentence_bert_config.json"));
    write_file("st/sentence_xlm-roberta_config.json", "{\"max_seq_length\": 4}");
    free(both), both = embed("st", "long.tsv", 3, WIDTH, "");
    check_vectors("cut where the file has an old name", both, cut, 3 * WIDTH);
    free(whole), free(cut), free(asked), free(both);
}

TEST(what_follows_the_pooling_is_computed_kept_and_not_trained)
{
    static const char *const ways[] = {"", "--micro_batch_size 2 --ranks 2 --mode sp",
                                       "--micro_batch_size 2 --ranks 2 --mode tp"};
    static const char mean[] = "{\"pooling_mode\": \"mean\"}", most[] = "{\"max_seq_length\": 20}",
                      config[] = "{\"prompts\": {\"a\": \"some \"}, \"default_prompt_name\": \"a\", "
                                 "\"similarity_fn_name\": \"dot\"}";
    char flags[1200];
    float expected[TEXTS * DENSE_OUT];
    write_corpus("texts.tsv", 1, TEXTS, 9);
    write_folder("[" TRANSFORMER ", " POOLING "]", mean, most, config);
    float *pooled = embed("st", "texts.tsv", TEXTS, WIDTH, "");
    write_folder("[" TRANSFORMER ", " POOLING ", " DENSE("2_Dense") "]", mean, most, config);
    write_dense("2_Dense", WIDTH, DENSE_OUT, "torch.nn.modules.activation.Tanh", 1);
    for (int i = 0; i < TEXTS && pooled; i++)
        for (int o = 0; o < DENSE_OUT; o++) {
            double sum = dense_bias[o];
            for (int j = 0; j < WIDTH; j++) sum += (double)dense_weight[o * WIDTH + j] * pooled[i * WIDTH + j];
            expected[i * DENSE_OUT + o] = (float)tanh(sum);
        }
    for (int w = 0; w < 3; w++) {
        float *x = embed("st", "texts.tsv", TEXTS, DENSE_OUT, ways[w]);
        check_vectors(ways[w], x, pooled ? expected : NULL, TEXTS * DENSE_OUT);
        free(x);
    }
    CHECK(strstr(said.out, "then a Dense module, 16 to 5, tanh"), "%s", said.out);
    // trained: the loss falls as its gradient says, so that goes through the module, too
    write_corpus("few.tsv", 2, 4, 21);
    snprintf(flags, sizeof flags,
             "--model %s --train_data %s --validation_fraction 0 --pack_texts false --micro_batch_size 4 --max_steps 2 "
             "--optimizer sgd --momentum 0 --learning_rate 0.0001 --max_grad_norm 0",
             path_of("st"), path_of("few.tsv"));
    if (!CHECK(run("dense", flags) == 0, "%s", said.log)) return;
    CHECK(strstr(said.out, "which is frozen") && strstr(said.out, "is not put before pairs"), "%s", said.out);
    char *log = read_file(path_of("dense/log.jsonl"));
    const char *at = strstr(log, "\"grad_norm\": ");
    const double norm = at ? atof(at + 13) : 0, fell = told.window[1] - told.window[2];
    CHECK(norm > 0.1 && fabs(fell / (0.0001 * norm * norm) - 1) < 0.1, "the loss fell by %g, the norm is %g: %g", fell,
          norm, fell / (0.0001 * norm * norm));
    free(log);
    const double serial = told.window[2];
    for (int w = 1; w < 3; w++) {
        char line[1500];
        snprintf(line, sizeof line, "%s --ranks 2 --mode %s", flags, w == 1 ? "sp" : "tp");
        CHECK(run(w == 1 ? "dense_sp" : "dense_tp", line) == 0 && fabs(told.window[2] / serial - 1) < 1e-5,
              "%s: %.9g, serially %.9g; %s", w == 1 ? "sp" : "tp", told.window[2], serial, said.log);
    }
    CHECK(file_has(path_of("dense/checkpoint-2/sentence_bert_config.json"), "\"max_seq_length\": 20") &&
              file_has(path_of("dense/checkpoint-2/config_sentence_transformers.json"),
                       "\"default_prompt_name\": \"a\"") &&
              file_has(path_of("dense/checkpoint-2/config_sentence_transformers.json"), "\"dot\"") &&
              !file_has(path_of("dense/checkpoint-2/modules.json"), "Normalize"),
          "what was read is not kept");
    // an adapter, and the model that it is merged into
    snprintf(flags + strlen(flags), sizeof flags - strlen(flags), " --tuning lora --lora_dim 2");
    if (!CHECK(run("lora", flags) == 0, "%s", said.log)) return;
    GxContext g = GX_ZERO;
    GxMergeSaid merged;
    g.device = gx_device_cpu(), g.world = 1, g.threads = 1;
    mkdir(path_of("merged"), 0777);
    CHECK(gx_merge_adapter(&g, path_of("lora/checkpoint-2"), "", path_of("merged"), GX_F32, 1, 0, &merged) == GX_OK,
          "%s", g.error.message);
    snprintf(flags, sizeof flags, "--adapter %s", path_of("lora/checkpoint-2"));
    float *tuned = embed("st", "texts.tsv", TEXTS, DENSE_OUT, flags),
          *plain = embed("merged", "texts.tsv", TEXTS, DENSE_OUT, "");
    check_vectors("merged", plain, tuned, TEXTS * DENSE_OUT);
    free(tuned), free(plain);
    int64_t n[2];
    char *one = read_bytes(path_of("st/2_Dense/model.safetensors"), &n[0]),
         *two = read_bytes(path_of("dense/checkpoint-2/2_Dense/model.safetensors"), &n[1]);
    CHECK(n[0] == n[1] && n[0] > 4 * WIDTH * DENSE_OUT && !memcmp(one, two, (size_t)n[0]), "the module's weights");
    free(one), free(two), free(pooled);
}

TEST(modules_that_are_not_built_are_refused_by_name)
{
    static const char all[] = "[" TRANSFORMER ", " POOLING ", " DENSE("2_Dense") ", " NORMALIZE "]",
                      tanh_name[] = "torch.nn.modules.activation.Tanh", mean[] = "{\"pooling_mode\": \"mean\"}";
    static const struct {
        const char *modules, *pooling, *bert, *config, *dense, *message; // dense: instead of its config.json
    } cases[] = {
        {"[" TRANSFORMER ", " POOLING ", " MODULE("2_LSTM", OF("LSTM")) "]", mean, NULL, NULL, NULL,
         "of the type LSTM"},
        {"[" TRANSFORMER ", " POOLING ", " MODULE("2", "my.own.Dense") "]", mean, NULL, NULL, NULL,
         "type my.own.Dense"},
        {"[" TRANSFORMER ", " POOLING ", " NORMALIZE ", " DENSE("2_Dense") "]", mean, NULL, NULL, NULL,
         "Dense comes after Normalize"},
        {"[" POOLING "]", mean, NULL, NULL, NULL, "Pooling comes first"},
        {"[" TRANSFORMER "]", mean, NULL, NULL, NULL, "there is no Pooling"},
        {"[" MODULE("0_Transformer", OF("Transformer")) ", " POOLING "]", mean, NULL, NULL, NULL,
         "the Transformer is in \"0_Transformer\""},
        {all, mean, "{\"max_seq_length\": 0}", NULL, NULL, "max_seq_length is 0"},
        {"[" TRANSFORMER ", " MODULE("../1_Pooling", OF("Pooling")) "]", mean, NULL, NULL, NULL, "out of the folder"},
        {all, "{\"pooling_mode\": [\"mean\", \"cls\"]}", NULL, NULL, NULL, "or [CLS] (mean, cls)"},
        {all, "{\"pooling_mode_weightedmean_tokens\": true}", NULL, NULL, NULL, "(weightedmean_tokens)"},
        {all, "{\"pooling_mode\": \"mean\", \"include_prompt\": false}", NULL,
         "{\"prompts\": {\"a\": \"is \"}, \"default_prompt_name\": \"a\"}", NULL, "include_prompt is false"},
        {all, "{\"pooling_mode\": \"mean\", \"include_prompt\": false}", NULL, "{\"prompts\": {\"a\": \"is \"}}", NULL,
         NULL},
        {all, mean, "{\"max_seq_length\": \"x\"}", NULL, NULL, "\"max_seq_length\" is a string"},
        {all, mean, "{\"do_lower_case\": true}", NULL, NULL, NULL}, // the tokenizer does that
        {all, mean, "{\"transformer_task\": \"fill-mask\"}", NULL, NULL, "transformer_task is fill-mask"},
        {all, mean, NULL, "{\"default_prompt_name\": \"x\", \"prompts\": {}}", NULL, "\"x\" is missing"},
        {all, mean, NULL, "{\"model_type\": \"SparseEncoder\"}", NULL, "model_type is SparseEncoder"},
        {all, mean, NULL, NULL, "{\"in_features\": 16, \"out_features\": 5, \"use_residual\": true}",
         "use_residual is true"},
        {all, mean, NULL, NULL,
         "{\"in_features\": 16, \"out_features\": 5, \"activation_function\": \"torch.nn.modules.activation.ReLU\"}",
         "activation_function is torch.nn.modules.activation.ReLU"},
        {all, mean, NULL, NULL,
         "{\"in_features\": 16, \"out_features\": 5, \"activation_function\": \"torch.nn.Tanh\"}",
         "supported: torch.nn.modules.activation.Tanh and torch.nn.modules.linear.Identity"},
        {all, mean, NULL, NULL, "{\"in_features\": 16, \"out_features\": 5, \"bias\": false}",
         "there is also linear.bias"},
        {all, mean, NULL, NULL, "{\"in_features\": 16, \"out_features\": 6}",
         "linear.weight does not have the shape that config.json says"},
        {all, mean, NULL, NULL, "{\"in_features\": 16, \"out_features\": 5, \"module_input_name\": \"x\"}",
         "module_input_name is x"},
        {all, mean, "{\"pad\": 1}", "{\"truncate_dim\": 3}", NULL, NULL}, // said
    };
    write_file("one.tsv", "text\nta\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxSentenceModules m;
        GxError err = GX_ZERO;
        write_folder(cases[i].modules, cases[i].pooling, cases[i].bert, cases[i].config);
        write_dense("2_Dense", WIDTH, DENSE_OUT, tanh_name, 1);
        if (cases[i].dense) write_file("st/2_Dense/config.json", cases[i].dense);
        const GxStatus status = gx_sentence_modules_read(&m, path_of("st"), 0, &err);
        if (cases[i].message)
            CHECK(status != GX_OK && strstr(err.message, cases[i].message), "case %d: \"%s\", expected \"%s\"", (int)i,
                  err.message, cases[i].message);
        else CHECK(status == GX_OK && m.dense_n == 1 && m.normalizes, "case %d: %s", (int)i, err.message);
        if (status == GX_OK && m.excludes_prompt) { // what is saved says so, too
            mkdir(path_of("kept"), 0777);
            CHECK(gx_sentence_modules_write(&m, WIDTH, 20, path_of("kept"), &err) == GX_OK &&
                      file_has(path_of("kept/1_Pooling/config.json"), "\"include_prompt\": false"),
                  "case %d: %s", (int)i, err.message);
        }
        gx_sentence_modules_close(&m);
    }
    CHECK(file_has(path_of("kept/sentence_bert_config.json"), "\"max_seq_length\": 20"), "nothing was kept");
    float *x = embed("st", "one.tsv", 1, DENSE_OUT, "");
    CHECK(strstr(said.log, "\"pad\" is not known") && strstr(said.log, "\"truncate_dim\" is not known"), "%s",
          said.log);
    free(x);
    write_dense("2_Dense", WIDTH - 1, DENSE_OUT, tanh_name, 0);
    char flags[900];
    snprintf(flags, sizeof flags, "--model %s --embed %s --embed_output %s", path_of("st"), path_of("one.tsv"),
             path_of("no.npy"));
    CHECK(run("none", flags) != 0 && strstr(said.log, "a Dense module has in_features 15, but its input has 16"), "%s",
          said.log);
}

TEST(a_model_that_lies_in_a_folder_of_the_folder_is_refused_by_its_place)
{
    char flags[900];
    write_file("one.tsv", "text\nta\n");
    write_folder("[" MODULE("0_Transformer", OF("Transformer")) ", " POOLING "]", "{}", NULL, NULL);
    unlink(path_of("st/config.json"));
    snprintf(flags, sizeof flags, "--model %s --embed %s --embed_output %s", path_of("st"), path_of("one.tsv"),
             path_of("no.npy"));
    CHECK(run("none", flags) != 0 && strstr(said.log, "the Transformer is in \"0_Transformer\""), "%s", said.log);
}

// Without --seq_len no message is about it.
TEST(a_length_that_does_not_fit_is_named_with_where_it_comes_from)
{
    static const struct {
        const char *most, *more, *message;
    } cases[] = {
        {"{\"max_seq_length\": 2}", "", "what the model's folder says (max_seq_length, else model_max_length) is 2; a"},
        {"{\"max_seq_length\": 2}", "--seq_len 2", "--seq_len is 2; a"},
        {"{\"max_seq_length\": 9999}", "", "model_max_length) is 9999, which is longer than the"},
    };
    char line[2000];
    write_file("one.tsv", "text\nta\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_folder("[" TRANSFORMER ", " POOLING "]", "{}", cases[i].most, NULL);
        snprintf(line, sizeof line, "--task embedding --model %s --embed %s --embed_output %s --threads 1 %s",
                 path_of("st"), path_of("one.tsv"), path_of("no.npy"), cases[i].more);
        CHECK(run_line(&gx_bert, &gx_embedding_task, line) != 0 && strstr(said.log, cases[i].message), "case %d: %s",
              (int)i, said.log);
    }
    write_file("pairs.tsv", "anchor\tpositive\nta\ttb\n");
    write_folder("[" TRANSFORMER ", " POOLING "]", "{}", "{\"max_seq_length\": 20}", NULL);
    snprintf(line, sizeof line, "--train_data %s", path_of("pairs.tsv"));
    free(embed("st", "one.tsv", 1, WIDTH, line));
    CHECK(strstr(said.log, "--train_data changes nothing with --embed"), "%s", said.log);
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_tokenizer); }
