// template_lex.h: a chat template's text as tokens. White space around tags is removed as by Jinja with transformers'
// settings (trim_blocks, lstrip_blocks, - and + in tags), and so is one newline at the end of the template.
#ifndef GX_TEMPLATE_LEX_H
#define GX_TEMPLATE_LEX_H
#include "template_methods.h"
GX_BEGIN

enum { GX_TEMPLATE_BRACKETS = 100 }; // nested

typedef enum {
    GX_T_DATA = 0, // text outside of tags
    GX_T_VARIABLE_BEGIN,
    GX_T_VARIABLE_END,
    GX_T_BLOCK_BEGIN,
    GX_T_BLOCK_END,
    GX_T_NAME,
    GX_T_CONSTANT, // a string, an integer, a float
    GX_T_SIGN,
    GX_T_END
} GxTemplateTokenKind;

typedef struct {
    GxTemplateTokenKind kind;
    int line;
    int sign;              // an operator's first byte, plus 256 times its second
    GxTemplateValue value; // of data, names (as strings) and constants
} GxTemplateToken;

// All tokens of a UTF-8 text, in the run's memory; the last one is GX_T_END.
int gx_template_lex(GxTemplateRun *r, const char *text, int64_t bytes, GxTemplateToken **tokens, int64_t *n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_LEX_IMPLEMENTED)
#define GX_TEMPLATE_LEX_IMPLEMENTED
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    GxTemplateRun *r;
    const char *p, *end;
    GxTemplateToken *token;
    int64_t n, capacity;
    int at_line_start; // 1: at the beginning, or after a newline
    char bracket[GX_TEMPLATE_BRACKETS];
    int brackets;
} GxTemplateLexer;

static GxTemplateToken *gx__template_token(GxTemplateLexer *l, GxTemplateTokenKind kind)
{
    if (l->n == l->capacity) {
        const int64_t capacity = 2 * l->capacity + 64;
        GxTemplateToken *grown = (GxTemplateToken *)gx_template_allocate(l->r, capacity * (int64_t)sizeof *grown);
        if (!grown) return NULL;
        if (l->n) memcpy(grown, l->token, (size_t)l->n * sizeof *grown);
        l->token = grown, l->capacity = capacity;
    }
    l->token[l->n].kind = kind, l->token[l->n].line = l->r->line;
    return &l->token[l->n++];
}

static void gx__template_count_lines(GxTemplateLexer *l, const char *from, const char *to)
{
    for (; from < to; from++) l->r->line += *from == '\n';
}

static const char *gx__template_behind_space(const char *p, const char *end)
{
    for (uint32_t c; p < end;) {
        const int n = gx_unicode_decode(p, end, &c);
        if (!gx_unicode_is_python_space(c)) break;
        p += n;
    }
    return p;
}

static int gx__template_starts(const GxTemplateLexer *l, const char *p, const char *word)
{
    return l->end - p >= (int64_t)strlen(word) && !memcmp(p, word, strlen(word));
}

// The text before a tag that begins with this sign (- or +).
static int gx__template_put_data(GxTemplateLexer *l, const char *from, const char *to, char sign, int variable)
{
    GxTemplateValue text = gx_template_string(from, to - from);
    if (sign == '-') {
        if (!gx_template_strip(l->r, text, gx_template_none(), GX_T_RIGHT, &text)) return 0;
    } else if (sign != '+' && !variable) { // lstrip_blocks: white space from the line's beginning on
        const char *line = to;
        while (line > from && line[-1] != '\n') line--;
        if ((line > from || l->at_line_start) && gx__template_behind_space(line, to) == to) text.n = line - from;
    }
    if (text.n) {
        GxTemplateToken *t = gx__template_token(l, GX_T_DATA);
        if (!t) return 0;
        t->value = text;
    }
    gx__template_count_lines(l, from, to);
    return 1;
}

// Moves past the end of a tag, and past the white space that its sign and trim_blocks remove.
static void gx__template_leave(GxTemplateLexer *l, char sign, int64_t n, int trims)
{
    const char *from = l->p;
    l->p += n;
    if (sign == '-') l->p = gx__template_behind_space(l->p, l->end);
    else if (sign != '+' && trims && l->p < l->end && *l->p == '\n') l->p++;
    gx__template_count_lines(l, from, l->p);
    l->at_line_start = l->p[-1] == '\n';
}

// ---- inside tags ---------------------------------------------------------------------------------------------------

