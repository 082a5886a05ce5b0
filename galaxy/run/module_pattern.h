// module_pattern.h: regular expressions that select modules of a model, like target_modules in the package peft when it
// is not a list: the expression must match the whole name of a module, such as model.layers.0.self_attn.q_proj.
//
// They are written for Python's re. What regex.h supports is supported, and \d \w \D \W (for ASCII, since names of
// modules are ASCII); anything else is refused by name. Nothing is kept open: a pattern is compiled for each name.
//
// Also numbers of modules, as in peft's rank_pattern and alpha_pattern: a JSON object, {"q_proj": 8,
// "layers\\.[01]\\..*": 4}, whose keys are regular expressions for the end of a module's name: what precedes the match
// must be empty or end with a dot. The first matching key is used. A key without special characters needs no PCRE2; a
// dot in it still matches any character.
#ifndef GX_MODULE_PATTERN_H
#define GX_MODULE_PATTERN_H
#include "../io/json.h"
#include "../text/regex.h"
GX_BEGIN

// 1: it contains a character that does not occur in lists of names: one of \ * + ? [ ] ( ) { } | ^ $
int gx_module_is_pattern(const char *text);
// Refuses invalid and unsupported regular expressions. where: the beginning of messages.
GxStatus gx_module_pattern_check(const char *pattern, const char *where, GxError *err);
int gx_module_pattern_finds(const char *pattern, const char *module); // 1: it matches the whole name
// 1: it matches the end of the name, as a key does
int gx_module_pattern_ends(const char *pattern, const char *module);

typedef struct { // which numbers are allowed
    double least, most;
    int whole; // 1: only integers
} GxModuleNumbers;
// Checks such an object. *text: a new text for gx_module_number, to be freed; "" for {}.
GxStatus gx_module_numbers_take(char **text, const GxJson *object, GxModuleNumbers may, const char *where,
                                GxError *err);
// The same from an option: "", such an object as text, or q_proj=8,v_proj=4. The result replaces the text in its
// buffer.
GxStatus gx_module_numbers_parse(char *text, size_t size, GxModuleNumbers may, const char *where, GxError *err);
// The module's number; `otherwise` if no key matches.
double gx_module_number(const char *numbers, const char *module, double otherwise);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODULE_PATTERN_IMPLEMENTED)
#define GX_MODULE_PATTERN_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../base/text.h"

int gx_module_is_pattern(const char *text) { return text[strcspn(text, "\\*+?[](){}|^$")] != 0; }

enum { GX__MODULE_PATTERN_MOST = 1 << 16 };

// \d, \w, \D and \W as classes; NULL: it is another escape.
static const char *gx__module_pattern_class(char c, int in_class)
{
    switch (c) {
    case 'd': return in_class ? "0-9" : "[0-9]";
    case 'w': return in_class ? "a-zA-Z0-9_" : "[a-zA-Z0-9_]";
    case 'D': return in_class ? NULL : "[^0-9]";
    case 'W': return in_class ? NULL : "[^a-zA-Z0-9_]";
    default: return NULL;
    }
}

// The pattern must match a whole name and the newline after it (before which $ matches, too). Without the newline,
// regex.h would refuse patterns that can match the empty text.
static GxStatus gx__module_pattern_translate(const char *pattern, const char *where, char *out, size_t size,
                                             GxError *err)
{
    int in_class = 0, depth = 0;
    size_t n = (size_t)snprintf(out, size, "^(?:");
    for (const char *p = pattern; *p && n < size; p++) {
        const char *class_of = *p == '\\' ? gx__module_pattern_class(p[1], in_class) : NULL;
        const int taken = class_of || (*p == '\\' && p[1]) ? 2 : 1;
        if (class_of) n += (size_t)snprintf(out + n, size - n, "%s", class_of);
        else n += (size_t)snprintf(out + n, size - n, "%.*s", taken, p);
        if (taken == 1) {
            depth += !in_class && *p == '(' ? 1 : !in_class && *p == ')' ? -1 : 0;
            in_class = *p == '[' ? 1 : *p == ']' ? 0 : in_class;
        }
        if (depth < 0)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: the regular expression \"%.200s\" has a ) without a (", where,
                           pattern);
        p += taken - 1;
    }
    if (n < size) n += (size_t)snprintf(out + n, size - n, ")\\n");
    if (n < size) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: a regular expression has more than %d bytes", where, (int)size - 1);
}

static GxStatus gx__module_pattern_open(GxRegex **r, const char *pattern, const char *where, GxError *err)
{
    static const char not_built[] = "%s: \"%.200s\" is a regular expression, but this was built without PCRE2; list "
                                    "the names, or install libpcre2-dev and build again";
    *r = NULL;
    if (!gx_regex_is_built()) return GX_FAIL(err, GX_ERR_UNSUPPORTED, not_built, where, pattern);
    char *text = (char *)malloc(GX__MODULE_PATTERN_MOST);
    if (!text) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a regular expression");
    GxStatus status = gx__module_pattern_translate(pattern, where, text, GX__MODULE_PATTERN_MOST, err);
    if (status == GX_OK) status = gx_regex_open(r, text, where, err);
    free(text);
    return status;
}

GxStatus gx_module_pattern_check(const char *pattern, const char *where, GxError *err)
{
    GxRegex *r;
    const GxStatus status = gx__module_pattern_open(&r, pattern, where, err);
    gx_regex_close(r);
    return status;
}

