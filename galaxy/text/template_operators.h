// template_operators.h: the operators of chat templates: arithmetic as in Python (with 64-bit integers; larger ones are
// refused), a.b, a["b"], a[1:2], and the variable `loop`.
#ifndef GX_TEMPLATE_OPERATORS_H
#define GX_TEMPLATE_OPERATORS_H
#include "template_methods.h"
GX_BEGIN

typedef enum { GX_T_ADD = 0, GX_T_SUB, GX_T_MUL, GX_T_DIV, GX_T_FLOOR_DIV, GX_T_MOD, GX_T_POW } GxTemplateOperator;
int gx_template_binary(GxTemplateRun *r, GxTemplateOperator op, GxTemplateValue a, GxTemplateValue b,
                       GxTemplateValue *out);
int gx_template_negate(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue *out);

// a.name: as in Jinja, first Python's attribute of this name, then a["name"]. If there is neither, it is undefined.
int gx_template_attribute(GxTemplateRun *r, GxTemplateValue a, const char *name, GxTemplateValue *out);
// a[key]: in the opposite order.
int gx_template_item(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue key, GxTemplateValue *out);
// a[from:to:step]; none for those that are left out.
int gx_template_slice(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue from, GxTemplateValue to,
                      GxTemplateValue step, GxTemplateValue *out);
// An attribute by "name", "a.b.0" or a number, as filters name it; none: the value itself. otherwise: the value instead
// of an undefined one; absent or none: no replacement.
int gx_template_path(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue path, GxTemplateValue otherwise,
                     GxTemplateValue *out);

typedef struct GxTemplateLoop {
    GxTemplateValue *list;
    int64_t n, at;
} GxTemplateLoop;

enum { GX_T_CYCLE = -3 }; // the method of a loop

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_OPERATORS_IMPLEMENTED)
#define GX_TEMPLATE_OPERATORS_IMPLEMENTED
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- arithmetic ----------------------------------------------------------------------------------------------------

static int gx__template_joined(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, GxTemplateValue *out)
{
    if (a.kind == GX_T_STRING) {
        if (a.flag || b.flag) return gx_template_lacks(r, "+ with a text that is |safe or |escape is not supported");
        char *s = (char *)gx_template_allocate(r, a.n + b.n + 1);
        if (!s || !gx_template_work(r, (a.n + b.n) / 16)) return 0;
        memcpy(s, a.u.s, (size_t)a.n), memcpy(s + a.n, b.u.s, (size_t)b.n);
        return *out = gx_template_string(s, a.n + b.n), 1;
    }
    GxTemplateValue *list = (GxTemplateValue *)gx_template_allocate(r, (a.n + b.n) * (int64_t)sizeof *list);
    if (!list || !gx_template_work(r, a.n + b.n)) return 0;
    if (a.n) memcpy(list, a.u.list, (size_t)a.n * sizeof *list);
    if (b.n) memcpy(list + a.n, b.u.list, (size_t)b.n * sizeof *list);
    return *out = gx_template_list(a.kind, list, a.n + b.n), 1;
}

static int gx__template_repeated(GxTemplateRun *r, GxTemplateValue a, int64_t times, GxTemplateValue *out)
{
    const int64_t size = a.kind == GX_T_STRING ? 1 : (int64_t)sizeof a;
    if (a.flag) return gx_template_lacks(r, "* with a text that is |safe or |escape is not supported");
    times = a.n ? gx_max(times, 0) : 0;
    if (times > GX_TEMPLATE_MEMORY / (gx_max(a.n, 1) * size))
        return gx_template_fail(r, "%ld times %s is too large for a template", (long)times, gx_template_type(a));
    char *p = (char *)gx_template_allocate(r, a.n * times * size + 1);
    if (!p || !gx_template_work(r, times + a.n * times * size / 16)) return 0;
    for (int64_t i = 0; i < times; i++) memcpy(p + i * a.n * size, a.u.p, (size_t)(a.n * size));
    *out = a;
    out->n = a.n * times, out->u.p = p;
    return 1;
}

static int64_t gx__template_floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static int gx__template_power(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue b, GxTemplateValue *out)
{
    const double x = gx_template_number(a), y = gx_template_number(b);
    if (a.kind != GX_T_FLOAT && b.kind != GX_T_FLOAT && b.u.i >= 0) {
        int64_t p = 1, base = a.u.i;
        for (int64_t e = b.u.i; e; e >>= 1) {
            if ((e & 1) && __builtin_mul_overflow(p, base, &p)) goto too_large;
            if (e > 1 && __builtin_mul_overflow(base, base, &base)) goto too_large;
        }
        return *out = gx_template_int(p), 1;
    too_large:
        return gx_template_lacks(r, "integers of more than 64 bits are not supported");
    }
    if (x == 0 && y < 0) return gx_template_fail(r, "0 to a negative power");
    if (x < 0 && y != floor(y) && isfinite(y) && isfinite(x))
        return gx_template_lacks(r, "complex numbers are not supported");
    *out = gx_template_float(pow(x, y));
    if (isinf(out->u.f) && isfinite(x) && isfinite(y)) return gx_template_fail(r, "** is too large for a float");
    return 1;
}

