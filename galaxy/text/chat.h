// chat.h: the format of conversations: how a conversation becomes the text that a chat model is trained on. A format is
// the chat template of a folder, a program that is executed (chat_template.h), or a common one that is known by its
// name (chat_named.h).
//
//     GX_TRY(gx_chat_find(&said, "auto", folders, n, err));                  // chat_find.h: what a folder says
//     GX_TRY(gx_chat_open(&format, said, "", &tokenizer, err));
//     … gx_chat_text(format, turn, n, -1, &text, err) …                   // or gx_chat_format("chatml")
//     gx_chat_close(format);
//
// The text contains all special tokens, including the first one, so it is encoded with these as tokens and without a
// frame.
//
// A model is trained on a whole conversation (gx_chat_training_text), with a loss on the assistant's answers only:
// these are its spans. If later turns change how earlier ones are written, which gx_chat_training_text reports, each
// answer is trained in a text of its own.
#ifndef GX_CHAT_H
#define GX_CHAT_H
#include "chat_named.h"
#include "chat_template.h"
GX_BEGIN

typedef struct GxChatFormat GxChatFormat; // immutable when open: threads may share it

const GxChatFormat *gx_chat_format(const char *name); // one of GX_CHAT_NAMES; NULL: there is no format of that name
// said: {"name": "chatml"}, or {"template": …, "where": …, "variables": {…}}. date: "2024-07-26", the day that the
// template takes for today; "": today. The tokenizer must outlive the format. After an error *f is NULL.
GxStatus gx_chat_open(const GxChatFormat **f, const GxJson *said, const char *date, const GxTokenizer *tokenizer,
                      GxError *err);
GxStatus gx_chat_check_date(const char *date, GxError *err);
void gx_chat_close(const GxChatFormat *f); // does nothing for NULL and for a named format

const char *gx_chat_name(const GxChatFormat *f); // "chatml", or the path of the template
// The token that ends an answer: "<|im_end|>". "": the template writes none.
const char *gx_chat_end(const GxChatFormat *f);
int gx_chat_thinks(const GxChatFormat *f); // 1: its text depends on whether thoughts are wanted
int gx_chat_dates(const GxChatFormat *f);  // 1: its text depends on the date
// A hash of the template and its variables, except the date, or of the name of a named format: formats with equal
// hashes write the same texts.
uint64_t gx_chat_hash(const GxChatFormat *f);
// The format as a Jinja template: the folder's own, or one that writes the same as the named format. free(*jinja).
GxStatus gx_chat_jinja(const GxChatFormat *f, char **jinja, GxError *err);

// The conversation up to where the next answer begins. turn[0] may be the system's; then user and assistant alternate,
// and the last turn is the user's. thinks: 1 or 0: thoughts are wanted or not, if the format has them; -1: its default.
// *text: free() it.
GxStatus gx_chat_text(const GxChatFormat *f, const GxChatTurn *turn, int n, int thinks, char **text, GxError *err);
// The conversation with its answers; the last turn is the assistant's. The spans are those of all answers in order, one
// each (or more, if a template has several {% generation %} blocks for one); only_last: those of the last answer.
// *rewrites 1, with x empty: an answer, or the text before it, is written differently once other turns follow, so
// only_last is needed. If rewrites is NULL, this is an error for a template.
GxStatus gx_chat_training_text(const GxChatFormat *f, const GxChatTurn *turn, int n, int only_last, GxChatText *x,
                               int *rewrites, GxError *err);

// What is missing in a text of a conversation, as bits 1 << each: what the system or the user says, apart from white
// space at its ends; the token that ends an answer, in what is learned (the text's spans, if it has any).
enum { GX_CHAT_LACKS_SYSTEM = 0, GX_CHAT_LACKS_USER, GX_CHAT_LACKS_END, GX_CHAT_LACKS };
int gx_chat_lacks(const GxChatFormat *f, const GxChatTurn *turn, int n, const GxChatText *x);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_IMPLEMENTED)
#define GX_CHAT_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct GxChatFormat { // one of these
    const GxChatNamed *named;
    GxChatTemplate *own;
};

