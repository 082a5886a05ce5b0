// json.h: reads and writes JSON. The only file that uses the JSON library (jansson, under GX_WITH_JANSSON); without it
// the same functions exist and return GX_ERR_UNSUPPORTED.
//
// Strict (RFC 8259, UTF-8), and stricter: no name twice in one object, no U+0000, no integer beyond 64 bits, no number
// beyond double, nesting at most GX_JSON_DEPTH, at most GX_JSON_VALUES values. Errors give file, line and column.
// gx_json_parse_with and _read_with relax single rules for files that need it. Members keep their order. Integers are
// exact; doubles are written with as few digits as read back to the same bits.
//
// Ownership: gx_json_parse, _read, _copy and _new_… return a value that the caller owns: free it by gx_json_free, or
// pass it to gx_json_set or _append, which take ownership even if they fail. Values from gx_json_get, _at and _next are
// borrowed: they live as long as their document. While building, check once at the end: errors stay in err, and
// inserting a missing value (no memory, text that is not UTF-8, a NaN) is an error.
//
//     GxJson *config;
//     GX_TRY(gx_json_read(&config, "config.json", 1 << 20, err));
//     int64_t layers = 12;                                                // stays 12 if the key is absent or null
//     GxStatus status = gx_json_get_int(config, "num_hidden_layers", 0, &layers, "config.json", err);
//     if (status == GX_OK) status = gx_json_set(config, "dtype", gx_json_new_string("float32"), err);
//     if (status == GX_OK) status = gx_json_write(config, "copy/config.json", err);
//     gx_json_free(config);
#ifndef GX_JSON_H
#define GX_JSON_H
#include "files.h"
GX_BEGIN

// the limit of values bounds the memory that a hostile file can request
enum { GX_JSON_DEPTH = 64, GX_JSON_VALUES = 8000000 };

typedef struct GxJson GxJson;
typedef enum {
    GX_JSON_NONE = 0, // no value at all (NULL)
    GX_JSON_NULL,
    GX_JSON_BOOL,
    GX_JSON_INT,
    GX_JSON_REAL,
    GX_JSON_STRING,
    GX_JSON_ARRAY,
    GX_JSON_OBJECT
} GxJsonType;

// Reading. where: names the text in messages, such as a path.
GxStatus gx_json_parse(GxJson **out, const char *text, int64_t bytes, const char *where, GxError *err);
GxStatus gx_json_read(GxJson **out, const char *path, int64_t cap, GxError *err);
// The same, with exceptions, `allowed`:
//     GX_JSON_BIG_INTEGERS   an integer beyond 64 bits becomes the nearest double (GX_JSON_REAL); beyond double it is
//                            error
//     GX_JSON_NULS           U+0000 in a text or a name becomes GX_JSON_NUL, and the root, an object, gets a member
//                            of that name as a mark: gx_json_spell_nuls then turns them into bytes of 0, and writing
//                            gives \u0000 again. A document with both characters is an error
enum { GX_JSON_BIG_INTEGERS = 1, GX_JSON_NULS = 2 };
#define GX_JSON_NUL "\xF4\x8F\xBF\xBF" // U+10FFFF, which is not a character
GxStatus gx_json_parse_with(GxJson **out, const char *text, int64_t bytes, const char *where, unsigned allowed,
                            GxError *err);
GxStatus gx_json_read_with(GxJson **out, const char *path, int64_t cap, unsigned allowed, GxError *err);
// The same for a file whose root must be an object; any other is an error (GX_ERR_FORMAT). *out: NULL after an error.
GxStatus gx_json_read_object(GxJson **out, const char *path, int64_t cap, unsigned allowed, GxError *err);
// Marks a document that was built with GX_JSON_NUL for U+0000, so that it is written with \u0000.
GxStatus gx_json_note_nuls(GxJson *root, GxError *err);
// Converts a text of such a document in place: a byte 0 for each U+0000. Returns its bytes afterwards.
int64_t gx_json_spell_nuls(const GxJson *root, char *text);
GxJson *gx_json_copy(const GxJson *value); // deep; NULL: no memory
void gx_json_free(GxJson *value);

