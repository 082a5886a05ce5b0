// records.h: files of records with named columns: texts, pairs of texts, labels. TSV or JSON lines.
//
//     text	label                                      {"text": "a nice film", "label": "good"}
//     a nice film	good                                   {"text": "dull", "label": "bad"}
//     dull	bad
//
// TSV: the first line names the columns, a tab separates them, every line has all of them. There are no quotes and no
// escapes: a quotation mark is a character like others, and a text holds neither a tab nor the end of a line. Programs
// that write CSV put quotes around some fields: tell them not to, or take JSON lines. A column all of whose fields
// stand in quotation marks is refused.
// JSON lines: an object per line. A label may also be a number, and stands here as text ("3", "0.5"); several labels
// may be a list, and stand here with commas between them ("sport, politics"); null is as good as absent. Other members
// are not looked at. In both: UTF-8 (a byte order mark at the beginning is passed over) without U+0000; a line ends
// with \n or \r\n; empty lines may stand at the end and nowhere else. The order of columns means nothing.
//
// The caller says which columns it wants, and gets for record i and its column j a string:
//
//     static const GxRecordColumn columns[] = {{"text", GX_COLUMN_REQUIRED, 0}, {"text2", GX_COLUMN_OPTIONAL, 0},
//                                              {"label", GX_COLUMN_REQUIRED, 1}};
//     GxRecords r;
//     GX_TRY(gx_records_open(&r, "train.tsv", GX_RECORDS_BY_NAME, columns, 3, err));
//     for (i < r.n) … gx_record(&r, i, 0) … r.has[1] …
//     gx_records_close(&r);
//
// All of the file is read and checked when it is opened, and none of it later: an error names the file, the line, what
// was found and what was expected, and which records are wrong, too (bad_lines.h). Memory: the file, 8 bytes per record
// and column, and while JSON lines are opened their strings beside the file. At most GX_RECORDS_CAP bytes. It does not
// split, shuffle or tokenize.
#ifndef GX_RECORDS_H
#define GX_RECORDS_H
#include "bad_lines.h"
#include "file_kind.h"
#include "files.h"
GX_BEGIN

enum { GX_RECORD_COLUMNS = 16, GX_RECORDS_CAP = 1 << 30 };

typedef enum {
    GX_RECORDS_BY_NAME = 0, // .tsv, or .jsonl, .json, .ndjson; of another name: an error
    GX_RECORDS_TSV,
    GX_RECORDS_JSONL
} GxRecordsFormat;

typedef enum {
    GX_COLUMN_REQUIRED = 0, // every record has it, and there is more in it than spaces
    GX_COLUMN_OPTIONAL,     // every record has it, or none
    GX_COLUMN_SPARSE,       // it may be absent or empty anywhere: reads as ""
    GX_COLUMN_GIVEN         // every record has it, and it may be empty; null is nothing
} GxColumnNeed;

enum { GX_COLUMN_SEVERAL = 2 };

typedef struct {
    const char *name; // lives as long as the records
    int need;         // a GxColumnNeed
    int is_label;     // in JSON lines numbers are taken, too; GX_COLUMN_SEVERAL: and lists
} GxRecordColumn;

typedef struct {
    int64_t n;                  // records
    int has[GX_RECORD_COLUMNS]; // by column: 1: the file has it
    int64_t bytes;              // of the file
    uint64_t hash;              // gx_hash of all its bytes: by which ranks know that they read the same
    int columns;                // that are wanted
    GxRecordColumn column[GX_RECORD_COLUMNS];
    int64_t *at; // [n][columns]: where in `text` a string begins
    char *text;
    int64_t first_line; // of record 0
    int64_t empty_line; // of JSON lines: the first empty one, behind which there is nothing; 0: none
    char path[GX_PATH];
} GxRecords;

GxStatus gx_records_open(GxRecords *r, const char *path, GxRecordsFormat format, const GxRecordColumn *column,
                         int columns, GxError *err);
