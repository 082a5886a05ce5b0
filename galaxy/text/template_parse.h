// template_parse.h: a chat template's tokens as a tree. Tags, filters, tests, methods and names of Jinja that are not
// supported are refused here, by name and line.
#ifndef GX_TEMPLATE_PARSE_H
#define GX_TEMPLATE_PARSE_H
#include "template_lex.h"
#include "template_filters.h"
GX_BEGIN

// Limits: how deep expressions and tags may be nested in the text, and how deep the tree may become, including chains
// like a + b + c + ….
enum { GX_TEMPLATE_WRITTEN_DEPTH = 100, GX_TEMPLATE_TREE_DEPTH = 400 };

typedef enum {
    // expressions
    GX_T_CONST = 0, // value
    GX_T_LOAD,      // symbol
    GX_T_NEW_LIST,  // list
    GX_T_NEW_TUPLE,
    GX_T_NEW_DICT, // list: key, value, key, value …
    GX_T_IF_ELSE,  // b if a else c (NULL)
    GX_T_OR,
    GX_T_AND,
    GX_T_NOT,
    GX_T_COMPARE, // a sign[0] list[0] sign[1] list[1] …
    GX_T_BINARY,  // a op b
    GX_T_CONCAT,  // list
    GX_T_NEGATE,
    GX_T_PLUS,
    GX_T_ATTRIBUTE, // a.name
    GX_T_ITEM,      // a[b]
    GX_T_SLICE,     // a[list[0]:list[1]:list[2]], NULL where there is none
    GX_T_CALL,      // a(list)
    GX_T_FILTER,    // a|row(list)
    GX_T_TEST,      // a is row(list)
    // statements
    GX_T_TEXT,       // value
    GX_T_PRINT,      // a
    GX_T_BODY,       // list
    GX_T_IF,         // a: condition, b: body, c: another IF, a body, or NULL
    GX_T_FOR,        // target a in b if c: list[0], else list[1] (NULL)
    GX_T_SET,        // target a = b
    GX_T_SET_BLOCK,  // target a, body b, c: filters around GX_T_BLOCK_TEXT, or NULL
    GX_T_BLOCK_TEXT, // inside of c: the body's text
    GX_T_DEFINE,     // macro symbol, parameters name[], list: their defaults (NULL), body b
    GX_T_GENERATION, // body b
    GX_T_BREAK,
    GX_T_CONTINUE,
    // targets
    GX_T_TO_NAME,      // symbol
    GX_T_TO_ATTRIBUTE, // symbol.name
    GX_T_TO_TUPLE      // list
} GxTemplateNodeKind;

typedef enum {
    GX_T_LESS = 0,
    GX_T_LESS_EQUAL,
    GX_T_GREATER,
    GX_T_GREATER_EQUAL,
    GX_T_EQUAL,
    GX_T_NOT_EQUAL,
    GX_T_IN,
    GX_T_NOT_IN
} GxTemplateComparison;

typedef struct GxTemplateNode {
    GxTemplateNodeKind kind;
    int line, depth;
    int row; // of a filter or test; or an operator
    int symbol;
    const char *name;
    GxTemplateValue value;
    struct GxTemplateNode *a, *b, *c, **list;
    const char **names; // of arguments and parameters; NULL: positional
    int *signs;         // of a comparison; for parameters: their symbols
    int n;
    // of a body with a scope: names that are undefined in it until they are set, even if they exist around it
    int *hidden;
    int n_hidden;
} GxTemplateNode;

typedef struct { // a name in the template
    const char *name;
    int stored, read; // stored: it is set somewhere; read: it is read where no loop or macro binds it
    int line;         // where it was read first
    // used by the parser only, like these: enclosing bodies that name it, and the last body that named it
    int bound;
    int named, body;
} GxTemplateSymbol;

typedef struct {
    GxTemplateNode *body;
    GxTemplateSymbol *symbol;
    int symbols, has_generation;
} GxTemplateTree;

int gx_template_read(GxTemplateRun *r, const char *text, int64_t bytes, GxTemplateTree *tree);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_PARSE_IMPLEMENTED)
#define GX_TEMPLATE_PARSE_IMPLEMENTED
#include <string.h>

typedef struct {
    GxTemplateRun *r;
    GxTemplateToken *t; // the next one
    GxTemplateTree *tree;
    int *slot, slots, capacity; // symbols by name: a hash table with open addressing of numbers + 1
    int depth;                  // written
    int loops;                  // enclosing loops within the same macro
    int in_loop_tag;            // all enclosing loops
    int macros, generations, blocks;
    int bodies; // bodies with a scope so far
} GxTemplateParser;

// ---- pieces --------------------------------------------------------------------------------------------------------

static int gx__template_is_sign(const GxTemplateParser *p, int sign)
{
    return p->t->kind == GX_T_SIGN && p->t->sign == sign;
}
static int gx__template_is_word_at(const GxTemplateToken *t, const char *word)
{
    return t->kind == GX_T_NAME && !strcmp(t->value.u.s, word);
}
static int gx__template_is_next(const GxTemplateParser *p, const char *word)
{
    return gx__template_is_word_at(p->t, word);
}

static GxTemplateToken *gx__template_next(GxTemplateParser *p)
{
    GxTemplateToken *t = p->t;
    p->r->line = t->line;
    if (t->kind != GX_T_END) p->t++;
    return t;
}

static int gx__template_skip(GxTemplateParser *p, int sign)
{
    return gx__template_is_sign(p, sign) && gx__template_next(p);
}
static int gx__template_skip_word(GxTemplateParser *p, const char *word)
{
    return gx__template_is_next(p, word) && gx__template_next(p);
}

static int gx__template_unexpected(GxTemplateParser *p, const char *expected)
{
    const GxTemplateToken *t = p->t;
    char sign[3] = {0, 0, 0};
    const char *what = "the end of the template", *text = "";
    p->r->line = t->line;
    switch (t->kind) {
    case GX_T_DATA: what = "text"; break;
    case GX_T_VARIABLE_BEGIN: what = "{{"; break;
    case GX_T_VARIABLE_END: what = "the end of the tag, }}"; break;
    case GX_T_BLOCK_BEGIN: what = "{%"; break;
    case GX_T_BLOCK_END: what = "the end of the tag, %}"; break;
    case GX_T_NAME: what = "", text = t->value.u.s; break;
    case GX_T_CONSTANT: what = gx_template_type(t->value); break;
    case GX_T_SIGN: what = "", sign[0] = (char)(t->sign & 255), sign[1] = (char)(t->sign >> 8), text = sign; break;
    case GX_T_END: break;
    }
    return gx_template_fail(p->r, "%s%s%.60s%s; expected %s", what, *text ? "\"" : "", text, *text ? "\"" : "",
                            expected);
}

