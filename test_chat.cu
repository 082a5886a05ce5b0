// test_chat.cu: conversations that a model is trained on: records, their tokens and what is learned of them (against
// transformers: dumps of dev/ref/make_chat_refs.py), samples that hold whole ones, and a training of what the assistant
// says alone.
#define GX_NO_MAIN
#include "train_llama.cu"
#include "test/said.h"
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
        if (!CHECK(gx_chat_record_read(&r, lines[i], "f", 1, &e) == GX_OK, "%s", e.message)) continue;
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
        if (!CHECK(gx_chat_record_read(&r, list[i].line, "f", 1, &e) == GX_OK, "%s", e.message)) continue;
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
        {"{\"messages\": [" USER("a") "]}", GX_ERR_FORMAT, "f:7: \"messages\" has no turn of the assistant: nothing"},
        {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}", GX_ERR_FORMAT, "has no turn of the assistant"},
        {"{\"messages\": [" SAYS("a") "]}", GX_ERR_FORMAT,
         "f:7: messages[0] is of the assistant, where the user's turn is"},
        {"{\"messages\": [" USER("a") ", " USER("b") "]}", GX_ERR_FORMAT,
         "f:7: messages[1] is of the user, where the assistant's turn is"},
        {"{\"messages\": [" USER("a") ", " SAYS("b") ", {\"role\": \"system\", \"content\": \"c\"}]}", GX_ERR_FORMAT,
         "f:7: messages[2] is of the system, where the user's turn is"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"tool\", \"content\": \"b\"}]}", GX_ERR_FORMAT,
         "f:7: messages[1] has the role \"tool\"; expected system, user or assistant"},
        {"{\"messages\": [{\"content\": \"b\"}]}", GX_ERR_FORMAT, "f:7: messages[0] has the role \"\""},
        {"{\"conversations\": [{\"from\": \"user\", \"value\": \"b\"}]}", GX_ERR_FORMAT,
         "f:7: conversations[0] has the from \"user\"; expected system, human or gpt"},
        {"{\"conversations\": [{\"from\": \"gpt\", \"value\": \"b\"}]}", GX_ERR_FORMAT,
         "f:7: conversations[0] is of the gpt, where the human's turn is"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\"}]}", GX_ERR_FORMAT,
         "f:7: \"content\" of messages[1] is missing; expected a string"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": null}]}", GX_ERR_FORMAT,
         "f:7: \"content\" of messages[1] is null"},
        {"{\"messages\": [" USER("a") ", " SAYS(" \\n") "]}", GX_ERR_FORMAT,
         "f:7: \"content\" of messages[1] is empty"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": \"x\"}]}]}",
         GX_ERR_UNSUPPORTED, "f:7: part 0 of \"content\" of messages[0] is of the type \"image_url\"; only texts"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"tool_calls\": [1]}]}",
         GX_ERR_UNSUPPORTED, "f:7: messages[1] has \"tool_calls\", which is not built"},
        {"{\"messages\": [" USER("a") ", {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}]}",
         GX_ERR_UNSUPPORTED, "f:7: messages[1] has \"weight\""},
        {"{\"messages\": [" USER("a") ", " SAYS("b") "], \"tools\": [{}]}", GX_ERR_UNSUPPORTED,
         "f:7: the record has \"tools\""},
        {"{\"conversations\": [], \"system\": \"a\"}", GX_ERR_UNSUPPORTED, "a system's text is the first turn"},
        {"{\"instruction\": \"a\", \"input\": \"b\"}", GX_ERR_FORMAT, "f:7: \"output\" is missing; expected a string"},
        {"{\"instruction\": \"\", \"output\": \"b\"}", GX_ERR_FORMAT, "f:7: \"instruction\" is empty"},
        {"{\"instruction\": \"a\", \"output\": \"\"}", GX_ERR_FORMAT, "f:7: \"output\" is empty"},
        {"{\"instruction\": \"a\", \"input\": 3, \"output\": \"b\"}", GX_ERR_FORMAT, "f:7: \"input\" is "},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[1, 2]]}", GX_ERR_UNSUPPORTED, "\"history\""}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        GxChatRecord r;
        GxError e = GX_ZERO;
        refused(&e, gx_chat_record_read(&r, list[i].line, "f", 7, &e), list[i].status, list[i].says);
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
        CHECK(gx_dataset_is_chat(at(list[i].name), &log) == list[i].is_chat, "file %d", (int)i);
        CHECK(list[i].warns == (strstr(said.log, "has \"text\" and \"messages\"; the texts are taken") != NULL), "%s",
              said.log);
    }
    CHECK(!gx_dataset_is_chat(at("none.jsonl"), &log), "a file that is not there");
}

