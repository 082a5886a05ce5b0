// template_render.h: walks the tree of a chat template and writes its text.
//
// Names are resolved as in Jinja2: the body of a loop has a scope for each iteration; a macro's call and the bodies of
// {% set %} … {% endset %} and {% generation %} have one; if has none. A macro sees the names around its definition.
// A name that is not set anywhere is a variable of the rendering, otherwise a function.
#ifndef GX_TEMPLATE_RENDER_H
#define GX_TEMPLATE_RENDER_H
#include "template_parse.h"
GX_BEGIN

enum { GX_TEMPLATE_OUTPUT = 64 << 20 }; // bytes of the text, at most

typedef struct {
    int64_t begin, end;
} GxTemplateSpan; // bytes of the rendered text

typedef struct GxTemplateBinding {
    struct GxTemplateBinding *next;
    GxTemplateValue value;
    int symbol;
} GxTemplateBinding;
typedef struct GxTemplateScope { // NULL: the template's own
    struct GxTemplateScope *parent;
    GxTemplateBinding *first;
} GxTemplateScope;

typedef struct {
    GxTemplateRun run;
    const GxTemplateTree *tree;
    const GxJson *variables;
    GxTemplateValue *global; // by symbols
    char *known;             // 1: has been looked up or set
    GxTemplateBinding *free;
    GxTemplateValue block; // of {% set %} … {% endset %}: its text, for its filters
    GxTemplateBuilder text;
    GxTemplateSpan *span; // of {% generation %}
    int64_t spans, most_spans;
} GxTemplateRender;

// Writes the text to r->text and spans to r->span. run, tree and variables must be set.
int gx_template_write(GxTemplateRender *r);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_RENDER_IMPLEMENTED)
#define GX_TEMPLATE_RENDER_IMPLEMENTED
#include <string.h>
#include <time.h>

enum { GX_T_RANGE_OF = 0, GX_T_NEW_NAMESPACE, GX_T_DICT_OF, GX_T_RAISE, GX_T_STRFTIME, GX_T_FUNCTIONS };
static const char *const gx__template_functions[GX_T_FUNCTIONS] = {"range", "namespace", "dict", "raise_exception",
                                                                   "strftime_now"};

typedef struct { // what a macro's value points to
    const GxTemplateNode *node;
    GxTemplateScope *scope;
} GxTemplateMacro;

typedef enum { GX_T_DONE = 0, GX_T_FAILED, GX_T_BREAKS, GX_T_CONTINUES } GxTemplateOutcome;

static int gx__template_eval(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                             GxTemplateValue *out);
static GxTemplateOutcome gx__template_run(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                          GxTemplateBuilder *out);

// ---- names ---------------------------------------------------------------------------------------------------------

static int gx__template_global(GxTemplateRender *r, int symbol, GxTemplateValue *out)
{
    const char *name = r->tree->symbol[symbol].name;
    if (!r->known[symbol]) {
        const GxJson *json = gx_json_get(r->variables, name);
        GxTemplateValue v = gx_template_undefined(name);
        if (json) {
            if (!gx_template_from_json(&r->run, json, &v)) return 0;
        } else
            for (int i = 0; i < GX_T_FUNCTIONS; i++)
                if (!strcmp(name, gx__template_functions[i])) v.kind = GX_T_FUNCTION, v.flag = i;
        r->global[symbol] = v;
        r->known[symbol] = 1;
    }
    return *out = r->global[symbol], 1;
}

static int gx__template_look(GxTemplateRender *r, int symbol, GxTemplateScope *scope, GxTemplateValue *out)
{
    int64_t steps = 0;
    for (; scope; scope = scope->parent)
        for (GxTemplateBinding *b = scope->first; b; b = b->next, steps++)
            if (b->symbol == symbol) return *out = b->value, gx_template_work(&r->run, steps / 8);
    return gx_template_work(&r->run, steps / 8) && gx__template_global(r, symbol, out);
}

