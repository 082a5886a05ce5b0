// chat_template.h: conversations in the format of a chat template, a Jinja program in a model's folder. It is executed
// (template.h) with the variables that transformers' apply_chat_template passes.
//
// If the template has {% generation %} blocks, the text that they write is learned. Otherwise an answer is found by
// rendering the conversation twice: up to the answer, as a prompt P, and including it, W. The answer begins where P
// ends, or where the two differ, since a prompt may end with something that an answer need not begin with (<think>). It
// ends after the token that ends a turn, which follows the answer's text in W, apart from white space. W must contain
// that text, possibly without its thoughts; otherwise it is an error. It is also an error if W writes the turns before
// the answer differently from P, since the model would then learn to answer a prompt that it never gets.
#ifndef GX_CHAT_TEMPLATE_H
#define GX_CHAT_TEMPLATE_H
#include "chat_turn.h"
#include "template.h"
#include "tokenizer.h"
GX_BEGIN

enum { GX_CHAT_END = 200 };
typedef struct { // immutable once it is open: several threads may use it
    char *text;  // the template
    char where[GX_PATH];
    GxTemplate *program;
    GxJson *variables; // bos_token, …
    int64_t now;       // for strftime_now
    const GxTokenizer *tokenizer;
    char end[GX_CHAT_END]; // the token that ends an answer; "": the template writes none
    char *tail;            // what it writes after the text of a last answer, including that token
} GxChatTemplate;

// where: the template's name in messages. variables: an object with the names of special tokens. now: the time for
// strftime_now. The tokenizer must outlive c. After an error nothing is open.
GxStatus gx_chat_template_open(GxChatTemplate *c, const char *text, const char *where, const GxJson *variables,
                               int64_t now, const GxTokenizer *tokenizer, GxError *err);
void gx_chat_template_close(GxChatTemplate *c); // accepts a struct of zeros

// thinks -1: the template's default; otherwise enable_thinking, if the template reads it.
GxStatus gx_chat_template_text(const GxChatTemplate *c, const GxChatTurn *turn, int n, int thinks, char **text,
                               GxError *err);
// only_last: only the spans of the last answer. Otherwise *rewrites 1, with x empty: an answer, or the text before it,
// is written differently once other turns follow, so no single text contains all answers as they are learned.
GxStatus gx_chat_template_training_text(const GxChatTemplate *c, const GxChatTurn *turn, int n, int only_last,
                                        GxChatText *x, int *rewrites, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_TEMPLATE_IMPLEMENTED)
#define GX_CHAT_TEMPLATE_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

// ---- rendering -----------------------------------------------------------------------------------------------------

static GxStatus gx__chat_template_set_turns(GxJson *variables, const GxChatTurn *turn, int n, GxError *err)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    GxJson *messages = gx_json_new_array();
    for (int i = 0; i < n; i++) {
        GxJson *message = gx_json_new_object();
        gx_json_set(message, "role", gx_json_new_string(roles[turn[i].role]), err);
        gx_json_set(message, "content", gx_json_new_string(turn[i].text), err);
        gx_json_append(messages, message, err);
    }
    return gx_json_set(variables, "messages", messages, err);
}

