// template_filters.h: the filters and tests of chat templates: x|trim, x is defined. They are Jinja2's, except tojson,
// which is transformers'. Filters and tests that are not in these lists are refused when a template is parsed.
#ifndef GX_TEMPLATE_FILTERS_H
#define GX_TEMPLATE_FILTERS_H
#include "template_operators.h"
GX_BEGIN

int gx_template_filter(const char *name); // its row; -1: there is none
int gx_template_test(const char *name);
int gx_template_call_filter(GxTemplateRun *r, int filter, GxTemplateValue x, const GxTemplateArgs *a,
                            GxTemplateValue *out);
int gx_template_call_test(GxTemplateRun *r, int test, GxTemplateValue x, const GxTemplateArgs *a, int *out);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_FILTERS_IMPLEMENTED)
#define GX_TEMPLATE_FILTERS_IMPLEMENTED
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define GX__TEMPLATE_FILTER(name)                                                                                      \
    static int gx__template_filter_##name(GxTemplateRun *r, GxTemplateValue x, const GxTemplateValue *slot,            \
                                          GxTemplateValue *out)

// ---- texts ---------------------------------------------------------------------------------------------------------

static int gx__template_cased(GxTemplateRun *r, GxTemplateValue x, GxTemplateCase how, GxTemplateValue *out)
{
    return gx_template_text_of(r, x, &x) && gx_template_case(r, x, how, out);
}
GX__TEMPLATE_FILTER(upper) { return (void)slot, gx__template_cased(r, x, GX_T_UPPER, out); }
GX__TEMPLATE_FILTER(lower) { return (void)slot, gx__template_cased(r, x, GX_T_LOWER, out); }
GX__TEMPLATE_FILTER(capitalize) { return (void)slot, gx__template_cased(r, x, GX_T_CAPITALIZE, out); }
GX__TEMPLATE_FILTER(title) { return (void)slot, gx__template_cased(r, x, GX_T_TITLE_FILTER, out); }
GX__TEMPLATE_FILTER(string) { return (void)slot, gx_template_text_of(r, x, out); }
GX__TEMPLATE_FILTER(trim) { return gx_template_text_of(r, x, &x) && gx_template_strip(r, x, slot[0], GX_T_BOTH, out); }

GX__TEMPLATE_FILTER(safe)
{
    (void)slot;
    if (!gx_template_text_of(r, x, out)) return 0;
    return out->flag = 1;
}