static int gx__template_bind_name(GxTemplateRender *r, int symbol, GxTemplateScope *scope, GxTemplateValue value)
{
    if (!scope) return r->global[symbol] = value, r->known[symbol] = 1;
    int64_t steps = 0;
    for (GxTemplateBinding *b = scope->first; b; b = b->next, steps++)
        if (b->symbol == symbol) return b->value = value, gx_template_work(&r->run, steps / 8);
    GxTemplateBinding *b = r->free;
    if (b) r->free = b->next;
    else if (!(b = (GxTemplateBinding *)gx_template_allocate(&r->run, (int64_t)sizeof *b))) return 0;
    b->symbol = symbol, b->value = value, b->next = scope->first;
    scope->first = b;
    return gx_template_work(&r->run, steps / 8);
}

// Enters a body's scope: names that it sets before using them are undefined up to there.
static int gx__template_begin(GxTemplateRender *r, const GxTemplateNode *body, GxTemplateScope *scope)
{
    for (int i = 0; i < body->n_hidden; i++)
        if (!gx__template_bind_name(r, body->hidden[i], scope,
                                    gx_template_undefined(r->tree->symbol[body->hidden[i]].name)))
            return 0;
    return 1;
}

static GxTemplateScope *gx__template_scope(GxTemplateRender *r, GxTemplateScope *parent)
{
    GxTemplateScope *s = (GxTemplateScope *)gx_template_allocate(&r->run, (int64_t)sizeof *s);
    if (s) s->parent = parent;
    return s;
}

static void gx__template_empty_scope(GxTemplateRender *r, GxTemplateScope *s)
{
    while (s->first) {
        GxTemplateBinding *b = s->first;
        s->first = b->next;
        b->next = r->free, r->free = b;
    }
}

static int gx__template_assign(GxTemplateRender *r, const GxTemplateNode *target, GxTemplateScope *scope,
                               GxTemplateValue value)
{
    GxTemplateValue *list, space;
    int64_t n;
    if (target->kind == GX_T_TO_NAME) return gx__template_bind_name(r, target->symbol, scope, value);
    if (target->kind == GX_T_TO_ATTRIBUTE) {
        if (!gx__template_look(r, target->symbol, scope, &space)) return 0;
        if (space.kind != GX_T_NAMESPACE)
            return gx_template_fail(&r->run, "\"%.60s.%.60s\" is set, but %s is not a namespace",
                                    r->tree->symbol[target->symbol].name, target->name, gx_template_type(space));
        if (target->name[0] == '_') return gx_template_fail(&r->run, "a namespace takes no name that begins with _");
        return gx_template_dict_set(&r->run, space.u.dict,
                                    gx_template_string(target->name, (int64_t)strlen(target->name)), value);
    }
    if (!gx_template_iterate(&r->run, value, &list, &n)) return 0;
    if (n != target->n) return gx_template_fail(&r->run, "%d names are set to %ld values", target->n, (long)n);
    for (int i = 0; i < target->n; i++)
        if (!gx__template_assign(r, target->list[i], scope, list[i])) return 0;
    return 1;
}

// ---- calls ---------------------------------------------------------------------------------------------------------

static int gx__template_call_range(GxTemplateRender *r, const GxTemplateArgs *a, GxTemplateValue *out)
{
    int64_t at[3] = {0, 0, 1};
    for (int i = 0; i < a->n; i++) {
        if (a->name[i] || i > 2) return gx_template_fail(&r->run, "range takes one to three integers");
        if (a->v[i].kind != GX_T_INT && a->v[i].kind != GX_T_BOOL)
            return gx_template_fail(&r->run, "range of %s; expected an integer", gx_template_type(a->v[i]));
        at[i] = a->v[i].u.i;
    }
    if (!a->n || !at[2]) return gx_template_fail(&r->run, a->n ? "range with step 0" : "range needs an argument");
    if (a->n == 1) at[1] = at[0], at[0] = 0;
    const long double span = at[2] > 0 ? (long double)at[1] - at[0] : (long double)at[0] - at[1];
    const long double step = at[2] > 0 ? (long double)at[2] : -(long double)at[2];
    if (span / step > (long double)GX_TEMPLATE_RANGE)
        return gx_template_fail(&r->run, "range of more than %d", GX_TEMPLATE_RANGE);
    int64_t n = 0;
    GxTemplateValue *list = (GxTemplateValue *)gx_template_allocate(
        &r->run, span > 0 ? ((int64_t)(span / step) + 2) * (int64_t)sizeof *list : 1);
    if (!list) return 0;
    for (int64_t i = at[0]; span > 0 && (at[2] > 0 ? i < at[1] : i > at[1]);) {
        list[n++] = gx_template_int(i);
        if (__builtin_add_overflow(i, at[2], &i)) break;
    }
    *out = gx_template_list(GX_T_RANGE, list, n);
    return gx_template_work(&r->run, n);
}