static int gx__template_expect(GxTemplateParser *p, int sign)
{
    const char word[4] = {'"', (char)sign, '"', 0};
    return gx__template_skip(p, sign) || gx__template_unexpected(p, word);
}

static GxTemplateNode *gx__template_node(GxTemplateParser *p, GxTemplateNodeKind kind, int line)
{
    GxTemplateNode *x = (GxTemplateNode *)gx_template_allocate(p->r, (int64_t)sizeof *x);
    if (x) x->kind = kind, x->line = line, x->depth = 1;
    return x;
}

// Measures the depth of a complete node; NULL: too deep.
static GxTemplateNode *gx__template_made(GxTemplateParser *p, GxTemplateNode *x)
{
    const GxTemplateNode *part[3] = {x->a, x->b, x->c};
    for (int i = 0; i < 3; i++)
        if (part[i]) x->depth = (int)gx_max(x->depth, part[i]->depth + 1);
    for (int i = 0; x->list && i < x->n; i++)
        if (x->list[i]) x->depth = (int)gx_max(x->depth, x->list[i]->depth + 1);
    if (x->depth <= GX_TEMPLATE_TREE_DEPTH) return x;
    p->r->line = x->line;
    gx_template_fail(p->r, "the template is nested deeper than %d", GX_TEMPLATE_TREE_DEPTH);
    return NULL;
}

static GxTemplateNode *gx__template_joining(GxTemplateParser *p, GxTemplateNodeKind kind, int line, GxTemplateNode *a,
                                            GxTemplateNode *b)
{
    GxTemplateNode *x = gx__template_node(p, kind, line);
    if (!x) return NULL;
    x->a = a, x->b = b;
    return gx__template_made(p, x);
}

// Appends to a node's list, whose capacity is the next power of two.
static int gx__template_push(GxTemplateParser *p, GxTemplateNode *x, GxTemplateNode *part, const char *name, int sign)
{
    if ((x->n & (x->n - 1)) == 0) {
        const int64_t capacity = x->n ? 2 * (int64_t)x->n : 1, n = x->n;
        GxTemplateNode **list = (GxTemplateNode **)gx_template_allocate(p->r, capacity * (int64_t)sizeof *list);
        const char **names = (const char **)gx_template_allocate(p->r, capacity * (int64_t)sizeof *names);
        int *signs = (int *)gx_template_allocate(p->r, capacity * (int64_t)sizeof *signs);
        if (!list || !names || !signs) return 0;
        if (n) {
            memcpy(list, x->list, (size_t)n * sizeof *list), memcpy(names, x->names, (size_t)n * sizeof *names);
            memcpy(signs, x->signs, (size_t)n * sizeof *signs);
        }
        x->list = list, x->names = names, x->signs = signs;
    }
    x->list[x->n] = part, x->names[x->n] = name, x->signs[x->n] = sign;
    return ++x->n;
}

static int gx__template_deeper(GxTemplateParser *p)
{
    if (++p->depth <= GX_TEMPLATE_WRITTEN_DEPTH) return 1;
    p->r->line = p->t->line;
    return gx_template_fail(p->r, "expressions or tags are nested deeper than %d", GX_TEMPLATE_WRITTEN_DEPTH);
}

// ---- symbols -------------------------------------------------------------------------------------------------------

static int gx__template_more_slots(GxTemplateParser *p)
{
    const int slots = p->slots ? 2 * p->slots : 64;
    int *slot = (int *)gx_template_allocate(p->r, slots * (int64_t)sizeof *slot);
    GxTemplateSymbol *symbol = (GxTemplateSymbol *)gx_template_allocate(p->r, slots * (int64_t)sizeof *symbol);
    if (!slot || !symbol) return 0;
    for (int i = 0; i < p->tree->symbols; i++) {
        const char *name = p->tree->symbol[i].name;
        uint64_t at = gx_hash(GX_HASH_START, name, (int64_t)strlen(name));
        while (slot[at % (uint64_t)slots]) at++;
        slot[at % (uint64_t)slots] = i + 1;
        symbol[i] = p->tree->symbol[i];
    }
    p->slot = slot, p->slots = slots;
    p->tree->symbol = symbol;
    return 1;
}

static int gx__template_symbol(GxTemplateParser *p, const char *name) // -1: no memory
{
    if (2 * p->tree->symbols >= p->slots && !gx__template_more_slots(p)) return -1;
    uint64_t at = gx_hash(GX_HASH_START, name, (int64_t)strlen(name));
    for (; p->slot[at % (uint64_t)p->slots]; at++) {
        const int i = p->slot[at % (uint64_t)p->slots] - 1;
        if (!strcmp(p->tree->symbol[i].name, name)) return i;
    }
    p->slot[at % (uint64_t)p->slots] = p->tree->symbols + 1;
    p->tree->symbol[p->tree->symbols].name = name;
    return p->tree->symbols++;
}

// Binds names by a loop or macro while its body is parsed.
static void gx__template_bind_target(GxTemplateParser *p, const GxTemplateNode *target, int by)
{
    if (target->kind == GX_T_TO_NAME) p->tree->symbol[target->symbol].bound += by;
    for (int i = 0; target->kind == GX_T_TO_TUPLE && i < target->n; i++)
        gx__template_bind_target(p, target->list[i], by);
}

// ---- expressions ---------------------------------------------------------------------------------------------------

static GxTemplateNode *gx__template_expression(GxTemplateParser *p);
static GxTemplateNode *gx__template_or_expression(GxTemplateParser *p);
static GxTemplateNode *gx__template_unary(GxTemplateParser *p, int with_filters);

static int gx__template_is_tuple_end(const GxTemplateParser *p)
{
    return p->t->kind == GX_T_VARIABLE_END || p->t->kind == GX_T_BLOCK_END || gx__template_is_sign(p, ')');
}

// "a, b" is a tuple, "a" is itself. may_be_empty: nothing is an empty tuple. conditions: an element may be "x if y".
static GxTemplateNode *gx__template_tuple(GxTemplateParser *p, int conditions, int may_be_empty, const char *end)
{
    GxTemplateNode *x = gx__template_node(p, GX_T_NEW_TUPLE, p->t->line);
    int is_tuple = 0;
    if (!x) return NULL;
    while (!gx__template_is_tuple_end(p) && !(end && gx__template_is_next(p, end))) {
        GxTemplateNode *one = conditions ? gx__template_expression(p) : gx__template_or_expression(p);
        if (!one || !gx__template_push(p, x, one, NULL, 0)) return NULL;
        if (!gx__template_skip(p, ',')) break;
        is_tuple = 1;
    }
    if (!is_tuple && x->n == 1) return x->list[0];
    if (!is_tuple && !may_be_empty) return gx__template_unexpected(p, "an expression"), (GxTemplateNode *)NULL;
    return gx__template_made(p, x);
}