static const GxChatFormat gx__chat_formats[GX_CHAT_NAMED] = {
    {&gx_chat_named[0], NULL}, {&gx_chat_named[1], NULL}, {&gx_chat_named[2], NULL}, {&gx_chat_named[3], NULL},
    {&gx_chat_named[4], NULL}, {&gx_chat_named[5], NULL}, {&gx_chat_named[6], NULL}, {&gx_chat_named[7], NULL},
    {&gx_chat_named[8], NULL}, {&gx_chat_named[9], NULL}};

const GxChatFormat *gx_chat_format(const char *name)
{
    for (int i = 0; i < GX_CHAT_NAMED; i++)
        if (!strcmp(gx_chat_named[i].name, name)) return &gx__chat_formats[i];
    return NULL;
}

// ---- opening -------------------------------------------------------------------------------------------------------

// Noon of a day in local time; "": now.
static GxStatus gx__chat_time(const char *date, int64_t *now, GxError *err)
{
    struct tm day;
    int n = 0, year, month;
    memset(&day, 0, sizeof day);
    *now = (int64_t)time(NULL);
    if (!date[0]) return GX_OK;
    const int numbers = sscanf(date, "%4d-%2d-%2d%n", &year, &month, &day.tm_mday, &n), days = day.tm_mday;
    if (numbers == 3) day.tm_year = year - 1900, day.tm_mon = month - 1, day.tm_hour = 12, day.tm_isdst = -1;
    const time_t then = mktime(&day); // mktime turns a day that does not exist into one that does
    if (numbers == 3 && strlen(date) == 10 && n == 10 && then != (time_t)-1 && day.tm_mday == days &&
        day.tm_mon == month - 1)
        return *now = (int64_t)then, GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "chat_date is \"%.40s\"; expected a day, YYYY-MM-DD", date);
}

GxStatus gx_chat_check_date(const char *date, GxError *err)
{
    int64_t now;
    return gx__chat_time(date, &now, err);
}

// If the template has a default date, passes the given date to it.
static GxStatus gx__chat_tell_date(GxChatTemplate *c, const char *date, GxError *err)
{
    char text[40];
    const time_t now = (time_t)c->now;
    struct tm day;
    if (!date[0] || gx_template_mentions(c->program, "strftime_now") ||
        !gx_template_mentions(c->program, "date_string") || !localtime_r(&now, &day))
        return GX_OK;
    strftime(text, sizeof text, "%d %b %Y", &day);
    return gx_json_set(c->variables, "date_string", gx_json_new_string(text), err);
}

GxStatus gx_chat_open(const GxChatFormat **out, const GxJson *said, const char *date, const GxTokenizer *tokenizer,
                      GxError *err)
{
    const GxJson *text = gx_json_get(said, "template");
    int64_t now;
    *out = NULL;
    GX_TRY(gx__chat_time(date, &now, err));
    if (!text) {
        *out = gx_chat_format(gx_json_string(gx_json_get(said, "name")));
        return *out ? GX_OK : GX_FAIL(err, GX_ERR_ARGUMENT, "there is no chat format of that name");
    }
    GxChatFormat *f = (GxChatFormat *)calloc(1, sizeof *f);
    if (f) f->own = (GxChatTemplate *)calloc(1, sizeof *f->own);
    GxStatus status = f && f->own ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a chat template");
    if (status == GX_OK)
        status = gx_chat_template_open(f->own, gx_json_string(text), gx_json_string(gx_json_get(said, "where")),
                                       gx_json_get(said, "variables"), now, tokenizer, err);
    if (status == GX_OK) status = gx__chat_tell_date(f->own, date, err);
    if (status == GX_OK) *out = f;
    else gx_chat_close(f);
    return status;
}

void gx_chat_close(const GxChatFormat *f)
{
    if (!f || f->named) return;
    if (f->own) gx_chat_template_close(f->own);
    free(f->own), free((void *)(uintptr_t)f);
}

// ---- what it is ----------------------------------------------------------------------------------------------------

const char *gx_chat_name(const GxChatFormat *f) { return f->named ? f->named->name : f->own->where; }
const char *gx_chat_end(const GxChatFormat *f) { return f->named ? f->named->end : f->own->end; }

int gx_chat_thinks(const GxChatFormat *f)
{
    return f->named ? f->named->thinks : gx_template_mentions(f->own->program, "enable_thinking");
}

int gx_chat_dates(const GxChatFormat *f)
{
    return f->own && (gx_template_mentions(f->own->program, "strftime_now") ||
                      gx_json_get(f->own->variables, "date_string") != NULL);
}

