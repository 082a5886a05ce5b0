// chat_records.h: a line of JSON lines as a conversation that a model is trained on. What it is its members say:
//
//     {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"},
//                   {"role": "assistant", "content": "Hello."}]}
//     {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hello."}]}   ShareGPT's
//     {"instruction": "Translate.", "input": "Hallo", "output": "Hello."}     Alpaca's; "input" may be absent or empty
//
// The first turn may be the system's; then user and assistant take turns. A user's turn at the end is left out: nothing
// is learned from it. A content may be a list of parts {"type": "text", "text": "..."}, which are joined. What has
// roles, parts or members that mean something else (tools, pictures, weights) is refused by name: it would be trained
// as what it is not. Other members are not looked at.
//
//     GxChatRecord r;
//     GX_TRY(gx_chat_record_read(&r, line, "chats.jsonl", 7, err));        // errors begin with chats.jsonl:7:
//     … r.turn[0 .. r.n) …
//     gx_chat_record_close(&r);
#ifndef GX_CHAT_RECORDS_H
#define GX_CHAT_RECORDS_H
#include "chat.h"
GX_BEGIN

typedef struct {
    GxChatTurn *turn;          // [n]; the last one is an answer
    int n;                     // at most GX_CHAT_TURNS
    char *instruction, *input; // of Alpaca's, both of which turn[0] has; input NULL: there is none. Else NULL
    int leaves_out_last;       // 1: a user's turn at the end was
} GxChatRecord;
enum { GX_CHAT_TURNS = 1 << 20 };

// line: ends with 0. After an error there is nothing to close.
GxStatus gx_chat_record_read(GxChatRecord *r, const char *line, const char *path, int64_t number, GxError *err);
void gx_chat_record_close(GxChatRecord *r); // also of one that is all zero

// For records of other shapes: adds the turns of `list`, with roles and contents as of "messages", to those of r,
// behind which they must fit; and refuses members of a record that would change what is trained. name: of the list, for
// errors.
GxStatus gx_chat_record_add(GxChatRecord *r, const GxJson *list, const char *name, const char *path, int64_t number,
                            GxError *err);
GxStatus gx_chat_record_check(const GxJson *record, const char *path, int64_t number, GxError *err);

// By the first line of a file: which member makes it one of conversations ("messages"); NULL: none. *has_text: it has a
// "text", too. What cannot be read is none.
const char *gx_chat_records_look(const char *path, int *has_text);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_RECORDS_IMPLEMENTED)
#define GX_CHAT_RECORDS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GX__CHAT_LINE_CAP = 1 << 30, GX__CHAT_LINE_FIRST = 1 << 16, GX__CHAT_AT = 100 };

// A list of turns: which member of a record it is, and which of its members say who and what.
static const struct {
    const char *list, *who, *what;
    const char *role[3]; // by GxChatRole
} gx__chat_shapes[] = {{"messages", "role", "content", {"system", "user", "assistant"}},
                       {"conversations", "from", "value", {"system", "human", "gpt"}}};
enum { GX__CHAT_SHAPES = 2 };

// Members that would change what is trained, of a record and of a turn.
static const char *const gx__chat_other_members[] = {
    "tools", "functions", "system", "history", "documents", "chat_template_kwargs", "image", "images",
    "video", "videos",    "audio",  "audios",  NULL};
static const char *const gx__chat_other_turn_members[] = {
    "tool_calls", "function_call", "reasoning_content", "reasoning",    "thinking",
    "weight",     "train",         "training",          "train_detail", NULL};

typedef struct { // what is read, for messages
    GxChatRecord *r;
    const char *path;
    int64_t number;
    GxError *err;
    const char *list; // the name of the list of turns
    int first;        // turns before those of the list
} gx__ChatReader;

static int gx__chat_has(const GxJson *object, const char *member) // more than nothing
{
    const GxJson *value = gx_json_get(object, member);
    const GxJsonType type = gx_json_type(value);
    if (type == GX_JSON_NONE || type == GX_JSON_NULL) return 0;
    if (type == GX_JSON_STRING) return gx_json_string(value)[0] != 0;
    return (type != GX_JSON_ARRAY && type != GX_JSON_OBJECT) || gx_json_size(value) > 0;
}