GX__TEMPLATE_FILTER(escape)
{
    static const char signs[] = "&<>'\"", *const as[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    GxTemplateBuilder b = GX_ZERO;
    (void)slot;
    if (!gx_template_text_of(r, x, out) || !gx_template_work(r, out->n)) return 0;
    for (int64_t i = 0; i < out->n && !out->flag; i++) {
        const char *at = (const char *)memchr(signs, out->u.s[i], 5);
        const char *word = at ? as[at - signs] : NULL;
        if (!gx_template_put(r, &b, word ? word : out->u.s + i, word ? (int64_t)strlen(word) : 1)) return 0;
    }
    if (!out->flag) *out = gx_template_built(&b);
    return out->flag = 1;
}

GX__TEMPLATE_FILTER(replace)
{
    GxTemplateValue from, to;
    const GxTemplateValue most = gx_template_or(slot[2], gx_template_none());
    if (!gx_template_text_of(r, x, &x) || !gx_template_text_of(r, slot[0], &from) ||
        !gx_template_text_of(r, slot[1], &to))
        return 0;
    if (most.kind != GX_T_NONE && most.kind != GX_T_INT && most.kind != GX_T_BOOL)
        return gx_template_fail(r, "replace: the count is %s", gx_template_type(most));
    return gx_template_replace(r, x, from, to, most.kind == GX_T_NONE ? -1 : most.u.i, out);
}

GX__TEMPLATE_FILTER(indent)
{
    const GxTemplateValue width = gx_template_or(slot[0], gx_template_int(4));
    const int first = gx_template_truth(slot[1]), blank = gx_template_truth(slot[2]);
    GxTemplateBuilder b = GX_ZERO;
    GxTemplateValue by = width, text, lines;
    if (x.kind != GX_T_STRING) return gx_template_fail(r, "indent: %s; expected a string", gx_template_type(x));
    if (width.kind == GX_T_INT || width.kind == GX_T_BOOL) {
        if (!gx_template_binary(r, GX_T_MUL, gx_template_string(" ", 1), width, &by)) return 0;
    } else if (width.kind != GX_T_STRING)
        return gx_template_fail(r, "indent: the width is %s", gx_template_type(width));
    if (!gx_template_binary(r, GX_T_ADD, x, gx_template_string("\n", 1), &text)) return 0;
    if (!gx_template_split_lines(r, text, &lines)) return 0;
    for (int64_t i = 0; i < lines.n; i++) {
        const GxTemplateValue line = lines.u.list[i];
        if (i && !gx_template_put_word(r, &b, "\n")) return 0;
        if ((i ? blank || line.n : first) && !gx_template_put(r, &b, by.u.s, by.n)) return 0;
        if (!gx_template_put(r, &b, line.u.s, line.n)) return 0;
    }
    *out = gx_template_built(&b);
    return 1;
}

GX__TEMPLATE_FILTER(join)
{
    GxTemplateBuilder b = GX_ZERO;
    GxTemplateValue *list, between, one;
    int64_t n;
    if (!gx_template_text_of(r, slot[0], &between) || !gx_template_iterate(r, x, &list, &n)) return 0;
    for (int64_t i = 0; i < n; i++) {
        if (i && !gx_template_put(r, &b, between.u.s, between.n)) return 0;
        if (!gx_template_path(r, list[i], slot[1], gx_template_none(), &one)) return 0;
        if (!gx_template_put_text(r, &b, one)) return 0;
    }
    *out = gx_template_built(&b);
    return 1;
}

GX__TEMPLATE_FILTER(tojson)
{
    const GxTemplateValue indent = gx_template_or(slot[1], gx_template_none());
    const GxTemplateValue separators = gx_template_or(slot[2], gx_template_none());
    GxTemplateBuilder b = GX_ZERO;
    GxTemplateJsonStyle style;
    memset(&style, 0, sizeof style);
    style.ascii = gx_template_truth(slot[0]), style.sort = gx_template_truth(slot[3]);
    style.has_indent = indent.kind != GX_T_NONE;
    style.indent = indent;
    style.between = gx_template_string(style.has_indent ? "," : ", ", style.has_indent ? 1 : 2);
    style.behind_key = gx_template_string(": ", 2);
    if (indent.kind == GX_T_INT || indent.kind == GX_T_BOOL) {
        if (!gx_template_binary(r, GX_T_MUL, gx_template_string(" ", 1), indent, &style.indent)) return 0;
    } else if (style.has_indent && indent.kind != GX_T_STRING)
        return gx_template_fail(r, "tojson: the indent is %s", gx_template_type(indent));
    if (separators.kind != GX_T_NONE) {
        const int two = (separators.kind == GX_T_LIST || separators.kind == GX_T_TUPLE) && separators.n == 2;
        if (!two || separators.u.list[0].kind != GX_T_STRING || separators.u.list[1].kind != GX_T_STRING)
            return gx_template_fail(r, "tojson: the separators are not two strings");
        style.between = separators.u.list[0], style.behind_key = separators.u.list[1];
    }
    if (!gx_template_put_json(r, &b, x, &style)) return 0;
    *out = gx_template_built(&b);
    return 1;
}

// ---- numbers -------------------------------------------------------------------------------------------------------

// The digits of a number as Python reads it, with white space around it and underscores between digits. 0: it is not a
// number.
static int gx__template_number_text(GxTemplateRun *r, GxTemplateValue x, int whole, char *text, int64_t size)
{
    int64_t n = 0, digits = 0, points = 0, exponents = 0;
    const GxTemplateValue none = gx_template_none();
    if (!gx_template_strip(r, x, none, GX_T_BOTH, &x) || x.n >= size) return 0;
    for (int64_t i = 0; i < x.n; i++) {
        const char c = x.u.s[i], before = i ? x.u.s[i - 1] : 0;
        const int is_digit = c >= '0' && c <= '9', after_digit = before >= '0' && before <= '9';
        if (c == '_') {
            if (!after_digit || i + 1 == x.n || x.u.s[i + 1] < '0' || x.u.s[i + 1] > '9') return 0;
            continue;
        }
        if (c == '+' || c == '-') {
            if (i && (whole || (before != 'e' && before != 'E'))) return 0;
        } else if (c == '.') {
            if (whole || points++ || exponents) return 0;
        } else if (c == 'e' || c == 'E') {
            if (whole || exponents++ || !digits) return 0;
        } else if (!is_digit) return 0;
        digits += is_digit;
        text[n++] = c;
    }
    text[n] = 0;
    return digits > 0 && !strchr("eE+-", text[n - 1]);
}

static int gx__template_read_float(GxTemplateRun *r, GxTemplateValue x, double *out) // 0: it is not a number
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    char text[512];
    GxTemplateValue word;
    if (gx__template_number_text(r, x, 0, text, (int64_t)sizeof text)) return *out = strtod(text, NULL), 1;
    if (gx_error_code(r->err) != GX_OK || !gx_template_strip(r, x, gx_template_none(), GX_T_BOTH, &word)) return 0;
    const int sign = word.n > 0 && (word.u.s[0] == '-' || word.u.s[0] == '+');
    for (int i = 0; i < 3; i++)
        if (word.n - sign == (int64_t)strlen(words[i]) && !strncasecmp(word.u.s + sign, words[i], strlen(words[i]))) {
            *out = i < 2 ? INFINITY : NAN;
            if (word.u.s[0] == '-') *out = -*out;
            return 1;
        }
    return 0;
}

static int gx__template_whole(GxTemplateRun *r, double x, GxTemplateValue *out)
{
    if (fabs(x) >= 9223372036854775807.0)
        return gx_template_lacks(r, "integers of more than 64 bits are not supported");
    *out = gx_template_int((int64_t)x);
    return 1;
}