// JSON lines of a file that is read a piece at a time: text[bytes] are whole lines, and are written into; there is a 0
// behind them. place: where in the file they begin; it moves on to their end. There may be no record in them. The hash
// stays 0.
GxStatus gx_records_open_lines(GxRecords *r, GxTextPlace *place, char *text, int64_t bytes,
                               const GxRecordColumn *column, int columns, GxError *err);
void gx_records_close(GxRecords *r); // also of one that is all zero

static inline const char *gx_record(const GxRecords *r, int64_t i, int column)
{
    return r->text + r->at[i * r->columns + column];
}
static inline int64_t gx_record_line(const GxRecords *r, int64_t i) { return r->first_line + i; } // for messages

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RECORDS_IMPLEMENTED)
#define GX_RECORDS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "json.h"

enum { GX__RECORDS_NAMES = 200 }; // bytes of a list of columns in a message

// ---- lines ---------------------------------------------------------------------------------------------------------

// Cuts the line that begins at *next off, without its end, and moves *next behind it. NULL: there is none.
static char *gx__records_line(char **next)
{
    char *line = *next, *end = line + strcspn(line, "\n");
    if (!*line) return NULL;
    *next = *end ? end + 1 : end;
    *end = 0;
    if (end > line && end[-1] == '\r') end[-1] = 0;
    return line;
}

// An empty line is the end of the file, or an error.
static GxStatus gx__records_end(const GxRecords *r, const char *rest, int64_t line, GxError *err)
{
    if (rest[strspn(rest, "\r\n")])
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the line is empty, and others follow; expected a record: remove it",
                       r->path, (long)line);
    return GX_OK;
}

// ---- records -------------------------------------------------------------------------------------------------------

// Room for one more; its strings begin at 0 of the text, where "" stands.
static GxStatus gx__records_grow(GxRecords *r, int64_t *capacity, GxError *err)
{
    if (r->n == *capacity) {
        *capacity = gx_max(1024, 2 * *capacity);
        int64_t *grown = (int64_t *)realloc(r->at, (size_t)(*capacity * r->columns) * sizeof *grown);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the records of %s", r->path);
        r->at = grown;
    }
    for (int j = 0; j < r->columns; j++) r->at[r->n * r->columns + j] = 0;
    r->n++;
    return GX_OK;
}

static int gx__records_is_needed(const GxRecords *r, int column) // in every record
{
    return r->column[column].need == GX_COLUMN_REQUIRED || r->column[column].need == GX_COLUMN_GIVEN;
}

static int gx__records_has(const GxRecords *r, int64_t i, int column) // more than spaces
{
    const char *string = gx_record(r, i, column);
    return string[strspn(string, " \t\r\n")] != 0;
}

// What the columns must be, of the record that came last. has[j] is what the first record showed, or the header.
static GxStatus gx__records_check_last(const GxRecords *r, int64_t line, GxError *err)
{
    for (int j = 0; j < r->columns; j++) {
        const int need = r->column[j].need, is_there = gx__records_has(r, r->n - 1, j);
        if (need >= GX_COLUMN_SPARSE || is_there == r->has[j]) continue;
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" %s; expected %s", r->path, (long)line, r->column[j].name,
                       is_there ? "is there, but not in the records above" : "is empty",
                       need == GX_COLUMN_REQUIRED ? "text" : "it in every record or in none");
    }
    return GX_OK;
}

// The last record is wrong, and is none. 0: nothing more is to be read.
static int gx__records_drop(GxRecords *r, GxBadLines *bad, int64_t line, const GxError *e)
{
    const int goes_on = gx_bad_lines_add(bad, line, e);
    r->n--;
    return goes_on;
}

