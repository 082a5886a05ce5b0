// test_records.cu: files of records and their labels. Everything is written below one temporary folder.
#include "galaxy/data/chat_tokens.h"
#include "galaxy/data/corpus.h"
#include "galaxy/data/labels.h"
#include "galaxy/data/records.h"
#include "test/test.h"
#include <sys/stat.h>
#include <unistd.h>

// ---- words of these tests ------------------------------------------------------------------------------------------

static char root[GX_PATH]; // made in main, removed there
static int shrinks;        // n: a file loses its last byte before it is read for the n-th time

// Takes the place of pread in the library (the linker's --wrap).
ssize_t __real_pread(int fd, void *out, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *out, size_t bytes, off_t offset)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    if (shrinks && --shrinks == 0 && (fstat(fd, &st) != 0 || truncate(path, st.st_size - 1) != 0)) abort();
    return __real_pread(fd, out, bytes, offset);
}

static const char *put(const char *name, const char *text, int64_t bytes)
{
    static char path[GX_PATH];
    snprintf(path, GX_PATH, "%.600s/%.300s", root, name);
    FILE *f = fopen(path, "wb");
    if (!CHECK(f != NULL, "cannot create %s", path)) return path;
    fwrite(text, 1, (size_t)bytes, f);
    fclose(f);
    return path;
}

enum { TEXT, TEXT2, LABEL, COLUMNS };
static const GxRecordColumn columns[COLUMNS] = {{"text", GX_COLUMN_REQUIRED, 0, "text_column"},
                                                {"text2", GX_COLUMN_OPTIONAL, 0, "text2_column"},
                                                {"label", GX_COLUMN_REQUIRED, 1, "label_column"}};

static GxStatus open_text(GxRecords *r, const char *name, const char *text, GxError *err)
{
    return gx_records_open(r, put(name, text, (int64_t)strlen(text)), GX_RECORDS_BY_NAME, columns, COLUMNS, NULL, err);
}

static int opened(GxRecords *r, const char *name, const char *text)
{
    GxError err = GX_ZERO;
    return CHECK(open_text(r, name, text, &err) == GX_OK, "%s: %s", name, err.message);
}

static void is(const GxRecords *r, int64_t i, int column, const char *expected)
{
    if (!CHECK(i < r->n, "record %ld of %ld", (long)i, (long)r->n)) return;
    CHECK(!strcmp(gx_record(r, i, column), expected), "record %ld, column %d: \"%s\", expected \"%s\"", (long)i, column,
          gx_record(r, i, column), expected);
}

// The message names the file and the line, and holds `part`.
static void says(const GxError *err, const char *name, int line, const char *part)
{
    char where[200];
    snprintf(where, sizeof where, line ? "%s:%d: " : "%s", name, line);
    if (part[0] == ':') snprintf(where, sizeof where, "%s:%d%s", name, line, part); // the parser's, with its column
    CHECK(strstr(err->message, where) && strstr(err->message, part), "\"%s\" does not hold \"%s\" and \"%s\"",
          err->message, where, part);
}

static void refuses(const char *name, const char *text, int64_t bytes, int line, const char *part)
{
    GxError err = GX_ZERO;
    GxRecords r;
    const char *path = put(name, text, bytes < 0 ? (int64_t)strlen(text) : bytes);
    const GxStatus status = gx_records_open(&r, path, GX_RECORDS_BY_NAME, columns, COLUMNS, NULL, &err);
    CHECK(status == GX_ERR_FORMAT, "%s (\"%s\"): status %s", part, text, gx_status_name(status));
    says(&err, name, line, part);
    CHECK(!r.text && !r.at && !r.n, "%s: something is left", part);
}

#ifdef GX_WITH_JANSSON
#define NEEDS_JSON
#else
#define NEEDS_JSON SKIP("built without jansson")
#endif

// ---- files that are read -------------------------------------------------------------------------------------------

TEST(a_tsv_gives_its_columns_by_name)
{
    GxRecords r;
    if (!opened(&r, "a.tsv", "label\tid\ttext\tnote\n1\tx\tone \"quoted\" text\t\n 2\t\t two \ty\n")) return;
    CHECK(r.n == 2 && r.has[TEXT] && r.has[LABEL] && !r.has[TEXT2], "%ld records", (long)r.n);
    is(&r, 0, TEXT, "one \"quoted\" text"), is(&r, 0, LABEL, "1"), is(&r, 0, TEXT2, "");
    is(&r, 1, TEXT, " two "), is(&r, 1, LABEL, " 2"); // spaces stay
    gx_records_close(&r);
}

