// test_token_classification.cu: labels of words (task/token_classification.h): entities as seqeval counts them, the
// tokens of words as `tokenizers` makes them, what a batch holds, by hand; metrics and predictions that depend on
// neither packing nor ranks; labels of a model; what is refused, and how. And a DistilBERT that learns each task.
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/task_run.h"

// ---- files ---------------------------------------------------------------------------------------------------------

// ids: 5 Ada, 6 Kurt, 7 ##a, 8 met, ...
static const char *const words[] = {"ada", "kurt", "##a", "met", "in", "paris", "wien", "old", "."};
enum { WORDS = sizeof words / sizeof *words, VOCAB = WORDS + FIRST_WORD };

static void write_tokenizer(void)
{
    char vocab[200] = "";
    for (int i = 0; i < WORDS; i++) snprintf(vocab + strlen(vocab), sizeof vocab - strlen(vocab), "%s\n", words[i]);
    write_vocab(vocab);
}

// Sentences such as "ada kurta met paris .": a person of one or two words, of which the second may have two tokens, and
// another person or a place. kind: 0: JSON lines; 1: with numbers of O, B-LOC, B-PER, I-PER; 2: without labels; 3:
// CoNLL's format.
static void write_sentences(const char *name, int kind, int n, int seed)
{
    static const char *const labels[] = {"O", "B-LOC", "B-PER", "I-PER"};
    static char text[1 << 18];
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const GxRandom4 r = gx_philox((uint64_t)seed, (uint64_t)i, 0, 77);
        const char *word[8];
        int label[8], count = 0;
        word[count] = r.w[0] & 1 ? "ada" : "kurt", label[count++] = 2;
        if (r.w[0] & 2) word[count] = r.w[0] & 4 ? "kurta" : "adaa", label[count++] = 3;
        word[count] = "met", label[count++] = 0;
        if (r.w[1] & 1) word[count] = "old", label[count++] = 0;
        word[count] = r.w[2] & 1 ? "paris" : "kurt", label[count++] = r.w[2] & 1 ? 1 : 2;
        if (r.w[1] & 2) word[count] = "in", label[count++] = 0, word[count] = "wien", label[count++] = 1;
        word[count] = ".", label[count++] = 0;
        if (kind != 3) at += (size_t)snprintf(text + at, sizeof text - at, "{\"tokens\": [");
        for (int k = 0; k < count; k++)
            at += kind == 3 ? (size_t)snprintf(text + at, sizeof text - at, "%s\tX\t%s\n", word[k], labels[label[k]])
                            : (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\"", k ? ", " : "", word[k]);
        if (kind < 2) at += (size_t)snprintf(text + at, sizeof text - at, "], \"tags\": [");
        for (int k = 0; k < count && kind == 0; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\"", k ? ", " : "", labels[label[k]]);
        for (int k = 0; k < count && kind == 1; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", k ? ", " : "", label[k]);
        at += (size_t)snprintf(text + at, sizeof text - at, kind == 3 ? "\n" : "]}\n");
    }
    write_file(name, text);
}

// ---- against seqeval and tokenizers --------------------------------------------------------------------------------

static void read_numbers(const GxJson *list, int32_t *to)
{
    for (int64_t i = 0; i < gx_json_size(list); i++) to[i] = (int32_t)gx_json_int(gx_json_at(list, i));
}

static void check_entities(const GxJson *c)
{
    const GxJson *labels = gx_json_get(c, "labels"), *truth = gx_json_get(c, "truth"),
                 *predicted = gx_json_get(c, "predicted");
    const char *name[20];
    int32_t t[20], p[20];
    GxEntityTags tags;
    GxEntityCounts counts = GX_ZERO;
    GxError err = GX_ZERO;
    for (int64_t i = 0; i < gx_json_size(labels); i++) name[i] = gx_json_string(gx_json_at(labels, i));
    if (!CHECK(gx_entity_tags_open(&tags, name, (int)gx_json_size(labels), &err) == GX_OK, "%s", err.message)) return;
    for (int64_t i = 0; i < gx_json_size(truth); i++) {
        read_numbers(gx_json_at(truth, i), t), read_numbers(gx_json_at(predicted, i), p);
        gx_entities_count(&counts, &tags, t, p, gx_json_size(gx_json_at(truth, i)));
    }
    gx_entity_tags_close(&tags);
    CHECK(counts.right == gx_json_int(gx_json_get(c, "right")) &&
              counts.predicted == gx_json_int(gx_json_get(c, "found")) &&
              counts.truth == gx_json_int(gx_json_get(c, "true")),
          "%s, %s, ...: %ld of %ld right, of %ld", name[0], name[1], (long)counts.right, (long)counts.predicted,
          (long)counts.truth);
    const struct {
        const char *key;
        double value; // quotients of integers: at most the roundings of both sides' formulas apart
    } scores[] = {{"precision", gx_entity_precision(&counts)},
                  {"recall", gx_entity_recall(&counts)},
                  {"f1", gx_entity_f1(&counts)}};
    for (int i = 0; i < 3; i++)
        CHECK(fabs(scores[i].value - gx_json_double(gx_json_get(c, scores[i].key))) <= 4 * DBL_EPSILON, "%s %g",
              scores[i].key, scores[i].value);
}

