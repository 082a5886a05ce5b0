// records.h: files of records with named columns: texts, pairs of texts, labels. CSV, TSV or JSON lines.
//
//     text,label                   text	label                      {"text": "a nice film", "label": "good"}
//     a nice film,good             a nice film	good                   {"text": "dull, long", "label": "bad"}
//     "dull, long",bad             dull, long	bad
//
// CSV and TSV (csv.h): the first line names the columns, and every record has all of them. In CSV fields may be in
// quotes, and then contain ends of lines; in TSV, too, if the rule in csv.h says so. Otherwise quotation marks are
// characters, and a column whose fields are all in quotes is refused. All fields are texts, labels included. JSON
// lines: an object per line. A label may also be a number, which is converted to text ("3", "0.5"); several labels may
// be a list, which is joined with commas ("sport, politics"); null means absent. Other members are ignored. In all
// formats: UTF-8 (a byte order mark at the beginning is skipped) without U+0000; a line ends with \n or \r\n; empty
// lines are allowed only at the end. The order of columns does not matter.
//
// The caller says which columns it wants, and gets a string for column j of record i:
//
//     static const GxRecordColumn columns[] = {{"text", GX_COLUMN_REQUIRED, 0, "text_column"},
//                                              {"text2", GX_COLUMN_OPTIONAL, 0, "text2_column"},
//                                              {"label", GX_COLUMN_REQUIRED, 1, "label_column"}};
//     GxRecords r;
//     GX_TRY(gx_records_open(&r, "train.csv", GX_RECORDS_BY_NAME, columns, 3, NULL, err));
//     for (i < r.n) … gx_record(&r, i, 0) … r.has[1] …
//     gx_records_close(&r);
//
// The whole file is read and checked when it is opened. An error names the file, the line in which the record begins,
// what was found and what was expected, and lists further wrong records (bad_lines.h); or wrong records are left out.
// Faults of the first line, or of the file as a whole, are always errors. Memory: the file, 8 bytes per record and
// column and 8 per record, and, while JSON lines are opened, their strings beside the file. At most GX_RECORDS_CAP
// bytes. It does not split, shuffle or tokenize.
#ifndef GX_RECORDS_H
#define GX_RECORDS_H
#include "bad_lines.h"
#include "csv.h"
#include "../io/file_kind.h"
#include "../io/files.h"
GX_BEGIN

enum { GX_RECORD_COLUMNS = 16, GX_RECORDS_CAP = 1 << 30 };

typedef enum {
    GX_RECORDS_BY_NAME = 0, // .csv, .tsv, or .jsonl, .json, .ndjson; other names are errors
    GX_RECORDS_CSV,
    GX_RECORDS_TSV,
    GX_RECORDS_JSONL
} GxRecordsFormat;

typedef enum {
    GX_COLUMN_REQUIRED = 0, // every record has it, and it is not empty or only spaces
    GX_COLUMN_OPTIONAL,     // every record has it, or none
    GX_COLUMN_SPARSE,       // it may be absent or empty in any record, and is then ""
    GX_COLUMN_GIVEN         // every record has it; it may be empty, but not null
} GxColumnNeed;

enum { GX_COLUMN_SEVERAL = 2 };

typedef struct {
    const char *name;   // must outlive the records
    int need;           // a GxColumnNeed
    int is_label;       // in JSON lines numbers are accepted, too; GX_COLUMN_SEVERAL: and lists
    const char *option; // the option that names another column, for messages; NULL: none
} GxRecordColumn;

// The options for training records, for readers that detect by themselves what is in a file.
typedef struct { // 1: some file had records that were read by these names
    int text, prompts;
} GxColumnsUsed;
typedef struct {
    const char *text, *prompt, *completion; // names of columns
    GxBadRecords *skip;                     // counts wrong records, which are left out; NULL: they are errors
    GxColumnsUsed *used;                    // set by readers; may be NULL
} GxRecordReading;
// After reading: fails if an option (--text_column and so on) names a column that was not used.
GxStatus gx_record_reading_check(const GxRecordReading *r, const char *data, GxError *err);
extern const GxRecordReading gx_record_reading; // "text", "prompt", "completion", NULL

