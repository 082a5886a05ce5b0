// task/chat_format.h: the chat format in which a task reads conversations, chosen by options or by the chat template of
// a tokenizer's or model's folder.
//
//     GX_TRY(gx_task_chat_open(g, &c->chat, &request, &c->tokenizer, setup));    // on all ranks
//     … gx_pairs_open(…, &c->chat.reading, …) …
//     gx_task_chat_warn(g, &c->chat, lacks, n);                               // if there are n conversations
//     gx_task_chat_close(&c->chat);
#ifndef GX_TASK_CHAT_FORMAT_H
#define GX_TASK_CHAT_FORMAT_H
#include "../text/chat_find.h"
#include "../text/chat_save.h"
#include "../data/chat_tokens.h"
#include "task.h"
GX_BEGIN

enum { GX_CHAT_DATE = 256 };
// The option of tasks that read conversations.
#define GX_CHAT_DATE_OPTION(offset)                                                                                    \
    {                                                                                                                  \
        "chat_date", GX_FIELD_STRING, offset, "",                                                                      \
            "the date, YYYY-MM-DD, for a chat template that writes today's date; empty: the day on which the run "     \
            "began, also when it is resumed",                                                                          \
            NULL                                                                                                       \
    }
typedef struct {               // options
    const char *chat_template; // auto, a name or a file
    const char *tokenizer;     // the tokenizer's folder or file; "": the model's
    char *date;                // [GX_CHAT_DATE]; "" becomes today's date if the format depends on it
} GxTaskChatRequest;

typedef struct {
    GxChatReading reading;
    GxError lacks;  // why there is no format: only conversations need one
    int date_given; // --chat_date was given
} GxTaskChat;

// Rank 0 reads the folders and sets the date for all ranks. A template that was asked for and is not understood is an
// error at once; one that auto finds is an error only when conversations are read (reading.lacks).
GxStatus gx_task_chat_open(GxContext *g, GxTaskChat *c, const GxTaskChatRequest *request, const GxTokenizer *tokenizer,
                           const GxTaskSetup *setup);
// Warns of what conversations will lack. lacks[GX_CHAT_LACKS]: in how many of the n conversations (chat.h).
void gx_task_chat_warn(GxContext *g, const GxTaskChat *c, const int64_t *lacks, int64_t n);
// Warns of options that change nothing, if there are no conversations.
void gx_task_chat_warn_of_texts(GxContext *g, const GxTaskChat *c, const char *chat_template, const char *why);
void gx_task_chat_close(GxTaskChat *c);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TASK_CHAT_FORMAT_IMPLEMENTED)
#define GX_TASK_CHAT_FORMAT_IMPLEMENTED
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../comm/comm.h"

typedef struct {   // what rank 0 broadcasts
    int64_t bytes; // of the JSON that gx_chat_find returns; 0: none
    GxError err;   // why there is none
    char today[GX_CHAT_DATE];
} gx__TaskChatNews;

static void gx__task_chat_today(char out[GX_CHAT_DATE])
{
    const time_t now = time(NULL);
    struct tm day;
    memset(&day, 0, sizeof day);
    if (localtime_r(&now, &day)) strftime(out, GX_CHAT_DATE, "%Y-%m-%d", &day);
}

// The template file that a run was started with may be gone; its checkpoints have a copy.
static void gx__task_chat_point_to_copy(const char *choice, const char *folder, GxError *err)
{
    char path[GX_PATH];
    const GxError said = *err;
    GxError ignored = GX_ZERO;
    if (gx_chat_is_auto(choice) || gx_chat_format(choice) || gx_path_is_file(choice) || !folder || !folder[0] ||
        gx_path_join(path, folder, "chat_template.jinja", &ignored) != GX_OK || !gx_path_is_file(path))
        return;
    memset(err, 0, sizeof *err);
    GX_FAIL(err, gx_error_code(&said),
            "%s; if that is in the training_args.json of a run: it was trained with %s, which --chat_template accepts",
            said.message, path);
}

static void gx__task_chat_detect(const GxTaskChatRequest *request, const GxTaskSetup *setup, gx__TaskChatNews *news,
                                 char **text)
{
    char parent[GX_PATH] = "";
    GxJson *said;
    if (gx_path_is_folder(request->tokenizer)) snprintf(parent, sizeof parent, "%s", request->tokenizer);
    else if (gx_path_is_file(request->tokenizer)) gx_path_parent(parent, request->tokenizer);
    const char *const folders[] = {parent, setup->adapter, setup->model};
    gx__task_chat_today(news->today);
    if (gx_chat_find(&said, request->chat_template, folders, 3, &news->err) == GX_OK && said)
        gx_json_dump(said, 0, text, &news->bytes, &news->err);
    if (gx_error_code(&news->err) != GX_OK)
        gx__task_chat_point_to_copy(request->chat_template, setup->model, &news->err);
    gx_json_free(said);
}