static GxTemplateNode *gx__template_list_expression(GxTemplateParser *p, int dict)
{
    GxTemplateNode *x = gx__template_node(p, dict ? GX_T_NEW_DICT : GX_T_NEW_LIST, p->t->line);
    const int end = dict ? '}' : ']';
    gx__template_next(p);
    while (x && !gx__template_skip(p, end)) {
        if (x->n && !gx__template_expect(p, ',')) return NULL;
        if (gx__template_skip(p, end)) break;
        GxTemplateNode *one = gx__template_expression(p), *value = NULL;
        if (!one || !gx__template_push(p, x, one, NULL, 0)) return NULL;
        if (!dict) continue;
        if (!gx__template_expect(p, ':') || !(value = gx__template_expression(p))) return NULL;
        if (!gx__template_push(p, x, value, NULL, 0)) return NULL;
    }
    return x ? gx__template_made(p, x) : NULL;
}

static GxTemplateNode *gx__template_name_expression(GxTemplateParser *p)
{
    static const char *const special[] = {"varargs", "kwargs", "caller"};
    const GxTemplateToken *t = gx__template_next(p);
    const char *name = t->value.u.s;
    const int is_true = !strcmp(name, "true") || !strcmp(name, "True"),
              is_false = !strcmp(name, "false") || !strcmp(name, "False");
    const int is_const = is_true || is_false || !strcmp(name, "none") || !strcmp(name, "None");
    GxTemplateNode *x = gx__template_node(p, is_const ? GX_T_CONST : GX_T_LOAD, t->line);
    if (!x) return NULL;
    x->value = is_true || is_false ? gx_template_bool(is_true) : gx_template_none();
    if (is_const) return x;
    x->name = name;
    if ((x->symbol = gx__template_symbol(p, name)) < 0) return NULL;
    GxTemplateSymbol *s = &p->tree->symbol[x->symbol];
    for (int i = 0; i < 3; i++)
        if (p->macros && !s->bound && !strcmp(name, special[i]))
            return gx_template_lacks(p->r, "\"%s\" inside a macro is not supported", name), (GxTemplateNode *)NULL;
    if (!s->bound && !s->read) s->read = 1, s->line = t->line;
    return x;
}

static GxTemplateNode *gx__template_primary(GxTemplateParser *p)
{
    GxTemplateNode *x;
    if (p->t->kind == GX_T_NAME) return gx__template_name_expression(p);
    if (p->t->kind == GX_T_CONSTANT) {
        GxTemplateBuilder b = GX_ZERO;
        const GxTemplateToken *t = gx__template_next(p);
        if (!(x = gx__template_node(p, GX_T_CONST, t->line))) return NULL;
        x->value = t->value;
        if (t->value.kind != GX_T_STRING || p->t->kind != GX_T_CONSTANT || p->t->value.kind != GX_T_STRING) return x;
        if (!gx_template_put(p->r, &b, t->value.u.s, t->value.n)) return NULL;
        while (p->t->kind == GX_T_CONSTANT && p->t->value.kind == GX_T_STRING) { // "a" "b" is "ab"
            t = gx__template_next(p);
            if (!gx_template_put(p->r, &b, t->value.u.s, t->value.n)) return NULL;
        }
        x->value = gx_template_built(&b);
        return x;
    }
    if (gx__template_skip(p, '(')) {
        if (!gx__template_deeper(p)) return NULL;
        x = gx__template_tuple(p, 1, 1, NULL);
        p->depth--;
        return x && gx__template_expect(p, ')') ? x : NULL;
    }
    if (gx__template_is_sign(p, '[') || gx__template_is_sign(p, '{')) {
        if (!gx__template_deeper(p)) return NULL;
        x = gx__template_list_expression(p, gx__template_is_sign(p, '{'));
        p->depth--;
        return x;
    }
    return gx__template_unexpected(p, "an expression"), (GxTemplateNode *)NULL;
}

// Parses (a, b, name=c) into a node's list.
static int gx__template_arguments(GxTemplateParser *p, GxTemplateNode *x)
{
    int named = 0;
    if (!gx__template_expect(p, '(')) return 0;
    for (int i = 0; !gx__template_is_sign(p, ')'); i++) {
        const char *name = NULL;
        if (i && !gx__template_expect(p, ',')) return 0;
        if (gx__template_is_sign(p, ')')) break;
        if (gx__template_is_sign(p, '*') || gx__template_is_sign(p, '*' + 256 * '*'))
            return gx_template_lacks(p->r, "calls with * or ** are not supported");
        if (p->t->kind == GX_T_NAME && p->t[1].kind == GX_T_SIGN && p->t[1].sign == '=') {
            name = gx__template_next(p)->value.u.s, named = 1;
            gx__template_next(p);
            for (int k = 0; k < x->n; k++)
                if (x->names[k] && !strcmp(x->names[k], name))
                    return gx_template_fail(p->r, "the argument \"%.60s\" is given twice", name);
        } else if (named) return gx__template_unexpected(p, "an argument with a name");
        GxTemplateNode *one = gx__template_expression(p);
        if (!one || !gx__template_push(p, x, one, name, 0)) return 0;
    }
    return gx__template_expect(p, ')');
}

static GxTemplateNode *gx__template_call_expression(GxTemplateParser *p, GxTemplateNode *a)
{
    GxTemplateNode *x = gx__template_node(p, GX_T_CALL, p->t->line);
    if (!x || !gx__template_deeper(p)) return NULL;
    p->r->line = x->line;
    if (a->kind == GX_T_ATTRIBUTE && strcmp(a->name, "cycle") && !gx_template_method_is_built(a->name))
        return gx_template_lacks(p->r, "the method \"%.60s\" is not supported", a->name), (GxTemplateNode *)NULL;
    x->a = a;
    const int ok = gx__template_arguments(p, x);
    p->depth--;
    return ok ? gx__template_made(p, x) : NULL;
}

