// test_csv.cu: tables, record by record (data/csv.h); as records (data/records.h); and records that are left out.
#include "galaxy/data/csv.h"
#include "galaxy/io/json.h"
#include "galaxy/data/labels.h"
#include "galaxy/data/pairs.h"
#include "galaxy/data/records.h"
#include "galaxy/task/labelled_texts.h"
#include "test/test.h"
#include <unistd.h>

// ---- words of these tests ------------------------------------------------------------------------------------------

static char root[GX_PATH]; // made in main, removed there

static const char *put(const char *name, const char *text)
{
    static char path[GX_PATH];
    GxError err = GX_ZERO;
    snprintf(path, GX_PATH, "%.600s/%.300s", root, name);
    CHECK(gx_file_write(path, text, (int64_t)strlen(text), &err) == GX_OK, "%s", err.message);
    return path;
}

typedef struct { // a text that is read as a table
    GxCsv c;
    char *text;
    GxError err;
    GxStatus status; // of opening
} Table;

static Table table_open(const char *text, int is_tsv)
{
    Table t;
    memset(&t, 0, sizeof t);
    t.text = strdup(text);
    t.status = gx_csv_open(&t.c, "t", t.text, (int64_t)strlen(text), is_tsv, &t.err);
    return t;
}
static void table_close(Table *t)
{
    gx_csv_close(&t->c);
    free(t->text);
}

// The next records: "|" between fields, "#LINE " before a record. Ends with what is wrong, if anything is.
static void table_say(Table *t, char *said, size_t size)
{
    size_t n = 0;
    said[0] = 0;
    while (t->status == GX_OK && n < size) {
        t->status = gx_csv_next(&t->c, &t->err);
        if (t->status != GX_OK || !t->c.fields) break;
        n += (size_t)snprintf(said + n, size - n, "%s#%ld ", n ? " " : "", (long)t->c.number);
        for (int i = 0; i < t->c.fields && n < size; i++)
            n += (size_t)snprintf(said + n, size - n, "%s%s", i ? "|" : "", t->c.field[i].text);
    }
    if (t->status != GX_OK && n < size) snprintf(said + n, size - n, " !%s", t->err.message);
}

static void reads(const char *text, int is_tsv, const char *expected)
{
    char said[4000];
    Table t = table_open(text, is_tsv);
    table_say(&t, said, sizeof said);
    CHECK(!strcmp(said, expected), "\"%s\" is read as \"%s\"; expected \"%s\"", text, said, expected);
    table_close(&t);
}

static void refuses(const char *text, int is_tsv, const char *where, const char *words)
{
    char said[4000];
    Table t = table_open(text, is_tsv);
    table_say(&t, said, sizeof said);
    CHECK(t.status == GX_ERR_FORMAT && strstr(t.err.message, where) == t.err.message && strstr(t.err.message, words),
          "\"%s\": \"%s\" and \"%s\" expected in \"%s\", status %d", text, where, words, said, t.status);
    table_close(&t);
}

#ifdef GX_WITH_JANSSON
#define NEEDS_JSON
#else
#define NEEDS_JSON SKIP("built without jansson")
#endif

enum { TEXT, LABEL, COLUMNS };
static const GxRecordColumn columns[COLUMNS] = {{"text", GX_COLUMN_REQUIRED, 0, "text_column"},
                                                {"label", GX_COLUMN_REQUIRED, 1, "label_column"}};

static void is_record(const GxRecords *r, int64_t i, int64_t line, const char *text, const char *label)
{
    if (!CHECK(i < r->n, "record %ld of %ld", (long)i, (long)r->n)) return;
    CHECK(!strcmp(gx_record(r, i, TEXT), text) && !strcmp(gx_record(r, i, LABEL), label) &&
              gx_record_line(r, i) == line,
          "record %ld: \"%s\", \"%s\" in line %ld; expected \"%s\", \"%s\" in line %ld", (long)i, gx_record(r, i, TEXT),
          gx_record(r, i, LABEL), (long)gx_record_line(r, i), text, label, (long)line);
}

// ---- CSV -----------------------------------------------------------------------------------------------------------