TEST(lines_may_end_as_in_windows_and_the_last_one_not_at_all)
{
    GxRecords unix_lines, windows, open_end;
    if (!opened(&unix_lines, "a.tsv", "text\tlabel\none\t1\ntwo\t2\n") ||
        !opened(&windows, "b.tsv", "\xEF\xBB\xBFtext\tlabel\r\none\t1\r\ntwo\t2\r\n\r\n\n") ||
        !opened(&open_end, "c.TSV", "text\tlabel\none\t1\ntwo\t2"))
        return;
    GxRecords *all[] = {&unix_lines, &windows, &open_end};
    for (int k = 0; k < 3; k++) {
        CHECK(all[k]->n == 2 && !all[k]->has[TEXT2], "%ld records", (long)all[k]->n);
        is(all[k], 0, TEXT, "one"), is(all[k], 0, LABEL, "1"), is(all[k], 0, TEXT2, "");
        is(all[k], 1, TEXT, "two"), is(all[k], 1, LABEL, "2"), is(all[k], 1, TEXT2, "");
        gx_records_close(all[k]);
    }
}

TEST(json_lines_give_the_records_of_the_same_tsv)
{
    NEEDS_JSON;
    GxRecords t, j;
    if (!opened(&t, "a.tsv", "text\ttext2\tlabel\n\xC3\xA4 \"b\"\tc\t-3\nd\te/\tgood\n") ||
        !opened(&j, "a.jsonl",
                "{\"text\": \"\\u00e4 \\\"b\\\"\", \"more\": [1, {}], \"text2\": \"c\", \"label\": -3}\r\n"
                "{\"label\": \"good\", \"text2\": \"e\\/\", \"text\": \"d\"}\n\n"))
        return;
    CHECK(t.n == 2 && j.n == 2 && t.has[TEXT2] && j.has[TEXT2], "%ld and %ld records", (long)t.n, (long)j.n);
    for (int64_t i = 0; i < 2; i++)
        for (int c = 0; c < COLUMNS; c++) is(&j, i, c, gx_record(&t, i, c));
    is(&t, 0, TEXT, "\xC3\xA4 \"b\"");
    gx_records_close(&t), gx_records_close(&j);
}

TEST(a_string_in_json_may_hold_tabs_and_ends_of_lines)
{
    NEEDS_JSON;
    GxRecords r;
    if (!opened(&r, "a.ndjson", "{\"text\": \"a\\tb\\nc\", \"label\": 0.5}\n{\"text\": \"d\", \"label\": 1e300}"))
        return;
    CHECK(gx_record_line(&r, 1) == 2, "record 1 on line %ld", (long)gx_record_line(&r, 1));
    is(&r, 0, TEXT, "a\tb\nc"), is(&r, 0, LABEL, "0.5"), is(&r, 1, LABEL, "1e+300");
    gx_records_close(&r);
}

TEST(the_option_wins_over_the_name)
{
    GxError err = GX_ZERO;
    GxRecords r;
    const char *text = "text\tlabel\none\t1\n", *path = put("a.jsonl", text, (int64_t)strlen(text));
    CHECK(gx_records_open(&r, path, GX_RECORDS_TSV, columns, COLUMNS, NULL, &err) == GX_OK, "%s", err.message);
    is(&r, 0, TEXT, "one");
    gx_records_close(&r);
    path = put("a.txt", text, (int64_t)strlen(text));
    CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, columns, COLUMNS, NULL, &err) == GX_ERR_ARGUMENT,
          "it was opened");
    says(&err, "a.txt", 0, "ends with .csv, .tsv or .jsonl");
}

TEST(many_records_keep_their_places)
{
    enum { N = 5000 };
    char *text = (char *)malloc(N * 40), *p = text;
    GxRecords r;
    p += sprintf(p, "text2\tlabel\ttext\n");
    for (int i = 0; i < N; i++) p += sprintf(p, "%d\t%d\ttext %d\n", i * 7, i % 3, i);
    if (opened(&r, "a.tsv", text)) {
        CHECK(r.n == N, "%ld records", (long)r.n);
        for (int i = 0; i < N; i++) {
            char expected[40];
            snprintf(expected, sizeof expected, "text %d", i), is(&r, i, TEXT, expected);
            snprintf(expected, sizeof expected, "%d", i * 7), is(&r, i, TEXT2, expected);
            CHECK(gx_record_line(&r, i) == i + 2, "record %d on line %ld", i, (long)gx_record_line(&r, i));
        }
        gx_records_close(&r);
    }
    free(text);
}

TEST(sparse_columns_may_be_empty_anywhere)
{
    static const GxRecordColumn sparse[] = {
        {"a", GX_COLUMN_REQUIRED, 0, NULL}, {"b", GX_COLUMN_SPARSE, 0, NULL}, {"c", GX_COLUMN_SPARSE, 0, NULL}};
    static const char *const texts[] = {"a\tb\n1\t\n2\tx\n", "{\"a\":\"1\"}\n{\"a\":\"2\", \"b\":\"x\", \"c\":null}\n"};
    for (int k = 0; k < 2; k++) {
        GxError err = GX_ZERO;
        GxRecords r;
#ifndef GX_WITH_JANSSON
        if (k == 1) continue;
#endif
        const char *path = put(k ? "a.jsonl" : "a.tsv", texts[k], (int64_t)strlen(texts[k]));
        if (!CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, sparse, 3, NULL, &err) == GX_OK, "%s", err.message))
            continue;
        is(&r, 0, 1, ""), is(&r, 1, 1, "x"), is(&r, 0, 2, ""), is(&r, 1, 2, "");
        CHECK(r.has[0] && r.has[1] && !r.has[2], "%d %d %d", r.has[0], r.has[1], r.has[2]);
        gx_records_close(&r);
    }
}

