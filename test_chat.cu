// test_chat.cu: conversations that a model is trained on: records, their tokens and what is learned of them (against
// transformers: dumps of dev/ref/make_chat_refs.py), samples that hold whole ones, and a training of what the assistant
// says alone.
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/said.h"
#include "galaxy/run/merge.h"
#include <fcntl.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/galaxy_test_chat_XXXXXX";

static const char *at(const char *name) // good for the next 8 calls
{
    static char paths[8][GX_PATH];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, GX_PATH, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    GxError e = GX_ZERO;
    CHECK(gx_file_write(at(name), text, (int64_t)strlen(text), &e) == GX_OK, "%s", e.message);
}

static char *get(const char *path)
{
    char *text = NULL;
    int64_t bytes;
    GxError e = GX_ZERO;
    return CHECK(gx_file_read(path, 1 << 24, &text, &bytes, &e) == GX_OK, "%s", e.message) ? text
                                                                                           : (char *)calloc(1, 1);
}

static void refused(GxError *e, GxStatus status, GxStatus expected, const char *words)
{
    CHECK(status == expected && e->code == (int)expected && strstr(e->message, words), "no \"%s\" (%d): %d, %s", words,
          (int)expected, (int)status, e->message);
    gx_error_clear(e);
}

#define USER(text)  "{\"role\": \"user\", \"content\": \"" text "\"}"
#define SAYS(text)  "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define CHAT(turns) "{\"messages\": [" turns "]}\n"

// ---- records -------------------------------------------------------------------------------------------------------

TEST(records_of_all_shapes_are_the_same_turns)
{
    static const char *const lines[] = {
        "{\"messages\": [{\"role\": \"system\", \"content\": \"\"}, " USER("a\\nb") ", " SAYS("c") "], \"source\": 7}",
        "{\"conversations\": [{\"from\": \"system\", \"value\": \"\"}, {\"from\": \"human\", \"value\": \"a\\nb\"}, "
        "{\"from\": \"gpt\", \"value\": \"c\"}, {\"from\": \"human\", \"value\": \"more\"}]}",
        "{\"messages\": [{\"role\": \"system\", \"content\": []}, {\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", "
        "\"text\": \"a\"}, {\"text\": \"\\nb\", \"type\": \"text\"}]}, " SAYS(
            "c") "], \"tools\": [], \"system\": null}"};
    static const char *const text[] = {"", "a\nb", "c"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        GxChatRecord r;
        GxError e = GX_ZERO;
        if (!CHECK(gx_chat_record_read(&r, lines[i], &gx_record_reading, "f", 1, &e) == GX_OK, "%s", e.message))
            continue;
        CHECK(r.n == 3 && r.leaves_out_last == (i == 1) && !r.instruction, "%d turns", r.n);
        for (int k = 0; k < 3 && k < r.n; k++)
            CHECK(r.turn[k].role == (GxChatRole)k && !strcmp(r.turn[k].text, text[k]), "turn %d: %s", k,
                  r.turn[k].text);
        gx_chat_record_close(&r);
    }
}

TEST(an_instruction_is_a_users_turn_with_its_input_behind_an_empty_line)
{
    static const struct {
        const char *line, *user, *input;
    } list[] = {{"{\"instruction\": \"a\", \"input\": \"b\", \"output\": \"c\"}", "a\n\nb", "b"},
                {"{\"instruction\": \"a\", \"input\": \"\", \"output\": \"c\"}", "a", NULL},
                {"{\"output\": \"c\", \"instruction\": \"a\", \"history\": []}", "a", NULL}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxChatRecord r;
        GxError e = GX_ZERO;
        if (!CHECK(gx_chat_record_read(&r, list[i].line, &gx_record_reading, "f", 1, &e) == GX_OK, "%s", e.message))
            continue;
        CHECK(r.n == 2 && r.turn[0].role == GX_CHAT_USER && r.turn[1].role == GX_CHAT_ASSISTANT, "%d turns", r.n);
        CHECK(!strcmp(r.turn[0].text, list[i].user) && !strcmp(r.turn[1].text, "c") && !strcmp(r.instruction, "a"),
              "%s, %s", r.turn[0].text, r.turn[1].text);
        CHECK(list[i].input ? r.input && !strcmp(r.input, list[i].input) : !r.input, "the input of %s", list[i].line);
        gx_chat_record_close(&r);
    }
}

TEST(records_that_are_none_are_refused_with_file_and_line)
{
    static const struct {
        const char *line;
        GxStatus status;
        const char *says;
    } list[] = {
        {"{\"messages\": [}", GX_ERR_FORMAT, "f:7:15: "},
        {"[]", GX_ERR_FORMAT, "f:7: the line is an array; expected an object"},
        {"{\"text\": \"a\"}", GX_ERR_FORMAT, "f:7: the record has none of \"messages\""},
        {"{\"messages\": [], \"conversations\": []}", GX_ERR_FORMAT, "f:7: the record has several of \"messages\""},
        {"{\"messages\": []}", GX_ERR_FORMAT, "f:7: \"messages\" is empty; expected a list"},
        {"{\"messages\": \"a\"}", GX_ERR_FORMAT, "f:7: \"messages\" is "},
        {"{\"messages\": [\"a\"]}", GX_ERR_FORMAT, "f:7: messages[0] is a string; expected an object"},
        {"{\"messages\": [" USER("a") "]}", GX_ERR_FORMAT,
         "f:7: \"messages\" has no turn of the assistant, so nothing"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}", GX_ERR_FORMAT, "has no turn of the assistant"},
        {"{\"messages\": [" SAYS("a") "]}", GX_ERR_FORMAT,
         "f:7: messages[0] is a turn of the assistant, but it is the user's turn"},
        {"{\"messages\": [" USER("a") ", " USER("b") "]}", GX_ERR_FORMAT,
         "f:7: messages[1] is a turn of the user, but it is the assistant's turn"},
        {"{\"messages\": [" USER("a") ", " SAYS("b") ", {\"role\": \"system\", \"content\": \"c\"}]}", GX_ERR_FORMAT,
         "f:7: messages[2] is a turn of the system, but it is the user's turn"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"tool\", \"content\": \"b\"}]}", GX_ERR_FORMAT,
         "f:7: messages[1] has the role \"tool\"; expected system, user or assistant"},
        {"{\"messages\": [{\"content\": \"b\"}]}", GX_ERR_FORMAT, "f:7: messages[0] has the role \"\""},
        {"{\"conversations\": [{\"from\": \"user\", \"value\": \"b\"}]}", GX_ERR_FORMAT,
         "f:7: conversations[0] has the from \"user\"; expected system, human or gpt"},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": \"b\"}]}", GX_ERR_FORMAT,
         "f:7: conversations[0] is a turn of the gpt, but it is the human's turn"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\"}]}", GX_ERR_FORMAT,
         "f:7: \"content\" of messages[1] is missing; expected a string"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": null}]}", GX_ERR_FORMAT,
         "f:7: \"content\" of messages[1] is null"},
        {"{\"messages\": [" USER("a") ", " SAYS(" \\n") "]}", GX_ERR_FORMAT,
         "f:7: \"content\" of messages[1] is empty"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": \"x\"}]}]}",
         GX_ERR_UNSUPPORTED, "f:7: part 0 of \"content\" of messages[0] is of the type \"image_url\"; only texts"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"tool_calls\": [1]}]}",
         GX_ERR_UNSUPPORTED, "f:7: messages[1] has \"tool_calls\", which is not supported"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}]}",
         GX_ERR_UNSUPPORTED, "f:7: messages[1] has \"weight\""},
        {"{\"messages\": [" USER("a") ", " SAYS("b") "], \"tools\": [{}]}", GX_ERR_UNSUPPORTED,
         "f:7: the record has \"tools\""},
        {"{\"conversations\": [], \"system\": \"a\"}", GX_ERR_UNSUPPORTED, "the text for the system is the first turn"},
        {"{\"instruction\": \"a\", \"input\": \"b\"}", GX_ERR_FORMAT, "f:7: \"output\" is missing; expected a string"},
        {"{\"instruction\": \"\", \"output\": \"b\"}", GX_ERR_FORMAT, "f:7: \"instruction\" is empty"},
        {"{\"instruction\": \"a\", \"output\": \"\"}", GX_ERR_FORMAT, "f:7: \"output\" is empty"},
        {"{\"instruction\": \"a\", \"input\": 3, \"output\": \"b\"}", GX_ERR_FORMAT, "f:7: \"input\" is "},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[1, 2]]}", GX_ERR_UNSUPPORTED, "\"history\""}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxChatRecord r;
        GxError e = GX_ZERO;
        refused(&e, gx_chat_record_read(&r, list[i].line, &gx_record_reading, "f", 7, &e), list[i].status,
                list[i].says);
        CHECK(r.n == 0 && !r.turn, "%s left something", list[i].line);
    }
}

TEST(a_file_is_one_of_conversations_by_its_first_record_and_a_text_beside_it_is_said)
{
    static const struct {
        const char *name, *text;
        int is_chat, warns;
    } list[] = {{"l.jsonl", CHAT(USER("a") ", " SAYS("b")), 1, 0},
                {"l.ndjson", "\xEF\xBB\xBF{\"conversations\": []}", 1, 0},
                {"l.jsonl", "{\"instruction\": \"a\"}\r\n", 1, 0},
                {"l.jsonl", "{\"text\": \"a\"}\n" CHAT(USER("a")), 0, 0},
                {"l.jsonl", "{\"text\": \"a\", \"messages\": []}", 0, 1},
                {"l.jsonl", "{\"messages\": ", 0, 0},
                {"l.jsonl", "", 0, 0},
                {"l.txt", CHAT(USER("a") ", " SAYS("b")), 0, 0}};
    const GxLogger log = {hear_log, NULL};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        memset(&said, 0, sizeof said);
        put(list[i].name, list[i].text);
        CHECK(gx_dataset_is_chat(at(list[i].name), &gx_record_reading, &log) == list[i].is_chat, "file %d", (int)i);
        CHECK(list[i].warns == (strstr(said.log, "has both \"text\" and \"messages\"; the texts are used") != NULL),
              "%s", said.log);
    }
    CHECK(!gx_dataset_is_chat(at("none.jsonl"), &gx_record_reading, &log), "a file that does not exist");
}

TEST(a_folder_or_a_file_of_tokens_of_conversations_is_refused_by_name)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    GxCorpus c;
    GxError e = GX_ZERO;
    put("l.jsonl", CHAT(USER("a") ", " SAYS("b")));
    refused(&e, gx_corpus_open(&c, at("l.jsonl"), NULL, &bytes, 1, NULL, &e), GX_ERR_UNSUPPORTED,
            "l.jsonl: its records are conversations (\"messages\"), which are not read as texts");
}

// ---- tokens --------------------------------------------------------------------------------------------------------

