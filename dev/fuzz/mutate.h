// dev/fuzz/mutate.h: from a sound case to one that somebody hostile, or a broken disk, could have made of it. What is
// done to a part depends on its name: .json, .jsonl (lines of it), .safetensors (a header of JSON), .gguf, args (a
// command line, each word with a 0 behind it), .numbers, .jinja; anything else is bytes.
#ifndef FUZZ_MUTATE_H
#define FUZZ_MUTATE_H
#include <math.h>
#include "case.h"

// ---- words and numbers ---------------------------------------------------------------------------------------------

// Names of all options and of what files hold; targets add to it.
static struct {
    const char *word[400];
    int n;
} dictionary;

static void know(const char *word)
{
    if (dictionary.n < 400) dictionary.word[dictionary.n++] = word;
}
static const char *known(Random *r) { return dictionary.n ? dictionary.word[below(r, dictionary.n)] : "name"; }

static const char *const literals[] = {"0",
                                       "1",
                                       "-1",
                                       "2",
                                       "3",
                                       "7",
                                       "8",
                                       "255",
                                       "256",
                                       "257",
                                       "65535",
                                       "65536",
                                       "2147483647",
                                       "2147483648",
                                       "-2147483648",
                                       "4294967295",
                                       "4294967296",
                                       "9007199254740993",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "9223372036854775808",
                                       "-9223372036854775809",
                                       "18446744073709551615",
                                       "99999999999999999999999999999",
                                       "0.0",
                                       "-0.0",
                                       "0.5",
                                       "1.0",
                                       "1e-5",
                                       "1e-300",
                                       "5e-324",
                                       "1e-400",
                                       "1e38",
                                       "3.5e38",
                                       "1e300",
                                       "1.7976931348623157e308",
                                       "1e308",
                                       "1e309",
                                       "1e999",
                                       "-1e999",
                                       "NaN",
                                       "nan",
                                       "Infinity",
                                       "-inf",
                                       "0x10",
                                       "1e",
                                       "1.",
                                       ".5",
                                       "+1",
                                       "01",
                                       "--1",
                                       "1 ",
                                       " 1",
                                       "true",
                                       "false",
                                       "null",
                                       "\"\"",
                                       "\"0\"",
                                       "\"auto\"",
                                       "\"a\"",
                                       "[]",
                                       "{}",
                                       "[0]",
                                       "[1,2]",
                                       "[[]]",
                                       "{\"a\":1}",
                                       "tru",
                                       "\"",
                                       "",
                                       "1,2"};

static const char *const decimals[] = {"0",  "1",   "000000001", "00000000000001", "999999999999", ".5",
                                       "e1", "e-9", "e15"};

static const char *const scraps[] = { // of text
    "\xff",
    "\xc3",
    "\xed\xa0\x80",
    "\xf4\x90\x80\x80",
    "\xc0\xaf",
    "\xe2\x82",
    "\xc3\xa9",
    "\xf0\x9f\x98\x80",
    "\\u0000",
    "\\ud800",
    "\\udc00\\ud800",
    "\\u001b[31m",
    "\x1b[31m",
    "\\n",
    "\n",
    "\\",
    "\"",
    "/",
    "..",
    "../../etc/passwd",
    "%s%n",
    "\t",
    "\\u00e9",
    "*",
    "**?*",
    "'",
    "=",
    "--",
    "<&>",
    " "};

// The options, in the order of their tables, where what belongs together stands together: a case draws from a few
// neighbours more often than from all.
static struct {
    const GxField *field[200];
    int n, focus;
} options;

static const GxField *some_option(Random *r)
{
    const int64_t near = gx_min(options.n - 1, options.focus + below(r, 8));
    return options.field[one_in(r, 2) ? near : below(r, options.n)];
}
static const GxField *option_of(const char *name, int64_t n) // NULL: there is none
{
    for (int i = 0; i < options.n; i++)
        if (!strncmp(options.field[i]->name, name, (size_t)n) && !options.field[i]->name[n]) return options.field[i];
    return NULL;
}