TEST(csv_is_read_as_its_standard_says)
{ // RFC 4180, section 2: its seven rules, with words of our own
    reads("one,two,three\r\nfour,five,six\r\n", 0, "#1 one|two|three #2 four|five|six");
    reads("one,two,three\r\nfour,five,six", 0, "#1 one|two|three #2 four|five|six");
    reads("\"one\",\"two\",\"three\"\r\nfour,five,six", 0, "#1 one|two|three #2 four|five|six");
    reads("\"one\",\"t\r\nwo\",\"three\"\r\nfour,five,six", 0, "#1 one|t\r\nwo|three #3 four|five|six");
    reads("\"one\",\"t\"\"wo\",\"three\"", 0, "#1 one|t\"wo|three");
    reads("one, two ,three \n", 0, "#1 one| two |three "); // spaces are a part of fields
    reads("\"a,b\",\"\",\"\"\"\"\n,,\n", 0, "#1 a,b||\" #2 ||");
    reads("\"\"\"a\"\"\",\"\"\"\"\"\"\n", 0, "#1 \"a\"|\"\"");
    reads("a\n\"b\n\n\nc\"\n\nd\n", 0, "#1 a #2 b\n\n\nc #6  #7 d"); // an empty line is one
    reads("\xEF\xBB\xBF\"a\",b\n", 0, "#1 a|b");
    reads("", 0, ""), reads("\xEF\xBB\xBF", 0, "");
    reads("a,", 0, "#1 a|"), reads("a\r", 0, "#1 a"), reads("\n", 0, "#1 ");
}

TEST(an_empty_line_is_not_an_empty_field_in_quotes)
{
    Table t = table_open("a\n\"\"\n\n\r\n", 0);
    const int expected[] = {0, 0, 1, 1};
    for (int i = 0; i < 4; i++)
        CHECK(gx_csv_next(&t.c, &t.err) == GX_OK && t.c.fields == 1 && t.c.is_empty == expected[i], "record %d: %d", i,
              t.c.is_empty);
    CHECK(gx_csv_next(&t.c, &t.err) == GX_OK && t.c.fields == 0, "%d fields behind the end", t.c.fields);
    table_close(&t);
}