// The tokenizer of data/ref/chat_train, with its special tokens named.
static int open_tokenizer(GxTokenizer *t, const char *name)
{
    char path[100];
    GxError e = GX_ZERO;
    snprintf(path, sizeof path, "data/ref/chat_train/%s.json", name);
    char *json = get(path);
    put("tokenizer.json", json), put("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    free(json);
    return CHECK(gx_tokenizer_open(t, folder, &e) == GX_OK, "%s", e.message);
}

// Documents from number `first` on are those of transformers; how many those are.
static int64_t check_documents(const GxChatTokens *c, int64_t first, const GxJson *expected, const char *what)
{
    const int64_t n = gx_json_size(expected);
    if (!CHECK(first + n <= c->file.documents, "%s: %ld documents", what, (long)c->file.documents)) return n;
    for (int64_t i = 0; i < n; i++) {
        const GxJson *d = gx_json_at(expected, i), *ids = gx_json_get(d, "ids"), *spans = gx_json_get(d, "learned");
        const int64_t begin = c->file.document[first + i].begin, length = c->file.document[first + i + 1].begin - begin;
        const char *text = gx_json_string(gx_json_get(d, "text"));
        CHECK(c->file.document[first + i].bytes == (int64_t)strlen(text), "%s: %ld bytes: %s", what,
              (long)c->file.document[first + i].bytes, text);
        if (!CHECK(length == gx_json_size(ids), "%s: %ld tokens, %ld of transformers': %s", what, (long)length,
                   (long)gx_json_size(ids), text))
            continue;
        for (int64_t k = 0, span = 0; k < length; k++) {
            const GxJson *s = gx_json_at(spans, span);
            const int is_learned = s && k >= gx_json_int(gx_json_at(s, 0));
            if (!CHECK(c->ids[begin + k] == gx_json_int(gx_json_at(ids, k)), "%s: token %ld is %d", what, (long)k,
                       (int)c->ids[begin + k]) ||
                !CHECK(c->is_learned[begin + k] == is_learned, "%s: token %ld is%s learned: %s", what, (long)k,
                       is_learned ? " not" : "", text))
                break;
            if (s && k + 1 == gx_json_int(gx_json_at(s, 1))) span++;
        }
    }
    return n;
}

// The template that is written of a format with a name.
static const GxChatFormat *open_template_of(const char *name, const GxTokenizer *t)
{
    const GxChatFormat *f = NULL;
    GxJson *said = gx_json_new_object();
    char *jinja = NULL;
    GxError e = GX_ZERO;
    gx_chat_jinja(gx_chat_format(name), &jinja, &e);
    gx_json_set(said, "template", gx_json_new_string(jinja), &e);
    gx_json_set(said, "where", gx_json_new_string(name), &e);
    gx_json_set(said, "variables", gx_json_new_object(), &e);
    CHECK(gx_chat_open(&f, said, "", t, &e) == GX_OK, "%s: %s", name, e.message);
    free(jinja), gx_json_free(said);
    return f;
}

TEST(texts_ids_and_what_is_learned_are_those_of_transformers)
{
    static const char *const tokenizers[] = {"byte_level", "metaspace", "first"};
    static GxJson *of[400];
    char *text = get("data/ref/chat_train/expected.jsonl"), *save = NULL, name[40] = "";
    GxError e = GX_ZERO;
    int n = 0, compared = 0, of_templates = 0;
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    for (char *line = strtok_r(text, "\n", &save); line && n < 400; line = strtok_r(NULL, "\n", &save))
        if (!CHECK(gx_json_parse(&of[n++], line, (int64_t)strlen(line), "expected.jsonl", &e) == GX_OK, "%s",
                   e.message))
            return;
    for (int k = 0; k < 3; k++) {
        GxTokenizer t;
        if (!open_tokenizer(&t, tokenizers[k])) return;
        for (int i = 0, end; i < n; i = end) { // of one format, in one file
            char *lines;
            size_t bytes;
            FILE *out = open_memstream(&lines, &bytes);
            const char *format = gx_json_string(gx_json_get(of[i], "format"));
            for (end = i; end < n && !strcmp(gx_json_string(gx_json_get(of[end], "format")), format); end++) {
                char *line;
                int64_t length;
                if (strcmp(gx_json_string(gx_json_get(of[end], "tokenizer")), tokenizers[k])) continue;
                gx_json_dump(gx_json_get(of[end], "record"), 0, &line, &length, &e);
                fprintf(out, "%s\n", line), free(line);
            }
            fclose(out), put("chats.jsonl", lines);
            // of one thread and of three, and by the template that is written of the format
            for (int way = 0; way < (format[0] ? 3 : 2) && bytes; way++) {
                const GxChatReading how = {way < 2 ? gx_chat_format(format) : open_template_of(format, &t), NULL, NULL};
                GxChatTokens c;
                int64_t documents = 0;
                snprintf(name, sizeof name, "%s, %s, %d", format, tokenizers[k], way);
                if (!CHECK(gx_chat_tokens_open(&c, at("chats.jsonl"), &t, &how, 100000, 1 + 2 * (way > 0), &e) == GX_OK,
                           "%s: %s", name, e.message)) {
                    gx_error_clear(&e);
                    continue;
                }
                for (int j = i; j < end; j++)
                    if (!strcmp(gx_json_string(gx_json_get(of[j], "tokenizer")), tokenizers[k]))
                        documents += check_documents(&c, documents, gx_json_get(of[j], "documents"), name),
                            compared += way < 2, of_templates += way == 2;
                CHECK(documents == c.file.documents && documents >= c.counts.n, "%s: %ld documents", name,
                      (long)c.file.documents);
                gx_chat_tokens_close(&c), gx_chat_close(how.format);
            }
            free(lines);
        }
        gx_tokenizer_close(&t);
    }
    CHECK(compared == 2 * n && n > 100 && of_templates > 150, "%d and %d of %d", compared, of_templates, n);
    for (int i = 0; i < n; i++) gx_json_free(of[i]);
    free(text);
}

// ---- templates -----------------------------------------------------------------------------------------------------

#define DAY "2026-03-05" // of make_chat_variants.py

// The format of a template; marked 0: without its {% generation %} and {% endgeneration %}.
static const GxChatFormat *open_template(const GxJson *line, int marked, const GxTokenizer *t, GxError *e)
{
    const GxChatFormat *f = NULL;
    GxJson *said = gx_json_new_object();
    char *text = strdup(gx_json_string(gx_json_get(line, "template"))), *at;
    for (int k = 0; k < 2 && !marked; k++) {
        static const char *const marks[] = {"{% generation %}", "{% endgeneration %}"};
        while ((at = strstr(text, marks[k])) != NULL)
            memmove(at, at + strlen(marks[k]), strlen(at + strlen(marks[k])) + 1);
    }
    gx_json_set(said, "template", gx_json_new_string(text), e);
    gx_json_set(said, "where", gx_json_copy(gx_json_get(line, "name")), e);
    gx_json_set(said, "variables", gx_json_copy(gx_json_get(line, "variables")), e);
    gx_chat_open(&f, said, DAY, t, e);
    CHECK(f != NULL, "%s: %s", gx_json_string(gx_json_get(line, "name")), e->message);
    free(text), gx_json_free(said);
    return f;
}

static char *record_of(const GxJson *conversation) // a line
{
    GxJson *record = gx_json_new_object();
    char *text = NULL;
    int64_t bytes;
    GxError e = GX_ZERO;
    gx_json_set(record, "messages", gx_json_copy(gx_json_get(conversation, "messages")), &e);
    gx_json_dump(record, 0, &text, &bytes, &e);
    gx_json_free(record);
    return text;
}

// A text, and the bytes of it that are learned, as transformers has them.
static void check_text(const GxChatFormat *f, const GxChatTurn *turn, int n, int only_last, const GxJson *expected)
{
    const GxJson *spans = gx_json_get(expected, "learned");
    const char *text = gx_json_string(gx_json_get(expected, "text")), *name = gx_chat_name(f);
    GxChatText x;
    GxError e = GX_ZERO;
    if (!CHECK(gx_chat_training_text(f, turn, n, only_last, &x, NULL, &e) == GX_OK, "%s: %s", name, e.message)) return;
    CHECK(!strcmp(x.text, text) && x.bytes == (int64_t)strlen(text), "%s:\n%s\ntransformers':\n%s", name, x.text, text);
    CHECK(x.spans == gx_json_size(spans), "%s: %d spans", name, x.spans);
    for (int i = 0; i < x.spans; i++) {
        const GxJson *s = gx_json_at(spans, i);
        CHECK(x.span[i].begin == gx_json_int(gx_json_at(s, 0)) && x.span[i].end == gx_json_int(gx_json_at(s, 1)),
              "%s: span %d is \"%.*s\"", name, i, (int)(x.span[i].end - x.span[i].begin), x.text + x.span[i].begin);
    }
    gx_chat_text_free(&x);
}

static void check_prompts(const GxChatFormat *f, const GxChatRecord *r, const GxJson *prompts)
{
    GxError e = GX_ZERO;
    for (int n = r->n % 2 + 1, i = 0; n < r->n; n += 2, i++) {
        char *text;
        if (!CHECK(gx_chat_text(f, r->turn, n, -1, &text, &e) == GX_OK, "%s", e.message)) return;
        CHECK(!strcmp(text, gx_json_string(gx_json_at(prompts, i))), "%s:\n%s\ntransformers':\n%s", gx_chat_name(f),
              text, gx_json_string(gx_json_at(prompts, i)));
        free(text);
    }
}

// *texts: how many were compared. Without blocks what the model is not asked is refused; with them it is their matter.
static void check_conversation(const GxChatFormat *f, const GxJson *expected, int marked, int *texts)
{
    const GxJson *documents = gx_json_get(expected, "documents"), *refused_by = gx_json_get(expected, "refused");
    const int asked = refused_by || gx_json_bool(gx_json_get(expected, "keeps")) || marked;
    char *line = record_of(expected);
    GxChatRecord r;
    GxChatText x;
    GxError e = GX_ZERO;
    int rewrites = -1;
    gx_chat_record_read(&r, line, &gx_record_reading, "f", 1, &e);
    if (refused_by || !asked)
        refused(&e, gx_chat_training_text(f, r.turn, r.n, 1, &x, NULL, &e),
                refused_by ? GX_ERR_FORMAT : GX_ERR_UNSUPPORTED,
                refused_by ? gx_json_string(refused_by) : "writes the turns before an answer differently");
    if (!refused_by) check_prompts(f, &r, gx_json_get(expected, "prompts"));
    const int n = refused_by || !asked ? 0 : (int)gx_json_size(documents);
    if (n)
        CHECK(gx_chat_training_text(f, r.turn, r.n, 0, &x, &rewrites, &e) == GX_OK && rewrites == (n > 1),
              "%s: rewrites %d; %s", gx_chat_name(f), rewrites, e.message);
    if (n) gx_chat_text_free(&x);
    for (int i = 0; i < n; i++, ++*texts)
        check_text(f, r.turn, n > 1 ? r.n % 2 + 2 * (i + 1) : r.n, n > 1, gx_json_at(documents, i));
    gx_chat_record_close(&r), free(line);
}

// Tokens of all conversations of a template, in one file, and which of them are learned. *documents: how many.
static void check_tokens(const GxJson *line, const char *kind, int marked, int *documents)
{
    const GxJson *list = gx_json_get(line, "conversations"), *d, *own;
    const char *name = gx_json_string(gx_json_get(line, "name"));
    GxTokenizer t;
    GxChatTokens c;
    GxError e = GX_ZERO;
    char lines[4000] = "";
    int64_t first = 0;
    if (!open_tokenizer(&t, kind)) return;
    for (int64_t i = 0; i < gx_json_size(list); i++) {
        const GxJson *one = gx_json_at(list, i);
        char *record = record_of(one);
        const int is_there = gx_json_get(one, "documents") && (marked || gx_json_bool(gx_json_get(one, "keeps")));
        if (is_there) snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s\n", record);
        free(record);
    }
    put("chats.jsonl", lines);
    const GxChatReading how = {open_template(line, marked, &t, &e), NULL, NULL};
    if (how.format && CHECK(gx_chat_tokens_open(&c, at("chats.jsonl"), &t, &how, 5000, 3, &e) == GX_OK, "%s, %s: %s",
                            name, kind, e.message)) {
        for (int64_t i = 0; i < gx_json_size(list); i++) {
            const GxJson *one = gx_json_at(list, i);
            if (!marked && !gx_json_bool(gx_json_get(one, "keeps"))) continue;
            for (int64_t k = 0; (d = gx_json_at(gx_json_get(one, "documents"), k)) != NULL; k++, ++*documents) {
                GxJson *expected = gx_json_new_array();
                own = gx_json_get(d, kind);
                GxJson *copy = gx_json_copy(own);
                gx_json_set(copy, "text", gx_json_copy(gx_json_get(d, "text")), &e);
                gx_json_append(expected, copy, &e);
                first += check_documents(&c, first, expected, name);
                gx_json_free(expected);
            }
        }
        CHECK(first == c.file.documents && first > 0, "%s: %ld documents", name, (long)c.file.documents);
        gx_chat_tokens_close(&c);
    }
    gx_chat_close(how.format), gx_tokenizer_close(&t);
}

TEST(templates_are_executed_and_learned_is_what_transformers_masks_with_blocks_and_without)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    char *all = get("data/ref/chat_train/variants.jsonl"), *save = NULL;
    int templates = 0, texts = 0, documents = 0;
    for (char *text = strtok_r(all, "\n", &save); text; text = strtok_r(NULL, "\n", &save)) {
        GxJson *line = NULL;
        GxError e = GX_ZERO;
        if (!CHECK(gx_json_parse(&line, text, (int64_t)strlen(text), "variants", &e) == GX_OK, "%s", e.message)) return;
        const GxJson *list = gx_json_get(line, "conversations");
        for (int marked = 0; marked < 2; marked++) {
            const GxChatFormat *f = open_template(line, marked, &bytes, &e);
            for (int64_t i = 0; f && i < gx_json_size(list); i++)
                check_conversation(f, gx_json_at(list, i), marked, &texts);
            gx_chat_close(f);
            if (gx_regex_is_built() && gx_json_bool(gx_json_get(line, "has_tokens")))
                check_tokens(line, "byte_level", marked, &documents),
                    check_tokens(line, "metaspace", marked, &documents);
        }
        gx_json_free(line), templates++;
    }
    free(all);
    CHECK(templates == 24 && texts > 150 && (documents > 300 || !gx_regex_is_built()), "%d templates, %d, %d",
          templates, texts, documents);
}

// The text with what is learned of it between [ and ], or the error; free() it.
static char *learned_of(const char *jinja, const GxChatTurn *turn, int n)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    GxJson *said = gx_json_new_object(), *variables = gx_json_new_object();
    const GxChatFormat *f = NULL;
    GxChatText x = GX_ZERO;
    GxError e = GX_ZERO;
    char *out = (char *)calloc(1, 2000);
    gx_json_set(variables, "eos_token", gx_json_new_string("<|im_end|>"), &e);
    gx_json_set(said, "template", gx_json_new_string(jinja), &e), gx_json_set(said, "variables", variables, &e);
    gx_json_set(said, "where", gx_json_new_string("T"), &e);
    if (gx_chat_open(&f, said, "", &bytes, &e) != GX_OK || gx_chat_training_text(f, turn, n, 0, &x, NULL, &e) != GX_OK)
        strcpy(out, e.message);
    for (int64_t at = 0, k = 0; at <= x.bytes && x.text; at++) {
        if (k < x.spans && x.span[k].end == at) strcat(out, "]"), k++;
        if (k < x.spans && x.span[k].begin == at) strcat(out, "[");
        strncat(out, x.text + at, 1);
    }
    gx_chat_text_free(&x), gx_chat_close(f), gx_json_free(said);
    return out;
}

#define TURNS(turn) "{% for m in messages %}" turn "{% endfor %}{% if add_generation_prompt %}<A>{% endif %}"