static GxStatus gx__chat_refuse_others(const gx__ChatReader *x, const GxJson *object, const char *where,
                                       const char *const *member)
{
    for (; *member; member++)
        if (gx__chat_has(object, *member))
            return GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                           "%s:%ld: %s has \"%s\", which is not built, and without it something else would be learned; "
                           "remove it, or the record%s",
                           x->path, (long)x->number, where, *member,
                           strcmp(*member, "system") ? "" : "; a system's text is the first turn");
    return GX_OK;
}

// The texts of a list of parts, joined: free(*text).
static GxStatus gx__chat_join(const gx__ChatReader *x, const GxJson *parts, const char *where, char **text)
{
    char cut[GX_TEXT_VALUE];
    size_t bytes = 0;
    FILE *out = open_memstream(text, &bytes);
    if (!out) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    GxStatus status = GX_OK;
    for (int64_t i = 0; i < gx_json_size(parts) && status == GX_OK; i++) {
        const GxJson *part = gx_json_at(parts, i), *value = gx_json_get(part, "text");
        const char *type = gx_json_string(gx_json_get(part, "type"));
        if (strcmp(type, "text") || gx_json_type(value) != GX_JSON_STRING)
            status = GX_FAIL(x->err, GX_ERR_UNSUPPORTED,
                             "%s:%ld: part %ld of %s is of the type \"%s\"; only texts are built: {\"type\": \"text\", "
                             "\"text\": \"...\"}",
                             x->path, (long)x->number, (long)i, where, gx_text_cut(type, cut, sizeof cut));
        else fputs(gx_json_string(value), out);
    }
    if (fclose(out) != 0 && status == GX_OK) status = GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    if (status == GX_OK) return GX_OK;
    free(*text), *text = NULL;
    return status;
}

// A text, or a list of parts: free(*text). may_be_empty: nothing, or spaces alone, is fine.
static GxStatus gx__chat_read_text(const gx__ChatReader *x, const GxJson *value, const char *where, int may_be_empty,
                                   char **text)
{
    *text = NULL;
    if (gx_json_type(value) == GX_JSON_ARRAY) GX_TRY(gx__chat_join(x, value, where, text));
    else if (gx_json_type(value) != GX_JSON_STRING)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: %s is %s; expected a string", x->path, (long)x->number, where,
                       value ? gx_json_type_name(value) : "missing");
    else if (!(*text = strdup(gx_json_string(value))))
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    if (may_be_empty || (*text)[strspn(*text, " \t\r\n")]) return GX_OK;
    free(*text), *text = NULL;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: %s is empty; expected text", x->path, (long)x->number, where);
}

// The role of turn i, of `shape`.
static GxStatus gx__chat_read_role(const gx__ChatReader *x, const GxJson *turn, int shape, int i, GxChatRole *role)
{
    const char *list = x->list, *who = gx__chat_shapes[shape].who;
    const char *const *name = gx__chat_shapes[shape].role, *said = gx_json_string(gx_json_get(turn, who));
    char cut[GX_TEXT_VALUE];
    for (int k = 0; k < 3; k++) {
        *role = (GxChatRole)k;
        if (!strcmp(said, name[k])) return GX_OK;
    }
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: %s[%d] has the %s \"%s\"; expected %s, %s or %s", x->path,
                   (long)x->number, list, i - x->first, who, gx_text_cut(said, cut, sizeof cut), name[0], name[1],
                   name[2]);
}

// Turn i may be of this role, behind those before it.
static GxStatus gx__chat_check_role(const gx__ChatReader *x, int shape, int i, GxChatRole role)
{
    const char *list = x->list;
    const char *const *name = gx__chat_shapes[shape].role;
    const GxChatRole before = i > 0 ? x->r->turn[i - 1].role : GX_CHAT_SYSTEM,
                     expected = before == GX_CHAT_USER ? GX_CHAT_ASSISTANT : GX_CHAT_USER;
    if (role == expected || (i == 0 && role == GX_CHAT_SYSTEM)) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT,
                   "%s:%ld: %s[%d] is of the %s, where the %s's turn is; expected %s and %s in turn, and before them "
                   "one of the %s, if any",
                   x->path, (long)x->number, list, i - x->first, name[role], name[expected], name[GX_CHAT_USER],
                   name[GX_CHAT_ASSISTANT], name[GX_CHAT_SYSTEM]);
}

