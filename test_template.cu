// test_template.cu: chat templates against transformers and its Jinja2 (dev/ref/make_template.py), what is refused and
// with which words, limits, mutated templates, threads.
#include "galaxy/text/template.h"
#include "test/test.h"
#include <pthread.h>
#include <time.h>

static const int64_t noon = 1753531200; // 2025-07-26 12:00:00 UTC, as in the references

// ---- files of references -------------------------------------------------------------------------------------------

typedef struct {
    char *text;
    GxJson **line;
    int n;
} Lines;

static void lines_close(Lines *x)
{
    for (int i = 0; i < x->n; i++) gx_json_free(x->line[i]);
    free(x->line);
    free(x->text);
}

static int lines_open(Lines *x, const char *path)
{
    GxError e = GX_ZERO;
    int64_t bytes;
    memset(x, 0, sizeof *x);
    if (!CHECK(gx_file_read(path, 1 << 24, &x->text, &bytes, &e) == GX_OK, "%s", e.message)) return 0;
    for (char *p = x->text, *end; (end = strchr(p, '\n')); p = end + 1) {
        x->line = (GxJson **)realloc(x->line, (size_t)(x->n + 1) * sizeof *x->line);
        if (!CHECK(gx_json_parse(&x->line[x->n], p, end - p, path, &e) == GX_OK, "%s", e.message)) return 0;
        x->n++;
    }
    return 1;
}

static GxStatus render(const char *template_text, const GxJson *variables, GxTemplateText *out, GxError *e)
{
    GxTemplate *t;
    memset(out, 0, sizeof *out);
    GxStatus status = gx_template_parse(&t, template_text, (int64_t)strlen(template_text), "t.jinja", e);
    if (status == GX_OK) status = gx_template_render(t, variables, noon, out, e);
    gx_template_free(t);
    return status;
}

static int same_spans(const GxTemplateText *x, const GxJson *spans)
{
    int same = gx_json_size(spans) == 2 * x->generations;
    for (int i = 0; same && i < x->generations; i++)
        same = x->generated[i].begin == gx_json_int(gx_json_at(spans, 2 * i)) &&
               x->generated[i].end == gx_json_int(gx_json_at(spans, 2 * i + 1));
    return same;
}

// ---- against transformers ------------------------------------------------------------------------------------------

static int is_as_expected(const GxJson *result, GxStatus status, const GxTemplateText *x, const GxError *e)
{
    char hash[20];
    const GxJson *text = gx_json_get(result, "text");
    if (gx_json_get(result, "raises"))
        return status == GX_ERR_FORMAT && strstr(e->message, gx_json_string(gx_json_get(result, "raises")));
    if (gx_json_get(result, "fails")) return status == GX_ERR_FORMAT;
    if (status != GX_OK || x->bytes != gx_json_int(gx_json_get(result, "bytes"))) return 0;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)gx_hash(GX_HASH_START, x->text, x->bytes));
    return !strcmp(hash, gx_json_string(gx_json_get(result, "hash"))) && same_spans(x, gx_json_get(result, "spans")) &&
           (!text || !strcmp(gx_json_string(text), x->text));
}

TEST(conversations_are_rendered_as_transformers_renders_them)
{
    Lines all;
    const GxJson *templates[64], *variables[256];
    int n_templates = 0, n_variables = 0, rendered = 0, refused = 0, generated = 0;
    if (!lines_open(&all, "data/ref/template/rendered.jsonl")) return;
    for (int i = 0; i < all.n; i++) {
        if (gx_json_get(all.line[i], "template") && n_templates < 64) templates[n_templates++] = all.line[i];
        if (gx_json_get(all.line[i], "variables") && n_variables < 256)
            variables[n_variables++] = gx_json_get(all.line[i], "variables");
        const GxJson *results = gx_json_get(all.line[i], "results");
        for (int k = 0; k < n_templates && results; k++) {
            const char *name = gx_json_string(gx_json_get(all.line[i], "rendered"));
            if (strcmp(gx_json_string(gx_json_get(templates[k], "template")), name)) continue;
            const char *text = gx_json_string(gx_json_get(templates[k], "text"));
            GxTemplate *t;
            GxError e = GX_ZERO;
            CHECK(gx_json_size(results) == n_variables, "%s: %d results", name, (int)gx_json_size(results));
            if (!CHECK(gx_template_parse(&t, text, (int64_t)strlen(text), name, &e) == GX_OK, "%s", e.message))
                continue;
            for (int v = 0; v < n_variables; v++) {
                GxTemplateText x;
                gx_error_clear(&e);
                const GxStatus status = gx_template_render(t, variables[v], noon, &x, &e);
                CHECK(is_as_expected(gx_json_at(results, v), status, &x, &e), "%s, conversation %d: %s", name, v,
                      status == GX_OK ? x.text : e.message);
                rendered += status == GX_OK, refused += status != GX_OK, generated += x.generations;
                gx_template_text_free(&x);
            }
            gx_template_free(t);
        }
    }
    CHECK(n_templates >= 30 && rendered + refused >= 2000 && rendered >= 1500 && refused >= 100 && generated >= 50,
          "%d templates, %d rendered, %d refused, %d generations", n_templates, rendered, refused, generated);
    lines_close(&all);
}