TEST(an_answer_is_found_by_what_is_before_and_behind_it)
{
    static const struct {
        const char *jinja, *first, *last; // the answers; last NULL: one
        const char *says;
    } list[] = {
        // its own words are those of the format
        {TURNS("<{{ m.role[0] | upper }}>{{ m.content }}<|im_end|>\n"), "im", "end|>",
         "<U>q<|im_end|>\n<A>[im<|im_end|>]\n<U>im<|im_end|>\n<A>[end|><|im_end|>]\n"},
        {TURNS("<{{ m.role[0] | upper }}>{{ m.content }}<|im_end|>\n"), "<|im_end|>", "q",
         "<U>q<|im_end|>\n<A>[<|im_end|><|im_end|>]\n<U><|im_end|><|im_end|>\n<A>[q<|im_end|>]\n"},
        // a prompt that begins thoughts, with which an answer has a byte in common
        {"{% for m in messages %}<{{ m.role[0] | upper }}>{{ m.content }}<|im_end|>{% endfor %}{% if "
         "add_generation_prompt %}<A><think>\n{% endif %}",
         "<b>", "\xC3\xA9", "<U>q<|im_end|><A>[<b><|im_end|>]<U><b><|im_end|><A>[\xC3\xA9<|im_end|>]"},
        // one end for the first answer, another for the next: neither is known but as a word, or as eos_token
        {TURNS("<{{ m.role[0] | upper }}>{{ m.content }}{{ '</a>' if loop.index == 2 else '<|im_end|>' }} "), "a", "b",
         "<U>q<|im_end|> <A>[a</a>] <U>a<|im_end|> <A>[b<|im_end|>] "},
        {TURNS("<{{ m.role[0] | upper }}>{{ m.content }} "), "a", "b", "<U>q <A>[a] <U>a <A>[b] "},
        {TURNS("<{{ m.role[0] | upper }}>{{ m.content }}\nend of it"), "a", NULL, "<U>q\nend of it<A>[a\nend] of it"},
        {TURNS("<{{ m.role[0] | upper }}>{{ m.content | replace('Q', 'X') }}<|im_end|>"), "say Q", NULL,
         "what the assistant says cannot be found in the output of T, so what would be learned is not known; "
         "--chat_template NAME or FILE names another template"},
        {TURNS("<{{ m.role[0] | upper }}>{% if m.role == 'user' or loop.length < 3 %}{{ m.content }}{% endif "
               "%}<|im_end|>"),
         "a", "b",
         "what the assistant says cannot be found in the output of T, so what would be learned is not known; "
         "--chat_template NAME or FILE names another template"},
        {TURNS("{{ m.content }}{% generation %}{% endgeneration %}<|im_end|>"), "a", NULL,
         "T has {% generation %} blocks, but none covers a byte of an answer: nothing would be learned; "
         "--chat_template NAME or FILE names another template"},
        {TURNS("{% if m.role == 'assistant' and loop.index < 3 %}{% generation %}{{ m.content }}{% endgeneration %}"
               "{% else %}{{ m.content }}{% endif %}<|im_end|>"),
         "a", "b",
         "T has {% generation %} blocks, but they mark 1 of the 2 answers of a conversation: the others would not be "
         "learned; --chat_template NAME or FILE names another template"},
        {TURNS("{{ m.role }}"), "a", NULL, "T: what the assistant says is not in what it writes"},
        // several blocks of an answer
        {TURNS("<{{ m.role[0] | upper }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration "
               "%}-{% generation %}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}"),
         "a", "b", "<U>q<|im_end|><A>[a]-[<|im_end|>]<U>a<|im_end|><A>[b]-[<|im_end|>]"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const GxChatTurn turn[] = {{GX_CHAT_USER, "q"},
                                   {GX_CHAT_ASSISTANT, list[i].first},
                                   {GX_CHAT_USER, list[i].first},
                                   {GX_CHAT_ASSISTANT, list[i].last}};
        char *text = learned_of(list[i].jinja, turn, list[i].last ? 4 : 2);
        CHECK(!strcmp(text, list[i].says), "%d:\n%s\nexpected\n%s", (int)i, text, list[i].says);
        free(text);
    }
}

TEST(files_of_conversations_that_are_wrong_are_refused_with_their_line)
{
    static const struct {
        const char *text, *format, *lacks;
        GxStatus status;
        const char *says;
    } list[] = {{"", "chatml", NULL, GX_ERR_FORMAT, "none of its 0 conversations has an answer"},
                {CHAT(USER("a") ", " SAYS("b")) "\n" CHAT(USER("a") ", " SAYS("b")), "chatml", NULL, GX_ERR_FORMAT,
                 "chats.jsonl:2: the line is empty, but others follow"},
                {CHAT(USER("a") ", " SAYS("b")) "{\"text\": \"a\"}\n", "chatml", NULL, GX_ERR_FORMAT,
                 "chats.jsonl:2: the record"},
                {CHAT(USER("a") ", " SAYS("b")) CHAT(SAYS("b")) CHAT(USER("b")), "chatml", NULL, GX_ERR_FORMAT,
                 "chats.jsonl:2: messages[0]"},
                {CHAT(USER("a") ", " SAYS("\xFF")), "chatml", NULL, GX_ERR_FORMAT, "chats.jsonl:1"},
                {CHAT(USER("a") ", " SAYS("b")), "", NULL, GX_ERR_ARGUMENT,
                 "chats.jsonl:1: the record is a conversation, and neither the model's folder nor the tokenizer's has "
                 "a chat template; --chat_template accepts a template file, or one of chatml|"},
                {"{\"instruction\": \"a\", \"output\": \"b\"}", "", "it is not known", GX_ERR_ARGUMENT,
                 "chats.jsonl:1: the record is a conversation, and it is not known; --chat_template"},
                {"{\"instruction\": \"a\", \"output\": \"b\"}", "", NULL, GX_ERR_UNSUPPORTED,
                 "chats.jsonl:1: the tokenizer byte-256 has no eos_token to end the answer"}};
    GxTokenizer bytes = gx_tokenizer_bytes(), t;
    GxChatTokens c;
    GxError e = GX_ZERO;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const GxChatReading how = {gx_chat_format(list[i].format), list[i].lacks, NULL};
        put("chats.jsonl", list[i].text);
        refused(&e, gx_chat_tokens_open(&c, at("chats.jsonl"), &bytes, &how, 1000, 3, &e), list[i].status,
                list[i].says);
        CHECK(!c.ids && !c.file.documents, "something is left");
    }
    if (!gx_regex_is_built()) return;
    char *json = get("data/ref/chat_train/byte_level.json");
    for (char *p = json; (p = strstr(p, "<|im_end|>")) != NULL;) memcpy(p, "<|im_gone|", 10);
    put("tokenizer.json", json), put("chats.jsonl", CHAT(USER("a") ", " SAYS("b"))), free(json);
    if (!CHECK(gx_tokenizer_open(&t, at("tokenizer.json"), &e) == GX_OK, "%s", e.message)) return;
    const GxChatReading chatml = {gx_chat_format("chatml"), NULL, NULL},
                        mistral = {gx_chat_format("mistral"), NULL, NULL};
    refused(&e, gx_chat_tokens_open(&c, at("chats.jsonl"), &t, &chatml, 1000, 1, &e), GX_ERR_ARGUMENT,
            "has no token <|im_end|>, which ends the answers of the format chatml");
    CHECK(gx_chat_tokens_open(&c, at("chats.jsonl"), &t, &mistral, 1000, 1, &e) == GX_OK, "%s", e.message);
    gx_chat_tokens_close(&c), gx_tokenizer_close(&t);
}

// Of ChatML's bytes: "<|im_start|>user\n" 17, "<|im_start|>assistant\n" 22, "<|im_end|>" 10 and a newline.
enum { USER_BYTES = 17 + 10 + 1, SAYS_BYTES = 22 + 10 + 1 };

TEST(a_conversation_that_is_too_long_ends_with_a_whole_answer_or_is_left_out)
{
    enum { TURNS = USER_BYTES + SAYS_BYTES + 4 };
    static const char *const three =
        CHAT(USER("ab") ", " SAYS("cd") ", " USER("ef") ", " SAYS("gh") ", " USER("ij") ", " SAYS("kl"));
    static const struct {
        int64_t most, answers; // 0: refused
    } list[] = {{3 * TURNS, 3}, {3 * TURNS - 1, 2}, {2 * TURNS, 2}, {2 * TURNS - 1, 1}, {TURNS, 1}, {TURNS - 1, 0}};
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading how = {gx_chat_format("chatml"), NULL, NULL};
    put("chats.jsonl", three);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxChatTokens c;
        GxError e = GX_ZERO;
        const GxStatus status = gx_chat_tokens_open(&c, at("chats.jsonl"), &bytes, &how, list[i].most, 1, &e);
        if (list[i].answers == 0) {
            refused(&e, status, GX_ERR_FORMAT, "its only conversation has no answer that ends within");
            continue;
        }
        if (!CHECK(status == GX_OK, "%s", e.message)) continue;
        CHECK(c.file.tokens == list[i].answers * TURNS && c.counts.shortened == (list[i].answers < 3) &&
                  c.counts.left_out == 0 && c.counts.learned == list[i].answers * 12,
              "at most %ld: %ld tokens, %ld learned, %ld shortened", (long)list[i].most, (long)c.file.tokens,
              (long)c.counts.learned, (long)c.counts.shortened);
        CHECK(!c.is_learned[c.file.tokens - 1] && c.is_learned[c.file.tokens - 2] && c.ids[c.file.tokens - 2] == '>',
              "the last answer has no end");
        gx_chat_tokens_close(&c);
    }
    // beside a shorter one it is left out, and counted; so is each answer of a format that writes them one by one
    put("chats.jsonl", CHAT(USER("ab") ", " SAYS("cdefghijklmnopqrst")) CHAT(USER("a") ", " SAYS("b")));
    GxChatTokens c;
    GxError e = GX_ZERO;
    CHECK(gx_chat_tokens_open(&c, at("chats.jsonl"), &bytes, &how, TURNS, 1, &e) == GX_OK && c.counts.left_out == 1 &&
              c.counts.n == 2 && c.counts.shortened == 0 && c.file.documents == 1 && c.line[0] == 2,
          "%ld left out; %s", (long)c.counts.left_out, e.message);
    gx_chat_tokens_close(&c);
    const GxChatReading thinks = {gx_chat_format("qwen3"), NULL, NULL};
    put("chats.jsonl", three);
    CHECK(gx_chat_tokens_open(&c, at("chats.jsonl"), &bytes, &thinks, 2 * TURNS + 19, 1, &e) == GX_OK &&
              c.counts.left_out == 1 && c.file.documents == 2 && c.counts.learned == 2 * (12 + 19),
          "%ld left out; %s", (long)c.counts.left_out, e.message); // 19: <think>, </think> and four newlines
    gx_chat_tokens_close(&c);
}

// A user's text may hold what begins an answer: the tokens are those of an answer then, and it is not learned.
TEST(the_same_tokens_of_which_others_are_learned_are_other_data)
{
    static const char *const files[] = {
        CHAT(USER("a") ", " SAYS("b") ", " USER("c") ", " SAYS("d")),
        CHAT(USER("a<|im_end|>\\n<|im_start|>assistant\\nb<|im_end|>\\n<|im_start|>user\\nc") ", " SAYS("d"))};
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading how = {gx_chat_format("chatml"), NULL, NULL};
    GxDataset d[2];
    GxError e = GX_ZERO;
    for (int i = 0; i < 2; i++) {
        put("chats.jsonl", files[i]);
        if (!CHECK(gx_dataset_open_chat(&d[i], at("chats.jsonl"), &bytes, &how, 0, 500, 1, &e) == GX_OK, "%s",
                   e.message))
            return;
    }
    CHECK(d[0].train.n == d[1].train.n && !memcmp(d[0].ids, d[1].ids, 4 * (size_t)d[0].train.n), "other tokens");
    CHECK(d[0].chat.learned == 22 && d[1].chat.learned == 11, "%ld and %ld", (long)d[0].chat.learned,
          (long)d[1].chat.learned);
    CHECK(gx_dataset_ids_hash(&d[0]) != gx_dataset_ids_hash(&d[1]), "they have the same hash");
    gx_dataset_close(&d[0]), gx_dataset_close(&d[1]);
}

// ---- samples -------------------------------------------------------------------------------------------------------

enum { MOST = 300 }; // texts

// By the plainest means: each text, the longest first, of equal ones the first, into the fullest sample that has room,
// of equally full ones that which has been so for longest. Returns the samples; of text i its sample[i], and in which
// turn[i] it came there.
static int64_t fill_plainly(const int64_t *length, int64_t n, int64_t T, int64_t *sample, int64_t *turn)
{
    int64_t samples = 0, turns = 0, used[MOST], since[MOST];
    for (int64_t now = T; now > 0; now--)
        for (int64_t i = 0; i < n; i++) {
            int64_t best = -1;
            if (length[i] != now) continue;
            for (int64_t s = 0; s < samples; s++)
                if (used[s] + now <= T &&
                    (best < 0 || used[s] > used[best] || (used[s] == used[best] && since[s] < since[best])))
                    best = s;
            if (best < 0) best = samples++, used[best] = 0;
            used[best] += now, since[best] = turns;
            sample[i] = best, turn[i] = turns++;
        }
    return samples;
}

TEST(texts_are_packed_best_fit_with_falling_lengths)
{
    for (uint64_t k = 0; k < 200; k++) {
        int64_t length[MOST], sample[MOST], turn[MOST];
        unsigned char seen[MOST] = {0};
        GxPacking p;
        GxError e = GX_ZERO;
        const int64_t T = 1 + (int64_t)(gx_philox(1, k, 0, 1).w[0] % 200), n = (int64_t)(k % MOST);
        for (int64_t i = 0; i < n; i++)
            length[i] = 1 + (int64_t)(gx_philox(1, k, (uint32_t)i, 2).w[0] % (k % 3 ? T : gx_max(1, T / 4)));
        if (!CHECK(gx_packing_make(&p, length, n, T, &e) == GX_OK, "%s", e.message)) return;
        const int64_t samples = fill_plainly(length, n, T, sample, turn);
        CHECK(p.samples == samples && p.begin[p.samples] == n, "%ld samples, plainly %ld", (long)p.samples,
              (long)samples);
        for (int64_t s = 0; s < p.samples; s++)
            for (int64_t i = p.begin[s]; i < p.begin[s + 1]; i++) {
                const int64_t text = p.text[i];
                seen[text]++;
                CHECK(sample[text] == s, "set %ld: text %ld of %ld tokens is in sample %ld, plainly in %ld", (long)k,
                      (long)text, (long)length[text], (long)s, (long)sample[text]);
                if (i == p.begin[s]) continue;
                CHECK(turn[text] > turn[p.text[i - 1]], "set %ld: text %ld is behind text %ld, which came later",
                      (long)k, (long)text, (long)p.text[i - 1]);
            }
        for (int64_t i = 0; i < n; i++) CHECK(seen[i] == 1, "text %ld is in %d samples", (long)i, seen[i]);
        gx_packing_close(&p);
    }
    CHECK(1, "all");
}

