// chat.h: conversations as the texts that chat models were trained on. A Hugging Face folder says its format as a
// template (chat_template.jinja, or "chat_template" of tokenizer_config.json), a small program; here the usual formats
// are written out by name, and a folder's template is recognised by the parts that tell it from the others.
//
//     chatml          each <|im_start|>role⏎ text <|im_end|>⏎
//     qwen2.5         the same, with a system turn of Qwen's own where none is given
//     qwen3           the same, without one; thoughts of earlier answers are left out, and where none are wanted an
//                     empty one is begun with
//     llama3          <|begin_of_text|>, each <|start_header_id|>role<|end_header_id|>⏎⏎ text <|eot_id|>
//     llama3.1        the same, with a system turn that says dates (always July 26, 2024, whatever day it is)
//     llama2          <s>[INST] <<SYS>>⏎ system ⏎<</SYS>>⏎⏎ text [/INST] answer </s>
//     mistral         <s>[INST] text [/INST]answer</s>            Mistral's first format
//     mistral-v1      <s> [INST] text [/INST] answer</s>
//     mistral-v3      <s>[INST] text[/INST] answer</s>
//     mistral-tekken  <s>[INST]text[/INST]answer</s>
//
// The text has its special tokens in it, the first one included: it is encoded with them as tokens, and gets no frame.
// A template that is none of these, or is changed in other parts, gives another text than this does: what is recognised
// is the format, not the template's every word.
//
// A model is trained on a conversation as a whole (gx_chat_training_text), on what the assistant said in it: its spans.
// Where a later turn changes how earlier ones stand (gx_chat_rewrites), each answer is trained with a text of its own.
#ifndef GX_CHAT_H
#define GX_CHAT_H
#include "files.h"
#include "json.h"
#include "tokenizer_config.h"
GX_BEGIN

typedef enum { GX_CHAT_SYSTEM = 0, GX_CHAT_USER, GX_CHAT_ASSISTANT } GxChatRole;
typedef struct {
    GxChatRole role;
    const char *text; // UTF-8
} GxChatTurn;

typedef struct GxChatFormat GxChatFormat;
#define GX_CHAT_NAMES "chatml|qwen2.5|qwen3|llama3|llama3.1|llama2|mistral|mistral-v1|mistral-v3|mistral-tekken"

const GxChatFormat *gx_chat_format(const char *name);     // NULL: there is none of that name
const char *gx_chat_name(const GxChatFormat *f);          // "chatml"
const char *gx_chat_end(const GxChatFormat *f);           // the token that ends an answer: "<|im_end|>"
int gx_chat_thinks(const GxChatFormat *f);                // 1: answers may begin with thoughts
const GxChatFormat *gx_chat_recognise(const char *jinja); // NULL: it is none of them
// The format of a folder. NULL and an error: it has no template, or an unknown one.
const GxChatFormat *gx_chat_find(const char *folder, GxError *err);
// The same, but NULL and no error where there is no template.
GxStatus gx_chat_look(const char *folder, const GxChatFormat **format, GxError *err);

// The conversation up to where the next answer begins. turn[0] may be the system's; then user and assistant take turns,
// and the user's is the last. thinks: of a format that can. *text: free() it.
GxStatus gx_chat_text(const GxChatFormat *f, const GxChatTurn *turn, int n, int thinks, char **text, GxError *err);

typedef struct { // bytes of a text
    int64_t begin, end;
} GxChatSpan;

// The conversation with its answers, the assistant's turn the last. span[k]: answer k, from behind what stands there
// before the model writes, through the token that ends it; room for n / 2. Of a format that thinks, the last answer
// stands with its thoughts, or with empty ones.
GxStatus gx_chat_training_text(const GxChatFormat *f, const GxChatTurn *turn, int n, char **text, GxChatSpan *span,
                               GxError *err);
// 1: a turn stands otherwise once others follow it.
int gx_chat_rewrites(const GxChatFormat *f, const GxChatTurn *turn, int n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_IMPLEMENTED)
#define GX_CHAT_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GX__CHAT_CAP = 4 << 20 };
enum { GX__CHAT_AS_IS = 0, GX__CHAT_TRIMMED };

// What stands around the texts. Where a system's text belongs to a user's turn, it stands before that.
struct GxChatFormat {
    const char *name, *end;
    const char *begin; // of the whole
    // each turn has a head and a foot of its own, the system's too: "%s" is its role. NULL: the others
    const char *head, *foot;
    const char *inst, *end_inst, *answer, *end_answer; // around a user's text, around an answer
    const char *system, *end_system;                   // around the system's text
    int system_is_last;                                // it stands before the last user's text, not the first
    int trims, thinks;
    const char *default_system, *always; // of nobody; before every system's text
};

