// test_bpe_train.cu: a byte-level BPE that is trained here is the one that Hugging Face's `tokenizers` trains: its
// merges, its ids, what it makes of 10,000 strings, against data/ref/bpe/trained.txt, which dev/ref/make_bpe.py made
// with that library; its files, and what is refused.
#include "galaxy.h"
#include "test/strings.h"

// ---- what is expected ----------------------------------------------------------------------------------------------

enum { TRAININGS = 4 };
static struct {
    int size, frequency, has_lines, others; // what it is trained on: put_training_text
    unsigned long long hash;                // of the ids of all strings
    const char *document, *alphabet, *merges;
} wanted[TRAININGS];

static char *cut_line(char *line) // the next one
{
    char *end = strchr(line, '\n');
    if (end) *end++ = 0;
    return end;
}

static int expect(void) // 0: it cannot be read
{
    static char *text;
    if (text) return expected.lines > 2000;
    read_expected(0, "data/ref/wordpiece/expected.txt", 1, NULL);
    read_expected(1, "data/ref/bpe/expected.txt", 0, NULL);
    for (int i = 0; i < STRINGS; i++) make_string(i);
    text = get("data/ref/bpe/trained.txt");
    char *line = text ? cut_line(text) : NULL;
    for (int i = 0; i < TRAININGS; i++) {
        const int found = !line ? 0
                                : sscanf(line, "training %d %d %d %d %llx", &wanted[i].size, &wanted[i].frequency,
                                         &wanted[i].has_lines, &wanted[i].others, &wanted[i].hash);
        if (!CHECK(found == 5, "data/ref/bpe/trained.txt: training %d", i)) return 0;
        line = cut_line(line);
        wanted[i].document = line + strlen("document "), line = cut_line(line);
        wanted[i].alphabet = line + strlen("alphabet "), line = cut_line(line);
        wanted[i].merges = line;
        while (line && !strncmp(line, "merge ", 6)) line = cut_line(line);
    }
    return 1;
}

#define NEEDS_PCRE2                                                                                                    \
    if (!gx_regex_is_built()) SKIP("built without PCRE2");                                                             \
    if (!expect()) return

static int train(GxTokenizer *t, int i) // as the library was
{
    GxError err = GX_ZERO;
    const char *file = at("text");
    GxBpeTraining how = gx_bpe_training(wanted[i].size);
    how.min_frequency = wanted[i].frequency;
    put_training_text(file, wanted[i].has_lines, wanted[i].others);
    return CHECK(gx_bpe_train(t, &file, 1, &how, &err) == GX_OK, "training %d: %s", i, err.message);
}

// ---- what is learned -----------------------------------------------------------------------------------------------

static void compare_pieces(const GxTokenizer *t, int i, const GxJson *merges)
{
    char left[1000], right[1000], both[2000], room[8];
    const char *p = wanted[i].alphabet, *line = wanted[i].merges;
    int32_t id = 0;
    for (int used; sscanf(p, "%999s%n", left, &used) == 1; p += used, id++)
        CHECK(!strcmp(gx_tokenizer_piece(t, id, room), left), "training %d: the id %ld is \"%s\", expected \"%s\"", i,
              (long)id, gx_tokenizer_piece(t, id, room), left);
    CHECK(id == 257, "%ld", (long)id);
    for (int64_t k = 0; line && sscanf(line, "merge %999s %999s", left, right) == 2; k++, id++) {
        const GxJson *pair = gx_json_at(merges, k);
        const char *a = gx_json_string(gx_json_at(pair, 0)), *b = gx_json_string(gx_json_at(pair, 1));
        const char *piece = gx_tokenizer_piece(t, id, room);
        snprintf(both, sizeof both, "%s%s", left, right);
        if (!CHECK(!strcmp(a, left) && !strcmp(b, right) && piece && !strcmp(piece, both),
                   "training %d: merge %ld is \"%s\" \"%s\", the id %ld \"%s\"; expected \"%s\" \"%s\"", i, (long)k, a,
                   b, (long)id, piece ? piece : "", left, right))
            return;
        line += strlen(line) + 1;
    }
    CHECK(id == t->vocab_size && gx_json_size(merges) == id - 257, "training %d: %d pieces, expected %ld", i,
          t->vocab_size, (long)id);
}