// Conversations of different lengths, n of them, of two answers where the number is odd.
static void write_chats(const char *name, int n)
{
    FILE *f = fopen(at(name), "w");
    for (int i = 0; f && i < n; i++) {
        fprintf(f, "{\"messages\": [");
        for (int k = 0; k <= i % 2; k++)
            fprintf(
                f,
                "%s{\"role\": \"user\", \"content\": \"%c%.*s\"}, {\"role\": \"assistant\", \"content\": \"%.*s%c\"}",
                k ? ", " : "", 'a' + i % 26, i * 7 % 11, "xxxxxxxxxxxx", i * 5 % 13, "yyyyyyyyyyyyyy", 'A' + i % 26);
        fprintf(f, "]}\n");
    }
    if (CHECK(f != NULL, "cannot write %s", at(name))) fclose(f);
}

// ---- prompts and completions ---------------------------------------------------------------------------------------

// Document i has these tokens, -1 at the end, of which the last `learned` are learned but for `not_learned` at the end.
static void has_tokens(const GxChatTokens *c, int64_t i, const int32_t *ids, int learned, int not_learned)
{
    const GxTokenDocument *d = &c->file.document[i];
    int64_t n = 0;
    int same = 1;
    while (ids[n] >= 0) n++;
    if (!CHECK(i < c->file.documents && d[1].begin - d[0].begin == n, "document %ld of %ld: %ld tokens, expected %ld",
               (long)i, (long)c->file.documents, (long)(d[1].begin - d[0].begin), (long)n))
        return;
    for (int64_t k = 0; k < n; k++)
        same &= c->ids[d->begin + k] == ids[k] &&
                c->is_learned[d->begin + k] == (k >= n - learned - not_learned && k < n - not_learned);
    CHECK(same, "document %ld has other tokens, or others are learned", (long)i);
}

static const char *const completions[][2] = {{"The sky is", " blue."}, {"The sky is ", "blue."},
                                             {"a wor", "d and more"},  {"", "alone"},
                                             {"ends", " twice</s>"},   {"\xC3\xA9 \xE2\x86\x92", "\n\nnew lines\n"}};
enum { COMPLETIONS = 6 };
// What SFTTrainer of TRL 1.16 makes of them (train_dataset, with the tokenizer of data/ref/dpo), and how many labels.
static const int32_t completion_ids[COMPLETIONS][20] = {
    {0, 294, 78, 269, 84, 98, 292, 230, 75, 85, 94, 78, 23, 1, -1},
    {0, 294, 78, 269, 84, 98, 292, 230, 75, 85, 94, 78, 23, 1, -1},
    {0, 74, 230, 96, 364, 77, 350, 230, 86, 88, 281, 1, -1},
    {0, 74, 85, 274, 78, 1, -1},
    {0, 78, 288, 92, 230, 93, 303, 76, 78, 1, -1},
    {0, 290, 230, 168, 238, 250, 271, 87, 78, 96, 230, 85, 267, 270, 208, 1, -1}};
static const int completion_labels[COMPLETIONS] = {7, 6, 7, 5, 6, 10};

TEST(prompts_and_completions_have_the_tokens_and_labels_of_trl)
{
    GxTokenizer t;
    GxError e = GX_ZERO;
    if (!CHECK(gx_tokenizer_open(&t, "data/ref/dpo", &e) == GX_OK, "%s", e.message)) return;
    for (int way = 0; way < 4; way++) { // JSON lines, with other names; a table, in another order
        const char *name = way < 2 ? "c.jsonl" : way == 2 ? "c.csv" : "c.tsv";
        const GxRecordReading other = {"text", "question", "answer", NULL, NULL};
        const GxChatReading how = {way % 2 ? gx_chat_format("chatml") : NULL, NULL, way % 2 ? &other : NULL};
        GxChatTokens c;
        FILE *f = fopen(at(name), "wb");
        if (!CHECK(f != NULL, "cannot write")) return;
        if (way == 2) fprintf(f, "id,completion,prompt\n");
        if (way == 3) fprintf(f, "\"answer\"\t\"question\"\n");
        for (int i = 0; i < COMPLETIONS; i++) {
            char escaped[100], *to = escaped; // for JSON
            for (const char *p = completions[i][1]; *p; p++)
                if (*p == '\n') *to++ = '\\', *to++ = 'n';
                else *to++ = *p;
            *to = 0;
            if (way < 2)
                fprintf(f, "{\"%s\": \"%s\", \"%s\": \"%s\"}\n", way ? "question" : "prompt", completions[i][0],
                        way ? "answer" : "completion", escaped);
            else if (way == 2) fprintf(f, "%d,\"%s\",\"%s\"\r\n", i, completions[i][1], completions[i][0]);
            else fprintf(f, "\"%s\"\t\"%s\"\n", completions[i][1], completions[i][0]);
        }
        fclose(f);
        CHECK(gx_dataset_is_chat(at(name), gx_chat_record_reading(&how), NULL), "%s is none", name);
        if (!CHECK(gx_chat_tokens_open(&c, at(name), &t, &how, 100, 2, &e) == GX_OK && c.counts.n == COMPLETIONS &&
                       c.counts.texts == COMPLETIONS,
                   "%d: %s", way, e.message))
            break;
        for (int i = 0; i < COMPLETIONS; i++) has_tokens(&c, i, completion_ids[i], completion_labels[i], 0);
        CHECK(c.line[0] == (way < 2 ? 1 : 2) && c.line[5] == (way < 2 ? 6 : 7), "lines %ld, %ld", (long)c.line[0],
              (long)c.line[5]);
        gx_chat_tokens_close(&c);
    }
    const GxChatReading how = {NULL, NULL, NULL};
    GxChatTokens c;
    t.frame[0].n = 0; // nothing predicts the first token
    put("c.jsonl", "{\"prompt\": \"\", \"completion\": \"alone\"}\n");
    if (CHECK(gx_chat_tokens_open(&c, at("c.jsonl"), &t, &how, 100, 2, &e) == GX_OK, "%s", e.message)) {
        has_tokens(&c, 0, completion_ids[3] + 1, 4, 0);
        gx_chat_tokens_close(&c);
    }
    gx_tokenizer_close(&t);
}

TEST(of_a_prompt_of_messages_the_completion_is_learned_alone)
{ // ids are TRL's, and labels, but for those of the line's end behind <|im_end|>, and of a user's turn in a completion
    static const int32_t ids[][60] = {
        {2,  94,  92,  287, 208, 49,  286, 85, 88,  3,   208, 2, 74,  92,
         92, 283, 341, 87,  93,  208, 49,  82, 351, 281, 23,  3, 208, -1},
        {2,   92, 98,  295, 412, 208, 357, 399, 23,  3,   208, 2,   94,  92,  287, 208, 74,  3,
         208, 2,  74,  92,  92,  283, 341, 87,  93,  208, 75,  3,   208, 2,   94,  92,  287, 208,
         76,  3,  208, 2,   74,  92,  92,  283, 341, 87,  93,  208, 77,  230, 78,  3,   208, -1},
        {2,  94, 92,  287, 208, 74, 3,   208, 2,  74, 92, 92,  283, 341, 87, 93,  208, 75, 3,   208, 2,
         94, 92, 287, 208, 76,  3,  208, 2,   74, 92, 92, 283, 341, 87,  93, 208, 77,  3,  208, -1}};
    static const char lines[] = "{\"prompt\": [" USER("Hello") "], \"completion\": [" SAYS(
        "Hi there.") "]}\n"
                     "{\"completion\": [" SAYS(
                         "d e") "], \"prompt\": [{\"role\": \"system\", \"content\": \"Be "
                                "short.\"}, " USER("a") ", " SAYS("b") ", " USER(
                                    "c") "]}\n"
                                         "{\"prompt\": [" USER("a") "], \"completion\": [" SAYS("b") ", " USER(
                                             "c") ", " SAYS("d") ", " USER("e") "]"
                                                                                "}"
                                                                                "\n";
    GxTokenizer t;
    GxError e = GX_ZERO;
    GxChatTokens c;
    const GxChatReading chatml = {gx_chat_format("chatml"), NULL, NULL}, qwen3 = {gx_chat_format("qwen3"), NULL, NULL};
    if (!CHECK(gx_tokenizer_open(&t, "data/ref/dpo", &e) == GX_OK, "%s", e.message)) return;
    put("c.jsonl", lines);
    if (CHECK(gx_chat_tokens_open(&c, at("c.jsonl"), &t, &chatml, 100, 2, &e) == GX_OK && c.counts.n == 3 &&
                  c.counts.texts == 0 && c.counts.unanswered == 1 && c.file.documents == 3,
              "%s", e.message)) {
        has_tokens(&c, 0, ids[0], 6, 1), has_tokens(&c, 1, ids[1], 4, 1);
        const int64_t begin = c.file.document[2].begin;
        for (int k = 0; ids[2][k] >= 0; k++)
            CHECK(c.ids[begin + k] == ids[2][k] &&
                      c.is_learned[begin + k] == (k == 17 || k == 18 || k == 37 || k == 38),
                  "token %d", k);
        gx_chat_tokens_close(&c);
    }
    // cut to what fits, an answer of the completion at least
    if (CHECK(gx_chat_tokens_open(&c, at("c.jsonl"), &t, &chatml, 30, 2, &e) == GX_OK && c.counts.left_out == 1 &&
                  c.counts.shortened == 1 && c.file.documents == 2,
              "%ld, %ld, %ld: %s", (long)c.counts.left_out, (long)c.counts.shortened, (long)c.file.documents,
              e.message)) {
        CHECK(c.is_learned[c.file.document[1].begin + 17] && c.file.document[2].begin - c.file.document[1].begin == 20,
              "%ld tokens", (long)(c.file.document[2].begin - c.file.document[1].begin));
        gx_chat_tokens_close(&c);
    }
    // each answer a document of its own: those of the prompt are none
    GxTokenizer bytes = gx_tokenizer_bytes();
    if (CHECK(gx_chat_tokens_open(&c, at("c.jsonl"), &bytes, &qwen3, 1000, 2, &e) == GX_OK && c.file.documents == 4 &&
                  c.line[1] == 2 && c.line[2] == 3 && c.line[3] == 3,
              "%ld documents: %s", (long)c.file.documents, e.message))
        gx_chat_tokens_close(&c);
    gx_tokenizer_close(&t);
}

TEST(what_is_no_prompt_with_a_completion_is_refused_by_line)
{
    static const struct {
        const char *line, *says;
    } list[] = {
        {"{\"completion\": \"a\", \"promt\": \"b\"}",
         "f:7: there is no \"prompt\"; the line has: completion, promt; --prompt_column NAME names another one"},
        {"{\"prompt\": \"a\", \"completion\": [" SAYS("b") "]}",
         "f:7: \"prompt\" is a string, but \"completion\" is an array; expected two strings, or two lists of messages"},
        {"{\"prompt\": 1, \"completion\": 2}", "f:7: \"prompt\" is an integer, but \"completion\" is an integer"},
        {"{\"prompt\": \"a\", \"completion\": \" \\n\"}", "f:7: \"completion\" is empty"},
        {"{\"prompt\": [" USER("a") ", " SAYS("b") "], \"completion\": [" SAYS("c") "]}",
         "f:7: \"prompt\" ends with a turn of the assistant; expected a turn of the user, which \"completion\" "
         "answers"},
        {"{\"prompt\": [" USER("a") "], \"completion\": [" USER("c") "]}", "f:7: completion[0] is a turn of the user"},
        {"{\"prompt\": [], \"completion\": []}", "f:7: \"prompt\" is empty"},
        {"{\"prompt\": [" USER("a") "], \"completion\": []}", "f:7: \"completion\" is empty"},
        {"{\"prompt\": \"a\"}", "f:7: the record has none of \"messages\""},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"tools\": [1]}", "f:7: the record has \"tools\""}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxChatRecord r;
        GxError e = GX_ZERO;
        CHECK(gx_chat_record_read(&r, list[i].line, &gx_record_reading, "f", 7, &e) != GX_OK &&
                  strstr(e.message, list[i].says) && !r.turn,
              "no \"%s\" in \"%s\"", list[i].says, e.message);
    }
    // a member that an option names wins over others, and lacks with its option
    static const GxRecordReading named = {"text", "q", "a", NULL, NULL};
    GxChatRecord r;
    GxError e = GX_ZERO;
    static const char both[] = "{\"messages\": [" USER("x") ", " SAYS(
        "y") "], \"q\": \"1\", \"a\": \"2\", \"completion\": \"3\", \"prompt\": \"4\"}";
    CHECK(gx_chat_record_read(&r, both, &named, "f", 1, &e) == GX_OK && r.is_text && !strcmp(r.turn[1].text, "2"), "%s",
          e.message);
    gx_chat_record_close(&r);
    CHECK(gx_chat_record_read(&r, both, &gx_record_reading, "f", 1, &e) == GX_OK && !r.is_text &&
              !strcmp(r.turn[1].text, "y"),
          "%s", e.message);
    gx_chat_record_close(&r);
    CHECK(gx_chat_record_read(&r, "{\"q\": \"1\"}", &named, "f", 1, &e) == GX_ERR_FORMAT &&
              strstr(e.message, "there is no \"a\"; the line has: q; --completion_column NAME"),
          "%s", e.message);
}

