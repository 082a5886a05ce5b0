// chat_named.h: common formats of conversations by their names, for models whose folder has no chat template, and on
// request (--chat_template NAME). Each is also available as a template that renders the same text, which is saved with
// a model that was trained with it.
//
//     chatml          each <|im_start|>role⏎ text <|im_end|>⏎
//     qwen2.5         the same, with Qwen's default system turn if none is given
//     qwen3           the same, without a default; thoughts of earlier answers are left out, and if no thoughts are
//                     wanted, the answer begins with empty ones
//     llama3          <|begin_of_text|>, each <|start_header_id|>role<|end_header_id|>⏎⏎ text <|eot_id|>
//     llama3.1        the same, with a system turn that contains dates (today is always July 26, 2024)
//     llama2          <s>[INST] <<SYS>>⏎ system ⏎<</SYS>>⏎⏎ text [/INST] answer </s>
//     mistral         <s>[INST] text [/INST]answer</s>            Mistral's first format
//     mistral-v1      <s> [INST] text [/INST] answer</s>
//     mistral-v3      <s>[INST] text[/INST] answer</s>
//     mistral-tekken  <s>[INST]text[/INST]answer</s>
//
// White space at the ends of a text is kept, except in all texts of LLaMA-3's formats, in answers and everything
// between [INST] and [/INST] in llama2, and in answers in mistral-v3.
#ifndef GX_CHAT_NAMED_H
#define GX_CHAT_NAMED_H
#include "chat_turn.h"
GX_BEGIN

#define GX_CHAT_NAMES "chatml|qwen2.5|qwen3|llama3|llama3.1|llama2|mistral|mistral-v1|mistral-v3|mistral-tekken"

// What surrounds the texts. A system's text that is part of a user's turn precedes the user's text.
typedef struct {
    const char *name, *end; // end: the token that ends an answer
    const char *begin;      // of the whole text
    // around each turn, the system's included; "%s" is its role. NULL: the format uses the following ones
    const char *head, *foot;
    const char *inst, *end_inst, *answer, *end_answer; // around a user's text, around an answer
    const char *system, *end_system;                   // around the system's text
    int system_is_last;                                // it precedes the user's last text, not the first
    int trims;                                         // GX_CHAT_TRIMS_…
    int thinks;                                        // answers may begin with thoughts
    // the system's text if none is given; text before every system's text
    const char *default_system, *always;
} GxChatNamed;
enum { GX_CHAT_TRIMS_TEXTS = 1, GX_CHAT_TRIMS_ANSWERS = 2, GX_CHAT_TRIMS_ALL = 3 };

enum { GX_CHAT_NAMED = 10 };
extern const GxChatNamed gx_chat_named[GX_CHAT_NAMED]; // in the order of GX_CHAT_NAMES
// The conversation up to where the next answer begins; the last turn is the user's. thinks 0: the next answer is to
// have no thoughts.
GxStatus gx_chat_named_text(const GxChatNamed *f, const GxChatTurn *turn, int n, int thinks, char **text, GxError *err);
// The whole conversation; the last turn is the assistant's. One span for each answer. In a format that thinks, the last
// answer has its thoughts, or empty ones.
GxStatus gx_chat_named_training_text(const GxChatNamed *f, const GxChatTurn *turn, int n, GxChatText *x, GxError *err);
// 1: a turn is written differently once others follow it.
int gx_chat_named_rewrites(const GxChatNamed *f, const GxChatTurn *turn);
// The format as a Jinja template; free(*jinja).
GxStatus gx_chat_named_template(const GxChatNamed *f, char **jinja, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_NAMED_IMPLEMENTED)
#define GX_CHAT_NAMED_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const GxChatNamed gx_chat_named[GX_CHAT_NAMED] = {
    {"chatml", "<|im_end|>", "", "<|im_start|>%s\n", "<|im_end|>\n", 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL},
    {"qwen2.5", "<|im_end|>", "", "<|im_start|>%s\n", "<|im_end|>\n", 0, 0, 0, 0, 0, 0, 0, 0, 0,
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", NULL},
    {"qwen3", "<|im_end|>", "", "<|im_start|>%s\n", "<|im_end|>\n", 0, 0, 0, 0, 0, 0, 0, 0, 1, NULL, NULL},
    {"llama3", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>%s<|end_header_id|>\n\n", "<|eot_id|>", 0, 0, 0,
     0, 0, 0, 0, GX_CHAT_TRIMS_ALL, 0, NULL, NULL},
    {"llama3.1", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>%s<|end_header_id|>\n\n", "<|eot_id|>", 0, 0, 0,
     0, 0, 0, 0, GX_CHAT_TRIMS_ALL, 0, "", "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"},
    {"llama2", "</s>", "", NULL, NULL, "<s>[INST] ", " [/INST]", " ", " </s>", "<<SYS>>\n", "\n<</SYS>>\n\n", 0,
     GX_CHAT_TRIMS_ALL, 0, NULL, NULL},
    {"mistral", "</s>", "<s>", NULL, NULL, "[INST] ", " [/INST]", "", "</s>", "", "\n\n", 0, 0, 0, NULL, NULL},
    {"mistral-v1", "</s>", "<s>", NULL, NULL, " [INST] ", " [/INST]", " ", "</s>", "", "\n\n", 0, 0, 0, NULL, NULL},
    {"mistral-v3", "</s>", "<s>", NULL, NULL, "[INST] ", "[/INST]", " ", "</s>", "", "\n\n", 1, GX_CHAT_TRIMS_ANSWERS,
     0, NULL, NULL},
    {"mistral-tekken", "</s>", "<s>", NULL, NULL, "[INST]", "[/INST]", "", "</s>", "", "\n\n", 1, 0, 0, NULL, NULL},
};