typedef struct {
    int64_t n;                  // records
    int has[GX_RECORD_COLUMNS]; // by column: 1: the file has it
    int64_t bytes;              // of the file
    uint64_t hash;              // gx_hash of all its bytes, by which ranks check that they read the same
    int columns;                // the number of wanted columns
    GxRecordColumn column[GX_RECORD_COLUMNS];
    int64_t *at;   // [n][columns]: where in `text` a string begins
    int64_t *line; // [n]: the line in which a record begins
    char *text;
    int64_t first_line; // of records
    int64_t empty_line; // JSON lines: the first empty line, after which there is nothing; 0: none
    char path[GX_PATH];
} GxRecords;

// skip NULL: wrong records are errors; otherwise they are left out, and added to it.
GxStatus gx_records_open(GxRecords *r, const char *path, GxRecordsFormat format, const GxRecordColumn *column,
                         int columns, GxBadRecords *skip, GxError *err);
// Reads JSON lines of a file that is read a piece at a time: text[bytes] are whole lines, terminated by 0, which are
// modified. place: where in the file they begin; moved to their end. There may be no record in them. The hash stays 0.
GxStatus gx_records_open_lines(GxRecords *r, GxTextPlace *place, char *text, int64_t bytes,
                               const GxRecordColumn *column, int columns, GxBadRecords *skip, GxError *err);
void gx_records_close(GxRecords *r);       // accepts a struct of zeros
int gx_records_is_table(const char *path); // 1: its name ends with .csv or .tsv
// The names of a table's columns, as many as fit, separated by commas; has[i]: 1: wanted[i] is one of them.
GxStatus gx_records_columns(const char *path, const char *const *wanted, int n, int *has, char *names, int size,
                            GxError *err);

static inline const char *gx_record(const GxRecords *r, int64_t i, int column)
{
    return r->text + r->at[i * r->columns + column];
}
static inline int64_t gx_record_line(const GxRecords *r, int64_t i) { return r->line[i]; } // for messages

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RECORDS_IMPLEMENTED)
#define GX_RECORDS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "../io/json.h"

enum { GX__RECORDS_NAMES = 200 }; // bytes of a list of columns in a message

const GxRecordReading gx_record_reading = {"text", "prompt", "completion", NULL, NULL};

GxStatus gx_record_reading_check(const GxRecordReading *r, const char *data, GxError *err)
{
    const GxRecordReading *usual = &gx_record_reading;
    if (strcmp(r->text, usual->text) && !r->used->text)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--text_column %s: nothing was read from %s by that name; check it, or leave the option out",
                       r->text, data);
    if ((strcmp(r->prompt, usual->prompt) || strcmp(r->completion, usual->completion)) && !r->used->prompts)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--prompt_column, --completion_column: nothing in %s has \"%s\" and \"%s\"; check the names, or "
                       "leave the options out",
                       data, r->prompt, r->completion);
    return GX_OK;
}

// ---- lines ---------------------------------------------------------------------------------------------------------

// Terminates the line that begins at *next, without its end, and moves *next past it; *bytes: its length. NULL: there
// is none.
static char *gx__records_line(char **next, char *text_end, int64_t *bytes)
{
    char *line = *next, *end = (char *)memchr(line, '\n', (size_t)(text_end - line));
    if (line == text_end) return NULL;
    *next = end ? end + 1 : text_end;
    end = end ? end : text_end;
    if (end > line && end[-1] == '\r') end--;
    *end = 0, *bytes = end - line;
    return line;
}

