// template.h: chat templates: the part of Jinja2 that the templates of Hugging Face folders are written in, rendered as
// transformers renders them, to the byte (docs/chat_templates.md lists what is supported).
//
//     GxTemplate *t;
//     GX_TRY(gx_template_parse(&t, text, bytes, "chat_template.jinja", err));
//     GxTemplateText x = GX_ZERO;
//     GxStatus status = gx_template_render(t, variables, (int64_t)time(NULL), &x, err); // {"messages": […], …}
//     gx_template_text_free(&x);
//     gx_template_free(t);
//
// What is not supported is refused by name and line, most of it when a template is parsed; nothing is silently ignored.
// Messages are not prepared here: transformers adds the names "reasoning_content" and "thinking" to a message with
// thoughts.
//
// A template is an untrusted program: sizes, depths and steps have limits (template_value.h, template_parse.h), and all
// memory of a rendering is freed at its end. Below this header: template_value.h what values are, template_methods.h
// and template_operators.h what is done with them, template_filters.h filters and tests, template_lex.h and
// template_parse.h from text to tree, template_render.h from tree to text.
#ifndef GX_TEMPLATE_H
#define GX_TEMPLATE_H
#include "template_render.h"
GX_BEGIN

enum { GX_TEMPLATE_SOURCE = 4 << 20 }; // bytes of a template, at most

typedef struct GxTemplate GxTemplate; // immutable: many threads may render with one

typedef struct {
    char *text; // UTF-8, with a terminating 0
    int64_t bytes;
    GxTemplateSpan *generated; // of the {% generation %} blocks, in their order
    int generations;
} GxTemplateText;

// Parses a template; `where`, such as a path, names it in messages. What is not supported is refused by name and line
// (GX_ERR_UNSUPPORTED); GX_ERR_FORMAT: it is not a template.
GxStatus gx_template_parse(GxTemplate **t, const char *text, int64_t bytes, const char *where, GxError *err);
void gx_template_free(GxTemplate *t); // NULL: nothing

// variables: an object whose members are the template's global variables; others are undefined. transformers always
// passes messages, tools, documents (null if there are none), add_generation_prompt and the existing special tokens
// (bos_token, …). now: the time for strftime_now, shown as local time. raise_exception("x") is GX_ERR_FORMAT with x
// and its line in the message.
GxStatus gx_template_render(const GxTemplate *t, const GxJson *variables, int64_t now, GxTemplateText *out,
                            GxError *err);
void gx_template_text_free(GxTemplateText *x);

int gx_template_has_generation(const GxTemplate *t);                 // it contains {% generation %}
int gx_template_mentions(const GxTemplate *t, const char *variable); // it reads a global variable of this name

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_IMPLEMENTED)
#define GX_TEMPLATE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

struct GxTemplate {
    GxTemplateMemory memory; // of the tree
    char *where;
    GxTemplateTree tree;
};

static GxStatus gx__template_check_text(const char *text, int64_t bytes, const char *where, GxError *err)
{
    int line = 1;
    char size[GX_TEXT_SIZE];
    if (bytes > GX_TEMPLATE_SOURCE)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: a template of %s; expected at most %d MB", where,
                       gx_text_size(bytes, size), GX_TEMPLATE_SOURCE >> 20);
    for (int64_t i = 0; i < bytes;) {
        char character[5] = "";
        memcpy(character, text + i, (size_t)gx_min(4, bytes - i));
        const int n = *character ? gx_utf8_bytes(character) : 1;
        if (!n) return GX_FAIL(err, GX_ERR_FORMAT, "%s:%d: bytes that are not UTF-8", where, line);
        line += *character == '\n';
        i += n;
    }
    return GX_OK;
}

GxStatus gx_template_parse(GxTemplate **out, const char *text, int64_t bytes, const char *where, GxError *err)
{
    GxTemplateRun run = GX_ZERO;
    *out = NULL;
    GX_TRY(gx__template_check_text(text, bytes, where, err));
    GxTemplate *t = (GxTemplate *)calloc(1, sizeof *t);
    if (t) t->where = strdup(where);
    run.where = where, run.err = err;
    if (!t || !t->where) GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory for the template", where);
    else if (gx_template_read(&run, text, bytes, &t->tree)) *out = t;
    if (t) t->memory = run.memory;
    if (*out) return GX_OK;
    gx_template_free(t);
    return gx_error_code(err);
}

void gx_template_free(GxTemplate *t)
{
    if (!t) return;
    gx_template_memory_release(&t->memory);
    free(t->where);
    free(t);
}

static GxStatus gx__template_hand_out(GxTemplateRender *r, GxTemplateText *out, GxError *err)
{
    const int64_t spans = r->spans * (int64_t)sizeof *r->span;
    out->text = (char *)malloc((size_t)r->text.n + 1);
    out->generated = (GxTemplateSpan *)malloc((size_t)gx_max(spans, 1));
    if (!out->text || !out->generated) {
        gx_template_text_free(out);
        return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory for the rendered text", r->run.where);
    }
    if (r->text.n) memcpy(out->text, r->text.s, (size_t)r->text.n);
    if (spans) memcpy(out->generated, r->span, (size_t)spans);
    out->text[r->text.n] = 0;
    out->bytes = r->text.n;
    out->generations = (int)r->spans;
    return GX_OK;
}

GxStatus gx_template_render(const GxTemplate *t, const GxJson *variables, int64_t now, GxTemplateText *out,
                            GxError *err)
{
    GxTemplateRender r;
    memset(&r, 0, sizeof r);
    memset(out, 0, sizeof *out);
    if (gx_json_type(variables) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: the template's variables are %s; expected an object", t->where,
                       gx_json_type_name(variables));
    r.run.where = t->where, r.run.err = err, r.run.now = now;
    r.tree = &t->tree, r.variables = variables;
    const int is_written = gx_template_write(&r) && gx_error_code(err) == GX_OK;
    const GxStatus status = is_written ? gx__template_hand_out(&r, out, err) : gx_error_code(err);
    gx_template_memory_release(&r.run.memory);
    return status;
}

void gx_template_text_free(GxTemplateText *x)
{
    free(x->text);
    free(x->generated);
    memset(x, 0, sizeof *x);
}

int gx_template_has_generation(const GxTemplate *t) { return t->tree.has_generation; }

int gx_template_mentions(const GxTemplate *t, const char *variable)
{
    for (int i = 0; i < t->tree.symbols; i++)
        if (!strcmp(t->tree.symbol[i].name, variable)) return t->tree.symbol[i].read;
    return 0;
}
#endif
