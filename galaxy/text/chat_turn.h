// chat_turn.h: the turns of a conversation, and the text that a format (chat.h) makes of them.
#ifndef GX_CHAT_TURN_H
#define GX_CHAT_TURN_H
#include "../io/files.h"
#include "unicode.h"
GX_BEGIN

typedef enum { GX_CHAT_SYSTEM = 0, GX_CHAT_USER, GX_CHAT_ASSISTANT } GxChatRole;
typedef struct {
    GxChatRole role;
    const char *text; // UTF-8
} GxChatTurn;

typedef struct { // bytes of a text
    int64_t begin, end;
    int64_t end_bytes; // how many of them, at the end, are the token that ends an answer; 0: unknown
    int answer;        // the number of the answer, from 0 on
} GxChatSpan;

typedef struct { // a conversation as text
    char *text;
    int64_t bytes;
    GxChatSpan *span; // [spans] the parts that are learned
    int spans;
} GxChatText;
void gx_chat_text_free(GxChatText *x); // accepts a struct of zeros

// A conversation may begin with a system turn; then user and assistant alternate, and the last turn is that of `last`.
GxStatus gx_chat_turns_check(const GxChatTurn *turn, int n, GxChatRole last, GxError *err);

// The bytes of white space at the beginning of text[n], and at its end: what Python's str.strip() removes.
int64_t gx_chat_space_before(const char *text, int64_t n);
int64_t gx_chat_space_behind(const char *text, int64_t n);
int64_t gx_chat_common(const char *a, const char *b);  // the bytes of the whole characters that both texts begin with
const char *gx_chat_behind_thoughts(const char *said); // what follows the last </think> of an answer; NULL: it has none

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
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "turn %d of a conversation is not the %s's; user and assistant must alternate", i,
                           (i - first) % 2 ? "assistant" : "user");
    if (n <= first || turn[n - 1].role != last)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a conversation of %d turns does not end with the %s's", n,
                       last == GX_CHAT_USER ? "user" : "assistant");
    return GX_OK;
}

// The bytes of one white-space character at the beginning (at_end 0) or the end of text[n]; 0: there is none.
static int64_t gx__chat_space(const char *text, int64_t n, int at_end)
{
    uint32_t c;
    int64_t at = at_end ? n : 0;
    if (n <= 0) return 0;
    if (at_end) do
            at--;
        while (at > 0 && (text[at] & 0xC0) == 0x80);
    const int64_t bytes = gx_unicode_decode(text + at, text + n, &c);
    return gx_unicode_is_python_space(c) ? bytes : 0;
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

int64_t gx_chat_common(const char *a, const char *b)
{
    int64_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    while (n > 0 && ((a[n] & 0xC0) == 0x80 || (b[n] & 0xC0) == 0x80)) n--;
    return n;
}

const char *gx_chat_behind_thoughts(const char *said)
{
    const char *end = NULL;
    for (const char *p = said; (p = strstr(p, "</think>")) != NULL;) end = p += strlen("</think>");
    return end;
}
#endif