// Access. All of these accept NULL and wrong types, for which they return NONE, NULL, 0 or "".
GxJsonType gx_json_type(const GxJson *value);
const char *gx_json_type_name(const GxJson *value); // "an object", for messages
enum { GX_JSON_FOUND = 32 };
// "-1" for an integer, otherwise the type's name
const char *gx_json_found(const GxJson *value, char text[GX_JSON_FOUND]);
int64_t gx_json_size(const GxJson *value); // members of an object, elements of an array
GxJson *gx_json_get(const GxJson *object, const char *key);
GxJson *gx_json_at(const GxJson *array, int64_t i);
int64_t gx_json_int(const GxJson *value);
double gx_json_double(const GxJson *value); // integers too
int gx_json_bool(const GxJson *value);
const char *gx_json_string(const GxJson *value);

// for (GxJsonMember m = GX_ZERO; gx_json_next(object, &m);) … m.key, m.value …
typedef struct {
    const char *key;
    GxJson *value;
    void *position;
} GxJsonMember;
int gx_json_next(const GxJson *object, GxJsonMember *member);

// Typed members. Absent or null: *out is unchanged; an error only if `required`. Another type: an error that names
// `where` and the key. Strings, arrays and objects are borrowed.
GxStatus gx_json_get_int(const GxJson *object, const char *key, int required, int64_t *out, const char *where,
                         GxError *err);
GxStatus gx_json_get_double(const GxJson *object, const char *key, int required, double *out, const char *where,
                            GxError *err);
GxStatus gx_json_get_bool(const GxJson *object, const char *key, int required, int *out, const char *where,
                          GxError *err);
GxStatus gx_json_get_string(const GxJson *object, const char *key, int required, const char **out, const char *where,
                            GxError *err);
GxStatus gx_json_get_array(const GxJson *object, const char *key, int required, GxJson **out, const char *where,
                           GxError *err);
GxStatus gx_json_get_object(const GxJson *object, const char *key, int required, GxJson **out, const char *where,
                            GxError *err);

// Building. An existing key keeps its place and gets the new value.
GxJson *gx_json_new_object(void);
GxJson *gx_json_new_array(void);
GxJson *gx_json_new_null(void);
GxJson *gx_json_new_bool(int value);
GxJson *gx_json_new_int(int64_t value);
GxJson *gx_json_new_double(double value);      // NULL: not finite
GxJson *gx_json_new_string(const char *value); // NULL: not UTF-8
GxStatus gx_json_set(GxJson *object, const char *key, GxJson *value, GxError *err);
GxStatus gx_json_append(GxJson *array, GxJson *value, GxError *err);
void gx_json_remove(GxJson *object, const char *key);

// Writing. indent 0: one line without spaces; otherwise one member per line, with lists of simple values on one line.
// free(*text); text[bytes] == 0.
GxStatus gx_json_dump(const GxJson *value, int indent, char **text, int64_t *bytes, GxError *err);
// Writes a file, which never exists incomplete: indent 2, a newline at the end.
GxStatus gx_json_write(const GxJson *value, const char *path, GxError *err);
void gx_format_double(char *out, double value); // out[32]; the fewest digits that read back to the same bits

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_JSON_IMPLEMENTED)
#define GX_JSON_IMPLEMENTED
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what needs the library ----------------------------------------------------------------------------------------
#ifdef GX_WITH_JANSSON
#include <jansson.h>

static json_t *gx__json_in(const GxJson *value)
{
    return (json_t *)(void *)(uintptr_t)value;
} // removes const: jansson counts references
static GxJson *gx__json_out(json_t *value) { return (GxJson *)(void *)value; }

static int gx__json_set(GxJson *object, const char *key, GxJson *value)
{
    return json_object_set_new(gx__json_in(object), key, gx__json_in(value));
}