TEST(snippets_give_what_jinja2_gives)
{
    Lines all;
    int texts = 0, errors = 0;
    if (!lines_open(&all, "data/ref/template/snippets.jsonl")) return;
    const GxJson *variables = gx_json_get(all.line[0], "variables");
    for (int i = 1; i < all.n; i++) {
        const char *snippet = gx_json_string(gx_json_get(all.line[i], "snippet"));
        const GxJson *text = gx_json_get(all.line[i], "text");
        const int gives = gx_json_type(text) == GX_JSON_STRING;
        GxTemplateText x;
        GxError e = GX_ZERO;
        const GxStatus status = render(snippet, variables, &x, &e);
        if (!gives) CHECK(status == GX_ERR_FORMAT, "%s: %s", snippet, status == GX_OK ? x.text : e.message);
        else
            CHECK(status == GX_OK && !strcmp(x.text, gx_json_string(text)) &&
                      same_spans(&x, gx_json_get(all.line[i], "spans")),
                  "%s: %s; expected %s", snippet, status == GX_OK ? x.text : e.message, gx_json_string(text));
        texts += gives, errors += !gives;
        gx_template_text_free(&x);
    }
    CHECK(texts >= 400 && errors >= 60, "%d texts, %d errors", texts, errors);
    lines_close(&all);
}

// ---- messages ------------------------------------------------------------------------------------------------------

static GxJson *json_of(const char *text)
{
    GxJson *json = NULL;
    GxError e = GX_ZERO;
    CHECK(gx_json_parse(&json, text, (int64_t)strlen(text), "json", &e) == GX_OK, "%s", e.message);
    return json;
}

static void fails(const char *text, const GxJson *variables, GxStatus expected, const char *words)
{
    GxTemplateText x;
    GxError e = GX_ZERO;
    const GxStatus status = render(text, variables, &x, &e);
    CHECK(status == expected && e.code == (int)expected && strstr(e.message, words), "%.80s: no \"%s\" (%d): %d, %s",
          text, words, (int)expected, (int)status, status == GX_OK ? x.text : e.message);
    CHECK(!x.text && !x.generated, "%.80s: something was handed out", text);
    gx_template_text_free(&x);
}