static int gx__template_integers(GxTemplateRun *r, GxTemplateOperator op, int64_t a, int64_t b, GxTemplateValue *out)
{
    int64_t x = 0;
    int over = 0;
    switch (op) {
    case GX_T_ADD: over = __builtin_add_overflow(a, b, &x); break;
    case GX_T_SUB: over = __builtin_sub_overflow(a, b, &x); break;
    case GX_T_MUL: over = __builtin_mul_overflow(a, b, &x); break;
    case GX_T_FLOOR_DIV:
        over = a == INT64_MIN && b == -1;
        if (!over) x = gx__template_floor_div(a, b);
        break;
    default: x = b == -1 ? 0 : a - gx__template_floor_div(a, b) * b; break;
    }
    if (over) return gx_template_lacks(r, "integers of more than 64 bits are not supported");
    return *out = gx_template_int(x), 1;
}

static double gx__template_float_mod(double a, double b) // with the sign of b
{
    double m = fmod(a, b);
    if (m != 0 && (m < 0) != (b < 0)) m += b;
    return m == 0 ? copysign(0.0, b) : m;
}

static double gx__template_float_floor_div(double a, double b)
{
    const double m = fmod(a, b);
    double q = (a - m) / b;
    if (m != 0 && (m < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign(0.0, a / b);
    const double f = floor(q);
    return q - f > 0.5 ? f + 1 : f;
}

int gx_template_binary(GxTemplateRun *r, GxTemplateOperator op, GxTemplateValue a, GxTemplateValue b,
                       GxTemplateValue *out)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    const int a_repeats = a.kind == GX_T_STRING || a.kind == GX_T_LIST || a.kind == GX_T_TUPLE;
    const int b_repeats = b.kind == GX_T_STRING || b.kind == GX_T_LIST || b.kind == GX_T_TUPLE;
    if (gx_template_is_number(a) && gx_template_is_number(b)) {
        const double x = gx_template_number(a), y = gx_template_number(b);
        const int whole = a.kind != GX_T_FLOAT && b.kind != GX_T_FLOAT;
        if (op >= GX_T_DIV && op <= GX_T_MOD && y == 0) return gx_template_fail(r, "%s by 0", signs[op]);
        if (op == GX_T_POW) return gx__template_power(r, a, b, out);
        if (whole && op != GX_T_DIV) return gx__template_integers(r, op, a.u.i, b.u.i, out);
        *out = gx_template_float(op == GX_T_ADD         ? x + y
                                 : op == GX_T_SUB       ? x - y
                                 : op == GX_T_MUL       ? x * y
                                 : op == GX_T_DIV       ? x / y
                                 : op == GX_T_FLOOR_DIV ? gx__template_float_floor_div(x, y)
                                                        : gx__template_float_mod(x, y));
        return 1;
    }
    if (op == GX_T_ADD && a_repeats && a.kind == b.kind) return gx__template_joined(r, a, b, out);
    if (op == GX_T_MUL && a_repeats && (b.kind == GX_T_INT || b.kind == GX_T_BOOL))
        return gx__template_repeated(r, a, b.u.i, out);
    if (op == GX_T_MUL && b_repeats && (a.kind == GX_T_INT || a.kind == GX_T_BOOL))
        return gx__template_repeated(r, b, a.u.i, out);
    if (op == GX_T_MOD && a.kind == GX_T_STRING)
        return gx_template_lacks(r, "%% of a string (formatting) is not supported");
    if (op == GX_T_SUB && (a.kind == GX_T_VIEW || b.kind == GX_T_VIEW))
        return gx_template_lacks(r, "- of views of dicts is not supported");
    if (a.kind == GX_T_UNDEFINED || b.kind == GX_T_UNDEFINED) {
        const char *name = a.kind == GX_T_UNDEFINED ? a.u.s : b.u.s;
        return gx_template_fail(r, "%.100s is undefined, and %s is used on it", name ? name : "a value", signs[op]);
    }
    return gx_template_fail(r, "%s %s %s is not defined in Python", gx_template_type(a), signs[op],
                            gx_template_type(b));
}

int gx_template_negate(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue *out)
{
    if (a.kind == GX_T_FLOAT) return *out = gx_template_float(-a.u.f), 1;
    if (!gx_template_is_number(a)) return gx_template_fail(r, "- is used on %s", gx_template_type(a));
    return gx__template_integers(r, GX_T_SUB, 0, a.u.i, out);
}

// ---- attributes, items, slices -------------------------------------------------------------------------------------

static int gx__template_loop_attribute(GxTemplateRun *r, const GxTemplateLoop *l, GxTemplateValue a, const char *name,
                                       GxTemplateValue *out)
{
    const struct {
        const char *name;
        GxTemplateValue value;
    } list[] = {{"index", gx_template_int(l->at + 1)},
                {"index0", gx_template_int(l->at)},
                {"revindex", gx_template_int(l->n - l->at)},
                {"revindex0", gx_template_int(l->n - l->at - 1)},
                {"first", gx_template_bool(l->at == 0)},
                {"last", gx_template_bool(l->at == l->n - 1)},
                {"length", gx_template_int(l->n)},
                {"depth", gx_template_int(1)},
                {"depth0", gx_template_int(0)},
                {"previtem", l->at > 0 ? l->list[l->at - 1] : gx_template_undefined("loop.previtem")},
                {"nextitem", l->at + 1 < l->n ? l->list[l->at + 1] : gx_template_undefined("loop.nextitem")}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!strcmp(name, list[i].name)) return *out = list[i].value, 1;
    if (!strcmp(name, "changed")) return gx_template_lacks(r, "loop.changed is not supported");
    *out = gx_template_undefined(name);
    if (strcmp(name, "cycle")) return 1;
    out->kind = GX_T_METHOD, out->flag = GX_T_CYCLE;
    out->u.p = a.u.p;
    return 1;
}

// Python's attribute of this name; *found 0: there is none.
static int gx__template_own(GxTemplateRun *r, GxTemplateValue a, const char *name, GxTemplateValue *out, int *found)
{
    const int method = gx_template_method(a.kind, name);
    *found = 1;
    if (a.kind == GX_T_LOOP) return gx__template_loop_attribute(r, (const GxTemplateLoop *)a.u.p, a, name, out);
    if (a.kind == GX_T_NAMESPACE) {
        const GxTemplateValue *v = gx_template_dict_get(a.u.dict, name);
        *out = v ? *v : gx_template_undefined(name);
        return gx_template_work(r, a.u.dict->n / 4);
    }
    if (a.kind >= GX_T_MACRO) return gx_template_lacks(r, ".%.60s of %s is not supported", name, gx_template_type(a));
    *out = gx_template_undefined(name);
    if (method == -2) return 1; // "append": undefined; calling it is an error
    *found = method >= 0;
    if (method < 0) return 1;
    GxTemplateValue *self = (GxTemplateValue *)gx_template_allocate(r, (int64_t)sizeof *self);
    if (!self) return 0;
    *self = a;
    out->kind = GX_T_METHOD, out->flag = method;
    out->u.p = self;
    return 1;
}

static int gx__template_no_value(GxTemplateRun *r, GxTemplateValue a, const char *name)
{
    return gx_template_fail(r, "%.100s is undefined, and has no \"%.100s\"", a.u.s ? a.u.s : "a value", name);
}

int gx_template_attribute(GxTemplateRun *r, GxTemplateValue a, const char *name, GxTemplateValue *out)
{
    int found;
    if (a.kind == GX_T_UNDEFINED) return gx__template_no_value(r, a, name);
    if (!gx__template_own(r, a, name, out, &found)) return 0;
    if (found || a.kind != GX_T_DICT) return 1;
    const GxTemplateValue *v = gx_template_dict_get(a.u.dict, name);
    *out = v ? *v : gx_template_undefined(name);
    return gx_template_work(r, a.u.dict->n / 4);
}

int gx_template_item(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue key, GxTemplateValue *out)
{
    int found;
    *out = gx_template_undefined(key.kind == GX_T_STRING ? NULL : "an element");
    if (a.kind == GX_T_UNDEFINED) return gx__template_no_value(r, a, key.kind == GX_T_STRING ? key.u.s : "[]");
    if (a.kind == GX_T_DICT && gx_template_is_key(key)) {
        int64_t at;
        if (!gx_template_dict_find(r, a.u.dict, key, &at)) return 0;
        if (at >= 0) return *out = a.u.dict->value[at], 1;
    }
    const int counts = (gx_template_is_sequence(a) && a.kind != GX_T_VIEW) || a.kind == GX_T_STRING;
    if (counts && (key.kind == GX_T_INT || key.kind == GX_T_BOOL)) {
        const int64_t n = a.kind == GX_T_STRING ? gx_template_length(a) : a.n, i = key.u.i + (key.u.i < 0 ? n : 0);
        if (a.kind == GX_T_STRING && !gx_template_work(r, a.n / 8)) return 0;
        if (i < 0 || i >= n) return 1;
        if (a.kind != GX_T_STRING) return *out = a.u.list[i], 1;
        const int64_t at = gx_template_offset(a, i);
        uint32_t c;
        return *out = gx_template_string(a.u.s + at, gx_unicode_decode(a.u.s + at, a.u.s + a.n, &c)), 1;
    }
    if (key.kind != GX_T_STRING) return 1;
    char *name = (char *)gx_template_allocate(r, key.n + 1);
    if (!name || !gx_template_work(r, 1 + key.n / 16)) return 0;
    memcpy(name, key.u.s, (size_t)key.n);
    return gx__template_own(r, a, name, out, &found);
}

static int gx__template_bound(GxTemplateRun *r, GxTemplateValue v, int64_t otherwise, int64_t low, int64_t high,
                              int64_t n, int64_t *out)
{
    *out = otherwise;
    if (v.kind == GX_T_NONE) return 1;
    if (v.kind != GX_T_INT && v.kind != GX_T_BOOL)
        return gx_template_fail(r, "a slice goes from or to %s; expected an integer", gx_template_type(v));
    *out = gx_max(low, gx_min(high, v.u.i < 0 ? gx_max(v.u.i, -n - 1) + n : v.u.i));
    return 1;
}

int gx_template_slice(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue from, GxTemplateValue to,
                      GxTemplateValue step, GxTemplateValue *out)
{
    GxTemplateValue *list = a.u.list;
    int64_t n = a.n, i, end, by, m = 0;
    if (a.kind != GX_T_STRING && (!gx_template_is_sequence(a) || a.kind == GX_T_VIEW))
        return gx_template_fail(r, "a slice of %s", gx_template_type(a));
    if (a.kind == GX_T_STRING && !gx_template_iterate(r, a, &list, &n)) return 0;
    if (!gx__template_bound(r, step, 1, INT64_MIN + 1, INT64_MAX, 0, &by)) return 0;
    if (step.kind != GX_T_NONE) by = gx_max(step.u.i, -INT64_MAX);
    if (!by) return gx_template_fail(r, "a slice with step 0");
    if (!gx__template_bound(r, from, by > 0 ? 0 : n - 1, by > 0 ? 0 : -1, by > 0 ? n : n - 1, n, &i)) return 0;
    if (!gx__template_bound(r, to, by > 0 ? n : -1, by > 0 ? 0 : -1, by > 0 ? n : n - 1, n, &end)) return 0;
    by = gx_max(-n - 1, gx_min(n + 1, by));
    const int64_t most = by > 0 ? (end - i + by - 1) / by : (i - end - by - 1) / -by;
    GxTemplateValue *part = (GxTemplateValue *)gx_template_allocate(r, gx_max(most, 0) * (int64_t)sizeof *part);
    if (!part || !gx_template_work(r, gx_max(most, 0))) return 0;
    for (; by > 0 ? i < end : i > end; i += by) part[m++] = list[i];
    *out = gx_template_list(a.kind, part, m);
    if (a.kind != GX_T_STRING) return 1;
    GxTemplateBuilder b = GX_ZERO;
    for (int64_t k = 0; k < m; k++)
        if (!gx_template_put(r, &b, part[k].u.s, part[k].n)) return 0;
    *out = gx_template_built(&b);
    return 1;
}

int gx_template_path(GxTemplateRun *r, GxTemplateValue a, GxTemplateValue path, GxTemplateValue otherwise,
                     GxTemplateValue *out)
{
    const int has_other = !gx_template_is_absent(otherwise) && otherwise.kind != GX_T_NONE;
    *out = a;
    if (gx_template_is_absent(path) || path.kind == GX_T_NONE) return 1;
    for (int64_t i = 0; i <= path.n || path.kind != GX_T_STRING; i++) {
        GxTemplateValue key = path;
        if (path.kind == GX_T_STRING) {
            const char *dot = (const char *)memchr(path.u.s + i, '.', (size_t)(path.n - i));
            int64_t n = (dot ? dot - path.u.s : path.n) - i, digits = 0;
            while (digits < n && path.u.s[i + digits] >= '0' && path.u.s[i + digits] <= '9') digits++;
            key = gx_template_string(path.u.s + i, n);
            if (n && digits == n) {
                char number[20] = "";
                if (n >= (int64_t)sizeof number)
                    return gx_template_lacks(r, "integers of more than 64 bits are not supported");
                memcpy(number, key.u.s, (size_t)n);
                key = gx_template_int(strtoll(number, NULL, 10));
            }
            i += n;
        }
        if (!gx_template_item(r, *out, key, out)) return 0;
        if (has_other && out->kind == GX_T_UNDEFINED) *out = otherwise;
        if (path.kind != GX_T_STRING) break;
    }
    return 1;
}
#endif