GX__TEMPLATE_FILTER(int)
{
    const GxTemplateValue base = gx_template_or(slot[1], gx_template_int(10));
    char text[512];
    double f;
    *out = gx_template_or(slot[0], gx_template_int(0));
    if (x.kind == GX_T_UNDEFINED)
        return gx_template_fail(r, "%.100s is undefined, and has no int", x.u.s ? x.u.s : "a value");
    if (x.kind == GX_T_INT || x.kind == GX_T_BOOL) return *out = gx_template_int(x.u.i), 1;
    if (x.kind == GX_T_FLOAT) {
        if (isinf(x.u.f)) return gx_template_fail(r, "int of an infinite float");
        return isnan(x.u.f) || gx__template_whole(r, x.u.f, out);
    }
    if (x.kind != GX_T_STRING) return 1;
    if (base.kind != GX_T_INT || base.u.i != 10)
        return gx_template_lacks(r, "int with a base that is not 10 is not supported");
    if (gx__template_number_text(r, x, 1, text, (int64_t)sizeof text)) {
        errno = 0;
        const long long i = strtoll(text, NULL, 10);
        if (errno) return gx_template_lacks(r, "integers of more than 64 bits are not supported");
        return *out = gx_template_int(i), 1;
    }
    if (gx_error_code(r->err) != GX_OK) return 0;
    if (gx__template_read_float(r, x, &f) && isfinite(f)) return gx__template_whole(r, f, out);
    return gx_error_code(r->err) == GX_OK;
}

GX__TEMPLATE_FILTER(float)
{
    double f;
    *out = gx_template_or(slot[0], gx_template_float(0));
    if (x.kind == GX_T_UNDEFINED)
        return gx_template_fail(r, "%.100s is undefined, and has no float", x.u.s ? x.u.s : "a value");
    if (gx_template_is_number(x)) return *out = gx_template_float(gx_template_number(x)), 1;
    if (x.kind == GX_T_STRING && gx__template_read_float(r, x, &f)) *out = gx_template_float(f);
    return gx_error_code(r->err) == GX_OK;
}

GX__TEMPLATE_FILTER(abs)
{
    (void)slot;
    if (!gx_template_is_number(x)) return gx_template_fail(r, "abs of %s", gx_template_type(x));
    if (x.kind == GX_T_FLOAT) return *out = gx_template_float(fabs(x.u.f)), 1;
    return x.u.i < 0 ? gx_template_negate(r, x, out) : (*out = gx_template_int(x.u.i), 1);
}

GX__TEMPLATE_FILTER(round)
{
    const GxTemplateValue precision = gx_template_or(slot[0], gx_template_int(0));
    const GxTemplateValue method = gx_template_or(slot[1], gx_template_string("common", 6));
    char text[400];
    const int common = method.kind == GX_T_STRING && method.n == 6 && !memcmp(method.u.s, "common", 6);
    const int up = method.kind == GX_T_STRING && method.n == 4 && !memcmp(method.u.s, "ceil", 4);
    if (!common && !up && !(method.kind == GX_T_STRING && method.n == 5 && !memcmp(method.u.s, "floor", 5)))
        return gx_template_fail(r, "round: the method is none of common, ceil, floor");
    if (!gx_template_is_number(x)) return gx_template_fail(r, "round of %s", gx_template_type(x));
    if ((precision.kind != GX_T_INT && precision.kind != GX_T_BOOL) || precision.u.i < 0 || precision.u.i > 22)
        return gx_template_lacks(r, "round to %s that is not of 0 to 22 is not supported", gx_template_type(precision));
    const double f = gx_template_number(x);
    if (common) {
        if (x.kind != GX_T_FLOAT) return *out = gx_template_int(x.u.i), 1;
        if (!isfinite(f)) return *out = x, 1;
        snprintf(text, sizeof text, "%.*f", (int)precision.u.i, f);
        return *out = gx_template_float(strtod(text, NULL)), 1;
    }
    const double scale = pow(10, (double)precision.u.i), scaled = f * scale;
    if (!isfinite(scaled)) return gx_template_fail(r, "round of a number that is not finite");
    *out = gx_template_float((up ? ceil(scaled) : floor(scaled)) / scale);
    if (out->u.f == 0) out->u.f = 0; // Python rounds to an integer, which has no -0
    return 1;
}

// ---- lists ---------------------------------------------------------------------------------------------------------

GX__TEMPLATE_FILTER(default)
{
    (void)r;
    const int takes = x.kind == GX_T_UNDEFINED || (gx_template_truth(slot[1]) && !gx_template_truth(x));
    *out = takes ? gx_template_or(slot[0], gx_template_string("", 0)) : x;
    return 1;
}

GX__TEMPLATE_FILTER(length)
{
    (void)slot;
    if (x.kind == GX_T_STRING) return *out = gx_template_int(gx_template_length(x)), gx_template_work(r, x.n / 16);
    if (x.kind == GX_T_UNDEFINED) return *out = gx_template_int(0), 1;
    if (x.kind == GX_T_DICT) return *out = gx_template_int(x.u.dict->n), 1;
    if (x.kind == GX_T_LOOP) return *out = gx_template_int(((const GxTemplateLoop *)x.u.p)->n), 1;
    *out = gx_template_int(x.n);
    return gx_template_is_sequence(x) || gx_template_fail(r, "%s has no length", gx_template_type(x));
}