static void check_tokens(const GxJson *c)
{
    const GxJson *ids = gx_json_get(c, "ids"), *word = gx_json_get(c, "word");
    const GxTaggedReading reading = {"words", "", 1, NULL};
    GxTokenizer tokenizer;
    GxTaggedWords file = GX_ZERO;
    GxLabelledWords t = GX_ZERO;
    GxError err = GX_ZERO;
    CHECK(gx_json_write(c, path_of("words.jsonl"), &err) == GX_OK, "%s", err.message);
    char *text = read_file(path_of("words.jsonl")), *line = text; // one line of it
    for (char *p = text; *p; p++)
        if (*p != '\n') *line++ = *p;
    *line = 0;
    write_file("words.jsonl", text);
    free(text);
    if (!CHECK(gx_tokenizer_open(&tokenizer, gx_json_string(gx_json_get(c, "tokenizer")), &err) == GX_OK, "%s",
               err.message))
        return;
    gx_tokenizer_take_words(&tokenizer);
    CHECK(gx_tagged_words_open(&file, path_of("words.jsonl"), &reading, &err) == GX_OK &&
              gx_labelled_words_open(&t, &file, GX_TEXTS_ALL, 0, &err) == GX_OK &&
              gx_labelled_words_tokenize(&t, &tokenizer, 1000, 0, NULL, 2, &err) == GX_OK,
          "%s", err.message);
    if (CHECK(t.n == 1 && t.length[0] == gx_json_size(ids), "%d tokens, expected %ld", t.n ? t.length[0] : 0,
              (long)gx_json_size(ids)))
        for (int32_t k = 0; k < t.length[0]; k++)
            CHECK(t.ids[0][k] == gx_json_int(gx_json_at(ids, k)) && t.word[0][k] == gx_json_int(gx_json_at(word, k)),
                  "%s: token %d is %d of word %d", file.path, k, t.ids[0][k], t.word[0][k]);
    gx_labelled_words_close(&t), gx_tagged_words_close(&file), gx_tokenizer_close(&tokenizer);
}

static void for_each_case(const char *kind, int least, void (*check)(const GxJson *c))
{
    char *text = read_file("data/ref/words.jsonl");
    int cases = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        GxJson *json = NULL;
        GxError err = GX_ZERO;
        if (!CHECK(gx_json_parse(&json, line, end - line, "words.jsonl", &err) == GX_OK, "%s", err.message)) break;
        if (!strcmp(gx_json_string(gx_json_get(json, "kind")), kind)) check(json), cases++;
        gx_json_free(json);
    }
    CHECK(cases >= least, "%d cases", cases);
    free(text);
}
TEST(entities_are_those_that_seqeval_counts) { for_each_case("entities", 20, check_entities); }
TEST(words_have_the_tokens_that_tokenizers_gives_them) { for_each_case("tokens", 12, check_tokens); }

// ---- the task alone ------------------------------------------------------------------------------------------------

static GxStatus open_task(GxTokenClassification *c, GxContext *g, int64_t T, const char *flags)
{
    char line[4 * GX_PATH], *argv[40] = {(char *)"task"};
    int argc = 1;
    GxConfig config;
    GxTaskSetup setup = GX_ZERO;
    memset(c, 0, sizeof *c), memset(g, 0, sizeof *g);
    g->device = gx_device_cpu(), g->world = 1, g->threads = 2;
    setup.vocab = 1000, setup.seq_len = T, setup.model = "", setup.frames_texts = 1;
    snprintf(line, sizeof line, "--tokenizer %s %s", path_of("tokens"), flags);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    gx_config_open(&config);
    GX_TRY(gx_config_add(&config, "task", gx_token_classification.options.fields,
                         gx_token_classification.options.n_fields, c, &g->error));
    GX_TRY(gx_config_read_args(&config, argc, argv, &g->error));
    return gx_token_classification.data.open(g, c, &setup);
}

// "2 5 6:1 7 3": the tokens of the first training sample, and the labels of its rows.
static const char *sample_text(GxTokenClassification *c, GxContext *g, int64_t T)
{
    static char text[600];
    GxBatch b = GX_ZERO;
    size_t at = 0;
    b.T = T, b.B = 1;
    char *block = (char *)calloc(1, (size_t)gx_token_classification.batch.layout(c, &b, NULL, NULL));
    gx_token_classification.batch.layout(c, &b, block, block);
    gx_token_classification.batch.fill(g, c, &b, block, 0, &g->error);
    text[0] = 0;
    for (int64_t t = 0; t < T - b.padding; t++) {
        const int64_t row = gx_text_find_row(&b.target[0], t);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", t ? " " : "", b.tokens[t]);
        if (row >= 0) at += (size_t)snprintf(text + at, sizeof text - at, ":%d", gx_target_labels(&b.target[0])[row]);
    }
    free(block);
    return text;
}

