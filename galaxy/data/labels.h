// labels.h: interprets the label of a record: a class, several classes, or a number.
//
//     GxLabels l;
//     GX_TRY(gx_labels_make(&l, &train, 1, GX_LABEL_CLASS, err));            // its distinct labels, sorted
//     GX_TRY(gx_label_class(&l, &validation, i, 1, &class_of_i, err));       // a label not in training is an error
//     gx_labels_close(&l);
//
// Classes are numbered in the sorted order of the labels: by value if all are integers, otherwise by their bytes, so
// that the order of records does not matter. A model with its own list of labels keeps its order (gx_labels_set).
// GX_LABEL_SEVERAL: a label is a list of names separated by commas ("sport, politics"); spaces around names are
// ignored; "" means no class. Numbers are decimal: "3", "-0.5", "1e-3".
#ifndef GX_LABELS_H
#define GX_LABELS_H
#include "records.h"
GX_BEGIN

enum { GX_LABELS_MOST = 1000, GX_LABEL_BYTES = 200 }; // the most labels; the most bytes of one

typedef enum { GX_LABEL_CLASS = 0, GX_LABEL_SEVERAL } GxLabelKind;

typedef struct {
    int n, kind;
    const char **name; // [n]
    int64_t *count;    // [n]: records with this label; 0 for a list that was set
    int *sorted;       // [n]: classes in the order of their names' bytes
    char *text;        // the names, GX_LABEL_BYTES + 1 apart
} GxLabels;

// Collects the distinct labels of a column. More than GX_LABELS_MOST, or two that differ only in spaces around them,
// are errors.
GxStatus gx_labels_make(GxLabels *l, const GxRecords *r, int column, GxLabelKind kind, GxError *err);
// Sets labels from a list, in its order. where: its file, for messages. Empty and duplicate names are errors.
GxStatus gx_labels_set(GxLabels *l, const char *const *name, int n, GxLabelKind kind, const char *where, GxError *err);
GxStatus gx_labels_set_text(GxLabels *l, const char *names, GxLabelKind kind, const char *where,
                            GxError *err); // the same from "a, b,c"
// The mark around a name in a list: a quotation mark if the name contains a comma, otherwise "".
const char *gx_label_mark(const char *name);
// Leaves out records whose label is invalid in any list: too long, an empty name among several, a name twice.
GxStatus gx_labels_leave_out(GxRecords *r, int column, GxLabelKind kind, GxBadRecords *skip, GxError *err);
void gx_labels_close(GxLabels *l);                       // also of one that is all zero
int gx_labels_find(const GxLabels *l, const char *name); // its class; -1: none

// The label of record i. An unknown label is an error that names the file, the line, the label and the possible ones.
GxStatus gx_label_class(const GxLabels *l, const GxRecords *r, int64_t i, int column, int *class_, GxError *err);
// has[n]: 1 if the record is of that class
GxStatus gx_label_classes(const GxLabels *l, const GxRecords *r, int64_t i, int column, unsigned char *has,
                          GxError *err);
// The label as a decimal number, whose square must be finite in fp32.
GxStatus gx_label_number(const GxRecords *r, int64_t i, int column, double *number, GxError *err);
int gx_label_is_number(const GxRecords *r, int64_t i, int column); // 1: a decimal number of any size

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_LABELS_IMPLEMENTED)
#define GX_LABELS_IMPLEMENTED
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The bytes of a list and of a label in a message; the most digits that always fit into 64 bits.
enum { GX__LABELS_LIST = 200, GX__LABELS_QUOTE = 44, GX__LABELS_DIGITS = 18 };

// ---- a set of names ------------------------------------------------------------------------------------------------
// name[], count[] and sorted[] have room for GX_LABELS_MOST; while a set grows, sorted[] keeps the order of the names.

typedef struct {
    const char *text;
    int64_t n;
} gx__Label;

static int gx__labels_compare(const char *name, gx__Label x) // strcmp of name and x
{
    const int order = strncmp(name, x.text, (size_t)x.n);
    return order ? order : name[x.n] != 0;
}