static int gx__json_is_nul(const char *text, int64_t n) { return n >= 6 && !memcmp(text, "\\u0000", 6); }

// Checks depth and number of values before the library gets the text, since its recursion and memory depend on them.
static GxStatus gx__json_check(const char *text, int64_t bytes, const char *where, unsigned allowed, GxError *err)
{
    int64_t depth = 0, values = 1, line = 1, line_start = 0;
    for (int64_t i = 0, in_string = 0; i < bytes; i++) {
        char c = text[i];
        if (c == 0) // which the library ignores after a number
            return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld:%ld: a byte of value 0", where, (long)line,
                           (long)(i - line_start + 1));
        if (c == '\n') line++, line_start = i + 1;
        if (c == '\\' && in_string) {
            if (!(allowed & GX_JSON_NULS) && gx__json_is_nul(text + i, bytes - i))
                return GX_FAIL(err, GX_ERR_FORMAT,
                               "%s:%ld:%ld: a text has \\u0000 (a byte of value 0), which is not allowed", where,
                               (long)line, (long)(i - line_start + 1));
            i++;
        } else if (c == '"') in_string = !in_string;
        if (in_string) continue;
        if (c == '{' || c == '[') depth++, values++;
        if (c == '}' || c == ']') depth--;
        if (c == ',') values++;
        if (depth > GX_JSON_DEPTH || values > GX_JSON_VALUES)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s:%ld:%ld: %s than %d", where, (long)line, (long)(i - line_start + 1),
                           depth > GX_JSON_DEPTH ? "nested deeper" : "more values",
                           depth > GX_JSON_DEPTH ? GX_JSON_DEPTH : GX_JSON_VALUES);
    }
    return GX_OK;
}

// The bytes of the integer that text[n] begins with if it exceeds 64 bits; otherwise 0.
static int64_t gx__json_big_integer(const char *text, int64_t n)
{
    static const char *const first_beyond[] = {"9223372036854775808", "9223372036854775809"};
    const int64_t sign = n > 0 && text[0] == '-', most = (int64_t)strlen(first_beyond[0]);
    int64_t end = sign;
    while (end < n && text[end] >= '0' && text[end] <= '9') end++;
    if (end - sign < most || text[sign] == '0' || (end < n && strchr(".eE", text[end]))) return 0;
    if (end - sign == most && memcmp(text + sign, first_beyond[sign], (size_t)most) < 0) return 0;
    return end;
}

// *changed: the text with an exponent, e0, after each integer beyond 64 bits; free it. NULL: there are none.
static GxStatus gx__json_spell_integers(const char *text, int64_t n, char **changed, int64_t *bytes, GxError *err)
{
    int64_t at = 0, found = 0;
    *changed = NULL;
    for (int writes = 0; writes < 2; writes++, at = 0) {
        for (int64_t i = 0, in_string = 0, taken; i < n; i += taken) {
            const int64_t big = in_string || (i > 0 && strchr("+-.eE0123456789", text[i - 1])) // inside a number
                                    ? 0
                                    : gx__json_big_integer(text + i, n - i);
            taken = big ? big : in_string && text[i] == '\\' && i + 1 < n ? 2 : 1;
            if (text[i] == '"') in_string = !in_string;
            found += big && !writes;
            if (writes) memcpy(*changed + at, text + i, (size_t)taken), at += taken;
            if (writes && big) memcpy(*changed + at, "e0", 2), at += 2;
        }
        if (!found) return GX_OK;
        if (!writes) *changed = (char *)malloc((size_t)(n + 2 * found));
        if (!*changed) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a JSON text of %ld bytes", (long)n);
    }
    *bytes = n + 2 * found;
    return GX_OK;
}

