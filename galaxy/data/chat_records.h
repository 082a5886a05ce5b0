// chat_records.h: reads a line of JSON lines, or a row of a table, as a conversation to train on. Its members tell its
// kind:
//
//     {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"},
//                   {"role": "assistant", "content": "Hello."}]}
//     {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hello."}]}   ShareGPT's
//     {"instruction": "Translate.", "input": "Hallo", "output": "Hello."}     Alpaca's; "input" may be absent or empty
//     {"prompt": [{"role": "user", "content": "Hello"}], "completion": [{"role": "assistant", "content": "Hello."}]}
//     {"prompt": "The sky is", "completion": " blue."}     TRL's, both: no format is applied to the second one
//
// A table (csv.h) has columns instruction and output, and perhaps input; or prompt and completion. Prompt and
// completion may have other names (GxRecordReading). A record with members of several kinds is of the first kind above
// that fits, or a prompt and completion if an option names those.
//
// The first turn may be the system's; then user and assistant alternate. A user's turn at the end is left out, since
// nothing is learned from it. A content may be a list of parts {"type": "text", "text": "..."}, which are joined.
// Roles, parts or members with another meaning (tools, pictures, weights) are refused by name, since they would be
// trained on wrongly. Other members are ignored.
//
//     GxChatRecord r;
//     GX_TRY(gx_chat_record_read(&r, line, &gx_record_reading, "f.jsonl", 7, err));    // errors begin with f.jsonl:7:
//     … r.turn[0 .. r.n) …
//     gx_chat_record_close(&r);
#ifndef GX_CHAT_RECORDS_H
#define GX_CHAT_RECORDS_H
#include "../text/chat.h"
#include "records.h"
GX_BEGIN

typedef struct {
    GxChatTurn *turn;          // [n]; the last one is an answer
    int n;                     // at most GX_CHAT_TURNS
    char *instruction, *input; // Alpaca's, which turn[0] contains; input NULL: none. NULL for other kinds
    int leaves_out_last;       // 1: a user's turn at the end was left out
    int prompt;                // the number of first turns whose answers are not learned
    int is_text;               // 1: not a conversation: two turns that are texts, the second continuing the first
} GxChatRecord;
enum { GX_CHAT_TURNS = 1 << 20 };

// line: terminated by 0. After an error there is nothing to close.
GxStatus gx_chat_record_read(GxChatRecord *r, const char *line, const GxRecordReading *names, const char *path,
                             int64_t number, GxError *err);
// Opens a whole table with a record in each row. Close it by gx_records_close.
GxStatus gx_chat_table_open(GxRecords *table, const char *path, const GxRecordReading *names, GxError *err);
GxStatus gx_chat_record_of_row(GxChatRecord *r, const GxRecords *table, int64_t i, GxError *err);
void gx_chat_record_close(GxChatRecord *r); // accepts a struct of zeros

// For records of other shapes: the first appends the turns of `list`, in the form of "messages", to those of r, which
// they must continue; the second refuses members of a record that would change what is trained. name: of the list, for
// messages.
GxStatus gx_chat_record_add(GxChatRecord *r, const GxJson *list, const char *name, const char *path, int64_t number,
                            GxError *err);
GxStatus gx_chat_record_check(const GxJson *record, const char *path, int64_t number, GxError *err);

// The member in the first line of a file that makes it a file of conversations ("messages"); NULL: none, or it cannot
// be read. *has_text: it also has a text, which is then what is learned. names[GX_TEXT_VALUE]: all members, or columns
// of a table.
const char *gx_chat_records_detect(const char *path, const GxRecordReading *reading, int *has_text, char *names);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_CHAT_RECORDS_IMPLEMENTED)
#define GX_CHAT_RECORDS_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GX__CHAT_LINE_CAP = 1 << 30, GX__CHAT_LINE_FIRST = 1 << 16, GX__CHAT_AT = 100 };

// The kinds of lists of turns: the record's member, and the members of a turn with its role and its content.
static const struct {
    const char *list, *who, *what;
    const char *role[3]; // by GxChatRole
} gx__chat_shapes[] = {{"messages", "role", "content", {"system", "user", "assistant"}},
                       {"conversations", "from", "value", {"system", "human", "gpt"}}};