static const GxChatFormat gx__chat_formats[] = {
    {"chatml", "<|im_end|>", "", "<|im_start|>%s\n", "<|im_end|>\n", 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL},
    {"qwen2.5", "<|im_end|>", "", "<|im_start|>%s\n", "<|im_end|>\n", 0, 0, 0, 0, 0, 0, 0, 0, 0,
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", NULL},
    {"qwen3", "<|im_end|>", "", "<|im_start|>%s\n", "<|im_end|>\n", 0, 0, 0, 0, 0, 0, 0, 0, 1, NULL, NULL},
    {"llama3", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>%s<|end_header_id|>\n\n", "<|eot_id|>", 0, 0, 0,
     0, 0, 0, 0, GX__CHAT_TRIMMED, 0, NULL, NULL},
    {"llama3.1", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>%s<|end_header_id|>\n\n", "<|eot_id|>", 0, 0, 0,
     0, 0, 0, 0, GX__CHAT_TRIMMED, 0, "", "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"},
    {"llama2", "</s>", "", NULL, NULL, "<s>[INST] ", " [/INST]", " ", " </s>", "<<SYS>>\n", "\n<</SYS>>\n\n", 0,
     GX__CHAT_TRIMMED, 0, NULL, NULL},
    {"mistral", "</s>", "<s>", NULL, NULL, "[INST] ", " [/INST]", "", "</s>", "", "\n\n", 0, 0, 0, NULL, NULL},
    {"mistral-v1", "</s>", "<s>", NULL, NULL, " [INST] ", " [/INST]", " ", "</s>", "", "\n\n", 0, 0, 0, NULL, NULL},
    {"mistral-v3", "</s>", "<s>", NULL, NULL, "[INST] ", "[/INST]", " ", "</s>", "", "\n\n", 1, 0, 0, NULL, NULL},
    {"mistral-tekken", "</s>", "<s>", NULL, NULL, "[INST]", "[/INST]", "", "</s>", "", "\n\n", 1, 0, 0, NULL, NULL},
};
enum { GX__CHAT_FORMATS = sizeof gx__chat_formats / sizeof *gx__chat_formats };

const GxChatFormat *gx_chat_format(const char *name)
{
    for (int i = 0; i < GX__CHAT_FORMATS; i++)
        if (!strcmp(gx__chat_formats[i].name, name)) return &gx__chat_formats[i];
    return NULL;
}
const char *gx_chat_name(const GxChatFormat *f) { return f->name; }
const char *gx_chat_end(const GxChatFormat *f) { return f->end; }
int gx_chat_thinks(const GxChatFormat *f) { return f->thinks; }

// ---- which one it is -----------------------------------------------------------------------------------------------

// The first line of which a template has all parts, and none of those behind "!", is its format. "": refused.
static const struct {
    const char *part[4];
    const char *name;
} gx__chat_signs[] = {
    {{"<|im_start|>", "<|im_sep|>"}, ""}, // Phi-4
    {{"<|im_start|>", "<|vision_start|>"}, ""},
    {{"<|im_start|>", "<|startoftext|>"}, ""}, // LFM2
    {{"<|im_start|>", "enable_thinking"}, "qwen3"},
    {{"<|im_start|>", "<think>"}, ""}, // that always thinks, or in other words
    {{"<|im_start|>", "You are Qwen, created by Alibaba Cloud"}, "qwen2.5"},
    {{"<|im_start|>", "<|im_end|>"}, "chatml"},
    {{"<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date"}, "llama3.1"},
    {{"<|start_header_id|>", "<|eot_id|>"}, "llama3"},
    {{"[SYSTEM_PROMPT]"}, ""}, // Mistral's v7
    {{"[INST]", "<<SYS>>"}, "llama2"},
    {{" [INST] ", " [/INST]"}, "mistral-v1"},
    {{"[INST] ", " [/INST]"}, "mistral"},
    {{"[INST] ", "[/INST]"}, "mistral-v3"},
    {{"[INST]", "[/INST]"}, "mistral-tekken"},
};

const GxChatFormat *gx_chat_recognise(const char *jinja)
{
    for (size_t i = 0; i < sizeof gx__chat_signs / sizeof *gx__chat_signs; i++) {
        int all = 1;
        for (int k = 0; k < 4 && gx__chat_signs[i].part[k]; k++)
            all &= strstr(jinja, gx__chat_signs[i].part[k]) != NULL;
        if (all) return gx__chat_signs[i].name[0] ? gx_chat_format(gx__chat_signs[i].name) : NULL;
    }
    return NULL;
}

// "chat_template": a template, or several with names, of which "default" is meant. NULL: there is none.
static const char *gx__chat_template(const GxJson *value)
{
    for (int64_t i = 0; gx_json_type(value) == GX_JSON_ARRAY && i < gx_json_size(value); i++)
        if (!strcmp(gx_json_string(gx_json_get(gx_json_at(value, i), "name")), "default"))
            return gx__chat_template(gx_json_get(gx_json_at(value, i), "template"));
    return gx_json_type(value) == GX_JSON_STRING ? gx_json_string(value) : NULL;
}

static const GxChatFormat *gx__chat_known(const char *jinja, const char *path, GxError *err)
{
    const GxChatFormat *f = gx_chat_recognise(jinja);
    if (!f)
        GX_FAIL(err, GX_ERR_UNSUPPORTED,
                "%s: its chat template is none of the supported ones; --chat_template NAME takes one of %s", path,
                GX_CHAT_NAMES);
    return f;
}

GxStatus gx_chat_look(const char *folder, const GxChatFormat **format, GxError *err)
{
    char path[GX_PATH], *text = NULL;
    int64_t bytes;
    GxJson *json = NULL;
    *format = NULL;
    GX_TRY(gx_path_join(path, folder, "chat_template.jinja", err));
    if (gx_path_is_file(path)) {
        if (gx_file_read(path, GX__CHAT_CAP, &text, &bytes, err) == GX_OK) *format = gx__chat_known(text, path, err);
        free(text);
        return gx_error_code(err);
    }
    GX_TRY(gx_path_join(path, folder, GX_TOKENIZER_CONFIG, err));
    GX_TRY(gx_tokenizer_config_read(&json, folder, err));
    const char *jinja = gx__chat_template(gx_json_get(json, "chat_template"));
    if (jinja) *format = gx__chat_known(jinja, path, err);
    gx_json_free(json);
    return gx_error_code(err);
}

const GxChatFormat *gx_chat_find(const char *folder, GxError *err)
{
    const GxChatFormat *f;
    if (gx_chat_look(folder, &f, err) == GX_OK && !f)
        GX_FAIL(err, GX_ERR_UNSUPPORTED,
                "%s: there is no chat template: neither chat_template.jinja nor chat_template in "
                "tokenizer_config.json; --chat_template NAME takes one of %s",
                folder, GX_CHAT_NAMES);
    return f;
}

// ---- texts ---------------------------------------------------------------------------------------------------------

static int gx__chat_is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// A text, without white space at its ends where the format trims.
static void gx__chat_put(FILE *out, const GxChatFormat *f, const char *text)
{
    size_t n = strlen(text);
    while (f->trims && gx__chat_is_space(*text)) text++, n--;
    while (f->trims && n > 0 && gx__chat_is_space(text[n - 1])) n--;
    fwrite(text, 1, n, out);
}

// An earlier answer: without its thoughts.
static const char *gx__chat_answer(const GxChatFormat *f, const char *text)
{
    const char *end = NULL;
    for (const char *p = text; f->thinks && (p = strstr(p, "</think>")) != NULL; p++) end = p;
    if (!end) return text;
    for (end += strlen("</think>"); *end == '\n';) end++;
    return end;
}

static void gx__chat_head(FILE *out, const GxChatFormat *f, GxChatRole role)
{
    static const char *const names[] = {"system", "user", "assistant"};
    const char *at = strstr(f->head, "%s");
    fprintf(out, "%.*s%s%s", (int)(at - f->head), f->head, names[role], at + 2);
}

// Where a text is written to, and where the answers in it are told.
typedef struct {
    FILE *out;
    GxChatSpan *span; // NULL: nobody asks
    int answers;
} gx__ChatWriting;

// An answer between what begins it and what ends it, through the token that does.
static void gx__chat_put_answer(gx__ChatWriting *w, const GxChatFormat *f, const char *before, const char *text,
                                const char *behind)
{
    const int64_t begin = w->span ? (int64_t)ftell(w->out) : 0;
    fputs(before, w->out), gx__chat_put(w->out, f, text), fputs(behind, w->out);
    if (!w->span) return;
    const char *rest = strstr(behind, f->end) + strlen(f->end); // a newline, perhaps
    w->span[w->answers].begin = begin;
    w->span[w->answers++].end = (int64_t)ftell(w->out) - (int64_t)strlen(rest);
}

// The last answer of a format that thinks: its thoughts, or nothing in their place, then what it says.
static void gx__chat_put_thoughts(gx__ChatWriting *w, const GxChatFormat *f, const char *text)
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
    const char *answer = gx__chat_answer(f, text);
    answer += strspn(answer, "\n");
    if (thoughts && fclose(thoughts) == 0) gx__chat_put_answer(w, f, before, answer, f->foot);
    else w->answers = -1; // no memory
    free(before);
}