// After an empty line the file must end.
static GxStatus gx__records_end(const GxRecords *r, const char *rest, const char *end, int64_t line, GxError *err)
{
    while (rest < end && (*rest == '\r' || *rest == '\n')) rest++;
    if (rest < end)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: the line is empty, but others follow; remove it, or make it a record", r->path,
                       (long)line);
    return GX_OK;
}

// ---- records -------------------------------------------------------------------------------------------------------

// Makes room for one more record, whose strings begin as the "" at position 0 of the text.
static GxStatus gx__records_grow(GxRecords *r, int64_t *capacity, int64_t line, GxError *err)
{
    if (r->n == *capacity) {
        *capacity = gx_max(1024, 2 * *capacity);
        void *at = realloc(r->at, (size_t)(*capacity * r->columns) * sizeof *r->at);
        if (at) r->at = (int64_t *)at;
        void *lines = realloc(r->line, (size_t)*capacity * sizeof *r->line);
        if (lines) r->line = (int64_t *)lines;
        if (!at || !lines) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the records of %s", r->path);
    }
    r->line[r->n] = line;
    for (int j = 0; j < r->columns; j++) r->at[r->n * r->columns + j] = 0;
    r->n++;
    return GX_OK;
}

static int gx__records_is_needed(const GxRecords *r, int column) // 1: every record must have it
{
    return r->column[column].need == GX_COLUMN_REQUIRED || r->column[column].need == GX_COLUMN_GIVEN;
}

static int gx__records_has(const GxRecords *r, int64_t i, int column) // 1: not empty or only spaces
{
    const char *string = gx_record(r, i, column);
    return string[strspn(string, " \t\r\n")] != 0;
}

// Checks the columns of the last record. has[j] was set by the first record or the header.
static GxStatus gx__records_check_last(const GxRecords *r, int64_t line, GxError *err)
{
    for (int j = 0; j < r->columns; j++) {
        const int need = r->column[j].need, is_there = gx__records_has(r, r->n - 1, j);
        if (need >= GX_COLUMN_SPARSE || is_there == r->has[j]) continue;
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" %s; expected %s", r->path, (long)line, r->column[j].name,
                       is_there ? "is here, but not in the records above" : "is empty",
                       need == GX_COLUMN_REQUIRED ? "text" : "it in every record, or in none");
    }
    return GX_OK;
}

// Removes the last record, which is wrong. 0: reading must end.
static int gx__records_drop(GxRecords *r, GxBadLines *bad, int64_t line, const GxError *e)
{
    const int goes_on = gx_bad_lines_add(bad, line, e);
    r->n--;
    return goes_on;
}

// Adds a name to a list in a message: "text, label". If it does not fit, the list ends with an ellipsis.
static void gx__records_list(char list[GX__RECORDS_NAMES], const char *name)
{
    const size_t n = strlen(list);
    if (snprintf(list + n, GX__RECORDS_NAMES - n, "%s%s", n ? ", " : "", name) >= (int)(GX__RECORDS_NAMES - n))
        gx_text_mark_cut(list, GX__RECORDS_NAMES);
}

// How to use a column with another name: "; --text_column takes another".
static const char *gx__records_option(const GxRecordColumn *c, char say[80])
{
    say[0] = 0;
    if (c->option) snprintf(say, 80, "; --%s NAME names another one", c->option);
    return say;
}

// ---- tables --------------------------------------------------------------------------------------------------------

typedef struct {
    int fields;                    // per record
    int column[GX_RECORD_COLUMNS]; // by wanted column: its field; -1: none
    char names[GX__RECORDS_NAMES]; // of the fields, for messages
} gx__RecordsHeader;