TEST(a_sentence_has_its_labels_at_first_tokens_or_at_all_and_is_cut)
{
    static const struct {
        const char *more, *text;
        int T, lost;
    } cases[] = {{"", "2 5:0 6:1 7 8:2 3", 16, 0},
                 {"--label_all_tokens true", "2 5:0 6:0 7:1 8:2 3", 16, 0},
                 {"", "2 5:0 6:1 3", 4, 1},
                 {"", "2 5:0 3", 3, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxTokenClassification c;
        GxContext g;
        char flags[700];
        write_file("t.jsonl", i == 1 ? "{\"tokens\": [\"Ada\", \"kurta\", \"met\"], \"ner_tags\": [\"B-PER\", "
                                       "\"B-PER\", \"O\"], \"labels\": 3}\n"
                                     : "{\"tokens\": [\"Ada\", \"kurta\", \"\", \"met\"], \"ner_tags\": [\"B-PER\", "
                                       "\"I-PER\", \"O\", \"O\"]}\n");
        snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --labels B-PER,I-PER,O %s",
                 path_of("t.jsonl"), cases[i].more);
        if (!CHECK(open_task(&c, &g, cases[i].T, flags) == GX_OK, "%s", g.error.message)) continue;
        CHECK(!strcmp(sample_text(&c, &g, cases[i].T), cases[i].text), "case %d: %s", (int)i,
              sample_text(&c, &g, cases[i].T));
        CHECK(c.train.lost == cases[i].lost && c.train.empty == (i != 1), "case %d: %ld lost, %ld empty", (int)i,
              (long)c.train.lost, (long)c.train.empty);
        gx_token_classification.data.close(&c);
    }
}

TEST(conlls_format_json_lines_and_numbers_are_the_same_sentences)
{
    static const char *const names[] = {"a.jsonl", "b.jsonl", "c.conll"};
    GxTokenClassification c[3];
    GxContext g;
    for (int k = 0; k < 3; k++) {
        char flags[700];
        write_sentences(names[k], k == 2 ? 3 : k, 40, 9);
        snprintf(flags, sizeof flags, "--train_data %s --labels O,B-LOC,B-PER,I-PER", path_of(names[k]));
        CHECK(open_task(&c[k], &g, 16, flags) == GX_OK, "%s", g.error.message);
        CHECK(c[k].sentences_hash == c[0].sentences_hash && c[k].train.n == c[0].train.n && c[k].held_out.n > 0 &&
                  c[k].train.n + c[k].held_out.n == 40,
              "%s: %ld sentences", names[k], (long)c[k].train.n);
    }
    for (int k = 0; k < 3; k++) gx_token_classification.data.close(&c[k]);
    write_file("d.conll", "\xEF\xBB\xBF-DOCSTART- -X- O\r\n\r\nAda NNP B-PER\r\nmet O\r\n\r\n \r\nNew York\tB-LOC\r\n");
    const GxTaggedReading reading = {"tokens", "", 0, NULL};
    GxTaggedWords t;
    CHECK(gx_tagged_words_open(&t, path_of("d.conll"), &reading, &g.error) == GX_OK, "%s", g.error.message);
    CHECK(t.n == 2 && t.words == 3 && t.line[0] == 3 && t.line[1] == 7 && gx_tagged_line(&t, 0, 1) == 4 &&
              !strcmp(gx_tagged_word(&t, 2), "New York") && !strcmp(gx_tagged_label(&t, 2), "B-LOC") &&
              !strcmp(gx_tagged_label(&t, 0), "B-PER") && !strcmp(gx_tagged_label(&t, 1), "O"),
          "%ld sentences, %ld words, \"%s\"", (long)t.n, (long)t.words, t.words ? gx_tagged_word(&t, 0) : "");
    gx_tagged_words_close(&t);
}

