// regex.h: the regular expressions by which tokenizers split text into words. The only file that uses the library for
// them (PCRE2, under GX_WITH_PCRE2); without it gx_regex_open fails with an error that says so.
//
// Patterns are written for Oniguruma, as in tokenizer.json (Ruby's syntax), and match the same text as there: what the
// two libraries interpret differently is translated or refused by name. Supported are characters, \r \n \t and escaped
// signs, . ^ $ (of lines), \s \S, \p{L} \P{L} (and M, N, P, S, Lu, Ll, Lt, Lm, Lo), classes [a-z\s] and [^…], groups
// (…), (?:…), (?i:…) without classes, (?=…), (?!…), |, and the quantifiers ? * + {2} {2,} {2,3} (lazy and
// possessive ones, too, but not of braces). White space and the classes \p{…} are spelled out from the tables of
// unicode.h, since versions of PCRE2 follow different versions of Unicode, and count U+180E as white space.
//
//     GxRegex *words;
//     GX_TRY(gx_regex_open(&words, " ?\\p{L}+|\\s+", "tokenizer.json", err));
//     GxRegexRoom room = GX_ZERO;                                       // one for each thread
//     int64_t start, end;
//     GX_TRY(gx_regex_find(words, &room, text, bytes, 0, &start, &end, err));    // start < 0: no match
//     gx_regex_room_close(&room);
//     gx_regex_close(words);
#ifndef GX_REGEX_H
#define GX_REGEX_H
#include "unicode.h"
GX_BEGIN

typedef struct GxRegex GxRegex; // immutable once it is open
typedef struct {
    void *match, *stack, *context;
} GxRegexRoom;

// A pattern that can match the empty text is refused, since such a match does not advance. `where` names the file in
// messages.
GxStatus gx_regex_open(GxRegex **r, const char *pattern, const char *where, GxError *err);
void gx_regex_close(GxRegex *r);
// The leftmost match in text[n] from the byte `from` on; text is UTF-8, which is not checked.
GxStatus gx_regex_find(const GxRegex *r, GxRegexRoom *room, const char *text, int64_t n, int64_t from, int64_t *start,
                       int64_t *end, GxError *err);
void gx_regex_room_close(GxRegexRoom *room);
int gx_regex_is_built(void); // 0: built without PCRE2

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_REGEX_IMPLEMENTED)
#define GX_REGEX_IMPLEMENTED
#ifdef GX_WITH_PCRE2
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

int gx_regex_is_built(void) { return 1; }

// ---- translation ---------------------------------------------------------------------------------------------------

enum { GX__REGEX_DEPTH = 32 };
typedef struct {
    const char *pattern, *where, *at; // at: the next character
    char *out;
    int64_t n, capacity;
    int in_class, depth, caseless; // caseless: the depth of the enclosing (?i:; 0: none
    GxError *err;
} gx__Regex;

static GxStatus gx__regex_refuse(gx__Regex *x, const char *from, int64_t n, const char *why)
{
    return GX_FAIL(x->err, GX_ERR_UNSUPPORTED, "%s: the regular expression \"%.200s\" has \"%.*s\" at byte %ld; %s",
                   x->where, x->pattern, (int)n, from, (long)(from - x->pattern), why);
}

static GxStatus gx__regex_put(gx__Regex *x, const char *text, int64_t n)
{
    if (x->n + n + 1 > x->capacity) {
        const int64_t capacity = 2 * x->capacity + n + 64;
        char *grown = (char *)realloc(x->out, (size_t)capacity);
        if (!grown) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a regular expression");
        x->out = grown;
        x->capacity = capacity;
    }
    memcpy(x->out + x->n, text, (size_t)n);
    x->n += n;
    x->out[x->n] = 0;
    return GX_OK;
}

static int gx__regex_space(int i, uint32_t *first, uint32_t *last)
{
    uint32_t c = 0;
    for (int k = 0; k <= i; k++) {
        while (c <= 0x3000 && !gx_unicode_is_space(c)) c++;
        if (c > 0x3000) return 0;
        *first = c;
        while (gx_unicode_is_space(c)) c++;
        *last = c - 1;
    }
    return 1;
}

static GxStatus gx__regex_put_range(gx__Regex *x, uint32_t first, uint32_t last)
{
    char text[40];
    if (first > last) return GX_OK;
    const int n = snprintf(text, sizeof text, "\\x{%X}-\\x{%X}", (unsigned)first, (unsigned)last);
    return gx__regex_put(x, text, n);
}

