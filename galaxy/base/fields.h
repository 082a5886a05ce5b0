// base/fields.h: describes a struct by a table: each field's name, type, offset, default, range and purpose. Such
// tables are used to parse command lines and print --help (io/config.h), to read and write JSON (io/json_fields.h), and
// to compare options across ranks (run/agree.h).
//
//     typedef struct { int64_t hidden_size; double rms_norm_eps; } Config;
//     static const GxField fields[] = {
//         {"hidden_size", GX_FIELD_INT, offsetof(Config, hidden_size), "768", "width of the residual stream", "1.."},
//         {"rms_norm_eps", GX_FIELD_DOUBLE, offsetof(Config, rms_norm_eps), "1e-5", "added to a mean square", "0..1"},
//     };
//
// Nothing is allocated, and no file is read here.
#ifndef GX_FIELDS_H
#define GX_FIELDS_H
#include "status.h"
GX_BEGIN

enum { GX_FIELD_TEXT = 256, GX_FIELD_LIST = 256, GX_FIELD_NAMES_TEXT = 1 << 18, GX_FIELD_MARK = 0x1F };
typedef struct {
    int n;
    int64_t v[GX_FIELD_LIST];
} GxIntList;

typedef enum {
    GX_FIELD_INT,      // int64_t
    GX_FIELD_DOUBLE,   // double, finite
    GX_FIELD_BOOL,     // int, 0 or 1
    GX_FIELD_STRING,   // char[GX_FIELD_TEXT]
    GX_FIELD_INT_LIST, // GxIntList
    GX_FIELD_PATH,     // char[GX_PATH]: a string, long enough for every path
    GX_FIELD_NAMES,    // char[GX_FIELD_NAMES_TEXT]: names with commas between them; in JSON also a list of them
    // char[GX_FIELD_NAMES_TEXT]: texts, each preceded by a GX_FIELD_MARK; a repeated flag appends one; in JSON a list
    // of texts, or one text
    GX_FIELD_TEXTS,
    GX_FIELD_LONG_TEXT, // char[GX_PATH]: text
    GX_FIELD_HASH       // int64_t, 64 bits: 0x and 16 hexadecimal digits; a decimal number is read, too
} GxFieldType;

typedef struct {
    const char *name; // long, with_underscores
    GxFieldType type;
    size_t offset;            // offsetof(the struct, the field)
    const char *default_text; // as on a command line; NULL: 0, false, "", no elements
    const char *help;
    // NULL: anything; strings: "a|b|c"; numbers, and each number of a list: "1..", "..5", "0..1", ends included
    const char *allowed;
} GxField;
#define GX_FIELDS(table) (table), (int)(sizeof(table) / sizeof *(table)) // the table and its length

typedef union { // a value before it is stored
    int64_t i;
    double d;
    int b;
    char s[GX_FIELD_NAMES_TEXT];
    GxIntList list;
} GxFieldValue;

// Returns 1 if the whole text is a value of the field's type: no characters after a number, no overflow, NaN or white
// space.
int gx_field_parse(const GxField *f, const char *text, GxFieldValue *v);
int gx_field_parse_bool(const char *text, int *out);              // true, false, 1, 0
int gx_field_allows(const GxField *f, const GxFieldValue *v);     // 1: it is within its range, or one of its choices
void gx_field_expected(const GxField *f, char *out, size_t size); // "an integer, at least 1"
// "--seq_len is "0"; expected an integer, at least 1". quote: around the value.
GxStatus gx_field_refuse(const GxField *f, const char *who, const char *quote, const char *value, GxStatus code,
                         GxError *err);

size_t gx_field_size(const GxField *f); // bytes in the struct
static inline void *gx_field_at(const GxField *f, void *target) { return (char *)target + f->offset; }
static inline const void *gx_field_in(const GxField *f, const void *source) { return (const char *)source + f->offset; }
void gx_field_store(const GxField *f, const GxFieldValue *v, void *target);
// For GX_FIELD_TEXTS: appends the texts of v to the field in target. Returns 0 if they do not fit.
int gx_field_add_texts(const GxField *f, const GxFieldValue *v, void *target);
// Iterates over such texts: returns the next one after *at (NULL at first) and its length; NULL: there is none.
const char *gx_field_next_text(const char *texts, const char **at, int64_t *bytes);
GxStatus gx_check_size(const char *name, int64_t value, int64_t most, GxError *err); // from 1 to `most`
int gx_field_same(const GxField *f, const void *a, const void *b); // 1: both structs have the same value

const GxField *gx_field_find(const GxField *f, int n, const char *name); // NULL: none has this name

// The fields of a struct one after another, without padding: gx_fields_bytes bytes.
int64_t gx_fields_bytes(const GxField *f, int n);
void gx_fields_pack(const GxField *f, int n, const void *source, char *bytes);
void gx_fields_unpack(const GxField *f, int n, void *target, const char *bytes);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_FIELDS_IMPLEMENTED)
#define GX_FIELDS_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- text ----------------------------------------------------------------------------------------------------------