static GxStatus gx__records_header(GxRecords *r, const GxCsv *c, gx__RecordsHeader *h, GxError *err)
{
    char say[80];
    for (int j = 0; j < r->columns; j++) h->column[j] = -1;
    for (int i = 0; i < c->fields; i++) {
        const char *field = c->field[i].text;
        gx__records_list(h->names, field);
        for (int j = 0; j < r->columns; j++) {
            if (strcmp(field, r->column[j].name)) continue;
            if (h->column[j] >= 0)
                return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: two columns have the name \"%s\"", r->path, (long)c->number,
                               field);
            h->column[j] = i, r->has[j] = 1;
        }
    }
    h->fields = c->fields;
    for (int j = 0; j < r->columns; j++)
        if (!r->has[j] && gx__records_is_needed(r, j))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s:%ld: there is no column \"%s\"; the first line names, separated by %s: %s%s", r->path,
                           (long)c->number, r->column[j].name, gx_csv_separators(c), h->names,
                           gx__records_option(&r->column[j], say));
    return GX_OK;
}

static GxStatus gx__records_row(GxRecords *r, const GxCsv *c, const gx__RecordsHeader *h, GxError *err)
{
    for (int j = 0; j < r->columns; j++) // "": the end of the text
        r->at[(r->n - 1) * r->columns + j] =
            h->column[j] >= 0 && h->column[j] < c->fields ? c->field[h->column[j]].text - r->text : r->bytes;
    if (c->fields != h->fields)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: %d column%s; expected %d (%s) separated by %s%s", r->path,
                       (long)c->number, c->fields, gx_text_s(c->fields), h->fields, h->names, gx_csv_separators(c),
                       c->fields <= h->fields ? ""
                       : c->has_quotes        ? ": a field that contains one must be in quotation marks"
                                              : ": a text cannot contain a tab");
    return gx__records_check_last(r, c->number, err);
}

// Reads the rows of a table. Strings stay in place in the file's text.
static GxStatus gx__records_rows(GxRecords *r, GxCsv *c, GxBadLines *bad, GxError *err)
{
    gx__RecordsHeader h = GX_ZERO;
    int64_t capacity = 0;
    GX_TRY(gx_csv_next(c, err));
    if (c->is_empty)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the line is empty; expected the names of the columns", r->path,
                       (long)c->number);
    GX_TRY(gx__records_header(r, c, &h, err));
    r->first_line = c->line;
    while (gx_bad_lines_goes_on(bad)) {
        GxError e = GX_ZERO;
        const int64_t at = c->byte;
        GxStatus status = gx_csv_next(c, &e);
        if (status == GX_OK && !c->fields) break;
        if (status == GX_OK && c->is_empty) return gx__records_end(r, c->next, c->end, c->number, err);
        GX_TRY(gx__records_grow(r, &capacity, c->number, err));
        if (status == GX_OK) status = gx__records_row(r, c, &h, &e);
        if (status != GX_OK && !gx__records_drop(r, bad, c->number, &e)) break;
        gx_bad_lines_pass(bad, c->number, c->byte - at);
    }
    return GX_OK;
}

static GxStatus gx__records_table(GxRecords *r, char *text, int is_tsv, int is_sound, GxBadLines *bad, int *has_quotes,
                                  GxError *err)
{
    GxCsv c;
    r->text = text;
    GX_TRY(gx_csv_open(&c, r->path, text, r->bytes, is_tsv, err));
    c.checks = !is_sound, *has_quotes = c.has_quotes;
    const GxStatus status = gx__records_rows(r, &c, bad, err);
    gx_csv_close(&c);
    return status;
}

// Refuses a table, read with quotation marks as characters, in which all fields of a column are in quotes.
static GxStatus gx__records_check_quotes(const GxRecords *r, GxError *err)
{
    for (int j = 0; j < r->columns; j++) {
        int64_t quoted = 0, fields = 0;
        for (int64_t i = 0; i < r->n && quoted == fields; i++) {
            const char *field = gx_record(r, i, j);
            const size_t n = strlen(field);
            fields += n > 0, quoted += n > 1 && field[0] == '"' && field[n - 1] == '"';
        }
        if (quoted < 2 || quoted < fields) continue;
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: all %ld fields of the column \"%s\" are in quotation marks, but the names in the first "
                       "line do not, so the marks would be part of the texts; write the file without them (pandas: "
                       "quoting=csv.QUOTE_NONE), with all names in quotation marks, too, or as .jsonl",
                       r->path, (long)quoted, r->column[j].name);
    }
    return GX_OK;
}