// Adds a name to a list in a message: "text, label". What does not fit ends with an ellipsis.
static void gx__records_list(char list[GX__RECORDS_NAMES], const char *name)
{
    const size_t n = strlen(list);
    if (snprintf(list + n, GX__RECORDS_NAMES - n, "%s%s", n ? ", " : "", name) >= (int)(GX__RECORDS_NAMES - n))
        gx_text_mark_cut(list, GX__RECORDS_NAMES);
}

// ---- TSV -----------------------------------------------------------------------------------------------------------

typedef struct {
    int fields;                    // per line
    int column[GX_RECORD_COLUMNS]; // by wanted column: which field it is; -1: none
    char names[GX__RECORDS_NAMES]; // of the fields, for messages
} gx__RecordsHeader;

static GxStatus gx__records_header(GxRecords *r, char *line, gx__RecordsHeader *h, GxError *err)
{
    for (int j = 0; j < r->columns; j++) h->column[j] = -1;
    for (char *field = line, *end = field; field; field = end) {
        if ((end = strchr(field, '\t')) != NULL) *end++ = 0;
        gx__records_list(h->names, field);
        for (int j = 0; j < r->columns; j++) {
            if (strcmp(field, r->column[j].name)) continue;
            if (h->column[j] >= 0)
                return GX_FAIL(err, GX_ERR_FORMAT, "%s:1: two columns have the name \"%s\"", r->path, field);
            h->column[j] = h->fields, r->has[j] = 1;
        }
        h->fields++;
    }
    for (int j = 0; j < r->columns; j++)
        if (!r->has[j] && gx__records_is_needed(r, j))
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s:1: there is no column \"%s\"; the first line names, between tabs: %s", r->path,
                           r->column[j].name, h->names);
    return GX_OK;
}

static GxStatus gx__records_tsv_line(GxRecords *r, char *line, int64_t number, const gx__RecordsHeader *h, GxError *err)
{
    int fields = 0;
    for (char *field = line, *end = field; field; field = end, fields++) {
        if ((end = strchr(field, '\t')) != NULL) *end++ = 0;
        for (int j = 0; j < r->columns; j++)
            if (h->column[j] == fields) r->at[(r->n - 1) * r->columns + j] = field - r->text;
    }
    if (fields != h->fields)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: %d column%s; expected %d (%s) between tabs%s", r->path,
                       (long)number, fields, gx_text_s(fields), h->fields, h->names,
                       fields > h->fields ? ": a text may hold no tab" : "");
    return gx__records_check_last(r, number, err);
}

// Strings stay where they are in the file's text: tabs and ends of lines become their ends.
static GxStatus gx__records_tsv(GxRecords *r, char *text, char *begin, GxBadLines *bad, GxError *err)
{
    gx__RecordsHeader h = GX_ZERO;
    int64_t capacity = 0, number = 2;
    char *next = begin, *line = gx__records_line(&next);
    r->text = text, r->first_line = 2;
    if (!line[0]) return GX_FAIL(err, GX_ERR_FORMAT, "%s:1: the line is empty; expected names of columns", r->path);
    GX_TRY(gx__records_header(r, line, &h, err));
    for (const char *at; (at = next, line = gx__records_line(&next)) != NULL && gx_bad_lines_goes_on(bad); number++) {
        GxError e = GX_ZERO;
        if (!line[0]) return gx__records_end(r, next, number, err);
        GX_TRY(gx__records_grow(r, &capacity, err));
        for (int j = 0; j < r->columns; j++) r->at[(r->n - 1) * r->columns + j] = r->bytes; // "": the text's end
        if (gx__records_tsv_line(r, line, number, &h, &e) != GX_OK) gx__records_drop(r, bad, number, &e);
        gx_bad_lines_pass(bad, number, next - at);
    }
    return GX_OK;
}

