// template_methods.h: the methods of Python's strings, lists and dicts that chat templates call: text.strip(),
// parameters.items(). Filters use the string functions, too. All of them count characters, not bytes.
//
// Not supported: upper-casing letters beyond ASCII (text without case is unchanged), str.format.
#ifndef GX_TEMPLATE_METHODS_H
#define GX_TEMPLATE_METHODS_H
#include "template_value.h"
GX_BEGIN

typedef struct { // of a call: positional ones first
    GxTemplateValue *v;
    const char **name; // NULL: positional
    int n;
} GxTemplateArgs;

// Matches the arguments to the parameters "width first blank"; one like "old!" is required. Others may be absent.
// `what` is for messages.
enum { GX_TEMPLATE_SLOTS = 4 };
int gx_template_bind(GxTemplateRun *r, const char *what, const char *parameters, const GxTemplateArgs *a,
                     GxTemplateValue slot[GX_TEMPLATE_SLOTS]);
int gx_template_is_absent(GxTemplateValue v);
GxTemplateValue gx_template_or(GxTemplateValue v, GxTemplateValue otherwise); // v; `otherwise` if it is absent

typedef enum { GX_T_UPPER = 0, GX_T_LOWER, GX_T_CAPITALIZE, GX_T_TITLE, GX_T_TITLE_FILTER } GxTemplateCase;
int gx_template_case(GxTemplateRun *r, GxTemplateValue text, GxTemplateCase how, GxTemplateValue *out);
typedef enum { GX_T_LEFT = 1, GX_T_RIGHT = 2, GX_T_BOTH = 3 } GxTemplateSide;
int gx_template_strip(GxTemplateRun *r, GxTemplateValue text, GxTemplateValue chars, GxTemplateSide side,
                      GxTemplateValue *out); // chars: none or absent: white space
int gx_template_replace(GxTemplateRun *r, GxTemplateValue text, GxTemplateValue from, GxTemplateValue to, int64_t most,
                        GxTemplateValue *out);                                             // most < 0: all
int gx_template_split_lines(GxTemplateRun *r, GxTemplateValue text, GxTemplateValue *out); // without line ends
int64_t gx_template_length(GxTemplateValue text);                                          // characters
int64_t gx_template_offset(GxTemplateValue text, int64_t index);                           // where a character begins

// The row of a method of this kind of values; -1: there is none of this name; -2: it would change the value, which a
// template must not.
int gx_template_method(GxTemplateKind kind, const char *name);
int gx_template_method_is_built(const char *name); // of any kind
int gx_template_call_method(GxTemplateRun *r, int method, GxTemplateValue self, const GxTemplateArgs *a,
                            GxTemplateValue *out);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_METHODS_IMPLEMENTED)
#define GX_TEMPLATE_METHODS_IMPLEMENTED
#include <string.h>

// ---- arguments -----------------------------------------------------------------------------------------------------

static GxTemplateValue gx__template_absent(void)
{
    GxTemplateValue v = gx_template_undefined(NULL);
    v.n = -1;
    return v;
}
int gx_template_is_absent(GxTemplateValue v) { return v.kind == GX_T_UNDEFINED && v.n == -1; }
GxTemplateValue gx_template_or(GxTemplateValue v, GxTemplateValue otherwise)
{
    return gx_template_is_absent(v) ? otherwise : v;
}

// The i-th word of the parameters; 0: none.
static int gx__template_parameter(const char *parameters, int i, const char **at, int64_t *n, int *required)
{
    for (; i >= 0; i--) {
        parameters += strspn(parameters, " ");
        if (!*parameters) return 0;
        *at = parameters, *n = (int64_t)strcspn(parameters, " !");
        parameters += *n;
        *required = *parameters == '!';
        parameters += *required;
    }
    return 1;
}