enum { GX__CHAT_SHAPES = 2 };

// Members of a record or a turn that would change what is trained.
static const char *const gx__chat_other_members[] = {
    "tools", "functions", "system", "history", "documents", "chat_template_kwargs", "image", "images",
    "video", "videos",    "audio",  "audios",  NULL};
static const char *const gx__chat_other_turn_members[] = {
    "tool_calls", "function_call", "reasoning_content", "reasoning",    "thinking",
    "weight",     "train",         "training",          "train_detail", NULL};

typedef struct { // what is being read, for messages
    GxChatRecord *r;
    const char *path;
    int64_t number;
    GxError *err;
    const char *list; // the name of the list of turns
    int first;        // the number of turns before those of the list
    const GxRecordReading *names;
} gx__ChatReader;

// The members of a record: names[GX_TEXT_VALUE].
static void gx__chat_list(const GxJson *record, char *names)
{
    for (GxJsonMember m = GX_ZERO; gx_json_next(record, &m);) {
        const size_t n = strlen(names);
        if (snprintf(names + n, GX_TEXT_VALUE - n, "%s%s", n ? ", " : "", m.key) >= (int)(GX_TEXT_VALUE - n)) {
            gx_text_mark_cut(names, GX_TEXT_VALUE);
            return;
        }
    }
}

static int gx__chat_has(const GxJson *object, const char *member) // 1: present and not empty
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
                           "%s:%ld: %s has \"%s\", which is not supported, and without which something else would be "
                           "learned; remove it, or the record%s",
                           x->path, (long)x->number, where, *member,
                           strcmp(*member, "system") ? "" : "; the text for the system is the first turn");
    return GX_OK;
}

// Joins the texts of a list of parts: free(*text).
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
                             "%s:%ld: part %ld of %s is of the type \"%s\"; only texts are supported: {\"type\": "
                             "\"text\", \"text\": \"...\"}",
                             x->path, (long)x->number, (long)i, where, gx_text_cut(type, cut, sizeof cut));
        else fputs(gx_json_string(value), out);
    }
    if (fclose(out) != 0 && status == GX_OK) status = GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    if (status == GX_OK) return GX_OK;
    free(*text), *text = NULL;
    return status;
}

// Reads a text, or a list of parts: free(*text). may_be_empty: it may be empty or only spaces.
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

// Reads the role of turn i, in a list of this shape.
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

// Checks that turn i may have this role after the previous ones.
static GxStatus gx__chat_check_role(const gx__ChatReader *x, int shape, int i, GxChatRole role)
{
    const char *list = x->list;
    const char *const *name = gx__chat_shapes[shape].role;
    const GxChatRole before = i > 0 ? x->r->turn[i - 1].role : GX_CHAT_SYSTEM,
                     expected = before == GX_CHAT_USER ? GX_CHAT_ASSISTANT : GX_CHAT_USER;
    if (role == expected || (i == 0 && role == GX_CHAT_SYSTEM)) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT,
                   "%s:%ld: %s[%d] is a turn of the %s, but it is the %s's turn; %s and %s must alternate, after at "
                   "most one turn of the %s",
                   x->path, (long)x->number, list, i - x->first, name[role], name[expected], name[GX_CHAT_USER],
                   name[GX_CHAT_ASSISTANT], name[GX_CHAT_SYSTEM]);
}

// Appends the turns of a list to the existing ones.
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

// Leaves out a user's turn at the end. The turns of the list before it must end with an answer.
static GxStatus gx__chat_end_turns(gx__ChatReader *x, int shape)
{
    GxChatRecord *r = x->r;
    r->leaves_out_last = r->turn[r->n - 1].role == GX_CHAT_USER;
    if (r->leaves_out_last) free((char *)(uintptr_t)r->turn[--r->n].text);
    if (r->n > 0 && r->turn[r->n - 1].role == GX_CHAT_ASSISTANT) return GX_OK;
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: \"%s\" has no turn of the %s, so nothing would be learned from it",
                   x->path, (long)x->number, x->list, gx__chat_shapes[shape].role[GX_CHAT_ASSISTANT]);
}