// name: "s" or a class. Inside brackets it writes the ranges of the class, or, with is_not, those between them.
static GxStatus gx__regex_put_class(gx__Regex *x, const char *name, int is_not, const char *from, int64_t n)
{
    uint32_t next = 0, first, last;
    int i = 0;
    if (x->caseless) return gx__regex_refuse(x, from, n, "classes in (?i:…) are not supported");
    if (!x->in_class) GX_TRY(gx__regex_put(x, "[", 1));
    for (; !strcmp(name, "s") ? gx__regex_space(i, &first, &last) : gx_unicode_class(name, i, &first, &last); i++) {
        if (is_not && first > next) GX_TRY(gx__regex_put_range(x, next, first - 1));
        if (!is_not) GX_TRY(gx__regex_put_range(x, first, last));
        next = last + 1;
    }
    if (i == 0)
        return gx__regex_refuse(x, from, n,
                                "supported classes: \\p{L}, \\p{M}, \\p{N}, \\p{P}, \\p{S}, and of letters \\p{Lu}, "
                                "\\p{Ll}, \\p{Lt}, \\p{Lm}, \\p{Lo}");
    if (is_not) GX_TRY(gx__regex_put_range(x, next, 0x10FFFF));
    return x->in_class ? GX_OK : gx__regex_put(x, "]", 1);
}

static GxStatus gx__regex_escape(gx__Regex *x)
{
    char name[4] = "";
    const char *from = x->at, c = from[1];
    x->at += c ? 2 : 1;
    if (c == 's' || c == 'S') return gx__regex_put_class(x, "s", c == 'S', from, 2);
    if (c == 'p' || c == 'P') {
        int n = 0;
        if (sscanf(x->at, "{%3[A-Za-z]}%n", name, &n) != 1 || n == 0) n = 0;
        x->at += n;
        return gx__regex_put_class(x, n ? name : "", c == 'P', from, n + 2);
    }
    const int is_sign = c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
    if (is_sign || c == 'r' || c == 'n' || c == 't') return gx__regex_put(x, from, 2);
    return gx__regex_refuse(x, from, 2,
                            "supported escapes: \\r \\n \\t \\s \\S \\p{…} \\P{…} and those of punctuation");
}

static GxStatus gx__regex_open_class(gx__Regex *x)
{
    const char *from = x->at++;
    if (x->caseless) return gx__regex_refuse(x, from, 1, "classes in (?i:…) are not supported");
    if (x->in_class) return gx__regex_refuse(x, from, 1, "a class in a class is not supported; write \\[");
    x->in_class = 1;
    x->at += *x->at == '^';
    if (*x->at == ']') return gx__regex_refuse(x, from, 3, "an empty class is not supported; write \\]");
    return gx__regex_put(x, from, x->at - from);
}

static GxStatus gx__regex_open_group(gx__Regex *x)
{
    static const char *const kinds[] = {"(?:", "(?i:", "(?!", "(?=", "("};
    const char *from = x->at;
    int kind = 0;
    while (strncmp(from, kinds[kind], strlen(kinds[kind]))) kind++;
    x->at += strlen(kinds[kind]);
    if (kind == 4 && (*x->at == '?' || *x->at == '*'))
        return gx__regex_refuse(x, from, 3, "supported groups: (…), (?:…), (?i:…), (?=…), (?!…)");
    if (++x->depth == GX__REGEX_DEPTH) return gx__regex_refuse(x, from, 1, "groups are nested too deep");
    if (kind == 1 && !x->caseless) x->caseless = x->depth;
    return gx__regex_put(x, from, x->at - from);
}

static GxStatus gx__regex_braces(gx__Regex *x)
{
    static const char digits[] = "0123456789";
    const char *from = x->at, *p = from + 1;
    const int has_low = strspn(p, digits) > 0;
    p += strspn(p, digits);
    if (*p == ',') p += 1 + strspn(p + 1, digits);
    if (!has_low || *p != '}')
        return gx__regex_refuse(x, from, 1, "expected {2}, {2,} or {2,3}; write \\{ for the character");
    x->at = p + 1;
    if (*x->at && strchr("+?*", *x->at)) return gx__regex_refuse(x, p, 2, "nothing may follow braces");
    return gx__regex_put(x, from, x->at - from);
}

static GxStatus gx__regex_next(gx__Regex *x)
{
    const char *from = x->at, c = *from;
    if (c == '\\') return gx__regex_escape(x);
    if (c == '[') return gx__regex_open_class(x);
    if (c == '&' && x->in_class && from[1] == '&')
        return gx__regex_refuse(x, from, 2, "&& in a class is not supported");
    if (c == ']' && x->in_class) x->in_class = 0;
    else if (c == '(' && !x->in_class) return gx__regex_open_group(x);
    else if (c == '{' && !x->in_class) return gx__regex_braces(x);
    else if (c == ')' && !x->in_class) {
        if (x->caseless == x->depth) x->caseless = 0;
        x->depth--;
    }
    x->at++;
    return gx__regex_put(x, from, 1);
}

