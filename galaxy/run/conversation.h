// conversation.h: a chat with the model: reads lines from standard input and answers each, until the input ends
// (Ctrl-D).
//
// Ctrl-C stops the current answer; while no answer is being written it ends the program. The model sees the whole
// conversation so far; when that is longer than --context, the oldest turns are dropped, with a warning. In each turn
// only the new tokens are run through the model (task/decode.h).
//
// A line "/adapter FOLDER" replaces the model's adapter, if it has one, from then on; the conversation so far is kept.
#ifndef GX_CONVERSATION_H
#define GX_CONVERSATION_H
#include "writing.h"
GX_BEGIN

GxStatus gx_writer_chat(GxWriter *w);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CONVERSATION_IMPLEMENTED)
#define GX_CONVERSATION_IMPLEMENTED
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "launch.h"

enum { GX__CONVERSATION_ROOM = 16 }; // tokens that an answer should have room for
#define GX__CONVERSATION_ADAPTER "/adapter"

static volatile int gx__conversation_interrupt; // a global: a signal handler can reach nothing else

static void gx__conversation_on_interrupt(int number) { (void)number, gx__conversation_interrupt = 1; }

typedef struct { // turn[0] is the system prompt, if there is one
    GxChatTurn *turn;
    int n, told;              // told: what the texts lack, if it has been warned of (gx_chat_lacks)
    GxCheckpointFile adapter; // opened to replace the model's adapter
} GxConversation;

static GxStatus gx__conversation_add(GxConversation *c, GxChatRole role, const char *text, GxError *err)
{
    GxChatTurn *grown = (GxChatTurn *)realloc(c->turn, (size_t)(c->n + 1) * sizeof *grown);
    char *copy = strdup(text);
    if (grown) c->turn = grown;
    if (!grown || !copy) {
        free(copy);
        return GX_FAIL(err, GX_ERR_MEMORY, "no memory for %d turns", c->n + 1);
    }
    c->turn[c->n].role = role, c->turn[c->n++].text = copy;
    return GX_OK;
}

static void gx__conversation_remove(GxConversation *c, int first, int n)
{
    if (n == 0) return;
    for (int i = first; i < first + n; i++) free((char *)(uintptr_t)c->turn[i].text);
    memmove(c->turn + first, c->turn + first + n, (size_t)(c->n - first - n) * sizeof *c->turn);
    c->n -= n;
}

// Reads a line from standard input, without its newline: free() it. NULL: end of input.
static char *gx__conversation_line(GxWriter *w)
{
    char *line = NULL;
    size_t room = 0;
    if (isatty(0)) gx_report(w->g, "> ");
    const ssize_t n = getline(&line, &room, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n') line[n - 1] = 0;
    return line;
}

// Warns, once each, if the text that the model reads lacks something that the system prompt or the user says.
static void gx__conversation_warn(GxWriter *w, GxConversation *c, char *text)
{
    static const char *const who[] = {"system", "user"};
    GxChatText x = GX_ZERO;
    x.text = text;
    const int lacks = gx_chat_lacks(w->format, c->turn, c->n, &x) & ~c->told;
    for (int i = GX_CHAT_LACKS_SYSTEM; i <= GX_CHAT_LACKS_USER; i++)
        if (lacks >> i & 1)
            gx_log(&w->g->log, GX_LOG_WARNING,
                   "%s does not write all that the %s says: the model does not read what it leaves out",
                   gx_chat_name(w->format), who[i]);
    c->told |= lacks;
}

// Encodes the conversation into text[0]. If it is too long, the oldest turns are dropped.
static GxStatus gx__conversation_encode(GxWriter *w, GxConversation *c)
{
    GxError *err = &w->g->error;
    const int thinks = gx_config_is_set(&w->config, "thinking") ? w->o->thinking : -1; // -1: the format's default
    int forgotten = 0;
    for (;;) {
        char *text;
        int64_t n = 0;
        const int first = c->turn[0].role == GX_CHAT_SYSTEM;
        GX_TRY(gx_chat_text(w->format, c->turn, c->n, thinks, &text, err));
        const int fits = gx_writer_fits(w, text, (int64_t)strlen(text), 0, w->positions - GX__CONVERSATION_ROOM, &n);
        if (fits) gx__conversation_warn(w, c, text);
        free(text);
        GX_TRY(gx_error_code(err));
        if (fits) break;
        if (c->n - first < 3)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "the conversation has %ld tokens, but there is room for %ld if %d are left for an answer: "
                           "say less at once, or use a larger --context if the model allows it",
                           (long)n, (long)w->positions, GX__CONVERSATION_ROOM);
        gx__conversation_remove(c, first, 2);
        forgotten += 2;
    }
    if (forgotten)
        gx_log(&w->g->log, GX_LOG_WARNING,
               "the conversation is longer than %ld tokens (--context): its %d oldest turns are forgotten",
               (long)w->positions, forgotten);
    return GX_OK;
}

