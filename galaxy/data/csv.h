// csv.h: a table in a text, record by record: CSV (RFC 4180), or TSV, with quotes or without.
//
//     GxCsv c;
//     GX_TRY(gx_csv_open(&c, "films.csv", text, bytes, 0, err));
//     while ((status = gx_csv_next(&c, err)) == GX_OK && c.fields) … c.field[0 .. c.fields).text … c.number …
//     gx_csv_close(&c);
//
// The text is written into: fields stay where they are in it, without their quotes, and each ends with a 0. A byte
// order mark at the beginning is passed over. Records end with \n, or \r\n, or with the text. The first record, which
// names the columns as a rule, is one like others here, and nobody counts columns.
//
// CSV. A field may stand in quotation marks; in these it may hold separators and ends of lines, and quotation marks,
// each of which is doubled. Spaces are a part of fields. Errors are a quotation mark in a field that does not begin
// with one, text behind a closing one, one that is never closed, and a carriage return alone outside of quotes. They
// name the line in which the record begins; what follows is read from the next line on. The separator is a comma; where
// the first line has none outside of quotes, a semicolon (as Excel writes where the comma is for decimals), else a tab;
// a first line "sep=;", which is Excel's, says it, and is passed over.
//
// TSV. Programs that write CSV with tabs (pandas, csv.writer's excel-tab, Excel) put quotes around the fields that need
// it, and double quotation marks in them; others write quotation marks as any other character. Which of the two a file
// is decides all of it:
// - Where all names in the first line stand in quotes, fields may: it is read as CSV is.
// - Else quotation marks are looked at in all lines. If each belongs to a field that is well-formed in quotes, and one
//   of these can mean nothing else (it has doubled quotation marks or a carriage return in it, or a line has not as
//   many columns as the first one unless tabs or ends of lines in quotes are none), it is read as CSV is.
// - Else they are characters, and a record is a line.
// Refused, with how to say it, is what could be either: some fields as only quoting writes them and others with
// quotation marks as they stand; one column, and a field in quotes over several lines; fields in quotes that do not
// need it, but are those with commas, all of them, which Excel quotes.
#ifndef GX_CSV_H
#define GX_CSV_H
#include "../io/files.h"
GX_BEGIN

typedef struct {
    char *text, *end; // text: what it holds, up to a 0; end: private
    int is_quoted;
} GxCsvField;
typedef struct {
    const char *path; // for messages
    char separator;
    int has_quotes; // 0: quotation marks are characters, and a record is a line
    int checks;     // 1: whether a record is text in UTF-8 has not been looked at, and is, record by record
    // The last record.
    GxCsvField *field; // [fields]
    int fields;        // 0: there is none, the text is over
    int is_empty;      // 1: an empty line
    int64_t number;    // the line in which it begins
    // What comes next.
    char *next, *end;
    int64_t line, byte; // its line; the byte that the text begins with
    int room;
} GxCsv;

// text[bytes] is 0. path lives as long as c.
GxStatus gx_csv_open(GxCsv *c, const char *path, char *text, int64_t bytes, int is_tsv, GxError *err);
GxStatus gx_csv_next(GxCsv *c, GxError *err);  // after GX_ERR_FORMAT it may go on
void gx_csv_close(GxCsv *c);                   // also of one that is all zero
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

// The quotation mark that closes the one at p; NULL: none does.
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

// *p: the opening quotation mark; moves on behind the closing one.
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

// Moves on to its end.
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

// Finds the fields, and changes nothing of the text. *behind: where the next record begins.
static GxStatus gx__csv_scan(GxCsv *c, char **behind, GxError *err)
{
    char *p = c->next;
    for (c->fields = 0;; p++) { // over the separator
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

// Fields by what their quotation marks say; each the line of the first such, and 0: there is none.
typedef struct {
    int64_t columns;
    int64_t quoted;      // nothing else than a field in quotes is meant
    int64_t bare;        // nothing else than characters is meant
    int64_t over_lines;  // of one column: either
    int64_t needless;    // in quotes that it does not need, and without commas
    int64_t with_comma;  // the same with commas
    int64_t plain_comma; // without quotes, and with commas
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

// 1: all lines from p's on to that of `last` have as many columns as the first one.
static int gx__csv_lines_fit(char *p, const char *last, char *end, int64_t columns)
{
    while (p <= last) {
        char *line_end = gx__csv_line_end(p, end);
        if (gx__csv_count(p, line_end, '\t') + 1 != columns) return 0;
        p = line_end + 1;
    }
    return 1;
}

// A field at p, of the line that begins at `line`: *p moves on to its end.
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
    if (gx__csv_lines_fit(begin, close, end, m->columns)) // as lines they are sound, too
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

// 1: all names stand in quotes.
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
                       "%s: a field in line %ld is quoted as programs do it, but one in line %ld has plain quotation "
                       "marks, so it is not known which of the two they are; %s",
                       c->path, (long)m.quoted, (long)m.bare, how);
    if (!m.quoted && !m.bare && m.over_lines)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: from here on several lines could be one quoted field, or each line a field with a "
                       "quotation mark in it; %s",
                       c->path, (long)m.over_lines, how);
    if (!m.quoted && !m.bare && m.with_comma && !m.needless && !m.plain_comma)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s:%ld: exactly those fields that contain a comma stand in quotation marks: either Excel wrote "
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