static int gx__template_is_digit(char c) { return c >= '0' && c <= '9'; }
static int gx__template_is_word(char c)
{
    return gx__template_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

static int gx__template_digit(char c) // up to base 16; 99: not a digit
{
    const char small = c | 32;
    return gx__template_is_digit(c) ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : 99;
}

// The bytes of the digits that begin here, with single underscores between them.
static int64_t gx__template_digits(const GxTemplateLexer *l, const char *p, int base)
{
    int64_t n = 0;
    for (; p + n < l->end; n++) {
        const char c = p[n];
        if (gx__template_digit(c) < base) continue;
        if (c != '_' || p + n + 1 >= l->end) break;
        if (gx__template_digit(p[n + 1]) >= base || (n == 0 && base == 10)) break;
    }
    return n;
}

// The bytes of the float that begins here; 0: none.
static int64_t gx__template_float_bytes(const GxTemplateLexer *l)
{
    int64_t n = gx__template_digits(l, l->p, 10), more;
    int is_float = 0;
    if (!n) return 0;
    if (l->p + n < l->end && l->p[n] == '.' && l->p + n + 1 < l->end &&
        (more = gx__template_digits(l, l->p + n + 1, 10)))
        n += 1 + more, is_float = 1;
    if (l->p + n < l->end && (l->p[n] | 32) == 'e') {
        const int sign = l->p + n + 1 < l->end && (l->p[n + 1] == '+' || l->p[n + 1] == '-');
        if (l->p + n + 1 + sign < l->end && (more = gx__template_digits(l, l->p + n + 1 + sign, 10)))
            n += 1 + sign + more, is_float = 1;
    }
    return is_float ? n : 0;
}

static int gx__template_number_token(GxTemplateLexer *l, int64_t before)
{
    char text[400];
    int64_t n = before && l->p[-1] == '.' ? 0 : gx__template_float_bytes(l), k = 0;
    const int is_float = n > 0, radix = l->end - l->p > 1 && *l->p == '0' ? l->p[1] | 32 : 0;
    int base = radix == 'x' ? 16 : radix == 'o' ? 8 : radix == 'b' ? 2 : 10;
    if (!is_float && base != 10) {
        n = gx__template_digits(l, l->p + 2, base);
        if (n) n += 2;
        else base = 10;
    }
    if (!is_float && base == 10) {
        n = gx__template_digits(l, l->p, 10);
        if (*l->p == '0')
            for (n = 1; l->p + n < l->end &&
                        (l->p[n] == '0' || (l->p[n] == '_' && l->p + n + 1 < l->end && l->p[n + 1] == '0'));
                 n++) {}
    }
    for (int64_t i = base == 10 ? 0 : 2; i < n; i++) {
        if (l->p[i] == '_') continue;
        if (k + 1 >= (int64_t)sizeof text)
            return gx_template_lacks(l->r, "numbers of so many digits are not supported");
        text[k++] = l->p[i];
    }
    text[k] = 0;
    GxTemplateToken *t = gx__template_token(l, GX_T_CONSTANT);
    if (!t) return 0;
    errno = 0;
    t->value = is_float ? gx_template_float(strtod(text, NULL)) : gx_template_int(strtoll(text, NULL, base));
    if (errno && !is_float) return gx_template_lacks(l->r, "integers of more than 64 bits are not supported");
    l->p += n;
    return 1;
}

static int gx__template_put_character(GxTemplateLexer *l, GxTemplateBuilder *b, uint32_t c)
{
    char text[8];
    if ((c >= 0xD800 && c < 0xE000) || c > 0x10FFFF)
        return gx_template_fail(l->r, "\\u in a string: U+%04X is not a character", (unsigned)c);
    return gx_template_put(l->r, b, text, gx_unicode_encode(c, text));
}

// An escape, as in Python's strings. *p: after the backslash; moved past the escape.
static int gx__template_escape(GxTemplateLexer *l, GxTemplateBuilder *b, const char **p, const char *end)
{
    static const char letters[] = "\\'\"abfnrtv", as[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = *(*p)++, *at = (const char *)memchr(letters, c, sizeof letters - 1);
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (c == '\n') return 1;
    if (at) return gx_template_put(l->r, b, &as[at - letters], 1);
    if (c == 'N') return gx_template_lacks(l->r, "\\N in a string is not supported");
    if (c >= '0' && c <= '7') {
        code = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *p < end && **p >= '0' && **p <= '7'; i++) code = code * 8 + (uint32_t)(*(*p)++ - '0');
        return gx__template_put_character(l, b, code);
    }
    if (digits) {
        for (int i = 0; i < digits; i++, (*p)++) {
            const int x = gx__template_digit(*p < end ? **p : 0);
            if (x >= 16) return gx_template_fail(l->r, "\\%c in a string has fewer than %d digits after it", c, digits);
            code = code * 16 + (uint32_t)x;
        }
        return gx__template_put_character(l, b, code);
    }
    if (c & 0x80) { // Jinja first turns the character into an escape, of which Python then reads the backslash
        char text[16];
        const int n = gx_unicode_decode(*p - 1, end, &code);
        *p += n - 1;
        snprintf(text, sizeof text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
        return gx_template_put_word(l->r, b, text);
    }
    return gx_template_put(l->r, b, "\\", 1) && gx_template_put(l->r, b, &c, 1);
}

static int gx__template_string_token(GxTemplateLexer *l)
{
    const char quote = *l->p, *p = l->p + 1, *end = p;
    GxTemplateBuilder b = GX_ZERO;
    while (end < l->end && *end != quote) end += *end == '\\' ? 2 : 1;
    if (end >= l->end) return gx_template_fail(l->r, "a string is not closed");
    while (p < end) {
        const char *at = (const char *)memchr(p, '\\', (size_t)(end - p));
        if (!gx_template_put(l->r, &b, p, (at ? at : end) - p)) return 0;
        p = at ? at + 1 : end;
        if (at && !gx__template_escape(l, &b, &p, end)) return 0;
    }
    GxTemplateToken *t = gx__template_token(l, GX_T_CONSTANT);
    if (!t) return 0;
    t->value = gx_template_built(&b);
    gx__template_count_lines(l, l->p, end);
    l->p = end + 1;
    return 1;
}

static int gx__template_sign_token(GxTemplateLexer *l)
{
    static const char *const twos[] = {"//", "**", "==", "!=", ">=", "<="};
    const char c = *l->p;
    int sign = (unsigned char)c;
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        if (!gx__template_starts(l, l->p, "!="))
            return gx_template_fail(l->r, "unexpected character: \"%.*s\"", gx_utf8_bytes(l->p), l->p);
    for (int i = 0; i < 6; i++)
        if (gx__template_starts(l, l->p, twos[i])) sign = (unsigned char)c + 256 * twos[i][1];
    if (strchr("([{", c)) {
        if (l->brackets == GX_TEMPLATE_BRACKETS)
            return gx_template_fail(l->r, "brackets are nested deeper than %d", GX_TEMPLATE_BRACKETS);
        l->bracket[l->brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    }
    if (strchr(")]}", c)) {
        if (!l->brackets || l->bracket[l->brackets - 1] != c) return gx_template_fail(l->r, "unmatched \"%c\"", c);
        l->brackets--;
    }
    GxTemplateToken *t = gx__template_token(l, GX_T_SIGN);
    if (!t) return 0;
    t->sign = sign;
    l->p += sign > 255 ? 2 : 1;
    return 1;
}

static int gx__template_word_token(GxTemplateLexer *l)
{
    int64_t n = 0;
    while (l->p + n < l->end && gx__template_is_word(l->p[n])) {
        if (l->p[n] & 0x80) return gx_template_lacks(l->r, "names with characters beyond ASCII are not supported");
        n++;
    }
    GxTemplateToken *t = gx__template_token(l, GX_T_NAME);
    if (!t) return 0;
    char *name = (char *)gx_template_allocate(l->r, n + 1); // with a terminating 0
    if (!name) return 0;
    memcpy(name, l->p, (size_t)n);
    t->value = gx_template_string(name, n);
    l->p += n;
    return 1;
}

// The tokens of a tag, up to its end.
static int gx__template_lex_tag(GxTemplateLexer *l, int variable)
{
    const char *const ends = variable ? "}}" : "%}", *const begin = l->p;
    for (;;) {
        const char *p = l->p;
        const int sign =
            l->end - p > 1 && (*p == '-' || (*p == '+' && !variable)) && gx__template_starts(l, p + 1, ends);
        if (!l->brackets && (sign || gx__template_starts(l, p, ends))) {
            if (!gx__template_token(l, variable ? GX_T_VARIABLE_END : GX_T_BLOCK_END)) return 0;
            return gx__template_leave(l, sign ? *p : 0, 2 + sign, !variable), 1;
        }
        l->p = gx__template_behind_space(p, l->end);
        gx__template_count_lines(l, p, l->p);
        if (l->p > p) continue;
        if (p == l->end) return gx_template_fail(l->r, "a tag is not closed; expected %s", ends);
        int ok;
        if (gx__template_is_digit(*p)) ok = gx__template_number_token(l, p - begin);
        else if (gx__template_is_word(*p)) ok = gx__template_word_token(l);
        else if (*p == '\'' || *p == '"') ok = gx__template_string_token(l);
        else ok = gx__template_sign_token(l);
        if (!ok) return 0;
    }
}

// ---- outside -------------------------------------------------------------------------------------------------------

static int gx__template_lex_comment(GxTemplateLexer *l)
{
    const char *at = gx_template_find(l->r, l->p, l->end, "#}", 2);
    if (!at) return gx_template_fail(l->r, "a comment is not closed; expected #}");
    const char sign = at > l->p && (at[-1] == '-' || at[-1] == '+') ? at[-1] : 0;
    gx__template_count_lines(l, l->p, at);
    l->p = at;
    gx__template_leave(l, sign, 2, 1);
    return 1;
}

// {% raw %} through {% endraw %}. p: after "raw %}".
static int gx__template_lex_raw(GxTemplateLexer *l, const char *p, char sign)
{
    gx__template_count_lines(l, l->p, p);
    l->p = sign == '-' ? gx__template_behind_space(p, l->end) : p;
    gx__template_count_lines(l, p, l->p);
    l->at_line_start = l->p[-1] == '\n';
    for (const char *from = l->p, *at = from; (at = gx_template_find(l->r, at, l->end, "{%", 2)); at += 2) {
        const char before = l->end - at > 2 && (at[2] == '-' || at[2] == '+') ? at[2] : 0;
        const char *q = gx__template_behind_space(at + 2 + (before != 0), l->end);
        if (!gx__template_starts(l, q, "endraw")) continue;
        q = gx__template_behind_space(q + 6, l->end);
        const char behind = l->end - q > 2 && (*q == '-' || *q == '+') ? *q : 0;
        if (!gx__template_starts(l, q + (behind != 0), "%}")) continue;
        if (!gx__template_put_data(l, from, at, before, 0)) return 0;
        gx__template_count_lines(l, at, q);
        l->p = q;
        return gx__template_leave(l, behind, 2 + (behind != 0), 1), 1;
    }
    return gx_template_fail(l->r, "{%% raw %%} without {%% endraw %%}");
}

// The place after "raw %}" if such a tag begins here; NULL: it is another tag.
static const char *gx__template_raw_tag(const GxTemplateLexer *l, const char *p, char *sign)
{
    p = gx__template_behind_space(p, l->end);
    if (!gx__template_starts(l, p, "raw")) return NULL;
    p = gx__template_behind_space(p + 3, l->end);
    *sign = l->end - p > 2 && *p == '-' ? '-' : 0;
    p += *sign != 0;
    return gx__template_starts(l, p, "%}") ? p + 2 : NULL;
}

static int gx__template_lex_all(GxTemplateLexer *l)
{
    while (l->p < l->end) {
        const char *at = l->p, *raw;
        while (at < l->end && !(*at == '{' && at + 1 < l->end && strchr("{%#", at[1]) && at[1])) at++;
        if (at == l->end) return gx__template_put_data(l, l->p, at, '+', 1);
        const char kind = at[1], sign = l->end - at > 2 && (at[2] == '-' || at[2] == '+') ? at[2] : 0;
        char behind = 0;
        if (!gx__template_put_data(l, l->p, at, sign, kind == '{')) return 0;
        l->p = at + 2 + (sign != 0);
        if (kind == '#') {
            if (!gx__template_lex_comment(l)) return 0;
        } else if (kind == '%' && (raw = gx__template_raw_tag(l, l->p, &behind))) {
            if (!gx__template_lex_raw(l, raw, behind)) return 0;
        } else {
            if (!gx__template_token(l, kind == '{' ? GX_T_VARIABLE_BEGIN : GX_T_BLOCK_BEGIN)) return 0;
            if (!gx__template_lex_tag(l, kind == '{')) return 0;
        }
    }
    return 1;
}

int gx_template_lex(GxTemplateRun *r, const char *text, int64_t bytes, GxTemplateToken **tokens, int64_t *n)
{
    GxTemplateLexer l;
    char *plain = (char *)gx_template_allocate(r, bytes + 1); // \r\n and \r as \n
    int64_t m = 0;
    if (!plain) return 0;
    for (int64_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
        plain[m++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (m && plain[m - 1] == '\n') m--;
    memset(&l, 0, sizeof l);
    l.r = r, l.p = plain, l.end = plain + m;
    l.at_line_start = 1;
    r->line = 1;
    if (!gx__template_lex_all(&l) || !gx__template_token(&l, GX_T_END)) return 0;
    *tokens = l.token, *n = l.n;
    return 1;
}
#endif