// The position of GX_JSON_NUL, literal or escaped, in text[n]; -1: none.
static int64_t gx__json_find_nul(const char *text, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (n - i >= 4 && !memcmp(text + i, GX_JSON_NUL, 4)) return i;
        if (text[i] != '\\' || n - i < 12) continue;
        int same = 1;
        for (int k = 0; k < 12; k++) same &= (text[i + k] | (k % 6 > 1 ? 32 : 0)) == "\\udbff\\udfff"[k];
        if (same) return i;
    }
    return -1;
}

// *changed: the text with GX_JSON_NUL for each \u0000; free it. NULL: there are none.
static GxStatus gx__json_hide_nuls(const char *text, int64_t n, char **changed, int64_t *bytes, const char *where,
                                   GxError *err)
{
    int64_t at = 0, found = 0;
    *changed = NULL;
    for (int64_t i = 0; i < n; i += text[i] == '\\' ? 2 : 1) found += gx__json_is_nul(text + i, n - i);
    if (!found) return GX_OK;
    if (gx__json_find_nul(text, n) >= 0)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: its texts have both U+0000 and U+10FFFF; only one of the two is supported", where);
    *changed = (char *)malloc((size_t)n);
    if (!*changed) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a JSON text of %ld bytes", (long)n);
    for (int64_t i = 0, taken; i < n; i += taken) {
        const int is_nul = gx__json_is_nul(text + i, n - i);
        taken = is_nul ? 6 : text[i] == '\\' && i + 1 < n ? 2 : 1;
        memcpy(*changed + at, is_nul ? GX_JSON_NUL : text + i, (size_t)(is_nul ? 4 : taken));
        at += is_nul ? 4 : taken;
    }
    *bytes = at;
    return GX_OK;
}

GxStatus gx_json_parse_with(GxJson **out, const char *text, int64_t bytes, const char *where, unsigned allowed,
                            GxError *err)
{
    json_error_t error;
    char *spelled = NULL, *hidden = NULL;
    *out = NULL;
    GX_TRY(gx__json_check(text, bytes, where, allowed, err));
    if (allowed & GX_JSON_BIG_INTEGERS) GX_TRY(gx__json_spell_integers(text, bytes, &spelled, &bytes, err));
    if (spelled) text = spelled;
    const GxStatus status =
        allowed & GX_JSON_NULS ? gx__json_hide_nuls(text, bytes, &hidden, &bytes, where, err) : GX_OK;
    if (hidden) text = hidden;
    if (status == GX_OK)
        *out = gx__json_out(json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error));
    const int has_nuls = hidden != NULL;
    free(spelled), free(hidden);
    GX_TRY(status);
    if (*out && has_nuls && json_is_object(gx__json_in(*out))) gx__json_set(*out, GX_JSON_NUL, gx_json_new_bool(1));
    if (!*out) return GX_FAIL(err, GX_ERR_FORMAT, "%s:%d:%d: %s", where, error.line, error.column, error.text);
    return GX_OK;
}

GxJson *gx_json_copy(const GxJson *value) { return gx__json_out(json_deep_copy(gx__json_in(value))); }
void gx_json_free(GxJson *value) { json_decref(gx__json_in(value)); }

GxJsonType gx_json_type(const GxJson *value)
{
    if (!value) return GX_JSON_NONE;
    switch (json_typeof(gx__json_in(value))) {
    case JSON_OBJECT: return GX_JSON_OBJECT;
    case JSON_ARRAY: return GX_JSON_ARRAY;
    case JSON_STRING: return GX_JSON_STRING;
    case JSON_INTEGER: return GX_JSON_INT;
    case JSON_REAL: return GX_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return GX_JSON_BOOL;
    default: return GX_JSON_NULL;
    }
}