// dict(…) and namespace(…), from a dict or pairs and from named arguments.
static int gx__template_call_dict(GxTemplateRender *r, const GxTemplateArgs *a, GxTemplateKind kind,
                                  GxTemplateValue *out)
{
    if (!gx_template_new_dict(&r->run, kind, out)) return 0;
    for (int i = 0; i < a->n; i++) {
        GxTemplateValue *list, *pair;
        int64_t n, m;
        if (a->name[i]) {
            if (!gx_template_dict_set(&r->run, out->u.dict, gx_template_string(a->name[i], (int64_t)strlen(a->name[i])),
                                      a->v[i]))
                return 0;
            continue;
        }
        if (i) return gx_template_fail(&r->run, "dict and namespace take at most one argument without a name");
        if (a->v[i].kind == GX_T_NAMESPACE || a->v[i].kind == GX_T_VIEW)
            return gx_template_lacks(&r->run, "dict of %s is not supported", gx_template_type(a->v[i]));
        const GxTemplateDict *from = a->v[i].kind == GX_T_DICT ? a->v[i].u.dict : NULL;
        if (!gx_template_iterate(&r->run, a->v[i], &list, &n)) return 0;
        for (int64_t k = 0; k < n; k++) {
            if (from) pair = NULL;
            else if (!gx_template_iterate(&r->run, list[k], &pair, &m)) return 0;
            else if (m != 2) return gx_template_fail(&r->run, "dict: an element has %ld values, not two", (long)m);
            if (!gx_template_dict_set(&r->run, out->u.dict, from ? from->key[k] : pair[0],
                                      from ? from->value[k] : pair[1]))
                return 0;
        }
    }
    for (int64_t i = 0; kind == GX_T_NAMESPACE && i < out->u.dict->n; i++)
        if (out->u.dict->key[i].kind != GX_T_STRING || (out->u.dict->key[i].n && out->u.dict->key[i].u.s[0] == '_'))
            return gx_template_fail(&r->run, "a namespace takes only names, and none that begins with _");
    return 1;
}

static int gx__template_call_raise(GxTemplateRender *r, const GxTemplateArgs *a)
{
    GxTemplateValue text;
    if (a->n != 1 || (a->name[0] && strcmp(a->name[0], "message")))
        return gx_template_fail(&r->run, "raise_exception takes one text");
    if (!gx_template_text_of(&r->run, a->v[0], &text)) return 0;
    return gx_template_fail(&r->run, "%.*s", (int)gx_min(text.n, 400), text.u.s);
}