TEST(what_is_wrong_with_the_data_is_named_with_its_place)
{
    static const char good[] = "{\"tokens\": [\"ada\", \"met\"], \"tags\": [\"B-PER\", \"O\"]}\n";
    static const struct {
        const char *name, *text, *more, *message; // of the second file; "": no second file
    } cases[] = {
        {"v.jsonl", "{\"tokens\": [\"ada\", \"met\"], \"tags\": [\"O\"]}\n", "",
         "v.jsonl:1: \"tokens\" has 2 words, but \"tags\" has 1 label; expected one for each word"},
        {"v.jsonl", "{\"tokens\": [\"ada\"], \"tags\": [\"O\"]}\n{\"tokens\": [\"ada\"], \"tags\": [\"B-LOC\"]}\n", "",
         "v.jsonl:2: word 1 (\"ada\") has the label \"B-LOC\"; expected one of: B-PER, O; these are those of the "
         "training data; --labels a,b,c names others"},
        {"v.conll", "ada B-PER\nmet QQ\n", "", "v.conll:2: word 2 (\"met\") has the label \"QQ\"; expected one of"},
        {"v.jsonl", "{\"tokens\": [], \"tags\": []}\n", "", "v.jsonl:1: \"tokens\" is empty; expected at least one"},
        {"v.jsonl", "{\"tokens\": [\"ada\"], \"tags\": [2]}\n", "",
         "v.jsonl:1: word 1 (\"ada\") has the label 2; expected 0 to 1, the number of one of: B-PER, O"},
        {"v.jsonl", "{\"tokens\": [\"ada\"], \"tags\": [-1]}\n", "", "has the label -1; expected 0 to 1"},
        {"v.jsonl", "{\"tokens\": [\"ada\", \"x\"], \"tags\": [0, \"O\"]}\n", "",
         "v.jsonl:1: label 2 of \"tags\" is a name, but labels above are numbers"},
        {"v.jsonl", "{\"tokens\": [\"ada\"], \"tags\": [\" \"]}\n", "", "v.jsonl:1: label 1 of \"tags\" is blank"},
        {"v.jsonl", "{\"tokens\": [\"ada\"], \"tags\": [null]}\n", "", "label 1 of \"tags\" is null; expected a name"},
        {"v.jsonl", "{\"tokens\": [\"ada\"]}\n", "", "v.jsonl:1: there is no ner_tags, labels or tags, the list of"},
        {"v.jsonl", "{\"words\": [\"ada\"]}\n", "", "v.jsonl:1: there is no \"tokens\", the list of words"},
        {"v.jsonl", "{\"tokens\": \"ada\"}\n", "", "v.jsonl:1: \"tokens\" is a string; expected a list of words"},
        {"v.jsonl", "{\"tokens\": [3]}\n", "", "v.jsonl:1: word 1 of \"tokens\" is an integer; expected a string"},
        {"v.jsonl", "[1]\n", "", "v.jsonl:1: the line is an array; expected an object"},
        {"v.jsonl", "{\"tokens\"\n", "", "v.jsonl:1:9: "},
        {"v.jsonl", "{\"tokens\": [\"\\u200b\"], \"tags\": [\"O\"]}\n", "", "v.jsonl:1: the sentence has no tokens"},
        {"v.jsonl", "\n\n", "", "v.jsonl holds no sentences"},
        {"v.conll", "ada B-PER\nmet\n", "", "v.conll:2: there are no labels, only one column; expected one for each"},
        {"v.conll", "ada\xFF O\n", "", "v.conll:1: the byte 0xFF at 3 is not UTF-8"},
        {"v.csv", "a,b\n", "", "v.csv: a table cannot have a label for each word of a sentence"},
        {"v.conll", "ada O\n", "--label_column tags", "v.conll is read in CoNLL's format, whose first column is the"},
        {"", "", "--labels O,B-PER,O", "--labels: the label \"O\" is listed twice"},
        {"", "", "--labels O", "there is only one label, \"O\", so there is nothing to choose from"},
        {"", "", "--label_column ner_tags", "t.jsonl:1: there is no \"ner_tags\", the list of labels"},
        {"", "", "--validation_fraction 0.9", "of 1 sentence none is left for training with --validation_fraction 0.9"},
        {"", "", "--predict x.jsonl", "the model has no head for labels of tokens (its config.json names no "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxTokenClassification c;
        GxContext g;
        char flags[900];
        write_file("t.jsonl", good);
        if (cases[i].name[0]) write_file(cases[i].name, cases[i].text);
        snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 %s %s %s", path_of("t.jsonl"),
                 cases[i].name[0] ? "--validation_data" : "", cases[i].name[0] ? path_of(cases[i].name) : "",
                 cases[i].more);
        const int is_refused = open_task(&c, &g, 16, flags) != GX_OK;
        CHECK(is_refused && strstr(g.error.message, cases[i].message), "case %d: \"%s\", expected \"%s\"", (int)i,
              g.error.message, cases[i].message);
        gx_token_classification.data.close(&c);
    }
    write_file("n.jsonl", "{\"tokens\": [\"ada\", \"met\"], \"labels\": [1, 0]}\n");
    GxTokenClassification c;
    GxContext g;
    char flags[400];
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0", path_of("n.jsonl"));
    CHECK(open_task(&c, &g, 16, flags) != GX_OK && strstr(g.error.message, "its labels are numbers, and nothing says"),
          "%s", g.error.message);
    gx_token_classification.data.close(&c);
}

// Two of seven sentences are wrong in themselves, one has an unknown label, one has only a space of no width.
TEST(bad_sentences_are_left_out_if_that_is_asked_for)
{
    GxTokenClassification c;
    GxContext g;
    char flags[700];
    write_file("bad.conll", "ada B-PER\nmet O\n\nada\nmet O\n\nkurt B-PER\n. O\n\nkurt B-XYZ\n\n"
                            "\xE2\x80\x8B O\n\nx\xFF O\n\n. O\n");
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_fraction 0 --skip_bad_records true --labels B-PER,O --pack_texts false",
             path_of("bad.conll"));
    CHECK(open_task(&c, &g, 16, flags) == GX_OK, "%s", g.error.message);
    CHECK(c.train.n == 3 && c.skipped.n == 4 && gx_labelled_line(&c.train, 1) == 7 &&
              gx_labelled_line(&c.train, 2) == 16,
          "%ld sentences, %ld left out, %s", (long)c.train.n, (long)c.skipped.n, c.skipped.why[0]);
    CHECK(c.train.count[0] == 2 && c.train.count[1] == 3, "%ld B-PER", (long)c.train.count[0]);
    gx_token_classification.data.close(&c);
}

