// template_value.h: the values of a chat template, as in Python: truth, equality, order, their text, and their memory.
// template.h is the public interface.
//
// A rendering takes all its memory from one GxTemplateRun, which frees it all at once: single values are never freed.
// Every function that can fail returns 1, or 0 with the error in run->err. What fails in Python fails here, too; what
// Python supports and this does not fails with "not supported" in the message.
#ifndef GX_TEMPLATE_VALUE_H
#define GX_TEMPLATE_VALUE_H
#include "../io/json.h"
#include "unicode.h"
GX_BEGIN

// Limits against hostile templates: the bytes of all values, the work (about one per operation and per 16 bytes that it
// reads), the depth of nested values and evaluations.
#define GX_TEMPLATE_MEMORY (INT64_C(384) << 20)
#define GX_TEMPLATE_STEPS  INT64_C(50000000)
enum { GX_TEMPLATE_NEST = 200, GX_TEMPLATE_DEPTH = 1200, GX_TEMPLATE_RANGE = 100000 };

typedef struct GxTemplateMemory {
    struct GxTemplateChunk *chunk;
    char *at, *end;
    int64_t total; // bytes
} GxTemplateMemory;
void gx_template_memory_release(GxTemplateMemory *m);

typedef struct {
    GxTemplateMemory memory;
    const char *where;
    int line, depth;
    int64_t steps, now;
    GxError *err;
} GxTemplateRun;

int gx_template_fail(GxTemplateRun *r, const char *format, ...) GX_PRINTF(2, 3); // GX_ERR_FORMAT; 0
int gx_template_lacks(GxTemplateRun *r, const char *format, ...)
    GX_PRINTF(2, 3); // GX_ERR_UNSUPPORTED: "not supported"; 0
int gx_template_work(GxTemplateRun *r, int64_t steps);
// The first, or last, occurrence of part[m] in [p, end); NULL: none, or it took too many steps, which is an error.
const char *gx_template_find(GxTemplateRun *r, const char *p, const char *end, const char *part, int64_t m);
const char *gx_template_find_last(GxTemplateRun *r, const char *p, const char *end, const char *part, int64_t m);
void *gx_template_allocate(GxTemplateRun *r, int64_t bytes); // zeros; NULL: failed

typedef enum {
    GX_T_UNDEFINED = 0,
    GX_T_NONE,
    GX_T_BOOL,
    GX_T_INT,
    GX_T_FLOAT,
    GX_T_STRING,
    GX_T_LIST,
    GX_T_TUPLE,
    GX_T_RANGE,
    GX_T_VIEW,      // keys, values or items of a dict
    GX_T_GENERATOR, // the result of map, select and others: can be read once, has no length
    GX_T_DICT,
    GX_T_NAMESPACE,
    GX_T_LOOP,
    GX_T_MACRO,
    GX_T_METHOD,
    GX_T_FUNCTION
} GxTemplateKind;

typedef struct GxTemplateValue {
    GxTemplateKind kind;
    int flag;  // a string: escaped or safe; a view: its GxTemplateView; a method, a function: which one
    int64_t n; // bytes of a string, elements of a list
    union {
        int64_t i; // integers and bools
        double f;
        const char *s; // a string; the name of an undefined value, or NULL
        struct GxTemplateValue *list;
        struct GxTemplateDict *dict;
        struct GxTemplateStream *stream;
        void *p;
    } u;
} GxTemplateValue;
typedef enum { GX_T_KEYS = 0, GX_T_VALUES, GX_T_ITEMS } GxTemplateView;
typedef struct GxTemplateDict {
    GxTemplateValue *key, *value;
    int64_t n, capacity;
} GxTemplateDict;
typedef struct GxTemplateStream { // elements from `at` on have not been read
    GxTemplateValue *list;
    int64_t n, at;
} GxTemplateStream;

GxTemplateValue gx_template_none(void);
GxTemplateValue gx_template_undefined(const char *name);
GxTemplateValue gx_template_bool(int x);
GxTemplateValue gx_template_int(int64_t x);
GxTemplateValue gx_template_float(double x);
GxTemplateValue gx_template_string(const char *s, int64_t bytes); // not copied
GxTemplateValue gx_template_list(GxTemplateKind kind, GxTemplateValue *list, int64_t n);
int gx_template_generator(GxTemplateRun *r, GxTemplateValue *list, int64_t n, GxTemplateValue *out);
int gx_template_new_dict(GxTemplateRun *r, GxTemplateKind kind, GxTemplateValue *out); // or a namespace
int gx_template_from_json(GxTemplateRun *r, const GxJson *json, GxTemplateValue *out); // strings remain the document's

// An existing key keeps its place. Lists, dicts and tuples that contain them cannot be keys.
int gx_template_is_key(GxTemplateValue v);
int gx_template_dict_set(GxTemplateRun *r, GxTemplateDict *d, GxTemplateValue key, GxTemplateValue value);
int gx_template_dict_find(GxTemplateRun *r, const GxTemplateDict *d, GxTemplateValue key, int64_t *at); // -1: not there
GxTemplateValue *gx_template_dict_get(const GxTemplateDict *d, const char *key); // NULL: not there