static int gx__template_call_strftime(GxTemplateRender *r, const GxTemplateArgs *a, GxTemplateValue *out)
{
    static const char known[] = "aAwdbBmyYHIpMSjUWcxX%GuVzZ-"; // those that Python supports on every system
    const time_t now = (time_t)r->run.now;
    char format[256], text[1024];
    struct tm day;
    if (a->n != 1 || (a->name[0] && strcmp(a->name[0], "format")) || a->v[0].kind != GX_T_STRING)
        return gx_template_fail(&r->run, "strftime_now takes one text, a format");
    if (a->v[0].n >= (int64_t)sizeof format || memchr(a->v[0].u.s, 0, (size_t)a->v[0].n))
        return gx_template_lacks(&r->run, "strftime_now of a format of more than %d bytes is not supported",
                                 (int)sizeof format - 1);
    memcpy(format, a->v[0].u.s, (size_t)a->v[0].n);
    format[a->v[0].n] = 0;
    for (const char *p = format; (p = strchr(p, '%')); p += 2) {
        p += p[1] == '-'; // %-d: without a leading zero
        if (!p[1] || !strchr(known, p[1]) || (p[1] == '-') || strchr("zZ", p[1]))
            return gx_template_lacks(&r->run, "strftime_now: %%%c is not supported", p[1] ? p[1] : '%');
    }
    if (!localtime_r(&now, &day)) return gx_template_fail(&r->run, "strftime_now: the time has no date");
    const size_t n = format[0] ? strftime(text, sizeof text, format, &day) : 0;
    char *copy = (char *)gx_template_allocate(&r->run, (int64_t)n + 1);
    if (!copy) return 0;
    memcpy(copy, text, n);
    return *out = gx_template_string(copy, (int64_t)n), 1;
}

static int gx__template_call_macro(GxTemplateRender *r, const GxTemplateMacro *m, const GxTemplateArgs *a,
                                   GxTemplateValue *out)
{
    const GxTemplateNode *x = m->node;
    const int line = r->run.line;
    GxTemplateScope *scope = gx__template_scope(r, m->scope);
    GxTemplateBuilder b = GX_ZERO;
    int given = 0;
    if (!scope) return 0;
    for (int i = 0; i < a->n; i++, given++)
        if (a->name[i]) break;
    if (given > x->n) return gx_template_fail(&r->run, "the macro \"%.60s\" takes at most %d arguments", x->name, x->n);
    for (int i = given, k; i < a->n; i++) {
        for (k = given; k < x->n && strcmp(x->names[k], a->name[i]); k++) {}
        if (k == x->n) return gx_template_fail(&r->run, "the macro \"%.60s\" takes no \"%.60s\"", x->name, a->name[i]);
    }
    for (int k = 0; k < x->n; k++) {
        GxTemplateValue v = gx_template_undefined(x->names[k]);
        int i = k < given ? k : given;
        while (k >= given && i < a->n && strcmp(x->names[k], a->name[i])) i++;
        if (i < a->n && (k < given || a->name[i])) v = a->v[i];
        else if (x->list[k] && !gx__template_eval(r, x->list[k], scope, &v)) return 0;
        if (!gx__template_bind_name(r, x->signs[k], scope, v)) return 0;
    }
    b.most = GX_TEMPLATE_OUTPUT;
    if (!gx__template_begin(r, x->b, scope)) return 0;
    if (gx__template_run(r, x->b, scope, &b) != GX_T_DONE) return 0;
    *out = gx_template_built(&b);
    r->run.line = line;
    return 1;
}

static int gx__template_call_value(GxTemplateRender *r, GxTemplateValue f, const GxTemplateArgs *a,
                                   GxTemplateValue *out)
{
    *out = gx_template_undefined(NULL);
    if (f.kind == GX_T_MACRO) return gx__template_call_macro(r, (const GxTemplateMacro *)f.u.p, a, out);
    if (f.kind == GX_T_METHOD && f.flag == GX_T_CYCLE) {
        if (!a->n || a->name[0]) return gx_template_fail(&r->run, "loop.cycle takes values");
        return *out = a->v[((const GxTemplateLoop *)f.u.p)->at % a->n], 1;
    }
    if (f.kind == GX_T_METHOD) return gx_template_call_method(&r->run, f.flag, *(const GxTemplateValue *)f.u.p, a, out);
    if (f.kind == GX_T_UNDEFINED)
        return gx_template_fail(&r->run,
                                "\"%.60s\" is called, but is undefined, or a method that templates may not call",
                                f.u.s ? f.u.s : "a value");
    if (f.kind != GX_T_FUNCTION) return gx_template_fail(&r->run, "%s cannot be called", gx_template_type(f));
    switch (f.flag) {
    case GX_T_RANGE_OF: return gx__template_call_range(r, a, out);
    case GX_T_NEW_NAMESPACE: return gx__template_call_dict(r, a, GX_T_NAMESPACE, out);
    case GX_T_DICT_OF: return gx__template_call_dict(r, a, GX_T_DICT, out);
    case GX_T_RAISE: return gx__template_call_raise(r, a);
    default: return gx__template_call_strftime(r, a, out);
    }
}