// The place in sorted[] where x is, or would be inserted.
static int gx__labels_place(const GxLabels *l, gx__Label x)
{
    int low = 0, high = l->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (gx__labels_compare(l->name[l->sorted[middle]], x) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int gx__labels_find(const GxLabels *l, gx__Label x)
{
    const int place = gx__labels_place(l, x);
    return place < l->n && gx__labels_compare(l->name[l->sorted[place]], x) == 0 ? l->sorted[place] : -1;
}

int gx_labels_find(const GxLabels *l, const char *name)
{
    const gx__Label x = {name, (int64_t)strlen(name)};
    return gx__labels_find(l, x);
}

static GxStatus gx__labels_new(GxLabels *l, GxLabelKind kind, GxError *err)
{
    memset(l, 0, sizeof *l);
    l->kind = (int)kind;
    l->name = (const char **)calloc(GX_LABELS_MOST, sizeof *l->name);
    l->count = (int64_t *)calloc(GX_LABELS_MOST, sizeof *l->count);
    l->sorted = (int *)calloc(GX_LABELS_MOST, sizeof *l->sorted);
    l->text = (char *)malloc((size_t)GX_LABELS_MOST * (GX_LABEL_BYTES + 1));
    if (l->name && l->count && l->sorted && l->text) return GX_OK;
    gx_labels_close(l);
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d labels", GX_LABELS_MOST);
}

void gx_labels_close(GxLabels *l)
{
    free(l->name), free(l->count), free(l->sorted), free(l->text);
    memset(l, 0, sizeof *l);
}

// Adds a name that is not in the set; there must be room.
static void gx__labels_add(GxLabels *l, const char *name)
{
    const gx__Label x = {name, (int64_t)strlen(name)};
    const int place = gx__labels_place(l, x);
    memmove(l->sorted + place + 1, l->sorted + place, (size_t)(l->n - place) * sizeof *l->sorted);
    l->sorted[place] = l->n;
    l->name[l->n++] = name;
}

// ---- the names in a field ------------------------------------------------------------------------------------------

// The next name of a list separated by commas, from *next on; 0: none. A comma at the end is followed by an empty name.
static int gx__labels_next(const char **next, gx__Label *x)
{
    if (!*next) return 0;
    const char *begin = *next + strspn(*next, " "), *comma = begin + strcspn(begin, ",");
    *next = *comma ? comma + 1 : NULL;
    while (comma > begin && comma[-1] == ' ') comma--;
    x->text = begin, x->n = comma - begin;
    return 1;
}

static int gx__labels_first(const char *field, int kind, const char **next, gx__Label *x) // as gx__labels_next
{
    *next = kind == GX_LABEL_SEVERAL && field[strspn(field, " ")] ? field : NULL;
    if (kind == GX_LABEL_SEVERAL) return gx__labels_next(next, x);
    x->text = field, x->n = (int64_t)strlen(field);
    return 1;
}

// A label, quoted for a message.
static const char *gx__labels_quote(gx__Label x, char cut[GX__LABELS_QUOTE])
{
    char whole[2 * GX__LABELS_QUOTE];
    snprintf(whole, sizeof whole, "%.*s", (int)gx_min(x.n, (int64_t)sizeof whole - 1), x.text);
    return gx_text_cut(whole, cut, GX__LABELS_QUOTE);
}

// ---- a table of labels ---------------------------------------------------------------------------------------------

static int gx__labels_is_integer(const char *name)
{
    const char *digits = name + (name[0] == '-');
    const size_t n = strspn(digits, "0123456789");
    return n > 0 && n <= GX__LABELS_DIGITS && digits[n] == 0;
}

static int gx__labels_by_value(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const long long i = atoll(x), j = atoll(y);
    return i != j ? (i > j) - (i < j) : strcmp(x, y); // "1" and "01"
}

static int gx__labels_by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Numbers the names in their sorted order, before they are counted.
static void gx__labels_sort(GxLabels *l)
{
    const int n = l->n;
    int integers = 0;
    for (int i = 0; i < n; i++) integers += gx__labels_is_integer(l->name[i]);
    if (n) qsort(l->name, (size_t)n, sizeof *l->name, integers == n ? gx__labels_by_value : gx__labels_by_bytes);
    l->n = 0;
    while (l->n < n) gx__labels_add(l, l->name[l->n]);
}

// Fails if x cannot be another label. where: its "path:line".
static GxStatus gx__labels_check(const GxLabels *l, gx__Label x, const char *where, GxError *err)
{
    char cut[GX__LABELS_QUOTE];
    if (x.n == 0)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: a label is empty; expected a name%s", where,
                       l->kind == GX_LABEL_SEVERAL ? " before and after every comma" : "");
    if (x.n > GX_LABEL_BYTES)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: the label \"%s\" has %ld bytes, but at most %d are possible; is it a text?", where,
                       gx__labels_quote(x, cut), (long)x.n, GX_LABEL_BYTES);
    if (l->n == GX_LABELS_MOST)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: the label \"%s\" is one too many: there may be at most %d different labels; are they "
                       "numbers to predict, or is a different column meant?",
                       where, gx__labels_quote(x, cut), GX_LABELS_MOST);
    return GX_OK;
}

