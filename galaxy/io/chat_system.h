// chat_system.h: the system turn that a chat template writes where a conversation has none, as far as it can be read
// off the template: a text that stands in it behind the head of a system's turn. chat.h leaves such a turn out, but for
// the formats whose own it is; who talks to the model is to be told.
#ifndef GX_CHAT_SYSTEM_H
#define GX_CHAT_SYSTEM_H
#include "../base/text.h"
#include "chat.h"
GX_BEGIN

// The beginning of the text, up to the end of its line, into text; "": the template has none, or the format writes it.
void gx_chat_left_out(const GxChatFormat *f, const char *jinja, char text[GX_TEXT_VALUE]);
// The same of a folder; "" also where it has no template.
GxStatus gx_chat_left_out_of(const GxChatFormat *f, const char *folder, char text[GX_TEXT_VALUE], GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_SYSTEM_IMPLEMENTED)
#define GX_CHAT_SYSTEM_IMPLEMENTED
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// Behind white space, as it is or as a template's strings have it.
static const char *gx__chat_behind_space(const char *p)
{
    for (;; p++) {
        if (*p == '\\' && (p[1] == 'n' || p[1] == 't')) p++;
        else if (!gx__chat_is_space(*p)) return p;
    }
}

void gx_chat_left_out(const GxChatFormat *f, const char *jinja, char text[GX_TEXT_VALUE])
{
    static const char *const heads[] = {"<|im_start|>system", "<|start_header_id|>system<|end_header_id|>"};
    char room[2 * GX_TEXT_VALUE];
    text[0] = 0;
    for (int i = 0; i < 2 && !f->default_system; i++)
        for (const char *p = jinja; (p = strstr(p, heads[i])) != NULL && !text[0];) {
            p = gx__chat_behind_space(p + strlen(heads[i]));
            if (!isalpha((unsigned char)*p)) continue; // a string that ends, a variable, a heading
            size_t n = strcspn(p, "\\\n<{}\"");
            if (n >= sizeof room) n = sizeof room - 1;
            memcpy(room, p, n);
            room[n] = 0;
            char *quote = strstr(room, "' "); // where the template's string ends
            if (quote) *quote = 0;
            gx_text_cut(room, text, GX_TEXT_VALUE);
        }
}

GxStatus gx_chat_left_out_of(const GxChatFormat *f, const char *folder, char text[GX_TEXT_VALUE], GxError *err)
{
    char path[GX_PATH], *jinja = NULL;
    int64_t bytes;
    GxJson *json = NULL;
    text[0] = 0;
    GX_TRY(gx_path_join(path, folder, "chat_template.jinja", err));
    if (gx_path_is_file(path)) {
        GX_TRY(gx_file_read(path, GX__CHAT_CAP, &jinja, &bytes, err));
        gx_chat_left_out(f, jinja, text);
        free(jinja);
        return GX_OK;
    }
    GX_TRY(gx_tokenizer_config_read(&json, folder, err));
    const char *said = gx__chat_template(gx_json_get(json, "chat_template"));
    if (said) gx_chat_left_out(f, said, text);
    gx_json_free(json);
    return GX_OK;
}
#endif