TEST(a_list_of_labels_reads_as_labels_between_commas)
{
    NEEDS_JSON;
    static const GxRecordColumn several[] = {{"text", GX_COLUMN_REQUIRED, 0, NULL},
                                             {"label", GX_COLUMN_SPARSE, GX_COLUMN_SEVERAL, NULL}};
    static const char good[] = "{\"text\":\"a\",\"label\":[\"sport\",\"two words\"]}\n"
                               "{\"text\":\"a\",\"label\":[]}\n{\"text\":\"a\",\"label\":[3,\"b\",0.5]}\n"
                               "{\"text\":\"a\",\"label\":\"x, y\"}\n{\"text\":\"a\",\"label\":7}\n"
                               "{\"text\":\"a\",\"label\":null}\n{\"text\":\"a\"}\n";
    static const char *const expected[] = {"sport, two words", "", "3, b, 0.5", "x, y", "7", "", ""};
    static const char *const bad[][2] = {{"[\"a,b\"]", "\"label\" has \"a,b\" in its list; expected names without"},
                                         {"[\"a\", \" \"]", "\"label\" has \" \" in its list; expected names"},
                                         {"[[\"a\"]]", "\"label\" has an array in its list; expected strings or"},
                                         {"[null]", "\"label\" has null in its list"}};
    GxError err = GX_ZERO;
    GxRecords r;
    const char *path = put("x.jsonl", good, (int64_t)strlen(good));
    if (CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, several, 2, NULL, &err) == GX_OK && r.n == 7, "%s",
              err.message))
        for (int i = 0; i < 7; i++) is(&r, i, 1, expected[i]);
    gx_records_close(&r);
    for (int i = 0; i < 4; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"text\": \"a\", \"label\": [\"a\"]}\n{\"text\": \"a\", \"label\": %s}\n",
                 bad[i][0]);
        path = put("x.jsonl", text, (int64_t)strlen(text));
        gx_error_clear(&err);
        CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, several, 2, NULL, &err) == GX_ERR_FORMAT, "%s", bad[i][0]);
        says(&err, "x.jsonl", 2, bad[i][1]);
    }
}

TEST(the_hash_is_of_every_byte)
{
    GxRecords a, b, c;
    if (!opened(&a, "a.tsv", "text\tlabel\none\t1\n") || !opened(&b, "b.tsv", "text\tlabel\none\t1\n") ||
        !opened(&c, "c.tsv", "text\tlabel\none\t1\r"))
        return;
    CHECK(a.hash == b.hash && a.hash != c.hash && a.hash, "%lx %lx %lx", (long)a.hash, (long)b.hash, (long)c.hash);
    gx_records_close(&a), gx_records_close(&b), gx_records_close(&c);
}

// ---- files that are refused ----------------------------------------------------------------------------------------

TEST(what_is_no_tsv_is_refused_by_line)
{
    refuses("x.tsv", "", -1, 0, "x.tsv is empty");
    refuses("x.tsv", "\xEF\xBB\xBF", -1, 0, "x.tsv is empty");
    refuses("x.tsv", "text\tlabel\n", -1, 0, "holds no records");
    refuses("x.tsv", "text\tlabel\n\n\r\n", -1, 0, "holds no records");
    refuses("x.tsv", "\ntext\tlabel\n", -1, 1, "expected the names of the columns");
    refuses("x.tsv", "text,label\na,b\n", -1, 1,
            "no column \"text\"; the first line names, separated by tabs: text,label");
    refuses("x.tsv", "text\tlable\na\tb\n", -1, 1,
            "no column \"label\"; the first line names, separated by tabs: text, lable");
    refuses("x.tsv", "text\tlabel\ttext\na\tb\tc\n", -1, 1, "two columns have the name \"text\"");
    refuses("x.tsv", "text\tlabel\na\t1\nb\n", -1, 3, "1 column; expected 2 (text, label)");
    refuses("x.tsv", "text\tlabel\na\t1\nb\t1\t\n", -1, 3,
            "3 columns; expected 2 (text, label) separated by tabs: a text cannot");
    refuses("x.tsv", "text\tlabel\na\t1\n\t1\n", -1, 3, "\"text\" is empty; expected text");
    refuses("x.tsv", "text\tlabel\n \r \t1\n", -1, 2, "\"text\" is empty; expected text");
    refuses("x.tsv", "text\tlabel\na\t\n", -1, 2, "\"label\" is empty");
    refuses("x.tsv", "text\ttext2\tlabel\na\tb\tc\na\t\tc\n", -1, 3, "\"text2\" is empty; expected it in every record");
    refuses("x.tsv", "text\tlabel\na\t1\n\nb\t2\n", -1, 3, "the line is empty, but others follow");
}