TEST(what_is_not_built_is_refused_by_name_and_line)
{
    static const struct {
        const char *text, *says;
    } list[] = {
        {"a\nb\n{{ x | frob }}", "t.jinja:3: the filter \"frob\" is not supported"},
        {"{% if false %}\n{{ 1 is odd and 2 is prime }}{% endif %}", "t.jinja:2: the test \"prime\" is not supported"},
        {"{{ 1 is sameas 1 }}",
         "the test sameas of an integer is not supported; it takes true, false, none, lists and dicts"},
        {"{{ l | map('frob') | list }}", "t.jinja:1: the filter \"frob\" is not supported"},
        {"{{ l | select('prime') | list }}", "t.jinja:1: the test \"prime\" is not supported"},
        {"{{ l | selectattr('a', 'prime') | list }}", "t.jinja:1: the test \"prime\" is not supported"},
        {"{{ l | map('f' ~ 'rob') | list }}", "t.jinja:1: the filter \"frob\" is not supported"},
        {"\n\n{{ 'abc'.zfill(5) }}", "t.jinja:3: the method \"zfill\" is not supported"},
        {"{{ '{}'.format(1) }}", "the method \"format\" is not supported"},
        {"{{ m['a'].nothing() }}", "the method \"nothing\" is not supported"},
        {"\n{% include 'x' %}", "t.jinja:2: the tag \"include\" is not supported"},
        {"{% with a = 1 %}{% endwith %}", "the tag \"with\" is not supported"},
        {"{% call f() %}{% endcall %}", "the tag \"call\" is not supported"},
        {"{% filter upper %}{% endfilter %}", "the tag \"filter\" is not supported"},
        {"{% do l.append(1) %}", "the tag \"do\" is not supported"},
        {"{% block a %}{% endblock %}", "the tag \"block\" is not supported"},
        {"{% for x in l recursive %}{% endfor %}", "recursive loops are not supported"},
        {"{% macro f() %}\n{{ varargs }}{% endmacro %}", "t.jinja:2: \"varargs\" inside a macro is not supported"},
        {"{{ f(*l) }}", "calls with * or ** are not supported"},
        {"{{ f(**d) }}", "calls with * or ** are not supported"},
        {"\n{{ lipsum() }}", "t.jinja:2: \"lipsum\" is not supported"},
        {"{{ self }}", "\"self\" is not supported"},
        {"{{ x.__class__ }}", "\".__class__\" is not supported"},
        {"{{ l[1, 2] }}", "[a, b] after a value is not supported"},
        {"{{ é }}", "names with characters beyond ASCII are not supported"},
        {"{{ '\\N{BULLET}' }}", "\\N in a string is not supported"},
        {"{{ 12345678901234567890 }}", "integers of more than 64 bits are not supported"},
        {"{% for x in l %}{{ loop.changed(x) }}{% endfor %}", "the method \"changed\" is not supported"},
        {"{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}",
         "{% generation %} inside a macro is not supported"},
        {"{% set x %}{% generation %}{% endgeneration %}{% endset %}",
         "{% generation %} inside a {% set %} block is not supported"},
        {"{% generation %}{% generation %}{% endgeneration %}{% endgeneration %}",
         "{% generation %} inside another one is not supported"},
        // while it renders
        {"\n{{ '%d' % 1 }}", "t.jinja:2: % of a string (formatting) is not supported"},
        {"{{ 'é' | upper }}", "the upper case of U+00E9 is not supported"},
        {"{{ 'Σ' | lower }}", "the lower case of U+03A3 is not supported"},
        {"{{ 9223372036854775807 + 1 }}", "integers of more than 64 bits are not supported"},
        {"{{ -9223372036854775807 - 2 }}", "integers of more than 64 bits are not supported"},
        {"{{ 4611686018427387904 * 2 }}", "integers of more than 64 bits are not supported"},
        {"{{ 10 ** 19 }}", "integers of more than 64 bits are not supported"},
        {"{{ {}.items }}", "writing out a method is not supported"},
        {"{% macro f() %}\n\n{{ 1 }}{% endmacro %}\n{{ {}.items ~ f() }}", "t.jinja:4: writing out a method"},
        {"{{ l | map('string') }}", "writing out a generator is not supported"},
        {"{{ ('<' | safe) + '<' }}", "+ with a text that is |safe or |escape is not supported"},
        {"{{ ('<' | e).upper() }}", "methods of a text that is |safe or |escape are not supported"},
        {"{{ '<' | safe | replace('<', '>') }}", "the filter \"replace\" of a text that is |safe"},
        {"{{ strftime_now('%s') }}", "strftime_now: %s is not supported"},
        {"{{ strftime_now('%Q') }}", "strftime_now: %Q is not supported"},
        {"{{ 'a'.find('a', 1) }}", "the method \"find\" with a start or end is not supported"},
        {"{{ '7' | int(base=8) }}", "int with a base that is not 10 is not supported"},
    };
    GxJson *variables = json_of("{\"l\": [1, 2], \"d\": {}, \"m\": {\"a\": {}}}");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        fails(list[i].text, variables, GX_ERR_UNSUPPORTED, list[i].says);
    gx_json_free(variables);
}