static void compare_document(int i, GxJson *written)
{
    GxError err = GX_ZERO;
    GxJson *theirs = NULL, *model = gx_json_get(written, "model");
    CHECK(gx_json_parse(&theirs, wanted[i].document, (int64_t)strlen(wanted[i].document), "document", &err) == GX_OK,
          "%s", err.message);
    gx_json_set(model, "vocab", gx_json_new_object(), &err);
    gx_json_set(model, "merges", gx_json_new_array(), &err);
    CHECK(gx_tokenizer_json_equal(written, theirs), "training %d: the rest of tokenizer.json is another", i);
    gx_json_free(theirs);
}

TEST(a_trained_bpe_has_the_merges_the_ids_and_the_file_of_tokenizers)
{
    GxError err = GX_ZERO;
    NEEDS_PCRE2;
    mkdir(at("folder"), 0777);
    for (int i = 0; i < TRAININGS; i++) {
        GxTokenizer t;
        GxJson *root_json = NULL;
        if (!train(&t, i)) return;
        CHECK(gx_tokenizer_write(&t, at("folder"), &err) == GX_OK, "%s", err.message);
        if (!CHECK(gx_json_read(&root_json, at("folder/tokenizer.json"), 1 << 24, &err) == GX_OK, "%s", err.message))
            return;
        compare_pieces(&t, i, gx_json_get(gx_json_get(root_json, "model"), "merges"));
        compare_document(i, root_json);
        gx_json_free(root_json);
        gx_tokenizer_close(&t);
    }
}

TEST(strings_have_the_ids_of_the_library_and_come_back_from_them)
{
    NEEDS_PCRE2;
    for (int i = 0; i < TRAININGS; i++) {
        GxTokenizer t;
        uint64_t hash = GX_HASH_START;
        int other = 0;
        if (!train(&t, i)) return;
        for (int k = 0; k < STRINGS; k++) {
            const Bytes *s = &expected.string[k];
            GxError err = GX_ZERO;
            int64_t n = 0, bytes = 0;
            int32_t *ids = encode(&t, s, GX_SPECIAL_AS_TOKENS, &n);
            char *back = (char *)malloc((size_t)(n * t.longest + 1));
            hash = hash_ids(hash, ids, n);
            CHECK(gx_tokenizer_decode(&t, ids, n, GX_SPECIAL_AS_TOKENS, back, &bytes, &err) == GX_OK, "%s",
                  err.message);
            other += k % 50 != 0 && (bytes != s->n || memcmp(back, s->p, (size_t)bytes)); // % 50: bytes, not UTF-8
            free(ids), free(back);
        }
        CHECK(hash == wanted[i].hash, "training %d: other ids", i);
        CHECK(other == 0, "training %d: %d strings come back as others", i, other);
        gx_tokenizer_close(&t);
    }
}

// All counts of a text that is there eight times are eight times as large.
TEST(a_text_of_several_chunks_gives_the_merges_of_its_counts)
{
    enum { TIMES = 8 };
    GxTokenizer once, often;
    GxError err = GX_ZERO;
    const char *file = at("often");
    Bytes all = GX_ZERO;
    NEEDS_PCRE2;
    if (!train(&once, 1)) return;
    char *text = get(at("text"));
    for (int i = 0; i < TIMES; i++) add(&all, text, (int64_t)strlen(text));
    CHECK(all.n > 1 << 20, "%ld bytes are one chunk", (long)all.n);
    put(file, all.p, all.n);
    GxBpeTraining how = gx_bpe_training(wanted[1].size);
    how.min_frequency = TIMES * wanted[1].frequency;
    if (CHECK(gx_bpe_train(&often, &file, 1, &how, &err) == GX_OK, "%s", err.message))
        CHECK(!strcmp(once.identity, often.identity), "%s, and once %s", often.identity, once.identity);
    gx_tokenizer_close(&once), gx_tokenizer_close(&often);
    free(text), free(all.p);
}