TEST(what_is_no_text_is_refused_by_line)
{
    refuses("x.tsv", "text\tlabel\na\0b\t1\n", 17, 2, "a byte of value 0");
    refuses("x.tsv", "text\tlabel\na\t1\nb\xE4\t1\n", -1, 3, "the byte 0xE4 at 16 is not UTF-8");
    refuses("x.tsv", "text\tlabel\na\t1\nb\t\xE2\x82", -1, 3, "the byte 0xE2 at 17 is not UTF-8");
    refuses("x.jsonl", "{\"text\": \"\xFF\", \"label\": 1}\n", -1, 1, "the byte 0xFF at 10 is not UTF-8");
}

TEST(what_is_no_json_is_refused_by_line)
{
    NEEDS_JSON;
    refuses("x.jsonl", "", -1, 0, "x.jsonl is empty");
    refuses("x.jsonl", "\n\n", -1, 0, "holds no records");
    refuses("x.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\" \"label\": 1}\n", -1, 2, ":20: '}' expected");
    refuses("x.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"", -1, 2,
            ":12: '}' expected near end of file");
    refuses("x.jsonl", "[\"text\", \"a\"]\n", -1, 1, "the line is an array; expected an object");
    refuses("x.jsonl", "{\"text\": 3, \"label\": 1}\n", -1, 1, "\"text\" is an integer; expected a string");
    refuses("x.jsonl", "{\"text\": \"a\", \"label\": true}\n", -1, 1,
            "\"label\" is true or false; expected a string or");
    refuses("x.jsonl", "{\"text\": \"a\", \"label\": [1]}\n", -1, 1,
            "\"label\" is an array; expected a string or a number; to give a text several labels, use");
    refuses("x.jsonl", "{\"text\": [\"a\"], \"label\": 1}\n", -1, 1, "\"text\" is an array; expected a string");
    refuses("x.jsonl", "{\"text\": null, \"label\": 1}\n", -1, 1, "\"text\" is null, so there is no text");
    refuses("x.jsonl", "{\"text\": \"a\", \"lable\": 1}\n", -1, 1, "there is no \"label\"; the line has: text, lable");
    refuses("x.jsonl", "{}\n", -1, 1, "there is no \"text\"; the line has: nothing");
    refuses("x.jsonl", "{\"text\": \"a\", \"label\": null}\n", -1, 1,
            "\"label\" is null, so there is no label; expected a string or a number");
    refuses("x.jsonl", "{\"text\": \"\", \"label\": 1}\n", -1, 1, "\"text\" is empty");
    refuses("x.jsonl", "{\"text\": \"a\\u0000\", \"label\": 1}\n", -1, 1, ":12: a text has \\u0000");
    refuses("x.jsonl", "{\"text\":\"a\",\"text2\":\"b\",\"label\":1}\n{\"text\":\"a\",\"label\":1}\n", -1, 2,
            "\"text2\" is empty; expected it in every record, or in none");
    refuses("x.jsonl", "{\"text\":\"a\",\"label\":1}\n{\"text\":\"a\",\"text2\":\"b\",\"label\":1}\n", -1, 2,
            "\"text2\" is here, but not in the records above");
    refuses("x.jsonl", "{\"text\":\"a\",\"label\":1}\n\n{\"text\":\"a\",\"label\":1}\n", -1, 2, "the line is empty");
}

// Lines 1 to n of a file, of which each k-th is `bad`, and the others `good`.
static char *some_wrong(const char *first, const char *good, const char *bad, int n, int k)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    for (int i = 1; out && i <= n; i++) fputs(i == 1 && first ? first : i % k ? good : bad, out);
    if (out) fclose(out);
    return text;
}

TEST(quotation_marks_around_a_whole_column_are_refused_and_around_some_fields_they_are_theirs)
{
    GxError err = GX_ZERO;
    GxRecords r;
    CHECK(open_text(&r, "q.tsv", "text\tlabel\n\"a\"\t\"x\"\n\"b\"\t\"y\"\n", &err) == GX_ERR_FORMAT, "%s",
          err.message);
    says(&err, "q.tsv", 0, "all 2 fields of the column \"text\" are in quotation marks");
    gx_error_clear(&err);
    CHECK(open_text(&r, "q.tsv", "text\tlabel\na\t\"x\"\nb\t\"y\"\n", &err) == GX_ERR_FORMAT, "%s", err.message);
    says(&err, "q.tsv", 0, "the column \"label\" are in quotation marks, but the names in the first line do not");
    gx_error_clear(&err);
    if (!opened(&r, "q.tsv", "text\tlabel\n\"a\"\tx\nb\t\"y\n")) return;
    is(&r, 0, TEXT, "\"a\""), is(&r, 1, LABEL, "\"y");
    gx_records_close(&r);
    if (!opened(&r, "q.tsv", "text\tlabel\n\"a\"\tx\n")) return; // one alone may be a quotation
    gx_records_close(&r);
}