TEST(the_first_line_says_which_separator_it_is)
{
    static const struct {
        const char *text, *read, *separators;
    } cases[] = {{"a;b\r\n1,5;\"2;3\"\r\n", "#1 a|b #2 1,5|2;3", "semicolons"},
                 {"a\tb\n1,5\t\"2\t3\"\n", "#1 a|b #2 1,5|2\t3", "tabs"},
                 {"a,b;c\n1,2\n", "#1 a|b;c #2 1|2", "commas"},
                 {"a;b\tc\n1;2\n", "#1 a|b\tc #2 1|2", "semicolons"},
                 {"\"a,b\";c\n1;2\n", "#1 a,b|c #2 1|2", "semicolons"},
                 {"\"a\n,b\";c\n1;2\n", "#1 a\n,b|c #3 1|2", "semicolons"},
                 {"a\n1;2\n", "#1 a #2 1;2", "commas"},
                 {"sep=;\r\na,b;c\r\n", "#2 a,b|c", "semicolons"},
                 {"\xEF\xBB\xBFSEP=,\na;b,c\n", "#2 a;b|c", "commas"},
                 {"sep=\t\na,b\tc\n", "#2 a,b|c", "tabs"},
                 {"sep=x\na,b\n", "#1 sep=x #2 a|b", "commas"},
                 {"sep=;x\na;b\n", "#1 sep=|x #2 a|b", "semicolons"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Table t = table_open(cases[i].text, 0);
        CHECK(!strcmp(gx_csv_separators(&t.c), cases[i].separators), "\"%s\": %s", cases[i].text,
              gx_csv_separators(&t.c));
        table_close(&t);
        reads(cases[i].text, 0, cases[i].read);
    }
}

TEST(what_is_no_csv_is_refused_by_the_line_in_which_the_record_begins)
{
    refuses("a,b\nx,say \"hi\"\n", 0, "t:2: column 2 contains a quotation mark", "does not begin with one");
    refuses("a,b\nx, \"hi\"\n", 0, "t:2: column 2 contains a quotation mark", "those inside it doubled");
    refuses("a,b\n\"1\n2\",\"x\" y\nc,d\n", 0, "t:2: there is text after the quotation mark that closes column 2",
            "(in line 3); expected a comma or the end");
    refuses("a;b\n\"x\",y;z\n", 0, "t:2: there is text after", "expected a semicolon");
    refuses("a,b\n\"x\"\ty,z\n", 0, "t:2: there is text after", "(in line 2)");
    refuses("a,b\n1,2\nx,\"y\n3,4\n", 0, "t:3: the quotation mark at the beginning of column 2 is never closed", "");
    refuses("a,b\nx,\"", 0, "t:2: the quotation mark at the beginning of column 2", "never closed");
    refuses("a,b\nx,\"y\"\"", 0, "t:2: the quotation mark at the beginning of column 2", "never closed");
    refuses("a,b\nx\ry,z\n", 0, "t:2: column 1 contains a carriage return", "\\r\\n");
    refuses("a,b\n\"x\"\ry,z\n", 0, "t:2: there is text after", "");
}

TEST(behind_a_record_that_is_wrong_reading_goes_on_with_the_next_line)
{
    static const char text[] = "a,b\n\"x\n1,2\nx \" y,3\n\"4\n5\",6\n7,\"8";
    Table t = table_open(text, 0);
    static const struct {
        int is_sound, line;
        const char *first;
    } expected[] = {{1, 1, "a"}, {0, 2, ""}, {1, 3, "1"}, {0, 4, ""}, {1, 5, "4\n5"}, {0, 7, ""}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        GxError err = GX_ZERO;
        const GxStatus status = gx_csv_next(&t.c, &err);
        CHECK((status == GX_OK) == expected[i].is_sound && t.c.number == expected[i].line, "%d: line %ld: %s", (int)i,
              (long)t.c.number, err.message);
        if (status == GX_OK && t.c.fields)
            CHECK(!strcmp(t.c.field[0].text, expected[i].first), "%s", t.c.field[0].text);
        if (status != GX_OK) CHECK(t.c.fields == 0, "%d fields", t.c.fields);
    }
    CHECK(gx_csv_next(&t.c, &t.err) == GX_OK && !t.c.fields, "there is more");
    table_close(&t);
}

// ---- TSV -----------------------------------------------------------------------------------------------------------

TEST(a_tsv_has_quotes_where_a_program_has_written_them)
{
    static const struct {
        const char *text, *read;
        int has_quotes;
    } cases[] = {
        // without quotation marks
        {"a\tb\nx, y\tz\n", "#1 a|b #2 x, y|z", 0},
        // marks as they stand
        {"a\tb\nsay \"hi\"\tz\n", "#1 a|b #2 say \"hi\"|z", 0},
        {"a\tb\n\"hi\tz\n", "#1 a|b #2 \"hi|z", 0},
        {"a\tb\n\"hi\" he said\tz\n", "#1 a|b #2 \"hi\" he said|z", 0},
        {"a\tb\n\"hi\"\tz\nho\tz\n", "#1 a|b #2 \"hi\"|z #3 ho|z", 0}, // which needs no quotes
        {"a\tb\n\"hi, you\"\tz\nho, you\tz\n", "#1 a|b #2 \"hi, you\"|z #3 ho, you|z", 0},
        {"a\tb\n\"hi, you\"\tz\n\"ho\"\tz\n", "#1 a|b #2 \"hi, you\"|z #3 \"ho\"|z", 0},
        {"a\tb\n\"\tMARK\nhi\tWORD\n\"\tMARK\n", "#1 a|b #2 \"|MARK #3 hi|WORD #4 \"|MARK", 0},
        {"a\tb\n\"hi.\tz\nHo.\"\tz\n", "#1 a|b #2 \"hi.|z #3 Ho.\"|z", 0}, // a quotation over two records
        {"a\tb\r\n\"hi\"\tz\r\nho\t\"\"\r\n", "#1 a|b #2 \"hi\"|z #3 ho|\"\"", 0},
        // quotes: doubled ones, or what would not fit without
        {"a\tb\n\"say \"\"hi\"\"\"\tz\nx\ty\n", "#1 a|b #2 say \"hi\"|z #3 x|y", 1},
        {"a\tb\n\"two\nlines\"\tz\n", "#1 a|b #2 two\nlines|z", 1},
        {"a\tb\nz\t\"two\nlines\"\n", "#1 a|b #2 z|two\nlines", 1},
        {"a\tb\nz\t\"two\r\nlines\"\r\nx\ty", "#1 a|b #2 z|two\r\nlines #4 x|y", 1},
        {"a\tb\n\"x\ty\"\tz\n", "#1 a|b #2 x\ty|z", 1},
        {"a\tb\n\"\"\"\"\tz\n\"hi\"\ty\n", "#1 a|b #2 \"|z #3 hi|y", 1},
        {"a\tb\n\"x\ry\"\tz\n", "#1 a|b #2 x\ry|z", 1}, // a carriage return, which others end lines with
        {"a\tb\n\"x, y\"\tz\n\"x \"\" y\"\tz\n", "#1 a|b #2 x, y|z #3 x \" y|z", 1},
        {"a\n\"x \"\" y\"\n\"p\nq\"\n", "#1 a #2 x \" y #3 p\nq", 1},
        // all names in quotes
        {"\"a\"\t\"b\"\n\"x\"\ty\n", "#1 a|b #2 x|y", 1},
        {"\"\"\t\"a\"\r\n\"0\"\t\"p\nq\"\r\n", "#1 |a #2 0|p\nq", 1},
        {"\xEF\xBB\xBF\"a\"\n\"p\nq\"\n", "#1 a #2 p\nq", 1},
        {"\"a\"\tb\n\"x\"\ty\n", "#1 \"a\"|b #2 \"x\"|y", 0},
        {"\"a\" b\t\"c\"\nx\ty\n", "#1 \"a\" b|\"c\" #2 x|y", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Table t = table_open(cases[i].text, 1);
        CHECK(t.c.has_quotes == cases[i].has_quotes, "\"%s\": %d", cases[i].text, t.c.has_quotes);
        table_close(&t);
        reads(cases[i].text, 1, cases[i].read);
    }
}

TEST(a_tsv_that_could_be_either_is_refused_with_what_to_do)
{
    static const char to_do[] = "put the names in the first line in quotation marks, too";
    refuses("a\tb\nx\ty\n\"say \"\"hi\"\"\"\tz\nsay \"hi\"\tz\n", 1,
            "t: quotation marks enclose a field in line 3, but in line 4 they are part of one", to_do);
    refuses("a\tb\n\"two\nlines\"\tz\n5\" nails\tz\n", 1, "t: quotation marks enclose a field in line 2",
            "but in line 4 they are part of one");
    refuses("a\nx\n\"two\nlines\"\n", 1, "t:3: from here on several lines could be one quoted field", to_do);
    refuses("a\tb\nx\ty\n\"hi, you\"\tz\nho\tz\n", 1, "t:3: exactly those fields that contain a comma", to_do);
    // what to do
    reads("\"a\"\n\"x\"\n\"two\nlines\"\n", 1, "#1 a #2 x #3 two\nlines");
    reads("\"a\"\t\"b\"\n\"\"\"hi, you\"\"\"\tz\n", 1, "#1 a|b #2 \"hi, you\"|z");
    refuses("\"a\"\t\"b\"\nsay \"hi\"\tz\n", 1, "t:2: column 1 contains a quotation mark", "");
    refuses("\"a\"\t\"b\"\n\"hi\" ho\tz\n", 1, "t:2: there is text after", "expected a tab");
}

// ---- against Python ------------------------------------------------------------------------------------------------

typedef struct {
    int same, refused, bare, as_lines, quoted;
} Compared;

static int64_t columns_of(const GxJson *record) { return gx_json_size(record); }

// 1: record i is this one.
static int is_same(const GxCsv *c, const GxJson *json, int64_t i)
{
    const GxJson *record = gx_json_at(gx_json_get(json, "records"), i);
    if (columns_of(record) == 0) return c->is_empty; // Python has no field in an empty line
    if (columns_of(record) != c->fields) return 0;
    for (int k = 0; k < c->fields; k++)
        if (strcmp(c->field[k].text, gx_json_string(gx_json_at(record, k)))) return 0;
    return c->number == gx_json_int(gx_json_at(gx_json_get(json, "lines"), i));
}

// 1: as lines, each of which has as many columns as the first.
static int is_table_of_lines(const char *text)
{
    int64_t columns = 0;
    for (const char *p = text; *p;) {
        const char *end = p + strcspn(p, "\n");
        int64_t n = 1;
        for (const char *q = p; q < end; q++) n += *q == '\t';
        if (columns && n != columns) return 0;
        columns = n, p = *end ? end + 1 : end;
    }
    return 1;
}

static void compare(const GxJson *json, Compared *all)
{
    const char *by = gx_json_string(gx_json_get(json, "by")), *text = gx_json_string(gx_json_get(json, "text"));
    const int is_tsv = !strcmp(gx_json_string(gx_json_get(json, "kind")), "tsv"),
              is_known = gx_json_type(gx_json_get(json, "records")) == GX_JSON_ARRAY;
    const int64_t n = gx_json_size(gx_json_get(json, "records"));
    Table t = table_open(text, is_tsv);
    const GxStatus opened = t.status;
    int64_t i = 0;
    int differs = 0;
    for (; t.status == GX_OK; i++) {
        t.status = gx_csv_next(&t.c, &t.err);
        if (t.status != GX_OK || !t.c.fields) break;
        differs |= !is_known || i >= n || !is_same(&t.c, json, i);
    }
    const int is_read = t.status == GX_OK && !differs && i == n && is_known;
    all->same += is_read, all->refused += t.status != GX_OK, all->quoted += is_read && is_tsv && t.c.has_quotes;
    if (!strcmp(by, "damaged") && is_known && t.status != GX_OK) {
        const int is_bare = strstr(t.err.message, "contains a quotation mark") != NULL ||
                            (strstr(t.err.message, "contains a carriage return") && strstr(text, "\r\r\n"));
        all->bare += is_bare;
        CHECK(is_bare, "what Python reads is refused: \"%s\": %s", text, t.err.message);
    } else if (!strcmp(by, "damaged")) {
        CHECK(is_known ? is_read : t.status == GX_ERR_FORMAT, "\"%s\" is read otherwise, up to record %ld", text,
              (long)i);
    } else if (!strcmp(by, "writer") && is_tsv && opened == GX_OK && !t.c.has_quotes && !is_read) {
        all->as_lines++; // whose lines happen to fit
        CHECK(is_table_of_lines(text), "\"%s\" is read as lines that do not fit", text);
    } else if (!strcmp(by, "lines") && opened == GX_OK && t.c.has_quotes) {
        CHECK(t.status == GX_OK && strstr(text, "\"\""), "\"%s\" is read with quotes: %s", text, t.err.message);
    } else if (is_tsv && opened != GX_OK) {
        CHECK(opened == GX_ERR_FORMAT && strstr(t.err.message, "put the names in the first line"), "%s", t.err.message);
    } else CHECK(is_read, "%s: \"%s\" is read otherwise, up to record %ld: %s", by, text, (long)i, t.err.message);
    table_close(&t);
}

TEST(tables_are_read_as_pythons_csv_reads_and_writes_them)
{
    NEEDS_JSON;
    GxError err = GX_ZERO;
    Compared all = GX_ZERO;
    char *text;
    int64_t bytes, n = 0;
    if (!CHECK(gx_file_read("data/ref/csv.jsonl", 1 << 30, &text, &bytes, &err) == GX_OK, "%s", err.message)) return;
    for (char *p = text, *end; *p; p = end + 1, n++) {
        GxJson *json;
        end = p + strcspn(p, "\n");
        if (!CHECK(gx_json_parse(&json, p, end - p, "", &err) == GX_OK, "%s", err.message)) break;
        compare(json, &all);
        gx_json_free(json);
    }
    free(text);
    printf(
        "     %ld cases: %d are read alike, %d refused (%d of them for a mark in a field), %d of tabs and quotes, %d "
        "as lines\n",
        (long)n, all.same, all.refused, all.bare, all.quoted, all.as_lines);
    CHECK(n >= 160 && all.same > n / 2 && all.refused > n / 20 && all.bare > 0 && all.quoted > n / 20 &&
              all.as_lines <= n / 50,
          "too few of a kind");
}

TEST(what_pandas_has_written_is_read)
{ // pandas 3.1: df.to_csv(index=False), with sep="\t", and with quoting=csv.QUOTE_ALL and the index
    static const char *const texts[][2] = {
        {"a.csv", "text,label,score\nplain,good,1.0\n\"with, comma\",bad,2.5\n\"say \"\"hi\"\"\",good,3.0\n\"two\n"
                  "lines\",bad,4.0\ntab\there,good,5.0\n"},
        {"a.tsv", "text\tlabel\tscore\nplain\tgood\t1.0\nwith, comma\tbad\t2.5\n\"say \"\"hi\"\"\"\tgood\t3.0\n\"two\n"
                  "lines\"\tbad\t4.0\n\"tab\there\"\tgood\t5.0\n"},
        {"b.csv", "\"\",\"text\",\"label\",\"score\"\n\"0\",\"plain\",\"good\",\"1.0\"\n\"1\",\"with, comma\",\"bad\","
                  "\"2.5\"\n\"2\",\"say \"\"hi\"\"\",\"good\",\"3.0\"\n\"3\",\"two\nlines\",\"bad\",\"4.0\"\n\"4\","
                  "\"tab\there\",\"good\",\"5.0\"\n"},
        {"b.tsv", "\"\"\t\"text\"\t\"label\"\t\"score\"\n\"0\"\t\"plain\"\t\"good\"\t\"1.0\"\n\"1\"\t\"with, comma\"\t"
                  "\"bad\"\t\"2.5\"\n\"2\"\t\"say \"\"hi\"\"\"\t\"good\"\t\"3.0\"\n\"3\"\t\"two\nlines\"\t\"bad\"\t"
                  "\"4.0\"\n\"4\"\t\"tab\there\"\t\"good\"\t\"5.0\"\n"},
        {"c.CSV",
         "\"text\",\"label\",\"score\"\n\"plain\",\"good\",1.0\n\"with, comma\",\"bad\",2.5\n\"say \"\"hi\"\"\","
         "\"good\",3.0\n\"two\nlines\",\"bad\",4.0\n\"tab\there\",\"good\",5.0\n"},
        // as Excel: a byte order mark, \r\n, and semicolons where the comma is for decimals
        {"d.csv",
         "\xEF\xBB\xBFtext;label;score\r\nplain;good;1,0\r\nwith, comma;bad;2,5\r\n\"say \"\"hi\"\"\";good;3,0\r"
         "\n\"two\nlines\";bad;4,0\r\ntab\there;good;5,0\r\n"},
        {"e.csv",
         "\xEF\xBB\xBFtext,label,score\r\nplain,good,1.0\r\n\"with, comma\",bad,2.5\r\n\"say \"\"hi\"\"\",good,"
         "3.0\r\n\"two\nlines\",bad,4.0\r\ntab\there,good,5.0\r\n"},
        {"e.tsv",
         "text\tlabel\tscore\r\nplain\tgood\t1.0\r\n\"with, comma\"\tbad\t2.5\r\n\"say \"\"hi\"\"\"\tgood\t3.0\r"
         "\n\"two\nlines\"\tbad\t4.0\r\n\"tab\there\"\tgood\t5.0\r\n"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        GxError err = GX_ZERO;
        GxRecords r;
        if (!CHECK(gx_records_open(&r, put(texts[i][0], texts[i][1]), GX_RECORDS_BY_NAME, columns, COLUMNS, NULL,
                                   &err) == GX_OK &&
                       r.n == 5,
                   "%s: %s", texts[i][0], err.message))
            continue;
        is_record(&r, 0, 2, "plain", "good"), is_record(&r, 1, 3, "with, comma", "bad");
        is_record(&r, 2, 4, "say \"hi\"", "good"), is_record(&r, 3, 5, "two\nlines", "bad");
        is_record(&r, 4, 7, "tab\there", "good");
        gx_records_close(&r);
    }
}

// ---- as records ----------------------------------------------------------------------------------------------------

static void refuses_file(const char *name, const char *text, const char *where, const char *words)
{
    GxError err = GX_ZERO;
    GxRecords r;
    const GxStatus status = gx_records_open(&r, put(name, text), GX_RECORDS_BY_NAME, columns, COLUMNS, NULL, &err);
    CHECK(status != GX_OK && strstr(err.message, where) && strstr(err.message, words),
          "\"%s\" and \"%s\" expected in \"%s\"", where, words, err.message);
    CHECK(!r.text && !r.at && !r.line && !r.n, "something is left of %s", text);
}

TEST(a_table_that_lacks_something_is_refused_by_line_and_option)
{
    refuses_file("a.csv", "txt,label\na,b\n",
                 "a.csv:1: there is no column \"text\"; the first line names, separated by commas: txt, label; "
                 "--text_column NAME names another one",
                 "");
    refuses_file("a.csv", "sep=;\ntext;lab\na;b\n", "a.csv:2: there is no column \"label\"",
                 "separated by semicolons: text, lab; --label_column");
    refuses_file("a.csv", "text,label,text\na,b,c\n", "a.csv:1: two columns have the name \"text\"", "");
    refuses_file("a.csv", "text,label\n\"a\nb\",c\nd\n",
                 "a.csv:4: 1 column; expected 2 (text, label) separated by commas", "");
    refuses_file("a.csv", "text,label\na,b,c\n", "a.csv:2: 3 columns; expected 2 (text, label) separated by commas",
                 "a field that contains one must be in quotation marks");
    refuses_file("a.tsv", "text\tlabel\na\tb\tc\n", "a.tsv:2: 3 columns", "a text cannot contain a tab");
    refuses_file("a.csv", "text,label\n\"a\nb\",c\n \"\",d\ne,f\n", "a.csv:4: column 1 contains a quotation mark", "");
    refuses_file("a.csv", "text,label\n\"a\nb\",c\n\"\n\",d\ne,f\n", "a.csv:4: \"text\" is empty", "");
    refuses_file("a.csv", "text,label\n\"a\nb\",c\n\nd,e\n", "a.csv:4: the line is empty, but others follow", "");
    refuses_file("a.csv", "text,label\n\"a\n\xFF\",c\n", "a.csv:3: the byte 0xFF", "UTF-8");
    refuses_file("a.csv", "\ntext,label\na,b\n", "a.csv:1: the line is empty; expected the names of the columns", "");
    refuses_file("a.csv", "text,label\n\n", "a.csv holds no records", "below the one with the names of the columns");
    refuses_file("a.csv", "\xEF\xBB\xBF", "a.csv is empty", "a line with the names of columns");
    refuses_file("a.csv", "\xFF\xFEt\1e\1", "is text in UTF-16", "iconv -f UTF-16");
    refuses_file("a.xlsx", "PK", "a spreadsheet", "pandas.read_excel");
    refuses_file("a.txt", "text,label\na,b\n", "a.txt: its name does not say", ".csv, .tsv or .jsonl");
    refuses_file("a.csv", "text,label\na,b\nc\nd\ne,f\n", "a.csv:3: 1 column",
                 "(2 of the records in lines 2 to 5 are wrong: lines 3, 4)");
}

// ---- records that are left out -------------------------------------------------------------------------------------

TEST(records_that_are_wrong_are_left_out_and_the_others_keep_their_lines)
{
    static const char csv[] = "text,label\n\"a\nb\",1\nbad\n ,2\n\xFF,3\nc,4\n\"open,5\nd,6\n";
    static const char jsonl[] =
        "[]\n{\"text\": \"a\\nb\", \"label\": 1}\n{\"text\": \"\xFF\", \"label\": 2}\n{\"text\": 3}\n"
        "{\"text\": \"c\", \"label\": 4}\n{\n{\"text\": \"d\", \"label\": 6}\n";
    static const struct {
        const char *name, *text;
        int lines[3], bad[4];
        const char *why[4];
    } cases[] = {{"a.csv", csv, {2, 7, 9}, {4, 5, 6, 8}, {"1 column", "is empty", "0xFF", "never closed"}},
                 {"a.jsonl", jsonl, {2, 5, 7}, {1, 3, 4, 6}, {"an array", "0xFF", "an integer", "expected"}}};
    NEEDS_JSON;
    for (size_t k = 0; k < 2; k++) {
        GxError err = GX_ZERO;
        GxBadRecords skip = GX_ZERO;
        GxRecords r;
        const char *path = put(cases[k].name, cases[k].text);
        CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, columns, COLUMNS, NULL, &err) == GX_ERR_FORMAT, "no error");
        gx_error_clear(&err);
        if (!CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, columns, COLUMNS, &skip, &err) == GX_OK && r.n == 3,
                   "%s", err.message))
            continue;
        is_record(&r, 0, cases[k].lines[0], "a\nb", "1"), is_record(&r, 1, cases[k].lines[1], "c", "4");
        is_record(&r, 2, cases[k].lines[2], "d", "6");
        CHECK(skip.n == 4, "%ld are left out", (long)skip.n);
        for (int i = 0; i < 4; i++) {
            char where[60];
            snprintf(where, sizeof where, "%s:%d:", cases[k].name, cases[k].bad[i]);
            CHECK(strstr(skip.why[i], where) && strstr(skip.why[i], cases[k].why[i]), "\"%s\" and \"%s\" in \"%s\"",
                  where, cases[k].why[i], skip.why[i]);
        }
        gx_records_close(&r);
    }
}