TEST(tables_are_instructions_prompts_or_texts_by_their_columns)
{
    static const struct {
        const char *name, *text;
        int is_chat, documents, warns;
        const char *says; // where it is refused
    } list[] = {{"t.csv", "prompt,completion\na,b\n\"c\nd\",e\n", 1, 2, 0, NULL},
                {"t.csv", "output,input,instruction\nb,,a\ne,d,c\n", 1, 2, 0, NULL},
                {"t.tsv", "instruction\toutput\na\tb\n", 1, 1, 0, NULL},
                {"t.csv", "text,prompt,completion\na,b,c\n,d,e\nx,y,z\n", 0, 2, 1, NULL},
                {"t.csv", "id;text\r\n1;a\r\n2;\"b;c\"\r\n", 0, 2, 0, NULL},
                {"t.csv", "messages,label\na,b\n", 0, 0, 0,
                 "t.csv: no record has a \"text\" that is not empty; the first record has: messages, label; "
                 "--text_column NAME names another column"},
                {"t.csv", "conversations\na\n", 0, 0, 0, "t.csv: no record has a \"text\""},
                {"t.csv", "prompt,label\na,b\n", 0, 0, 0,
                 "expected .txt, or another text file; .jsonl, .csv or .tsv, whose records have text"},
                {"t.csv", "completion\na\n", 1, 0, 0,
                 "t.csv:1: there is no column \"prompt\"; the first line names, separated by commas: completion; "
                 "--prompt_column NAME"},
                {"t.csv", "prompt,completion\na,\n", 1, 0, 0, "t.csv:2: \"completion\" is empty"},
                {"t.csv", "text\n\"a\n", 0, 0, 0, "t.csv:2: the quotation mark"}};
    const GxLogger log = {hear_log, NULL};
    GxTokenizer t;
    GxError e = GX_ZERO;
    if (!CHECK(gx_tokenizer_open(&t, "data/ref/dpo", &e) == GX_OK, "%s", e.message)) return;
    GxColumnsUsed used = GX_ZERO; // somebody has options for columns
    const GxRecordReading names = {"text", "prompt", "completion", NULL, &used};
    const GxChatReading how = {gx_chat_format("chatml"), NULL, &names};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxBlend b;
        memset(&said, 0, sizeof said);
        put(list[i].name, list[i].text);
        CHECK(gx_dataset_is_chat(at(list[i].name), &gx_record_reading, NULL) == list[i].is_chat, "%s", list[i].text);
        const GxStatus status =
            gx_blend_open(&b, at(list[i].name), "", &t, &how, 0, 2 + 98 * list[i].is_chat, 2, &log, &e);
        CHECK(list[i].says ? status != GX_OK && strstr(e.message, list[i].says)
                           : status == GX_OK && b.source[0].file.documents == list[i].documents,
              "%s: \"%s\" expected in %s", list[i].text, list[i].says ? list[i].says : "", e.message);
        CHECK(list[i].warns == (strstr(said.log, "has both \"text\" and \"prompt\"; the texts are used") != NULL), "%s",
              said.log);
        if (status == GX_OK) {
            CHECK(!b.source[0].packed.samples == !list[i].is_chat && gx_dataset_has_documents(at(list[i].name)), "%s",
                  list[i].text);
            gx_blend_close(&b);
        }
        gx_error_clear(&e);
    }
    gx_tokenizer_close(&t);
}

TEST(conversations_that_are_wrong_are_left_out_and_counted)
{
    static GxBadRecords skip;
    const GxRecordReading reading = {"text", "prompt", "completion", &skip, NULL};
    const GxChatReading how = {gx_chat_format("chatml"), NULL, &reading};
    GxTokenizer bytes = gx_tokenizer_bytes();
    GxError e = GX_ZERO;
    GxChatTokens c;
    put("c.jsonl", "{\"messages\n" CHAT(USER("a") ", " SAYS("b"))
                       CHAT(SAYS("b")) "{\"text\": \"\xFF\"}\n" CHAT(USER("a") ", " SAYS("b")));
    CHECK(gx_dataset_is_chat(at("c.jsonl"), &reading, NULL) &&
              !gx_dataset_is_chat(at("c.jsonl"), &gx_record_reading, NULL),
          "what it is, is said by the first line that can be read");
    if (CHECK(gx_chat_tokens_open(&c, at("c.jsonl"), &bytes, &how, 1000, 2, &e) == GX_OK && c.counts.n == 2 &&
                  c.file.documents == 2 && c.line[0] == 2 && c.line[1] == 5 && skip.n == 3,
              "%ld, %ld: %s", (long)c.counts.n, (long)skip.n, e.message))
        gx_chat_tokens_close(&c);
    CHECK(strstr(skip.why[0], "c.jsonl:1:") && strstr(skip.why[1], "c.jsonl:3: messages[0]") &&
              strstr(skip.why[2], "c.jsonl:4: the byte 0xFF"),
          "%s, %s, %s", skip.why[0], skip.why[1], skip.why[2]);
    memset(&skip, 0, sizeof skip);
    put("c.jsonl", CHAT(SAYS("b")) CHAT(SAYS("b")));
    CHECK(gx_chat_tokens_open(&c, at("c.jsonl"), &bytes, &how, 1000, 2, &e) == GX_ERR_FORMAT &&
              strstr(e.message, "all of its records are wrong, so none is left; the first one: "),
          "%s", e.message);
    gx_error_clear(&e);
    put("c.jsonl", CHAT(SAYS("b")) "\n" CHAT(USER("a") ", " SAYS("b"))); // an empty line is no record
    refused(&e, gx_chat_tokens_open(&c, at("c.jsonl"), &bytes, &how, 1000, 2, &e), GX_ERR_FORMAT,
            "c.jsonl:2: the line is empty");
    const GxChatReading none = {NULL, NULL, &reading}; // no format is no record's fault
    put("c.jsonl", CHAT(USER("a") ", " SAYS("b")));
    refused(&e, gx_chat_tokens_open(&c, at("c.jsonl"), &bytes, &none, 1000, 2, &e), GX_ERR_ARGUMENT,
            "the record is a conversation");
}

TEST(a_sample_holds_whole_conversations_which_do_not_see_each_other)
{
    enum { T = 200, CHATS = 23 };
    static int32_t tokens[2 * T], labels[2 * T], documents[4 * T];
    GxTokenizer bytes = gx_tokenizer_bytes();
    const char *formats[] = {"chatml", "qwen3"};
    for (int k = 0; k < 2; k++) {
        const GxChatReading how = {gx_chat_format(formats[k]), NULL, NULL};
        GxBlend b;
        GxError e = GX_ZERO;
        int64_t seen[2] = {0, 0}, learned[2] = {0, 0}, epoch[2][100];
        write_chats("chats.jsonl", CHATS);
        if (!CHECK(gx_blend_open(&b, at("chats.jsonl"), "", &bytes, &how, 0.2, T, 2, NULL, &e) == GX_OK, "%s",
                   e.message))
            return;
        const GxDataset *d = &b.source[0];
        const int64_t n[2] = {gx_dataset_epoch_samples(d, T), gx_blend_eval_samples(&b)};
        CHECK(n[0] == d->packed.samples && n[1] == d->packed_held_out.samples && n[0] > 3 && n[1] > 1 && n[0] < 100 &&
                  d->chat.n == CHATS,
              "%ld and %ld samples", (long)n[0], (long)n[1]);
        for (int part = 0; part < 2; part++)
            for (int64_t s = 0; s < n[part]; s++) {
                const GxBlendSample to = {tokens, labels, documents, -7, 2};
                CHECK((part ? gx_blend_eval_sample(&b, s, T, &to, &e) : gx_blend_sample(&b, 9, s, T, &to, NULL, &e)) ==
                          GX_OK,
                      "%s", e.message);
                for (int t = 0; t < T; t++) {
                    const int32_t *own = documents + 4 * t;
                    const int is_padding = own[1] == 0;
                    CHECK(is_padding ? own[0] == 0 && tokens[2 * t] == 0 : own[0] <= t && t < own[1], "token %d", t);
                    if (!is_padding && t == own[0])
                        CHECK(tokens[2 * t] == '<' && tokens[2 * (own[1] - 1)] == '\n', "document %d to %d", own[0],
                              own[1]);
                    if (is_padding || t == own[1] - 1)
                        CHECK(labels[2 * t] == -7, "token %d has the label %d", t, labels[2 * t]);
                    if (labels[2 * t] != -7) CHECK(labels[2 * t] == tokens[2 * t + 2], "label %d", t);
                    seen[part] += !is_padding, learned[part] += labels[2 * t] != -7;
                }
            }
        CHECK(seen[0] == d->train.n && seen[1] == d->held_out.n && learned[0] + learned[1] == d->chat.learned,
              "%ld and %ld tokens of %ld and %ld; %ld of %ld learned", (long)seen[0], (long)seen[1], (long)d->train.n,
              (long)d->held_out.n, (long)(learned[0] + learned[1]), (long)d->chat.learned);
        for (int which = 0; which < 2; which++) { // each epoch has each sample once, the second in another order
            int64_t sum = 0;
            for (int64_t s = 0; s < n[0]; s++) epoch[which][s] = gx_dataset_packed_number(d, 9, which * n[0] + s);
            for (int64_t s = 0; s < n[0]; s++) sum += (int64_t)1 << epoch[which][s];
            CHECK(sum == ((int64_t)1 << n[0]) - 1, "epoch %d", which);
        }
        CHECK(memcmp(epoch[0], epoch[1], (size_t)n[0] * 8), "both epochs are in one order");
        gx_blend_close(&b);
    }
}

// ---- files of tokens of conversations ------------------------------------------------------------------------------

static const char *conversations = "chats.jsonl"; // what becomes chats.tokens

// Two datasets of the same conversations, one of them read from a file of tokens.
static void check_same_samples(const char *what, const GxTokenizer *t, const GxChatReading *how, int64_t T)
{
    enum { MOST_T = 5000, SAMPLES = 100 };
    static int32_t room[2][4 * MOST_T];
    GxBlend b[2];
    GxError e = GX_ZERO;
    const char *const paths[] = {at(conversations), at("chats.tokens")};
    for (int i = 0; i < 2; i++)
        if (!CHECK(gx_blend_open(&b[i], paths[i], "", t, how, 0.3, T, 2, NULL, &e) == GX_OK, "%s: %s", what, e.message))
            return;
    const GxDataset *d[] = {&b[0].source[0], &b[1].source[0]};
    CHECK(d[1]->fd >= 0 && !d[1]->ids && !d[1]->is_learned, "%s: it lies in memory", what);
    CHECK(!memcmp(&d[0]->chat, &d[1]->chat, sizeof d[0]->chat), "%s: other counts", what);
    CHECK(!memcmp(&d[0]->train, &d[1]->train, 4 * sizeof d[0]->train), "%s: divided otherwise", what); // and texts
    CHECK(d[0]->held_out.n > 0 && d[0]->packed.samples > 2, "%s: too little", what);
    const int64_t n[] = {gx_dataset_epoch_samples(d[0], T), gx_blend_eval_samples(&b[0])};
    int64_t learned = 0; // in an epoch, and of what is held out
    CHECK(n[0] == gx_dataset_epoch_samples(d[1], T) && n[1] == gx_blend_eval_samples(&b[1]), "%s: other numbers", what);
    for (int part = 0; part < 2; part++)
        for (int64_t s = 0; s < n[part] + (part ? 0 : 3) && s < SAMPLES; s++) { // also of a second epoch
            int64_t padding[2] = {0, 0};
            for (int i = 0; i < 2; i++) {
                const GxBlendSample to = {room[i], room[i] + T, room[i] + 2 * T, -7, 1};
                CHECK((part ? gx_blend_eval_sample(&b[i], s, T, &to, &e)
                            : gx_blend_sample(&b[i], 5, s, T, &to, &padding[i], &e)) == GX_OK,
                      "%s: %s", what, e.message);
            }
            CHECK(!memcmp(room[0], room[1], 16 * (size_t)T) && padding[0] == padding[1], "%s: sample %ld of part %d",
                  what, (long)s, part);
            for (int64_t k = T; s < n[part] && k < 2 * T; k++) learned += room[1][k] != -7;
        }
    CHECK(learned == d[1]->chat.learned, "%s: %ld labels are learned, of %ld tokens", what, (long)learned,
          (long)d[1]->chat.learned);
    gx_blend_close(&b[0]), gx_blend_close(&b[1]);
}

static GxStatus write_tokens(const GxTokenizer *t, const GxChatReading *how, int64_t T, int64_t piece, int64_t part,
                             GxError *e)
{
    GxCorpusWriting writing = GX_ZERO;
    GxCorpus all;
    writing.threads = 2, writing.piece = piece, writing.part = part;
    writing.chats = how, writing.seq_len = T, writing.date = "";
    unlink(at("chats.tokens"));
    return gx_corpus_write(at("chats.tokens"), at(conversations), t, &writing, &all, e);
}

// Written at once, or in parts of a few conversations: the same bytes, and the samples of the conversations themselves.
TEST(a_file_of_tokens_has_the_samples_of_the_conversations_it_was_made_of)
{
    static const struct {
        const char *format;
        int64_t T;
    } cases[] = {{"chatml", 200}, {"qwen3", 300}, {"chatml", 90}, {"llama2", 60}}; // some are shortened, or left out
    GxTokenizer bytes = gx_tokenizer_bytes();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const GxChatReading how = {gx_chat_format(cases[i].format), NULL, NULL};
        static const int64_t sizes[][2] = {{0, 0}, {300, 500}, {1, 1}};
        GxError e = GX_ZERO;
        char *first = NULL;
        int64_t first_bytes = 0;
        write_chats("chats.jsonl", 45);
        for (int k = 0; k < 3; k++) {
            char *now;
            int64_t n;
            if (!CHECK(write_tokens(&bytes, &how, cases[i].T, sizes[k][0], sizes[k][1], &e) == GX_OK, "%s",
                       e.message) ||
                !CHECK(gx_file_read(at("chats.tokens"), 1 << 24, &now, &n, &e) == GX_OK, "%s", e.message))
                return;
            if (k == 0) first = now, first_bytes = n;
            else {
                CHECK(n == first_bytes && !memcmp(first, now, (size_t)n), "%s, %ld: written in parts: other bytes",
                      cases[i].format, (long)cases[i].T);
                free(now);
            }
        }
        free(first);
        check_same_samples(cases[i].format, &bytes, &how, cases[i].T);
    }
}