// ---- JSON lines ----------------------------------------------------------------------------------------------------

typedef struct { // strings one after another, the first one ""
    int64_t n, capacity;
} gx__RecordsPool;

static GxStatus gx__records_put(GxRecords *r, gx__RecordsPool *p, const char *string, int64_t *at, GxError *err)
{
    const int64_t bytes = (int64_t)strlen(string) + 1;
    if (p->n + bytes > p->capacity) {
        const int64_t capacity = p->n + bytes + p->capacity / 2;
        char *grown = (char *)realloc(r->text, (size_t)capacity);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the strings of %s", r->path);
        r->text = grown, p->capacity = capacity;
    }
    memcpy(r->text + p->n, string, (size_t)bytes);
    *at = p->n;
    p->n += bytes;
    return GX_OK;
}

static GxStatus gx__records_missing(const GxRecords *r, const GxJson *object, int64_t number, int j, GxError *err)
{
    const GxRecordColumn *c = &r->column[j];
    char names[GX__RECORDS_NAMES] = "", say[80];
    if (gx_json_get(object, c->name))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is null, so there is no %s; expected a string%s", r->path,
                       (long)number, c->name, c->is_label ? "label" : "text",
                       c->is_label == GX_COLUMN_SEVERAL ? ", or a list (if there are no labels: [])"
                       : c->is_label                    ? " or a number"
                                                        : "");
    for (GxJsonMember m = GX_ZERO; gx_json_next(object, &m);) gx__records_list(names, m.key);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: there is no \"%s\"; the line has: %s%s", r->path, (long)number, c->name,
                   names[0] ? names : "nothing", gx__records_option(c, say));
}

// A single label as text: "3", "0.5". NULL: it is not a label.
static const char *gx__records_label(const GxJson *value, char number[32])
{
    const GxJsonType type = gx_json_type(value);
    if (type == GX_JSON_STRING) return gx_json_string(value);
    if (type == GX_JSON_INT) snprintf(number, 32, "%lld", (long long)gx_json_int(value));
    else if (type == GX_JSON_REAL) gx_format_double(number, gx_json_double(value));
    else return NULL;
    return number;
}

// Joins a list of labels with commas.
static GxStatus gx__records_several(GxRecords *r, const GxJson *list, int64_t number, int j, gx__RecordsPool *p,
                                    GxError *err)
{
    char text[32], cut[GX_TEXT_VALUE], *joined = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&joined, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the labels of %s", r->path);
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < gx_json_size(list) && status == GX_OK; i++) {
        const GxJson *value = gx_json_at(list, i);
        const char *label = gx__records_label(value, text);
        if (!label)
            status = GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" has %s in its list; expected strings or numbers",
                             r->path, (long)number, r->column[j].name, gx_json_type_name(value));
        else if (!label[strspn(label, " ")] || strchr(label, ','))
            status = GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" has \"%s\" in its list; expected names without commas",
                             r->path, (long)number, r->column[j].name, gx_text_cut(label, cut, sizeof cut));
        else fprintf(out, "%s%s", i ? ", " : "", label);
    }
    if (fclose(out) != 0 && status == GX_OK)
        status = GX_FAIL(err, GX_ERR_MEMORY, "no memory for the labels of %s", r->path);
    if (status == GX_OK) status = gx__records_put(r, p, joined, &r->at[(r->n - 1) * r->columns + j], err);
    free(joined);
    return status;
}