// prompt: add_generation_prompt.
static GxStatus gx__chat_template_render(const GxChatTemplate *c, const GxChatTurn *turn, int n, int prompt, int thinks,
                                         GxTemplateText *out, GxError *err)
{
    static const GxTemplateText nothing = GX_ZERO;
    GxJson *variables = gx_json_copy(c->variables);
    *out = nothing;
    if (!variables) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation");
    gx__chat_template_set_turns(variables, turn, n, err);
    gx_json_set(variables, "add_generation_prompt", gx_json_new_bool(prompt), err);
    if (thinks >= 0 && gx_template_mentions(c->program, "enable_thinking"))
        gx_json_set(variables, "enable_thinking", gx_json_new_bool(thinks), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_template_render(c->program, variables, c->now, out, err);
    gx_json_free(variables);
    return status;
}

GxStatus gx_chat_template_text(const GxChatTemplate *c, const GxChatTurn *turn, int n, int thinks, char **text,
                               GxError *err)
{
    GxTemplateText x;
    *text = NULL;
    GX_TRY(gx__chat_template_render(c, turn, n, 1, thinks, &x, err));
    *text = x.text, x.text = NULL;
    gx_template_text_free(&x);
    return GX_OK;
}

// ---- where an answer ends ------------------------------------------------------------------------------------------

// The bytes of the longest token that text[n] begins with: one of the tokenizer's added tokens or of the template's
// variables (eos_token). 0: none.
static int64_t gx__chat_template_token(const GxChatTemplate *c, const char *text, int64_t n)
{
    int64_t longest = gx_tokenizer_added(c->tokenizer, text, n);
    for (GxJsonMember m = GX_ZERO; gx_json_next(c->variables, &m);) {
        const char *value = gx_json_string(m.value);
        const int64_t bytes = (int64_t)strlen(value);
        if (bytes > longest && !strncmp(text, value, (size_t)bytes)) longest = bytes;
    }
    return longest;
}

// The token that ends an answer, if text begins with it after white space. *before: the bytes of the white space.
// Returns the token's bytes; 0: none.
static int64_t gx__chat_template_end(const GxChatTemplate *c, const char *text, int64_t *before)
{
    const int64_t usual = (int64_t)strlen(c->end);
    *before = gx_chat_space_before(text, (int64_t)strlen(text));
    text += *before;
    if (usual && !strncmp(text, c->end, (size_t)usual)) return usual;
    const int64_t token = gx__chat_template_token(c, text, (int64_t)strlen(text));
    return token ? token : (int64_t)strcspn(text, " \t\r\n");
}

// Renders a conversation with an answer that cannot occur in a template, and examines what follows it.
static GxStatus gx__chat_template_probe(GxChatTemplate *c, const GxChatTurn *turn, int n, GxError *err)
{
    GxTemplateText x;
    int64_t before;
    GX_TRY(gx__chat_template_render(c, turn, n, 0, -1, &x, err));
    const char *at = NULL, *answer = turn[n - 1].text;
    for (const char *p = x.text; (p = strstr(p, answer)) != NULL; p++) at = p;
    if (at) at += strlen(answer), c->tail = strdup(at);
    const int64_t bytes = at ? gx__chat_template_end(c, at, &before) : 0;
    if (at && c->tail && bytes < GX_CHAT_END) memcpy(c->end, at + before, (size_t)bytes), c->end[bytes] = 0;
    gx_template_text_free(&x);
    if (at && c->tail && bytes < GX_CHAT_END) return GX_OK;
    if (at && !c->tail) return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory", c->where);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: what %s", c->where,
                   at ? "it writes after an answer is not a token" : "the assistant says is not in what it writes");
}

// Tries it without a system turn, and, if the template refuses that or leaves the answer out, with one.
static GxStatus gx__chat_template_find_end(GxChatTemplate *c, GxError *err)
{
    const GxChatTurn turn[] = {{GX_CHAT_SYSTEM, "s"}, {GX_CHAT_USER, "a"}, {GX_CHAT_ASSISTANT, "galaxysanswer"}};
    GxError first = GX_ZERO, second = GX_ZERO;
    if (gx__chat_template_probe(c, turn + 1, 2, &first) == GX_OK) return GX_OK;
    if (gx_error_code(&first) == GX_ERR_MEMORY || gx__chat_template_probe(c, turn, 3, &second) != GX_OK)
        return GX_FAIL(err, gx_error_code(&first), "%s", first.message);
    return GX_OK;
}

// ---- where it begins -----------------------------------------------------------------------------------------------

// 1: text[end] ends with `said`, ignoring white space at both ends. *begin: where it begins.
static int gx__chat_template_ends_with(const char *text, int64_t end, const char *said, int64_t *begin)
{
    int64_t n = (int64_t)strlen(said);
    const int64_t space = gx_chat_space_before(said, n);
    said += space, n -= space, n -= gx_chat_space_behind(said, n);
    end -= gx_chat_space_behind(text, end);
    *begin = end - n;
    return *begin >= 0 && !memcmp(text + *begin, said, (size_t)n);
}

// Finds an answer's text, or what follows its thoughts, in w, the text of a conversation that ends with the answer:
// from *from to *to, not before `least`. It must be followed by the usual tail, or at least by a token.
static int gx__chat_template_find(const GxChatTemplate *c, const GxTemplateText *w, const char *said, int64_t least,
                                  int64_t *from, int64_t *to)
{
    const char *const texts[] = {said, gx_chat_behind_thoughts(said)};
    const int64_t tail = w->bytes - (int64_t)strlen(c->tail);
    for (int i = 0; i < 2 && texts[i] && tail >= least && !strcmp(w->text + tail, c->tail); i++)
        if (gx__chat_template_ends_with(w->text, *to = tail, texts[i], from) && *from >= least) return 1;
    for (int i = 0; i < 2 && texts[i]; i++)
        for (*to = w->bytes; *to > least; --*to)
            if ((*to == w->bytes || gx__chat_template_token(c, w->text + *to, w->bytes - *to)) &&
                gx__chat_template_ends_with(w->text, *to, texts[i], from) && *from >= least)
                return 1;
    return 0;
}