// ---- runs ----------------------------------------------------------------------------------------------------------

static const char *sizes = "--hidden_size 16 --intermediate_size 16 --num_hidden_layers 2 --num_attention_heads 2 "
                           "--max_position_embeddings 64";

static int run_task(const GxTask *task, const char *name, const char *more) // exit status
{
    char line[6000];
    const int is_new = !strstr(more, "--model ") && !strstr(more, "--resume ");
    snprintf(line, sizeof line,
             "--output_dir %s/%s --seq_len 32 --threads 1 --lr_scheduler_type constant --warmup_steps 0 "
             "--weight_decay 0 --learning_rate 0.01 %s %s %s %s",
             folder, name, more, is_new ? sizes : "", is_new ? "--tokenizer" : "", is_new ? path_of("tokens") : "");
    return run_line(&gx_bert, task, line);
}
static int run(const char *name, const char *more) { return run_task(&gx_token_classification, name, more); }

static void train_names(void) // in folder/names, and a model in the making in folder/young
{
    static int done;
    char flags[900];
    if (done++) return;
    write_sentences("train.jsonl", 0, 300, 3);
    write_sentences("validation.jsonl", 0, 60, 4);
    write_sentences("validation.conll", 3, 60, 4);
    write_sentences("new.jsonl", 2, 60, 4);
    snprintf(flags, sizeof flags, "--train_data %s --validation_data %s --micro_batch_size 1 --max_steps 3",
             path_of("train.jsonl"), path_of("validation.jsonl"));
    CHECK(run("young", flags) == 0, "%s", said.log);
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --micro_batch_size 4 --max_steps 40 --eval_steps 20 "
             "--metric_for_best_model f1",
             path_of("train.jsonl"), path_of("validation.jsonl"));
    CHECK(run("names", flags) == 0, "%s", said.log);
}

TEST(a_bert_learns_labels_of_words_and_says_how_well)
{
    static const char *const lines[] = {"300 sentences to train on",
                                        "60 held out",
                                        "one of 4 labels for each word (B-LOC, B-PER, I-PER, O)",
                                        "always the most frequent label: accuracy ",
                                        " | precision ",
                                        "recall ",
                                        "f1 ",
                                        "truth ↓ as →",
                                        "predicted ",
                                        "/B-PER",
                                        "it is "};
    train_names();
    CHECK(said.log[0] == 0, "%s", said.log);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(said.out, lines[i]), "no \"%s\" in: %s", lines[i], said.out);
    CHECK(metric("f1") == 1 && metric("precision") == 1 && metric("recall") == 1 && metric("accuracy") == 1, "f1 %g",
          metric("f1"));
    CHECK(file_has(path_of("names/checkpoint-40/config.json"), "\"BertForTokenClassification\"") &&
              file_has(path_of("names/checkpoint-40/config.json"), "\"2\": \"I-PER\"") &&
              !file_has(path_of("names/checkpoint-40/config.json"), "problem_type") &&
              file_has(path_of("names/log.jsonl"), "\"eval_f1\": 1"),
          "files");
}

// The longest chain of roundings behind a loss: a sum per matrix product and norm, the attention's keys; the rows.
static double depth(void) { return 2 * (2 * (4 * 16 + 16 + 16 + 8 + 32) + 16) + 400; }

TEST(metrics_depend_on_neither_packing_nor_batches_nor_ranks_nor_modes_nor_the_format)
{
    static const char *const ways[] = {"--micro_batch_size 4",
                                       "--micro_batch_size 4 --pack_texts false",
                                       "--micro_batch_size 2 --ranks 3",
                                       "--dp_batch_size_list 3,1,2 --ranks 3 --pack_texts false",
                                       "--micro_batch_size 4 --ranks 2 --mode tp",
                                       "--micro_batch_size 4 --ranks 2 --mode sp",
                                       "--micro_batch_size 4 --ranks 2 --mode galaxy",
                                       "--micro_batch_size 2 --ranks 2 --tp 1 --pp 2",
                                       "--micro_batch_size 4"};
    char flags[1200];
    GxMetric first[GX_MAX_METRICS];
    train_names();
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        snprintf(flags, sizeof flags, "--model %s --evaluate true --validation_data %s %s",
                 path_of("young/checkpoint-3"), path_of(w == 8 ? "validation.conll" : "validation.jsonl"), ways[w]);
        if (!CHECK(run("none", flags) == 0 && told.metrics == 5, "%s: %s", ways[w], said.log)) continue;
        if (w == 0) memcpy(first, told.metric, sizeof first);
        const float loss = (float)told.metric[0].value;
        test_close("loss", &loss, &first[0].value, 1, test_bound(depth()), 0);
        for (int m = 1; m < 5; m++)
            CHECK(told.metric[m].value == first[m].value, "%s: %s %g, %g", ways[w], first[m].name, told.metric[m].value,
                  first[m].value);
    }
    CHECK(first[3].value > 0 && first[3].value < 1 && first[4].value > first[3].value, "f1 %g", first[3].value);
}