// Every turn between a head and a foot.
static void gx__chat_turns(gx__ChatWriting *w, const GxChatFormat *f, const GxChatTurn *turn, int n)
{
    FILE *out = w->out;
    const int has_system = turn[0].role == GX_CHAT_SYSTEM;
    if (has_system || f->default_system) {
        gx__chat_head(out, f, GX_CHAT_SYSTEM);
        if (f->always) fputs(f->always, out);
        gx__chat_put(out, f, has_system ? turn[0].text : f->default_system);
        fputs(f->foot, out);
    }
    for (int i = has_system; i < n; i++) {
        gx__chat_head(out, f, turn[i].role);
        if (turn[i].role == GX_CHAT_USER) gx__chat_put(out, f, turn[i].text), fputs(f->foot, out);
        else if (f->thinks && i == n - 1) gx__chat_put_thoughts(w, f, turn[i].text);
        else gx__chat_put_answer(w, f, "", gx__chat_answer(f, turn[i].text), f->foot);
    }
}

// Users' turns in [INST]; the system's text stands in one of them.
static void gx__chat_instructions(gx__ChatWriting *w, const GxChatFormat *f, const GxChatTurn *turn, int n)
{
    FILE *out = w->out;
    const char *system = turn[0].role == GX_CHAT_SYSTEM ? turn[0].text : NULL;
    const int first = system != NULL, last = turn[n - 1].role == GX_CHAT_USER ? n - 1 : n - 2,
              with = f->system_is_last ? last : first;
    for (int i = first; i < n; i++) {
        if (turn[i].role == GX_CHAT_ASSISTANT) {
            gx__chat_put_answer(w, f, f->answer, turn[i].text, f->end_answer);
            continue;
        }
        fputs(f->inst, out);
        if (system && i == with) fputs(f->system, out), fputs(system, out), fputs(f->end_system, out);
        gx__chat_put(out, f, turn[i].text);
        fputs(f->end_inst, out);
    }
}

