// csv.h: reads a table from a text, record by record: CSV (RFC 4180), or TSV, with or without quotes.
//
//     GxCsv c;
//     GX_TRY(gx_csv_open(&c, "films.csv", text, bytes, 0, err));
//     while ((status = gx_csv_next(&c, err)) == GX_OK && c.fields) … c.field[0 .. c.fields).text … c.number …
//     gx_csv_close(&c);
//
// The text is modified in place: fields stay where they are, without their quotes, each terminated by a 0. A byte order
// mark at the beginning is skipped. Records end with \n or \r\n, or at the end of the text. The first record, which
// usually names the columns, is treated like the others, and columns are not counted.
//
// CSV. A field may be in quotes, and then contain separators, ends of lines, and doubled quotation marks. Spaces belong
// to fields. Errors are a quotation mark in a field that does not begin with one, text after a closing one, one that is
// never closed, and a single carriage return outside quotes. They name the line in which the record begins; reading
// continues on the next line. The separator is a comma; if the first line has none outside quotes, a semicolon (as
// written by Excel where the comma is the decimal point), otherwise a tab. Excel's first line "sep=;" sets it, and is
// skipped.
//
// TSV. Programs that write CSV with tabs (pandas, csv.writer's excel-tab, Excel) quote the fields that need it, and
// double quotation marks in them; others write quotation marks like any other character. One decision is made for a
// whole file:
// - If all names in the first line are in quotes, the file is read as CSV.
// - Otherwise the quotation marks of all lines are examined. If each belongs to a well-formed quoted field, and at
//   least one of these fields cannot be anything else, the file is read as CSV. Such a field contains doubled quotation
//   marks or a carriage return, or its line has the same number of columns as the first one only if tabs or ends of
//   lines in quotes do not count.
// - Otherwise quotation marks are characters, and a record is a line.
// Ambiguous files are refused, with advice: some fields that only quoting can produce and others with literal quotation
// marks; one column with a quoted field over several lines; quoted fields that need no quotes but are exactly those
// with commas, as Excel writes them.
#ifndef GX_CSV_H
#define GX_CSV_H
#include "../io/files.h"
GX_BEGIN

typedef struct {
    char *text, *end; // text: the contents, terminated by 0; end: private
    int is_quoted;
} GxCsvField;
typedef struct {
    const char *path; // for messages
    char separator;
    int has_quotes; // 0: quotation marks are characters, and a record is a line
    int checks;     // 1: each record is checked to be UTF-8, since the text as a whole was not
    // The last record.
    GxCsvField *field; // [fields]
    int fields;        // 0: none, the text is at its end
    int is_empty;      // 1: an empty line
    int64_t number;    // the line in which the record begins
    // What comes next.
    char *next, *end;
    int64_t line, byte; // its line; the byte of the file at which the text begins
    int room;
} GxCsv;

// text[bytes] must be 0. path must outlive c.
GxStatus gx_csv_open(GxCsv *c, const char *path, char *text, int64_t bytes, int is_tsv, GxError *err);
GxStatus gx_csv_next(GxCsv *c, GxError *err);  // may be called again after GX_ERR_FORMAT
void gx_csv_close(GxCsv *c);                   // accepts a struct of zeros
const char *gx_csv_separators(const GxCsv *c); // "commas", "semicolons", "tabs"

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CSV_IMPLEMENTED)
#define GX_CSV_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *gx_csv_separators(const GxCsv *c)
{
    return c->separator == ',' ? "commas" : c->separator == ';' ? "semicolons" : "tabs";
}

static int gx__csv_is_line_end(const char *p, const char *end)
{
    return p == end || *p == '\n' || (*p == '\r' && (p + 1 == end || p[1] == '\n'));
}

static char *gx__csv_line_end(char *p, char *end) // the next \n, or the end
{
    char *found = (char *)memchr(p, '\n', (size_t)(end - p));
    return found ? found : end;
}

// The quotation mark that closes the one at p; NULL: none.
static char *gx__csv_closing(char *p, char *end)
{
    for (p++; (p = (char *)memchr(p, '"', (size_t)(end - p))) != NULL; p += 2)
        if (p + 1 == end || p[1] != '"') return p;
    return NULL;
}

// ---- a record ------------------------------------------------------------------------------------------------------

static GxStatus gx__csv_grow(GxCsv *c, GxError *err)
{
    if (c->fields < c->room) return GX_OK;
    const int room = 16 + 2 * c->room;
    GxCsvField *grown = (GxCsvField *)realloc(c->field, (size_t)room * sizeof *grown);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a record of %d columns of %s", room, c->path);
    c->field = grown, c->room = room;
    return GX_OK;
}