// The labels of a file in the format of a prediction, without spaces.
static void expect_of(const char *path, char *out, size_t size)
{
    char *text = read_file(path);
    size_t at = 0;
    for (const char *p = text; *p; p++)
        if (*p != ' ' && at + 1 < size) out[at++] = *p;
    out[at] = 0;
    for (char *found; (found = strstr(out, "\"tags\"")) != NULL;)
        memmove(found + 8, found + 6, strlen(found + 6) + 1), memcpy(found, "\"labels\"", 8);
    free(text);
}

TEST(predictions_of_a_file_come_in_its_order_with_or_without_labels_on_any_ranks)
{
    static const char *const ways[] = {"", "--ranks 3", "--ranks 2 --mode sp", "--pack_texts false",
                                       "--precision bf16"};
    static char expected[1 << 14];
    char flags[1200];
    train_names();
    expect_of(path_of("validation.jsonl"), expected, sizeof expected);
    for (size_t w = 0; w < 2 * sizeof ways / sizeof *ways; w++) {
        char name[40];
        snprintf(name, sizeof name, "said%d.jsonl", (int)w);
        snprintf(flags, sizeof flags, "--model %s --predict %s --predictions %s --micro_batch_size 3 %s",
                 path_of("names/checkpoint-40"), path_of(w & 1 ? "validation.jsonl" : "new.jsonl"), path_of(name),
                 ways[w / 2]);
        if (!CHECK(run("none", flags) == 0, "%s: %s", flags, said.log)) continue;
        char *text = read_file(path_of(name));
        CHECK(!strcmp(text, expected), "%s: %.300s, expected %.300s", ways[w / 2], text, expected);
        CHECK(!strstr(said.out, "| validation loss") == !(w & 1), "%s", said.out);
        free(text);
    }
    // words that are cut off, and one of which nothing is left
    write_file("long.jsonl", "{\"tokens\": [\"ada\", \"\", \"met\", \"paris\", \".\", \"kurt\"]}\n");
    snprintf(flags, sizeof flags, "--model %s --predict %s --predictions %s", path_of("names/checkpoint-40"),
             path_of("long.jsonl"), path_of("long_said.jsonl"));
    char line[1600];
    snprintf(line, sizeof line, "--output_dir %s/none --seq_len 6 --threads 1 %s", folder, flags);
    CHECK(run_line(&gx_bert, &gx_token_classification, line) == 0, "%s", said.log);
    CHECK(strstr(said.log, "the tokenizer leaves nothing of 1 word, which gets no label") &&
              strstr(said.out, "1 word is cut off"),
          "%s%s", said.log, said.out);
    char *said_long = read_file(path_of("long_said.jsonl"));
    CHECK(strstr(said_long, "\"labels\":[\"B-PER\",null,\"O\",\"B-LOC\",\"O\",null]}"), "%s", said_long);
    free(said_long);
    snprintf(line, sizeof line, "%s --predictions %s", flags, path_of("said.tsv"));
    CHECK(run("none", line) == 1 && strstr(said.log, "its name must end with .jsonl"), "%s", said.log);
}

TEST(a_larger_score_is_better_and_a_larger_loss_is_not)
{
    static const char *const names[] = {"loss", "precision", "recall", "f1", "accuracy"};
    GxTokenClassification c = GX_ZERO;
    GxContext g = GX_ZERO;
    GxMetric metrics[GX_MAX_METRICS];
    CHECK(gx_token_classification.metrics.compute(&g, &c, NULL, metrics) == 5, "others");
    for (int i = 0; i < 5; i++)
        CHECK(!strcmp(metrics[i].name, names[i]) && metrics[i].better == (i ? 1 : -1), "%s: %d", metrics[i].name,
              metrics[i].better);
}

// A validation of such weights says nothing and does not end a run; predictions are not written.
TEST(outputs_that_are_not_finite_are_no_labels)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    char flags[900], name[60];
    int64_t n;
    const float wrong = NAN;
    train_names();
    CHECK(mkdir(path_of("wrong"), 0777) == 0, "no folder");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "young/checkpoint-3/%s", files[i]);
        char *text = read_file(path_of(name));
        snprintf(name, sizeof name, "wrong/%s", files[i]);
        write_file(name, text), free(text);
    }
    char *weights = read_bytes(path_of("young/checkpoint-3/model.safetensors"), &n);
    memcpy(weights + n - (int64_t)sizeof wrong, &wrong, sizeof wrong);
    FILE *f = fopen(path_of("wrong/model.safetensors"), "wb");
    CHECK(f && fwrite(weights, 1, (size_t)n, f) == (size_t)n && fclose(f) == 0, "the weights are not written");
    free(weights);
    snprintf(flags, sizeof flags, "--model %s --evaluate true --validation_data %s", path_of("wrong"),
             path_of("validation.jsonl"));
    CHECK(run("none", flags) == 0 && isnan(metric("f1")) && isnan(metric("accuracy")), "f1 %g, %s", metric("f1"),
          said.log);
    snprintf(flags, sizeof flags, "--model %s --predict %s --predictions %s", path_of("wrong"), path_of("new.jsonl"),
             path_of("wrong.jsonl"));
    CHECK(run("none", flags) != 0 && strstr(said.log, "outputs for this sentence are not finite") &&
              !is_there(path_of("wrong.jsonl")),
          "%s", said.log);
}