int64_t gx_json_size(const GxJson *value)
{
    return (int64_t)(json_object_size(gx__json_in(value)) + json_array_size(gx__json_in(value)));
}
GxJson *gx_json_get(const GxJson *object, const char *key)
{
    return gx__json_out(json_object_get(gx__json_in(object), key));
}
GxJson *gx_json_at(const GxJson *array, int64_t i)
{
    return i < 0 ? NULL : gx__json_out(json_array_get(gx__json_in(array), (size_t)i));
}
int64_t gx_json_int(const GxJson *value) { return (int64_t)json_integer_value(gx__json_in(value)); }
double gx_json_double(const GxJson *value) { return json_number_value(gx__json_in(value)); }
int gx_json_bool(const GxJson *value) { return json_is_true(gx__json_in(value)); }

const char *gx_json_string(const GxJson *value)
{
    const char *text = json_string_value(gx__json_in(value));
    return text ? text : "";
}

int gx_json_next(const GxJson *object, GxJsonMember *m)
{
    json_t *o = gx__json_in(object);
    m->position = m->position ? json_object_iter_next(o, m->position) : json_object_iter(o);
    if (!m->position) return 0;
    m->key = json_object_iter_key(m->position);
    m->value = gx__json_out(json_object_iter_value(m->position));
    return 1;
}

GxJson *gx_json_new_object(void) { return gx__json_out(json_object()); }
GxJson *gx_json_new_array(void) { return gx__json_out(json_array()); }
GxJson *gx_json_new_null(void) { return gx__json_out(json_null()); }
GxJson *gx_json_new_bool(int value) { return gx__json_out(json_boolean(value)); }
GxJson *gx_json_new_int(int64_t value) { return gx__json_out(json_integer((json_int_t)value)); }
GxJson *gx_json_new_double(double value) { return gx__json_out(json_real(value)); }
GxJson *gx_json_new_string(const char *value) { return gx__json_out(json_string(value)); }
void gx_json_remove(GxJson *object, const char *key) { json_object_del(gx__json_in(object), key); }
static int gx__json_append(GxJson *array, GxJson *value)
{
    return json_array_append_new(gx__json_in(array), gx__json_in(value));
}

#else
#define GX__JSON_NONE "built without jansson: install libjansson-dev and build again"

GxStatus gx_json_parse_with(GxJson **out, const char *text, int64_t bytes, const char *where, unsigned allowed,
                            GxError *err)
{
    (void)text, (void)bytes, (void)allowed;
    *out = NULL;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: " GX__JSON_NONE, where);
}
GxJson *gx_json_copy(const GxJson *value) { return (void)value, (GxJson *)NULL; }
void gx_json_free(GxJson *value) { (void)value; }
GxJsonType gx_json_type(const GxJson *value) { return (void)value, GX_JSON_NONE; }
int64_t gx_json_size(const GxJson *value) { return (void)value, 0; }
GxJson *gx_json_get(const GxJson *object, const char *key) { return (void)object, (void)key, (GxJson *)NULL; }
GxJson *gx_json_at(const GxJson *array, int64_t i) { return (void)array, (void)i, (GxJson *)NULL; }
int64_t gx_json_int(const GxJson *value) { return (void)value, 0; }
double gx_json_double(const GxJson *value) { return (void)value, 0.0; }
int gx_json_bool(const GxJson *value) { return (void)value, 0; }
const char *gx_json_string(const GxJson *value) { return (void)value, ""; }
int gx_json_next(const GxJson *object, GxJsonMember *m) { return (void)object, (void)m, 0; }
GxJson *gx_json_new_object(void) { return NULL; }
GxJson *gx_json_new_array(void) { return NULL; }
GxJson *gx_json_new_null(void) { return NULL; }
GxJson *gx_json_new_bool(int value) { return (void)value, (GxJson *)NULL; }
GxJson *gx_json_new_int(int64_t value) { return (void)value, (GxJson *)NULL; }
GxJson *gx_json_new_double(double value) { return (void)value, (GxJson *)NULL; }
GxJson *gx_json_new_string(const char *value) { return (void)value, (GxJson *)NULL; }
void gx_json_remove(GxJson *object, const char *key) { (void)object, (void)key; }
#endif