static void has_pieces(const char *what, const GxTokenizer *t, const char *pieces) // those that were merged
{
    char all[200] = "", room[8];
    for (int32_t id = 257; id < t->vocab_size; id++)
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s", gx_tokenizer_piece(t, id, room));
    CHECK(!strcmp(all, pieces), "%s: \"%s\", expected \"%s\"", what, all, pieces);
}

TEST(words_are_those_of_a_line_and_of_a_file)
{
    static const struct {
        const char *what, *first, *second, *pieces;
    } cases[] = {
        {"a text that is smaller than the vocabulary", "abab ab", " ab", " ab Ġab"},
        {"pairs that are as frequent: smaller ids first, those of space and of what is merged come last",
         "dc dc ba ba\nba dc", "x", " ba dc Ġba Ġdc"},
        {"a line feed is of its line: white space before it is one word with it, not with what follows", "a  \n  a  \n",
         "  a", " Ġa ĠĊ ĠĠĊ"},
        {"a carriage return goes with it", "a\r\nb\r\n", "c", " čĊ"},
        {"lines that are empty are words by themselves", "ab\n\n\n\nab", "c", " ab"},
        {"a file ends its line", "zb\nb", "ab\nab\na", " ab"},
    };
    NEEDS_PCRE2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxTokenizer t;
        GxError err = GX_ZERO;
        const char *files[] = {at("first"), at("second")};
        const GxBpeTraining how = gx_bpe_training(1000);
        put(files[0], cases[i].first, (int64_t)strlen(cases[i].first));
        put(files[1], cases[i].second, (int64_t)strlen(cases[i].second));
        if (!CHECK(gx_bpe_train(&t, files, 2, &how, &err) == GX_OK, "%s: %s", cases[i].what, err.message)) continue;
        has_pieces(cases[i].what, &t, cases[i].pieces);
        gx_tokenizer_close(&t);
    }
}

// Each of its words counts, those at the edges of chunks, too.
TEST(folders_json_lines_and_conversations_train_as_the_texts_in_them_do)
{
    static const char text[] = "abab ab\n", more[] = "cd cd cd\n", one[] = "{\"text\": \"cd cd cd\\n\"}";
    static const char lines[] = "{\"text\": \"abab ab\\n\"}\n{\"other\": 1}\n{\"text\": \"cd cd cd\\n\", \"id\": 7}\n";
    static const char chats[] =
        "\xEF\xBB\xBF{\"messages\": [{\"role\": \"system\", \"content\": \"\"}, {\"role\": \"user\", \"content\": "
        "\"abab ab\\n\"}, {\"role\": \"assistant\", \"content\": \"cd cd cd\\n\"}]}\n";
    static const char instruction[] = "{\"instruction\": \"abab ab\\n\", \"output\": \"cd cd cd\\n\"}\n\n";
    static const char bad[] = "{\"text\": \"abab ab\\n\"}\n{\"text\": 3}\n";
    static const char bad_chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}]}\n{\"messages\": 3}\n";
    GxTokenizer t;
    GxError err = GX_ZERO;
    const GxBpeTraining how = gx_bpe_training(1000);
    char all[6][GX_PATH];
    NEEDS_PCRE2;
    snprintf(all[0], GX_PATH, "%s", at("texts")), snprintf(all[1], GX_PATH, "%s", at("lines.jsonl"));
    snprintf(all[2], GX_PATH, "%s", at("chats.jsonl")), snprintf(all[3], GX_PATH, "%s", at("told.jsonl"));
    snprintf(all[4], GX_PATH, "%s", at("texts/a.txt")), snprintf(all[5], GX_PATH, "%s", at("texts/b.jsonl"));
    CHECK(gx_folder_make(all[0], &err) == GX_OK, "%s", err.message);
    put(all[1], lines, sizeof lines - 1), put(all[2], chats, sizeof chats - 1);
    put(all[3], instruction, sizeof instruction - 1);
    put(all[4], text, sizeof text - 1), put(all[5], one, sizeof one - 1);
    put(at("first"), text, sizeof text - 1), put(at("second"), more, sizeof more - 1);
    for (int i = -1; i < 4; i++) {
        const char *files[] = {i < 0 ? at("first") : all[i], at("second")};
        if (!CHECK(gx_bpe_train(&t, files, i < 0 ? 2 : 1, &how, &err) == GX_OK, "%d: %s", i, err.message)) return;
        has_pieces(i < 0 ? "texts" : all[i], &t, " ab cd Ġcd");
        gx_tokenizer_close(&t);
    }
    const char *file = all[1];
    put(file, bad, sizeof bad - 1);
    refused(&err, gx_bpe_train(&t, &file, 1, &how, &err), GX_ERR_FORMAT, "lines.jsonl:2:", "\"text\"");
    put(file, bad_chat, sizeof bad_chat - 1);
    refused(&err, gx_bpe_train(&t, &file, 1, &how, &err), GX_ERR_FORMAT,
            "lines.jsonl:2:", "\"messages\" is an integer");
    put(all[5], chats, sizeof chats - 1); // in a folder they are none of train_llama's, either
    file = all[0];
    refused(&err, gx_bpe_train(&t, &file, 1, &how, &err), GX_ERR_UNSUPPORTED, "b.jsonl", "are conversations");
    unlink(all[4]), unlink(all[5]);
}