TEST(a_trained_head_keeps_its_labels_or_is_renewed)
{
    static const struct {
        const char *data, *more, *says;
        int status;
    } cases[] = {
        {"train.jsonl", "", "one of 4 labels for each word (B-LOC, B-PER, I-PER, O)", 0},
        {"train.jsonl", "--labels B-LOC,B-PER,I-PER,none", "word 2 (\"", 1},
        {"train.jsonl", "--labels O,B-LOC,B-PER,I-PER", "--labels has the labels of the model's head in another", 1},
        {"train.jsonl", "--labels a,b", "--labels names 2, but the model's head has 4 labels (B-LOC, ...)", 1},
        {"odd.jsonl", "", "has the label \"B-ORG\"; expected one of: B-LOC, B-PER, I-PER, O; these are the head's", 1},
        {"odd.jsonl", "--ignore_mismatched_sizes true", "one of 2 labels for each word (B-ORG, O)", 0},
        {"train.jsonl", "--labels O,B-LOC,B-PER,I-PER --ignore_mismatched_sizes true",
         "newly initialized instead of those in", 0},
        {"train.jsonl", "--ignore_mismatched_sizes true", "(B-LOC, B-PER, I-PER, O)", 0},
    };
    char flags[1200];
    train_names();
    write_file("odd.jsonl", "{\"tokens\": [\"ada\", \"met\"], \"tags\": [\"B-ORG\", \"O\"]}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(flags, sizeof flags,
                 "--model %s --train_data %s --validation_fraction 0 --max_steps 1 --overwrite_output_dir true %s",
                 path_of("names/checkpoint-40"), path_of(cases[i].data), cases[i].more);
        const int status = run("again", flags);
        CHECK(status == cases[i].status && (strstr(said.log, cases[i].says) || strstr(said.out, cases[i].says)),
              "case %d: %s%s", (int)i, said.log, said.out);
        CHECK(!strstr(said.out, "newly initialized") == !(i == 5 || i == 6), "case %d: %s", (int)i, said.out);
    }
    // a head for labels of whole texts has the same names, but is another
    write_file("texts.tsv", "text\tlabel\nada\ta\nkurt\tb\nparis\tc\nwien\td\n");
    snprintf(flags, sizeof flags, "--train_data %s --validation_fraction 0 --max_steps 1", path_of("texts.tsv"));
    CHECK(run_task(&gx_classification, "texts", flags) == 0, "%s", said.log);
    snprintf(flags, sizeof flags, "--model %s --train_data %s --max_steps 1 --overwrite_output_dir true",
             path_of("texts/checkpoint-1"), path_of("train.jsonl"));
    CHECK(run("again", flags) == 0 && strstr(said.out, "which are of another head: classifier.weight"), "%s%s",
          said.log, said.out);
    snprintf(flags, sizeof flags, "--model %s --train_data %s --validation_fraction 0 --max_steps 1",
             path_of("names/checkpoint-40"), path_of("texts.tsv"));
    CHECK(run_task(&gx_classification, "texts2", flags) == 0 &&
              strstr(said.out, "which are of another head: classifier.weight"),
          "%s%s", said.log, said.out);
    snprintf(flags, sizeof flags, "--model %s --predict %s", path_of("texts/checkpoint-1"), path_of("new.jsonl"));
    CHECK(run("none", flags) == 1 && strstr(said.log, "the model has no head for labels of tokens"), "%s", said.log);
}

TEST(labels_that_are_not_of_entities_or_never_occur_are_a_warning)
{
    char flags[1200];
    train_names();
    snprintf(flags, sizeof flags,
             "--train_data %s --validation_data %s --max_steps 1 --labels B-LOC,B-PER,I-PER,O,NN,B-ORG "
             "--overwrite_output_dir true",
             path_of("train.jsonl"), path_of("validation.jsonl"));
    CHECK(run("odd", flags) == 0 &&
              strstr(said.log, "2 of 6 labels never occur in the training data, and cannot be learned: NN, ...") &&
              strstr(said.log, "the label \"NN\" is not one of an entity"),
          "%s", said.log);
}