TEST(errors_name_the_line_and_what_was_found)
{
    static const struct {
        const char *text, *says;
    } list[] = {
        {"a\n{% if x %}\nb", "t.jinja:2: this tag has no {% endif %}"},
        {"{% for x in l %}\n{% if x %}{% endfor %}", "t.jinja:2: {% endfor %} without its opening tag"},
        {"\n{{ 1 + }}", "t.jinja:2: the end of the tag, }}; expected an expression"},
        {"{{ 1 2 }}", "t.jinja:1: an integer; expected the end of the tag, }}"},
        {"{{ (1 }}", "unmatched \"}\""},
        {"{{ 'abc }}", "a string is not closed"},
        {"\n{# abc", "t.jinja:2: a comment is not closed; expected #}"},
        {"{{ x", "a tag is not closed; expected }}"},
        {"{% raw %}", "{% raw %} without {% endraw %}"},
        {"{% break %}", "{% break %} outside of a loop"},
        {"{% for x in l %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "{% break %} outside of a loop"},
        {"{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{% break %} outside of a loop"},
        {"{% for x in l %}{% set loop = 1 %}{% endfor %}", "\"loop\" cannot be set inside a loop"},
        {"{{ ? }}", "unexpected character: \"?\""},
        {"{{ '\\ud800' }}", "U+D800 is not a character"},
        {"{% macro f(a=1, b) %}{% endmacro %}", "expected a default, as the parameter before has"},
        {"{{ f(a=1, a=2) }}", "the argument \"a\" is given twice"},
        {"\n\n{{ u.v.w }}", "t.jinja:3: u is undefined, and has no \"v\""},
        {"{{ d.v.w }}", "v is undefined, and has no \"w\""},
        {"{% for x in l %}\n{{ x.y.z }}{% endfor %}", "t.jinja:2: y is undefined"},
        {"{{ 'a' +\n 1 }}", "t.jinja:1: a string + an integer is not defined in Python"},
        {"{{ u + 'a' }}", "u is undefined, and + is used on it"},
        {"{{ 1 / 0 }}", "/ by 0"},
        {"{{ 1 < 'a' }}", "an integer and a string cannot be ordered"},
        {"{% for x in 5 %}{% endfor %}", "an integer cannot be iterated over"},
        {"{% set a, b = l %}", "2 names are set to 3 values"},
        {"{{ l.append(4) }}", "or a method that templates may not call"},
        {"{{ u() }}", "\"u\" is called, but is undefined"},
        {"{{ 5() }}", "an integer cannot be called"},
        {"{% set d.x = 1 %}", "\"d.x\" is set, but a dict is not a namespace"},
        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "the macro \"f\" takes at most 1 arguments"},
        {"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "the macro \"f\" takes no \"b\""},
        {"{{ u | tojson }}", "tojson: an undefined value has no form in JSON"},
        {"{{ [1, 'a'] | sort }}", "cannot be ordered"},
        {"{{ {l: 1} }}", "a list cannot be a key of a dict"},
        {"{{ l | trim(1) }}", "what is stripped is an integer; expected a string"},
        {"{{ l | join(sep=1) }}", "join takes no \"sep\""},
        {"{{ l | join(',', none, 3) }}", "join takes at most 2 arguments"},
        {"{{ 'a' | replace('b') }}", "replace needs another argument"},
        {"{% macro f() %}\n\n{{ 1 }}{% endmacro %}\n{{ [u] | tojson ~ f() }}", "t.jinja:4: tojson"},
        {"a\n\n{{ raise_exception('no ' ~ 1) }}", "t.jinja:3: no 1"},
    };
    GxJson *variables = json_of("{\"l\": [1, 2, 3], \"d\": {\"e\": 1}}");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) fails(list[i].text, variables, GX_ERR_FORMAT, list[i].says);
    gx_json_free(variables);
}