TEST(a_folder_or_a_file_of_tokens_of_conversations_is_refused_by_name)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    GxCorpus c;
    GxError e = GX_ZERO;
    put("l.jsonl", CHAT(USER("a") ", " SAYS("b")));
    refused(&e, gx_corpus_open(&c, at("l.jsonl"), &bytes, 1, NULL, &e), GX_ERR_UNSUPPORTED,
            "l.jsonl: its records are conversations (\"messages\"), of which no texts are made");
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

TEST(texts_ids_and_what_is_learned_are_those_of_transformers)
{
    static const char *const tokenizers[] = {"byte_level", "metaspace", "first"};
    static GxJson *of[400];
    char *text = get("data/ref/chat_train/expected.jsonl"), *save = NULL, name[40] = "";
    GxError e = GX_ZERO;
    int n = 0, compared = 0;
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
            const GxChatReading how = {gx_chat_format(format), NULL};
            for (int threads = 1; threads < 4 && bytes; threads += 2) {
                GxChatTokens c;
                int64_t documents = 0;
                snprintf(name, sizeof name, "%s, %s", format, tokenizers[k]);
                if (!CHECK(gx_chat_tokens_open(&c, at("chats.jsonl"), &t, &how, 100000, threads, &e) == GX_OK, "%s: %s",
                           name, e.message)) {
                    gx_error_clear(&e);
                    continue;
                }
                for (int j = i; j < end; j++)
                    if (!strcmp(gx_json_string(gx_json_get(of[j], "tokenizer")), tokenizers[k]))
                        documents += check_documents(&c, documents, gx_json_get(of[j], "documents"), name), compared++;
                CHECK(documents == c.file.documents && documents >= c.counts.n, "%s: %ld documents", name,
                      (long)c.file.documents);
                gx_chat_tokens_close(&c);
            }
            free(lines);
        }
        gx_tokenizer_close(&t);
    }
    CHECK(compared == 2 * n && n > 100, "%d of %d", compared, n);
    for (int i = 0; i < n; i++) gx_json_free(of[i]);
    free(text);
}