GX__TEMPLATE_FILTER(first)
{
    GxTemplateValue *list;
    int64_t n;
    (void)slot;
    *out = gx_template_undefined("the first element of an empty sequence");
    if (x.kind == GX_T_GENERATOR) {
        GxTemplateStream *s = x.u.stream;
        if (s->at < s->n) *out = s->list[s->at++];
        return 1;
    }
    if (!gx_template_iterate(r, x, &list, &n)) return 0;
    if (n) *out = list[0];
    return 1;
}

GX__TEMPLATE_FILTER(last)
{
    GxTemplateValue *list;
    int64_t n;
    (void)slot;
    *out = gx_template_undefined("the last element of an empty sequence");
    if (x.kind == GX_T_GENERATOR) return gx_template_fail(r, "the last of %s", gx_template_type(x));
    if (!gx_template_iterate(r, x, &list, &n)) return 0;
    if (n) *out = list[n - 1];
    return 1;
}

static int gx__template_copied(GxTemplateRun *r, GxTemplateValue x, GxTemplateValue **list, int64_t *n)
{
    GxTemplateValue *from;
    if (!gx_template_iterate(r, x, &from, n) || !gx_template_work(r, *n)) return 0;
    *list = (GxTemplateValue *)gx_template_allocate(r, *n * (int64_t)sizeof *from);
    if (*list && *n) memcpy(*list, from, (size_t)*n * sizeof *from);
    return *list != NULL;
}

GX__TEMPLATE_FILTER(list)
{
    GxTemplateValue *list;
    int64_t n;
    (void)slot;
    if (!gx__template_copied(r, x, &list, &n)) return 0;
    return *out = gx_template_list(GX_T_LIST, list, n), 1;
}

GX__TEMPLATE_FILTER(reverse)
{
    GxTemplateValue *list;
    int64_t n;
    const GxTemplateValue none = gx_template_none();
    (void)slot;
    if (x.kind == GX_T_STRING) return gx_template_slice(r, x, none, none, gx_template_int(-1), out);
    if (!gx__template_copied(r, x, &list, &n)) return 0;
    for (int64_t i = 0; i < n / 2; i++) {
        const GxTemplateValue t = list[i];
        list[i] = list[n - 1 - i], list[n - 1 - i] = t;
    }
    if (x.kind == GX_T_GENERATOR) return *out = gx_template_list(GX_T_LIST, list, n), 1;
    return gx_template_generator(r, list, n, out);
}

GX__TEMPLATE_FILTER(items)
{
    const GxTemplateArgs nothing = GX_ZERO;
    GxTemplateValue view = gx_template_undefined(NULL);
    (void)slot;
    if (x.kind != GX_T_DICT && x.kind != GX_T_UNDEFINED)
        return gx_template_fail(r, "items of %s; expected a dict", gx_template_type(x));
    if (x.kind == GX_T_DICT && !gx_template_call_method(r, gx_template_method(GX_T_DICT, "items"), x, &nothing, &view))
        return 0;
    return gx_template_generator(r, view.u.list, view.kind == GX_T_VIEW ? view.n : 0, out);
}

static int gx__template_ignoring_case(GxTemplateRun *r, GxTemplateValue x, int sensitive, GxTemplateValue *out)
{
    if (x.kind == GX_T_STRING && !sensitive) return gx_template_case(r, x, GX_T_LOWER, out);
    return *out = x, 1;
}

// The keys by which a list is sorted or compared: the values of an attribute, ignoring case.
static int gx__template_keys_of(GxTemplateRun *r, const GxTemplateValue *list, int64_t n, GxTemplateValue attribute,
                                int sensitive, GxTemplateValue **key)
{
    *key = (GxTemplateValue *)gx_template_allocate(r, n * (int64_t)sizeof *list);
    if (!*key) return 0;
    if (attribute.kind == GX_T_STRING && memchr(attribute.u.s, ',', (size_t)attribute.n))
        return gx_template_lacks(r, "several attributes to sort by are not supported");
    for (int64_t i = 0; i < n; i++) {
        if (!gx_template_path(r, list[i], attribute, gx_template_none(), *key + i)) return 0;
        if (!gx__template_ignoring_case(r, (*key)[i], sensitive, *key + i)) return 0;
    }
    return 1;
}

GX__TEMPLATE_FILTER(sort)
{
    GxTemplateValue *list, *key;
    int64_t n;
    if (!gx__template_copied(r, x, &list, &n)) return 0;
    if (!gx__template_keys_of(r, list, n, slot[2], gx_template_truth(slot[1]), &key)) return 0;
    if (!gx_template_sort(r, list, key, n, gx_template_truth(slot[0]), 1)) return 0;
    return *out = gx_template_list(GX_T_LIST, list, n), 1;
}