// Behind the turns that are there.
static GxStatus gx__chat_add_turns(gx__ChatReader *x, const GxJson *list, int shape)
{
    GxChatRecord *r = x->r;
    const char *name = x->list, *what = gx__chat_shapes[shape].what;
    const int64_t n = gx_json_size(list);
    char where[GX__CHAT_AT];
    if (gx_json_type(list) != GX_JSON_ARRAY)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: \"%s\" is %s; expected a list of 1 to %d turns", x->path,
                       (long)x->number, name, gx_json_type_name(list), GX_CHAT_TURNS);
    if (n == 0 || n > GX_CHAT_TURNS)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: \"%s\" %s; expected a list of 1 to %d turns", x->path,
                       (long)x->number, name, n == 0 ? "is empty" : "has more turns than are read", GX_CHAT_TURNS);
    x->first = r->n;
    GxChatTurn *turns = (GxChatTurn *)realloc(r->turn, (size_t)(r->n + n) * sizeof *turns);
    if (!turns) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    r->turn = turns;
    for (int i = 0; i < (int)n; i++) {
        const GxJson *turn = gx_json_at(list, i);
        GxChatRole role;
        char *text;
        snprintf(where, sizeof where, "%s[%d]", name, i);
        if (gx_json_type(turn) != GX_JSON_OBJECT)
            return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: %s is %s; expected an object", x->path, (long)x->number,
                           where, gx_json_type_name(turn));
        GX_TRY(gx__chat_read_role(x, turn, shape, x->first + i, &role));
        GX_TRY(gx__chat_check_role(x, shape, x->first + i, role));
        GX_TRY(gx__chat_refuse_others(x, turn, where, gx__chat_other_turn_members));
        snprintf(where, sizeof where, "\"%s\" of %s[%d]", what, name, i);
        GX_TRY(gx__chat_read_text(x, gx_json_get(turn, what), where, role == GX_CHAT_SYSTEM, &text));
        r->turn[r->n].role = role, r->turn[r->n].text = text, r->n++;
    }
    return GX_OK;
}

static GxStatus gx__chat_read_turns(gx__ChatReader *x, const GxJson *list, int shape)
{
    GxChatRecord *r = x->r;
    x->list = gx__chat_shapes[shape].list;
    GX_TRY(gx__chat_add_turns(x, list, shape));
    r->leaves_out_last = r->turn[r->n - 1].role == GX_CHAT_USER;
    if (r->leaves_out_last) free((char *)(uintptr_t)r->turn[--r->n].text);
    if (r->n > 0 && r->turn[r->n - 1].role == GX_CHAT_ASSISTANT) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: \"%s\" has no turn of the %s: nothing would be learned from it",
                   x->path, (long)x->number, x->list, gx__chat_shapes[shape].role[GX_CHAT_ASSISTANT]);
}

static GxStatus gx__chat_read_instruction(gx__ChatReader *x, const GxJson *record)
{
    GxChatRecord *r = x->r;
    const GxJson *input = gx_json_get(record, "input");
    char *text = NULL;
    r->turn = (GxChatTurn *)calloc(2, sizeof *r->turn);
    if (!r->turn) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    GX_TRY(gx__chat_read_text(x, gx_json_get(record, "instruction"), "\"instruction\"", 0, &r->instruction));
    if (gx__chat_has(record, "input")) GX_TRY(gx__chat_read_text(x, input, "\"input\"", 1, &r->input));
    const size_t bytes = strlen(r->instruction) + (r->input ? strlen(r->input) : 0) + 3;
    if (!(text = (char *)malloc(bytes))) return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    snprintf(text, bytes, "%s%s%s", r->instruction, r->input ? "\n\n" : "", r->input ? r->input : "");
    r->turn[0].role = GX_CHAT_USER, r->turn[0].text = text, r->n = 1;
    GX_TRY(gx__chat_read_text(x, gx_json_get(record, "output"), "\"output\"", 0, &text));
    r->turn[1].role = GX_CHAT_ASSISTANT, r->turn[1].text = text, r->n = 2;
    return GX_OK;
}

// Which member makes a record one of conversations: a shape's, or GX__CHAT_SHAPES for an instruction; -1: none, -2:
// several.
static int gx__chat_shape(const GxJson *record)
{
    int shape = gx_json_get(record, "instruction") ? GX__CHAT_SHAPES : -1;
    for (int k = 0; k < GX__CHAT_SHAPES; k++)
        if (gx_json_get(record, gx__chat_shapes[k].list)) shape = shape == -1 ? k : -2;
    return shape;
}