// The contents of [ ]: an index, or the a:b:c of a slice.
static GxTemplateNode *gx__template_subscript(GxTemplateParser *p, GxTemplateNode *a)
{
    GxTemplateNode *x = gx__template_node(p, GX_T_SLICE, p->t->line), *one = NULL;
    int colons = 0;
    if (!x) return NULL;
    if (!gx__template_is_sign(p, ':') && !(one = gx__template_expression(p))) return NULL;
    if (!gx__template_is_sign(p, ':')) {
        if (gx__template_is_sign(p, ','))
            return gx_template_lacks(p->r, "[a, b] after a value is not supported"), (GxTemplateNode *)NULL;
        return gx__template_joining(p, GX_T_ITEM, x->line, a, one);
    }
    x->a = a;
    if (!gx__template_push(p, x, one, NULL, 0)) return NULL;
    for (; colons < 2; colons++) {
        one = NULL;
        if (gx__template_skip(p, ':') && !gx__template_is_sign(p, ':') && !gx__template_is_sign(p, ']'))
            if (!(one = gx__template_expression(p))) return NULL;
        if (!gx__template_push(p, x, one, NULL, 0)) return NULL;
    }
    return gx__template_made(p, x);
}

static GxTemplateNode *gx__template_postfix(GxTemplateParser *p, GxTemplateNode *x)
{
    while (x) {
        const int line = p->t->line;
        if (gx__template_is_sign(p, '(')) x = gx__template_call_expression(p, x);
        else if (gx__template_skip(p, '[')) {
            if (gx__template_is_sign(p, ']'))
                return gx__template_unexpected(p, "an expression"), (GxTemplateNode *)NULL;
            if (!gx__template_deeper(p)) return NULL;
            x = gx__template_subscript(p, x);
            p->depth--;
            if (!x || !gx__template_expect(p, ']')) return NULL;
        } else if (gx__template_skip(p, '.')) {
            const GxTemplateToken *t = p->t;
            if (t->kind == GX_T_CONSTANT && t->value.kind == GX_T_INT) {
                GxTemplateNode *i = gx__template_node(p, GX_T_CONST, line);
                if (!i) return NULL;
                i->value = gx__template_next(p)->value;
                x = gx__template_joining(p, GX_T_ITEM, line, x, i);
                continue;
            }
            if (t->kind != GX_T_NAME) return gx__template_unexpected(p, "a name"), (GxTemplateNode *)NULL;
            gx__template_next(p);
            if (!strncmp(t->value.u.s, "__", 2))
                return gx_template_lacks(p->r, "\".%.60s\" is not supported", t->value.u.s), (GxTemplateNode *)NULL;
            if ((x = gx__template_joining(p, GX_T_ATTRIBUTE, line, x, NULL))) x->name = t->value.u.s;
        } else break;
    }
    return x;
}

// The name of a filter or test; one like "a.b" is not supported. NULL: failed.
static const GxTemplateToken *gx__template_row_name(GxTemplateParser *p, const char *what)
{
    const GxTemplateToken *t = p->t;
    if (t->kind != GX_T_NAME) return gx__template_unexpected(p, what), (const GxTemplateToken *)NULL;
    return gx__template_next(p);
}

// map('trim'), select('defined'): the filter or test that an argument names.
static int gx__template_check_named(GxTemplateParser *p, const char *filter, const GxTemplateNode *x)
{
    const int maps = !strcmp(filter, "map"),
              by_attribute = !strcmp(filter, "selectattr") || !strcmp(filter, "rejectattr");
    const int tests = by_attribute || !strcmp(filter, "select") || !strcmp(filter, "reject");
    if ((!maps && !tests) || x->n <= by_attribute || x->names[by_attribute]) return 1;
    const GxTemplateNode *one = x->list[by_attribute];
    char name[64] = "";
    if (one->kind != GX_T_CONST || one->value.kind != GX_T_STRING) return 1;
    snprintf(name, sizeof name, "%.*s", (int)gx_min(one->value.n, 60), one->value.u.s);
    if (maps && gx_template_filter(name) < 0)
        return gx_template_lacks(p->r, "the filter \"%s\" is not supported", name);
    if (tests && gx_template_test(name) < 0) return gx_template_lacks(p->r, "the test \"%s\" is not supported", name);
    return 1;
}

static GxTemplateNode *gx__template_filter_expression(GxTemplateParser *p, GxTemplateNode *a)
{
    const GxTemplateToken *t = gx__template_row_name(p, "the name of a filter");
    GxTemplateNode *x = t ? gx__template_node(p, GX_T_FILTER, t->line) : NULL;
    if (!x) return NULL;
    if ((x->row = gx_template_filter(t->value.u.s)) < 0 || gx__template_is_sign(p, '.'))
        return gx_template_lacks(p->r, "the filter \"%.60s\" is not supported", t->value.u.s), (GxTemplateNode *)NULL;
    x->a = a;
    if (gx__template_is_sign(p, '(')) {
        if (!gx__template_deeper(p) || !gx__template_arguments(p, x)) return NULL;
        p->depth--;
    }
    p->r->line = x->line;
    return gx__template_check_named(p, t->value.u.s, x) ? gx__template_made(p, x) : NULL;
}

static GxTemplateNode *gx__template_test_expression(GxTemplateParser *p, GxTemplateNode *a)
{
    const int line = p->t[-1].line, negated = gx__template_skip_word(p, "not");
    const GxTemplateToken *t = gx__template_row_name(p, "the name of a test");
    GxTemplateNode *x = t ? gx__template_node(p, GX_T_TEST, line) : NULL;
    if (!x) return NULL;
    if ((x->row = gx_template_test(t->value.u.s)) < 0 || gx__template_is_sign(p, '.'))
        return gx_template_lacks(p->r, "the test \"%.60s\" is not supported", t->value.u.s), (GxTemplateNode *)NULL;
    x->a = a;
    const int is_name = p->t->kind == GX_T_NAME,
              ends = gx__template_is_next(p, "else") || gx__template_is_next(p, "or") || gx__template_is_next(p, "and");
    if (gx__template_is_sign(p, '(')) {
        if (!gx__template_deeper(p) || !gx__template_arguments(p, x)) return NULL;
        p->depth--;
    } else if ((is_name && !ends) || p->t->kind == GX_T_CONSTANT || gx__template_is_sign(p, '[') ||
               gx__template_is_sign(p, '{')) {
        if (gx__template_is_next(p, "is")) return gx__template_unexpected(p, "one test"), (GxTemplateNode *)NULL;
        GxTemplateNode *one = gx__template_primary(p);
        if (!one || !(one = gx__template_postfix(p, one)) || !gx__template_push(p, x, one, NULL, 0)) return NULL;
    }
    if (!gx__template_made(p, x)) return NULL;
    return negated ? gx__template_joining(p, GX_T_NOT, line, x, NULL) : x;
}