static GxStatus gx__chat_read_turns(gx__ChatReader *x, const GxJson *list, int shape)
{
    x->list = gx__chat_shapes[shape].list;
    GX_TRY(gx__chat_add_turns(x, list, shape));
    return gx__chat_end_turns(x, shape);
}

// Takes ownership of both texts, even if it fails.
static GxStatus gx__chat_set_turns(gx__ChatReader *x, char *user, char *assistant)
{
    GxChatRecord *r = x->r;
    r->turn = (GxChatTurn *)calloc(2, sizeof *r->turn);
    if (!r->turn) {
        free(user), free(assistant);
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    }
    r->turn[0].role = GX_CHAT_USER, r->turn[0].text = user;
    r->turn[1].role = GX_CHAT_ASSISTANT, r->turn[1].text = assistant, r->n = 2;
    return GX_OK;
}

// r has the instruction and the input. Takes ownership of the output.
static GxStatus gx__chat_set_instruction(gx__ChatReader *x, char *output)
{
    GxChatRecord *r = x->r;
    const size_t bytes = strlen(r->instruction) + (r->input ? strlen(r->input) : 0) + 3;
    char *text = (char *)malloc(bytes);
    if (text) snprintf(text, bytes, "%s%s%s", r->instruction, r->input ? "\n\n" : "", r->input ? r->input : "");
    else free(output);
    return text ? gx__chat_set_turns(x, text, output) : GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
}

static GxStatus gx__chat_read_instruction(gx__ChatReader *x, const GxJson *record)
{
    GxChatRecord *r = x->r;
    char *output;
    GX_TRY(gx__chat_read_text(x, gx_json_get(record, "instruction"), "\"instruction\"", 0, &r->instruction));
    if (gx__chat_has(record, "input"))
        GX_TRY(gx__chat_read_text(x, gx_json_get(record, "input"), "\"input\"", 1, &r->input));
    GX_TRY(gx__chat_read_text(x, gx_json_get(record, "output"), "\"output\"", 0, &output));
    return gx__chat_set_instruction(x, output);
}

static GxStatus gx__chat_read_texts(gx__ChatReader *x, const GxJson *prompt, const GxJson *completion)
{
    char where[GX__CHAT_AT], *user, *assistant;
    snprintf(where, sizeof where, "\"%.80s\"", x->names->prompt);
    GX_TRY(gx__chat_read_text(x, prompt, where, 1, &user));
    snprintf(where, sizeof where, "\"%.80s\"", x->names->completion);
    if (gx__chat_read_text(x, completion, where, 0, &assistant) != GX_OK) {
        free(user);
        return gx_error_code(x->err);
    }
    x->r->is_text = 1;
    return gx__chat_set_turns(x, user, assistant);
}

// The error for a missing member, which lists the existing ones.
static GxStatus gx__chat_lacks_member(const gx__ChatReader *x, const GxJson *record, const char *name,
                                      const char *option)
{
    char names[GX_TEXT_VALUE] = "";
    gx__chat_list(record, names);
    return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: there is no \"%s\"; the line has: %s; --%s NAME names another one",
                   x->path, (long)x->number, name, names, option);
}

// Prompt and completion: both texts, or both lists of messages, of which the completion's answers are learned.
static GxStatus gx__chat_read_completion(gx__ChatReader *x, const GxJson *record)
{
    GxChatRecord *r = x->r;
    const char *const name[] = {x->names->prompt, x->names->completion};
    const GxJson *prompt = gx_json_get(record, name[0]), *completion = gx_json_get(record, name[1]);
    const GxJsonType type = gx_json_type(prompt);
    if (!prompt) return gx__chat_lacks_member(x, record, name[0], "prompt_column");
    if (!completion) return gx__chat_lacks_member(x, record, name[1], "completion_column");
    if (type != gx_json_type(completion) || (type != GX_JSON_STRING && type != GX_JSON_ARRAY))
        return GX_FAIL(x->err, GX_ERR_FORMAT,
                       "%s:%ld: \"%s\" is %s, but \"%s\" is %s; expected two strings, or two lists of messages",
                       x->path, (long)x->number, name[0], gx_json_type_name(prompt), name[1],
                       gx_json_type_name(completion));
    if (type == GX_JSON_STRING) return gx__chat_read_texts(x, prompt, completion);
    x->list = name[0];
    GX_TRY(gx__chat_add_turns(x, prompt, 0));
    r->prompt = r->n, x->list = name[1];
    if (r->turn[r->n - 1].role != GX_CHAT_USER)
        return GX_FAIL(x->err, GX_ERR_FORMAT,
                       "%s:%ld: \"%s\" ends with a turn of the %s; expected a turn of the user, which \"%s\" answers",
                       x->path, (long)x->number, name[0], gx__chat_shapes[0].role[r->turn[r->n - 1].role], name[1]);
    GX_TRY(gx__chat_add_turns(x, completion, 0));
    return gx__chat_end_turns(x, 0);
}