static GxStatus gx__chat_read_record(gx__ChatReader *x, const GxJson *record)
{
    const int shape = gx__chat_shape(record);
    if (gx_json_type(record) != GX_JSON_OBJECT)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: the line is %s; expected an object", x->path, (long)x->number,
                       gx_json_type_name(record));
    if (shape < 0)
        return GX_FAIL(x->err, GX_ERR_FORMAT,
                       "%s:%ld: the record has %s \"messages\", \"conversations\" and \"instruction\"; expected one of "
                       "them",
                       x->path, (long)x->number, shape == -1 ? "none of" : "several of");
    GX_TRY(gx__chat_refuse_others(x, record, "the record", gx__chat_other_members));
    return shape == GX__CHAT_SHAPES ? gx__chat_read_instruction(x, record)
                                    : gx__chat_read_turns(x, gx_json_get(record, gx__chat_shapes[shape].list), shape);
}

GxStatus gx_chat_record_read(GxChatRecord *r, const char *line, const char *path, int64_t number, GxError *err)
{
    gx__ChatReader x = {r, path, number, err, NULL, 0};
    GxError e = GX_ZERO;
    GxJson *json = NULL;
    memset(r, 0, sizeof *r);
    GxStatus status = gx_json_parse(&json, line, (int64_t)strlen(line), "", &e);
    if (status != GX_OK) // ":1:12: ..." of the line alone
        return GX_FAIL(err, status, "%s:%ld%s", path, (long)number,
                       strncmp(e.message, ":1", 2) ? e.message : e.message + 2);
    status = gx__chat_read_record(&x, json);
    gx_json_free(json);
    if (status != GX_OK) gx_chat_record_close(r);
    return status;
}

GxStatus gx_chat_record_add(GxChatRecord *r, const GxJson *list, const char *name, const char *path, int64_t number,
                            GxError *err)
{
    gx__ChatReader x = {r, path, number, err, name, 0};
    return gx__chat_add_turns(&x, list, 0);
}

GxStatus gx_chat_record_check(const GxJson *record, const char *path, int64_t number, GxError *err)
{
    const gx__ChatReader x = {NULL, path, number, err, NULL, 0};
    return gx__chat_refuse_others(&x, record, "the record", gx__chat_other_members);
}

void gx_chat_record_close(GxChatRecord *r)
{
    for (int i = 0; i < r->n; i++) free((char *)(uintptr_t)r->turn[i].text);
    free(r->turn), free(r->instruction), free(r->input);
    memset(r, 0, sizeof *r);
}

// ---- the first line ------------------------------------------------------------------------------------------------

// free(*line); it ends with 0, and is NULL where there is none.
static GxStatus gx__chat_first_line(int fd, const char *path, int64_t bytes, char **line, GxError *err)
{
    int64_t have = 0;
    *line = NULL;
    for (int64_t room = GX__CHAT_LINE_FIRST; have < gx_min(bytes, GX__CHAT_LINE_CAP); room *= 2) {
        const int64_t n = gx_min(room, bytes);
        char *grown = (char *)realloc(*line, (size_t)n + 1);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a line of %s", path);
        *line = grown, grown[n] = 0;
        GX_TRY(gx_file_read_at(fd, path, grown + have, n - have, have, err));
        char *end = (char *)memchr(grown + have, '\n', (size_t)(n - have));
        have = n;
        if (end) *end = 0;
        if (end) return GX_OK;
    }
    return GX_OK;
}

const char *gx_chat_records_look(const char *path, int *has_text)
{
    static const char *const name[GX__CHAT_SHAPES + 1] = {"messages", "conversations", "instruction"};
    int fd, shape = -1;
    int64_t bytes;
    char *line = NULL;
    GxJson *record = NULL;
    GxError ignored = GX_ZERO;
    *has_text = 0;
    if (gx_file_open(path, &fd, &bytes, &ignored) != GX_OK) return NULL;
    if (gx__chat_first_line(fd, path, bytes, &line, &ignored) == GX_OK && line) {
        const char *begin = line + (strncmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
        if (gx_json_parse(&record, begin, (int64_t)strlen(begin), "", &ignored) == GX_OK) {
            shape = gx__chat_shape(record);
            *has_text = gx_json_get(record, "text") != NULL;
        }
    }
    gx_json_free(record);
    free(line), close(fd);
    if (shape == -2) return "messages"; // and others: its lines are refused
    return shape < 0 ? NULL : name[shape];
}
#endif