static GxStatus gx__json_refused(const char *what, GxError *err)
{
#ifdef GX_WITH_JANSSON
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "JSON: %.100s has no value, or is not UTF-8 text, or its number is not finite, or there is no memory for it",
        what);
#else
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "JSON (%.100s): " GX__JSON_NONE, what);
#endif
}

GxStatus gx_json_set(GxJson *object, const char *key, GxJson *value, GxError *err)
{
#ifdef GX_WITH_JANSSON
    if (gx__json_set(object, key, value) == 0) return GX_OK;
#else
    (void)object, (void)value;
#endif
    return gx__json_refused(key, err);
}

GxStatus gx_json_append(GxJson *array, GxJson *value, GxError *err)
{
#ifdef GX_WITH_JANSSON
    if (gx__json_append(array, value) == 0) return GX_OK;
#else
    (void)array, (void)value;
#endif
    return gx__json_refused("an element of a list", err);
}

// ---- what does not need it -----------------------------------------------------------------------------------------

GxStatus gx_json_parse(GxJson **out, const char *text, int64_t bytes, const char *where, GxError *err)
{
    return gx_json_parse_with(out, text, bytes, where, 0, err);
}

GxStatus gx_json_read(GxJson **out, const char *path, int64_t cap, GxError *err)
{
    return gx_json_read_with(out, path, cap, 0, err);
}

GxStatus gx_json_read_with(GxJson **out, const char *path, int64_t cap, unsigned allowed, GxError *err)
{
    char *text;
    int64_t bytes;
    *out = NULL;
    GX_TRY(gx_file_read(path, cap, &text, &bytes, err));
    GxStatus status = gx_json_parse_with(out, text, bytes, path, allowed, err);
    free(text);
    return status;
}

GxStatus gx_json_read_object(GxJson **out, const char *path, int64_t cap, unsigned allowed, GxError *err)
{
    GX_TRY(gx_json_read_with(out, path, cap, allowed, err));
    if (gx_json_type(*out) == GX_JSON_OBJECT) return GX_OK;
    GX_FAIL(err, GX_ERR_FORMAT, "%s holds %s; expected an object", path, gx_json_type_name(*out));
    gx_json_free(*out);
    *out = NULL;
    return gx_error_code(err);
}

GxStatus gx_json_note_nuls(GxJson *root, GxError *err)
{
    return gx_json_set(root, GX_JSON_NUL, gx_json_new_bool(1), err);
}

int64_t gx_json_spell_nuls(const GxJson *root, char *text)
{
    const int has_nuls = gx_json_get(root, GX_JSON_NUL) != NULL;
    char *out = text;
    for (const char *p = text; *p;) {
        const int is_nul = has_nuls && !strncmp(p, GX_JSON_NUL, 4);
        *out++ = is_nul ? 0 : *p;
        p += is_nul ? 4 : 1;
    }
    *out = 0;
    return out - text;
}

static const char *gx__json_name_of(GxJsonType type)
{
    static const char *const names[] = {"nothing",  "null",     "true or false", "an integer",
                                        "a number", "a string", "an array",      "an object"};
    return names[type];
}

const char *gx_json_type_name(const GxJson *value) { return gx__json_name_of(gx_json_type(value)); }

const char *gx_json_found(const GxJson *value, char text[GX_JSON_FOUND])
{
    if (gx_json_type(value) != GX_JSON_INT) return gx_json_type_name(value);
    snprintf(text, GX_JSON_FOUND, "%ld", (long)gx_json_int(value));
    return text;
}

// *out: the member, which must have this type (an integer is a number, too); NULL if it is absent or null and not
// required.
static GxStatus gx__json_member(const GxJson *object, const char *key, GxJsonType type, int required, GxJson **out,
                                const char *where, GxError *err)
{
    GxJson *value = gx_json_get(object, key);
    GxJsonType found = gx_json_type(value);
    *out = NULL;
    if (gx_json_type(object) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: \"%s\" was looked for in %s, not in an object", where, key,
                       gx_json_type_name(object));
    if (found == GX_JSON_NONE || found == GX_JSON_NULL) {
        if (required)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: \"%s\" is missing; expected %s", where, key,
                           gx__json_name_of(type));
        return GX_OK;
    }
    if (found != type && !(found == GX_JSON_INT && type == GX_JSON_REAL))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: \"%s\" is %s; expected %s", where, key, gx_json_type_name(value),
                       gx__json_name_of(type));
    *out = value;
    return GX_OK;
}