int gx_module_pattern_finds(const char *pattern, const char *module)
{
    char line[512];
    GxRegex *r;
    GxRegexRoom room = GX_ZERO;
    GxError ignored = GX_ZERO; // gx_module_pattern_check reports it
    int64_t start = -1, end = -1;
    const int n = snprintf(line, sizeof line, "%s\n", module);
    if (n >= (int)sizeof line || gx__module_pattern_open(&r, pattern, "", &ignored) != GX_OK) return 0;
    gx_regex_find(r, &room, line, n, 0, &start, &end, &ignored);
    gx_regex_room_close(&room);
    gx_regex_close(r);
    return start == 0;
}

// ---- numbers of modules --------------------------------------------------------------------------------------------

int gx_module_pattern_ends(const char *pattern, const char *module)
{
    const size_t n = strlen(pattern), all = strlen(module);
    if (gx_module_is_pattern(pattern)) {
        char *text = (char *)malloc(n + 20);
        if (!text) return 0;
        snprintf(text, n + 20, "(?:.*\\.)?(?:%s)", pattern);
        const int finds = gx_module_pattern_finds(text, module);
        free(text);
        return finds;
    }
    if (n > all || (n < all && module[all - n - 1] != '.')) return 0;
    for (size_t i = 0; i < n; i++)
        if (pattern[i] != '.' && pattern[i] != module[all - n + i]) return 0;
    return 1;
}

static GxStatus gx__module_numbers_check(const GxJson *object, GxModuleNumbers may, const char *where, GxError *err)
{
    if (gx_json_type(object) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT,
                       "%s is %s; expected an object with a number for each of its names, {\"q_proj\": 8}", where,
                       gx_json_type_name(object));
    for (GxJsonMember m = GX_ZERO; gx_json_next(object, &m);) {
        char who[GX_PATH + 100], number[32] = "";
        const GxJsonType type = gx_json_type(m.value);
        const double v = gx_json_double(m.value);
        snprintf(who, sizeof who, "%s: %.80s", where, m.key);
        if (gx_module_is_pattern(m.key)) GX_TRY(gx_module_pattern_check(m.key, who, err));
        if (type == GX_JSON_INT || type == GX_JSON_REAL) snprintf(number, sizeof number, "%.9g", v);
        if (type != GX_JSON_INT && (may.whole || type != GX_JSON_REAL))
            return GX_FAIL(err, GX_ERR_FORMAT, "%s is %s; expected %s", who,
                           number[0] ? number : gx_json_type_name(m.value), may.whole ? "an integer" : "a number");
        if (v < may.least || v > may.most)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s is %s; expected a number from %.9g to %.9g", who, number, may.least,
                           may.most);
    }
    return GX_OK;
}

GxStatus gx_module_numbers_take(char **text, const GxJson *object, GxModuleNumbers may, const char *where, GxError *err)
{
    int64_t bytes;
    *text = NULL;
    GX_TRY(gx__module_numbers_check(object, may, where, err));
    GX_TRY(gx_json_dump(object, 0, text, &bytes, err));
    if (!gx_json_size(object)) **text = 0;
    return GX_OK;
}

// "q_proj=8,v_proj=4" as an object. A name is anything up to the last "=" before a comma.
static GxStatus gx__module_numbers_spell(GxJson *object, const char *text, const char *where, GxError *err)
{
    GxTextItem item;
    for (const char *list = text; gx_text_next(&list, &item);) {
        const char *blanks = " \t", *end = item.at + item.n;
        while (item.at < end && strchr(blanks, *item.at)) item.at++;
        const char *equals = end;
        while (equals > item.at && *equals != '=') equals--;
        char name[512], number[64], *rest = NULL;
        const int64_t n = equals - item.at;
        snprintf(name, sizeof name, "%.*s", (int)n, item.at);
        snprintf(number, sizeof number, "%.*s", equals < end ? (int)(end - equals - 1) : 0, equals + 1);
        const double v = strtod(number, &rest);
        if (n <= 0 || n >= (int64_t)sizeof name || rest == number || *rest ||
            strspn(number, "+-.0123456789eE") != strlen(number))
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s has \"%.*s\"; expected the names of modules with numbers, separated by commas, such as "
                           "q_proj=8; or an object, '{\"layers\\\\.[01]\\\\..*\": 8}'",
                           where, (int)(end - item.at), item.at);
        const int is_whole = v == (double)(int64_t)v && v > -1e15 && v < 1e15;
        GX_TRY(gx_json_set(object, name, is_whole ? gx_json_new_int((int64_t)v) : gx_json_new_double(v), err));
    }
    return GX_OK;
}

GxStatus gx_module_numbers_parse(char *text, size_t size, GxModuleNumbers may, const char *where, GxError *err)
{
    GxJson *object = NULL;
    char *made = NULL;
    if (text[strspn(text, " \t\r\n")] == '{') gx_json_parse(&object, text, (int64_t)strlen(text), where, err);
    else if ((object = gx_json_new_object()) != NULL) gx__module_numbers_spell(object, text, where, err);
    else GX_FAIL(err, GX_ERR_MEMORY, "no memory for %s", where);
    if (!gx_error_code(err)) gx_module_numbers_take(&made, object, may, where, err);
    if (made && strlen(made) >= size)
        GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s has more than %ld characters", where, (long)size - 1);
    else if (made) snprintf(text, size, "%s", made);
    free(made);
    gx_json_free(object);
    return gx_error_code(err);
}

double gx_module_number(const char *numbers, const char *module, double otherwise)
{
    GxError ignored = GX_ZERO; // reported when the numbers were read
    GxJson *object;
    double number = otherwise;
    if (gx_json_parse(&object, numbers, (int64_t)strlen(numbers), "", &ignored) != GX_OK) return otherwise;
    for (GxJsonMember m = GX_ZERO; gx_json_next(object, &m);)
        if (gx_module_pattern_ends(m.key, module)) {
            number = gx_json_double(m.value);
            break;
        }
    gx_json_free(object);
    return number;
}
#endif