TEST(labels_that_differ_by_spaces_alone_are_refused)
{
    static const GxRecordColumn label[] = {{"label", GX_COLUMN_REQUIRED, 1, NULL}};
    static const struct {
        const char *text, *words; // NULL: they are fine
    } cases[] = {{"label\ngood\nbad\ngood \n",
                  "the labels \"good \" and \"good\" of the column \"label\" differ only by spaces"},
                 {"label\ngood\n good\n", "the labels \" good\" and \"good\""},
                 {"label\n good\n bad\n", NULL},
                 {"label\ngo od\ngood\n", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxError err = GX_ZERO;
        GxRecords r;
        GxLabels l;
        const char *path = put("l.tsv", cases[i].text, (int64_t)strlen(cases[i].text));
        if (!CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, label, 1, NULL, &err) == GX_OK, "%s", err.message))
            continue;
        const GxStatus status = gx_labels_make(&l, &r, 0, GX_LABEL_CLASS, &err);
        if (cases[i].words) says(&err, "l.tsv", 0, cases[i].words);
        else CHECK(status == GX_OK && l.n == 2, "%s", err.message);
        gx_labels_close(&l), gx_records_close(&r);
    }
}

TEST(of_several_records_that_are_wrong_the_first_ones_are_named_and_all_are_counted)
{
    static const struct {
        const char *name, *first, *good, *bad;
        int n, k;
        const char *words;
    } cases[] = {{"x.jsonl", NULL, "{\"text\": \"a\", \"label\": 1}\n", "{\"text\": \"a\"}\n", 40, 20,
                  "x.jsonl:20: there is no \"label\"; the line has: text; --label_column NAME names another one (2 of "
                  "the records in lines 1 to 40 are wrong: lines 20, 40)"},
                 {"x.jsonl", NULL, "{\"text\": \"a\", \"label\": 1}\n", "{\"text\" \"a\"}\n", 3000, 3,
                  " (1000 of the records in lines 1 to 3000 are wrong: lines 3, 6, 9, 12, 15 and others)"},
                 {"x.jsonl", "[]\n", "{\"text\": \"a\", \"label\": 1}\n", "[]\n", 30000, 7,
                  "x.jsonl:1: the line is an array; expected an object (1429 of the records in lines 1 to 10001 are "
                  "wrong: lines 1, 7, 14, 21, 28 and others)"},
                 {"x.tsv", "text\tlabel\n", "a\t1\n", "a\n", 10, 4,
                  "x.tsv:4: 1 column; expected 2 (text, label) separated by tabs (2 of the records in lines 2 to 10 "
                  "are wrong: lines 4, 8)"},
                 {"x.tsv", "text\tlabel\n", "a\t1\n", " \t1\n", 10, 10, "x.tsv:10: \"text\" is empty; expected text"}};
    NEEDS_JSON;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = some_wrong(cases[i].first, cases[i].good, cases[i].bad, cases[i].n, cases[i].k);
        GxError err = GX_ZERO;
        GxRecords r;
        CHECK(open_text(&r, cases[i].name, text, &err) == GX_ERR_FORMAT && strstr(err.message, cases[i].words), "%s",
              err.message);
        const char *end = strstr(err.message, cases[i].words);
        CHECK(end && !end[strlen(cases[i].words)], "more is said: %s", err.message);
        CHECK(!r.text && !r.at && !r.n, "something is left");
        free(text);
    }
}

TEST(of_several_conversations_labels_and_texts_that_are_wrong_the_first_ones_are_named)
{
    static const char good[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                               "\"content\": \"b\"}]}\n";
    static const GxRecordColumn label[] = {{"label", GX_COLUMN_REQUIRED, 1, NULL}};
    const GxChatReading how = {gx_chat_format("chatml"), NULL, NULL};
    const GxTokenizer bytes = gx_tokenizer_bytes();
    GxError err = GX_ZERO;
    GxChatTokens c;
    GxCorpus corpus;
    GxRecords r;
    GxLabels l;
    NEEDS_JSON;
    char *text = some_wrong(NULL, good, "{\"messages\": \"x\"}\n", 700, 100);
    CHECK(gx_chat_tokens_open(&c, put("c.jsonl", text, (int64_t)strlen(text)), &bytes, &how, 1000, 1, &err) ==
              GX_ERR_FORMAT,
          "%s", err.message);
    says(&err, "c.jsonl", 100,
         "\"messages\" is a string; expected a list of 1 to 1048576 turns (7 of the records in lines 1 to 700 are "
         "wrong: lines 100, 200, 300, 400, 500 and others)");
    gx_error_clear(&err), free(text);
    text = some_wrong(NULL, "{\"text\": \"a\"}\n", "{\"text\": 7}\n", 10, 4);
    CHECK(gx_corpus_open(&corpus, put("c.jsonl", text, (int64_t)strlen(text)), NULL, &bytes, 1, NULL, &err) ==
              GX_ERR_FORMAT,
          "%s", err.message);
    says(&err, "c.jsonl", 4,
         "\"text\" is an integer; expected a string (2 of the records in lines 1 to 10 are wrong: lines 4, 8)");
    gx_error_clear(&err), free(text);
    text = some_wrong("label\n", "good\n", "a,,b\n", 10, 4);
    const char *path = put("l.tsv", text, (int64_t)strlen(text));
    CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, label, 1, NULL, &err) == GX_OK, "%s", err.message);
    CHECK(gx_labels_make(&l, &r, 0, GX_LABEL_SEVERAL, &err) == GX_ERR_FORMAT, "%s", err.message);
    says(&err, "l.tsv", 4,
         "a label is empty; expected a name before and after every comma (2 of the records in lines 2 to 10 are wrong: "
         "lines 4, 8)");
    gx_records_close(&r), free(text);
}