// Kinds of records: those of gx__chat_shapes, and
enum {
    GX__CHAT_INSTRUCTION = GX__CHAT_SHAPES,
    GX__CHAT_COMPLETION,
    GX__CHAT_KINDS,
    GX__CHAT_NONE = -1,
    GX__CHAT_MANY = -2
};
static const char *const gx__chat_kinds[] = {"messages", "conversations", "instruction", "prompt"};

static int gx__chat_names_completion(const GxRecordReading *names) // 1: an option names them
{
    return strcmp(names->prompt, gx_record_reading.prompt) || strcmp(names->completion, gx_record_reading.completion);
}

// has: by kind; the last one is for a completion.
static int gx__chat_kind(const int has[GX__CHAT_KINDS + 1], const GxRecordReading *names)
{
    int kind = GX__CHAT_NONE;
    if (has[GX__CHAT_COMPLETION] && has[GX__CHAT_KINDS] && gx__chat_names_completion(names)) return GX__CHAT_COMPLETION;
    for (int k = 0; k < GX__CHAT_COMPLETION; k++)
        if (has[k]) kind = kind == GX__CHAT_NONE ? k : GX__CHAT_MANY;
    return kind == GX__CHAT_NONE &&
                   (has[GX__CHAT_KINDS] || (has[GX__CHAT_COMPLETION] && gx__chat_names_completion(names)))
               ? GX__CHAT_COMPLETION
               : kind;
}

static int gx__chat_kind_of(const GxJson *record, const GxRecordReading *names)
{
    int has[GX__CHAT_KINDS + 1];
    for (int k = 0; k < GX__CHAT_COMPLETION; k++) has[k] = gx_json_get(record, gx__chat_kinds[k]) != NULL;
    has[GX__CHAT_COMPLETION] = gx_json_get(record, names->prompt) != NULL;
    has[GX__CHAT_KINDS] = gx_json_get(record, names->completion) != NULL;
    return gx__chat_kind(has, names);
}

static GxStatus gx__chat_read_record(gx__ChatReader *x, const GxJson *record)
{
    const int kind = gx__chat_kind_of(record, x->names);
    if (gx_json_type(record) != GX_JSON_OBJECT)
        return GX_FAIL(x->err, GX_ERR_FORMAT, "%s:%ld: the line is %s; expected an object", x->path, (long)x->number,
                       gx_json_type_name(record));
    if (kind < 0)
        return GX_FAIL(x->err, GX_ERR_FORMAT,
                       "%s:%ld: the record has %s \"messages\", \"conversations\" and \"instruction\"%s; expected one "
                       "of them",
                       x->path, (long)x->number, kind == GX__CHAT_NONE ? "none of" : "several of",
                       kind == GX__CHAT_NONE ? ", and no \"completion\" of a \"prompt\"" : "");
    GX_TRY(gx__chat_refuse_others(x, record, "the record", gx__chat_other_members));
    if (kind == GX__CHAT_COMPLETION) return gx__chat_read_completion(x, record);
    return kind == GX__CHAT_INSTRUCTION ? gx__chat_read_instruction(x, record)
                                        : gx__chat_read_turns(x, gx_json_get(record, gx__chat_shapes[kind].list), kind);
}