// Where the last answer begins in w: at *begin unless its text begins earlier, but not before *turns, where the turns
// before it end.
static GxStatus gx__chat_template_begin(const GxChatTemplate *c, const GxChatTurn *turn, int n, const GxTemplateText *w,
                                        int64_t *begin, int64_t *turns, GxError *err)
{
    GxTemplateText p, b;
    GX_TRY(gx__chat_template_render(c, turn, n - 1, 1, -1, &p, err));
    *turns = *begin = gx_chat_common(p.text, w->text);
    GxStatus status = GX_OK;
    if (*begin < p.bytes) { // then they may differ in the generation prompt, but in nothing before it
        status = gx__chat_template_render(c, turn, n - 1, 0, -1, &b, err);
        if (status == GX_OK) *turns = gx_chat_common(p.text, b.text);
        gx_template_text_free(&b);
    }
    gx_template_text_free(&p);
    GX_TRY(status);
    if (*turns <= *begin) return GX_OK;
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s writes the turns before an answer differently when the answer follows (it may leave out the "
                   "system's text), so the model would learn to answer another prompt than it is given; "
                   "--chat_template NAME or FILE names another template",
                   c->where);
}

// ---- spans ---------------------------------------------------------------------------------------------------------

static GxStatus gx__chat_template_add(GxChatText *x, const GxChatSpan *s, GxError *err)
{
    GxChatSpan *grown = (GxChatSpan *)realloc(x->span, (size_t)(x->spans + 1) * sizeof *grown);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation");
    x->span = grown, x->span[x->spans++] = *s;
    return GX_OK;
}

// the span of the last of n turns
static GxChatSpan gx__chat_template_span(int64_t begin, int64_t end, int64_t end_bytes, int n)
{
    GxChatSpan s;
    s.begin = begin, s.end = end, s.end_bytes = end_bytes, s.answer = n / 2 - 1;
    return s;
}

// The last answer's span, without {% generation %} blocks.
static GxStatus gx__chat_template_find_answer(const GxChatTemplate *c, const GxChatTurn *turn, int n,
                                              const GxTemplateText *w, GxChatText *x, GxError *err)
{
    int64_t from, to, begin, turns, before;
    GX_TRY(gx__chat_template_begin(c, turn, n, w, &begin, &turns, err));
    if (!gx__chat_template_find(c, w, turn[n - 1].text, turns, &from, &to))
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "what the assistant says cannot be found in the output of %s, so what would be learned is not "
                       "known; --chat_template NAME or FILE names another template",
                       c->where);
    const int64_t bytes = gx__chat_template_end(c, w->text + to, &before);
    const GxChatSpan s = gx__chat_template_span(gx_min(begin, from), bytes ? to + before + bytes : to, bytes, n);
    return gx__chat_template_add(x, &s, err);
}

// The {% generation %} blocks of the last answer: those that the turns before it do not have; there may be none.
static GxStatus gx__chat_template_take_blocks(const GxChatTemplate *c, const GxChatTurn *turn, int n,
                                              const GxTemplateText *w, GxChatText *x, GxError *err)
{
    GxTemplateText p;
    GX_TRY(gx__chat_template_render(c, turn, n - 1, 1, -1, &p, err));
    const int earlier = p.generations;
    GxStatus status = GX_OK;
    gx_template_text_free(&p);
    for (int i = earlier; i < w->generations && status == GX_OK; i++) {
        const GxChatSpan s = gx__chat_template_span(w->generated[i].begin, w->generated[i].end, 0, n);
        if (s.end > s.begin) status = gx__chat_template_add(x, &s, err);
    }
    return status;
}

// Renders the first n turns, and finds the spans of their last answer.
static GxStatus gx__chat_template_answer(const GxChatTemplate *c, const GxChatTurn *turn, int n, GxTemplateText *w,
                                         GxChatText *x, GxError *err)
{
    memset(x, 0, sizeof *x);
    GX_TRY(gx__chat_template_render(c, turn, n, 0, -1, w, err));
    const GxStatus status = gx_template_has_generation(c->program)
                                ? gx__chat_template_take_blocks(c, turn, n, w, x, err)
                                : gx__chat_template_find_answer(c, turn, n, w, x, err);
    if (status == GX_OK) return GX_OK;
    gx_template_text_free(w), gx_chat_text_free(x);
    return status;
}

// 1: a span of a part of the conversation is also a span of the whole.
static int gx__chat_template_is_generated(const GxTemplateText *whole, const GxChatSpan *s)
{
    for (int i = 0; i < whole->generations; i++)
        if (whole->generated[i].begin == s->begin && whole->generated[i].end == s->end) return 1;
    return 0;
}