static int gx__fields_parse_int(const char *text, int64_t *out)
{
    char *end;
    if (strspn(text, "+-0123456789") != strlen(text)) return 0; // strtoll would skip white space
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0;
}

static int gx__fields_parse_hash(const char *text, int64_t *out)
{
    if (strncmp(text, "0x", 2)) return gx__fields_parse_int(text, out);
    if (strlen(text) != 18 || strspn(text + 2, "0123456789abcdef") != 16) return 0;
    *out = (int64_t)strtoull(text, NULL, 16);
    return 1;
}

static int gx__fields_parse_double(const char *text, double *out)
{
    char *end;
    if (strspn(text, "+-0123456789.eE") != strlen(text)) return 0; // strtod would take nan, inf and hexadecimals
    *out = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*out);
}

GxStatus gx_check_size(const char *name, int64_t value, int64_t most, GxError *err)
{
    if (value >= 1 && value <= most) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is %ld; it must be from 1 to %ld", name, (long)value, (long)most);
}

int gx_field_parse_bool(const char *text, int *out)
{
    *out = !strcmp(text, "true") || !strcmp(text, "1");
    return *out || !strcmp(text, "false") || !strcmp(text, "0");
}

static int gx__fields_is_utf8(const char *text)
{
    while (*text && gx_utf8_bytes(text)) text += gx_utf8_bytes(text);
    return *text == 0;
}

static int gx__fields_parse_string(const char *text, char *out, int size)
{
    return gx__fields_is_utf8(text) && snprintf(out, (size_t)size, "%s", text) < size;
}

// "3,1", "[3, 1]", "[]" or "".
static int gx__fields_parse_list(const char *text, GxIntList *out)
{
    char copy[GX_FIELD_LIST * 24], *p = copy;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return 0;
    if (*p == '[') {
        size_t n = strlen(p);
        if (p[n - 1] != ']') return 0;
        p[n - 1] = 0;
        p++;
    }
    out->n = 0;
    while (*p) {
        size_t n = strcspn(p, ",");
        int last = p[n] == 0;
        p[n] = 0;
        if (*p == ' ' && out->n > 0) p++, n--;
        if (out->n == GX_FIELD_LIST || !gx__fields_parse_int(p, &out->v[out->n])) return 0;
        out->n++;
        p += n + !last;
        if (!last && !*p) return 0; // a comma at the end
    }
    return 1;
}

int gx_field_parse(const GxField *f, const char *text, GxFieldValue *v)
{
    memset(v, 0, sizeof *v);
    switch (f->type) {
    case GX_FIELD_INT: return gx__fields_parse_int(text, &v->i);
    case GX_FIELD_DOUBLE: return gx__fields_parse_double(text, &v->d);
    case GX_FIELD_BOOL: return gx_field_parse_bool(text, &v->b);
    case GX_FIELD_HASH: return gx__fields_parse_hash(text, &v->i);
    case GX_FIELD_STRING:
    case GX_FIELD_PATH:
    case GX_FIELD_LONG_TEXT:
    case GX_FIELD_NAMES: return gx__fields_parse_string(text, v->s, (int)gx_field_size(f));
    case GX_FIELD_INT_LIST: return gx__fields_parse_list(text, &v->list);
    case GX_FIELD_TEXTS:
        v->s[0] = GX_FIELD_MARK;
        return !strchr(text, GX_FIELD_MARK) && gx__fields_parse_string(text, v->s + 1, (int)gx_field_size(f) - 1);
    default: return 0;
    }
}

// ---- ranges --------------------------------------------------------------------------------------------------------

// "1..", "..5", "0..1"
static void gx__fields_range(const GxField *f, double *low, double *high)
{
    const char *dots = f->allowed ? strstr(f->allowed, "..") : NULL;
    char left[32];
    *low = -INFINITY;
    *high = INFINITY;
    if (!dots) return;
    snprintf(left, sizeof left, "%.*s", (int)(dots - f->allowed), f->allowed);
    if (left[0]) *low = strtod(left, NULL);
    if (dots[2]) *high = strtod(dots + 2, NULL);
}

int gx_field_allows(const GxField *f, const GxFieldValue *v)
{
    double low, high;
    if (!f->allowed || f->type == GX_FIELD_BOOL) return 1;
    if (f->type == GX_FIELD_STRING) return gx_text_is_among(v->s, f->allowed);
    gx__fields_range(f, &low, &high);
    if (f->type == GX_FIELD_INT) return (double)v->i >= low && (double)v->i <= high;
    if (f->type == GX_FIELD_DOUBLE) return v->d >= low && v->d <= high;
    for (int i = 0; i < v->list.n; i++)
        if ((double)v->list.v[i] < low || (double)v->list.v[i] > high) return 0;
    return 1;
}