int gx_template_bind(GxTemplateRun *r, const char *what, const char *parameters, const GxTemplateArgs *a,
                     GxTemplateValue slot[GX_TEMPLATE_SLOTS])
{
    const char *at;
    int64_t n;
    int slots = 0, required;
    while (gx__template_parameter(parameters, slots, &at, &n, &required)) slot[slots++] = gx__template_absent();
    for (int i = 0; i < a->n; i++) {
        int k = i;
        if (a->name[i]) {
            for (k = 0; gx__template_parameter(parameters, k, &at, &n, &required); k++)
                if (n == (int64_t)strlen(a->name[i]) && !memcmp(at, a->name[i], (size_t)n)) break;
            if (k == slots) return gx_template_fail(r, "%s takes no \"%.60s\"", what, a->name[i]);
            if (!gx_template_is_absent(slot[k]))
                return gx_template_fail(r, "%s gets \"%.60s\" twice", what, a->name[i]);
        }
        if (k >= slots)
            return gx_template_fail(r, "%s takes at most %d argument%s", what, slots, slots == 1 ? "" : "s");
        slot[k] = a->v[i];
        slot[k].n = slot[k].kind == GX_T_UNDEFINED ? 0 : slot[k].n; // given, if undefined
    }
    for (int k = 0; gx__template_parameter(parameters, k, &at, &n, &required); k++)
        if (required && gx_template_is_absent(slot[k])) return gx_template_fail(r, "%s needs another argument", what);
    return 1;
}

static int gx__template_want(GxTemplateRun *r, GxTemplateValue v, GxTemplateKind kind, const char *what)
{
    GxTemplateValue expected = gx_template_none();
    expected.kind = kind;
    return v.kind == kind ||
           gx_template_fail(r, "%s is %s; expected %s", what, gx_template_type(v), gx_template_type(expected));
}

// ---- strings -------------------------------------------------------------------------------------------------------

int64_t gx_template_length(GxTemplateValue text) { return gx_text_columns(text.u.s, text.n); }

int64_t gx_template_offset(GxTemplateValue text, int64_t index)
{
    int64_t at = 0;
    for (; index > 0 && at < text.n; index--) do
            at++;
        while (at < text.n && ((unsigned char)text.u.s[at] & 0xC0) == 0x80);
    return at;
}

// 1: the letter has a case, or changes when upper- or lower-cased.
static int gx__template_has_case(uint32_t c)
{
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return c == 0x345 || (c >= 0x2160 && c <= 0x2188) || (c >= 0x24B6 && c <= 0x24E9) || gx_template_is_in("Lu", c) ||
           gx_template_is_in("Ll", c) || gx_template_is_in("Lt", c) || gx_template_is_in("Lm", c);
}

static int gx__template_put_case(GxTemplateRun *r, GxTemplateBuilder *b, uint32_t c, int upper)
{
    uint32_t lower[2] = {c, 0};
    char text[8];
    int n = 1;
    if (upper && c >= 0x80 && gx__template_has_case(c))
        return gx_template_lacks(r, "the upper case of U+%04X is not supported (of ASCII letters it is)", (unsigned)c);
    if (upper) lower[0] = c >= 'a' && c <= 'z' ? c - 32 : c;
    else if (c == 0x3A3) return gx_template_lacks(r, "the lower case of U+03A3 is not supported");
    else n = gx_unicode_lower(c, lower);
    for (int i = 0; i < n; i++)
        if (!gx_template_put(r, b, text, gx_unicode_encode(lower[i], text))) return 0;
    return 1;
}

int gx_template_case(GxTemplateRun *r, GxTemplateValue text, GxTemplateCase how, GxTemplateValue *out)
{
    GxTemplateBuilder b = GX_ZERO;
    int begins = 1; // a word
    if (!gx_template_work(r, text.n)) return 0;
    for (int64_t i = 0; i < text.n;) {
        uint32_t c;
        i += gx_unicode_decode(text.u.s + i, text.u.s + text.n, &c);
        if (c >= 0x80 && !gx_template_work(r, 40)) return 0;
        if (!gx__template_put_case(r, &b, c, how == GX_T_UPPER || (how != GX_T_LOWER && begins))) return 0;
        if (how == GX_T_TITLE) begins = !gx__template_has_case(c);
        else if (how == GX_T_TITLE_FILTER)
            begins = gx_unicode_is_python_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
        else begins = 0;
    }
    *out = gx_template_built(&b);
    return 1;
}

static int gx__template_has_character(GxTemplateValue chars, const char *p, int64_t bytes)
{
    for (int64_t i = 0; i < chars.n;) {
        uint32_t c;
        const int n = gx_unicode_decode(chars.u.s + i, chars.u.s + chars.n, &c);
        if (n == bytes && !memcmp(chars.u.s + i, p, (size_t)n)) return 1;
        i += n;
    }
    return 0;
}