// *p: the opening quotation mark; moved past the closing one.
static GxStatus gx__csv_scan_quoted(const GxCsv *c, char **p, GxCsvField *f, GxError *err)
{
    char *close = gx__csv_closing(*p, c->end);
    if (!close)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: the quotation mark at the beginning of column %d is never closed; expected one at the "
                       "end of the field, and quotation marks inside it doubled",
                       c->path, (long)c->number, c->fields);
    f->text = *p + 1, f->end = close, *p = close + 1;
    if (gx__csv_is_line_end(*p, c->end) || **p == c->separator) return GX_OK;
    int64_t lines = 0;
    for (const char *q = c->next; q < close; q++) lines += *q == '\n';
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s:%ld: there is text after the quotation mark that closes column %d (in line %ld); expected %s or "
                   "the end of the line, and quotation marks inside a field doubled",
                   c->path, (long)c->number, c->fields, (long)(c->line + lines),
                   c->separator == ','   ? "a comma"
                   : c->separator == ';' ? "a semicolon"
                                         : "a tab");
}

// Moves *p to the end of the field.
static GxStatus gx__csv_scan_bare(const GxCsv *c, char **p, GxCsvField *f, GxError *err)
{
    f->text = *p;
    while (*p < c->end && **p != c->separator && !gx__csv_is_line_end(*p, c->end)) {
        if (c->has_quotes && **p == '"')
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s:%ld: column %d contains a quotation mark, but does not begin with one; expected "
                           "quotation marks around the field, and those inside it doubled",
                           c->path, (long)c->number, c->fields);
        if (c->has_quotes && **p == '\r')
            return GX_FAIL(err, GX_ERR_FORMAT,
                           "%s:%ld: column %d contains a carriage return without quotation marks around the field; "
                           "expected lines that end with \\n or \\r\\n",
                           c->path, (long)c->number, c->fields);
        ++*p;
    }
    f->end = *p;
    return GX_OK;
}

// Finds the fields without changing the text. *behind: where the next record begins.
static GxStatus gx__csv_scan(GxCsv *c, char **behind, GxError *err)
{
    char *p = c->next;
    for (c->fields = 0;; p++) { // skips the separator
        GX_TRY(gx__csv_grow(c, err));
        GxCsvField *f = &c->field[c->fields++];
        f->is_quoted = c->has_quotes && p < c->end && *p == '"';
        if (f->is_quoted) GX_TRY(gx__csv_scan_quoted(c, &p, f, err));
        else GX_TRY(gx__csv_scan_bare(c, &p, f, err));
        if (gx__csv_is_line_end(p, c->end)) break;
    }
    p += p < c->end && *p == '\r';
    *behind = p + (p < c->end && *p == '\n');
    if (!c->checks) return GX_OK;
    GxTextPlace place = {c->path, c->line, c->byte};
    return gx_text_check(&place, c->next, *behind - c->next, err);
}

static void gx__csv_unquote(GxCsvField *f)
{
    char *to = f->text;
    for (const char *p = f->text; f->is_quoted && p < f->end; p++) {
        *to++ = *p;
        p += *p == '"';
    }
    *(f->is_quoted ? to : f->end) = 0;
}

GxStatus gx_csv_next(GxCsv *c, GxError *err)
{
    char *const begin = c->next, *behind = begin;
    c->fields = 0, c->is_empty = 0, c->number = c->line;
    if (begin == c->end) return GX_OK;
    const GxStatus status = gx__csv_scan(c, &behind, err);
    if (status != GX_OK) {
        behind = gx__csv_line_end(begin, c->end);
        behind += behind < c->end;
        c->fields = 0;
    }
    for (const char *p = begin; p < behind; p++) c->line += *p == '\n';
    c->byte += behind - begin, c->next = behind;
    for (int i = 0; i < c->fields; i++) gx__csv_unquote(&c->field[i]);
    c->is_empty = c->fields == 1 && !c->field[0].is_quoted && c->field[0].text == c->field[0].end;
    return status;
}

// ---- which separator -----------------------------------------------------------------------------------------------

static void gx__csv_choose_separator(GxCsv *c)
{
    const size_t n = 5; // "sep=;"
    int has[2] = {0, 0}, is_in_quotes = 0;
    if (c->end - c->next >= (int64_t)n && !strncasecmp(c->next, "sep=", 4) && strchr(",;\t", c->next[4]) &&
        gx__csv_is_line_end(c->next + n, c->end)) {
        c->separator = c->next[4];
        char *end = gx__csv_line_end(c->next, c->end);
        end += end < c->end;
        c->byte += end - c->next, c->line += 1, c->next = end;
        return;
    }
    for (const char *p = c->next; p < c->end && (is_in_quotes || *p != '\n'); p++) {
        is_in_quotes ^= *p == '"';
        if (is_in_quotes) continue;
        c->separator = ',';
        if (*p == ',') return;
        has[0] |= *p == ';', has[1] |= *p == '\t';
    }
    c->separator = has[0] ? ';' : has[1] ? '\t' : ',';
}

// ---- a table with tabs: whether its quotation marks are quotes -----------------------------------------------------

// Kinds of fields by their quotation marks; each is the line of the first such field, 0: none.
typedef struct {
    int64_t columns;
    int64_t quoted;      // can only be a quoted field
    int64_t bare;        // can only be literal quotation marks
    int64_t over_lines;  // in a file with one column: could be either
    int64_t needless;    // quoted without need, without commas
    int64_t with_comma;  // quoted without need, with commas
    int64_t plain_comma; // not quoted, with commas
} gx__CsvMarks;