const char *gx_template_type(GxTemplateValue v); // "a string", for messages
int gx_template_is_number(GxTemplateValue v);    // a bool too
int gx_template_is_sequence(GxTemplateValue v);  // its elements are u.list: a list, a tuple, a range, a view
double gx_template_number(GxTemplateValue v);
int gx_template_truth(GxTemplateValue v);
int gx_template_equal(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out);
int gx_template_less(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out);    // a < b
int gx_template_at_most(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out); // a <= b
int gx_template_is_in(const char *name, uint32_t c); // 1: the character is in this class (gx_unicode_class)
int gx_template_contains(GxTemplateRun *r, GxTemplateValue x, GxTemplateValue in, int *out);
// The elements that a loop over v visits. A generator is exhausted afterwards.
int gx_template_iterate(GxTemplateRun *r, GxTemplateValue v, GxTemplateValue **list, int64_t *n);

typedef struct { // a growing text, in the run's memory
    char *s;
    int64_t n, capacity, most; // most: bytes; 0: no limit of its own
} GxTemplateBuilder;
int gx_template_put(GxTemplateRun *r, GxTemplateBuilder *b, const char *s, int64_t bytes);
int gx_template_put_word(GxTemplateRun *r, GxTemplateBuilder *b, const char *s);
int gx_template_put_text(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v); // str(v)
GxTemplateValue gx_template_built(const GxTemplateBuilder *b);
int gx_template_text_of(GxTemplateRun *r, GxTemplateValue v, GxTemplateValue *out); // str(v)

typedef struct {
    int ascii, sort, has_indent;
    GxTemplateValue indent, between, behind_key; // strings
} GxTemplateJsonStyle;
int gx_template_put_json(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v, const GxTemplateJsonStyle *style);

// A stable sort of the n elements of `list` by their keys. as_lists: keys are compared like Python's one-element lists,
// so equal ones need not be ordered types.
int gx_template_sort(GxTemplateRun *r, GxTemplateValue *list, GxTemplateValue *key, int64_t n, int reverse,
                     int as_lists);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_VALUE_IMPLEMENTED)
#define GX_TEMPLATE_VALUE_IMPLEMENTED
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- memory and errors ---------------------------------------------------------------------------------------------

typedef struct GxTemplateChunk {
    struct GxTemplateChunk *next;
    int64_t bytes;
} GxTemplateChunk;

// Zeros; NULL: the limit is reached.
static void *gx__template_memory_take(GxTemplateMemory *m, int64_t bytes)
{
    bytes = gx_round_up(gx_max(bytes, 1), 16);
    if (m->end - m->at < bytes) {
        // chunks grow with the total, so a small template takes little memory
        const int64_t head = gx_round_up((int64_t)sizeof(GxTemplateChunk), 16);
        const int64_t room = head + gx_max(bytes, gx_min(gx_max(m->total, 4096), 1 << 20));
        if (m->total + room > GX_TEMPLATE_MEMORY) return NULL;
        GxTemplateChunk *chunk = (GxTemplateChunk *)malloc((size_t)room);
        if (!chunk) return NULL;
        chunk->next = m->chunk, chunk->bytes = room;
        m->chunk = chunk;
        m->total += room;
        m->at = (char *)chunk + head, m->end = (char *)chunk + room;
    }
    void *p = m->at;
    m->at += bytes;
    memset(p, 0, (size_t)bytes);
    return p;
}

void gx_template_memory_release(GxTemplateMemory *m)
{
    for (GxTemplateChunk *next; m->chunk; m->chunk = next) {
        next = m->chunk->next;
        free(m->chunk);
    }
    memset(m, 0, sizeof *m);
}

static int gx__template_error(GxTemplateRun *r, GxStatus code, const char *format, va_list args)
{
    char text[512];
    gx_format_shortened(text, sizeof text, format, args);
    GX_FAIL(r->err, code, "%s:%d: %s", r->where, r->line, text);
    return 0;
}

int gx_template_fail(GxTemplateRun *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gx__template_error(r, GX_ERR_FORMAT, format, args);
    va_end(args);
    return 0;
}

int gx_template_lacks(GxTemplateRun *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gx__template_error(r, GX_ERR_UNSUPPORTED, format, args);
    va_end(args);
    return 0;
}

int gx_template_work(GxTemplateRun *r, int64_t steps)
{
    if ((r->steps += steps) <= GX_TEMPLATE_STEPS) return 1;
    return gx_template_fail(r, "the template takes more than %ld steps", (long)GX_TEMPLATE_STEPS);
}

// Every place where the first character occurs is counted as a comparison of the whole part, which it can be.
const char *gx_template_find(GxTemplateRun *r, const char *p, const char *end, const char *part, int64_t m)
{
    for (; m && end - p >= m; p++) {
        p = (const char *)memchr(p, part[0], (size_t)(end - p - m + 1));
        if (!p || !memcmp(p, part, (size_t)m)) return p;
        if (!gx_template_work(r, 1 + m / 16)) return NULL;
    }
    return m ? NULL : p;
}

const char *gx_template_find_last(GxTemplateRun *r, const char *p, const char *end, const char *part, int64_t m)
{
    for (const char *at = end - p >= m ? end - m : NULL; at; at = at > p ? at - 1 : NULL) {
        if (!m || (*at == *part && !memcmp(at, part, (size_t)m))) return at;
        if (*at == *part && !gx_template_work(r, 1 + m / 16)) return NULL;
    }
    return NULL;
}