static int gx__conversation_is_adapter(const char *line)
{
    const size_t n = strlen(GX__CONVERSATION_ADAPTER);
    return !strncmp(line, GX__CONVERSATION_ADAPTER, n) && strchr(" \t\r", line[n]); // or the end of the line
}

// Warns if the new adapter was trained on another format than the conversation's.
static void gx__conversation_compare_format(GxWriter *w, const char *folder)
{
    char *here = NULL, *there = NULL;
    GxJson *said = NULL;
    GxError ignored = GX_ZERO; // a folder that cannot be read says nothing about its format
    gx_chat_find(&said, "auto", &folder, 1, &ignored);
    const GxChatFormat *named = gx_chat_format(gx_json_string(gx_json_get(said, "name")));
    if (named) gx_chat_jinja(named, &there, &ignored);
    else if (gx_json_get(said, "template")) there = strdup(gx_json_string(gx_json_get(said, "template")));
    if (there) gx_chat_jinja(w->format, &here, &ignored);
    if (here && strcmp(here, there))
        gx_log(
            &w->g->log, GX_LOG_WARNING,
            "%s was trained on another format than this conversation has (%s); to use it, start again with --adapter "
            "%s",
            folder, gx_chat_name(w->format), folder);
    gx_json_free(said), free(here), free(there);
}