// Adds the spans of an earlier answer, the last of the first n turns, to x, if the whole text contains it unchanged.
// *unmarked is increased if no {% generation %} block belongs to it.
static GxStatus gx__chat_template_add_earlier(const GxChatTemplate *c, const GxChatTurn *turn, int n,
                                              const GxTemplateText *whole, GxChatText *x, int *rewrites, int *unmarked,
                                              GxError *err)
{
    GxTemplateText w;
    GxChatText part;
    GX_TRY(gx__chat_template_answer(c, turn, n, &w, &part, err));
    const int64_t end = part.spans ? part.span[part.spans - 1].end : 0;
    GxStatus status = GX_OK;
    *unmarked += part.spans == 0;
    *rewrites |= end > whole->bytes || memcmp(w.text, whole->text, (size_t)end) != 0;
    for (int i = 0; i < part.spans && !*rewrites && status == GX_OK; i++) {
        const GxChatSpan *s = &part.span[i];
        *rewrites = gx_template_has_generation(c->program) && !gx__chat_template_is_generated(whole, s);
        status = gx__chat_template_add(x, s, err);
    }
    gx_template_text_free(&w), gx_chat_text_free(&part);
    return status;
}

// The error if some answers, or all, have no {% generation %} block that writes anything.
static GxStatus gx__chat_template_fail_unmarked(const GxChatTemplate *c, int unmarked, int answers, int only_last,
                                                GxError *err)
{
    char what[120];
    if (only_last && answers > 1)
        snprintf(what, sizeof what, "none covers a byte of answer %d of a conversation", answers);
    else if (unmarked == answers)
        snprintf(what, sizeof what, "none covers a byte of an answer: nothing would be learned");
    else
        snprintf(what, sizeof what, "they mark %d of the %d answers of a conversation: the others would not be learned",
                 answers - unmarked, answers);
    return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                   "%s has {%% generation %%} blocks, but %s; --chat_template NAME or FILE names another template",
                   c->where, what);
}

GxStatus gx_chat_template_training_text(const GxChatTemplate *c, const GxChatTurn *turn, int n, int only_last,
                                        GxChatText *x, int *rewrites, GxError *err)
{
    int unmarked;
    const int first = turn[0].role == GX_CHAT_SYSTEM;
    GxTemplateText whole;
    GxChatText last;
    GxStatus status = GX_OK;
    memset(x, 0, sizeof *x);
    *rewrites = 0;
    GX_TRY(gx__chat_template_answer(c, turn, n, &whole, &last, err));
    unmarked = last.spans == 0;
    for (int k = first + 2; k < n && !only_last && !*rewrites && status == GX_OK; k += 2)
        status = gx__chat_template_add_earlier(c, turn, k, &whole, x, rewrites, &unmarked, err);
    for (int i = 0; i < last.spans && status == GX_OK; i++) status = gx__chat_template_add(x, &last.span[i], err);
    x->text = whole.text, x->bytes = whole.bytes, whole.text = NULL;
    gx_template_text_free(&whole), gx_chat_text_free(&last);
    if (status == GX_OK && !*rewrites && unmarked > 0)
        status = gx__chat_template_fail_unmarked(c, unmarked, n / 2, only_last, err);
    if (status != GX_OK || *rewrites) gx_chat_text_free(x);
    return status;
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__chat_template_open(GxChatTemplate *c, const char *text, const GxJson *variables, GxError *err)
{
    c->text = strdup(text), c->variables = gx_json_copy(variables);
    if (!c->text || !c->variables) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the template %s", c->where);
    GX_TRY(gx_json_set(c->variables, "tools", gx_json_new_null(), err)); // transformers always defines both
    GX_TRY(gx_json_set(c->variables, "documents", gx_json_new_null(), err));
    GX_TRY(gx_template_parse(&c->program, text, (int64_t)strlen(text), c->where, err));
    return gx__chat_template_find_end(c, err);
}

GxStatus gx_chat_template_open(GxChatTemplate *c, const char *text, const char *where, const GxJson *variables,
                               int64_t now, const GxTokenizer *tokenizer, GxError *err)
{
    memset(c, 0, sizeof *c);
    c->now = now, c->tokenizer = tokenizer;
    snprintf(c->where, sizeof c->where, "%s", where);
    const GxStatus status = gx__chat_template_open(c, text, variables, err);
    if (status != GX_OK) gx_chat_template_close(c);
    return status;
}

void gx_chat_template_close(GxChatTemplate *c)
{
    free(c->text), free(c->tail);
    gx_json_free(c->variables);
    gx_template_free(c->program);
    memset(c, 0, sizeof *c);
}
#endif