TEST(a_file_that_shrinks_while_it_is_read_is_refused)
{
    GxError err = GX_ZERO;
    GxRecords r;
    shrinks = 3; // first it is looked at: is it a pointer to a file, what does it begin with
    CHECK(open_text(&r, "a.tsv", "text\tlabel\na\t1\n", &err) == GX_ERR_IO && !shrinks, "%s", err.message);
    says(&err, "a.tsv", 0, "it was shortened while it was read");
}

TEST(messages_are_short_and_clean_whatever_the_file_holds)
{
    char text[3000] = "";
    for (int i = 0; i < 500; i++) strcat(text, i ? "\tn\x1B\xC3\xA4" : "n");
    GxError err = GX_ZERO;
    GxRecords r;
    CHECK(open_text(&r, "a.tsv", text, &err) == GX_ERR_FORMAT, "it was opened");
    says(&err, "a.tsv", 1, "n, n?\xC3\xA4, n?\xC3\xA4");
    CHECK(strlen(err.message) < 500 && strstr(err.message, "…") && !strchr(err.message, 0x1B), "%s", err.message);
    for (const char *p = err.message; *p; p += gx_utf8_bytes(p))
        if (!CHECK(gx_utf8_bytes(p) > 0, "not UTF-8: %s", err.message)) break;
}

TEST(columns_that_cannot_be_wanted_are_refused)
{
    GxError err = GX_ZERO;
    GxRecords r;
    const char *path = put("a.tsv", "text\na\n", 7);
    CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, columns, 0, NULL, &err) == GX_ERR_ARGUMENT, "0 columns");
    gx_error_clear(&err);
    CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, columns, 17, NULL, &err) == GX_ERR_ARGUMENT, "17 columns");
}

// ---- labels --------------------------------------------------------------------------------------------------------

// A file with these labels.
static int labelled(GxRecords *r, const char *const *label, int n)
{
    static const GxRecordColumn sparse[] = {{"text", GX_COLUMN_REQUIRED, 0, NULL},
                                            {"text2", GX_COLUMN_SPARSE, 0, NULL},
                                            {"label", GX_COLUMN_SPARSE, 1, NULL}};
    GxError err = GX_ZERO;
    char text[4096] = "text\tlabel\n";
    for (int i = 0; i < n; i++) snprintf(text + strlen(text), sizeof text - strlen(text), "x\t%s\n", label[i]);
    const char *path = put("l.tsv", text, (int64_t)strlen(text));
    return CHECK(gx_records_open(r, path, GX_RECORDS_BY_NAME, sparse, 3, NULL, &err) == GX_OK, "%s", err.message);
}

static void make_labels(GxLabels *l, GxLabelKind kind, const char *const *label, int n, const char *names)
{
    GxError err = GX_ZERO;
    GxRecords r;
    char found[400] = "";
    if (!labelled(&r, label, n)) return;
    if (CHECK(gx_labels_make(l, &r, LABEL, kind, &err) == GX_OK, "%s", err.message))
        for (int i = 0; i < l->n; i++)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s*%ld", i ? " " : "", l->name[i],
                     (long)l->count[i]);
    CHECK(!strcmp(found, names), "\"%s\", expected \"%s\"", found, names);
    for (int i = 0; i < l->n; i++) CHECK(gx_labels_find(l, l->name[i]) == i, "%s is not found", l->name[i]);
    gx_records_close(&r);
}

TEST(labels_are_sorted_by_bytes_or_all_by_value)
{
    static const char *const words[] = {"verb", "noun", "adv", "noun", "Noun", "nounverb"},
                             *const integers[] = {"10", "9", "-1", "9", "01", "1", "-20"},
                             *const mixed[] = {"10", "9", "x"};
    GxLabels l = GX_ZERO;
    make_labels(&l, GX_LABEL_CLASS, words, 6, "Noun*1 adv*1 noun*2 nounverb*1 verb*1");
    CHECK(gx_labels_find(&l, "nou") < 0 && gx_labels_find(&l, "nounv") < 0 && gx_labels_find(&l, "") < 0, "a part");
    gx_labels_close(&l);
    make_labels(&l, GX_LABEL_CLASS, integers, 7, "-20*1 -1*1 01*1 1*1 9*2 10*1");
    gx_labels_close(&l);
    make_labels(&l, GX_LABEL_CLASS, mixed, 3, "10*1 9*1 x*1");
    gx_labels_close(&l);
}