static GxStatus gx__records_member(GxRecords *r, const GxJson *object, int64_t number, int j, gx__RecordsPool *p,
                                   GxError *err)
{
    const GxRecordColumn *c = &r->column[j];
    const GxJson *value = gx_json_get(object, c->name);
    int64_t *at = &r->at[(r->n - 1) * r->columns + j];
    char text[32];
    const GxJsonType type = gx_json_type(value);
    if (type == GX_JSON_NONE || type == GX_JSON_NULL)
        return gx__records_is_needed(r, j) ? gx__records_missing(r, object, number, j, err) : GX_OK;
    if (type == GX_JSON_ARRAY && c->is_label == GX_COLUMN_SEVERAL)
        return gx__records_several(r, value, number, j, p, err);
    const char *string = c->is_label || type == GX_JSON_STRING ? gx__records_label(value, text) : NULL;
    if (string) return gx__records_put(r, p, string, at, err);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is %s; expected a string%s%s", r->path, (long)number, c->name,
                   gx_json_type_name(value), c->is_label ? " or a number" : "",
                   type == GX_JSON_ARRAY && c->is_label
                       ? "; to give a text several labels, use --problem_type multi_label_classification"
                       : "");
}

static GxStatus gx__records_object(GxRecords *r, const GxJson *object, int64_t number, gx__RecordsPool *p, GxError *err)
{
    if (gx_json_type(object) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the line is %s; expected an object", r->path, (long)number,
                       gx_json_type_name(object));
    for (int j = 0; j < r->columns; j++) GX_TRY(gx__records_member(r, object, number, j, p, err));
    for (int j = 0; j < r->columns; j++) // the first record decides what the others must have
        if (r->n == 1 || r->column[j].need == GX_COLUMN_SPARSE)
            r->has[j] = (r->n > 1 && r->has[j]) || gx__records_is_needed(r, j) || gx__records_has(r, r->n - 1, j);
    return gx__records_check_last(r, number, err);
}

// Parses a line. Errors have the line's number in the file: "path:7:12: …".
static GxStatus gx__records_parse(const GxRecords *r, GxJson **json, const char *line, int64_t number, GxError *err)
{
    static const char first[] = ":1";
    const size_t skip = sizeof first - 1;
    GxError e = GX_ZERO;
    const GxStatus status = gx_json_parse(json, line, (int64_t)strlen(line), "", &e);
    if (status == GX_OK) return GX_OK;
    return GX_FAIL(err, status, "%s:%ld%s", r->path, (long)number,
                   strncmp(e.message, first, skip) ? e.message : e.message + skip);
}

static GxStatus gx__records_json_line(GxRecords *r, const char *line, int64_t number, gx__RecordsPool *pool,
                                      GxError *err)
{
    GxJson *json;
    GX_TRY(gx__records_parse(r, &json, line, number, err));
    const GxStatus status = gx__records_object(r, json, number, pool, err);
    gx_json_free(json);
    return status;
}

// Checks that a line is valid text, unless the whole file is known to be (is_sound).
static GxStatus gx__records_check_line(const GxRecords *r, const char *line, int64_t bytes, int64_t number,
                                       int64_t byte, int is_sound, GxError *err)
{
    GxTextPlace place = {r->path, number, byte};
    return is_sound ? GX_OK : gx_text_check(&place, line, bytes, err);
}

// byte: the position in the file of `text`.
static GxStatus gx__records_jsonl(GxRecords *r, char *text, char *begin, int64_t byte, int is_sound, GxBadLines *bad,
                                  GxError *err)
{
    gx__RecordsPool pool = GX_ZERO;
    char *const end = text + r->bytes;
    int64_t capacity = 0, number = r->first_line, nowhere, bytes;
    GX_TRY(gx__records_put(r, &pool, "", &nowhere, err));
    for (char *next = begin, *line, *at;
         (at = next, line = gx__records_line(&next, end, &bytes)) != NULL && gx_bad_lines_goes_on(bad); number++) {
        GxError e = GX_ZERO;
        if (bytes == 0) r->empty_line = number;
        if (bytes == 0) return gx__records_end(r, next, end, number, err);
        GX_TRY(gx__records_grow(r, &capacity, number, err));
        GxStatus status = gx__records_check_line(r, line, bytes, number, byte + (at - text), is_sound, &e);
        if (status == GX_OK) status = gx__records_json_line(r, line, number, &pool, &e);
        if (status != GX_OK && !gx__records_drop(r, bad, number, &e)) break;
        gx_bad_lines_pass(bad, number, next - at);
    }
    return GX_OK;
}