TEST(a_template_is_utf8_and_its_variables_are_an_object)
{
    GxTemplate *t;
    GxTemplateText x;
    GxError e = GX_ZERO;
    CHECK(gx_template_parse(&t, "a\nb\xff", 4, "t", &e) == GX_ERR_FORMAT &&
              strstr(e.message, "t:2: bytes that are not UTF-8"),
          "%s", e.message);
    gx_error_clear(&e);
    CHECK(gx_template_parse(&t, "é", 1, "t", &e) == GX_ERR_FORMAT && !t, "half a character: %s", e.message);
    gx_error_clear(&e);
    CHECK(gx_template_parse(&t, "a\0b{{ x }}", 10, "t", &e) == GX_OK, "%s", e.message);
    GxJson *list = json_of("[]"), *object = json_of("{\"x\": \"c\"}");
    CHECK(gx_template_render(t, list, noon, &x, &e) == GX_ERR_ARGUMENT && strstr(e.message, "are an array; expected"),
          "%s", e.message);
    gx_error_clear(&e);
    CHECK(gx_template_render(t, object, noon, &x, &e) == GX_OK && x.bytes == 4 && !memcmp(x.text, "a\0bc", 5), "%s",
          e.message);
    gx_template_text_free(&x);
    gx_template_free(t);
    gx_template_free(NULL);
    gx_json_free(list);
    gx_json_free(object);
}

// ---- what is asked of a template -----------------------------------------------------------------------------------

TEST(variables_that_a_template_reads_are_known)
{
    static const struct {
        const char *text, *name;
        int reads;
    } list[] = {
        {"{{ enable_thinking }}", "enable_thinking", 1},
        {"{% if enable_thinking is defined %}{% endif %}", "enable_thinking", 1},
        {"enable_thinking {# {{ enable_thinking }} #}", "enable_thinking", 0},
        {"{% raw %}{{ enable_thinking }}{% endraw %}", "enable_thinking", 0},
        {"{{ x.enable_thinking }}{{ f(enable_thinking=1) }}{{ 'enable_thinking' }}", "enable_thinking", 0},
        {"{{ strftime_now('%Y') }}", "strftime_now", 1},
        {"{% for m in messages %}{{ m }}{{ loop.index }}{% endfor %}", "m", 0},
        {"{% for m in messages %}{{ m }}{{ loop.index }}{% endfor %}", "loop", 0},
        {"{% for m in messages %}{{ m }}{% endfor %}{{ m }}", "m", 1},
        {"{% for m in messages %}{{ m }}{% endfor %}", "messages", 1},
        {"{% macro f(a, b=c) %}{{ a }}{{ d }}{% endmacro %}", "a", 0},
        {"{% macro f(a, b=c) %}{{ a }}{{ d }}{% endmacro %}", "c", 1},
        {"{% macro f(a, b=c) %}{{ a }}{{ d }}{% endmacro %}", "d", 1},
        {"{% for x in l if x > y %}{% endfor %}", "x", 0},
        {"{% for x in l if x > y %}{% endfor %}", "y", 1},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxTemplate *t;
        GxError e = GX_ZERO;
        if (!CHECK(gx_template_parse(&t, list[i].text, (int64_t)strlen(list[i].text), "t", &e) == GX_OK, "%s",
                   e.message))
            continue;
        CHECK(gx_template_mentions(t, list[i].name) == list[i].reads, "%s: %s", list[i].text, list[i].name);
        CHECK(!gx_template_has_generation(t), "%s", list[i].text);
        gx_template_free(t);
    }
    GxTemplate *t;
    GxError e = GX_ZERO;
    const char *text = "{% if false %}{%- generation -%}{% endgeneration %}{% endif %}";
    CHECK(gx_template_parse(&t, text, (int64_t)strlen(text), "t", &e) == GX_OK && gx_template_has_generation(t), "%s",
          e.message);
    gx_template_free(t);
}

TEST(dates_are_of_the_time_that_is_given)
{
    static const struct {
        const char *format, *expected;
    } list[] = {
        {"%d %b %Y", "26 Jul 2025"}, {"%A, %B %-d. %H:%M:%S %p %j%%", "Saturday, July 26. 12:00:00 PM 207%"}, {"", ""}};
    GxJson *variables = json_of("{}");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[100];
        GxTemplateText x = GX_ZERO;
        GxError e = GX_ZERO;
        snprintf(text, sizeof text, "{{ strftime_now('%s') }}", list[i].format);
        CHECK(render(text, variables, &x, &e) == GX_OK && !strcmp(x.text, list[i].expected), "%s: %s", text,
              x.text ? x.text : e.message);
        gx_template_text_free(&x);
    }
    gx_json_free(variables);
}

