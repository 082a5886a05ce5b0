// chat_turn.h: what a conversation is made of, and the text that a format (chat.h) makes of it.
#ifndef GX_CHAT_TURN_H
#define GX_CHAT_TURN_H
#include "files.h"
GX_BEGIN

typedef enum { GX_CHAT_SYSTEM = 0, GX_CHAT_USER, GX_CHAT_ASSISTANT } GxChatRole;
typedef struct {
    GxChatRole role;
    const char *text; // UTF-8
} GxChatTurn;

typedef struct { // bytes of a text
    int64_t begin, end;
    int64_t end_bytes; // the last of them, which are the token that ends an answer; 0: it is not known which
    int answer;        // which it is of: the first is 0
} GxChatSpan;

typedef struct { // a conversation as text
    char *text;
    int64_t bytes;
    GxChatSpan *span; // [spans] what of it is learned
    int spans;
} GxChatText;
void gx_chat_text_free(GxChatText *x); // also of one that is all zero

// A conversation is a turn of the system's, or none, then turns of the user's and the assistant's in turn, the last one
// of `last`.
GxStatus gx_chat_turns_check(const GxChatTurn *turn, int n, GxChatRole last, GxError *err);

// How many bytes of white space text[n] has at its beginning, and at its end: what Python's str.strip() takes away.
int64_t gx_chat_space_before(const char *text, int64_t n);
int64_t gx_chat_space_behind(const char *text, int64_t n);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_TURN_IMPLEMENTED)
#define GX_CHAT_TURN_IMPLEMENTED
#include <stdlib.h>
#include <string.h>

void gx_chat_text_free(GxChatText *x)
{
    free(x->text), free(x->span);
    memset(x, 0, sizeof *x);
}

GxStatus gx_chat_turns_check(const GxChatTurn *turn, int n, GxChatRole last, GxError *err)
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

// The characters of white space beyond ASCII, in UTF-8.
static const char *const gx__chat_spaces[] = {
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83",
    "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A",
    "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};

static int gx__chat_is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F); }

// Bytes of the white space at the beginning (at_end 0) or the end of text[n]: one character of it, or 0.
static int64_t gx__chat_space(const char *text, int64_t n, int at_end)
{
    if (n > 0 && gx__chat_is_space(text[at_end ? n - 1 : 0])) return 1;
    for (size_t i = 0; i < sizeof gx__chat_spaces / sizeof *gx__chat_spaces; i++) {
        const int64_t bytes = (int64_t)strlen(gx__chat_spaces[i]);
        if (n >= bytes && !memcmp(at_end ? text + n - bytes : text, gx__chat_spaces[i], (size_t)bytes)) return bytes;
    }
    return 0;
}

int64_t gx_chat_space_before(const char *text, int64_t n)
{
    int64_t at = 0;
    for (int64_t bytes; (bytes = gx__chat_space(text + at, n - at, 0)) > 0;) at += bytes;
    return at;
}

int64_t gx_chat_space_behind(const char *text, int64_t n)
{
    int64_t left = n;
    for (int64_t bytes; (bytes = gx__chat_space(text, left, 1)) > 0;) left -= bytes;
    return n - left;
}
#endif