GxStatus gx_json_get_int(const GxJson *object, const char *key, int required, int64_t *out, const char *where,
                         GxError *err)
{
    GxJson *value;
    GX_TRY(gx__json_member(object, key, GX_JSON_INT, required, &value, where, err));
    if (value) *out = gx_json_int(value);
    return GX_OK;
}

GxStatus gx_json_get_double(const GxJson *object, const char *key, int required, double *out, const char *where,
                            GxError *err)
{
    GxJson *value;
    GX_TRY(gx__json_member(object, key, GX_JSON_REAL, required, &value, where, err));
    if (value) *out = gx_json_double(value);
    return GX_OK;
}

GxStatus gx_json_get_bool(const GxJson *object, const char *key, int required, int *out, const char *where,
                          GxError *err)
{
    GxJson *value;
    GX_TRY(gx__json_member(object, key, GX_JSON_BOOL, required, &value, where, err));
    if (value) *out = gx_json_bool(value);
    return GX_OK;
}

GxStatus gx_json_get_string(const GxJson *object, const char *key, int required, const char **out, const char *where,
                            GxError *err)
{
    GxJson *value;
    GX_TRY(gx__json_member(object, key, GX_JSON_STRING, required, &value, where, err));
    if (value) *out = gx_json_string(value);
    return GX_OK;
}

GxStatus gx_json_get_array(const GxJson *object, const char *key, int required, GxJson **out, const char *where,
                           GxError *err)
{
    GxJson *value;
    GX_TRY(gx__json_member(object, key, GX_JSON_ARRAY, required, &value, where, err));
    if (value) *out = value;
    return GX_OK;
}

GxStatus gx_json_get_object(const GxJson *object, const char *key, int required, GxJson **out, const char *where,
                            GxError *err)
{
    GxJson *value;
    GX_TRY(gx__json_member(object, key, GX_JSON_OBJECT, required, &value, where, err));
    if (value) *out = value;
    return GX_OK;
}

void gx_format_double(char *out, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    if (!isfinite(value)) return;
    int is_real = 0;
    for (char *p = out; *p; p++) {
        if (!strchr("+-0123456789e", *p)) *p = '.'; // some locales have a comma
        is_real |= *p == '.' || *p == 'e';
    }
    if (!is_real) strcat(out, ".0"); // otherwise it would read back as an integer
}

typedef struct {
    char *text;
    int64_t n, capacity;
    int indent, has_nuls, failed;
} GxJsonText;

static void gx__json_put_bytes(GxJsonText *t, const char *bytes, int64_t n)
{
    if (t->failed) return;
    if (t->n + n + 1 > t->capacity) {
        int64_t capacity = 2 * (t->n + n + 1) + 256;
        char *grown = (char *)realloc(t->text, (size_t)capacity);
        if (!grown) {
            t->failed = 1;
            return;
        }
        t->text = grown;
        t->capacity = capacity;
    }
    memcpy(t->text + t->n, bytes, (size_t)n);
    t->n += n;
    t->text[t->n] = 0;
}

static void gx__json_put(GxJsonText *t, const char *text) { gx__json_put_bytes(t, text, (int64_t)strlen(text)); }