GxStatus gx_chat_record_read(GxChatRecord *r, const char *line, const GxRecordReading *names, const char *path,
                             int64_t number, GxError *err)
{
    gx__ChatReader x = {r, path, number, err, NULL, 0, names};
    GxError e = GX_ZERO;
    GxJson *json = NULL;
    memset(r, 0, sizeof *r);
    GxStatus status = gx_json_parse(&json, line, (int64_t)strlen(line), "", &e);
    if (status != GX_OK) // ":1:12: ...", the position in this line
        return GX_FAIL(err, status, "%s:%ld%s", path, (long)number,
                       strncmp(e.message, ":1", 2) ? e.message : e.message + 2);
    status = gx__chat_read_record(&x, json);
    gx_json_free(json);
    if (status != GX_OK) gx_chat_record_close(r);
    return status;
}

// ---- a row of a table ----------------------------------------------------------------------------------------------

enum { GX__CHAT_TABLE_COLUMNS = 3 };
// kind: the result of gx_chat_records_detect. Returns the number of columns.
static int gx__chat_table_columns(const char *kind, const GxRecordReading *names,
                                  GxRecordColumn column[GX__CHAT_TABLE_COLUMNS])
{
    const GxRecordColumn completion[] = {{names->prompt, GX_COLUMN_GIVEN, 0, "prompt_column"},
                                         {names->completion, GX_COLUMN_REQUIRED, 0, "completion_column"}},
                         instruction[] = {{"instruction", GX_COLUMN_REQUIRED, 0, NULL},
                                          {"output", GX_COLUMN_REQUIRED, 0, NULL},
                                          {"input", GX_COLUMN_SPARSE, 0, NULL}};
    const int is_instruction = !strcmp(kind, gx__chat_kinds[GX__CHAT_INSTRUCTION]);
    if (is_instruction) memcpy(column, instruction, sizeof instruction);
    else memcpy(column, completion, sizeof completion);
    return is_instruction ? 3 : 2;
}

static GxStatus gx__chat_take_row(gx__ChatReader *x, const GxRecords *table, int64_t i)
{
    GxChatRecord *r = x->r;
    char *text[GX__CHAT_TABLE_COLUMNS] = {NULL};
    int has_all = 1;
    for (int k = 0; k < table->columns; k++) has_all &= (text[k] = strdup(gx_record(table, i, k))) != NULL;
    if (!has_all) {
        for (int k = 0; k < table->columns; k++) free(text[k]);
        return GX_FAIL(x->err, GX_ERR_MEMORY, "no memory for a conversation");
    }
    r->is_text = table->columns == 2;
    if (r->is_text) return gx__chat_set_turns(x, text[0], text[1]);
    r->instruction = text[0], r->input = text[2][0] ? text[2] : NULL;
    if (!r->input) free(text[2]);
    return gx__chat_set_instruction(x, text[1]);
}

GxStatus gx_chat_record_of_row(GxChatRecord *r, const GxRecords *table, int64_t i, GxError *err)
{
    gx__ChatReader x = {r, table->path, gx_record_line(table, i), err, NULL, 0, &gx_record_reading};
    memset(r, 0, sizeof *r);
    const GxStatus status = gx__chat_take_row(&x, table, i);
    if (status != GX_OK) gx_chat_record_close(r);
    return status;
}

// ---- for other readers ---------------------------------------------------------------------------------------------

GxStatus gx_chat_record_add(GxChatRecord *r, const GxJson *list, const char *name, const char *path, int64_t number,
                            GxError *err)
{
    gx__ChatReader x = {r, path, number, err, name, 0, &gx_record_reading};
    return gx__chat_add_turns(&x, list, 0);
}

GxStatus gx_chat_record_check(const GxJson *record, const char *path, int64_t number, GxError *err)
{
    const gx__ChatReader x = {NULL, path, number, err, NULL, 0, &gx_record_reading};
    return gx__chat_refuse_others(&x, record, "the record", gx__chat_other_members);
}

void gx_chat_record_close(GxChatRecord *r)
{
    for (int i = 0; i < r->n; i++) free((char *)(uintptr_t)r->turn[i].text);
    free(r->turn), free(r->instruction), free(r->input);
    memset(r, 0, sizeof *r);
}

// ---- the first line ------------------------------------------------------------------------------------------------