int gx_template_strip(GxTemplateRun *r, GxTemplateValue text, GxTemplateValue chars, GxTemplateSide side,
                      GxTemplateValue *out)
{
    const int space = gx_template_is_absent(chars) || chars.kind == GX_T_NONE;
    int64_t begin = 0, end = text.n;
    uint32_t c;
    if (!space && !gx__template_want(r, chars, GX_T_STRING, "what is stripped")) return 0;
    while ((side & GX_T_LEFT) && begin < end) {
        const int n = gx_unicode_decode(text.u.s + begin, text.u.s + end, &c);
        if (!(space ? gx_unicode_is_python_space(c) : gx__template_has_character(chars, text.u.s + begin, n))) break;
        if (!gx_template_work(r, 1 + (space ? 0 : chars.n / 4))) return 0;
        begin += n;
    }
    while ((side & GX_T_RIGHT) && begin < end) {
        int64_t at = end - 1;
        while (at > begin && ((unsigned char)text.u.s[at] & 0xC0) == 0x80) at--;
        gx_unicode_decode(text.u.s + at, text.u.s + end, &c);
        if (!(space ? gx_unicode_is_python_space(c) : gx__template_has_character(chars, text.u.s + at, end - at)))
            break;
        if (!gx_template_work(r, 1 + (space ? 0 : chars.n / 4))) return 0;
        end = at;
    }
    *out = gx_template_string(text.u.s + begin, end - begin);
    return 1;
}

int gx_template_replace(GxTemplateRun *r, GxTemplateValue text, GxTemplateValue from, GxTemplateValue to, int64_t most,
                        GxTemplateValue *out)
{
    GxTemplateBuilder b = GX_ZERO;
    const char *p = text.u.s, *end = p + text.n;
    if (!gx_template_work(r, text.n / 16)) return 0;
    while (most != 0) { // an empty text occurs before each character, and at the end
        const char *at = from.n ? gx_template_find(r, p, end, from.u.s, from.n) : p;
        if (!at) break;
        if (!gx_template_work(r, 1) || !gx_template_put(r, &b, p, at - p) || !gx_template_put(r, &b, to.u.s, to.n))
            return 0;
        p = at + from.n;
        most -= most > 0;
        if (from.n) continue;
        if (p == end) break;
        uint32_t c;
        const int n = gx_unicode_decode(p, end, &c);
        if (!gx_template_put(r, &b, p, n)) return 0;
        p += n;
    }
    if (!gx_template_put(r, &b, p, end - p)) return 0;
    *out = gx_template_built(&b);
    return 1;
}

typedef struct { // a list that grows
    GxTemplateValue *v;
    int64_t n, capacity;
} GxTemplateParts;

static int gx__template_add_part(GxTemplateRun *r, GxTemplateParts *x, const char *s, int64_t bytes)
{
    if (!gx_template_work(r, 1)) return 0;
    if (x->n == x->capacity) {
        const int64_t capacity = 2 * x->capacity + 8;
        GxTemplateValue *grown = (GxTemplateValue *)gx_template_allocate(r, capacity * (int64_t)sizeof *grown);
        if (!grown) return 0;
        if (x->n) memcpy(grown, x->v, (size_t)x->n * sizeof *grown);
        x->v = grown, x->capacity = capacity;
    }
    x->v[x->n++] = gx_template_string(s, bytes);
    return 1;
}

int gx_template_split_lines(GxTemplateRun *r, GxTemplateValue text, GxTemplateValue *out)
{
    GxTemplateParts x = GX_ZERO;
    const char *p = text.u.s, *end = p + text.n;
    if (!gx_template_work(r, text.n)) return 0;
    while (p < end) {
        const char *at = p, *next = NULL;
        for (uint32_t c; at < end && !next;) {
            const int n = gx_unicode_decode(at, end, &c);
            const int ends =
                (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
            if (ends) next = at + n + (c == '\r' && at + 1 < end && at[1] == '\n');
            else at += n;
        }
        if (!gx__template_add_part(r, &x, p, at - p)) return 0;
        p = next ? next : end;
    }
    *out = gx_template_list(GX_T_LIST, x.v, x.n);
    return 1;
}

// ---- methods -------------------------------------------------------------------------------------------------------

#define GX__TEMPLATE_METHOD(name)                                                                                      \
    static int gx__template_do_##name(GxTemplateRun *r, GxTemplateValue self, const GxTemplateValue *slot,             \
                                      GxTemplateValue *out)