static void number_text(Random *r, char text[64])
{
    switch (below(r, 7)) {
    case 6: snprintf(text, 64, "%ld", (long)pow(10, (double)below(r, 15))); break;
    case 0: snprintf(text, 64, "%ld", (long)below(r, 20) - 3); break;
    case 1: snprintf(text, 64, "%ld", (long)(INT64_C(1) << below(r, 63)) - (long)below(r, 3) + 1); break;
    case 2: snprintf(text, 64, "%ld", (long)draw(r)); break;
    case 3: snprintf(text, 64, "%g", (double)below(r, 2001) / 1000); break;
    case 4:
        snprintf(text, 64, "%.17ge%ld", 1 + (double)below(r, 1 << 20) / (1 << 20), (long)below(r, 640) - 320);
        break;
    default: snprintf(text, 64, "%.60s", PICK(r, literals));
    }
}

// "1..32767": an end of the range, next to it, or within it; where there is none, any number.
static void number_near(Random *r, const char *allowed, char text[64])
{
    const char *dots = allowed ? strstr(allowed, "..") : NULL;
    const double low = dots && dots > allowed ? atof(allowed) : 0, high = dots && dots[2] ? atof(dots + 2) : 0;
    const int real = dots && (strpbrk(allowed, "e") || strchr(dots + 2, '.') || (high > 0 && high <= 1));
    double x = 0;
    switch (dots ? below(r, 7) : 6) {
    case 0: x = low; break;
    case 1: x = high; break;
    case 2: x = low + (real ? 1e-9 : 1) * ((double)below(r, 3) - 1); break;
    case 3: x = high + (real ? 1e-9 : 1) * ((double)below(r, 3) - 1); break;
    case 4: x = low + (real ? (double)below(r, 1000) / 1000 * fmax(high - low, 1) : (double)below(r, 9)); break;
    case 5: x = pow(one_in(r, 2) ? 10 : 2, (double)below(r, 1 + (high > 1 ? (int64_t)log2(high) : 40))); break;
    default: number_text(r, text); return;
    }
    snprintf(text, 64, real ? "%.17g" : "%.0f", x);
}

static int64_t list_length(Random *r)
{
    static const int64_t many[] = {GX_FIELD_LIST - 1, GX_FIELD_LIST, GX_FIELD_LIST + 1, 300};
    return one_in(r, 4) ? PICK(r, many) : 1 + below(r, 4);
}

// A value that an option could have, or almost; as on a command line, or as JSON.
static void option_value(Random *r, const GxField *f, int json, Bytes *out)
{
    char number[64];
    const char *choice = f->allowed ? f->allowed : "";
    int choices = 1;
    for (const char *p = choice; *p; p++) choices += *p == '|';
    switch (f->type) {
    case GX_FIELD_INT:
    case GX_FIELD_DOUBLE:
        number_near(r, f->allowed, number);
        bytes_text(out, number);
        break;
    case GX_FIELD_BOOL: bytes_text(out, one_in(r, 2) ? "true" : "false"); break;
    case GX_FIELD_STRING:
        for (int64_t skip = below(r, choices); skip > 0; skip--) choice = strchr(choice, '|') + 1;
        if (json) bytes_text(out, "\"");
        if (f->allowed) bytes_add(out, choice, (int64_t)strcspn(choice, "|"));
        else bytes_text(out, one_in(r, 2) ? "auto" : f->default_text ? f->default_text : "");
        if (json) bytes_text(out, "\"");
        break;
    default:
        if (json) bytes_text(out, "[");
        for (int64_t n = list_length(r), i = n; i > 0; i--) { // one wrong element would hide how many there are
            if (n > 8 && !one_in(r, 400)) snprintf(number, sizeof number, "%d", 1 + (int)below(r, 9));
            else number_near(r, f->allowed, number);
            bytes_text(out, number);
            if (i > 1) bytes_text(out, ",");
        }
        if (json) bytes_text(out, "]");
    }
}

// ---- bytes ---------------------------------------------------------------------------------------------------------

static void repeat(Random *r, Bytes *out, const char *what)
{
    static const int64_t counts[] = {2, 16, 60, 100, 255, 256, 257, 600, 1024, 5000};
    bytes_repeat(out, what, one_in(r, 40) ? 70000 : PICK(r, counts));
}