int gx_chat_named_rewrites(const GxChatNamed *f, const GxChatTurn *turn)
{
    return f->thinks || (f->system_is_last && turn[0].role == GX_CHAT_SYSTEM);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

// Where a text is written to, and where the spans of its answers are recorded.
typedef struct {
    FILE *out;
    const GxChatNamed *f;
    GxChatSpan *span; // NULL: spans are not recorded
    int answers;
} gx__ChatWriting;

static void gx__chat_put(gx__ChatWriting *w, const char *text, int trims_before, int trims_behind)
{
    int64_t n = (int64_t)strlen(text);
    const int64_t before = trims_before ? gx_chat_space_before(text, n) : 0;
    text += before, n -= before;
    if (trims_behind) n -= gx_chat_space_behind(text, n);
    fwrite(text, 1, (size_t)n, w->out);
}

// An earlier answer: without its thoughts.
static const char *gx__chat_answer(const GxChatNamed *f, const char *text)
{
    const char *end = f->thinks ? gx_chat_behind_thoughts(text) : NULL;
    return end ? end + strspn(end, "\n") : text;
}

static void gx__chat_head(gx__ChatWriting *w, GxChatRole role)
{
    static const char *const names[] = {"system", "user", "assistant"};
    const char *at = strstr(w->f->head, "%s");
    fprintf(w->out, "%.*s%s%s", (int)(at - w->f->head), w->f->head, names[role], at + 2);
}

// Writes an answer between `before` and `behind`. Its span ends with the token that ends the answer.
static void gx__chat_put_answer(gx__ChatWriting *w, const char *before, const char *text, const char *behind)
{
    const int trims = (w->f->trims & GX_CHAT_TRIMS_ANSWERS) != 0;
    const int64_t begin = w->span ? (int64_t)ftell(w->out) : 0;
    fputs(before, w->out), gx__chat_put(w, text, trims, trims), fputs(behind, w->out);
    if (!w->span) return;
    const char *rest = strstr(behind, w->f->end) + strlen(w->f->end); // what follows that token, such as a newline
    GxChatSpan *s = &w->span[w->answers];
    s->answer = w->answers++;
    s->begin = begin, s->end = (int64_t)ftell(w->out) - (int64_t)strlen(rest);
    s->end_bytes = (int64_t)strlen(w->f->end);
}

// The last answer in a format that thinks: its thoughts, or empty ones, then the answer itself.
static void gx__chat_put_thoughts(gx__ChatWriting *w, const char *text)
{
    static const char opens[] = "<think>", closes[] = "</think>";
    const char *close = strstr(text, closes), *begin = text, *end = close ? close : text;
    char *before = NULL;
    size_t bytes = 0;
    for (const char *p = text; close && (p = strstr(p, opens)) != NULL && p < close;) begin = p += strlen(opens);
    while (begin < end && *begin == '\n') begin++;
    while (end > begin && end[-1] == '\n') end--;
    FILE *thoughts = open_memstream(&before, &bytes);
    if (thoughts) fprintf(thoughts, "%s\n%.*s\n%s\n\n", opens, (int)(end - begin), begin, closes);
    const char *answer = gx__chat_answer(w->f, text);
    answer += strspn(answer, "\n");
    if (thoughts && fclose(thoughts) == 0) gx__chat_put_answer(w, before, answer, w->f->foot);
    else w->answers = -1; // no memory
    free(before);
}

// Writes every turn between head and foot.
static void gx__chat_turns(gx__ChatWriting *w, const GxChatTurn *turn, int n)
{
    const GxChatNamed *f = w->f;
    const int has_system = turn[0].role == GX_CHAT_SYSTEM, trims = f->trims & GX_CHAT_TRIMS_TEXTS;
    if (has_system || f->default_system) {
        gx__chat_head(w, GX_CHAT_SYSTEM);
        if (f->always) fputs(f->always, w->out);
        gx__chat_put(w, has_system ? turn[0].text : f->default_system, trims, trims);
        fputs(f->foot, w->out);
    }
    for (int i = has_system; i < n; i++) {
        gx__chat_head(w, turn[i].role);
        if (turn[i].role == GX_CHAT_USER) gx__chat_put(w, turn[i].text, trims, trims), fputs(f->foot, w->out);
        else if (f->thinks && i == n - 1) gx__chat_put_thoughts(w, turn[i].text);
        else gx__chat_put_answer(w, "", gx__chat_answer(f, turn[i].text), f->foot);
    }
}

// Writes users' turns in [INST], one of which contains the system's text. Trimming applies to everything inside
// together.
static void gx__chat_instructions(gx__ChatWriting *w, const GxChatTurn *turn, int n)
{
    const GxChatNamed *f = w->f;
    const char *system = turn[0].role == GX_CHAT_SYSTEM ? turn[0].text : NULL;
    const int first = system != NULL, last = turn[n - 1].role == GX_CHAT_USER ? n - 1 : n - 2,
              with = f->system_is_last ? last : first, trims = f->trims & GX_CHAT_TRIMS_TEXTS;
    for (int i = first; i < n; i++) {
        if (turn[i].role == GX_CHAT_ASSISTANT) {
            gx__chat_put_answer(w, f->answer, turn[i].text, f->end_answer);
            continue;
        }
        const int has_system = system && i == with;
        fputs(f->inst, w->out);
        if (has_system) fputs(f->system, w->out), fputs(system, w->out), fputs(f->end_system, w->out);
        gx__chat_put(w, turn[i].text, trims && !has_system, trims);
        fputs(f->end_inst, w->out);
    }
}

// thinks: whether the next answer is to have thoughts. span NULL: up to the next answer, otherwise the whole
// conversation.
static GxStatus gx__chat_named_write(const GxChatNamed *f, const GxChatTurn *turn, int n, int thinks, char **text,
                                     GxChatSpan *span, GxError *err)
{
    gx__ChatWriting w = {NULL, f, span, 0};
    size_t bytes;
    *text = NULL;
    w.out = open_memstream(text, &bytes);
    if (!w.out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation");
    fputs(f->begin, w.out);
    if (f->head) gx__chat_turns(&w, turn, n);
    else gx__chat_instructions(&w, turn, n);
    if (f->head && !span) gx__chat_head(&w, GX_CHAT_ASSISTANT);
    if (f->head && !span && f->thinks && !thinks) fputs("<think>\n\n</think>\n\n", w.out);
    const int whole = !ferror(w.out) && w.answers >= 0;
    if (fclose(w.out) == 0 && whole) return GX_OK;
    free(*text), *text = NULL;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation of %d turns", n);
}

GxStatus gx_chat_named_text(const GxChatNamed *f, const GxChatTurn *turn, int n, int thinks, char **text, GxError *err)
{
    return gx__chat_named_write(f, turn, n, thinks, text, NULL, err);
}

GxStatus gx_chat_named_training_text(const GxChatNamed *f, const GxChatTurn *turn, int n, GxChatText *x, GxError *err)
{
    memset(x, 0, sizeof *x);
    x->spans = n / 2;
    x->span = (GxChatSpan *)calloc((size_t)x->spans + 1, sizeof *x->span);
    if (!x->span) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation of %d turns", n);
    const GxStatus status = gx__chat_named_write(f, turn, n, 1, &x->text, x->span, err);
    if (status == GX_OK) x->bytes = (int64_t)strlen(x->text);
    else gx_chat_text_free(x);
    return status;
}

// ---- as a template -------------------------------------------------------------------------------------------------

// The beginning for both kinds: the system's turn is taken off, and the others must alternate.
static const char gx__chat_jinja_turn[] = "{%- for m in rest %}\n"
                                          "{%- if m['role'] != ['user', 'assistant'][loop.index0 % 2] %}"
                                          "{{- raise_exception('user and assistant take turns') }}{% endif %}\n";

static void gx__chat_jinja_quote(FILE *out, const char *text, const char *role) // role: for "%s"
{
    fputc('\'', out);
    for (const char *p = text; *p; p++) {
        if (role && !strncmp(p, "%s", 2)) fprintf(out, "%s", role), p++;
        else if (*p == '\n') fputs("\\n", out);
        else if (*p == '\'' || *p == '\\') fprintf(out, "\\%c", *p);
        else fputc(*p, out);
    }
    fputc('\'', out);
}

static void gx__chat_jinja_system(FILE *out, const GxChatNamed *f, const char *begin, const char *end)
{
    const int trims = f->head && (f->trims & GX_CHAT_TRIMS_TEXTS);
    fputs("{%- if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}\n{%- set system = ", out);
    gx__chat_jinja_quote(out, begin, "system");
    fprintf(out, " + messages[0]['content']%s + ", trims ? " | trim" : "");
    gx__chat_jinja_quote(out, end, NULL);
    fputs(" %}\n{%- else %}{% set rest = messages %}{% set system = ", out);
    if (f->default_system) {
        gx__chat_jinja_quote(out, begin, "system"), fputs(" + ", out);
        gx__chat_jinja_quote(out, f->default_system, NULL), fputs(" + ", out);
        gx__chat_jinja_quote(out, end, NULL);
    } else fputs("''", out);
    fputs(" %}{% endif %}\n", out);
}

// Answers in a format that thinks: the last one with its thoughts, earlier ones without.
static const char gx__chat_jinja_thoughts[] =
    "{%- set text = m['content'] %}{% set thoughts = '' %}\n"
    "{%- if m['role'] == 'assistant' and '</think>' in text %}\n"
    "{%- set thoughts = text.split('</think>')[0].split('<think>')[-1].strip('\\n') %}\n"
    "{%- set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}\n"
    "{%- if m['role'] == 'assistant' and loop.last %}"
    "{% set text = '<think>\\n' + thoughts + '\\n</think>\\n\\n' + text.lstrip('\\n') %}{% endif %}\n";

static void gx__chat_jinja_turns(FILE *out, const GxChatNamed *f)
{
    char begin[400];
    const char *at = strstr(f->head, "%s");
    snprintf(begin, sizeof begin, "%s%s", f->head, f->always ? f->always : "");
    gx__chat_jinja_system(out, f, begin, f->foot);
    fputs("{{- system }}\n", out);
    fputs(gx__chat_jinja_turn, out);
    if (f->thinks) fputs(gx__chat_jinja_thoughts, out);
    snprintf(begin, sizeof begin, "%.*s", (int)(at - f->head), f->head);
    fputs("{{- ", out), gx__chat_jinja_quote(out, begin, NULL), fputs(" + m['role'] + ", out);
    gx__chat_jinja_quote(out, at + 2, NULL);
    fprintf(out, " + %s + ", f->thinks ? "text" : f->trims ? "m['content'] | trim" : "m['content']");
    gx__chat_jinja_quote(out, f->foot, NULL);
    fputs(" }}\n{%- endfor %}\n{%- if add_generation_prompt %}{{- ", out);
    gx__chat_jinja_quote(out, f->head, "assistant"), fputs(" }}", out);
    if (f->thinks)
        fputs("\n{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}"
              "{% endif %}",
              out);
    fputs("{% endif %}\n", out);
}

static void gx__chat_jinja_instructions(FILE *out, const GxChatNamed *f)
{
    gx__chat_jinja_system(out, f, f->system, f->end_system);
    fputs(gx__chat_jinja_turn, out);
    fputs("{%- if m['role'] == 'user' %}{{- ", out), gx__chat_jinja_quote(out, f->inst, NULL);
    fprintf(out, " }}\n{%%- if %s %%}{{- %s }}", f->system_is_last ? "loop.index0 >= rest | length - 2" : "loop.first",
            f->trims & GX_CHAT_TRIMS_TEXTS ? "(system + m['content']) | trim" : "system + m['content']");
    fprintf(out, "{%% else %%}{{- m['content']%s }}{%% endif %%}\n{{- ",
            f->trims & GX_CHAT_TRIMS_TEXTS ? " | trim" : "");
    gx__chat_jinja_quote(out, f->end_inst, NULL);
    fputs(" }}\n{%- else %}{{- ", out), gx__chat_jinja_quote(out, f->answer, NULL);
    fprintf(out, " + m['content']%s + ", f->trims & GX_CHAT_TRIMS_ANSWERS ? " | trim" : "");
    gx__chat_jinja_quote(out, f->end_answer, NULL), fputs(" }}{% endif %}\n{%- endfor %}\n", out);
}

GxStatus gx_chat_named_template(const GxChatNamed *f, char **jinja, GxError *err)
{
    size_t bytes;
    FILE *out = open_memstream(jinja, &bytes);
    if (!out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a chat template");
    if (f->begin[0]) fputs("{{- ", out), gx__chat_jinja_quote(out, f->begin, NULL), fputs(" }}\n", out);
    if (f->head) gx__chat_jinja_turns(out, f);
    else gx__chat_jinja_instructions(out, f);
    const int whole = !ferror(out);
    if (fclose(out) == 0 && whole) return GX_OK;
    free(*jinja), *jinja = NULL;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a chat template");
}
#endif