GX__TEMPLATE_METHOD(upper) { return (void)slot, gx_template_case(r, self, GX_T_UPPER, out); }
GX__TEMPLATE_METHOD(lower) { return (void)slot, gx_template_case(r, self, GX_T_LOWER, out); }
GX__TEMPLATE_METHOD(capitalize) { return (void)slot, gx_template_case(r, self, GX_T_CAPITALIZE, out); }
GX__TEMPLATE_METHOD(title) { return (void)slot, gx_template_case(r, self, GX_T_TITLE, out); }
GX__TEMPLATE_METHOD(strip) { return gx_template_strip(r, self, slot[0], GX_T_BOTH, out); }
GX__TEMPLATE_METHOD(lstrip) { return gx_template_strip(r, self, slot[0], GX_T_LEFT, out); }
GX__TEMPLATE_METHOD(rstrip) { return gx_template_strip(r, self, slot[0], GX_T_RIGHT, out); }

static int gx__template_ends_with(GxTemplateValue text, GxTemplateValue part, int at_end)
{
    return part.n <= text.n && !memcmp(text.u.s + (at_end ? text.n - part.n : 0), part.u.s, (size_t)part.n);
}

static int gx__template_at_border(GxTemplateRun *r, GxTemplateValue self, GxTemplateValue part, int at_end,
                                  GxTemplateValue *out)
{
    int found = 0;
    const int64_t n = part.kind == GX_T_TUPLE ? part.n : 1;
    for (int64_t i = 0; i < n && !found; i++) {
        const GxTemplateValue one = part.kind == GX_T_TUPLE ? part.u.list[i] : part;
        if (!gx__template_want(r, one, GX_T_STRING, at_end ? "what endswith looks for" : "what startswith looks for"))
            return 0;
        if (!gx_template_work(r, 1 + one.n / 16)) return 0;
        found = gx__template_ends_with(self, one, at_end);
    }
    *out = gx_template_bool(found);
    return 1;
}
GX__TEMPLATE_METHOD(startswith) { return gx__template_at_border(r, self, slot[0], 0, out); }
GX__TEMPLATE_METHOD(endswith) { return gx__template_at_border(r, self, slot[0], 1, out); }

GX__TEMPLATE_METHOD(removeprefix)
{
    if (!gx__template_want(r, slot[0], GX_T_STRING, "a prefix")) return 0;
    const int64_t n = gx__template_ends_with(self, slot[0], 0) ? slot[0].n : 0;
    *out = gx_template_string(self.u.s + n, self.n - n);
    return 1;
}
GX__TEMPLATE_METHOD(removesuffix)
{
    if (!gx__template_want(r, slot[0], GX_T_STRING, "a suffix")) return 0;
    *out = gx_template_string(self.u.s, self.n - (gx__template_ends_with(self, slot[0], 1) ? slot[0].n : 0));
    return 1;
}

GX__TEMPLATE_METHOD(replace)
{
    const GxTemplateValue most = gx_template_or(slot[2], gx_template_int(-1));
    if (!gx__template_want(r, slot[0], GX_T_STRING, "what is replaced")) return 0;
    if (!gx__template_want(r, slot[1], GX_T_STRING, "what it is replaced by")) return 0;
    if (most.kind != GX_T_INT && most.kind != GX_T_BOOL)
        return gx__template_want(r, most, GX_T_INT, "how many are replaced");
    return gx_template_replace(r, self, slot[0], slot[1], most.u.i, out);
}

GX__TEMPLATE_METHOD(find)
{
    if (!gx__template_want(r, slot[0], GX_T_STRING, "what find looks for")) return 0;
    const char *at = gx_template_find(r, self.u.s, self.u.s + self.n, slot[0].u.s, slot[0].n);
    *out = gx_template_int(at ? gx_text_columns(self.u.s, at - self.u.s) : -1);
    return gx_template_work(r, self.n / 16);
}
GX__TEMPLATE_METHOD(index)
{
    if (!gx__template_do_find(r, self, slot, out)) return 0;
    return out->u.i >= 0 || gx_template_fail(r, "index: it is not in there");
}
GX__TEMPLATE_METHOD(count)
{
    int64_t n = 0;
    if (!gx__template_want(r, slot[0], GX_T_STRING, "what is counted")) return 0;
    if (!slot[0].n) return *out = gx_template_int(gx_template_length(self) + 1), gx_template_work(r, self.n / 16);
    for (const char *p = self.u.s, *end = p + self.n; (p = gx_template_find(r, p, end, slot[0].u.s, slot[0].n)); n++)
        p += slot[0].n;
    *out = gx_template_int(n);
    return gx_template_work(r, self.n / 16);
}