// ---- expressions ---------------------------------------------------------------------------------------------------

static int gx__template_eval_list(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                  GxTemplateValue **list)
{
    *list = (GxTemplateValue *)gx_template_allocate(&r->run, x->n * (int64_t)sizeof **list);
    for (int i = 0; *list && i < x->n; i++)
        if (!gx__template_eval(r, x->list[i], scope, *list + i)) return 0;
    return *list != NULL;
}

static int gx__template_eval_call(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                  GxTemplateValue *out)
{
    GxTemplateValue f;
    GxTemplateArgs a;
    int yes;
    a.name = x->names, a.n = x->n;
    if (!gx__template_eval(r, x->a, scope, &f)) return 0;
    if (!gx__template_eval_list(r, x, scope, &a.v)) return 0;
    r->run.line = x->line;
    if (x->kind == GX_T_CALL) return gx__template_call_value(r, f, &a, out);
    if (x->kind == GX_T_FILTER) return gx_template_call_filter(&r->run, x->row, f, &a, out);
    if (!gx_template_call_test(&r->run, x->row, f, &a, &yes)) return 0;
    return *out = gx_template_bool(yes), 1;
}

static int gx__template_eval_dict(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                  GxTemplateValue *out)
{
    GxTemplateValue *list;
    if (!gx_template_new_dict(&r->run, GX_T_DICT, out) || !gx__template_eval_list(r, x, scope, &list)) return 0;
    for (int i = 0; i < x->n; i += 2)
        if (!gx_template_dict_set(&r->run, out->u.dict, list[i], list[i + 1])) return 0;
    return 1;
}

static int gx__template_compare(GxTemplateRender *r, int comparison, GxTemplateValue a, GxTemplateValue b, int *yes)
{
    switch (comparison) {
    case GX_T_EQUAL: return gx_template_equal(&r->run, a, b, yes);
    case GX_T_NOT_EQUAL: return gx_template_equal(&r->run, a, b, yes) && (*yes = !*yes, 1);
    case GX_T_IN: return gx_template_contains(&r->run, a, b, yes);
    case GX_T_NOT_IN: return gx_template_contains(&r->run, a, b, yes) && (*yes = !*yes, 1);
    case GX_T_LESS: return gx_template_less(&r->run, a, b, yes);
    case GX_T_GREATER: return gx_template_less(&r->run, b, a, yes);
    case GX_T_LESS_EQUAL: return gx_template_at_most(&r->run, a, b, yes);
    default: return gx_template_at_most(&r->run, b, a, yes);
    }
}

static int gx__template_eval_comparison(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                        GxTemplateValue *out)
{
    GxTemplateValue a, b;
    int yes = 1;
    if (!gx__template_eval(r, x->a, scope, &a)) return 0;
    for (int i = 0; i < x->n && yes; i++, a = b) {
        if (!gx__template_eval(r, x->list[i], scope, &b)) return 0;
        r->run.line = x->line;
        if (!gx__template_compare(r, x->signs[i], a, b, &yes)) return 0;
    }
    return *out = gx_template_bool(yes), 1;
}

static int gx__template_eval_slice(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                   GxTemplateValue *out)
{
    GxTemplateValue a, bound[3];
    if (!gx__template_eval(r, x->a, scope, &a)) return 0;
    for (int i = 0; i < 3; i++) {
        bound[i] = gx_template_none();
        if (x->list[i] && !gx__template_eval(r, x->list[i], scope, &bound[i])) return 0;
    }
    r->run.line = x->line;
    return gx_template_slice(&r->run, a, bound[0], bound[1], bound[2], out);
}