static GxTemplateNode *gx__template_unary(GxTemplateParser *p, int with_filters)
{
    const int line = p->t->line, minus = gx__template_is_sign(p, '-');
    GxTemplateNode *x;
    if (minus || gx__template_is_sign(p, '+')) {
        gx__template_next(p);
        if (!gx__template_deeper(p)) return NULL;
        x = gx__template_unary(p, 0);
        p->depth--;
        if (x) x = gx__template_joining(p, minus ? GX_T_NEGATE : GX_T_PLUS, line, x, NULL);
    } else x = gx__template_primary(p);
    x = gx__template_postfix(p, x);
    while (x && with_filters) {
        if (gx__template_skip(p, '|')) x = gx__template_filter_expression(p, x);
        else if (gx__template_skip_word(p, "is")) x = gx__template_test_expression(p, x);
        else if (gx__template_is_sign(p, '(')) x = gx__template_call_expression(p, x);
        else break;
    }
    return x;
}

// Binary operators by increasing precedence: level 0: + -; 1: ~; 2: * / // %; 3: **.
static GxTemplateNode *gx__template_arithmetic(GxTemplateParser *p, int level)
{
    static const struct {
        int level, sign;
        GxTemplateOperator op;
    } signs[] = {{0, '+', GX_T_ADD},
                 {0, '-', GX_T_SUB},
                 {2, '*', GX_T_MUL},
                 {2, '/', GX_T_DIV},
                 {2, '/' + 256 * '/', GX_T_FLOOR_DIV},
                 {2, '%', GX_T_MOD},
                 {3, '*' + 256 * '*', GX_T_POW}};
    if (level == 4) return gx__template_unary(p, 1);
    const int line = p->t->line;
    GxTemplateNode *a = gx__template_arithmetic(p, level + 1), *x;
    if (level == 1 && a && gx__template_is_sign(p, '~')) {
        if (!(x = gx__template_node(p, GX_T_CONCAT, line)) || !gx__template_push(p, x, a, NULL, 0)) return NULL;
        while (gx__template_skip(p, '~'))
            if (!(a = gx__template_arithmetic(p, 2)) || !gx__template_push(p, x, a, NULL, 0)) return NULL;
        return gx__template_made(p, x);
    }
    while (a) {
        int i = 0;
        while (i < 7 && !(signs[i].level == level && gx__template_is_sign(p, signs[i].sign))) i++;
        if (i == 7) break;
        gx__template_next(p);
        GxTemplateNode *b = gx__template_arithmetic(p, level + 1);
        if (!b || !(a = gx__template_joining(p, GX_T_BINARY, line, a, b))) return NULL;
        a->row = signs[i].op;
    }
    return a;
}

static int gx__template_comparison(GxTemplateParser *p) // -1: none follows
{
    static const struct {
        int sign, comparison;
    } signs[] = {{'<', GX_T_LESS},
                 {'<' + 256 * '=', GX_T_LESS_EQUAL},
                 {'>', GX_T_GREATER},
                 {'>' + 256 * '=', GX_T_GREATER_EQUAL},
                 {'=' + 256 * '=', GX_T_EQUAL},
                 {'!' + 256 * '=', GX_T_NOT_EQUAL}};
    for (int i = 0; i < 6; i++)
        if (gx__template_skip(p, signs[i].sign)) return signs[i].comparison;
    if (gx__template_skip_word(p, "in")) return GX_T_IN;
    if (!gx__template_is_next(p, "not") || !gx__template_is_word_at(p->t + 1, "in")) return -1;
    gx__template_next(p), gx__template_next(p);
    return GX_T_NOT_IN;
}

static GxTemplateNode *gx__template_compare_expression(GxTemplateParser *p)
{
    const int line = p->t->line;
    GxTemplateNode *a = gx__template_arithmetic(p, 0), *x = NULL;
    for (int sign; a && (sign = gx__template_comparison(p)) >= 0;) {
        GxTemplateNode *b = gx__template_arithmetic(p, 0);
        if (!b || (!x && !(x = gx__template_node(p, GX_T_COMPARE, line)))) return NULL;
        x->a = a;
        if (!gx__template_push(p, x, b, NULL, sign)) return NULL;
    }
    return x ? gx__template_made(p, x) : a;
}

static GxTemplateNode *gx__template_not_expression(GxTemplateParser *p)
{
    const int line = p->t->line;
    if (!gx__template_skip_word(p, "not")) return gx__template_compare_expression(p);
    if (!gx__template_deeper(p)) return NULL;
    GxTemplateNode *a = gx__template_not_expression(p);
    p->depth--;
    return a ? gx__template_joining(p, GX_T_NOT, line, a, NULL) : NULL;
}

static GxTemplateNode *gx__template_and_expression(GxTemplateParser *p)
{
    const int line = p->t->line;
    GxTemplateNode *a = gx__template_not_expression(p), *b;
    while (a && gx__template_skip_word(p, "and")) {
        if (!(b = gx__template_not_expression(p))) return NULL;
        a = gx__template_joining(p, GX_T_AND, line, a, b);
    }
    return a;
}

static GxTemplateNode *gx__template_or_expression(GxTemplateParser *p)
{
    const int line = p->t->line;
    GxTemplateNode *a = gx__template_and_expression(p), *b;
    while (a && gx__template_skip_word(p, "or")) {
        if (!(b = gx__template_and_expression(p))) return NULL;
        a = gx__template_joining(p, GX_T_OR, line, a, b);
    }
    return a;
}

static GxTemplateNode *gx__template_expression(GxTemplateParser *p)
{
    const int line = p->t->line;
    if (!gx__template_deeper(p)) return NULL;
    GxTemplateNode *b = gx__template_or_expression(p);
    while (b && gx__template_skip_word(p, "if")) {
        GxTemplateNode *x = gx__template_node(p, GX_T_IF_ELSE, line);
        if (!x || !(x->a = gx__template_or_expression(p))) return NULL;
        x->b = b;
        if (gx__template_skip_word(p, "else") && !(x->c = gx__template_expression(p))) return NULL;
        b = gx__template_made(p, x);
    }
    p->depth--;
    return b;
}

// ---- targets -------------------------------------------------------------------------------------------------------

static GxTemplateNode *gx__template_target(GxTemplateParser *p, int attributes, const char *end);