// Quotation marks around all fields of a column are CSV's, and would be learned as a part of each.
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
        return GX_FAIL(
            err, GX_ERR_FORMAT,
            "%s: all %ld fields of the column \"%s\" stand in quotation marks, which in a .tsv are a part of "
            "them; write it without (pandas: quoting=csv.QUOTE_NONE), or as .jsonl",
            r->path, (long)quoted, r->column[j].name);
    }
    return GX_OK;
}

// ---- JSON lines ----------------------------------------------------------------------------------------------------

typedef struct { // where strings are put, behind each other; a "" first
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
    char names[GX__RECORDS_NAMES] = "";
    if (gx_json_get(object, c->name))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is null, which is no %s: it is missing; expected a string%s",
                       r->path, (long)number, c->name, c->is_label ? "label" : "text",
                       c->is_label == GX_COLUMN_SEVERAL ? ", or a list; [] where there is none"
                       : c->is_label                    ? " or a number"
                                                        : "");
    for (GxJsonMember m = GX_ZERO; gx_json_next(object, &m);) gx__records_list(names, m.key);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: there is no \"%s\"; the line has: %s", r->path, (long)number, c->name,
                   names[0] ? names : "nothing");
}

// A label that is no list, as text: "3", "0.5". NULL: it is none.
static const char *gx__records_label(const GxJson *value, char number[32])
{
    const GxJsonType type = gx_json_type(value);
    if (type == GX_JSON_STRING) return gx_json_string(value);
    if (type == GX_JSON_INT) snprintf(number, 32, "%lld", (long long)gx_json_int(value));
    else if (type == GX_JSON_REAL) gx_format_double(number, gx_json_double(value));
    else return NULL;
    return number;
}

// A list of labels, with commas between them.
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
                       ? ": several labels of a text are learned with --problem_type multi_label_classification"
                       : "");
}

static GxStatus gx__records_object(GxRecords *r, const GxJson *object, int64_t number, gx__RecordsPool *p, GxError *err)
{
    if (gx_json_type(object) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the line is %s; expected an object", r->path, (long)number,
                       gx_json_type_name(object));
    for (int j = 0; j < r->columns; j++) GX_TRY(gx__records_member(r, object, number, j, p, err));
    for (int j = 0; j < r->columns; j++) // the first record shows what the others must have
        if (r->n == 1 || r->column[j].need == GX_COLUMN_SPARSE)
            r->has[j] |= gx__records_is_needed(r, j) || gx__records_has(r, r->n - 1, j);
    return gx__records_check_last(r, number, err);
}

// Like the parser's message, but with the file's line in place of the text's only one: "path:7:12: …".
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

static GxStatus gx__records_jsonl(GxRecords *r, char *begin, GxBadLines *bad, GxError *err)
{
    gx__RecordsPool pool = GX_ZERO;
    int64_t capacity = 0, number = r->first_line, nowhere;
    GX_TRY(gx__records_put(r, &pool, "", &nowhere, err));
    for (char *next = begin, *line, *at;
         (at = next, line = gx__records_line(&next)) != NULL && gx_bad_lines_goes_on(bad); number++) {
        GxError e = GX_ZERO;
        if (!line[0]) r->empty_line = number;
        if (!line[0]) return gx__records_end(r, next, number, err);
        GX_TRY(gx__records_grow(r, &capacity, err));
        if (gx__records_json_line(r, line, number, &pool, &e) != GX_OK && !gx__records_drop(r, bad, number, &e)) break;
        gx_bad_lines_pass(bad, number, next - at);
    }
    return GX_OK;
}

// ---- a file --------------------------------------------------------------------------------------------------------

static GxStatus gx__records_format(const char *path, GxRecordsFormat *format, GxError *err)
{
    static const struct {
        const char *ending;
        GxRecordsFormat format;
    } known[] = {{".tsv", GX_RECORDS_TSV},
                 {".jsonl", GX_RECORDS_JSONL},
                 {".json", GX_RECORDS_JSONL},
                 {".ndjson", GX_RECORDS_JSONL}};
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    for (size_t i = 0; *format == GX_RECORDS_BY_NAME && dot && i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(dot, known[i].ending)) *format = known[i].format;
    if (*format == GX_RECORDS_BY_NAME)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s: its name does not say what is in it; expected one that ends with .tsv or .jsonl", path);
    return GX_OK;
}