GX__TEMPLATE_FILTER(dictsort)
{
    const GxTemplateArgs nothing = GX_ZERO;
    const GxTemplateValue by = gx_template_or(slot[1], gx_template_string("key", 3));
    const int by_value = by.kind == GX_T_STRING && by.n == 5 && !memcmp(by.u.s, "value", 5);
    GxTemplateValue view, *key;
    if (!by_value && !(by.kind == GX_T_STRING && by.n == 3 && !memcmp(by.u.s, "key", 3)))
        return gx_template_fail(r, "dictsort sorts by \"key\" or by \"value\"");
    if (x.kind != GX_T_DICT) return gx_template_fail(r, "dictsort of %s; expected a dict", gx_template_type(x));
    if (!gx_template_call_method(r, gx_template_method(GX_T_DICT, "items"), x, &nothing, &view)) return 0;
    key = (GxTemplateValue *)gx_template_allocate(r, view.n * (int64_t)sizeof *key);
    for (int64_t i = 0; key && i < view.n; i++)
        if (!gx__template_ignoring_case(r, view.u.list[i].u.list[by_value], gx_template_truth(slot[0]), key + i))
            return 0;
    if (!key || !gx_template_sort(r, view.u.list, key, view.n, gx_template_truth(slot[2]), 0)) return 0;
    return *out = gx_template_list(GX_T_LIST, view.u.list, view.n), 1;
}

GX__TEMPLATE_FILTER(unique)
{
    GxTemplateValue *list, *key;
    int64_t n, kept = 0;
    if (!gx__template_copied(r, x, &list, &n)) return 0;
    if (!gx__template_keys_of(r, list, n, slot[1], gx_template_truth(slot[0]), &key)) return 0;
    for (int64_t i = 0, k; i < n; i++) {
        int seen = 0;
        if (key[i].kind == GX_T_LIST || key[i].kind == GX_T_DICT)
            return gx_template_fail(r, "unique of %s", gx_template_type(key[i]));
        for (k = 0; k < kept && !seen; k++)
            if (!gx_template_equal(r, key[k], key[i], &seen)) return 0;
        if (!seen) key[kept] = key[i], list[kept++] = list[i];
    }
    return gx_template_generator(r, list, kept, out);
}

GX__TEMPLATE_FILTER(sum)
{
    GxTemplateValue *list, one;
    int64_t n;
    *out = gx_template_or(slot[1], gx_template_int(0));
    if (out->kind == GX_T_STRING) return gx_template_fail(r, "sum of strings");
    if (!gx_template_iterate(r, x, &list, &n)) return 0;
    for (int64_t i = 0; i < n; i++)
        if (!gx_template_path(r, list[i], slot[0], gx_template_none(), &one) ||
            !gx_template_binary(r, GX_T_ADD, *out, one, out))
            return 0;
    return 1;
}

static int gx__template_extreme(GxTemplateRun *r, GxTemplateValue x, const GxTemplateValue *slot, int largest,
                                GxTemplateValue *out)
{
    GxTemplateValue *list, *key;
    int64_t n, best = 0;
    *out = gx_template_undefined("min or max of an empty sequence");
    if (!gx__template_copied(r, x, &list, &n) || !n) return gx_error_code(r->err) == GX_OK;
    if (!gx__template_keys_of(r, list, n, slot[1], gx_template_truth(slot[0]), &key)) return 0;
    for (int64_t i = 1; i < n; i++) {
        int better;
        if (!gx_template_less(r, key[largest ? best : i], key[largest ? i : best], &better)) return 0;
        if (better) best = i;
    }
    return *out = list[best], 1;
}
GX__TEMPLATE_FILTER(max) { return gx__template_extreme(r, x, slot, 1, out); }
GX__TEMPLATE_FILTER(min) { return gx__template_extreme(r, x, slot, 0, out); }

// ---- map, select ---------------------------------------------------------------------------------------------------

static int gx__template_name_of(GxTemplateRun *r, GxTemplateValue v, char *name, int64_t size)
{
    if (v.kind != GX_T_STRING || v.n >= size)
        return gx_template_fail(r, "a filter or test named %s", gx_template_type(v));
    memcpy(name, v.u.s, (size_t)v.n);
    name[v.n] = 0;
    return 1;
}

static GxTemplateArgs gx__template_behind(const GxTemplateArgs *a, int from)
{
    GxTemplateArgs rest = *a;
    rest.v += from, rest.name += from, rest.n -= from;
    return rest;
}

static int gx__template_map(GxTemplateRun *r, GxTemplateValue x, const GxTemplateArgs *a, GxTemplateValue *out)
{
    GxTemplateValue *list, slot[GX_TEMPLATE_SLOTS];
    int64_t n;
    char name[64] = "";
    if (!gx_template_truth(x)) return gx_template_generator(r, NULL, 0, out);
    const int by_name = a->n > 0 && !a->name[0];
    int filter = -1;
    if (by_name) {
        if (!gx__template_name_of(r, a->v[0], name, (int64_t)sizeof name)) return 0;
        if ((filter = gx_template_filter(name)) < 0)
            return gx_template_lacks(r, "the filter \"%s\" is not supported", name);
    } else if (!gx_template_bind(r, "map", "attribute! default", a, slot)) return 0;
    if (!gx__template_copied(r, x, &list, &n)) return 0;
    const GxTemplateArgs rest = gx__template_behind(a, by_name);
    for (int64_t i = 0; i < n; i++)
        if (by_name ? !gx_template_call_filter(r, filter, list[i], &rest, list + i)
                    : !gx_template_path(r, list[i], slot[0], gx_template_or(slot[1], gx_template_none()), list + i))
            return 0;
    return gx_template_generator(r, list, n, out);
}