// Splits "a b" at white space, from the left or from the right, at most `most` times.
static int gx__template_split_space(GxTemplateRun *r, GxTemplateValue self, int64_t most, int right, GxTemplateParts *x)
{
    const GxTemplateValue absent = gx__template_absent();
    GxTemplateValue rest;
    if (!gx_template_work(r, self.n)) return 0;
    if (!gx_template_strip(r, self, absent, right ? GX_T_RIGHT : GX_T_LEFT, &rest)) return 0;
    while (rest.n) {
        int64_t n = 0; // bytes of the word
        uint32_t c = 0;
        while (n < rest.n) {
            int64_t at = right ? rest.n - n - 1 : n;
            while (right && ((unsigned char)rest.u.s[at] & 0xC0) == 0x80) at--;
            const int bytes = gx_unicode_decode(rest.u.s + at, rest.u.s + rest.n, &c);
            if (gx_unicode_is_python_space(c)) break;
            n += bytes;
        }
        if (most >= 0 && x->n >= most) return gx__template_add_part(r, x, rest.u.s, rest.n);
        if (!gx__template_add_part(r, x, right ? rest.u.s + rest.n - n : rest.u.s, n)) return 0;
        rest = gx_template_string(right ? rest.u.s : rest.u.s + n, rest.n - n);
        if (!gx_template_strip(r, rest, absent, right ? GX_T_RIGHT : GX_T_LEFT, &rest)) return 0;
    }
    return 1;
}

static int gx__template_split_at(GxTemplateRun *r, GxTemplateValue self, GxTemplateValue at, int64_t most, int right,
                                 GxTemplateParts *x)
{
    const char *p = self.u.s, *end = p + self.n;
    if (!gx_template_work(r, self.n / 16)) return 0;
    while (most < 0 || x->n < most) {
        const char *found = (right ? gx_template_find_last : gx_template_find)(r, p, end, at.u.s, at.n);
        if (!found) break;
        if (!gx__template_add_part(r, x, right ? found + at.n : p, right ? end - found - at.n : found - p)) return 0;
        if (right) end = found;
        else p = found + at.n;
    }
    return gx__template_add_part(r, x, p, end - p);
}

static int gx__template_split_either(GxTemplateRun *r, GxTemplateValue self, const GxTemplateValue *slot, int right,
                                     GxTemplateValue *out)
{
    const GxTemplateValue at = gx_template_or(slot[0], gx_template_none()),
                          most = gx_template_or(slot[1], gx_template_int(-1));
    GxTemplateParts x = GX_ZERO;
    if (most.kind != GX_T_INT && most.kind != GX_T_BOOL)
        return gx__template_want(r, most, GX_T_INT, "split's maxsplit");
    if (at.kind == GX_T_NONE) {
        if (!gx__template_split_space(r, self, most.u.i, right, &x)) return 0;
    } else {
        if (!gx__template_want(r, at, GX_T_STRING, "split's separator")) return 0;
        if (!at.n) return gx_template_fail(r, "split needs a separator that is not empty");
        if (right && !gx_template_work(r, self.n / 16 * gx_min(at.n, 16))) return 0;
        if (!gx__template_split_at(r, self, at, most.u.i, right, &x)) return 0;
    }
    for (int64_t i = 0; right && i < x.n / 2; i++) {
        const GxTemplateValue t = x.v[i];
        x.v[i] = x.v[x.n - 1 - i], x.v[x.n - 1 - i] = t;
    }
    *out = gx_template_list(GX_T_LIST, x.v, x.n);
    return 1;
}
GX__TEMPLATE_METHOD(split) { return gx__template_split_either(r, self, slot, 0, out); }
GX__TEMPLATE_METHOD(rsplit) { return gx__template_split_either(r, self, slot, 1, out); }
GX__TEMPLATE_METHOD(splitlines) { return (void)slot, gx_template_split_lines(r, self, out); }