static GxStatus gx__chat_check(const GxChatTurn *turn, int n, GxChatRole last, GxError *err)
{
    const int first = n > 0 && turn[0].role == GX_CHAT_SYSTEM;
    for (int i = first; i < n; i++)
        if (turn[i].role != ((i - first) % 2 ? GX_CHAT_ASSISTANT : GX_CHAT_USER))
            return GX_FAIL(err, GX_ERR_ARGUMENT, "turn %d of a conversation is not the %s's; they take turns", i,
                           (i - first) % 2 ? "assistant" : "user");
    if (n <= first || turn[n - 1].role != last)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a conversation of %d turns does not end with the %s's", n,
                       last == GX_CHAT_USER ? "user" : "assistant");
    return GX_OK;
}

// thinks: what the model is to do next; span NULL: up to where it answers, else all of it.
static GxStatus gx__chat_write(const GxChatFormat *f, const GxChatTurn *turn, int n, int thinks, char **text,
                               GxChatSpan *span, GxError *err)
{
    gx__ChatWriting w = {NULL, span, 0};
    size_t bytes;
    *text = NULL;
    GX_TRY(gx__chat_check(turn, n, span ? GX_CHAT_ASSISTANT : GX_CHAT_USER, err));
    w.out = open_memstream(text, &bytes);
    if (!w.out) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation");
    fputs(f->begin, w.out);
    if (f->head) gx__chat_turns(&w, f, turn, n);
    else gx__chat_instructions(&w, f, turn, n);
    if (f->head && !span) gx__chat_head(w.out, f, GX_CHAT_ASSISTANT);
    if (f->head && !span && f->thinks && !thinks) fputs("<think>\n\n</think>\n\n", w.out);
    const int whole = !ferror(w.out) && w.answers >= 0;
    if (fclose(w.out) == 0 && whole) return GX_OK;
    free(*text), *text = NULL;
    return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a conversation of %d turns", n);
}

GxStatus gx_chat_text(const GxChatFormat *f, const GxChatTurn *turn, int n, int thinks, char **text, GxError *err)
{
    return gx__chat_write(f, turn, n, thinks, text, NULL, err);
}

GxStatus gx_chat_training_text(const GxChatFormat *f, const GxChatTurn *turn, int n, char **text, GxChatSpan *span,
                               GxError *err)
{
    return gx__chat_write(f, turn, n, 1, text, span, err);
}

int gx_chat_rewrites(const GxChatFormat *f, const GxChatTurn *turn, int n)
{
    return f->thinks || (f->system_is_last && n > 0 && turn[0].role == GX_CHAT_SYSTEM);
}
#endif