// Of more tokens than are read at once.
TEST(prompts_with_completions_and_tables_of_them_become_files_of_tokens)
{
    static const char *const files[] = {"prompts.jsonl", "prompts.csv", "instructions.tsv"};
    GxTokenizer t;
    GxError opened = GX_ZERO;
    const GxChatReading how = {NULL, NULL, NULL}, chatml = {gx_chat_format("chatml"), NULL, NULL};
    char text[3][8000];
    int n[3];
    if (!CHECK(gx_tokenizer_open(&t, "data/ref/dpo", &opened) == GX_OK, "%s", opened.message)) return;
    n[0] = 0, n[1] = sprintf(text[1], "completion,prompt\n"), n[2] = sprintf(text[2], "instruction\toutput\n");
    for (int i = 0; i < 40; i++) {
        n[0] += sprintf(text[0] + n[0], "{\"prompt\": \"say %d\", \"completion\": \" then, %.*s\"}\n", i, i % 9,
                        "abcdefghi");
        n[1] += sprintf(text[1] + n[1], "\"then, %.*s\",\"say\n%d\"\n", i % 9, "abcdefghi", i);
        n[2] += sprintf(text[2] + n[2], "say %d\tthen, %.*s\n", i, i % 9, "abcdefghi");
    }
    for (int k = 0; k < 3; k++) {
        char *whole, *parts;
        int64_t bytes_of[2];
        GxError e = GX_ZERO;
        put(files[k], text[k]);
        conversations = files[k];
        if (!CHECK(write_tokens(&t, &how, 80, 300, 500, &e) == GX_OK, "%s", e.message) ||
            !CHECK(gx_file_read(at("chats.tokens"), 1 << 24, &parts, &bytes_of[0], &e) == GX_OK, "%s", e.message) ||
            !CHECK(write_tokens(&t, &how, 80, 0, 0, &e) == GX_OK, "%s", e.message) ||
            !CHECK(gx_file_read(at("chats.tokens"), 1 << 24, &whole, &bytes_of[1], &e) == GX_OK, "%s", e.message))
            break;
        CHECK(bytes_of[0] == bytes_of[1] && !memcmp(whole, parts, (size_t)bytes_of[0]), "%s: other bytes", files[k]);
        check_same_samples(files[k], &t, &how, 80);
        if (k < 2) check_same_samples("with a template, which they do not need", &t, &chatml, 80);
        free(whole), free(parts);
    }
    conversations = "chats.jsonl";
    gx_tokenizer_close(&t);
}

TEST(a_long_conversation_has_the_same_labels_from_a_file_of_tokens)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading how = {gx_chat_format("chatml"), NULL, NULL};
    GxError e = GX_ZERO;
    FILE *f = fopen(at("chats.jsonl"), "w");
    for (int i = 0; f && i < 4; i++)
        fprintf(f, "{\"messages\": [" USER("%d") ", {\"role\": \"assistant\", \"content\": \"%0*d\"}]}\n", i, 4300 + i,
                123456 * i);
    if (CHECK(f != NULL, "cannot write")) fclose(f);
    if (CHECK(write_tokens(&bytes, &how, 5000, 0, 0, &e) == GX_OK, "%s", e.message))
        check_same_samples("long", &bytes, &how, 5000);
}

static void refuses_tokens(const GxTokenizer *t, const GxChatReading *how, int64_t T, const char *says)
{
    GxBlend b;
    GxError e = GX_ZERO;
    const GxStatus status = gx_blend_open(&b, at("chats.tokens"), "", t, how, 0.3, T, 1, NULL, &e);
    CHECK(status != GX_OK && strstr(e.message, says), "no \"%s\": %s", says, e.message);
    if (status == GX_OK) gx_blend_close(&b);
}

TEST(a_file_of_tokens_of_another_format_or_of_longer_conversations_is_refused)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading chatml = {gx_chat_format("chatml"), NULL, NULL},
                        llama2 = {gx_chat_format("llama2"), NULL, NULL}, none = {NULL, "there is no template", NULL},
                        alpaca = {NULL, NULL, NULL};
    GxError e = GX_ZERO;
    GxBlend b;
    const GxLogger hear = {hear_log, NULL};
    int warned;
    write_chats("chats.jsonl", 45);
    if (!CHECK(write_tokens(&bytes, &chatml, 130, 0, 0, &e) == GX_OK, "%s", e.message)) return;
    refuses_tokens(&bytes, &llama2, 130, "was made with the chat template chatml, but this run has llama2");
    refuses_tokens(&bytes, &none, 130, "but this run has none");
    refuses_tokens(&bytes, &alpaca, 130, "but this run has alpaca");
    refuses_tokens(&bytes, NULL, 130, "holds conversations, but texts are expected here");
    refuses_tokens(&bytes, &chatml, 60, "was made with --seq_len 130 and has a conversation of ");
    for (int k = 0; k < 2; k++) { // some are shortened at 130, which matters where there is more room
        said.log[0] = 0;
        if (!CHECK(gx_blend_open(&b, at("chats.tokens"), "", &bytes, &chatml, 0.3, 130 + 70 * k, 1, &hear, &e) == GX_OK,
                   "%s", e.message))
            return;
        warned = strstr(said.log, "although this run's --seq_len 200 has more room") != NULL;
        CHECK(warned == k && (k == 0 || b.source[0].chat.shortened > 0), "it says: %s", said.log);
        gx_blend_close(&b);
    }
    // What fits has the samples of any seq_len.
    if (!CHECK(write_tokens(&bytes, &chatml, 400, 0, 0, &e) == GX_OK, "%s", e.message)) return;
    check_same_samples("400 for 250", &bytes, &chatml, 250);
    refused(&e, write_tokens(&bytes, &chatml, 4, 0, 0, &e), GX_ERR_FORMAT,
            "none of its 45 conversations has an answer");
}

TEST(no_byte_of_a_file_of_tokens_of_conversations_changes_unnoticed)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading how = {gx_chat_format("qwen3"), NULL, NULL};
    GxError e = GX_ZERO;
    char *text;
    int64_t n;
    write_chats("chats.jsonl", 9);
    if (!CHECK(write_tokens(&bytes, &how, 300, 0, 0, &e) == GX_OK, "%s", e.message) ||
        !CHECK(gx_file_read(at("chats.tokens"), 1 << 24, &text, &n, &e) == GX_OK, "%s", e.message))
        return;
    for (int64_t i = 0; i < n; i += i < 128 || i > n - 700 ? 1 : 37) {
        GxBlend b;
        GxError found = GX_ZERO;
        text[i] = (char)(text[i] ^ 4);
        CHECK(gx_file_write(at("damaged.tokens"), text, n, &e) == GX_OK, "%s", e.message);
        text[i] = (char)(text[i] ^ 4);
        GxStatus status = gx_blend_open(&b, at("damaged.tokens"), "", &bytes, &how, 0.3, 300, 1, NULL, &found);
        const int is_open = status == GX_OK;
        for (int64_t s = 0; status == GX_OK && s < gx_dataset_epoch_samples(&b.source[0], 300); s++) {
            static int32_t room[1200];
            const GxBlendSample to = {room, room + 300, room + 600, -7, 1};
            status = gx_blend_sample(&b, 5, s, 300, &to, NULL, &found);
        }
        CHECK(status != GX_OK, "byte %ld of %ld", (long)i, (long)n);
        if (is_open) gx_blend_close(&b);
    }
    free(text);
}

// A run that ended early goes on, with the same format alone.
TEST(conversations_that_are_tokenized_in_parts_go_on_with_the_same_format_alone)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading chatml = {gx_chat_format("chatml"), NULL, NULL},
                        llama2 = {gx_chat_format("llama2"), NULL, NULL};
    GxError e = GX_ZERO;
    char *whole, *now, *all;
    int64_t n, m;
    write_chats("chats.jsonl", 45);
    if (!CHECK(write_tokens(&bytes, &chatml, 130, 0, 0, &e) == GX_OK, "%s", e.message) ||
        !CHECK(gx_file_read(at("chats.tokens"), 1 << 24, &whole, &n, &e) == GX_OK, "%s", e.message))
        return;
    all = get(at("chats.jsonl"));
    char *bad = strdup(all), *last = strrchr(bad, 'A' + 44 % 26); // in the last line: an error behind many parts
    last[-1] = '\n', last[0] = '\n';
    put("chats.jsonl", bad);
    CHECK(write_tokens(&bytes, &chatml, 130, 300, 500, &e) == GX_ERR_FORMAT, "it is whole");
    CHECK(gx_path_is_file(at("chats.tokens.parts/progress.json")), "no parts are left: %s", e.message);
    gx_error_clear(&e);
    refused(&e, write_tokens(&bytes, &llama2, 130, 300, 500, &e), GX_ERR_ARGUMENT,
            "or another chat template, --chat_date");
    refused(&e, write_tokens(&bytes, &chatml, 131, 300, 500, &e), GX_ERR_ARGUMENT,
            "or another chat template, --chat_date");
    struct stat st;
    stat(at("chats.jsonl"), &st);
    put("chats.jsonl", all);
    const struct timespec times[2] = {st.st_atim, st.st_mtim}; // as if it had been so all the time
    utimensat(AT_FDCWD, at("chats.jsonl"), times, 0);
    if (CHECK(write_tokens(&bytes, &chatml, 130, 300, 500, &e) == GX_OK, "%s", e.message) &&
        CHECK(gx_file_read(at("chats.tokens"), 1 << 24, &now, &m, &e) == GX_OK, "%s", e.message)) {
        CHECK(n == m && !memcmp(whole, now, (size_t)n), "other bytes");
        free(now);
    }
    free(whole), free(all), free(bad);
}

TEST(whole_conversations_are_held_out_at_the_end)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading how = {gx_chat_format("qwen3"), NULL, NULL};
    static const double fractions[] = {0, 1e-9, 0.1, 0.5, 0.9};
    GxError e = GX_ZERO;
    write_chats("chats.jsonl", 20);
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        GxChatTokens c;
        GxDataset d;
        if (!CHECK(gx_chat_tokens_open(&c, at("chats.jsonl"), &bytes, &how, 500, 1, &e) == GX_OK &&
                       gx_dataset_open_chat(&d, at("chats.jsonl"), &bytes, &how, fractions[i], 500, 1, &e) == GX_OK,
                   "%s", e.message))
            return;
        int64_t cut = 0, longest = 0; // of the first document that is held out
        while (cut < c.file.documents && c.file.document[cut].begin < d.train.n) cut++;
        for (int64_t k = 0, from = 0; k < c.file.documents; k++) {
            if (k > 0 && c.line[k] != c.line[k - 1]) from = c.file.document[k].begin;
            longest = gx_max(longest, c.file.document[k + 1].begin - from);
        }
        const double wanted = fractions[i] * (double)c.file.tokens;
        CHECK(d.train.n + d.held_out.n == c.file.tokens && c.file.document[cut].begin == d.train.n, "%g", fractions[i]);
        CHECK(cut == c.file.documents || c.line[cut] != c.line[cut - 1], "%g: a conversation is divided", fractions[i]);
        CHECK((d.held_out.n > 0) == (fractions[i] > 0), "%g: %ld tokens held out", fractions[i], (long)d.held_out.n);
        if (fractions[i] > 0.05) // half of one conversation off, at most
            CHECK(fabs((double)d.held_out.n - wanted) <= (double)longest / 2 + 1, "%g: %ld held out", fractions[i],
                  (long)d.held_out.n);
        gx_chat_tokens_close(&c), gx_dataset_close(&d);
    }
    GxDataset d;
    put("chats.jsonl", CHAT(USER("a") ", " SAYS("b") ", " USER("c") ", " SAYS("d")));
    refused(&e, gx_dataset_open_chat(&d, at("chats.jsonl"), &bytes, &how, 0.1, 500, 1, &e), GX_ERR_FORMAT,
            "has only one conversation, of which none can be held out");
}

// ---- a training ----------------------------------------------------------------------------------------------------

static struct {
    double loss, norm, validation;
} told; // of the first step; norm: of its gradients

static int train_chat(GxContext *g, int argc, char **argv)
{
    static const GxReporter reporter = {hear_out, NULL, NULL};
    GxTrainer t = GX_ZERO;
    GxLosses losses;
    g->reporter = &reporter;
    g->log.write = hear_log;
    gx_trainer_open(&t, g, &gx_llama, &gx_causal_lm, NULL, argc, argv);
    while (gx_trainer_next(&t)) {
        gx_trainer_step(&t);
        gx_evaluate(&t.session, 0, &losses);
        gx_trainer_report(&t);
        if (g->rank != 0 || t.run.at.step != 1) continue;
        told.loss = gx_step_loss(&t.session.seen), told.norm = sqrt(t.session.seen.sum_squares);
        told.validation = gx_losses_mean(&losses, 0);
    }
    return gx_trainer_close(&t);
}

static int train_with(const char *data, const char *more)
{
    char line[4 * GX_PATH], *argv[60] = {(char *)"train"};
    int argc = 1;
    memset(&said, 0, sizeof said), memset(&told, 0, sizeof told);
    snprintf(line, sizeof line,
             "--train_data %s --output_dir %s --overwrite_output_dir true --hidden_size 16 --intermediate_size 16 "
             "--num_hidden_layers 1 --num_attention_heads 2 --num_key_value_heads 1 --threads 1 --logging_steps 1 "
             "--sample_tokens 0 --max_steps 1 --optimizer sgd --learning_rate 0.01 %s",
             data, at("out"), more);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    return gx_launch(train_chat, argc, argv);
}