static int gx__template_choose(GxTemplateRun *r, GxTemplateValue x, const GxTemplateArgs *a, int by_attribute,
                               int rejects, GxTemplateValue *out)
{
    GxTemplateValue *list, one;
    int64_t n, kept = 0;
    int test = -1;
    char name[64] = "";
    if (!gx_template_truth(x)) return gx_template_generator(r, NULL, 0, out);
    if (by_attribute && (!a->n || a->name[0]))
        return gx_template_fail(r, "selectattr and rejectattr take an attribute");
    const int has_test = a->n > by_attribute && !a->name[by_attribute];
    if (!has_test && a->n > by_attribute)
        return gx_template_fail(r, "select and reject take no \"%.60s\"", a->name[by_attribute]);
    if (has_test) {
        if (!gx__template_name_of(r, a->v[by_attribute], name, (int64_t)sizeof name)) return 0;
        if ((test = gx_template_test(name)) < 0) return gx_template_lacks(r, "the test \"%s\" is not supported", name);
    }
    if (!gx__template_copied(r, x, &list, &n)) return 0;
    for (int64_t i = 0; i < n; i++) {
        int good;
        if (!gx_template_path(r, list[i], by_attribute ? a->v[0] : gx_template_none(), gx_template_none(), &one))
            return 0;
        good = gx_template_truth(one);
        if (has_test) {
            const GxTemplateArgs rest = gx__template_behind(a, by_attribute + 1);
            if (!gx_template_call_test(r, test, one, &rest, &good)) return 0;
        }
        if (good != rejects) list[kept++] = list[i];
    }
    return gx_template_generator(r, list, kept, out);
}
static int gx__template_select(GxTemplateRun *r, GxTemplateValue x, const GxTemplateArgs *a, GxTemplateValue *out)
{
    return gx__template_choose(r, x, a, 0, 0, out);
}
static int gx__template_reject(GxTemplateRun *r, GxTemplateValue x, const GxTemplateArgs *a, GxTemplateValue *out)
{
    return gx__template_choose(r, x, a, 0, 1, out);
}
static int gx__template_selectattr(GxTemplateRun *r, GxTemplateValue x, const GxTemplateArgs *a, GxTemplateValue *out)
{
    return gx__template_choose(r, x, a, 1, 0, out);
}
static int gx__template_rejectattr(GxTemplateRun *r, GxTemplateValue x, const GxTemplateArgs *a, GxTemplateValue *out)
{
    return gx__template_choose(r, x, a, 1, 1, out);
}