TEST(a_resumed_run_goes_on_as_the_uninterrupted_one)
{
    char flags[1200], *whole, *again;
    int64_t bytes, others;
    train_names();
    snprintf(flags, sizeof flags, "--train_data %s --micro_batch_size 2 --max_steps 6 --save_steps 3",
             path_of("train.jsonl"));
    CHECK(run("whole", flags) == 0, "%s", said.log);
    snprintf(flags, sizeof flags, "--train_data %s --micro_batch_size 2 --max_steps 6 --resume %s",
             path_of("train.jsonl"), path_of("whole/checkpoint-3"));
    CHECK(run("resumed", flags) == 0 && !said.log[0], "%s", said.log);
    whole = read_bytes(path_of("whole/checkpoint-6/model.safetensors"), &bytes);
    again = read_bytes(path_of("resumed/checkpoint-6/model.safetensors"), &others);
    CHECK(bytes > 1000 && bytes == others && !memcmp(whole, again, (size_t)bytes), "other weights");
    free(whole), free(again);
    snprintf(flags, sizeof flags,
             "--train_data %s --micro_batch_size 2 --max_steps 6 --label_all_tokens true --resume %s",
             path_of("train.jsonl"), path_of("whole/checkpoint-3"));
    CHECK(run("resumed2", flags) == 1 && strstr(said.log, "was trained on other sentences or labels"), "%s", said.log);
}

TEST(a_plan_counts_what_a_run_takes)
{
    char flags[1200];
    train_names();
    for (int r = 1; r <= 3; r++) { // a warning says where it does not
        snprintf(flags, sizeof flags,
                 "--train_data %s --validation_data %s --micro_batch_size 2 --max_steps 2 --ranks %d "
                 "--precision %s --overwrite_output_dir true",
                 path_of("train.jsonl"), path_of("validation.jsonl"), r, r == 2 ? "bf16" : "fp32");
        CHECK(run("plan", flags) == 0 && !said.log[0], "%d ranks: %s", r, said.log);
    }
    CHECK(run("dry", "--dry_run true --train_data /nowhere/x.jsonl") == 0 && !said.log[0], "%s", said.log);
    CHECK(run("none", "--max_steps 1") == 1 && strstr(said.log, "--train_data is missing"), "%s", said.log);
    CHECK(run("none", "--train_data x.jsonl --seq_len 2") == 1, "%s", said.log);
}

// ---- DistilBERT ----------------------------------------------------------------------------------------------------

TEST(a_distilbert_learns_masked_tokens_labels_and_labels_of_words_and_is_loaded_again)
{
    char flags[1200], text[4000] = "";
    train_names();
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s met %s .\n%s", i & 1 ? "ada" : "kurt",
                 i & 2 ? "paris" : "wien", i % 5 == 4 ? "\n" : "");
    write_file("lines.txt", text);
    snprintf(flags, sizeof flags,
             "--model_type distilbert --train_data %s --max_steps 30 --micro_batch_size 4 --hidden_dropout_prob 0 "
             "--attention_probs_dropout_prob 0 --classifier_dropout 0.25",
             path_of("lines.txt"));
    CHECK(run_task(&gx_masked_lm, "distilled", flags) == 0 && told.window[30] < told.window[1] - 0.5, "%s loss %g, %g",
          said.log, told.window[1], told.window[30]);
    const char *config = path_of("distilled/checkpoint-30/config.json");
    CHECK(file_has(config, "\"DistilBertForMaskedLM\"") && file_has(config, "\"dim\": 16") &&
              file_has(config, "\"seq_classif_dropout\": 0.25") && !file_has(config, "type_vocab_size") &&
              !file_has(config, "layer_norm_eps"),
          "config.json");
    snprintf(flags, sizeof flags, "--model %s --train_data %s --validation_data %s --max_steps 40 --micro_batch_size 4",
             path_of("distilled/checkpoint-30"), path_of("train.jsonl"), path_of("validation.jsonl"));
    CHECK(run("distilled_names", flags) == 0 && metric("f1") > 0.9 && strstr(said.out, "newly initialized, not in") &&
              strstr(said.out, "vocab_projector"),
          "f1 %g %s%s", metric("f1"), said.log, said.out);
    const double f1 = metric("f1");
    snprintf(flags, sizeof flags, "--model %s --evaluate true --validation_data %s",
             path_of("distilled_names/checkpoint-40"), path_of("validation.jsonl"));
    CHECK(run("none", flags) == 0 && metric("f1") == f1, "f1 %g, %g %s", f1, metric("f1"), said.log);
    write_file("pairs.tsv", "text\ttext2\tlabel\nada met\tparis\ta\nkurt met\twien\tb\nada\tparis\ta\nkurt\twien\tb\n");
    snprintf(flags, sizeof flags, "--model %s --train_data %s --validation_fraction 0 --max_steps 30",
             path_of("distilled/checkpoint-30"), path_of("pairs.tsv"));
    CHECK(run_task(&gx_classification, "distilled_texts", flags) == 0 && told.window[30] < 0.2 &&
              told.window[1] > 0.4 && strstr(said.out, "pre_classifier.weight"),
          "loss %g, %g %s%s", told.window[1], told.window[30], said.log, said.out);
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_tokenizer); }