// ---- limits --------------------------------------------------------------------------------------------------------

static char *repeated(const char *head, const char *part, int times, const char *middle, const char *closing,
                      const char *tail)
{
    const size_t n =
        strlen(head) + (strlen(part) + strlen(closing)) * (size_t)times + strlen(middle) + strlen(tail) + 1;
    char *text = (char *)malloc(n), *p = text + sprintf(text, "%s", head);
    for (int i = 0; i < times; i++) p += sprintf(p, "%s", part);
    p += sprintf(p, "%s", middle);
    for (int i = 0; i < times; i++) p += sprintf(p, "%s", closing);
    sprintf(p, "%s", tail);
    return text;
}

TEST(hostile_templates_meet_a_limit_that_says_so)
{
    static const struct {
        const char *head, *part, *middle, *closing, *tail;
        int times;
        GxStatus status;
        const char *says;
    } list[] = {
        {"{{ ", "(", "1", ")", " }}", 101, GX_ERR_FORMAT, "brackets are nested deeper than 100"},
        {"{{ ", "[", "1", "]", " }}", 5000, GX_ERR_FORMAT, "brackets are nested deeper than 100"},
        {"{{ ", "not ", "1", "", " }}", 5000, GX_ERR_FORMAT, "expressions or tags are nested deeper than 100"},
        {"{{ ", "-", "1", "", " }}", 5000, GX_ERR_FORMAT, "expressions or tags are nested deeper than 100"},
        {"{{ ", "1 if 1 else ", "1", "", " }}", 5000, GX_ERR_FORMAT, "expressions or tags are nested deeper than 100"},
        {"", "{% if 1 %}", "", "{% endif %}", "", 5000, GX_ERR_FORMAT,
         "expressions or tags are nested deeper than 100"},
        {"", "{% for x in 'ab' %}", "x", "{% endfor %}", "", 40, GX_ERR_MEMORY,
         "no memory for what the template computes"},
        {"{{ 1", " + 1", "", "", " }}", 5000, GX_ERR_FORMAT, "nested deeper than 400"},
        {"{{ x", ".a", "", "", " }}", 5000, GX_ERR_FORMAT, "nested deeper than 400"},
        {"{{ 'a'", "|trim", "", "", " }}", 5000, GX_ERR_FORMAT, "nested deeper than 400"},
        {"{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "", "", "", "", 0, GX_ERR_FORMAT,
         "evaluations are nested deeper than 1200: a macro that calls itself?"},
        {"{{ range(100001) }}", "", "", "", "", 0, GX_ERR_FORMAT, "range of more than 100000"},
        {"{{ range(0, 9223372036854775807, 2) }}", "", "", "", "", 0, GX_ERR_FORMAT, "range of more than 100000"},
        {"{% set l = range(100000) %}{% for x in l %}{% for y in l %}{% endfor %}{% endfor %}", "", "", "", "", 0,
         GX_ERR_FORMAT, "takes more than 50000000 steps"},
        {"{% for x in range(100) %}{{ 'abcdefgh' * 1000000 }}{% endfor %}", "", "", "", "", 0, GX_ERR_FORMAT,
         "the rendered text is longer than 64 MB"},
        {"{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "",
         "", "", "", 0, GX_ERR_MEMORY, "no memory for what the template computes"},
        {"{{ 'abc' * 9223372036854775807 }}", "", "", "", "", 0, GX_ERR_FORMAT, "is too large for a template"},
        {"{{ [1] * 100000000 }}", "", "", "", "", 0, GX_ERR_FORMAT, "is too large for a template"},
        {"{% set ns = namespace(x=1) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "", "",
         "", "", 0, GX_ERR_FORMAT, "a value is nested deeper than 200"},
        {"{% set ns = namespace(x=1) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson "
         "}}",
         "", "", "", "", 0, GX_ERR_FORMAT, "tojson: nested deeper than 200"},
        {"{% set ns = namespace(x=1, y=1) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% "
         "endfor %}"
         "{{ ns.x == ns.y }}",
         "", "", "", "", 0, GX_ERR_FORMAT, "values are nested deeper than 200"},
        {"{% set a = 'a' * 4000000 %}{{ (a ~ 'b') in a ~ a }}", "", "", "", "", 0, GX_ERR_FORMAT,
         "takes more than 50000000 steps"},
        {"{% set a = 'a' * 4000000 %}{{ (a ~ a).split(a ~ 'b') }}", "", "", "", "", 0, GX_ERR_FORMAT,
         "takes more than 50000000 steps"},
        {"{% set a = 'a' * 4000000 %}{{ (a ~ a).rsplit('a' ~ 'b' ~ a) }}", "", "", "", "", 0, GX_ERR_FORMAT,
         "takes more than 50000000 steps"},
        {"{{ strftime_now('%A' * 200) }}", "", "", "", "", 0, GX_ERR_UNSUPPORTED, "a format of more than 255 bytes"},
    };
    GxJson *variables = json_of("{\"x\": 1}");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *text = repeated(list[i].head, list[i].part, list[i].times, list[i].middle, list[i].closing, list[i].tail);
        fails(text, variables, list[i].status, list[i].says);
        free(text);
    }
    char *large = repeated("", "abcdefgh", 1 << 19, "x", "", "");
    fails(large, variables, GX_ERR_FORMAT, "a template of 4.2 MB; expected at most 4 MB");
    free(large);
    gx_json_free(variables);
}