TEST(several_labels_stand_between_commas)
{
    static const char *const labels[] = {"b, a", "a", " c ,b", "  ", "two words,a"};
    GxLabels l = GX_ZERO;
    GxRecords r;
    GxError err = GX_ZERO;
    unsigned char has[4] = {9, 9, 9, 9};
    make_labels(&l, GX_LABEL_SEVERAL, labels, 5, "a*3 b*2 c*1 two words*1");
    if (!labelled(&r, labels, 5)) return;
    CHECK(gx_label_classes(&l, &r, 2, LABEL, has, &err) == GX_OK && !has[0] && has[1] && has[2] && !has[3], "%s",
          err.message);
    CHECK(gx_label_classes(&l, &r, 3, LABEL, has, &err) == GX_OK && !has[0] && !has[1] && !has[2] && !has[3], "%s",
          err.message);
    gx_records_close(&r), gx_labels_close(&l);
}

static void label_refused(GxLabelKind kind, const char *label, const char *part)
{
    const char *const labels[] = {"a", label};
    GxError err = GX_ZERO;
    GxLabels l;
    GxRecords r;
    if (!labelled(&r, labels, 2)) return;
    CHECK(gx_labels_make(&l, &r, LABEL, kind, &err) == GX_ERR_FORMAT && !l.name && !l.n, "%s was taken", label);
    says(&err, "l.tsv", 3, part);
    gx_records_close(&r);
}

TEST(what_is_no_label_is_refused_by_line)
{
    char longest[GX_LABEL_BYTES + 2];
    memset(longest, 'x', sizeof longest), longest[GX_LABEL_BYTES + 1] = 0;
    label_refused(GX_LABEL_CLASS, "", "a label is empty; expected a name");
    label_refused(GX_LABEL_CLASS, longest, "has 201 bytes, but at most 200 are possible; is it a text?");
    label_refused(GX_LABEL_SEVERAL, "a,", "a label is empty; expected a name before and after every comma");
    label_refused(GX_LABEL_SEVERAL, "a,,b", "a label is empty");
    label_refused(GX_LABEL_SEVERAL, ",b", "a label is empty");
    label_refused(GX_LABEL_SEVERAL, "b, a,b", "the label \"b\" is listed twice");
}

TEST(a_label_that_is_not_in_the_list_is_named_with_the_list)
{
    static const char *const words[] = {"good", "bad"}, *const others[] = {"bad", "god", "bad,god"};
    GxLabels l = GX_ZERO;
    GxRecords r;
    GxError err = GX_ZERO;
    int class_ = -1;
    unsigned char has[2];
    make_labels(&l, GX_LABEL_CLASS, words, 2, "bad*1 good*1");
    if (!labelled(&r, others, 3)) return;
    CHECK(gx_label_class(&l, &r, 0, LABEL, &class_, &err) == GX_OK && class_ == 0, "%d", class_);
    CHECK(gx_label_class(&l, &r, 1, LABEL, &class_, &err) == GX_ERR_FORMAT, "it was taken");
    says(&err, "l.tsv", 3, "the label \"god\" is not one of the 2 known labels: bad, good");
    gx_error_clear(&err);
    CHECK(gx_label_classes(&l, &r, 2, LABEL, has, &err) == GX_ERR_FORMAT, "it was taken");
    says(&err, "l.tsv", 4, "the label \"god\" is not one of the 2");
    gx_error_clear(&err);
    gx_labels_close(&l);
    static const char *const commas[] = {"bad,worse", "good"}; // a list of them has quotes
    CHECK(gx_labels_set(&l, commas, 2, GX_LABEL_CLASS, "here", &err) == GX_OK, "%s", err.message);
    CHECK(gx_label_class(&l, &r, 1, LABEL, &class_, &err) == GX_ERR_FORMAT, "it was taken");
    says(&err, "l.tsv", 3, "the 2 known labels: \"bad,worse\", good");
    gx_records_close(&r), gx_labels_close(&l);
}

TEST(a_thousand_labels_are_the_most)
{
    char *text = (char *)malloc(40000), *p = text;
    p += sprintf(p, "text\tlabel\n");
    for (int i = 0; i < 1000; i++) p += sprintf(p, "x\t%d\n", 1000 - i);
    for (int more = 0; more < 2; more++) {
        GxError err = GX_ZERO;
        GxLabels l;
        GxRecords r;
        int class_ = -1;
        if (more) sprintf(p, "x\tone more\n");
        if (!opened(&r, "l.tsv", text)) break;
        const GxStatus status = gx_labels_make(&l, &r, LABEL, GX_LABEL_CLASS, &err);
        CHECK(status == (more ? GX_ERR_FORMAT : GX_OK), "%d labels: %s", 1000 + more, err.message);
        if (more)
            says(&err, "l.tsv", 1002,
                 "the label \"one more\" is one too many: there may be at most 1000 different labels");
        else CHECK(gx_label_class(&l, &r, 0, LABEL, &class_, &err) == GX_OK && class_ == 999, "class %d", class_);
        if (!more) // an unknown one is named with the beginning of the list
            CHECK(l.n == 1000 && gx_labels_find(&l, "1001") < 0, "%d labels", l.n);
        gx_labels_close(&l), gx_records_close(&r);
    }
    free(text);
}