GX__TEMPLATE_METHOD(join)
{
    GxTemplateBuilder b = GX_ZERO;
    GxTemplateValue *list;
    int64_t n;
    if (!gx_template_iterate(r, slot[0], &list, &n)) return 0;
    for (int64_t i = 0; i < n; i++) {
        if (!gx__template_want(r, list[i], GX_T_STRING, "what is joined")) return 0;
        if (list[i].flag) return gx_template_lacks(r, "joining a text that is |safe or |escape is not supported");
        if (i && !gx_template_put(r, &b, self.u.s, self.n)) return 0;
        if (!gx_template_put(r, &b, list[i].u.s, list[i].n)) return 0;
    }
    *out = gx_template_built(&b);
    return 1;
}

static int gx__template_all(GxTemplateRun *r, GxTemplateValue self, int digits, GxTemplateValue *out)
{
    int all = self.n > 0;
    for (int64_t i = 0; i < self.n && all;) {
        uint32_t c;
        i += gx_unicode_decode(self.u.s + i, self.u.s + self.n, &c);
        if (digits && c >= 0x80 && gx_unicode_is_number(c))
            return gx_template_lacks(r, "isdigit of U+%04X is not supported", (unsigned)c);
        all = digits ? c >= '0' && c <= '9' : gx_unicode_is_python_space(c);
    }
    *out = gx_template_bool(all);
    return gx_template_work(r, self.n);
}
GX__TEMPLATE_METHOD(isdigit) { return (void)slot, gx__template_all(r, self, 1, out); }
GX__TEMPLATE_METHOD(isspace) { return (void)slot, gx__template_all(r, self, 0, out); }

GX__TEMPLATE_METHOD(get)
{
    int64_t at;
    if (!gx_template_dict_find(r, self.u.dict, slot[0], &at)) return 0;
    *out = at >= 0 ? self.u.dict->value[at] : gx_template_or(slot[1], gx_template_none());
    return 1;
}
GX__TEMPLATE_METHOD(keys)
{
    (void)slot, (void)r;
    *out = gx_template_list(GX_T_VIEW, self.u.dict->key, self.u.dict->n);
    out->flag = GX_T_KEYS;
    return 1;
}
GX__TEMPLATE_METHOD(values)
{
    (void)slot, (void)r;
    *out = gx_template_list(GX_T_VIEW, self.u.dict->value, self.u.dict->n);
    out->flag = GX_T_VALUES;
    return 1;
}
GX__TEMPLATE_METHOD(items)
{
    const int64_t n = self.u.dict->n, size = (int64_t)sizeof(GxTemplateValue);
    GxTemplateValue *list = (GxTemplateValue *)gx_template_allocate(r, 3 * n * size), *pair = list + n;
    (void)slot;
    if (!list || !gx_template_work(r, n)) return 0;
    for (int64_t i = 0; i < n; i++, pair += 2) {
        pair[0] = self.u.dict->key[i], pair[1] = self.u.dict->value[i];
        list[i] = gx_template_list(GX_T_TUPLE, pair, 2);
    }
    *out = gx_template_list(GX_T_VIEW, list, n);
    out->flag = GX_T_ITEMS;
    return 1;
}
GX__TEMPLATE_METHOD(copy)
{
    (void)slot;
    if (self.kind == GX_T_LIST) {
        *out = self;
        out->u.list = (GxTemplateValue *)gx_template_allocate(r, self.n * (int64_t)sizeof self);
        if (out->u.list && self.n) memcpy(out->u.list, self.u.list, (size_t)self.n * sizeof self);
        return out->u.list != NULL && gx_template_work(r, self.n);
    }
    if (!gx_template_new_dict(r, GX_T_DICT, out) || !gx_template_work(r, self.u.dict->n)) return 0;
    const int64_t n = self.u.dict->n;
    for (int64_t i = 0; i < n; i++)
        if (!gx_template_dict_set(r, out->u.dict, self.u.dict->key[i], self.u.dict->value[i])) return 0;
    return 1;
}
GX__TEMPLATE_METHOD(list_index)
{
    int same = 0;
    for (int64_t i = 0; i < self.n; i++) {
        if (!gx_template_equal(r, self.u.list[i], slot[0], &same)) return 0;
        if (same) return *out = gx_template_int(i), 1;
    }
    return gx_template_fail(r, "index: it is not in there");
}
GX__TEMPLATE_METHOD(list_count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < self.n; i++) {
        int same;
        if (!gx_template_equal(r, self.u.list[i], slot[0], &same)) return 0;
        n += same;
    }
    *out = gx_template_int(n);
    return 1;
}