static GxTemplateNode *gx__template_one_target(GxTemplateParser *p, int attributes)
{
    static const char *const constants[] = {"true", "false", "True", "False", "none", "None"};
    if (gx__template_skip(p, '(')) {
        if (!gx__template_deeper(p)) return NULL;
        GxTemplateNode *x = gx__template_target(p, 0, NULL);
        p->depth--;
        return x && gx__template_expect(p, ')') ? x : NULL;
    }
    if (p->t->kind != GX_T_NAME) return gx__template_unexpected(p, "a name to set"), (GxTemplateNode *)NULL;
    GxTemplateNode *x = gx__template_node(p, GX_T_TO_NAME, p->t->line);
    const char *name = gx__template_next(p)->value.u.s;
    if (!x || (x->symbol = gx__template_symbol(p, name)) < 0) return NULL;
    for (int i = 0; i < 6; i++)
        if (!strcmp(name, constants[i]))
            return gx_template_fail(p->r, "\"%s\" cannot be set", name), (GxTemplateNode *)NULL;
    if (attributes && gx__template_skip(p, '.')) {
        if (p->t->kind != GX_T_NAME) return gx__template_unexpected(p, "a name"), (GxTemplateNode *)NULL;
        x->kind = GX_T_TO_ATTRIBUTE;
        x->name = gx__template_next(p)->value.u.s;
        GxTemplateSymbol *s = &p->tree->symbol[x->symbol];
        if (!s->bound && !s->read) s->read = 1, s->line = x->line;
        return x;
    }
    if (!strcmp(name, "loop") && p->in_loop_tag)
        return gx_template_fail(p->r, "\"loop\" cannot be set inside a loop"), (GxTemplateNode *)NULL;
    p->tree->symbol[x->symbol].stored = 1;
    return x;
}

static GxTemplateNode *gx__template_target(GxTemplateParser *p, int attributes, const char *end)
{
    GxTemplateNode *x = gx__template_node(p, GX_T_TO_TUPLE, p->t->line);
    int is_tuple = 0;
    if (!x) return NULL;
    do {
        if (is_tuple &&
            (gx__template_is_tuple_end(p) || gx__template_is_sign(p, '=') || (end && gx__template_is_next(p, end))))
            break;
        GxTemplateNode *one = gx__template_one_target(p, attributes);
        if (!one || !gx__template_push(p, x, one, NULL, 0)) return NULL;
    } while (gx__template_skip(p, ',') && (is_tuple = 1));
    return is_tuple ? gx__template_made(p, x) : x->list[0];
}

// ---- statements ----------------------------------------------------------------------------------------------------

static GxTemplateNode *gx__template_body(GxTemplateParser *p, const char *const *ends);

static int gx__template_block_end(GxTemplateParser *p)
{
    if (p->t->kind != GX_T_BLOCK_END) return gx__template_unexpected(p, "the end of the tag, %}");
    return gx__template_next(p) != NULL;
}

// The rest of a tag and what follows it, up to the name of one of the tags in `ends`.
static GxTemplateNode *gx__template_inner(GxTemplateParser *p, const char *const *ends)
{
    gx__template_skip(p, ':');
    return gx__template_block_end(p) ? gx__template_body(p, ends) : NULL;
}

static GxTemplateNode *gx__template_if(GxTemplateParser *p, int line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif", NULL};
    GxTemplateNode *first = NULL, *last = NULL;
    for (;;) { // elif branches are chained, so that many of them do not make the tree deep
        GxTemplateNode *x = gx__template_node(p, GX_T_IF, line);
        if (!x || !(x->a = gx__template_tuple(p, 0, 0, NULL)) || !(x->b = gx__template_inner(p, ends))) return NULL;
        if (!gx__template_made(p, x)) return NULL;
        if (last) last->c = x, first->depth = (int)gx_max(first->depth, x->depth);
        else first = x;
        last = x;
        line = p->t->line;
        if (gx__template_skip_word(p, "elif")) continue;
        if (gx__template_skip_word(p, "else") && !(last->c = gx__template_inner(p, end))) return NULL;
        if (last->c) first->depth = (int)gx_max(first->depth, last->c->depth + 1);
        gx__template_next(p); // endif
        return first;
    }
}

static GxTemplateNode *gx__template_for(GxTemplateParser *p, int line)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    GxTemplateNode *x = gx__template_node(p, GX_T_FOR, line), *body, *otherwise = NULL;
    const int loop = gx__template_symbol(p, "loop");
    p->in_loop_tag++;
    if (!x || loop < 0 || !(x->a = gx__template_target(p, 0, "in"))) return NULL;
    if (!gx__template_skip_word(p, "in")) return gx__template_unexpected(p, "\"in\""), (GxTemplateNode *)NULL;
    if (!(x->b = gx__template_tuple(p, 0, 0, "recursive"))) return NULL;
    gx__template_bind_target(p, x->a, 1);
    if (gx__template_skip_word(p, "if") && !(x->c = gx__template_expression(p))) return NULL;
    if (gx__template_is_next(p, "recursive"))
        return gx_template_lacks(p->r, "recursive loops are not supported"), (GxTemplateNode *)NULL;
    p->loops++, p->tree->symbol[loop].bound++;
    x->symbol = loop;
    if (!(body = gx__template_inner(p, ends))) return NULL;
    gx__template_bind_target(p, x->a, -1);
    p->loops--, p->tree->symbol[loop].bound--;
    if (gx__template_skip_word(p, "else") && !(otherwise = gx__template_inner(p, end))) return NULL;
    gx__template_next(p); // endfor
    p->in_loop_tag--;
    if (!gx__template_push(p, x, body, NULL, 0) || !gx__template_push(p, x, otherwise, NULL, 0)) return NULL;
    return gx__template_made(p, x);
}

static GxTemplateNode *gx__template_set(GxTemplateParser *p, int line)
{
    static const char *const end[] = {"endset", NULL};
    GxTemplateNode *x = gx__template_node(p, GX_T_SET, line);
    if (!x || !(x->a = gx__template_target(p, 1, NULL))) return NULL;
    if (gx__template_skip(p, '=')) {
        x->b = gx__template_tuple(p, 1, 0, NULL);
        return x->b ? gx__template_made(p, x) : NULL;
    }
    x->kind = GX_T_SET_BLOCK;
    if (gx__template_is_sign(p, '|') && !(x->c = gx__template_node(p, GX_T_BLOCK_TEXT, line))) return NULL;
    while (gx__template_skip(p, '|'))
        if (!(x->c = gx__template_filter_expression(p, x->c))) return NULL;
    p->blocks++;
    x->b = gx__template_inner(p, end);
    p->blocks--;
    if (!x->b) return NULL;
    gx__template_next(p); // endset
    return gx__template_made(p, x);
}