static void gx__csv_note(int64_t *first, int64_t line)
{
    if (!*first) *first = line;
}

static int64_t gx__csv_count(const char *p, const char *end, char what)
{
    int64_t n = 0;
    for (; p < end; p++) n += *p == what;
    return n;
}

// 1: all lines from that of p to that of `last` have as many columns as the first line.
static int gx__csv_lines_fit(char *p, const char *last, char *end, int64_t columns)
{
    while (p <= last) {
        char *line_end = gx__csv_line_end(p, end);
        if (gx__csv_count(p, line_end, '\t') + 1 != columns) return 0;
        p = line_end + 1;
    }
    return 1;
}

// Classifies the field at *p, and moves *p to its end. *line: the number of the line.
static void gx__csv_detect_field(gx__CsvMarks *m, char *begin, char **p, char *end, int64_t *line)
{
    char *field = *p, *stop = field;
    while (stop < end && *stop != '\t' && *stop != '\n') stop++;
    *p = stop;
    char *close = field < end && *field == '"' ? gx__csv_closing(field, end) : NULL;
    const int is_sound = close && (close[1] == '\t' || gx__csv_is_line_end(close + 1, end)),
              has_comma = memchr(field, ',', (size_t)(stop - field)) != NULL;
    if (!is_sound && memchr(field, '"', (size_t)(stop - field))) gx__csv_note(&m->bare, *line);
    if (!is_sound && has_comma) gx__csv_note(&m->plain_comma, *line);
    if (!is_sound) return;
    if (close < stop) {
        const size_t n = (size_t)(close - field - 1);
        const int needs_them = memchr(field + 1, '"', n) || memchr(field + 1, '\r', n);
        gx__csv_note(needs_them ? &m->quoted : has_comma ? &m->with_comma : &m->needless, *line);
        return;
    }
    if (gx__csv_lines_fit(begin, close, end, m->columns)) // read as lines they are valid, too
        gx__csv_note(m->columns == 1 ? &m->over_lines : &m->bare, *line);
    else gx__csv_note(&m->quoted, *line);
    *line += gx__csv_count(field, close, '\n');
    *p = close + 1;
    if (*p < end && **p == '\r') ++*p;
}

static void gx__csv_detect(gx__CsvMarks *m, char *p, char *end, int64_t line)
{
    for (char *begin = p; p < end; p++) {
        gx__csv_detect_field(m, begin, &p, end, &line);
        if (p < end && *p == '\n') line++, begin = p + 1;
    }
}

// 1: all names are in quotes.
static int gx__csv_names_are_quoted(char *p, char *end)
{
    while (p < end && *p == '"') {
        char *close = gx__csv_closing(p, end);
        if (!close) return 0;
        p = close + 1;
        if (gx__csv_is_line_end(p, end)) return 1;
        if (*p++ != '\t') return 0;
    }
    return 0;
}

static GxStatus gx__csv_choose_quotes(GxCsv *c, GxError *err)
{
    static const char how[] =
        "to have them removed, put the names in the first line in quotation marks, too, and double those inside a "
        "field (pandas: quoting=csv.QUOTE_ALL); to keep them, write the data as .jsonl";
    gx__CsvMarks m = GX_ZERO;
    char *line_end = gx__csv_line_end(c->next, c->end);
    c->has_quotes = 0;
    if (!memchr(c->next, '"', (size_t)(c->end - c->next))) return GX_OK;
    c->has_quotes = gx__csv_names_are_quoted(c->next, c->end);
    if (c->has_quotes) return GX_OK;
    m.columns = gx__csv_count(c->next, line_end, '\t') + 1;
    gx__csv_detect(&m, c->next, c->end, c->line);
    if (m.quoted && m.bare)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: quotation marks enclose a field in line %ld, but in line %ld they are part of one, so it "
                       "is not clear which is meant; %s",
                       c->path, (long)m.quoted, (long)m.bare, how);
    if (!m.quoted && !m.bare && m.over_lines)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: from here on several lines could be one quoted field, or each line a field with a "
                       "quotation mark in it; %s",
                       c->path, (long)m.over_lines, how);
    if (!m.quoted && !m.bare && m.with_comma && !m.needless && !m.plain_comma)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: exactly those fields that contain a comma are in quotation marks: either Excel wrote "
                       "them, or they are part of the texts; %s",
                       c->path, (long)m.with_comma, how);
    c->has_quotes = m.quoted != 0;
    return GX_OK;
}

GxStatus gx_csv_open(GxCsv *c, const char *path, char *text, int64_t bytes, int is_tsv, GxError *err)
{
    memset(c, 0, sizeof *c);
    const int mark = strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    c->path = path, c->next = text + mark, c->end = text + bytes, c->byte = mark, c->line = 1;
    c->separator = '\t', c->has_quotes = 1;
    if (is_tsv) return gx__csv_choose_quotes(c, err);
    gx__csv_choose_separator(c);
    return GX_OK;
}

void gx_csv_close(GxCsv *c)
{
    free(c->field);
    memset(c, 0, sizeof *c);
}
#endif