TEST(what_is_long_but_not_deep_is_no_matter)
{
    static const struct {
        const char *head, *part, *middle, *closing, *tail;
        int times;
    } list[] = {
        {"{{ 'a'", " ~ 'a'", "", "", " }}", 20000},
        {"{% if 0 %}", "{% elif 0 %}", "", "", "{% else %}x{% endif %}", 20000},
        {"", "{{ x }}{% set x = 1 %}", "", "", "", 20000},
        {"{% for i in [", "1, ", "", "", "] %}{% set y = loop.last %}{% if y %}x{% endif %}{% endfor %}", 20000},
        {"{{ 1", " + 1", "", "", " }}", 300},
        {"{{ ", "(", "1", ")", " }}", 40},
        {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}", "", "", "", "", 0}};
    GxJson *variables = json_of("{\"x\": 1}");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char *text = repeated(list[i].head, list[i].part, list[i].times, list[i].middle, list[i].closing, list[i].tail);
        GxTemplateText x;
        GxError e = GX_ZERO;
        CHECK(render(text, variables, &x, &e) == GX_OK && x.bytes > 0, "%.60s: %s", text, e.message);
        gx_template_text_free(&x);
        free(text);
    }
    gx_json_free(variables);
}

// ---- many threads --------------------------------------------------------------------------------------------------

typedef struct {
    const GxTemplate *t;
    const GxJson *variables;
    int wrong;
} Worker;

static void *renders_often(void *p)
{
    Worker *w = (Worker *)p;
    for (int i = 0; i < 100; i++) {
        GxTemplateText x;
        GxError e = GX_ZERO;
        w->wrong += gx_template_render(w->t, w->variables, noon, &x, &e) != GX_OK || strcmp(x.text, "user:hi;bot:yo;2");
        gx_template_text_free(&x);
    }
    return NULL;
}