// "an integer, at least 1"; "a list of at most 256 integers, each from 1 to 8, such as 3,1"
void gx_field_expected(const GxField *f, char *out, size_t size)
{
    static const char *const kinds[] = {"an integer",
                                        "a number",
                                        "true or false",
                                        "UTF-8 text of at most 255 bytes",
                                        "a list of at most 256 integers",
                                        "UTF-8 text of at most 4095 bytes",
                                        "names separated by commas, UTF-8 text of at most 262143 bytes",
                                        "UTF-8 text, of at most 262142 bytes in total",
                                        "UTF-8 text of at most 4095 bytes",
                                        "a hash, 0x and 16 hexadecimal digits"};
    const int is_list = f->type == GX_FIELD_INT_LIST;
    const char *each = is_list ? ", each" : "", *such = is_list ? ", such as 3,1" : "";
    const int digits = f->type == GX_FIELD_DOUBLE ? 15 : 19; // 19 show every integer in full
    double low, high;
    gx__fields_range(f, &low, &high);
    if (f->type == GX_FIELD_STRING && f->allowed) snprintf(out, size, "one of %s", f->allowed);
    else if (low > -INFINITY && high < INFINITY)
        snprintf(out, size, "%s%s from %.*g to %.*g%s", kinds[f->type], each, digits, low, digits, high, such);
    else if (low > -INFINITY)
        snprintf(out, size, "%s%s at least %.*g%s", kinds[f->type], is_list ? each : ",", digits, low, such);
    else if (high < INFINITY)
        snprintf(out, size, "%s%s at most %.*g%s", kinds[f->type], is_list ? each : ",", digits, high, such);
    else snprintf(out, size, "%s%s", kinds[f->type], such);
}

GxStatus gx_field_refuse(const GxField *f, const char *who, const char *quote, const char *value, GxStatus code,
                         GxError *err)
{
    char expected[200], cut[GX_TEXT_VALUE];
    gx_field_expected(f, expected, sizeof expected);
    return GX_FAIL(err, code, "%s is %s%s%s; expected %s", who, quote, gx_text_cut(value, cut, sizeof cut), quote,
                   expected);
}

// ---- structs -------------------------------------------------------------------------------------------------------

size_t gx_field_size(const GxField *f)
{
    static const size_t sizes[] = {sizeof(int64_t),   sizeof(double), sizeof(int),         GX_FIELD_TEXT,
                                   sizeof(GxIntList), GX_PATH,        GX_FIELD_NAMES_TEXT, GX_FIELD_NAMES_TEXT,
                                   GX_PATH,           sizeof(int64_t)};
    return sizes[f->type];
}

void gx_field_store(const GxField *f, const GxFieldValue *v, void *target)
{
    memcpy(gx_field_at(f, target), v, gx_field_size(f));
}

int gx_field_add_texts(const GxField *f, const GxFieldValue *v, void *target)
{
    char *texts = (char *)gx_field_at(f, target);
    const size_t n = strlen(texts);
    return snprintf(texts + n, GX_FIELD_NAMES_TEXT - n, "%s", v->s) < (int)(GX_FIELD_NAMES_TEXT - n);
}

const char *gx_field_next_text(const char *texts, const char **at, int64_t *bytes)
{
    const char *text = *at ? *at : texts;
    if (!*text) return NULL;
    *bytes = (int64_t)strcspn(++text, "\x1F");
    *at = text + *bytes;
    return text;
}

int gx_field_same(const GxField *f, const void *a, const void *b)
{
    const void *x = gx_field_in(f, a), *y = gx_field_in(f, b);
    const GxIntList *l = (const GxIntList *)x, *m = (const GxIntList *)y;
    if (f->type == GX_FIELD_STRING || f->type == GX_FIELD_PATH || f->type == GX_FIELD_NAMES ||
        f->type == GX_FIELD_TEXTS || f->type == GX_FIELD_LONG_TEXT)
        return !strcmp((const char *)x, (const char *)y);
    if (f->type == GX_FIELD_INT_LIST) return l->n == m->n && !memcmp(l->v, m->v, (size_t)l->n * sizeof *l->v);
    if (f->type == GX_FIELD_DOUBLE) return *(const double *)x == *(const double *)y; // 0 and -0 are the same
    return !memcmp(x, y, gx_field_size(f));
}

const GxField *gx_field_find(const GxField *f, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(f[i].name, name)) return &f[i];
    return NULL;
}

int64_t gx_fields_bytes(const GxField *f, int n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += (int64_t)gx_field_size(&f[i]);
    return bytes;
}

void gx_fields_pack(const GxField *f, int n, const void *source, char *bytes)
{
    for (int i = 0; i < n; bytes += gx_field_size(&f[i]), i++)
        memcpy(bytes, gx_field_in(&f[i], source), gx_field_size(&f[i]));
}

void gx_fields_unpack(const GxField *f, int n, void *target, const char *bytes)
{
    for (int i = 0; i < n; bytes += gx_field_size(&f[i]), i++)
        memcpy(gx_field_at(&f[i], target), bytes, gx_field_size(&f[i]));
}
#endif