TEST(a_record_that_is_left_out_says_nothing_of_which_columns_there_are)
{
    static const GxRecordColumn pair[] = {{"text", GX_COLUMN_REQUIRED, 0, NULL},
                                          {"text2", GX_COLUMN_OPTIONAL, 0, NULL}};
    NEEDS_JSON;
    GxError err = GX_ZERO;
    GxBadRecords skip = GX_ZERO;
    GxRecords r;
    const char *path = put("a.jsonl", "{\"text\": \" \", \"text2\": \"x\"}\n{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    if (!CHECK(gx_records_open(&r, path, GX_RECORDS_BY_NAME, pair, 2, &skip, &err) == GX_OK && r.n == 2 &&
                   skip.n == 1 && !r.has[1],
               "%ld records, %ld left out: %s", (long)r.n, (long)skip.n, err.message))
        return;
    gx_records_close(&r);
}

static int heard;
static char said[16][700];
static void hear(void *user, GxLogLevel level, const char *text)
{
    (void)user;
    CHECK(level == GX_LOG_WARNING, "%s", text);
    if (heard < 16) snprintf(said[heard], sizeof said[heard], "%s", text);
    heard++;
}

TEST(what_is_left_out_is_counted_and_the_first_ten_are_said)
{
    const GxLogger log = {hear, NULL};
    for (int n = 0; n < 13; n += n < 1 ? 1 : n < 2 ? 9 : 2) {
        char *text = (char *)malloc(2000), *p = text + sprintf(text, "text,label\n");
        GxError err = GX_ZERO;
        GxBadRecords skip = GX_ZERO;
        GxRecords r;
        for (int i = 0; i < n; i++) p += sprintf(p, "bad %d\n", i);
        sprintf(p, "good,1\n");
        if (CHECK(gx_records_open(&r, put("a.csv", text), GX_RECORDS_BY_NAME, columns, COLUMNS, &skip, &err) == GX_OK &&
                      r.n == 1 && skip.n == n,
                  "%s", err.message))
            gx_records_close(&r);
        heard = 0;
        gx_bad_records_warn(&skip, &log);
        CHECK(heard == (n == 0 ? 0 : 1 + (n < 10 ? n : 10)), "%d lines of %d records", heard, n);
        if (n)
            CHECK(strstr(said[0],
                         n == 1 ? "1 record is left out (--skip_bad_records)"
                         : n == 10
                             ? "10 records are left out (--skip_bad_records), because they are wrong:"
                             : "12 records are left out (--skip_bad_records), because they are wrong; the first ones:"),
                  "%s", said[0]);
        if (n > 9) CHECK(strstr(said[1], "a.csv:2: ") && strstr(said[10], "a.csv:11: "), "%s, %s", said[1], said[10]);
        free(text);
    }
}