TEST(a_line_longer_than_a_chunk_is_one_line)
{
    enum { TIMES = 700000 };
    GxTokenizer t;
    GxError err = GX_ZERO;
    const char *file = at("line");
    GxBpeTraining how = gx_bpe_training(1000);
    NEEDS_PCRE2;
    char *text = (char *)malloc(3 * TIMES);
    for (int i = 0; i < TIMES; i++) memcpy(text + 3 * i, " ab", 3);
    put(file, text, 3 * TIMES);
    how.min_frequency = TIMES;
    if (CHECK(gx_bpe_train(&t, &file, 1, &how, &err) == GX_OK, "%s", err.message)) {
        has_pieces("a line", &t, " ab Ġab");
        gx_tokenizer_close(&t);
    }
    free(text);
}

// A word's merges cost its length each; counted anew, or moved up one by one, they would take hours.
TEST(a_text_that_is_one_long_word_takes_no_longer_than_its_merges)
{
    enum { LONG = 4 << 20 };
    GxTokenizer t;
    GxError err = GX_ZERO;
    const char *file = at("long");
    const GxBpeTraining how = gx_bpe_training(300);
    NEEDS_PCRE2;
    char *text = (char *)malloc(LONG);
    for (int i = 0; i < LONG; i++) text[i] = i % 2 ? 'a' : (char)('a' + below(3));
    put(file, text, LONG);
    const double begun = gx_seconds();
    if (CHECK(gx_bpe_train(&t, &file, 1, &how, &err) == GX_OK, "%s", err.message)) gx_tokenizer_close(&t);
    CHECK(gx_seconds() - begun < 60, "it took %.0f s", gx_seconds() - begun);
    free(text);
}

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(what_is_written_opens_again_as_the_same_and_names_its_special_token)
{
    GxTokenizer t, again;
    GxError err = GX_ZERO;
    GxJson *config = NULL;
    static const char *const roles[] = {"eos_token", "bos_token", "pad_token", "unk_token"};
    NEEDS_PCRE2;
    if (!train(&t, 0)) return;
    mkdir(at("folder"), 0777);
    CHECK(gx_tokenizer_write(&t, at("folder"), &err) == GX_OK && gx_tokenizer_check(&t, at("folder"), &err) == GX_OK,
          "%s", err.message);
    if (!CHECK(gx_tokenizer_open(&again, at("folder"), &err) == GX_OK, "%s", err.message)) return;
    CHECK(again.kind == &gx_bpe && !strcmp(t.identity, again.identity), "%s, and then %s", t.identity, again.identity);
    for (int k = 0; k < 2; k++) {
        const GxTokenizer *one = k ? &again : &t;
        CHECK(one->end == 0 && one->role[GX_TOKEN_PAD] == 0 && gx_tokenizer_is_special(one, 0) &&
                  gx_tokenizer_find(one, "<|endoftext|>") == 0,
              "end %ld, padding %ld", (long)one->end, (long)one->role[GX_TOKEN_PAD]);
    }
    CHECK(gx_json_read(&config, at("folder/tokenizer_config.json"), 1 << 20, &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 4; i++)
        CHECK(!strcmp(gx_json_string(gx_json_get(config, roles[i])), "<|endoftext|>"), "%s", roles[i]);
    CHECK(!strcmp(gx_json_string(gx_json_get(config, "tokenizer_class")), "PreTrainedTokenizerFast"), "another class");
    gx_json_free(config);
    gx_tokenizer_close(&t), gx_tokenizer_close(&again);
}

// Beyond the first chunk that is read at once, too.
TEST(what_cannot_be_trained_on_is_refused_by_name)
{
    enum { LINES = 300000 };
    GxTokenizer t;
    GxError err = GX_ZERO;
    GxBpeTraining how = gx_bpe_training(GX_BPE_TRAIN_LEAST);
    const char *files[] = {at("good"), at("bad")};
    NEEDS_PCRE2;
    char *text = (char *)malloc(5 * LINES + 8);
    put(files[0], "ab ab\n", 6);
    CHECK(gx_bpe_train(&t, files, 1, &how, &err) == GX_OK && t.vocab_size == 258, "%s", err.message);
    gx_tokenizer_close(&t);
    how.vocab_size = 257;
    refused(&err, gx_bpe_train(&t, files, 1, &how, &err), GX_ERR_ARGUMENT, "vocab_size is 257", "expected 258 to");
    how.vocab_size = GX_BPE_TRAIN_MOST + 1;
    refused(&err, gx_bpe_train(&t, files, 1, &how, &err), GX_ERR_ARGUMENT, "vocab_size is 1048577", "to 1048576");
    how.vocab_size = GX_BPE_TRAIN_MOST, how.min_frequency = 3;
    refused(&err, gx_bpe_train(&t, files, 1, &how, &err), GX_ERR_FORMAT, "good",
            "at least 3 times, so there is nothing to merge");
    how.min_frequency = 2;
    put(files[1], "", 0);
    refused(&err, gx_bpe_train(&t, files + 1, 1, &how, &err), GX_ERR_FORMAT, "bad", "nothing to merge");
    put(files[1], "a\nb\0c\n", 6);
    refused(&err, gx_bpe_train(&t, files, 2, &how, &err), GX_ERR_FORMAT, "bad:2:", "a byte of value 0");
    for (int i = 0; i < LINES; i++) memcpy(text + 5 * i, "\xC3\xA4 b\n", 5);
    memcpy(text + 5 * LINES, "a \xC3", 3);
    put(files[1], text, 5 * LINES + 3); // a character that is cut off
    refused(&err, gx_bpe_train(&t, files, 2, &how, &err), GX_ERR_FORMAT,
            "bad:300001:", "the byte 0xC3 at 1500002 is not UTF-8");
    memset(text, 'a', 4 << 18); // pieces grow to twice their length each time
    put(files[1], text, 4 << 18);
    how.vocab_size = 300;
    refused(&err, gx_bpe_train(&t, files, 2, &how, &err), GX_ERR_UNSUPPORTED, "good",
            "bytes of text; at most 65536 are supported");
    files[1] = at("missing");
    refused(&err, gx_bpe_train(&t, files, 2, &how, &err), GX_ERR_IO, "missing", "No such file");
    CHECK(!t.kind && !t.vocabulary, "something is open");
    free(text);
}

int main(int argc, char **argv) { return test_in_folder(argc, argv, "test_bpe_train"); }