typedef int (*GxTemplateMethod)(GxTemplateRun *, GxTemplateValue, const GxTemplateValue *, GxTemplateValue *);

// "_": a positional parameter. call NULL: not supported; parameters NULL: it would change the value, which a template
// must not. These are all public methods of these kinds in Python.
static const struct {
    GxTemplateKind kind;
    const char *name, *parameters;
    GxTemplateMethod call;
} gx__template_methods[] = {
    {GX_T_STRING, "capitalize", "", gx__template_do_capitalize},
    {GX_T_STRING, "count", "_!", gx__template_do_count},
    {GX_T_STRING, "endswith", "_!", gx__template_do_endswith},
    {GX_T_STRING, "find", "_!", gx__template_do_find},
    {GX_T_STRING, "index", "_!", gx__template_do_index},
    {GX_T_STRING, "isdigit", "", gx__template_do_isdigit},
    {GX_T_STRING, "isspace", "", gx__template_do_isspace},
    {GX_T_STRING, "join", "_!", gx__template_do_join},
    {GX_T_STRING, "lower", "", gx__template_do_lower},
    {GX_T_STRING, "lstrip", "_", gx__template_do_lstrip},
    {GX_T_STRING, "removeprefix", "_!", gx__template_do_removeprefix},
    {GX_T_STRING, "removesuffix", "_!", gx__template_do_removesuffix},
    {GX_T_STRING, "replace", "_! _! _", gx__template_do_replace},
    {GX_T_STRING, "rsplit", "sep maxsplit", gx__template_do_rsplit},
    {GX_T_STRING, "rstrip", "_", gx__template_do_rstrip},
    {GX_T_STRING, "split", "sep maxsplit", gx__template_do_split},
    {GX_T_STRING, "splitlines", "", gx__template_do_splitlines},
    {GX_T_STRING, "startswith", "_!", gx__template_do_startswith},
    {GX_T_STRING, "strip", "_", gx__template_do_strip},
    {GX_T_STRING, "title", "", gx__template_do_title},
    {GX_T_STRING, "upper", "", gx__template_do_upper},
    {GX_T_STRING, "casefold", "", NULL},
    {GX_T_STRING, "center", "", NULL},
    {GX_T_STRING, "encode", "", NULL},
    {GX_T_STRING, "expandtabs", "", NULL},
    {GX_T_STRING, "format", "", NULL},
    {GX_T_STRING, "format_map", "", NULL},
    {GX_T_STRING, "isalnum", "", NULL},
    {GX_T_STRING, "isalpha", "", NULL},
    {GX_T_STRING, "isascii", "", NULL},
    {GX_T_STRING, "isdecimal", "", NULL},
    {GX_T_STRING, "isidentifier", "", NULL},
    {GX_T_STRING, "islower", "", NULL},
    {GX_T_STRING, "isnumeric", "", NULL},
    {GX_T_STRING, "isprintable", "", NULL},
    {GX_T_STRING, "istitle", "", NULL},
    {GX_T_STRING, "isupper", "", NULL},
    {GX_T_STRING, "ljust", "", NULL},
    {GX_T_STRING, "maketrans", "", NULL},
    {GX_T_STRING, "partition", "", NULL},
    {GX_T_STRING, "rfind", "", NULL},
    {GX_T_STRING, "rindex", "", NULL},
    {GX_T_STRING, "rjust", "", NULL},
    {GX_T_STRING, "rpartition", "", NULL},
    {GX_T_STRING, "swapcase", "", NULL},
    {GX_T_STRING, "translate", "", NULL},
    {GX_T_STRING, "zfill", "", NULL},
    {GX_T_DICT, "copy", "", gx__template_do_copy},
    {GX_T_DICT, "get", "_! _", gx__template_do_get},
    {GX_T_DICT, "items", "", gx__template_do_items},
    {GX_T_DICT, "keys", "", gx__template_do_keys},
    {GX_T_DICT, "values", "", gx__template_do_values},
    {GX_T_DICT, "fromkeys", "", NULL},
    {GX_T_DICT, "clear", NULL, NULL},
    {GX_T_DICT, "pop", NULL, NULL},
    {GX_T_DICT, "popitem", NULL, NULL},
    {GX_T_DICT, "setdefault", NULL, NULL},
    {GX_T_DICT, "update", NULL, NULL},
    {GX_T_LIST, "copy", "", gx__template_do_copy},
    {GX_T_LIST, "count", "_!", gx__template_do_list_count},
    {GX_T_LIST, "index", "_!", gx__template_do_list_index},
    {GX_T_LIST, "append", NULL, NULL},
    {GX_T_LIST, "clear", NULL, NULL},
    {GX_T_LIST, "extend", NULL, NULL},
    {GX_T_LIST, "insert", NULL, NULL},
    {GX_T_LIST, "pop", NULL, NULL},
    {GX_T_LIST, "remove", NULL, NULL},
    {GX_T_LIST, "reverse", NULL, NULL},
    {GX_T_LIST, "sort", NULL, NULL},
    {GX_T_TUPLE, "count", "_!", gx__template_do_list_count},
    {GX_T_TUPLE, "index", "_!", gx__template_do_list_index},
    {GX_T_RANGE, "count", "_!", gx__template_do_list_count},
    {GX_T_RANGE, "index", "_!", gx__template_do_list_index},
    {GX_T_RANGE, "start", "", NULL},
    {GX_T_RANGE, "step", "", NULL},
    {GX_T_RANGE, "stop", "", NULL},
    {GX_T_VIEW, "isdisjoint", "", NULL},
    {GX_T_VIEW, "mapping", "", NULL},
    {GX_T_INT, "as_integer_ratio", "", NULL},
    {GX_T_INT, "bit_count", "", NULL},
    {GX_T_INT, "bit_length", "", NULL},
    {GX_T_INT, "conjugate", "", NULL},
    {GX_T_INT, "denominator", "", NULL},
    {GX_T_INT, "from_bytes", "", NULL},
    {GX_T_INT, "imag", "", NULL},
    {GX_T_INT, "is_integer", "", NULL},
    {GX_T_INT, "numerator", "", NULL},
    {GX_T_INT, "real", "", NULL},
    {GX_T_INT, "to_bytes", "", NULL},
    {GX_T_FLOAT, "as_integer_ratio", "", NULL},
    {GX_T_FLOAT, "conjugate", "", NULL},
    {GX_T_FLOAT, "fromhex", "", NULL},
    {GX_T_FLOAT, "hex", "", NULL},
    {GX_T_FLOAT, "imag", "", NULL},
    {GX_T_FLOAT, "is_integer", "", NULL},
    {GX_T_FLOAT, "real", "", NULL},
};
enum { GX__TEMPLATE_METHODS = sizeof gx__template_methods / sizeof *gx__template_methods };