// Broadcasts rank 0's text. *text: free() it.
static GxStatus gx__task_chat_agree(GxContext *g, gx__TaskChatNews *news, char **text)
{
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, news, sizeof *news, GX_U8);
    GX_TRY(gx_status(g));
    if (!news->bytes) return GX_OK;
    if (!*text) *text = (char *)calloc((size_t)news->bytes + 1, 1);
    if (!*text) return GX_FAIL(&g->error, GX_ERR_MEMORY, "no memory for a chat template");
    gx_broadcast(g, GX_AXIS_ALL, 0, *text, news->bytes, GX_U8);
    return gx_status(g);
}

static void gx__task_chat_take(GxTaskChat *c, const GxTaskChatRequest *request, const gx__TaskChatNews *news,
                               const char *text, const GxTokenizer *tokenizer)
{
    GxJson *said = NULL;
    const int is_json = gx_json_parse(&said, text, news->bytes, "what rank 0 says", &c->lacks) == GX_OK;
    if (is_json) gx_chat_open(&c->reading.format, said, request->date, tokenizer, &c->lacks);
    if (c->reading.format && gx_chat_dates(c->reading.format) && !request->date[0]) { // a resumed run keeps it
        snprintf(request->date, GX_CHAT_DATE, "%s", news->today);
        gx_chat_close(c->reading.format);
        gx_chat_open(&c->reading.format, said, request->date, tokenizer, &c->lacks);
    }
    gx_json_free(said);
}

GxStatus gx_task_chat_open(GxContext *g, GxTaskChat *c, const GxTaskChatRequest *request, const GxTokenizer *tokenizer,
                           const GxTaskSetup *setup)
{
    gx__TaskChatNews news;
    char *text = NULL;
    memset(&news, 0, sizeof news), memset(c, 0, sizeof *c);
    c->date_given = request->date[0] != 0; // it may be set below
    GX_TRY(gx_chat_check_date(request->date, &g->error));
    if (g->rank == 0) gx__task_chat_detect(request, setup, &news, &text);
    GxStatus status = gx__task_chat_agree(g, &news, &text);
    if (status == GX_OK && news.bytes) gx__task_chat_take(c, request, &news, text, tokenizer);
    else if (status == GX_OK) c->lacks = news.err;
    free(text);
    GX_TRY(status);
    const GxStatus lacks = gx_error_code(&c->lacks);
    const int is_asked = !gx_chat_is_auto(request->chat_template) || (news.bytes && c->date_given);
    if (lacks != GX_OK && is_asked) return GX_FAIL(&g->error, lacks, "%s", c->lacks.message);
    c->reading.lacks = lacks != GX_OK ? c->lacks.message : NULL;
    return GX_OK;
}

static void gx__task_chat_warn_of_lacks(GxContext *g, const GxChatFormat *f, const int64_t *lacks, int64_t n)
{
    static const char *const who[] = {"system", "user"};
    for (int i = GX_CHAT_LACKS_SYSTEM; i <= GX_CHAT_LACKS_USER; i++)
        if (lacks[i])
            gx_log(&g->log, GX_LOG_WARNING,
                   "%s does not write all that the %s says, in %ld of %ld conversation%s: what it leaves out is not "
                   "trained on",
                   gx_chat_name(f), who[i], (long)lacks[i], (long)n, gx_text_s(n));
    if (lacks[GX_CHAT_LACKS_END])
        gx_log(&g->log, GX_LOG_WARNING,
               "%s ends an answer with %s, but in %ld of %ld conversation%s that is not among what is trained on: the "
               "model does not learn to end one",
               gx_chat_name(f), gx_chat_end(f), (long)lacks[GX_CHAT_LACKS_END], (long)n, gx_text_s(n));
}

void gx_task_chat_warn_of_texts(GxContext *g, const GxTaskChat *c, const char *chat_template, const char *why)
{
    if (g->rank == 0 && strcmp(chat_template, "auto"))
        gx_log(&g->log, GX_LOG_WARNING, "--chat_template %s changes nothing: %s; leave it out", chat_template, why);
    if (g->rank == 0 && c->date_given)
        gx_log(&g->log, GX_LOG_WARNING, "--chat_date changes nothing: %s; leave it out", why);
}

void gx_task_chat_warn(GxContext *g, const GxTaskChat *c, const int64_t *lacks, int64_t n)
{
    const GxChatFormat *f = c->reading.format;
    if (g->rank != 0) return;
    if (!f) {
        gx_task_chat_warn_of_texts(g, c, "auto",
                                   "instructions are written in Alpaca's format, and no chat template was found");
        return;
    }
    if (!gx_chat_end(f)[0])
        gx_log(&g->log, GX_LOG_WARNING, "%s writes nothing after an answer, so the model does not learn to end one",
               gx_chat_name(f));
    gx__task_chat_warn_of_lacks(g, f, lacks, n);
    if (c->date_given && !gx_chat_dates(f))
        gx_log(&g->log, GX_LOG_WARNING, "--chat_date changes nothing: the format %s does not write today's date",
               gx_chat_name(f));
}

void gx_task_chat_close(GxTaskChat *c)
{
    gx_chat_close(c->reading.format);
    memset(c, 0, sizeof *c);
}
#endif