// ---- a file --------------------------------------------------------------------------------------------------------

int gx_records_is_table(const char *path) { return gx_path_has_end(path, ".csv") || gx_path_has_end(path, ".tsv"); }

static GxStatus gx__records_format(const char *path, GxRecordsFormat *format, GxError *err)
{
    static const struct {
        const char *ending;
        GxRecordsFormat format;
    } known[] = {{".csv", GX_RECORDS_CSV},
                 {".tsv", GX_RECORDS_TSV},
                 {".jsonl", GX_RECORDS_JSONL},
                 {".json", GX_RECORDS_JSONL},
                 {".ndjson", GX_RECORDS_JSONL}};
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    for (size_t i = 0; *format == GX_RECORDS_BY_NAME && dot && i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(dot, known[i].ending)) *format = known[i].format;
    if (*format == GX_RECORDS_BY_NAME)
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%s: its name does not say what kind of file it is; expected a name that ends with .csv, .tsv or .jsonl",
            path);
    return GX_OK;
}

static char *gx__records_behind_mark(char *text) { return text + (strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0); }

// Errors in lines are reported before an error that ends them. place: of the text's beginning.
static GxStatus gx__records_lines(GxRecords *r, GxRecordsFormat format, char *text, char *begin,
                                  const GxTextPlace *place, int is_sound, GxBadRecords *skip, GxError *err)
{
    const int is_table = format != GX_RECORDS_JSONL;
    int has_quotes = 1;
    GxBadLines bad = GX_ZERO;
    GxError e = GX_ZERO;
    bad.skip = skip;
    const GxStatus status = is_table
                                ? gx__records_table(r, text, format == GX_RECORDS_TSV, is_sound, &bad, &has_quotes, &e)
                                : gx__records_jsonl(r, text, begin, place->byte, is_sound, &bad, &e);
    GX_TRY(gx_bad_lines_fail(&bad, r->first_line, err));
    if (status != GX_OK) return GX_FAIL(err, status, "%s", e.message);
    return has_quotes ? GX_OK : gx__records_check_quotes(r, err);
}

// *is_sound 0: not all of it is valid text, and each line is checked separately, since records may be left out.
static GxStatus gx__records_check_text(GxTextPlace *place, const char *text, int64_t bytes, const GxBadRecords *skip,
                                       int *is_sound, GxError *err)
{
    GxError e = GX_ZERO;
    const GxStatus status = gx_text_check(place, text, bytes, &e);
    *is_sound = status == GX_OK;
    return *is_sound || skip ? GX_OK : GX_FAIL(err, status, "%s", e.message);
}

static GxStatus gx__records_read(GxRecords *r, GxRecordsFormat format, char *text, GxBadRecords *skip, GxError *err)
{
    char *begin = gx__records_behind_mark(text);
    const int is_table = format != GX_RECORDS_JSONL;
    const GxTextPlace first = {r->path, 1, 0};
    const int64_t skipped = skip ? skip->n : 0;
    GxTextPlace place = first;
    int is_sound;
    if (begin == text + r->bytes)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is empty; expected %s", r->path,
                       is_table ? "a line with the names of columns, and records" : "records");
    r->hash = gx_hash(GX_HASH_START, text, r->bytes), r->first_line = 1;
    GX_TRY(gx__records_check_text(&place, text, r->bytes, skip, &is_sound, err));
    GX_TRY(gx__records_lines(r, format, text, begin, &first, is_sound, skip, err));
    if (r->n > 0) return GX_OK;
    if (skip && skip->n > skipped)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: all of its records (%ld) are wrong, so none is left; the first one: %s",
                       r->path, (long)(skip->n - skipped),
                       skipped < GX_BAD_RECORDS ? skip->why[skipped] : skip->why[0]);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds no records%s", r->path,
                   is_table ? "; expected lines below the one with the names of the columns" : "");
}