int gx_template_method(GxTemplateKind kind, const char *name)
{
    if (kind == GX_T_BOOL) kind = GX_T_INT;
    for (int i = 0; i < GX__TEMPLATE_METHODS; i++)
        if (gx__template_methods[i].kind == kind && !strcmp(gx__template_methods[i].name, name))
            return gx__template_methods[i].parameters ? i : -2;
    return -1;
}

int gx_template_method_is_built(const char *name)
{
    for (int i = 0; i < GX__TEMPLATE_METHODS; i++)
        if (!strcmp(gx__template_methods[i].name, name) &&
            (gx__template_methods[i].call || !gx__template_methods[i].parameters))
            return 1; // a method that changes its value is refused when it is called, as in transformers
    return 0;
}

int gx_template_call_method(GxTemplateRun *r, int method, GxTemplateValue self, const GxTemplateArgs *a,
                            GxTemplateValue *out)
{
    GxTemplateValue slot[GX_TEMPLATE_SLOTS];
    const char *name = gx__template_methods[method].name;
    if (!gx__template_methods[method].call)
        return gx_template_lacks(r, "the method \"%s\" of %s is not supported", name, gx_template_type(self));
    if (self.kind == GX_T_STRING && self.flag)
        return gx_template_lacks(r, "methods of a text that is |safe or |escape are not supported");
    // Python's further arguments, such as the place to search from
    if (a->n > 1 && self.kind == GX_T_STRING && strstr("count endswith find index startswith", name))
        return gx_template_lacks(r, "the method \"%s\" with a start or end is not supported", name);
    if (!strcmp(name, "splitlines") && a->n) return gx_template_lacks(r, "splitlines(keepends) is not supported");
    return gx_template_bind(r, name, gx__template_methods[method].parameters, a, slot) &&
           gx__template_methods[method].call(r, self, slot, out);
}
#endif