static int gx__template_eval_concat(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                    GxTemplateValue *out)
{
    GxTemplateBuilder b = GX_ZERO;
    GxTemplateValue *list;
    if (!gx__template_eval_list(r, x, scope, &list)) return 0;
    for (int i = 0; i < x->n; i++)
        if (!gx_template_put_text(&r->run, &b, list[i])) return 0;
    *out = gx_template_built(&b);
    return 1;
}

// Evaluates a node whose operands, one or two, are evaluated first.
static int gx__template_eval_simple(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                    GxTemplateValue *out)
{
    GxTemplateValue a, b;
    if (!gx__template_eval(r, x->a, scope, &a)) return 0;
    const int truth = gx_template_truth(a);
    if (x->kind == GX_T_NOT) return *out = gx_template_bool(!truth), 1;
    if (x->kind == GX_T_OR || x->kind == GX_T_AND) {
        if (truth == (x->kind == GX_T_OR)) return *out = a, 1;
        return gx__template_eval(r, x->b, scope, out);
    }
    r->run.line = x->line;
    if (x->kind == GX_T_ATTRIBUTE) return gx_template_attribute(&r->run, a, x->name, out);
    if (x->kind == GX_T_NEGATE) return gx_template_negate(&r->run, a, out);
    if (x->kind == GX_T_PLUS) {
        if (!gx_template_is_number(a)) return gx_template_fail(&r->run, "+ is used on %s", gx_template_type(a));
        return *out = a.kind == GX_T_BOOL ? gx_template_int(a.u.i) : a, 1;
    }
    if (!gx__template_eval(r, x->b, scope, &b)) return 0;
    r->run.line = x->line;
    if (x->kind == GX_T_ITEM) return gx_template_item(&r->run, a, b, out);
    return gx_template_binary(&r->run, (GxTemplateOperator)x->row, a, b, out);
}

static int gx__template_eval_kind(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                  GxTemplateValue *out)
{
    switch (x->kind) {
    case GX_T_CONST: return *out = x->value, 1;
    case GX_T_LOAD: return gx__template_look(r, x->symbol, scope, out);
    case GX_T_NEW_LIST:
    case GX_T_NEW_TUPLE: {
        GxTemplateValue *list;
        if (!gx__template_eval_list(r, x, scope, &list)) return 0;
        return *out = gx_template_list(x->kind == GX_T_NEW_LIST ? GX_T_LIST : GX_T_TUPLE, list, x->n), 1;
    }
    case GX_T_NEW_DICT: return gx__template_eval_dict(r, x, scope, out);
    case GX_T_IF_ELSE: {
        GxTemplateValue yes;
        if (!gx__template_eval(r, x->a, scope, &yes)) return 0;
        if (gx_template_truth(yes)) return gx__template_eval(r, x->b, scope, out);
        if (x->c) return gx__template_eval(r, x->c, scope, out);
        return *out = gx_template_undefined("an if without else"), 1;
    }
    case GX_T_COMPARE: return gx__template_eval_comparison(r, x, scope, out);
    case GX_T_CONCAT: return gx__template_eval_concat(r, x, scope, out);
    case GX_T_SLICE: return gx__template_eval_slice(r, x, scope, out);
    case GX_T_CALL:
    case GX_T_FILTER:
    case GX_T_TEST: return gx__template_eval_call(r, x, scope, out);
    case GX_T_BLOCK_TEXT: return *out = r->block, 1;
    default: return gx__template_eval_simple(r, x, scope, out);
    }
}

static int gx__template_enter(GxTemplateRender *r, const GxTemplateNode *x)
{
    r->run.line = x->line;
    if (++r->run.depth > GX_TEMPLATE_DEPTH)
        return gx_template_fail(&r->run, "evaluations are nested deeper than %d: a macro that calls itself?",
                                GX_TEMPLATE_DEPTH);
    return gx_template_work(&r->run, 1);
}

static int gx__template_eval(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope, GxTemplateValue *out)
{
    const int ok = gx__template_enter(r, x) && gx__template_eval_kind(r, x, scope, out);
    r->run.depth--;
    return ok;
}

// ---- statements ----------------------------------------------------------------------------------------------------