void *gx_template_allocate(GxTemplateRun *r, int64_t bytes)
{
    void *p = gx__template_memory_take(&r->memory, bytes);
    if (!p)
        GX_FAIL(r->err, GX_ERR_MEMORY,
                "%s:%d: no memory for what the template computes: it has taken %ld of at most %ld MB", r->where,
                r->line, (long)(r->memory.total >> 20), (long)(GX_TEMPLATE_MEMORY >> 20));
    return p;
}

// ---- values --------------------------------------------------------------------------------------------------------

static GxTemplateValue gx__template_kind(GxTemplateKind kind)
{
    GxTemplateValue v;
    memset(&v, 0, sizeof v);
    v.kind = kind;
    return v;
}
GxTemplateValue gx_template_none(void) { return gx__template_kind(GX_T_NONE); }
GxTemplateValue gx_template_undefined(const char *name)
{
    GxTemplateValue v = gx__template_kind(GX_T_UNDEFINED);
    v.u.s = name;
    return v;
}
GxTemplateValue gx_template_bool(int x)
{
    GxTemplateValue v = gx__template_kind(GX_T_BOOL);
    v.u.i = x != 0;
    return v;
}
GxTemplateValue gx_template_int(int64_t x)
{
    GxTemplateValue v = gx__template_kind(GX_T_INT);
    v.u.i = x;
    return v;
}
GxTemplateValue gx_template_float(double x)
{
    GxTemplateValue v = gx__template_kind(GX_T_FLOAT);
    v.u.f = x;
    return v;
}
GxTemplateValue gx_template_string(const char *s, int64_t bytes)
{
    GxTemplateValue v = gx__template_kind(GX_T_STRING);
    v.u.s = s, v.n = bytes;
    return v;
}
GxTemplateValue gx_template_list(GxTemplateKind kind, GxTemplateValue *list, int64_t n)
{
    GxTemplateValue v = gx__template_kind(kind);
    v.u.list = list, v.n = n;
    return v;
}

int gx_template_generator(GxTemplateRun *r, GxTemplateValue *list, int64_t n, GxTemplateValue *out)
{
    *out = gx__template_kind(GX_T_GENERATOR);
    out->u.stream = (GxTemplateStream *)gx_template_allocate(r, (int64_t)sizeof(GxTemplateStream));
    if (!out->u.stream) return 0;
    out->u.stream->list = list, out->u.stream->n = n;
    return 1;
}

int gx_template_new_dict(GxTemplateRun *r, GxTemplateKind kind, GxTemplateValue *out)
{
    *out = gx__template_kind(kind);
    out->u.dict = (GxTemplateDict *)gx_template_allocate(r, (int64_t)sizeof(GxTemplateDict));
    return out->u.dict != NULL;
}

static int gx__template_dict_room(GxTemplateRun *r, GxTemplateDict *d, int64_t n)
{
    if (n <= d->capacity) return 1;
    const int64_t capacity = gx_max(n, 2 * d->capacity), size = (int64_t)sizeof(GxTemplateValue);
    GxTemplateValue *key = (GxTemplateValue *)gx_template_allocate(r, 2 * capacity * size), *value = key + capacity;
    if (!key) return 0;
    if (d->n) memcpy(key, d->key, (size_t)(d->n * size)), memcpy(value, d->value, (size_t)(d->n * size));
    d->key = key, d->value = value, d->capacity = capacity;
    return 1;
}

static int gx__template_from_json(GxTemplateRun *r, const GxJson *json, GxTemplateValue *out, int depth)
{
    const int64_t n = gx_json_size(json);
    if (depth > GX_TEMPLATE_NEST) return gx_template_fail(r, "a variable is nested deeper than %d", GX_TEMPLATE_NEST);
    if (!gx_template_work(r, 1)) return 0;
    switch (gx_json_type(json)) {
    case GX_JSON_NONE: *out = gx_template_undefined(NULL); return 1;
    case GX_JSON_NULL: *out = gx_template_none(); return 1;
    case GX_JSON_BOOL: *out = gx_template_bool(gx_json_bool(json)); return 1;
    case GX_JSON_INT: *out = gx_template_int(gx_json_int(json)); return 1;
    case GX_JSON_REAL: *out = gx_template_float(gx_json_double(json)); return 1;
    case GX_JSON_STRING:
        *out = gx_template_string(gx_json_string(json), (int64_t)strlen(gx_json_string(json)));
        return 1;
    case GX_JSON_ARRAY:
        *out = gx_template_list(GX_T_LIST, (GxTemplateValue *)gx_template_allocate(r, n * (int64_t)sizeof *out), n);
        if (!out->u.list) return 0;
        for (int64_t i = 0; i < n; i++)
            if (!gx__template_from_json(r, gx_json_at(json, i), &out->u.list[i], depth + 1)) return 0;
        return 1;
    case GX_JSON_OBJECT: break;
    }
    if (!gx_template_new_dict(r, GX_T_DICT, out) || !gx__template_dict_room(r, out->u.dict, n)) return 0;
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);) { // names are unique: the reader ensures that
        const int64_t i = out->u.dict->n++;
        out->u.dict->key[i] = gx_template_string(m.key, (int64_t)strlen(m.key));
        if (!gx__template_from_json(r, m.value, &out->u.dict->value[i], depth + 1)) return 0;
    }
    return 1;
}