// CHATS conversations of LENGTH bytes; what is learned of them as a file of tokens with a mask, and two more behind
// them: the windows of such a file leave out as much.
enum { CHATS = 6, LENGTH = USER_BYTES + SAYS_BYTES + 8 };
static void write_both(void)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading how = {gx_chat_format("chatml"), NULL, NULL};
    GxChatTokens c;
    GxError e = GX_ZERO;
    unsigned char mask[(CHATS + 2) * LENGTH / 8 + 1] = {0};
    FILE *f = fopen(at("chats.jsonl"), "w");
    for (int i = 0; f && i < CHATS + 2; i++) {
        fprintf(f, "{\"messages\": [{\"role\": \"user\", \"content\": \"%c%c%c\"}, ", 'a' + i, 'm' + i, 'q' - i);
        fprintf(f, "{\"role\": \"assistant\", \"content\": \"%c.%c%c%c\"}]}\n", 'A' + i, 'm' - i, 'M' - i, '0' + i);
        if (i == CHATS - 1) fclose(f), f = fopen(at("more.jsonl"), "w");
    }
    if (!CHECK(f != NULL, "cannot write")) return;
    fclose(f);
    char *chats = get(at("chats.jsonl")), *more = get(at("more.jsonl")), both[4000];
    snprintf(both, sizeof both, "%s%s", chats, more), put("both.jsonl", both);
    free(chats), free(more), unlink(at("both.tokens"));
    if (!CHECK(gx_chat_tokens_open(&c, at("both.jsonl"), &bytes, &how, 1000, 1, &e) == GX_OK, "%s", e.message)) return;
    CHECK(c.file.tokens == (CHATS + 2) * LENGTH, "%ld tokens", (long)c.file.tokens);
    for (int64_t i = 0; i < c.file.tokens; i++) mask[i / 8] |= (unsigned char)(c.is_learned[i] << (i % 8));
    GxTokenFile file = c.file;
    file.joins = NULL; // as texts with a mask, which windows are made of
    CHECK(gx_token_file_write(at("both.tokens"), &file, c.ids, mask, &e) == GX_OK, "%s", e.message);
    gx_chat_tokens_close(&c);
}

// The longest chain of roundings behind a step's loss, as in test_task.cu.
static double depth(void)
{
    const double H = 16, F = 16, T = 2 * LENGTH, V = 256, layer = 4 * H + F + H + H / 2 + T;
    return 2 * (layer + H + V) + CHATS / 2 * T;
}

// Two conversations share a sample in both files, and a step sees all of them: the same tokens are learned.
TEST(the_loss_of_conversations_is_that_of_their_tokens_with_a_mask_on_any_number_of_ranks)
{
    char more[200];
    write_both();
    snprintf(more, sizeof more, "--validation_fraction 0 --micro_batch_size 3 --seq_len %d", 2 * LENGTH);
    CHECK(train_with(at("both.tokens"), more) == 0 && !said.log[0], "%s", said.log);
    const double loss = told.loss, norm = told.norm;
    static const char *const ways[] = {"--micro_batch_size 3", "--micro_batch_size 1 --ranks 3",
                                       "--micro_batch_size 3 --mode tp --ranks 2 --show_data 1"};
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more, "--validation_fraction 0 --chat_template chatml --seq_len %d %s", 2 * LENGTH,
                 ways[i]);
        if (!CHECK(train_with(at("chats.jsonl"), more) == 0 && !said.log[0], "%s", said.log)) return;
        test_close_number("loss", told.loss, loss, test_bound(depth()));
        test_close_number("norm", told.norm, norm, test_bound(2 * depth()));
        CHECK(strstr(said.out, "6 conversations, format chatml;") &&
                  strstr(said.out, "21.7% of them learned; 3 samples of 138 tokens"),
              "%s", said.out);
    }
    CHECK(strstr(said.out, "sample 0, document 2: 69 tokens, 15 of them learned\n<|im_start|>user\n") &&
              strstr(said.out, "<|im_start|>assistant\n⟦") && strstr(said.out, "<|im_end|>⟧\n") &&
              !strstr(said.out, "sample 1,") && !strstr(said.out, "padding"),
          "%s", said.out);
    CHECK(fabs(loss - log(256.0)) < 0.5 && norm > 0.01, "loss %g, norm %g", loss, norm);
}

TEST(a_column_that_nothing_is_read_by_is_an_error)
{
    static const struct {
        const char *file, *more, *says;
    } cases[] = {
        {"qa.csv", "--prompt_column qestion --completion_column anser",
         "has \"qestion\" and \"anser\"; check the names"},
        {"qa.csv", "--prompt_column nope", "\"nope\""},
        {"qa.csv", "--text_column nope", "no record has a \"nope\""},
        {"qa.csv", "--text_column question --prompt_column question --completion_column answer",
         "--text_column question: nothing was read from"},
        {"qa.txt", "--text_column q", "--text_column q: nothing was read from"},
        {"qa.csv", "--prompt_column question --completion_column answer", NULL},
        {"qa.csv", "--text_column answer", NULL},
    };
    char csv[4000], text[2000], more[400];
    int n = sprintf(csv, "text,question,answer\n"), m = 0;
    for (int i = 0; i < 40; i++) {
        n += sprintf(csv + n, "text of number %d,what is %d?,it is %d.\n", i, i, i);
        m += sprintf(text + m, "a line, of number %d\n", i);
    }
    put("qa.csv", csv), put("qa.txt", text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(more, sizeof more, "--seq_len 64 --validation_fraction 0 --tokenizer data/ref/dpo --vocab_size 0 %s",
                 cases[i].more);
        const int status = train_with(at(cases[i].file), more);
        CHECK(cases[i].says ? status == 1 && strstr(said.log, cases[i].says) : status == 0, "%s: %d, %s", cases[i].more,
              status, said.log);
    }
}

// The last two are held out in both: their loss is counted over what the assistant says.
TEST(a_validation_of_conversations_is_over_what_the_assistant_says)
{
    char more[200];
    write_both();
    snprintf(more, sizeof more, "--validation_fraction 0.25 --micro_batch_size 2 --seq_len %d --chat_template chatml",
             LENGTH);
    CHECK(train_with(at("both.jsonl"), more) == 0 && !strncmp(said.log, "2 samples are all that is held out", 34) &&
              strchr(said.log, '\n') == strrchr(said.log, '\n'),
          "%s", said.log);
    CHECK(strstr(said.out, " over 30 tokens\n") && !strstr(said.out, "bits per byte"), "%s", said.out);
    CHECK(told.validation > 4 && told.validation < 7, "validation loss %g", told.validation);
    snprintf(more, sizeof more,
             "--validation_fraction 0 --seq_len %d --chat_template chatml --separate_documents false --show_data 2 "
             "--micro_batch_size 2",
             3 * LENGTH + 5);
    CHECK(train_with(at("both.jsonl"), more) == 0 && !said.log[0], "%s", said.log);
    CHECK(strstr(said.out, "sample 1, document 2: 69 tokens, 15 of them learned\n") &&
              strstr(said.out, "tokens of padding"),
          "%s", said.out);
}

TEST(a_training_leaves_bad_records_out_and_says_it_once_on_any_ranks)
{
    static const struct {
        const char *name, *text, *more, *says[3];
    } list[] = {{"q.csv",
                 "question,answer\n\"The sky\nis\", blue.\nbad\nThe grass is, green.\nThe sun is, yellow.\n,\n",
                 "--seq_len 24 --prompt_column question --completion_column answer",
                 {"2 records are left out (--skip_bad_records)", "q.csv:4: 1 column", "q.csv:7: \"answer\" is empty"}},
                {"b.jsonl",
                 "{\"body\": \"one two three\"}\n{\"body\": 7}\n{\"body\": \"four five six seven\"}\n",
                 "--seq_len 4 --text_column body",
                 {"1 record is left out (--skip_bad_records)", "b.jsonl:2: \"body\" is an integer", ""}},
                {"b.csv",
                 "body;id\none two three;1\nx\"y;2\nfour five six seven;3\n",
                 "--seq_len 4 --text_column body",
                 {"1 record is left out (--skip_bad_records)", "b.csv:3: column 1 contains a quotation mark", ""}}};
    for (int i = 0; i < 6; i++) {
        const int k = i / 2;
        char more[400];
        double loss = told.loss;
        put(list[k].name, list[k].text);
        snprintf(more, sizeof more,
                 "--tokenizer data/ref/dpo --validation_fraction 0 --global_batch_size 2 "
                 "--micro_batch_size 1 --skip_bad_records true --ranks %d %s",
                 1 + i % 2, list[k].more);
        CHECK(train_with(at(list[k].name), more) == 0, "%s", said.log);
        for (int w = 0; w < 3; w++) {
            const char *first = strstr(said.log, list[k].says[w]);
            CHECK(first && (!list[k].says[w][0] || !strstr(first + 1, list[k].says[w])), "\"%s\" once in %s",
                  list[k].says[w], said.log);
        }
        if (i % 2) CHECK(fabs(told.loss - loss) < 1e-5, "the loss is %g on two ranks, %g on one", told.loss, loss);
        if (k == 0) CHECK(strstr(said.out, "3 prompts with completions;"), "%s", said.out);
    }
    put("q.csv", list[0].text); // without the option each of them is an error
    CHECK(train_with(at("q.csv"),
                     "--tokenizer data/ref/dpo --validation_fraction 0 --seq_len 24 --prompt_column question "
                     "--completion_column answer") != 0 &&
              strstr(said.log, "q.csv:4: 1 column; expected 2"),
          "%s", said.log);
    CHECK(train_with(at("q.csv"), "--tokenizer data/ref/dpo --seq_len 24 --prompt_column a --completion_column a") !=
                  0 &&
              strstr(said.log, "--prompt_column and --completion_column are both \"a\""),
          "%s", said.log);
}

TEST(a_run_goes_on_with_the_same_conversations_and_not_in_another_format)
{
    static const char *const ways[] = {"--resume auto --max_steps 2",
                                       "--resume auto --max_steps 3 --chat_template llama2"};
    char more[400];
    write_both();
    snprintf(more, sizeof more,
             "--validation_fraction 0 --micro_batch_size 3 --seq_len %d --chat_template chatml --output_dir %s",
             3 * LENGTH, at("goes_on"));
    CHECK(train_with(at("chats.jsonl"), more) == 0 && !said.log[0], "%s", said.log);
    for (int i = 0; i < 2; i++) {
        char line[GX_PATH], *argv[20] = {(char *)"train"};
        int argc = 1;
        memset(&said, 0, sizeof said);
        snprintf(line, sizeof line, "--output_dir %s %s", at("goes_on"), ways[i]);
        for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
        const int status = gx_launch(train_chat, argc, argv);
        CHECK(status == i, "%s: status %d, %s%s", ways[i], status, said.out, said.log);
        if (i == 1) CHECK(strstr(said.log, "text"), "%s", said.log);
    }
}

// The template of the checkpoint is executed; the name that training_args.json has is the next best.
TEST(the_format_is_that_of_the_models_folder_on_all_ranks)
{
    static const struct {
        const char *jinja;
        int status;
        const char *says;
    } list[] = {
        {NULL, 0, "format chatml"},
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if "
         "add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
         0, "model/chat_template.jinja"},
        {"\n\n{{ messages | frobnicate }}", 1, "chats.jsonl:1: the record is a conversation, and "},
        {"{{ raise_exception('not today') }}", 1, "not today"},
        {"{% for m in messages %}{{ m.role }}{% endfor %}", 1, "what the assistant says is not in what it writes"},
        {"", 1, "and neither the model's folder nor the tokenizer's has"}};
    char more[2 * GX_PATH], model[GX_PATH];
    write_both();
    snprintf(more, sizeof more, "--validation_fraction 0 --chat_template chatml --micro_batch_size 3 --seq_len %d",
             2 * LENGTH);
    CHECK(train_with(at("chats.jsonl"), more) == 0, "%s", said.log);
    snprintf(model, sizeof model, "%s", at("model"));
    CHECK(rename(at("out/checkpoint-1"), model) == 0, "no checkpoint");
    unlink(at("model/manifest.json")), unlink(at("model/chat_template.jinja"));
    double loss = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(more, sizeof more, "--model %s --validation_fraction 0 --micro_batch_size 1 --ranks 3 --seq_len %d",
                 model, 2 * LENGTH);
        if (list[i].jinja) unlink(at("model/training_args.json"));
        if (list[i].jinja && list[i].jinja[0]) put("model/chat_template.jinja", list[i].jinja);
        else unlink(at("model/chat_template.jinja"));
        const int status = train_with(at("chats.jsonl"), more);
        CHECK(status == list[i].status && strstr(status ? said.log : said.out, list[i].says), "%d: %d, %s%s", (int)i,
              status, said.out, said.log);
        if (i == 2) CHECK(strstr(said.log, "chat_template.jinja:3") && strstr(said.log, "frobnicate"), "%s", said.log);
        if (i == 0) loss = told.loss;
        if (i == 1) CHECK(told.loss == loss, "loss %.9g, of the name %.9g", told.loss, loss);
    }
}

// ---- what is saved -------------------------------------------------------------------------------------------------

static GxJson *json_of(const char *name)
{
    GxJson *json = NULL;
    GxError e = GX_ZERO;
    CHECK(gx_json_read_with(&json, at(name), 1 << 20, GX_JSON_BIG_INTEGERS, &e) == GX_OK, "%s", e.message);
    return json;
}

// A folder says these tokens: as JSON, "null" of what is not there.
static void check_saved(const char *from, const char *file, const char *key, const char *expected)
{
    char name[200], *text = NULL;
    int64_t bytes;
    GxError e = GX_ZERO;
    snprintf(name, sizeof name, "%s/%s", from, file);
    GxJson *json = json_of(name);
    if (gx_json_get(json, key)) gx_json_dump(gx_json_get(json, key), 0, &text, &bytes, &e);
    CHECK(!strcmp(text ? text : "null", expected), "%s: %s is %s, expected %s", name, key, text, expected);
    free(text), gx_json_free(json);
}

static void check_saved_template(const char *from, const char *format)
{
    char name[200], *expected = NULL;
    GxError e = GX_ZERO;
    snprintf(name, sizeof name, "%s/chat_template.jinja", from);
    gx_chat_jinja(gx_chat_format(format), &expected, &e);
    char *text = get(at(name));
    CHECK(!strcmp(text, expected), "%s:\n%s\nexpected\n%s", name, text, expected);
    free(text), free(expected);
}

static int merge_it(GxContext *g, int argc, char **argv)
{
    GxMergeSaid merged;
    g->log.write = hear_log;
    (void)argc;
    return gx_merge_adapter(g, argv[1], "", argv[2], GX_F32, 1, 0, &merged) != GX_OK;
}