static GxTemplateOutcome gx__template_run_body(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                               GxTemplateBuilder *out)
{
    GxTemplateOutcome outcome = GX_T_DONE;
    for (int i = 0; i < x->n && outcome == GX_T_DONE; i++) outcome = gx__template_run(r, x->list[i], scope, out);
    return outcome;
}

static GxTemplateOutcome gx__template_run_if(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                             GxTemplateBuilder *out)
{
    for (; x && x->kind == GX_T_IF; x = x->c) {
        GxTemplateValue yes;
        r->run.line = x->line;
        if (!gx__template_eval(r, x->a, scope, &yes)) return GX_T_FAILED;
        if (gx_template_truth(yes)) return gx__template_run(r, x->b, scope, out);
    }
    return x ? gx__template_run(r, x, scope, out) : GX_T_DONE;
}

// The elements that the loop iterates over: those that meet its condition.
static int gx__template_loop_list(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                  GxTemplateLoop *l)
{
    GxTemplateValue in, yes, *all;
    int64_t n;
    if (!gx__template_eval(r, x->b, scope, &in)) return 0;
    r->run.line = x->line;
    if (!gx_template_iterate(&r->run, in, &all, &n)) return 0;
    l->list = all, l->n = n;
    if (!x->c) return 1;
    GxTemplateScope *inner = gx__template_scope(r, scope);
    l->list = (GxTemplateValue *)gx_template_allocate(&r->run, n * (int64_t)sizeof *all), l->n = 0;
    if (!inner || !l->list) return 0;
    for (int64_t i = 0; i < n; i++) {
        r->run.line = x->line;
        if (!gx__template_assign(r, x->a, inner, all[i]) || !gx__template_eval(r, x->c, inner, &yes)) return 0;
        if (gx_template_truth(yes)) l->list[l->n++] = all[i];
    }
    gx__template_empty_scope(r, inner);
    return 1;
}

static GxTemplateOutcome gx__template_run_for(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                              GxTemplateBuilder *out)
{
    GxTemplateLoop *l = (GxTemplateLoop *)gx_template_allocate(&r->run, (int64_t)sizeof *l);
    GxTemplateScope *inner = NULL;
    GxTemplateValue loop = gx_template_none();
    GxTemplateOutcome outcome = GX_T_DONE;
    int completed = 0;
    if (!l || !gx__template_loop_list(r, x, scope, l)) return GX_T_FAILED;
    loop.kind = GX_T_LOOP, loop.u.p = l;
    for (; l->at < l->n; l->at++) {
        if (!inner && !(inner = gx__template_scope(r, scope))) return GX_T_FAILED;
        r->run.line = x->line;
        if (!gx_template_work(&r->run, 1) || !gx__template_bind_name(r, x->symbol, inner, loop) ||
            !gx__template_begin(r, x->list[0], inner) || !gx__template_assign(r, x->a, inner, l->list[l->at]))
            return GX_T_FAILED;
        outcome = gx__template_run(r, x->list[0], inner, out);
        if (outcome == GX_T_FAILED || outcome == GX_T_BREAKS) break;
        completed |= outcome == GX_T_DONE;
        gx__template_empty_scope(
            // also the scope of a macro that is defined in the loop, so the macro sees the iteration in which it is
            // called
            r, inner);
    }
    if (outcome == GX_T_FAILED) return outcome;
    if (completed || !x->list[1]) return GX_T_DONE;
    // as in Jinja: else runs if no iteration was completed, including those that ended by break or continue
    inner = gx__template_scope(r, scope);
    return inner && gx__template_begin(r, x->list[1], inner) ? gx__template_run(r, x->list[1], inner, out)
                                                             : GX_T_FAILED;
}