static void mutate_bytes(Random *r, Bytes *b)
{
    const int64_t at = below(r, b->n + 1), left = b->n - at, span = below(r, gx_min(left, 64) + 1);
    char byte = (char)draw(r);
    Bytes more = GX_ZERO;
    switch (below(r, 8)) {
    case 0:
    case 1:
        if (left) b->p[at] ^= (char)(1 << below(r, 8));
        break;
    case 2:
        if (left) b->p[at] = byte;
        break;
    case 3: bytes_splice(b, at, span, NULL, 0); break;
    case 4: bytes_splice(b, at, 0, b->p + below(r, b->n - span + 1), span); break;
    case 5: bytes_splice(b, at, 0, &byte, 1); break;
    case 6: // cut off
        if (one_in(r, 3)) bytes_splice(b, at, left, NULL, 0);
        break;
    default:
        if (one_in(r, 4)) repeat(r, &more, PICK(r, scraps));
        else bytes_text(&more, PICK(r, scraps));
        bytes_splice(b, at, 0, more.p ? more.p : "", more.n);
    }
    free(more.p);
}

// ---- JSON ----------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t begin, end; // of the value, or of a key with its quotation marks
    int is_key;
} JsonSpan;
enum { SPANS_MOST = 4000 };

static int64_t json_string_end(const Bytes *b, int64_t at) // behind the closing mark
{
    for (at++; at < b->n && b->p[at] != '"'; at++)
        if (b->p[at] == '\\') at++;
    return gx_min(at + 1, b->n);
}