TEST(a_long_list_is_cut_with_an_ellipsis)
{
    const char *names[100], *const labels[] = {"unknown"};
    char text[100][8];
    GxError err = GX_ZERO;
    GxLabels l;
    GxRecords r;
    int class_;
    for (int i = 0; i < 100; i++) snprintf(text[i], sizeof text[i], "n%d", 99 - i), names[i] = text[i];
    CHECK(gx_labels_set(&l, names, 100, GX_LABEL_CLASS, "config.json", &err) == GX_OK, "%s", err.message);
    if (!labelled(&r, labels, 1)) return;
    CHECK(gx_label_class(&l, &r, 0, LABEL, &class_, &err) == GX_ERR_FORMAT, "it was taken");
    says(&err, "l.tsv", 2, "not one of the 100 known labels: n99, n98, n97");
    CHECK(strstr(err.message, "…") && strlen(err.message) < 400, "%s", err.message);
    gx_records_close(&r), gx_labels_close(&l);
}

TEST(a_list_that_was_set_keeps_its_order)
{
    static const char *const names[] = {"POS", "NEG", "10", "9"}, *const twice[] = {"a", "b", "a"},
                             *const none[] = {"a", ""};
    GxError err = GX_ZERO;
    GxLabels l;
    for (int as_text = 0; as_text < 2; as_text++) {
        const GxStatus status = as_text ? gx_labels_set_text(&l, "POS,NEG ,  10, 9", GX_LABEL_CLASS, "--labels", &err)
                                        : gx_labels_set(&l, names, 4, GX_LABEL_CLASS, "config.json", &err);
        CHECK(status == GX_OK && l.n == 4, "%s", err.message);
        for (int i = 0; i < 4; i++)
            CHECK(!strcmp(l.name[i], names[i]) && gx_labels_find(&l, names[i]) == i, "%s", names[i]);
        gx_labels_close(&l);
    }
    CHECK(gx_labels_set_text(&l, "a,b,", GX_LABEL_CLASS, "--labels", &err) == GX_ERR_FORMAT, "a comma at the end");
    says(&err, "--labels", 0, "a label is empty");
    gx_error_clear(&err);
    CHECK(gx_labels_set(&l, twice, 3, GX_LABEL_CLASS, "config.json", &err) == GX_ERR_FORMAT, "a twice");
    says(&err, "config.json", 0, "the label \"a\" is listed twice");
    gx_error_clear(&err);
    CHECK(gx_labels_set(&l, none, 2, GX_LABEL_CLASS, "config.json", &err) == GX_ERR_FORMAT, "an empty one");
    gx_error_clear(&err);
    CHECK(gx_labels_set(&l, none, 0, GX_LABEL_CLASS, "config.json", &err) == GX_ERR_FORMAT, "an empty list");
}

// The last of the good ones: the largest whose square is finite in fp32; the last four of the bad ones are numbers.
TEST(numbers_are_decimal_whole_and_their_squares_finite)
{
    static const char *const good[] = {"3", "-0.5", "1e-3", "+2.", ".25", "-1.8446742e19"};
    static const double value[] = {3, -0.5, 1e-3, 2, 0.25, -1.8446742e19};
    static const char *const bad[] = {"x", "nan", "inf",   "0x10",         " 1",   "1 ",     "1,5",
                                      "e", "-",   "1.2.3", "1.8446744e19", "1e38", "-1e999", "1e39"};
    GxRecords r;
    double x = 0;
    if (!labelled(&r, good, 6)) return;
    for (int i = 0; i < 6; i++) {
        GxError err = GX_ZERO;
        CHECK(gx_label_number(&r, i, LABEL, &x, &err) == GX_OK && x == value[i], "%s: %g %s", good[i], x, err.message);
    }
    gx_records_close(&r);
    if (!labelled(&r, bad, 14)) return;
    for (int i = 0; i < 14; i++) {
        GxError err = GX_ZERO;
        char part[60];
        CHECK(gx_label_number(&r, i, LABEL, &x, &err) == GX_ERR_FORMAT, "%s was taken as %g", bad[i], x);
        snprintf(part, sizeof part, "\"label\" is \"%s\"; expected a number %s", bad[i], i < 10 ? "such" : "between");
        says(&err, "l.tsv", i + 2, part);
        CHECK(gx_label_is_number(&r, i, LABEL) == (i >= 10), "%s", bad[i]);
    }
    gx_records_close(&r);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.500s/test_records.XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(root)) {
        printf("cannot make a temporary folder %s\n", root);
        return 1;
    }
    int failed = test_main(argc, argv);
    if (gx_folder_remove(root, &err) != GX_OK) printf("%s\n", err.message);
    return failed;
}