TEST(files_of_conversations_that_are_wrong_are_refused_with_their_line)
{
    static const struct {
        const char *text, *format, *lacks;
        GxStatus status;
        const char *says;
    } list[] = {{"", "chatml", NULL, GX_ERR_FORMAT, "none of its 0 conversations has an answer"},
                {CHAT(USER("a") ", " SAYS("b")) "\n" CHAT(USER("a") ", " SAYS("b")), "chatml", NULL, GX_ERR_FORMAT,
                 "chats.jsonl:2: the line is empty, and others follow"},
                {CHAT(USER("a") ", " SAYS("b")) "{\"text\": \"a\"}\n", "chatml", NULL, GX_ERR_FORMAT,
                 "chats.jsonl:2: the record"},
                {CHAT(USER("a") ", " SAYS("b")) CHAT(SAYS("b")) CHAT(USER("b")), "chatml", NULL, GX_ERR_FORMAT,
                 "chats.jsonl:2: messages[0]"},
                {CHAT(USER("a") ", " SAYS("\xFF")), "chatml", NULL, GX_ERR_FORMAT, "chats.jsonl:1"},
                {CHAT(USER("a") ", " SAYS("b")), "", NULL, GX_ERR_ARGUMENT,
                 "chats.jsonl:1: the record is a conversation, and neither the model's folder nor the tokenizer's has "
                 "a template; "
                 "--chat_template NAME takes one of chatml|"},
                {"{\"instruction\": \"a\", \"output\": \"b\"}", "", "it is not known", GX_ERR_ARGUMENT,
                 "chats.jsonl:1: the record is a conversation, and it is not known; --chat_template"},
                {"{\"instruction\": \"a\", \"output\": \"b\"}", "", NULL, GX_ERR_UNSUPPORTED,
                 "chats.jsonl:1: the tokenizer byte-256 has no eos_token, which ends the answer"}};
    GxTokenizer bytes = gx_tokenizer_bytes(), t;
    GxChatTokens c;
    GxError e = GX_ZERO;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const GxChatReading how = {gx_chat_format(list[i].format), list[i].lacks};
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
    const GxChatReading chatml = {gx_chat_format("chatml"), NULL}, mistral = {gx_chat_format("mistral"), NULL};
    refused(&e, gx_chat_tokens_open(&c, at("chats.jsonl"), &t, &chatml, 1000, 1, &e), GX_ERR_ARGUMENT,
            "has no <|im_end|>, with which answers of the format chatml end");
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
    const GxChatReading how = {gx_chat_format("chatml"), NULL};
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
    const GxChatReading thinks = {gx_chat_format("qwen3"), NULL};
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
    const GxChatReading how = {gx_chat_format("chatml"), NULL};
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

TEST(a_sample_holds_whole_conversations_which_do_not_see_each_other)
{
    enum { T = 200, CHATS = 23 };
    static int32_t tokens[2 * T], labels[2 * T], documents[4 * T];
    GxTokenizer bytes = gx_tokenizer_bytes();
    const char *formats[] = {"chatml", "qwen3"};
    for (int k = 0; k < 2; k++) {
        const GxChatReading how = {gx_chat_format(formats[k]), NULL};
        GxBlend b;
        GxError e = GX_ZERO;
        int64_t seen[2] = {0, 0}, learned[2] = {0, 0}, epoch[2][100];
        write_chats("chats.jsonl", CHATS);
        if (!CHECK(gx_blend_open(&b, at("chats.jsonl"), "", &bytes, &how, 0.2, T, 2, NULL, &e) == GX_OK, "%s",
                   e.message))
            return;
        const GxDataset *d = &b.source[0];
        const int64_t n[2] = {gx_dataset_epoch_samples(d, T), gx_blend_windows(&b)};
        CHECK(n[0] == d->packed.samples && n[1] == d->packed_held_out.samples && n[0] > 3 && n[1] > 1 && n[0] < 100 &&
                  d->chat.n == CHATS,
              "%ld and %ld samples", (long)n[0], (long)n[1]);
        for (int part = 0; part < 2; part++)
            for (int64_t s = 0; s < n[part]; s++) {
                const GxBlendSample to = {tokens, labels, documents, -7, 2};
                CHECK((part ? gx_blend_window(&b, s, T, &to, &e) : gx_blend_sample(&b, 9, s, T, &to, &e)) == GX_OK,
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

TEST(whole_conversations_are_held_out_at_the_end)
{
    GxTokenizer bytes = gx_tokenizer_bytes();
    const GxChatReading how = {gx_chat_format("qwen3"), NULL};
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
            "it has one conversation, of which none can be held out");
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
        gx_trainer_evaluate(&t, 0, &losses);
        gx_trainer_report(&t);
        if (g->rank != 0 || t.step != 1) continue;
        told.loss = gx_step_loss(&t.seen), told.norm = sqrt(t.seen.sum_squares);
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
    const GxChatReading how = {gx_chat_format("chatml"), NULL};
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
    CHECK(gx_token_file_write(at("both.tokens"), &c.file, c.ids, mask, &e) == GX_OK, "%s", e.message);
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

// The last two are held out in both: their loss is counted over what the assistant says.
TEST(a_validation_of_conversations_is_over_what_the_assistant_says)
{
    char more[200];
    write_both();
    snprintf(more, sizeof more, "--validation_fraction 0.25 --micro_batch_size 2 --seq_len %d --chat_template chatml",
             LENGTH);
    CHECK(train_with(at("both.jsonl"), more) == 0 && !said.log[0], "%s", said.log);
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

TEST(the_format_is_that_of_the_models_folder_on_all_ranks)
{
    static const char *const templates[] = {"{{ '<|im_start|>' }} <|im_end|>", "{{ 'mine' }}", NULL};
    char more[2 * GX_PATH], model[GX_PATH];
    write_both();
    snprintf(more, sizeof more, "--validation_fraction 0 --chat_template chatml --micro_batch_size 3 --seq_len %d",
             2 * LENGTH);
    CHECK(train_with(at("chats.jsonl"), more) == 0, "%s", said.log);
    snprintf(model, sizeof model, "%s", at("model"));
    CHECK(rename(at("out/checkpoint-1"), model) == 0, "no checkpoint");
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more, "--model %s --validation_fraction 0 --micro_batch_size 1 --ranks 3 --seq_len %d",
                 model, 2 * LENGTH);
        if (templates[i]) put("model/chat_template.jinja", templates[i]);
        else unlink(at("model/chat_template.jinja"));
        const int status = train_with(at("chats.jsonl"), more);
        if (i == 0) CHECK(status == 0 && strstr(said.out, "format chatml"), "%s%s", said.out, said.log);
        else
            CHECK(status == 1 &&
                      strstr(said.log, i == 1 ? "chats.jsonl:1: the record is a conversation, and the model's chat "
                                                "template is none of the supported ones; --chat_template"
                                              : "and neither the model's folder nor the tokenizer's has"),
                  "%s", said.log);
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