static GxStatus gx__records_begin(GxRecords *r, const char *path, const GxRecordColumn *column, int columns,
                                  GxError *err)
{
    memset(r, 0, sizeof *r);
    if (columns < 1 || columns > GX_RECORD_COLUMNS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%d columns are requested; expected 1 to %d", columns, GX_RECORD_COLUMNS);
    if (snprintf(r->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    memcpy(r->column, column, (size_t)columns * sizeof *column);
    r->columns = columns;
    return GX_OK;
}

GxStatus gx_records_open(GxRecords *r, const char *path, GxRecordsFormat format, const GxRecordColumn *column,
                         int columns, GxBadRecords *skip, GxError *err)
{
    char *text;
    GX_TRY(gx__records_begin(r, path, column, columns, err));
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_TABLE, err));
    GX_TRY(gx__records_format(path, &format, err));
    GX_TRY(gx_file_read(path, GX_RECORDS_CAP, &text, &r->bytes, err));
    const GxStatus status = gx__records_read(r, format, text, skip, err);
    if (r->text != text) free(text);
    if (status != GX_OK) gx_records_close(r);
    return status;
}

GxStatus gx_records_open_lines(GxRecords *r, GxTextPlace *place, char *text, int64_t bytes,
                               const GxRecordColumn *column, int columns, GxBadRecords *skip, GxError *err)
{
    const GxTextPlace first = *place;
    int is_sound;
    GX_TRY(gx__records_begin(r, place->path, column, columns, err));
    char *begin = place->byte == 0 ? gx__records_behind_mark(text) : text;
    r->bytes = bytes, r->first_line = place->line;
    GxStatus status = gx__records_check_text(place, text, bytes, skip, &is_sound, err);
    if (!is_sound) { // place stopped there
        *place = first, place->byte += bytes;
        for (int64_t i = 0; i < bytes; i++) place->line += text[i] == '\n';
    }
    if (status == GX_OK) status = gx__records_lines(r, GX_RECORDS_JSONL, text, begin, &first, is_sound, skip, err);
    if (status != GX_OK) gx_records_close(r);
    return status;
}

void gx_records_close(GxRecords *r)
{
    free(r->text);
    free(r->at), free(r->line);
    memset(r, 0, sizeof *r);
}

GxStatus gx_records_columns(const char *path, const char *const *wanted, int n, int *has, char *names, int size,
                            GxError *err)
{
    char *text, list[GX__RECORDS_NAMES] = "";
    int64_t bytes;
    GxCsv c;
    memset(has, 0, (size_t)n * sizeof *has);
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_TABLE, err));
    GX_TRY(gx_file_read(path, GX_RECORDS_CAP, &text, &bytes, err));
    GxStatus status = gx_csv_open(&c, path, text, bytes, gx_path_has_end(path, ".tsv"), err);
    c.checks = 1;
    if (status == GX_OK) status = gx_csv_next(&c, err);
    for (int i = 0; status == GX_OK && i < c.fields; i++) {
        gx__records_list(list, c.field[i].text);
        for (int k = 0; k < n; k++) has[k] |= !strcmp(c.field[i].text, wanted[k]);
    }
    snprintf(names, (size_t)size, "%s", list);
    gx_csv_close(&c);
    free(text);
    return status;
}
#endif