// safe: it treats a text that is |safe or |escape like any other, as Jinja does without autoescape
static const struct {
    const char *name, *parameters;
    int (*call)(GxTemplateRun *, GxTemplateValue, const GxTemplateValue *, GxTemplateValue *);
    int (*many)(GxTemplateRun *, GxTemplateValue, const GxTemplateArgs *, GxTemplateValue *);
    int safe;
} gx__template_filters[] = {
    {"abs", "", gx__template_filter_abs, NULL, 0},
    {"capitalize", "", gx__template_filter_capitalize, NULL, 0},
    {"count", "", gx__template_filter_length, NULL, 1},
    {"d", "default_value boolean", gx__template_filter_default, NULL, 1},
    {"default", "default_value boolean", gx__template_filter_default, NULL, 1},
    {"dictsort", "case_sensitive by reverse", gx__template_filter_dictsort, NULL, 0},
    {"e", "", gx__template_filter_escape, NULL, 1},
    {"escape", "", gx__template_filter_escape, NULL, 1},
    {"first", "", gx__template_filter_first, NULL, 0},
    {"float", "default", gx__template_filter_float, NULL, 1},
    {"indent", "width first blank", gx__template_filter_indent, NULL, 0},
    {"int", "default base", gx__template_filter_int, NULL, 1},
    {"items", "", gx__template_filter_items, NULL, 1},
    {"join", "d attribute", gx__template_filter_join, NULL, 0},
    {"last", "", gx__template_filter_last, NULL, 0},
    {"length", "", gx__template_filter_length, NULL, 1},
    {"list", "", gx__template_filter_list, NULL, 0},
    {"lower", "", gx__template_filter_lower, NULL, 0},
    {"map", NULL, NULL, gx__template_map, 0},
    {"max", "case_sensitive attribute", gx__template_filter_max, NULL, 0},
    {"min", "case_sensitive attribute", gx__template_filter_min, NULL, 0},
    {"reject", NULL, NULL, gx__template_reject, 0},
    {"rejectattr", NULL, NULL, gx__template_rejectattr, 0},
    {"replace", "old! new! count", gx__template_filter_replace, NULL, 0},
    {"reverse", "", gx__template_filter_reverse, NULL, 0},
    {"round", "precision method", gx__template_filter_round, NULL, 0},
    {"safe", "", gx__template_filter_safe, NULL, 1},
    {"select", NULL, NULL, gx__template_select, 0},
    {"selectattr", NULL, NULL, gx__template_selectattr, 0},
    {"sort", "reverse case_sensitive attribute", gx__template_filter_sort, NULL, 0},
    {"string", "", gx__template_filter_string, NULL, 1},
    {"sum", "attribute start", gx__template_filter_sum, NULL, 0},
    {"title", "", gx__template_filter_title, NULL, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", gx__template_filter_tojson, NULL, 1},
    {"trim", "chars", gx__template_filter_trim, NULL, 0},
    {"unique", "case_sensitive attribute", gx__template_filter_unique, NULL, 0},
    {"upper", "", gx__template_filter_upper, NULL, 0},
};

int gx_template_filter(const char *name)
{
    for (size_t i = 0; i < sizeof gx__template_filters / sizeof *gx__template_filters; i++)
        if (!strcmp(gx__template_filters[i].name, name)) return (int)i;
    return -1;
}

int gx_template_call_filter(GxTemplateRun *r, int filter, GxTemplateValue x, const GxTemplateArgs *a,
                            GxTemplateValue *out)
{
    GxTemplateValue slot[GX_TEMPLATE_SLOTS];
    const char *name = gx__template_filters[filter].name;
    if (!gx_template_work(r, 1)) return 0;
    if (x.kind == GX_T_STRING && x.flag && !gx__template_filters[filter].safe)
        return gx_template_lacks(r, "the filter \"%s\" of a text that is |safe or |escape is not supported", name);
    if (gx__template_filters[filter].many) return gx__template_filters[filter].many(r, x, a, out);
    return gx_template_bind(r, name, gx__template_filters[filter].parameters, a, slot) &&
           gx__template_filters[filter].call(r, x, slot, out);
}

// ---- tests ---------------------------------------------------------------------------------------------------------

#define GX__TEMPLATE_TEST(name)                                                                                        \
    static int gx__template_test_##name(GxTemplateRun *r, GxTemplateValue x, GxTemplateValue y, int *out)
#define GX__TEMPLATE_KIND_TEST(name, condition)                                                                        \
    GX__TEMPLATE_TEST(name) { return (void)r, (void)y, *out = (condition), 1; }

GX__TEMPLATE_KIND_TEST(defined, x.kind != GX_T_UNDEFINED)
GX__TEMPLATE_KIND_TEST(undefined, x.kind == GX_T_UNDEFINED)
GX__TEMPLATE_KIND_TEST(none, x.kind == GX_T_NONE)
GX__TEMPLATE_KIND_TEST(boolean, x.kind == GX_T_BOOL)
// not `true` and `false`, which are macros once <stdbool.h> is included, as by utf8proc.h
GX__TEMPLATE_KIND_TEST(is_true, x.kind == GX_T_BOOL && x.u.i)
GX__TEMPLATE_KIND_TEST(is_false, x.kind == GX_T_BOOL && !x.u.i)
GX__TEMPLATE_KIND_TEST(integer, x.kind == GX_T_INT)
GX__TEMPLATE_KIND_TEST(float, x.kind == GX_T_FLOAT)
GX__TEMPLATE_KIND_TEST(number, gx_template_is_number(x))
GX__TEMPLATE_KIND_TEST(string, x.kind == GX_T_STRING)
GX__TEMPLATE_KIND_TEST(mapping, x.kind == GX_T_DICT)
// Jinja's undefined value has a length and elements and can be called; using them fails only then
GX__TEMPLATE_KIND_TEST(sequence, x.kind == GX_T_UNDEFINED || x.kind == GX_T_STRING || x.kind == GX_T_DICT ||
                                     (gx_template_is_sequence(x) && x.kind != GX_T_VIEW))
GX__TEMPLATE_KIND_TEST(iterable, x.kind == GX_T_UNDEFINED || (x.kind >= GX_T_STRING && x.kind <= GX_T_DICT) ||
                                     x.kind == GX_T_LOOP)
GX__TEMPLATE_KIND_TEST(callable, x.kind == GX_T_UNDEFINED || x.kind >= GX_T_LOOP)
GX__TEMPLATE_KIND_TEST(escaped, x.kind == GX_T_STRING && x.flag)
GX__TEMPLATE_TEST(eq) { return gx_template_equal(r, x, y, out); }
GX__TEMPLATE_TEST(ne)
{
    if (!gx_template_equal(r, x, y, out)) return 0;
    return *out = !*out, 1;
}
GX__TEMPLATE_TEST(lt) { return gx_template_less(r, x, y, out); }
GX__TEMPLATE_TEST(gt) { return gx_template_less(r, y, x, out); }

GX__TEMPLATE_TEST(le) { return gx_template_at_most(r, x, y, out); }
GX__TEMPLATE_TEST(ge) { return gx_template_at_most(r, y, x, out); }
GX__TEMPLATE_TEST(in) { return gx_template_contains(r, x, y, out); }

GX__TEMPLATE_TEST(sameas)
{
    (void)r;
    *out = 0;
    if (x.kind != y.kind) return 1;
    if (x.kind == GX_T_NONE) return *out = 1, 1;
    if (x.kind == GX_T_BOOL) return *out = x.u.i == y.u.i, 1;
    if (x.kind <= GX_T_STRING || x.kind == GX_T_TUPLE)
        return gx_template_lacks(r,
                                 "the test sameas of %s is not supported; it takes true, false, none, lists and dicts",
                                 gx_template_type(x));
    return *out = x.u.p == y.u.p && x.n == y.n, 1;
}

GX__TEMPLATE_TEST(divisibleby)
{
    GxTemplateValue rest;
    if (!gx_template_binary(r, GX_T_MOD, x, y, &rest)) return 0;
    return *out = gx_template_number(rest) == 0, 1;
}
GX__TEMPLATE_TEST(even) { return (void)y, gx__template_test_divisibleby(r, x, gx_template_int(2), out); }
GX__TEMPLATE_TEST(odd)
{
    GxTemplateValue rest;
    (void)y;
    if (!gx_template_binary(r, GX_T_MOD, x, gx_template_int(2), &rest)) return 0;
    return *out = gx_template_number(rest) == 1, 1;
}

static int gx__template_is_case(GxTemplateRun *r, GxTemplateValue x, int upper, int *out)
{
    int any = 0, other = 0;
    if (!gx_template_text_of(r, x, &x) || !gx_template_work(r, x.n)) return 0;
    for (int64_t i = 0; i < x.n; i++) {
        const unsigned char c = (unsigned char)x.u.s[i];
        if (c >= 0x80) return gx_template_lacks(r, "the tests upper and lower are supported for ASCII only");
        const int is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
        any |= upper ? is_upper : is_lower;
        other |= upper ? is_lower : is_upper;
    }
    return *out = any && !other, 1;
}
GX__TEMPLATE_TEST(lower) { return (void)y, gx__template_is_case(r, x, 0, out); }
GX__TEMPLATE_TEST(upper) { return (void)y, gx__template_is_case(r, x, 1, out); }

static const struct {
    const char *name;
    int takes; // one more
    int (*call)(GxTemplateRun *, GxTemplateValue, GxTemplateValue, int *);
} gx__template_tests[] = {
    {"!=", 1, gx__template_test_ne},
    {"<", 1, gx__template_test_lt},
    {"<=", 1, gx__template_test_le},
    {"==", 1, gx__template_test_eq},
    {">", 1, gx__template_test_gt},
    {">=", 1, gx__template_test_ge},
    {"boolean", 0, gx__template_test_boolean},
    {"callable", 0, gx__template_test_callable},
    {"defined", 0, gx__template_test_defined},
    {"divisibleby", 1, gx__template_test_divisibleby},
    {"eq", 1, gx__template_test_eq},
    {"equalto", 1, gx__template_test_eq},
    {"escaped", 0, gx__template_test_escaped},
    {"even", 0, gx__template_test_even},
    {"false", 0, gx__template_test_is_false},
    {"float", 0, gx__template_test_float},
    {"ge", 1, gx__template_test_ge},
    {"greaterthan", 1, gx__template_test_gt},
    {"gt", 1, gx__template_test_gt},
    {"in", 1, gx__template_test_in},
    {"integer", 0, gx__template_test_integer},
    {"iterable", 0, gx__template_test_iterable},
    {"le", 1, gx__template_test_le},
    {"lessthan", 1, gx__template_test_lt},
    {"lower", 0, gx__template_test_lower},
    {"lt", 1, gx__template_test_lt},
    {"mapping", 0, gx__template_test_mapping},
    {"ne", 1, gx__template_test_ne},
    {"none", 0, gx__template_test_none},
    {"number", 0, gx__template_test_number},
    {"odd", 0, gx__template_test_odd},
    {"sameas", 1, gx__template_test_sameas},
    {"sequence", 0, gx__template_test_sequence},
    {"string", 0, gx__template_test_string},
    {"true", 0, gx__template_test_is_true},
    {"undefined", 0, gx__template_test_undefined},
    {"upper", 0, gx__template_test_upper},
};

int gx_template_test(const char *name)
{
    for (size_t i = 0; i < sizeof gx__template_tests / sizeof *gx__template_tests; i++)
        if (!strcmp(gx__template_tests[i].name, name)) return (int)i;
    return -1;
}

int gx_template_call_test(GxTemplateRun *r, int test, GxTemplateValue x, const GxTemplateArgs *a, int *out)
{
    const int takes = gx__template_tests[test].takes;
    *out = 0;
    if (!gx_template_work(r, 1)) return 0;
    if (a->n != takes || (takes && a->name[0]))
        return gx_template_fail(r, "the test \"%s\" takes %s", gx__template_tests[test].name,
                                takes ? "one argument" : "no argument");
    return gx__template_tests[test].call(r, x, takes ? a->v[0] : gx_template_none(), out);
}
#endif