uint64_t gx_chat_hash(const GxChatFormat *f)
{
    const char *text = f->named ? f->named->name : f->own->text;
    uint64_t hash = gx_hash(GX_HASH_START, text, (int64_t)strlen(text)), given = 0;
    const GxJson *variables = f->named ? NULL : f->own->variables;
    for (GxJsonMember m = GX_ZERO; variables && gx_json_next(variables, &m);) {
        const char *value = gx_json_string(m.value);
        if (!strcmp(m.key, "date_string")) continue;
        given += gx_hash(gx_hash(GX_HASH_START, m.key, (int64_t)strlen(m.key) + 1), value, (int64_t)strlen(value));
    }
    return gx_hash(hash, &given, sizeof given); // a sum, since their order does not matter
}

GxStatus gx_chat_jinja(const GxChatFormat *f, char **jinja, GxError *err)
{
    if (f->named) return gx_chat_named_template(f->named, jinja, err);
    *jinja = strdup(f->own->text);
    return *jinja ? GX_OK : GX_FAIL(err, GX_ERR_MEMORY, "no memory for a chat template");
}

// ---- texts ---------------------------------------------------------------------------------------------------------

GxStatus gx_chat_text(const GxChatFormat *f, const GxChatTurn *turn, int n, int thinks, char **text, GxError *err)
{
    *text = NULL;
    GX_TRY(gx_chat_turns_check(turn, n, GX_CHAT_USER, err));
    return f->named ? gx_chat_named_text(f->named, turn, n, thinks != 0, text, err)
                    : gx_chat_template_text(f->own, turn, n, thinks, text, err);
}

GxStatus gx_chat_training_text(const GxChatFormat *f, const GxChatTurn *turn, int n, int only_last, GxChatText *x,
                               int *rewrites, GxError *err)
{
    int otherwise = 0;
    memset(x, 0, sizeof *x);
    if (rewrites) *rewrites = 0;
    GX_TRY(gx_chat_turns_check(turn, n, GX_CHAT_ASSISTANT, err));
    if (f->own) GX_TRY(gx_chat_template_training_text(f->own, turn, n, only_last, x, &otherwise, err));
    else otherwise = rewrites && !only_last && gx_chat_named_rewrites(f->named, turn);
    if (otherwise && rewrites) return *rewrites = 1, GX_OK;
    if (otherwise)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s writes an answer differently when more turns follow, so each answer needs a text of its own",
                       f->own->where);
    if (f->own) return GX_OK;
    GX_TRY(gx_chat_named_training_text(f->named, turn, n, x, err));
    if (only_last) x->span[0] = x->span[x->spans - 1], x->spans = 1;
    return GX_OK;
}

// ---- what a text lacks ---------------------------------------------------------------------------------------------

static int gx__chat_has_text(const char *all, const char *said)
{
    const int64_t n = (int64_t)strlen(said), space = gx_chat_space_before(said, n);
    said += space;
    char *text = strndup(said, (size_t)(n - space - gx_chat_space_behind(said, n - space)));
    const int has = !text || strstr(all, text) != NULL; // if memory ran out, nothing is reported as missing
    free(text);
    return has;
}

static int gx__chat_learns_end(const GxChatText *x, const char *end)
{
    for (int i = 0; i < x->spans; i++) {
        const char *at = strstr(x->text + x->span[i].begin, end);
        if (x->span[i].end_bytes > 0 || (at && at + strlen(end) <= x->text + x->span[i].end)) return 1;
    }
    return 0;
}

int gx_chat_lacks(const GxChatFormat *f, const GxChatTurn *turn, int n, const GxChatText *x)
{
    int lacks = 0;
    for (int i = 0; i < n; i++)
        if (turn[i].role != GX_CHAT_ASSISTANT && !gx__chat_has_text(x->text, turn[i].text))
            lacks |= 1 << (turn[i].role == GX_CHAT_SYSTEM ? GX_CHAT_LACKS_SYSTEM : GX_CHAT_LACKS_USER);
    if (x->spans > 0 && gx_chat_end(f)[0] && !gx__chat_learns_end(x, gx_chat_end(f))) lacks |= 1 << GX_CHAT_LACKS_END;
    return lacks;
}
#endif