// Adds x to text[] if it is new.
static GxStatus gx__labels_meet(GxLabels *l, gx__Label x, const char *where, GxError *err)
{
    if (gx__labels_find(l, x) >= 0) return GX_OK;
    GX_TRY(gx__labels_check(l, x, where, err));
    char *name = l->text + (size_t)l->n * (GX_LABEL_BYTES + 1);
    memcpy(name, x.text, (size_t)x.n);
    name[x.n] = 0;
    gx__labels_add(l, name);
    return GX_OK;
}

static GxStatus gx__labels_collect(GxLabels *l, const GxRecords *r, int column, int64_t i, GxError *err)
{
    char where[GX_PATH + 24];
    const char *next;
    gx__Label x;
    snprintf(where, sizeof where, "%s:%ld", r->path, (long)gx_record_line(r, i));
    for (int more = gx__labels_first(gx_record(r, i, column), l->kind, &next, &x); more;
         more = gx__labels_next(&next, &x))
        GX_TRY(gx__labels_meet(l, x, where, err));
    return GX_OK;
}

static GxStatus gx__labels_count(GxLabels *l, const GxRecords *r, int column, GxError *err)
{
    unsigned char has[GX_LABELS_MOST];
    int class_ = 0;
    for (int64_t i = 0; i < r->n; i++) {
        if (l->kind == GX_LABEL_CLASS) {
            GX_TRY(gx_label_class(l, r, i, column, &class_, err));
            l->count[class_]++;
            continue;
        }
        GX_TRY(gx_label_classes(l, r, i, column, has, err));
        for (int c = 0; c < l->n; c++) l->count[c] += has[c];
    }
    return GX_OK;
}

// Refuses "good " beside "good", which would be another class.
static GxStatus gx__labels_check_spaces(const GxLabels *l, const GxRecords *r, int column, GxError *err)
{
    for (int i = 0; i < l->n; i++) {
        gx__Label x = {l->name[i] + strspn(l->name[i], " "), 0};
        char cut[GX__LABELS_QUOTE], other[GX__LABELS_QUOTE];
        const gx__Label whole = {l->name[i], (int64_t)strlen(l->name[i])};
        for (x.n = (int64_t)strlen(x.text); x.n > 0 && x.text[x.n - 1] == ' ';) x.n--;
        if (x.n == whole.n || gx__labels_find(l, x) < 0) continue;
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s: the labels \"%s\" and \"%s\" of the column \"%s\" differ only by spaces, and would be two "
                       "labels; write them alike",
                       r->path, gx__labels_quote(whole, cut), gx__labels_quote(x, other), r->column[column].name);
    }
    return GX_OK;
}