TEST(a_file_all_of_whose_records_are_wrong_is_refused_all_the_same)
{
    GxError err = GX_ZERO;
    GxBadRecords skip = GX_ZERO;
    GxRecords r;
    CHECK(gx_records_open(&r, put("a.csv", "text,label\na\nb\n"), GX_RECORDS_BY_NAME, columns, COLUMNS, &skip, &err) ==
                  GX_ERR_FORMAT &&
              strstr(err.message, "all of its records (2) are wrong, so none is left; the first one: ") &&
              strstr(err.message, "a.csv:2: 1 column"),
          "%s", err.message);
    gx_error_clear(&err);
    CHECK(gx_records_open(&r, put("a.csv", "txt,label\na,b\n"), GX_RECORDS_BY_NAME, columns, COLUMNS, &skip, &err) ==
                  GX_ERR_FORMAT &&
              strstr(err.message, "there is no column"),
          "the first line is no record: %s", err.message);
    gx_error_clear(&err);
    CHECK(gx_records_open(&r, put("a.tsv", "text\tlabel\na\t\"x\"\"\"\nb\t\"\"c\n"), GX_RECORDS_BY_NAME, columns,
                          COLUMNS, &skip, &err) == GX_ERR_FORMAT,
          "quotes of all of a file are no record's");
}