static GxTemplateNode *gx__template_macro(GxTemplateParser *p, int line)
{
    static const char *const end[] = {"endmacro", NULL};
    GxTemplateNode *x = gx__template_node(p, GX_T_DEFINE, line);
    const int loops = p->loops;
    int defaults = 0;
    if (!x || p->t->kind != GX_T_NAME)
        return x ? (gx__template_unexpected(p, "the macro's name"), (GxTemplateNode *)NULL) : NULL;
    x->name = gx__template_next(p)->value.u.s;
    if (!strcmp(x->name, "loop") && p->in_loop_tag)
        return gx_template_lacks(p->r, "a macro \"loop\" is not supported"), (GxTemplateNode *)NULL;
    if ((x->symbol = gx__template_symbol(p, x->name)) < 0 || !gx__template_expect(p, '(')) return NULL;
    p->tree->symbol[x->symbol].stored = 1;
    p->macros++, p->loops = 0;
    while (!gx__template_is_sign(p, ')')) {
        GxTemplateNode *otherwise = NULL;
        if (x->n && !gx__template_expect(p, ',')) return NULL;
        if (p->t->kind != GX_T_NAME) return gx__template_unexpected(p, "a parameter's name"), (GxTemplateNode *)NULL;
        const char *name = gx__template_next(p)->value.u.s;
        const int symbol = gx__template_symbol(p, name);
        for (int i = 0; i < x->n; i++)
            if (!strcmp(x->names[i], name))
                return gx_template_fail(p->r, "the parameter \"%.60s\" is listed twice", name), (GxTemplateNode *)NULL;
        if (symbol < 0) return NULL;
        if (gx__template_skip(p, '=') && (defaults = 1) && !(otherwise = gx__template_expression(p))) return NULL;
        if (defaults && !otherwise)
            return gx__template_unexpected(p, "a default, as the parameter before has"), (GxTemplateNode *)NULL;
        if (!gx__template_push(p, x, otherwise, name, symbol)) return NULL;
        p->tree->symbol[symbol].bound++;
    }
    gx__template_next(p);
    if (!(x->b = gx__template_inner(p, end))) return NULL;
    gx__template_next(p); // endmacro
    for (int i = 0; i < x->n; i++) p->tree->symbol[x->signs[i]].bound--;
    p->macros--, p->loops = loops;
    return gx__template_made(p, x);
}

static GxTemplateNode *gx__template_generation(GxTemplateParser *p, int line)
{
    static const char *const end[] = {"endgeneration", NULL};
    GxTemplateNode *x = gx__template_node(p, GX_T_GENERATION, line);
    const int loops = p->loops;
    if (!x) return NULL;
    // inside these, transformers counts positions in the whole text, which does not contain their text yet
    if (p->macros || p->blocks || p->generations)
        return gx_template_lacks(p->r, "{%% generation %%} inside %s is not supported",
                                 p->macros   ? "a macro"
                                 : p->blocks ? "a {% set %} block"
                                             : "another one"),
               (GxTemplateNode *)NULL;
    p->generations++, p->loops = 0;
    p->tree->has_generation = 1;
    x->b = gx__template_inner(p, end);
    p->generations--, p->loops = loops;
    if (!x->b) return NULL;
    gx__template_next(p); // endgeneration
    return gx__template_made(p, x);
}

static GxTemplateNode *gx__template_leave_loop(GxTemplateParser *p, int line, int breaks)
{
    if (p->loops) return gx__template_node(p, breaks ? GX_T_BREAK : GX_T_CONTINUE, line);
    return gx_template_fail(p->r, "{%% %s %%} outside of a loop", breaks ? "break" : "continue"),
           (GxTemplateNode *)NULL;
}

static GxTemplateNode *gx__template_statement(GxTemplateParser *p)
{
    const int line = p->t->line;
    if (p->t->kind != GX_T_NAME) return gx__template_unexpected(p, "a tag's name"), (GxTemplateNode *)NULL;
    const char *name = gx__template_next(p)->value.u.s;
    if (!strcmp(name, "if")) return gx__template_if(p, line);
    if (!strcmp(name, "for")) return gx__template_for(p, line);
    if (!strcmp(name, "set")) return gx__template_set(p, line);
    if (!strcmp(name, "macro")) return gx__template_macro(p, line);
    if (!strcmp(name, "generation")) return gx__template_generation(p, line);
    if (!strcmp(name, "break") || !strcmp(name, "continue")) return gx__template_leave_loop(p, line, name[0] == 'b');
    if (!strncmp(name, "end", 3) || !strcmp(name, "else") || !strcmp(name, "elif"))
        return gx_template_fail(p->r, "{%% %.60s %%} without its opening tag", name), (GxTemplateNode *)NULL;
    return gx_template_lacks(p->r, "the tag \"%.60s\" is not supported", name), (GxTemplateNode *)NULL;
}

static int gx__template_is_end(const GxTemplateParser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (gx__template_is_word_at(p->t + 1, *ends)) return 1;
    return 0;
}

static GxTemplateNode *gx__template_body(GxTemplateParser *p, const char *const *ends)
{
    GxTemplateNode *x = gx__template_node(p, GX_T_BODY, p->t->line), *one = NULL;
    if (!x || !gx__template_deeper(p)) return NULL;
    const int line = p->r->line;
    while (p->t->kind != GX_T_END) {
        const int at = p->t->line;
        if (p->t->kind == GX_T_DATA) {
            if ((one = gx__template_node(p, GX_T_TEXT, at))) one->value = gx__template_next(p)->value;
        } else if (p->t->kind == GX_T_VARIABLE_BEGIN) {
            gx__template_next(p);
            GxTemplateNode *a = gx__template_tuple(p, 1, 0, NULL);
            if (!a || !(one = gx__template_joining(p, GX_T_PRINT, at, a, NULL))) return NULL;
            if (p->t->kind != GX_T_VARIABLE_END)
                return gx__template_unexpected(p, "the end of the tag, }}"), (GxTemplateNode *)NULL;
            gx__template_next(p);
        } else {
            if (gx__template_is_end(p, ends)) {
                gx__template_next(p);
                p->depth--;
                return gx__template_made(p, x);
            }
            gx__template_next(p);
            if (!(one = gx__template_statement(p)) || !gx__template_block_end(p)) return NULL;
        }
        if (!one || !gx__template_push(p, x, one, NULL, 0)) return NULL;
    }
    p->depth--;
    if (!ends) return gx__template_made(p, x);
    p->r->line = line;
    return gx_template_fail(p->r, "this tag has no {%% %s %%}",
                            ends[1] && ends[2] ? ends[2]
                            : ends[1]          ? ends[1]
                                               : ends[0]),
           (GxTemplateNode *)NULL;
}