// Keys and values of a text that may not even be JSON.
static int json_spans(const Bytes *b, JsonSpan *span)
{
    int n = 0, open[256], depth = 0;
    for (int64_t at = 0; at < b->n && n < SPANS_MOST;) {
        const char c = b->p[at];
        const int64_t begin = at;
        if (c == '"') {
            at = json_string_end(b, at);
            const int64_t next = at + (int64_t)strspn(b->p + at, " \n\t\r");
            const JsonSpan text = {begin, at, next < b->n && b->p[next] == ':'};
            span[n++] = text;
        } else if (c == '{' || c == '[') {
            const JsonSpan container = {begin, b->n, 0};
            if (depth < 256) open[depth++] = n;
            span[n++] = container;
            at++;
        } else if (c == '}' || c == ']') {
            at++;
            if (depth > 0) span[open[--depth]].end = at;
        } else if (strchr("+-.0123456789", c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
            while (at < b->n && !strchr(" ,:{}[]\"\n\t\r", b->p[at])) at++;
            const JsonSpan word = {begin, at, 0};
            span[n++] = word;
        } else at++;
    }
    return n;
}

static void json_value(Random *r, Bytes *out, int depth)
{
    char number[64];
    switch (depth > 3 ? below(r, 3) : below(r, 8)) {
    case 0: bytes_text(out, PICK(r, literals)); break;
    case 1:
    case 2:
        number_text(r, number);
        bytes_text(out, number);
        break;
    case 3:
        bytes_text(out, "\"");
        if (one_in(r, 2)) repeat(r, out, one_in(r, 2) ? PICK(r, scraps) : "x");
        else bytes_text(out, one_in(r, 2) ? PICK(r, scraps) : known(r));
        bytes_text(out, "\"");
        break;
    case 4:
    case 5:
        bytes_text(out, "[");
        for (int64_t i = below(r, one_in(r, 20) ? 600 : 5); i > 0; i--) {
            json_value(r, out, depth + 1);
            if (i > 1) bytes_text(out, ",");
        }
        bytes_text(out, "]");
        break;
    case 6: {
        const int64_t deep = one_in(r, 8) ? 3000 : one_in(r, 2) ? 63 + below(r, 4) : 1 + below(r, 8);
        const int is_array = one_in(r, 2);
        bytes_repeat(out, is_array ? "[" : "{\"a\":", deep);
        bytes_text(out, "1");
        bytes_repeat(out, is_array ? "]" : "}", deep);
        break;
    }
    default:
        bytes_text(out, "{\"");
        bytes_text(out, known(r));
        bytes_text(out, "\":");
        json_value(r, out, depth + 1);
        bytes_text(out, "}");
    }
}

static void json_member(Random *r, Bytes *b, const JsonSpan *key, int64_t value_end)
{
    Bytes m = GX_ZERO;
    switch (below(r, 4)) {
    case 0: // gone, with the comma that is behind or before it
        if (b->p[value_end] == ',') value_end++;
        bytes_splice(b, key->begin, value_end - key->begin, NULL, 0);
        break;
    case 1: // twice
        bytes_add(&m, b->p + key->begin, value_end - key->begin);
        bytes_text(&m, ",");
        bytes_splice(b, key->begin, 0, m.p, m.n);
        break;
    case 2: // under another name
        bytes_text(&m, "\"");
        bytes_text(&m, known(r));
        bytes_text(&m, "\"");
        bytes_splice(b, key->begin, key->end - key->begin, m.p, m.n);
        break;
    default: // one more
        bytes_text(&m, "\"");
        bytes_text(&m, one_in(r, 4) ? PICK(r, scraps) : known(r));
        bytes_text(&m, "\":");
        json_value(r, &m, 0);
        bytes_text(&m, ",");
        bytes_splice(b, key->begin, 0, m.p, m.n);
    }
    free(m.p);
}

static void mutate_json(Random *r, Bytes *b)
{
    static JsonSpan span[SPANS_MOST];
    const int n = json_spans(b, span);
    if (n == 0 || one_in(r, 12)) {
        mutate_bytes(r, b);
        return;
    }
    const int k = (int)below(r, n);
    const JsonSpan s = span[k], other = span[below(r, n)];
    Bytes value = GX_ZERO;
    const GxField *f = k > 0 && span[k - 1].is_key
                           ? option_of(b->p + span[k - 1].begin + 1, gx_max(0, span[k - 1].end - span[k - 1].begin - 2))
                           : NULL;
    if (f && one_in(r, 2)) {
        option_value(r, f, 1, &value);
        bytes_splice(b, s.begin, s.end - s.begin, value.p ? value.p : "", value.n);
        free(value.p);
        return;
    }
    if (s.is_key && k + 1 < n) {
        json_member(r, b, &s, span[k + 1].end);
        return;
    }
    switch (below(r, 6)) {
    case 0:
    case 1: json_value(r, &value, 0); break;
    case 5: // a number that is near
        bytes_add(&value, b->p + s.begin, s.end - s.begin);
        bytes_text(&value, PICK(r, decimals));
        break;
    case 2: bytes_add(&value, b->p + other.begin, other.end - other.begin); break; // a value from elsewhere
    case 3:
        bytes_add(&value, b->p + s.begin, s.end - s.begin);
        for (int64_t i = 1 + below(r, 2); i > 0 && value.n; i--) mutate_bytes(r, &value);
        break;
    default:
        bytes_text(&value, "[");
        bytes_add(&value, b->p + s.begin, s.end - s.begin);
        bytes_text(&value, "]");
    }
    bytes_splice(b, s.begin, s.end - s.begin, value.p ? value.p : "", value.n);
    free(value.p);
}

static void mutate_lines(Random *r, Bytes *b)
{
    int64_t begin = below(r, b->n + 1), end;
    while (begin > 0 && b->p[begin - 1] != '\n') begin--;
    for (end = begin; end < b->n && b->p[end] != '\n';) end++;
    Bytes line = GX_ZERO;
    bytes_add(&line, b->p + begin, end - begin);
    if (one_in(r, 6)) mutate_bytes(r, b);
    else if (one_in(r, 6)) bytes_splice(b, begin, gx_min(end + 1, b->n) - begin, NULL, 0);
    else if (one_in(r, 6)) {
        bytes_text(&line, "\n");
        bytes_splice(b, begin, 0, line.p, line.n);
    } else {
        mutate_json(r, &line);
        bytes_splice(b, begin, end - begin, line.p, line.n);
    }
    free(line.p);
}

// ---- safetensors ---------------------------------------------------------------------------------------------------

static void mutate_safetensors(Random *r, Bytes *b)
{
    static const int64_t lengths[] = {0, 1, 7, 8, 100000000, 100000001, INT32_MAX, INT64_MAX, -1, -8, INT64_MIN};
    int64_t n = 0;
    if (b->n >= 8) memcpy(&n, b->p, 8);
    if (n < 0 || n > b->n - 8 || one_in(r, 10)) {
        mutate_bytes(r, b);
        return;
    }
    if (one_in(r, 10)) { // another length alone
        const int64_t near[] = {n - 1, n + 1, b->n - 8, b->n - 7, b->n, PICK(r, lengths)}, length = PICK(r, near);
        memcpy(b->p, &length, 8);
        return;
    }
    if (one_in(r, 8)) { // data that is longer or shorter
        const char zeros[8] = GX_ZERO;
        if (one_in(r, 2)) bytes_add(b, zeros, 1 + below(r, 8));
        else bytes_splice(b, b->n - gx_min(b->n, 1 + below(r, 8)), gx_min(b->n, 1), NULL, 0);
        return;
    }
    Bytes header = GX_ZERO;
    bytes_add(&header, b->p + 8, n);
    mutate_json(r, &header);
    bytes_splice(b, 8, n, header.p, header.n);
    if (!one_in(r, 10)) memcpy(b->p, &header.n, 8);
    free(header.p);
}

// ---- GGUF ----------------------------------------------------------------------------------------------------------

// Small numbers are lengths, counts, types and offsets: one of them becomes another one.
static void mutate_gguf(Random *r, Bytes *b)
{
    static const int64_t numbers[] = {0,
                                      1,
                                      2,
                                      7,
                                      8,
                                      9,
                                      12,
                                      31,
                                      32,
                                      33,
                                      63,
                                      64,
                                      255,
                                      256,
                                      INT32_MAX,
                                      INT64_MAX,
                                      -1,
                                      INT64_MIN,
                                      -32,
                                      UINT32_MAX,
                                      (int64_t)1 << 32,
                                      (int64_t)1 << 61,
                                      (int64_t)1 << 62};
    const int bytes = one_in(r, 2) ? 4 : 8;
    int64_t at = below(r, gx_min(b->n, 16384) + 1), number = 0;
    for (int tries = 0; tries < 200 && at + bytes <= b->n; tries++, at++) {
        number = 0;
        memcpy(&number, b->p + at, (size_t)bytes);
        if (number > 0 && number < 1 << 16 && (unsigned char)b->p[at]) break;
    }
    if (at + bytes > b->n || number <= 0 || number >= 1 << 16 || one_in(r, 3)) {
        mutate_bytes(r, b);
        return;
    }
    const int64_t near[] = {number - 1, number + 1, 2 * number, number + 32, PICK(r, numbers), PICK(r, numbers)};
    number = PICK(r, near);
    memcpy(b->p + at, &number, (size_t)bytes);
}

// ---- command lines and numbers -------------------------------------------------------------------------------------

static void mutate_args(Random *r, Bytes *b)
{
    int64_t begin = below(r, b->n + 1), end;
    while (begin > 0 && b->p[begin - 1]) begin--;
    end = begin + (int64_t)strnlen(b->p + begin, (size_t)(b->n - begin));
    Bytes word = GX_ZERO;
    const GxField *f;
    char number[64];
    bytes_add(&word, b->p + begin, end - begin);
    switch (below(r, 12)) {
    case 7:
    case 8:
    case 9:
    case 10:
    case 11: // one more option and a value
        word.n = 0;
        f = some_option(r);
        bytes_text(&word, "--");
        bytes_text(&word, f->name);
        bytes_add(&word, one_in(r, 4) ? "=" : "", 1);
        if (one_in(r, 8)) bytes_text(&word, known(r));
        else option_value(r, f, 0, &word);
        bytes_splice(b, begin, 0, word.p, word.n + 1);
        free(word.p);
        return;
    case 0: mutate_bytes(r, &word); break;
    case 1: bytes_splice(b, begin, gx_min(end + 1, b->n) - begin, NULL, 0), free(word.p); return;
    case 2: bytes_splice(b, begin, 0, word.p, word.n + 1), free(word.p); return;
    case 3:
        word.n = 0;
        bytes_text(&word, "--");
        bytes_text(&word, known(r));
        break;
    case 4:
        word.n = 0;
        bytes_text(&word, PICK(r, literals));
        break;
    case 5:
        word.n = 0;
        for (int64_t i = list_length(r); i > 0; i--) {
            number_text(r, number);
            bytes_text(&word, number);
            if (i > 1) bytes_text(&word, ",");
        }
        break;
    default: word.n = 0, repeat(r, &word, one_in(r, 2) ? "x" : PICK(r, scraps));
    }
    bytes_splice(b, begin, end - begin, word.p, word.n);
    free(word.p);
}

static void mutate_numbers(Random *r, Bytes *b)
{
    char number[64];
    int64_t begin = below(r, b->n + 1), end;
    while (begin > 0 && b->p[begin - 1] != ' ') begin--;
    for (end = begin; end < b->n && b->p[end] != ' ';) end++;
    number_text(r, number);
    bytes_splice(b, begin, end - begin, number, (int64_t)strlen(number));
}

// ---- a case --------------------------------------------------------------------------------------------------------

static int ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

// ---- chat templates ------------------------------------------------------------------------------------------------

static const char *const jinja_words[] = {"{{ ",
                                          " }}",
                                          "{%- ",
                                          " -%}",
                                          "{# ",
                                          " #}",
                                          "(",
                                          ")",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "'",
                                          "\\",
                                          "|",
                                          " ~ ",
                                          " + ",
                                          " * ",
                                          " ** ",
                                          " // ",
                                          " % ",
                                          "-",
                                          ".",
                                          ",",
                                          ":",
                                          " if ",
                                          " else ",
                                          " in ",
                                          " not ",
                                          " and ",
                                          " is ",
                                          " == ",
                                          " < ",
                                          "none",
                                          "true",
                                          "0",
                                          "9223372036854775807",
                                          "1e308",
                                          "''",
                                          "messages",
                                          "loop",
                                          "ns.x",
                                          "m.content",
                                          "{% for m in messages %}",
                                          "{% endfor %}",
                                          "{% if m %}",
                                          "{% endif %}",
                                          "{% set x = x ~ x %}",
                                          "{% set x %}",
                                          "{% endset %}",
                                          "{% macro f(a, b=a) %}",
                                          "{{ f(f) }}",
                                          "{% endmacro %}",
                                          "{% generation %}",
                                          "{% endgeneration %}",
                                          "{% break %}",
                                          "{% raw %}",
                                          "|tojson(indent=2)",
                                          "|map('trim')",
                                          "|selectattr('role')",
                                          "|list",
                                          "|sort",
                                          "|join",
                                          "|replace('', 'a')",
                                          "|indent",
                                          "|int",
                                          "|round(2)",
                                          "|safe",
                                          ".split()",
                                          ".strip('a')",
                                          ".items()",
                                          "[::-1]",
                                          "[-1]",
                                          "range(100000)",
                                          "namespace(x=1)",
                                          "raise_exception('a')",
                                          "strftime_now('%d')"};

static void mutate_jinja(Random *r, Bytes *b)
{
    const char *word = PICK(r, jinja_words);
    if (one_in(r, 2)) mutate_bytes(r, b);
    else bytes_splice(b, below(r, b->n + 1), 0, word, (int64_t)strlen(word));
}

static void mutate_table(Random *r, Bytes *b)
{
    static const char *const words[] = {"\"",      "\"\"",         "\"\"\"", "\",",   ",\"", ",",    ";",
                                        "\t",      "\t\"",         "\n",     "\r\n",  "\r",  "\"\n", "\n\"",
                                        "sep=;\n", "\xEF\xBB\xBF", "text",   "label", "\n\n"};
    const char *word = PICK(r, words);
    if (one_in(r, 4)) mutate_bytes(r, b);
    else bytes_splice(b, below(r, b->n + 1), 0, word, (int64_t)strlen(word));
}

static void mutate_part(Random *r, Part *p)
{
    if (ends_with(p->name, ".json")) mutate_json(r, &p->bytes);
    else if (ends_with(p->name, ".jsonl")) mutate_lines(r, &p->bytes);
    else if (ends_with(p->name, ".safetensors")) mutate_safetensors(r, &p->bytes);
    else if (ends_with(p->name, ".gguf")) mutate_gguf(r, &p->bytes);
    else if (ends_with(p->name, ".csv") || ends_with(p->name, ".tsv")) mutate_table(r, &p->bytes);
    else if (ends_with(p->name, ".jinja")) mutate_jinja(r, &p->bytes);
    else if (!strcmp(p->name, "args")) mutate_args(r, &p->bytes);
    else if (ends_with(p->name, ".numbers")) mutate_numbers(r, &p->bytes);
    else mutate_bytes(r, &p->bytes);
}

// One to a few changes; now and then the end of a part comes from another case.
static void mutate_case(Random *r, Case *c, const Case *other)
{
    options.focus = (int)below(r, options.n);
    for (int64_t n = 1 + below(r, one_in(r, 4) ? 8 : 2); n > 0; n--) {
        Part *p = &c->part[below(r, c->n)];
        const Bytes *b = case_part(other, p->name);
        if (one_in(r, 12) && b->n) {
            const int64_t cut = below(r, p->bytes.n + 1), from = below(r, b->n);
            bytes_splice(&p->bytes, cut, p->bytes.n - cut, b->p + from, b->n - from);
        } else mutate_part(r, p);
    }
}
#endif
