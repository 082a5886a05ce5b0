// template.h: chat templates: the part of Jinja that the templates of Hugging Face folders are written in, rendered as
// transformers renders them.
//
//     GxTemplate *t;
//     GX_TRY(gx_template_parse(&t, text, bytes, "chat_template.jinja", err));
//     GxTemplateText x = GX_ZERO;
//     GxStatus status = gx_template_render(t, variables, (int64_t)time(NULL), &x, err); // {"messages": […], …}
//     gx_template_text_free(&x);
//     gx_template_free(t);
#ifndef GX_TEMPLATE_H
#define GX_TEMPLATE_H
#include "json.h"
GX_BEGIN

typedef struct GxTemplate GxTemplate; // immutable: many threads may render with one

typedef struct {
    int64_t begin, end;
} GxTemplateSpan; // bytes of the rendered text
typedef struct {
    char *text; // UTF-8, a 0 behind it
    int64_t bytes;
    GxTemplateSpan *generated; // of the {% generation %} blocks, in their order
    int generations;
} GxTemplateText;

// Parses a template; `where` is how errors name it: a path. What is not built is refused by name and line
// (GX_ERR_UNSUPPORTED), what is no template is GX_ERR_FORMAT.
GxStatus gx_template_parse(GxTemplate **t, const char *text, int64_t bytes, const char *where, GxError *err);
void gx_template_free(GxTemplate *t); // NULL: nothing

// variables: an object whose members are the template's global variables; one that is not there is undefined.
// transformers always gives messages, tools, documents (null where there are none), add_generation_prompt and the
// special tokens that there are (bos_token, …). now: of strftime_now, as local time. raise_exception("x") is
// GX_ERR_FORMAT with x and its line in the message.
GxStatus gx_template_render(const GxTemplate *t, const GxJson *variables, int64_t now, GxTemplateText *out,
                            GxError *err);
void gx_template_text_free(GxTemplateText *x);

int gx_template_has_generation(const GxTemplate *t);                 // {% generation %} stands in it
int gx_template_mentions(const GxTemplate *t, const char *variable); // it reads a global variable of this name

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TEMPLATE_IMPLEMENTED)
#define GX_TEMPLATE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

struct GxTemplate {
    char *text, *where;
    int64_t bytes;
};

GxStatus gx_template_parse(GxTemplate **out, const char *text, int64_t bytes, const char *where, GxError *err)
{
    GxTemplate *t = (GxTemplate *)calloc(1, sizeof *t);
    *out = NULL;
    if (t) t->text = (char *)malloc((size_t)bytes + 1), t->where = strdup(where);
    if (!t || !t->text || !t->where) {
        gx_template_free(t);
        return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory for the template", where);
    }
    memcpy(t->text, text, (size_t)bytes);
    t->text[bytes] = 0, t->bytes = bytes;
    if (strstr(t->text, "{%") || strstr(t->text, "{#")) {
        gx_template_free(t);
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: {%% and {# are not built yet", where);
    }
    *out = t;
    return GX_OK;
}

void gx_template_free(GxTemplate *t)
{
    if (!t) return;
    free(t->text);
    free(t->where);
    free(t);
}

GxStatus gx_template_render(const GxTemplate *t, const GxJson *variables, int64_t now, GxTemplateText *out,
                            GxError *err)
{
    GxTemplateText x = GX_ZERO;
    int64_t room = t->bytes + 1;
    (void)now;
    for (GxJsonMember m = GX_ZERO; gx_json_next(variables, &m);) room += (int64_t)strlen(gx_json_string(m.value));
    *out = x;
    x.text = (char *)calloc(1, (size_t)(room * 8));
    if (!x.text) return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory", t->where);
    for (const char *p = t->text; *p;) {
        char name[64];
        int n = 0;
        if (sscanf(p, "{{ %63[a-z_] }}%n", name, &n) == 1 && n) {
            strcat(x.text, gx_json_string(gx_json_get(variables, name)));
            p += n;
        } else strncat(x.text, p++, 1);
    }
    x.bytes = (int64_t)strlen(x.text);
    *out = x;
    return GX_OK;
}

void gx_template_text_free(GxTemplateText *x)
{
    free(x->text);
    free(x->generated);
    memset(x, 0, sizeof *x);
}

int gx_template_has_generation(const GxTemplate *t) { return strstr(t->text, "{% generation") != NULL; }
int gx_template_mentions(const GxTemplate *t, const char *variable) { return strstr(t->text, variable) != NULL; }
#endif
