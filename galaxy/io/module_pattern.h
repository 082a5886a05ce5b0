// module_pattern.h: a regular expression that says which modules of a model are meant, as the package peft takes
// target_modules that are no list: it has to match the whole name of a module, model.layers.0.self_attn.q_proj.
//
// Written for Python's re. What may be used says regex.h, and \d \w \D \W besides (of ASCII, as names of modules are);
// what it cannot express is refused by name. Nothing stays open: a pattern is compiled anew for each name.
#ifndef GX_MODULE_PATTERN_H
#define GX_MODULE_PATTERN_H
#include "regex.h"
GX_BEGIN

// 1: it has a sign that no list of names has: one of \ * + ? [ ] ( ) { } | ^ $
int gx_module_is_pattern(const char *text);
// Refuses what is no regular expression, or none that is built. `where`: what messages begin with.
GxStatus gx_module_pattern_check(const char *pattern, const char *where, GxError *err);
int gx_module_pattern_finds(const char *pattern, const char *module); // 1: it matches all of the name

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_MODULE_PATTERN_IMPLEMENTED)
#define GX_MODULE_PATTERN_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gx_module_is_pattern(const char *text) { return text[strcspn(text, "\\*+?[](){}|^$")] != 0; }

enum { GX__MODULE_PATTERN_MOST = 1 << 16 };

// \d and its like as classes; NULL: it is another escape.
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

// All of a name, and a line's end behind it, at which $ is true, too: what can match nothing at all is refused else.
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
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: the regular expression \"%.200s\" has a ) that closes nothing",
                           where, pattern);
        p += taken - 1;
    }
    if (n < size) n += (size_t)snprintf(out + n, size - n, ")\\n");
    if (n < size) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: a regular expression has more than %d bytes", where, (int)size - 1);
}

static GxStatus gx__module_pattern_open(GxRegex **r, const char *pattern, const char *where, GxError *err)
{
    static const char not_built[] =
        "%s: \"%.200s\" is a regular expression, and this was built without PCRE2; list the "
        "names, or install libpcre2-dev and build again";
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
    GxError ignored = GX_ZERO; // gx_module_pattern_check tells it
    int64_t start = -1, end = -1;
    const int n = snprintf(line, sizeof line, "%s\n", module);
    if (n >= (int)sizeof line || gx__module_pattern_open(&r, pattern, "", &ignored) != GX_OK) return 0;
    gx_regex_find(r, &room, line, n, 0, &start, &end, &ignored);
    gx_regex_room_close(&room);
    gx_regex_close(r);
    return start == 0;
}
#endif