// ---- the library ---------------------------------------------------------------------------------------------------

static pcre2_code *gx__regex_code(const GxRegex *r) { return (pcre2_code *)(void *)(uintptr_t)r; }

// As in Ruby, `#` and spaces are literal, and ^ and $ match at lines, which end with \n only.
static GxStatus gx__regex_compile(gx__Regex *x, GxRegex **r)
{
    int code = 0;
    PCRE2_SIZE offset = 0;
    uint32_t can_be_empty = 0;
    PCRE2_UCHAR said[120] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)x->out, (PCRE2_SIZE)x->n,
                                         PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!compiled) {
        pcre2_get_error_message(code, said, sizeof said);
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s: the regular expression \"%.200s\" cannot be read: %s", x->where,
                       x->pattern, (const char *)said);
    }
    *r = (GxRegex *)(void *)compiled;
    pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &can_be_empty);
    if (can_be_empty)
        return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                       "%s: the regular expression \"%.200s\" can match the empty text, which is not supported",
                       x->where, x->pattern);
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); // if this fails, matching is only slower
    return GX_OK;
}

GxStatus gx_regex_open(GxRegex **r, const char *pattern, const char *where, GxError *err)
{
    gx__Regex x = GX_ZERO;
    x.pattern = x.at = pattern, x.where = where, x.err = err;
    *r = NULL;
    GxStatus status = gx__regex_put(&x, "", 0);
    while (status == GX_OK && *x.at) status = gx__regex_next(&x);
    if (status == GX_OK) status = gx__regex_compile(&x, r);
    free(x.out);
    if (status != GX_OK) gx_regex_close(*r), *r = NULL;
    return status;
}

void gx_regex_close(GxRegex *r) { pcre2_code_free(gx__regex_code(r)); }

// Short matches use the machine's stack; long ones get a larger one.
static int gx__regex_more_room(GxRegexRoom *room)
{
    if (room->stack) return 0;
    room->stack = pcre2_jit_stack_create(64 << 10, 64 << 20, NULL);
    room->context = pcre2_match_context_create(NULL);
    if (!room->stack || !room->context) return 0;
    pcre2_jit_stack_assign((pcre2_match_context *)room->context, NULL, room->stack);
    return 1;
}

GxStatus gx_regex_find(const GxRegex *r, GxRegexRoom *room, const char *text, int64_t n, int64_t from, int64_t *start,
                       int64_t *end, GxError *err)
{
    PCRE2_UCHAR said[120] = "";
    int found = 0;
    *start = *end = -1;
    if (!room->match) room->match = pcre2_match_data_create(1, NULL);
    if (!room->match) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to look for words");
    do
        found = pcre2_match(gx__regex_code(r), (PCRE2_SPTR)text, (PCRE2_SIZE)n, (PCRE2_SIZE)from, PCRE2_NO_UTF_CHECK,
                            (pcre2_match_data *)room->match, (pcre2_match_context *)room->context);
    while (found == PCRE2_ERROR_JIT_STACKLIMIT && gx__regex_more_room(room));
    if (found == PCRE2_ERROR_NOMATCH) return GX_OK;
    if (found < 0) {
        pcre2_get_error_message(found, said, sizeof said);
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "a text of %ld bytes cannot be split into words: %s", (long)n,
                       (const char *)said);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer((pcre2_match_data *)room->match);
    *start = (int64_t)place[0], *end = (int64_t)place[1];
    return GX_OK;
}

void gx_regex_room_close(GxRegexRoom *room)
{
    pcre2_match_data_free((pcre2_match_data *)room->match);
    pcre2_match_context_free((pcre2_match_context *)room->context);
    pcre2_jit_stack_free((pcre2_jit_stack *)room->stack);
    memset(room, 0, sizeof *room);
}

#else
int gx_regex_is_built(void) { return 0; }

GxStatus gx_regex_open(GxRegex **r, const char *pattern, const char *where, GxError *err)
{
    *r = NULL;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s: words cannot be separated with \"%.200s\", because this was built without PCRE2; install "
                   "libpcre2-dev (Fedora: pcre2-devel; Homebrew: pcre2) and build again",
                   where, pattern);
}
void gx_regex_close(GxRegex *r) { (void)r; }

GxStatus gx_regex_find(const GxRegex *r, GxRegexRoom *room, const char *text, int64_t n, int64_t from, int64_t *start,
                       int64_t *end, GxError *err)
{
    (void)r, (void)room, (void)text, (void)n, (void)from, *start = *end = -1;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "there are no regular expressions: this was built without PCRE2");
}
void gx_regex_room_close(GxRegexRoom *room) { (void)room; }
#endif
#endif