// ---- scopes --------------------------------------------------------------------------------------------------------

// In Jinja2 a name belongs to the innermost body (of the template, a loop, a macro …) that names it. If the first
// thing that a body does with a name is to set it, and not below an if, the name is undefined in that body up to there,
// even if a variable of this name exists: for a loop before it that reads the name, or a macro.
typedef struct {
    GxTemplateParser *p;
    GxTemplateNode names; // in signs: the symbols that the body names
    GxTemplateNode *body;
    int number;
} GxTemplateNaming;

static int gx__template_names_in(GxTemplateNaming *z, const GxTemplateNode *x, int below_if);

static int gx__template_named(GxTemplateNaming *z, int symbol, int hides)
{
    GxTemplateSymbol *s = &z->p->tree->symbol[symbol];
    if (s->body == z->number) return 1;
    if (hides && !s->named) {
        GxTemplateNode *b = z->body;
        if ((b->n_hidden & (b->n_hidden - 1)) == 0) {
            const int64_t capacity = b->n_hidden ? 2 * (int64_t)b->n_hidden : 1;
            int *hidden = (int *)gx_template_allocate(z->p->r, capacity * (int64_t)sizeof *hidden);
            if (!hidden) return 0;
            if (b->n_hidden) memcpy(hidden, b->hidden, (size_t)b->n_hidden * sizeof *hidden);
            b->hidden = hidden;
        }
        b->hidden[b->n_hidden++] = symbol;
    }
    s->body = z->number, s->named++;
    return gx__template_push(z->p, &z->names, NULL, NULL, symbol);
}

static int gx__template_names_of_target(GxTemplateNaming *z, const GxTemplateNode *x, int hides)
{
    if (x->kind != GX_T_TO_TUPLE) return gx__template_named(z, x->symbol, hides && x->kind == GX_T_TO_NAME);
    for (int i = 0; i < x->n; i++)
        if (!gx__template_names_of_target(z, x->list[i], hides)) return 0;
    return 1;
}

// Collects the names that a statement or an expression uses in this body itself, in order.
static int gx__template_names_in(GxTemplateNaming *z, const GxTemplateNode *x, int below_if)
{
    if (!x) return 1;
    switch (x->kind) {
    case GX_T_LOAD: return gx__template_named(z, x->symbol, 0);
    case GX_T_FOR: return gx__template_names_in(z, x->b, below_if);
    case GX_T_SET: return gx__template_names_in(z, x->b, below_if) && gx__template_names_of_target(z, x->a, !below_if);
    case GX_T_SET_BLOCK: return gx__template_names_of_target(z, x->a, !below_if);
    case GX_T_DEFINE: return gx__template_named(z, x->symbol, !below_if);
    case GX_T_GENERATION: return 1;
    case GX_T_IF: // elif branches are chained
        for (; x && x->kind == GX_T_IF; x = x->c)
            if (!gx__template_names_in(z, x->a, below_if) || !gx__template_names_in(z, x->b, 1)) return 0;
        return gx__template_names_in(z, x, 1);
    default: break;
    }
    if (!gx__template_names_in(z, x->a, below_if) || !gx__template_names_in(z, x->b, below_if) ||
        !gx__template_names_in(z, x->c, below_if))
        return 0;
    for (int i = 0; x->list && i < x->n; i++)
        if (!gx__template_names_in(z, x->list[i], below_if)) return 0;
    return 1;
}

static int gx__template_inner_bodies(GxTemplateNaming *z, const GxTemplateNode *x);

// Finds the hidden names of a body with a scope, and of those in it. owner: the loop or macro that binds names in it,
// or NULL.
static int gx__template_hide(GxTemplateParser *p, GxTemplateNode *body, const GxTemplateNode *owner)
{
    GxTemplateNaming z;
    memset(&z, 0, sizeof z);
    z.p = p, z.body = body, z.number = ++p->bodies;
    if (owner && owner->kind == GX_T_FOR)
        if (!gx__template_named(&z, owner->symbol, 0) || !gx__template_names_of_target(&z, owner->a, 0)) return 0;
    for (int i = 0; owner && owner->kind == GX_T_DEFINE && i < owner->n; i++)
        if (!gx__template_named(&z, owner->signs[i], 0) || !gx__template_names_in(&z, owner->list[i], 0)) return 0;
    if (!gx__template_names_in(&z, body, 0)) return 0;
    if (!gx__template_inner_bodies(&z, body)) return 0;
    for (int i = 0; i < z.names.n; i++) p->tree->symbol[z.names.signs[i]].named--;
    return 1;
}

static int gx__template_inner_bodies(GxTemplateNaming *z, const GxTemplateNode *x)
{
    for (; x && x->kind == GX_T_IF; x = x->c)
        if (!gx__template_inner_bodies(z, x->b)) return 0;
    if (!x) return 1;
    switch (x->kind) {
    case GX_T_BODY:
        for (int i = 0; i < x->n; i++)
            if (!gx__template_inner_bodies(z, x->list[i])) return 0;
        return 1;
    case GX_T_FOR:
        return gx__template_hide(z->p, x->list[0], x) && (!x->list[1] || gx__template_hide(z->p, x->list[1], NULL));
    case GX_T_DEFINE: return gx__template_hide(z->p, x->b, x);
    case GX_T_SET_BLOCK:
    case GX_T_GENERATION: return gx__template_hide(z->p, x->b, NULL);
    default: return 1;
    }
}

int gx_template_read(GxTemplateRun *r, const char *text, int64_t bytes, GxTemplateTree *tree)
{
    static const char *const not_built[] = {"lipsum", "cycler", "joiner", "self"};
    GxTemplateParser p;
    int64_t n;
    memset(&p, 0, sizeof p);
    memset(tree, 0, sizeof *tree);
    p.r = r, p.tree = tree;
    if (!gx_template_lex(r, text, bytes, &p.t, &n)) return 0;
    if (!(tree->body = gx__template_body(&p, NULL))) return 0;
    if (!gx__template_hide(&p, tree->body, NULL)) return 0;
    for (int i = 0; i < tree->symbols; i++)
        for (int k = 0; k < 4; k++)
            if (tree->symbol[i].read && !tree->symbol[i].stored && !strcmp(tree->symbol[i].name, not_built[k])) {
                r->line = tree->symbol[i].line;
                return gx_template_lacks(r, "\"%s\" is not supported", not_built[k]);
            }
    return 1;
}
#endif