// Reads the line at byte `at`: free(*line). It is terminated by 0, and NULL if there is none.
static GxStatus gx__chat_line_at(int fd, const char *path, int64_t at, int64_t bytes, char **line, GxError *err)
{
    int64_t have = 0;
    *line = NULL;
    for (int64_t room = GX__CHAT_LINE_FIRST; have < gx_min(bytes - at, GX__CHAT_LINE_CAP); room *= 2) {
        const int64_t n = gx_min(room, bytes - at);
        char *grown = (char *)realloc(*line, (size_t)n + 1);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a line of %s", path);
        *line = grown, grown[n] = 0;
        GX_TRY(gx_file_read_at(fd, path, grown + have, n - have, at + have, err));
        char *end = (char *)memchr(grown + have, '\n', (size_t)(n - have));
        have = n;
        if (end) *end = 0;
        if (end) return GX_OK;
    }
    return GX_OK;
}

// For a table, by its first line.
static int gx__chat_detect_table(const char *path, const GxRecordReading *reading, int *has_text, char *names)
{
    const char *const wanted[] = {gx__chat_kinds[0], gx__chat_kinds[1],   gx__chat_kinds[2],
                                  reading->prompt,   reading->completion, reading->text};
    enum { WANTED = sizeof wanted / sizeof *wanted };
    int has[WANTED];
    GxError ignored = GX_ZERO;
    if (gx_records_columns(path, wanted, WANTED, has, names, GX_TEXT_VALUE, &ignored) != GX_OK) return GX__CHAT_NONE;
    *has_text = has[WANTED - 1];
    has[0] = has[1] = 0; // tables cannot contain lists of turns
    return gx__chat_kind(has, reading);
}

// By the first line, or, if wrong records are left out, by the first one that can be read.
static int gx__chat_detect_lines(const char *path, const GxRecordReading *reading, int *has_text, char *names)
{
    int fd, kind = GX__CHAT_NONE, goes_on = 1;
    int64_t bytes;
    GxError ignored = GX_ZERO;
    if (gx_file_open(path, &fd, &bytes, &ignored) != GX_OK) return kind;
    for (int64_t at = 0, n = 0; at < bytes && goes_on && n < GX_BAD_LINES_LOOK; n++) {
        char *line = NULL;
        GxJson *record = NULL;
        if (gx__chat_line_at(fd, path, at, bytes, &line, &ignored) != GX_OK || !line) {
            free(line);
            break;
        }
        const char *begin = line + (at == 0 && strncmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
        goes_on = reading->skip && gx_json_parse(&record, begin, (int64_t)strlen(begin), "", &ignored) != GX_OK;
        if (!reading->skip) gx_json_parse(&record, begin, (int64_t)strlen(begin), "", &ignored);
        at += (int64_t)strlen(line) + 1;
        if (record) {
            kind = gx__chat_kind_of(record, reading);
            *has_text = gx_json_get(record, reading->text) != NULL;
            gx__chat_list(record, names);
        }
        gx_error_clear(&ignored);
        gx_json_free(record);
        free(line);
    }
    close(fd);
    return kind;
}

const char *gx_chat_records_detect(const char *path, const GxRecordReading *reading, int *has_text, char *names)
{
    *has_text = 0, names[0] = 0;
    const int kind = gx_records_is_table(path) ? gx__chat_detect_table(path, reading, has_text, names)
                                               : gx__chat_detect_lines(path, reading, has_text, names);
    if (kind == GX__CHAT_COMPLETION && gx__chat_names_completion(reading)) *has_text = 0; // an option names them
    if (kind == GX__CHAT_MANY) return gx__chat_kinds[0]; // several kinds: its lines are refused
    return kind < 0 ? NULL : gx__chat_kinds[kind];
}

GxStatus gx_chat_table_open(GxRecords *table, const char *path, const GxRecordReading *names, GxError *err)
{
    GxRecordColumn column[GX__CHAT_TABLE_COLUMNS];
    char members[GX_TEXT_VALUE];
    int has_text;
    const char *kind = gx_chat_records_detect(path, names, &has_text, members);
    const int columns = gx__chat_table_columns(kind ? kind : "", names, column);
    return gx_records_open(table, path, GX_RECORDS_BY_NAME, column, columns, names->skip, err);
}
#endif