GxStatus gx_labels_make(GxLabels *l, const GxRecords *r, int column, GxLabelKind kind, GxError *err)
{
    GX_TRY(gx__labels_new(l, kind, err));
    GxBadLines bad = GX_ZERO;
    for (int64_t i = 0, goes_on = 1; i < r->n && goes_on && gx_bad_lines_goes_on(&bad); i++) {
        GxError e = GX_ZERO;
        // after one label too many, all further ones would be, too
        if (gx__labels_collect(l, r, column, i, &e) != GX_OK)
            goes_on = gx_bad_lines_add(&bad, gx_record_line(r, i), &e) && l->n < GX_LABELS_MOST;
        gx_bad_lines_pass(&bad, gx_record_line(r, i), 0);
    }
    GxStatus status = gx_bad_lines_fail(&bad, r->first_line, err);
    if (status == GX_OK && l->n == 0)
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s: no record has a label in \"%s\"", r->path, r->column[column].name);
    if (status == GX_OK) gx__labels_sort(l);
    if (status == GX_OK) status = gx__labels_check_spaces(l, r, column, err);
    if (status == GX_OK) status = gx__labels_count(l, r, column, err);
    if (status != GX_OK) gx_labels_close(l);
    return status;
}

// Checks the label of record i without a list.
static GxStatus gx__labels_check_record(const GxRecords *r, int column, int kind, int64_t i, GxError *err)
{
    const char *field = gx_record(r, i, column), *next;
    char where[GX_PATH + 24];
    GxLabels none = GX_ZERO;
    gx__Label x, other;
    none.kind = kind;
    snprintf(where, sizeof where, "%s:%ld", r->path, (long)gx_record_line(r, i));
    int64_t number = 0;
    for (int more = gx__labels_first(field, kind, &next, &x); more; more = gx__labels_next(&next, &x), number++) {
        const char *rest;
        char cut[GX__LABELS_QUOTE];
        int64_t before = number;
        GX_TRY(gx__labels_check(&none, x, where, err));
        for (int has = gx__labels_first(field, kind, &rest, &other); has && before-- > 0;
             has = gx__labels_next(&rest, &other))
            if (x.n == other.n && !memcmp(x.text, other.text, (size_t)x.n))
                return GX_FAIL(err, GX_ERR_FORMAT, "%s: the label \"%s\" is listed twice", where,
                               gx__labels_quote(x, cut));
    }
    return GX_OK;
}

GxStatus gx_labels_leave_out(GxRecords *r, int column, GxLabelKind kind, GxBadRecords *skip, GxError *err)
{
    const size_t bytes = (size_t)r->columns * sizeof *r->at;
    const int64_t all = r->n, skipped = skip->n;
    GxBadLines bad = GX_ZERO;
    bad.skip = skip, r->n = 0;
    for (int64_t i = 0; i < all; i++) {
        GxError e = GX_ZERO;
        memmove(r->at + r->n * r->columns, r->at + i * r->columns, bytes);
        r->line[r->n] = r->line[i];
        if (gx__labels_check_record(r, column, (int)kind, r->n, &e) == GX_OK) r->n++;
        else gx_bad_lines_add(&bad, r->line[r->n], &e);
    }
    if (r->n > 0) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: all labels are wrong, so no record is left; the first one: %s", r->path,
                   skip->why[gx_min(skipped, GX_BAD_RECORDS - 1)]);
}

static GxStatus gx__labels_set_one(GxLabels *l, gx__Label x, const char *where, GxError *err)
{
    char cut[GX__LABELS_QUOTE];
    if (gx__labels_find(l, x) < 0) return gx__labels_meet(l, x, where, err);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: the label \"%s\" is listed twice", where, gx__labels_quote(x, cut));
}

GxStatus gx_labels_set(GxLabels *l, const char *const *name, int n, GxLabelKind kind, const char *where, GxError *err)
{
    GX_TRY(gx__labels_new(l, kind, err));
    GxStatus status = n > 0 ? GX_OK : GX_FAIL(err, GX_ERR_FORMAT, "%s: the list has no labels", where);
    for (int i = 0; i < n && status == GX_OK; i++) {
        const gx__Label x = {name[i], (int64_t)strlen(name[i])};
        status = gx__labels_set_one(l, x, where, err);
    }
    if (status != GX_OK) gx_labels_close(l);
    return status;
}