TEST(of_labels_those_that_cannot_be_are_left_out_too)
{
    static const GxTextColumns names = {"text", "text2", "label", ""};
    GxError err = GX_ZERO;
    GxBadRecords skip = GX_ZERO;
    GxTextFile f;
    GxLabels l = GX_ZERO;
    GxTexts t;
    char text[1000], *p = text + sprintf(text, "text,label\na,\"x, y\"\nb,\"x, x\"\nc,\"x,,y\"\nd,");
    for (int i = 0; i < 201; i++) *p++ = 'z';
    sprintf(p, "\ne,y\nf,\n");
    if (!CHECK(gx_text_file_open(&f, put("a.csv", text), &names, GX_PROBLEM_MULTI, 0, &skip, &err) == GX_OK &&
                   f.records.n == 3 && skip.n == 3,
               "%ld: %s", (long)skip.n, err.message))
        return;
    CHECK(strstr(skip.why[0], "a.csv:3: the label \"x\" is listed twice") &&
              strstr(skip.why[1], "a.csv:4: a label is empty") && strstr(skip.why[2], "a.csv:5: the label \"zzz"),
          "%s, %s, %s", skip.why[0], skip.why[1], skip.why[2]);
    CHECK(gx_labels_make(&l, &f.records, f.label, GX_LABEL_SEVERAL, &err) == GX_OK && l.n == 2, "%s", err.message);
    gx_labels_close(&l), gx_text_file_close(&f);

    static const char *const two[] = {"1", "2"};
    if (!CHECK(gx_text_file_open(&f, put("a.csv", "text,label\na,3\nb,1\nc,4\nd,2\ne,2\n"), &names, GX_PROBLEM_SINGLE,
                                 0, &skip, &err) == GX_OK &&
                   gx_labels_set(&l, two, 2, GX_LABEL_CLASS, "here", &err) == GX_OK &&
                   gx_texts_open(&t, &f, GX_TEXTS_ALL, 0, &err) == GX_OK,
               "%s", err.message))
        return;
    skip.n = 0;
    CHECK(gx_texts_label(&t, GX_PROBLEM_SINGLE, &l, &skip, &err) == GX_OK && t.n == 3 && skip.n == 2 &&
              t.label[0] == 0 && t.label[1] == 1 && t.label[2] == 1 && t.count[0] == 1 && t.count[1] == 2 &&
              gx_texts_line(&t, 0) == 3 && gx_texts_line(&t, 2) == 6 && strstr(skip.why[1], "a.csv:4: the label \"4\""),
          "%ld texts, %s: %s", (long)t.n, skip.why[1], err.message);
    gx_texts_close(&t), gx_labels_close(&l), gx_text_file_close(&f);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.500s/test_csv.XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(root)) {
        printf("cannot make a temporary folder %s\n", root);
        return 1;
    }
    int failed = test_main(argc, argv);
    if (gx_folder_remove(root, &err) != GX_OK) printf("%s\n", err.message);
    return failed;
}