static int gx__template_run_set(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope)
{
    GxTemplateValue value;
    GxTemplateBuilder b = GX_ZERO;
    if (x->kind == GX_T_SET) {
        if (!gx__template_eval(r, x->b, scope, &value)) return 0;
    } else {
        GxTemplateScope *inner = gx__template_scope(r, scope);
        b.most = GX_TEMPLATE_OUTPUT;
        if (!inner || !gx__template_begin(r, x->b, inner)) return 0;
        if (gx__template_run(r, x->b, inner, &b) != GX_T_DONE) return 0;
        r->block = value = gx_template_built(&b);
        if (x->c && !gx__template_eval(r, x->c, scope, &value)) return 0;
    }
    r->run.line = x->line;
    return gx__template_assign(r, x->a, scope, value);
}

static GxTemplateOutcome gx__template_run_generation(GxTemplateRender *r, const GxTemplateNode *x,
                                                     GxTemplateScope *scope, GxTemplateBuilder *out)
{
    GxTemplateScope *inner = gx__template_scope(r, scope);
    if (r->spans == r->most_spans) {
        const int64_t most = 2 * r->most_spans + 8;
        GxTemplateSpan *grown = (GxTemplateSpan *)gx_template_allocate(&r->run, most * (int64_t)sizeof *grown);
        if (!grown) return GX_T_FAILED;
        if (r->spans) memcpy(grown, r->span, (size_t)r->spans * sizeof *grown);
        r->span = grown, r->most_spans = most;
    }
    GxTemplateSpan span;
    span.begin = out->n;
    if (!inner || !gx__template_begin(r, x->b, inner)) return GX_T_FAILED;
    if (gx__template_run(r, x->b, inner, out) != GX_T_DONE) return GX_T_FAILED;
    span.end = out->n;
    r->span[r->spans++] = span;
    return GX_T_DONE;
}

static GxTemplateOutcome gx__template_run_kind(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                               GxTemplateBuilder *out)
{
    GxTemplateValue v;
    int ok = 1;
    switch (x->kind) {
    case GX_T_TEXT: ok = gx_template_put(&r->run, out, x->value.u.s, x->value.n); break;
    case GX_T_PRINT:
        ok = gx__template_eval(r, x->a, scope, &v);
        r->run.line = x->line;
        ok = ok && gx_template_put_text(&r->run, out, v);
        break;
    case GX_T_BODY: return gx__template_run_body(r, x, scope, out);
    case GX_T_IF: return gx__template_run_if(r, x, scope, out);
    case GX_T_FOR: return gx__template_run_for(r, x, scope, out);
    case GX_T_SET:
    case GX_T_SET_BLOCK: ok = gx__template_run_set(r, x, scope); break;
    case GX_T_GENERATION: return gx__template_run_generation(r, x, scope, out);
    case GX_T_BREAK: return GX_T_BREAKS;
    case GX_T_CONTINUE: return GX_T_CONTINUES;
    default: { // GX_T_DEFINE
        GxTemplateMacro *m = (GxTemplateMacro *)gx_template_allocate(&r->run, (int64_t)sizeof *m);
        if (!m) return GX_T_FAILED;
        m->node = x, m->scope = scope;
        v = gx_template_none();
        v.kind = GX_T_MACRO, v.u.p = m;
        ok = gx__template_bind_name(r, x->symbol, scope, v);
    }
    }
    return ok ? GX_T_DONE : GX_T_FAILED;
}

static GxTemplateOutcome gx__template_run(GxTemplateRender *r, const GxTemplateNode *x, GxTemplateScope *scope,
                                          GxTemplateBuilder *out)
{
    const GxTemplateOutcome outcome = gx__template_enter(r, x) ? gx__template_run_kind(r, x, scope, out) : GX_T_FAILED;
    r->run.depth--;
    return outcome;
}

int gx_template_write(GxTemplateRender *r)
{
    const int64_t n = r->tree->symbols;
    r->global = (GxTemplateValue *)gx_template_allocate(&r->run, n * (int64_t)sizeof *r->global);
    r->known = (char *)gx_template_allocate(&r->run, n);
    r->text.most = GX_TEMPLATE_OUTPUT;
    return r->global && r->known && gx__template_begin(r, r->tree->body, NULL) &&
           gx__template_run(r, r->tree->body, NULL, &r->text) == GX_T_DONE;
}
#endif