GxStatus gx_labels_set_text(GxLabels *l, const char *names, GxLabelKind kind, const char *where, GxError *err)
{
    gx__Label x;
    GX_TRY(gx__labels_new(l, kind, err));
    GxStatus status = GX_OK;
    while (status == GX_OK && gx__labels_next(&names, &x)) status = gx__labels_set_one(l, x, where, err);
    if (status != GX_OK) gx_labels_close(l);
    return status;
}

const char *gx_label_mark(const char *name) { return strchr(name, ',') ? "\"" : ""; }

// ---- the label of a record -----------------------------------------------------------------------------------------

static GxStatus gx__labels_unknown(const GxLabels *l, const GxRecords *r, int64_t i, gx__Label x, GxError *err)
{
    char cut[GX__LABELS_QUOTE], list[GX__LABELS_LIST] = "";
    size_t at = 0;
    for (int c = 0; c < l->n && at < sizeof list; c++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s%s%s", c ? ", " : "", gx_label_mark(l->name[c]),
                               l->name[c], gx_label_mark(l->name[c]));
    if (at >= sizeof list) gx_text_mark_cut(list, sizeof list);
    return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the label \"%s\" is not one of the %d known labels: %s", r->path,
                   (long)gx_record_line(r, i), gx__labels_quote(x, cut), l->n, list);
}

GxStatus gx_label_class(const GxLabels *l, const GxRecords *r, int64_t i, int column, int *class_, GxError *err)
{
    const char *field = gx_record(r, i, column);
    const gx__Label x = {field, (int64_t)strlen(field)};
    *class_ = gx__labels_find(l, x);
    return *class_ >= 0 ? GX_OK : gx__labels_unknown(l, r, i, x, err);
}

GxStatus gx_label_classes(const GxLabels *l, const GxRecords *r, int64_t i, int column, unsigned char *has,
                          GxError *err)
{
    const char *next;
    char cut[GX__LABELS_QUOTE];
    gx__Label x;
    memset(has, 0, (size_t)l->n);
    for (int more = gx__labels_first(gx_record(r, i, column), GX_LABEL_SEVERAL, &next, &x); more;
         more = gx__labels_next(&next, &x)) {
        const int class_ = gx__labels_find(l, x);
        if (class_ < 0) return gx__labels_unknown(l, r, i, x, err);
        if (has[class_])
            return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: the label \"%s\" is listed twice", r->path,
                           (long)gx_record_line(r, i), gx__labels_quote(x, cut));
        has[class_] = 1;
    }
    return GX_OK;
}

static int gx__labels_parse_number(const char *field, double *number)
{
    char *end;
    *number = strtod(field, &end); // also accepts spaces, hexadecimal digits, "nan" and "inf"
    return field[0] && !*end && !field[strspn(field, "+-.0123456789eE")];
}

int gx_label_is_number(const GxRecords *r, int64_t i, int column)
{
    double number;
    return gx__labels_parse_number(gx_record(r, i, column), &number);
}

GxStatus gx_label_number(const GxRecords *r, int64_t i, int column, double *number, GxError *err)
{
    char cut[GX__LABELS_QUOTE];
    const char *field = gx_record(r, i, column);
    const int is_number = gx__labels_parse_number(field, number);
    if (is_number && *number * *number <= (double)FLT_MAX) return GX_OK; // the loss is its square
    return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is \"%s\"; expected a number %s", r->path,
                   (long)gx_record_line(r, i), r->column[column].name, gx_text_cut(field, cut, sizeof cut),
                   is_number ? "between -1.8e19 and 1.8e19, whose square is finite in fp32: divide all of them by the "
                               "same number"
                             : "such as 3 or -0.5");
}
#endif