// Handles an /adapter line: opens the folder's adapter if it can replace the model's.
static GxStatus gx__conversation_choose_adapter(GxWriter *w, GxConversation *c, const char *line)
{
    GxError *err = &w->g->error;
    const char *folder = line + strlen(GX__CONVERSATION_ADAPTER);
    folder += strspn(folder, " \t");
    size_t n = strlen(folder);
    while (n && strchr(" \t\r", folder[n - 1])) n--;
    if (!w->o->adapter[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "/adapter replaces an adapter, but this model has none; start with --adapter FOLDER");
    if (n == 0 || n >= sizeof w->o->adapter) return GX_FAIL(err, GX_ERR_ARGUMENT, "expected /adapter and a folder");
    char chosen[GX_PATH];
    snprintf(chosen, sizeof chosen, "%.*s", (int)n, folder);
    GX_TRY(gx_checkpoint_open_adapter(&c->adapter, &w->model, w->o->model, chosen, &w->g->log, err));
    snprintf(w->o->adapter, sizeof w->o->adapter, "%s", chosen);
    if (!strcmp(w->o->chat_template, "auto")) gx__conversation_compare_format(w, chosen);
    return GX_OK;
}

static GxStatus gx__conversation_say(GxWriter *w, GxConversation *c, const char *line)
{
    GxError *err = &w->g->error;
    const char *p = line;
    while (*p && gx_utf8_bytes(p)) p += gx_utf8_bytes(p);
    if (*p) return GX_FAIL(err, GX_ERR_FORMAT, "the input is not UTF-8 text");
    GX_TRY(gx__conversation_add(c, GX_CHAT_USER, line, err));
    GX_TRY(gx__conversation_encode(w, c));
    return gx_writer_begin_text(w, 0);
}

// On rank 0: waits for input and encodes the conversation up to where the answer begins. A line that cannot be answered
// is reported, and the next one is read.
typedef enum { GX__HEARD_NOTHING = 0, GX__HEARD_TEXT, GX__HEARD_ADAPTER } gx__Heard;
static gx__Heard gx__conversation_listen(GxWriter *w, GxConversation *c)
{
    GxError *err = &w->g->error;
    for (;;) {
        char *line = gx__conversation_line(w);
        // skip blank lines
        while (line && !line[strspn(line, " \t\r\v\f")]) free(line), line = gx__conversation_line(w);
        if (!line) return GX__HEARD_NOTHING;
        const int turns = c->n, is_adapter = gx__conversation_is_adapter(line);
        const GxStatus status =
            is_adapter ? gx__conversation_choose_adapter(w, c, line) : gx__conversation_say(w, c, line);
        free(line);
        const int is_told = is_adapter ? status != GX_OK : status == GX_ERR_FORMAT || status == GX_ERR_ARGUMENT;
        if (!is_told) return is_adapter ? GX__HEARD_ADAPTER : GX__HEARD_TEXT;
        gx_log(&w->g->log, GX_LOG_WARNING, "%s%s%s", err->message,
               is_adapter && w->o->adapter[0] ? "; the adapter here is still " : "", is_adapter ? w->o->adapter : "");
        gx_error_clear(err);
        if (c->n > 0 && c->n <= turns + 1 && c->turn[c->n - 1].role == GX_CHAT_USER)
            gx__conversation_remove(c, c->n - 1, 1);
    }
}

// Called on all ranks. 0: the conversation is over.
static int gx__conversation_turn(GxWriter *w, GxConversation *c)
{
    GxContext *g = w->g;
    int64_t n = 0;
    if (g->rank == 0) {
        signal(SIGINT, SIG_DFL);
        const gx__Heard heard = gx_stop_signal() ? GX__HEARD_NOTHING : gx__conversation_listen(w, c);
        n = heard == GX__HEARD_TEXT ? w->text[0].n : heard == GX__HEARD_ADAPTER ? -1 : 0;
        gx__conversation_interrupt = 0;
        gx_on_signal(SIGINT, gx__conversation_on_interrupt, 0);
    }
    gx_at(g, -1, "turn");
    gx_broadcast(g, GX_AXIS_ALL, 0, &n, 1, GX_I64); // on a failed context this tells the other ranks
    if (gx_failed(g) || n == 0) return 0;
    if (n < 0) { // the cached keys and values are those of the model with the old adapter
        gx_checkpoint_load_adapter(g, &w->model, &c->adapter, w->o->model, w->o->adapter, w->base_hash);
        gx_decoder_forget(&w->decoder);
        if (g->rank == 0 && !gx_failed(g)) gx_log(&g->log, GX_LOG_INFO, "adapter %s", w->o->adapter);
        return !gx_failed(g);
    }
    w->text[0].n = n;
    gx_broadcast(g, GX_AXIS_ALL, 0, w->text[0].ids, 4 * n, GX_U8);
    const int64_t asked = w->new_tokens;
    w->new_tokens = gx_min(asked, w->positions - n);
    gx_writer_write(w);
    w->new_tokens = asked;
    if (g->rank == 0 && !gx_failed(g)) gx_report(g, "\n");
    if (g->rank == 0 && !gx_failed(g)) gx__conversation_add(c, GX_CHAT_ASSISTANT, w->out[0].text, &g->error);
    return !gx_failed(g);
}

GxStatus gx_writer_chat(GxWriter *w)
{
    GxContext *g = w->g;
    GxConversation c = GX_ZERO;
    if (w->done || gx_failed(g)) return gx_status(g);
    gx_stop_where_unread();
    w->streams = 1, w->interrupt = &gx__conversation_interrupt;
    // ranks that are processes get Ctrl-C from the terminal as well; only rank 0 decides what it does
    if (g->rank != 0 && w->o->machine.ranks <= 1) signal(SIGINT, SIG_IGN);
    if (g->rank == 0 && w->o->system[0]) gx__conversation_add(&c, GX_CHAT_SYSTEM, w->o->system, &g->error);
    if (g->rank == 0)
        gx_log(&g->log, GX_LOG_INFO, "format %s; Ctrl-C ends an answer, Ctrl-D the conversation%s",
               gx_chat_name(w->format),
               w->o->adapter[0] ? "; " GX__CONVERSATION_ADAPTER " FOLDER loads another adapter" : "");
    while (gx__conversation_turn(w, &c)) {}
    gx_checkpoint_close_file(&c.adapter);
    gx__conversation_remove(&c, 0, c.n);
    free(c.turn);
    return gx_status(g);
}
#endif