static void gx__json_put_string(GxJsonText *t, const char *text)
{
    gx__json_put(t, "\"");
    for (const char *p = text; *p; p++) {
        char escaped[8] = "";
        if (*p == '"' || *p == '\\') snprintf(escaped, sizeof escaped, "\\%c", *p);
        else if (*p == '\n') snprintf(escaped, sizeof escaped, "\\n");
        else if ((unsigned char)*p < 0x20) snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*p);
        else if (t->has_nuls && !strncmp(p, GX_JSON_NUL, 4)) snprintf(escaped, sizeof escaped, "\\u0000"), p += 3;
        if (escaped[0]) gx__json_put(t, escaped);
        else gx__json_put_bytes(t, p, 1);
    }
    gx__json_put(t, "\"");
}

static void gx__json_new_line(GxJsonText *t, int level)
{
    if (!t->indent) return;
    gx__json_put(t, "\n");
    for (int i = 0; i < t->indent * level; i++) gx__json_put(t, " ");
}

static void gx__json_put_value(GxJsonText *t, const GxJson *value, int level);

static void gx__json_put_object(GxJsonText *t, const GxJson *object, int level)
{
    int n = 0;
    gx__json_put(t, "{");
    for (GxJsonMember m = GX_ZERO; gx_json_next(object, &m);) {
        if (t->has_nuls && level == 0 && !strcmp(m.key, GX_JSON_NUL)) continue; // the reader's mark
        if (n++) gx__json_put(t, ",");
        gx__json_new_line(t, level + 1);
        gx__json_put_string(t, m.key);
        gx__json_put(t, t->indent ? ": " : ":");
        gx__json_put_value(t, m.value, level + 1);
    }
    if (n) gx__json_new_line(t, level);
    gx__json_put(t, "}");
}

static void gx__json_put_array(GxJsonText *t, const GxJson *array, int level)
{
    int64_t n = gx_json_size(array);
    int plain = 1;
    for (int64_t i = 0; i < n; i++) plain &= gx_json_type(gx_json_at(array, i)) < GX_JSON_ARRAY;
    gx__json_put(t, "[");
    for (int64_t i = 0; i < n; i++) {
        if (i) gx__json_put(t, plain && t->indent ? ", " : ",");
        if (!plain) gx__json_new_line(t, level + 1);
        gx__json_put_value(t, gx_json_at(array, i), level + 1);
    }
    if (!plain) gx__json_new_line(t, level);
    gx__json_put(t, "]");
}

static void gx__json_put_value(GxJsonText *t, const GxJson *value, int level)
{
    char number[32] = "null";
    switch (gx_json_type(value)) {
    case GX_JSON_OBJECT: gx__json_put_object(t, value, level); return;
    case GX_JSON_ARRAY: gx__json_put_array(t, value, level); return;
    case GX_JSON_STRING: gx__json_put_string(t, gx_json_string(value)); return;
    case GX_JSON_BOOL: gx__json_put(t, gx_json_bool(value) ? "true" : "false"); return;
    case GX_JSON_INT: snprintf(number, sizeof number, "%lld", (long long)gx_json_int(value)); break;
    case GX_JSON_REAL: gx_format_double(number, gx_json_double(value)); break;
    default: break;
    }
    gx__json_put(t, number);
}

GxStatus gx_json_dump(const GxJson *value, int indent, char **text, int64_t *bytes, GxError *err)
{
    GxJsonText t = GX_ZERO;
    t.indent = indent, t.has_nuls = gx_json_get(value, GX_JSON_NUL) != NULL;
    *text = NULL;
    *bytes = 0;
    if (!value) return gx__json_refused("the document", err);
    gx__json_put_value(&t, value, 0);
    if (t.failed) {
        free(t.text);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a JSON text of more than %ld bytes", (long)t.n);
    }
    *text = t.text;
    *bytes = t.n;
    return GX_OK;
}

GxStatus gx_json_write(const GxJson *value, const char *path, GxError *err)
{
    char *text;
    int64_t bytes;
    GX_TRY(gx_json_dump(value, 2, &text, &bytes, err));
    text[bytes] = '\n'; // replaces the terminating 0
    GxStatus status = gx_file_write(path, text, bytes + 1, err);
    free(text);
    return status;
}
#endif