int gx_template_from_json(GxTemplateRun *r, const GxJson *json, GxTemplateValue *out)
{
    return gx__template_from_json(r, json, out, 0);
}

static int gx__template_same_string(GxTemplateValue a, GxTemplateValue b)
{
    return a.n == b.n && !memcmp(a.u.s, b.u.s, (size_t)a.n);
}

int gx_template_is_key(GxTemplateValue v)
{
    if (v.kind == GX_T_LIST || v.kind == GX_T_DICT || v.kind == GX_T_VIEW) return 0;
    for (int64_t i = 0; v.kind == GX_T_TUPLE && i < v.n; i++)
        if (!gx_template_is_key(v.u.list[i])) return 0;
    return 1;
}

int gx_template_dict_find(GxTemplateRun *r, const GxTemplateDict *d, GxTemplateValue key, int64_t *at)
{
    *at = -1;
    if (!gx_template_is_key(key)) return gx_template_fail(r, "%s cannot be a key of a dict", gx_template_type(key));
    if (!gx_template_work(r, 1 + d->n / 16)) return 0;
    for (int64_t i = 0; i < d->n; i++) {
        int same = 0;
        if (key.kind == GX_T_STRING) same = d->key[i].kind == GX_T_STRING && gx__template_same_string(key, d->key[i]);
        else if (!gx_template_equal(r, key, d->key[i], &same)) return 0;
        if (same) return *at = i, 1;
    }
    return 1;
}

GxTemplateValue *gx_template_dict_get(const GxTemplateDict *d, const char *key)
{
    const GxTemplateValue k = gx_template_string(key, (int64_t)strlen(key));
    for (int64_t i = 0; i < d->n; i++)
        if (d->key[i].kind == GX_T_STRING && gx__template_same_string(k, d->key[i])) return &d->value[i];
    return NULL;
}

int gx_template_dict_set(GxTemplateRun *r, GxTemplateDict *d, GxTemplateValue key, GxTemplateValue value)
{
    int64_t at;
    if (!gx_template_dict_find(r, d, key, &at)) return 0;
    if (at < 0) {
        if (!gx__template_dict_room(r, d, d->n + 1)) return 0;
        at = d->n++;
        d->key[at] = key;
    }
    d->value[at] = value;
    return 1;
}

const char *gx_template_type(GxTemplateValue v)
{
    static const char *const names[] = {
        "an undefined value", "none",      "a bool",      "an integer", "a float",
        "a string",           "a list",    "a tuple",     "a range",    "a view of a dict",
        "a generator",        "a dict",    "a namespace", "a loop",     "a macro",
        "a method",           "a function"};
    return names[v.kind];
}

int gx_template_is_number(GxTemplateValue v) { return v.kind >= GX_T_BOOL && v.kind <= GX_T_FLOAT; }
int gx_template_is_sequence(GxTemplateValue v) { return v.kind >= GX_T_LIST && v.kind <= GX_T_VIEW; }
double gx_template_number(GxTemplateValue v) { return v.kind == GX_T_FLOAT ? v.u.f : (double)v.u.i; }

int gx_template_truth(GxTemplateValue v)
{
    switch (v.kind) {
    case GX_T_UNDEFINED:
    case GX_T_NONE: return 0;
    case GX_T_BOOL:
    case GX_T_INT: return v.u.i != 0;
    case GX_T_FLOAT: return v.u.f != 0;
    case GX_T_DICT: return v.u.dict->n > 0;
    case GX_T_STRING: return v.n > 0;
    default: return !gx_template_is_sequence(v) || v.n > 0;
    }
}

// ---- equal, less, in -----------------------------------------------------------------------------------------------