static char *gx__records_behind_mark(char *text) { return text + (strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0); }

// What is wrong in the lines comes before what ends them.
static GxStatus gx__records_lines(GxRecords *r, GxRecordsFormat format, char *text, char *begin, GxError *err)
{
    GxBadLines bad = GX_ZERO;
    GxError e = GX_ZERO;
    const GxStatus status =
        format == GX_RECORDS_TSV ? gx__records_tsv(r, text, begin, &bad, &e) : gx__records_jsonl(r, begin, &bad, &e);
    GX_TRY(gx_bad_lines_fail(&bad, r->first_line, err));
    if (status != GX_OK) return GX_FAIL(err, status, "%s", e.message);
    return format == GX_RECORDS_TSV ? gx__records_check_quotes(r, err) : GX_OK;
}

static GxStatus gx__records_read(GxRecords *r, GxRecordsFormat format, char *text, GxError *err)
{
    char *begin = gx__records_behind_mark(text);
    GxTextPlace place = {r->path, 1, 0};
    if (!begin[0])
        return GX_FAIL(err, GX_ERR_FORMAT, "%s is empty; expected %s", r->path,
                       format == GX_RECORDS_TSV ? "a line with the names of columns, and records" : "records");
    r->hash = gx_hash(GX_HASH_START, text, r->bytes), r->first_line = 1;
    GX_TRY(gx_text_check(&place, text, r->bytes, err));
    GX_TRY(gx__records_lines(r, format, text, begin, err));
    if (r->n > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s holds no records%s", r->path,
                   format == GX_RECORDS_TSV ? "; expected lines below the one that names the columns" : "");
}

static GxStatus gx__records_begin(GxRecords *r, const char *path, const GxRecordColumn *column, int columns,
                                  GxError *err)
{
    memset(r, 0, sizeof *r);
    if (columns < 1 || columns > GX_RECORD_COLUMNS)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%d columns are wanted; expected 1 to %d", columns, GX_RECORD_COLUMNS);
    if (snprintf(r->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    memcpy(r->column, column, (size_t)columns * sizeof *column);
    r->columns = columns;
    return GX_OK;
}

GxStatus gx_records_open(GxRecords *r, const char *path, GxRecordsFormat format, const GxRecordColumn *column,
                         int columns, GxError *err)
{
    char *text;
    GX_TRY(gx__records_begin(r, path, column, columns, err));
    GX_TRY(gx_file_check_kind(path, GX_FILE_AS_TABLE, err));
    GX_TRY(gx__records_format(path, &format, err));
    GX_TRY(gx_file_read(path, GX_RECORDS_CAP, &text, &r->bytes, err));
    const GxStatus status = gx__records_read(r, format, text, err);
    if (r->text != text) free(text);
    if (status != GX_OK) gx_records_close(r);
    return status;
}

GxStatus gx_records_open_lines(GxRecords *r, GxTextPlace *place, char *text, int64_t bytes,
                               const GxRecordColumn *column, int columns, GxError *err)
{
    GX_TRY(gx__records_begin(r, place->path, column, columns, err));
    char *begin = place->byte == 0 ? gx__records_behind_mark(text) : text;
    r->bytes = bytes, r->first_line = place->line;
    GxStatus status = gx_text_check(place, text, bytes, err);
    if (status == GX_OK) status = gx__records_lines(r, GX_RECORDS_JSONL, text, begin, err);
    if (status != GX_OK) gx_records_close(r);
    return status;
}

void gx_records_close(GxRecords *r)
{
    free(r->text);
    free(r->at);
    memset(r, 0, sizeof *r);
}
#endif