TEST(threads_render_with_one_template)
{
    static const char text[] = "{% set ns = namespace(n=0) %}{% macro f(m) %}{{ m.role }}:{{ m.text }};{% endmacro %}"
                               "{% for m in messages %}{{ f(m) }}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}";
    GxJson *variables =
        json_of("{\"messages\": [{\"role\": \"user\", \"text\": \"hi\"}, {\"role\": \"bot\", \"text\": \"yo\"}]}");
    GxTemplate *t;
    GxError e = GX_ZERO;
    pthread_t thread[4];
    Worker w[4];
    CHECK(gx_template_parse(&t, text, (int64_t)sizeof text - 1, "t", &e) == GX_OK, "%s", e.message);
    for (int i = 0; i < 4; i++) {
        w[i].t = t, w[i].variables = variables, w[i].wrong = 0;
        pthread_create(&thread[i], NULL, renders_often, &w[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        CHECK(!w[i].wrong, "thread %d: %d texts are wrong", i, w[i].wrong);
    }
    gx_template_free(t);
    gx_json_free(variables);
}

// ---- mutated -------------------------------------------------------------------------------------------------------

static uint64_t drawn(uint64_t *state, uint64_t below) // splitmix64
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (z ^ (z >> 31)) % below;
}

// One to four changes: bytes that are left out, written twice, overwritten by others or by a word of templates.
static void mutate(char *text, uint64_t *state)
{
    static const char *const words[] = {"{{",
                                        "}}",
                                        "{%",
                                        "%}",
                                        "{%-",
                                        "-}}",
                                        "'",
                                        "\"",
                                        "(",
                                        ")",
                                        "[",
                                        "]",
                                        ":",
                                        "|",
                                        "~",
                                        " is ",
                                        " in ",
                                        "none",
                                        "-1",
                                        "99999999999",
                                        "loop",
                                        "{% endfor %}",
                                        "{% for x in x %}",
                                        "{% macro f(a) %}",
                                        "{{ f(f) }}",
                                        "[::-1]",
                                        "\\",
                                        "\\x",
                                        "é",
                                        ".items()",
                                        "|tojson",
                                        "|map('list')",
                                        " if ",
                                        " else ",
                                        "*",
                                        "**"};
    for (uint64_t i = 1 + drawn(state, 4); i > 0; i--) {
        const size_t n = strlen(text), at = (size_t)drawn(state, n + 1),
                     bytes = (size_t)drawn(state, 1 + gx_min((int64_t)(n - at), 12));
        const char *word = words[drawn(state, sizeof words / sizeof *words)];
        switch (drawn(state, 4)) {
        case 0: memmove(text + at, text + at + bytes, n - at - bytes + 1); break;
        case 1: memmove(text + at + bytes, text + at, n - at + 1); break;
        case 2:
            memmove(text + at + strlen(word), text + at, n - at + 1);
            memcpy(text + at, word, strlen(word));
            break;
        default:
            if (at < n) text[at] = (char)(1 + drawn(state, 255));
        }
    }
}

TEST(mutated_templates_and_conversations_are_rendered_or_refused)
{
    Lines all;
    const int cases = getenv("GX_TEST_LONG") ? 400000 : TEST_IS_SANITIZED ? 6000 : 20000;
    int rendered = 0, refused = 0, templates = 0;
    uint64_t state = 20260521;
    if (!lines_open(&all, "data/ref/template/rendered.jsonl")) return;
    while (templates < all.n && gx_json_get(all.line[templates], "template")) templates++;
    for (int i = 0; i < cases; i++) {
        const char *text = gx_json_string(gx_json_get(all.line[drawn(&state, (uint64_t)templates)], "text"));
        const GxJson *variables = gx_json_get(all.line[templates + (int)drawn(&state, 60)], "variables");
        char *changed = (char *)malloc(strlen(text) + 200), *json = NULL;
        int64_t bytes;
        GxJson *mutated = NULL;
        GxTemplateText x;
        GxError e = GX_ZERO;
        strcpy(changed, text);
        mutate(changed, &state);
        if (i % 4 == 0 && gx_json_dump(variables, 0, &json, &bytes, &e) == GX_OK) {
            json = (char *)realloc(json, (size_t)bytes + 200);
            mutate(json, &state);
            if (gx_json_parse(&mutated, json, (int64_t)strlen(json), "json", &e) != GX_OK) gx_error_clear(&e);
        }
        const GxStatus status = render(changed, gx_json_type(mutated) == GX_JSON_OBJECT ? mutated : variables, &x, &e);
        CHECK(status == GX_OK ? x.text && !x.text[x.bytes] : strstr(e.message, "t.jinja:") && !x.text, "%s", e.message);
        rendered += status == GX_OK, refused += status != GX_OK;
        gx_template_text_free(&x);
        gx_json_free(mutated);
        free(json);
        free(changed);
    }
    CHECK(rendered > cases / 20 && refused > cases / 20, "%d rendered, %d refused", rendered, refused);
    lines_close(&all);
}

int main(int argc, char **argv)
{
    setenv("TZ", "UTC", 1);
    tzset();
    return test_main(argc, argv);
}