static void make_tokenizer_folder(const char *name)
{
    char path[200];
    mkdir(at(name), 0777);
    char *json = get("data/ref/chat_train/metaspace.json"); // <unk> 0, <s> 1, </s> 2, <|im_start|> 3, <|im_end|> 4
    snprintf(path, sizeof path, "%s/tokenizer.json", name), put(path, json);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", name);
    put(path,
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"unk_token\": \"<unk>\", \"chat_template\": \"mine\", "
        "\"model_max_length\": 1000000000000000019884624838656}");
    free(json);
}

static int train_small(const char *data, const char *to, const char *more)
{
    char line[3 * GX_PATH];
    snprintf(line, sizeof line, "--validation_fraction 0 --micro_batch_size 3 --seq_len 100 --output_dir %s %s", at(to),
             more);
    return train_with(data, line);
}

// eos_token_id of config.json is the tokenizer's; generation_config.json has the end of a turn, too, and the template
// is that which was trained: in a model's folder, in an adapter's, and where that is merged.
TEST(what_is_saved_stops_and_talks_elsewhere_as_it_was_taught)
{
    char more[3 * GX_PATH];
    write_both(), make_tokenizer_folder("tok");
    // nothing but text: where a text ends; what the tokenizer's folder says stays
    put("plain.txt",
        "some text, some text, some text, some text, some text, some text, some text, some text, some text");
    snprintf(more, sizeof more, "--tokenizer %s --micro_batch_size 1 --seq_len 8", at("tok"));
    CHECK(train_small(at("plain.txt"), "plain", more) == 0, "%s", said.log);
    check_saved("plain/checkpoint-1", "config.json", "eos_token_id", "2");
    check_saved("plain/checkpoint-1", "config.json", "bos_token_id", "1");
    check_saved("plain/checkpoint-1", "config.json", "pad_token_id", "null");
    check_saved("plain/checkpoint-1", "generation_config.json", "eos_token_id", "2");
    check_saved("plain/checkpoint-1", "generation_config.json", "bos_token_id", "1");
    check_saved("plain/checkpoint-1", "tokenizer_config.json", "chat_template", "\"mine\"");
    // conversations: where a turn ends, too
    snprintf(more, sizeof more, "--tokenizer %s --chat_template chatml", at("tok"));
    CHECK(train_small(at("chats.jsonl"), "new", more) == 0, "%s", said.log);
    check_saved("new/checkpoint-1", "config.json", "eos_token_id", "2");
    check_saved("new/checkpoint-1", "generation_config.json", "eos_token_id", "[2,4]");
    check_saved("new/checkpoint-1", "tokenizer_config.json", "chat_template", "null");
    check_saved("new/checkpoint-1", "tokenizer_config.json", "unk_token", "\"<unk>\"");
    check_saved_template("new/checkpoint-1", "chatml");
    // a template that the folder says in another place stays there, beside those for other purposes
    static const char list[] = "{\"eos_token\": \"</s>\", \"chat_template\": [{\"name\": \"x\", \"template\": \"y\"}, "
                               "{\"name\": \"default\", \"template\": \"{% for m in messages %}<|im_start|>{{ "
                               "m.content }}<|im_end|>{% endfor %}\"}]}";
    put("tok/tokenizer_config.json", list);
    snprintf(more, sizeof more, "--tokenizer %s", at("tok"));
    CHECK(train_small(at("chats.jsonl"), "list", more) == 0, "%s", said.log);
    char *saved = get(at("list/checkpoint-1/tokenizer_config.json"));
    CHECK(!strcmp(saved, list) && access(at("list/checkpoint-1/chat_template.jinja"), F_OK) != 0, "%s", saved);
    check_saved("list/checkpoint-1", "generation_config.json", "eos_token_id", "[2,4]");
    free(saved), make_tokenizer_folder("tok");
    // a base with a generation_config.json of its own, which keeps its other keys
    unlink(at("plain/checkpoint-1/manifest.json"));
    put("plain/checkpoint-1/generation_config.json", "{\"eos_token_id\": 2, \"top_k\": 7}");
    snprintf(more, sizeof more, "--model %s --chat_template llama2", at("plain/checkpoint-1"));
    CHECK(train_small(at("chats.jsonl"), "tuned", more) == 0, "%s", said.log);
    check_saved("tuned/checkpoint-1", "generation_config.json", "eos_token_id", "2"); // with which its answers end
    check_saved_template("tuned/checkpoint-1", "llama2");
    snprintf(more, sizeof more, "--model %s --chat_template chatml --tuning lora --lora_dim 2",
             at("plain/checkpoint-1"));
    CHECK(train_small(at("chats.jsonl"), "adapter", more) == 0, "%s", said.log);
    mkdir(at("merged"), 0777);
    char from[GX_PATH], to[GX_PATH], *argv[] = {(char *)"merge", from, to};
    snprintf(from, sizeof from, "%s", at("adapter/checkpoint-1")), snprintf(to, sizeof to, "%s", at("merged"));
    CHECK(gx_launch(merge_it, 3, argv) == 0, "%s", said.log);
    static const char *const folders[] = {"adapter/checkpoint-1", "merged"};
    for (int i = 0; i < 2; i++) {
        check_saved(folders[i], "generation_config.json", "eos_token_id", "[2,4]");
        check_saved(folders[i], "generation_config.json", "top_k", "7");
        check_saved(folders[i], "tokenizer_config.json", "chat_template", "null");
        check_saved_template(folders[i], "chatml");
    }
    check_saved("merged", "config.json", "eos_token_id", "2");
}

// Lines of the data keep their length: none of them is wrapped as the report's are.
TEST(a_sample_is_shown_with_its_own_lines)
{
    static const char text[] = "Be brief, kind, calm, and polite; answer in a line, without a list, a table, or a note";
    char record[400], line[200];
    snprintf(record, sizeof record,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": "
             "\"%s\"}]}\n",
             text, text);
    put("wide.jsonl", record);
    CHECK(train_small(at("wide.jsonl"), "wide",
                      "--chat_template chatml --show_data 1 --seq_len 250 --micro_batch_size 1") == 0,
          "%s", said.log);
    snprintf(line, sizeof line, "\n%s<|im_end|>\n", text);
    CHECK(strstr(said.out, line), "%s", said.out);
    snprintf(line, sizeof line, "\n⟦%s<|im_end|>⟧\n", text);
    CHECK(strstr(said.out, line) && strstr(said.out, "options that differ"), "%s", said.out);
}

// A resumed run trains on the same texts, whatever day it is.
TEST(a_template_that_says_the_date_says_that_of_the_day_on_which_the_run_began)
{
    static const char dated[] = "{% for m in messages %}<|im_start|>{{ strftime_now('%d %b %Y') }}{{ m.content }}"
                                "<|im_end|>{% endfor %}",
                      undated[] = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
    char more[3 * GX_PATH], today[40], line[GX_PATH], *argv[20] = {(char *)"train"};
    const time_t now = time(NULL);
    int argc = 1;
    write_both(), put("dated.jinja", dated), put("undated.jinja", undated);
    strftime(today, sizeof today, "\"%Y-%m-%d\"", localtime(&now));
    snprintf(more, sizeof more, "--chat_template %s --show_data 1 --seq_len 150 --chat_date 2024-02-29",
             at("dated.jinja"));
    CHECK(train_small(at("chats.jsonl"), "dated", more) == 0 && !said.log[0] && strstr(said.out, "29 Feb 2024"), "%s%s",
          said.out, said.log);
    memset(&said, 0, sizeof said);
    snprintf(line, sizeof line, "--output_dir %s --resume auto --max_steps 2 --threads 1", at("dated"));
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    CHECK(gx_launch(train_chat, argc, argv) == 0 && !said.log[0] && strstr(said.out, "29 Feb 2024"), "%s%s", said.out,
          said.log);
    check_saved("dated/checkpoint-2", "training_args.json", "chat_date", "\"2024-02-29\"");
    // another day is another text; a template that is gone is in the checkpoint, with which the run goes on
    unlink(at("dated.jinja"));
    for (int i = 0; i < 3; i++) {
        static const char *const says[] = {"dated/checkpoint-2/chat_template.jinja, which --chat_template accepts",
                                           "or --chat_date", ""};
        argc = 1, memset(&said, 0, sizeof said);
        snprintf(line, sizeof line, "--output_dir %s --resume auto --max_steps 3 --threads 1%s%s", at("dated"),
                 i == 1   ? " --chat_date 2024-03-01"
                 : i == 2 ? " --chat_template "
                          : "",
                 i == 2 ? at("dated/checkpoint-2/chat_template.jinja") : "");
        for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
        if (i == 1) put("dated.jinja", dated);
        CHECK(gx_launch(train_chat, argc, argv) == (i < 2) && strstr(said.log, says[i]), "%d: %s%s", i, said.out,
              said.log);
        unlink(at("dated.jinja"));
    }
    put("dated.jinja", dated);
    snprintf(more, sizeof more, "--chat_template %s --seq_len 150", at("dated.jinja"));
    CHECK(train_small(at("chats.jsonl"), "today", more) == 0 && !said.log[0], "%s", said.log);
    check_saved("today/checkpoint-1", "training_args.json", "chat_date", today);
    snprintf(more, sizeof more, "--chat_template %s", at("undated.jinja"));
    CHECK(train_small(at("chats.jsonl"), "undated", more) == 0 && !said.log[0], "%s", said.log);
    check_saved("undated/checkpoint-1", "training_args.json", "chat_date", "\"\"");
    snprintf(more, sizeof more, "--chat_template %s --chat_date 2024-02-29", at("undated.jinja"));
    CHECK(train_small(at("chats.jsonl"), "undated", more) == 0 && strstr(said.log, "--chat_date changes nothing"), "%s",
          said.log);
    // where there are no conversations, or instructions without a format, it changes nothing
    make_tokenizer_folder("tok"), put("tok/tokenizer_config.json", "{\"eos_token\": \"</s>\"}");
    put("alpaca.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n");
    put("plain.txt", "some text, some text, some text, some text, some text, some text, some text, some text, some");
    CHECK(train_small(at("plain.txt"), "undated", "--chat_date 2024-02-29 --micro_batch_size 1 --seq_len 8") == 0 &&
              strstr(said.log, "--chat_date changes nothing: the training data are texts"),
          "%s", said.log);
    snprintf(more, sizeof more, "--tokenizer %s --chat_date 2024-02-29 --micro_batch_size 1 --seq_len 200", at("tok"));
    CHECK(train_small(at("alpaca.jsonl"), "undated", more) == 0 &&
              strstr(said.log, "--chat_date changes nothing: instructions are written in Alpaca's format"),
          "%s", said.log);
    CHECK(train_small(at("chats.jsonl"), "x", "--chat_template chatml --chat_date 2023-02-29") == 1 &&
              strstr(said.log, "chat_date is \"2023-02-29\"; expected a day, YYYY-MM-DD"),
          "%s", said.log);
}

// transformers takes additional_chat_templates/default.jinja before chat_template.jinja, and so does a checkpoint.
TEST(a_default_among_additional_templates_is_the_folders_template)
{
    static const char jinja[] = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
    char more[2 * GX_PATH];
    write_both(), make_tokenizer_folder("tok"), mkdir(at("tok/additional_chat_templates"), 0777);
    put("tok/chat_template.jinja", "other"), put("tok/additional_chat_templates/default.jinja", jinja);
    put("plain.txt", "some text, some text, some text, some text, some text, some text, some text, some text, some");
    for (int i = 0; i < 2; i++) {
        snprintf(more, sizeof more, "--tokenizer %s%s", at("tok"), i ? "" : " --micro_batch_size 1 --seq_len 8");
        CHECK(train_small(at(i ? "chats.jsonl" : "plain.txt"), "added", more) == 0, "%s", said.log);
        char *saved = get(at("added/checkpoint-1/chat_template.jinja"));
        CHECK(saved && !strcmp(saved, jinja), "%d: %s", i, saved ? saved : "none");
        free(saved);
    }
    unlink(at("tok/additional_chat_templates/default.jinja")), unlink(at("tok/chat_template.jinja"));
}

// A template may leave out what a conversation has, and mark an answer without its end: that is said once.
TEST(what_a_template_leaves_out_of_conversations_is_said)
{
    static const struct {
        const char *jinja, *says; // says NULL: nothing
    } list[] = {
        {"{% for m in messages %}<|im_start|>{{ m.content | trim }}<|im_end|>{% endfor %}", NULL},
        {"{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.content }}<|im_end|>{% endif %}{% endfor "
         "%}",
         "does not write all that the system says, in 2 of 3 conversations"},
        {"x{% for m in messages %}{% if m.role != 'user' %}<|im_start|>{{ m.content }}<|im_end|>{% endif %}{% endfor "
         "%}",
         "does not write all that the user says, in 3 of 3 conversations"},
        {"{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
         "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}",
         "ends an answer with <|im_end|>, but in 3 of 3 conversations"},
        {"{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>"
         "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}",
         NULL}};
    char more[2 * GX_PATH];
    put("roles.jsonl", CHAT("{\"role\": \"system\", \"content\": \" be \"}, " USER("what") ", " SAYS("this"))
                           CHAT("{\"role\": \"system\", \"content\": \"do\"}, " USER("why") ", " SAYS("that"))
                               CHAT(USER("where") ", " SAYS("there")));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        put("mine.jinja", list[i].jinja);
        snprintf(more, sizeof more, "--chat_template %s --micro_batch_size 1", at("mine.jinja"));
        CHECK(train_small(at("roles.jsonl"), "roles", more) == 0, "%s", said.log);
        CHECK(list[i].says ? strstr(said.log, list[i].says) != NULL : !said.log[0], "%d: %s", (int)i, said.log);
    }
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    if (!mkdtemp(folder)) return 1;
    const int status = test_main(argc, argv);
    if (gx_folder_remove(folder, &err) != GX_OK) printf("%s\n", err.message);
    return status;
}
