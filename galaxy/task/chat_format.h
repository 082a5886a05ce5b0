// task/chat_format.h: chooses the chat format in which a task reads conversations, by an option or by the chat template
// of a tokenizer's or model's folder.
#ifndef GX_TASK_CHAT_FORMAT_H
#define GX_TASK_CHAT_FORMAT_H
#include "../io/chat_system.h"
#include "../io/chat_tokens.h"
#include "task.h"
GX_BEGIN

// Sets chat->format on all ranks. chat_template: the name of a format, or auto: that of the chat template in the
// tokenizer's folder, else in the model's; rank 0 reads the folders.
GxStatus gx_chat_find_format(GxContext *g, GxChatReading *chat, const char *chat_template, const char *tokenizer_path,
                             const GxTaskSetup *setup);
// Warns if the folder's template begins a conversation with a system turn of its own, which the format does not.
void gx_chat_warn_of_system(GxContext *g, const GxChatReading *chat, const char *chat_template,
                            const char *tokenizer_path, const GxTaskSetup *setup);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_TASK_CHAT_FORMAT_IMPLEMENTED)
#define GX_TASK_CHAT_FORMAT_IMPLEMENTED
#include <string.h>
#include "../comm/comm.h"

// The format of a folder's chat template. "": the folder has none; "?": it is unknown, or cannot be read.
static void gx__chat_format_look(const char *folder, char name[GX_FIELD_TEXT])
{
    const GxChatFormat *f = NULL;
    GxError e = GX_ZERO;
    name[0] = 0;
    if (!gx_path_is_folder(folder)) return;
    const GxStatus status = gx_chat_look(folder, &f, &e);
    if (f || status != GX_OK) snprintf(name, GX_FIELD_TEXT, "%s", f ? gx_chat_name(f) : "?");
}

GxStatus gx_chat_find_format(GxContext *g, GxChatReading *chat, const char *chat_template, const char *tokenizer_path,
                             const GxTaskSetup *setup)
{
    char name[GX_FIELD_TEXT] = GX_ZERO;
    if (strcmp(chat_template, "auto")) snprintf(name, sizeof name, "%s", chat_template);
    else if (g->rank == 0) {
        gx__chat_format_look(tokenizer_path, name);
        if (!name[0]) gx__chat_format_look(setup->model, name);
    }
    gx_at(g, -1, "agree");
    gx_broadcast(g, GX_AXIS_ALL, 0, name, sizeof name, GX_U8);
    GX_TRY(gx_status(g));
    chat->format = gx_chat_format(name);
    chat->lacks = name[0] == '?' ? "the model's chat template is none of the supported ones" : NULL;
    return GX_OK;
}

void gx_chat_warn_of_system(GxContext *g, const GxChatReading *chat, const char *chat_template,
                            const char *tokenizer_path, const GxTaskSetup *setup)
{
    char text[GX_TEXT_VALUE] = "";
    GxError ignored = GX_ZERO; // a folder that cannot be read counts as one without a template
    const char *folder = gx_path_is_folder(tokenizer_path) ? tokenizer_path : setup->model;
    if (g->rank != 0 || !chat->format || strcmp(chat_template, "auto") || !folder[0]) return;
    if (gx_chat_left_out_of(chat->format, folder, text, &ignored) == GX_OK && text[0])
        gx_log(&g->log, GX_LOG_WARNING,
               "the chat template has a system turn of its own (%s), which the format %s leaves out; conversations "
               "that are to have it begin with it",
               text, gx_chat_name(chat->format));
}
#endif