static int gx__template_compare_numbers(GxTemplateValue a, GxTemplateValue b) // -1, 0, 1; 2: NaN
{
    if (a.kind != GX_T_FLOAT && b.kind != GX_T_FLOAT) return (a.u.i > b.u.i) - (a.u.i < b.u.i);
    const long double x = a.kind == GX_T_FLOAT ? (long double)a.u.f : (long double)a.u.i; // 64 bits hold each integer
    const long double y = b.kind == GX_T_FLOAT ? (long double)b.u.f : (long double)b.u.i;
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static int gx__template_equal(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out, int depth)
{
    *out = 0;
    if (depth > GX_TEMPLATE_NEST) return gx_template_fail(r, "values are nested deeper than %d", GX_TEMPLATE_NEST);
    if (!gx_template_work(r, 1)) return 0;
    if (gx_template_is_number(a) && gx_template_is_number(b)) return *out = gx__template_compare_numbers(a, b) == 0, 1;
    if (a.kind != b.kind) return 1;
    if (a.kind == GX_T_UNDEFINED || a.kind == GX_T_NONE) return *out = 1, 1;
    if (a.kind == GX_T_STRING) {
        *out = gx__template_same_string(a, b);
        return gx_template_work(r, a.n == b.n ? a.n / 16 : 0);
    }
    if (a.kind == GX_T_DICT) {
        if (a.u.dict->n != b.u.dict->n) return 1;
        for (int64_t i = 0; i < a.u.dict->n; i++) {
            int64_t at;
            if (!gx_template_dict_find(r, b.u.dict, a.u.dict->key[i], &at)) return 0;
            if (at < 0) return *out = 0, 1;
            if (!gx__template_equal(r, a.u.dict->value[i], b.u.dict->value[at], out, depth + 1)) return 0;
            if (!*out) return 1;
        }
        return *out = 1, 1;
    }
    if (a.kind == GX_T_VIEW) return gx_template_lacks(r, "comparing views of dicts is not supported");
    if (!gx_template_is_sequence(a)) return *out = a.u.p == b.u.p && a.flag == b.flag, 1;
    if (a.n != b.n) return 1;
    for (int64_t i = 0; i < a.n; i++) {
        if (!gx__template_equal(r, a.u.list[i], b.u.list[i], out, depth + 1)) return 0;
        if (!*out) return 1;
    }
    return *out = 1, 1;
}

int gx_template_equal(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out)
{
    return gx__template_equal(r, a, b, out, 0);
}

static int gx__template_less(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out, int depth)
{
    *out = 0;
    if (depth > GX_TEMPLATE_NEST) return gx_template_fail(r, "values are nested deeper than %d", GX_TEMPLATE_NEST);
    if (!gx_template_work(r, 1)) return 0;
    if (gx_template_is_number(a) && gx_template_is_number(b)) return *out = gx__template_compare_numbers(a, b) == -1, 1;
    if (a.kind == GX_T_STRING && b.kind == GX_T_STRING) { // the byte order of UTF-8 is that of its characters
        const int order = memcmp(a.u.s, b.u.s, (size_t)gx_min(a.n, b.n));
        *out = order ? order < 0 : a.n < b.n;
        return gx_template_work(r, gx_min(a.n, b.n) / 16);
    }
    if (a.kind != b.kind || (a.kind != GX_T_LIST && a.kind != GX_T_TUPLE))
        return gx_template_fail(r, "%s and %s cannot be ordered", gx_template_type(a), gx_template_type(b));
    for (int64_t i = 0; i < gx_min(a.n, b.n); i++) {
        int same;
        if (!gx__template_equal(r, a.u.list[i], b.u.list[i], &same, depth + 1)) return 0;
        if (!same) return gx__template_less(r, a.u.list[i], b.u.list[i], out, depth + 1);
    }
    return *out = a.n < b.n, 1;
}

int gx_template_less(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out)
{
    return gx__template_less(r, a, b, out, 0);
}

int gx_template_at_most(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int *out)
{
    int same;
    if (!gx_template_less(r, a, b, out) || !gx_template_equal(r, a, b, &same)) return 0;
    return *out |= same, 1;
}

int gx_template_contains(GxTemplateRun *r, GxTemplateValue x, GxTemplateValue in, int *out)
{
    int64_t n, at;
    GxTemplateValue *list;
    *out = 0;
    if (in.kind == GX_T_DICT) {
        if (!gx_template_dict_find(r, in.u.dict, x, &at)) return 0;
        return *out = at >= 0, 1;
    }
    if (in.kind == GX_T_STRING) {
        if (x.kind != GX_T_STRING)
            return gx_template_fail(r, "'in' cannot look for %s in a string", gx_template_type(x));
        *out = gx_template_find(r, in.u.s, in.u.s + in.n, x.u.s, x.n) != NULL;
        return gx_template_work(r, in.n / 16);
    }
    if (in.kind == GX_T_GENERATOR) {
        GxTemplateStream *s = in.u.stream;
        while (s->at < s->n && !*out)
            if (!gx_template_equal(r, s->list[s->at++], x, out)) return 0;
        return 1;
    }
    if (!gx_template_iterate(r, in, &list, &n)) return 0;
    for (int64_t i = 0; i < n && !*out; i++)
        if (!gx_template_equal(r, list[i], x, out)) return 0;
    return 1;
}

int gx_template_iterate(GxTemplateRun *r, GxTemplateValue v, GxTemplateValue **list, int64_t *n)
{
    *list = NULL, *n = 0;
    if (gx_template_is_sequence(v)) return *list = v.u.list, *n = v.n, 1;
    switch (v.kind) {
    case GX_T_UNDEFINED: return 1;
    case GX_T_DICT: return *list = v.u.dict->key, *n = v.u.dict->n, 1;
    case GX_T_GENERATOR:
        *list = v.u.stream->list + v.u.stream->at, *n = v.u.stream->n - v.u.stream->at;
        v.u.stream->at = v.u.stream->n;
        return 1;
    case GX_T_STRING: break;
    default: return gx_template_fail(r, "%s cannot be iterated over", gx_template_type(v));
    }
    int64_t characters = gx_text_columns(v.u.s, v.n);
    if (!gx_template_work(r, v.n)) return 0;
    *list = (GxTemplateValue *)gx_template_allocate(r, characters * (int64_t)sizeof **list);
    if (!*list) return 0;
    for (int64_t i = 0; i < v.n;) {
        uint32_t c;
        const int bytes = gx_unicode_decode(v.u.s + i, v.u.s + v.n, &c);
        (*list)[(*n)++] = gx_template_string(v.u.s + i, bytes);
        i += bytes;
    }
    return 1;
}

// ---- as text -------------------------------------------------------------------------------------------------------

int gx_template_put(GxTemplateRun *r, GxTemplateBuilder *b, const char *s, int64_t bytes)
{
    if (!gx_template_work(r, bytes / 16)) return 0;
    if (b->most && b->n + bytes > b->most)
        return gx_template_fail(r, "the rendered text is longer than %ld MB", (long)(b->most >> 20));
    if (b->n + bytes + 1 > b->capacity) {
        const int64_t capacity = gx_round_up(2 * b->n + bytes + 32, 16);
        if (b->s && b->s + b->capacity == r->memory.at && r->memory.end - b->s >= capacity) {
            r->memory.at = b->s + capacity; // it is the last block, and grows in place
        } else {
            char *grown = (char *)gx_template_allocate(r, capacity);
            if (!grown) return 0;
            if (b->n) memcpy(grown, b->s, (size_t)b->n);
            b->s = grown;
        }
        b->capacity = capacity;
    }
    if (bytes) memcpy(b->s + b->n, s, (size_t)bytes);
    b->n += bytes;
    b->s[b->n] = 0;
    return 1;
}

int gx_template_put_word(GxTemplateRun *r, GxTemplateBuilder *b, const char *s)
{
    return gx_template_put(r, b, s, (int64_t)strlen(s));
}

GxTemplateValue gx_template_built(const GxTemplateBuilder *b) { return gx_template_string(b->s ? b->s : "", b->n); }

// The fewest digits that read back as x, with an exponent from 1e16 on and below 1e-4.
static void gx__template_format_float(char *out, double x) // out[40]: as Python's repr
{
    char digits[40];
    int n = 0, exponent, precision = 1;
    if (isnan(x) || isinf(x)) {
        strcpy(out, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    do snprintf(digits, sizeof digits, "%.*e", precision - 1, fabs(x));
    while (strtod(digits, NULL) != fabs(x) && precision++ < 17);
    exponent = atoi(strchr(digits, 'e') + 1);
    for (char *p = digits; *p != 'e'; p++) // only the digits
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    if (signbit(x)) *out++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *out++ = digits[0];
        if (n > 1) out += sprintf(out, ".%.*s", n - 1, digits + 1);
        sprintf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        sprintf(out, "0.%0*d%.*s", -exponent - 1, 0, n, digits);
        if (exponent == -1) sprintf(out, "0.%.*s", n, digits);
        return;
    }
    for (int i = 0; i <= exponent; i++) *out++ = i < n ? digits[i] : '0';
    *out++ = '.';
    if (n <= exponent + 1) *out++ = '0';
    for (int i = exponent + 1; i < n; i++) *out++ = digits[i];
    *out = 0;
}

int gx_template_is_in(const char *name, uint32_t c)
{
    uint32_t first, last;
    for (int i = 0; gx_unicode_class(name, i, &first, &last) && first <= c; i++)
        if (c <= last) return 1;
    return 0;
}

static int gx__template_is_printable(uint32_t c)
{
    static const char *const classes[] = {"L", "M", "N", "P", "S"};
    if (c < 0x7F) return c >= 0x20;
    int k = 0;
    while (k < 5 && !gx_template_is_in(classes[k], c)) k++;
    return k < 5;
}

static int gx__template_put_quoted(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v)
{
    const int has_single = memchr(v.u.s, '\'', (size_t)v.n) != NULL,
              has_double = memchr(v.u.s, '"', (size_t)v.n) != NULL;
    const char quote = has_single && !has_double ? '"' : '\'';
    if (!gx_template_work(r, v.n) || !gx_template_put(r, b, &quote, 1)) return 0;
    for (int64_t i = 0; i < v.n;) {
        char text[16] = "";
        uint32_t c;
        const int bytes = gx_unicode_decode(v.u.s + i, v.u.s + v.n, &c);
        if (c == (uint32_t)quote || c == '\\') snprintf(text, sizeof text, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (!gx__template_is_printable(c)) {
            const char *format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
            snprintf(text, sizeof text, format, (unsigned)c);
        }
        if (!gx_template_put(r, b, text[0] ? text : v.u.s + i, text[0] ? (int64_t)strlen(text) : bytes)) return 0;
        i += bytes;
    }
    return gx_template_put(r, b, &quote, 1);
}

static int gx__template_put_repr(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v, int depth);

static int gx__template_put_list(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v, int depth)
{
    static const char *const views[] = {"dict_keys(", "dict_values(", "dict_items("};
    const int tuple = v.kind == GX_T_TUPLE;
    if (v.kind == GX_T_VIEW && !gx_template_put_word(r, b, views[v.flag])) return 0;
    if (!gx_template_put_word(r, b, tuple ? "(" : "[")) return 0;
    for (int64_t i = 0; i < v.n; i++) {
        if (i && !gx_template_put_word(r, b, ", ")) return 0;
        if (!gx__template_put_repr(r, b, v.u.list[i], depth + 1)) return 0;
    }
    if (tuple && v.n == 1 && !gx_template_put_word(r, b, ",")) return 0;
    if (!gx_template_put_word(r, b, tuple ? ")" : "]")) return 0;
    return v.kind != GX_T_VIEW || gx_template_put_word(r, b, ")");
}

static int gx__template_put_dict(GxTemplateRun *r, GxTemplateBuilder *b, const GxTemplateDict *d, int depth)
{
    if (!gx_template_put_word(r, b, "{")) return 0;
    for (int64_t i = 0; i < d->n; i++) {
        if (i && !gx_template_put_word(r, b, ", ")) return 0;
        if (!gx__template_put_repr(r, b, d->key[i], depth + 1) || !gx_template_put_word(r, b, ": ") ||
            !gx__template_put_repr(r, b, d->value[i], depth + 1))
            return 0;
    }
    return gx_template_put_word(r, b, "}");
}

static int gx__template_put_repr(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v, int depth)
{
    char number[48];
    if (depth > GX_TEMPLATE_NEST) return gx_template_fail(r, "a value is nested deeper than %d", GX_TEMPLATE_NEST);
    switch (v.kind) {
    case GX_T_UNDEFINED: return gx_template_put_word(r, b, "Undefined");
    case GX_T_NONE: return gx_template_put_word(r, b, "None");
    case GX_T_BOOL: return gx_template_put_word(r, b, v.u.i ? "True" : "False");
    case GX_T_INT: snprintf(number, sizeof number, "%lld", (long long)v.u.i); return gx_template_put_word(r, b, number);
    case GX_T_FLOAT: gx__template_format_float(number, v.u.f); return gx_template_put_word(r, b, number);
    case GX_T_STRING:
        if (v.flag)
            return gx_template_lacks(r, "writing out a list with a text that is |safe or |escape is not supported");
        return gx__template_put_quoted(r, b, v);
    case GX_T_LIST:
    case GX_T_TUPLE:
    case GX_T_VIEW: return gx__template_put_list(r, b, v, depth);
    case GX_T_DICT: return gx__template_put_dict(r, b, v.u.dict, depth);
    default: return gx_template_lacks(r, "writing out %s is not supported", gx_template_type(v));
    }
}

int gx_template_put_text(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v)
{
    if (v.kind == GX_T_UNDEFINED) return 1;
    if (v.kind == GX_T_STRING) return gx_template_put(r, b, v.u.s, v.n);
    return gx__template_put_repr(r, b, v, 0);
}

int gx_template_text_of(GxTemplateRun *r, GxTemplateValue v, GxTemplateValue *out)
{
    GxTemplateBuilder b = GX_ZERO;
    *out = v;
    if (v.kind == GX_T_STRING) return 1;
    if (!gx_template_put_text(r, &b, v)) return 0;
    *out = gx_template_built(&b);
    return 1;
}

// ---- as JSON -------------------------------------------------------------------------------------------------------

static int gx__template_json_string(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v, int ascii)
{
    static const char plain[] = "\"\\\n\r\t\b\f", escaped[] = "\"\\nrtbf";
    if (!gx_template_work(r, v.n / 4) || !gx_template_put_word(r, b, "\"")) return 0;
    for (int64_t i = 0, from = 0;;) {
        char text[16] = "";
        uint32_t c = 0;
        const int bytes = i < v.n ? gx_unicode_decode(v.u.s + i, v.u.s + v.n, &c) : 0;
        const char *at = i < v.n && c ? (const char *)memchr(plain, (int)c, c < 128 ? sizeof plain - 1 : 0) : NULL;
        if (at) snprintf(text, sizeof text, "\\%c", escaped[at - plain]);
        else if (i < v.n && (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)))
            snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
        else if (i < v.n && ascii && c >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                     (unsigned)(0xDC00 + (c & 0x3FF)));
        if (i == v.n || text[0]) {
            if (!gx_template_put(r, b, v.u.s + from, i - from) || !gx_template_put_word(r, b, text)) return 0;
            from = i + bytes;
        }
        if (i == v.n) break;
        i += bytes;
    }
    return gx_template_put_word(r, b, "\"");
}

static int gx__template_json_line(GxTemplateRun *r, GxTemplateBuilder *b, const GxTemplateJsonStyle *style, int depth)
{
    if (!style->has_indent) return 1;
    if (!gx_template_put_word(r, b, "\n")) return 0;
    for (int i = 0; i < depth; i++)
        if (!gx_template_put(r, b, style->indent.u.s, style->indent.n)) return 0;
    return 1;
}

static int gx__template_put_json(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v,
                                 const GxTemplateJsonStyle *style, int depth);

static int gx__template_json_key(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue key,
                                 const GxTemplateJsonStyle *style)
{
    if (key.kind == GX_T_STRING) return gx__template_json_string(r, b, key, style->ascii);
    if (key.kind != GX_T_NONE && !gx_template_is_number(key))
        return gx_template_fail(r, "tojson: %s cannot be a key", gx_template_type(key));
    return gx_template_put_word(r, b, "\"") && gx__template_put_json(r, b, key, style, 0) &&
           gx_template_put_word(r, b, "\"");
}

static int gx__template_json_dict(GxTemplateRun *r, GxTemplateBuilder *b, const GxTemplateDict *d,
                                  const GxTemplateJsonStyle *style, int depth)
{
    const int64_t n = d->n, size = (int64_t)sizeof(GxTemplateValue);
    GxTemplateValue *key = d->key, *value = d->value;
    if (style->sort && n) {
        GxTemplateValue *sorted = (GxTemplateValue *)gx_template_allocate(r, 2 * n * size);
        if (!sorted) return 0;
        memcpy(sorted, key, (size_t)(n * size)), memcpy(sorted + n, value, (size_t)(n * size));
        if (!gx_template_sort(r, sorted + n, sorted, n, 0, 0)) return 0;
        key = sorted, value = sorted + n;
    }
    if (!gx_template_put_word(r, b, "{")) return 0;
    for (int64_t i = 0; i < n; i++) {
        if (i && !gx_template_put(r, b, style->between.u.s, style->between.n)) return 0;
        if (!gx__template_json_line(r, b, style, depth + 1) || !gx__template_json_key(r, b, key[i], style) ||
            !gx_template_put(r, b, style->behind_key.u.s, style->behind_key.n) ||
            !gx__template_put_json(r, b, value[i], style, depth + 1))
            return 0;
    }
    return (!n || gx__template_json_line(r, b, style, depth)) && gx_template_put_word(r, b, "}");
}

static int gx__template_json_list(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v,
                                  const GxTemplateJsonStyle *style, int depth)
{
    if (!gx_template_put_word(r, b, "[")) return 0;
    for (int64_t i = 0; i < v.n; i++) {
        if (i && !gx_template_put(r, b, style->between.u.s, style->between.n)) return 0;
        if (!gx__template_json_line(r, b, style, depth + 1) ||
            !gx__template_put_json(r, b, v.u.list[i], style, depth + 1))
            return 0;
    }
    return (!v.n || gx__template_json_line(r, b, style, depth)) && gx_template_put_word(r, b, "]");
}

static int gx__template_put_json(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v,
                                 const GxTemplateJsonStyle *style, int depth)
{
    if (depth > GX_TEMPLATE_NEST) return gx_template_fail(r, "tojson: nested deeper than %d", GX_TEMPLATE_NEST);
    if (!gx_template_work(r, 1)) return 0;
    switch (v.kind) {
    case GX_T_NONE: return gx_template_put_word(r, b, "null");
    case GX_T_BOOL: return gx_template_put_word(r, b, v.u.i ? "true" : "false");
    case GX_T_FLOAT:
        if (isnan(v.u.f)) return gx_template_put_word(r, b, "NaN");
        if (isinf(v.u.f)) return gx_template_put_word(r, b, v.u.f < 0 ? "-Infinity" : "Infinity");
        return gx_template_put_text(r, b, v);
    case GX_T_INT: return gx_template_put_text(r, b, v);
    case GX_T_STRING: return gx__template_json_string(r, b, v, style->ascii);
    case GX_T_DICT: return gx__template_json_dict(r, b, v.u.dict, style, depth);
    case GX_T_LIST:
    case GX_T_TUPLE: return gx__template_json_list(r, b, v, style, depth);
    default: return gx_template_fail(r, "tojson: %s has no form in JSON", gx_template_type(v));
    }
}

int gx_template_put_json(GxTemplateRun *r, GxTemplateBuilder *b, GxTemplateValue v, const GxTemplateJsonStyle *style)
{
    return gx__template_put_json(r, b, v, style, 0);
}

// ---- order ---------------------------------------------------------------------------------------------------------

static int gx__template_before(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, int as_lists, int *out)
{
    int same = 0;
    *out = 0;
    if (as_lists && !gx_template_equal(r, a, b, &same)) return 0;
    return same || gx_template_less(r, a, b, out);
}

int gx_template_sort(GxTemplateRun *r, GxTemplateValue *list, GxTemplateValue *key, int64_t n, int reverse,
                     int as_lists)
{
    if (n < 2) return 1;
    GxTemplateValue *from[2] = {list, key}, *to[2];
    to[0] = (GxTemplateValue *)gx_template_allocate(r, 2 * n * (int64_t)sizeof *list), to[1] = to[0] ? to[0] + n : NULL;
    if (!to[0]) return 0;
    for (int64_t width = 1; width < n; width *= 2) { // bottom-up merge sort
        for (int64_t begin = 0; begin < n; begin += 2 * width) {
            const int64_t middle = gx_min(begin + width, n), end = gx_min(begin + 2 * width, n);
            for (int64_t i = begin, j = middle, k = begin; k < end; k++) {
                int second = i == middle;
                if (!second && j < end &&
                    !gx__template_before(r, from[1][reverse ? i : j], from[1][reverse ? j : i], as_lists, &second))
                    return 0;
                const int64_t at = second ? j++ : i++;
                to[0][k] = from[0][at], to[1][k] = from[1][at];
            }
        }
        for (int x = 0; x < 2; x++) {
            GxTemplateValue *t = from[x];
            from[x] = to[x], to[x] = t;
        }
    }
    if (from[0] != list) {
        memcpy(list, from[0], (size_t)n * sizeof *list);
        memcpy(key, from[1], (size_t)n * sizeof *key);
    }
    return 1;
}
#endif
